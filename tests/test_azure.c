/* test_azure.c: what azure:// signs, sends and makes of replies, good, bad and hostile, by a scripted server in the process; and
   which store libcloud:// stands for.
   run.sh: remote tsan-long */
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"
#include "counting.h"
#define KEY "dmVyeVNlY3JldEtleU9mT3Vycw=="
#define SIGNATURE "c2lnbmF0dXJl"
#define SAS "sv=2021-12-02&sr=c&sp=rwdl&se=2026-12-01T00%3A00%3A00Z&sig=" SIGNATURE "%3D"
#define SCRIPT_NUMBER "x-ms-request-id: N1\r\n"
#define SCRIPT_SECRETS KEY, "verySecretKey", SIGNATURE
#include "script_util.h"

static ckpt_store *meet_with(const step *steps, int count, const char *sas) {
    ckpt_store_desc d = script_begin(steps, count);
    ckpt_store *s = NULL;
    d.endpoint_url = server.url;
    d.access_key_id = "account1";
    if (sas != NULL) d.session_token = sas;
    else d.secret_access_key = KEY;
    is(ckpt_store_open(&s, "azure://bucket/pre", &d), CKPT_OK);
    return s;
}
#define MEET(steps) meet_with(steps, UTIL_COUNT(steps), NULL)

static ckpt_err put(ckpt_store *s, const char *text, bool overwrite, const char *mark) {
    return put_by(s->table->put, s, "name", text, overwrite, mark);
}

static int set_up(void **state) {
    static const char *const names[] = { "AZURE_" };
    script_set_up(state);
    script_unset(names, UTIL_COUNT(names));
    return 0;
}

//-- signatures --------------------------------------------------------------------

static void test_vectors(void **state) {
    (void)state;
    size_t n;
    const char *text = util_read(util_tests_path("cases/azure_sharedkey.json"), &n);
    ckpt__json_doc d;
    is(ckpt__json_parse(&d, NULL, text, n), CKPT_OK);
    const ckpt__json *root = ckpt__json_root(&d);
    ckpt__azure s;
    char account[64];
    int done = 0;
    memset(&s, 0, sizeof s);
    snprintf(account, sizeof account, "%s", ckpt__json_get(&d, root, "account")->text);
    s.account = account;
    const char *key = ckpt__json_get(&d, root, "key_base64")->text;
    assert_true(ckpt__txt_unbase64(&s.key, key, strlen(key)));
    const ckpt__json *all = ckpt__json_get(&d, root, "vectors");
    for (const ckpt__json *v = ckpt__json_child(&d, all); v != NULL; v = ckpt__json_next(&d, v)) {
        ckpt__fields headers, query;
        ckpt__buf out;
        uint64_t length = 0;
        ckpt__fields_init(&headers, NULL);
        ckpt__fields_init(&query, NULL);
        ckpt__buf_init(&out, NULL);
        const ckpt__json *list = ckpt__json_get(&d, v, "headers");
        for (const ckpt__json *h = ckpt__json_child(&d, list); h != NULL; h = ckpt__json_next(&d, h)) {
            if (strcmp(h->key, "Content-Length") == 0) length = strtoull(h->text, NULL, 10);
            else ckpt__fields_add(&headers, h->key, h->text);
        }
        list = ckpt__json_get(&d, v, "query");
        for (const ckpt__json *q = ckpt__json_child(&d, list); q != NULL; q = ckpt__json_next(&d, q)) {
            const ckpt__json *name = ckpt__json_child(&d, q);
            ckpt__fields_add(&query, name->text, ckpt__json_next(&d, name)->text);
        }
        const char *method = ckpt__json_get(&d, v, "method")->text, *path = ckpt__json_get(&d, v, "path")->text;
        is(ckpt__azure_string_to_sign(&out, method, account, path, &query, &headers, length), CKPT_OK);
        assert_string_equal(ckpt__buf_cstr(&out), ckpt__json_get(&d, v, "string_to_sign")->text);
        is(ckpt__azure_sign(&s, &headers, method, path, &query, length), CKPT_OK);
        assert_string_equal(ckpt__fields_get(&headers, "Authorization"), ckpt__json_get(&d, v, "authorization")->text);
        ckpt__fields_free(&headers);
        ckpt__fields_free(&query);
        ckpt__buf_free(&out);
        done++;
    }
    assert_int_equal(done, 5);
    ckpt__buf_free(&s.key);
    ckpt__json_free(&d);
}

//-- settings ----------------------------------------------------------------------

typedef struct setting {
    const char *uri, *account, *key, *sas, *endpoint;       // of the descriptor
    const char *env[3][2];
    ckpt_err    e;
    const char *word;                   // of the sentence; else the address of blob "k"
} setting;

#define ENV_KEY { "AZURE_STORAGE_KEY", KEY }
static const setting settings[] = {
    { "azure://box/p/", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_OK, "https://acc.blob.core.windows.net/box/p/k" },
    { "AZURE_BLOBS://box/p", NULL, NULL, NULL, NULL, { { "AZURE_ACCOUNT_NAME", "composer" }, { "AZURE_ACCOUNT_ACCESS_KEY", KEY },
      { "AZURE_STORAGE_ACCOUNT", "other" } }, CKPT_OK, "https://composer.blob.core.windows.net/box/p/k" },
    { "azure://box", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_ACCOUNT", "azures" }, ENV_KEY }, CKPT_OK, "https://azures.blob.core.windows.net/box/k" },
    { "azure://box", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_ACCOUNT", "azures" }, { "AZURE_STORAGE_SAS_TOKEN", "?" SAS } }, CKPT_OK,
      "https://azures.blob.core.windows.net/box/k" },
    { "azure://box", "acc", NULL, "se=2026-01-01T00%3&sig=" SIGNATURE, NULL, { { NULL } }, CKPT_OK, "https://acc.blob.core.windows.net/box/k" },
    { "azure://box", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "DefaultEndpointsProtocol=https;AccountName=cs1;AccountKey=" KEY
      ";EndpointSuffix=core.usgovcloudapi.net" } }, CKPT_OK, "https://cs1.blob.core.usgovcloudapi.net/box/k" },
    { "azure://box", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint=https://cs2.blob.core.windows.net/;SharedAccessSignature=" SAS } },
      CKPT_OK, "https://cs2.blob.core.windows.net/box/k" },
    { "azure://box", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true" } }, CKPT_OK,
      "http://127.0.0.1:10000/devstoreaccount1/box/k" },
    { "azure://box@acc/p", NULL, KEY, NULL, NULL, { { NULL } }, CKPT_OK, "https://acc.blob.core.windows.net/box/p/k" },
    { "azure://box@acc.dfs.core.windows.net/p", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_OK, "https://acc.blob.core.windows.net/box/p/k" },
    { "azure://box", "acc", KEY, NULL, "http://10.0.0.7:10000", { { NULL } }, CKPT_OK, "http://10.0.0.7:10000/acc/box/k" },
    { "azure://box", "acc", KEY, NULL, "http://LocalHost:10000/acc/", { { NULL } }, CKPT_OK, "http://localhost:10000/acc/box/k" },
    { "azure://box", "acc", KEY, NULL, "https://blobs.example.com", { { NULL } }, CKPT_OK, "https://blobs.example.com/box/k" },
    { "azure://box", NULL, KEY, NULL, "https://named.blob.core.windows.net", { { NULL } }, CKPT_OK, "https://named.blob.core.windows.net/box/k" },
    { "azure://box", NULL, KEY, NULL, "http://127.0.0.1:10000/pathacc", { { NULL } }, CKPT_OK, "http://127.0.0.1:10000/pathacc/box/k" },
    { "azure://$root/x", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_OK, "https://acc.blob.core.windows.net/$root/x/k" },
    { "azure://box", "acc", KEY, NULL, NULL, { { "AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:7" } }, CKPT_OK, "http://127.0.0.1:7/acc/box/k" },
    { "azure://box@acc.Blob.Core.Windows.net/p", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_OK, "https://acc.blob.core.windows.net/box/p/k" },
    { "azure://box@acc.dfs.core.usgovcloudapi.net", NULL, KEY, NULL, "https://acc.blob.core.usgovcloudapi.net", { { NULL } }, CKPT_OK,
      "https://acc.blob.core.usgovcloudapi.net/box/k" },
    { "azure://box@acc.privatelink.blob.core.windows.net/p", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_OK, "https://acc.blob.core.windows.net/box/p/k" },
    { "azure://box@acc.z7.Blob.core.windows.net.:443", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_OK, "https://acc.blob.core.windows.net/box/k" },
    // refused
    { "azure://box@acc.core.windows.net.example.com:443", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_ARG, "another cloud" },
    { "azure://box@acc.dfs.core.usgovcloudapi.net/p", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_ARG, "https://acc.blob.SUFFIX" },
    { "azure://box@acc.dfs.core.windows.net.example.com/p", NULL, NULL, NULL, NULL, { ENV_KEY }, CKPT_ARG, "another cloud" },
    { "azure://box", NULL, NULL, NULL, NULL, { { NULL } }, CKPT_AUTH, "AZURE_ACCOUNT_NAME" },
    { "azure://box", "acc", NULL, NULL, NULL, { { NULL } }, CKPT_AUTH, "AZURE_STORAGE_SAS_TOKEN" },
    { "azure://box@acc", "other", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "account" },
    { "azure://box", "acc", NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "AccountName=cs1;AccountKey=" KEY } }, CKPT_ARG, "'acc'" },
    { "azure://box", "acc", NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "AccountName=cs1;AccountKey=" KEY } }, CKPT_ARG, "'cs1'" },
    { "azure://box@acc", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "AccountName=cs1;AccountKey=" KEY } }, CKPT_ARG, "'acc'" },
    { "azure://box", "cs1", NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "AccountName=cs1;AccountKey=" KEY } }, CKPT_OK,
      "https://cs1.blob.core.windows.net/box/k" },
    { "azure://", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "container" },
    { "azure://Box", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "container" },
    { "azure://box@user:" KEY "/p", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "no key" },
    { "azure://box/a/../b", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "'..'" },
    { "azure://box/a./b", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "ends in '.'" },
    { "azure://box/.a/b.c", "acc", KEY, NULL, NULL, { { NULL } }, CKPT_OK, "https://acc.blob.core.windows.net/box/.a/b.c/k" },
    { "azure://box", "acc", "not base64!", NULL, NULL, { { NULL } }, CKPT_ARG, "base64" },
    { "azure://box", "Not An Account", KEY, NULL, NULL, { { NULL } }, CKPT_ARG, "account" },
    { "azure://box", "acc", NULL, "sv=1&sp=r", NULL, { { NULL } }, CKPT_ARG, "SAS" },
    { "azure://box", "acc", NULL, SAS "\r\nX-Evil: 1", NULL, { { NULL } }, CKPT_ARG, "SAS" },
    { "azure://box", "acc", NULL, SAS "#x", NULL, { { NULL } }, CKPT_ARG, "SAS" },
    { "azure://box", "acc", KEY, NULL, "ftp://x", { { NULL } }, CKPT_ARG, "http" },
    { "azure://box", "acc", KEY, NULL, "https://x/?" SAS, { { NULL } }, CKPT_ARG, "SAS" },
    { "azure://box", "acc", KEY, NULL, "https://user:" KEY "@x", { { NULL } }, CKPT_ARG, "password" },
    { "azure://box", "acc", KEY, NULL, "https://a b", { { NULL } }, CKPT_ARG, "endpoint" },
    { "azure://box", NULL, NULL, NULL, NULL, { { "AZURE_STORAGE_CONNECTION_STRING", "AccountKey=" KEY ";gibberish" } }, CKPT_ARG, "Name=value" },
};

static void test_settings(void **state) {
    (void)state;
    for (int i = 0; i < UTIL_COUNT(settings); i++) {
        const setting *c = &settings[i];
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        memset(&d, 0, sizeof d);
        d.access_key_id = c->account;
        d.secret_access_key = c->key;
        d.session_token = c->sas;
        d.endpoint_url = c->endpoint;
        d.logger.fn = on_log;
        for (int k = 0; k < 3 && c->env[k][0] != NULL; k++) setenv(c->env[k][0], c->env[k][1], 1);
        ckpt_err e = ckpt_store_open(&s, c->uri, &d);
        for (int k = 0; k < 3 && c->env[k][0] != NULL; k++) unsetenv(c->env[k][0]);
        if (e != c->e) fail_msg("setting %d: %s: %s", i, ckpt_err_name(e), e != CKPT_OK ? ckpt_last_error() : "");
        if (e != CKPT_OK) {
            sentence_has(c->word);
            if (is_secret(ckpt_last_error())) fail_msg("setting %d shows a secret: %s", i, ckpt_last_error());
            continue;
        }
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        ckpt__buf_text(&b, ckpt__azure_of(s)->site);
        ckpt__azure_add_path(ckpt__azure_of(s), &b, "k");
        if (strcmp(ckpt__buf_cstr(&b), c->word) != 0) fail_msg("setting %d: %s", i, b.data);
        ckpt__buf_free(&b);
        ckpt_store_close(s);
    }
    assert_false(leaked);
}

//-- what is sent ------------------------------------------------------------------

static void test_put(void **state) {
    (void)state;
    static const step steps[] = { { 201, "ETag: \"0x1\"\r\nContent-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\n", NULL, 0 },
                                  { 201, "ETag: \"0x2\"\r\n", NULL, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 11 } };
    ckpt_store *s = MEET(steps);
    is(put(s, "hello world", false, "the-mark"), CKPT_OK);
    assert_int_equal(requests(), 1);            // the MD5 in the reply proves it: no HEAD
    assert_string_equal(script.list[0].target, "/account1/bucket/pre/name");
    assert_string_equal(header_of(0, "Content-MD5"), "XrY7u+Ae7tCTyyK7j1rNww==");
    assert_string_equal(header_of(0, "If-None-Match"), "*");
    assert_string_equal(header_of(0, "x-ms-blob-type"), "BlockBlob");
    assert_string_equal(header_of(0, "x-ms-version"), "2021-12-02");
    assert_string_equal(header_of(0, "x-ms-meta-ckpt_mark"), "the-mark");
    assert_string_equal(header_of(0, "x-ms-meta-ckpt_crc32"), "0d4a1185");
    assert_true(has(header_of(0, "Authorization"), "SharedKey account1:"));
    assert_string_equal(header_of(0, "expect"), "");
    is(put(s, "hello world", true, "m"), CKPT_OK);
    assert_int_equal(requests(), 3);
    assert_string_equal(header_of(1, "If-None-Match"), "");
    ckpt_store_close(s);
    static const step sassed[] = { { 201, "Content-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\n", NULL, 0 }, { 404, "x-ms-error-code: BlobNotFound\r\n", NULL, 0 } };
    ckpt__store_stat st;
    s = meet_with(sassed, 2, "?" SAS);
    is(put(s, "hello world", true, NULL), CKPT_OK);
    assert_string_equal(script.list[0].target, "/account1/bucket/pre/name?" SAS);
    assert_string_equal(header_of(0, "Authorization"), "");
    is(s->table->stat(s, "x", &st, &t), CKPT_NOT_FOUND);
    assert_false(is_secret(ckpt_last_error()));
    assert_false(leaked);
    assert_true(has(the_log, "PUT"));
    ckpt_store_close(s);
}

static void test_names(void **state) {
    (void)state;
    static const step steps[] = { { 200, NULL, NULL, 5 } };
    ckpt_store *s = MEET(steps);
    ckpt__store_stat st;
    char name[1100];
    is(s->table->stat(s, "a b/\xC3\xA9+%!*'()", &st, &t), CKPT_OK);
    assert_string_equal(script.list[0].target, "/account1/bucket/pre/a%20b/%C3%A9%2B%25%21%2A%27%28%29");
    memset(name, 'k', sizeof name);
    name[1021] = 0;                             // and "pre/"
    static const struct { const char *name, *word; } bad[] = { { NULL, "1024" }, { "\xff", "UTF-8" }, { "a/../b", "'..'" }, { "..", "'..'" },
        { "./x", "'.'" }, { "x/.", "'.'" }, { "a\\b", "'/'" }, { "a\nb", "control" }, { "foo.", "ends in '.'" },
        { "run./x", "ends in '.'" }, { "x/...", "ends in '.'" } };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        is(s->table->stat(s, bad[i].name != NULL ? bad[i].name : name, &st, &t), CKPT_ARG);
        sentence_has(bad[i].word);
    }
    assert_int_equal(requests(), 1);
    ckpt_store_close(s);
}

//-- refusals ----------------------------------------------------------------------

#define ERROR_XML(code, message) "\xEF\xBB\xBF<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>" message \
    "\nRequestId:1\nTime:2026</Message><AuthenticationErrorDetail>The MAC signature 'x' of " KEY "</AuthenticationErrorDetail></Error>"

static void test_refusals(void **state) {
    (void)state;
    static const struct { int status; const char *headers, *body; ckpt_err e; bool transient, throttled; const char *word; } cases[] = {
        { 503, "Retry-After: 7\r\n", ERROR_XML("ServerBusy", "busy"), CKPT_NET, true, true, "ServerBusy: busy" },
        { 429, NULL, "", CKPT_NET, true, true, "429" },
        { 500, NULL, ERROR_XML("OperationTimedOut", "slow"), CKPT_NET, true, true, "OperationTimedOut" },
        { 500, NULL, ERROR_XML("InternalError", "x"), CKPT_NET, true, false, "InternalError" },
        { 403, NULL, ERROR_XML("AuthenticationFailed", "wrong"), CKPT_AUTH, false, false, "AZURE_ACCOUNT_ACCESS_KEY" },
        { 403, "x-ms-error-code: AuthorizationPermissionMismatch\r\n", "", CKPT_AUTH, false, false, "sp=" },
        { 403, NULL, ERROR_XML("AuthorizationFailure", "see https://x?sig=" SIGNATURE), CKPT_AUTH, false, false, "network rules" },
        { 404, NULL, ERROR_XML("ContainerNotFound", "x"), CKPT_NOT_FOUND, false, false, "no container 'bucket'" },
        { 404, NULL, "", CKPT_NOT_FOUND, false, false, "no such container" },
        { 404, "Server: nginx\r\n", "<html>Not Found</html>", CKPT_NET, true, false, "no answer of Azure's: is the server behind http://127.0.0.1" },
        { 404, "Server: envoy\r\n", "", CKPT_NET, true, false, "no answer of Azure's" },
        { 400, NULL, ERROR_XML("Md5Mismatch", "x"), CKPT_CORRUPT, true, false, "changed on their way" },
        { 400, NULL, ERROR_XML("InvalidOperation", "Provided MD5 does not match"), CKPT_CORRUPT, true, false, "MD5" },
        { 400, NULL, ERROR_XML("InvalidHeaderValue", "x"), CKPT_NET, false, false, "InvalidHeaderValue" },
        { 409, NULL, ERROR_XML("InvalidBlobType", "x"), CKPT_ARG, false, false, "page blob" },
        { 412, NULL, ERROR_XML("LeaseIdMissing", "x"), CKPT_AUTH, false, false, "lease" },
        { 412, NULL, ERROR_XML("ConditionNotMet", "x"), CKPT_NET, true, false, "another writer" },
        { 307, "Location: http://evil.test/\r\n", "", CKPT_NET, true, false, "elsewhere" },
        { 400, NULL, "<Error><Code>&#0;</Code>", CKPT_NET, false, false, "400" },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        step one = { cases[i].status, cases[i].headers, cases[i].body, 0 };
        ckpt_store *s = meet_with(&one, 1, NULL);
        ckpt_err e = put(s, "hello world", true, "m");
        if (e != cases[i].e || t.transient != cases[i].transient || t.throttled != cases[i].throttled)
            fail_msg("case %d: %s %d %d: %s", i, ckpt_err_name(e), t.transient, t.throttled, ckpt_last_error());
        sentence_has(cases[i].word);
        if (is_secret(ckpt_last_error()) || has(ckpt_last_error(), "RequestId:")) fail_msg("case %d: %s", i, ckpt_last_error());
        if (i == 0) assert_true(t.retry_after >= 6.9);
        assert_int_equal(requests(), 1);
        ckpt_store_close(s);
    }
    step expired = { 403, NULL, ERROR_XML("AuthenticationFailed", "Signature not valid in the specified time frame"), 0 };
    ckpt_store *s = meet_with(&expired, 1, SAS);
    is(put(s, "x", true, NULL), CKPT_AUTH);
    sentence_has("until 2026-12-01T00:00:00Z");
    assert_false(is_secret(ckpt_last_error()));
    ckpt_store_close(s);
    assert_false(leaked);
}

static void test_clock(void **state) {
    (void)state;
    static const step steps[] = { { 403, "Date: Mon, 01 Jan 2001 10:00:00 GMT\r\n", ERROR_XML("AuthenticationFailed", "x"), 0 },
        { 201, "Content-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\n", NULL, 0 }, { 201, "Content-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\n", NULL, 0 } };
    ckpt_store *s = MEET(steps);
    uint64_t moved = 0;
    t.moved = &moved;
    is(put(s, "hello world", true, NULL), CKPT_OK);
    assert_int_equal(moved, 11);
    assert_true(has(header_of(1, "x-ms-date"), "Jan 2001 10:0"));
    assert_true(has(the_log, "clock"));
    is(put(s, "hello world", true, NULL), CKPT_OK);
    assert_true(has(header_of(2, "x-ms-date"), "Jan 2001 10:0"));
    ckpt_store_close(s);
    static const step again[] = { { 403, "Date: Mon, 01 Jan 2001 10:00:00 GMT\r\n", NULL, 0 }, { 403, "Date: Tue, 01 Jan 2002 10:00:00 GMT\r\n", NULL, 0 } };
    s = MEET(again);
    is(put(s, "hello world", true, NULL), CKPT_AUTH);
    sentence_has("ahead of");
    assert_int_equal(requests(), 2);
    ckpt_store_close(s);
}

// The reply of an upload that may only create was lost; or somebody else was first.
static void test_lost_replies(void **state) {
    (void)state;
    static const char exists[] = ERROR_XML("BlobAlreadyExists", "x");
    static const step ours[] = { { 409, NULL, exists, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 11 } };
    static const step theirs[] = { { 409, NULL, exists, 0 }, { 200, "x-ms-meta-ckpt_mark: other\r\n", NULL, 11 } };
    static const step raced[] = { { 412, NULL, ERROR_XML("ConditionNotMet", "x"), 0 }, { 200, NULL, NULL, 11 } };
    ckpt_store *s = MEET(ours);
    is(put(s, "hello world", false, "m"), CKPT_OK);
    ckpt_store_close(s);
    s = MEET(theirs);
    is(put(s, "hello world", false, "m"), CKPT_EXISTS);
    sentence_has("overwriting");
    ckpt_store_close(s);
    s = MEET(raced);
    is(put(s, "hello world", false, "m"), CKPT_EXISTS);
    ckpt_store_close(s);
    static const step cut[] = { { 0, NULL, NULL, 0 }, { 0, NULL, NULL, 0 } };
    s = MEET(cut);
    is(put(s, "hello world", true, "m"), CKPT_NET);
    assert_true(t.transient && t.unsure);
    ckpt_store_close(s);
    // The one that was carried out although it failed, and could not be looked at at once, is not somebody else's.
    static const step unseen[] = { { 500, NULL, NULL, 0 }, { 409, NULL, exists, 0 }, { 503, NULL, NULL, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 11 } };
    s = MEET(unseen);
    is(send_by(s, "name", "hello world", 11, 0, "m"), CKPT_OK);
    assert_int_equal(requests(), 4);
    ckpt_store_close(s);
    // Nor where a proxy says that there is none, of what the server has just refused it for.
    static const step proxy[] = { { 500, NULL, NULL, 0 }, { 409, NULL, exists, 0 }, { 404, NULL, NULL, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 11 } };
    s = MEET(proxy);
    is(send_by(s, "name", "hello world", 11, 0, "m"), CKPT_OK);
    assert_int_equal(requests(), 4);
    ckpt_store_close(s);
    static const step blind[] = { { 409, NULL, exists, 0 } };
    s = MEET(blind);                                        // of one that was refused at first nothing is there
    is(send_by(s, "name", "hello world", 11, 0, "m"), CKPT_NET);
    assert_true(sent.curable && !sent.unsure);
    ckpt_store_close(s);
    // Acknowledged, and not what is there.
    static const step less[] = { { 201, NULL, NULL, 0 }, { 200, NULL, NULL, 10 } };
    s = MEET(less);
    is(put(s, "hello world", true, "m"), CKPT_CORRUPT);
    sentence_has("11 bytes");
    ckpt_store_close(s);
}

//-- blocks ------------------------------------------------------------------------

typedef struct multi { ckpt__store_multi m; ckpt__store_part part[2]; ckpt__buf id; } multi;

static void multi_init(multi *u, bool overwrite) {
    memset(u, 0, sizeof *u);
    u->m.name = "big";
    u->m.size = 22;
    u->m.overwrite = overwrite;
    u->m.mark = "m";
    u->m.t = &t;
    u->m.parts = u->part;
    u->m.part_count = 2;
    u->m.upload_id = "0123456789abcdef0123456789abcdef";
    for (int i = 0; i < 2; i++) {
        u->part[i].number = i + 1;
        u->part[i].size = 11;
        ckpt__azure_block_name(u->part[i].etag, u->m.upload_id, i + 1, 0x0d4a1185);
    }
    ckpt__transfer_begin(&t);
}

static const char *block(int number, uint32_t crc, int size) {
    char name[65];
    ckpt__azure_block_name(name, "0123456789abcdef0123456789abcdef", number, crc);
    return util_fmt("<Block><Name>%s</Name><Size>%d</Size></Block>", name, size);
}

static const char *blocks(const char *a, const char *b, const char *c) {
    return util_fmt("<?xml version=\"1.0\"?><BlockList><CommittedBlocks /><UncommittedBlocks>%s%s%s</UncommittedBlocks></BlockList>", a, b, c);
}

static char listed[4096];

static ckpt_err on_part(const ckpt__store_part *part, void *user) {
    (void)user;
    size_t n = strlen(listed);
    snprintf(listed + n, sizeof listed - n, "%d %llu %08lx;", part->number, (unsigned long long)part->size, (unsigned long)part->crc);
    return CKPT_OK;
}

static void test_blocks(void **state) {
    (void)state;
    const char *alive = block(0, 0, 1), *dead = block(0, 0, 2), *one = block(1, 0x0d4a1185, 11), *two = block(2, 0x0d4a1185, 11);
    const step steps[] = {
        { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 },                                     // begin, part
        { 200, NULL, blocks(two, alive, one), 0 },                                          // parts
        { 200, NULL, blocks(alive, one, two), 0 }, { 201, NULL, NULL, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 22 },     // complete
        { 200, NULL, blocks(dead, one, two), 0 }, { 404, NULL, NULL, 0 },                   // complete of what was given up
        { 200, NULL, blocks(alive, one, ""), 0 }, { 404, NULL, NULL, 0 },                   // a block is missing
        { 404, NULL, NULL, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 22 },            // it was done, and its reply lost
        { 200, NULL, blocks("", "", ""), 0 },                                               // parts of what is gone
        { 200, NULL, "<BlockList><UncommittedBlocks>", 0 },                                 // damaged
        { 200, NULL, blocks(alive, "<Block><Name>QUJD</Name><Size>5</Size></Block>", "<Block><Name>?</Name><Size>-1</Size></Block>"), 0 },
        { 200, NULL, blocks(alive, one, two), 0 }, { 409, NULL, ERROR_XML("BlobAlreadyExists", "x"), 0 }, { 503, NULL, NULL, 0 } };
    ckpt_store *s = meet_with(steps, UTIL_COUNT(steps), NULL);
    multi u;
    ckpt__body b;
    multi_init(&u, true);
    ckpt__buf_init(&u.id, NULL);
    is(s->table->begin(s, &u.m, &u.id), CKPT_OK);
    assert_int_equal(u.id.len, 32);
    assert_true(has(script.list[0].target, "?blockid=") && has(script.list[0].target, "&comp=block"));
    ckpt__buf_free(&u.id);
    memset(&b, 0, sizeof b);
    b.memory = "hello world";
    b.size = 11;
    ckpt__store_part part;
    memset(&part, 0, sizeof part);
    part.number = 1;
    is(s->table->part(s, &u.m, &b, &part), CKPT_OK);
    assert_string_equal(part.etag, u.part[0].etag);
    assert_int_equal(part.crc, 0x0d4a1185);
    assert_string_equal(header_of(1, "Content-MD5"), "XrY7u+Ae7tCTyyK7j1rNww==");
    listed[0] = 0;
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_OK);
    assert_string_equal(listed, "1 11 0d4a1185;2 11 0d4a1185;");
    is(s->table->complete(s, &u.m), CKPT_OK);
    assert_true(has(script.list[4].body, util_fmt("<Uncommitted>%s</Uncommitted><Uncommitted>", u.part[0].etag)));
    assert_string_equal(header_of(4, "x-ms-meta-ckpt_mark"), "m");
    is(s->table->complete(s, &u.m), CKPT_NOT_FOUND);
    is(s->table->complete(s, &u.m), CKPT_NOT_FOUND);
    sentence_has("begin anew");
    is(s->table->complete(s, &u.m), CKPT_OK);
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NET);
    assert_true(t.transient);
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NET);
    u.m.overwrite = false;
    ckpt__transfer_begin(&t);
    is(s->table->complete(s, &u.m), CKPT_EXISTS);           // or ours, which could not be seen
    assert_true(t.unseen && !t.unsure);
    u.m.upload_id = "../../etc";
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    is(s->table->abort(s, &u.m), CKPT_OK);
    ckpt_store_close(s);
}

//-- reading -----------------------------------------------------------------------

static ckpt_err get(ckpt_store *s, const char *etag, uint64_t at, size_t n) {
    static char back[64];
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    k.memory = back;
    k.fd = -1;
    k.size = n;
    ckpt__transfer_begin(&t);
    return s->table->get(s, "name", etag, at, &k, &t);
}

// A portal answers all with 200 and a page.
static void test_portal(void **state) {
    (void)state;
    #define LOGIN { 200, "Content-Type: text/html; charset=utf-8\r\nServer: portal\r\n", "<html>Log in</html>", 0 }
    static const step steps[] = { LOGIN, LOGIN, LOGIN, LOGIN, LOGIN };
    ckpt__store_stat there;
    ckpt_store *s = MEET(steps);
    is(s->table->stat(s, "name", &there, &t), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    is(get(s, NULL, 0, 19), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    ckpt__transfer_begin(&t);
    is(s->table->remove(s, "name", &t), CKPT_NET);
    assert_true(t.transient);
    ckpt__transfer_begin(&t);
    is(put(s, "hello world", true, "m"), CKPT_NET);
    assert_true(t.transient);
    ckpt_store_close(s);
}

static void test_get(void **state) {
    (void)state;
    static const struct { step reply; const char *etag; ckpt_err e; bool transient; } cases[] = {
        { { 206, "Content-Range: bytes 2-6/11\r\nETag: \"0x1\"\r\n", "llo w", 0 }, "\"0x1\"", CKPT_OK, false },
        { { 206, "Content-Range: bytes 3-7/11\r\n", "lo wo", 0 }, NULL, CKPT_CORRUPT, true },
        { { 206, "Content-Range: bytes 2-6/11\r\nETag: \"0x2\"\r\n", "llo w", 0 }, "\"0x1\"", CKPT_CORRUPT, true },
        { { 206, "Content-Range: bytes 2-6/11\r\n", "llo", 0 }, NULL, CKPT_NET, true },
        { { 206, "Content-Range: bytes 2-6/11\r\n", "llo world", 0 }, NULL, CKPT_NET, true },
        { { 200, NULL, "hello world", 0 }, NULL, CKPT_UNSUPPORTED, false },
        { { 412, "x-ms-error-code: ConditionNotMet\r\n", NULL, 0 }, "\"0x1\"", CKPT_CORRUPT, true },
        { { 416, "x-ms-error-code: InvalidRange\r\n", NULL, 0 }, NULL, CKPT_CORRUPT, true },
        { { 404, "x-ms-error-code: BlobNotFound\r\n", NULL, 0 }, NULL, CKPT_NOT_FOUND, false },
        { { 302, "Location: http://evil.test/\r\n", NULL, 0 }, NULL, CKPT_NET, true },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt_store *s = meet_with(&cases[i].reply, 1, NULL);
        ckpt_err e = get(s, cases[i].etag, 2, 5);
        if (e != cases[i].e || (e != CKPT_OK && t.transient != cases[i].transient)) fail_msg("get %d: %s %d: %s", i, ckpt_err_name(e), t.transient, ckpt_last_error());
        assert_string_equal(header_of(0, "Range"), "bytes=2-6");
        assert_string_equal(header_of(0, "If-Match"), cases[i].etag != NULL ? cases[i].etag : "");
        ckpt_store_close(s);
    }
}

static ckpt_err on_object(const char *name, uint64_t size, void *user) {
    (void)user;
    size_t n = strlen(listed);
    snprintf(listed + n, sizeof listed - n, "%s=%llu;", name, (unsigned long long)size);
    return CKPT_OK;
}

#define LIST(inner, next) "\xEF\xBB\xBF<?xml version=\"1.0\"?><EnumerationResults ContainerName=\"x\"><Prefix>pre/</Prefix><Blobs>" inner \
    "</Blobs><NextMarker>" next "</NextMarker></EnumerationResults>"
#define BLOB(name, size) "<Blob><Name>" name "</Name><Properties><Content-Length>" size "</Content-Length></Properties></Blob>"

static ckpt_err list(ckpt_store *s) {
    listed[0] = 0;
    ckpt__transfer_begin(&t);
    return s->table->list(s, "k", on_object, NULL, &t);
}

static void test_lists(void **state) {
    (void)state;
    static const step pages[] = { { 200, NULL, LIST(BLOB("pre/k&amp;1", "1") BLOB("pre/k2", "2"), "mark &amp; 2"), 0 },
        { 200, NULL, LIST("<Blob><Name Encoded=\"true\">pre/k%EF%BF%BF</Name><Properties><Content-Length>3</Content-Length></Properties></Blob>", ""), 0 } };
    ckpt_store *s = MEET(pages);
    is(list(s), CKPT_OK);
    assert_string_equal(listed, "k&1=1;k2=2;k\xEF\xBF\xBF=3;");
    assert_string_equal(script.list[0].target, "/account1/bucket?comp=list&include=metadata&maxresults=5000&prefix=pre%2Fk&restype=container");
    assert_true(has(script.list[1].target, "marker=mark%20%26%202&"));
    ckpt_store_close(s);
    static const char *const bad[] = { LIST(BLOB("other/k", "1"), ""), LIST(BLOB("pre/k", "-1"), ""), LIST(BLOB("pre/k", ""), ""),
        LIST(BLOB("pre/k&#0;", "1"), ""), LIST(BLOB("pre/k&bomb;", "1"), ""), "<EnumerationResults><Blobs>", "", "nothing", "<html><body>log in</body></html>", "<Error/>",
        "<!DOCTYPE x [<!ENTITY a \"aa\">]><EnumerationResults/>", LIST(BLOB("pre/k", "99999999999999999999"), "") };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        step one = { 200, NULL, bad[i], 0 };
        s = meet_with(&one, 1, NULL);
        if (list(s) != CKPT_NET) fail_msg("list %d: %s", i, listed);
        ckpt_store_close(s);
    }
    step round[SEEN_MAX];
    for (int i = 0; i < SEEN_MAX; i++) round[i] = (step){ 200, NULL, i % 2 == 0 ? LIST("", "a") : LIST("", "b"), 0 };
    s = meet_with(round, SEEN_MAX, NULL);
    is(list(s), CKPT_NET);
    sentence_has("no end");
    assert_true(requests() < 20);
    ckpt_store_close(s);
}

// An account with levels (Data Lake) lists and shows its directories, and Hadoop's tools leave stubs of them elsewhere: none is a blob.
static void test_directories(void **state) {
    (void)state;
    #define ENTRY(name, size, more, meta) "<Blob><Name>" name "</Name><Properties><Content-Length>" size "</Content-Length>" more "</Properties>" meta "</Blob>"
    static const step pages[] = { { 200, NULL, LIST(
        ENTRY("pre/k1", "0", "<ResourceType>directory</ResourceType>", "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>")
        ENTRY("pre/k1/f", "7", "<ResourceType>file</ResourceType>", "<Metadata><ckpt_mark>m</ckpt_mark></Metadata>")
        ENTRY("pre/k2", "0", "", "<Metadata><Hdi_isfolder>True</Hdi_isfolder></Metadata>")
        ENTRY("pre/k3", "0", "", "<Metadata><ResourceType>directory</ResourceType></Metadata>")
        ENTRY("pre/k4", "9", "", "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>")
        ENTRY("pre/k5", "0", "", "<Metadata />"), ""), 0 } };
    ckpt_store *s = MEET(pages);
    is(list(s), CKPT_OK);
    assert_string_equal(listed, "k1/f=7;k3=0;k4=9;k5=0;");
    ckpt_store_close(s);
    static const step heads[] = { { 200, "x-ms-resource-type: directory\r\n", NULL, 0 }, { 200, "x-ms-meta-hdi_isfolder: true\r\n", NULL, 0 },
        { 200, "x-ms-resource-type: file\r\n", NULL, 3 }, { 200, "x-ms-meta-hdi_isfolder: true\r\n", NULL, 3 },
        { 409, "x-ms-error-code: DirectoryIsNotEmpty\r\n", NULL, 0 } };
    ckpt__store_stat st;
    s = MEET(heads);
    for (int i = 0; i < 4; i++) {
        is(s->table->stat(s, "k", &st, &t), i < 2 ? CKPT_NOT_FOUND : CKPT_OK);
        if (i < 2) sentence_has("directory");
        else assert_int_equal(st.size, 3);
    }
    is(s->table->remove(s, "k", &t), CKPT_NOT_FOUND);
    sentence_has("directory");
    ckpt_store_close(s);
}

static ckpt_err on_upload(const char *name, const char *id, double started, void *user) {
    (void)user;
    size_t n = strlen(listed);
    snprintf(listed + n, sizeof listed - n, "%s %s %.0f;", name, id, started);
    return CKPT_OK;
}

static void test_uploads(void **state) {
    (void)state;
    const step steps[] = { { 200, NULL, LIST(BLOB("pre/k", "0") BLOB("pre/full", "5") BLOB("pre/gone", "0"), ""), 0 },
        { 200, NULL, blocks(block(0, 0, 1), block(1, 2, 9), ""), 0 }, { 404, NULL, NULL, 0 },
        // given up: the sign gets two bytes, then the block one
        { 200, NULL, blocks(block(0, 0, 1), block(1, 2, 9), ""), 0 }, { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 } };
    ckpt_store *s = meet_with(steps, UTIL_COUNT(steps), NULL);
    multi u;
    multi_init(&u, true);
    listed[0] = 0;
    is(s->table->uploads(s, "", on_upload, NULL, &t), CKPT_OK);
    assert_string_equal(listed, util_fmt("k 0123456789abcdef0123456789abcdef %lu;", 0x01234567ul));
    assert_true(has(script.list[0].target, "include=uncommittedblobs"));
    is(s->table->abort(s, &u.m), CKPT_OK);
    assert_int_equal(script.list[4].size, 2);
    assert_int_equal(script.list[5].size, 1);
    is(s->table->complete(s, &u.m), CKPT_NOT_FOUND);
    ckpt_store_close(s);
}

// A SAS that may write but not read can neither resume an upload in blocks nor look whether it is whole before the end: the object goes
// whole, and that is known before its bytes are on their way.
static void test_rights(void **state) {
    (void)state;
    #define WITH(rights) "sv=2021-12-02&sr=c" rights "&sig=" SIGNATURE "%3D"
    #define MISMATCH "x-ms-error-code: AuthorizationPermissionMismatch\r\n"
    static const struct { const char *sas; ckpt_err e; const char *word; int requests; step steps[3]; } cases[] = {
        { WITH("&sp=wl"), CKPT_UNSUPPORTED, "'r'", 0, { { 201, NULL, NULL, 0 } } },
        { WITH("&sp=rwl"), CKPT_OK, NULL, 1, { { 201, NULL, NULL, 0 } } },
        { WITH("&sp=r"), CKPT_AUTH, "'w'", 1, { { 403, MISMATCH, NULL, 0 } } },
        { WITH("&si=policy"), CKPT_UNSUPPORTED, "'r'", 2, { { 201, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 } } },
        { WITH("&si=policy"), CKPT_OK, NULL, 2, { { 201, NULL, NULL, 0 }, { 200, NULL, "<BlockList/>", 0 } } },
        { WITH("&si=policy"), CKPT_AUTH, "403", 2, { { 201, NULL, NULL, 0 }, { 403, "x-ms-error-code: AuthenticationFailed\r\n", NULL, 0 } } } };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        multi u;
        ckpt_store *s = meet_with(cases[i].steps, 3, cases[i].sas);
        multi_init(&u, true);
        ckpt__buf_init(&u.id, NULL);
        ckpt_err e = s->table->begin(s, &u.m, &u.id);
        if (e != cases[i].e || requests() != cases[i].requests) fail_msg("case %d: %s after %d: %s", i, ckpt_err_name(e), requests(), ckpt_last_error());
        if (e != CKPT_OK) sentence_has(cases[i].word);
        ckpt__buf_free(&u.id);
        ckpt_store_close(s);
    }
    // The trial at opening is begun and given up all the same: that needs nothing to be read.
    static const step trial[] = { { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 } }, unknown[] = { { 201, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 201, NULL, NULL, 0 } };
    for (int i = 0; i < 2; i++) {
        multi u;
        ckpt_store *s = i == 0 ? meet_with(trial, 2, WITH("&sp=wl")) : meet_with(unknown, 3, WITH("&si=policy"));
        multi_init(&u, true);
        u.m.size = 1;
        ckpt__buf_init(&u.id, NULL);
        is(s->table->begin(s, &u.m, &u.id), CKPT_OK);
        u.m.upload_id = ckpt__buf_cstr(&u.id);
        is(s->table->abort(s, &u.m), CKPT_OK);
        assert_int_equal(requests(), 2 + i);
        assert_int_equal(script.list[1 + i].size, 2);
        ckpt__buf_free(&u.id);
        ckpt_store_close(s);
    }
    // What a process with more rights has begun is not gone on with.
    static const step lost[] = { { 403, MISMATCH, NULL, 0 } };
    multi u;
    multi_init(&u, true);
    ckpt_store *s = meet_with(lost, 1, WITH("&sp=wl"));
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    ckpt_store_close(s);
    s = meet_with(lost, 1, WITH("&si=policy"));
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    assert_int_equal(requests(), 1);
    ckpt_store_close(s);
    // A list that was refused once is not for ever: of a SAS that may read by its own words, and of one that does not tell, the next
    // begin asks before it puts anything.
    static const step back[] = { { 403, MISMATCH, NULL, 0 }, { 404, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 } };
    s = meet_with(back, UTIL_COUNT(back), WITH("&sp=rwdl"));
    ckpt__buf_init(&u.id, NULL);
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_AUTH);
    is(s->table->begin(s, &u.m, &u.id), CKPT_OK);
    assert_int_equal(requests(), 3);
    u.id.len = 0;
    is(s->table->begin(s, &u.m, &u.id), CKPT_OK);
    assert_int_equal(requests(), 4);
    ckpt_store_close(s);
    static const step changes[] = { { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 503, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 },
                                    { 404, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 200, NULL, "<BlockList/>", 0 }, { 201, NULL, NULL, 0 },
                                    { 200, NULL, "<BlockList/>", 0 } };
    s = meet_with(changes, UTIL_COUNT(changes), WITH("&si=policy"));
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    static const ckpt_err ends[] = { CKPT_UNSUPPORTED, CKPT_NET, CKPT_UNSUPPORTED, CKPT_OK, CKPT_OK };
    static const int after[] = { 2, 3, 4, 7, 9 };
    for (int i = 0; i < UTIL_COUNT(ends); i++) {
        u.id.len = 0;
        ckpt_err e = s->table->begin(s, &u.m, &u.id);
        if (e != ends[i] || requests() != after[i]) fail_msg("begin %d: %s after %d: %s", i, ckpt_err_name(e), requests(), ckpt_last_error());
    }
    ckpt__buf_free(&u.id);
    ckpt_store_close(s);
    // The right that is missing is named.
    static const step refused[] = { { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 } };
    ckpt__store_stat st;
    s = meet_with(refused, 4, WITH("&sp=x"));
    is(put(s, "hello world", true, NULL), CKPT_AUTH);
    sentence_has("'w' is not among its sp=x");
    is(s->table->stat(s, "k", &st, &t), CKPT_AUTH);
    sentence_has("'r'");
    is(list(s), CKPT_AUTH);
    sentence_has("'l'");
    is(s->table->remove(s, "k", &t), CKPT_AUTH);
    sentence_has("'d'");
    ckpt_store_close(s);
    assert_false(leaked);
}

// By its words the SAS may read, and who made it may not: of the first upload that is found out when all of it was sent, and it goes whole;
// the next one at once.
static void test_reads_in_vain(void **state) {
    (void)state;
    static char big[3 << 20];
    static const step steps[] = {
        { 403, MISMATCH, NULL, 0 },                                                                             // the look before
        { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 },         // begin, three blocks
        { 403, MISMATCH, NULL, 0 }, { 201, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 },                         // the end: it is given up
        { 403, MISMATCH, NULL, 0 }, { 201, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 },                         // whole, which cannot be looked at
        { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 201, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 },
        { 403, MISMATCH, NULL, 0 }, { 201, NULL, NULL, 0 } };
    ckpt_store *s = meet_with(steps, UTIL_COUNT(steps), WITH("&sp=rwdl"));
    is(send_by(s, "name", big, sizeof big, 1 << 20, "m"), CKPT_OK);
    assert_int_equal(requests(), 11);
    assert_int_equal(script.list[6].size, 2);
    assert_int_equal(script.list[9].size, sizeof big);
    is(send_by(s, "name", big, sizeof big, 1 << 20, "m"), CKPT_OK);
    assert_int_equal(requests(), 15);
    multi u;
    multi_init(&u, true);
    is(s->table->abort(s, &u.m), CKPT_OK);                  // its blocks cannot be seen: the sign is what counts
    assert_int_equal(script.list[16].size, 2);
    ckpt_store_close(s);
    // Where nothing can be written either, as while a role is out of force, that is no reason to send all of it again.
    static const step lapsed[] = { { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 200, NULL, "<BlockList/>", 0 }, { 404, NULL, NULL, 0 } };
    s = meet_with(lapsed, UTIL_COUNT(lapsed), WITH("&sp=rwdl"));
    is(s->table->complete(s, &u.m), CKPT_AUTH);
    assert_int_equal(requests(), 2);
    is(s->table->complete(s, &u.m), CKPT_NOT_FOUND);        // it was not given up by us
    assert_int_equal(requests(), 4);
    ckpt_store_close(s);
    // What cannot go whole waits until the list may be read again: it is not given up, nor is that final.
    static const step waits[] = { { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 }, { 403, MISMATCH, NULL, 0 },
        { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 } };
    ckpt__send up;
    ckpt__send_record record;
    s = meet_with(waits, UTIL_COUNT(waits), WITH("&sp=rwdl"));
    s->max_single = 2 << 20;
    ckpt__send_record_init(&record, NULL);
    memset(&up, 0, sizeof up);
    up.store = s;
    up.name = "name";
    up.mark = "m";
    up.overwrite = true;                                    // without a look before
    up.body = ckpt__body_of(big, sizeof big);
    up.part_size = 1 << 20;
    up.record = &record;
    for (int i = 0; i < 2; i++) {
        is(ckpt__send_run(&up), CKPT_AUTH);
        assert_true(up.curable && record.upload_id.len > 0);
        assert_int_equal(requests(), 5 + 2 * i);
    }
    ckpt__send_record_clear(&record);
    is(ckpt__send_run(&up), CKPT_AUTH);                     // nothing is put before it is seen
    assert_true(up.curable && record.upload_id.len == 0);
    assert_int_equal(requests(), 8);
    ckpt__send_record_free(&record);
    ckpt_store_close(s);
    static const step policy[] = { { 403, MISMATCH, NULL, 0 }, { 403, MISMATCH, NULL, 0 }, { 200, NULL, "<BlockList/>", 0 } };
    s = meet_with(policy, UTIL_COUNT(policy), WITH("&si=policy"));
    u.m.size = s->max_single + 1;
    for (int i = 0; i < 3; i++) {
        is(s->table->parts(s, &u.m, on_part, NULL), i < 2 ? CKPT_AUTH : CKPT_NOT_FOUND);
        assert_int_equal(requests(), i + 1);
    }
    ckpt_store_close(s);
    s = meet_with(NULL, 0, WITH("&sp=wdl"));                // but for a SAS that lacks it by its own words
    s->max_single = 2 << 20;
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    is(send_by(s, "name", big, sizeof big, 1 << 20, "m"), CKPT_UNSUPPORTED);
    assert_false(sent.curable);
    ckpt_store_close(s);
}

static void *begin_often(void *arg) {
    ckpt_store *s = (ckpt_store *)arg;
    ckpt__transfer own;
    ckpt__store_multi m;
    ckpt__buf id;
    memset(&own, 0, sizeof own);
    memset(&m, 0, sizeof m);
    m.name = "big";
    m.size = 22;
    m.upload_id = "";
    m.t = &own;
    ckpt__buf_init(&id, NULL);
    for (int i = 0; i < 300 && arg != NULL; i++) {
        id.len = 0;
        if (s->table->begin(s, &m, &id) != CKPT_UNSUPPORTED) arg = NULL;
    }
    ckpt__buf_free(&id);
    return arg;
}

// What one thread learns of a SAS that does not tell its rights does not make another one's refusal into a failure.
static void test_blind_together(void **state) {
    (void)state;
    static step steps[601];
    for (int i = 0; i < UTIL_COUNT(steps); i++) {
        steps[i].status = 403;
        steps[i].headers = MISMATCH;
    }
    ckpt_store *s = meet_with(steps, UTIL_COUNT(steps), WITH("&si=policy"));
    multi u;
    pthread_t id;
    void *other = NULL;
    multi_init(&u, true);
    is(s->table->parts(s, &u.m, on_part, NULL), CKPT_NOT_FOUND);
    assert_int_equal(pthread_create(&id, NULL, begin_often, s), 0);
    void *own = begin_often(s);
    pthread_join(id, &other);
    assert_non_null(own);
    assert_non_null(other);
    assert_int_equal(requests(), UTIL_COUNT(steps));
    ckpt_store_close(s);
}

//-- a SAS that runs out -----------------------------------------------------------

typedef struct giver { int calls; const char *text; double life; ckpt_err e; ckpt__os_flag hangs; } giver;

static ckpt_err give_sas(ckpt_credentials *out, void *user) {
    giver *g = (giver *)user;
    int n = __atomic_add_fetch(&g->calls, 1, __ATOMIC_SEQ_CST);
    while (ckpt__os_flag_get(&g->hangs) != 0) ckpt__os_sleep(0.002);
    snprintf(out->session_token, sizeof out->session_token, "%s%d", g->text, n);
    out->expires = g->life > 0 ? ckpt__os_time() + g->life : 0;
    return g->e;
}

static ckpt_store *meet_giver(const step *steps, int count, giver *g, const char *first) {
    ckpt_store_desc d = script_begin(steps, count);
    ckpt_store *s = NULL;
    d.endpoint_url = server.url;
    d.access_key_id = "account1";
    d.session_token = first;
    d.credentials = give_sas;
    d.credentials_user = g;
    is(ckpt_store_open(&s, "azure://bucket/pre", &d), CKPT_OK);
    return s;
}

#define LASTS "sv=2021-12-02&sr=c&sp=rwdl&se=2099-12-01T00%3A00%3A00Z&sig=" SIGNATURE
#define REFUSED { 403, "x-ms-error-code: AuthenticationFailed\r\n", NULL, 0 }
#define FOUND { 200, NULL, NULL, 5 }

static void *stat_once(void *arg) {
    ckpt__store_stat st;
    ckpt__transfer own;
    memset(&own, 0, sizeof own);
    ckpt_store *s = (ckpt_store *)arg;
    return s->table->stat(s, "x", &st, &own) == CKPT_OK ? arg : NULL;
}

// What the program gives is asked for anew before it ends, and when the server says that it has run out.
static void test_sas_renewed(void **state) {
    (void)state;
    static const step steps[] = { FOUND, REFUSED, FOUND, FOUND, FOUND, FOUND, FOUND, REFUSED, REFUSED, FOUND };
    giver g = { 0, LASTS, 0, CKPT_OK, 0 };
    ckpt__store_stat st;
    ckpt_store *s = meet_giver(steps, UTIL_COUNT(steps), &g, NULL);
    ckpt__azure *a = ckpt__azure_of(s);
    assert_int_equal(g.calls, 0);                           // opening asks nobody
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_true(has(script.list[0].target, "/account1/bucket/pre/x?" LASTS "1"));
    assert_string_equal(a->rights, "rwdl");
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_true(has(script.list[1].target, LASTS "1") && has(script.list[2].target, LASTS "2"));
    g.life = 100;
    a->ends = ckpt__os_time() + 100;                        // it ends soon: the next one is asked for, which does so too,
    a->again = 0;
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    a->again = ckpt__os_now() + 1000;
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);           // and the program has a rest
    assert_true(has(script.list[4].target, LASTS "3"));
    assert_int_equal(g.calls, 3);
    g.e = CKPT_NOT_FOUND;
    a->again = 0;
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);           // the old one lasts
    assert_false(t.transient);
    assert_true(has(the_log, "the SAS was not renewed, the old one lasts"));
    assert_true(has(script.list[5].target, LASTS "3"));
    g.e = CKPT_OK;
    a->again = 0;
    ckpt__os_flag_set(&g.hangs, 1);                         // while one thread asks, the others use the old one,
    pthread_t id;
    void *ok = NULL;
    assert_int_equal(pthread_create(&id, NULL, stat_once, s), 0);
    while (__atomic_load_n(&g.calls, __ATOMIC_SEQ_CST) < 5) ckpt__os_sleep(0.002);
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_true(has(script.list[6].target, LASTS "3"));
    ckpt__os_mutex_lock(&a->lock);
    a->refused = true;
    ckpt__os_mutex_unlock(&a->lock);
    t.stall_timeout_s = 0.05;
    is(s->table->stat(s, "x", &st, &t), CKPT_TIMEOUT);      // or give up when it has run out
    assert_true(t.transient);
    sentence_has("gave none in");
    ckpt__os_flag_set(&g.hangs, 0);
    pthread_join(id, &ok);
    assert_null(ok);                                        // refused with the one after it, too
    assert_int_equal(g.calls, 6);
    t.stall_timeout_s = 5.0;
    g.e = CKPT_IO;
    a->refused = true;
    is(s->table->stat(s, "x", &st, &t), CKPT_AUTH);
    assert_true(t.transient);                               // it gave one before
    sentence_has("the program's own function gave no SAS");
    g.e = CKPT_OK;
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_int_equal(requests(), 10);
    ckpt_store_close(s);
    assert_false(leaked);
}

// A program has a rest also from a SAS that this machine's clock takes for one that has run out, as long as the server takes it. What
// its function came to is told to all who waited for it; and when it has no memory the old one serves, as after other failures.
static void test_sas_rests(void **state) {
    (void)state;
    static const step steps[] = { FOUND, FOUND, REFUSED, FOUND, FOUND };
    giver g = { 0, LASTS, 5, CKPT_OK, 0 };
    ckpt__store_stat st;
    pthread_t id[8];
    void *ok;
    ckpt_store *s = meet_giver(steps, UTIL_COUNT(steps), &g, NULL);
    ckpt__azure *a = ckpt__azure_of(s);
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    a->again += 1000;
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_int_equal(g.calls, 1);
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);           // but not when the server does not
    assert_int_equal(g.calls, 2);
    a->ends = ckpt__os_time() + 60;
    a->again = 0;
    g.e = CKPT_NOMEM;
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_int_equal(g.calls, 3);
    g.e = CKPT_IO;
    a->refused = true;
    ckpt__os_flag_set(&g.hangs, 1);
    for (int i = 0; i < UTIL_COUNT(id); i++) assert_int_equal(pthread_create(&id[i], NULL, stat_once, s), 0);
    while (__atomic_load_n(&g.calls, __ATOMIC_SEQ_CST) < 4) ckpt__os_sleep(0.002);
    ckpt__os_sleep(0.1);                                    // the others come as well, or some of them
    ckpt__os_flag_set(&g.hangs, 0);
    for (int i = 0; i < UTIL_COUNT(id); i++) {
        pthread_join(id[i], &ok);
        assert_null(ok);
    }
    assert_true(g.calls < 3 + UTIL_COUNT(id));              // one for all who were there by then
    assert_int_equal(requests(), UTIL_COUNT(steps));
    ckpt_store_close(s);
}

// Where it begins, what it may do, and what is none.
static void test_sas_given(void **state) {
    (void)state;
    static const step first[] = { FOUND, REFUSED, FOUND };
    giver g = { 0, LASTS, 0, CKPT_OK, 0 };
    ckpt__store_stat st;
    ckpt_store *s = meet_giver(first, 3, &g, LASTS "first");        // a session_token is the first one
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_true(has(script.list[0].target, LASTS "first"));
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_true(has(script.list[2].target, LASTS "1"));
    ckpt_store_close(s);
    // One that has run out, as it says itself in any of Azure's forms; `az` writes the second.
    static const char *const over[] = { "2001-12-01T00%3A00%3A00Z", "2001-12-01T00%3A00Z", "2001-12-01T00:00+01:00", "2001-12-01T00:00:00.5Z", "2001-12-01" };
    for (int i = 0; i < UTIL_COUNT(over); i++) {
        char sas[200];
        snprintf(sas, sizeof sas, "se=%s&sp=r&sig=" SIGNATURE, over[i]);
        g.calls = 1;
        s = meet_giver(first, 3, &g, sas);
        is(s->table->stat(s, "x", &st, &t), CKPT_OK);
        if (!has(script.list[0].target, LASTS "2")) fail_msg("%s: %s", over[i], script.list[0].target);
        ckpt_store_close(s);
    }
    // The rights of the new one count.
    static const step rights[] = { { 201, NULL, NULL, 0 }, { 201, NULL, NULL, 0 } };
    multi u;
    multi_init(&u, true);
    ckpt__buf_init(&u.id, NULL);
    g.text = "sp=wl&sig=" SIGNATURE;
    s = meet_giver(rights, 2, &g, NULL);
    is(s->table->begin(s, &u.m, &u.id), CKPT_UNSUPPORTED);
    sentence_has("'r' is not among");
    ckpt__azure_of(s)->refused = true;
    g.text = LASTS;
    u.id.len = 0;
    is(s->table->remove(s, "x", &t), CKPT_OK);
    assert_false(ckpt__azure_is_blind(s));
    ckpt__buf_free(&u.id);
    ckpt_store_close(s);
    g.text = "no SAS at all, but tokenOf" SIGNATURE;
    s = meet_giver(first, 3, &g, NULL);
    is(s->table->stat(s, "x", &st, &t), CKPT_AUTH);
    sentence_has("session_token of the credentials callback is no SAS token");
    assert_false(t.transient || is_secret(ckpt_last_error()));
    assert_int_equal(requests(), 0);
    ckpt_store_close(s);
    // A key needs none.
    ckpt_store_desc d = script_begin(first, 3);
    int before = g.calls;
    d.endpoint_url = server.url;
    d.access_key_id = "account1";
    d.secret_access_key = KEY;
    d.credentials = give_sas;
    d.credentials_user = &g;
    is(ckpt_store_open(&s, "azure://bucket/pre", &d), CKPT_OK);
    is(s->table->stat(s, "x", &st, &t), CKPT_OK);
    assert_true(has(header_of(0, "Authorization"), "SharedKey account1:"));
    assert_int_equal(g.calls, before);
    ckpt_store_close(s);
    assert_false(leaked);
}

//-- memory ------------------------------------------------------------------------

static void test_no_memory(void **state) {
    (void)state;
    const char *all = blocks(block(0, 0, 1), block(1, 0x0d4a1185, 11), block(2, 0x0d4a1185, 11));
    const step steps[] = { { 201, NULL, NULL, 0 }, { 200, NULL, NULL, 11 }, { 200, NULL, LIST(BLOB("pre/k", "1"), "2"), 0 },
        { 200, NULL, LIST(BLOB("pre/k2", "1"), ""), 0 }, { 201, NULL, NULL, 0 }, { 200, NULL, all, 0 }, { 200, NULL, all, 0 },
        { 201, NULL, NULL, 0 }, { 200, "x-ms-meta-ckpt_mark: m\r\n", NULL, 22 } };
    ckpt_store_close(meet_with(steps, UTIL_COUNT(steps), NULL));
    setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=account1;AccountKey=" KEY ";EndpointSuffix=x", 1);
    int wins = 0;
    for (int at = 1; at < 1000 && wins == 0; at++) {
        counting c = { 0, 0, at };
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        multi u;
        memset(&d, 0, sizeof d);
        if (at % 100 == 0) { net_stop(&server); net_start(&server, on_request, NULL); }     // it has a limit of connections
        d.endpoint_url = server.url;
        d.allocator.fn = counting_fn;
        d.allocator.user = &c;
        script.n = 0;
        ckpt_err e = ckpt_store_open(&s, "azure://bucket/pre", &d);
        if (e == CKPT_OK) e = put(s, "hello world", true, "m");
        if (e == CKPT_OK) e = list(s);
        multi_init(&u, true);
        ckpt__buf_init(&u.id, NULL);
        if (e == CKPT_OK) e = s->table->begin(s, &u.m, &u.id);
        listed[0] = 0;
        if (e == CKPT_OK) e = s->table->parts(s, &u.m, on_part, NULL);
        if (e == CKPT_OK) e = s->table->complete(s, &u.m);
        ckpt__buf_free(&u.id);
        ckpt_store_close(s);
        if (e == CKPT_OK && c.calls < at) wins++;
        else if (e != CKPT_NOMEM && !(e == CKPT_OK && c.calls >= at)) fail_msg("allocation %d: %s: %s", at, ckpt_err_name(e), ckpt_last_error());
        if (c.live != 0) fail_msg("allocation %d: %d blocks are left", at, c.live);
    }
    unsetenv("AZURE_STORAGE_CONNECTION_STRING");
    assert_int_equal(wins, 1);
}

//-- libcloud ----------------------------------------------------------------------

static void test_libcloud(void **state) {
    (void)state;
    static const struct { const char *uri; ckpt_err e; const char *word, *endpoint, *region; } cases[] = {
        { "libcloud://box/p?provider=S3&key_environ=MY_KEY&secret_environ=MY_SECRET", CKPT_OK, "s3://box/p", NULL, NULL },
        { "libcloud://box?provider=s3_us_west_oregon&key_environ=MY_KEY&secret_environ=MY_SECRET", CKPT_OK, "s3://box/", NULL, "us-west-2" },
        { "libcloud://box/p?provider=MINIO&key_environ=MY_KEY&secret_environ=MY_SECRET&host=min.local&port=9000&secure=False", CKPT_OK, "s3://box/p",
          "http://min.local:9000", NULL },
        { "libcloud://box/p?provider=GOOGLE_STORAGE&key_environ=MY_KEY&secret_environ=MY_SECRET", CKPT_OK, "s3://box/p", "https://storage.googleapis.com", NULL },
        { "libcloud://box/p?provider=GOOGLE_STORAGE", CKPT_OK, "gs://box/p", NULL, NULL },
        { "libcloud://box/p?provider=AZURE_BLOBS&key_environ=MY_KEY&secret_environ=MY_SECRET", CKPT_OK, "azure://box/p", NULL, NULL },
        { "libcloud://box/p?provider=DIGITALOCEAN_SPACES&region=fra1", CKPT_OK, "s3://box/p", "https://fra1.digitaloceanspaces.com", "fra1" },
        { "libcloud://box/p?provider=BACKBLAZE_B2&region=us-west-004", CKPT_OK, "s3://box/p", "https://s3.us-west-004.backblazeb2.com", "us-west-004" },
        { "libcloud://box/p?provider=ALIYUN_OSS&host=oss-cn-beijing.aliyuncs.com", CKPT_OK, "s3://box/p", "https://oss-cn-beijing.aliyuncs.com", NULL },
        { "libcloud://box/p%20q?provider=LOCAL&key_environ=MY_FOLDER", CKPT_OK, "file:///data/a%20b/box/p%20q", NULL, NULL },
        { "libcloud://box/p", CKPT_UNSUPPORTED, "provider=S3", NULL, NULL },
        { "libcloud://box/p?provider=CLOUDFILES&key_environ=MY_KEY", CKPT_UNSUPPORTED, "CLOUDFILES", NULL, NULL },
        { "libcloud://box/p?provider=MINIO", CKPT_ARG, "host=", NULL, NULL },
        { "libcloud://box/p?provider=BACKBLAZE_B2", CKPT_ARG, "region=", NULL, NULL },
        { "libcloud://box/p?provider=S3&key_environ=NOT_SET", CKPT_AUTH, "NOT_SET", NULL, NULL },
        { "libcloud://box/p?provider=S3&secret=topsecret", CKPT_ARG, "key_environ=NAME", NULL, NULL },
        { "libcloud://box/p?provider=S3&topsecret=1", CKPT_ARG, "setting", NULL, NULL },
        { "libcloud://box/p?provider=S%zz", CKPT_ARG, "escape", NULL, NULL },
        { "libcloud://box/p?provider=GOOGLE_STORAGE&key_environ=MY_MAIL", CKPT_UNSUPPORTED, "gs://", NULL, NULL },
        { "libcloud:///p?provider=S3", CKPT_ARG, "container", NULL, NULL },
        { "libcloud://box/p?provider", CKPT_ARG, "'provider' has no value", NULL, NULL },
        { "libcloud://box/p?provider=S3&key_environ=&secret_environ=", CKPT_ARG, "'key_environ' has no value", NULL, NULL },
        { "libcloud://box/p?provider=S3&host=a&provider=LOCAL", CKPT_ARG, "'provider' twice", NULL, NULL },
        { "libcloud://box/p?provider=MINIO&host=min.local&secure=flase", CKPT_ARG, "'secure' is true or false", NULL, NULL },
        { "libcloud://box/p?provider=MINIO&host=min.local&port=9o00", CKPT_ARG, "'port' is a number", NULL, NULL },
        { "libcloud://box/p?provider=MINIO&host=min.local&port=65536", CKPT_ARG, "'port' is a number", NULL, NULL },
        { "libcloud://box?provider=LOCAL", CKPT_ARG, "folder", NULL, NULL },
    };
    setenv("MY_KEY", "myname", 1);
    setenv("MY_SECRET", KEY, 1);
    setenv("MY_FOLDER", "/data/a b", 1);
    setenv("MY_MAIL", "me@project.iam.gserviceaccount.com", 1);
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt__libcloud l;
        ckpt__uri u;
        ckpt_store_desc none;
        memset(&none, 0, sizeof none);
        ckpt__txt_uri(&u, cases[i].uri);
        ckpt_err e = ckpt__libcloud_translate(&l, cases[i].uri, &u, &none);
        if (e != cases[i].e) fail_msg("%s: %s: %s", cases[i].uri, ckpt_err_name(e), e != CKPT_OK ? ckpt_last_error() : l.uri.data);
        if (e != CKPT_OK) {
            sentence_has(cases[i].word);
            assert_false(has(ckpt_last_error(), "topsecret=1") || has(ckpt_last_error(), "=topsecret"));
        } else {
            assert_string_equal(l.uri.data, cases[i].word);
            assert_string_equal(l.desc.endpoint_url != NULL ? l.desc.endpoint_url : "", cases[i].endpoint != NULL ? cases[i].endpoint : "");
            assert_string_equal(l.desc.region != NULL ? l.desc.region : "", cases[i].region != NULL ? cases[i].region : "");
            if (has(cases[i].uri, "MY_SECRET")) assert_true(strcmp(l.desc.access_key_id, "myname") == 0 && strcmp(l.desc.secret_access_key, KEY) == 0);
        }
        ckpt__libcloud_free(&l);
    }
    is(ckpt_get_file("libcloud://box?provider=S3&secret=topsecret", "nothing-comes", false), CKPT_ARG);
    sentence_has("libcloud://box");
    assert_false(has(ckpt_last_error(), "topsecret"));
    ckpt_store *s = NULL;
    is(ckpt_store_open(&s, cases[5].uri, NULL), CKPT_OK);
    assert_true(has(s->uri, "azure://box/p/"));
    ckpt_store_close(s);
    is(ckpt_store_open(&s, cases[0].uri, NULL), CKPT_OK);
    assert_string_equal(s->uri, "s3://box/p/");
    ckpt_store_close(s);
}

// Its settings reach the store of a saver and of a load as well, and no sentence of them a secret that somebody has written there.
static void test_libcloud_folder(void **state) {
    (void)state;
    static float w[10];
    ckpt_state st = {0};
    ckpt_saver_desc d = {0};
    ckpt_load_desc l = {0};
    ckpt_saver *s;
    ckpt_timestamp at = {0};
    if (chdir(util_temp_dir()) != 0) fail();
    setenv("MY_FOLDER", util_temp_dir(), 1);
    ckpt_bind_f32(&st, "state/model/w", w, 10);
    w[3] = 3;
    d.state = &st;
    d.folder = "libcloud://box/run?provider=LOCAL&key_environ=MY_FOLDER";
    ckpt_next_batch(&at, 1, 0, 0);
    is(ckpt_saver_open(&s, &d), CKPT_OK);
    is(ckpt_saver_save(s, &at), CKPT_OK);
    is(ckpt_saver_close(s, 0), CKPT_OK);
    assert_true(util_exists(util_join(getenv("MY_FOLDER"), "box/run/ep0-ba1-rank0.pt")));
    w[3] = 0;
    l.state = &st;
    l.load_path = "libcloud://box/run/latest-rank0.pt?provider=LOCAL&key_environ=MY_FOLDER";
    is(ckpt_load(&l, NULL), CKPT_OK);
    assert_true(w[3] == 3);
    l.load_path = "libcloud://box/run/x.pt?provider=LOCAL&secret=topsecret";
    is(ckpt_load(&l, NULL), CKPT_ARG);
    assert_false(has(ckpt_last_error(), "topsecret"));
    d.folder = "libcloud://box/run?provider=S3&secret=topsecret";
    is(ckpt_saver_open(&s, &d), CKPT_ARG);
    assert_false(has(ckpt_last_error(), "topsecret"));
    ckpt_state_free(&st);
    if (chdir("/") != 0) fail();
}

// The sum of the whole that is kept with a blob of blocks, when the caller has none: that of the blocks, joined.
static void test_sum_of_parts(void **state) {
    (void)state;
    static const char text[] = "one after the other";
    ckpt__store_part parts[3];
    ckpt__store_multi m;
    uint32_t crc = 0;
    memset(parts, 0, sizeof parts);
    memset(&m, 0, sizeof m);
    for (int i = 0; i < 3; i++) {
        parts[i].size = i < 2 ? 7 : sizeof text - 1 - 14;
        parts[i].has_crc = true;
        parts[i].crc = ckpt__digest_crc32(0, text + 7 * i, (size_t)parts[i].size);
    }
    m.parts = parts;
    m.part_count = 3;
    assert_true(ckpt__azure_sum_parts(&m, &crc));
    assert_int_equal(crc, ckpt__digest_crc32(0, text, sizeof text - 1));
    m.has_crc = true;
    m.crc = 7;
    assert_true(ckpt__azure_sum_parts(&m, &crc));
    assert_int_equal(crc, 7);
    m.has_crc = parts[1].has_crc = false;
    assert_false(ckpt__azure_sum_parts(&m, &crc));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_of_parts), cmocka_unit_test(test_vectors), cmocka_unit_test(test_settings), cmocka_unit_test(test_put), cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_clock), cmocka_unit_test(test_lost_replies), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_portal),
        cmocka_unit_test(test_get), cmocka_unit_test(test_lists), cmocka_unit_test(test_directories), cmocka_unit_test(test_uploads), cmocka_unit_test(test_rights),
        cmocka_unit_test(test_reads_in_vain), cmocka_unit_test(test_blind_together),
        cmocka_unit_test(test_sas_renewed), cmocka_unit_test(test_sas_rests), cmocka_unit_test(test_sas_given), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_libcloud), cmocka_unit_test(test_libcloud_folder),
    };
    return cmocka_run_group_tests(tests, set_up, script_tear_down);
}
