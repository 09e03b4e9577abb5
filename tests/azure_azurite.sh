#!/bin/sh
# azure_azurite.sh: azure:// against Microsoft's own emulator: the contract of all stores with a Shared Key and with a SAS, refusals,
# uploads that another process goes on with, and uploads by name of a provider of Apache Libcloud.
# With CKPT_LONG=1 Microsoft's client @azure/storage-blob also reads what we put, and we what it put. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
compile_stores
sh "$tests/servers/azurite.sh" up "$work/azurite" || exit $?
. "$work/azurite/env"
STORE_ENDPOINT=$AZURITE_URL STORE_PATIENCE=20 AZURE_ACCOUNT_NAME=$AZURITE_ACCOUNT AZURE_ACCOUNT_ACCESS_KEY=$AZURITE_KEY
export STORE_ENDPOINT STORE_PATIENCE AZURE_ACCOUNT_NAME AZURE_ACCOUNT_ACCESS_KEY
uri=azure://ckpt-one/some/prefix
./store container $uri >container.log 2>&1 || { fail 'the container' container.log; exit 1; }
sas=$(./store sas $uri)
signature=${sas#*sig=}

# contract NAME COMMAND...
contract() {
    what=$1
    shift
    "$@" ./store contract $uri >contract.log 2>&1
    rc=$?
    n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
    if [ $rc = 0 ] && [ "${n:-0}" -gt 15 ]; then pass "contract, $what ($n tests)"; else fail "contract, $what" contract.log; fi
}
contract 'Shared Key' env
nokey() { env -u AZURE_ACCOUNT_ACCESS_KEY -u AZURE_ACCOUNT_NAME AZURE_STORAGE_ACCOUNT="$AZURITE_ACCOUNT" "$@"; }
[ "${CKPT_LONG:-0}" = 0 ] || contract 'SAS' nokey env AZURE_STORAGE_SAS_TOKEN="$sas"

#-- refusals -----------------------------------------------------------------------------------------------

# refused NAME WORD... -- COMMAND: the failure's line must hold all the words, and none of the secrets.
refused() {
    what=$1
    shift
    : >words
    while [ "$1" != -- ]; do echo "$1" >>words; shift; done
    shift
    if STORE_DEBUG=1 "$@" >refused.log 2>&1; then fail "$what: it was allowed" refused.log; return; fi
    while read -r word; do grep -qiF -- "$word" refused.log || { fail "$what: the sentence does not speak of '$word'" refused.log; return; }; done <words
    for secret in "$AZURITE_KEY" "$signature" d3JvbmcgS2V5; do
        if grep -qF -- "$secret" refused.log; then fail "$what: a secret was shown" refused.log; return; fi
    done
    pass "$what"
}
head -c 3000 /dev/urandom >small
head -c 16777216 /dev/urandom >big
refused 'wrong key' CKPT_AUTH 403 key account -- env AZURE_ACCOUNT_ACCESS_KEY=d3JvbmcgS2V5IG9mIG91cnM= ./store raw-put $uri x small
refused 'wrong key at a HEAD' CKPT_AUTH 403 -- env AZURE_ACCOUNT_ACCESS_KEY=d3JvbmcgS2V5IG9mIG91cnM= ./store stat $uri x
refused 'wrong SAS' CKPT_AUTH 403 -- nokey env AZURE_STORAGE_SAS_TOKEN="${sas}AAAA" ./store raw-put $uri x small
refused 'SAS that may only read' CKPT_AUTH sp= -- nokey env AZURE_STORAGE_SAS_TOKEN="$(AZURITE_RIGHTS=r ./store sas $uri)" ./store raw-put $uri x small
refused 'missing container' CKPT_NOT_FOUND 'no container' ckpt-none 127.0.0.1 -- ./store raw-put azure://ckpt-none/p x small
refused 'missing container, blocks' CKPT_NOT_FOUND 'no container' ckpt-none -- ./store raw-put azure://ckpt-none/p x big 5242880
refused 'missing container, list' CKPT_NOT_FOUND 'no container' -- ./store list azure://ckpt-none ''
refused 'missing blob' CKPT_NOT_FOUND 404 -- ./store stat $uri nothing-here

#-- another process goes on --------------------------------------------------------------------------------

id=$(./store half $uri resumed big 5242880 2>/dev/null | tail -n 1)
if ./store rest $uri resumed big 5242880 "$id" >rest.log 2>&1 && grep -q '^2 parts were there' rest.log &&
    ./store raw-get $uri resumed resumed.back 3000000 >>rest.log 2>&1 && cmp -s big resumed.back; then pass 'blocks of another process are taken over'
else fail 'blocks of another process are taken over' rest.log; fi
id=$(./store half $uri given-up big 5242880 2>/dev/null | tail -n 1)
./store uploads $uri '' >uploads.log 2>&1
if [ "$(sed 's/ [^ ]*$//' uploads.log)" = given-up ] && ./store abort $uri given-up "$id" >>uploads.log 2>&1 && [ -z "$(./store uploads $uri '' 2>&1)" ] &&
    ! ./store rest $uri given-up big 5242880 "$id" >>uploads.log 2>&1 && grep -q CKPT_NOT_FOUND uploads.log &&
    ./store raw-put $uri given-up big 5242880 >>uploads.log 2>&1; then pass 'an upload is listed and given up by another process, and begun anew'
else fail 'an upload is listed and given up by another process, and begun anew' uploads.log; fi

#-- other ways to write it ---------------------------------------------------------------------------------

odd='a b+c&d=e%41~!*()@,$?#é'
./store raw-put $uri "$odd" small >put.log 2>&1 || fail 'a name with odd characters' put.log
if nokey env AZURE_STORAGE_SAS_TOKEN="?$sas" ./store raw-put $uri sas-blocks big 5242880 >sas.log 2>&1 && ./store raw-get $uri sas-blocks sas.back >>sas.log 2>&1 &&
    cmp -s big sas.back && nokey env AZURE_STORAGE_SAS_TOKEN="$sas" ./store list $uri sas >>sas.log 2>&1 && grep -q '16777216 sas-blocks' sas.log; then pass 'a SAS'
else fail 'a SAS' sas.log; fi
blind=$(AZURITE_RIGHTS=wc ./store sas $uri)
if nokey env AZURE_STORAGE_SAS_TOKEN="$blind" ./store send $uri blind big 5242880 >blind.log 2>&1 && ./store raw-get $uri blind blind.back >>blind.log 2>&1 &&
    cmp -s big blind.back; then pass 'a SAS that may only write'
else fail 'a SAS that may only write' blind.log; fi
if nokey env AZURE_STORAGE_SAS_TOKEN="$blind" ./store upload $uri by-uploader big "$work/blind-staging" >blind.log 2>&1 &&
    ./store raw-get $uri by-uploader blind.back2 >>blind.log 2>&1 && cmp -s big blind.back2 && [ -z "$(./store list $uri .cred 2>&1)" ]; then
    pass 'an uploader with a SAS that may only write, which leaves no trial behind'
else fail 'an uploader with a SAS that may only write' blind.log; fi
host=${AZURITE_URL#http://}
cloud="libcloud://ckpt-one/some/prefix?provider=AZURE_BLOBS&key_environ=MY_NAME&secret_environ=MY_KEY&host=${host%:*}&port=${host##*:}&secure=false"
connection="DefaultEndpointsProtocol=http;AccountName=$AZURITE_ACCOUNT;AccountKey=$AZURITE_KEY;BlobEndpoint=$AZURITE_URL/$AZURITE_ACCOUNT;"
bare() { env -u AZURE_ACCOUNT_ACCESS_KEY -u AZURE_ACCOUNT_NAME -u STORE_ENDPOINT "$@"; }
for way in "Composer's AZURE_BLOBS|env|AZURE_BLOBS://ckpt-one/some/prefix" "the account in the URI|env -u AZURE_ACCOUNT_NAME|azure://ckpt-one@$AZURITE_ACCOUNT/some/prefix" \
    "a connection string|bare env AZURE_STORAGE_CONNECTION_STRING=$connection|$uri" "libcloud://|bare env MY_NAME=$AZURITE_ACCOUNT MY_KEY=$AZURITE_KEY|$cloud"; do
    name=${way%%|*} rest=${way#*|}
    rm -f back
    if ${rest%%|*} ./store raw-get "${rest#*|}" "$odd" back >way.log 2>&1 && cmp -s small back; then pass "$name"; else fail "$name" way.log; fi
done

#-- Microsoft's client -------------------------------------------------------------------------------------

if [ "${CKPT_LONG:-0}" = 1 ]; then
    ./store raw-put $uri 'in blocks' big 5242880 >>put.log 2>&1 || fail 'putting for others' put.log
    cat >client.js <<'JS'
const { BlobServiceClient, StorageSharedKeyCredential } = require(process.argv[2] + '/node_modules/@azure/storage-blob');
const fs = require('fs'), assert = require('assert');
const account = process.env.AZURE_ACCOUNT_NAME, odd = process.argv[3];
(async () => {
    const service = new BlobServiceClient(process.env.STORE_ENDPOINT + '/' + account, new StorageSharedKeyCredential(account, process.env.AZURE_ACCOUNT_ACCESS_KEY));
    const c = service.getContainerClient('ckpt-one');
    for (const [name, path] of [[odd, 'small'], ['in blocks', 'big']]) {
        const b = c.getBlobClient('some/prefix/' + name);
        assert(fs.readFileSync(path).equals(await b.downloadToBuffer()), name);
        const p = await b.getProperties();
        assert(p.metadata.ckpt_mark && p.metadata.ckpt_crc32.length == 8 && p.contentType == 'application/octet-stream', JSON.stringify(p.metadata));
    }
    const names = [];
    for await (const b of c.listBlobsFlat({ prefix: 'some/prefix/' })) names.push(b.name);
    assert(names.includes('some/prefix/' + odd));
    await c.getBlockBlobClient('some/prefix/js/' + odd).uploadFile('small');
    await c.getBlockBlobClient('some/prefix/js/blocks').uploadFile('big', { blockSize: 1 << 20, maxSingleShotSize: 1 << 20, concurrency: 4 });
    await c.getBlockBlobClient('some/prefix/js/empty').upload('', 0);
    // Blocks of its own that wait beside ours do not keep us from ours.
    await c.getBlockBlobClient('some/prefix/js/both').stageBlock(Buffer.alloc(48, 'x').toString('base64'), 'abc', 3);
})().catch(e => { console.log(e); process.exit(1); });
JS
    if node client.js "$AZURITE_NODE" "$odd" >client.log 2>&1; then pass '@azure/storage-blob reads what we put'; else fail '@azure/storage-blob reads what we put' client.log; fi
    if ./store raw-get $uri "js/$odd" b1 >get.log 2>&1 && cmp -s small b1 && ./store raw-get $uri js/blocks b2 3000001 >>get.log 2>&1 && cmp -s big b2 &&
        ./store raw-get $uri js/empty b3 >>get.log 2>&1 && [ -f b3 ] && [ ! -s b3 ] && ./store list $uri js/ >>get.log 2>&1 &&
        [ "$(grep -c ' js/' get.log)" = 3 ] && grep -qF "3000 js/$odd" get.log; then pass 'we read and list what it put'
    else fail 'we read and list what it put' get.log; fi
    if ./store raw-put $uri js/both big 5242880 >both.log 2>&1 && ./store raw-get $uri js/both b4 >>both.log 2>&1 && cmp -s big b4; then pass "blocks of its own beside ours"
    else fail "blocks of its own beside ours" both.log; fi
fi

[ $failures = 0 ]
