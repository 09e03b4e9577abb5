// Proves AWS signatures (known answers) and the chain of credentials, against a small server of its own on the loopback.
// run.sh: waits remote tsan
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"

static const char *str(const ckpt__json_doc *d, const ckpt__json *object, const char *key) {
    const ckpt__json *node = ckpt__json_get(d, object, key);
    return node != NULL && node->kind == CKPT__JSON_TEXT ? node->text : NULL;
}

static const ckpt__json *get(const ckpt__json_doc *d, const ckpt__json *object, const char *key) {
    const ckpt__json *node = ckpt__json_get(d, object, key);
    if (node == NULL) fail_msg("no %s", key);
    return node;
}

static void cases(ckpt__json_doc *d, const char *name) {
    size_t n;
    const char *text = util_read(util_tests_path(util_fmt("cases/%s", name)), &n);
    assert_int_equal(ckpt__json_parse(d, NULL, text, n), CKPT_OK);
}

// What signing itself adds: taken out of a case's headers.
static bool is_added(const char *name, const char *service) {
    ckpt__view v = ckpt__txt_view(name);
    return ckpt__txt_eq_nocase(v, "x-amz-date") || ckpt__txt_eq_nocase(v, "x-amz-security-token") ||
           (strcmp(service, "s3") == 0 && ckpt__txt_eq_nocase(v, "x-amz-content-sha256"));
}

static void check_chunks(const ckpt__json_doc *d, const ckpt__json *v, const ckpt__auth_scope *scope, const char *date) {
    const char *before = str(d, get(d, v, "expect"), "signature");
    for (const ckpt__json *c = ckpt__json_child(d, ckpt__json_get(d, v, "chunks")); c != NULL; c = ckpt__json_next(d, c)) {
        size_t n = (size_t)get(d, c, "size")->i;
        char *data = (char *)malloc(n + 1);
        memset(data, str(d, c, "fill")[0], n);
        unsigned char sum[32], empty[32];
        assert_int_equal(ckpt__digest_sha256(data, n, sum), CKPT_OK);
        assert_int_equal(ckpt__digest_sha256("", 0, empty), CKPT_OK);
        free(data);
        ckpt__buf text, out;
        ckpt__buf_init(&text, NULL);
        ckpt__buf_init(&out, NULL);
        ckpt__buf_fmt(&text, "AWS4-HMAC-SHA256-PAYLOAD\n%s\n%.8s/%s/%s/aws4_request\n%s\n", date, date, scope->region, scope->service, before);
        ckpt__txt_add_hex(&text, empty, 32);
        ckpt__buf_byte(&text, '\n');
        ckpt__txt_add_hex(&text, sum, 32);
        assert_string_equal(ckpt__buf_cstr(&text), str(d, c, "string_to_sign"));
        assert_int_equal(ckpt__auth_sign(&out, scope, date, text.data, text.len), CKPT_OK);
        before = str(d, c, "signature");
        assert_string_equal(ckpt__buf_cstr(&out), before);
        ckpt__buf_free(&text);
        ckpt__buf_free(&out);
    }
}

static void check_vector(const ckpt__json_doc *d, const ckpt__json *v, const ckpt_allocator *a) {
    const ckpt__json *request = get(d, v, "request"), *expect = get(d, v, "expect");
    const char *path = str(d, request, "path"), *date = str(d, v, "amz_date"), *service = str(d, v, "service"), *token = str(d, v, "session_token");
    static ckpt_credentials c;
    memset(&c, 0, sizeof c);
    snprintf(c.access_key_id, sizeof c.access_key_id, "%s", str(d, v, "access_key"));
    snprintf(c.secret_access_key, sizeof c.secret_access_key, "%s", str(d, v, "secret_key"));
    if (token != NULL) snprintf(c.session_token, sizeof c.session_token, "%s", token);
    ckpt__auth_scope scope = { str(d, v, "region"), service, &c, 0 };
    assert_true(ckpt__txt_read_date(ckpt__txt_view(date), &scope.now));

    ckpt__buf encoded, query, canonical, names, text, signature;
    ckpt__buf *all[] = { &encoded, &query, &canonical, &names, &text, &signature };
    for (int i = 0; i < UTIL_COUNT(all); i++) ckpt__buf_init(all[i], NULL);
    ckpt__fields headers, params, full;
    ckpt__fields_init(&headers, a);
    ckpt__fields_init(&params, NULL);
    ckpt__fields_init(&full, NULL);
    ckpt__txt_add_percent(&encoded, path, strlen(path), true);
    assert_string_equal(ckpt__buf_cstr(&encoded), str(d, expect, "encoded_path"));
    for (const ckpt__json *q = ckpt__json_child(d, get(d, request, "query")); q != NULL; q = ckpt__json_next(d, q))
        ckpt__fields_add(&params, ckpt__json_child(d, q)->text, ckpt__json_next(d, ckpt__json_child(d, q))->text);
    assert_int_equal(ckpt__auth_query(&query, &params), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&query), str(d, expect, "canonical_query"));
    for (const ckpt__json *h = ckpt__json_child(d, get(d, request, "headers")); h != NULL; h = ckpt__json_next(d, h)) {
        const char *name = ckpt__json_child(d, h)->text, *value = ckpt__json_next(d, ckpt__json_child(d, h))->text;
        ckpt__fields_add(&full, name, value);
        if (!is_added(name, service)) ckpt__fields_add(&headers, name, value);
    }
    // each step
    const char *method = str(d, request, "method"), *hash = str(d, v, "payload_hash");
    assert_int_equal(ckpt__auth_canonical(&canonical, &names, &full, method, encoded.data, ckpt__buf_cstr(&query), hash), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&canonical), str(d, expect, "canonical_request"));
    assert_string_equal(ckpt__buf_cstr(&names), str(d, expect, "signed_headers"));
    assert_int_equal(ckpt__auth_string_to_sign(&text, &scope, date, &canonical), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&text), str(d, expect, "string_to_sign"));
    assert_int_equal(ckpt__auth_sign(&signature, &scope, date, text.data, text.len), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&signature), str(d, expect, "signature"));
    unsigned char key[32];
    assert_int_equal(ckpt__auth_key(key, &scope, date), CKPT_OK);
    signature.len = 0;
    ckpt__txt_add_hex(&signature, key, 32);
    assert_string_equal(ckpt__buf_cstr(&signature), str(d, expect, "signing_key_hex"));
    // and the whole; a presigned URL has no such header
    if (str(d, expect, "authorization") != NULL) {
        assert_int_equal(ckpt__auth_sigv4(&headers, &scope, method, encoded.data, query.data, hash), CKPT_OK);
        assert_string_equal(ckpt__fields_get(&headers, "authorization"), str(d, expect, "authorization"));
        assert_string_equal(ckpt__fields_get(&headers, "X-Amz-Date"), date);
        if (strcmp(service, "s3") == 0) assert_string_equal(ckpt__fields_get(&headers, "x-amz-content-sha256"), hash);
        if (token != NULL) assert_string_equal(ckpt__fields_get(&headers, "x-amz-security-token"), token);
    }
    check_chunks(d, v, &scope, date);
    for (int i = 0; i < UTIL_COUNT(all); i++) ckpt__buf_free(all[i]);
    ckpt__fields_free(&headers);
    ckpt__fields_free(&params);
    ckpt__fields_free(&full);
}

static void test_sigv4(void **state) {
    (void)state;
    ckpt__json_doc d;
    cases(&d, "sigv4.json");
    int seen = 0;
    for (const ckpt__json *v = ckpt__json_child(&d, get(&d, ckpt__json_root(&d), "vectors")); v != NULL; v = ckpt__json_next(&d, v), seen++)
        check_vector(&d, v, NULL);
    assert_int_equal(seen, get(&d, ckpt__json_root(&d), "count")->i);
    assert_true(seen >= 28);
    ckpt__json_free(&d);
}

// Fields may not smuggle in others, and the secret is nowhere in what is sent.
static void test_sigv4_refuses(void **state) {
    (void)state;
    static ckpt_credentials c = { "AKID", "sEcReT", "", 0 };
    ckpt__auth_scope scope = { "us-east-1", "s3", &c, 1795219060 };
    static const char *const bad[][2] = { { "x-amz-meta-a", "1\r\nx: y" }, { "x-amz-meta-a", "1\n" }, { "x\ny", "1" }, { "a b", "1" }, { "a:b", "1" } };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        ckpt__fields h;
        ckpt__fields_init(&h, NULL);
        ckpt__fields_add(&h, "host", "h");
        ckpt__fields_add(&h, bad[i][0], bad[i][1]);
        assert_int_equal(ckpt__auth_sigv4(&h, &scope, "GET", "/", "", "UNSIGNED-PAYLOAD"), CKPT_ARG);
        ckpt__fields_free(&h);
    }
    ckpt__fields h;
    ckpt__fields_init(&h, NULL);
    ckpt__fields_add(&h, "Host", "h");
    ckpt__fields_add(&h, "User-Agent", "x");
    ckpt__fields_add(&h, "x-amz-meta-empty", "");
    assert_int_equal(ckpt__auth_sigv4(&h, &scope, "GET", "", "", "UNSIGNED-PAYLOAD"), CKPT_OK);
    assert_non_null(strstr(ckpt__fields_get(&h, "Authorization"), "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-empty,"));
    for (size_t i = 0; i + 6 < h.text.len; i++) assert_true(memcmp(h.text.data + i, "sEcReT", 6) != 0);
    ckpt__fields_free(&h);
    snprintf(c.access_key_id, sizeof c.access_key_id, "A\r\nB");
    ckpt__fields_init(&h, NULL);
    assert_int_equal(ckpt__auth_sigv4(&h, &scope, "GET", "/", "", "UNSIGNED-PAYLOAD"), CKPT_ARG);
    ckpt__fields_free(&h);
}

static unsigned char *pattern(size_t n) {
    unsigned char *p = (unsigned char *)util_keep(malloc(n + 1), false);
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)((i * 31 + 7) % 256);
    return p;
}

static void check_base64(const void *p, size_t n, const char *want) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__txt_add_base64(&b, p, n);
    assert_string_equal(ckpt__buf_cstr(&b), want);
    ckpt__buf_free(&b);
}

static void check_digest(ckpt__digest_kind kind, const unsigned char *p, size_t n, const char *want) {
    unsigned char sum[CKPT__DIGEST_MAX];
    for (size_t piece = 1; piece < 4096; piece = piece * 7 + 1) {
        ckpt__digest d;
        assert_true(ckpt__digest_begin(&d, kind));
        for (size_t i = 0; i < n; i += piece) ckpt__digest_add(&d, p + i, n - i < piece ? n - i : piece);
        assert_true(ckpt__digest_end(&d, sum));
        check_base64(sum, kind == CKPT__DIGEST_MD5 ? 16 : 32, want);
    }
}

// The rows of checksums.json that concern CRC-32, SHA-256, MD5 and the ETag of parts.
static void test_checksums(void **state) {
    (void)state;
    ckpt__json_doc d;
    cases(&d, "checksums.json");
    int seen = 0;
    for (const ckpt__json *v = ckpt__json_child(&d, get(&d, ckpt__json_root(&d), "data")); v != NULL; v = ckpt__json_next(&d, v)) {
        const char *name = str(&d, v, "name");
        size_t n = (size_t)get(&d, v, "length")->i;
        unsigned char *p = pattern(n), crc[4];
        if (strncmp(name, "pattern(", 8) != 0) {
            if (strcmp(name, "empty") == 0) n = 0;
            else if (strcmp(name, "32 zero bytes") == 0) memset(p, 0, n);
            else if (strcmp(name, "32 x 0xFF") == 0) memset(p, 255, n);
            else if (strcmp(name, "bytes 0..31") == 0) for (size_t i = 0; i < n; i++) p[i] = (unsigned char)i;
            else if (strlen(name) == n) memcpy(p, name, n);
            else continue;
        }
        uint32_t sum = ckpt__digest_crc32(0, p, n);
        for (int i = 0; i < 4; i++) crc[i] = (unsigned char)(sum >> (24 - 8 * i));
        check_base64(crc, 4, str(&d, v, "crc32"));
        check_digest(CKPT__DIGEST_SHA256, p, n, str(&d, v, "sha256"));
        check_digest(CKPT__DIGEST_MD5, p, n, str(&d, v, "md5"));
        seen++;
    }
    assert_true(seen >= 7);
    for (const ckpt__json *v = ckpt__json_child(&d, get(&d, ckpt__json_root(&d), "multipart")); v != NULL; v = ckpt__json_next(&d, v)) {
        size_t n = (size_t)strtoul(strchr(str(&d, v, "data"), '(') + 1, NULL, 10), part = (size_t)get(&d, v, "part_size")->i;
        unsigned char *p = pattern(n), sums[16 * 16], whole[16];
        size_t count = 0;
        ckpt__digest digest;
        for (size_t at = 0; at < n; at += part, count++) {
            assert_true(ckpt__digest_begin(&digest, CKPT__DIGEST_MD5));
            ckpt__digest_add(&digest, p + at, n - at < part ? n - at : part);
            assert_true(ckpt__digest_end(&digest, sums + 16 * count));
        }
        assert_int_equal(count, get(&d, v, "parts")->i);
        assert_true(ckpt__digest_begin(&digest, CKPT__DIGEST_MD5));
        ckpt__digest_add(&digest, sums, 16 * count);
        assert_true(ckpt__digest_end(&digest, whole));
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        ckpt__buf_byte(&b, '"');
        ckpt__txt_add_hex(&b, whole, 16);
        ckpt__buf_fmt(&b, "-%d\"", (int)count);
        assert_string_equal(ckpt__buf_cstr(&b), str(&d, v, "s3_etag"));
        ckpt__buf_free(&b);
    }
    ckpt__json_free(&d);
}

// RFC 4231, and a digest that was refused does nothing.
static void test_hmac(void **state) {
    (void)state;
    static const struct { const char *key, *text, *mac; } rfc[] = {
        { "Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
        { "", "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad" },
    };
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    for (int i = 0; i < UTIL_COUNT(rfc); i++) {
        unsigned char mac[32];
        b.len = 0;
        assert_int_equal(ckpt__digest_hmac_sha256(rfc[i].key, strlen(rfc[i].key), rfc[i].text, strlen(rfc[i].text), mac), CKPT_OK);
        ckpt__txt_add_hex(&b, mac, 32);
        assert_string_equal(ckpt__buf_cstr(&b), rfc[i].mac);
    }
    unsigned char key[131], mac[32];
    memset(key, 0xAA, sizeof key);
    static const char text[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    assert_int_equal(ckpt__digest_hmac_sha256(key, sizeof key, text, sizeof text - 1, mac), CKPT_OK);
    b.len = 0;
    ckpt__txt_add_hex(&b, mac, 32);
    assert_string_equal(ckpt__buf_cstr(&b), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    ckpt__buf_free(&b);
    ckpt__digest refused = { NULL };
    ckpt__digest_add(&refused, "x", 1);
    assert_false(ckpt__digest_end(&refused, mac));
}

//-- a server of STS, containers and instances ---------------------------------------

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

// All secrets of these tests hold this word: it may be in no sentence, no log line, and no memory that was given back.
#define SECRET "sEcReT"

typedef struct server {
    int             fd, port, stop;
    pthread_t       thread;
    pthread_mutex_t lock;               // guards what follows
    double          life;               // seconds that new credentials last
    double          ahead;              // seconds that its clock is ahead
    int             serial;             // of the credentials
    int             requests, sts, tokens, roles;
    int             fail, fail_status;  // so many requests fail with that status first; -1: the connection is closed, -2: no reply
    const char     *fail_body, *body;   // what it sends then; instead of credentials
    int             token_status;       // of IMDS; 200
    char            head[8192], text[8192];     // the last request that it answered
    const char     *role_secret;        // NULL, or what STS checks the signature with
    bool            bad_signature;
} server;

static void reply(ckpt__buf *out, const server *s, int status, const char *body) {
    ckpt__buf_fmt(out, "HTTP/1.1 %d Reason\r\nContent-Length: %d\r\nConnection: close\r\nLocation: http://127.0.0.1:%d/elsewhere\r\nDate: ",
                  status, (int)strlen(body), s->port);
    ckpt__txt_add_date(out, ckpt__os_time() + s->ahead, CKPT__DATE_HTTP);
    ckpt__buf_fmt(out, "\r\n\r\n%s", body);
}

static const char *until(const server *s, char *text, size_t cap) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__txt_add_date(&b, ckpt__os_time() + s->ahead + s->life + 0.999, CKPT__DATE_ISO);
    snprintf(text, cap, "%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return text;
}

static void header(const char *head, const char *name, char *value, size_t cap) {
    size_t n = strlen(name);
    value[0] = 0;
    for (const char *p = strstr(head, "\r\n"); p != NULL; p = strstr(p + 2, "\r\n")) {
        ckpt__view v = { p + 2, n };
        if (ckpt__txt_eq_nocase(v, name) && p[2 + n] == ':') snprintf(value, cap, "%.*s", (int)strcspn(p + 3 + n + 1, "\r\n"), p + 3 + n + 1);
    }
}

// Signs again what came and compares.
static void check_signature(server *s) {
    ckpt__fields h;
    static ckpt_credentials c;
    char date[64], sent[2048], value[4096];
    unsigned char sum[32];
    ckpt__buf hash;
    ckpt__buf_init(&hash, NULL);
    ckpt__fields_init(&h, NULL);
    memset(&c, 0, sizeof c);
    header(s->head, "x-amz-date", date, sizeof date);
    header(s->head, "authorization", sent, sizeof sent);
    const char *key = strstr(sent, "Credential=");
    ckpt__auth_scope scope = { "eu-west-3", "sts", &c, 0 };
    snprintf(c.secret_access_key, sizeof c.secret_access_key, "%s", s->role_secret);
    if (key != NULL) snprintf(c.access_key_id, sizeof c.access_key_id, "%.*s", (int)strcspn(key + 11, "/"), key + 11);
    header(s->head, "x-amz-security-token", c.session_token, sizeof c.session_token);
    header(s->head, "host", value, sizeof value);
    ckpt__fields_add(&h, "host", value);
    header(s->head, "content-type", value, sizeof value);
    ckpt__fields_add(&h, "content-type", value);
    bool good = ckpt__txt_read_date(ckpt__txt_view(date), &scope.now) && ckpt__digest_sha256(s->text, strlen(s->text), sum) == CKPT_OK;
    ckpt__txt_add_hex(&hash, sum, 32);
    good = good && ckpt__auth_sigv4(&h, &scope, "POST", "/", "", ckpt__buf_cstr(&hash)) == CKPT_OK;
    if (!good || strcmp(ckpt__fields_get(&h, "authorization"), sent) != 0) s->bad_signature = true;
    double off = scope.now - (ckpt__os_time() + s->ahead);
    if (off > 300 || off < -300) s->bad_signature = true;
    ckpt__fields_free(&h);
    ckpt__buf_free(&hash);
}

static void answer_sts(server *s, ckpt__buf *out) {
    char date[64], xml[2048];
    s->sts++;
    if (s->role_secret != NULL) check_signature(s);
    if (s->bad_signature) {
        reply(out, s, 403, "<ErrorResponse><Error><Type>Sender</Type><Code>SignatureDoesNotMatch</Code><Message>Wrong.\n\nx-amz-security-token:"
                           SECRET "</Message></Error></ErrorResponse>");
        s->bad_signature = false;
        return;
    }
    s->serial++;
    snprintf(xml, sizeof xml, "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser><Arn>a</Arn>"
             "</AssumedRoleUser><Credentials><AccessKeyId>ASIA%04d</AccessKeyId><SecretAccessKey>" SECRET "+sts/%d</SecretAccessKey><SessionToken>"
             SECRET "&amp;token%d==</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
             s->serial, s->serial, s->serial, until(s, date, sizeof date));
    reply(out, s, 200, s->body != NULL ? s->body : xml);
}

static void answer_json(server *s, ckpt__buf *out, const char *prefix) {
    char date[64], json[1024];
    s->serial++;
    snprintf(json, sizeof json, "{\"Code\": \"Success\", \"AccessKeyId\": \"%s%04d\", \"SecretAccessKey\": \"" SECRET "%d\", \"Token\": \"" SECRET
             "token\", \"Expiration\": \"%s\"}", prefix, s->serial, s->serial, until(s, date, sizeof date));
    reply(out, s, 200, s->body != NULL ? s->body : json);
}

static void answer(server *s, ckpt__buf *out) {
    s->requests++;
    if (s->fail != 0) {
        if (s->fail > 0) s->fail--;
        if (s->fail_status > 0) reply(out, s, s->fail_status, s->fail_body != NULL ? s->fail_body : "");
        return;
    }
    if (strncmp(s->head, "POST / ", 7) == 0) {
        answer_sts(s, out);
    } else if (strncmp(s->head, "PUT /latest/api/token ", 22) == 0) {
        s->tokens++;
        reply(out, s, s->token_status, "TOKEN" SECRET);
    } else if (strncmp(s->head, "GET /latest/meta-data/iam/security-credentials/ ", 48) == 0) {
        char token[64];
        header(s->head, "x-aws-ec2-metadata-token", token, sizeof token);
        if (strcmp(token, s->token_status == 200 ? "TOKEN" SECRET : "") != 0) reply(out, s, 401, "");
        else reply(out, s, 200, "my role");
    } else if (strncmp(s->head, "GET /latest/meta-data/iam/security-credentials/my%20role ", 57) == 0) {
        s->roles++;
        answer_json(s, out, "IMDS");
    } else if (strncmp(s->head, "GET /container ", 15) == 0) {
        answer_json(s, out, "CONT");
    } else {
        reply(out, s, 404, "");
    }
}

static void serve(server *s, int fd) {
    static __thread char in[32768];
    size_t n = 0;
    int status = 0;
    ckpt__buf out;
    ckpt__buf_init(&out, NULL);
    for (;;) {
        ssize_t got = recv(fd, in + n, sizeof in - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        in[n] = 0;
        char *end = strstr(in, "\r\n\r\n"), length[32];
        if (end == NULL) continue;
        header(in, "content-length", length, sizeof length);
        if (strlen(end + 4) < strtoul(length, NULL, 10)) continue;
        (void)pthread_mutex_lock(&s->lock);
        snprintf(s->head, sizeof s->head, "%.*s", (int)(end + 2 - in), in);
        snprintf(s->text, sizeof s->text, "%s", end + 4);
        status = s->fail != 0 ? s->fail_status : 0;
        answer(s, &out);
        (void)pthread_mutex_unlock(&s->lock);
        break;
    }
    for (size_t at = 0; at < out.len;) {
        ssize_t put = send(fd, out.data + at, out.len - at, MSG_NOSIGNAL);
        if (put <= 0) break;
        at += (size_t)put;
    }
    while (status == -2 && __atomic_load_n(&s->stop, __ATOMIC_SEQ_CST) == 0) {      // until the client gives up
        struct pollfd p = { fd, POLLIN, 0 };
        if (poll(&p, 1, 20) > 0 && recv(fd, in, sizeof in, 0) <= 0) break;
    }
    ckpt__buf_free(&out);
    close(fd);
}

static void *server_main(void *user) {
    server *s = (server *)user;
    while (__atomic_load_n(&s->stop, __ATOMIC_SEQ_CST) == 0) {
        struct pollfd p = { s->fd, POLLIN, 0 };
        if (poll(&p, 1, 20) <= 0) continue;
        int fd = accept(s->fd, NULL, NULL);
        if (fd >= 0) serve(s, fd);
    }
    return NULL;
}

static void server_start(server *s) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    memset(s, 0, sizeof *s);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->life = 3600;
    s->token_status = 200;
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s->fd >= 0 && bind(s->fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(s->fd, 64) == 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &n), 0);
    s->port = ntohs(a.sin_port);
    (void)pthread_mutex_init(&s->lock, NULL);
    assert_int_equal(pthread_create(&s->thread, NULL, server_main, s), 0);
}

static void server_stop(server *s) {
    __atomic_store_n(&s->stop, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(s->thread, NULL);
    (void)pthread_mutex_destroy(&s->lock);
    close(s->fd);
}

// Changes a field of the server while it runs.
#define TELL(s, what) do { (void)pthread_mutex_lock(&(s)->lock); what; (void)pthread_mutex_unlock(&(s)->lock); } while (0)

//-- a store's side ------------------------------------------------------------------

static const char *home;

// A home of its own and no variable of AWS.
static int fresh(void **state) {
    (void)state;
    extern char **environ;
    for (char **e = environ; *e != NULL;) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        bool drop = strncmp(name, "AWS_", 4) == 0 || strncmp(name, "S3_", 3) == 0 || strstr(name, "proxy") != NULL || strstr(name, "PROXY") != NULL;
        if (drop) unsetenv(name);
        e = drop ? environ : e + 1;
    }
    home = util_temp_dir();
    util_mkdir(util_join(home, ".aws"));
    setenv("HOME", home, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    return 0;
}

static void config(const char *text) { util_write_text(util_join(home, ".aws/config"), text); }
static void credentials(const char *text) { util_write_text(util_join(home, ".aws/credentials"), text); }

typedef struct client {
    ckpt__http       http;
    ckpt__auth_aws   auth;
    ckpt__transfer   t;
    ckpt_credentials got;
    char             log[65536];
    pthread_mutex_t  lock;
    ckpt_allocator   allocator;
    size_t           held;
    int              left;              // allocations until the first that fails; < 0: none fails
    bool             leaked;            // memory with a secret in it was given back
} client;

static void client_log(ckpt_log_level level, const char *text, void *user) {
    client *c = (client *)user;
    (void)pthread_mutex_lock(&c->lock);
    size_t n = strlen(c->log);
    snprintf(c->log + n, sizeof c->log - n, "%d %s\n", (int)level, text);
    (void)pthread_mutex_unlock(&c->lock);
}

static void *client_alloc(void *ptr, size_t old_size, size_t new_size, void *user) {
    client *c = (client *)user;
    (void)pthread_mutex_lock(&c->lock);
    bool refuse = new_size != 0 && c->left == 0;
    if (new_size != 0 && c->left > 0) c->left--;
    if (!refuse) c->held += new_size - old_size;
    for (size_t i = 0; !refuse && i + sizeof SECRET - 1 <= old_size; i++) {
        if (memcmp((char *)ptr + i, SECRET, sizeof SECRET - 1) == 0) c->leaked = true;
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (refuse) return NULL;
    void *p = NULL;
    if (new_size != 0) {
        p = calloc(1, new_size);        // what others have left in it is not ours
        if (ptr != NULL) memcpy(p, ptr, old_size < new_size ? old_size : new_size);
    }
    free(ptr);
    return p;
}

static ckpt_err client_open(client *c, const ckpt_store_desc *given) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    if (given != NULL) d = *given;
    memset(c, 0, sizeof *c);
    (void)pthread_mutex_init(&c->lock, NULL);
    c->left = -1;
    c->allocator.fn = client_alloc;
    c->allocator.user = c;
    d.logger.fn = client_log;
    d.logger.user = c;
    ckpt__http_options o;
    memset(&o, 0, sizeof o);
    o.logger = &d.logger;
    assert_int_equal(ckpt__http_init(&c->http, &o), CKPT_OK);
    return ckpt__auth_aws_init(&c->auth, &d, &c->http, &c->allocator);
}

static ckpt_err client_get(client *c) {
    ckpt_err e = ckpt__auth_aws_get(&c->auth, &c->got, &c->t);
    if (e != CKPT_OK) assert_null(strstr(ckpt_last_error(), SECRET));
    return e;
}

static void client_close(client *c) {
    ckpt__auth_aws_free(&c->auth);
    ckpt__http_free(&c->http);
    assert_int_equal(c->held, 0);
    assert_false(c->leaked);
    assert_null(strstr(c->log, SECRET));
    (void)pthread_mutex_destroy(&c->lock);
}

// Opens, asks once, closes; the sentence of a failure is in ckpt_last_error().
static ckpt_err once(client *c, const ckpt_store_desc *d) {
    ckpt_err e = client_open(c, d);
    if (e == CKPT_OK) e = client_get(c);
    if (e != CKPT_OK) assert_null(strstr(ckpt_last_error(), SECRET));
    client_close(c);
    return e;
}

#define SAYS(part) do { if (strstr(ckpt_last_error(), (part)) == NULL) fail_msg("\"%s\" is not in \"%s\"", (part), ckpt_last_error()); } while (0)

static client c;

static void expect(const char *id, const char *secret, const char *token) {
    assert_string_equal(c.got.access_key_id, id);
    assert_string_equal(c.got.secret_access_key, secret);
    assert_string_equal(c.got.session_token, token);
}

//-- tests ---------------------------------------------------------------------------

static void test_environment(void **state) {
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("the secret key is missing");
    setenv("AWS_SECRET_ACCESS_KEY", SECRET "1", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKENV", SECRET "1", "");
    assert_true(c.got.expires == 0);
    assert_non_null(strstr(c.log, "the environment"));
    setenv("AWS_SESSION_TOKEN", SECRET "t1", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKENV", SECRET "1", SECRET "t1");
    setenv("AWS_SECURITY_TOKEN", SECRET "t2", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKENV", SECRET "1", SECRET "t2");
    setenv("AWS_SECRET_ACCESS_KEY", SECRET "\n", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("line break");
    setenv("AWS_SECRET_ACCESS_KEY", SECRET "1", 1);
    setenv("AWS_CREDENTIAL_EXPIRATION", "2001-01-01T00:00:00Z", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("have expired");
    setenv("AWS_CREDENTIAL_EXPIRATION", "soon", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("no date");
    setenv("AWS_CREDENTIAL_EXPIRATION", "2999-01-01T00:00:00Z", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_true(c.got.expires > 3e10);
    // a profile given outright comes before the environment, one named by the environment does not
    credentials("[p]\naws_access_key_id = AKP\naws_secret_access_key = " SECRET "p\n");
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    setenv("AWS_PROFILE", "p", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKENV", SECRET "1", SECRET "t2");
    d.profile = "p";
    assert_int_equal(once(&c, &d), CKPT_OK);
    expect("AKP", SECRET "p", "");
    char longer[600];
    memset(longer, 'x', sizeof longer);
    longer[599] = 0;
    setenv("AWS_ACCESS_KEY_ID", longer, 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("too long");
}

static int asked;
static ckpt_err callback(ckpt_credentials *out, void *user) {
    asked++;
    if (asked == 3) return ckpt_set_error(CKPT_AUTH, "the vault is closed");
    snprintf(out->access_key_id, sizeof out->access_key_id, "CALL%d", asked);
    snprintf(out->secret_access_key, sizeof out->secret_access_key, SECRET "%d", asked);
    out->expires = *(double *)user == 0 ? 0 : ckpt__os_time() + *(double *)user;
    return CKPT_OK;
}

static void test_given(void **state) {
    (void)state;
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.access_key_id = "AKARG";
    assert_int_equal(once(&c, &d), CKPT_AUTH);
    d.secret_access_key = SECRET "a";
    d.session_token = SECRET "b";
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    assert_int_equal(client_open(&c, &d), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("AKARG", SECRET "a", SECRET "b");
    ckpt__auth_aws_expired(&c.auth, &c.got);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("AKARG", SECRET "a", SECRET "b");
    client_close(&c);
    double life = 0.4;
    memset(&d, 0, sizeof d);
    d.credentials = callback;
    d.credentials_user = &life;
    asked = 0;
    assert_int_equal(client_open(&c, &d), CKPT_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(client_get(&c), CKPT_OK);
        expect("CALL1", SECRET "1", "");
    }
    ckpt__os_sleep(0.45);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("CALL2", SECRET "2", "");
    ckpt__os_sleep(0.45);
    assert_int_equal(client_get(&c), CKPT_AUTH);
    SAYS("the vault is closed");
    assert_true(c.t.transient);                     // it worked before: it may again
    life = 0;
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("CALL4", SECRET "4", "");
    ckpt__auth_aws_expired(&c.auth, &c.got);
    ckpt__auth_aws_expired(&c.auth, &c.got);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("CALL5", SECRET "5", "");
    snprintf(c.got.access_key_id, sizeof c.got.access_key_id, "CALL4");
    ckpt__auth_aws_expired(&c.auth, &c.got);        // somebody else renewed them already
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_int_equal(asked, 5);
    client_close(&c);
}

static ckpt_err odd_callback(ckpt_credentials *out, void *user) {
    asked++;
    snprintf(out->access_key_id, sizeof out->access_key_id, "CALL%d", asked);
    snprintf(out->secret_access_key, sizeof out->secret_access_key, SECRET);
    out->expires = strtod("nan", NULL);
    return (ckpt_err)*(int *)user;
}

// What a program's function says that it cannot mean: a number that is no error, and an end that is no number.
static void test_given_oddly(void **state) {
    (void)state;
    static int says[] = { 99, -1, CKPT__ERR_COUNT, CKPT_OK };
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.credentials = odd_callback;
    for (int i = 0; i < 4; i++) {
        d.credentials_user = &says[i];
        asked = 0;
        assert_int_equal(client_open(&c, &d), CKPT_OK);
        for (int k = 0; k < 3 && says[i] == CKPT_OK; k++) {
            assert_int_equal(client_get(&c), CKPT_OK);
            expect("CALL1", SECRET, "");
        }
        if (says[i] != CKPT_OK) assert_int_equal(client_get(&c), CKPT_AUTH);
        if (says[i] != CKPT_OK) SAYS(util_fmt("returned %d, which is no error", says[i]));
        client_close(&c);
    }
}

static void test_files(void **state) {
    (void)state;
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("AWS_ACCESS_KEY_ID (not set)");
    SAYS("AWS_WEB_IDENTITY_TOKEN_FILE (not set)");
    SAYS("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    SAYS("EC2 metadata service (disabled)");
    SAYS(util_join(home, ".aws/credentials"));
    SAYS("no such profile");
    assert_false(c.t.transient);
    config("[default]\nregion = eu-north-1\naws_access_key_id = AKC\naws_secret_access_key = " SECRET "c\n[profile \"a b\"]\naws_access_key_id = AKAB\n"
           "aws_secret_access_key = " SECRET "ab=\naws_session_token = " SECRET "t\ns3 =\n  addressing_style = virtual\nservices = mine\nregion = ap-south-1\n"
           "[services mine]\ns3 =\n  endpoint_url = http://s3.example\nsts =\n  endpoint_url = http://sts.example/\n[profile half]\naws_access_key_id = AK\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKC", SECRET "c", "");
    credentials("[default]\naws_access_key_id = AKS ; a\naws_secret_access_key = " SECRET "s\naws_security_token = " SECRET "old\n[only]\nregion = r-1\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);      // the credentials file comes first
    expect("AKS ; a", SECRET "s", SECRET "old");
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.profile = "half";
    assert_int_equal(once(&c, &d), CKPT_AUTH);
    SAYS("the profile \"half\"");
    SAYS("the secret key is missing");
    d.profile = "only";
    assert_int_equal(once(&c, &d), CKPT_AUTH);
    SAYS("it has no keys");
    d.profile = "nobody";
    assert_int_equal(client_open(&c, &d), CKPT_AUTH);
    SAYS("no AWS profile \"nobody\"");
    client_close(&c);
    setenv("AWS_DEFAULT_PROFILE", "only", 1);
    setenv("AWS_PROFILE", "a b", 1);
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("AKAB", SECRET "ab=", SECRET "t");
    assert_string_equal(ckpt__auth_aws_setting(&c.auth, "s3.addressing_style"), "virtual");
    assert_string_equal(ckpt__auth_aws_setting(&c.auth, "s3.endpoint_url"), "http://s3.example");
    assert_null(ckpt__auth_aws_setting(&c.auth, "endpoint_url"));
    assert_string_equal(ckpt__auth_aws_endpoint(&c.auth, "s3"), "http://s3.example");
    assert_string_equal(ckpt__auth_aws_endpoint(&c.auth, "sts"), "http://sts.example/");
    setenv("AWS_ENDPOINT_URL", "http://all", 1);
    assert_string_equal(ckpt__auth_aws_endpoint(&c.auth, "s3"), "http://all");
    setenv("AWS_ENDPOINT_URL_S3", "http://s3", 1);
    assert_string_equal(ckpt__auth_aws_endpoint(&c.auth, "s3"), "http://s3");
    assert_string_equal(ckpt__auth_aws_endpoint(&c.auth, "sts"), "http://all");
    setenv("S3_ENDPOINT_URL", "http://composer", 1);
    assert_string_equal(ckpt__auth_aws_endpoint(&c.auth, "s3"), "http://composer");
    unsetenv("S3_ENDPOINT_URL");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True", 1);
    assert_null(ckpt__auth_aws_endpoint(&c.auth, "s3"));
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    assert_int_equal(ckpt__auth_aws_region(&c.auth, &b), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&b), "ap-south-1");
    static const char *const more[][2] = { { "AWS_DEFAULT_REGION", "d-1" }, { "AWS_REGION", "r-1" } };
    for (int i = 0; i < UTIL_COUNT(more); i++) {
        setenv(more[i][0], more[i][1], 1);
        b.len = 0;
        assert_int_equal(ckpt__auth_aws_region(&c.auth, &b), CKPT_OK);
        assert_string_equal(ckpt__buf_cstr(&b), more[i][1]);
    }
    setenv("AWS_REGION", "evil.com/", 1);
    assert_int_equal(ckpt__auth_aws_region(&c.auth, &b), CKPT_ARG);
    client_close(&c);
    ckpt__buf_free(&b);
    // files elsewhere, with ~
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_DEFAULT_PROFILE");
    setenv("AWS_CONFIG_FILE", "~/.aws/none", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "~/elsewhere", 1);
    util_write_text(util_join(home, "elsewhere"), "[default]\naws_access_key_id=AKE\naws_secret_access_key=" SECRET "e\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKE", SECRET "e", "");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    unsetenv("AWS_CONFIG_FILE");
    unsetenv("HOME");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("HOME is not set");
}

// A file that changed counts when the credentials are renewed.
static void test_files_change(void **state) {
    (void)state;
    credentials("[default]\naws_access_key_id = AK1\naws_secret_access_key = " SECRET "1\n");
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    credentials("[default]\naws_access_key_id = AK2\naws_secret_access_key = " SECRET "2\n");
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("AK1", SECRET "1", "");
    ckpt__auth_aws_expired(&c.auth, &c.got);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("AK2", SECRET "2", "");
    client_close(&c);
}

static void test_files_damaged(void **state) {
    (void)state;
    credentials("[default]\naws_access_key_id = AK1\naws_secret_access_key " SECRET "\n");
    assert_int_equal(client_open(&c, NULL), CKPT_CORRUPT);
    SAYS(".aws/credentials: line 3");
    assert_null(strstr(ckpt_last_error(), SECRET));
    client_close(&c);
    char *big = (char *)malloc(2 << 20);
    memset(big, '\n', 2 << 20);
    util_write(util_join(home, ".aws/credentials"), big, 2 << 20);
    free(big);
    assert_int_equal(client_open(&c, NULL), CKPT_CORRUPT);
    client_close(&c);
    assert_int_equal(unlink(util_join(home, ".aws/credentials")), 0);
    util_mkdir(util_join(home, ".aws/credentials"));
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    config("[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("SSO");
    SAYS("export-credentials");
    SAYS("credential_process");
    config("[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\naws_access_key_id = AK1\naws_secret_access_key = " SECRET "1\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);
}

static void test_program(void **state) {
    (void)state;
    util_mkdir(util_join(home, "my dir"));
    const char *path = util_join(home, "my dir/give.sh"), *body = util_join(home, "body");
    util_write_text(path, "#!/bin/sh\n[ \"$1\" = 'a b' ] || { echo \"bad argument\" >&2; exit 3; }\necho x >>\"$HOME/count\"\ncat \"$HOME/body\"\n");
    assert_int_equal(chmod(path, 0700), 0);
    config(util_fmt("[default]\ncredential_process = \"%s\" 'a b'\n", path));
    util_write_text(body, "{\"Version\": 1, \"AccessKeyId\": \"AKPROC\", \"SecretAccessKey\": \"" SECRET "\", \"SessionToken\": \"" SECRET "t\"}\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("AKPROC", SECRET, SECRET "t");
    assert_true(c.got.expires == 0);
    static const struct { const char *text; ckpt_err e; const char *says; } cases_[] = {
        { "{\"Version\": 2, \"AccessKeyId\": \"AKPROC\", \"SecretAccessKey\": \"" SECRET "\"}", CKPT_AUTH, "Version 1" },
        { "{\"Version\": 1, \"AccessKeyId\": \"AKPROC\"}", CKPT_AUTH, "the secret key is missing" },
        { "{\"Version\": 1, \"AccessKeyId\": \"AKPROC\", \"SecretAccessKey\": 7}", CKPT_AUTH, "the secret key is missing" },
        { "[1]", CKPT_AUTH, "Version 1" }, { SECRET, CKPT_AUTH, "not valid JSON" }, { "", CKPT_AUTH, "not valid JSON" },
        { "{\"Version\": 1, \"AccessKeyId\": \"AKPROC\", \"SecretAccessKey\": \"" SECRET "\", \"Expiration\": \"later\"}", CKPT_AUTH, "no date" },
        { "{\"Version\": 1, \"AccessKeyId\": \"AKPROC\", \"SecretAccessKey\": \"" SECRET "\\u000a\"}", CKPT_AUTH, "line break" },
    };
    for (int i = 0; i < UTIL_COUNT(cases_); i++) {
        util_write_text(body, cases_[i].text);
        assert_int_equal(once(&c, NULL), cases_[i].e);
        SAYS(cases_[i].says);
        SAYS("credential_process of the profile \"default\"");
    }
    char *big = (char *)malloc(200000);
    memset(big, 'x', 200000);
    util_write(body, big, 200000);
    free(big);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("too much");
    config(util_fmt("[default]\ncredential_process = \"%s\" a b\n", path));
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("give.sh failed with status 3; ");
    assert_null(strstr(ckpt_last_error(), "bad argument"));      // it may hold a secret
    config("[default]\ncredential_process = /nowhere/at/all\n");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("cannot run all");
    config("[default]\ncredential_process = 'x\n");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("quote");
    // run again when they end
    util_write_text(path, "#!/bin/sh\necho x >>\"$HOME/count\"\nprintf '{\"Version\":1,\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"" SECRET
                          "\",\"Expiration\":\"%s\"}' \"$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -v+2S +%Y-%m-%dT%H:%M:%SZ)\"\n");
    config(util_fmt("[default]\ncredential_process = \"%s\"\n", path));
    (void)unlink(util_join(home, "count"));
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    for (double end = ckpt__os_now() + 3; ckpt__os_now() < end; ckpt__os_sleep(0.05)) {
        assert_int_equal(client_get(&c), CKPT_OK);
        assert_true(c.got.expires > ckpt__os_time());
    }
    client_close(&c);
    size_t n = strlen(util_read(util_join(home, "count"), NULL)) / 2;
    assert_in_range(n, 2, 8);
    // what a program that fails says is not repeated: it may have printed what it should not
    config("[default]\ncredential_process = sh -c 'echo token " SECRET " >&2; exit 3'\n");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("status 3");
    assert_null(strstr(ckpt_last_error(), SECRET));
    // a program that hangs is left when the transfer is cancelled
    config("[default]\ncredential_process = sleep 30\n");
    ckpt__os_flag cancel = 1;
    double begin = ckpt__os_now();
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    c.t.cancel = &cancel;
    assert_int_equal(client_get(&c), CKPT_CANCELLED);
    assert_true(ckpt__os_now() - begin < 3);
    client_close(&c);
}

//-- roles ---------------------------------------------------------------------------

static server s;

static int start(void **state) {
    fresh(state);
    server_start(&s);
    setenv("AWS_ENDPOINT_URL_STS", util_fmt("http://127.0.0.1:%d", s.port), 1);
    setenv("AWS_REGION", "eu-west-3", 1);
    return 0;
}

static int stop(void **state) {
    (void)state;
    server_stop(&s);
    return 0;
}

static bool sent(const char *part) {
    bool in;
    TELL(&s, in = strstr(s.text, part) != NULL || strstr(s.head, part) != NULL);
    return in;
}

static void test_role(void **state) {
    (void)state;
    credentials("[base]\naws_access_key_id = AKBASE\naws_secret_access_key = " SECRET "base\n");
    config("[default]\nrole_arn = arn:aws:iam::123456789012:role/my role\nsource_profile = base\nexternal_id = e/1\nduration_seconds = 1800\n"
           "role_session_name = me@host\n");
    TELL(&s, s.role_secret = SECRET "base");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("ASIA0001", SECRET "+sts/1", SECRET "&token1==");
    assert_true(c.got.expires > ckpt__os_time() + 3590 && c.got.expires < ckpt__os_time() + 3602);
    assert_true(sent("Action=AssumeRole&DurationSeconds=1800&ExternalId=e%2F1&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fmy%20role"
                     "&RoleSessionName=me%40host&Version=2011-06-15"));
    assert_true(sent("Credential=AKBASE/"));
    assert_non_null(strstr(c.log, "the role arn"));
    // a role of a role; the second is signed with what the first gave
    TELL(&s, s.role_secret = NULL; s.sts = 0);
    config("[default]\nrole_arn = arn:outer\nsource_profile = inner\n[profile inner]\nrole_arn = arn:inner\nsource_profile = base\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_int_equal(s.sts, 2);
    expect("ASIA0003", SECRET "+sts/3", SECRET "&token3==");
    assert_true(sent("Credential=ASIA0002/") && sent("RoleArn=arn%3Aouter") && sent("x-amz-security-token: " SECRET "&token2=="));
    assert_true(sent("RoleSessionName=ckpt-session-"));
    // keys and a role in one profile
    config("[default]\nrole_arn = arn:self\nsource_profile = default\naws_access_key_id = AKSELF\naws_secret_access_key = " SECRET "self\n");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_true(sent("Credential=AKSELF/"));
    // the environment, a program, a container and an instance as the base
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET "env", 1);
    config("[profile env]\nrole_arn = arn:x\ncredential_source = Environment\n[profile program]\nrole_arn = arn:x\nsource_profile = prints\n"
           "[profile prints]\ncredential_process = echo '{\"Version\":1,\"AccessKeyId\":\"AKPRINT\",\"SecretAccessKey\":\"" SECRET "\"}'\n"
           "[profile container]\nrole_arn = arn:x\ncredential_source = EcsContainer\n[profile instance]\nrole_arn = arn:x\n"
           "credential_source = Ec2InstanceMetadata\n[profile odd]\nrole_arn = arn:x\ncredential_source = Oracle\n");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", util_fmt("http://localhost:%d/container", s.port), 1);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", util_fmt("http://127.0.0.1:%d", s.port), 1);
    unsetenv("AWS_EC2_METADATA_DISABLED");
    static const char *const bases[][2] = { { "env", "AKENV" }, { "program", "AKPRINT" }, { "container", "CONT00" }, { "instance", "IMDS00" } };
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < UTIL_COUNT(bases); i++) {
        d.profile = bases[i][0];
        assert_int_equal(once(&c, &d), CKPT_OK);
        assert_true(sent(util_fmt("Credential=%s", bases[i][1])));
        assert_memory_equal(c.got.access_key_id, "ASIA", 4);
    }
    d.profile = "odd";
    assert_int_equal(once(&c, &d), CKPT_AUTH);
    SAYS("credential_source");
}

static void test_role_wrong(void **state) {
    (void)state;
    static const char *const cases_[][2] = {
        { "source_profile = default\n", "lead to each other" }, { "source_profile = b\n[profile b]\nrole_arn = x\nsource_profile = default\n", "lead to each other" },
        { "source_profile = b\n[profile b]\nrole_arn = x\nsource_profile = c\n[profile c]\nrole_arn = x\nsource_profile = b\n", "lead to each other" },
        { "source_profile = gone\n", "\"gone\"" }, { "", "neither source_profile nor" },
        { "source_profile = b\ncredential_source = Environment\n[profile b]\n", "both source_profile and" },
        { "source_profile = b\n[profile b]\nregion = x\n", "has no credentials" }, { "source_profile = default\nmfa_serial = 1\n", "MFA" },
        { "credential_source = Environment\n", "which has none" },
        { "source_profile = 1\n[profile 1]\nrole_arn=x\nsource_profile = 2\n[profile 2]\nrole_arn=x\nsource_profile = 3\n[profile 3]\nrole_arn=x\nsource_profile = 4\n"
          "[profile 4]\nrole_arn=x\nsource_profile = 5\n[profile 5]\nrole_arn=x\nsource_profile = 6\n[profile 6]\nrole_arn=x\nsource_profile = 7\n"
          "[profile 7]\nrole_arn=x\nsource_profile = 8\n[profile 8]\nrole_arn=x\nsource_profile = 9\n[profile 9]\n", "more than 8" },
        { "source_profile = b\n[profile b]\naws_access_key_id = AK\n", "the secret key is missing" },
    };
    for (int i = 0; i < UTIL_COUNT(cases_); i++) {
        config(util_fmt("[default]\nrole_arn = arn:x\n%s", cases_[i][0]));
        assert_int_equal(once(&c, NULL), CKPT_AUTH);
        SAYS(cases_[i][1]);
    }
    assert_int_equal(s.requests, 0);
}

static void test_sts_replies(void **state) {
    (void)state;
    credentials("[default]\naws_access_key_id = AKBASE\naws_secret_access_key = " SECRET "base\n");
    config("[default]\nrole_arn = arn:x\nsource_profile = default\n");
    TELL(&s, s.fail = 1; s.fail_status = 503);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_int_equal(s.requests, 2);
    assert_false(c.t.transient);
    TELL(&s, s.fail = 1; s.fail_status = -1);           // the connection is closed without a reply
    assert_int_equal(once(&c, NULL), CKPT_OK);
    TELL(&s, s.requests = 0; s.fail = -1; s.fail_status = -2);      // it accepts, and is silent: once for as long as a store may be
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    c.t.stall_timeout_s = 0.2;
    assert_int_equal(client_get(&c), CKPT_TIMEOUT);
    assert_true(c.t.transient);
    int counted = 2;
    TELL(&s, counted = s.requests);
    assert_true(counted <= 1);
    client_close(&c);
    TELL(&s, s.fail = 1; s.fail_status = 400; s.fail_body = "<ErrorResponse><Error><Code>IDPCommunicationError</Code></Error></ErrorResponse>");
    assert_int_equal(once(&c, NULL), CKPT_OK);
    TELL(&s, s.requests = 0; s.fail = -1; s.fail_status = 500; s.fail_body = "oops");
    assert_int_equal(once(&c, NULL), CKPT_NET);
    assert_true(c.t.transient);
    assert_int_equal(s.requests, 3);
    SAYS("HTTP 500");
    TELL(&s, s.requests = 0; s.fail_status = 403; s.fail_body = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>You may not &amp; never.\n"
             SECRET "</Message></Error></ErrorResponse>");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    assert_false(c.t.transient);
    assert_int_equal(s.requests, 1);
    SAYS("the role arn:x: AccessDenied (HTTP 403): You may not & never.");
    TELL(&s, s.fail_status = 302; s.fail_body = "");     // redirects are not followed
    s.requests = 0;
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    assert_int_equal(s.requests, 1);
    TELL(&s, s.fail = 0);
    static const char *const damaged[] = { "", "<a/>", "<a><AccessKeyId>A</AccessKeyId></a>", "<a><AccessKeyId>A</AccessKeyId><SecretAccessKey>" SECRET
        "</SecretAccessKey><SessionToken>t</SessionToken></a>", "<a><AccessKeyId>A</AccessKeyId><SecretAccessKey>" SECRET
        "</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>", "{\"a\": 1}",
        "<a><AccessKeyId>A&#10;B</AccessKeyId><SecretAccessKey>" SECRET "</SecretAccessKey><SessionToken>t</SessionToken>"
        "<Expiration>2999-01-01T00:00:00Z</Expiration></a>" };
    for (int i = 0; i < UTIL_COUNT(damaged); i++) {
        TELL(&s, s.body = damaged[i]);
        assert_int_equal(once(&c, NULL), CKPT_AUTH);
    }
    char *huge = (char *)util_keep(malloc(300000), false);
    memset(huge, 'x', 299999);
    huge[299999] = 0;
    memcpy(huge, "<a>", 3);
    TELL(&s, s.body = huge);
    assert_int_not_equal(once(&c, NULL), CKPT_OK);
    // a token that does not fit
    snprintf(huge, 300000, "<a><AccessKeyId>A</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%*d</SessionToken>"
             "<Expiration>2999-01-01T00:00:00Z</Expiration></a>", SECRET, 9000, 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("too long");
    // clocks that differ by two hours: the signature is made anew, and the expiry is on our own clock
    TELL(&s, s.body = NULL; s.ahead = 7200; s.role_secret = SECRET "base"; s.requests = 0);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_int_equal(s.requests, 2);
    assert_true(c.got.expires > ckpt__os_time() + 3500 && c.got.expires < ckpt__os_time() + 3700);
    TELL(&s, s.ahead = 0; s.role_secret = "other");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("SignatureDoesNotMatch");
    SAYS("Wrong.");
}

static void test_web_identity(void **state) {
    (void)state;
    util_write_text(util_join(home, "token"), SECRET ".jwt.1\n");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", util_join(home, "token"), 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("AWS_ROLE_ARN");
    setenv("AWS_ROLE_ARN", "arn:web", 1);
    setenv("AWS_ROLE_SESSION_NAME", "pod", 1);
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    expect("ASIA0001", SECRET "+sts/1", SECRET "&token1==");
    assert_true(sent("Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aweb&RoleSessionName=pod&Version=2011-06-15&WebIdentityToken=" SECRET ".jwt.1"));
    assert_false(sent("uthorization:"));
    util_write_text(util_join(home, "token"), SECRET ".jwt.2");      // rotated
    ckpt__auth_aws_expired(&c.auth, &c.got);
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_true(sent("WebIdentityToken=" SECRET ".jwt.2"));
    assert_int_equal(unlink(util_join(home, "token")), 0);
    ckpt__auth_aws_expired(&c.auth, &c.got);
    assert_int_equal(client_get(&c), CKPT_AUTH);
    SAYS("web identity");
    client_close(&c);
    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
    unsetenv("AWS_ROLE_ARN");
    unsetenv("AWS_ROLE_SESSION_NAME");
    util_write_text(util_join(home, "token"), "t3");
    config(util_fmt("[profile w]\nrole_arn = arn:w\nweb_identity_token_file = %s\n", util_join(home, "token")));
    setenv("AWS_PROFILE", "w", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_true(sent("RoleArn=arn%3Aw&RoleSessionName=ckpt-session-"));
}

//-- containers and instances ----------------------------------------------------------

static void test_near(void **state) {
    (void)state;
    static const struct { const char *authority; bool near; } cases_[] = {
        { "localhost", true }, { "LOCALHOST:80", true }, { "127.0.0.1", true }, { "127.255.0.9:1", true }, { "169.254.170.2", true }, { "169.254.170.23:8", true },
        { "[::1]", true }, { "[::1]:1", true }, { "[fd00:ec2::23]", true }, { "[FD00:EC2::23]:9", true }, { "169.254.169.254", false }, { "128.0.0.1", false },
        { "127.0.0.1.evil.com", false }, { "127.evil.com", false }, { "127.0.0.256", false }, { "127.0.0", false }, { "127.0.0.1.", false }, { "127.0.0.0.1", false },
        { "2130706433", false }, { "0x7f.0.0.1", false }, { "localhost.evil.com", false }, { "evil.com", false }, { "", false }, { "[::2]", false }, { "::1", false },
        { "127..0.1", false }, { "127.0.0.", false }, { ":80", false },
    };
    for (int i = 0; i < UTIL_COUNT(cases_); i++) {
        if (ckpt__auth_is_near(ckpt__txt_view(cases_[i].authority)) != cases_[i].near) fail_msg("%s", cases_[i].authority);
    }
    static const char *const bad[] = { "ftp://x/", "http:/x", "http://", "http://u@h/", "http://169.254.170.2@evil.com/", "http://h/a b", "http://h/\r\nX: y",
                                       "http://h\\@evil.com/", "//h/", "" };
    bool https;
    ckpt__view authority;
    const char *path;
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_false(ckpt__auth_split_url(bad[i], &https, &authority, &path));
    assert_true(ckpt__auth_split_url("HTTPS://h:1/p?q", &https, &authority, &path));
    assert_true(https && ckpt__txt_eq(authority, "h:1"));
    assert_string_equal(path, "/p?q");
}

static void test_container(void **state) {
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/creds", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("must be an https address");
    setenv("http_proxy", "http://127.0.0.1:9", 1);           // never used here
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", util_fmt("http://127.0.0.1:%d/container", s.port), 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("CONT0001", SECRET "1", SECRET "token");
    assert_false(sent("uthorization:"));
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", SECRET "-a", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_true(sent("Authorization: " SECRET "-a\r\n"));
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", SECRET "\r\nX: y", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("line break");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", util_join(home, "token"), 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);            // "not found" is said of objects
    util_write_text(util_join(home, "token"), SECRET "-f1\n");
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_true(sent("Authorization: " SECRET "-f1\r\n"));
    util_write_text(util_join(home, "token"), SECRET "-f2");
    ckpt__auth_aws_expired(&c.auth, &c.got);
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_true(sent("Authorization: " SECRET "-f2\r\n"));
    client_close(&c);
    util_write_text(util_join(home, "token"), "a\nb");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("line break");
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    TELL(&s, s.requests = 0; s.fail = 1; s.fail_status = 500);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_int_equal(s.requests, 2);
    TELL(&s, s.requests = 0; s.fail = -1; s.fail_status = 404);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    assert_int_equal(s.requests, 3);
    SAYS("HTTP 404");
    TELL(&s, s.fail = 0; s.body = "{\"AccessKeyId\": \"A\"}");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("the secret key is missing");
}

static void test_instance(void **state) {
    (void)state;
    unsetenv("AWS_EC2_METADATA_DISABLED");
    setenv("http_proxy", "http://127.0.0.1:9", 1);           // never used here
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", util_fmt("http://127.0.0.1:%d", s.port), 1);
    setenv("AWS_METADATA_SERVICE_TIMEOUT", "0.5", 1);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    expect("IMDS0001", SECRET "1", SECRET "token");
    assert_int_equal(s.tokens, 1);
    assert_true(sent("x-aws-ec2-metadata-token: TOKEN" SECRET));
    static const int statuses[] = { 403, 404, 405 };
    for (int i = 0; i < UTIL_COUNT(statuses); i++) {         // version 1
        TELL(&s, s.token_status = statuses[i]);
        assert_int_equal(once(&c, NULL), CKPT_OK);
        assert_false(sent("x-aws-ec2-metadata-token:"));
    }
    setenv("AWS_EC2_METADATA_V1_DISABLED", "true", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("version 1 is disabled");
    unsetenv("AWS_EC2_METADATA_V1_DISABLED");
    TELL(&s, s.fail = 1; s.fail_status = -2);                // the token never comes: a container one hop too far
    assert_int_equal(once(&c, NULL), CKPT_OK);
    TELL(&s, s.token_status = 400);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("refuses the request for a token");
    TELL(&s, s.token_status = 200; s.fail = -1; s.fail_status = 404);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("no role");
    assert_false(c.t.transient);
    TELL(&s, s.fail = 0; s.body = "{\"Code\": \"AssumeRoleUnauthorizedAccess\", \"Message\": \"x\"}");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("refuses to give any");
    static const char *const damaged[] = { "", "{", "[]", "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"" SECRET "\", \"Token\": \"t\"}",
        "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"" SECRET "\", \"Token\": \"t\", \"Expiration\": \"x\"}" };
    for (int i = 0; i < UTIL_COUNT(damaged); i++) {
        TELL(&s, s.body = damaged[i]);
        assert_int_equal(once(&c, NULL), CKPT_AUTH);
        SAYS("damaged");
    }
    TELL(&s, s.body = NULL; s.life = -600);                  // its own outage: old ones are used on
    assert_int_equal(once(&c, NULL), CKPT_OK);
    assert_true(c.got.expires > ckpt__os_time() + 900 && c.got.expires < ckpt__os_time() + 1600);
    config("[default]\nec2_metadata_service_endpoint = ftp://x\n");
    unsetenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    SAYS("no http or https address");
    config(util_fmt("[default]\nec2_metadata_service_endpoint = http://127.0.0.1:%d/\n", s.port));
    TELL(&s, s.life = 3600);
    assert_int_equal(once(&c, NULL), CKPT_OK);
    TELL(&s, s.requests = 0);
    setenv("AWS_EC2_METADATA_DISABLED", "TRUE", 1);
    assert_int_equal(once(&c, NULL), CKPT_AUTH);
    assert_int_equal(s.requests, 0);
}

//-- renewal ---------------------------------------------------------------------------

typedef struct worker { pthread_t thread; client *c; double seconds; int gets, failures, stale; } worker;

static void *worker_main(void *user) {
    worker *w = (worker *)user;
    ckpt_credentials *got = (ckpt_credentials *)malloc(sizeof *got);
    for (double end = ckpt__os_now() + w->seconds; ckpt__os_now() < end; ckpt__os_sleep(0.002)) {
        ckpt__transfer t;
        memset(&t, 0, sizeof t);
        ckpt_err e = ckpt__auth_aws_get(&w->c->auth, got, &t);
        w->gets++;
        if (e != CKPT_OK) w->failures++;
        else if (got->expires < ckpt__os_time() - 0.05) w->stale++;
    }
    free(got);
    return NULL;
}

enum { WORKERS = 16 };

static worker sum_of(client *client_, double seconds) {
    static worker w[WORKERS];
    worker sum;
    memset(&sum, 0, sizeof sum);
    for (int i = 0; i < WORKERS; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].c = client_;
        w[i].seconds = seconds;
        assert_int_equal(pthread_create(&w[i].thread, NULL, worker_main, &w[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        (void)pthread_join(w[i].thread, NULL);
        sum.gets += w[i].gets;
        sum.failures += w[i].failures;
        sum.stale += w[i].stale;
    }
    return sum;
}

// Credentials that last 3 s and 16 workers: one request each time, nobody ever gets old ones.
static void test_renewal(void **state) {
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", util_fmt("http://127.0.0.1:%d/container", s.port), 1);
    TELL(&s, s.life = 2.1);             // whole seconds are sent: 2.1 to 3.1 s
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    worker sum = sum_of(&c, 7);
    assert_int_equal(sum.failures, 0);
    assert_int_equal(sum.stale, 0);
    assert_true(sum.gets > 1000);
    assert_in_range(s.requests, 3, 8);
    client_close(&c);
}

// A failed renewal does no harm while the old ones last; then it is an error for all, with few requests; and it heals.
static void test_renewal_fails(void **state) {
    (void)state;
    credentials("[default]\naws_access_key_id = AKBASE\naws_secret_access_key = " SECRET "base\n");
    config("[default]\nrole_arn = arn:x\nsource_profile = default\n");
    TELL(&s, s.life = 3600);
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    c.auth.advisory = 1e9;                                  // the next one is to renew them
    TELL(&s, s.requests = 0; s.fail = -1; s.fail_status = 503);
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_int_equal(s.requests, 3);
    assert_false(c.t.transient || c.t.throttled);           // it says nothing of the request that is signed
    client_close(&c);
    TELL(&s, s.fail = 0; s.life = 4);
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(client_get(&c), CKPT_OK);
    TELL(&s, s.requests = 0; s.fail = -1; s.fail_status = 403);
    worker sum = sum_of(&c, 3);
    assert_int_equal(sum.failures + sum.stale, 0);
    assert_in_range(s.requests, 1, 8);
    assert_non_null(strstr(c.log, "were not renewed"));
    ckpt__os_sleep(2.2);
    assert_int_equal(client_get(&c), CKPT_AUTH);
    assert_true(c.t.transient);
    TELL(&s, s.fail_status = 503);
    assert_int_not_equal(client_get(&c), CKPT_OK);
    assert_int_equal(c.t.status, 0);                        // the store has said nothing
    TELL(&s, s.fail = 0);
    assert_int_equal(client_get(&c), CKPT_OK);
    client_close(&c);
    // 16 at once, and none to be had: they wait for one, and share its sentence
    TELL(&s, s.requests = 0; s.fail = -1; s.fail_status = -2);
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    ckpt__os_flag cancel = 0;
    c.t.cancel = &cancel;
    pthread_t helper;
    static worker w;
    memset(&w, 0, sizeof w);
    w.c = &c;
    w.seconds = 0.001;
    assert_int_equal(pthread_create(&helper, NULL, worker_main, &w), 0);
    ckpt__os_sleep(0.3);
    ckpt__os_flag_set(&cancel, 1);
    double begin = ckpt__os_now();
    assert_int_equal(client_get(&c), CKPT_CANCELLED);        // one that waits can be cancelled by itself
    assert_true(ckpt__os_now() - begin < 1);
    server_stop(&s);
    (void)pthread_join(helper, NULL);
    client_close(&c);
    server_start(&s);
}

// The home is on a server that is away for a moment, or one of the files is: nobody goes on as the machine.
static void test_files_away(void **state) {
    (void)state;
    const char *files[] = { util_join(home, ".aws/config"), util_join(home, ".aws/credentials") };
    credentials("[default]\naws_access_key_id = AKBASE\naws_secret_access_key = " SECRET "base\n");
    config("[default]\nrole_arn = arn:x\nsource_profile = default\n");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", util_fmt("http://127.0.0.1:%d", s.port), 1);
    unsetenv("AWS_EC2_METADATA_DISABLED");
    for (int how = 0; how < 2; how++) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(client_open(&c, NULL), CKPT_OK);
            assert_int_equal(client_get(&c), CKPT_OK);
            const char *id = util_fmt("%s", c.got.access_key_id);
            assert_memory_equal(id, "ASIA", 4);
            c.auth.advisory = 1e9;                          // the next one is to renew them
            TELL(&s, s.requests = 0);
            if (how == 0) fault_arm_call("stat", ETIMEDOUT, i + 1);
            else assert_int_equal(rename(files[i], util_join(home, "aside")), 0);
            assert_int_equal(client_get(&c), CKPT_OK);
            if (how == 0) assert_true(fault_disarm());
            else assert_int_equal(rename(util_join(home, "aside"), files[i]), 0);
            assert_string_equal(c.got.access_key_id, id);
            assert_int_equal(s.requests, 0);
            assert_non_null(strstr(c.log, "were not renewed"));
            c.auth.again_at = 0;
            assert_int_equal(client_get(&c), CKPT_OK);
            assert_int_equal(s.requests, 1);
            assert_string_not_equal(c.got.access_key_id, id);
            ckpt_store_desc d;
            ckpt__auth_aws first;
            memset(&d, 0, sizeof d);
            if (how == 0) fault_arm_call("stat", ETIMEDOUT, i + 1);     // so it is with the first ones
            if (how == 0) assert_int_equal(ckpt__auth_aws_init(&first, &d, &c.http, &c.allocator), CKPT_NET);
            if (how == 0) assert_true(fault_disarm());
            client_close(&c);
            if (how == 1) continue;
            assert_int_equal(client_open(&c, NULL), CKPT_OK);
            fault_arm_call("stat", ETIMEDOUT, i + 1);
            assert_int_equal(client_get(&c), CKPT_NET);
            assert_true(c.t.transient && fault_disarm());           // worth another try
            client_close(&c);
        }
    }
}

// A home that cannot be seen: its folder of the AWS tools is a link to itself.
static void blind(bool is_blind) {
    const char *path = util_join(home, ".aws"), *aside = util_join(home, "aside");
    if (is_blind) assert_int_equal(rename(path, aside), 0);
    if (is_blind) assert_int_equal(symlink(path, path), 0);
    else assert_int_equal(unlink(path), 0);
    if (!is_blind) assert_int_equal(rename(aside, path), 0);
}

// Who does not need the home is not stopped by one that cannot be seen. Without an endpoint it is needed: it may name one.
static void test_files_not_needed(void **state) {
    (void)state;
    ckpt_store_desc d;
    double life = 0;
    credentials("[other]\naws_access_key_id = AKOTHER\naws_secret_access_key = " SECRET "other\n");
    asked = 0;
    blind(true);
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET "env", 1);
    static const char *const endpoints[] = { "S3_ENDPOINT_URL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS" };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(once(&c, NULL), CKPT_IO);
        SAYS(".aws/config");
        setenv(endpoints[i], i == 3 ? "true" : "http://example", 1);
        assert_int_equal(once(&c, NULL), CKPT_OK);
        unsetenv(endpoints[i]);
    }
    for (int how = 0; how < 4; how++) {
        memset(&d, 0, sizeof d);
        d.endpoint_url = "http://example";
        if (how == 0) d.access_key_id = "AKGIVEN", d.secret_access_key = SECRET "given";
        if (how == 1) d.credentials = callback, d.credentials_user = &life;
        if (how == 2) setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
        if (how == 3) d.profile = "other";              // its settings are wanted, whoever has the keys
        assert_int_equal(client_open(&c, &d), how == 3 ? CKPT_IO : CKPT_OK);
        if (how < 3) assert_int_equal(client_get(&c), CKPT_OK);
        if (how == 2) {
            assert_string_equal(c.got.access_key_id, "AKENV");
            setenv("AWS_ACCESS_KEY_ID", "AKENV2", 1);
            ckpt__auth_aws_expired(&c.auth, &c.got);
            assert_int_equal(client_get(&c), CKPT_OK);
            assert_string_equal(c.got.access_key_id, "AKENV2");
        }
        client_close(&c);
    }
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    blind(false);
    // Nor is the machine, where no profile gave anything when the store was opened.
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", util_fmt("http://127.0.0.1:%d", s.port), 1);
    unsetenv("AWS_EC2_METADATA_DISABLED");
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    blind(true);
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_non_null(strstr(c.log, ".aws/c"));
    client_close(&c);
    blind(false);
}

// What a profile had and has no more stops only those who had it from there; what it has got since then is its own.
static void test_files_moved(void **state) {
    (void)state;
    static const char keys[] = "[default]\naws_access_key_id = AKOLD\naws_secret_access_key = " SECRET "old\n";
    static const char program[] = "[default]\ncredential_process = echo '{\"Version\":1,\"AccessKeyId\":\"AKPROG\",\"SecretAccessKey\":\"" SECRET "\"}'\n";
    static const char role[] = "[default]\nrole_arn = arn:x\nsource_profile = base\n[profile base]\naws_access_key_id = AK\n"
                               "aws_secret_access_key = " SECRET "base\n";
    static const struct { bool web; const char *config, *then; ckpt_err e; const char *id; } cases[] = {
        { true, "", "", CKPT_OK, "ASIA" },              // a web identity of the environment comes before the keys
        { false, role, role, CKPT_OK, "ASIA" },         // so does a role
        { true, role, role, CKPT_OK, "ASIA" },
        { false, "", program, CKPT_OK, "AKPROG" },      // the keys made room for it
        { false, program, program, CKPT_AUTH, NULL },   // it was behind them from the beginning
        { false, "", "", CKPT_AUTH, NULL },
    };
    util_write_text(util_join(home, "token"), SECRET ".jwt");
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        setenv("AWS_ROLE_ARN", "arn:web", 1);
        if (cases[i].web) setenv("AWS_WEB_IDENTITY_TOKEN_FILE", util_join(home, "token"), 1);
        credentials(keys);
        config(cases[i].config);
        assert_int_equal(client_open(&c, NULL), CKPT_OK);
        assert_int_equal(client_get(&c), CKPT_OK);
        ckpt__auth_aws_expired(&c.auth, &c.got);
        assert_int_equal(unlink(util_join(home, ".aws/credentials")), 0);
        config(cases[i].then);
        if (client_get(&c) != cases[i].e) fail_msg("%d: %s", i, ckpt_last_error());
        if (cases[i].e != CKPT_OK) SAYS("is not in");
        else assert_memory_equal(c.got.access_key_id, cases[i].id, 4);
        ckpt__auth_aws_expired(&c.auth, &c.got);
        blind(true);
        assert_int_equal(client_get(&c), cases[i].web && cases[i].config[0] == 0 ? CKPT_OK : CKPT_AUTH);
        blind(false);
        client_close(&c);
        unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
    }
}

// Files of a relative path are those of the directory in which the program was at the open.
static void test_files_abroad(void **state) {
    (void)state;
    char *was = getcwd(NULL, 0);
    setenv("AWS_CONFIG_FILE", "a.cfg", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", 1);
    util_write_text(util_join(home, "a.cfg"), "[default]\nrole_arn = arn:x\nsource_profile = base\n");
    credentials("[base]\naws_access_key_id = AK\naws_secret_access_key = " SECRET "base\n");
    assert_int_equal(chdir(home), 0);
    assert_int_equal(client_open(&c, NULL), CKPT_OK);
    assert_int_equal(chdir(was), 0);
    assert_int_equal(client_get(&c), CKPT_OK);
    assert_memory_equal(c.got.access_key_id, "ASIA", 4);
    client_close(&c);
    free(was);
}

// Every allocation refused in turn: an error, nothing is held.
static void test_no_memory(void **state) {
    (void)state;
    credentials("[default]\naws_access_key_id = AKBASE\naws_secret_access_key = " SECRET "base\n");
    config("[default]\nrole_arn = arn:x\nsource_profile = default\n[profile program]\ncredential_process = echo '{\"Version\":1,\"AccessKeyId\":\"AK\","
           "\"SecretAccessKey\":\"" SECRET "\"}'\n[profile container]\nregion = x\n");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", util_fmt("http://127.0.0.1:%d/container", s.port), 1);
    static const char *const profiles[] = { "default", "program", "container" };
    for (int i = 0; i < UTIL_COUNT(profiles); i++) {
        ckpt_store_desc d;
        memset(&d, 0, sizeof d);
        d.profile = profiles[i];
        ckpt_err e = CKPT_NOMEM;
        for (int n = 0; e != CKPT_OK; n++) {
            client_open(&c, &d);
            ckpt__auth_aws_free(&c.auth);
            assert_int_equal(c.held, 0);
            c.left = n;
            e = ckpt__auth_aws_init(&c.auth, &d, &c.http, &c.allocator);
            if (e == CKPT_OK) {
                e = client_get(&c);
                c.left = -1;
                ckpt__auth_aws_free(&c.auth);
            }
            if (e != CKPT_OK && e != CKPT_NOMEM) fail_msg("%d: %s", n, ckpt_last_error());
            ckpt__http_free(&c.http);
            assert_int_equal(c.held, 0);
            assert_false(c.leaked);
            (void)pthread_mutex_destroy(&c.lock);
            assert_true(n < 500);
        }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sigv4), cmocka_unit_test(test_sigv4_refuses), cmocka_unit_test(test_checksums), cmocka_unit_test(test_hmac),
        cmocka_unit_test_setup(test_environment, fresh), cmocka_unit_test_setup(test_given, fresh),
        cmocka_unit_test_setup(test_given_oddly, fresh), cmocka_unit_test_setup(test_files, fresh),
        cmocka_unit_test_setup(test_files_change, fresh), cmocka_unit_test_setup(test_files_damaged, fresh), cmocka_unit_test_setup(test_program, fresh),
        cmocka_unit_test_setup_teardown(test_role, start, stop), cmocka_unit_test_setup_teardown(test_role_wrong, start, stop),
        cmocka_unit_test_setup_teardown(test_sts_replies, start, stop), cmocka_unit_test_setup_teardown(test_web_identity, start, stop),
        cmocka_unit_test(test_near), cmocka_unit_test_setup_teardown(test_container, start, stop),
        cmocka_unit_test_setup_teardown(test_instance, start, stop), cmocka_unit_test_setup_teardown(test_renewal, start, stop),
        cmocka_unit_test_setup_teardown(test_renewal_fails, start, stop), cmocka_unit_test_setup_teardown(test_files_away, start, stop),
        cmocka_unit_test_setup_teardown(test_files_not_needed, start, stop), cmocka_unit_test_setup_teardown(test_files_moved, start, stop),
        cmocka_unit_test_setup_teardown(test_files_abroad, start, stop),
        cmocka_unit_test_setup_teardown(test_no_memory, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
