#!/bin/sh
# Proves what a file:// store does on a disk that is full. The file system is a small tmpfs in a mount namespace of its own; without the right
# to make one the test is skipped.
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/../.." && pwd -P)}
if [ "${1:-}" = --inside ]; then
    mkdir -p "$2/full" && mount -t tmpfs -o size=8m none "$2/full" 2>/dev/null || exit 77
    exec "$2/store_disk" "$2/full"
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-store-disk.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
${CC:-cc} -std=gnu99 -g -O0 -DCKPT_NO_REMOTE -o "$dir/store_disk" "$root/tests/fault/store_disk.c" -lcmocka -lpthread || { echo "FAIL: build"; exit 1; }
for how in "unshare -m" "unshare -rm"; do
    $how true 2>/dev/null || continue
    $how sh "$0" --inside "$dir"
    case $? in
        0) echo "PASS: a full disk"; exit 0 ;;
        77) ;;
        *) echo "FAIL: a full disk"; exit 1 ;;
    esac
done
echo "no right to mount a tmpfs here"
exit 77
