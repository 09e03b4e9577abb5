/* test_user.c: programs as users write them, against the public names, and what went wrong in the first of them. */
// run.sh: tsan
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include "saver_util.h"

//-- what went wrong ---------------------------------------------------------------

// A refusal because of later files is a failure like any other: close returns the first one ever.
static void test_conflict_is_a_failure(void **state) {
    (void)state;
    run *r = run_new(util_temp_dir());
    run_open(r);
    run_save(r, 5);
    run_end(r);
    r = run_new(r->dir);
    run_open(r);
    ckpt_timestamp t = at_batch(1);
    assert_int_equal(ckpt_saver_batch_end(r->s, &t), CKPT_EXISTS);
    assert_int_equal(ckpt_saver_close(r->s, 0), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "later time"));
    ckpt_state_free(&r->st);
}

// Resuming on another machine: the attached file is in the checkpoint only, and the saver has to open before it is back.
static void test_attached_file_comes_back(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *attached = util_join(dir, "vocabulary.txt");
    for (int mode = 0; mode < 3; mode++) {
        util_write_text(attached, "a b c\n");
        run *r = run_new(util_join(dir, util_fmt("mode%d", mode)));
        r->d.filename = "ba{batch}.tar";
        r->d.latest_filename = "latest.tar";
        r->d.snapshot = (ckpt_snapshot)mode;
        ckpt_bind_file(&r->st, "vocabulary", attached);
        run_open(r);
        run_save(r, 3);
        ok(ckpt_saver_close(r->s, 0));
        assert_int_equal(unlink(attached), 0);
        run_set(r, 0);
        run_open(r);
        ckpt_timestamp t = at_batch(0);
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.batch, 3);
        run_check(r, 3);
        size_t size;
        assert_string_equal(util_read(attached, &size), "a b c\n");
        run_save(r, 4);
        assert_int_equal(unlink(attached), 0);
        t = at_batch(5);
        (void)!ckpt_saver_save(r->s, &t);                   // LAZY and COPY take the file in the call as well
        assert_int_equal(ckpt_saver_close(r->s, 0), CKPT_NOT_FOUND);
        ckpt_state_free(&r->st);
    }
}

// A constant name: killed after the rename and before the index, the line tells of the file before. Resuming sets it right.
static void test_line_of_the_file_before(void **state) {
    (void)state;
    static float more[20000];
    const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl");
    run *r = run_new(dir);
    r->d.filename = "model.pt";
    r->d.overwrite = true;
    run_open(r);
    run_save(r, 5);
    ok(ckpt_saver_close(r->s, 0));
    size_t size;
    char *before = util_read(index, &size);
    ckpt_bind_f32(&r->st, "state/more", more, 20000);
    run_open(r);
    run_save(r, 9);
    ok(ckpt_saver_close(r->s, 0));
    util_write(index, before, size);
    run_open(r);
    ckpt_timestamp t = at_batch(0);
    ok(ckpt_saver_resume(r->s, &t));
    assert_int_equal(t.batch, 9);
    run_end(r);

    ckpt_folder *f;
    ckpt_folder_desc d;
    ckpt_checkpoint c;
    memset(&d, 0, sizeof d);
    d.folder = dir;
    ok(ckpt_folder_open(&f, &d));
    assert_int_equal(ckpt_folder_count(f), 1);
    ok(ckpt_folder_entry(f, 0, &c));
    assert_int_equal(c.timestamp.batch, 9);
    assert_true(c.size == c.recorded_size);
    assert_false(c.has_checksum);
    ckpt_folder_close(f);
}

// The metric stands in the checkpoint too: the best one is known, and stays, after the index is lost or a line of it damaged.
static void test_best_survives_a_lost_index(void **state) {
    (void)state;
    static const char *const names[] = { "ba{batch}.pt", "ba{batch}.safetensors", "ba{batch}.tar", "ba{batch}.pt.gz" };
    for (int i = 0; i < UTIL_COUNT(names) * 2; i++) {
        const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl");
        run *r = run_new(dir);
        r->d.filename = names[i / 2];
        r->d.latest_filename = "latest";
        r->d.keep_best = "max:state/metrics/loss";
        r->d.num_checkpoints_to_keep = 1;
        run_open(r);
        run_save(r, 2);                 // loss 10, the best that there is
        run_save(r, 3);                 // 4
        ok(ckpt_saver_close(r->s, 0));
        if (i % 2 == 0) assert_int_equal(unlink(index), 0);
        else util_flip(index, 20, 1);
        run_open(r);
        ckpt_timestamp t = at_batch(0);
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.batch, 3);
        run_save(r, 4);                 // 9
        assert_int_equal(ckpt_saver_checkpoints(r->s, NULL), 2);
        assert_true(util_exists(util_join(dir, util_fmt("ba2%s", strchr(names[i / 2], '.')))));
        run_end(r);
    }
}

static void save_up_to(run *r, int from, int to) {
    for (int i = from; i <= to; i++) {
        ckpt_timestamp t = at_batch(i);
        r->loss = i == 2 ? 0.1 : i < 13 ? 1 : 0.9;
        ok(ckpt_saver_save(r->s, &t));
    }
}

// What weights alone do not hold, or an ignore key takes away, only the index knew: what may be the best or one of every fifth save
// stays when that is lost or damaged, and again in the lives after that one. What files do say is believed.
static void test_unknown_stay(void **state) {
    (void)state;
    static const char *const metrics[] = { "state/metrics/*" }, *const callbacks[] = { "state/callbacks/*" };
    static const struct {
        bool weights, sharded;
        const char *const *ignored;
        int  every;
        const char *best, *lost, *damaged;      // what is left after two more lives; damaged: the line of the best, or of w5
    } rows[] = {
        { false, false, NULL,      5, "min:state/metrics/loss", "w10 w15 w16 w2 w5", "w10 w15 w16 w2 w5" },
        { true,  false, NULL,      0, "min:state/metrics/loss", "w12 w13 w16 w2", "w13 w16 w2" },
        { true,  false, NULL,      5, NULL,                     "w10 w12 w14 w16 w5", "w10 w15 w16 w5" },
        { true,  true,  NULL,      0, "min:state/metrics/loss", "w12 w13 w16 w2", "w13 w16 w2" },
        { false, true,  NULL,      5, "min:state/metrics/loss", "w10 w15 w16 w2 w5", "w10 w15 w16 w2 w5" },
        { false, false, metrics,   0, "min:state/metrics/loss", "w12 w13 w16 w2", "w13 w16 w2" },
        { false, false, callbacks, 5, NULL,                     "w10 w12 w14 w16 w5", "w10 w15 w16 w5" },
    };
    for (int i = 0; i < UTIL_COUNT(rows) * 2; i++) {
        const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl"), *left = i % 2 == 0 ? rows[i / 2].lost : rows[i / 2].damaged;
        run *r = run_new(dir);
        r->d.filename = "w{batch}";
        r->d.sharded = rows[i / 2].sharded;
        r->d.sharded_prefix_dir = "w{batch}";
        r->d.latest_filename = CKPT_NONE;
        r->d.weights_only = rows[i / 2].weights;
        r->d.ignore_keys = rows[i / 2].ignored;
        r->d.ignore_keys_count = rows[i / 2].ignored != NULL;
        r->d.keep_every = rows[i / 2].every;
        r->d.keep_best = rows[i / 2].best;
        r->d.num_checkpoints_to_keep = 1;
        if (!r->d.sharded) r->d.filename = "w{batch}.pt";
        run_open(r);
        save_up_to(r, 1, 12);
        ok(ckpt_saver_close(r->s, 0));
        if (i % 2 == 0) assert_int_equal(unlink(index), 0);
        else util_flip(index, 20, 1);
        for (int last = 13; last <= 16; last += 3) {
            ckpt_timestamp t = at_batch(0);
            run_open(r);
            ok(ckpt_saver_resume(r->s, &t));
            save_up_to(r, last == 13 ? 13 : 14, last);
            ok(ckpt_saver_close(r->s, 0));
        }
        char *names = util_fmt("%s", names_in(dir));
        for (char *dot = names; (dot = strstr(dot, ".pt")) != NULL; ) memmove(dot, dot + 3, strlen(dot + 3) + 1);
        if (strcmp(names, left) != 0) fail_msg("case %d: %s instead of %s", i, names, left);
        bool told = strstr(r->log, "the index has lost which saves") != NULL;
        assert_int_equal(told, r->d.weights_only || r->d.ignore_keys != NULL);
        r->s = NULL;
        run_end(r);
    }
}

// `scp host:run/latest.pt run/` leaves a checkpoint where the link should be: it is resumed from, and the next link does not
// replace the only checkpoint that there is. `cp -rL` leaves a copy besides, which the link may replace.
static void test_latest_is_a_file(void **state) {
    (void)state;
    static const char *const names[] = { "ba{batch}.pt", "ep{epoch}/ba{batch}.pt", "ba{batch}.safetensors", "ba{batch}.pt.gz" };
    for (int i = 0; i < UTIL_COUNT(names) * 2; i++) {
        run *r = run_new(util_temp_dir());
        r->d.filename = names[i / 2];
        const char *latest = util_join(r->dir, "latest.pt"), *index = util_join(r->dir, ".ckpt-index.jsonl");
        run_open(r);
        run_save(r, 7);
        const char *const *paths;
        assert_int_equal(ckpt_saver_checkpoints(r->s, &paths), 1);
        const char *file = util_fmt("%s", paths[0]);
        ok(ckpt_saver_close(r->s, 0));
        size_t size;
        char *bytes = util_read(file, &size);
        assert_int_equal(unlink(latest), 0);
        util_write(latest, bytes, size);
        if (i % 2 == 0) {
            assert_int_equal(unlink(file), 0);
            assert_int_equal(unlink(index), 0);
            (void)rmdir(util_join(r->dir, "ep0"));
        }
        run_set(r, 0);
        run_open(r);
        ckpt_timestamp t = at_batch(0);
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.batch, 7);
        run_check(r, 7);
        assert_true(util_exists(file));
        struct stat st;
        assert_true(lstat(latest, &st) == 0 && S_ISLNK(st.st_mode));
        run_save(r, 8);
        assert_int_equal(ckpt_saver_checkpoints(r->s, NULL), 2);
        run_end(r);
    }
}

// A link cannot take the place of a folder, nor the other way round: told at open, not after hours.
static void test_latest_is_no_folder(void **state) {
    (void)state;
    static const char *const names[][2] = { { "a/ba{batch}.pt", "a" }, { "model.pt", "model.pt/latest" },
                                            { "ep{epoch}/ba{batch}.pt", "ep{epoch}" } };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        run *r = run_new(util_temp_dir());
        r->d.filename = names[i][0];
        r->d.latest_filename = names[i][1];
        assert_int_equal(ckpt_saver_open(&r->s, &r->d), CKPT_ARG);
        assert_non_null(strstr(ckpt_last_error(), "folder"));
        ckpt_state_free(&r->st);
    }
}

// torch.load(weights_only=True) of torch 1.13 knows no Python floats: what the saver adds by itself holds none.
static void test_own_record_has_no_floats(void **state) {
    (void)state;
    run *r = run_new(util_temp_dir());
    run_open(r);
    for (int i = 1; i < 4; i++) run_save(r, i);
    run_end(r);
    ckpt_file *f;
    ckpt_entry e;
    int own = 0;
    ok(ckpt_file_open(&f, util_join(r->dir, "latest.pt")));
    for (int i = 0; i < ckpt_file_count(f); i++) {
        ok(ckpt_file_entry(f, i, &e));
        if (strncmp(e.name, "state/callbacks/CheckpointSaver/", 32) != 0) continue;
        assert_int_not_equal(e.kind, CKPT_KIND_FLOAT);
        own++;
    }
    assert_int_equal(own, 1 + 3 * 11);
    ckpt_file_close(f);
}

//-- programs ----------------------------------------------------------------------

// A language model in the manner of llm.c: many tensors of mixed types, some on a device, a sampler's state, several savers.
enum { LAYERS = 12, DIM = 96 };

typedef struct model {
    ckpt_state st;
    float      master[LAYERS][DIM * DIM], m[LAYERS][DIM * DIM];
    uint16_t   half[LAYERS][DIM], device[LAYERS][DIM * 4];
    double     lr, loss;
    int64_t    position, expect;
    uint64_t   rng;
    char       note[64];
    pthread_mutex_t lock;
    int        inside, most, copies;
} model;

static ckpt_err device_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    model *m = (model *)user;
    (void)to_device;
    (void)pthread_mutex_lock(&m->lock);
    if (++m->inside > m->most) m->most = m->inside;
    m->copies++;
    (void)pthread_mutex_unlock(&m->lock);
    memcpy(dst, src, size);
    (void)pthread_mutex_lock(&m->lock);
    m->inside--;
    (void)pthread_mutex_unlock(&m->lock);
    return CKPT_OK;
}

static void bind_tensor(ckpt_state *st, const char *name, ckpt_dtype dtype, int64_t rows, int64_t columns, void *data, bool device) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.ndim = 2;
    t.shape[0] = rows;
    t.shape[1] = columns;
    t.data = data;
    t.device = device;
    ckpt_bind(st, name, &t);
}

static model *model_new(void) {
    model *m = (model *)util_keep(calloc(1, sizeof *m), false);
    (void)pthread_mutex_init(&m->lock, NULL);
    m->st.copy = device_copy;
    m->st.copy_user = m;
    for (int i = 0; i < LAYERS; i++) {
        bind_tensor(&m->st, util_fmt("state/model/h.%d.w", i), CKPT_F32, DIM, DIM, m->master[i], false);
        bind_tensor(&m->st, util_fmt("state/model/h.%d.ln", i), CKPT_BF16, 1, DIM, m->half[i], false);
        bind_tensor(&m->st, util_fmt("state/model/h.%d.cache", i), CKPT_F16, 4, DIM, m->device[i], true);
        bind_tensor(&m->st, util_fmt("state/optimizers/AdamW/state/h.%d.w/exp_avg", i), CKPT_F32, DIM, DIM, m->m[i], false);
    }
    ckpt_bind_float(&m->st, "state/optimizers/AdamW/param_groups/[0]/lr", &m->lr);
    ckpt_bind_float(&m->st, "state/metrics/loss", &m->loss);
    ckpt_bind_int(&m->st, "state/dataset/position", &m->position);
    ckpt_bind_bytes(&m->st, "rng/0/xorshift", &m->rng, sizeof m->rng);
    ckpt_bind_text(&m->st, "state/note", m->note, sizeof m->note);
    return m;
}

// Everything is a function of the batch, so that any two runs can be compared.
static void model_step(model *m, int64_t batch) {
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < DIM * DIM; k++) { m->master[i][k] = (float)(batch + i * k); m->m[i][k] = (float)(batch - k); }
        for (int k = 0; k < DIM; k++) m->half[i][k] = (uint16_t)(batch * 3 + k);
        for (int k = 0; k < DIM * 4; k++) m->device[i][k] = (uint16_t)(batch * 5 + k + i);
    }
    m->lr = 1.0 / (double)(batch + 1);
    m->loss = fabs((double)(batch - 13)) / 3;
    m->position = batch * 1000003;
    m->rng = (uint64_t)batch * 0x9E3779B97F4A7C15u;
    (void)snprintf(m->note, sizeof m->note, "at batch %d", (int)batch);
}

static void model_check(const model *m, int64_t batch) {
    model *want = (model *)util_keep(calloc(1, sizeof *want), false);
    model_step(want, batch);
    assert_memory_equal(m->master, want->master, sizeof m->master);
    assert_memory_equal(m->m, want->m, sizeof m->m);
    assert_memory_equal(m->half, want->half, sizeof m->half);
    assert_memory_equal(m->device, want->device, sizeof m->device);
    assert_true(m->lr == want->lr && m->loss == want->loss && m->position == want->position && m->rng == want->rng);
    assert_string_equal(m->note, want->note);
}

static void train(model *m, const char *dir, ckpt_snapshot mode, size_t staging, int64_t until) {
    ckpt_saver *all, *weights;
    ckpt_saver_desc a, w;
    memset(&a, 0, sizeof a);
    memset(&w, 0, sizeof w);
    a.state = w.state = &m->st;
    a.folder = util_join(dir, "all");
    w.folder = util_join(dir, "weights");
    a.run_name = w.run_name = "{odd} run";
    a.filename = "{run_name}-ep{epoch:02d}-ba{batch:04d}.pt";
    a.save_interval = "2ba";
    a.num_checkpoints_to_keep = 2;
    a.keep_every = 5;
    a.keep_best = "min:state/metrics/loss";
    w.filename = "ep{epoch}.safetensors";
    w.latest_filename = "latest.safetensors";
    w.weights_only = true;
    a.snapshot = w.snapshot = mode;
    a.max_staging_bytes = staging;
    ok(ckpt_saver_open(&all, &a));
    ok(ckpt_saver_open(&weights, &w));
    ckpt_timestamp t, tw;
    memset(&t, 0, sizeof t);
    ckpt_err e = ckpt_saver_resume(all, &t);
    if (e != CKPT_NOT_FOUND) ok(e);
    if (t.batch > 0) model_check(m, t.batch);
    e = ckpt_saver_resume(weights, &tw);        // only takes the folder over: the weights at hand are overwritten below
    if (e != CKPT_NOT_FOUND) ok(e);
    while (t.batch < until) {
        ok(ckpt_saver_fence(all));
        ok(ckpt_saver_fence(weights));
        ckpt_next_batch(&t, 4, 4096, 0.5);
        model_step(m, t.batch);
        ok(ckpt_saver_batch_end(all, &t));
        ok(ckpt_saver_batch_end(weights, &t));
        if (t.batch % 10 != 0) continue;
        ckpt_next_epoch(&t, 5);
        ok(ckpt_saver_epoch_end(all, &t));
        ok(ckpt_saver_epoch_end(weights, &t));
    }
    ok(ckpt_saver_close(all, 0));
    ok(ckpt_saver_close(weights, 0));
}

static void test_language_model(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        const char *dir = util_temp_dir();
        model *m = model_new();
        train(m, dir, (ckpt_snapshot)(i % 3), i < 3 ? 0 : 4096, 17);
        ckpt_state_free(&m->st);
        m = model_new();
        train(m, dir, (ckpt_snapshot)((i + 1) % 3), 0, 32);
        assert_true(m->copies > 0);
        if (i == 0) assert_int_equal(m->most, 1);           // one saver at a time in this mode; else one thread of each
        // The best is 12: 14 has the same loss, and comes later. Every 5th save is 10, 20, 30; the newest two are 30 and 32.
        assert_string_equal(names_in(util_join(dir, "all")),
                            "latest-rank0.pt {odd} run-ep00-ba0010.pt {odd} run-ep01-ba0012.pt {odd} run-ep01-ba0020.pt "
                            "{odd} run-ep02-ba0030.pt {odd} run-ep03-ba0032.pt");
        assert_string_equal(names_in(util_join(dir, "weights")),
                            "ep1.safetensors ep2.safetensors ep3.safetensors latest.safetensors");
        // Fine-tuning: the weights alone, into a fresh model.
        model *fresh = model_new();
        ckpt_load_desc l;
        memset(&l, 0, sizeof l);
        l.load_path = util_join(dir, "weights/latest.safetensors");
        l.state = &fresh->st;
        l.load_weights_only = true;
        ok(ckpt_load(&l, NULL));
        assert_true(fresh->master[3][7] == 30 + 3 * 7 && fresh->m[3][7] == 0 && fresh->position == 0);
        ckpt_state_free(&fresh->st);
        ckpt_state_free(&m->st);
    }
}

// Orphans of a killed trainer, its data loaders for one, do not keep the folder locked.
static void test_orphans_hold_nothing(void **state) {
    (void)state;
    run *r = run_new(util_temp_dir());
    int go[2], status;
    assert_int_equal(pipe(go), 0);
    pid_t trainer = fork();
    if (trainer == 0) {
        run_open(r);
        if (fork() == 0) {              // the loader: lives until the test lets go of the pipe
            char c;
            (void)close(go[1]);
            while (read(go[0], &c, 1) < 0) { }
            _exit(0);
        }
        (void)kill(getpid(), SIGKILL);
    }
    (void)close(go[0]);
    assert_int_equal(waitpid(trainer, &status, 0), trainer);
    run_open(r);
    run_save(r, 1);
    (void)close(go[1]);
    run_end(r);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conflict_is_a_failure),
        cmocka_unit_test(test_attached_file_comes_back),
        cmocka_unit_test(test_line_of_the_file_before),
        cmocka_unit_test(test_best_survives_a_lost_index), cmocka_unit_test(test_unknown_stay),
        cmocka_unit_test(test_latest_is_no_folder),
        cmocka_unit_test(test_latest_is_a_file),
        cmocka_unit_test(test_own_record_has_no_floats),
        cmocka_unit_test(test_language_model),
        cmocka_unit_test(test_orphans_hold_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
