/* ranks_train.h: the training of 14_ranks_mpi.c and 15_ranks_tcp.c: a network of one hidden layer whose rows are split over the ranks,
   weights and Adam's moments alike. It saves sharded checkpoints and resumes from them on any number of ranks. After ckpt.h.

   Every sum over ranks is one of integers, so the weights do not depend, in any bit, on how many ranks there are: the hash that it
   prints shows whether a resume has brought back everything. */
#ifndef RANKS_TRAIN_H
#define RANKS_TRAIN_H

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAIN_INPUTS = 32, TRAIN_SAMPLES = 8, TRAIN_PARTS = 3 };

typedef struct train_run {
    const ckpt_ranks *ranks;
    int64_t rows, first, mine;                              // of all ranks; the first one here, and how many there are here
    float  *w[TRAIN_PARTS], *out[TRAIN_PARTS], *h;          // [0] weights, [1] and [2] Adam's moments: of the layer, of the way out
    int64_t step, data_rng, own_rng;
    double  loss;
    float   x[TRAIN_SAMPLES][TRAIN_INPUTS], target[TRAIN_SAMPLES], error[TRAIN_SAMPLES];
} train_run;

static volatile sig_atomic_t train_stop;
static ckpt_saver           *train_saver;

static double train_random(int64_t *s) {            // splitmix64, in [-1, 1)
    uint64_t z = (uint64_t)(*s = (int64_t)((uint64_t)*s + 0x9e3779b97f4a7c15u));
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1;
}

static void train_free(train_run *t) {
    for (int k = 0; k < TRAIN_PARTS; k++) free(t->w[k]), free(t->out[k]);
    free(t->h);
}

// Each row is drawn from its own number, whoever holds it.
static bool train_init(train_run *t, const ckpt_ranks *ranks, int64_t rows) {
    memset(t, 0, sizeof *t);
    t->ranks = ranks;
    t->rows = rows;
    t->first = rows * ranks->rank / ranks->world_size;
    t->mine = rows * (ranks->rank + 1) / ranks->world_size - t->first;
    t->data_rng = 1;
    t->own_rng = 1000 + ranks->rank;
    t->h = (float *)calloc((size_t)t->mine * TRAIN_SAMPLES + 1, sizeof(float));
    for (int k = 0; k < TRAIN_PARTS; k++) {
        t->w[k] = (float *)calloc((size_t)t->mine * TRAIN_INPUTS + 1, sizeof(float));
        t->out[k] = (float *)calloc((size_t)t->mine + 1, sizeof(float));
        if (t->w[k] == NULL || t->out[k] == NULL || t->h == NULL) return false;
    }
    for (int64_t i = 0; i < t->mine; i++) {
        int64_t rng = (t->first + i) * 7919;
        for (int j = 0; j < TRAIN_INPUTS; j++) t->w[0][i * TRAIN_INPUTS + j] = (float)train_random(&rng) * 0.3f;
        t->out[0][i] = (float)train_random(&rng);
    }
    return true;
}

// A piece of a tensor: rows [first, first + mine) of all rows.
static void train_bind_rows(ckpt_state *st, const train_run *t, const char *name, float *data, int columns) {
    ckpt_tensor piece;
    memset(&piece, 0, sizeof piece);
    piece.dtype = CKPT_F32;
    piece.ndim = columns > 1 ? 2 : 1;
    piece.shape[0] = t->mine;
    piece.global_shape[0] = t->rows;
    piece.offset[0] = t->first;
    piece.shape[1] = piece.global_shape[1] = columns > 1 ? columns : 0;
    piece.data = data;
    ckpt_bind(st, name, &piece);
}

static void train_bind(ckpt_state *st, train_run *t) {
    static const char *const names[TRAIN_PARTS][2] = {
        { "state/model/layer.weight", "state/model/out.weight" },
        { "state/optimizers/Adam/layer.weight/exp_avg", "state/optimizers/Adam/out.weight/exp_avg" },
        { "state/optimizers/Adam/layer.weight/exp_avg_sq", "state/optimizers/Adam/out.weight/exp_avg_sq" } };
    char rng[64];
    for (int k = 0; k < TRAIN_PARTS; k++) {
        train_bind_rows(st, t, names[k][0], t->w[k], TRAIN_INPUTS);
        train_bind_rows(st, t, names[k][1], t->out[k], 1);
    }
    ckpt_bind_int(st, "state/optimizers/Adam/step", &t->step);      // the same on all ranks: written once
    ckpt_bind_int(st, "state/dataset/rng", &t->data_rng);
    ckpt_bind_float(st, "state/metrics/loss", &t->loss);
    snprintf(rng, sizeof rng, "rng/%d/splitmix", t->ranks->rank);   // each rank's own: under a name of its own
    ckpt_bind_int(st, rng, &t->own_rng);
}

// Sums over all ranks, by the checkpoint's hooks. A real job has its NCCL or MPI_Allreduce here.
static ckpt_err train_sum(const ckpt_ranks *ranks, int64_t *values, int count) {
    size_t size = (size_t)count * sizeof *values;
    if (ranks->gather == NULL) return CKPT_OK;
    int64_t *all = (int64_t *)calloc((size_t)ranks->world_size, size);
    ckpt_err e = all == NULL ? CKPT_NOMEM : ranks->gather(values, size, ranks->rank == 0 ? all : NULL, ranks->user);
    for (int r = 1; r < ranks->world_size && ranks->rank == 0 && e == CKPT_OK; r++)
        for (int k = 0; k < count; k++) values[k] = (int64_t)((uint64_t)values[k] + (uint64_t)all[r * count + k]);
    free(all);
    return e == CKPT_OK ? ranks->broadcast(values, size, 0, ranks->user) : e;
}

// What the network says to the next samples, and by how much it is wrong. Weights are only read.
static ckpt_err train_forward(train_run *t, int64_t *stop) {
    int64_t sums[TRAIN_SAMPLES + 1];
    memset(sums, 0, sizeof sums);
    for (int b = 0; b < TRAIN_SAMPLES; b++) {
        for (int j = 0; j < TRAIN_INPUTS; j++) t->x[b][j] = (float)train_random(&t->data_rng);
        t->target[b] = sinf(3 * t->x[b][0]) * t->x[b][1];
        for (int64_t i = 0; i < t->mine; i++) {
            float pre = 0;
            for (int j = 0; j < TRAIN_INPUTS; j++) pre += t->w[0][i * TRAIN_INPUTS + j] * t->x[b][j];
            t->h[i * TRAIN_SAMPLES + b] = tanhf(pre);
            sums[b] += llrint((double)t->out[0][i] * (double)t->h[i * TRAIN_SAMPLES + b] * 1073741824.0);
        }
    }
    sums[TRAIN_SAMPLES] = *stop;            // a signal that one rank has had stops all of them at the same step
    ckpt_err e = train_sum(t->ranks, sums, TRAIN_SAMPLES + 1);
    *stop = sums[TRAIN_SAMPLES];
    double loss = 0;
    for (int b = 0; b < TRAIN_SAMPLES; b++) {
        t->error[b] = (float)((double)sums[b] / 1073741824.0 / sqrt((double)t->rows)) - t->target[b];
        loss += (double)t->error[b] * (double)t->error[b] / (double)TRAIN_SAMPLES;
    }
    t->loss = t->step == 0 ? loss : 0.98 * t->loss + 0.02 * loss;
    return e;
}

static void train_adam(const train_run *t, float *w, float *m, float *v, float gradient) {
    float c1 = 1 - powf(0.9f, (float)t->step), c2 = 1 - powf(0.999f, (float)t->step);
    *m = 0.9f * *m + 0.1f * gradient;
    *v = 0.999f * *v + 0.001f * gradient * gradient;
    *w -= 0.002f * (*m / c1) / (sqrtf(*v / c2) + 1e-8f);
}

// Weights change here.
static void train_update(train_run *t) {
    t->step++;
    (void)train_random(&t->own_rng);        // what a rank draws for itself, dropout for instance
    for (int64_t i = 0; i < t->mine; i++) {
        float out = t->out[0][i], gradient_out = 0, before[TRAIN_SAMPLES];
        for (int b = 0; b < TRAIN_SAMPLES; b++) {
            float h = t->h[i * TRAIN_SAMPLES + b];
            gradient_out += t->error[b] * h;
            before[b] = t->error[b] * out * (1 - h * h);
        }
        for (int j = 0; j < TRAIN_INPUTS; j++) {
            float gradient = 0;
            int64_t at = i * TRAIN_INPUTS + j;
            for (int b = 0; b < TRAIN_SAMPLES; b++) gradient += before[b] * t->x[b][j];
            train_adam(t, &t->w[0][at], &t->w[1][at], &t->w[2][at], gradient);
        }
        train_adam(t, &t->out[0][i], &t->out[1][i], &t->out[2][i], gradient_out);
    }
}

// Of everything that is split, over all ranks: a sum of the rows' hashes.
static ckpt_err train_hash(const train_run *t, uint64_t *hash) {
    int64_t sum = 0;
    for (int k = 0; k < TRAIN_PARTS; k++) {
        for (int64_t i = 0; i < t->mine; i++) {
            uint64_t h = (uint64_t)(t->first + i) * 31 + (uint64_t)k;
            uint32_t bits;
            for (int j = 0; j <= TRAIN_INPUTS; j++) {
                memcpy(&bits, j < TRAIN_INPUTS ? &t->w[k][i * TRAIN_INPUTS + j] : &t->out[k][i], sizeof bits);
                h = (h ^ bits) * 0x100000001b3u;
                h ^= h >> 29;
            }
            sum = (int64_t)((uint64_t)sum + h);
        }
    }
    ckpt_err e = train_sum(t->ranks, &sum, 1);
    *hash = (uint64_t)sum;
    return e;
}

//-- the program -------------------------------------------------------------------

static void train_on_signal(int sig) {
    (void)sig;
    train_stop = 1;
}

static void train_log(ckpt_log_level level, const char *msg, void *user) {
    const ckpt_ranks *ranks = (const ckpt_ranks *)user;
    if (level >= CKPT_LOG_WARN) fprintf(stderr, "rank %d: %s\n", ranks->rank, msg);
}

static const char *train_option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++) if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

// Steps until `end`, or until a rank has been told to stop; with a checkpoint every so often.
static ckpt_err train_steps(train_run *t, ckpt_timestamp *at, int64_t end) {
    int64_t stop = 0;
    while (at->batch < end && stop == 0) {
        stop = train_stop;
        ckpt_err e = train_forward(t, &stop);
        if (e == CKPT_OK) e = ckpt_saver_fence(train_saver);        // LAZY: weights may change from here
        if (e != CKPT_OK) return e;
        train_update(t);
        ckpt_next_batch(at, TRAIN_SAMPLES, 0, 0);
        e = ckpt_saver_batch_end(train_saver, at);
        if (e != CKPT_OK) return e;
    }
    return stop != 0 ? ckpt_saver_save(train_saver, at) : CKPT_OK;
}

// --folder DIR --steps N --every N --rows N --snapshot none|copy|lazy
static int train(const ckpt_ranks *ranks, int argc, char **argv) {
    const char *snapshot = train_option(argc, argv, "--snapshot", "none");
    char interval[32];
    train_run t;
    ckpt_state st;
    ckpt_timestamp at;
    ckpt_saver_desc desc;
    uint64_t hash = 0;
    memset(&st, 0, sizeof st);
    memset(&at, 0, sizeof at);
    memset(&desc, 0, sizeof desc);
    snprintf(interval, sizeof interval, "%sba", train_option(argc, argv, "--every", "20"));
    desc.state = &st;
    desc.run_name = "ranks";
    desc.folder = train_option(argc, argv, "--folder", "out/ranks");
    desc.save_interval = interval;
    desc.num_checkpoints_to_keep = 2;
    desc.sharded = true;                    // a file of each rank, and .metadata, in a folder for each checkpoint
    desc.snapshot = snapshot[0] == 'c' ? CKPT_SNAPSHOT_COPY : snapshot[0] == 'l' ? CKPT_SNAPSHOT_LAZY : CKPT_SNAPSHOT_NONE;
    desc.ranks = *ranks;
    desc.logger.fn = train_log;
    desc.logger.user = (void *)(uintptr_t)ranks;
    signal(SIGINT, train_on_signal);
    signal(SIGTERM, train_on_signal);

    ckpt_err e = train_init(&t, ranks, atol(train_option(argc, argv, "--rows", "1000"))) ? CKPT_OK : ckpt_set_error(CKPT_NOMEM, "no memory");
    if (e == CKPT_OK) train_bind(&st, &t);
    if (e == CKPT_OK) e = ckpt_saver_open(&train_saver, &desc);
    if (e == CKPT_OK) e = ckpt_saver_resume(train_saver, &at);
    int64_t began = at.batch;
    if (e == CKPT_OK || e == CKPT_NOT_FOUND) e = train_steps(&t, &at, atol(train_option(argc, argv, "--steps", "100")));
    if (e == CKPT_OK) e = train_hash(&t, &hash);
    if (e != CKPT_OK) fprintf(stderr, "rank %d: %s: %s\n", ranks->rank, ckpt_err_name(e), ckpt_last_error());
    ckpt_err closed = ckpt_saver_close(train_saver, 0);
    if (e == CKPT_OK && closed != CKPT_OK) fprintf(stderr, "rank %d: %s: %s\n", ranks->rank, ckpt_err_name(closed), ckpt_last_error());
    if (e == CKPT_OK && closed == CKPT_OK && ranks->rank == 0)
        printf("step %lld (began at %lld) on %d ranks: hash %016llx, loss %.4f\n", (long long)at.batch, (long long)began, ranks->world_size,
               (unsigned long long)hash, t.loss);
    ckpt_state_free(&st);
    train_free(&t);
    return e == CKPT_OK && closed == CKPT_OK ? 0 : 1;
}

#endif
