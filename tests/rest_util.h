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

enum { SEEN_MAX = 48 };
typedef struct seen { char method[16], target[8192], head[16384]; char *body; size_t size; } seen;

static struct {
    const step *steps;
    int         count;
    seen        list[SEEN_MAX];
    int         n;
    pthread_mutex_t lock;
} script = { NULL, 0, { { "", "", "", NULL, 0 } }, 0, PTHREAD_MUTEX_INITIALIZER };

static net_server server;
static ckpt__transfer t;

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

UTIL_FN void on_request(net_request *r, void *user) {
    (void)user;
    net_body(r, SIZE_MAX);
    pthread_mutex_lock(&script.lock);
    int i = script.n++;
    if (i < SEEN_MAX) {
        seen *s = &script.list[i];
        snprintf(s->method, sizeof s->method, "%s", r->method);
        snprintf(s->target, sizeof s->target, "%s", r->target);
        snprintf(s->head, sizeof s->head, "%.*s", (int)r->head_size, r->head);
        free(s->body);
        s->body = (char *)malloc(r->body_size + 1);
        s->size = r->body_size;
        if (s->body != NULL) {
            if (r->body_size > 0) memcpy(s->body, r->body, r->body_size);
            s->body[r->body_size] = 0;
        }
    }
    const step *s = i < script.count ? &script.steps[i] : NULL;
    pthread_mutex_unlock(&script.lock);
    if (s == NULL) { net_reply(r, 599, NULL, "", 0); return; }
    if (s->status == 0) { net_close(r); return; }
    char *body = (char *)malloc(65536), headers[4096];
    rest_fill(body, 65536, s->body);
    rest_fill(headers, sizeof headers, s->headers);
    net_reply(r, s->status, headers[0] != 0 ? headers : NULL, body, strlen(body));
    free(body);
}

// The value of a header of request i; "" when it has none.
UTIL_FN const char *header_of(int i, const char *name) {
    size_t n = strlen(name);
    for (const char *line = strchr(script.list[i].head, '\n'); line != NULL; line = strchr(line, '\n')) {
        line++;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') return util_fmt("%.*s", (int)strcspn(line + n + 2, "\r\n"), line + n + 2);
    }
    return "";
}

UTIL_FN bool has(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

#define sentence_has(part) do { if (!has(ckpt_last_error(), part)) fail_msg("%s:%d: no '%s' in: %s", __FILE__, __LINE__, part, ckpt_last_error()); } while (0)
#define is(e, code) do { ckpt_err got_ = (e); if (got_ != (code)) fail_msg("%s:%d: %s instead of %s: %s", __FILE__, __LINE__, \
                              ckpt_err_name(got_), #code, got_ != CKPT_OK ? ckpt_last_error() : ""); } while (0)

// What may stand in no log and no sentence.
#define TOKEN "dapiVerySecretToken0123"
#define SECRET "doseVerySecretSecret45"
#define PASSWORD "VerySecretPassword"
#define SIGNATURE "X-Amz-Signature=VerySecretSig"

static bool leaked;
static char the_log[16384];

UTIL_FN void on_log(ckpt_log_level level, const char *text, void *user) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)level, (void)user;
    pthread_mutex_lock(&lock);
    leaked = leaked || has(text, "VerySecret");
    size_t n = strlen(the_log);
    snprintf(the_log + n, sizeof the_log - n, "%s\n", text);
    pthread_mutex_unlock(&lock);
}

UTIL_FN void rest_script(const step *steps, int count) {
    pthread_mutex_lock(&script.lock);
    script.steps = steps;
    script.count = count;
    script.n = 0;
    pthread_mutex_unlock(&script.lock);
    the_log[0] = 0;
}

UTIL_FN int requests(void) {
    pthread_mutex_lock(&script.lock);
    int n = script.n;
    pthread_mutex_unlock(&script.lock);
    return n;
}

UTIL_FN ckpt_store_desc rest_desc(void) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    d.stall_timeout_s = t.stall_timeout_s = 5.0;
    d.logger.fn = on_log;
    return d;
}

// Opens with the steps that follow; *e is how it went.
UTIL_FN ckpt_store *rest_open(const char *uri, const step *steps, int count, ckpt_err *e) {
    ckpt_store_desc d = rest_desc();
    ckpt_store *s = NULL;
    rest_script(steps, count);
    *e = ckpt_store_open(&s, uri, &d);
    if (*e != CKPT_OK) leaked = leaked || has(ckpt_last_error(), "VerySecret");
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
    leaked = leaked || has(ckpt_last_error(), "VerySecret");
    if (leaked) fail_msg("a secret in: %s\n%s", ckpt_last_error(), the_log);
    if (requests() != script.count) fail_msg("%d requests and %d steps; the last one was %s %s", requests(), script.count,
                                             requests() > 0 ? script.list[requests() - 1].method : "", requests() > 0 ? script.list[requests() - 1].target : "");
    ckpt_store_close(s);
}

UTIL_FN ckpt_err rest_put(ckpt_store *s, const char *name, const char *text, bool overwrite, const char *mark) {
    ckpt__body b;
    ckpt__store_put p;
    memset(&b, 0, sizeof b);
    memset(&p, 0, sizeof p);
    b.memory = text;
    b.size = strlen(text);
    b.fd = -1;
    p.name = name;
    p.body = &b;
    p.overwrite = overwrite;
    p.mark = mark;
    p.t = &t;
    ckpt__transfer_begin(&t);
    return ckpt__store_run_put(s, &p);
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

extern char **environ;

// Nothing of the user's own takes part.
UTIL_FN void rest_clear_env(void) {
    static const char *const own[] = { "DATABRICKS_", "MLFLOW_", "http_proxy=", "https_proxy=", "all_proxy=", "HTTPS_PROXY=", "ALL_PROXY=" };
    util_clear_env();
    for (bool again = true; again;) {
        again = false;
        for (char **e = environ; *e != NULL && !again; e++) {
            for (int i = 0; i < UTIL_COUNT(own) && !again; i++) {
                if (strncmp(*e, own[i], strlen(own[i])) != 0) continue;
                unsetenv(util_fmt("%.*s", (int)strcspn(*e, "="), *e));
                again = true;
            }
        }
    }
}

UTIL_FN int rest_set_up(void **state) {
    (void)state;
    rest_clear_env();
    setenv("HOME", util_temp_dir(), 1);
    net_start(&server, on_request, NULL);
    return 0;
}

UTIL_FN int rest_tear_down(void **state) {
    (void)state;
    net_stop(&server);
    for (int i = 0; i < SEEN_MAX; i++) free(script.list[i].body);
    return 0;
}

#endif // REST_UTIL_H
