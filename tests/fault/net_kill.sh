#!/bin/sh
# net_kill.sh: kill -9 of uploading processes against RGW and sshd, by net_kill.c; see its top. 25 and 10 kills; 100 and 100 with
# CKPT_LONG=1. run.sh: waits
. "$(dirname "$0")/net_setup.sh"
compile "$tests/fault/net_kill.c" net_kill -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread
kills=25 few=10
[ "${CKPT_LONG:-0}" = 1 ] && kills=100 few=100
TMPDIR=$work
export TMPDIR

case ${NET_ONLY:-both} in both | s3)
    gateway http
    behind --log "$work/proxy.log" "${RGW_HTTP##*:}"
    # So slow that most kills meet parts under way.
    curl -s -o rule.log --noproxy '*' "http://127.0.0.1:$control/rate=40000000&n=-1&match=partNumber" || fail "no rule"
    NET_URI=s3://net/run NET_KILLS=$kills NET_SECONDS=${NET_SECONDS:-0.8} NET_ENDPOINT=http://127.0.0.1:$port NET_DIRECT=$RGW_HTTP NET_LOG=$work/proxy.log
    export NET_URI NET_KILLS NET_SECONDS NET_ENDPOINT NET_DIRECT NET_LOG
    ./net_kill 2>kill.err || { failures=1; tail -n 20 kill.err | cut -c 1-300; }
    sh "$tests/servers/rgw.sh" down "$work/rgw" ;;
esac

case ${NET_ONLY:-both} in both | sftp)
    if sftp_server; then
        NET_URI=sftp://$SFTP_USER@$SFTP_HOST:$SFTP_PORT/$SFTP_DATA/run SFTP_PLACE=$SFTP_DATA/run NET_KILLS=$few NET_SECONDS=1.2
        export NET_URI SFTP_PLACE NET_KILLS NET_SECONDS
        ./net_kill 2>kill.err || { failures=1; tail -n 20 kill.err | cut -c 1-300; }
    else
        echo "SKIP: sshd: $(tail -n 1 sftp.log)"
    fi ;;
esac
[ $failures = 0 ]
