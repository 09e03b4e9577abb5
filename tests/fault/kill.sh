#!/bin/sh
# kill.sh: the long form of kill.c, 2000 kills. run.sh: long
set -eu
out=${TMPDIR:-/tmp}/kill.$$
${CC:-cc} -std=gnu99 -O2 "$CKPT_ROOT/tests/fault/kill.c" -o "$out" -lcmocka -lpthread
CKPT_KILLS=${CKPT_KILLS:-2000} "$out"
rm -f "$out"
