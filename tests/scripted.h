/* scripted.h: a store in memory that does what a script says: fails the k-th part, loses a reply, slows down, forgets an upload.

   Include it after ckpt.h and util.h. Its objects and uploads can be looked at directly; it counts every call.
*/
#ifndef SCRIPTED_H
#define SCRIPTED_H

#include <pthread.h>

typedef enum scripted_op {
    OP_PUT, OP_BEGIN, OP_PART, OP_COMPLETE, OP_ABORT, OP_PARTS, OP_GET, OP_FETCH, OP_STAT, OP_REMOVE, OP_COUNT
} scripted_op;

static const char *const scripted_names[OP_COUNT] = { "put", "begin", "part", "complete", "abort", "parts", "get", "get", "size", "remove" };

typedef enum scripted_kind {
    DO_FAIL,            // nothing is done; `err`, transient when `transient`
    DO_LOSE,            // it is done, and the reply is lost
    DO_THROTTLE,        // refused with Retry-After `seconds`
    DO_EXPIRE,          // the credentials have been renewed
    DO_SHORT,           // a part: fewer bytes are kept than came; a get: breaks off after `bytes`
    DO_WAIT,            // `seconds` pass first, unless it is cancelled
    DO_FORGET,          // the upload is gone
    DO_REPLACE,         // somebody replaces the object first
    DO_CANCEL,          // the caller sets its flag now
    DO_CUT,             // a get: breaks off after `bytes`, and says that all is well
    DO_FLIP             // one byte of what is sent or kept is damaged
} scripted_kind;

typedef struct scripted_rule {
    scripted_op   op;
    scripted_kind kind;
    int           at;           // from the at-th call of op on (1: the first); 0: any
    int           part;         // only of this part; 0: any
    int           times;        // so often; 0: once; -1: always
    ckpt_err      err;
    bool          transient;
    double        seconds, until;   // until: only before that time of ckpt__os_now
    uint64_t      bytes;
} scripted_rule;

typedef struct scripted_object {
    char          name[128];
    char         *data;
    uint64_t      size;
    int           version;
    char          mark[64];
    bool          has_crc;
    uint32_t      crc;
    struct scripted_object *next;
} scripted_object;

typedef struct scripted_upload {
    char          id[32], name[128], mark[64];
    bool          has_crc;
    uint32_t      crc;
    uint64_t      size;
    struct { char *data; uint64_t size; char etag[32]; } parts[600];
    struct scripted_upload *next;
} scripted_upload;

typedef struct scripted {
    ckpt_store       store;
    ckpt__store_table table;
    pthread_mutex_t  lock;
    scripted_object *objects;
    scripted_upload *uploads;
    scripted_rule    rules[32];
    int              rule_count;
    int              calls[OP_COUNT], refused;
    int              busy, busiest;     // calls under way at once
    int              sent[600];         // times that a part came, by number
    uint64_t         served;            // bytes of all gets
    int              versions;
    ckpt__os_flag    cancel;
    double           pace;              // seconds that each part and get takes
    int              together;          // so many calls wait for each other, once; 0: none
    const int       *held;              // gets wait until that is not 0; NULL: they do not
    char            *log;               // "size name\n" ...; NULL: not kept
    size_t           log_size;
} scripted;

static scripted *scripted_of(ckpt_store *s) { return (scripted *)s->impl; }

UTIL_FN scripted_object *scripted_find(scripted *s, const char *name) {
    for (scripted_object *o = s->objects; o != NULL; o = o->next) if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

UTIL_FN scripted_upload *scripted_upload_of(scripted *s, const char *id) {
    for (scripted_upload *u = s->uploads; u != NULL; u = u->next) if (strcmp(u->id, id) == 0) return u;
    return NULL;
}

// Stores an object. Below the lock, or before anybody else is there.
UTIL_FN scripted_object *scripted_keep(scripted *s, const char *name, const void *data, uint64_t size) {
    scripted_object *o = scripted_find(s, name);
    if (o == NULL) {
        o = (scripted_object *)calloc(1, sizeof *o);
        snprintf(o->name, sizeof o->name, "%s", name);
        o->next = s->objects;
        s->objects = o;
    }
    free(o->data);
    o->data = (char *)malloc((size_t)size + 1);
    if (size > 0 && data != NULL) memcpy(o->data, data, (size_t)size);
    o->size = size;
    o->version = ++s->versions;
    o->mark[0] = 0;
    o->has_crc = false;
    return o;
}

UTIL_FN void scripted_drop_upload(scripted *s, const char *id) {
    for (scripted_upload **at = &s->uploads; *at != NULL; at = &(*at)->next) {
        scripted_upload *u = *at;
        if (strcmp(u->id, id) != 0) continue;
        *at = u->next;
        for (int i = 0; i < 600; i++) free(u->parts[i].data);
        free(u);
        return;
    }
}

UTIL_FN int scripted_uploads(const scripted *s) {
    int n = 0;
    for (const scripted_upload *u = s->uploads; u != NULL; u = u->next) n++;
    return n;
}

UTIL_FN scripted_rule *scripted_when(scripted *s, scripted_op op, int at, scripted_kind kind) {
    scripted_rule *r = &s->rules[s->rule_count++];
    memset(r, 0, sizeof *r);
    r->op = op;
    r->at = at;
    r->kind = kind;
    r->times = 1;
    r->err = CKPT_NET;
    r->transient = true;
    return r;
}

static void scripted_pause(ckpt__transfer *t, double seconds) {
    for (double until = ckpt__os_now() + seconds; ckpt__os_now() < until; ckpt__os_sleep(0.001)) {
        if (t->cancel != NULL && ckpt__os_flag_get(t->cancel) != 0) return;
    }
}

// Until a number is as big as it should be: for an order of events that a slow machine does not change. Not for ever.
static void scripted_await(const int *number, int least) {
    for (int i = 0; i < 20000 && __atomic_load_n(number, __ATOMIC_SEQ_CST) < least; i++) ckpt__os_sleep(0.001);
}

static ckpt_err scripted_refuse(ckpt__transfer *t, const scripted_rule *r) {
    switch (r->kind) {
        case DO_THROTTLE:
            t->throttled = t->transient = true;
            t->retry_after = r->seconds;
            return ckpt__error_set(CKPT_NET, "503 SlowDown");
        case DO_EXPIRE:
            t->expired = true;
            return ckpt__error_set(CKPT_AUTH, "400 ExpiredToken");
        case DO_FORGET:
            return ckpt__error_set(CKPT_NOT_FOUND, "404 NoSuchUpload");
        default:
            t->transient = r->transient;
            return ckpt__error_set(r->err, "scripted failure");
    }
}

// Before a call: counts it, finds the rule that holds (its kind in *r; DO_* that refuse end the call).
static ckpt_err scripted_enter(scripted *s, scripted_op op, const char *name, int part, const char *id, ckpt__transfer *t,
                               scripted_rule *found, bool *has) {
    pthread_mutex_lock(&s->lock);
    int call = ++s->calls[op];
    *has = false;
    if (++s->busy > s->busiest) __atomic_store_n(&s->busiest, s->busy, __ATOMIC_SEQ_CST);
    if (s->log != NULL) {
        size_t n = strlen(scripted_names[op]) + strlen(name) + 3;
        s->log = (char *)realloc(s->log, s->log_size + n);
        s->log_size += (size_t)snprintf(s->log + s->log_size, n, "%s %s\n", scripted_names[op], name);
    }
    for (int i = 0; i < s->rule_count && !*has; i++) {
        scripted_rule *r = &s->rules[i];
        bool due = r->op == op && (r->at == 0 || call >= r->at) && (r->part == 0 || r->part == part) && r->times != 0 &&
                   (r->until <= 0.0 || ckpt__os_now() < r->until);
        if (!due) continue;
        if (r->times > 0) r->times--;
        *found = *r;
        *has = true;
    }
    bool refuses = *has && (found->kind == DO_FAIL || found->kind == DO_THROTTLE || found->kind == DO_EXPIRE || found->kind == DO_FORGET);
    if (refuses) s->refused++;
    if (*has && found->kind == DO_FORGET && id != NULL) scripted_drop_upload(s, id);
    if (*has && found->kind == DO_REPLACE) {
        char text[64];
        int n = snprintf(text, sizeof text, "replaced %d times", s->versions);
        scripted_keep(s, name, text, (uint64_t)n);
    }
    if (*has && found->kind == DO_CANCEL) ckpt__os_flag_set(&s->cancel, 1);
    pthread_mutex_unlock(&s->lock);
    if (*has && found->kind == DO_WAIT) scripted_pause(t, found->seconds);
    if (s->pace > 0.0) scripted_pause(t, s->pace);
    if (op == OP_GET && s->together > 0) scripted_await(&s->busiest, s->together);
    if (op == OP_GET && s->held != NULL) scripted_await(s->held, 1);
    if (t->cancel != NULL && ckpt__os_flag_get(t->cancel) != 0) return ckpt__error_set(CKPT_CANCELLED, "cancelled");
    return refuses ? scripted_refuse(t, found) : CKPT_OK;
}

static ckpt_err scripted_leave(scripted *s, ckpt_err e, ckpt__transfer *t, const scripted_rule *found, bool has) {
    pthread_mutex_lock(&s->lock);
    s->busy--;
    pthread_mutex_unlock(&s->lock);
    if (e == CKPT_OK && has && found->kind == DO_LOSE) {
        t->transient = t->unsure = true;
        return ckpt__error_set(CKPT_NET, "the reply was lost");
    }
    return e;
}

// Takes a body over, a kilobyte at a time.
static ckpt_err scripted_take(const ckpt__body *b, ckpt__transfer *t, char **out) {
    *out = (char *)malloc((size_t)b->size + 1);
    for (uint64_t at = 0; at < b->size;) {
        size_t n = b->size - at < 1024 ? (size_t)(b->size - at) : 1024;
        ckpt_err e = ckpt__body_read(b, *out + at, n, at);
        if (e != CKPT_OK) { free(*out); *out = NULL; return e; }
        ckpt__transfer_moved(t, n);
        at += n;
    }
    return CKPT_OK;
}

static ckpt_err scripted_put(ckpt_store *store, const ckpt__store_put *p) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_PUT, p->name, 0, NULL, p->t, &r, &has);
    char *data = NULL;
    if (e == CKPT_OK) e = scripted_take(p->body, p->t, &data);
    pthread_mutex_lock(&s->lock);
    scripted_object *old = scripted_find(s, p->name);
    if (e == CKPT_OK && !p->overwrite && store->creates_only && old != NULL) {
        bool ours = p->mark != NULL && strcmp(old->mark, p->mark) == 0 && old->size == p->body->size;
        if (!ours) e = ckpt__error_set(CKPT_EXISTS, "412 PreconditionFailed");
    } else if (e == CKPT_OK) {
        scripted_object *o = scripted_keep(s, p->name, data, p->body->size);
        snprintf(o->mark, sizeof o->mark, "%s", p->mark != NULL ? p->mark : "");
        o->has_crc = p->has_crc;
        o->crc = p->crc;
    }
    pthread_mutex_unlock(&s->lock);
    free(data);
    return scripted_leave(s, e, p->t, &r, has);
}

static ckpt_err scripted_begin(ckpt_store *store, const ckpt__store_multi *m, ckpt__buf *id) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_BEGIN, m->name, 0, NULL, m->t, &r, &has);
    if (e == CKPT_OK) {
        scripted_upload *u = (scripted_upload *)calloc(1, sizeof *u);
        pthread_mutex_lock(&s->lock);
        snprintf(u->id, sizeof u->id, "upload-%d", ++s->versions);
        snprintf(u->name, sizeof u->name, "%s", m->name);
        snprintf(u->mark, sizeof u->mark, "%s", m->mark != NULL ? m->mark : "");
        u->has_crc = m->has_crc;
        u->crc = m->crc;
        u->size = m->size;
        u->next = s->uploads;
        s->uploads = u;
        pthread_mutex_unlock(&s->lock);
        ckpt__buf_text(id, u->id);
    }
    return scripted_leave(s, e, m->t, &r, has);
}

static ckpt_err scripted_part(ckpt_store *store, const ckpt__store_multi *m, const ckpt__body *body, ckpt__store_part *part) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    char *data = NULL;
    ckpt_err e = scripted_enter(s, OP_PART, m->name, part->number, m->upload_id, m->t, &r, &has);
    pthread_mutex_lock(&s->lock);
    s->sent[part->number]++;
    pthread_mutex_unlock(&s->lock);
    if (e == CKPT_OK) e = scripted_take(body, m->t, &data);
    pthread_mutex_lock(&s->lock);
    scripted_upload *u = scripted_upload_of(s, m->upload_id);
    if (e == CKPT_OK && u == NULL) e = ckpt__error_set(CKPT_NOT_FOUND, "404 NoSuchUpload");
    if (e == CKPT_OK) {
        int i = part->number;
        free(u->parts[i].data);
        u->parts[i].data = data;
        u->parts[i].size = has && r.kind == DO_SHORT ? body->size / 2 : body->size;
        part->crc = ckpt__digest_crc32(0, data, (size_t)body->size);
        part->has_crc = m->summed;
        part->size = u->parts[i].size;
        snprintf(u->parts[i].etag, sizeof u->parts[i].etag, "\"%08lx\"", (unsigned long)part->crc);
        snprintf(part->etag, sizeof part->etag, "%s", u->parts[i].etag);
        data = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    free(data);
    return scripted_leave(s, e, m->t, &r, has);
}

static ckpt_err scripted_join(scripted *s, scripted_upload *u, const ckpt__store_multi *m) {
    uint64_t size = 0;
    for (size_t i = 0; i < m->part_count; i++) {
        int n = m->parts[i].number;
        if (n != (int)i + 1 || u->parts[n].data == NULL || strcmp(u->parts[n].etag, m->parts[i].etag) != 0)
            return ckpt__error_set(CKPT_CORRUPT, "400 InvalidPart %d", n);
        size += u->parts[n].size;
    }
    if (size != m->size) return ckpt__error_set(CKPT_CORRUPT, "the object has %llu bytes", (unsigned long long)size);
    scripted_object *o = scripted_keep(s, m->name, NULL, size);
    char *to = o->data;
    for (size_t i = 0; i < m->part_count; i++) {
        memcpy(to, u->parts[i + 1].data, (size_t)u->parts[i + 1].size);
        to += u->parts[i + 1].size;
    }
    snprintf(o->mark, sizeof o->mark, "%s", u->mark);
    o->has_crc = u->has_crc;
    o->crc = u->crc;
    scripted_drop_upload(s, u->id);
    return CKPT_OK;
}

static ckpt_err scripted_complete(ckpt_store *store, const ckpt__store_multi *m) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_COMPLETE, m->name, 0, m->upload_id, m->t, &r, &has);
    pthread_mutex_lock(&s->lock);
    scripted_upload *u = scripted_upload_of(s, m->upload_id);
    scripted_object *old = scripted_find(s, m->name);
    bool ours = old != NULL && m->mark != NULL && strcmp(old->mark, m->mark) == 0 && old->size == m->size;
    if (e == CKPT_OK && !ours) {
        if (u == NULL) e = ckpt__error_set(CKPT_NOT_FOUND, "404 NoSuchUpload");
        else if (!m->overwrite && store->creates_only && old != NULL) e = ckpt__error_set(CKPT_EXISTS, "412 PreconditionFailed");
        else e = scripted_join(s, u, m);
    }
    pthread_mutex_unlock(&s->lock);
    return scripted_leave(s, e, m->t, &r, has);
}

static ckpt_err scripted_abort(ckpt_store *store, const ckpt__store_multi *m) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_ABORT, m->name, 0, m->upload_id, m->t, &r, &has);
    pthread_mutex_lock(&s->lock);
    if (e == CKPT_OK) scripted_drop_upload(s, m->upload_id);
    pthread_mutex_unlock(&s->lock);
    return scripted_leave(s, e, m->t, &r, has);
}

static ckpt_err scripted_parts(ckpt_store *store, const ckpt__store_multi *m, ckpt_err (*each)(const ckpt__store_part *part, void *user),
                               void *user) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_PARTS, m->name, 0, m->upload_id, m->t, &r, &has);
    pthread_mutex_lock(&s->lock);
    scripted_upload *u = scripted_upload_of(s, m->upload_id);
    if (e == CKPT_OK && u == NULL) e = ckpt__error_set(CKPT_NOT_FOUND, "404 NoSuchUpload");
    for (int i = 1; e == CKPT_OK && i < 600; i++) {
        if (u->parts[i].data == NULL) continue;
        ckpt__store_part part;
        memset(&part, 0, sizeof part);
        part.number = i;
        part.size = u->parts[i].size;
        snprintf(part.etag, sizeof part.etag, "%s", u->parts[i].etag);
        e = each(&part, user);
    }
    pthread_mutex_unlock(&s->lock);
    return scripted_leave(s, e, m->t, &r, has);
}

static ckpt_err scripted_get(ckpt_store *store, const char *name, const char *etag, uint64_t offset, ckpt__sink *sink, ckpt__transfer *t) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    char have[32];
    char *copy = NULL;
    uint64_t n = 0;
    ckpt_err e = scripted_enter(s, OP_GET, name, 0, NULL, t, &r, &has);
    pthread_mutex_lock(&s->lock);
    scripted_object *o = scripted_find(s, name);
    if (e == CKPT_OK && o == NULL) e = ckpt__error_set(CKPT_NOT_FOUND, "404 NoSuchKey");
    if (e == CKPT_OK) {
        snprintf(have, sizeof have, "\"v%d\"", o->version);
        if (etag != NULL && strcmp(etag, have) != 0) {
            t->transient = true;
            e = ckpt__error_set(CKPT_CORRUPT, "it has been replaced");
        } else if (offset + sink->size > o->size) {
            e = ckpt__error_set(CKPT_NET, "416 InvalidRange");
        } else {
            n = has && (r.kind == DO_SHORT || r.kind == DO_CUT) && r.bytes < sink->size ? r.bytes : sink->size;
            copy = (char *)malloc((size_t)n + 1);
            memcpy(copy, o->data + offset, (size_t)n);
            if (has && r.kind == DO_FLIP && n > 0) copy[n / 2] ^= 1;
            s->served += n;
        }
    }
    pthread_mutex_unlock(&s->lock);
    for (uint64_t at = 0; e == CKPT_OK && at < n; at += 1024) {
        size_t piece = n - at < 1024 ? (size_t)(n - at) : 1024;
        e = ckpt__sink_write(sink, copy + at, piece);
        if (e == CKPT_OK) ckpt__transfer_moved(t, piece);
    }
    free(copy);
    sink->proven = true;
    if (e == CKPT_NET && n > 0) t->transient = true;            // the file's server is away: as with a failure in libcurl's callback
    if (e == CKPT_OK && has && r.kind == DO_SHORT) {
        t->transient = true;
        e = ckpt__error_set(CKPT_NET, "the connection broke");
    }
    return scripted_leave(s, e, t, &r, has);
}

static ckpt_err scripted_fetch(ckpt_store *store, const char *name, const char *path, ckpt__transfer *t) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_FETCH, name, 0, NULL, t, &r, &has);
    pthread_mutex_lock(&s->lock);
    scripted_object *o = scripted_find(s, name);
    if (e == CKPT_OK && o == NULL) e = ckpt__error_set(CKPT_NOT_FOUND, "404 NoSuchKey");
    if (e == CKPT_OK && util_exists(path)) e = ckpt__error_set(CKPT_EXISTS, "%s exists", path);
    if (e == CKPT_OK) {
        uint64_t n = has && r.kind == DO_SHORT ? r.bytes : o->size;
        util_write(path, o->data, (size_t)n);
        ckpt__transfer_moved(t, n);
        if (has && r.kind == DO_SHORT && r.transient) {
            t->transient = true;
            e = ckpt__error_set(CKPT_NET, "the connection broke");
        }
    }
    pthread_mutex_unlock(&s->lock);
    return scripted_leave(s, e, t, &r, has);
}

static ckpt_err scripted_stat(ckpt_store *store, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    scripted *s = scripted_of(store);
    scripted_rule r;
    bool has;
    ckpt_err e = scripted_enter(s, OP_STAT, name, 0, NULL, t, &r, &has);
    pthread_mutex_lock(&s->lock);
    scripted_object *o = scripted_find(s, name);
    if (e == CKPT_OK && o == NULL) e = ckpt__error_set(CKPT_NOT_FOUND, "there is no such object");
    if (e == CKPT_OK) {
        out->size = o->size;
        out->has_crc = o->has_crc;
        out->crc = o->crc;
        snprintf(out->mark, sizeof out->mark, "%s", o->mark);
        snprintf(out->etag, sizeof out->etag, "\"v%d\"", o->version);
    }
    pthread_mutex_unlock(&s->lock);
    return scripted_leave(s, e, t, &r, has);
}

UTIL_FN scripted *scripted_open(const ckpt_allocator *a) {
    scripted *s = (scripted *)calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->table.scheme = "scripted";
    s->table.put = scripted_put;
    s->table.begin = scripted_begin;
    s->table.part = scripted_part;
    s->table.complete = scripted_complete;
    s->table.abort = scripted_abort;
    s->table.parts = scripted_parts;
    s->table.get = scripted_get;
    s->table.stat = scripted_stat;
    s->store.table = &s->table;
    s->store.creates_only = true;
    static char uri[] = "scripted://bucket/";
    s->store.uri = uri;
    s->store.pid = ckpt__os_pid();
    if (a != NULL) s->store.allocator = *a;
    s->store.impl = s;
    return s;
}

UTIL_FN void scripted_close(scripted *s) {
    while (s->objects != NULL) {
        scripted_object *o = s->objects;
        s->objects = o->next;
        free(o->data);
        free(o);
    }
    while (s->uploads != NULL) scripted_drop_upload(s, s->uploads->id);
    pthread_mutex_destroy(&s->lock);
    free(s->log);
    free(s);
}

// Forgets what was counted and scripted; objects and uploads stay.
UTIL_FN void scripted_clear(scripted *s) {
    memset(s->calls, 0, sizeof s->calls);
    memset(s->sent, 0, sizeof s->sent);
    s->rule_count = s->refused = s->busiest = 0;
    s->served = 0;
    s->pace = 0.0;
    s->together = 0;
    s->held = NULL;
    ckpt__os_flag_set(&s->cancel, 0);
}

UTIL_FN bool scripted_has(scripted *s, const char *name, const void *data, uint64_t size) {
    scripted_object *o = scripted_find(s, name);
    return o != NULL && o->size == size && memcmp(o->data, data, (size_t)size) == 0;
}

// Bytes that differ everywhere, for objects; freed at exit.
UTIL_FN char *scripted_bytes(size_t size) {
    char *p = (char *)util_keep(malloc(size + 1), false);
    util_fill(p, size, 12345);
    return p;
}

#endif // SCRIPTED_H
