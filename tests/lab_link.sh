#!/bin/sh
# lab_link.sh: the network lab (servers/lab.sh), which the bench measures over: a link of 20 ms is one of 20 ms, what is sent over a link
# that loses a packet in a hundred comes out whole, SFTP's ranges bring little that was not asked for, two labs do not see each other, and
# nothing is left of them. Root only, and Linux.
# run.sh: waits
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
CC=${CC:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-lab-XXXXXX") || exit 1
keeper=
cleanup() {
    sh "$here/servers/sftp.sh" down "$work/sshd" >/dev/null 2>&1
    for lab in one two three; do sh "$here/servers/lab.sh" down "$work/$lab" >/dev/null 2>&1; done
    [ -z "$keeper" ] || kill "$keeper" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

. "$here/share.sh"
remote_there || exit 77
command -v curl >/dev/null 2>&1 || { echo "no curl"; exit 77; }
lab() { LAB_OWNER=${keeper:-$$} sh "$here/servers/lab.sh" "$@"; }
status=0
pass() { echo "PASS: $1"; }
fail() { echo "FAIL: $1"; shift; [ $# = 0 ] || echo "$*"; status=1; }

lab up "$work/one" --loss 1 >"$work/up" 2>&1
rc=$?
[ $rc = 0 ] || { cat "$work/up"; exit $rc; }
sleep 600 &
keeper=$!
lab up "$work/two" --rtt 60 >"$work/up" 2>&1 || { cat "$work/up"; exit 1; }
lab up "$work/three" >"$work/up" 2>&1 || { cat "$work/up"; exit 1; }

cat >"$work/main.c" <<'C'
#define CKPT_IMPLEMENTATION
#include HEADER
#include <stdio.h>
/* main s3 ENDPOINT FILE BACK: up and down again.  main sftp URI NAME BACK KEY KNOWN_HOSTS: down */
int main(int argc, char **argv) {
    ckpt_store *s;
    ckpt_store_desc d = { .region = "us-east-1", .access_key_id = "A", .secret_access_key = "B" };
    bool s3 = argc == 5, sftp = argc == 7;
    if (s3) d.endpoint_url = argv[2];
    if (sftp) d.key_filename = argv[5], d.known_hosts_filename = argv[6];
    if ((!s3 && !sftp) || ckpt_store_open(&s, s3 ? "s3://bucket" : argv[2], &d) != CKPT_OK ||
        (s3 && ckpt_store_put(s, "object", argv[3], true) != CKPT_OK) ||
        ckpt_store_get(s, s3 ? "object" : argv[3], argv[4], true) != CKPT_OK) return puts(ckpt_last_error()), 1;
    ckpt_store_close(s);
    return 0;
}
C
$quick -std=gnu11 -w -DCKPT_STATIC= -DHEADER="\"$here/../ckpt.h\"" "$work/main.c" -o "$work/main" -lcurl -lcrypto -lpthread >"$work/cc.log" 2>&1 &
main=$!
$CC -O1 -w -pthread "$here/servers/sink.c" -o "$work/sink" -lcrypto || { echo "FAIL: sink.c does not compile"; exit 1; }

# serve LAB PORT: a sink on the lab's server, where all ports are free.
serve() {
    port=$2
    lab in "$work/$1" server "$work/sink" --host 10.99.0.2 --port "$port" --keep >"$work/$1.port" 2>/dev/null </dev/null &
    i=0
    until [ -s "$work/$1.port" ] || [ $i -ge 100 ]; do sleep 0.05; i=$((i + 1)); done
}

# connects LAB LEAST MOST: the quickest of some connections took so many milliseconds. A crowded machine makes some slower, none quicker.
connects() {
    best=$(for i in 1 2 3 4 5 6 7; do
        lab in "$work/$1" client curl -s -o /dev/null -m 20 -w '%{time_connect}\n' "http://10.99.0.2:$port/-/stats"
    done | sort -n | head -n 1)
    if awk "BEGIN { exit !($best * 1000 >= $2 && $best * 1000 <= $3) }"; then pass "a connection takes a round trip: $2 to $3 ms"
    else fail "a connection takes a round trip: $2 to $3 ms" "the quickest of seven took $best s"; fi
}

serve three 8003
connects three 19.9 40
serve two 8002
connects two 59.9 90
# Two labs have the same addresses: the one's server is not the other's.
if lab in "$work/three" client curl -s -m 20 -o /dev/null "http://10.99.0.2:8002/-/stats"; then fail "two labs are apart"; else pass "two labs are apart"; fi

serve one 8001
head -c 3000000 /dev/urandom >"$work/file"
wait $main || { fail "main.c compiles"; cat "$work/cc.log"; exit 1; }
before=$(lab in "$work/one" client sed -n '/^Tcp: [0-9]/p' /proc/net/snmp | cut -d ' ' -f 13)
if lab in "$work/one" client timeout 60 "$work/main" s3 "http://10.99.0.2:$port" "$work/file" "$work/back" >"$work/log" 2>&1 &&
    cmp "$work/file" "$work/back" >>"$work/log" 2>&1; then pass "1 % loss: up and down, whole"
else fail "1 % loss: up and down, whole" "$(tail -n 3 "$work/log")"; fi
after=$(lab in "$work/one" client sed -n '/^Tcp: [0-9]/p' /proc/net/snmp | cut -d ' ' -f 13)
if [ "$after" -gt "$before" ]; then pass "packets were lost"; else fail "packets were lost" "the client sent none again ($before, $after)"; fi

# By ranges, and of each libssh2 asks for more than it is told to: what comes must not be much more than the file.
if SFTP_OWNER=$$ SFTP_ADDRESS=10.99.0.2 lab in "$work/three" server sh "$here/servers/sftp.sh" up "$work/sshd" >"$work/up" 2>&1; then
    . "$work/sshd/env"
    head -c 33554432 /dev/urandom >"$SFTP_DATA/file"
    received() { lab in "$work/three" client sed -n 's/^ *lab0: *\([0-9]*\).*/\1/p' /proc/net/dev; }
    before=$(received)
    if lab in "$work/three" client timeout 120 "$work/main" sftp "sftp://$SFTP_USER@10.99.0.2:$SFTP_PORT/$SFTP_DATA" file "$work/back" "$SFTP_KEY" \
        "$SFTP_KNOWN" >"$work/log" 2>&1 && cmp "$SFTP_DATA/file" "$work/back" >>"$work/log" 2>&1; then pass "SFTP: down, whole"
    else fail "SFTP: down, whole" "$(tail -n 3 "$work/log")"; fi
    after=$(received)
    if [ $((after - before)) -lt 45000000 ]; then pass "SFTP: little comes that was not asked for"
    else fail "SFTP: little comes that was not asked for" "$((after - before)) bytes for a file of 33554432"; fi
else
    echo "SKIP: SFTP: $(tail -n 1 "$work/up")"
fi

# The end, by `down` and by the owner's: the servers are gone too.
running() { cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c "^$work/.*/delay\$\|^$work/sink\$"; }
[ "$(running)" = 6 ] || fail "what runs is seen" "$(running) processes"
lab down "$work/one"
kill "$keeper"
keeper= i=0
while [ "$(running)" != 0 ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
if [ "$(running)" = 0 ]; then pass "nothing is left"; else fail "nothing is left" "$(running) processes"; fi
exit $status
