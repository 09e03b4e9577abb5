/* fault_util.h: the state, the folder and the checks that the fault tests share. Include it after ckpt.h.

   One state is bound in every test: its contents are a function of a number, so that a loaded checkpoint tells which one it is,
   and whether it is whole.
*/
#ifndef FAULT_UTIL_H
#define FAULT_UTIL_H

#include "../util.h"

enum { FAULT_FLOATS = 70000, FAULT_BYTES = 5000 };

typedef struct model {
    float         *w;
    float          bias[33];
    unsigned char  rng[FAULT_BYTES];
    int64_t        step;
    double         loss;
    bool           warm;
    char           note[40];
    ckpt_state     st;
} model;

// Fills every value from `number`.
UTIL_FN void model_set(model *m, int number) {
    for (int i = 0; i < FAULT_FLOATS; i++) m->w[i] = (float)(number * 1000 + i % 997);
    for (int i = 0; i < 33; i++) m->bias[i] = (float)(number - i);
    memset(m->rng, number, sizeof m->rng);
    m->step = number;
    m->loss = 1.0 / (number + 1);
    m->warm = number % 2 == 1;
    snprintf(m->note, sizeof m->note, "this is number %d", number);
}

// Is everything that of `number`?
UTIL_FN bool model_is(const model *m, int number) {
    char note[40];
    snprintf(note, sizeof note, "this is number %d", number);
    for (int i = 0; i < FAULT_FLOATS; i++) if (m->w[i] != (float)(number * 1000 + i % 997)) return false;
    for (int i = 0; i < 33; i++) if (m->bias[i] != (float)(number - i)) return false;
    for (int i = 0; i < FAULT_BYTES; i++) if (m->rng[i] != (unsigned char)number) return false;
    return m->step == number && m->loss == 1.0 / (number + 1) && m->warm == (number % 2 == 1) && strcmp(m->note, note) == 0;
}

UTIL_FN void model_open(model *m, const ckpt_allocator *a) {
    ckpt_tensor t;
    memset(m, 0, sizeof *m);
    memset(&t, 0, sizeof t);
    m->w = (float *)malloc(FAULT_FLOATS * sizeof(float));
    if (m->w == NULL) util_die("no memory for", "a model");
    if (a != NULL) m->st.allocator = *a;
    t.dtype = CKPT_F32;
    t.ndim = 2;
    t.shape[0] = FAULT_FLOATS / 100;
    t.shape[1] = 100;
    t.data = m->w;
    ckpt_bind(&m->st, "state/model/w", &t);
    ckpt_bind_f32(&m->st, "state/model/bias", m->bias, 33);
    ckpt_bind_bytes(&m->st, "rng/0/python", m->rng, sizeof m->rng);
    ckpt_bind_int(&m->st, "state/step", &m->step);
    ckpt_bind_float(&m->st, "state/optimizers/Adam/param_groups/[0]/loss", &m->loss);
    ckpt_bind_bool(&m->st, "state/warm", &m->warm);
    ckpt_bind_text(&m->st, "state/note", m->note, sizeof m->note);
    model_set(m, 0);
}

UTIL_FN void model_close(model *m) {
    ckpt_state_free(&m->st);
    free(m->w);
    m->w = NULL;
}

UTIL_FN ckpt_timestamp batch_time(int batch) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = t.batch_in_epoch = batch;
    t.sample = t.sample_in_epoch = 8 * batch;
    t.total_wct = batch;
    return t;
}

// Loads `path` into a fresh model and returns its number, -1 when it does not load or is not whole.
UTIL_FN int number_in(const char *path) {
    model m;
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    model_open(&m, NULL);
    d.load_path = path;
    d.state = &m.st;
    int number = ckpt_load(&d, NULL) == CKPT_OK && model_is(&m, (int)m.step) ? (int)m.step : -1;
    model_close(&m);
    return number;
}

UTIL_FN ckpt_saver_desc saver_desc(model *m, const char *folder, ckpt_snapshot snapshot, const char *filename) {
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    d.state = &m->st;
    d.folder = folder;
    d.filename = filename;
    d.run_name = "faults";
    d.save_interval = "1ba";
    d.snapshot = snapshot;
    d.num_checkpoints_to_keep = 2;
    d.allocator = m->st.allocator;
    return d;
}

// What a run did: the newest batch whose checkpoint the saver has called durable, and the first failure.
typedef struct run_report {
    int      acked;
    ckpt_err first;
    char     sentence[1024];
} run_report;

UTIL_FN void run_note(run_report *r, ckpt_err e) {
    if (e == CKPT_OK || e == CKPT_NOT_FOUND || r->first != CKPT_OK) return;
    r->first = e;
    snprintf(r->sentence, sizeof r->sentence, "%s", ckpt_last_error());
}

// A run of a saver from one batch to another. With `resume` it goes on from what is there first.
UTIL_FN run_report run_saver(model *m, const char *folder, ckpt_snapshot snapshot, const char *filename, bool resume, int from, int to) {
    run_report r;
    ckpt_saver *s = NULL;
    memset(&r, 0, sizeof r);
    ckpt_saver_desc d = saver_desc(m, folder, snapshot, filename);
    ckpt_err e = ckpt_saver_open(&s, &d);
    run_note(&r, e);
    if (e != CKPT_OK) return r;
    if (resume) {
        ckpt_timestamp at;
        run_note(&r, ckpt_saver_resume(s, &at));
    }
    for (int b = from; b <= to; b++) {
        ckpt_timestamp t = batch_time(b);
        run_note(&r, ckpt_saver_fence(s));
        model_set(m, b);
        e = ckpt_saver_batch_end(s, &t);
        if (e == CKPT_OK) e = ckpt_saver_wait(s, 0);
        run_note(&r, e);
        if (e == CKPT_OK) r.acked = b;
    }
    run_note(&r, ckpt_saver_close(s, 0));
    return r;
}

// Names in the folder that a closed saver must not leave.
UTIL_FN bool has_litter(const char *folder) {
    const char *names = util_list(folder);
    return strstr(names, ".tmp") != NULL || strstr(names, "lock") != NULL;
}

UTIL_FN void util_drop_dir(const char *path) {
    util_remove_tree(path);
}

#endif // FAULT_UTIL_H
