# net_clouds.sh: read by net_gs.sh, net_gs_hmac.sh, net_oci.sh, net_azure.sh, net_wandb.sh, net_uc.sh and net_mlflow_dbfs.sh. Behind a
# fault proxy their store goes through the table, storms and stalls of net_faults.c and net_kill.c's kills: 20, and 100 with CKPT_LONG=1.
# NET_WORDS: which of "kill table storm stall".
# run.sh: helper
. "$(dirname "$0")/net_setup.sh"
compile "$tests/fault/net_faults.c" net_faults -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread
compile "$tests/fault/net_kill.c" net_kill -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread
words=${NET_WORDS:-kill table storm stall}

# net_broken STORE URL [OPTIONS]: faults between us and the server there; OPTIONS are the fault proxy's: --json, of its errors.
net_broken() {
    NET_STORE=$1 NET_DIRECT=$2 NET_WORK=$work/$1-broken NET_LOG=$work/$1.broken
    mkdir -p "$NET_WORK"
    behind --small ${3:-} --log "$NET_LOG" "${NET_DIRECT##*:}"
    NET_ENDPOINT=http://127.0.0.1:$port NET_CONTROL=$control
    export NET_STORE NET_DIRECT NET_ENDPOINT NET_CONTROL NET_LOG NET_WORK
    for group in table 'storm stall'; do
        asked=
        for one in $group; do case " $words " in *" $one "*) asked="$asked $one" ;; esac; done
        faults_of $asked
    done
}

# net_killed STORE URL URI TEXT [KILLS]: kills of processes that upload to URI. What has TEXT in its line is slow, so that most kills meet it.
net_killed() {
    case " $words " in *' kill '*) ;; *) return 0 ;; esac
    NET_STORE=$1 NET_DIRECT=$2 NET_URI=$3 NET_LOG=$work/$1.killed NET_KILLS=${5:-20} NET_SECONDS=${NET_SECONDS:-0.8}
    [ "${CKPT_LONG:-0}" = 1 ] && NET_KILLS=$((NET_KILLS * 5))
    behind --log "$NET_LOG" "${NET_DIRECT##*:}"
    NET_ENDPOINT=http://127.0.0.1:$port
    export NET_STORE NET_URI NET_LOG NET_KILLS NET_SECONDS NET_DIRECT NET_ENDPOINT
    curl -s -o rule.log --noproxy '*' "http://127.0.0.1:$control/rate=40000000&n=-1&match=$4" || fail "no rule"
    TMPDIR=$work ./net_kill 2>kill.err || { failures=$((failures + 1)); tail -n 20 kill.err | cut -c 1-300; }
}
