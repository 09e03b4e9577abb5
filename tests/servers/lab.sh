#!/bin/sh
# lab.sh: a network of two hosts on one machine with a long way between them, for tests and measurements (delay.c says how). Root only.
# run.sh: helper
#
#   sh lab.sh up DIR [ARG...]            makes it; the arguments are delay.c's: --rtt MS (20), --loss PERCENT, --rate MBIT. DIR must not
#                                        exist or be empty
#   sh lab.sh in DIR client CMD ARG...   runs a command on one of the hosts; the other is "server"
#   sh lab.sh down DIR                   kills what runs on the hosts, and the network is gone; the files stay
#
# DIR/env is to be sourced: LAB_CLIENT, LAB_SERVER (files: the hosts' network namespaces), LAB_CLIENT_ADDRESS, LAB_SERVER_ADDRESS. Each host
# has that address and 127.0.0.1, and nothing leads anywhere else.
# LAB_OWNER: the process that the network and all on it outlive by a moment at most; default the caller, 0: nobody, it stays until `down`.
# Status 77 and the reason on the last line where it cannot be. Several at once do not see each other.
set -u

fail() { echo "lab.sh: $*" >&2; exit 1; }
never() { echo "no network lab: $*"; exit 77; }
alive() { [ -d "/proc/$1" ] && [ "$(sed 's/^[^)]*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" != Z ]; }

up() {
    [ "$(uname -s)" = Linux ] || never "it needs Linux"
    [ "$(id -u)" = 0 ] || never "it needs root"
    [ -c /dev/net/tun ] || never "no /dev/net/tun"
    command -v "${CC:-cc}" >/dev/null 2>&1 || never "no C compiler '${CC:-cc}'"
    unshare -n true 2>/dev/null || never "no right to make a network namespace here (or no util-linux)"
    [ ! -f "$DIR/pid" ] || fail "$DIR is in use: run 'lab.sh down $DIR' first"
    "${CC:-cc}" -O2 -pthread "$here/delay.c" -o "$DIR/delay" 2>"$DIR/log" || fail "delay.c does not compile: $(head -n 1 "$DIR/log")"
    [ "$owner" = 0 ] || set -- "$@" --owner "$owner"
    : >"$DIR/hosts"
    setsid "$DIR/delay" "$@" >"$DIR/hosts" 2>>"$DIR/log" </dev/null &
    echo $! >"$DIR/pid"
    i=0
    until [ "$(wc -l <"$DIR/hosts")" = 2 ]; do
        alive "$(cat "$DIR/pid")" && [ $i -lt 200 ] || { down; never "$(tail -n 1 "$DIR/log")"; }
        i=$((i + 1))
        sleep 0.02
    done
    awk '{ name = toupper($1); printf "LAB_%s=%s LAB_%s_ADDRESS=%s\nexport LAB_%s LAB_%s_ADDRESS\n", name, $2, name, $3, name, name }' \
        "$DIR/hosts" >"$DIR/env"
}

down() {
    pid=$(cat "$DIR/pid" 2>/dev/null)
    rm -f "$DIR/pid" "$DIR/env"
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null
    i=0
    while alive "$pid"; do
        i=$((i + 1))
        [ $i != 100 ] || kill -9 "$pid" 2>/dev/null
        sleep 0.02
    done
}

command=${1:-}
[ -n "${2:-}" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
mkdir -p "$2" && DIR=$(cd "$2" && pwd -P) || exit 1
owner=${LAB_OWNER:-$PPID}
shift 2
case $command in
    up) up "$@" ;;
    down) down ;;
    in)
        [ -f "$DIR/env" ] && . "$DIR/env" || fail "nothing runs in $DIR"
        case ${1:-} in
            client) net=$LAB_CLIENT ;;
            server) net=$LAB_SERVER ;;
            *) fail "the hosts are client and server" ;;
        esac
        shift
        exec nsenter --net="$net" -- "$@" ;;
    *) fail "what is '$command'?" ;;
esac
