/* rest_util.h: a scripted REST server in the process, for the tests of stores that speak JSON. After ckpt.h, util.h and net_util.h.

   Each request takes the next step, whatever it asks for; what was asked is kept in script.list. In headers and bodies of steps "@" stands
   for the server's own address, so that replies may lead back to it.
*/
#ifndef REST_UTIL_H
#define REST_UTIL_H

// One reply. status 0: the connection is closed without one.
typedef struct step {
    int         status;
    const char *body;
    const char *headers;
} step;

#define SCRIPT_STEP
#define SCRIPT_SECRETS "VerySecret"
static void script_reply(net_request *r, const step *s);
#include "script_util.h"

// The text with the server's address for each '@'.
UTIL_FN void rest_fill(char *out, size_t cap, const char *text) {
    size_t n = 0;
    for (const char *p = text != NULL ? text : ""; *p != 0 && n + 1 < cap; p++) {
        if (*p != '@') { out[n++] = *p; continue; }
        int k = snprintf(out + n, cap - n, "%s", server.url);
        n = n + (size_t)k < cap ? n + (size_t)k : cap - 1;
    }
    out[n] = 0;
}

static void script_reply(net_request *r, const step *s) {
    char *body = (char *)malloc(65536), headers[4096];
    rest_fill(body, 65536, s->body);
    rest_fill(headers, sizeof headers, s->headers);
    if (s->status == 404 && strcmp(r->method, "HEAD") == 0 && headers[0] == 0) strcpy(headers, "Content-Type: application/json\r\n");
    net_reply(r, s->status, headers[0] != 0 ? headers : NULL, body, strlen(body));
    free(body);
}

// What may stand in no log and no sentence: each of them has SCRIPT_SECRETS in it.
#define TOKEN "dapiVerySecretToken0123"
#define SECRET "doseVerySecretSecret45"
#define PASSWORD "VerySecretPassword"
#define SIGNATURE "X-Amz-Signature=VerySecretSig"

// Opens with the steps that follow; *e is how it went.
UTIL_FN ckpt_store *rest_open(const char *uri, const step *steps, int count, ckpt_err *e) {
    ckpt_store_desc d = script_begin(steps, count);
    ckpt_store *s = NULL;
    *e = ckpt_store_open(&s, uri, &d);
    if (*e != CKPT_OK) leaked = leaked || is_secret(ckpt_last_error());
    return s;
}

UTIL_FN ckpt_store *rest_meet(const char *uri, const step *steps, int count) {
    ckpt_err e;
    ckpt_store *s = rest_open(uri, steps, count, &e);
    is(e, CKPT_OK);
    return s;
}

// Every request was answered by a step of its own, and no secret came out.
UTIL_FN void rest_part(ckpt_store *s) {
    leaked = leaked || is_secret(ckpt_last_error());
    if (leaked) fail_msg("a secret in: %s\n%s", ckpt_last_error(), the_log);
    if (requests() != script.count) fail_msg("%d requests and %d steps; the last one was %s %s", requests(), script.count,
                                             requests() > 0 ? script.list[requests() - 1].method : "", requests() > 0 ? script.list[requests() - 1].target : "");
    ckpt_store_close(s);
}

UTIL_FN ckpt_err rest_put(ckpt_store *s, const char *name, const char *text, bool overwrite, const char *mark) {
    return put_by(ckpt__store_run_put, s, name, text, overwrite, mark);
}

UTIL_FN ckpt_err rest_stat(ckpt_store *s, const char *name, ckpt__store_stat *out) {
    ckpt__transfer_begin(&t);
    return ckpt__store_run_stat(s, name, out, &t);
}

UTIL_FN ckpt_err rest_get(ckpt_store *s, const char *name, const char *etag, uint64_t offset, char *out, size_t size) {
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    memset(out, 0, size + 1);
    k.memory = out;
    k.fd = -1;
    k.size = size;
    ckpt__transfer_begin(&t);
    return ckpt__store_run_get(s, name, etag, offset, &k, &t);
}

static char the_list[4096];

UTIL_FN ckpt_err rest_note(const char *name, uint64_t size, void *user) {
    (void)user;
    size_t n = strlen(the_list);
    snprintf(the_list + n, sizeof the_list - n, "%s=%llu\n", name, (unsigned long long)size);
    return CKPT_OK;
}

UTIL_FN ckpt_err rest_list(ckpt_store *s, const char *prefix) {
    the_list[0] = 0;
    ckpt__transfer_begin(&t);
    return ckpt__store_run_list(s, prefix, rest_note, NULL, &t);
}

// Nothing of the user's own takes part.
UTIL_FN void rest_clear_env(void) {
    static const char *const own[] = { "DATABRICKS_", "MLFLOW_" };
    util_clear_env();
    script_unset(own, UTIL_COUNT(own));
}

// How opening `uri` ends with an environment "NAME=value ..." besides what is there; "@" is the server, in both. word: what the look at an
// object "x" sends as Authorization, or of the sentence.
UTIL_FN void rest_settings(const char *uri, const char *env, const step *reply, ckpt_err want, const char *word) {
    char text[2000], address[300];
    ckpt_err e;
    rest_fill(text, sizeof text, env);
    rest_fill(address, sizeof address, uri);
    for (char *p = strtok(text, " "); p != NULL; p = strtok(NULL, " ")) {
        char *eq = strchr(p, '=');
        *eq = 0;
        setenv(p, eq + 1, 1);
    }
    ckpt_store *s = rest_open(address, reply, 1, &e);
    if (e == CKPT_OK && want == CKPT_OK) {
        ckpt__store_stat info;
        is(rest_stat(s, "x", &info), CKPT_OK);
        if (strcmp(header_of(0, "authorization"), word) != 0) fail_msg("'%s': sent '%s'", env, header_of(0, "authorization"));
    } else if (e != want || !has(ckpt_last_error(), word)) {
        fail_msg("'%s': %s %s", env, ckpt_err_name(e), ckpt_last_error());
    }
    assert_false(leaked);
    ckpt_store_close(s);
    rest_clear_env();
}

UTIL_FN int rest_set_up(void **state) {
    script_set_up(state);
    rest_clear_env();
    setenv("HOME", util_temp_dir(), 1);
    return 0;
}

#endif // REST_UTIL_H
