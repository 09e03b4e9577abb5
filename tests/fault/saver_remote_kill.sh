#!/bin/sh
# saver_remote_kill.sh: the long form of saver_remote_kill.c, 1000 kills. run.sh: long
set -eu
out=${TMPDIR:-/tmp}/saver_remote_kill.$$
${CC:-cc} -std=gnu99 -O2 "$CKPT_ROOT/tests/fault/saver_remote_kill.c" -o "$out" -lcmocka -lpthread
CKPT_KILLS=${CKPT_KILLS:-1000} "$out"
rm -f "$out"
