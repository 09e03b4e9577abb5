/* test_gcs.c: CRC-32C and RS256 by known answers, where Google credentials are looked for and in which order, what gs:// sends and
   what it makes of replies, good, bad and hostile, by a scripted server in the process.
   run.sh: remote tsan-long */
#define CKPT__SEND_MIB 1024             // ranges of 8 KiB
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"

#define is(e, code) do { ckpt_err got_ = (e); if (got_ != (code)) fail_msg("%s:%d: %s instead of %s: %s", __FILE__, __LINE__, \
                              ckpt_err_name(got_), #code, got_ != CKPT_OK ? ckpt_last_error() : ""); } while (0)
#define sentence_has(part) do { if (strstr(ckpt_last_error(), part) == NULL) \
                                    fail_msg("%s:%d: no '%s' in: %s", __FILE__, __LINE__, part, ckpt_last_error()); } while (0)

//-- sums ---------------------------------------------------------------------------

static void test_crc32c(void **state) {
    (void)state;
    unsigned char p[1000], zero[32], ones[32], count[32];
    for (int i = 0; i < 1000; i++) p[i] = (unsigned char)(i * 31 + 7);
    memset(zero, 0, sizeof zero);
    memset(ones, 0xFF, sizeof ones);
    for (int i = 0; i < 32; i++) count[i] = (unsigned char)i;
    uint32_t x = 0x40000000u;
    for (int k = 0; k < 31; k++) {
        assert_int_equal(ckpt__digest_powers_c[k], x);
        x = ckpt__digest_multiply(x, x, 0x82f63b78u);
    }
    assert_int_equal(x, 0x40000000u);
    assert_int_equal(ckpt__digest_crc32c(0, "", 0), 0);                        // checksums.json; RFC 3720 B.4
    assert_int_equal(ckpt__digest_crc32c(0, "a", 1), 0xc1d04330u);
    assert_int_equal(ckpt__digest_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(ckpt__digest_crc32c(0, zero, 32), 0x8a9136aau);
    assert_int_equal(ckpt__digest_crc32c(0, ones, 32), 0x62a8ab43u);
    assert_int_equal(ckpt__digest_crc32c(0, count, 32), 0x46dd794eu);
    assert_int_equal(ckpt__digest_crc32c(0, p, 1000), 0xff52ee97u);
    for (size_t n = 0; n <= 1000; n += n < 40 ? 1 : 37) {
        uint32_t a = ckpt__digest_crc32c(0, p, n), b = ckpt__digest_crc32c(0, p + n, 1000 - n);
        assert_int_equal(ckpt__digest_crc32c(a, p + n, 1000 - n), 0xff52ee97u);
        assert_int_equal(ckpt__digest_crc32c_join(a, b, 1000 - n), 0xff52ee97u);
        assert_int_equal(~ckpt__digest_c_table(~0u, p, n), a);                 // the machine's instruction, and tables
        for (size_t from = 1; from < 8 && from < n; from++)
            assert_int_equal(~ckpt__digest_c_table(~0u, p + from, n - from), ckpt__digest_crc32c(0, p + from, n - from));
    }
    // 2^33 bits and more: the exponents wrap. The sum of n zero bytes, by doubling, against joining with itself.
    uint32_t one = ckpt__digest_crc32c(0, zero, 1), sum = one;
    uint64_t size = 1;
    for (int i = 0; i < 40; i++, size *= 2) sum = ckpt__digest_crc32c_join(sum, sum, size);
    uint32_t other = ckpt__digest_crc32c_join(one, one, 1), step = one;
    for (uint64_t n = 2; n < size; n *= 2) {
        step = other;
        other = ckpt__digest_crc32c_join(step, step, n);
    }
    assert_int_equal(sum, other);
}

static void test_jwt(void **state) {
    (void)state;
    size_t n;
    char *text = util_read(util_tests_path("cases/gcs_jwt.json"), &n);
    ckpt_allocator none = { NULL, NULL };
    ckpt__json_doc d;
    is(ckpt__json_parse(&d, &none, text, n), CKPT_OK);
    const ckpt__json *file = ckpt__json_get(&d, ckpt__json_root(&d), "service_account_file");
    const ckpt__json *grant = ckpt__json_get(&d, ckpt__json_root(&d), "jwt_bearer_grant");
    ckpt__auth_claims c = { ckpt__auth_node_text(&d, file, "private_key_id"), ckpt__auth_node_text(&d, file, "client_email"),
                            "https://www.googleapis.com/auth/devstorage.read_write", ckpt__auth_node_text(&d, file, "token_uri"),
                            ckpt__auth_node_text(&d, file, "private_key"), 1767323045 };
    ckpt__buf jwt;
    ckpt__buf_init(&jwt, NULL);
    is(ckpt__auth_jwt(&jwt, &c), CKPT_OK);
    assert_string_equal(jwt.data, ckpt__auth_node_text(&d, grant, "jwt"));
    jwt.len = 0;
    c.key = "-----BEGIN PRIVATE KEY-----\nbm8=\n-----END PRIVATE KEY-----\n";
    is(ckpt__auth_jwt(&jwt, &c), CKPT_AUTH);
    sentence_has("RSA key");
    ckpt__buf_free(&jwt);
    ckpt__json_free(&d);
}

static void test_quote(void **state) {
    (void)state;
    char out[60];
    ckpt__auth_quote(out, sizeof out, "Invalid \n JWT eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJhbGciOiJS of x@y");
    assert_string_equal(out, "Invalid JWT ... of x@y");
    ckpt__auth_quote(out, 12, "Invalid request");
    assert_string_equal(out, "Invalid");
    ckpt__auth_quote(out, sizeof out, NULL);
    assert_string_equal(out, "");
}

//-- a scripted server --------------------------------------------------------------

typedef struct step {
    const char *match;                  // the request line must begin so
    int         status;                 // 0: the connection is closed
    const char *headers, *body;
} step;

static struct {
    const step     *steps;
    int             count, n;
    char            lines[64][1024], heads[64][8192];
    char           *bodies[64];
    pthread_mutex_t lock;
} script = { NULL, 0, 0, { "" }, { "" }, { NULL }, PTHREAD_MUTEX_INITIALIZER };

static net_server server;

static void on_request(net_request *r, void *user) {
    (void)user;
    net_body(r, SIZE_MAX);
    pthread_mutex_lock(&script.lock);
    int i = script.n++;
    if (i < 64) {
        snprintf(script.lines[i], sizeof script.lines[i], "%.15s %.1000s", r->method, r->target);
        snprintf(script.heads[i], sizeof script.heads[i], "%.*s", (int)r->head_size, r->head);
        free(script.bodies[i]);
        script.bodies[i] = strdup(r->body != NULL ? r->body : "");
    }
    const step *s = i < script.count ? &script.steps[i] : NULL;
    pthread_mutex_unlock(&script.lock);
    if (s == NULL) { net_reply(r, 599, NULL, "", 0); return; }
    if (s->status == 0) { net_close(r); return; }
    net_reply(r, s->status, s->headers, s->body != NULL ? s->body : "", s->body != NULL ? strlen(s->body) : 0);
}

// All steps were taken, in that order.
static void check_script(void) {
    pthread_mutex_lock(&script.lock);
    for (int i = 0; i < script.count && i < script.n; i++) {
        if (strncmp(script.lines[i], script.steps[i].match, strlen(script.steps[i].match)) != 0)
            fail_msg("request %d is '%s' instead of '%s'", i, script.lines[i], script.steps[i].match);
    }
    if (script.n != script.count) fail_msg("%d requests instead of %d", script.n, script.count);
    pthread_mutex_unlock(&script.lock);
}

static char the_log[16384];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)level, (void)user;
    pthread_mutex_lock(&log_lock);
    size_t n = strlen(the_log);
    snprintf(the_log + n, sizeof the_log - n, "%s\n", text);
    pthread_mutex_unlock(&log_lock);
}

static ckpt__transfer t;

static ckpt_store *meet(const step *steps, int count, ckpt_store_desc *given) {
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    if (given != NULL) d = *given;
    else d.session_token = "ya29.token-of-the-test";
    d.endpoint_url = server.url;
    d.stall_timeout_s = t.stall_timeout_s = 5.0;
    d.logger.fn = on_log;
    pthread_mutex_lock(&script.lock);
    script.steps = steps;
    script.count = count;
    script.n = 0;
    pthread_mutex_unlock(&script.lock);
    is(ckpt_store_open(&s, "gs://bucket/pre/", &d), CKPT_OK);
    return s;
}
#define MEET(steps) meet(steps, UTIL_COUNT(steps), NULL)

static ckpt_err look(ckpt_store *s, ckpt__store_stat *out) {
    return ckpt__store_run_stat(s, "a/b c", out, &t);
}

#define OBJECT "{\"size\":\"5\",\"generation\":\"17\",\"crc32c\":\"mnG7TA==\",\"metadata\":{\"ckpt-mark\":\"m\",\"ckpt-crc32\":\"3610a686\"}}"

static void test_stat(void **state) {
    (void)state;
    static const step steps[] = { { "GET /storage/v1/b/bucket/o/pre%2Fa%2Fb%20c?fields=", 200, NULL, OBJECT } };
    ckpt__store_stat st;
    ckpt_store *s = MEET(steps);
    is(look(s, &st), CKPT_OK);
    assert_int_equal(st.size, 5);
    assert_string_equal(st.etag, "17");
    assert_string_equal(st.mark, "m");
    assert_true(st.has_crc && st.crc == 0x3610a686u);
    assert_non_null(strstr(script.heads[0], "Authorization: Bearer ya29.token-of-the-test\r\n"));
    check_script();
    ckpt_store_close(s);
}

// A rule that moves an object to colder storage "updates" it: it was put when it was put.
static void test_stat_time(void **state) {
    (void)state;
    static const step steps[] = { { "GET /storage/v1/b/bucket/o/pre%2Fa%2Fb%20c?fields=size%2Cgeneration%2Ccrc32c%2CtimeCreated%2Cmetadata", 200, NULL,
                                    "{\"size\":\"5\",\"generation\":\"17\",\"timeCreated\":\"2026-01-02T03:04:05.5Z\",\"updated\":\"2026-02-03T00:00:00Z\"}" } };
    ckpt__store_stat st;
    ckpt_store *s = MEET(steps);
    is(look(s, &st), CKPT_OK);
    assert_true(st.modified > 1767323045.0 && st.modified < 1767323046.0);
    check_script();
    ckpt_store_close(s);
}

// A token longer than what is kept of a message: its beginning is enough to keep the message back.
static void test_long_token(void **state) {
    (void)state;
    static char token[400], body[600];                      // the server sends from there
    memset(token, 'q', sizeof token);
    memcpy(token, "ya29.", 5);
    token[sizeof token - 1] = 0;
    snprintf(body, sizeof body, "{\"error\":{\"code\":401,\"message\":\"not known: %s\"}}", token);
    step one = { "GET /storage", 401, NULL, body };
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.session_token = token;
    ckpt__store_stat st;
    ckpt_store *s = meet(&one, 1, &d);
    is(look(s, &st), CKPT_AUTH);
    assert_null(strstr(ckpt_last_error(), "ya29.qq"));
    ckpt_store_close(s);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct { int status; const char *body; ckpt_err e; bool transient, throttled; const char *says; } cases[] = {
        { 404, "{\"error\":{\"code\":404,\"message\":\"No such object: x\",\"errors\":[{\"reason\":\"notFound\"}]}}", CKPT_NOT_FOUND, false, false, "no such object" },
        { 404, "{\"error\":{\"code\":404,\"message\":\"The specified bucket does not exist.\",\"errors\":[{\"reason\":\"notFound\"}]}}",
          CKPT_NOT_FOUND, false, false, "no bucket 'bucket'" },
        { 403, "{\"error\":{\"code\":403,\"message\":\"x@y does not have storage.objects.get\",\"errors\":[{\"reason\":\"forbidden\"}]}}",
          CKPT_AUTH, false, false, "x@y does not have" },
        { 403, "{\"error\":{\"code\":403,\"message\":\"slow\",\"errors\":[{\"reason\":\"rateLimitExceeded\"}]}}", CKPT_NET, true, true, "rateLimitExceeded" },
        { 429, "{\"error\":{\"code\":429,\"message\":\"slow\",\"errors\":[{\"reason\":\"rateLimitExceeded\"}]}}", CKPT_NET, true, true, "429" },
        { 401, "{\"error\":{\"code\":401,\"message\":\"Invalid Credentials: ya29.token-of-the-test\"}}", CKPT_AUTH, false, false, "401" },
        { 503, "{\"error\":{\"code\":503,\"message\":\"later\",\"errors\":[{\"reason\":\"backendError\"}]}}", CKPT_NET, true, true, "backendError" },
        { 500, "", CKPT_NET, true, false, "500" },
        { 400, "{\"error\":{\"code\":400,\"message\":\"Provided CRC32C doesn't match\",\"errors\":[{\"reason\":\"invalid\"}]}}", CKPT_CORRUPT, true, false, "CRC32C" },
        { 400, "<?xml version='1.0'?><Error><Code>CrcMismatch</Code><Message>m</Message></Error>", CKPT_CORRUPT, true, false, "CrcMismatch" },
        { 412, "{\"error\":{\"errors\":[{\"reason\":\"conditionNotMet\"}]}}", CKPT_EXISTS, false, false, "412" },
        { 418, "{\"error\":[]}", CKPT_NET, false, false, "418" },
        { 301, "", CKPT_NET, false, false, "elsewhere" },
        { 403, "{\"error\":{\"errors\":{\"reason\":3},\"message\":7}}", CKPT_AUTH, false, false, "403" },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        step one = { "GET /storage", cases[i].status, NULL, cases[i].body };
        ckpt__store_stat st;
        ckpt_store *s = meet(&one, 1, NULL);
        ckpt_err e = look(s, &st);
        if (e != cases[i].e || t.transient != cases[i].transient || t.throttled != cases[i].throttled)
            fail_msg("case %d: %s, transient %d, throttled %d: %s", i, ckpt_err_name(e), t.transient, t.throttled, ckpt_last_error());
        sentence_has(cases[i].says);
        assert_null(strstr(ckpt_last_error(), "ya29"));
        check_script();
        ckpt_store_close(s);
    }
}

static void test_odd_replies(void **state) {
    (void)state;
    static const char *const bodies[] = { "", "{", "[]", "{}", "{\"size\":5}", "{\"size\":\"-5\",\"generation\":\"1\"}",
        "{\"size\":\"99999999999999999999\",\"generation\":\"1\"}" };
    for (int i = 0; i < UTIL_COUNT(bodies); i++) {
        step one = { "GET /storage", 200, NULL, bodies[i] };
        ckpt__store_stat st;
        ckpt_store *s = meet(&one, 1, NULL);
        is(look(s, &st), CKPT_NET);
        assert_true(t.transient);
        ckpt_store_close(s);
    }
}

static ckpt_err put(ckpt_store *s, const char *text, bool overwrite, const char *mark) {
    ckpt__body b;
    ckpt__store_put p;
    memset(&b, 0, sizeof b);
    memset(&p, 0, sizeof p);
    b.memory = text;
    b.size = strlen(text);
    p.name = "name";
    p.body = &b;
    p.overwrite = overwrite;
    p.mark = mark;
    p.has_crc = true;
    p.crc = ckpt__digest_crc32(0, text, b.size);
    p.t = &t;
    return ckpt__store_run_put(s, &p);
}

static void test_put(void **state) {
    (void)state;
    static const step good[] = { { "POST /upload/storage/v1/b/bucket/o?fields=", 200, NULL, OBJECT } };
    static const step other[] = { { "POST /upload", 200, NULL, "{\"size\":\"5\",\"generation\":\"17\",\"crc32c\":\"AAAAAA==\"}" } };
    static const step lost[] = { { "POST /upload", 412, NULL, "{}" }, { "GET /storage/v1/b/bucket/o/pre%2Fname?", 200, NULL, OBJECT } };
    static const step taken[] = { { "POST /upload", 412, NULL, "{}" }, { "GET /storage", 200, NULL, OBJECT } };
    ckpt_store *s = MEET(good);
    is(put(s, "hello", false, "m"), CKPT_OK);
    assert_non_null(strstr(script.lines[0], "ifGenerationMatch=0&uploadType=multipart"));
    assert_non_null(strstr(script.bodies[0], "{\"name\":\"pre/name\",\"contentType\":\"application/octet-stream\",\"crc32c\":\"mnG7TA==\","
                                             "\"metadata\":{\"ckpt-mark\":\"m\",\"ckpt-crc32\":\"3610a686\"}}\r\n--ckpt-"));
    assert_non_null(strstr(script.bodies[0], "\r\n\r\nhello\r\n--ckpt-"));
    check_script();
    ckpt_store_close(s);
    s = MEET(other);
    is(put(s, "hello", true, "m"), CKPT_CORRUPT);
    sentence_has("CRC-32C");
    assert_true(t.transient);
    ckpt_store_close(s);
    s = MEET(lost);
    is(put(s, "hello", false, "m"), CKPT_OK);
    check_script();
    ckpt_store_close(s);
    s = MEET(taken);
    is(put(s, "hello", false, "n"), CKPT_EXISTS);
    ckpt_store_close(s);
}

// Either spelling of a canned ACL does, whatever the object's size: the JSON and the XML interface want different ones.
static void test_acl(void **state) {
    (void)state;
    static const struct { const char *given, *json, *xml; } cases[] = {
        { "bucketOwnerFullControl", "predefinedAcl=bucketOwnerFullControl", "x-goog-acl: bucket-owner-full-control\r\n" },
        { "bucket-owner-full-control", "predefinedAcl=bucketOwnerFullControl", "x-goog-acl: bucket-owner-full-control\r\n" },
        { "private", "predefinedAcl=private", "x-goog-acl: private\r\n" }, { "new-one", "predefinedAcl=new-one", "x-goog-acl: new-one\r\n" } };
    static const step steps[] = { { "POST /upload", 200, NULL, OBJECT },
                                  { "POST /bucket/pre/name?uploads", 200, NULL, "<R><UploadId>u1</UploadId></R>" } };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt_store_desc d;
        ckpt__store_multi m;
        ckpt__buf id;
        memset(&d, 0, sizeof d);
        memset(&m, 0, sizeof m);
        ckpt__buf_init(&id, NULL);
        d.session_token = "ya29.token-of-the-test";
        d.canned_acl = cases[i].given;
        ckpt_store *s = meet(steps, 2, &d);
        is(put(s, "hello", true, "m"), CKPT_OK);
        if (strstr(script.lines[0], cases[i].json) == NULL) fail_msg("%s", script.lines[0]);
        m.name = "name";
        m.overwrite = true;
        m.t = &t;
        is(s->table->begin(s, &m, &id), CKPT_OK);
        if (strstr(script.heads[1], cases[i].xml) == NULL) fail_msg("%s", script.heads[1]);
        check_script();
        ckpt__buf_free(&id);
        ckpt_store_close(s);
    }
}

//-- what is read ------------------------------------------------------------------

enum { BIG = 5000, BREAK = 1800, RANGE = 8 * 1024, RANGES = 5, WIDE = RANGE * RANGES };
static char big[WIDE];
static struct { uint32_t crc32c; int size, breaks, flips, refuses, served; uint64_t flip; } serving;
static pthread_mutex_t serving_lock = PTHREAD_MUTEX_INITIALIZER;

// Makes the first bytes of `big` the object that is served, undamaged.
static void serve(int size) {
    pthread_mutex_lock(&serving_lock);
    memset(&serving, 0, sizeof serving);
    for (int i = 0; i < WIDE; i++) big[i] = (char)(i * 7 + i / 256);
    serving.size = size;
    serving.crc32c = ckpt__digest_crc32c(0, big, (size_t)size);
    pthread_mutex_unlock(&serving_lock);
}

static bool is_waiting(void) {
    pthread_mutex_lock(&serving_lock);
    bool waits = serving.served < RANGES - 1;
    pthread_mutex_unlock(&serving_lock);
    return waits;
}

// Serves `big` in ranges. The first `breaks` replies end before their time; the first `flips` that hold byte `flip` have it damaged.
// refuses: the first range, when all others have gone.
static void on_ranges(net_request *r, void *user) {
    (void)user;
    net_body(r, SIZE_MAX);
    unsigned char sum[4] = { (unsigned char)(serving.crc32c >> 24), (unsigned char)(serving.crc32c >> 16), (unsigned char)(serving.crc32c >> 8),
                             (unsigned char)serving.crc32c };
    ckpt__buf hash;
    ckpt__buf_init(&hash, NULL);
    ckpt__txt_add_base64(&hash, sum, 4);
    const char *range = net_header(r, "range");
    unsigned long long from = 0, to = 0;
    pthread_mutex_lock(&serving_lock);
    int whole = serving.size, refuses = serving.refuses;
    pthread_mutex_unlock(&serving_lock);
    if (range == NULL || sscanf(range, "bytes=%llu-%llu", &from, &to) != 2 || to >= (unsigned long long)whole) {
        char body[128];
        net_reply(r, 200, NULL, body, (size_t)snprintf(body, sizeof body, "{\"size\":\"%d\",\"generation\":\"17\",\"crc32c\":\"%s\"}",
                                                       whole, ckpt__buf_cstr(&hash)));
    } else if (from == 0 && refuses > 0) {
        while (is_waiting()) net_sleep(0.001);
        net_reply(r, 403, NULL, "no", 2);
    } else {
        pthread_mutex_lock(&serving_lock);
        size_t n = (size_t)(to - from + 1), some = serving.breaks > 0 && n > BREAK ? BREAK : n;
        char copy[WIDE];
        memcpy(copy, big + from, n);
        if (serving.flips > 0 && serving.flip >= from && serving.flip < from + some) { serving.flips--; copy[serving.flip - from] ^= 1; }
        net_text(r, "HTTP/1.1 206 Partial Content\r\nContent-Length: %zu\r\nContent-Range: bytes %llu-%llu/%d\r\nx-goog-generation: 17\r\n"
                 "x-goog-hash: crc32c=%s\r\n\r\n", n, from, to, whole, ckpt__buf_cstr(&hash));
        serving.served++;
        net_send(r, copy, some);
        if (some < n) { serving.breaks--; net_close(r); }
        pthread_mutex_unlock(&serving_lock);
    }
    ckpt__buf_free(&hash);
}

// To a request for bytes Google answers in plain words what is missing. Who says 404 and no more may be a proxy.
static void test_missing(void **state) {
    (void)state;
    static const struct { int status; const char *body; ckpt_err e; bool transient; const char *says; } cases[] = {
        { 404, "No such object: bucket/pre/name", CKPT_NOT_FOUND, false, "there is no such object" },
        { 404, "The specified bucket does not exist.", CKPT_NOT_FOUND, false, "there is no bucket 'bucket'" },
        { 403, "me@here does not have storage.objects.get access", CKPT_AUTH, false, "me@here does not have" },
        { 404, "<html>Not Found</html>", CKPT_NET, true, "no answer of Google's: is the server behind" },
        { 404, "Not Found", CKPT_NET, true, "is the server behind" } };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        step one = { "GET /storage/v1/b/bucket/o/pre%2Fname?alt=media", cases[i].status, NULL, cases[i].body };
        ckpt_store *s = meet(&one, 1, NULL);
        ckpt__sink k;
        char byte;
        memset(&k, 0, sizeof k);
        k.memory = &byte;
        k.fd = -1;
        k.size = 1;
        ckpt_err e = ckpt__store_run_get(s, "name", NULL, 0, &k, &t);
        if (e != cases[i].e || t.transient != cases[i].transient) fail_msg("case %d: %s %d: %s", i, ckpt_err_name(e), t.transient, ckpt_last_error());
        sentence_has(cases[i].says);
        check_script();
        ckpt_store_close(s);
    }
    // Nor is a portal's page an object, though it is as long, or its removal.
    #define LOGIN 200, "Content-Type: text/html\r\n", "<html>Log in</html>"
    static const step portal[] = { { "GET /storage/v1/b/bucket/o/pre%2Fname?alt=media", LOGIN }, { "DELETE /storage/v1/b/bucket/o/pre%2Fname", LOGIN } };
    char page[19];
    ckpt__sink sink;
    memset(&sink, 0, sizeof sink);
    sink.memory = page;
    sink.fd = -1;
    sink.size = sizeof page;
    ckpt_store *login = MEET(portal);
    is(ckpt__store_run_get(login, "name", NULL, 0, &sink, &t), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    is(ckpt__store_run_remove(login, "name", &t), CKPT_NET);
    assert_true(t.transient);
    check_script();
    ckpt_store_close(login);
    // Of an upload only the bucket can be missing.
    static const step up[] = { { "POST /upload", 404, NULL, "{\"error\":{\"message\":\"Not Found\",\"errors\":[{\"reason\":\"notFound\"}]}}" } };
    ckpt_store *s = MEET(up);
    is(put(s, "hello", true, "m"), CKPT_NOT_FOUND);
    sentence_has("there is no bucket 'bucket'");
    ckpt_store_close(s);
}

// Nobody but Google has a sum of what others have uploaded: it is compared also where ranges broke off and were gone on with.
static void test_broken_off(void **state) {
    (void)state;
    static const struct { int breaks, flips; uint64_t flip; ckpt_err e; } cases[] = { { 0, 0, 0, CKPT_OK }, { 1, 0, 0, CKPT_OK }, { 2, 0, 0, CKPT_OK },
        { 0, 99, 10, CKPT_CORRUPT }, { 99, 99, 10, CKPT_CORRUPT }, { 99, 99, 4900, CKPT_CORRUPT }, { 99, 1, 2000, CKPT_OK } };
    net_server own;
    serve(BIG);
    net_start(&own, on_ranges, NULL);
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        ckpt__fetch f;
        ckpt__retry retry = ckpt__retry_default;
        memset(&d, 0, sizeof d);
        memset(&f, 0, sizeof f);
        d.session_token = "ya29.token-of-the-test";
        d.endpoint_url = own.url;
        is(ckpt_store_open(&s, "gs://bucket/pre/", &d), CKPT_OK);
        pthread_mutex_lock(&serving_lock);
        serving.breaks = cases[i].breaks;
        serving.flips = cases[i].flips;
        serving.flip = cases[i].flip;
        pthread_mutex_unlock(&serving_lock);
        retry.num_attempts = 20;
        retry.initial_backoff = 0.001;
        f.store = s;
        f.name = "name";
        f.destination = util_join(util_temp_dir(), "got");
        f.overwrite = true;
        f.retry = &retry;
        ckpt_err e = ckpt__fetch_run(&f);
        if (e != cases[i].e) fail_msg("case %d: %s: %s", i, ckpt_err_name(e), e != CKPT_OK ? ckpt_last_error() : "");
        if (e != CKPT_OK) sentence_has("CRC-32C");
        ckpt_store_close(s);
    }
    net_stop(&own);
}

// A download that failed has left nothing that is taken for a part of the next one, whose own ranges are all compared.
static void test_ranges_of_before(void **state) {
    (void)state;
    static const struct { uint64_t before, now; int gets; } cases[] = {
        { 0, WIDE - 10, 2 * RANGES },               // damaged on the way, when the ranges of before would have made up the whole
        { WIDE - 10, 0, RANGES } };                 // what was damaged in a range of before is no matter
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        net_server own;
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        ckpt__fetch f;
        ckpt__retry retry = ckpt__retry_default;
        memset(&d, 0, sizeof d);
        memset(&f, 0, sizeof f);
        serve(WIDE);
        serving.refuses = 1;
        serving.flips = cases[i].before > 0;
        serving.flip = cases[i].before;
        net_start(&own, on_ranges, NULL);
        d.session_token = "ya29.token-of-the-test";
        d.endpoint_url = own.url;
        is(ckpt_store_open(&s, "gs://bucket/pre/", &d), CKPT_OK);
        retry.initial_backoff = 0.001;
        f.store = s;
        f.name = "name";
        f.destination = util_join(util_temp_dir(), "got");
        f.num_concurrent_parts = 2;
        f.retry = &retry;
        is(ckpt__fetch_run(&f), CKPT_AUTH);
        pthread_mutex_lock(&serving_lock);
        if (serving.served != RANGES - 1) fail_msg("%d ranges", serving.served);
        serving.refuses = serving.served = 0;
        serving.flips = cases[i].now > 0;
        serving.flip = cases[i].now;
        pthread_mutex_unlock(&serving_lock);
        is(ckpt__fetch_run(&f), CKPT_OK);
        size_t n;
        char *got = util_read(f.destination, &n);
        if (n != WIDE || memcmp(got, big, WIDE) != 0) fail_msg("case %d: damaged bytes", i);
        ckpt_store_close(s);
        net_stop(&own);
        assert_int_equal(serving.served, cases[i].gets);
    }
}

// A disk that is full shows at the last bytes of a range, which wait to be written together: no network is to blame.
static void test_full_disk(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        net_server own;
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        ckpt__fetch_range g;
        ckpt__retry retry = ckpt__retry_default;
        memset(&d, 0, sizeof d);
        memset(&g, 0, sizeof g);
        serve(BIG);
        serving.breaks = i;
        net_start(&own, on_ranges, NULL);
        d.session_token = "ya29.token-of-the-test";
        d.endpoint_url = own.url;
        is(ckpt_store_open(&s, "gs://bucket/pre/", &d), CKPT_OK);
        retry.initial_backoff = 0.001;
        g.store = s;
        g.name = "name";
        g.etag = "";
        g.retry = &retry;
        g.sink.fd = open("/dev/full", O_RDWR);
        if (g.sink.fd < 0) skip();
        g.sink.path = "the file";
        g.sink.size = g.sink.whole = BIG;
        g.sink.gather = (char *)malloc(CKPT__SINK_GATHER);
        is(ckpt__fetch_get(&g), CKPT_NO_SPACE);
        sentence_has("the file");
        assert_int_equal(net_count(&own), 1);
        free(g.sink.gather);
        close(g.sink.fd);
        ckpt_store_close(s);
        net_stop(&own);
    }
}

static void test_session_address(void **state) {
    (void)state;
    static const struct { const char *location; bool kept; } cases[] = {
        { "Location: http://evil.example/upload/x?upload_id=1\r\n", false },
        { "Location: https://evil-googleapis.com/upload/x?upload_id=1\r\n", false },
        { "Location: https://storage.googleapis.com/upload/x?upload_id=1\r\n", true },
        { "Location: http://storage.googleapis.com/upload/x?upload_id=1\r\n", false },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        step one = { "POST /upload/storage/v1/b/bucket/o?fields=", 200, cases[i].location, "" };
        ckpt__store_multi m;
        ckpt__buf id;
        ckpt_store *s = meet(&one, 1, NULL);
        ckpt__buf_init(&id, NULL);
        memset(&m, 0, sizeof m);
        m.name = "name";
        m.size = 1 << 20;
        m.t = &t;
        is(ckpt__store_run_begin(s, &m, &id), CKPT_OK);
        assert_string_equal(ckpt__buf_cstr(&id), cases[i].kept ? "https://storage.googleapis.com/upload/x?upload_id=1" :
                                                 util_fmt("%s/upload/x?upload_id=1", server.url));
        ckpt__buf_free(&id);
        ckpt_store_close(s);
    }
}

// Somebody gives an upload up while its parts are sent: those who are at them come back to what is theirs still.
static struct { int puts, over; } giving;

static void on_given_up(net_request *r, void *user) {
    (void)user;
    net_body(r, SIZE_MAX);
    if (strcmp(r->method, "POST") == 0) {
        net_reply(r, 200, util_fmt("Location: %s/upload/x?upload_id=1\r\n", r->server->url), "", 0);
    } else if (strcmp(r->method, "DELETE") == 0) {
        net_reply(r, 499, NULL, "", 0);
    } else {
        __atomic_add_fetch(&giving.puts, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&giving.over, __ATOMIC_SEQ_CST) == 0) net_sleep(0.001);
        net_reply(r, 404, NULL, "", 0);
    }
}

typedef struct at_part { ckpt_store *s; const char *id; int number; ckpt_err e; } at_part;

static char parts[2 * CKPT__STREAM_GRAIN];

static void *send_part(void *arg) {
    at_part *a = (at_part *)arg;
    ckpt__store_multi m;
    ckpt__store_part part;
    ckpt__body body;
    ckpt__transfer own;
    memset(&m, 0, sizeof m);
    memset(&part, 0, sizeof part);
    memset(&body, 0, sizeof body);
    memset(&own, 0, sizeof own);
    m.name = "name";
    m.size = sizeof parts;
    m.upload_id = a->id;
    m.t = &own;
    body.memory = parts;
    body.offset = (uint64_t)(a->number - 1) * CKPT__STREAM_GRAIN;
    body.size = CKPT__STREAM_GRAIN;
    part.number = a->number;
    a->e = ckpt__store_run_part(a->s, &m, &body, &part);
    return NULL;
}

static void test_given_up(void **state) {
    (void)state;
    net_server own;
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    ckpt__store_multi m;
    ckpt__buf id;
    pthread_t threads[2];
    ckpt__buf_init(&id, NULL);
    memset(&d, 0, sizeof d);
    memset(&m, 0, sizeof m);
    memset(&t, 0, sizeof t);
    net_start(&own, on_given_up, NULL);
    d.session_token = "ya29.token-of-the-test";
    d.endpoint_url = own.url;
    is(ckpt_store_open(&s, "gs://bucket/pre/", &d), CKPT_OK);
    m.name = "name";
    m.size = sizeof parts;
    m.t = &t;
    is(ckpt__store_run_begin(s, &m, &id), CKPT_OK);
    m.upload_id = ckpt__buf_cstr(&id);
    at_part at[2] = { { s, m.upload_id, 1, CKPT_OK }, { s, m.upload_id, 2, CKPT_OK } };     // the second one waits for the first
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, send_part, &at[i]);
        while (__atomic_load_n(&giving.puts, __ATOMIC_SEQ_CST) == 0) net_sleep(0.001);
    }
    net_sleep(0.1);
    is(ckpt__store_run_abort(s, &m), CKPT_OK);
    __atomic_store_n(&giving.over, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(at[0].e, CKPT_NOT_FOUND);
    assert_int_equal(at[1].e, CKPT_NOT_FOUND);
    ckpt__buf_free(&id);
    ckpt_store_close(s);
    net_stop(&own);
}

static void *wait_for_turn(void *arg) {
    at_part *a = (at_part *)arg;
    ckpt__gcs_upload *u = ckpt__gcs_hold(a->s, a->id);
    ckpt__store_part part;
    ckpt__transfer own;
    uint64_t at = 0;
    bool passed = true;
    memset(&part, 0, sizeof part);
    memset(&own, 0, sizeof own);
    part.number = a->number;
    a->e = ckpt__stream_queue(&ckpt__gcs_of(a->s)->streams, &u->stream, &part, CKPT__STREAM_GRAIN, &at, &passed, &own);
    if (a->e == CKPT_OK && (passed || at != CKPT__STREAM_GRAIN)) fail_msg("passed %d, at %llu", passed, (unsigned long long)at);
    ckpt__gcs_release(a->s, u);
    return NULL;
}

// A part waits for the one before it, whose worker may be long at reading it, from when it came itself; and a failure of the try
// before is none of this one.
static void test_turns(void **state) {
    (void)state;
    static const step asks[] = { { "PUT /upload/x?upload_id=1", 308, "Range: bytes=0-262143\r\n", "" } };
    ckpt_store *s = MEET(asks);
    const char *id = util_fmt("%s/upload/x?upload_id=1", server.url);
    at_part second = { s, id, 2, CKPT_IO };
    ckpt__store_multi m;
    pthread_t thread;
    ckpt__gcs_upload *u = ckpt__gcs_hold(s, id);
    u->stream.part_size = CKPT__STREAM_GRAIN;
    u->stream.rested = ckpt__os_now() - 1000.0;
    u->stream.failed = true;
    memset(&m, 0, sizeof m);
    m.name = "name";
    m.upload_id = id;
    m.t = &t;
    is(ckpt__store_run_parts(s, &m, NULL, NULL), CKPT_OK);
    assert_false(u->stream.failed);
    pthread_create(&thread, NULL, wait_for_turn, &second);
    net_sleep(0.2);
    ckpt__os_mutex_lock(&ckpt__s3_of(s)->lock);
    u->stream.passed = CKPT__STREAM_GRAIN;
    ckpt__os_cond_broadcast(&ckpt__gcs_of(s)->streams.wake);
    ckpt__os_mutex_unlock(&ckpt__s3_of(s)->lock);
    pthread_join(thread, NULL);
    assert_int_equal(second.e, CKPT_OK);
    ckpt__gcs_release(s, u);
    check_script();
    ckpt_store_close(s);
}

//-- credentials --------------------------------------------------------------------

static const char *home;

static void clear(void) {
    static const char *const names[] = { "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCS_KEY", "GCS_SECRET", "GCE_METADATA_HOST",
        "GCE_METADATA_ROOT", "GOOGLE_CLOUD_QUOTA_PROJECT", "STORAGE_EMULATOR_HOST", "S3_ENDPOINT_URL", "AWS_PROFILE" };
    for (int i = 0; i < UTIL_COUNT(names); i++) unsetenv(names[i]);
    setenv("NO_GCE_CHECK", "true", 1);
    setenv("HOME", home, 1);
}

static const char *user_file(const char *name, const char *token) {
    const char *path = util_join(home, name);
    util_write_text(path, util_fmt("{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"s\",\"refresh_token\":\"%s\","
                                   "\"token_uri\":\"%s/token\",\"quota_project_id\":\"quota\"}", token, server.url));
    return path;
}

static void test_order(void **state) {
    (void)state;
    static const char token[] = "{\"access_token\":\"ya29.one\",\"expires_in\":3599,\"token_type\":\"Bearer\"}";
    static const step machine[] = { { "GET /computeMetadata/v1/instance/service-accounts/default/token", 200, "Metadata-Flavor: Google\r\n", token },
                                    { "GET /storage", 200, NULL, OBJECT } };
    static const step stranger[] = { { "GET /computeMetadata/", 200, NULL, token } };
    static const step file[] = { { "POST /token", 200, NULL, token }, { "GET /storage", 200, NULL, OBJECT } };
    ckpt_store_desc d;
    ckpt__store_stat st;
    memset(&d, 0, sizeof d);
    clear();
    // Nothing at all.
    ckpt_store *s = meet(file, 0, &d);
    is(look(s, &st), CKPT_AUTH);
    sentence_has("GCS_KEY and GCS_SECRET are not set");
    sentence_has("GOOGLE_APPLICATION_CREDENTIALS");
    sentence_has("application_default_credentials.json");
    sentence_has("NO_GCE_CHECK");
    setenv("GCS_KEY", "k", 1);
    is(look(s, &st), CKPT_AUTH);
    sentence_has("GCS_KEY is set without GCS_SECRET");
    unsetenv("GCS_KEY");
    ckpt_store_close(s);
    // The machine's.
    unsetenv("NO_GCE_CHECK");
    setenv("GCE_METADATA_HOST", server.url + 7, 1);
    s = meet(machine, 2, &d);
    is(look(s, &st), CKPT_OK);
    assert_non_null(strstr(script.heads[0], "Metadata-Flavor: Google"));
    assert_non_null(strstr(script.heads[1], "Bearer ya29.one\r\n"));
    check_script();
    ckpt_store_close(s);
    s = meet(stranger, 1, &d);
    is(look(s, &st), CKPT_AUTH);
    sentence_has("another server answers");
    ckpt_store_close(s);
    // gcloud's file comes before it, in HOME or where CLOUDSDK_CONFIG says.
    util_mkdir(util_join(home, ".config"));
    util_mkdir(util_join(home, ".config/gcloud"));
    user_file(".config/gcloud/application_default_credentials.json", "of-gcloud");
    s = meet(file, 2, &d);
    is(look(s, &st), CKPT_OK);
    assert_string_equal(script.bodies[0], "client_id=c&client_secret=s&grant_type=refresh_token&refresh_token=of-gcloud");
    assert_non_null(strstr(script.heads[1], "x-goog-user-project: quota\r\n"));
    ckpt_store_close(s);
    util_mkdir(util_join(home, "sdk"));
    user_file("sdk/application_default_credentials.json", "of-sdk");
    setenv("CLOUDSDK_CONFIG", util_join(home, "sdk"), 1);
    s = meet(file, 2, &d);
    is(look(s, &st), CKPT_OK);
    assert_non_null(strstr(script.bodies[0], "refresh_token=of-sdk"));
    ckpt_store_close(s);
    // The variable before that; a file that is not there is an error, and not "go on". An empty text is none.
    d.credentials_file = "";
    setenv("GOOGLE_APPLICATION_CREDENTIALS", user_file("named.json", "named"), 1);
    s = meet(file, 2, &d);
    is(look(s, &st), CKPT_OK);
    assert_non_null(strstr(script.bodies[0], "refresh_token=named"));
    ckpt_store_close(s);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", util_join(home, "missing.json"), 1);
    s = meet(file, 0, &d);
    is(look(s, &st), CKPT_AUTH);
    sentence_has("missing.json");
    ckpt_store_close(s);
    // The description before all of them.
    d.credentials_file = user_file("given.json", "given");
    s = meet(file, 2, &d);
    is(look(s, &st), CKPT_OK);
    assert_non_null(strstr(script.bodies[0], "refresh_token=given"));
    check_script();
    ckpt_store_close(s);
}

// A file of a relative path is one of the directory in which the program was at the open.
static void test_file_abroad(void **state) {
    (void)state;
    static const step file[] = { { "POST /token", 200, NULL, "{\"access_token\":\"ya29.one\"}" }, { "GET /storage", 200, NULL, OBJECT } };
    ckpt_store_desc d;
    ckpt__store_stat st;
    char *was = getcwd(NULL, 0);
    memset(&d, 0, sizeof d);
    clear();
    user_file("named.json", "named");
    user_file("given.json", "given");
    setenv("GOOGLE_APPLICATION_CREDENTIALS", "named.json", 1);
    util_mkdir(util_join(home, "abroad"));
    user_file("abroad/application_default_credentials.json", "gcloud");
    static const char *const tokens[] = { "refresh_token=named", "refresh_token=given", "refresh_token=gcloud" };
    for (int i = 0; i < 3; i++) {
        d.credentials_file = i == 1 ? "given.json" : NULL;
        if (i == 2) unsetenv("GOOGLE_APPLICATION_CREDENTIALS");
        if (i == 2) setenv("CLOUDSDK_CONFIG", "abroad", 1);
        assert_int_equal(chdir(home), 0);
        ckpt_store *s = meet(file, 2, &d);
        assert_int_equal(chdir(was), 0);
        is(look(s, &st), CKPT_OK);
        assert_non_null(strstr(script.bodies[0], tokens[i]));
        check_script();
        ckpt_store_close(s);
    }
    // So is the file of an identity that is exchanged for a token.
    d.credentials_file = "given.json";
    util_write_text(util_join(home, "given.json"), "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\","
                    "\"token_url\":\"https://127.0.0.1:1/\",\"credential_source\":{\"file\":\"subject\"}}");
    util_write_text(util_join(home, "subject"), "subject");
    assert_int_equal(chdir(home), 0);
    ckpt_store *s = meet(NULL, 0, &d);
    assert_int_equal(chdir(was), 0);
    is(look(s, &st), CKPT_NET);
    sentence_has("token service");                      // which is asked behind it
    ckpt_store_close(s);
    free(was);
    clear();
}

// A metadata server that refuses is asked again; once it has given a token, its silence is no lack of credentials.
static void test_metadata_outage(void **state) {
    (void)state;
#define ASKS "GET /computeMetadata/v1/instance/service-accounts/default/token"
    static const step late[] = { { ASKS, 0, NULL, NULL }, { ASKS, 200, "Metadata-Flavor: Google\r\n", "{\"access_token\":\"ya29.one\"}" },
                                 { "GET /storage", 200, NULL, OBJECT }, { "GET /storage", 401, "Connection: close\r\n", "{}" },
                                 { ASKS, 0, NULL, NULL }, { ASKS, 0, NULL, NULL }, { ASKS, 0, NULL, NULL } };
#undef ASKS
    ckpt_store_desc d;
    ckpt__store_stat st;
    memset(&d, 0, sizeof d);
    clear();
    unsetenv("NO_GCE_CHECK");
    setenv("HOME", util_temp_dir(), 1);
    setenv("GCE_METADATA_HOST", server.url + 7, 1);
    ckpt_store *s = meet(late, UTIL_COUNT(late), &d);
    is(look(s, &st), CKPT_OK);
    is(look(s, &st), CKPT_AUTH);
    assert_true(t.transient);
    sentence_has("it does not answer");
    check_script();
    ckpt_store_close(s);
    clear();
}

// Once gcloud's file has given a token nobody goes on as the machine where it cannot be seen.
static void test_file_gone(void **state) {
    (void)state;
    static const char token[] = "{\"access_token\":\"ya29.one\",\"expires_in\":3599,\"token_type\":\"Bearer\"}";
    static const step steps[] = { { "POST /token", 200, NULL, token }, { "GET /storage", 200, NULL, OBJECT }, { "GET /storage", 401, NULL, "{}" },
                                  { "POST /token", 200, NULL, token }, { "GET /storage", 200, NULL, OBJECT } };
    ckpt_store_desc d;
    ckpt__store_stat st;
    memset(&d, 0, sizeof d);
    clear();
    unsetenv("NO_GCE_CHECK");
    setenv("GCE_METADATA_HOST", server.url + 7, 1);
    util_mkdir(util_join(home, "gone"));
    setenv("CLOUDSDK_CONFIG", util_join(home, "gone"), 1);
    const char *file = user_file("gone/application_default_credentials.json", "r"), *aside = util_join(home, "gone/aside");
    ckpt_store *s = meet(steps, UTIL_COUNT(steps), &d);
    is(look(s, &st), CKPT_OK);
    assert_int_equal(rename(file, aside), 0);
    is(look(s, &st), CKPT_AUTH);                        // 401, and no other token
    sentence_has("not there any more");
    assert_true(t.transient);
    assert_int_equal(symlink(file, file), 0);           // nor is one that cannot be looked at
    is(look(s, &st), CKPT_AUTH);
    assert_int_equal(rename(aside, file), 0);
    is(look(s, &st), CKPT_OK);
    check_script();
    ckpt_store_close(s);
    clear();
}

static void test_types(void **state) {
    (void)state;
    static const struct { const char *text; ckpt_err e; const char *says; } cases[] = {
        { "{\"type\":\"gdch_service_account\"}", CKPT_UNSUPPORTED, "gdch_service_account" },
        { "{\"type\":\"external_account_authorized_user\"}", CKPT_UNSUPPORTED, "external_account_authorized_user" },
        { "{}", CKPT_AUTH, "no \"type\"" },
        { "{\"type\":7}", CKPT_AUTH, "no \"type\"" },
        { "[]", CKPT_AUTH, "no \"type\"" },
        { "nonsense", CKPT_AUTH, "no Google credentials" },
        { "{\"type\":\"service_account\",\"client_email\":\"a@b\"}", CKPT_AUTH, "private_key" },
        { "{\"type\":\"service_account\",\"client_email\":\"a@b\",\"private_key\":\"x\",\"token_uri\":\"http://evil.example/t\"}", CKPT_AUTH, "https" },
        { "{\"type\":\"service_account\",\"client_email\":\"a@b\",\"private_key\":\"x\",\"token_uri\":\"https://127.0.0.1:1/t\"}", CKPT_AUTH, "RSA" },
        { "{\"type\":\"service_account\",\"universe_domain\":\"example.com\"}", CKPT_UNSUPPORTED, "example.com" },
        { "{\"type\":\"authorized_user\",\"client_id\":\"c\"}", CKPT_AUTH, "client_secret" },
        { "{\"type\":\"external_account\",\"audience\":\"a\"}", CKPT_AUTH, "subject_token_type" },
        { "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\",\"token_url\":\"https://127.0.0.1:1/\""
          ",\"credential_source\":{\"environment_id\":\"aws1\",\"url\":\"x\"}}",
          CKPT_UNSUPPORTED, "AWS" },
        { "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\",\"token_url\":\"https://127.0.0.1:1/\",\"credential_source\":{\"executable\":{}}}",
          CKPT_UNSUPPORTED, "a program" },
        { "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\",\"token_url\":\"https://127.0.0.1:1/\""
          ",\"credential_source\":{\"file\":\"/nonexistent/x\"}}",
          CKPT_AUTH, "/nonexistent/x" },
        { "{\"type\":\"impersonated_service_account\"}", CKPT_AUTH, "impersonation_url" },
    };
    clear();
    ckpt_store_desc d;
    ckpt__store_stat st;
    memset(&d, 0, sizeof d);
    d.credentials_file = util_join(home, "typed.json");
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        util_write_text(d.credentials_file, cases[i].text);
        ckpt_store *s = meet(NULL, 0, &d);
        is(look(s, &st), cases[i].e);
        sentence_has(cases[i].says);
        ckpt_store_close(s);
    }
}

// The machine's own identity is asked for directly, never through a proxy.
static void test_own_identity(void **state) {
    (void)state;
    static const step asked[] = { { "GET /identity", 200, NULL, "subject" } };
    ckpt_store_desc d;
    ckpt__store_stat st;
    clear();
    memset(&d, 0, sizeof d);
    d.credentials_file = util_join(home, "identity.json");
    util_write_text(d.credentials_file, util_fmt("{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\",\"token_url\":\"https://127.0.0.1:1/\""
                                                 ",\"credential_source\":{\"url\":\"%s/identity\"}}", server.url));
    setenv("http_proxy", "http://127.0.0.1:9", 1);
    ckpt_store *s = meet(asked, 1, &d);
    is(look(s, &st), CKPT_NET);
    sentence_has("token service");                      // which is asked behind it
    check_script();
    ckpt_store_close(s);
    unsetenv("http_proxy");
    assert_true(ckpt__auth_is_own("http://169.254.169.254/metadata/identity/oauth2/token") && ckpt__auth_is_own("http://127.0.0.1:40342/x"));
    assert_true(ckpt__auth_is_own("http://localhost/x") && !ckpt__auth_is_own("https://169.254.169.254/x"));
    assert_false(ckpt__auth_is_own("http://example.com/x"));
}

static void test_token_replies(void **state) {
    (void)state;
    static const step renewed[] = { { "POST /token", 200, NULL, "{\"access_token\":\"ya29.one\",\"expires_in\":3599}" },
                                    { "GET /storage", 401, NULL, "{}" },
                                    { "POST /token", 200, NULL, "{\"access_token\":\"ya29.two\",\"expires_in\":3599}" },
                                    { "GET /storage", 200, NULL, OBJECT }, { "GET /storage", 200, NULL, OBJECT } };
    static const step again[] = { { "POST /token", 503, NULL, "" }, { "POST /token", 200, NULL, "{\"access_token\":\"ya29.one\"}" },
                                  { "GET /storage", 200, NULL, OBJECT } };
    static const step kept[] = { { "POST /token", 200, NULL, "{\"access_token\":\"ya29.one\",\"expires_in\":3599}" }, { "GET /storage", 200, NULL, OBJECT },
                                 { "POST /token", 503, NULL, "" }, { "POST /token", 503, NULL, "" }, { "POST /token", 503, NULL, "" },
                                 { "GET /storage", 200, NULL, OBJECT } };
    static const step refused[] = { { "POST /token", 400, NULL, "{\"error\":\"invalid_grant\",\"error_description\":\"Bad 1//a-refresh-token-that-came-back\"}" } };
    static const step none[] = { { "POST /token", 200, NULL, "{\"access_token\":\"two words\"}" } };
    ckpt_store_desc d;
    ckpt__store_stat st;
    clear();
    memset(&d, 0, sizeof d);
    d.credentials_file = user_file("replies.json", "r");
    ckpt_store *s = meet(renewed, UTIL_COUNT(renewed), &d);
    is(look(s, &st), CKPT_OK);
    is(look(s, &st), CKPT_OK);                          // the token is kept
    assert_non_null(strstr(script.heads[3], "Bearer ya29.two\r\n"));
    check_script();
    ckpt_store_close(s);
    s = meet(again, UTIL_COUNT(again), &d);
    is(look(s, &st), CKPT_OK);
    check_script();
    ckpt_store_close(s);
    s = meet(kept, UTIL_COUNT(kept), &d);
    is(look(s, &st), CKPT_OK);
    ckpt__gcs_of(s)->auth.expires = ckpt__os_time() + 100;     // the next one is to renew it
    ckpt__gcs_of(s)->auth.again_at = 0;
    is(look(s, &st), CKPT_OK);
    assert_false(t.transient || t.throttled);           // the old one lasts
    check_script();
    ckpt_store_close(s);
    s = meet(refused, 1, &d);
    is(look(s, &st), CKPT_AUTH);
    sentence_has("invalid_grant: Bad ...");
    assert_false(t.transient);
    check_script();
    ckpt_store_close(s);
    s = meet(none, 1, &d);
    is(look(s, &st), CKPT_AUTH);
    ckpt_store_close(s);
}

//-- opening ------------------------------------------------------------------------

static void test_open(void **state) {
    (void)state;
    ckpt_store *s = NULL;
    ckpt_store_desc d;
    clear();
    is(ckpt_store_open(&s, "gs://", NULL), CKPT_ARG);
    is(ckpt_store_open(&s, "gs:///x", NULL), CKPT_ARG);
    is(ckpt_store_open(&s, "gs://user@bucket/x", NULL), CKPT_ARG);
    memset(&d, 0, sizeof d);
    d.access_key_id = "half";
    is(ckpt_store_open(&s, "gs://bucket", &d), CKPT_ARG);
    is(ckpt_store_open(&s, "gs://bucket/a/b/", NULL), CKPT_OK);
    assert_string_equal(s->uri, "gs://bucket/a/b/");
    assert_ptr_equal(s->table, &ckpt__gcs_table);
    ckpt_store_close(s);
    setenv("GCS_KEY", "GOOGKEY", 1);                    // Composer: both, or neither
    is(ckpt_store_open(&s, "gs://bucket/a", NULL), CKPT_OK);
    assert_ptr_equal(s->table, &ckpt__gcs_table);
    ckpt_store_close(s);
    setenv("GCS_SECRET", "secret", 1);
    is(ckpt_store_open(&s, "gs://bucket/a", NULL), CKPT_OK);
    assert_ptr_equal(s->table, &ckpt__gcs_hmac_table);
    assert_string_equal(s->uri, "gs://bucket/a/");
    assert_string_equal(ckpt__s3_of(s)->endpoint, "storage.googleapis.com");
    assert_string_equal(ckpt__s3_of(s)->region, "auto");
    assert_true(ckpt__s3_of(s)->tls);
    ckpt_store_close(s);
    static const step hmac[] = { { "HEAD /bucket/pre/a/b%20c", 200, NULL, "12345" } };
    ckpt__store_stat st;
    memset(&d, 0, sizeof d);
    d.credentials_file = d.region = "";                 // as good as none
    s = meet(hmac, 1, &d);
    is(look(s, &st), CKPT_OK);
    assert_non_null(strstr(script.heads[0], "Credential=GOOGKEY/"));
    assert_non_null(strstr(script.heads[0], "/auto/s3/aws4_request"));
    check_script();
    ckpt_store_close(s);
    clear();
}

static void test_no_secrets(void **state) {
    (void)state;
    static const char *const secrets[] = { "ya29.", "refresh-token", "upload_id", "Bearer" };
    for (int i = 0; i < UTIL_COUNT(secrets); i++) {
        if (strstr(the_log, secrets[i]) != NULL) fail_msg("'%s' is in the log", secrets[i]);
    }
    assert_true(strlen(the_log) > 100);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c), cmocka_unit_test(test_jwt), cmocka_unit_test(test_quote),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_broken_off), cmocka_unit_test(test_ranges_of_before), cmocka_unit_test(test_full_disk), cmocka_unit_test(test_stat),
        cmocka_unit_test(test_stat_time), cmocka_unit_test(test_long_token),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_odd_replies), cmocka_unit_test(test_put), cmocka_unit_test(test_acl),
        cmocka_unit_test(test_session_address), cmocka_unit_test(test_given_up), cmocka_unit_test(test_turns), cmocka_unit_test(test_order), cmocka_unit_test(test_metadata_outage),
        cmocka_unit_test(test_file_gone), cmocka_unit_test(test_file_abroad), cmocka_unit_test(test_types),
        cmocka_unit_test(test_own_identity), cmocka_unit_test(test_token_replies), cmocka_unit_test(test_open), cmocka_unit_test(test_no_secrets)
    };
    util_clear_env();
    home = util_join(util_temp_dir(), "home");
    util_mkdir(home);
    net_start(&server, on_request, NULL);
    int rc = cmocka_run_group_tests_name("gcs", tests, NULL, NULL);
    net_stop(&server);
    for (int i = 0; i < 64; i++) free(script.bodies[i]);
    return rc;
}
