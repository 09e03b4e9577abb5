/* bench_ranks.h: the goals of many ranks of bench.c (G18 to G20), part of that program.

   Ranks are processes of one fork each, joined by socket pairs under the hooks of examples/ranks_tcp.h (tests/fork_ranks.h). They
   stay for all rounds and take turns with their peer, one process that writes the same bytes into one file: in a round one of the two
   is told to save, and then the other. "The same threads in total": a thread that would be one too many cannot be had, which
   the engine takes for an answer.
*/
#include "../tests/fork_ranks.h"

enum { RANKS_TENSORS = 16, RANKS_COLUMNS = 2048 };      // of float32; as many rows as the size asks for

typedef struct ranks_world {
    int         count, threads;         // threads: of each rank while it saves, 0: no limit
    size_t      bytes;                  // of all ranks together
    const char *folder;
    int         go[2][FORK_RANKS_MOST], done[2];    // pipes: the parent's word to each rank; seconds from rank 0
    fork_ranks  job;
} ranks_world;

typedef struct ranks_share {
    ckpt_state st;
    char      *mem;
    size_t     size;
} ranks_share;

// What element pair `at` of tensor `i` holds, floats of about one.
static uint64_t ranks_value(int i, uint64_t at) {
    uint64_t x = at * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1b54a32d192ed03u;
    x ^= x >> 29;
    return (x & 0x807fffff807fffffu) | 0x3f0000003f000000u;
}

// One rank's rows of each tensor. Every rank but the last ones of an uneven split has the same number.
static void ranks_bind(ranks_share *s, size_t bytes, int rank, int count, bool filled) {
    int64_t rows = (int64_t)(bytes / RANKS_TENSORS / (4 * RANKS_COLUMNS)), from = rows * rank / count, to = rows * (rank + 1) / count;
    size_t each = (size_t)(to - from) * 4 * RANKS_COLUMNS, distance = (each + 4095) & ~(size_t)4095;
    char name[64];
    memset(s, 0, sizeof *s);
    s->size = distance * RANKS_TENSORS;
    s->mem = block(s->size, true);
    for (int i = 0; i < RANKS_TENSORS; i++) {
        ckpt_tensor t;
        memset(&t, 0, sizeof t);
        t.dtype = CKPT_F32;
        t.ndim = 2;
        t.shape[0] = to - from;
        t.shape[1] = RANKS_COLUMNS;
        t.data = s->mem + (size_t)i * distance;
        if (count > 1) {
            t.global_shape[0] = rows;
            t.global_shape[1] = RANKS_COLUMNS;
            t.offset[0] = from;
        }
        snprintf(name, sizeof name, "state/model/w%06d", i);
        ckpt_bind(&s->st, name, &t);
        uint64_t *p = (uint64_t *)t.data, first = (uint64_t)from * RANKS_COLUMNS / 2;
        for (size_t k = 0; k < each / 8 && filled; k++) p[k] = ranks_value(i, first + k);
    }
}

static bool ranks_is_right(const ranks_share *s, size_t bytes, int rank, int count) {
    uint64_t first = bytes / RANKS_TENSORS / (4 * RANKS_COLUMNS) * (uint64_t)rank / (uint64_t)count * RANKS_COLUMNS / 2;
    for (int i = 0; i < RANKS_TENSORS; i++) {
        const uint64_t *p = (const uint64_t *)s->st.items[i].tensor.data;
        for (size_t k = 0; k < s->st.items[i].size / 8; k++) if (p[k] != ranks_value(i, first + k)) return false;
    }
    return true;
}

static void ranks_unbind(ranks_share *s) {
    ckpt_state_free(&s->st);
    unblock(s->mem, s->size);
}

// One rank: saves whenever it is told to.
static int ranks_body(const ckpt_ranks *ranks, void *user) {
    ranks_world *w = (ranks_world *)user;
    ranks_share share;
    ckpt_saver_desc d;
    ckpt_saver *s = NULL;
    ckpt_timestamp t;
    char word;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    ranks_bind(&share, w->bytes, ranks->rank, w->count, true);
    d.state = &share.st;
    d.folder = w->folder;
    d.run_name = "bench";
    d.sharded = w->count > 1;
    d.num_checkpoints_to_keep = 1;
    d.save_interval = "1000000000ba";
    if (w->count > 1) d.ranks = *ranks;
    else d.ranks.world_size = 1;
    must(ckpt_saver_open(&s, &d), "saver of a rank");
    while (read(w->go[0][ranks->rank], &word, 1) == 1 && word == 's') {
        ckpt_next_batch(&t, 1, 1, 0.1);
        if (w->count > 1) must(ranks->barrier(ranks->user), "barrier");
        double begin = now();
        threads_live = 1;               // one that sleeps since the open, or frees blocks, does not count
        threads_most = w->threads;
        must(ckpt_saver_save(s, &t), "save of a rank");
        threads_most = 0;
        if (w->count > 1) must(ranks->barrier(ranks->user), "barrier");
        double took = now() - begin;
        if (ranks->rank == 0 && write(w->done[1], &took, sizeof took) != (ssize_t)sizeof took) return 1;
    }
    must(ckpt_saver_close(s, 0), "close of a rank");
    ranks_unbind(&share);
    return 0;
}

static void ranks_begin(ranks_world *w, int count, int threads, size_t bytes, const char *folder) {
    memset(w, 0, sizeof *w);
    w->count = count;
    w->threads = threads;
    w->bytes = bytes;
    w->folder = folder;
    if (pipe2(w->done, O_CLOEXEC) != 0) die("pipe");
    for (int i = 0; i < count; i++) {
        int two[2];
        if (pipe2(two, O_CLOEXEC) != 0) die("pipe");
        w->go[0][i] = two[0];
        w->go[1][i] = two[1];
    }
    fork_ranks_start(&w->job, count, 600, ranks_body, w);
}

static double ranks_save(const ranks_world *w) {
    double took = 0;
    for (int i = 0; i < w->count; i++) if (write(w->go[1][i], "s", 1) != 1) die("a rank is gone");
    if (read(w->done[0], &took, sizeof took) != (ssize_t)sizeof took) die("no answer from rank 0");
    return took;
}

static void ranks_end(ranks_world *w) {
    for (int i = 0; i < w->count; i++) if (write(w->go[1][i], "q", 1) != 1) die("a rank is gone");
    for (int i = 0; i < w->count; i++) if (fork_ranks_wait(&w->job, i, 60) != 0) die("a rank has failed");
    for (int i = 0; i < w->count; i++) {
        close(w->go[0][i]);
        close(w->go[1][i]);
    }
    close(w->done[0]);
    close(w->done[1]);
}

// G20: what was saved by two, on one, two and three. Every rank's memory must be right.
static void ranks_load(const char *folder, size_t bytes) {
    ckpt__shard_place place;
    ckpt__shard_meta meta;
    ckpt_allocator plain;
    memset(&place, 0, sizeof place);
    memset(&plain, 0, sizeof plain);
    place.folder = folder;
    must(ckpt__shard_open(&meta, &plain, &place), "the listing");
    for (int count = 1; count <= 3; count++) {
        ckpt__shard_count sum = { 0, 0, 0 };
        double took = 0;
        for (int rank = 0; rank < count; rank++) {
            ranks_share share;
            ckpt__engine_job job;
            ckpt__file_options o;
            memset(&job, 0, sizeof job);
            memset(&o, 0, sizeof o);
            o.job = &job;
            ranks_bind(&share, bytes, rank, count, false);
            double begin = now();
            must(ckpt__shard_restore(&meta, &place, &share.st, &o, NULL, &sum), "load of a rank");
            took += now() - begin;
            if (!ranks_is_right(&share, bytes, rank, count)) {
                fprintf(stderr, "bench: rank %d of %d has not loaded what was saved\n", rank, count);
                exit(3);
            }
            ranks_unbind(&share);
        }
        row("G20", printed("saved by 2 ranks, on %d: bytes read / needed", count),
            printed("%llu reads, %.2f GiB/s", (unsigned long long)sum.requests, (double)sum.needed / (double)GIB / took),
            (double)sum.read / (double)sum.needed, true, count < 3 ? 1.0 : quick ? 1.05 : 1.01, "");
    }
    ckpt__shard_free(&meta);
}

static void goal_18(void) {
    static const char *const names[] = { "g18-one", "g18-two", "g18-two-more" };
    size_t bytes = quick ? 256 * MIB : 2 * GIB;
    ranks_world w[3];
    char folders[3][4096];
    samples one = { { 0 }, 0 }, two = one, more = one;
    for (int i = 0; i < 3; i++) {
        snprintf(folders[i], sizeof folders[i], "%s/%s", dir, names[i]);
        ranks_begin(&w[i], i == 0 ? 1 : 2, i == 0 ? 4 : i == 1 ? 2 : 0, bytes, folders[i]);
    }
    for (int r = 0; r < rounds(9) + 1; r++) {
        for (int k = 0; k < 3; k++) {           // each of them comes first in turn, and so after each of the others
            int i = (k + r) % 3;
            prewarm(bytes);
            double took = ranks_save(&w[i]);
            if (r > 0) add(i == 0 ? &one : i == 1 ? &two : &more, took);        // the first one makes the folders
        }
    }
    for (int i = 0; i < 3; i++) ranks_end(&w[i]);
    const char *size = quick ? "256 MiB" : "2 GiB";
    row("G18", printed("%s: 2 ranks, sharded / one rank, 4 threads in all", size), printed("%.3f / %.3f s", median(&two), median(&one)),
        median(&two) / median(&one), true, 1.0, "");
    info("G18", printed("%s: 2 ranks with all their threads / one rank", size), "%.2f (%.3f / %.3f s)", median(&more) / median(&one), median(&more), median(&one));
    ranks_load(in_dir(printed("g18-two/ep0-ba%d", rounds(9) + 1)), bytes);
}

//-- agreement --------------------------------------------------------------------------

typedef struct ranks_idle { bool always; int calls, out; const char *folder; } ranks_idle;

static bool ranks_never(const ckpt_timestamp *t, ckpt_event event, void *user) {
    (void)t;
    (void)event;
    (void)user;
    return false;
}

// `calls` calls of batch_end with nothing due; rank 0 tells the seconds of each. With `always` a callback is asked at every call, and
// so are the other ranks.
static int ranks_idle_body(const ckpt_ranks *ranks, void *user) {
    const ranks_idle *x = (const ranks_idle *)user;
    ckpt_saver_desc d;
    ckpt_saver *s = NULL;
    ckpt_state st;
    ckpt_timestamp t;
    float f = 1;
    memset(&d, 0, sizeof d);
    memset(&st, 0, sizeof st);
    memset(&t, 0, sizeof t);
    ckpt_bind_f32(&st, "state/model/w", &f, 1);
    d.state = &st;
    d.folder = x->folder;
    d.run_name = "bench";
    d.sharded = true;
    d.save_interval = "1000000000ba";
    d.ranks = *ranks;
    if (x->always) d.should_save = ranks_never;
    must(ckpt_saver_open(&s, &d), "saver of a rank");
    for (int r = 0; r < 9; r++) {
        must(ranks->barrier(ranks->user), "barrier");
        double begin = now();
        for (int i = 0; i < x->calls; i++) {
            ckpt_next_batch(&t, 1, 1, 0.001);
            must(ckpt_saver_batch_end(s, &t), "batch_end");
        }
        double each = (now() - begin) / x->calls;
        if (ranks->rank == 0 && write(x->out, &each, sizeof each) != (ssize_t)sizeof each) return 1;
    }
    must(ckpt_saver_close(s, 0), "close of a rank");
    ckpt_state_free(&st);
    return 0;
}

static double ranks_idle_run(int count, bool always, int calls) {
    int pipes[2];
    samples each = { { 0 }, 0 };
    fork_ranks job;
    char folder[4096];
    double one = 0;
    snprintf(folder, sizeof folder, "%s/g19-%d-%d", dir, count, always);
    if (pipe2(pipes, O_CLOEXEC) != 0) die("pipe");
    ranks_idle x = { always, calls, pipes[1], folder };
    fork_ranks_start(&job, count, 600, ranks_idle_body, &x);
    close(pipes[1]);
    while (read(pipes[0], &one, sizeof one) == (ssize_t)sizeof one) add(&each, one);
    close(pipes[0]);
    for (int i = 0; i < count; i++) if (fork_ranks_wait(&job, i, 60) != 0) die("a rank has failed");
    return median(&each);
}

static void goal_19(void) {
    for (int count = 2; count <= 8; count *= 4)
        row("G19", printed("%d ranks over sockets: *_end with an agreement, nothing due", count), "", 1e3 * ranks_idle_run(count, true, 200), true, 1, " ms");
    row("G19", "2 ranks: *_end with nothing due, agreements included", "", 1e9 * ranks_idle_run(2, false, 200000), true, 200, " ns");
}
