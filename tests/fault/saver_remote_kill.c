/* saver_remote_kill.c: a training process with a file:// folder is killed at random instants; the next one resumes, from its folder
   or from an empty one. What was acknowledged comes back bit for bit, the store's latest never names what is not whole and never goes
   back, and rotation leaves neither too much nor too little on either side. CKPT_KILLS says how often (60). run.sh: no-asan no-tsan */

#define CKPT_NO_REMOTE
#define CKPT__SEND_MIB 1024             // parts of 8 to 64 KiB, so that they leave early
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WEIGHTS = 60000, REMOTE = 3 };

typedef struct config {
    const char   *name, *filename;
    ckpt_snapshot snapshot;
    int           keep;
    bool          empties;              // the local folder is emptied now and then
} config;

static const config configs[] = {
    { "none, keeps 2", "ba{batch}.pt", CKPT_SNAPSHOT_NONE, 2, false },
    { "copy, keeps none", "ba{batch}.pt", CKPT_SNAPSHOT_COPY, CKPT_KEEP_NONE, false },
    { "lazy, keeps none", "e{epoch}/ba{batch}.pt", CKPT_SNAPSHOT_LAZY, CKPT_KEEP_NONE, false },
    { "none, keeps none, emptied", "ba{batch}.pt", CKPT_SNAPSHOT_NONE, CKPT_KEEP_NONE, true },
    { "copy, keeps 2, emptied", "ba{batch}.pt", CKPT_SNAPSHOT_COPY, 2, true },
    { "lazy, keeps 2", "ba{batch}.pt", CKPT_SNAPSHOT_LAZY, 2, false },
    { "copy, constant name", "model.pt", CKPT_SNAPSHOT_COPY, CKPT_KEEP_NONE, false },
};

// What the child tells, in memory that outlives it.
typedef struct ledger {
    volatile int64_t acked;             // the newest step that a wait has acknowledged
    volatile int64_t least;             // what resume must give at least
    volatile int     events, resumes, waits;
    volatile int     child, reader;     // what went wrong: a line of this file, 0 nothing
    volatile int     stop, looks;
    char             why[1024];
} ledger;

static ledger     *shared;
static const char *bucket, *local;      // absolute; the child works in a folder below which `local` is
static float       w[WEIGHTS];
static int64_t     step;

// Training: the state after n steps is a function of the state before, so that a wrong resume shows for ever after.
static void train(void) {
    step++;
    for (int i = 0; i < WEIGHTS; i++) w[i] = w[i] * 0.5f + (float)((step * 31 + i) % 1024);
}

static bool trained_to(int64_t n) {
    static float want[WEIGHTS];
    memset(want, 0, sizeof want);
    for (int64_t k = n > 60 ? n - 60 : 1; k <= n; k++) {
        for (int i = 0; i < WEIGHTS; i++) want[i] = want[i] * 0.5f + (float)((k * 31 + i) % 1024);
    }
    return step == n && memcmp(want, w, sizeof w) == 0;
}

#define must(cond) do { if (!(cond)) { shared->child = __LINE__; \
    (void)snprintf(shared->why, sizeof shared->why, "%.900s", ckpt_last_error()); _exit(1); } } while (0)

static ckpt_saver *start(const config *c, ckpt_state *st, ckpt_timestamp *t) {
    ckpt_saver_desc d;
    ckpt_saver *s;
    char uri[4200];
    memset(&d, 0, sizeof d);
    memset(st, 0, sizeof *st);
    memset(t, 0, sizeof *t);
    ckpt_bind_f32(st, "state/model/w", w, WEIGHTS);
    ckpt_bind_int(st, "state/step", &step);
    (void)snprintf(uri, sizeof uri, "file://%s", bucket);
    d.state = st;
    d.folder = uri;
    d.run_name = "kill";
    d.filename = c->filename;
    d.latest_filename = "latest.pt";
    d.save_interval = "1ba";
    d.num_checkpoints_to_keep = c->keep;
    d.num_remote_to_keep = REMOTE;
    d.snapshot = c->snapshot;
    must(ckpt_saver_open(&s, &d) == CKPT_OK);
    ckpt_err e = ckpt_saver_resume(s, t);
    must(e == CKPT_OK || (e == CKPT_NOT_FOUND && shared->least == 0));
    must(t->batch >= shared->least);
    must(trained_to(t->batch));
    if (e == CKPT_OK) shared->resumes++;
    return s;
}

static void one_step(const config *c, ckpt_saver *s, ckpt_timestamp *t) {
    must(ckpt_saver_fence(s) == CKPT_OK);
    train();
    ckpt_next_batch(t, 1, 0, 0.001);
    if (t->batch % 10 == 0) ckpt_next_epoch(t, 0);
    must(ckpt_saver_batch_end(s, t) == CKPT_OK);
    shared->events++;
    (void)c;
}

static void child_main(const config *c, unsigned seed) {
    ckpt_state st;
    ckpt_timestamp t;
    ckpt_saver *s = start(c, &st, &t);
    for (;;) {
        one_step(c, s, &t);
        seed = seed * 1103515245u + 12345u;
        if ((seed >> 16) % 3 != 0) continue;
        must(ckpt_saver_wait(s, 0) == CKPT_OK);
        shared->acked = t.batch;
        shared->waits++;
    }
}

// The last process: goes on, saves some more, and closes.
static void last_main(const config *c) {
    ckpt_state st;
    ckpt_timestamp t;
    ckpt_saver *s = start(c, &st, &t);
    for (int i = 0; i < REMOTE + 1; i++) one_step(c, s, &t);
    must(ckpt_saver_close(s, 0) == CKPT_OK);
    shared->acked = t.batch;
    _exit(0);
}

// The step of a whole checkpoint at that path: 0, there is none; -1, it is not whole.
static int64_t step_in(const char *path) {
    ckpt_file *f;
    ckpt_entry entry;
    int64_t n = -1;
    ckpt_err e = ckpt_file_open(&f, path);
    if (e == CKPT_NOT_FOUND) return 0;
    if (e != CKPT_OK) return -1;
    bool whole = ckpt_file_verify(f) == CKPT_OK;
    for (int i = 0; i < ckpt_file_count(f) && whole; i++) {
        if (ckpt_file_entry(f, i, &entry) == CKPT_OK && strcmp(entry.name, "state/step") == 0 &&
            ckpt_file_read(f, i, 0, &n, sizeof n) != CKPT_OK) n = -1;
    }
    ckpt_file_close(f);
    return n;
}

// Looks at what the store's latest names all along, as a job on another machine would.
static void reader_main(void) {
    const char *link = util_join(bucket, "latest.pt.symlink");
    int64_t last = 0;
    bool seen = false;
    pid_t parent = getppid();
    while (!shared->stop && getppid() == parent) {
        size_t n = 0, m = 0;
        char path[4200];
        char *text = util_slurp(link, &n);
        if (text == NULL && seen && shared->reader == 0) shared->reader = __LINE__;
        if (text != NULL) {
            seen = true;
            (void)snprintf(path, sizeof path, "/%.*s", (int)n, text);
            int64_t got = step_in(path);
            if (got == 0) {             // rotated away while we looked, or gone for good
                char *again = util_slurp(link, &m);
                bool same = again != NULL && m == n && memcmp(again, text, n) == 0;
                if (same && shared->reader == 0) shared->reader = __LINE__;
                free(again);
            } else if (got < 0 || got < last) {
                if (shared->reader == 0) shared->reader = __LINE__;
            } else {
                last = got;
                shared->looks++;
            }
            free(text);
        }
        usleep(500);
    }
    _exit(0);
}

static int count_checkpoints(const char *dir) {
    char command[4400];
    int n = -1;
    (void)snprintf(command, sizeof command, "find '%s' -name .ckpt-staging -prune -o -type f -name '*.pt' -print | wc -l", dir);
    FILE *f = popen(command, "r");
    if (f != NULL && fscanf(f, "%d", &n) != 1) n = -1;
    if (f != NULL) (void)pclose(f);
    return n;
}

static void shell(const char *what, const char *dir) {
    char command[4400];
    (void)snprintf(command, sizeof command, "%s '%s' >&2", what, dir);
    assert_int_equal(system(command), 0);
}

static pid_t spawn_child(const config *c, int how, unsigned seed, const char *work) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (chdir(work) != 0) _exit(3);
    memset(w, 0, sizeof w);
    step = 0;
    if (how == 0) child_main(c, seed);
    else last_main(c);
    _exit(0);
}

static void check_child(const config *c) {
    if (shared->child != 0) fail_msg("%s: the training process failed at line %d: %s", c->name, shared->child, shared->why);
}

static void kill_often(const config *c, int kills) {
    const char *dir = util_temp_dir(), *work = util_join(dir, "work");
    int status;
    util_mkdir(work);
    bucket = util_join(dir, "bucket");
    util_mkdir(bucket);
    local = util_fmt("%s%s", work, bucket);
    memset((void *)shared, 0, sizeof *shared);
    pid_t reader = fork();
    if (reader == 0) { reader_main(); _exit(0); }
    for (int i = 0; i < kills && shared->child == 0; i++) {
        pid_t pid = spawn_child(c, 0, (unsigned)rand(), work);
        // Some die while they open and resume, most while they save and upload.
        int events = shared->events, more = 2 + rand() % 12;
        for (int k = 0; i % 4 != 3 && k < 8000 && shared->events < events + more && shared->child == 0; k++) usleep(500);
        usleep((useconds_t)(rand() % 20000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        shared->least = shared->acked;
        if (c->empties && i % 3 == 2) shell("rm -rf", local);
    }
    check_child(c);
    pid_t pid = spawn_child(c, 1, 0, work);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check_child(c);
    assert_int_equal(status, 0);
    usleep(5000);
    shared->stop = 1;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    if (shared->reader != 0) fail_msg("%s: the reader found something wrong at line %d", c->name, shared->reader);

    size_t n;
    char *text = util_read(util_join(bucket, "latest.pt.symlink"), &n);
    assert_int_equal(step_in(util_fmt("/%s", text)), shared->acked);
    bool constant = strchr(c->filename, '{') == NULL;
    int here = count_checkpoints(local), there = count_checkpoints(bucket);
    if (here != (c->keep == CKPT_KEEP_NONE ? 0 : c->keep)) {
        shell("find", local);
        fail_msg("%s: %d checkpoints are left in the folder", c->name, here);
    }
    if (there != (constant ? 1 : REMOTE)) {
        shell("find", bucket);
        fail_msg("%s: %d checkpoints are left in the store", c->name, there);
    }
    const char *staging = util_join(local, ".ckpt-staging");
    if (util_staged(staging) != NULL)
        fail_msg("%s: something is left in the staging folder: %s", c->name, util_list(staging));
    if (!c->empties && strstr(util_list(bucket), ".ckpt-upload-") != NULL)
        fail_msg("%s: half-done uploads are left: %s", c->name, util_list(bucket));
    printf("%s: %d kills, %d saves, %d resumes, %d waits, %d looks\n", c->name, kills, shared->events, shared->resumes, shared->waits,
           shared->looks);
    assert_true(shared->looks > 0 && shared->waits > 0);
}

static void test_killed(void **state) {
    (void)state;
    const char *often = getenv("CKPT_KILLS"), *seed = getenv("CKPT_SEED");
    int kills = often != NULL ? atoi(often) : 60, count = (int)(sizeof configs / sizeof configs[0]);
    shared = (ledger *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    srand(seed != NULL ? (unsigned)atoi(seed) : 1);
    for (int i = 0; i < count; i++) kill_often(&configs[i], kills / count + (i < kills % count));
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_killed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
