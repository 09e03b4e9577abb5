/* test_model.c: random lives of a run against a model of it: saves in all modes, rotation by every rule, pins, deaths at any system
   call, and what people do by hand between two lives (files deleted, damaged and renamed; the link or the index deleted).
   run.sh: no-tsan

   A life is a forked process. What it says of its saves lies in shared memory, so that it outlives a death. After each life the
   folder is compared with what must be there, must not be there, and must be resumed from. A seed decides everything but the
   order of threads. More lives: CKPT_LONG=1; one scenario: MODEL_SEED=n. */
#include "faults.h"
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../saver_util.h"
#include "mortal.h"

enum { BATCHES = 200 };

typedef struct save {
    bool started, told, there, whole;       // told: reported saved; there, whole: as the last look found it
    bool pinned;
} save;

typedef struct model {
    save saves[BATCHES];
    int  resumed, saved, line;              // of the last life: where it began, how many saves it was told of, what failed
    char why[400];
} model;

typedef struct scene {
    model       *m;
    const char  *dir, *kept;                // kept: a copy that somebody has renamed, NULL: none
    uint64_t     random;
    int          keep, every, last;         // last: newest batch ever
    bool         best, linked;
    ckpt_snapshot snapshot;
    unsigned     seed;
    int          life;
    struct stat  link;                      // as latest was before this life; st_ino 0: there was none
} scene;

static unsigned pick(scene *s, unsigned n) { return mortal_pick(&s->random, n); }

static const char *file_of(const scene *s, int batch) { return util_join(s->dir, util_fmt("ba%d.pt", batch)); }

#define LIFE_MUST(cond) do { if (!(cond)) { s->m->line = __LINE__; \
    (void)snprintf(s->m->why, sizeof s->m->why, "%.150s; %.240s", #cond, ckpt_last_error()); _exit(1); } } while (0)

// Resumes from `expected` (0: from nothing), saves some batches and closes, or dies before.
static void live(scene *s, int expected, int count, unsigned waits) {
    run *r = run_new(s->dir);
    ckpt_timestamp t = at_batch(0);
    r->d.num_checkpoints_to_keep = s->keep;
    r->d.keep_every = s->every;
    r->d.keep_best = s->best ? "min:state/metrics/loss" : NULL;
    r->d.snapshot = s->snapshot;
    r->d.latest_filename = s->linked ? "latest.pt" : CKPT_NONE;
    LIFE_MUST(ckpt_saver_open(&r->s, &r->d) == CKPT_OK);
    ckpt_err e = ckpt_saver_resume(r->s, &t);
    LIFE_MUST(e == (expected > 0 ? CKPT_OK : CKPT_NOT_FOUND) || (expected == 0 && e == CKPT_CORRUPT));
    LIFE_MUST(t.batch == expected && (expected == 0 || r->step == expected));
    s->m->resumed = expected;
    if (e == CKPT_CORRUPT) count = 0;       // all are damaged: somebody has to decide what becomes of them
    for (int i = 0, untold = expected; i < count; i++) {
        LIFE_MUST(ckpt_saver_fence(r->s) == CKPT_OK);
        ckpt_next_batch(&t, 1, 0, 0.001);
        run_set(r, t.batch);
        s->m->saves[t.batch].started = true;
        LIFE_MUST(ckpt_saver_batch_end(r->s, &t) == CKPT_OK);
        bool last = i + 1 == count;
        if (s->snapshot != CKPT_SNAPSHOT_NONE && !last && (waits >> (i % 16) & 1u) != 0) continue;
        LIFE_MUST(ckpt_saver_wait(r->s, 0) == CKPT_OK);
        while (untold < t.batch) { s->m->saves[++untold].told = true; s->m->saved++; }
    }
    LIFE_MUST(ckpt_saver_close(r->s, 0) == CKPT_OK);
    ckpt_state_free(&r->st);
    _exit(0);
}

static void complain(const scene *s, int line, const char *what) {
    char text[1200] = "";
    for (int b = 1, n = 0; b <= s->last && n < 1000; b++) {
        const save *v = &s->m->saves[b];
        n += snprintf(text + n, sizeof text - (size_t)n, " %d%s%s%s%s", b, v->told ? "t" : "", v->there ? "+" : "-", v->whole ? "" : "!",
                      v->pinned ? "p" : "");
    }
    fail_msg("line %d, MODEL_SEED=%u life %d: %s\n    keep %d every %d best %d snapshot %d, resumed %d saved %d\n    saves%s\n    files %s",
             line, s->seed, s->life, what, s->keep, s->every, (int)s->best, (int)s->snapshot, s->m->resumed, s->m->saved, text,
             names_in(s->dir));
}

#define HOLDS(cond, what) do { if (!(cond)) complain(s, __LINE__, (what)); } while (0)

// Does the file hold what training had made at `batch`?
static bool whole(const char *path, int batch) {
    run *r = run_new(".");
    ckpt_load_desc l;
    ckpt_timestamp t;
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = &r->st;
    bool good = ckpt_load(&l, &t) == CKPT_OK && t.batch == batch && r->step == batch && r->w[7] == (float)(batch * 7 + 7);
    ckpt_state_free(&r->st);
    return good;
}

static void look(scene *s) {
    for (int b = 1; b <= s->last; b++) {
        s->m->saves[b].there = util_exists(file_of(s, b));
        s->m->saves[b].whole = s->m->saves[b].there && whole(file_of(s, b), b);
    }
}

static int newest(const scene *s) {
    int b = s->last;
    while (b > 0 && !s->m->saves[b].whole) b--;
    return b;
}

// What a life without a death leaves behind when it has saved: what a rule keeps, and nothing else.
static void check_rules(scene *s) {
    ckpt_folder *f;
    ckpt_folder_desc d;
    int best = -1, left = s->keep;
    memset(&d, 0, sizeof d);
    d.folder = s->dir;
    ok(ckpt_folder_open(&f, &d));
    ckpt_checkpoint c;
    for (int i = 0; i < ckpt_folder_count(f); i++) {
        ok(ckpt_folder_entry(f, i, &c));
        if (c.missing || c.damaged || !s->m->saves[c.timestamp.batch].whole) continue;
        if (best < 0 || loss_of((int)c.timestamp.batch) < loss_of(best)) best = (int)c.timestamp.batch;
    }
    for (int b = s->last; b > 0; b--) {
        if (!s->m->saves[b].whole) continue;
        int at = ckpt_folder_find(f, util_fmt("ba%d.pt", b));
        HOLDS(at >= 0, util_fmt("ba%d.pt is not listed", b));
        ok(ckpt_folder_entry(f, at, &c));
        bool kept = left-- > 0 || (s->every > 0 && c.number % (uint64_t)s->every == 0) || (s->best && b == best) || s->m->saves[b].pinned;
        HOLDS(c.pinned == s->m->saves[b].pinned, util_fmt("the pin of ba%d.pt", b));
        HOLDS(kept, util_fmt("ba%d.pt is kept by no rule", b));
    }
    ckpt_folder_close(f);
}

// After a life: `before` is how the folder was then.
static void check(scene *s, const save *before, bool died) {
    double least = 1e9, now_least = 1e9;
    int told = 0;
    while (s->last + 1 < BATCHES && s->m->saves[s->last + 1].started) s->last++;
    look(s);
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        bool mine = b > s->m->resumed && v->told, had = b <= s->m->resumed && before[b].whole;
        HOLDS(!v->there || v->whole || !before[b].whole, util_fmt("ba%d.pt was whole and is damaged", b));
        HOLDS(!v->there || v->whole || before[b].there, util_fmt("ba%d.pt is not whole", b));
        if (mine) told = b;
        if ((mine || had) && loss_of(b) < least) least = loss_of(b);
        if (v->there && loss_of(b) < now_least) now_least = loss_of(b);        // nobody knows of damage before it is read
        HOLDS(!before[b].pinned || !before[b].whole || v->whole, util_fmt("ba%d.pt was pinned and is gone", b));
        HOLDS(s->keep != CKPT_KEEP_ALL || !(mine || had) || v->whole, util_fmt("ba%d.pt is gone though all are kept", b));
    }
    HOLDS(newest(s) >= told && (told > 0 || newest(s) >= s->m->resumed), "the newest checkpoint that was reported is gone");
    HOLDS(!s->best || now_least <= least, "the best checkpoint is gone");
    const char *latest = util_join(s->dir, "latest.pt");
    if (s->linked && (told > 0 || util_exists(latest))) {
        char to[200] = "";
        ssize_t n = readlink(latest, to, sizeof to - 1);
        int batch = 0;
        HOLDS(n > 0 && sscanf(to, "ba%d.pt", &batch) == 1 && batch >= told, util_fmt("latest leads to %s", to));
        // Somebody took away what it leads to, and this life began to save that again, but died before it came to the link.
        struct stat now;
        bool untouched = lstat(latest, &now) == 0 && now.st_ino == s->link.st_ino && now.st_mtim.tv_sec == s->link.st_mtim.tv_sec &&
                         now.st_mtim.tv_nsec == s->link.st_mtim.tv_nsec;
        bool by_hand = batch <= s->last && !before[batch].whole && (batch <= s->m->resumed || !s->m->saves[batch].started || untouched);
        HOLDS(batch <= s->last && (s->m->saves[batch].whole || by_hand), util_fmt("latest leads to %s, which is not whole", to));
    }
    HOLDS(s->kept == NULL || util_exists(s->kept), "somebody's own copy is gone");
    if (!died && s->m->saved > 0 && s->keep > 0) check_rules(s);
}

// What people do between two lives of a run.
static void meddle(scene *s) {
    int b = s->last > 0 ? 1 + (int)pick(s, (unsigned)s->last) : 0;
    save *v = &s->m->saves[b];
    ckpt_folder *f;
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = s->dir;
    if (b == 0 || !v->whole) return;
    switch (pick(s, 9)) {
    case 0:
        assert_int_equal(unlink(file_of(s, b)), 0);
        v->pinned = false;
        break;
    case 1: {
        int fd = open(file_of(s, b), O_RDWR);
        char byte = 0;
        assert_true(fd >= 0 && pread(fd, &byte, 1, 6000) == 1);
        byte = (char)(byte ^ 1);
        assert_true(pwrite(fd, &byte, 1, 6000) == 1);
        close(fd);
        break;
    }
    case 2:
        if (s->kept != NULL) break;
        s->kept = util_join(s->dir, "mine.pt");
        assert_int_equal(rename(file_of(s, b), s->kept), 0);
        v->pinned = false;
        break;
    case 3:
    case 4:
    case 5: {
        ok(ckpt_folder_open(&f, &d));
        int at = ckpt_folder_find(f, util_fmt("ba%d.pt", b));
        HOLDS(at >= 0, "it cannot be pinned");
        ok(ckpt_folder_pin(f, at, !v->pinned));
        v->pinned = !v->pinned;
        ckpt_folder_close(f);
        break;
    }
    case 6: (void)unlink(util_join(s->dir, "latest.pt")); break;
    case 7:
        if (s->kept != NULL) break;         // without the index a copy looks like a checkpoint, and is nobody's
        (void)unlink(util_join(s->dir, ".ckpt-index.jsonl"));
        for (int i = 1; i <= s->last; i++) s->m->saves[i].pinned = false;
        break;
    default: break;
    }
    look(s);
}

static void scenario(scene *s, int lives) {
    for (s->life = 0; s->life < lives; s->life++) {
        static save before[BATCHES];
        int expected = newest(s), count = (int)pick(s, 7), dies = pick(s, 2) == 0 ? 1 + (int)pick(s, 60u + 90u * (unsigned)count) : 0;
        unsigned waits = pick(s, 65536);
        if (expected + count + 1 >= BATCHES) break;
        memcpy(before, s->m->saves, sizeof before);
        memset(&s->link, 0, sizeof s->link);
        (void)lstat(util_join(s->dir, "latest.pt"), &s->link);
        for (int b = expected + 1; b < BATCHES; b++) s->m->saves[b].started = s->m->saves[b].told = false;
        s->m->saved = s->m->line = 0;
        s->m->resumed = expected;
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            deaths_in = dies;
            fault_watch = mortal;
            live(s, expected, count, waits);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        bool died = WIFEXITED(status) && WEXITSTATUS(status) == DIED;
        HOLDS(died || s->m->line == 0, util_fmt("line %d: %s", s->m->line, s->m->why));
        HOLDS(died || status == 0, util_fmt("status %x", (unsigned)status));
        check(s, before, died);
        for (int n = (int)pick(s, 3); n > 0; n--) meddle(s);
    }
}

static void test_model(void **state) {
    (void)state;
    static const int keeps[] = { CKPT_KEEP_ALL, 1, 2, 3, 1, 2 };
    mortal_seeds seeds = mortal_choose(24, 2000);
    void *shared = mortal_memory(sizeof(model));
    for (unsigned seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        scene s;
        memset(&s, 0, sizeof s);
        memset(shared, 0, sizeof(model));
        s.m = (model *)shared;
        s.seed = seed;
        s.random = mortal_random(seed);
        s.dir = util_temp_dir();
        s.keep = keeps[pick(&s, 6)];
        s.every = (int)pick(&s, 3) == 0 ? 2 + (int)pick(&s, 3) : 0;
        s.best = pick(&s, 2) == 0;
        s.linked = pick(&s, 5) != 0;
        s.snapshot = modes[pick(&s, 3)];
        scenario(&s, 12);
        util_remove_tree(s.dir);
    }
    assert_int_equal(munmap(shared, sizeof(model)), 0);
}

int main(void) {
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
