// Proves that a small file which is taken survives: in the journal and out of it, after a kill at any sync, a torn end, a full disk, and
// that of one name the newest comes last. run.sh: tsan
#define CKPT_NO_REMOTE
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"

typedef struct world { const char *dir, *staging, *bucket; ckpt_uploader *u; } world;

static ckpt_uploader *open_in(const world *w, const char *staging) {
    ckpt_uploader_desc d;
    ckpt_uploader *u = NULL;
    memset(&d, 0, sizeof d);
    d.bucket_uri = util_fmt("file://%s", w->bucket);
    d.upload_staging_folder = staging;
    d.num_concurrent_uploads = 2;
    d.num_attempts = 1;
    if (ckpt_uploader_open(&u, &d) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    return u;
}

// Its workers take nothing until they are told to.
static void open_world(world *w) {
    util_clear_env();
    w->dir = util_temp_dir();
    w->staging = util_join(w->dir, "staging");
    w->bucket = util_join(w->dir, "bucket");
    util_mkdir(w->staging);
    util_mkdir(w->bucket);
    w->u = open_in(w, w->staging);
    ckpt__uploader_pause(w->u, 1);
}

static void go(const world *w) { ckpt__uploader_pause(w->u, -1); }

static void close_world(world *w) {
    if (ckpt_uploader_close(w->u, 0) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_string_equal(util_list(w->staging), "");
}

static ckpt_err try_bytes(const world *w, const char *name, const void *p, size_t n, bool overwrite) {
    const char *path = util_join(w->dir, "file");
    util_write(path, p, n);
    return ckpt_upload_file(w->u, name, path, overwrite);
}

static void upload(const world *w, const char *name, const char *text) {
    if (try_bytes(w, name, text, strlen(text), true) != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

static bool holds(const char *folder, const char *part) { return strstr(util_list(folder), part) != NULL; }

// What the disk would hold if the process were gone now.
static const char *copy_of(const world *w) {
    static int number;
    const char *to = util_join(w->dir, util_fmt("copy%d", ++number));
    util_mkdir(to);
    char *names = util_fmt("%s", util_list(w->staging)), *save = NULL;
    for (char *n = strtok_r(names, "\n", &save); n != NULL; n = strtok_r(NULL, "\n", &save)) {
        size_t size = 0;
        struct stat s;
        if (strstr(n, ".lock") != NULL || strstr(n, ".tmp") != NULL) continue;      // what a dead process wrote aside is swept away
        char *p = util_slurp(util_join(w->staging, n), &size);
        if (p == NULL) continue;
        util_write(util_join(to, n), p, size);
        if (stat(util_join(w->staging, n), &s) != 0) fail_msg("%s is gone", n);
        const struct timespec times[2] = { s.st_mtim, s.st_mtim };
        assert_int_equal(utimensat(AT_FDCWD, util_join(to, n), times, 0), 0);
        free(p);
    }
    return to;
}

// Another process goes on with a copy, into an empty bucket unless told otherwise.
static ckpt_err go_on(const world *w, const char *copy, bool empty) {
    if (empty) {
        util_remove_tree(w->bucket);
        util_mkdir(w->bucket);
    }
    return ckpt_uploader_close(open_in(w, copy), 0);
}

static void is(const world *w, const char *name, const char *text) {
    const char *path = util_join(w->bucket, name);
    if (!ckpt__os_exists(path)) fail_msg("%s did not arrive", name);
    assert_string_equal(util_read(path, NULL), text);
}

static const char *journal_in(const char *folder) {
    char *names = util_fmt("%s", util_list(folder)), *save = NULL;
    for (char *n = strtok_r(names, "\n", &save); n != NULL; n = strtok_r(NULL, "\n", &save)) {
        if (ckpt__txt_ends(n, ".journal")) return util_join(folder, n);
    }
    return NULL;
}

//-- what is taken arrives ---------------------------------------------------------------------------------

static void test_arrives(void **state) {
    (void)state;
    world w;
    open_world(&w);
    for (int i = 0; i < 20; i++) upload(&w, util_fmt("f%d", i), util_fmt("text %d", i));
    assert_int_equal(try_bytes(&w, "empty", "", 0, true), CKPT_OK);
    assert_false(holds(w.staging, ".upload") || holds(w.staging, ".data"));
    assert_true(holds(w.staging, ".journal"));
    struct stat s;
    assert_int_equal(stat(journal_in(w.staging), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    const char *copy = copy_of(&w);
    go(&w);
    close_world(&w);
    for (int i = 0; i < 20; i++) is(&w, util_fmt("f%d", i), util_fmt("text %d", i));
    is(&w, "empty", "");
    assert_int_equal(go_on(&w, copy, true), CKPT_OK);
    for (int i = 0; i < 20; i++) is(&w, util_fmt("f%d", i), util_fmt("text %d", i));
    is(&w, "empty", "");
    assert_string_equal(util_list(copy), "");
}

// The newest of a name comes last, whether it is in the journal or not, and no process brings an older one back.
static void test_newest_last(void **state) {
    (void)state;
    char *big = (char *)calloc(1, CKPT__UPLOADER_SMALL + 1);
    memset(big, 'b', CKPT__UPLOADER_SMALL);
    for (int last = 0; last < 2; last++) {
        world w;
        open_world(&w);
        upload(&w, "n", "one");
        upload(&w, "n", "two");
        assert_int_equal(try_bytes(&w, "n", big, CKPT__UPLOADER_SMALL + 1, true), CKPT_OK);
        assert_true(holds(w.staging, ".upload"));
        if (last == 0) upload(&w, "n", "three");
        const char *copy = copy_of(&w);
        go(&w);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
        is(&w, "n", last == 0 ? "three" : big);
        const char *after = copy_of(&w);
        close_world(&w);
        assert_int_equal(go_on(&w, after, false), CKPT_OK);
        is(&w, "n", last == 0 ? "three" : big);
        assert_int_equal(go_on(&w, copy, true), CKPT_OK);
        is(&w, "n", last == 0 ? "three" : big);
    }
    free(big);
}

// A process dies between the object and the word that it is there.
static void test_create_only(void **state) {
    (void)state;
    world w;
    open_world(&w);
    assert_int_equal(try_bytes(&w, "n", "mine", 4, false), CKPT_OK);
    assert_int_equal(try_bytes(&w, "n", "late", 4, false), CKPT_EXISTS);
    const char *copy = copy_of(&w), *other = copy_of(&w);
    go(&w);
    close_world(&w);
    is(&w, "n", "mine");
    assert_int_equal(go_on(&w, copy, false), CKPT_OK);
    assert_string_equal(util_list(copy), "");
    (void)unlink(util_join(w.bucket, "n"));
    util_write_text(util_join(w.bucket, "n"), "other's");
    assert_int_equal(go_on(&w, other, false), CKPT_EXISTS);
    assert_true(holds(other, ".upload") && holds(other, ".data") && !holds(other, ".journal"));
    assert_int_equal(go_on(&w, other, false), CKPT_OK);      // refused for good
    is(&w, "n", "other's");
}

static void test_refused_at_once(void **state) {
    (void)state;
    world w;
    open_world(&w);
    util_write_text(util_join(w.bucket, "n"), "other's");
    assert_int_equal(try_bytes(&w, "n", "mine", 4, false), CKPT_OK);
    go(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_EXISTS);
    const char *said = strstr(ckpt_last_error(), "the file is kept as ");
    assert_non_null(said);
    assert_string_equal(util_read(said + strlen("the file is kept as "), NULL), "mine");
    assert_int_equal(ckpt_uploader_close(w.u, 0), CKPT_EXISTS);
    assert_false(holds(w.staging, ".journal"));
    assert_int_equal(go_on(&w, w.staging, false), CKPT_OK);
    is(&w, "n", "other's");
}

// What failed is kept as files of its own, and goes with the next process; the journal is not held up by it.
static void test_fails_then_goes(void **state) {
    (void)state;
    world w;
    open_world(&w);
    util_mkdir(util_join(w.bucket, "n"));
    util_write_text(util_join(w.bucket, "n/x"), "in the way");
    upload(&w, "n", "text");
    upload(&w, "m", "text");
    go(&w);
    assert_int_not_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_non_null(strstr(ckpt_last_error(), "the next run tries again"));
    is(&w, "m", "text");
    assert_true(holds(w.staging, ".upload") && holds(w.staging, ".data"));
    const char *copy = copy_of(&w);
    assert_int_not_equal(ckpt_uploader_close(w.u, 0), CKPT_OK);
    assert_false(holds(w.staging, ".journal"));
    assert_int_equal(go_on(&w, w.staging, true), CKPT_OK);
    is(&w, "n", "text");
    assert_string_equal(util_list(w.bucket), "n\n");
    assert_int_equal(go_on(&w, copy, true), CKPT_OK);        // the mark was synced: no second file of the entry
    is(&w, "n", "text");
    assert_string_equal(util_list(w.bucket), "n\n");
}

// Closed before all was sent.
static void test_closed_early(void **state) {
    (void)state;
    world w;
    open_world(&w);
    for (int i = 0; i < 5; i++) upload(&w, util_fmt("f%d", i), "text");
    assert_int_equal(ckpt_uploader_close(w.u, 0.01), CKPT_TIMEOUT);
    assert_true(holds(w.staging, ".journal"));
    assert_int_equal(go_on(&w, w.staging, false), CKPT_OK);
    for (int i = 0; i < 5; i++) is(&w, util_fmt("f%d", i), "text");
    assert_string_equal(util_list(w.staging), "");
}

//-- the journal's room ------------------------------------------------------------------------------------

static void test_begins_again(void **state) {
    (void)state;
    world w;
    struct stat s;
    char *p = (char *)calloc(1, CKPT__UPLOADER_SMALL);
    open_world(&w);
    go(&w);
    for (int i = 0; i < 60; i++) {
        memset(p, 'a' + i % 26, CKPT__UPLOADER_SMALL);
        assert_int_equal(try_bytes(&w, util_fmt("f%d", i % 7), p, CKPT__UPLOADER_SMALL, true), CKPT_OK);
        assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);      // after each: with one undone at the end it grows, rightly
        if (i == 39) {
            const char *idle = copy_of(&w);
            assert_int_equal(go_on(&w, idle, true), CKPT_OK);
            assert_string_equal(util_list(w.bucket), "");
        }
    }
    assert_int_equal(stat(journal_in(w.staging), &s), 0);
    assert_int_equal(s.st_size, CKPT__UPLOADER_JOURNAL_FIRST);
    ckpt__uploader_pause(w.u, 1);
    upload(&w, "last", "text");
    const char *copy = copy_of(&w);
    go(&w);
    close_world(&w);
    assert_int_equal(go_on(&w, copy, true), CKPT_OK);
    assert_string_equal(util_list(w.bucket), "last\n");
    free(p);
}

static void test_full(void **state) {
    (void)state;
    enum { COUNT = 34 };
    world w;
    struct stat s;
    char *p = (char *)calloc(1, CKPT__UPLOADER_SMALL + 1);
    open_world(&w);
    for (int i = 0; i < COUNT; i++) {
        memset(p, 'a' + i % 26, CKPT__UPLOADER_SMALL);
        assert_int_equal(try_bytes(&w, util_fmt("f%d", i), p, CKPT__UPLOADER_SMALL, true), CKPT_OK);
    }
    assert_true(holds(w.staging, ".upload"));
    assert_int_equal(stat(journal_in(w.staging), &s), 0);
    assert_int_equal(s.st_size, CKPT__UPLOADER_JOURNAL_MAX);
    const char *copy = copy_of(&w);
    go(&w);
    close_world(&w);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            memset(p, 'a' + i % 26, CKPT__UPLOADER_SMALL);
            is(&w, util_fmt("f%d", i), p);
        }
        if (round == 0) assert_int_equal(go_on(&w, copy, true), CKPT_OK);
    }
    free(p);
}

//-- others ------------------------------------------------------------------------------------------------

typedef struct adder { const world *w; int number; int failed; } adder;

static void *add_many(void *user) {
    adder *a = (adder *)user;
    for (int i = 0; i < 25; i++) {
        char path[600], name[64], text[64];
        snprintf(path, sizeof path, "%s/by%d", a->w->dir, a->number);
        snprintf(name, sizeof name, i % 5 == 0 ? "all" : "by%d-%d", a->number, i);
        snprintf(text, sizeof text, "%d %d", a->number, i);
        FILE *f = fopen(path, "w");
        if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0 || ckpt_upload_file(a->w->u, name, path, true) != CKPT_OK) a->failed++;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    world w;
    pthread_t threads[6];
    adder adders[6];
    open_world(&w);
    go(&w);
    for (int i = 0; i < 6; i++) {
        adders[i].w = &w;
        adders[i].number = i;
        adders[i].failed = 0;
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(adders[i].failed, 0);
    }
    close_world(&w);
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 25; k++) {
            if (k % 5 != 0) is(&w, util_fmt("by%d-%d", i, k), util_fmt("%d %d", i, k));
        }
    }
}

// Two that live leave each other's journals alone.
static void test_two_owners(void **state) {
    (void)state;
    world w;
    open_world(&w);
    upload(&w, "first", "1");
    world v = w;
    v.u = open_in(&w, w.staging);
    ckpt__uploader_pause(v.u, 1);
    upload(&v, "second", "2");
    const char *copy = copy_of(&w);
    go(&v);
    assert_int_equal(ckpt_uploader_close(v.u, 0), CKPT_OK);
    assert_string_equal(util_list(w.bucket), "second\n");
    assert_true(holds(w.staging, ".journal"));
    go(&w);
    close_world(&w);
    is(&w, "first", "1");
    assert_int_equal(go_on(&w, copy, true), CKPT_OK);
    is(&w, "first", "1");
    is(&w, "second", "2");
}

typedef struct told { int count, in_use, damaged; char names[400]; } told;

static void tell(const ckpt_pending *p, void *user) {
    told *t = (told *)user;
    size_t n = strlen(t->names);
    t->count++;
    t->in_use += p->in_use;
    t->damaged += p->damaged;
    assert_non_null(p->record);
    assert_non_null(p->staged_path);
    if (p->name != NULL) snprintf(t->names + n, sizeof t->names - n, "%s %d %s;", p->name, (int)p->size, ckpt__os_path_base(p->file_path));
}

static told pending_in(const char *folder) {
    told t;
    memset(&t, 0, sizeof t);
    assert_int_equal(ckpt_uploader_pending(folder, tell, &t), CKPT_OK);
    return t;
}

static void test_pending(void **state) {
    (void)state;
    world w;
    open_world(&w);
    for (int i = 0; i < 4; i++) upload(&w, util_fmt("f%d", i), "text");
    upload(&w, "f0", "newer");
    told t = pending_in(w.staging);
    assert_int_equal(t.count, 4);
    assert_int_equal(t.in_use, 4);
    assert_string_equal(t.names, "f1 4 file;f2 4 file;f3 4 file;f0 5 file;");
    const char *copy = copy_of(&w);
    t = pending_in(copy);
    assert_int_equal(t.count, 4);
    assert_int_equal(t.in_use, 0);
    go(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    assert_int_equal(pending_in(w.staging).count, 0);
    close_world(&w);
    assert_int_equal(pending_in(copy).count, 4);            // looking changes nothing
    assert_int_equal(go_on(&w, copy, true), CKPT_OK);
    assert_int_equal(pending_in(copy).count, 0);
}

// A journal for another store is left where it is, and told of.
static int warned;
static void on_log(ckpt_log_level level, const char *msg, void *user) {
    (void)level; (void)user;
    if (strstr(msg, "holds 2 unfinished uploads to other stores") != NULL) warned++;
}

static void test_other_store(void **state) {
    (void)state;
    world w;
    ckpt_uploader_desc d;
    ckpt_uploader *u;
    open_world(&w);
    upload(&w, "a", "text");
    upload(&w, "b", "text");
    const char *copy = copy_of(&w);
    memset(&d, 0, sizeof d);
    d.bucket_uri = util_fmt("file://%s/another", w.dir);
    d.upload_staging_folder = copy;
    d.logger.fn = on_log;
    assert_int_equal(ckpt_uploader_open(&u, &d), CKPT_OK);
    assert_int_equal(ckpt_uploader_close(u, 0), CKPT_OK);
    assert_int_equal(warned, 1);
    assert_int_equal(pending_in(copy).count, 2);
    go(&w);
    close_world(&w);
}

//-- crashes -----------------------------------------------------------------------------------------------

static world      *watched;
static const char *copies[400];
static int         copied;

static pthread_t  own_thread;

static void on_call(const char *name, const char *path, int fd) {
    (void)path; (void)fd;
    if (!pthread_equal(pthread_self(), own_thread) || strcmp(name, "close") == 0 || strcmp(name, "pwrite") == 0) return;
    if (copied == UTIL_COUNT(copies)) return;
    copies[copied++] = copy_of(watched);
}

static void watch(world *w) {
    watched = w;
    copied = 0;
    own_thread = pthread_self();
    __atomic_store_n(&fault_watch, on_call, __ATOMIC_SEQ_CST);
}

static void watch_no_more(void) { __atomic_store_n(&fault_watch, (void (*)(const char *, const char *, int))NULL, __ATOMIC_SEQ_CST); }

// A kill before each sync and each removal, from the first file on: what was acknowledged by then arrives.
static void test_kill_anywhere(void **state) {
    (void)state;
    enum { COUNT = 6 };
    world w;
    int acknowledged[400], taken = 0;
    open_world(&w);
    watch(&w);
    for (int i = 0; i < COUNT; i++) {
        int before = copied;
        upload(&w, util_fmt("f%d", i % 4), util_fmt("text %d", i));
        for (int k = before; k < copied; k++) acknowledged[k] = taken;
        taken = i + 1;
    }
    watch_no_more();
    assert_true(copied >= COUNT + 2);
    for (int k = 0; k < copied; k++) {
        assert_int_equal(go_on(&w, copies[k], true), CKPT_OK);
        for (int i = 0; i < acknowledged[k]; i++) {
            const char *name = util_fmt("f%d", i % 4), *path = util_join(w.bucket, name);
            if (!ckpt__os_exists(path)) fail_msg("crash %d: %s is lost", k, name);
            const char *text = util_read(path, NULL), *own = util_fmt("text %d", i), *next = util_fmt("text %d", i + 4);
            // The newer of the name may have come, and does when it was acknowledged.
            if (strcmp(text, next) != 0 && (strcmp(text, own) != 0 || i + 4 < acknowledged[k])) fail_msg("crash %d: %s is '%s'", k, name, text);
        }
        assert_string_equal(util_list(copies[k]), "");
    }
    go(&w);
    close_world(&w);
}

// Recovery itself is cut short, again and again.
static void test_kill_recovery(void **state) {
    (void)state;
    world w, v;
    open_world(&w);
    for (int i = 0; i < 3; i++) upload(&w, util_fmt("f%d", i), util_fmt("text %d", i));
    v = w;
    v.staging = copy_of(&w);
    go(&w);
    close_world(&w);
    util_remove_tree(w.bucket);
    util_mkdir(w.bucket);
    watch(&v);
    ckpt_uploader *u = open_in(&v, v.staging);
    watch_no_more();
    int count = copied;
    assert_true(count >= 6);
    assert_int_equal(ckpt_uploader_close(u, 0), CKPT_OK);
    for (int k = 0; k < count && k < 40; k++) {
        if (journal_in(copies[k]) == NULL) continue;         // from there on it is as ever
        assert_int_equal(go_on(&v, copies[k], true), CKPT_OK);
        for (int i = 0; i < 3; i++) is(&v, util_fmt("f%d", i), util_fmt("text %d", i));
        assert_string_equal(util_list(copies[k]), "");
    }
}

// The end of what was being written is lost, at every sector.
static void test_torn(void **state) {
    (void)state;
    world w;
    char body[9000];
    open_world(&w);
    upload(&w, "a", "first");
    upload(&w, "b", "second");
    memset(body, 'x', sizeof body);
    const char *before = copy_of(&w);
    assert_int_equal(try_bytes(&w, "c", body, sizeof body, true), CKPT_OK);
    const char *after = copy_of(&w);
    size_t n = 0, m = 0;
    char *old = util_slurp(journal_in(before), &n), *now = util_slurp(journal_in(after), &m);
    assert_int_equal(n, m);
    size_t from = CKPT__UPLOADER_BLOCK * 3, to = from + 3 * CKPT__UPLOADER_BLOCK;
    char *torn = (char *)malloc(n);
    const char *base = ckpt__os_path_base(journal_in(after));
    for (size_t at = from; at < to; at += 512) {
        for (int kind = 0; kind < 3; kind++) {              // its beginning is there; its end; all but one sector
            memcpy(torn, kind == 0 ? old : now, n);
            if (kind == 0) memcpy(torn, now, at);
            if (kind == 1) memcpy(torn + from, old + from, at - from);
            if (kind == 2) memcpy(torn + at, old + at, 512);
            const char *copy = util_join(w.dir, util_fmt("torn%d", kind));
            util_remove_tree(copy);
            util_mkdir(copy);
            util_write(util_join(copy, base), torn, n);
            assert_int_equal(go_on(&w, copy, true), CKPT_OK);
            is(&w, "a", "first");
            is(&w, "b", "second");
            size_t size = 0;
            char *c = util_slurp(util_join(w.bucket, "c"), &size);
            if (c != NULL) assert_true(size == sizeof body && memcmp(c, body, size) == 0);
            free(c);
            assert_string_equal(util_list(copy), "");
        }
    }
    for (size_t cut = 0; cut <= n; cut += cut < 30 ? 6 : 130000) {                 // a file that was never written whole
        const char *copy = util_join(w.dir, "cut");
        util_remove_tree(copy);
        util_mkdir(copy);
        util_write(util_join(copy, base), now, cut);
        assert_int_equal(go_on(&w, copy, true), CKPT_OK);
        if (cut > 3 * CKPT__UPLOADER_BLOCK) is(&w, "b", "second");
    }
    free(old);
    free(now);
    free(torn);
    go(&w);
    close_world(&w);
}

//-- journals that nobody wrote ------------------------------------------------------------------------------

// An entry that is right in all but what it says.
static void forge(const world *w, const char *from, const char *name, size_t text_size, size_t body_size) {
    ckpt__uploader_place *p = w->u->places;
    ckpt__uploader_item *it = ckpt__uploader_item_new(w->u, CKPT__UPLOADER_PUT, name);
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    it->number = 0x77;
    it->added = 1;
    it->overwrite = true;
    it->size = 4;
    it->from = ckpt__mem_copy_text(&w->u->allocator, from);
    snprintf(it->mark, sizeof it->mark, "0123456789abcdef0123456789abcdef");
    ckpt__buf_fill(&b, 0, CKPT__UPLOADER_HEAD);
    ckpt__uploader_print(&b, it, w->u->store->uri);
    size_t text = b.len - CKPT__UPLOADER_HEAD;
    ckpt__buf_add(&b, "evil", 4);
    assert_int_equal(ckpt__uploader_add_entry(w->u, it, p, &b, text), CKPT_OK);
    if (text_size != 0) {                                   // lengths that lead out of it, with the right sum
        char *at = b.data;
        ckpt__buf lengths;
        ckpt__buf_init(&lengths, NULL);
        ckpt__buf_le(&lengths, text_size, 4);
        ckpt__buf_le(&lengths, body_size, 4);
        memcpy(at + 28, lengths.data, 8);
        uint32_t crc = ckpt__digest_crc32(ckpt__digest_crc32(0, at + CKPT__UPLOADER_HEAD, text + 4), at, 36);
        lengths.len = 0;
        ckpt__buf_le(&lengths, crc, 4);
        memcpy(at + 36, lengths.data, 4);
        assert_int_equal(pwrite(p->journal.fd, at, CKPT__UPLOADER_HEAD, (off_t)it->at), CKPT__UPLOADER_HEAD);
        ckpt__buf_free(&lengths);
    }
    ckpt__uploader_item_free(w->u, it);
    ckpt__buf_free(&b);
}

static void test_hostile(void **state) {
    (void)state;
    world w;
    open_world(&w);
    upload(&w, "good", "text");
    forge(&w, "x", "../evil", 0, 0);
    const char *copy = copy_of(&w);
    assert_int_equal(go_on(&w, copy, true), CKPT_CORRUPT);
    is(&w, "good", "text");
    assert_string_equal(util_list(w.bucket), "good\n");
    assert_true(holds(copy, ".upload.damaged") && !holds(w.dir, "evil"));
    assert_int_equal(pending_in(copy).damaged, 1);
    static const size_t sizes[][2] = { { 0xFFFFFFFF, 0xFFFFFFFF }, { 0xFFFFFFFF, 4 }, { 100, 0xFFFFFFFF }, { 60000, 60000 }, { 65536, 65536 } };
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        world v;
        open_world(&v);
        upload(&v, "good", "text");
        forge(&v, "x", "evil", sizes[i][0], sizes[i][1]);
        copy = copy_of(&v);
        assert_int_equal(go_on(&v, copy, true), CKPT_OK);
        assert_string_equal(util_list(v.bucket), "good\n");
        assert_string_equal(util_list(copy), "");
        assert_int_equal(ckpt_uploader_close(v.u, 0.01), CKPT_TIMEOUT);
    }
    assert_int_equal(ckpt_uploader_close(w.u, 0.01), CKPT_TIMEOUT);
}

// Any bit may be wrong: what is left whole arrives, and what arrives is right.
static void test_damaged(void **state) {
    (void)state;
    world w;
    open_world(&w);
    upload(&w, "a", "first");
    upload(&w, "b", "second");
    const char *copy = copy_of(&w), *from = journal_in(copy), *base = ckpt__os_path_base(from);
    size_t n = 0;
    char *bytes = util_slurp(from, &n);
    const char *to = util_join(w.dir, "damaged");
    for (size_t at = 0; at < 2 * CKPT__UPLOADER_BLOCK; at += at % CKPT__UPLOADER_BLOCK < 64 ? 3 : at % CKPT__UPLOADER_BLOCK < 600 ? 37 : 800) {
        util_remove_tree(to);
        util_mkdir(to);
        bytes[at] = (char)(bytes[at] ^ 0x10);
        util_write(util_join(to, base), bytes, n);
        bytes[at] = (char)(bytes[at] ^ 0x10);
        told t = pending_in(to);
        ckpt_err e = go_on(&w, to, true);
        if (at < 24) {
            assert_int_equal(t.damaged, 1);
            assert_int_equal(e, CKPT_CORRUPT);
            assert_true(holds(to, ".journal.damaged"));
            assert_int_equal(pending_in(to).damaged, 1);
            continue;
        }
        assert_int_equal(e, CKPT_OK);
        is(&w, "b", "second");
        if (ckpt__os_exists(util_join(w.bucket, "a"))) is(&w, "a", "first");
    }
    util_remove_tree(to);
    util_mkdir(to);
    ckpt__buf later;
    ckpt__buf_init(&later, NULL);
    ckpt__buf_add(&later, bytes, 16);
    ckpt__buf_le(&later, 2, 4);
    ckpt__buf_le(&later, ckpt__digest_crc32(0, later.data, 20), 4);
    memcpy(bytes, later.data, 24);
    util_write(util_join(to, base), bytes, n);
    assert_int_equal(go_on(&w, to, true), CKPT_OK);         // of a later version: it stays as it is
    assert_true(holds(to, ".journal"));
    ckpt__buf_free(&later);
    free(bytes);
    go(&w);
    close_world(&w);
}

//-- system calls that fail ----------------------------------------------------------------------------------

enum { FULL_DISK = -2 };

// Whichever call fails: what was acknowledged arrives, here and after a crash; what was not leaves nothing.
static void test_faults(void **state) {
    (void)state;
    static const int faults[] = { EINTR, FAULT_SHORT, ENOSPC, EIO, FULL_DISK };
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int nth = 1, unhit = 0; unhit < 2; nth++) {
            world w;
            char body[5000];
            open_world(&w);
            memset(body, 'x', sizeof body - 1);
            body[sizeof body - 1] = 0;
            const char *path = util_join(w.dir, "file");
            util_write(path, body, sizeof body - 1);
            if (nth % 2 == 0) {                             // the journal is there already
                assert_int_equal(ckpt_upload_file(w.u, "before", path, true), CKPT_OK);
            }
            if (faults[f] == FULL_DISK) fault_arm_full_disk((nth + 1) / 2);
            else fault_arm(faults[f], (nth + 1) / 2);
            ckpt_err e = ckpt_upload_file(w.u, "n", path, true);
            bool hit = fault_disarm();
            if (e != CKPT_OK && strlen(ckpt_last_error()) < 10) fail_msg("no sentence");
            if ((faults[f] == EINTR || faults[f] == FAULT_SHORT) && e != CKPT_OK) fail_msg("%s", ckpt_last_error());
            const char *copy = copy_of(&w);
            if (pending_in(w.staging).count != (nth % 2 == 0) + (e == CKPT_OK)) fail_msg("%d of fault %d: %s", nth, faults[f], util_list(w.staging));
            go(&w);
            assert_int_equal(ckpt_uploader_close(w.u, 0), CKPT_OK);
            if (nth % 2 == 0) is(&w, "before", body);
            if (e == CKPT_OK) is(&w, "n", body);
            else assert_false(ckpt__os_exists(util_join(w.bucket, "n")));
            assert_int_equal(go_on(&w, copy, true), CKPT_OK);
            if (nth % 2 == 0) is(&w, "before", body);
            if (e == CKPT_OK) is(&w, "n", body);
            util_remove_tree(w.dir);
            unhit = hit ? 0 : unhit + 1;
        }
    }
}

// No room to grow: files go apart, and into the journal again when it is empty.
static void test_no_room(void **state) {
    (void)state;
    world w;
    struct stat s;
    char *p = (char *)calloc(1, CKPT__UPLOADER_SMALL + 1);
    memset(p, 'x', CKPT__UPLOADER_SMALL);
    open_world(&w);
    for (int i = 0; i < 15; i++) assert_int_equal(try_bytes(&w, util_fmt("f%d", i), p, CKPT__UPLOADER_SMALL, true), CKPT_OK);
    assert_false(holds(w.staging, ".upload"));
    fault_arm_call("pwrite", ENOSPC, 2);
    assert_int_equal(try_bytes(&w, "more", p, CKPT__UPLOADER_SMALL, true), CKPT_OK);
    assert_true(fault_disarm());
    assert_true(holds(w.staging, ".upload"));
    assert_int_equal(stat(journal_in(w.staging), &s), 0);
    assert_int_equal(s.st_size, CKPT__UPLOADER_JOURNAL_FIRST);
    go(&w);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_OK);
    ckpt__uploader_pause(w.u, 1);
    assert_int_equal(try_bytes(&w, "again", p, CKPT__UPLOADER_SMALL, true), CKPT_OK);
    assert_false(holds(w.staging, ".upload"));
    go(&w);
    close_world(&w);
    for (int i = 0; i < 15; i++) is(&w, util_fmt("f%d", i), p);
    is(&w, "more", p);
    is(&w, "again", p);
    free(p);
}

int main(void) {
    fault_single = 0;                   // the first file begins the journal
    fault_journal_most = 2 << 20;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrives),
        cmocka_unit_test(test_newest_last),
        cmocka_unit_test(test_create_only),
        cmocka_unit_test(test_refused_at_once),
        cmocka_unit_test(test_fails_then_goes),
        cmocka_unit_test(test_closed_early),
        cmocka_unit_test(test_begins_again),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_two_owners),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_other_store),
        cmocka_unit_test(test_kill_anywhere),
        cmocka_unit_test(test_kill_recovery),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_no_room)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
