#!/bin/sh
# uc_fake.sh: dbfs:/Volumes/... against tests/servers/fake-databricks.js: the contract of all stores, tokens and service principals, lost
# connections and replies, addresses that run out, a kill that the next process goes on from, no secret in any output; Databricks' own client
# reads our files. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
command -v curl >/dev/null 2>&1 || { echo "no curl to talk to servers/fake-databricks.js with"; exit 77; }
compile_stores
mkdir home
node_server srv fake-databricks.js
. srv/env
control() { curl -s --noproxy '*' -d "$1" "$FAKE_URL/_control"; }
asked() { curl -s --noproxy '*' "$FAKE_URL/_control"; }

# Nothing of the user's own may take part.
unset DATABRICKS_CONFIG_PROFILE DATABRICKS_CONFIG_FILE DATABRICKS_CLIENT_ID DATABRICKS_CLIENT_SECRET DATABRICKS_AUTH_TYPE \
    MLFLOW_TRACKING_URI
HOME=$work/home DATABRICKS_HOST=$FAKE_URL DATABRICKS_TOKEN=$FAKE_TOKEN STORE_PART=5242880 STORE_DEBUG=1
export HOME DATABRICKS_HOST DATABRICKS_TOKEN STORE_PART STORE_DEBUG
uri=dbfs:/Volumes/main/default/ckpt/some/prefix
head -c 23000077 /dev/urandom >big
head -c 100000 big >small

#-- the contract -------------------------------------------------------------------------------------------

control '{"page":7}' >/dev/null
./store contract "$uri" >contract.log 2>&1
rc=$?
n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
if [ $rc = 0 ] && [ "${n:-0}" -gt 20 ]; then pass "contract ($n tests)"; else fail contract contract.log; fi
asked >state.log
grep -q '"wrong":\[\],"faults":\[\],"uploads":0,"files":0,' state.log
check 'nothing was sent that the service forbids, and nothing is left'
control '{"page":1000}' >/dev/null

#-- credentials --------------------------------------------------------------------------------------------

(unset DATABRICKS_HOST DATABRICKS_TOKEN
 printf '[DEFAULT]\nhost = https://wrong.example.com\n[two]\nhost = %s\ntoken = %s\n' "$FAKE_URL" "$FAKE_TOKEN" >home/.databrickscfg
 DATABRICKS_CONFIG_PROFILE=two ./store put "$uri" by/profile small >out.log 2>>all.log)
check 'credentials: a profile of ~/.databrickscfg' out.log
rm home/.databrickscfg
(unset DATABRICKS_TOKEN
 DATABRICKS_CLIENT_ID=$FAKE_CLIENT_ID DATABRICKS_CLIENT_SECRET=$FAKE_CLIENT_SECRET ./store put "$uri" by/principal small >out.log 2>>all.log)
check 'credentials: a service principal' out.log
control '{"token_life":1}' >/dev/null
(unset DATABRICKS_TOKEN
 DATABRICKS_CLIENT_ID=$FAKE_CLIENT_ID DATABRICKS_CLIENT_SECRET=$FAKE_CLIENT_SECRET ./store put "$uri" by/short big >out.log 2>>all.log)
check 'credentials: tokens that end soon' out.log
control '{"token_life":3600}' >/dev/null
(unset DATABRICKS_TOKEN
 DATABRICKS_CLIENT_ID=$FAKE_CLIENT_ID DATABRICKS_CLIENT_SECRET=wrong-$FAKE_CLIENT_SECRET ./store put "$uri" by/wrong small >out.log 2>>all.log)
grep -q 'CKPT_AUTH.*invalid_client' out.log
check 'a secret that is wrong, and not quoted' out.log
cat out.log >>all.log
DATABRICKS_TOKEN=wrong$FAKE_TOKEN ./store put "$uri" by/wrong small >out.log 2>>all.log
grep -q 'CKPT_AUTH.*401' out.log
check 'a token that is wrong, and not quoted' out.log
cat out.log >>all.log
./store put dbfs:/Volumes/main/default/other x small >out.log 2>>all.log
grep -q "CKPT_NOT_FOUND.*main.default.other" out.log
check 'a volume that is not there' out.log
./store uri "$uri" x 2>/dev/null | grep -q "^$uri/x$"
check 'the address of a file'

#-- links, by the tool ---------------------------------------------------------------------------------------

# Its text counts from the top of the store, where what the URI begins with is no store yet.
compile "$root/tools/ckpt.c" ckpt -lcurl -lcrypto -lpthread -lm
printf 'some/prefix/ep1.bin' >way.symlink
printf 'some/prefix/gone.bin' >lost.symlink
for file in way.symlink lost.symlink; do ./store put "$uri" "links/$file" $file >>all.log 2>&1; done
./store put "$uri" ep1.bin small >>all.log 2>&1
./ckpt cp $uri/links/way.symlink $uri/deep/er/way.symlink >out.log 2>&1 &&
    ./store get "$uri" deep/er/way.symlink back >>out.log 2>&1 && cmp -s way.symlink back
check 'ckpt cp of a link whose target is there' out.log
./ckpt cp $uri/links/lost.symlink $uri/links/other.symlink >out.log 2>&1
[ $? = 4 ] && grep -q 'leads to some/prefix/gone.bin, which is not where' out.log
check 'and not of one that leads nowhere' out.log

#-- faults -------------------------------------------------------------------------------------------------

# fault NAME FAULTS VERB: the file must be right in the end
fault() {
    control "{\"clear\":true,\"faults\":$2}" >/dev/null
    ./store "$3" "$uri" "fault/$1" big >out.log 2>err.log && ./store get "$uri" "fault/$1" back >>out.log 2>>err.log && cmp -s big back
    check "$1" out.log
    cat err.log >>all.log
}
fault 'a part is cut off' '[{"match":"CLOUD PUT","drop":3000000,"times":3}]' new
fault 'a part is refused with 503' '[{"match":"CLOUD PUT","status":503,"code":"SlowDown","times":2}]' put
fault 'the reply to a part is lost' '[{"match":"CLOUD PUT","skip":1,"lose":true}]' new
fault 'no address for a part, twice' '[{"match":"create-upload-part","skip":2,"status":503,"times":2}]' put
fault 'the reply to the begin is lost' '[{"match":"initiate-upload","lose":true}]' put
control '{"forget":true}' >/dev/null               # the one of the lost reply: the service lists none
fault 'the reply to the end is lost' '[{"match":"complete-upload","lose":true}]' new
fault 'the end is refused with 503' '[{"match":"complete-upload","status":503}]' put
fault 'a range of the download is refused with 429' '[{"match":"GET /api/2.0/fs/files","status":429,"code":"REQUEST_LIMIT_EXCEEDED"}]' put
control '{"clear":true,"link_life":-5,"faults":[]}' >/dev/null
(sleep 1.5; control '{"link_life":3600}' >/dev/null) &
./store put "$uri" fault/late big >out.log 2>>all.log && ./store get "$uri" fault/late back >>out.log 2>>all.log && cmp -s big back
check 'addresses that have run out are asked for anew' out.log
wait $! 2>/dev/null
control '{"clear":true,"faults":[{"match":"PUT /api/2.0/fs/files","lose":true}]}' >/dev/null
./store new "$uri" fault/lost small >out.log 2>>all.log
check 'create only: its own lost reply is recognised' out.log
./store new "$uri" fault/lost small >out.log 2>>all.log
[ $? = 1 ] && grep -q 'CKPT_EXISTS' out.log
check 'create only: what is there stays' out.log
./store new "$uri" fault/late big >out.log 2>>all.log
[ $? = 1 ] && grep -q 'CKPT_EXISTS' out.log && asked | grep -q '"uploads":0,'      # nothing was begun
check 'create only, in parts: what is there stays' out.log
control '{"clear":true,"no_links":true}' >/dev/null
./store put "$uri" fault/whole big >out.log 2>>all.log && ./store get "$uri" fault/whole back >>out.log 2>>all.log && cmp -s big back && ! asked | grep -q 'CLOUD'
check 'a workspace that signs no addresses: in one request' out.log
control '{"clear":true,"resumable":true}' >/dev/null
./store put "$uri" fault/stream big >out.log 2>>all.log && ./store get "$uri" fault/stream back >>out.log 2>>all.log && cmp -s big back && ! asked | grep -q 'CLOUD'
check 'a workspace that offers a stream and signs no address: in one request' out.log

# Google Cloud: one resumable upload. Whole multiples of what it counts in, and what they do not hold.
control '{"clear":true,"forget":true,"no_links":false}' >/dev/null
NO_PARTS=1 ./store contract "$uri/streams" >contract.log 2>&1
check 'a stream: the contract' contract.log
cat contract.log >>all.log
fault 'a stream' '[]' put
[ "$(asked | tr '"' '\n' | grep -c 'CLOUD PUT.*op=stream')" = 6 ] && asked | grep -q '"uploads":0,'
check 'a stream: a request for each part and one for the end'
head -c 20971520 big >even
./store new "$uri" fault/even even >out.log 2>>all.log && ./store get "$uri" fault/even back >>out.log 2>>all.log && cmp -s even back
check 'a stream: nothing is left for its end' out.log
fault 'a stream: a part is cut off, thrice' '[{"match":"CLOUD PUT","drop":3000000,"times":3}]' new
fault 'a stream: refused with 503' '[{"match":"CLOUD PUT","status":503,"code":"SlowDown","times":2}]' put
fault 'a stream: lost replies' '[{"match":"CLOUD PUT","lose":true},{"match":"CLOUD PUT","skip":3,"lose":true}]' put
fault 'a stream: the reply to the end is lost' '[{"match":"CLOUD PUT","skip":5,"lose":true}]' new
fault 'a stream: the replies to begin and address are lost' '[{"match":"initiate-upload","lose":true},{"match":"create-resumable","lose":true}]' put
control '{"forget":true,"keep_half":true}' >/dev/null
fault 'a stream: the cloud keeps half of each piece' '[]' new
control '{"keep_half":false}' >/dev/null
fault 'a stream: the cloud forgets it' '[{"match":"CLOUD PUT","skip":2,"status":410,"code":"gone"}]' put
./store new "$uri" fault/even even >out.log 2>>all.log
[ $? = 1 ] && grep -q 'CKPT_EXISTS' out.log
check 'a stream, create only: what is there stays' out.log
control '{"clear":true,"forget":true,"faults":[{"match":"CLOUD PUT","skip":2,"hang":true,"times":9}]}' >/dev/null
killed_when '[ "$(puts)" -ge 3 ]' 0.3 ./store upload "$uri" stream-killed big "$work/staging"
goes_on "$uri" "$work/staging" stream-killed big && ! asked | grep -q 'killed?action=initiate' && [ "$(puts)" -le 5 ] && asked | grep -q '"uploads":0,'
check 'a stream: a dead process: the next one goes on with it' out.log
for replaces in '' STORE_REPLACE=1; do
    control '{"clear":true,"forget":true,"faults":[{"match":"CLOUD PUT","skip":5,"hang":true}]}' >/dev/null
    killed_when "asked | grep -q '\"times\":0'" 0.3 env $replaces ./store upload "$uri" "stream-ended$replaces" big "$work/staging"
    goes_on "$uri" "$work/staging" "stream-ended$replaces" big && ! asked | grep -q 'ended[^?]*?action=initiate' && [ "$(puts)" -le 2 ]
    check "a stream: a dead process that had ended it${replaces:+, of what is replaced}: nothing is sent again" out.log
    cat err.log >>all.log
done
control '{"clear":true,"forget":true,"resumable":false,"need_folders":true}' >/dev/null
./store put "$uri" deep/down/there small >out.log 2>>all.log
check 'a folder that is not made by a put' out.log
./store put dbfs:/Volumes/main/default/ckpt/fresh/place there small >out.log 2>>all.log
check 'nor is the one that the address names' out.log
./store put dbfs:/Volumes/main/default/ckpt/fresh/parts deep/big big >out.log 2>>all.log && asked | grep -q 'deep/big?action=complete-upload'
check 'nor the one of a first file in parts' out.log
control '{"need_folders":false}' >/dev/null

# A process that dies in the middle: the next one goes on with its session, and sends no part twice.
control '{"clear":true,"forget":true,"faults":[{"match":"CLOUD PUT","skip":2,"hang":true,"times":9}]}' >/dev/null
killed_when '[ "$(puts)" -ge 4 ]' 1 ./store upload "$uri" killed big "$work/staging"
goes_on "$uri" "$work/staging" killed big && ! asked | grep -q 'killed?action=initiate-upload' && [ "$(puts)" -le 3 ] && asked | grep -q '"uploads":0,'
check 'a dead process: the next one goes on with its session' out.log
# One that dies as it has ended its session: the next one reads the file back, and sends nothing.
control '{"clear":true,"faults":[{"match":"complete-upload","hang":true}]}' >/dev/null
killed_when "asked | grep -q 'complete-upload&'" 0 ./store upload "$uri" ended big "$work/staging"
goes_on "$uri" "$work/staging" ended big && [ "$(puts 'CLOUD PUT\|ended?action=')" = 0 ]
check 'a dead process that had ended its session: nothing is sent again' out.log
cat err.log >>all.log
asked >state.log

#-- secrets ------------------------------------------------------------------------------------------------

cat contract.log >>all.log
[ -s all.log ] && ! grep -qE 'dapi[0-9a-f]|dose[0-9a-f]|session-|eyJ[A-Za-z0-9]|Signature=|Bearer [^ ]' all.log
check 'no secret in any log or sentence' all.log

#-- Databricks' own client ---------------------------------------------------------------------------------

if vendor_has @databricks/sdk-experimental; then
    ./store put "$uri" 'vendor/whole 1+%' small >out.log 2>&1
    ./store put "$uri" vendor/parts big >>out.log 2>&1
    cat >vendor.js <<'JS'
const { WorkspaceClient } = require(process.env.VENDOR + '/@databricks/sdk-experimental');
const fs = require('fs'), assert = require('assert'), http = require('http');
(async () => {
    const w = new WorkspaceClient({ host: process.env.DATABRICKS_HOST, token: process.env.DATABRICKS_TOKEN }), base = process.env.FOLDER;
    w.config.fixHost = () => { w.config.host = process.env.DATABRICKS_HOST; };      // it knows https on port 443 only
    w.apiClient._agent = new http.Agent({ keepAlive: false });
    for (const [name, path] of [['whole 1+%', 'small'], ['parts', 'big']]) {
        const r = await w.files.download({ file_path: `${base}/vendor/${encodeURIComponent(name)}` }), parts = [];
        for await (const c of r.contents) parts.push(Buffer.from(c));
        assert(Buffer.concat(parts).equals(fs.readFileSync(path)), name);
    }
    const names = [];
    for await (const e of w.files.listDirectoryContents({ directory_path: `${base}/vendor` })) names.push(`${e.name}=${e.file_size}`);
    assert.deepStrictEqual(names.sort(), ['parts=23000077', 'whole 1+%=100000']);
})().catch((e) => { console.log(e); process.exit(1); });
JS
    VENDOR=$vendor FOLDER=/Volumes/main/default/ckpt/some/prefix node vendor.js >vendor.log 2>&1
    check '@databricks/sdk-experimental reads and lists what we put' vendor.log
    # Its own upload (0.17) sends no body, so that there is nothing of it to read.
else
    echo "SKIP: @databricks/sdk-experimental: not installed (CKPT_LONG=1 has npm install it, CKPT_NODE_MODULES says where it is)"
fi

[ $failures = 0 ]
