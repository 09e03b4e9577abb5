/* test_uploader_tickets.c: a file that is sent before it is there, beside others of its name: until it is committed it takes nothing's
   place, and neither does what has only to be settled. A process is killed between what a saver knows of an upload and what its uploader
   does; the next one publishes the newest checkpoint, and never goes back. run.sh: tsan */

#define CKPT_NO_REMOTE
#define CKPT__SEND_MIB 1024                 // so that a small checkpoint leaves in parts
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../counting.h"

enum { BIG = 100000, FLOATS = 40000 };

//-- a store in a folder, which refuses, or keeps one name waiting -----------------------------------------

static const ckpt__store_table *inner;
static ckpt__store_table        table;
static int                      refuses, holds;     // flags: any thread sets them
static void                   (*logs)(ckpt_log_level level, const char *msg, void *user);
static const char              *held;               // uploads to names with this in them wait while `holds`

static int get(int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }

static void set(int *flag, int to) { __atomic_store_n(flag, to, __ATOMIC_SEQ_CST); }

static ckpt_err t_put(ckpt_store *s, const ckpt__store_put *p) {
    if (get(&refuses)) return ckpt__error_set(CKPT_AUTH, "the test says so");
    while (held != NULL && strstr(p->name, held) != NULL && get(&holds)) usleep(1000);
    return inner->put(s, p);
}

static ckpt_err t_begin(ckpt_store *s, const ckpt__store_multi *m, ckpt__buf *id) {
    if (get(&refuses)) return ckpt__error_set(CKPT_AUTH, "the test says so");
    while (held != NULL && strstr(m->name, held) != NULL && get(&holds)) usleep(1000);
    return inner->begin(s, m, id);
}

static void watch(void (*hears)(const char *name, const char *path, int fd)) {
    __atomic_store_n(&fault_watch, hears, __ATOMIC_SEQ_CST);
}

typedef struct world {
    const char   *dir, *far, *a, *b, *staging;
    counting      heap;
    ckpt_store    *store;
    ckpt_uploader *u;
} world;

static void new_world(world *w) {
    util_clear_env();
    memset(w, 0, sizeof *w);
    w->dir = util_temp_dir();
    w->far = util_join(w->dir, "far");
    w->a = util_join(w->dir, "A");
    w->b = util_join(w->dir, "B");
    util_mkdir(w->far);
    util_mkdir(w->a);
    util_mkdir(w->b);
    refuses = holds = 0;
    held = NULL;
}

static ckpt_uploader *open_uploader(world *w) {
    ckpt_uploader_desc d;
    ckpt_uploader *u = NULL;
    ckpt_store *store = NULL;
    if (ckpt_store_open(&store, util_fmt("file://%s", w->far), NULL) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    if (inner == NULL) {
        inner = store->table;
        table = *inner;
        table.put = t_put;
        table.begin = t_begin;
    }
    store->table = &table;
    w->store = store;
    memset(&d, 0, sizeof d);
    d.store = store;
    d.upload_staging_folder = w->staging;
    d.num_concurrent_uploads = 2;
    d.num_attempts = 1;
    d.logger.fn = logs;
    d.allocator.fn = counting_fn;
    d.allocator.user = &w->heap;
    if (ckpt_uploader_open(&u, &d) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    return u;
}

static void ok(ckpt_err e) {
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

static void close_with(world *w, ckpt_err e) {
    assert_int_equal(ckpt_uploader_close(w->u, 0), e);
    ckpt_store_close(w->store);
    assert_int_equal(w->heap.live, 0);
}

static void close_world(world *w) {
    close_with(w, CKPT_OK);
}

// A file of one letter.
static const char *file_of(const char *dir, const char *name, char letter) {
    static char bytes[BIG];
    const char *path = util_join(dir, name);
    memset(bytes, letter, BIG);
    util_write(path, bytes, BIG);
    return path;
}

static void is(const world *w, const char *name, char letter) {
    size_t n = 0;
    const char *path = util_join(w->far, name);
    if (!util_exists(path)) fail_msg("%s did not arrive", name);
    const char *text = util_read(path, &n);
    assert_int_equal(n, BIG);
    for (size_t i = 0; i < n; i++) assert_int_equal(text[i], letter);
}

static bool wait_for(const char *path) {
    for (int i = 0; i < 60000 && !util_exists(path); i++) usleep(1000);
    return util_exists(path);
}

// Runs `f` in a process of its own, which ends at once in it, without closing anything.
static void killed(void (*f)(world *w), world *w) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        f(w);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

//-- tickets ------------------------------------------------------------------------------------------------

static ckpt_err read_e(void *dst, size_t n, uint64_t at, void *user) {
    (void)at;
    (void)user;
    memset(dst, 'e', n);
    return CKPT_OK;
}

// "n", as a saver of folder B would send it early.
static ckpt__upload ticket_for(const world *w) {
    ckpt__upload up;
    memset(&up, 0, sizeof up);
    up.name = "n";
    up.path = util_join(w->b, "n");
    up.overwrite = true;
    up.durable = true;
    return up;
}

static ckpt__uploader_item *begin(ckpt_uploader *u, const ckpt__upload *up) {
    ckpt__uploader_item *ticket = NULL;
    ckpt__body body;
    memset(&body, 0, sizeof body);
    body.read = read_e;
    body.fd = -1;
    body.size = BIG;
    ok(ckpt__uploader_begin(u, up, &body, &ticket));
    return ticket;
}

// Process 1: A's file fails, and is kept; a save from B, with an uploader of its own, is killed half-way.
static void fails_and_dies(world *w) {
    ckpt__upload up = ticket_for(w);
    w->u = open_uploader(w);
    set(&refuses, 1);
    if (ckpt_upload_file(w->u, "n", util_join(w->a, "n"), true) != CKPT_OK || ckpt_uploader_wait(w->u, 0) != CKPT_AUTH) return;
    set(&refuses, 0);
    (void)begin(open_uploader(w), &up);
    usleep(100000);
    _exit(42);
}

// What a dead process had begun to send has only to be settled: a file that failed before is kept, and goes with the next process.
static void test_settling_replaces_nothing(void **state) {
    (void)state;
    world w;
    new_world(&w);
    (void)file_of(w.a, "n", 'a');
    util_write_text(util_join(w.b, "other"), "x");
    killed(fails_and_dies, &w);
    w.u = open_uploader(&w);
    set(&refuses, 1);
    ok(ckpt__uploader_resume(w.u, w.a));
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    set(&refuses, 0);
    (void)unlink(util_join(w.a, "n"));                                  // what was taken is the uploader's
    ok(ckpt_upload_file(w.u, "other", util_join(w.b, "other"), true));  // opens what was left in B
    close_with(&w, CKPT_AUTH);
    assert_true(util_exists(util_join(w.far, "other")));
    w.u = open_uploader(&w);
    ok(ckpt__uploader_resume(w.u, w.a));
    ok(ckpt__uploader_resume(w.u, w.b));
    close_world(&w);
    is(&w, "n", 'a');
}

static void takes_and_dies(world *w) {
    w->u = open_uploader(w);
    ckpt__uploader_pause(w->u, 1);
    if (ckpt_upload_file(w->u, "n", util_join(w->a, "n"), true) == CKPT_OK) _exit(42);
}

// A dead process's file is met while a ticket of its name runs: the save fails, so the file is the newest.
static void test_adopted_beside_a_ticket(void **state) {
    (void)state;
    world w;
    new_world(&w);
    (void)file_of(w.a, "n", 'a');
    util_write_text(util_join(w.a, "m"), "x");
    killed(takes_and_dies, &w);
    (void)unlink(util_join(w.a, "n"));
    w.u = open_uploader(&w);
    ckpt__upload up = ticket_for(&w);
    ckpt__uploader_item *ticket = begin(w.u, &up);
    usleep(20000);
    ok(ckpt_upload_file(w.u, "m", util_join(w.a, "m"), true));          // opens what was left in A
    usleep(20000);
    ckpt__uploader_abandon(w.u, ticket);
    close_world(&w);
    is(&w, "n", 'a');
}

static int                  armed;
static world               *watched;
static ckpt__uploader_item *other_ticket;

// Another thread: a saver begins to send a checkpoint of that name.
static void begin_meanwhile(const char *name, const char *path, int fd) {
    (void)path;
    (void)fd;
    if (strcmp(name, "fsync") != 0 || __atomic_exchange_n(&armed, 0, __ATOMIC_SEQ_CST) == 0) return;
    ckpt__upload up = ticket_for(watched);
    other_ticket = begin(watched->u, &up);
}

// Another thread: a file of that name is taken.
static void take_meanwhile(const char *name, const char *path, int fd) {
    (void)path;
    (void)fd;
    if (strcmp(name, "fsync") != 0 || __atomic_exchange_n(&armed, 0, __ATOMIC_SEQ_CST) == 0) return;
    ok(ckpt_upload_file(watched->u, "n", util_join(watched->a, "n"), true));
}

static void open_watched(world *w, void (*hears)(const char *name, const char *path, int fd)) {
    new_world(w);
    w->staging = util_join(w->dir, "staging");
    (void)file_of(w->a, "n", 'a');
    w->u = open_uploader(w);
    watched = w;
    other_ticket = NULL;
    set(&armed, 1);
    watch(hears);
}

static void end_watched(world *w) {
    watch(NULL);
    close_world(w);
    assert_int_equal(armed, 0);
    assert_string_equal(util_list(w->staging), "");
}

// A ticket is begun while a file of its name is being taken, and given up, or committed.
static void test_ticket_while_taken(void **state) {
    (void)state;
    for (int commits = 0; commits < 2; commits++) {
        for (int paused = 0; paused < 2; paused++) {
            world w;
            open_watched(&w, begin_meanwhile);
            if (paused) ckpt__uploader_pause(w.u, 1);
            ok(ckpt_upload_file(w.u, "n", util_join(w.a, "n"), true));
            assert_non_null(other_ticket);
            usleep(20000);
            ckpt__upload up = ticket_for(&w);
            if (commits) (void)file_of(w.b, "n", 'e');
            if (commits) ok(ckpt__uploader_commit(w.u, other_ticket, &up));
            else ckpt__uploader_abandon(w.u, other_ticket);
            if (paused) ckpt__uploader_pause(w.u, -1);
            end_watched(&w);
            is(&w, "n", commits ? 'e' : 'a');
        }
    }
}

// A file is taken while a ticket of its name begins.
static void test_taken_while_begun(void **state) {
    (void)state;
    for (int commits = 0; commits < 2; commits++) {
        for (int paused = 0; paused < 2; paused++) {
            world w;
            open_watched(&w, take_meanwhile);
            if (paused) ckpt__uploader_pause(w.u, 1);
            ckpt__upload up = ticket_for(&w);
            ckpt__uploader_item *ticket = begin(w.u, &up);
            usleep(20000);
            if (commits) (void)file_of(w.b, "n", 'e');
            if (commits) ok(ckpt__uploader_commit(w.u, ticket, &up));
            else ckpt__uploader_abandon(w.u, ticket);
            if (paused) ckpt__uploader_pause(w.u, -1);
            end_watched(&w);
            assert_true(util_exists(util_join(w.far, "n")));
            if (!commits) is(&w, "n", 'a');
        }
    }
}

static int gone, unordered;

// An older record is gone, and its folder was not synced, when the newer one's goes.
static void hear_removals(const char *name, const char *path, int fd) {
    struct stat s, folder;
    if (strcmp(name, "fsync") == 0 && fstat(fd, &s) == 0 && stat(watched->staging, &folder) == 0 && s.st_ino == folder.st_ino) set(&gone, 0);
    if (strcmp(name, "unlink") != 0 || !ckpt__txt_ends(path, ".upload")) return;
    if (get(&gone)) set(&unordered, 1);
    set(&gone, 1);
}

// The older file of a name is gone on the disk before the newer one's record goes: a power failure does not bring it back.
static void test_removals_in_order(void **state) {
    (void)state;
    world w;
    open_watched(&w, hear_removals);
    set(&armed, 0);
    gone = unordered = 0;
    ckpt__uploader_pause(w.u, 1);
    ok(ckpt_upload_file(w.u, "n", util_join(w.a, "n"), true));
    ok(ckpt_upload_file(w.u, "n", file_of(w.b, "n", 'b'), true));
    assert_int_equal(get(&gone), 1);
    ckpt__uploader_pause(w.u, -1);
    end_watched(&w);
    is(&w, "n", 'b');
    assert_int_equal(unordered, 0);
}

// Also when it was done before the newer one came, from another folder, whose record is synced in that folder alone.
static void test_removals_elsewhere(void **state) {
    (void)state;
    for (int early = 0; early < 2; early++) {
        world w;
        ckpt__uploader_item *ticket = NULL;
        new_world(&w);
        w.u = open_uploader(&w);
        const char *hidden = util_join(w.a, CKPT__UPLOADER_FOLDER);
        ok(ckpt_upload_file(w.u, "n", file_of(w.a, "n", 'a'), true));
        ok(ckpt_uploader_wait(w.u, 0));
        gone = 1;
        watched = &w;
        w.staging = hidden;
        ckpt__uploader_pause(w.u, 1);       // "b" is not done, nor its record removed, while this listens
        watch(hear_removals);
        ckpt__upload up = ticket_for(&w);
        if (early) ticket = begin(w.u, &up);
        else ok(ckpt_upload_file(w.u, "n", file_of(w.b, "n", 'b'), true));
        watch(NULL);
        ckpt__uploader_pause(w.u, -1);
        assert_int_equal(get(&gone), 0);
        if (early) ckpt__uploader_abandon(w.u, ticket);
        w.staging = NULL;
        close_world(&w);
    }
}

static int dones;

static void note_done(const char *name, ckpt_err e, bool published, void *user) {
    (void)name;
    (void)e;
    (void)published;
    (void)user;
    __atomic_add_fetch(&dones, 1, __ATOMIC_SEQ_CST);
}

// A newer file of a ticket's name fails for good before the ticket is committed: who waits for the ticket hears of it once.
static void test_told_once(void **state) {
    (void)state;
    world w;
    new_world(&w);
    w.staging = util_join(w.dir, "staging");
    dones = 0;
    w.u = open_uploader(&w);
    set(&refuses, 1);
    ckpt__upload up = ticket_for(&w);
    (void)file_of(w.b, "n", 'e');
    up.done = note_done;
    ckpt__uploader_pause(w.u, 1);
    ckpt__uploader_item *ticket = begin(w.u, &up);
    ok(ckpt_upload_file(w.u, "n", file_of(w.a, "n", 'a'), true));
    ckpt__uploader_pause(w.u, -1);
    assert_int_equal(ckpt_uploader_wait(w.u, 0), CKPT_AUTH);
    ok(ckpt__uploader_commit(w.u, ticket, &up));
    (void)!ckpt_uploader_wait(w.u, 0);
    close_with(&w, CKPT_AUTH);
    assert_int_equal(dones, 1);
    set(&refuses, 0);
    w.u = open_uploader(&w);
    close_world(&w);
    is(&w, "n", 'a');
}

static int waited;

static void *wait_main(void *user) {
    world *w = (world *)user;
    ckpt_err e = ckpt_uploader_wait(w->u, 0);
    set(&waited, e == CKPT_OK ? 1 : 2);
    return NULL;
}

// Who waits for the last file hears when it is given up before a worker has begun with it.
static void test_wait_ends(void **state) {
    (void)state;
    world w;
    pthread_t thread;
    new_world(&w);
    w.staging = util_join(w.dir, "staging");
    waited = 0;
    w.u = open_uploader(&w);
    ckpt__upload up = ticket_for(&w);
    ckpt__uploader_pause(w.u, 1);
    ckpt__uploader_item *ticket = begin(w.u, &up);
    assert_int_equal(pthread_create(&thread, NULL, wait_main, &w), 0);
    usleep(50000);
    ckpt__uploader_abandon(w.u, ticket);
    for (int i = 0; i < 60000 && get(&waited) == 0; i++) usleep(1000);
    assert_int_equal(get(&waited), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ckpt__uploader_pause(w.u, -1);
    close_world(&w);
    assert_string_equal(util_list(w.far), "");
}

//-- the owner's lock ---------------------------------------------------------------------------------------

// Is there a record lock on it, which other machines see as well?
static bool is_locked(const char *path) {
    struct stat s;
    char line[512];
    bool found = false;
    assert_int_equal(stat(path, &s), 0);
    const char *inode = util_fmt(":%lu ", (unsigned long)s.st_ino);
    FILE *f = fopen("/proc/locks", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strstr(line, " POSIX ") != NULL && strstr(line, inode) != NULL) found = true;
    if (f != NULL) fclose(f);
    return found;
}

// Opening a staging folder looks at the locks in it, but not at one's own: closing a file ends the process's record locks on it.
static void test_lock_is_kept(void **state) {
    (void)state;
    world w;
    struct flock lock;
    new_world(&w);
    const char *probe = util_join(w.dir, "probe");
    util_write_text(probe, "x");
    int fd = open(probe, O_RDWR);
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
    bool shown = is_locked(probe);
    close(fd);
    if (!shown) {
        print_message("SKIP: no /proc/locks that shows a lock\n");
        skip();
    }
    w.staging = util_join(w.dir, "staging");
    (void)file_of(w.a, "n", 'a');
    for (int again = 0; again < 2; again++) {       // the second opens a folder that is there, with what the first left
        int count = 0;
        w.u = open_uploader(&w);
        char *names = util_fmt("%s", util_list(w.staging)), *save = NULL;
        for (char *n = strtok_r(names, "\n", &save); n != NULL; n = strtok_r(NULL, "\n", &save)) {
            if (!ckpt__txt_starts(n, "u-") || !ckpt__txt_ends(n, ".lock")) continue;
            assert_true(is_locked(util_join(w.staging, n)));
            count++;
        }
        assert_int_equal(count, 1 + again);
        close_world(&w);
        killed(takes_and_dies, &w);
    }
}

static char warned[4096];

static void note_warning(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    if (level == CKPT_LOG_WARN) (void)snprintf(warned, sizeof warned, "%s", msg);
}

static void takes_m_and_dies(world *w) {
    w->u = open_uploader(w);
    ckpt__uploader_pause(w->u, 1);
    if (ckpt_upload_file(w->u, "m", util_join(w->b, "m"), true) == CKPT_OK) _exit(42);
}

// A dead owner's lock, or record, cannot be read: what the others left goes, and what it left stays until it can be.
static void test_unreadable_owner(void **state) {
    (void)state;
    static const char *const endings[] = { ".lock", ".upload" };
    for (int i = 0; i < UTIL_COUNT(endings); i++) {
        world w;
        new_world(&w);
        w.staging = util_join(w.dir, "staging");
        (void)file_of(w.a, "n", 'a');
        (void)file_of(w.b, "m", 'b');
        killed(takes_and_dies, &w);
        const char *bad = NULL, *aside = util_join(w.dir, "aside");
        char *names = util_fmt("%s", util_list(w.staging)), *save = NULL;
        for (char *n = strtok_r(names, "\n", &save); n != NULL; n = strtok_r(NULL, "\n", &save)) {
            if (ckpt__txt_starts(n, "u-") && ckpt__txt_ends(n, endings[i])) bad = util_join(w.staging, n);
        }
        assert_non_null(bad);
        assert_int_equal(rename(bad, aside), 0);
        util_mkdir(bad);
        killed(takes_m_and_dies, &w);
        logs = note_warning;
        warned[0] = 0;
        w.u = open_uploader(&w);
        logs = NULL;
        close_world(&w);
        is(&w, "m", 'b');
        assert_false(util_exists(util_join(w.far, "n")));
        assert_non_null(strstr(warned, "for a later run"));
        assert_int_equal(rmdir(bad), 0);
        if (i == 1) assert_int_equal(rename(aside, bad), 0);
        w.u = open_uploader(&w);
        close_world(&w);
        is(&w, "n", 'a');
        assert_string_equal(util_list(w.staging), "");
    }
}

//-- savers -------------------------------------------------------------------------------------------------

static float values[FLOATS];

typedef struct run { ckpt_state st; ckpt_saver *s; } run;

static ckpt_err save(run *r, int64_t epoch, int64_t batch) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.epoch = epoch;
    t.batch = batch;
    for (int i = 0; i < FLOATS; i++) values[i] = (float)(batch + i % 7);
    ckpt_err e = ckpt_saver_save(r->s, &t);
    return e == CKPT_OK ? ckpt_saver_fence(r->s) : e;
}

static ckpt_err open_run(run *r, ckpt_saver_desc *d) {
    memset(&r->st, 0, sizeof r->st);
    ckpt_bind_f32(&r->st, "state/model/w", values, FLOATS);
    d->state = &r->st;
    d->run_name = "r";
    d->latest_filename = "latest.pt";
    d->save_interval = "0ba";
    return ckpt_saver_open(&r->s, d);
}

static void close_run(run *r) {
    ok(ckpt_saver_close(r->s, 0));
    ckpt_state_free(&r->st);
}

// What a resumed state must be.
static void resumes(run *r, int64_t batch) {
    ckpt_timestamp t;
    memset(values, 0, sizeof values);
    ok(ckpt_saver_resume(r->s, &t));
    assert_int_equal(t.batch, batch);
    for (int i = 0; i < FLOATS; i++) assert_true(values[i] == (float)(batch + i % 7));
}

static ckpt_err open_far_run(const world *w, run *r, int keep) {
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    d.folder = util_fmt("file://%s/run", w->far);
    d.filename = "ba{batch}.pt";
    d.snapshot = CKPT_SNAPSHOT_COPY;
    d.num_remote_to_keep = keep;
    return open_run(r, &d);
}

static const char *latest;          // in the store
static int         lost, slow, kept;
static pthread_t   main_thread;

// Does the store's latest lead to a file?
static bool leads(void) {
    size_t n = 0, m = 0;
    char path[4200];
    char *text = util_slurp(latest, &n), *again = NULL;
    if (text == NULL) return false;
    (void)snprintf(path, sizeof path, "/%.*s", (int)n, text);
    bool there = access(path, F_OK) == 0;
    if (!there) again = util_slurp(latest, &m);         // it may have moved on meanwhile
    if (again != NULL && (n != m || memcmp(text, again, n) != 0)) there = true;
    free(text);
    free(again);
    return there;
}

static void die_at_link(const char *name, const char *path, int fd) {
    (void)path;
    (void)fd;
    if (strcmp(name, "linkat") == 0) _exit(42);
}

static void look_at_latest(const char *name, const char *path, int fd) {
    (void)path;
    (void)fd;
    if (!leads()) set(&lost, 1);
    if (slow && strcmp(name, "rmdir") == 0 && !pthread_equal(pthread_self(), main_thread)) usleep(300000);
}

// The second checkpoint is in the ledger and half sent; the file was about to be staged.
static void die_before_commit(world *w) {
    run r;
    if (chdir(w->a) != 0 || open_far_run(w, &r, kept) != CKPT_OK) return;
    if (save(&r, 0, 1) != CKPT_OK || ckpt_saver_wait(r.s, 0) != CKPT_OK) return;
    watch(die_at_link);
    if (save(&r, 0, 2) == CKPT_OK) (void)!ckpt_saver_wait(r.s, 0);
}

// Killed between the ledger's line and the commit of an upload that had begun: the next process uploads the checkpoint, and the store's
// latest leads to one all along, though its uploader is slow with what has to be settled.
static void test_killed_before_commit(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        world w;
        run r;
        new_world(&w);
        util_mkdir(util_join(w.far, "run"));
        kept = i % 2 == 0 ? 1 : CKPT_KEEP_ALL;
        slow = i / 2 % 2;
        lost = 0;
        main_thread = pthread_self();
        latest = util_join(w.far, "run/latest.pt.symlink");
        killed(die_before_commit, &w);
        assert_true(leads());
        assert_false(util_exists(util_join(w.far, "run/ba2.pt")));
        assert_int_equal(chdir(w.a), 0);
        watch(look_at_latest);
        ok(open_far_run(&w, &r, kept));
        if (i / 4 == 0) resumes(&r, 2);
        ok(ckpt_saver_wait(r.s, 0));
        assert_true(util_exists(util_join(w.far, "run/ba2.pt")));
        assert_true(leads());
        assert_non_null(strstr(util_read(latest, NULL), "ba2.pt"));
        if (i / 4 == 1) resumes(&r, 2);
        ok(save(&r, 0, 3));
        close_run(&r);
        watch(NULL);
        assert_int_equal(lost, 0);
        assert_true(leads());
        assert_string_equal(util_list(util_join(w.far, "run")), kept == 1 ? "ba3.pt\nlatest.pt.symlink\n"
                            : "ba1.pt\nba2.pt\nba3.pt\nlatest.pt.symlink\n");
        assert_int_equal(chdir("/"), 0);
    }
}

// With an uploader of the caller's, and a folder of its own for each epoch.
static ckpt_err open_tree_run(world *w, run *r) {
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    w->u = open_uploader(w);
    d.folder = util_join(w->dir, "run");
    d.filename = "ep{epoch}/ba{batch}.pt";
    d.num_checkpoints_to_keep = 1;
    d.uploaders = &w->u;
    d.uploaders_count = 1;
    d.remote_file_name = "ep{epoch}/ba{batch}.pt";
    d.latest_remote_file_name = "latest.pt";
    return open_run(r, &d);
}

// The second is there before the first: latest does not go back when that has come too.
static void test_tree_in_order(void **state) {
    (void)state;
    world w;
    run r;
    new_world(&w);
    latest = util_join(w.far, "latest.pt.symlink");
    held = "ba1.pt";
    set(&holds, 1);
    ok(open_tree_run(&w, &r));
    ok(save(&r, 1, 1));
    ok(save(&r, 2, 2));
    bool there = wait_for(util_join(w.far, "ep2/ba2.pt"));
    set(&holds, 0);
    close_run(&r);
    close_world(&w);
    assert_true(there);
    assert_string_equal(util_read(latest, NULL), "ep2/ba2.pt");
}

static void die_with_a_tree(world *w) {
    run r;
    if (open_tree_run(w, &r) != CKPT_OK) return;
    ckpt__uploader_pause(w->u, 1);
    if (save(&r, 1, 1) == CKPT_OK && save(&r, 2, 2) == CKPT_OK && save(&r, 2, 3) == CKPT_OK) _exit(42);
}

// What was staged is found, whatever folder its checkpoint was in.
static void test_tree_killed(void **state) {
    (void)state;
    world w;
    run r;
    new_world(&w);
    killed(die_with_a_tree, &w);
    ok(open_tree_run(&w, &r));
    resumes(&r, 3);
    ok(ckpt_saver_wait(r.s, 0));
    close_run(&r);
    close_world(&w);
    assert_string_equal(util_read(util_join(w.far, "latest.pt.symlink"), NULL), "ep2/ba3.pt");
    assert_true(util_exists(util_join(w.far, "ep1/ba1.pt")));
    assert_true(util_exists(util_join(w.far, "ep2/ba2.pt")));
    assert_true(util_exists(util_join(w.far, "ep2/ba3.pt")));
    const char *staging = util_join(w.dir, "run/" CKPT__UPLOADER_FOLDER);
    if (util_exists(staging)) assert_null(strstr(util_list(staging), "u-"));
    assert_false(util_exists(util_join(w.dir, "run/ep1/" CKPT__UPLOADER_FOLDER)));
}

int main(void) {
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    fault_backoff = 0.001;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_before_commit),
        cmocka_unit_test(test_tree_in_order),
        cmocka_unit_test(test_tree_killed),
        cmocka_unit_test(test_settling_replaces_nothing),
        cmocka_unit_test(test_adopted_beside_a_ticket),
        cmocka_unit_test(test_ticket_while_taken),
        cmocka_unit_test(test_taken_while_begun),
        cmocka_unit_test(test_told_once),
        cmocka_unit_test(test_wait_ends),
        cmocka_unit_test(test_lock_is_kept),
        cmocka_unit_test(test_unreadable_owner),
        cmocka_unit_test(test_removals_in_order), cmocka_unit_test(test_removals_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
