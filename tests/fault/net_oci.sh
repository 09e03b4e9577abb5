#!/bin/sh
# net_oci.sh: faults and kills between oci:// and tests/servers/fake-oci.js. See net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
oci_server
url=http://127.0.0.1:$port
net_killed oci "$url" oci://any-killed/run uploadPartNum
net_broken oci "$url" --json
[ $failures = 0 ]
