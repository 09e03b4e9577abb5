#!/bin/sh
# s3_rgw.sh: s3:// against a real server, Ceph's gateway, over http and TLS with its own CA: the contract of all stores, refusals,
# a wrong clock, a gateway killed in mid upload, and what awscli and boto3 make of our objects and we of theirs.
# With CKPT_LONG=1 the contract runs for every way of addressing and of guarding bytes, and the gateway dies more often.
# run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
rgw() { sh "$tests/servers/rgw.sh" "$@"; }
compile_stores
rgw up "$work/rgw" both || exit $?
. "$work/rgw/env"
rgw bucket "$work/rgw" ckpt-one || exit 1
rgw bucket "$work/rgw" dotted.bucket.name || exit 1
AWS_ACCESS_KEY_ID=$RGW_KEY AWS_SECRET_ACCESS_KEY=$RGW_SECRET AWS_CA_BUNDLE=$RGW_CA S3_ENDPOINT_URL=$RGW_HTTP STORE_PATIENCE=20
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_CA_BUNDLE S3_ENDPOINT_URL STORE_PATIENCE
uri=s3://ckpt-one/some/prefix

#-- the contract of all stores -----------------------------------------------------------------------------

# contract NAME ENDPOINT STYLE GUARD
contract() {
    S3_ENDPOINT_URL=$2 STORE_STYLE=$3 STORE_GUARD=$4 ./store contract "$uri" >contract.log 2>&1
    rc=$?
    n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' contract.log)
    if [ $rc = 0 ] && [ "${n:-0}" -gt 15 ]; then pass "contract $1 ($n tests)"; else fail "contract $1" contract.log; fi
}
names_http=http://s3.localhost:${RGW_HTTP##*:}
names_https=https://s3.localhost:${RGW_HTTPS##*:}
contract 'http, path, signed bodies' "$RGW_HTTP" path auto
contract 'https, path, CRC-32 that the server ignores, so MD5' "$RGW_HTTPS" auto auto
contract 'http, virtual hosts, MD5' "$names_http" virtual md5
# A name with dots would not fit the certificate: the path is used although virtual hosts are wanted.
if STORE_STYLE=virtual S3_ENDPOINT_URL=$names_https ./store list s3://dotted.bucket.name '' >dotted.log 2>&1; then pass 'a bucket with dots, virtual hosts'
else fail 'a bucket with dots, virtual hosts' dotted.log; fi
if [ "${CKPT_LONG:-0}" = 1 ]; then
    contract 'https, virtual hosts, MD5' "$names_https" virtual auto
    contract 'https, signed bodies' "$RGW_HTTPS" path signed
    contract 'http, unsigned bodies' "$RGW_HTTP" path unsigned
fi

#-- refusals -----------------------------------------------------------------------------------------------

# refused NAME WORD... -- COMMAND: the failure's line must hold all the words, and none of the secrets.
refused() {
    what=$1
    shift
    : >words
    while [ "$1" != -- ]; do echo "$1" >>words; shift; done
    shift
    if "$@" >refused.log 2>&1; then fail "$what: it was allowed" refused.log; return; fi
    while read -r word; do grep -qiF -- "$word" refused.log || { fail "$what: the sentence does not speak of '$word'" refused.log; return; }; done <words
    if grep -qF -- "$RGW_SECRET" refused.log || grep -qF "wrongSecret" refused.log; then fail "$what: the secret was shown" refused.log; return; fi
    pass "$what"
}
head -c 3000 /dev/urandom >small
head -c 16777216 /dev/urandom >big
refused 'wrong secret' CKPT_AUTH SignatureDoesNotMatch AWS_SECRET_ACCESS_KEY -- env AWS_SECRET_ACCESS_KEY=wrongSecret ./store raw-put $uri x small
refused 'wrong secret at a HEAD, which tells no reason' CKPT_AUTH 403 keys -- env AWS_SECRET_ACCESS_KEY=wrongSecret ./store stat $uri x
refused 'unknown key' CKPT_AUTH InvalidAccessKeyId AWS_ACCESS_KEY_ID -- env AWS_ACCESS_KEY_ID=NOBODY ./store raw-put $uri x small
refused 'missing bucket' CKPT_NOT_FOUND 'no bucket' ckpt-none 127.0.0.1 -- ./store raw-put s3://ckpt-none/p x small
refused 'missing bucket, parts' CKPT_NOT_FOUND 'no bucket' ckpt-none -- ./store raw-put s3://ckpt-none/p x big 5242880
refused 'missing bucket, list' CKPT_NOT_FOUND 'no bucket' ckpt-none -- ./store list s3://ckpt-none ''
refused 'missing object' CKPT_NOT_FOUND 404 ckpt-one -- ./store stat $uri nothing-here
refused 'parts that are too small' CKPT_ARG EntityTooSmall -- ./store raw-put $uri x big 1000000
refused 'TLS of an unknown CA' CKPT_AUTH certificate -- env AWS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt S3_ENDPOINT_URL="$RGW_HTTPS" ./store stat $uri x
rgw admin "$work/rgw" user create --uid=other --display-name=other --access-key=OTHERKEY --secret-key=othersecret >admin.log 2>&1
refused 'a bucket of somebody else' CKPT_AUTH AccessDenied permission -- env AWS_ACCESS_KEY_ID=OTHERKEY AWS_SECRET_ACCESS_KEY=othersecret ./store raw-put $uri x small

#-- a wrong clock ------------------------------------------------------------------------------------------

if command -v faketime >/dev/null 2>&1; then
    for shift in -20m +3h; do
        if faketime -f $shift ./store raw-put $uri skewed small >skew.log 2>&1 && faketime -f $shift ./store raw-get $uri skewed skewed.$shift >>skew.log 2>&1 &&
            cmp -s small skewed.$shift && grep -q "minutes .* the server's" skew.log; then pass "clock $shift: learnt, and said"
        else fail "clock $shift" skew.log; fi
    done
    # A body in parts, whose first request is the POST.
    if faketime -f -20m ./store raw-put $uri skewed-parts big 5242880 >skew.log 2>&1; then pass 'clock -20m: parts'; else fail 'clock -20m: parts' skew.log; fi
else
    echo "SKIP: a wrong clock: no faketime"
fi

#-- a gateway that dies ------------------------------------------------------------------------------------

# Between two processes: the second one finds the parts of the first.
id=$(./store half $uri resumed big 5242880 2>/dev/null | tail -n 1)
rgw kill "$work/rgw" && rgw restart "$work/rgw"
if ./store rest $uri resumed big 5242880 "$id" >rest.log 2>&1 && grep -q '^2 parts were there' rest.log &&
    ./store raw-get $uri resumed resumed.back 3000000 >>rest.log 2>&1 && cmp -s big resumed.back; then pass 'parts survive the gateway'
else fail 'parts survive the gateway' rest.log; fi

# While parts are under way, at some moment.
rounds=2
[ "${CKPT_LONG:-0}" = 1 ] && rounds=12
head -c 67108864 /dev/urandom >huge
round=0
broken=0
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    ./store raw-put $uri crash huge 5242880 >crash.log 2>&1 &
    pid=$!
    sleep 0.$((1 + round % 3))
    rgw kill "$work/rgw" && rgw restart "$work/rgw"
    if ! wait $pid || ! ./store raw-get $uri crash crash.$round 8388608 >>crash.log 2>&1 || ! cmp -s huge crash.$round; then
        fail "gateway killed in mid upload, round $round" crash.log
        break
    fi
    grep -q '^again: ' crash.log && broken=$((broken + 1))
    rm -f crash.$round
done
[ $round = $rounds ] && pass "gateway killed in mid upload, $rounds times, $broken of them felt"
./store uploads $uri '' 2>/dev/null | sed 's/ [^ ]*$//' >uploads.log
# A begin whose reply was lost leaves an upload that nobody knows, and "x" was given up above; no other may be there.
if [ "$(grep -vc '^crash$\|^x$' uploads.log)" = 0 ]; then pass 'no upload is left open'; else fail 'uploads are left open' uploads.log; fi

# A gateway that takes two requests at a time refuses the others with a real SlowDown.
if [ "${CKPT_LONG:-0}" = 1 ]; then
    rgw down "$work/rgw"
    RGW_EXTRA='rgw max concurrent requests = 2' rgw up "$work/rgw-busy" http || exit 1
    rgw bucket "$work/rgw-busy" ckpt-busy || exit 1
    (
        . "$work/rgw-busy/env"
        AWS_ACCESS_KEY_ID=$RGW_KEY AWS_SECRET_ACCESS_KEY=$RGW_SECRET S3_ENDPOINT_URL=$RGW_HTTP
        for i in 1 2 3 4 5 6 7 8; do ./store raw-put s3://ckpt-busy object$i big 5242880 >busy.$i.log 2>&1 & done
        wait
        for i in 1 2 3 4 5 6 7 8; do ./store raw-get s3://ckpt-busy object$i busy.$i >>busy.$i.log 2>&1 && cmp -s big busy.$i || exit 1; done
    )
    rc=$?
    cat busy.*.log >busy.log
    if [ $rc = 0 ] && grep -q SlowDown busy.log; then pass 'SlowDown'; else fail SlowDown busy.log; fi
    rgw down "$work/rgw-busy"
    rgw up "$work/rgw" both || exit 1
    . "$work/rgw/env"
    AWS_ACCESS_KEY_ID=$RGW_KEY AWS_SECRET_ACCESS_KEY=$RGW_SECRET AWS_CA_BUNDLE=$RGW_CA S3_ENDPOINT_URL=$RGW_HTTP
    rgw bucket "$work/rgw" ckpt-one || exit 1
fi

#-- other clients ------------------------------------------------------------------------------------------

python=
for p in /usr/bin/python3 python3; do "$p" -c 'import boto3' >/dev/null 2>&1 && { python=$p; break; }; done
odd='a b+c&d=e%41~!*()@,$?#é'
./store raw-put $uri "$odd" small >put.log 2>&1 && ./store raw-put $uri 'in parts' big 5242880 >>put.log 2>&1 || fail 'putting for others' put.log
if [ -n "$python" ]; then
    cat >boto.py <<'PY'
import boto3, hashlib, os, sys
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
s3 = boto3.client('s3', endpoint_url=os.environ['S3_ENDPOINT_URL'], verify=os.environ['AWS_CA_BUNDLE'],
                  config=Config(s3={'addressing_style': 'path'}, signature_version='s3v4'))
odd, bucket, prefix = sys.argv[1], 'ckpt-one', 'some/prefix/'
for name, path in ((odd, 'small'), ('in parts', 'big')):
    got = s3.get_object(Bucket=bucket, Key=prefix + name)
    assert got['Body'].read() == open(path, 'rb').read(), name
    assert 'ckpt-mark' in got['Metadata'] and len(got['Metadata']['ckpt-crc32']) == 8, got['Metadata']
md5 = hashlib.md5(open('small', 'rb').read()).hexdigest()
assert s3.head_object(Bucket=bucket, Key=prefix + odd)['ETag'].strip('"') == md5
s3.put_object(Bucket=bucket, Key=prefix + 'boto/' + odd, Body=open('small', 'rb').read())
s3.upload_file('big', bucket, prefix + 'boto/parts', Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20))
s3.put_object(Bucket=bucket, Key=prefix + 'boto/empty', Body=b'')
PY
    if "$python" boto.py "$odd" >boto.log 2>&1; then pass 'boto3 reads what we put'; else fail 'boto3 reads what we put' boto.log; fi
    if ./store raw-get $uri "boto/$odd" b1 >get.log 2>&1 && cmp -s small b1 && ./store raw-get $uri boto/parts b2 3000001 >>get.log 2>&1 && cmp -s big b2 &&
        ./store raw-get $uri boto/empty b3 >>get.log 2>&1 && [ -f b3 ] && [ ! -s b3 ] && ./store list $uri boto/ >>get.log 2>&1 &&
        [ "$(grep -c ' boto/' get.log)" = 3 ] && grep -qF "3000 boto/$odd" get.log; then pass 'we read and list what boto3 put'
    else fail 'we read and list what boto3 put' get.log; fi
else
    echo "SKIP: boto3: no python3-boto3"
fi
aws=
for p in /usr/bin/aws aws; do command -v "$p" >/dev/null 2>&1 && { aws=$p; break; }; done
if [ -n "$aws" ]; then
    # From 1.36 on it sends checksums in trailers of aws-chunked bodies unless told not to, which this gateway does not know.
    cli() { AWS_REQUEST_CHECKSUM_CALCULATION=when_required AWS_RESPONSE_CHECKSUM_VALIDATION=when_required \
        "$aws" --endpoint-url "$RGW_HTTPS" --ca-bundle "$RGW_CA" s3 "$@"; }
    if cli cp --quiet "s3://ckpt-one/some/prefix/in parts" cli.big >cli.log 2>&1 && cmp -s big cli.big &&
        cli cp --quiet big s3://ckpt-one/some/prefix/cli/big >>cli.log 2>&1 &&
        S3_ENDPOINT_URL=$RGW_HTTPS ./store raw-get $uri cli/big cli.back 4000000 >>cli.log 2>&1 && cmp -s big cli.back; then pass 'awscli reads what we put, and we what it put'
    else fail 'awscli' cli.log; fi
    # A user whose rights, that to list among them, end at a folder: the trial, what is not there yet, saving, rotation, resuming.
    user='"Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::user/other"]}'
    cat >policy.json <<EOF
{"Version":"2012-10-17","Statement":[{$user,"Action":["s3:PutObject","s3:GetObject","s3:DeleteObject","s3:AbortMultipartUpload"],
"Resource":["arn:aws:s3:::ckpt-one/team/me/*"]},{$user,"Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::ckpt-one"],
"Condition":{"StringLike":{"s3:prefix":["team/me/*"]}}}]}
EOF
    ours() { AWS_ACCESS_KEY_ID=OTHERKEY AWS_SECRET_ACCESS_KEY=othersecret ./upload "s3://ckpt-one/$1/{run_name}" >ours.log 2>&1; }
    if AWS_DEFAULT_REGION=us-east-1 "$aws" --endpoint-url "$RGW_HTTP" s3api put-bucket-policy --bucket ckpt-one --policy file://policy.json >ours.log 2>&1 &&
        $quick -I"$root" "$root/examples/10_upload_s3.c" -o upload -lcurl -lcrypto -lpthread >>ours.log 2>&1 && ours team/me &&
        grep -q 'a fresh start' ours.log && rm -rf team && ours team/me && grep -q 'resumed at batch 50' ours.log; then pass 'rights that end at a folder'
    else fail 'rights that end at a folder' ours.log; fi
    if ours others; then fail 'rights that end at a folder: another one'; else
        grep -q 'others/demo/.credentials_validated_successfully' ours.log; check 'rights that end at a folder: another one is refused, and said' ours.log; fi
else
    echo "SKIP: awscli: not installed"
fi
if vendor_has @aws-sdk/client-s3; then
    node "$tests/s3_client.mjs" "$vendor" "$RGW_HTTP" ckpt-one some/prefix/ >sdk.log 2>&1
    check '@aws-sdk/client-s3 reads and lists what we put' sdk.log
    ./store raw-get $uri 'sdk/a b+c' s1 >get.log 2>&1 && cmp -s small s1 && ./store raw-get $uri sdk/empty s2 >>get.log 2>&1 && [ -f s2 ] && [ ! -s s2 ] &&
        ./store list $uri sdk/ >>get.log 2>&1 && [ "$(grep -c ' sdk/' get.log)" = 2 ]
    check 'we read and list what @aws-sdk/client-s3 put' get.log
else
    echo "SKIP: @aws-sdk/client-s3: not installed (CKPT_LONG=1 has npm install it, CKPT_NODE_MODULES says where it is)"
fi

[ $failures = 0 ]
