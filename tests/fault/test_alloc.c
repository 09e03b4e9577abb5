// Proves that any one allocation may fail during a save, a load or the work of a saver: CKPT_NOMEM, nothing leaks, what was there is still
// there, and the next try works. run.sh: tsan-long memory
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fault_util.h"

// An allocator that refuses the n-th request and knows what is out. Called by the library's threads too.
typedef struct heap {
    int     nth, calls, refused;
    int64_t blocks, bytes;
} heap;

static void *heap_fn(void *ptr, size_t old_size, size_t new_size, void *user) {
    heap *h = (heap *)user;
    if (new_size == 0) {
        if (ptr != NULL) {
            __atomic_sub_fetch(&h->blocks, 1, __ATOMIC_SEQ_CST);
            __atomic_sub_fetch(&h->bytes, (int64_t)old_size, __ATOMIC_SEQ_CST);
        }
        free(ptr);
        return NULL;
    }
    if (__atomic_add_fetch(&h->calls, 1, __ATOMIC_SEQ_CST) == __atomic_load_n(&h->nth, __ATOMIC_SEQ_CST)) {
        __atomic_add_fetch(&h->refused, 1, __ATOMIC_SEQ_CST);
        return NULL;
    }
    void *p = realloc(ptr, new_size);
    if (p == NULL) return NULL;
    if (ptr == NULL) __atomic_add_fetch(&h->blocks, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&h->bytes, (int64_t)new_size - (ptr != NULL ? (int64_t)old_size : 0), __ATOMIC_SEQ_CST);
    return p;
}

static void heap_arm(heap *h, int nth) {
    __atomic_store_n(&h->calls, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&h->refused, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&h->nth, nth, __ATOMIC_SEQ_CST);
}

static ckpt_allocator heap_allocator(heap *h) {
    ckpt_allocator a;
    memset(h, 0, sizeof *h);
    a.fn = heap_fn;
    a.user = h;
    return a;
}

#define want(condition) do { if (!(condition)) fail_msg("%s, allocation %d: not %s; last error '%s'", scene, n, #condition, ckpt_last_error()); } while (0)

enum { STRIDE = UTIL_STRIDE(3) };

// Binding, saving and freeing a state.
static void save_scene(const char *scene) {
    const char *path = util_join(util_temp_dir(), scene);
    heap h;
    ckpt_allocator a = heap_allocator(&h);
    model old;
    model_open(&old, NULL);
    model_set(&old, 1);
    for (int n = 1;; n += STRIDE) {
        model m;
        assert_int_equal(ckpt_save(path, &old.st, NULL), CKPT_OK);
        heap_arm(&h, n);
        model_open(&m, &a);
        model_set(&m, 2);
        ckpt_err e = ckpt_save(path, &m.st, NULL);
        int refused = h.refused;
        want(e == CKPT_NOMEM || (e == CKPT_OK && refused == 0));
        want(number_in(path) == (e == CKPT_OK ? 2 : 1));
        want(strchr(util_list(util_fmt("%.*s", (int)(strrchr(path, '/') - path), path)), '\n')[1] == 0);
        heap_arm(&h, 0);
        if (m.st.err == CKPT_OK) want(ckpt_save(path, &m.st, NULL) == CKPT_OK);
        model_close(&m);
        want(h.blocks == 0 && h.bytes == 0);
        if (refused == 0) break;
        want(n < 100000);
    }
    model_close(&old);
}

static void test_save(void **state) { (void)state; save_scene("a.pt"); }
static void test_save_safetensors(void **state) { (void)state; save_scene("a.safetensors"); }
static void test_save_tar(void **state) { (void)state; save_scene("a.tar"); }
static void test_save_gz(void **state) { (void)state; save_scene("a.pt.gz"); }

static void load_scene(const char *scene) {
    const char *path = util_join(util_temp_dir(), scene);
    static const char *const ignore[] = { "state/note*" };
    heap h;
    ckpt_allocator a = heap_allocator(&h);
    model m;
    model_open(&m, NULL);
    model_set(&m, 1);
    assert_int_equal(ckpt_save(path, &m.st, NULL), CKPT_OK);
    for (int n = 1;; n += STRIDE) {
        ckpt_load_desc d;
        memset(&d, 0, sizeof d);
        d.load_path = path;
        d.state = &m.st;
        d.allocator = a;
        d.load_ignore_keys = ignore;
        d.load_ignore_keys_count = 1;
        model_set(&m, 2);
        heap_arm(&h, n);
        ckpt_err e = ckpt_load(&d, NULL);
        int refused = h.refused;
        want(e == CKPT_NOMEM || (e == CKPT_OK && refused == 0));
        want(h.blocks == 0 && h.bytes == 0);
        want(strcmp(m.note, "this is number 2") == 0);
        model_set(&m, 2);
        heap_arm(&h, 0);
        want(ckpt_load(&d, NULL) == CKPT_OK);
        snprintf(m.note, sizeof m.note, "this is number 1");
        want(model_is(&m, 1));
        if (refused == 0) break;
        want(n < 100000);
    }
    model_close(&m);
}

static void test_load(void **state) { (void)state; load_scene("a.pt"); }
static void test_load_safetensors(void **state) { (void)state; load_scene("a.safetensors"); }
static void test_load_tar(void **state) { (void)state; load_scene("a.tar"); }
static void test_load_gz(void **state) { (void)state; load_scene("a.pt.gz"); }

// Thousands of runs that sync all the time take seconds in memory.
static const char *fast_dir(void) {
    char *path = util_fmt("/dev/shm/ckpt-test-XXXXXX");
    return mkdtemp(path) != NULL ? (const char *)util_keep(strdup(path), true) : util_temp_dir();
}

static void saver_scene(const char *scene, ckpt_snapshot snapshot, int stride) {
    const char *base = fast_dir();
    heap h;
    ckpt_allocator a = heap_allocator(&h);
    for (int n = 1;; n += stride) {
        const char *folder = util_fmt("%s/%d", base, n);
        model m;
        model_open(&m, NULL);
        run_report first = run_saver(&m, folder, CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 1, 2);
        assert_int_equal(first.acked, 2);
        model_close(&m);
        model_open(&m, &a);
        heap_arm(&h, n);
        run_report r = run_saver(&m, folder, snapshot, "ba{batch}.pt", true, 3, 4);
        int refused = h.refused;
        heap_arm(&h, 0);
        model_close(&m);
        want(h.blocks == 0 && h.bytes == 0);
        if (r.first != CKPT_OK && r.first != CKPT_NOMEM) fail_msg("%s, allocation %d: code %d, '%s'", scene, n, (int)r.first, r.sentence);
        if (refused == 0) want(r.first == CKPT_OK && r.acked == 4);
        want(!has_litter(folder));
        want(ckpt_verify(util_join(folder, "latest-rank0.pt"), NULL) == CKPT_OK);
        ckpt_saver *s = NULL;
        ckpt_timestamp at;
        model_open(&m, NULL);
        ckpt_saver_desc d = saver_desc(&m, folder, CKPT_SNAPSHOT_NONE, "ba{batch}.pt");
        want(ckpt_saver_open(&s, &d) == CKPT_OK);
        want(ckpt_saver_resume(s, &at) == CKPT_OK);
        want(at.batch >= (r.acked > 2 ? r.acked : 2) && model_is(&m, (int)at.batch));
        want(ckpt_saver_close(s, 0) == CKPT_OK);
        model_close(&m);
        util_drop_dir(folder);
        if (refused == 0) break;
        want(n < 100000);
    }
}

static void test_saver(void **state) { (void)state; saver_scene("saver, NONE", CKPT_SNAPSHOT_NONE, STRIDE); }
static void test_saver_copy(void **state) { (void)state; saver_scene("saver, COPY", CKPT_SNAPSHOT_COPY, 2 * STRIDE); }
static void test_saver_lazy(void **state) { (void)state; saver_scene("saver, LAZY", CKPT_SNAPSHOT_LAZY, 2 * STRIDE); }

static ckpt_err down_put(const char *name, const char *path, bool overwrite, void *user) {
    (void)name, (void)path, (void)overwrite, (void)user;
    return ckpt_set_error(CKPT_NET, "the store is down");
}

static ckpt_err down_get(const char *name, const char *path, void *user) {
    (void)name, (void)path, (void)user;
    return ckpt_set_error(CKPT_NET, "the store is down");
}

static ckpt_err down_size(const char *name, uint64_t *size, void *user) {
    (void)name, (void)size;
    if (__atomic_load_n((const bool *)user, __ATOMIC_SEQ_CST)) return ckpt_set_error(CKPT_NET, "the store is down");
    return CKPT_NOT_FOUND;
}

// A process that opens a saver, with what memory there is, saves if it is the first, and leaves an upload that waits.
static ckpt_err left_run(const char *folder, const ckpt_allocator *a, bool first, bool down) {
    ckpt_store_ops ops;
    ckpt_store *store = NULL;
    ckpt_uploader *up = NULL;
    ckpt_uploader_desc u;
    ckpt_saver *s = NULL;
    model m;
    bool is_down = false;
    memset(&ops, 0, sizeof ops);
    memset(&u, 0, sizeof u);
    ops.put = down_put;
    ops.get = down_get;
    ops.size = down_size;
    ops.name = "n";
    assert_int_equal(ckpt_store_custom(&store, &ops, &is_down), CKPT_OK);
    u.store = store;
    u.num_attempts = 1;
    assert_int_equal(ckpt_uploader_open(&up, &u), CKPT_OK);         // which looks at the store
    __atomic_store_n(&is_down, down, __ATOMIC_SEQ_CST);
    model_open(&m, NULL);
    model_set(&m, 1);
    ckpt_saver_desc d = saver_desc(&m, folder, CKPT_SNAPSHOT_NONE, "ba{batch}.pt");
    d.allocator = *a;
    d.num_remote_to_keep = 2;
    d.uploaders = (ckpt_uploader *const *)&up;
    d.uploaders_count = 1;
    d.overwrite = true;
    ckpt_err e = ckpt_saver_open(&s, &d);
    if (e == CKPT_OK && first) {
        ckpt_timestamp t = batch_time(1);
        (void)!ckpt_saver_save(s, &t);           // or the upload's failure
    }
    (void)!ckpt_saver_close(s, 0);               // what could not be uploaded
    (void)!ckpt_uploader_close(up, 0);
    ckpt_store_close(store);
    model_close(&m);
    return e;
}

// An upload of an earlier process that still waits is taken up, whether the store can be asked of it or not.
static void test_saver_left(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool down = i == 1;
        const char *scene = down ? "a waiting upload, the store is down" : "a waiting upload";
        const char *folder = fast_dir();
        heap h;
        ckpt_allocator a = heap_allocator(&h);
        assert_int_equal(left_run(folder, &a, true, down), CKPT_OK);
        for (int n = 1;; n++) {
            heap_arm(&h, n);
            ckpt_err e = left_run(folder, &a, false, down);
            int refused = h.refused;
            want(e == CKPT_NOMEM || e == CKPT_OK);
            want(h.blocks == 0 && h.bytes == 0);
            want(number_in(util_join(folder, "ba1.pt")) == 1);
            if (refused == 0) { want(e == CKPT_OK); print_message("%s: %d allocations\n", scene, n); break; }
            want(n < 100000);
        }
        util_drop_dir(folder);
    }
}

// The tools' part: list, pin, remove, tidy, convert.
static void test_folder(void **state) {
    (void)state;
    const char *scene = "folder", *folder = fast_dir();
    heap h;
    ckpt_allocator a = heap_allocator(&h);
    model m;
    model_open(&m, NULL);
    assert_int_equal(run_saver(&m, folder, CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 1, 2).acked, 2);
    model_close(&m);
    for (int n = 1;; n += STRIDE) {
        ckpt_folder_desc d;
        ckpt_gc_desc gc;
        ckpt_convert_desc c;
        ckpt_folder *f = NULL;
        memset(&d, 0, sizeof d);
        memset(&gc, 0, sizeof gc);
        memset(&c, 0, sizeof c);
        d.folder = folder;
        d.allocator = c.allocator = a;
        c.from = util_join(folder, "ba2.pt");
        c.to = util_join(folder, "out.safetensors");
        heap_arm(&h, n);
        ckpt_err e = ckpt_folder_open(&f, &d);
        want((e == CKPT_OK) == (f != NULL));
        if (e == CKPT_OK) e = ckpt_folder_pin(f, 0, true);
        if (e == CKPT_OK) e = ckpt_folder_pin(f, 0, false);
        if (e == CKPT_OK) e = ckpt_folder_gc(f, &gc);
        if (e == CKPT_OK) e = ckpt_convert(&c);
        int refused = h.refused;
        heap_arm(&h, 0);
        if (e != CKPT_OK && e != CKPT_NOMEM) fail_msg("allocation %d: code %d, '%s'", n, (int)e, ckpt_last_error());
        if (e == CKPT_OK) want(number_in(c.to) == 2);
        want(strstr(util_list(folder), ".tmp") == NULL && strstr(util_list(folder), "lock") == NULL);
        (void)unlink(c.to);
        want(number_in(util_join(folder, "latest-rank0.pt")) == 2);
        ckpt_folder_close(f);
        want(h.blocks == 0 && h.bytes == 0);
        if (refused == 0) { print_message("%d allocations\n", n); break; }
        want(n < 100000);
    }
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_save_safetensors),
        cmocka_unit_test(test_save_tar),
        cmocka_unit_test(test_save_gz),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_safetensors),
        cmocka_unit_test(test_load_tar),
        cmocka_unit_test(test_load_gz),
        cmocka_unit_test(test_saver),
        cmocka_unit_test(test_saver_copy),
        cmocka_unit_test(test_saver_lazy),
        cmocka_unit_test(test_saver_left),
        cmocka_unit_test(test_folder),
    };
    util_clear_env();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
