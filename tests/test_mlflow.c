/* test_mlflow.c: what mlflow-artifacts: and dbfs:/databricks/mlflow-tracking/... send and make of replies, good, bad and hostile, by a scripted
   server in the process; tracking servers and logins; runs that are found and made; Composer's table of paths.
   run.sh: remote tsan-long */
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"
#include "counting.h"
#include "rest_util.h"

#define PROXY "mlflow-artifacts:/1/abc/artifacts/pre"
#define MANAGED "dbfs:/databricks/mlflow-tracking/1/abc/artifacts/pre"
#define OPEN "{mlflow_experiment_id}/{mlflow_run_id}/artifacts"
#define RUN "{\"run\":{\"info\":{\"run_id\":\"abc\",\"experiment_id\":\"1\",\"artifact_uri\":\"dbfs:/databricks/mlflow-tracking/1/abc/artifacts\"}}}"
#define SAYS(code, text) "{\"error_code\":\"" code "\",\"message\":\"" text "\"}"

static ckpt_store *proxy_with(const step *steps, int count) {
    setenv("MLFLOW_TRACKING_URI", server.url, 1);
    setenv("MLFLOW_TRACKING_TOKEN", TOKEN, 1);
    return rest_meet(PROXY, steps, count);
}
#define PROXY_MEET(steps) proxy_with(steps, UTIL_COUNT(steps))

static ckpt_store *managed_with(const step *steps, int count) {
    setenv("MLFLOW_TRACKING_URI", "databricks", 1);
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    return rest_meet(MANAGED, steps, count);
}
#define MANAGED_MEET(steps) managed_with(steps, UTIL_COUNT(steps))

//-- Composer's tables -------------------------------------------------------------

static void test_parse_path(void **state) {
    (void)state;
    util_table c = cases_tsv("mlflow_parse_path.tsv");
    for (int i = 0; i < c.rows; i++) {
        const char *path = cases_text(&c, i, "path");
        ckpt__view e, r, rest;
        bool ok = ckpt__mlflow_parse(path, strlen(path), false, &e, &r, &rest);
        assert_int_equal(ok, strcmp(cases_text(&c, i, "status"), "ok") == 0);
        if (!ok) continue;
        assert_true(ckpt__txt_eq(e, cases_text(&c, i, "experiment_id")) && ckpt__txt_eq(r, cases_text(&c, i, "run_id")));
        assert_true(ckpt__txt_eq(rest, cases_text(&c, i, "artifact_path")));
    }
    assert_true(c.rows >= 6);
    util_table u = cases_tsv("object_uri.tsv");
    int found = 0;
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    for (int i = 0; i < u.rows; i++) {
        if (strcmp(cases_text(&u, i, u.names[0]), "mlflow") != 0) continue;
        const char *name = cases_text(&u, i, u.names[2]);
        ckpt_store *s = rest_meet("dbfs:/databricks/mlflow-tracking/123/456/artifacts/", NULL, 0);
        ckpt__buf out;
        ckpt__buf_init(&out, NULL);
        ckpt__stores_add_uri(&out, s, name);
        assert_string_equal(ckpt__buf_cstr(&out), cases_text(&u, i, u.names[3]));
        out.len = 0;
        is(ckpt__mlflow_path(ckpt__mlflow_of(s), &out, name), CKPT_OK);
        assert_string_equal(out.data, cases_text(&u, i, u.names[4]));
        out.len = 0;
        is(ckpt__mlflow_path(ckpt__mlflow_of(s), &out, "databricks/mlflow-tracking/123/457/artifacts/x"), CKPT_ARG);
        is(ckpt__mlflow_path(ckpt__mlflow_of(s), &out, "/databricks/mlflow-tracking/124/456/artifacts/x"), CKPT_ARG);
        ckpt__buf_free(&out);
        ckpt_store_close(s);
        found++;
    }
    assert_int_equal(found, 2);
    // store_from_uri.tsv: which of the dbfs: addresses opens what.
    util_table f = cases_tsv("store_from_uri.tsv");
    for (int i = 0; i < f.rows; i++) {
        const char *uri = cases_text(&f, i, "uri");
        ckpt_err e;
        if (strncmp(uri, "dbfs:", 5) != 0) continue;
        ckpt_store *s = rest_open(uri, NULL, 0, &e);
        assert_int_equal(e, strcmp(cases_text(&f, i, "status"), "ok") == 0 ? CKPT_OK : CKPT_ARG);
        if (e == CKPT_OK) assert_int_equal(ckpt__txt_starts(cases_text(&f, i, "store"), "UC"), ckpt__store_has_parts(s) && s->creates_only);
        ckpt_store_close(s);
    }
    rest_clear_env();
}

//-- tracking servers and logins ---------------------------------------------------

static void settings(const char *uri, const char *env, ckpt_err want, const char *word) {
    static const step reply = { 200, "{\"files\":[{\"path\":\"x\",\"is_dir\":false,\"file_size\":\"5\"}]}", NULL };
    rest_clear_env();
    rest_settings(uri, env, &reply, want, word);
}

#define BOTH "Basic dXNlcjpWZXJ5U2VjcmV0UGFzc3dvcmQ="

static void test_settings(void **state) {
    (void)state;
    settings(PROXY, "", CKPT_ARG, "MLFLOW_TRACKING_URI");
    settings(PROXY, "MLFLOW_TRACKING_URI=databricks", CKPT_ARG, "MLFLOW_TRACKING_URI");
    settings(PROXY, "MLFLOW_TRACKING_URI=@", CKPT_OK, "");
    settings(PROXY, "MLFLOW_TRACKING_URI=@/base/", CKPT_OK, "");
    assert_true(ckpt__txt_starts(script.list[0].target, "/base/api/2.0/mlflow-artifacts/artifacts?path=1%2Fabc%2Fartifacts%2Fpre"));
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_TOKEN=" TOKEN, CKPT_OK, "Bearer " TOKEN);
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_USERNAME=user MLFLOW_TRACKING_PASSWORD=" PASSWORD, CKPT_OK, BOTH);
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_USERNAME=user MLFLOW_TRACKING_PASSWORD=" PASSWORD " MLFLOW_TRACKING_TOKEN=" TOKEN, CKPT_OK, BOTH);
    settings(PROXY, "MLFLOW_TRACKING_URI=http://example.com MLFLOW_TRACKING_TOKEN=" TOKEN, CKPT_ARG, "MLFLOW_TRACKING_INSECURE_TLS");
    settings(PROXY, "MLFLOW_TRACKING_URI=https://u:VerySecret@h", CKPT_ARG, "no address");
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_INSECURE_TLS=true", CKPT_OK, "");
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_INSECURE_TLS=true MLFLOW_TRACKING_SERVER_CERT_PATH=/x", CKPT_ARG, "exclude");
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_SERVER_CERT_PATH=/nonexistent.pem", CKPT_ARG, "/nonexistent.pem");
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_AWS_SIGV4=true", CKPT_UNSUPPORTED, "SIGV4");
    settings(PROXY, "MLFLOW_TRACKING_URI=@ MLFLOW_TRACKING_AUTH=kubernetes", CKPT_UNSUPPORTED, "AUTH");
    settings(MANAGED, "MLFLOW_TRACKING_URI=@ DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN, CKPT_ARG, "databricks");
    settings(MANAGED, "MLFLOW_TRACKING_URI=databricks", CKPT_AUTH, "DATABRICKS_HOST");
    settings(MANAGED, "MLFLOW_TRACKING_URI=databricks://nobody", CKPT_AUTH, "");
    settings("dbfs:/databricks/mlflow-tracking/1/abc/x", "DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN, CKPT_ARG, "artifacts");
    settings("dbfs:/databricks/mlflow-tracking/1/a.b/artifacts/", "DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN, CKPT_ARG, "ids");
    settings("dbfs:/databricks/mlflow-tracking/{mlflow_experiment_id}/abc/artifacts/", "DATABRICKS_HOST=@ DATABRICKS_TOKEN=" TOKEN, CKPT_ARG, "name both");
    settings("mlflow-artifacts:/x/{mlflow_run_id}", "MLFLOW_TRACKING_URI=@", CKPT_ARG, "placeholders");
    settings("mlflow-artifacts:/a/../b", "MLFLOW_TRACKING_URI=@", CKPT_ARG, "..");
    // The host may stand in the address; `mlflow login` leaves a file; a profile may stand in the tracking URI.
    char own[4000];
    snprintf(own, sizeof own, "mlflow-artifacts://%s/1/abc/artifacts/pre", server.url + 7);
    settings(own, "MLFLOW_TRACKING_URI=http://other", CKPT_OK, "");
    const char *home = getenv("HOME");
    util_mkdir(util_join(home, ".mlflow"));
    util_write_text(util_join(home, ".mlflow/credentials"), "[mlflow]\nmlflow_tracking_username = user\nmlflow_tracking_password = " PASSWORD "\n");
    settings(PROXY, "MLFLOW_TRACKING_URI=@", CKPT_OK, BOTH);
    (void)unlink(util_join(home, ".mlflow/credentials"));
    static const step managed[] = { { 200, RUN, NULL } };
    util_write_text(util_join(home, ".databrickscfg"), util_fmt("[p1]\nhost=%s\ntoken=" TOKEN "\n", server.url));
    setenv("MLFLOW_TRACKING_URI", "databricks://p1", 1);
    setenv("DATABRICKS_TOKEN", "other", 1);
    ckpt_store *s = rest_meet(MANAGED, managed, 1);
    ckpt__store_stat info;
    (void)rest_stat(s, "x", &info);
    assert_string_equal(header_of(0, "authorization"), "Bearer " TOKEN);
    ckpt_store_close(s);
    (void)unlink(util_join(home, ".databrickscfg"));
    rest_clear_env();
}

//-- runs --------------------------------------------------------------------------

static void resolved(const char *uri, const step *steps, int count, ckpt_err want, const char *word) {
    ckpt_err e;
    ckpt_store *s = rest_open(uri, steps, count, &e);
    if (e != want || (e == CKPT_OK ? strcmp(s->uri, word) != 0 : !has(ckpt_last_error(), word)))
        fail_msg("%s: %s %s", uri, ckpt_err_name(e), e == CKPT_OK ? s->uri : ckpt_last_error());
    rest_part(s);
}
#define RESOLVED(uri, steps, want, word) resolved(uri, steps, UTIL_COUNT(steps), want, word)

static void test_runs(void **state) {
    (void)state;
    static const char uri[] = "dbfs:/databricks/mlflow-tracking/" OPEN "/ckpt/", oss[] = "mlflow-artifacts:/" OPEN "/ckpt/";
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    static const step fresh[] = { { 404, SAYS("RESOURCE_DOES_NOT_EXIST", "none"), NULL }, { 200, "{\"experiment_id\":\"1\"}", NULL }, { 200, RUN, NULL } };
    RESOLVED(uri, fresh, CKPT_OK, "dbfs:/databricks/mlflow-tracking/1/abc/artifacts/ckpt/");
    assert_string_equal(script.list[0].target, "/api/2.0/mlflow/experiments/get-by-name?experiment_name=mlflow-object-store");
    assert_string_equal(script.list[1].body, "{\"name\":\"mlflow-object-store\"}");
    assert_true(ckpt__txt_starts(script.list[2].body, "{\"experiment_id\":\"1\",\"start_time\":1"));
    setenv("MLFLOW_EXPERIMENT_NAME", "/Users/me/my \"runs\"", 1);
    static const step named[] = { { 503, "", NULL }, { 200, "{\"experiment\":{\"experiment_id\":\"1\"}}", NULL }, { 200, RUN, NULL } };
    RESOLVED(uri, named, CKPT_OK, "dbfs:/databricks/mlflow-tracking/1/abc/artifacts/ckpt/");
    assert_string_equal(script.list[1].target, "/api/2.0/mlflow/experiments/get-by-name?experiment_name=%2FUsers%2Fme%2Fmy%20%22runs%22");
    static const step raced[] = { { 404, SAYS("RESOURCE_DOES_NOT_EXIST", ""), NULL }, { 400, SAYS("RESOURCE_ALREADY_EXISTS", ""), NULL },
        { 200, "{\"experiment\":{\"experiment_id\":\"1\"}}", NULL }, { 200, RUN, NULL } };
    RESOLVED(uri, raced, CKPT_OK, "dbfs:/databricks/mlflow-tracking/1/abc/artifacts/ckpt/");
    unsetenv("MLFLOW_EXPERIMENT_NAME");
    static const step one[] = { { 200, RUN, NULL } };
    RESOLVED("dbfs:/databricks/mlflow-tracking/7/{mlflow_run_id}/artifacts/", one, CKPT_OK, "dbfs:/databricks/mlflow-tracking/7/abc/artifacts/");
    setenv("MLFLOW_EXPERIMENT_ID", "9", 1);
    RESOLVED(uri, one, CKPT_OK, "dbfs:/databricks/mlflow-tracking/9/abc/artifacts/ckpt/");
    unsetenv("MLFLOW_EXPERIMENT_ID");
    static const step denied[] = { { 403, SAYS("PERMISSION_DENIED", "no"), NULL } };
    RESOLVED(uri, denied, CKPT_AUTH, "mlflow-object-store");
    static const step hostile[] = { { 200, "{\"experiment\":{\"experiment_id\":\"../1\"}}", NULL } };
    RESOLVED(uri, hostile, CKPT_NET, "experiment");
    setenv("WORLD_SIZE", "4", 1);
    resolved(uri, NULL, 0, CKPT_ARG, "MLFLOW_RUN_ID");
    setenv("MLFLOW_RUN_ID", "abc", 1);
    RESOLVED(uri, one, CKPT_OK, "dbfs:/databricks/mlflow-tracking/1/abc/artifacts/ckpt/");
    assert_string_equal(script.list[0].target, "/api/2.0/mlflow/runs/get?run_id=abc");
    // The experiment may be named beside it, and is compared with the run's before the first use.
    ckpt_store *beside = rest_meet("dbfs:/databricks/mlflow-tracking/7/{mlflow_run_id}/artifacts/ckpt", one, 1);
    assert_string_equal(beside->uri, "dbfs:/databricks/mlflow-tracking/7/abc/artifacts/ckpt/");
    is(rest_put(beside, "x", "hello", true, NULL), CKPT_ARG);
    sentence_has("not of 7");
    rest_part(beside);
    unsetenv("WORLD_SIZE");
    // Open source: the artifacts lie where the run says.
    setenv("MLFLOW_TRACKING_URI", server.url, 1);
    static const step served[] = { { 200, "{\"run\":{\"info\":{\"run_id\":\"abc\",\"experiment_id\":\"1\","
        "\"artifact_uri\":\"mlflow-artifacts:/root/1/abc/artifacts\"}}}", NULL } };
    RESOLVED(oss, served, CKPT_OK, "mlflow-artifacts:/root/1/abc/artifacts/ckpt/");
    static const step elsewhere[] = { { 200, "{\"run\":{\"info\":{\"run_id\":\"abc\",\"experiment_id\":\"1\","
        "\"artifact_uri\":\"s3://bucket/1/abc/artifacts?secret\"}}}", NULL } };
    RESOLVED(oss, elsewhere, CKPT_UNSUPPORTED, "s3://bucket/1/abc/artifacts,");
    static const step other[] = { { 200, "{\"run\":{\"info\":{\"run_id\":\"abc\",\"experiment_id\":\"1\","
        "\"artifact_uri\":\"mlflow-artifacts://evil.example.com/1\"}}}", NULL } };
    RESOLVED(oss, other, CKPT_UNSUPPORTED, "evil");
    rest_clear_env();
    // A given run is looked at before its first use.
    static const struct { const char *body; ckpt_err e; const char *word; } runs[] = {
        { "{\"run\":{\"info\":{\"run_id\":\"abc\",\"experiment_id\":\"2\",\"artifact_uri\":\"dbfs:/databricks/mlflow-tracking/2/abc/artifacts\"}}}", CKPT_ARG, "not of 1" },
        { "{\"run\":{\"info\":{\"run_id\":\"abc\",\"experiment_id\":\"1\",\"artifact_uri\":\"dbfs:/Volumes/a/b/c/x\"}}}", CKPT_UNSUPPORTED, "dbfs:/Volumes/a/b/c/x" },
        { "{}", CKPT_NET, "describe" }, { "{\"run\":7}", CKPT_NET, "describe" },
    };
    for (int i = 0; i < UTIL_COUNT(runs); i++) {
        const step get[] = { { 200, runs[i].body, NULL } };
        ckpt_store *s = MANAGED_MEET(get);
        is(rest_put(s, "x", "hello", true, NULL), runs[i].e);
        sentence_has(runs[i].word);
        rest_part(s);
    }
    rest_clear_env();
}

// Ranks that are given, and that the environment knows nothing of: none of them asks the server to make a run.
static void test_given_ranks(void **state) {
    (void)state;
    static const char *const uris[] = { "dbfs:/databricks/mlflow-tracking/" OPEN "/ckpt/latest", "dbfs:/databricks/mlflow-tracking/7/{mlflow_run_id}/artifacts/ckpt",
        "mlflow-artifacts:/" OPEN "/ckpt" };
    ckpt_ranks ranks;
    memset(&ranks, 0, sizeof ranks);
    ranks.world_size = 2;
    setenv("DATABRICKS_HOST", server.url, 1);
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    for (int i = 0; i < UTIL_COUNT(uris); i++) {
        ckpt_saver *saver = NULL;
        ckpt_uploader *u = NULL;
        ckpt_state st;
        ckpt_saver_desc d;
        ckpt_load_desc l;
        ckpt_uploader_desc ud;
        memset(&st, 0, sizeof st);
        memset(&d, 0, sizeof d);
        memset(&l, 0, sizeof l);
        memset(&ud, 0, sizeof ud);
        d.ranks = l.ranks = ud.ranks = ranks;
        d.state = l.state = &st;
        d.run_name = "run";
        d.folder = l.load_path = ud.bucket_uri = uris[i];
        setenv("MLFLOW_TRACKING_URI", i < 2 ? "databricks" : server.url, 1);
        (void)script_begin(NULL, 0);
        is(ckpt_saver_open(&saver, &d), CKPT_ARG);
        sentence_has("MLFLOW_RUN_ID");
        is(ckpt_load(&l, NULL), CKPT_ARG);
        sentence_has("MLFLOW_RUN_ID");
        is(ckpt_uploader_open(&u, &ud), CKPT_ARG);
        sentence_has("MLFLOW_RUN_ID");
        assert_int_equal(requests(), 0);
    }
    rest_clear_env();
}

//-- the proxy ---------------------------------------------------------------------

#define FILES(list) "{\"files\":[" list "]}"
#define FILE_(name, size) "{\"path\":\"" name "\",\"is_dir\":false,\"file_size\":" size "}"
#define DIR_(name) "{\"path\":\"" name "\",\"is_dir\":true}"

static void test_proxy(void **state) {
    (void)state;
    ckpt__store_stat info;
    static const step steps[] = { { 200, "{}", NULL }, { 200, FILES(FILE_("x y", "\"5\"") "," DIR_("d")), NULL }, { 200, FILES(FILE_("b", "7")), NULL }, { 200, "{}", NULL },
        { 200, FILES(DIR_("x")), NULL }, { 200, FILES(FILE_("c", "4")), NULL }, { 200, "{}", NULL }, { 200, FILES(DIR_("folder")), NULL } };
    ckpt_store *s = PROXY_MEET(steps);
    is(rest_put(s, "a/x y", "hello", true, NULL), CKPT_OK);
    assert_string_equal(script.list[0].method, "PUT");
    assert_string_equal(script.list[0].target, "/api/2.0/mlflow-artifacts/artifacts/1/abc/artifacts/pre/a/x%20y");
    assert_string_equal(script.list[1].target, "/api/2.0/mlflow-artifacts/artifacts?path=1%2Fabc%2Fartifacts%2Fpre%2Fa");
    is(rest_stat(s, "b", &info), CKPT_OK);
    assert_int_equal(info.size, 7);
    is(rest_stat(s, "x", &info), CKPT_NOT_FOUND);
    is(rest_stat(s, "x", &info), CKPT_NOT_FOUND);                   // a folder is none
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_remove(s, "c", &t), CKPT_OK);
    assert_string_equal(script.list[6].method, "DELETE");
    is(ckpt__store_run_remove(s, "folder", &t), CKPT_NOT_FOUND);    // which the server would remove with all that is in it
    rest_part(s);
    static const char *const bad[] = { "a#b", "a%20b", "../x", "/x", "a//b", "x\n" };
    s = proxy_with(NULL, 0);
    for (int i = 0; i < UTIL_COUNT(bad); i++) is(rest_put(s, bad[i], "x", true, NULL), CKPT_ARG);
    rest_part(s);
    static const struct { step put, list; ckpt_err e; bool again; const char *word; } rows[] = {
        { { 200, "{}", NULL }, { 200, FILES(FILE_("x", "4")), NULL }, CKPT_CORRUPT, true, "has kept 4" },
        { { 200, "{}", NULL }, { 200, "{}", NULL }, CKPT_CORRUPT, true, "not there" },
        { { 404, SAYS("RESOURCE_DOES_NOT_EXIST", "x"), NULL }, { -1, NULL, NULL }, CKPT_UNSUPPORTED, false, "passes no artifacts on" },
        { { 404, "<html>Not Found</html>", NULL }, { -1, NULL, NULL }, CKPT_NET, true, "is it the right server?" },
        { { 501, SAYS("NOT_IMPLEMENTED", "x"), NULL }, { -1, NULL, NULL }, CKPT_UNSUPPORTED, false, "501" },
        { { 401, "Unauthorized", NULL }, { -1, NULL, NULL }, CKPT_AUTH, false, "run out" },
        { { 500, SAYS("INTERNAL_ERROR", "401 Client Error: Unauthorized for url"), NULL }, { -1, NULL, NULL }, CKPT_AUTH, false, "401 Client" },
        { { 500, "<h1>Internal Server Error</h1>", NULL }, { -1, NULL, NULL }, CKPT_NET, true, "500" },
        { { 503, SAYS("TEMPORARILY_UNAVAILABLE", ""), "Retry-After: 9\r\n" }, { -1, NULL, NULL }, CKPT_NET, true, "503" },
        { { 413, "too large", NULL }, { -1, NULL, NULL }, CKPT_ARG, false, "413" },
        { { 409, SAYS("RESOURCE_CONFLICT", "it changes"), NULL }, { -1, NULL, NULL }, CKPT_NET, true, "it changes" },
        { { 409, "it is there", NULL }, { -1, NULL, NULL }, CKPT_NET, true, "409" },        // nobody asked that it must not be
        { { 302, "", "Location: https://sso/\r\n" }, { -1, NULL, NULL }, CKPT_NET, true, "log in" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const step two[] = { rows[i].put, rows[i].list };
        s = proxy_with(two, rows[i].list.status < 0 ? 1 : 2);
        ckpt_err e = rest_put(s, "x", "hello", true, NULL);
        if (e != rows[i].e || t.transient != rows[i].again || !has(ckpt_last_error(), rows[i].word)) fail_msg("%d: %s %s", i, ckpt_err_name(e), ckpt_last_error());
        rest_part(s);
    }
    rest_clear_env();
}

static void test_proxy_list(void **state) {
    (void)state;
    static const step steps[] = { { 200, FILES(DIR_("b") "," FILE_("a", "1")), NULL }, { 200, FILES(FILE_("c", "2")), NULL } };
    ckpt_store *s = PROXY_MEET(steps);
    is(rest_list(s, ""), CKPT_OK);
    assert_string_equal(the_list, "a=1\nb/c=2\n");
    rest_part(s);
    static const char *const hostile[] = { "[]", "<html>login</html>", "{\"files\":7}", FILES("7"), FILES(FILE_("../x", "1")), FILES(FILE_("..", "1")),
        FILES(FILE_("a/b", "1")),
        FILES(FILE_("", "1")), FILES(FILE_("a", "-1")), FILES(FILE_("a", "\"x\"")), FILES(FILE_("a\\u0000b", "1")), FILES(DIR_(".")), "{\"files\":[" };
    for (int i = 0; i < UTIL_COUNT(hostile); i++) {
        const step one[] = { { 200, hostile[i], "Content-Type: text/html\r\n" } };
        s = PROXY_MEET(one);
        ckpt_err e = rest_list(s, "");
        if (e != CKPT_NET && e != CKPT_CORRUPT) fail_msg("%s: %s", hostile[i], ckpt_err_name(e));
        assert_string_equal(the_list, "");
        rest_part(s);
    }
    // Folders in themselves, for ever.
    step deep[100];
    for (int i = 0; i < 100; i++) { deep[i].status = 200; deep[i].body = FILES(DIR_("d")); deep[i].headers = NULL; }
    s = proxy_with(deep, 66);
    is(rest_list(s, ""), CKPT_NET);
    sentence_has("too deep");
    rest_part(s);
    rest_clear_env();
}

static void test_fetch(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x");
    static const step steps[] = { { 200, FILES(FILE_("x", "5")), NULL }, { 200, "hello", NULL }, { 200, FILES(FILE_("x", "5")), NULL }, { 200, "hell", NULL },
        { 200, FILES(FILE_("x", "5")), NULL }, { 200, "hello!", NULL }, { 200, FILES(""), NULL }, { 200, FILES(FILE_("x", "0")), NULL },
        { 200, FILES(FILE_("x", "6")), NULL }, { 200, FILES(FILE_("x", "5")), NULL }, { 200, "hello", NULL } };
    ckpt_store *s = PROXY_MEET(steps);
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_OK);
    assert_string_equal(util_read(path, NULL), "hello");
    (void)unlink(path);
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_CORRUPT);
    assert_true(t.transient);
    assert_false(util_exists(path));
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_CORRUPT);      // more than its list says
    assert_true(t.transient);
    assert_false(util_exists(path));
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_NOT_FOUND);
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_OK);           // empty
    assert_true(util_exists(path));
    (void)unlink(path);
    ckpt__transfer_begin(&t);
    t.most = 5;
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_CORRUPT);      // nothing of what is too long is fetched
    assert_false(t.transient);
    assert_false(util_exists(path));
    is(ckpt__store_run_fetch(s, "x", path, &t), CKPT_OK);
    t.most = 0;
    rest_part(s);
    rest_clear_env();
}

// That this machine cannot write the file is told apart from what the server says.
static void test_fetch_unheld(void **state) {
    (void)state;
    static const step steps[] = { { 200, FILES(FILE_("x", "5")), NULL }, { 200, FILES(FILE_("x", "5")), NULL }, { 200, "hello", NULL },
        { 200, FILES(FILE_("x", "5")), NULL }, { 500, SAYS("INTERNAL_ERROR", "no"), NULL } };
    const char *dir = util_temp_dir();
    ckpt_store *s = PROXY_MEET(steps);
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_fetch(s, "x", util_join(dir, "none/x"), &t), CKPT_NOT_FOUND);
    assert_true(t.unheld);
    for (int i = 0; i < 2; i++) {
        ckpt__retry retry;
        ckpt__fetch f;
        memset(&retry, 0, sizeof retry);
        memset(&f, 0, sizeof f);
        retry.num_attempts = 1;
        f.store = s;
        f.name = "x";
        f.destination = util_join(dir, "x");
        f.retry = &retry;
        if (i == 0) fault_arm_call("pwrite", EIO, 1);
        is(ckpt__fetch_run(&f), i == 0 ? CKPT_IO : CKPT_NET);
        if (i == 0) assert_true(fault_disarm());
        assert_int_equal(f.unheld, i == 0);
    }
    assert_string_equal(util_list(dir), "");
    rest_part(s);
    rest_clear_env();
}

//-- parts -------------------------------------------------------------------------

typedef struct multi { ckpt__store_multi m; ckpt__store_part part[2]; ckpt__buf id; } multi;

static void multi_init(multi *u, const char *id) {
    memset(u, 0, sizeof *u);
    u->m.name = "d/big";
    u->m.size = 10;
    u->m.overwrite = true;
    u->m.t = &t;
    u->m.parts = u->part;
    u->m.part_count = 2;
    u->m.upload_id = id;
    ckpt__buf_init(&u->id, NULL);
    ckpt__transfer_begin(&t);
}

static ckpt_err begin(ckpt_store *s, multi *u) {
    ckpt_err e = ckpt__store_run_begin(s, &u->m, &u->id);
    u->m.upload_id = ckpt__buf_cstr(&u->id);
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

static ckpt_err count_part(const ckpt__store_part *p, void *user) {
    *(int *)user += p->number;
    return CKPT_OK;
}

#define MPU "{\"upload_id\":\"up1\",\"credentials\":[{\"url\":\"@/c?n=2&" SIGNATURE "\",\"part_number\":2,\"headers\":{}}," \
    "{\"url\":\"@/c?n=1&" SIGNATURE "\",\"part_number\":1,\"headers\":{\"x-h\":\"v\"}}]}"

static ckpt_store *parts_with(const step *steps, int count) {
    setenv("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "true", 1);
    setenv("MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE", "10", 1);
    ckpt_store *s = proxy_with(steps, count);
    s->min_part = s->best_part = 5;
    return s;
}
#define PARTS_MEET(steps) parts_with(steps, UTIL_COUNT(steps))

static void test_proxy_parts(void **state) {
    (void)state;
    multi u;
    int sum = 0;
    static const step steps[] = { { 200, MPU, NULL }, { 200, "", "ETag: \"e2\"\r\n" }, { 200, "", "ETag: \"e1\"\r\n" }, { 200, "{}", NULL }, { 200,
        FILES(FILE_("big", "10")), NULL } };
    ckpt_store *s = PARTS_MEET(steps);
    multi_init(&u, NULL);
    is(begin(s, &u), CKPT_OK);
    assert_string_equal(script.list[0].target, "/api/2.0/mlflow-artifacts/mpu/create/1/abc/artifacts/pre/d");
    assert_string_equal(script.list[0].body, "{\"path\":\"big\",\"num_parts\":2}");
    is(part(s, &u, 2), CKPT_OK);
    assert_string_equal(script.list[1].target, "/c?n=2&" SIGNATURE);
    assert_string_equal(header_of(1, "authorization"), "");
    is(part(s, &u, 1), CKPT_OK);
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_OK);
    assert_int_equal(sum, 3);
    is(ckpt__store_run_complete(s, &u.m), CKPT_OK);
    char want[2000];
    rest_fill(want, sizeof want, "{\"path\":\"big\",\"upload_id\":\"up1\",\"parts\":[{\"part_number\":1,\"etag\":\"\\\"e1\\\"\",\"url\":\"@/c?n=1&" SIGNATURE "\"},"
              "{\"part_number\":2,\"etag\":\"\\\"e2\\\"\",\"url\":\"@/c?n=2&" SIGNATURE "\"}]}");
    assert_string_equal(script.list[3].body, want);
    rest_part(s);
    ckpt__buf_free(&u.id);
    // Not offered, too small, hostile.
    static const struct { int status; const char *body; ckpt_err e; } begins[] = {
        { 501, SAYS("NOT_IMPLEMENTED", "Multipart upload is not supported"), CKPT_UNSUPPORTED }, { 404, "", CKPT_UNSUPPORTED }, { 503, "", CKPT_NET },
        { 200, "{\"upload_id\":\"x\",\"credentials\":[]}", CKPT_NET }, { 200,
            "{\"upload_id\":\"x\",\"credentials\":[{\"url\":\"@/\",\"part_number\":1},{\"url\":\"@/\",\"part_number\":1}]}", CKPT_NET },
        { 200, "{\"credentials\":[{},{}]}", CKPT_NET }, { 200,
            "{\"upload_id\":\"x\",\"credentials\":[{\"url\":\"ftp://h/\",\"part_number\":1},{\"url\":\"@/\",\"part_number\":2}]}", CKPT_NET },
    };
    for (int i = 0; i < UTIL_COUNT(begins); i++) {
        const step one[] = { { begins[i].status, begins[i].body, NULL } };
        s = PARTS_MEET(one);
        multi_init(&u, NULL);
        is(begin(s, &u), begins[i].e);
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
    s = parts_with(NULL, 0);
    multi_init(&u, NULL);
    u.m.size = 9;
    is(begin(s, &u), CKPT_UNSUPPORTED);
    ckpt__buf_free(&u.id);
    is(ckpt__store_run_parts(s, (multi_init(&u, "of another process"), &u.m), count_part, &sum), CKPT_NOT_FOUND);
    rest_part(s);
    // An address that has run out ends the upload: they are given once.
    static const step late[] = { { 200, MPU, NULL }, { 403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", NULL }, { 200, "{}", NULL } };
    s = PARTS_MEET(late);
    multi_init(&u, NULL);
    is(begin(s, &u), CKPT_OK);
    is(part(s, &u, 1), CKPT_NOT_FOUND);
    assert_false(t.transient);
    is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[2].body, "{\"path\":\"big\",\"upload_id\":\"up1\"}");
    is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
    rest_part(s);
    ckpt__buf_free(&u.id);
    rest_clear_env();
}

static ckpt_err complete(ckpt_store *s, multi *u) {
    ckpt__transfer_begin(&t);
    return ckpt__store_run_complete(s, &u->m);
}

#define SENT { 200, MPU, NULL }, { 200, "", "ETag: \"e1\"\r\n" }, { 200, "", "ETag: \"e2\"\r\n" }
#define BIG { 200, FILES(FILE_("big", "10")), NULL }
#define FULL(bytes) BIG, BIG, { 200, bytes, NULL }
#define FAILED { 500, "{}", NULL }
#define GONE { 404, SAYS("NOT_FOUND", "no such upload"), NULL }

// The end of an upload fails twice. There are neither sums nor ranges: what is there is ours when all of it, read back, has the sum
// of what was sent. One that is only as long is the one before.
static void test_proxy_ends(void **state) {
    (void)state;
    static const step before[] = { SENT, FAILED, FAILED, FULL("xxxxxxxxxx"), FAILED, FULL("0123456789") };
    static const step gone[] = { SENT, FAILED, GONE, FULL("012345678x") };
    static const step shorter[] = { SENT, FAILED, FAILED, { 200, FILES(FILE_("big", "9")), NULL } };
    static const step ours[] = { SENT, FAILED, FAILED, FULL("0123456789"), BIG };
    static const step busy[] = { SENT, FAILED, GONE, { 503, "", NULL }, GONE, BIG, BIG, { 503, "", NULL }, GONE,
        FULL("0123456789") };
    static const step unseen[] = { SENT, { 200, "{}", NULL }, { 503, "", NULL }, BIG };
    static const struct { const step *steps; int count; ckpt_err ends[4]; } rows[] = {
        { before, UTIL_COUNT(before), { CKPT_NET, CKPT_NET, CKPT_OK } }, { gone, UTIL_COUNT(gone), { CKPT_NET, CKPT_NOT_FOUND } },
        { shorter, UTIL_COUNT(shorter), { CKPT_NET, CKPT_NET } }, { ours, UTIL_COUNT(ours), { CKPT_NET, CKPT_OK, CKPT_OK } },
        { busy, UTIL_COUNT(busy), { CKPT_NET, CKPT_NET, CKPT_NET, CKPT_OK } },      // it cannot be looked at, nor read, for a while
        { unseen, UTIL_COUNT(unseen), { CKPT_NET, CKPT_OK } },                      // it was acknowledged: nothing is read
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        multi u;
        ckpt_store *s = parts_with(rows[i].steps, rows[i].count);
        multi_init(&u, NULL);
        is(begin(s, &u), CKPT_OK);
        for (int k = 1; k <= 2; k++) is(part(s, &u, k), CKPT_OK);
        for (int k = 0; k == 0 || (k < 4 && requests() < script.count); k++) {
            is(complete(s, &u), rows[i].ends[k]);
            assert_true(t.transient == (rows[i].ends[k] == CKPT_NET));
        }
        rest_part(s);
        ckpt__buf_free(&u.id);
    }
    rest_clear_env();
}

//-- Databricks --------------------------------------------------------------------

#define CREDENTIAL(key, type, url) "{\"" key "\":[{\"run_id\":\"abc\",\"signed_uri\":\"" url "\",\"type\":\"" type "\",\"headers\":[{\"name\":\"x-h\",\"value\":\"v\"}]}]}"
#define WHERE(name, size) FILES("{\"path\":\"pre/" name "\",\"is_dir\":false,\"file_size\":" size "}")

static void test_managed(void **state) {
    (void)state;
    static const step aws[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/s3?" SIGNATURE), NULL }, { 200, "", NULL }, { 200,
        WHERE("x", "5"), NULL } };
    ckpt_store *s = MANAGED_MEET(aws);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_OK);
    assert_string_equal(script.list[1].target, "/api/2.0/mlflow/artifacts/credentials-for-write");
    assert_string_equal(script.list[1].body, "{\"run_id\":\"abc\",\"path\":[\"pre/x\"]}");
    assert_string_equal(script.list[2].target, "/s3?" SIGNATURE);
    assert_string_equal(header_of(2, "authorization"), "");
    assert_string_equal(header_of(2, "x-h"), "v");
    assert_string_equal(script.list[3].target, "/api/2.0/mlflow/artifacts/list?path=pre&run_id=abc");
    rest_part(s);
    static const step azure[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?" SIGNATURE), NULL }, { 201, "", NULL }, { 200,
        WHERE("x", "5"), NULL } };
    s = MANAGED_MEET(azure);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_OK);
    assert_string_equal(header_of(2, "x-ms-blob-type"), "BlockBlob");
    rest_part(s);
    static const step adls[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_ADLS_GEN2_SAS_URI", "@/lake?" SIGNATURE), NULL }, { 201, "",
        NULL }, { 202, "", NULL }, { 200, "", NULL },
        { 200, WHERE("x", "5"), NULL } };
    s = MANAGED_MEET(adls);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_OK);
    assert_string_equal(script.list[2].target, "/lake?" SIGNATURE "&resource=file");
    assert_string_equal(script.list[3].method, "PATCH");
    assert_string_equal(script.list[3].target, "/lake?" SIGNATURE "&action=append&position=0");
    assert_string_equal(script.list[4].target, "/lake?" SIGNATURE "&action=flush&position=5");
    rest_part(s);
    static const step busy[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?" SIGNATURE), NULL },
        { 409, "<Error><Code>BlobAlreadyExists</Code></Error>", NULL } };
    s = MANAGED_MEET(busy);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_NET);
    assert_true(t.transient);
    rest_part(s);
    static const struct { const char *body; ckpt_err e; } hostile[] = {
        { "{}", CKPT_NET }, { CREDENTIAL("credential_infos", "FLOPPY", "@/x"), CKPT_UNSUPPORTED }, { CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL",
            "http://example.com/x"), CKPT_NET },
        { "{\"credential_infos\":[7]}", CKPT_UNSUPPORTED }, { "{\"credential_infos\":{}}", CKPT_NET },
    };
    for (int i = 0; i < UTIL_COUNT(hostile); i++) {
        const step two[] = { { 200, RUN, NULL }, { 200, hostile[i].body, NULL } };
        s = MANAGED_MEET(two);
        is(rest_put(s, "x", "hello", true, NULL), hostile[i].e);
        rest_part(s);
    }
    // Reading: one address for several ranges, another when it is refused, and versions as the cloud tells them.
    char out[16];
    ckpt__store_stat info;
    static const step read[] = { { 200, RUN, NULL }, { 200, WHERE("x", "5"), NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r1?" SIGNATURE), NULL },
        { 206, "h", "Content-Range: bytes 0-0/5\r\nETag: \"v1\"\r\n" }, { 206, "el", "Content-Range: bytes 1-2/5\r\nETag: \"v1\"\r\n" },
        { 403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL",
            "@/r2?" SIGNATURE), NULL },
        { 206, "el", "Content-Range: bytes 1-2/5\r\nETag: \"v1\"\r\n" }, { 206, "el", "Content-Range: bytes 1-2/5\r\nETag: \"v2\"\r\n" },
        { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r3?" SIGNATURE), NULL }, { 403, "<Error><Code>AccessDenied</Code></Error>", NULL }, { 200,
            WHERE("x", "5"), NULL },
        { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r4?" SIGNATURE), NULL }, { 404, "<Error><Code>NoSuchKey</Code></Error>", NULL } };
    s = MANAGED_MEET(read);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_string_equal(info.etag, "\"v1\"");
    is(rest_get(s, "x", info.etag, 1, out, 2), CKPT_OK);
    assert_string_equal(out, "el");
    assert_string_equal(script.list[4].target, "/r1?" SIGNATURE);
    is(rest_get(s, "x", info.etag, 1, out, 2), CKPT_OK);
    assert_string_equal(script.list[7].target, "/r2?" SIGNATURE);
    is(rest_get(s, "x", info.etag, 1, out, 2), CKPT_CORRUPT);
    assert_true(t.transient);
    is(rest_get(s, "y", NULL, 1, out, 2), CKPT_NOT_FOUND);                  // the cloud does not say so, the list does
    is(rest_get(s, "z", NULL, 1, out, 2), CKPT_NOT_FOUND);
    is(ckpt__store_run_remove(s, "x", &t), CKPT_UNSUPPORTED);
    rest_part(s);
    // A list in pages; a file that is asked for as a folder is its own list.
    static const step pages[] = { { 200, RUN, NULL }, { 200, "{\"files\":[{\"path\":\"pre/d\",\"is_dir\":true}],\"next_page_token\":\"2\"}", NULL }, { 200,
        FILES("{\"path\":\"pre/a\",\"is_dir\":false,\"file_size\":3}"), NULL },
        { 200, FILES("{\"path\":\"pre/d\",\"is_dir\":false,\"file_size\":3},{\"path\":\"pre/d/e\",\"is_dir\":false,\"file_size\":4}"), NULL } };
    s = MANAGED_MEET(pages);
    is(rest_list(s, ""), CKPT_OK);
    assert_string_equal(the_list, "a=3\nd/e=4\n");
    assert_string_equal(script.list[2].target, "/api/2.0/mlflow/artifacts/list?page_token=2&path=pre&run_id=abc");
    rest_part(s);
    rest_clear_env();
}

// Where a folder's list is long, nothing behind its first page is asked for: neither to see that an upload has arrived, nor whether
// there is an object. What the cloud refuses, and what is empty, the whole list tells.
static void test_managed_long(void **state) {
    (void)state;
    ckpt__store_stat info;
#define PAGE(next) { 200, "{\"files\":[{\"path\":\"pre/a\",\"is_dir\":false,\"file_size\":3}],\"next_page_token\":\"" next "\"}", NULL }
#define WRITE { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/w?" SIGNATURE), NULL }, { 200, "", NULL }
#define SIGNED { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r?" SIGNATURE), NULL }
#define FIRST(size) { 206, "h", "Content-Range: bytes 0-0/" size "\r\nETag: \"v1\"\r\n" }
#define REFUSED { 403, "<Error><Code>AccessDenied</Code></Error>", NULL }
#define EMPTY { 416, "<Error><Code>InvalidRange</Code></Error>", NULL }
    static const step put[] = { { 200, RUN, NULL }, WRITE, PAGE("2"), PAGE("2"), SIGNED, FIRST("5") };
    static const step shorter[] = { { 200, RUN, NULL }, WRITE, PAGE("2"), PAGE("2"), SIGNED, FIRST("4") };
    static const step refused[] = { { 200, RUN, NULL }, WRITE, PAGE("2"), PAGE("2"), SIGNED, REFUSED, PAGE("2"), { 200, WHERE("x", "5"), NULL },
        PAGE("2"), { 200, WHERE("x", "4"), NULL } };
    static const struct { const step *steps; int count; ckpt_err e; const char *word; } puts_[] = {
        { put, UTIL_COUNT(put), CKPT_OK, "" }, { shorter, UTIL_COUNT(shorter), CKPT_CORRUPT, "has kept 4" },
        { refused, UTIL_COUNT(refused), CKPT_CORRUPT, "has kept 4" } };
    for (int i = 0; i < UTIL_COUNT(puts_); i++) {
        ckpt_store *s = managed_with(puts_[i].steps, puts_[i].count);
        is(rest_put(s, "x", "hello", true, NULL), puts_[i].e);
        if (puts_[i].e != CKPT_OK) sentence_has(puts_[i].word);
        rest_part(s);
    }
    static const step there[] = { { 200, RUN, NULL }, PAGE("2"), SIGNED, FIRST("5") };
    static const step absent[] = { { 200, RUN, NULL }, PAGE("2"), SIGNED, { 404, "<Error><Code>NoSuchKey</Code></Error>", NULL } };
    static const step hidden[] = { { 200, RUN, NULL }, PAGE("2"), SIGNED, REFUSED, PAGE("2"), { 200, FILES(""), NULL } };
    static const step closed[] = { { 200, RUN, NULL }, PAGE("2"), SIGNED, REFUSED, PAGE("2"), { 200, WHERE("x", "5"), NULL } };
    static const step empty[] = { { 200, RUN, NULL }, PAGE("2"), SIGNED, EMPTY, PAGE("2"), { 200, WHERE("x", "0"), NULL } };
    static const step sizeless[] = { { 200, RUN, NULL }, PAGE("2"), SIGNED, FIRST("*"), PAGE("2"), { 200, WHERE("x", "5"), NULL } };
    static const struct { const step *steps; int count; ckpt_err e; uint64_t size; const char *etag; } stats[] = {
        { there, UTIL_COUNT(there), CKPT_OK, 5, "\"v1\"" }, { absent, UTIL_COUNT(absent), CKPT_NOT_FOUND, 0, "" },
        { hidden, UTIL_COUNT(hidden), CKPT_NOT_FOUND, 0, "" }, { closed, UTIL_COUNT(closed), CKPT_AUTH, 0, "" },
        { empty, UTIL_COUNT(empty), CKPT_OK, 0, "" }, { sizeless, UTIL_COUNT(sizeless), CKPT_OK, 5, "\"v1\"" } };
    for (int i = 0; i < UTIL_COUNT(stats); i++) {
        ckpt_store *s = managed_with(stats[i].steps, stats[i].count);
        is(rest_stat(s, "x", &info), stats[i].e);
        assert_false(t.transient);
        if (stats[i].e == CKPT_OK) assert_int_equal(info.size, stats[i].size);
        if (stats[i].e == CKPT_OK) assert_string_equal(info.etag, stats[i].etag);
        rest_part(s);
    }
    rest_clear_env();
}

// An object that has become shorter since it was looked at is fetched anew, however the cloud says that its end is not there.
static void test_managed_shrinks(void **state) {
    (void)state;
    char out[16];
    const char *path = util_join(util_temp_dir(), "x");
    static const step steps[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r?" SIGNATURE), NULL },
        { 416, "<Error><Code>InvalidRange</Code></Error>", "Content-Range: bytes */3\r\n" },
        { 200, WHERE("x", "5"), NULL }, { 206, "h", "Content-Range: bytes 0-0/5\r\n" }, { 416, "<Error><Code>InvalidRange</Code></Error>", NULL },
        { 200, WHERE("x", "3"), NULL }, { 206, "n", "Content-Range: bytes 0-0/3\r\n" }, { 206, "new", "Content-Range: bytes 0-2/3\r\n" } };
    ckpt_store *s = MANAGED_MEET(steps);
    is(rest_get(s, "x", NULL, 3, out, 2), CKPT_CORRUPT);
    assert_true(t.transient);
    is(ckpt_store_get(s, "x", path, false), CKPT_OK);
    assert_string_equal(util_read(path, NULL), "new");
    rest_part(s);
    rest_clear_env();
}

#define LAKE(query) { 200, CREDENTIAL("credential_infos", "AZURE_ADLS_GEN2_SAS_URI", "@/lake?" query SIGNATURE), NULL }
#define LAKE_SAYS(code, more) "{\"error\":{\"code\":\"" code "\",\"message\":\"Server failed, says it.\\nRequestId:1\"" more "}}"
#define EXPIRED { 403, LAKE_SAYS("AuthenticationFailed", ",\"detail\":{\"AuthenticationErrorDetail\":\"Signature not valid in the specified time frame: Start [Thu, " \
        "19 Nov 2026 09:00:00 GMT] - Expiry [Thu, 19 Nov 2026 10:00:00 GMT] - Current [Thu, 19 Nov 2026 10:00:07 GMT]\"}"), NULL }
#define EXPIRED_XML { 403, "<Error><Code>AuthenticationFailed</Code><Message>Signature expired</Message></Error>", NULL }

static ckpt_err no_bytes(void *dst, size_t size, uint64_t offset, void *user) {
    (void)dst, (void)size, (void)offset, (void)user;
    return ckpt__error_set(CKPT_IO, "the first byte is read");
}

// Clouds without parts: to a lake the bytes go piece by piece, by another address once the first has run out; to Google Cloud in one
// request, however many they are, which S3 and Azure refuse.
static void test_managed_whole(void **state) {
    (void)state;
    static const step adls[] = { { 200, RUN, NULL }, LAKE("a=1&"), { 201, "", NULL }, { 202, "", NULL }, EXPIRED, LAKE("a=2&"), { 202, "", NULL }, { 202, "", NULL },
        { 200, "", NULL }, { 200, WHERE("x", "5"), NULL } };
    static const struct { int at; const char *query, *body; } asked[] = { { 3, "a=1&" SIGNATURE "&action=append&position=0", "he" },
        { 4, "a=1&" SIGNATURE "&action=append&position=2", "ll" }, { 6, "a=2&" SIGNATURE "&action=append&position=2", "ll" },
        { 7, "a=2&" SIGNATURE "&action=append&position=4", "o" }, { 8, "a=2&" SIGNATURE "&action=flush&position=5", "" } };
    ckpt_store *s = MANAGED_MEET(adls);
    s->best_part = 2;
    is(rest_put(s, "x", "hello", true, NULL), CKPT_OK);
    for (int i = 0; i < UTIL_COUNT(asked); i++) {
        assert_string_equal(script.list[asked[i].at].target + strlen("/lake?"), asked[i].query);
        assert_string_equal(script.list[asked[i].at].body, asked[i].body);
    }
    rest_part(s);
    static const step late[] = { { 200, RUN, NULL }, LAKE(""), { 201, "", NULL }, EXPIRED };
    static const step later[] = { { 200, RUN, NULL }, LAKE(""), { 201, "", NULL }, EXPIRED_XML };
    static const step lossy[] = { { 200, RUN, NULL }, LAKE(""), { 201, "", NULL }, { 202, "", NULL }, { 400, LAKE_SAYS("InvalidFlushPosition", ""), NULL } };
    for (int i = 0; i < 3; i++) {
        s = i == 0 ? MANAGED_MEET(late) : i == 1 ? MANAGED_MEET(later) : MANAGED_MEET(lossy);
        s->best_part = 2;
        is(rest_put(s, "x", "hello", true, NULL), CKPT_NET);
        assert_true(t.transient);
        rest_part(s);
    }
    // An upload begins with the question for parts; of one that goes whole the sum is taken before anything else is asked.
    static const step google[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "GCP_SIGNED_URL", "@/gs?" SIGNATURE), NULL } };
    static const step lake[] = { { 200, RUN, NULL }, LAKE("") };
    static const step amazon[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/s3?" SIGNATURE), NULL },
        { 501, SAYS("NOT_IMPLEMENTED", ""), NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/s3?" SIGNATURE), NULL } };
    static const struct { const step *steps; int count; ckpt_err e; const char *word; } clouds[] = {
        { google, UTIL_COUNT(google), CKPT_IO, "the first byte is read" }, { lake, UTIL_COUNT(lake), CKPT_IO, "the first byte is read" },
        { amazon, UTIL_COUNT(amazon), CKPT_UNSUPPORTED, "5000 MiB" },
    };
    for (int i = 0; i < UTIL_COUNT(clouds); i++) {
        ckpt__send up;
        memset(&up, 0, sizeof up);
        up.name = "x";
        up.overwrite = true;
        up.has_crc = clouds[i].e == CKPT_IO;
        up.body.read = no_bytes;
        up.body.fd = -1;
        up.body.size = ((uint64_t)5000 << 20) + 1;
        up.store = s = managed_with(clouds[i].steps, clouds[i].count);
        is(ckpt__send_run(&up), clouds[i].e);
        sentence_has(clouds[i].word);
        rest_part(s);
    }
    rest_clear_env();
}

// In a lake a file is there, without bytes, before it is put, and stays so when that breaks off: that is nobody's after a day, and what must not
// replace fills it. A real one is not touched. The flush has another address too once the first has run out.
static void test_managed_lake(void **state) {
    (void)state;
    ckpt__store_stat info;
#define HOLLOW { 200, WHERE("x", "0"), NULL }
#define HOLDS(size) { 200, WHERE("x", size), NULL }
#define NONE { 200, FILES(""), NULL }
#define MADE { 201, "", NULL }
#define TAKEN { 202, "", NULL }
#define SHOWN { 200, "", NULL }
#define IN_THE_WAY { 409, LAKE_SAYS("PathAlreadyExists", ""), NULL }
    static const step tells[] = { { 200, RUN, NULL }, HOLLOW, LAKE("r=1&"), HOLLOW };
    ckpt_store *s = MANAGED_MEET(tells);
    for (int i = 0; i < 2; i++) {
        is(rest_stat(s, "x", &info), CKPT_OK);
        assert_true(info.hollow && info.size == 0);
    }
    rest_part(s);
    static const step other[] = { { 200, RUN, NULL }, HOLLOW, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r?" SIGNATURE), NULL } };
    s = MANAGED_MEET(other);
    is(rest_stat(s, "x", &info), CKPT_OK);
    assert_false(info.hollow);
    rest_part(s);
    // Who may not read there, or whose server signs nothing for it, is told that it is empty.
    static const step refuses[] = { { 200, RUN, NULL }, HOLLOW, { 403, "{\"error_code\":\"PERMISSION_DENIED\",\"message\":\"no\"}", NULL } };
    static const step unknown[] = { { 200, RUN, NULL }, HOLLOW, { 200, CREDENTIAL("credential_infos", "SOME_CLOUD", "@/r?" SIGNATURE), NULL } };
    for (int i = 0; i < 2; i++) {
        s = i == 0 ? MANAGED_MEET(refuses) : MANAGED_MEET(unknown);
        is(rest_stat(s, "x", &info), CKPT_OK);
        assert_true(!info.hollow && info.size == 0);
        rest_part(s);
    }
    // One that was begun long ago is nobody's any more, nor is what a dead process of this run has left; a young one is being put by another.
    // How old it is the cloud's clock tells.
    static char now[128], slow[192];
    time_t seconds = time(NULL) - 3600, past = seconds - 2 * 86400, then = past + 3600;
    struct tm utc;
    assert_true(strftime(now, sizeof now, "Last-Modified: %a, %d %b %Y %H:%M:%S GMT\r\nETag: \"0x2\"\r\n", gmtime_r(&seconds, &utc)) > 0);
    size_t n = strftime(slow, sizeof slow, "Last-Modified: %a, %d %b %Y %H:%M:%S GMT\r\nETag: \"0x2\"\r\n", gmtime_r(&past, &utc));
    assert_true(strftime(slow + n, sizeof slow - n, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime_r(&then, &utc)) > 0);
#define MET { 200, RUN, NULL }, HOLLOW, LAKE("r=1&"), LAKE(""), IN_THE_WAY, HOLLOW
#define OLD { 200, "", "Last-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\nETag: \"0x1\"\r\n" }
    static const step husk[] = { MET, LAKE("r=2&"), OLD, MADE, TAKEN, SHOWN, HOLDS("5") };
    static const step filled[] = { MET, LAKE("r=2&"), OLD, { 412, "<Error><Code>ConditionNotMet</Code></Error>", NULL } };
    static const step young[] = { MET, LAKE("r=2&"), { 200, "", now } };
    static const step slower[] = { MET, LAKE("r=2&"), { 200, "", slow } };
    static const step ageless[] = { MET, LAKE("r=2&"), { 403, "", NULL } };
    static const step left[] = { MET, MADE, TAKEN, SHOWN, HOLDS("5") };
    static const step tried[] = { { 200, RUN, NULL }, NONE, LAKE(""), MADE, { 503, "", NULL }, LAKE(""), IN_THE_WAY, HOLLOW, MADE, TAKEN, SHOWN, HOLDS("5") };
    static const step held[] = { { 200, RUN, NULL }, NONE, LAKE(""), { 409, LAKE_SAYS("LeaseIdMissing", ""), NULL }, LAKE(""), MADE, TAKEN, SHOWN, HOLDS("5") };
    static const step raced[] = { { 200, RUN, NULL }, NONE, LAKE(""), IN_THE_WAY, HOLDS("5") };
    static const step theirs[] = { { 200, RUN, NULL }, HOLDS("7"), LAKE("r=1&"), { 206, "h", "Content-Range: bytes 0-0/7\r\n" } };
    static const step blind[] = { { 200, RUN, NULL }, NONE, LAKE(""), IN_THE_WAY, { 404, "", NULL }, HOLDS("7"), LAKE("r=1&"), { 206, "h", "Content-Range: bytes 0-0/7\r\n" } };
    // The flush was answered for a server that went on with it: what is there then is compared.
#define FLUSHED { 200, RUN, NULL }, NONE, LAKE(""), MADE, TAKEN, { 500, "", NULL }, LAKE(""), IN_THE_WAY, HOLDS("5"), HOLDS("5"), LAKE("r=1&"), \
        { 206, "h", "Content-Range: bytes 0-0/5\r\n" }
    static const step ours[] = { FLUSHED, { 206, "hello", "Content-Range: bytes 0-4/5\r\n" } };
    static const step others[] = { FLUSHED, { 206, "hullo", "Content-Range: bytes 0-4/5\r\n" } };
    static const step replaces[] = { { 200, RUN, NULL }, LAKE(""), MADE, TAKEN, SHOWN, HOLDS("5") };
    static const struct { const step *steps; int count; bool overwrite; ckpt_err e; int made; bool inherited; } sends[] = {
        { husk, UTIL_COUNT(husk), false, CKPT_OK, 4, false }, { filled, UTIL_COUNT(filled), false, CKPT_EXISTS, 4, false },
        { young, UTIL_COUNT(young), false, CKPT_EXISTS, 4, false }, { slower, UTIL_COUNT(slower), false, CKPT_EXISTS, 4, false },
        { ageless, UTIL_COUNT(ageless), false, CKPT_EXISTS, 4, false },
        { left, UTIL_COUNT(left), false, CKPT_OK, 4, true }, { tried, UTIL_COUNT(tried), false, CKPT_OK, 3, false },
        { held, UTIL_COUNT(held), false, CKPT_OK, 3, false }, { raced, UTIL_COUNT(raced), false, CKPT_EXISTS, 3, false },
        { theirs, UTIL_COUNT(theirs), false, CKPT_EXISTS, 0, false }, { blind, UTIL_COUNT(blind), false, CKPT_EXISTS, 3, false },
        { replaces, UTIL_COUNT(replaces), true, CKPT_OK, 0, false },
        { ours, UTIL_COUNT(ours), false, CKPT_OK, 7, false }, { others, UTIL_COUNT(others), false, CKPT_EXISTS, 7, false } };
    ckpt__retry retry = ckpt__retry_default;
    retry.initial_backoff = 0.01;
    for (int i = 0; i < UTIL_COUNT(sends); i++) {
        ckpt__send up;
        memset(&up, 0, sizeof up);
        up.name = "x";
        up.overwrite = sends[i].overwrite;
        up.inherited = sends[i].inherited;
        up.body = ckpt__body_of("hello", 5);
        up.retry = &retry;
        up.store = s = managed_with(sends[i].steps, sends[i].count);
        is(ckpt__send_run(&up), sends[i].e);
        if (sends[i].made > 0) assert_string_equal(header_of(sends[i].made, "if-none-match"), "*");
        if (i == 0) assert_string_equal(script.list[7].method, "HEAD");
        if (i <= 1) assert_string_equal(header_of(8, "if-match"), "\"0x1\"");
        if (i == 0) assert_string_equal(header_of(8, "if-none-match"), "");
        if (sends[i].inherited) assert_string_equal(header_of(6, "if-none-match"), "");
        if (sends[i].steps == young || sends[i].steps == slower) assert_non_null(strstr(ckpt_last_error(), "less than a day"));
        if (sends[i].overwrite) assert_string_equal(header_of(2, "if-none-match"), "");
        rest_part(s);
    }
    // Whatever it says: an address that was good for the bytes and is refused then is asked for again, once.
#define LATE { 200, RUN, NULL }, LAKE("a=1&"), MADE, TAKEN
    static const step late[] = { LATE, EXPIRED, LAKE("a=2&"), SHOWN, HOLDS("5") };
    static const step dumb[] = { LATE, { 403, "", "x-ms-error-code: AuthenticationFailed\r\n" }, LAKE("a=2&"), SHOWN, HOLDS("5") };
    static const step barred[] = { LATE, { 403, "", NULL }, LAKE("a=2&"), { 403, "", "x-ms-error-code: AuthorizationPermissionMismatch\r\n" } };
    for (int i = 0; i < 3; i++) {
        s = i == 0 ? MANAGED_MEET(late) : i == 1 ? MANAGED_MEET(dumb) : MANAGED_MEET(barred);
        is(rest_put(s, "x", "hello", true, NULL), i < 2 ? CKPT_OK : CKPT_AUTH);
        if (i == 2) sentence_has("403 AuthorizationPermissionMismatch");
        assert_string_equal(script.list[6].target, "/lake?a=2&" SIGNATURE "&action=flush&position=5");
        rest_part(s);
    }
    // A link without bytes is looked at again.
    static const step link[] = { { 200, RUN, NULL }, { 200, WHERE("l.symlink", "0"), NULL }, LAKE("r=1&"), { 200, WHERE("l.symlink", "1"), NULL },
        { 206, "x", "Content-Range: bytes 0-0/1\r\n" }, { 206, "x", "Content-Range: bytes 0-0/1\r\n" }, HOLDS("5"), LAKE("r=3&"), { 206, "h", "Content-Range: bytes 0-0/5\r\n" } };
    ckpt__buf target;
    ckpt__buf_init(&target, NULL);
    s = MANAGED_MEET(link);
    is(ckpt__fetch_resolve(s, "l.symlink", &target, &info, &retry), CKPT_OK);
    assert_string_equal(target.data, "x");
    ckpt__buf_free(&target);
    rest_part(s);
    rest_clear_env();
}

static void test_managed_parts(void **state) {
    (void)state;
    multi u;
    int sum = 0;
    static const step aws[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/w?" SIGNATURE), NULL },
        { 200, "{\"upload_id\":\"up/1\",\"abort_credential_info\":{\"signed_uri\":\"@/abort?" SIGNATURE "\",\"type\":\"AWS_PRESIGNED_URL\"}}", NULL },
        { 200, "{\"upload_credential_info\":{\"signed_uri\":\"@/p1?" SIGNATURE "\",\"type\":\"AWS_PRESIGNED_URL\"}}", NULL }, { 200, "", "ETag: \"e1\"\r\n" },
        { 200, "{}", NULL }, { 200, FILES("{\"path\":\"pre/d/big\",\"is_dir\":false,\"file_size\":10}"), NULL } };
    ckpt_store *s = MANAGED_MEET(aws);
    s->min_part = s->best_part = 5;
    multi_init(&u, NULL);
    is(begin(s, &u), CKPT_OK);
    assert_string_equal(u.m.upload_id, "aws up/1");
    assert_string_equal(script.list[2].body, "{\"run_id\":\"abc\",\"path\":\"pre/d/big\",\"num_parts\":2}");
    is(part(s, &u, 1), CKPT_OK);
    assert_string_equal(script.list[3].target, "/api/2.0/mlflow/artifacts/get-presigned-upload-part-url?part_number=1&path=pre%2Fd%2Fbig&run_id=abc&upload_id=up%2F1");
    u.m.part_count = 1;
    is(ckpt__store_run_complete(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[5].body, "{\"run_id\":\"abc\",\"path\":\"pre/d/big\",\"upload_id\":\"up/1\",\"part_etags\":[{\"part_number\":1,"
        "\"etag\":\"\\\"e1\\\"\"}]}");
    rest_part(s);
    ckpt__buf_free(&u.id);
    static const step abort_[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/w?" SIGNATURE), NULL },
        { 200, "{\"upload_id\":\"up/1\",\"abort_credential_info\":{\"signed_uri\":\"@/abort?" SIGNATURE "\",\"type\":\"AWS_PRESIGNED_URL\"}}", NULL }, { 204, "", NULL } };
    s = MANAGED_MEET(abort_);
    multi_init(&u, NULL);
    is(begin(s, &u), CKPT_OK);
    is(ckpt__store_run_abort(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[3].method, "DELETE");
    is(part(s, &u, 1), CKPT_NOT_FOUND);
    ckpt__buf_free(&u.id);
    is(ckpt__store_run_abort(s, (multi_init(&u, "aws other"), &u.m)), CKPT_UNSUPPORTED);
    rest_part(s);
    // Azure: blocks by our own names, so that another process goes on with them.
    static const step azure[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?" SIGNATURE), NULL }, { 200,
        CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?" SIGNATURE), NULL },
        { 201, "", NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?" SIGNATURE), NULL }, { 201, "", NULL }, { 200,
            FILES("{\"path\":\"pre/d/big\",\"is_dir\":false,\"file_size\":10}"), NULL } };
    s = MANAGED_MEET(azure);
    multi_init(&u, NULL);
    is(begin(s, &u), CKPT_OK);
    assert_true(ckpt__txt_starts(u.m.upload_id, "azure ") && strlen(u.m.upload_id) == 38);
    is(part(s, &u, 1), CKPT_OK);
    assert_true(ckpt__txt_starts(script.list[3].target, "/az?" SIGNATURE "&comp=block&blockid="));
    u.m.part_count = 1;
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_OK);
    assert_int_equal(sum, 1);
    is(ckpt__store_run_complete(s, &u.m), CKPT_OK);
    assert_string_equal(script.list[5].target, "/az?" SIGNATURE "&comp=blocklist");
    assert_true(has(script.list[5].body, u.part[0].etag));
    rest_part(s);
    ckpt__buf_free(&u.id);
    static const step gcp[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "GCP_SIGNED_URL", "@/g?" SIGNATURE), NULL } };
    s = MANAGED_MEET(gcp);
    multi_init(&u, NULL);
    is(begin(s, &u), CKPT_UNSUPPORTED);
    rest_part(s);
    ckpt__buf_free(&u.id);
    rest_clear_env();
}

// The end of an upload whose reply says nothing: what is there counts, not that something of that size is.
#define LINK(n) { 200, "{\"upload_credential_info\":{\"signed_uri\":\"@/p" n "?" SIGNATURE "\",\"type\":\"AWS_PRESIGNED_URL\"}}", NULL }
#define BEGUN { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/w?" SIGNATURE), NULL }, { 200, "{\"upload_id\":\"up/1\"}", NULL }, \
    LINK("1"), { 200, "", "ETag: \"e1\"\r\n" }, LINK("2"), { 200, "", "ETag: \"e2\"\r\n" }
#define THERE { 200, FILES("{\"path\":\"pre/d/big\",\"is_dir\":false,\"file_size\":10}"), NULL }
#define READ { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r?" SIGNATURE), NULL }
#define BYTES(text, range) { 206, text, "Content-Range: bytes " range "/10\r\n" }

static ckpt_store *begun_with(const step *steps, int count, multi *u) {
    ckpt_store *s = managed_with(steps, count);
    s->min_part = s->best_part = 5;
    multi_init(u, NULL);
    is(begin(s, u), CKPT_OK);
    is(part(s, u, 1), CKPT_OK);
    is(part(s, u, 2), CKPT_OK);
    return s;
}
#define BEGUN_MEET(steps, u) begun_with(steps, UTIL_COUNT(steps), u)

static void test_managed_ends(void **state) {
    (void)state;
    multi u;
    int sum = 0;
    // Refused twice by a server that is down, over a file of the same size: nothing has been done.
    static const step down[] = { BEGUN, { 500, "{}", NULL }, { 500, "{}", NULL }, THERE, READ, BYTES("xxxxx", "0-4") };
    ckpt_store *s = BEGUN_MEET(down, &u);
    for (int i = 0; i < 2; i++) is(complete(s, &u), CKPT_NET);
    assert_true(t.transient);
    rest_part(s);
    ckpt__buf_free(&u.id);
    // It is gone then: another's file of the same size is not ours, and what we have sent is.
    static const step other[] = { BEGUN, { 500, "{}", NULL }, GONE, THERE, READ, BYTES("01234", "0-4"), BYTES("xxxxx", "5-9") };
    s = BEGUN_MEET(other, &u);
    is(complete(s, &u), CKPT_NET);
    is(complete(s, &u), CKPT_NOT_FOUND);
    rest_part(s);
    ckpt__buf_free(&u.id);
    static const step ours[] = { BEGUN, { 500, "{}", NULL }, GONE, THERE, READ, BYTES("01234", "0-4"), BYTES("56789", "5-9"), THERE };
    s = BEGUN_MEET(ours, &u);
    is(complete(s, &u), CKPT_NET);
    is(complete(s, &u), CKPT_OK);
    is(complete(s, &u), CKPT_OK);
    rest_part(s);
    ckpt__buf_free(&u.id);
    // An earlier process ended it, and died before its journal said so. Reading it back may fail for a while.
    static const step before[] = { GONE, { 200, RUN, NULL }, THERE, READ, { 503, "", NULL }, GONE, THERE, BYTES("01234", "0-4"), BYTES("56789", "5-9"), THERE };
    s = MANAGED_MEET(before);
    multi_init(&u, "aws up/1");
    for (int i = 0; i < 2; i++) {
        u.part[i].number = i + 1;
        u.part[i].size = 5;
        u.part[i].has_crc = true;
        u.part[i].crc = ckpt__digest_crc32(0, i == 0 ? "01234" : "56789", 5);
    }
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_NET);
    assert_true(t.transient);
    ckpt__transfer_begin(&t);
    is(ckpt__store_run_parts(s, &u.m, count_part, &sum), CKPT_OK);
    assert_int_equal(sum, 3);
    is(complete(s, &u), CKPT_OK);
    rest_part(s);
    // The same of Azure, whose blocks are gone with the end.
    static const step azure[] = { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?" SIGNATURE), NULL },
        { 400, "<Error><Code>InvalidBlockList</Code></Error>", NULL }, THERE, READ, BYTES("01234", "0-4"), BYTES("56789", "5-9") };
    s = MANAGED_MEET(azure);
    u.m.upload_id = "azure 0123456789abcdef0123456789abcdef";
    is(complete(s, &u), CKPT_OK);
    rest_part(s);
    rest_clear_env();
}

// Ranges that begin side by side are each given an address, and keep it.
static void test_managed_links(void **state) {
    (void)state;
    static const step steps[] = { BYTES("el", "1-2") };
    ckpt_store *s = MANAGED_MEET(steps);
    char out[16];
    for (int i = 0; i < 2; i++) {
        ckpt__mlflow_link *l = &ckpt__mlflow_of(s)->links[i + 3];
        l->name = ckpt__mem_copy_text(&s->allocator, "x");
        l->until = ckpt__os_now() + 100.0;
        ckpt__buf_fmt(&l->link.url, "%s/r%d?" SIGNATURE, server.url, i);
        (void)ckpt__buf_cstr(&l->link.url);
        ckpt__fields_add(&l->link.headers, "x-h", "v");
    }
    is(rest_get(s, "x", NULL, 1, out, 2), CKPT_OK);
    assert_string_equal(script.list[0].target, "/r0?" SIGNATURE);
    assert_string_equal(header_of(0, "x-h"), "v");
    rest_part(s);
    rest_clear_env();
}

// A cloud that quotes what signs an address, with and without its name.
static void test_managed_quotes(void **state) {
    (void)state;
#define QUOTED(text) { { 200, RUN, NULL }, { 200, CREDENTIAL("credential_infos", "AZURE_SAS_URI", "@/az?se=2026-01-01T01%3A00%3A00Z&sig=ab%2BVerySecretValue012%2F34%3D"), \
        NULL }, { 403, "<Error><Code>AuthenticationFailed</Code><Message>" text "</Message></Error>", NULL } }
    static const step texts[][3] = { QUOTED("it is not ab+VerySecretValue012/34="), QUOTED("VerySecretValue012"), QUOTED("sig=ab%2BVerySecretValue012%2F34%3D") };
    for (int i = 0; i < UTIL_COUNT(texts); i++) {
        ckpt_store *s = MANAGED_MEET(texts[i]);
        is(rest_put(s, "x", "hello", true, NULL), CKPT_AUTH);
        sentence_has("403 AuthenticationFailed");
        rest_part(s);
    }
    static const step plain[] = QUOTED("at 2026-01-01T01:23:45Z");
    ckpt_store *s = MANAGED_MEET(plain);
    is(rest_put(s, "x", "hello", true, NULL), CKPT_AUTH);
    sentence_has("at 2026-01-01T01:23:45Z");
    rest_part(s);
    rest_clear_env();
}

// Each allocation fails in turn: no leak, no crash, CKPT_NOMEM.
static void no_memory(const char *uri, const step *steps, int count, bool parts, bool managed) {
    int wins = 0;
    for (int at = 1; at < 2000 && wins == 0; at++) {
        counting c = { 0, 0, at };
        ckpt_store *s = NULL;
        multi u;
        char out[8];
        int sum = 0;
        if (at % 100 == 1) { net_stop(&server); net_start(&server, on_request, NULL); }     // it has a limit of connections
        setenv("MLFLOW_TRACKING_URI", managed ? "databricks" : server.url, 1);
        setenv("DATABRICKS_HOST", server.url, 1);
        ckpt_store_desc d = script_begin(steps, count);
        d.allocator.fn = counting_fn;
        d.allocator.user = &c;
        d.logger.fn = NULL;
        ckpt_err e = ckpt_store_open(&s, uri, &d);
        if (e == CKPT_OK) s->min_part = s->best_part = 5;
        if (e == CKPT_OK) e = rest_put(s, "x", "hello", true, "m");
        if (e == CKPT_OK) e = rest_list(s, "");
        multi_init(&u, NULL);
        u.m.part_count = 1;
        if (e == CKPT_OK && parts) e = begin(s, &u);
        if (e == CKPT_OK && parts) e = part(s, &u, 1);
        if (e == CKPT_OK && parts && !managed) e = ckpt__store_run_parts(s, &u.m, count_part, &sum);
        if (e == CKPT_OK && parts) e = ckpt__store_run_complete(s, &u.m);
        if (e == CKPT_OK && managed) e = rest_get(s, "x", NULL, 0, out, 1);
        ckpt__buf_free(&u.id);
        ckpt_store_close(s);
        if (e == CKPT_OK && c.calls < at) wins++;
        else if (e != CKPT_NOMEM && !(e == CKPT_OK && c.calls >= at)) fail_msg("allocation %d: %s: %s", at, ckpt_err_name(e), ckpt_last_error());
        if (c.live != 0) fail_msg("allocation %d: %d blocks are left", at, c.live);
    }
    assert_int_equal(wins, 1);
}

static void test_no_memory(void **state) {
    (void)state;
    static const step proxy[] = { { 200, "{}", NULL }, { 200, FILES(FILE_("x", "5")), NULL }, { 200, FILES(FILE_("x", "5") "," DIR_("d")), NULL }, { 200, FILES(""),
        NULL }, { 200, MPU, NULL }, { 200, "", "ETag: x\r\n" },
        { 200, "{}", NULL }, { 200, FILES(FILE_("big", "10")), NULL } };
    rest_clear_env();
    setenv("MLFLOW_TRACKING_USERNAME", "user", 1);
    setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD, 1);
    setenv("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "true", 1);
    setenv("MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE", "10", 1);
    no_memory(PROXY, proxy, UTIL_COUNT(proxy), true, false);
    static const step managed[] = { { 200, "{\"experiment\":{\"experiment_id\":\"1\"}}", NULL }, { 200, RUN, NULL }, { 200, RUN, NULL }, { 200,
        CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/w"), NULL },
        { 200, "", NULL }, { 200, FILES("{\"path\":\"x\",\"file_size\":5}"), NULL }, { 200, FILES("{\"path\":\"x\",\"file_size\":5}"), NULL }, { 200,
            CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/w"), NULL },
        { 200, "{\"upload_id\":\"up/1\",\"abort_credential_info\":{\"signed_uri\":\"@/abort\",\"type\":\"AWS_PRESIGNED_URL\"}}", NULL },
        { 200, "{\"upload_credential_info\":{\"signed_uri\":\"@/p1\",\"type\":\"AWS_PRESIGNED_URL\"}}", NULL }, { 200, "", "ETag: \"e1\"\r\n" }, { 200, "{}", NULL },
        { 200, FILES("{\"path\":\"d/big\",\"file_size\":10}"), NULL }, { 200, CREDENTIAL("credential_infos", "AWS_PRESIGNED_URL", "@/r"), NULL }, { 206, "h",
            "Content-Range: bytes 0-0/5\r\n" } };
    rest_clear_env();
    setenv("DATABRICKS_TOKEN", TOKEN, 1);
    no_memory("dbfs:/databricks/mlflow-tracking/" OPEN "/", managed, UTIL_COUNT(managed), true, true);
    rest_clear_env();
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_path), cmocka_unit_test(test_settings), cmocka_unit_test(test_runs), cmocka_unit_test(test_given_ranks), cmocka_unit_test(test_proxy),
        cmocka_unit_test(test_proxy_list), cmocka_unit_test(test_fetch), cmocka_unit_test(test_fetch_unheld), cmocka_unit_test(test_proxy_parts), cmocka_unit_test(test_proxy_ends),
        cmocka_unit_test(test_managed), cmocka_unit_test(test_managed_lake),
        cmocka_unit_test(test_managed_whole), cmocka_unit_test(test_managed_parts), cmocka_unit_test(test_managed_ends),
        cmocka_unit_test(test_managed_links), cmocka_unit_test(test_managed_shrinks),
        cmocka_unit_test(test_managed_long), cmocka_unit_test(test_managed_quotes), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, rest_set_up, script_tear_down);
}
