#!/bin/sh
# run.sh: builds examples/train.c and trains a small language model, saving as it goes. Run it again and it resumes.
#
#   sh examples/run.sh               about a minute; Ctrl-C whenever you like
#   sh examples/run.sh --quick       a few seconds
#   sh examples/run.sh --fresh       forget the run before
#   any other option goes to the trainer: --steps N, --every N, --snapshot none|copy|lazy, --folder DIR, --loss-log FILE, --quiet
set -u
CDPATH=
top=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
from=$(pwd -P)
cd "$top" || exit 1
build=examples/build folder= fresh=0
rest=
quote() { printf " '%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
while [ $# -gt 0 ]; do
    case $1 in
        --quick) rest="$rest --steps 600 --every 100" ;;
        --fresh) fresh=1 ;;
        --help | -h) sed -n '2,/^set/s/^# \{0,1\}//p' examples/run.sh | sed '$d'; exit 0 ;;
        --folder) folder=$2; case $folder in /*) ;; *) folder=$from/$folder ;; esac; shift ;;
        --loss-log) file=$2; case $file in /*) ;; *) file=$from/$file ;; esac; rest="$rest --loss-log$(quote "$file")"; shift ;;
        *) rest="$rest$(quote "$1")" ;;
    esac
    shift
done
[ -n "$folder" ] || folder=$build/run

if ! command -v cc >/dev/null 2>&1; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "installing a C compiler (gcc, libc6-dev)"
    { $as_root apt-get update && $as_root apt-get -y --no-install-recommends install gcc libc6-dev; } >/dev/null 2>&1
    command -v cc >/dev/null 2>&1 || { echo "there is no C compiler: install one (on Debian: apt-get install gcc libc6-dev)" >&2; exit 1; }
fi

mkdir -p "$build" || exit 1
[ $fresh = 1 ] && rm -rf "$folder"
flags=-O3
echo 'int main(void) { return 0; }' >"$build/probe.c"
cc -march=native "$build/probe.c" -o "$build/probe" 2>/dev/null && flags="-O3 -march=native"
rm -f "$build/probe" "$build/probe.c"
echo "cc $flags -DCKPT_NO_REMOTE -I. examples/train.c -o $build/train -lpthread -lm"
cc $flags -DCKPT_NO_REMOTE -I. examples/train.c -o "$build/train" -lpthread -lm || exit 1
cc -O2 -DCKPT_NO_REMOTE -I. tools/ckpt.c -o "$build/ckpt" -lpthread -lm || exit 1

eval "set -- $rest"
"$build/train" --folder "$folder" "$@" || exit 1

echo
echo "In $folder, the newest three and the best (by the loss on text that it never trained on):"
echo
"$build/ckpt" ls "$folder"
cat <<TEXT

Look inside:     $build/ckpt show $folder/latest-rank0.pt --stats
Check it:        $build/ckpt verify $folder/latest-rank0.pt
In Python:       torch.load("$folder/latest-rank0.pt")["state"]["model"]["w1"]
Run it again:    sh examples/run.sh          goes on where it is now, also after Ctrl-C or kill -9
The program:     examples/train.c            bind_everything() and main() have all that is about checkpoints
TEXT
