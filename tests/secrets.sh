#!/bin/sh
# secrets.sh: secret keys, session tokens, pass phrases, passwords and signatures get into no log line, sentence, journal, index or trace,
# whatever goes wrong, at the highest log level; redirects are not followed; ".." in names and .symlink objects is refused. See secrets.c.
# run.sh: waits
. "$(dirname "$0")/fault/net_setup.sh"
. "$tests/secrets_setup.sh"
wrong_secret=$(secret wrong/Secret+Key) token=$(secret SessionToken/with+signs=) uri_password=$(secret uripassword)
proxy_password=$(secret proxypassword) phrase=$(secret wrongphrase) end_password=$(secret endpointpassword) wrong_password=$(secret wrongpassword)
file_secret=$(secret file/Secret)
long_token=$(secret Long/Session+Token)$(od -An -N600 -tx1 /dev/urandom | tr -d ' \n')

gateway http
behind --log "$work/proxy.log" "${RGW_HTTP##*:}"
proxy=http://127.0.0.1:$port rules=$control
tell() { curl -s -o tell.log --noproxy '*' "http://127.0.0.1:$rules/$1" && grep -q '^ok' tell.log || fail "the proxy: $1" tell.log; }
sink_server --tokens
tokens=http://127.0.0.1:$port

run good SEC_ENDPOINT="$RGW_HTTP" ./secrets upload s3://net/good
run wrong-secret SEC_ENDPOINT="$RGW_HTTP" AWS_SECRET_ACCESS_KEY="$wrong_secret" ./secrets upload s3://net/wrong
run explicit SEC_ENDPOINT="$RGW_HTTP" SEC_EXPLICIT="$wrong_secret" SEC_EXPLICIT_ID="$RGW_KEY" SEC_EXPLICIT_TOKEN="$token" ./secrets upload s3://net/wrong
printf '[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = %s\naws_session_token = %s\n' "$file_secret" "$token" >credentials
run profile -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_SHARED_CREDENTIALS_FILE="$work/credentials" SEC_ENDPOINT="$RGW_HTTP" ./secrets upload s3://net/wrong
printf '#!/bin/sh\necho "{\\"Version\\": 1, \\"AccessKeyId\\": \\"A\\", \\"SecretAccessKey\\": \\"%s\\", \\"SessionToken\\": \\"%s"\n' "$file_secret" "$token" >process
chmod +x process
printf '[default]\ncredential_process = %s/process --secret %s\n' "$work" "$wrong_secret" >config
run process -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_CONFIG_FILE="$work/config" SEC_ENDPOINT="$RGW_HTTP" ./secrets upload s3://net/wrong
run expired SEC_ENDPOINT="$tokens" AWS_SESSION_TOKEN="until-1-$token" ./secrets upload s3://net/expired
run proxy http_proxy="http://user:$proxy_password@127.0.0.1:1" no_proxy= SEC_ENDPOINT=http://s3.example.test ./secrets upload s3://net/p
run endpoint SEC_ENDPOINT="http://user:$end_password@127.0.0.1:${RGW_HTTP##*:}" ./secrets upload s3://net/p
run uri SEC_ENDPOINT="$RGW_HTTP" ./secrets upload "s3://user:$uri_password@net/p"
run uri2 ./secrets upload "sftp://user:$uri_password@127.0.0.1:notaport/p"
run uri3 ./secrets upload "sftp://user:$uri_password@127.0.0.1:1/p"
run uri4 ./secrets upload "https://user:$uri_password@127.0.0.1:1/p?X-Amz-Signature=$token"
run saver SEC_ENDPOINT="$RGW_HTTP" ./secrets save s3://net/saver
run saver-wrong SEC_ENDPOINT="$RGW_HTTP" AWS_SECRET_ACCESS_KEY="$wrong_secret" AWS_SESSION_TOKEN="$token" ./secrets save s3://net/saver2
run killed SEC_ENDPOINT="$proxy" SEC_DIE=1 AWS_SESSION_TOKEN= ./secrets upload s3://net/killed
tell 'status=403&code=AccessDenied&n=-1&match=net/refused'
run refused SEC_ENDPOINT="$proxy" ./secrets upload s3://net/refused
tell 'rst=2000000&n=-1&match=net/reset'
run reset SEC_ENDPOINT="$proxy" ./secrets upload s3://net/reset
run echo SEC_ATTEMPTS=1 AWS_SESSION_TOKEN="$long_token" ./secrets echo
run redirect SEC_ATTEMPTS=1 AWS_SESSION_TOKEN="$token" ./secrets redirect
sftp_uri= sftp_names=
SFTP_PASSWORD_USER=1
export SFTP_PASSWORD_USER
if sftp_server; then
    good_phrase=$(secret keyphrase)
    ssh-keygen -q -p -P "$SFTP_PASS_PHRASE" -N "$good_phrase" -f "$SFTP_KEY_PASS" >keygen.log 2>&1 || fail 'no new pass phrase' keygen.log
    SFTP_PASS_PHRASE=$good_phrase
    at=127.0.0.1:$SFTP_PORT/$SFTP_DATA
    run sftp SEC_KEY_FILE="$SFTP_KEY_PASS" SEC_PHRASE="$SFTP_PASS_PHRASE" SEC_KNOWN="$SFTP_KNOWN" ./secrets upload "sftp://$SFTP_USER@$at/good"
    run sftp-phrase SEC_KEY_FILE="$SFTP_KEY_PASS" SEC_PHRASE="$phrase" SEC_KNOWN="$SFTP_KNOWN" ./secrets upload "sftp://$SFTP_USER@$at/p"
    run sftp-password SEC_PASSWORD="$wrong_password" SEC_KNOWN="$SFTP_KNOWN" ./secrets upload "sftp://$SFTP_USER@$at/p"
    run sftp-uri SEC_KNOWN="$SFTP_KNOWN" ./secrets upload "sftp://$SFTP_USER:$uri_password@$at/p"
    run sftp-host SEC_KEY_FILE="$SFTP_KEY_PASS" SEC_PHRASE="$SFTP_PASS_PHRASE" SEC_KNOWN="$SFTP_KNOWN_WRONG" ./secrets upload "sftp://$SFTP_USER@$at/p"
    if [ -n "$SFTP_PASS_USER" ]; then
        run sftp-user SEC_PASSWORD="$SFTP_PASSWORD" SEC_KNOWN="$SFTP_KNOWN" ./secrets upload "sftp://$SFTP_PASS_USER@127.0.0.1:$SFTP_PORT//nowhere"
    fi
    sftp_uri=sftp://$SFTP_USER@$at/names
else
    echo "SKIP: sftp: $(tail -n 1 sftp.log)"
    unset SFTP_PASS_PHRASE SFTP_PASS_USER
fi

settle
expect good 'close: CKPT_OK' 'download: CKPT_OK'
expect wrong-secret CKPT_AUTH SignatureDoesNotMatch
expect explicit CKPT_AUTH
expect profile CKPT_AUTH
expect process CKPT_AUTH
expect expired CKPT_AUTH ExpiredToken
expect proxy CKPT_NET
expect endpoint CKPT_ARG
expect uri CKPT_
expect uri2 CKPT_ARG
expect uri3 CKPT_
expect uri4 CKPT_UNSUPPORTED
expect saver 'saver close: CKPT_OK'
expect saver-wrong CKPT_AUTH
expect refused CKPT_AUTH AccessDenied
expect reset CKPT_NET
expect echo 'a server that answers 301'
grep '^PASS\|^FAIL' all/redirect/said
[ "$(grep -c '^PASS' all/redirect/said)" = 5 ] || failures=$((failures + 1))
[ -s all/redirect/dir/stolen ] && fail 'something was sent elsewhere' all/redirect/dir/stolen
if [ -n "$sftp_uri" ]; then
    expect sftp 'close: CKPT_OK' 'download: CKPT_OK'
    expect sftp-phrase CKPT_AUTH
    expect sftp-password CKPT_AUTH
    expect sftp-uri CKPT_
    expect sftp-host CKPT_AUTH
    [ -z "$SFTP_PASS_USER" ] || expect sftp-user CKPT_
fi

#-- names ------------------------------------------------------------------------------

mkdir -p names/bucket
echo untouched >names/secret
unset SFTP_URI
COMPOSER_SFTP_KNOWN_HOSTS_FILENAME=${SFTP_KNOWN:-} COMPOSER_SFTP_KEY_FILENAME=${SFTP_KEY:-} S3_ENDPOINT_URL=$RGW_HTTP
export COMPOSER_SFTP_KNOWN_HOSTS_FILENAME COMPOSER_SFTP_KEY_FILENAME S3_ENDPOINT_URL
run names SEC_ENDPOINT="$RGW_HTTP" SEC_KEY_FILE="${SFTP_KEY:-}" SEC_KNOWN="${SFTP_KNOWN:-}" ./secrets names "file://$work/names/bucket" s3://net/names $sftp_uri
settle
grep -q '^FAIL' all/names/said && failures=$((failures + 1))
grep '^PASS\|^FAIL' all/names/said
[ "$(cat names/secret)" = untouched ] && [ "$(ls names)" = "bucket
secret" ] && pass 'nothing beside the bucket was touched' || fail 'something beside the bucket was touched'
[ ! -e /tmp/ckpt-secrets-up ] || fail 'a name led out of the bucket'

#-- the search ---------------------------------------------------------------------------

# What a request carried: signatures as the servers saw them.
grep -ih '^authorization:' all/echo/dir/heads | sed -n 's/.*Signature=\([0-9a-f]*\).*/\1/p' | sort -u >signatures
cp all/echo/dir/heads seen
[ "$(wc -l <signatures)" -gt 10 ] && grep -qF -- "$long_token" seen || fail 'the echo server saw no signatures'
rm -f all/echo/dir/heads all/redirect/dir/stolen
{
    printf '%s\n' "$RGW_SECRET" "$wrong_secret" "$token" "$uri_password" \
        "$proxy_password" "$phrase" "$end_password" "$wrong_password" "$file_secret" "$(echo "$long_token" | cut -c 1-30)"
    [ -z "${SFTP_PASS_PHRASE:-}" ] || printf '%s\n' "$SFTP_PASS_PHRASE"
    [ -z "${SFTP_PASS_USER:-}" ] || printf '%s\n' "$SFTP_PASSWORD"
    # As they stand in an address.
    printf '%s\n' "$wrong_secret" "$token" "$RGW_SECRET" | sed 's,/,%2F,g; s,+,%2B,g; s,=,%3D,g'
    cat signatures
} | sort -u >words
search_all 4
if grep -raEo 'Signature=[0-9a-fA-F]{64}' all >found; then fail 'signatures are in what was said or kept' found
else pass 'no signature of any request'; fi
[ $failures = 0 ]
