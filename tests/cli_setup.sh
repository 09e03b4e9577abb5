# cli_setup.sh: read by the tests of tools/ckpt.c: a folder of its own, ./ckpt (with ASan and UBSan where they are), ./ckpt-plain
# (with -ffast-math, which changes nothing), and what looks at their statuses and output. run.sh: helper
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
dir=${TMPDIR:-/tmp}/$(basename "$0" .sh).$$
cc=${CC:-cc}
mkdir -p "$dir" && cd "$dir" || exit 1
dir=$(pwd -P)
pids=
trap 'for p in $pids; do kill $p 2>/dev/null; done; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
unset NO_COLOR RANK WORLD_SIZE LOCAL_RANK RUN_NAME COMPOSER_RUN_NAME SLURM_PROCID SLURM_NTASKS 2>/dev/null
export LC_ALL=C.UTF-8 TZ=UTC TMPDIR="$dir/tmp"
mkdir tmp
failed=0
pass() { echo "PASS: $1"; }
fail() { echo "FAIL: $1"; failed=1; }
. "$root/tests/share.sh"
# By its own name: where pyenv stands before it each start takes three times as long.
real_python=$(command -v python3) && real_python=$(python3 -c 'import sys; print(sys.executable)')
python3() { "$real_python" "$@"; }

# is NAME WANTED-STATUS COMMAND...: runs it; the output is left in $out, complaints in ./err
is() {
    name=$1 want=$2
    shift 2
    out=$("$@" 2>err)
    got=$?
    if [ "$got" = "$want" ]; then pass "$name"; else
        fail "$name"
        echo "  $* ended with $got, not $want"
        printf '%s\n' "$out" | sed 's/^/  | /' | head -20
        sed 's/^/  ! /' err | head -5
    fi
}
# holds NAME TEXT: the last output contains it; lacks: it does not; says: the last complaint does
holds() { case $out in *"$2"*) pass "$1" ;; *) fail "$1"; printf '%s\n' "$out" | sed 's/^/  | /' | head -30 ;; esac; }
lacks() { case $out in *"$2"*) fail "$1"; printf '%s\n' "$out" | sed 's/^/  | /' | head -30 ;; *) pass "$1" ;; esac; }
says() { if grep -q -e "$2" err; then pass "$1"; else fail "$1"; sed 's/^/  ! /' err | head -5; fi; }
# json NAME EXPRESSION: the last output is JSON, for which the Python expression over d holds
json() {
    if printf '%s' "$out" | python3 -S -c "import json,sys
d=json.loads(sys.stdin.buffer.read())
sys.exit(0 if ($2) else 1)" 2>pyerr; then pass "$1"; else fail "$1"; printf '%s\n' "$out" | head -c 1500; sed 's/^/  ! /' pyerr | tail -3; fi
}

implementation library.o -DCKPT_NO_REMOTE && built ckpt-plain $cc -std=c99 -O0 -g -ffast-math -DCKPT_NO_REMOTE -DCKPT__IMPLEMENTED $strict \
    -Wmisleading-indentation "$root/tools/ckpt.c" library.o -lpthread -lm || { echo "FAIL: build of tools/ckpt.c"; exit 1; }
built ckpt $quick -std=c99 -g -DCKPT_NO_REMOTE -fsanitize=address,undefined -fno-sanitize-recover=all "$root/tools/ckpt.c" -lpthread -lm 2>/dev/null ||
    cp ckpt-plain ckpt
