/* saver_util.h: a small training run with a saver, for the tests of saving and resuming. After ckpt.h and util.h. */
#ifndef SAVER_UTIL_H
#define SAVER_UTIL_H

//-- a small training run ----------------------------------------------------------

enum { WEIGHTS = 3000 };

typedef struct run {
    ckpt_state      st;
    float           w[WEIGHTS];
    double          loss;
    int64_t         step;
    ckpt_saver_desc d;
    ckpt_saver     *s;
    const char     *dir;
    char            log[16384];
} run;

UTIL_FN void run_log(ckpt_log_level level, const char *msg, void *user) {
    run *r = (run *)user;
    size_t n = strlen(r->log);
    (void)snprintf(r->log + n, sizeof r->log - n, "%d %s\n", (int)level, msg);
}

// What training has made of the state after `step` steps.
UTIL_FN void run_set(run *r, int64_t step) {
    r->step = step;
    for (int i = 0; i < WEIGHTS; i++) r->w[i] = (float)(step * 7 + i);
    r->loss = (double)((step * 5) % 11);
}

UTIL_FN void run_check(const run *r, int64_t step) {
    assert_int_equal(r->step, step);
    for (int i = 0; i < WEIGHTS; i++) assert_true(r->w[i] == (float)(step * 7 + i));
    assert_true(r->loss == (double)((step * 5) % 11));
}

UTIL_FN run *run_new(const char *dir) {
    run *r = (run *)util_keep(calloc(1, sizeof *r), false);
    r->dir = dir;
    ckpt_bind_f32(&r->st, "state/model/w", r->w, WEIGHTS);
    ckpt_bind_float(&r->st, "state/metrics/loss", &r->loss);
    ckpt_bind_int(&r->st, "state/step", &r->step);
    r->d.state = &r->st;
    r->d.folder = dir;
    r->d.run_name = "r";
    r->d.filename = "ba{batch}.pt";
    r->d.latest_filename = "latest.pt";
    r->d.save_interval = "1ba";
    r->d.logger.fn = run_log;
    r->d.logger.user = r;
    run_set(r, 0);
    return r;
}

// Binds four floats in the memory of a device, which `copy` reads and writes.
UTIL_FN void run_bind_device(run *r, float cell[4], ckpt_err (*copy)(void *dst, const void *src, size_t size, bool to_device, void *user), void *user) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 1;
    t.shape[0] = 4;
    t.data = cell;
    t.device = true;
    r->st.copy = copy;
    r->st.copy_user = user;
    ckpt_bind(&r->st, "state/model/device", &t);
}

#define ok(call) util_ok((call), #call, __FILE__, __LINE__)
UTIL_FN void util_ok(ckpt_err e, const char *what, const char *file, int line) {
    if (e == CKPT_OK) return;
    print_error("%s: %s: %s\n", what, ckpt_err_name(e), ckpt_last_error());
    _fail(file, line);
}

#define run_open(r) ok(ckpt_saver_open(&(r)->s, &(r)->d))

UTIL_FN void run_end(run *r) {
    ok(ckpt_saver_close(r->s, 0));
    r->s = NULL;
    ckpt_state_free(&r->st);
}

UTIL_FN ckpt_timestamp at_batch(int64_t batch) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = t.batch_in_epoch = batch;
    return t;
}

UTIL_FN void run_save(run *r, int64_t step) {
    ckpt_timestamp t = at_batch(step);
    run_set(r, step);
    ok(ckpt_saver_save(r->s, &t));
    ok(ckpt_saver_fence(r->s));
}

// A folder of checkpoints as a tool sees it.
UTIL_FN ckpt_folder *look_into(const char *dir) {
    ckpt_folder *f = NULL;
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = dir;
    ok(ckpt_folder_open(&f, &d));
    return f;
}

UTIL_FN int at_name(const ckpt_folder *f, const char *name) {
    int at = ckpt_folder_find(f, name);
    if (at < 0) fail_msg("there is no %s", name);
    return at;
}

UTIL_FN void pin(const char *dir, const char *name, bool pinned) {
    ckpt_folder *f = look_into(dir);
    ok(ckpt_folder_pin(f, at_name(f, name), pinned));
    ckpt_folder_close(f);
}

// The names in the folder but the library's own, "a b c".
UTIL_FN const char *names_in(const char *dir) { return util_names(dir, NULL); }

// What a file holds must be what training had made at `step`.
UTIL_FN void check_file(const char *path, int64_t step) {
    run *r = run_new(".");
    ckpt_load_desc l;
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = &r->st;
    ckpt_timestamp t;
    ok(ckpt_load(&l, &t));
    run_check(r, step);
    assert_int_equal(t.batch, step);
    ckpt_state_free(&r->st);
}

static const ckpt_snapshot modes[] = { CKPT_SNAPSHOT_NONE, CKPT_SNAPSHOT_COPY, CKPT_SNAPSHOT_LAZY };

//-- Composer's tables -------------------------------------------------------------

UTIL_FN ckpt__json_doc cases_json(const char *name) {
    size_t size;
    char *text = util_read(util_tests_path(util_fmt("cases/%s", name)), &size);
    ckpt__json_doc d;
    ckpt_allocator a = { NULL, NULL };
    ok(ckpt__json_parse(&d, &a, text, size));
    return d;
}

UTIL_FN const char *field_text(const ckpt__json_doc *d, const ckpt__json *o, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, o, key);
    return v != NULL && v->kind == CKPT__JSON_TEXT ? v->text : NULL;
}

// saver_layout.json: a row of one rank of a sharded checkpoint that two ranks write.
UTIL_FN bool layout_of_two(const ckpt__json_doc *d, const ckpt__json *row) {
    return field_text(d, row, "sharded_prefix_dir") != NULL && field_text(d, ckpt__json_get(d, row, "env"), "LOCAL_RANK") != NULL;
}

UTIL_FN int64_t field_int(const ckpt__json_doc *d, const ckpt__json *o, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, o, key);
    return v != NULL && v->kind == CKPT__JSON_INT ? v->i : 0;
}

#endif // SAVER_UTIL_H
