#!/bin/sh
# readme.sh: the commands of README.md work, in their order, in a copy of the tree; its first program compiles and runs.  run.sh: slow memory
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
work=${TMPDIR:-/tmp}/ckpt-readme-$$
mkdir -p "$work/tmp" && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
. "$root/tests/share.sh"
real=$(command -v "${CC:-cc}") || exit 1
[ "${CKPT_LONG:-0}" = 1 ] || hasty "$work/bin" || { echo "FAIL: the library compiles"; exit 1; }
mkdir tree
(cd "$root" && tar -cf - --exclude=.git --exclude=examples/build --exclude=./out .) | (cd tree && tar -xf -)
cd tree || exit 1

# Programs in ```c blocks that have a main: from the first line on.
awk '/^```c$/ { n++; inside = 1; next } /^```/ { inside = 0 } inside { print > ("../block" n ".c") }' README.md
for block in ../block*.c; do
    grep -q 'int main' "$block" || continue
    if $real -std=c99 -Wall -Wno-misleading-indentation -Wextra -DCKPT_NO_REMOTE -I. "$block" -o ../prog -lpthread >../log 2>&1 && (mkdir -p ../run && cd ../run && ../prog && ../prog) >>../log 2>&1
    then echo "PASS: $(basename "$block") compiles, runs and resumes"
    else echo "FAIL: $(basename "$block")"; tail -n 20 ../log; failed=1; fi
done

# The block that loads a file with names of its own fits what such files hold: a matrix.
block=$(grep -l 'ckpt_state theirs' ../block*.c)
{
    printf '#define CKPT_IMPLEMENTATION\n#include "ckpt.h"\nint main(void) {\nenum { vocab = 5, dim = 3 };\nfloat wte[vocab * dim] = { 7 };\n'
    printf 'ckpt_state model = {0};\nckpt_tensor m = { .dtype = CKPT_F32, .ndim = 2, .shape = { vocab, dim }, .data = wte };\n'
    printf 'ckpt_bind(&model, "model.embed_tokens.weight", &m);\nif (ckpt_save("base.safetensors", &model, NULL) != CKPT_OK) return 2;\n'
    printf 'wte[0] = 0;\n'
    cat "$block"
    printf 'if (ckpt_load(&l, NULL) != CKPT_OK) { puts(ckpt_last_error()); return 1; }\nreturn wte[0] != 7;\n}\n'
} >../theirs.c
if $real -std=c99 -Wall -Wno-misleading-indentation -DCKPT_NO_REMOTE -I. ../theirs.c -o ../prog -lpthread >../log 2>&1 && (cd .. && ./prog) >>../log 2>&1
then echo "PASS: the block that loads other names fits their files"
else echo "FAIL: the block that loads other names fits their files"; tail -n 20 ../log; failed=1; fi

# Commands in ```sh blocks. What a line calls /tmp is a folder of ours, sh tests/run.sh is what is running now, the trainer has a
# test of its own and is run in its quick form here, and measuring takes too long.
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md | sed 's/ *#.*//' >../commands
while read -r line; do
    case $line in
        '' | 'sh tests/run.sh'* | *'tools/bench'* | *'tools/check'*) continue ;;
        'sh examples/run.sh') line='sh examples/run.sh --quick' ;;
    esac
    here=$(printf '%s' "$line" | sed "s,file:///tmp/,file://@here@/,g; s,/tmp/,../tmp/,g; s,@here@,$work/tmp,g")
    if sh -c "$here" >../log 2>&1 </dev/null; then echo "PASS: $line"; else echo "FAIL: $line"; sed 's/^/    /' ../log | tail -n 20; failed=1; fi
done <../commands
[ -s ../commands ] || { echo "FAIL: README.md has no commands"; failed=1; }

sh examples/run.sh --quick >../log 2>&1
if grep -q 'resumed from step' ../log; then echo "PASS: examples/run.sh resumes when run again"
else echo "FAIL: examples/run.sh resumes when run again"; tail -n 20 ../log; failed=1; fi

# A compiler that compiles nothing shows with which libraries the trainer would be built for a store.
mkdir ../stub && printf '#!/bin/sh\ncase "$*" in *-E*) exit 0 ;; esac\nexit 1\n' >../stub/cc && chmod +x ../stub/cc
for remote in s3://b/x gs://b/x azure://c/x oci://b@n/x sftp://h/x wandb://e/p dbfs:/Volumes/c/s/v mlflow-artifacts:/x file:///x none; do
    case $remote in file:* | none) want=-DCKPT_NO_REMOTE ;; *) want=-lcurl ;; esac
    PATH=$(cd ../stub && pwd):$PATH sh examples/run.sh --remote $remote >../log 2>&1
    if grep -q -e "$want" ../log; then echo "PASS: examples/run.sh builds for $remote"
    else echo "FAIL: examples/run.sh builds for $remote"; cat ../log; failed=1; fi
done
exit $failed
