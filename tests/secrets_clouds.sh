#!/bin/sh
# secrets_clouds.sh: what secrets.sh proves of S3 and SFTP, of gs://, oci://, azure://, Unity Catalog, MLflow and runs of Databricks: no key, token,
# SAS, signature (of our requests, and of the addresses that a workspace signs) or assertion gets into a log line, sentence, journal or trace, and
# the address of one of Google's sessions (behind Databricks too), or the name of one of Databricks', into nothing but the journal, which nobody
# else may read; redirects are not followed. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
. "$tests/secrets_setup.sh"
: >words
tell() { curl -s -o tell.log --noproxy '*' "http://127.0.0.1:$control/$1" && grep -q '^ok' tell.log || fail "the proxy: $1" tell.log; }

# cloud NAME URI [OPTIONS]: what all stores are put through at their server, $port. OPTIONS are the fault proxy's.
cloud() {
    url=http://127.0.0.1:$port
    behind ${3:-} --log "$work/$1.requests" "$port"
    run "$1-good" SEC_FRESH=1 SEC_ENDPOINT="$url" ./secrets upload "$2"
    run "$1-saver" SEC_ENDPOINT="$url" ./secrets save "$2/saver"
    for kind in refused reset; do
        case $kind in refused) tell "status=403&code=forbidden&n=-1&match=-$kind" ;; *) tell "rst=900&n=-1&match=-$kind" ;; esac
        run "$1-$kind" SEC_ENDPOINT="http://127.0.0.1:$port" ./secrets upload "$(echo "$2" | sed "s,\$,-$kind,")"
    done
    tell 'rate=2000000&n=-1&match=-killed'
    run "$1-killed" SEC_FRESH=1 SEC_DIE=1 SEC_ENDPOINT="http://127.0.0.1:$port" ./secrets upload "$2-killed"
    run "$1-echo" SEC_FRESH=1 SEC_ATTEMPTS=1 ./secrets echo "$2"
    run "$1-redirect" SEC_FRESH=1 SEC_ATTEMPTS=1 ./secrets redirect "$2"
}
# What the echo server of a cloud saw of credentials: the last word of the Authorization headers.
seen() {
    grep -ih '^authorization:' "all/$1-echo/dir/heads" | tr -d '\r' | sed -n "$2" | sort -u >seen
    [ "$(wc -l <seen)" -ge "$3" ] || fail "$1: the echo server saw no credentials"
    cat seen >>words
}

gs_server
# Names of buckets are in all addresses of their requests.
cloud gs gs://ckpt-any-secrets --json
printf '%s\n' ya29.fake- 'BEGIN PRIVATE KEY' GOCSPX 1//fake >>words
tr -d '\n' <gs/sa.json | sed 's/.*"private_key": "\([^"]*\)".*/\1/; s/\\n/ /g' | cut -d ' ' -f 5-6 | tr ' ' '\n' >>words
for kind in user external-file external-url impersonated; do
    run "gs-$kind" GOOGLE_APPLICATION_CREDENTIALS="$work/gs/$kind.json" SEC_ENDPOINT="$url" ./secrets upload "gs://ckpt-any-secrets/by-$kind"
done
sed 's/fake-key-1/other/' gs/sa.json >other.json
run gs-unknown GOOGLE_APPLICATION_CREDENTIALS="$work/other.json" SEC_ENDPOINT="$url" ./secrets upload gs://ckpt-any-secrets/by
wrong_subject=$(secret wrong-subject-token)
echo "$wrong_subject" >wrong.subject
sed "s,$work/gs/subject,$work/wrong.subject," gs/external-file.json >wrong.json
run gs-wrong GOOGLE_APPLICATION_CREDENTIALS="$work/wrong.json" SEC_ENDPOINT="$url" ./secrets upload gs://ckpt-any-secrets/by
explicit=$(secret explicit-bearer/Token+)
run gs-explicit SEC_EXPLICIT= SEC_ENDPOINT="$url" GCS_KEY=GOOGEXAMPLE GCS_SECRET="$explicit" ./secrets upload gs://ckpt-any-secrets/by
printf '%s\n' "$wrong_subject" "$explicit" >>words
cat gs/subject >>words

oci_server
oci_port=$port
cloud oci oci://any-secrets --json
sed -n 3,5p oci/key.pem >>words
phrase=$(secret phrase) oci_token=$(secret token).$(secret of).$(secret session)
openssl rsa -in oci/key.pem -aes256 -passout "pass:$phrase" -out locked.pem 2>/dev/null
run oci-locked OCI_CLI_KEY_FILE="$work/locked.pem" OCI_CLI_PASSPHRASE="$phrase" SEC_ENDPOINT="$url" ./secrets upload oci://any-secrets/locked
run oci-phrase OCI_CLI_KEY_FILE="$work/locked.pem" OCI_CLI_PASSPHRASE="wrong$phrase" SEC_ENDPOINT="$url" ./secrets upload oci://any-secrets/by
echo "$oci_token" >oci.token
printf '[DEFAULT]\nkey_file=%s/oci/key.pem\ntenancy=%s\nregion=us-ashburn-1\nsecurity_token_file=%s/oci.token\n' "$work" "$OCI_CLI_TENANCY" "$work" >oci.config
run oci-token -u OCI_CLI_USER -u OCI_CLI_KEY_FILE -u OCI_CLI_FINGERPRINT -u OCI_CLI_TENANCY -u OCI_CLI_REGION OCI_CONFIG_FILE="$work/oci.config" \
    SEC_ENDPOINT="$url" ./secrets upload oci://any-secrets/by
run oci-instance OCI_CLI_AUTH=instance_principal OCI_METADATA_BASE_URL="$url/opc/v2" OCI_SDK_AUTH_CLIENT_REGION_URL="$url" SEC_ENDPOINT="$url" \
    ./secrets upload oci://any-secrets/by
sed -n 3,5p oci/machine/key.pem >>words
printf '%s\n' "$phrase" "$oci_token" 'BEGIN RSA' 'BEGIN ENCRYPTED' >>words

clouds='gs oci'
if (azure_server) >azurite.log 2>&1; then
    . "$work/azurite/env"
    port=$AZURITE_PORT AZURE_ACCOUNT_NAME=$AZURITE_ACCOUNT AZURE_ACCOUNT_ACCESS_KEY=$AZURITE_KEY
    export AZURE_ACCOUNT_NAME AZURE_ACCOUNT_ACCESS_KEY
    clouds="$clouds azure"
    cloud azure azure://net/secrets
    wrong_key=$(secret wrong-key-of-27-bytes | cut -c 1-27 | tr -d "\n" | base64) wrong_sig=$(secret wrongsignature)
    sas=$(node -e '
const b = require(process.argv[1] + "/node_modules/@azure/storage-blob"), e = process.env;
const c = new b.ContainerClient(`http://127.0.0.1:${process.argv[2]}/${e.AZURE_ACCOUNT_NAME}/net`, new b.StorageSharedKeyCredential(e.AZURE_ACCOUNT_NAME, e.AZURE_ACCOUNT_ACCESS_KEY));
c.generateSasUrl({ permissions: b.ContainerSASPermissions.parse("racwdl"), expiresOn: new Date(Date.now() + 3e6) }).then((u) => console.log(u.slice(u.indexOf("?") + 1)));
' "$AZURITE_NODE" "$AZURITE_PORT")
    run azure-wrong AZURE_ACCOUNT_ACCESS_KEY="$wrong_key" SEC_ENDPOINT="$url" ./secrets upload azure://net/by
    run azure-sas -u AZURE_ACCOUNT_ACCESS_KEY AZURE_STORAGE_SAS_TOKEN="$sas" SEC_FRESH=1 SEC_ENDPOINT="$url" ./secrets upload azure://net/sas
    run azure-sas-wrong -u AZURE_ACCOUNT_ACCESS_KEY AZURE_STORAGE_SAS_TOKEN="sv=2021-12-02&sp=r&sig=$wrong_sig" SEC_ENDPOINT="$url" ./secrets upload azure://net/sas
    run azure-sas-echo -u AZURE_ACCOUNT_ACCESS_KEY AZURE_STORAGE_SAS_TOKEN="$sas" SEC_ATTEMPTS=1 ./secrets echo azure://net/sas
    run azure-string -u AZURE_ACCOUNT_ACCESS_KEY -u AZURE_ACCOUNT_NAME AZURE_STORAGE_CONNECTION_STRING="AccountName=$AZURITE_ACCOUNT;AccountKey=$wrong_key;BlobEndpoint=http://127.0.0.1:1/x" \
        ./secrets upload azure://net/by
    printf '%s\n' "$AZURITE_KEY" "$wrong_key" "$wrong_sig" "$(echo "${sas#*sig=}" | cut -d '&' -f 1)" "SharedKey $AZURITE_ACCOUNT" >>words
else
    echo "SKIP: azure: $(tail -n 1 azurite.log)"
fi

databricks_server
databricks_port=$port
token=$DATABRICKS_TOKEN
volume=dbfs:/Volumes/main/default/ckpt runs=mlflow-artifacts:/77/0123abcd/artifacts
cloud uc $volume/secrets --json
wrong_dapi=dapi$(secret wrong) wrong_client=dose$(secret wrong) wrong_password=$(secret wrong-password)
run uc-wrong DATABRICKS_TOKEN="$wrong_dapi" SEC_ENDPOINT="$url" ./secrets upload $volume/by
run uc-principal -u DATABRICKS_TOKEN DATABRICKS_CLIENT_ID="$FAKE_CLIENT_ID" DATABRICKS_CLIENT_SECRET="$FAKE_CLIENT_SECRET" SEC_FRESH=1 \
    SEC_ENDPOINT="$url" ./secrets upload $volume/principal
run uc-client -u DATABRICKS_TOKEN DATABRICKS_CLIENT_ID="$FAKE_CLIENT_ID" DATABRICKS_CLIENT_SECRET="$wrong_client" SEC_ENDPOINT="$url" \
    ./secrets upload $volume/by
printf '[DEFAULT]\nhost = %s\ntoken = %s\n' "$url" "$wrong_dapi" >databrickscfg
run uc-profile -u DATABRICKS_TOKEN DATABRICKS_CONFIG_FILE="$work/databrickscfg" ./secrets upload $volume/by
cloud mlflow $runs/secrets --json
run mlflow-wrong MLFLOW_TRACKING_PASSWORD="$wrong_password" SEC_ENDPOINT="$url" ./secrets upload $runs/by
run mlflow-token -u MLFLOW_TRACKING_USERNAME -u MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN="$token" SEC_ENDPOINT="$url" ./secrets upload $runs/token
run mlflow-parts -u MLFLOW_TRACKING_TOKEN MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD=true MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=1000000 \
    SEC_ENDPOINT="$url" ./secrets upload $runs/parts
# Runs of Databricks, on each cloud: a test of one cloud ends before the next begins.
managed=dbfs:/databricks/mlflow-tracking/77/0123abcd/artifacts
MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE=5242880
export MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE
workspace() { curl -s -o workspace.log --noproxy '*' -d "$1" "$url/_control" || fail "the workspace: $1"; }
port=$databricks_port
cloud dbfs $managed/secrets '--json --xml /cloud/ --bodies'
run dbfs-wrong DATABRICKS_TOKEN="$wrong_dapi" SEC_ENDPOINT="$url" ./secrets upload $managed/by
run dbfs-principal -u DATABRICKS_TOKEN DATABRICKS_CLIENT_ID="$FAKE_CLIENT_ID" DATABRICKS_CLIENT_SECRET="$FAKE_CLIENT_SECRET" SEC_FRESH=1 \
    SEC_ENDPOINT="$url" ./secrets upload $managed/principal
settle
for kind in azure gcp adls; do
    workspace "{\"cloud\":\"$kind\"}"
    run dbfs-$kind SEC_FRESH=1 SEC_ENDPOINT="$url" ./secrets upload $managed/$kind
    settle
done
# Clouds that quote the whole address in a refusal.
for kind in aws azure gcp adls; do
    workspace "{\"cloud\":\"$kind\",\"tell\":true,\"faults\":[{\"match\":\"CLOUD\",\"status\":403,\"code\":\"AccessDenied\",\"times\":999}]}"
    run dbfs-tell-$kind SEC_ENDPOINT="$url" ./secrets upload $managed/tell
    settle
done
workspace '{"cloud":"aws","tell":false,"faults":[],"resumable":true}'
run uc-stream SEC_FRESH=1 SEC_ENDPOINT="$url" ./secrets upload $volume/stream
run uc-stream-killed SEC_FRESH=1 SEC_DIE=1 SEC_ENDPOINT="http://127.0.0.1:$port" ./secrets upload $volume/stream-killed
settle
workspace '{"tell":true,"faults":[{"match":"CLOUD","status":403,"code":"AccessDenied","times":999}]}'
run uc-stream-tell SEC_FRESH=1 SEC_ENDPOINT="$url" ./secrets upload $volume/tell
settle
workspace '{"tell":false,"faults":[],"resumable":false}'
cat databricks/signed >>words
printf '%s\n' "$token" "$FAKE_CLIENT_SECRET" "$FAKE_PASSWORD" "$wrong_dapi" "$wrong_client" "$wrong_password" >>words
for login in "$FAKE_USER:$FAKE_PASSWORD" "$FAKE_CLIENT_ID:$FAKE_CLIENT_SECRET" "$FAKE_USER:$wrong_password"; do
    printf '%s' "$login" | base64 | tr -d '\n=' >>words
    echo >>words
done
clouds="$clouds uc mlflow dbfs"
settle

for cloud in $clouds; do
    expect "$cloud-good" 'close: CKPT_OK' 'download: CKPT_OK' 'fresh: CKPT_OK'
    expect "$cloud-saver" 'saver close: CKPT_OK'
    expect "$cloud-refused" CKPT_AUTH
    expect "$cloud-reset" CKPT_NET
    expect "$cloud-echo" 'a server that answers 301'
    grep '^PASS\|^FAIL' "all/$cloud-redirect/said" | sed "s/: /: $cloud: /"
    [ "$(grep -c '^PASS' "all/$cloud-redirect/said")" = 5 ] || failures=$((failures + 1))
    [ -s "all/$cloud-redirect/dir/stolen" ] && fail "$cloud: something was sent elsewhere" "all/$cloud-redirect/dir/stolen"
done
for kind in user external-file external-url impersonated; do expect "gs-$kind" 'close: CKPT_OK'; done
expect gs-unknown CKPT_AUTH invalid_grant
expect gs-wrong CKPT_AUTH invalid_grant
expect gs-explicit CKPT_
expect oci-locked 'close: CKPT_OK'
expect oci-phrase CKPT_AUTH
expect oci-token CKPT_AUTH
expect oci-instance 'close: CKPT_OK'
case $clouds in *azure*)
    expect azure-wrong CKPT_AUTH
    expect azure-sas 'close: CKPT_OK' 'download: CKPT_OK'
    expect azure-sas-wrong CKPT_AUTH
    expect azure-sas-echo 'a server that answers 301'
    expect azure-string CKPT_
    seen azure 's/.*SharedKey [^:]*:\([A-Za-z0-9+/]*\).*/\1/p' 10 ;;
esac
expect uc-wrong CKPT_AUTH
expect uc-principal 'close: CKPT_OK' 'download: CKPT_OK'
expect uc-client CKPT_AUTH invalid_client
expect uc-profile CKPT_AUTH
expect uc-stream 'close: CKPT_OK' 'download: CKPT_OK' 'fresh: CKPT_OK'
expect uc-stream-tell CKPT_AUTH 'the cloud answered 403 AccessDenied'
grep -rl 'upload_id=' all/uc-stream-killed | grep -q '\.upload$' || fail 'no journal holds the address of a stream'
expect mlflow-wrong CKPT_AUTH
expect mlflow-token 'close: CKPT_OK' 'download: CKPT_OK'
expect mlflow-parts 'close: CKPT_OK' 'download: CKPT_OK'
expect dbfs-wrong CKPT_AUTH
expect dbfs-principal 'close: CKPT_OK' 'download: CKPT_OK'
for kind in azure gcp adls; do expect "dbfs-$kind" 'close: CKPT_OK' 'download: CKPT_OK' 'fresh: CKPT_OK'; done
for kind in aws azure gcp adls; do expect "dbfs-tell-$kind" CKPT_AUTH 'the cloud answered 403 AccessDenied'; done
[ "$(wc -l <databricks/signed)" -gt 100 ] || fail 'hardly an address was signed'
seen dbfs 's/.*Bearer \(.*\)/\1/p' 1
seen uc 's/.*Bearer \(.*\)/\1/p' 1
seen mlflow 's/.*Basic \(.*\)/\1/p' 1
seen gs 's/.*Bearer \(.*\)/\1/p' 1
seen oci 's/.*signature="\([A-Za-z0-9+/]\{40\}\).*/\1/p' 10
find all -name heads -exec rm {} +
find all -name stolen -exec rm {} +

cut -c 1-80 oci/tokens >>words
sort -u words | grep . >words.sorted
mv words.sorted words
search_all 3
if grep -raEl 'upload_id=|upload_id%3D' all | grep -v "\.upload\$" >found; then fail "a session's address stands elsewhere than in a journal" found
elif grep -rl 'upload_id=' all >found; then pass "$(wc -l <found) journals hold sessions' addresses, and nothing else does"
else fail 'no journal holds a session'; fi
grep -raEl 'session-[A-Za-z0-9_-]{50}' all >sessions
if grep -v "\.upload\$" sessions >elsewhere; then fail "a session of Databricks stands elsewhere than in a journal" elsewhere
elif [ -s sessions ]; then pass "$(wc -l <sessions) journals hold sessions of Databricks, and nothing else does"
else fail 'no journal holds a session of Databricks'; fi
for journal in $(cat found sessions); do
    case $(stat -c %a "$journal" 2>/dev/null) in *00 | '') ;; *) fail "a journal with a session's address may be read by others" ;; esac
done
# What begins as a token does may be random letters: a token's are those of a text.
is_random() {
    case $1 in eyJ*) ;; *) return 1 ;; esac
    printf '%.20s' "$1" | tr '_-' '/+' | base64 -d | LC_ALL=C grep -qa '[^ -~]'
}
grep -raEo 'eyJ[A-Za-z0-9_-]{20}|[?&]sig=[A-Za-z0-9%]{20}|Signature=[A-Za-z0-9%]{20}|Basic [A-Za-z0-9+/]{20}|signature="[A-Za-z0-9+/]{40}|Bearer [A-Za-z0-9._-]{20}' all >hits
while read -r hit; do is_random "${hit#*:}" || printf '%s\n' "$hit"; done <hits >found
if [ -s found ]; then
    fail 'assertions or signatures are in what was said or kept' found
else pass 'no assertion, bearer token or signature of any request'; fi
[ $failures = 0 ]
