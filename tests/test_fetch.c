// run.sh: tsan
// Proves one object down: ranges side by side, what is asked for again after which failure, an object replaced in the middle, sums, the
// hidden file and the rename, cancelling, a full disk, no memory, no threads; small objects; .symlink objects by Composer's rules.
#define CKPT__SEND_MIB 1024             // ranges of 8 to 64 KiB
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include "scripted.h"
#include <signal.h>
#include <sys/wait.h>

// A small object as text, and where a name leads, as the loader asks for them.
static ckpt_err text_of(ckpt_store *store, const char *name, ckpt__buf *out, size_t max, const ckpt__retry *retry) {
    ckpt__store_stat info;
    ckpt_err e = ckpt__fetch_stat(store, name, &info, retry);
    if (e == CKPT_OK) e = ckpt__fetch_small(store, name, &info, out, max, retry);
    return ckpt__error_prefix(e, "cannot read %s in %s", name, store->uri);
}

static ckpt_err follow(ckpt_store *store, const char *name, ckpt__buf *target, const ckpt__retry *retry) {
    ckpt__store_stat info;
    return ckpt__error_prefix(ckpt__fetch_resolve(store, name, target, &info, retry), "cannot find %s in %s", name, store->uri);
}

enum { KIB = 1024, BIG = 200 * KIB + 123, RANGES = 16 };    // of 13 KiB, by 4 workers

typedef struct world {
    scripted   *s;
    ckpt__retry retry;
    ckpt__gate  gate;
    ckpt__meter meter;
    ckpt__fetch fetch;
    char       *bytes;
    size_t      size;
    const char *dir;
} world;

static world *world_open(size_t size) {
    world *w = (world *)calloc(1, sizeof *w);
    w->s = scripted_open(NULL);
    must(ckpt__gate_init(&w->gate));
    w->retry.initial_backoff = 0.01;
    w->retry.gate = &w->gate;
    w->retry.cancel = &w->s->cancel;
    w->dir = util_temp_dir();
    w->fetch.store = &w->s->store;
    w->fetch.name = "run/ep1.pt";
    w->fetch.destination = util_join(w->dir, "new/folder/got.pt");
    w->fetch.retry = &w->retry;
    w->fetch.meter = &w->meter;
    w->bytes = scripted_bytes(size);
    w->size = size;
    scripted_object *o = scripted_keep(w->s, w->fetch.name, w->bytes, size);
    o->has_crc = true;
    o->crc = ckpt__digest_crc32(0, w->bytes, size);
    return w;
}

static void world_close(world *w) {
    ckpt__gate_free(&w->gate);
    scripted_close(w->s);
    free(w);
}

static void expect_file(const char *path, const void *bytes, size_t size) {
    size_t n;
    char *got = util_slurp(path, &n);
    assert_non_null(got);
    assert_int_equal(n, size);
    assert_memory_equal(got, bytes, size);
    free(got);
}

// The file is there, whole, alone in its folder, and the meter at its end.
static void expect_got(world *w) {
    expect_file(w->fetch.destination, w->bytes, w->size);
    assert_string_equal(util_list(util_join(w->dir, "new/folder")), "got.pt\n");
    assert_int_equal(ckpt__meter_read(&w->meter), w->size);
    assert_int_equal(w->fetch.info.size, w->size);
}

static void expect_failed(world *w, ckpt_err want, const char *sentence) {
    ckpt_err e = ckpt__fetch_run(&w->fetch);
    if (e != want) fail_msg("%s instead of %s: %s", ckpt_err_name(e), ckpt_err_name(want), ckpt_last_error());
    expect_sentence("cannot download run/ep1.pt from scripted://bucket/: ");
    expect_sentence(sentence);
    assert_string_equal(util_list(util_join(w->dir, "new/folder")), "");
}

//-- whole ---------------------------------------------------------------------------

static void test_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = { 0, 1, 1000, 16 * KIB - 1, 16 * KIB, 16 * KIB + 1, 64 * KIB, BIG, 1500 * KIB };
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        for (int workers = 1; workers <= 16; workers = workers * 2 + 1) {
            world *w = world_open(sizes[i]);
            w->fetch.num_concurrent_parts = workers;
            must(ckpt__fetch_run(&w->fetch));
            expect_got(w);
            assert_int_equal(w->s->calls[OP_STAT], 1);
            if (sizes[i] == 0) assert_int_equal(w->s->calls[OP_GET], 0);
            else if (workers == 1 || sizes[i] <= 16 * KIB) assert_int_equal(w->s->calls[OP_GET], 1);
            else assert_true(w->s->calls[OP_GET] >= (sizes[i] < 20 * KIB ? 2 : 7));
            assert_int_equal(w->s->served, sizes[i]);
            assert_true(w->s->busiest <= workers);
            world_close(w);
        }
    }
}

static void test_side_by_side(void **state) {
    (void)state;
    world *w = world_open(BIG);
    w->s->together = 4;
    must(ckpt__fetch_run(&w->fetch));
    expect_got(w);
    assert_int_equal(w->s->busiest, 4);
    assert_int_equal(w->s->calls[OP_GET], RANGES);
    world_close(w);
}

// Where a range costs several round trips there are as few as keep all workers busy, up to what is best for the store.
static void test_dear_ranges(void **state) {
    (void)state;
    static const struct { size_t best, size; int ranges; } cases[] = {
        { 64 * KIB, BIG, 4 }, { 32 * KIB, BIG, 7 }, { KIB, BIG, RANGES }, { 64 * KIB, 64 * KIB, 4 }, { 64 * KIB, 64 * KIB + 1, 4 },
        { 64 * KIB, 17 * KIB, 3 }, { 64 * KIB, 16 * KIB, 1 }, { 64 * KIB, 1024 * KIB, 16 }
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        world *w = world_open(cases[i].size);
        w->s->store.best_range = cases[i].best;
        must(ckpt__fetch_run(&w->fetch));
        expect_got(w);
        if (w->s->calls[OP_GET] != cases[i].ranges) fail_msg("case %d: %d ranges, not %d", i, w->s->calls[OP_GET], cases[i].ranges);
        world_close(w);
    }
}

// A store that only makes whole files: the user's own.
static void test_whole_only(void **state) {
    (void)state;
    static const size_t sizes[] = { 0, 1, BIG };
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        world *w = world_open(sizes[i]);
        w->s->table.get = NULL;
        w->s->table.fetch = scripted_fetch;
        scripted_rule *r = scripted_when(w->s, OP_FETCH, 1, DO_SHORT);      // breaks off, leaving a piece behind
        r->bytes = sizes[i] / 2;
        must(ckpt__fetch_run(&w->fetch));
        expect_got(w);
        assert_int_equal(w->s->calls[OP_FETCH], 2);
        world_close(w);
    }
    world *w = world_open(BIG);
    w->s->table.get = NULL;
    w->s->table.fetch = scripted_fetch;
    scripted_rule *r = scripted_when(w->s, OP_FETCH, 0, DO_SHORT);          // claims success
    r->bytes = 77;
    r->transient = false;
    r->times = -1;
    expect_failed(w, CKPT_CORRUPT, "77 bytes arrived");
    assert_int_equal(w->s->calls[OP_FETCH], 3);
    world_close(w);
    w = world_open(BIG);                                                    // another one came between its size and its bytes
    w->s->table.get = NULL;
    w->s->table.fetch = scripted_fetch;
    scripted_when(w->s, OP_FETCH, 1, DO_REPLACE);
    must(ckpt__fetch_run(&w->fetch));
    const scripted_object *o = scripted_find(w->s, w->fetch.name);
    assert_true(o->size < 64);
    expect_file(w->fetch.destination, o->data, (size_t)o->size);
    assert_int_equal(w->s->calls[OP_STAT], 2);
    assert_int_equal(w->s->calls[OP_FETCH], 2);
    assert_string_equal(util_list(util_join(w->dir, "new/folder")), "got.pt\n");
    world_close(w);
}

static void test_destination(void **state) {
    (void)state;
    world *w = world_open(BIG);
    must(ckpt__fetch_run(&w->fetch));
    assert_int_equal(ckpt__fetch_run(&w->fetch), CKPT_EXISTS);
    expect_sentence("it exists already");
    assert_int_equal(w->s->calls[OP_GET], RANGES);
    expect_got(w);
    w->fetch.overwrite = true;
    w->s->objects->data[5] ^= 1;
    w->bytes[5] ^= 1;
    w->s->objects->has_crc = false;
    must(ckpt__fetch_run(&w->fetch));
    expect_got(w);
    w->fetch.destination = w->dir;
    assert_int_equal(ckpt__fetch_run(&w->fetch), CKPT_EXISTS);
    expect_sentence("there is a folder of that name");
    w->fetch.name = "nothing";
    assert_int_equal(ckpt__fetch_run(&w->fetch), CKPT_NOT_FOUND);           // before anything else
    expect_sentence("cannot download nothing from scripted://bucket/: there is no such object");
    world_close(w);
}

//-- failures that pass ----------------------------------------------------------------

static void test_each_once(void **state) {
    (void)state;
    static const scripted_kind kinds[] = { DO_FAIL, DO_LOSE, DO_THROTTLE, DO_EXPIRE };
    for (int k = 0; k < UTIL_COUNT(kinds); k++) {
        for (int at = 1; at <= RANGES; at += 5) {
            world *w = world_open(BIG);
            scripted_when(w->s, OP_GET, at, kinds[k]);
            scripted_when(w->s, OP_STAT, 1, kinds[k]);
            must(ckpt__fetch_run(&w->fetch));
            expect_got(w);
            assert_int_equal(w->s->calls[OP_STAT], 2);
            assert_int_equal(w->s->calls[OP_GET], RANGES + 1);
            world_close(w);
        }
    }
}

// A range that breaks off is gone on with behind its last byte: nothing comes twice, and a long one on a bad line arrives.
static void test_broken(void **state) {
    (void)state;
    world *w = world_open(BIG);
    w->fetch.num_concurrent_parts = 1;
    scripted_rule *r = scripted_when(w->s, OP_GET, 0, DO_SHORT);
    r->times = 40;
    r->bytes = 3000;
    w->retry.initial_backoff = 0.001;
    must(ckpt__fetch_run(&w->fetch));
    expect_got(w);
    assert_int_equal(w->s->calls[OP_GET], 41);
    assert_int_equal(w->s->served, BIG);
    world_close(w);
    w = world_open(BIG);                                                    // no headway: three tries
    r = scripted_when(w->s, OP_GET, 0, DO_SHORT);
    r->times = -1;
    r->bytes = 10;
    w->fetch.num_concurrent_parts = 1;
    expect_failed(w, CKPT_NET, "the connection broke (after 3 tries)");
    world_close(w);
}

// Another object under the same name: the whole begins again, once it is the new one that is fetched.
// A store that says nothing of the bytes that are missing: they are counted.
static void test_cut(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_find(w->s, w->fetch.name)->has_crc = false;
    scripted_when(w->s, OP_GET, 2, DO_CUT)->bytes = 100;
    must(ckpt__fetch_run(&w->fetch));
    expect_file(w->fetch.destination, w->bytes, w->size);
    assert_int_equal(w->s->calls[OP_GET], RANGES + 1);
    world_close(w);
}

static void test_replaced(void **state) {
    (void)state;
    for (int at = 1; at <= RANGES; at += 3) {
        world *w = world_open(BIG);
        scripted_when(w->s, OP_GET, at, DO_REPLACE);
        must(ckpt__fetch_run(&w->fetch));
        const scripted_object *o = scripted_find(w->s, w->fetch.name);
        assert_true(o->size < 64);
        expect_file(w->fetch.destination, o->data, (size_t)o->size);
        assert_true(w->fetch.info.size == o->size && strcmp(w->fetch.info.etag, util_fmt("\"v%d\"", o->version)) == 0);
        assert_int_equal(w->s->calls[OP_STAT], 2);
        assert_string_equal(util_list(util_join(w->dir, "new/folder")), "got.pt\n");
        world_close(w);
    }
    world *w = world_open(BIG);                                             // again and again
    scripted_when(w->s, OP_GET, 0, DO_REPLACE)->times = -1;
    expect_failed(w, CKPT_CORRUPT, "it has been replaced");
    assert_int_equal(w->s->calls[OP_STAT], 20);                             // it is small by now
    world_close(w);
}

// A store that has no ranges is asked for all in one stream; one that has them, and cannot be looked at again, is not asked for ever.
static void test_replaced_and_unsupported(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_when(w->s, OP_GET, 3, DO_REPLACE);
    scripted_rule *r = scripted_when(w->s, OP_STAT, 2, DO_FAIL);
    r->err = CKPT_UNSUPPORTED;
    r->transient = false;
    r->times = 100;
    expect_failed(w, CKPT_UNSUPPORTED, "scripted failure");
    assert_int_equal(w->s->calls[OP_STAT], 2);
    world_close(w);
}

// A link that somebody publishes again and again can be followed.
static void test_replaced_link(void **state) {
    (void)state;
    world *w = world_open(1);
    ckpt__buf target;
    ckpt__buf_init(&target, NULL);
    scripted_keep(w->s, "replaced 7 times", "x", 1);
    for (int k = 0; k < 2; k++) {
        scripted_clear(w->s);
        scripted_keep(w->s, "l.symlink", "ep1", 3);
        w->s->versions = 0;
        scripted_when(w->s, OP_GET, 0, DO_REPLACE)->times = k == 0 ? 8 : -1;
        ckpt_err e = follow(&w->s->store, "l", &target, &w->retry);
        if (k == 0) must(e);
        if (k == 0) assert_string_equal(target.data, "replaced 7 times");
        if (k == 1) assert_int_equal(e, CKPT_CORRUPT);
        assert_int_equal(w->s->calls[OP_GET], k == 0 ? 9 : 20);
    }
    scripted_clear(w->s);                                                   // and one that is damaged on the way, once
    scripted_keep(w->s, "ep1", "x", 1);
    scripted_object *link = scripted_keep(w->s, "l.symlink", "ep1", 3);
    link->has_crc = true;
    link->crc = ckpt__digest_crc32(0, "ep1", 3);
    scripted_when(w->s, OP_GET, 1, DO_FLIP);
    must(follow(&w->s->store, "l", &target, &w->retry));
    assert_string_equal(target.data, "ep1");
    ckpt__buf_free(&target);
    world_close(w);
}

static void test_sums(void **state) {
    (void)state;
    world *w = world_open(BIG);                                             // damaged on the way, once
    scripted_when(w->s, OP_GET, 9, DO_FLIP);
    must(ckpt__fetch_run(&w->fetch));
    expect_got(w);
    assert_int_equal(w->s->calls[OP_GET], 2 * RANGES);
    world_close(w);
    w = world_open(BIG);                                                    // damaged in the store
    w->s->objects->data[1000] ^= 4;
    expect_failed(w, CKPT_CORRUPT, "its checksum is ");
    assert_int_equal(w->s->calls[OP_GET], 3 * RANGES);
    w->s->objects->has_crc = false;                                         // where the store knows no sum, nobody can tell
    must(ckpt__fetch_run(&w->fetch));
    world_close(w);
}

//-- failures that stay ----------------------------------------------------------------

static void test_permanent(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_rule *r = scripted_when(w->s, OP_GET, 5, DO_FAIL);
    r->err = CKPT_AUTH;
    r->transient = false;
    r = scripted_when(w->s, OP_GET, 6, DO_WAIT);            // the others are slower than the news of it
    r->times = -1;
    r->seconds = 0.3;
    expect_failed(w, CKPT_AUTH, "scripted failure");
    assert_true(w->s->calls[OP_GET] < RANGES);
    scripted_clear(w->s);
    r = scripted_when(w->s, OP_STAT, 0, DO_FAIL);
    r->times = -1;
    expect_failed(w, CKPT_NET, "scripted failure (after 3 tries)");
    assert_int_equal(w->s->calls[OP_GET], 0);
    world_close(w);
}

static void test_cancel(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_rule *r = scripted_when(w->s, OP_GET, 1, DO_WAIT);
    r->times = 3;
    r->seconds = 60.0;
    scripted_when(w->s, OP_GET, 4, DO_CANCEL);
    double began = ckpt__os_now();
    expect_failed(w, CKPT_CANCELLED, "cancelled");
    assert_true(ckpt__os_now() - began < 5.0);
    world_close(w);
}

// From the n-th call that needs room on, the disk is full: a sentence, and nothing stays.
static void test_full_disk(void **state) {
    (void)state;
    for (int n = 1;; n++) {
        world *w = world_open(BIG);
        util_mkdir(util_join(w->dir, "new"));
        util_mkdir(util_join(w->dir, "new/folder"));
        fault_arm_full_disk(n);
        ckpt_err e = ckpt__fetch_run(&w->fetch);
        bool hit = fault_disarm();
        if (!hit) must(e);
        else if (e != CKPT_NO_SPACE) fail_msg("%s for %s: %s", ckpt_err_name(e), fault_where, ckpt_last_error());
        assert_string_equal(util_list(util_join(w->dir, "new/folder")), hit ? "" : "got.pt\n");
        world_close(w);
        if (!hit) break;
    }
}

// Every system call of a download fails, in turn.
static void test_each_call(void **state) {
    (void)state;
    for (int n = 1;; n++) {
        world *w = world_open(30 * KIB);
        w->fetch.num_concurrent_parts = 2;
        w->retry.gate = NULL;
        fault_arm(EIO, n);
        ckpt_err e = ckpt__fetch_run(&w->fetch);
        bool hit = fault_disarm();
        if (!hit) must(e);
        bool named = util_exists(w->fetch.destination);                     // also when only the folder could not be synced
        if (named) expect_file(w->fetch.destination, w->bytes, w->size);
        else assert_int_not_equal(e, CKPT_OK);
        if (strcmp(fault_where, "unlink") != 0)
            assert_string_equal(util_list(util_join(w->dir, "new/folder")), named ? "got.pt\n" : "");
        world_close(w);
        if (!hit) break;
    }
}

// The server of the folder is away for one write: the range comes again, its sum is right, and nothing else is fetched twice.
static void test_folder_away(void **state) {
    (void)state;
    enum { SIZE = 5 << 20 };
    for (int big = 0; big < 2; big++) {                     // its bytes are written at the end of the ranges, or also amidst them
        for (int n = 1, hit = 1; hit; n += n < 6 ? 1 : n / 3) {             // a disk has hundreds of them, memory twenty
            world *w = world_open(big ? SIZE : BIG);
            if (big) w->fetch.num_concurrent_parts = 1;
            fault_arm_call("pwrite", ESTALE, n);
            ckpt_err e = ckpt__fetch_run(&w->fetch);
            hit = fault_disarm();
            if (e != CKPT_OK) fail_msg("write %d: %s", n, ckpt_last_error());
            expect_got(w);
            assert_int_equal(w->s->calls[OP_STAT], 1);
            if (!big) assert_true(w->s->calls[OP_GET] <= RANGES + 1);
            else assert_true(w->s->calls[OP_GET] <= 2);
            world_close(w);
        }
    }
}

static void test_no_memory(void **state) {
    (void)state;
    for (int n = 1;; n++) {
        counting c = { 0, 0, 0 };
        ckpt_allocator a = { counting_fn, &c };
        world *w = world_open(60 * KIB);                    // a bigger one looks for left-overs, or not, without saying so
        w->s->store.allocator = a;
        c.fail_at = n;
        ckpt_err e = ckpt__fetch_run(&w->fetch);
        assert_int_equal(c.live, 0);
        bool passed = c.calls < n;
        if (passed) must(e);
        else assert_int_equal(e, CKPT_NOMEM);
        assert_string_equal(util_list(util_join(w->dir, "new/folder")), passed ? "got.pt\n" : "");
        world_close(w);
        if (passed) break;
    }
}

//-- progress --------------------------------------------------------------------------

typedef struct seen { pthread_t thread; uint64_t last; int calls; bool fell, other; } seen;

static void see(const ckpt_progress *p, void *user) {
    seen *s = (seen *)user;
    __atomic_add_fetch(&s->calls, 1, __ATOMIC_SEQ_CST);
    s->other = s->other || !pthread_equal(s->thread, pthread_self());
    s->fell = s->fell || p->done < s->last || p->done > p->total || p->total != BIG || strcmp(p->phase, "download") != 0;
    s->last = p->done;
}

// On the caller's thread only, never falling; also where no thread, or fewer, can be started.
static void test_progress(void **state) {
    (void)state;
    for (int n = 0; n <= 5; n++) {
        world *w = world_open(BIG);
        seen s;
        memset(&s, 0, sizeof s);
        s.thread = pthread_self();
        ckpt_on_progress p = { see, &s };
        w->fetch.progress = &p;
        w->s->pace = 0.03;
        w->s->held = &s.calls;              // it is told at least once before anything has arrived
        scripted_when(w->s, OP_GET, 3, DO_FAIL);
        scripted_when(w->s, OP_GET, 9, DO_FLIP);
        if (n > 0) {
            fault_arm(EAGAIN, n);
            fault_only = "pthread_create";
        }
        must(ckpt__fetch_run(&w->fetch));
        if (n > 0) (void)fault_disarm();
        expect_got(w);
        assert_false(s.fell);
        assert_false(s.other);
        assert_true(s.calls >= (n == 1 ? RANGES : 2));      // alone, it tells after each range
        assert_int_equal(s.last, BIG);
        world_close(w);
    }
}

static void test_no_threads(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) {
        world *w = world_open(BIG);
        fault_arm(EAGAIN, n);
        fault_only = "pthread_create";
        must(ckpt__fetch_run(&w->fetch));
        assert_int_equal(fault_disarm(), n < 4);
        expect_got(w);
        world_close(w);
    }
}

//-- small objects ---------------------------------------------------------------------

static void test_text(void **state) {
    (void)state;
    for (int ranges = 0; ranges < 2; ranges++) {
        world *w = world_open(100);
        ckpt__buf out;
        if (ranges == 0) {
            w->s->table.get = NULL;
            w->s->table.fetch = scripted_fetch;
        }
        ckpt__buf_init(&out, NULL);
        scripted_when(w->s, ranges == 0 ? OP_FETCH : OP_GET, 1, DO_FAIL);
        ckpt__buf_text(&out, "ab");
        must(text_of(&w->s->store, "run/ep1.pt", &out, 100, &w->retry));
        assert_int_equal(out.len, 102);
        assert_memory_equal(out.data + 2, w->bytes, 100);
        assert_int_equal(out.data[102], 0);
        out.len = 2;
        must(text_of(&w->s->store, "run/ep1.pt", &out, INT_MAX - 64, &w->retry));
        assert_int_equal(out.len, 102);
        assert_true(out.cap < 4096);                // room for what there is, not for the most that there may be
        assert_int_equal(text_of(&w->s->store, "run/ep1.pt", &out, 99, &w->retry), CKPT_CORRUPT);
        expect_sentence("cannot read run/ep1.pt in scripted://bucket/: run/ep1.pt has 100 bytes, more than 99");
        assert_int_equal(text_of(&w->s->store, "none", &out, 99, NULL), CKPT_NOT_FOUND);
        scripted_keep(w->s, "empty", "", 0);
        must(text_of(&w->s->store, "empty", &out, 99, NULL));
        assert_int_equal(out.len, 102);
        ckpt__buf_free(&out);
        world_close(w);
    }
}

//-- links -----------------------------------------------------------------------------

static const char *expected_calls(const ckpt__json_doc *d, const ckpt__json *row, int most) {
    char *all = (char *)util_keep(calloc(1, 4096), false);
    const ckpt__json *calls = ckpt__json_get(d, row, "calls");
    int n = 0;
    for (const ckpt__json *c = ckpt__json_child(d, calls); c != NULL && n < most; c = ckpt__json_next(d, c), n++) {
        strcat(all, c->text);
        strcat(all, "\n");
    }
    return all;
}

static ckpt_err expected_code(const char *status) {
    if (strcmp(status, "ok") == 0) return CKPT_OK;
    if (strcmp(status, "FileNotFoundError") == 0) return CKPT_NOT_FOUND;
    if (strcmp(status, "FileExistsError") == 0) return CKPT_EXISTS;
    return CKPT_CORRUPT;                    // Composer's RecursionError
}

// get_file_remote.json: results, contents and the very requests. Where the destination is taken already, the bytes are not fetched
// first; a circle is left after a few rounds; a link that leads to nothing is followed twice, for it may have moved on.
static void test_cases(void **state) {
    (void)state;
    size_t size;
    char *text = util_read(util_tests_path("cases/get_file_remote.json"), &size);
    ckpt_allocator a = { NULL, NULL };
    ckpt__json_doc d;
    int rows = 0;
    must(ckpt__json_parse(&d, &a, text, size));
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row), rows++) {
        world *w = world_open(1);
        const ckpt__json *objects = ckpt__json_get(&d, row, "objects");
        for (const ckpt__json *o = ckpt__json_child(&d, objects); o != NULL; o = ckpt__json_next(&d, o))
            scripted_keep(w->s, o->key, o->text, o->text_len);
        const char *dest = util_join(w->dir, "dest"), *status = ckpt__json_get(&d, row, "status")->text;
        if (ckpt__json_get(&d, row, "dest_exists")->i != 0) util_write_text(dest, "old");
        w->fetch.name = ckpt__json_get(&d, row, "path")->text;
        w->fetch.overwrite = ckpt__json_get(&d, row, "overwrite")->i != 0;
        w->fetch.destination = dest;
        w->s->log = (char *)calloc(1, 1);
        ckpt_err want = expected_code(status), e = ckpt__fetch_file(&w->fetch);
        if (e != want) fail_msg("row %d: %s: %s", rows, ckpt_err_name(e), ckpt_last_error());
        const ckpt__json *content = ckpt__json_get(&d, row, "content");
        if (content->kind == CKPT__JSON_TEXT) expect_file(dest, content->text, content->text_len);
        else assert_false(util_exists(dest));
        int most = 100;
        if (want == CKPT_EXISTS) most = 4;
        if (want == CKPT_CORRUPT) w->s->log[strlen(expected_calls(&d, row, most))] = 0;
        const char *calls = expected_calls(&d, row, most);
        if (want == CKPT_NOT_FOUND && strstr(calls, "get ") != NULL) calls = util_fmt("%s%s", calls, calls);
        assert_string_equal(w->s->log, calls);
        if (want != CKPT_OK) expect_sentence(util_fmt("cannot download %s from scripted://bucket/: ", w->fetch.name));
        world_close(w);
    }
    ckpt__json_free(&d);
    assert_true(rows >= 11);
}

// What a link may not hold.
static void test_hostile_links(void **state) {
    (void)state;
    static const struct { const char *text; ckpt_err want; const char *sentence; } rows[] = {
        { "ep1\n", CKPT_OK, "ep1" }, { "ep1\r\n", CKPT_OK, "ep1" }, { "a..b/..c/ep1", CKPT_OK, "a..b/..c/ep1" },
        { "", CKPT_CORRUPT, "holds nothing" }, { "\n", CKPT_CORRUPT, "holds nothing" }, { "ep1\n\n", CKPT_CORRUPT, "control" },
        { "/etc/passwd", CKPT_CORRUPT, "an absolute name" }, { "..", CKPT_CORRUPT, "'..'" }, { "../x", CKPT_CORRUPT, "'..'" },
        { "a/../x", CKPT_CORRUPT, "'..'" }, { "a/..", CKPT_CORRUPT, "'..'" }, { "s3://other/x", CKPT_CORRUPT, "a URI" },
        { "a\tb", CKPT_CORRUPT, "control" }, { "a\x1b[2Jb", CKPT_CORRUPT, "control" }, { "a\xff", CKPT_CORRUPT, "UTF-8" },
        { "nowhere", CKPT_NOT_FOUND, "it leads to nowhere: there is no such object" }, { "a//../b", CKPT_CORRUPT, "'..'" }
    };
    world *w = world_open(1);
    ckpt__buf target;
    ckpt__buf_init(&target, NULL);
    scripted_keep(w->s, "ep1", "x", 1);
    scripted_keep(w->s, "a..b/..c/ep1", "x", 1);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        scripted_keep(w->s, "l.symlink", rows[i].text, strlen(rows[i].text));
        ckpt_err e = follow(&w->s->store, "l", &target, &w->retry);
        if (e != rows[i].want) fail_msg("'%s': %s: %s", rows[i].text, ckpt_err_name(e), ckpt_last_error());
        if (e == CKPT_OK) assert_string_equal(target.data, rows[i].sentence);
        else expect_sentence(rows[i].sentence);
        if (e != CKPT_OK) expect_sentence("cannot find l in scripted://bucket/: ");
    }
    scripted_keep(w->s, "l.symlink", "a\0b", 3);
    assert_int_equal(follow(&w->s->store, "l", &target, &w->retry), CKPT_CORRUPT);
    scripted_keep(w->s, "l.symlink", scripted_bytes(5000), 5000);
    assert_int_equal(follow(&w->s->store, "l", &target, &w->retry), CKPT_CORRUPT);
    expect_sentence("more than 4096");
    for (int i = 0; i < 9; i++) {                                           // eight in a row are followed, nine are not
        const char *name = util_fmt("%d.symlink", i), *next = i < 8 ? util_fmt("%d", i + 1) : "ep1";
        scripted_keep(w->s, name, next, strlen(next));
    }
    must(follow(&w->s->store, "1", &target, &w->retry));
    assert_string_equal(target.data, "ep1");
    assert_int_equal(follow(&w->s->store, "0", &target, &w->retry), CKPT_CORRUPT);
    expect_sentence("circle");
    scripted_rule *r = scripted_when(w->s, OP_STAT, 0, DO_FAIL);            // no right to look is not "not found"
    r->err = CKPT_AUTH;
    r->transient = false;
    assert_int_equal(follow(&w->s->store, "1", &target, &w->retry), CKPT_AUTH);
    ckpt__buf_free(&target);
    world_close(w);
}

static void test_links_no_memory(void **state) {
    (void)state;
    for (int n = 1;; n++) {
        counting c = { 0, 0, 0 };
        ckpt_allocator a = { counting_fn, &c };
        world *w = world_open(1000);
        scripted_keep(w->s, "latest.symlink", "run/ep1.pt", 10);
        w->s->store.allocator = a;
        w->fetch.name = "latest";
        c.fail_at = n;
        ckpt_err e = ckpt__fetch_file(&w->fetch);
        assert_int_equal(c.live, 0);
        bool passed = c.calls < n;
        if (passed) must(e);
        else assert_int_equal(e, CKPT_NOMEM);
        if (passed) expect_got(w);
        world_close(w);
        if (passed) break;
    }
}

static double patience[2];

static ckpt_err patient_stat(ckpt_store *store, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    patience[0] = t->stall_timeout_s;
    return scripted_stat(store, name, out, t);
}

static ckpt_err patient_get(ckpt_store *store, const char *name, const char *etag, uint64_t offset, ckpt__sink *sink, ckpt__transfer *t) {
    patience[1] = t->stall_timeout_s;
    return scripted_get(store, name, etag, offset, sink, t);
}

// Who asks for small objects or pieces without a limit of his own waits as long as the store's desc says.
static void test_patience(void **state) {
    (void)state;
    world *w = world_open(100);
    ckpt__buf text;
    ckpt__buf_init(&text, NULL);
    w->s->table.stat = patient_stat;
    w->s->table.get = patient_get;
    w->s->store.stall_timeout_s = 7.0;
    must(text_of(&w->s->store, w->fetch.name, &text, KIB, NULL));
    assert_true(patience[0] == 7.0 && patience[1] == 7.0);
    w->retry.stall_timeout_s = 3.0;
    must(text_of(&w->s->store, w->fetch.name, &text, KIB, &w->retry));
    assert_true(patience[0] == 3.0 && patience[1] == 3.0);
    ckpt__buf_free(&text);
    world_close(w);
}

// A process that is killed in the midst leaves the room that it has taken, which the next big download into that folder gives back.
static void test_killed(void **state) {
    (void)state;
    static const int never = 0;
    world *w = world_open(BIG);
    const char *folder = util_join(w->dir, "new/folder");
    pid_t pid = fork();
    if (pid == 0) {
        w->s->store.pid = ckpt__os_pid();
        w->s->held = &never;
        (void)!ckpt__fetch_run(&w->fetch);
        _exit(1);
    }
    for (int i = 0; i < 20000 && strstr(util_list(folder), ".tmp\n") == NULL; i++) usleep(1000);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_non_null(strstr(util_list(folder), ".tmp\n"));
    const char *living = util_fmt(".got.pt.%s", util_temp_tail((int)getpid()));
    util_write_text(util_join(folder, living), "x");
    must(ckpt__fetch_run(&w->fetch));
    assert_string_equal(util_list(folder), util_fmt("%s\ngot.pt\n", living));
    world_close(w);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patience), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_dear_ranges),
        cmocka_unit_test(test_whole_only),
        cmocka_unit_test(test_destination),
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_replaced_and_unsupported),
        cmocka_unit_test(test_replaced_link),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_permanent),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_folder_away),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_hostile_links),
        cmocka_unit_test(test_links_no_memory)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
