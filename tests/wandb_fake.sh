#!/bin/sh
# wandb_fake.sh: wandb:// against tests/servers/fake-wandb.js: the contract of all stores (what is about parts is counted as skipped),
# where the key comes from, names, versions, refusals, faults on the way, no secret in any output. run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
compile_stores
unset WANDB_RUN_ID WANDB_BASE_URL WANDB_API_KEY NETRC
node_server srv fake-wandb.js
. "$work/srv/env"
STORE_DEBUG=1
export WANDB_BASE_URL WANDB_API_KEY STORE_DEBUG
control() { curl -sS --noproxy '*' -d "$1" "$WANDB_BASE_URL/_control"; }
asked() { curl -sS --noproxy '*' "$WANDB_BASE_URL/_control"; }
uri=wandb://ent/proj/some/prefix
head -c 23000077 /dev/urandom >big
head -c 100000 big >small
head -c 1000 big >tiny
: >empty

./store contract $uri >contract.log 2>&1
rc=$?
n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' contract.log)
if [ $rc = 0 ] && [ "${n:-0}" -gt 15 ]; then pass "contract ($n tests, ${skipped:-0} skipped)"; else fail contract contract.log; fi
sed -n 's/^\[  SKIPPED \] \(contract_test_[a-z_]*\).*/SKIP: \1: W\&B has no such operation/p' contract.log | sort -u
asked >wrong.log
grep -q '"wrong":\[\]' wrong.log
check 'nothing was sent that the open-source client would not send' wrong.log
grep -q '"artifacts":{}' wrong.log
check 'nothing is left behind' wrong.log

#-- links, by the tool ---------------------------------------------------------------------------------------

# Its text counts from the top of the store, where what the URI begins with is no store yet.
compile "$root/tools/ckpt.c" ckpt -lcurl -lcrypto -lpthread -lm
printf 'some/prefix/ep1.bin' >way.symlink
printf 'some/prefix/gone.bin' >lost.symlink
for file in way.symlink lost.symlink; do ./store put $uri "links/$file" $file >>all.log 2>&1; done
./store put $uri ep1.bin small >>all.log 2>&1
./ckpt cp $uri/links/way.symlink $uri/deep/er/way.symlink >out.log 2>&1 &&
    ./store get $uri deep/er/way.symlink back >>out.log 2>&1 && cmp -s way.symlink back
check 'ckpt cp of a link whose target is there' out.log
./ckpt cp $uri/links/lost.symlink $uri/links/other.symlink >out.log 2>&1
[ $? = 4 ] && grep -q 'leads to some/prefix/gone.bin, which is not where' out.log
check 'and not of one that leads nowhere' out.log

#-- keys, runs, addresses ------------------------------------------------------------------------------------

# works NAME COMMAND...: an object goes up and comes down.
works() {
    what=$1
    shift
    rm -f back
    "$@" ./store put $uri "as $what.pt" small >out.log 2>>all.log && "$@" ./store get $uri "as $what.pt" back >>out.log 2>>all.log && cmp -s small back
    check "$what" out.log
    cat out.log >>all.log
}
works 'WANDB_API_KEY'
host=${WANDB_BASE_URL#http://}
printf '# wandb login\nmachine example.com\n  login user\n  password wrong\nmachine %s login user password %s\n' "$host" "$WANDB_API_KEY" >.netrc
works '~/.netrc' env -u WANDB_API_KEY
printf 'macdef init\nmachine %s password wrong\n\ndefault login user password "%s"\n' "$host" "$WANDB_API_KEY" >netrc.other
rm .netrc
works 'NETRC, the default entry' env -u WANDB_API_KEY NETRC="$work/netrc.other"
works 'the run of WANDB_RUN_ID' env WANDB_RUN_ID=live-run
control '{"relative":true}' >/dev/null
works 'addresses without a host'
control '{"relative":false}' >/dev/null
works 'an address that ends with a slash' env WANDB_BASE_URL="$WANDB_BASE_URL/"
./store put wandb://ent/new-project/x a.pt small >out.log 2>>all.log && ./store get wandb://ent/new-project/x a.pt back >>out.log 2>>all.log && cmp -s small back
check 'a project that is not there yet' out.log
./store put wandb://ent/proj root.pt empty >out.log 2>>all.log && ./store get wandb://ent/proj root.pt none >>out.log 2>>all.log && [ -f none ] && [ ! -s none ]
check 'no prefix, an empty object' out.log
./store save wandb://ent/proj/runs/a >out.log 2>>all.log
check 'a saver saves there, another resumes from there, a URI loads' out.log

# refused NAME WORD... -- COMMAND: the failure's line must hold all the words.
refused() {
    what=$1
    shift
    : >want
    while [ "$1" != -- ]; do echo "$1" >>want; shift; done
    shift
    if "$@" >refused.log 2>>all.log; then fail "$what: it was allowed" refused.log; return; fi
    cat refused.log >>all.log
    while read -r word; do grep -qiF -- "$word" refused.log || { fail "$what: the sentence does not speak of '$word'" refused.log; return; }; done <want
    pass "$what"
}
other=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
refused 'no key' CKPT_AUTH WANDB_API_KEY netrc "machine $host" -- env -u WANDB_API_KEY ./store put $uri x.pt small
refused 'a wrong key' CKPT_AUTH 401 WANDB_API_KEY -- env WANDB_API_KEY="$other" ./store put $uri x.pt small
refused 'a key that is none' CKPT_AUTH characters -- env WANDB_API_KEY="two words" ./store put $uri x.pt small
refused 'another entity' CKPT_AUTH 403 -- ./store put wandb://someone/proj x.pt small
refused 'a project that is not there' CKPT_NOT_FOUND project -- ./store list wandb://ent/nothing ''
refused 'no artifact' CKPT_NOT_FOUND some.prefix.nothing ent/proj -- ./store stat $uri nothing
refused 'no project in the URI' CKPT_ARG 'wandb://ENTITY/PROJECT' -- ./store stat wandb://ent x
refused 'an address without TLS' CKPT_ARG https -- env WANDB_BASE_URL=http://api.wandb.test ./store stat $uri x
refused 'a name that is too long' CKPT_ARG 128 -- ./store put $uri "$(printf '%0130d' 0).pt" small
control '{"deny":"permission denied"}' >/dev/null
refused "GraphQL's own refusal" CKPT_AUTH 'permission denied' -- ./store stat $uri x

#-- names and versions ---------------------------------------------------------------------------------------

./store put $uri 'run/ep1 (a).pt' small >out.log 2>>all.log && ./store get $uri 'run/ep1 (a).pt' back >>out.log 2>>all.log && cmp -s small back &&
    asked >names.log && grep -q '"some.prefix.run.ep1..a..pt":\[{"state":"COMMITTED","type":"model","files":\["ep1 (a).pt"\]' names.log && ./store list $uri run/ >list.log 2>>all.log &&
    grep -q '^100000 run/ep1 (a).pt$' list.log
check "Composer's name and type, and our own in the listing" out.log
refused 'a name that becomes the same artifact' CKPT_EXISTS some.prefix.run.ep1..a..pt -- ./store put $uri 'run/ep1 [a].pt' tiny
refused 'and is not taken for the other' CKPT_NOT_FOUND 'another object' -- ./store get $uri 'run/ep1 [a].pt' back3
./store put $uri again.pt small >out.log 2>>all.log && ./store put $uri again.pt tiny >>out.log 2>>all.log && ./store get $uri again.pt back >>out.log 2>>all.log &&
    cmp -s tiny back && ./store put $uri again.pt small >>out.log 2>>all.log && ./store get $uri again.pt back >>out.log 2>>all.log && cmp -s small back
check 'a new version, and the contents of an old one again' out.log
refused 'create only: what is there stays' CKPT_EXISTS -- ./store new $uri again.pt tiny
./store put $uri moving.pt big >out.log 2>>all.log
(sleep 1; ./store put $uri moving.pt small >/dev/null 2>&1) &
STORE_PAUSE=3 ./store raw-get $uri moving.pt back 1048576 >>out.log 2>>all.log && cmp -s big back
check 'ranges are of one version, though a newer one comes' out.log
wait $! 2>/dev/null
./store put $uri aging.pt big >out.log 2>>all.log
control '{"life":1}' >/dev/null
STORE_PAUSE=2 ./store raw-get $uri aging.pt back 1048576 >>out.log 2>>all.log && cmp -s big back
check 'an address that is too old is asked for again' out.log
control '{"life":3600,"foreign":"some.prefix.aging.pt"}' >/dev/null
./store get $uri aging.pt back >out.log 2>>all.log && cmp -s big back && ./store list $uri aging >list.log 2>>all.log && grep -q '^23000077 aging.pt$' list.log
check "an artifact of others, with Composer's metadata" out.log
control '{"several":"some.prefix.aging.pt"}' >/dev/null
refused 'an artifact of several files' CKPT_UNSUPPORTED several -- ./store get $uri aging.pt back
./store put $uri damaged.pt small >out.log 2>>all.log
control '{"corrupt":"some.prefix.damaged.pt"}' >/dev/null
refused 'a byte that changed in the storage' CKPT_CORRUPT checksum -- ./store get $uri damaged.pt back4
[ ! -e back4 ]
check 'and nothing is left of it'

#-- faults ---------------------------------------------------------------------------------------------------

# fault NAME FAULTS [new]: the object must be right in the end, and the fault must have happened.
fault() {
    control "{\"faults\":[$2]}" >/dev/null
    rm -f back
    head -c 200000 /dev/urandom >fresh
    ./store "${3:-put}" $uri "fault $1.pt" fresh >out.log 2>>all.log && ./store get $uri "fault $1.pt" back >>out.log 2>>all.log && cmp -s fresh back
    rc=$?
    asked >left.log
    case $(sed 's/.*"faults":\[\([0-9,]*\)\].*/\1/' left.log) in *[1-9]*) echo 'the fault was not met' >>out.log; rc=1 ;; esac
    [ $rc = 0 ]
    check "$1" out.log
    cat out.log >>all.log
}
for op in project upsertBucket createArtifact createArtifactManifest createArtifactFiles commitArtifact; do
    fault "$op: 503" "{\"match\":\"graphql $op\$\",\"status\":503}"
    fault "$op: the reply is lost" "{\"match\":\"graphql $op\$\",\"lose\":true}"
    fault "$op: half of the reply" "{\"match\":\"graphql $op\$\",\"cut\":true}"
done
fault '429' '{"match":"graphql createArtifactFiles$","status":429}'
fault 'the storage: 503, a lost reply' '{"match":"PUT /storage/some","status":503},{"match":"PUT /storage/some","lose":true}'
fault 'the manifest: a lost reply' '{"match":"PUT /storage/manifests","lose":true}'
fault 'a download: 500, half of it' '{"match":"GET /storage/","status":500},{"match":"GET /storage/","lose":true}'
fault 'create only: a lost reply of the end' '{"match":"graphql commitArtifact$","lose":true}' new
STORE_STALL=2 fault 'no answer' '{"match":"graphql createArtifact$","hang":true}'
control '{"faults":[]}' >/dev/null
mkdir stage
head -c 23000077 /dev/urandom >big
control '{"faults":[{"match":"PUT /storage/some.prefix.killed","hang":true,"times":9}]}' >/dev/null
./store upload $uri killed.pt big "$work/stage" >out.log 2>>all.log &
pid=$!
i=0
until asked | grep -q 'PUT /storage/some.prefix.killed'; do i=$((i + 1)); [ $i -lt 200 ] || break; sleep 0.05; done
kill -9 $pid
wait $pid 2>/dev/null
control '{"faults":[]}' >/dev/null
./store upload $uri '' '' "$work/stage" >out.log 2>>all.log && ./store get $uri killed.pt back >>out.log 2>>all.log && cmp -s big back
check 'a dead process: the next one brings it there' out.log

asked >wrong.log
grep -q '"wrong":\[\]' wrong.log
check 'and still nothing was sent against the rules' wrong.log

#-- secrets --------------------------------------------------------------------------------------------------

cat contract.log >>all.log
find stage -type f -name '*.upload' -exec cat {} + >>all.log
basic=$(printf 'api:%s' "$WANDB_API_KEY" | base64 | tr -d '\n')
[ -s all.log ] && ! grep -qaF "$WANDB_API_KEY" all.log && ! grep -qaF "$other" all.log && ! grep -qaF "$basic" all.log && ! grep -qaE 'X-Signature=|Basic [A-Za-z0-9+/]{20}' all.log
check 'no key and no signed address in any log or sentence' wrong.log
[ $failures = 0 ]
