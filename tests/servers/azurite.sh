#!/bin/sh
# azurite.sh: a throw-away blob server for tests: Microsoft's emulator Azurite, from npm.
# run.sh: helper
#
#   sh azurite.sh up DIR      starts one on a free loopback port; DIR must not exist or be empty
#   sh azurite.sh down DIR    stops it, and leaves DIR/log
#   sh azurite.sh kill DIR    kill -9; what was stored stays
#   sh azurite.sh restart DIR starts it again on the same port
#   sh azurite.sh install     only installs it, and prints the folder
#
# DIR/env is to be sourced: AZURITE_URL (http://127.0.0.1:PORT), AZURITE_ACCOUNT, AZURITE_KEY (made for this one),
# AZURITE_NODE (folder of node_modules, with @azure/storage-blob in it).
# The packages go into ${CKPT_NPM_CACHE:-$HOME/.cache/ckpt-tests}/azurite, once (16 s, 190 MB).
# Status 77 and the reason on the last line when there is no node, no npm, or npm has no way to its registry.
set -u

say() { echo "azurite.sh: $*"; }
skip() { echo "azurite: $*"; exit 77; }
cache=${CKPT_NPM_CACHE:-${HOME:-/tmp}/.cache/ckpt-tests}/azurite

there() { [ -f "$cache/node_modules/azurite/dist/src/blob/main.js" ] && [ -f "$cache/node_modules/@azure/storage-blob/package.json" ]; }

# Installs aside and renames, so that two at once do not meet and a half-done one is never seen.
install() {
    command -v node >/dev/null 2>&1 || skip "no node"
    there && return 0
    command -v npm >/dev/null 2>&1 || skip "no npm to install it with"
    mkdir -p "$cache" 2>/dev/null || skip "cannot make $cache (CKPT_NPM_CACHE names another)"
    new=$(mktemp -d "$cache/new-XXXXXX") || skip "cannot write into $cache"
    if ! timeout 300 npm install --no-audit --no-fund --loglevel=error --prefix "$new" azurite @azure/storage-blob >"$new/npm.log" 2>&1; then
        why=$(grep -m 1 -i 'err' "$new/npm.log" | cut -c 1-120)
        rm -rf "$new"
        skip "npm cannot install it: ${why:-no reason given}"
    fi
    there || mv "$new/node_modules" "$cache/node_modules" 2>/dev/null
    rm -rf "$new"
    there || skip "npm's package is not as expected"
}

# A random listening port that nothing uses now, below the ephemeral range.
port() {
    while :; do
        p=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000))
        hex=$(printf ':%04X ' "$p")
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qi "$hex" || break
    done
    echo "$p"
}


# Starts it on $AZURITE_PORT; false: it did not come up.
start() {
    AZURITE_ACCOUNTS=$AZURITE_ACCOUNT:$AZURITE_KEY setsid node "$cache/node_modules/azurite/dist/src/blob/main.js" --blobHost 127.0.0.1 \
        --blobPort "$AZURITE_PORT" --location "$DIR/data" --silent --disableTelemetry --skipApiVersionCheck >>"$DIR/log" 2>&1 </dev/null &
    echo $! >"$DIR/pid"
    i=0
    while [ $i -lt 150 ]; do
        kill -0 "$(cat "$DIR/pid")" 2>/dev/null || return 1
        grep -q 'successfully listens' "$DIR/log" && return 0
        i=$((i + 1))
        sleep 0.1
    done
    return 1
}

[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
if [ "$1" = install ]; then install; echo "$cache"; exit 0; fi
[ $# = 2 ] || exit 2
DIR=$2
case $1 in
    up)
        install
        mkdir -p "$DIR/data" || exit 1
        DIR=$(cd "$DIR" && pwd)
        AZURITE_ACCOUNT=ckpttests
        AZURITE_KEY=$(head -c 64 /dev/urandom | base64 | tr -d '\n')
        tries=0
        while :; do
            AZURITE_PORT=$(port)
            : >"$DIR/log"
            start && break
            kill -9 "$(cat "$DIR/pid")" 2>/dev/null
            tries=$((tries + 1))
            [ $tries -lt 3 ] || { say "it does not start:" >&2; tail -n 5 "$DIR/log" >&2; exit 1; }
        done
        {
            echo "AZURITE_URL=http://127.0.0.1:$AZURITE_PORT"
            echo "AZURITE_PORT=$AZURITE_PORT"
            echo "AZURITE_ACCOUNT=$AZURITE_ACCOUNT"
            echo "AZURITE_KEY='$AZURITE_KEY'"
            echo "AZURITE_NODE='$cache'"
        } >"$DIR/env" ;;
    down | kill)
        pid=$(cat "$DIR/pid" 2>/dev/null) || exit 0
        kill -9 "$pid" 2>/dev/null
        i=0
        while kill -0 "$pid" 2>/dev/null && [ $i -lt 50 ]; do sleep 0.05; i=$((i + 1)); done
        [ "$1" = kill ] || rm -rf "$DIR/data" "$DIR/env" "$DIR/pid" ;;
    restart)
        . "$DIR/env"
        DIR=$(cd "$DIR" && pwd)
        : >"$DIR/log"
        start || { say "it does not start again" >&2; tail -n 5 "$DIR/log" >&2; exit 1; } ;;
    *) exit 2 ;;
esac
