/* cli_shards_make DIR RANKS ENDING [MODE]: makes checkpoints of many ranks for test_cli_shards.sh, by real savers in processes of one fork
   each. What it binds has values that a formula gives, so that Python can check them: element i of a tensor is i % 251 - 100.
   MODE  (none)    30 batches, a checkpoint every 10
         more      goes on to 60 batches
         hold      the same, then keeps the saver open and prints "ready"
         one       DIR is a file: the same state in one file, by one process
         tars    a tarball for each rank, to 60 batches
         check   resumes, and checks every value that it binds: 0 when all are right, and prints the batch
   cli_shards_make begin URI NAME: an upload in parts to a file:// store that nobody finishes.
   cli_shards_make busy PATH x: the hidden file that PATH is written as, of a process that lives on. */
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include HEADER
#include FORK_RANKS
#include <stdio.h>
#include <unistd.h>

typedef struct making { const char *dir, *ending, *mode; } making;

static float    wte[1000 * 100];
static int16_t  cols[64 * 96];
static uint16_t bf[333];
static double   grid[40 * 60];
static float    norm[128], odd[7 * 3];
static unsigned char rng[5000];

static void fill(void) {
    static const uint16_t bf_ones[2] = { 0x3f80, 0xc000 };
    for (int i = 0; i < 1000 * 100; i++) wte[i] = (float)(i % 251 - 100);
    for (int i = 0; i < 64 * 96; i++) cols[i] = (int16_t)(i % 251 - 100);
    for (int i = 0; i < 40 * 60; i++) grid[i] = i % 251 - 100;
    for (int i = 0; i < 128; i++) norm[i] = (float)(i % 251 - 100);
    for (int i = 0; i < 21; i++) odd[i] = (float)(i % 251 - 100);
    for (int i = 0; i < 333; i++) bf[i] = bf_ones[i % 2];
}

enum { BOXES = 64 };
static struct { char *data; const char *whole; size_t unit; int64_t columns, from, to, left, right; } boxes[BOXES];
static int box_count;

/* Rows [from, to) and columns [left, right) of a matrix, packed into fresh memory that stays. */
static void bind_box(ckpt_state *st, const char *name, ckpt_dtype d, size_t unit, const void *whole, int64_t rows, int64_t columns, int64_t from,
                     int64_t to, int64_t left, int64_t right) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = d;
    t.ndim = 2;
    t.global_shape[0] = rows;
    t.global_shape[1] = columns;
    t.offset[0] = from;
    t.offset[1] = left;
    t.shape[0] = to - from;
    t.shape[1] = right - left;
    char *data = (char *)malloc((size_t)(t.shape[0] * t.shape[1]) * unit + 1);
    for (int64_t r = from; r < to; r++)
        memcpy(data + (size_t)((r - from) * t.shape[1]) * unit, (const char *)whole + (size_t)(r * columns + left) * unit, (size_t)t.shape[1] * unit);
    t.data = data;
    ckpt_bind(st, name, &t);
    boxes[box_count].data = data, boxes[box_count].whole = (const char *)whole, boxes[box_count].unit = unit, boxes[box_count].columns = columns;
    boxes[box_count].from = from, boxes[box_count].to = to, boxes[box_count].left = left, boxes[box_count++].right = right;
}

/* Fills what is bound with rubbish, or says how many rows are not what they should be. */
static int spoil_or_check(bool check) {
    int wrong = 0;
    for (int i = 0; i < box_count; i++) {
        size_t row = (size_t)(boxes[i].right - boxes[i].left) * boxes[i].unit;
        for (int64_t r = boxes[i].from; r < boxes[i].to; r++) {
            char *mine = boxes[i].data + (size_t)(r - boxes[i].from) * row;
            if (!check) memset(mine, 0x5a, row);
            else wrong += memcmp(mine, boxes[i].whole + (size_t)(r * boxes[i].columns + boxes[i].left) * boxes[i].unit, row) != 0;
        }
    }
    for (int i = 0; i < 128; i++) {
        if (check) wrong += norm[i] != (float)(i % 251 - 100);
        else norm[i] = 0.5f;
    }
    return wrong;
}

static void bind_all(ckpt_state *st, int rank, int world, int64_t *step, double *lr, char *note, bool whole) {
    char name[64];
    ckpt_tensor t;
    snprintf(name, sizeof name, "rng/%d/python", rank);
    memset(rng, 'a' + rank, sizeof rng);
    ckpt_bind_bytes(st, name, rng, sizeof rng);
    if (whole) rank = 0, world = 1;
    int grid_rows = world % 2 == 0 ? 2 : 1, grid_columns = world / grid_rows, r = rank / grid_columns, c = rank % grid_columns;
    bind_box(st, "state/model/wte", CKPT_F32, 4, wte, 1000, 100, 1000 * rank * rank / (world * world), 1000 * (rank + 1) * (rank + 1) / (world * world), 0, 100);
    bind_box(st, "state/model/cols", CKPT_I16, 2, cols, 64, 96, 0, 64, 96 * rank / world, 96 * (rank + 1) / world);
    bind_box(st, "state/model/grid", CKPT_F64, 8, grid, 40, 60, 40 * r / grid_rows, 40 * (r + 1) / grid_rows, 60 * c / grid_columns, 60 * (c + 1) / grid_columns);
    bind_box(st, "state/model/odd", CKPT_F32, 4, odd, 7, 3, 7 * rank / world, 7 * (rank + 1) / world, 0, 3);
    ckpt_bind_f32(st, "state/model/norm", norm, 128);
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_BF16, t.ndim = 1, t.shape[0] = 333, t.data = bf;
    ckpt_bind(st, "state/model/hostile\033[31m", &t);
    ckpt_bind_int(st, "state/step", step);
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[0]/lr", lr);
    ckpt_bind_text(st, "state/note", note, 64);
}

static int run(const ckpt_ranks *ranks, void *user) {
    const making *m = (const making *)user;
    ckpt_state st = { 0 };
    ckpt_saver_desc d = { 0 };
    ckpt_saver *s = NULL;
    ckpt_timestamp ts = { 0 };
    int64_t step = 0, last = m->mode[0] != 0 ? 60 : 30;
    double lr = 3e-4;
    char note[64] = "a \"note\"\033[31m", filename[80];
    fill();
    bind_all(&st, ranks->rank, ranks->world_size, &step, &lr, note, strcmp(m->mode, "tars") == 0);
    snprintf(filename, sizeof filename, "ep{epoch}-ba{batch}%s", m->ending);
    d.state = &st, d.folder = m->dir, d.run_name = "demo", d.filename = filename, d.latest_filename = "latest", d.save_interval = "10ba";
    d.sharded = strcmp(m->mode, "tars") != 0, d.per_rank_tar = !d.sharded, d.ranks = *ranks;
    if (d.per_rank_tar) d.filename = "ep{epoch}-ba{batch}-rank{rank}.tar", d.latest_filename = "latest-rank{rank}.tar";
    bool check = strcmp(m->mode, "check") == 0;
    if (check) (void)spoil_or_check(false);
    ckpt_err e = ckpt_saver_open(&s, &d);
    if (e == CKPT_OK) e = ckpt_saver_resume(s, &ts);
    if (e == CKPT_OK && check) {
        int wrong = spoil_or_check(true);
        if (ranks->rank == 0) printf("%lld\n", (long long)ts.batch);
        if (wrong > 0) fprintf(stderr, "rank %d: %d rows are wrong\n", ranks->rank, wrong);
        return ckpt_saver_close(s, 0) != CKPT_OK || wrong > 0 || step != ts.batch;
    }
    if (e == CKPT_NOT_FOUND && !check) e = CKPT_OK;
    while (e == CKPT_OK && ts.batch < last) {
        step = ts.batch + 1;
        ckpt_next_batch(&ts, 32, 32, .1);
        e = ckpt_saver_batch_end(s, &ts);
    }
    if (e == CKPT_OK && strcmp(m->mode, "hold") == 0) {
        if (ranks->rank == 0) { printf("ready\n"); fflush(stdout); }
        for (;;) pause();
    }
    if (e == CKPT_OK) e = ckpt_saver_close(s, 0);
    if (e != CKPT_OK) fprintf(stderr, "rank %d: %s\n", ranks->rank, ckpt_last_error());
    return e != CKPT_OK;
}

static int begin_upload(const char *uri, const char *name) {
    ckpt_store *s = NULL;
    ckpt__transfer t;
    ckpt__store_multi m;
    ckpt__buf id;
    memset(&t, 0, sizeof t);
    memset(&m, 0, sizeof m);
    ckpt__buf_init(&id, NULL);
    m.name = name;
    m.size = 1 << 20;
    m.t = &t;
    return ckpt_store_open(&s, uri, NULL) != CKPT_OK || ckpt__store_run_begin(s, &m, &id) != CKPT_OK;
}

static int be_busy(const char *path) {
    ckpt__buf temp;
    ckpt__buf_init(&temp, NULL);
    FILE *f = ckpt__file_temp_name(&temp, path) == CKPT_OK ? fopen(temp.data, "w") : NULL;
    ckpt__buf_free(&temp);
    if (f == NULL) return 1;
    fclose(f);
    printf("ready\n");
    fflush(stdout);
    for (;;) pause();
}

int main(int argc, char **argv) {
    making m = { argv[1], argc > 3 ? argv[3] : ".pt", argc > 4 ? argv[4] : "" };
    int ranks = argc > 2 ? atoi(argv[2]) : 1, bad = 0;
    if (argc > 3 && strcmp(argv[1], "begin") == 0) return begin_upload(argv[2], argv[3]);
    if (argc > 3 && strcmp(argv[1], "busy") == 0) return be_busy(argv[2]);
    if (strcmp(m.mode, "one") == 0) {
        ckpt_state st = { 0 };
        int64_t step = 30;
        double lr = 3e-4;
        char note[64] = "a \"note\"\033[31m";
        fill();
        bind_all(&st, 0, 1, &step, &lr, note, true);
        if (ckpt_save(m.dir, &st, NULL) != CKPT_OK) { fprintf(stderr, "%s\n", ckpt_last_error()); return 1; }
        return 0;
    }
    fork_ranks job;
    fork_ranks_start(&job, ranks, 60.0, run, &m);
    for (int i = 0; i < ranks; i++) bad |= fork_ranks_wait(&job, i, 600.0);
    fork_ranks_end(&job);
    return bad != 0;
}
