/* test_s3_wrong.c: what servers, proxies and sources of credentials get wrong leaves no wrong byte in a file, and no upload behind.
   run.sh: remote tsan-long */
#define CKPT__SEND_MIB (1 << 10)        // ranges and parts of some KiB
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"

enum { SIZE = 40 << 10 };

typedef struct wrong {
    net_server     server;
    const char    *kind;
    pthread_mutex_t lock;
    int            seen[8];             // GET, PUT, POST, DELETE, HEAD, and those of GET for the second piece
    int            told;                // odd answers so far
    char           condition[16];       // If-None-Match of the last PUT
} wrong;

enum { GETS, PUTS, POSTS, DELETES, HEADS, SECONDS };

static char data[SIZE], other[SIZE];

static int seen(wrong *w, int what) {
    pthread_mutex_lock(&w->lock);
    int n = ++w->seen[what];
    pthread_mutex_unlock(&w->lock);
    return n;
}

// True so many times.
static bool odd(wrong *w, int times) {
    pthread_mutex_lock(&w->lock);
    bool yes = w->told < times;
    if (yes) w->told++;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

static bool kind(const wrong *w, const char *name) { return strcmp(w->kind, name) == 0; }

static void refuse(net_request *r, int status, const char *code) {
    const char *body = util_fmt("<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>no</Message></Error>", code);
    net_reply(r, status, "", body, strlen(body));
}

static void head_of(net_request *r, const wrong *w) {
    net_drain(r, UINT64_MAX, 0);
    int size = atoi(w->kind) > 0 || kind(w, "no list") ? 11 : (int)SIZE;       // that has been put
    net_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: %s\r\n\r\n", size, kind(w, "versions") ? "W/\"v1\"" : "\"v1\"");
}

// Bytes from..to of `from_what`, told as from..to of `total`, of which only `some` are sent before the connection ends.
static void range_of(net_request *r, const char *bytes, long from, long to, long total, const char *etag, long some) {
    net_text(r, "HTTP/1.1 206 Partial\r\nContent-Length: %ld\r\nETag: %s\r\nContent-Range: bytes %ld-%ld/%ld\r\n\r\n", to - from + 1, etag,
             from, to, total);
    net_drip(r, bytes + from, (size_t)(some < to - from + 1 ? some : to - from + 1), 1024, 0.002);
    if (some < to - from + 1) net_close(r);
}

static void serve_get(net_request *r, wrong *w) {
    long from = 0, to = SIZE - 1;
    const char *etag = kind(w, "versions") ? "W/\"v1\"" : "\"v1\"";
    bool ranged = sscanf(net_header(r, "Range"), "bytes=%ld-%ld", &from, &to) == 2;
    bool second = from > 0 && from <= SIZE / 2;
    (void)seen(w, second ? SECONDS : GETS);
    if (kind(w, "no ranges")) {
        bool breaks = odd(w, 2);                                    // the first reply to any, and a later one in its middle
        net_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: \"v1\"\r\n\r\n", (int)SIZE);
        net_drip(r, data, breaks ? SIZE / 3 : SIZE, 1024, 0.001);
        if (breaks) net_close(r);
    } else if (kind(w, "other range") && second && odd(w, 1)) {     // a cache widens the range, and breaks off
        range_of(r, data, 0, SIZE - 1, SIZE, etag, 3 * 1024);
    } else if (kind(w, "wide") && second) {                         // and always, and does not
        range_of(r, data, 0, SIZE - 1, SIZE, etag, SIZE);
    } else if (kind(w, "versions") && second && odd(w, 1)) {        // one of the servers has another version
        range_of(r, other, from, to, SIZE, "W/\"v2\"", 2 * 1024);
    } else if (kind(w, "grown") && second && odd(w, 1)) {           // and does not say so, but that it is longer
        range_of(r, other, from, to, SIZE + 1, etag, 2 * 1024);
    } else {
        assert_true(ranged);
        range_of(r, data, from, to, SIZE, etag, SIZE);
    }
}

static void handler(net_request *r, void *user) {
    wrong *w = (wrong *)user;
    bool parts = strstr(r->target, "uploadId") != NULL;
    if (strcmp(r->method, "HEAD") == 0) {
        (void)seen(w, HEADS);
        pthread_mutex_lock(&w->lock);
        bool there = w->seen[PUTS] > 0;
        pthread_mutex_unlock(&w->lock);
        if (kind(w, "no list") && !there) {
            net_drain(r, UINT64_MAX, 0);
            net_text(r, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        } else {
            head_of(r, w);
        }
    } else if (strcmp(r->method, "GET") == 0 && (parts || strstr(r->target, "list-type") != NULL)) {
        refuse(r, 403, "AccessDenied");
    } else if (strcmp(r->method, "GET") == 0) {
        serve_get(r, w);
    } else if (strcmp(r->method, "PUT") == 0) {
        int n = seen(w, PUTS);
        pthread_mutex_lock(&w->lock);
        snprintf(w->condition, sizeof w->condition, "%s", net_header(r, "If-None-Match"));
        pthread_mutex_unlock(&w->lock);
        int status = atoi(w->kind);
        if (status == 404 && n < 3) net_reply(r, 404, "Content-Type: text/plain\r\n", "404 page not found\n", 19);
        else if (status != 0 && n < 3) net_reply(r, status, "", "", 0);
        else net_reply(r, 200, "ETag: \"x\"\r\n", "", 0);
    } else if (strcmp(r->method, "POST") == 0 && parts) {
        static const char done[] = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
        (void)seen(w, POSTS);
        net_reply(r, 200, "", done, sizeof done - 1);
    } else {
        (void)seen(w, strcmp(r->method, "DELETE") == 0 ? DELETES : POSTS);
        refuse(r, 500, "InternalError");
    }
}

static wrong *wrong_new(const char *what) {
    wrong *w = (wrong *)util_keep(calloc(1, sizeof *w), false);
    w->kind = what;
    pthread_mutex_init(&w->lock, NULL);
    net_start(&w->server, handler, w);
    return w;
}

static void wrong_end(wrong *w) {
    net_stop(&w->server);
    pthread_mutex_destroy(&w->lock);
}

static ckpt_store *open_at(const char *url, ckpt_store_desc *given) {
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    if (given != NULL) d = *given;
    d.endpoint_url = url;
    if (given == NULL) {
        d.access_key_id = "AKIDEXAMPLE";
        d.secret_access_key = "verySecretKey";
    }
    if (ckpt_store_open(&s, "s3://bucket/pre", &d) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    return s;
}

static int set_up(void **state) {
    (void)state;
    util_clear_env();
    setenv("HOME", util_temp_dir(), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    return 0;
}

static void expect_code(ckpt_err e, ckpt_err wanted, const char *what) {
    if (e != wanted) fail_msg("%s: %s instead of %s: %s", what, ckpt_err_name(e), ckpt_err_name(wanted), ckpt_last_error());
}

//-- downloads ---------------------------------------------------------------------

// The object has no checksum of ours, so that only what replies say of themselves tells wrong bytes from right ones.
static void test_wrong_bytes(void **state) {
    (void)state;
    static const struct { const char *kind; ckpt_err e; } rows[] = {
        { "other range", CKPT_OK }, { "wide", CKPT_CORRUPT }, { "versions", CKPT_OK }, { "grown", CKPT_OK }, { "no ranges", CKPT_OK },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        wrong *w = wrong_new(rows[i].kind);
        ckpt_store *s = open_at(w->server.url, NULL);
        const char *path = util_join(util_temp_dir(), "got");
        size_t size = 0;
        ckpt_err e = ckpt_store_get(s, "obj", path, false);
        expect_code(e, rows[i].e, rows[i].kind);
        if (e == CKPT_OK) {
            char *got = util_read(path, &size);
            if (size != SIZE || memcmp(got, data, SIZE) != 0) fail_msg("%s: wrong bytes", rows[i].kind);
        } else {
            assert_false(util_exists(path));
        }
        ckpt_store_close(s);
        wrong_end(w);
    }
}

//-- uploads -----------------------------------------------------------------------

// To list the parts of an upload is a right of its own: without it a later process goes on by what was written down.
static void test_parts_unseen(void **state) {
    (void)state;
    wrong *w = wrong_new("parts");
    ckpt_store *s = open_at(w->server.url, NULL);
    ckpt__send_record record;
    ckpt__send send;
    ckpt__store_part part;
    memset(&send, 0, sizeof send);
    memset(&part, 0, sizeof part);
    ckpt__send_record_init(&record, NULL);
    ckpt__buf_text(&record.upload_id, "up1");
    assert_string_equal(ckpt__buf_cstr(&record.upload_id), "up1");
    s->min_part = 1;
    record.part_size = 8 << 10;
    part.number = 2;
    part.size = 8 << 10;
    strcpy(part.etag, "\"x\"");
    expect_code(ckpt__send_record_add(&record, &part), CKPT_OK, "record");
    send.store = s;
    send.name = "obj";
    send.body.memory = data;
    send.body.fd = -1;
    send.body.size = SIZE;
    send.overwrite = true;
    send.record = &record;
    expect_code(ckpt__send_run(&send), CKPT_OK, "going on");
    assert_int_equal(w->seen[PUTS], 4);                 // of five parts
    assert_int_equal(w->seen[POSTS], 1);                // nothing was begun, the end is all
    ckpt__send_record_free(&record);
    ckpt_store_close(s);
    wrong_end(w);
}

static ckpt_err put_small(wrong *w, bool overwrite) {
    ckpt_store *s = open_at(w->server.url, NULL);
    const char *path = util_join(util_temp_dir(), "small");
    util_write_text(path, "hello world");
    ckpt_err e = ckpt_store_put(s, "obj", path, overwrite);
    ckpt_store_close(s);
    return e;
}

// Who may not list is told 403 of what is not there: the put's own condition decides.
static void test_no_list(void **state) {
    (void)state;
    wrong *w = wrong_new("no list");
    expect_code(put_small(w, false), CKPT_OK, "put");
    assert_int_equal(w->seen[PUTS], 1);
    assert_string_equal(w->condition, "*");
    wrong_end(w);
}

// Trouble between us and the server passes, whatever number it has and whoever tells of it; each try has a connection of its own.
static void test_trouble_passes(void **state) {
    (void)state;
    static const char *const kinds[] = { "500", "503", "520", "523", "525", "530", "404" };
    for (int i = 0; i < UTIL_COUNT(kinds); i++) {
        wrong *w = wrong_new(kinds[i]);
        expect_code(put_small(w, true), CKPT_OK, kinds[i]);
        assert_int_equal(w->seen[PUTS], 3);
        if (strcmp(kinds[i], "404") != 0 && net_connections(&w->server) < 3)
            fail_msg("%s: %d connections", kinds[i], net_connections(&w->server));
        wrong_end(w);
    }
    wrong *w = wrong_new("501");
    expect_code(put_small(w, true), CKPT_UNSUPPORTED, "501");
    assert_int_equal(w->seen[PUTS], 1);
    wrong_end(w);
}

//-- credentials -------------------------------------------------------------------

static ckpt_err no_secret(ckpt_credentials *out, void *user) {
    (void)out;
    return *(const ckpt_err *)user;
}

// "Not found" is said of objects: of credentials it would tell a trainer that there is no checkpoint, and to begin anew. "Cancelled"
// would be told to nobody, and the files that need them not be sent.
static void test_no_credentials(void **state) {
    (void)state;
    static const ckpt_err codes[] = { CKPT_NOT_FOUND, CKPT_EXISTS, CKPT_CORRUPT, CKPT_MISMATCH, CKPT_IO, CKPT_AUTH, CKPT_CANCELLED };
    wrong *w = wrong_new("none");
    uint64_t size = 0;
    for (int i = 0; i < UTIL_COUNT(codes); i++) {
        ckpt_store_desc d;
        ckpt_err code = codes[i];
        memset(&d, 0, sizeof d);
        d.credentials = no_secret;
        d.credentials_user = &code;
        ckpt_store *s = open_at(w->server.url, &d);
        expect_code(ckpt_store_size(s, "obj", &size), CKPT_AUTH, ckpt_err_name(codes[i]));
        assert_non_null(strstr(ckpt_last_error(), util_fmt("gave no AWS credentials, but %s", ckpt_err_name(codes[i]))));
        ckpt_store_close(s);
    }
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/v1/credentials", 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", util_join(util_temp_dir(), "token"), 1);
    ckpt_store *s = open_at(w->server.url, &d);
    expect_code(ckpt_store_size(s, "obj", &size), CKPT_AUTH, "the container's token");
    assert_non_null(strstr(ckpt_last_error(), "token"));
    ckpt_store_close(s);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    assert_int_equal(net_count(&w->server), 0);
    wrong_end(w);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_wrong_bytes, set_up), cmocka_unit_test_setup(test_parts_unseen, set_up),
        cmocka_unit_test_setup(test_no_list, set_up), cmocka_unit_test_setup(test_trouble_passes, set_up),
        cmocka_unit_test_setup(test_no_credentials, set_up),
    };
    for (int i = 0; i < SIZE; i++) {
        data[i] = (char)(i * 7 + i / 251);
        other[i] = (char)~data[i];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
