# share.sh: read by scripts that compile: what several of them need is compiled once in a run of run.sh. run.sh: helper
#
# pages: goes before a compiler's command. clang asks for memory a page at a time, and in a virtual machine a third of its time goes into that:
# huge pages spare it (glibc 2.35; others pay no heed).
pages='env GLIBC_TUNABLES=glibc.malloc.hugetlb=1'
# quick: a compiler for programs whose code is not what is tested, the one that takes the least time; a test's own code has $CC.
if command -v clang >/dev/null 2>&1; then quick="$pages clang -O0"; else quick="${CC:-cc} -O0"; fi

# remote_there: libcurl's and OpenSSL's headers are there; else it says of which packages they are.
remote_there() {
    printf '#include <curl/curl.h>\n#include <openssl/evp.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1 ||
        { echo "no libcurl or OpenSSL (libcurl4-openssl-dev, libssl-dev)"; return 1; }
}

# memory MB: a folder in memory with so much room, on a machine that can spare it, and whose programs may be run: prints its name.
memory() {
    [ -d /dev/shm ] && [ -w /dev/shm ] || return 1
    room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { printf "%d", $4 / 1000 }')
    spare=$(awk '/^MemAvailable:/ { printf "%d", $2 / 2000 }' /proc/meminfo 2>/dev/null)
    limit=$(cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null | awk '/^[0-9]/ { printf "%d", $1 / 2000000; exit }')
    [ "${room:-0}" -ge "$1" ] && [ "${spare:-0}" -ge "$1" ] && [ "${limit:-$1}" -ge "$1" ] || return 1
    # A program: what "command -v" says of a shell's own commands is no path.
    try=$(mktemp -d /dev/shm/ckpt-try-XXXXXX) || return 1
    runs=1
    cp "$(command -v env)" "$try/env" 2>/dev/null && "$try/env" >/dev/null 2>&1 && runs=0
    rm -rf "$try"
    [ $runs = 0 ] && echo /dev/shm
}

# Every warning. gcc looks at indentation four seconds long each time: compile/gcc has it once.
strict="-Wall -Wno-misleading-indentation -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wdouble-promotion -Wcast-qual
        -Wwrite-strings -Wformat=2 -Wvla -Werror"
strict_c="$strict -Wstrict-prototypes -Wmissing-prototypes"
strict_cxx="$strict -Wno-missing-field-initializers -fno-exceptions -fno-rtti"

# built PROGRAM COMMAND...: makes PROGRAM by a compiler's command, to which -o is added; says what that says.
built() {
    program=$1
    shift
    if [ -z "${CKPT_BUILD:-}" ]; then $pages "$@" -o "$program"; return; fi
    place=$CKPT_BUILD/shared/$(printf '%s\n' "$@" | cksum | tr ' ' -)
    mkdir -p "$CKPT_BUILD/shared"
    if mkdir "$place" 2>/dev/null; then
        $pages "$@" -o "$place/program" >"$place/log" 2>&1
        echo $? >"$place/status.new"
        mv "$place/status.new" "$place/status"
    fi
    waits=0
    until [ -f "$place/status" ]; do
        waits=$((waits + 1))
        [ $waits -lt 3000 ] || { $pages "$@" -o "$program"; return; }      # who began it has died
        sleep 0.1
    done
    cat "$place/log"
    [ "$(cat "$place/status")" = 0 ] || return 1
    ln -f "$place/program" "$program" 2>/dev/null || cp "$place/program" "$program"
}

# whole OBJECT COMPILER FLAG...: an object of tests/portable.c with all of ckpt.h in it: what compile/ wants to be without a warning when
# it is optimised is what portable.sh runs.
whole() {
    object=$1
    shift
    built "$object" "$@" -DPORTABLE_WHOLE -c "$root/tests/portable.c"
}

# implementation OBJECT FLAG...: the library alone, compiled as quickly as it can be, for programs compiled with -DCKPT__IMPLEMENTED, whose own
# code is what matters.
implementation() {
    object=$1
    shift
    built "$object" $quick "$@" -DCKPT_IMPLEMENTATION -x c -c "$root/ckpt.h"
}

# The commands of README.md and of the examples are run as they stand, but what a compiler makes of ckpt.h, at -O2 and -O3 too, is the
# affair of portable.sh and compile/, and cost minutes: a cc and a g++ that are clang's where it is there, link what uses the library (and
# so -lpthread) with one that is compiled once, and leave the optimising of the tools out.
hasty() {
    mkdir -p "$1"
    implementation "$1/local.o" -DCKPT_NO_REMOTE || return 1
    remote_there >/dev/null && { implementation "$1/remote.o" || return 1; }
    for c in cc g++; do
        there=$(command -v $c) || continue
        case $c in cc) other=clang ;; *) other=clang++ ;; esac
        ! command -v $other >/dev/null 2>&1 || there=$(command -v $other)
        cat >"$1/$c" <<END
#!/bin/sh
case " \$* " in
    *' -DCKPT_NO_REMOTE '*' -lpthread '*) set -- -DCKPT__IMPLEMENTED "\$@" '$1/local.o' ;;
    *' -lcurl '*' -lpthread '*) set -- -DCKPT__IMPLEMENTED "\$@" '$1/remote.o' ;;
esac
# What an example computes itself is worth its optimising.
case " \$* " in *' examples/'*) ;; *) for a; do shift; case \$a in -O[23]) ;; *) set -- "\$@" "\$a" ;; esac; done ;; esac
exec $pages $there "\$@"
END
        chmod +x "$1/$c"
    done
    PATH=$1:$PATH
}

# What 32 bits are optimised with: -O3 takes two and a half times as long.
narrow_level=-O1
[ "${CKPT_LONG:-0}" = 1 ] && narrow_level=-O3

# narrow PROGRAM: prints what a program of 32 bits is run with, nothing where the kernel has the system calls for it, or fails.
narrow() {
    "$1" >/dev/null 2>&1 && return 0
    for emulator in qemu-i386 qemu-i386-static; do
        "$emulator" "$1" >/dev/null 2>&1 && echo "$emulator" && return 0
    done
    return 1
}

# vendor_has PACKAGE: a vendor's client of npm's is there, below the folder $vendor; with CKPT_LONG=1 it is installed in the current folder.
vendor_has() {
    command -v node >/dev/null 2>&1 || return 1
    for vendor in "${CKPT_NODE_MODULES:-/none}" "$root/node_modules" /usr/lib/node_modules /usr/local/lib/node_modules; do
        [ -d "$vendor/$1" ] && return 0
    done
    vendor=$PWD/npm/node_modules
    [ "${CKPT_LONG:-0}" = 1 ] && command -v npm >/dev/null 2>&1 && mkdir npm && (cd npm && timeout 180 npm install --no-audit --no-fund "$1" >npm.log 2>&1)
}
