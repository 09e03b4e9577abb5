#!/bin/sh
# bench.sh: builds tools/bench.c in a temporary folder and runs it; the flags are those of bench.c (--quick, --only, --json, ...).
# With libcurl's and OpenSSL's headers there, the network's goals are measured too, against tests/servers/sink.c; for root also those over a
# distance (G21; in pieces lab-s3, lab-sftp, lab-down, lab-small), on a link of 20 ms that tests/servers/lab.sh makes.
# Peers that are not there are left out. As root `sh tools/bench.sh --install [flags]` has apt-get install them first.
peers="gcc libcurl4-openssl-dev libssl-dev python3-torch python3-numpy python3-boto3 awscli rclone openssh-server openssh-client curl fio zstd lz4 pigz
       radosgw ceph-mon ceph-osd ceph-common openssl bc util-linux golang-go golang-github-minio-minio-go-v7-dev"
set -eu
here=$(CDPATH= cd "$(dirname "$0")" && pwd -P)
servers=$here/../tests/servers
build=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-bench-build-XXXXXX")
trap 'rm -rf "$build"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
CC=${CC:-cc}
if [ "${1:-}" = --install ]; then
    shift
    # One by one: what cannot be had does not keep the others out.
    apt-get -q update >/dev/null 2>&1 || true
    for p in $peers; do
        DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends install "$p" >/dev/null 2>&1 || echo "bench.sh: no package $p" >&2
    done
fi
if printf '#include <curl/curl.h>\n#include <openssl/evp.h>\n' | "$CC" -E -x c - >/dev/null 2>&1; then
    "$CC" -O2 -DBENCH_NET -o "$build/bench" "$here/bench.c" -lcurl -lcrypto -lpthread -lm
    "$CC" -O2 -pthread -o "$build/sink" "$servers/sink.c" -lcrypto
    "$CC" -O2 -pthread -DTLS -o "$build/sink_tls" "$servers/sink.c" -lssl -lcrypto
    # minio-go from Debian's sources: golang-go golang-github-minio-minio-go-v7-dev
    if command -v go >/dev/null 2>&1 && [ -d /usr/share/gocode/src/github.com/minio/minio-go ]; then
        mkdir "$build/go"
        cp "$here/bench_peer.go" "$build/go/main.go"
        (cd "$build/go" && GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$build/gocache" GOFLAGS= go build -o "$build/miniogo" main.go) ||
            echo "bench.sh: minio-go does not build: its rows are left out" >&2
    fi
else
    echo "bench.sh: no libcurl or OpenSSL headers: the network's goals are left out" >&2
    "$CC" -O2 -o "$build/bench" "$here/bench.c" -lpthread -lm
fi
# It is behind this script, so that an interrupt ends it in the middle of a peer as well; what it made goes with it.
status=0
CKPT_BENCH_BUILD=$build CKPT_BENCH_SERVERS=$servers "$build/bench" "$@" &
bench=$!
trap 'kill "$bench" 2>/dev/null' INT TERM HUP
wait "$bench" || status=$?
[ "$status" -le 128 ] || wait "$bench" 2>/dev/null || true
exit "$status"
