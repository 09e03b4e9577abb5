/* train.c: cc -O3 -march=native -DCKPT_NO_REMOTE -I. examples/train.c -o train -lpthread -lm && ./train

   Trains a small character language model and can be stopped at any instant: run again it goes on where it was, bit for bit.
   The model is a perceptron over the last 24 characters (embedding, two hidden layers), trained with AdamW by one thread.
   What has to do with checkpoints is in bind_everything() and main(); the rest is arithmetic. */
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CONTEXT = 24, EMBED = 16, INPUT = CONTEXT * EMBED, BATCH = 64, PARAMS = 7 };

typedef struct options {
    const char *text, *folder, *remote, *loss_log;
    long steps, every, hidden;
    ckpt_snapshot snapshot;
    bool quiet;
} options;

typedef struct param {
    const char *name;
    int rows, cols;
    float *w, *grad, *m, *v;            // weights, gradient, AdamW's two moments
} param;

typedef struct model {
    int vocab, hidden1, hidden2;
    param p[PARAMS];                    // embed, w1, b1, w2, b2, w3, b3
    float *x, *h1, *h2, *out, *dx, *dh1, *dh2, *transposed;     // one batch of activations and what flows back
} model;

typedef struct training {               // with the model's weights and moments: all that the next step depends on
    int64_t step, position, rng;
    double  val_loss;
} training;

static void die(const char *what, const char *why) {
    fprintf(stderr, "train: %s%s%s\n", what, why[0] != 0 ? ": " : "", why);
    exit(1);
}

static void *zeros(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (p == NULL) die("out of memory", "");
    return p;
}

static uint64_t next_random(int64_t *state) {       // xorshift64*, its state kept as an int so that every snapshot mode takes it
    uint64_t x = (uint64_t)*state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = (int64_t)x;
    return x * 2685821657736338717u;
}

static float uniform(int64_t *rng) { return (float)(next_random(rng) >> 40) / 16777216.0f; }

//-- text ----------------------------------------------------------------------------

static unsigned char *ids;              // the text as indices into `letters`
static long           text_size, train_size;
static char           letters[256];

static int read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) die("cannot open the text (run it from the top folder, or give --text FILE)", path);
    ids = (unsigned char *)zeros(1 << 22, 1);
    text_size = (long)fread(ids, 1, 1 << 22, f);
    fclose(f);
    if (text_size < 20 * CONTEXT) die("the text is too short", path);
    int index[256] = {0}, count = 0;
    for (long i = 0; i < text_size; i++) index[ids[i]] = 1;
    for (int c = 0; c < 256; c++) {
        if (index[c] == 0) continue;
        letters[count] = (char)c;
        index[c] = count++;
    }
    for (long i = 0; i < text_size; i++) ids[i] = (unsigned char)index[ids[i]];
    train_size = text_size - text_size / 20;        // the last twentieth is for validation
    return count;
}

//-- arithmetic ----------------------------------------------------------------------

// c[i][j] += sum over k of a(i,k) * b[k][j], with a(i,k) at a[i * row + k * col]; always in the same order.
static void multiply(float *c, const float *a, const float *b, int rows, int inner, int cols, int row, int col) {
    for (int i = 0; i < rows; i++) {
        float *y = c + (size_t)i * (size_t)cols;
        int k = 0;
        for (; k + 4 <= inner; k += 4) {
            const float *x = a + (ptrdiff_t)i * row + (ptrdiff_t)k * col, *b0 = b + (size_t)k * (size_t)cols;
            const float *b1 = b0 + cols, *b2 = b1 + cols, *b3 = b2 + cols;
            float x0 = x[0], x1 = x[col], x2 = x[2 * col], x3 = x[3 * col];
            if (x0 == 0 && x1 == 0 && x2 == 0 && x3 == 0) continue;
            for (int j = 0; j < cols; j++) y[j] += x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j];
        }
        for (; k < inner; k++) {
            float x0 = a[(ptrdiff_t)i * row + (ptrdiff_t)k * col];
            for (int j = 0; j < cols; j++) y[j] += x0 * b[(size_t)k * (size_t)cols + (size_t)j];
        }
    }
}

static void linear(float *y, const float *x, const param *w, const param *b, int rows, bool relu) {
    for (int i = 0; i < rows; i++) memcpy(y + (size_t)i * (size_t)w->cols, b->w, (size_t)w->cols * sizeof *y);
    multiply(y, x, w->w, rows, w->rows, w->cols, w->rows, 1);
    for (size_t i = 0; relu && i < (size_t)rows * (size_t)w->cols; i++) y[i] = y[i] > 0 ? y[i] : 0;
}

// From dy: the gradients of w and b, and dx (through the relu that made x, when asked).
static void linear_back(model *m, float *dx, const float *dy, const float *x, param *w, param *b, bool relu) {
    multiply(w->grad, x, dy, w->rows, BATCH, w->cols, 1, w->rows);
    for (int i = 0; i < BATCH; i++)
        for (int j = 0; j < w->cols; j++) b->grad[j] += dy[i * w->cols + j];
    for (int i = 0; i < w->rows; i++)
        for (int j = 0; j < w->cols; j++) m->transposed[j * w->rows + i] = w->w[i * w->cols + j];
    memset(dx, 0, (size_t)BATCH * (size_t)w->rows * sizeof *dx);
    multiply(dx, dy, m->transposed, BATCH, w->cols, w->rows, w->cols, 1);
    for (int i = 0; relu && i < BATCH * w->rows; i++) dx[i] = x[i] > 0 ? dx[i] : 0;
}

// Probabilities of the next character after each of `rows` contexts, which end before at[i].
static void forward(model *m, const unsigned char *text, const long *at, int rows) {
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < CONTEXT; k++)
            memcpy(m->x + i * INPUT + k * EMBED, m->p[0].w + text[at[i] - CONTEXT + k] * EMBED, EMBED * sizeof(float));
    linear(m->h1, m->x, &m->p[1], &m->p[2], rows, true);
    linear(m->h2, m->h1, &m->p[3], &m->p[4], rows, true);
    linear(m->out, m->h2, &m->p[5], &m->p[6], rows, false);
    for (int i = 0; i < rows; i++) {
        float *o = m->out + i * m->vocab, top = o[0], sum = 0;
        for (int j = 1; j < m->vocab; j++) top = o[j] > top ? o[j] : top;
        for (int j = 0; j < m->vocab; j++) sum += o[j] = expf(o[j] - top);
        for (int j = 0; j < m->vocab; j++) o[j] /= sum;
    }
}

static float loss_of(const model *m, const long *at, int rows) {
    float sum = 0;
    for (int i = 0; i < rows; i++) sum -= logf(m->out[i * m->vocab + ids[at[i]]] + 1e-9f);
    return sum / (float)rows;
}

static void backward(model *m, const long *at) {
    for (int i = 0; i < PARAMS; i++) memset(m->p[i].grad, 0, (size_t)m->p[i].rows * (size_t)m->p[i].cols * sizeof(float));
    for (int i = 0; i < BATCH; i++) m->out[i * m->vocab + ids[at[i]]] -= 1;
    for (int i = 0; i < BATCH * m->vocab; i++) m->out[i] /= BATCH;
    linear_back(m, m->dh2, m->out, m->h2, &m->p[5], &m->p[6], true);
    linear_back(m, m->dh1, m->dh2, m->h1, &m->p[3], &m->p[4], true);
    linear_back(m, m->dx, m->dh1, m->x, &m->p[1], &m->p[2], false);
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < CONTEXT; k++)
            for (int j = 0; j < EMBED; j++)
                m->p[0].grad[ids[at[i] - CONTEXT + k] * EMBED + j] += m->dx[i * INPUT + k * EMBED + j];
}

static void adamw(model *m, int64_t step) {
    float warm = step < 100 ? (float)step / 100.0f : 1.0f, rate = 2.5e-3f * warm / sqrtf(1.0f + (float)step / 800.0f);
    float fix1 = 1 - powf(0.9f, (float)step), fix2 = 1 - powf(0.99f, (float)step);
    for (int i = 0; i < PARAMS; i++) {
        param *p = &m->p[i];
        float decay = p->rows > 1 ? 1 - rate * 0.05f : 1;
        for (int j = 0; j < p->rows * p->cols; j++) {
            float g = p->grad[j];
            p->m[j] = 0.9f * p->m[j] + 0.1f * g;
            p->v[j] = 0.99f * p->v[j] + 0.01f * g * g;
            p->w[j] = p->w[j] * decay - rate * (p->m[j] / fix1) / (sqrtf(p->v[j] / fix2) + 1e-8f);
        }
    }
}

//-- model ---------------------------------------------------------------------------

static void model_init(model *m, int vocab, int hidden, int64_t *rng) {
    static const char *const names[PARAMS] = { "embed", "w1", "b1", "w2", "b2", "w3", "b3" };
    m->vocab = vocab;
    m->hidden1 = hidden;
    m->hidden2 = hidden / 2;
    int size[PARAMS][2] = { { vocab, EMBED }, { INPUT, hidden }, { 1, hidden }, { hidden, hidden / 2 }, { 1, hidden / 2 },
                            { hidden / 2, vocab }, { 1, vocab } };
    for (int i = 0; i < PARAMS; i++) {
        param *p = &m->p[i];
        size_t count = (size_t)size[i][0] * (size_t)size[i][1];
        p->name = names[i];
        p->rows = size[i][0];
        p->cols = size[i][1];
        p->w = (float *)zeros(count, sizeof(float));
        p->grad = (float *)zeros(count, sizeof(float));
        p->m = (float *)zeros(count, sizeof(float));
        p->v = (float *)zeros(count, sizeof(float));
        float scale = i == 0 ? 1.0f : sqrtf(6.0f / (float)p->rows);
        for (size_t j = 0; p->rows > 1 && j < count; j++) p->w[j] = scale * (2 * uniform(rng) - 1);
    }
    size_t widest = (size_t)(INPUT > vocab ? INPUT : vocab) * (size_t)hidden;
    m->x = (float *)zeros(BATCH * INPUT, sizeof(float));
    m->dx = (float *)zeros(BATCH * INPUT, sizeof(float));
    m->h1 = (float *)zeros((size_t)(BATCH * hidden), sizeof(float));
    m->dh1 = (float *)zeros((size_t)(BATCH * hidden), sizeof(float));
    m->h2 = (float *)zeros((size_t)(BATCH * hidden), sizeof(float));
    m->dh2 = (float *)zeros((size_t)(BATCH * hidden), sizeof(float));
    m->out = (float *)zeros((size_t)(BATCH * vocab), sizeof(float));
    m->transposed = (float *)zeros(widest, sizeof(float));
}

static void model_free(model *m) {
    for (int i = 0; i < PARAMS; i++) { free(m->p[i].w); free(m->p[i].grad); free(m->p[i].m); free(m->p[i].v); }
    free(m->x); free(m->dx); free(m->h1); free(m->dh1); free(m->h2); free(m->dh2); free(m->out); free(m->transposed);
}

// The next batch: an offset drawn at the start of each epoch, then a walk of great strides that visits every place once.
static void next_places(training *tr, long *at) {
    long places = train_size - CONTEXT, stride = places * 5 / 13;
    for (long a = stride, b = places; b != 0; ) {           // the stride shares no factor with the number of places
        long r = a % b;
        a = b;
        b = r;
        if (b == 0 && a != 1) { a = ++stride; b = places; }
    }
    for (int i = 0; i < BATCH; i++) {
        long jitter = (long)(next_random(&tr->rng) % 3);     // makes the order depend on the random state in every step
        at[i] = CONTEXT + ((tr->position + i) % places * stride + jitter) % places;
    }
    tr->position += BATCH;
}

static double validate(model *m) {
    long at[BATCH];
    double sum = 0;
    int batches = 0;
    for (long next = train_size + CONTEXT; batches < 40; batches++) {
        for (int i = 0; i < BATCH; i++, next += 3) at[i] = train_size + CONTEXT + (next - train_size) % (text_size - train_size - CONTEXT);
        forward(m, ids, at, BATCH);
        sum += loss_of(m, at, BATCH);
    }
    return sum / batches;
}

static void write_sample(model *m, int count) {
    unsigned char text[CONTEXT + 1];
    int64_t rng = 12345;
    long at = CONTEXT;
    memcpy(text, ids + train_size, CONTEXT);
    for (int i = 0; i < count; i++) {
        forward(m, text, &at, 1);
        float sum = 0;
        for (int j = 0; j < m->vocab; j++) sum += m->out[j] = powf(m->out[j], 1.4f);      // a little more careful than it learnt to be
        float u = uniform(&rng) * sum;
        int next = 0;
        for (; next < m->vocab - 1 && (u -= m->out[next]) >= 0; next++) {}
        putchar(letters[next]);
        memmove(text, text + 1, CONTEXT - 1);
        text[CONTEXT - 1] = (unsigned char)next;
    }
    putchar('\n');
}

//-- checkpoints ---------------------------------------------------------------------

static void bind_everything(ckpt_state *st, model *m, training *tr) {
    char name[128];
    for (int i = 0; i < PARAMS; i++) {
        param *p = &m->p[i];
        ckpt_tensor t = { .dtype = CKPT_F32, .ndim = 2, .shape = { p->rows, p->cols }, .data = p->w };
        snprintf(name, sizeof name, "state/model/%s", p->name);
        ckpt_bind(st, name, &t);
        snprintf(name, sizeof name, "state/optimizers/AdamW/state/%s/exp_avg", p->name);
        t.data = p->m;
        ckpt_bind(st, name, &t);
        snprintf(name, sizeof name, "state/optimizers/AdamW/state/%s/exp_avg_sq", p->name);
        t.data = p->v;
        ckpt_bind(st, name, &t);
    }
    ckpt_bind_int(st, "state/optimizers/AdamW/step", &tr->step);
    ckpt_bind_int(st, "state/dataset/position", &tr->position);
    ckpt_bind_float(st, "state/metrics/val_loss", &tr->val_loss);
    ckpt_bind_int(st, "rng/0/xorshift", &tr->rng);
}

static ckpt_saver           *saver;
static volatile sig_atomic_t stopping;

static void on_signal(int sig) {        // Ctrl-C: a checkpoint at the end of this batch, then out
    (void)sig;
    stopping = 1;
    ckpt_saver_request(saver);
}

static void on_log(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    if (level >= CKPT_LOG_WARN) fprintf(stderr, "ckpt: %s\n", msg);
}

static const char usage[] = "usage: train [--steps N] [--every N] [--snapshot none|copy|lazy] [--folder DIR] [--remote URI|none] [--text FILE] "
                            "[--hidden N] [--loss-log FILE] [--quiet]";

static options read_options(int argc, char **argv) {
    options o = { .text = "examples/data/psalms.txt", .folder = "run", .every = 250, .hidden = 448, .snapshot = CKPT_SNAPSHOT_LAZY };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = argv[i + 1];     // argv ends with NULL
        if (strcmp(a, "--quiet") == 0) { o.quiet = true; continue; }
        if (v == NULL) die(usage, "");
        if (strcmp(a, "--text") == 0) o.text = v;
        else if (strcmp(a, "--folder") == 0) o.folder = v;
        else if (strcmp(a, "--remote") == 0) o.remote = v;
        else if (strcmp(a, "--loss-log") == 0) o.loss_log = v;
        else if (strcmp(a, "--steps") == 0) o.steps = atol(v);
        else if (strcmp(a, "--every") == 0) o.every = atol(v);
        else if (strcmp(a, "--hidden") == 0) o.hidden = atol(v);
        else if (strcmp(a, "--snapshot") == 0 && strcmp(v, "none") == 0) o.snapshot = CKPT_SNAPSHOT_NONE;
        else if (strcmp(a, "--snapshot") == 0 && strcmp(v, "copy") == 0) o.snapshot = CKPT_SNAPSHOT_COPY;
        else if (strcmp(a, "--snapshot") == 0 && strcmp(v, "lazy") == 0) o.snapshot = CKPT_SNAPSHOT_LAZY;
        else die(usage, "");
        i++;
    }
    if (o.every < 1 || o.hidden < 8 || o.hidden > 4096 || o.steps < 0) die("a number is out of range", "");
    return o;
}

// Where checkpoints go besides the folder: a bucket beside it unless told otherwise; NULL: nowhere.
static ckpt_uploader *open_uploader(options *o) {
    static char beside[8192];
    char here[4096];
    ckpt_uploader *up = NULL;
    if (o->remote == NULL && strstr(o->folder, "://") == NULL) {
        if (o->folder[0] != '/' && getcwd(here, sizeof here) == NULL) die("no current folder", "");
        snprintf(beside, sizeof beside, "file://%s%s%s-bucket", o->folder[0] != '/' ? here : "", o->folder[0] != '/' ? "/" : "", o->folder);
        o->remote = beside;
    }
    if (o->remote == NULL || strcmp(o->remote, "none") == 0) return NULL;
    ckpt_uploader_desc desc = { .bucket_uri = o->remote, .logger = { on_log, NULL } };
    if (ckpt_uploader_open(&up, &desc) != CKPT_OK) die("cannot upload checkpoints", ckpt_last_error());
    return up;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Trains until `steps`, or until a signal.
static void train(model *m, training *tr, ckpt_timestamp *t, const options *o, FILE *log) {
    long at[BATCH], places = train_size - CONTEXT;
    double begin = seconds(), last = begin, mean = 0;
    int64_t first = t->batch;
    while (t->batch < o->steps && !stopping) {
        next_places(tr, at);
        forward(m, ids, at, BATCH);
        float loss = loss_of(m, at, BATCH);
        backward(m, at);
        if (ckpt_saver_fence(saver) != CKPT_OK) fprintf(stderr, "train: %s\n", ckpt_last_error());   // LAZY: weights may change from here
        adamw(m, ++tr->step);

        mean = t->batch == first ? (double)loss : 0.98 * mean + 0.02 * (double)loss;
        if (log != NULL) fprintf(log, "%lld %a\n", (long long)tr->step, (double)loss);
        double now = seconds();
        ckpt_next_batch(t, BATCH, BATCH, now - last);
        last = now;
        bool saves = t->batch % o->every == 0 || t->batch == o->steps;
        if (saves) tr->val_loss = validate(m);
        // A failed save does not stop the training: the checkpoint before it is still there, and the next one may succeed.
        if (ckpt_saver_batch_end(saver, t) != CKPT_OK) fprintf(stderr, "train: %s\n", ckpt_last_error());
        if (saves && !o->quiet) {
            printf("step %5lld of %ld   loss %.3f   validation %.3f   %4.1f ms a step   saved\n", (long long)t->batch, o->steps,
                   mean, tr->val_loss, 1000 * (seconds() - begin) / (double)(t->batch - first));
            fflush(stdout);
        }
        if (tr->position / places > t->epoch) {
            ckpt_next_epoch(t, 0);
            if (ckpt_saver_epoch_end(saver, t) != CKPT_OK) fprintf(stderr, "train: %s\n", ckpt_last_error());
        }
    }
}

int main(int argc, char **argv) {
    options o = read_options(argc, argv);
    model m;
    training tr = { .rng = 42 };
    ckpt_state st = {0};
    int vocab = read_text(o.text);
    model_init(&m, vocab, (int)o.hidden, &tr.rng);
    bind_everything(&st, &m, &tr);

    char interval[32];
    snprintf(interval, sizeof interval, "%ldba", o.every);
    ckpt_uploader *up = open_uploader(&o);
    ckpt_saver_desc desc = {
        .state = &st, .run_name = "train", .folder = o.folder, .filename = "ba{batch:06d}-rank{rank}.pt",
        .remote_file_name = "{run_name}/ba{batch:06d}-rank{rank}.pt", .latest_remote_file_name = "{run_name}/latest-rank{rank}.pt",
        .save_interval = interval, .num_checkpoints_to_keep = 3, .keep_best = "min:state/metrics/val_loss", .num_remote_to_keep = 5,
        .snapshot = o.snapshot, .uploaders = &up, .uploaders_count = up != NULL, .logger = { on_log, NULL },
    };
    if (strstr(o.folder, "://") != NULL) desc.remote_file_name = desc.latest_remote_file_name = NULL;     // derived from the URI
    if (ckpt_saver_open(&saver, &desc) != CKPT_OK) die("cannot save checkpoints", ckpt_last_error());
    ckpt_timestamp t = {0};
    ckpt_err e = ckpt_saver_resume(saver, &t);
    if (e != CKPT_OK && e != CKPT_NOT_FOUND) die("cannot resume", ckpt_last_error());
    if (o.steps == 0) o.steps = t.batch < 5000 ? 5000 : (long)t.batch + 1000;
    if (!o.quiet) {
        long weights = 0;
        for (int i = 0; i < PARAMS; i++) weights += (long)m.p[i].rows * m.p[i].cols;
        printf("%ld weights, %ld characters of %d kinds; ", weights, text_size, vocab);
        if (e == CKPT_OK) printf("resumed from step %lld in %s\n", (long long)t.batch, o.folder);
        else printf("a fresh start in %s\n", o.folder);
        if (up != NULL) printf("each checkpoint is uploaded to %s\n", o.remote);
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);

    FILE *log = o.loss_log != NULL ? fopen(o.loss_log, "a") : NULL;
    if (o.loss_log != NULL && log == NULL) die("cannot open the log", o.loss_log);
    if (log != NULL) setvbuf(log, NULL, _IOLBF, 0);
    int64_t first = t.batch;
    train(&m, &tr, &t, &o, log);
    signal(SIGINT, SIG_DFL);                // the handler must not find a saver that is being closed
    signal(SIGTERM, SIG_DFL);
    bool saved = t.batch == first || t.batch % o.every == 0;
    // A signal may have come after the last look at it. What it asks for is saved here, unless it was: no step is saved twice.
    e = stopping ? ckpt_saver_batch_end(saver, &t) : saved ? CKPT_OK : ckpt_saver_save(saver, &t);
    if (e != CKPT_OK) fprintf(stderr, "train: %s\n", ckpt_last_error());
    if (ckpt_saver_wait(saver, 0) != CKPT_OK) fprintf(stderr, "train: %s\n", ckpt_last_error());      // written, uploaded, published
    ckpt_saver_counts c;
    ckpt_saver_stats(saver, &c);
    if (ckpt_saver_close(saver, 0) != CKPT_OK) die("a checkpoint was lost", ckpt_last_error());
    if (ckpt_uploader_close(up, 0) != CKPT_OK) die("not all was uploaded", ckpt_last_error());
    if (!o.quiet && c.uploaded > 0)
        printf("\nuploaded %d checkpoints, %.1f MiB; training waited %.2f s for %d saves\n", (int)c.uploaded,
               (double)c.uploaded_bytes / 1048576, c.waited_s, (int)c.saved);

    if (stopping) printf("stopped after step %lld, which is saved: run it again to go on\n", (long long)t.batch);
    else if (!o.quiet) {
        printf("\nwhat it writes after %lld steps:\n\n", (long long)t.batch);
        write_sample(&m, 600);
    }
    if (log != NULL) fclose(log);
    ckpt_state_free(&st);
    model_free(&m);
    free(ids);
    return 0;
}
