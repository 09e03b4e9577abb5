/* test_sim_ranks.c: what a checkpoint of up to 4,096 ranks costs, counted: nothing may grow faster than it has to.

   run.sh: no-tsan memory libs=-fsanitize-coverage=trace-pc

   Real: the library, all of it, from one translation unit: tables, plan, files' notes, .metadata, parsing, loading; and in the
   tests of whole savers ckpt_saver_open, _save, _resume, _close and what they do to the folder.
   Simulated: the machines. Ranks are coroutines of this thread, and the hooks meet in memory; fsync does nothing. In the tests
   named "rank 0" there are no other ranks at all: what they would send is made by their own functions, one after the other, and
   files are said to be written (all zeros, with true sums) that a store in memory then serves.

   Counted, never timed (times are printed): collectives and their bytes, system calls and requests of stores by rank,
   allocations, comparisons of sorts, and steps: basic blocks of the library that were run (-fsanitize-coverage=trace-pc; 0
   without it). From one size to the next, 4 times as large, a count that may grow linearly may grow 4 times and a quarter
   more, for sorts. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <ucontext.h>

static void sim_sys(const char *name);
static void sim_qsort(void *base, size_t count, size_t size, int (*order)(const void *, const void *));
static int  sim_fsync(int fd);
#define CKPT__SYS(name) (sim_sys(#name), name)
#define qsort sim_qsort
#define fsync sim_fsync
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#undef qsort
#undef fsync
#include "util.h"
#include <sys/mman.h>
#include <time.h>
#include <pthread.h>

//-- counting ----------------------------------------------------------------------

typedef enum sim_call { SIM_OPEN, SIM_READ, SIM_WRITE, SIM_NAME, SIM_LOOK, SIM_SYNC, SIM_CALLS } sim_call;

typedef struct sim_count {
    uint64_t steps, orders;                     // basic blocks, comparisons
    uint64_t allocs, live, peak;                // of memory that has the counting hook
    uint64_t sys[SIM_CALLS];
    uint64_t gathers, broadcasts, mins, barriers, sent, received;
} sim_count;

static __thread uint64_t   sim_steps;
static __thread sim_count *sim_now;             // whom what happens on this thread is counted for; NULL: nobody

#if defined(__clang__)
    #define SIM_UNCOUNTED __attribute__((no_sanitize("coverage")))
#elif defined(__has_attribute)
    #if __has_attribute(no_sanitize_coverage)
        #define SIM_UNCOUNTED __attribute__((no_sanitize_coverage))
    #endif
#endif
#ifdef SIM_UNCOUNTED
void __sanitizer_cov_trace_pc(void);
SIM_UNCOUNTED void __sanitizer_cov_trace_pc(void) { sim_steps++; }
#endif

// Counts the calls that ask the file system for something.
static void sim_sys(const char *name) {
    static const struct { const char *name; sim_call call; } classes[] = {
        { "open", SIM_OPEN }, { "pread", SIM_READ }, { "read", SIM_READ }, { "pwrite", SIM_WRITE }, { "write", SIM_WRITE },
        { "rename", SIM_NAME }, { "link", SIM_NAME }, { "unlink", SIM_NAME }, { "symlink", SIM_NAME }, { "mkdir", SIM_NAME },
        { "rmdir", SIM_NAME }, { "stat", SIM_LOOK }, { "lstat", SIM_LOOK }, { "fstat", SIM_LOOK }, { "fsync", SIM_SYNC },
        { "readlink", SIM_LOOK }, { "realpath", SIM_LOOK }, { "opendir", SIM_OPEN }, { "linkat", SIM_NAME }
    };
    if (sim_now == NULL) return;
    uint64_t steps = sim_steps;
    for (int i = 0; i < UTIL_COUNT(classes); i++) if (strcmp(classes[i].name, name) == 0) sim_now->sys[classes[i].call]++;
    sim_steps = steps;
}

static int sim_fsync(int fd) {
    (void)fd;
    return 0;
}

static __thread int (*sim_order)(const void *, const void *);
static int sim_compare(const void *a, const void *b) {
    if (sim_now != NULL) sim_now->orders++;
    return sim_order(a, b);
}

static void sim_qsort(void *base, size_t count, size_t size, int (*order)(const void *, const void *)) {
    sim_order = order;
    qsort(base, count, size, sim_compare);
}

// The hook of ckpt_allocator. What is allocated for one and freed by another is counted for the one.
static void *sim_memory(void *ptr, size_t old_size, size_t new_size, void *user) {
    sim_count *c = (sim_count *)user;
    uint64_t live = __atomic_add_fetch(&c->live, new_size - old_size, __ATOMIC_RELAXED);
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    __atomic_add_fetch(&c->allocs, 1, __ATOMIC_RELAXED);
    if (live > c->peak) c->peak = live;
    return realloc(ptr, new_size);
}

// Between these everything that this thread does is counted for c.
static void sim_begin(sim_count *c) {
    sim_now = c;
    sim_steps = 0;
}

static void sim_end(sim_count *c) {
    c->steps += sim_steps;
    sim_steps = 0;
    sim_now = NULL;
}

static double sim_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// `more` counts `factor` times as much as `less` did: at most linear, a quarter for sorts and `spare` for beginnings aside.
static void sim_linear(const char *what, uint64_t less, uint64_t more, double factor, double spare) {
    double limit = (double)less * factor * 1.25 + spare;
    if ((double)more <= limit) return;
    fail_msg("%s: %llu of the smaller, %llu of the larger, which is %.1f times as large: more than linear", what,
             (unsigned long long)less, (unsigned long long)more, factor);
}

//-- what is saved -----------------------------------------------------------------

// A model of `pieces` tensors that are split over all ranks of a world, each in one of these ways, of 256 bytes on each rank that
// saves; one of 600 KiB there, which has sums of blocks; and some that every rank has whole.
enum { SIM_BY_ROWS, SIM_COLUMNS = 4, SIM_SCATTERED, SIM_GRID, SIM_TWINS };     // of eight tensors four are split by rows
enum { SIM_ROWS = 4, SIM_BLOCKS = 150 };        // of a piece: rows of 64 bytes; rows of 4 KiB, with sums of blocks

typedef struct sim_model {
    int        pieces, shared, saved;           // saved: ranks of the world that saves, which gives the tensors their shapes
    int        rows;                            // of 4 KiB, that a rank that saves has of the embedding
    ckpt_state st;
    char      *memory;
    size_t     size;
    int64_t    clock[3];
} sim_model;

static int sim_log2(int n) {
    int bits = 0;
    while (1 << (bits + 1) <= n) bits++;
    return bits;
}

static void sim_split(ckpt_tensor *t, int way, int saved, int world, int rank) {
    const int64_t per = (int64_t)SIM_ROWS * saved / world;
    int64_t rows = 1 << (sim_log2(world) + 1) / 2, columns = world / rows, tall = 1 << (sim_log2(saved) + 1) / 2;
    t->ndim = 2;
    t->global_shape[0] = (int64_t)SIM_ROWS * saved;
    t->global_shape[1] = t->shape[1] = 16;
    t->shape[0] = per;
    t->offset[0] = rank * per;
    t->offset[1] = 0;
    if (way == SIM_SCATTERED) t->offset[0] = (rank * 5 + 3) % world * per;
    if (way == SIM_TWINS) {                             // as of two groups of ranks with the same in each
        t->global_shape[0] /= 2;
        t->offset[0] = rank % (world / 2) * per;
    }
    if (way == SIM_COLUMNS) {
        t->global_shape[1] = t->global_shape[0];
        t->global_shape[0] = t->shape[0] = 16;
        t->shape[1] = per;
        t->offset[1] = t->offset[0];
        t->offset[0] = 0;
    }
    if (way == SIM_GRID) {
        t->global_shape[0] = tall * 8;
        t->global_shape[1] = saved / tall * 8;
        for (int d = 0; d < 2; d++) {
            t->shape[d] = t->global_shape[d] / (d == 0 ? rows : columns);
            t->offset[d] = (d == 0 ? rank / columns : rank % columns) * t->shape[d];
        }
    }
}

// Moves the binding from one rank to another: the same names and shapes, other offsets.
static void sim_move(sim_model *m, int world, int rank) {
    for (int i = 0; i < m->pieces; i++) {
        ckpt_tensor *t = &m->st.items[i].tensor;
        sim_split(t, i % 8, m->saved, world, rank);
    }
    ckpt_tensor *big = &m->st.items[m->pieces].tensor;
    big->offset[0] = rank * big->shape[0];
}

static void sim_bind(sim_model *m, int pieces, int rows, int saved, int world, int rank) {
    static const char *const clocks[] = { "state/seed", "state/step", "state/seen" };
    char name[64];
    memset(m, 0, sizeof *m);
    m->pieces = pieces;
    m->shared = 1 + pieces / 8;
    m->saved = saved;
    m->rows = rows;
    size_t each = 256 * (size_t)saved / (size_t)world, big = (size_t)rows * 4096 * (size_t)saved / (size_t)world;
    m->size = each * (size_t)(pieces + m->shared) + big;
    m->memory = (char *)malloc(m->size);
    if (m->memory == NULL) util_die("no memory for", "a model");
    for (int i = 0; i <= pieces + m->shared; i++) {
        ckpt_tensor t;
        memset(&t, 0, sizeof t);
        t.dtype = CKPT_F32;
        t.data = m->memory + each * (size_t)(i <= pieces ? i : i - 1) + (i > pieces ? big : 0);
        if (i < pieces) snprintf(name, sizeof name, "state/model/layers/%05d/weight", i);
        else if (i == pieces) snprintf(name, sizeof name, "state/model/embedding");
        else snprintf(name, sizeof name, "state/model/norm/%05d", i);
        if (i < pieces) {
            sim_split(&t, i % 8, saved, world, rank);
        } else if (i == pieces) {
            t.ndim = 2;
            t.shape[0] = (int64_t)rows * saved / world;
            t.global_shape[0] = (int64_t)rows * saved;
            t.offset[0] = rank * t.shape[0];
            t.shape[1] = t.global_shape[1] = 1024;
        } else {
            t.ndim = 1;
            t.shape[0] = 16;
        }
        ckpt_bind(&m->st, name, &t);
    }
    for (int i = 0; i < 3; i++) ckpt_bind_int(&m->st, clocks[i], &m->clock[i]);
    if (ckpt__state_check(&m->st) != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

// Are all tensors zero, as they were saved?
static bool sim_is_loaded(const sim_model *m) {
    for (int i = 0; i < m->st.count; i++) {
        const ckpt__binding *b = &m->st.items[i];
        const char *p = (const char *)b->tensor.data;
        if (b->kind == CKPT_KIND_TENSOR && (p[0] != 0 || memcmp(p, p + 1, b->size - 1) != 0)) return false;
    }
    return true;
}

static void sim_unbind(sim_model *m) {
    ckpt_state_free(&m->st);
    free(m->memory);
}

//-- rank 0, with what all others would send ----------------------------------------

typedef struct sim_job {
    int        ranks, pieces;
    sim_model  model;
    size_t     rows, pieced;                    // in all tables; of .metadata
    ckpt__buf  tables, ends, answer, reports, report_ends, text;
    uint64_t  *sizes;                           // of the files
    sim_count  decided, heeded, compiled, parsed;
    double     seconds[3];                      // rank 0's: decide, compile; parse
} sim_job;

static void sim_end_at(ckpt__buf *ends, uint64_t at) {
    ckpt__buf_add(ends, &at, sizeof at);
}

static uint32_t sim_zeros(uint64_t size) {
    static uint64_t sizes[64];
    static uint32_t sums[64];
    size_t at = size % 61;
    if (sizes[at] != size) {
        char *zeros = (char *)calloc(1, (size_t)size + 1);
        sums[at] = ckpt__digest_crc32(0, zeros, (size_t)size);
        sizes[at] = size;
        free(zeros);
    }
    return sums[at];
}

// What ckpt__shard_describe would note of a file that holds these, all zeros.
static void sim_describe(ckpt__shard_file *f, const ckpt__binding *items, size_t count) {
    uint64_t at = 4096;
    f->notes.len = 0;
    f->written = f->has_crc = true;
    ckpt__shard_table(&f->notes, items, count);
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = items[i].size, block = CKPT__SHARD_BLOCK, blocks = size > block ? (size - 1) / block + 1 : 0;
        if (items[i].kind == CKPT_KIND_INT) {
            ckpt__buf_le(&f->notes, 0, 8);
            continue;
        }
        ckpt__buf_le(&f->notes, at, 8);
        ckpt__buf_le(&f->notes, size, 8);
        ckpt__buf_le(&f->notes, sim_zeros(size), 4);
        ckpt__buf_le(&f->notes, blocks, 4);
        for (uint64_t k = 0; k < blocks; k++) ckpt__buf_le(&f->notes, sim_zeros(ckpt__engine_min(block, size - k * block)), 4);
        at += (size + 63) / 64 * 64;
    }
    f->size = f->content = at + 1000;
    f->crc = f->content_crc = 7;
}

static void sim_decide(sim_job *j) {
    ckpt_allocator counted = { sim_memory, &j->decided };
    ckpt__buf_init(&j->tables, &counted);
    ckpt__buf_init(&j->ends, &counted);
    ckpt__buf_init(&j->answer, &counted);
    for (int i = 0; i < j->ranks; i++) {
        sim_move(&j->model, j->ranks, i);
        ckpt__shard_table(&j->tables, j->model.st.items, (size_t)j->model.st.count);
        sim_end_at(&j->ends, j->tables.len);
        j->rows += (size_t)j->model.st.count;
    }
    double begin = sim_seconds();
    sim_begin(&j->decided);
    ckpt__shard_answer(&counted, CKPT_OK, &j->tables, &j->ends, 0, &j->answer);
    sim_end(&j->decided);
    j->seconds[0] = sim_seconds() - begin;
    ckpt__buf_free(&j->tables);
}

static void sim_report(sim_job *j) {
    ckpt__shard_plan plan;
    ckpt__shard_file file;
    size_t count = (size_t)j->model.st.count;
    ckpt__binding *mine = (ckpt__binding *)malloc(count * sizeof *mine);
    ckpt_allocator counted = { sim_memory, &j->compiled };
    ckpt__buf_init(&j->reports, &counted);
    ckpt__buf_init(&j->report_ends, &counted);
    ckpt__shard_plan_init(&plan, NULL);
    ckpt__shard_file_init(&file, NULL);
    j->sizes = (uint64_t *)calloc((size_t)j->ranks, sizeof *j->sizes);
    assert_int_equal(j->answer.data[0], 0);
    for (int i = 0; i < j->ranks; i++) {
        size_t n = 0;
        sim_begin(&j->heeded);
        assert_int_equal(ckpt__shard_heed(&plan, j->answer.data + 1, j->answer.len - 1, i, j->ranks, count), CKPT_OK);
        j->heeded.steps = 0;                            // of one rank: the last's
        sim_end(&j->heeded);
        sim_move(&j->model, j->ranks, i);
        for (size_t k = 0; k < count; k++) if (plan.mine[k]) mine[n++] = j->model.st.items[k];
        sim_describe(&file, mine, n);
        ckpt__shard_report(&j->reports, &file);
        sim_end_at(&j->report_ends, j->reports.len);
        j->sizes[i] = file.size;
    }
    ckpt__shard_plan_free(&plan);
    ckpt__shard_file_free(&file);
    free(mine);
}

static void sim_compile(sim_job *j) {
    ckpt_allocator counted = { sim_memory, &j->compiled };
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    ckpt__buf_init(&j->text, &counted);
    double begin = sim_seconds();
    sim_begin(&j->compiled);
    ckpt_err e = ckpt__shard_compile(&counted, j->reports.data, (const uint64_t *)(const void *)j->report_ends.data, j->ranks, 0, j->ranks, &t,
                                     ".pt", "run", &j->text, NULL);
    sim_end(&j->compiled);
    j->seconds[1] = sim_seconds() - begin;
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
}

static void sim_job_run(sim_job *j, int ranks, int pieces) {
    memset(j, 0, sizeof *j);
    j->ranks = ranks;
    j->pieces = pieces;
    sim_bind(&j->model, pieces, SIM_BLOCKS, ranks, ranks, 0);
    sim_decide(j);
    sim_report(j);
    sim_compile(j);
    ckpt__buf_free(&j->reports);
}

static ckpt_err sim_parse(sim_job *j, ckpt__shard_meta *meta) {
    ckpt_allocator counted = { sim_memory, &j->parsed };
    double begin = sim_seconds();
    sim_begin(&j->parsed);
    ckpt_err e = ckpt__shard_parse(meta, &counted, j->text.data, j->text.len);
    sim_end(&j->parsed);
    j->seconds[2] = sim_seconds() - begin;
    return e;
}

static void sim_job_free(sim_job *j) {
    ckpt__buf_free(&j->ends);
    ckpt__buf_free(&j->answer);
    ckpt__buf_free(&j->report_ends);
    ckpt__buf_free(&j->text);
    free(j->sizes);
    sim_unbind(&j->model);
}

//-- any rank, loading ----------------------------------------------------------------

typedef struct sim_store { uint64_t gets, stats, bytes; const sim_job *job; } sim_store;

static int sim_store_file(const char *name) {
    int rank = -1;
    if (sscanf(name, "ep1-ba1/__%d_0.pt", &rank) != 1) abort();
    return rank;
}

static ckpt_err sim_store_get(ckpt_store *s, const char *name, const char *etag, uint64_t offset, ckpt__sink *sink, ckpt__transfer *t) {
    sim_store *x = (sim_store *)s->impl;
    (void)etag;
    (void)t;
    if (sink->memory == NULL || offset + sink->size > x->job->sizes[sim_store_file(name)]) abort();
    memset(sink->memory, 0, (size_t)sink->size);
    sink->got = sink->size;
    __atomic_add_fetch(&x->gets, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&x->bytes, sink->size, __ATOMIC_RELAXED);
    return CKPT_OK;
}

static ckpt_err sim_store_stat(ckpt_store *s, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    sim_store *x = (sim_store *)s->impl;
    (void)t;
    out->size = x->job->sizes[sim_store_file(name)];
    __atomic_add_fetch(&x->stats, 1, __ATOMIC_RELAXED);
    return CKPT_OK;
}

typedef struct sim_loaded { uint64_t gets, stats, bytes, needed; sim_count work; double seconds; } sim_loaded;

// One rank of `world` takes its part of a checkpoint whose listing it has.
static sim_loaded sim_load(const sim_job *j, const ckpt__shard_meta *meta, int world, int rank) {
    static ckpt__store_table table;
    ckpt_store *store = NULL;
    sim_loaded done;
    sim_model m;
    ckpt__engine_job quiet;
    ckpt__file_options o;
    ckpt__shard_place place;
    ckpt__shard_count count = { 0, 0, 0 };
    memset(&done, 0, sizeof done);
    memset(&quiet, 0, sizeof quiet);
    memset(&o, 0, sizeof o);
    memset(&place, 0, sizeof place);
    table.scheme = "sim";
    table.get = sim_store_get;
    table.stat = sim_store_stat;
    assert_int_equal(ckpt__store_new(&store, &table, "sim://bucket/", NULL, sizeof(sim_store)), CKPT_OK);
    sim_store *x = (sim_store *)store->impl;
    x->job = j;
    place.store = store;
    place.prefix = "ep1-ba1";
    o.job = &quiet;
    quiet.threads = 1;                                  // steps are counted on this thread
    sim_bind(&m, j->pieces, SIM_BLOCKS, j->ranks, world, rank);
    memset(m.memory, 0xaa, m.size);
    double begin = sim_seconds();
    sim_begin(&done.work);
    ckpt_err e = ckpt__shard_fits(meta, &m.st, &o, NULL);
    if (e == CKPT_OK) e = ckpt__shard_present(meta, &place, &m.st, &o);
    if (e == CKPT_OK) e = ckpt__shard_restore(meta, &place, &m.st, &o, NULL, &count);
    sim_end(&done.work);
    done.seconds = sim_seconds() - begin;
    if (e != CKPT_OK) fail_msg("rank %d of %d: %s", rank, world, ckpt_last_error());
    assert_true(sim_is_loaded(&m));
    done.gets = x->gets;
    done.stats = x->stats;
    done.bytes = x->bytes;
    done.needed = count.needed;
    assert_int_equal(count.read, x->bytes);
    assert_int_equal(count.requests, x->gets);
    ckpt__store_close(store);
    sim_unbind(&m);
    return done;
}

//-- ranks as coroutines -------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__)
    #define SIM_ASAN 1
#elif defined(__has_feature)
    #if __has_feature(address_sanitizer)
        #define SIM_ASAN 1
    #endif
#endif
#ifdef SIM_ASAN
    #include <sanitizer/common_interface_defs.h>
#else
    #define SIM_ASAN 0
    #define __sanitizer_start_switch_fiber(save, bottom, size) ((void)(bottom), (void)(size))
    #define __sanitizer_finish_switch_fiber(save, bottom, size) ((void)0)
#endif

enum { SIM_MOST = SIM_ASAN ? 256 : 4096 };      // ranks
enum { SIM_STACK = SIM_ASAN ? 1 << 20 : 256 << 10, SIM_GUARD = 4096, SIM_PHASES = 8 };

typedef enum sim_what { SIM_BARRIER, SIM_MIN, SIM_BROADCAST, SIM_GATHER } sim_what;

struct sim_world;

typedef struct sim_rank {
    struct sim_world  *world;
    int                rank;
    ckpt_ranks         ranks;
    ucontext_t         at;
    char              *stack;
    void              *fake;
    bool               here, done;
    sim_what           what;                    // the collective that it has come to
    const void        *in;
    void              *out;
    size_t             size;
    int                root;
    ckpt__error_record error;
    sim_count          count, phase[SIM_PHASES];    // all, and by what the body says that it is doing
    sim_model          model;
    uint64_t           puts, sizes, lists, removes;     // of its store; below sim_lock
    ckpt_store        *store;
    ckpt_uploader     *uploader;
} sim_rank;

typedef struct sim_world {
    int         size;
    ucontext_t  at;
    void       *fake;
    char       *stacks;
    const void *own_bottom;                     // of the stack that runs them all
    size_t      own_size;
    sim_rank   *rank;
    void      (*body)(sim_rank *r, void *arg);
    void       *arg;
} sim_world;

static sim_rank *sim_running;

// From a rank back to the one that runs them all.
static void sim_leave(sim_rank *r) {
    __sanitizer_start_switch_fiber(r->done ? NULL : &r->fake, r->world->own_bottom, r->world->own_size);
    (void)swapcontext(&r->at, &r->world->at);
    __sanitizer_finish_switch_fiber(r->fake, &r->world->own_bottom, &r->world->own_size);
}

static void sim_main(void) {
    sim_rank *r = sim_running;
    __sanitizer_finish_switch_fiber(NULL, &r->world->own_bottom, &r->world->own_size);
    r->world->body(r, r->world->arg);
    r->done = true;
    sim_leave(r);
}

static void sim_enter(sim_rank *r) {
    sim_running = r;
    ckpt__error_last = r->error;
    sim_begin(&r->count);
    __sanitizer_start_switch_fiber(&r->world->fake, r->stack, SIM_STACK);
    (void)swapcontext(&r->world->at, &r->at);
    __sanitizer_finish_switch_fiber(r->world->fake, NULL, NULL);
    sim_end(&r->count);
    r->error = ckpt__error_last;
}

static ckpt_err sim_meet(sim_rank *r, sim_what what, const void *in, void *out, size_t size, int root) {
    r->what = what;
    r->in = in;
    r->out = out;
    r->size = size;
    r->root = root;
    r->here = true;
    sim_leave(r);
    return CKPT_OK;
}

static ckpt_err sim_barrier(void *user) {
    sim_rank *r = (sim_rank *)user;
    r->count.barriers++;
    return sim_meet(r, SIM_BARRIER, NULL, NULL, 0, 0);
}

static ckpt_err sim_min(int64_t *values, int count, void *user) {
    sim_rank *r = (sim_rank *)user;
    r->count.mins++;
    r->count.sent += (uint64_t)count * sizeof *values;
    r->count.received += (uint64_t)count * sizeof *values;
    return sim_meet(r, SIM_MIN, NULL, values, (size_t)count * sizeof *values, 0);
}

static ckpt_err sim_broadcast(void *bytes, size_t size, int root, void *user) {
    sim_rank *r = (sim_rank *)user;
    r->count.broadcasts++;
    *(r->rank == root ? &r->count.sent : &r->count.received) += size;
    return sim_meet(r, SIM_BROADCAST, NULL, bytes, size, root);
}

static ckpt_err sim_gather(const void *mine, size_t size, void *all, void *user) {
    sim_rank *r = (sim_rank *)user;
    r->count.gathers++;
    r->count.sent += size;
    if (r->rank == 0) r->count.received += size * (size_t)r->world->size;
    if ((r->rank == 0) != (all != NULL)) abort();
    return sim_meet(r, SIM_GATHER, mine, all, size, 0);
}

// All ranks have come to a collective, and it must be the same one.
static void sim_act(sim_world *w) {
    sim_rank *first = &w->rank[0];
    for (int i = 0; i < w->size; i++) {
        sim_rank *r = &w->rank[i];
        if (!r->here || r->what != first->what || r->size != first->size || r->root != first->root) {
            fprintf(stderr, "test_sim_ranks.c: out of step: rank 0 calls hook %d with %zu bytes, rank %d %s\n", (int)first->what, first->size, i,
                    r->done ? "has ended" : "does not");
            abort();
        }
        r->here = false;
    }
    for (size_t k = 0; first->what == SIM_MIN && k < first->size / sizeof(int64_t); k++) {
        int64_t least = INT64_MAX;
        for (int i = 0; i < w->size; i++) if (((int64_t *)w->rank[i].out)[k] < least) least = ((int64_t *)w->rank[i].out)[k];
        for (int i = 0; i < w->size; i++) ((int64_t *)w->rank[i].out)[k] = least;
    }
    for (int i = 0; first->what == SIM_BROADCAST && i < w->size; i++)
        if (i != first->root) memcpy(w->rank[i].out, w->rank[first->root].out, first->size);
    for (int i = 0; first->what == SIM_GATHER && i < w->size; i++)
        memcpy((char *)first->out + (size_t)i * first->size, w->rank[i].in, first->size);
}

// Runs `body` on each rank until all have ended.
static void sim_run(sim_world *w, int size, void (*body)(sim_rank *r, void *arg), void *arg) {
    const size_t each = (size_t)SIM_STACK + SIM_GUARD;
    memset(w, 0, sizeof *w);
    w->size = size;
    w->body = body;
    w->arg = arg;
    w->rank = (sim_rank *)calloc((size_t)size, sizeof *w->rank);
    w->stacks = (char *)mmap(NULL, each * (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->rank == NULL || w->stacks == MAP_FAILED) util_die("no memory for", "ranks");
    for (int i = 0; i < size; i++) {
        sim_rank *r = &w->rank[i];
        r->world = w;
        r->rank = i;
        r->stack = w->stacks + (size_t)i * each + SIM_GUARD;
        if (mprotect(r->stack - SIM_GUARD, SIM_GUARD, PROT_NONE) != 0) util_die("cannot guard", "a stack");
        r->ranks.rank = i;
        r->ranks.world_size = size;
        r->ranks.local_rank = i % 8;            // machines of 8
        r->ranks.local_world_size = 8;
        r->ranks.node_rank = i / 8;
        r->ranks.barrier = sim_barrier;
        r->ranks.allreduce_min = sim_min;
        r->ranks.broadcast = sim_broadcast;
        r->ranks.gather = sim_gather;
        r->ranks.user = r;
        (void)getcontext(&r->at);
        r->at.uc_stack.ss_sp = r->stack;
        r->at.uc_stack.ss_size = SIM_STACK;
        makecontext(&r->at, sim_main, 0);
    }
    for (int live = size; live > 0; ) {
        live = 0;
        for (int i = 0; i < size; i++) {
            if (!w->rank[i].done) sim_enter(&w->rank[i]);
            live += !w->rank[i].done;
        }
        if (live > 0) sim_act(w);
    }
}

static void sim_world_free(sim_world *w) {
    (void)munmap(w->stacks, ((size_t)SIM_STACK + SIM_GUARD) * (size_t)w->size);
    free(w->rank);
}

//-- whole savers ----------------------------------------------------------------------

typedef struct sim_saving {
    const char *folder;
    int         pieces, saved, machine;         // machine: ranks that share a folder; 0: all do
    bool        loads, resumes, uploads;
} sim_saving;
enum { SIM_OPENING, SIM_FIRST, SIM_IDLE, SIM_SECOND, SIM_CLOSING, SIM_LOADING, SIM_RESUMING };

// What was counted for the rank by now is what it did in that phase.
static void sim_phase(sim_rank *r, int phase) {
    sim_end(&r->count);
    sim_count *to = &r->phase[phase];
    *to = r->count;
    memset(&r->count, 0, sizeof r->count);
    r->count.live = r->count.peak = to->live;
    sim_begin(&r->count);
}

// What was counted so far is forgotten.
static void sim_fresh(sim_rank *r) {
    memset(&r->count, 0, sizeof r->count);
    sim_begin(&r->count);
}

static void sim_good(const sim_rank *r, ckpt_err e, const char *what) {
    if (e == CKPT_OK) return;
    fprintf(stderr, "test_sim_ranks.c: rank %d of %d: %s: %s\n", r->rank, r->world->size, what, ckpt_last_error());
    exit(1);                                            // there is no way back from here for cmocka
}

//-- a store in memory, one for all: names and sizes

typedef struct sim_object { char name[100]; uint64_t size; } sim_object;
static sim_object     *sim_objects;
static int             sim_object_count, sim_object_room;
static pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;

static sim_object *sim_object_find(const char *name) {
    for (int i = sim_object_count; i > 0; i--) if (strcmp(sim_objects[i - 1].name, name) == 0) return &sim_objects[i - 1];
    return NULL;
}

static ckpt_err sim_put(const char *name, const char *path, bool overwrite, void *user) {
    struct stat st;
    (void)overwrite;
    if (stat(path, &st) != 0) return CKPT_IO;
    pthread_mutex_lock(&sim_lock);
    ((sim_rank *)user)->puts++;
    sim_object *o = sim_object_find(name);
    if (o == NULL && sim_object_count < sim_object_room) o = &sim_objects[sim_object_count++];
    if (o == NULL) abort();
    snprintf(o->name, sizeof o->name, "%s", name);
    o->size = (uint64_t)st.st_size;
    pthread_mutex_unlock(&sim_lock);
    return CKPT_OK;
}

static ckpt_err sim_get(const char *name, const char *path, void *user) {
    (void)name;
    (void)path;
    (void)user;
    return CKPT_UNSUPPORTED;
}

static ckpt_err sim_object_size(const char *name, uint64_t *size, void *user) {
    pthread_mutex_lock(&sim_lock);
    ((sim_rank *)user)->sizes++;
    const sim_object *o = sim_object_find(name);
    if (o != NULL) *size = o->size;
    pthread_mutex_unlock(&sim_lock);
    return o != NULL ? CKPT_OK : CKPT_NOT_FOUND;
}

static ckpt_err sim_list(const char *prefix, ckpt_err (*each)(const char *name, uint64_t size, void *each_user), void *each_user, void *user) {
    (void)prefix;
    (void)each;
    (void)each_user;
    pthread_mutex_lock(&sim_lock);
    ((sim_rank *)user)->lists++;
    pthread_mutex_unlock(&sim_lock);
    return CKPT_OK;
}

static ckpt_err sim_remove(const char *name, void *user) {
    pthread_mutex_lock(&sim_lock);
    ((sim_rank *)user)->removes++;
    sim_object *o = sim_object_find(name);
    if (o != NULL) *o = sim_objects[--sim_object_count];
    pthread_mutex_unlock(&sim_lock);
    return o != NULL ? CKPT_OK : CKPT_NOT_FOUND;
}

static void sim_remote(sim_rank *r, ckpt_saver_desc *d, const char *folder) {
    ckpt_store_ops ops;
    ckpt_uploader_desc u;
    char staging[500];
    memset(&ops, 0, sizeof ops);
    memset(&u, 0, sizeof u);
    ops.put = sim_put;
    ops.get = sim_get;
    ops.size = sim_object_size;
    ops.list = sim_list;
    ops.remove = sim_remove;
    snprintf(staging, sizeof staging, "%s/.staging%d", folder, r->rank);
    sim_good(r, ckpt_store_custom(&r->store, &ops, r), "store");
    u.store = r->store;
    u.upload_staging_folder = staging;
    u.run_name = "sim";
    sim_good(r, ckpt_uploader_open(&r->uploader, &u), "uploader");
    d->uploaders = &r->uploader;
    d->uploaders_count = 1;
    d->num_remote_to_keep = 1;
}

static void sim_remote_end(sim_rank *r) {
    sim_good(r, ckpt_uploader_close(r->uploader, 0), "close of the uploader");
    ckpt_store_close(r->store);
}

static void sim_body_load(sim_rank *r, void *arg) {
    const sim_saving *x = (const sim_saving *)arg;
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    memset(r->model.memory, 0xaa, r->model.size);
    d.load_path = util_join(x->folder, "ep0-ba20");
    d.state = &r->model.st;
    d.ranks = r->ranks;
    d.allocator.fn = sim_memory;
    d.allocator.user = &r->count;
    sim_fresh(r);
    sim_good(r, ckpt_load(&d, NULL), "load");
    sim_phase(r, SIM_LOADING);
    sim_now = NULL;
    if (!sim_is_loaded(&r->model)) sim_good(r, CKPT_CORRUPT, "what was loaded");
}

// Two saves, by the interval, the second of which rotates the first away, and nine calls between them with nothing due.
static void sim_body_save(sim_rank *r, void *arg) {
    const sim_saving *x = (const sim_saving *)arg;
    char folder[400];
    ckpt_saver_desc d;
    ckpt_saver *s = NULL;
    ckpt_timestamp t;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    snprintf(folder, sizeof folder, x->machine == 0 ? "%s" : "%s/node%d", x->folder, r->rank / (x->machine > 0 ? x->machine : 1));
    d.state = &r->model.st;
    d.folder = folder;
    d.run_name = "sim";
    d.sharded = true;
    d.num_checkpoints_to_keep = 1;
    d.save_interval = "10ba";
    d.ranks = r->ranks;
    d.allocator.fn = sim_memory;
    d.allocator.user = &r->count;
    if (x->uploads) sim_remote(r, &d, folder);
    sim_fresh(r);
    sim_good(r, ckpt_saver_open(&s, &d), "open");
    sim_phase(r, SIM_OPENING);
    if (x->resumes) {
        sim_good(r, ckpt_saver_resume(s, &t), "resume");
        sim_phase(r, SIM_RESUMING);
        sim_good(r, t.batch == 20 && sim_is_loaded(&r->model) ? CKPT_OK : CKPT_CORRUPT, "what was resumed from");
    }
    for (int step = 1; step <= 20 && !x->resumes; step++) {
        ckpt_next_batch(&t, 1, 1, 0.1);
        sim_good(r, ckpt_saver_batch_end(s, &t), "batch_end");
        if (step == 10) sim_phase(r, SIM_FIRST);
        if (step == 19) sim_phase(r, SIM_IDLE);
        if (step == 20) sim_phase(r, SIM_SECOND);
    }
    sim_good(r, ckpt_saver_close(s, 0), "close");
    sim_phase(r, SIM_CLOSING);
    if (x->uploads) sim_remote_end(r);
}

static void sim_body(sim_rank *r, void *arg) {
    const sim_saving *x = (const sim_saving *)arg;
    sim_now = NULL;
    sim_bind(&r->model, x->pieces, 1, x->saved, r->world->size, r->rank);
    memset(r->model.memory, x->resumes ? 0xaa : 0, r->model.size);
    sim_begin(&r->count);
    if (x->loads) sim_body_load(r, arg);
    else sim_body_save(r, arg);
    sim_now = NULL;
    sim_unbind(&r->model);
}

static uint64_t sim_requests(const sim_count *c) {
    uint64_t n = 0;
    for (int i = 0; i < SIM_CALLS; i++) n += c->sys[i];
    return n;
}

static uint64_t sim_collectives(const sim_count *c) {
    return c->gathers + c->broadcasts + c->mins + c->barriers;
}

static void sim_most(uint64_t *a, uint64_t b) {
    if (b > *a) *a = b;
}

// What rank 0 did, and the most that any other did.
typedef struct sim_seen { sim_count zero[SIM_PHASES], other[SIM_PHASES]; } sim_seen;

static void sim_see(const sim_world *w, sim_seen *out) {
    memset(out, 0, sizeof *out);
    memcpy(out->zero, w->rank[0].phase, sizeof out->zero);
    for (int i = 1; i < w->size; i++) {
        for (int k = 0; k < SIM_PHASES; k++) {
            const sim_count *c = &w->rank[i].phase[k];
            sim_count *to = &out->other[k];
            const uint64_t *from = &c->steps;
            for (size_t n = 0; n < sizeof *c / sizeof(uint64_t); n++) sim_most(&to->steps + n, from[n]);
        }
    }
}

static void sim_print(const char *what, const sim_count *c) {
    printf("    %-14s %3llu collectives, %9llu bytes out %9llu in; ", what, (unsigned long long)sim_collectives(c),
           (unsigned long long)c->sent, (unsigned long long)c->received);
    printf("%6llu system calls (%llu opened, %llu read, %llu written, %llu synced); ", (unsigned long long)sim_requests(c),
           (unsigned long long)c->sys[SIM_OPEN], (unsigned long long)c->sys[SIM_READ], (unsigned long long)c->sys[SIM_WRITE],
           (unsigned long long)c->sys[SIM_SYNC]);
    printf("%10llu steps, %4llu allocations, peak %9llu\n", (unsigned long long)c->steps, (unsigned long long)c->allocs,
           (unsigned long long)c->peak);
}

static void sim_saver_run(sim_seen *out, int ranks, int pieces, int machine) {
    sim_world w;
    sim_saving x = { util_temp_dir(), pieces, ranks, machine, false, false, false };
    double begin = sim_seconds();
    sim_run(&w, ranks, sim_body, &x);
    sim_see(&w, out);
    sim_world_free(&w);
    printf("  %d ranks, %d pieces each%s: %.2f s of CPU for all\n", ranks, pieces, machine > 0 ? ", 8 to a folder" : "", sim_seconds() - begin);
    sim_print("0 opens", &out->zero[SIM_OPENING]);
    sim_print("0 saves", &out->zero[SIM_FIRST]);
    sim_print("0 saves again", &out->zero[SIM_SECOND]);
    sim_print("others open", &out->other[SIM_OPENING]);
    sim_print("others save", &out->other[SIM_FIRST]);
    sim_print("others again", &out->other[SIM_SECOND]);
    fflush(stdout);
    util_remove_tree(x.folder);
    util_mkdir(x.folder);
}

// Between two worlds, the second with `factor` times as many ranks: requests, and what other ranks than 0 do, stay as they are.
static void sim_same_requests(const sim_seen *a, const sim_seen *b, double factor, bool shared) {
    for (int k = SIM_FIRST; k <= SIM_CLOSING; k++) {
        const sim_count *a0 = &a->zero[k], *b0 = &b->zero[k], *a1 = &a->other[k], *b1 = &b->other[k];
        if (k == SIM_IDLE) continue;                    // an agreement each second: by the clock
        // One more, or two, where a save or the deleting of folders takes longer than that: of up to 60 words each.
        uint64_t had = sim_collectives(a1), has = sim_collectives(b1);
        double spare = 64 + (has > had ? 480.0 * (double)(has - had) : 0.0);
        sim_linear("collectives of a save", sim_collectives(a1), sim_collectives(b1), 0.8, 2);
        sim_linear("what a rank sends in a save", a1->sent, b1->sent, 0.8, spare);
        sim_linear("system calls of a rank in a save", sim_requests(a1), sim_requests(b1), 0.8, 8);
        sim_linear("allocations of a rank in a save", a1->allocs, b1->allocs, 0.8, 8);
        sim_linear("a rank's steps in a save", a1->steps, b1->steps, shared ? 0.8 : factor, 0.2 * (double)a1->steps + 5000);
        if (shared) sim_linear("what a rank receives in a save", a1->received, b1->received, 0.8, spare);
        sim_linear("rank 0's system calls in a save", sim_requests(a0), sim_requests(b0), 0.8, 8);
        sim_linear("rank 0's steps in a save", a0->steps, b0->steps, factor, 0);
        sim_linear("rank 0's memory in a save", a0->peak, b0->peak, factor, 0);
        sim_linear("what rank 0 receives in a save", a0->received, b0->received, factor, 0);
        sim_linear("rank 0's allocations in a save", a0->allocs, b0->allocs, 0.8, 64);
    }
    sim_linear("rank 0's steps at open", a->zero[SIM_OPENING].steps, b->zero[SIM_OPENING].steps, factor, 0);
    sim_linear("a rank's system calls at open", sim_requests(&a->other[SIM_OPENING]), sim_requests(&b->other[SIM_OPENING]), 0.8, 8);
    sim_linear("rank 0's system calls at open", sim_requests(&a->zero[SIM_OPENING]), sim_requests(&b->zero[SIM_OPENING]), 0.8, 8);
    sim_linear("collectives at open", sim_collectives(&a->other[SIM_OPENING]), sim_collectives(&b->other[SIM_OPENING]), 0.8, 4);
}

static void test_savers_by_ranks(void **state) {
    sim_seen before, now;
    (void)state;
    for (int ranks = 64; ranks <= SIM_MOST; ranks *= 4) {
        sim_saver_run(&now, ranks, 8, 0);
        if (ranks > 64) sim_same_requests(&before, &now, 4, true);
        before = now;
    }
}

// Machines with folders of their own get the listing from rank 0, and nothing else is different.
static void test_savers_by_machines(void **state) {
    sim_seen before, now;
    (void)state;
    for (int ranks = 64; ranks <= SIM_MOST / 4; ranks *= 4) {
        sim_saver_run(&now, ranks, 8, 8);
        if (ranks > 64) sim_same_requests(&before, &now, 4, false);
        before = now;
    }
}

static void test_savers_by_pieces(void **state) {
    sim_seen a, b;
    (void)state;
    for (int pieces = 32; pieces <= SIM_MOST / 8; pieces *= 4) {
        sim_saver_run(&b, 64, pieces, 0);
        for (int k = SIM_OPENING; k <= SIM_CLOSING && pieces > 32; k++) {
            if (k == SIM_IDLE) continue;
            sim_linear("collectives", sim_collectives(&a.other[k]), sim_collectives(&b.other[k]), 0.8, 4);
            sim_linear("a rank's system calls", sim_requests(&a.other[k]), sim_requests(&b.other[k]), 0.8, 8);
            sim_linear("rank 0's system calls", sim_requests(&a.zero[k]), sim_requests(&b.zero[k]), 0.8, 8);
            sim_linear("a rank's steps", a.other[k].steps, b.other[k].steps, 4, 0);
            sim_linear("what a rank sends", a.other[k].sent, b.other[k].sent, 4, 0);
            sim_linear("rank 0's steps", a.zero[k].steps, b.zero[k].steps, 4, 0);
            sim_linear("rank 0's memory", a.zero[k].peak, b.zero[k].peak, 4, 0);
            sim_linear("what rank 0 receives", a.zero[k].received, b.zero[k].received, 4, 0);
        }
        a = b;
    }
}

// With a store: every rank puts its own file, and takes its own away when it is rotated; rank 0 the listing and the .symlink as well.
static void test_stores_by_ranks(void **state) {
    uint64_t before[2] = { 0, 0 };
    (void)state;
    for (int ranks = 16; ranks <= SIM_MOST / 16; ranks *= 4) {
        sim_world w;
        sim_saving x = { util_temp_dir(), 8, ranks, 0, false, false, true };
        sim_object_room = 4 * ranks + 16;
        sim_objects = (sim_object *)calloc((size_t)sim_object_room, sizeof *sim_objects);
        double begin = sim_seconds();
        sim_run(&w, ranks, sim_body, &x);
        uint64_t now[2] = { 0, 0 };
        for (int i = 0; i < ranks; i++) sim_most(&now[i > 0], w.rank[i].puts + w.rank[i].sizes + w.rank[i].lists + w.rank[i].removes);
        printf("  %d ranks, two saves into a store, %.2f s of CPU for all\n", ranks, sim_seconds() - begin);
        for (int i = 0; i < 2; i++) {
            const sim_rank *r = &w.rank[i];
            printf("    rank %d asks the store for %llu put, %llu size, %llu list, %llu remove\n", i, (unsigned long long)r->puts,
                   (unsigned long long)r->sizes, (unsigned long long)r->lists, (unsigned long long)r->removes);
        }
        if (ranks > 16) {
            sim_linear("requests of rank 0 to the store", before[0], now[0], 0.8, 4);
            sim_linear("requests of a rank to the store", before[1], now[1], 0.8, 4);
        }
        memcpy(before, now, sizeof before);
        for (int i = 1; i < ranks; i++) assert_true(w.rank[i].puts == 2 && w.rank[i].removes == 1 && w.rank[i].lists == 0);
        assert_int_equal(sim_object_count, ranks + 2);  // the files of one checkpoint, .metadata, .symlink
        sim_world_free(&w);
        free(sim_objects);
        sim_object_count = 0;
    }
}

// At each agreement every rank with tars asks for its newest save in a store: one look through the ledger, whether that is the last
// line of it or behind it as many wait.
static void test_newest_of_many(void **state) {
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        uint64_t before = 0;
        for (uint64_t lines = 5000; lines <= 20000; lines *= 4) {
            ckpt__remote r;
            ckpt_allocator a = { NULL, NULL };
            sim_count count;
            memset(&r, 0, sizeof r);
            memset(&count, 0, sizeof count);
            assert_int_equal(ckpt__index_init(&r.ledger, &a, "/folder"), CKPT_OK);
            for (uint64_t i = 1; i <= lines; i++) {
                ckpt__index_line l;
                char name[40];
                memset(&l, 0, sizeof l);
                snprintf(name, sizeof name, "ba%d.pt", (int)i);
                l.name = name;
                l.number = i;
                l.upload = wait == 0 || i <= lines / 2 ? CKPT__UPLOAD_UPLOADED : CKPT__UPLOAD_PENDING;
                assert_int_equal(ckpt__index_insert(&r.ledger, r.ledger.count, &l), CKPT_OK);
            }
            uint64_t last = wait == 0 ? lines : lines / 2;
            sim_begin(&count);
            uint64_t newest = ckpt__remote_newest(&r, UINT64_MAX), below = ckpt__remote_newest(&r, 100);
            sim_end(&count);
            assert_true(newest == last && below == 100);
            r.ledger.lines[last - 1].removing = r.ledger.lines[last - 2].passed = r.ledger.lines[last - 3].others = true;
            assert_true(ckpt__remote_newest(&r, UINT64_MAX) == last - 3);
            if (before > 0) sim_linear("steps to the newest save", before, count.steps, 4, 0);
            before = count.steps;
            ckpt__index_free(&r.ledger);
        }
    }
}

// A checkpoint that never got to the store is handed over by the resume that goes on from it: however many ranks there are, each
// looks for as many of its files.
static void test_take_up_by_ranks(void **state) {
    uint64_t before = 0;
    (void)state;
    for (int ranks = 16; ranks <= SIM_MOST / 16; ranks *= 4) {
        sim_world w;
        sim_seen seen;
        sim_saving x = { util_temp_dir(), 8, ranks, 0, false, false, false };
        sim_run(&w, ranks, sim_body, &x);
        sim_world_free(&w);
        sim_object_room = 2 * ranks + 16;
        sim_objects = (sim_object *)calloc((size_t)sim_object_room, sizeof *sim_objects);
        x.resumes = x.uploads = true;
        sim_run(&w, ranks, sim_body, &x);
        sim_see(&w, &seen);
        sim_world_free(&w);
        uint64_t now = seen.other[SIM_RESUMING].sys[SIM_LOOK];
        printf("  %d ranks resume and hand over: at most %llu looks at files by a rank\n", ranks, (unsigned long long)now);
        assert_int_equal(sim_object_count, ranks + 2);
        if (ranks > 16) sim_linear("looks of a rank that hands over", before, now, 0.8, 4);
        before = now;
        free(sim_objects);
        sim_object_count = 0;
    }
}

// A checkpoint of 256 ranks on 32 and on 256, all of them: by ckpt_load, and by a saver that goes on.
static void test_whole_loads(void **state) {
    static const int worlds[] = { 32, 256 };
    sim_world w;
    sim_seen seen;
    sim_saving x = { util_temp_dir(), 8, 256, 0, false, false, false };
    (void)state;
    sim_run(&w, 256, sim_body, &x);
    sim_world_free(&w);
    for (int i = 0; i < 4; i += UTIL_STRIDE(2)) {
        double begin = sim_seconds();
        int phase = i < 2 ? SIM_LOADING : SIM_RESUMING, world = worlds[i % 2];
        x.loads = i < 2;
        x.resumes = i >= 2;
        sim_run(&w, world, sim_body, &x);
        sim_see(&w, &seen);
        sim_world_free(&w);
        printf("  256 ranks' checkpoint %s on %d: %.2f s of CPU for all\n", i < 2 ? "loaded" : "resumed", world, sim_seconds() - begin);
        sim_print(i < 2 ? "0 loads" : "0 resumes", &seen.zero[phase]);
        sim_print(i < 2 ? "others load" : "others resume", &seen.other[phase]);
        assert_true(sim_collectives(&seen.other[phase]) <= 32);
        // rows, columns and grid: 8 files; scattered: 8 others; twins: 8 at most that a lower rank has written; shared: rank 0's
        assert_true(seen.other[phase].sys[SIM_READ] <= (uint64_t)(256 / world) * 4 + 8);
    }
}

//-- rank 0 alone, for the largest worlds ------------------------------------------------

static void sim_job_print(const sim_job *j) {
    const double mib = 1 << 20, rows = (double)j->rows;
    printf("  %d ranks, %d pieces each, %zu rows in tables: %.1f s of CPU to decide, %.1f for .metadata of %.1f MiB, %.1f s to parse it\n",
           j->ranks, j->pieces, j->rows, j->seconds[0], j->seconds[1], (double)j->text.len / mib, j->seconds[2]);
    printf("    a row: %.0f steps to decide, %.1f compared, %.0f bytes of memory; for .metadata %.0f steps, %.1f compared, %.0f bytes\n",
           (double)j->decided.steps / rows, (double)j->decided.orders / rows, (double)j->decided.peak / rows,
           (double)j->compiled.steps / rows, (double)j->compiled.orders / rows, (double)j->compiled.peak / rows);
    printf("    a piece: %.1f bytes of text, parsed in %.0f steps and %.0f bytes; a rank takes its answer in %llu steps\n",
           (double)j->text.len / (double)j->pieced, (double)j->parsed.steps / (double)j->pieced,
           (double)j->parsed.peak / (double)j->pieced, (unsigned long long)j->heeded.steps);
    fflush(stdout);
}

static void sim_loaded_print(const sim_loaded *l, int world, int rank) {
    printf("    rank %d of %d that load: %llu gets and %llu looks at files; %llu bytes for %llu needed; %llu steps, %llu compared, %.2f s of CPU\n",
           rank, world, (unsigned long long)l->gets, (unsigned long long)l->stats, (unsigned long long)l->bytes, (unsigned long long)l->needed,
           (unsigned long long)l->work.steps, (unsigned long long)l->work.orders, l->seconds);
    fflush(stdout);
}

static void sim_job_compare(const sim_job *a, const sim_job *b, double factor) {
    sim_linear("steps to decide", a->decided.steps, b->decided.steps, factor, 0);
    sim_linear("comparisons to decide", a->decided.orders, b->decided.orders, factor, 1000);
    sim_linear("memory to decide", a->decided.peak, b->decided.peak, factor, 0);
    sim_linear("allocations to decide", a->decided.allocs, b->decided.allocs, 0.8, 0.2 * (double)a->decided.allocs + 24);
    sim_linear("steps for .metadata", a->compiled.steps, b->compiled.steps, factor, 0);
    sim_linear("comparisons for .metadata", a->compiled.orders, b->compiled.orders, factor, 1000);
    sim_linear("memory for .metadata", a->compiled.peak, b->compiled.peak, factor, 0);
    sim_linear("bytes of .metadata", a->text.len, b->text.len, factor, 0);
    sim_linear("steps to parse", a->parsed.steps, b->parsed.steps, factor, 0);
    sim_linear("memory to parse", a->parsed.peak, b->parsed.peak, factor, 0);
}

// One size: rank 0's work, then some ranks of an eighth as many, and of as many, loading. Keeps what there is to compare.
static void sim_size(sim_job *j, int ranks, int pieces, sim_loaded most[2]) {
    ckpt__shard_meta meta;
    sim_job_run(j, ranks, pieces);
    if (sim_parse(j, &meta) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    j->pieced = meta.piece_count;
    sim_job_print(j);
    memset(most, 0, 2 * sizeof *most);
    for (int i = 0; i < 2; i++) {
        int world = i == 0 ? ranks / 8 : ranks;
        const int some[] = { 0, world / 2, world - 1 };
        for (int k = 0; k < 3; k++) {
            sim_loaded l = sim_load(j, &meta, world, some[k]);
            if (k == 1) sim_loaded_print(&l, world, some[k]);
            sim_most(&most[i].gets, l.gets);
            sim_most(&most[i].stats, l.stats);
            sim_most(&most[i].bytes, l.bytes);
            sim_most(&most[i].work.steps, l.work.steps);
            if (l.bytes > 2 * l.needed + (1 << 20)) fail_msg("%llu bytes read for %llu", (unsigned long long)l.bytes, (unsigned long long)l.needed);
        }
    }
    ckpt__shard_free(&meta);
    sim_job_free(j);
}

static void test_rank_0_by_ranks(void **state) {
    sim_job a, b;
    sim_loaded was[2], is[2];
    (void)state;
    for (int ranks = 64; ranks <= SIM_MOST; ranks *= 4) {
        sim_size(&b, ranks, 16, is);
        if (ranks > 64) sim_job_compare(&a, &b, 4);
        for (int i = 0; i < 2 && ranks > 64; i++) {
            sim_linear("gets of a rank that loads", was[i].gets, is[i].gets, 0.8, 2);
            sim_linear("files that it looks at", was[i].stats, is[i].stats, 0.8, 2);
            sim_linear("bytes that it reads", was[i].bytes, is[i].bytes, 0.8, 65536);
            sim_linear("its steps", was[i].work.steps, is[i].work.steps, 4, 100000);
        }
        memcpy(was, is, sizeof was);
        a = b;
    }
}

static void test_rank_0_by_pieces(void **state) {
    sim_job a, b;
    sim_loaded was[2], is[2];
    (void)state;
    for (int pieces = 16; pieces <= SIM_MOST / 4; pieces *= 4) {
        sim_size(&b, 256, pieces, is);
        if (pieces > 16) sim_job_compare(&a, &b, 4);
        for (int i = 0; i < 2 && pieces > 16; i++) {
            sim_linear("gets of a rank that loads", was[i].gets, is[i].gets, 4, 2);
            sim_linear("its steps", was[i].work.steps, is[i].work.steps, 4, 100000);
        }
        memcpy(was, is, sizeof was);
        a = b;
    }
}

// 4,096 ranks with 1,000 pieces each take 1.5 GB and a minute: with CKPT_LONG.
static void test_largest(void **state) {
    sim_job j;
    sim_loaded most[2];
    (void)state;
    sim_size(&j, SIM_MOST, util_long() ? 1000 : 100, most);
    // 8 files that rows, columns and a grid lie in, 8 of the scattered ones, 8 of twins, and rank 0's
    assert_true(most[0].gets <= 40 && most[0].stats <= 40 && most[1].gets <= 4 && most[1].stats <= 4);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_savers_by_ranks),  cmocka_unit_test(test_savers_by_machines), cmocka_unit_test(test_savers_by_pieces),
        cmocka_unit_test(test_stores_by_ranks), cmocka_unit_test(test_take_up_by_ranks), cmocka_unit_test(test_whole_loads),
        cmocka_unit_test(test_rank_0_by_ranks),  cmocka_unit_test(test_rank_0_by_pieces),   cmocka_unit_test(test_largest),
        cmocka_unit_test(test_newest_of_many)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
