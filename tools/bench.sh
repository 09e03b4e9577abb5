#!/bin/sh
# bench.sh: builds tools/bench.c in a temporary folder and runs it; the flags are those of bench.c (--quick, --only, --json, ...).
# With libcurl's and OpenSSL's headers there, the network's goals are measured too, against tests/servers/sink.c.
set -eu
here=$(CDPATH= cd "$(dirname "$0")" && pwd -P)
servers=$here/../tests/servers
build=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-bench-build-XXXXXX")
trap 'rm -rf "$build"' EXIT INT TERM
CC=${CC:-cc}
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
status=0
CKPT_BENCH_BUILD=$build CKPT_BENCH_SERVERS=$servers "$build/bench" "$@" || status=$?
exit "$status"
