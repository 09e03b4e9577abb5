/* test_s3_more.c: what a store keeps to itself and does not do twice at once: secrets, log lines, renewals that hang; and what is
   odd about servers and settings.
   run.sh: remote tsan-long */
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"

#define TOKEN "tokenOfManyCharacters0123456789"
#define is(e, code) do { ckpt_err got_ = (e); if (got_ != (code)) fail_msg("%s:%d: %s instead of %s: %s", __FILE__, __LINE__, \
                              ckpt_err_name(got_), #code, got_ != CKPT_OK ? ckpt_last_error() : ""); } while (0)
#define sentence_has(part) do { if (strstr(ckpt_last_error(), part) == NULL) \
                              fail_msg("%s:%d: no '%s' in: %s", __FILE__, __LINE__, part, ckpt_last_error()); } while (0)
#define sentence_lacks(part) do { if (strstr(ckpt_last_error(), part) != NULL) \
                              fail_msg("%s:%d: '%s' in: %s", __FILE__, __LINE__, part, ckpt_last_error()); } while (0)

static const char *home;

static int fresh(void **state) {
    (void)state;
    static const char *const names[] = { "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_REGION", "AWS_DEFAULT_REGION", "S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_CANNED_ACL", "http_proxy",
        "AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "https_proxy", "all_proxy",
        "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT" };
    util_clear_env();
    for (int i = 0; i < UTIL_COUNT(names); i++) unsetenv(names[i]);
    home = util_temp_dir();
    setenv("HOME", home, 1);
    setenv("AWS_CONFIG_FILE", util_join(home, "config"), 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", util_join(home, "credentials"), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    return 0;
}

static ckpt_store_desc desc_of(const net_server *server) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.endpoint_url = server != NULL ? server->url : NULL;
    d.access_key_id = "AKIDEXAMPLE";
    d.secret_access_key = "verySecretKey";
    d.stall_timeout_s = 5.0;
    return d;
}

static ckpt_store *open_with(const ckpt_store_desc *d) {
    ckpt_store *s = NULL;
    is(ckpt_store_open(&s, "s3://bucket/pre", d), CKPT_OK);
    return s;
}

//-- a server that has nothing -----------------------------------------------------

static void on_missing(net_request *r, void *user) {
    (void)user;
    const char *body = "<Error><Code>NoSuchKey</Code></Error>";
    net_body(r, SIZE_MAX);
    net_reply(r, 404, NULL, body, strlen(body));
}

//-- log lines ---------------------------------------------------------------------

static ckpt__os_flag talking, lines, together;

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
    if (ckpt__os_flag_swap(&talking, 1) != 0) ckpt__os_flag_set(&together, 1);
    ckpt__os_sleep(0.0005);
    ckpt__os_flag_set(&lines, ckpt__os_flag_get(&lines) + 1);
    ckpt__os_flag_set(&talking, 0);
}

static void *look(void *arg) {
    ckpt_store *s = (ckpt_store *)arg;
    uint64_t size;
    for (int i = 0; i < 30; i++) { if (ckpt_store_size(s, "name", &size) == CKPT_OK) return NULL; }
    return NULL;
}

// The logger of a store is never called by two of its threads at once, whatever part of it has something to say.
static void test_one_line_at_a_time(void **state) {
    (void)state;
    net_server server;
    pthread_t ids[6];
    net_start(&server, on_missing, NULL);
    ckpt_store_desc d = desc_of(&server);
    d.logger.fn = on_log;
    ckpt_store *s = open_with(&d);
    assert_true(ckpt__s3_of(s)->auth.logger.fn == s->logger.fn && ckpt__s3_of(s)->http.logger.fn == s->logger.fn && s->logger.fn != on_log);
    for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&ids[i], NULL, look, s), 0);
    for (int i = 0; i < 200; i++) ckpt__s3_set_region(ckpt__s3_of(s), s, i % 2 != 0 ? "eu-west-1" : "eu-west-2");
    for (int i = 0; i < 6; i++) pthread_join(ids[i], NULL);
    assert_int_equal(ckpt__os_flag_get(&together), 0);
    assert_true(ckpt__os_flag_get(&lines) >= 380);
    ckpt_store_close(s);
    net_stop(&server);
}

//-- secrets -----------------------------------------------------------------------

static ckpt__os_flag leaks;

// Finds secrets in memory that is given back.
static void *searching(void *ptr, size_t old_size, size_t new_size, void *user) {
    (void)user;
    for (size_t i = 0; ptr != NULL && i + sizeof TOKEN - 1 <= old_size; i++) {
        if (memcmp((char *)ptr + i, TOKEN, sizeof TOKEN - 1) == 0) ckpt__os_flag_set(&leaks, 1);
    }
    void *p = NULL;
    if (new_size != 0) {
        p = malloc(new_size);
        if (p != NULL && ptr != NULL) memcpy(p, ptr, old_size < new_size ? old_size : new_size);
    }
    free(ptr);
    return p;
}

static void test_memory_is_wiped(void **state) {
    (void)state;
    net_server server;
    char path[512];
    net_start(&server, on_missing, NULL);
    ckpt_store_desc d = desc_of(&server);
    d.session_token = TOKEN;
    d.allocator.fn = searching;
    ckpt_store *s = open_with(&d);
    uint64_t size;
    is(ckpt_store_size(s, "name", &size), CKPT_NOT_FOUND);
    snprintf(path, sizeof path, "%s", util_join(home, "file"));
    util_write_text(path, "text");
    is(ckpt_store_put(s, "name", path, true), CKPT_NOT_FOUND);
    ckpt_store_close(s);
    assert_int_equal(ckpt__os_flag_get(&leaks), 0);
    net_stop(&server);
}

static void test_secrets_in_uris(void **state) {
    (void)state;
    static const char *const uris[] = { "s3://AKIA:hu/sh@bucket/x", "s3://AKIA:hush@bucket/x", "s3://AKIA:hush", "sftp://user:hu/sh@host/x",
        "gs://user:hu/sh@host/x", "gs://user:hush@host/x", "sftp://user:hush@/x", "sftp://us er:hush@host/x" };
    for (int i = 0; i < UTIL_COUNT(uris); i++) {
        ckpt_store *s;
        ckpt_err e = ckpt_store_open(&s, uris[i], NULL);
        if (e == CKPT_OK) { ckpt_store_close(s); continue; }
        sentence_lacks("sh@");
        sentence_lacks("hush");
        sentence_lacks("hu/");
        if (e != CKPT_ARG && e != CKPT_UNSUPPORTED) is(e, CKPT_ARG);
    }
    static const char *const objects[] = { "sftp://user:hush@host/", "sftp://user:hush@host", "gs://user:hush@host/", "s3://AKIA:hush@bucket" };
    for (int i = 0; i < UTIL_COUNT(objects); i++) {
        assert_true(ckpt_put_file("/etc/hostname", objects[i], true) != CKPT_OK);
        sentence_lacks("hush");
        assert_true(ckpt_get_file(objects[i], util_join(home, "there"), true) != CKPT_OK);
        sentence_lacks("hush");
        ckpt_load_desc l;
        memset(&l, 0, sizeof l);
        l.load_path = objects[i];
        ckpt_state st;
        memset(&st, 0, sizeof st);
        l.state = &st;
        assert_true(ckpt_load(&l, NULL) != CKPT_OK);
        sentence_lacks("hush");
        ckpt_state_free(&st);
    }
}

// A server that sends back what it got, cut at any place.
static void on_echo(net_request *r, void *user) {
    char body[2048];
    (void)user;
    net_body(r, SIZE_MAX);
    const char *token = net_header(r, "x-amz-security-token");
    snprintf(body, sizeof body, "<Error><Code>%.63s</Code><Message>%0200d is wrong: %s</Message><RequestId>%.80s</RequestId></Error>", token, 0,
             token, token);
    net_reply(r, 400, NULL, body, strlen(body));
}

static void test_echoed_token(void **state) {
    (void)state;
    net_server server;
    net_start(&server, on_echo, NULL);
    ckpt_store_desc d = desc_of(&server);
    d.session_token = TOKEN "abcdefghijklmnopqrstuvwxyz" TOKEN "abcdefghijklmnopqrstuvwxyz" TOKEN;
    ckpt_store *s = open_with(&d);
    is(ckpt_store_list(s, "", (ckpt_err (*)(const char *, uint64_t, void *))NULL, NULL), CKPT_ARG);
    is(ckpt_store_get(s, "x", util_join(home, "x"), true), CKPT_NET);
    sentence_lacks("tokenOfMany");
    is(ckpt_store_remove(s, "x"), CKPT_NET);
    sentence_lacks("tokenOfMany");
    ckpt_store_close(s);
    net_stop(&server);
}

//-- the signature is of what is sent ----------------------------------------------

static ckpt_credentials signer;
static ckpt__os_flag wrong, verified;

// Signs what arrived once more, from the wire alone.
static void on_signed(net_request *r, void *user) {
    char target[4096], *query;
    (void)user;
    net_body(r, SIZE_MAX);
    char sent[4096], names[2048], value[8192], sha[80];
    snprintf(sent, sizeof sent, "%s", net_header(r, "authorization"));
    snprintf(sha, sizeof sha, "%s", net_header(r, "x-amz-content-sha256"));
    snprintf(target, sizeof target, "%s", r->target);
    query = strchr(target, '?');
    if (query != NULL) *query++ = 0;
    const char *from = strstr(sent, "SignedHeaders=");
    snprintf(names, sizeof names, "%.*s", from != NULL ? (int)strcspn(from + 14, ",") : 0, from != NULL ? from + 14 : "");
    ckpt__fields headers;
    ckpt__fields_init(&headers, NULL);
    ckpt__buf canonical, list, text, signature;
    ckpt__buf_init(&canonical, NULL);
    ckpt__buf_init(&list, NULL);
    ckpt__buf_init(&text, NULL);
    ckpt__buf_init(&signature, NULL);
    for (char *name = names; *name != 0;) {
        size_t n = strcspn(name, ";");
        bool last = name[n] == 0;
        name[n] = 0;
        snprintf(value, sizeof value, "%s", net_header(r, name));
        ckpt__fields_add(&headers, name, value);
        name += n + (last ? 0 : 1);
    }
    char date[32];
    snprintf(date, sizeof date, "%s", net_header(r, "x-amz-date"));
    ckpt__auth_scope scope = { "eu-west-3", "s3", &signer, 0 };
    is(ckpt__auth_canonical(&canonical, &list, &headers, r->method, target, query != NULL ? query : "", sha), CKPT_OK);
    is(ckpt__auth_string_to_sign(&text, &scope, date, &canonical), CKPT_OK);
    is(ckpt__auth_sign(&signature, &scope, date, text.data, text.len), CKPT_OK);
    const char *got = strstr(sent, "Signature=");
    bool good = got != NULL && strcmp(got + 10, ckpt__buf_cstr(&signature)) == 0 && strcmp(ckpt__buf_cstr(&list), "") != 0;
    good = good && ckpt__fields_get(&headers, "host") != NULL && ckpt__fields_get(&headers, "x-amz-content-sha256") != NULL;
    unsigned char sum[32];
    is(ckpt__digest_sha256(r->body, r->body_size, sum), CKPT_OK);
    signature.len = 0;
    ckpt__txt_add_hex(&signature, sum, 32);
    if (!good || strcmp(ckpt__buf_cstr(&signature), sha) != 0) ckpt__os_flag_set(&wrong, 1);
    ckpt__os_flag_set(&verified, ckpt__os_flag_get(&verified) + 1);
    ckpt__fields_free(&headers);
    ckpt__buf_free(&canonical);
    ckpt__buf_free(&list);
    ckpt__buf_free(&text);
    ckpt__buf_free(&signature);
    const char *page = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    if (strcmp(r->method, "GET") == 0) net_reply(r, 200, NULL, page, strlen(page));
    else net_reply(r, 404, "x-amz-request-id: 1\r\n", "", 0);
}

static ckpt_err nothing(const char *name, uint64_t size, void *user) {
    (void)name, (void)size, (void)user;
    return CKPT_OK;
}

static void test_what_is_signed_is_sent(void **state) {
    (void)state;
    static const char *const names[] = { "k", "a b", "a+b", "100%", "a//b", "./a/../b", "\xC3\xA9/\xE2\x82\xAC", "q?x=1&y=2#z", "a=b;c,d:e@f", "'\"<>`{}|\\^[]",
        "~tilde_-.", "tail/", "\x01\x7F", "%2F%20", "*!()$" };
    static const char *const bases[] = { "", "/", "/base/of it", "/a/b//" };
    net_server server;
    char url[256], path[512];
    net_start(&server, on_signed, NULL);
    snprintf(path, sizeof path, "%s", util_join(home, "file"));
    util_write_text(path, "some text");
    snprintf(signer.secret_access_key, sizeof signer.secret_access_key, "verySecretKey");
    for (int b = 0; b < UTIL_COUNT(bases); b++) {
        ckpt_store_desc d = desc_of(&server);
        snprintf(url, sizeof url, "%s%s", server.url, bases[b]);
        d.endpoint_url = url;
        d.region = "eu-west-3";
        d.session_token = TOKEN;
        d.canned_acl = "bucket-owner-full-control";
        ckpt_store *s = open_with(&d);
        for (int i = 0; i < UTIL_COUNT(names); i++) {
            uint64_t size;
            is(ckpt_store_size(s, names[i], &size), CKPT_NOT_FOUND);
            is(ckpt_store_put(s, names[i], path, false), CKPT_NOT_FOUND);
            is(ckpt_store_list(s, names[i], nothing, NULL), CKPT_OK);
            if (ckpt__os_flag_get(&wrong) != 0) fail_msg("wrongly signed: '%s' at '%s'", names[i], bases[b]);
        }
        ckpt_store_close(s);
    }
    assert_true(ckpt__os_flag_get(&verified) >= 3 * UTIL_COUNT(names) * UTIL_COUNT(bases));
    net_stop(&server);
}

//-- renewal -----------------------------------------------------------------------

static ckpt__os_flag hang, asked;
static double life;

static ckpt_err provide(ckpt_credentials *out, void *user) {
    (void)user;
    int n = ckpt__os_flag_get(&asked) + 1;
    ckpt__os_flag_set(&asked, n);
    while (ckpt__os_flag_get(&hang) != 0) ckpt__os_sleep(0.01);
    memset(out, 0, sizeof *out);
    snprintf(out->access_key_id, sizeof out->access_key_id, "AK%d", n);
    snprintf(out->secret_access_key, sizeof out->secret_access_key, "verySecretKey");
    out->expires = ckpt__os_time() + life;
    return CKPT_OK;
}

static void *renew(void *arg) {
    ckpt__transfer t;
    ckpt_credentials got;
    memset(&t, 0, sizeof t);
    (void)ckpt__auth_aws_get((ckpt__auth_aws *)arg, &got, &t);
    return NULL;
}

// While one thread renews at a provider that hangs, the others use the old credentials, near the end after a wait; when they have
// run out, the others fail in time and may try again; when the provider comes back, all is well.
static void test_provider_that_hangs(void **state) {
    (void)state;
    ckpt_store_desc d = desc_of(NULL);
    ckpt__auth_aws auth;
    ckpt__http http;
    ckpt__http_options o;
    ckpt__transfer t;
    ckpt_credentials got;
    pthread_t id;
    memset(&t, 0, sizeof t);
    memset(&o, 0, sizeof o);
    d.access_key_id = d.secret_access_key = NULL;
    d.credentials = provide;
    life = 4.0;
    ckpt__os_flag_set(&hang, 0);
    is(ckpt__http_init(&http, &o), CKPT_OK);
    is(ckpt__auth_aws_init(&auth, &d, &http, NULL), CKPT_OK);
    is(ckpt__auth_aws_get(&auth, &got, &t), CKPT_OK);
    double begin = ckpt__os_now();
    ckpt__os_flag_set(&hang, 1);
    ckpt__os_sleep(2.2);                                        // half of the life is over: somebody is to renew
    assert_int_equal(pthread_create(&id, NULL, renew, &auth), 0);
    while (ckpt__os_flag_get(&asked) < 2) ckpt__os_sleep(0.005);
    for (int i = 0; i < 100; i++) {
        double from = ckpt__os_now();
        is(ckpt__auth_aws_get(&auth, &got, &t), CKPT_OK);
        assert_string_equal(got.access_key_id, "AK1");
        assert_true(ckpt__os_now() - from < 0.2);
    }
    while (ckpt__os_now() - begin < 3.2) ckpt__os_sleep(0.01);  // a quarter is left: they wait, but not until it is too late
    is(ckpt__auth_aws_get(&auth, &got, &t), CKPT_OK);
    assert_string_equal(got.access_key_id, "AK1");
    assert_in_range((int)((ckpt__os_now() - begin) * 1000), 3400, 4000);
    while (ckpt__os_now() - begin < 4.1) ckpt__os_sleep(0.01);
    t.stall_timeout_s = 0.5;
    is(ckpt__auth_aws_get(&auth, &got, &t), CKPT_TIMEOUT);
    sentence_has("renewed");
    assert_true(t.transient);
    assert_int_equal(ckpt__os_flag_get(&asked), 2);             // by one thread all the time
    ckpt__os_flag_set(&hang, 0);
    is(ckpt__auth_aws_get(&auth, &got, &t), CKPT_OK);
    assert_string_equal(got.access_key_id, "AK2");
    pthread_join(id, NULL);
    ckpt__auth_aws_free(&auth);
    ckpt__http_free(&http);
}

static void *cancel_soon(void *arg) {
    ckpt__os_sleep(0.5);
    ckpt__os_flag_set((ckpt__os_flag *)arg, 1);
    return NULL;
}

// A program that has said all and does not end may be waited for no longer than one that says nothing.
static void test_program_that_does_not_end(void **state) {
    (void)state;
    ckpt_store_desc d = desc_of(NULL);
    ckpt__auth_aws auth;
    ckpt__http http;
    ckpt__http_options o;
    ckpt__transfer t;
    ckpt_credentials got;
    ckpt__os_flag cancel = 0;
    pthread_t id;
    memset(&t, 0, sizeof t);
    memset(&o, 0, sizeof o);
    util_write_text(util_join(home, "config"), "[default]\ncredential_process = sh -c 'echo x; exec >/dev/null 2>&1 </dev/null; sleep 6'\n");
    d.access_key_id = d.secret_access_key = NULL;
    is(ckpt__http_init(&http, &o), CKPT_OK);
    is(ckpt__auth_aws_init(&auth, &d, &http, NULL), CKPT_OK);
    t.cancel = &cancel;
    double begin = ckpt__os_now();
    assert_int_equal(pthread_create(&id, NULL, cancel_soon, &cancel), 0);
    is(ckpt__auth_aws_get(&auth, &got, &t), CKPT_CANCELLED);
    assert_true(ckpt__os_now() - begin < 3.0);
    pthread_join(id, NULL);
    ckpt__auth_aws_free(&auth);
    ckpt__http_free(&http);
}

//-- settings ----------------------------------------------------------------------

// Empty texts are as good as none: programs pass on what an empty setting gives them.
static void test_empty_texts(void **state) {
    (void)state;
    ckpt_store_desc d = desc_of(NULL);
    d.region = d.endpoint_url = d.profile = d.credentials_file = d.ca_file = d.addressing_style = d.payload_signing = "";
    d.access_key_id = d.secret_access_key = d.session_token = "";
    d.canned_acl = d.storage_class = d.server_side_encryption = d.sse_kms_key_id = "";
    util_write_text(util_join(home, "credentials"), "[default]\naws_access_key_id = AKFILE\naws_secret_access_key = x\n");
    ckpt_store *s = open_with(&d);
    ckpt__transfer t;
    ckpt_credentials got;
    memset(&t, 0, sizeof t);
    assert_string_equal(ckpt__s3_of(s)->region, "us-east-1");
    assert_null(ckpt__s3_of(s)->endpoint);
    is(ckpt__auth_aws_get(&ckpt__s3_of(s)->auth, &got, &t), CKPT_OK);
    assert_string_equal(got.access_key_id, "AKFILE");
    ckpt_store_close(s);
    d.access_key_id = "AK";
    is(ckpt_store_open(&s, "s3://bucket", &d), CKPT_AUTH);
    sentence_has("secret key is missing");
}

// The certificates to trust: the caller's file, AWS_CA_BUNDLE, the profile's ca_bundle, and only then others' variables.
static void test_ca_bundle(void **state) {
    (void)state;
    char own[512], profile[512], other[512];
    snprintf(own, sizeof own, "%s", util_join(home, "own.pem"));
    snprintf(profile, sizeof profile, "%s", util_join(home, "profile.pem"));
    snprintf(other, sizeof other, "%s", util_join(home, "other.pem"));
    util_write_text(own, "");
    util_write_text(profile, "");
    util_write_text(other, "");
    util_write_text(util_join(home, "config"), util_fmt("[default]\nca_bundle = %s\n", profile));
    ckpt_store_desc d = desc_of(NULL);
    setenv("CURL_CA_BUNDLE", other, 1);
    ckpt_store *s = open_with(&d);
    assert_string_equal(ckpt__s3_of(s)->http.ca_file, profile);
    ckpt_store_close(s);
    setenv("AWS_CA_BUNDLE", other, 1);
    s = open_with(&d);
    assert_string_equal(ckpt__s3_of(s)->http.ca_file, other);
    ckpt_store_close(s);
    d.ca_file = own;
    s = open_with(&d);
    assert_string_equal(ckpt__s3_of(s)->http.ca_file, own);
    ckpt_store_close(s);
    unsetenv("AWS_CA_BUNDLE");
    d.ca_file = NULL;
    util_write_text(util_join(home, "config"), "[default]\nca_bundle = /nowhere/at/all\n");
    is(ckpt_store_open(&s, "s3://bucket", &d), CKPT_ARG);
    sentence_has("/nowhere/at/all");
}

static void test_fips(void **state) {
    (void)state;
    static const struct { const char *region, *dual, *host; } cases[] = {
        { "us-east-1", NULL, "bucket.s3-fips.us-east-1.amazonaws.com" }, { "us-gov-west-1", NULL, "bucket.s3-fips.us-gov-west-1.amazonaws.com" },
        { "us-west-2", "true", "bucket.s3-fips.dualstack.us-west-2.amazonaws.com" } };
    setenv("AWS_USE_FIPS_ENDPOINT", "true", 1);
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt_store_desc d = desc_of(NULL);
        ckpt__buf host;
        ckpt__buf_init(&host, NULL);
        d.region = cases[i].region;
        if (cases[i].dual != NULL) setenv("AWS_USE_DUALSTACK_ENDPOINT", cases[i].dual, 1);
        ckpt_store *s = open_with(&d);
        ckpt__s3_add_host(ckpt__s3_of(s), &host, ckpt__s3_of(s)->region);
        assert_string_equal(ckpt__buf_cstr(&host), cases[i].host);
        ckpt__buf_free(&host);
        ckpt_store_close(s);
    }
    ckpt_store *s;
    ckpt_store_desc d = desc_of(NULL);
    d.endpoint_url = "http://127.0.0.1:1";
    is(ckpt_store_open(&s, "s3://bucket", &d), CKPT_ARG);
    sentence_has("AWS_USE_FIPS_ENDPOINT");
}

//-- odd servers, odd files --------------------------------------------------------

static const char *const on_the_shelf[] = { "pre/a", "pre/a b", "pre/c&d", "pre/e" };

// Knows lists of version 1 only: it goes on behind `marker` and gives no tokens. One name a page.
static void on_old_list(net_request *r, void *user) {
    char body[512], marker[64] = "";
    const char *from = strstr(r->target, "&marker=");
    ckpt__buf decoded;
    (void)user;
    ckpt__buf_init(&decoded, NULL);
    if (from != NULL && ckpt__txt_unpercent(&decoded, from + 8, strcspn(from + 8, "& "))) snprintf(marker, sizeof marker, "%s", ckpt__buf_cstr(&decoded));
    ckpt__buf_free(&decoded);
    int i = 0;
    while (i < 4 && strcmp(on_the_shelf[i], marker) <= 0) i++;
    if (ckpt__os_flag_get(&hang) != 0) i = 0;                   // or does not even know that
    const char *key = i < 4 ? on_the_shelf[i] : "";
    snprintf(body, sizeof body, "<ListBucketResult><IsTruncated>%s</IsTruncated><Contents><Key>%s%s</Key><Size>%d</Size></Contents></ListBucketResult>",
             i < 3 ? "true" : "false", strcmp(key, "pre/c&d") == 0 ? "pre/c&amp;d" : key, "", i);
    net_reply(r, 200, NULL, body, strlen(body));
}

static ckpt_err collect(const char *name, uint64_t size, void *user) {
    ckpt__buf_fmt((ckpt__buf *)user, "%s=%d ", name, (int)size);
    return CKPT_OK;
}

static void test_lists_without_tokens(void **state) {
    (void)state;
    net_server server;
    ckpt__buf all;
    ckpt__buf_init(&all, NULL);
    net_start(&server, on_old_list, NULL);
    ckpt_store_desc d = desc_of(&server);
    ckpt_store *s = open_with(&d);
    is(ckpt_store_list(s, "", collect, &all), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&all), "a=0 a b=1 c&d=2 e=3 ");
    ckpt__os_flag_set(&hang, 1);
    is(ckpt_store_list(s, "", collect, &all), CKPT_NET);
    sentence_has("no end");
    ckpt__os_flag_set(&hang, 0);
    ckpt__buf_free(&all);
    ckpt_store_close(s);
    net_stop(&server);
}

// What a server says whose tokens never come twice: the same page for ever, the same three by turns, pages without a name, or a
// few of those before the last one.
typedef enum endless { THE_SAME, BY_TURNS, BARREN, BARREN_AT_FIRST, OF_UPLOADS, OF_PARTS } endless;
static endless endless_kind;
static int endless_pages;

static void on_endless_list(net_request *r, void *user) {
    static const char *const entry[][2] = { { "<Contents><Key>pre/a", "</Key><Size>1</Size></Contents>" },
                                            { "<Upload><Key>pre/a</Key><UploadId>", "</UploadId></Upload>" },
                                            { "<Part><PartNumber>", "</PartNumber><ETag>x</ETag><Size>1</Size></Part>" } };
    static const char *const mark[][2] = { { "<NextContinuationToken>", "</NextContinuationToken>" },
                                           { "<NextKeyMarker>pre/a</NextKeyMarker><NextUploadIdMarker>", "</NextUploadIdMarker>" },
                                           { "<NextPartNumberMarker>", "</NextPartNumberMarker>" } };
    char body[1024], one[128], next[128];
    (void)user;
    int page = endless_pages++, kind = endless_kind == OF_UPLOADS ? 1 : endless_kind == OF_PARTS ? 2 : 0;
    bool barren = endless_kind == BARREN || (endless_kind == BARREN_AT_FIRST && page % 1000 != 999);
    int number = endless_kind == BY_TURNS ? page % 3 : endless_kind == BARREN_AT_FIRST ? page : 1;
    snprintf(one, sizeof one, "%s%d%s", entry[kind][0], number, entry[kind][1]);
    snprintf(next, sizeof next, "%s%d%s", mark[kind][0], page + 1, mark[kind][1]);
    snprintf(body, sizeof body, "<ListBucketResult><IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>",
             endless_kind == BARREN_AT_FIRST && page == 1999 ? "false" : "true", barren ? "" : one, next);
    net_reply(r, 200, NULL, body, strlen(body));
}

static ckpt_err on_any_upload(const char *name, const char *id, double started, void *user) {
    (void)started;
    ckpt__buf_fmt((ckpt__buf *)user, "%s=%s ", name, id);
    return CKPT_OK;
}

static ckpt_err on_any_part(const ckpt__store_part *part, void *user) {
    ckpt__buf_fmt((ckpt__buf *)user, "%d ", part->number);
    return CKPT_OK;
}

static void test_lists_without_end(void **state) {
    (void)state;
    static const struct { endless kind; const char *told; int most; ckpt_err e; } rows[] = {
        { THE_SAME, "a1=1 ", 2, CKPT_NET }, { BY_TURNS, NULL, 10, CKPT_NET }, { BARREN, "", 1000, CKPT_NET },
        { BARREN_AT_FIRST, "a999=1 a1999=1 ", 2000, CKPT_OK }, { OF_UPLOADS, "a=1 ", 2, CKPT_NET }, { OF_PARTS, "1 ", 2, CKPT_NET } };
    net_server server;
    net_start(&server, on_endless_list, NULL);
    ckpt_store_desc d = desc_of(&server);
    ckpt_store *s = open_with(&d);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__buf all;
        ckpt__transfer t;
        ckpt__store_multi m;
        ckpt__buf_init(&all, NULL);
        memset(&t, 0, sizeof t);
        memset(&m, 0, sizeof m);
        m.name = "a";
        m.upload_id = "x";
        m.t = &t;
        endless_kind = rows[i].kind;
        endless_pages = 0;
        ckpt_err e = rows[i].kind == OF_PARTS ? s->table->parts(s, &m, on_any_part, &all)
                     : rows[i].kind == OF_UPLOADS ? s->table->uploads(s, "", on_any_upload, &all, &t) : s->table->list(s, "", collect, &all, &t);
        is(e, rows[i].e);
        if (e != CKPT_OK) sentence_has("no end");
        assert_true(endless_pages <= rows[i].most);
        if (rows[i].told != NULL) assert_string_equal(ckpt__buf_cstr(&all), rows[i].told);
        ckpt__buf_free(&all);
    }
    ckpt_store_close(s);
    net_stop(&server);
}

static void on_archived(net_request *r, void *user) {
    const char *body = "<Error><Code>InvalidObjectState</Code><Message>The operation is not valid for the object's storage class</Message></Error>";
    (void)user;
    if (strcmp(r->method, "HEAD") == 0) net_reply(r, 200, "ETag: \"x\"\r\n", NULL, 10);
    else net_reply(r, 403, NULL, body, strlen(body));
}

static void test_archived(void **state) {
    (void)state;
    net_server server;
    net_start(&server, on_archived, NULL);
    ckpt_store_desc d = desc_of(&server);
    ckpt_store *s = open_with(&d);
    is(ckpt_store_get(s, "x", util_join(home, "x"), true), CKPT_UNSUPPORTED);
    sentence_has("restored");
    ckpt_store_close(s);
    net_stop(&server);
}

static void on_no_checkpoint(net_request *r, void *user) {
    static const char body[] = "this is no checkpoint";
    (void)user;
    net_reply(r, 200, "ETag: \"x\"\r\n", strcmp(r->method, "HEAD") == 0 ? NULL : body, sizeof body - 1);
}

static void count_ends(const ckpt_progress *p, void *user) {
    ckpt_progress *last = (ckpt_progress *)user;
    last->attempt += p->finished;
    last->err = p->err;
}

// What is fetched whole and turns out to be none has its last report, as what cannot be fetched has.
static void test_no_checkpoint(void **state) {
    (void)state;
    net_server server;
    ckpt_progress last;
    ckpt_on_progress hook = { count_ends, &last };
    ckpt_convert_desc c;
    memset(&last, 0, sizeof last);
    memset(&c, 0, sizeof c);
    net_start(&server, on_no_checkpoint, NULL);
    setenv("S3_ENDPOINT_URL", server.url, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "verySecretKey", 1);
    is(ckpt_verify("s3://bucket/x.safetensors", &hook), CKPT_CORRUPT);
    assert_int_equal(last.attempt, 1);
    assert_int_equal(last.err, CKPT_CORRUPT);
    c.from = "s3://bucket/x.safetensors";
    c.to = util_join(home, "x.pt");
    c.progress = hook;
    is(ckpt_convert(&c), CKPT_CORRUPT);
    assert_int_equal(last.attempt, 2);
    net_stop(&server);
}

// What has no size that is known beforehand is no file to put: it would become an empty object, or wait for ever.
static void test_no_regular_file(void **state) {
    (void)state;
    net_server server;
    char pipe_path[512];
    net_start(&server, on_missing, NULL);
    snprintf(pipe_path, sizeof pipe_path, "%s", util_join(home, "pipe"));
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    ckpt_store_desc d = desc_of(&server);
    ckpt_store *s = open_with(&d);
    is(ckpt_store_put(s, "x", "/dev/null", true), CKPT_ARG);
    sentence_has("/dev/null");
    is(ckpt_store_put(s, "x", pipe_path, true), CKPT_ARG);
    assert_int_equal(net_count(&server), 0);
    ckpt_store_close(s);
    net_stop(&server);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_line_at_a_time, fresh), cmocka_unit_test_setup(test_memory_is_wiped, fresh),
        cmocka_unit_test_setup(test_secrets_in_uris, fresh), cmocka_unit_test_setup(test_echoed_token, fresh),
        cmocka_unit_test_setup(test_what_is_signed_is_sent, fresh), cmocka_unit_test_setup(test_provider_that_hangs, fresh),
        cmocka_unit_test_setup(test_program_that_does_not_end, fresh), cmocka_unit_test_setup(test_empty_texts, fresh),
        cmocka_unit_test_setup(test_ca_bundle, fresh), cmocka_unit_test_setup(test_fips, fresh),
        cmocka_unit_test_setup(test_lists_without_tokens, fresh), cmocka_unit_test_setup(test_lists_without_end, fresh),
        cmocka_unit_test_setup(test_archived, fresh),
        cmocka_unit_test_setup(test_no_regular_file, fresh), cmocka_unit_test_setup(test_no_checkpoint, fresh),
    };
    return cmocka_run_group_tests_name("s3_more", tests, NULL, NULL);
}
