#!/bin/sh
# net_busy.sh: the uploader against RGW with all workers busy under ThreadSanitizer (with CKPT_LONG=1: AddressSanitizer, UBSan and
# valgrind too), two processes with one staging folder, a full staging disk. See net_busy.c.
if [ "${1:-}" = --inside ]; then
    mkdir -p small
    mount -t tmpfs -o size=24m none small 2>/dev/null || exit 77
    ./net_busy full "$PWD/small"
    exit $?
fi
. "$(dirname "$0")/net_setup.sh"
compile "$tests/fault/net_busy.c" net_busy -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread
gateway http
behind --log "$work/proxy.log" "${RGW_HTTP##*:}"
NET_ENDPOINT=http://127.0.0.1:$port NET_LOG=$work/proxy.log TMPDIR=$work
export NET_ENDPOINT NET_LOG TMPDIR

try() {
    name=$1
    shift
    if "$@" >try.log 2>&1; then sed "s/^PASS: /PASS: $name: /" try.log | grep '^PASS'; else fail "$name" try.log; fi
}
try plain ./net_busy share

runner=
setarch "$(uname -m)" -R true 2>/dev/null && runner="setarch $(uname -m) -R"
TSAN_OPTIONS=halt_on_error=1 ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS ASAN_OPTIONS UBSAN_OPTIONS
sanitizers=thread
[ "${CKPT_LONG:-0}" = 1 ] && sanitizers="thread address,undefined"
for sanitizer in $sanitizers; do
    echo 'int main(void){return 0;}' >probe.c
    if ${CC:-cc} -fsanitize=$sanitizer probe.c -o probe 2>/dev/null && $runner ./probe 2>/dev/null; then
        compile "$tests/fault/net_busy.c" net_busy_san -DCKPT_STATIC= -fsanitize=$sanitizer -fno-sanitize-recover=all -lcmocka -lcurl -lcrypto -lpthread
        try "-fsanitize=$sanitizer" $runner ./net_busy_san busy 4
    else
        echo "SKIP: -fsanitize=$sanitizer: it does not work here"
    fi
done
if [ "${CKPT_LONG:-0}" = 1 ]; then
    if command -v valgrind >/dev/null 2>&1; then
        try valgrind valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,possible --fair-sched=yes ./net_busy busy 5
    else
        echo "SKIP: valgrind: it is not installed"
    fi
fi

rc=77
for how in "unshare -m" "unshare -rm"; do
    $how true 2>/dev/null || continue
    $how sh "$tests/fault/net_busy.sh" --inside >full.log 2>&1
    rc=$?
    break
done
case $rc in
    0) sed 's/^PASS: /PASS: full disk: /' full.log | grep '^PASS' ;;
    77) echo "SKIP: a full staging disk: no right to mount a tmpfs here" ;;
    *) fail 'a full staging disk' full.log ;;
esac
[ $failures = 0 ]
