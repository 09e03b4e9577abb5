/* test_model_ranks.c: random lives of a run on several ranks, in each layout (sharded, a tarball for each rank, one file of rank 0's),
   against a model of what must be in its folders and stores: a rank that dies at any system call or in the middle of any request, alone or with all others; another number of
   ranks after a restart; stores that are away, fail now and then, refuse, or lose their answers; other settings; and what people do
   meanwhile (pins, checkpoints, shards and objects deleted or damaged, a machine's disk lost, a push).
   run.sh: no-tsan

   A life is a job of forked processes, joined by sockets. What they say of their saves lies in shared memory, so that it outlives a
   death. A seed decides everything but the order of threads and processes. More lives: CKPT_LONG=1; one scenario: MODEL_SEED=n. */
#define CKPT_NO_REMOTE
#define CKPT__SEND_MIB 1024             // parts of 8 to 64 KiB
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../saver_util.h"
#include "../fork_ranks.h"
#include "mortal.h"
#include "moody.h"

typedef enum layout { SHARDED, TARS, WHOLE } layout;

enum { BATCHES = 150, STORES = 2, MOST = 3, ROWS = 20, COLS = 150, CODES = 400 };

typedef struct save {
    bool     started, told;             // told: reported saved
    bool     here, whole, staged;       // as the last look found it
    bool     doubtful;                  // of a future that the run went back from, or cut off: resume need not give it
    bool     rubbish;                   // a machine has a folder of its that is no checkpoint
    bool     refused;                   // staged, and the store had another of that name: parts that a lost machine had left
    bool     far[STORES];               // whole in that store
    bool     pinned;
    bool     maybe;                     // pinned for a store: somebody deleted the folder, or a life died while it pinned
    uint64_t number[STORES];            // of the save, as its .metadata says
    place_says says[STORES];            // what the copy of the ledger there knows of it
} save;

typedef struct model {
    save saves[BATCHES];
    int  link[STORES], latest;          // 0: none; -1: to something that is not there; latest: of the folder
    int  named[STORES];                 // what rank 0's link names, be that whole or not; 0: nothing
    bool astray;                        // TARS: the latest of another rank leads to something that is not there
    int  resumed, line;                 // of the last life: where it began, what failed first
    int  settled;                       // it ended with healthy stores: all that it has saved is there
    bool dead;                          // a rank has died in it
    bool owes[STORES];                  // it could not remove something, or look for it: the next save or life asks again
    int  codes[MOST][CODES], asked[MOST];       // what the calls of each rank returned
    char why[500];
} model;

typedef struct rules { int keep, far, every; bool best; ckpt_snapshot snapshot; } rules;

typedef struct plan {
    int      floor, count, workers, world;      // floor: what resume must give at least
    int      victim, dies;              // the rank that dies, and at which step; 0: none
    bool     sudden;                    // all others are killed with it
    unsigned waits;
    mood     how[STORES];
    int      from[STORES], until[STORES];
    bool     offline, heals, pins, impatient;
} plan;

typedef struct scene {
    model      *m;
    const char *work, *bucket[STORES];
    uint64_t    random;
    int         stores, last;           // last: newest batch ever
    int         world;                  // of the last life
    layout      layout;
    bool        uri;                    // the folder is a file:// URI; else the stores are the user's own
    bool        apart;                  // each rank has a machine of its own
    const char *ending;
    bool        elsewhere;              // what is staged lies in a folder of its own
    bool        steady;                 // no setting has changed, and nobody has taken anything out of a store
    bool        rolled;                 // a life may have gone on from an older one than the newest
    bool        straight;               // none has, nor has the run moved
    bool        damaged;                // somebody has damaged a file
    bool        moved;                  // rank 0 has just lost its disk
    int         promised;               // resume must give at least this one, without asking a store
    rules       r;
    const plan *p;
    unsigned    seed;
    int         life;
} scene;

static unsigned pick(scene *s, unsigned n) { return mortal_pick(&s->random, n); }

static int machines(const scene *s) { return s->apart ? s->world : 1; }
static const char *machine(const scene *s, int k) { return s->apart ? util_join(s->work, util_fmt("machine%d", k)) : s->work; }
static const char *folder_of(const scene *s, int k) { return s->uri ? util_fmt("%s%s", machine(s, k), s->bucket[0]) : util_join(machine(s, k), "run"); }

// Checkpoints and links of a rank; of SHARDED and WHOLE all ranks have one.
static int owners(const scene *s) { return s->layout == TARS ? s->world : 1; }
static const char *name_of(const scene *s, int rank, int batch) {
    if (s->layout == TARS) return util_fmt("ba%d-rank%d.tar", batch, rank);
    return util_fmt("ba%d%s", batch, s->layout == SHARDED ? "" : s->ending);
}
static const char *latest_of(const scene *s, int rank) { return s->layout == TARS ? util_fmt("latest-rank%d.tar", rank) : "latest.pt"; }
static const char *local_of(const scene *s, int k, int batch) { return util_join(folder_of(s, k), name_of(s, k, batch)); }
static const char *local_of_rank(const scene *s, int rank, int batch) { return util_join(folder_of(s, s->apart ? rank : 0), name_of(s, rank, batch)); }
static const char *object_of(const scene *s, int k, int rank, int batch) { return util_join(s->bucket[k], name_of(s, rank, batch)); }
static bool is_here(const scene *s, int batch) {            // rank 0 looks for them
    return util_exists(s->layout == SHARDED ? util_join(local_of(s, 0, batch), ".metadata") : local_of(s, 0, batch));
}
static const char *staging_of(const scene *s, int k) { return util_join(s->elsewhere ? machine(s, k) : folder_of(s, k), ".ckpt-staging"); }

//-- one rank's share of the state -------------------------------------------------------

typedef struct member {
    ckpt_state st;
    float      mine[ROWS * COLS], all[500];
    double     loss;
    int64_t    step, first, rows;
    char       rng[24], own[40];
} member;

// SHARDED: a piece, and a name of its own; TARS: all, and a name of its own; WHOLE: the same on all ranks.
static void member_bind(member *m, layout as, int rank, int world) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    if (as == WHOLE) rank = 0;
    int own = rank;
    if (as != SHARDED) rank = 0, world = 1;
    m->first = ROWS * rank / world;
    m->rows = ROWS * (rank + 1) / world - m->first;
    t.dtype = CKPT_F32;
    t.ndim = 2;
    t.shape[0] = m->rows;
    t.shape[1] = COLS;
    if (as == SHARDED) t.global_shape[0] = ROWS, t.global_shape[1] = COLS;
    t.offset[0] = m->first;
    t.data = m->mine;
    ckpt_bind(&m->st, "state/model/w", &t);
    ckpt_bind_f32(&m->st, "state/model/all", m->all, 500);
    ckpt_bind_float(&m->st, "state/metrics/loss", &m->loss);
    ckpt_bind_int(&m->st, "state/step", &m->step);
    (void)snprintf(m->own, sizeof m->own, "rng/%d/python", own);
    ckpt_bind_text(&m->st, m->own, m->rng, sizeof m->rng);
}

static void member_set(member *m, int64_t step) {
    m->step = step;
    m->loss = loss_of((int)step);
    for (int64_t i = 0; i < m->rows * COLS; i++) m->mine[i] = (float)(step * 10000 + m->first * COLS + i);
    for (int i = 0; i < 500; i++) m->all[i] = (float)(step * 3 + i);
    (void)snprintf(m->rng, sizeof m->rng, "rng-%d", (int)step);
}

static bool member_is(const member *m, int64_t step) {
    bool good = m->step == step && m->loss == loss_of((int)step);
    for (int64_t i = 0; i < m->rows * COLS; i++) good = good && m->mine[i] == (float)(step * 10000 + m->first * COLS + i);
    for (int i = 0; i < 500; i++) good = good && m->all[i] == (float)(step * 3 + i);
    return good;
}

//-- a life ----------------------------------------------------------------------------

typedef struct life {
    scene            *s;
    const plan       *p;
    const ckpt_ranks *ranks;
    member            m;
    ckpt_saver_desc   d;
    ckpt_saver       *saver;
    place             places[STORES];
    ckpt_uploader    *up[STORES];
    bool              ill;              // a store was not fine at some time
} life;

static bool first_failure(scene *s, int line) {
    int none = 0;
    return __atomic_compare_exchange_n(&s->m->line, &none, line, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// Once a rank has died the others may stop anywhere.
#define LIFE_MUST(cond) do { if (!(cond)) { \
    if (!s->m->dead && first_failure(s, __LINE__)) (void)snprintf(s->m->why, sizeof s->m->why, "rank %d: %.150s; %.300s", l->ranks->rank, #cond, ckpt_last_error()); \
    _exit(1); } } while (0)

static void show_log(ckpt_log_level level, const char *msg, void *user) {
    const life *l = (const life *)user;
    (void)level;
    FILE *f = fopen(util_join(l->s->work, "log"), "a");
    if (f != NULL) (void)fprintf(f, "life %d rank %d: %s\n", l->s->life, l->ranks->rank, msg);
    if (f != NULL) fclose(f);
}

// Notes what a call has returned: the same on every rank.
static ckpt_err said(life *l, ckpt_err e, const char *what) {
    int rank = l->ranks->rank, n = l->s->m->asked[rank]++;
    if (n < CODES) l->s->m->codes[rank][n] = (int)e;
    if (getenv("MODEL_SHOW") != NULL) show_log(CKPT_LOG_INFO, util_fmt("%s: %s %s", what, ckpt_err_name(e), e != CKPT_OK ? ckpt_last_error() : ""), l);
    return e;
}

// A call may return what a store has done, or that a rank has died; nothing else goes wrong in a life.
static void may(life *l, ckpt_err e, const char *what) {
    scene *s = l->s;
    (void)said(l, e, what);
    if (e == CKPT_OK || s->m->dead || (l->ill && (e == CKPT_NET || e == CKPT_AUTH))) return;
    if ((e == CKPT_TIMEOUT && l->p->impatient) || (e == CKPT_CORRUPT && s->damaged)) return;
    // A life that did not ask its store, or was told of nothing there, began anew; or the run moved to another machine.
    if (e == CKPT_EXISTS && (!s->straight || (s->m->resumed == 0 && s->last > 0))) return;
    if (first_failure(s, __LINE__)) (void)snprintf(s->m->why, sizeof s->m->why, "rank %d: %s: %s; %.300s", l->ranks->rank, what, ckpt_err_name(e), ckpt_last_error());
    _exit(1);
}

static void open_stores(life *l) {
    scene *s = l->s;
    const plan *p = l->p;
    if (s->uri) {
        l->d.folder = util_fmt("file://%s", s->bucket[0]);
        l->d.upload_staging_folder = s->elsewhere ? staging_of(s, l->ranks->rank) : NULL;
        l->d.num_concurrent_uploads = p->workers;
        return;
    }
    ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(STORES, sizeof *list), false);
    ckpt_err failed = CKPT_OK;
    for (int k = 0; k < s->stores; k++) {
        ckpt_uploader_desc d;
        place *at = &l->places[k];
        at->dir = s->bucket[k];
        at->name = k == 0 ? "A" : "B";
        at->owes = &s->m->owes[k];
        at->how = p->how[k];
        at->from = p->from[k];
        at->until = p->until[k];
        at->random = (unsigned)s->random + (unsigned)(k + 7 * l->ranks->rank);
        l->ill = l->ill || at->how != FINE;
        memset(&d, 0, sizeof d);
        if (getenv("MODEL_SHOW") != NULL) d.logger.fn = show_log, d.logger.user = l;
        d.store = place_store(at);
        d.num_attempts = 1 + (int)(p->waits & 1u);
        d.num_concurrent_uploads = p->workers;
        d.ranks = l->d.ranks;
        d.upload_staging_folder = s->elsewhere ? staging_of(s, l->ranks->rank) : NULL;
        ckpt_err e = ckpt_uploader_open(&l->up[k], &d);
        LIFE_MUST(e == CKPT_OK || l->ill);
        if (e != CKPT_OK) failed = e;       // the trial has failed
        list[k] = l->up[k];
    }
    int64_t none = failed == CKPT_OK;
    if (l->ranks->allreduce_min != NULL && l->ranks->allreduce_min(&none, 1, l->ranks->user) != CKPT_OK) _exit(1);
    if (none == 0) _exit(0);
    if (s->stores == 0) return;
    l->d.uploaders = list;
    l->d.uploaders_count = s->stores;
    l->d.remote_file_name = util_fmt("run/%s", l->d.filename);
    l->d.latest_remote_file_name = util_fmt("run/%s", l->d.latest_filename);
}

static void pin_one(life *l, int newest_batch) {
    scene *s = l->s;
    ckpt_folder *f;
    ckpt_folder_desc d;
    ckpt_checkpoint c;
    if (l->ranks->rank != 0) return;
    memset(&d, 0, sizeof d);
    d.folder = folder_of(s, 0);
    LIFE_MUST(ckpt_folder_open(&f, &d) == CKPT_OK);
    for (int b = newest_batch; b > newest_batch - 3 && b > 0; b--) {
        int at = ckpt_folder_find(f, name_of(s, 0, b));
        if (at < 0 || ckpt_folder_entry(f, at, &c) != CKPT_OK || c.missing || c.pinned) continue;
        bool before = s->m->saves[b].maybe;
        s->m->saves[b].maybe = true;
        if (ckpt_folder_pin(f, at, true) == CKPT_OK) s->m->saves[b].pinned = is_here(s, b);
        s->m->saves[b].maybe = before;
        break;
    }
    ckpt_folder_close(f);
}

// Waits until all is done. False: a rank has died.
static bool wait_all(life *l) {
    ckpt_err e;
    while ((e = ckpt_saver_wait(l->saver, 0)) != CKPT_OK && !l->s->m->dead) may(l, e, "wait");
    return e == CKPT_OK;
}

// All stores are well again: what waits gets there, also what had failed. All ranks go round as often.
static void heal(life *l) {
    scene *s = l->s;
    for (int k = 0; k < s->stores; k++) l->places[k].until = 0;        // also of a life that saves nothing
    for (int i = 0; i < 300; i++) {
        int64_t done = 1;
        if (!wait_all(l)) return;
        for (int k = 0; k < s->stores && !s->uri; k++) {
            while (ckpt_uploader_wait(l->up[k], 0) != CKPT_OK) {}
            ckpt__os_mutex_lock(&l->up[k]->lock);
            if (l->up[k]->hopeful > 0) done = 0;
            ckpt__os_mutex_unlock(&l->up[k]->lock);
        }
        if (l->ranks->allreduce_min != NULL) LIFE_MUST(l->ranks->allreduce_min(&done, 1, l->ranks->user) == CKPT_OK);
        if (done != 0) break;
        usleep(2000);
    }
    if (wait_all(l)) (void)wait_all(l);
}

// What all ranks keep must be there, in the shared folder or in rank 0's.
static void look_at_kept(life *l) {
    scene *s = l->s;
    const char *const *paths;
    int n = ckpt_saver_checkpoints(l->saver, &paths);
    if (l->ranks->rank != 0) return;
    for (int i = 0; i < n; i++) {
        const char *path = s->layout == SHARDED ? util_join(paths[i], ".metadata") : paths[i];
        if (!util_exists(path)) (void)ckpt_set_error(CKPT_IO, path);
        LIFE_MUST(util_exists(path));
    }
}

static void steps(life *l, ckpt_timestamp *t) {
    scene *s = l->s;
    const plan *p = l->p;
    bool taken = false;                 // a name was, or a later time: nothing was saved
    for (int i = 0, untold = (int)t->batch; i < p->count && t->batch + 1 < BATCHES; i++) {
        LIFE_MUST(ckpt_saver_fence(l->saver) == CKPT_OK);
        ckpt_next_batch(t, 1, 0, 0.001);
        member_set(&l->m, t->batch);
        bool last = i + 1 == p->count;
        for (int k = 0; k < s->stores && last && p->heals; k++) l->places[k].until = 0;
        s->m->saves[t->batch].started = true;
        ckpt_err e = ckpt_saver_batch_end(l->saver, t);
        may(l, e, "batch_end");
        taken = taken || e == CKPT_EXISTS;
        if (s->r.snapshot != CKPT_SNAPSHOT_NONE && !last && (p->waits >> (i % 16) & 1u) != 0) continue;
        e = ckpt_saver_wait(l->saver, p->impatient && s->r.snapshot == CKPT_SNAPSHOT_NONE ? 0.001 : 0);
        may(l, e, "wait");
        if (s->m->dead && e != CKPT_OK) return;         // it will not hear of any more
        while (untold < t->batch) s->m->saves[++untold].told = !taken;
        if (e == CKPT_OK && !s->m->dead) look_at_kept(l);
        if (p->pins && !p->impatient && (p->waits >> (i % 16) & 2u) != 0) pin_one(l, (int)t->batch);
    }
}

static int live(const ckpt_ranks *ranks, void *user) {
    static life room;
    scene *s = (scene *)user;
    const plan *p = s->p;
    life *l = &room;
    ckpt_timestamp t = at_batch(0);
    l->s = s;
    l->p = p;
    l->ranks = ranks;
    if (ranks->rank == p->victim && p->dies > 0) {
        mortal_tells = &s->m->dead;
        deaths_in = p->dies;
        fault_watch = mortal;
    }
    LIFE_MUST(chdir(machine(s, ranks->rank)) == 0);
    member_bind(&l->m, s->layout, ranks->rank, ranks->world_size);
    member_set(&l->m, 0);
    l->d.state = &l->m.st;
    l->d.folder = "run";
    l->d.run_name = "r";
    l->d.filename = s->layout == TARS ? "ba{batch}-rank{rank}.tar" : util_fmt("%s%s", s->layout == SHARDED ? "x" : "ba{batch}", s->ending);
    l->d.sharded = s->layout == SHARDED;
    l->d.per_rank_tar = s->layout == TARS;
    if (s->layout == SHARDED) l->d.sharded_prefix_dir = "ba{batch}";
    l->d.latest_filename = s->layout == TARS ? "latest-rank{rank}.tar" : "latest.pt";
    l->d.save_interval = "1ba";
    l->d.num_checkpoints_to_keep = s->r.keep;
    l->d.num_remote_to_keep = s->r.far;
    l->d.keep_every = s->r.every;
    l->d.keep_best = s->r.best ? "min:state/metrics/loss" : NULL;
    l->d.snapshot = s->r.snapshot;
    l->d.resume_offline = p->offline;
    l->d.ranks = *ranks;
    if (s->apart) l->d.ranks.local_rank = 0, l->d.ranks.local_world_size = 1, l->d.ranks.node_rank = ranks->rank;
    if (getenv("MODEL_SHOW") != NULL) l->d.logger.fn = show_log, l->d.logger.user = l, place_log = util_join(s->work, "log");
    open_stores(l);
    ckpt_err e = said(l, ckpt_saver_open(&l->saver, &l->d), "open");
    LIFE_MUST(e == CKPT_OK);
    e = said(l, ckpt_saver_resume(l->saver, &t), "resume");
    if (l->ill && (e == CKPT_NET || e == CKPT_AUTH)) _exit(0);      // it was told, and does not go on from older ones
    LIFE_MUST(e == CKPT_OK || e == CKPT_NOT_FOUND || e == CKPT_CORRUPT);
    LIFE_MUST(t.batch >= p->floor);
    LIFE_MUST(e != CKPT_OK || member_is(&l->m, t.batch));
    s->m->resumed = (int)t.batch;
    bool saves = e != CKPT_CORRUPT;                     // else all are damaged: somebody has to decide what becomes of them
    if (saves) steps(l, &t);
    if (p->heals && !s->m->dead) heal(l);
    may(l, ckpt_saver_close(l->saver, 0), "close");
    for (int k = 0; k < s->stores && !s->uri; k++) (void)!ckpt_uploader_close(l->up[k], 0);
    if (ranks->rank == 0) s->m->settled = p->heals && p->count > 0 && saves;
    ckpt_state_free(&l->m.st);
    return 0;
}

//-- looking ---------------------------------------------------------------------------

// MODEL_SHOW: what the index and each ledger say, and what is in the stores and staged, after each life.
static void show_state(const scene *s) {
    for (int k = 0; k < machines(s); k++)
        (void)!system(util_fmt("{ cd %s; echo 'life %d %s, machine %d:'; for f in .ckpt-index* .ckpt-remote*; do echo $f; "
                               "sed -n 's/.*\\(\"name\":[^,]*\\).*\\(\"pinned.*\\)/    \\1 \\2/p' $f; done; ls -A ba*; ls -AR %s %s; "
                               "cd %s 2>/dev/null && head -c 600 *.upload *.journal 2>/dev/null; ls -A; } >>%s/log 2>&1",
                               folder_of(s, k), s->life, s->m->dead ? "died" : "ended", k, s->stores > 0 ? s->bucket[0] : "", s->stores > 1 ? s->bucket[1] : "",
                               staging_of(s, k), s->work));
}

static void complain(const scene *s, const plan *p, int line, const char *what) {
    char text[2400] = "";
    if (getenv("MODEL_SHOW") != NULL) (void)!system(util_fmt("cat %s/log >&2", s->work));
    for (int b = 1, n = 0; b <= s->last && n < 2200; b++) {
        const save *v = &s->m->saves[b];
        n += snprintf(text + n, sizeof text - (size_t)n, " %d%s%s%s%s%s%s%s", b, v->told ? "t" : "", v->here ? "+" : "-", v->here && !v->whole ? "!" : "",
                      v->pinned ? "p" : "", v->staged ? "s" : "", v->far[0] ? "A" : "", v->far[1] ? "B" : "");
    }
    fail_msg("line %d, MODEL_SEED=%u layout %d life %d: %s\n    keep %d far %d every %d best %d snapshot %d, uri %d apart %d elsewhere %d "
             "stores %d steady %d straight %d\n"
             "    world %d victim %d dies %d sudden %d dead %d; resumed %d floor %d count %d moods %d %d (%d-%d, %d-%d) offline %d heals %d, settled %d\n"
             "    saves%s\n    latest %d links %d %d (%d %d)\n    files %s\n    stores %s; %s",
             line, s->seed, (int)s->layout, s->life, what, s->r.keep, s->r.far, s->r.every, (int)s->r.best, (int)s->r.snapshot, s->uri, s->apart, s->elsewhere,
             s->stores, s->steady, s->straight, p->world, p->victim, p->dies, p->sudden, s->m->dead, s->m->resumed, p->floor, p->count, p->how[0], p->how[1],
             p->from[0], p->until[0], p->from[1], p->until[1], p->offline, p->heals, s->m->settled, text, s->m->latest, s->m->link[0], s->m->link[1],
             s->m->named[0], s->m->named[1],
             names_in(folder_of(s, 0)), s->stores > 0 ? names_in(s->bucket[0]) : "", s->stores > 1 ? names_in(s->bucket[1]) : "");
}

#define HOLDS(cond, what) do { if (!(cond)) complain(s, p, __LINE__, (what)); } while (0)

static member *reader;

// What training had made at the batch that is returned; 0: there is no whole checkpoint.
static int content(const scene *s, const char *path, int rank, uint64_t *number) {
    ckpt_load_desc l;
    ckpt_timestamp t;
    ckpt_file *f;
    int batch = 0;
    if (access(s->layout == SHARDED ? util_join(path, ".metadata") : path, F_OK) != 0) return 0;
    if (reader == NULL) reader = (member *)calloc(1, sizeof *reader);
    member_bind(reader, s->layout, rank, 1);
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = &reader->st;
    if (ckpt_load(&l, &t) == CKPT_OK && member_is(reader, t.batch)) batch = (int)t.batch;
    if (batch > 0 && number != NULL && ckpt_file_open(&f, path) == CKPT_OK) {
        int at = ckpt__toc_find(&f->toc, "state/callbacks/CheckpointSaver/save_count");
        *number = at >= 0 ? (uint64_t)f->toc.entries[at].i : 0;
        ckpt_file_close(f);
    }
    ckpt_state_free(&reader->st);
    return batch;
}

// The same of a local one, of which each machine may have a part.
static int content_here(const scene *s, int batch) {
    const char *all = util_join(s->work, "all");
    for (int r = 0; r < owners(s) && s->layout == TARS; r++) if (content(s, local_of_rank(s, r, batch), r, NULL) != batch) return 0;
    if (machines(s) == 1 || s->layout != SHARDED) return content(s, local_of(s, 0, batch), 0, NULL);
    util_remove_tree(all);
    util_mkdir(all);
    for (int k = 0; k < machines(s); k++) {
        DIR *d = opendir(local_of(s, k, batch));
        for (struct dirent *n = d != NULL ? readdir(d) : NULL; n != NULL; n = readdir(d))
            if (strcmp(n->d_name, ".") != 0 && strcmp(n->d_name, "..") != 0) (void)symlink(util_join(local_of(s, k, batch), n->d_name), util_join(all, n->d_name));
        if (d != NULL) closedir(d);
    }
    return content(s, all, 0, NULL);
}

static void note_staged(const ckpt_pending *pending, void *user) {
    scene *s = (scene *)user;
    int batch = 0;
    const char *name = pending->name != NULL ? pending->name : "", *base = strstr(name, "/ba");
    if (base == NULL || sscanf(base, "/ba%d", &batch) != 1 || batch < 1 || batch >= BATCHES) return;
    s->m->saves[batch].staged = true;
    s->m->saves[batch].refused = s->m->saves[batch].refused || pending->refused;
}

static int led_to(const scene *s, const char *text, int store) {
    const char *base = strrchr(text, '/') != NULL ? strrchr(text, '/') + 1 : text;
    int batch = 0;
    if (sscanf(base, "ba%d", &batch) != 1 || batch < 1 || batch > s->last) return -1;
    const save *v = &s->m->saves[batch];
    // Of tarballs another rank's may have gone when all have a newer one: that is found then.
    bool older = s->layout == TARS && util_exists(store >= 0 ? object_of(s, store, 0, batch) : local_of(s, 0, batch));
    for (int b = s->last; b > batch && older && !(store >= 0 ? v->far[store] : v->whole); b--)
        if (store >= 0 ? s->m->saves[b].far[store] : s->m->saves[b].whole) return b;
    return (store >= 0 ? v->far[store] : v->whole) ? batch : -1;
}

static void look(scene *s) {
    char text[1100];
    s->m->astray = false;
    for (int b = 1; b <= s->last; b++) {
        save *v = &s->m->saves[b];
        v->here = is_here(s, b);
        v->rubbish = false;
        for (int k = 0; k < machines(s) && s->layout == SHARDED; k++)
            v->rubbish = v->rubbish || (util_exists(local_of(s, k, b)) && !util_exists(util_join(local_of(s, k, b), ".metadata")));
        v->whole = v->here && !v->rubbish && content_here(s, b) == b;
        v->staged = v->refused = false;
        for (int k = 0; k < s->stores; k++) {
            v->far[k] = true;
            for (int r = owners(s) - 1; r >= 0 && v->far[k]; r--) v->far[k] = content(s, object_of(s, k, r, b), r, &v->number[k]) == b;
        }
    }
    for (int k = 0; k < machines(s); k++) if (util_exists(staging_of(s, k))) ok(ckpt_uploader_pending(staging_of(s, k), note_staged, s));
    for (int k = 0; k < s->stores; k++) {
        const char *copy = place_ledger(s->bucket[k]);
        for (int b = 1; b <= s->last; b++) {
            save *v = &s->m->saves[b];
            const char *name = util_fmt("/%s%s", name_of(s, 0, b), s->layout == SHARDED ? "/.metadata" : "");
            v->says[k] = place_ledger_says(v->far[k] && s->layout != TARS ? copy : NULL, name, v->number[k], loss_of(b));
        }
        s->m->link[k] = s->m->named[k] = 0;
        for (int r = owners(s) - 1; r >= 0; r--) {
            const char *link = util_join(s->bucket[k], util_fmt("%s.symlink", latest_of(s, r)));
            if (!util_exists(link)) continue;
            (void)snprintf(text, sizeof text, "%s", util_read(link, NULL));
            if (r == 0) s->m->link[k] = led_to(s, text, k);
            const char *base = strrchr(text, '/') != NULL ? strrchr(text, '/') + 1 : text;
            if (r == 0 && sscanf(base, "ba%d", &s->m->named[k]) != 1) s->m->named[k] = 0;
            else s->m->astray = s->m->astray || !util_exists(util_join(s->bucket[k], strrchr(text, '/') != NULL ? strrchr(text, '/') + 1 : text));
        }
    }
    for (int r = owners(s) - 1; r > 0; r--) {
        const char *folder = folder_of(s, s->apart ? r : 0), *target = util_link_target(util_join(folder, latest_of(s, r)));
        s->m->astray = s->m->astray || (target != NULL && !util_exists(util_join(folder, target)));
    }
    const char *target = util_link_target(util_join(folder_of(s, 0), latest_of(s, 0)));
    s->m->latest = target == NULL ? 0 : led_to(s, target, -1);
}

// What resume must give at least, with stores that answer, or without asking them.
static int floor_of(const scene *s, bool asks) {
    int least = s->last;
    while (least > 0 && (!s->m->saves[least].whole || s->m->saves[least].doubtful)) least--;
    if (least < s->promised) least = s->promised;
    for (int k = 0; k < s->stores && asks; k++) {
        int batch = s->m->link[k], named = s->m->named[k];
        // Of tarballs it lists a store whose latest lacks a rank's only if nothing newer was found before.
        if (s->layout == TARS && batch > 0) batch = s->m->saves[named].far[k] && named <= s->last ? named : 0;
        for (int b = s->last; b > 0 && batch < 0 && s->straight; b--) batch = s->m->saves[b].far[k] && !s->m->saves[b].doubtful ? b : batch;      // it is listed
        if (batch > least) least = batch;
    }
    return least;
}

// A store that was well at the end has what the rules keep, and nothing else.
static void check_store(scene *s, const plan *p, const save *before, int k) {
    int best = -1;
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        if (v->far[k] && (best < 0 || loss_of(b) < loss_of(best))) best = b;
    }
    for (int b = s->last, newest = 0; b > 0; b--) {
        const save *v = &s->m->saves[b];
        bool mine = b > s->m->resumed && v->told;
        if (mine && (s->r.far == CKPT_KEEP_ALL || newest < s->r.far)) HOLDS(v->far[k] || v->refused, util_fmt("ba%d is not in store %d", b, k));
        newest += mine;
        HOLDS(!before[b].pinned || !before[b].far[k] || !v->pinned || v->far[k] || b > s->m->resumed, util_fmt("ba%d was pinned and left store %d", b, k));
    }
    if (s->r.far == CKPT_KEEP_ALL || !s->steady || p->how[k] == REFUSES || s->m->owes[k]) return;      // who may not remove does not ask again
    for (int b = s->last, left = s->r.far; b > 0; b--) {
        const save *v = &s->m->saves[b];
        if (!v->far[k]) continue;
        bool kept = left-- > 0 || (s->r.every > 0 && v->number[k] % (uint64_t)s->r.every == 0) || (s->r.best && b == best) || v->pinned || v->maybe ||
                    b == s->m->link[k];
        HOLDS(kept, util_fmt("ba%d is kept in store %d by no rule", b, k));
    }
}

// What a store had, and the rules keep whatever else comes: also without rank 0's disk, as far as the copy of the ledger knew.
static void check_kept(scene *s, const plan *p, const save *before, int k) {
    int best = 0;
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        if ((before[b].far[k] || v->far[k] || v->started) && (best == 0 || loss_of(b) < loss_of(best))) best = b;
    }
    for (int b = 1; b <= s->m->resumed && s->straight && !s->damaged && s->r.far > 0; b++) {
        const save *was = &before[b], *v = &s->m->saves[b];
        const char *why = v->far[k] ? NULL : place_kept_by(was->says[k], was->number[k], s->r.every, s->r.best && b == best, s->moved);
        HOLDS(why == NULL, util_fmt("ba%d %s, and left store %d", b, why, k));
    }
}

// What a life that ended well leaves in the folders: whole checkpoints, those that the rules keep.
static void check_folder(scene *s, const plan *p, const save *before) {
    int best = -1, newest = 0;
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        if (v->here && (best < 0 || loss_of(b) < loss_of(best))) best = b;
        // A resume may leave parts that it brought from another machine: the next saver removes them.
        HOLDS(!v->rubbish || (b <= s->m->resumed && !before[b].rubbish), util_fmt("ba%d is no checkpoint, and was left", b));
    }
    if (s->r.keep <= 0 || !s->steady) return;          // without a number what never got to a store stays
    for (int b = s->last; b > 0; b--) {
        const save *v = &s->m->saves[b];
        if (!v->here) continue;
        bool kept = newest++ < s->r.keep || s->r.every > 0 || (s->r.best && b == best) || v->pinned || v->maybe || s->damaged;
        HOLDS(kept, util_fmt("ba%d is kept by no rule", b));
    }
}

static void check_codes(scene *s, const plan *p) {
    for (int r = 1; r < p->world; r++) {
        HOLDS(s->m->asked[r] == s->m->asked[0], util_fmt("rank %d made %d calls, rank 0 %d", r, s->m->asked[r], s->m->asked[0]));
        for (int i = 0; i < s->m->asked[0] && i < CODES; i++)
            HOLDS(s->m->codes[r][i] == s->m->codes[0][i], util_fmt("call %d: rank %d got %d, rank 0 %d", i, r, s->m->codes[r][i], s->m->codes[0][i]));
    }
}

// After a life: `before` is how all was then.
static void check(scene *s, const plan *p, const save *before, const int *links, int latest, bool died) {
    int named[STORES];
    memcpy(named, s->m->named, sizeof named);
    bool astray = s->m->astray;
    int told = 0, newest = 0;
    while (s->last + 1 < BATCHES && s->m->saves[s->last + 1].started) s->last++;
    look(s);
    for (int b = s->m->resumed + 1; b <= s->last; b++) {
        s->m->saves[b].doubtful = !s->m->saves[b].told;
        if (s->m->saves[b].told) told = b;
        if (s->m->saves[b].whole) newest = b;
    }
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        bool mine = b > s->m->resumed && v->told, had = b <= s->m->resumed && before[b].whole;
        // On machines apart a rank's part may go before another's .metadata; and of what died in between.
        HOLDS(!v->here || v->whole || before[b].here || s->apart || s->layout == TARS, util_fmt("ba%d is not whole", b));
        // Of machines apart without a number to keep each lets go of its part when that is uploaded; a pin holds it in the store.
        bool stored = s->apart && s->r.keep == CKPT_KEEP_NONE && (v->far[0] || v->far[1]);
        HOLDS(!before[b].pinned || !before[b].whole || v->whole || stored, util_fmt("ba%d was pinned and is gone", b));
        HOLDS(s->r.keep != CKPT_KEEP_ALL || !(mine || had) || v->whole, util_fmt("ba%d is gone though all are kept", b));
        for (int k = 0; k < s->stores; k++) {
            int newer = 0;
            for (int c = b + 1; c <= s->last; c++) newer += s->m->saves[c].far[k] || s->m->saves[c].staged || s->m->saves[c].here || (s->layout == TARS && s->m->saves[c].started);
            bool rotated = s->r.far > 0 && newer >= s->r.far;
            HOLDS(!mine || s->r.keep != CKPT_KEEP_NONE || v->whole || v->staged || v->far[k] || rotated, util_fmt("ba%d is gone, and store %d has not got it", b, k));
            HOLDS(!before[b].far[k] || b > s->m->resumed || v->far[k] || s->r.far > 0, util_fmt("ba%d has left store %d", b, k));
        }
    }
    HOLDS(!s->m->astray || astray || s->damaged || s->r.keep == CKPT_KEEP_NONE, "the latest of another rank leads to nothing");
    HOLDS(s->m->latest >= 0 || latest < 0 || s->damaged || s->r.keep == CKPT_KEEP_NONE || s->apart, "the latest leads to nothing");
    // On machines apart another rank may have let go of what this one's link led to, when it died before the link moved to a newer one.
    HOLDS(told == 0 || s->m->latest >= told || s->r.keep == CKPT_KEEP_NONE || s->damaged || (s->apart && died),
          util_fmt("the latest leads to %d and not to %d", s->m->latest, told));
    for (int k = 0; k < s->stores; k++) {
        check_kept(s, p, before, k);
        HOLDS(s->m->link[k] >= 0 || links[k] < 0 || s->damaged, util_fmt("the link of store %d, that led to %d, leads to nothing", k, links[k]));
        bool older = s->rolled && s->m->link[k] > 0 && before[s->m->link[k]].staged;       // what a life that went back had left
        bool hurt = s->damaged && s->m->link[k] < 0;
        int now = s->layout == TARS ? s->m->named[k] : s->m->link[k], then = s->layout == TARS ? named[k] : links[k];
        HOLDS(now >= then || then > s->m->resumed || older || hurt, util_fmt("the link of store %d went back from %d", k, then));
    }
    HOLDS(s->r.keep == CKPT_KEEP_NONE || newest >= told, "the newest checkpoint that was reported is gone");
    s->promised = s->r.keep != CKPT_KEEP_NONE && !s->damaged ? told : 0;
    if (died) return;
    check_codes(s, p);
    if (!s->m->settled) return;
    check_folder(s, p, before);
    for (int k = 0; k < s->stores; k++) {
        check_store(s, p, before, k);
        HOLDS(told == 0 || s->m->link[k] == told || s->m->saves[told].refused || !s->straight, util_fmt("the link of store %d does not lead to %d", k, told));
    }
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        HOLDS(!v->staged || v->refused || !s->straight, util_fmt("ba%d is still staged", b));
        bool all = b > s->m->resumed && v->told;
        HOLDS(!all || s->r.keep != CKPT_KEEP_NONE || !v->here || v->pinned || v->refused || s->r.every > 0 || s->r.best, util_fmt("ba%d has not left the folder", b));
    }
}

//-- what people do between two lives of a run ---------------------------------------------

// Any of a checkpoint's files that holds a rank's part; NULL: there is none, or what is staged hangs on it.
static const char *any_shard(scene *s, const char *folder) {
    const char *found = NULL;
    struct stat st;
    DIR *d = opendir(folder);
    unsigned nth = pick(s, 3);
    for (struct dirent *n = d != NULL ? readdir(d) : NULL; n != NULL; n = readdir(d)) {
        if (strncmp(n->d_name, "__", 2) != 0) continue;
        const char *path = util_join(folder, n->d_name);
        if (stat(path, &st) == 0 && st.st_nlink == 1 && (found == NULL || nth-- == 0)) found = path;
    }
    if (d != NULL) closedir(d);
    return found;
}

// The same of any layout.
static const char *any_part(scene *s, int machine, int batch) {
    struct stat st;
    if (s->layout == SHARDED) return any_shard(s, local_of(s, machine, batch));
    const char *path = local_of_rank(s, (int)pick(s, (unsigned)owners(s)), batch);
    return stat(path, &st) == 0 && st.st_nlink == 1 ? path : NULL;
}

static void forget_pin(scene *s, int b) {
    save *v = &s->m->saves[b];
    v->maybe = v->maybe || v->pinned;
    v->pinned = false;
}

static void meddle(scene *s) {
    int b = s->last > 0 ? 1 + (int)pick(s, (unsigned)s->last) : 0, k = s->stores > 0 ? (int)pick(s, (unsigned)s->stores) : -1;
    int at = (int)pick(s, (unsigned)machines(s));
    save *v = &s->m->saves[b];
    const char *shard;
    if (b == 0) return;
    unsigned what = pick(s, 14);
    if (what <= 2 || what == 6) s->promised = 0;
    switch (what) {
    case 0:
        for (int i = 0; i < machines(s) && v->here && s->layout == SHARDED; i++) util_remove_tree(local_of(s, i, b));
        for (int r = 0; r < owners(s) && v->here && s->layout != SHARDED; r++) (void)unlink(local_of_rank(s, r, b));
        forget_pin(s, b);
        break;
    case 1:
        if (!v->whole || (shard = any_part(s, at, b)) == NULL) break;
        util_flip(shard, 300, 1);
        forget_pin(s, b);
        s->damaged = true;
        break;
    case 2:
        if (!v->whole || (shard = any_part(s, at, b)) == NULL) break;
        assert_int_equal(unlink(shard), 0);
        forget_pin(s, b);
        s->damaged = true;
        break;
    case 3:
        if (k < 0 || !v->far[k]) break;
        if (s->layout != SHARDED) assert_int_equal(unlink(object_of(s, k, (int)pick(s, (unsigned)owners(s)), b)), 0);
        else if (pick(s, 2) == 0) util_remove_tree(object_of(s, k, 0, b));
        else if ((shard = any_shard(s, object_of(s, k, 0, b))) != NULL) assert_int_equal(unlink(shard), 0);
        s->steady = false;
        s->damaged = true;
        break;
    case 4:
        if (v->pinned || !v->whole || !is_here(s, b) || s->layout == TARS) break;      // of tarballs each would have a pin of its own
        pin(folder_of(s, 0), name_of(s, 0, b), true);
        v->pinned = true;
        break;
    case 5:
        s->moved = false;
        (void)unlink(util_join(folder_of(s, at), ".ckpt-index.jsonl"));
        for (int i = 1; i <= s->last; i++) forget_pin(s, i);
        s->steady = false;
        break;
    case 6:                                                 // a machine's disk is lost; of one machine, the run goes on elsewhere
        if (s->stores == 0) break;
        s->moved = s->moved || at == 0;
        util_remove_tree(machine(s, at));
        for (int i = 0; i < machines(s); i++) ok(ckpt__os_mkdirs(folder_of(s, i)));
        for (int i = 1; i <= s->last; i++) forget_pin(s, i);
        s->steady = false;
        break;
    case 7: {
        ckpt_folder *f;
        ckpt_folder_desc d;
        ckpt_gc_desc g;
        memset(&d, 0, sizeof d);
        memset(&g, 0, sizeof g);
        d.folder = folder_of(s, at);
        ok(ckpt_folder_open(&f, &d));
        (void)!ckpt_folder_gc(f, &g);
        ckpt_folder_close(f);
        break;
    }
    case 8:
        if (k >= 0 && !s->uri) (void)unlink(util_join(s->bucket[k], util_fmt("%s.symlink", latest_of(s, (int)pick(s, (unsigned)owners(s))))));
        break;
    case 9:
        if (!s->uri && k >= 0) place_push(s->bucket[k], k == 0 ? "A" : "B", staging_of(s, at));
        break;
    default: break;
    }
    look(s);
}

static void draw_plan(scene *s, plan *p) {
    memset(p, 0, sizeof *p);
    p->count = (int)pick(s, 7);
    p->waits = pick(s, 65536);
    p->workers = 1 + (int)pick(s, 3);
    p->world = s->apart || s->layout == TARS ? s->world : 1 + (int)pick(s, MOST);
    p->heals = pick(s, 2) == 0;
    p->pins = pick(s, 4) == 0 && s->layout != TARS;
    p->impatient = pick(s, 4) == 0;
    p->offline = pick(s, 6) == 0;
    for (int k = 0; k < s->stores && !s->uri; k++) {
        p->how[k] = pick(s, 2) == 0 ? FINE : (mood)pick(s, MOODS);
        p->from[k] = pick(s, 4) == 0 ? 0 : 8 + (int)pick(s, 12);
        p->until[k] = pick(s, 3) == 0 ? 1 << 20 : p->from[k] + 1 + (int)pick(s, 30);
    }
    p->victim = (int)pick(s, (unsigned)p->world);
    p->dies = pick(s, 2) == 0 ? 1 + (int)pick(s, 80u + 120u * (unsigned)p->count) : 0;
    p->sudden = pick(s, 2) == 0;
    p->floor = floor_of(s, !p->offline);
    s->rolled = s->rolled || (p->offline && p->floor < floor_of(s, true));
    s->straight = s->straight && !s->rolled;
}

static void draw_rules(scene *s) {
    static const int keeps[] = { CKPT_KEEP_ALL, 1, 2, 3, CKPT_KEEP_NONE, 1 }, fars[] = { CKPT_KEEP_ALL, 1, 2, 3 };
    s->r.keep = keeps[pick(s, s->stores > 0 ? 6 : 4)];
    s->r.far = fars[pick(s, 4)];
    s->r.every = (int)pick(s, 4) == 0 ? 2 + (int)pick(s, 3) : 0;
    s->r.best = pick(s, 4) == 0;
    s->r.snapshot = modes[pick(s, 3)];
}

// False: a rank hangs.
static bool run_job(scene *s, const plan *p, bool *died, char *how, size_t size) {
    fork_ranks job;
    bool good = true;
    how[0] = 0;
    fork_ranks_start(&job, p->world, 30, live, s);
    int status = fork_ranks_wait(&job, p->victim, 60);
    *died = status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == DIED;
    if (*died && p->sudden) {
        fork_ranks_end(&job);
        return true;
    }
    for (int r = 0; r < p->world; r++) {
        status = fork_ranks_wait(&job, r, 60);
        if (status == -1) (void)snprintf(how, size, "rank %d hangs", r);
        else if (status != 0 && !*died) (void)snprintf(how, size, "rank %d ended with status %x", r, (unsigned)status);
        else if (status != 0 && r != p->victim && !(WIFEXITED(status) && WEXITSTATUS(status) == 1)) (void)snprintf(how, size, "rank %d ended with status %x", r, (unsigned)status);
        good = good && status != -1;
    }
    fork_ranks_end(&job);
    return good && how[0] == 0;
}

static void scenario(scene *s, int lives) {
    for (s->life = 0; s->life < lives; s->life++) {
        static save before[BATCHES];
        int links[STORES], latest = s->m->latest;
        char how[200];
        bool died;
        plan drawn, *p = &drawn;
        draw_plan(s, p);
        if (s->last + p->count + 1 >= BATCHES) break;
        memcpy(before, s->m->saves, sizeof before);
        memcpy(links, s->m->link, sizeof links);
        for (int b = p->floor + 1; b < BATCHES; b++) s->m->saves[b].started = s->m->saves[b].told = false;
        for (int b = s->last + 1; b < BATCHES; b++) s->m->saves[b].pinned = false;
        s->m->line = s->m->settled = 0;
        s->m->dead = false;
        memset(s->m->owes, 0, sizeof s->m->owes);
        memset(s->m->asked, 0, sizeof s->m->asked);
        s->m->resumed = s->last;                // until it says so
        s->p = p;
        bool good = run_job(s, p, &died, how, sizeof how);
        if (getenv("MODEL_SHOW") != NULL) show_state(s);
        HOLDS(s->m->line == 0, util_fmt("line %d: %s", s->m->line, s->m->why));
        HOLDS(good, how);
        check(s, p, before, links, latest, died);
        s->moved = s->moved && (died || s->m->resumed == 0);
        for (int n = (int)pick(s, 3); n > 0; n--) meddle(s);
        if (pick(s, 6) == 0) {
            draw_rules(s);
            s->steady = false;
        }
    }
}

static void test_model_ranks(void **state) {
    (void)state;
    mortal_seeds seeds = mortal_choose(8, 1000);
    void *shared = mortal_memory(sizeof(model));
    for (unsigned seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        scene s;
        memset(&s, 0, sizeof s);
        memset(shared, 0, sizeof(model));
        s.m = (model *)shared;
        s.seed = seed;
        s.layout = getenv("MODEL_LAYOUT") != NULL ? (layout)atoi(getenv("MODEL_LAYOUT")) : seed % 4 == 1 ? TARS : seed % 8 == 6 ? WHOLE : SHARDED;
        s.random = mortal_random(seed);
        s.work = util_temp_dir();
        s.uri = pick(&s, 4) == 0;
        s.stores = s.uri ? 1 : (int)pick(&s, 3);
        s.apart = pick(&s, 3) == 0;
        s.world = 2 + (int)pick(&s, MOST - 1);
        s.elsewhere = pick(&s, 4) == 0;
        s.ending = pick(&s, 4) == 0 ? ".safetensors" : ".pt";
        s.steady = s.straight = true;
        for (int k = 0; k < s.stores; k++) s.bucket[k] = util_temp_dir();
        for (int k = 0; k < machines(&s); k++) ok(ckpt__os_mkdirs(folder_of(&s, k)));
        draw_rules(&s);
        scenario(&s, 8);
        util_remove_tree(s.work);
        for (int k = 0; k < s.stores; k++) util_remove_tree(s.bucket[k]);
    }
    free(reader);
    assert_int_equal(munmap(shared, sizeof(model)), 0);
}

int main(void) {
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    fault_backoff = 0.001;
    fault_hope = 0.002;
    fault_hope_most = 0.05;        // less, and a try would be under way whenever somebody looks
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_model_ranks) };
    util_clear_env();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
