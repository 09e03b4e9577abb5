#!/bin/sh
# ranks_tcp.sh: examples/15_ranks_tcp.c in processes that find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: 4 ranks
# train, stop, go on with 3, 1 and 8, and end with the weights of a run that was never interrupted; a signal to one rank stops all at
# the same step; a rank that is killed or stopped is named by all others; torchrun starts it, too. run.sh: waits slow memory
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
work=$(mktemp -d "${TMPDIR:-/tmp}/ranks-tcp-XXXXXX") || exit 1
trap 'for p in $pids; do kill -9 $p 2>/dev/null; done; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
cd "$work" || exit 1
failed=0 pids=
. "$root/tests/share.sh"
pass() { echo "PASS: $1"; }
fail() { echo "FAIL: $1"; cat log.* log 2>/dev/null | cut -c 1-300 | tail -n 24 | sed 's/^/    /'; failed=1; }
for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID; do unset $name; done

implementation library.o -DCKPT_NO_REMOTE && ${CC:-cc} -std=gnu11 -O0 -Wall -Wextra -DCKPT_NO_REMOTE -DCKPT__IMPLEMENTED -I"$root" "$root/examples/15_ranks_tcp.c" library.o -o train -lpthread -lm >log 2>&1 ||
    { fail "15_ranks_tcp.c compiles"; exit 1; }

# The adapter is C++ as well.
if command -v "${CXX:-g++}" >/dev/null 2>&1; then
    if ${CXX:-g++} -std=c++11 -x c++ -Wall -Wno-misleading-indentation -Wextra -Wno-missing-field-initializers -Wno-unused-function -Werror -fsyntax-only -DCKPT_NO_REMOTE -I"$root" "$root/examples/15_ranks_tcp.c" >log 2>&1
    then pass "C++"; else fail "C++"; fi
else
    echo "SKIP: C++: no compiler"
fi

# A port below those of outgoing connections; a run that finds it taken fails, so the number is drawn anew for each.
port() { port=$((15000 + $(od -An -N2 -tu2 /dev/urandom) % 5000)); }
# begin N ARG...: starts N ranks, the last one first.
begin() {
    world=$1
    shift
    port
    pids=
    rm -f log.* log
    r=$((world - 1))
    while [ $r -ge 0 ]; do
        RANK=$r WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 120 ./train "$@" >log.$r 2>&1 </dev/null &
        pids="$! $pids"                         # rank 0 in front
        r=$((r - 1))
    done
}
finish() { for p in $pids; do wait "$p"; done; pids=; }
line() { grep -h '^step ' log.0; }
hash() { line | sed 's/.*hash \([0-9a-f]*\),.*/\1/'; }
# goes NAME N FROM TO ARG...
goes() {
    name=$1 n=$2 from=$3 to=$4
    shift 4
    begin "$n" --steps "$to" --every 20 --rows 1003 "$@"
    finish
    case $(line) in
        "step $to (began at $from) on $n ranks"*) pass "$name" ;;
        *) fail "$name" ;;
    esac
}
same() { if [ -n "$want" ] && [ "$(hash)" = "$want" ]; then pass "$1"; else fail "$1 ($want)"; fi; }
# The process of a rank: the child of its `timeout`.
process() { cat "/proc/$1/task/$1/children" 2>/dev/null || ps -o pid= --ppid "$1"; }
rank() { process "$(echo "$pids" | cut -d ' ' -f $(($1 + 1)))"; }
# Until a checkpoint of that folder is there.
saved() { i=0; while [ $i -lt 400 ] && ! ls "$1"/*/.metadata >/dev/null 2>&1; do sleep 0.05; i=$((i + 1)); done; }

goes "4 ranks, never interrupted" 4 0 120 --folder whole
want=$(hash)
for mode in none copy lazy; do
    goes "$mode: 4 ranks begin" 4 0 50 --folder $mode --snapshot $mode
    goes "$mode: 3 ranks go on" 3 40 70 --folder $mode --snapshot $mode
    goes "$mode: 1 rank goes on" 1 60 90 --folder $mode --snapshot $mode
    goes "$mode: 8 ranks go on" 8 80 120 --folder $mode --snapshot $mode
    same "$mode: the same weights in the end"
done

# One rank has the signal; all save at the same step and end well.
begin 4 --folder signal --steps 1000000 --every 20 --rows 1003
saved signal
kill -TERM $(rank 2)
finish
at=$(line | sed -n 's/^step \([0-9]*\) .*/\1/p')
if [ -n "$at" ]; then pass "a signal to one rank stops all"; else fail "a signal to one rank stops all"; fi
before=$(hash)
begin 3 --folder signal --steps "${at:-1}" --every 20 --rows 1003
finish
if [ "$(line | sed 's/ on.*//')" = "step $at (began at $at)" ] && [ "$(hash)" = "$before" ]; then pass "its checkpoint is of that step"
else fail "its checkpoint is of that step ($at, $before)"; fi

# lost NAME SIGNAL RANK: the others name it, and end; then it all goes on.
lost() {
    rm -rf lost
    begin 4 --folder lost --steps 1000000 --every 5 --rows 1003 --timeout 3
    saved lost
    victim=$(rank "$3")
    kill "-$2" $victim
    others=0
    for r in 0 1 2 3; do
        [ $r != "$3" ] || continue
        wait "$(echo "$pids" | cut -d ' ' -f $((r + 1)))" && others=9
        grep -q "rank $3 has " log.$r && others=$((others + 1))
    done
    kill -9 $victim 2>/dev/null
    if [ $others = 3 ]; then pass "$1: the others name it"; else fail "$1: the others name it"; fi
    finish
    begin 3 --folder lost --steps 1 --every 5 --rows 1003
    finish
    if line | grep -q '^step [0-9]* (began at [1-9]'; then pass "$1: it goes on"; else fail "$1: it goes on"; fi
}
lost "rank 2 is killed" KILL 2
lost "rank 0 is killed" KILL 0
lost "rank 3 is stopped" STOP 3

# As a launcher starts it. With an agent's store the port that it gives is its own.
if python3 -c 'import torch.distributed.run' >log 2>&1; then python=python3
elif /usr/bin/python3 -c 'import torch.distributed.run' >log 2>&1; then python=/usr/bin/python3
else python=; fi
if [ -n "$python" ]; then
    rm -f log.*
    port
    # -r 1 -t 1: torch 1.13 does not start under Python 3.11 with the defaults of these.
    torchrun() {
        timeout -k 5 100 "$python" -m torch.distributed.run -r 1 -t 1 --no_python --nproc_per_node 4 "$@" \
            ./train --folder torch --steps 120 --every 20 --rows 1003 >log 2>&1 </dev/null
    }
    torchrun --master_addr 127.0.0.1 --master_port "$port"
    # Debian's torch 2.6 is built without the libuv that its launcher asks for, whatever USE_LIBUV says, for a store over TCP.
    if grep -q 'without libuv' log; then
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
        export TORCH_DISABLE_SHARE_RDZV_TCP_STORE
        torchrun --rdzv_backend c10d --rdzv_conf store_type=file --rdzv_endpoint "$work/store" --local_addr 127.0.0.1
    fi
    sed 's/^\[default[0-9]*\]://' log >log.0
    if line | grep -q 'on 4 ranks' && [ "$(hash)" = "$want" ]; then pass "torchrun"; else fail "torchrun"; fi
else
    echo "SKIP: torchrun: no torch.distributed.run"
fi
exit $failed
