#!/bin/sh
# bench.sh: builds tools/bench.c in a temporary folder and runs it; the flags are those of bench.c (--quick, --only, --json, ...).
set -eu
here=$(CDPATH= cd "$(dirname "$0")" && pwd -P)
build=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-bench-build-XXXXXX")
trap 'rm -rf "$build"' EXIT INT TERM
"${CC:-cc}" -O2 -o "$build/bench" "$here/bench.c" -lpthread -lm
status=0
"$build/bench" "$@" || status=$?
exit "$status"
