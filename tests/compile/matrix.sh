#!/bin/sh
# matrix.sh PART...: ckpt.h compiles without a warning wherever it says so, and leaves nothing behind in its user's program.
# Parts: quick gcc clang cxx switches targets link hygiene; none: all but quick. Prints PASS:, FAIL: and SKIP: lines for run.sh.
set -u
CDPATH=
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/../.." && pwd -P)}
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-matrix-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
CC=${CC:-cc}

. "$root/tests/share.sh"
export "${pages#env }"
warn_c=$strict_c warn_cxx=$strict_cxx

ln -s "$root/ckpt.h" ckpt.h
# Without the headers of libcurl and OpenSSL all of it is compiled for local files only.
local=-DCKPT_NO_REMOTE
printf '#include <curl/curl.h>\n#include <openssl/evp.h>\n' >curl.c
if $CC -E curl.c >/dev/null 2>&1; then remote= net='-lcurl -lcrypto'; else remote=$local net=; fi
cat >decl.c <<'C'
#include "ckpt.h"
int main(void) { return ckpt_err_name(CKPT_OK) == NULL; }
C
cat >impl.c <<'C'
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
C
# Uses enough of the library that the linker needs all of it.
cat >use.c <<'C'
#include "ckpt.h"
int use(void);
int use(void) {
    ckpt_state st = {0};
    ckpt_saver *s = NULL;
    ckpt_saver_desc d = {0};
    ckpt_load_desc l = {0};
    ckpt_timestamp t = {0};
    char name[64];
    ckpt_next_batch(&t, 1, 0, 0);
    int bad = ckpt_save("", &st, &t) == CKPT_OK || ckpt_load(&l, &t) == CKPT_OK || ckpt_saver_open(&s, &d) == CKPT_OK;
    bad |= ckpt_format_name(name, sizeof name, "ba{batch}", NULL) != CKPT_ARG && name[0] == 0;
    ckpt_state_free(&st);
    return bad || ckpt_last_error()[0] == 0;
}
C
cat >main.c <<'C'
int use(void);
int main(void) { return use(); }
C

echo 'int use(void); int use(void) { return 0; }' >use.h

there() { command -v "$1" >/dev/null 2>&1; }
indent() { sed 's/^/    /' log | head -n 25; }
# expect NAME COMMAND...: it succeeds and says nothing.
expect() {
    _name=$1; shift
    case $* in *' -o impl.o') rm -f impl.o prog ;; *' -o prog'*) rm -f prog ;; esac
    if "$@" >log 2>&1 && ! [ -s log ]; then echo "PASS: $_name"; else echo "FAIL: $_name"; echo "    $*"; indent; failed=1; fi
}
# refuse NAME TEXT COMMAND...: it fails and says TEXT.
refuse() {
    _name=$1 text=$2; shift 2
    if ! "$@" >log 2>&1 && grep -q -e "$text" log; then echo "PASS: $_name"; else echo "FAIL: $_name"; echo "    $*"; indent; failed=1; fi
}
verdict() {
    _name=$1
    if [ -s log ]; then echo "FAIL: $_name"; indent; failed=1; else echo "PASS: $_name"; fi
}
skip() { echo "SKIP: $1: $2"; }

# Optimised (which finds more, and takes five times as long) in one standard of C for each compiler, the oldest of one and the newest
# of the other; all of them, and C++, with CKPT_LONG. What portable.sh runs, too, is compiled once for both.
levels() {
    case $1:$2:${CKPT_LONG:-0} in
        gcc:c99:0 | clang:c2x:0) echo -O2 ;;
        gcc:c2x:0 | clang:c99:0 | g++:c++11:0 | g++:c++20:0 | clang++:c++11:0 | clang++:c++20:0) echo -O0 ;;
        *:1) echo -O0 -O2 ;;
        *) echo -fsyntax-only ;;
    esac
}

c_matrix() {
    there "$1" || { skip "$1" "not installed"; return; }
    for std in c99 c11 c17 c2x gnu99; do
        for opt in $(levels $1 $std); do
            case "$1 $std $opt" in
                # gcc looks at indentation for seconds each time: once.
                'gcc c2x -O0') expect "$1 $std $opt -Wmisleading-indentation" gcc -std=c2x -O0 $warn_c -Wmisleading-indentation $remote -c impl.c -o /dev/null ;;
                'clang c2x -O2' | 'gcc c99 -O2') expect "$1 $std $opt" whole whole.o $1 -std=$std -O2 $warn_c $remote ;;
                *) expect "$1 $std $opt" "$1" -std=$std $opt $warn_c $remote -c impl.c -o /dev/null ;;
            esac
        done
        expect "$1 $std declarations" "$1" -std=$std $warn_c -c decl.c -o /dev/null
    done
    [ "$1" = gcc ] || expect "$1 -Wmisleading-indentation" "$1" -std=c99 -fsyntax-only -Wmisleading-indentation -Werror $remote impl.c
    expect "$1 -funsigned-char" "$1" -std=c99 -funsigned-char -fsyntax-only $warn_c $remote impl.c
    expect "$1 -flto" "$1" -std=c99 -O0 -flto $warn_c $remote -c impl.c -o /dev/null
}

cxx_matrix() {
    there "$1" || { skip "$1" "not installed"; return; }
    for std in c++11 c++17 c++20; do
        for opt in $(levels $1 $std); do
            case "$1 $std $opt" in
                'g++ c++11 -O0' | 'clang++ c++20 -O0') expect "$1 $std $opt" whole whole.o $1 -x c++ -std=$std -O0 $warn_cxx $remote ;;
                *) expect "$1 $std $opt" "$1" -x c++ -std=$std $opt $warn_cxx $remote -c impl.c -o /dev/null ;;
            esac
        done
        expect "$1 $std declarations" "$1" -x c++ -std=$std $warn_cxx -c decl.c -o /dev/null
    done
}

part_quick() {
    expect "gcc c99 -O2" gcc -std=c99 -O2 $warn_c $remote -c impl.c -o /dev/null
    if there clang; then expect "clang c2x -O0" clang -std=c2x -O0 $warn_c $remote -c impl.c -o /dev/null; else skip clang "not installed"; fi
    if there g++; then expect "g++ c++11 -O0" g++ -x c++ -std=c++11 -O0 $warn_cxx $remote -c impl.c -o /dev/null; else skip g++ "not installed"; fi
    if there clang++; then expect "clang++ c++20 -O0" clang++ -x c++ -std=c++20 -O0 $warn_cxx $remote -c impl.c -o /dev/null
    else skip clang++ "not installed"; fi
}

part_gcc() { c_matrix gcc; }
part_clang() { c_matrix clang; }
part_cxx() { cxx_matrix g++; cxx_matrix clang++; }

library() {     # switch -> header, flag
    case $1 in
        CKPT_WITH_ZLIB) echo zlib.h -lz ;;
        CKPT_WITH_ZSTD) echo zstd.h -lzstd ;;
        CKPT_WITH_LZ4) echo lz4frame.h -llz4 ;;
        CKPT_WITH_LZMA) echo lzma.h -llzma ;;
        CKPT_WITH_BZIP2) echo bzlib.h -lbz2 ;;
    esac
}

part_switches() {
    all= libs= without=
    for switch in CKPT_NO_REMOTE CKPT_NO_GCS CKPT_NO_OCI CKPT_NO_AZURE CKPT_NO_UC CKPT_NO_MLFLOW CKPT_NO_WANDB CKPT_STATIC 'CKPT_API=__attribute__((visibility("default")))' NDEBUG \
                  CKPT_WITH_ZLIB CKPT_WITH_ZSTD CKPT_WITH_LZ4 CKPT_WITH_LZMA CKPT_WITH_BZIP2; do
        set -- $(library "$switch")
        name=${switch%%=*}
        with=$remote libs_net=$net
        [ "$name" = CKPT_NO_REMOTE ] && with= libs_net=
        if [ $# = 2 ] && ! echo "#include <$1>" | $CC -E -x c - >/dev/null 2>&1; then skip "$name" "no $1"; continue; fi
        [ $# = 2 ] && all="$all -D$switch" libs="$libs $2"
        for cc in gcc clang; do
            there $cc || { skip "$name $cc" "not installed"; continue; }
            # gcc takes three times as long as clang: it reads the C++ form alone below, unless there is no clang.
            if [ $cc = gcc ] && there clang && there g++; then continue; fi
            # A store that is left out leaves nothing out that a program could miss when it is linked, nor do these two; the libraries are
            # linked together below, and each alone with CKPT_LONG.
            case $name:${CKPT_LONG:-0} in
                CKPT_NO_REMOTE:* | CKPT_WITH_*:1) ;;
                CKPT_NO_* | CKPT_WITH_* | CKPT_API:0 | NDEBUG:0) expect "$name $cc" $cc -std=c99 -fsyntax-only $warn_c $with "-D$switch" impl.c; continue ;;
            esac
            expect "$name $cc" $cc -std=c99 -O0 $warn_c $with "-D$switch" -c impl.c -o impl.o
            # Static and unused means that nothing is left to link with.
            [ "$switch" = CKPT_STATIC ] || expect "$name $cc links" $cc -std=c99 impl.o use.c main.c -o prog ${2:-} $libs_net -lpthread
        done
        # In C++ one by one with CKPT_LONG; else those of a kind together.
        case $name in
            CKPT_NO_REMOTE) ;;
            CKPT_NO_* | CKPT_API | NDEBUG) without="$without -D$switch"; [ "${CKPT_LONG:-0}" = 1 ] || continue ;;
            CKPT_WITH_*) [ "${CKPT_LONG:-0}" = 1 ] || continue ;;
        esac
        there g++ && expect "$name g++" g++ -x c++ -std=c++11 -fsyntax-only $warn_cxx $with "-D$switch" impl.c
    done
    there g++ && expect "all libraries g++" g++ -x c++ -std=c++11 -fsyntax-only $warn_cxx $remote $all impl.c
    there g++ && expect "stores left out, g++" g++ -x c++ -std=c++11 -fsyntax-only $warn_cxx $remote $without impl.c
    expect "all libraries" $CC -std=c99 -O0 $warn_c $remote $all -c impl.c -o impl.o
    expect "all libraries link" $CC impl.o use.c main.c -o prog $libs $net -lpthread
    [ -n "$net" ] || skip "with the network" "no headers of libcurl and OpenSSL"
    # musl-gcc sees no header but musl's own.
    if there musl-gcc && ! musl-gcc -E curl.c >/dev/null 2>&1; then
        refuse "a missing libcurl is refused with the package and the switch" 'curl/curl.h not found: install .* or define CKPT_NO_REMOTE' \
            musl-gcc -c impl.c -o /dev/null
    else
        skip "a missing libcurl is refused" "no compiler here that does not find it"
    fi
}

part_targets() {
    if echo 'int main(void){return 0;}' | gcc -m32 -x c - -o probe 2>/dev/null; then
        expect "gcc -m32" whole whole.o gcc -m32 -std=c99 $narrow_level $warn_c $local
        expect "gcc -m32 gnu11" gcc -m32 -std=gnu11 -fsyntax-only $warn_c $local impl.c
    else
        skip "gcc -m32" "no gcc-multilib"
    fi
    # The headers for 64 bits serve 32 bits too, but for a list that says what is left out of the library. Nothing is linked.
    printf '#include <sys/types.h>\n#define CKPT_IMPLEMENTATION\n#include "ckpt.h"\n' >late32.c
    mkdir -p stubs/gnu && : >stubs/gnu/stubs-32.h
    if there clang && clang -m32 -Istubs $local -std=gnu11 -D_FILE_OFFSET_BITS=64 -fsyntax-only late32.c >/dev/null 2>&1; then
        for std in gnu99 gnu11; do
            refuse "late include for 32 bits, $std: an off_t of 32 bits is refused with the cure" 'compile_with_D_FILE_OFFSET_BITS_64' \
                clang -m32 -Istubs $local -std=$std -fsyntax-only late32.c
        done
    else
        skip "late include for 32 bits" "no clang that reads headers for 32 bits"
    fi
    [ "${CKPT_LONG:-0}" = 1 ] && there g++ && expect "g++ -O3" g++ -x c++ -std=c++11 -O3 $warn_cxx $remote -c impl.c -o impl.o
    if there musl-gcc; then
        expect "musl-gcc c99" whole whole.o musl-gcc -std=c99 -O0 $warn_c $local
        expect "musl-gcc gnu99" musl-gcc -std=gnu99 -fsyntax-only $warn_c $local impl.c
    else
        skip musl-gcc "no musl-tools"
    fi
    # A cross compiler, or clang with the headers and libraries of Debian's libc6-dev-s390x-cross (which, unlike gcc's cross
    # compilers, can be installed beside gcc-multilib).
    big=
    for cc in s390x-linux-gnu-gcc powerpc64-linux-gnu-gcc powerpc-linux-gnu-gcc mips-linux-gnu-gcc 'clang --target=s390x-linux-gnu'; do
        $cc -static main.c -x c - -o prog >/dev/null 2>&1 <use.h && big=$cc && break
    done
    if [ -n "$big" ]; then
        case $big in *s390x*) arch=s390x ;; powerpc64*) arch=ppc64 ;; powerpc*) arch=ppc ;; *) arch=mips ;; esac
        expect "big endian: $big" $big -std=c99 -O2 $warn_c $local -c impl.c -o impl.o
        run=
        for qemu in qemu-$arch qemu-$arch-static; do there $qemu && run=$qemu; done
        if [ -n "$run" ]; then
            expect "big endian links" $big -static impl.o use.c main.c -o prog -lpthread
            expect "big endian runs ($run)" "$run" ./prog
            expect "big endian: 1_save_load.c" $big -static -O1 $local -I"$root" "$root/examples/1_save_load.c" -o save_load -lpthread
            # A file that was written in the other byte order, or read so, would not hold what was saved.
            if "$run" ./save_load >log 2>&1; then : >log; fi
            verdict "big endian: 1_save_load.c loads what it saved"
        else
            skip "big endian runs" "no qemu-$arch (qemu-user-static)"
        fi
    else
        skip "big endian" "no cross compiler (for clang: binutils-s390x-linux-gnu libc6-dev-s390x-cross libgcc-12-dev-s390x-cross)"
    fi
    for cc in aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc; do
        there $cc && expect "$cc" $cc -std=c99 -O2 $warn_c $local -c impl.c -o /dev/null
    done
}

part_link() {
    api="$root/tests/compile/api.c"
    # By the compiler that takes the least time: what each makes of the library is the affair of the other parts.
    expect "implementation in one file" implementation impl.o $remote
    expect "... use in others" $CC -std=c99 impl.o use.c main.c -o prog $net -lpthread
    expect "... runs" ./prog
    for cc in gcc clang g++ clang++; do
        there $cc || { skip "the agreed interface $cc" "not installed"; continue; }
        case $cc in *++) lang="-x c++ -std=c++11 $warn_cxx" ;; *) lang="-x c -std=c99 $warn_c" ;; esac
        expect "the agreed interface, $cc" $cc -I"$root" $lang "$api" -x none impl.o -o prog $net -lpthread
        expect "... runs" ./prog
    done
    # An order of fields other than the agreed one is an error to C++20, and to g++ more than to clang++.
    for cc in "$CC" g++ clang++; do
        there "$cc" || { skip "every field by its name $cc" "not installed"; continue; }
        case $cc in *++) lang="-x c++ -std=c++20 $warn_cxx" ;; *) lang="-x c -std=c99 $warn_c" ;; esac
        expect "every field by its name, $cc" "$cc" -I"$root" $lang "$root/tests/compile/designated.c" -x none impl.o -o prog $net -lpthread
        rm -rf fields
        mkdir -p fields/bucket
        (cd fields && ../prog "file://$work/fields/bucket") >log 2>&1 || echo "status $?" >>log
        verdict "... runs"
    done
    if there g++; then
        cp use.c use.cpp
        cp main.c main.cpp
        expect "implementation in C, use in C++" g++ -std=c++11 impl.o use.cpp main.cpp -o prog $net -lpthread
        expect "... runs" ./prog
        cp impl.c impl.cpp
        other=g++
        there clang++ && other=clang++
        expect "implementation in C++" $other -std=c++17 -O0 $remote -c impl.cpp -o impl_cpp.o
        $CC -std=c99 -c use.c -o use.o
        $CC -std=c99 -c main.c -o main.o
        expect "... use in C" g++ impl_cpp.o use.o main.o -o prog $net -lpthread
        expect "... runs" ./prog
    else
        skip "C and C++ together" "no g++"
    fi
    # What follows is about the order of lines, whatever the compiler: the one that takes the least time.
    printf '#define CKPT_STATIC\n#define CKPT_IMPLEMENTATION\n' >head.h
    cat head.h use.c >static_a.c
    sed 's/use(/use_too(/' static_a.c >static_b.c
    printf 'int use(void);\nint use_too(void);\nint main(void) { return use() || use_too(); }\n' >static_main.c
    expect "CKPT_STATIC in two files" $quick -std=c99 $warn_c $remote static_a.c static_b.c static_main.c -o prog $net -lpthread
    expect "... runs" ./prog
    printf '#define CKPT_IMPLEMENTATION\n#include "ckpt.h"\n#include "ckpt.h"\n#undef CKPT_IMPLEMENTATION\n#define CKPT_IMPLEMENTATION\n#include "ckpt.h"\n' >twice.c
    cat use.c main.c >>twice.c
    expect "CKPT_IMPLEMENTATION twice in one file" $quick -std=c99 -fsyntax-only $local twice.c
    printf '#include "ckpt.h"\n#define CKPT_IMPLEMENTATION\n#include "ckpt.h"\n' >later.c
    cat use.c main.c >>later.c
    expect "declarations first, implementation later" $quick -std=gnu99 -fsyntax-only $local later.c
    printf '#include <stdio.h>\n#define CKPT_IMPLEMENTATION\n#include "ckpt.h"\n' >late.c
    sentence='must include ckpt.h before any system header'
    for cc in gcc clang musl-gcc; do
        there $cc || { skip "late include $cc" "not installed"; continue; }
        refuse "late include $cc -std=c99 is refused with the cure" "$sentence" $cc -std=c99 $local -E late.c
        # What the headers leave out then is the C library's affair: clang reads those that gcc does, in a third of the time.
        [ $cc = gcc ] && there clang && continue
        expect "late include $cc -std=c99 -D_DEFAULT_SOURCE" $cc -std=c99 -D_DEFAULT_SOURCE $local -fsyntax-only late.c
        expect "late include $cc -std=gnu99" $cc -std=gnu99 $local -fsyntax-only late.c
    done
}

part_hygiene() {
    # What a user's program gets to see.
    $quick -std=c99 -fno-pic -DNDEBUG $remote -c impl.c -o impl.o
    nm -g --defined-only impl.o | awk '{ print $3 }' | grep -v '^ckpt_[a-z]' >log
    verdict "exported symbols begin with ckpt_"
    nm -g --defined-only impl.o | awk '{ print $3 }' | grep '^ckpt__' >log
    verdict "no private symbol is exported"
    cat impl.c use.c | sed '1i #define CKPT_STATIC' >static.c
    $quick -std=c99 $remote -c static.c -o static.o
    nm -g --defined-only static.o | grep -v ' use$' >log
    verdict "CKPT_STATIC exports nothing"
    nm impl.o | grep ' [BbDdCG] ' | grep -v -E ' ckpt__(error_last|http_once)$' >log
    verdict "no writable variable but the thread's record and the guard of curl_global_init"
    nm -u impl.o | awk '{ print $2 }' | grep -x -E 'stdout|printf|vprintf|puts|putchar|putc|perror|exit|_exit|abort|system|popen|gets|strcpy|strcat|sprintf|vsprintf|strtok|signal|setenv|putenv|setlocale|umask|chdir|srand|rand|__assert_fail' >log
    verdict "never prints to stdout, exits, aborts or changes the process"
    printf '#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n' >std.c
    for cc in gcc clang g++ clang++ musl-gcc; do
        there $cc || { skip "macros $cc" "not installed"; continue; }
        lang=c; case $cc in *++) lang=c++ ;; esac
        $cc -x $lang -dM -E std.c | sort >before
        $cc -x $lang -dM -E decl.c | sort >after
        comm -13 before after | awk '{ print $2 }' | sed 's/(.*//' | grep -v '^CKPT_' >log
        verdict "macros of the declarations begin with CKPT_ ($cc)"
    done
    awk '/^\/\/ >>guard/ { on = 1 } /^\/\/ >>implementation/ { exit } on && /^[ \t]*#[ \t]*include/ { print $2 }' "$root/ckpt.h" | sort >found
    printf '<stdbool.h>\n<stddef.h>\n<stdint.h>\n' | diff - found >log
    verdict "the declarations include stdbool.h, stddef.h and stdint.h alone"
    if there gcc; then
        gcc -std=c99 -aux-info proto.txt -c decl.c -o /dev/null
        grep 'ckpt\.h' proto.txt | grep -o '[A-Za-z_0-9]* (' | tr -d ' (' | grep -v -E '^(ckpt_[a-z]|$|extern$|static$|void$|bool$|_Bool$|ckpt_err$)' | sort -u >log
        verdict "declared functions begin with ckpt_"
    fi
    $CC -std=c99 -E decl.c | awk '/^# / { inside = $3 ~ /ckpt\.h/ } inside' >ours.i
    grep -o -E '^(typedef )?(struct|enum|union) [a-zA-Z_0-9]+' ours.i | awk '{ print $NF }' | grep -v '^ckpt_' >log
    grep -o -E '^\} [a-zA-Z_0-9]+;' ours.i | tr -d '}; ' | grep -v '^ckpt_' >>log
    verdict "declared types begin with ckpt_"

    # A libcurl as old as the enterprise systems' (7.61.1 of RHEL 8): what it does not have yet is not named, and an older one is refused.
    mkdir -p curl61/curl curl58/curl
    cat >curl61/curl/curl.h <<'C'
#define CURL_DISABLE_TYPECHECK
#include_next <curl/curl.h>
#undef LIBCURL_VERSION_NUM
#define LIBCURL_VERSION_NUM 0x073D01
#pragma GCC poison CURLOPT_UPLOAD_BUFFERSIZE CURLOPT_PREREQFUNCTION CURLOPT_PREREQDATA CURLOPT_QUICK_EXIT CURLOPT_PROTOCOLS_STR
#pragma GCC poison CURLOPT_REDIR_PROTOCOLS_STR CURLVERSION_SEVENTH curl_multi_poll curl_multi_wakeup curl_easy_header curl_url CURLU
#pragma GCC poison CURLOPT_MAXAGE_CONN CURLOPT_MAXLIFETIME_CONN CURLOPT_CAINFO_BLOB CURLOPT_TRAILERFUNCTION CURLINFO_RETRY_AFTER
#pragma GCC poison CURLINFO_PROXY_ERROR CURLINFO_EFFECTIVE_METHOD CURLINFO_CONN_ID CURLOPT_SSH_HOSTKEYFUNCTION CURLOPT_CURLU CURLOPT_AWS_SIGV4
C
    printf '#include_next <curl/curl.h>\n#undef LIBCURL_VERSION_NUM\n#define LIBCURL_VERSION_NUM 0x073A00\n' >curl58/curl/curl.h
    if there clang && [ -z "$remote" ]; then
        expect "libcurl 7.61" clang -isystem curl61 -std=c99 -fsyntax-only $warn_c impl.c
        refuse "libcurl 7.58 is refused" 'needs libcurl 7.59 or newer' clang -isystem curl58 -std=c99 -fsyntax-only impl.c
    else
        skip "libcurl 7.61" "no clang, or no headers of libcurl"
    fi

    # What it costs its user: a report, no verdict, for time depends on the machine.
    if [ "${CKPT_LONG:-0}" = 1 ] && there python3; then
        python3 - "$CC" <<'PY'
import subprocess, sys, time
def best(args, times=5):
    found = []
    for _ in range(times):
        t = time.perf_counter()
        subprocess.run([sys.argv[1], "-std=c99"] + args, check=False)
        found.append(time.perf_counter() - t)
    return min(found) * 1000
open("empty.c", "w").write("int main(void) { return 0; }\n")
empty, decl = best(["-c", "empty.c", "-o", "/dev/null"]), best(["-c", "decl.c", "-o", "/dev/null"])
print("declarations: %.0f ms (an empty file: %.0f ms); implementation, local files, at -O0: %.1f s; %d lines" % (
    decl, empty, best(["-O0", "-DCKPT_NO_REMOTE", "-c", "impl.c", "-o", "/dev/null"], 1) / 1000, sum(1 for _ in open("ckpt.h"))))
PY
    fi
}

for part in ${*:-gcc clang cxx switches targets link hygiene}; do
    case $part in
        quick | gcc | clang | cxx | switches | targets | link | hygiene) part_$part ;;
        *) echo "FAIL: matrix.sh has no part '$part'"; failed=1 ;;
    esac
done
exit $failed
