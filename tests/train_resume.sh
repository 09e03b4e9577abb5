#!/bin/sh
# train_resume.sh: a training run killed 20 times at random instants has, step by step, the losses of one that was never stopped,
# bit for bit, in every snapshot mode; so has each step that was computed twice.  run.sh: slow memory
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
work=${TMPDIR:-/tmp}/ckpt-resume-$$
mkdir -p "$work" && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
kills=20 steps=800 every=8
[ "${CKPT_LONG:-0}" = 1 ] && kills=100 steps=4000
failed=0
# What computes is optimised, the library is compiled as quickly as it can be.
. "$root/tests/share.sh"
implementation library.o -DCKPT_NO_REMOTE && ${CC:-cc} -O2 -DCKPT_NO_REMOTE -DCKPT__IMPLEMENTED -I"$root" \
    "$root/examples/train.c" library.o -o train -lpthread -lm || exit 1
cp "$root/examples/data/psalms.txt" . || exit 1
run="./train --quiet --hidden 24 --text psalms.txt --steps $steps --every $every"
random() { echo $(($(od -An -N2 -tu2 /dev/urandom) % $1)); }

$run --snapshot none --folder whole --loss-log whole.log || { echo "FAIL: the run that is not stopped"; exit 1; }
[ "$(wc -l <whole.log)" = $steps ] || { echo "FAIL: the uninterrupted run has $(wc -l <whole.log) steps"; exit 1; }

for mode in none copy lazy; do
    rm -f $mode.log
    : >$mode.log
    done_kills=0 again=0
    while [ $done_kills -lt $kills ]; do
        # A kill is due when the log has grown by a random number of lines, and then at a random instant.
        target=$(($(wc -l <$mode.log) + 1 + $(random $((2 * steps / kills)))))
        $run --snapshot $mode --folder $mode --loss-log $mode.log >out 2>&1 &
        pid=$!
        while [ "$(wc -l <$mode.log)" -lt $target ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
        sleep "0.00$(random 10)"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        status=$?
        if [ $status = 137 ]; then done_kills=$((done_kills + 1))
        elif [ $status != 0 ]; then
            echo "FAIL: $mode: it ended by itself with status $status: $(tail -n 1 out)"
            failed=1
            continue 2
        else
            # It came to its end: what is left of the kills falls on a run that starts over.
            again=$((again + 1))
            [ $again -gt 20 ] && break
            cat $mode.log >>$mode.all
            rm -rf $mode $mode-bucket
            : >$mode.log
        fi
    done 2>/dev/null
    $run --snapshot $mode --folder $mode --loss-log $mode.log >out 2>&1 || {
        echo "FAIL: $mode: the last start: $(tail -n 1 out)"; failed=1; continue; }
    cat $mode.log >>$mode.all
    computed=$(wc -l <$mode.all)
    sort -u $mode.all | sort -n >$mode.seen
    if cmp -s whole.log $mode.seen; then
        echo "PASS: $mode: $done_kills kills, $steps steps, $computed computed in all, each bit for bit the same"
    else
        echo "FAIL: $mode: after $done_kills kills the losses differ:"
        diff whole.log $mode.seen | head -n 10
        failed=1
    fi
    [ $done_kills = $kills ] || echo "    (only $done_kills kills)"
done
exit $failed
