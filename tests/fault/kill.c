/* kill.c: a process that saves without pause is killed at random instants; what it leaves behind always holds the promises of the
   manual. CKPT_KILLS says how often (200). run.sh: no-asan no-tsan */

#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WEIGHTS = 400000 };              // 1.6 MB: large enough for the parallel writer

typedef struct config {
    const char   *name, *filename;
    ckpt_snapshot snapshot;
    size_t        staging;
    int           keep;
    bool          best;
} config;

static const config configs[] = {
    { "none", "ba{batch}.pt", CKPT_SNAPSHOT_NONE, 0, 2, true },
    { "copy", "ba{batch}.pt", CKPT_SNAPSHOT_COPY, 0, 2, true },
    { "lazy", "ba{batch}.pt", CKPT_SNAPSHOT_LAZY, 0, 3, true },
    { "lazy, straight from memory", "e{epoch}/ba{batch}.pt", CKPT_SNAPSHOT_LAZY, 1000, 1, false },
    { "constant name", "model.pt", CKPT_SNAPSHOT_COPY, 0, 1, false },
};

// What the child tells, in memory that outlives it.
typedef struct ledger {
    volatile int64_t reported;          // the newest step whose save was reported
    volatile int     events;            // saves that this child has asked for
    volatile int     child, reader;     // what went wrong: a line of this file, 0 nothing
    volatile int     stop;
} ledger;

static ledger *shared;
static float   w[WEIGHTS];
static double  loss;
static int64_t step;

// Training: the state after n steps is a function of the state before, so that a wrong resume shows for ever after.
static void train(void) {
    step++;
    for (int i = 0; i < WEIGHTS; i++) w[i] = w[i] * 0.5f + (float)((step * 31 + i) % 1024);
    loss = (double)((step * 7) % 97);
}

// The weights after n steps, from the beginning: the last 40 steps decide every bit, as each halves what came before. What was computed
// lately is kept: each file is looked at several times, by this process and by its children.
static const float *weights_after(int64_t n) {
    static struct { int64_t n; float w[WEIGHTS]; } kept[8];     // at first all of step 0: zeros
    static unsigned next;
    int base = -1;
    for (int i = 0; i < UTIL_COUNT(kept); i++) {
        if (kept[i].n == n) return kept[i].w;
        if (kept[i].n < n && n - kept[i].n < 60 && (base < 0 || kept[i].n > kept[base].n)) base = i;
    }
    float *want = kept[next % 8].w;
    int64_t from = base >= 0 ? kept[base].n : n > 60 ? n - 60 : 0;
    if (base >= 0) memmove(want, kept[base].w, sizeof kept[base].w);
    else memset(want, 0, sizeof kept[0].w);
    for (int64_t k = from + 1; k <= n; k++) {
        for (int i = 0; i < WEIGHTS; i++) want[i] = want[i] * 0.5f + (float)((k * 31 + i) % 1024);
    }
    kept[next++ % 8].n = n;
    return want;
}

static bool trained_to(int64_t n) {
    return step == n && loss == (double)((n * 7) % 97) && memcmp(weights_after(n), w, sizeof w) == 0;
}

static void bind(ckpt_state *st) {
    memset(st, 0, sizeof *st);
    memset(w, 0, sizeof w);
    step = 0;
    loss = 0;
    ckpt_bind_f32(st, "state/model/w", w, WEIGHTS);
    ckpt_bind_float(st, "state/metrics/loss", &loss);
    ckpt_bind_int(st, "state/step", &step);
}

static ckpt_saver_desc desc_of(const config *c, ckpt_state *st, const char *dir) {
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    d.state = st;
    d.folder = dir;
    d.run_name = "kill";
    d.filename = c->filename;
    d.latest_filename = "latest.pt";
    d.save_interval = "1ba";
    d.num_checkpoints_to_keep = c->keep;
    d.keep_best = c->best ? "min:state/metrics/loss" : NULL;
    d.snapshot = c->snapshot;
    d.max_staging_bytes = c->staging;
    return d;
}

#define CHILD_MUST(cond) do { if (!(cond)) { shared->child = __LINE__; fprintf(stderr, "child: %s: %s\n", #cond, ckpt_last_error()); _exit(1); } } while (0)

// Resumes, checks every bit, and saves for ever.
static void child_main(const config *c, const char *dir, unsigned seed) {
    ckpt_state st;
    ckpt_saver *s;
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    bind(&st);
    ckpt_saver_desc d = desc_of(c, &st, dir);
    CHILD_MUST(ckpt_saver_open(&s, &d) == CKPT_OK);
    ckpt_err e = ckpt_saver_resume(s, &t);
    CHILD_MUST(e == CKPT_OK || (e == CKPT_NOT_FOUND && shared->reported == 0));
    CHILD_MUST(t.batch >= shared->reported && trained_to(t.batch));
    for (;;) {
        CHILD_MUST(ckpt_saver_fence(s) == CKPT_OK);
        train();
        ckpt_next_batch(&t, 1, 0, 0.001);
        if (t.batch % 10 == 0) ckpt_next_epoch(&t, 0);
        CHILD_MUST(ckpt_saver_batch_end(s, &t) == CKPT_OK);
        shared->events++;
        seed = seed * 1103515245u + 12345u;
        if (c->snapshot == CKPT_SNAPSHOT_NONE || (seed >> 16) % 3 == 0) {
            CHILD_MUST(ckpt_saver_wait(s, 0) == CKPT_OK);
            shared->reported = t.batch;
        }
    }
}

// Looks at `latest` without pause, as an evaluation job would: once it is there it is never missing, and its file is always whole.
static void reader_main(const char *dir) {
    const char *latest = util_join(dir, "latest.pt");
    bool seen = false;
    while (!shared->stop) {
        int fd = open(latest, O_RDONLY);
        struct stat st;
        char head[4], tail[22];
        if (fd < 0 && (seen || errno != ENOENT)) { shared->reader = __LINE__; _exit(1); }
        if (fd < 0) continue;
        seen = true;
        bool whole = fstat(fd, &st) == 0 && st.st_size > (off_t)sizeof w && pread(fd, head, 4, 0) == 4 && memcmp(head, "PK\3\4", 4) == 0 &&
                     pread(fd, tail, 22, st.st_size - 22) >= 0;
        if (!whole) { shared->reader = __LINE__; _exit(1); }
        close(fd);
        usleep(50);
    }
    _exit(0);
}

// Loads a file into the process's own state; the step that it holds.
static int64_t load_whole(const char *path) {
    ckpt_state st;
    ckpt_load_desc l;
    ckpt_timestamp t;
    bind(&st);
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = &st;
    ckpt_err e = ckpt_load(&l, &t);
    if (e != CKPT_OK) print_error("%s: %s\n", path, ckpt_last_error());
    assert_int_equal(e, CKPT_OK);
    assert_true(trained_to(t.batch));
    ckpt_state_free(&st);
    return t.batch;
}

// Every final name holds a whole checkpoint. Returns the newest step, 0 when there is none.
static int64_t check_names(const char *dir, int *count) {
    int64_t newest = 0;
    char *all = util_fmt("%s", util_list(dir)), *save = NULL;
    for (char *name = strtok_r(all, "\n", &save); name != NULL; name = strtok_r(NULL, "\n", &save)) {
        struct stat st;
        const char *path = util_join(dir, name);
        if (name[0] == '.' || strcmp(name, "latest.pt") == 0 || lstat(path, &st) != 0) continue;
        int64_t n = S_ISDIR(st.st_mode) ? check_names(path, count) : load_whole(path);
        if (n > newest) newest = n;
        *count += S_ISREG(st.st_mode);
    }
    return newest;
}

static bool has_left_overs(const char *dir) {
    return strstr(util_list(dir), ".tmp\n") != NULL;
}

// After a kill: the promises, then a resume that finds the newest and cleans up. *files: how many there were after the kill before.
static void check_all(const config *c, const char *dir, int *files) {
    int count = 0;
    int64_t newest = check_names(dir, &count);
    assert_true(newest >= shared->reported);
    const char *latest = util_join(dir, "latest.pt");
    if (shared->reported > 0) {
        int64_t linked = load_whole(latest);            // not missing, not dangling, whole
        assert_true(linked >= shared->reported && linked <= newest);
    }
    ckpt_state st;
    ckpt_saver *s;
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    bind(&st);
    ckpt_saver_desc d = desc_of(c, &st, dir);
    d.snapshot = CKPT_SNAPSHOT_NONE;
    ckpt_err e = ckpt_saver_open(&s, &d);
    if (e != CKPT_OK) print_error("%s\n", ckpt_last_error());
    assert_int_equal(e, CKPT_OK);
    e = ckpt_saver_resume(s, &t);
    assert_int_equal(e, newest > 0 ? CKPT_OK : CKPT_NOT_FOUND);
    assert_int_equal(t.batch, newest);
    assert_true(trained_to(newest));
    assert_false(has_left_overs(dir));
    assert_int_equal(ckpt_saver_checkpoints(s, NULL), count);
    if (newest > 0) assert_int_equal(load_whole(latest), newest);
    assert_int_equal(ckpt_saver_close(s, 0), CKPT_OK);
    ckpt_state_free(&st);
    // A save first makes its file and then lets others go: each kill between the two leaves one more, and the first rotation that
    // is not killed brings the number down again.
    int most = c->keep + (c->best ? 1 : 0);
    assert_in_range(count, 0, (*files > most ? *files : most) + 1);
    *files = count;
}

// Waits for the instant of the kill: one time in four anywhere in the child's start, else after a few saves, at a place that is
// spread evenly over the time that a save takes on this disk, however slow it is.
static void wait_for_instant(pid_t child, unsigned seed) {
    double begin = ckpt__os_now();
    int wanted = 1 + (int)((seed >> 20) % 6);
    if ((seed >> 4) % 4 == 0) {
        usleep((seed >> 8) % 20000);
        return;
    }
    while (shared->events < wanted && waitpid(child, NULL, WNOHANG) == 0 && ckpt__os_now() - begin < 60) usleep(100);
    double each = (ckpt__os_now() - begin) / (wanted + 1);
    usleep((useconds_t)(each * (double)((seed >> 8) % 1000) * 1000.0));
}

static int kills(void) {
    const char *n = getenv("CKPT_KILLS");
    return n != NULL && atoi(n) > 0 ? atoi(n) : 200;
}

static void test_kills(void **state) {
    (void)state;
    int total = kills(), each = (total + UTIL_COUNT(configs) - 1) / UTIL_COUNT(configs);
    unsigned seed = (unsigned)getpid();
    const char *given = getenv("CKPT_SEED");
    if (given != NULL) seed = (unsigned)strtoul(given, NULL, 10);
    print_message("seed %u\n", seed);
    for (int i = 0; i < UTIL_COUNT(configs); i++) {
        const config *c = &configs[i];
        const char *dir = util_temp_dir();
        int early = 0, files = 0;
        memset(shared, 0, sizeof *shared);
        fflush(NULL);
        pid_t reader = fork();
        assert_true(reader >= 0);
        if (reader == 0) reader_main(dir);
        for (int k = 0; k < each; k++) {
            fflush(NULL);
            shared->events = 0;
            pid_t child = fork();
            assert_true(child >= 0);
            seed = seed * 1664525u + 1013904223u;       // (both processes know it)
            if (child == 0) child_main(c, dir, seed);
            int status = 0;
            wait_for_instant(child, seed);
            (void)kill(child, SIGKILL);
            (void)waitpid(child, &status, 0);
            if (shared->child != 0) fail_msg("%s: the child stopped at line %d after %d kills (seed %u)", c->name, shared->child, k, seed);
            early += shared->reported == 0;
            check_all(c, dir, &files);
            if (shared->reader != 0) fail_msg("%s: a reader found `latest` missing or cut, line %d, after %d kills", c->name, shared->reader, k);
        }
        shared->stop = 1;
        int status = 0;
        assert_int_equal(waitpid(reader, &status, 0), reader);
        assert_int_equal(status, 0);
        print_message("%s: %d kills, %lld steps reported, %d before the first\n", c->name, each, (long long)shared->reported, early);
        util_remove_tree(dir);
    }
}

int main(void) {
    util_clear_env();
    shared = (ledger *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 99;
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_kills) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
