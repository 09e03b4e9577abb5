#!/bin/sh
# examples.sh: every example compiles in every language version it claims, runs, does what it says, and stays short.  run.sh: memory
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
work=${TMPDIR:-/tmp}/ckpt-examples-$$
mkdir -p "$work" && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
. "$root/tests/share.sh"
cxx=$(command -v g++) || cxx=g++
real=$(command -v "${CC:-cc}") || exit 1
[ "${CKPT_LONG:-0}" = 1 ] || hasty "$work/bin" || { echo "FAIL: the library compiles"; exit 1; }
# What is looked at for its warnings is the example: the implementation has compile/ for that.
warn="-Wall -Wextra -Wpedantic -Wshadow -Wundef -Wwrite-strings -Wformat=2 -Werror -DCKPT__IMPLEMENTED"
pass() { echo "PASS: $1"; }
fail() { echo "FAIL: $1"; sed 's/^/    /' log | tail -n 20; failed=1; }
there() { command -v "$1" >/dev/null 2>&1; }
# says NAME TEXT: the last program's output holds TEXT.
says() { if grep -q -e "$2" log; then pass "$1"; else fail "$1 (no '$2')"; fi; }

for source in "$root"/examples/[0-9]*; do
    name=$(basename "$source")
    most=35 cc=$real
    case $name in
        14_*)
            there mpicc || { echo "SKIP: $name: no mpicc (libopenmpi-dev)"; continue; }
            OMPI_CC=$real cc=mpicc
            export OMPI_CC ;;
    esac
    case $name in 13_*) most=60 ;; esac        # a store and its use
    [ "$(wc -l <"$source")" -le $most ] && pass "$name has at most $most lines" || { wc -l "$source" >log; fail "$name has more than $most lines"; }
    case $name in
        *.cpp)
            for cc in $cxx clang++; do
                there $cc || { echo "SKIP: $name $cc: not installed"; continue; }
                for std in c++11 c++17 c++20; do
                    [ "$std" != c++17 ] && [ "${CKPT_FAST:-0}" = 1 ] && continue
                    if $cc -std=$std $warn -Wno-missing-field-initializers -DCKPT_NO_REMOTE -I"$root" -fsyntax-only "$source" >log 2>&1
                    then pass "$name $(basename $cc) $std"; else fail "$name $(basename $cc) $std"; fi
                done
            done ;;
        *)
            if $cc -std=c99 $warn -DCKPT_NO_REMOTE -I"$root" -fsyntax-only "$source" >log 2>&1; then pass "$name c99"; else fail "$name c99"; fi
            [ "${CKPT_FAST:-0}" = 1 ] && continue
            if there clang; then
                case $name in 14_*) OMPI_CC=clang clang="mpicc -Wno-unused-command-line-argument" ;; *) clang=clang ;; esac
                if $clang -std=c2x $warn -Wno-missing-field-initializers -fsyntax-only -DCKPT_NO_REMOTE -I"$root" "$source" >log 2>&1
                then pass "$name clang c2x"; else fail "$name clang c2x"; fi
            fi ;;
    esac
    # The first line is the command that builds it, from the top folder.
    line=$(sed -n '1s,^// \(.*\)-lpthread.*,\1-lpthread,p' "$source" | sed "s, -o \([a-z_]*\), -o '$work/\1',")
    rm -f prog
    program=$(sed -n '1s,.* -o \([a-z_]*\) .*,\1,p' "$source")
    there "${line%% *}" || { echo "SKIP: $name: no ${line%% *}"; continue; }
    case $line in
        *-lcurl*)
            why=$(remote_there) || { echo "SKIP: $name: $why"; continue; } ;;
    esac
    case $name in
        12_*)                           # its bucket is one for all users and runs; a test's is its own
            sed "s,/tmp/ckpt-bucket,$work/bucket," "$source" >load_uri.c
            line=$(printf '%s' "$line" | sed "s, examples/12_load_uri.c, '$work/load_uri.c',") ;;
    esac
    if (cd "$root" && OMPI_CC=$(command -v cc) && eval "$line") >log 2>&1; then pass "$name: its first line builds it"; else fail "$name: its first line builds it"; continue; fi
    bucket=file://$work/bucket
    case $name in
        10_*) set -- "$bucket/{run_name}" ;;
        11_*) set -- "$bucket" ;;
        14_* | 15_*) set -- --folder out/ranks --steps 50 ;;      # alone; ranks_mpi.sh and ranks_tcp.sh start many
        *) set -- ;;
    esac
    if "./$program" "$@" >log 2>&1; then pass "$name runs"; else fail "$name runs"; fi
    case $name in
        1_*) says "$name: values are back" 'weight\[0\] 1, bias\[0\] 0.5, step 700, "learning rate' ;;
        2_*) says "$name: the best is kept" 'ba0030\|ba0020'; [ "$(grep -c '\.pt' log)" = 3 ] && pass "$name: three are left" || fail "$name: three are left" ;;
        3_*) says "$name: first start" 'a fresh start'
             ./$program >log 2>&1; says "$name: second start" 'resumed at batch 100'; says "$name: goes on" 'now at batch 200' ;;
        4_*) says "$name: two folders" '1 checkpoint to resume from, 2 files of weights' ;;
        5_*) says "$name: saves" 'batch 20: the call took' ;;
        6_*) says "$name: lists" 'state/model/w .* 24 bytes   6   begins with 3'; says "$name: verifies" 'every checksum is right' ;;
        7_*) says "$name: takes the body" 'body from the base (1 ... 8), head as it was (0.5)'; says "$name: refuses another shape" 'without the ignored key: .*head' ;;
        8_*) says "$name: saves twice and stops" 'stopped at batch 1500 with 2 checkpoints' ;;
        9_*) says "$name: keeps two" '2 checkpoints' ;;
        10_*) says "$name: first start" 'a fresh start'; says "$name: all uploaded" 'saved 5, uploaded 5, removed 2'
             rm -rf ".$work"
             ./$program "$@" >log 2>&1; says "$name: resumes from the bucket" 'resumed at batch 50' ;;
        11_*) says "$name: uploads" '10 files, 70 bytes'; says "$name: names" "$work/bucket/logs/day/7.log"
             [ "$(cat bucket/logs/day/7.log)" = 'line 7' ] && pass "$name: it is there" || fail "$name: it is there" ;;
        12_*) says "$name: loads" 'loaded: 1 2 3 4' ;;
        14_* | 15_*) says "$name: trains" 'step 50 (began at 0) on 1 ranks: hash'
             ./$program --folder out/ranks --steps 90 >log 2>&1; says "$name: goes on" 'step 90 (began at 40) on 1 ranks: hash'; rm -rf out/ranks ;;
        13_*) says "$name: comes back" 'epoch 1 is back from the cloud: w\[0\] = 42' ;;
    esac
done
exit $failed
