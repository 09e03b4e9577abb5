/* test_wandb.c: what wandb:// calls its artifacts (Composer's cases), what it asks for and sends where, whose key it finds, and what it
   makes of replies, good, bad and hostile, by a server in the process that answers by the name of the operation.
   run.sh: remote tsan-long */
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"
#include "counting.h"

//-- a server ----------------------------------------------------------------------

static struct {
    const char *look, *created, *manifest, *files, *commit, *list;     // replies of GraphQL, in which "URL" is the storage's address
    int         status;                 // of all of them; 0: 200
    char        asked[20000];           // "OPERATION\n" and bodies, one behind the other
    char        storage[8000];          // heads of requests to the storage
    char        object[2000];           // its bytes
    int         puts;
    pthread_mutex_t lock;
} world = { NULL, NULL, NULL, NULL, NULL, NULL, 0, "", "", "", 0, PTHREAD_MUTEX_INITIALIZER };

static net_server api, store_host;
static ckpt__transfer t;

#define FILES "\"files\":{\"edges\":[{\"node\":{\"name\":\"a.pt\",\"sizeBytes\":5,\"md5\":\"XUFAKrxLKna5cZ2REBfFkg==\",\"directUrl\":\"URL/get?sig=5ecret\"}}]}"
#define VERSION "\"id\":\"V1\",\"state\":\"COMMITTED\",\"size\":5,\"metadata\":\"{}\",\"createdAt\":\"2026-11-20T23:57:40Z\",\"artifactSequence\":{\"id\":\"S1\"}"
static const char good_look[] = "{\"data\":{\"project\":{\"artifact\":{" VERSION "," FILES "}}}}";
static const char good_created[] = "{\"data\":{\"createArtifact\":{\"artifact\":{\"id\":\"V1\",\"state\":\"PENDING\",\"artifactSequence\":{\"latestArtifact\":null}}}}}";
static const char good_manifest[] = "{\"data\":{\"createArtifactManifest\":{\"artifactManifest\":{\"id\":\"M1\",\"file\":{\"id\":\"F\",\"uploadUrl\":"
    "\"URL/manifest?sig=5ecret\",\"uploadHeaders\":[\"Content-Type:application/json\"]}}}}}";
static const char good_files[] = "{\"data\":{\"createArtifactFiles\":{\"files\":{\"edges\":[{\"node\":{\"storagePath\":\"x\",\"uploadUrl\":\"URL/put?sig=5ecret\","
    "\"uploadHeaders\":[\"Content-MD5:XUFAKrxLKna5cZ2REBfFkg==\",\"X-Extra: 1\",\"Host:evil\",\"Content-Length:9\",\"Authorization:evil\",\"bad\\r\\nX-Evil:1\","
    "\"nothing\",7],\"artifact\":{\"id\":\"V1\"}}}]}}}}";
static const char good_commit[] = "{\"data\":{\"commitArtifact\":{\"artifact\":{\"id\":\"V1\",\"digest\":\"x\"}}}}";
static const char good_run[] = "{\"data\":{\"upsertBucket\":{\"bucket\":{\"id\":\"r\",\"name\":\"r\"}}}}";
static const char nothing[] = "{\"data\":{\"project\":{\"artifact\":null}}}";

static void world_reset(void) {
    world.look = good_look;
    world.created = good_created;
    world.manifest = good_manifest;
    world.files = good_files;
    world.commit = good_commit;
    world.list = NULL;
    world.status = 0;
    world.asked[0] = world.storage[0] = 0;
    world.puts = 0;
    memset(&t, 0, sizeof t);
    t.stall_timeout_s = 5;
}

static void on_api(net_request *r, void *user) {
    (void)user;
    net_body(r, SIZE_MAX);
    pthread_mutex_lock(&world.lock);
    const char *q = r->body != NULL ? r->body : "", *reply = "{\"data\":{}}";
    static const struct { const char *word; const char *const *reply; } ways[] = {
        { "createArtifactManifest(", &world.manifest }, { "createArtifactFiles(", &world.files }, { "createArtifact(", &world.created },
        { "commitArtifact(", &world.commit }, { "artifactCollections(", &world.list }, { "artifact(", &world.look }
    };
    if (strstr(q, "upsertBucket(") != NULL) reply = good_run;
    else for (int i = UTIL_COUNT(ways) - 1; i >= 0; i--) if (strstr(q, ways[i].word) != NULL && *ways[i].reply != NULL) reply = *ways[i].reply;
    // Before the object is there nothing is found.
    if (strstr(q, "CkptArtifact(") != NULL && world.puts == 0 && strstr(world.storage, "GET") == NULL && world.look == good_look && strstr(world.asked, "PUTTING") != NULL)
        reply = nothing;
    size_t n = strlen(world.asked);
    snprintf(world.asked + n, sizeof world.asked - n, "%s %s\n%s\n", r->method, net_header(r, "authorization"), q);
    char out[8000];
    size_t k = 0;
    for (const char *p = reply; *p != 0 && k + 100 < sizeof out; p++) {
        if (strncmp(p, "URL", 3) == 0) { k += (size_t)snprintf(out + k, sizeof out - k, "%s", store_host.url); p += 2; }
        else out[k++] = *p;
    }
    int status = world.status != 0 ? world.status : 200;
    pthread_mutex_unlock(&world.lock);
    net_reply(r, status, NULL, out, k);
}

static void on_storage(net_request *r, void *user) {
    (void)user;
    net_body(r, SIZE_MAX);
    pthread_mutex_lock(&world.lock);
    size_t n = strlen(world.storage);
    snprintf(world.storage + n, sizeof world.storage - n, "%s", r->head);
    if (strcmp(r->method, "PUT") == 0) {
        world.puts++;
        if (strstr(r->target, "/put") != NULL) snprintf(world.object, sizeof world.object, "%s", r->body);
    }
    pthread_mutex_unlock(&world.lock);
    if (strcmp(r->method, "GET") == 0) net_reply(r, 206, "Content-Range: bytes 0-4/5\r\n", "hello", 5);
    else net_reply(r, 200, NULL, "", 0);
}

static ckpt_store *open_at(const ckpt_allocator *a) {
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    d.endpoint_url = api.url;
    d.secret_access_key = "0123456789abcdef0123456789abcdef01234567";
    if (a != NULL) d.allocator = *a;
    if (ckpt_store_open(&s, "wandb://ent/proj/pre", &d) != CKPT_OK && a == NULL) fail_msg("%s", ckpt_last_error());
    return s;
}

static ckpt_err put(ckpt_store *s, const char *name, const char *bytes, bool overwrite) {
    ckpt__body b;
    ckpt__store_put p;
    memset(&b, 0, sizeof b);
    memset(&p, 0, sizeof p);
    b.memory = bytes;
    b.fd = -1;
    b.size = strlen(bytes);
    p.name = name;
    p.body = &b;
    p.overwrite = overwrite;
    p.mark = "0123456789abcdef0123456789abcdef";
    p.t = &t;
    return ckpt__store_run_put(s, &p);
}

static ckpt_err get(ckpt_store *s, const char *name, char *out, size_t n) {
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    k.memory = out;
    k.fd = -1;
    k.size = n;
    return ckpt__store_run_get(s, name, NULL, 0, &k, &t);
}

#define says(text, part) do { if (strstr(text, part) == NULL) fail_msg("no '%s' in: %s", part, text); } while (0)
#define silent(text, part) do { if (strstr(text, part) != NULL) fail_msg("'%s' in: %s", part, text); } while (0)

//-- names -------------------------------------------------------------------------

static void test_names(void **state) {
    (void)state;
    util_table c = cases_tsv("wandb_artifact_name.tsv");
    int rows = 0;
    for (int i = 0; i < c.rows; i++, rows++) {
        ckpt__buf name, type;
        ckpt__buf_init(&name, NULL);
        ckpt__buf_init(&type, NULL);
        assert_int_equal(ckpt__wandb_artifact(&name, &type, cases_text(&c, i, "remote_file_name")), CKPT_OK);
        assert_string_equal(name.data, cases_text(&c, i, "upload_name"));
        assert_string_equal(type.data, cases_text(&c, i, "artifact_type"));
        assert_string_equal(util_fmt("%s:latest", name.data), cases_text(&c, i, "download_name"));
        ckpt__buf_free(&name);
        ckpt__buf_free(&type);
    }
    assert_int_equal(rows, 4);
    static const char *const more[][3] = {
        { "a b/\xc3\xbc.pt", "a.b...pt", "model" }, { "ends.", "ends.", "file" }, { "latest-rank0.pt.symlink", "latest-rank0.pt.symlink", "symlink" }, { "x:y", "x.y", "y" }
    };
    for (int i = 0; i < UTIL_COUNT(more); i++) {
        ckpt__buf name, type;
        ckpt__buf_init(&name, NULL);
        ckpt__buf_init(&type, NULL);
        assert_int_equal(ckpt__wandb_artifact(&name, &type, more[i][0]), CKPT_OK);
        assert_string_equal(name.data, more[i][1]);
        assert_string_equal(type.data, more[i][2]);
        ckpt__buf_free(&name);
        ckpt__buf_free(&type);
    }
    world_reset();
    ckpt_store *s = open_at(NULL);
    ckpt__store_stat st;
    static const char *const bad[] = { "a/", "a/..", "..", ".", "a\nb", "\xff\xfe" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_int_equal(ckpt__store_run_stat(s, bad[i], &st, &t), CKPT_ARG);
    assert_string_equal(world.asked, "");
    ckpt_store_close(s);
}

static void test_uris(void **state) {
    (void)state;
    static const char *const bad[] = { "wandb://", "wandb://ent", "wandb://ent/", "wandb://user:pass@ent/proj", "wandb://ent:80/proj", "wandb:///proj" };
    ckpt_store *s = NULL;
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.secret_access_key = "0123456789abcdef0123456789abcdef01234567";
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        if (ckpt_store_open(&s, bad[i], &d) == CKPT_OK) fail_msg("%s", bad[i]);
        silent(ckpt_last_error(), "pass");
    }
    assert_int_equal(ckpt_store_open(&s, "wandb://ent/proj/a/b//", &d), CKPT_OK);
    assert_string_equal(s->uri, "wandb://ent/proj/a/b/");
    assert_string_equal(ckpt__wandb_of(s)->site, "https://api.wandb.ai");
    assert_false(ckpt__store_has_parts(s));
    ckpt_store_close(s);
    ckpt__buf store, name;
    ckpt__buf_init(&store, NULL);
    ckpt__buf_init(&name, NULL);
    assert_int_equal(ckpt__stores_split("wandb://ent/proj/run/a.pt", &store, &name), CKPT_OK);
    assert_string_equal(store.data, "wandb://ent/proj/");
    assert_string_equal(name.data, "run/a.pt");
    store.len = name.len = 0;
    assert_int_equal(ckpt__remote_split("wandb://ent/proj/run/a.pt", &store, &name), CKPT_OK);      // for savers and loads
    assert_string_equal(store.data, "wandb://ent/proj/");
    assert_string_equal(name.data, "run/a.pt");
    ckpt__buf_free(&store);
    ckpt__buf_free(&name);
    d.endpoint_url = "http://wandb.example";
    assert_int_equal(ckpt_store_open(&s, "wandb://ent/proj", &d), CKPT_ARG);
    d.endpoint_url = "https://user@wandb.example";
    assert_int_equal(ckpt_store_open(&s, "wandb://ent/proj", &d), CKPT_ARG);
}

static void test_netrc(void **state) {
    (void)state;
    static const struct { const char *text, *host, *key; } rows[] = {
        { "machine h login user password k1", "h", "k1" },
        { "machine other password no machine h:80 password k2\n", "h:80", "k2" },
        { "# machine h password no\nmachine h\n\tlogin \"a b\"\n\tpassword \"k 3\"", "h", "k 3" },
        { "macdef init\nmachine h password no\n\nmachine h password k4", "h", "k4" },
        { "machine a password no\ndefault password k5", "h", "k5" },
        { "machine h login x\nmachine g password no", "h", "" }, { "machine h password", "h", "" }, { "", "h", "" }, { "machine", "h", "" },
        { "macdef x\nmachine h password no", "h", "" }, { "machine h password \"\"", "h", "" }, { "machine h password a\\ b", "h", "a b" }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__buf key;
        ckpt__buf_init(&key, NULL);
        bool found = ckpt__wandb_read_netrc(&key, rows[i].text, rows[i].host);
        assert_int_equal(found, rows[i].key[0] != 0);
        assert_string_equal(ckpt__buf_cstr(&key), rows[i].key);
        ckpt__buf_free(&key);
    }
}

//-- what is sent ------------------------------------------------------------------

static void test_put(void **state) {
    (void)state;
    world_reset();
    snprintf(world.asked, sizeof world.asked, "PUTTING\n");
    ckpt_store *s = open_at(NULL);
    if (put(s, "a.pt", "hello", false) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_string_equal(world.object, "hello");
    assert_int_equal(world.puts, 2);
    says(world.asked, "POST Basic YXBpOjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc=");
    // MD5 of "wandb-artifact-manifest-v1\na.pt:XUFAKrxLKna5cZ2REBfFkg==\n".
    unsigned char sum[16];
    char hex[33];
    ckpt__digest md5 = { NULL };
    static const char text[] = "wandb-artifact-manifest-v1\na.pt:XUFAKrxLKna5cZ2REBfFkg==\n";
    assert_true(ckpt__digest_begin(&md5, CKPT__DIGEST_MD5));
    ckpt__digest_add(&md5, text, sizeof text - 1);
    assert_true(ckpt__digest_end(&md5, sum));
    for (int i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    says(world.asked, util_fmt("\"digest\":\"%s\",\"digestAlgorithm\":\"MANIFEST_MD5\"", hex));
    says(world.asked, "\"artifactTypeName\":\"model\",\"artifactCollectionName\":\"pre.a.pt\"");
    says(world.asked, "\"metadata\":\"{\\\"ckpt_name\\\":\\\"pre/a.pt\\\",\\\"ckpt_crc32\\\":\\\"3610a686\\\",\\\"ckpt_mark\\\":\\\"0123456789abcdef0123456789abcdef\\\"}\"");
    // The storage gets the headers that came with its address, and nothing of ours.
    says(world.storage, "PUT /put?sig=5ecret");
    says(world.storage, "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n");
    says(world.storage, "X-Extra: 1\r\n");
    says(world.storage, "Content-Length: 5\r\n");
    silent(world.storage, "uthorization");
    silent(world.storage, "vil");
    says(world.storage, "PUT /manifest?sig=5ecret");
    ckpt_store_close(s);
}

// The look before a put fails for once: the tries after it are counted all the same.
static void test_put_progress(void **state) {
    (void)state;
    uint64_t moved = 0;
    world_reset();
    ckpt_store *s = open_at(NULL);
    t.moved = &moved;
    world.look = "{\"errors\":[{\"message\":\"please try again\"}]}";
    assert_int_equal(put(s, "a.pt", "hello", true), CKPT_NET);
    assert_true(t.transient && t.moved == &moved);
    assert_int_equal(moved, 0);
    world.look = good_look;
    if (put(s, "a.pt", "hello", true) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_int_equal(moved, 5);
    ckpt_store_close(s);
}

static void test_get(void **state) {
    (void)state;
    char back[6] = "";
    world_reset();
    ckpt_store *s = open_at(NULL);
    ckpt__store_stat st;
    assert_int_equal(ckpt__store_run_stat(s, "a.pt", &st, &t), CKPT_OK);
    assert_int_equal(st.size, 5);
    assert_string_equal(st.etag, "V1");
    assert_false(st.has_crc);
    assert_true(st.modified > 1.7e9);
    if (get(s, "a.pt", back, 5) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_string_equal(back, "hello");
    says(world.storage, "GET /get?sig=5ecret");
    silent(world.storage, "uthorization");
    ckpt_store_close(s);
}

//-- what comes back ---------------------------------------------------------------

static void test_hostile(void **state) {
    (void)state;
    static const struct { const char *text; ckpt_err e; bool transient; } rows[] = {
        { "", CKPT_NET, true }, { "{", CKPT_NET, true }, { "[]", CKPT_NET, true }, { "null", CKPT_NET, true }, { "{\"data\":null}", CKPT_NET, true },
        { "{\"data\":{}}", CKPT_NOT_FOUND, false }, { "{\"data\":{\"project\":null}}", CKPT_NOT_FOUND, false }, { "{\"data\":{\"project\":[]}}", CKPT_NOT_FOUND, false },
        { "{\"data\":{\"project\":{\"artifact\":7}}}", CKPT_NOT_FOUND, false }, { "{\"data\":{\"project\":{\"artifact\":{}}}}", CKPT_NET, true },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"state\":\"PENDING\"," FILES "}}}}", CKPT_NOT_FOUND, false },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":7," FILES "}}}}", CKPT_NET, true },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[]}}}}}", CKPT_NET, true },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[7]}}}}}", CKPT_NET, true },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[{\"node\":{\"sizeBytes\":-1,\"directUrl\":\"URL/x\"}}]}}}}}", CKPT_NET, true },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[{\"node\":{\"sizeBytes\":5,\"directUrl\":\"file:///etc/passwd\"}}]}}}}}", CKPT_NET, false },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[{\"node\":{\"sizeBytes\":5,\"directUrl\":\"http://user@x/\"}}]}}}}}", CKPT_NET, false },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[{\"node\":{\"sizeBytes\":5,\"directUrl\":\"//x/y\"}}]}}}}}", CKPT_NET, false },
        { "{\"data\":{\"project\":{\"artifact\":{\"id\":\"V\",\"files\":{\"edges\":[{\"node\":{}},{\"node\":{}}]}}}}}", CKPT_UNSUPPORTED, false },
        { "{\"data\":{\"project\":{\"artifact\":{" VERSION "," FILES ",\"id\":\"twice\"}}}}", CKPT_NET, true },
        { "{\"errors\":[{\"message\":\"permission denied\"}],\"data\":null}", CKPT_AUTH, false }, { "{\"errors\":[{\"message\":\"project not found\"}]}", CKPT_NOT_FOUND, false },
        { "{\"errors\":[{\"message\":\"Internal error\"}]}", CKPT_NET, true }, { "{\"errors\":[]}", CKPT_NET, false }, { "{\"errors\":7,\"data\":{}}", CKPT_NET, false },
        { "{\"errors\":[{\"message\":\"the key 0123456789abcdef0123456789abcdef01234567 is odd\"}]}", CKPT_NET, false },
        { "{\"errors\":[{\"message\":\"a\\nb\"}]}", CKPT_NET, false }, { "{\"errors\":[{\"message\":\"a\\u0000b\"}]}", CKPT_NET, true }
    };
    ckpt_store *s = open_at(NULL);
    char back[8];
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        world_reset();
        world.look = rows[i].text;
        ckpt_err e = get(s, "a.pt", back, 5);
        if (e != rows[i].e || t.transient != rows[i].transient) fail_msg("%s: %s, %d: %s", rows[i].text, ckpt_err_name(e), t.transient, ckpt_last_error());
        silent(ckpt_last_error(), "0123456789abcdef");
        silent(ckpt_last_error(), "\n");
        silent(ckpt_last_error(), "5ecret");
    }
    static const struct { int status; ckpt_err e; bool transient; } statuses[] = {
        { 301, CKPT_NET, false }, { 400, CKPT_NET, false }, { 401, CKPT_AUTH, false }, { 403, CKPT_AUTH, false }, { 404, CKPT_NOT_FOUND, false }, { 409, CKPT_NET, true },
        { 429, CKPT_NET, true }, { 500, CKPT_NET, true }, { 503, CKPT_NET, true }
    };
    for (int i = 0; i < UTIL_COUNT(statuses); i++) {
        world_reset();
        world.status = statuses[i].status;
        world.look = "<html>";
        ckpt_err e = get(s, "a.pt", back, 5);
        if (e != statuses[i].e || t.transient != statuses[i].transient) fail_msg("%d: %s, %d", statuses[i].status, ckpt_err_name(e), t.transient);
    }
    ckpt_store_close(s);
}

// Each reply of a put in turn is something else.
static void test_hostile_put(void **state) {
    (void)state;
    static const char *const replies[] = { "", "{}", "{\"data\":{}}", "{\"data\":{\"createArtifact\":{\"artifact\":{\"id\":\"V1\",\"state\":\"ODD\"}}}}",
        "{\"data\":{\"createArtifact\":{\"artifact\":{\"id\":\"\",\"state\":\"PENDING\"}}}}", "{\"data\":{\"createArtifactManifest\":{\"artifactManifest\":{\"id\":null}}}}",
        "{\"data\":{\"createArtifactFiles\":{\"files\":{\"edges\":[{\"node\":{\"uploadUrl\":\"ftp://x/y\",\"uploadHeaders\":7,\"artifact\":{\"id\":\"V1\"}}}]}}}}",
        "{\"data\":{\"createArtifactFiles\":{\"files\":{\"edges\":{}}}}}", "{\"errors\":[{\"message\":\"no\"}]}" };
    const char **places[] = { &world.created, &world.manifest, &world.files, &world.commit };
    ckpt_store *s = open_at(NULL);
    for (int k = 0; k < UTIL_COUNT(places); k++) {
        for (int i = 0; i < UTIL_COUNT(replies); i++) {
            world_reset();
            snprintf(world.asked, sizeof world.asked, "PUTTING\n");
            *places[k] = replies[i];
            ckpt_err e = put(s, "a.pt", "hello", true);
            bool vague = k == 3 && strstr(replies[i], "\"data\":{") != NULL;     // a commit's reply says nothing
            if ((e == CKPT_OK) != vague) fail_msg("%d: %s: %s", k, replies[i], ckpt_err_name(e));
            if (e != CKPT_OK) assert_true(strlen(ckpt_last_error()) > 10);
        }
    }
    // What is there afterwards is not what was sent.
    world_reset();
    snprintf(world.asked, sizeof world.asked, "PUTTING\n");
    assert_int_equal(put(s, "a.pt", "other", true), CKPT_CORRUPT);
    assert_true(t.transient);
    ckpt_store_close(s);
}

// Is it the object that is missing, or all of the project?
static void test_missing(void **state) {
    (void)state;
    char back[8];
    world_reset();
    ckpt_store *s = open_at(NULL);
    world.look = "{\"data\":{\"project\":null}}";
    assert_int_equal(get(s, "a.pt", back, 5), CKPT_NOT_FOUND);
    says(ckpt_last_error(), "there is no project ent/proj");
    world.look = nothing;
    assert_int_equal(get(s, "a.pt", back, 5), CKPT_NOT_FOUND);
    says(ckpt_last_error(), "there is no artifact");
    ckpt_store_close(s);
}

// What the storage says of a refusal has no NUL behind it.
static void test_storage_words(void **state) {
    (void)state;
    static const char *const words[] = { "BadDigest: it is not what came", "no such thing, and a line that fills the buffer to its very end" };
    world_reset();
    ckpt_store *s = open_at(NULL);
    for (int i = 0; i < 2; i++) {
        ckpt__http_reply r;
        ckpt__wandb_call c;
        ckpt__wandb_call_init(&c, s, &t);
        ckpt__http_reply_init(&r, NULL);
        r.status = 400;
        memset(ckpt__buf_reserve(&r.body, 63), 'D', 64);
        ckpt__buf_add(&r.body, words[i], strlen(words[i]));
        assert_int_equal(ckpt__wandb_storage_failed(&c, &r), i == 0 ? CKPT_CORRUPT : CKPT_NET);
        ckpt__http_reply_free(&r);
        ckpt__wandb_call_free(&c);
    }
    ckpt_store_close(s);
}

static void test_no_memory(void **state) {
    (void)state;
    int done = 0;
    for (int fail_at = 1; fail_at < 4000 && done < 2; fail_at += fail_at < 60 ? 1 : 3) {
        counting c = { 0, 0, fail_at };
        ckpt_allocator a;
        a.fn = counting_fn;
        a.user = &c;
        world_reset();
        snprintf(world.asked, sizeof world.asked, "PUTTING\n");
        ckpt_store *s = open_at(&a);
        ckpt_err e = CKPT_NOMEM;
        char back[8];
        if (s != NULL) {
            e = put(s, "a.pt", "hello", true);
            if (e == CKPT_OK) e = get(s, "a.pt", back, 5);
            ckpt_store_close(s);
        }
        if (e != CKPT_OK && e != CKPT_NOMEM) fail_msg("%d: %s: %s", fail_at, ckpt_err_name(e), ckpt_last_error());
        if (e == CKPT_OK) done++;
        if (c.live != 0) fail_msg("%d: %d blocks are left", fail_at, c.live);
    }
    assert_int_equal(done, 2);
}

static int set_up(void **state) {
    (void)state;
    unsetenv("WANDB_RUN_ID");
    unsetenv("WANDB_BASE_URL");
    unsetenv("WANDB_API_KEY");
    setenv("NO_PROXY", "*", 1);
    net_start(&api, on_api, NULL);
    net_start(&store_host, on_storage, NULL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    net_stop(&api);
    net_stop(&store_host);
    return 0;
}

// Names that just fit are not kept from it by that of the trial: it gets as far as the server.
static void test_trial(void **state) {
    (void)state;
    ckpt_store *s = open_at(NULL);
    ckpt_uploader *u = NULL;
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    world_reset();
    world.status = 401;
    d.store = s;
    d.file_path_format_string = util_fmt("%0100d/{remote_file_name}", 7);
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_AUTH);
    ckpt_store_close(s);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_uris), cmocka_unit_test(test_netrc), cmocka_unit_test(test_put), cmocka_unit_test(test_put_progress),
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_hostile_put), cmocka_unit_test(test_missing), cmocka_unit_test(test_storage_words), cmocka_unit_test(test_trial),
        cmocka_unit_test(test_no_memory)
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
