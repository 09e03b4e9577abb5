/* test_model_remote.c: random lives of a run that uploads, against a model of what must be in its stores and in its folder: stores
   that are away, fail now and then, hang, refuse, or lose their answers; deaths at any system call and in the middle of any request;
   other settings after a restart; and what people do meanwhile (pins, files and objects deleted or damaged, another machine, a push).
   run.sh: no-tsan

   A life is a forked process. What it says of its saves lies in shared memory, so that it outlives a death. A seed decides
   everything but the order of threads. More lives: CKPT_LONG=1; one scenario: MODEL_SEED=n. */
#define CKPT_NO_REMOTE
#define CKPT__SEND_MIB 1024             // parts of 8 to 64 KiB
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../saver_util.h"
#include "mortal.h"
#include "moody.h"

enum { BATCHES = 150, STORES = 2 };

typedef struct save {
    bool     started, told;             // told: reported saved
    bool     here, whole, staged;       // as the last look found it
    bool     refused;                   // staged, and the store had another of that name
    bool     far[STORES];               // whole in that store
    bool     pinned;
    bool     maybe;                     // pinned for a store: somebody deleted the file, or a life died while it pinned
    uint64_t number[STORES];            // of the save, as the object says
    place_says says[STORES];            // what the ledger's copy there knows of it
} save;

typedef struct model {
    save saves[BATCHES];
    int  link[STORES];                  // 0: none; -1: to something that is not there
    int  resumed, line;                 // of the last life: where it began, what failed
    int  settled;                       // it ended with healthy stores: all that it has saved is there
    bool owes[STORES];                  // it could not remove something, or look for it: the next save or life asks again
    char why[900];
} model;

typedef struct rules { int keep, far, every; bool best; ckpt_snapshot snapshot; } rules;

typedef struct scene {
    model      *m;
    const char *work, *dir, *bucket[STORES];
    uint64_t    random;
    int         stores, last;           // last: newest batch ever
    bool        uri;                    // the folder is a file:// URI; else the stores are the user's own
    bool        constant;               // one name for all objects
    bool        elsewhere;              // what is staged lies in a folder of its own
    bool        steady;                 // no setting has changed, and nobody has taken anything out of a store
    bool        rolled;                 // a life may have gone on from an older one than the newest
    bool        straight;               // none has, nor has the run moved
    bool        damaged;                // somebody has damaged a file
    bool        moved;                  // the run has just gone on on another machine, which had nothing
    rules       r;
    unsigned    seed;
    int         life;
} scene;

static unsigned pick(scene *s, unsigned n) { return mortal_pick(&s->random, n); }

static const char *file_of(const scene *s, int batch) { return util_join(s->dir, util_fmt("ba%d.pt", batch)); }

static const char *object_of(const scene *s, int k, int batch) {
    return s->constant ? util_join(s->bucket[k], "model.pt") : util_join(s->bucket[k], util_fmt("ba%d.pt", batch));
}

static const char *staging_of(const scene *s) { return util_join(s->elsewhere ? s->work : s->dir, ".ckpt-staging"); }

//-- a life ----------------------------------------------------------------------------

typedef struct plan {
    int      floor, count, workers;     // floor: what resume must give at least
    unsigned waits;
    mood     how[STORES];
    int      from[STORES], until[STORES];
    bool     offline, heals, pins, impatient;
} plan;

typedef struct life {
    scene         *s;
    const plan    *p;
    run           *r;
    place          places[STORES];
    ckpt_uploader *up[STORES];
    bool           ill;                 // a store was not fine at some time
} life;

#define LIFE_MUST(cond) do { if (!(cond)) { s->m->line = __LINE__; \
    (void)snprintf(s->m->why, sizeof s->m->why, "%.150s; %.600s", #cond, ckpt_last_error()); _exit(1); } } while (0)

static void show_log(ckpt_log_level level, const char *msg, void *user) {
    const scene *s = (const scene *)user;
    (void)level;
    FILE *f = fopen(util_join(s->work, "log"), "a");
    if (f != NULL) (void)fprintf(f, "life %d: %s\n", s->life, msg);
    if (f != NULL) fclose(f);
}

static void open_stores(life *l) {
    scene *s = l->s;
    run *r = l->r;
    const plan *p = l->p;
    r->d.filename = "ba{batch}.pt";
    if (s->uri) {
        r->d.folder = util_fmt("file://%s", s->bucket[0]);
        r->d.upload_staging_folder = s->elsewhere ? staging_of(s) : NULL;
        r->d.num_concurrent_uploads = p->workers;
        if (s->constant) r->d.remote_file_name = util_fmt("%s/model.pt", s->bucket[0] + 1);
        return;
    }
    ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(STORES, sizeof *list), false);
    for (int k = 0; k < s->stores; k++) {
        ckpt_uploader_desc d;
        place *at = &l->places[k];
        at->dir = s->bucket[k];
        at->name = k == 0 ? "A" : "B";
        at->owes = &s->m->owes[k];
        at->how = p->how[k];
        at->from = p->from[k];
        at->until = p->until[k];
        at->random = (unsigned)s->random + (unsigned)k;
        l->ill = l->ill || at->how != FINE;
        memset(&d, 0, sizeof d);
        if (getenv("MODEL_SHOW") != NULL) d.logger.fn = show_log, d.logger.user = s;
        d.store = place_store(at);
        d.num_attempts = 1 + (int)(p->waits & 1u);
        d.num_concurrent_uploads = p->workers;
        d.upload_staging_folder = s->elsewhere ? staging_of(s) : NULL;
        ckpt_err e = ckpt_uploader_open(&l->up[k], &d);
        LIFE_MUST(e == CKPT_OK || l->ill);
        if (e != CKPT_OK) _exit(0);         // the trial has failed
        list[k] = l->up[k];
    }
    r->d.uploaders = list;
    r->d.uploaders_count = s->stores;
    r->d.remote_file_name = s->constant ? "run/model.pt" : "run/ba{batch}.pt";
    r->d.latest_remote_file_name = "run/latest.pt";
}

// A call may return what a store has done; nothing else goes wrong in a life.
static void may(life *l, ckpt_err e, const char *what) {
    scene *s = l->s;
    if (e == CKPT_OK || (l->ill && (e == CKPT_NET || e == CKPT_AUTH))) return;
    if ((e == CKPT_TIMEOUT && l->p->impatient) || (e == CKPT_CORRUPT && s->damaged)) return;
    // A life that did not ask its store, or was told of nothing there, began anew; or the run moved to another machine.
    if (e == CKPT_EXISTS && (!s->straight || (s->m->resumed == 0 && s->last > 0))) return;
    s->m->line = __LINE__;
    (void)snprintf(s->m->why, sizeof s->m->why, "%s: %s; %.600s", what, ckpt_err_name(e), ckpt_last_error());
    _exit(1);
}

static void pin_one(life *l, int newest_batch) {
    scene *s = l->s;
    ckpt_folder *f;
    ckpt_folder_desc d;
    ckpt_checkpoint c;
    memset(&d, 0, sizeof d);
    d.folder = s->dir;
    LIFE_MUST(ckpt_folder_open(&f, &d) == CKPT_OK);
    for (int b = newest_batch; b > newest_batch - 3 && b > 0; b--) {
        int at = ckpt_folder_find(f, util_fmt("ba%d.pt", b));
        if (at < 0 || ckpt_folder_entry(f, at, &c) != CKPT_OK || c.missing || c.pinned) continue;
        bool before = s->m->saves[b].maybe;
        s->m->saves[b].maybe = true;
        if (ckpt_folder_pin(f, at, true) == CKPT_OK) s->m->saves[b].pinned = util_exists(file_of(s, b));
        s->m->saves[b].maybe = before;
        break;
    }
    ckpt_folder_close(f);
}

// All stores are well again: what waits gets there, also what had failed.
static void heal(life *l) {
    scene *s = l->s;
    for (int k = 0; k < s->stores; k++) l->places[k].until = 0;        // also of a life that saves nothing
    for (int i = 0; i < 200; i++) {
        bool hopeful = false;
        ckpt_err e;
        while ((e = ckpt_saver_wait(l->r->s, 0)) != CKPT_OK) may(l, e, "wait");
        for (int k = 0; k < s->stores && !s->uri; k++) {
            while ((e = ckpt_uploader_wait(l->up[k], 0)) != CKPT_OK) may(l, e, "wait for an uploader");
            ckpt__os_mutex_lock(&l->up[k]->lock);
            hopeful = hopeful || l->up[k]->hopeful > 0;
            ckpt__os_mutex_unlock(&l->up[k]->lock);
        }
        if (!hopeful) break;
        usleep(2000);
    }
    while (ckpt_saver_wait(l->r->s, 0) != CKPT_OK) {}
    while (ckpt_saver_wait(l->r->s, 0) != CKPT_OK) {}
}

static void live(scene *s, const plan *p) {
    static life room;
    life *l = &room;
    run *r = run_new(s->dir);
    ckpt_timestamp t = at_batch(0);
    l->s = s;
    l->p = p;
    l->r = r;
    LIFE_MUST(chdir(s->work) == 0);
    open_stores(l);
    r->d.num_checkpoints_to_keep = s->r.keep;
    r->d.num_remote_to_keep = s->r.far;
    r->d.keep_every = s->r.every;
    r->d.keep_best = s->r.best ? "min:state/metrics/loss" : NULL;
    r->d.snapshot = s->r.snapshot;
    r->d.resume_offline = p->offline;
    if (getenv("MODEL_SHOW") != NULL) r->d.logger.fn = show_log, r->d.logger.user = s, place_log = util_join(s->work, "log");
    LIFE_MUST(ckpt_saver_open(&r->s, &r->d) == CKPT_OK);
    ckpt_err e = ckpt_saver_resume(r->s, &t);
    if (l->ill && (e == CKPT_NET || e == CKPT_AUTH)) _exit(0);      // it was told, and does not go on from older ones
    LIFE_MUST(e == CKPT_OK || e == CKPT_NOT_FOUND || e == CKPT_CORRUPT);
    LIFE_MUST(t.batch >= p->floor);
    LIFE_MUST(e != CKPT_OK || (r->step == t.batch && r->w[7] == (float)(t.batch * 7 + 7)));
    s->m->resumed = (int)t.batch;
    int count = e == CKPT_CORRUPT ? 0 : p->count;       // all are damaged: somebody has to decide what becomes of them
    for (int i = 0, untold = (int)t.batch; i < count && t.batch + 1 < BATCHES; i++) {
        LIFE_MUST(ckpt_saver_fence(r->s) == CKPT_OK);
        ckpt_next_batch(&t, 1, 0, 0.001);
        run_set(r, t.batch);
        bool last = i + 1 == count;
        for (int k = 0; k < s->stores && last && p->heals; k++) l->places[k].until = 0;
        s->m->saves[t.batch].started = true;
        e = ckpt_saver_batch_end(r->s, &t);
        may(l, e, "batch_end");
        if (e == CKPT_EXISTS) untold = (int)t.batch;        // it is not saved, and was said not to be
        if (s->r.snapshot != CKPT_SNAPSHOT_NONE && !last && (p->waits >> (i % 16) & 1u) != 0) continue;
        e = ckpt_saver_wait(r->s, p->impatient && s->r.snapshot == CKPT_SNAPSHOT_NONE ? 0.001 : 0);
        may(l, e, "wait");
        while (untold < t.batch) s->m->saves[++untold].told = true;
        if (p->pins && !p->impatient && (p->waits >> (i % 16) & 2u) != 0) pin_one(l, (int)t.batch);
    }
    if (p->heals) heal(l);
    e = ckpt_saver_close(r->s, 0);
    may(l, e, "close");
    for (int k = 0; k < s->stores && !s->uri; k++) may(l, ckpt_uploader_close(l->up[k], 0), "close of an uploader");
    s->m->settled = p->heals && count > 0;
    ckpt_state_free(&r->st);
    _exit(0);
}

//-- looking ---------------------------------------------------------------------------

// MODEL_SHOW: what the index and each ledger say, and what is in the stores and staged, after each life.
static void show_state(const scene *s, bool died) {
    (void)!system(util_fmt("{ cd %s; echo 'life %d %s:'; for f in .ckpt-index* .ckpt-remote*; do echo $f; "
                           "sed -n 's/.*\\(\"name\":[^,]*\\).*\\(\"pinned.*\\)/    \\1 \\2/p' $f; done; ls %s %s; ls -A %s; } >>%s/log 2>&1",
                           s->dir, s->life, died ? "died" : "ended", s->bucket[0], s->stores > 1 ? s->bucket[1] : "", staging_of(s), s->work));
}

static void complain(const scene *s, const plan *p, int line, const char *what) {
    char text[2400] = "";
    if (getenv("MODEL_SHOW") != NULL) (void)!system(util_fmt("cat %s/log >&2", s->work));
    for (int b = 1, n = 0; b <= s->last && n < 2200; b++) {
        const save *v = &s->m->saves[b];
        n += snprintf(text + n, sizeof text - (size_t)n, " %d%s%s%s%s%s%s%s", b, v->told ? "t" : "", v->here ? "+" : "-", v->here && !v->whole ? "!" : "",
                      v->pinned ? "p" : "", v->staged ? "s" : "", v->far[0] ? "A" : "", v->far[1] ? "B" : "");
    }
    fail_msg("line %d, MODEL_SEED=%u life %d: %s\n    keep %d far %d every %d best %d snapshot %d, uri %d constant %d elsewhere %d "
             "stores %d steady %d\n"
             "    resumed %d floor %d count %d moods %d %d (%d-%d, %d-%d) offline %d heals %d, settled %d\n    saves%s\n    links %d %d\n"
             "    files %s\n    stores %s; %s\n    staged %s",
             line, s->seed, s->life, what, s->r.keep, s->r.far, s->r.every, (int)s->r.best, (int)s->r.snapshot, s->uri, s->constant, s->elsewhere,
             s->stores, s->steady, s->m->resumed, p->floor, p->count, p->how[0], p->how[1], p->from[0], p->until[0], p->from[1], p->until[1],
             p->offline, p->heals, s->m->settled, text, s->m->link[0], s->m->link[1], names_in(s->dir),
             names_in(s->bucket[0]), s->stores > 1 ? names_in(s->bucket[1]) : "",
             util_exists(staging_of(s)) ? util_list(staging_of(s)) : "");
}

#define HOLDS(cond, what) do { if (!(cond)) complain(s, p, __LINE__, (what)); } while (0)

static run *reader;

// What training had made at the batch that is returned; 0: there is no whole checkpoint.
static int content(const char *path, uint64_t *number) {
    ckpt_load_desc l;
    ckpt_timestamp t;
    ckpt_file *f;
    if (access(path, F_OK) != 0) return 0;
    if (reader == NULL) reader = run_new(".");
    run *r = reader;
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = &r->st;
    if (ckpt_load(&l, &t) != CKPT_OK || r->step != t.batch || r->w[7] != (float)(t.batch * 7 + 7)) return 0;
    if (number != NULL && ckpt_file_open(&f, path) == CKPT_OK) {
        int at = ckpt__toc_find(&f->toc, "state/callbacks/CheckpointSaver/save_count");
        *number = at >= 0 ? (uint64_t)f->toc.entries[at].i : 0;
        ckpt_file_close(f);
    }
    return (int)t.batch;
}

static void note_staged(const ckpt_pending *pending, void *user) {
    scene *s = (scene *)user;
    int batch = 0;
    const char *base = pending->file_path != NULL ? strrchr(pending->file_path, '/') : NULL;
    if (base == NULL || sscanf(base, "/ba%d.pt", &batch) != 1 || batch >= BATCHES) return;
    s->m->saves[batch].staged = true;
    s->m->saves[batch].refused = pending->refused;
}

static void look(scene *s) {
    char text[1100];
    for (int b = 1; b <= s->last; b++) {
        save *v = &s->m->saves[b];
        v->here = util_exists(file_of(s, b));
        v->whole = v->here && content(file_of(s, b), NULL) == b;
        v->staged = v->refused = false;
        for (int k = 0; k < s->stores; k++) v->far[k] = (!s->constant || b == content(object_of(s, k, b), NULL)) && content(object_of(s, k, b), &v->number[k]) == b;
    }
    if (util_exists(staging_of(s))) ok(ckpt_uploader_pending(staging_of(s), note_staged, s));
    for (int k = 0; k < s->stores; k++) {
        const char *copy = place_ledger(s->bucket[k]);
        for (int b = 1; b <= s->last; b++) {
            save *v = &s->m->saves[b];
            v->says[k] = place_ledger_says(v->far[k] ? copy : NULL, util_fmt("/ba%d.pt", b), v->number[k], loss_of(b));
        }
    }
    for (int k = 0; k < s->stores; k++) {
        const char *link = util_join(s->bucket[k], "latest.pt.symlink");
        s->m->link[k] = 0;
        if (!util_exists(link)) continue;
        (void)snprintf(text, sizeof text, "%s", util_read(link, NULL));
        const char *base = strrchr(text, '/') != NULL ? strrchr(text, '/') + 1 : text;
        int batch = 0;
        if (s->constant) batch = content(util_join(s->bucket[k], "model.pt"), NULL);
        else if (sscanf(base, "ba%d.pt", &batch) != 1 || batch > s->last || !s->m->saves[batch].far[k]) batch = 0;
        s->m->link[k] = batch > 0 ? batch : -1;
    }
}

// One name for all objects: what another machine had left is sent when the run comes back to it, and replaces a newer one.
static bool may_be_replaced(const scene *s) { return s->constant && !s->straight; }

// What resume must give at least, with stores that answer, or without asking them. A link may still lead to what a life without
// the stores went back from, and comes behind what that life has saved.
static int floor_of(const scene *s, bool asks) {
    int least = s->last;
    while (least > 0 && !s->m->saves[least].whole) least--;
    for (int k = 0; k < s->stores && asks && !s->rolled && !may_be_replaced(s); k++) {
        int batch = s->m->link[k];
        for (int b = s->last; b > 0 && batch < 0 && s->straight; b--) batch = s->m->saves[b].far[k] ? b : batch;      // it is listed
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
        if (mine && (s->r.far == CKPT_KEEP_ALL || newest < s->r.far)) HOLDS(v->far[k], util_fmt("ba%d.pt is not in store %d", b, k));
        if (mine && s->r.far == CKPT_KEEP_ALL && s->constant) break;
        newest += mine;
        HOLDS(!before[b].pinned || !before[b].far[k] || !v->pinned || v->far[k] || b > s->m->resumed, util_fmt("ba%d.pt was pinned and left store %d", b, k));
    }
    if (s->r.far == CKPT_KEEP_ALL || !s->steady || p->how[k] == REFUSES || s->m->owes[k]) return;      // who may not remove does not ask again
    for (int b = s->last, left = s->r.far; b > 0; b--) {
        const save *v = &s->m->saves[b];
        if (!v->far[k]) continue;
        bool kept = left-- > 0 || (s->r.every > 0 && v->number[k] % (uint64_t)s->r.every == 0) || (s->r.best && b == best) || v->pinned || v->maybe ||
                    b == s->m->link[k];
        HOLDS(kept, util_fmt("ba%d.pt is kept in store %d by no rule", b, k));
    }
}

// What a store had, and the rules keep whatever else comes: also on another machine, as far as the copy of the ledger knew.
static void check_kept(scene *s, const plan *p, const save *before, int k) {
    int best = 0;
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        if ((before[b].far[k] || v->far[k] || v->started) && (best == 0 || loss_of(b) < loss_of(best))) best = b;
    }
    for (int b = 1; b <= s->m->resumed && s->straight && !s->damaged && s->r.far > 0; b++) {
        const save *was = &before[b], *v = &s->m->saves[b];
        const char *why = v->far[k] ? NULL : place_kept_by(was->says[k], was->number[k], s->r.every, s->r.best && b == best, s->moved);
        HOLDS(why == NULL, util_fmt("ba%d.pt %s, and left store %d", b, why, k));
    }
}

// After a life: `before` is how all was then.
static void check(scene *s, const plan *p, const save *before, const int *links, bool died) {
    int told = 0;
    while (s->last + 1 < BATCHES && s->m->saves[s->last + 1].started) s->last++;
    look(s);
    for (int b = s->m->resumed + 1; b <= s->last; b++) {
        if (s->m->saves[b].told) told = b;
    }
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        bool mine = b > s->m->resumed && v->told, had = b <= s->m->resumed && before[b].whole;
        HOLDS(!v->here || v->whole || before[b].here, util_fmt("ba%d.pt is not whole", b));
        HOLDS(!before[b].pinned || !before[b].whole || v->whole, util_fmt("ba%d.pt was pinned and is gone", b));
        HOLDS(s->r.keep != CKPT_KEEP_ALL || !(mine || had) || v->whole, util_fmt("ba%d.pt is gone though all are kept", b));
        for (int k = 0; k < s->stores && !s->constant; k++) {
            int newer = 0;
            for (int c = b + 1; c <= s->last; c++) newer += s->m->saves[c].far[k] || s->m->saves[c].staged;
            bool rotated = s->r.far > 0 && newer >= s->r.far;
            HOLDS(!mine || s->r.keep != CKPT_KEEP_NONE || v->whole || v->staged || v->far[k] || rotated, util_fmt("ba%d.pt is gone, and store %d has not got it", b, k));
            HOLDS(!before[b].far[k] || b > s->m->resumed || v->far[k] || s->r.far > 0, util_fmt("ba%d.pt has left store %d", b, k));
        }
    }
    for (int k = 0; k < s->stores; k++) {
        check_kept(s, p, before, k);
        HOLDS(s->m->link[k] >= 0 || links[k] < 0 || s->damaged, util_fmt("the link of store %d, that led to %d, leads to nothing", k, links[k]));
        bool older = s->rolled && s->m->link[k] > 0 && before[s->m->link[k]].staged;       // what a life that went back had left
        HOLDS(s->m->link[k] >= links[k] || links[k] > s->m->resumed || older || may_be_replaced(s), util_fmt("the link of store %d went back from %d", k, links[k]));
    }
    HOLDS(s->r.keep == CKPT_KEEP_NONE || told == 0 || floor_of(s, false) >= told, "the newest checkpoint that was reported is gone");
    if (died || !s->m->settled) return;
    bool others = s->m->saves[told].refused && !s->straight;           // all its names are taken: it began anew without asking
    for (int k = 0; k < s->stores; k++) {
        check_store(s, p, before, k);
        HOLDS(told == 0 || others || s->m->link[k] == told, util_fmt("the link of store %d does not lead to %d", k, told));
    }
    for (int b = 1; b <= s->last; b++) {
        const save *v = &s->m->saves[b];
        bool taken = v->refused && !s->straight;            // another machine's, or another life's
        HOLDS(!v->staged || taken, util_fmt("ba%d.pt is still staged", b));
        bool all = b > s->m->resumed && v->told && !taken;
        HOLDS(!all || s->r.keep != CKPT_KEEP_NONE || !v->here || v->pinned || s->r.every > 0 || s->r.best, util_fmt("ba%d.pt has not left the folder", b));
    }
}

// What people do between two lives of a run.
static void meddle(scene *s) {
    int b = s->last > 0 ? 1 + (int)pick(s, (unsigned)s->last) : 0, k = (int)pick(s, (unsigned)s->stores);
    save *v = &s->m->saves[b];
    if (b == 0) return;
    switch (pick(s, 15)) {
    case 0:
        if (v->whole) assert_int_equal(unlink(file_of(s, b)), 0);
        v->maybe = v->maybe || v->pinned;
        v->pinned = false;
        break;
    case 1:
        if (v->whole && !s->constant) {     // what is sent again without its sum replaces a good one there
            int fd = open(file_of(s, b), O_RDWR);
            char byte = 0;
            struct stat st;
            assert_true(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &byte, 1, 6000) == 1);
            byte = (char)(byte ^ 1);
            if (st.st_nlink == 1) assert_true(pwrite(fd, &byte, 1, 6000) == 1);        // else what is staged would be damaged as well
            close(fd);
            s->damaged = true;
        }
        break;
    case 2:
        if (!v->far[k] || s->constant) break;
        assert_int_equal(unlink(object_of(s, k, b)), 0);
        s->steady = false;
        break;
    case 3:
        if (v->pinned || !v->whole) break;
        pin(s->dir, util_fmt("ba%d.pt", b), true);
        v->pinned = true;
        break;
    case 4:
        s->moved = false;
        (void)unlink(util_join(s->dir, ".ckpt-index.jsonl"));
        for (int i = 1; i <= s->last; i++) s->m->saves[i].pinned = false;
        s->steady = false;
        break;
    case 5:                                                 // the run goes on on another machine
        s->moved = true;
        util_remove_tree(s->dir);
        util_mkdir(s->dir);
        util_remove_tree(staging_of(s));
        for (int i = 1; i <= s->last; i++) s->m->saves[i].pinned = false;
        s->steady = false;
        break;
    case 6: {
        ckpt_folder *f;
        ckpt_folder_desc d;
        ckpt_gc_desc g;
        memset(&d, 0, sizeof d);
        memset(&g, 0, sizeof g);
        d.folder = s->dir;
        ok(ckpt_folder_open(&f, &d));
        (void)!ckpt_folder_gc(f, &g);
        ckpt_folder_close(f);
        break;
    }
    case 7:
        if (!s->uri) (void)unlink(util_join(s->bucket[k], "latest.pt.symlink"));
        break;
    case 8:
        if (!s->uri) place_push(s->bucket[k], k == 0 ? "A" : "B", staging_of(s));
        break;
    case 9: {                                               // to another machine, or back to this one, which still has what it had
        const char *pairs[2][2] = { { s->dir, util_join(s->work, "other") }, { util_join(s->work, ".ckpt-staging"), util_join(s->work, "other-staging") } };
        for (int i = 0; i < 1 + (int)s->elsewhere; i++) {
            const char *aside = util_join(s->work, "aside");
            if (!util_exists(pairs[i][0])) util_mkdir(pairs[i][0]);
            if (!util_exists(pairs[i][1])) util_mkdir(pairs[i][1]);
            assert_int_equal(rename(pairs[i][0], aside), 0);
            assert_int_equal(rename(pairs[i][1], pairs[i][0]), 0);
            assert_int_equal(rename(aside, pairs[i][1]), 0);
        }
        for (int i = 1; i <= s->last; i++) s->m->saves[i].pinned = false;
        s->steady = s->straight = false;
        break;
    }
    default: break;
    }
    look(s);
}

static void draw_plan(scene *s, plan *p) {
    memset(p, 0, sizeof *p);
    p->count = (int)pick(s, 8);
    p->waits = pick(s, 65536);
    p->workers = 1 + (int)pick(s, 3);
    p->heals = pick(s, 2) == 0;
    p->pins = pick(s, 4) == 0;
    p->impatient = pick(s, 4) == 0;
    p->offline = pick(s, 6) == 0;
    for (int k = 0; k < s->stores && !s->uri; k++) {
        p->how[k] = pick(s, 2) == 0 ? FINE : (mood)pick(s, MOODS);
        p->from[k] = pick(s, 4) == 0 ? 0 : 8 + (int)pick(s, 12);
        p->until[k] = pick(s, 3) == 0 ? 1 << 20 : p->from[k] + 1 + (int)pick(s, 30);
    }
    p->floor = floor_of(s, !p->offline);
    s->rolled = s->rolled || (p->offline && p->floor < floor_of(s, true));
    // What is staged is brought to the store as soon as the uploader opens, and then it has what this life does not ask it for.
    for (int b = p->floor + 1; b <= s->last; b++) s->rolled = s->rolled || (p->offline && s->m->saves[b].staged);
    s->straight = s->straight && !s->rolled;
}

static void draw_rules(scene *s) {
    static const int keeps[] = { CKPT_KEEP_ALL, 1, 2, CKPT_KEEP_NONE, CKPT_KEEP_NONE, 1 }, fars[] = { CKPT_KEEP_ALL, 1, 2, 3 };
    s->r.keep = keeps[pick(s, 6)];
    s->r.far = s->constant ? CKPT_KEEP_ALL : fars[pick(s, 4)];
    s->r.every = (int)pick(s, 4) == 0 ? 2 + (int)pick(s, 3) : 0;
    s->r.best = pick(s, 4) == 0;
    s->r.snapshot = modes[pick(s, 3)];
}

static void scenario(scene *s, int lives) {
    for (s->life = 0; s->life < lives; s->life++) {
        static save before[BATCHES];
        int links[STORES];
        plan drawn, *p = &drawn;
        draw_plan(s, p);
        int dies = pick(s, 2) == 0 ? 1 + (int)pick(s, 60u + 150u * (unsigned)p->count) : 0;
        if (s->last + p->count + 1 >= BATCHES) break;
        memcpy(before, s->m->saves, sizeof before);
        memcpy(links, s->m->link, sizeof links);
        for (int b = p->floor + 1; b < BATCHES; b++) s->m->saves[b].started = s->m->saves[b].told = false;
        for (int b = s->last + 1; b < BATCHES; b++) s->m->saves[b].pinned = false;
        s->m->line = s->m->settled = 0;
        memset(s->m->owes, 0, sizeof s->m->owes);
        s->m->resumed = s->last;                // until it says so
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            deaths_in = dies;
            fault_watch = mortal;
            live(s, p);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        bool died = WIFEXITED(status) && WEXITSTATUS(status) == DIED;
        if (getenv("MODEL_SHOW") != NULL) show_state(s, died);
        HOLDS(died || s->m->line == 0, util_fmt("line %d: %s", s->m->line, s->m->why));
        HOLDS(died || status == 0, util_fmt("status %x", (unsigned)status));
        check(s, p, before, links, died);
        s->moved = s->moved && (died || s->m->resumed == 0);
        for (int n = (int)pick(s, 3); n > 0; n--) meddle(s);
        if (pick(s, 6) == 0) {
            draw_rules(s);
            s->steady = false;
        }
    }
}

static void test_model_remote(void **state) {
    (void)state;
    mortal_seeds seeds = mortal_choose(8, 1000);
    void *shared = mortal_memory(sizeof(model));
    for (unsigned seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        scene s;
        memset(&s, 0, sizeof s);
        memset(shared, 0, sizeof(model));
        s.m = (model *)shared;
        s.seed = seed;
        s.random = mortal_random(seed);
        s.work = util_temp_dir();
        s.uri = pick(&s, 4) == 0;
        s.stores = s.uri ? 1 : 1 + (int)pick(&s, 2);
        s.constant = pick(&s, 5) == 0;
        s.elsewhere = pick(&s, 4) == 0;
        s.steady = s.straight = true;
        for (int k = 0; k < s.stores; k++) s.bucket[k] = util_temp_dir();
        s.dir = s.uri ? util_fmt("%s%s", s.work, s.bucket[0]) : util_join(s.work, "run");
        ok(ckpt__os_mkdirs(s.dir));
        draw_rules(&s);
        scenario(&s, 8);
        util_remove_tree(s.work);
        for (int k = 0; k < s.stores; k++) util_remove_tree(s.bucket[k]);
    }
    if (reader != NULL) ckpt_state_free(&reader->st);
    assert_int_equal(munmap(shared, sizeof(model)), 0);
}

int main(void) {
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    fault_backoff = 0.001;
    fault_hope = 0.002;
    fault_hope_most = 0.01;
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_model_remote) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
