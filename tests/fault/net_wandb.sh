#!/bin/sh
# net_wandb.sh: faults and kills between wandb:// and tests/servers/fake-wandb.js: those of the storage behind it; GraphQL's are in
# wandb_fake.sh. See net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
wandb_server
url=http://127.0.0.1:$port
net_killed wandb "$url" wandb://ent/proj/run PUT
net_broken wandb "$url"
[ $failures = 0 ]
