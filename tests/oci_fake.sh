#!/bin/sh
# oci_fake.sh: oci:// against servers/fake-oci.js, which checks every signature with node's own crypto: the contract of all stores,
# every kind of identity, refusals, a wrong clock, faults on the way, uploads that are resumed, Composer's ranges.
# With CKPT_LONG=1 Oracle's own client (oci-objectstorage of npm) reads what we put, and we what it puts. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
for tool in node openssl curl; do command -v $tool >/dev/null 2>&1 || { echo "no $tool here"; exit 77; }; done
compile_stores

#-- keys and server -----------------------------------------------------------------------------------------

HOME=$work/home
export HOME
mkdir -p "$HOME/.oci"
fingerprint() { openssl rsa -in "$1" -pubout -outform DER 2>/dev/null | openssl md5 -c | sed 's/.*= *//'; }
for k in one two; do openssl genrsa -out $k.pem 2048 2>/dev/null || { echo "openssl makes no keys"; exit 77; }; done
openssl rsa -in one.pem -aes256 -passout pass:'open sesame' -out locked.pem 2>/dev/null
tenancy=ocid1.tenancy.oc1..fake user=ocid1.user.oc1..fake
b64() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
token() { echo "$(printf '{"alg":"RS256"}' | b64).$(printf '{"exp":%s,"n":"%s"}' "$2" "$1" | b64).c2lnbmF0dXJl"; }
soon=$(($(date +%s) + 3000))
token alive $soon >token; token renewed $soon >token.new; token ended 1000 >token.old; token revoked $soon >token.revoked
node -e '
const fs = require("fs"), c = require("crypto"), keys = {}, pub = f => c.createPublicKey(fs.readFileSync(f)).export({ type: "spki", format: "pem" });
const [one, two] = process.argv.slice(3, 5), id = process.argv[1] + "/" + process.argv[2] + "/";
keys[id + one] = pub("one.pem");
for (const t of ["token", "token.new", "token.old"]) keys["ST$" + fs.readFileSync(t, "utf8").trim()] = pub("two.pem");
fs.writeFileSync("keys.json", JSON.stringify(keys));
' "$tenancy" "$user" "$(fingerprint one.pem)" "$(fingerprint two.pem)" || exit 1
make_machine machine "$tenancy"
node_server . fake-oci.js
OCI_CLI_ENDPOINT=http://127.0.0.1:$port
export OCI_CLI_ENDPOINT
control() { curl -sS --noproxy '*' -X POST -d "$1" "$OCI_CLI_ENDPOINT/control"; }
faults() { control "{\"faults\":[$1]}" >control.log; }
cat >"$HOME/.oci/config" <<END
; a comment
[DEFAULT]
User = $user
fingerprint: $(fingerprint one.pem)
tenancy=$tenancy
region=us-ashburn-1
key_file=~/.oci/key.pem
[LOCKED]
key_file=$work/locked.pem
pass_phrase=open sesame
[SESSION]
key_file=$work/two.pem
security_token_file=$work/token.now
END
{ cat one.pem; echo OCI_API_KEY; } >"$HOME/.oci/key.pem"
cp token token.now
uri=oci://bucket-one/some/prefix
head -c 3000 /dev/urandom >small
head -c 23068675 /dev/urandom >big
: >empty

#-- the contract of all stores ------------------------------------------------------------------------------

./store contract "$uri" >contract.log 2>&1
rc=$?
n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
if [ $rc = 0 ] && [ "${n:-0}" -gt 18 ]; then pass "contract ($n tests)"; else fail contract contract.log; fi
if [ "$(control '{}' | node -e 'const s = JSON.parse(require("fs").readFileSync(0)); console.log(s.seen.unauthenticated + " " + s.buckets["bucket-one"].uploads.length)')" = '0 0' ]
then pass 'every signature was right, and no upload is left open'; else fail 'signatures, or uploads left open'; fi

#-- who we are ----------------------------------------------------------------------------------------------

# works NAME COMMAND: an object goes up and comes down.
works() {
    what=$1
    shift
    rm -f back
    if "$@" ./store send $uri "as $what" small >works.log 2>&1 && "$@" ./store get $uri "as $what" back >>works.log 2>&1 && cmp -s small back; then pass "$what"
    else fail "$what" works.log; fi
}
works 'a profile with an encrypted key' env OCI_CLI_PROFILE=LOCKED
works 'a session token' env OCI_CLI_PROFILE=SESSION
works 'variables alone' env HOME=/nowhere OCI_CLI_USER=$user OCI_CLI_TENANCY=$tenancy OCI_CLI_FINGERPRINT="$(fingerprint one.pem)" OCI_CLI_KEY_CONTENT="$(cat one.pem)"
works 'a resource principal, values' env HOME=/nowhere OCI_RESOURCE_PRINCIPAL_VERSION=2.2 OCI_RESOURCE_PRINCIPAL_RPST="$(cat token)" \
    OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM="$(cat two.pem)" OCI_RESOURCE_PRINCIPAL_REGION=us-ashburn-1
works 'a resource principal, files' env HOME=/nowhere OCI_RESOURCE_PRINCIPAL_VERSION=2.2 OCI_RESOURCE_PRINCIPAL_RPST="$work/token" \
    OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM="$work/two.pem"
cp "$HOME/.oci/config" elsewhere
works 'OCI_CONFIG_FILE' env HOME="$work/home" OCI_CONFIG_FILE="$work/elsewhere"
if ./store send oci://bucket-one@fakespace/some/prefix 'with namespace' small >works.log 2>&1 && ./store get $uri 'with namespace' back >>works.log 2>&1 &&
    cmp -s small back; then pass 'oci://bucket@namespace'; else fail 'oci://bucket@namespace' works.log; fi

#-- an instance ---------------------------------------------------------------------------------------------

as_instance() {
    env HOME=/nowhere OCI_CLI_AUTH=instance_principal OCI_METADATA_BASE_URL="$OCI_CLI_ENDPOINT/opc/v2" OCI_SDK_AUTH_CLIENT_REGION_URL="$OCI_CLI_ENDPOINT" "$@"
}
federated() { control '{}' | sed 's/.*"federated":\([0-9]*\).*/\1/'; }
works 'an instance principal' as_instance
n=$(federated)
if as_instance ./store send $uri 'by an instance' big 10485760 >instance.log 2>&1 && [ "$(($(federated) - n))" = 1 ]; then pass 'one token serves all workers'
else fail "one token serves all workers: $n, $(federated)" instance.log; fi
# A token that is about to end is renewed before, and one that was withdrawn when it is refused.
control '{"lifetime":3}' >control.log
faults '{"match":"PUT","times":2,"do":"drop","after_ms":1400}'
n=$(federated)
if as_instance ./store send $uri 'by an instance' small >instance.log 2>&1 && [ "$(($(federated) - n))" = 2 ]; then pass 'a token is renewed before it ends'
else fail "a token is renewed before it ends: $n, $(federated)" instance.log; fi
control '{"lifetime":1200,"faults":[{"match":"PUT","times":1,"do":"drop","after_ms":900}]}' >control.log
(sleep 0.5; control '{"withdraw":true}' >control.log) &
if as_instance ./store send $uri 'by an instance' small >instance.log 2>&1; then pass 'a token that was withdrawn is had anew'
else fail 'a token that was withdrawn is had anew' instance.log; fi
wait $! 2>/dev/null
faults '{"match":"identity/cert","times":1,"do":"status","status":500},{"match":"x509","times":1,"do":"status","status":503},{"match":"regionInfo","times":1,"do":"drop"}'
works 'an instance whose services are down for a while' as_instance
control '{"clock":1200,"faults":[]}' >control.log
works 'an instance with a wrong clock' as_instance
control '{"clock":0}' >control.log

#-- refusals ------------------------------------------------------------------------------------------------

# refused NAME WORD... -- COMMAND: the failure's line must hold all the words, and nothing secret.
refused() {
    what=$1
    shift
    : >words
    while [ "$1" != -- ]; do echo "$1" >>words; shift; done
    shift
    if "$@" >refused.log 2>&1; then fail "$what: it was allowed" refused.log; return; fi
    while read -r word; do grep -qiF -- "$word" refused.log || { fail "$what: the sentence does not speak of '$word'" refused.log; return; }; done <words
    if grep -qF "$(cut -c 30-80 token)" refused.log || grep -qF 'sesame' refused.log || grep -q 'PRIVATE KEY\|signature=' refused.log ||
        grep -qF "$(sed -n 3p machine/key.pem)" refused.log || { [ -s tokens ] && cut -c 30-80 tokens | grep -qFf - refused.log; }; then
        fail "$what: a secret was shown" refused.log; return
    fi
    pass "$what"
}
refused 'another key than the fingerprint says' CKPT_AUTH fingerprint -- env OCI_CLI_KEY_FILE="$work/two.pem" ./store send $uri x small
refused 'an unknown key' CKPT_AUTH 401 NotAuthenticated fingerprint request fake/ -- \
    env OCI_CLI_KEY_FILE="$work/two.pem" OCI_CLI_FINGERPRINT="$(fingerprint two.pem)" ./store send $uri x small
refused 'a locked key without its phrase' CKPT_AUTH encrypted pass_phrase -- env OCI_CLI_KEY_FILE="$work/locked.pem" ./store send $uri x small
refused 'a locked key with a wrong phrase' CKPT_AUTH decrypted -- env OCI_CLI_KEY_FILE="$work/locked.pem" OCI_CLI_PASSPHRASE=sesame ./store send $uri x small
refused 'no profile of that name' CKPT_AUTH NOBODY .oci/config -- env OCI_CLI_PROFILE=NOBODY ./store send $uri x small
refused 'no configuration at all' CKPT_AUTH OCI_CONFIG_FILE OCI_RESOURCE_PRINCIPAL_VERSION -- env HOME=/nowhere ./store send $uri x small
refused 'an identity that is not built in' CKPT_UNSUPPORTED instance_obo_user instance_principal -- env OCI_CLI_AUTH=instance_obo_user ./store send $uri x small
refused 'no metadata service' CKPT_NET 'metadata service' "Oracle's instances" -- as_instance env OCI_METADATA_BASE_URL=http://127.0.0.1:9/opc/v2 ./store send $uri x small
refused 'an auth service without TLS' CKPT_ARG https -- as_instance env OCI_SDK_AUTH_CLIENT_REGION_URL=http://auth.example.com ./store send $uri x small
faults '{"match":"identity/cert","times":9,"do":"status","status":404}'
refused 'an instance without a certificate' CKPT_AUTH 404 identity/cert.pem -- as_instance ./store send $uri x small
faults ''
make_machine other "$tenancy"
cp machine/cert.pem machine/kept.pem
cp other/cert.pem machine/cert.pem
refused "another's certificate" CKPT_AUTH 'belong together' -- as_instance ./store send $uri x small
cp machine/key.pem machine/kept.key
cp other/key.pem machine/key.pem
refused 'a certificate of somebody else' CKPT_AUTH NotAuthenticated 'not trusted' 401 -- as_instance ./store send $uri x small
mv machine/kept.pem machine/cert.pem
mv machine/kept.key machine/key.pem
cp token.old token.now
refused 'a token that has run out' CKPT_AUTH 'run out' 'oci session' -- env OCI_CLI_PROFILE=SESSION ./store send $uri x small
cp token.revoked token.now
refused 'a token that nobody knows' CKPT_AUTH 401 -- env OCI_CLI_PROFILE=SESSION ./store send $uri x small
cp token token.now
refused 'missing bucket' CKPT_NOT_FOUND 'no bucket' bucket-none fakespace 127.0.0.1 request -- ./store send oci://bucket-none/p x small
refused 'missing bucket, parts' CKPT_NOT_FOUND 'no bucket' bucket-none -- ./store send oci://bucket-none/p x big 10485760
refused 'missing bucket, list' CKPT_NOT_FOUND 'no bucket' bucket-none -- ./store list oci://bucket-none ''
refused 'missing namespace' CKPT_NOT_FOUND 'no bucket' nospace -- ./store send oci://bucket-one@nospace x small
refused 'missing object' CKPT_NOT_FOUND 404 bucket-one -- ./store stat $uri nothing-here
refused 'create only' CKPT_EXISTS overwriting -- ./store send $uri 'with namespace' big 0 new
refused 'create only, parts' CKPT_EXISTS overwriting -- ./store send $uri 'with namespace' big 10485760 new

#-- a wrong clock -------------------------------------------------------------------------------------------

for shift in 1200 -7200; do
    control "{\"clock\":$shift}" >control.log
    if ./store send $uri skewed big 10485760 >skew.log 2>&1 && ./store get $uri skewed back >>skew.log 2>&1 && cmp -s big back &&
        grep -q "minutes .* the server's" skew.log; then pass "clock $shift s: learnt, and said"; else fail "clock $shift s" skew.log; fi
done
control '{"clock":1200}' >control.log
faults '{"match":"GET /n$","times":9,"do":"status","status":401,"code":"NotAuthenticated"}'
refused 'a clock that helps nothing' CKPT_AUTH clock minutes -- ./store send $uri x small
control '{"clock":0,"faults":[]}' >control.log

#-- faults on the way ---------------------------------------------------------------------------------------

# survives NAME FAULTS [new]: a big object in parts and a small one go up and come down all the same.
survives() {
    faults "$2"
    rm -f back
    o="fault $1"
    if ./store send $uri "$o" "${4:-big}" 10485760 ${3:+"$3"} >fault.log 2>&1 && ./store get $uri "$o" back >>fault.log 2>&1 && cmp -s "${4:-big}" back; then
        left=$(sed 's/.*"faults":\[\([0-9,]*\)\].*/\1/' <<END
$(control '{}')
END
)
        case ,$left, in *,[1-9]*) fail "$1: the fault was not met ($left)" ;; *) pass "$1" ;; esac
    else fail "$1" fault.log; fi
    faults ''
}
survives 'throttled' \
    '{"match":"PUT","times":2,"do":"status","status":429,"code":"TooManyRequests","headers":{"retry-after":"0"}},{"match":"POST","times":1,"do":"status","status":503}'
survives '500, 409' \
    '{"match":"GET /n$","times":1,"do":"status","status":500,"code":"InternalServerError"},{"match":"PUT","times":1,"do":"status","status":409,"code":"ConcurrentObjectUpdate"}'
survives 'dropped' '{"match":"PUT","times":2,"skip":1,"do":"drop","after_ms":10},{"match":"POST","times":1,"do":"drop"}'
survives 'lost replies of parts' '{"match":"PUT","times":2,"do":"lost"}'
survives 'lost reply of the begin' '{"match":"POST .*/u$","times":1,"do":"lost"}'
survives 'lost reply of the commit' '{"match":"POST .*uploadId","times":1,"do":"lost"}'
survives 'lost reply of the commit, create only' '{"match":"POST .*uploadId","times":1,"do":"lost"}' new
survives 'lost reply of a put, create only' '{"match":"PUT .*/o/","times":1,"do":"lost"}' new small
survives 'lost upload' '{"match":"POST .*uploadId","times":1,"do":"status","status":404,"code":"NoSuchUpload"}'
survives 'lost part' '{"match":"POST .*uploadId","times":1,"do":"status","status":400,"code":"InvalidUploadPart"}'
survives 'cut replies' '{"match":"POST .*/u$","times":1,"do":"cut"},{"match":"GET .*/o/","times":1,"do":"cut"},{"match":"GET /n$","times":1,"do":"cut"}'
survives 'damaged download' '{"match":"GET .*/o/","times":1,"do":"damage"}'
survives 'a part that arrived otherwise' '{"match":"PUT","times":1,"do":"header","name":"opc-content-md5","value":"1B2M2Y8AsgTpgAmY7PhCfg=="}'
survives 'parts joined otherwise' '{"match":"POST .*uploadId","times":1,"do":"header","name":"opc-multipart-md5","value":"1B2M2Y8AsgTpgAmY7PhCfg==-3"}'
STORE_STALL=1 survives 'stalled' '{"match":"PUT","times":1,"do":"stall"}'
cp token.revoked token.now
(sleep 0.3; cp token.new token.now) &
faults '{"match":"GET /n$","times":1,"do":"drop","after_ms":700}'
if OCI_CLI_PROFILE=SESSION ./store send $uri renewed small >renew.log 2>&1; then
    pass 'a token renewed by others is read again'; else fail 'a token renewed by others is read again' renew.log; fi
wait $! 2>/dev/null
cp token token.now
faults ''
faults '{"match":"PUT .*","times":9,"do":"status","status":501,"code":"NotImplemented"}'
refused 'what no try will cure' CKPT_UNSUPPORTED 501 -- ./store send $uri x small
case $(control '{}') in *'"faults":[8]'*) pass 'and it was tried once' ;; *) fail 'a 501 was tried again' ;; esac
faults ''

#-- uploads in parts ----------------------------------------------------------------------------------------

control '{"page":2}' >control.log
id=$(./store half $uri resumed big 10485760 2>/dev/null | tail -n 1)
if ./store rest $uri resumed big 10485760 "$id" >rest.log 2>&1 && grep -q '^2 parts were there' rest.log && ./store get $uri resumed back >>rest.log 2>&1 &&
    cmp -s big back; then pass 'another process goes on'; else fail 'another process goes on' rest.log; fi
for i in 1 2 3; do ./store half $uri "open $i" big 10485760 >half.log 2>&1; done
./store uploads $uri open >uploads.log 2>half.log
if [ "$(grep -c '^open [123] ' uploads.log)" = 3 ] && while read -r a b upload; do ./store abort $uri "$a $b" "$upload" 2>/dev/null || exit 1; done <uploads.log &&
    [ -z "$(./store uploads $uri '' 2>/dev/null)" ] && ./store abort $uri 'open 1' gone >/dev/null 2>&1; then pass 'open uploads are listed, page by page, and given up'
else fail 'open uploads' uploads.log; fi
control '{"page":1000}' >control.log
refused 'parts that are too small' CKPT_ARG UploadPartTooSmall -- ./store rest $uri tiny big 9000000 "$(./store half $uri tiny big 9000000 2>/dev/null | tail -n 1)"

#-- Composer's ranges ---------------------------------------------------------------------------------------

control '{"objects":{"huge":256000001,"none":0}}' >control.log
rm -f back none
if ./store split oci://bucket-one huge back >split.log 2>&1 && [ "$(wc -c <back)" = 256000001 ] && ./store split oci://bucket-one none none >>split.log 2>&1 && [ ! -s none ] &&
    curl -sS --noproxy '*' "$OCI_CLI_ENDPOINT/control" | grep -qF '"ranges":["0-128000000","128000001-256000000"]'; then pass "Composer's ranges"
else fail "Composer's ranges" split.log; fi
rm -f back

#-- Oracle's own client -------------------------------------------------------------------------------------

if [ "${CKPT_LONG:-0}" != 1 ]; then
    echo "SKIP: Oracle's client: only with CKPT_LONG=1"
elif ! command -v npm >/dev/null 2>&1 || ! HOME=$work npm install --prefix "$work/sdk" --no-audit --no-fund oci-objectstorage oci-common >npm.log 2>&1; then
    echo "SKIP: Oracle's client: npm cannot install oci-objectstorage"
else
    odd='a b+c&d=e%41~!*()@,$?#é/x'
    ./store send $uri "$odd" small >put.log 2>&1 && ./store send $uri 'in parts' big 10485760 >>put.log 2>&1 &&
        ./store send $uri 'nothing' empty >>put.log 2>&1 || fail 'putting for others' put.log
    sed '/^\[LOCKED/,$d; /^;/d; s/^User/user/; s/^fingerprint: /fingerprint=/' "$HOME/.oci/config" >sdk.config     # it takes less than Python's SDK
    cat >sdk.js <<'JS'
const fs = require('fs'), common = require('oci-common'), os = require('oci-objectstorage');
const odd = process.argv[2], bucketName = 'bucket-one', prefix = 'some/prefix/', equal = require('assert').deepStrictEqual;
async function bytes(stream) {
    const all = [];
    for await (const c of stream) all.push(Buffer.from(c));
    return Buffer.concat(all);
}
(async () => {
    const client = new os.ObjectStorageClient({ authenticationDetailsProvider: new common.ConfigFileAuthenticationDetailsProvider('sdk.config') });
    client.endpoint = process.env.OCI_CLI_ENDPOINT;
    const namespaceName = (await client.getNamespace({})).value;
    for (const [name, file] of [[odd, 'small'], ['in parts', 'big'], ['nothing', 'empty']]) {
        const got = await client.getObject({ namespaceName, bucketName, objectName: prefix + name });
        equal(await bytes(got.value), fs.readFileSync(file), name);
        equal(/ckpt-crc32":"[0-9a-f]{8}"/.test(JSON.stringify(got.opcMeta)), true, JSON.stringify(got.opcMeta));
    }
    const list = await client.listObjects({ namespaceName, bucketName, prefix: prefix + 'in', fields: 'name,size' });
    equal(list.listObjects.objects.map(o => o.size), [fs.statSync('big').size]);
    await client.putObject({ namespaceName, bucketName, objectName: prefix + 'sdk/' + odd, putObjectBody: fs.readFileSync('small'), contentLength: 3000 });
    const uploads = new os.UploadManager(client, { partSize: 10 << 20, maxConcurrentUploads: 2 });
    await uploads.upload({ content: { filePath: 'big' }, requestDetails: { namespaceName, bucketName, objectName: prefix + 'sdk/parts' } });
})().catch(e => { console.error(e); process.exit(1); });
JS
    if NODE_PATH=$work/sdk/node_modules node sdk.js "$odd" >sdk.log 2>&1; then
        pass "Oracle's client reads and lists what we put"
        if ./store get $uri "sdk/$odd" s1 >get.log 2>&1 && cmp -s small s1 && ./store get $uri sdk/parts s2 >>get.log 2>&1 && cmp -s big s2 &&
            ./store list $uri sdk/ >>get.log 2>&1 && grep -qF "3000 sdk/$odd" get.log && grep -qF '23068675 sdk/parts' get.log; then pass "we read and list what Oracle's client put"
        else fail "we read and list what Oracle's client put" get.log; fi
    else fail "Oracle's client reads what we put" sdk.log; fi
fi

[ $failures = 0 ]
