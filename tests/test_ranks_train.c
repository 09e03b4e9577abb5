/* test_ranks_train.c: the training of examples/ranks_train.h with sharded checkpoints, on ranks that are processes and on ranks that
   are threads of one: begun on 4, gone on with 3, 1 and 8, it has the weights of a training that was never interrupted; a request
   that one rank gets saves on all at the same step; a load by other numbers of ranks. run.sh: tsan libs=-lm */

#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "fork_ranks.h"
#include "../examples/ranks_train.h"
#include <sys/mman.h>

enum { ROWS = 203, STEPS = 200 };

typedef struct plan {
    const char   *dir, *filename;
    ckpt_snapshot snapshot;
    int64_t       began, end;           // must be resumed at; train to
    int           every, asks;          // a rank that asks for a checkpoint at step 3 of its run, -1: none
} plan;

static uint64_t *ref;                   // hashes after each step, by one process; shared with all ranks

static void learn(void) {
    ckpt_ranks alone;
    train_run t;
    int64_t stop = 0;
    if (ref != NULL) return;
    ref = (uint64_t *)mmap(NULL, STEPS * sizeof *ref, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)ref != MAP_FAILED);
    memset(&alone, 0, sizeof alone);
    alone.world_size = 1;
    assert_true(train_init(&t, &alone, ROWS));
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(train_hash(&t, &ref[i]), CKPT_OK);
        assert_int_equal(train_forward(&t, &stop), CKPT_OK);
        train_update(&t);
    }
    train_free(&t);
}

#define must(cond) do { if (!(cond)) { fprintf(stderr, "rank %d of %d, line %d: %s: %s\n", ranks->rank, ranks->world_size, __LINE__, #cond, \
    ckpt_last_error()); return 1; } } while (0)

static void on_log(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    if (level >= CKPT_LOG_WARN) fprintf(stderr, "%s\n", msg);
}

static int body(const ckpt_ranks *ranks, void *user) {
    const plan *p = (const plan *)user;
    char interval[32];
    int64_t stop = 0;
    uint64_t hash;
    train_run t;
    ckpt_state st;
    ckpt_saver *s;
    ckpt_timestamp at;
    ckpt_saver_desc d;
    memset(&st, 0, sizeof st);
    memset(&at, 0, sizeof at);
    memset(&d, 0, sizeof d);
    must(train_init(&t, ranks, ROWS));
    train_bind(&st, &t);
    snprintf(interval, sizeof interval, "%dba", p->every);
    d.state = &st;
    d.run_name = "r";
    d.folder = p->dir;
    d.filename = p->filename;
    d.save_interval = interval;
    d.num_checkpoints_to_keep = 2;
    d.snapshot = p->snapshot;
    d.sharded = true;
    d.ranks = *ranks;
    d.logger.fn = on_log;
    must(ckpt_saver_open(&s, &d) == CKPT_OK);
    must(ckpt_saver_resume(s, &at) == (p->began > 0 ? CKPT_OK : CKPT_NOT_FOUND));
    must(at.batch == p->began && t.step == p->began);
    must(train_hash(&t, &hash) == CKPT_OK && hash == ref[p->began]);
    while (at.batch < p->end) {
        must(train_forward(&t, &stop) == CKPT_OK);
        must(ckpt_saver_fence(s) == CKPT_OK);
        train_update(&t);
        ckpt_next_batch(&at, TRAIN_SAMPLES, 0, 0);
        if (at.batch == p->began + 3 && p->asks == ranks->rank) ckpt_saver_request(s);
        if (p->asks >= 0) usleep(100000);       // requests are heard about once a second
        must(ckpt_saver_batch_end(s, &at) == CKPT_OK);
    }
    must(train_hash(&t, &hash) == CKPT_OK && hash == ref[p->end]);
    must(ckpt_saver_close(s, 0) == CKPT_OK);
    ckpt_state_free(&st);
    train_free(&t);
    return 0;
}

static void run_on(int world, bool threads, plan *p) {
    if (threads) {
        assert_int_equal(fork_ranks_threads(world, 60, body, p), 0);
        return;
    }
    fork_ranks job;
    fork_ranks_start(&job, world, 60, body, p);
    for (int i = 0; i < world; i++) {
        int status = fork_ranks_wait(&job, i, 120);
        if (status == 0) continue;
        fork_ranks_end(&job);
        fail_msg("rank %d of %d: status %d", i, world, status);
    }
}

static void there_and_back(bool threads) {
    static const struct { int world; int64_t began, end; } legs[] = { { 4, 0, 25 }, { 3, 20, 37 }, { 1, 30, 45 }, { 8, 40, 60 }, { 2, 60, 61 } };
    static const char *const names[] = { NULL, "{batch}.pt", "b.safetensors" };
    learn();
    for (int mode = 0; mode < 3; mode++) {
        plan p;
        memset(&p, 0, sizeof p);
        p.dir = util_join(util_temp_dir(), "run");
        p.snapshot = (ckpt_snapshot)mode;
        p.filename = names[mode];
        p.every = 10;
        p.asks = -1;
        for (int i = 0; i < UTIL_COUNT(legs); i++) {
            p.began = legs[i].began;
            p.end = legs[i].end;
            run_on(legs[i].world, threads, &p);
        }
    }
}

static void test_processes(void **state) {
    (void)state;
    there_and_back(false);
}

static void test_threads(void **state) {
    (void)state;
    there_and_back(true);
}

// A rank that asks for a checkpoint has one from all: of the same step, for it loads.
static void test_request(void **state) {
    (void)state;
    learn();
    for (int who = 0; who < 3; who += 2) {
        plan p;
        memset(&p, 0, sizeof p);
        p.dir = util_join(util_temp_dir(), "run");
        p.every = 1000;
        p.asks = who;
        p.end = 40;
        run_on(3, false, &p);
        int found = -1;
        for (int i = 1; i <= 40; i++) if (util_exists(util_join(p.dir, util_fmt("ep0-ba%d/.metadata", i)))) found = i;
        assert_in_range(found, 3, 39);
        p.began = p.end = found;
        p.asks = -1;
        run_on(2, false, &p);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_processes), cmocka_unit_test(test_threads), cmocka_unit_test(test_request) };
    util_clear_env();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
