#!/bin/sh
# run.sh: builds and runs every test. The last line is "N passed, N failed, N skipped"; the status is 0 when nothing failed.
#
#   sh tests/run.sh                  all of it: 15 to 30 minutes on two cores, by their speed
#   sh tests/run.sh --only PATTERN   jobs whose name contains PATTERN (a shell pattern; may be given several times)
#   sh tests/run.sh --fast           a cut for use while editing: one build of each unit test, few compilers, no faults, no slow scripts
#   sh tests/run.sh --fuzz           the fuzzers alone, a minute each (the default run replays their corpora and fuzzes 3 seconds)
#   sh tests/run.sh --long           the long forms of the tests that have one as well
#   sh tests/run.sh --list           names of the jobs
#   --jobs N (2): for so many cores: twice as many at a time, less urgent than N more of those that mostly wait
#   --no-install (ask no package manager)   --keep (leave the build folder)   --verbose (name each passed test)
#
# What is a test: tests/test_*.c and tests/fault/*.c are cmocka programs, built with ASan+UBSan, with TSan where threads are used, and
# plain where neither is, where a file says so ("plain") or tries all of what the others sample (UTIL_STRIDE), and with --long.
# tests/*.sh, tests/*.py and tests/fault/*.sh, *.py are scripts: 0 passed, 77 skipped (the last line says why), else failed; a script that prints lines "PASS: name", "FAIL: name" or "SKIP: name: reason" has each counted.
# tests/fuzz/fuzz_NAME.c are libFuzzer targets with a corpus in tests/fuzz/corpus/NAME.
# A script gets CKPT_ROOT, CKPT_LONG (0, 1), CC, and a TMPDIR of its own, where it starts; a program CKPT_TESTS_DIR as a macro.
# Words after "run.sh:" in a test's first 20 lines: plain, tsan, no-tsan, tsan-long (only with --long: other tests run the same
# threads), no-asan, slow (not with --fast), long (only with --long), waits (for clocks and other processes most of its time), heavy (computes so long that
# optimising is worth its time), memory (its subject is no disk), helper (not a test), remote (with libcurl and OpenSSL; the others are
# built with CKPT_NO_REMOTE), libs=-lz,-lm (more flags).
# Everything is built and run under ${TMPDIR:-/tmp}; the tree is only read. Where there is room in /dev/shm the sanitizers' builds, the
# fuzzers, compile/ and the scripts of the word memory have their folders there, but for the first build of each unit test: a third of
# the time went into the disk's.

set -u
CDPATH=
here=$(cd "$(dirname "$0")" && pwd -P) || exit 1
CKPT_ROOT=$(cd "$here/.." && pwd -P) || exit 1
CC=${CC:-cc}
export CKPT_ROOT CC
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
unset MAKEFLAGS CFLAGS LDFLAGS 2>/dev/null

# gcc looks at indentation four seconds long for each reading of ckpt.h; clang, and compile/ once with gcc, do it for the tests.
warn_all="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wdouble-promotion -Wcast-qual
          -Wwrite-strings -Wformat=2 -Werror"
warn_c="$warn_all -Wno-unused-function -Wno-unknown-warning-option -Wno-maybe-uninitialized -Wstrict-prototypes -Wmissing-prototypes"

#-- one job (run.sh calls itself, through xargs) ------------------------------------------------------

# Reads a job's log, writes one line per result: "P name", "F name", "S name: reason".
results() {
    awk -v rc="$2" -v job="$3" '
        function tell(kind, what) { print kind " " job ": " what; seen[kind]++ }
        { if ($0 !~ /^[ \t]*$/) last = $0 }
        /^\[==========\] .*[Rr]unning/           { inside = 1; next }
        /^\[==========\] .*run\./                { inside = 0; next }
        inside && /^\[       OK \] /             { tell("P", substr($0, 14)); next }
        inside && /^\[  FAILED  \] /             { tell("F", substr($0, 14)); next }
        inside && /^\[  SKIPPED \] /             { tell("S", substr($0, 14) ": " (why != "" ? why : "no reason given")); why = ""; next }
        inside && /^SKIP: /                      { why = substr($0, 7); next }
        !inside && /^PASS: /                     { tell("P", substr($0, 7)) }
        !inside && /^FAIL: /                     { tell("F", substr($0, 7)) }
        !inside && /^SKIP: /                     { tell("S", substr($0, 7)) }
        END {
            if (rc == 77) tell("S", last)
            else if (rc == 124 || rc == 137) tell("F", "killed: it took too long or too much memory")
            else if (rc != 0 && !seen["F"]) tell("F", "status " rc ": " last)
            else if (rc == 0 && inside) tell("F", "it ended before its last test")
            else if (rc == 0 && !seen["P"] && !seen["F"] && !seen["S"]) tell("P", "done")
        }' "$1"
}

if [ "${1:-}" = --job ]; then
    id=$2
    name=$(cat "$CKPT_BUILD/job/$id.name")
    log=$CKPT_BUILD/log/$id
    TMPDIR=$CKPT_BUILD/tmp/$id
    [ -e "$CKPT_BUILD/job/$id.memory" ] && TMPDIR=$CKPT_MEMORY/$id
    export TMPDIR
    mkdir -p "$TMPDIR"
    start=$(date +%s)
    (cd "$TMPDIR" && exec sh -c 'echo $$ >"$2.pid"; exec timeout -k 10 "$1" sh "$2.sh"' job "${CKPT_LIMIT:-900}" "$CKPT_BUILD/job/$id") \
        >"$log" 2>&1 </dev/null
    rc=$?
    rm -f "$CKPT_BUILD/job/$id.pid"
    times >"$CKPT_BUILD/tmp/$id.times"
    cpu=$(awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/); printf "%d", (u[1] + s[1]) * 60 + u[2] + s[2] + 0.5 }' "$CKPT_BUILD/tmp/$id.times")
    results "$log" "$rc" "$name" >"$CKPT_BUILD/res/$id"
    p=$(grep -c '^P ' "$CKPT_BUILD/res/$id") f=$(grep -c '^F ' "$CKPT_BUILD/res/$id") s=$(grep -c '^S ' "$CKPT_BUILD/res/$id")
    word=ok
    [ "$s" -gt 0 ] && [ "$p" = 0 ] && word=skipped
    [ "$f" -gt 0 ] && word=FAILED
    [ "${CKPT_VERBOSE:-0}" = 1 ] && sed -n 's/^P /    passed  /p' "$CKPT_BUILD/res/$id"
    printf '%-8s %-44s %4d passed %3d failed %3d skipped %5d s (%d of cpu)\n' "$word" "$name" "$p" "$f" "$s" $(($(date +%s) - start)) "$cpu"
    [ "$f" = 0 ] && chmod -R u+rwx "$TMPDIR" 2>/dev/null && rm -rf "$TMPDIR"
    exit 0
fi

#-- options -------------------------------------------------------------------------------------------

# The names of jobs have spaces, as in "test_state (plain)"; a list of patterns is kept with spaces between.
spaceless() { printf '%s' "$1" | tr ' ' '?'; }

only= fast=0 fuzz=0 list=0 keep=0 install=1 jobs=2 CKPT_LONG=0 CKPT_VERBOSE=0
while [ $# -gt 0 ]; do
    case $1 in
        --only) [ $# -gt 1 ] || { echo "run.sh: --only wants a pattern" >&2; exit 2; }; only="$only $(spaceless "$2")"; shift ;;
        --only=*) only="$only $(spaceless "${1#*=}")" ;;
        --jobs) jobs=$2; shift ;;
        --fast) fast=1 ;;
        --fuzz) fuzz=1 ;;
        --long) CKPT_LONG=1 ;;
        --list) list=1 install=0 ;;
        --keep) keep=1 ;;
        --no-install) install=0 ;;
        --verbose) CKPT_VERBOSE=1 ;;
        *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
CKPT_FAST=$fast
export CKPT_LONG CKPT_VERBOSE CKPT_FAST

#-- what is needed, and where it comes from ------------------------------------------------------------

header() { printf '#include <%s>\n' "$1" | ${CC} -E -x c - >/dev/null 2>&1; }
python_has() { python3 -c "import $1" >/dev/null 2>&1 || /usr/bin/python3 -c "import $1" >/dev/null 2>&1; }
command_there() { command -v "$1" >/dev/null 2>&1; }

# Prints the packages that are missing, one a line; a name behind a bar says what goes without.
missing() {
    command_there cc && command_there gcc || echo gcc
    command_there g++ || echo g++
    command_there clang || echo clang
    command_there python3 || echo python3
    command_there nm || echo binutils
    header cmocka.h 2>/dev/null || printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
        $CC -E -x c - >/dev/null 2>&1 || echo libcmocka-dev
    header zlib.h || echo zlib1g-dev
    header curl/curl.h || echo libcurl4-openssl-dev
    header openssl/evp.h || echo libssl-dev
    command_there sshd || [ -x /usr/sbin/sshd ] || echo openssh-server
    command_there sftp || echo openssh-client
    header zstd.h || echo libzstd-dev
    header lz4.h || echo liblz4-dev
    header lzma.h || echo liblzma-dev
    header bzlib.h || echo libbz2-dev
    for tool in zstd:zstd xz:xz-utils bzip2:bzip2 lz4:lz4 lzop:lzop pigz:pigz musl-gcc:musl-tools setarch:util-linux; do
        command_there "${tool%%:*}" || echo "${tool#*:}"
    done
    [ "$(uname -m)" = x86_64 ] && ! echo 'int main(void){return 0;}' | gcc -m32 -x c - -o /dev/null 2>/dev/null && echo gcc-multilib
    if [ "$CKPT_LONG" = 1 ]; then
        command_there qemu-s390x-static || command_there qemu-s390x || echo qemu-user-static
        [ -d /usr/s390x-linux-gnu/include ] || printf '%s\n' binutils-s390x-linux-gnu libc6-dev-s390x-cross libgcc-12-dev-s390x-cross
    fi
    if [ "$fast" = 0 ]; then
        # clang only recommends what the sanitizers and libFuzzer link with.
        echo 'int LLVMFuzzerTestOneInput(void);int LLVMFuzzerTestOneInput(void){return 0;}' |
            clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null || echo libclang-rt-dev
        python_has numpy || echo python3-numpy
        python_has torch || echo python3-torch
        python_has boto3 || echo python3-boto3
        for tool in radosgw:radosgw ceph-mon:ceph-mon ceph-osd:ceph-osd ceph:ceph-common curl:curl openssl:openssl aws:awscli faketime:faketime \
            node:nodejs npm:npm mpirun:openmpi-bin mpicc:libopenmpi-dev valgrind:valgrind; do
            command_there "${tool%%:*}" || echo "${tool#*:}"
        done
    fi
}

if [ "$install" = 1 ]; then
    packages=$(missing | tr '\n' ' ')
    if [ -n "$packages" ]; then
        as_root=
        [ "$(id -u)" = 0 ] || { command_there sudo && sudo -n true 2>/dev/null && as_root='sudo -n'; }
        if ! command_there apt-get; then
            echo "missing (no apt-get here to install them): $packages"
        elif [ "$(id -u)" != 0 ] && [ -z "$as_root" ]; then
            echo "missing (not root, no sudo): $packages"
            echo "to have them: apt-get install $packages"
        else
            echo "installing $packages"
            # One by one after a failure, so that a package that cannot be had does not keep the others out.
            apt='apt-get -y -q -o DPkg::Lock::Timeout=600 --no-install-recommends install'
            {
                DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND
                $as_root apt-get -q -o DPkg::Lock::Timeout=600 update
                $as_root $apt $packages || for p in $packages; do $as_root $apt "$p"; done
            } >/dev/null 2>&1 </dev/null
            packages=$(missing | tr '\n' ' ')
            [ -n "$packages" ] && echo "still missing: $packages"
        fi
    fi
fi
if ! command_there "$CC"; then
    echo "run.sh: no C compiler '$CC'" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi

#-- the build folder -----------------------------------------------------------------------------------

CKPT_BUILD=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-run-XXXXXX") || exit 1
CKPT_BUILD=$(cd "$CKPT_BUILD" && pwd -P)
export CKPT_BUILD
mkdir "$CKPT_BUILD/job" "$CKPT_BUILD/log" "$CKPT_BUILD/res" "$CKPT_BUILD/tmp" "$CKPT_BUILD/bin" "$CKPT_BUILD/apart"
. "$here/share.sh"
CKPT_MEMORY= lane_pids=
place=$(memory 3000) && CKPT_MEMORY=$(mktemp -d "$place/ckpt-run-XXXXXX")
export CKPT_MEMORY
cleanup() {
    # Each job has a process group of its own, which an interrupt at the terminal does not reach.
    [ -n "$lane_pids" ] && kill $lane_pids 2>/dev/null
    for f in "$CKPT_BUILD"/job/*.pid; do
        [ -f "$f" ] || continue
        pid=$(cat "$f") tries=0
        kill "$pid" 2>/dev/null
        while kill -0 "$pid" 2>/dev/null && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    done
    for dir in "$CKPT_BUILD" $CKPT_MEMORY; do
        if [ "$keep" = 1 ]; then echo "left: $dir"; else chmod -R u+rwx "$dir" 2>/dev/null; rm -rf "$dir"; fi
    done
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The sanitizers of this generation map fixed addresses: where the kernel spreads mappings wider they need setarch -R.
probe_sanitizer() {
    echo 'int main(void){return 0;}' >"$CKPT_BUILD/probe.c"
    $2 -fsanitize="$1" "$CKPT_BUILD/probe.c" -o "$CKPT_BUILD/probe" 2>/dev/null || return 1
    for i in 1 2 3 4 5 6; do "$CKPT_BUILD/probe" >/dev/null 2>&1 || return 2; done
}
runner=
if command_there setarch && setarch "$(uname -m)" -R true 2>/dev/null; then runner="setarch $(uname -m) -R"; fi
# For the sanitizers clang at -O0: of the compilers here it takes a fifth of the time of the next.
sanitizers=address,undefined asan_cc=$CC tsan_cc=$CC
# All of UBSan has each access by a pointer looked at three times more, and two fifths of a compiler's time go into that: the fuzzers have it,
# portable.sh, and unit tests with --long. Else those have what ASan and the processor do not tell; it stops them without a text, where ASan
# says the line.
undefined="-fsanitize=$sanitizers -fno-sanitize-recover=all"
have_asan=0 have_tsan=0
if [ "$list" = 0 ]; then
    if command_there clang && probe_sanitizer $sanitizers clang; then asan_cc=clang; else probe_sanitizer $sanitizers "$CC"; have_asan=$?; fi
    if command_there clang && probe_sanitizer thread clang; then tsan_cc=clang; else probe_sanitizer thread "$CC"; have_tsan=$?; fi
fi
# Lines are all that a report has of -g.
lines=-g1
# gcc's -Og leaves out what nobody calls, which -O0 does not, and has a program of the speed of -O1 in three quarters of its time, where
# clang's is -O1. portable.sh, compile/ and bench.sh have -O2 and -O3; here they would double the run.
plain=-Og
case $($CC --version 2>/dev/null) in *clang*) plain=-O0 ;; esac
[ "$CKPT_LONG" = 0 ] && [ $asan_cc = clang ] &&
    undefined="-fsanitize=$sanitizers -fno-sanitize=null,alignment,pointer-overflow -fsanitize-trap=undefined"
runnable() { [ "$1" = 0 ] || { [ "$1" = 2 ] && [ -n "$runner" ]; }; }

#-- the list of jobs -----------------------------------------------------------------------------------

count=0 lane=works disk=1
wanted() {
    [ -z "$only" ] && return 0
    set -f
    for pattern in $only; do case $1 in *$pattern*) set +f; return 0 ;; esac; done
    set +f
    return 1
}
# add NAME [SCRIPT]: the job's script is the second word, else it comes on standard input (never through a pipe: that would count
# in a subshell).
add() {
    if ! wanted "$1"; then [ $# -gt 1 ] || cat >/dev/null; return; fi
    count=$((count + 1))
    id=$(printf '%03d' $count)
    printf '%s' "$1" >"$CKPT_BUILD/job/$id.name"
    echo "$id" >>"$CKPT_BUILD/job/$lane"
    [ $disk = 0 ] && [ -n "$CKPT_MEMORY" ] && : >"$CKPT_BUILD/job/$id.memory"
    if [ $# -gt 1 ]; then printf '%s\n' "$2" >"$CKPT_BUILD/job/$id.sh"; else cat >"$CKPT_BUILD/job/$id.sh"; fi
}
absent() { add "$1" "$(printf 'echo %s\nexit 77' "$(quote "$2")")"; }
quote() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
words() { sed -n '1,20s/.*run\.sh: *\(.*\)/\1/p' "$1" | tr '\n' ' '; }
has_word() { case " $1 " in *" $2 "*) return 0 ;; esac; return 1; }
# lane_of WORDS: where the jobs go that are added next, and are they about a disk?
lane_of() {
    if has_word "$1" waits; then lane=waits; else lane=works; fi
    if has_word "$1" memory; then disk=0; else disk=1; fi
}
selected() {
    has_word "$1" helper && return 1
    [ $fast = 1 ] && has_word "$1" slow && return 1
    [ "$CKPT_LONG" = 0 ] && has_word "$1" long && return 1
    return 0
}

add_script() {
    w=$(words "$1")
    selected "$w" || return 0
    lane_of "$w"
    case $1 in
        *.py) if command_there python3; then add "$2" "exec python3 $(quote "$1")"; else absent "$2" "no python3"; fi ;;
        *)    add "$2" "exec sh $(quote "$1")" ;;
    esac
}

# flavour SOURCE: the lines before a test includes ckpt.h decide how the library is compiled for it. Tests with the same lines share an
# object: prints its name and leaves what it is made of. Nothing where a line is the test's own code.
flavour() {
    awk '
        /^#include "(\.\.\/)+ckpt\.h"/ { found = 1; exit }
        { sub(/ *\/\/.*/, "") }
        /^\/\*/ { comment = 1 }
        comment { if (/\*\//) comment = 0; next }
        /^#ifndef CKPT_NO_REMOTE/ { guarded = 1; next }
        guarded { if (/^#endif/) guarded = 0; next }
        /^#define CKPT_(NO_REMOTE|IMPLEMENTATION|STATIC)$/ || /^ *$/ { next }
        /^#include "(fault\/)?faults\.h"/ { print "#include \"faults.PART\""; next }
        !/^#(define|include <)/ { exit }
        { print }
        END { if (!found) exit 1; print "#include \"ckpt.PART\"" }' "$1" >"$CKPT_BUILD/apart/new" || return
    key=$(cksum <"$CKPT_BUILD/apart/new" | tr ' ' -)
    for part in whole head; do sed "s/PART/$part/" "$CKPT_BUILD/apart/new" >"$CKPT_BUILD/apart/$key.$part"; done
    echo "$key"
}

# add_program SOURCE NAME BUILD FLAGS: compiles and runs in one job.
add_program() {
    out=$CKPT_BUILD/bin/$(echo "$2" | tr / _).$3
    libs=$(words "$1" | tr ' ' '\n' | sed -n 's/^libs=//p' | tr ',\n' '  ')
    net=-DCKPT_NO_REMOTE=
    has_word "$(words "$1")" remote && net= libs="$libs -lcurl -lcrypto"
    prefix= compiler=$CC warn="$warn_c -Wno-misleading-indentation"
    case $3 in
        asan) prefix=$runner compiler=$asan_cc warn=$warn_c ;;
        tsan) prefix=$runner compiler=$tsan_cc warn=-w ;;       # two compilers have warned by then
    esac
    key=$(flavour "$1") flags="-std=gnu11 $(echo $4 $net)"
    # gcc takes three times as long as clang for what one test alone has of the library, and earns nothing by it. What counts branches is gcc's.
    alone=
    case "$3 $4 $libs" in *-fsanitize*) ;; "plain $plain "*) alone=1 ;; esac
    # What is freed is kept for 16 MB more, not ASan's 256: always new pages took a fifth of the time.
    # With every function static the compiler leaves out what a test does not reach. The tests in compile/ and portable.c build it whole.
    add "$2 ($3)" <<JOB
ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=16:handle_sigill=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
export ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
test=$(quote "$1") dir=$(quote "-DCKPT_TESTS_DIR=\"$here\"") apart=\$CKPT_BUILD/apart/$key
. $(quote "$here/share.sh")
fails() { echo "FAIL: it does not compile"; exit 1; }
flavour='$key $flags'
compiler='$compiler' flags='$flags'
set -- -DCKPT_STATIC=
if [ "$key" != "" ] && [ "\$(grep -l -x -F "flavour='\$flavour'" "\$CKPT_BUILD"/job/*.sh | wc -l)" -ge 3 ]; then
    built lib.o \$compiler \$flags -w -DCKPT_IMPLEMENTATION= -x c -c "\$apart.whole" || fails
    set -- -DCKPT_IMPLEMENTATION= -include "\$apart.head" lib.o
elif [ "$alone" = 1 ]; then
    compiler=\$quick flags="\$flags -O0"
fi
\$pages \$compiler \$flags $(echo $warn) "\$dir" "\$@" "\$test" -o $(quote "$out") -lcmocka $libs -lpthread || fails
$prefix $(quote "$out")
status=\$?
[ $keep = 1 ] || rm -f lib.o $(quote "$out")
exit \$status
JOB
}

add_unit() {
    w=$(words "$1")
    selected "$w" || return 0
    lane_of "$w"
    if has_word "$w" remote && ! { header curl/curl.h && header openssl/evp.h; }; then
        absent "$2" "no libcurl or OpenSSL (libcurl4-openssl-dev, libssl-dev)"
        return
    fi
    if ! printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
        $CC -E -x c - >/dev/null 2>&1; then
        absent "$2" "no cmocka (libcmocka-dev)"
        return
    fi
    if [ $fast = 1 ]; then add_program "$1" "$2" plain -O0; return 0; fi
    asan=0 tsan=0
    has_word "$w" no-asan || asan=1
    if ! has_word "$w" no-tsan && { has_word "$w" tsan || has_word "$w" tsan-long || grep -q 'pthread\|ckpt_saver_\|os_thread\|ckpt__engine' "$1"; }; then tsan=1; fi
    has_word "$w" tsan-long && [ "$CKPT_LONG" = 0 ] && tsan=0
    if [ $asan = 0 ] || ! runnable "$have_asan" || has_word "$w" plain || [ "$CKPT_LONG" = 1 ] || grep -q UTIL_STRIDE "$1"; then
        level=$plain
        has_word "$w" heavy && level=-O1
        add_program "$1" "$2" plain "$level"
        disk=0
    fi
    if [ $asan = 1 ]; then
        level=-O0
        has_word "$w" heavy && level=-O1
        if runnable "$have_asan"; then add_program "$1" "$2" asan "$lines $level -fno-omit-frame-pointer $undefined -DUTIL_ASAN"
        else absent "$2 (asan)" "no working -fsanitize=$sanitizers in $CC"; fi
        disk=0
    fi
    if [ $tsan = 1 ]; then
        if runnable "$have_tsan"; then add_program "$1" "$2" tsan "$lines -O0 -fsanitize=thread -DUTIL_TSAN"
        else absent "$2 (tsan)" "no working -fsanitize=thread in $CC"; fi
    fi
}

# A libFuzzer target.
add_fuzzer() {
    name=$(basename "$1" .c | sed 's/^fuzz_//')
    seconds=3
    seed=-seed=1
    [ $fuzz = 1 ] && seconds=60 seed=
    out=$CKPT_BUILD/bin/fuzz_$name
    flags="-std=gnu11 -g -O1 -DCKPT_STATIC= -DCKPT_NO_REMOTE= -fno-sanitize-recover=all $(quote "-DCKPT_TESTS_DIR=\"$here\"")"
    if command_there clang && clang -fsanitize=fuzzer,address "$CKPT_BUILD/fuzz.c" -o "$CKPT_BUILD/probe" 2>/dev/null; then
        add "fuzz/$name" <<JOB
mkdir corpus new
cp $(quote "$here/fuzz/corpus/$name")/* corpus/ 2>/dev/null
. $(quote "$here/share.sh")
\$pages clang $flags -fsanitize=fuzzer,$sanitizers $(quote "$1") -o $(quote "$out") -lpthread || exit 1
$runner $(quote "$out") -runs=0 corpus && echo "PASS: corpus" || { echo "FAIL: corpus"; exit 1; }
$runner $(quote "$out") $seed -timeout=20 -rss_limit_mb=3000 -max_total_time=$seconds -print_final_stats=1 new corpus &&
    echo "PASS: $seconds s of fuzzing" || { echo "FAIL: fuzzing"; for f in crash-* oom-* timeout-* leak-*; do [ -f "\$f" ] && echo "\$f:" && base64 "\$f"; done; exit 1; }
JOB
    else
        absent "fuzz/$name" "no clang with libFuzzer"
    fi
}

if [ $fuzz = 0 ]; then
    # Long ones first: the short ones then fill the gaps.
    if [ $fast = 0 ]; then
        for f in "$here"/*.sh "$here"/fault/*.sh; do
            [ -f "$f" ] && [ "$f" != "$here/run.sh" ] || continue
            has_word "$(words "$f")" slow || has_word "$(words "$f")" long || continue
            add_script "$f" "${f#"$here"/}"
        done
    fi
    lane=works
    if [ $fast = 1 ]; then parts='quick link hygiene'; else parts='gcc clang cxx switches targets link hygiene'; fi
    for part in $parts; do
        disk=0
        add "compile/$part" "exec sh $(quote "$here/compile/matrix.sh") $part"
    done
    for f in "$here"/*.sh "$here"/*.py "$here"/fault/*.sh; do
        [ -f "$f" ] && [ "$f" != "$here/run.sh" ] || continue
        case $f in */fault/*) [ $fast = 1 ] && continue ;; esac
        has_word "$(words "$f")" slow || has_word "$(words "$f")" long || add_script "$f" "${f#"$here"/}"
    done
    for f in "$here"/fault/*.c; do [ $fast = 0 ] && [ -f "$f" ] && add_unit "$f" "fault/$(basename "$f" .c)"; done
    for f in "$here"/test_*.c; do [ -f "$f" ] && add_unit "$f" "$(basename "$f" .c)"; done
    lane=works disk=1
    if command_there python3; then add lint "exec python3 $(quote "$CKPT_ROOT/tools/lint.py")"; else absent lint "no python3"; fi
fi
if [ $fast = 0 ]; then
    lane=works disk=0
    printf '#include <stddef.h>\n#include <stdint.h>\nint LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);\nint LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) { (void)p; (void)n; return 0; }\n' >"$CKPT_BUILD/fuzz.c"
    for f in "$here"/fuzz/fuzz_*.c; do [ -f "$f" ] && add_fuzzer "$f"; done
fi
if [ $list = 1 ]; then
    for f in "$CKPT_BUILD"/job/*.name; do [ -f "$f" ] && cat "$f" && echo; done
    exit 0
fi

#-- run --------------------------------------------------------------------------------------------------

begin=$(date +%s)
for part in whole head; do
    awk -v part=$part -f "$here/apart.awk" "$CKPT_ROOT/ckpt.h" >"$CKPT_BUILD/apart/ckpt.$part"
    awk -v part=$part -v all=1 -f "$here/apart.awk" "$here/fault/faults.h" >"$CKPT_BUILD/apart/faults.$part"
done
echo "$count jobs, $jobs at a time"
touch "$CKPT_BUILD/job/works" "$CKPT_BUILD/job/waits"
# Those that wait are served at once when they are due, and the others have what is left, all of it: twice as many of them as cores,
# since each waits for the disk a part of its time.
# Both in the background: a signal then ends the shell's wait, not only what it waits for.
{ [ ! -s "$CKPT_BUILD/job/waits" ] || exec xargs -P "$jobs" -n 1 sh "$here/run.sh" --job <"$CKPT_BUILD/job/waits"; } &
lane_pids=$!
{ [ ! -s "$CKPT_BUILD/job/works" ] || exec nice -n 3 xargs -P $((2 * jobs)) -n 1 sh "$here/run.sh" --job <"$CKPT_BUILD/job/works"; } &
lane_pids="$lane_pids $!"
wait
lane_pids=

for f in "$CKPT_BUILD"/job/*.name; do
    [ -f "$f" ] || continue
    id=$(basename "$f" .name)
    [ -f "$CKPT_BUILD/res/$id" ] || echo "F $(cat "$f"): it did not run" >"$CKPT_BUILD/res/$id"
    if grep -q '^F ' "$CKPT_BUILD/res/$id"; then
        echo
        echo "---- failed: $(cat "$f")"
        sed -n 's/^F /FAILED  /p' "$CKPT_BUILD/res/$id"
        if grep -q '^FAIL: it does not compile' "$CKPT_BUILD/log/$id"; then head -n 12 "$CKPT_BUILD/log/$id" | cut -c 1-400
        elif [ -f "$CKPT_BUILD/log/$id" ]; then
            # The reason, which a test that talks much leaves far behind, and the end.
            grep -n -B 2 '^ERROR: \|^\[  ERROR ' "$CKPT_BUILD/log/$id" | head -n 12 | cut -c 1-400
            grep -v '^PASS: \|^\[ RUN  \|^\[       OK' "$CKPT_BUILD/log/$id" | tail -n 40 | cut -c 1-400
        fi
    fi
done
cat "$CKPT_BUILD"/res/* >"$CKPT_BUILD/all" 2>/dev/null
if grep -q '^S ' "$CKPT_BUILD/all"; then
    echo
    echo "skipped:"
    sed -n 's/^S /    /p' "$CKPT_BUILD/all"
fi
echo
echo "took $(($(date +%s) - begin)) s"
failed=$(grep -c '^F ' "$CKPT_BUILD/all")
echo "$(grep -c '^P ' "$CKPT_BUILD/all") passed, $failed failed, $(grep -c '^S ' "$CKPT_BUILD/all") skipped"
[ "$failed" = 0 ]
