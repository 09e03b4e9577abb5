#!/bin/sh
# gcs_fake.sh: gs:// against tests/servers/fake-gcs.js, with every kind of Google credentials: the contract of all stores, sessions
# that go on after lost connections, short answers and a kill, refusals, what sums are good for, no secret in any output; Google's own
# client reads our objects and we its. With CKPT_LONG=1 also the contract with an HMAC key against Ceph's gateway. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
command -v curl >/dev/null 2>&1 || { echo "no curl to talk to servers/fake-gcs.js with"; exit 77; }
compile_stores
mkdir home
node_server srv fake-gcs.js
. srv/env
control() { curl -s --noproxy '*' -d "$1" "$GCS_URL/_control"; }
asked() { curl -s --noproxy '*' "$GCS_URL/_control"; }

HOME=$work/home STORE_DEBUG=1 STORE_ENDPOINT=$GCS_URL GOOGLE_APPLICATION_CREDENTIALS=$work/srv/sa.json
export HOME STORE_DEBUG STORE_ENDPOINT GOOGLE_APPLICATION_CREDENTIALS
uri=gs://ckpt-one/some/prefix
head -c 23000077 /dev/urandom >big
head -c 100000 big >small

#-- the contract -------------------------------------------------------------------------------------------

contract() {
    ./store contract "$uri" >contract.log 2>&1
    rc=$?
    n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
    if [ $rc = 0 ] && [ "${n:-0}" -gt 15 ]; then pass "contract $1 ($n tests)"; else fail "contract $1" contract.log; fi
}
contract 'OAuth2, a service account'
asked | grep -q '"wrong":\[\],"faults":\[\],"sessions":0,"uploads":0,' && asked >wrong.log
check 'nothing was sent that the sheet forbids, and nothing is left open' wrong.log

#-- every kind of credentials ------------------------------------------------------------------------------

for kind in user external-file external-url impersonated; do
    GOOGLE_APPLICATION_CREDENTIALS=$work/srv/$kind.json ./store put "$uri" "by/$kind" small >out.log 2>err.log
    check "credentials: $kind" out.log
    cat out.log err.log >>all.log
done
mkdir -p home/.config/gcloud && cp srv/user.json home/.config/gcloud/application_default_credentials.json
(unset GOOGLE_APPLICATION_CREDENTIALS; ./store put "$uri" by/gcloud small >out.log 2>err.log && grep -q home/.config err.log)
check "credentials: gcloud's file" out.log
rm -r home/.config
(unset GOOGLE_APPLICATION_CREDENTIALS; GCE_METADATA_HOST=${GCS_URL#http://} ./store put "$uri" by/machine small >out.log 2>err.log)
check 'credentials: the metadata server' out.log
(unset GOOGLE_APPLICATION_CREDENTIALS; NO_GCE_CHECK=true ./store put "$uri" by/none small >out.log 2>err.log)
grep -q 'CKPT_AUTH.*GCS_KEY.*GOOGLE_APPLICATION_CREDENTIALS.*gcloud.*metadata' out.log
check 'no credentials: the sentence names all ways' out.log
sed 's/fake-key-1/other/' srv/sa.json >other.json
GOOGLE_APPLICATION_CREDENTIALS=$work/other.json ./store put "$uri" by/other small >out.log 2>err.log
grep -q 'CKPT_AUTH.*invalid_grant' out.log
check 'a key that Google does not know' out.log
printf 'wrong-%s' "$(cat srv/subject)" >wrong.subject
sed "s,$work/srv/subject,$work/wrong.subject," srv/external-file.json >wrong.json
GOOGLE_APPLICATION_CREDENTIALS=$work/wrong.json ./store put "$uri" by/other small >wrong.log 2>&1
grep -q 'CKPT_AUTH.*invalid_grant' wrong.log && ! grep -q "$(cat wrong.subject)" wrong.log
check 'an identity that is refused, and not quoted' wrong.log
control '{"token_life":2}' >/dev/null
./store put "$uri" short small >out.log 2>err.log && ./store get "$uri" short back >>out.log 2>>err.log && cmp -s small back
check 'tokens that end soon' out.log
control '{"token_life":3599,"anonymous":true}' >/dev/null
(unset STORE_ENDPOINT; STORAGE_EMULATOR_HOST=${GCS_URL#http://} ./store put "$uri" emulator small >out.log 2>err.log)
check 'STORAGE_EMULATOR_HOST: no token is sent' out.log
control '{"anonymous":false}' >/dev/null

#-- sessions and faults ------------------------------------------------------------------------------------

# fault NAME FAULTS VERB: the object must be right in the end
fault() {
    control "{\"clear\":true,\"faults\":$2}" >/dev/null
    ./store "$3" "$uri" "fault/$1" big >out.log 2>err.log && ./store get "$uri" "fault/$1" back >>out.log 2>>err.log && cmp -s big back
    check "$1" out.log
    cat err.log >>all.log
}
fault 'session: the connection is lost in mid piece' '[{"match":"PUT .*upload_id","drop":3000000}]' new
fault 'session: the server keeps less than was sent' '[{"match":"PUT .*upload_id","keep":1000000,"times":2}]' new
fault 'session: 503' '[{"match":"PUT .*upload_id","status":503}]' new
fault 'session: the reply to a piece is lost' '[{"match":"PUT .*upload_id","skip":1,"lose":true}]' new
fault 'parts: lost connection, 503 and lost reply' '[{"match":"PUT .*partNumber=1","drop":3000000},{"match":"PUT .*partNumber=2","status":503},{"match":"PUT .*partNumber=3","lose":true}]' put
fault 'parts: the reply to the end is lost' '[{"match":"POST .*uploadId","lose":true}]' put
fault 'a range of the download is refused' '[{"match":"GET .*alt=media","status":429}]' put
fault 'a token is refused once' '[{"match":"POST .*uploads","status":401,"reason":"authError"}]' put
control '{"clear":true,"faults":[{"match":"POST .*multipart","lose":true}]}' >/dev/null
./store new "$uri" fault/lost small >out.log 2>err.log
check 'create only: its own lost reply is recognised' out.log
./store new "$uri" fault/lost small >out.log 2>err.log
[ $? = 1 ] && grep -q CKPT_EXISTS out.log
check 'create only: what is there stays' out.log
./store new "$uri" fault/parts:\ 503 big >/dev/null 2>&1
./store put "$uri" corrupt small >out.log 2>err.log
control '{"corrupt":"some/prefix/corrupt"}' >/dev/null
./store get "$uri" corrupt back2 >out.log 2>err.log
[ $? = 1 ] && grep -q 'CKPT_CORRUPT.*CRC-32C' out.log && [ ! -e back2 ]
check 'a byte that changed on the server is found by the CRC-32C' out.log

# A process that dies in the middle: the next one goes on with the session, and sends nothing twice.
control '{"clear":true,"faults":[{"match":"PUT .*upload_id","skip":1,"hang":true,"times":9}]}' >/dev/null
./store upload "$uri" killed big "$work/staging" >out.log 2>err.log &
pid=$!
i=0
while ! asked | grep -q 'upload_id.*"PUT /upload[^"]*upload_id'; do i=$((i + 1)); [ $i -lt 200 ] || break; sleep 0.05; done
sleep 0.3
kill -9 $pid
wait $pid 2>/dev/null
cat err.log >>all.log
sessions=$(asked | sed 's/.*"sessions":\([0-9]*\).*/\1/')
control '{"clear":true,"faults":[]}' >/dev/null
./store upload "$uri" '' '' "$work/staging" >out.log 2>err.log && ./store get "$uri" killed back >>out.log 2>>err.log && cmp -s big back &&
    [ "$sessions" = 1 ] && ! asked | grep -q '"POST /upload[^"]*uploadType=resumable' && asked | grep -q '"sessions":0,'
check 'a dead process: the next one goes on with its session' out.log
cat err.log >>all.log

#-- secrets ------------------------------------------------------------------------------------------------

cat contract.log >>all.log
secrets='ya29\.|GOCSPX|1//fake|PRIVATE KEY|upload_id=|subject-token|eyJ[A-Za-z0-9]|Bearer '
[ -s all.log ] && ! grep -qE "$secrets" all.log
check 'no secret in any log or sentence' all.log

#-- Google's own client ------------------------------------------------------------------------------------

if vendor_has @google-cloud/storage; then
    ./store put "$uri" 'vendor/whole #1+%' small >out.log 2>&1
    ./store put "$uri" vendor/parts big >>out.log 2>&1
    ./store new "$uri" vendor/session big >>out.log 2>&1
    token=$(control '{"token":true}' | sed 's/.*"token":"\([^"]*\)".*/\1/')
    cat >vendor.js <<'JS'
const { Storage } = require(process.env.VENDOR + '/@google-cloud/storage'), { OAuth2Client } = require(process.env.VENDOR + '/google-auth-library');
const fs = require('fs'), assert = require('assert');
(async () => {
    const authClient = new OAuth2Client();
    authClient.setCredentials({ access_token: process.env.TOKEN, expiry_date: Date.now() + 3e6 });
    const b = new Storage({ apiEndpoint: process.env.STORE_ENDPOINT, useAuthWithCustomEndpoint: true, authClient, projectId: 'fake' }).bucket('ckpt-one');
    for (const [name, path] of [['whole #1+%', 'small'], ['parts', 'big'], ['session', 'big']]) {
        const [data] = await b.file('some/prefix/vendor/' + name).download({ validation: 'crc32c' });
        assert(data.equals(fs.readFileSync(path)), `${name}: ${data.length} bytes`);
        const [meta] = await b.file('some/prefix/vendor/' + name).getMetadata();
        assert.strictEqual(meta.contentType, 'application/octet-stream');
    }
    const [files] = await b.getFiles({ prefix: 'some/prefix/vendor/' });
    assert.strictEqual(files.length, 3);
    await b.upload('small', { destination: 'some/prefix/theirs/small #1', resumable: false, validation: 'crc32c' });
    const [uri] = await b.file('some/prefix/theirs/big').createResumableUpload();
    await new Promise((ok, no) => fs.createReadStream('big').pipe(b.file('some/prefix/theirs/big').createWriteStream({ uri, resumable: true, chunkSize: 4 << 20 })).on('finish', ok).on('error', no));
})().catch((e) => { console.log(e); process.exit(1); });
JS
    VENDOR=$vendor TOKEN=$token node vendor.js >vendor.log 2>&1
    check "@google-cloud/storage reads and lists what we put" vendor.log
    ./store get "$uri" 'theirs/small #1' b1 >out.log 2>err.log && cmp -s small b1 && ./store get "$uri" theirs/big b2 >>out.log 2>>err.log && cmp -s big b2 &&
        ./store list "$uri" theirs/ >list.log 2>/dev/null && grep -q '^100000 theirs/small #1$' list.log
    check 'we read and list what @google-cloud/storage put' out.log
else
    echo "SKIP: @google-cloud/storage: not installed (CKPT_LONG=1 has npm install it, CKPT_NODE_MODULES says where it is)"
fi

#-- HMAC keys ----------------------------------------------------------------------------------------------

if [ "${CKPT_LONG:-0}" = 1 ]; then
    sh "$tests/servers/rgw.sh" up "$work/rgw" http >rgw.log 2>&1
    rc=$?
    if [ $rc = 0 ]; then
        . "$work/rgw/env"
        sh "$tests/servers/rgw.sh" bucket "$work/rgw" ckpt-one
        STORE_ENDPOINT=$RGW_HTTP GCS_KEY=$RGW_KEY GCS_SECRET=$RGW_SECRET
        export STORE_ENDPOINT GCS_KEY GCS_SECRET
        contract "an HMAC key, at Ceph's gateway"
        ! grep -qF "$RGW_SECRET" contract.log
        check 'no HMAC secret in any log' contract.log
    elif [ $rc = 77 ]; then
        echo "SKIP: HMAC keys: $(tail -n 1 rgw.log)"
    else
        fail "Ceph's gateway" rgw.log
    fi
fi

[ $failures = 0 ]
