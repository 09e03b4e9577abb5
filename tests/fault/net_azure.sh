#!/bin/sh
# net_azure.sh: faults and kills between azure:// and Microsoft's emulator Azurite. See net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
azure_server
url=http://127.0.0.1:$port
net_killed azure "$url" azure://net/run blockid
net_broken azure "$url"
[ $failures = 0 ]
