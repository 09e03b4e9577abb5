#!/bin/sh
# portable.sh: tests/portable.c built by each compiler, for each machine, with each flag that could make a difference, and run.
# Programs for other machines run under qemu. Nothing here is linked with -lm: the header calls no function of libm.  run.sh: slow memory
set -u
CDPATH=
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-portable-sh-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
TMPDIR=$work
export TMPDIR
failed=0 runner=

. "$root/tests/share.sh"
warn_c=$strict_c warn_cxx=$strict_cxx
local=-DCKPT_NO_REMOTE
printf '#include <curl/curl.h>\n#include <openssl/evp.h>\n' >curl.c
if ${CC:-cc} -E curl.c >/dev/null 2>&1; then remote= net='-lcurl -lcrypto'; else remote=$local net=; fi

there() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "SKIP: $1: $2"; }
# try NAME COMPILER FLAGS...: builds and runs, with $runner before it.
try() {
    name=$1; shift
    rm -f prog
    if $pages "$@" "$root/tests/portable.c" -o prog -lpthread >log 2>&1 && $runner ./prog "$root/tests" >>log 2>&1; then echo "PASS: $name"
    else echo "FAIL: $name"; echo "    $*"; sed 's/^/    /' log | head -n 25; failed=1; fi
}
# again NAME PROGRAM: one that is there: gcc takes twice as long to make one as valgrind to run it.
again() {
    if $runner "$2" "$root/tests" >log 2>&1; then echo "PASS: $1"
    else echo "FAIL: $1"; sed 's/^/    /' log | head -n 25; failed=1; fi
}
# shared NAME LINK LIBS COMPILER FLAGS...: of the object that compile/ looks at for its warnings; LINK links it with LIBS.
shared() {
    name=$1 link=$2 libs=$3; shift 3
    there "$1" || { skip "$name" "no $1"; return; }
    rm -f prog prog.o
    if whole prog.o "$@" >log 2>&1 && $link prog.o -o prog $libs >>log 2>&1 && $runner ./prog "$root/tests" >>log 2>&1; then echo "PASS: $name"
    else echo "FAIL: $name"; echo "    $*"; sed 's/^/    /' log | head -n 25; failed=1; fi
}
# one NAME COMPILER FLAGS...: where the compiler is there.
one() { if there "$2"; then try "$@"; else skip "$1" "no $2"; fi; }

shared "gcc -std=c99 -O2" gcc "$net -lpthread" gcc -std=c99 -O2 $warn_c $remote
# With -ffast-math compilers know no NaNs, and the processor takes the smallest numbers for zeros. The lines are for valgrind below,
# which does not read clang's in DWARF 5.
one "clang -std=c99 -O0 -ffast-math" clang -std=c99 -O0 -ffast-math -g1 -gdwarf-4 $warn_c
[ ! -x prog ] || mv prog of_clang
# The unit tests have a part of it.
one "clang, all of UBSan" clang -std=gnu11 -O0 -g1 -fsanitize=undefined -fno-sanitize-recover=all $warn_c
shared "clang -std=c2x -O2" clang "$net -lpthread" clang -std=c2x -O2 $warn_c $remote
# What -O3 alone warns of, gcc says below, for 32 bits; here the machine's own instructions count.
if [ "${CKPT_LONG:-0}" = 1 ]; then most=-O3; else most=-Og; fi
one "gcc $most -ffast-math -march=native" gcc $most -ffast-math -march=native $warn_c
if [ "${CKPT_LONG:-0}" = 1 ]; then
    one "clang -O2 -ffast-math" clang -O2 -ffast-math $warn_c
    one "gcc without SIMD instructions" gcc -O0 -DCKPT__NO_SIMD $warn_c
    one "gcc -funsigned-char" gcc -O0 -funsigned-char $warn_c
    one "gcc -std=c2x -DNDEBUG" gcc -std=c2x -O0 -DNDEBUG $warn_c
    one "clang++ -std=c++17" clang++ -x c++ -std=c++17 -O0 $warn_cxx
else
    one "gcc -std=c2x -funsigned-char -DNDEBUG, without SIMD instructions" gcc -std=c2x -O0 -funsigned-char -DNDEBUG -DCKPT__NO_SIMD $warn_c
fi
shared "g++ -std=c++11" g++ "$net -lpthread" g++ -x c++ -std=c++11 -O0 $warn_cxx $remote
shared "clang++ -std=c++20" clang++ "$net -lpthread" clang++ -x c++ -std=c++20 -O0 $warn_cxx $remote
shared "musl, static" "musl-gcc -static" -lpthread musl-gcc -std=c99 -O0 $warn_c $local

echo 'int main(void) { return 0; }' >empty.c
# A kernel may be built without the system calls of 32 bits.
if ! gcc -m32 empty.c -o prog 2>/dev/null; then skip "32 bits" "no gcc -m32 (gcc-multilib)"
elif ! runner=$(narrow ./prog); then runner= ; skip "32 bits" "this kernel runs no program of 32 bits, and there is no qemu-i386 (qemu-user-static)"
else
    shared "32 bits: gcc -m32 $narrow_level" "gcc -m32" -lpthread gcc -m32 -std=c99 $narrow_level $warn_c $local
    try "32 bits: gcc -m32 -msse2" gcc -m32 -std=gnu99 -O0 -msse2 -mfpmath=sse $warn_c
    runner=
fi

if there valgrind && gcc empty.c -o prog && valgrind -q --error-exitcode=9 ./prog >/dev/null 2>&1; then
    runner="valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all"
    if [ -x of_clang ]; then again valgrind ./of_clang; else try "valgrind" gcc -g1 -O0; fi
    runner=
else
    skip valgrind "no valgrind that works"
fi

# Another machine: its gcc, or clang with the headers and libraries of Debian's libc6-dev-*-cross, which unlike gcc's cross
# compilers can be installed beside gcc-multilib.
machine() {     # NAME TRIPLET QEMU FLAG
    qemu= cc=
    for q in "qemu-$3" "qemu-$3-static"; do there "$q" && qemu=$q; done
    if [ -z "$qemu" ]; then skip "$1" "no qemu-$3 (qemu-user-static)"; return; fi
    for c in "$2-gcc" "clang --target=$2"; do
        [ -z "$cc" ] && $c -static empty.c -o prog >/dev/null 2>&1 && "$qemu" ./prog && cc=$c
    done
    if [ -z "$cc" ]; then skip "$1" "no compiler for $2 (for clang: binutils, libc6-dev and libgcc-12-dev of $2)"; return; fi
    runner=$qemu
    try "$1: $cc $4" $cc -std=c99 -O1 $4 -static $warn_c
    runner=
}
machine "big-endian" s390x-linux-gnu s390x ""
machine "64-bit ARM" aarch64-linux-gnu aarch64 ""
machine "RISC-V" riscv64-linux-gnu riscv64 ""
exit $failed
