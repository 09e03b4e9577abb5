#!/bin/sh
# ranks_mpi.sh: real mpirun: the hooks of examples/ranks_mpi.h and what they say of a rank that stops or dies; examples/14_ranks_mpi.c
# trains on 4 ranks, stops, goes on with 3, 1 and 8, and ends with the weights of a run that was never interrupted. run.sh: waits slow memory
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
work=$(mktemp -d "${TMPDIR:-/tmp}/ranks-mpi-XXXXXX") || exit 1
mpi_tmp=$(mktemp -d /tmp/mpi-XXXXXX) || exit 1         # short: MPI makes sockets in it
trap 'rm -rf "$work" "$mpi_tmp"' EXIT
trap 'exit 130' INT TERM HUP
cd "$work" || exit 1
failed=0
. "$root/tests/share.sh"
pass() { echo "PASS: $1"; }
fail() { echo "FAIL: $1"; grep -v '^$' log | cut -c 1-300 | tail -n 20 | sed 's/^/    /'; failed=1; }

command -v mpirun >/dev/null 2>&1 && command -v mpicc >/dev/null 2>&1 || { echo "no mpirun or mpicc (openmpi-bin, libopenmpi-dev)"; exit 77; }
case $(mpirun --version 2>&1) in
    *'Open MPI'* | *OpenRTE*)
        open=1
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
        OMPI_MCA_orte_tmpdir_base=$mpi_tmp OMPI_MCA_btl_base_warn_component_unused=0 PRTE_ALLOW_RUN_AS_ROOT=1
        export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_mpi_yield_when_idle \
            OMPI_MCA_orte_tmpdir_base OMPI_MCA_btl_base_warn_component_unused PRTE_ALLOW_RUN_AS_ROOT
        oversubscribe=--oversubscribe ;;
    *) open=0 oversubscribe= ;;
esac
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK
# ranks N PROGRAM ARG...
ranks() {
    n=$1
    shift
    TMPDIR=$mpi_tmp timeout -k 5 120 mpirun $oversubscribe -n "$n" "$@" >log 2>&1 </dev/null
}

implementation library.o -DCKPT_NO_REMOTE || { fail "the library compiles"; exit 1; }
for pair in "$root/tests/ranks_mpi.c hooks" "$root/examples/14_ranks_mpi.c train"; do
    OMPI_CC=${CC:-cc} mpicc -std=gnu11 -O0 -Wall -Wno-misleading-indentation -Wextra -DCKPT_NO_REMOTE -DCKPT__IMPLEMENTED -I"$root" "${pair% *}" library.o -o "${pair##* }" -lpthread -lm >log 2>&1 ||
        { fail "${pair% *} compiles"; exit 1; }
done
if ! ranks 2 ./hooks values; then
    grep -q 'line [0-9]' log || { tail -n 3 log; echo "mpirun starts nothing here"; exit 77; }
fi

# The adapter is C++ as well.
if command -v mpicxx >/dev/null 2>&1; then
    if mpicxx -std=c++11 -x c++ -Wall -Wno-misleading-indentation -Wextra -Wno-missing-field-initializers -Wno-unused-function -Wno-cast-function-type -fsyntax-only -DCKPT_NO_REMOTE -I"$root" "$root/examples/14_ranks_mpi.c" >log 2>&1
    then pass "C++"; else fail "C++"; fi
else
    echo "SKIP: C++: no compiler"
fi

#-- the hooks -------------------------------------------------------------------------

for n in 2 3 4; do
    ranks $n ./hooks values
    if grep -q "all values are right on $n ranks" log; then pass "values on $n ranks"; else fail "values on $n ranks"; fi
done

# The others name it within the limit of 2 s and a little; then they end the job with MPI_Abort.
for victim in 2 0; do
    ranks 4 ./hooks stop $victim
    if [ "$(grep -c "^rank [0-9]: CKPT_TIMEOUT after [2-7]\.[0-9] s: rank $victim has not come within 2 s" log)" = 3 ]
    then pass "rank $victim is stopped: all others name it"; else fail "rank $victim is stopped: all others name it"; fi
done

begin=$(date +%s)
ranks 4 ./hooks kill 1
if [ $? != 0 ] && [ $(($(date +%s) - begin)) -lt 15 ]; then pass "rank 1 is killed: mpirun ends the job"; else fail "rank 1 is killed: mpirun ends the job"; fi
# Open MPI 5 knows the word, and says nothing of it in its help.
if [ $open = 1 ] && TMPDIR=$mpi_tmp mpirun $oversubscribe --enable-recovery -n 1 true >log 2>&1; then
    oversubscribe="$oversubscribe --enable-recovery"
    ranks 4 ./hooks kill 1
    oversubscribe=${oversubscribe% *}
    if [ "$(grep -c '^rank [0-9]: CKPT_[A-Z]* after [0-9.]* s: rank 1 has ' log)" = 3 ]
    then pass "rank 1 is killed, the others may live: they name it"; else fail "rank 1 is killed, the others may live: they name it"; fi
else
    echo "SKIP: rank 1 is killed, the others may live: this mpirun has no --enable-recovery"
fi

#-- the example -----------------------------------------------------------------------

# line: what rank 0 said at the end of a run.
line() { grep '^step ' log | tail -n 1; }
hash() { line | sed 's/.*hash \([0-9a-f]*\),.*/\1/'; }
# goes NAME N FROM TO ARG...: N ranks go on from one step to the other.
goes() {
    name=$1 n=$2 from=$3 to=$4
    shift 4
    ranks "$n" ./train --steps "$to" --every 20 --rows 1003 "$@"
    case $(line) in
        "step $to (began at $from) on $n ranks"*) pass "$name" ;;
        *) fail "$name" ;;
    esac
}
goes "4 ranks, never interrupted" 4 0 120 --folder whole
want=$(hash)
for mode in none lazy; do
    goes "$mode: 4 ranks begin" 4 0 50 --folder $mode --snapshot $mode
    goes "$mode: 3 ranks go on" 3 40 70 --folder $mode --snapshot $mode
    goes "$mode: 1 rank goes on" 1 60 90 --folder $mode --snapshot $mode
    goes "$mode: 8 ranks go on" 8 80 120 --folder $mode --snapshot $mode
    if [ -n "$want" ] && [ "$(hash)" = "$want" ]; then pass "$mode: the same weights in the end"; else fail "$mode: the same weights in the end ($want)"; fi
done
exit $failed
