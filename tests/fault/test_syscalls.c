// Proves that any one system call may fail (EINTR, a short transfer, ENOSPC, EIO, a disk that stays full) during a save, a load or the
// work of a saver: the failure is told, nothing leaks, nothing half-done stays, and what was called durable before is still there.
// run.sh: tsan-long
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fault_util.h"

enum { FULL_DISK = -2 };                // beside errno values and FAULT_SHORT

enum { STRIDE = UTIL_STRIDE(7) };       // between the calls that fail

static const int faults[] = { EINTR, FAULT_SHORT, ENOSPC, EIO, FULL_DISK };

static const char *fault_name(int fault) {
    return fault == EINTR ? "EINTR" : fault == FAULT_SHORT ? "a short transfer" : fault == ENOSPC ? "ENOSPC" : fault == EIO ? "EIO" : "a full disk";
}

static void arm(int fault, int n) {
    if (fault == FULL_DISK) fault_arm_full_disk(n);
    else fault_arm(fault, n);
}

static char where[200];

static void set_where(const char *scene, int fault, int n) {
    snprintf(where, sizeof where, "%s with %s at call %d (%s)", scene, fault_name(fault), n, fault_where);
}

#define want(condition) do { if (!(condition)) fail_msg("%s: not %s; last error '%s'", where, #condition, ckpt_last_error()); } while (0)

// Interrupted and short calls must not be noticed; the others may only have sensible consequences.
static void check_outcome(int fault, ckpt_err e, const char *sentence) {
    if (fault == EINTR || fault == FAULT_SHORT) want(e == CKPT_OK);
    if (e == CKPT_OK) return;
    want(strlen(sentence) > 15 && strchr(sentence, ' ') != NULL);
    want(e == CKPT_IO || e == CKPT_NO_SPACE || e == CKPT_NOMEM || e == CKPT_UNSUPPORTED || (e == CKPT_CORRUPT && strstr(sentence, "read") != NULL));
    if (fault == FULL_DISK) want(e == CKPT_NO_SPACE || e == CKPT_IO || e == CKPT_NOMEM);
}

//-- one file ----------------------------------------------------------------------

static void save_scene(const char *name) {
    const char *dir = util_temp_dir(), *path = util_join(dir, name);
    int total = 0;
    model m;
    model_open(&m, NULL);
    model_set(&m, 1);
    assert_int_equal(ckpt_save(path, &m.st, NULL), CKPT_OK);
    char *old = util_slurp(path, NULL);
    size_t old_size = 0;
    free(old);
    old = util_slurp(path, &old_size);
    int before = fault_open_files();
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int n = 1;; n += STRIDE, total++) {
            ckpt_timestamp t = batch_time(2);
            util_write(path, old, old_size);
            model_set(&m, 2);
            arm(faults[f], n);
            ckpt_err e = ckpt_save(path, &m.st, &t);
            bool hit = fault_disarm();
            set_where(name, faults[f], n);
            check_outcome(faults[f], e, ckpt_last_error());
            want(fault_open_files() == before);
            want(strcmp(util_list(dir), util_fmt("%s\n", name)) == 0);
            int number = number_in(path);
            // Only a folder that could not be synced may leave the new file behind a failure.
            want(e == CKPT_OK ? number == 2 : number == 1 || (number == 2 && strcmp(fault_where, "fsync") == 0) || (number == 2 && strcmp(fault_where, "open") == 0));
            want(waitpid(-1, NULL, WNOHANG) == -1);
            if (!hit) { want(e == CKPT_OK); break; }
            want(n < 5000);
        }
    }
    free(old);
    model_close(&m);
    print_message("%s: %d faults\n", name, total);
}

static void test_save(void **state) { (void)state; save_scene("a.pt"); }
static void test_save_safetensors(void **state) { (void)state; save_scene("a.safetensors"); }
static void test_save_tar(void **state) { (void)state; save_scene("a.tar"); }
static void test_save_gz(void **state) { (void)state; save_scene("a.pt.gz"); }

static void load_scene(const char *name) {
    const char *dir = util_temp_dir(), *path = util_join(dir, name);
    int total = 0;
    model m;
    model_open(&m, NULL);
    model_set(&m, 5);
    assert_int_equal(ckpt_save(path, &m.st, NULL), CKPT_OK);
    int before = fault_open_files();
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int n = 1;; n += STRIDE, total++) {
            ckpt_load_desc d;
            memset(&d, 0, sizeof d);
            d.load_path = path;
            d.state = &m.st;
            model_set(&m, 6);
            arm(faults[f], n);
            ckpt_err e = ckpt_load(&d, NULL);
            bool hit = fault_disarm();
            set_where(name, faults[f], n);
            check_outcome(faults[f], e, ckpt_last_error());
            if (e == CKPT_OK) want(model_is(&m, 5));
            want(fault_open_files() == before);
            want(strcmp(util_list(dir), util_fmt("%s\n", name)) == 0);
            want(waitpid(-1, NULL, WNOHANG) == -1);
            if (!hit) { want(e == CKPT_OK); break; }
            want(n < 5000);
        }
    }
    model_close(&m);
    print_message("%s: %d faults\n", name, total);
}

static void test_load(void **state) { (void)state; load_scene("a.pt"); }
static void test_load_safetensors(void **state) { (void)state; load_scene("a.safetensors"); }
static void test_load_gz(void **state) { (void)state; load_scene("a.pt.gz"); }

//-- a saver -----------------------------------------------------------------------

static void check_folder(const char *folder, const char *filename, const run_report *r, int floor) {
    int acked = r->acked > floor ? r->acked : floor;
    bool refused = strcmp(fault_where, "unlink") == 0;      // what cannot be removed stays
    want(refused || strstr(util_list(folder), ".tmp") == NULL);
    if (r->first == CKPT_OK) want(refused || !has_litter(folder));      // an empty lock file stays when it cannot be locked
    const char *latest = util_fmt("%s/latest-rank0.pt%s", folder, strstr(filename, ".gz") != NULL ? ".gz" : "");
    want(util_exists(latest));
    if (ckpt_verify(latest, NULL) != CKPT_OK) fail_msg("%s: latest does not verify: %s", where, ckpt_last_error());
    want(number_in(latest) > 0);
    // A new process goes on from the newest checkpoint that was called durable, or from a later one.
    model m;
    ckpt_saver *s = NULL;
    ckpt_timestamp at;
    model_open(&m, NULL);
    ckpt_saver_desc d = saver_desc(&m, folder, CKPT_SNAPSHOT_NONE, filename);
    want(ckpt_saver_open(&s, &d) == CKPT_OK);
    want(ckpt_saver_resume(s, &at) == CKPT_OK);
    want(at.batch >= acked);
    want(model_is(&m, (int)at.batch));
    ckpt_timestamp next = batch_time((int)at.batch + 1);
    model_set(&m, (int)at.batch + 1);
    want(ckpt_saver_save(s, &next) == CKPT_OK);
    want(ckpt_saver_checkpoints(s, NULL) == 2);
    want(ckpt_saver_close(s, 0) == CKPT_OK);
    want(number_in(latest) == at.batch + 1);
    want(refused || !has_litter(folder));
    model_close(&m);
}

// A saver syncs dozens of times in each run of a scene, of which there are a thousand: in memory that takes seconds.
static const char *fast_dir(void) {
    char *path = util_fmt("/dev/shm/ckpt-test-XXXXXX");
    if (mkdtemp(path) == NULL) return util_temp_dir();
    return (const char *)util_keep(strdup(path), true);
}

static void saver_scene(const char *scene, ckpt_snapshot snapshot, const char *filename, int stride) {
    const char *base = fast_dir();
    int total = 0, before = fault_open_files();
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int n = 1;; n += stride, total++) {
            const char *folder = util_fmt("%s/%d-%d", base, f, n);
            model m;
            model_open(&m, NULL);
            run_report first = run_saver(&m, folder, CKPT_SNAPSHOT_NONE, filename, false, 1, 2);
            assert_int_equal(first.first, CKPT_OK);
            assert_int_equal(first.acked, 2);
            arm(faults[f], n);
            run_report r = run_saver(&m, folder, snapshot, filename, true, 3, 4);
            bool hit = fault_disarm();
            set_where(scene, faults[f], n);
            model_close(&m);
            check_outcome(faults[f], r.first, r.sentence);
            want(fault_open_files() == before);
            want(waitpid(-1, NULL, WNOHANG) == -1);
            if (!hit) want(r.acked == 4 && r.first == CKPT_OK);
            check_folder(folder, filename, &r, 2);
            want(fault_open_files() == before);
            util_drop_dir(folder);
            if (!hit) break;
            want(n < 5000);
        }
    }
    print_message("%s: %d faults\n", scene, total);
}

static void test_saver(void **state) {
    (void)state;
    saver_scene("saver, NONE", CKPT_SNAPSHOT_NONE, "ba{batch}.pt", STRIDE);
}

static void test_saver_copy(void **state) {
    (void)state;
    saver_scene("saver, COPY", CKPT_SNAPSHOT_COPY, "ba{batch}.pt", 2 * STRIDE);
}

static void test_saver_lazy(void **state) {
    (void)state;
    saver_scene("saver, LAZY", CKPT_SNAPSHOT_LAZY, "sub/ba{batch}.pt", 2 * STRIDE);
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_save_safetensors),
        cmocka_unit_test(test_save_tar),
        cmocka_unit_test(test_save_gz),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_safetensors),
        cmocka_unit_test(test_load_gz),
        cmocka_unit_test(test_saver),
        cmocka_unit_test(test_saver_copy),
        cmocka_unit_test(test_saver_lazy),
    };
    util_clear_env();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
