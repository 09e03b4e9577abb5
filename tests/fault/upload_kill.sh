#!/bin/sh
# upload_kill.sh: the long form of upload_kill.c, 1000 kills. run.sh: long
set -eu
out=${TMPDIR:-/tmp}/upload_kill.$$
${CC:-cc} -std=gnu99 -O2 "$CKPT_ROOT/tests/fault/upload_kill.c" -o "$out" -lcmocka -lpthread
CKPT_KILLS=${CKPT_KILLS:-1000} "$out"
rm -f "$out"
