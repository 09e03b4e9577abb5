/* test_crew.c: savers on many ranks, as threads: what they do together or not at all. Monolithic, sharded and per-rank tars, over
   folders that are shared and not, with failures, deaths, requests, rotation, links and stores. run.sh: waits plain tsan memory */

#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "thread_ranks.h"
#include "bucket_util.h"

enum { STRIDE = UTIL_STRIDE(3) };       // between the calls at which a rank dies

enum { ROWS = 37, COLS = 300, MOST_MINE = ROWS * COLS, BIG = 3 << 18 };

// A rank of a training run: its rows of a matrix, a replicated vector, a value of its own, and counters.
typedef struct member {
    ckpt_state      st;
    float           mine[MOST_MINE];
    float           shared[500];
    double          loss;
    int64_t         step;
    char            rng[16];
    int64_t         first, rows;
    ckpt_saver_desc d;
    ckpt_saver     *s;
    tr_rank        *r;
    char            folder[300], own[40];
    float          *big;
    bool            slow;
    char            log[16384];
} member;

static void member_log(ckpt_log_level level, const char *msg, void *user) {
    member *m = (member *)user;
    size_t n = strlen(m->log);
    (void)snprintf(m->log + n, sizeof m->log - n, "%d %s\n", (int)level, msg);
}

static ckpt_err member_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    member *m = (member *)user;
    (void)to_device;
    if (m->slow) tr_busy(m->r, 0.02);
    memcpy(dst, src, size);
    return CKPT_OK;
}

static void member_set(member *m, int64_t step) {
    m->step = step;
    m->loss = (double)((step * 5) % 11);
    for (int64_t i = 0; i < m->rows * COLS; i++) m->mine[i] = (float)(step * 1000000 + m->first * COLS + i);
    for (int i = 0; i < 500; i++) m->shared[i] = (float)(step * 3 + i);
    if (m->big != NULL) m->big[BIG / 2] = (float)step;
    (void)snprintf(m->rng, sizeof m->rng, "r%d-%d", m->r->rank, (int)step);
}

static void member_check(member *m, int64_t step) {
    bool good = m->step == step && m->loss == (double)((step * 5) % 11);
    for (int64_t i = 0; i < m->rows * COLS; i++) good = good && m->mine[i] == (float)(step * 1000000 + m->first * COLS + i);
    for (int i = 0; i < 500; i++) good = good && m->shared[i] == (float)(step * 3 + i);
    good = good && (m->big == NULL || m->big[BIG / 2] == (float)step);
    TR_CHECK(m->r, good);
}

typedef enum layout { WHOLE, SHARDED, TARS } layout;

typedef struct plan {
    layout          how;
    ckpt_snapshot   snapshot;
    const char     *dir;
    bool            apart;              // each rank a folder of its own
    int             by;                 // not 0: so many ranks share one, and their launcher says nothing of machines
    bool            nodes;              // but for node_rank
    bool            overwrite;
    bool            big;                // with a tensor of several MiB that tells steps apart in its middle alone
    int             keep, saves;
    const char     *interval, *filename, *prefix, *latest, *best;
    void          (*then)(member *m, struct plan *p);
    ckpt_err        want;
    int             number;
    void           *with;
    const char     *ignore;
    const char     *fails, *then_fails; // what a bucket refuses from the start, and after the first save
    bool            offline;            // resume_offline
    bool            empties;            // CKPT_KEEP_NONE where a store has what is there
    bool            device;             // the matrix lies on a device, to and from which rank `slow` takes its time
    int             slow;
    char            text[TR_MOST][1100];
} plan;

// In a folder of its own.
static plan plan_of(layout how) {
    plan p;
    memset(&p, 0, sizeof p);
    p.how = how;
    p.dir = util_temp_dir();
    return p;
}

static member *member_new(tr_rank *r, const plan *p) {
    member *m = (member *)calloc(1, sizeof *m);
    int n = r->world->size;
    m->r = r;
    m->first = ROWS * r->rank / n;
    m->rows = ROWS * (r->rank + 1) / n - m->first;
    if (p->how != SHARDED) m->first = 0, m->rows = ROWS;
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 2;
    t.shape[0] = m->rows;
    t.shape[1] = COLS;
    t.data = m->mine;
    if (p->how == SHARDED) {
        t.global_shape[0] = ROWS;
        t.global_shape[1] = COLS;
        t.offset[0] = m->first;
    }
    if (p->device) {
        t.device = true;
        m->st.copy = member_copy;
        m->st.copy_user = m;
        m->slow = r->rank == p->slow;
    }
    ckpt_bind(&m->st, "state/model/w", &t);
    ckpt_bind_f32(&m->st, "state/model/shared", m->shared, 500);
    ckpt_bind_float(&m->st, "state/metrics/loss", &m->loss);
    ckpt_bind_int(&m->st, "state/step", &m->step);
    (void)snprintf(m->own, sizeof m->own, "rng/%d/python", r->rank);
    if (p->apart || p->by > 0) (void)snprintf(m->folder, sizeof m->folder, "%s/rank%d", p->dir, r->rank / (p->by > 0 ? p->by : 1));
    else (void)snprintf(m->folder, sizeof m->folder, "%s", p->dir);
    if (p->big) {
        m->big = (float *)calloc(BIG, sizeof *m->big);
        ckpt_bind_f32(&m->st, "state/model/big", m->big, BIG);
    }
    if (p->how != TARS) ckpt_bind_text(&m->st, m->own, m->rng, sizeof m->rng);     // in one file for all there is rank 0's alone
    m->d.state = &m->st;
    m->d.folder = m->folder;
    m->d.run_name = "r";
    m->d.filename = p->filename != NULL ? p->filename : p->how == TARS ? "ba{batch}-rank{rank}.pt" : "ba{batch}.pt";
    m->d.latest_filename = p->latest != NULL ? p->latest : "latest-rank{rank}.pt";
    m->d.sharded = p->how == SHARDED;
    m->d.sharded_prefix_dir = p->prefix != NULL ? p->prefix : "ba{batch}";
    m->d.per_rank_tar = p->how == TARS;
    m->d.save_interval = p->interval != NULL ? p->interval : "1ba";
    m->d.snapshot = p->snapshot;
    m->d.keep_best = p->best;
    m->d.num_checkpoints_to_keep = p->keep;
    m->d.logger.fn = member_log;
    m->d.logger.user = m;
    m->d.ranks = r->ranks;
    if (p->by > 0) m->d.ranks.local_rank = m->d.ranks.local_world_size = 0;
    if (p->nodes) m->d.ranks.node_rank = r->rank;
    m->d.ignore_keys = &p->ignore;
    m->d.ignore_keys_count = p->ignore != NULL ? 1 : 0;
    member_set(m, 0);
    return m;
}

// A folder whose .metadata is there: what takes it away is another thread.
static int is_whole(const char *folder, const char *name) {
    char path[500];
    (void)snprintf(path, sizeof path, "%s/%s/.metadata", folder, name);
    return access(path, F_OK) == 0;
}

static ckpt_timestamp at_batch(int64_t batch) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = t.batch_in_epoch = batch;
    return t;
}

static bool member_open(member *m) {
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    TR_OK(m->r, e);
    return e == CKPT_OK;
}

static void member_free(member *m) {
    ckpt_state_free(&m->st);
    free(m->big);
    free(m);
}

static ckpt_err member_step(member *m, int64_t step) {
    ckpt_timestamp t = at_batch(step);
    TR_OK(m->r, ckpt_saver_fence(m->s));
    member_set(m, step);
    return ckpt_saver_batch_end(m->s, &t);
}

static void member_end(member *m) {
    if (m->s != NULL) TR_OK(m->r, ckpt_saver_close(m->s, 0));
    member_free(m);
}

// The names in a folder but the library's own, "a b c".
static const char *names_in(const char *dir) { return util_names(dir, NULL); }

static const ckpt_snapshot modes[] = { CKPT_SNAPSHOT_NONE, CKPT_SNAPSHOT_COPY, CKPT_SNAPSHOT_LAZY };
static const int sizes[] = { 1, 2, 4, 8 };

// Each rank with uploaders of its own for `count` buckets.
static void member_stores(member *m, bucket **b, ckpt_uploader **u, int count) {
    for (int i = 0; i < count; i++) {
        ckpt_uploader_desc d;
        memset(&d, 0, sizeof d);
        d.store = b[i]->store;
        d.num_attempts = 1;
        d.ranks = m->r->ranks;
        TR_OK(m->r, ckpt_uploader_open(&u[i], &d));
    }
    m->d.uploaders = u;
    m->d.uploaders_count = count;
    m->d.remote_file_name = "run/x.pt";
    m->d.latest_remote_file_name = "run/latest.pt";
    m->d.num_checkpoints_to_keep = 1;
}

// Ends them with the saver. failed: some upload did.
static void member_end_stores(member *m, ckpt_uploader **u, int count, bool failed) {
    if (m->s != NULL) TR_CHECK(m->r, (ckpt_saver_close(m->s, 0) != CKPT_OK) == failed);
    m->s = NULL;
    for (int i = 0; i < count; i++) (void)!ckpt_uploader_close(u[i], 0);
    member_free(m);
}

//-- saving ------------------------------------------------------------------------

static void save_some(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (member_open(m)) {
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        const char *const *paths;
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d", ckpt_saver_checkpoints(m->s, &paths));
    }
    member_end(m);
}

static ckpt_err copy_late(void *dst, const void *src, size_t size, bool to_device, void *user) {
    (void)to_device, (void)user;
    ckpt__os_sleep(0.02);
    memcpy(dst, src, size);
    return CKPT_OK;
}

// A close that waits for a save and succeeds leaves the thread's last failure as it was.
static void close_quietly(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->st.copy = copy_late;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        (void)ckpt_set_error(CKPT_IO, "an older failure");
        TR_OK(r, ckpt_saver_close(m->s, 0));
        m->s = NULL;
        TR_CHECK(r, strcmp(ckpt_last_error(), "an older failure") == 0);
    }
    member_end(m);
}

static void test_sentence_stays(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        plan p = plan_of((layout)how);
        p.snapshot = CKPT_SNAPSHOT_LAZY;
        p.device = true;
        tr_run(tr_new(2), close_quietly, &p);
    }
}

// Ranks of another job load what is there: each its rows.
static void load_newest(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == p->want);
        if (e == CKPT_OK) TR_CHECK(r, t.batch == p->number);
        if (e == CKPT_OK) member_check(m, p->number);
    }
    member_end(m);
}

static void test_layouts(void **state) {
    (void)state;
    for (size_t mode = 0; mode < 3; mode++) {
        for (size_t k = 0; k < 4; k++) {
            for (int how = 0; how < 3; how++) {
                int n = sizes[k];
                plan p = plan_of((layout)how);
                p.snapshot = modes[mode];
                p.keep = 2;
                p.saves = 3;
                tr_world *w = tr_new(n);
                tr_run(w, save_some, &p);
                const char *want = how == WHOLE ? "ba2.pt ba3.pt latest-rank0.pt" : "ba2 ba3 latest-rank0.pt";
                if (how == TARS) {
                    char all[1024] = "";
                    for (int b = 2; b <= 3; b++)
                        for (int i = 0; i < n; i++) sprintf(all + strlen(all), "ba%d-rank%d.pt.tar ", b, i);
                    for (int i = 0; i < n; i++) sprintf(all + strlen(all), "latest-rank%d.pt.tar%s", i, i < n - 1 ? " " : "");
                    want = util_fmt("%s", all);
                }
                assert_string_equal(names_in(p.dir), want);
                for (int i = 0; i < n; i++) if (how != WHOLE || i == 0) assert_string_equal(p.text[i], "2");
                if (how == SHARDED) {
                    char all[1024] = ".metadata";
                    for (int i = 0; i < n; i++) sprintf(all + strlen(all), " __%d_0.pt", i);
                    assert_string_equal(names_in(util_join(p.dir, "ba3")), all);
                    assert_string_equal(names_in(util_join(p.dir, "latest-rank0.pt")), all);
                }
                p.number = 3;
                tr_run(w, load_newest, &p);
            }
        }
    }
}


//-- Composer's cases ---------------------------------------------------------------

static const char *text_of(const ckpt__json_doc *d, const ckpt__json *row, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, row, key);
    return v != NULL && v->kind == CKPT__JSON_TEXT ? v->text : NULL;
}

static int int_of(const ckpt__json_doc *d, const ckpt__json *row, const char *key, int none) {
    const ckpt__json *v = ckpt__json_get(d, row, key);
    return v != NULL && v->kind == CKPT__JSON_INT ? (int)v->i : none;
}

// sharded_files.json: how many folders are left, and what is in each. Torch's ending is ours.
static void test_cases(void **state) {
    (void)state;
    size_t size;
    char *text = util_read(util_tests_path("cases/sharded_files.json"), &size);
    ckpt__json_doc d;
    ckpt_allocator a = { NULL, NULL };
    int rows = 0, tars = 0;
    assert_int_equal(ckpt__json_parse(&d, &a, text, size), CKPT_OK);
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row)) {
        plan p;
        memset(&p, 0, sizeof p);
        p.dir = util_temp_dir();
        if (text_of(&d, row, "saved_as") != NULL) {
            p.how = TARS;
            p.saves = 1;
            p.filename = "ep{batch}-rank{rank}.pt";
            tr_run(tr_new(1), save_some, &p);
            assert_true(util_exists(util_join(p.dir, text_of(&d, row, "saved_as"))));
            tars++;
            continue;
        }
        if (text_of(&d, row, "prefix_dir") == NULL) continue;
        int ranks = int_of(&d, row, "ranks", 0), keep = int_of(&d, row, "keep", -1);
        p.how = SHARDED;
        p.prefix = text_of(&d, row, "prefix_dir");
        p.interval = text_of(&d, row, "interval");
        p.keep = keep < 0 ? CKPT_KEEP_ALL : keep;
        p.saves = int_of(&d, row, "batches", 4);
        p.latest = "latest";
        tr_run(tr_new(ranks), save_some, &p);
        int dirs = 0, want = int_of(&d, row, "expect_dirs", 2);
        for (int b = 1; b <= p.saves; b++) {
            ckpt_timestamp t = at_batch(b);
            char name[64];
            ckpt_name_desc nd;
            memset(&nd, 0, sizeof nd);
            nd.timestamp = &t;
            assert_int_equal(ckpt_format_name(name, sizeof name, p.prefix, &nd), CKPT_OK);
            if (!util_exists(util_join(p.dir, name))) continue;
            dirs++;
            char all[256] = "";
            const ckpt__json *files = ckpt__json_get(&d, row, "files_in_each");
            for (const ckpt__json *f = ckpt__json_child(&d, files); f != NULL; f = ckpt__json_next(&d, f)) {
                size_t stem = strcspn(f->text + 1, ".") + 1;
                bool torch = strstr(f->text, ".distcp") != NULL;
                sprintf(all + strlen(all), "%s%.*s%s", all[0] != 0 ? " " : "", (int)stem, f->text, torch ? ".pt" : f->text + stem);
            }
            assert_string_equal(names_in(util_join(p.dir, name)), all);
        }
        assert_int_equal(dirs, want);
        rows++;
    }
    ckpt__json_free(&d);
    assert_int_equal(rows, 5);
    assert_int_equal(tars, 1);
}

typedef struct layout_case { const ckpt__json_doc *d; const ckpt__json *row; bucket *b; } layout_case;

static const ckpt__json *part_of(const layout_case *c, const char *key) { return ckpt__json_get(c->d, c->row, key); }

static const ckpt__json *first_of(const layout_case *c, const char *key) { return ckpt__json_child(c->d, part_of(c, key)); }

static void save_layout(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    layout_case *c = (layout_case *)p->with;
    member *m = member_new(r, p);
    ckpt_uploader *u = NULL;
    member_stores(m, &c->b, &u, 1);
    m->d.folder = p->dir;
    m->d.filename = text_of(c->d, part_of(c, "args"), "filename");
    m->d.latest_filename = NULL;
    m->d.remote_file_name = "{run_name}/checkpoints/ep{epoch}-ba{batch}-rank{rank}.pt";
    m->d.latest_remote_file_name = "{run_name}/checkpoints/latest-rank{rank}.pt";
    m->d.num_checkpoints_to_keep = int_of(c->d, part_of(c, "args"), "num_checkpoints_to_keep", CKPT_KEEP_ALL);
    if (member_open(m)) {
        for (const ckpt__json *save = first_of(c, "saves"); save != NULL; save = ckpt__json_next(c->d, save)) {
            ckpt_timestamp t = at_batch(int_of(c->d, save, "batch", 0));
            member_set(m, t.batch);
            TR_OK(r, ckpt_saver_save(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
        }
        const char *const *paths;
        int count = ckpt_saver_checkpoints(m->s, &paths), i = 0;
        const ckpt__json *saved = part_of(c, "saved_checkpoints");
        TR_CHECK(r, count == (int)saved->count);
        for (const ckpt__json *v = ckpt__json_child(c->d, saved); v != NULL && i < count; v = ckpt__json_next(c->d, v), i++)
            TR_CHECK(r, strncmp(paths[i], v->text, strlen(paths[i])) == 0 && strncmp(v->text + strlen(paths[i]), "/__", 3) == 0);
    }
    member_end_stores(m, &u, 1, false);
}

static int times_in(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++) n++;
    return n;
}

// What the row's rank leaves: of the folders that rank 0 removes nothing, where Composer's other ranks, alone, leave theirs.
static void check_layout(const layout_case *c, const char *folder, const char *rank) {
    const ckpt__json *saved = part_of(c, "saved_checkpoints");
    int objects = 0;
    for (const ckpt__json *v = first_of(c, "tree"); v != NULL; v = ckpt__json_next(c->d, v)) {
        bool kept = strstr(v->key, "/__") == NULL;
        for (const ckpt__json *s = ckpt__json_child(c->d, saved); s != NULL; s = ckpt__json_next(c->d, s)) kept = kept || strcmp(s->text, v->key) == 0;
        if (util_exists(cases_shard(v->key)) != kept) fail_msg("%s", v->key);
        if (strncmp(v->text, "-> ", 3) == 0) assert_string_equal(util_link_target(v->key), v->text + 3);
    }
    assert_int_equal(times_in(names_in(folder), " "), saved->count);            // and the link
    for (const ckpt__json *up = first_of(c, "uploads"); up != NULL; up = ckpt__json_next(c->d, up)) {
        const char *name = cases_shard(text_of(c->d, up, "remote_name")), *text = text_of(c->d, up, "symlink_content");
        if (!bucket_has(c->b, name)) fail_msg("%s is not in the store", name);
        if (text == NULL) assert_int_equal(bucket_count(c->b, util_fmt("put %s\n", name)), 1);
        else if (ckpt__json_next(c->d, up) == NULL) assert_string_equal(bucket_text(c->b, name), text);
        objects += strstr(name, "/__") != NULL;
    }
    assert_int_equal(times_in(bucket_names(c->b), util_fmt("%%__%s_", rank)), objects);
}

// saver_layout.json's rows of one rank of a sharded checkpoint: both are here, since without the other there is none.
static void test_layout_cases(void **state) {
    (void)state;
    size_t size;
    char *text = util_read(util_tests_path("cases/saver_layout.json"), &size);
    ckpt__json_doc d;
    ckpt_allocator a = { NULL, NULL };
    int rows = 0;
    assert_int_equal(ckpt__json_parse(&d, &a, text, size), CKPT_OK);
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row)) {
        const char *rank = text_of(&d, ckpt__json_get(&d, row, "env"), "LOCAL_RANK"), *folder = text_of(&d, ckpt__json_get(&d, row, "args"), "folder");
        plan p = plan_of(SHARDED);
        p.prefix = text_of(&d, row, "sharded_prefix_dir");
        if (p.prefix == NULL || rank == NULL) continue;
        assert_int_equal(chdir(p.dir), 0);
        layout_case c = { &d, row, bucket_new(NULL) };
        p.dir = folder;
        p.with = &c;
        tr_run(tr_new(2), save_layout, &p);
        check_layout(&c, strncmp(folder, "checkpoints", 11) == 0 ? "checkpoints/r" : "r/c", rank);
        bucket_end(c.b);
        assert_int_equal(chdir("/"), 0);
        rows++;
    }
    assert_int_equal(rows, 3);
    ckpt__json_free(&d);
}

//-- loading ------------------------------------------------------------------------

static void test_reshape(void **state) {
    (void)state;
    static const int from[] = { 8, 8, 1, 2, 4 }, to[] = { 1, 3, 4, 8, 2 };
    for (int i = 0; i < 5; i++) {
        plan p = plan_of(SHARDED);
        p.saves = 2;
        tr_run(tr_new(from[i]), save_some, &p);
        p.number = 2;
        tr_run(tr_new(to[i]), load_newest, &p);
    }
}

// Goes on from what is there and saves one more.
static void go_on(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == p->want);
        if (e == CKPT_OK) {
            TR_CHECK(r, t.batch == p->number);
            member_check(m, p->number);
        } else if (p->want == CKPT_OK) {
            print_error("%s\n", m->log);
        }
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%s", e == CKPT_OK ? "" : ckpt_last_error());
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, p->number + i));
    }
    member_end(m);
}

static void flip_in(const char *dir, const char *name) {
    util_flip(util_join(dir, name), 8000, 1);
}

// A damaged file of one rank sends all of them to the folder before; so does a file that is gone.
static void test_walk_back(void **state) {
    (void)state;
    for (int gone = 0; gone < 3; gone++) {
        plan p = plan_of(SHARDED);
        p.saves = 3;
        tr_run(tr_new(4), save_some, &p);
        if (gone == 0) flip_in(p.dir, "ba3/__2_0.pt");
        if (gone == 1) unlink(util_join(p.dir, "ba3/__2_0.pt"));
        if (gone == 2) util_flip(util_join(p.dir, "ba3/.metadata"), 60, 1);
        p.number = 2;
        p.saves = 0;
        tr_run(tr_new(4), go_on, &p);
        p.saves = 1;
        tr_run(tr_new(3), go_on, &p);           // and the run goes on over what is damaged
        p.number = 3;
        p.saves = 0;
        tr_run(tr_new(2), go_on, &p);
    }
}

// Without .metadata nothing counts, and the next saver takes it away.
static void test_uncommitted(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.saves = 2;
    tr_run(tr_new(4), save_some, &p);
    unlink(util_join(p.dir, "ba2/.metadata"));
    unlink(util_join(p.dir, ".ckpt-index.jsonl"));
    p.number = 1;
    p.saves = 0;
    tr_run(tr_new(2), go_on, &p);
    assert_string_equal(names_in(p.dir), "ba1 latest-rank0.pt");
    assert_string_equal(util_link_target(util_join(p.dir, "latest-rank0.pt")), "ba1");
}

// Without their index folders are in the order of their saves, which is not that of as many first ones; and the best is known.
static void test_index_lost(void **state) {
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        plan p = plan_of(SHARDED);
        p.apart = apart == 1;
        p.keep = 2;
        p.best = "max:state/metrics/loss";          // 5 10 4 9 3 8 2: of step 2
        p.saves = 6;
        tr_run(tr_new(3), save_some, &p);
        const char *first = apart ? util_join(p.dir, "rank0") : p.dir;
        assert_string_equal(names_in(first), "ba2 ba5 ba6 latest-rank0.pt");
        for (int i = 0; i < 3; i++) unlink(util_join(p.dir, util_fmt(apart ? "rank%d/.ckpt-index.jsonl" : ".ckpt-index.jsonl", i)));
        p.number = 6;
        p.saves = 1;
        tr_run(tr_new(3), go_on, &p);
        assert_string_equal(names_in(first), "ba2 ba6 ba7 latest-rank0.pt");
        // and so is what was saved when there was no such rule
        plan q = plan_of(SHARDED);
        q.apart = p.apart;
        q.keep = 3;
        q.saves = 7;
        tr_run(tr_new(3), save_some, &q);
        q.best = p.best;
        q.keep = 2;
        q.number = 7;
        q.saves = 1;
        tr_run(tr_new(3), go_on, &q);
        assert_string_equal(names_in(apart ? util_join(q.dir, "rank0") : q.dir), "ba6 ba7 ba8 latest-rank0.pt");
    }
}

// What resume has passed over, of which one rank's tarball is missing or damaged, counts for no rank: the checkpoint that was gone on
// from is among the newest that stay.
static void test_tars_passed_over(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        plan p = plan_of(TARS);
        p.keep = 2;
        p.saves = 3;
        tr_world *w = tr_new(2);
        tr_run(w, save_some, &p);
        const char *name = util_fmt("ba3-rank%d.pt.tar", k % 2);
        if (k < 2) assert_int_equal(unlink(util_join(p.dir, name)), 0);
        else flip_in(p.dir, name);
        p.number = 2;
        p.interval = "2ba";
        p.saves = 2;
        tr_run(w, go_on, &p);                   // to the save of ba4
        for (int i = 0; i < 2; i++) assert_true(util_exists(util_join(p.dir, util_fmt("ba2-rank%d.pt.tar", i))));
        flip_in(p.dir, "ba4-rank0.pt.tar");
        p.saves = 0;
        tr_run(w, go_on, &p);
        for (int i = 0; i < 2; i++) {           // in the end it goes, but for what rank 0 knows to be damaged
            p.number = i == 0 ? 2 : 8;
            p.saves = 6;
            tr_run(w, go_on, &p);
        }
        assert_string_equal(names_in(p.dir), util_fmt("ba12-rank0.pt.tar ba12-rank1.pt.tar ba14-rank0.pt.tar ba14-rank1.pt.tar %slatest-rank0.pt.tar "
                            "latest-rank1.pt.tar", k == 2 ? "ba3-rank0.pt.tar " : ""));
    }
}

// A sharded checkpoint is in the folder when each rank is to have a tarball of its own: where one rank's file is damaged, all pass it over.
static void over_sharded(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    static float own[2][20000];
    ckpt_timestamp t = at_batch(0);
    ckpt_bind_f32(&m->st, util_fmt("state/model/own%d", r->rank), own[r->rank], 20000);
    if (member_open(m)) {
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == p->number && own[r->rank][19999] == (float)p->number);
        for (int i = p->number + 1; i <= p->number + p->saves; i++) {
            for (int k = 0; k < 20000; k++) own[r->rank][k] = (float)i;
            TR_OK(r, member_step(m, i));
        }
        own[r->rank][19999] = 0;
    }
    member_end(m);
}

static void test_tars_over_sharded(void **state) {
    (void)state;
    for (int damaged = 0; damaged < 3; damaged++) {
        plan p = plan_of(SHARDED);
        p.ignore = "rng/*";
        p.saves = 2;
        tr_run(tr_new(2), over_sharded, &p);
        if (damaged > 0) util_flip(util_join(p.dir, util_fmt("ba2/__%d_0.pt", damaged - 1)), 60000, 1);
        p.how = TARS;
        p.number = damaged > 0 ? 1 : 2;
        p.saves = 0;
        tr_run(tr_new(2), over_sharded, &p);
    }
}

// A saver goes on from checkpoints of another layout, of another number of ranks, a sharded one where all lies in one folder. A damaged one
// is passed over.
static void test_other_layout(void **state) {
    (void)state;
    static const layout from[] = { WHOLE, WHOLE, SHARDED, SHARDED, WHOLE }, to[] = { SHARDED, SHARDED, WHOLE, TARS, SHARDED };
    for (int k = 0; k < UTIL_COUNT(from); k++) {
        plan p = plan_of(from[k]);
        p.apart = k == 1 || k == 4;
        p.saves = 2;
        tr_run(tr_new(k == 4 ? 1 : 3), save_some, &p);
        if (k == 4) flip_in(p.dir, "rank0/ba2.pt");
        p.how = to[k];
        p.number = k == 4 ? 1 : 2;
        p.saves = 0;
        tr_run(tr_new(3), go_on, &p);
        p.saves = 1;
        tr_run(tr_new(3), go_on, &p);
        p.saves = 0;
        p.number++;
        tr_run(tr_new(3), go_on, &p);
    }
}

// One rank's folder lacks the newest: the newest that all have is taken. With tars that every rank has of its own, too.
static void test_apart(void **state) {
    (void)state;
    for (int how = 1; how < 3; how++) {
        for (int lost = 0; lost < 2; lost++) {
            plan p = plan_of((layout)how);
            p.apart = true;
            p.saves = 3;
            tr_world *w = tr_new(3);
            tr_run(w, save_some, &p);
            if (how == SHARDED) {
                assert_string_equal(names_in(util_join(p.dir, "rank1/ba3")), ".metadata __1_0.pt");
                assert_string_equal(util_link_target(util_join(p.dir, "rank1/latest-rank0.pt")), "ba3");
            } else {
                assert_string_equal(names_in(util_join(p.dir, "rank1")), "ba1-rank1.pt.tar ba2-rank1.pt.tar ba3-rank1.pt.tar latest-rank1.pt.tar");
            }
            int victim = lost == 0 ? 2 : 0;
            util_remove_tree(util_join(p.dir, util_fmt(how == SHARDED ? "rank%d/ba3" : "rank%d/ba3-rank%d.pt.tar", victim, victim)));
            p.number = 2;
            p.saves = 1;
            tr_run(w, go_on, &p);
            p.number = 3;
            p.saves = 0;
            tr_run(w, go_on, &p);
        }
    }
}

// Launchers that set no LOCAL_RANK: who leads in a folder is found out in the folder, also where several machines share one.
static void test_apart_unsaid(void **state) {
    (void)state;
    for (int nodes = 0; nodes < 2; nodes++) {
        plan p = plan_of(SHARDED);
        p.by = 2;
        p.nodes = nodes == 1;
        p.saves = 2;
        tr_world *w = tr_new(6);
        tr_run(w, save_some, &p);
        for (int i = 0; i < 3; i++)
            assert_string_equal(names_in(util_join(p.dir, util_fmt("rank%d/ba2", i))), util_fmt(".metadata __%d_0.pt __%d_0.pt", 2 * i, 2 * i + 1));
        p.number = 2;
        p.saves = 1;
        tr_run(w, go_on, &p);
        assert_null(strstr(util_list(util_join(p.dir, "rank1")), "token"));
    }
}

// Machines have changed places: to each come the files that its own ranks need, once, and no others: rank 0's with what is one for all,
// and two. No token is left.
static int files_brought;

static void brings(const char *name, const char *path) {
    if (strcmp(name, "rename") == 0 && strstr(path, "/ba1/__") != NULL) (void)__atomic_fetch_add(&files_brought, 1, __ATOMIC_SEQ_CST);
}

static void test_apart_exchanged(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    const char *one = util_join(p.dir, "rank1"), *two = util_join(p.dir, "rank2"), *aside = util_join(p.dir, "aside");
    p.by = 2;
    p.saves = 1;
    tr_run(tr_new(6), save_some, &p);
    assert_int_equal(rename(one, aside), 0);
    assert_int_equal(rename(two, one), 0);
    assert_int_equal(rename(aside, two), 0);
    p.number = 1;
    p.saves = 0;
    files_brought = 0;
    fault_set_spy(brings);
    tr_run(tr_new(6), go_on, &p);
    fault_set_spy(NULL);
    assert_int_equal(files_brought, 6);
    assert_string_equal(names_in(util_join(p.dir, "rank0/ba1")), ".metadata __0_0.pt __1_0.pt");
    for (int i = 1; i < 3; i++) {
        assert_string_equal(names_in(util_join(p.dir, util_fmt("rank%d/ba1", i))), ".metadata __0_0.pt __2_0.pt __3_0.pt __4_0.pt __5_0.pt");
        assert_null(strstr(util_list(util_join(p.dir, util_fmt("rank%d", i))), "token"));
    }
}

// A world of ranks in a process of its own has ended as it was to.
static void was_killed(pid_t child) {
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static ckpt_err die_copying(void *dst, const void *src, size_t size, bool to_device, void *user) {
    if (((member *)user)->r->rank == 1 && to_device) (void)raise(SIGKILL);
    return member_copy(dst, src, size, to_device, user);
}

// The job is killed while rank 1 loads.
static void die_loading(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    ckpt_timestamp t;
    m->st.copy = die_copying;
    if (member_open(m)) (void)!ckpt_saver_resume(m->s, &t);
    member_end(m);
}

// One file for all, and folders of their own: who has not the file, or has another of that name, is sent rank 0's.
static void test_whole_apart(void **state) {
    (void)state;
    const char *temp = util_temp_dir(), *kept = getenv("TMPDIR");
    for (int big = 0; big < 2; big++) {
        plan p = plan_of(WHOLE), other = plan_of(WHOLE);
        p.apart = other.apart = true;
        p.big = other.big = big != 0;
        p.saves = 2;
        tr_run(tr_new(1), save_some, &p);
        other.filename = "ba2.pt";              // of an earlier attempt: of another moment, and as long
        other.saves = 1;
        tr_run(tr_new(1), save_some, &other);
        size_t size = 0;
        char *old = util_read(util_join(other.dir, "rank0/ba2.pt"), &size);
        util_mkdir(util_join(p.dir, "rank1"));
        util_write(util_join(p.dir, "rank1/ba2.pt"), old, size);
        assert_int_equal(setenv("TMPDIR", temp, 1), 0);
        p.number = 2;
        p.saves = 0;
        p.device = true;
        pid_t child = fork();
        if (child == 0) {
            tr_run(tr_new(3), die_loading, &p);
            _exit(1);
        }
        was_killed(child);
        assert_string_not_equal(util_list(temp), "");
        tr_run(tr_new(3), go_on, &p);
        assert_string_equal(util_list(temp), "");       // a copy is gone when it is loaded, and so is what was left of one
        assert_int_equal(kept != NULL ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
        size_t now = 0;
        assert_memory_equal(util_read(util_join(p.dir, "rank1/ba2.pt"), &now), old, size);
        assert_int_equal(now, size);
    }
}

static void no_temp(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/new/tmp/") != NULL) fault_arm_here("open", EIO);
}

// A machine that has no folder for temporary files gets one. Where none can be made, that is no fault of the checkpoint: the ranks do
// not go on to one that is older, and this one stays what it was.
static void test_whole_apart_no_temp(void **state) {
    (void)state;
    char *kept = getenv("TMPDIR") != NULL ? util_fmt("%s", getenv("TMPDIR")) : NULL;
    const char *temp = util_temp_dir();
    for (int none = 0; none < 2; none++) {
        plan p = plan_of(WHOLE);
        p.apart = true;
        p.saves = 2;
        tr_run(tr_new(1), save_some, &p);
        util_mkdir(util_join(p.dir, "rank1"));
        size_t size = 0;
        char *old = util_read(util_join(p.dir, "rank0/ba1.pt"), &size);
        util_write(util_join(p.dir, "rank1/ba1.pt"), old, size);
        assert_int_equal(setenv("TMPDIR", util_join(temp, "new/tmp"), 1), 0);
        p.number = 2;
        p.saves = 0;
        if (none) p.want = CKPT_CANCELLED;
        if (none) fault_set_spy(no_temp);
        tr_run(tr_new(2), none ? load_newest : go_on, &p);
        fault_set_spy(NULL);
        assert_int_equal(fault_disarm(), none);
        if (none) assert_null(strstr(util_read(util_join(p.dir, "rank0/.ckpt-index.jsonl"), NULL), "damaged"));
        assert_int_equal(kept != NULL ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
    }
}

// Of two ranks on a machine that lacks the file one makes the copy, and the other cannot open it: nor is that the checkpoint's fault.
static __thread bool makes_copy;
static bool copy_is_made;

static void copy_unread(const char *name, const char *path) {
    if (strstr(path, "/copies/.ba2.pt.") == NULL) return;
    if (strcmp(name, "rename") == 0) makes_copy = true, FAULT_SET(copy_is_made, true);
    if (strcmp(name, "open") == 0 && FAULT_GET(copy_is_made) && !makes_copy) fault_arm_here("open", EIO);
}

static void test_whole_apart_copy_unread(void **state) {
    (void)state;
    char *kept = getenv("TMPDIR") != NULL ? util_fmt("%s", getenv("TMPDIR")) : NULL;
    const char *temp = util_join(util_temp_dir(), "copies");
    plan p = plan_of(WHOLE);
    p.apart = true;
    p.saves = 2;
    tr_run(tr_new(1), save_some, &p);
    util_mkdir(temp);
    assert_int_equal(setenv("TMPDIR", temp, 1), 0);
    p.saves = 0;
    p.want = CKPT_CANCELLED;
    FAULT_SET(copy_is_made, false);
    fault_set_spy(copy_unread);
    tr_run(tr_new(3), go_on, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    assert_non_null(strstr(p.text[0], "this machine cannot hold a copy"));
    assert_int_equal(kept != NULL ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
}

// Pins one in a folder, or says whether it is pinned.
static bool pinned_in(const char *dir, const char *name, bool pins) {
    ckpt_folder *f;
    ckpt_checkpoint c;
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = dir;
    assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
    if (pins) assert_int_equal(ckpt_folder_pin(f, ckpt_folder_find(f, name), true), CKPT_OK);
    assert_int_equal(ckpt_folder_entry(f, ckpt_folder_find(f, name), &c), CKPT_OK);
    bool pinned = c.pinned;
    ckpt_folder_close(f);
    return pinned;
}

// One file for all, folders of their own, and rank 0 is on another machine than before: one that has nothing, or what is older. What the
// run has saved last is brought to it. What an earlier attempt has left on the other machine is older than rank 0's, and stays there.
// Its name may be of an earlier template.
static void test_whole_moved(void **state) {
    (void)state;
    enum { EMPTY, OLDER, NO_INDEX, STALE, TAKEN, RENAMED, RENAMED_OLDER, CASES };
    for (int k = 0; k < CASES; k++) {
        plan p = plan_of(WHOLE), before = plan_of(WHOLE);
        const char *there = util_join(p.dir, "rank1"), *here = util_join(p.dir, "rank0");
        p.apart = before.apart = true;
        p.saves = k == STALE ? 5 : 3;
        before.saves = 1;
        if (k == TAKEN) p.filename = before.filename = "model.pt";
        if (k != STALE) tr_run(tr_new(1), save_some, &before);
        tr_run(tr_new(1), save_some, &p);
        assert_int_equal(rename(here, there), 0);
        if (k == STALE) before.saves = 2;
        if (k == STALE) tr_run(tr_new(1), save_some, &before);
        if (k != EMPTY && k != RENAMED) assert_int_equal(rename(util_join(before.dir, "rank0"), here), 0);
        if (k == NO_INDEX) assert_int_equal(unlink(util_join(there, ".ckpt-index.jsonl")), 0);
        if (k >= RENAMED) assert_true(pinned_in(there, "ba3.pt", true));
        if (k >= RENAMED) p.filename = "x{batch}.pt";
        p.apart = false;
        p.by = 1;                       // a launcher that says nothing of machines
        p.saves = 1;
        p.number = k == STALE ? 2 : 3;
        if (k == TAKEN) p.want = CKPT_EXISTS;
        tr_run(tr_new(3), k == TAKEN ? load_newest : go_on, &p);
        const char *names = k == EMPTY ? "ba3.pt ba4.pt latest-rank0.pt" : "ba1.pt ba3.pt ba4.pt latest-rank0.pt";
        if (k == STALE) names = "ba1.pt ba2.pt ba3.pt latest-rank0.pt";
        if (k == TAKEN) names = "latest-rank0.pt model.pt";
        if (k == RENAMED) names = "ba3.pt latest-rank0.pt x4.pt";
        if (k == RENAMED_OLDER) names = "ba1.pt ba3.pt latest-rank0.pt x4.pt";
        assert_string_equal(names_in(here), names);
        if (k >= RENAMED) assert_true(pinned_in(here, "ba3.pt", false));
    }
}

// Rank 1 cannot see what rank 0 has fetched, and cannot write what it fetches itself, or not make the folder for that: that is no
// fault of the checkpoint, nor of the store.
static __thread bool lacks_sight;
static bucket *unheld_bucket;
static int unheld_errnum;
static bool unheld_there;       // there is a folder, in which nothing can be made

static void unheld_spy(const char *name, const char *path) {
    if (lacks_sight && unheld_there && strcmp(name, "open") == 0 && strstr(path, "/small/") != NULL) fault_arm_here("open", unheld_errnum);
    if (!lacks_sight || strcmp(name, "lstat") != 0 || strstr(path, "/rank0/") == NULL) return;
    fault_arm_here("lstat", ENOENT);
    if (!unheld_there) (void)rmdir(getenv("TMPDIR"));
    if (unheld_errnum == EIO) bucket_fail(unheld_bucket, "get run/ba2.pt", CKPT_IO, -1);      // which writes what it gets
}

static void unheld_watch(const char *name, const char *path, int fd) {
    (void)fd;
    bool makes = lacks_sight && !unheld_there && unheld_errnum != EIO && unheld_errnum != 0;
    if (makes && strcmp(name, "opendir") == 0 && strstr(path, "/small") != NULL) fault_arm_here("mkdir", unheld_errnum);
}

static void load_unseeing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    lacks_sight = r->rank > 0;
    member_stores(m, &b, &u, 1);
    m->d.remote_file_name = "run/ba{batch}.pt";
    m->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    m->d.resume_offline = p->offline;
    if (member_open(m)) {
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt_err e = p->saves > 0 ? CKPT_OK : ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == p->want);
        if (p->saves == 0 && e == CKPT_OK) TR_CHECK(r, t.batch == 2);
        char why[60];
        (void)snprintf(why, sizeof why, "rank %d: this machine cannot hold a copy", p->number);
        if (p->want != CKPT_OK) TR_CHECK(r, strstr(ckpt_last_error(), why) != NULL);
    }
    member_end_stores(m, &u, 1, false);
}

static void test_whole_unheld(void **state) {
    (void)state;
    static const int errnums[] = { 0, EIO, EACCES, EHOSTUNREACH, EACCES, ESTALE };
    const char *temp = util_join(util_temp_dir(), "small");
    char *kept = getenv("TMPDIR") != NULL ? util_fmt("%s", getenv("TMPDIR")) : NULL;
    for (int k = 0; k < UTIL_COUNT(errnums); k++) {
        if (!util_exists(temp)) util_mkdir(temp);
        bucket *b = bucket_new(NULL);
        plan p = plan_of(WHOLE);
        p.apart = true;
        p.saves = 2;
        p.with = b;
        tr_run(tr_new(1), load_unseeing, &p);
        util_remove_tree(util_join(p.dir, "rank0"));
        assert_int_equal(setenv("TMPDIR", temp, 1), 0);
        unheld_bucket = b;
        unheld_errnum = errnums[k];
        unheld_there = k > 3;
        p.offline = k > 3;
        p.saves = 0;
        p.apart = false;
        p.by = 1;
        p.number = 1;
        if (k > 0) p.want = CKPT_CANCELLED;
        FAULT_SET(fault_watch, unheld_watch);
        fault_set_spy(unheld_spy);
        tr_run(tr_new(2), load_unseeing, &p);
        fault_set_spy(NULL);
        FAULT_SET(fault_watch, NULL);
        assert_true(fault_disarm());
        assert_int_equal(kept != NULL ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
        bucket_end(b);
    }
}

// The object is replaced when rank 0 has it, and the others have not: they all go on from what rank 0 has. Where rank 0 cannot read that
// again, neither the checkpoint nor the store is blamed.
static const char *replacing, *replaced;
static int resent_errnum;               // of rank 0's next open, 0: none
static bool resends;

static void replace_unseen(const char *name, const char *path) {
    if (!lacks_sight && resent_errnum != 0 && strcmp(name, "open") == 0 && FAULT_GET(resends)) {
        FAULT_SET(resends, false);
        fault_arm_here("open", resent_errnum);
    }
    if (!lacks_sight || strcmp(name, "lstat") != 0 || strstr(path, "/rank0/") == NULL) return;
    fault_arm_here("lstat", ENOENT);
    if (rename(replacing, replaced) == 0) FAULT_SET(resends, true);     // the first of them does
}

static void test_whole_replaced(void **state) {
    (void)state;
    static const int errnums[] = { 0, EIO, ESTALE };
    const char *temp = util_temp_dir();
    char *kept = getenv("TMPDIR") != NULL ? util_fmt("%s", getenv("TMPDIR")) : NULL;
    for (int k = 0; k < UTIL_COUNT(errnums); k++) {
        bucket *b = bucket_new(NULL);
        plan p = plan_of(WHOLE);
        p.apart = true;
        p.saves = 2;
        p.with = b;
        tr_run(tr_new(1), load_unseeing, &p);
        util_remove_tree(util_join(p.dir, "rank0"));
        replacing = util_join(p.dir, "other");
        replaced = util_fmt("%s", bucket_path(b, "run/ba2.pt"));
        resent_errnum = errnums[k];
        FAULT_SET(resends, false);
        assert_int_equal(bucket_copy(bucket_path(b, "run/ba1.pt"), replacing), CKPT_OK);
        assert_int_equal(setenv("TMPDIR", temp, 1), 0);
        p.saves = 0;
        p.apart = false;
        p.by = 1;
        if (k > 0) p.want = CKPT_CANCELLED;
        fault_set_spy(replace_unseen);
        tr_run(tr_new(3), load_unseeing, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_false(util_exists(replacing));
        assert_string_equal(util_list(temp), "");
        assert_int_equal(kept != NULL ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
        bucket_end(b);
    }
}

// Rank 0's server fails for once while it takes the mark of its newest file, by which the others tell theirs: the ranks do not go on to
// an older one for that.
static __thread bool marks_stale;

static void mark_is_stale(const char *name, const char *path) {
    if (!marks_stale || strcmp(name, "open") != 0 || !ckpt__txt_ends(path, "/ba2.pt")) return;
    marks_stale = false;
    fault_arm_here("pread", ESTALE);
}

static void load_unmarked(tr_rank *r, void *arg) {
    marks_stale = r->rank == 0;
    go_on(r, arg);
}

static void test_whole_unmarked(void **state) {
    (void)state;
    plan p = plan_of(WHOLE);
    p.saves = 2;
    tr_run(tr_new(2), save_some, &p);
    p.saves = 0;
    p.want = CKPT_NET;
    fault_set_spy(mark_is_stale);
    tr_run(tr_new(2), load_unmarked, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    p.number = 2;
    p.want = CKPT_OK;
    tr_run(tr_new(2), go_on, &p);
}

// A folder that is not rank 0's, and cannot be looked into, keeps no job from what rank 0 has. Where that is nothing, it may hold all
// there is: but for one that may not be read, and a link to nowhere.
static int unseen_errnum;

static void unseen_watch(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "opendir") == 0 && strstr(path, "/rank1") != NULL) fault_arm_here("opendir", unseen_errnum);
}

static void test_whole_unseen(void **state) {
    (void)state;
    static const int errnums[] = { 0, EACCES, EIO, EHOSTUNREACH };          // 0: a link to nowhere
    for (int k = 0; k < 8; k++) {
        plan p = plan_of(WHOLE);
        const char *there = util_join(p.dir, "rank1");
        bool none = k >= 4;
        unseen_errnum = errnums[k % 4];
        p.apart = true;
        p.saves = 2;
        if (!none) tr_run(tr_new(1), save_some, &p);
        if (k % 4 == 0) assert_int_equal(symlink("/nowhere/at/all", there), 0);
        else util_mkdir(there);
        p.number = none ? 0 : 2;
        p.saves = 0;
        if (none) p.want = k % 4 < 2 ? CKPT_NOT_FOUND : k % 4 == 2 ? CKPT_IO : CKPT_NET;
        p.apart = false;
        p.by = 1;
        if (unseen_errnum != 0) FAULT_SET(fault_watch, unseen_watch);
        tr_run(tr_new(3), go_on, &p);
        FAULT_SET(fault_watch, NULL);
        if (unseen_errnum != 0) assert_true(fault_disarm());
        if (none && k % 4 >= 2) assert_non_null(strstr(p.text[0], util_fmt("cannot tell what is in %s", there)));
    }
}

// Nor is the newest of such a folder taken for one that is not there when it cannot be looked at.
static const char *unseen_newest;

static void newest_unseen(const char *name, const char *path) {
    if (strcmp(name, "stat") == 0 && strstr(path, unseen_newest) != NULL) fault_arm_here("stat", unseen_errnum);
}

static void test_whole_unseen_newest(void **state) {
    (void)state;
    plan p = plan_of(WHOLE);
    p.apart = true;
    p.saves = 2;
    tr_run(tr_new(1), save_some, &p);
    assert_int_equal(rename(util_join(p.dir, "rank0"), util_join(p.dir, "rank1")), 0);
    p.number = 0;
    p.saves = 0;
    p.want = CKPT_NET;
    p.apart = false;
    p.by = 1;
    unseen_newest = "/rank1/ba2";
    unseen_errnum = EHOSTUNREACH;
    fault_set_spy(newest_unseen);
    tr_run(tr_new(3), go_on, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    assert_non_null(strstr(p.text[0], "cannot tell what is in"));
}

// What does not pass, or where rank 0 has an older one, keeps the job from that one checkpoint, not from those before it, which are later
// than all that rank 0 has. With none of those it is said.
static void test_whole_unseen_newest_of_some(void **state) {
    (void)state;
    static const struct { int errnum; bool some; int saves; ckpt_err want; } rows[] = {
        { EACCES, false, 2, CKPT_OK }, { EIO, false, 2, CKPT_OK }, { EIO, true, 3, CKPT_OK }, { EHOSTUNREACH, true, 3, CKPT_OK },
        { EIO, false, 1, CKPT_IO },
    };
    for (int k = 0; k < UTIL_COUNT(rows); k++) {
        plan p = plan_of(WHOLE), first = plan_of(WHOLE);
        bool alone = rows[k].saves == 1;
        p.apart = first.apart = true;
        first.saves = 1;
        p.saves = alone ? 2 : rows[k].saves;
        if (rows[k].some) tr_run(tr_new(1), save_some, &first);
        tr_run(tr_new(1), save_some, &p);
        assert_int_equal(rename(util_join(p.dir, "rank0"), util_join(p.dir, "rank1")), 0);
        if (alone) assert_int_equal(unlink(util_join(p.dir, "rank1/ba1.pt")), 0);
        if (rows[k].some) assert_int_equal(rename(util_join(first.dir, "rank0"), util_join(p.dir, "rank0")), 0);
        unseen_newest = rows[k].some ? "/rank1/ba3" : "/rank1/ba2";
        unseen_errnum = rows[k].errnum;
        p.number = rows[k].some ? 2 : 1;
        p.want = rows[k].want;
        p.saves = 0;
        p.apart = false;
        p.by = 1;
        fault_set_spy(newest_unseen);
        tr_run(tr_new(2), go_on, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
    }
}

// Sharded: the one rank whose folder has a file that another needs cannot look at it. That does not make it one that is nowhere.
static void test_apart_unseen(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = true;
    p.saves = 2;
    tr_run(tr_new(2), save_some, &p);
    assert_int_equal(rename(util_join(p.dir, "rank0/ba2/__0_0.pt"), util_join(p.dir, "rank1/ba2/__0_0.pt")), 0);
    p.saves = 0;
    p.want = CKPT_NET;
    unseen_newest = "/rank1/ba2/__0_0";
    unseen_errnum = ESTALE;
    fault_set_spy(newest_unseen);
    tr_run(tr_new(2), go_on, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    p.number = 2;
    p.want = CKPT_OK;
    tr_run(tr_new(2), go_on, &p);
}

// Machines with folders of their own, of which rank 1's has what is later than rank 0's, and a store whose latest says nothing of its
// time. What the store has keeps the job together: no folder is asked.
static void save_stored(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

static void load_stored(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_OK(r, e);
        TR_CHECK(r, e != CKPT_OK || t.batch == p->number);
        if (e == CKPT_OK) member_check(m, p->number);
    }
    member_end_stores(m, &u, 1, false);
}

static void test_whole_moved_stored(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {               // of one name, and of several
        bucket *b = bucket_new(NULL);
        plan p = plan_of(WHOLE), first = plan_of(WHOLE), later = plan_of(WHOLE);
        p.apart = first.apart = later.apart = true;
        if (k == 0) p.filename = first.filename = later.filename = "model.pt";
        p.with = b;
        first.saves = 1;
        later.saves = 2;
        p.saves = 3;
        tr_run(tr_new(1), save_some, &first);
        tr_run(tr_new(1), save_some, &later);
        tr_run(tr_new(1), save_stored, &p);
        util_remove_tree(util_join(p.dir, "rank0"));
        assert_int_equal(rename(util_join(first.dir, "rank0"), util_join(p.dir, "rank0")), 0);
        assert_int_equal(rename(util_join(later.dir, "rank0"), util_join(p.dir, "rank1")), 0);
        p.apart = false;
        p.by = 1;
        p.number = 3;
        tr_run(tr_new(2), load_stored, &p);
        if (k == 1) assert_false(util_exists(util_join(p.dir, "rank0/ba2.pt")));
        bucket_end(b);
    }
}

// Of one folder that all ranks see none but rank 0 reads the index.
static int indexes_read;

static void index_read(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/.ckpt-index.jsonl") != NULL) (void)__atomic_fetch_add(&indexes_read, 1, __ATOMIC_SEQ_CST);
}

static void test_whole_shared_is_not_read(void **state) {
    (void)state;
    int reads[2];
    plan p = plan_of(WHOLE);
    p.saves = 2;
    tr_run(tr_new(1), save_some, &p);
    p.number = 2;
    for (int i = 0; i < 2; i++) {
        indexes_read = 0;
        fault_set_spy(index_read);
        tr_run(tr_new(i == 0 ? 1 : 4), load_newest, &p);
        fault_set_spy(NULL);
        reads[i] = indexes_read;
    }
    assert_int_equal(reads[0], reads[1]);
}

static void test_tars_none_common(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.apart = true;
    p.want = CKPT_NOT_FOUND;
    tr_world *w = tr_new(3);
    tr_run(w, go_on, &p);                       // a fresh start is one for all
    p.saves = 2;
    tr_run(w, save_some, &p);
    util_remove_tree(util_join(p.dir, "rank0"));
    p.want = CKPT_CORRUPT;
    p.saves = 0;
    tr_run(w, go_on, &p);
    for (int i = 0; i < 3; i++) assert_non_null(strstr(p.text[i], "these have none: 0;"));
    plan q;
    memset(&q, 0, sizeof q);
    q.how = TARS;
    q.dir = util_temp_dir();
    q.apart = true;
    q.saves = 2;
    tr_run(w, save_some, &q);
    util_remove_tree(util_join(q.dir, "rank1"));
    q.want = CKPT_CORRUPT;
    q.saves = 0;
    tr_run(w, go_on, &q);
    for (int i = 0; i < 3; i++) assert_non_null(strstr(q.text[i], "rank 1"));
}

// Sharded: rank 0's folder is empty, and others have checkpoints, of which its files are gone. That is no fresh start.
static void test_first_lost(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        plan p = plan_of(SHARDED);
        p.apart = true;
        p.saves = 2;
        tr_world *w = tr_new(3);
        tr_run(w, save_some, &p);
        util_remove_tree(util_join(p.dir, "rank0"));
        for (int i = 1; i < 3 && lost == 1; i++) unlink(util_join(p.dir, util_fmt("rank%d/.ckpt-index.jsonl", i)));
        p.want = CKPT_CORRUPT;
        p.saves = 0;
        tr_run(w, go_on, &p);
        for (int i = 0; i < 3; i++) assert_non_null(strstr(p.text[i], "none of the 2 checkpoints"));
        util_remove_tree(util_join(p.dir, "rank1"));
        util_remove_tree(util_join(p.dir, "rank2"));
        p.want = CKPT_NOT_FOUND;
        tr_run(w, go_on, &p);
    }
}

// One checkpoint, of which nothing says that it was finished but the listing in rank 0's folder, which is the last, and another machine
// that is new: that is a loss, no fresh start.
static void test_half_lost(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = true;
    p.saves = 1;
    tr_world *w = tr_new(2);
    tr_run(w, save_some, &p);
    util_remove_tree(util_join(p.dir, "rank1"));
    assert_int_equal(unlink(util_join(p.dir, "rank0/.ckpt-index.jsonl")), 0);
    assert_int_equal(unlink(util_join(p.dir, "rank0/latest-rank0.pt")), 0);
    p.want = CKPT_CORRUPT;
    p.saves = 0;
    tr_run(w, go_on, &p);
}

// The same where all files are there: rank 0 is on a machine that is new to the job, and goes on from what the others have. Then
// its folder has it, too; and one that is damaged is passed over.
static void test_first_new(void **state) {
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        plan p = plan_of(SHARDED);
        p.by = turn == 3 ? 2 : 1;
        p.saves = 3;
        tr_run(tr_new(2 * p.by), save_some, &p);
        assert_int_equal(rename(util_join(p.dir, "rank0"), util_join(p.dir, "rank2")), 0);
        if (turn == 1) flip_in(p.dir, "rank1/ba3/__1_0.pt");
        if (turn == 2) {                        // it was there, and missed the last two saves
            const char *from = util_join(p.dir, "rank0");
            util_mkdir(from);
            util_mkdir(util_join(from, "ba1"));
            size_t size = 0;
            const char *listing = util_read(util_join(p.dir, "rank1/ba1/.metadata"), &size);
            util_write(util_join(from, "ba1/.metadata"), listing, size);
        }
        p.number = turn == 1 ? 2 : 3;
        p.saves = 0;
        tr_world *w = tr_new(3 * p.by);
        tr_run(w, go_on, &p);
        assert_string_equal(util_link_target(util_join(p.dir, "rank0/latest-rank0.pt")), util_fmt("ba%d", p.number));
        util_remove_tree(util_join(p.dir, "rank0"));
        p.saves = 1;
        tr_run(w, go_on, &p);
        p.number++;
        tr_run(w, go_on, &p);
        p.number++;
        p.saves = 0;
        tr_run(w, go_on, &p);
    }
}

// The same where rank 0's machine has it without its listing, since somebody pinned it there: another machine's is as good.
static void test_pinned_unlisted(void **state) {
    (void)state;
    for (int who = 0; who < 2; who++) {
        plan p = plan_of(SHARDED);
        p.by = 1;
        p.saves = 3;
        tr_world *w = tr_new(2);
        tr_run(w, save_some, &p);
        const char *dir = util_join(p.dir, util_fmt("rank%d", who));
        ckpt_folder_desc d;
        ckpt_folder *f = NULL;
        memset(&d, 0, sizeof d);
        d.folder = dir;
        assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
        assert_int_equal(ckpt_folder_pin(f, ckpt_folder_find(f, "ba3"), true), CKPT_OK);
        ckpt_folder_close(f);
        assert_int_equal(unlink(util_join(dir, "ba3/.metadata")), 0);
        p.number = 3;
        p.saves = 1;
        tr_run(w, go_on, &p);
        assert_string_equal(util_link_target(util_join(dir, "latest-rank0.pt")), "ba4");
        if (who == 0) {
            assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
            ckpt_checkpoint c;
            assert_int_equal(ckpt_folder_entry(f, ckpt_folder_find(f, "ba3"), &c), CKPT_OK);
            assert_true(c.pinned && !c.missing && !c.damaged);
            ckpt_folder_close(f);
        }
    }
}

// What four ranks saved two would take for all of it. Files that do not say how many they are load as ever.
static void test_tars_other_world(void **state) {
    (void)state;
    static const int other[] = { 1, 2, 5 };
    for (int i = 0; i < 3; i++) {
        plan p = plan_of(TARS);
        p.saves = 2;
        tr_run(tr_new(4), save_some, &p);
        p.saves = 0;
        p.number = 2;
        p.want = CKPT_MISMATCH;
        tr_run(tr_new(other[i]), go_on, &p);
        assert_non_null(strstr(p.text[0], util_fmt("by 4 ranks, and this job has %d", other[i])));
        p.want = CKPT_OK;
        tr_run(tr_new(4), go_on, &p);
    }
    plan q = plan_of(TARS);
    q.ignore = "state/callbacks/*";
    q.saves = q.number = 2;
    tr_run(tr_new(4), save_some, &q);
    q.saves = 0;
    tr_run(tr_new(2), go_on, &q);
}

// As `ckpt pin` does while the job runs.
static void member_pin(member *m, const char *name, bool pinned) {
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    memset(&d, 0, sizeof d);
    d.folder = m->folder;
    TR_OK(m->r, ckpt_folder_open(&f, &d));
    TR_OK(m->r, ckpt_folder_pin(f, ckpt_folder_find(f, name), pinned));
    ckpt_folder_close(f);
}

// The tarball of rank 1 is pinned when it has its name, and no index has it yet: `ckpt pin` does not know whose it is.
static void pin_early(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    const char *pinned = "ba1-rank1.pt.tar";
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", m->folder, pinned);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        for (int i = 0; i < 60000 && access(path, F_OK) != 0; i++) ckpt__os_sleep(0.001);
        if (r->rank == 1) member_pin(m, pinned, true);
        TR_OK(r, tr_barrier(r));
        for (int i = 2; i < 6; i++) {
            if (i == 5 && r->rank == 0) member_pin(m, pinned, false);
            TR_OK(r, tr_barrier(r));
            TR_OK(r, member_step(m, i));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            TR_OK(r, tr_barrier(r));
            TR_CHECK(r, (access(path, F_OK) == 0) == (i < 5));
        }
    }
    member_end(m);
}

// A tool pins a tarball, or lets it go, while no saver has the folder.
static void pin_between(const char *folder, const char *name, bool pinned) {
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    memset(&d, 0, sizeof d);
    d.folder = folder;
    assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
    assert_int_equal(ckpt_folder_pin(f, ckpt_folder_find(f, name), pinned), CKPT_OK);
    ckpt_folder_close(f);
}

// Goes on from p->number and saves once more.
static void once_more(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == p->number);
        TR_OK(r, member_step(m, p->number + 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

static void gc_newest(const char *folder, int keep) {
    ckpt_folder_desc d;
    ckpt_gc_desc g;
    ckpt_folder *f = NULL;
    memset(&d, 0, sizeof d);
    memset(&g, 0, sizeof g);
    d.folder = folder;
    g.num_checkpoints_to_keep = keep;
    assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
    assert_int_equal(ckpt_folder_gc(f, &g), CKPT_OK);
    ckpt_folder_close(f);
}

// What was pinned when its rank's index had no line of it, or was lost, stays pinned: of rotation, and of gc. What was let go is so.
static void test_tars_pinned(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.keep = 1;
    p.snapshot = CKPT_SNAPSHOT_COPY;
    tr_run(tr_new(2), pin_early, &p);
    plan q = plan_of(TARS);
    q.keep = 2;
    q.saves = 2;
    tr_run(tr_new(2), save_some, &q);
    const char *index = util_join(q.dir, ".ckpt-index-rank1.jsonl"), *pinned = util_join(q.dir, "ba1-rank1.pt.tar");
    char *before = util_read(index, NULL);
    assert_int_equal(unlink(index), 0);
    pin_between(q.dir, "ba1-rank1.pt.tar", true);
    FILE *f = fopen(index, "w");                // gc comes before the saver of rank 1 has taken notice
    assert_true(f != NULL && fputs(before, f) >= 0 && fclose(f) == 0);
    gc_newest(q.dir, 1);
    assert_true(util_exists(pinned) && !util_exists(util_join(q.dir, "ba1-rank0.pt.tar")));
    assert_int_equal(unlink(index), 0);         // and it is lost once more
    for (q.number = 2; q.number < 5; q.number++) tr_run(tr_new(2), once_more, &q);
    assert_true(util_exists(pinned));
    assert_true(!util_exists(util_join(q.dir, "ba3-rank1.pt.tar")) && util_exists(util_join(q.dir, "ba4-rank1.pt.tar")));
    pin_between(q.dir, "ba1-rank1.pt.tar", false);
    tr_run(tr_new(2), once_more, &q);
    assert_false(util_exists(pinned));
}

// A gc is killed when rank 0's share is done: what it was to keep is whole, and gone on from, and the next one ends it.
static void die_between_ranks(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "unlink") == 0 && strstr(path, "/ba2-rank1") != NULL) (void)raise(SIGKILL);
}

static void test_tars_gc_killed(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.keep = CKPT_KEEP_ALL;
    p.saves = 4;
    tr_run(tr_new(3), save_some, &p);
    pid_t child = fork();
    if (child == 0) {
        FAULT_SET(fault_watch, die_between_ranks);
        gc_newest(p.dir, 2);
        _exit(1);
    }
    was_killed(child);
    assert_true(!util_exists(util_join(p.dir, "ba1-rank1.pt.tar")) && util_exists(util_join(p.dir, "ba2-rank1.pt.tar")));
    assert_true(!util_exists(util_join(p.dir, "ba2-rank0.pt.tar")) && util_exists(util_join(p.dir, "ba1-rank2.pt.tar")));
    p.number = 4;
    tr_run(tr_new(3), once_more, &p);
    gc_newest(p.dir, 2);
    for (int i = 0; i < 3; i++) {
        for (int k = 1; k < 6; k++) assert_int_equal(util_exists(util_join(p.dir, util_fmt("ba%d-rank%d.pt.tar", k, i))), k > 3);
    }
}

// With folders of their own: a checkpoint that is pinned, or kept because another was removed, on one machine is kept whole.
static void held_by_one(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    char path[400];
    (void)snprintf(path, sizeof path, "%s/ba2", m->folder);
    m->d.ranks.node_rank = r->rank;
    m->d.ranks.local_rank = 0;
    m->d.ranks.local_world_size = 1;
    if (member_open(m)) {
        for (int i = 1; i <= 6; i++) {
            TR_OK(r, member_step(m, i));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            if (p->number == 1 && r->rank == p->slow && i == 2) util_remove_tree(path);
            if (p->number == 0 && r->rank == p->slow && (i == 2 || i == 5)) member_pin(m, "ba1", i == 2);
            TR_OK(r, tr_barrier(r));
            (void)snprintf(p->text[r->rank] + strlen(p->text[r->rank]), 100, "%d:%d%d%d ", i, is_whole(m->folder, "ba1"),
                           is_whole(m->folder, "ba2"), is_whole(m->folder, "ba3"));
            TR_OK(r, tr_barrier(r));
        }
    }
    member_end(m);
}

static void test_held_by_one(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        plan p = plan_of(SHARDED);
        p.apart = true;
        p.snapshot = modes[k / 2 * 2];
        p.keep = 2;
        p.best = k == 3 ? "min:state/metrics/loss" : NULL;      // of those saved at odd steps: it changes nothing but who decides
        p.slow = k % 2;                 // whose folder it is
        tr_run(tr_new(3), held_by_one, &p);
        for (int i = 0; i < 3; i++) assert_string_equal(p.text[i], "1:100 2:110 3:111 4:101 5:100 6:000 ");
        p.dir = util_temp_dir();
        p.number = 1;
        memset(p.text, 0, sizeof p.text);
        tr_run(tr_new(3), held_by_one, &p);
        for (int i = 0; i < 3; i++)
            assert_string_equal(p.text[i], i == p.slow ? "1:100 2:100 3:101 4:001 5:000 6:000 " : "1:100 2:110 3:111 4:001 5:000 6:000 ");
    }
}

//-- failures ------------------------------------------------------------------------

// At step 2 rank 2's file cannot be written: all hear the same of it, and the checkpoint before stays the latest.
static void one_fails(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        char blocked[400], link[400];
        int victim = p->how == WHOLE ? 0 : 2;
        if (p->how == SHARDED) (void)snprintf(blocked, sizeof blocked, "%s/rank2/ba2", p->dir);
        else if (p->how == TARS) (void)snprintf(blocked, sizeof blocked, "%s/rank2/ba2-rank2.pt.tar", p->dir);
        else (void)snprintf(blocked, sizeof blocked, "%s/ba2.pt", p->dir);
        if (r->rank == victim && p->how == SHARDED) util_write_text(blocked, "in the way");
        if (r->rank == victim && p->how != SHARDED) TR_CHECK(r, mkdir(blocked, 0777) == 0);
        TR_OK(r, tr_barrier(r));
        ckpt_err e = member_step(m, 2);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, e != CKPT_OK);
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d %s", (int)e, ckpt_last_error());
        TR_OK(r, tr_barrier(r));
        if (p->how == WHOLE) (void)snprintf(link, sizeof link, "%s/latest-rank0.pt", p->dir);
        else (void)snprintf(link, sizeof link, "%s/rank%d/latest-rank%d.pt%s", p->dir, r->rank, p->how == TARS ? r->rank : 0, p->how == TARS ? ".tar" : "");
        if (p->how != WHOLE || r->rank == 0) {
            char says[200] = "";
            ssize_t n = readlink(link, says, sizeof says - 1);
            TR_CHECK(r, n > 0 && strncmp(says, "ba1", 3) == 0);
        }
        TR_OK(r, member_step(m, 3));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        e = ckpt_saver_close(m->s, 0);
        m->s = NULL;
        TR_CHECK(r, e != CKPT_OK);
    }
    member_free(m);
}

static void test_one_fails(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int mode = 0; mode < 3; mode++) {
            plan p = plan_of((layout)how);
            p.snapshot = modes[mode];
            p.apart = how != WHOLE;
            tr_world *w = tr_new(4);
            tr_run(w, one_fails, &p);
            assert_non_null(strstr(p.text[0], how == WHOLE ? "rank 0: " : "rank 2: "));
            for (int i = 1; i < 4; i++) assert_string_equal(p.text[i], p.text[0]);
            if (how == SHARDED) {
                assert_false(util_exists(util_join(p.dir, "rank0/ba2")));
                assert_false(util_exists(util_join(p.dir, "rank1/ba2/__1_0.pt")));
            }
            p.number = 3;
            tr_run(w, load_newest, &p);
        }
    }
}

// The same, and somebody asks for the step once more when nothing is in the way: all make it, and not a second time.
static void fails_and_is_asked_for(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.save_interval = "2ba";
    if (member_open(m)) {
        char blocked[400];
        bool victim = r->rank == (p->how == WHOLE ? 0 : 2);
        (void)snprintf(blocked, sizeof blocked, "%s/%s", m->folder, p->how == SHARDED ? "ba2" : p->how == TARS ? "ba2-rank2.pt.tar" : "ba2.pt");
        if (victim && p->how == SHARDED) util_write_text(blocked, "in the way");
        if (victim && p->how != SHARDED) TR_CHECK(r, mkdir(blocked, 0777) == 0);
        TR_OK(r, tr_barrier(r));
        TR_OK(r, member_step(m, 1));
        ckpt_err e = member_step(m, 2);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, e != CKPT_OK);
        if (victim) TR_CHECK(r, p->how == SHARDED ? unlink(blocked) == 0 : rmdir(blocked) == 0);
        TR_OK(r, tr_barrier(r));
        ckpt_timestamp t = at_batch(2);
        ckpt_saver_counts c;
        for (int i = 0; i < 2; i++) {
            if (r->rank == 1) ckpt_saver_request(m->s);
            m->s->steps = 1;                    // they speak at the next call
            TR_OK(r, ckpt_saver_epoch_end(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            ckpt_saver_stats(m->s, &c);
            TR_CHECK(r, c.saved == (p->how == WHOLE && r->rank != 0 ? 0 : 1));
        }
        TR_CHECK(r, ckpt_saver_close(m->s, 0) != CKPT_OK);
    }
    member_free(m);
}

static void test_fails_and_is_asked_for(void **state) {
    (void)state;
    for (int k = 0; k < 3 * 2; k++) {
        plan p = plan_of((layout)(k / 2));
        p.snapshot = modes[k % 2 + 1];
        p.apart = p.how != WHOLE;
        tr_run(tr_new(4), fails_and_is_asked_for, &p);
        p.number = 2;
        tr_run(tr_new(4), load_newest, &p);
    }
}

// `slow`: says whether it does.
static ckpt_err copy_fails(void *dst, const void *src, size_t size, bool to_device, void *user) {
    member *m = (member *)user;
    (void)to_device;
    if (m->slow) return ckpt_set_error(CKPT_IO, "the test says so");
    memcpy(dst, src, size);
    return CKPT_OK;
}

// The same without a wait: the next save finds out, says so, and is made nonetheless.
static void fails_in_passing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    char blocked[400];
    (void)snprintf(blocked, sizeof blocked, "%s/rank2/ba2", p->dir);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        if (r->rank == 2) util_write_text(blocked, "in the way");
        TR_OK(r, tr_barrier(r));
        ckpt_err second = member_step(m, 2), third = member_step(m, 3), waited = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, (second != CKPT_OK) + (third != CKPT_OK) + (waited != CKPT_OK) == 1);
        TR_CHECK(r, ckpt_saver_close(m->s, 0) != CKPT_OK);
    }
    member_free(m);
}

static void test_fails_in_passing(void **state) {
    (void)state;
    for (int mode = 1; mode < 3; mode++) {
        plan p = plan_of(SHARDED);
        p.snapshot = modes[mode];
        p.apart = true;
        tr_world *w = tr_new(3);
        tr_run(w, fails_in_passing, &p);
        assert_false(util_exists(util_join(p.dir, "rank0/ba2")));
        assert_string_equal(util_link_target(util_join(p.dir, "rank0/latest-rank0.pt")), "ba3");
        p.number = 3;
        tr_run(w, load_newest, &p);
    }
}

static int gate;                        // 0: shut; 1: open; 2: it was opened by nobody

// Rank 0's file of ba4 is written until the gate opens.
static void write_until_opened(const char *name, const char *path, int fd) {
    char link[60], of[500];
    (void)path;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = fd >= 0 && (strcmp(name, "fsync") == 0 || strcmp(name, "fdatasync") == 0) ? readlink(link, of, sizeof of - 1) : 0;
    of[n > 0 ? n : 0] = 0;
    if (strstr(of, "/rank0/ba4/") == NULL) return;
    for (int i = 0; i < 60000 && __atomic_load_n(&gate, __ATOMIC_SEQ_CST) == 0; i++) usleep(1000);
    if (__atomic_load_n(&gate, __ATOMIC_SEQ_CST) == 0) __atomic_store_n(&gate, 2, __ATOMIC_SEQ_CST);
}

// One rank's file has failed while another's is being written: no call of *_end waits for what is in vain.
static void fails_beside_a_slow_one(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    char blocked[400];
    (void)snprintf(blocked, sizeof blocked, "%s/rank1/ba4", p->dir);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 2));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        if (r->rank == 1) util_write_text(blocked, "in the way");
        TR_OK(r, tr_barrier(r));
        TR_OK(r, member_step(m, 4));
        while (r->rank == 1 && ckpt__crew_part(m->s) == CKPT__PART_BUSY) usleep(1000);
        m->s->steps = 1;                // the ranks speak
        TR_OK(r, member_step(m, 5));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) TR_CHECK(r, __atomic_exchange_n(&gate, 1, __ATOMIC_SEQ_CST) == 0);
        TR_CHECK(r, member_step(m, 6) != CKPT_OK && strncmp(ckpt_last_error(), "rank 1: ", 8) == 0);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_CHECK(r, ckpt_saver_close(m->s, 0) != CKPT_OK);
    }
    member_free(m);
}

static void test_fails_beside_a_slow_one(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.snapshot = CKPT_SNAPSHOT_COPY;
    p.apart = true;
    p.interval = "2ba";
    FAULT_SET(fault_watch, write_until_opened);
    tr_run(tr_new(2), fails_beside_a_slow_one, &p);
    FAULT_SET(fault_watch, NULL);
    assert_string_equal(util_link_target(util_join(p.dir, "rank0/latest-rank0.pt")), "ba6");
}

// The save that finds out fails as well: the next call tells of the other one.
static void fails_in_a_row(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    char blocked[400];
    (void)snprintf(blocked, sizeof blocked, "%s/rank1/ba2", p->dir);
    m->st.copy = copy_fails;
    m->slow = false;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        if (r->rank == 1) util_write_text(blocked, "in the way");
        TR_OK(r, tr_barrier(r));
        bool told[3] = { false, false, false };
        for (int i = 2; i <= 5; i++) {
            m->slow = i == 3 && r->rank == 2;
            ckpt_err e = i < 5 ? member_step(m, i) : ckpt_saver_wait(m->s, 0);
            for (int k = 1; k < 3; k++) told[k] = told[k] || (e != CKPT_OK && strstr(ckpt_last_error(), util_fmt("rank %d: ", k)) != NULL);
        }
        TR_CHECK(r, told[1] && told[2]);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_CHECK(r, ckpt_saver_close(m->s, 0) != CKPT_OK);
    }
    member_free(m);
}

static void test_fails_in_a_row(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.snapshot = CKPT_SNAPSHOT_COPY;
    p.apart = p.device = true;
    tr_run(tr_new(3), fails_in_a_row, &p);
}

// A wait that finds out, and whose time is up because an upload takes longer, leaves the failure to the next call.
static void fails_while_late(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    char blocked[400];
    (void)snprintf(blocked, sizeof blocked, "%s/rank1/ba2", p->dir);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        if (r->rank == 1) util_write_text(blocked, "in the way");
        TR_OK(r, member_step(m, 1));
        TR_OK(r, member_step(m, 2));
        TR_CHECK(r, ckpt_saver_wait(m->s, 0.3) == CKPT_TIMEOUT);
        TR_CHECK(r, ckpt_saver_wait(m->s, 0.05) == CKPT_TIMEOUT);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(b, false);
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) != CKPT_OK && strstr(ckpt_last_error(), "rank 1: ") == ckpt_last_error());
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, true);
}

static void test_fails_while_late(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.snapshot = CKPT_SNAPSHOT_COPY;
    p.apart = true;
    p.with = b;
    bucket_hold(b, true);
    tr_run(tr_new(2), fails_while_late, &p);
    bucket_end(b);
}

// A wait finds out about a save, and then about an upload: the next one tells of that.
static void fails_twice(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    char blocked[400];
    (void)snprintf(blocked, sizeof blocked, "%s/rank1/ba2", p->dir);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        bool told[2] = { false, false };
        if (r->rank == 1) util_write_text(blocked, "in the way");
        TR_OK(r, member_step(m, 1));
        TR_OK(r, member_step(m, 2));
        if (p->number == 0) TR_CHECK(r, ckpt_saver_wait(m->s, 0.3) == CKPT_TIMEOUT);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(b, false);
        for (int i = 0; i < 2; i++) {
            TR_CHECK(r, ckpt_saver_wait(m->s, 0) != CKPT_OK);
            told[0] = told[0] || strstr(ckpt_last_error(), "rank 1: ") != NULL;
            told[1] = told[1] || strstr(ckpt_last_error(), "the test says so") != NULL;
        }
        TR_CHECK(r, told[0] && told[1]);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, true);
}

static void test_fails_twice(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        plan p = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        p.snapshot = CKPT_SNAPSHOT_COPY;
        p.apart = true;
        p.with = b;
        p.number = k;
        bucket_hold(b, true);
        bucket_fail(b, "put run/ba1/__0_0.pt", CKPT_AUTH, -1);
        tr_run(tr_new(2), fails_twice, &p);
        bucket_end(b);
    }
}

// The blocks of a large file are freed when the test says so, or after a minute.
static int frees_blocks;

static void free_slowly(const char *name, const char *path, int fd) {
    struct stat st;
    (void)path;
    if (strcmp(name, "close") != 0 || fstat(fd, &st) != 0 || st.st_nlink != 0 || st.st_size <= 1 << 20) return;
    for (int i = 0; i < 60000 && __atomic_load_n(&frees_blocks, __ATOMIC_SEQ_CST) == 0; i++) usleep(1000);
}

static void close_while_freed(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, member_step(m, 2));
        double begin = ckpt__os_now();
        TR_CHECK(r, ckpt_saver_close(m->s, 0.05) == CKPT_TIMEOUT);
        TR_CHECK(r, ckpt__os_now() - begin < 50);
        TR_OK(r, tr_barrier(r));
        __atomic_store_n(&frees_blocks, 1, __ATOMIC_SEQ_CST);
    }
    member_end(m);
}

// A close waits no longer than it was told to for the blocks of deleted files, which each rank frees by itself.
static void test_close_while_blocks_are_freed(void **state) {
    (void)state;
    for (int how = SHARDED; how <= TARS; how++) {
        plan p = plan_of((layout)how);
        p.keep = 1;
        p.big = true;
        frees_blocks = 0;
        FAULT_SET(fault_watch, free_slowly);
        tr_run(tr_new(2), close_while_freed, &p);
        FAULT_SET(fault_watch, NULL);
    }
}

static void untold_log(ckpt_log_level level, const char *msg, void *user) {
    char *log = (char *)user;
    assert_int_equal(level, CKPT_LOG_ERROR);
    (void)snprintf(log + strlen(log), 1000 - strlen(log), "%s|", msg);
}

static void untold_meet(ckpt_saver *s, ckpt__error_record *first, const char *sentence, bool logged) {
    ckpt__crew_meet(s, first, ckpt_set_error(CKPT_NO_SPACE, sentence), logged);
}

// What a call finds is returned by it or by one of the next, or it is in the log: whatever its code, and whether the call's time was up.
static void test_untold(void **state) {
    (void)state;
    char log[1000] = "";
    ckpt_saver *s = (ckpt_saver *)calloc(1, sizeof *s);
    s->logger.fn = untold_log;
    s->logger.user = log;
    ckpt__error_record first;
    first.code = CKPT_OK;
    untold_meet(s, &first, "announcement", false);
    untold_meet(s, &first, "another rank's of its kind, which has logged it", true);
    untold_meet(s, &first, "save", false);
    ckpt__crew_leave_untold(s, &first);         // the call's time is up
    assert_string_equal(log, "");
    assert_true(ckpt__crew_take_untold(s) == CKPT_NO_SPACE && strcmp(ckpt_last_error(), "save") == 0);
    assert_true(ckpt__crew_take_untold(s) == CKPT_NO_SPACE && strcmp(ckpt_last_error(), "announcement") == 0);
    assert_int_equal(ckpt__crew_take_untold(s), CKPT_OK);
    for (int i = 0; i < 6; i++) untold_meet(s, &first, util_fmt("save %d", i), false);
    assert_string_equal(log, "save 4|save 5|");
    ckpt__error_record told;
    (void)snprintf(told.text, sizeof told.text, "rank 1: save 2");
    ckpt__crew_log_untold(s, &told);            // the saver is closed
    assert_string_equal(log, "save 4|save 5|save 0|save 1|save 3|");
    assert_int_equal(ckpt__crew_take_untold(s), CKPT_OK);
    free(s);
}

//-- the same name again ---------------------------------------------------------------

// A rank with a tensor on a device that can be told to fail.
typedef struct twice { plan p; member *m[TR_MOST]; bool fails[TR_MOST]; float more[TR_MOST][4]; } twice;

static ckpt_err twice_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    if (!to_device && *(bool *)user) return ckpt_set_error(CKPT_NO_SPACE, "the disk is full (says the test)");
    memcpy(dst, src, size);
    return CKPT_OK;
}

static member *twice_new(tr_rank *r, twice *t) {
    member *m = member_new(r, &t->p);
    ckpt_tensor x;
    char name[40];
    memset(&x, 0, sizeof x);
    x.dtype = CKPT_F32;
    x.ndim = 1;
    x.shape[0] = 4;
    x.device = true;
    x.data = t->more[r->rank];
    (void)snprintf(name, sizeof name, "rng/%d/device", r->rank);
    t->fails[r->rank] = false;
    m->st.copy = twice_copy;
    m->st.copy_user = &t->fails[r->rank];
    ckpt_bind(&m->st, t->p.how == SHARDED ? name : "state/device", &x);
    return m;
}

// Saves batch 1 and, as many times, batch 2, with other contents each time; the last time a rank fails.
static void save_twice(tr_rank *r, void *arg) {
    twice *t = (twice *)arg;
    member *m = twice_new(r, t);
    ckpt_timestamp two = at_batch(2);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        for (int i = 0; i < t->p.saves; i++) {
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, 20 + i);
            bool fails = t->p.want != CKPT_OK && i == t->p.saves - 1;
            t->fails[r->rank] = fails && r->rank == 1;
            ckpt_err e = i == 0 ? ckpt_saver_batch_end(m->s, &two) : ckpt_saver_save(m->s, &two);
            if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
            TR_CHECK(r, e == (fails ? t->p.want : CKPT_OK));
        }
        t->fails[r->rank] = false;
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == t->p.want);
        m->s = NULL;
    }
    member_end(m);
}

static int exchanges;                   // renames of second tarballs to their names

// The job is killed before the exchanges-th tarball takes the place of the one before.
static void die_exchanging(const char *name, const char *path) {
    bool exchange = strcmp(name, "rename") == 0 && strstr(path, "ba2-rank") != NULL && ckpt__txt_ends(path, ".tar");
    if (exchange && __atomic_sub_fetch(&exchanges, 1, __ATOMIC_SEQ_CST) == 0) (void)raise(SIGKILL);
}

// All have, and what they have taken the place of is about to go.
static void die_exchanged(const char *name, const char *path, int fd) {
    (void)fd;
    bool old = strcmp(name, "unlink") == 0 && path != NULL && ckpt__txt_ends(path, ".was");
    if (old && __atomic_load_n(&exchanges, __ATOMIC_SEQ_CST) == 1) (void)raise(SIGKILL);
}

static void exchange(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp two = at_batch(2);
    if (member_open(m)) {
        member_set(m, 20);
        TR_OK(r, ckpt_saver_save(m->s, &two));
        member_set(m, 21);
        TR_OK(r, ckpt_saver_save(m->s, &two));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

static void load_exchanged(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2 && m->step == p->number);
        member_check(m, p->number);
        if (p->saves > 0) TR_OK(r, member_step(m, 3));
    }
    member_end(m);
}

static void resume_exchanged_abroad(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        TR_OK(r, tr_barrier(r));
        TR_CHECK(r, chdir((const char *)p->with) == 0);
        TR_OK(r, tr_barrier(r));
        TR_CHECK(r, ckpt_saver_resume(m->s, &t) == CKPT_ARG);
    }
    member_end(m);
}

// Where the program has gone to another directory, it is the folder there that stays as it is.
static void check_exchanged_abroad(const char *dir) {
    plan p = plan_of(TARS);
    const char *home = util_temp_dir(), *other = util_temp_dir();
    assert_int_equal(system(util_fmt("cp -a '%s' '%s/run' && cp -a '%s' '%s/run'", dir, home, dir, other)), 0);
    const char *before = util_fmt("%s", util_list(util_join(other, "run")));
    assert_non_null(strstr(before, ".was"));
    assert_int_equal(chdir(home), 0);
    p.keep = 1;
    p.dir = "run";
    p.with = util_fmt("%s", other);
    tr_run(tr_new(3), resume_exchanged_abroad, &p);
    assert_string_equal(util_list(util_join(other, "run")), before);
}

// A job is killed when some tarballs have taken the places of those before and others have not, or all have and nothing says so: the
// next one goes on from what all ranks have.
static void test_tars_exchanged(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) {
        plan p = plan_of(TARS);
        p.keep = 1;
        p.apart = k % 2 == 1;
        pid_t child = fork();
        if (child == 0) {
            exchanges = 1 + k / 2;
            fault_set_spy(die_exchanging);
            if (k / 2 == 3) FAULT_SET(fault_watch, die_exchanged);
            tr_run(tr_new(3), exchange, &p);
            _exit(1);
        }
        was_killed(child);
        if (k == 2) check_exchanged_abroad(p.dir);
        p.number = k / 2 < 3 ? 20 : 21;
        for (p.saves = 0; p.saves < 2; p.saves++) tr_run(tr_new(3), load_exchanged, &p);
        for (int i = 0; i < 3; i++) assert_null(strstr(util_list(p.apart ? util_join(p.dir, util_fmt("rank%d", i)) : p.dir), ".was"));
    }
}

static bool has_exchanged(const char *dir, int rank) {
    return util_exists(util_join(dir, util_fmt(".ba2-rank%d.pt.tar.was", rank)));
}

// The job is killed when the tarballs of ranks 0 and 1 have taken the places of those before, and rank 2's has not.
static void die_before_rank_2(const char *name, const char *path) {
    if (strcmp(name, "rename") != 0 || strstr(path, "ba2-rank") == NULL || !ckpt__txt_ends(path, ".tar")) return;
    if (strstr(path, "ba2-rank2") == NULL) {
        (void)__atomic_add_fetch(&exchanges, 1, __ATOMIC_SEQ_CST);
        return;
    }
    while (__atomic_load_n(&exchanges, __ATOMIC_SEQ_CST) < 2) (void)usleep(1000);
    (void)usleep(300000);               // for the last of them to be done
    (void)raise(SIGKILL);
}

// all: before what all have exchanged goes.
static void kill_exchanging(plan *p, bool all) {
    pid_t child = fork();
    if (child == 0) {
        exchanges = all ? 4 : 0;
        fault_set_spy(all ? die_exchanging : die_before_rank_2);
        if (all) FAULT_SET(fault_watch, die_exchanged);
        tr_run(tr_new(3), exchange, p);
        _exit(1);
    }
    was_killed(child);
    assert_true(has_exchanged(p->dir, 0) && has_exchanged(p->dir, 1));
}

// A job that is started by mistake with fewer ranks or more meanwhile decides nothing for those that are to go on.
static void test_tars_exchanged_other_world(void **state) {
    (void)state;
    static const int other[] = { 1, 2, 4 };
    for (int k = 0; k < 3; k++) {
        plan p = plan_of(TARS);
        p.keep = 1;
        kill_exchanging(&p, false);
        p.want = CKPT_MISMATCH;
        tr_run(tr_new(other[k]), go_on, &p);
        assert_true(has_exchanged(p.dir, 0) && has_exchanged(p.dir, 1));
        p.want = CKPT_OK;
        p.number = 20;
        tr_run(tr_new(3), load_exchanged, &p);
        assert_null(strstr(util_list(p.dir), ".was"));
    }
}

static void try_resume(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    ckpt_timestamp t;
    if (member_open(m)) TR_CHECK(r, ckpt_saver_resume(m->s, &t) != CKPT_OK);
    member_end(m);
}

// All have exchanged theirs, and one rank's is gone then, as on a new machine, or cannot be read: that is no reason for the others to
// give theirs back.
static void test_tars_exchanged_unseen(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        plan p = plan_of(TARS);
        p.keep = 1;
        kill_exchanging(&p, true);
        const char *one = util_join(p.dir, "ba2-rank1.pt.tar"), *two = util_join(p.dir, "ba2-rank2.pt.tar");
        size_t size = 0, n = 0;
        char *lost = util_read(one, &size), *kept = util_read(two, &n);
        assert_int_equal(unlink(one), 0);
        if (k == 0) assert_int_equal(unlink(util_join(p.dir, ".ba2-rank1.pt.tar.was")), 0);
        else util_write(one, lost, 700);
        tr_run(tr_new(3), try_resume, &p);
        size_t now = 0;
        char *is = util_read(two, &now);
        assert_int_equal(now, n);
        assert_memory_equal(is, kept, n);
        if (k == 1) continue;
        util_write(one, lost, size);
        p.number = 21;
        tr_run(tr_new(3), load_exchanged, &p);
        assert_null(strstr(util_list(p.dir), ".was"));
    }
}

static void resume_any(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    ckpt_timestamp t;
    if (member_open(m)) (void)!ckpt_saver_resume(m->s, &t);
    member_end(m);
}

// So it is with a rank by itself: what was about to go goes.
static void test_tars_exchanged_alone(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.keep = 1;
    pid_t child = fork();
    if (child == 0) {
        exchanges = 2;
        fault_set_spy(die_exchanging);
        FAULT_SET(fault_watch, die_exchanged);
        tr_run(tr_new(1), exchange, &p);
        _exit(1);
    }
    was_killed(child);
    assert_true(has_exchanged(p.dir, 0));
    p.number = 21;
    tr_run(tr_new(1), load_exchanged, &p);
    assert_null(strstr(util_list(p.dir), ".was"));
}

static int  exchanged_removed;          // second names of rank 1 that were about to go
static bool exchanged_dropped;          // in a later life: its own, when rank 0's is gone

static void die_before_index(const char *name, const char *path) {
    if (strcmp(name, "rename") != 0 || !ckpt__txt_ends(path, "/.ckpt-index.jsonl")) return;
    if (__atomic_add_fetch(&exchanges, 1, __ATOMIC_SEQ_CST) != 4 && !exchanged_dropped) return;
    (void)usleep(300000);               // for rank 1's
    if (!exchanged_dropped) (void)raise(SIGKILL);
}

static void die_before_drop(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "unlink") != 0 || path == NULL || !ckpt__txt_ends(path, "/.ba2-rank1.pt.tar.was")) return;
    if (__atomic_add_fetch(&exchanged_removed, 1, __ATOMIC_SEQ_CST) != 2) return;       // the first is an older life's
    (void)usleep(100000);
    (void)raise(SIGKILL);
}

static void exchange_back(tr_rank *r, void *arg) {
    static const int script[] = { 1, 2, 3, 2 };
    member *m = member_new(r, (plan *)arg);
    if (member_open(m)) {
        if (exchanged_dropped) TR_OK(r, ckpt_saver_resume(m->s, NULL));
        for (int i = exchanged_dropped ? 3 : 0; i < 4; i++) {
            ckpt_timestamp t = at_batch(script[i]);
            TR_OK(r, ckpt_saver_save(m->s, &t));
        }
    }
    member_end(m);
}

// A job that went back to an older batch is killed when rank 0's index does not yet say so, and the next one when its second name is
// gone and rank 1's is not: that of rank 1 goes all the same.
static void test_tars_exchanged_back(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.keep = 4;
    for (int life = 0; life < 2; life++) {
        pid_t child = fork();
        if (child == 0) {
            exchanges = exchanged_removed = 0;
            exchanged_dropped = life == 1;
            fault_set_spy(die_before_index);
            if (life == 1) FAULT_SET(fault_watch, die_before_drop);
            tr_run(tr_new(2), exchange_back, &p);
            _exit(1);
        }
        was_killed(child);
    }
    assert_true(has_exchanged(p.dir, 1) && !has_exchanged(p.dir, 0));
    tr_run(tr_new(2), resume_any, &p);
    assert_false(has_exchanged(p.dir, 1));
}

static int stale_errnum;
static const char *stale_name;          // whose first look at what call fails
static const char *stale_call;

static void first_look_fails(const char *name, const char *path) {
    if (strcmp(name, stale_call) != 0 || !ckpt__txt_ends(path, stale_name)) return;
    if (__atomic_add_fetch(&exchanges, 1, __ATOMIC_SEQ_CST) == 1) fault_arm_here(name, stale_errnum);
}

static void resume_twice(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == p->want);
        if (e != CKPT_OK) TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2);
        member_check(m, p->number);
    }
    member_end(m);
}

// Not all have exchanged theirs, and a rank's tarball cannot be seen for a moment: that moment must not decide that all stays as it is,
// which would send all of them to an older checkpoint.
static void test_tars_exchanged_passing(void **state) {
    (void)state;
    static const struct { const char *name, *call; int errnum; ckpt_err want; } rows[] = {
        { "/ba2-rank2.pt.tar", "open", ESTALE, CKPT_NET }, { "/ba2-rank2.pt.tar", "open", EMFILE, CKPT_NOMEM },
        { "/ba2-rank0.pt.tar", "open", ETIMEDOUT, CKPT_NET }, { "/.ba2-rank1.pt.tar.was", "open", ESTALE, CKPT_NET },
        { "/.ba2-rank1.pt.tar.was", "stat", ESTALE, CKPT_OK },
    };
    for (int k = 0; k < UTIL_COUNT(rows); k++) {
        plan p = plan_of(TARS);
        p.keep = 3;
        p.saves = 1;
        tr_run(tr_new(3), save_some, &p);
        kill_exchanging(&p, false);
        exchanges = 0;
        stale_name = rows[k].name;
        stale_call = rows[k].call;
        stale_errnum = rows[k].errnum;
        p.want = rows[k].want;
        p.number = 20;
        fault_set_spy(first_look_fails);
        tr_run(tr_new(3), resume_twice, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_null(strstr(util_list(p.dir), ".was"));
    }
}

// All have exchanged theirs, no index says so, and rank 0 cannot see its tarball for a moment when it asks which save that is of: the
// index, which tells of the save before, is no answer.
static void test_tars_exchanged_unasked(void **state) {
    (void)state;
    static const struct { int errnum; ckpt_err want; } rows[] = { { ESTALE, CKPT_NET }, { EMFILE, CKPT_NOMEM } };
    for (int k = 0; k < UTIL_COUNT(rows); k++) {
        plan p = plan_of(TARS);
        p.keep = 3;
        p.saves = 1;
        tr_run(tr_new(3), save_some, &p);
        kill_exchanging(&p, true);
        exchanges = -1;                 // the first look is at what has been exchanged
        stale_name = "/ba2-rank0.pt.tar";
        stale_call = "open";
        stale_errnum = rows[k].errnum;
        p.want = rows[k].want;
        p.number = 21;
        fault_set_spy(first_look_fails);
        tr_run(tr_new(3), resume_twice, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
    }
}

static void resume_quietly(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    ckpt_timestamp t;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2 && strstr(m->log, "a killed job") == NULL);
    }
    member_end(m);
}

// Names so long that there can be no second ones: nothing has been exchanged.
static void test_tars_exchanged_long(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.filename = util_fmt("%0238d{batch}-rank{rank}.pt", 0);         // 252 bytes, as a file's
    p.saves = 2;
    tr_run(tr_new(2), save_some, &p);
    tr_run(tr_new(2), resume_quietly, &p);
}

static void resume_more(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    m->step = -1;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2 && m->step == (p->number == 0 ? 2 : -1));
        TR_CHECK(r, (strstr(m->log, "1 bound name stays as it is") != NULL) == (p->number != 0));
    }
    member_end(m);
}

// Ranks that save less than those before them resume all that there is.
static void test_saves_less(void **state) {
    (void)state;
    static const layout layouts[] = { WHOLE, SHARDED, TARS };
    for (int i = 0; i < 6; i++) {
        plan p = plan_of(layouts[i / 2]);
        p.number = i % 2;
        p.saves = 2;
        p.ignore = p.number == 0 ? NULL : "state/step";
        tr_run(tr_new(2), save_some, &p);
        p.ignore = "state/step";
        tr_run(tr_new(2), resume_more, &p);
    }
}

static void begin_anew(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (member_open(m)) {
        for (int i = 1; i <= 4; i++) {
            ckpt_timestamp t = at_batch(i);
            bool save = p->number != 0;
            TR_CHECK(r, (save ? ckpt_saver_save(m->s, &t) : ckpt_saver_batch_end(m->s, &t)) == CKPT_EXISTS);
        }
    }
    (void)!ckpt_saver_close(m->s, 0);
    m->s = NULL;
    member_free(m);
}

// Ranks that begin anew in a folder that has a run's checkpoints are refused for good, also when they come past its end.
static void test_begins_anew(void **state) {
    (void)state;
    static const layout layouts[] = { WHOLE, SHARDED, TARS };
    for (int i = 0; i < 6; i++) {
        plan p = plan_of(layouts[i / 2]);
        p.saves = 2;
        tr_run(tr_new(2), save_some, &p);
        p.number = i % 2;
        tr_run(tr_new(2), begin_anew, &p);
    }
}

// Files that do not say of which save they are, or of how many ranks, are not judged by it.
static void test_tars_exchanged_nameless(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.keep = 1;
    p.ignore = "state/callbacks/*";
    kill_exchanging(&p, false);
    tr_run(tr_new(3), resume_any, &p);
    assert_true(has_exchanged(p.dir, 0) && has_exchanged(p.dir, 1));
}

// Goes on from what there is, if anything, for p->saves batches of p->number seconds each, by clocks that differ.
static void go_on_any(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t = at_batch(0);
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == CKPT_OK || e == CKPT_NOT_FOUND);
        for (int i = 0; i < p->saves; i++) {
            TR_OK(r, ckpt_saver_fence(m->s));
            ckpt_next_batch(&t, 1, 0, p->number + 0.1 * r->rank);
            member_set(m, t.batch);
            if (i == 1) TR_OK(r, ckpt_saver_save(m->s, &t));
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        }
    }
    member_end(m);
}

// TARS: a machine that was used alone meanwhile has another history of the run, whose saves have the same numbers, and maybe the same
// batches: those of the one do not go with those of the other, and what both have is gone on from, if there is any.
static void test_tars_other_history(void **state) {
    (void)state;
    for (int k = 0; k < 9; k++) {
        bool common = k % 3 > 0, alike = k % 3 == 2;
        plan p = plan_of(TARS), q = plan_of(TARS);
        p.apart = q.apart = true;
        p.snapshot = q.snapshot = modes[k / 3];
        p.interval = "2ba";
        p.saves = 2;
        p.number = 1;
        if (common) {
            tr_run(tr_new(2), go_on_any, &p);
            assert_int_equal(system(util_fmt("cp -a '%s/.' '%s'", p.dir, q.dir)), 0);
        }
        p.saves = common ? 4 : 6;
        tr_run(tr_new(2), go_on_any, &p);       // ba2, ba4, ba6
        q.interval = alike ? "2ba" : "1ba";
        q.saves = alike ? 4 : common ? 1 : 3;
        q.number = 2;
        tr_run(tr_new(2), go_on_any, &q);       // the same; ba2, ba3; or ba1, ba2, ba3
        assert_int_equal(system(util_fmt("rm -rf '%s/rank1' && mv '%s/rank1' '%s'", p.dir, q.dir, p.dir)), 0);
        p.number = 2;
        p.want = common ? CKPT_OK : CKPT_CORRUPT;
        tr_run(tr_new(2), load_newest, &p);
    }
}

static const char *second(const char *dir, int batch, bool was) {
    return util_join(dir, util_fmt(was ? ".ba%d-rank0.pt.tar.was" : "ba%d-rank0.pt.tar", batch));
}

static void save_third(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) (void)!link(second(p->dir, 1, false), second(p->dir, 1, true));       // goes with its file
        if (r->rank == 0) (void)!link(second(p->dir, 1, false), second(p->dir, 3, true));       // before the file of its name is there
        for (int i = 2; i <= 3; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

// What a killed job was about to replace does not outlive its file: it would take the place of a newer one.
static void test_tars_exchanged_gone(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.keep = 2;
    tr_run(tr_new(2), save_third, &p);
    assert_false(util_exists(second(p.dir, 1, true)));
    assert_false(util_exists(second(p.dir, 3, true)));
    const char *folder = p.dir;
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    ckpt_gc_desc gc;
    memset(&d, 0, sizeof d);
    d.folder = folder;
    memset(&gc, 0, sizeof gc);
    gc.num_checkpoints_to_keep = 1;
    assert_int_equal(link(second(folder, 3, false), second(folder, 9, true)), 0);               // has no file
    assert_int_equal(link(second(folder, 3, false), util_join(folder, ".ba9-rank1.tgz.was")), 0);
    assert_int_equal(link(second(folder, 3, false), util_join(folder, ".notes.was")), 0);       // is somebody else's
    assert_int_equal(link(second(folder, 3, false), util_join(folder, ".was")), 0);
    assert_int_equal(link(second(folder, 2, false), second(folder, 2, true)), 0);
    assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
    assert_int_equal(ckpt_folder_gc(f, &gc), CKPT_OK);
    ckpt_folder_close(f);
    assert_false(util_exists(second(folder, 9, true)) || util_exists(second(folder, 2, true)) || util_exists(second(folder, 2, false)));
    assert_false(util_exists(util_join(folder, ".ba9-rank1.tgz.was")));
    assert_int_equal(link(second(folder, 3, false), second(folder, 9, true)), 0);
    assert_int_equal(link(second(folder, 3, false), second(folder, 3, true)), 0);
    assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
    assert_int_equal(ckpt_folder_remove(f, ckpt_folder_find(f, "ba3-rank0.pt.tar")), CKPT_OK);
    ckpt_folder_close(f);
    assert_false(util_exists(second(folder, 3, true)));
    p.number = 0;
    tr_run(tr_new(2), resume_any, &p);
    assert_false(util_exists(second(folder, 9, true)));
    assert_true(util_exists(util_join(folder, ".notes.was")) && util_exists(util_join(folder, ".was")));
}

static void note_progress(const ckpt_progress *p, void *user) {
    member_log(CKPT_LOG_INFO, p->name, user);
}

static void say_names(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    ckpt_timestamp one = at_batch(1);
    m->d.progress.fn = note_progress;
    m->d.progress.user = m;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_save(m->s, &one));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_CHECK(r, strstr(m->log, "ba1-rank") != NULL && strstr(m->log, ".tmp") == NULL);
    }
    member_end(m);
}

// A tarball that is saved again is told of by its name, though it is written beside the one that has that still.
static void test_again_named(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        plan p = plan_of(TARS);
        p.snapshot = modes[mode];
        tr_run(tr_new(2), say_names, &p);
    }
}

// What is there is of one save.
static void load_twice(tr_rank *r, void *arg) {
    twice *t = (twice *)arg;
    member *m = twice_new(r, t);
    ckpt_timestamp at;
    memset(&at, 0, sizeof at);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &at));
        member_check(m, m->step);
        (void)snprintf(t->p.text[r->rank], sizeof t->p.text[0], "%d %d", (int)at.batch, (int)m->step);
        if (t->p.saves > 0) TR_OK(r, member_step(m, 3));
    }
    member_end(m);
}

static void test_twice(void **state) {
    (void)state;
    for (int how = 1; how < 3; how++) {
        for (int turn = 0; turn < 8; turn++) {
            twice t;
            memset(&t, 0, sizeof t);
            t.p = plan_of((layout)how);
            t.p.apart = (turn & 1) != 0;
            t.p.snapshot = (turn & 2) != 0 ? CKPT_SNAPSHOT_LAZY : CKPT_SNAPSHOT_NONE;
            t.p.want = (turn & 4) != 0 ? CKPT_NO_SPACE : CKPT_OK;
            t.p.keep = 1;
            t.p.saves = 3;
            tr_world *w = tr_new(3);
            tr_run(w, save_twice, &t);
            const char *own = t.p.apart ? util_join(t.p.dir, "rank1") : t.p.dir;
            const char *file = t.p.want == CKPT_OK ? "2" : "1";
            if (how == SHARDED && t.p.apart) {
                assert_string_equal(names_in(util_join(own, "latest-rank0.pt")), util_fmt(".metadata __1_%s.pt", file));
            } else if (how == SHARDED) {
                assert_string_equal(names_in(util_join(own, "latest-rank0.pt")),
                                    util_fmt(".metadata __0_%s.pt __1_%s.pt __2_%s.pt", file, file, file));
            } else if (t.p.apart) {
                assert_string_equal(names_in(own), "ba2-rank1.pt.tar latest-rank1.pt.tar");
            }
            t.p.want = CKPT_OK;
            t.p.saves = 0;
            tr_run(w, load_twice, &t);
            for (int i = 0; i < 3; i++) assert_string_equal(t.p.text[i], file[0] == '2' ? "2 22" : "2 21");
            t.p.saves = 1;              // and rotation takes all of it away
            tr_run(w, load_twice, &t);
            if (how == SHARDED) assert_string_equal(names_in(own), "ba3 latest-rank0.pt");
            else if (t.p.apart) assert_string_equal(names_in(own), "ba3-rank1.pt.tar latest-rank1.pt.tar");
        }
    }
}

// Saves one name as often as asked for, after what is there.
static void save_on(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1), at;
    if (member_open(m)) {
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &at));
        if (p->number > 0) member_check(m, p->number);
        for (int i = 1; i <= p->saves; i++) {
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, p->number + i);
            TR_OK(r, ckpt_saver_save(m->s, &one));
        }
    }
    member_end(m);
}

// A job on machines with folders of their own was killed when all but one had the listing of its third save, and that one's tells of
// the second still. Whose that is, the next job goes on from what all have, and its saves touch no file that any listing tells of.
static void test_killed_between_listings(void **state) {
    (void)state;
    for (int late = 0; late < 3; late++) {
        plan p = plan_of(SHARDED);
        p.apart = true;
        p.saves = 2;
        tr_run(tr_new(3), save_on, &p);
        const char *listing = util_join(p.dir, util_fmt("rank%d/ba1/.metadata", late)), *files[3];
        size_t size = 0, lengths[3];
        const char *before = util_read(listing, &size);
        for (int i = 0; i < 3; i++) files[i] = util_read(util_join(p.dir, util_fmt("rank%d/ba1/__%d_1.pt", i, i)), &lengths[i]);
        p.number = 2;
        p.saves = 1;
        tr_run(tr_new(3), save_on, &p);
        util_write(listing, before, size);
        for (int i = 0; i < 3; i++) util_write(util_join(p.dir, util_fmt("rank%d/ba1/__%d_1.pt", i, i)), files[i], lengths[i]);
        p.number = late == 0 ? 2 : 3;
        tr_run(tr_new(3), save_on, &p);
        for (int i = 0; i < 9; i++)         // what a rank has of the others by its resume aside
            assert_int_equal(util_exists(util_join(p.dir, util_fmt("rank%d/ba1/__%d_%d.pt", i / 3, i / 3, i % 3 + 1))), i % 3 == 2);
        p.number++;
        tr_run(tr_new(3), save_on, &p);
    }
}

// What all ranks do to a bucket between two steps: rank 0 does it.
static void all_fail(tr_rank *r, bucket *b, const char *what, int times) {
    TR_OK(r, tr_barrier(r));
    if (r->rank == 0) bucket_fail(b, what, CKPT_NET, times);
    TR_OK(r, tr_barrier(r));
}

// What a job has put in a bucket that was killed then.
static void put_left(bucket *b, const char *names) {
    char *all = util_fmt("%s", names), *next = NULL;
    for (char *name = strtok_r(all, " ", &next); name != NULL; name = strtok_r(NULL, " ", &next))
        util_write(bucket_path(b, util_fmt("run/%s", name)), "theirs", 6);
}

static void finish_other(bucket *b) { put_left(b, "ba1/__1_0.pt ba1/.metadata"); }

// A machine with an empty disk goes on, or starts afresh, and saves some.
static void save_after_left(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    if (p->how == TARS) m->d.remote_file_name = "run/ba{batch}-rank{rank}.tar";
    if (p->how == TARS) m->d.latest_remote_file_name = "run/latest-rank{rank}";
    m->d.num_remote_to_keep = p->keep;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == (p->number > 0 ? CKPT_OK : CKPT_NOT_FOUND) && (e != CKPT_OK || t.batch == p->number));
        if (e == CKPT_OK) member_check(m, p->number);
        for (int i = p->number + 1; i <= p->number + p->saves; i++) {
            TR_OK(r, member_step(m, i));
            TR_CHECK(r, ckpt_saver_wait(m->s, 0) == p->want);
        }
    }
    member_end_stores(m, &u, 1, p->want != CKPT_OK);
}

// A job was killed in its first upload, and the next machine has an empty disk: its save of that name touches nothing of that, and
// clears it when it is published. Of two that are alive who is ready first has the name.
static void test_left_in_first_upload(void **state) {
    (void)state;
    for (int alive = 0; alive < 2; alive++) {
        plan p = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        p.with = b;
        p.saves = 1;
        put_left(b, "ba1/__0_0.pt ba1/__3_0.pt");
        if (alive != 0) {
            p.want = CKPT_EXISTS;
            b->before = "put run/ba1/.metadata";
            b->then = finish_other;
        }
        tr_run(tr_new(2), save_after_left, &p);
        for (int i = 0; i < 2 && alive != 0; i++)
            assert_string_equal(bucket_text(b, i == 0 ? "run/ba1/.metadata" : "run/ba1/__0_0.pt"), "theirs");
        if (alive == 0) {
            assert_string_equal(bucket_names(b), "run%ba1%.metadata run%ba1%__0_1.pt run%ba1%__1_1.pt run%latest.pt.symlink");
            p.dir = util_temp_dir();
            p.number = 1;
            tr_run(tr_new(2), save_after_left, &p);
        }
        bucket_end(b);
    }
}

// A machine is lost that had half sent, or half removed, some saves, and the next one has fewer ranks: what no listing tells of goes
// with the checkpoint in whose folder it is, or when that name is saved again. All else may be somebody's who lives, and stays.
static void test_left_by_lost_machine(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.saves = 4;
    tr_run(tr_new(4), save_after_left, &p);
    assert_true(bucket_has(b, "run/ba1/__3_0.pt") && bucket_has(b, "run/ba4/.metadata"));
    assert_int_equal(unlink(bucket_path(b, "run/ba1/.metadata")), 0);
    assert_int_equal(unlink(bucket_path(b, "run/ba1/__1_0.pt")), 0);
    put_left(b, "ba3/__6_0.pt ba5/__0_0.pt ba5/__3_0.pt ba9/__0_0.pt ba2/notes.txt");
    p.dir = util_temp_dir();
    p.number = 4;
    p.saves = 1;
    p.keep = 2;
    tr_run(tr_new(2), save_after_left, &p);
    assert_string_equal(bucket_names(b), "run%ba1%__0_0.pt run%ba1%__2_0.pt run%ba1%__3_0.pt run%ba2%notes.txt "
                        "run%ba4%.metadata run%ba4%__0_0.pt run%ba4%__1_0.pt run%ba4%__2_0.pt run%ba4%__3_0.pt "
                        "run%ba5%.metadata run%ba5%__0_1.pt run%ba5%__1_1.pt run%ba9%__0_0.pt run%latest.pt.symlink");
    bucket_end(b);
}

static void lose_ledgers(const char *dir) {
    char *all = strdup(util_list(dir)), *save = NULL;
    int lost = 0;
    for (char *name = strtok_r(all, "\n", &save); name != NULL; name = strtok_r(NULL, "\n", &save)) {
        if (strncmp(name, ".ckpt-remote-", 13) != 0) continue;
        assert_int_equal(unlink(util_join(dir, name)), 0);
        lost++;
    }
    free(all);
    assert_true(lost > 0);
}

// A job that goes on with another store: what it goes on from comes there as well. Of what a store has though the ledger is lost nothing is
// put again but parts in a store that knows no sums.
static void test_goes_on_with_another_store(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        plan p = plan_of(k % 2 != 0 ? SHARDED : TARS);
        bucket *first = bucket_new_as(NULL, "first"), *other = bucket_new_as(NULL, "other");
        p.with = first;
        p.saves = 2;
        tr_run(tr_new(2), save_after_left, &p);
        const char *names = bucket_names(first);
        int puts = bucket_count(first, "put ");
        p.number = 2;
        p.saves = 0;
        if (k < 2) p.with = other;
        else lose_ledgers(p.dir);
        tr_run(tr_new(2), save_after_left, &p);
        assert_string_equal(bucket_names(first), names);
        if (k != 3) assert_int_equal(bucket_count(first, "put "), puts);
        if (k == 0) assert_string_equal(bucket_names(other), "run%ba2-rank0.tar run%ba2-rank1.tar run%latest-rank0.tar.symlink run%latest-rank1.tar.symlink");
        if (k == 1) assert_string_equal(bucket_names(other), "run%ba2%.metadata run%ba2%__0_0.pt run%ba2%__1_0.pt run%latest.pt.symlink");
        bucket_end(first);
        bucket_end(other);
    }
}

static void publish_other(bucket *b) {
    put_left(b, "ba3/__1_0.pt ba3/.metadata");
}

// Of what has no listing when a machine resumes another process, which lives, may publish one yet.
static void test_left_and_published_later(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.saves = 4;
    tr_run(tr_new(2), save_after_left, &p);
    assert_int_equal(unlink(bucket_path(b, "run/ba3/.metadata")), 0);
    b->before = "put run/ba5/.metadata";
    b->then = publish_other;
    p.dir = util_temp_dir();
    p.number = 4;
    p.saves = 1;
    p.keep = 9;
    tr_run(tr_new(2), save_after_left, &p);
    assert_true(bucket_has(b, "run/ba3/.metadata") && bucket_has(b, "run/ba3/__0_0.pt") && bucket_has(b, "run/ba3/__1_0.pt"));
    bucket_end(b);
}

// A job goes on without a store that does not answer just then, or, with p->number 0, overwrites what may be there, and fails when
// rank 0's file of a name is there that another machine has published meanwhile.
static void save_unseen(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    m->d.resume_offline = true;
    m->d.overwrite = p->number == 0;
    all_fail(r, b, "size run/latest", -1);
    if (member_open(m)) {
        if (p->number > 0) {
            TR_OK(r, ckpt_saver_resume(m->s, &t));
            TR_CHECK(r, t.batch == p->number);
        }
        all_fail(r, b, "put run/ba4/__1_", -1);
        (void)!member_step(m, 4);
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_NET);
        TR_OK(r, tr_barrier(r));
    }
    member_end_stores(m, &u, 1, true);
}

// What the other machine has published loads after that.
static void test_saves_unseen(void **state) {
    (void)state;
    for (int number = 3; number >= 0; number -= 3) {
        plan p = plan_of(SHARDED), other = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        other.with = p.with = b;
        p.saves = 3;
        tr_run(tr_new(2), save_after_left, &p);
        other.number = 3;
        other.saves = 1;
        tr_run(tr_new(4), save_after_left, &other);
        if (number == 0) p.dir = util_temp_dir();
        p.number = number;
        tr_run(tr_new(2), save_unseen, &p);
        bucket_fail(b, NULL, CKPT_OK, 0);
        other.dir = util_temp_dir();
        other.number = 4;
        tr_run(tr_new(4), save_after_left, &other);
        bucket_end(b);
    }
}

// A job saves what a machine that is lost has published, and ends before its listing is put.
typedef struct republish {
    plan        p;
    bucket     *b;
    bool        overwrite;
    const char *link, *fails;           // the store's latest; what it refuses until the job is under way
    int         keep, from, step;       // resumed at that one; 0: not
} republish;

static void save_over(tr_rank *r, void *arg) {
    republish *o = (republish *)arg;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, &o->p);
    member_stores(m, &o->b, &u, 1);
    m->d.overwrite = o->overwrite;
    m->d.num_remote_to_keep = o->keep;
    if (o->link != NULL) m->d.latest_remote_file_name = o->link;
    if (o->fails != NULL) all_fail(r, o->b, o->fails, -1);
    if (member_open(m)) {
        if (o->from > 0) {
            TR_OK(r, ckpt_saver_resume(m->s, &t));
            TR_CHECK(r, t.batch == o->from);
        }
        all_fail(r, o->b, o->step == 3 ? "put run/ba3/.metadata" : "put run/ba2/.metadata", -1);
        (void)!member_step(m, o->step);
        (void)!ckpt_saver_wait(m->s, 0);
        TR_OK(r, tr_barrier(r));
    }
    member_end_stores(m, &u, 1, true);
}

// What was published loads after that, whatever its name and whether or not a link leads to it.
static void test_saves_over_published(void **state) {
    (void)state;
    static const struct { bool overwrite; const char *link, *fails; int keep, from, step, lives; } rows[] = {
        { true, NULL, NULL, 0, 0, 2, 0 }, { true, NULL, NULL, 0, 0, 3, 0 }, { true, CKPT_NONE, NULL, 0, 0, 3, 0 },
        { true, "run/latest-{rank}-{batch}", NULL, 0, 0, 2, 0 }, { true, NULL, "list", 0, 0, 2, 0 }, { true, CKPT_NONE, "list", 0, 0, 3, 0 },
        { false, NULL, NULL, 0, 3, 2, 0 }, { false, NULL, NULL, 5, 3, 2, 0 }, { false, NULL, "list", 0, 3, 2, 0 },
        { false, NULL, NULL, 0, 4, 2, 1 }, { true, NULL, NULL, 0, 4, 2, 1 }, { true, NULL, NULL, 0, 0, 3, 1 },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        plan p = plan_of(SHARDED);
        republish o = { plan_of(SHARDED), bucket_new(NULL), rows[i].overwrite, rows[i].link, rows[i].fails, rows[i].keep, rows[i].from, rows[i].step };
        const char *file = util_fmt("ba%d/__0_0.pt", o.step);
        p.with = o.b;
        p.saves = 3;
        tr_run(tr_new(2), save_after_left, &p);
        for (int k = 0; k < rows[i].lives; k++) {           // it has resumed in that folder before
            p.dir = o.p.dir;
            p.number = 3;
            p.saves = 1;
            tr_run(tr_new(2), save_after_left, &p);
        }
        put_left(o.b, file);
        tr_run(tr_new(2), save_over, &o);
        bucket_fail(o.b, NULL, CKPT_OK, 0);
        if (strcmp(bucket_text(o.b, util_fmt("run/%s", file)), "theirs") != 0) fail_msg("%d: %s", i, bucket_names(o.b));
        const char *one = util_fmt("run%%ba%d%%__0_", o.step), *at = strstr(bucket_names(o.b), one);
        assert_non_null(at != NULL ? strstr(at + 1, one) : NULL);           // and the new file is there
        bucket_end(o.b);
    }
}

// One rank saves a name a third time, with one read failing: the files of the second one are never written over.
typedef struct third {
    plan        p;
    const char *call;
    int         nth, edition;           // -1: the third save has failed
    bool        done;
} third;

static void save_thrice(tr_rank *r, void *arg) {
    third *h = (third *)arg;
    ckpt_timestamp one = at_batch(1);
    member *m = member_new(r, &h->p);
    if (member_open(m)) {
        for (int i = 1; i <= 3; i++) {
            member_set(m, i);
            if (i == 3) fault_arm_call(h->call, EIO, h->nth);
            ckpt_err e = ckpt_saver_save(m->s, &one);
            h->done = i == 3 && !fault_disarm();
            TR_CHECK(r, e == CKPT_OK || i == 3);
            h->edition = e == CKPT_OK ? i - 1 : -1;
        }
        (void)!ckpt_saver_close(m->s, 0);
        m->s = NULL;
    }
    member_end(m);
}

static void test_thrice_unread(void **state) {
    (void)state;
    static const char *const calls[] = { "pread", "fstat", "open" };
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
        third h;
        memset(&h, 0, sizeof h);
        for (h.call = calls[k], h.nth = 1; h.nth == 1 || !h.done; h.nth++) {
            h.p = plan_of(SHARDED);
            h.p.interval = "1000000ba";
            tr_run(tr_new(1), save_thrice, &h);
            if (h.edition >= 0) assert_string_equal(names_in(util_join(h.p.dir, "ba1")), util_fmt(".metadata __0_%d.pt", h.edition));
            assert_int_equal(ckpt_verify(util_join(h.p.dir, "ba1"), NULL), CKPT_OK);
        }
    }
}

// A name is saved again and one rank fails: what has that name stays, and rotation takes it when its turn comes.
static void again_fails(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    char blocked[400];
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1);
    (void)snprintf(blocked, sizeof blocked, "%s/ba1/__1_1.pt", p->dir);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        if (r->rank == 1) TR_CHECK(r, mkdir(blocked, 0777) == 0);
        TR_OK(r, tr_barrier(r));
        ckpt_err e = ckpt_saver_save(m->s, &one);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, e != CKPT_OK);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 1) TR_CHECK(r, rmdir(blocked) == 0);
        TR_OK(r, tr_barrier(r));
        TR_OK(r, member_step(m, 2));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, true);
}

static void test_again_fails(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        plan p = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        p.with = b;
        p.snapshot = modes[mode];
        tr_run(tr_new(2), again_fails, &p);
        assert_string_equal(names_in(p.dir), "ba2 latest-rank0.pt");
        bucket_end(b);
    }
}

static int rank_files_gone;

static void count_removals(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "unlink") == 0 && strstr(path, "/ba1/__") != NULL) __atomic_add_fetch(&rank_files_gone, 1, __ATOMIC_SEQ_CST);
}

// A listing says of how many ranks it is, and its checksum fits. Files are not looked for of more than may have written some.
static void again_over_many(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1);
    const char *path = util_join(p->dir, "ba1/.metadata");
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        const char *text = util_read(path, NULL), *at = strstr(text, "\"world_size\":1,"), *end = strstr(text, ",\n\"crc32\":");
        char *made = util_fmt("%.*s\"world_size\":%d,%.*s", (int)(at - text), text, p->number, (int)(end - at) - 15, at + 15);
        char *name = strstr(made, "__0_0");                     // nor of as many as a name of a file says
        if (p->slow > 0) made = util_fmt("%.*s__%d_0%s", (int)(name - made), made, p->number - 1, name + 5);
        util_write_text(path, util_fmt("%s,\n\"crc32\":\"%08lx\"}\n", made, (unsigned long)ckpt__digest_crc32(0, made, strlen(made))));
        FAULT_SET(fault_watch, count_removals);
        TR_OK(r, ckpt_saver_save(m->s, &one));
        FAULT_SET(fault_watch, NULL);
    }
    member_end(m);
}

static void test_again_over_many(void **state) {
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        plan p = plan_of(SHARDED);
        p.number = turn == 1 ? 3 : 1 << 20;
        p.slow = turn == 2;
        rank_files_gone = 0;
        tr_run(tr_new(1), again_over_many, &p);
        assert_true(rank_files_gone >= 1 && rank_files_gone <= (turn < 2 ? 1 : 2048));
    }
}

static bucket *upload_to;

// What waits in the bucket gets there, and its saver has seen to all that follows.
static void let_go(ckpt_saver *s) {
    bool away = true;
    bucket_hold(upload_to, false);
    for (int i = 0; away && i < 60000; i++) {
        usleep(1000);
        pthread_mutex_lock(&s->shared->lock);
        away = s->shared->away > 0;
        pthread_mutex_unlock(&s->shared->lock);
    }
}

// The upload of a checkpoint ends while one of its name is being written: rank 1 has written its file, and rank 0 has not.

static ckpt_err copy_after_upload(void *dst, const void *src, size_t size, bool to_device, void *user) {
    member *m = (member *)user;
    char other[400];
    (void)to_device;
    (void)snprintf(other, sizeof other, "%s/ba1/__1_1.pt", m->folder);
    bool waits = m->slow && m->r->rank == 0;
    for (int i = 0; waits && i < 60000 && access(other, F_OK) != 0; i++) usleep(1000);
    if (waits) let_go(m->s);
    memcpy(dst, src, size);
    return CKPT_OK;
}

// Makes the ranks speak until a call waits in the bucket, and both have had something put there.
static void speak_until_held(tr_rank *r, plan *p, member *m, int64_t batch, const char *put) {
    ckpt_timestamp t = at_batch(batch);
    for (bool done = false; !done; done = p->number != 0) {
        m->s->steps = 0;
        TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) p->number = bucket_waiting(upload_to) == 1 && bucket_count(upload_to, put) == 2;
        TR_OK(r, tr_barrier(r));
    }
}

static void again_while_uploaded(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1);
    m->st.copy = copy_after_upload;
    m->slow = false;
    member_stores(m, &upload_to, &u, 1);
    m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_save(m->s, &one));
        speak_until_held(r, p, m, 1, "put run/ba1/__");
        m->slow = true;
        TR_OK(r, ckpt_saver_save(m->s, &one));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

// What is being written stays, and then takes the place of the other in the store.
static void test_again_while_uploaded(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.interval = "1000000ba";
    p.snapshot = CKPT_SNAPSHOT_LAZY;
    p.device = true;
    upload_to = bucket_new(NULL);
    bucket_hold_only(upload_to, "ba1/.metadata");
    tr_run(tr_new(2), again_while_uploaded, &p);
    assert_string_equal(bucket_names(upload_to), "run%ba1%.metadata run%ba1%__0_1.pt run%ba1%__1_1.pt run%latest.pt.symlink");
    bucket_end(upload_to);
}

static ckpt_saver *first_saver;
static int         hooks_left;

// A removal ends at one of the calls in which the ranks tell each other something, where rank 0 waits for rank 1.
static ckpt_err min_after_removal(int64_t *values, int count, void *user) {
    tr_rank *r = (tr_rank *)user;
    if (r->rank == 1 && hooks_left > 0 && --hooks_left == 0) {
        usleep(20000);
        let_go(first_saver);
    }
    return tr_min(values, count, user);
}

// A checkpoint leaves the store while the run, gone back, saves one of its name: that one's files stay.
static void again_while_removed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    ckpt_timestamp ten = at_batch(10), twenty = at_batch(20);
    int at = p->keep;
    member *m = member_new(r, p);
    m->d.ranks.allreduce_min = min_after_removal;
    member_stores(m, &upload_to, &u, 1);
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_save(m->s, &ten));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_OK(r, ckpt_saver_save(m->s, &twenty));
        speak_until_held(r, p, m, 20, "put run/ba20/__");
        member_set(m, 10);
        if (r->rank == 0) first_saver = m->s;
        if (r->rank == 1) hooks_left = at;
        TR_OK(r, tr_barrier(r));
        TR_OK(r, ckpt_saver_save(m->s, &ten));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 1 && hooks_left > 0) p->saves = 0;
        if (r->rank == 1) hooks_left = 0;
        if (r->rank == 0) bucket_hold(upload_to, false);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

static void load_from_bucket(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &upload_to, &u, 1);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == p->number);
        member_check(m, p->number);
    }
    member_end_stores(m, &u, 1, false);
}

static void test_again_while_removed(void **state) {
    (void)state;
    plan p;
    int at = 0;
    do {
        plan other = plan_of(SHARDED);
        p = plan_of(SHARDED);
        p.interval = "1000000ba";
        p.saves = 1;
        p.keep = at++;                  // at which word of the save it has left; 0: it leaves later
        upload_to = bucket_new(NULL);
        bucket_hold_only(upload_to, "remove run/ba10/.metadata");
        tr_run(tr_new(2), again_while_removed, &p);
        assert_string_equal(bucket_names(upload_to), "run%ba10%.metadata run%ba10%__0_1.pt run%ba10%__1_1.pt run%latest.pt.symlink");
        assert_string_equal(bucket_text(upload_to, "run/latest.pt.symlink"), "run/ba10");
        other.number = 10;
        tr_run(tr_new(2), load_from_bucket, &other);
        bucket_end(upload_to);
    } while (p.saves != 0);
    assert_true(at > 2);
}

// An upload ends at one of the barriers of a commit, where rank 0 waits for rank 1.
static ckpt_err barrier_after_upload(void *user) {
    tr_rank *r = (tr_rank *)user;
    if (r->rank == 1 && hooks_left > 0 && --hooks_left == 0) let_go(first_saver);
    return tr_barrier(r);
}

// What rank 0's machine has pinned, and lost the listing of, stays on the other's, which has it whole and not pinned.
static void pinned_and_unlisted(tr_rank *r, void *arg) {
    member *m = member_new(r, (plan *)arg);
    m->d.ranks.node_rank = r->rank;
    m->d.ranks.local_rank = 0;
    m->d.ranks.local_world_size = 1;
    m->d.num_checkpoints_to_keep = 1;
    if (member_open(m)) {
        for (int i = 1; i <= 3; i++) {
            ckpt_timestamp t = at_batch(i);
            TR_OK(r, ckpt_saver_save(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            if (i == 1 && r->rank == 0) {
                member_pin(m, "ba1", true);
                TR_CHECK(r, unlink(util_join(m->folder, "ba1/.metadata")) == 0);
            }
            TR_OK(r, tr_barrier(r));
        }
    }
    member_end(m);
}

static void test_pinned_and_unlisted(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = true;
    p.interval = "1000000ba";
    tr_run(tr_new(2), pinned_and_unlisted, &p);
    assert_true(is_whole(util_join(p.dir, "rank1"), "ba1"));
    assert_false(util_exists(util_join(p.dir, "rank1/ba2")));
    assert_true(util_exists(util_join(p.dir, "rank0/ba1")));
}

// What one machine has pinned, and somebody has moved away there for two saves, stays on the other's: it comes back.
static void pinned_and_away(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    char from[320], to[320];
    m->d.ranks.node_rank = r->rank;
    m->d.ranks.local_rank = 0;
    m->d.ranks.local_world_size = 1;
    m->d.num_checkpoints_to_keep = 1;
    (void)snprintf(from, sizeof from, "%s/ba1", m->folder);
    (void)snprintf(to, sizeof to, "%s.aside", m->folder);
    if (member_open(m)) {
        for (int i = 1; i <= 5; i++) {
            ckpt_timestamp t = at_batch(i);
            TR_OK(r, ckpt_saver_save(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            if (r->rank == p->slow && i == 1) {
                member_pin(m, "ba1", true);
                TR_CHECK(r, rename(from, to) == 0);
            } else if (r->rank == p->slow && i == 3) {
                TR_CHECK(r, rename(to, from) == 0);
            } else if (r->rank == p->slow && i == 4) {
                member_pin(m, "ba1", p->saves == 0);
            }
            TR_OK(r, tr_barrier(r));
            if (i == 4) TR_CHECK(r, is_whole(m->folder, "ba1"));
        }
    }
    member_end(m);
}

static void test_pinned_and_away(void **state) {
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        plan p = plan_of(SHARDED);
        p.apart = true;
        p.interval = "1000000ba";
        p.slow = turn % 2;
        p.saves = turn / 2;             // it is let go of, and goes everywhere
        tr_run(tr_new(2), pinned_and_away, &p);
        for (int i = 0; i < 2; i++) {
            const char *folder = util_join(p.dir, util_fmt("rank%d", i));
            assert_string_equal(names_in(folder), p.saves == 0 ? "ba1 ba5 latest-rank0.pt" : "ba5 latest-rank0.pt");
            if (p.saves == 0) assert_string_equal(names_in(util_join(folder, "ba1")), util_fmt(".metadata __%d_0.pt", i));
        }
    }
}

static void pinned_by_one(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    int at = p->keep;
    member *m = member_new(r, p);
    m->d.ranks.node_rank = r->rank;
    m->d.ranks.local_rank = 0;
    m->d.ranks.local_world_size = 1;
    m->d.ranks.barrier = barrier_after_upload;
    member_stores(m, &upload_to, &u, 1);
    m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m)) {
        ckpt_timestamp t = at_batch(1);
        if (r->rank == 0) first_saver = m->s;
        TR_OK(r, ckpt_saver_save(m->s, &t));
        if (r->rank == 1) member_pin(m, "ba1", true);
        TR_OK(r, tr_barrier(r));
        t = at_batch(2);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold_only(upload_to, "ba1/.metadata");
        speak_until_held(r, p, m, 2, "put run/ba1/__");
        if (r->rank == 1) hooks_left = at;
        t = at_batch(3);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 1) {
            if (hooks_left > 0) p->saves = 0;
            hooks_left = 0;
        }
        if (r->rank == 0) bucket_hold(upload_to, false);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

// What one machine has pinned stays on the other as well.
static void test_pinned_by_one(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = true;
    p.interval = "1000000ba";
    p.saves = 1;
    for (p.keep = 1; p.saves != 0; p.keep++) {
        p.dir = util_temp_dir();
        upload_to = bucket_new(NULL);
        bucket_hold_only(upload_to, "ba1/");
        tr_run(tr_new(2), pinned_by_one, &p);
        for (int i = 0; i < 2; i++) assert_true(is_whole(util_join(p.dir, util_fmt("rank%d", i)), "ba1"));
        bucket_end(upload_to);
    }
}

// What somebody pins while a checkpoint is on its way is not forgotten when it has come: machine 1 keeps no ledger, but an index.
static void pinned_on_the_way(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    m->d.ranks.node_rank = r->rank;
    m->d.ranks.local_rank = 0;
    m->d.ranks.local_world_size = 1;
    member_stores(m, &upload_to, &u, 1);
    if (member_open(m)) {
        ckpt_timestamp t = at_batch(1);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        if (r->rank == 1) member_pin(m, "ba1", true);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(upload_to, false);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        t = at_batch(2);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

static void test_pinned_on_the_way(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = true;
    p.interval = "1000000ba";
    upload_to = bucket_new(NULL);
    bucket_hold_only(upload_to, "ba1/");
    tr_run(tr_new(2), pinned_on_the_way, &p);
    const char *folder = util_join(p.dir, "rank1");
    assert_non_null(strstr(util_read(util_join(folder, ".ckpt-index.jsonl"), NULL), "\"pinned\":true"));
    for (int i = 0; i < 2; i++) assert_true(is_whole(util_join(p.dir, util_fmt("rank%d", i)), "ba1"));
    bucket_end(upload_to);
}

// The job is killed where it is about to take away a file of its own of that name: the next one does.
static const char *dies_before;

static void die_before(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "unlink") == 0 && strstr(path, dies_before) != NULL) (void)raise(SIGKILL);
}

static void save_to_store(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    member *m = member_new(r, (plan *)arg);
    member_stores(m, &upload_to, &u, 1);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

static void test_hidden_files_left(void **state) {
    (void)state;
    static const char *const files[] = { "ckpt-listing", "ckpt-token" };
    for (int i = 0; i < UTIL_COUNT(files); i++) {
        plan p = plan_of(SHARDED);
        const char *objects = util_temp_dir();
        dies_before = files[i];
        pid_t child = fork();
        if (child == 0) {
            upload_to = bucket_new(objects);
            fault_watch = die_before;
            tr_run(tr_new(2), save_to_store, &p);
            _exit(1);
        }
        was_killed(child);
        assert_non_null(strstr(util_list(p.dir), files[i]));
        p.saves = 0;
        tr_run(tr_new(2), save_some, &p);
        assert_null(strstr(util_list(p.dir), files[i]));
    }
}

// The disk is full when the next job comes, which goes on all the same: what its uploads and its rotation free is on that disk.
static void test_open_full_disk(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        plan p = plan_of((layout)how);
        p.saves = p.number = 2;
        tr_world *w = tr_new(2);
        tr_run(w, save_some, &p);
        fault_arm_always("pwrite", ENOSPC);
        tr_run(w, load_newest, &p);
        (void)fault_disarm();
    }
}

// Which rank dies, and at which of its collectives.
typedef struct death { plan p; int rank; uint64_t at; bool died, hangs; int reached[TR_MOST]; } death;

static death death_of(layout how, int rank, uint64_t at) {
    death d;
    memset(&d, 0, sizeof d);
    d.p = plan_of(how);
    d.p.keep = 2;
    d.rank = rank;
    d.at = at;
    return d;
}

// Three ranks run until one dies; afterwards none does.
static tr_world *die(death *d, void (*run)(tr_rank *r, void *arg)) {
    tr_world *w = tr_new(3);
    w->limit = 0.01;
    tr_run(w, run, d);
    for (int i = 0; i < 3; i++) w->rank[i].dies_at = 0;
    return w;
}

static void until_death(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    if (e == CKPT_OK) e = member_step(m, 1);
    if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
    TR_CHECK(r, e == CKPT_OK);
    if (r->rank == d->rank && d->at > 0) r->dies_at = tr_calls(r) + d->at;
    for (int i = 2; i <= 4 && e == CKPT_OK; i++) {
        e = member_step(m, i);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        if (e == CKPT_OK) d->reached[r->rank] = i;
    }
    if (e != CKPT_OK) {
        char first[1024];
        char name[16];
        (void)snprintf(first, sizeof first, "%s", ckpt_last_error());
        (void)snprintf(name, sizeof name, "rank %d", d->rank);
        if (r->rank != d->rank) TR_CHECK(r, e == CKPT_TIMEOUT && strstr(first, name) != NULL);
        ckpt_timestamp t = at_batch(9);         // and nothing more is asked of the hooks
        uint64_t calls = tr_calls(r);
        TR_CHECK(r, ckpt_saver_save(m->s, &t) == e && tr_calls(r) == calls);
        TR_CHECK(r, strcmp(first, ckpt_last_error()) == 0);
    }
    if (m->s != NULL) {
        ckpt_err closed = ckpt_saver_close(m->s, 0);     // never CKPT_TIMEOUT, which would say that the saver is open
        TR_CHECK(r, closed == (e == CKPT_TIMEOUT ? CKPT_NET : e) || (e == CKPT_OK && d->at > 0));
        TR_CHECK(r, closed != CKPT_TIMEOUT);
        if (r->rank == d->rank) d->died = closed != CKPT_OK;
    }
    m->s = NULL;
    member_free(m);
}

static void load_committed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        const char *const *paths;
        (void)paths;
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_OK(r, e);
        if (e == CKPT_OK) TR_CHECK(r, t.batch >= p->saves && t.batch <= p->saves + 1);
        if (e == CKPT_OK) member_check(m, t.batch);
    }
    member_end(m);
}

// A rank dies at each of the collectives that saves are made of. Nothing that is reported fails to load, and what was committed
// before is still there.
static void test_death(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int mode = 0; mode < 3; mode += 2) {
            for (int rank = 0; rank < 3; rank += 2) {
                uint64_t step = mode == 0 ? STRIDE : 5;
                for (uint64_t at = 1;; at += step) {
                    death d = death_of((layout)how, rank, at);
                    d.p.snapshot = modes[mode];
                    tr_world *w = die(&d, until_death);
                    int least = 1, most = 1;
                    for (int i = 0; i < 3; i++) {
                        if (d.reached[i] > most) most = d.reached[i];
                        if (i == 0 || d.reached[i] < least) least = d.reached[i];
                    }
                    if (least < 1) least = 1;
                    d.p.want = CKPT_OK;
                    d.p.number = -1;
                    // what a rank was told is committed must be there; one more may be
                    d.p.saves = most;
                    tr_run(w, load_committed, &d.p);
                    bool died = d.died;
                    util_remove_tree(d.p.dir);
                    if (!died) break;
                    assert_true(at < 200);
                }
            }
        }
    }
}

// A rank dies while a checkpoint is saved again under its name, where no other is kept.
static void until_second_death(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_timestamp t = at_batch(1);
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    if (e == CKPT_OK) e = member_step(m, 1);
    if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
    TR_CHECK(r, e == CKPT_OK);
    if (r->rank == d->rank) r->dies_at = tr_calls(r) + d->at;
    member_set(m, 2);
    if (e == CKPT_OK) e = ckpt_saver_save(m->s, &t);
    if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
    if (e == CKPT_OK) d->reached[r->rank] = 2;
    ckpt_err closed = m->s != NULL ? ckpt_saver_close(m->s, 0) : e;
    if (r->rank == d->rank) d->died = closed != CKPT_OK;
    member_free(m);
}

static void load_either(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_timestamp t;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        member_check(m, m->step);
        (void)snprintf(d->p.text[r->rank], sizeof d->p.text[0], "%d", (int)m->step);
    }
    member_end(m);
}

static void test_death_at_second(void **state) {
    (void)state;
    for (int how = 1; how < 3; how++) {
        for (int turn = 0; turn < 4; turn++) {
            for (uint64_t at = 1;; at += STRIDE) {
                death d = death_of((layout)how, (turn & 1) != 0 ? 2 : 0, at);
                d.p.apart = (turn & 2) != 0;
                d.p.keep = 1;
                tr_world *w = die(&d, until_second_death);
                tr_run(w, load_either, &d);
                int second = 0;
                for (int i = 0; i < 3; i++) second = second > d.reached[i] ? second : d.reached[i];
                for (int i = 0; i < 3; i++) assert_true(atoi(d.p.text[i]) >= second);
                for (int i = 1; i < 3; i++) assert_string_equal(d.p.text[i], d.p.text[0]);
                util_remove_tree(d.p.dir);
                if (!d.died) break;
                assert_true(at < 200);
            }
        }
    }
}

// A rank dies in the very first save. The job that is started again must get on, whatever the dead one has left in the folders.
static void until_first_death(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    TR_OK(r, e);
    if (e == CKPT_OK) TR_CHECK(r, ckpt_saver_resume(m->s, NULL) == CKPT_NOT_FOUND);
    if (r->rank == d->rank) r->dies_at = tr_calls(r) + d->at;
    if (e == CKPT_OK) e = member_step(m, 1);
    if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
    if (e == CKPT_OK) d->reached[r->rank] = 1;
    ckpt_err closed = m->s != NULL ? ckpt_saver_close(m->s, 0) : e;
    if (r->rank == d->rank) d->died = closed != CKPT_OK;
    member_free(m);
}

static void start_again(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_timestamp t = at_batch(0);
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == CKPT_OK || e == CKPT_NOT_FOUND);
        member_check(m, t.batch);           // a fresh start has what was there
        TR_CHECK(r, t.batch >= d->p.saves && t.batch <= 1);
        for (int i = (int)t.batch + 1; i <= 3; i++) TR_OK(r, member_step(m, i));
        if (r->world->failures > 0) print_error("%s\n", m->log);
    }
    member_end(m);
}

// Goes on to the step of what was left, which its save replaces.
static void go_on_over(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_timestamp t = at_batch(0);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        for (int i = (int)t.batch + 1; i <= 6; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 6);
        member_check(m, 6);
    }
    member_end(m);
}

// What a process leaves that is killed in its first save, of `step`, when all but d->rank have theirs: nothing tells of it.
static void leave_unfinished(const death *d, int step) {
    for (int i = 0; i < 3; i++) {
        const char *folder = d->p.apart ? util_join(d->p.dir, util_fmt("rank%d", i)) : d->p.dir;
        unlink(util_join(folder, ".ckpt-index.jsonl"));
        unlink(util_join(folder, util_fmt(".ckpt-index-rank%d.jsonl", i)));
        assert_int_equal(unlink(util_join(folder, util_fmt("latest-rank%d.pt.tar", i))), 0);
        if (i == d->rank) assert_int_equal(unlink(util_join(folder, util_fmt("ba%d-rank%d.pt.tar", step, i))), 0);
    }
}

// A process that dies in its first save may leave what of the others is there already: a rank's tar, and nothing that tells of it. Nor
// does that keep the next one from an earlier save, as of another interval, or asked for by a signal.
static void test_tars_unfinished(void **state) {
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        for (int turn = 0; turn < 4; turn++) {
            death d = death_of(TARS, rank, 0);
            int first = turn < 2 ? 1 : 5;
            d.p.apart = turn % 2 == 1;
            d.p.keep = 0;
            d.p.saves = first;
            d.p.interval = first > 1 ? "5ba" : NULL;
            tr_world *w = tr_new(3);
            tr_run(w, save_some, &d.p);
            d.p.interval = NULL;
            leave_unfinished(&d, first);
            d.p.saves = 0;
            tr_run(w, start_again, &d);
            d.p.number = 3;
            tr_run(w, load_newest, &d.p);
            if (first > 1) tr_run(w, go_on_over, &d);
        }
    }
}

// A fresh start that saves at that step, as when a signal asks for it.
static void start_and_stop(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    member *m = member_new(r, &d->p);
    ckpt_timestamp last = at_batch(d->p.number);
    if (member_open(m)) {
        TR_CHECK(r, ckpt_saver_resume(m->s, NULL) == CKPT_NOT_FOUND);
        for (int i = 1; i <= d->p.number; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_save(m->s, &last));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

// Processes, one after the other, are killed in their first save, of the same step and of another: the last one starts afresh.
static void test_tars_unfinished_twice(void **state) {
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        for (int turn = 0; turn < 6; turn++) {
            death d = death_of(TARS, rank, 0);
            d.p.apart = turn % 2 == 1;
            d.p.keep = 0;
            d.p.saves = d.p.number = 5;
            d.p.interval = "1000ba";
            tr_world *w = tr_new(3);
            for (int i = 0; i < (turn < 4 ? 1 : 3); i++) {
                tr_run(w, start_and_stop, &d);
                leave_unfinished(&d, 5);
            }
            d.p.number = 3;
            tr_run(w, start_and_stop, &d);
            if (!d.p.apart) assert_non_null(strstr(names_in(d.p.dir), ".unfinished"));      // somebody may have put them there
            if (turn < 2) d.rank = (rank + 1) % 3;
            leave_unfinished(&d, 3);
            d.p.interval = NULL;
            d.p.saves = 0;
            tr_run(w, start_again, &d);
            d.p.number = 3;
            tr_run(w, load_newest, &d.p);
        }
    }
}

static void test_death_at_first(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int apart = 0; apart < 2; apart++) {
            if (how == WHOLE && apart) continue;
            for (int rank = 0; rank < 3; rank++) {
                for (uint64_t at = 1;; at += STRIDE) {
                    death d = death_of((layout)how, rank, at);
                    d.p.apart = apart == 1;
                    tr_world *w = die(&d, until_first_death);
                    for (int i = 0; i < 3; i++) if (d.reached[i] > d.p.saves) d.p.saves = d.reached[i];
                    tr_run(w, start_again, &d);
                    d.p.want = CKPT_OK;
                    d.p.number = 3;
                    tr_run(w, load_newest, &d.p);
                    util_remove_tree(d.p.dir);
                    if (!d.died) break;
                    assert_true(at < 200);
                }
            }
        }
    }
}

// A server of files that does not answer for a moment: nothing says that a folder is not finished, and what is in it stays.
static void listing_unseen(const char *name, const char *path) {
    if (strcmp(name, "lstat") == 0 && ckpt__txt_ends(path, "/.metadata")) fault_arm_here("lstat", EIO);
}

static void open_unseeing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    fault_set_spy(listing_unseen);
    (void)!ckpt_saver_open(&m->s, &m->d);
    fault_set_spy(NULL);
    TR_CHECK(r, fault_disarm());
    member_end(m);
}

// Nor is what may not be replaced written over.
static void save_unseeing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t = at_batch(2);
    if (member_open(m)) {
        member_set(m, 7);
        fault_set_spy(listing_unseen);
        TR_CHECK(r, ckpt_saver_save(m->s, &t) == CKPT_EXISTS);
        fault_set_spy(NULL);
        TR_CHECK(r, fault_disarm());
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_EXISTS);
        m->s = NULL;
    }
    member_end(m);
}

static void test_listing_unseen(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.saves = 2;
    tr_run(tr_new(1), save_some, &p);
    tr_run(tr_new(1), open_unseeing, &p);
    tr_run(tr_new(1), save_unseeing, &p);
    assert_string_equal(names_in(util_join(p.dir, "ba1")), ".metadata __0_0.pt");
    assert_string_equal(names_in(util_join(p.dir, "ba2")), ".metadata __0_0.pt");
    p.number = 2;
    tr_run(tr_new(1), load_newest, &p);
}

static void tar_unseen(const char *name, const char *path) {
    if (strcmp(name, "lstat") == 0 && ckpt__txt_ends(path, "/ba1-rank1.pt.tar")) fault_arm_here("lstat", EIO);
}

// TARS: a rank cannot look at its file of a name that is saved again, and then another cannot write its own: what there was stays.
static void again_unseeing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1);
    m->st.copy = copy_fails;
    m->slow = false;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        member_set(m, 7);
        m->slow = r->rank == 0;
        TR_OK(r, tr_barrier(r));
        fault_set_spy(tar_unseen);
        TR_CHECK(r, ckpt_saver_save(m->s, &one) == CKPT_IO);
        fault_set_spy(NULL);
        TR_OK(r, tr_barrier(r));
        TR_CHECK(r, r->rank != 0 || fault_disarm());
        m->slow = false;
        TR_OK(r, ckpt_saver_resume(m->s, &one));
        member_check(m, 1);
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_IO);
        m->s = NULL;
    }
    member_end(m);
}

static void test_tar_unseen(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.device = true;
    tr_run(tr_new(2), again_unseeing, &p);
}

static int renamed_state;               // 1: the fault is rank 1's rename

// Rank 1's file cannot take the place of the one of its name. Rank 0's rename comes after that.
static void rename_fails(const char *name, const char *path) {
    if (strcmp(name, "rename") != 0) return;
    if (ckpt__txt_ends(path, "/ba1-rank1.pt.tar") && __atomic_load_n(&renamed_state, __ATOMIC_SEQ_CST) == 0) {
        fault_arm_here("rename", EIO);
        __atomic_store_n(&renamed_state, 1, __ATOMIC_SEQ_CST);
    }
    if (!ckpt__txt_ends(path, "/ba1-rank0.pt.tar")) return;
    while (__atomic_load_n(&renamed_state, __ATOMIC_SEQ_CST) == 0 || __atomic_load_n(&fault_hits, __ATOMIC_SEQ_CST) == 0)
        ckpt__os_sleep(0.001);
}

// Nor has rank 0's old file a second name meanwhile.
static void link_of_rank_0_fails(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "linkat") != 0) return;
    if (strstr(path, "/.ba1-rank0.pt.tar.") != NULL) fault_arm_here("linkat", EPERM);
    else while (__atomic_load_n(&fault_hits, __ATOMIC_SEQ_CST) == 0) ckpt__os_sleep(0.001);
}

// TARS: a name is saved again, and one rank's file cannot take the place of the old one: those that could give it back.
static void again_unnamed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        member_set(m, 7);
        TR_OK(r, tr_barrier(r));
        ckpt_err e = ckpt_saver_save(m->s, &one);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, e == p->want);
        if (p->want == CKPT_OK || p->number == 0) {
            TR_OK(r, ckpt_saver_resume(m->s, &one));
            member_check(m, p->want == CKPT_OK ? 7 : 1);
        }
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == p->want);
        m->s = NULL;
    }
    member_end(m);
}

static void test_tar_unnamed(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        for (int turn = 0; turn < 3; turn++) {
            plan p = plan_of(TARS);
            p.snapshot = modes[mode];
            p.want = turn < 2 ? CKPT_IO : CKPT_OK;
            p.number = turn;
            __atomic_store_n(&renamed_state, 0, __ATOMIC_SEQ_CST);
            __atomic_store_n(&fault_hits, 0, __ATOMIC_SEQ_CST);         // of the turn before
            if (turn < 2) fault_set_spy(rename_fails);
            if (turn == 1) FAULT_SET(fault_watch, link_of_rank_0_fails);
            tr_run(tr_new(2), again_unnamed, &p);
            fault_set_spy(NULL);
            FAULT_SET(fault_watch, NULL);
            if (turn < 2) assert_true(fault_disarm());
            const char *left = util_list(p.dir);        // where it has none the new one stays: it is all that there is
            assert_non_null(strstr(left, "\nba1-rank0.pt.tar\nba1-rank1.pt.tar\n"));
            assert_null(strstr(left, ".tmp"));
        }
    }
}

// The settings of one rank differ, or its call does.
static void differs(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (p->number == 0 && r->rank == 1) m->d.num_checkpoints_to_keep = 7;
    if (p->number == 1 && r->rank == 1) m->d.save_interval = "1xx";
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    if (p->number < 2) {
        TR_CHECK(r, e == CKPT_ARG && strstr(ckpt_last_error(), "rank 1: ") != NULL);
    } else {
        TR_CHECK(r, e == CKPT_OK);
        ckpt_timestamp t = at_batch(r->rank == 1 ? 2 : 1);
        e = ckpt_saver_save(m->s, &t);
        TR_CHECK(r, e == CKPT_ARG && strstr(ckpt_last_error(), "different") != NULL);
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_ARG);
    }
    member_free(m);
}

static void test_differs(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        plan p = plan_of(i == 2 ? WHOLE : SHARDED);
        p.number = i;
        tr_run(tr_new(3), differs, &p);
    }
}

// Two ranks whose numbers are not those that the hooks know them by, as where a communicator was ordered anew.
static void open_swapped(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (r->rank > 0) m->d.ranks.rank = 3 - r->rank;
    TR_CHECK(r, ckpt_saver_open(&m->s, &m->d) == CKPT_ARG && m->s == NULL);
    TR_CHECK(r, strstr(ckpt_last_error(), "know as 1 calls itself rank 2") != NULL);
    member_free(m);
}

static void test_numbers_differ(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++) {
        plan p = plan_of((layout)(how % 3));
        tr_world *w = tr_new(3);
        w->no_gather = how > 2;
        tr_run(w, open_swapped, &p);
        assert_string_equal(names_in(p.dir), "");
    }
}

static void open_refused(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_err want = CKPT_ARG;
    const char *says = "";
    if (p->number == 0) { memset(&m->d.ranks.barrier, 0, sizeof m->d.ranks - offsetof(ckpt_ranks, barrier)); says = "needs the functions"; }
    if (p->number == 1) { m->d.filename = "ba{batch}.pt"; m->d.sharded = false; m->d.per_rank_tar = true; says = "{rank}"; }
    if (p->number == 2) {
        m->d.sharded = false;
        m->d.filename = "ba{batch}-{rank}.pt";
        m->d.per_rank_tar = m->d.weights_only = true;
        want = CKPT_UNSUPPORTED;
        says = "weights_only";
    }
    if (p->number == 3) { m->d.per_rank_tar = true; says = "two layouts"; }
    if (p->number == 4) { m->d.sharded_prefix_dir = "always"; says = "same at every time"; }
    if (p->number == 5) { m->d.sharded_prefix_dir = ""; says = "empty"; }
    if (p->number == 6 && r->rank == 1) { m->d.ranks.barrier = NULL; }
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    TR_CHECK(r, e == want && strstr(ckpt_last_error(), says) != NULL);
    member_free(m);
}

static void test_refused(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        plan p = plan_of(SHARDED);
        p.number = i;
        tr_run(tr_new(2), open_refused, &p);
        assert_string_equal(names_in(p.dir), "");
    }
}

// Weights alone, of which some rank must have some: else open says that there is nothing to save.
static void weights_of_some(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    float w[2] = { 1, 2 };
    ckpt_timestamp t = at_batch(1);
    static const char *const all[] = { "*" };
    ckpt_state_free(&m->st);
    memset(&m->st, 0, sizeof m->st);
    if (r->rank != 2) ckpt_bind_f32(&m->st, r->rank == 1 && p->number == 1 ? "state/model/w" : util_fmt("w%d", r->rank), w, 2);
    m->d.weights_only = p->how != TARS;
    m->d.ignore_keys = all;
    m->d.ignore_keys_count = p->how == TARS ? 1 : 0;
    if (p->how == WHOLE && r->rank == 0 && p->number == 1) ckpt_bind_f32(&m->st, "state/model/first", w, 2);
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    if (p->number == 1) {
        TR_CHECK(r, e == CKPT_OK);
        if (e == CKPT_OK) TR_OK(r, ckpt_saver_save(m->s, &t));
        if (e == CKPT_OK) TR_OK(r, ckpt_saver_close(m->s, 0));
    } else {
        TR_CHECK(r, e == CKPT_ARG && strstr(ckpt_last_error(), "rank 0: ") != NULL && strstr(ckpt_last_error(), "nothing would be saved") != NULL);
    }
    member_free(m);
}

static void test_nothing_to_save(void **state) {
    (void)state;
    static const layout layouts[] = { WHOLE, SHARDED, TARS };
    for (int i = 0; i < 5; i++) {
        plan p = plan_of(layouts[i / 2]);
        p.number = i % 2;
        tr_run(tr_new(3), weights_of_some, &p);
    }
}

// A process that was stopped while it wrote, when another job has gone on in its folder: its file takes no name that is taken. What
// no listing tells of goes when that step is saved again, and nothing else.
static ckpt_err copy_beside(void *dst, const void *src, size_t size, bool to_device, void *user) {
    member *m = (member *)user;
    const char *folder = util_join(m->folder, "ba2");
    if (!to_device && m->slow) {
        m->slow = false;
        (void)mkdir(folder, 0777);
        util_write(util_join(folder, "__1_0.pt"), "another job's", 13);
    }
    memcpy(dst, src, size);
    return CKPT_OK;
}

static void wake_late(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->st.copy = copy_beside;
    m->st.copy_user = m;
    m->slow = false;
    if (member_open(m)) {
        const char *path = util_join(p->dir, "ba2/__1_0.pt");
        ckpt_timestamp t = at_batch(2);
        int fd = -1;
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        m->slow = r->rank == 1;
        ckpt_err e = member_step(m, 2);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, e == CKPT_EXISTS && strncmp(ckpt_last_error(), "rank 1: ", 8) == 0);
        if (r->rank == 1) TR_CHECK(r, strcmp(util_read(path, NULL), "another job's") == 0);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt__saver_job job;
        memset(&job, 0, sizeof job);
        job.path = util_fmt("%s", path);
        TR_CHECK(r, ckpt__saver_clear_name(m->s, &job, &fd) == CKPT_EXISTS && fd < 0);
        job.line.edition = 1;
        job.path = util_fmt("%s/ba2/__1_1.pt", p->dir);
        TR_OK(r, ckpt__saver_clear_name(m->s, &job, &fd));
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2);
        member_check(m, 2);
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_EXISTS);      // of the save that failed
        m->s = NULL;
    }
    member_end(m);
}

static void test_wakes_late(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode += 2) {           // with COPY the device is read before the file is begun
        plan p = plan_of(SHARDED);
        p.snapshot = modes[mode];
        p.device = true;
        tr_run(tr_new(2), wake_late, &p);
    }
}

// TARS in one folder, with one `latest` for all ranks: nobody takes the tarball of the rank that has moved it last for his own.
static void resume_mine(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t = at_batch(0);
    ckpt_bind_text(&m->st, "state/model/mine", m->rng, sizeof m->rng);
    if (member_open(m)) {
        if (p->number > 0) {
            TR_OK(r, ckpt_saver_resume(m->s, &t));
            TR_CHECK(r, t.batch == p->number && strcmp(m->rng, util_fmt("r%d-%d", r->rank, p->number)) == 0);
            TR_CHECK(r, (strstr(m->log, "which is rank 1's") != NULL) == (r->rank != 1));
        }
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, i));
    }
    member_end(m);
}

static void test_one_latest(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.latest = "latest.tar";
    p.saves = 2;
    tr_run(tr_new(3), resume_mine, &p);
    const char *latest = util_join(p.dir, "latest.tar");
    assert_int_equal(unlink(latest), 0);
    assert_int_equal(symlink("ba2-rank1.pt.tar", latest), 0);
    struct timespec late[2] = { { 4000000000, 0 }, { 4000000000, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, util_join(p.dir, "ba2-rank1.pt.tar"), late, 0), 0);
    p.saves = 0;
    p.number = 2;
    tr_run(tr_new(3), resume_mine, &p);
}

//-- timestamps that differ --------------------------------------------------------------

// Clocks are each rank's own, and counters may be; a checkpoint has one time for all.
static void moments_apart(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (p->how == TARS) m->d.filename = p->filename;
    ckpt_timestamp t = at_batch(5), at;
    t.token = 1000 + r->rank;
    t.total_wct = 10.25 + 0.5 * r->rank;
    memset(&at, 0, sizeof at);
    if (member_open(m)) {
        member_set(m, 5);
        if (p->saves == 0) {
            ckpt_err e = ckpt_saver_resume(m->s, &at);
            TR_CHECK(r, e == CKPT_OK);
            if (e == CKPT_OK) member_check(m, 5);
            (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d %d %.2f", (int)at.batch, (int)at.token, at.total_wct);
        } else {
            ckpt_err e = ckpt_saver_save(m->s, &t);
            TR_CHECK(r, e == p->want);
            (void)snprintf(p->text[r->rank], sizeof p->text[0], "%s", e == CKPT_OK ? "" : ckpt_last_error());
            t.token = 2000;
            t.batch = 6;
            member_set(m, 6);
            if (e != CKPT_OK) TR_OK(r, ckpt_saver_save(m->s, &t));      // and the ranks are still together
            TR_CHECK(r, ckpt_saver_close(m->s, 0) == p->want);
            m->s = NULL;
        }
    }
    member_end(m);
}

// Long work is waited for in the barrier and in no other hook: of one rank's disk, of its device, of a store.
static int slow_rank;

static void sync_slowly(const char *name, const char *path, int fd) {
    (void)path, (void)fd;
    if (strcmp(name, "fsync") == 0 && tr_self != NULL && tr_self->rank == slow_rank) tr_busy(tr_self, 0.004);
}

static void keep_waiting(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t = at_batch(2);
    m->d.overwrite = true;
    if (p->snapshot == CKPT_SNAPSHOT_LAZY) m->slow = false;     // no call waits for it
    if (member_open(m)) {
        TR_OK(r, tr_barrier(r));        // what comes after a call's last collective is nobody's
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == CKPT_NOT_FOUND);
        for (int i = 0; i < 3; i++) {
            TR_OK(r, tr_barrier(r));
            t = at_batch(i < 2 ? i + 1 : 2);
            member_set(m, t.batch);
            TR_OK(r, ckpt_saver_save(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
        }
        char blocked[400];              // and one that fails on one rank
        (void)snprintf(blocked, sizeof blocked, "%s/ba9%s", m->folder, p->how == WHOLE ? ".pt" : p->how == SHARDED ? "" : "-rank1.pt.tar");
        if (r->rank == (p->how == WHOLE ? 0 : 1) && (p->apart || p->how != SHARDED)) {
            if (p->how == SHARDED) util_write_text(blocked, "in the way");
            else TR_CHECK(r, mkdir(blocked, 0777) == 0);
        }
        TR_OK(r, tr_barrier(r));
        t = at_batch(9);
        e = ckpt_saver_save(m->s, &t);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, (e != CKPT_OK) == (p->apart || p->how != SHARDED));
        TR_OK(r, tr_barrier(r));
        (void)!ckpt_saver_close(m->s, 0);
        m->s = NULL;
    }
    member_free(m);
}

static void keep_waiting_resumed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        TR_OK(r, tr_barrier(r));
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_OK(r, tr_barrier(r));
        if (p->how != TARS) {
            ckpt_load_desc d;
            char path[400];
            memset(&d, 0, sizeof d);
            (void)snprintf(path, sizeof path, "%s%s/latest-rank0.pt", p->dir, p->apart ? "/rank0" : "");
            d.load_path = path;
            d.state = &m->st;
            d.ranks = r->ranks;
            if (!p->apart || p->how == WHOLE) TR_OK(r, ckpt_load(&d, NULL));
        }
        TR_OK(r, tr_barrier(r));
    }
    member_end(m);
}

static void test_moments_apart(void **state) {
    (void)state;
    for (int how = 1; how < 3; how++) {
        for (int apart = 0; apart < 2; apart++) {
            plan p = plan_of((layout)how);
            tr_world *w = tr_new(3);
            p.apart = apart == 1;
            p.saves = 1;
            p.prefix = "ba{batch}-{total_wct}";
            p.filename = "ba{batch}-{total_wct}-rank{rank}.pt";
            tr_run(w, moments_apart, &p);
            for (int i = 0; i < 3; i++) {
                const char *folder = apart ? util_join(p.dir, util_fmt("rank%d", i)) : p.dir;
                assert_true(util_exists(util_join(folder, how == SHARDED ? util_fmt("ba5-10.25/__%d_0.pt", i)
                                                                         : util_fmt("ba5-10.25-rank%d.pt.tar", i))));
            }
            p.saves = 0;
            tr_run(w, moments_apart, &p);
            for (int i = 0; i < 3; i++) assert_string_equal(p.text[i], "5 1000 10.25");
        }
        plan p = plan_of((layout)how);
        p.saves = 1;
        p.want = CKPT_ARG;
        p.prefix = "tok{token}";
        p.filename = "tok{token}-rank{rank}.pt";
        tr_run(tr_new(3), moments_apart, &p);
        for (int i = 0; i < 3; i++) assert_non_null(strstr(p.text[i], "rank 1: cannot save: its timestamp has token 1001, and rank 0's has 1000"));
        const char *names = names_in(p.dir);
        assert_null(strstr(names, "tok100"));
        assert_non_null(strstr(names, "tok2000"));
    }
}

static void test_waits_in_barrier(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int k = 0; k < 4; k++) {
            plan p = plan_of((layout)how);
            p.apart = k % 2 != 0;
            p.snapshot = modes[how == SHARDED ? 2 - k / 2 * 2 : k / 2 * 2];
            p.device = true;
            p.slow = slow_rank = k / 2;
            p.keep = 1;
            fault_watch = sync_slowly;
            tr_run(tr_new(2), keep_waiting, &p);
            tr_run(tr_new(2), keep_waiting_resumed, &p);
            fault_watch = NULL;
        }
    }
}

// A save that is refused at once on rank 1 while rank 0's device takes its time: rank 1 is not kept for it in a collective with a time limit.
static bool kept_for_long, copied_slowly;

static ckpt_err copy_for_long(void *dst, const void *src, size_t size, bool to_device, void *user) {
    tr_world *w = ((member *)user)->r->world;
    tr_rank *other = &w->rank[1];
    uint64_t round = 0;
    memcpy(dst, src, size);
    if (to_device || ((member *)user)->r->rank != 0) return CKPT_OK;
    pthread_mutex_lock(&w->lock);
    bool first = !copied_slowly;
    copied_slowly = true;
    pthread_mutex_unlock(&w->lock);
    // 2 s, in which this rank's other thread may not get the processor either: so as long as rank 1 stays where it is, up to 20 s.
    for (int i = 0, stays = 0; first && (i < 400 || stays > 0) && !kept_for_long; i++) {
        ckpt__os_sleep(0.005);
        pthread_mutex_lock(&w->lock);
        stays = other->here && other->what != TR_BARRIER && w->round == round ? stays + 1 : 0;
        kept_for_long = stays > 4000;
        round = w->round;
        pthread_mutex_unlock(&w->lock);
    }
    return CKPT_OK;
}

static void refused_at_once(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    char blocked[400];
    m->st.copy = copy_for_long;
    if (member_open(m)) {
        ckpt_timestamp t = at_batch(9);
        (void)snprintf(blocked, sizeof blocked, "%s/ba9", m->folder);
        if (r->rank == 1) util_write_text(blocked, "in the way");
        TR_OK(r, tr_barrier(r));
        ckpt_err e = ckpt_saver_save(m->s, &t);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, e != CKPT_OK && strstr(ckpt_last_error(), "rank 1: ") != NULL);
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == e);
        m->s = NULL;
    }
    member_free(m);
}

static void test_abandons_in_barrier(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = p.device = true;
    p.snapshot = CKPT_SNAPSHOT_LAZY;
    p.slow = -1;
    kept_for_long = copied_slowly = false;
    tr_run(tr_new(2), refused_at_once, &p);
    assert_true(copied_slowly && !kept_for_long);
}

//-- requests and cadence --------------------------------------------------------------

static void requested(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.save_interval = "1000000ba";
    if (member_open(m)) {
        int saved = 0;
        ckpt_saver_counts c;
        double begin = ckpt__os_now();
        int last = 0;
        for (int i = 1; saved == 0 && ckpt__os_now() - begin < 100; i++) {
            if (i == 20 && r->rank == 3) ckpt_saver_request(m->s);
            TR_OK(r, member_step(m, i));
            ckpt__os_sleep(0.01);
            int64_t stop = 0;
            ckpt_saver_stats(m->s, &c);
            stop = -(int64_t)(p->how == WHOLE ? m->s->last.batch > 0 : m->s->last.batch > 0);
            if (stop != 0) saved = i;
            last = i;
        }
        TR_CHECK(r, saved > 0 && last < 400);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d", saved);
    }
    member_end(m);
}

static void test_request(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        plan p = plan_of((layout)how);
        p.snapshot = CKPT_SNAPSHOT_LAZY;
        tr_world *w = tr_new(4);
        tr_run(w, requested, &p);
        for (int i = 1; i < 4; i++) assert_string_equal(p.text[i], p.text[0]);
        p.number = atoi(p.text[0]);
        tr_run(w, load_newest, &p);
    }
}

// Ranks that count epochs alone, one of them tokens as well.
static void epochs_alone(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (member_open(m)) {
        ckpt_timestamp t;
        memset(&t, 0, sizeof t);
        for (int i = 1; i <= 4; i++) {
            t.epoch = i;
            if (r->rank == 1) t.token += 10;
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, i);
            if (i == 4) m->s->steps = 1000;
            if (i == 4 && r->rank == 1) ckpt_saver_request(m->s);       // close comes round to it
            if (i < 4) TR_OK(r, ckpt_saver_epoch_end(m->s, &t));
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        }
    }
    member_end(m);
}

static void test_epochs_alone(void **state) {
    (void)state;
    static const char *const names[] = { "ep1.pt ep2.pt ep3.pt ep4.pt", "ep1 ep2 ep3 ep4",
                                         "ep1-0.tar ep1-1.tar ep2-0.tar ep2-1.tar ep3-0.tar ep3-1.tar ep4-0.tar ep4-1.tar" };
    for (int how = 0; how < 3; how++) {
        plan p = plan_of((layout)how);
        p.interval = "1ep";
        p.filename = how == TARS ? "ep{epoch}-{rank}.tar" : "ep{epoch}.pt";
        p.prefix = "ep{epoch}";
        p.latest = "";
        tr_run(tr_new(2), epochs_alone, &p);
        assert_string_equal(names_in(p.dir), names[how]);
    }
}

// Whose run it is: rank 0 alone is told the second one's name, as where a variable is set on the first machine only.
static void named_run(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    ckpt_timestamp t;
    m->d.run_name = p->number == 0 ? "first" : r->rank == 0 ? "second" : NULL;
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        if (p->number == 2) TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_OK(r, member_step(m, p->number == 2 ? 2 : 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

// Each rank takes the other run's tarball in the store for what it is, and leaves it there.
static void test_run_of_rank_0(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.filename = "{run_name}-{rank}-{batch}.tar";
    p.latest = "";
    assert_int_equal(chdir(util_temp_dir()), 0);
    (void)unsetenv("COMPOSER_RUN_NAME"), (void)unsetenv("RUN_NAME");
    for (p.number = 0; p.number < 3; p.number++) tr_run(tr_new(2), named_run, &p);
    assert_string_equal(names_in(util_join(p.dir, "run")), "first-0-1.tar first-1-1.tar second-0-2.tar second-1-2.tar");
}

// Two saves in a store of which rank 0 alone has an uploader when one file is written for all; `number`: the batch before.
static void save_for_all(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    ckpt_timestamp t;
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &t));
        if (p->number > 0) member_check(m, p->number);
        for (int i = 1; i <= 2; i++) {
            TR_OK(r, member_step(m, p->number + i));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
        }
    }
    member_end(m);
}

// A sharded job goes on in one file: rank 0 removes what all ranks had put there, whose number is another one now.
static void test_whole_after_sharded(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        plan p = plan_of(SHARDED);
        assert_int_equal(chdir(util_temp_dir()), 0);
        tr_run(tr_new(3), save_for_all, &p);
        assert_string_equal(names_in(util_join(p.dir, "run")), "ba2 latest-rank0.pt.symlink");
        p.how = WHOLE;
        p.number = 2;
        tr_run(tr_new(ranks), save_for_all, &p);
        const char *names = names_in(util_join(p.dir, "run"));
        if (strncmp(names, "ba2 ", 4) == 0) assert_string_equal(names_in(util_join(p.dir, "run/ba2")), "");     // a store has no folders
        else assert_string_equal(names, "ba4.pt latest-rank0.pt.symlink");
    }
}

static void miss_one(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e != CKPT_OK && e != CKPT_NOT_FOUND && strstr(ckpt_last_error(), "__2_0.pt is missing") != NULL);
    }
    member_end(m);
}

// Each rank has a folder of its own, and the third one's machine is gone: its file is named, not one that a rank lacks and another has.
static void test_apart_one_gone(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.apart = true;
    p.saves = 1;
    tr_run(tr_new(3), save_some, &p);
    tr_run(tr_new(2), miss_one, &p);
}

static void hear_of_tars(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    if (member_open(m)) {
        TR_OK(r, member_step(m, p->number));
        TR_CHECK(r, (strstr(m->log, "tarballs of other ranks") != NULL) == (p->how == WHOLE && r->rank == 0 && p->number == 2));
    }
    member_end(m);
}

// What ranks above 0 have left belongs to nobody when one file is written for all: that is said until its index is gone.
static void test_whole_after_tars(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.number = 1;
    tr_run(tr_new(2), hear_of_tars, &p);
    p.number = 2;
    tr_run(tr_new(2), hear_of_tars, &p);
    p.how = WHOLE;
    tr_run(tr_new(2), hear_of_tars, &p);
    assert_non_null(strstr(names_in(p.dir), "ba1-rank1.pt.tar"));
    assert_int_equal(unlink(util_join(p.dir, ".ckpt-index-rank1.jsonl")), 0);
    p.number = 3;
    tr_run(tr_new(2), hear_of_tars, &p);
}

// Each rank counts its own tokens, and its own time; the ranks speak again at the end of the loop.
static void counts_apart(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.max_duration = (const char *)p->with;
    if (member_open(m)) {
        for (int i = 1; i <= 25; i++) {
            ckpt_timestamp t = at_batch(i);
            t.token = t.sample = i * (100 - r->rank);
            t.total_wct = r->rank == 1 && i >= 10 ? 100000 : i;
            if (i > 1) m->s->steps = 1000;
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, i);
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        }
    }
    member_end(m);
}

// What all know is saved at its step, and rank 0's word when they speak.
static void test_counts_apart(void **state) {
    (void)state;
    static const char *const ask[][2] = { { "1000tok", NULL }, { "0.4dur", "2500tok" }, { "1000ba", "2400sp" }, { "10ba", "24h" } };
    for (int i = 0; i < 4; i++) {
        plan p = plan_of(TARS);
        p.interval = ask[i][0];
        p.with = (void *)(uintptr_t)ask[i][1];
        p.filename = "{batch}-{rank}.tar";
        p.latest = "";
        tr_run(tr_new(2), counts_apart, &p);
        assert_string_equal(names_in(p.dir), i < 3 ? "25-0.tar 25-1.tar" : "10-0.tar 10-1.tar 20-0.tar 20-1.tar");
    }
}

// What is due or asked for at the last steps of a loop is saved, though the ranks speak to each other only now and then.
static void last_steps(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.save_interval = p->saves == 0 ? "30m" : "1000000ba";
    if (p->saves == 0) m->d.max_duration = "40ba";
    if (member_open(m)) {
        for (int i = 1; i <= 40; i++) {
            if (i == 30) m->s->steps = 1000;            // until they speak again
            if (p->saves == 1 && i == 40 && r->rank == 1) ckpt_saver_request(m->s);
            TR_OK(r, member_step(m, i));
        }
        if (p->saves == 2) ckpt_saver_request(m->s);        // too late: no *_end follows
    }
    member_end(m);
}

static void test_last_steps(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int mode = 0; mode < 3; mode += 2) {
            for (int what = 0; what < 3; what++) {
                plan p = plan_of((layout)how);
                p.snapshot = modes[mode];
                p.saves = what;
                tr_world *w = tr_new(3);
                tr_run(w, last_steps, &p);
                if (what == 2) assert_string_equal(names_in(p.dir), "");
                p.number = 40;
                p.saves = 0;
                if (what < 2) tr_run(w, load_newest, &p);
            }
        }
    }
}

// A loop that does not stop at its max_duration saves its end once.
static void past_the_end(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.max_duration = (const char *)p->with;
    m->d.save_interval = "10ba";
    if (member_open(m)) {
        for (int i = 1; i <= 24; i++) {
            ckpt_timestamp t = at_batch(i);
            t.sample = i;
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, i);
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        }
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt_saver_counts c;
        ckpt_saver_stats(m->s, &c);
        bool counted = strstr(m->d.max_duration, "ba") != NULL;             // else they agree on it when they speak next
        TR_CHECK(r, r->rank != 0 || c.saved == 3 || (!counted && c.saved == 2));
    }
    member_end(m);
}

// Its end is an epoch's, and saved at a batch's end before that epoch is counted.
static void past_the_end_of_an_epoch(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    m->d.max_duration = "3ep";
    m->d.save_interval = "3ba";
    if (member_open(m)) {
        while (t.batch < 20) {
            TR_OK(r, ckpt_saver_fence(m->s));
            ckpt_next_batch(&t, 1, 0, 1.0);
            member_set(m, t.batch);
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
            if (t.batch % 4 != 0) continue;
            ckpt_next_epoch(&t, 1.0);
            TR_OK(r, ckpt_saver_epoch_end(m->s, &t));
        }
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt_saver_counts c;
        ckpt_saver_stats(m->s, &c);
        TR_CHECK(r, r->rank != 0 || c.saved == 6);
    }
    member_end(m);
}

static void test_past_the_end(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++) {
        plan p = plan_of((layout)(how / 2));
        p.with = (void *)(uintptr_t)(how % 2 == 0 ? "15ba" : "15sp");
        tr_run(tr_new(2), past_the_end, &p);
        p = plan_of((layout)(how / 2));
        if (how % 2 == 0) tr_run(tr_new(2), past_the_end_of_an_epoch, &p);
    }
}

// Ranks that leave the loop at different steps are told that what was asked for could not be saved.
static void apart_at_the_end(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.save_interval = "1000000ba";
    if (member_open(m)) {
        for (int i = 1; i <= 20 + (r->rank == 0); i++) {
            if (i == 10) m->s->steps = 1000;
            if (i == 20) ckpt_saver_request(m->s);
            TR_OK(r, member_step(m, i));
        }
        ckpt_err e = ckpt_saver_close(m->s, 0);
        TR_CHECK(r, e == CKPT_ARG && strstr(ckpt_last_error(), "different batches, from 20 to 21") != NULL);
        m->s = NULL;
    }
    member_end(m);
}

static void test_apart_at_the_end(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    tr_run(tr_new(2), apart_at_the_end, &p);
    assert_string_equal(names_in(p.dir), "");
}

static bool never(const ckpt_timestamp *t, ckpt_event event, void *user) {
    (void)event;
    return user != NULL && t->batch == 7 && *(int *)user == 1;
}

static void idle(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    m->d.save_interval = "1000000000ba";
    if (p->number == 1) {
        m->d.should_save = never;
        m->d.should_save_user = &r->rank;       // rank 1 alone wants one at batch 7
    }
    if (member_open(m)) {
        uint64_t before = tr_calls(r);
        int steps = 0;
        ckpt_timestamp t = at_batch(0);
        int most = p->number == 1 ? 10 : 400000;
        double begin = ckpt__os_now();
        while (steps < most) {
            t.batch++;
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
            steps++;
        }
        uint64_t calls = tr_calls(r) - before;
        if (p->number == 1) TR_CHECK(r, m->s->last.batch == 7);
        // How many more than one in CKPT__CREW_STRIDE depends on what each takes (test_calls_between); where steps take long it is one a second.
        else TR_CHECK(r, (double)calls <= most / CKPT__CREW_SOME + 30 + 10 * (ckpt__os_now() - begin));
        // What one rank asks for after so fast a start is heard soon, counted in steps: they may be long ones by now.
        if (p->number != 1 && r->rank == 1) ckpt_saver_request(m->s);
        for (int i = 0; i < 1100 && p->number != 1; i++) {
            t.batch++;
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        }
        if (p->number != 1) TR_CHECK(r, m->s->last.batch > most && m->s->last.batch <= most + 1001);
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d", steps);
    }
    member_end(m);
}

static void test_cadence(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int i = 0; i < 2; i++) {
            plan p = plan_of((layout)how);
            p.number = i;
            p.saves = 0;
            // all ranks must make the same number of steps
            tr_run(tr_new(4), idle, &p);
        }
    }
}
// Calls between two agreements, of a loop of `calls` in a second: few, because its next steps may be long; more only where agreements,
// of which one takes so many seconds, are dear.
static void test_calls_between(void **state) {
    (void)state;
    static const struct { int64_t calls; double took; int64_t want; } cases[] = {
        { 2, 1e-4, 2 }, { 10, 0.05, 10 }, { 1000, 1e-4, CKPT__CREW_SOME }, { 1000, 1e-3, 100 }, { 1000, 0.05, 1000 }, { 100000000, 1e-4, 1000 },
    };
    ckpt_saver *s = (ckpt_saver *)calloc(1, sizeof *s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s->crew.together = true;
        s->stride = 1000;
        s->calls = cases[i].calls;
        s->took = cases[i].took;
        s->spoke = ckpt__os_now() - 1;
        int64_t n = ckpt__crew_stride(s);
        assert_true(n <= cases[i].want && n >= cases[i].want * 8 / 10 - 1);
    }
    free(s);
}

//-- stores ---------------------------------------------------------------------------

static void store_some(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    m->d.num_remote_to_keep = 2;
    m->d.num_attempts = 1;
    m->d.overwrite = p->overwrite;
    if (member_open(m)) {
        for (int i = 1; i <= p->saves; i++) {
            ckpt_err e = member_step(m, i);
            if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
            if (i == p->number) {
                TR_CHECK(r, e != CKPT_OK);
                (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d %s", (int)e, ckpt_last_error());
            } else {
                TR_CHECK(r, e == CKPT_OK);
            }
        }
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt_err e = ckpt_saver_close(m->s, 0);
        TR_CHECK(r, (e == CKPT_OK) == (p->number == 0));
        m->s = NULL;
    }
    member_end(m);
}

static void resume_store(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_OK(r, e);
        if (e == CKPT_OK) TR_CHECK(r, t.batch == p->number);
        if (e == CKPT_OK) member_check(m, p->number);
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, p->number + i));
    }
    member_end(m);
}

static const char *slurp(const char *path) {
    size_t size;
    return util_exists(path) ? util_read(path, &size) : "";
}

static void test_store(void **state) {
    (void)state;
    static const int other[] = { 3, 1, 5, 2 };
    for (int how = 0; how < 3; how++) {
        for (int mode = 0; mode < 3; mode += 2) {
            plan p = plan_of((layout)how);
            p.snapshot = modes[mode];
            p.saves = 4;
            const char *here = util_temp_dir(), *there = util_temp_dir();
            assert_int_equal(chdir(here), 0);
            tr_world *w = tr_new(3);
            tr_run(w, store_some, &p);
            const char *run = util_join(p.dir, "run");
            const char *to = how == WHOLE ? "run/ba4.pt" : how == TARS ? "run/ba4-rank0.pt.tar" : "run/ba4";
            const char *link = util_join(run, how == TARS ? "latest-rank0.pt.tar.symlink" : "latest-rank0.pt.symlink");
            assert_true(ckpt__txt_ends(slurp(link), to));
            if (how == SHARDED) {
                assert_string_equal(names_in(run), "ba3 ba4 latest-rank0.pt.symlink");
                assert_string_equal(names_in(util_join(run, "ba4")), ".metadata __0_0.pt __1_0.pt __2_0.pt");
                assert_string_equal(names_in(util_join(run, "ba3")), ".metadata __0_0.pt __1_0.pt __2_0.pt");
            } else if (how == WHOLE) {
                assert_string_equal(names_in(run), "ba3.pt ba4.pt latest-rank0.pt.symlink");
            }
            // a machine that has nothing; then one that goes on, with other ranks
            p.number = 4;
            p.saves = 0;
            assert_int_equal(chdir(there), 0);
            tr_run(w, resume_store, &p);
            p.saves = 1;
            if (how == SHARDED) w = tr_new(other[mode]);
            tr_run(w, resume_store, &p);
            assert_true(strstr(slurp(link), "ba5") != NULL);
        }
    }
}

// Goes on from p->number, makes one more save, and keeps that alone in the store.
static void store_one(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == p->number);
        TR_OK(r, member_step(m, p->number + 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

// A new machine with fewer ranks takes away all files of the checkpoints that it has found in the store.
static void test_store_fewer(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    const char *run = util_join(p.dir, "run");
    p.saves = 3;
    assert_int_equal(chdir(util_temp_dir()), 0);
    tr_run(tr_new(4), store_some, &p);
    assert_string_equal(names_in(run), "ba2 ba3 latest-rank0.pt.symlink");
    p.number = 3;
    assert_int_equal(chdir(util_temp_dir()), 0);
    tr_run(tr_new(2), store_one, &p);
    assert_string_equal(names_in(run), "ba4 latest-rank0.pt.symlink");
    assert_string_equal(names_in(util_join(run, "ba4")), ".metadata __0_0.pt __1_0.pt");
}

// What an agreement says of one store: the least and the most of what the ranks have there, and whether one still works. Is another
// agreement to follow?
static bool heard(ckpt_saver *s, int64_t least, int64_t most, bool work) {
    int64_t w[CKPT__CREW_WORDS];
    memset(w, 0, sizeof w);
    w[CKPT__CREW_STORE] = least;
    w[CKPT__CREW_STORE_MOST] = -most;
    w[CKPT__CREW_WORK] = work ? -1 : 0;
    ckpt__crew_hear_stores(s, w);
    return s->nearer;
}

// As much of a saver as hears what ranks with tarballs have in `stores` stores.
static void hearing_begin(ckpt_saver *s, ckpt__saver_shared *shared, int stores) {
    memset(s, 0, sizeof *s);
    memset(shared, 0, sizeof *shared);
    assert_int_equal(ckpt__os_mutex_init(&shared->lock), CKPT_OK);
    assert_int_equal(ckpt__os_cond_init(&shared->changed), CKPT_OK);
    s->shared = shared;
    s->layout = CKPT__SAVER_TARS;
    s->crew.together = true;
    s->remote_count = stores;
}

static void hearing_end(ckpt__saver_shared *shared) {
    ckpt__os_cond_free(&shared->changed);
    ckpt__os_mutex_free(&shared->lock);
}

// The last rank's upload ends while the ranks look for what all of them have: they look again, and close with the newest published.
static void test_store_overtaken(void **state) {
    (void)state;
    ckpt_saver s;
    ckpt__saver_shared shared;
    hearing_begin(&s, &shared, 1);
    assert_true(heard(&s, 4, 4, false));
    assert_int_equal(s.safe[0], 4);
    assert_true(heard(&s, 4, 5, true));
    assert_true(heard(&s, 4, 4, false));        // of those up to 4
    assert_int_equal(s.below[0], 0);
    assert_true(heard(&s, 5, 5, false));
    assert_int_equal(s.safe[0], 5);
    assert_false(heard(&s, 5, 5, false));
    // one rank will never have it
    assert_true(heard(&s, 5, 7, true));
    assert_true(heard(&s, 3, 5, false));
    assert_true(heard(&s, 3, 3, false));
    assert_true(heard(&s, 5, 7, false));
    assert_true(heard(&s, 3, 5, false));
    assert_false(heard(&s, 3, 3, false));
    hearing_end(&shared);
}

// The newest save up to `most` that a rank has in a store: those of `saves`, the last one only when it is `there`.
static int64_t newest_of(const char *saves, uint64_t most, bool there) {
    int64_t newest = 0;
    for (const char *p = saves; *p != 0 && (there || p[1] != 0); p++) {
        int64_t n = *p - 'a' + 1;
        if (n > newest && (most == 0 || (uint64_t)n <= most)) newest = n;
    }
    return newest;
}

// Two stores, in each of which one rank will never have its newest: the ranks look for what both have, and then have done so, also when
// those of the second store, whose last upload ends later, begin to look later. A rank's saves in a store are letters.
static void test_store_out_of_step(void **state) {
    (void)state;
    static const struct { const char *saves[2][2]; int64_t safe[2]; } cases[] = {
        { { { "m", "mn" }, { "n", "no" } }, { 13, 14 } },               // the looks take equally long
        { { { "abm", "abn" }, { "abn", "abo" } }, { 2, 2 } },
        { { { "abl", "abm" }, { "abm", "abmn" } }, { 2, 13 } },         // one takes a look more than the other
        { { { "al", "am" }, { "abcdm", "abcdefn" } }, { 1, 4 } },
        { { { "", "am" }, { "bm", "bn" } }, { 0, 2 } },
        { { { "aceg", "bdfh" }, { "ac", "bc" } }, { 0, 3 } }            // nothing in common
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        for (int first = 0; first < 4; first++) {                       // agreements before that upload ends
            ckpt_saver s;
            ckpt__saver_shared shared;
            int64_t w[CKPT__CREW_WORDS];
            int calls = 0;
            hearing_begin(&s, &shared, 2);
            for (; calls < 100 && (calls == 0 || s.nearer); calls++) {
                memset(w, 0, sizeof w);
                w[CKPT__CREW_CALL] = calls % 2 == 0 ? CKPT__CREW_WAIT : CKPT__CREW_CLOSE;
                w[CKPT__CREW_WORK] = calls < first ? -1 : 0;
                for (int k = 0; k < 2; k++) {
                    bool there = k == 0 || calls >= first;
                    int64_t a = newest_of(cases[i].saves[k][0], s.below[k], true), b = newest_of(cases[i].saves[k][1], s.below[k], there);
                    w[CKPT__CREW_STORE + k] = a < b ? a : b;
                    w[CKPT__CREW_STORE_MOST + k] = a < b ? -b : -a;
                }
                ckpt__crew_hear_stores(&s, w);
            }
            if (calls >= 100) fail_msg("case %d, %d at work: they look for ever", i, first);
            for (int k = 0; k < 2; k++) assert_int_equal(s.safe[k], cases[i].safe[k]);
            hearing_end(&shared);
        }
    }
}

// What one rank fetches, writes and brings up to date the others await in the barrier.
static void test_store_waits_in_barrier(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (slow_rank = 0; slow_rank < 2; slow_rank++) {
            plan p = plan_of((layout)how);
            p.saves = 1;
            assert_int_equal(chdir(util_temp_dir()), 0);
            p.number = 0;
            tr_run(tr_new(2), store_some, &p);
            assert_int_equal(chdir(util_temp_dir()), 0);
            p.saves = 0;
            p.number = 1;
            fault_watch = sync_slowly;
            tr_run(tr_new(2), resume_store, &p);
            fault_watch = NULL;
        }
    }
}

// The disk is full for so many listings that are to be staged.
static int listings_fail;

static void listing_full(const char *name, const char *path) {
    bool one = strcmp(name, "open") == 0 && strstr(path, "ckpt-listing") != NULL;
    if (one && __atomic_fetch_sub(&listings_fail, 1, __ATOMIC_SEQ_CST) > 0) fault_arm_here("open", ENOSPC);
}

// The directory is the process's: all ranks meet, one goes, all go on.
static void all_go(tr_rank *r, const char *dir) {
    TR_OK(r, tr_barrier(r));
    if (r->rank == 0) TR_CHECK(r, chdir(dir) == 0);
    TR_OK(r, tr_barrier(r));
}

static void wait_for(tr_rank *r, member *m, bool uploads) {
    ckpt_saver_counts c;
    bool done = false;
    for (double end = ckpt__os_now() + 60; !done && ckpt__os_now() < end;) {
        ckpt__os_sleep(0.001);
        ckpt_saver_stats(m->s, &c);
        done = uploads ? c.pending == 0 : ckpt__crew_part(m->s) == CKPT__PART_DURABLE;
    }
    TR_CHECK(r, done);
}

// So long that the ranks have spoken.
static void idle_about(tr_rank *r, member *m, int64_t step) {
    for (int64_t end = step + 2 * CKPT__CREW_STRIDE; step <= end; step++) {
        ckpt_timestamp t = at_batch(step);
        TR_OK(r, ckpt_saver_batch_end(m->s, &t));
    }
}

// A call returns before its file is there.
static void write_slowly(const char *name, const char *path, int fd) {
    (void)path, (void)fd;
    if (strcmp(name, "fsync") == 0 && tr_self == NULL) ckpt__os_sleep(0.05);
}

typedef struct trip { const char *home, *other; bucket *b; } trip;

// number: 0: waits at home; 1: saves abroad; 2: closes abroad while the listing is to go, 3: while a checkpoint is to be completed; 4: the
// disk at home is full.
static void wander(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    trip *way = (trip *)p->with;
    ckpt_uploader *u[1] = { NULL };
    member *m = member_new(r, p);
    (void)snprintf(m->folder, sizeof m->folder, "run");
    member_stores(m, &way->b, u, 1);
    m->d.num_checkpoints_to_keep = p->keep;
    if (member_open(m)) {
        ckpt_timestamp t = at_batch(1);
        member_set(m, 1);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        wait_for(r, m, false);
        all_go(r, way->other);          // it is written, and not a checkpoint yet
        idle_about(r, m, 2);
        if (p->number == 1 && r->rank == 1) (void)ckpt__error_set(CKPT_NET, "something else");
        if (p->number == 1 && r->rank == 1) ckpt__saver_note_failure(m->s, true);
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_ARG);
        TR_CHECK(r, strstr(ckpt_last_error(), "working directory") != NULL && strstr(ckpt_last_error(), "no checkpoint yet") != NULL);
        t = at_batch(3000);
        if (p->number == 1) TR_CHECK(r, ckpt_saver_save(m->s, &t) == CKPT_ARG);
        if (p->number == 3) {
            TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_ARG);
            m->s = NULL;
        } else {
            TR_CHECK(r, names_in(".")[0] == 0);
            all_go(r, way->home);
            if (p->number == 1) TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_NET);
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            TR_CHECK(r, bucket_has(way->b, "run/ba1/.metadata"));
            TR_OK(r, tr_barrier(r));
            if (r->rank == 0) bucket_hold(way->b, true);
            TR_OK(r, tr_barrier(r));
            t = at_batch(4000);
            member_set(m, 10);
            TR_OK(r, ckpt_saver_save(m->s, &t));
            wait_for(r, m, false);
            TR_OK(r, tr_barrier(r));
            for (bool late = true; late && m->s->flights == NULL;) late = ckpt_saver_wait(m->s, 0.05) == CKPT_TIMEOUT;
            TR_CHECK(r, m->s->flights != NULL);
            TR_CHECK(r, ckpt_saver_wait(m->s, 0.05) == CKPT_TIMEOUT);
            all_go(r, way->other);
            if (r->rank == 0) bucket_hold(way->b, false);
            wait_for(r, m, true);
            idle_about(r, m, 4001);
            TR_CHECK(r, m->s->flights == NULL && m->s->stalled != NULL);
            TR_CHECK(r, names_in(".")[0] == 0);
            TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_ARG && strstr(ckpt_last_error(), "not published yet") != NULL);
            if (p->number == 2) TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_ARG);
            if (p->number == 2) m->s = NULL;
            if (p->number == 4 && r->rank == 0) __atomic_store_n(&listings_fail, 1, __ATOMIC_SEQ_CST);
            if (p->number != 2) all_go(r, way->home);
            if (p->number == 4) TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_NO_SPACE);
            if (p->number == 4) ckpt__os_sleep(1.1);
            if (p->number != 2) TR_OK(r, ckpt_saver_wait(m->s, 0));
            if (p->number != 2) TR_CHECK(r, bucket_has(way->b, "run/ba4000/.metadata"));
        }
    }
    member_end_stores(m, u, 1, p->number == 1 || p->number == 4);
}

static void wandered(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    trip *way = (trip *)p->with;
    ckpt_uploader *u[1] = { NULL };
    member *m = member_new(r, p);
    ckpt_timestamp t;
    (void)snprintf(m->folder, sizeof m->folder, "run");
    member_stores(m, &way->b, u, 1);
    m->d.num_checkpoints_to_keep = p->keep;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == (p->number == 3 ? CKPT_NOT_FOUND : CKPT_OK));
        if (e == CKPT_OK) TR_CHECK(r, t.batch == 4000);
        if (e == CKPT_OK) member_check(m, 10);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, u, 1, false);
}

// A program goes to another directory between the files of a checkpoint and its listing, and between those in a store and theirs: the
// listing is written when it is back, and nothing where it has gone.
static void test_chdir_before_the_listing(void **state) {
    (void)state;
    for (int number = 0; number < 5; number++) {
        trip way;
        plan p = plan_of(SHARDED);
        way.home = util_temp_dir(), way.other = util_temp_dir(), way.b = bucket_new(NULL);
        p.with = &way;
        p.interval = "1000000ba";
        p.snapshot = CKPT_SNAPSHOT_COPY;
        p.number = number;
        assert_int_equal(chdir(way.home), 0);
        fault_watch = write_slowly;
        listings_fail = 0;
        fault_set_spy(listing_full);
        tr_run(tr_new(2), wander, &p);
        fault_set_spy(NULL);
        fault_watch = NULL;
        assert_true(number != 4 || fault_disarm());
        assert_string_equal(names_in(way.other), "");
        assert_int_equal(chdir(way.home), 0);
        tr_run(tr_new(2), wandered, &p);
        if (number != 3) assert_true(bucket_has(way.b, "run/ba4000/.metadata") && bucket_has(way.b, "run/ba4000/__1_0.pt"));
        assert_string_equal(names_in("run"), number == 3 ? "" : "ba1 ba4000 latest-rank0.pt");
        bucket_end(way.b);
    }
}

// Rank 1 alone is elsewhere when what all have uploaded is to leave its folder.
static void be_elsewhere(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1] = { NULL };
    member *m = member_new(r, p);
    member_stores(m, &b, u, 1);
    m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m)) {
        ckpt_timestamp t = at_batch(1);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(b, true);
        TR_OK(r, tr_barrier(r));
        TR_OK(r, ckpt_saver_save(m->s, &t));
        for (bool late = true; late && m->s->flights == NULL;) late = ckpt_saver_wait(m->s, 0.05) == CKPT_TIMEOUT;
        TR_CHECK(r, m->s->flights != NULL);
        TR_OK(r, tr_barrier(r));
        bool placed = m->s->placed;
        if (r->rank == 1) m->s->placed = true, m->s->home.ino++;
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(b, false);
        wait_for(r, m, true);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_CHECK(r, strcmp(names_in(m->folder), r->rank == 1 ? "ba1" : "") == 0);
        if (r->rank == 1) m->s->placed = placed, m->s->home.ino--;
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_CHECK(r, strcmp(names_in(m->folder), "") == 0);
    }
    member_end_stores(m, u, 1, false);
}

static void test_uploaded_while_one_was_elsewhere(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.with = bucket_new(NULL);
    p.apart = true;
    p.interval = "1000000ba";
    p.snapshot = CKPT_SNAPSHOT_COPY;
    tr_run(tr_new(2), be_elsewhere, &p);
    bucket_end((bucket *)p.with);
}

static void fail_second(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "ba1-rank1") != NULL) fault_arm_here("open", EIO);
}

static void fail_and_go(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    trip *way = (trip *)p->with;
    member *m = member_new(r, p);
    ckpt__saver_part part = CKPT__PART_BUSY;
    ckpt_timestamp t = at_batch(1);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_save(m->s, &t));
        for (double end = ckpt__os_now() + 60; part == CKPT__PART_BUSY && ckpt__os_now() < end; part = ckpt__crew_part(m->s))
            ckpt__os_sleep(0.001);
        TR_CHECK(r, part == (r->rank == 1 ? CKPT__PART_FAILED : CKPT__PART_DURABLE));
        all_go(r, way->other);
        t = at_batch(2);
        TR_CHECK(r, ckpt_saver_save(m->s, &t) == CKPT_ARG);
        all_go(r, way->home);
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_IO);
        TR_CHECK(r, r->rank != 0 || names_in("run")[0] == 0);
        TR_CHECK(r, ckpt_saver_close(m->s, 0) != CKPT_OK);
        m->s = NULL;
    }
    member_end(m);
}

// A part has failed, and the program goes to another directory: the files of the others go when it is back.
static void test_chdir_after_a_failure(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    trip way = { util_temp_dir(), util_temp_dir(), NULL };
    p.with = &way;
    p.dir = "run";
    p.interval = "1000000ba";
    p.snapshot = CKPT_SNAPSHOT_COPY;
    assert_int_equal(chdir(way.home), 0);
    fault_set_spy(fail_second);
    tr_run(tr_new(2), fail_and_go, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
}

// Finds nothing to resume, and makes its first save elsewhere.
static void start_abroad(tr_rank *r, void *arg) {
    death *d = (death *)arg;
    const trip *way = (const trip *)d->p.with;
    member *m = member_new(r, &d->p);
    ckpt_timestamp t = at_batch(1);
    m->d.overwrite = d->p.overwrite;
    if (member_open(m)) {
        TR_CHECK(r, ckpt_saver_resume(m->s, NULL) == CKPT_NOT_FOUND);
        all_go(r, way->other);
        TR_CHECK(r, ckpt_saver_save(m->s, &t) == CKPT_ARG);
        all_go(r, way->home);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_CHECK(r, ckpt_saver_close(m->s, 0) == CKPT_ARG);
        m->s = NULL;
    }
    member_end(m);
}

// A save that ended early has left tars, which the next run is to set aside: it does so at home, and not what has their names where the
// program is when it makes its first save.
static void test_chdir_before_the_first_save(void **state) {
    (void)state;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        death d = death_of(TARS, 1, 0);
        trip way = { util_temp_dir(), util_temp_dir(), NULL };
        d.p.with = &way;
        d.p.dir = "run";
        d.p.keep = 0;
        d.p.saves = 1;
        d.p.overwrite = overwrite == 1;
        const char *other = util_join(way.other, "run");
        util_mkdir(other);
        for (int i = 0; i < 3; i++) util_write_text(util_join(other, util_fmt("ba1-rank%d.pt.tar", i)), "another run's");
        assert_int_equal(chdir(way.home), 0);
        tr_run(tr_new(3), save_some, &d.p);
        leave_unfinished(&d, 1);
        tr_run(tr_new(3), start_abroad, &d);
        assert_string_equal(names_in(other), "ba1-rank0.pt.tar ba1-rank1.pt.tar ba1-rank2.pt.tar");
        const char *home = names_in("run");
        assert_true(strstr(home, "ba1-rank0.pt.tar.unfinished") != NULL && strstr(home, "ba1-rank2.pt.tar.unfinished") != NULL);
        assert_null(strstr(home, "ba1-rank1.pt.tar.unfinished"));
    }
}

// CKPT_KEEP_NONE: a folder stays until it is published, and no longer.
static void test_store_only(void **state) {
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        plan p = plan_of(SHARDED);
        p.keep = CKPT_KEEP_NONE;
        p.saves = 2;
        const char *here = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        tr_run(tr_new(3), store_some, &p);
        assert_string_equal(names_in(util_fmt("%s%s/run", here, p.dir)), "");
        assert_string_equal(names_in(util_join(p.dir, "run")), "ba1 ba2 latest-rank0.pt.symlink");
        p.saves = 0;
        p.number = 2;
        tr_run(tr_new(2), resume_store, &p);
    }
}

// One rank's object cannot be put: that checkpoint is not published, all hear of it, and the next one is.
static void test_store_fails(void **state) {
    (void)state;
    for (int over = 0; over < 2; over++) {
        plan p = plan_of(SHARDED);
        p.saves = 3;
        p.number = 2;
        p.overwrite = over == 1;
        const char *run = util_join(p.dir, "run"), *here = util_temp_dir();
        util_mkdir(run);
        util_mkdir(util_join(run, "ba2"));
        util_mkdir(util_join(run, "ba2/__1_0.pt"));
        assert_int_equal(chdir(here), 0);
        tr_run(tr_new(3), store_some, &p);
        assert_non_null(strstr(p.text[0], "rank 1: "));
        for (int i = 1; i < 3; i++) assert_string_equal(p.text[i], p.text[0]);
        assert_true(ckpt__txt_ends(slurp(util_join(run, "latest-rank0.pt.symlink")), "run/ba3"));
        assert_false(util_exists(util_join(run, "ba2/.metadata")));
        assert_false(util_exists(util_join(run, "ba2/__0_0.pt")));
        const char *waits = util_fmt("%s%s/.ckpt-staging", here, run);          // an object of it alone would be nobody's
        assert_null(strstr(util_exists(waits) ? util_list(waits) : "", ".data"));
        p.saves = 0;
        p.number = 3;
        assert_int_equal(rmdir(util_join(run, "ba2/__1_0.pt")), 0);
        tr_run(tr_new(2), resume_store, &p);            // two are to be there
        assert_int_equal(ckpt_verify(util_join(run, "ba2"), NULL), CKPT_OK);
        assert_true(ckpt__txt_ends(slurp(util_join(run, "latest-rank0.pt.symlink")), "run/ba3"));
    }
}

static int staged_in(const char *dir) {
    const char *folder = util_join(dir, ".ckpt-staging");
    int n = 0;
    for (const char *p = util_exists(folder) ? util_list(folder) : ""; *p != 0; p = strchr(p, '\n') + 1) {
        size_t len = strcspn(p, "\n");
        n += len > 5 && memcmp(p + len - 5, ".data", 5) == 0;
    }
    return n;
}

// Keeps p->keep in the store, of which it asks twice what it does not get.
static member *untold_new(tr_rank *r, const plan *p, ckpt_uploader **u) {
    bucket *b = (bucket *)p->with;
    member *m = member_new(r, p);
    member_stores(m, &b, u, 1);
    TR_OK(r, ckpt_uploader_close(u[0], 0));
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.num_attempts = 2;
    d.ranks = r->ranks;
    TR_OK(r, ckpt_uploader_open(&u[0], &d));
    m->d.remote_file_name = "run/ba{batch}.pt";
    m->d.latest_remote_file_name = "run/latest.pt";
    m->d.num_remote_to_keep = p->keep;
    return m;
}

// How often it was asked of the first two.
static int untold_asked(bucket *b) { return bucket_count(b, "size run/ba1/") + bucket_count(b, "size run/ba2/"); }

// Goes on, and makes saves of which one stays in the store, which does not tell at first of what is in it.
static void store_untold(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1];
    ckpt_timestamp t;
    member *m = untold_new(r, p, u);
    if (member_open(m)) {
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &t));
        for (int i = 1; i <= p->saves; i++) {
            if (p->number > 0 && i == 1) all_fail(r, b, "size run/ba1/|size run/ba2/", -1);
            TR_OK(r, member_step(m, p->number + i));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
            if (p->number == 0 || i > 1) continue;
            TR_OK(r, tr_barrier(r));
            if (r->rank == 0) TR_CHECK(r, untold_asked(b) == p->slow + 1);
            if (r->rank == 0) TR_CHECK(r, bucket_has(b, "run/ba1/.metadata") && bucket_has(b, "run/ba2/.metadata"));
            all_fail(r, b, NULL, 0);
        }
    }
    member_end_stores(m, u, 1, false);
}

// What the store does not tell of, because it is away, stays there until it does: else files of more ranks would for ever.
static void test_store_untold_fewer(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.keep = 3;
    p.saves = 3;
    tr_run(tr_new(4), store_untold, &p);
    p.dir = util_temp_dir();
    p.keep = 1;
    p.number = 3;
    p.saves = 3;
    p.slow = untold_asked(b);
    tr_run(tr_new(2), store_untold, &p);
    assert_string_equal(bucket_names(b), "run%ba6%.metadata run%ba6%__0_0.pt run%ba6%__1_0.pt run%latest.pt.symlink");
    bucket_end(b);
}

// Goes on while more wait for the store than it is to keep.
static void untold_behind(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1];
    ckpt_timestamp t;
    member *m = untold_new(r, p, u);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        all_fail(r, b, "size run/ba1/|size run/ba2/", -1);
        TR_OK(r, member_step(m, 4));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_OK(r, tr_barrier(r));
        int asked = untold_asked(b);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(b, true);
        for (int i = 5; i <= 9; i++) TR_OK(r, member_step(m, i));
        TR_CHECK(r, r->rank != 0 || ckpt__remote_is_behind(&m->s->remotes[0], &m->s->remote_rule));
        TR_CHECK(r, untold_asked(b) == asked);
        all_fail(r, b, NULL, 0);
        if (r->rank == 0) bucket_hold(b, false);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_OK(r, member_step(m, 10));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, u, 1, false);
}

// What nobody knows the files of is due in the store, which is away: no save asks it, and what is due goes when it is back.
static void test_store_untold_behind(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.keep = 3;
    p.saves = 3;
    tr_run(tr_new(4), store_untold, &p);
    p.dir = util_temp_dir();
    p.keep = 1;
    tr_run(tr_new(2), untold_behind, &p);
    assert_string_equal(bucket_names(b), "run%ba10%.metadata run%ba10%__0_0.pt run%ba10%__1_0.pt run%latest.pt.symlink");
    bucket_end(b);
}

// A store is away for some checkpoints, on all ranks or on one, and another one is not.
static void store_away(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket **b = (bucket **)p->with;
    ckpt_uploader *u[2];
    ckpt_saver_counts n;
    member *m = member_new(r, p);
    member_stores(m, b, u, 2);
    m->d.num_remote_to_keep = p->number;
    if (p->keep == CKPT_KEEP_NONE) m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        all_fail(r, b[0], p->text[0], -1);
        for (int i = 2; i <= p->saves; i++) {
            (void)!member_step(m, i);
            while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
            if (r->rank == 0 && p->number > 0) TR_CHECK(r, staged_in(p->dir) <= p->number * r->world->size);
            if (r->rank == 0) TR_CHECK(r, bucket_has(b[1], util_fmt("run/ba%d/.metadata", i)));
        }
        if (r->rank == 0 && (p->number <= 0 || p->text[0][0] == 0)) TR_CHECK(r, staged_in(p->dir) > 0);
        all_fail(r, b[0], NULL, 0);
        TR_OK(r, member_step(m, p->saves + 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        for (int i = 0; i < 2; i++) while (ckpt_uploader_wait(u[i], 0) != CKPT_OK) {}
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt_saver_stats(m->s, &n);
        if (p->number <= 0) TR_CHECK(r, n.failed == 0);
        if (r->rank == 0) TR_CHECK(r, staged_in(p->dir) == 0);
    }
    member_end_stores(m, u, 2, true);
}

// A store is away for a moment, and each rank's upload has failed: what one call tells of no other one tells of again.
static void fails_once_for_all(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    if (p->how == TARS) m->d.remote_file_name = "run/x-rank{rank}.pt";
    if (member_open(m)) {
        int failed = 0;
        ckpt_timestamp one = at_batch(1);
        TR_OK(r, ckpt_saver_save(m->s, &one));
        for (int i = 0; i < 60000 && ckpt__os_flag_get(&m->s->shared->failed) == 0; i++) usleep(1000);
        TR_OK(r, tr_barrier(r));
        for (int i = 2; i <= 30; i++) {
            ckpt_timestamp t = at_batch(i);
            m->s->steps = 1;            // the ranks speak
            failed += ckpt_saver_batch_end(m->s, &t) != CKPT_OK;
        }
        TR_CHECK(r, failed == 1);
        TR_CHECK(r, strstr(m->log, "the test says so") != NULL);        // each rank's log has its own
    }
    member_end_stores(m, &u, 1, true);
}

static void test_fails_once_for_all(void **state) {
    (void)state;
    for (int how = 1; how < 3; how++) {
        plan p = plan_of((layout)how);
        bucket *b = bucket_new(NULL);
        p.with = b;
        p.interval = "1000ba";
        bucket_fail(b, "put run/ba1/__|put run/x", CKPT_NET, 8);
        tr_run(tr_new(8), fails_once_for_all, &p);
        bucket_end(b);
    }
}

// A store's latest leads to ba2, which this job does not know: the answer was lost (p->number is 2), or the store cannot be asked
// (3). ba3 does not get through, and ba2 is given up for it: but what the link may lead to stays, all of it, until a newer one is there.
static void given_up_again(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    TR_OK(r, tr_barrier(r));
    if (r->rank == 0) b->loses = p->number == 2;
    if (r->rank == 0 && p->number == 3) bucket_fail(b, "size run/latest|size run/ba2/.metadata|put run/ba2/__0_0.pt", CKPT_NET, -1);
    TR_OK(r, tr_barrier(r));
    member_stores(m, &b, &u, 1);
    m->d.num_remote_to_keep = 1;
    m->d.resume_offline = true;
    if (member_open(m)) {
        for (int k = 0; r->rank == 0 && p->number == 2 && k < 60000 && bucket_count(b, "put run/latest") == 0; k++) usleep(1000);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0 && p->number == 2) bucket_fail(b, "put run/ba2/__0_0.pt|put run/ba3/__0_", CKPT_NET, -1);
        if (r->rank == 0) b->loses = false;
        TR_OK(r, tr_barrier(r));
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_fail(b, "put run/ba2/__0_0.pt|put run/ba3/__0_", CKPT_NET, -1);
        TR_OK(r, tr_barrier(r));
        (void)!member_step(m, 3);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) TR_CHECK(r, strcmp(bucket_text(b, "run/latest.pt.symlink"), "run/ba2") == 0 && bucket_has(b, "run/ba2/.metadata"));
        TR_CHECK(r, bucket_has(b, "run/ba2/__0_0.pt") && bucket_has(b, "run/ba2/__1_0.pt") && bucket_has(b, "run/ba2/__2_0.pt"));
        all_fail(r, b, NULL, 0);
        for (int i = 4; i <= 6; i++) {          // the uploader tries again what has failed when another got through
            (void)!member_step(m, i);
            while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
            while (ckpt_uploader_wait(u, 0) != CKPT_OK) {}
        }
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
    }
    member_end_stores(m, &u, 1, true);
}

static void link_fails(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        all_fail(r, b, "put run/latest", -1);
        TR_OK(r, member_step(m, 2));
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_NET);
    }
    member_end_stores(m, &u, 1, true);
}

// One rank hands over the files of three, and one of them does not get through: no listing tells of the others.
static void hand_over_three(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
    }
    member_end_stores(m, &u, 1, p->number == 1);
}

static void test_hand_over_three(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) {
        plan p = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        p.with = b;
        tr_run(tr_new(3), link_fails, &p);
        for (int i = 0; i < 4; i++) unlink(bucket_path(b, i == 3 ? "run/ba2/.metadata" : util_fmt("run/ba2/__%d_0.pt", i)));
        util_remove_tree(util_join(p.dir, ".ckpt-staging"));
        bucket_fail(b, util_fmt("put run/ba2/__%d_0.pt", which), CKPT_NET, -1);
        p.number = 1;
        tr_run(tr_new(1), hand_over_three, &p);
        assert_false(bucket_has(b, "run/ba2/.metadata"));
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1");
        bucket_fail(b, NULL, CKPT_OK, 0);
        p.number = 2;
        tr_run(tr_new(1), hand_over_three, &p);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba2");
        for (int i = 0; i < 3; i++) assert_true(bucket_has(b, util_fmt("run/ba2/__%d_0.pt", i)));
        bucket_end(b);
    }
}

// Two stores on machines apart, one of which refuses a rank's file: what all have leaves every folder, what one lacks none; and the
// next job, whose stores are well, ends that.
static void store_refuses(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket **b = (bucket **)p->with;
    ckpt_uploader *u[2];
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, b, u, 2);
    m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    m->d.ranks.node_rank = r->rank;
    m->d.ranks.local_rank = 0;
    m->d.ranks.local_world_size = 1;
    if (member_open(m)) {
        if (p->number == 0) TR_OK(r, member_step(m, 1));
        else TR_OK(r, ckpt_saver_resume(m->s, &t));
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        if (p->number == 1) TR_OK(r, member_step(m, 2));        // now the machines tell each other what they keep
        if (p->number == 1) TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, u, 2, p->number == 0);
}

static void test_store_refuses(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b[2];
    p.apart = true;
    p.with = b;
    for (int i = 0; i < 2; i++) b[i] = bucket_new(NULL);
    bucket_fail(b[0], "put run/ba1/__1_0.pt", CKPT_EXISTS, -1);
    tr_run(tr_new(2), store_refuses, &p);
    for (int i = 0; i < 2; i++) assert_true(is_whole(util_join(p.dir, util_fmt("rank%d", i)), "ba1"));
    bucket_fail(b[0], NULL, CKPT_OK, 0);
    p.number = 1;
    tr_run(tr_new(2), store_refuses, &p);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(bucket_text(b[i], "run/latest.pt.symlink"), "run/ba2");
        assert_true(bucket_has(b[i], "run/ba1/.metadata") && bucket_has(b[i], "run/ba1/__1_0.pt"));
        assert_string_equal(names_in(util_join(p.dir, util_fmt("rank%d", i))), "");
        bucket_end(b[i]);
    }
}

static void test_given_up_again(void **state) {
    (void)state;
    for (int how = 2; how < 4; how++) {
        plan p = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        p.with = b;
        tr_run(tr_new(3), link_fails, &p);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1");
        bucket_fail(b, NULL, CKPT_OK, 0);
        b->log[0] = 0;
        if (how == 3) util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba2");
        if (how == 3) util_remove_tree(util_join(p.dir, ".ckpt-staging"));
        p.number = how;
        tr_run(tr_new(3), given_up_again, &p);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba6");
        const char *names = bucket_names(b);
        int edition = strstr(names, "__0_") != NULL ? atoi(strstr(names, "__0_") + 4) : -1;     // of what is not known to be there: from the clock
        assert_true((edition > CKPT__INDEX_MADE_UP) == (how == 3));
        assert_string_equal(names, util_fmt("run%%ba6%%.metadata run%%ba6%%__0_%d.pt run%%ba6%%__1_%d.pt run%%ba6%%__2_%d.pt run%%latest.pt.symlink",
                                            edition, edition, edition));
        bucket_end(b);
    }
}

// Neither what was removed nor the link gets through. Waiting ends all the same, and does not ask again and again.
static void wait_for_nothing(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        for (int i = 1; i <= 4; i++) {
            TR_OK(r, tr_barrier(r));
            if (r->rank == 0 && i > 1) bucket_fail(b, i == 4 ? "remove|put run/latest" : "remove", CKPT_NET, -1);
            TR_OK(r, tr_barrier(r));
            (void)!member_step(m, i);
            ckpt_err e = ckpt_saver_wait(m->s, 30);
            TR_CHECK(r, i == 1 ? e == CKPT_OK : e == CKPT_NET);
        }
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) TR_CHECK(r, bucket_count(b, "remove run/ba1/.metadata") < 8);
    }
    member_end_stores(m, &u, 1, true);
}

static void test_wait_for_nothing(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    tr_run(tr_new(2), wait_for_nothing, &p);
    bucket_fail(b, NULL, CKPT_OK, 0);
    bucket_end(b);
}

static void test_store_away(void **state) {
    (void)state;
    for (int k = 0; k < 12; k++) {
        plan p = plan_of(SHARDED);
        bucket *b[2];
        for (int i = 0; i < 2; i++) b[i] = bucket_new(NULL);
        bool one = (k & 1) != 0, all = (k & 2) != 0;
        p.with = b;
        p.snapshot = modes[k / 4];
        p.keep = k % 3 == 0 ? CKPT_KEEP_NONE : 1;
        p.number = all ? CKPT_KEEP_ALL : 2;
        p.saves = all && one ? 24 : 5;
        // ba2 ... alone, and all
        (void)snprintf(p.text[0], sizeof p.text[0], "%s", one ? "put run/ba2/__1_0.pt" : "");
        tr_run(tr_new(3), store_away, &p);
        for (int i = 0; i < 2; i++) {
            assert_string_equal(bucket_text(b[i], "run/latest.pt.symlink"), util_fmt("run/ba%d", p.saves + 1));
            for (int j = 1; j <= p.saves + 1; j++) {
                const char *name = util_fmt("run/ba%d/.metadata", j);
                assert_int_equal(bucket_has(b[i], name), all || j >= p.saves);
                for (int q = 0; q < 3; q++)
                    assert_int_equal(bucket_has(b[i], util_fmt("run/ba%d/__%d_0.pt", j, q)), bucket_has(b[i], name));
            }
        }
        assert_string_equal(names_in(p.dir), p.keep == CKPT_KEEP_NONE ? "" : util_fmt("ba%d latest-rank0.pt", p.saves + 1));
        for (int i = 0; i < 2; i++) bucket_end(b[i]);
    }
}

// While one rank waits for the store another one's object there is taken away: what is not whole is not published.
static void store_robbed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1];
    member *m = member_new(r, p);
    member_stores(m, &b, u, 1);
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        all_fail(r, b, "put run/ba2/__1_0.pt", -1);
        (void)!member_step(m, 2);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        if (r->rank == 0) TR_CHECK(r, unlink(bucket_path(b, "run/ba2/__0_0.pt")) == 0);
        all_fail(r, b, NULL, 0);
        TR_OK(r, member_step(m, 3));
        while (ckpt_uploader_wait(u[0], 0) != CKPT_OK) {}
        bool said = false;
        for (ckpt_err e = CKPT_NET; e != CKPT_OK; said = said || e == CKPT_NOT_FOUND) e = ckpt_saver_wait(m->s, 0);
        TR_CHECK(r, said);
    }
    member_end_stores(m, u, 1, true);
}

static void test_store_robbed(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    tr_run(tr_new(3), store_robbed, &p);
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba3");
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(bucket_has(b, util_fmt("run/ba%d/.metadata", i)), i != 2);
        for (int q = 0; q < 3; q++) assert_int_equal(bucket_has(b, util_fmt("run/ba%d/__%d_0.pt", i, q)), i != 2);
    }
    bucket_end(b);
}

// A loop that speaks once for each save: no store falls behind, also when another one is away.
static void speak_once(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket **b = (bucket **)p->with;
    ckpt_uploader *u[2];
    member *m = member_new(r, p);
    member_stores(m, b, u, 2);
    m->d.save_interval = "1ep";
    if (member_open(m)) {
        for (int i = 1; i <= 20; i++) {
            ckpt_timestamp t = at_batch(i);
            t.epoch = i;
            member_set(m, i);
            ckpt_err e = ckpt_saver_epoch_end(m->s, &t);
            TR_CHECK(r, e == CKPT_OK || p->number == 1);
            for (int k = 0; k < 2; k++) while (ckpt_uploader_wait(u[k], 0) != CKPT_OK) {}
            TR_OK(r, tr_barrier(r));
            for (int k = p->number; k < 2 && i > 1 && r->rank == 0; k++)
                TR_CHECK(r, strcmp(bucket_text(b[k], "run/latest.pt.symlink"), util_fmt("run/ba%d", i - 1)) == 0);
            TR_OK(r, tr_barrier(r));
        }
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
    }
    member_end_stores(m, u, 2, p->number == 1);
}

static void test_store_speaks_once(void **state) {
    (void)state;
    for (int away = 0; away < 2; away++) {
        plan p = plan_of(SHARDED);
        bucket *b[2];
        for (int i = 0; i < 2; i++) b[i] = bucket_new(NULL);
        p.with = b;
        p.number = away;
        if (away == 1) bucket_fail(b[0], "put", CKPT_NET, -1);
        tr_run(tr_new(2), speak_once, &p);
        assert_string_equal(bucket_text(b[1], "run/latest.pt.symlink"), "run/ba20");
        for (int i = 0; i < 2; i++) bucket_end(b[i]);
    }
}

// Rank 0 cannot write down that a checkpoint is given up for a newer one: all hear of it, in the same call.
static const char *outdone_lock;

static ckpt_err outdone_min(int64_t *values, int count, void *user) {
    ckpt_err e = tr_min(values, count, user);
    if (((tr_rank *)user)->rank != 0) return e;
    bool outdone = count > CKPT__CREW_STALLED && values[CKPT__CREW_STALLED] == (int64_t)CKPT__PART_OUTDONE;
    if (outdone) (void)unlink(outdone_lock);
    if (outdone) (void)mkdir(outdone_lock, 0777);
    else (void)rmdir(outdone_lock);
    return e;
}

static void outdone_unwritten(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1];
    member *m = member_new(r, p);
    member_stores(m, &b, u, 1);
    m->d.ranks.allreduce_min = outdone_min;
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        all_fail(r, b, "put run/ba2/__1_0.pt", -1);
        (void)!member_step(m, 2);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        TR_OK(r, member_step(m, 3));
        ckpt_err e = ckpt_saver_wait(m->s, 0);
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d %s", (int)e, e != CKPT_OK ? ckpt_last_error() : "");
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
    }
    member_end_stores(m, u, 1, true);
}

static void test_outdone_unwritten(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    outdone_lock = util_join(p.dir, ".ckpt-index.lock");
    tr_run(tr_new(2), outdone_unwritten, &p);
    assert_non_null(strstr(p.text[0], ".ckpt-index.lock"));
    assert_non_null(strstr(p.text[1], p.text[0] + 2));
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba3");
    bucket_end(b);
}

// The disk of rank 0 is full just when all parts are there and the listing is to be staged. That is tried again; or what was to be
// told of is removed when the next one has taken its place.
static void listing_unstaged(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    member *m = member_new(r, p);
    member_stores(m, &upload_to, &u, 1);
    m->d.num_remote_to_keep = 1;
    m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m)) {
        double begin = ckpt__os_now();
        TR_OK(r, member_step(m, 1));
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_NO_SPACE);
        TR_CHECK(r, !bucket_has(upload_to, "run/ba1/.metadata") || ckpt__os_now() - begin > 1.0);      // when it is tried again
        ckpt__os_sleep(1.1);
        if (p->number == 2) TR_OK(r, member_step(m, 2));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, true);
}

static void test_listing_unstaged(void **state) {
    (void)state;
    for (int last = 1; last <= 2; last++) {
        plan p = plan_of(SHARDED);
        p.number = last;
        upload_to = bucket_new(NULL);
        listings_fail = 1;
        fault_set_spy(listing_full);
        tr_run(tr_new(2), listing_unstaged, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_string_equal(bucket_names(upload_to), util_fmt("run%%ba%d%%.metadata run%%ba%d%%__0_0.pt run%%ba%d%%__1_0.pt "
                                                              "run%%latest.pt.symlink", last, last, last));
        assert_string_equal(bucket_text(upload_to, "run/latest.pt.symlink"), util_fmt("run/ba%d", last));
        assert_null(strstr(names_in(p.dir), "ba"));
        bucket_end(upload_to);
    }
}

// The same just before the end: close tries it once more at once. If that fails as well, what the ranks have in the store stays, and
// the resume that goes on from it publishes it.
static void listing_unstaged_at_end(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &upload_to, &u, 1);
    m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m)) {
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &t));
        else TR_OK(r, member_step(m, 1));
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == (p->number > 0 ? CKPT_OK : CKPT_NO_SPACE));
        TR_CHECK(r, (ckpt_saver_close(m->s, 0) != CKPT_OK) == (p->number == 0));
        TR_CHECK(r, strstr(m->log, "not all ranks could upload") == NULL);
        TR_CHECK(r, (strstr(m->log, "its listing could not be handed over") != NULL) == (p->keep == 1 && p->number == 0));
        m->s = NULL;
    }
    member_end_stores(m, &u, 1, false);
}

static void test_listing_unstaged_at_end(void **state) {
    (void)state;
    for (int always = 0; always < 2; always++) {
        plan p = plan_of(SHARDED);
        p.keep = always;
        upload_to = bucket_new(NULL);
        listings_fail = always ? 1000000 : 1;
        fault_set_spy(listing_full);
        tr_run(tr_new(2), listing_unstaged_at_end, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        if (always) {
            assert_string_equal(bucket_names(upload_to), "run%ba1%__0_0.pt run%ba1%__1_0.pt");
            p.number = 1;
            tr_run(tr_new(2), listing_unstaged_at_end, &p);
        }
        assert_string_equal(bucket_names(upload_to), "run%ba1%.metadata run%ba1%__0_0.pt run%ba1%__1_0.pt run%latest.pt.symlink");
        assert_null(strstr(names_in(p.dir), "ba"));
        bucket_end(upload_to);
    }
}

// A store that is away to the end: nothing of what is not published stays staged, nor in the store when it can be reached.
static void store_gone(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1];
    member *m = member_new(r, p);
    member_stores(m, &b, u, 1);
    m->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    if (member_open(m)) {
        ckpt_timestamp t;
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &t));
        for (int i = 1; i <= p->saves; i++) {
            (void)!member_step(m, i);
            while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        }
    }
    member_end_stores(m, u, 1, p->number == 0);
}

static void test_store_gone(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.saves = 2;
    bucket_fail(b, "put run/ba2/__1_0.pt", CKPT_NET, -1);
    tr_run(tr_new(3), store_gone, &p);
    assert_string_equal(bucket_names(b), "run%ba1%.metadata run%ba1%__0_0.pt run%ba1%__1_0.pt run%ba1%__2_0.pt run%latest.pt.symlink");
    assert_int_equal(staged_in(p.dir), 0);
    bucket_fail(b, NULL, CKPT_OK, 0);
    p.saves = 0;
    p.number = 2;
    tr_run(tr_new(2), store_gone, &p);
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba2");
    for (int i = 0; i < 3; i++) assert_true(bucket_has(b, util_fmt("run/ba2/__%d_0.pt", i)));
    bucket_end(b);
}

// Saved again under its name while the first one still waits for the store: the first one never comes.
static void store_away_again(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1];
    member *m = member_new(r, p);
    ckpt_timestamp t = at_batch(1);
    member_stores(m, &b, u, 1);
    m->d.overwrite = true;
    if (member_open(m)) {
        member_set(m, 11);
        (void)!ckpt_saver_save(m->s, &t);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        member_set(m, 12);
        TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        all_fail(r, b, NULL, 0);
        while (ckpt_uploader_wait(u[0], 0) != CKPT_OK) {}
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, u, 1, true);
}

static void test_store_away_again(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    bucket_fail(b, "put run/ba1/__1_0.pt", CKPT_NET, -1);
    tr_run(tr_new(3), store_away_again, &p);
    assert_string_equal(bucket_names(b), "run%ba1%.metadata run%ba1%__0_1.pt run%ba1%__1_1.pt run%ba1%__2_1.pt run%latest.pt.symlink");
    assert_int_equal(staged_in(p.dir), 0);
    bucket_end(b);
}

// Without `overwrite` a run meets another one's checkpoint of the same name in the store: that one stays as it is.
static void test_store_others(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.saves = 2;
    assert_int_equal(chdir(util_temp_dir()), 0);
    tr_run(tr_new(3), store_some, &p);
    const char *run = util_join(p.dir, "run"), *ba1 = util_join(run, "ba1");
    assert_string_equal(names_in(ba1), ".metadata __0_0.pt __1_0.pt __2_0.pt");
    assert_int_equal(unlink(util_join(run, "latest-rank0.pt.symlink")), 0);
    p.saves = 1;
    p.number = 1;
    assert_int_equal(chdir(util_temp_dir()), 0);
    tr_run(tr_new(3), store_some, &p);
    assert_string_equal(names_in(ba1), ".metadata __0_0.pt __1_0.pt __2_0.pt");
    assert_int_equal(ckpt_verify(ba1, NULL), CKPT_OK);
}

// Tars in a store, where the uploads of one rank fail for a while: what all have is not rotated away before all have a newer one.
static void store_tars(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    m->d.num_remote_to_keep = p->keep;
    m->d.num_checkpoints_to_keep = 1;
    m->d.num_attempts = 1;
    if (member_open(m)) {
        for (int i = 1; i <= p->saves; i++) {
            char way[400];
            (void)snprintf(way, sizeof way, "%s/run/ba%d-rank%d.pt.tar", p->dir, i, r->rank);
            bool fails = r->rank == 1 && i > 1 && i <= p->number;
            if (fails) TR_CHECK(r, mkdir(way, 0777) == 0);
            ckpt_err e = member_step(m, i);
            if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
            TR_CHECK(r, (e != CKPT_OK) == (i > 1 && i <= p->number));
            if (fails) TR_CHECK(r, rmdir(way) == 0);
        }
        TR_CHECK(r, (ckpt_saver_close(m->s, 0) != CKPT_OK) == (p->number > 1));
        m->s = NULL;
    }
    member_end(m);
}

static void test_store_tars(void **state) {
    (void)state;
    for (int keep = 1; keep < 3; keep++) {
        plan p = plan_of(TARS);
        tr_world *w = tr_new(2);
        const char *run = util_join(p.dir, "run"), *links = "latest-rank0.pt.tar.symlink latest-rank1.pt.tar.symlink";
        p.keep = keep;
        p.saves = p.number = 4;         // and those of rank 1 never get there
        assert_int_equal(chdir(util_temp_dir()), 0);
        tr_run(w, store_tars, &p);
        assert_true(util_exists(util_join(run, "ba1-rank0.pt.tar")) && util_exists(util_join(run, "ba1-rank1.pt.tar")));
        // and what is published is the same of both
        for (int i = 0; i < 2; i++)
            assert_true(ckpt__txt_ends(slurp(util_join(run, util_fmt("latest-rank%d.pt.tar.symlink", i))), util_fmt("run/ba1-rank%d.pt.tar", i)));
        p.number = 1;
        p.saves = 0;
        assert_int_equal(chdir(util_temp_dir()), 0);
        tr_run(w, resume_store, &p);
        plan q = plan_of(TARS);
        run = util_join(q.dir, "run");
        q.keep = keep;
        q.saves = 5;
        q.number = 3;                   // and then they do
        assert_int_equal(chdir(util_temp_dir()), 0);
        tr_run(w, store_tars, &q);
        for (int i = 0; i < 2; i++)
            assert_true(ckpt__txt_ends(slurp(util_join(run, util_fmt("latest-rank%d.pt.tar.symlink", i))), util_fmt("run/ba5-rank%d.pt.tar", i)));
        if (keep == 1) assert_string_equal(names_in(run), util_fmt("ba5-rank0.pt.tar ba5-rank1.pt.tar %s", links));
        else assert_string_equal(names_in(run), util_fmt("ba4-rank0.pt.tar ba4-rank1.pt.tar ba5-rank0.pt.tar ba5-rank1.pt.tar %s", links));
    }
}

// One rank's tarball of the newest save is in the store alone, which fails: with resume_offline all go on from the save that all have.
static void tars_offline(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1] = { NULL };
    member *m = member_new(r, p);
    ckpt_timestamp t;
    member_stores(m, &b, u, 1);
    m->d.remote_file_name = "run/ba{batch}-rank{rank}.pt";
    m->d.latest_remote_file_name = "run/latest-rank{rank}.pt";
    m->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    m->d.resume_offline = p->number == 1;
    if (member_open(m)) {
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        all_fail(r, b, "get", p->saves > 0 ? 0 : -1);
        ckpt_err e = p->saves > 0 ? CKPT_OK : ckpt_saver_resume(m->s, &t);
        all_fail(r, b, "get", 0);
        TR_CHECK(r, e == (p->saves > 0 || p->number == 1 ? CKPT_OK : CKPT_NET));
        if (p->saves == 0 && e == CKPT_OK) TR_CHECK(r, t.batch == 1);
        if (p->saves == 0 && e == CKPT_OK) member_check(m, 1);
    }
    member_end_stores(m, u, 1, false);
}

static void test_tars_offline(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.saves = 2;
    tr_run(tr_new(2), tars_offline, &p);
    assert_int_equal(unlink(util_join(p.dir, "ba2-rank1.pt.tar")), 0);
    p.saves = 0;
    for (p.number = 0; p.number < 2; p.number++) tr_run(tr_new(2), tars_offline, &p);
    bucket_end(b);
}

// TARS: a name in the store without {rank} is one object for all, unless the uploader tells the ranks apart, or each has a store of its own.
static void one_object(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = ((bucket **)p->with)[r->rank];
    ckpt_uploader *u[1] = { NULL };
    ckpt_uploader_desc d;
    member *m = member_new(r, p);
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.ranks = r->ranks;
    d.file_path_format_string = p->filename;
    TR_OK(r, ckpt_uploader_open(&u[0], &d));
    m->d.filename = NULL;
    m->d.uploaders = u;
    m->d.uploaders_count = 1;
    m->d.remote_file_name = "run/ba{batch}.pt";
    m->d.latest_remote_file_name = CKPT_NONE;
    TR_CHECK(r, ckpt_saver_open(&m->s, &m->d) == p->want);
    if (p->want != CKPT_OK) TR_CHECK(r, strstr(ckpt_last_error(), "holds no {rank}") != NULL && strstr(ckpt_last_error(), "need names") != NULL);
    member_end_stores(m, u, 1, false);
}

static void test_one_object(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    bucket *b = bucket_new(NULL), *both[2] = { b, b };
    p.with = both;
    p.want = CKPT_ARG;
    tr_run(tr_new(2), one_object, &p);
    p.want = CKPT_OK;
    p.filename = "of{rank}/{remote_file_name}";
    tr_run(tr_new(2), one_object, &p);
    p = plan_of(TARS);
    p.with = both;
    for (int i = 0; i < 2; i++) both[i] = bucket_new_as(NULL, i == 0 ? "near" : "far");
    tr_run(tr_new(2), one_object, &p);
    for (int i = 0; i < 2; i++) bucket_end(both[i]);
    bucket_end(b);
}

// Tarballs of several saves in an epoch under one name, in a store as well: saves one and dies when all ranks have theirs, or goes on from p->number.
static void tars_replaced(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1] = { NULL };
    member *m = member_new(r, p);
    ckpt_timestamp t;
    member_stores(m, &b, u, 1);
    m->d.remote_file_name = "run/ep{epoch}-rank{rank}.pt";
    m->d.latest_remote_file_name = "run/latest-rank{rank}.pt";
    if (p->number > 0) m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m) && p->number > 0) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_OK(r, e);
        TR_CHECK(r, e != CKPT_OK || t.batch == p->number);
        if (e == CKPT_OK) member_check(m, p->number);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    } else if (m->s != NULL) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_fence(m->s));
        if (p->keep == 1) TR_OK(r, ckpt_saver_wait(m->s, 0));
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) (void)raise(SIGKILL);
        TR_OK(r, tr_barrier(r));
    }
    member_end_stores(m, u, 1, false);
}

// The job was killed when all ranks had their tarballs under the names of those before, and nothing said so yet. The uploads of those
// before, which go on, say nothing of the ones that are there now, on no rank.
static void test_tars_replaced(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {               // had the ones before got there?
        plan p = plan_of(TARS), other = plan_of(TARS);
        p.filename = other.filename = "ep{epoch}-rank{rank}.pt";
        p.keep = k;
        other.saves = 2;
        bucket *b = bucket_new(NULL);
        pid_t child = fork();
        if (child == 0) {
            p.with = bucket_new(b->dir);
            bucket_hold((bucket *)p.with, k == 0);
            tr_run(tr_new(2), tars_replaced, &p);
            _exit(1);
        }
        was_killed(child);
        tr_run(tr_new(2), save_some, &other);
        for (int i = 0; i < 2; i++) {
            const char *name = util_fmt("ep0-rank%d.pt.tar", i);
            assert_int_equal(bucket_copy(util_join(other.dir, name), util_join(p.dir, name)), CKPT_OK);
        }
        p.with = b;
        p.number = 2;
        tr_run(tr_new(2), tars_replaced, &p);
        for (int i = 0; i < 2; i++) {
            size_t got = 0, want = 0;
            const char *name = util_fmt("ep0-rank%d.pt.tar", i);
            char *there = util_read(bucket_path(b, util_fmt("run/%s", name)), &got), *saved = util_read(util_join(other.dir, name), &want);
            assert_int_equal(got, want);
            assert_memory_equal(there, saved, want);
        }
        assert_string_equal(names_in(p.dir), "");
        bucket_end(b);
    }
}

static int listings_put;

// The second listing has its name: the process ends before its index says so.
static void die_unnoted(const char *name, const char *path) {
    bool listing = strcmp(name, "rename") == 0 && strstr(path, "/job-0/") != NULL && ckpt__txt_ends(path, "/ep0/.metadata");
    int puts = __atomic_add_fetch(&listings_put, listing, __ATOMIC_SEQ_CST);
    if (puts >= 2 && strcmp(name, "rename") == 0 && ckpt__txt_ends(path, ".ckpt-index.jsonl")) (void)raise(SIGKILL);
}

// Folders of several saves in an epoch under one name, in a store as well: makes two, in which it dies, or goes on from p->number.
static void folders_replaced(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1] = { NULL };
    member *m = member_new(r, p);
    ckpt_timestamp t;
    (void)snprintf(m->folder, sizeof m->folder, "%s/job-%d", p->dir, p->apart ? r->rank : 0);
    member_stores(m, &b, u, 1);
    m->d.num_remote_to_keep = 1;
    if (p->number > 0) m->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    if (member_open(m) && p->number > 0) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_OK(r, e);
        TR_CHECK(r, e != CKPT_OK || t.batch == p->number);
        if (e == CKPT_OK) member_check(m, p->number);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        t.epoch++;
        if (p->saves > 0) TR_OK(r, ckpt_saver_save(m->s, &t));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    } else if (m->s != NULL) {
        TR_OK(r, member_step(m, 1));
        TR_OK(r, ckpt_saver_fence(m->s));
        if (p->keep == 1) TR_OK(r, ckpt_saver_wait(m->s, 0));
        (void)!member_step(m, 2);
    }
    member_end_stores(m, u, 1, false);
}

// The job was killed when the folder's listing told of the new files, and its index of those before. What became of those says nothing
// of the new ones: they are in no store, and stay here until they are.
static void test_folders_replaced(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {               // had the ones before got there? has each rank a folder of its own?
        plan p = plan_of(SHARDED);
        p.prefix = "ep{epoch}";
        p.keep = k % 2;
        p.apart = k >= 2;
        bucket *b = bucket_new(NULL);
        pid_t child = fork();
        if (child == 0) {
            p.with = bucket_new(b->dir);
            bucket_hold((bucket *)p.with, k % 2 == 0);
            fault_set_spy(die_unnoted);
            tr_run(tr_new(2), folders_replaced, &p);
            _exit(1);
        }
        was_killed(child);
        size_t want = 0, got = 0;
        char *saved = util_read(util_join(p.dir, "job-0/ep0/.metadata"), &want);
        p.with = b;
        p.number = 2;
        tr_run(tr_new(2), folders_replaced, &p);
        char *there = util_read(bucket_path(b, "run/ep0/.metadata"), &got);
        assert_int_equal(got, want);
        assert_memory_equal(there, saved, want);
        if (!p.apart) assert_string_equal(names_in(util_join(p.dir, "job-0")), "");        // else the next save asks what others keep
        assert_true(util_exists(bucket_path(b, "run/ep0/__0_1.pt")) && util_exists(bucket_path(b, "run/ep0/__1_1.pt")));
        const char *ours = p.dir;
        p.dir = util_temp_dir();                // a machine that has nothing
        tr_run(tr_new(2), folders_replaced, &p);
        p.dir = ours;                           // and that which goes on takes away what is behind it, whatever it was called
        p.saves = 1;
        tr_run(tr_new(2), folders_replaced, &p);
        assert_string_equal(bucket_names(b), "run%ep1%.metadata run%ep1%__0_0.pt run%ep1%__1_0.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// A job with a tarball for each rank: goes on from p->number, unless that is 0, and makes p->saves more. Whatever fails, waiting ends.
static void tars_life(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1] = { NULL };
    ckpt_timestamp t;
    member *m = member_new(r, p);
    all_fail(r, b, p->fails, p->fails != NULL ? -1 : 0);
    member_stores(m, &b, u, 1);
    m->d.remote_file_name = "run/ba{batch}-rank{rank}.pt";
    m->d.latest_remote_file_name = "run/latest-rank{rank}.pt";
    m->d.num_checkpoints_to_keep = p->empties ? CKPT_KEEP_NONE : CKPT_KEEP_ALL;
    m->d.num_remote_to_keep = p->keep;
    if (member_open(m)) {
        if (p->number > 0) {
            TR_OK(r, ckpt_saver_resume(m->s, &t));
            TR_CHECK(r, t.batch == p->number);
            member_check(m, p->number);
            TR_CHECK(r, ckpt_saver_wait(m->s, 100) != CKPT_TIMEOUT);
        }
        for (int i = 1; i <= p->saves; i++) {
            (void)!member_step(m, p->number + i);
            TR_CHECK(r, ckpt_saver_wait(m->s, 100) != CKPT_TIMEOUT);
            if (p->then_fails != NULL) all_fail(r, b, p->then_fails, -1);
        }
        TR_CHECK(r, ckpt_saver_wait(m->s, 100) != CKPT_TIMEOUT);
    }
    (void)!ckpt_saver_close(m->s, 0);
    (void)!ckpt_uploader_close(u[0], 0);
    member_free(m);
}

static plan tars_plan(bucket *b, int keep, int saves) {
    plan p = plan_of(TARS);
    p.with = b;
    p.keep = keep;
    p.saves = saves;
    return p;
}

static void tars_go_on(plan *p, int number, int saves) {
    p->number = number;
    p->saves = saves;
    tr_run(tr_new(2), tars_life, p);
}

static char stale_tar[4096];

static void tar_is_stale(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strcmp(path, stale_tar) == 0) fault_arm_here("open", ESTALE);
}

// One rank's tarball is damaged, or no machine has one any more, or one's server is away: the newest save is gone on from all the same,
// what was fetched is kept by every rank, and needs no store the next time.
static void test_tars_fetched(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        plan p = tars_plan(b, 0, 2);
        p.apart = k == 1;
        tr_run(tr_new(2), tars_life, &p);
        (void)snprintf(stale_tar, sizeof stale_tar, "%s/ba2-rank1.pt.tar", p.dir);
        if (k == 0) util_flip(stale_tar, 3000, 1);
        else if (k == 2) fault_set_spy(tar_is_stale);
        else for (int i = 0; i < 2; i++) util_remove_tree(util_join(p.dir, util_fmt("rank%d", i)));
        tars_go_on(&p, 2, 0);
        fault_set_spy(NULL);
        if (k == 2) assert_true(fault_disarm());
        p.fails = "get run/ba";
        tars_go_on(&p, 2, 0);
        bucket_fail(b, NULL, CKPT_OK, 0);
        bucket_end(b);
    }
}

static int best_batch = 1;

// A loss of each rank's own, which is rank 0's where it is asked which save is the best: saves up to p->saves.
static void tars_best(tr_rank *r, void *arg) {
    static const double loss[2][9] = { { 0, 1, 5, 6, 7, 8, 9, 10, 11 }, { 0, 9, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5 } };
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t = at_batch(0);
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    m->d.remote_file_name = "run/ba{batch}-rank{rank}.pt";
    m->d.latest_remote_file_name = CKPT_NONE;
    m->d.num_checkpoints_to_keep = m->d.num_remote_to_keep = p->keep;
    if (member_open(m)) {
        if (p->number > 0) TR_OK(r, ckpt_saver_resume(m->s, &t));
        for (int i = (int)t.batch + 1; i <= p->saves; i++) {
            ckpt_timestamp at = at_batch(i);
            TR_OK(r, ckpt_saver_fence(m->s));
            m->loss = loss[r->rank][i < 3 && best_batch == 2 ? 3 - i : i];
            TR_OK(r, ckpt_saver_batch_end(m->s, &at));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
        }
    }
    member_end_stores(m, &u, 1, false);
}

static const char *unread = "/ba1-rank0", *unread_too;

static void best_is_unread(const char *name, const char *path) {
    bool too = unread_too != NULL && strstr(path, unread_too) != NULL;
    if (strcmp(name, "open") == 0 && (strstr(path, unread) != NULL || too)) fault_arm_here("open", ECOMM);
}

// All ranks keep the same best one, here and in the store, also where one has fetched its tarball, or found it without its index, or the
// rule is new, so that each has asked its own for the metric; and where rank 0 cannot ask its own, until it can.
static void test_tars_best(void **state) {
    (void)state;
    enum { KNOWN, FETCHED, NO_INDEX, NEW_RULE, UNREAD, CASES };
    for (int k = 0; k < CASES; k++) {
        bucket *b = bucket_new(NULL);
        const int last = k == UNREAD ? 4 : 3;
        plan p = tars_plan(b, k == UNREAD ? CKPT_KEEP_ALL : 1, k == UNREAD ? 2 : 1);
        p.apart = true;
        p.best = k == NEW_RULE || k == UNREAD ? NULL : "min:state/metrics/loss";
        tr_run(tr_new(2), tars_best, &p);
        for (int i = 0; i < 2 && k == FETCHED; i++) util_remove_tree(util_join(p.dir, util_fmt("rank%d", i)));
        if (k == NO_INDEX) assert_int_equal(unlink(util_join(p.dir, "rank1/.ckpt-index-rank1.jsonl")), 0);
        p.best = "min:state/metrics/loss";
        p.number = p.keep = 1;
        for (p.saves = 3; p.saves < last; p.saves++) {
            fault_set_spy(best_is_unread);
            tr_run(tr_new(2), tars_best, &p);
            fault_set_spy(NULL);
            assert_true(fault_disarm());
        }
        tr_run(tr_new(2), tars_best, &p);
        for (int i = 0; i < 2; i++)
            assert_string_equal(names_in(util_join(p.dir, util_fmt("rank%d", i))),
                                util_fmt("ba1-rank%d.pt.tar ba%d-rank%d.pt.tar latest-rank%d.pt.tar", i, last, i, i));
        assert_string_equal(bucket_names(b), util_fmt("run%%ba1-rank0.pt.tar run%%ba1-rank1.pt.tar run%%ba%d-rank0.pt.tar run%%ba%d-rank1.pt.tar", last, last));
        bucket_end(b);
    }
}

// So they do where one's machine was replaced, and only the others have an older one that is better.
static void test_tars_best_of_some(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        bucket *b = bucket_new(NULL);
        plan p = tars_plan(b, 1, 2);
        p.apart = true;
        p.best = "min:state/metrics/loss";
        tr_run(tr_new(2), tars_best, &p);
        util_remove_tree(util_join(p.dir, util_fmt("rank%d", rank)));
        p.number = 2;
        p.saves = 3;
        tr_run(tr_new(2), tars_best, &p);
        for (int i = 0; i < 2; i++)
            assert_string_equal(names_in(util_join(p.dir, util_fmt("rank%d", i))),
                                util_fmt("ba2-rank%d.pt.tar ba3-rank%d.pt.tar latest-rank%d.pt.tar", i, i, i));
        bucket_end(b);
    }
}

// A rank has lost its index, and cannot ask its tarball of the best, which so gets another number than it has: all keep theirs, also
// when it can be asked again.
static void test_tars_best_unread(void **state) {
    (void)state;
    best_batch = 2;
    for (int rank = 0; rank < 2; rank++) {
        bucket *b = bucket_new(NULL);
        plan p = tars_plan(b, 1, 3);
        p.apart = true;
        p.best = "min:state/metrics/loss";
        tr_run(tr_new(2), tars_best, &p);
        assert_int_equal(unlink(util_join(p.dir, rank == 0 ? "rank0/.ckpt-index.jsonl" : "rank1/.ckpt-index-rank1.jsonl")), 0);
        p.number = 3;
        p.saves = 4;
        unread = rank == 0 ? "/ba2-rank0" : "/ba2-rank1";
        for (; p.saves < 6; p.saves++) {
            if (p.saves == 4) fault_set_spy(best_is_unread);
            tr_run(tr_new(2), tars_best, &p);
            fault_set_spy(NULL);
            assert_true(fault_disarm() || p.saves > 4);
            for (int i = 0; i < 2; i++) {
                const char *names = names_in(util_join(p.dir, util_fmt("rank%d", i)));
                if (strstr(names, "ba2-rank") == NULL) fail_msg("%d, %d: %s", rank, p.saves, names);
            }
        }
        bucket_end(b);
    }
    best_batch = 1;
    unread = "/ba1-rank0";
}

// Of two that it cannot ask one gets the number of another save, and with that its metric.
static void test_tars_two_unread(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int rank = i / 2;
        bucket *b = bucket_new(NULL);
        plan p = tars_plan(b, 2, 4);
        best_batch = i % 2 + 1;
        p.apart = true;
        p.best = "min:state/metrics/loss";
        if (best_batch == 1) p.keep = 3;
        tr_run(tr_new(2), tars_best, &p);
        assert_int_equal(unlink(util_join(p.dir, rank == 0 ? "rank0/.ckpt-index.jsonl" : "rank1/.ckpt-index-rank1.jsonl")), 0);
        p.keep = 2;
        p.number = 4;
        unread = util_fmt("/ba2-rank%d", rank);
        unread_too = util_fmt("/ba3-rank%d", rank);
        for (p.saves = 5; p.saves < 9; p.saves++) {
            if (p.saves == 5) fault_set_spy(best_is_unread);
            tr_run(tr_new(2), tars_best, &p);
            fault_set_spy(NULL);
            assert_true(fault_disarm() || p.saves > 5);
            for (int k = 0; k < 2; k++) {
                const char *names = names_in(util_join(p.dir, util_fmt("rank%d", k)));
                if (strstr(names, util_fmt("ba%d-rank", best_batch)) == NULL) fail_msg("%d, %d: %s", i, p.saves, names);
                if (p.saves == 8)
                    assert_string_equal(names, util_fmt("ba%d-rank%d.pt.tar ba7-rank%d.pt.tar ba8-rank%d.pt.tar latest-rank%d.pt.tar", best_batch, k, k, k, k));
            }
        }
        bucket_end(b);
    }
    best_batch = 1;
    unread = "/ba1-rank0";
    unread_too = NULL;
}

// What a store is known to have, and how good it is, is not forgotten because rank 0 cannot ask its own for a while.
static void test_tars_best_unread_in_store(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan p = tars_plan(b, 1, 2);
    p.apart = true;
    p.best = "min:state/metrics/loss";
    tr_run(tr_new(2), tars_best, &p);
    assert_int_equal(unlink(util_join(p.dir, "rank0/.ckpt-index.jsonl")), 0);
    p.number = 2;
    p.saves = 3;
    fault_set_spy(best_is_unread);
    tr_run(tr_new(2), tars_best, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    util_remove_tree(util_join(p.dir, "rank0"));
    p.saves = 4;
    tr_run(tr_new(2), tars_best, &p);
    assert_string_equal(bucket_names(b), "run%ba1-rank0.pt.tar run%ba1-rank1.pt.tar run%ba4-rank0.pt.tar run%ba4-rank1.pt.tar");
    bucket_end(b);
}

// A rank's server does not answer when it is asked for its tarball, and no store has one: that does not make it one that is not there.
static __thread bool asks_stale;

static void tar_is_unseen(const char *name, const char *path) {
    if (asks_stale && strcmp(name, "lstat") == 0 && strcmp(path, stale_tar) == 0) fault_arm_here("lstat", ESTALE);
}

static void load_unseen_tar(tr_rank *r, void *arg) {
    asks_stale = r->rank == 1;
    load_newest(r, arg);
}

static void test_tars_unseen(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    p.saves = 2;
    tr_run(tr_new(2), save_some, &p);
    (void)snprintf(stale_tar, sizeof stale_tar, "%s/ba2-rank1.pt.tar", p.dir);
    fault_set_spy(tar_is_unseen);
    p.number = 2;
    tr_run(tr_new(2), load_unseen_tar, &p);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
}

static void tar_is_unasked(const char *name, const char *path) {
    struct stat s;
    if (!asks_stale || strcmp(name, "open") != 0 || strstr(path, "ba2-rank0.pt.tar") == NULL) return;
    if (stat(path, &s) != 0 || s.st_size == 0) return;         // a new one
    asks_stale = false;
    fault_arm_here("open", ESTALE);
}

static void load_unasked_tar(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    asks_stale = r->rank == 0;
    member_stores(m, &b, &u, 1);
    m->d.remote_file_name = "run/ba{batch}-rank{rank}.pt";
    m->d.latest_remote_file_name = CKPT_NONE;
    m->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    m->d.resume_offline = true;
    if (member_open(m)) {
        TR_CHECK(r, ckpt_saver_resume(m->s, &t) == p->want);
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 2);
    }
    member_end_stores(m, &u, 1, false);
}

// Rank 0 cannot see its tarball, or its copy of what it has fetched, when it asks which save that is of: no store is away for that, and
// no older checkpoint is loaded.
static void test_tars_unasked(void **state) {
    (void)state;
    for (int far = 0; far < 2; far++) {
        bucket *b = bucket_new(NULL);
        plan p = tars_plan(b, 0, 2);
        p.apart = true;
        tr_run(tr_new(2), tars_life, &p);
        for (int i = 0; i < 2 && far; i++) util_remove_tree(util_join(p.dir, util_fmt("rank%d", i)));
        p.want = far ? CKPT_CANCELLED : CKPT_NET;
        fault_set_spy(tar_is_unasked);
        tr_run(tr_new(2), load_unasked_tar, &p);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        bucket_end(b);
    }
}

static const char *far_name;

// Goes on under other names, of files and objects.
static void tars_renamed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u[1] = { NULL };
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, u, 1);
    m->d.remote_file_name = far_name;
    m->d.latest_remote_file_name = "run/latest-rank{rank}.pt";
    m->d.num_checkpoints_to_keep = p->empties ? CKPT_KEEP_NONE : CKPT_KEEP_ALL;
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == p->want);
        if (e == CKPT_OK) TR_CHECK(r, t.batch == p->number);
        if (e == CKPT_OK) member_check(m, p->number);
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%s", e == CKPT_OK ? "" : ckpt_last_error());
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, p->number + i));
        TR_OK(r, ckpt_saver_wait(m->s, 100));
    }
    member_end_stores(m, u, 1, false);
}

static void links_lead_to(bucket *b, const char *format) {
    for (int i = 0; i < 2; i++)
        assert_string_equal(bucket_text(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), util_fmt("%s%d.pt.tar", format, i));
}

// The names are of another template than those of what is there: each rank finds its own all the same, in its folder or, by its ledger or
// its link, in the store, and the links lead to what is there.
static void test_tars_renamed(void **state) {
    (void)state;
    enum { HERE, FAR_ALONE, EMPTY, ONE_LOST, BEHIND, CASES };
    for (int k = 0; k < CASES; k++) {
        bucket *b = bucket_new(NULL);
        plan p = tars_plan(b, 0, 2);
        p.apart = true;
        p.empties = k == BEHIND;
        if (k == BEHIND) p.then_fails = "put run/latest";
        tr_run(tr_new(2), tars_life, &p);
        links_lead_to(b, k == BEHIND ? "run/ba1-rank" : "run/ba2-rank");
        bucket_fail(b, NULL, CKPT_OK, 0);
        for (int i = 0; i < 2; i++)
            if (k == FAR_ALONE || k == EMPTY || (k == ONE_LOST && i == 1)) util_remove_tree(util_join(p.dir, util_fmt("rank%d", i)));
        far_name = k == HERE ? "run/ba{batch}-rank{rank}.pt" : "run/x{batch}-rank{rank}.pt";
        if (k != FAR_ALONE) p.filename = "x{batch}-rank{rank}.pt";
        p.number = 2;
        p.saves = 0;
        tr_run(tr_new(2), tars_renamed, &p);
        links_lead_to(b, "run/ba2-rank");
        p.saves = 1;
        tr_run(tr_new(2), tars_renamed, &p);
        links_lead_to(b, k == HERE ? "run/ba3-rank" : "run/x3-rank");
        bucket_end(b);
    }
}

// A link leads to nothing, and what lies beside it has other names: that is no fresh start. With nothing there it is one.
static void fail_lists(bucket *b) {
    b->fail = "list run/";
    b->fail_with = CKPT_NET;
    b->fail_times = -1;
}

static void test_tars_led_nowhere(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan p = tars_plan(b, 0, 2);
    tr_run(tr_new(2), tars_life, &p);
    for (int i = 0; i < 2; i++) {
        const char *text = util_fmt("run/x2-rank%d.pt.tar", i);
        util_write(bucket_path(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), text, strlen(text));
    }
    far_name = "run/x{batch}-rank{rank}.pt";
    p.dir = util_temp_dir();
    p.saves = 0;
    p.want = CKPT_CORRUPT;
    tr_run(tr_new(2), tars_renamed, &p);
    assert_non_null(strstr(p.text[0], "may be of an earlier remote_file_name"));
    b->then = fail_lists;
    b->before = "list run/";            // the look at what lies beside
    p.want = CKPT_NET;
    tr_run(tr_new(2), tars_renamed, &p);
    bucket_fail(b, NULL, CKPT_OK, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(unlink(bucket_path(b, util_fmt("run/ba%d-rank%d.pt.tar", i / 2 + 1, i % 2))), 0);
    p.want = CKPT_NOT_FOUND;
    tr_run(tr_new(2), tars_renamed, &p);
    bucket_end(b);
}

// A tool has found a tarball that is in no index: it is another rank's, and never rank 0's state.
static void test_tars_found(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan p = tars_plan(b, 0, 2);
    ckpt_folder *f;
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = p.dir;
    tr_run(tr_new(2), tars_life, &p);
    util_remove_tree(b->dir);
    util_mkdir(b->dir);
    for (int i = 0; i < 2; i++) (void)unlink(util_join(p.dir, i == 0 ? ".ckpt-index-rank1.jsonl" : "ba2-rank0.pt.tar"));
    assert_int_equal(ckpt_folder_open(&f, &d), CKPT_OK);
    assert_int_equal(ckpt_folder_pin(f, ckpt_folder_find(f, "ba2-rank1.pt.tar"), true), CKPT_OK);
    ckpt_folder_close(f);
    tars_go_on(&p, 1, 0);
    bucket_end(b);
}

// The ranks differ in what a store has of them, and nothing can be removed there: that is not asked for again and again.
static void test_tars_wait_for_nothing(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan p = tars_plan(b, 1, 4);
    p.then_fails = "remove|put run/ba4-rank1";
    tr_run(tr_new(2), tars_life, &p);
    assert_true(bucket_count(b, "remove run/ba1-rank0") < 8);
    bucket_fail(b, NULL, CKPT_OK, 0);
    bucket_end(b);
}

// The link stays at ba1, because it cannot be put. An upload that an earlier process has left, and that is there now, does not move
// it, so that ba1 stays.
static void test_tars_led_to(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan p = tars_plan(b, 1, 3);
    p.then_fails = "put run/latest|put run/ba3";
    tr_run(tr_new(2), tars_life, &p);
    p.then_fails = NULL;
    p.fails = "put run/latest";
    tars_go_on(&p, 3, 0);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(bucket_text(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), util_fmt("run/ba1-rank%d.pt.tar", i));
        assert_true(bucket_has(b, util_fmt("run/ba1-rank%d.pt.tar", i)) && bucket_has(b, util_fmt("run/ba3-rank%d.pt.tar", i)));
    }
    p.fails = NULL;
    tars_go_on(&p, 3, 1);
    assert_string_equal(bucket_names(b), "run%ba4-rank0.pt.tar run%ba4-rank1.pt.tar run%latest-rank0.pt.tar.symlink run%latest-rank1.pt.tar.symlink");
    bucket_end(b);
}

// ba2 was never published, and machines that have nothing go on from ba1: the link does not move to the old ba2, which the new one
// replaces rank by rank.
static void test_tars_gone_back(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan p = tars_plan(b, 1, 2);
    p.apart = true;
    p.then_fails = "put run/latest";
    tr_run(tr_new(2), tars_life, &p);
    for (int i = 0; i < 2; i++) util_remove_tree(util_join(p.dir, util_fmt("rank%d", i)));
    p.then_fails = NULL;
    p.fails = "put run/ba2-rank1";
    tars_go_on(&p, 1, 1);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(bucket_text(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), util_fmt("run/ba1-rank%d.pt.tar", i));
        assert_true(bucket_has(b, util_fmt("run/ba1-rank%d.pt.tar", i)));
        util_remove_tree(util_join(p.dir, util_fmt("rank%d", i)));
    }
    p.fails = NULL;
    tars_go_on(&p, 1, 2);
    assert_string_equal(bucket_names(b), "run%ba3-rank0.pt.tar run%ba3-rank1.pt.tar run%latest-rank0.pt.tar.symlink run%latest-rank1.pt.tar.symlink");
    bucket_end(b);
}

// The uploads of one rank do not get through, so that the links stay at ba1: what is newer each rank has in its folder or in the store.
// Rank 0's machine may have been replaced. Where one rank has neither, what it lacks is not fetched by the others.
static void test_tars_behind(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {               // 0: files go when they are up; 1: rank 0 has lost its folder; 2: rank 1; 3: with `behind` itself
        bucket *b = bucket_new(NULL);
        int behind = k == 3 ? 0 : 1;
        plan p = tars_plan(b, 0, 3);
        p.apart = true;
        p.empties = k != 1;
        p.then_fails = behind == 1 ? "put run/ba2-rank1|put run/ba3-rank1" : "put run/ba2-rank0|put run/ba3-rank0";
        tr_run(tr_new(2), tars_life, &p);
        for (int i = 0; i < 2; i++)
            assert_string_equal(bucket_text(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), util_fmt("run/ba1-rank%d.pt.tar", i));
        assert_true(bucket_has(b, util_fmt("run/ba3-rank%d.pt.tar", 1 - behind)) && !bucket_has(b, util_fmt("run/ba3-rank%d.pt.tar", behind)));
        if (k == 1 || k == 2) util_remove_tree(util_join(p.dir, util_fmt("rank%d", k - 1)));
        p.fails = p.then_fails;
        p.then_fails = NULL;
        tars_go_on(&p, k == 2 ? 1 : 3, 0);
        if (k == 2) assert_int_equal(bucket_count(b, "get run/ba3-rank0") + bucket_count(b, "get run/ba2-rank0"), 0);
        p.fails = NULL;
        tars_go_on(&p, k == 2 ? 1 : 3, 1);      // and it is published when it is there
        int last = k == 2 ? 2 : 4;
        for (int i = 0; i < 2; i++)
            assert_string_equal(bucket_text(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), util_fmt("run/ba%d-rank%d.pt.tar", last, i));
        bucket_end(b);
    }
}

// Another machine has gone on to ba2. A job on the first one, which does not go on from that, leaves the links where they are.
static void test_tars_overtaken(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    plan here = tars_plan(b, 0, 1), there = tars_plan(b, 0, 1);
    tr_run(tr_new(2), tars_life, &here);
    tars_go_on(&there, 1, 1);
    tars_go_on(&here, 0, 0);
    for (int i = 0; i < 2; i++)
        assert_string_equal(bucket_text(b, util_fmt("run/latest-rank%d.pt.tar.symlink", i)), util_fmt("run/ba2-rank%d.pt.tar", i));
    bucket_end(b);
}

// Saves come many times as fast as any rank's way to the store takes them, and each rank's at another pace: in steps.
enum { PACED_END = 1000 };
static struct { bucket *b; int step, takes, seen; } paced[TR_MOST];       // seen: the step up to which a put has waited; 0: none does

static ckpt_err paced_put(const char *name, const char *path, bool overwrite, void *user) {
    int i = 0;
    while (paced[i].b != (bucket *)user) i++;
    int now = __atomic_load_n(&paced[i].step, __ATOMIC_SEQ_CST), until = now + paced[i].takes;
    while (strstr(name, "/ba") != NULL && now < until && now < PACED_END) {
        __atomic_store_n(&paced[i].seen, now, __ATOMIC_SEQ_CST);
        ckpt__os_sleep(0.001);
        now = __atomic_load_n(&paced[i].step, __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&paced[i].seen, 0, __ATOMIC_SEQ_CST);
    return bucket_put(name, path, overwrite, user);
}

// The next step is not begun before the way to the store has come as far as it can in this one: its thread may not get the processor.
static void paced_keep_step(tr_rank *r, const ckpt_uploader *u, int step) {
    ckpt_transfer_stats t;
    __atomic_store_n(&paced[r->rank].step, step, __ATOMIC_SEQ_CST);
    bool behind = true;
    for (int i = 0; behind && i < 60000; i++, ckpt__os_sleep(0.001)) {
        memset(&t, 0, sizeof t);
        ckpt_uploader_stats(u, &t);
        behind = t.pending > 0 && __atomic_load_n(&paced[r->rank].seen, __ATOMIC_SEQ_CST) < step;
    }
    TR_CHECK(r, !behind);
}

// The save that rank 1's memory does not suffice to hand over: the first one from ba10 on that all ranks are to have. Once.
static ckpt_saver *paced_scarce;

static void *paced_alloc(void *ptr, size_t old_size, size_t new_size, void *user) {
    member *m = (member *)user;
    (void)old_size;
    if (new_size == 0) { free(ptr); return NULL; }
    ckpt_saver *s = tr_self == m->r ? paced_scarce : NULL;
    bool scarce = s != NULL && s->goal[0] >= 10 && s->pending.active && s->pending.line.number == s->goal[0];
    if (!scarce || new_size != sizeof(ckpt__uploader_item)) return realloc(ptr, new_size);
    paced_scarce = NULL;
    return NULL;
}

// Rank 1's file is still being written when the call that saves it returns: so all ranks have the newest save before them still
// whenever they choose one.
static ckpt_err paced_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    member *m = (member *)user;
    (void)to_device;
    while (__atomic_load_n(&paced[1].step, __ATOMIC_SEQ_CST) < (int)m->step) ckpt__os_sleep(0.001);
    memcpy(dst, src, size);
    return CKPT_OK;
}

static void tars_too_fast(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u[1] = { NULL };
    bucket *b = paced[r->rank].b;
    member *m = member_new(r, p);
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.num_attempts = 1;
    d.ranks = r->ranks;
    if (p->number == 1 && r->rank == 1) d.allocator.fn = paced_alloc;
    if (p->number == 1 && r->rank == 1) m->st.copy = paced_copy;
    d.allocator.user = m;
    TR_OK(r, ckpt_uploader_open(&u[0], &d));
    member_stores(m, &b, u, 0);
    m->d.uploaders_count = 1;
    m->d.remote_file_name = "run/ba{batch}-rank{rank}.pt";
    m->d.latest_remote_file_name = "run/latest-rank{rank}.pt";
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        int failed = 0;
        if (r->rank == 1 && p->number == 1) paced_scarce = m->s;
        for (int i = 1; i <= p->saves; i++) {
            bool saved = member_step(m, i) == CKPT_OK;
            if (!saved && failed++ > 0) print_message("rank %d has failed before, and at batch %d: %s\n", r->rank, i, ckpt_last_error());
            paced_keep_step(r, u[0], i);
        }
        if (failed == 0 && p->number == 1) print_message("rank %d has not failed\n", r->rank);
        TR_CHECK(r, failed == p->number);
        FILE *f = fopen(bucket_path(b, util_fmt("run/latest-rank%d.pt.tar.symlink", r->rank)), "r");
        int at = 0, objects = 0;
        TR_CHECK(r, f != NULL && fscanf(f, "run/ba%d", &at) == 1);
        if (f != NULL) (void)fclose(f);
        for (const char *n = strstr(bucket_names(b), "run%ba"); n != NULL; n = strstr(n + 1, "run%ba")) objects++;
        TR_CHECK(r, at > p->saves / 3);
        TR_CHECK(r, objects <= 9);
        print_message("rank %d: ba%d, %d objects\n", r->rank, at, objects);
        __atomic_store_n(&paced[r->rank].step, (int)PACED_END, __ATOMIC_SEQ_CST);
    }
    member_end_stores(m, u, 1, p->number == 1);
}

// All the same the links go on, and what is behind them goes: one save at a time is kept back until all ranks have it there.
// One that cannot come any more is not waited for.
static void test_tars_too_fast(void **state) {
    (void)state;
    ckpt_store_ops ops;
    memset(&ops, 0, sizeof ops);
    ops.put = paced_put;
    ops.get = bucket_get;
    ops.size = bucket_size;
    ops.list = bucket_list;
    ops.remove = bucket_remove;
    for (int lost = 0; lost < 2; lost++) {
        plan p = plan_of(TARS);
        p.saves = 80;
        p.number = lost;
        p.snapshot = lost == 0 ? CKPT_SNAPSHOT_NONE : CKPT_SNAPSHOT_LAZY;       // then the newest is one that is still to be handed over
        p.device = lost == 1;
        p.slow = -1;
        for (int i = 0; i < 8; i++) {
            paced[i].b = bucket_new(NULL);
            paced[i].takes = 5 + i % 4;
            paced[i].step = paced[i].seen = 0;
            ckpt_store_close(paced[i].b->store);
            assert_int_equal(ckpt_store_custom(&paced[i].b->store, &ops, paced[i].b), CKPT_OK);
        }
        tr_run(tr_new(8), tars_too_fast, &p);
        for (int i = 0; i < 8; i++) bucket_end(paced[i].b);
    }
}

// A checkpoint in a store is saved again under its name: by a run that has nothing of it, or at once. What is there loads until the
// new one does.
static void store_again(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t = at_batch(1);
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    m->d.num_attempts = 1;
    m->d.overwrite = true;
    if (member_open(m)) {
        ckpt_err e = CKPT_OK;
        for (int i = 0; i < p->saves && e == CKPT_OK; i++) {
            member_set(m, p->number + i);
            e = ckpt_saver_save(m->s, &t);
            if (e == CKPT_OK && p->saves == 1) e = ckpt_saver_wait(m->s, 0);
        }
        e = ckpt_saver_close(m->s, 0);
        TR_CHECK(r, (e == CKPT_OK) == (p->want == CKPT_OK));
        m->s = NULL;
    }
    member_end(m);
}

static void load_again(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 1);
        member_check(m, p->number);
    }
    member_end(m);
}

static void test_store_again(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    const char *ba1 = util_join(p.dir, "run/ba1");
    tr_world *w = tr_new(3), *other = tr_new(2);
    p.saves = 1;
    p.number = 11;
    assert_int_equal(chdir(util_temp_dir()), 0);
    tr_run(w, store_again, &p);
    assert_string_equal(names_in(ba1), ".metadata __0_0.pt __1_0.pt __2_0.pt");
    // a machine with nothing, where the upload of a rank fails
    util_mkdir(util_join(ba1, "__1_1.pt"));
    assert_int_equal(chdir(util_temp_dir()), 0);
    p.number = 12;
    p.want = CKPT_IO;
    tr_run(w, store_again, &p);
    assert_int_equal(rmdir(util_join(ba1, "__1_1.pt")), 0);
    assert_string_equal(names_in(ba1), ".metadata __0_0.pt __1_0.pt __2_0.pt");
    assert_int_equal(chdir(util_temp_dir()), 0);
    p.number = 11;
    p.want = CKPT_OK;
    tr_run(other, load_again, &p);
    // another one, of other ranks, where none does
    assert_int_equal(chdir(util_temp_dir()), 0);
    p.number = 13;
    tr_run(other, store_again, &p);
    assert_string_equal(names_in(ba1), ".metadata __0_1.pt __1_1.pt");
    assert_int_equal(chdir(util_temp_dir()), 0);
    tr_run(w, load_again, &p);
    // and twice by one run
    assert_int_equal(chdir(util_temp_dir()), 0);
    p.number = 14;
    p.saves = 2;
    tr_run(w, store_again, &p);
    assert_string_equal(names_in(ba1), ".metadata __0_3.pt __1_3.pt __2_3.pt");
    assert_int_equal(chdir(util_temp_dir()), 0);
    p.number = 15;
    tr_run(other, load_again, &p);
}

// Files of an edition that was replaced are removed once, however many follow.
static void again_and_again(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp one = at_batch(1);
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        for (int i = 0; i < 5; i++) {
            one.batch = i < 4 ? 1 : 2;
            ckpt_err saved = ckpt_saver_save(m->s, &one), waited = ckpt_saver_wait(m->s, 0);
            while (i == 1 && p->fails != NULL && waited != CKPT_OK) waited = ckpt_saver_wait(m->s, 0);
            TR_CHECK(r, saved == CKPT_OK && waited == CKPT_OK);
        }
    }
    member_end_stores(m, &u, 1, p->fails != NULL);
}

static void test_store_again_and_again(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    bucket_fail(b, "remove", CKPT_AUTH, -1);        // while they cannot be, that is not asked for each time, nor told
    p.fails = "remove";
    tr_run(tr_new(2), again_and_again, &p);
    assert_int_equal(bucket_count(b, "remove"), 2);
    bucket_end(b);
    b = bucket_new(NULL);
    p = plan_of(SHARDED);
    p.with = b;
    tr_run(tr_new(2), again_and_again, &p);
    assert_int_equal(bucket_count(b, "remove run/ba1/__"), 4 * 2);
    assert_string_equal(bucket_names(b), "run%ba2%.metadata run%ba2%__0_0.pt run%ba2%__1_0.pt run%latest.pt.symlink");
    assert_string_equal(names_in(p.dir), "ba2 latest-rank0.pt");
    bucket_end(b);
}

// A rank's file of a checkpoint that has left the store cannot be removed: it is asked for again, by this process or by the next one.
static void remove_fails(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        if (p->number > 1) TR_OK(r, ckpt_saver_resume(m->s, &t));
        for (int i = p->number; i < p->number + p->saves; i++) {
            TR_OK(r, tr_barrier(r));
            (void)!member_step(m, i);
            while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        }
    }
    member_end_stores(m, &u, 1, p->fails != NULL);
}

// The folder's ledger of its only store.
static const char *ledger_of(const char *dir) {
    return util_read(ledger_path(dir), NULL);
}

static void test_store_remove_fails(void **state) {
    (void)state;
    static const char *const fails[] = { "remove run/ba1/__1_0.pt", "remove run/ba1/__", "remove run/ba2/__0_0.pt|remove run/ba1/__1",
                                         "remove run/ba1/__1_0.pt" };
    for (int how = 0; how < 7; how++) {
        plan p = plan_of(SHARDED);
        bucket *b = bucket_new(NULL);
        p.with = b;
        p.number = 1;
        p.fails = fails[how / 2];
        p.saves = how % 2 == 0 ? 6 : 3;
        bucket_fail(b, p.fails, how == 6 ? CKPT_AUTH : CKPT_NET, how == 6 ? 2 : how % 2 == 0 ? 4 : -1);
        if (how == 6) fault_pause = 0;          // the first of them is asked for again with the next save
        tr_run(tr_new(2), remove_fails, &p);
        fault_pause = 900;
        if (how % 2 != 0) {
            assert_true(bucket_has(b, "run/ba1/__1_0.pt"));
            assert_false(bucket_has(b, "run/ba1/.metadata"));
            bucket_fail(b, NULL, CKPT_OK, 0);
            p.fails = NULL;
            p.number = 4;
            tr_run(tr_new(how == 1 ? 3 : 2), remove_fails, &p);
        }
        if (how != 1) assert_string_equal(bucket_names(b), "run%ba6%.metadata run%ba6%__0_0.pt run%ba6%__1_0.pt run%latest.pt.symlink");
        assert_false(bucket_has(b, "run/ba1/__0_0.pt") || bucket_has(b, "run/ba1/__1_0.pt") || bucket_has(b, "run/ba2/__0_0.pt"));
        assert_null(strstr(ledger_of(p.dir), "ba1/"));
        bucket_end(b);
    }
}

// Each life of a run has other endings: what an earlier one has written leaves the store, and the folder, with its own.
static void change_ending(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = member_new(r, p);
    member_stores(m, &b, &u, 1);
    m->d.num_remote_to_keep = 1;
    if (member_open(m)) {
        if (p->number > 1) TR_OK(r, ckpt_saver_resume(m->s, &t));
        for (int i = 0; i < p->saves; i++) {
            t = at_batch(p->number + i);
            TR_OK(r, ckpt_saver_save(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
        }
    }
    member_end_stores(m, &u, 1, false);
}

static void test_store_ending_changes(void **state) {
    (void)state;
    static const char *const endings[] = { "pt", "safetensors", "pt", "safetensors" };
    static const int numbers[] = { 1, 3, 3, 4 }, editions[] = { 0, 0, 1, 0 };
    plan p = plan_of(SHARDED);
    bucket *b = bucket_new(NULL);
    p.with = b;
    p.interval = "1000000ba";
    for (int life = 0; life < 4; life++) {
        const char *has = endings[life];
        int e = editions[life], last = numbers[life] + (life == 0);
        p.filename = util_fmt("ba{batch}.%s", has);
        p.number = numbers[life];
        p.saves = life == 0 ? 2 : 1;
        tr_run(tr_new(2), change_ending, &p);
        assert_string_equal(bucket_names(b), util_fmt("run%%ba%d%%.metadata run%%ba%d%%__0_%d.%s run%%ba%d%%__1_%d.%s run%%latest.pt.symlink", last, last, e,
                                                      has, last, e, has));
        assert_string_equal(names_in(util_join(p.dir, util_fmt("ba%d", last))), util_fmt(".metadata __0_%d.%s __1_%d.%s", e, has, e, has));
    }
    bucket_end(b);
}

// Tensors that are whole in .safetensors, and then one that is split.
static void store_safetensors(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp one = at_batch(1);
    ckpt_tensor t;
    char name[40];
    bool split = p->number == 1;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 1;
    t.shape[0] = 500;
    t.data = m->shared;
    if (split) t.global_shape[0] = 500 * r->world->size, t.offset[0] = 500 * r->rank;
    (void)snprintf(name, sizeof name, "state/model/w%d", split ? 0 : r->rank);
    ckpt_state_free(&m->st);
    memset(&m->st, 0, sizeof m->st);
    ckpt_bind(&m->st, name, &t);
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    m->d.overwrite = true;
    if (member_open(m)) TR_OK(r, ckpt_saver_save(m->s, &one));
    member_end(m);
}

// What Hugging Face reads instead of the listing goes to the store, and goes from there when it tells of files that are replaced.
static void test_store_index(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    const char *here = util_temp_dir(), *far = util_join(p.dir, "run/ba1"), *near = util_fmt("%s%s", here, far);
    p.filename = "x.safetensors";
    assert_int_equal(chdir(here), 0);
    tr_run(tr_new(2), store_safetensors, &p);
    assert_string_equal(names_in(far), ".metadata __0_0.safetensors __1_0.safetensors model.safetensors.index.json");
    p.number = 1;
    tr_run(tr_new(2), store_safetensors, &p);
    assert_string_equal(names_in(near), ".metadata __0_1.safetensors __1_1.safetensors");
    assert_string_equal(names_in(far), ".metadata __0_1.safetensors __1_1.safetensors");
}

// A store that fails with CKPT_TIMEOUT is no time that is up: the saver is closed. One that takes long is, on all ranks.
static void close_slow(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    bucket *b = (bucket *)p->with;
    member *m = member_new(r, p);
    ckpt_uploader_desc d;
    ckpt_uploader *u = NULL;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.num_attempts = 1;
    d.ranks = r->ranks;
    TR_OK(r, ckpt_uploader_open(&u, &d));
    m->d.uploaders = &u;
    m->d.uploaders_count = 1;
    if (member_open(m)) {
        TR_OK(r, member_step(m, 1));
        static const double limits[] = { 0.05, 600, 0 };
        for (int how = 0; how < 2; how++) {         // rank 0's time is up
            double limit = limits[r->rank == 0 ? 0 : how + 1];
            ckpt_err e = how == 0 ? ckpt_saver_close(m->s, limit) : ckpt_saver_wait(m->s, limit);
            TR_CHECK(r, e == CKPT_TIMEOUT);
            TR_CHECK(r, (strstr(ckpt_last_error(), r->rank == 0 ? " after 0.05 s" : "another rank, whose timeout is shorter") != NULL));
        }
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) bucket_hold(b, false);
        ckpt_err e = ckpt_saver_close(m->s, 0);
        m->s = NULL;
        TR_CHECK(r, e == CKPT_NET && strstr(ckpt_last_error(), "the test says so") != NULL);
    }
    (void)!ckpt_uploader_close(u, 0);
    member_end(m);
}

static void test_close_says_timeout_when_open(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        plan p = plan_of((layout)how);
        bucket *b = bucket_new(NULL);
        p.with = b;
        bucket_hold(b, true);
        bucket_fail(b, "put", CKPT_TIMEOUT, -1);
        tr_run(tr_new(2), close_slow, &p);
        bucket_end(b);
    }
}

// What was cut off, or refused, before it was published is published by the process that goes on from it, be it with other ranks:
// else the last checkpoint of a training would never get to the store.
static void go_on_from(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_timestamp t;
    ckpt_saver_counts n;
    (void)snprintf(m->folder, sizeof m->folder, "file://%s/run", p->dir);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == p->number);
        member_check(m, p->number);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
        ckpt_saver_stats(m->s, &n);
        (void)snprintf(p->text[r->rank], sizeof p->text[0], "%d", (int)n.uploaded);
    }
    member_end(m);
}

static void test_store_left(void **state) {
    (void)state;
    static const int others[] = { 3, 2, 1, 5 };
    for (int k = 0; k < 4; k++) {
        plan p = plan_of(SHARDED);
        p.filename = "ba{batch}.safetensors";
        p.saves = p.number = 2;
        assert_int_equal(chdir(util_temp_dir()), 0);
        const char *run = util_join(p.dir, "run"), *link = util_join(run, "latest-rank0.pt.symlink");
        util_mkdir(run);
        util_mkdir(util_join(run, "ba2"));
        util_mkdir(util_join(run, "ba2/__1_0.safetensors"));
        tr_run(tr_new(3), store_some, &p);
        assert_non_null(strstr(p.text[0], "rank 1: "));
        assert_true(ckpt__txt_ends(slurp(link), "run/ba1"));
        assert_false(util_exists(util_join(run, "ba2/.metadata")));
        assert_int_equal(rmdir(util_join(run, "ba2/__1_0.safetensors")), 0);
        tr_world *w = tr_new(others[k]);
        tr_run(w, go_on_from, &p);
        assert_true(ckpt__txt_ends(slurp(link), "run/ba2"));
        assert_int_equal(ckpt_verify(util_join(run, "ba2"), NULL), CKPT_OK);
        int sent = 0;
        for (int i = 0; i < others[k]; i++) sent += atoi(p.text[i]);
        assert_int_equal(sent, 4);      // three files and the listing
        tr_run(w, go_on_from, &p);
        for (int i = 0; i < others[k]; i++) assert_string_equal(p.text[i], "0");
        assert_int_equal(chdir(util_temp_dir()), 0);
        tr_run(tr_new(2), go_on_from, &p);
        for (int i = 0; i < 2; i++) assert_string_equal(p.text[i], "0");
    }
}

static bucket *upload_there[2];
static float   life_there[TR_MOST][1000], life_wanted, life_here;       // of what was loaded, and is saved
static const char *told_there;          // in rank 0's log; NULL: anything

// Each rank on the machine of its letter in `with`, with p->by stores: resumes and goes on for p->saves batches.
static void go_on_there(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_uploader *u[2];
    ckpt_timestamp t = at_batch(0);
    (void)snprintf(m->folder, sizeof m->folder, "%s/%c", p->dir, ((const char *)p->with)[r->rank]);
    member_stores(m, upload_there, u, p->by);
    m->d.num_checkpoints_to_keep = 0;
    m->d.num_remote_to_keep = p->keep;
    if (p->how == TARS) m->d.remote_file_name = "run/ba{batch}-rank{rank}.tar";
    if (p->how == TARS) m->d.latest_remote_file_name = "run/latest-rank{rank}.tar";
    if (p->how == WHOLE) m->d.remote_file_name = "run/ba{batch}.pt";
    if (p->by == 0) m->d.uploaders_count = 0;
    if (p->by == 0) m->d.remote_file_name = m->d.latest_remote_file_name = NULL;
    life_there[r->rank][0] = life_there[r->rank][999] = 0;
    ckpt_bind_f32(&m->st, "state/model/life", life_there[r->rank], 1000);
    if (member_open(m)) {
        ckpt_err e = ckpt_saver_resume(m->s, &t);
        TR_CHECK(r, e == CKPT_OK || e == CKPT_NOT_FOUND);
        TR_CHECK(r, t.batch == p->number);
        member_check(m, t.batch);
        for (int i = 0; i < 1000; i += 999) TR_CHECK(r, life_there[r->rank][i] == life_wanted);
        TR_CHECK(r, r->rank != 0 || told_there == NULL || strstr(m->log, told_there) != NULL);
        for (int i = 0; i < 1000; i++) life_there[r->rank][i] = life_here;
        for (int i = 1; i <= p->saves; i++) TR_OK(r, member_step(m, t.batch + i));
    }
    member_end_stores(m, u, p->by, false);
}

static void go_on_at(plan *p, const char *where, int from, int saves) {
    p->with = (void *)(uintptr_t)where;
    p->number = from;
    p->saves = saves;
    tr_run(tr_new((int)strlen(where)), go_on_there, p);
}

// Machine D lists the store and counts the numbers of what others have saved there: such a number is no reason to go on from what the
// folder of another machine has under a higher one, behind what the store's latest names.
static void test_counted_number_no_reason(void **state) {
    (void)state;
    static const struct { const char *where; int from, saves; } rows[] = {
        { "DD", 0, 4 }, { "CC", 4, 12 }, { "B", 16, 4 }, { "CC", 20, 4 }, { "DD", 24, 0 }, { "DB", 24, 0 }
    };
    for (int keep = 0; keep < 4; keep++) {
        plan p = plan_of(SHARDED);
        upload_there[0] = bucket_new(NULL);
        p.by = 1;
        p.interval = "2ba";
        p.keep = keep;
        for (int i = 0; i < UTIL_COUNT(rows); i++) go_on_at(&p, rows[i].where, rows[i].from, rows[i].saves);
        bucket_end(upload_there[0]);
    }
}

// A machine that knows of a second store's tarballs by its list alone goes on from the first one's, and comes upon the save that all
// ranks have noted there: the latest of a rank that leads to a later one stays.
static void test_listed_latest_stays(void **state) {
    (void)state;
    plan p = plan_of(TARS);
    for (int i = 0; i < 2; i++) upload_there[i] = bucket_new_as(NULL, i == 0 ? "A" : "B");
    p.by = 2;
    p.interval = "2ba";
    p.keep = 3;
    go_on_at(&p, "ABC", 0, 2);
    go_on_at(&p, "DEF", 2, 4);
    go_on_at(&p, "GBH", 6, 0);
    for (int i = 0; i < 6; i++) {
        const char *link = bucket_path(upload_there[i / 3], util_fmt("run/latest-rank%d.tar.symlink", i % 3));
        assert_string_equal(slurp(link), util_fmt("run/ba6-rank%d.tar", i % 3));
    }
    for (int i = 0; i < 2; i++) bucket_end(upload_there[i]);
}

// A run that saved one file for all ranks goes on sharded on a new machine, from the store: what was fetched is no listing of a folder,
// and does not lie about as one, nor does the folder's latest lead there.
static void test_sharded_from_a_file_in_a_store(void **state) {
    (void)state;
    for (int n = 1; n <= 2; n++) {
        plan p = plan_of(WHOLE);
        const char *here = util_join(p.dir, "D"), *where = n == 1 ? "D" : "DD";
        upload_there[0] = bucket_new(NULL);
        p.by = 1;
        go_on_at(&p, "C", 0, 2);
        p.how = SHARDED;
        for (int i = 0; i < 2; i++) {
            go_on_at(&p, where, 2, 0);
            assert_string_equal(names_in(here), "");
        }
        go_on_at(&p, where, 2, 1);
        assert_string_equal(names_in(here), "ba3 latest-rank0.pt");
        const char *text = slurp(bucket_path(upload_there[0], "run/latest.pt.symlink"));
        assert_string_equal(text, "run/ba3");
        util_remove_tree(here);
        go_on_at(&p, where, 3, 1);
        bucket_end(upload_there[0]);
    }
}

// Machine B was used alone, and has a save of the name, and a file of the name and size, of the one that D offers: it is of another
// history, and neither taken for D's nor replaced by it. With the file of D's it is gone on from, whatever listing lies there.
static void test_sharded_other_save(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.interval = "2ba";
    life_here = 1;
    go_on_at(&p, "D", 0, 6);
    p.interval = "6ba";
    life_here = 2;
    go_on_at(&p, "B", 0, 6);
    life_wanted = 1;
    told_there = util_fmt("%s/B/ba6/__0_0.pt is of another save of that name than the one in rank 0's folder", p.dir);
    go_on_at(&p, "DB", 4, 0);
    told_there = NULL;
    life_wanted = 2;
    go_on_at(&p, "B", 6, 0);
    assert_int_equal(bucket_copy(util_join(p.dir, "D/ba6/__0_0.pt"), util_join(p.dir, "B/ba6/__0_0.pt")), CKPT_OK);
    life_wanted = 1;
    go_on_at(&p, "DB", 6, 0);
    life_wanted = life_here = 0;
}

// The job dies while several wait for a store that is away. The next one publishes those that are to be kept there and whose files
// are in the folder; the others are nobody's any more: their parts leave the store again, and nothing of them stays in the folder.
static member *in_flight_new(tr_rank *r, plan *p, ckpt_uploader **u) {
    member *m = member_new(r, p);
    bucket *to[] = { upload_to, (bucket *)p->with };
    member_stores(m, to, u, p->with != NULL ? 2 : 1);
    m->d.num_remote_to_keep = p->number;
    m->d.num_checkpoints_to_keep = p->keep;
    return m;
}

static void die_in_flight(tr_rank *r, void *arg) {
    ckpt_uploader *u[2];
    member *m = in_flight_new(r, (plan *)arg, u);
    TR_OK(r, ckpt_saver_open(&m->s, &m->d));
    for (int i = 1; i <= 3; i++) TR_OK(r, member_step(m, i));
    TR_OK(r, tr_barrier(r));
    if (r->rank == 0) (void)raise(SIGKILL);
}

static void resume_in_flight(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = in_flight_new(r, (plan *)arg, &u);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == ((plan *)arg)->saves);
        TR_OK(r, member_step(m, ((plan *)arg)->saves + 1));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

// Two ranks whose stores take nothing, and which are killed.
static void end_in_flight(const char *objects, void (*ends)(tr_rank *r, void *arg), plan *p) {
    pid_t child = fork();
    if (child == 0) {
        upload_to = bucket_new(objects);
        bucket_hold(upload_to, true);
        if (p->with != NULL) p->with = bucket_new(((bucket *)p->with)->dir);
        if (p->with != NULL) bucket_hold((bucket *)p->with, true);
        tr_run(tr_new(2), ends, p);
        _exit(1);
    }
    was_killed(child);
}

static void test_killed_in_flight(void **state) {
    (void)state;
    static const int kept[][2] = { { 1, CKPT_KEEP_NONE }, { CKPT_KEEP_ALL, CKPT_KEEP_NONE }, { 2, CKPT_KEEP_NONE }, { 3, 1 }, { 1, 2 } };
    static const char *const there[] = { "4", "1234", "34", "34", "4" };
    static const int ranks[] = { 2, 2, 3, 2, 1 };
    for (int k = 0; k < UTIL_COUNT(kept); k++) {
        for (int apart = 0; apart < (ranks[k] == 2 ? 2 : 1); apart++) {
            plan p = plan_of(SHARDED);
            p.number = kept[k][0];
            p.keep = kept[k][1];
            p.apart = apart == 1;
            const char *objects = util_temp_dir();
            end_in_flight(objects, die_in_flight, &p);
            upload_to = bucket_new(objects);
            p.saves = 3;
            tr_run(tr_new(ranks[k]), resume_in_flight, &p);
            const char *names = bucket_names(upload_to);
            for (int i = 1; i <= 4; i++) {
                bool here = strchr(there[k], '0' + i) != NULL;
                assert_true((strstr(names, util_fmt("run%%ba%d%%", i)) != NULL) == here);
                assert_true(bucket_has(upload_to, util_fmt("run/ba%d/.metadata", i)) == here);
            }
            for (int i = 0; i < (p.apart ? 2 : 1); i++) {
                const char *folder = p.apart ? util_join(p.dir, util_fmt("rank%d", i)) : p.dir;
                assert_null(strstr(names_in(folder), "ba1"));
                assert_null(strstr(names_in(folder), "ba2"));
                if (p.keep == CKPT_KEEP_NONE) assert_null(strstr(names_in(folder), "ba"));
            }
            bucket_end(upload_to);
        }
    }
}

// A listing goes, and the job is killed before it hears of that.
static void die_removing(bucket *b) {
    (void)unlink(bucket_path(b, "run/ba1/.metadata"));
    (void)raise(SIGKILL);
}

// A new machine with fewer ranks is killed when it has removed a listing: what that told of its files the next process knows as well.
static void test_killed_when_a_listing_went(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    upload_to = bucket_new(NULL);
    p.with = upload_to;
    p.keep = p.saves = 3;
    tr_run(tr_new(4), store_untold, &p);
    p.with = NULL;
    p.dir = util_temp_dir();
    p.keep = p.number = 1;
    pid_t child = fork();
    if (child == 0) {
        upload_to = bucket_new(upload_to->dir);
        upload_to->before = "remove run/ba1/.metadata";
        upload_to->then = die_removing;
        tr_run(tr_new(2), resume_in_flight, &p);
        _exit(1);
    }
    was_killed(child);
    assert_false(bucket_has(upload_to, "run/ba1/.metadata"));
    assert_true(bucket_has(upload_to, "run/ba1/__3_0.pt"));
    p.saves = 4;
    tr_run(tr_new(2), resume_in_flight, &p);
    assert_string_equal(bucket_names(upload_to), "run%ba5%.metadata run%ba5%__0_0.pt run%ba5%__1_0.pt run%latest.pt.symlink");
    bucket_end(upload_to);
}

// The folder was copied with its links followed (scp -r): where the link was there is a copy of the checkpoint. It stays, under another
// name, and the run goes on.
static void copied_goes_on(tr_rank *r, void *arg) {
    ckpt_timestamp t;
    member *m = member_new(r, (plan *)arg);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 1);
        for (int i = 2; i <= 3; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end(m);
}

static void test_link_was_copied(void **state) {
    (void)state;
    static const char *const files[] = { ".metadata", "__0_0.pt", "__1_0.pt" };
    for (int kept = 0; kept < 2; kept++) {
        plan p = plan_of(SHARDED);
        p.keep = p.saves = 1;
        tr_run(tr_new(2), save_some, &p);
        const char *link = util_join(p.dir, "latest-rank0.pt"), *aside = util_join(p.dir, kept ? "latest-rank0.pt.kept-2" : "latest-rank0.pt.kept");
        assert_int_equal(unlink(link), 0);
        util_mkdir(link);
        for (int i = 0; i < UTIL_COUNT(files); i++)
            if (bucket_copy(util_join(util_join(p.dir, "ba1"), files[i]), util_join(link, files[i])) != CKPT_OK) fail();
        if (kept) util_mkdir(util_join(p.dir, "latest-rank0.pt.kept"));
        tr_run(tr_new(2), copied_goes_on, &p);
        assert_string_equal(names_in(p.dir), kept ? "ba3 latest-rank0.pt latest-rank0.pt.kept latest-rank0.pt.kept-2"
                                                  : "ba3 latest-rank0.pt latest-rank0.pt.kept");
        char to[300] = "";
        assert_true(readlink(link, to, sizeof to - 1) > 0);
        assert_string_equal(to, "ba3");
        assert_string_equal(names_in(aside), ".metadata __0_0.pt __1_0.pt");
    }
}

// The store is away still: each rank asks it for one object, and not for all that were left. What was handed over goes when it is back.
static void resume_away(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = in_flight_new(r, (plan *)arg, &u);
    m->d.resume_offline = true;
    if (member_open(m)) {
        ckpt__uploader_pause(u, 1);             // before it puts a file it asks as well
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 3);
        TR_OK(r, tr_barrier(r));
        if (r->rank == 0) {
            TR_CHECK(r, bucket_count(upload_to, "size run/ba1/__") + bucket_count(upload_to, "size run/ba2/__") == 0);
            TR_CHECK(r, bucket_count(upload_to, "size run/ba3/__") == 1);
        }
        TR_OK(r, tr_barrier(r));
        ckpt__uploader_pause(u, -1);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        all_fail(r, upload_to, NULL, 0);
        TR_OK(r, member_step(m, 4));
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        for (int64_t i = 0, there = 0; i < 1200 && there == 0; i++) {
            (void)!ckpt_uploader_wait(u, 0);
            (void)!ckpt_saver_wait(m->s, 0);
            ckpt__os_sleep(0.05);
            there = bucket_has(upload_to, "run/ba1/.metadata");
            TR_OK(r, tr_min(&there, 1, r));
        }
    }
    member_end_stores(m, &u, 1, true);
}

static void test_killed_in_flight_and_away(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    p.number = CKPT_KEEP_ALL;
    p.keep = 10;
    const char *objects = util_temp_dir();
    end_in_flight(objects, die_in_flight, &p);
    util_remove_tree(util_join(p.dir, ".ckpt-staging"));
    upload_to = bucket_new(objects);
    bucket_fail(upload_to, "put run|size run|get run", CKPT_NET, -1);
    tr_run(tr_new(2), resume_away, &p);
    for (int i = 1; i <= 4; i++) assert_true(bucket_has(upload_to, util_fmt("run/ba%d/.metadata", i)));
    bucket_end(upload_to);
}

// Another job, on other disks, has saved the same steps meanwhile, and what it has published is newer than what was left here: none of
// its files gives way to one that was left, whether the store tells at once or is away, or lets nobody in, when that is handed over
// again. Files that no listing tells of are no checkpoint: there what was left takes their place.
enum { NEWER_SEEN, NEWER_AWAY, NEWER_BARRED, NEWER_HALF, NEWER_CASES };

// The store tells of each object when it was put.
static ckpt_err stat_dated(ckpt_store *store, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    struct stat st;
    ckpt_err e = ckpt__store_custom_table.stat(store, name, out, t);
    if (e != CKPT_OK || stat(bucket_path(upload_to, name), &st) != 0) return e;
    unsigned long long put = (unsigned long long)st.st_mtim.tv_sec * 1000000ull + (unsigned long long)st.st_mtim.tv_nsec / 1000;
    (void)snprintf(out->mark, sizeof out->mark, "t%016llx%015d", put, 0);
    return e;
}

// A store without marks that tells of each object when it was put, in whole seconds, as sftp does.
static ckpt_err stat_timed(ckpt_store *store, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    struct stat st;
    ckpt_err e = ckpt__store_custom_table.stat(store, name, out, t);
    if (e == CKPT_OK && stat(bucket_path(upload_to, name), &st) == 0) out->modified = (double)st.st_mtim.tv_sec;
    return e;
}

static void overtake_in_flight(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    member *m = in_flight_new(r, (plan *)arg, &u);
    m->d.overwrite = true;
    if (member_open(m)) {
        for (int i = 1; i <= 3; i++) {
            ckpt_timestamp t = at_batch(i);
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, 10 + i);
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
        }
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

// Has the uploader dropped this rank's files of all three?
static int64_t are_dropped(ckpt_uploader *u, int rank) {
    int64_t all = 1;
    ckpt__os_mutex_lock(&u->lock);
    for (int i = 1; i <= 3; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "run/ba%d/__%d_0.pt", i, rank);
        if (ckpt__uploader_find_overtaken(u, name) == NULL) all = 0;
    }
    ckpt__os_mutex_unlock(&u->lock);
    return all;
}

static void resume_overtaken(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = in_flight_new(r, p, &u);
    m->d.resume_offline = true;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 3);
        member_check(m, 3);
        ckpt_err e = ckpt_saver_wait(m->s, 0);
        if (p->saves == NEWER_SEEN) TR_CHECK(r, e == CKPT_EXISTS);
        if (p->saves == NEWER_HALF) TR_CHECK(r, e == CKPT_OK);
        while (e != CKPT_OK) e = ckpt_saver_wait(m->s, 0);
        all_fail(r, upload_to, NULL, 0);
        TR_OK(r, member_step(m, 4));
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        int64_t over = p->saves != NEWER_AWAY && p->saves != NEWER_BARRED;
        for (int i = 0; i < 200 && over == 0; i++) {
            while (ckpt_uploader_wait(u, 0) != CKPT_OK) {}
            while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
            ckpt__os_sleep(0.05);
            over = are_dropped(u, r->rank);
            TR_OK(r, tr_min(&over, 1, r));
        }
        TR_CHECK(r, over != 0);
    }
    member_end_stores(m, &u, 1, p->saves != NEWER_HALF);
}

static void test_killed_in_flight_and_newer(void **state) {
    (void)state;
    static const char *const files[] = { ".metadata", "__0_0.pt", "__1_0.pt" };
    ckpt__store_table dated = ckpt__store_custom_table, timed = ckpt__store_custom_table;
    const ckpt__store_table *const tables[] = { &dated, &dated, &ckpt__store_custom_table, &timed };
    dated.stat = stat_dated;
    timed.stat = stat_timed;
    for (int k = 0; k < 4 * NEWER_CASES; k++) {
        plan p = plan_of(SHARDED), other = plan_of(SHARDED);
        p.number = other.number = CKPT_KEEP_ALL;
        p.keep = other.keep = 10;
        p.apart = other.apart = k / NEWER_CASES == 1;
        p.saves = k % NEWER_CASES;
        const char *objects = util_temp_dir();
        end_in_flight(objects, die_in_flight, &p);
        for (int i = 0; i < 2; i++) util_remove_tree(util_join(p.dir, p.apart ? util_fmt("rank%d/.ckpt-staging", i) : ".ckpt-staging"));
        upload_to = bucket_new(objects);
        upload_to->store->table = tables[k / NEWER_CASES];
        tr_run(tr_new(2), overtake_in_flight, &other);
        for (int i = 1; i <= 3 && p.saves == NEWER_HALF; i++) {
            assert_int_equal(unlink(bucket_path(upload_to, util_fmt("run/ba%d/.metadata", i))), 0);
            (void)unlink(bucket_path(upload_to, "run/latest.pt.symlink"));
        }
        ckpt_err why = p.saves == NEWER_AWAY ? CKPT_NET : p.saves == NEWER_BARRED ? CKPT_AUTH : CKPT_OK;
        if (why != CKPT_OK) bucket_fail(upload_to, "put run|size run|get run", why, -1);
        tr_run(tr_new(2), resume_overtaken, &p);
        for (int i = 0; i < 9; i++) {
            const char *name = util_fmt("ba%d/%s", i / 3 + 1, files[i % 3]), *dir = p.saves == NEWER_HALF ? p.dir : other.dir;
            if (p.apart) dir = util_join(dir, i % 3 == 2 ? "rank1" : "rank0");
            size_t here = 0, there = 0;
            const char *mine = util_read(util_join(dir, name), &here), *stored = util_read(bucket_path(upload_to, util_fmt("run/%s", name)), &there);
            assert_true(here == there && memcmp(mine, stored, here) == 0);
        }
        assert_string_equal(bucket_text(upload_to, "run/latest.pt.symlink"), "run/ba4");
        bucket_end(upload_to);
    }
}

// What a machine had staged when it was killed is not put over what another one has published, in a store that keeps no marks: a
// rank's file would make that unreadable, and a listing would as well. So it is whether the machine resumes, or is killed
// again before it does. What no listing tells of is sent.
static void die_with_staged(tr_rank *r, void *arg) {
    ckpt_uploader *u[2];
    member *m = in_flight_new(r, (plan *)arg, u);
    m->d.overwrite = true;              // as after a resume
    TR_OK(r, ckpt_saver_open(&m->s, &m->d));
    for (int i = 1; i <= 3; i++) TR_OK(r, member_step(m, i));
    TR_OK(r, tr_barrier(r));
    if (r->rank == 0) (void)raise(SIGKILL);
}

// The same when all ranks' files are there, and a listing is on its way.
static void die_with_listing(tr_rank *r, void *arg) {
    ckpt_uploader *u[2];
    member *m = in_flight_new(r, (plan *)arg, u);
    m->d.overwrite = true;
    TR_OK(r, ckpt_saver_open(&m->s, &m->d));
    if (r->rank == 0) bucket_hold_only(upload_to, ".metadata");
    TR_OK(r, tr_barrier(r));
    for (int i = 1; i <= 3; i++) TR_OK(r, member_step(m, i));
    for (int64_t i = 0, held = 0; i < 1200 && held == 0; i++) {
        (void)!ckpt_saver_wait(m->s, 0.05);
        held = r->rank != 0 || bucket_waiting(upload_to) > 0;
        TR_OK(r, tr_min(&held, 1, r));
    }
    if (r->rank == 0) (void)raise(SIGKILL);
}

static void open_what_was_left(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    ckpt_uploader *u;
    member *m = in_flight_new(r, p, &u);
    m->d.overwrite = true;
    if (member_open(m)) {
        ckpt_timestamp t;
        if (p->saves == 1) TR_OK(r, ckpt_saver_resume(m->s, &t));
        if (p->saves == 1) while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        TR_OK(r, ckpt_uploader_wait(u, 60));
    }
    member_end_stores(m, &u, 1, p->saves == 1);
}

static void test_staged_in_flight_and_published(void **state) {
    (void)state;
    ckpt__store_table timed = ckpt__store_custom_table;
    timed.stat = stat_timed;
    for (int k = 0; k < 6; k++) {
        plan p = plan_of(SHARDED), other = plan_of(SHARDED);
        p.number = other.number = CKPT_KEEP_ALL;
        p.keep = other.keep = 10;
        p.saves = k / 2 > 0;
        const char *objects = util_temp_dir();
        end_in_flight(objects, k / 2 == 2 ? die_with_listing : die_with_staged, &p);
        upload_to = bucket_new(objects);
        if (k % 2 == 1) upload_to->store->table = &timed;
        tr_run(tr_new(2), overtake_in_flight, &other);
        if (p.saves == 0) assert_int_equal(unlink(bucket_path(upload_to, "run/ba2/.metadata")), 0);
        tr_run(tr_new(2), open_what_was_left, &p);
        for (int i = 1; i <= 3; i++) {          // what had come before may have made the other's an edition of its own
            bool sent = p.saves == 0 && i == 2;
            const char *dir = util_join(sent ? p.dir : other.dir, util_fmt("ba%d", i));
            char *all = strdup(util_list(dir)), *save = NULL;
            int files = 0;
            for (char *name = strtok_r(all, "\n", &save); name != NULL; name = strtok_r(NULL, "\n", &save), files++) {
                size_t here = 0, there = 0;
                if (sent && name[0] == '.') continue;
                const char *mine = util_read(util_join(dir, name), &here);
                const char *stored = util_read(bucket_path(upload_to, util_fmt("run/ba%d/%s", i, name)), &there);
                assert_true(here == there && memcmp(mine, stored, here) == 0);
            }
            assert_int_equal(files, 3);
            free(all);
        }
        bucket_end(upload_to);
    }
}

// What the job itself had published by those names, and saved once more when it was killed, is no other machine's: the later one of
// its own takes the place of that, whether the store tells when it was put or not.
static void resume_replaced(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = in_flight_new(r, (plan *)arg, &u);
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 3);
        member_check(m, 3);
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

static void test_replaced_in_flight(void **state) {
    (void)state;
    ckpt__store_table timed = ckpt__store_custom_table;
    timed.stat = stat_timed;
    for (int k = 0; k < 4; k++) {
        plan p = plan_of(SHARDED);
        p.number = CKPT_KEEP_ALL;
        p.keep = 10;
        upload_to = bucket_new(NULL);
        tr_run(tr_new(2), overtake_in_flight, &p);
        end_in_flight(upload_to->dir, die_with_staged, &p);
        if (k % 2 == 1) util_remove_tree(util_join(p.dir, ".ckpt-staging"));
        if (k / 2 == 1) upload_to->store->table = &timed;
        tr_run(tr_new(2), resume_replaced, &p);
        for (int i = 1; i <= 3; i++) {
            size_t size = 0;
            const char *here = util_read(util_join(p.dir, util_fmt("ba%d/.metadata", i)), &size);
            assert_true(size > 0 && strncmp(here, bucket_text(upload_to, util_fmt("run/ba%d/.metadata", i)), size) == 0);
            for (int rank = 0; rank < 2; rank++) assert_true(bucket_has(upload_to, util_fmt("run/ba%d/__%d_1.pt", i, rank)));
        }
        bucket_end(upload_to);
    }
}

// Another machine has gone on for long when the one that was killed is back, and what that had staged is sent before it resumes: no
// store is to have it any more, and it goes with the next save that is published, though what was loaded is known from the store alone.
static void go_on_for_long(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    member *m = in_flight_new(r, (plan *)arg, &u);
    m->d.overwrite = true;
    if (member_open(m)) {
        for (int i = 1; i <= 8; i++) {
            ckpt_timestamp t = at_batch(i);
            t.sample = 10 * i;          // which no name tells
            TR_OK(r, ckpt_saver_fence(m->s));
            member_set(m, i);
            TR_OK(r, ckpt_saver_batch_end(m->s, &t));
            TR_OK(r, ckpt_saver_wait(m->s, 0));
        }
    }
    member_end_stores(m, &u, 1, false);
}

static void come_back_late(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = in_flight_new(r, (plan *)arg, &u);
    m->d.overwrite = true;
    if (member_open(m)) {
        TR_OK(r, ckpt_uploader_wait(u, 60));
        TR_OK(r, tr_barrier(r));
        TR_CHECK(r, bucket_has(upload_to, "run/ba1/__0_0.pt") && bucket_has(upload_to, "run/ba3/__1_0.pt"));
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, t.batch == 8);
        for (int i = 9; i <= 10; i++) TR_OK(r, member_step(m, i));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, &u, 1, false);
}

static void test_staged_in_flight_and_late(void **state) {
    (void)state;
    plan p = plan_of(SHARDED), other = plan_of(SHARDED);
    p.number = other.number = 2;
    p.keep = other.keep = 2;
    const char *objects = util_temp_dir();
    end_in_flight(objects, die_with_staged, &p);
    upload_to = bucket_new(objects);
    tr_run(tr_new(2), go_on_for_long, &other);
    tr_run(tr_new(2), come_back_late, &p);
    assert_string_equal(bucket_names(upload_to), "run%ba10%.metadata run%ba10%__0_0.pt run%ba10%__1_0.pt run%ba9%.metadata run%ba9%__0_0.pt "
                                                 "run%ba9%__1_0.pt run%latest.pt.symlink");
    bucket_end(upload_to);
}

// One of two stores has newer ones, and the other one gets those that were left. On no machine does a file leave the folder, for one
// store lacks them.
static void resume_overtaken_in_one(tr_rank *r, void *arg) {
    ckpt_uploader *u[2];
    ckpt_timestamp t;
    member *m = in_flight_new(r, (plan *)arg, u);
    m->d.resume_offline = true;
    if (member_open(m)) {
        TR_OK(r, ckpt_saver_resume(m->s, &t));
        TR_CHECK(r, ckpt_saver_wait(m->s, 0) == CKPT_EXISTS);
        while (ckpt_saver_wait(m->s, 0) != CKPT_OK) {}
        TR_OK(r, member_step(m, 4));
        TR_OK(r, ckpt_saver_wait(m->s, 0));
    }
    member_end_stores(m, u, 2, true);
}

static void test_killed_in_flight_and_newer_in_one(void **state) {
    (void)state;
    plan p = plan_of(SHARDED), other = plan_of(SHARDED);
    ckpt__store_table table = ckpt__store_custom_table;
    table.stat = stat_dated;
    p.number = other.number = CKPT_KEEP_ALL;
    p.keep = CKPT_KEEP_NONE;
    p.apart = true;
    bucket *second = bucket_new(NULL);
    p.with = second;
    end_in_flight(util_temp_dir(), die_in_flight, &p);
    for (int i = 0; i < 2; i++) util_remove_tree(util_join(p.dir, util_fmt("rank%d/.ckpt-staging", i)));
    upload_to = bucket_new(NULL);
    upload_to->store->table = &table;
    tr_run(tr_new(2), overtake_in_flight, &other);
    tr_run(tr_new(2), resume_overtaken_in_one, &p);
    for (int i = 1; i <= 3; i++) {
        assert_true(bucket_has(second, util_fmt("run/ba%d/.metadata", i)));
        for (int rank = 0; rank < 2; rank++) assert_true(util_exists(util_join(p.dir, util_fmt("rank%d/ba%d/__%d_0.pt", rank, i, rank))));
    }
    bucket_end(upload_to);
    bucket_end(second);
}

// One of those that were left is damaged, and known to be: it is not published.
static void die_again_in_flight(tr_rank *r, void *arg) {
    ckpt_uploader *u;
    ckpt_timestamp t;
    member *m = in_flight_new(r, (plan *)arg, &u);
    TR_OK(r, ckpt_saver_open(&m->s, &m->d));
    TR_OK(r, ckpt_saver_resume(m->s, &t));
    TR_CHECK(r, t.batch == 2);
    TR_OK(r, member_step(m, 4));
    TR_OK(r, member_step(m, 5));
    TR_OK(r, tr_barrier(r));
    if (r->rank == 0) (void)raise(SIGKILL);
}

static void test_killed_in_flight_and_damaged(void **state) {
    (void)state;
    static const int kept[] = { CKPT_KEEP_ALL, 10 };
    for (int k = 0; k < UTIL_COUNT(kept); k++) {
        plan p = plan_of(SHARDED);
        p.number = kept[k];
        p.keep = 10;
        const char *objects = util_temp_dir();
        for (int life = 0; life < 2; life++) {
            if (life == 1) flip_in(p.dir, "ba3/__1_0.pt");
            end_in_flight(objects, life == 0 ? die_in_flight : die_again_in_flight, &p);
        }
        upload_to = bucket_new(objects);
        p.saves = 5;
        tr_run(tr_new(2), resume_in_flight, &p);
        for (int i = 1; i <= 6; i++) assert_true(bucket_has(upload_to, util_fmt("run/ba%d/.metadata", i)) == (i != 3));
        if (kept[k] == 10) assert_null(strstr(bucket_names(upload_to), "run%ba3%"));       // nor is what was there already kept
        bucket_end(upload_to);
    }
}

// A run goes on while another program loads what its link leads to: all of it is of one checkpoint, also without checksums.
static const char *moving_link, *moving_to;

static void move_link(const char *name, const char *path, int fd) {
    char way[40], of[4096];
    const char *to = moving_to;
    (void)path;
    (void)snprintf(way, sizeof way, "/proc/self/fd/%d", fd);
    ssize_t n = to != NULL && strcmp(name, "close") == 0 ? readlink(way, of, sizeof of - 1) : -1;
    if (n > 0) of[n] = 0;
    if (n <= 0 || !ckpt__txt_ends(of, "/.metadata")) return;
    moving_to = NULL;                   // it has been read
    (void)unlink(moving_link);
    (void)!symlink(to, moving_link);
}

static void load_moving(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = p->filename;
    d.state = &m->st;
    d.no_verify = p->number == 1;
    moving_to = "ba2";
    fault_watch = move_link;
    TR_OK(r, ckpt_load(&d, NULL));
    fault_watch = NULL;
    TR_CHECK(r, moving_to == NULL && strcmp(util_link_target(moving_link), "ba2") == 0);
    TR_CHECK(r, m->step == 1 || m->step == 2);
    member_check(m, m->step);
    member_free(m);
}

static void test_link_moves(void **state) {
    (void)state;
    plan p = plan_of(SHARDED);
    moving_link = util_join(p.dir, "latest-rank0.pt");
    p.saves = 2;
    tr_run(tr_new(2), save_some, &p);
    for (int how = 0; how < 6; how++) {
        assert_int_equal(unlink(moving_link), 0);
        assert_int_equal(symlink("ba1", moving_link), 0);
        p.number = how % 2;
        p.filename = how < 2 ? moving_link : util_fmt(how < 4 ? "%s/" : "file://%s", moving_link);
        tr_run(tr_new(1), load_moving, &p);
    }
}

// It moves on after one rank has looked where it leads, and before the other does: both load the same.
static ckpt_err met_barrier(void *user) {
    __atomic_store_n(&moving_to, "", __ATOMIC_SEQ_CST);
    return tr_barrier(user);
}

static void load_apart(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = p->filename;
    d.state = &m->st;
    d.ranks = r->ranks;
    if (r->rank == 0) d.ranks.barrier = met_barrier;
    while (r->rank == 1 && __atomic_load_n(&moving_to, __ATOMIC_SEQ_CST) == NULL) ckpt__os_sleep(0.001);
    if (r->rank == 1) TR_CHECK(r, unlink(moving_link) == 0 && symlink(p->latest, moving_link) == 0);
    TR_OK(r, ckpt_load(&d, NULL));
    member_check(m, 2);
    member_free(m);
}

static void test_link_moves_between(void **state) {
    (void)state;
    static const char *const names[] = { "ba{batch}", "ba{batch}/model" };         // one name in a folder of each moment, too
    for (int how = 0; how < 8; how++) {
        plan p = plan_of(how % 2 == 0 ? SHARDED : WHOLE);
        const char *name = names[how / 4], *from = how < 4 ? "ba1" : "ba1/model", *to = how < 4 ? "ba2" : "ba2/model";
        moving_link = util_join(p.dir, "latest-rank0.pt");
        p.saves = 2;
        p.prefix = name;
        if (how % 2 != 0) p.filename = util_fmt("%s.pt", name);
        tr_run(tr_new(2), save_some, &p);
        assert_int_equal(unlink(moving_link), 0);
        assert_int_equal(symlink(how % 2 == 0 ? from : util_fmt("%s.pt", from), moving_link), 0);
        p.latest = how % 2 == 0 ? to : util_fmt("%s.pt", to);
        p.filename = util_fmt(how / 2 % 2 == 0 ? "%s" : "file://%s", moving_link);
        moving_to = NULL;
        tr_run(tr_new(2), load_apart, &p);
    }
}

// A file, or an object, is replaced under its name after one rank has opened it, and before the other does: both load the same.
static void save_untimed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    for (int i = 1; i <= 2; i++) {
        member_set(m, i);
        TR_OK(r, ckpt_save(util_join(p->dir, util_fmt("ba%d.pt", i)), &m->st, NULL));
    }
    member_free(m);
}

static void load_replaced(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = p->filename;
    d.state = &m->st;
    d.ranks = r->ranks;
    if (r->rank == 0) d.ranks.barrier = met_barrier;
    while (r->rank == 1 && __atomic_load_n(&moving_to, __ATOMIC_SEQ_CST) == NULL) ckpt__os_sleep(0.001);
    if (r->rank == 1) TR_CHECK(r, rename(p->latest, moving_link) == 0);
    TR_OK(r, ckpt_load(&d, NULL));
    member_check(m, 2);
    member_free(m);
}

static void test_load_replaced(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        plan p = plan_of(WHOLE);
        p.saves = 2;
        tr_run(tr_new(1), how % 2 == 0 ? save_some : save_untimed, &p);
        moving_link = util_join(p.dir, "ba1.pt");
        p.latest = util_join(p.dir, "ba2.pt");
        p.filename = util_fmt(how < 2 ? "%s" : "file://%s", moving_link);
        moving_to = NULL;
        tr_run(tr_new(2), load_replaced, &p);
    }
}

// To one rank it is the folder of a sharded checkpoint, and to the other a file; or one is strict, and the other not. They would not meet
// in the same hooks: it is refused on both, and nothing is loaded on either.
static void load_mixed(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = r->rank == 1 ? p->latest : p->filename;
    d.state = &m->st;
    d.ranks = r->ranks;
    d.not_strict = p->number == r->rank + 1;
    TR_CHECK(r, ckpt_load(&d, NULL) == p->want);
    member_check(m, 0);
    member_free(m);
}

static void test_load_mixed(void **state) {
    (void)state;
    plan p = plan_of(SHARDED), q = plan_of(WHOLE);
    p.saves = q.saves = 1;
    tr_run(tr_new(2), save_some, &p);
    tr_run(tr_new(2), save_some, &q);
    const char *folder = util_join(p.dir, "ba1"), *file = util_join(q.dir, "ba1.pt");
    for (int k = 0; k < 6; k++) {
        plan *o = k == 0 || k == 2 || k == 3 ? &p : &q;
        o->filename = k == 0 || k == 2 || k == 3 ? folder : file;
        o->latest = k == 1 || k == 2 || k == 3 ? folder : file;
        o->number = k < 2 ? 0 : k % 2 + 1;
        o->want = k < 2 ? CKPT_MISMATCH : CKPT_ARG;
        tr_run(tr_new(2), load_mixed, o);
    }
}

// Loads what a path leads to that is another one for rank 0 than for the others.
static ckpt_err load_led_apart(tr_rank *r, const plan *p, member *m) {
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = p->latest;
    d.run_name = r->rank == 0 ? "a" : "b";
    d.state = &m->st;
    d.ranks = r->ranks;
    ckpt_err e = ckpt_load(&d, NULL);
    if (e != p->want) print_error("%s\n", ckpt_last_error());
    TR_CHECK(r, e == p->want);
    return e;
}

// One path that leads ranks to different folders, as machines have their own. Where these are of one step it is loaded; where they are
// not, rank 0's is, if the others have that one, too; and else it is refused, before anything is loaded.
static void load_own(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_err e = load_led_apart(r, p, m);
    if (e != CKPT_OK) TR_CHECK(r, e == CKPT_MISMATCH && strstr(ckpt_last_error(), "/latest") != NULL);
    member_check(m, e == CKPT_OK ? 2 : 0);
    member_free(m);
}

static void test_load_own_folders(void **state) {
    (void)state;
    enum { ALIKE, OTHER_WAY, BEHIND, LACKS, AHEAD, MIXED, CASES };
    static const int own[CASES][2] = { { 2, 2 }, { 2, 2 }, { 2, 1 }, { 2, 1 }, { 1, 2 }, { 2, 2 } };
    for (int how = 0; how < 2; how++) {
        for (int k = 0; k < CASES; k++) {
            const layout first = how == 0 ? SHARDED : WHOLE, other = how == 0 ? WHOLE : SHARDED;
            plan p = plan_of(first);
            const char *dir = p.dir, *end = how == 0 || k == MIXED ? "" : ".pt";
            for (int i = 0; i < 2; i++) {
                p.dir = util_join(dir, i == 0 ? "a" : "b");
                p.how = k == MIXED && i == 1 ? other : first;
                p.filename = k == MIXED && p.how == WHOLE ? "ba{batch}" : NULL;        // one name for both kinds
                p.saves = 2;
                tr_run(tr_new(2), save_some, &p);
                const char *target = util_fmt("ba%d%s", own[k][i], end), *gone = NULL, *link = util_join(p.dir, "latest-rank0.pt");
                if (k == OTHER_WAY) gone = target;
                if (k == LACKS || k == AHEAD) gone = util_fmt("ba%d%s", k == LACKS ? 2 : 1, end);
                if (i == 1 && gone != NULL) assert_int_equal(rename(util_join(p.dir, gone), util_join(p.dir, "moved")), 0);
                assert_int_equal(unlink(link), 0);
                assert_int_equal(symlink(k == OTHER_WAY && i == 1 ? "moved" : target, link), 0);
            }
            p.how = first;
            p.latest = util_fmt("%s/{run_name}/latest-rank0.pt", dir);
            p.want = k < LACKS ? CKPT_OK : CKPT_MISMATCH;
            tr_run(tr_new(2), load_own, &p);
        }
    }
}

// Files of one name that are others on each machine, and say of no step: each rank loads its own, as it always did. Of steps that differ
// it is refused.
static void load_each(tr_rank *r, void *arg) {
    plan *p = (plan *)arg;
    member *m = member_new(r, p);
    ckpt_err e = load_led_apart(r, p, m);
    member_check(m, e == CKPT_OK ? r->rank + 1 : 0);
    member_free(m);
}

static void test_load_each_its_own(void **state) {
    (void)state;
    for (int timed = 0; timed < 2; timed++) {
        plan p = plan_of(WHOLE);
        p.saves = 2;
        tr_run(tr_new(1), timed ? save_some : save_untimed, &p);
        for (int i = 1; i <= 2; i++) {
            util_mkdir(util_join(p.dir, i == 1 ? "a" : "b"));
            assert_int_equal(rename(util_join(p.dir, util_fmt("ba%d.pt", i)), util_join(p.dir, i == 1 ? "a/x.pt" : "b/x.pt")), 0);
        }
        p.latest = util_join(p.dir, "{run_name}/x.pt");
        if (timed) p.want = CKPT_MISMATCH;
        tr_run(tr_new(2), load_each, &p);
    }
}

//-- memory ---------------------------------------------------------------------------

typedef struct thrift { plan p; int64_t left[TR_MOST]; int victim; int64_t at; bool ran_out; pthread_mutex_t lock; } thrift;
typedef struct purse { thrift *t; int rank; } purse;

static void *purse_alloc(void *ptr, size_t old_size, size_t new_size, void *user) {
    purse *u = (purse *)user;
    (void)old_size;
    if (new_size == 0) { free(ptr); return NULL; }
    pthread_mutex_lock(&u->t->lock);
    bool fails = u->t->left[u->rank] > 0 && --u->t->left[u->rank] == 0;
    if (fails) u->t->ran_out = true;
    pthread_mutex_unlock(&u->t->lock);
    return fails ? NULL : realloc(ptr, new_size);
}

// One allocation of one rank fails: the ranks stay in step, all get the same, and nothing is lost.
static void thrifty(tr_rank *r, void *arg) {
    thrift *t = (thrift *)arg;
    purse u = { t, r->rank };
    member *m = member_new(r, &t->p);
    m->d.allocator.fn = purse_alloc;
    m->d.allocator.user = &u;
    m->st.allocator = m->d.allocator;
    t->left[r->rank] = r->rank == t->victim ? t->at : 0;
    ckpt_err e = ckpt_saver_open(&m->s, &m->d);
    ckpt_timestamp at;
    if (e == CKPT_OK) {
        e = ckpt_saver_resume(m->s, &at);
        if (e == CKPT_NOT_FOUND) e = CKPT_OK;
    }
    for (int i = 1; i <= 3 && e == CKPT_OK; i++) {
        e = member_step(m, i);
        if (e == CKPT_OK) e = ckpt_saver_wait(m->s, 0);
    }
    if (e == CKPT_OK) e = ckpt_saver_resume(m->s, &at);
    (void)snprintf(t->p.text[r->rank], sizeof t->p.text[0], "%d", (int)e);
    if (m->s != NULL) (void)!ckpt_saver_close(m->s, 0);
    m->s = NULL;
    member_free(m);
}

static void test_memory(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int victim = 0; victim < 2; victim++) {
            for (int64_t at = 1;; at += at < 40 ? 1 : 7) {
                thrift t;
                memset(&t, 0, sizeof t);
                pthread_mutex_init(&t.lock, NULL);
                t.p.how = (layout)how;
                t.p.dir = util_temp_dir();
                t.p.keep = 2;
                t.victim = victim;
                t.at = at;
                tr_world *w = tr_new(2);
                w->no_gather = (at & 1) != 0;
                tr_run(w, thrifty, &t);
                assert_string_equal(t.p.text[0], t.p.text[1]);
                util_remove_tree(t.p.dir);
                pthread_mutex_destroy(&t.lock);
                if (!t.ran_out) break;
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_cases), cmocka_unit_test(test_layout_cases),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_walk_back),
        cmocka_unit_test(test_uncommitted), cmocka_unit_test(test_index_lost),
        cmocka_unit_test(test_tars_passed_over), cmocka_unit_test(test_tars_pinned), cmocka_unit_test(test_tars_gc_killed),
        cmocka_unit_test(test_tars_over_sharded), cmocka_unit_test(test_other_layout), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_apart_unsaid), cmocka_unit_test(test_apart_exchanged),
        cmocka_unit_test(test_whole_apart), cmocka_unit_test(test_whole_apart_no_temp), cmocka_unit_test(test_whole_apart_copy_unread),
        cmocka_unit_test(test_whole_moved), cmocka_unit_test(test_whole_unseen), cmocka_unit_test(test_whole_unseen_newest),
        cmocka_unit_test(test_whole_unseen_newest_of_some), cmocka_unit_test(test_apart_unseen), cmocka_unit_test(test_whole_unmarked),
        cmocka_unit_test(test_whole_unheld), cmocka_unit_test(test_whole_replaced), cmocka_unit_test(test_whole_moved_stored),
        cmocka_unit_test(test_whole_shared_is_not_read),
        cmocka_unit_test(test_held_by_one),
        cmocka_unit_test(test_tars_none_common),
        cmocka_unit_test(test_first_lost), cmocka_unit_test(test_half_lost),
        cmocka_unit_test(test_first_new), cmocka_unit_test(test_pinned_unlisted),
        cmocka_unit_test(test_tars_other_world),
        cmocka_unit_test(test_one_fails), cmocka_unit_test(test_fails_and_is_asked_for),
        cmocka_unit_test(test_fails_in_passing), cmocka_unit_test(test_fails_beside_a_slow_one),
        cmocka_unit_test(test_fails_in_a_row), cmocka_unit_test(test_fails_while_late), cmocka_unit_test(test_fails_twice),
        cmocka_unit_test(test_untold), cmocka_unit_test(test_close_while_blocks_are_freed),
        cmocka_unit_test(test_twice), cmocka_unit_test(test_killed_between_listings),
        cmocka_unit_test(test_left_in_first_upload), cmocka_unit_test(test_left_by_lost_machine),
        cmocka_unit_test(test_goes_on_with_another_store),
        cmocka_unit_test(test_left_and_published_later), cmocka_unit_test(test_saves_unseen),
        cmocka_unit_test(test_saves_over_published),
        cmocka_unit_test(test_thrice_unread), cmocka_unit_test(test_again_fails), cmocka_unit_test(test_again_over_many),
        cmocka_unit_test(test_again_while_uploaded), cmocka_unit_test(test_again_named), cmocka_unit_test(test_tars_exchanged),
        cmocka_unit_test(test_tars_exchanged_other_world), cmocka_unit_test(test_tars_exchanged_unseen),
        cmocka_unit_test(test_tars_exchanged_alone), cmocka_unit_test(test_tars_exchanged_back), cmocka_unit_test(test_tars_exchanged_passing),
        cmocka_unit_test(test_tars_exchanged_unasked), cmocka_unit_test(test_tars_exchanged_long),
        cmocka_unit_test(test_tars_exchanged_nameless), cmocka_unit_test(test_tars_other_history),
        cmocka_unit_test(test_counted_number_no_reason), cmocka_unit_test(test_listed_latest_stays),
        cmocka_unit_test(test_sharded_from_a_file_in_a_store), cmocka_unit_test(test_sharded_other_save), cmocka_unit_test(test_tars_exchanged_gone),
        cmocka_unit_test(test_again_while_removed), cmocka_unit_test(test_pinned_and_away), cmocka_unit_test(test_pinned_by_one), cmocka_unit_test(test_pinned_and_unlisted),
        cmocka_unit_test(test_pinned_on_the_way),
        cmocka_unit_test(test_hidden_files_left), cmocka_unit_test(test_open_full_disk),
        cmocka_unit_test(test_sentence_stays),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_at_second),
        cmocka_unit_test(test_calls_between), cmocka_unit_test(test_numbers_differ), cmocka_unit_test(test_one_object),
        cmocka_unit_test(test_one_latest), cmocka_unit_test(test_wakes_late),
        cmocka_unit_test(test_tars_unfinished), cmocka_unit_test(test_tars_unfinished_twice),
        cmocka_unit_test(test_death_at_first),
        cmocka_unit_test(test_listing_unseen), cmocka_unit_test(test_tar_unseen), cmocka_unit_test(test_tar_unnamed),
        cmocka_unit_test(test_differs),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nothing_to_save), cmocka_unit_test(test_saves_less), cmocka_unit_test(test_begins_anew),
        cmocka_unit_test(test_moments_apart),
        cmocka_unit_test(test_waits_in_barrier),
        cmocka_unit_test(test_abandons_in_barrier),
        cmocka_unit_test(test_request), cmocka_unit_test(test_epochs_alone),
        cmocka_unit_test(test_apart_one_gone),
        cmocka_unit_test(test_whole_after_sharded),
        cmocka_unit_test(test_whole_after_tars),
        cmocka_unit_test(test_run_of_rank_0), cmocka_unit_test(test_counts_apart), cmocka_unit_test(test_last_steps),
        cmocka_unit_test(test_past_the_end), cmocka_unit_test(test_apart_at_the_end),
        cmocka_unit_test(test_cadence),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_store_fewer), cmocka_unit_test(test_store_untold_fewer), cmocka_unit_test(test_store_untold_behind),
        cmocka_unit_test(test_store_out_of_step), cmocka_unit_test(test_store_overtaken),
        cmocka_unit_test(test_store_waits_in_barrier), cmocka_unit_test(test_chdir_before_the_listing),
        cmocka_unit_test(test_chdir_after_a_failure), cmocka_unit_test(test_chdir_before_the_first_save),
        cmocka_unit_test(test_uploaded_while_one_was_elsewhere),
        cmocka_unit_test(test_store_only),
        cmocka_unit_test(test_store_fails),
        cmocka_unit_test(test_fails_once_for_all), cmocka_unit_test(test_store_away), cmocka_unit_test(test_store_robbed), cmocka_unit_test(test_wait_for_nothing),
        cmocka_unit_test(test_given_up_again),  cmocka_unit_test(test_hand_over_three),  cmocka_unit_test(test_store_refuses),
        cmocka_unit_test(test_store_speaks_once),
        cmocka_unit_test(test_outdone_unwritten),
        cmocka_unit_test(test_store_gone), cmocka_unit_test(test_listing_unstaged), cmocka_unit_test(test_listing_unstaged_at_end),
        cmocka_unit_test(test_store_away_again),
        cmocka_unit_test(test_store_others),
        cmocka_unit_test(test_store_tars),
        cmocka_unit_test(test_tars_offline), cmocka_unit_test(test_tars_replaced), cmocka_unit_test(test_folders_replaced),
        cmocka_unit_test(test_tars_fetched), cmocka_unit_test(test_tars_best), cmocka_unit_test(test_tars_best_of_some),
        cmocka_unit_test(test_tars_best_unread), cmocka_unit_test(test_tars_two_unread), cmocka_unit_test(test_tars_best_unread_in_store),
        cmocka_unit_test(test_tars_unseen), cmocka_unit_test(test_tars_unasked),
        cmocka_unit_test(test_tars_renamed), cmocka_unit_test(test_tars_led_nowhere), cmocka_unit_test(test_tars_found),
        cmocka_unit_test(test_tars_wait_for_nothing),
        cmocka_unit_test(test_tars_led_to),
        cmocka_unit_test(test_tars_gone_back), cmocka_unit_test(test_tars_behind),
        cmocka_unit_test(test_tars_overtaken), cmocka_unit_test(test_store_again), cmocka_unit_test(test_store_again_and_again),
        cmocka_unit_test(test_store_remove_fails), cmocka_unit_test(test_store_ending_changes), cmocka_unit_test(test_store_index), cmocka_unit_test(test_tars_too_fast),
        cmocka_unit_test(test_close_says_timeout_when_open),
        cmocka_unit_test(test_store_left), cmocka_unit_test(test_killed_in_flight), cmocka_unit_test(test_killed_in_flight_and_away),
        cmocka_unit_test(test_killed_in_flight_and_damaged), cmocka_unit_test(test_killed_in_flight_and_newer),
        cmocka_unit_test(test_staged_in_flight_and_published), cmocka_unit_test(test_replaced_in_flight),
        cmocka_unit_test(test_staged_in_flight_and_late),
        cmocka_unit_test(test_killed_in_flight_and_newer_in_one),
        cmocka_unit_test(test_killed_when_a_listing_went), cmocka_unit_test(test_link_was_copied),
        cmocka_unit_test(test_link_moves), cmocka_unit_test(test_link_moves_between), cmocka_unit_test(test_load_replaced),
        cmocka_unit_test(test_load_mixed), cmocka_unit_test(test_load_own_folders), cmocka_unit_test(test_load_each_its_own),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
