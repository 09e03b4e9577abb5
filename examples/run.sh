#!/bin/sh
# run.sh: builds examples/train.c and trains a small language model, saving as it goes. Run it again and it resumes.
#
#   sh examples/run.sh               about a minute; Ctrl-C whenever you like
#   sh examples/run.sh --quick       a few seconds
#   sh examples/run.sh --fresh       forget the run before
#   sh examples/run.sh --remote s3://bucket/prefix    uploads each checkpoint there (default: a file:// bucket beside the folder; none: off)
#   any other option goes to the trainer: --steps N, --every N, --snapshot none|copy|lazy, --folder DIR, --loss-log FILE, --quiet
set -u
CDPATH=
top=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
from=$(pwd -P)
cd "$top" || exit 1
build=examples/build folder= remote= fresh=0
rest=
quote() { printf " '%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
while [ $# -gt 0 ]; do
    case $1 in
        --quick) rest="$rest --steps 600 --every 100" ;;
        --fresh) fresh=1 ;;
        --help | -h) sed -n '2,/^set/s/^# \{0,1\}//p' examples/run.sh | sed '$d'; exit 0 ;;
        --folder) folder=$2; case $folder in /* | *://*) ;; *) folder=$from/$folder ;; esac; shift ;;
        --remote) remote=$2; shift ;;
        --loss-log) file=$2; case $file in /*) ;; *) file=$from/$file ;; esac; rest="$rest --loss-log$(quote "$file")"; shift ;;
        *) rest="$rest$(quote "$1")" ;;
    esac
    shift
done
[ -n "$folder" ] || folder=$build/run
case $folder in
    *://*) remote=${remote:-none} ;;
    /*) remote=${remote:-file://$folder-bucket} ;;
    *) remote=${remote:-file://$top/$folder-bucket} ;;
esac

if ! command -v cc >/dev/null 2>&1; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "installing a C compiler (gcc, libc6-dev)"
    { $as_root apt-get update && $as_root apt-get -y --no-install-recommends install gcc libc6-dev; } >/dev/null 2>&1
    command -v cc >/dev/null 2>&1 || { echo "there is no C compiler: install one (on Debian: apt-get install gcc libc6-dev)" >&2; exit 1; }
fi

mkdir -p "$build" || exit 1
# Only a folder that a run has written in is forgotten: any may be named.
case $fresh$folder in
    1*://* | 0*) ;;
    *)
        if [ -e "$folder" ] && [ ! -d "$folder" ]; then
            echo "--fresh: $folder is a file: nothing was deleted" >&2
            exit 1
        fi
        if [ -d "$folder" ] && [ -n "$(ls -A "$folder")" ] && ! ls -A "$folder" | grep -q '^\.ckpt-index.*\.jsonl$\|^\.ckpt-lock'; then
            echo "--fresh: $folder is not the folder of a run: nothing was deleted" >&2
            exit 1
        fi
        rm -rf "$folder" "$folder-bucket/train"
        rmdir "$folder-bucket" 2>/dev/null
        ;;
esac
flags=-O3
echo 'int main(void) { return 0; }' >"$build/probe.c"
cc -march=native "$build/probe.c" -o "$build/probe" 2>/dev/null && flags="-O3 -march=native"
rm -f "$build/probe" "$build/probe.c"
# A network library is needed for a bucket that is not a folder.
net=-DCKPT_NO_REMOTE libs=
case $(printf '%s\n' "$folder" "$remote" | sed '/^file:/d') in
    *://* | *dbfs:/* | *mlflow-artifacts:/*)
        if ! printf '#include <curl/curl.h>\n#include <openssl/evp.h>\n' | cc -E -x c - >/dev/null 2>&1; then
            echo "libcurl and OpenSSL are missing (on Debian: apt-get install libcurl4-openssl-dev libssl-dev)" >&2
            exit 1
        fi
        net= libs="-lcurl -lcrypto " ;;
esac
echo "cc $flags ${net:+$net }-I. examples/train.c -o $build/train $libs-lpthread -lm"
cc $flags $net -I. examples/train.c -o "$build/train" $libs-lpthread -lm || exit 1
cc -O2 -DCKPT_NO_REMOTE -I. tools/ckpt.c -o "$build/ckpt" -lpthread -lm || exit 1

eval "set -- $rest"
"$build/train" --folder "$folder" --remote "$remote" "$@" || exit 1

case $folder in *://*) exit 0 ;; esac
echo
echo "In $folder, the newest three and the best (by the loss on text that it never trained on):"
echo
"$build/ckpt" ls "$folder"
case $remote in
    file://*) printf '\nIn the bucket %s, the newest five and the best:\n\n' "$remote"; (cd "${remote#file://}/train" && ls -l | sed 1d) ;;
esac
cat <<TEXT

Look inside:     $build/ckpt show $folder/latest-rank0.pt --stats
Check it:        $build/ckpt verify $folder/latest-rank0.pt
In Python:       torch.load("$folder/latest-rank0.pt")["state"]["model"]["w1"]
Run it again:    sh examples/run.sh          goes on where it is now, also after Ctrl-C or kill -9
Lose the folder: rm -rf $folder; sh examples/run.sh     fetches the newest from the bucket and goes on
The program:     examples/train.c            bind_everything() and main() have all that is about checkpoints
TEXT
