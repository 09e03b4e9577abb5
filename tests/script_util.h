/* script_util.h: a scripted HTTP server in the process, for the tests of stores. After ckpt.h, util.h and net_util.h.

   Each request takes the next step, whatever it asks for; what was asked is kept in script.list. Before the include, SCRIPT_SECRETS is a list of
   texts of which none may come into the log; SCRIPT_NUMBER, if defined, the header by which the store numbers its answers: a step whose
   headers have a "Server:" is somebody else's, and goes without. A test with steps of its own kind defines SCRIPT_STEP, and script_reply as what is done with them.
*/
#ifndef SCRIPT_UTIL_H
#define SCRIPT_UTIL_H

#ifndef SCRIPT_NUMBER
#define SCRIPT_NUMBER ""
#endif

#ifndef SCRIPT_STEP
// One reply. status 0: the connection is closed without one.
typedef struct step {
    int         status;
    const char *headers;
    const char *body;
    size_t      size;                   // of the body; 0: strlen(body). For HEAD: what Content-Length says
} step;

UTIL_FN void script_reply(net_request *r, const step *s) {
    size_t size = s->size > 0 ? s->size : s->body != NULL ? strlen(s->body) : 0;
    const char *own = s->headers != NULL ? s->headers : "", *number = strstr(own, "Server:") != NULL ? "" : SCRIPT_NUMBER;
    char *headers = (char *)malloc(strlen(own) + strlen(number) + 1);
    strcpy(headers, own);
    strcat(headers, number);
    net_reply(r, s->status, headers, s->body != NULL ? s->body : "", size);
    free(headers);
}
#endif

enum { SEEN_MAX = 64 };
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
    step s;                                         // a copy: those of the script may be on a stack that is soon another's
    memset(&s, 0, sizeof s);
    s.status = 599;
    if (i < script.count) s = script.steps[i];
    pthread_mutex_unlock(&script.lock);
    if (s.status == 0) net_close(r);
    else script_reply(r, &s);
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

static bool leaked;
static char the_log[16384];

UTIL_FN bool is_secret(const char *text) {
    static const char *const secrets[] = { SCRIPT_SECRETS };
    bool found = false;
    for (int i = 0; i < UTIL_COUNT(secrets); i++) found = found || has(text, secrets[i]);
    return found;
}

UTIL_FN void on_log(ckpt_log_level level, const char *text, void *user) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)level, (void)user;
    pthread_mutex_lock(&lock);
    leaked = leaked || is_secret(text);
    size_t n = strlen(the_log);
    snprintf(the_log + n, sizeof the_log - n, "%s\n", text);
    pthread_mutex_unlock(&lock);
}

// What the next requests meet.
UTIL_FN void script_prepare(const step *steps, int count) {
    pthread_mutex_lock(&script.lock);
    script.steps = steps;
    script.count = count;
    script.n = 0;
    pthread_mutex_unlock(&script.lock);
    the_log[0] = 0;
}

// The same, and a description for a store that makes them.
UTIL_FN ckpt_store_desc script_begin(const step *steps, int count) {
    ckpt_store_desc d;
    script_prepare(steps, count);
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    d.stall_timeout_s = t.stall_timeout_s = 5.0;
    d.logger.fn = on_log;
    return d;
}

UTIL_FN int requests(void) {
    pthread_mutex_lock(&script.lock);
    int n = script.n;
    pthread_mutex_unlock(&script.lock);
    return n;
}

UTIL_FN ckpt__body body_of(const char *text) {
    ckpt__body b;
    memset(&b, 0, sizeof b);
    b.memory = text;
    b.size = strlen(text);
    b.fd = -1;
    return b;
}

typedef ckpt_err script_put(ckpt_store *s, const ckpt__store_put *p);

// Puts by the store's own function or by ckpt__store_run_put.
UTIL_FN ckpt_err put_by(script_put *by, ckpt_store *s, const char *name, const char *text, bool overwrite, const char *mark) {
    ckpt__body b = body_of(text);
    ckpt__store_put p;
    memset(&p, 0, sizeof p);
    p.name = name;
    p.body = &b;
    p.overwrite = overwrite;
    p.mark = mark;
    p.t = &t;
    ckpt__transfer_begin(&t);
    return by(s, &p);
}

static ckpt__send sent;                 // by send_by, as it was afterwards

// Sends bytes that nobody may have put before, as uploads do: with pauses that are short.
UTIL_FN ckpt_err send_by(ckpt_store *s, const char *name, const void *bytes, size_t size, uint64_t part_size, const char *mark) {
    ckpt__send one;
    ckpt__retry retry = ckpt__retry_default;
    memset(&one, 0, sizeof one);
    retry.initial_backoff = retry.max_jitter = 0.001;
    one.store = s;
    one.name = name;
    one.body.memory = bytes;
    one.body.size = size;
    one.body.fd = -1;
    one.mark = mark;
    one.part_size = part_size;
    one.retry = &retry;
    ckpt_err e = ckpt__send_run(&one);
    sent = one;
    return e;
}

extern char **environ;

// Takes all variables out whose names begin so.
UTIL_FN void script_unset(const char *const *names, int count) {
    for (bool again = true; again;) {
        again = false;
        for (char **e = environ; *e != NULL && !again; e++) {
            for (int i = 0; i < count && !again; i++) {
                if (strncmp(*e, names[i], strlen(names[i])) != 0) continue;
                unsetenv(util_fmt("%.*s", (int)strcspn(*e, "="), *e));
                again = true;
            }
        }
    }
}

UTIL_FN int script_set_up(void **state) {
    static const char *const proxies[] = { "http_proxy=", "https_proxy=", "all_proxy=", "HTTPS_PROXY=", "ALL_PROXY=" };
    (void)state;
    net_start(&server, on_request, NULL);
    util_clear_env();
    script_unset(proxies, UTIL_COUNT(proxies));
    return 0;
}

UTIL_FN int script_tear_down(void **state) {
    (void)state;
    net_stop(&server);
    for (int i = 0; i < SEEN_MAX; i++) { free(script.list[i].body); script.list[i].body = NULL; }
    return 0;
}

#endif // SCRIPT_UTIL_H
