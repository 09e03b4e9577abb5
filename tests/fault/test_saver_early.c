/* test_saver_early.c: a save fails when its parts are on their way already: any one system call of the saver and of its uploader, or
   allocation, in COPY and LAZY. What is told, what is there and what the link names stay true on both sides, and the next save, and the next
   process, work. run.sh: plain tsan */

#include "faults.h"
#define CKPT__ENGINE_MIB (64 * 1024)        // so that a small state is written in chunks, from an image as it grows
#define CKPT__SEND_MIB   (16 * 1024)        // and leaves in parts
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../saver_util.h"
#include "../counting.h"

#if defined(UTIL_TSAN) || defined(__SANITIZE_ADDRESS__) || defined(UTIL_ASAN)
enum { BIG = 80000, STEP = 29 };
#else
enum { BIG = 80000, STEP = 7 };
#endif

enum { FULL_DISK = -2, NO_MEMORY = -3 };

static float   *big, *back;
static counting heap;

typedef struct world { run *r; const char *here, *far; } world;

static void set_big(int64_t step) {
    for (int i = 0; i < BIG; i++) big[i] = (float)(step * 100 + i % 91);
}

// Local files in `here`, objects in `far`/b; the saver's names are those below the URI's folder.
static void world_open(world *w, ckpt_snapshot mode) {
    w->r = run_new(util_fmt("file://%s/b", w->far));
    ckpt_bind_f32(&w->r->st, "state/model/big", big, BIG);
    w->r->d.snapshot = mode;
    w->r->d.num_attempts = 1;
    w->r->d.allocator.fn = counting_fn;
    w->r->d.allocator.user = &heap;
    run_open(w->r);
}

static const char *local(const world *w, const char *name) { return util_fmt("%s/%s/b/%s", w->here, w->far + 1, name); }

static const char *object(const world *w, const char *name) { return util_fmt("%s/b/%s", w->far, name); }

// A checkpoint that has its name is whole, here and there, and says what it should.
static void check_there(const char *path, int64_t step) {
    if (!util_exists(path)) return;
    ckpt_state st;
    ckpt_load_desc l;
    memset(&st, 0, sizeof st);
    memset(&l, 0, sizeof l);
    ckpt_bind_f32(&st, "state/model/big", back, BIG);
    l.load_path = path;
    l.state = &st;
    l.not_strict = true;
    ok(ckpt_load(&l, NULL));
    for (int i = 0; i < BIG; i++) assert_true(back[i] == (float)(step * 100 + i % 91));
    ckpt_state_free(&st);
}

static int64_t published(const world *w) {
    const char *path = object(w, "latest.pt.symlink");
    if (!util_exists(path)) return 0;
    char *text = util_read(path, NULL);
    const char *name = strrchr(text, '/');
    assert_non_null(name);
    assert_true(util_exists(object(w, name + 1)));
    return strtoll(name + 3, NULL, 10);
}

static void check_world(const world *w, int64_t newest) {
    for (int64_t i = 1; i <= newest; i++) {
        const char *name = util_fmt("ba%lld.pt", (long long)i);
        check_there(local(w, name), i);
        check_there(object(w, name), i);
        if (util_exists(object(w, name))) assert_true(util_exists(local(w, name)));     // nothing is there that was not safe here
    }
    check_there(local(w, "latest.pt"), util_link_target(local(w, "latest.pt"))[2] - '0');
    assert_true(published(w) >= 1 && published(w) <= newest);
}

// One save with a fault, the next save, and the next process. Returns whether the fault was met.
static bool fails_at(ckpt_snapshot mode, int fault, int n) {
    world w;
    w.here = util_temp_dir();
    w.far = util_temp_dir();
    assert_int_equal(chdir(w.here), 0);
    set_big(1);
    world_open(&w, mode);
    run_save(w.r, 1);
    ok(ckpt_saver_wait(w.r->s, 0));
    run_set(w.r, 2);
    set_big(2);
    ckpt_timestamp t = at_batch(2);
    if (fault == FULL_DISK) fault_arm_full_disk(n);
    else if (fault != NO_MEMORY) fault_arm(fault, n);
    heap.calls = 0;
    __atomic_store_n(&heap.fail_at, fault == NO_MEMORY ? n : 0, __ATOMIC_RELAXED);
    ckpt_err e = ckpt_saver_save(w.r->s, &t);
    ckpt_err fence = ckpt_saver_fence(w.r->s);
    set_big(9);                             // the bound memory is the trainer's again, whatever becomes of the save
    ckpt_err late = ckpt_saver_wait(w.r->s, 0);
    bool hit = fault == NO_MEMORY ? __atomic_load_n(&heap.calls, __ATOMIC_RELAXED) >= n : fault_disarm();
    __atomic_store_n(&heap.fail_at, 0, __ATOMIC_RELAXED);
    if (e == CKPT_OK) e = fence != CKPT_OK ? fence : late;
    if (fault == EINTR || fault == FAULT_SHORT || !hit) ok(e);
    if (e == CKPT_OK) {
        assert_true(util_exists(local(&w, "ba2.pt")) && util_exists(object(&w, "ba2.pt")));
        assert_int_equal(published(&w), 2);
    }
    check_world(&w, 2);
    bool saved = util_exists(local(&w, "ba2.pt"));
    ckpt_err again = ckpt_saver_wait(w.r->s, 0);        // the local save's failure was told, now perhaps that of its upload
    assert_true(again == CKPT_OK || e != CKPT_OK);
    set_big(3);
    run_save(w.r, 3);
    ok(ckpt_saver_wait(w.r->s, 0));
    check_world(&w, 3);
    assert_int_equal(published(&w), 3);
    check_there(local(&w, "latest.pt"), 3);
    ckpt_err closed = ckpt_saver_close(w.r->s, 0);
    assert_true((closed == CKPT_OK) == (e == CKPT_OK));
    ckpt_state_free(&w.r->st);
    assert_null(strstr(util_list(util_fmt("%s/%s/b", w.here, w.far + 1)), ".tmp"));
    world_open(&w, mode);                               // the next process sends what was left
    ok(ckpt_saver_resume(w.r->s, &t));
    assert_int_equal(t.batch, 3);
    ok(ckpt_saver_wait(w.r->s, 0));
    if (!saved) assert_false(util_exists(object(&w, "ba2.pt")));
    check_world(&w, 3);
    assert_int_equal(published(&w), 3);
    run_end(w.r);
    assert_string_equal(util_list(util_fmt("%s/b", w.far)), saved && util_exists(object(&w, "ba2.pt"))
                        ? "ba1.pt\nba2.pt\nba3.pt\nlatest.pt.symlink\n" : "ba1.pt\nba3.pt\nlatest.pt.symlink\n");
    assert_int_equal(heap.live, 0);
    util_remove_tree(w.here);
    util_remove_tree(w.far);
    return hit;
}

static void test_every_call(void **state) {
    (void)state;
    static const int faults[] = { ENOSPC, EIO, NO_MEMORY, EINTR, FAULT_SHORT, FULL_DISK };
    int before = fault_open_files();
    for (int k = 1; k < 3; k++) {
        for (int f = 0; f < UTIL_COUNT(faults); f++) {
            int n = 1;
            while (fails_at(modes[k], faults[f], n)) n += f < 3 ? STEP : 3 * STEP;
            assert_true(n > 10);
            assert_int_equal(fault_open_files(), before);
        }
    }
}

int main(void) {
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_call) };
    util_clear_env();
    big = (float *)calloc(BIG, sizeof *big);
    back = (float *)calloc(BIG, sizeof *back);
    if (big == NULL || back == NULL) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(big);
    free(back);
    return failed;
}
