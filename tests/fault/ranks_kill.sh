#!/bin/sh
# ranks_kill.sh: ranks_kill.c with a real S3 server, Ceph's gateway, as the store: 7 rounds; with CKPT_LONG=1 100 of them, and 100
# with file:// before. run.sh: waits slow
. "$(dirname "$0")/net_setup.sh"
long=${CKPT_LONG:-0}

# kills NAME ROUNDS PROGRAM
kills() {
    CKPT_KILLS=$2 "$3" >kill.log 2>&1
    if [ $? = 0 ]; then
        pass "$1: $(sed -n 's/^\([0-9]* ranks killed.*\)/\1/p' kill.log)"
    else
        fail "$1" kill.log
    fi
}
if [ "$long" = 1 ]; then
    compile "$tests/fault/ranks_kill.c" ./local -lcmocka -lpthread -lm
    kills 'folders and file://' "${CKPT_KILLS:-100}" ./local
fi
compile "$tests/fault/ranks_kill.c" ./remote -DRANKS_KILL_REMOTE -lcmocka -lcurl -lcrypto -lpthread -lm
gateway http
S3_ENDPOINT_URL=$RGW_HTTP CKPT_RANKS_STORE=s3://net/kill
export S3_ENDPOINT_URL CKPT_RANKS_STORE
kills 'folders and S3' $([ "$long" = 1 ] && echo "${CKPT_KILLS:-100}" || echo 7) ./remote
[ $failures = 0 ]
