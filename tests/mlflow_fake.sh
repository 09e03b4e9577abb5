#!/bin/sh
# mlflow_fake.sh: mlflow-artifacts: and dbfs:/databricks/mlflow-tracking/... against tests/servers/fake-databricks.js: the contract of all stores on
# the proxy, with and without parts, and on each of the clouds behind Databricks; logins, runs that are made, lost connections and replies, a kill,
# no secret in any output. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
command -v curl >/dev/null 2>&1 || { echo "no curl to talk to servers/fake-databricks.js with"; exit 77; }
compile_stores
mkdir home
node_server srv fake-databricks.js
. srv/env
control() { curl -s --noproxy '*' -d "$1" "$FAKE_URL/_control"; }
asked() { curl -s --noproxy '*' "$FAKE_URL/_control"; }

# Nothing of the user's own may take part.
for v in $(env | sed -n 's/^\(MLFLOW_[A-Z_]*\|DATABRICKS_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
unset RANK WORLD_SIZE
HOME=$work/home STORE_PART=5242880 STORE_DEBUG=1
export HOME STORE_PART STORE_DEBUG
for file in big older; do head -c 23000077 /dev/urandom >$file; done
head -c 100000 big >small
: >all.log

contract() {
    ./store contract "$2" >contract.log 2>&1
    rc=$?
    n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
    if [ $rc = 0 ] && [ "${n:-0}" -gt 15 ]; then pass "contract: $1 ($n tests)"; else fail "contract: $1" contract.log; fi
    cat contract.log >>all.log
    asked >state.log
    grep -q '"wrong":\[\]' state.log
    check "$1: nothing was sent that the services forbid"
    control '{"clear":true,"forget":true}' >/dev/null
}
# there NAME URI VERB: the file must be right in the end
there() {
    ./store "$3" "$2" "fault/$1" big >out.log 2>err.log && ./store get "$2" "fault/$1" back >>out.log 2>>err.log && cmp -s big back
    check "$1" out.log
    cat out.log err.log >>all.log
}
# refused NAME PATTERN URI: a put fails with a sentence
refused() {
    ./store put "$3" x small >out.log 2>err.log
    [ $? = 1 ] && grep -q "$2" out.log
    check "$1" out.log
    cat out.log err.log >>all.log
}

#-- the proxy of a tracking server ---------------------------------------------------------------------------

MLFLOW_TRACKING_URI=$FAKE_URL
export MLFLOW_TRACKING_URI
proxy=mlflow-artifacts:/77/0123abcd/artifacts/some
refused 'no login' 'CKPT_AUTH.*none is set' "$proxy"
MLFLOW_TRACKING_USERNAME=$FAKE_USER MLFLOW_TRACKING_PASSWORD=wrong-$FAKE_PASSWORD
export MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD
refused 'a password that is wrong' 'CKPT_AUTH.*401' "$proxy"
MLFLOW_TRACKING_PASSWORD=$FAKE_PASSWORD
contract 'the proxy' "$proxy"
there 'the proxy: a big file in one piece' "$proxy" new
control '{"faults":[{"match":"PUT /api","drop":9000000},{"match":"PUT /api","status":503},{"match":"GET /api/2.0/mlflow-artifacts/artifacts/","status":500}]}' >/dev/null
there 'the proxy: cut off' "$proxy" put
control '{"faults":[{"match":"PUT /api","lose":true}]}' >/dev/null
there 'the proxy: a reply that is lost' "$proxy" put
MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD=true MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=1000000
export MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE
control '{"clear":true}' >/dev/null
there 'the proxy: parts that are not offered' "$proxy" put
asked | grep -q 'mpu/create' && ! asked | grep -q 'CLOUD'
check 'they were asked for'
control '{"mpu":true}' >/dev/null
MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=1 contract 'the proxy, with parts' "$proxy"
control '{"faults":[{"match":"CLOUD PUT","drop":3000000},{"match":"CLOUD PUT","status":503,"code":"SlowDown"},{"match":"CLOUD PUT","lose":true},{"match":"mpu/complete","lose":true}]}' >/dev/null
there 'the proxy, with parts: cut off, 503, lost replies' "$proxy" put
asked | grep -q '"faults":\[[^]]*"times":0[^]]*"times":0[^]]*"times":0[^]]*"times":0'
check 'all of these happened'
# Refused twice over a file of the same size: that one is not taken for ours.
control '{"clear":true,"forget":true,"faults":[]}' >/dev/null
./store put "$proxy" older older >out.log 2>>all.log
control '{"clear":true,"faults":[{"match":"mpu/complete","status":500,"times":2}]}' >/dev/null
./store put "$proxy" older big >>out.log 2>>all.log && ./store get "$proxy" older back >>out.log 2>>all.log && cmp -s big back && [ "$(puts mpu/complete)" -ge 3 ]
check 'the proxy, with parts: a file of the same size that was there before is not believed' out.log
control '{"clear":true,"forget":true,"faults":[{"match":"CLOUD PUT","skip":2,"hang":true,"times":9}]}' >/dev/null
killed_when '[ "$(puts)" -ge 4 ]' 0 ./store upload "$proxy" killed big "$work/staging"
goes_on "$proxy" "$work/staging" killed big && asked | grep -q 'mpu/abort'
check 'the proxy, with parts: a dead process: the next one begins anew, and gives the other up' out.log
unset MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE
control '{"oss":true}' >/dev/null
./store uri "mlflow-artifacts:/{mlflow_experiment_id}/{mlflow_run_id}/artifacts/ckpt" x >out.log 2>>all.log && grep -qE '^mlflow-artifacts:/10[0-9]/[0-9a-f]{32}/artifacts/ckpt/x$' out.log
check 'a run is made, in an experiment that is made' out.log
MLFLOW_RUN_ID=0123abcd ./store uri "mlflow-artifacts:/{mlflow_experiment_id}/{mlflow_run_id}/artifacts/ckpt" x >out.log 2>>all.log && grep -q '^mlflow-artifacts:/77/0123abcd/artifacts/ckpt/x$' out.log
check 'a run that goes on' out.log
control '{"oss":false}' >/dev/null
unset MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD
control '{"open":true}' >/dev/null
./store put "$proxy" open small >out.log 2>>all.log
check 'a server without logins' out.log
control '{"open":false,"clear":true}' >/dev/null

#-- Databricks ---------------------------------------------------------------------------------------------

MLFLOW_TRACKING_URI=databricks DATABRICKS_HOST=$FAKE_URL DATABRICKS_TOKEN=$FAKE_TOKEN
export DATABRICKS_HOST DATABRICKS_TOKEN
managed=dbfs:/databricks/mlflow-tracking/77/0123abcd/artifacts
control '{"page":7}' >/dev/null
clouds='aws azure adls'
[ "${CKPT_LONG:-0}" = 1 ] && clouds="$clouds gcp"
for cloud in $clouds; do
    control "{\"cloud\":\"$cloud\"}" >/dev/null
    case $cloud in gcp) NO_PARTS=1; export NO_PARTS;; adls) NO_PARTS=lake; export NO_PARTS;; esac
    contract "Databricks, $cloud" "$managed/$cloud"
    control '{"faults":[{"match":"CLOUD (PUT|PATCH)","drop":3000000},{"match":"CLOUD (PUT|PATCH)","status":503,"code":"SlowDown"},{"match":"CLOUD (PUT|PATCH)","skip":1,"lose":true},{"match":"CLOUD GET","status":503,"code":"SlowDown"}]}' >/dev/null
    there "Databricks, $cloud: cut off, 503, lost replies" "$managed/$cloud" new
    control '{"clear":true,"forget":true,"faults":[]}' >/dev/null
done
unset NO_PARTS
control '{"page":1000,"link_life":-5}' >/dev/null
for cloud in aws azure gcp adls; do
    control "{\"clear\":true,\"cloud\":\"$cloud\",\"link_life\":-5}" >/dev/null
    (sleep 1.5; control '{"link_life":3600}' >/dev/null) &
    there "Databricks, $cloud: addresses that have run out" "$managed/$cloud" put
    wait $! 2>/dev/null
done
for cloud in aws azure; do
    control "{\"clear\":true,\"cloud\":\"$cloud\"}" >/dev/null
    control '{"clear":true,"forget":true,"faults":[{"match":"CLOUD PUT","skip":2,"hang":true,"times":9}]}' >/dev/null
    killed_when '[ "$(puts)" -ge 4 ]' 1 ./store upload "$managed" "killed-$cloud" big "$work/staging-$cloud"
    goes_on "$managed" "$work/staging-$cloud" "killed-$cloud" big && [ "$(puts)" -le 4 ]
    check "Databricks, $cloud: a dead process: the next one goes on" out.log
    # A file that is replaced by another before it was through: nothing of it is left, though on AWS only its own process could give it up.
    control '{"clear":true,"forget":true,"faults":[{"match":"CLOUD PUT .*(op=part|comp=block&)","skip":2,"hang":true,"times":99}]}' >/dev/null
    killed_when '[ "$(puts)" -ge 3 ]' 2 env STORE_REPLACE=1 STORE_SECOND=small ./store upload "$managed" "replaced-$cloud" big "$work/staging-$cloud"
    goes_on "$managed" "$work/staging-$cloud" "replaced-$cloud" small && ! ls "$work/staging-$cloud" | grep '\.upload$\|\.data$' >>out.log
    check "Databricks, $cloud: a dead process, and another file of that name: nothing is left" out.log
    # One that dies as it has ended its upload: the next one reads the file back, and sends nothing.
    for how in 'STORE_REPLACE=1 false' ' false' 'STORE_REPLACE=1 true'; do
        replaces=${how% *} blind=${how#* }
        control '{"clear":true,"forget":true,"faults":[{"match":"complete-multipart-upload|comp=blocklist","hang":true}]}' >/dev/null
        killed_when "asked | grep -q '\"times\":0'" 0.3 env $replaces ./store upload "$managed" "ended-$cloud$replaces" big "$work/staging-$cloud"
        control "{\"blind\":$blind}" >/dev/null
        goes_on "$managed" "$work/staging-$cloud" "ended-$cloud$replaces" big && [ "$(puts 'CLOUD PUT.*\(op=part\|comp=block&\)')" = 0 ]
        check "Databricks, $cloud: a dead process that had ended its upload${replaces:+, of what is replaced}, blind: $blind: nothing is sent again" out.log
    done
    control '{"blind":false}' >/dev/null
done
# A lake shows the file as soon as it is begun, without bytes: what a dead process has left so is no object, and the next one goes on.
control '{"clear":true,"forget":true,"cloud":"adls","faults":[{"match":"CLOUD PATCH .*append","hang":true,"times":9}]}' >/dev/null
killed_when '[ "$(puts "CLOUD PATCH")" -ge 1 ]' 0.3 ./store upload "$managed" killed-adls big "$work/staging-adls"
./store get "$managed" killed-adls back >out.log 2>>all.log && [ ! -s back ]
check 'Databricks, adls: a dead process has left a name' out.log
goes_on "$managed" "$work/staging-adls" killed-adls big
check 'Databricks, adls: and the next one goes on' out.log
# Clouds that keep less than they acknowledge, or name a part otherwise than they know it.
for lie in 'aws "keep":1000' 'aws "etag":"\"0123\""' 'azure "keep":1000' 'gcp "keep":1000' 'adls "keep":1000'; do
    cloud=${lie%% *}
    control "{\"clear\":true,\"forget\":true,\"cloud\":\"$cloud\",\"faults\":[{\"match\":\"CLOUD (PUT .*(op=part|comp=block&|Signature=[0-9a-f]*$)|PATCH .*append)\",${lie#* }}]}" >/dev/null
    there "Databricks, $cloud: a cloud that lies: ${lie#* }" "$managed/lies" put
    asked | grep -q '"times":0'
    check 'it did'
done
# Refusals that quote the address.
for cloud in aws azure gcp adls; do
    control "{\"clear\":true,\"cloud\":\"$cloud\",\"tell\":true,\"faults\":[{\"match\":\"CLOUD\",\"status\":403,\"code\":\"AccessDenied\",\"times\":9}]}" >/dev/null
    for i in 1 2 3; do refused "Databricks, $cloud: a refusal that quotes the address ($i)" 'CKPT_AUTH.*the cloud answered 403 AccessDenied' "$managed"; done
done
control '{"clear":true,"tell":false,"faults":[]}' >/dev/null
control '{"cloud":"aws"}' >/dev/null
refused 'a run that is not there' 'CKPT_NOT_FOUND.*MLflow run ffff' dbfs:/databricks/mlflow-tracking/77/ffff/artifacts
refused 'a run of another experiment' 'CKPT_ARG.*of experiment 77, not of 78' dbfs:/databricks/mlflow-tracking/78/0123abcd/artifacts
./store uri 'dbfs:/databricks/mlflow-tracking/{mlflow_experiment_id}/{mlflow_run_id}/artifacts' x >out.log 2>>all.log && grep -qE '^dbfs:/databricks/mlflow-tracking/10[0-9]/[0-9a-f]{32}/artifacts/x$' out.log
check 'Databricks: a run is made' out.log
./store put "$(sed 's,/x$,,' out.log)" x small >out.log 2>>all.log
check 'Databricks: and used' out.log

#-- secrets ------------------------------------------------------------------------------------------------

[ -s all.log ] && ! grep -qE 'dapi[0-9a-f]|pass-[0-9a-f]|Signature=|Bearer [^ ]|Basic [^ ]' all.log
check 'no secret in any log or sentence' all.log
[ "$(wc -l <srv/signed)" -gt 100 ] && ! grep -qFf srv/signed all.log
check 'no signature of an address either' all.log
asked >state.log
grep -q '"wrong":\[\]' state.log
check 'nothing was sent that the services forbid'

[ $failures = 0 ]
