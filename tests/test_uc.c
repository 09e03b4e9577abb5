/* test_uc.c: what dbfs:/Volumes/... sends and makes of replies, good, bad and hostile, by a scripted server in the process; where
   Databricks credentials come from; Composer's tables of volume paths.
   run.sh: remote tsan-long */
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"
#include "counting.h"
#include "rest_util.h"

#define URI "dbfs:/Volumes/c/s/v/pre"

static ckpt_store *meet_with(const step *steps, int count) {
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    return rest_meet(URI, steps, count);
}
#define MEET(steps) meet_with(steps, UTIL_COUNT(steps))

//-- Composer's tables -------------------------------------------------------------

static void test_validate_path(void **state) {
    (void)state;
    util_table c = cases_tsv("uc_validate_path.tsv");
    for (int i = 0; i < c.rows; i++) {
        const char *path = cases_text(&c, i, "path"), *want = cases_get(&c, i, "prefix");
        ckpt__buf root, rest;
        ckpt__buf_init(&root, NULL);
        ckpt__buf_init(&rest, NULL);
        ckpt_err e = ckpt__uc_split(&root, &rest, path, strlen(path));
        assert_int_equal(e, strcmp(cases_text(&c, i, "status"), "ok") == 0 ? CKPT_OK : CKPT_ARG);
        if (e == CKPT_OK) assert_string_equal(root.data, want);
        ckpt__buf_free(&root);
        ckpt__buf_free(&rest);
    }
    assert_true(c.rows >= 6);
}

// Two rows differ on purpose: no name is the volume itself, which only a listing may ask for; and a name of another volume whose text begins
// like ours is refused, where Composer makes it "/Volumes/catalog/schema/volume/../volume2/x".
static void test_object_path(void **state) {
    (void)state;
    util_table c = cases_tsv("uc_object_path.tsv");
    ckpt__uc s;
    char root[] = "Volumes/catalog/schema/volume", prefix[] = "";
    int others = 0;
    memset(&s, 0, sizeof s);
    s.root = root;
    s.prefix = prefix;
    for (int i = 0; i < c.rows; i++) {
        const char *name = cases_get(&c, i, "object_name");
        ckpt__buf path;
        ckpt__buf_init(&path, NULL);
        if (name == NULL || strstr(name, "volume2") != NULL) {
            assert_int_equal(ckpt__uc_path(&s, &path, name != NULL ? name : ""), CKPT_ARG);
            others++;
        } else {
            is(ckpt__uc_path(&s, &path, name), CKPT_OK);
            assert_string_equal(path.data, cases_text(&c, i, "api_path"));
        }
        ckpt__buf_free(&path);
    }
    printf("uc_object_path.tsv: %d rows, %d answered otherwise on purpose\n", c.rows, others);
    assert_int_equal(others, 2);
    util_table u = cases_tsv("object_uri.tsv");
    int found = 0;
    for (int i = 0; i < u.rows; i++) {
        const char *kind = cases_text(&u, i, u.names[0]);
        if (strcmp(kind, "uc") != 0) continue;
        found++;
    }
    assert_int_equal(found, 2);
    // The table's store ignores what stands behind the volume; here it is a prefix, as in every other store.
    static const struct { const char *uri, *name, *full; } rows[] = {
        { "dbfs:/Volumes/catalog/schema/volume", "train.txt", "dbfs:/Volumes/catalog/schema/volume/train.txt" },
        { "dbfs:/Volumes/catalog/schema/volume", "Volumes/catalog/schema/volume/checkpoint/model.bin", "dbfs:/Volumes/catalog/schema/volume/checkpoint/model.bin" },
        { "dbfs:///Volumes/catalog/schema/volume//path/", "train.txt", "dbfs:/Volumes/catalog/schema/volume/path/train.txt" },
    };
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__buf out;
        ckpt_store *o = rest_meet(rows[i].uri, NULL, 0);
        ckpt__buf_init(&out, NULL);
        ckpt__stores_add_uri(&out, o, rows[i].name);
        assert_string_equal(ckpt__buf_cstr(&out), rows[i].full);
        ckpt__buf_free(&out);
        ckpt_store_close(o);
    }
}

static void test_split(void **state) {
    (void)state;
    static const struct { const char *uri, *store, *name, *bucket, *path; } rows[] = {
        { "dbfs:/Volumes/c/s/v/a/b.pt", "dbfs:/Volumes/c/s/v/", "a/b.pt", "dbfs:/Volumes/c/s/v/", "Volumes/c/s/v/a/b.pt" },
        { "dbfs:///Volumes/c/s/v/b.pt", "dbfs:///Volumes/c/s/v/", "b.pt", "dbfs:/Volumes/c/s/v/", "Volumes/c/s/v/b.pt" },
        { "dbfs:/databricks/mlflow-tracking/1/2/artifacts/a/b", "dbfs:/databricks/mlflow-tracking/1/2/artifacts/", "a/b",
          "dbfs:/databricks/mlflow-tracking/1/2/artifacts/", "databricks/mlflow-tracking/1/2/artifacts/a/b" },
        { "dbfs:/databricks/mlflow-tracking/{mlflow_experiment_id}/{mlflow_run_id}/artifacts/a/b",
          "dbfs:/databricks/mlflow-tracking/{mlflow_experiment_id}/{mlflow_run_id}/artifacts/", "a/b",
          "dbfs:/databricks/mlflow-tracking/{mlflow_experiment_id}/{mlflow_run_id}/artifacts/", "a/b" },
        { "mlflow-artifacts:/1/2/artifacts/a/b", "mlflow-artifacts:/1/2/artifacts/", "a/b", "mlflow-artifacts:/1/2/artifacts/", "a/b" },
        { "mlflow-artifacts://h:5000/x/b", "mlflow-artifacts://h:5000/", "x/b", "mlflow-artifacts://h:5000/", "x/b" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__buf store, name;
        ckpt__buf_init(&store, NULL);
        ckpt__buf_init(&name, NULL);
        is(ckpt__stores_split(rows[i].uri, &store, &name), CKPT_OK);
        assert_string_equal(store.data, rows[i].store);
        assert_string_equal(name.data, rows[i].name);
        store.len = name.len = 0;
        is(ckpt__remote_split(rows[i].uri, &store, &name), CKPT_OK);
        assert_string_equal(store.data, rows[i].bucket);
        assert_string_equal(name.data, rows[i].path);
        ckpt__buf_free(&store);
        ckpt__buf_free(&name);
    }
}

//-- credentials -------------------------------------------------------------------

// With a file of profiles.
static void settings(const char *env, const char *file, ckpt_err want, const char *word) {
    static const step reply = { 200, "12345", NULL };
    char profiles[1000];
    rest_clear_env();
    rest_fill(profiles, sizeof profiles, file);
    const char *path = util_join(util_temp_dir(), "profiles");
    util_write_text(path, profiles);
    setenv("DATABRICKS_CONFIG_FILE", file != NULL ? path : "/nonexistent/profiles", 1);
    rest_settings(URI, env, &reply, want, word);
}

static void test_settings(void **state) {
    (void)state;
    settings("DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN, NULL, CKPT_OK, "Bearer " TOKEN);
    settings("DATABRICKS_HOST=@/ DATABRICKS_TOKEN=" TOKEN, NULL, CKPT_OK, "Bearer " TOKEN);
    settings("", NULL, CKPT_AUTH, "DATABRICKS_HOST");
    settings("DATABRICKS_HOST=@", NULL, CKPT_AUTH, "DATABRICKS_TOKEN");
    settings("DATABRICKS_HOST=http://example.com DATABRICKS_TOKEN=" TOKEN, NULL, CKPT_ARG, "https");
    settings("DATABRICKS_HOST=https://user:VerySecret@example.com DATABRICKS_TOKEN=" TOKEN, NULL, CKPT_ARG, "no address");
    settings("DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN " DATABRICKS_CLIENT_ID=x DATABRICKS_CLIENT_SECRET=" SECRET, NULL, CKPT_ARG, "DATABRICKS_AUTH_TYPE");
    settings("DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN " DATABRICKS_CLIENT_ID=x DATABRICKS_CLIENT_SECRET=" SECRET " DATABRICKS_AUTH_TYPE=pat", NULL,
             CKPT_OK, "Bearer " TOKEN);
    settings("DATABRICKS_HOST=@ DATABRICKS_AUTH_TYPE=azure-cli", NULL, CKPT_AUTH, "azure-cli");
    settings("", "[DEFAULT]\nhost = @\ntoken = " TOKEN "\n", CKPT_OK, "Bearer " TOKEN);
    settings("DATABRICKS_CONFIG_PROFILE=two", "[DEFAULT]\nhost = x\n[two]\nhost = @/?o=1\ntoken=" TOKEN "2\n", CKPT_OK, "Bearer " TOKEN "2");
    settings("DATABRICKS_CONFIG_PROFILE=three", "[DEFAULT]\nhost = @\n", CKPT_AUTH, "[three]");
    settings("DATABRICKS_CONFIG_PROFILE=three", NULL, CKPT_AUTH, "profiles");
    settings("DATABRICKS_CONFIG_PROFILE=two DATABRICKS_TOKEN=" TOKEN "3", "[two]\nhost = @\ntoken=" TOKEN "2\n", CKPT_OK, "Bearer " TOKEN "3");
    settings("", "[DEFAULT\nhost", CKPT_CORRUPT, "profiles");
    // The caller's own.
    static const step steps[] = { { 200, "12345", NULL } };
    ckpt_store_desc d = script_begin(steps, 1);
    ckpt_store *s = NULL;
    d.endpoint_url = server.url;
    d.session_token = TOKEN "4";
    is(ckpt_store_open(&s, URI, &d), CKPT_OK);
    ckpt__store_stat info;
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(header_of(0, "authorization"), "Bearer " TOKEN "4");
    rest_part(s);
    d.session_token = TOKEN "\nx";
    is(ckpt_store_open(&s, URI, &d), CKPT_ARG);
    d.session_token = NULL;
    d.access_key_id = "id";
    is(ckpt_store_open(&s, URI, &d), CKPT_ARG);
    // Addresses.
    static const char *const bad[] = { "dbfs:/Volumes/c/s", "dbfs:/x/c/s/v", "dbfs://host/Volumes/c/s/v", "dbfs:/Volumes/c/../v/x", "dbfs:/Volumes/c/s/v/../w",
                                       "dbfs:/Volumes/c/s/v/a/./b" };
    d.session_token = TOKEN;
    for (int i = 0; i < UTIL_COUNT(bad); i++) is(ckpt_store_open(&s, bad[i], &d), CKPT_ARG);
}

#define GRANT(token, life) "{\"access_token\":\"" token "\",\"expires_in\":" life ",\"token_type\":\"Bearer\"}"

static void test_principal(void **state) {
    (void)state;
    static const step steps[] = { { 200, GRANT("eyJone", "3600"), NULL }, { 200, "1", NULL }, { 200, "1", NULL }, { 401, "{\"error_code\":\"UNAUTHENTICATED\"}", NULL },
        { 200, GRANT("eyJtwo", "100"), NULL }, { 200, "1", NULL }, { 200, GRANT("eyJthree", "\"x\""), NULL }, { 200, "1", NULL } };
    ckpt__store_stat info;
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_CLIENT_ID", "the-id", 1);
    setenv("DATABRICKS_CLIENT_SECRET", SECRET, 1);
    unsetenv("DATABRICKS_TOKEN");
    ckpt_store *s = rest_meet(URI, steps, UTIL_COUNT(steps));
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(script.list[0].target, "/oidc/v1/token");
    assert_string_equal(header_of(0, "authorization"), "Basic dGhlLWlkOmRvc2VWZXJ5U2VjcmV0U2VjcmV0NDU=");
    assert_string_equal(script.list[0].body, "grant_type=client_credentials&scope=all-apis");
    assert_string_equal(header_of(1, "authorization"), "Bearer eyJone");
    is(rest_stat(s, "x", &info), CKPT_OK);                  // kept
    is(rest_stat(s, "x", &info), CKPT_OK);                  // withdrawn: another, once
    assert_string_equal(header_of(5, "authorization"), "Bearer eyJtwo");
    is(rest_stat(s, "x", &info), CKPT_OK);                  // about to end
    assert_string_equal(header_of(7, "authorization"), "Bearer eyJthree");
    rest_part(s);
    // While the old one lasts, a service that fails is not asked each time.
    static const step rests[] = { { 200, GRANT("eyJold", "100"), NULL }, { 200, "1", NULL }, { 503, "", NULL }, { 200, "1", NULL }, { 200, "1", NULL } };
    s = rest_meet(URI, rests, UTIL_COUNT(rests));
    for (int i = 0; i < 3; i++) is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(header_of(4, "authorization"), "Bearer eyJold");
    rest_part(s);
    // In its last seconds it is refused.
    static const step ends[] = { { 200, GRANT("eyJold", "35"), NULL }, { 200, "1", NULL }, { 503, "", NULL } };
    s = rest_meet(URI, ends, UTIL_COUNT(ends));
    is(rest_stat(s, "x", &info), CKPT_OK);
    is(rest_stat(s, "x", &info), CKPT_NET);
    rest_part(s);
    static const struct { int status; const char *body; ckpt_err e; bool again; const char *word; } rows[] = {
        { 401, "{\"error\":\"invalid_client\",\"error_description\":\"Client authentication failed\"}", CKPT_AUTH, false, "withdrawn" },
        { 400, "{\"error\":\"x\",\"error_description\":\"" SECRET "\"}", CKPT_AUTH, false, "no token" },
        { 503, "", CKPT_NET, true, "503" }, { 200, "{}", CKPT_AUTH, false, "holds none" }, { 200, "<html>", CKPT_AUTH, false, "holds none" },
        { 200, "{\"access_token\":\"a\\r\\nb\"}", CKPT_AUTH, false, "holds none" }, { 302, "", CKPT_AUTH, false, "302" }, { 0, NULL, CKPT_NET, true, "" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const step one[] = { { rows[i].status, rows[i].body, "Location: https://elsewhere/\r\n" } };
        s = rest_meet(URI, one, 1);
        ckpt_err e = rest_stat(s, "x", &info);
        if (e != rows[i].e || t.transient != rows[i].again || !has(ckpt_last_error(), rows[i].word)) fail_msg("%d: %s %s", i, ckpt_err_name(e), ckpt_last_error());
        rest_part(s);
    }
    rest_clear_env();
}

// A token that was had, and for which there was no memory, is had again the next time.
static void test_token_no_memory(void **state) {
    (void)state;
    const step one = { 200, GRANT("eyJone", "3600"), NULL };        // a size of an object too
    const step steps[] = { one, one, one, one };
    const char *path = util_join(util_temp_dir(), "profiles");
    bool well = false;
    util_write_text(path, util_fmt("[DEFAULT]\nhost = %s\nclient_id = id\nclient_secret = " SECRET "\n", server.url));
    setenv("DATABRICKS_CONFIG_FILE", path, 1);
    for (int at = 1; at < 500 && !well; at++) {
        counting c = { 0, 0, at };
        ckpt_store *s = NULL;
        ckpt__store_stat info;
        ckpt_store_desc d = script_begin(steps, UTIL_COUNT(steps));
        d.allocator.fn = counting_fn;
        d.allocator.user = &c;
        d.logger.fn = NULL;
        if (ckpt_store_open(&s, URI, &d) != CKPT_OK) continue;
        bool lacked = rest_stat(s, "x", &info) != CKPT_OK;
        well = !lacked && c.calls < at;
        ckpt_err e = lacked ? rest_stat(s, "x", &info) : CKPT_OK;
        if (e != CKPT_OK) fail_msg("allocation %d: %s: %s", at, ckpt_err_name(e), ckpt_last_error());
        ckpt_store_close(s);
    }
    assert_true(well);
    net_stop(&server);                  // it has a limit of connections
    net_start(&server, on_request, NULL);
    rest_clear_env();
}

static ckpt_err ask(ckpt_credentials *out, void *user) {
    int *n = (int *)user;
    snprintf(out->session_token, sizeof out->session_token, "asked%d", ++*n);
    return *n < 3 ? CKPT_OK : ckpt_set_error(CKPT_AUTH, "no more tokens");
}

static void test_callback(void **state) {
    (void)state;
    static const step steps[] = { { 200, "1", NULL }, { 401, "", NULL }, { 200, "1", NULL }, { 401, "", NULL } };
    ckpt__store_stat info;
    ckpt_store *s = NULL;
    int n = 0;
    ckpt_store_desc d = script_begin(steps, UTIL_COUNT(steps));
    d.endpoint_url = server.url;
    d.credentials = ask;
    d.credentials_user = &n;
    is(ckpt_store_open(&s, URI, &d), CKPT_OK);
    is(rest_stat(s, "x", &info), CKPT_OK);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(header_of(2, "authorization"), "Bearer asked2");
    is(rest_stat(s, "x", &info), CKPT_AUTH);
    sentence_has("no more tokens");
    assert_true(t.transient);               // it gave one before
    rest_part(s);
    // A workspace has other words than 401 for a token that has run out.
#define JWT "Error while parsing token: io.jsonwebtoken.ExpiredJwtException: JWT expired at 2026-11-20T10:00:00Z"
#define DONE { 204, "", NULL }, { 200, "hello", NULL }
    static const step old[] = { { 403, "{\"error_code\":403,\"message\":\"JWT has expired\"}", NULL }, DONE };
    static const step soon[] = { { 403, "{\"message\":\"Token is expiring within 30 seconds. (token expired)\"}", NULL }, DONE };
    static const step page[] = { { 403, "<h2>HTTP ERROR 403</h2>", "X-Databricks-Reason-Phrase: Invalid access token.\r\n" }, DONE };
    static const step jwt[] = { { 400, "{\"error_code\":\"400\",\"message\":\"" JWT "\"}", NULL }, DONE };
    static const step twice[] = { { 400, "{\"message\":\"" JWT "\"}", NULL }, { 400, "{\"message\":\"" JWT "\"}", NULL } };
    static const step denied[] = { { 403, "{\"error_code\":\"PERMISSION_DENIED\",\"message\":\"User may not\"}", NULL } };
    static const step other[] = { { 400, "{\"error_code\":\"BAD_REQUEST\",\"message\":\"The session has expired\"}", NULL } };
    static const step trial[] = { { 403, "{\"error_code\":\"PERMISSION_DENIED\",\"message\":\"The trial has expired\"}", NULL } };
    static const struct { const step *steps; int count, asked; ckpt_err e; const char *word; } rows[] = {
        { old, UTIL_COUNT(old), 2, CKPT_OK, "" }, { soon, UTIL_COUNT(soon), 2, CKPT_OK, "" }, { page, UTIL_COUNT(page), 2, CKPT_OK, "" },
        { jwt, UTIL_COUNT(jwt), 2, CKPT_OK, "" }, { twice, UTIL_COUNT(twice), 2, CKPT_AUTH, "has run out" },
        { denied, UTIL_COUNT(denied), 1, CKPT_AUTH, "may not" }, { other, UTIL_COUNT(other), 1, CKPT_ARG, "session" },
        { trial, UTIL_COUNT(trial), 1, CKPT_AUTH, "trial has expired" } };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        n = 0;
        d = script_begin(rows[i].steps, rows[i].count);
        d.endpoint_url = server.url;
        d.credentials = ask;
        d.credentials_user = &n;
        is(ckpt_store_open(&s, URI, &d), CKPT_OK);
        is(rest_put(s, "x", "hello", true, NULL), rows[i].e);
        if (rows[i].e != CKPT_OK) sentence_has(rows[i].word);
        assert_int_equal(n, rows[i].asked);
        if (n == 2) assert_string_equal(header_of(1, "authorization"), "Bearer asked2");
        rest_part(s);
    }
    // One that never gave a token has none.
    n = 2;
    d = script_begin(NULL, 0);
    d.endpoint_url = server.url;
    d.credentials = ask;
    d.credentials_user = &n;
    is(ckpt_store_open(&s, URI, &d), CKPT_OK);
    is(rest_stat(s, "x", &info), CKPT_AUTH);
    assert_false(t.transient);
    rest_part(s);
    // A token that is given with it is the first one.
    static const step given[] = { { 200, "1", NULL }, { 401, "", NULL }, { 200, "1", NULL } };
    n = 0;
    d = script_begin(given, UTIL_COUNT(given));
    d.endpoint_url = server.url;
    d.session_token = TOKEN;
    d.credentials = ask;
    d.credentials_user = &n;
    is(ckpt_store_open(&s, URI, &d), CKPT_OK);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(header_of(0, "authorization"), "Bearer " TOKEN);
    assert_int_equal(n, 0);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(header_of(2, "authorization"), "Bearer asked1");
    rest_part(s);
    d.session_token = "two words";
    is(ckpt_store_open(&s, URI, &d), CKPT_ARG);
}

//-- whole files -------------------------------------------------------------------

#define SAYS(code, text) "{\"error_code\":\"" code "\",\"message\":\"" text "\"}"

static void test_put(void **state) {
    (void)state;
    static const step steps[] = { { 204, "", NULL }, { 200, "hello", "Last-Modified: Fri, 20 Nov 2026 23:57:40 GMT\r\n" } };
    ckpt_store *s = MEET(steps);
    is(rest_put(s, "a b/\xc3\xbc#%.pt", "hello", true, NULL), CKPT_OK);
    assert_string_equal(script.list[0].method, "PUT");
    assert_string_equal(script.list[0].target, "/api/2.0/fs/files/Volumes/c/s/v/pre/a%20b/%C3%BC%23%25.pt?overwrite=true");
    assert_string_equal(script.list[0].body, "hello");
    assert_string_equal(header_of(0, "content-type"), "application/octet-stream");
    assert_string_equal(script.list[1].method, "HEAD");
    rest_part(s);
    // Names.
    static const char *const bad[] = { "/x", "a//b", "../x", "a/..", "./a", "a/", "a\nb", "\xff", "Volumes/c/s/w/x", "/Volumes/other/s/v/x" };
    s = meet_with(NULL, 0);
    for (int i = 0; i < UTIL_COUNT(bad); i++) is(rest_put(s, bad[i], "x", true, NULL), CKPT_ARG);
    rest_part(s);
    static const step whole[] = { { 204, "", NULL }, { 200, "x", NULL }, { 204, "", NULL }, { 200, "x", NULL } };
    s = MEET(whole);
    is(rest_put(s, "Volumes/c/s/v/top", "x", false, NULL), CKPT_OK);        // a whole name leaves the prefix out
    assert_string_equal(script.list[0].target, "/api/2.0/fs/files/Volumes/c/s/v/top?overwrite=false");
    is(rest_put(s, "/Volumes/c/s/v/pre/x", "x", false, NULL), CKPT_OK);
    assert_string_equal(script.list[2].target, "/api/2.0/fs/files/Volumes/c/s/v/pre/x?overwrite=false");
    rest_part(s);
    // A folder that is missing is made.
    static const step folder[] = { { 404, "{\"error_code\":\"NOT_FOUND\",\"message\":\"no folder\"}", NULL }, { 204, "", NULL }, { 204, "", NULL }, { 200, "x", NULL } };
    s = MEET(folder);
    is(rest_put(s, "a/b/c", "x", true, NULL), CKPT_OK);
    assert_string_equal(script.list[1].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre/a/b");
    rest_part(s);
    // Another writer makes it at the same time, and is faster.
    static const step raced[] = { { 404, SAYS("NOT_FOUND", "no folder"), NULL }, { 409, SAYS("ALREADY_EXISTS", "the directory"), NULL }, { 204, "", NULL }, { 200, "x", NULL },
        { 404, SAYS("NOT_FOUND", "no folder"), NULL }, { 403, SAYS("PERMISSION_DENIED", "no directories for you"), NULL },
        { 404, SAYS("NOT_FOUND", "no folder"), NULL }, { 404, SAYS("NOT_FOUND", "no such volume"), NULL } };
    s = MEET(raced);
    is(rest_put(s, "a/b/c", "x", true, NULL), CKPT_OK);
    is(rest_put(s, "a/b/c", "x", true, NULL), CKPT_AUTH);
    sentence_has("the folder above it");
    sentence_has("no directories for you");
    is(rest_put(s, "a/b/c", "x", true, NULL), CKPT_NOT_FOUND);
    sentence_has("no such volume");
    rest_part(s);
    // A conflict is no object of that name that must not be replaced: nobody asked for that.
    static const step busy[] = { { 409, SAYS("ALREADY_EXISTS", "it changes just now"), NULL }, { 409, SAYS("RESOURCE_CONFLICT", "it changes just now"), NULL },
        { 409, SAYS("RESOURCE_CONFLICT", "it changes just now"), NULL } };
    s = MEET(busy);
    for (int i = 0; i < 3; i++) {
        is(rest_put(s, "x", "hello", i < 2, NULL), CKPT_NET);
        assert_true(t.transient);
        sentence_has("it changes just now");
    }
    rest_part(s);
    // What is kept is looked at.
    static const step less[] = { { 204, "", NULL }, { 200, "hell", NULL }, { 204, "", NULL }, { 404, "", NULL }, { 204, "", NULL }, { 403, "", NULL } };
    s = MEET(less);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_CORRUPT);
    assert_true(t.transient);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_CORRUPT);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_OK);                     // who may not read takes its word
    rest_part(s);
}

// A HEAD has no words: what is missing may be the file or the volume.
static void test_missing(void **state) {
    (void)state;
    ckpt__store_stat info;
    char out[8];
    static const step steps[] = { { 404, "", NULL }, { 404, SAYS("NOT_FOUND", "The file being accessed is not found."), NULL } };
    ckpt_store *s = MEET(steps);
    is(rest_stat(s, "x", &info), CKPT_NOT_FOUND);
    sentence_has("there is no such file, or no such volume");
    is(rest_get(s, "x", NULL, 0, out, 5), CKPT_NOT_FOUND);
    sentence_has("The file being accessed");
    rest_part(s);
    // One that is not the service's, of a HEAD: a request for the first byte tells. What is missing says so in words.
    static const step gone = { 404, SAYS("NOT_FOUND", "none"), NULL }, page = { 404, "<html>Not Found</html>", "Content-Type: text/html\r\n" };
    const struct { step steps[2]; ckpt_err e; const char *word; } rows[] = {
        { { page, gone }, CKPT_NOT_FOUND, "there is no such file" }, { { { 404, "", "Server: envoy\r\n" }, page }, CKPT_NET, "is it the right server?" },
        { { page, { 206, "h", "Content-Range: bytes 0-0/5\r\n" } }, CKPT_NET, "gives it" }, { { page, { 416, "", NULL } }, CKPT_NET, "gives it" },
        { { page, { 403, "", NULL } }, CKPT_NOT_FOUND, "there is no such file" }, { { page, { 503, "", NULL } }, CKPT_NET, "503" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        s = MEET(rows[i].steps);
        ckpt_err e = rest_stat(s, "x", &info);
        if (e != rows[i].e || t.transient != (e == CKPT_NET) || !has(ckpt_last_error(), rows[i].word)) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        rest_part(s);
    }
    // A portal answers all with 200 and a page; the service says when a file was changed.
    static const step login = { 200, "<html>Log in</html>", "Content-Type: text/html\r\n" };
    static const step stored = { 200, "<html>Log in</html>", "Content-Type: text/html\r\nLast-Modified: Fri, 20 Nov 2026 23:57:40 GMT\r\n" };
    const step portal[] = { login, login, login, stored };
    char bytes[32];
    s = MEET(portal);
    is(rest_stat(s, "x", &info), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    is(rest_get(s, "x", NULL, 0, bytes, 19), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    is(ckpt__store_run_remove(s, "x", &t), CKPT_NET);
    assert_true(t.transient);
    is(rest_stat(s, "x", &info), CKPT_OK);
    rest_part(s);
    // A list, a read and a removal are told in words.
    const step pages[] = { page, page, page };
    s = MEET(pages);
    is(rest_list(s, ""), CKPT_NET);
    assert_true(t.transient);
    is(rest_get(s, "x", NULL, 0, out, 5), CKPT_NET);
    assert_true(t.transient);
    is(ckpt__store_run_remove(s, "x", &t), CKPT_NET);
    assert_true(t.transient);
    rest_part(s);
}

#define HELLO { 200, "hello", NULL }, { 206, "hello", "Content-Range: bytes 0-4/5\r\n" }       // its size, its bytes

static void test_create_only(void **state) {
    (void)state;
    static const char exists[] = "{\"error_code\":\"ALREADY_EXISTS\",\"message\":\"The file being created already exists.\"}";
    static const step steps[] = { { 409, exists, NULL } };
    ckpt_store *s = MEET(steps);
    is(rest_put(s, "x", "hello", false, "mark1"), CKPT_EXISTS);
    sentence_has("overwriting");
    assert_false(t.transient);
    rest_part(s);
    // Its own lost reply is recognised, also when the confirmation failed; not that of others, nor another size, nor other bytes.
    static const step lost[] = { { 0, NULL, NULL }, { 409, exists, NULL }, HELLO, { 409, exists, NULL },
        { 204, "", NULL }, { 503, "", NULL }, { 409, exists, NULL }, HELLO,
        { 0, NULL, NULL }, { 409, exists, NULL }, { 200, "other size", NULL },
        { 0, NULL, NULL }, { 409, exists, NULL }, { 200, "other", NULL }, { 206, "other", "Content-Range: bytes 0-4/5\r\n" } };
    s = MEET(lost);
    is(rest_put(s, "x", "hello", false, "mark2"), CKPT_NET);
    assert_true(t.unsure && t.transient);
    is(rest_put(s, "x", "hello", false, "mark2"), CKPT_OK);
    is(rest_put(s, "x", "hello", false, "mark3"), CKPT_EXISTS);
    is(rest_put(s, "x", "hello", false, "mark4"), CKPT_NET);
    is(rest_put(s, "x", "hello", false, "mark4"), CKPT_OK);
    is(rest_put(s, "x", "hello", false, "mark5"), CKPT_EXISTS);             // the connection dies, libcurl repeats it, and the refusal is looked into
    is(rest_put(s, "x", "hello", false, "mark6"), CKPT_EXISTS);
    assert_false(t.transient);
    rest_part(s);
    // Whose it is cannot be told for a while, and then it is ours. Who may not read it takes it for another's.
    static const step busy[] = { { 0, NULL, NULL }, { 409, exists, NULL }, { 503, "", NULL }, { 409, exists, NULL }, { 200, "hello", NULL }, { 503, "", NULL },
        { 409, exists, NULL }, HELLO, { 0, NULL, NULL }, { 409, exists, NULL }, { 200, "hello", NULL }, { 403, "", NULL },
        { 0, NULL, NULL }, { 409, exists, NULL }, { 200, "", NULL } };
    s = MEET(busy);
    static const ckpt_err ends[] = { CKPT_NET, CKPT_NET, CKPT_NET, CKPT_OK };
    for (int i = 0; i < UTIL_COUNT(ends); i++) {
        is(rest_put(s, "x", "hello", false, "mark7"), ends[i]);
        assert_true(t.transient == (ends[i] == CKPT_NET));
    }
    is(rest_put(s, "x", "hello", false, "mark8"), CKPT_EXISTS);
    is(rest_put(s, "x", "", false, "mark9"), CKPT_OK);                      // an empty one has all its bytes
    rest_part(s);
    // Nor is it another's where a proxy says that there is none, of what the server has just refused it for.
    static const step gone[] = { { 500, "", NULL }, { 409, exists, NULL }, { 404, "", NULL }, HELLO };
    ckpt__send up;
    ckpt__retry retry = ckpt__retry_default;
    retry.initial_backoff = 0.01;
    memset(&up, 0, sizeof up);
    up.name = "x";
    up.mark = "mark10";
    up.body = ckpt__body_of("hello", 5);
    up.retry = &retry;
    up.store = s = MEET(gone);
    is(ckpt__send_run(&up), CKPT_OK);
    rest_part(s);
}


static void test_refusals(void **state) {
    (void)state;
    static const struct { int status; const char *body, *headers; ckpt_err e; bool again, slow; const char *word; } rows[] = {
        { 401, SAYS("UNAUTHENTICATED", "bad"), NULL, CKPT_AUTH, false, false, "run out" }, { 403, SAYS("PERMISSION_DENIED", "no"), NULL, CKPT_AUTH, false, false,
            "PERMISSION_DENIED: no" },
        { 403, "{\"error_code\":403,\"message\":\"JWT has expired\"}", NULL, CKPT_AUTH, false, false, "expired; the token or password is wrong, or has run out" },
        { 403, "", NULL, CKPT_AUTH, false, false, "403" }, { 404, SAYS("RESOURCE_DOES_NOT_EXIST", "gone"), NULL, CKPT_NOT_FOUND, false, false, "gone" },
        { 404, SAYS("ENDPOINT_NOT_FOUND", "what"), NULL, CKPT_UNSUPPORTED, false, false, "ENDPOINT" }, { 429, SAYS("REQUEST_LIMIT_EXCEEDED", ""),
            "Retry-After: 7\r\n", CKPT_NET, true, true, "429" },
        { 429, SAYS("RESOURCE_EXHAUSTED", ""), NULL, CKPT_NET, true, true, "429" }, { 503, SAYS("TEMPORARILY_UNAVAILABLE", ""), NULL, CKPT_NET, true, true, "503" },
        { 500, SAYS("INTERNAL_ERROR", "oops"), NULL, CKPT_NET, true, false, "oops" }, { 500, SAYS("INTERNAL_ERROR", "403 Client Error: Forbidden"), NULL, CKPT_AUTH,
            false, false, "Forbidden" },
        { 504, SAYS("DEADLINE_EXCEEDED", ""), NULL, CKPT_NET, true, false, "504" }, { 409, SAYS("ABORTED", ""), NULL, CKPT_NET, true, false, "409" },
        { 400, SAYS("INVALID_PARAMETER_VALUE", "bad path"), NULL, CKPT_ARG, false, false, "bad path" }, { 413, "", NULL, CKPT_ARG, false, false, "413" },
        { 400, SAYS("QUOTA_EXCEEDED", "full"), NULL, CKPT_NO_SPACE, false, false, "full" }, { 302, "", "Location: https://elsewhere/login\r\n", CKPT_NET, true,
            false, "elsewhere" },
        { 403, SAYS("PERMISSION_DENIED", "token " TOKEN " may not"), NULL, CKPT_AUTH, false, false, "403" }, { 501, "", NULL, CKPT_UNSUPPORTED, false, false, "501" },
        { 400, "not json", NULL, CKPT_ARG, false, false, "400" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const step first = { rows[i].status, rows[i].body, rows[i].headers }, made = { 204, "", NULL };
        const step steps[] = { first }, folder[] = { first, made, first };      // what is missing may be the folder: it is made, once
        bool missing = rows[i].e == CKPT_NOT_FOUND;
        ckpt_store *s = missing ? MEET(folder) : MEET(steps);
        ckpt_err e = rest_put(s, "x", "hello", true, NULL);
        if (e != rows[i].e || t.transient != rows[i].again || t.throttled != rows[i].slow || !has(ckpt_last_error(), rows[i].word))
            fail_msg("%d: %s %s (again %d, slow %d)", rows[i].status, ckpt_err_name(e), ckpt_last_error(), t.transient, t.throttled);
        if (rows[i].headers != NULL && rows[i].slow) assert_true(t.retry_after >= 7.0);
        rest_part(s);
    }
}

//-- reading -----------------------------------------------------------------------

#define MODIFIED "Last-Modified: Fri, 20 Nov 2026 23:57:40 GMT\r\n"

static void test_read(void **state) {
    (void)state;
    char out[64];
    ckpt__store_stat info;
    static const step steps[] = { { 200, "0123456789", MODIFIED }, { 206, "345", MODIFIED "Content-Range: bytes 3-5/10\r\n" }, { 412, "", NULL },
        { 206, "345", "Last-Modified: Fri, 20 Nov 2026 23:57:41 GMT\r\nContent-Range: bytes 3-5/10\r\n" }, { 206, "345", MODIFIED "Content-Range: bytes 4-6/10\r\n" },
        { 200, "0123456789", MODIFIED }, { 206, "34567", "Content-Range: bytes 3-5/10\r\n" }, { 416, "", NULL }, { 404, SAYS("NOT_FOUND", ""), NULL },
        { 200, "0123456789", "Last-Modified: whenever\r\n" } };
    ckpt_store *s = MEET(steps);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_int_equal(info.size, 10);
    assert_true(info.modified > 1.7e9 && info.etag[0] != 0);
    is(rest_get(s, "x", info.etag, 3, out, 3), CKPT_OK);
    assert_string_equal(out, "345");
    assert_string_equal(header_of(1, "range"), "bytes=3-5");
    assert_string_equal(header_of(1, "if-unmodified-since"), "Fri, 20 Nov 2026 23:57:40 GMT");
    is(rest_get(s, "x", info.etag, 3, out, 3), CKPT_CORRUPT);
    assert_true(t.transient);
    is(rest_get(s, "x", info.etag, 3, out, 3), CKPT_CORRUPT);               // another version
    is(rest_get(s, "x", NULL, 3, out, 3), CKPT_CORRUPT);                    // another range
    is(rest_get(s, "x", NULL, 3, out, 3), CKPT_UNSUPPORTED);                // the whole
    is(rest_get(s, "x", NULL, 3, out, 3), CKPT_NET);                        // too much
    assert_int_not_equal(rest_get(s, "x", NULL, 30, out, 3), CKPT_OK);
    is(rest_get(s, "y", NULL, 0, out, 3), CKPT_NOT_FOUND);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(info.etag, "");                                     // what cannot be asked for is no version
    rest_part(s);
}

static void test_list(void **state) {
    (void)state;
    static const step steps[] = {
        { 200, "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/b/\",\"is_directory\":true},{\"path\":\"/Volumes/c/s/v/pre/a.pt\",\"file_size\":7}],"
            "\"next_page_token\":\"p/2\"}", NULL },
        { 200, "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/a/\",\"is_directory\":true}]}", NULL },
        { 200, "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/b/c d\",\"is_directory\":false,\"file_size\":\"9007199254740993\"}]}", NULL }, { 404, SAYS("NOT_FOUND",
            ""), NULL } };
    ckpt_store *s = MEET(steps);
    is(rest_list(s, ""), CKPT_OK);
    assert_string_equal(the_list, "a.pt=7\nb/c d=9007199254740993\n");
    assert_string_equal(script.list[0].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre");
    assert_string_equal(script.list[1].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre?page_token=p%2F2");
    assert_string_equal(script.list[2].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre/b");
    rest_part(s);
    // Names that begin at the root are told as such.
    static const step whole[] = { { 200, "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/a.pt\",\"file_size\":7}]}", NULL },
        { 200, "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/a.pt\",\"file_size\":7}]}", NULL } };
    s = MEET(whole);
    is(rest_list(s, "Volumes/c/s/v/pre/a"), CKPT_OK);
    assert_string_equal(the_list, "Volumes/c/s/v/pre/a.pt=7\n");
    is(rest_list(s, "Volumes/c/s/v/"), CKPT_OK);
    assert_string_equal(the_list, "Volumes/c/s/v/pre/a.pt=7\n");
    is(rest_list(s, "Volumes/c/s/v/other/"), CKPT_OK);
    assert_string_equal(the_list, "");
    rest_part(s);
    static const char *const hostile[] = {
        "[]", "{\"contents\":{}}", "{\"contents\":[{\"path\":\"/Volumes/c/s/v/other\"}]}", "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/../../x\"}]}",
        "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/a\\u0000b\"}]}", "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/a\",\"file_size\":-1}]}",
        "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/a\",\"file_size\":1.5}]}", "{\"contents\":[{\"path\":7}]}", "{\"contents\":[7]}",
            "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/\"}]}",
        "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre//x\"}]}", "<html>", "{\"contents\":[", "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/\\u0001\"}]}",
    };
    for (int i = 0; i < UTIL_COUNT(hostile); i++) {
        const step one[] = { { 200, hostile[i], NULL } };
        s = MEET(one);
        ckpt_err e = rest_list(s, "");
        if (e != CKPT_NET && e != CKPT_CORRUPT) fail_msg("%s: %s", hostile[i], ckpt_err_name(e));
        assert_string_equal(the_list, "");
        rest_part(s);
    }
    // A page that leads back to itself ends, and so do folders in folders.
    static const step circle[] = { { 200, "{\"next_page_token\":\"x\"}", NULL }, { 200, "{\"next_page_token\":\"x\"}", NULL } };
    s = MEET(circle);
    is(rest_list(s, ""), CKPT_NET);
    sentence_has("no end");
    rest_part(s);
    char deep[4000] = "";
    for (int i = 0; i < 80; i++) strcat(deep, "/d");
    const step down[] = { { 200, util_fmt("{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre%s\",\"is_directory\":true}]}", deep), NULL } };
    s = MEET(down);
    is(rest_list(s, ""), CKPT_NET);
    rest_part(s);
}

//-- parts -------------------------------------------------------------------------

#define PART_URL(n) "{\"upload_part_urls\":[{\"url\":\"@/cloud?n=" #n "&" SIGNATURE "\",\"part_number\":" #n ",\"headers\":[{\"name\":\"x-needed\",\"value\":\"yes\"}]}]}"
#define SESSION "{\"multipart_upload\":{\"session_token\":\"tok/en+1\"}}"

typedef struct multi { ckpt__store_multi m; ckpt__store_part part[2]; ckpt__buf id; } multi;

static void multi_init(multi *u, bool overwrite) {
    memset(u, 0, sizeof *u);
    u->m.name = "big";
    u->m.size = 10;
    u->m.overwrite = overwrite;
    u->m.t = &t;
    u->m.parts = u->part;
    u->m.part_count = 2;
    ckpt__buf_init(&u->id, NULL);
    ckpt__transfer_begin(&t);
}

static ckpt_err begin(ckpt_store *s, multi *u) {
    ckpt_err e = ckpt__store_run_begin(s, &u->m, &u->id);
    u->m.upload_id = u->id.len > 0 ? ckpt__buf_cstr(&u->id) : "tok/en+1";
    return e;
}

static ckpt_err part(ckpt_store *s, multi *u, int number) {
    ckpt__body b;
    memset(&b, 0, sizeof b);
    b.memory = "0123456789";
    b.offset = (uint64_t)(number - 1) * 5;
    b.size = 5;
    b.fd = -1;
    u->part[number - 1].number = number;
    ckpt__transfer_begin(&t);
    return ckpt__store_run_part(s, &u->m, &b, &u->part[number - 1]);
}

static void test_parts(void **state) {
    (void)state;
    multi u;
    static const step steps[] = { { 200, SESSION, NULL }, { 200, PART_URL(1), NULL }, { 200, PART_URL(1), NULL }, { 200, "", "ETag: \"one\"\r\n" }, { 200, PART_URL(2), NULL },
        { 201, "", "ETag: \"two\"\r\n" }, { 200, "{}", NULL }, { 200, "0123456789", NULL } };
    ckpt_store *s = MEET(steps);
    multi_init(&u, false);
    is(begin(s, &u), CKPT_OK);
    assert_string_equal(script.list[0].method, "POST");
    assert_string_equal(script.list[0].target, "/api/2.0/fs/files/Volumes/c/s/v/pre/big?action=initiate-upload&overwrite=false");
    assert_string_equal(u.m.upload_id, "tok/en+1");
    is(part(s, &u, 1), CKPT_OK);
    assert_true(strncmp(script.list[2].body, "{\"path\":\"/Volumes/c/s/v/pre/big\",\"session_token\":\"tok/en+1\",\"start_part_number\":1,\"count\":1,"
        "\"expire_time\":\"20", 100) == 0);
    assert_string_equal(script.list[3].target, "/cloud?n=1&" SIGNATURE);
    assert_string_equal(script.list[3].body, "01234");
    assert_string_equal(header_of(3, "authorization"), "");                 // the token is not for the cloud
    assert_string_equal(header_of(3, "x-needed"), "yes");
    assert_string_equal(u.part[0].etag, "\"one\"");
    assert_int_equal(u.part[0].crc, ckpt__digest_crc32(0, "01234", 5));
    is(part(s, &u, 2), CKPT_OK);
    is(ckpt__store_run_complete(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[6].target, "/api/2.0/fs/files/Volumes/c/s/v/pre/big?action=complete-upload&session_token=tok%2Fen%2B1&upload_type=multipart");
    assert_string_equal(script.list[6].body, "{\"parts\":[{\"part_number\":1,\"etag\":\"\\\"one\\\"\"},{\"part_number\":2,\"etag\":\"\\\"two\\\"\"}]}");
    rest_part(s);
    ckpt__buf_free(&u.id);
}

static ckpt_err count_part(const ckpt__store_part *p, void *user) {
    *(int *)user += p->number;
    return CKPT_OK;
}

// For how long an address is to be good the server's clock tells.
static void test_parts_clock(void **state) {
    (void)state;
    for (int hours = -2; hours <= 2; hours += 2) {
        multi u;
        char date[64];
        struct tm utc;
        double until = 0.0;
        time_t there = time(NULL) + hours * 3600;
        assert_true(strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime_r(&there, &utc)) > 0);
        const step steps[] = { { 200, SESSION, date }, { 200, PART_URL(1), NULL }, { 200, PART_URL(1), NULL }, { 200, "", "ETag: \"one\"\r\n" } };
        ckpt_store *s = MEET(steps);
        multi_init(&u, true);
        is(begin(s, &u), CKPT_OK);
        is(part(s, &u, 1), CKPT_OK);
        for (int i = 1; i <= 2; i++) {
            const char *at = strstr(script.list[i].body, "\"expire_time\":\"");
            assert_non_null(at);
            at += strlen("\"expire_time\":\"");
            assert_true(ckpt__txt_read_date(ckpt__txt_view(util_fmt("%.*s", (int)strcspn(at, "\""), at)), &until));
            assert_true(until > (double)there + 3590.0 && until < (double)there + 3660.0);
        }
        rest_part(s);
        ckpt__buf_free(&u.id);
        // A session of another process, with nothing asked before: when the refusal has told the time it is asked for anew, once.
        int sum = 0;
        const step late = { 400, SAYS("INVALID_PARAMETER_VALUE", "expire_time"), date };
        const step alive[] = { late, { 200, PART_URL(1), NULL } }, dead[] = { late, late };
        const step ends[] = { late, { 200, "{\"abort_upload_url\":{\"url\":\"@/cloud?abort&" SIGNATURE "\"}}", NULL }, { 204, "", NULL } };
        s = meet_with(alive, hours != 0 ? 2 : 1);
        multi_init(&u, true);
        u.m.upload_id = "of another process";
        for (int i = 0; i < 2; i++) u.part[i].number = i + 1;
        is(ckpt__store_run_parts(s, &u.m, count_part, &sum), hours != 0 ? CKPT_OK : CKPT_NOT_FOUND);
        rest_part(s);
        s = meet_with(dead, hours != 0 ? 2 : 1);
        is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_NOT_FOUND);
        rest_part(s);
        s = meet_with(ends, hours != 0 ? 3 : 1);
        ckpt__transfer_begin(&t);
        is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
        rest_part(s);
        assert_int_equal(sum, hours != 0 ? 3 : 0);
    }
}

#define BEGUN { 200, SESSION, NULL }, { 200, PART_URL(1), NULL }
#define NO_FOLDER { 404, SAYS("NOT_FOUND", "no folder"), NULL }

// A volume that wants folders: the one above a first file in parts is made, and asked for no more than once.
static void test_parts_folder(void **state) {
    (void)state;
    multi u;
    static const step made[] = { NO_FOLDER, { 204, "", NULL }, BEGUN }, none[] = { NO_FOLDER, { 204, "", NULL }, NO_FOLDER };
    static const step denied[] = { NO_FOLDER, { 403, SAYS("PERMISSION_DENIED", "no directories for you"), NULL } };
    static const struct { const step *steps; int count; ckpt_err e; const char *word; } rows[] = { { made, UTIL_COUNT(made), CKPT_OK, "" },
        { none, UTIL_COUNT(none), CKPT_UNSUPPORTED, "no uploads in parts" }, { denied, UTIL_COUNT(denied), CKPT_AUTH, "no directories for you" } };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt_store *s = meet_with(rows[i].steps, rows[i].count);
        multi_init(&u, true);
        u.m.name = "a/big";
        is(begin(s, &u), rows[i].e);
        if (rows[i].e != CKPT_OK) sentence_has(rows[i].word);
        assert_string_equal(script.list[1].method, "PUT");
        assert_string_equal(script.list[1].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre/a");
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
}

#define LOST BEGUN, { 0, NULL, NULL }
#define NO_SESSION { 404, SAYS("NOT_FOUND", "no session"), NULL }
#define SIZE { 200, "0123456789", NULL }
#define BYTES(bytes, range) { 206, bytes, "Content-Range: bytes " range "/10\r\n" }

// Both parts as they were sent.
static void know_parts(multi *u) {
    for (int i = 0; i < 2; i++) {
        u->part[i].number = i + 1;
        u->part[i].size = 5;
        u->part[i].has_crc = true;
        u->part[i].crc = ckpt__digest_crc32(0, i == 0 ? "01234" : "56789", 5);
    }
}

// The reply to the end of an upload is lost, and the next request refused: what is there is ours when its bytes are.
static void test_parts_lost(void **state) {
    (void)state;
    static const step ours[] = { LOST, NO_SESSION, SIZE, BYTES("01234", "0-4"), BYTES("56789", "5-9") };
    static const step before[] = { LOST, NO_SESSION, SIZE, BYTES("01234", "0-4"), BYTES("xxxxx", "5-9") };
    static const step others[] = { LOST, { 409, SAYS("ALREADY_EXISTS", ""), NULL }, SIZE, BYTES("xxxxx", "0-4") };
    static const step shorter[] = { LOST, NO_SESSION, { 200, "012345678", NULL } };
    static const step busy[] = { LOST, NO_SESSION, { 503, "", NULL }, NO_SESSION, SIZE, { 503, "", NULL }, NO_SESSION, SIZE, BYTES("01234", "0-4"),
        BYTES("56789", "5-9") };
    static const step unseen[] = { BEGUN, { 200, "{}", NULL }, { 503, "", NULL }, SIZE };
    static const struct { const step *steps; int count; ckpt_err ends[3]; } rows[] = {
        { ours, UTIL_COUNT(ours), { CKPT_OK } }, { before, UTIL_COUNT(before), { CKPT_NOT_FOUND } }, { others, UTIL_COUNT(others), { CKPT_EXISTS } },
        { shorter, UTIL_COUNT(shorter), { CKPT_NOT_FOUND } }, { busy, UTIL_COUNT(busy), { CKPT_NET, CKPT_NET, CKPT_OK } },
        { unseen, UTIL_COUNT(unseen), { CKPT_NET, CKPT_OK } },                  // it was acknowledged: nothing is read
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        multi u;
        int sum = 0;
        ckpt_err e = CKPT_OK;
        ckpt_store *s = meet_with(rows[i].steps, rows[i].count);
        multi_init(&u, rows[i].steps != others);
        is(begin(s, &u), CKPT_OK);
        know_parts(&u);
        for (int k = 0; k < 3 && requests() < script.count; k++) {
            ckpt__transfer_begin(&t);
            e = ckpt__store_run_complete(s, &u.m);          // libcurl repeats the first one by itself
            is(e, rows[i].ends[k]);
            assert_true(t.transient == (e == CKPT_NET));
        }
        if (e == CKPT_OK) is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_NOT_FOUND);
        if (e == CKPT_OK) is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
}

static void test_parts_ends(void **state) {
    (void)state;
    multi u;
    int sum = 0;
    ckpt_store *s;
    // Without that it is gone.
    static const step gone[] = { { 404, SAYS("NOT_FOUND", "no session"), NULL } };
    s = MEET(gone);
    multi_init(&u, true);
    u.m.upload_id = "of another process";
    is(ckpt__store_run_complete(s, &u.m), CKPT_NOT_FOUND);
    rest_part(s);
    // Another process goes on by its journal while the session lives.
    static const step alive[] = { { 200, PART_URL(1), NULL }, { 404, SAYS("NOT_FOUND", ""), NULL } };
    s = MEET(alive);
    multi_init(&u, true);
    u.m.upload_id = "of another process";
    u.part[0].number = 1;
    u.part[1].number = 2;
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_OK);
    assert_int_equal(sum, 3);
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_NOT_FOUND);
    rest_part(s);
    // Given up.
    static const step abort_[] = { { 200, SESSION, NULL }, { 200, PART_URL(1), NULL }, { 200, "{\"abort_upload_url\":{\"url\":\"@/cloud?abort&" SIGNATURE "\"}}",
        NULL }, { 204, "", NULL } };
    s = MEET(abort_);
    multi_init(&u, true);
    is(begin(s, &u), CKPT_OK);
    is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[3].method, "DELETE");
    is(part(s, &u, 1), CKPT_NOT_FOUND);
    rest_part(s);
    ckpt__buf_free(&u.id);
    // Somebody replaces it at the same time, which is nothing that was to be refused.
    static const step busy[] = { { 409, SAYS("ALREADY_EXISTS", ""), NULL }, { 200, SESSION, NULL }, { 200, PART_URL(1), NULL }, { 409, SAYS("ALREADY_EXISTS", ""), NULL } };
    s = MEET(busy);
    multi_init(&u, true);
    is(begin(s, &u), CKPT_NET);
    assert_true(t.transient);
    is(begin(s, &u), CKPT_OK);
    know_parts(&u);
    is(ckpt__store_run_complete(s, &u.m), CKPT_NET);
    assert_true(t.transient);
    rest_part(s);
    ckpt__buf_free(&u.id);
    // Somebody else was first.
    static const step exists[] = { { 409, SAYS("ALREADY_EXISTS", ""), NULL } };
    s = MEET(exists);
    multi_init(&u, false);
    is(begin(s, &u), CKPT_EXISTS);
    sentence_has("overwriting");
    rest_part(s);
    ckpt__buf_free(&u.id);
}

static void test_parts_refused(void **state) {
    (void)state;
    multi u;
    static const struct { int status; const char *body; ckpt_err e; } begins[] = {
        { 200, "{\"resumable_upload\":{}}", CKPT_NET }, { 404, SAYS("ENDPOINT_NOT_FOUND", ""), CKPT_UNSUPPORTED },
        { 400, SAYS("INVALID_PARAMETER_VALUE", "action"), CKPT_UNSUPPORTED }, { 403, SAYS("PERMISSION_DENIED", ""), CKPT_AUTH }, { 503, "", CKPT_NET },
        { 200, "{}", CKPT_NET }, { 200, "<html>", CKPT_NET }, { 200, "{\"multipart_upload\":{\"session_token\":\"a\\u0000b\"}}", CKPT_NET },
    };
    for (int i = 0; i < UTIL_COUNT(begins); i++) {
        const step one[] = { { begins[i].status, begins[i].body, NULL } };
        ckpt_store *s = MEET(one);
        multi_init(&u, true);
        is(begin(s, &u), begins[i].e);
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
    // Signed addresses are turned off: the session is given up, and the file goes whole.
    static const step off[] = { { 200, SESSION, NULL }, { 403,
        "{\"error_code\":\"PERMISSION_DENIED\",\"message\":\"off\",\"details\":[{\"reason\":\"FILES_API_API_IS_NOT_ENABLED\"}]}", NULL },
        { 403, SAYS("PERMISSION_DENIED", ""), NULL }, { 204, "", NULL }, { 200, "0123456789", NULL } };
    ckpt_store *s = MEET(off);
    ckpt__send send;
    ckpt__retry retry;
    memset(&send, 0, sizeof send);
    memset(&retry, 0, sizeof retry);
    retry.logger = &s->logger;
    send.retry = &retry;
    s->min_part = 5;
    send.store = s;
    send.name = "big";
    send.body.memory = "0123456789";
    send.body.size = 10;
    send.body.fd = -1;
    send.overwrite = true;
    send.part_size = 5;
    s->max_part = 5;
    is(ckpt__send_run(&send), CKPT_OK);
    assert_string_equal(script.list[3].target, "/api/2.0/fs/files/Volumes/c/s/v/pre/big?overwrite=true");
    assert_string_equal(script.list[3].body, "0123456789");
    assert_true(has(the_log, "goes in one request"));
    rest_part(s);
    // For what only parts can bring a right that is missing is waited for.
#define DENIED { 403, SAYS("PERMISSION_DENIED", "not you"), NULL }
#define TURNED_OFF { 403, "{\"error_code\":\"PERMISSION_DENIED\",\"message\":\"off\",\"details\":[{\"reason\":\"FILES_API_API_IS_NOT_ENABLED\"}]}", NULL }
    static const step closed[] = { { 200, SESSION, NULL }, TURNED_OFF, TURNED_OFF }, denied[] = { { 200, SESSION, NULL }, DENIED, DENIED, DENIED };
    static const step closed_stream[] = { { 200, "{\"resumable_upload\":{\"session_token\":\"x\"}}", NULL }, TURNED_OFF };
    static const step denied_stream[] = { { 200, "{\"resumable_upload\":{\"session_token\":\"x\"}}", NULL }, DENIED };
    static const struct { const step *steps; int count; ckpt_err e; } bigs[] = {
        { closed, UTIL_COUNT(closed), CKPT_UNSUPPORTED }, { denied, UTIL_COUNT(denied), CKPT_AUTH },
        { closed_stream, UTIL_COUNT(closed_stream), CKPT_UNSUPPORTED }, { denied_stream, UTIL_COUNT(denied_stream), CKPT_AUTH } };
    send.num_concurrent_parts = 1;
    for (int i = 0; i < UTIL_COUNT(bigs); i++) {
        send.store = s = meet_with(bigs[i].steps, bigs[i].count);
        retry.logger = &s->logger;
        s->min_part = s->max_part = 5;
        s->max_single = 9;
        is(ckpt__send_run(&send), bigs[i].e);
        sentence_has("PERMISSION_DENIED");
        assert_true(send.curable == (bigs[i].e == CKPT_AUTH));
        rest_part(s);
    }
    // The session waits with it: later tries go on with it, and none leaves another at the server.
#define SENT(n) { 200, PART_URL(n), NULL }, { 200, "", "ETag: \"x\"\r\n" }
    static const step again[] = { { 200, SESSION, NULL }, DENIED, DENIED, DENIED, DENIED, { 200, PART_URL(1), NULL }, SENT(1), SENT(2), { 200, "{}", NULL },
        { 200, "0123456789", NULL } };
    ckpt__send_record record;
    ckpt__send_record_init(&record, NULL);
    send.record = &record;
    send.store = s = MEET(again);
    retry.logger = &s->logger;
    s->min_part = s->max_part = 5;
    s->max_single = 9;
    for (int i = 0; i < 3; i++) {
        is(ckpt__send_run(&send), i < 2 ? CKPT_AUTH : CKPT_OK);
        assert_true(send.curable == (i < 2));
        assert_string_equal(ckpt__buf_cstr(&record.upload_id), "tok/en+1");
    }
    rest_part(s);
    ckpt__send_record_free(&record);
    send.record = NULL;
    // Hostile addresses.
    static const char *const hostile[] = {
        "{}", "{\"upload_part_urls\":[]}", "{\"upload_part_urls\":{}}", "{\"upload_part_urls\":[{\"url\":\"http://example.com/x\",\"part_number\":1}]}",
        "{\"upload_part_urls\":[{\"url\":\"file:///etc/passwd\",\"part_number\":1}]}", "{\"upload_part_urls\":[{\"url\":\"https://u:p@h/x\",\"part_number\":1}]}",
        "{\"upload_part_urls\":[{\"url\":\"@/x y\",\"part_number\":1}]}", "{\"upload_part_urls\":[{\"url\":\"@/x\\r\\nHost: y\",\"part_number\":1}]}",
        "{\"upload_part_urls\":[{\"url\":\"@/x\",\"part_number\":2}]}", "{\"upload_part_urls\":[{\"url\":7,\"part_number\":1}]}", "{\"upload_part_urls\":[7]}",
    };
    for (int i = 0; i < UTIL_COUNT(hostile); i++) {
        const step one[] = { { 200, hostile[i], NULL } };
        s = MEET(one);
        multi_init(&u, true);
        u.m.upload_id = "x";
        is(part(s, &u, 1), CKPT_NET);
        rest_part(s);
    }
    // Headers that are not the server's to set are left out.
    static const step own[] = { { 200, "{\"upload_part_urls\":[{\"url\":\"@/x\",\"part_number\":1,\"headers\":[{\"name\":\"Authorization\",\"value\":\"x\"},"
        "{\"name\":\"Content-Length\",\"value\":\"1\"},"
        "{\"name\":\"bad name\",\"value\":\"x\"},{\"name\":\"a\",\"value\":\"b\\r\\nc: d\"},{\"name\":\"good\",\"value\":\"yes\"},{\"name\":7},{}]}]}", NULL },
        { 200, "", "ETag: x\r\n" } };
    s = MEET(own);
    multi_init(&u, true);
    u.m.upload_id = "x";
    is(part(s, &u, 1), CKPT_OK);
    assert_string_equal(header_of(1, "authorization"), "");
    assert_string_equal(header_of(1, "content-length"), "5");
    assert_string_equal(header_of(1, "good"), "yes");
    assert_false(has(script.list[1].head, "\nc: d"));
    rest_part(s);
    // An address that has run out is asked for anew by the next try; the cloud's refusals say no secrets.
    static const struct { int status; const char *body; ckpt_err e; bool again; const char *word; } clouds[] = {
        { 403, "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", CKPT_NET, true, "run out" },
        { 403, "<Error><Code>AuthenticationFailed</Code><Message>no</Message><AuthenticationErrorDetail>"
            "Signature not valid in the specified time frame: x</AuthenticationErrorDetail></Error>", CKPT_NET, true, "run out" },
        { 403, "<Error><Code>AccessDenied</Code><Message>no way</Message><StringToSign>" SIGNATURE "</StringToSign></Error>", CKPT_AUTH, false, "firewall" },
        { 403, "<Error><Code>X</Code><Message>" SIGNATURE "</Message></Error>", CKPT_AUTH, false, "403" },
        { 404, "<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>", CKPT_NOT_FOUND, false, "NoSuchUpload" },
        { 503, "<Error><Code>SlowDown</Code></Error>", CKPT_NET, true, "SlowDown" }, { 307, "", CKPT_NET, true, "elsewhere" },
    };
    for (int i = 0; i < UTIL_COUNT(clouds); i++) {
        const step two[] = { { 200, PART_URL(1), NULL }, { clouds[i].status, clouds[i].body, "Location: https://elsewhere/\r\n" } };
        s = MEET(two);
        multi_init(&u, true);
        u.m.upload_id = "x";
        ckpt_err e = part(s, &u, 1);
        if (e != clouds[i].e || t.transient != clouds[i].again || !has(ckpt_last_error(), clouds[i].word)) fail_msg("%d: %s %s", i, ckpt_err_name(e), ckpt_last_error());
        rest_part(s);
    }
}

static void test_remove(void **state) {
    (void)state;
    static const step steps[] = { { 204, "", NULL }, { 204, "", NULL }, { 409, SAYS("FAILED_PRECONDITION", "not empty"), NULL }, { 404, SAYS("NOT_FOUND", ""), NULL } };
    ckpt_store *s = MEET(steps);
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_remove(s, "a/b/c", &t), CKPT_OK);
    assert_string_equal(script.list[0].target, "/api/2.0/fs/files/Volumes/c/s/v/pre/a/b/c");
    assert_string_equal(script.list[1].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre/a/b");
    assert_string_equal(script.list[2].target, "/api/2.0/fs/directories/Volumes/c/s/v/pre/a");
    is(ckpt__store_run_remove(s, "x", &t), CKPT_NOT_FOUND);
    rest_part(s);
}

// Google Cloud: bytes in their order to one address, which is the upload's name.
#define STREAM { 200, "{\"resumable_upload\":{\"session_token\":\"to/k\"}}", NULL }, { 200, "{\"resumable_upload_url\":{\"url\":\"@/st?" SIGNATURE "\"," \
    "\"headers\":[{\"name\":\"x-h\",\"value\":\"v: w\"},{\"name\":\"x-i\",\"value\":\"\"}]}}", NULL }

enum { GRAIN = 256 * 1024 };

// Part `number` of two of GRAIN bytes and a rest.
static ckpt_err piece(ckpt_store *s, multi *u, int number, const char *bytes, size_t rest) {
    ckpt__body b;
    memset(&b, 0, sizeof b);
    b.memory = bytes;
    b.offset = (uint64_t)(number - 1) * GRAIN;
    b.size = number < 3 ? GRAIN : rest;
    b.fd = -1;
    u->m.size = 2 * GRAIN + rest;
    u->part[number % 2].number = number;
    ckpt__transfer_begin(&t);
    return ckpt__store_run_part(s, &u->m, &b, &u->part[number % 2]);
}

typedef struct at_part { ckpt_store *s; const char *id; ckpt_err e; } at_part;

static void *second_part(void *arg) {
    static const char bytes[GRAIN];
    at_part *a = (at_part *)arg;
    ckpt__store_multi m;
    ckpt__store_part part;
    ckpt__body body;
    ckpt__transfer own;
    memset(&m, 0, sizeof m);
    memset(&part, 0, sizeof part);
    memset(&body, 0, sizeof body);
    memset(&own, 0, sizeof own);
    m.name = "big";
    m.size = 2 * GRAIN;
    m.upload_id = a->id;
    m.t = &own;
    body.memory = bytes;
    body.size = GRAIN;
    part.number = 2;
    a->e = ckpt__store_run_part(a->s, &m, &body, &part);
    return NULL;
}

// Somebody gives a stream up while its parts are sent: one that waits for the part before it learns of it, and of nothing that is freed.
static void test_stream_given_up(void **state) {
    (void)state;
    for (int given_up = 0; given_up < 2; given_up++) {
        static const step steps[] = { { 308, "", "Range: bytes=0-524287\r\n" } };
        ckpt_store *s = MEET(steps);
        at_part a = { s, util_fmt("stream %s/st?" SIGNATURE, server.url), CKPT_IO };
        pthread_t thread;
        ckpt__streams *streams = &ckpt__uc_of(s)->streams;
        ckpt__stream_upload *u = ckpt__stream_hold(streams, a.id);
        u->part_size = GRAIN;
        u->busy = given_up == 1;
        u->rested = ckpt__os_now() - 1000.0;                // the first part has been long at being read
        pthread_create(&thread, NULL, second_part, &a);
        net_sleep(0.2);
        if (given_up == 1) {
            ckpt__stream_release(streams, u);
            ckpt__stream_forget(streams, a.id);
        } else {
            ckpt__os_mutex_lock(&ckpt__uc_of(s)->d.lock);
            u->passed = GRAIN;
            ckpt__os_mutex_unlock(&ckpt__uc_of(s)->d.lock);
        }
        pthread_join(thread, NULL);
        if (given_up == 0) ckpt__stream_release(streams, u);
        is(a.e, given_up == 1 ? CKPT_NOT_FOUND : CKPT_OK);
        if (given_up == 0) rest_part(s);
        else ckpt_store_close(s);
    }
}

static void test_stream(void **state) {
    (void)state;
    multi u;
    int sum = 0;
    char *bytes = (char *)calloc(3, GRAIN);
    // What no multiple of the grain holds goes with the end.
    static const step steps[] = { STREAM, { 308, "", "Range: bytes=0-262143\r\n" }, { 308, "", "Range: bytes=0-524287\r\n" }, { 200, "{}", NULL }, { 403, "", NULL } };
    ckpt_store *s = MEET(steps);
    multi_init(&u, false);
    is(begin(s, &u), CKPT_OK);
    assert_string_equal(script.list[1].target, "/api/2.0/fs/create-resumable-upload-url");
    assert_string_equal(script.list[1].body, "{\"path\":\"/Volumes/c/s/v/pre/big\",\"session_token\":\"to/k\"}");
    assert_string_equal(u.m.upload_id, util_fmt("stream %s/st?" SIGNATURE "\nx-h: v: w\nx-i: ", server.url));
    for (int i = 1; i <= 3; i++) is(piece(s, &u, i, bytes, 10), CKPT_OK);
    assert_string_equal(script.list[2].target, "/st?" SIGNATURE);
    assert_string_equal(header_of(2, "authorization"), "");
    assert_string_equal(header_of(2, "x-h"), "v: w");
    assert_string_equal(header_of(2, "content-range"), "bytes 0-262143/*");
    assert_string_equal(header_of(3, "content-range"), "bytes 262144-524287/*");
    is(piece(s, &u, 2, bytes, 10), CKPT_OK);                                // it has gone through
    u.m.size = 2 * GRAIN + 10;
    is(ckpt__store_run_complete(s, &u.m), CKPT_OK);
    assert_string_equal(header_of(4, "content-range"), "bytes 524288-524297/524298");
    assert_int_equal(script.list[4].size, 10);
    assert_string_equal(script.list[5].method, "HEAD");
    rest_part(s);
    ckpt__buf_free(&u.id);
    // One that another process began: what the cloud has is not sent again. Nothing is left for the end.
    static const step resumed[] = { { 308, "", "Range: bytes=0-262143\r\n" }, { 308, "", "Range: bytes=0-262143\r\n" }, { 308, "", "Range: bytes=0-524287\r\n" },
        { 308, "", "Range: bytes=0-786431\r\n" }, { 503, "", NULL }, { 308, "", "Range: bytes=0-786431\r\n" }, { 200, "", NULL }, { 403, "", NULL } };
    s = MEET(resumed);
    multi_init(&u, true);
    u.m.upload_id = util_fmt("stream %s/st?" SIGNATURE, server.url);
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_OK);
    assert_int_equal(sum, 0);
    assert_string_equal(header_of(0, "content-range"), "bytes */*");
    assert_string_equal(header_of(0, "content-length"), "0");
    for (int i = 1; i <= 3; i++) is(piece(s, &u, i, bytes, GRAIN), CKPT_OK);
    assert_string_equal(header_of(2, "content-range"), "bytes 262144-524287/*");
    is(ckpt__store_run_complete(s, &u.m), CKPT_NET);
    assert_true(t.transient);
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_complete(s, &u.m), CKPT_OK);
    assert_string_equal(header_of(6, "content-range"), "bytes */786432");
    rest_part(s);
    // How it may end otherwise.
    static const struct { step reply; bool overwrite, transient; ckpt_err e; } ends[] = {
        { { 412, "<Error><Code>PreconditionFailed</Code></Error>", NULL }, false, false, CKPT_EXISTS }, { { 404, "", NULL }, true, false, CKPT_NOT_FOUND },
        { { 410, "", NULL }, true, false, CKPT_NOT_FOUND }, { { 308, "", NULL }, true, true, CKPT_NET }, { { 308, "", "Range: bytes=5-9\r\n" }, true, true, CKPT_NET },
        { { 403, "<Error><Message>" SIGNATURE "</Message></Error>", NULL }, true, false, CKPT_AUTH }, { { 307, "", "Location: /elsewhere\r\n" }, true, true, CKPT_NET },
    };
    for (int i = 0; i < UTIL_COUNT(ends); i++) {
        const step one[] = { STREAM, ends[i].reply };
        s = MEET(one);
        multi_init(&u, ends[i].overwrite);
        is(begin(s, &u), CKPT_OK);
        u.m.size = 5;
        is(part(s, &u, 1), CKPT_OK);
        is(ckpt__store_run_complete(s, &u.m), ends[i].e);
        assert_int_equal(t.transient, ends[i].transient);
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
    // Too small a part; a cloud that keeps nothing; given up.
    static const step odd[] = { STREAM, { 308, "", NULL }, { 499, "", NULL } };
    s = MEET(odd);
    multi_init(&u, true);
    is(begin(s, &u), CKPT_OK);
    is(piece(s, &u, 1, bytes, 10), CKPT_NET);
    assert_true(t.transient);
    is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[3].method, "DELETE");
    ckpt__buf_free(&u.id);
    rest_part(s);
    static const step small[] = { STREAM };
    s = MEET(small);
    multi_init(&u, true);
    is(begin(s, &u), CKPT_OK);
    is(part(s, &u, 1), CKPT_ARG);
    rest_part(s);
    ckpt__buf_free(&u.id);
    // No address for it: in one request. Hostile ones.
    static const struct { int status; const char *body; ckpt_err e; } begins[] = {
        { 403, SAYS("PERMISSION_DENIED", ""), CKPT_UNSUPPORTED }, { 404, SAYS("ENDPOINT_NOT_FOUND", ""), CKPT_UNSUPPORTED }, { 503, "", CKPT_NET }, { 200, "{}", CKPT_NET },
        { 200, "{\"resumable_upload_url\":{\"url\":\"http://example.com/x\"}}", CKPT_NET }, { 200, "{\"resumable_upload_url\":[]}", CKPT_NET },
    };
    for (int i = 0; i < UTIL_COUNT(begins); i++) {
        const step two[] = { { 200, "{\"resumable_upload\":{\"session_token\":\"x\"}}", NULL }, { begins[i].status, begins[i].body, NULL } };
        s = MEET(two);
        multi_init(&u, true);
        is(begin(s, &u), begins[i].e);
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
    free(bytes);
}

static void no_memory(const step *steps, int count, uint64_t size);

static void test_no_memory(void **state) {
    (void)state;
    static const step steps[] = { { 200, GRANT("eyJone", "3600"), NULL }, { 204, "", NULL }, { 200, "hello", NULL },
        { 200, "{\"contents\":[{\"path\":\"/Volumes/c/s/v/pre/d\",\"is_directory\":true},{\"path\":\"/Volumes/c/s/v/pre/a\",\"file_size\":1}],"
            "\"next_page_token\":\"2\"}", NULL }, { 200, "{}", NULL }, { 200, "{}", NULL },
        { 200, SESSION, NULL }, { 200, PART_URL(1), NULL }, { 200, PART_URL(1), NULL }, { 200, "", "ETag: x\r\n" }, { 200, PART_URL(1), NULL }, { 200, "{}", NULL },
            { 200, "0123456789", NULL } };
    static const step stream[] = { { 200, GRANT("eyJone", "3600"), NULL }, { 204, "", NULL }, { 200, "hello", NULL }, { 200, "{}", NULL }, STREAM, { 308, "", NULL },
        { 200, "{}", NULL }, { 200, "hello", NULL } };
    rest_clear_env();
    no_memory(steps, UTIL_COUNT(steps), 10);
    no_memory(stream, UTIL_COUNT(stream), 5);
}

static void no_memory(const step *steps, int count, uint64_t size) {
    const char *path = util_join(util_temp_dir(), "profiles");
    int wins = 0;
    for (int at = 1; at < 2000 && wins == 0; at++) {
        counting c = { 0, 0, at };
        ckpt_store *s = NULL;
        multi u;
        int sum = 0;
        if (at % 100 == 1) { net_stop(&server); net_start(&server, on_request, NULL); }     // it has a limit of connections
        util_write_text(path, util_fmt("[DEFAULT]\nhost = %s\nclient_id = id\nclient_secret = " SECRET "\n", server.url));
        setenv("DATABRICKS_CONFIG_FILE", path, 1);
        ckpt_store_desc d = script_begin(steps, count);
        d.allocator.fn = counting_fn;
        d.allocator.user = &c;
        d.logger.fn = NULL;
        ckpt_err e = ckpt_store_open(&s, URI, &d);
        if (e == CKPT_OK) e = rest_put(s, "x", "hello", true, "m");
        if (e == CKPT_OK) e = rest_list(s, "");
        multi_init(&u, true);
        u.m.part_count = 1;
        u.m.size = size;
        if (e == CKPT_OK) e = begin(s, &u);
        if (e == CKPT_OK) e = part(s, &u, 1);
        if (e == CKPT_OK) e = ckpt__store_run_parts(s, &u.m, count_part, &sum);
        if (e == CKPT_OK) e = ckpt__store_run_complete(s, &u.m);
        ckpt__buf_free(&u.id);
        ckpt_store_close(s);
        if (e == CKPT_OK && c.calls < at) wins++;
        else if (e != CKPT_NOMEM && !(e == CKPT_OK && c.calls >= at)) fail_msg("allocation %d: %s: %s", at, ckpt_err_name(e), ckpt_last_error());
        if (c.live != 0) fail_msg("allocation %d: %d blocks are left", at, c.live);
    }
    assert_int_equal(wins, 1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_validate_path), cmocka_unit_test(test_object_path), cmocka_unit_test(test_split), cmocka_unit_test(test_settings),
        cmocka_unit_test(test_principal), cmocka_unit_test(test_token_no_memory),
        cmocka_unit_test(test_callback), cmocka_unit_test(test_put), cmocka_unit_test(test_missing), cmocka_unit_test(test_create_only),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_read), cmocka_unit_test(test_list), cmocka_unit_test(test_parts), cmocka_unit_test(test_parts_clock),
        cmocka_unit_test(test_parts_folder),
        cmocka_unit_test(test_parts_lost),
        cmocka_unit_test(test_parts_ends), cmocka_unit_test(test_parts_refused), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_given_up), cmocka_unit_test(test_remove), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, rest_set_up, script_tear_down);
}
