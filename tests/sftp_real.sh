#!/bin/sh
# sftp_real.sh: SFTP against OpenSSH's sshd (tests/sftp_real.c): the contract of stores, logins, host keys, broken uploads, readers
# beside writers. With --long also under ASan and UBSan, and longer.
# run.sh: waits slow
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
CC=${CC:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-sftp-XXXXXX") || exit 1
cleanup() {
    [ -z "${SSH_AGENT_PID:-}" ] || kill "$SSH_AGENT_PID" 2>/dev/null
    sh "$here/servers/sftp.sh" down "$work/server" >/dev/null 2>&1
    [ ! -d "$work/full" ] || umount "$work/full" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

. "$here/share.sh"
remote_there || exit 77
command -v sftp >/dev/null 2>&1 || { echo "no sftp (openssh-client)"; exit 77; }

# What the caller has must not decide a test.
unset COMPOSER_SFTP_KEY_FILE COMPOSER_SFTP_KNOWN_HOSTS_FILE SSH_AUTH_SOCK SSH_AGENT_PID
SFTP_EXTRA='MaxStartups 9:100:9' SFTP_PASSWORD_USER=1 SFTP_OWNER=$$ sh "$here/servers/sftp.sh" up "$work/server" >"$work/up" 2>&1
rc=$?
[ $rc = 0 ] || { cat "$work/up"; exit $rc; }
. "$work/server/env"
SFTP_SERVER=$work/server
export SFTP_SERVER
if command -v ssh-agent >/dev/null 2>&1; then
    eval "$(ssh-agent -s -a "$work/agent")" >/dev/null
    ssh-add -q "$SFTP_KEY" 2>/dev/null && SFTP_AGENT=$SSH_AUTH_SOCK && export SFTP_AGENT
    unset SSH_AUTH_SOCK
fi
if [ "$(id -u)" = 0 ] && mkdir "$work/full" && mount -t tmpfs -o size=1m tmpfs "$work/full" 2>/dev/null; then
    SFTP_FULL=$work/full
    export SFTP_FULL
else
    rmdir "$work/full" 2>/dev/null
fi

run() {
    $2 -std=gnu11 -g $3 "-DCKPT_TESTS_DIR=\"$here\"" "$here/sftp_real.c" -o "$work/$1" -lcmocka -lcurl -lcrypto -lpthread ||
        { echo "FAIL: it does not compile"; exit 1; }
    rm -rf "$SFTP_DATA"/* 2>/dev/null
    $4 "$work/$1" || status=1
}

status=0
run plain "$CC" -O0 ''
if [ "${CKPT_LONG:-0}" = 1 ] && command -v clang >/dev/null 2>&1; then
    runner=
    command -v setarch >/dev/null 2>&1 && setarch "$(uname -m)" -R true 2>/dev/null && runner="setarch $(uname -m) -R"
    # libssh2 1.10 copies overlapping memory where it is told to prefer RSA.
    echo interceptor_via_lib:libssh2 >"$work/suppressions"
    ASAN_OPTIONS=detect_leaks=1:suppressions=$work/suppressions
    export ASAN_OPTIONS
    run asan clang '-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all' "$runner"
fi
exit $status
