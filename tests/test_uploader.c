// Proves what the uploader promises: order, staging, the journal, recovery by a later process, publication, errors, early parts.
// run.sh: waits tsan libs=-Xlinker,--wrap=pthread_cond_wait
#define CKPT_NO_REMOTE
#define CKPT__SEND_MIB 1024             // parts of 8 to 64 KiB: many of them in small files
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

//-- a file:// store whose every call is counted, and can be held or made to fail -----------------------

typedef struct scripted {
    const ckpt__store_table *inner;
    ckpt__store_table        table;
    pthread_mutex_t          lock;
    pthread_cond_t           moved;
    // guarded by lock
    bool        plain;                  // looks tell neither mark nor sum
    int         hidden;                 // so many looks find nothing
    int         broken_fetches;         // so many fetches break off half-way
    int         longer_fetches;         // so many bring a byte more
    int         fetches, puts, begins, parts, completes, aborts, stats, lists, removes, asked;
    int         inside;                 // objects being put or completed
    bool        hold;                   // puts and completes wait
    bool        hold_parts, hold_removes;
    int         parts_until_hold;       // parts that pass before hold_parts counts
    int         fail;                   // so many puts, parts and completes fail
    unsigned    slow_us;                // each failure takes so long
    ckpt_err    code;
    bool        transient;
    const char *only;                   // they fail only for names that hold this; NULL: all
    const char *never;                  // puts of names that hold this always fail with `code`
    bool        blind;                  // looks for them do, too, with CKPT_NET
    bool        unseen;                 // what is refused for them cannot be looked at
    bool        no_looks;               // there is no right to look at any
    bool        away;                   // no connection to one like sftp:// comes about
    ckpt_err    no_aborts;              // why nothing can be given up
    int         hold_aborts;            // what is half-done is not given up before this is 0
    char        order[4096];            // names as they were put
    int         part_count[64];         // how often each part number was confirmed
    const char *change, *gone;          // with away_after: a file that is written to then, and one that goes instead; NULL: none
    int         away_after;             // behind so many parts or puts the next look at a file fails, once; 0: none
} scripted;

static scripted S;

// What a store keeps of marks that its file system does not: the one of each object that was put whole, by all processes of a test.
typedef struct kept_mark { char name[16], mark[33]; } kept_mark;
static kept_mark *kept_marks;           // NULL: it is file://'s own affair

static kept_mark *mark_of(const char *name) {
    int i = 0;
    while (kept_marks[i].name[0] != 0 && strcmp(kept_marks[i].name, name) != 0) i++;
    assert_true(i < 64 && strlen(name) < sizeof kept_marks[i].name);
    return &kept_marks[i];
}

static void keep_marks(bool keep) {
    size_t size = 65 * sizeof *kept_marks;
    if (kept_marks != NULL) assert_int_equal(munmap(kept_marks, size), 0);
    kept_marks = keep ? (kept_mark *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : NULL;
    assert_true((void *)kept_marks != MAP_FAILED);
}

static void locked_add(int *n) {
    pthread_mutex_lock(&S.lock);
    (*n)++;
    pthread_cond_broadcast(&S.moved);
    pthread_mutex_unlock(&S.lock);
}

static int locked_get(const int *n) {
    pthread_mutex_lock(&S.lock);
    int v = *n;
    pthread_mutex_unlock(&S.lock);
    return v;
}

static void let_go(void) {
    pthread_mutex_lock(&S.lock);
    S.hold = S.hold_parts = S.hold_removes = false;
    pthread_cond_broadcast(&S.moved);
    pthread_mutex_unlock(&S.lock);
}

// Removals wait, or puts go on while they do.
static void hold_removes(bool puts) {
    pthread_mutex_lock(&S.lock);
    S.hold = puts;
    S.hold_removes = true;
    pthread_cond_broadcast(&S.moved);
    pthread_mutex_unlock(&S.lock);
}

static void hold(void) {
    pthread_mutex_lock(&S.lock);
    S.hold = true;
    pthread_mutex_unlock(&S.lock);
}

// Parts wait once so many have come through.
static void hold_parts(int after) {
    pthread_mutex_lock(&S.lock);
    S.hold_parts = true;
    S.parts_until_hold = after;
    pthread_mutex_unlock(&S.lock);
}

static void fail_next(int count, ckpt_err code, bool transient) {
    pthread_mutex_lock(&S.lock);
    S.fail = count;
    S.code = code;
    S.transient = transient;
    pthread_mutex_unlock(&S.lock);
}

// Waits for a counter, at most a minute.
static void await_count(const int *n, int least) {
    for (int i = 0; i < 60000 && locked_get(n) < least; i++) usleep(1000);
    assert_true(locked_get(n) >= least);
}

// Waits while held, then fails or goes on.
static ckpt_err gate(const char *name, const char *what, ckpt__transfer *t, bool part) {
    pthread_mutex_lock(&S.lock);
    ckpt_err e = CKPT_OK;
    S.asked++;
    bool held = part ? S.hold_parts && S.parts >= S.parts_until_hold : S.hold;
    while (held && e == CKPT_OK) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        if (until.tv_nsec >= 1000000000) { until.tv_sec++; until.tv_nsec -= 1000000000; }
        pthread_cond_timedwait(&S.moved, &S.lock, &until);
        held = part ? S.hold_parts && S.parts >= S.parts_until_hold : S.hold;
        if (t->cancel != NULL && ckpt__os_flag_get(t->cancel) != 0) e = ckpt__error_set(CKPT_CANCELLED, "it was cancelled");
    }
    bool never = S.never != NULL && strstr(name, S.never) != NULL;
    if (e == CKPT_OK && (never || (S.fail > 0 && (S.only == NULL || strstr(name, S.only) != NULL)))) {
        if (!never) S.fail--;
        t->unsure = t->unsure || (S.code == CKPT_EXISTS && !S.unseen);
        t->unseen = S.unseen;
        t->transient = S.transient;
        e = ckpt__error_set(S.code, "the script makes %s fail", what);
    }
    unsigned slow_us = e != CKPT_OK ? S.slow_us : 0;
    pthread_mutex_unlock(&S.lock);
    if (slow_us > 0) usleep(slow_us);
    return e;
}

static void note(const char *name) {
    pthread_mutex_lock(&S.lock);
    size_t n = strlen(S.order);
    snprintf(S.order + n, sizeof S.order - n, "%s ", name);
    pthread_mutex_unlock(&S.lock);
}

static void go_away(int done) {
    if (S.away_after == 0 || done != S.away_after) return;
    struct timespec times[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
    int fd = S.change != NULL ? open(S.change, O_WRONLY) : -1;
    if (fd >= 0) assert_true(pwrite(fd, "x", 1, 0) == 1 && futimens(fd, times) == 0 && close(fd) == 0);
    if (S.gone != NULL) assert_int_equal(unlink(S.gone), 0);
    else fault_arm_call("stat", ESTALE, 1);
}

static const char *torn;                // is written to when the first bytes of it are on their way

static void tear(const char *name, const char *path, int fd) {
    struct timespec times[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
    (void)path, (void)fd;
    if (strcmp(name, "pwrite") != 0 || torn == NULL) return;
    int to = open(torn, O_WRONLY);
    torn = NULL;
    assert_true(to >= 0 && pwrite(to, "x", 1, 0) == 1 && futimens(to, times) == 0 && close(to) == 0);
}

static ckpt_err s_put(ckpt_store *s, const ckpt__store_put *p) {
    ckpt_err e = gate(p->name, "a put", p->t, false);
    const bool tears = torn != NULL;
    if (tears) fault_arm_call("copy_file_range", EXDEV, 1);
    if (tears) __atomic_store_n(&fault_watch, tear, __ATOMIC_SEQ_CST);
    if (e == CKPT_OK) e = S.inner->put(s, p);
    if (tears) __atomic_store_n(&fault_watch, NULL, __ATOMIC_SEQ_CST);
    if (e == CKPT_OK && kept_marks != NULL && strstr(p->name, CKPT__UPLOADER_PROBE) == NULL) {
        pthread_mutex_lock(&S.lock);
        snprintf(mark_of(p->name)->name, sizeof kept_marks->name, "%s", p->name);
        snprintf(mark_of(p->name)->mark, sizeof kept_marks->mark, "%s", p->mark != NULL ? p->mark : "");
        pthread_mutex_unlock(&S.lock);
    }
    if (e == CKPT_OK) { note(p->name); locked_add(&S.puts); go_away(locked_get(&S.puts)); }
    return e;
}

static ckpt_err s_begin(ckpt_store *s, const ckpt__store_multi *m, ckpt__buf *id) {
    if (strstr(m->name, CKPT__UPLOADER_PROBE) == NULL) locked_add(&S.begins);
    return S.inner->begin(s, m, id);
}

static ckpt_err s_part(ckpt_store *s, const ckpt__store_multi *m, const ckpt__body *body, ckpt__store_part *part) {
    ckpt_err e = gate(m->name, "a part", m->t, true);
    if (e == CKPT_OK) e = S.inner->part(s, m, body, part);
    if (e != CKPT_OK) return e;
    pthread_mutex_lock(&S.lock);
    if (part->number < 64) S.part_count[part->number]++;
    pthread_mutex_unlock(&S.lock);
    locked_add(&S.parts);
    go_away(locked_get(&S.parts));
    return CKPT_OK;
}

static ckpt_err s_complete(ckpt_store *s, const ckpt__store_multi *m) {
    ckpt_err e = gate(m->name, "the completion", m->t, false);
    if (e == CKPT_OK) e = S.inner->complete(s, m);
    if (e == CKPT_OK) { note(m->name); locked_add(&S.completes); }
    return e;
}

static ckpt_err s_abort(ckpt_store *s, const ckpt__store_multi *m) {
    bool probes = strstr(m->name, CKPT__UPLOADER_PROBE) != NULL;
    if (!probes) locked_add(&S.aborts);
    while (!probes && __atomic_load_n(&S.hold_aborts, __ATOMIC_SEQ_CST) != 0) usleep(1000);
    if (!probes && S.no_aborts != CKPT_OK) return ckpt__error_set(S.no_aborts, "the script gives nothing up");
    return S.inner->abort(s, m);
}

static ckpt_err s_list(ckpt_store *s, const char *prefix, ckpt_err (*each)(const char *name, uint64_t size, void *user), void *user,
                       ckpt__transfer *t) {
    locked_add(&S.lists);
    return S.inner->list(s, prefix, each, user, t);
}

static ckpt_err s_stat(ckpt_store *s, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    locked_add(&S.stats);
    pthread_mutex_lock(&S.lock);
    bool fails = S.blind && S.never != NULL && strstr(name, S.never) != NULL;
    t->transient = fails && (S.transient || S.unseen);
    ckpt_err e = fails ? ckpt__error_set(CKPT_NET, "the script sees nothing") : CKPT_OK;
    if (S.no_looks) e = ckpt__error_set(CKPT_AUTH, "the script lets nobody look");
    pthread_mutex_unlock(&S.lock);
    if (e != CKPT_OK) return e;
    e = S.inner->stat(s, name, out, t);
    if (e == CKPT_OK && S.hidden > 0) { S.hidden--; e = ckpt__error_set(CKPT_NOT_FOUND, "the script hides it"); }
    if (e == CKPT_OK && kept_marks != NULL && strstr(name, CKPT__UPLOADER_PROBE) == NULL) {
        pthread_mutex_lock(&S.lock);
        snprintf(out->mark, sizeof out->mark, "%s", mark_of(name)->mark);
        pthread_mutex_unlock(&S.lock);
    }
    if (S.plain) out->mark[0] = 0;
    if (S.plain) out->has_crc = false;
    return e;
}

// Of a store that knows no ranges.
static ckpt_err s_fetch(ckpt_store *s, const char *name, const char *path, ckpt__transfer *t) {
    ckpt__store_stat info;
    char bytes[4096];
    locked_add(&S.fetches);
    assert_false(util_exists(path));
    ckpt_err e = gate(name, "a fetch", t, false);
    if (e == CKPT_OK) e = S.inner->stat(s, name, &info, t);
    if (e != CKPT_OK) return e;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    bool breaks = S.broken_fetches > 0;
    uint64_t size = breaks ? info.size / 2 : info.size;
    for (uint64_t at = 0, n; at < size && e == CKPT_OK; at += n) {
        ckpt__sink k;
        memset(&k, 0, sizeof k);
        n = size - at < sizeof bytes ? size - at : sizeof bytes;
        k.memory = bytes;
        k.fd = -1;
        k.size = n;
        e = S.inner->get(s, name, NULL, at, &k, t);
        assert_int_equal(fwrite(bytes, 1, (size_t)n, f), n);
    }
    if (S.longer_fetches > 0) { S.longer_fetches--; assert_int_equal(fputc('x', f), 'x'); }
    assert_int_equal(fclose(f), 0);
    if (!breaks) return e;
    S.broken_fetches--;
    t->transient = true;
    return ckpt__error_set(CKPT_NET, "the script breaks the fetch off");
}

static ckpt_err s_remove(ckpt_store *s, const char *name, ckpt__transfer *t) {
    locked_add(&S.removes);
    pthread_mutex_lock(&S.lock);
    while (S.hold_removes) pthread_cond_wait(&S.moved, &S.lock);
    pthread_mutex_unlock(&S.lock);
    ckpt_err e = S.inner->remove(s, name, t);
    if (e == CKPT_OK) note(util_fmt("-%s", name));
    return e;
}

// A store like sftp://: what is sent goes into a hidden file first, which a put that breaks off leaves. Its name has the upload's mark,
// or a number where there is none.
static const char *hidden_dir;

static ckpt_err s_away(ckpt__transfer *t) {
    t->transient = true;
    return ckpt__error_set(CKPT_NET, "the script lets no connection come about");
}

static ckpt_err h_put(ckpt_store *s, const ckpt__store_put *p) {
    static int number;
    char path[4096];
    if (S.away) return s_away(p->t);
    int n = __atomic_add_fetch(&number, 1, __ATOMIC_SEQ_CST);
    if (p->mark != NULL) snprintf(path, sizeof path, "%s/%s.%s", hidden_dir, p->name, p->mark);
    else snprintf(path, sizeof path, "%s/%s.%d", hidden_dir, p->name, n);
    util_write_text(path, "half");
    if (p->t->moved != NULL) (void)ckpt__os_add64(p->t->moved, 4);
    ckpt_err e = s_put(s, p);
    if (e == CKPT_OK) assert_int_equal(unlink(path), 0);
    return e;
}

static ckpt_err h_uploads(ckpt_store *s, const char *prefix, ckpt__store_each_upload *each, void *user, ckpt__transfer *t) {
    locked_add(&S.lists);
    ckpt_err e = S.away ? s_away(t) : gate(prefix, "a list of uploads", t, true);
    (void)s;
    DIR *d = opendir(hidden_dir);
    for (const struct dirent *n = readdir(d); n != NULL && e == CKPT_OK; n = readdir(d)) {
        char name[300];
        snprintf(name, sizeof name, "%s", n->d_name);
        if (name[0] == '.' || strncmp(name, prefix, strlen(prefix)) != 0) continue;
        *strrchr(name, '.') = 0;
        e = each(name, n->d_name, 0.0, user);
    }
    closedir(d);
    return e;
}

static ckpt_err h_abort(ckpt_store *s, const ckpt__store_multi *m) {
    char path[4096];
    (void)s;
    locked_add(&S.aborts);
    if (m->upload_id != NULL) snprintf(path, sizeof path, "%s/%s", hidden_dir, m->upload_id);
    else snprintf(path, sizeof path, "%s/%s.%s", hidden_dir, m->name, m->mark);
    return unlink(path) == 0 ? CKPT_OK : ckpt__error_set(CKPT_NOT_FOUND, "there is no such upload");
}

typedef struct world {
    const char  *dir, *bucket, *staging;
    ckpt_store  *store;
    ckpt_uploader_desc d;
    ckpt_uploader *u;
} world;

static void new_world(world *w) {
    util_clear_env();
    memset(w, 0, sizeof *w);
    w->dir = util_temp_dir();
    w->bucket = util_join(w->dir, "bucket");
    w->staging = util_join(w->dir, "staging");
    util_mkdir(w->bucket);
}

static void open_store(world *w) {
    memset(&S, 0, sizeof S);
    pthread_mutex_init(&S.lock, NULL);
    pthread_cond_init(&S.moved, NULL);
    assert_int_equal(ckpt_store_open(&w->store, util_fmt("file://%s", w->bucket), NULL), CKPT_OK);
    S.inner = w->store->table;
    S.table = *S.inner;
    S.table.put = s_put;
    S.table.begin = s_begin;
    S.table.part = s_part;
    S.table.complete = s_complete;
    S.table.abort = s_abort;
    S.table.list = s_list;
    S.table.stat = s_stat;
    S.table.remove = s_remove;
    w->store->table = &S.table;
    w->store->best_part = 0;
}

static void open_uploader(world *w) {
    w->d.store = w->store;
    if (w->d.upload_staging_folder == NULL) w->d.upload_staging_folder = w->staging;
    ckpt_err e = ckpt_uploader_open(&w->u, &w->d);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

static void begin_world(world *w) {
    new_world(w);
    open_store(w);
    open_uploader(w);
}

// The same, and files are staged in hidden folders beside them.
static void begin_world_beside(world *w) {
    new_world(w);
    open_store(w);
    w->d.store = w->store;
    assert_int_equal(ckpt_uploader_open(&w->u, &w->d), CKPT_OK);
}

static ckpt_err close_uploader(world *w, double timeout) {
    ckpt_err e = ckpt_uploader_close(w->u, timeout);
    w->u = NULL;
    return e;
}

static void end_world(world *w) {
    let_go();
    if (w->u != NULL) (void)!close_uploader(w, 0);
    ckpt_store_close(w->store);
}

static const char *file_of(const world *w, const char *name, const char *text) {
    const char *path = util_join(w->dir, name);
    (void)unlink(path);
    util_write_text(path, text);
    return path;
}

// A file of `size` bytes that tell where they are.
static const char *big_file(const world *w, const char *name, size_t size, unsigned seed) {
    const char *path = util_join(w->dir, name);
    unsigned char *p = (unsigned char *)malloc(size);
    util_fill(p, size, seed);
    (void)unlink(path);
    util_write(path, p, size);
    free(p);
    return path;
}

static void same_file(const char *a, const char *b) {
    size_t n, m;
    const char *p = util_read(a, &n), *q = util_read(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
}

static const char *object(const world *w, const char *name) {
    return util_join(w->bucket, name);
}

static const char *text_of(const world *w, const char *name) {
    return util_exists(object(w, name)) ? util_read(object(w, name), NULL) : "(absent)";
}

static void upload_text(world *w, const char *name, const char *text, bool overwrite) {
    ckpt_err e = ckpt_upload_file(w->u, name, file_of(w, "source", text), overwrite);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

static int entries(const char *dir, const char *ending) {
    int n = 0;
    const char *list = util_list(dir);
    for (const char *p = list; *p != 0; p = strchr(p, '\n') + 1) {
        size_t len = strcspn(p, "\n"), k = strlen(ending);
        if (len >= k && memcmp(p + len - k, ending, k) == 0) n++;
    }
    return n;
}

// The end of a test that has made the pauses between tries short: close tells of the failure that was told before, and nothing is left.
static void end_hopes(world *w, ckpt_err e) {
    assert_int_equal(close_uploader(w, 0), e);
    assert_int_equal(entries(w->staging, ".upload"), 0);
    end_world(w);
    fault_hope = 60, fault_hope_most = 900;
}

static uint64_t pending(const world *w) {
    ckpt_transfer_stats s;
    ckpt_uploader_stats(w->u, &s);
    return s.pending;
}

// Waits until nothing is on its way, at most a minute.
static void await_end(const world *w) {
    for (int i = 0; i < 60000 && pending(w) > 0; i++) usleep(1000);
    assert_int_equal(pending(w), 0);
}

// The same, and until nothing is to be tried again either.
static void await_no_hope(const world *w) {
    bool over = false;
    for (int i = 0; i < 60000 && !over; i++, usleep(1000)) {
        ckpt__os_mutex_lock(&w->u->lock);
        over = w->u->hopeful + w->u->waiting + w->u->running == 0;
        ckpt__os_mutex_unlock(&w->u->lock);
    }
    assert_true(over);
}

//-- case tables -----------------------------------------------------------------------------------------

static void test_remote_names(void **state) {
    (void)state;
    util_table t = cases_tsv("uploader_remote_name.tsv");
    for (int i = 0; i < t.rows; i++) {
        world w;
        new_world(&w);
        open_store(&w);
        w.d.file_path_format_string = cases_text(&t, i, "file_path_format_string");
        w.d.run_name = cases_text(&t, i, "run_name");
        open_uploader(&w);
        char uri[4096];
        assert_int_equal(ckpt_get_uri_for_file(w.u, cases_text(&t, i, "remote_file_name"), uri, sizeof uri), CKPT_OK);
        ckpt__buf name;
        ckpt__buf_init(&name, NULL);
        ckpt__txt_add_percent(&name, cases_text(&t, i, "result"), strlen(cases_text(&t, i, "result")), true);
        assert_string_equal(uri, util_fmt("file://%s/%s", w.bucket, ckpt__buf_cstr(&name)));
        ckpt__buf_free(&name);
        upload_text(&w, cases_text(&t, i, "remote_file_name"), "x", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_string_equal(text_of(&w, cases_text(&t, i, "result")), "x");
        assert_int_equal(ckpt_get_uri_for_file(w.u, "n", uri, 5), CKPT_ARG);
        end_world(&w);
    }
}

// The URI that is given for a name leads to its object, and to no other.
static void test_uri_names(void **state) {
    (void)state;
    static const char *const names[] = { "lr%35.pt", "lr5.pt", "model#2.pt", "what?.pt", "50%.pt", "x y+z.pt", "{rank}.pt", "a{b", "n\xC3\xA9/%2F.pt" };
    world w;
    begin_world(&w);
    for (int i = 0; i < UTIL_COUNT(names); i++) upload_text(&w, names[i], names[i], true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        char uri[4096];
        const char *to = util_join(w.dir, "to");
        assert_int_equal(ckpt_get_uri_for_file(w.u, names[i], uri, sizeof uri), CKPT_OK);
        if (ckpt_get_file(uri, to, true) != CKPT_OK) fail_msg("%s: %s", uri, ckpt_last_error());
        assert_string_equal(util_read(to, NULL), names[i]);
    }
    end_world(&w);
}

// The constructor takes every URI apart as Composer does. What this build cannot reach is refused with a sentence.
static void test_uris(void **state) {
    (void)state;
    util_table t = cases_tsv("uploader_constructor.tsv");
    for (int i = 0; i < t.rows; i++) {
        ckpt__uri u;
        ckpt_uploader_desc d;
        ckpt_uploader *up = NULL;
        const char *uri = cases_text(&t, i, "bucket_uri"), *bucket = cases_text(&t, i, "bucket");
        ckpt__txt_uri(&u, uri);
        assert_string_equal(u.backend, cases_text(&t, i, "backend"));
        bool whole = u.authority.n == strlen(bucket) && memcmp(u.authority.p, bucket, u.authority.n) == 0;
        assert_true(whole);
        memset(&d, 0, sizeof d);
        d.bucket_uri = uri;
        assert_int_equal(ckpt_uploader_open(&up, &d), CKPT_UNSUPPORTED);
        assert_null(up);
        assert_true(strlen(ckpt_last_error()) > 20);
    }
    ckpt_store *s = NULL;
    assert_int_equal(ckpt_store_open(&s, "dbfs:/databricks/mlflow-tracking/1/2/artifacts/", NULL), CKPT_UNSUPPORTED);
    assert_non_null(strstr(ckpt_last_error(), "/artifacts/' is an MLflow server, which this build cannot reach"));
    assert_int_equal(ckpt_store_open(&s, "dbfs:/Volumes/a/b/c", NULL), CKPT_UNSUPPORTED);
    assert_non_null(strstr(ckpt_last_error(), "folders below /Volumes"));
    util_table f = cases_tsv("uploader_from_uri.tsv");
    for (int i = 0; i < f.rows; i++) {
        ckpt_uploader_desc d;
        ckpt_uploader *up = NULL;
        const char *uri = cases_text(&f, i, "uri");
        memset(&d, 0, sizeof d);
        d.bucket_uri = uri;
        ckpt_err want = strcmp(cases_text(&f, i, "status"), "none") == 0 ? CKPT_ARG : CKPT_UNSUPPORTED;
        if (strstr(uri, "an uploader for") != NULL) continue;
        assert_int_equal(ckpt_uploader_open(&up, &d), want);
        assert_null(up);
    }
}

static void test_description(void **state) {
    (void)state;
    world w;
    ckpt_uploader *u = (ckpt_uploader *)&w;
    new_world(&w);
    open_store(&w);
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    assert_int_equal(ckpt_uploader_open(&u, NULL), CKPT_ARG);
    assert_null(u);
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    d.store = w.store;
    d.num_concurrent_uploads = -1;
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "num_concurrent_uploads"));
    d.num_concurrent_uploads = 0;
    d.num_attempts = -1;
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    d.num_attempts = 0;
    d.num_concurrent_parts = 17;
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    d.num_concurrent_parts = 0;
    d.file_path_format_string = "{run_name}/{remote_file_name}";
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "run_name"));
    d.file_path_format_string = "constant";
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    d.file_path_format_string = NULL;
    d._canary = 1;
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    d._canary = 0;
    d.bucket_uri = "file:///tmp";
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_ARG);
    assert_null(u);
    assert_int_equal(ckpt_uploader_close(NULL, 0), CKPT_OK);
    ckpt_store_close(w.store);
}

// save_folder and file names make remote names; where they come from is the saver's part, what they are made of is here.
static void test_names_refused(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    const char *path = file_of(&w, "f", "x");
    static const char *const bad[] = { "", "..", "../x", "a/../b", "a/..", "/", "///" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_int_equal(ckpt_upload_file(w.u, bad[i], path, true), CKPT_ARG);
    assert_int_equal(ckpt_upload_file(w.u, "a\xff", path, true), CKPT_ARG);
    assert_int_equal(ckpt_upload_file(w.u, "a", util_join(w.dir, "absent"), true), CKPT_NOT_FOUND);
    assert_int_equal(ckpt_upload_file(w.u, "a", w.dir, true), CKPT_ARG);
    assert_int_equal(ckpt_upload_file(w.u, NULL, path, true), CKPT_ARG);
    assert_int_equal(ckpt_upload_file(w.u, "a..b", path, true), CKPT_OK);
    assert_int_equal(ckpt_upload_file(w.u, "..a", path, true), CKPT_OK);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a..b"), "x");
    assert_string_equal(util_list(w.staging), util_fmt("%s.lock\n", w.u->places->owner));
    end_world(&w);
}

// Names that the store can never take are the call's failure. What an earlier version took of them is told of once.
static void test_names_for_no_store(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    const char *path = file_of(&w, "f", "x");
    const char *const bad[] = { "logs/", "a//b", "a/./b", ".", "./x", "a/.ckpt-upload-1/b", util_fmt("a/%0256d/b", 0), util_fmt("%0256d", 0) };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        assert_int_equal(ckpt_upload_file(w.u, bad[i], path, true), CKPT_ARG);
        assert_non_null(strstr(ckpt_last_error(), "cannot stage"));
        ckpt__uploader_item *ticket;
        ckpt__body body;
        ckpt__upload up;
        memset(&body, 0, sizeof body);
        memset(&up, 0, sizeof up);
        up.name = i % 2 == 0 ? bad[i] : "a";
        up.path = path;
        up.link_name = i % 2 == 0 ? NULL : bad[i];
        up.link_text = "a";
        assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_ARG);
    }
    assert_string_equal(util_list(w.staging), util_fmt("%s.lock\n", w.u->places->owner));
    S.table.takes = NULL;
    upload_text(&w, "logs/", "x", true);
    assert_int_equal(close_uploader(&w, 0), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "the next run tries again"));
    S.table.takes = S.inner->takes;
    open_uploader(&w);
    upload_text(&w, "good", "y", true);
    assert_int_equal(close_uploader(&w, 0), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "the name has an empty level"));
    assert_non_null(strstr(ckpt_last_error(), "the file is kept as"));
    assert_string_equal(text_of(&w, "good"), "y");
    const int puts = S.puts;
    for (int run = 0; run < 2; run++) {
        open_uploader(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_int_equal(entries(w.staging, ".data"), 1);
    }
    assert_int_equal(S.puts, puts);
    end_world(&w);
}

//-- the scenarios of Composer's tests --------------------------------------------------------------------

static void scenario_single(void) {
    world w;
    begin_world(&w);
    upload_text(&w, "remote_file_name", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "remote_file_name"), "1");
    const char *to = util_join(w.dir, "down");
    assert_int_equal(ckpt_download_file(w.u, "remote_file_name", to, false), CKPT_OK);
    assert_string_equal(util_read(to, NULL), "1");
    assert_int_equal(ckpt_download_file(w.u, "remote_file_name", to, false), CKPT_EXISTS);
    assert_int_equal(ckpt_download_file(w.u, "nothing", to, true), CKPT_NOT_FOUND);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.bucket), "remote_file_name\n");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void scenario_twice_pending(void) {
    world w;
    begin_world(&w);
    hold();
    upload_text(&w, "n", "1", false);
    assert_int_equal(ckpt_upload_file(w.u, "n", file_of(&w, "source", "2"), false), CKPT_EXISTS);
    assert_int_equal(entries(w.staging, ".data"), 1);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "1");
    end_world(&w);
}

static void scenario_twice_finished(void) {
    world w;
    begin_world(&w);
    upload_text(&w, "n", "1", false);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    upload_text(&w, "n", "2", false);
    await_end(&w);
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), w.staging));
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
    assert_int_equal(close_uploader(&w, 0), CKPT_EXISTS);
    assert_string_equal(text_of(&w, "n"), "1");
    assert_int_equal(entries(w.staging, ".data"), 1);
    // It stays refused: the next run does not ask again, and says so.
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(entries(w.staging, ".data"), 1);
    end_world(&w);
}

// That an object is somebody else's is known to all later files of its name, also past one whose own end is not known.
static void test_refusal_is_passed_on(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        ckpt__uploader_item line[4];
        memset(line, 0, sizeof line);
        line[0].refused = refused;
        line[0].unsure = !refused;
        for (int i = 1; i < 4; i++) {
            line[i].heir = line[i].overwrite = true;
            line[i].unsure = true;
            ckpt__uploader_inherit(&line[i], &line[i - 1]);
            assert_int_equal(line[i].overwrite, !refused);
        }
    }
}

// A refused file made room for a newer one, and its process died before a worker came to it: its record goes.
static void test_refused_and_dropped(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    upload_text(&w, "n", "1", false);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    upload_text(&w, "n", "2", false);
    assert_int_equal(close_uploader(&w, 0), CKPT_EXISTS);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    ckpt__buf b;
    ckpt_allocator a = { NULL, NULL };
    ckpt__buf_init(&b, &a);
    ckpt__uploader_print_word(&b, "dropped");
    const char *list = util_list(w.staging), *stem = util_fmt("%.*s", (int)strcspn(list, "."), list);      // the two are all there is
    FILE *f = fopen(util_join(w.staging, util_fmt("%s.upload", stem)), "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    ckpt__buf_free(&b);
    assert_int_equal(unlink(util_join(w.staging, util_fmt("%s.data", stem))), 0);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.staging), "");
    assert_string_equal(text_of(&w, "n"), "1");
    end_world(&w);
}

static void scenario_first_attempt_only(void) {
    world w;
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_uploads = 4;
    open_uploader(&w);
    fail_next(2, CKPT_NET, true);
    upload_text(&w, "n", "sample", false);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "sample");
    assert_int_equal(S.asked, 3);
    ckpt_transfer_stats s;
    ckpt_uploader_stats(w.u, &s);
    assert_int_equal(s.files, 1);
    assert_int_equal(s.bytes, 6);
    assert_int_equal(s.retries, 2);
    assert_int_equal(s.failed, 0);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);       // cured: no error is left (defect 12 of Composer)
    end_world(&w);
}

static void scenario_ten_in_a_row(void) {
    for (int workers = 1; workers <= 4; workers += 3) {
        world w;
        new_world(&w);
        open_store(&w);
        w.d.num_concurrent_uploads = workers;
        open_uploader(&w);
        for (int i = 0; i < 10; i++) upload_text(&w, "n", util_fmt("%d", i), true);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_string_equal(text_of(&w, "n"), "9");
        assert_string_equal(util_list(w.staging), "");
        end_world(&w);
    }
}

static void scenario_failure_does_not_hang(void) {
    world w;
    begin_world(&w);
    S.never = "d";
    S.code = CKPT_IO;
    upload_text(&w, "d", "hi", false);
    await_end(&w);
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_IO);
    assert_non_null(strstr(ckpt_last_error(), "the script makes a put fail"));
    assert_non_null(strstr(ckpt_last_error(), w.staging));
    upload_text(&w, "d", "hi", false);
    assert_int_equal(close_uploader(&w, 0), CKPT_IO);
    assert_int_equal(entries(w.staging, ".upload"), 1);     // the newer one, for the next run
    assert_int_equal(entries(w.staging, ".data"), 1);
    S.never = NULL;
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "d"), "hi");
    end_world(&w);
}

static void scenario_five_files(void) {
    world w;
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_uploads = 3;
    open_uploader(&w);
    for (int i = 0; i < 5; i++) upload_text(&w, util_fmt("%d", i), util_fmt("%d", i), true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(pending(&w), 0);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    for (int i = 0; i < 5; i++) assert_string_equal(text_of(&w, util_fmt("%d", i)), util_fmt("%d", i));
    end_world(&w);
}

static void scenario_overwrite(void) {
    world w;
    begin_world(&w);
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    upload_text(&w, "a", "2", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "2");
    upload_text(&w, "a", "3", false);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_EXISTS);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "2");
    end_world(&w);
}

static void upload_linked(world *w, const char *name, const char *text, uint64_t order, void (*done)(const char *, ckpt_err, bool, void *), void *user) {
    ckpt__upload up;
    memset(&up, 0, sizeof up);
    up.name = name;
    up.path = file_of(w, "source", text);
    up.overwrite = true;
    up.link_name = "latest-rank0.pt.symlink";
    up.link_text = name;
    up.link_order[0] = order;
    up.done = done;
    up.user = user;
    ckpt_err e = ckpt__uploader_add(w->u, &up);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

static void scenario_symlink_after(void) {
    world w;
    begin_world(&w);
    upload_linked(&w, "ep0-ba1-rank0.pt", "x", 1, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "ep0-ba1-rank0.pt");
    assert_string_equal(S.order, "ep0-ba1-rank0.pt latest-rank0.pt.symlink ");
    const char *to = util_join(w.dir, "down");
    assert_int_equal(ckpt_download_file(w.u, "latest-rank0.pt", to, false), CKPT_OK);
    assert_string_equal(util_read(to, NULL), "x");
    end_world(&w);
}

static void scenario_symlink_not_after_failure(void) {
    world w;
    begin_world(&w);
    S.never = "ep0";
    S.code = CKPT_IO;
    upload_linked(&w, "ep0-ba1-rank0.pt", "x", 1, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_IO);
    assert_string_equal(util_list(w.bucket), "");
    end_world(&w);
}

static void scenario_probe(void) {
    world w;
    begin_world(&w);
    assert_string_equal(util_list(w.bucket), "");           // Composer leaves an empty object behind
    assert_int_equal(S.lists, 0);
    end_world(&w);
    // A store without parts, as sftp:// is: an object that is removed again.
    new_world(&w);
    open_store(&w);
    S.table.begin = NULL;
    open_uploader(&w);
    assert_string_equal(S.order, CKPT__UPLOADER_PROBE " -" CKPT__UPLOADER_PROBE " ");
    assert_string_equal(util_list(w.bucket), "");
    end_world(&w);
    // Missing rights show at the open. Root may write anywhere.
    if (geteuid() == 0) return;
    new_world(&w);
    assert_int_equal(chmod(w.bucket, 0500), 0);
    w.d.bucket_uri = util_fmt("file://%s", w.bucket);
    w.d.upload_staging_folder = w.staging;
    assert_int_equal(ckpt_uploader_open(&w.u, &w.d), CKPT_AUTH);
    assert_int_equal(chmod(w.bucket, 0700), 0);
}

static void scenario_error_once(void) {
    world w;
    begin_world(&w);
    fail_next(1, CKPT_IO, false);
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_IO);
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
    fail_next(1, CKPT_AUTH, false);
    upload_text(&w, "b", "1", true);
    upload_text(&w, "c", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    assert_string_equal(text_of(&w, "c"), "1");
    assert_int_equal(close_uploader(&w, 0), CKPT_IO);       // the first one ever
    end_world(&w);
}

typedef struct scenario { const char *name; void (*run)(void); } scenario;

static const scenario scenarios[] = {
    { "single upload, threads", scenario_single },
    { "single upload, processes", scenario_single },
    { "same name twice without overwrite, second while the first is still pending", scenario_twice_pending },
    { "same name twice without overwrite, second after the first finished; detected at batch_end", scenario_twice_finished },
    { "same, detected at epoch_end", scenario_twice_finished },
    { "overwrite check is done on the first attempt only", scenario_first_attempt_only },
    { "ten uploads of one name in a row, 4 workers: last one wins", scenario_ten_in_a_row },
    { "post_close does not hang after a worker died", scenario_failure_does_not_hang },
    { "worker's own exception reaches the training loop", scenario_failure_does_not_hang },
    { "five files, three workers", scenario_five_files },
    { "overwrite=True replaces", scenario_overwrite },
    { "overwrite=False on an existing object", scenario_overwrite },
    { "check_workers rethrows", scenario_failure_does_not_hang },
    { "wait drains", scenario_five_files },
    { "wait_and_close drains", scenario_five_files },
    { "bad count", NULL },              // test_description
    { "upload before init", NULL },     // there is no such state: test_description
    { "remote symlink is uploaded after the checkpoint", scenario_symlink_after },
    { "remote symlink is not uploaded when the checkpoint upload fails", scenario_symlink_not_after_failure },
    { "credential probe object", scenario_probe },
    { "transient failure that a retry cures still raises at the end of fit", scenario_first_attempt_only },
    { "error repeats", scenario_error_once },
};

static void test_scenarios(void **state) {
    (void)state;
    size_t size;
    const char *text = util_read(util_tests_path("cases/uploader_scenarios.json"), &size);
    ckpt__json_doc doc;
    assert_int_equal(ckpt__json_parse(&doc, NULL, text, size), CKPT_OK);
    int count = 0;
    for (const ckpt__json *c = ckpt__json_child(&doc, ckpt__json_root(&doc)); c != NULL; c = ckpt__json_next(&doc, c), count++) {
        const char *name = ckpt__json_get(&doc, c, "name")->text;
        int found = -1;
        for (int i = 0; i < UTIL_COUNT(scenarios); i++) if (strcmp(scenarios[i].name, name) == 0) found = i;
        if (found < 0) fail_msg("the scenario '%s' is not tested", name);
        bool again = false;
        for (int i = 0; i < found; i++) again = again || scenarios[i].run == scenarios[found].run;
        if (scenarios[found].run != NULL && !again) scenarios[found].run();
    }
    assert_int_equal(count, UTIL_COUNT(scenarios));
    ckpt__json_free(&doc);
}

//-- order -----------------------------------------------------------------------------------------------

typedef struct told { int done, published, cancelled; char names[1024]; } told;

static void on_done(const char *name, ckpt_err e, bool published, void *user) {
    told *t = (told *)user;
    pthread_mutex_lock(&S.lock);
    t->done++;
    t->published += published;
    t->cancelled += e == CKPT_CANCELLED;
    size_t n = strlen(t->names);
    snprintf(t->names + n, sizeof t->names - n, "%s%s ", e == CKPT_OK ? "" : "!", name);
    pthread_mutex_unlock(&S.lock);
}

static void upload_done(world *w, const char *name, const char *text, told *t) {
    ckpt__upload up;
    memset(&up, 0, sizeof up);
    up.name = name;
    up.path = file_of(w, "source", text);
    up.overwrite = true;
    up.done = on_done;
    up.user = t;
    assert_int_equal(ckpt__uploader_add(w->u, &up), CKPT_OK);
}

static void test_replaced_while_waiting(void **state) {
    (void)state;
    world w;
    told t;
    memset(&t, 0, sizeof t);
    begin_world(&w);
    hold();
    upload_done(&w, "a", "a1", &t);
    await_count(&S.asked, 1);                               // a1 is on its way
    upload_done(&w, "b", "b1", &t);
    upload_done(&w, "c", "c1", &t);
    upload_done(&w, "a", "a2", &t);
    upload_done(&w, "b", "b2", &t);
    upload_done(&w, "a", "a3", &t);
    assert_int_equal(entries(w.staging, ".data"), 4);       // a1 a3 b2 c1: staged files of replaced ones are gone at once
    assert_int_equal(entries(w.staging, ".upload"), 4);
    assert_int_equal(pending(&w), 4);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(S.order, "a b c a ");
    assert_string_equal(text_of(&w, "a"), "a3");
    assert_string_equal(text_of(&w, "b"), "b2");
    assert_int_equal(t.done, 6);
    assert_int_equal(t.cancelled, 2);
    assert_int_equal(entries(w.staging, ".data"), 0);
    assert_int_equal(S.lists, 0);
    end_world(&w);
}

// Each upload is heard of once, also when the uploader is closed before its turn.
static void test_told_at_close(void **state) {
    (void)state;
    world w;
    told t;
    memset(&t, 0, sizeof t);
    begin_world(&w);
    hold();
    upload_done(&w, "a", "a1", &t);
    await_count(&S.asked, 1);
    upload_done(&w, "a", "a2", &t);
    upload_done(&w, "a", "a3", &t);
    upload_done(&w, "b", "b1", &t);
    upload_done(&w, "b", "b2", &t);
    assert_int_equal(close_uploader(&w, 0.01), CKPT_TIMEOUT);
    assert_int_equal(t.done, 5);
    assert_int_equal(t.cancelled, 5);
    assert_int_equal(entries(w.staging, ".upload"), 3);     // a1 a3 b2
    end_world(&w);
}

static void test_remove(void **state) {
    (void)state;
    world w;
    told t;
    memset(&t, 0, sizeof t);
    begin_world(&w);
    hold();
    upload_done(&w, "a", "a1", &t);
    await_count(&S.asked, 1);
    assert_int_equal(ckpt__uploader_remove(w.u, "a", false, on_done, &t), CKPT_OK);
    assert_int_equal(ckpt__uploader_remove(w.u, "never", false, on_done, &t), CKPT_OK);
    upload_done(&w, "b", "b1", &t);
    assert_int_equal(ckpt__uploader_remove(w.u, "b", false, NULL, NULL), CKPT_OK);      // it has not begun: it never will
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(S.order, "a -a ");
    assert_string_equal(util_list(w.bucket), "");
    assert_int_equal(t.done, 4);
    assert_int_equal(t.cancelled, 1);
    assert_int_equal(entries(w.staging, ".data"), 0);
    end_world(&w);
}

static ckpt_err put_after;              // what a file came to that was handed over when its forerunner was gone

static void on_gone(const char *name, ckpt_err e, bool published, void *user) {
    world *w = (world *)user;
    ckpt__upload up;
    (void)e;
    (void)published;
    memset(&up, 0, sizeof up);
    up.name = name;
    up.path = util_join(w->dir, "source");
    put_after = ckpt__uploader_add(w->u, &up);
}

// Who has asked for a removal, or for a look, may put a new file of that name as soon as it is told how that ended, though the worker
// is not done with it yet: the next save of a run that has gone back may come just then.
static void test_put_after_an_answer(void **state) {
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        world w;
        begin_world(&w);
        upload_text(&w, "a", "a1", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        if (looks) assert_int_equal(unlink(object(&w, "a")), 0);
        (void)file_of(&w, "source", "a2");
        put_after = CKPT_IO;
        if (looks) assert_int_equal(ckpt__uploader_look(w.u, "a", on_gone, &w), CKPT_OK);
        else assert_int_equal(ckpt__uploader_remove(w.u, "a", false, on_gone, &w), CKPT_OK);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(put_after, CKPT_OK);
        assert_string_equal(text_of(&w, "a"), "a2");
        end_world(&w);
    }
}

// A store that says so though nobody has cancelled anything: the file that did not go is told like any other that failed.
static void test_nothing_was_cancelled(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    fail_next(1, CKPT_CANCELLED, false);
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_IO);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    upload_text(&w, "b", "2", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(close_uploader(&w, 0), CKPT_IO);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "1");
    end_world(&w);
}

static void test_failed_then_newer(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    fail_next(1, CKPT_IO, false);
    upload_text(&w, "a", "old", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_IO);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    upload_text(&w, "a", "new", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(entries(w.staging, ".upload"), 0);     // else the next run would put the old one over the new one
    // One that fails while a newer one waits.
    hold();
    upload_text(&w, "a", "3", true);
    await_count(&S.asked, 3);
    upload_text(&w, "a", "4", true);
    fail_next(1, CKPT_IO, false);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_IO);
    assert_string_equal(text_of(&w, "a"), "4");
    assert_int_equal(entries(w.staging, ".upload"), 0);
    end_world(&w);
}

static void fail_all(const char *names, ckpt_err code) {
    pthread_mutex_lock(&S.lock);
    S.never = names;
    S.code = code;
    pthread_mutex_unlock(&S.lock);
}

static uint64_t failed_now(const world *w) {
    ckpt_transfer_stats s;
    ckpt_uploader_stats(w->u, &s);
    return s.failed;
}

static ckpt_err hidden_part(const char *name, const char *upload_id, double started, void *user) {
    (void)name, (void)upload_id, (void)started;
    ++*(int *)user;
    return CKPT_OK;
}

static int count_hidden(const world *w) {
    int count = 0;
    assert_int_equal(ckpt_store_uploads(w->store, "", hidden_part, &count), CKPT_OK);
    return count;
}

static void begin_hiding_world(world *w) {
    new_world(w);
    open_store(w);
    hidden_dir = util_join(w->dir, "hidden");
    util_mkdir(hidden_dir);
    S.table.put = h_put;
    S.table.begin = NULL;
    S.table.uploads = h_uploads;
    S.table.abort = h_abort;
    open_uploader(w);
}

// What a store hides of a file that was half-sent and is not needed any more goes with it, and that of others stays: when the newer
// one comes while it fails, or after that. When the store cannot be reached, the next process sees to it.
static void test_half_sent_then_newer(void **state) {
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        world w;
        begin_hiding_world(&w);
        int asked = locked_get(&S.asked);
        if (turn < 2) util_write_text(util_join(hidden_dir, "n.theirs"), "half");
        hold();
        upload_text(&w, "n", "old", true);
        await_count(&S.asked, asked + 1);
        if (turn != 1) upload_text(&w, "n", "new", true);
        if (turn < 2) fail_next(1, CKPT_AUTH, false);
        else fail_all("n", CKPT_NET);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), turn < 2 ? CKPT_AUTH : CKPT_NET);
        if (turn == 1) assert_int_equal(count_hidden(&w), 2);
        if (turn == 1) upload_text(&w, "n", "new", true);
        if (turn == 2) {
            (void)!close_uploader(&w, 0);
            assert_int_equal(entries(w.staging, ".upload"), 2);
            assert_int_equal(entries(w.staging, ".data"), 1);       // the older one's is not needed any more
            fail_all(NULL, CKPT_OK);
            open_uploader(&w);
        }
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_string_equal(text_of(&w, "n"), "new");
        assert_int_equal(count_hidden(&w), turn < 2);
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        end_world(&w);
    }
}

static void test_staging_is_a_file(void **state) {
    (void)state;
    world w;
    new_world(&w);
    open_store(&w);
    util_write_text(w.staging, "x");
    w.d.store = w.store;
    w.d.upload_staging_folder = w.staging;
    w.u = (ckpt_uploader *)&w;
    assert_int_equal(ckpt_uploader_open(&w.u, &w.d), CKPT_EXISTS);
    assert_null(w.u);
    assert_string_equal(util_read(w.staging, NULL), "x");
    end_world(&w);
}

// What it hides of a file that is refused for good goes: of one that was written to while it was sent, or before the next process or
// a later try came to it again.
static void test_half_sent_then_changed(void **state) {
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        world w;
        begin_hiding_world(&w);
        const char *path = big_file(&w, "source", CKPT__UPLOADER_COPIED + 1, 1);
        int asked = locked_get(&S.asked);
        hold();
        assert_int_equal(ckpt_upload_file(w.u, "n", path, true), CKPT_OK);
        await_count(&S.asked, asked + 1);
        if (turn == 0) assert_int_equal(truncate(path, CKPT__UPLOADER_COPIED / 2), 0);
        if (turn == 0) fail_next(1, CKPT_CORRUPT, false);
        else fail_all("n", CKPT_NET);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), turn == 0 ? CKPT_CORRUPT : CKPT_NET);
        if (turn > 0) {
            assert_int_equal(count_hidden(&w), 1);
            fail_all(NULL, CKPT_OK);
            assert_int_equal(truncate(path, CKPT__UPLOADER_COPIED / 2), 0);
            if (turn == 1) (void)!close_uploader(&w, 0);
            if (turn == 1) open_uploader(&w);
            ckpt__os_mutex_lock(&w.u->lock);
            if (turn == 2) ckpt__uploader_try_again(w.u, true);
            ckpt__os_mutex_unlock(&w.u->lock);
            await_end(&w);
        }
        assert_int_equal(count_hidden(&w), 0);
        assert_int_equal(entries(w.staging, ".upload"), 1);
        assert_string_equal(util_list(w.bucket), "");
        (void)!close_uploader(&w, 0);
        end_world(&w);
    }
}

// The record of a file that is not needed any more cannot be removed: it says so at least, and the next process does not send it over
// the newer one. When that one comes while it is being sent, or after it has failed.
static void test_record_stays(void **state) {
    (void)state;
    for (int running = 0; running < 2; running++) {
        world w;
        begin_world(&w);
        int asked = locked_get(&S.asked);
        if (running) hold();
        fail_next(1, CKPT_AUTH, false);
        upload_text(&w, "n", "old", true);
        await_count(&S.asked, asked + 1);
        if (!running) assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
        if (!running) hold();           // else the newer one's record may be the first that is removed
        if (!running) fault_arm_call("unlink", EACCES, 1);
        upload_text(&w, "n", "new", true);
        if (running) fault_arm_call("unlink", EACCES, 1);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), running ? CKPT_AUTH : CKPT_OK);
        assert_true(fault_disarm());
        assert_int_equal(entries(w.staging, ".upload"), 1);
        assert_int_equal(close_uploader(&w, 0), CKPT_AUTH);
        open_uploader(&w);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_string_equal(S.order, "n ");
        assert_string_equal(text_of(&w, "n"), "new");
        assert_string_equal(util_list(w.staging), "");
        end_world(&w);
    }
}

static int refusing;                // calls that have failed

static void refuse_record(const char *name, const char *path, int fd) {
    (void)fd;
    if (refusing == 0 && strcmp(name, "fsync") == 0) fault_arm_here("fsync", EIO);
    else if (refusing == 1 && strcmp(name, "unlink") == 0 && ckpt__txt_ends(path, ".upload")) fault_arm_here("unlink", EACCES);
    else return;
    refusing++;
}

// The same of a file that was never taken: who was told so has kept it, and may have put another by the time of the next process.
static void test_record_of_none_stays(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    refusing = 0;
    const char *path = file_of(&w, "source", "x");
    fault_watch = refuse_record;
    ckpt_err e = ckpt_upload_file(w.u, "n", path, true);
    fault_watch = NULL;
    assert_true(fault_disarm());
    assert_int_equal(e, CKPT_IO);
    assert_int_equal(refusing, 2);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.bucket), "");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

// What never got to the store hides nothing there: while it cannot be reached, each newer file takes the place of the one before, and
// nothing of that one stays to be looked for, also when it was tried again.
static void test_never_sent_then_newer(void **state) {
    (void)state;
    world w;
    begin_hiding_world(&w);
    int lists = S.lists;
    S.away = S.blind = S.transient = true;
    fail_all("n", CKPT_NET);
    for (int i = 0; i < 3; i++) {
        upload_text(&w, "n", util_fmt("%d", i), true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NET);
        if (i == 1) {
            int stats = locked_get(&S.stats);
            ckpt__os_mutex_lock(&w.u->lock);
            ckpt__uploader_try_again(w.u, true);
            ckpt__os_mutex_unlock(&w.u->lock);
            await_count(&S.stats, stats + 1);
            await_end(&w);
            assert_int_equal(S.lists, lists);
        }
        assert_int_equal(entries(w.staging, ".upload"), 1);
        assert_int_equal(entries(w.staging, ".data"), 1);
    }
    assert_int_equal(S.lists, lists);
    fail_all(NULL, CKPT_OK);
    S.away = false;
    upload_text(&w, "n", "last", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "last");
    assert_int_equal(entries(w.staging, ".upload"), 0);
    end_world(&w);
}

// What was half-sent of a link is taken away as well when it was put in the end.
static void test_half_sent_link(void **state) {
    (void)state;
    world w;
    begin_hiding_world(&w);
    S.only = "latest";
    fail_next(2, CKPT_NET, true);
    upload_linked(&w, "n", "1", 1, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "n");
    assert_int_equal(count_hidden(&w), 0);
    end_world(&w);
}

// A network that is away and comes back: what failed goes then, the newest first to see whether it is back, and each failure was
// told once.
static void test_outage(void **state) {
    (void)state;
    world w;
    fault_hope = fault_hope_most = 0.02;
    begin_world(&w);
    fail_next(0, CKPT_NET, true);
    fail_all("f", CKPT_NET);
    for (int i = 1; i <= 4; i++) upload_text(&w, util_fmt("f%d", i), util_fmt("%d", i), true);
    int heard = 0;
    for (int i = 0; i < 60000 && heard < 4; i++, usleep(1000)) heard += ckpt_uploader_check(w.u) == CKPT_NET;
    assert_int_equal(heard, 4);
    assert_int_equal(failed_now(&w), 4);
    // Three tries each, and again meanwhile. One that went again before the newest had failed may stand behind that one in the queue:
    // by so many more calls those have had their turn, and the newest alone is tried.
    await_count(&S.asked, locked_get(&S.asked) + (3 + 1) * 3);
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
    assert_int_equal(failed_now(&w), 4);
    assert_int_equal(entries(w.staging, ".upload"), 4);
    fail_all(NULL, CKPT_OK);
    await_count(&S.puts, 4);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(S.order, "f4 f1 f2 f3 ");
    assert_string_equal(text_of(&w, "f2"), "2");
    assert_int_equal(failed_now(&w), 0);
    assert_int_equal(entries(w.staging, ".upload"), 0);
    assert_int_equal(close_uploader(&w, 0), CKPT_NET);      // the first failure ever
    end_world(&w);
    fault_hope = 60, fault_hope_most = 900;
}

// The folder of staged files is on a server that is away when a file is looked at for the last time. Its parts stay, and it goes
// when the server is back; one that is in the store by then is.
static void test_staging_away(void **state) {
    (void)state;
    for (int big = 0; big < 2; big++) {
        world w;
        fault_hope = fault_hope_most = 0.02;
        begin_world(&w);
        ckpt__uploader_pause(w.u, 1);
        const size_t size = CKPT__UPLOADER_COPIED + 4096;       // so big that it is linked
        const char *path = big_file(&w, "source", size, 7);
        w.u->num_parts = 1;
        w.u->part_size = big ? size / 4 : size;
        assert_int_equal(ckpt_upload_file(w.u, "f", path, true), CKPT_OK);
        S.away_after = big ? 4 : 1;
        ckpt__uploader_pause(w.u, -1);
        ckpt_err e = CKPT_OK;
        for (int i = 0; i < 120000 && (locked_get(&S.puts) + locked_get(&S.completes) == 0 || pending(&w) > 0) && e == CKPT_OK; i++, usleep(500))
            e = ckpt_uploader_check(w.u);
        if (e == CKPT_OK) e = ckpt_uploader_check(w.u);     // both may have come since the last one
        assert_int_equal(e, big ? CKPT_NET : CKPT_OK);
        if (big) assert_non_null(strstr(ckpt_last_error(), "tried again later"));
        await_count(big ? &S.completes : &S.puts, 1);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_true(fault_disarm());
        same_file(object(&w, "f"), path);
        assert_int_equal(S.parts, big ? 4 : 0);
        assert_int_equal(S.begins, big);
        assert_int_equal(S.puts, !big);
        end_hopes(&w, e);
    }
}

// One that was written to meanwhile is not taken for what is in the store because it cannot be seen then.
static void test_changed_unseen(void **state) {
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        world w;
        begin_world(&w);
        ckpt__uploader_pause(w.u, 1);
        const size_t size = CKPT__UPLOADER_COPIED + 4096;       // so big that it is linked
        const char *path = big_file(&w, "source", size, 7);
        w.u->part_size = size;
        assert_int_equal(ckpt_upload_file(w.u, "f", path, true), CKPT_OK);
        S.change = path;
        if (gone) S.gone = util_fmt("%s", ckpt__uploader_slot_of(w.u, "f", false)->waiting->data);
        S.away_after = 1;
        ckpt__uploader_pause(w.u, -1);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_CORRUPT);
        assert_non_null(strstr(ckpt_last_error(), "was written to"));
        assert_int_equal(S.puts, 1);
        (void)fault_disarm();
        (void)close_uploader(&w, 0);
        end_world(&w);
    }
}

// One that is written to while it goes whole leaves what was there before as it was.
static void test_changed_in_between(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    upload_text(&w, "f", "before", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    ckpt__uploader_pause(w.u, 1);
    const size_t size = CKPT__UPLOADER_COPIED + 4096;           // so big that it is linked
    w.u->part_size = size;
    const char *path = big_file(&w, "source", size, 7);
    assert_int_equal(ckpt_upload_file(w.u, "f", path, true), CKPT_OK);
    torn = path;
    ckpt__uploader_pause(w.u, -1);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "was written to"));
    assert_string_equal(text_of(&w, "f"), "before");
    (void)fault_disarm();
    (void)close_uploader(&w, 0);
    end_world(&w);
}

static const char *bad_file;            // it cannot be opened

static void see_bad_file(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strcmp(path, bad_file) == 0) fault_arm_here("open", EIO);
}

// A staged file on a bad block says nothing of the store: the others go as soon as that is back.
static void test_staged_bad(void **state) {
    (void)state;
    world w;
    fault_hope = fault_hope_most = 0.02;
    begin_world(&w);
    fail_next(0, CKPT_NET, true);
    fail_all("f", CKPT_NET);
    for (int i = 1; i <= 3; i++) upload_text(&w, util_fmt("f%d", i), util_fmt("%d", i), true);
    for (int i = 0, heard = 0; i < 60000 && heard < 3; i++, usleep(1000)) heard += ckpt_uploader_check(w.u) == CKPT_NET;
    ckpt__os_mutex_lock(&w.u->lock);
    ckpt__uploader_slot *s = ckpt__uploader_slot_of(w.u, "f3", false);
    ckpt__uploader_item *it = s->failed != NULL ? s->failed : s->waiting != NULL ? s->waiting : s->running;
    bad_file = util_fmt("%s", it->data);
    ckpt__os_mutex_unlock(&w.u->lock);
    fault_set_spy(see_bad_file);
    for (int asked = locked_get(&S.asked), i = 0; i < 60000 && locked_get(&S.asked) < asked + 12; i++) usleep(1000);     // by another than f3
    fail_all(NULL, CKPT_OK);
    await_count(&S.puts, 2);
    assert_non_null(strstr(S.order, "f1"));
    assert_non_null(strstr(S.order, "f2"));
    for (int i = 0; i < 60000 && failed_now(&w) > 1; i++) usleep(1000);
    assert_int_equal(failed_now(&w), 1);
    fault_set_spy(NULL);
    (void)fault_disarm();
    await_count(&S.puts, 3);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "f3"), "3");
    assert_int_equal(close_uploader(&w, 0), CKPT_NET);
    end_world(&w);
    fault_hope = 60, fault_hope_most = 900;
}

static int mount_away;                  // so many opens of files in the bucket fail yet

static void see_mount_away(const char *name, const char *path) {
    if (strcmp(name, "open") != 0 || strstr(path, "/bucket/") == NULL || __atomic_load_n(&mount_away, __ATOMIC_SEQ_CST) <= 0) return;
    (void)__atomic_sub_fetch(&mount_away, 1, __ATOMIC_SEQ_CST);
    fault_arm_here("open", ENOTCONN);
}

// The folder of a file:// store is on a server that is away: for a moment nobody hears of it, for longer it is told, and goes later.
static void test_mount_away(void **state) {
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        world w;
        fault_hope = fault_hope_most = 0.02;
        begin_world(&w);
        upload_text(&w, "first", "0", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        mount_away = longer ? 7 : 1;
        fault_set_spy(see_mount_away);
        upload_text(&w, "f", "1", false);
        ckpt_err e = ckpt_uploader_wait(w.u, 0);
        assert_int_equal(e, longer ? CKPT_NET : CKPT_OK);
        await_count(&S.puts, 2);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_int_equal(mount_away, 0);
        assert_string_equal(text_of(&w, "f"), "1");
        end_hopes(&w, e);
    }
}

// What failed here and not in the store passes as well: a link that could not be noted, a staged file that could not be opened.
static void test_local_failures_pass(void **state) {
    (void)state;
    for (int open = 0; open < 2; open++) {
        world w;
        ckpt__uploader_link l;
        fault_hope = fault_hope_most = 0.02;
        begin_world(&w);
        ckpt__uploader_pause(w.u, 1);
        upload_linked(&w, "n", "1", 1, NULL, NULL);
        assert_int_equal(ckpt__uploader_link_find(w.u, &l, w.staging, "latest-rank0.pt.symlink"), CKPT_OK);
        if (!open) util_mkdir(l.path);                      // in the way of that note
        if (open) fault_arm_call("open", EMFILE, 1);
        ckpt__uploader_pause(w.u, -1);
        ckpt_err e = CKPT_OK;
        for (int i = 0; i < 120000 && e == CKPT_OK; i++, usleep(500)) e = ckpt_uploader_check(w.u);
        (void)fault_disarm();
        assert_int_equal(e, open ? CKPT_NOMEM : CKPT_IO);
        assert_non_null(strstr(ckpt_last_error(), "tried again later"));
        if (!open) assert_int_equal(rmdir(l.path), 0);
        ckpt__uploader_link_free(w.u, &l);
        await_count(&S.puts, 2);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "n");
        assert_string_equal(S.order, "n latest-rank0.pt.symlink ");
        assert_int_equal(close_uploader(&w, 0), e);
        end_world(&w);
        fault_hope = 60, fault_hope_most = 900;
    }
}

static int unread_why;              // the errno of what cannot be read

static void open_no_note(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, ".link")) fault_arm_here("open", unread_why);
}

static void date_link(const world *w, int days) {
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec += days * 86400;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, object(w, "latest-rank0.pt.symlink"), times, 0), 0);
}

// The note of what was published last cannot be read, for a moment or for ever: it may be of a later one, whose link does not go back.
// What the store has tells, and the note is written anew. A saver that counts on from it hears of that.
static void note_unseen(int why, ckpt_err expected) {
    world w;
    uint64_t order = 0;
    unread_why = why;
    begin_world(&w);
    upload_linked(&w, "c2", "2", 2, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    date_link(&w, 1);                                       // c1 was staged before it, and failed, perhaps
    fault_set_spy(open_no_note);
    upload_linked(&w, "c1", "1", 1, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c2");
    assert_string_equal(text_of(&w, "c1"), "1");
    upload_linked(&w, "c3", "3", 3, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c3");
    assert_int_equal(ckpt__uploader_published(w.u, w.dir, "latest-rank0.pt.symlink", &order), expected);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    assert_int_equal(ckpt__uploader_published(w.u, w.dir, "latest-rank0.pt.symlink", &order), CKPT_OK);
    assert_int_equal(order, 3);
    date_link(&w, -1);
    fault_set_spy(open_no_note);                            // and a run that has gone back goes on
    upload_linked(&w, "c1", "1", 4, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    fault_set_spy(NULL);
    (void)fault_disarm();
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c1");
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    end_world(&w);
}

static void test_note_unseen(void **state) {
    (void)state;
    note_unseen(EIO, CKPT_IO);
    note_unseen(ESTALE, CKPT_NET);
}

// A store that refuses what is not there, after an answer that was lost: that is told once, and tried again.
static void test_refused_for_nothing(void **state) {
    (void)state;
    world w;
    fault_hope = fault_hope_most = 0.02;
    begin_world(&w);
    fail_next(1, CKPT_EXISTS, false);
    upload_text(&w, "f", "1", false);
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < 120000 && e == CKPT_OK; i++, usleep(500)) e = ckpt_uploader_check(w.u);
    assert_int_equal(e, CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "tried again later"));
    await_count(&S.puts, 1);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "f"), "1");
    assert_int_equal(close_uploader(&w, 0), CKPT_EXISTS);
    end_world(&w);
    fault_hope = 60, fault_hope_most = 900;
}

// A store that takes longer to fail than the time until the next try: that counts from the end of one, or something would be
// pending for ever, and somebody who waits would find no end.
static void test_outage_takes_long(void **state) {
    (void)state;
    world w;
    fault_hope = fault_hope_most = 0.3;
    begin_world(&w);
    fail_next(0, CKPT_NET, true);
    fail_all("f", CKPT_NET);
    for (int i = 1; i <= 2; i++) upload_text(&w, util_fmt("f%d", i), "1", true);
    int heard = 0;
    for (int i = 0; i < 60000 && heard < 2; i++, usleep(1000)) heard += ckpt_uploader_check(w.u) == CKPT_NET;
    pthread_mutex_lock(&S.lock);
    S.slow_us = 150000;                                     // three of them to a try
    int before = S.asked;
    pthread_mutex_unlock(&S.lock);
    await_count(&S.asked, before + 3);
    bool rests = false;
    while (!rests && locked_get(&S.asked) < before + 150) {             // seconds in which this thread may not run
        usleep(1000);
        ckpt__os_mutex_lock(&w.u->lock);
        rests = w.u->waiting + w.u->running == 0 && w.u->hope_at > ckpt__os_now();
        ckpt__os_mutex_unlock(&w.u->lock);
    }
    assert_true(rests);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(close_uploader(&w, 0), CKPT_NET);
    end_world(&w);
    fault_hope = 60, fault_hope_most = 900;
}

// What failed while others got through goes again when somebody waits; what can never go, or has a successor, does not.
static void test_tried_again_by_wait(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    fail_next(1, CKPT_AUTH, false);
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    assert_non_null(strstr(ckpt_last_error(), "tried again later"));
    assert_int_equal(w.u->hopeful, 1);
    assert_string_equal(text_of(&w, "a"), "(absent)");
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);  // nothing says that the store is better now
    assert_int_equal(S.asked, 1);
    upload_text(&w, "b", "2", true);
    await_end(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "1");
    assert_int_equal(S.asked, 3);
    assert_int_equal(w.u->hopeful, 0);
    assert_int_equal(failed_now(&w), 0);
    fail_next(1, CKPT_CORRUPT, false);
    upload_text(&w, "never", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "the next run tries again"));
    assert_int_equal(w.u->hopeful, 0);
    fail_next(3, CKPT_NET, true);
    upload_text(&w, "c", "old", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NET);
    assert_int_equal(w.u->hopeful, 1);
    assert_int_equal(ckpt__uploader_slot_of(w.u, "c", false)->failed->fd, -1);      // there may be many
    upload_text(&w, "c", "new", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(w.u->hopeful, 0);
    assert_string_equal(text_of(&w, "c"), "new");
    end_world(&w);
}

// An outage that nothing follows: who closes when it is over does not leave behind what it kept from the store, the newest of a run
// perhaps. While it goes on the newest alone is tried, once for each call.
static void test_outage_at_the_end(void **state) {
    (void)state;
    for (int over = 0; over < 2; over++) {
        world w;
        begin_world(&w);
        fail_next(0, CKPT_NET, false);
        fail_all("f", CKPT_NET);
        for (int i = 1; i <= 3; i++) upload_text(&w, util_fmt("f%d", i), "1", true);
        for (int i = 1; i <= 3; i++) assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NET);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(S.asked, 3);
        if (over) fail_all(NULL, CKPT_OK);
        assert_int_equal(close_uploader(&w, 0), CKPT_NET);
        assert_int_equal(S.asked, over ? 6 : 4);
        for (int i = 1; i <= 3; i++) assert_string_equal(text_of(&w, util_fmt("f%d", i)), over ? "1" : "(absent)");
        assert_int_equal(entries(w.staging, ".upload"), over ? 0 : 3);
        fail_all(NULL, CKPT_OK);
        end_world(&w);
    }
}

// A small file that failed, and that could not be taken out of the journal either, is found in the store by the next try.
static void test_journal_tried_again(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    for (int i = 0; i <= (int)CKPT__UPLOADER_SINGLE; i++) upload_text(&w, util_fmt("s%d", i), "x", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    int asked = locked_get(&S.asked);
    hold();
    upload_text(&w, "n", "text", false);
    await_count(&S.asked, asked + 1);
    const ckpt__uploader_item *it = ckpt__uploader_slot_of(w.u, "n", false)->running;
    assert_non_null(it->place);
    const char *data = util_fmt("%s", it->data);
    util_mkdir(data);                                       // it is in the file's way
    fail_next(1, CKPT_AUTH, false);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    assert_non_null(it->place);
    assert_int_equal(rmdir(data), 0);
    util_write_text(object(&w, "n"), "text");
    upload_text(&w, "b", "2", true);
    await_end(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(failed_now(&w), 0);
    end_world(&w);
    assert_string_equal(util_list(w.staging), "");
}

// A file in parts that failed half-way goes on with those that are missing.
static void test_parts_tried_again(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    const char *big = big_file(&w, "big", 200000, 3);
    hold_parts(4);
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    await_count(&S.parts, 4);
    fail_next(0, CKPT_NET, true);
    fail_all("big", CKPT_NET);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NET);
    fail_all(NULL, CKPT_OK);
    upload_text(&w, "b", "2", true);
    await_end(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    same_file(object(&w, "big"), big);
    assert_int_equal(S.begins, 1);
    for (int i = 1; i < 64; i++) assert_true(S.part_count[i] <= 1);
    assert_int_equal(entries(w.staging, ".data"), 0);
    end_world(&w);
}

// A store was full for a while: what failed then is sent as soon as there is room again. The parts that it had taken are not left in
// it, where they would be in the way.
static void test_full_store(void **state) {
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        world w;
        begin_world(&w);
        const char *big = big_file(&w, "big", parts ? 200000 : 1000, 3);
        if (parts) hold_parts(4);
        fail_next(0, CKPT_NO_SPACE, false);
        fail_all(parts ? NULL : "big", CKPT_NO_SPACE);
        assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
        if (parts) await_count(&S.parts, 4);
        fail_all("big", CKPT_NO_SPACE);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NO_SPACE);
        assert_non_null(strstr(ckpt_last_error(), "tried again later"));
        assert_int_equal(S.aborts, parts);
        fail_all(NULL, CKPT_OK);
        upload_text(&w, "b", "2", true);
        await_end(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        same_file(object(&w, "big"), big);
        assert_int_equal(failed_now(&w), 0);
        end_world(&w);
        assert_string_equal(util_list(w.staging), "");
    }
}

// Another upload is begun for it, with an id that only differs from the last one's at its end: the record tells of both.
static void test_long_upload_ids(void **state) {
    (void)state;
    static const char *const ends[] = { "a", "a", "b", "b2" };
    static const int lines[] = { 1, 1, 2, 3 };
    ckpt_uploader u;
    ckpt__uploader_item it;
    ckpt__uploader_sending s;
    memset(&u, 0, sizeof u);
    memset(&it, 0, sizeof it);
    memset(&s, 0, sizeof s);
    s.u = &u;
    s.it = &it;
    it.record = (char *)(uintptr_t)util_join(util_temp_dir(), "record");
    util_write_text(it.record, "");
    ckpt__buf_init(&it.sent.upload_id, &u.allocator);
    for (int i = 0; i < UTIL_COUNT(ends); i++) {
        int heard = 0;
        it.sent.upload_id.len = 0;
        ckpt__buf_fmt(&it.sent.upload_id, "%0400d%s", 0, ends[i]);
        assert_int_equal(ckpt__uploader_remember(&it.sent, &s), CKPT_OK);
        for (const char *at = util_read(it.record, NULL); (at = strstr(at, "\"begun\"")) != NULL; at++) heard++;
        assert_int_equal(heard, lines[i]);
    }
    ckpt__buf_free(&it.sent.upload_id);
}

static void test_many_failures(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    S.never = "bad";
    S.code = CKPT_NOT_FOUND;
    for (int i = 0; i < 40; i++) upload_text(&w, util_fmt("bad%d", i), "x", true);
    upload_text(&w, "good", "x", true);
    int seen = 0;
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NOT_FOUND);
    for (seen = 1; ckpt_uploader_check(w.u) != CKPT_OK; seen++) {}
    assert_int_equal(seen, CKPT__UPLOADER_FAILURES);
    assert_non_null(strstr(ckpt_last_error(), "8 more"));
    assert_string_equal(text_of(&w, "good"), "x");
    ckpt_transfer_stats s;
    ckpt_uploader_stats(w.u, &s);
    assert_int_equal(s.failed, 40);
    assert_int_equal(close_uploader(&w, 0), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "bad0"));
    end_world(&w);
}

static void test_attempts(void **state) {
    (void)state;
    world w;
    new_world(&w);
    open_store(&w);
    w.d.num_attempts = 5;
    open_uploader(&w);
    fail_next(5, CKPT_NET, true);
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NET);
    assert_non_null(strstr(ckpt_last_error(), "5 tries"));
    assert_int_equal(S.asked, 5);
    fail_next(1, CKPT_AUTH, false);
    upload_text(&w, "b", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    assert_int_equal(S.asked, 6);
    end_world(&w);
}

static void test_time_limits(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    hold();
    upload_text(&w, "a", "1", true);
    upload_text(&w, "b", "2", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0.05), CKPT_TIMEOUT);
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
    double began = ckpt__os_now();
    assert_int_equal(close_uploader(&w, 0.05), CKPT_TIMEOUT);
    assert_true(ckpt__os_now() - began < 60.0);
    assert_non_null(strstr(ckpt_last_error(), w.staging));
    assert_string_equal(util_list(w.bucket), "");
    assert_int_equal(entries(w.staging, ".upload"), 2);
    assert_int_equal(entries(w.staging, ".lock"), 0);
    let_go();
    open_uploader(&w);                                      // the next process
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "1");
    assert_string_equal(text_of(&w, "b"), "2");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void test_stagger(void **state) {
    (void)state;
    world w;
    new_world(&w);
    open_store(&w);
    setenv("COMPOSER_LOCAL_RANK_STAGGER_SECONDS", "1", 1);
    w.d.ranks.world_size = 2;
    w.d.ranks.rank = w.d.ranks.local_rank = 1;
    w.d.ranks.local_world_size = 2;
    double began = ckpt__os_now();
    open_uploader(&w);
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_true(ckpt__os_now() - began >= 1.0);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    setenv("COMPOSER_LOCAL_RANK_STAGGER_SECONDS", "often", 1);
    w.d.store = w.store;
    assert_int_equal(ckpt_uploader_open(&w.u, &w.d), CKPT_ARG);
    unsetenv("COMPOSER_LOCAL_RANK_STAGGER_SECONDS");
    end_world(&w);
}

//-- staging ---------------------------------------------------------------------------------------------

static void test_staging_by_link(void **state) {
    (void)state;
    world w;
    struct stat a, b;
    begin_world(&w);
    hold();
    const char *big = big_file(&w, "big", CKPT__UPLOADER_COPIED + 1, 1), *small = file_of(&w, "small", "before");
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    assert_int_equal(ckpt_upload_file(w.u, "small", small, true), CKPT_OK);
    assert_int_equal(stat(big, &a), 0);
    assert_int_equal(a.st_nlink, 2);                        // no byte was copied
    assert_int_equal(stat(small, &b), 0);
    assert_int_equal(b.st_nlink, 1);
    // Rotation may delete and replace at once; a small file may be written to.
    const char *copy = big_file(&w, "copy", CKPT__UPLOADER_COPIED + 1, 1);
    assert_int_equal(unlink(big), 0);
    util_write_text(small, "after, and longer");
    const char *link = util_join(w.dir, "link");
    assert_int_equal(symlink(copy, link), 0);
    assert_int_equal(ckpt_upload_file(w.u, "through a link", link, true), CKPT_OK);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    same_file(object(&w, "big"), copy);
    same_file(object(&w, "through a link"), copy);
    assert_string_equal(text_of(&w, "small"), "before");
    end_world(&w);
}

// The copy of a file that only its owner may read is for nobody else either.
static void test_staged_for_the_owner(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    hold();
    mode_t before = umask(022);
    for (int i = 0; i < 10; i++) {
        const char *path = big_file(&w, "secret", i == 9 ? 1 << 20 : 100, 1);
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(ckpt_upload_file(w.u, util_fmt("%d", i), path, true), CKPT_OK);
    }
    assert_int_equal(entries(w.staging, ".data"), 9);
    assert_int_equal(entries(w.staging, ".journal"), 1);
    const char *list = util_list(w.staging);
    for (const char *p = list; *p != 0; p = strchr(p, '\n') + 1) {
        struct stat s;
        const char *name = util_fmt("%.*s", (int)strcspn(p, "\n"), p);
        assert_int_equal(stat(util_join(w.staging, name), &s), 0);
        if (!ckpt__txt_ends(name, ".lock")) assert_int_equal(s.st_mode & 077, 0);
    }
    umask(before);
    let_go();
    end_world(&w);
}

// A durable file is linked whatever its size; a link that is written to is found out.
static void test_written_in_place(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    hold();
    const char *big = big_file(&w, "big", CKPT__UPLOADER_COPIED + 1, 1);
    upload_text(&w, "first", "x", true);
    await_count(&S.asked, 1);
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    util_write_text(big, "short");
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_CORRUPT);
    assert_false(util_exists(object(&w, "big")));
    end_world(&w);
}

// Of the same length as before, and long after it was staged.
static void test_overwritten_in_place(void **state) {
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        world w;
        new_world(&w);
        open_store(&w);
        w.d.part_size = parts ? 0 : 64 << 20;
        open_uploader(&w);
        hold();
        const char *big = big_file(&w, "big", CKPT__UPLOADER_COPIED + 1, 1);
        upload_text(&w, "first", "x", true);
        await_count(&S.asked, 1);
        assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
        usleep(30000);
        util_flip(big, 1000, 1);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_CORRUPT);
        assert_non_null(strstr(ckpt_last_error(), "written"));
        assert_false(util_exists(object(&w, "big")));
        end_world(&w);
    }
}

// What was written to is told once: no later process sends it, and a newer file of that name takes its place.
static void test_written_to_is_told_once(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    hold();
    const char *big = big_file(&w, "big", CKPT__UPLOADER_COPIED + 1, 1);
    upload_text(&w, "first", "x", true);
    await_count(&S.asked, 1);
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    util_write_text(big, "short");
    let_go();
    assert_int_equal(close_uploader(&w, 0), CKPT_CORRUPT);
    for (int i = 0; i < 2; i++) {
        open_uploader(&w);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_int_equal(entries(w.staging, ".data"), 1);
    }
    open_uploader(&w);
    upload_text(&w, "big", "new", true);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "big"), "new");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void test_beside_the_file(void **state) {
    (void)state;
    world w;
    begin_world_beside(&w);
    hold();
    util_mkdir(util_join(w.dir, "x"));
    util_mkdir(util_join(w.dir, "y"));
    util_write_text(util_join(w.dir, "x/f"), "x");
    util_write_text(util_join(w.dir, "y/f"), "y");
    assert_int_equal(ckpt_upload_file(w.u, "x", util_join(w.dir, "x/f"), true), CKPT_OK);
    assert_int_equal(ckpt_upload_file(w.u, "y", util_join(w.dir, "y/f"), true), CKPT_OK);
    assert_int_equal(entries(util_join(w.dir, "x/.ckpt-staging"), ".upload"), 1);
    assert_int_equal(entries(util_join(w.dir, "y/.ckpt-staging"), ".upload"), 1);
    assert_int_equal(close_uploader(&w, 0.01), CKPT_TIMEOUT);
    let_go();
    assert_int_equal(ckpt_uploader_open(&w.u, &w.d), CKPT_OK);
    assert_int_equal(ckpt__uploader_resume(w.u, util_join(w.dir, "x")), CKPT_OK);
    assert_int_equal(ckpt__uploader_resume(w.u, util_join(w.dir, "nowhere")), CKPT_OK);
    util_write_text(util_join(w.dir, "y/g"), "g");
    assert_int_equal(ckpt_upload_file(w.u, "g", util_join(w.dir, "y/g"), true), CKPT_OK);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.bucket), "g\nx\ny\n");
    assert_string_equal(util_list(util_join(w.dir, "x")), "f\n");       // nothing is left
    assert_string_equal(util_list(util_join(w.dir, "y")), "f\ng\n");
    end_world(&w);
}

static void test_other_file_system(void **state) {
    (void)state;
    struct stat a, b;
    world w;
    new_world(&w);
    static const char *const places[] = { "/dev/shm", "/tmp", "/var/tmp" };
    const char *place = NULL;
    assert_int_equal(stat(w.dir, &b), 0);
    for (int i = 0; i < UTIL_COUNT(places) && place == NULL; i++)
        if (stat(places[i], &a) == 0 && access(places[i], W_OK) == 0 && a.st_dev != b.st_dev) place = places[i];
    if (place == NULL) util_skip("/dev/shm, /tmp and /var/tmp are not there, or no other file system");
    const char *shm = util_fmt("%s/ckpt-test-%d", place, (int)getpid());
    open_store(&w);
    w.d.upload_staging_folder = shm;
    open_uploader(&w);
    hold();
    const char *big = big_file(&w, "big", 6 << 20, 3);
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    assert_int_equal(stat(big, &a), 0);
    assert_int_equal(a.st_nlink, 1);
    const char *copy = big_file(&w, "copy", 6 << 20, 3);
    util_write_text(big, "may be written to: it was copied");
    let_go();
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    same_file(object(&w, "big"), copy);
    assert_string_equal(util_list(shm), "");
    (void)rmdir(shm);
    end_world(&w);
}

static void test_no_room(void **state) {
    (void)state;
    world w;
    struct rlimit old, low;
    begin_world(&w);
    hold();
    upload_text(&w, "a", "1", true);
    const char *big = big_file(&w, "big", 1 << 20, 1);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    ckpt_err e = ckpt_upload_file(w.u, "big", big, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(e, CKPT_NO_SPACE);
    assert_non_null(strstr(ckpt_last_error(), big));
    assert_int_equal(entries(w.staging, ".data"), 1);
    assert_true(util_exists(big));
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    let_go();
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    same_file(object(&w, "big"), big);
    assert_string_equal(text_of(&w, "a"), "1");
    end_world(&w);
}

//-- recovery --------------------------------------------------------------------------------------------

// Runs `f` in a process that dies without a word.
static void in_a_process(void (*f)(world *w), world *w) {
    pid_t pid = fork();
    if (pid == 0) {
        open_store(w);
        f(w);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void die_with_two(world *w) {
    open_uploader(w);
    hold();
    upload_text(w, "a", "1", true);
    upload_text(w, "b", "2", false);
    upload_text(w, "b", "3", true);
    await_count(&S.asked, 1);
}

static void test_dead_owner(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_with_two, &w);
    assert_string_equal(util_list(w.bucket), "");
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(S.order, "a b ");
    assert_string_equal(text_of(&w, "b"), "3");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static ckpt_err add_heir(world *w, const char *name, const char *text, bool overwrite,
                         void (*done)(const char *name, ckpt_err e, bool published, void *user)) {
    ckpt__upload up;
    memset(&up, 0, sizeof up);
    up.name = name;
    up.path = file_of(w, "source", text);
    up.overwrite = up.heir = overwrite;
    up.durable = true;
    up.done = done;
    up.user = w;
    return ckpt__uploader_add(w->u, &up);
}

static void stop_uploader(const char *name, ckpt_err e, bool published, void *user) {
    ckpt_uploader *u = ((world *)user)->u;
    (void)name, (void)published;
    assert_int_equal(e, CKPT_NET);
    ckpt__os_mutex_lock(&u->lock);
    u->stop = true;
    ckpt__os_mutex_unlock(&u->lock);
}

// The object is somebody else's, the file before the heir could not be sent, and its process ends before the heir's turn: the next
// one does not replace that object, nor do later files of the name.
static void test_heir_of_nothing(void **state) {
    (void)state;
    for (int more = 0; more < 2; more++) {
        world w;
        begin_world(&w);
        util_write_text(object(&w, "n"), "theirs");
        hold();
        assert_int_equal(add_heir(&w, "n", "1", false, stop_uploader), CKPT_OK);
        await_count(&S.asked, 1);
        assert_int_equal(add_heir(&w, "n", "2", true, NULL), CKPT_OK);
        if (more) assert_int_equal(add_heir(&w, "n", "3", true, NULL), CKPT_OK);
        fail_next(1, CKPT_NET, false);
        let_go();
        for (int i = 0; i < 60000 && failed_now(&w) == 0; i++) usleep(1000);    // else the close may cancel it first
        assert_int_equal(close_uploader(&w, 0.2), CKPT_NET);
        assert_int_equal(entries(w.staging, ".upload"), 1);
        open_uploader(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_EXISTS);
        assert_string_equal(text_of(&w, "n"), "theirs");
        if (more) assert_int_equal(close_uploader(&w, 0), CKPT_EXISTS);
        if (more) open_uploader(&w);                        // the refused one is known by what its record says
        assert_int_equal(add_heir(&w, "n", "4", true, NULL), CKPT_OK);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_EXISTS);
        assert_string_equal(text_of(&w, "n"), "theirs");
        assert_int_equal(entries(w.staging, ".upload"), 1);
        end_world(&w);
    }
}

static void set_blind(bool blind, bool unseen) {
    pthread_mutex_lock(&S.lock);
    S.blind = blind;
    S.unseen = unseen;
    pthread_mutex_unlock(&S.lock);
}

// A file that fails again though it was tried again, before a byte of it was sent, is no more in the store than before: what is there
// of its name is somebody else's, and neither replaced by the next one nor removed with what is given up. Nor is what it was refused
// for, as long as nobody can see whose that is.
static void test_tried_in_vain(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        int recalls = i % 2, refused = i / 2;
        world w;
        begin_world(&w);
        fault_hope = fault_hope_most = 0.02;
        util_write_text(object(&w, "n"), "theirs");
        fail_next(0, CKPT_NET, !refused);
        fail_all("n", refused ? CKPT_EXISTS : CKPT_NET);
        set_blind(true, refused);
        assert_int_equal(add_heir(&w, "n", "1", false, NULL), CKPT_OK);
        for (bool again = false; !again; usleep(1000)) {
            ckpt__os_mutex_lock(&w.u->lock);
            const ckpt__uploader_slot *s = ckpt__uploader_slot_of(w.u, "n", false);
            again = s->failed != NULL && s->failed->again;
            ckpt__os_mutex_unlock(&w.u->lock);
        }
        if (recalls) {
            int fd = -1;
            bool unsure = true;
            while (!ckpt__uploader_recall(w.u, "n", &fd, &unsure)) usleep(1000);        // it may be under way just now
            ckpt__os_drop(fd);
            assert_false(unsure);
        } else {
            ckpt__uploader_pause(w.u, 1);                   // else it may still fail as the one before, which is told once
            assert_int_equal(add_heir(&w, "n", "2", true, NULL), CKPT_OK);
        }
        fail_all(NULL, CKPT_OK);
        if (!recalls) ckpt__uploader_pause(w.u, -1);
        ckpt_err e = ckpt_uploader_wait(w.u, 0);
        while (e == CKPT_NET) e = ckpt_uploader_wait(w.u, 0);
        assert_int_equal(e, recalls ? CKPT_OK : CKPT_EXISTS);
        assert_string_equal(text_of(&w, "n"), "theirs");
        end_world(&w);
        fault_hope = 60, fault_hope_most = 900;
    }
}

static void die_with_an_heir(world *w) {
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    open_uploader(w);
    fail_next(1, CKPT_AUTH, false);
    assert_int_equal(add_heir(w, "n", "1", false, NULL), CKPT_OK);
    assert_int_equal(ckpt_uploader_wait(w->u, 0), CKPT_AUTH);
    memset(&up, 0, sizeof up);
    memset(&body, 0, sizeof body);
    body.fd = -1;
    up.name = "n";
    up.path = util_join(w->dir, "second");
    up.overwrite = up.heir = up.durable = true;
    assert_int_equal(ckpt__uploader_begin(w->u, &up, &body, &ticket), CKPT_OK);
    upload_text(w, "other", "x", true);                     // it gets through: the first one is tried again
    assert_int_equal(ckpt_uploader_wait(w->u, 0), CKPT_OK);
    assert_int_equal(S.puts, 2);
    hold();
    util_write_text(up.path, "2");
    assert_int_equal(ckpt__uploader_commit(w->u, ticket, &up), CKPT_OK);
}

// When its ticket was begun it was not to replace anything; by the time it is acknowledged its forerunner's object is there.
static void test_heir_after_all(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_with_an_heir, &w);
    assert_string_equal(text_of(&w, "n"), "1");
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "2");
    end_world(&w);
}

static void die_with_big(world *w) {
    open_uploader(w);
    hold();
    assert_int_equal(ckpt_upload_file(w->u, "big", big_file(w, "big", CKPT__UPLOADER_COPIED + 1, 1), true), CKPT_OK);
    upload_text(w, "small", "1", true);
    await_count(&S.asked, 1);
}

// The folder goes on on another machine, where its files have other times: they are sent as they are. A copy here is nobody's to
// write to, and of a link it is another file that was written to.
static void test_copied_folder(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_with_big, &w);
    const char *moved = util_join(w.dir, "moved");
    assert_int_equal(system(util_fmt("cp -r '%s' '%s' && touch '%s'/*.data", w.staging, moved, moved)), 0);
    util_flip(util_join(w.dir, "big"), 1000, 1);
    const char *as_it_was = big_file(&w, "as it was", CKPT__UPLOADER_COPIED + 1, 1);
    w.staging = moved;
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "small"), "1");
    same_file(object(&w, "big"), as_it_was);
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

// A link by itself, and the object that it would lead to is gone by the next try: it is not put, and nothing is left of it.
static void test_link_to_what_is_gone(void **state) {
    (void)state;
    world w;
    ckpt__upload up;
    for (int again = 0; again < 2; again++) {
        begin_world(&w);
        memset(&up, 0, sizeof up);
        up.name = "gone";
        up.link_name = "latest.symlink";
        up.link_text = "gone";
        up.beside = w.dir;
        up.overwrite = true;
        fail_next(1, CKPT_NET, false);
        assert_int_equal(ckpt__uploader_add(w.u, &up), CKPT_OK);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_NET);
        if (again) upload_text(&w, "other", "1", true);             // it gets through: the link is tried again
        if (again) assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        (void)!close_uploader(&w, 0);
        open_uploader(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(entries(w.staging, ".upload"), 0);
        assert_int_equal(entries(w.bucket, "latest.symlink"), 0);
        end_world(&w);
    }
}

static void collect_log(ckpt_log_level level, const char *msg, void *user) {
    char *log = (char *)user;
    size_t n = strlen(log);
    snprintf(log + n, 4096 - n, "%d %s\n", (int)level, msg);
}

// Its store keeps marks, and what the uploader says comes into `log`.
static void new_marked_world(world *w, char log[4096]) {
    log[0] = 0;
    new_world(w);
    keep_marks(true);
    w->d.logger.fn = collect_log;
    w->d.logger.user = log;
}

// What a rank has left is that rank's: two processes that send the same object would not know of each other. Of ranks that the job
// has not it is anybody's.
static void test_another_rank_s(void **state) {
    (void)state;
    static const struct { int rank, world; bool taken; } jobs[] = { { 0, 4, false }, { 2, 4, false }, { 1, 4, true }, { 0, 1, true }, { 0, 2, false } };
    for (int i = 0; i < UTIL_COUNT(jobs); i++) {
        world w;
        char log[4096] = "";
        new_world(&w);
        w.d.ranks.rank = i < 4 ? 1 : 3;
        w.d.ranks.world_size = w.d.ranks.local_world_size = 4;
        in_a_process(die_with_two, &w);
        w.d.ranks.rank = jobs[i].rank;
        w.d.ranks.world_size = w.d.ranks.local_world_size = jobs[i].world;
        w.d.logger.fn = collect_log;
        w.d.logger.user = log;
        open_store(&w);
        open_uploader(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        bool taken = jobs[i].taken || i == 4;           // of rank 3, and there are two now
        assert_string_equal(S.order, taken ? "a b " : "");
        assert_true((strstr(log, "holds 2 unfinished uploads that other ranks left") == NULL) == taken);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_int_equal(entries(w.staging, ".lock"), taken ? 0 : 1);
        end_world(&w);
    }
}

static void die_in_parts(world *w) {
    w->d.num_concurrent_parts = 2;
    open_uploader(w);
    hold_parts(5);
    const char *path = big_file(w, "big", 200000, 1);
    assert_int_equal(ckpt_upload_file(w->u, "big", path, true), CKPT_OK);
    await_count(&S.parts, 5);
    await_count(&S.asked, 7);                               // two more on their way: who asks for one has written down the one before
}

static void test_half_done(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_in_parts, &w);
    const char *big = util_join(w.dir, "keep");
    assert_int_equal(rename(util_join(w.dir, "big"), big), 0);
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(S.begins, 0);
    assert_int_equal(S.completes, 1);
    int twice = 0, sent = 0;
    for (int i = 0; i < 64; i++) { twice += S.part_count[i] > 1; sent += S.part_count[i]; }
    assert_int_equal(twice, 0);
    uint64_t size = ckpt__send_part_size(w.store, 200000, 2, 0);
    int all = (int)((200000 + size - 1) / size);
    assert_true(sent <= all - 5 && sent >= all - 7);        // a request of each worker may have come through
    same_file(object(&w, "big"), big);
    assert_string_equal(util_list(w.bucket), "big\n");
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void die_in_parts_again(world *w) {
    open_uploader(w);
    hold_parts(2);
    await_count(&S.parts, 2);
    await_count(&S.asked, 3);                               // both are in the record by then
}

// The store has lost a part in between: it is sent again, and recorded again.
static void test_part_lost(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_in_parts, &w);
    const char *find = util_fmt("find '%s' -type f -name '*1' | head -1", w.bucket);
    char path[4096] = "";
    FILE *f = popen(find, "r");
    if (f == NULL || fgets(path, sizeof path, f) == NULL) fail_msg("no part in %s", w.bucket);
    pclose(f);
    path[strcspn(path, "\n")] = 0;
    assert_int_equal(unlink(path), 0);
    w.d.num_concurrent_parts = 1;
    in_a_process(die_in_parts_again, &w);
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    uint64_t size = ckpt__send_part_size(w.store, 200000, 2, 0);
    int all = (int)((200000 + size - 1) / size);
    assert_int_equal(S.begins, 0);
    assert_int_equal(S.part_count[1], 0);
    assert_true(S.parts <= all - 6);
    same_file(object(&w, "big"), util_join(w.dir, "big"));
    end_world(&w);
}

// The newer file of a name counts; the older one's half-done upload is given up.
static void die_in_parts_with_newer(world *w) {
    die_in_parts(w);
    upload_text(w, "big", "small now", true);
}

static void test_half_done_replaced(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_in_parts_with_newer, &w);
    assert_int_equal(entries(w.staging, ".upload"), 2);
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(S.aborts, 1);
    assert_int_equal(S.parts, 0);
    assert_string_equal(text_of(&w, "big"), "small now");
    assert_string_equal(util_list(w.bucket), "big\n");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static int synced_records, early_removals;

// A staged file goes before a record was brought to disk.
static void hear_syncs(const char *name, const char *path, int fd) {
    char at[4096];
    ssize_t n = strcmp(name, "fsync") == 0 ? readlink(util_fmt("/proc/self/fd/%d", fd), at, sizeof at - 1) : -1;
    if (n > 0) at[n] = 0;
    if (n > 0 && ckpt__txt_ends(at, ".upload")) locked_add(&synced_records);
    bool goes = strcmp(name, "unlink") == 0 && ckpt__txt_ends(path, ".data");
    if (goes && locked_get(&synced_records) == 0) locked_add(&early_removals);
}

// That it is to be given up is on disk before its staged file goes: else the next process would miss that file.
static void test_dropped_before_it_goes(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_in_parts_with_newer, &w);
    open_store(&w);
    synced_records = early_removals = 0;
    __atomic_store_n(&fault_watch, hear_syncs, __ATOMIC_SEQ_CST);
    open_uploader(&w);
    __atomic_store_n(&fault_watch, NULL, __ATOMIC_SEQ_CST);
    assert_true(locked_get(&synced_records) > 0);
    assert_int_equal(locked_get(&early_removals), 0);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void confirmed_not_recorded(world *w) {
    open_uploader(w);
    hold();
    upload_text(w, "a", "1", false);
    await_count(&S.asked, 1);
    // The put gets through, but the process dies before it hears of it.
    ckpt__store_put p;
    ckpt__body b;
    ckpt__transfer t;
    memset(&p, 0, sizeof p);
    memset(&b, 0, sizeof b);
    memset(&t, 0, sizeof t);
    b.memory = "1";
    b.size = 1;
    b.fd = -1;
    p.name = "a";
    p.body = &b;
    p.mark = w->u->slots[ckpt__uploader_hash("a") % w->u->slot_cap]->running->mark;
    p.t = &t;
    if (S.inner->put(w->store, &p) != CKPT_OK) _exit(1);
}

static void test_own_object(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(confirmed_not_recorded, &w);
    open_store(&w);
    ckpt__store_stat info;
    ckpt__transfer t;
    memset(&t, 0, sizeof t);
    memset(&info, 0, sizeof info);
    assert_int_equal(S.inner->stat(w.store, "a", &info, &t), CKPT_OK);
    if (info.mark[0] == 0) {
        ckpt_store_close(w.store);
        util_skip("this file system keeps no extended attributes");
    }
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);       // not CKPT_EXISTS: the object is ours
    assert_int_equal(S.puts, 0);
    end_world(&w);
}

static bool unsummed;

static void summed_and_queued(world *w) {
    ckpt__upload up;
    open_uploader(w);
    hold();
    memset(&up, 0, sizeof up);
    up.name = "a";
    up.path = file_of(w, "source", "1");
    up.has_crc = !unsummed;
    up.crc = ckpt__digest_crc32(0, "1", 1);
    assert_int_equal(ckpt__uploader_add(w->u, &up), CKPT_OK);
    await_count(&S.asked, 1);
}

// Another rank puts that object.
static void put_as_another(const world *w, const char *text) {
    ckpt__store_put p;
    ckpt__body b;
    ckpt__transfer t;
    memset(&p, 0, sizeof p);
    memset(&b, 0, sizeof b);
    memset(&t, 0, sizeof t);
    b.memory = text;
    b.size = 1;
    b.fd = -1;
    p.name = "a";
    p.body = &b;
    p.overwrite = true;
    p.mark = "another";
    p.has_crc = true;
    p.crc = ckpt__digest_crc32(0, text, 1);
    p.t = &t;
    assert_int_equal(S.inner->put(w->store, &p), CKPT_OK);
}

// Of a job that died the next one's ranks hand over again what is not published, and one of them finds what the dead rank left, too:
// the same bytes under another mark, which are there before or come between the look and the put. That is no refusal. Nor is it of a
// file of ckpt_upload_file, whose sum nobody knows: the bytes tell.
static void test_same_object_by_another(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        const char *theirs = i % 4 < 2 ? "1" : "2";
        world w;
        new_world(&w);
        unsummed = i >= 4;
        in_a_process(summed_and_queued, &w);
        open_store(&w);
        put_as_another(&w, theirs);
        S.hidden = i % 2;
        open_uploader(&w);
        ckpt_err e = close_uploader(&w, 0);
        if (e != (i % 4 < 2 ? CKPT_OK : CKPT_EXISTS)) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        assert_string_equal(text_of(&w, "a"), theirs);
        assert_int_equal(entries(w.staging, ".upload"), i % 4 >= 2);
        unsummed = false;
        end_world(&w);
    }
}

// The same when the store cannot be reached at first: what comes there meanwhile is met by a second try.
static void test_same_object_after_an_outage(void **state) {
    (void)state;
    for (int other = 0; other < 2; other++) {
        world w;
        fault_hope = fault_hope_most = 0.02;
        new_world(&w);
        in_a_process(summed_and_queued, &w);
        open_store(&w);
        S.blind = S.transient = true;
        fail_all("a", CKPT_NET);
        open_uploader(&w);
        ckpt_err e = CKPT_OK;
        for (int i = 0; i < 60000 && e == CKPT_OK; i++, usleep(1000)) e = ckpt_uploader_check(w.u);
        assert_int_equal(e, CKPT_NET);
        put_as_another(&w, other ? "2" : "1");
        fail_all(NULL, CKPT_OK);
        await_no_hope(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(failed_now(&w), other);
        assert_int_equal(entries(w.staging, ".upload"), other);
        assert_string_equal(text_of(&w, "a"), other ? "2" : "1");
        end_world(&w);
        fault_hope = 60, fault_hope_most = 900;
    }
}

// The same with a store that keeps neither marks nor sums, as sftp://: the bytes tell.
static void test_own_object_plain(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++) {
        world w;
        new_world(&w);
        in_a_process(confirmed_not_recorded, &w);
        if (!same) util_write_text(object(&w, "a"), "2");   // another's, as long as ours
        open_store(&w);
        S.plain = true;
        open_uploader(&w);
        assert_int_equal(close_uploader(&w, 0), same ? CKPT_OK : CKPT_EXISTS);
        assert_string_equal(text_of(&w, "a"), same ? "1" : "2");
        if (same) assert_string_equal(util_list(w.staging), "");
        end_world(&w);
    }
}

static void no_ranges(void) {
    S.plain = true;
    S.table.get = NULL;
    S.table.fetch = s_fetch;
}

static ckpt_err go_on(world *w) {
    open_uploader(w);
    return close_uploader(w, 0);
}

// The same with one that knows no ranges either, as mlflow-artifacts: or the user's own: all of it is fetched and compared.
static void test_own_object_whole(void **state) {
    (void)state;
    static const struct { const char *there; int hidden, broken, longer, fetches; ckpt_err first, then; } cases[] = {
        { "1",  0, 0,  0, 1, CKPT_OK, CKPT_OK },
        { "2",  0, 0,  0, 1, CKPT_EXISTS, CKPT_OK },        // another's, as long as ours
        { "11", 0, 0,  0, 0, CKPT_EXISTS, CKPT_OK },        // another's: its length tells
        { "1",  0, 2,  0, 3, CKPT_OK, CKPT_OK },            // tried again
        { "1",  0, 6,  0, 6, CKPT_NET, CKPT_OK },           // not to be had now: that is no refusal
        { "2",  0, 6,  0, 6, CKPT_NET, CKPT_EXISTS },
        { "1",  0, 0,  2, 2, CKPT_CORRUPT, CKPT_OK },       // more than its size
        { "1",  1, 0,  0, 1, CKPT_OK, CKPT_OK },            // it appeared between the look and the put
        { "2",  1, 0,  0, 1, CKPT_EXISTS, CKPT_OK },
        { "11", 1, 0,  0, 0, CKPT_EXISTS, CKPT_OK },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        world w;
        new_world(&w);
        in_a_process(confirmed_not_recorded, &w);
        (void)unlink(object(&w, "a"));
        util_write_text(object(&w, "a"), cases[i].there);
        open_store(&w);
        no_ranges();
        S.hidden = cases[i].hidden;
        S.broken_fetches = cases[i].broken;
        S.longer_fetches = cases[i].longer;
        ckpt_err first = go_on(&w);
        if (first != cases[i].first) fail_msg("%d: %s: %s", i, ckpt_err_name(first), ckpt_last_error());
        assert_int_equal(S.fetches, cases[i].fetches);
        bool kept = first != CKPT_OK;
        assert_int_equal(entries(w.staging, ".data"), kept);
        assert_int_equal(entries(w.staging, ".upload"), kept);
        assert_int_equal(entries(w.staging, ".tmp"), 0);
        ckpt_err then = go_on(&w);
        if (then != cases[i].then) fail_msg("%d: then %s: %s", i, ckpt_err_name(then), ckpt_last_error());
        kept = cases[i].there[0] == '2' || cases[i].there[1] != 0;
        assert_int_equal(entries(w.staging, ".data"), kept);
        assert_int_equal(S.puts, 0);
        assert_string_equal(text_of(&w, "a"), cases[i].there);
        if (!kept) assert_string_equal(util_list(w.staging), "");
        end_world(&w);
    }
}

// The comparison can be cancelled, and nothing is left of it.
static void test_own_object_cancelled(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(confirmed_not_recorded, &w);
    open_store(&w);
    no_ranges();
    hold();
    open_uploader(&w);
    await_count(&S.fetches, 1);
    assert_int_equal(close_uploader(&w, 0.01), CKPT_TIMEOUT);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    assert_int_equal(entries(w.staging, ".tmp"), 0);
    let_go();
    assert_int_equal(go_on(&w), CKPT_OK);
    assert_int_equal(S.puts, 0);
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void completed_not_recorded(world *w) {
    w->d.num_concurrent_parts = 2;
    open_uploader(w);
    hold();
    assert_int_equal(ckpt_upload_file(w->u, "big", big_file(w, "source", 200000, 1), false), CKPT_OK);
    uint64_t size = ckpt__send_part_size(w->store, 200000, 2, 0);
    await_count(&S.asked, (int)((200000 + size - 1) / size) + 1);
    size_t n;
    const char *bytes = util_read(util_join(w->dir, "source"), &n);
    util_write(object(w, "big"), bytes, n);
}

// In parts, which a record tells of. Without and with ranges.
static void test_own_object_in_parts(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool same = i % 2 == 0;
        world w;
        new_world(&w);
        in_a_process(completed_not_recorded, &w);
        size_t n;
        char *bytes = util_slurp(object(&w, "big"), &n);
        if (!same) bytes[n - 1] ^= 1;
        util_write(object(&w, "big"), bytes, n);
        open_store(&w);
        if (i < 2) S.plain = true;
        else no_ranges();
        ckpt_err e = go_on(&w);
        if (e != (same ? CKPT_OK : CKPT_EXISTS)) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        size_t now;
        const char *there = util_read(object(&w, "big"), &now);
        assert_int_equal(now, n);
        assert_memory_equal(there, bytes, n);
        free(bytes);
        assert_string_equal(util_list(w.bucket), "big\n");
        assert_int_equal(entries(w.staging, ".data"), !same);
        assert_int_equal(entries(w.staging, ".tmp"), 0);
        end_world(&w);
    }
}

// Who may write and not look cannot be told whose the object is for which one is refused. It is not sent for that again and again, by
// nobody who waits either, but asked for, and once that is allowed it is known: ours, another's, or nobody's any more. [3] a dead
// process's, which it had completed, in parts; [4] one that goes whole
static void test_refused_unseen(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        static const char *const now[] = { "1", "2", NULL };
        world w;
        fault_hope = fault_hope_most = 0.02;
        new_world(&w);
        if (i == 3) in_a_process(completed_not_recorded, &w);
        if (i == 4) in_a_process(confirmed_not_recorded, &w);
        if (i == 4) assert_int_equal(unlink(object(&w, "a")), 0);       // it has a mark
        if (i == 4) util_write_text(object(&w, "a"), "1");
        open_store(&w);
        S.no_looks = S.plain = true;
        if (i < 3) fail_next(1, CKPT_EXISTS, false);
        open_uploader(&w);
        if (i < 3) util_write_text(object(&w, "a"), "1");
        if (i < 3) upload_text(&w, "a", "1", false);
        ckpt_err e = CKPT_OK;
        for (int k = 0; k < 60000 && e == CKPT_OK; k++, usleep(500)) e = ckpt_uploader_check(w.u);
        if (e != CKPT_AUTH) fail_msg("%d: %s", i, ckpt_err_name(e));
        assert_non_null(strstr(ckpt_last_error(), "cannot tell whose object is there"));
        int asked = locked_get(&S.asked), begins = locked_get(&S.begins), stats = locked_get(&S.stats);
        await_count(&S.stats, stats + 3);
        upload_text(&w, "b", "2", false);                   // the store can be reached
        while (strcmp(text_of(&w, "b"), "2") != 0) usleep(1000);
        for (int k = 0; k < 3; k++) assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(locked_get(&S.asked), asked + 1);
        assert_int_equal(locked_get(&S.begins), begins);
        assert_int_equal(failed_now(&w), 1);
        if (i < 3 && now[i] != NULL) util_write_text(object(&w, "a"), now[i]);
        else if (i < 3) assert_int_equal(unlink(object(&w, "a")), 0);
        pthread_mutex_lock(&S.lock);
        S.no_looks = false;
        pthread_mutex_unlock(&S.lock);
        await_no_hope(&w);
        assert_int_equal(failed_now(&w), i == 1);
        assert_int_equal(locked_get(&S.asked), asked + (i == 2 ? 2 : 1));
        assert_int_equal(locked_get(&S.begins), begins);
        if (i != 3) assert_string_equal(text_of(&w, "a"), i == 1 ? "2" : "1");
        assert_int_equal(entries(w.staging, ".data"), i == 1);
        end_world(&w);
        fault_hope = 60, fault_hope_most = 900;
    }
}

// A process that is killed while it publishes leaves the lock of the link behind. One that is held stays.
static void test_link_locks(void **state) {
    (void)state;
    world w;
    new_world(&w);
    util_mkdir(w.staging);
    int fd = -1;
    const char *left = util_join(w.staging, "l-01234567-0123456789abcdef.lock"), *held = util_join(w.staging, "l-01234567-1123456789abcdef.lock");
    util_write_text(left, "");
    assert_int_equal(ckpt__os_lock(&fd, held), CKPT_OK);
    open_store(&w);
    open_uploader(&w);
    assert_false(util_exists(left));
    assert_true(util_exists(held));
    ckpt__os_unlock(fd, held);
    end_world(&w);
}

static void live_owner(world *w) {
    // In a child of the test, while the parent's uploader lives.
    w->u = NULL;
    open_uploader(w);
    upload_text(w, "mine", "c", true);
    if (close_uploader(w, 0) != CKPT_OK) _exit(2);
    if (strcmp(S.order, "mine ") != 0) _exit(3);
}

static void test_two_processes(void **state) {
    (void)state;
    world w;
    new_world(&w);
    int ready[2], go[2];
    char c = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {                                         // holds two records, and lives
        open_store(&w);
        die_with_two(&w);
        if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1) _exit(9);
        let_go();
        _exit(close_uploader(&w, 0) == CKPT_OK ? 0 : 8);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    in_a_process(live_owner, &w);
    assert_int_equal(entries(w.staging, ".upload"), 2);     // the live one's are untouched
    assert_string_equal(util_list(w.bucket), "mine\n");
    int status;
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(util_list(w.bucket), "a\nb\nmine\n");
    assert_string_equal(util_list(w.staging), "");
    for (int i = 0; i < 2; i++) { close(ready[i]); close(go[i]); }
}

static void test_damaged_records(void **state) {
    (void)state;
    static char log[4096];
    for (int kind = 0; kind < 6; kind++) {
        world w;
        new_world(&w);
        in_a_process(die_with_two, &w);
        const char *list = util_list(w.staging), *end = strstr(list, "01.upload\n");
        if (end == NULL) util_die("no record in", list);
        const char *from = end;
        while (from > list && from[-1] != '\n') from--;
        char stem[256];
        size_t len = (size_t)(end - from);
        assert_true(len < sizeof stem);
        memcpy(stem, from, len);
        stem[len] = 0;
        const char *record = util_join(w.staging, util_fmt("%s01.upload", stem)), *data = util_join(w.staging, util_fmt("%s01.data", stem));
        size_t n;
        char *text = util_read(record, &n);
        if (kind == 0) util_flip(record, 30, 1);
        if (kind == 1) util_write(record, text, n / 2);
        if (kind == 2) util_write(record, text, 0);
        if (kind == 3) assert_int_equal(unlink(data), 0);
        if (kind == 5) util_flip(record, (size_t)(strstr(text, "\"name\":\"a\"") + 8 - text), 2);    // "c": JSON all the same
        if (kind == 4) util_write_text(record, util_fmt("%s{\"is\":\"part\",\"num", text));      // a torn end: only that is lost
        open_store(&w);
        log[0] = 0;
        w.d.logger.fn = collect_log;
        w.d.logger.user = log;
        open_uploader(&w);
        ckpt_err e = ckpt_uploader_wait(w.u, 0);
        assert_string_equal(text_of(&w, "b"), "3");         // the other one is not lost with it
        if (kind == 4) {
            assert_int_equal(e, CKPT_OK);
            assert_string_equal(text_of(&w, "a"), "1");
            end_world(&w);
            continue;
        }
        assert_int_equal(e, CKPT_CORRUPT);
        assert_false(util_exists(object(&w, "c")));
        assert_non_null(strstr(ckpt_last_error(), ".damaged"));
        assert_non_null(strstr(log, ".damaged"));
        assert_int_equal(entries(w.staging, ".upload.damaged"), 1);
        if (kind != 3) assert_true(util_exists(data));
        assert_int_equal(close_uploader(&w, 0), CKPT_CORRUPT);
        open_uploader(&w);                                  // reported once, and never lost
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_int_equal(entries(w.staging, ".upload.damaged"), 1);
        if (kind != 3) assert_true(util_exists(data));
        end_world(&w);
    }
}

static const char *unseen;          // an ending of names of files that a server of files says nothing of
static pthread_t   unseeing;        // on this thread: a worker that looked as well, at the end, would begin to count the faults anew

static void see_not(const char *name, const char *path) {
    if (!pthread_equal(pthread_self(), unseeing)) return;
    if (strcmp(name, "lstat") == 0 && ckpt__txt_ends(path, unseen)) fault_arm_here("lstat", EIO);
}

// A server of files does not answer for a moment when what a dead process has left is taken up: nothing says that it is gone.
static void test_left_unseen(void **state) {
    (void)state;
    static const char *const endings[] = { ".upload", ".data" };
    for (int i = 0; i < UTIL_COUNT(endings); i++) {
        world w;
        new_world(&w);
        in_a_process(die_with_two, &w);
        open_store(&w);
        unseen = endings[i];
        unseeing = pthread_self();
        fault_set_spy(see_not);
        open_uploader(&w);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_int_equal(entries(w.bucket, ""), 2);
        assert_string_equal(util_list(w.staging), "");
        end_world(&w);
    }
}

static char unread[4096];           // the first record that is opened; "": none was

static void open_first_not(const char *name, const char *path) {
    if (strcmp(name, "open") != 0 || !ckpt__txt_ends(path, ".upload")) return;
    if (unread[0] == 0) (void)snprintf(unread, sizeof unread, "%s", path);
    if (strcmp(path, unread) == 0) fault_arm_here("open", unread_why);
}

// A record that cannot be read, which may be so for ever, keeps none of the other files of its process from going.
static void left_unread(int why) {
    world w;
    static char log[4096];
    log[0] = unread[0] = 0;
    unread_why = why;
    new_world(&w);
    w.d.logger.fn = collect_log;
    w.d.logger.user = log;
    in_a_process(die_with_two, &w);
    open_store(&w);
    fault_set_spy(open_first_not);
    open_uploader(&w);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(entries(w.bucket, ""), 1);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    assert_int_equal(entries(w.staging, ".data"), 1);
    assert_true(util_exists(unread));
    assert_non_null(strstr(log, unread));
    assert_int_equal(go_on(&w), CKPT_OK);
    assert_int_equal(entries(w.bucket, ""), 2);
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void test_left_unread(void **state) {
    (void)state;
    left_unread(EIO);
    left_unread(ESTALE);
}

static void open_beside(world *w) {
    w->d.store = w->store;
    w->d.upload_staging_folder = NULL;
    assert_int_equal(ckpt_uploader_open(&w->u, &w->d), CKPT_OK);
}

static void upload_beside(const world *w, const char *dir, const char *name, const char *text) {
    const char *path = util_join(util_join(w->dir, dir), name);
    util_write_text(path, text);
    assert_int_equal(ckpt_upload_file(w->u, name, path, true), CKPT_OK);
}

static void die_beside(world *w) {
    open_beside(w);
    hold();
    upload_beside(w, "a", "n", "old");
    await_count(&S.asked, 1);
}

// As its process dies the older one of a name is put, which has taken longer than the newer one took to come.
static void die_with_one_behind(world *w) {
    open_beside(w);
    hold();
    upload_beside(w, "a", "n", "oldest");
    await_count(&S.asked, 1);
    upload_beside(w, "a", "n", "old");
    usleep(5000);
    w->u->waiting--;                                        // nobody takes the newer one
    ckpt__uploader_slot_of(w->u, "n", false)->waiting = NULL;
    let_go();
    await_count(&S.puts, 1);
}

static void die_with_parts_beside(world *w) {
    w->d.num_concurrent_parts = 2;
    open_beside(w);
    hold_parts(5);
    assert_int_equal(ckpt_upload_file(w->u, "n", big_file(w, "a/big", 200000, 1), true), CKPT_OK);
    await_count(&S.parts, 5);
    usleep(20000);
}

// What a dead process left beside its file is found when the next one comes there, which may be days later: it is not put over what was
// made, and confirmed, since then. The same uploader knows that by itself, another by the object's mark.
static void test_left_behind(void **state) {
    (void)state;
    static const struct { void (*die)(world *w); bool newer, again, plain, alone; const char *then; bool slow; } cases[] = {
        { die_beside, true, false, true, false, "new", false },    // the store keeps no marks
        { die_beside, true, false, false, false, "new", false },
        { die_beside, true, true, false, false, "new", false },
        { die_beside, true, true, true, false, "old", false },    // nobody knows
        { die_beside, false, false, false, false, "old", false },
        { die_with_one_behind, false, false, false, false, "old", false },
        { die_with_parts_beside, true, false, false, false, "new", false },
        { die_with_parts_beside, true, true, false, false, "new", false },
        { die_beside, true, true, false, true, "new", false },     // it was put without an uploader
        { die_beside, true, false, false, false, "new", true },     // the store's clock is behind: of what it has put itself, it knows
        { die_beside, true, true, false, false, "old", true },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        world w;
        static char log[4096];
        new_marked_world(&w, log);
        util_mkdir(util_join(w.dir, "a"));
        util_mkdir(util_join(w.dir, "b"));
        in_a_process(cases[i].die, &w);
        open_store(&w);
        S.plain = cases[i].plain;
        open_beside(&w);
        if (cases[i].newer && !cases[i].alone) upload_beside(&w, "b", "n", "new");
        if (cases[i].alone) util_write_text(util_join(w.dir, "b/n"), "new");
        if (cases[i].alone) assert_int_equal(ckpt_store_put(w.store, "n", util_join(w.dir, "b/n"), false), CKPT_OK);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        const struct timespec behind[2] = { { time(NULL) - 300, 0 }, { time(NULL) - 300, 0 } };
        if (cases[i].slow) assert_int_equal(utimensat(AT_FDCWD, object(&w, "n"), behind, 0), 0);
        if (cases[i].again) assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        if (cases[i].again) open_beside(&w);
        upload_beside(&w, "a", "x", "x");
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_string_equal(text_of(&w, "n"), cases[i].then);
        assert_true((strstr(log, "n stays as it is: it was made later") != NULL) == (cases[i].then[0] == 'n'));
        assert_string_equal(text_of(&w, "x"), "x");
        assert_string_equal(util_list(w.bucket), "n\nx\n");
        assert_false(util_exists(util_join(w.dir, "a/.ckpt-staging")));
        keep_marks(false);
        end_world(&w);
    }
}

static void tell_end(const char *name, ckpt_err e, bool published, void *user) {
    (void)name, (void)published;
    *(ckpt_err *)user = e;
}

// What is handed over again and gives way to a newer file of its name: the owner hears of it like of any failure, once.
static void test_handed_over_again_and_newer(void **state) {
    (void)state;
    world w;
    ckpt__upload up;
    ckpt_err how = CKPT_OK;
    begin_world(&w);
    upload_text(&w, "n", "new", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    memset(&up, 0, sizeof up);
    up.name = "n";
    up.path = file_of(&w, "source", "old");
    up.overwrite = up.durable = true;
    up.made = up.saved_at = ckpt__os_time() - 100.0;
    up.done = tell_end;
    up.user = &how;
    assert_int_equal(ckpt__uploader_add(w.u, &up), CKPT_OK);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_EXISTS);
    assert_int_equal(how, CKPT_EXISTS);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "new");
    assert_int_equal(close_uploader(&w, 0), CKPT_EXISTS);
    end_world(&w);
}

// What has failed and is tried again goes over what was there before, and over nothing newer: it is dropped then, with its parts. Its
// failure was told, and no other is.
static void test_tried_again_and_newer(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {         // nothing newer, something newer, and parts of the older one
        world w;
        static char log[4096];
        new_marked_world(&w, log);
        open_store(&w);
        open_uploader(&w);
        upload_text(&w, "n", "first", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        fail_all("n", CKPT_AUTH);
        const char *big = big_file(&w, "big", CKPT__UPLOADER_COPIED + 1, 1);
        w.u->part_size = 1 << 20;
        if (how == 2) assert_int_equal(ckpt_upload_file(w.u, "n", big, true), CKPT_OK);
        else upload_text(&w, "n", "old", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
        assert_int_equal(failed_now(&w), 1);
        assert_int_equal(S.begins, how == 2);
        fail_all(NULL, CKPT_OK);
        if (how > 0) assert_int_equal(ckpt_store_put(w.store, "n", file_of(&w, "newer", "new"), true), CKPT_OK);
        upload_text(&w, "x", "x", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        await_no_hope(&w);
        assert_string_equal(text_of(&w, "n"), how > 0 ? "new" : "old");
        assert_true((strstr(log, "n stays as it is: it was made later than what could not be uploaded before of") != NULL) == (how > 0));
        assert_int_equal(failed_now(&w), 0);
        assert_string_equal(util_list(w.bucket), "n\nx\n");
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        assert_int_equal(close_uploader(&w, 0), CKPT_AUTH);     // the first failure ever
        keep_marks(false);
        end_world(&w);
    }
}

// Where nobody may give up what was begun, it is dropped all the same; where it cannot be done for the moment it is kept.
static void test_left_behind_and_no_giving_up(void **state) {
    (void)state;
    for (int passes = 0; passes < 2; passes++) {
        world w;
        static char log[4096];
        log[0] = 0;
        new_world(&w);
        w.d.logger.fn = collect_log;
        w.d.logger.user = log;
        util_mkdir(util_join(w.dir, "a"));
        util_mkdir(util_join(w.dir, "b"));
        in_a_process(die_with_parts_beside, &w);
        open_store(&w);
        S.no_aborts = passes ? CKPT_NET : CKPT_AUTH;
        open_beside(&w);
        upload_beside(&w, "b", "n", "new");
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        upload_beside(&w, "a", "x", "x");
        assert_int_equal(close_uploader(&w, 0), passes ? CKPT_NET : CKPT_OK);
        assert_string_equal(text_of(&w, "n"), "new");
        if (!passes) assert_non_null(strstr(log, "parts of n stay in the store"));
        assert_int_equal(util_exists(util_join(w.dir, "a/.ckpt-staging")), passes);
        end_world(&w);
    }
}

static void die_with_old(world *w) {
    open_uploader(w);
    hold();
    upload_text(w, "n", "old", true);
    await_count(&S.asked, 1);
}

// The same of a record that could not be read by the run that put a newer file.
static void test_left_unread_then_newer(void **state) {
    (void)state;
    world w;
    unread[0] = 0;
    unread_why = ESTALE;
    new_world(&w);
    keep_marks(true);
    in_a_process(die_with_old, &w);
    open_store(&w);
    fault_set_spy(open_first_not);
    open_uploader(&w);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    upload_text(&w, "n", "new", true);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    assert_int_equal(go_on(&w), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "new");
    assert_string_equal(util_list(w.staging), "");
    keep_marks(false);
    end_world(&w);
}

static void die_with_big_waiting(world *w) {
    open_uploader(w);
    ckpt__uploader_pause(w->u, 1);
    assert_int_equal(ckpt_upload_file(w->u, "big", big_file(w, "older", 200000, 2), true), CKPT_OK);
}

static void die_in_parts_of_newer(world *w) {
    fault_set_spy(open_first_not);
    die_in_parts(w);
    fault_set_spy(NULL);
}

// What is given up of an older file, of which it is not known what was begun, is not what a newer one of that name has sent already.
static void test_parts_of_newer(void **state) {
    (void)state;
    world w;
    unread[0] = 0;
    unread_why = ESTALE;
    new_world(&w);
    in_a_process(die_with_big_waiting, &w);
    in_a_process(die_in_parts_of_newer, &w);
    assert_int_equal(entries(w.staging, ".upload"), 2);
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    uint64_t size = ckpt__send_part_size(w.store, 200000, 2, 0);
    assert_int_equal(S.begins, 0);
    assert_true(S.parts <= (int)((200000 + size - 1) / size) - 5);
    same_file(object(&w, "big"), util_join(w.dir, "big"));
    assert_string_equal(util_list(w.bucket), "big\n");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void no_lock(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, ".lock") && strstr(path, CKPT__UPLOADER_FOLDER) != NULL)
        fault_arm_here("open", unread_why);
}

// Another staging folder is named than the hidden one that an earlier process has used, and whose server does not answer, or that led to
// a disk that was emptied: that keeps nobody from working.
static void test_hidden_away(void **state) {
    (void)state;
    static const int why[] = { EIO, EACCES, ESTALE };
    for (int i = 0; i <= UTIL_COUNT(why); i++) {
        world w;
        bool leads = i == UTIL_COUNT(why);
        begin_world(&w);
        if (leads) assert_int_equal(symlink(util_join(w.dir, "purged/x"), util_join(w.dir, CKPT__UPLOADER_FOLDER)), 0);
        else util_mkdir(util_join(w.dir, CKPT__UPLOADER_FOLDER));
        if (!leads) unread_why = why[i];
        if (!leads) fault_set_spy(no_lock);
        assert_int_equal(ckpt__uploader_resume(w.u, w.dir), CKPT_OK);
        fault_set_spy(NULL);
        if (!leads) assert_true(fault_disarm());
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        end_world(&w);
    }
}

static void die_in_the_future(world *w) {
    open_uploader(w);
    hold();
    w->u->now = (uint64_t)1 << 60;                          // its clock was wrong
    upload_text(w, "first", "1", true);
    upload_text(w, "b", "old", true);
    await_count(&S.asked, 1);
}

// What is added after a crash is newer than what was left, although the clock has been set back in between.
static void test_clock_set_back(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_in_the_future, &w);
    open_store(&w);
    hold();
    open_uploader(&w);
    upload_text(&w, "b", "new", true);
    let_go();
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "b"), "new");
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void uploads_in_the_future(world *w) {
    open_uploader(w);
    w->u->now = (uint64_t)1 << 60;
    upload_text(w, "n", "old", true);
    assert_int_equal(close_uploader(w, 0), CKPT_OK);
}

static void die_with_new(world *w) {
    open_uploader(w);
    hold();
    upload_text(w, "n", "new", true);
    await_count(&S.asked, 1);
}

// What was confirmed while the clock was wrong is no newer one: the store's clock does not say so.
static void test_clock_set_back_and_confirmed(void **state) {
    (void)state;
    world w;
    new_world(&w);
    keep_marks(true);
    in_a_process(uploads_in_the_future, &w);
    assert_string_equal(text_of(&w, "n"), "old");
    usleep(1100000);                                        // some stores say whole seconds
    in_a_process(die_with_new, &w);
    open_store(&w);
    assert_int_equal(go_on(&w), CKPT_OK);
    assert_string_equal(text_of(&w, "n"), "new");
    assert_string_equal(util_list(w.staging), "");
    keep_marks(false);
    end_world(&w);
}

// A saver's file, which was saved so many seconds ago. again: an earlier process had saved it.
static void upload_saved(world *w, const char *text, double ago, bool again) {
    ckpt__upload up;
    memset(&up, 0, sizeof up);
    up.name = "n";
    up.path = util_join(w->dir, "saved");
    up.overwrite = true;
    up.saved_at = ckpt__os_time() - ago;
    up.made = again ? up.saved_at : 0;
    util_write_text(up.path, text);
    assert_int_equal(ckpt__uploader_add(w->u, &up), CKPT_OK);
}

// The newer one was saved before the older one was handed over, and not handed over by the process that saved it.
static void die_with_saved_before(world *w) {
    open_uploader(w);
    upload_saved(w, "old", 20, false);
    assert_int_equal(close_uploader(w, 0), CKPT_OK);
    open_uploader(w);
    hold();
    upload_saved(w, "new", 10, true);
    await_count(&S.asked, 2);
}

// The clock was set back between two saves, of which the first came through.
static void die_with_saved_earlier(world *w) {
    open_uploader(w);
    hold();
    upload_saved(w, "old", 0, false);
    await_count(&S.asked, 1);
    upload_saved(w, "new", 1, false);
    w->u->waiting--;                                        // nobody takes the newer one
    ckpt__uploader_slot_of(w->u, "n", false)->waiting = NULL;
    let_go();
    await_count(&S.puts, 1);
}

// The same once more, by a process that has confirmed the first.
static void die_with_saved_earlier_again(world *w) {
    open_uploader(w);
    upload_saved(w, "old", 0, false);
    assert_int_equal(ckpt_uploader_wait(w->u, 0), CKPT_OK);
    hold();
    upload_saved(w, "new", 1, false);
    await_count(&S.asked, 2);
}

// The marks of all of a saver's files say when they were saved, and those of later saves never less.
static void test_left_and_saved_before(void **state) {
    (void)state;
    void (*const die[])(world *w) = { die_with_saved_before, die_with_saved_earlier, die_with_saved_earlier_again };
    for (int i = 0; i < UTIL_COUNT(die); i++) {
        world w;
        new_world(&w);
        keep_marks(true);
        in_a_process(die[i], &w);
        assert_string_equal(text_of(&w, "n"), "old");
        open_store(&w);
        assert_int_equal(go_on(&w), CKPT_OK);
        assert_string_equal(text_of(&w, "n"), "new");
        assert_string_equal(util_list(w.staging), "");
        keep_marks(false);
        end_world(&w);
    }
}

typedef struct listing { int count, damaged, in_use; char names[1024]; uint64_t size, sent; } listing;

static void on_pending(const ckpt_pending *p, void *user) {
    listing *l = (listing *)user;
    l->count++;
    l->damaged += p->damaged;
    l->in_use += p->in_use;
    l->size += p->size;
    l->sent += p->sent;
    assert_true(util_exists(p->staged_path) || p->damaged);
    assert_true(util_exists(p->record));
    size_t n = strlen(l->names);
    if (!p->damaged) snprintf(l->names + n, sizeof l->names - n, "%s%s ", p->uri, p->name);
}

static void test_other_store(void **state) {
    (void)state;
    static char log[4096];
    world w;
    listing l;
    new_world(&w);
    in_a_process(die_with_two, &w);
    const char *first = w.bucket;
    w.bucket = util_join(w.dir, "bucket2");
    util_mkdir(w.bucket);
    open_store(&w);
    log[0] = 0;
    w.d.logger.fn = collect_log;
    w.d.logger.user = log;
    open_uploader(&w);
    assert_non_null(strstr(log, "2 unfinished uploads to other stores"));
    upload_text(&w, "z", "1", true);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.bucket), "z\n");
    assert_int_equal(entries(w.staging, ".upload"), 2);
    memset(&l, 0, sizeof l);
    assert_int_equal(ckpt_uploader_pending(w.staging, on_pending, &l), CKPT_OK);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.in_use, 0);
    assert_int_equal(l.size, 2);
    assert_non_null(strstr(l.names, util_fmt("file://%s/a ", first)));
    assert_int_equal(ckpt_uploader_pending(util_join(w.dir, "nothing"), on_pending, &l), CKPT_NOT_FOUND);
    assert_int_equal(ckpt_uploader_pending(NULL, on_pending, &l), CKPT_ARG);
    end_world(&w);
}

// Of the one uploader that uses the staging folder.
static const char *lock_of(const world *w) {
    for (const char *p = util_list(w->staging); *p != 0; p = strchr(p, '\n') + 1) {
        size_t n = strcspn(p, "\n");
        if (strncmp(p, "u-", 2) == 0 && n > 5 && memcmp(p + n - 5, ".lock", 5) == 0) return util_fmt("%s/%.*s", w->staging, (int)n, p);
    }
    util_die("no lock in", w->staging);
    return NULL;
}

// Whether a process of a machine that cannot be seen has died does its lock tell, not its name.
static void test_dead_elsewhere(void **state) {
    (void)state;
    static char log[4096];
    world w;
    listing l;
    new_world(&w);
    in_a_process(die_with_two, &w);
    const char *lock = lock_of(&w), *text = util_read(lock, NULL), *first = w.bucket;
    util_write_text(lock, util_fmt("%d elsewhere%s", atoi(text), strchr(strchr(text, ' ') + 1, ' ')));
    memset(&l, 0, sizeof l);
    assert_int_equal(ckpt_uploader_pending(w.staging, on_pending, &l), CKPT_OK);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.in_use, 0);
    w.bucket = util_join(w.dir, "bucket2");
    util_mkdir(w.bucket);
    open_store(&w);
    log[0] = 0;
    w.d.logger.fn = collect_log;
    w.d.logger.user = log;
    open_uploader(&w);
    assert_non_null(strstr(log, "2 unfinished uploads to other stores"));
    end_world(&w);
    w.bucket = first;
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(S.order, "a b ");
    end_world(&w);
}

// Of one in a container with this machine's name it is the same; and looking at what its own uploader sends, which takes a part of the
// lock from it, a process does not seem to have died.
static void test_live_unseen(void **state) {
    (void)state;
    world w;
    listing l;
    new_world(&w);
    int ready[2], go[2];
    char c = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ready[0]);
        close(go[1]);
        open_store(&w);
        die_with_two(&w);
        if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1) _exit(9);
        memset(&l, 0, sizeof l);
        for (int i = 0; i < 2; i++) if (ckpt_uploader_pending(w.staging, on_pending, &l) != CKPT_OK || l.in_use != l.count) _exit(8);
        if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1) _exit(9);
        let_go();
        _exit(close_uploader(&w, 0) == CKPT_OK ? 0 : 7);
    }
    close(ready[1]);                    // a child that ends without a word is not waited for
    close(go[0]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    const char *lock = lock_of(&w), *text = util_read(lock, NULL);
    for (int i = 0; i < 2; i++) {
        util_write_text(lock, util_fmt("%.*s\n1a2b3c4d-0000-4000-8000-123456789abc\n", (int)strcspn(text, "\n"), text));
        memset(&l, 0, sizeof l);
        assert_int_equal(ckpt_uploader_pending(w.staging, on_pending, &l), CKPT_OK);
        assert_int_equal(l.count, 2);
        assert_int_equal(l.in_use, 2);
        util_write_text(lock, text);                        // its own
        assert_int_equal(write(go[1], "x", 1), 1);
        if (i == 0) assert_int_equal(read(ready[0], &c, 1), 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(util_list(w.bucket), "a\nb\n");
    close(ready[0]);
    close(go[1]);
}

static const char *denied;          // a call, and what it may not look at: the end of a path
static const char *denied_end;

static void deny(const char *name, const char *path) {
    if (strcmp(name, denied) == 0 && ckpt__txt_ends(path, denied_end)) fault_arm_here(name, strcmp(name, "open") == 0 ? EMFILE : EIO);
}

// Who wants descriptors, or an answer from a server of files, has not seen a dead owner, nor that there is no staging folder.
static void test_pending_unseen(void **state) {
    (void)state;
    static const struct { const char *call, *end; } cases[] = { { "open", ".lock" }, { "lstat", CKPT__UPLOADER_FOLDER } };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        world w;
        listing l;
        begin_world_beside(&w);
        hold();
        upload_text(&w, "a", "1", true);
        memset(&l, 0, sizeof l);
        denied = cases[i].call;
        denied_end = cases[i].end;
        fault_set_spy(deny);
        ckpt_err e = ckpt_uploader_pending(w.dir, on_pending, &l);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_int_equal(e, CKPT_OK);
        assert_int_equal(l.count, 1);
        if (i == 0) assert_int_equal(l.in_use, 1);
        end_world(&w);
    }
}

static const char *shut;            // an ending of names of files that cannot be opened

static void open_not(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, shut)) fault_arm_here("open", unread_why);
}

// A record, or a journal, that cannot be read is told of, and the call fails: nobody is to believe that nothing waits.
static void test_pending_unread(void **state) {
    (void)state;
    static const struct { int why; ckpt_err e; } cases[] = { { EACCES, CKPT_AUTH }, { EIO, CKPT_IO }, { ESTALE, CKPT_NET }, { ENOENT, CKPT_OK } };
    for (int i = 0; i < 2 * UTIL_COUNT(cases); i++) {
        world w;
        listing l;
        begin_world(&w);
        hold();
        shut = i % 2 == 0 ? "1.upload" : ".journal";
        unread_why = cases[i / 2].why;
        fault_single = i % 2 == 0 ? 8 : 1;
        for (int k = 0; k < 3; k++) upload_text(&w, util_fmt("%d", k), "x", true);
        fault_single = 8;
        memset(&l, 0, sizeof l);
        fault_set_spy(open_not);
        ckpt_err e = ckpt_uploader_pending(w.staging, on_pending, &l);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_int_equal(e, cases[i / 2].e);
        bool gone = e == CKPT_OK;
        assert_int_equal(l.damaged, !gone);
        assert_int_equal(l.count - l.damaged, i % 2 == 0 ? 2 : 1);
        if (!gone) assert_non_null(strstr(ckpt_last_error(), shut));
        end_world(&w);
    }
}

static void test_orphans(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    // A staged file whose record was never written was never acknowledged.
    char name[128];
    uint32_t sum = ckpt__digest_crc32(0, w.store->uri, strlen(w.store->uri));
    snprintf(name, sizeof name, "u-%08x-0123456789abcdef-00000001.data", (unsigned)sum);
    util_write_text(util_join(w.staging, name), "x");
    util_write_text(util_join(w.staging, "not-ours"), "x");
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_list(w.staging), "not-ours\n");
    end_world(&w);
}

//-- publication -----------------------------------------------------------------------------------------

// Where the file system has no locks a machine that died while it put a link has that one's for ever, as far as can be seen: the
// file is kept, and tried again until somebody has removed the lock.
static void test_link_lock_of_the_dead(void **state) {
    (void)state;
    world w;
    ckpt__uploader_link l;
    fault_no_locks = true;
    fault_link_wait = 0.02;
    fault_hope = fault_hope_most = 0.02;
    begin_world(&w);
    w.u->retry.stall_timeout_s = 0.001;
    assert_int_equal(ckpt__uploader_link_find(w.u, &l, w.staging, "latest-rank0.pt.symlink"), CKPT_OK);
    util_write_text(l.lock_path, "7 elsewhere 5 pid:[1]\n");
    upload_linked(&w, "c1", "1", 1, NULL, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 100), CKPT_IO);
    assert_non_null(strstr(ckpt_last_error(), "latest-rank0.pt.symlink could not be put"));
    assert_non_null(strstr(ckpt_last_error(), util_fmt("%s is locked by process 7 on elsewhere, which cannot be seen from here: when it is "
        "gone, remove the file", l.lock_path)));
    assert_string_equal(text_of(&w, "c1"), "1");
    assert_int_equal(unlink(l.lock_path), 0);
    for (int i = 0; i < 60000 && failed_now(&w) > 0; i++) usleep(1000);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c1");
    ckpt__uploader_link_free(w.u, &l);
    assert_int_equal(close_uploader(&w, 0), CKPT_IO);       // the first failure ever
    end_world(&w);
    fault_hope = 60, fault_hope_most = 900;
    fault_link_wait = 30;
    fault_no_locks = false;
}

// One that lives may hold it for as long as all tries of its put take, and that is no failure of ours.
static void test_link_lock_of_the_slow(void **state) {
    (void)state;
    world w;
    ckpt__uploader_link l;
    fault_no_locks = true;
    fault_link_wait = 0.02;
    begin_world(&w);
    w.u->retry.stall_timeout_s = 100;
    assert_int_equal(ckpt__uploader_link_find(w.u, &l, w.staging, "latest-rank0.pt.symlink"), CKPT_OK);
    util_write_text(l.lock_path, "7 elsewhere 5 pid:[1]\n");
    upload_linked(&w, "c1", "1", 1, NULL, NULL);
    while (strcmp(text_of(&w, "c1"), "1") != 0) usleep(1000);
    usleep(200000);                                         // no condition tells that it waits
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
    assert_int_equal(unlink(l.lock_path), 0);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c1");
    ckpt__uploader_link_free(w.u, &l);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    end_world(&w);
    fault_link_wait = 30;
    fault_no_locks = false;
}

static void test_links_never_go_back(void **state) {
    (void)state;
    world w;
    told t;
    memset(&t, 0, sizeof t);
    begin_world(&w);
    upload_linked(&w, "c1", "1", 1, on_done, &t);
    upload_linked(&w, "c3", "3", 3, on_done, &t);
    upload_linked(&w, "c2", "2", 2, on_done, &t);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c3");
    assert_int_equal(t.published, 2);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    open_uploader(&w);                                      // another process
    upload_linked(&w, "c2b", "2", 2, on_done, &t);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c3");
    assert_string_equal(text_of(&w, "c2b"), "2");
    upload_linked(&w, "c3b", "3", 3, on_done, &t);          // the same order again is no step back
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c3b");
    end_world(&w);
}

static void test_links_many_workers(void **state) {
    (void)state;
    world w;
    told t;
    memset(&t, 0, sizeof t);
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_uploads = 4;
    open_uploader(&w);
    for (int i = 1; i <= 40; i++) upload_linked(&w, util_fmt("c%d", i), "x", (uint64_t)i, on_done, &t);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c40");
    assert_int_equal(t.done, 40);
    end_world(&w);
}

static void publish_many(world *w, int first) {
    for (int i = first; i <= 30; i += 2) upload_linked(w, util_fmt("c%d", i), "x", (uint64_t)i, NULL, NULL);
    if (close_uploader(w, 0) != CKPT_OK) _exit(4);
}

// Two processes that share the folder publish one link: the greater order wins whoever comes last.
static void test_links_two_processes(void **state) {
    (void)state;
    world w;
    new_world(&w);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            w.dir = util_join(w.dir, i == 0 ? "p0" : "p1");
            util_mkdir(w.dir);
            open_store(&w);
            w.d.num_concurrent_uploads = 2;
            open_uploader(&w);
            publish_many(&w, 1 + i);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c30");
    assert_int_equal(entries(w.bucket, ""), 31);
    assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data") + entries(w.staging, ".lock"), 0);
}

// From very many folders: the descriptors do not grow with them.
static void test_many_folders(void **state) {
    (void)state;
    world w;
    begin_world_beside(&w);
    for (int i = 0; i < 100; i++) {
        const char *dir = util_join(w.dir, util_fmt("d%d", i));
        util_mkdir(dir);
        util_write_text(util_join(dir, "f"), "x");
        assert_int_equal(ckpt_upload_file(w.u, util_fmt("o%d", i), util_join(dir, "f"), true), CKPT_OK);
    }
    int places = 0;
    for (const ckpt__uploader_place *p = w.u->places; p != NULL; p = p->next) places++;
    assert_int_equal(places, CKPT__UPLOADER_PLACES);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(entries(w.bucket, ""), 100);
    for (int i = 0; i < 100; i++) assert_string_equal(util_list(util_join(w.dir, util_fmt("d%d", i))), "f\n");
    end_world(&w);
}

static void die_in_a_folder(world *w) {
    const char *dir = util_join(w->dir, "d80");
    w->d.store = w->store;
    assert_int_equal(ckpt_uploader_open(&w->u, &w->d), CKPT_OK);
    hold();
    util_mkdir(dir);
    util_write_text(util_join(dir, "f"), "left");
    assert_int_equal(ckpt_upload_file(w->u, "left", util_join(dir, "f"), true), CKPT_OK);
}

// However many are open: one in which a dead owner left something is opened as well, and without one the newest takes what comes.
static void test_many_folders_one_left(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_in_a_folder, &w);
    open_store(&w);
    w.d.store = w.store;
    assert_int_equal(ckpt_uploader_open(&w.u, &w.d), CKPT_OK);
    for (int i = 0; i < 90; i++) {
        const char *dir = util_join(w.dir, util_fmt("d%d", i));
        if (i != 80) util_mkdir(dir);
        util_write_text(util_join(dir, "f"), "x");
        if (i == 70 || i == 85) hold();
        assert_int_equal(ckpt_upload_file(w.u, util_fmt("o%d", i), util_join(dir, "f"), true), CKPT_OK);
        if (i == 70) assert_int_equal(entries(util_join(w.dir, util_fmt("d%d/.ckpt-staging", CKPT__UPLOADER_PLACES - 1)), ".data"), 1);
        if (i == 85) assert_int_equal(entries(util_join(w.dir, "d80/.ckpt-staging"), ".data"), 1);
        let_go();
        await_end(&w);
    }
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "left"), "left");
    assert_int_equal(entries(w.bucket, ""), 91);
    end_world(&w);
}

// A folder whose files were uploaded goes, and one of that name comes: its files are staged there, and not where nobody finds them.
static void test_folder_made_again(void **state) {
    (void)state;
    for (int files = 1; files <= 10; files += 9) {          // as files of their own, and in a journal
        for (int asked = 0; asked < 2; asked++) {           // hidden beside the files, and a folder that was asked for
            world w;
            if (asked) begin_world(&w);
            else begin_world_beside(&w);
            const char *dir = util_join(w.dir, "d"), *staging = asked ? w.staging : util_join(dir, ".ckpt-staging");
            for (int round = 0; round < 3; round++) {
                util_mkdir(dir);
                util_write_text(util_join(dir, "f"), "x");
                hold();
                for (int i = 0; i < files; i++) {
                    ckpt_err e = ckpt_upload_file(w.u, util_fmt("o%d-%d", round, i), util_join(dir, "f"), true);
                    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
                }
                assert_non_null(util_staged(staging));
                let_go();
                assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
                util_remove_tree(dir);
                if (asked) util_remove_tree(staging);
            }
            assert_int_equal(close_uploader(&w, 0), CKPT_OK);
            assert_int_equal(entries(w.bucket, ""), 3 * files);
            end_world(&w);
        }
    }
}

// One folder after the other, each removed when its file is uploaded.
static void test_many_folders_removed(void **state) {
    (void)state;
    world w;
    begin_world_beside(&w);
    for (int i = 0; i < 2 * CKPT__UPLOADER_PLACES; i++) {
        const char *dir = util_join(w.dir, util_fmt("d%d", i));
        util_mkdir(dir);
        util_write_text(util_join(dir, "f"), "x");
        ckpt_err e = ckpt_upload_file(w.u, util_fmt("o%d", i), util_join(dir, "f"), true);
        if (e != CKPT_OK) fail_msg("%d: %s", i, ckpt_last_error());
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        util_remove_tree(dir);
    }
    int locks = 0, places = 0, unsettled = 0;
    ckpt__uploader_sync_names(w.u, NULL);
    for (const ckpt__uploader_place *p = w.u->places; p != NULL; p = p->next, places++) locks += p->claims[0].fd >= 0;
    for (const ckpt__uploader_place *p = w.u->thinned; p != NULL; p = p->thinned) unsettled += p->settled < p->removed;
    assert_true(locks <= CKPT__UPLOADER_PLACES);            // the descriptors do not grow with them
    assert_true(places <= CKPT__UPLOADER_PLACES);           // nor what is looked at for each file that comes
    assert_int_equal(unsettled, 0);                         // or synced
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(entries(w.bucket, ""), 2 * CKPT__UPLOADER_PLACES);
    end_world(&w);
}

// Only the lock was removed: what waits in the folder is not taken for a dead owner's, and all of it goes once.
static void test_lock_removed(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    hold();
    upload_text(&w, "a", "1", true);
    upload_text(&w, "b", "2", true);
    char *names = util_fmt("%s", util_list(w.staging)), *save = NULL;
    for (char *n = strtok_r(names, "\n", &save); n != NULL; n = strtok_r(NULL, "\n", &save))
        if (strstr(n, ".lock") != NULL) assert_int_equal(unlink(util_join(w.staging, n)), 0);
    upload_text(&w, "c", "3", true);
    assert_int_equal(pending(&w), 3);
    let_go();
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(S.order, "a b c ");
    assert_null(util_staged(w.staging));
    end_world(&w);
}

static void test_relative_paths(void **state) {
    (void)state;
    world w;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    new_world(&w);
    open_store(&w);
    assert_int_equal(chdir(w.dir), 0);
    w.d.upload_staging_folder = "staging";
    open_uploader(&w);
    hold();
    util_write_text("f", "x");
    assert_int_equal(ckpt_upload_file(w.u, "a", "f", true), CKPT_OK);
    assert_int_equal(chdir("/"), 0);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "x");
    assert_int_equal(ckpt_upload_file(w.u, "b", util_join(w.dir, "f"), true), CKPT_OK);
    end_world(&w);
    assert_string_equal(util_list(w.staging), "");
    assert_int_equal(chdir(before), 0);
}

static void die_before_the_link(world *w) {
    open_uploader(w);
    S.never = "symlink";
    S.code = CKPT_NET;
    upload_linked(w, "c1", "1", 1, NULL, NULL);
    if (ckpt_uploader_wait(w->u, 0) != CKPT_NET) _exit(1);
    if (strstr(ckpt_last_error(), "c1 is uploaded") == NULL) _exit(2);
}

static void test_link_after_a_crash(void **state) {
    (void)state;
    world w;
    new_world(&w);
    in_a_process(die_before_the_link, &w);
    assert_string_equal(util_list(w.bucket), "c1\n");
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(S.order, "latest-rank0.pt.symlink ");       // the file itself is not sent again
    assert_string_equal(text_of(&w, "latest-rank0.pt.symlink"), "c1");
    end_world(&w);
}

//-- progress, log, threads, fork ---------------------------------------------------------------------------

typedef struct progress_seen { pthread_t owner; int calls, finished, all; uint64_t last, last_all; bool fell; } progress_seen;

static void on_progress(const ckpt_progress *p, void *user) {
    progress_seen *s = (progress_seen *)user;
    assert_true(pthread_equal(s->owner, pthread_self()));
    s->calls++;
    assert_true(p->done <= p->total);
    if (strncmp(p->name, "file://", 7) == 0) {
        if (p->done < s->last_all) s->fell = true;
        s->last_all = p->finished ? 0 : p->done;
        s->all += p->finished;
        return;
    }
    if (strcmp(p->name, "big") == 0) {
        if (p->done < s->last) s->fell = true;
        s->last = p->done;
    }
    if (p->finished) {
        assert_int_equal(p->done, p->total);
        s->finished++;
    }
}

static void test_progress(void **state) {
    (void)state;
    world w;
    progress_seen seen;
    memset(&seen, 0, sizeof seen);
    seen.owner = pthread_self();
    new_world(&w);
    open_store(&w);
    w.d.progress.fn = on_progress;
    w.d.progress.user = &seen;
    open_uploader(&w);
    hold_parts(3);
    assert_int_equal(ckpt_upload_file(w.u, "big", big_file(&w, "big", 200000, 1), true), CKPT_OK);
    upload_text(&w, "a", "1", true);
    await_count(&S.parts, 3);
    assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
    assert_true(seen.calls > 0 && seen.last > 0 && seen.finished == 0);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(seen.finished, 2);
    assert_int_equal(seen.all, 1);
    assert_int_equal(seen.last, 200000);
    assert_false(seen.fell);
    end_world(&w);
}

typedef struct tries_seen { int most, last, other; } tries_seen;

static void on_tries(const ckpt_progress *p, void *user) {
    tries_seen *s = (tries_seen *)user;
    assert_true(p->attempt >= 1);
    if (strcmp(p->name, "big") != 0) { if (p->attempt > s->other) s->other = p->attempt; return; }
    if (p->attempt > s->most) s->most = p->attempt;
    if (p->finished) s->last = p->attempt;
}

// A part that had to be sent three times is the third attempt; its neighbours' files know nothing of it.
static void test_attempts_told(void **state) {
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        world w;
        tries_seen seen;
        memset(&seen, 0, sizeof seen);
        new_world(&w);
        open_store(&w);
        w.d.progress.fn = on_tries;
        w.d.progress.user = &seen;
        w.d.num_concurrent_parts = 1;
        open_uploader(&w);
        S.only = "big";
        fail_next(2, CKPT_NET, true);
        assert_int_equal(ckpt_upload_file(w.u, "big", big_file(&w, "big", parts ? 200000 : 100, 1), true), CKPT_OK);
        upload_text(&w, "a", "1", true);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_int_equal(seen.last, 3);
        assert_int_equal(seen.most, 3);
        assert_int_equal(seen.other, 1);
        end_world(&w);
    }
}

static void *add_many(void *arg) {
    world *w = (world *)arg;
    for (int i = 0; i < 20; i++) {
        const char *path = util_fmt("%s/many", w->dir);
        if (ckpt_upload_file(w->u, i % 2 == 0 ? "shared" : util_fmt("t%d", i), path, true) != CKPT_OK) return arg;
        ckpt_transfer_stats s;
        ckpt_uploader_stats(w->u, &s);
    }
    return NULL;
}

static void test_any_thread(void **state) {
    (void)state;
    world w;
    pthread_t threads[4];
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_uploads = 3;
    w.d.event_file = util_join(w.dir, "trace.json");
    open_uploader(&w);
    file_of(&w, "many", "x");
    (void)util_fmt(" ");
    // util_fmt keeps a list of its own: one thread at a time may use it.
    for (int i = 0; i < 1; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_many, &w), 0);
    for (int i = 0; i < 1; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "shared"), "x");
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_true(strncmp(util_read(util_join(w.dir, "trace.json"), NULL), "[\n{", 3) == 0);
    end_world(&w);
}

typedef struct hammer { ckpt_uploader *u; const char *path; int number, failed; } hammer;

static void *hammer_main(void *arg) {
    hammer *h = (hammer *)arg;
    char name[32];
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, i % 3 == 0 ? "shared" : "t%d-%d", h->number, i);
        if (ckpt_upload_file(h->u, name, h->path, true) != CKPT_OK) h->failed++;
    }
    return NULL;
}

static void test_threads_at_once(void **state) {
    (void)state;
    world w;
    pthread_t threads[4];
    hammer h[4];
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_uploads = 3;
    open_uploader(&w);
    const char *path = file_of(&w, "many", "x");
    for (int i = 0; i < 4; i++) {
        memset(&h[i], 0, sizeof h[i]);
        h[i].u = w.u;
        h[i].path = path;
        h[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_main, &h[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(h[i].failed, 0);
    }
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_int_equal(entries(w.bucket, ""), 1 + 4 * 16);
    assert_string_equal(util_list(w.staging), "");
    end_world(&w);
}

static void test_fork(void **state) {
    (void)state;
    world w;
    begin_world(&w);
    const char *path = file_of(&w, "f", "x");
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = ckpt_upload_file(w.u, "a", path, true) == CKPT_ARG && strstr(ckpt_last_error(), "forked") != NULL &&
                  ckpt_uploader_check(w.u) == CKPT_ARG && ckpt_uploader_wait(w.u, 0) == CKPT_ARG &&
                  ckpt_uploader_close(w.u, 0) == CKPT_ARG;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(ckpt_upload_file(w.u, "a", path, true), CKPT_OK);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    end_world(&w);
}

//-- custom stores -----------------------------------------------------------------------------------------

typedef struct mock {
    const char *dir;
    int         puts, fail;
    ckpt_uploader *until_stop;          // a put does not hear of a cancellation, and ends behind it; NULL: at once
    bool        lose, die;              // behind a put that came through: it fails once, or the process is killed
    ckpt_err    code;
    pthread_mutex_t lock;
} mock;

static ckpt_err mock_put(const char *name, const char *path, bool overwrite, void *user) {
    mock *m = (mock *)user;
    pthread_mutex_lock(&m->lock);
    m->puts++;
    bool fails = m->fail > 0;
    if (fails) m->fail--;
    ckpt_uploader *u = m->until_stop;
    pthread_mutex_unlock(&m->lock);
    for (bool stops = u == NULL; !stops; usleep(1000)) {
        ckpt__os_mutex_lock(&u->lock);
        stops = u->stop;
        ckpt__os_mutex_unlock(&u->lock);
    }
    if (fails) return ckpt_set_error(m->code, "the mock is down");
    char to[4096];
    snprintf(to, sizeof to, "%s/%s", m->dir, name);
    if (!overwrite && access(to, F_OK) == 0) return ckpt_set_error(CKPT_EXISTS, "it is there");
    size_t n;
    char *bytes = util_slurp(path, &n);
    util_write(to, bytes, n);
    free(bytes);
    if (m->die) _exit(0);
    if (!m->lose) return CKPT_OK;
    m->lose = false;
    return ckpt_set_error(CKPT_NET, "the answer is lost");
}

static ckpt_err mock_get(const char *name, const char *destination, void *user) {
    char from[4096];
    size_t n;
    snprintf(from, sizeof from, "%s/%s", ((mock *)user)->dir, name);
    char *bytes = util_slurp(from, &n);
    if (bytes == NULL) return CKPT_NOT_FOUND;
    util_write(destination, bytes, n);
    free(bytes);
    return CKPT_OK;
}

static ckpt_err mock_size(const char *name, uint64_t *size, void *user) {
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", ((mock *)user)->dir, name);
    if (stat(path, &st) != 0) return CKPT_NOT_FOUND;
    *size = (uint64_t)st.st_size;
    return CKPT_OK;
}

static void open_mock(world *w, mock *m) {
    ckpt_store_ops ops;
    memset(&ops, 0, sizeof ops);
    ops.put = mock_put;
    ops.get = mock_get;
    ops.size = mock_size;
    assert_int_equal(ckpt_store_custom(&w->store, &ops, m), CKPT_OK);
    open_uploader(w);
}

static void new_mock(world *w, mock *m) {
    new_world(w);
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    m->dir = w->bucket;
    open_mock(w, m);
}

// A store that says "cancelled" though nobody cancelled it has failed: the file is kept, and its owner hears of it.
static void test_custom_gives_up(void **state) {
    (void)state;
    world w;
    mock m;
    new_mock(&w, &m);
    m.fail = 1;
    m.code = CKPT_CANCELLED;
    upload_text(&w, "a", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_IO);
    assert_non_null(strstr(ckpt_last_error(), "put function gave up"));
    assert_non_null(strstr(ckpt_last_error(), "the mock is down"));
    assert_int_equal(close_uploader(&w, 0), CKPT_IO);
    assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 2);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "1");
    ckpt_store_close(w.store);
}

static void await_puts(mock *m, int least) {
    int puts = 0;
    for (int i = 0; i < 60000 && puts < least; i++) {
        usleep(1000);
        pthread_mutex_lock(&m->lock);
        puts = m->puts;
        pthread_mutex_unlock(&m->lock);
    }
    assert_true(puts >= least);
}

// The time of a close is up while the last put is under way, which comes to its end: nothing is left, and nothing has failed.
static void test_close_in_time_after_all(void **state) {
    (void)state;
    world w;
    mock m;
    new_mock(&w, &m);
    m.until_stop = w.u;
    upload_text(&w, "a", "1", true);
    await_puts(&m, 1);
    assert_int_equal(close_uploader(&w, 0.02), CKPT_OK);
    assert_string_equal(text_of(&w, "a"), "1");
    assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
    w.d.num_concurrent_uploads = 1;
    open_uploader(&w);
    m.until_stop = w.u;
    upload_text(&w, "a", "2", true);
    await_puts(&m, 2);
    upload_text(&w, "b", "2", true);
    assert_int_equal(close_uploader(&w, 0.02), CKPT_TIMEOUT);
    assert_string_equal(text_of(&w, "b"), "(absent)");
    m.until_stop = NULL;
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "b"), "2");
    ckpt_store_close(w.store);
}

static void test_custom_store(void **state) {
    (void)state;
    world w;
    mock m;
    ckpt_store_ops ops;
    new_world(&w);
    memset(&m, 0, sizeof m);
    memset(&ops, 0, sizeof ops);
    pthread_mutex_init(&m.lock, NULL);
    m.dir = w.bucket;
    ops.put = mock_put;
    ops.get = mock_get;
    ops.size = mock_size;
    assert_int_equal(ckpt_store_custom(&w.store, &ops, &m), CKPT_OK);
    open_uploader(&w);
    assert_int_equal(m.puts, 0);                            // the probe leaves nothing, and puts nothing
    m.fail = 2;
    m.code = CKPT_NET;
    upload_text(&w, "a", "1", false);
    const char *big = big_file(&w, "big", 300000, 5);
    assert_int_equal(ckpt_upload_file(w.u, "big", big, true), CKPT_OK);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(m.puts, 4);
    assert_string_equal(text_of(&w, "a"), "1");
    same_file(object(&w, "big"), big);
    m.fail = 1;
    m.code = CKPT_AUTH;
    upload_text(&w, "b", "1", true);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    assert_non_null(strstr(ckpt_last_error(), "the mock is down"));
    assert_int_equal(close_uploader(&w, 0), CKPT_AUTH);
    ckpt_store_close(w.store);
}

static mock named_a, named_b;

static void open_named(world *w, mock *m, const char *name) {
    ckpt_store_ops ops;
    memset(m, 0, sizeof *m);
    memset(&ops, 0, sizeof ops);
    pthread_mutex_init(&m->lock, NULL);
    m->dir = util_join(w->dir, name);
    if (!util_exists(m->dir)) util_mkdir(m->dir);
    ops.put = mock_put;
    ops.get = mock_get;
    ops.size = mock_size;
    ops.name = name;
    assert_int_equal(ckpt_store_custom(&w->store, &ops, m), CKPT_OK);
}

static void die_named(world *w) {
    open_named(w, &named_a, "a");
    named_a.fail = 1000000;
    named_a.code = CKPT_NET;
    w->d.num_attempts = 1000000;
    open_uploader(w);
    upload_text(w, "x", "1", true);
}

// Two stores of the user's own have nothing in common but the staging folder.
static void test_custom_names(void **state) {
    (void)state;
    world w;
    char uri[64];
    new_world(&w);
    in_a_process(die_named, &w);
    open_named(&w, &named_b, "b");
    open_uploader(&w);
    assert_int_equal(ckpt_get_uri_for_file(w.u, "x", uri, sizeof uri), CKPT_OK);
    assert_string_equal(uri, "custom://b/x");
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    ckpt_store_close(w.store);
    assert_int_equal(named_b.puts, 0);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    open_named(&w, &named_a, "a");
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    ckpt_store_close(w.store);
    assert_int_equal(named_a.puts, 1);
    assert_string_equal(util_list(w.staging), "");
    ckpt_store_ops ops;
    memset(&ops, 0, sizeof ops);
    ops.put = mock_put;
    ops.get = mock_get;
    ops.size = mock_size;
    ops.name = "a\nb";
    assert_int_equal(ckpt_store_custom(&w.store, &ops, &named_a), CKPT_ARG);
    assert_null(w.store);
}

static void die_behind_a_put(world *w) {
    open_named(w, &named_a, "a");
    named_a.die = true;
    open_uploader(w);
    upload_text(w, "x", "1", false);
    (void)!ckpt_uploader_wait(w->u, 0);
    _exit(1);
}

// What may not be overwritten, and came through unheard of: by a process that was killed, or by the try before.
static void test_custom_own_object(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool killed = i % 2 == 0, same = i < 2;
        world w;
        new_world(&w);
        if (killed) in_a_process(die_behind_a_put, &w);
        if (killed && !same) util_write_text(util_join(w.dir, "a/x"), "2");
        open_named(&w, &named_a, "a");
        if (!killed && !same) util_write_text(util_join(w.dir, "a/x"), "2");
        named_a.lose = !killed;
        open_uploader(&w);
        if (!killed) upload_text(&w, "x", "1", false);
        ckpt_err e = close_uploader(&w, 0);
        if (e != (same ? CKPT_OK : CKPT_EXISTS)) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        assert_string_equal(util_read(util_join(w.dir, "a/x"), NULL), same ? "1" : "2");
        if (same) assert_string_equal(util_list(w.staging), "");
        ckpt_store_close(w.store);
    }
}

// A file whose size is told as 0, and which has bytes: it goes up whole, or not at all.
static void test_made_up_file(void **state) {
    (void)state;
    world w;
    char text[4096];
    const char *path = "/proc/version";
    FILE *f = fopen(path, "rb");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    if (n == 0) skip();
    text[n] = 0;
    begin_world(&w);
    const char *uri = util_fmt("file://%s/sub/x", w.bucket);
    assert_int_equal(ckpt_upload_file(w.u, "v", path, true), CKPT_OK);
    upload_text(&w, "empty", "", true);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    assert_string_equal(util_read(object(&w, "v"), NULL), text);
    assert_string_equal(util_read(object(&w, "empty"), NULL), "");
    assert_int_equal(ckpt_put_file(path, uri, true), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "copy it first"));
    assert_int_equal(ckpt_store_put(w.store, "sub/x", path, true), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "copy it first"));
    assert_false(ckpt__os_exists(object(&w, "sub/x")));
    assert_int_equal(ckpt_put_file(object(&w, "empty"), uri, true), CKPT_OK);
    assert_int_equal(ckpt_store_put(w.store, "y", object(&w, "empty"), true), CKPT_OK);
    end_world(&w);
}

static void test_put_file(void **state) {
    (void)state;
    world w;
    new_world(&w);
    const char *path = big_file(&w, "big", 300000, 5), *uri = util_fmt("file://%s/sub/x", w.bucket);
    assert_int_equal(ckpt_put_file(path, uri, false), CKPT_OK);
    same_file(object(&w, "sub/x"), path);
    assert_int_equal(ckpt_put_file(path, uri, false), CKPT_EXISTS);
    assert_int_equal(ckpt_put_file(path, uri, true), CKPT_OK);
    assert_int_equal(ckpt_put_file(util_join(w.dir, "none"), uri, true), CKPT_NOT_FOUND);
    assert_int_equal(ckpt_put_file(path, "local/name", true), CKPT_ARG);
    assert_int_equal(ckpt_put_file(path, "hf://a/b", true), CKPT_UNSUPPORTED);
    assert_int_equal(ckpt_put_file(path, util_fmt("%s#1.pt", uri), true), CKPT_ARG);    // else it would be the object above
    assert_non_null(strstr(ckpt_last_error(), "%23"));
    assert_int_equal(ckpt_put_file(path, "s3://b/run#1/a.pt", true), CKPT_ARG);
    assert_int_equal(ckpt_put_file(path, "sftp://h/run?1/a.pt", true), CKPT_ARG);
    setenv("A_FOLDER", w.bucket, 1);
    assert_int_equal(ckpt_put_file(path, "libcloud://sub/y#1.pt?provider=LOCAL&key_environ=A_FOLDER", true), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "'#'"));
    assert_int_equal(ckpt_put_file(path, "libcloud://sub/y.pt?provider=LOCAL&key_environ=A_FOLDER", true), CKPT_OK);
    same_file(object(&w, "sub/y.pt"), path);
    assert_int_equal(ckpt_put_file(path, util_fmt("%s%%231.pt", uri), true), CKPT_OK);
    same_file(object(&w, "sub/x#1.pt"), path);
    assert_int_equal(ckpt_put_file(NULL, uri, true), CKPT_ARG);
    const char *pipe_path = util_join(w.dir, "pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(ckpt_put_file(pipe_path, uri, true), CKPT_ARG);        // and does not wait for a writer
    assert_int_equal(ckpt_put_file("/dev/zero", uri, true), CKPT_ARG);
    assert_int_equal(ckpt_put_file(w.dir, uri, true), CKPT_ARG);
}

//-- early parts -------------------------------------------------------------------------------------------

typedef struct snapshot {
    unsigned char  *bytes;
    size_t          size;
    pthread_mutex_t lock;
    pthread_cond_t  grew;
    size_t          there;              // bytes that may be read
    bool            broken, freed;
    int             reads, late;        // late: reads after it was let go
} snapshot;

static ckpt_err snapshot_read(void *dst, size_t size, uint64_t offset, void *user) {
    snapshot *s = (snapshot *)user;
    pthread_mutex_lock(&s->lock);
    s->reads++;
    if (s->freed) s->late++;
    while (s->there < offset + size && !s->broken && !s->freed) pthread_cond_wait(&s->grew, &s->lock);
    bool ok = s->there >= offset + size && !s->freed;
    if (ok) memcpy(dst, s->bytes + offset, size);
    pthread_mutex_unlock(&s->lock);
    return ok ? CKPT_OK : ckpt__error_set(CKPT_IO, "the snapshot is broken");
}

static void snapshot_open(snapshot *s, const world *w, size_t size) {
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->grew, NULL);
    size_t n;
    char *bytes = util_slurp(big_file(w, "made", size, 9), &n);
    s->bytes = (unsigned char *)bytes;
    s->size = n;
}

static void snapshot_grow(snapshot *s, size_t there, bool broken) {
    pthread_mutex_lock(&s->lock);
    s->there = there;
    s->broken = broken;
    pthread_cond_broadcast(&s->grew);
    pthread_mutex_unlock(&s->lock);
}

static void snapshot_close(snapshot *s) {
    pthread_mutex_lock(&s->lock);
    s->freed = true;
    memset(s->bytes, 0xEE, s->size);
    pthread_mutex_unlock(&s->lock);
}

static void early_item(ckpt__upload *up, const world *w, const char *name) {
    memset(up, 0, sizeof *up);
    up->name = name;
    up->path = util_join(w->dir, "made");
    up->overwrite = true;
    up->durable = true;
    up->link_name = "latest.symlink";
    up->link_text = name;
    up->link_order[0] = 1;
}

static void early_body(ckpt__body *b, snapshot *s) {
    memset(b, 0, sizeof *b);
    b->fd = -1;
    b->read = snapshot_read;
    b->user = s;
    b->size = s->size;
}

static void test_early(void **state) {
    (void)state;
    world w;
    snapshot s;
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_parts = 2;
    open_uploader(&w);
    snapshot_open(&s, &w, 200000);
    early_item(&up, &w, "early");
    early_body(&body, &s);
    assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
    snapshot_grow(&s, 110000, false);
    await_count(&S.parts, 4);                               // parts leave before the file is finished
    assert_false(util_exists(object(&w, "early")));
    snapshot_grow(&s, 200000, false);
    usleep(30000);
    assert_int_equal(locked_get(&S.completes), 0);          // the object does not come into being before its file has
    assert_int_equal(ckpt_uploader_wait(w.u, 0.01), CKPT_TIMEOUT);
    up.has_crc = true;
    up.crc = ckpt__digest_crc32(0, s.bytes, s.size);
    assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
    snapshot_close(&s);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    same_file(object(&w, "early"), util_join(w.dir, "made"));
    assert_string_equal(text_of(&w, "latest.symlink"), "early");
    assert_int_equal(s.late, 0);
    free(s.bytes);
    end_world(&w);
}

// Committed in the middle: the rest comes from the file, and the snapshot is let go.
static void test_early_switch(void **state) {
    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        world w;
        snapshot s;
        ckpt__upload up;
        ckpt__body body;
        ckpt__uploader_item *ticket;
        new_world(&w);
        open_store(&w);
        w.d.num_concurrent_parts = 3;
        open_uploader(&w);
        snapshot_open(&s, &w, 400000);
        early_item(&up, &w, "early");
        early_body(&body, &s);
        if (turn % 2 == 0) hold_parts(turn);
        assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
        snapshot_grow(&s, 400000, false);
        if (turn % 2 == 0) await_count(&S.parts, turn);
        else usleep((useconds_t)turn * 300);
        assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
        snapshot_close(&s);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        same_file(object(&w, "early"), util_join(w.dir, "made"));
        assert_int_equal(s.late, 0);
        assert_int_equal(S.begins, 1);
        free(s.bytes);
        end_world(&w);
        assert_int_equal(entries(w.staging, ".upload"), 0);
    }
}

static __thread bool late;              // this thread gets the lock long after it was woken
static pthread_cond_t *counted;         // so many wait for it, and for no time
static int             endless;

// The linker has all calls come here (--wrap).
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
    bool counts = c == __atomic_load_n(&counted, __ATOMIC_SEQ_CST);
    if (counts) __atomic_add_fetch(&endless, 1, __ATOMIC_SEQ_CST);
    int e = __real_pthread_cond_wait(c, m);
    if (counts) __atomic_sub_fetch(&endless, 1, __ATOMIC_SEQ_CST);
    if (late) {
        pthread_mutex_unlock(m);
        usleep(200000);
        pthread_mutex_lock(m);
    }
    return e;
}

static bool await_endless(int n) {
    for (int i = 0; i < 120000 && __atomic_load_n(&endless, __ATOMIC_SEQ_CST) != n; i++) usleep(500);
    return __atomic_load_n(&endless, __ATOMIC_SEQ_CST) == n;
}

// All workers learn when what has failed is to be tried again: the one that was told first may be busy by then.
static void test_outage_is_known_to_all(void **state) {
    (void)state;
    world w;
    new_world(&w);
    open_store(&w);
    w.d.num_concurrent_uploads = 4;
    open_uploader(&w);
    endless = 0;
    __atomic_store_n(&counted, &w.u->work, __ATOMIC_SEQ_CST);
    fail_next(1, CKPT_AUTH, false);
    hold();
    upload_text(&w, "a", "1", true);                        // which wakes all
    assert_true(await_endless(3));
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    assert_true(await_endless(0));
    __atomic_store_n(&counted, NULL, __ATOMIC_SEQ_CST);
    assert_int_equal(close_uploader(&w, 0), CKPT_AUTH);
    end_world(&w);
}

// From ckpt_upload_file to the first request: the worker waits to be woken, and for no time, and is there at once. On a busy machine it
// may take many tries until there is a processor for it.
static void test_latency(void **state) {
    (void)state;
    world w;
    double best = 1e9, start = ckpt__os_now();
    begin_world(&w);
    endless = 0;
    __atomic_store_n(&counted, &w.u->work, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 20 || (best >= 0.001 && ckpt__os_now() - start < 60.0); i++) {
        const char *path = file_of(&w, "f", "x");
        int before = locked_get(&S.asked);
        assert_int_equal(ckpt_upload_file(w.u, util_fmt("n%d", i), path, true), CKPT_OK);
        double began = ckpt__os_now();
        while (locked_get(&S.asked) == before) {}
        double took = ckpt__os_now() - began;
        if (took < best) best = took;
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_true(await_endless(1));
    }
    __atomic_store_n(&counted, NULL, __ATOMIC_SEQ_CST);
    assert_true(best < 0.001);
    end_world(&w);
}

static void *snapshot_breaks(void *arg) {
    usleep(50000);
    snapshot_grow((snapshot *)arg, 0, true);
    return NULL;
}

// Who gives a ticket up waits for its last read, and its worker may have come to its end when that wait is over.
static void test_early_abandoned_late(void **state) {
    (void)state;
    world w;
    snapshot s;
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    pthread_t breaks;
    begin_world(&w);
    snapshot_open(&s, &w, 200000);
    early_item(&up, &w, "early");
    early_body(&body, &s);
    assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
    for (bool reads = false; !reads; usleep(1000)) {
        pthread_mutex_lock(&s.lock);
        reads = s.reads > 0;
        pthread_mutex_unlock(&s.lock);
    }
    assert_int_equal(pthread_create(&breaks, NULL, snapshot_breaks, &s), 0);
    late = true;
    ckpt__uploader_abandon(w.u, ticket);
    late = false;
    snapshot_close(&s);
    pthread_join(breaks, NULL);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(entries(w.bucket, ""), 0);
    assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
    assert_int_equal(s.late, 0);
    free(s.bytes);
    end_world(&w);
}

static void test_early_abandoned(void **state) {
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        world w;
        snapshot s;
        ckpt__upload up;
        ckpt__body body;
        ckpt__uploader_item *ticket;
        begin_world(&w);
        if (turn == 3) {                                    // it has not begun: the worker is busy
            hold();
            upload_text(&w, "other", "x", true);
            await_count(&S.asked, 1);
        }
        snapshot_open(&s, &w, 200000);
        early_item(&up, &w, "early");
        early_body(&body, &s);
        assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
        if (turn < 3) snapshot_grow(&s, turn == 0 ? 0 : turn == 1 ? 90000 : 200000, false);
        if (turn == 1) await_count(&S.parts, 2);
        snapshot_grow(&s, s.there, turn < 2);
        ckpt__uploader_abandon(w.u, ticket);
        snapshot_close(&s);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_false(util_exists(object(&w, "early")));
        assert_int_equal(entries(w.bucket, ""), turn == 3 ? 1 : 0);      // no half-done upload either
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        assert_int_equal(s.late, 0);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        free(s.bytes);
        end_world(&w);
    }
}

// Failures before the commit are nobody's business; it is tried again with the file.
static void test_early_fails_first(void **state) {
    (void)state;
    for (int commits = 0; commits < 2; commits++) {
        world w;
        snapshot s;
        ckpt__upload up;
        ckpt__body body;
        ckpt__uploader_item *ticket;
        begin_world(&w);
        snapshot_open(&s, &w, 200000);
        early_item(&up, &w, "early");
        early_body(&body, &s);
        S.never = "early";
        S.code = CKPT_NET;
        S.transient = true;
        assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
        snapshot_grow(&s, 200000, false);
        await_end(&w);
        assert_int_equal(ckpt_uploader_check(w.u), CKPT_OK);
        pthread_mutex_lock(&S.lock);
        S.never = NULL;
        pthread_mutex_unlock(&S.lock);
        if (commits) assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
        else ckpt__uploader_abandon(w.u, ticket);
        snapshot_close(&s);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        if (commits) same_file(object(&w, "early"), util_join(w.dir, "made"));
        assert_int_equal(entries(w.bucket, ""), commits ? 2 : 0);
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        free(s.bytes);
        end_world(&w);
    }
}

// The record cannot be looked at when the file is finished: it is there all the same, and what a worker reads is not written anew.
static void test_early_and_no_look_at_its_record(void **state) {
    (void)state;
    world w;
    snapshot s;
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    begin_world(&w);
    snapshot_open(&s, &w, 200000);
    early_item(&up, &w, "early");
    early_body(&body, &s);
    assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
    hold();
    snapshot_grow(&s, 200000, false);
    const char *record = util_fmt("%s", ticket->record);
    unseen = ".upload";
    unseeing = pthread_self();
    fault_set_spy(see_not);
    ckpt_err e = ckpt__uploader_commit(w.u, ticket, &up);
    fault_set_spy(NULL);
    (void)fault_disarm();
    assert_int_equal(e, CKPT_OK);
    const char *text = util_read(record, NULL);
    assert_true(strncmp(text, "{\"is\":\"early\"", 13) == 0 && strstr(text, "{\"is\":\"committed\"") != NULL);
    snapshot_close(&s);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    same_file(object(&w, "early"), util_join(w.dir, "made"));
    assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
    free(s.bytes);
    end_world(&w);
}

static void die_early(world *w) {
    static snapshot s;                  // a worker reads it until the process is gone
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    open_uploader(w);
    snapshot_open(&s, w, 200000);
    early_item(&up, w, "early");
    early_body(&body, &s);
    if (ckpt__uploader_begin(w->u, &up, &body, &ticket) != CKPT_OK) _exit(1);
    snapshot_grow(&s, 110000, false);
    await_count(&S.parts, 4);
    usleep(20000);
    if (getenv("CKPT_TEST_COMMIT") == NULL) return;
    hold_parts(0);
    snapshot_grow(&s, 200000, false);
    if (getenv("CKPT_TEST_TORN") != NULL) {                 // the disk was full for a moment
        FILE *f = fopen(ticket->record, "ab");
        if (f == NULL || fputs("{\"is\":\"part\",\"numb", f) < 0 || fclose(f) != 0) _exit(3);
    }
    if (ckpt__uploader_commit(w->u, ticket, &up) != CKPT_OK) _exit(2);
}

static void test_early_killed(void **state) {
    (void)state;
    for (int committed = 0; committed < 2; committed++) {
        world w;
        new_world(&w);
        if (committed) setenv("CKPT_TEST_COMMIT", "1", 1);
        in_a_process(die_early, &w);
        unsetenv("CKPT_TEST_COMMIT");
        assert_true(entries(w.bucket, "") > 0);
        open_store(&w);
        open_uploader(&w);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        if (committed) {
            same_file(object(&w, "early"), util_join(w.dir, "made"));
            assert_true(S.parts > 0 && S.begins == 0);
        } else {
            assert_int_equal(S.aborts, 1);
            assert_int_equal(S.parts, 0);
        }
        assert_int_equal(entries(w.bucket, ""), committed ? 2 : 0);
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        end_world(&w);
    }
}

// What is to be given up of an upload that never counted is no file on its way: one of that name is not refused for it, which a saver
// that finds the file whole would hand over next.
static void test_early_killed_and_again(void **state) {
    (void)state;
    for (int runs = 0; runs < 2; runs++) {
        world w;
        new_world(&w);
        in_a_process(die_early, &w);
        open_store(&w);
        S.hold_aborts = 1;
        open_uploader(&w);
        if (runs) await_count(&S.aborts, 1);
        upload_text(&w, "early", "again", false);
        __atomic_store_n(&S.hold_aborts, 0, __ATOMIC_SEQ_CST);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        assert_string_equal(text_of(&w, "early"), "again");
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        end_world(&w);
    }
}

// A line of the record that a full disk cut off does not take those behind it along.
static void test_early_torn(void **state) {
    (void)state;
    world w;
    new_world(&w);
    setenv("CKPT_TEST_COMMIT", "1", 1);
    setenv("CKPT_TEST_TORN", "1", 1);
    in_a_process(die_early, &w);
    unsetenv("CKPT_TEST_COMMIT");
    unsetenv("CKPT_TEST_TORN");
    open_store(&w);
    open_uploader(&w);
    assert_int_equal(close_uploader(&w, 0), CKPT_OK);
    same_file(object(&w, "early"), util_join(w.dir, "made"));
    assert_int_equal(entries(w.staging, ".damaged") + entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
    end_world(&w);
}

// The object that had the name is to go, and its successor was begun before that was asked and is there afterwards. The removal waits
// behind it, waits in its place, or is under way; the last one's store could not have it early.
static void test_early_and_a_removal(void **state) {
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        world w;
        snapshot s;
        told t;
        ckpt__upload up;
        ckpt__body body;
        ckpt__uploader_item *ticket;
        memset(&t, 0, sizeof t);
        new_world(&w);
        open_store(&w);
        w.d.num_concurrent_uploads = turn == 0 ? 2 : 1;
        open_uploader(&w);
        util_write_text(object(&w, "early"), "the old one");
        if (turn == 1 || turn == 2) {                       // its worker is busy
            hold();
            upload_text(&w, "other", "x", true);
            await_count(&S.asked, 1);
        }
        snapshot_open(&s, &w, 200000);
        early_item(&up, &w, "early");
        early_body(&body, &s);
        if (turn == 3) body.read = NULL;
        assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
        snapshot_grow(&s, 200000, false);
        if (turn == 0) await_count(&S.parts, 2);
        if (turn >= 2) hold_removes(turn == 2);
        assert_int_equal(ckpt__uploader_remove(w.u, "early", false, on_done, &t), CKPT_OK);
        if (turn == 2) hold_removes(false);                 // now: else the ticket may be first, and wait for its file
        if (turn >= 2) await_count(&S.removes, 1);
        assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
        snapshot_close(&s);
        let_go();
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        same_file(object(&w, "early"), util_join(w.dir, "made"));
        assert_string_equal(text_of(&w, "latest.symlink"), "early");
        assert_int_equal(t.done, 1);
        assert_int_equal(t.cancelled, turn < 2);
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        assert_int_equal(ckpt__uploader_remove(w.u, "early", false, on_done, &t), CKPT_OK);        // and one that is asked now counts
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        assert_string_equal(text_of(&w, "early"), "(absent)");
        free(s.bytes);
        end_world(&w);
    }
}

static void die_with_a_journal(world *w) {
    open_uploader(w);
    hold();
    for (int i = 0; i < 2 * (int)CKPT__UPLOADER_SINGLE; i++) upload_text(w, util_fmt("s%d", i), "x", true);
}

// The disk is full still, or again, when the next process comes, whose uploads are what frees it: it opens, and goes on. A record that
// was cut off is as good as before; what cannot be taken out of a journal, or not all of it, goes as it stands there: not over what is
// newer. [2..] as much of it comes out; [5] and all of it fails when there is room again
static void test_full_disk_at_restart(void **state) {
    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        enum { MANY = 16 };             // 2 * CKPT__UPLOADER_SINGLE
        bool journal = turn > 0, fails = turn == 5;
        world w;
        new_world(&w);
        setenv("CKPT_TEST_COMMIT", "1", 1);
        setenv("CKPT_TEST_TORN", "1", 1);
        in_a_process(journal ? die_with_a_journal : die_early, &w);
        unsetenv("CKPT_TEST_COMMIT");
        unsetenv("CKPT_TEST_TORN");
        assert_int_equal(entries(w.staging, ".journal"), journal);
        open_store(&w);
        hold_parts(0);
        hold();
        fault_arm_call("pwrite", ENOSPC, turn < 2 ? 1 : 1 + 3 * turn);
        fault_stays = true;
        open_uploader(&w);
        assert_true(fault_disarm());
        assert_int_equal(entries(w.staging, ".upload"), journal ? MANY / 2 : 1);
        if (journal) upload_text(&w, "s9", "newer", true);
        if (fails) fail_all("s", CKPT_AUTH);
        let_go();
        ckpt_err e = close_uploader(&w, 0);
        if (e != (fails ? CKPT_AUTH : CKPT_OK)) fail_msg("%d: %s: %s", turn, ckpt_err_name(e), ckpt_last_error());
        if (fails) assert_int_equal(entries(w.staging, ".upload"), MANY);
        fail_all(NULL, CKPT_OK);
        assert_int_equal(entries(w.staging, ".journal"), 0);
        for (int again = fails ? 1 : 0; again < 2; again++) {
            if (again) assert_int_equal(go_on(&w), CKPT_OK);
            if (journal) assert_int_equal(entries(w.bucket, ""), MANY);
            if (journal) assert_string_equal(text_of(&w, "s9"), "newer");
            if (journal) assert_string_equal(text_of(&w, "s10"), "x");
            if (!journal) same_file(object(&w, "early"), util_join(w.dir, "made"));
        }
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data") + entries(w.staging, ".journal"), 0);
        end_world(&w);
    }
}

// A store without parts, a name that is busy, a newer file in between.
static void test_early_otherwise(void **state) {
    (void)state;
    world w;
    snapshot s;
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    begin_world(&w);
    hold();
    snapshot_open(&s, &w, 200000);
    early_item(&up, &w, "early");
    early_body(&body, &s);
    upload_text(&w, "early", "first", true);
    await_count(&S.asked, 1);
    assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
    assert_int_equal(entries(w.staging, ".upload"), 1);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "early"), "first");
    assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
    snapshot_close(&s);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    same_file(object(&w, "early"), util_join(w.dir, "made"));
    // A newer file comes while it waits for a worker: it is not needed any more, but still its ticket's.
    int asked = locked_get(&S.asked);
    hold();
    upload_text(&w, "other", "x", true);
    await_count(&S.asked, asked + 1);
    s.freed = false;
    assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
    upload_text(&w, "early", "newest", true);
    assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
    let_go();
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_string_equal(text_of(&w, "early"), "newest");
    assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
    free(s.bytes);
    end_world(&w);
}

//-- memory ------------------------------------------------------------------------------------------------

typedef struct heap { int calls, nth, live; } heap;

static void *heap_fn(void *ptr, size_t old_size, size_t new_size, void *user) {
    heap *h = (heap *)user;
    (void)old_size;
    if (new_size == 0) {
        if (ptr != NULL) __atomic_sub_fetch(&h->live, 1, __ATOMIC_SEQ_CST);
        free(ptr);
        return NULL;
    }
    if (__atomic_add_fetch(&h->calls, 1, __ATOMIC_SEQ_CST) == h->nth) return NULL;
    if (ptr == NULL) __atomic_add_fetch(&h->live, 1, __ATOMIC_SEQ_CST);
    return realloc(ptr, new_size);
}

// Each allocation fails in turn: no crash, no leak, and what was acknowledged gets there, in this run or the next.
static void test_memory(void **state) {
    (void)state;
    world w;
    heap h;
    new_world(&w);
    const char *big = big_file(&w, "big", 100000, 1), *small = file_of(&w, "small", "x");
    for (int nth = 1; ; nth++) {
        ckpt__upload up;
        bool acked[2] = { false, false };
        memset(&h, 0, sizeof h);
        h.nth = nth;
        open_store(&w);
        w.u = NULL;
        w.d.store = w.store;
        w.d.upload_staging_folder = w.staging;
        w.d.allocator.fn = heap_fn;
        w.d.allocator.user = &h;
        ckpt_err e = ckpt_uploader_open(&w.u, &w.d), first = e;
        if (e == CKPT_OK) {
            e = ckpt_upload_file(w.u, "big", big, true);
            acked[0] = e == CKPT_OK;
            memset(&up, 0, sizeof up);
            up.name = "small";
            up.path = small;
            up.overwrite = true;
            up.link_name = "link";
            up.link_text = "small";
            e = ckpt__uploader_add(w.u, &up);
            acked[1] = e == CKPT_OK;
            first = ckpt_uploader_close(w.u, 0);
        }
        assert_true(first == CKPT_OK || first == CKPT_NOMEM);
        assert_int_equal(h.live, 0);
        bool over = h.calls < nth;
        // The next run.
        memset(&w.d.allocator, 0, sizeof w.d.allocator);
        open_uploader(&w);
        assert_int_equal(close_uploader(&w, 0), CKPT_OK);
        if (acked[0]) same_file(object(&w, "big"), big);
        if (acked[1]) assert_string_equal(text_of(&w, "link"), "small");
        assert_int_equal(entries(w.staging, ".upload") + entries(w.staging, ".data"), 0);
        ckpt_store_close(w.store);
        (void)unlink(object(&w, "big"));
        (void)unlink(object(&w, "small"));
        (void)unlink(object(&w, "link"));
        assert_string_equal(util_list(w.bucket), "");
        if (over) break;
    }
}

int main(void) {
    fault_backoff = 0.001;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_names),
        cmocka_unit_test(test_uri_names),
        cmocka_unit_test(test_uris),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_names_refused),                      cmocka_unit_test(test_names_for_no_store),
        cmocka_unit_test(test_scenarios),
        cmocka_unit_test(test_replaced_while_waiting),
        cmocka_unit_test(test_told_at_close),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_put_after_an_answer),
        cmocka_unit_test(test_failed_then_newer), cmocka_unit_test(test_half_sent_then_newer), cmocka_unit_test(test_record_stays),
        cmocka_unit_test(test_half_sent_then_changed), cmocka_unit_test(test_staging_is_a_file),
        cmocka_unit_test(test_half_sent_link),
        cmocka_unit_test(test_record_of_none_stays), cmocka_unit_test(test_never_sent_then_newer), cmocka_unit_test(test_nothing_was_cancelled),
        cmocka_unit_test(test_outage),
        cmocka_unit_test(test_staging_away),
        cmocka_unit_test(test_changed_unseen), cmocka_unit_test(test_changed_in_between),
        cmocka_unit_test(test_staged_bad),
        cmocka_unit_test(test_mount_away), cmocka_unit_test(test_local_failures_pass), cmocka_unit_test(test_note_unseen), cmocka_unit_test(test_refused_for_nothing),
        cmocka_unit_test(test_outage_takes_long), cmocka_unit_test(test_outage_is_known_to_all),
        cmocka_unit_test(test_tried_again_by_wait),
        cmocka_unit_test(test_parts_tried_again), cmocka_unit_test(test_full_store), cmocka_unit_test(test_outage_at_the_end), cmocka_unit_test(test_journal_tried_again),
        cmocka_unit_test(test_many_failures),
        cmocka_unit_test(test_attempts),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_stagger),
        cmocka_unit_test(test_staging_by_link), cmocka_unit_test(test_staged_for_the_owner),
        cmocka_unit_test(test_written_in_place),
        cmocka_unit_test(test_overwritten_in_place), cmocka_unit_test(test_written_to_is_told_once),
        cmocka_unit_test(test_beside_the_file),
        cmocka_unit_test(test_other_file_system),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_dead_owner), cmocka_unit_test(test_heir_of_nothing), cmocka_unit_test(test_heir_after_all), cmocka_unit_test(test_tried_in_vain),
        cmocka_unit_test(test_copied_folder),
        cmocka_unit_test(test_link_to_what_is_gone),
        cmocka_unit_test(test_long_upload_ids),
        cmocka_unit_test(test_another_rank_s),
        cmocka_unit_test(test_half_done),
        cmocka_unit_test(test_half_done_replaced), cmocka_unit_test(test_dropped_before_it_goes),
        cmocka_unit_test(test_refusal_is_passed_on),
        cmocka_unit_test(test_refused_and_dropped),
        cmocka_unit_test(test_part_lost),
        cmocka_unit_test(test_own_object), cmocka_unit_test(test_same_object_by_another), cmocka_unit_test(test_same_object_after_an_outage),
        cmocka_unit_test(test_own_object_plain), cmocka_unit_test(test_refused_unseen), cmocka_unit_test(test_link_locks),
        cmocka_unit_test(test_own_object_whole), cmocka_unit_test(test_own_object_cancelled), cmocka_unit_test(test_own_object_in_parts),
        cmocka_unit_test(test_custom_own_object),
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_left_unseen), cmocka_unit_test(test_left_unread),
        cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_handed_over_again_and_newer), cmocka_unit_test(test_tried_again_and_newer),
        cmocka_unit_test(test_left_behind_and_no_giving_up), cmocka_unit_test(test_left_unread_then_newer),
        cmocka_unit_test(test_parts_of_newer), cmocka_unit_test(test_hidden_away),
        cmocka_unit_test(test_clock_set_back), cmocka_unit_test(test_clock_set_back_and_confirmed), cmocka_unit_test(test_left_and_saved_before),
        cmocka_unit_test(test_other_store),
        cmocka_unit_test(test_dead_elsewhere),
        cmocka_unit_test(test_live_unseen), cmocka_unit_test(test_pending_unseen), cmocka_unit_test(test_pending_unread),
        cmocka_unit_test(test_link_lock_of_the_dead), cmocka_unit_test(test_link_lock_of_the_slow),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_links_never_go_back),
        cmocka_unit_test(test_links_many_workers),
        cmocka_unit_test(test_links_two_processes),
        cmocka_unit_test(test_many_folders), cmocka_unit_test(test_many_folders_one_left),
        cmocka_unit_test(test_folder_made_again),
        cmocka_unit_test(test_many_folders_removed), cmocka_unit_test(test_lock_removed),
        cmocka_unit_test(test_relative_paths),
        cmocka_unit_test(test_link_after_a_crash),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_attempts_told),
        cmocka_unit_test(test_any_thread),
        cmocka_unit_test(test_threads_at_once),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_custom_store), cmocka_unit_test(test_custom_gives_up), cmocka_unit_test(test_close_in_time_after_all),
        cmocka_unit_test(test_custom_names),
        cmocka_unit_test(test_made_up_file), cmocka_unit_test(test_put_file),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_switch),
        cmocka_unit_test(test_early_abandoned), cmocka_unit_test(test_early_abandoned_late),
        cmocka_unit_test(test_early_fails_first), cmocka_unit_test(test_early_and_no_look_at_its_record),
        cmocka_unit_test(test_early_killed), cmocka_unit_test(test_early_killed_and_again),
        cmocka_unit_test(test_early_torn), cmocka_unit_test(test_full_disk_at_restart),
        cmocka_unit_test(test_early_otherwise), cmocka_unit_test(test_early_and_a_removal),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
