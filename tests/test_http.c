// test_http.c: proves that one HTTP request says truly how it ended, whatever the server, the network or the disk does.
// run.sh: waits remote tsan libs=-lssl
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#define NET_TLS
#include "net_util.h"

#define SECRET "S3CR3T"

//-- one request and everything about it -----------------------------------------------

typedef struct client {
    ckpt__http         http;
    ckpt__http_request q;
    ckpt__http_reply   r;
    ckpt__transfer     t;
    ckpt__fields       headers;
    ckpt__body         body;
    ckpt__sink         sink;
    uint64_t           moved;
    double             took;
    char               sentence[1024];
} client;

static void log_line(ckpt_log_level level, const char *msg, void *user) {
    (void)level; (void)user;
    if (strstr(msg, SECRET) != NULL) { fprintf(stderr, "a secret in the log: %s\n", msg); abort(); }
}

static void client_init_with(client *c, const char *ca_file, const ckpt_allocator *a) {
    static const ckpt_logger logger = { log_line, NULL };
    ckpt__http_options o = { ca_file, NULL, &logger, a };
    memset(c, 0, sizeof *c);
    assert_int_equal(ckpt__http_init(&c->http, &o), CKPT_OK);
    ckpt__http_reply_init(&c->r, a);
    ckpt__fields_init(&c->headers, a);
}

static void client_init(client *c) {
    client_init_with(c, NULL, NULL);
}

static void client_free(client *c) {
    ckpt__http_reply_free(&c->r);
    ckpt__fields_free(&c->headers);
    ckpt__http_free(&c->http);
}

// The request as the fields of c->q say; the url holds a secret in its query.
static ckpt_err ask(client *c, const net_server *s, const char *method, const char *path) {
    char url[512];
    snprintf(url, sizeof url, "%s%s%sX-Amz-Signature=" SECRET, s->url, path, strchr(path, '?') != NULL ? "&" : "?");
    ckpt__transfer_begin(&c->t);
    c->t.moved = &c->moved;
    c->moved = 0;
    c->q.method = method;
    c->q.url = url;
    c->q.headers = &c->headers;
    c->q.transfer = &c->t;
    double began = net_now();
    ckpt_err e = ckpt__http_run(&c->http, &c->q, &c->r);
    c->took = net_now() - began;
    snprintf(c->sentence, sizeof c->sentence, "%s", e != CKPT_OK ? ckpt__error_last.text : "");
    if (strstr(c->sentence, SECRET) != NULL) fail_msg("a secret in a sentence: %s", c->sentence);
    if (e != CKPT_OK && strchr(c->sentence, '?') != NULL) fail_msg("a query in a sentence: %s", c->sentence);
    return e;
}

static void send_memory(client *c, const void *p, size_t n) {
    memset(&c->body, 0, sizeof c->body);
    c->body.memory = p;
    c->body.size = n;
    c->q.body = &c->body;
}

static void take_memory(client *c, void *p, size_t n) {
    memset(&c->sink, 0, sizeof c->sink);
    c->sink.memory = p;
    c->sink.size = n;
    c->sink.sum = true;
    c->q.sink = &c->sink;
}

static char *pattern(size_t n) {
    char *p = (char *)malloc(n + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = (char)(i * 7 + i / 251);
    return p;
}

static bool between(double v, double low, double high) {
    if (v >= low && v <= high) return true;
    fprintf(stderr, "%g is not within %g and %g\n", v, low, high);
    return false;
}

//-- what is sent ------------------------------------------------------------------------

typedef struct seen { char head[8192]; char *body; size_t size; int nth; int status; const char *headers, *reply; } seen;

static void look(net_request *r, void *user) {
    seen *s = (seen *)user;
    net_body(r, SIZE_MAX);
    if (r->ended) return;
    snprintf(s->head, sizeof s->head, "%.8000s", r->head);
    free(s->body);
    s->body = (char *)malloc(r->body_size + 1);
    if (r->body_size > 0) memcpy(s->body, r->body, r->body_size);
    s->size = r->body_size;
    s->nth = r->nth;
    net_reply(r, s->status, s->headers, s->reply, strlen(s->reply));
}

static void test_request_is_sent_as_given(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "ETag: \"abc\"\r\nX-Two:   spaced  \r\nX-None:\r\nDate: Fri, 20 Nov 2026 23:57:40 GMT\r\n", "hello" };
    net_server server;
    client c;
    net_start(&server, look, &s);
    client_init(&c);
    ckpt__fields_add(&c.headers, "x-amz-date", "20261120T235740Z");
    ckpt__fields_add(&c.headers, "x-empty", "");
    ckpt__fields_add(&c.headers, "Content-Length", "999");
    char expect[1024];
    static const char *const methods[] = { "GET", "PUT", "POST", "PATCH", "DELETE" };
    for (int i = 0; i < UTIL_COUNT(methods); i++) {
        assert_int_equal(ask(&c, &server, methods[i], "/b/./x/../%E3%83%A2%20+~?a&b="), CKPT_OK);
        snprintf(expect, sizeof expect, "%s /b/./x/../%%E3%%83%%A2%%20+~?a&b=&X-Amz-Signature=" SECRET " HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                 "x-amz-date: 20261120T235740Z\r\nx-empty:\r\n%s\r\n", methods[i], server.port, i >= 1 && i <= 3 ? "Content-Length: 0\r\n" : "");
        assert_string_equal(s.head, expect);
        assert_int_equal(c.r.status, 200);
        assert_int_equal(c.t.status, 200);
        assert_string_equal(ckpt__fields_get(&c.r.headers, "etag"), "\"abc\"");
        assert_string_equal(ckpt__fields_get(&c.r.headers, "x-two"), "spaced");
        assert_string_equal(ckpt__fields_get(&c.r.headers, "x-none"), "");
        assert_string_equal(ckpt__buf_cstr(&c.r.body), "hello");
        assert_true(c.r.date > 1795219059.0 && c.r.date < 1795219061.0);
        assert_int_equal(c.r.reused, i > 0);
    }
    assert_int_equal(ask(&c, &server, "HEAD", "/x"), CKPT_OK);
    assert_int_equal(c.r.body.len, 0);
    assert_string_equal(ckpt__fields_get(&c.r.headers, "content-length"), "5");
    assert_int_equal(net_connections(&server), 1);
    // Host and Content-Type as signed.
    ckpt__fields_add(&c.headers, "host", "other.example");
    ckpt__fields_add(&c.headers, "content-type", "application/xml");
    send_memory(&c, "<x/>", 4);
    assert_int_equal(ask(&c, &server, "POST", "/x?uploads="), CKPT_OK);
    assert_non_null(strstr(s.head, "\r\nHost: other.example\r\n"));
    assert_null(strstr(s.head, "127.0.0.1"));
    assert_non_null(strstr(s.head, "\r\ncontent-type: application/xml\r\n"));
    assert_non_null(strstr(s.head, "\r\nContent-Length: 4\r\n"));
    assert_int_equal(s.size, 4);
    net_stop(&server);
    client_free(&c);
    free(s.body);
}

static ckpt_err slow_reader(void *dst, size_t size, uint64_t offset, void *user) {
    net_sleep(0.02);
    memcpy(dst, (const char *)user + offset, size);
    return CKPT_OK;
}

static void test_bodies(void **state) {
    (void)state;
    enum { SIZE = 3 * 1024 * 1024 + 17 };
    seen s = { "", NULL, 0, 0, 200, "", "" };
    char *bytes = pattern(SIZE);
    const char *path = util_join(util_temp_dir(), "body");
    util_write(path, bytes, SIZE);
    int fd;
    assert_int_equal(ckpt__os_open_read(&fd, path), CKPT_OK);
    net_server server;
    client c;
    net_start(&server, look, &s);
    client_init(&c);
    for (int kind = 0; kind < 3; kind++) {
        send_memory(&c, kind == 0 ? bytes : NULL, SIZE - 1000);
        c.body.fd = fd;
        c.body.path = path;
        c.body.offset = 1000;
        if (kind == 2) { c.body.read = slow_reader; c.body.user = bytes; }
        assert_int_equal(ask(&c, &server, "PUT", "/k"), CKPT_OK);
        assert_int_equal(s.size, SIZE - 1000);
        assert_memory_equal(s.body, bytes + 1000, SIZE - 1000);
        assert_int_equal(c.moved, SIZE - 1000);
    }
    assert_int_equal(net_connections(&server), 1);
    // The file became shorter: our failure, nobody should try again.
    c.body.read = NULL;
    c.body.size = SIZE;
    assert_int_equal(ask(&c, &server, "PUT", "/k"), CKPT_CORRUPT);
    assert_non_null(strstr(c.sentence, "has changed"));
    assert_false(c.t.transient);
    assert_false(c.t.unsure);
    ckpt__os_drop(fd);
    send_memory(&c, bytes, 0);
    assert_int_equal(ask(&c, &server, "PUT", "/k"), CKPT_OK);
    assert_int_equal(s.size, 0);
    net_stop(&server);
    client_free(&c);
    free(s.body);
    free(bytes);
}

//-- what comes back ---------------------------------------------------------------------

typedef struct answer { int status; const char *headers, *raw; size_t body; int end; } answer;     // end: 1 close, 2 reset, 3 stall

static void answer_it(net_request *r, void *user) {
    const answer *a = (const answer *)user;
    net_drain(r, UINT64_MAX, 0);
    if (a->raw != NULL) net_send(r, a->raw, strlen(a->raw));
    else net_text(r, "HTTP/1.1 %d X\r\n%s\r\n", a->status, a->headers);
    net_zeros(r, a->body);
    if (a->end == 1) net_close(r);
    if (a->end == 2) net_reset(r);
    if (a->end == 3) net_stall(r);
}

static void test_any_status_is_a_reply(void **state) {
    (void)state;
    static const answer answers[] = {
        { 204, "", NULL, 0, 0 }, { 304, "ETag: x\r\nContent-Length: 77\r\n", NULL, 0, 0 }, { 301, "Location: http://127.0.0.1:1/\r\nContent-Length: 0\r\n", NULL, 0, 0 },
        { 307, "Location: /elsewhere\r\nContent-Length: 3\r\n", NULL, 3, 0 }, { 404, "Content-Length: 10\r\n", NULL, 10, 0 },
        { 500, "Content-Length: 0\r\n", NULL, 0, 0 }, { 503, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", NULL, 0, 0 },
        { 200, "Connection: close\r\n", NULL, 10, 1 }, { 401, "WWW-Authenticate: Basic\r\nContent-Length: 0\r\n", NULL, 0, 0 },
        { 416, "Content-Length: 1\r\n", NULL, 1, 0 },
    };
    for (int i = 0; i < UTIL_COUNT(answers); i++) {
        answer a = answers[i];
        net_server server;
        client c;
        char memory[16];
        net_start(&server, answer_it, &a);
        client_init(&c);
        memset(memory, '.', sizeof memory);
        take_memory(&c, memory, sizeof memory);
        assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
        assert_int_equal(c.r.status, a.status);
        assert_int_equal(net_count(&server), 1);
        if (a.status == 200) {
            assert_int_equal(c.sink.got, 10);
            assert_int_equal(c.moved, 10);
        } else {
            assert_int_equal(c.sink.got, 0);            // an error's words never get into a checkpoint
            assert_int_equal(c.moved, 0);
            assert_int_equal(memory[0], '.');
            assert_int_equal(c.r.body.len, a.status == 503 ? 5 : a.status == 304 ? 0 : a.body);
        }
        assert_false(c.t.unsure);
        if (i < 7) {
            assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
            // The connection is still good; but after 5xx the next try is to meet another server behind the balancer.
            assert_int_equal(net_connections(&server), a.status >= 500 ? 2 : 1);
        }
        net_stop(&server);
        client_free(&c);
    }
}

static void serve_range(net_request *r, void *user) {
    net_text(r, "HTTP/1.1 206 Partial\r\nContent-Length: 3000000\r\nContent-Range: bytes 0-2999999/9999999\r\n\r\n");
    net_send(r, user, 3000000);
}

static void test_downloads(void **state) {
    (void)state;
    enum { SIZE = 3000000 };
    char *bytes = pattern(SIZE), *got = (char *)calloc(1, SIZE);
    const char *path = util_join(util_temp_dir(), "got");
    int fd;
    net_server server;
    client c;
    net_start(&server, serve_range, bytes);
    client_init(&c);
    take_memory(&c, got, SIZE);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    assert_int_equal(c.r.status, 206);
    assert_int_equal(c.sink.got, SIZE);
    assert_int_equal(c.moved, SIZE);
    assert_memory_equal(got, bytes, SIZE);
    assert_true(c.sink.crc == ckpt__digest_crc32(0, bytes, SIZE));
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_OK);
    take_memory(&c, NULL, SIZE);
    c.sink.fd = fd;
    c.sink.path = path;
    c.sink.offset = 1000;
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    size_t size;
    char *file = util_read(path, &size);
    assert_int_equal(size, SIZE + 1000);
    assert_memory_equal(file + 1000, bytes, SIZE);
    // More than asked for: refused, and nothing behind the end is written.
    memset(got, '.', SIZE);
    take_memory(&c, got, SIZE - 1000000);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_NET);
    assert_int_equal(got[SIZE - 1000000], '.');
    assert_non_null(strstr(c.sentence, "more than the 2000000 bytes"));
    // A disk that refuses is no network failure.
    ckpt__os_drop(fd);
    assert_int_equal(ckpt__os_open_read(&fd, path), CKPT_OK);
    take_memory(&c, NULL, SIZE);
    c.sink.fd = fd;
    c.sink.path = path;
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_IO);
    assert_false(c.t.transient);
    assert_non_null(strstr(c.sentence, path));
    ckpt__os_drop(fd);
    net_stop(&server);
    client_free(&c);
    free(bytes);
    free(got);
}

static void test_replies_that_lie(void **state) {
    (void)state;
    static const struct { const char *what; answer a; ckpt_err e; bool transient; } cases[] = {
        { "shorter than announced, then closed", { 200, "Content-Length: 100\r\n", NULL, 50, 1 }, CKPT_NET, true },
        { "shorter than announced, then reset", { 200, "Content-Length: 100\r\n", NULL, 50, 2 }, CKPT_NET, true },
        { "no reply", { 0, "", "", 0, 1 }, CKPT_NET, true },
        { "no reply and a reset", { 0, "", "", 0, 2 }, CKPT_NET, true },
        { "half a status line", { 0, "", "HTTP/1.1 20", 0, 1 }, CKPT_NET, true },
        { "half the headers", { 0, "", "HTTP/1.1 200 OK\r\nETag: \"a", 0, 1 }, CKPT_NET, true },
        { "only 100 Continue", { 0, "", "HTTP/1.1 100 Continue\r\n\r\n", 0, 1 }, CKPT_NET, true },
        { "not HTTP", { 0, "", "SSH-2.0-OpenSSH_9.2\r\n", 0, 1 }, CKPT_NET, true },
        { "a chunk that ends early", { 200, "Transfer-Encoding: chunked\r\n\r\n5\r\nhel", NULL, 0, 1 }, CKPT_NET, true },
        { "a chunk without a size", { 200, "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", NULL, 0, 1 }, CKPT_NET, true },
        { "longer than may be", { 200, "Content-Length: 100000\r\n", NULL, 100000, 0 }, CKPT_NET, true },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        answer a = cases[i].a;
        net_server server;
        client c;
        net_start(&server, answer_it, &a);
        client_init(&c);
        ckpt_err e = ask(&c, &server, "GET", "/x");
        if (e != cases[i].e || c.t.transient != cases[i].transient) fail_msg("%s: %s %d: %s", cases[i].what, ckpt__error_name(e), c.t.transient, c.sentence);
        assert_non_null(strstr(c.sentence, "127.0.0.1"));
        assert_false(c.t.unsure);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), cases[i].e);
        assert_true(c.t.unsure);                        // it was received whole, perhaps carried out
        net_stop(&server);
        client_free(&c);
    }
}

static void test_content_length_that_is_none(void **state) {
    (void)state;
    static const char *const lengths[] = { "-5", "99999999999999999999999", "abc", "18446744073709551616" };
    for (int i = 0; i < UTIL_COUNT(lengths); i++) {
        char head[200];
        snprintf(head, sizeof head, "Content-Length: %s\r\n", lengths[i]);
        answer a = { 200, head, NULL, 10, 1 };
        char memory[100];
        net_server server;
        client c;
        net_start(&server, answer_it, &a);
        client_init(&c);
        take_memory(&c, memory, sizeof memory);
        ckpt_err e = ask(&c, &server, "GET", "/x");     // libcurl refuses it, or reads to the end; the sink says how much came
        assert_true(e != CKPT_OK || c.sink.got == 10);
        net_stop(&server);
        client_free(&c);
    }
}

static void endless(net_request *r, void *user) {
    int kind = *(int *)user;
    net_drain(r, UINT64_MAX, 0);
    if (kind == 0) {
        net_text(r, "HTTP/1.1 200 OK\r\n");
        while (!r->ended) net_text(r, "X-Header: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n");
    } else if (kind == 1) {
        while (!r->ended) net_text(r, "HTTP/1.1 100 Continue\r\nX: 0123456789012345678901234567890123456789\r\n\r\n");
    } else if (kind == 2) {
        net_text(r, "HTTP/1.1 200 OK\r\nX: ");
        while (!r->ended) net_text(r, "01234567890123456789012345678901234567890123456789012345678901234567890123456789");
    } else if (kind == 3) {
        net_text(r, "HTTP/1.1 403 No\r\nContent-Length: 99999999999\r\n\r\n");
        net_zeros(r, 99999999999u);
    } else if (kind == 4) {
        net_text(r, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while (!r->ended) net_text(r, "10\r\n0123456789abcdef\r\n");
    } else {
        while (!r->ended) net_text(r, "X");
    }
}

static void test_replies_without_end(void **state) {
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        net_server server;
        client c;
        net_start(&server, endless, &kind);
        client_init(&c);
        ckpt_err e = ask(&c, &server, "GET", "/x");
        assert_true(c.took < 5.0);
        if (kind == 3) {
            assert_int_equal(e, CKPT_OK);               // the status counts, and the beginning of what it says
            assert_int_equal(c.r.status, 403);
            assert_int_equal(c.r.body.len, CKPT__HTTP_ERROR_MAX);
        } else {
            assert_int_not_equal(e, CKPT_OK);
            if (kind < 2) assert_non_null(strstr(ckpt_last_error(), "headers without end"));    // by us, before libcurl's own limit
        }
        assert_true(c.r.headers.text.cap <= 2 * CKPT__HTTP_HEADERS_MAX);
        net_stop(&server);
        client_free(&c);
    }
}

static void hint(net_request *r, void *user) {
    (void)user;
    net_text(r, "HTTP/1.1 100 Continue\r\nETag: wrong\r\n\r\nHTTP/1.1 103 Early Hints\r\nETag: wrong\r\nX-Only: here\r\n\r\n");
    net_drain(r, UINT64_MAX, 0);
    net_text(r, "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nETag: right\r\nContent-Length: 2\r\n\r\nok");
}

static void test_informational_replies_are_skipped(void **state) {
    (void)state;
    net_server server;
    client c;
    net_start(&server, hint, NULL);
    client_init(&c);
    char *bytes = pattern(2000000);
    send_memory(&c, bytes, 2000000);
    assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_OK);
    assert_int_equal(c.r.status, 200);
    assert_string_equal(ckpt__fields_get(&c.r.headers, "ETag"), "right");
    assert_null(ckpt__fields_get(&c.r.headers, "X-Only"));
    assert_string_equal(ckpt__buf_cstr(&c.r.body), "ok");
    net_stop(&server);
    client_free(&c);
    free(bytes);
}

//-- connections -------------------------------------------------------------------------

typedef struct dying { int die_at; size_t after; bool reset, early_reply; } dying;

static void die(net_request *r, void *user) {
    const dying *d = (const dying *)user;
    if (r->number == d->die_at) {
        net_drain(r, d->after, 0);
        if (d->early_reply) net_text(r, "HTTP/1.1 503 Slow Down\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy");
        if (d->reset) net_reset(r);
        else net_close(r);
        return;
    }
    net_body(r, SIZE_MAX);
    bool whole = r->length <= 0 || (r->body_size == (size_t)r->length && r->body[0] == 0 && r->body[1] == 7);
    net_reply(r, whole ? 200 : 599, "", "", 0);
}

static void test_kept_connection_that_dies(void **state) {
    (void)state;
    enum { SIZE = 5000000 };
    char *bytes = pattern(SIZE);
    for (int kind = 0; kind < 6; kind++) {
        dying d = { 1, kind < 2 || kind > 3 ? 0 : 1000000, kind % 2 == 1, false };
        net_server server;
        client c;
        net_start(&server, die, &d);
        client_init(&c);
        send_memory(&c, bytes, SIZE);
        assert_int_equal(ask(&c, &server, "PUT", "/1"), CKPT_OK);
        // Closed before a byte of the reply: it is sent again on a new connection, from the beginning. Where the source is slow the end is
        // met as the body is sent, which libcurl leaves to us.
        ckpt__transfer_sums sums;
        if (kind > 3) { c.body.read = slow_reader; c.body.user = bytes; }
        c.q.sums = &sums;
        if (ask(&c, &server, "PUT", "/2") != CKPT_OK) fail_msg("kind %d: %s", kind, c.sentence);
        assert_int_equal(c.r.status, 200);
        assert_int_equal(c.moved, SIZE);
        assert_true(sums.has == (unsigned)CKPT__SUM_CRC32 && sums.crc == ckpt__digest_crc32(0, bytes, SIZE));
        assert_false(c.r.reused);
        assert_int_equal(net_connections(&server), 2);
        assert_int_equal(net_count(&server), 3);
        c.body.read = NULL;
        assert_int_equal(ask(&c, &server, "PUT", "/3"), CKPT_OK);
        assert_int_equal(c.r.status, 200);
        assert_true(c.r.reused);
        net_stop(&server);
        client_free(&c);
    }
    free(bytes);
}

// Where the new connection dies as well, that is the end: a server that is in trouble is not asked without pause.
static void die_always(net_request *r, void *user) {
    (void)user;
    if (r->number == 0) net_reply(r, 200, "", "", 0);
    else net_reset(r);
}

static void test_new_connection_that_dies_too(void **state) {
    (void)state;
    char *bytes = pattern(5000000);
    net_server server;
    client c;
    net_start(&server, die_always, NULL);
    client_init(&c);
    send_memory(&c, bytes, 5000000);
    assert_int_equal(ask(&c, &server, "PUT", "/1"), CKPT_OK);
    c.body.read = slow_reader;
    c.body.user = bytes;
    assert_int_equal(ask(&c, &server, "PUT", "/2"), CKPT_NET);
    assert_true(c.t.transient);
    assert_int_equal(net_count(&server), 3);
    assert_int_equal(net_connections(&server), 2);
    net_stop(&server);
    client_free(&c);
    free(bytes);
}

static void close_after_each(net_request *r, void *user) {
    (void)user;
    net_reply(r, 200, "", "ok", 2);             // keep-alive by its headers, and yet:
    net_close(r);
}

static void test_server_that_closes_idle_connections(void **state) {
    (void)state;
    net_server server;
    client c;
    net_start(&server, close_after_each, NULL);
    client_init(&c);
    send_memory(&c, "abc", 3);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ask(&c, &server, i % 2 == 0 ? "PUT" : "POST", "/x"), CKPT_OK);
        assert_int_equal(c.r.status, 200);
        if (i % 4 == 0) net_sleep(0.01);
    }
    assert_int_equal(net_count(&server), 20);
    net_stop(&server);
    client_free(&c);
}

static void test_reset_in_every_region(void **state) {
    (void)state;
    enum { SIZE = 6000000 };
    static const size_t at[] = { 0, 1, 1000, 65536, 524288, 1000000, SIZE - 1, SIZE };
    char *bytes = pattern(SIZE);
    net_small_buffers = 1;
    for (int i = 0; i < UTIL_COUNT(at) * 2; i++) {
        dying d = { 0, at[i / 2], i % 2 == 1, false };
        net_server server;
        client c;
        net_start(&server, die, &d);
        client_init(&c);
        send_memory(&c, bytes, SIZE);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_NET);
        assert_true(c.t.transient);
        if (d.after <= 1000000) assert_false(c.t.unsure);       // the server cannot have had all of it
        if (d.after == SIZE) assert_true(c.t.unsure);
        assert_true(c.moved <= SIZE);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_OK);
        net_stop(&server);
        client_free(&c);
    }
    net_small_buffers = 0;
    free(bytes);
}

static void test_early_replies(void **state) {
    (void)state;
    enum { SIZE = 8000000 };
    char *bytes = pattern(SIZE);
    for (int i = 0; i < 2; i++) {
        dying d = { 0, 100000, false, true };
        net_server server;
        client c;
        net_start(&server, die, &d);
        client_init(&c);
        send_memory(&c, bytes, SIZE);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_OK);
        assert_int_equal(c.r.status, 503);
        assert_string_equal(ckpt__buf_cstr(&c.r.body), "busy");
        ckpt__http_judge(&c.r, &c.t);
        assert_true(c.t.transient && c.t.throttled && c.t.retry_after > 2.5);
        assert_true(c.moved < SIZE);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_OK);
        assert_int_equal(c.r.status, 200);
        assert_int_equal(net_connections(&server), 2);
        net_stop(&server);
        client_free(&c);
    }
    free(bytes);
}

static void test_pool(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "", "" }, s2 = s;
    net_server a, b;
    client c;
    net_start(&a, look, &s);
    net_start(&b, look, &s2);
    client_init(&c);
    for (int i = 0; i < 10; i++) assert_int_equal(ask(&c, i % 2 == 0 ? &a : &b, "GET", "/x"), CKPT_OK);
    assert_int_equal(net_connections(&a), 1);
    assert_int_equal(net_connections(&b), 1);
    // Two at once take two handles, and the next request to a site finds the handle that has its connection.
    ckpt__http_job one, two;
    assert_int_equal(ckpt__http_take(&c.http, &one, a.url, &c.t), CKPT_OK);
    assert_int_equal(ckpt__http_take(&c.http, &two, b.url, &c.t), CKPT_OK);
    assert_ptr_not_equal(one.easy, two.easy);
    ckpt__http_give(&c.http, &one, true);
    ckpt__http_give(&c.http, &two, true);
    assert_int_equal(ckpt__http_take(&c.http, &two, a.url, &c.t), CKPT_OK);
    assert_string_equal(two.host, a.url + 7);
    ckpt__http_give(&c.http, &two, false);
    ckpt__http_give(&c.http, &two, false);              // nothing is left to give
    assert_int_equal(ask(&c, &a, "GET", "/x"), CKPT_OK);
    net_stop(&a);
    net_stop(&b);
    client_free(&c);
    free(s.body);
    free(s2.body);
}

static void test_descriptors_do_not_leak_into_programs(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "", "" };
    net_server server;
    client c;
    net_start(&server, look, &s);
    client_init(&c);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    for (int fd = 3; fd < 256; fd++) {
        struct stat st;
        struct sockaddr_in at;
        socklen_t size = sizeof at;
        bool is_inet = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && getsockname(fd, (struct sockaddr *)&at, &size) == 0 && at.sin_family == AF_INET;
        if (is_inet) assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    net_stop(&server);
    client_free(&c);
    free(s.body);
}

//-- time --------------------------------------------------------------------------------

typedef struct pace { int kind; double rate; } pace;

static void paced(net_request *r, void *user) {
    const pace *p = (const pace *)user;
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
    static const char longer[] = "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n0123456789012345678901234567890123456789012345678901234567890123456789";
    switch (p->kind) {
        case 0: net_stall(r); break;                                            // reads nothing
        case 1: net_drain(r, UINT64_MAX, 0); net_stall(r); break;               // reads all, says nothing
        case 2: net_drain(r, 300000, 0); net_stall(r); break;                   // reads a part
        case 3: net_drain(r, UINT64_MAX, 0); net_send(r, text, 44); net_stall(r); break;        // half a reply
        case 4: net_drain(r, UINT64_MAX, 0); net_send(r, text, 20); net_stall(r); break;        // half its headers
        case 5: net_drain(r, UINT64_MAX, p->rate); net_send(r, text, sizeof text - 1); break;   // slow, and alive
        default: net_drain(r, UINT64_MAX, 0); net_drip(r, longer, sizeof longer - 1, 2, 0.02); break;    // no line takes half a second
    }
}

static void test_frozen_servers(void **state) {
    (void)state;
    char *bytes = pattern(6000000);
    net_small_buffers = 1;
    for (int kind = 0; kind <= 4; kind++) {
        pace p = { kind, 0 };
        net_server server;
        client c;
        net_start(&server, paced, &p);
        client_init(&c);
        if (kind <= 2) send_memory(&c, bytes, 6000000);
        c.t.stall_timeout_s = 0.8;
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_TIMEOUT);
        assert_true(c.t.transient);
        assert_int_equal(c.t.unsure, kind != 0 && kind != 2);
        if (kind != 2) assert_true(between(c.took, 0.8 * 0.8, 0.8 * 1.2 + 0.4));
        assert_non_null(strstr(c.sentence, "stalled"));
        net_stop(&server);
        client_free(&c);
    }
    net_small_buffers = 0;
    free(bytes);
}

// A limit of its own is for a server that thinks, not for a link that freezes while a body moves.
static void test_frozen_in_a_body(void **state) {
    (void)state;
    char *bytes = pattern(6000000), got[16];
    net_small_buffers = 1;
    for (int kind = 0; kind <= 3; kind++) {
        if (kind == 1) continue;
        pace p = { kind, 0 };
        net_server server;
        client c;
        net_start(&server, paced, &p);
        client_init(&c);
        if (kind != 3) send_memory(&c, bytes, 6000000);
        if (kind == 3) {
            memset(&c.sink, 0, sizeof c.sink);
            c.sink.memory = got;
            c.sink.fd = -1;
            c.sink.size = 10;
            c.q.sink = &c.sink;
        }
        c.t.stall_timeout_s = 0.8;
        c.q.idle_timeout_s = 20;
        assert_int_equal(ask(&c, &server, kind == 3 ? "GET" : "PUT", "/x"), CKPT_TIMEOUT);
        assert_true(c.took < 5);
        net_stop(&server);
        client_free(&c);
    }
    net_small_buffers = 0;
    free(bytes);
}

static void test_slow_servers(void **state) {
    (void)state;
    char *bytes = pattern(1500000);
    net_small_buffers = 1;
    for (int kind = 5; kind <= 6; kind++) {
        ckpt_err e = CKPT_TIMEOUT;
        for (int tries = 0; tries < 5 && e == CKPT_TIMEOUT; tries++) {      // this machine may stand still for half a second
            pace p = { kind, 1e6 };
            net_server server;
            client c;
            net_start(&server, paced, &p);
            client_init(&c);
            send_memory(&c, bytes, 1500000);
            c.t.stall_timeout_s = 0.5;
            e = ask(&c, &server, "PUT", "/x");
            if (e != CKPT_OK) (void)fprintf(stderr, "kind %d: %s after %g s\n", kind, c.sentence, c.took);
            else assert_true(c.took > 0.9);
            net_stop(&server);
            client_free(&c);
        }
        assert_int_equal(e, CKPT_OK);
    }
    net_small_buffers = 0;
    free(bytes);
}

static void test_other_limits(void **state) {
    (void)state;
    pace p = { 1, 0 };
    net_server server;
    client c;
    net_start(&server, paced, &p);
    client_init(&c);
    c.t.stall_timeout_s = 0.2;
    c.q.idle_timeout_s = 0.6;                   // instead of the stall limit
    assert_int_equal(ask(&c, &server, "POST", "/x"), CKPT_TIMEOUT);
    assert_true(between(c.took, 0.5, 1.2));
    c.t.stall_timeout_s = 0;
    c.q.idle_timeout_s = 0;
    c.q.timeout_s = 0.3;
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_TIMEOUT);
    assert_true(between(c.took, 0.25, 0.8));
    assert_true(c.t.transient);
    net_stop(&server);
    client_free(&c);
}

static void *cancel_soon(void *arg) {
    net_sleep(0.3);
    ckpt__os_flag_set((ckpt__os_flag *)arg, 1);
    return NULL;
}

static void test_cancel(void **state) {
    (void)state;
    char *bytes = pattern(6000000);
    net_small_buffers = 1;
    for (int kind = 0; kind <= 4; kind++) {
        pace p = { kind, 0 };
        ckpt__os_flag cancel = 0;
        pthread_t thread;
        net_server server;
        client c;
        net_start(&server, paced, &p);
        client_init(&c);
        if (kind <= 2) send_memory(&c, bytes, 6000000);
        c.t.cancel = &cancel;
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_CANCELLED);
        assert_true(between(c.took, 0.25, 0.3 + 0.4));
        assert_false(c.t.transient);
        pthread_join(thread, NULL);
        int before = net_count(&server);
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_CANCELLED);     // before it began
        assert_int_equal(net_count(&server), before);
        assert_false(c.t.unsure);
        net_stop(&server);
        client_free(&c);
    }
    net_small_buffers = 0;
    free(bytes);
}

//-- where no reply can come from --------------------------------------------------------

static void test_nobody_there(void **state) {
    (void)state;
    client c;
    client_init(&c);
    net_server nobody;
    memset(&nobody, 0, sizeof nobody);
    strcpy(nobody.url, "http://127.0.0.1:1");
    assert_int_equal(ask(&c, &nobody, "PUT", "/x"), CKPT_NET);
    assert_true(c.t.transient && !c.t.unsure);
    assert_non_null(strstr(c.sentence, "127.0.0.1:1"));
    assert_false(c.r.reused);
    strcpy(nobody.url, "http://user:" SECRET "@host.invalid");
    assert_int_equal(ask(&c, &nobody, "PUT", "/x"), CKPT_NET);
    assert_true(c.t.transient && !c.t.unsure);
    assert_non_null(strstr(c.sentence, "host.invalid"));
    strcpy(nobody.url, "ftp://127.0.0.1:1");                    // only what the address says, and only what it may
    assert_int_not_equal(ask(&c, &nobody, "GET", "/x"), CKPT_OK);
    assert_false(c.t.unsure);
    strcpy(nobody.url, "nonsense");
    assert_int_not_equal(ask(&c, &nobody, "GET", "/x"), CKPT_OK);
    strcpy(nobody.url, "http://127.0.0.1:1/a b");
    assert_int_equal(ask(&c, &nobody, "GET", "/x"), CKPT_ARG);
    ckpt__fields_add(&c.headers, "x-evil", "a\r\nAuthorization: b");
    strcpy(nobody.url, "http://127.0.0.1:1");
    assert_int_equal(ask(&c, &nobody, "GET", "/x"), CKPT_ARG);
    assert_non_null(strstr(c.sentence, "x-evil"));
    client_free(&c);
}

static void test_proxy(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "", "" }, p = s;
    net_server server, proxy;
    client c;
    net_start(&server, look, &s);
    net_start(&proxy, look, &p);
    setenv("http_proxy", proxy.url, 1);
    client_init(&c);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    assert_int_equal(net_count(&proxy), 1);
    assert_non_null(strstr(p.head, "GET http://127.0.0.1:"));
    c.q.no_proxy = true;
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    assert_int_equal(net_count(&proxy), 1);
    assert_int_equal(net_count(&server), 1);
    c.q.no_proxy = false;
    setenv("no_proxy", "127.0.0.1", 1);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    assert_int_equal(net_count(&proxy), 1);
    unsetenv("no_proxy");
    unsetenv("http_proxy");
    net_stop(&server);
    net_stop(&proxy);
    client_free(&c);
    free(s.body);
    free(p.body);
}

// libcurl quotes an address of a proxy that it does not understand, and the password in it; and never will it.
static void test_proxy_misset(void **state) {
    (void)state;
    static const char *const bad[] = { "http://user:pw/SECRET@127.0.0.1:3128", "http://user:pw#SECRET@127.0.0.1:3128", "http://user:SECRET@127.0.0.1:port",
        "htp://user:SECRET@127.0.0.1:3128" };
    net_server nobody;
    client c;
    strcpy(nobody.url, "http://127.0.0.1:1");
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        setenv("http_proxy", bad[i], 1);
        client_init(&c);
        assert_int_equal(ask(&c, &nobody, "GET", "/x"), CKPT_NET);
        assert_non_null(strstr(c.sentence, "http_proxy"));
        assert_null(strstr(c.sentence, "SECRET"));
        assert_false(c.t.transient);
        client_free(&c);
    }
    unsetenv("http_proxy");
}

static void test_tls(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "", "hello" };
    const char *dir = util_temp_dir(), *ca = util_join(dir, "ca.pem"), *other = util_join(dir, "other.pem");
    net_server server, wrong;
    client c;
    net_start_tls(&wrong, look, &s, "DNS:elsewhere.example", other);
    net_start_tls(&server, look, &s, "IP:127.0.0.1,DNS:localhost", ca);
    client_init(&c);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_AUTH);             // nobody we know has signed it
    assert_false(c.t.transient);
    client_free(&c);
    char *was = getcwd(NULL, 0);
    assert_int_equal(chdir(dir), 0);
    client_init_with(&c, "ca.pem", NULL);                                   // where it is now, wherever the program goes
    assert_int_equal(chdir(was), 0);
    free(was);
    char *bytes = pattern(3000000);
    send_memory(&c, bytes, 3000000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(&c, &server, "PUT", "/x"), CKPT_OK);
        assert_int_equal(s.size, 3000000);
        assert_memory_equal(s.body, bytes, 3000000);
        assert_int_equal(c.moved, 3000000);
    }
    assert_true(c.r.reused);
    assert_int_equal(ask(&c, &wrong, "GET", "/x"), CKPT_AUTH);
    client_free(&c);
    client_init_with(&c, other, NULL);
    assert_int_equal(ask(&c, &wrong, "GET", "/x"), CKPT_AUTH);              // known, but for another name
    client_free(&c);
    static const char *const names[] = { "AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE" };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        setenv(names[i], ca, 1);
        client_init(&c);
        assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
        client_free(&c);
        unsetenv(names[i]);
    }
    setenv("AWS_CA_BUNDLE", ca, 1);                                         // the first of them counts
    setenv("REQUESTS_CA_BUNDLE", other, 1);
    client_init(&c);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    client_free(&c);
    unsetenv("REQUESTS_CA_BUNDLE");
    setenv("AWS_CA_BUNDLE", util_join(dir, "missing"), 1);
    ckpt__http_options o = { NULL, NULL, NULL, NULL };
    assert_int_equal(ckpt__http_init(&c.http, &o), CKPT_ARG);
    assert_non_null(strstr(ckpt__error_last.text, "AWS_CA_BUNDLE"));
    unsetenv("AWS_CA_BUNDLE");
    setenv("SSL_CERT_FILE", util_join(dir, "missing"), 1);                  // these often lead nowhere, and nobody minds
    setenv("REQUESTS_CA_BUNDLE", ca, 1);
    client_init(&c);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    client_free(&c);
    unsetenv("SSL_CERT_FILE");
    unsetenv("REQUESTS_CA_BUNDLE");
    net_stop(&server);
    net_stop(&wrong);
    free(bytes);
    free(s.body);
}

// SSL_CERT_DIR names one folder or several, of which one is there.
static void test_ca_folders(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *library = curl_version_info(CURLVERSION_NOW)->ssl_version;
    const char *lists[] = { dir, util_fmt("%s:/nowhere", dir), util_fmt("/nowhere:%s", dir) };
    for (int i = 0; i < UTIL_COUNT(lists); i++) {
        client c;
        setenv("SSL_CERT_DIR", lists[i], 1);
        client_init(&c);
        assert_non_null(c.http.ca_dir);
        assert_string_equal(c.http.ca_dir, strstr(library, "OpenSSL") != NULL ? lists[i] : dir);
        client_free(&c);
    }
    unsetenv("SSL_CERT_DIR");
}

// Relative ones are of the directory in which the program was at the open. An empty one is none, not that directory.
static void test_ca_folders_abroad(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *certs = util_join(dir, "certs"), *library = curl_version_info(CURLVERSION_NOW)->ssl_version;
    bool all = strstr(library, "OpenSSL") != NULL;
    const char *const lists[][2] = { { "certs", certs }, { "certs:", certs }, { "/nowhere::certs", all ? util_fmt("/nowhere:%s", certs) : certs },
                                     { "certs:missing", all ? util_fmt("%s:%s/missing", certs, dir) : certs } };
    util_mkdir(certs);
    char *was = getcwd(NULL, 0);
    for (int i = 0; i < UTIL_COUNT(lists); i++) {
        client c;
        setenv("SSL_CERT_DIR", lists[i][0], 1);
        assert_int_equal(chdir(dir), 0);
        client_init(&c);
        assert_int_equal(chdir(was), 0);
        assert_non_null(c.http.ca_dir);
        assert_string_equal(c.http.ca_dir, lists[i][1]);
        client_free(&c);
    }
    unsetenv("SSL_CERT_DIR");
    free(was);
}

static void test_tls_connection_that_dies(void **state) {
    (void)state;
    const char *ca = util_join(util_temp_dir(), "ca.pem");
    char *bytes = pattern(5000000);
    for (int i = 0; i < 4; i++) {
        dying d = { i / 2, 300000, i % 2 == 1, false };
        net_server server;
        client c;
        net_start_tls(&server, die, &d, "IP:127.0.0.1", ca);
        client_init_with(&c, ca, NULL);
        send_memory(&c, bytes, 5000000);
        for (int n = 0; n < 3; n++) {
            ckpt_err e = ask(&c, &server, "PUT", "/x");        // OpenSSL writes into a dead socket: SIGPIPE must not end the test
            assert_true(e == CKPT_OK || (e == CKPT_NET && c.t.transient));
        }
        assert_int_equal(c.r.status, 200);
        net_stop(&server);
        client_free(&c);
    }
    // Plain text where TLS is expected.
    answer a = { 0, "", "HTTP/1.1 400 Bad Request\r\n\r\n", 0, 1 };
    net_server server;
    client c;
    net_start(&server, answer_it, &a);
    client_init(&c);
    snprintf(server.url, sizeof server.url, "https://127.0.0.1:%d", server.port);
    c.q.timeout_s = 1.0;
    ckpt_err e = ask(&c, &server, "GET", "/x");
    assert_true(e == CKPT_NET || e == CKPT_TIMEOUT);
    assert_true(c.t.transient);
    net_stop(&server);
    client_free(&c);
    free(bytes);
}

//-- processes, threads, memory ----------------------------------------------------------

static void test_fork(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "", "" };
    net_server server;
    client c;
    net_start(&server, look, &s);
    client_init(&c);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    pid_t pid = fork();
    if (pid == 0) {
        ckpt__transfer_begin(&c.t);
        ckpt_err e = ckpt__http_run(&c.http, &c.q, &c.r);
        bool said = strstr(ckpt__error_last.text, "open it again") != NULL;
        ckpt__http_free(&c.http);
        _exit(e == CKPT_ARG && said && !c.t.transient ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(ask(&c, &server, "GET", "/x"), CKPT_OK);
    assert_int_equal(net_connections(&server), 1);             // the parent's connection is as it was
    net_stop(&server);
    client_free(&c);
    free(s.body);
}

enum { THREADS = 8, ROUNDS = 20 };

typedef struct crowd { ckpt__http *http; const char *url; int bad; uint64_t *moved; } crowd;

static void echo_size(net_request *r, void *user) {
    (void)user;
    net_drain(r, UINT64_MAX, 0);
    char text[32];
    int n = snprintf(text, sizeof text, "%lld", (long long)r->length);
    net_reply(r, r->number % 7 == 3 ? 503 : 200, "", text, (size_t)n);
    if (r->number % 11 == 5) net_close(r);
}

static void *crowd_main(void *arg) {
    crowd *w = (crowd *)arg;
    char bytes[5000] = "";
    for (size_t i = 0; i < ROUNDS; i++) {
        ckpt__http_reply r;
        ckpt__transfer t;
        ckpt__http_request q;
        ckpt__body b;
        char expect[32];
        memset(&t, 0, sizeof t);
        memset(&q, 0, sizeof q);
        memset(&b, 0, sizeof b);
        b.memory = bytes;
        b.size = 100 * i;
        t.moved = w->moved;
        q.method = "PUT";
        q.url = w->url;
        q.body = &b;
        q.transfer = &t;
        snprintf(expect, sizeof expect, "%zu", 100 * i);
        ckpt__http_reply_init(&r, NULL);
        // The server may close a kept connection while a request is on its way: it is sent again.
        if (ckpt__http_run(w->http, &q, &r) != CKPT_OK || strcmp(ckpt__buf_cstr(&r.body), expect) != 0) w->bad++;
        ckpt__http_reply_free(&r);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    net_server server;
    client c;
    pthread_t threads[THREADS];
    crowd workers[THREADS];
    uint64_t moved = 0;
    net_start(&server, echo_size, NULL);
    client_init(&c);
    for (int i = 0; i < THREADS; i++) {
        crowd w = { &c.http, server.url, 0, &moved };
        workers[i] = w;
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].bad, 0);
    }
    assert_int_equal(moved, (uint64_t)THREADS * 100 * ROUNDS * (ROUNDS - 1) / 2);
    int slots = 0;
    for (ckpt__http_slot *s = c.http.idle; s != NULL; s = s->next) slots++;
    assert_true(slots <= THREADS);
    net_stop(&server);
    client_free(&c);
}

static void test_allocations_that_fail(void **state) {
    (void)state;
    seen s = { "", NULL, 0, 0, 200, "ETag: x\r\n", "hello" };
    const char *ca = util_join(util_temp_dir(), "ca");
    util_write_text(ca, "");
    net_server server;
    net_start(&server, look, &s);
    bool passed = false;
    for (int n = 1; !passed && n < 100; n++) {
        counting count = { 0, 0, n };
        ckpt_allocator a = { counting_fn, &count };
        ckpt__http h;
        ckpt__http_options o = { ca, "ckpt", NULL, &a };
        ckpt__http_reply r;
        ckpt__fields f;
        ckpt__transfer t;
        ckpt__http_request q;
        memset(&t, 0, sizeof t);
        memset(&q, 0, sizeof q);
        ckpt__http_reply_init(&r, &a);
        ckpt__fields_init(&f, &a);
        ckpt__fields_add(&f, "x-a", "b");
        q.method = "PUT";
        q.url = server.url;
        q.headers = &f;
        q.transfer = &t;
        ckpt_err e = ckpt__http_init(&h, &o);
        if (e == CKPT_OK) e = ckpt__http_run(&h, &q, &r);
        passed = e == CKPT_OK;
        if (passed) assert_true(count.calls < n);
        else assert_int_equal(e, CKPT_NOMEM);
        assert_false(t.transient);
        ckpt__http_free(&h);
        ckpt__http_reply_free(&r);
        ckpt__fields_free(&f);
        assert_int_equal(count.live, 0);
    }
    assert_true(passed);
    net_stop(&server);
    free(s.body);
}

//-- what a status means -----------------------------------------------------------------

static void test_judge(void **state) {
    (void)state;
    static const struct { int status; const char *after; bool transient, throttled; double wait; } cases[] = {
        { 200, "5", false, false, 0 }, { 403, NULL, false, false, 0 }, { 404, NULL, false, false, 0 }, { 412, "9", false, false, 0 },
        { 408, NULL, true, false, 0 }, { 500, NULL, true, false, 0 }, { 502, "1", true, false, 1 }, { 503, "7", true, true, 7 },
        { 504, "", true, false, 0 }, { 429, "120", true, true, 60 }, { 503, "-3", true, true, 0 }, { 503, "99999999999999999999", true, true, 0 },
        { 503, "soon", true, true, 0 }, { 503, "Fri, 20 Nov 2026 23:58:00 GMT", true, true, 20 },
        { 503, "Fri, 20 Nov 2020 23:58:00 GMT", true, true, 0 }, { 501, NULL, false, false, 0 }, { 511, NULL, true, false, 0 },
        { 302, NULL, false, false, 0 },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt__http_reply r;
        ckpt__transfer t;
        ckpt__http_reply_init(&r, NULL);
        memset(&t, 0, sizeof t);
        r.status = cases[i].status;
        r.date = 1795219060.0;
        if (cases[i].after != NULL) ckpt__fields_add(&r.headers, "Retry-After", cases[i].after);
        ckpt__http_judge(&r, &t);
        if (t.transient != cases[i].transient || t.throttled != cases[i].throttled || t.status != r.status ||
            !between(t.retry_after, cases[i].wait - 0.01, cases[i].wait + 0.01)) fail_msg("case %d", i);
        ckpt__http_reply_free(&r);
    }
}

// A socket has room for what arrives ahead, where the system gives that much, and still tells of every byte.
static void test_receive_room(void **state) {
    (void)state;
    int fd = ckpt__os_socket(AF_INET, SOCK_STREAM, 0), before = 0, after = 0, mark = 0;
    socklen_t size = sizeof(int);
    assert_true(fd >= 0);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &before, &size), 0);
    assert_true(ckpt__os_receive_room(fd, CKPT__HTTP_ROOM));
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &after, &size), 0);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &size), 0);
    assert_int_equal(mark, 1);
    assert_true(after >= before);
    long most = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_rmem", "r");
    if (f != NULL) {
        if (fscanf(f, "%*d %*d %ld", &most) != 1) most = 0;
        fclose(f);
    }
    if (most >= 2L * CKPT__HTTP_ROOM) assert_true(after >= CKPT__HTTP_ROOM);
    close(fd);
}

// A host's name that is too long for sentences is cut.
static void test_long_host(void **state) {
    (void)state;
    char url[400] = "http://";
    client c;
    ckpt__http_job job;
    memset(url + 7, 'h', 300);
    client_init(&c);
    assert_int_equal(ckpt__http_take(&c.http, &job, url, &c.t), CKPT_OK);
    assert_ptr_equal(memchr(job.host, 0, sizeof job.host), job.host + 255);
    ckpt__http_give(&c.http, &job, true);
    client_free(&c);
}

// Where the system does not tell what a socket has not sent, nothing is left to be sent: a server's own limit holds.
static void test_unsent_unknown(void **state) {
    (void)state;
    ckpt__http_slot slot;
    ckpt__http_job job;
    memset(&slot, 0, sizeof slot);
    memset(&job, 0, sizeof job);
    job.slot = &slot;
    slot.sockets[0] = open("/dev/null", O_RDONLY);
    assert_true(slot.sockets[0] > 0 && ckpt__os_unsent(slot.sockets[0]) < 0);
    assert_int_equal(ckpt__http_unsent(&job), 0);
    close(slot.sockets[0]);
}

// libssh before 0.10 closes a socket below libcurl, which then closes that number again, or never does. It may be anybody's.
static void test_closed_below(void **state) {
    (void)state;
    client c;
    client_init(&c);
    ckpt__http_slot *slot = ckpt__http_take_slot(&c.http, "sftp://h:22");
    struct curl_sockaddr at;
    int mine[2];
    memset(&at, 0, sizeof at);
    at.family = AF_INET;
    at.socktype = SOCK_STREAM;
    for (int i = 0; i < 2 * CKPT__HTTP_SOCKETS; i++) {
        int fd = (int)ckpt__http_on_socket(slot, CURLSOCKTYPE_IPCXN, &at);
        assert_true(fd > 2);
        int known = 0, sockets = 0;
        for (int k = 0; k < CKPT__HTTP_SOCKETS; k++) {
            sockets += ckpt__http_socket(slot, k) > 0;
            known += ckpt__http_socket(slot, k) == fd;
        }
        assert_true(known == 1 && sockets == 1);
        close(fd);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, mine), 0);
        assert_true(mine[0] == fd || mine[1] == fd);
        ckpt__http_job job;
        memset(&job, 0, sizeof job);
        job.slot = slot;
        ckpt__http_hang_up(&job);
        if (i % 2 == 0) assert_int_equal(ckpt__http_on_close(slot, fd), 0);
        char byte = 'x';
        assert_int_equal(write(mine[0], &byte, 1), 1);
        assert_int_equal(read(mine[1], &byte, 1), 1);
        close(mine[0]);
        close(mine[1]);
    }
    // As ever: one that libcurl closes is closed.
    int fd = (int)ckpt__http_on_socket(slot, CURLSOCKTYPE_IPCXN, &at);
    assert_int_equal(ckpt__http_on_close(slot, fd), 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    curl_easy_cleanup(slot->easy);
    curl_multi_cleanup(slot->multi);
    ckpt__mem_free(&c.http.allocator, slot, sizeof *slot);
    client_free(&c);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receive_room),
        cmocka_unit_test(test_long_host),
        cmocka_unit_test(test_unsent_unknown),
        cmocka_unit_test(test_request_is_sent_as_given),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_any_status_is_a_reply),
        cmocka_unit_test(test_downloads),
        cmocka_unit_test(test_replies_that_lie),
        cmocka_unit_test(test_content_length_that_is_none),
        cmocka_unit_test(test_replies_without_end),
        cmocka_unit_test(test_informational_replies_are_skipped),
        cmocka_unit_test(test_kept_connection_that_dies),
        cmocka_unit_test(test_new_connection_that_dies_too),
        cmocka_unit_test(test_server_that_closes_idle_connections),
        cmocka_unit_test(test_reset_in_every_region),
        cmocka_unit_test(test_early_replies),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_descriptors_do_not_leak_into_programs),
        cmocka_unit_test(test_frozen_servers),
        cmocka_unit_test(test_frozen_in_a_body),
        cmocka_unit_test(test_slow_servers),
        cmocka_unit_test(test_other_limits),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_proxy), cmocka_unit_test(test_proxy_misset),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_ca_folders), cmocka_unit_test(test_ca_folders_abroad),
        cmocka_unit_test(test_tls_connection_that_dies),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allocations_that_fail),
        cmocka_unit_test(test_closed_below),
        cmocka_unit_test(test_judge),
    };
    static const char *const names[] = { "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "AWS_CA_BUNDLE",
                                         "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE" };
    for (int i = 0; i < UTIL_COUNT(names); i++) unsetenv(names[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
