#!/bin/sh
# net_faults.sh: faults of the network and of servers between the library and a real S3 server, by net_faults.c; see its top.
# With CKPT_LONG=1 the gateway dies more often, and more of everything runs one after the other. run.sh: waits
. "$(dirname "$0")/net_setup.sh"
compile "$tests/fault/net_faults.c" net_faults -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread
gateway http
behind --small --log "$work/proxy.log" "${RGW_HTTP##*:}"
NET_ENDPOINT=http://127.0.0.1:$port NET_DIRECT=$RGW_HTTP NET_CONTROL=$control NET_LOG=$work/proxy.log NET_WORK=$work
sink_server --keep --md5 --check
SINK_ENDPOINT=http://127.0.0.1:$port SINK_PORT=$port
sink_server --keep --md5 --check --tokens
behind "$port"
TOKEN_ENDPOINT=http://127.0.0.1:$port TOKEN_CONTROL=$control
export NET_ENDPOINT NET_DIRECT NET_CONTROL NET_LOG NET_WORK SINK_ENDPOINT SINK_PORT TOKEN_ENDPOINT TOKEN_CONTROL

# What mostly waits runs side by side; the one that kills the gateway comes last.
groups=${NET_GROUPS:-tokens+stall+lies+storm table restart}
for group in $groups; do faults_of $(echo "$group" | tr + ' '); done
[ $failures = 0 ]
