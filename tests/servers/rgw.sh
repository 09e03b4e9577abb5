#!/bin/sh
# rgw.sh: a throw-away S3 server for tests: Ceph's RADOS Gateway over one mon and one osd that keeps everything in memory.
# run.sh: helper
#
#   sh rgw.sh up DIR [http|https|both]   starts one (default both) on free loopback ports; DIR must not exist or be empty
#   sh rgw.sh down DIR                   stops exactly the processes that `up` started and leaves DIR/log
#   sh rgw.sh kill DIR                   kill -9 of radosgw alone: what was stored stays
#   sh rgw.sh restart DIR                starts it again on the same ports
#   sh rgw.sh bucket DIR NAME            makes a bucket
#   sh rgw.sh admin DIR ARG...           radosgw-admin
#
# DIR/env is to be sourced: RGW_HTTP, RGW_HTTPS (endpoints, empty when not asked for), RGW_CA (of the certificate, valid for
# localhost, s3.localhost, *.s3.localhost and 127.0.0.1), RGW_KEY, RGW_SECRET. DIR/pids: lines "name pid".
# RGW_EXTRA: lines for the gateway's section of ceph.conf ('rgw max concurrent requests = 2').
# RGW_OWNER: the process that the servers outlive by a second at most; default the caller, 0: nobody, they stay until `down`.
# RGW_MEMORY: bytes that may be stored (8 GiB; memstore takes twice of what is really there).
# Status 77 and the reason on the last line when the packages are missing. Any user may run it, several at once.
#
# Ports: chosen among those free below the ephemeral range; a server that loses a race for one dies, and all is started again
# with others. Whether the one that answers is ours its random keys tell.
set -u

say() { echo "rgw.sh: $*"; }
fail() { say "$*" >&2; exit 1; }

alive() { [ -d "/proc/$1" ] && [ "$(sed 's/^[^)]*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" != Z ]; }
pid_of() { awk -v name="$1" '$1 == name { pid = $2 } END { print pid }' "$DIR/pids" 2>/dev/null; }
forget() { grep -v "^$1 " "$DIR/pids" >"$DIR/pids.new"; mv "$DIR/pids.new" "$DIR/pids"; }

# A random listening port that nothing uses now.
port() {
    while :; do
        p=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000))
        [ "$p" != "${taken:-}" ] || continue
        hex=$(printf ':%04X ' "$p")
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qi "$hex" || break
    done
    taken=$p
    echo "$p"
}

# Starts a daemon away from the caller's terminal, pipes and process group.
start() {
    name=$1
    shift
    setsid "$@" >"$DIR/log/$name.out" 2>&1 </dev/null &
    echo "$name $!" >>"$DIR/pids"
}

stop_all() {
    [ -f "$DIR/pids" ] || return 0
    while read -r _ pid; do alive "$pid" && kill -9 "$pid" 2>/dev/null; done <"$DIR/pids"
    while read -r _ pid; do while alive "$pid"; do sleep 0.05; done; done <"$DIR/pids"
    rm -f "$DIR/pids"
}

certificate() {
    openssl ecparam -name prime256v1 -genkey -noout -out ca-key.pem &&
    openssl req -x509 -new -key ca-key.pem -subj '/CN=ckpt test CA' -days 30 -out ca.pem \
        -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign' &&
    openssl ecparam -name prime256v1 -genkey -noout -out key.pem &&
    openssl req -new -key key.pem -subj /CN=localhost -out cert.csr &&
    printf 'subjectAltName=DNS:localhost,DNS:s3.localhost,DNS:*.s3.localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' >cert.ext &&
    openssl x509 -req -in cert.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 30 -extfile cert.ext -out cert.pem
}

# What makes it start in a second: no authentication between the daemons, a quick paxos, one placement group a pool, no mgr.
# --no-mon-config and a monmap file avoid a race in which one start in seven dies.
configure() {
    frontends="beast tcp_nodelay=1"                      # else each answer with a body waits 40 ms for an ACK
    [ -n "$http" ] && frontends="$frontends endpoint=127.0.0.1:$http"
    [ -n "$https" ] && frontends="$frontends ssl_endpoint=127.0.0.1:$https ssl_certificate=$DIR/cert.pem ssl_private_key=$DIR/key.pem"
    cat <<CONF
[global]
fsid = $fsid
mon host = v1:127.0.0.1:$mon
monmap = $DIR/monmap
mon client hunt interval = 0.5
objecter tick interval = 0.2
mon client ping interval = 5
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = 14000
ms bind port max = 19999
run dir = $DIR/run
admin socket =
log file = $DIR/log/\$name.log
log to stderr = false
err to stderr = true
crash dir = $DIR/log
heartbeat file =
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 2000
ms crc data = false
ms crc header = false
CONF
    for part in ms osd rgw objecter memstore mon rocksdb monc auth paxos optracker journal finisher heartbeatmap perfcounter throttle \
        crush client timer tp asok rados objclass; do echo "debug $part = 0/0"; done
    # Debian 13's Ceph looks for them below the working directory.
    classes=
    for dir in /usr/lib/*/rados-classes; do [ -d "$dir" ] && classes="osd class dir = $dir"; done
    cat <<CONF
[mon]
mon data = $DIR/mon
mon data avail crit = 1
mon data avail warn = 2
auth allow insecure global id reclaim = true
paxos propose interval = 0.02
paxos min wait = 0.01
mon osd min up ratio = 0
mon tick interval = 1
[osd]
osd data = $DIR/osd
osd objectstore = memstore
memstore device bytes = ${RGW_MEMORY:-8589934592}
memstore page set = false
$classes
osd class load list = *
osd class default list = *
osd max object name len = 2048
osd check max object name len on startup = false
[client.rgw]
rgw data = $DIR/rgw
rgw frontends = $frontends
rgw dns name = s3.localhost
rgw enable usage log = false
rgw dynamic resharding = false
rgw enable quota threads = false
rgw thread pool size = 64
rgw override bucket index max shards = 1
rgw rados pool pg num min = 1
rgw usage max user shards = 1
rgw lc max objs = 1
rgw gc max objs = 1
rgw gc obj min wait = 1
rgw gc processor period = 5
rgw max put size = 5368709120
${RGW_EXTRA:-}
CONF
}

start_gateway() { start rgw radosgw --no-mon-config -c "$DIR/ceph.conf" -n client.rgw -f; }

ours() {
    for url in ${http:+"http://127.0.0.1:$http"} ${https:+"https://127.0.0.1:$https"}; do
        code=$(curl -s -o /dev/null -w '%{http_code}' --noproxy '*' --max-time 5 --cacert "$DIR/ca.pem" \
            --aws-sigv4 aws:amz:us-east-1:s3 -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --user "$key:$secret" "$url/")
        [ "$code" = 200 ] || return 1
    done
}

# Waits until the gateway answers with our keys; fails when a daemon has died.
wait_answer() {
    i=0
    while ! ours; do
        for daemon in mon osd rgw; do
            pid=$(pid_of $daemon)
            [ -n "$pid" ] && alive "$pid" || { say "$daemon died" >&2; return 1; }
        done
        i=$((i + 1))
        [ $i -lt 300 ] || { say "no answer in 30 s (the last status: $code)" >&2; return 1; }
        sleep 0.1
    done
}

up_once() {
    rm -rf mon osd rgw run monmap
    mkdir -p mon osd rgw run log
    http= https=
    [ "$what" = https ] || http=$(port)
    taken=$http
    [ "$what" = http ] || https=$(port)
    taken=$https
    mon=$(port)
    [ "$mon" != "$http" ] || return 1
    fsid=$(cat /proc/sys/kernel/random/uuid)
    configure >ceph.conf
    monmaptool --create --fsid "$fsid" --addv a "[v1:127.0.0.1:$mon]" monmap >/dev/null || return 1
    : >keyring
    ceph-mon --no-mon-config -c ceph.conf -i a --mkfs --monmap monmap --keyring keyring >log/mkfs.out 2>&1 || return 1
    start mon ceph-mon --no-mon-config -c "$DIR/ceph.conf" -i a -f
    uuid=$(cat /proc/sys/kernel/random/uuid)
    i=0
    until timeout 10 ceph -c ceph.conf osd new "$uuid" >/dev/null 2>>log/cli.out; do
        i=$((i + 1))
        [ $i -lt 5 ] && alive "$(pid_of mon)" || return 1
        sleep 0.1
    done
    ceph-osd --no-mon-config -c ceph.conf -i 0 --mkfs --osd-uuid "$uuid" >log/osd-mkfs.out 2>&1 || return 1
    start osd ceph-osd --no-mon-config -c "$DIR/ceph.conf" -i 0 -f
    start_gateway
    timeout 30 radosgw-admin --no-mon-config -c ceph.conf -n client.rgw user create --uid=ckpt --display-name=ckpt \
        --access-key="$key" --secret-key="$secret" >user.json 2>>log/cli.out || return 1
    wait_answer
}

# Ends the servers when the process that wanted them is gone.
watch_owner() {
    while alive "$1"; do
        sleep 1
        [ -f "$DIR/pids" ] || return
    done
    stop_all
}

up() {
    missing=
    for tool in radosgw:radosgw radosgw-admin:radosgw ceph-mon:ceph-mon monmaptool:ceph-base ceph-osd:ceph-osd ceph:ceph-common \
        curl:curl openssl:openssl setsid:util-linux; do
        command -v "${tool%%:*}" >/dev/null 2>&1 || missing="$missing ${tool#*:}"
    done
    [ -d /proc/net ] || missing="$missing /proc"
    [ -z "$missing" ] || { say "no RADOS Gateway: missing$missing"; exit 77; }
    [ ! -f "$DIR/pids" ] || fail "$DIR is in use: run 'rgw.sh down $DIR' first"
    cd "$DIR" || exit 1
    mkdir -p log
    certificate >log/openssl.out 2>&1 || fail "no certificate: $(tail -n 1 log/openssl.out)"
    key=CKPT$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n' | tr a-f A-F)
    secret=sec/ret+=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    tries=0
    until up_once; do
        stop_all
        tries=$((tries + 1))
        [ $tries -lt 4 ] || fail "it does not start: see $DIR/log"
    done
    cat >env <<ENV
RGW_HTTP=${http:+http://127.0.0.1:$http}
RGW_HTTPS=${https:+https://127.0.0.1:$https}
RGW_CA=$DIR/ca.pem
RGW_KEY=$key
RGW_SECRET='$secret'
export RGW_HTTP RGW_HTTPS RGW_CA RGW_KEY RGW_SECRET
ENV
    [ "$owner" = 0 ] || watch_owner "$owner" >/dev/null 2>&1 </dev/null &
}

known() {
    [ -f "$DIR/env" ] && . "$DIR/env" || fail "nothing runs in $DIR"
    key=$RGW_KEY secret=$RGW_SECRET
    http=${RGW_HTTP##*:} https=${RGW_HTTPS##*:}
}

command=${1:-}
[ -n "${2:-}" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$2" && DIR=$(cd "$2" && pwd -P) || exit 1
owner=${RGW_OWNER:-$PPID}
CEPH_CONF=$DIR/ceph.conf CEPH_ARGS=
export CEPH_CONF CEPH_ARGS
unset http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY
case $command in
    up)
        what=${3:-both}
        case $what in http | https | both) ;; *) fail "not http, https or both: $what" ;; esac
        up ;;
    down) stop_all ;;
    kill)
        pid=$(pid_of rgw)
        [ -n "$pid" ] || fail "no radosgw runs in $DIR"
        kill -9 "$pid"
        while alive "$pid"; do sleep 0.02; done
        forget rgw ;;
    restart)
        known
        [ -z "$(pid_of rgw)" ] || { sh "$0" kill "$DIR" || exit 1; }
        i=0
        while start_gateway; ! wait_answer; do
            forget rgw
            i=$((i + 1))
            [ $i -lt 5 ] || fail "radosgw does not start again: see $DIR/log"
        done ;;
    bucket)
        known
        endpoint=${RGW_HTTP:-$RGW_HTTPS}
        curl -sS --fail --noproxy '*' --max-time 20 --cacert "$RGW_CA" --aws-sigv4 aws:amz:us-east-1:s3 \
            -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --user "$key:$secret" -X PUT "$endpoint/$3" || fail "no bucket $3" ;;
    admin)
        known
        shift 2
        exec radosgw-admin --no-mon-config -c "$DIR/ceph.conf" -n client.rgw "$@" ;;
    *) fail "what is '$command'?" ;;
esac
