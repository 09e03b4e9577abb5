/* ranks_kill.c: jobs of 8 ranks save checkpoints, sharded ones first of all; in each round one rank, any of them, is killed or stopped at a random instant.
   The others must all come back with an error that names it, in time; what was reported as saved must be there; and restarts on 8, 3
   and 1 ranks must find the same checkpoint, bit for bit what training had made of it. One shared folder, and one for each rank with a
   store: file://, or the S3 URI in CKPT_RANKS_STORE when it was built with RANKS_KILL_REMOTE. CKPT_KILLS says how many rounds (14),
   CKPT_SEED which, CKPT_CONFIGS (digits) with which settings. run.sh: no-asan no-tsan libs=-lm */

#ifndef RANKS_KILL_REMOTE
    #define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../fork_ranks.h"
#include "../../examples/ranks_train.h"
#include <sys/mman.h>

enum { WORLD = 8, ROWS = 1501, STEPS = 20000, KEEP = 2, REMOTE = 3 };
#ifdef RANKS_KILL_REMOTE
#define LIMIT 6.0           // seconds that a rank may be missing: a busy machine's server takes some to answer rank 0, who resumes
#else
#define LIMIT 5.0
#endif
#define SOON  2.5           // after a death; a busy machine included

typedef struct config {
    const char   *name;
    ckpt_snapshot snapshot;
    bool          nodes, store;         // a folder for each rank; a store
    enum { SHARDED, WHOLE, TARS } layout;
} config;

static const config configs[] = {
    { "none, one folder", CKPT_SNAPSHOT_NONE, false, false, SHARDED },
    { "copy, one folder, store", CKPT_SNAPSHOT_COPY, false, true, SHARDED },
    { "lazy, folders apart, store", CKPT_SNAPSHOT_LAZY, true, true, SHARDED },
    { "lazy, one folder", CKPT_SNAPSHOT_LAZY, false, false, SHARDED },
    { "none, folders apart, store", CKPT_SNAPSHOT_NONE, true, true, SHARDED },
    { "copy, folders apart", CKPT_SNAPSHOT_COPY, true, false, SHARDED },
    { "copy, folders apart, store", CKPT_SNAPSHOT_COPY, true, true, SHARDED },
    { "copy, rank 0 writes one file", CKPT_SNAPSHOT_COPY, false, false, WHOLE },
    { "lazy, rank 0 writes one file, store", CKPT_SNAPSHOT_LAZY, false, true, WHOLE },
    { "lazy, a tarball of each rank", CKPT_SNAPSHOT_LAZY, false, false, TARS },
};

// What the ranks tell, in memory that outlives them.
typedef struct ledger {
    uint64_t        ref[STEPS];         // hashes after each step, by a single process
    volatile int    events[WORLD], error[WORLD], line[WORLD];
    volatile double failed_at[WORLD];
    volatile int64_t resumed[WORLD];    // -1: not yet
    int64_t         acked;              // the newest step that any rank was told is saved
    char            why[WORLD][1100];
} ledger;

typedef struct job {
    const config *c;
    const char   *dir, *uri, *local;    // where the ranks live; the store; the folder of checkpoints in the former
    int64_t       least, steps;         // what a resume must give at least; how many steps to go (0: only look)
    bool          fresh;                // in new folders: all must come from the store
    int           round;
} job;

static ledger *shared;
static int64_t known;                   // steps in ref
static train_run single;
static ckpt_ranks alone;

static void learn(int64_t steps) {
    int64_t stop = 0;
    assert_true(steps < STEPS);
    if (known == 0) {
        alone.world_size = 1;
        assert_true(train_init(&single, &alone, ROWS));
        assert_int_equal(train_hash(&single, &shared->ref[0]), CKPT_OK);
    }
    for (; known < steps; known++) {
        assert_int_equal(train_forward(&single, &stop), CKPT_OK);
        train_update(&single);
        assert_int_equal(train_hash(&single, &shared->ref[known + 1]), CKPT_OK);
    }
}

static void ack(int64_t step) {
    int64_t old = __atomic_load_n(&shared->acked, __ATOMIC_SEQ_CST);
    while (old < step && !__atomic_compare_exchange_n(&shared->acked, &old, step, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
}

//-- one rank ----------------------------------------------------------------------

// Notes the first failure of a rank.
static bool well(const ckpt_ranks *r, ckpt_err e, int line) {
    if (e == CKPT_OK) return true;
    if (shared->error[r->rank] == 0) {
        snprintf(shared->why[r->rank], sizeof shared->why[0], "%s", ckpt_last_error());
        shared->failed_at[r->rank] = ranks_tcp_now();
        shared->line[r->rank] = line;
        shared->error[r->rank] = (int)e;
    }
    return false;
}
#define WELL(call) well(ranks, (call), __LINE__)

static bool wrong(const ckpt_ranks *r, int line, const char *what) {
    snprintf(shared->why[r->rank], sizeof shared->why[0], "WRONG: %s", what);
    shared->line[r->rank] = line;
    shared->error[r->rank] = -1;
    return false;
}

static bool steps(const job *j, const ckpt_ranks *ranks, train_run *t, ckpt_saver *s, ckpt_timestamp *at) {
    int64_t stop = 0;
    for (int64_t k = 0; k < j->steps; k++) {
        if (!WELL(train_forward(t, &stop)) || !WELL(ckpt_saver_fence(s))) return false;
        train_update(t);
        ckpt_next_batch(at, TRAIN_SAMPLES, 0, 0);
        if (!WELL(ckpt_saver_batch_end(s, at))) return false;
        shared->events[ranks->rank]++;
        if (k % 4 != 3) continue;
        if (!WELL(ckpt_saver_wait(s, 0))) return false;
        ack(at->batch);
    }
    return true;
}

static bool look(const job *j, const ckpt_ranks *ranks, train_run *t, ckpt_saver *s, ckpt_timestamp *at) {
    uint64_t hash;
    ckpt_err e = ckpt_saver_resume(s, at);
    if (e != CKPT_NOT_FOUND && !WELL(e)) return false;
    if (e == CKPT_NOT_FOUND && (at->batch != 0 || t->step != 0)) return wrong(ranks, __LINE__, "nothing was found, and something loaded");
    if (at->batch < j->least) return wrong(ranks, __LINE__, "a checkpoint that was reported is lost");
    if (at->batch != t->step || at->batch >= STEPS) return wrong(ranks, __LINE__, "the time and the state do not fit together");
    if (!WELL(train_hash(t, &hash))) return false;
    if (hash != shared->ref[at->batch]) return wrong(ranks, __LINE__, "other weights than training had made");
    shared->resumed[ranks->rank] = at->batch;
    return true;
}

static int run(const ckpt_ranks *ranks, void *user) {
    const job *j = (const job *)user;
    char dir[600], uri[600];
    train_run t;
    ckpt_state st;
    ckpt_saver *s = NULL;
    ckpt_timestamp at;
    ckpt_saver_desc d;
    memset(&st, 0, sizeof st);
    memset(&at, 0, sizeof at);
    memset(&d, 0, sizeof d);
    snprintf(dir, sizeof dir, j->fresh ? "%s/fresh%d" : j->c->nodes ? "%s/node%d" : "%s", j->dir, ranks->rank);
    snprintf(uri, sizeof uri, "%s/run", j->uri);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return 2;
    // Where nothing is split, each rank trains all of it.
    if (chdir(dir) != 0 || !train_init(&t, j->c->layout == SHARDED ? ranks : &alone, ROWS)) return 2;
    train_bind(&st, &t);
    d.state = &st;
    d.run_name = "kill";
    d.folder = j->c->store ? uri : "run";
    d.save_interval = "1ba";
    d.num_checkpoints_to_keep = KEEP;
    d.num_remote_to_keep = REMOTE;
    d.snapshot = j->c->snapshot;
    d.sharded = j->c->layout == SHARDED;
    d.per_rank_tar = j->c->layout == TARS;
    d.ranks = *ranks;
    d.ranks.local_rank = 0;             // each rank stands for a machine
    d.ranks.local_world_size = 1;
    d.ranks.node_rank = ranks->rank;
    bool good = WELL(ckpt_saver_open(&s, &d)) && look(j, ranks, &t, s, &at) && steps(j, ranks, &t, s, &at);
    if (good || s != NULL) good = WELL(ckpt_saver_close(s, 0)) && good;
    if (good && j->steps > 0) ack(at.batch);
    ckpt_state_free(&st);
    train_free(&t);
    return good ? 0 : 1;
}

//-- the rounds --------------------------------------------------------------------

static void complain(const job *j, fork_ranks *f, const char *what) {
    for (int i = 0; i < f->count; i++)
        print_error("    rank %d: line %d, code %d, %.3f: %s\n", i, shared->line[i], shared->error[i], shared->failed_at[i], shared->why[i]);
    fork_ranks_end(f);
    fail_msg("round %d (%s): %s", j->round, j->c->name, what);
}

static void forget(void) {
    for (int i = 0; i < WORLD; i++) {
        shared->events[i] = shared->error[i] = shared->line[i] = 0;
        shared->failed_at[i] = 0;
        shared->resumed[i] = -1;
        shared->why[i][0] = 0;
    }
}

// A job that nobody disturbs.
static int64_t undisturbed(const job *j, int world) {
    fork_ranks f;
    forget();
    fork_ranks_start(&f, world, 60, run, (void *)(uintptr_t)j);
    for (int i = 0; i < world; i++) {
        if (fork_ranks_wait(&f, i, 90) != 0) complain(j, &f, util_fmt("a job of %d ranks that nobody disturbs: rank %d fails", world, i));
        if (shared->resumed[i] != shared->resumed[0]) complain(j, &f, "ranks resume at different steps");
    }
    return shared->resumed[0];
}

// True when everybody, but the victim, ended with an error that names it.
static void bereaved(const job *j, fork_ranks *f, int victim, bool stopped, double at) {
    const char *name = util_fmt("rank %d has", victim);
    for (int i = 0; i < WORLD; i++) {
        if (i == victim) continue;
        int status = fork_ranks_wait(f, i, stopped ? LIMIT * 2 + 15 : 15);
        double took = shared->failed_at[i] - at;
        if (status == -1) complain(j, f, util_fmt("rank %d hangs after rank %d was %s", i, victim, stopped ? "stopped" : "killed"));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || shared->error[i] <= 0 || strstr(shared->why[i], name) == NULL)
            complain(j, f, util_fmt("rank %d ended with status %x, and not because of rank %d", i, (unsigned)status, victim));
        if (took > (stopped ? LIMIT * 1.5 + SOON : SOON)) complain(j, f, util_fmt("rank %d took %.3f s to notice", i, took));
    }
}

static int dead, stopped, woken, saves;

static void round_of(job *j) {
    fork_ranks f;
    int victim = rand() % WORLD, more = 1 + rand() % 12, stop = j->round % 5 == 3;
    forget();
    j->least = shared->acked;
    j->steps = STEPS;
    j->fresh = false;
    learn(shared->acked + 200);
    fork_ranks_start(&f, WORLD, LIMIT, run, j);
    // Some go while they open and resume, most while they save.
    bool early = j->round % 7 == 5;
    for (int k = 0; !early && k < 60000 && shared->events[victim] < more && shared->error[victim] == 0; k++) usleep(500);
    usleep((useconds_t)(rand() % (early ? 60000 : 15000)));
    double at = ranks_tcp_now();
    if (kill(f.pid[victim], stop ? SIGSTOP : SIGKILL) != 0) fail_msg("no process to kill");
    bereaved(j, &f, victim, stop, at);
    if (stop && j->round % 2 == 0) {                            // it wakes up when all is over, and must do no harm
        assert_int_equal(kill(f.pid[victim], SIGCONT), 0);
        if (fork_ranks_wait(&f, victim, 15) == -1) complain(j, &f, "a rank that was woken hangs");
        if (shared->error[victim] <= 0) complain(j, &f, "a rank that was left behind does not know");
        woken++;
    }
    fork_ranks_end(&f);
    dead += !stop;
    stopped += stop;
    saves += shared->events[victim];
}

// Every directory that counts as a checkpoint is whole.
static int count_whole(const job *j, const char *folder) {
    char *names = util_fmt("%s", util_list(folder));
    int count = 0;
    for (char *name = strtok(names, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        const char *path = util_join(folder, name);
        if (util_link_target(path) != NULL || !util_exists(util_join(path, ".metadata"))) continue;
        if (ckpt_verify(path, NULL) != CKPT_OK) fail_msg("round %d (%s): %s does not verify: %s", j->round, j->c->name, path, ckpt_last_error());
        count++;
    }
    return count;
}

static void restarts(job *j, const char *bucket) {
    static const int worlds[] = { 8, 3, 1 };
    int64_t first = -1;
    learn(shared->acked + 400);
    j->least = shared->acked;
    j->steps = 0;
    if (j->c->layout == SHARDED && !j->c->nodes) {
        const char *latest = util_join(j->local, "latest-rank0.pt");
        (void)count_whole(j, j->local);
        if (j->least > 0 && util_link_target(latest) == NULL) fail_msg("round %d (%s): no %s", j->round, j->c->name, latest);
        if (util_link_target(latest) != NULL && ckpt_verify(latest, NULL) != CKPT_OK)
            fail_msg("round %d (%s): the latest: %s", j->round, j->c->name, ckpt_last_error());
    }
    if (j->c->layout == SHARDED && j->c->store && bucket[0] != 0) (void)count_whole(j, util_join(bucket, "run"));
    for (int k = 0; k < 3; k++) {
        if (k > 0 && j->c->nodes && !j->c->store) break;        // the pieces of other ranks are on other machines
        if (k > 0 && j->c->layout == TARS) break;               // as many ranks as there were
        j->fresh = k > 0 && j->c->nodes;
        if (j->fresh && system(util_fmt("rm -rf '%s'/fresh*", j->dir)) != 0) fail_msg("cannot tidy");
        int64_t at = undisturbed(j, worlds[k]);
        // Of one file and of tarballs the store may have less than the folders, never less than was reported. A sharded one that
        // the first restart went on from is in the store now.
        bool less = j->fresh && at < first && j->c->layout != SHARDED;
        if (first >= 0 && at != first && !less)
            fail_msg("round %d (%s): resumes at %d and at %d", j->round, j->c->name, (int)first, (int)at);
        first = at;
    }
}

static void test_killed(void **state) {
    (void)state;
    const char *often = getenv("CKPT_KILLS"), *seed = getenv("CKPT_SEED"), *store = getenv("CKPT_RANKS_STORE"), *which = getenv("CKPT_CONFIGS");
    int rounds = often != NULL ? atoi(often) : 14, count, done = 0;
    srand(seed != NULL ? (unsigned)atoi(seed) : 1);
    if (which == NULL) which = "0123456789";
    count = (int)strlen(which);
    for (int i = 0; i < count; i++) {
        int mine = rounds / count + (i < rounds % count);
        job j;
        memset(&j, 0, sizeof j);
        if (which[i] < '0' || which[i] >= '0' + UTIL_COUNT(configs)) fail_msg("no such settings: %c", which[i]);
        j.c = &configs[which[i] - '0'];
        j.dir = util_temp_dir();
        const char *bucket = util_join(j.dir, "bucket");
        util_mkdir(bucket);
        j.uri = store != NULL ? util_fmt("%s/%d-%d", store, (int)getpid(), i) : util_fmt("file://%s", bucket);
        j.local = util_join(j.dir, "run");
        if (j.c->store) {               // the path in the URI, without the bucket
            const char *path = strstr(j.uri, "://") + 3;
            j.local = util_fmt("%s%s/run", j.dir, store != NULL ? strchr(path, '/') : path);
        }
        shared->acked = 0;
        double begin = ranks_tcp_now();
        for (int k = 0; k < mine; k++) {
            j.round = done++;
            round_of(&j);
            restarts(&j, store != NULL ? "" : bucket);
        }
        if (mine == 0) continue;
        j.steps = KEEP + REMOTE + 1;
        j.fresh = false;
        learn(shared->acked + 400);
        (void)undisturbed(&j, WORLD);
        if (j.c->layout == SHARDED && !j.c->nodes) assert_int_equal(count_whole(&j, j.local), KEEP);
        if (j.c->layout == SHARDED && j.c->store && store == NULL) assert_int_equal(count_whole(&j, util_join(bucket, "run")), REMOTE);
        printf("%s: %d rounds in %.1f s, the last checkpoint is of step %d\n", j.c->name, mine, ranks_tcp_now() - begin, (int)shared->acked);
        fflush(stdout);
    }
    printf("%d ranks killed, %d stopped (%d of them woken), %d saves\n", dead, stopped, woken, saves);
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_killed) };
    util_clear_env();
    shared = (ledger *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
