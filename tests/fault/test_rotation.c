/* test_rotation.c: who waits when the folders of old checkpoints are deleted: nobody's training. run.sh: tsan

   Each system call of a deletion is seen before it is made (fault_watch). Deleting a folder, and freeing the blocks of deleted files by
   closing their last descriptors, take as long as the disk likes: here until a gate is opened. So it is not time that is
   measured but order: which thread made a call, and what had been done before it. */
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../thread_ranks.h"

enum { PIECE = 5000, SAVES = 3 };

//-- what is seen --------------------------------------------------------------------

typedef struct seen {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    const char     *dir;                // of the folders ba1, ba2, ...
    int             ranks;              // whose files each folder has
    bool            shut;               // the gate before what other threads do to folders
    int             waiting;            // threads at the gate
    int             unlinked[SAVES + 1], gone[SAVES + 1];       // of each folder: files of ranks; 1: rmdir has been asked for
    int             rmdirs, syncs[SAVES + 1];                   // on threads of ranks: of any folder; of each
    int             early;              // blocks were freed too early
} seen;

static seen           now = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, false, 0, { 0 }, { 0 }, 0, { 0 }, 0 };
static __thread bool  is_owner;         // this thread is a rank's

// The number of the folder that `path` is (part false), or that a rank's file lies in. 0: neither.
static int number_of(const char *path, bool part) {
    int number = 0, rank = 0, n = -1;
    size_t root = strlen(now.dir);
    if (strncmp(path, now.dir, root) != 0) return 0;
    if (part) (void)sscanf(path + root, "/ba%d/__%d_0.pt%n", &number, &rank, &n);
    else (void)sscanf(path + root, "/ba%d%n", &number, &n);
    bool fits = n >= 0 && (path[root + (size_t)n] == 0 || (part && path[root + (size_t)n] == ' '));     // " (deleted)"
    return fits && number > 0 && number <= SAVES ? number : 0;
}

static void note_close(int number) {
    now.early += now.unlinked[number] < now.ranks;              // a rank has yet to delete its file
    now.early += now.ranks == 1 && now.gone[number] == 0;       // else another's sweeper may be first
}

static void watch(const char *name, const char *path, int fd) {
    char link[64], of_fd[4096] = "";
    struct stat st;
    int saved = errno;
    bool closes = strcmp(name, "close") == 0, syncs = strcmp(name, "fsync") == 0;
    if (path == NULL) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, of_fd, sizeof of_fd - 1);
        of_fd[n > 0 ? n : 0] = 0;
        path = of_fd;
    }
    bool freed = closes && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0;
    int folder = number_of(path, false), part = number_of(path, true);
    pthread_mutex_lock(&now.lock);
    if (freed && part > 0) note_close(part);
    if (strcmp(name, "unlink") == 0) now.unlinked[part] += part > 0;
    if (syncs && is_owner && folder > 0) now.syncs[folder]++;
    if (strcmp(name, "rmdir") == 0 && folder > 0) {
        now.rmdirs += is_owner;
        now.gone[folder] = 1;
    }
    bool gated = !is_owner && folder > 0 && (strcmp(name, "rmdir") == 0 || strcmp(name, "opendir") == 0);
    now.waiting += gated;
    pthread_cond_broadcast(&now.changed);
    while (gated && now.shut) pthread_cond_wait(&now.changed, &now.lock);
    now.waiting -= gated;
    pthread_mutex_unlock(&now.lock);
    errno = saved;
}

static void see(const char *dir, int ranks) {
    pthread_mutex_lock(&now.lock);
    now.dir = dir;
    now.ranks = ranks;
    now.shut = false;
    now.rmdirs = now.early = now.waiting = 0;
    memset(now.unlinked, 0, sizeof now.unlinked);
    memset(now.gone, 0, sizeof now.gone);
    memset(now.syncs, 0, sizeof now.syncs);
    pthread_mutex_unlock(&now.lock);
    __atomic_store_n(&fault_watch, watch, __ATOMIC_SEQ_CST);
}

static void see_no_more(void) {
    __atomic_store_n(&fault_watch, NULL, __ATOMIC_SEQ_CST);
}

static void gate(bool shut) {
    pthread_mutex_lock(&now.lock);
    now.shut = shut;
    pthread_cond_broadcast(&now.changed);
    pthread_mutex_unlock(&now.lock);
}

// Opens the gate a while after somebody has come to it.
static void *opener(void *arg) {
    struct timespec until = tr_until(10);
    int late = 0;
    (void)arg;
    pthread_mutex_lock(&now.lock);
    while (now.waiting == 0 && late == 0) late = pthread_cond_timedwait(&now.changed, &now.lock, &until);
    pthread_mutex_unlock(&now.lock);
    ckpt__os_sleep(0.2);
    gate(false);
    return NULL;
}

//-- ranks -----------------------------------------------------------------------------

typedef struct plan {
    const char   *dir, *again;
    ckpt_snapshot snapshot;
    bool          overwrite;
    char          log[4096];
} plan;

typedef struct member {
    ckpt_state  st;
    float       piece[PIECE];
    ckpt_saver *s;
} member;

static void member_log(ckpt_log_level level, const char *msg, void *user) {
    plan *p = (plan *)user;
    size_t n = strlen(p->log);
    if (level >= CKPT_LOG_WARN) (void)snprintf(p->log + n, sizeof p->log - n, "%s\n", msg);
}

static void member_bind(member *m, const tr_rank *r) {
    ckpt_tensor t;
    memset(m, 0, sizeof *m);
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 1;
    t.shape[0] = PIECE;
    t.global_shape[0] = (int64_t)PIECE * r->world->size;
    t.offset[0] = (int64_t)PIECE * r->rank;
    t.data = m->piece;
    ckpt_bind(&m->st, "state/model/w", &t);
}

static member *member_open(tr_rank *r, plan *p) {
    ckpt_saver_desc d;
    member *m = (member *)malloc(sizeof *m);
    if (m == NULL) util_die("no memory for", "a rank");
    member_bind(m, r);
    memset(&d, 0, sizeof d);
    d.state = &m->st;
    d.folder = p->dir;
    d.run_name = "r";
    d.filename = "ba{batch}.pt";
    d.sharded = true;
    d.sharded_prefix_dir = "ba{batch}";
    d.save_interval = "1ba";
    d.snapshot = p->snapshot;
    d.num_checkpoints_to_keep = 1;
    d.overwrite = p->overwrite;
    d.ranks = r->ranks;
    d.logger.fn = member_log;
    d.logger.user = p;
    TR_OK(r, ckpt_saver_open(&m->s, &d));
    is_owner = true;
    return m;
}

static void member_save(tr_rank *r, member *m, int batch, float value) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = t.batch_in_epoch = batch;
    TR_OK(r, ckpt_saver_fence(m->s));
    for (int i = 0; i < PIECE; i++) m->piece[i] = value;
    TR_OK(r, ckpt_saver_save(m->s, &t));
}

static void member_end(tr_rank *r, member *m) {
    TR_OK(r, ckpt_saver_close(m->s, 0));
    is_owner = false;
    ckpt_state_free(&m->st);
    free(m);
}

// Rank 0 does it when all have come so far, and the others go on when it is done.
static void by_first(tr_rank *r, void (*fn)(bool), bool arg) {
    TR_OK(r, r->ranks.barrier(r->ranks.user));
    if (r->rank == 0) fn(arg);
    TR_OK(r, r->ranks.barrier(r->ranks.user));
}

// Only on rank 0: what util.h makes is one thread's at a time.
static const char *names_in(const char *dir) { return util_names(dir, "latest"); }

// Three saves, the disk being so slow with the folders of old ones that none is deleted before all are done.
static void rotate(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    const char *const *paths;
    member *m = member_open(r, p);
    by_first(r, gate, true);
    for (int i = 1; i <= SAVES; i++) member_save(r, m, i, (float)i);
    TR_CHECK(r, ckpt_saver_wait(m->s, 0.05) == CKPT_TIMEOUT);           // that the last one is not yet through with rotation
    TR_CHECK(r, r->rank > 0 || util_exists(util_join(p->dir, "ba1")));
    TR_CHECK(r, r->rank > 0 || !util_exists(util_join(p->dir, "ba1/.metadata")));
    by_first(r, gate, false);
    TR_OK(r, ckpt_saver_wait(m->s, 0));
    TR_CHECK(r, ckpt_saver_checkpoints(m->s, &paths) == 1);
    TR_CHECK(r, r->rank > 0 || strcmp(names_in(p->dir), "ba3") == 0);
    member_end(r, m);
}

static void test_nobody_waits(void **state) {
    static const ckpt_snapshot modes[] = { CKPT_SNAPSHOT_NONE, CKPT_SNAPSHOT_COPY, CKPT_SNAPSHOT_LAZY };
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int mode = 0; mode < 3; mode++) {
            plan p;
            memset(&p, 0, sizeof p);
            p.dir = util_temp_dir();
            p.snapshot = modes[mode];
            see(p.dir, ranks);
            tr_run(tr_new(ranks), rotate, &p);
            see_no_more();
            assert_int_equal(now.rmdirs, 0);
            assert_int_equal(now.early, 0);
            for (int i = 1; i < SAVES; i++) {
                assert_int_equal(now.unlinked[i], ranks);
                assert_int_equal(now.gone[i], 1);
                assert_int_equal(now.syncs[i], now.syncs[SAVES] + 1);       // once more, when .metadata had gone
            }
            assert_string_equal(p.log, "");
        }
    }
}

//-- names that come again -----------------------------------------------------------------

// The training goes back, and writes a checkpoint into a folder that is being deleted.
static void walk_back(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_open(r, p);
    pthread_t by = pthread_self();
    by_first(r, gate, true);
    if (r->rank == 0 && pthread_create(&by, NULL, opener, NULL) != 0) util_die("cannot start", "a thread");
    member_save(r, m, 1, 1);
    member_save(r, m, 2, 2);
    member_save(r, m, 1, 3);
    TR_OK(r, ckpt_saver_wait(m->s, 0));
    if (r->rank == 0) pthread_join(by, NULL);
    TR_CHECK(r, r->rank > 0 || strcmp(names_in(p->dir), "ba1") == 0);
    member_end(r, m);
    // what is there is whole
    ckpt_load_desc d;
    member *again = (member *)malloc(sizeof *again);
    if (again == NULL) util_die("no memory for", "a rank");
    member_bind(again, r);
    memset(&d, 0, sizeof d);
    d.load_path = p->again;
    d.state = &again->st;
    d.ranks = r->ranks;
    TR_OK(r, ckpt_load(&d, NULL));
    TR_CHECK(r, again->piece[0] > 2.5f && again->piece[PIECE - 1] > 2.5f);
    ckpt_state_free(&again->st);
    free(again);
}

static void test_name_comes_again(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        plan p;
        memset(&p, 0, sizeof p);
        p.dir = util_temp_dir();
        p.again = util_join(p.dir, "ba1");
        p.overwrite = true;
        see(p.dir, ranks);
        tr_run(tr_new(ranks), walk_back, &p);
        see_no_more();
        assert_string_equal(p.log, "");
    }
}

//-- failures --------------------------------------------------------------------------------

// Without a thread to be had the call itself deletes.
static void no_thread(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_open(r, p);
    member_save(r, m, 1, 1);
    fault_arm_call("pthread_create", EAGAIN, 1);
    member_save(r, m, 2, 2);
    TR_CHECK(r, fault_disarm());
    TR_CHECK(r, strcmp(names_in(p->dir), "ba2") == 0);
    member_end(r, m);
}

// What cannot be deleted is told of, is no error, and goes with the next open.
static void no_listing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_open(r, p);
    member_save(r, m, 1, 1);
    fault_arm_call("opendir", EIO, 1);
    member_save(r, m, 2, 2);
    TR_OK(r, ckpt_saver_wait(m->s, 0));
    TR_CHECK(r, fault_disarm());
    TR_CHECK(r, strcmp(names_in(p->dir), "ba1 ba2") == 0);
    TR_CHECK(r, strstr(p->log, "cannot delete all of an old checkpoint") != NULL);
    member_end(r, m);
    m = member_open(r, p);
    TR_CHECK(r, strcmp(names_in(p->dir), "ba2") == 0);
    member_end(r, m);
}

static void test_failures(void **state) {
    plan p;
    (void)state;
    memset(&p, 0, sizeof p);
    p.dir = util_temp_dir();
    tr_run(tr_new(1), no_thread, &p);
    assert_string_equal(p.log, "");
    p.dir = util_temp_dir();
    tr_run(tr_new(1), no_listing, &p);
}

// A process that died between the last file and the folder has left an empty one, which the next open takes away; not others.
static void open_once(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_open(r, p);
    TR_CHECK(r, r->rank > 0 || strcmp(names_in(p->dir), "ba2 mine") == 0);
    member_end(r, m);
}

static void save_two(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_open(r, p);
    member_save(r, m, 1, 1);
    member_save(r, m, 2, 2);
    member_end(r, m);
}

static void test_empty_folder(void **state) {
    plan p;
    (void)state;
    memset(&p, 0, sizeof p);
    p.dir = util_temp_dir();
    tr_world *w = tr_new(2);
    tr_run(w, save_two, &p);
    assert_string_equal(names_in(p.dir), "ba2");
    util_mkdir(util_join(p.dir, "ba1"));
    util_mkdir(util_join(p.dir, "ba7"));
    util_mkdir(util_join(p.dir, "mine"));
    tr_run(w, open_once, &p);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_waits),
        cmocka_unit_test(test_name_comes_again),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_empty_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
