#!/bin/sh
# Proves what happens on real file systems that are full, out of inodes or read-only, and with a folder where a file should be. The file
# systems are small tmpfs in a mount namespace of its own; without the right to make one those parts are skipped.
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/../.." && pwd -P)}
if [ "${1:-}" = --inside ]; then
    dir=$2
    cd "$dir" || exit 1
    status=0
    try() { if ./full_disk "$2" "$3"; then echo "PASS: $1"; else echo "FAIL: $1"; status=1; fi; }
    mkdir -p full inodes ro
    if mount -t tmpfs -o size=1536k none full 2>/dev/null; then
        try "a full disk" "$dir/full" full
        mount -t tmpfs -o size=8m,nr_inodes=64 none inodes && try "64 inodes" "$dir/inodes" inodes
        mount -t tmpfs -o size=8m none ro && ./full_disk "$dir/ro" prepare && mount -o remount,ro none ro &&
            try "a read-only file system" "$dir/ro" readonly
    else
        for n in "a full disk" "64 inodes" "a read-only file system"; do echo "SKIP: $n: no right to mount a tmpfs here"; done
    fi
    exit $status
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-disk.XXXXXX") || exit 1
trap 'chmod -R u+w "$dir" 2>/dev/null; rm -rf "$dir"' EXIT
${CC:-cc} -std=gnu99 -g -O0 -DCKPT_NO_REMOTE -o "$dir/full_disk" "$root/tests/fault/full_disk.c" -lcmocka -lpthread || { echo "FAIL: build"; exit 1; }
status=0
mkdir "$dir/way"
if (cd "$dir" && ./full_disk "$dir/way" folder); then echo "PASS: a folder in the way"; else echo "FAIL: a folder in the way"; status=1; fi
mkdir "$dir/plain"
if [ "$(id -u)" != 0 ]; then
    (cd "$dir" && ./full_disk "$dir/plain" prepare) && chmod -w "$dir/plain" "$dir/plain/run"
    if (cd "$dir" && ./full_disk "$dir/plain" readonly); then echo "PASS: a read-only folder"; else echo "FAIL: a read-only folder"; status=1; fi
else
    echo "SKIP: a read-only folder: root may write anywhere (the read-only file system stands for it)"
fi
for how in "unshare -m" "unshare -rm"; do
    if $how true 2>/dev/null; then
        $how sh "$0" --inside "$dir" || status=1
        exit $status
    fi
done
for n in "a full disk" "64 inodes" "a read-only file system"; do echo "SKIP: $n: no right to make a mount namespace here"; done
exit $status
