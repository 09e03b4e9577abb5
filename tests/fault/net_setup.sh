# net_setup.sh: read by the tests that need servers: a folder of its own, which is left at the end with all that was started.
# run.sh: helper
#
# Sets root, tests, work (the current folder then), failures; pass NAME, fail NAME [LOG], check NAME [LOG]; compile SOURCE PROGRAM [FLAG]...;
# gateway [http|both]: RGW with a bucket "net"; sftp_server: sshd; behind ARG...: a fault proxy, sets port and control; sink_server ARG...: sets port;
# gs_server, oci_server, azure_server, wandb_server, databricks_server: the others of net_stores.h, set port and the credentials.
set -u
root=${CKPT_ROOT:-$(cd "$(dirname "$0")/.." && pwd -P)}
[ -f "$root/ckpt.h" ] || root=$(cd "$root/.." && pwd -P)
tests=$root/tests
# It is in memory where there is room: other jobs keep the disk busy, for seconds at a time, and here it is the network that is slow.
. "$tests/share.sh"
place=$(memory 3000) || place=${TMPDIR:-/tmp}
work=$(mktemp -d "$place/ckpt-net-XXXXXX") || exit 1
work=$(cd "$work" && pwd -P)
started=
leave() {
    for pid in $started; do kill "$pid" 2>/dev/null; done
    for dir in "$work"/rgw*; do [ -d "$dir" ] && sh "$tests/servers/rgw.sh" down "$dir"; done
    for dir in "$work"/azurite*; do [ -d "$dir" ] && sh "$tests/servers/azurite.sh" down "$dir"; done
    for dir in "$work"/sftp*; do [ -d "$dir" ] && sh "$tests/servers/sftp.sh" down "$dir"; done
    [ -n "${CKPT_NET_KEEP:-}" ] && { echo "left: $work"; return; }
    chmod -R u+rwx "$work" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$work" || exit 1
failures=0
pass() { echo "PASS: $1"; }
fail() {
    echo "FAIL: $1"
    [ $# -lt 2 ] || grep -v '^\[ RUN \|^\[       OK' "$2" | tail -n 15 | cut -c 1-400 | sed 's/^/    /'
    failures=$((failures + 1))
}

compile() {
    source=$1 file=$2
    shift 2
    built "$file" $quick -std=gnu11 -g "-DCKPT_TESTS_DIR=\"$tests\"" "$source" "$@" >compile.log 2>&1 && return
    echo "FAIL: $(basename "$source") does not compile"
    head -n 12 compile.log | cut -c 1-300
    exit 1
}
# The program of all stores.
compile_stores() { compile "$tests/stores.c" store -DCKPT_STATIC= -lcmocka -lcurl -lcrypto -lpthread; }
# check NAME [LOG]: passes when the last command did.
check() { if [ $? = 0 ]; then pass "$1"; else fail "$@"; fi; }
for header in curl/curl.h openssl/evp.h; do
    echo "#include <$header>" | ${CC:-cc} -E -x c - >/dev/null 2>&1 ||
        { echo "no libcurl or OpenSSL to compile with (libcurl4-openssl-dev, libssl-dev)"; exit 77; }
done

# Nothing of the user's own may take part.
unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_REGION AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 S3_CANNED_ACL \
    AWS_REQUEST_CHECKSUM_CALCULATION GCS_KEY GCS_SECRET STORAGE_EMULATOR_HOST CLOUDSDK_CONFIG GOOGLE_CLOUD_QUOTA_PROJECT GCE_METADATA_HOST \
    GCE_METADATA_ROOT AZURE_STORAGE_ACCOUNT AZURE_STORAGE_KEY AZURE_STORAGE_CONNECTION_STRING AZURE_STORAGE_SAS_TOKEN \
    AZURE_STORAGE_SERVICE_ENDPOINT http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY COMPOSER_LOCAL_RANK_STAGGER_SECONDS
for v in $(env | sed -n 's/^\(OCI_[A-Z_0-9]*\)=.*/\1/p'); do unset "$v"; done
CKPT_NPM_CACHE=${CKPT_NPM_CACHE:-${HOME:-/tmp}/.cache/ckpt-tests}
export CKPT_NPM_CACHE
HOME=$work AWS_CONFIG_FILE=$work/none AWS_SHARED_CREDENTIALS_FILE=$work/none AWS_EC2_METADATA_DISABLED=true AWS_DEFAULT_REGION=us-east-1
export HOME AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_EC2_METADATA_DISABLED AWS_DEFAULT_REGION

# Groups of net_faults.c, side by side.
faults_of() {
    pids=
    for one in "$@"; do
        ./net_faults "$one" >"$one.log" 2>"$one.err" &
        pids="$pids $!:$one"
    done
    for p in $pids; do
        wait "${p%%:*}"
        rc=$?
        one=${p##*:}
        cat "$one.log"
        [ $rc -le 1 ] || fail "$one: status $rc" "$one.err"
        [ $rc = 0 ] || { failures=$((failures + 1)); tail -n 30 "$one.err" | cut -c 1-300; }
    done
}

gateway() {
    sh "$tests/servers/rgw.sh" up "$work/rgw" "${1:-http}" || exit $?
    . "$work/rgw/env"
    sh "$tests/servers/rgw.sh" bucket "$work/rgw" net || exit 1
    AWS_ACCESS_KEY_ID=$RGW_KEY AWS_SECRET_ACCESS_KEY=$RGW_SECRET
    export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
}

# Waits for the first line of a server; words go to $1 and $2.
ports_of() {
    i=0
    until [ -s "$1" ]; do
        i=$((i + 1))
        [ $i -lt 200 ] || { echo "FAIL: a server does not start"; exit 1; }
        sleep 0.02
    done
    read -r port control <"$1"
}
# sshd, and may this user log in to it? 1: no, and why is the last line of sftp.log.
sftp_server() {
    sh "$tests/servers/sftp.sh" up "$work/sftp" >sftp.log 2>&1 || return 1
    . "$work/sftp/env"
    command -v sftp >/dev/null 2>&1 || return 0
    echo pwd | sftp -q -b - -F none -i "$SFTP_KEY" -o UserKnownHostsFile="$SFTP_KNOWN" -o IdentitiesOnly=yes -P "$SFTP_PORT" \
        "$SFTP_USER@127.0.0.1" >sftp.try 2>&1 && return 0
    echo "$SFTP_USER may not log in here: $(tail -n 1 sftp.try)" >>sftp.log
    return 1
}
servers=0
behind() {
    [ -x faultproxy ] || compile "$tests/servers/faultproxy.c" faultproxy -O2 -pthread
    servers=$((servers + 1))
    ./faultproxy "$@" >server.$servers 2>&1 &
    started="$started $!"
    ports_of server.$servers
}
sink_server() {
    [ -x sink ] || compile "$tests/servers/sink.c" sink -O2 -pthread -lcrypto
    servers=$((servers + 1))
    ./sink "$@" >server.$servers 2>&1 &
    started="$started $!"
    ports_of server.$servers
}

# A server of node's, FILE in $work/NAME: its port is in a file of that name.
node_server() {
    command -v node >/dev/null 2>&1 || { echo "no node to run servers/$2 with"; exit 77; }
    mkdir -p "$work/$1"
    node "$tests/servers/$2" "$work/$1" >"$1.log" 2>&1 &
    started="$started $!"
    i=0
    until [ -s "$work/$1/port" ]; do
        i=$((i + 1))
        [ $i -lt 200 ] || { echo "FAIL: $2 does not start"; tail -n 5 "$1.log"; exit 1; }
        sleep 0.05
    done
    port=$(cat "$work/$1/port")
}
gs_server() {
    node_server gs fake-gcs.js
    GOOGLE_APPLICATION_CREDENTIALS=$work/gs/sa.json
    export GOOGLE_APPLICATION_CREDENTIALS
}
# killed_when CONDITION SECONDS COMMAND...: runs it, and kills it so long after the condition holds, or after 10 seconds without. The server's
# faults are over then. control, asked: of the script. goes_on URI STAGING NAME FILE: the next process brings it up all the same.
killed_when() {
    condition=$1 pause=$2
    shift 2
    "$@" >out.log 2>err.log &
    pid=$!
    i=0
    until eval "$condition"; do i=$((i + 1)); [ $i -lt 200 ] || break; sleep 0.05; done
    sleep "$pause"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    cat err.log >>all.log
    control '{"clear":true,"faults":[]}' >/dev/null
}
puts() { asked | tr '"' '\n' | grep -c "${1:-CLOUD PUT}"; }
goes_on() {
    ./store upload "$1" '' '' "$2" >out.log 2>err.log && ./store get "$1" "$3" back >>out.log 2>>err.log && cmp -s "$4" back
    went=$?
    cat err.log >>all.log
    return $went
}
# make_machine FOLDER TENANCY: the certificate of an instance with its key, the one between, and the root that the service trusts.
make_machine() {
    mkdir -p "$1"
    for c in root intermediate cert; do openssl genrsa -out "$1/$c.key" 2048 2>/dev/null; done
    { openssl req -new -x509 -days 2 -key "$1/root.key" -subj '/CN=Fake Root' -out "$1/root.pem" &&
        openssl req -new -key "$1/intermediate.key" -subj '/CN=Fake Intermediate' -out "$1/intermediate.csr" &&
        echo 'basicConstraints=critical,CA:TRUE' >"$1/ca.ext" &&
        openssl x509 -req -days 2 -in "$1/intermediate.csr" -CA "$1/root.pem" -CAkey "$1/root.key" -CAcreateserial -extfile "$1/ca.ext" -out "$1/intermediate.pem" &&
        openssl req -new -key "$1/cert.key" -subj "/OU=opc-certtype:instance/OU=opc-instance:ocid1.instance.oc1..fake/OU=opc-tenant:$2/CN=ocid1.instance.oc1..fake" \
            -out "$1/cert.csr" &&
        openssl x509 -req -days 2 -in "$1/cert.csr" -CA "$1/intermediate.pem" -CAkey "$1/intermediate.key" -CAcreateserial -out "$1/cert.pem"
    } >"$1/log" 2>&1 || { cat "$1/log"; exit 1; }
    mv "$1/cert.key" "$1/key.pem"
}
oci_server() {
    mkdir -p "$work/oci"
    openssl genrsa -out "$work/oci/key.pem" 2048 2>/dev/null || { echo "openssl makes no keys"; exit 77; }
    OCI_CLI_TENANCY=ocid1.tenancy.oc1..fake OCI_CLI_USER=ocid1.user.oc1..fake OCI_CLI_KEY_FILE=$work/oci/key.pem OCI_CLI_REGION=us-ashburn-1
    OCI_CLI_FINGERPRINT=$(openssl rsa -in "$OCI_CLI_KEY_FILE" -pubout -outform DER 2>/dev/null | openssl md5 -c | sed 's/.*= *//')
    export OCI_CLI_TENANCY OCI_CLI_USER OCI_CLI_KEY_FILE OCI_CLI_FINGERPRINT OCI_CLI_REGION
    printf '{"%s": "%s"}' "$OCI_CLI_TENANCY/$OCI_CLI_USER/$OCI_CLI_FINGERPRINT" \
        "$(openssl rsa -in "$OCI_CLI_KEY_FILE" -pubout 2>/dev/null | awk '{ printf "%s\\n", $0 }')" >"$work/oci/keys.json"
    make_machine "$work/oci/machine" "$OCI_CLI_TENANCY"
    node_server oci fake-oci.js
}
wandb_server() {
    unset WANDB_RUN_ID WANDB_BASE_URL NETRC
    node_server wandb fake-wandb.js
    . "$work/wandb/env"
    unset WANDB_BASE_URL
    export WANDB_API_KEY
}
databricks_server() {
    for v in $(env | sed -n 's/^\(MLFLOW_[A-Z_]*\|DATABRICKS_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
    node_server databricks fake-databricks.js
    . "$work/databricks/env"
    DATABRICKS_TOKEN=$FAKE_TOKEN MLFLOW_TRACKING_USERNAME=$FAKE_USER MLFLOW_TRACKING_PASSWORD=$FAKE_PASSWORD
    export DATABRICKS_TOKEN MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD
    curl -s -o databricks.door --noproxy '*' -d '{"one_door":true}' "http://127.0.0.1:$port/_control" || fail "no door"
}
azure_server() {
    sh "$tests/servers/azurite.sh" up "$work/azurite" || exit $?
    . "$work/azurite/env"
    port=$AZURITE_PORT AZURE_ACCOUNT_NAME=$AZURITE_ACCOUNT AZURE_ACCOUNT_ACCESS_KEY=$AZURITE_KEY
    export AZURE_ACCOUNT_NAME AZURE_ACCOUNT_ACCESS_KEY
    node -e '
const { BlobServiceClient, StorageSharedKeyCredential } = require(process.argv[1] + "/node_modules/@azure/storage-blob"), e = process.env;
new BlobServiceClient(`http://127.0.0.1:${process.argv[2]}/${e.AZURE_ACCOUNT_NAME}`, new StorageSharedKeyCredential(e.AZURE_ACCOUNT_NAME,
    e.AZURE_ACCOUNT_ACCESS_KEY)).createContainer("net").catch((x) => { console.log(x.message); process.exit(1); });
' "$AZURITE_NODE" "$port" >azure.log 2>&1 || { echo "FAIL: no container"; tail -n 3 azure.log; exit 1; }
}
