# secrets_setup.sh: read by secrets.sh and secrets_clouds.sh: runs ./secrets many times side by side, keeps all that they say and leave, and
# searches it for the secrets. After fault/net_setup.sh.
# run.sh: helper
compile "$tests/secrets.c" secrets -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread
mkdir all

# run NAME [-u VARIABLE]... [VARIABLE=VALUE]... COMMAND...: side by side with the others; keeps what it says in all/NAME.
pids=
run() {
    name=$1
    shift
    mkdir -p "all/$name"
    SEC_DIR=$work/all/$name/dir env "$@" >"all/$name/said" 2>"all/$name/log" &
    pids="$pids $!"
}
settle() {
    for pid in $pids; do wait "$pid"; done
    pids=
}
# Was it what it should be? expect NAME WORD...
expect() {
    name=$1
    shift
    for word in "$@"; do
        grep -qF -- "$word" "all/$name/said" || { fail "$name: no '$word' in what it said" "all/$name/said"; return; }
    done
    pass "$name: $*"
}
# The secrets, one a line; all are random, so that none can be met by chance.
secret() { printf '%s-%s' "$1" "$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n')"; }

# search_all JOURNALS: nothing of the file "words" may stand in what was said or left. At least so many journals must be there.
search_all() {
    # The search finds what is there.
    printf 'x%sy\n' "$(head -n 1 words)" >control
    grep -qaFf words control || fail 'the search finds nothing'
    lines=$(cat all/*/log | wc -l)
    debug=$(cat all/*/log | grep -c '^log 0')
    [ "$debug" -gt 50 ] || fail "only $debug lines of the highest level were logged"
    journals=$(find all -name '*.upload' | wc -l)
    [ "$journals" -ge "$1" ] || fail "only $journals journals were kept"
    traces=$(find all -name events | wc -l)
    files=$(find all -type f | wc -l)
    if grep -raFof words all >found; then fail "secrets are in what was said or kept" found
    else
        pass "$(wc -l <words) secrets are in none of $files files: $lines log lines ($debug of the highest level), $journals journals, $traces traces"
    fi
}
