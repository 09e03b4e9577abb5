#!/bin/sh
# sftp.sh: a throw-away SFTP server for tests: OpenSSH's sshd with keys of its own, nothing of the machine's is used or changed.
# run.sh: helper
#
#   sh sftp.sh up DIR         starts one on a free loopback port; DIR must not exist or be empty
#   sh sftp.sh down DIR       stops exactly the processes that `up` started; the files stay
#   sh sftp.sh kill DIR       kill -9 of the server and its sessions: what was stored stays
#   sh sftp.sh sessions DIR   kill -9 of the sessions alone
#   sh sftp.sh restart DIR    starts it again on the same port
#   sh sftp.sh freeze DIR     stops the server and its sessions where they are (SIGSTOP)
#   sh sftp.sh thaw DIR       and lets them go on
#
# DIR/env is to be sourced: SFTP_HOST, SFTP_PORT, SFTP_USER, SFTP_DATA (an empty folder for the test's files), SFTP_KNOWN (its host
# keys), SFTP_KNOWN_ED25519, SFTP_KNOWN_ECDSA, SFTP_KNOWN_RSA (one each), SFTP_KNOWN_HASHED (hashed names, other hosts first),
# SFTP_KNOWN_WRONG (a key that is not the host's), SFTP_KEY (ed25519), SFTP_KEY_PASS (with the pass phrase in SFTP_PASS_PHRASE),
# SFTP_KEY_ECDSA, SFTP_KEY_RSA, SFTP_KEY_OTHER (not authorised), and with SFTP_PASSWORD_USER=1 given to `up` by root:
# SFTP_PASS_USER, SFTP_PASSWORD: a user for the time until `down`. SFTP_EXTRA: lines for sshd_config ('MaxStartups 2:100:2').
# SFTP_ADDRESS: where it listens, default 127.0.0.1.
# SFTP_OWNER: the process that the server outlives by a second at most; default the caller, 0: nobody, it stays until `down`.
# Status 77 and the reason on the last line when the packages are missing. Any user may run it, several at once.
set -u
umask 022

say() { echo "sftp.sh: $*"; }
fail() { say "$*" >&2; exit 1; }

alive() { [ -d "/proc/$1" ] && [ "$(sed 's/^.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" != Z ]; }
daemon() { cat "$DIR/pid" 2>/dev/null; }

# The processes below one, which sshd puts into sessions of their own.
below() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/ (.*) / /' | awk -v top="$1" '
        { parent[$1] = $3 }
        END {
            for (p in parent) {
                for (q = parent[p]; q in parent && q != top; q = parent[q]) { }
                if (q == top) print p
            }
        }'
}

signal() {
    name=$1
    shift
    for p in "$@"; do kill "-$name" "$p" 2>/dev/null; done
}

gone() {
    for p in "$@"; do
        while alive "$p"; do sleep 0.02; done
    done
}

stop_all() {
    pid=$(daemon)
    [ -n "$pid" ] || return 0
    # Stopped first: no session can start while they are being counted.
    signal STOP "$pid"
    sessions=$(below "$pid")
    signal KILL "$pid" $sessions
    signal CONT "$pid" $sessions
    gone "$pid" $sessions
    rm -f "$DIR/pid"
}

port() {
    while :; do
        p=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000))
        hex=$(printf ':%04X ' "$p")
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qi "$hex" || break
    done
    echo "$p"
}

new_key() { ssh-keygen -q -C '' -N "$2" -f "$1" -t "$3" ${4:+-b "$4"} ${5:+-m "$5"} </dev/null; }

keys() {
    new_key host_ed25519 '' ed25519 && new_key host_ecdsa '' ecdsa 256 PEM && new_key host_rsa '' rsa 2048 PEM &&
        new_key key_ed25519 '' ed25519 && new_key key_pass 'pass phrase' ed25519 && new_key key_ecdsa '' ecdsa 256 PEM &&
        new_key key_rsa '' rsa 2048 && new_key key_other '' ed25519 || return 1
    cat key_ed25519.pub key_pass.pub key_ecdsa.pub key_rsa.pub >authorized_keys
    chmod 600 authorized_keys
}

# "[ADDRESS]:PORT TYPE KEY"
known() { echo "[$address]:$port $(cut -d ' ' -f 1,2 "$1.pub")"; }

known_files() {
    for k in ed25519 ecdsa rsa; do known "host_$k" >"known_$k"; done
    cat known_ed25519 known_ecdsa known_rsa >known
    known key_other >known_wrong
    { echo "other.example $(cut -d ' ' -f 1,2 host_rsa.pub)"; cat known_ed25519; } >known_hashed
    ssh-keygen -q -H -f known_hashed >/dev/null 2>&1
    rm -f known_hashed.old
}

configure() {
    cat <<CONF
Port $port
ListenAddress $address
HostKey "$DIR/host_ed25519"
HostKey "$DIR/host_ecdsa"
HostKey "$DIR/host_rsa"
PidFile none
AuthorizedKeysFile "$DIR/authorized_keys"
StrictModes no
UsePAM no
PasswordAuthentication $([ -n "$pass_user" ] && echo yes || echo no)
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
ForceCommand internal-sftp
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
UseDNS no
MaxSessions 100
LogLevel VERBOSE
CONF
    # The first value that sshd reads counts.
    printf '%s\n' "${SFTP_EXTRA:-}"
    echo 'MaxStartups 100:30:200'
    # From OpenSSH 9.8 on an address that was refused is kept out for a while: here that of all tests.
    "$sshd" -t -f /dev/null -o PerSourcePenalties=no 2>&1 | grep -q 'Bad configuration' || echo 'PerSourcePenalties no'
}

# Its own name for the address, so that no other server's answer on the port is taken for ours.
answers() {
    ssh-keyscan -T 2 -t ed25519 -p "$port" "$address" 2>/dev/null | grep -qF "$(cut -d ' ' -f 2 "$DIR/host_ed25519.pub")"
}

start() {
    configure >"$DIR/sshd_config"
    setsid "$sshd" -D -e -f "$DIR/sshd_config" >>"$DIR/log" 2>&1 </dev/null &
    echo $! >"$DIR/pid"
    i=0
    until answers; do
        alive "$(daemon)" || return 1
        i=$((i + 1))
        [ $i -lt 100 ] || return 1
        sleep 0.05
    done
}

watch_owner() {
    while alive "$1"; do
        sleep 1
        [ -f "$DIR/pid" ] || return
    done
    sh "$self" down "$DIR"
}

find_sshd() {
    sshd=$(command -v sshd || ls /usr/sbin/sshd /usr/local/sbin/sshd 2>/dev/null | head -n 1)
    missing=
    [ -n "$sshd" ] || missing="$missing openssh-server"
    command -v ssh-keygen >/dev/null 2>&1 && command -v ssh-keyscan >/dev/null 2>&1 || missing="$missing openssh-client"
    command -v setsid >/dev/null 2>&1 || missing="$missing util-linux"
    [ -d /proc/net ] || missing="$missing /proc"
    [ -z "$missing" ] || { say "no OpenSSH server: missing$missing"; exit 77; }
    # Where it separates its privileges; only root's sshd does.
    [ "$(id -u)" != 0 ] || [ -d /run/sshd ] || mkdir -p /run/sshd
}

password_user() {
    pass_user=
    [ "${SFTP_PASSWORD_USER:-0}" = 1 ] && [ "$(id -u)" = 0 ] && command -v useradd >/dev/null 2>&1 || return 0
    pass_user=ckpt$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    password="word with '\"\\ $pass_user"
    useradd -M -N -d /nonexistent -s /usr/sbin/nologin "$pass_user" && echo "$pass_user:$password" | chpasswd && return 0
    userdel "$pass_user" >/dev/null 2>&1
    pass_user=
}

up() {
    find_sshd
    [ ! -f "$DIR/pid" ] || fail "$DIR is in use: run 'sftp.sh down $DIR' first"
    cd "$DIR" || exit 1
    mkdir -p data
    : >log
    keys >>log 2>&1 || fail "no keys: $(tail -n 1 log)"
    password_user >>log 2>&1
    [ -z "$pass_user" ] || echo "$pass_user" >user
    tries=0
    port=$(port)
    until start; do
        stop_all
        tries=$((tries + 1))
        [ $tries -lt 5 ] || fail "it does not start: $(tail -n 1 "$DIR/log")"
        port=$(port)
    done
    known_files
    cat >env <<ENV
SFTP_HOST=$address SFTP_PORT=$port SFTP_USER=$(id -un)
SFTP_DATA='$DIR/data'
SFTP_KNOWN='$DIR/known'
SFTP_KNOWN_ED25519='$DIR/known_ed25519'
SFTP_KNOWN_ECDSA='$DIR/known_ecdsa'
SFTP_KNOWN_RSA='$DIR/known_rsa'
SFTP_KNOWN_HASHED='$DIR/known_hashed'
SFTP_KNOWN_WRONG='$DIR/known_wrong'
SFTP_KEY='$DIR/key_ed25519'
SFTP_KEY_PASS='$DIR/key_pass'
SFTP_PASS_PHRASE='pass phrase'
SFTP_KEY_ECDSA='$DIR/key_ecdsa'
SFTP_KEY_RSA='$DIR/key_rsa'
SFTP_KEY_OTHER='$DIR/key_other'
SFTP_PASS_USER=$pass_user
SFTP_PASSWORD="word with '\\"\\\\ $pass_user"
export SFTP_HOST SFTP_PORT SFTP_USER SFTP_DATA SFTP_KNOWN SFTP_KNOWN_ED25519 SFTP_KNOWN_ECDSA SFTP_KNOWN_RSA SFTP_KNOWN_HASHED
export SFTP_KNOWN_WRONG SFTP_KEY SFTP_KEY_PASS SFTP_PASS_PHRASE SFTP_KEY_ECDSA SFTP_KEY_RSA SFTP_KEY_OTHER SFTP_PASS_USER SFTP_PASSWORD
ENV
    [ "$owner" = 0 ] || watch_owner "$owner" >/dev/null 2>&1 </dev/null &
}

down() {
    stop_all
    [ ! -f "$DIR/user" ] || userdel "$(cat "$DIR/user")" >/dev/null 2>&1
    rm -f "$DIR/user"
}

command=${1:-}
[ -n "${2:-}" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
self=$(cd "$(dirname "$0")" && pwd -P)/$(basename "$0")
mkdir -p "$2" && DIR=$(cd "$2" && pwd -P) || exit 1
owner=${SFTP_OWNER:-$PPID} address=${SFTP_ADDRESS:-127.0.0.1}
case $command in
    up) up ;;
    down) down ;;
    kill) stop_all ;;
    sessions)
        all=$(below "$(daemon)")
        signal KILL $all
        gone $all ;;
    restart)
        [ -f "$DIR/env" ] && . "$DIR/env" || fail "nothing runs in $DIR"
        find_sshd
        stop_all
        address=$SFTP_HOST port=$SFTP_PORT pass_user=$SFTP_PASS_USER
        i=0
        until start; do
            i=$((i + 1))
            [ $i -lt 20 ] || fail "it does not start again: $(tail -n 1 "$DIR/log")"
            sleep 0.1
        done ;;
    freeze) pid=$(daemon); signal STOP "$pid" $(below "$pid") ;;
    thaw) pid=$(daemon); signal CONT "$pid" $(below "$pid") ;;
    *) fail "what is '$command'?" ;;
esac
