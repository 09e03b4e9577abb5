// Proves >>engine: plans of every pattern come out byte for byte as a naive writer makes them, by engine_write (direct and
// buffered), by engine_stream and through an image; reads of every kind of table bring the bytes a naive reader brings;
// damage, short files, failing calls and failing user code are reported once, without leak or hang. run.sh: heavy plain tsan
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#include "fault/faults.h"
#define CKPT__ENGINE_MIB (64 * 1024)
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"

// Thread checking makes everything some twenty times slower, ASan five times. The plain build tries every call that can fail.
#if defined(UTIL_TSAN)
enum { PLANS = 4, READS = 3, STEP = 9 };
#elif defined(UTIL_ASAN)
enum { PLANS = 10, READS = 6, STEP = 9 };
#else
enum { PLANS = 40, READS = 24, STEP = 1 };
#endif

static uint32_t rng_state = 7;
static uint32_t rng(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 17;
    rng_state ^= rng_state << 5;
    return rng_state;
}
static size_t below(size_t n) {
    return (size_t)rng() % n;
}

static const ckpt_allocator plain;

//-- allocator that counts and refuses ----------------------------------------------

typedef struct counting { long live; int calls, fail_at; } counting;

static void *counting_fn(void *ptr, size_t old_size, size_t new_size, void *user) {
    counting *c = (counting *)user;
    if (new_size > 0 && ++c->calls == c->fail_at) return NULL;
    c->live += (long)new_size - (long)old_size;
    if (new_size == 0) { free(ptr); return NULL; }
    return realloc(ptr, new_size);
}

//-- a world of memory to save ------------------------------------------------------

enum { ARENA = 24 * 1024 * 1024 };
static unsigned char *arena;            // aligned to a page; tensors are places in it
static char           attached[3][256]; // files
static size_t         attached_size[3];

// Device memory is host memory turned over, so that a byte that went past state->copy shows.
static int copy_active, copy_calls, copy_fail_at;
static ckpt_err device_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    (void)user; (void)to_device;
    if (__atomic_fetch_add(&copy_active, 1, __ATOMIC_SEQ_CST) != 0) return CKPT_ARG;       // never two at a time
    for (size_t i = 0; i < size; i++) ((unsigned char *)dst)[i] = (unsigned char)~((const unsigned char *)src)[i];
    __atomic_fetch_sub(&copy_active, 1, __ATOMIC_SEQ_CST);
    return ++copy_calls == copy_fail_at ? CKPT_CANCELLED : CKPT_OK;
}

static const char *world_dir;
static ckpt_state  world_state;

static int world_open(void **state) {
    (void)state;
    arena = (unsigned char *)util_keep(aligned_alloc(4096, ARENA), false);
    for (size_t i = 0; i < ARENA; i += 4) {
        uint32_t x = rng();
        memcpy(arena + i, &x, 4);
    }
    world_dir = util_temp_dir();
    world_state.copy = device_copy;
    for (int i = 0; i < 3; i++) {
        attached_size[i] = i == 0 ? 100 : i == 1 ? 70000 : 700001;
        snprintf(attached[i], sizeof attached[i], "%s/attached%d", world_dir, i);
        util_write(attached[i], arena + 1000 * i, attached_size[i]);
    }
    return 0;
}

//-- plans --------------------------------------------------------------------------

static size_t some_size(void) {
    static const size_t edges[] = { 1, 63, 64, 4095, 4096, 4097, CKPT__ENGINE_LITTLE, CKPT__ENGINE_PIECE, CKPT__ENGINE_STRAIGHT,
                                    CKPT__ENGINE_COPY, CKPT__ENGINE_CHUNK, 2 * CKPT__ENGINE_CHUNK };
    size_t pick = below(10), edge = edges[below(12)];
    if (pick < 3) return 1 + below(2000);
    if (pick < 5) return 1 + below(50000);
    if (pick < 7) return edge - 1 + below(3) > 0 ? edge - 1 + below(3) + (edge == 1) : 1;
    if (pick < 9) return 1 + below(400000);
    return 1 + below(1500000);
}

static const void *some_memory(size_t size, bool aligned) {
    size_t at = below(ARENA - size);
    return arena + (aligned ? at & ~(size_t)4095 : at);
}

static void filler(ckpt__plan *p, size_t size) {
    char bytes[4096];
    while (size > 0) {
        size_t n = size < sizeof bytes ? size : sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = (char)(rng() >> 9);
        ckpt__plan_bytes(p, bytes, n, -1);
        size -= n;
    }
}

static void align_to(ckpt__plan *p, uint64_t unit) {
    filler(p, (size_t)((unit - p->size % unit) % unit));
}

static void payload(ckpt__plan *p, int blob, size_t size, bool aligned) {
    size_t pick = below(12);
    if (pick == 0) {
        int i = (int)below(3);
        ckpt__plan_data(p, CKPT__SEG_FILE, attached[i], attached_size[i], blob);
    } else if (pick < 3) {
        ckpt__plan_data(p, CKPT__SEG_DEVICE, some_memory(size, false), size, blob);
    } else if (pick == 3 && size < 100000) {
        ckpt__plan_bytes(p, some_memory(size, false), size, blob);
    } else if (pick == 4 && size > 10) {
        ckpt__plan_data(p, CKPT__SEG_DATA, some_memory(size / 3, false), size / 3, blob);
        ckpt__plan_data(p, CKPT__SEG_DATA, some_memory(size - size / 3, aligned), size - size / 3, blob);
    } else {
        ckpt__plan_data(p, CKPT__SEG_DATA, some_memory(size, aligned), size, blob);
    }
}

// The sums of all blobs so far, with other bytes between, as a central directory or a table has them.
static void directory(ckpt__plan *p, ckpt__seg_late late, bool hex, size_t first, size_t structure_from) {
    char entry[64];
    size_t count = p->blob_count - first, unit = 8 + below(50);
    char *bytes = (char *)malloc(count * unit + 100);
    for (size_t i = 0; i < count * unit + 100; i++) bytes[i] = (char)('a' + i % 26);
    memset(entry, 0, sizeof entry);
    for (size_t i = 0; i < count; i++) memset(bytes + i * unit + unit - 8, hex ? '0' : 0, hex ? 8 : 4);
    memset(bytes + count * unit + 20, hex ? '0' : 0, hex ? 8 : 4);
    size_t at = ckpt__plan_late_bytes(p, bytes, count * unit + 100, late);
    for (size_t i = 0; i < count; i++) ckpt__plan_fixup(p, at + i * unit + unit - 8, (int)(first + i), hex, 0);
    if (late == CKPT__LATE_ALL) ckpt__plan_fixup(p, at + count * unit + 20, CKPT__FIXUP_STRUCTURE, hex, structure_from);
    free(bytes);
}

// Like a .pt: each tensor behind a header with its own sum, a directory, a comment with the structure's sum.
static void zip_like(ckpt__plan *p, int tensors, bool big) {
    size_t first_blob = p->blob_count, first_seg = p->seg_count;
    for (int i = 0; i < tensors; i++) {
        size_t size = big ? some_size() : 1 + below(3000);
        char head[128];
        memset(head, 'h', sizeof head);
        memset(head + 14, 0, 4);
        int blob = (int)p->blob_count;
        size_t at = ckpt__plan_late_bytes(p, head, 30 + below(90), CKPT__LATE_BLOBS);
        ckpt__plan_fixup(p, at + 14, blob, false, 0);
        align_to(p, size >= 4096 ? 4096 : 64);
        assert_int_equal(ckpt__plan_blob(p, "tensor"), blob);
        payload(p, blob, size, below(3) > 0);
    }
    directory(p, CKPT__LATE_BLOBS, false, first_blob, 0);
    size_t at = ckpt__plan_late_bytes(p, "00000000 a comment", 18, CKPT__LATE_ALL);
    ckpt__plan_fixup(p, at, CKPT__FIXUP_STRUCTURE, true, first_seg);
}

// Like .safetensors: all sums, and the header's own, in front. The sizes must be known first, so blobs are named by number.
static void header_like(ckpt__plan *p, int tensors) {
    size_t first_seg = p->seg_count, unit = 40, count = (size_t)tensors, first = p->blob_count;
    char *bytes = (char *)malloc(count * unit + 50);
    memset(bytes, ' ', count * unit + 50);
    for (size_t i = 0; i < count; i++) memset(bytes + i * unit, '0', 8);
    memset(bytes + count * unit, '0', 8);
    size_t at = ckpt__plan_late_bytes(p, bytes, count * unit + 50, CKPT__LATE_ALL);
    for (size_t i = 0; i < count; i++) ckpt__plan_fixup(p, at + i * unit, (int)(first + i), true, 0);
    ckpt__plan_fixup(p, at + count * unit, CKPT__FIXUP_STRUCTURE, true, first_seg);
    free(bytes);
    for (size_t i = 0; i < count; i++) {
        size_t size = some_size();
        if (below(3) == 0) align_to(p, 4096);
        int blob = ckpt__plan_blob(p, "tensor");
        if (below(20) > 0) payload(p, blob, size, true);        // else an empty blob
    }
}

static void random_plan(ckpt__plan *p, const ckpt_allocator *a, int kind) {
    ckpt__plan_init(p, a, &world_state);
    switch (kind) {
    case 0: filler(p, 1 + below(300)); break;
    case 1: zip_like(p, 1 + (int)below(8), false); break;
    case 2: zip_like(p, 1 + (int)below(25), true); break;
    case 3: zip_like(p, 200 + (int)below(1500), false); break;
    case 4: header_like(p, 1 + (int)below(20)); break;
    case 5:
        filler(p, below(5000));
        zip_like(p, 1 + (int)below(10), true);
        align_to(p, 512);
        for (int i = 0; i < 3; i++) {
            filler(p, 512);
            payload(p, ckpt__plan_blob(p, "member"), some_size(), false);
        }
        directory(p, CKPT__LATE_ALL, true, 0, 0);
        filler(p, below(1500));
        break;
    case 6: {                           // one tensor, aligned in every way
        int blob = ckpt__plan_blob(p, "w");
        size_t size = some_size() + 100;
        ckpt__plan_data(p, CKPT__SEG_DATA, some_memory(size, true), size, blob);
        break;
    }
    default:                            // anything at all
        for (int i = 0, n = 1 + (int)below(60); i < n; i++) {
            switch (below(5)) {
            case 0: filler(p, 1 + below(9000)); break;
            case 1: align_to(p, 4096); break;
            case 2: if (p->blob_count > 0) directory(p, CKPT__LATE_BLOBS, below(2) != 0, below(p->blob_count), 0); break;
            case 3: if (p->blob_count > 0) directory(p, CKPT__LATE_ALL, below(2) != 0, below(p->blob_count), below(p->seg_count)); break;
            default: payload(p, ckpt__plan_blob(p, "w"), some_size(), below(2) != 0); break;
            }
        }
    }
}

//-- the naive writer ---------------------------------------------------------------

static uint32_t naive_table[256];
UTIL_UNWATCHED static uint32_t naive_crc(uint32_t crc, const unsigned char *p, size_t n) {
    if (naive_table[1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c >> 1 ^ (0xedb88320u & (0u - (c & 1u)));
            naive_table[i] = c;
        }
    }
    crc = ~crc;
    for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ naive_table[(crc ^ p[i]) & 255];
    return ~crc;
}

static void naive_put(unsigned char *file, uint64_t at, bool hex, uint32_t crc) {
    char text[9];
    snprintf(text, sizeof text, "%08x", (unsigned)crc);
    if (hex) memcpy(file + at, text, 8);
    else for (int i = 0; i < 4; i++) file[at + (uint64_t)i] = (unsigned char)(crc >> (8 * i));
}

static uint64_t naive_place(const ckpt__plan *p, size_t at, size_t *seg) {
    for (size_t i = 0; i < p->seg_count; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->kind == CKPT__SEG_BYTES && at >= s->at && at < s->at + s->size) { *seg = i; return s->offset + (at - s->at); }
    }
    fail();
    return 0;
}

// The file that a plan describes, from the words of >>plan alone. `blank` is the plan's bytes as they were planned.
UTIL_UNWATCHED static unsigned char *naive_write(const ckpt__plan *p, const char *blank) {
    unsigned char *file = (unsigned char *)malloc((size_t)p->size + 1);
    uint32_t *crcs = (uint32_t *)calloc(p->blob_count + 1, sizeof *crcs);
    for (size_t i = 0; i < p->seg_count; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->kind == CKPT__SEG_BYTES) memcpy(file + s->offset, blank + s->at, (size_t)s->size);
        if (s->kind == CKPT__SEG_DATA) memcpy(file + s->offset, s->src, (size_t)s->size);
        for (uint64_t k = 0; s->kind == CKPT__SEG_DEVICE && k < s->size; k++)
            file[s->offset + k] = (unsigned char)~((const unsigned char *)s->src)[k];
        if (s->kind == CKPT__SEG_FILE) {
            size_t n;
            char *data = util_slurp((const char *)s->src, &n);
            memcpy(file + s->offset, data, (size_t)s->size);
            free(data);
        }
        if (s->blob >= 0) crcs[s->blob] = naive_crc(crcs[s->blob], file + s->offset, (size_t)s->size);
    }
    for (size_t i = 0, seg; i < p->fixup_count; i++) {
        const ckpt__fixup *f = &p->fixups[i];
        if (f->blob >= 0) naive_put(file, naive_place(p, f->at, &seg), f->hex, crcs[f->blob]);
    }
    for (size_t i = 0, seg; i < p->fixup_count; i++) {
        const ckpt__fixup *f = &p->fixups[i];
        if (f->blob >= 0) continue;
        uint64_t place = naive_place(p, f->at, &seg);
        uint32_t crc = 0;
        for (size_t k = f->seg_first; k <= seg; k++) {
            if (p->segs[k].kind == CKPT__SEG_BYTES && p->segs[k].blob < 0)
                crc = naive_crc(crc, file + p->segs[k].offset, (size_t)p->segs[k].size);
        }
        naive_put(file, place, f->hex, crc);
    }
    free(crcs);
    return file;
}

//-- comparing ----------------------------------------------------------------------

static void assert_file(const char *path, const unsigned char *want, uint64_t size, const char *how, int seed) {
    size_t n;
    char *got = util_slurp(path, &n);
    assert_non_null(got);
    if (n != size) fail_msg("%s, seed %d: %zu bytes, not %llu", how, seed, n, (unsigned long long)size);
    bool same = memcmp(got, want, n) == 0;
    for (size_t i = 0; !same && i < n; i++) {
        if ((unsigned char)got[i] != want[i]) fail_msg("%s, seed %d: byte %zu of %zu differs", how, seed, i, n);
    }
    free(got);
}

typedef struct collected { unsigned char *data; size_t len, cap, fail_after; } collected;

static ckpt_err collect(const void *p, size_t n, void *user) {
    collected *c = (collected *)user;
    if (c->len + n > c->fail_after) return ckpt__error_set(CKPT_IO, "the sink is full");
    assert_true(c->len + n <= c->cap);
    memcpy(c->data + c->len, p, n);
    c->len += n;
    return CKPT_OK;
}

static pthread_t progress_thread;
static uint64_t  progress_last, progress_total;
static double    progress_began;
static void on_progress(const ckpt_progress *p, void *user) {
    (void)user;
    assert_true(pthread_equal(pthread_self(), progress_thread));
    assert_true(p->done >= progress_last && p->done <= p->total);
    if (fault_errnum == 0) assert_true(p->seconds >= 0 && p->seconds <= ckpt__os_now() - progress_began);      // clocks fail too
    progress_last = p->done;
    progress_total = p->total;
}

static ckpt_on_progress progress;

static ckpt__engine_job new_job(int threads, bool no_direct) {
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    job.threads = threads;
    job.no_direct = no_direct;
    job.progress = &progress;
    job.phase = "save";
    job.name = "x";
    progress.fn = on_progress;
    progress_thread = pthread_self();
    progress_last = progress_total = 0;
    progress_began = ckpt__os_now();
    return job;
}

static int new_file(const char *path) {
    int fd;
    (void)unlink(path);
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_OK);
    return fd;
}

// What is copied is whole when job.copied is called, and what it came from is not read again: it changes then.
typedef struct copying {
    const ckpt__image   *im;
    const unsigned char *want;
    const char          *path;
    int                  fd, opened, calls, fail;
} copying;

static void change_world(unsigned char by) {
    for (size_t i = 0; i < ARENA; i += 61) arena[i] ^= by;
}

static ckpt_err on_copied(void *user) {
    copying *c = (copying *)user;
    assert_int_equal(__atomic_fetch_add(&c->calls, 1, __ATOMIC_SEQ_CST), 0);
    assert_int_equal(memcmp(c->im->data, c->want, c->im->size), 0);
    change_world(0x5a);
    return c->fail == 0 ? CKPT_OK : ckpt__error_set(CKPT_NO_SPACE, "what follows the copy failed");
}

// A file system that does nothing before all is copied: whoever waits for the copy must not wait for it.
static copying *slow;
static int      slow_failed;

static void stand_still(const char *name, const char *path, int fd) {
    (void)name; (void)path; (void)fd;
    copying *c = __atomic_load_n(&slow, __ATOMIC_SEQ_CST);
    if (c == NULL) return;
    for (int i = 0; i < 20000 && __atomic_load_n(&c->calls, __ATOMIC_SEQ_CST) == 0; i++) usleep(1000);
    if (__atomic_load_n(&c->calls, __ATOMIC_SEQ_CST) == 0) __atomic_store_n(&slow_failed, 1, __ATOMIC_SEQ_CST);
}

static ckpt_err on_open(int *fd, const char **path, void *user) {
    copying *c = (copying *)user;
    assert_int_equal(c->opened++, 0);
    if (c->fd < 0) return ckpt__error_set(CKPT_EXISTS, "there is no such file");
    stand_still("open", NULL, -1);
    *fd = c->fd;
    *path = c->path;
    return CKPT_OK;
}

// Writes a plan through an image.
static ckpt_err pass(ckpt__image *im, ckpt__plan *p, int fd, const char *path, const unsigned char *want, ckpt__engine_job *job, int fail) {
    copying c = { im, want, path, fd, 0, 0, fail };
    job->open = on_open;
    job->copied = on_copied;
    job->user = &c;
    if (slow_failed < 0) slow_failed = 0, slow = &c;
    ckpt_err e = ckpt__image_pass(im, p, job);
    slow = NULL;
    if (c.calls > 0) change_world(0x5a);
    assert_true(c.calls == 1 || e != CKPT_OK || p->size == 0);
    assert_true(c.opened == 1 || e != CKPT_OK || p->size == 0);
    assert_null(job->image);
    return e;
}

static void blank_again(ckpt__plan *p, const char *blank) {
    if (p->bytes.len > 0) memcpy(p->bytes.data, blank, p->bytes.len);
}

static void check_plan(ckpt__plan *p, int seed) {
    const char *path = util_join(world_dir, "out");
    assert_int_equal(ckpt__plan_finish(p), CKPT_OK);
    char *blank = (char *)malloc(p->bytes.len + 1);
    if (p->bytes.len > 0) memcpy(blank, p->bytes.data, p->bytes.len);
    unsigned char *want = naive_write(p, blank);
    for (int round = 0; round < 3; round++) {
        int threads = round == 0 ? 0 : 1 + (int)below(7);
        ckpt__engine_job job = new_job(threads, round == 2);
        int fd = new_file(path);
        assert_int_equal(ckpt__engine_write(p, fd, path, &job), CKPT_OK);
        assert_int_equal(close(fd), 0);
        assert_file(path, want, p->size, round == 2 ? "buffered" : "direct", seed);
        assert_true(p->size == 0 || (progress_last == p->size && progress_total == p->size));
        if (round == 0) blank_again(p, blank);      // the others find the sums of the first in their place
    }
    blank_again(p, blank);
    collected c = { (unsigned char *)malloc((size_t)p->size + 1), 0, (size_t)p->size, SIZE_MAX };
    ckpt__engine_job job = new_job(0, false);
    assert_int_equal(ckpt__engine_stream(p, collect, &c, &job), CKPT_OK);
    assert_true(c.len == p->size && memcmp(c.data, want, c.len) == 0);
    assert_true(p->size == 0 || progress_last == p->size);
    blank_again(p, blank);
    static ckpt__image im;
    const ckpt__os_flag wanted = seed % 4 < 2;
    job = new_job(0, false);
    if (seed % 2 != 0) job.wanted = &wanted;
    assert_int_equal(ckpt__image_fill(&im, p, &job), CKPT_OK);
    assert_true(im.size == p->size && memcmp(im.data, want, im.size) == 0);
    job = new_job(0, below(3) == 0);
    int fd = new_file(path);
    assert_int_equal(ckpt__image_write(&im, fd, path, &job), CKPT_OK);
    assert_int_equal(close(fd), 0);
    assert_file(path, want, p->size, "image", seed);
    c.len = 0;
    job = new_job(0, false);
    assert_int_equal(ckpt__image_stream(&im, collect, &c, &job), CKPT_OK);
    assert_true(c.len == p->size && memcmp(c.data, want, c.len) == 0);
    for (int round = 0; round < 2; round++) {
        blank_again(p, blank);
        memset(im.data, 0xee, im.cap);
        job = new_job(round == 0 ? 0 : 1 + (int)below(7), below(4) == 0);
        if (seed % 2 != 0) job.wanted = &wanted;
        fd = new_file(path);
        assert_int_equal(pass(&im, p, fd, path, want, &job, 0), CKPT_OK);
        assert_int_equal(close(fd), 0);
        assert_file(path, want, p->size, "passed", seed);
        assert_true(im.size == p->size && memcmp(im.data, want, im.size) == 0);
        assert_true(p->size == 0 || (progress_last == p->size && progress_total == p->size));
    }
    if (seed % 50 == 49) ckpt__image_free(&im);
    for (size_t i = 0; i < p->blob_count; i++) {
        uint32_t crc = naive_crc(0, want + p->blobs[i].offset, (size_t)p->blobs[i].size);
        assert_true(p->blobs[i].has_crc && p->blobs[i].crc == crc);
    }
    free(c.data);
    free(blank);
    free(want);
}

static void test_plans(void **state) {
    (void)state;
    int count = getenv("ENGINE_PLANS") != NULL ? atoi(getenv("ENGINE_PLANS")) : PLANS;
    for (int seed = 0; seed < count; seed++) {
        ckpt__plan p;
        rng_state = 1000u + (uint32_t)seed;
        random_plan(&p, &plain, seed % 8);
        check_plan(&p, seed);
        ckpt__plan_free(&p);
    }
}

// Small blobs with their sums behind them, as in a .pt of very many tensors: chunks end where no blob is cut, so that nothing is
// left for the second pass and nothing is written in single pages.
static void test_small_blobs(void **state) {
    (void)state;
    ckpt__plan p;
    ckpt__engine_writer w;
    ckpt__engine_cursor at = { 0, 0 };
    ckpt__engine_chunk c;
    char between[128];
    uint64_t chunks = 0;
    memset(between, 0, sizeof between);
    memset(&w, 0, sizeof w);
    ckpt__plan_init(&p, &plain, NULL);
    ckpt__plan_bytes(&p, between, sizeof between, -1);
    for (int i = 0; i < 8000; i++) {
        int blob = ckpt__plan_blob(&p, "small");
        ckpt__plan_data(&p, CKPT__SEG_DATA, arena + 512 * i, 512, blob);
        size_t from = ckpt__plan_late_bytes(&p, between, sizeof between, CKPT__LATE_BLOBS);
        ckpt__plan_fixup(&p, from + 4, blob, false, 0);
    }
    assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
    w.plan = &p;
    w.mode = CKPT__ENGINE_WRITE;
    w.chunk = CKPT__ENGINE_CHUNK;
    w.align = 1;
    for (; ckpt__engine_cut(&w, &at, &c); chunks++) assert_int_equal(c.late, c.end);
    assert_true(chunks <= p.size / (CKPT__ENGINE_CHUNK - CKPT__ENGINE_PIECE) + 1);
    ckpt__plan_free(&p);
}

static void test_empty_plan(void **state) {
    (void)state;
    ckpt__plan p;
    ckpt__plan_init(&p, &plain, NULL);
    check_plan(&p, 0);
    ckpt__plan_free(&p);
}

//-- writing that fails -------------------------------------------------------------

static int open_count(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

// Every system call fails in turn, in every way: the bytes are right or an error is reported. Straight, and through an image.
static void write_faults(ckpt__image *im) {
    static const int errnums[] = { EIO, ENOSPC, EINVAL, EINTR, FAULT_SHORT };
    const char *path = util_join(world_dir, "faulty");
    counting count = { 0, 0, 0 };
    ckpt_allocator a = { counting_fn, &count };
    for (int kind = 2; kind <= 4; kind += 2) {
        ckpt__plan p;
        rng_state = 99;
        random_plan(&p, &a, kind);
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        unsigned char *want = naive_write(&p, p.bytes.data);
        long live = count.live;
        for (int k = 0; k < UTIL_COUNT(errnums); k++) {
            int failures = 0, n = 1;
            for (;; n += STEP) {
                ckpt__engine_job job = new_job(3, false);
                int fd = new_file(path), before = open_count();
                fault_arm(errnums[k], n);
                ckpt_err e = im != NULL ? pass(im, &p, fd, path, want, &job, 0) : ckpt__engine_write(&p, fd, path, &job);
                bool hit = fault_disarm();
                assert_int_equal(open_count(), before);
                assert_int_equal(count.live, live);
                assert_int_equal(close(fd), 0);
                if (e == CKPT_OK) assert_file(path, want, p.size, "faults", n);
                else assert_true(ckpt_last_error()[0] != 0);
                failures += e != CKPT_OK;
                if (!hit) break;
                if (errnums[k] == EINTR || errnums[k] == FAULT_SHORT) assert_int_equal(e, CKPT_OK);
                if (errnums[k] == ENOSPC && strcmp(fault_where, "pwrite") == 0) assert_int_equal(e, CKPT_NO_SPACE);
            }
            assert_true(n > (errnums[k] == FAULT_SHORT ? 2 : 5));
            if (errnums[k] == EIO && STEP == 1) assert_true(failures > 0);     // some failures are survived: a sample may meet those alone
        }
        free(want);
        ckpt__plan_free(&p);
        assert_int_equal(count.live, 0);
    }
}

static void test_write_faults(void **state) {
    (void)state;
    write_faults(NULL);
}

static void test_pass_faults(void **state) {
    ckpt__image im;
    (void)state;
    memset(&im, 0, sizeof im);
    write_faults(&im);
    ckpt__image_free(&im);
}

// How many copy into an image at a time: one fewer while nobody waits for it, but always somebody.
static void test_beside(void **state) {
    (void)state;
    ckpt__os_flag wanted = 0;
    ckpt__engine_job job = new_job(0, false);
    ckpt__engine_writer w;
    memset(&w, 0, sizeof w);
    w.crew.job = &job;
    w.opened = true;
    for (int cpus = 1; cpus < 12; cpus++) {
        w.mode = cpus % 2 != 0 ? CKPT__ENGINE_BOTH : CKPT__ENGINE_FILL;
        ckpt__engine_limit(&w, cpus);
        int all = cpus < 8 ? cpus : 8, beside = cpus <= 8 && cpus > 1 ? cpus - 1 : all;
        for (w.summing = 0; w.summing < 10; w.summing++) {
            job.wanted = NULL;
            assert_int_equal(ckpt__engine_may_sum(&w), w.summing < all);
            job.wanted = &wanted;
            wanted = 1;
            assert_int_equal(ckpt__engine_may_sum(&w), w.summing < all);
            wanted = 0;
            assert_int_equal(ckpt__engine_may_sum(&w), w.summing < beside);
        }
    }
}

// When what follows the copy fails the write does, and says why.
static void test_copied_fails(void **state) {
    const char *path = util_join(world_dir, "copied");
    ckpt__image im;
    (void)state;
    memset(&im, 0, sizeof im);
    for (int kind = 0; kind <= 4; kind++) {
        ckpt__plan p;
        rng_state = 31;
        random_plan(&p, &plain, kind);
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        unsigned char *want = naive_write(&p, p.bytes.data);
        for (int threads = 0; threads < 4; threads++) {
            ckpt__engine_job job = new_job(threads, threads == 3);
            int fd = new_file(path);
            assert_int_equal(pass(&im, &p, fd, path, want, &job, 1), CKPT_NO_SPACE);
            assert_string_equal(ckpt_last_error(), "what follows the copy failed");
            assert_int_equal(close(fd), 0);
        }
        free(want);
        ckpt__plan_free(&p);
    }
    ckpt__image_free(&im);
}

// A file that cannot be made is no copy's fault, and the write fails as it did.
static void test_open_fails(void **state) {
    ckpt__image im;
    (void)state;
    memset(&im, 0, sizeof im);
    for (int kind = 0; kind <= 4; kind++) {
        ckpt__plan p;
        rng_state = 32;
        random_plan(&p, &plain, kind);
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        unsigned char *want = naive_write(&p, p.bytes.data);
        for (int threads = 0; threads < 4; threads++) {
            ckpt__engine_job job = new_job(threads, threads == 3);
            assert_int_equal(pass(&im, &p, -1, "none", want, &job, 0), CKPT_EXISTS);
            assert_string_equal(ckpt_last_error(), "there is no such file");
        }
        free(want);
        ckpt__plan_free(&p);
    }
    ckpt__image_free(&im);
}

// The copy is whole while a file system has not yet made the file, nor written a byte: with few threads, with fewer than asked for,
// and of sizes from below one chunk on.
static void test_slow_file_system(void **state) {
    const char *path = util_join(world_dir, "slow");
    ckpt__image im;
    (void)state;
    memset(&im, 0, sizeof im);
    __atomic_store_n(&fault_watch, stand_still, __ATOMIC_SEQ_CST);
    for (size_t chunks = 1; chunks <= 64; chunks = chunks * 3 / 2 + 1) {
        ckpt__plan p;
        ckpt__plan_init(&p, &plain, NULL);
        size_t size = chunks * CKPT__ENGINE_MIB / 2 + 77;
        ckpt__plan_data(&p, CKPT__SEG_DATA, some_memory(size, true), size, ckpt__plan_blob(&p, "w"));
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        unsigned char *want = naive_write(&p, "");
        for (int how = 0; how < 12; how++) {
            ckpt__engine_job job = new_job(how < 6 ? how : 0, how == 5);
            int fd = new_file(path);
            slow_failed = -1;
            if (how >= 6) fault_arm_call("pthread_create", EAGAIN, how - 5);
            assert_int_equal(pass(&im, &p, fd, path, want, &job, 0), CKPT_OK);
            (void)fault_disarm();
            assert_int_equal(slow_failed, 0);
            assert_int_equal(close(fd), 0);
            assert_file(path, want, p.size, "slow", how);
        }
        free(want);
        ckpt__plan_free(&p);
    }
    __atomic_store_n(&fault_watch, (void (*)(const char *, const char *, int))NULL, __ATOMIC_SEQ_CST);
    ckpt__image_free(&im);
}

// An image takes any number of chunks while the disk takes none: all memory for them may be refused, and nothing is lost.
static void test_pass_without_memory(void **state) {
    const char *path = util_join(world_dir, "queue");
    counting count = { 0, 0, 0 };
    ckpt_allocator a = { counting_fn, &count };
    ckpt__image im;
    ckpt__plan p;
    (void)state;
    memset(&im, 0, sizeof im);
    ckpt__plan_init(&p, &a, NULL);
    size_t size = 80 * CKPT__ENGINE_CHUNK;
    ckpt__plan_data(&p, CKPT__SEG_DATA, some_memory(size, true), size, ckpt__plan_blob(&p, "w"));
    assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
    unsigned char *want = naive_write(&p, "");
    long live = count.live;
    for (int n = 1, refused = 1; refused; n++) {
        ckpt__engine_job job = new_job(3, true);        // through the page cache: all is copied before anything is written
        int fd = new_file(path);
        count.calls = 0;
        count.fail_at = n;
        ckpt_err e = pass(&im, &p, fd, path, want, &job, 0);
        count.fail_at = 0;
        refused = count.calls >= n;
        assert_int_equal(count.live, live);
        assert_int_equal(e, refused ? CKPT_NOMEM : CKPT_OK);
        if (!refused) assert_file(path, want, p.size, "queue", n);
        assert_true(refused || n > 2);
        assert_int_equal(close(fd), 0);
    }
    free(want);
    ckpt__plan_free(&p);
    ckpt__image_free(&im);
}

// A direct write that is refused in the middle is repeated through the page cache, and the file is right.
static void test_direct_refused(void **state) {
    (void)state;
    const char *path = util_join(world_dir, "refused");
    ckpt__plan p;
    ckpt__plan_init(&p, &plain, NULL);
    size_t size = 18 * CKPT__ENGINE_CHUNK;
    ckpt__plan_data(&p, CKPT__SEG_DATA, some_memory(size, true), size, ckpt__plan_blob(&p, "w"));
    assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
    unsigned char *want = naive_write(&p, "");
    for (int n = 1; n <= 9; n++) {
        ckpt__engine_job job = new_job(1 + n % 4, false);
        int fd = new_file(path);
        fault_arm_call("pwrite", EINVAL, n);
        assert_int_equal(ckpt__engine_write(&p, fd, path, &job), CKPT_OK);
        assert_true(fault_disarm());
        assert_int_equal(close(fd), 0);
        assert_file(path, want, p.size, "refused", n);
    }
    free(want);
    ckpt__plan_free(&p);
}

static void test_full_disk(void **state) {
    (void)state;
    const char *path = util_join(world_dir, "full");
    ckpt__plan p;
    rng_state = 5;
    random_plan(&p, &plain, 2);
    assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
    unsigned char *want = naive_write(&p, p.bytes.data);
    ckpt__image im;
    memset(&im, 0, sizeof im);
    for (int n = 1; n < 16; n++) {
        ckpt__engine_job job = new_job(0, n % 2 == 0);
        int fd = new_file(path);
        fault_arm_full_disk(n);
        ckpt_err e = n % 3 == 0 ? pass(&im, &p, fd, path, want, &job, 0) : ckpt__engine_write(&p, fd, path, &job);
        if (fault_disarm()) assert_int_equal(e, CKPT_NO_SPACE);
        assert_int_equal(close(fd), 0);
    }
    free(want);
    ckpt__image_free(&im);
    ckpt__plan_free(&p);
}

// Without threads the caller does it all.
static void test_no_threads(void **state) {
    (void)state;
    const char *path = util_join(world_dir, "alone");
    ckpt__plan p;
    rng_state = 11;
    random_plan(&p, &plain, 2);
    assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
    unsigned char *want = naive_write(&p, p.bytes.data);
    (void)ckpt__error_set(CKPT_IO, "what failed before");
    for (int n = 1; n <= 3; n++) {
        ckpt__engine_job job = new_job(4, false);
        int fd = new_file(path);
        fault_arm_call("pthread_create", EAGAIN, n);
        assert_int_equal(ckpt__engine_write(&p, fd, path, &job), CKPT_OK);
        assert_true(fault_disarm());
        assert_int_equal(close(fd), 0);
        assert_file(path, want, p.size, "alone", n);
    }
    assert_string_equal(ckpt_last_error(), "what failed before");
    free(want);
    ckpt__plan_free(&p);
}

static void test_device_fails(void **state) {
    (void)state;
    const char *path = util_join(world_dir, "device");
    for (int how = 0; how < 3; how++) {
        ckpt__plan p;
        ckpt__plan_init(&p, &plain, how == 2 ? NULL : &world_state);
        for (int i = 0; i < 20; i++) {
            int blob = ckpt__plan_blob(&p, "w");
            ckpt__plan_data(&p, CKPT__SEG_DEVICE, arena + 100 * i, 200000, blob);
        }
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        copy_calls = 0;
        copy_fail_at = 9;
        ckpt__engine_job job = new_job(4, false);
        int fd = new_file(path);
        collected c = { (unsigned char *)malloc((size_t)p.size), 0, (size_t)p.size, SIZE_MAX };
        ckpt_err e = how == 1 ? ckpt__engine_stream(&p, collect, &c, &job) : ckpt__engine_write(&p, fd, path, &job);
        assert_int_equal(e, how == 2 ? CKPT_ARG : CKPT_CANCELLED);
        assert_non_null(strstr(ckpt_last_error(), "state.copy"));
        copy_fail_at = 0;
        assert_int_equal(close(fd), 0);
        free(c.data);
        ckpt__plan_free(&p);
    }
}

static void test_attached_file_changes(void **state) {
    (void)state;
    const char *path = util_join(world_dir, "out"), *att = util_join(world_dir, "changing");
    util_write(att, arena, 300000);
    for (int how = 0; how < 3; how++) {
        ckpt__plan p;
        ckpt__plan_init(&p, &plain, NULL);
        filler(&p, 100);
        ckpt__plan_data(&p, CKPT__SEG_FILE, how == 2 ? util_join(world_dir, "absent") : att, how == 1 ? 299999 : 300001, ckpt__plan_blob(&p, "f"));
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        ckpt__engine_job job = new_job(0, false);
        int fd = new_file(path);
        assert_int_equal(ckpt__engine_write(&p, fd, path, &job), how == 2 ? CKPT_NOT_FOUND : CKPT_IO);
        assert_int_equal(close(fd), 0);
        ckpt__plan_free(&p);
    }
}

static void test_sink_fails(void **state) {
    (void)state;
    ckpt__plan p;
    rng_state = 21;
    random_plan(&p, &plain, 2);
    assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
    for (int i = 0; i < 10; i++) {
        collected c = { (unsigned char *)malloc((size_t)p.size), 0, (size_t)p.size, (size_t)p.size * (size_t)i / 10 };
        ckpt__engine_job job = new_job(0, false);
        assert_int_equal(ckpt__engine_stream(&p, collect, &c, &job), CKPT_IO);
        assert_string_equal(ckpt_last_error(), "the sink is full");
        free(c.data);
    }
    ckpt__plan_free(&p);
}

//-- reading ------------------------------------------------------------------------

typedef struct reading {
    unsigned char *file;
    size_t         size;
    const char    *path;
    int            fd;
    ckpt__source   src;
    ckpt__toc      toc;
} reading;

// A file of random bytes with random blobs and entries in it: whole, shared, overlapping, strided, empty, held by the toc.
static void make_reading(reading *r, const ckpt_allocator *a, bool big) {
    memset(r, 0, sizeof *r);
    ckpt__toc_init(&r->toc, a);
    size_t cap = big ? 12 * 1024 * 1024 : 1 + below(3000000), at = below(200);
    r->file = (unsigned char *)malloc(cap);
    memcpy(r->file, arena + below(ARENA - cap), cap);
    r->src.base = below(3) == 0 ? at : 0;
    r->toc.structure_begin = r->src.base;
    for (int i = 0; i < 400; i++) {
        size_t gap = below(4) == 0 ? below(100000) : below(200), size = below(15) == 0 ? 0 : some_size();
        if (below(3) == 0) gap += (4096 - (at + gap) % 4096) % 4096;
        if (at + gap + size > cap) break;
        at += gap;
        assert_int_equal(ckpt__mem_grow(a, (void **)&r->toc.blobs, sizeof *r->toc.blobs, &r->toc.blob_cap, r->toc.blob_count + 1), CKPT_OK);
        ckpt__blob *b = &r->toc.blobs[r->toc.blob_count++];
        b->name = util_fmt("blob%d", i);
        b->offset = at;
        b->size = size;
        b->has_crc = below(10) > 0;
        b->crc = b->has_crc ? naive_crc(0, r->file + at, size) : 0;
        int entries = 1 + (int)below(3) * (int)below(2);
        for (int k = 0; k < entries; k++) {
            char name[40];
            int len = snprintf(name, sizeof name, "t%d.%d", i, k);
            ckpt__entry *e = ckpt__toc_entry(&r->toc, name, (size_t)len, CKPT_KIND_TENSOR);
            assert_non_null(e);
            e->blob = (int)r->toc.blob_count - 1;
            e->dtype = CKPT_U8;
            e->offset = at;
            e->size = size;
            e->ndim = 1;
            e->shape[0] = (int64_t)size;
            e->stride[0] = 1;
            if (k > 0 || below(4) == 0) {               // a part
                size_t skip = size > 0 ? below(size) : 0;
                e->offset += skip;
                e->size = size - skip > 0 ? 1 + below(size - skip) : 0;
                e->shape[0] = (int64_t)e->size;
            }
            if (e->size >= 64 && below(3) == 0) {       // a strided view
                size_t unit = (size_t)1 << below(4), room = e->size / unit;
                e->dtype = unit == 1 ? CKPT_U8 : unit == 2 ? CKPT_F16 : unit == 4 ? CKPT_F32 : CKPT_F64;
                e->ndim = 2 + (int)below(3);
                e->contiguous = false;
                size_t left = room;
                uint64_t total = unit;
                for (int d = 0; d < e->ndim; d++) {
                    size_t most = left < 40 ? left : left < 2000 || below(2) == 0 ? 40 : 1000;
                    size_t n = 1 + below(most), stride = below(6) == 0 ? 0 : 1 + below(n > 1 ? (left - 1) / (n - 1) + 1 : 5);
                    if (n > 1 && (n - 1) * stride > left - 1) stride = (left - 1) / (n - 1);
                    if (total * n > 4000000) n = 1;
                    e->shape[d] = (int64_t)n;
                    e->stride[d] = (int64_t)stride;
                    left -= (n - 1) * stride;
                    total *= n;
                }
                e->size = total;
            }
        }
        at += size;
    }
    ckpt__entry *e = ckpt__toc_entry(&r->toc, "inline", 6, CKPT_KIND_BYTES);
    e->text = ckpt__toc_text(&r->toc, "some bytes", 10);
    e->size = 10;
    r->size = at + below(500);
    if (r->size > cap) r->size = cap;
    r->src.size = r->size - r->src.base;
    if (below(3) > 0) {
        r->toc.has_structure_crc = true;
        r->toc.structure_end = r->size;
        uint64_t pos = r->toc.structure_begin;
        for (size_t i = 0; i <= r->toc.blob_count; i++) {
            uint64_t end = i < r->toc.blob_count ? r->toc.blobs[i].offset : r->size;
            if (end > pos) r->toc.structure_crc = naive_crc(r->toc.structure_crc, r->file + pos, (size_t)(end - pos));
            if (i < r->toc.blob_count) pos = end + r->toc.blobs[i].size;
        }
    }
    r->path = util_join(world_dir, "in");
    (void)unlink(r->path);
    util_write(r->path, r->file, r->size);
    assert_int_equal(ckpt__os_open_read(&r->fd, r->path), CKPT_OK);
    r->src.fd = r->fd;
    r->src.path = r->path;
}

static void drop_cache(const reading *r) {
    (void)fsync(r->fd);
    (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void free_reading(reading *r) {
    (void)close(r->fd);
    free(r->file);
    ckpt__toc_free(&r->toc);
}

static void naive_read(const reading *r, const ckpt__entry *e, unsigned char *out) {
    if (e->blob < 0) { memcpy(out, e->text, (size_t)e->size); return; }
    if (e->contiguous) { memcpy(out, r->file + e->offset, (size_t)e->size); return; }
    size_t unit = ckpt__state_dtype_size(e->dtype), count = (size_t)e->size / unit;
    for (size_t i = 0; i < count; i++) {
        size_t rest = i, at = 0;
        for (int d = e->ndim - 1; d >= 0; d--) {
            at += rest % (size_t)e->shape[d] * (size_t)e->stride[d];
            rest /= (size_t)e->shape[d];
        }
        memcpy(out + i * unit, r->file + e->offset + at * unit, unit);
    }
}

static void check_reading(reading *r, bool verify, bool cold, int seed) {
    size_t count = 0;
    ckpt__want *wants = (ckpt__want *)calloc(r->toc.count, sizeof *wants);
    unsigned char **outs = (unsigned char **)calloc(r->toc.count, sizeof *outs);
    bool some = below(2) == 0;
    for (size_t i = 0; i < r->toc.count; i++) {
        size_t k = count > 0 ? below(count + 1) : 0;            // in no order
        if (some && below(3) > 0) continue;
        wants[count] = wants[k];
        outs[count] = outs[k];
        size_t size = (size_t)r->toc.entries[i].size, shift = below(2) * 16;
        outs[k] = (unsigned char *)aligned_alloc(4096, (size + shift + 64 + 4095) & ~(size_t)4095);
        memset(outs[k], 0xEE, size + shift + 64);
        wants[k].entry = (int)i;
        wants[k].dst = outs[k] + shift;
        wants[k].device = below(6) == 0;
        count++;
    }
    if (cold) drop_cache(r);
    ckpt__engine_job job = new_job(below(2) == 0 ? 0 : 1 + (int)below(6), below(4) == 0);
    ckpt_err e = ckpt__engine_read(&r->src, &r->toc, wants, count, verify, &world_state, &job);
    if (e != CKPT_OK) fail_msg("seed %d: %s", seed, ckpt_last_error());
    assert_true(progress_last == progress_total);
    for (size_t i = 0; i < count; i++) {
        const ckpt__entry *entry = &r->toc.entries[wants[i].entry];
        size_t size = (size_t)entry->size;
        unsigned char *naive = (unsigned char *)malloc(size + 1), *got = (unsigned char *)wants[i].dst;
        naive_read(r, entry, naive);
        for (size_t k = 0; wants[i].device && k < size; k++) naive[k] = (unsigned char)~naive[k];
        if (size > 0 && memcmp(naive, got, size) != 0) fail_msg("seed %d: '%s' differs", seed, entry->name);
        for (size_t k = 0; k < 40; k++) assert_int_equal(got[size + k], 0xEE);
        free(naive);
        free(outs[i]);
    }
    free(wants);
    free(outs);
}

static void test_reads(void **state) {
    (void)state;
    int count = getenv("ENGINE_READS") != NULL ? atoi(getenv("ENGINE_READS")) : READS;
    for (int seed = 0; seed < count; seed++) {
        reading r;
        rng_state = 500u + (uint32_t)seed;
        make_reading(&r, &plain, seed % 3 == 0);
        for (int how = 0; how < 4; how++) check_reading(&r, how % 2 == 0, how >= 2, seed);
        ckpt__engine_job job = new_job(0, false);
        assert_int_equal(ckpt__engine_read(&r.src, &r.toc, NULL, 0, true, NULL, &job), CKPT_OK);
        assert_true(progress_last == progress_total);
        free_reading(&r);
    }
}

// A turned bit anywhere that is checked is found, and its blob is named.
static void test_damage(void **state) {
    (void)state;
    for (int seed = 0; seed < 60; seed++) {
        reading r;
        rng_state = 900u + (uint32_t)seed;
        make_reading(&r, &plain, false);
        if (r.size > 0) {
            uint64_t at = below(r.size);
            const ckpt__blob *hit = NULL;
            for (size_t i = 0; i < r.toc.blob_count; i++) {
                const ckpt__blob *b = &r.toc.blobs[i];
                if (at >= b->offset && at < b->offset + b->size) hit = b;
            }
            util_flip(r.path, at, 1u << below(8));
            ckpt__engine_job job = new_job(0, false);
            bool seen = hit != NULL ? hit->has_crc : r.toc.has_structure_crc && at >= r.toc.structure_begin;
            assert_int_equal(ckpt__engine_read(&r.src, &r.toc, NULL, 0, true, NULL, &job), seen ? CKPT_CORRUPT : CKPT_OK);
            if (seen) assert_non_null(strstr(ckpt_last_error(), hit != NULL ? util_fmt("'%s'", hit->name) : "headers"));
        }
        free_reading(&r);
    }
}

static void test_short_file(void **state) {
    (void)state;
    for (int seed = 0; seed < 40; seed++) {
        reading r;
        rng_state = 1300u + (uint32_t)seed;
        make_reading(&r, &plain, seed % 2 == 0);
        uint64_t needed = r.toc.has_structure_crc ? r.toc.structure_end : 0;
        for (size_t i = 0; i < r.toc.blob_count; i++) {
            uint64_t end = r.toc.blobs[i].offset + r.toc.blobs[i].size;
            if (r.toc.blobs[i].size > 0 && end > needed) needed = end;
        }
        if (needed > 0) {
            size_t cut = below((size_t)needed);
            assert_int_equal(truncate(r.path, (off_t)cut), 0);
            if (seed % 4 == 0) drop_cache(&r);
            ckpt__engine_job job = new_job(0, false);
            assert_int_equal(ckpt__engine_read(&r.src, &r.toc, NULL, 0, true, NULL, &job), CKPT_CORRUPT);
            assert_non_null(strstr(ckpt_last_error(), "cut short"));
        }
        free_reading(&r);
    }
}

static void test_read_faults(void **state) {
    (void)state;
    static const int errnums[] = { EIO, EINVAL, EINTR, FAULT_SHORT };
    counting count = { 0, 0, 0 };
    ckpt_allocator a = { counting_fn, &count };
    for (int cold = 0; cold < 2; cold++) {
        reading r;
        rng_state = 77;
        make_reading(&r, &a, true);
        long live = count.live;
        for (int k = 0; k < UTIL_COUNT(errnums); k++) {
            for (int n = 1;; n += STEP) {
                ckpt__engine_job job = new_job(3, false);
                if (cold) drop_cache(&r);
                int before = open_count();
                fault_arm(errnums[k], n);
                ckpt_err e = ckpt__engine_read(&r.src, &r.toc, NULL, 0, true, NULL, &job);
                bool hit = fault_disarm();
                assert_int_equal(open_count(), before);
                assert_int_equal(count.live, live);
                if (!hit) assert_int_equal(e, CKPT_OK);
                if (errnums[k] == EINTR || errnums[k] == FAULT_SHORT) assert_int_equal(e, CKPT_OK);
                if (e != CKPT_OK) assert_true(ckpt_last_error()[0] != 0);
                if (!hit || n > 60) break;
            }
        }
        for (int n = 1;; n++) {
            ckpt__want want = { 0, NULL, false };
            want.dst = malloc((size_t)r.toc.entries[0].size + 1);
            ckpt__engine_job job = new_job(2, false);
            r.toc.allocator.user = &count;
            count.calls = 0;
            count.fail_at = n;
            ckpt_err e = ckpt__engine_read(&r.src, &r.toc, &want, 1, true, NULL, &job);
            count.fail_at = 0;
            free(want.dst);
            assert_int_equal(count.live, live);
            if (e == CKPT_OK) break;
            assert_int_equal(e, CKPT_NOMEM);
        }
        free_reading(&r);
        assert_int_equal(count.live, 0);
    }
}

// Tables that lie: places outside, overlaps, impossible shapes and steps. All are damage, none a crash.
static void test_hostile(void **state) {
    (void)state;
    for (int how = 0; how < 9; how++) {
        reading r;
        ckpt__toc *t = &r.toc;
        memset(&r, 0, sizeof r);
        ckpt__toc_init(t, &plain);
        r.path = util_join(world_dir, "hostile");
        util_write(r.path, arena, 10000);
        assert_int_equal(ckpt__os_open_read(&r.fd, r.path), CKPT_OK);
        r.src.fd = r.fd;
        r.src.path = r.path;
        r.src.size = 10000;
        assert_int_equal(ckpt__mem_grow(&plain, (void **)&t->blobs, sizeof *t->blobs, &t->blob_cap, 2), CKPT_OK);
        t->blob_count = 2;
        t->blobs[0].name = "b0";
        t->blobs[0].size = 1000;
        t->blobs[1].name = "b1";
        t->blobs[1].offset = 2000;
        t->blobs[1].size = 1000;
        ckpt__entry *e = ckpt__toc_entry(t, "e", 1, CKPT_KIND_TENSOR);
        e->blob = 0;
        e->dtype = CKPT_F32;
        e->ndim = 2;
        e->shape[0] = e->shape[1] = 10;
        e->stride[0] = 1;
        e->stride[1] = 10;
        e->size = 400;
        e->contiguous = false;
        switch (how) {
        case 0: e->offset = 601; break;
        case 1: e->offset = UINT64_MAX - 10; break;
        case 2: e->stride[0] = -1; break;
        case 3: e->stride[0] = INT64_MAX; break;
        case 4: e->shape[0] = 0; break;
        case 5: e->shape[0] = INT64_MAX; e->stride[0] = INT64_MAX; break;
        case 6: t->blobs[1].offset = 999; break;
        case 7: t->blobs[0].size = UINT64_MAX; break;
        default: t->blobs[0].offset = 9500; t->blobs[0].size = 501; t->blob_count = 1; e->offset = 9500; break;
        }
        char out[400];
        ckpt__want want = { 0, out, false };
        ckpt__engine_job job = new_job(0, false);
        assert_int_equal(ckpt__engine_read(&r.src, t, &want, 1, true, NULL, &job), CKPT_CORRUPT);
        if (how < 6) assert_int_equal(ckpt__engine_read(&r.src, t, &want, 1, false, NULL, &job), CKPT_CORRUPT);
        free_reading(&r);
    }
}

// A descriptor whose name belongs to another file by now is read as the descriptor says.
static void test_read_other_name(void **state) {
    (void)state;
    reading r;
    rng_state = 4242;
    make_reading(&r, &plain, true);
    const char *moved = util_join(world_dir, "moved");
    assert_int_equal(rename(r.path, moved), 0);
    util_write(r.path, arena, r.size);
    for (int i = 0; i < 2; i++) check_reading(&r, true, i == 1, 4242);
    free_reading(&r);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_small_blobs),
        cmocka_unit_test(test_empty_plan),
        cmocka_unit_test(test_write_faults),
        cmocka_unit_test(test_pass_faults),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_copied_fails),
        cmocka_unit_test(test_open_fails),
        cmocka_unit_test(test_slow_file_system),
        cmocka_unit_test(test_pass_without_memory),
        cmocka_unit_test(test_direct_refused),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_device_fails),
        cmocka_unit_test(test_attached_file_changes),
        cmocka_unit_test(test_sink_fails),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_short_file),
        cmocka_unit_test(test_read_faults),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_read_other_name)
    };
    return cmocka_run_group_tests(tests, world_open, NULL);
}
