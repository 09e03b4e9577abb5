// Proves that any one system call may fail (EINTR, a short transfer, ENOSPC, EIO, a disk that stays full) while a file:// store puts, sends
// parts, gets, lists or removes: the failure is told, an object is the old or the new one, whole, and nothing leaks or stays half-done.
// run.sh: no-tsan
#include "faults.h"
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../store_contract.h"

enum { FULL_DISK = -2, SIZE = 300000 };

static const int faults[] = { EINTR, FAULT_SHORT, ENOSPC, EIO, FULL_DISK };

static const char *fault_name(int fault) {
    return fault == EINTR ? "EINTR" : fault == FAULT_SHORT ? "a short transfer" : fault == ENOSPC ? "ENOSPC" : fault == EIO ? "EIO" : "a full disk";
}

static char where[200];

#define want(condition) do { if (!(condition)) fail_msg("%s: not %s; last error '%s'", where, #condition, ckpt_last_error()); } while (0)

static const char *dir, *bucket, *source, *target;
static unsigned char *fresh;
static ckpt_store *store;
static int open_before;

static void put_old(void) {
    util_remove_tree(bucket);
    util_mkdir(bucket);
    util_mkdir(util_join(bucket, "a"));
    util_write_text(util_join(bucket, "a/x"), "the old one");
    (void)unlink(target);
}

static bool file_is(const char *path, const void *p, size_t n) {
    size_t size = 0;
    char *text = util_slurp(path, &size);
    bool same = text != NULL && size == n && memcmp(text, p, n) == 0;
    free(text);
    return same;
}

static bool is_old(void) { return file_is(util_join(bucket, "a/x"), "the old one", 11); }
static bool is_new(void) { return file_is(util_join(bucket, "a/x"), fresh, SIZE); }

static ckpt_err scene_put(void) { return ckpt_store_put(store, "a/x", source, true); }
static ckpt_err scene_put_memory(void) {
    ckpt__transfer t = contract_transfer();
    return contract_put(store, "a/x", fresh, SIZE, true, "00112233445566778899aabbccddeeff", &t);
}
static ckpt_err scene_put_deep(void) { return ckpt_store_put(store, "made/for/it", source, false); }
static ckpt_err scene_get(void) { return ckpt_store_get(store, "a/x", target, false); }
static ckpt_err scene_size(void) {
    uint64_t size = 0;
    ckpt_err e = ckpt_store_size(store, "a/x", &size);
    if (e == CKPT_OK) want(size == 11);
    return e;
}
static ckpt_err scene_list(void) {
    contract_names found;
    memset(&found, 0, sizeof found);
    ckpt_err e = ckpt_store_list(store, "", contract_note, &found);
    if (e == CKPT_OK && (fault_where == NULL || strcmp(fault_where, "readdir") != 0)) want(found.count == 1 && strcmp(found.names[0], "a/x") == 0);
    contract_names_free(&found);
    return e;
}
static ckpt_err scene_remove(void) { return ckpt_store_remove(store, "a/x"); }

static contract_multi parts;
static ckpt__transfer last;             // how the last call of scene_parts and of scene_one ended

static ckpt_err scene_parts(void) {
    last = contract_transfer();
    memset(&parts, 0, sizeof parts);
    ckpt__buf_init(&parts.id, NULL);
    parts.m.name = "a/x";
    parts.m.size = SIZE;
    parts.m.overwrite = true;
    parts.m.mark = "00112233445566778899aabbccddeeff";
    parts.m.t = &last;
    ckpt_err e = ckpt__store_run_begin(store, &parts.m, &parts.id);
    parts.m.upload_id = ckpt__buf_cstr(&parts.id);
    int fd = open(source, O_RDONLY);
    for (int i = 0; i < 3 && e == CKPT_OK; i++) {
        ckpt__body b = contract_memory(fresh, SIZE);
        if (i == 1) {
            b.memory = NULL;
            b.fd = fd;
            b.path = source;
        }
        b.offset = (uint64_t)i * 100000;
        b.size = 100000;
        parts.part[i].number = i + 1;
        e = ckpt__store_run_part(store, &parts.m, &b, &parts.part[i]);
    }
    close(fd);
    contract_parts seen;
    memset(&seen, 0, sizeof seen);
    if (e == CKPT_OK) e = ckpt__store_run_parts(store, &parts.m, contract_note_part, &seen);
    if (e == CKPT_OK && strcmp(fault_where, "readdir") != 0) want(seen.count == 3);
    parts.m.parts = parts.part;
    parts.m.part_count = 3;
    if (e == CKPT_OK) e = ckpt__store_run_complete(store, &parts.m);
    return e;
}

static void run(const char *scene, ckpt_err (*fn)(void), void (*check)(ckpt_err e)) {
    int total = 0;
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int n = 1;; n++, total++) {
            put_old();
            snprintf(where, sizeof where, "%s with %s at call %d", scene, fault_name(faults[f]), n);
            if (faults[f] == FULL_DISK) fault_arm_full_disk(n);
            else fault_arm(faults[f], n);
            ckpt_err e = fn();
            bool hit = fault_disarm();
            snprintf(where, sizeof where, "%s with %s at call %d (%s)", scene, fault_name(faults[f]), n, fault_where);
            if (faults[f] == EINTR || faults[f] == FAULT_SHORT) want(e == CKPT_OK);
            if (e != CKPT_OK) {
                want(e == CKPT_IO || e == CKPT_NO_SPACE || e == CKPT_NOMEM);
                want(strlen(ckpt_last_error()) > 15);
            }
            want(fault_open_files() == open_before);
            check(e);
            if (!hit) { want(e == CKPT_OK); break; }
            want(n < 3000);
        }
    }
    print_message("%s: %d faults\n", scene, total);
}

// A folder that cannot be synced, and a source that cannot be looked at once more, leave the new object behind a failure.
static bool synced_late(void) {
    return strcmp(fault_where, "fsync") == 0 || strcmp(fault_where, "open") == 0 || strcmp(fault_where, "fstat") == 0;
}
static bool unlink_failed(void) { return strcmp(fault_where, "unlink") == 0; }

static void no_litter(void) {
    if (unlink_failed() || strcmp(fault_where, "rmdir") == 0) return;
    want(strstr(util_list(util_join(bucket, "a")), ".tmp") == NULL && strstr(util_list(bucket), ".tmp") == NULL);
}

static void check_put(ckpt_err e) {
    want(e == CKPT_OK ? is_new() : is_old() || (is_new() && synced_late()));
    no_litter();
}

static void check_deep(ckpt_err e) {
    const char *path = util_join(bucket, "made/for/it");
    want(e == CKPT_OK ? file_is(path, fresh, SIZE) : !util_exists(path) || (synced_late() && file_is(path, fresh, SIZE)));
    want(is_old());
}

static void check_get(ckpt_err e) {
    want(e == CKPT_OK ? file_is(target, "the old one", 11) : !util_exists(target) || (synced_late() && file_is(target, "the old one", 11)));
    want(is_old());
    if (!unlink_failed()) want(strstr(util_list(dir), ".tmp") == NULL);
}

static void check_still(ckpt_err e) {
    (void)e;
    want(is_old());
}

static void check_removed(ckpt_err e) {
    want(e == CKPT_OK ? !util_exists(util_join(bucket, "a/x")) : is_old());
    want(util_exists(bucket));
}

static void check_parts(ckpt_err e) {
    want(e == CKPT_OK ? is_new() : is_old() || (is_new() && synced_late()));
    if (e != CKPT_OK && parts.id.len > 0) {
        ckpt__transfer t = contract_transfer();
        parts.m.t = &t;
        contract_ok(ckpt__store_run_abort(store, &parts.m));
    }
    ckpt__buf_free(&parts.id);
    if (e == CKPT_OK && (unlink_failed() || strcmp(fault_where, "rmdir") == 0 || strcmp(fault_where, "opendir") == 0 || strcmp(fault_where, "readdir") == 0)) return;
    no_litter();
    if (unlink_failed() || strcmp(fault_where, "rmdir") == 0 || strcmp(fault_where, "readdir") == 0) return;
    // A begin that failed has taken away what it had made, unless that failed as well.
    want(strstr(util_list(util_join(bucket, "a")), ".ckpt-upload") == NULL);
}

static void test_put(void **state) { (void)state; run("put", scene_put, check_put); }
static void test_put_memory(void **state) { (void)state; run("put from memory", scene_put_memory, check_put); }
static void test_put_deep(void **state) { (void)state; run("put into new folders", scene_put_deep, check_deep); }
static void test_get(void **state) { (void)state; run("get", scene_get, check_get); }
static void test_size(void **state) { (void)state; run("size", scene_size, check_still); }
static void test_list(void **state) { (void)state; run("list", scene_list, check_still); }
static void test_remove(void **state) { (void)state; run("remove", scene_remove, check_removed); }
static void test_parts(void **state) { (void)state; run("parts", scene_parts, check_parts); }

// One call of each kind.
static ckpt_err scene_one(int kind) {
    ckpt__store_stat st;
    ckpt__sink k;
    contract_names found;
    contract_uploads seen;
    unsigned char got[11];
    last = contract_transfer();
    memset(&k, 0, sizeof k);
    memset(&found, 0, sizeof found);
    memset(&seen, 0, sizeof seen);
    seen.name = "a/x";
    k.memory = got;
    k.fd = -1;
    k.size = sizeof got;
    ckpt_err e = CKPT_OK;
    switch (kind) {
        case 0: return contract_put(store, "a/x", fresh, SIZE, true, "00112233445566778899aabbccddeeff", &last);
        case 1: return ckpt__store_run_stat(store, "a/x", &st, &last);
        case 2: return ckpt__store_run_get(store, "a/x", NULL, 0, &k, &last);
        case 3: e = ckpt__store_run_list(store, "", contract_note, &found, &last); contract_names_free(&found); return e;
        case 4: return ckpt__store_run_uploads(store, "", contract_note_upload, &seen, &last);
        case 5: return ckpt__store_run_remove(store, "a/x", &last);
        case 6: e = scene_parts(); break;
        default: break;
    }
    if (e != CKPT_OK && parts.id.len > 0) {
        bool again = last.transient;
        (void)ckpt__store_run_abort(store, &parts.m);
        last.transient = again;
    }
    ckpt__buf_free(&parts.id);
    return e;
}

// The folder's server is away for a moment: whatever was asked for may go well later, and what has its name already is not taken for another's.
static void test_away(void **state) {
    (void)state;
    for (int kind = 0; kind < 7; kind++) {
        int failed = 0;
        for (int n = 1;; n++) {
            put_old();
            snprintf(where, sizeof where, "call %d of kind %d of a server that is away", n, kind);
            fault_arm(ENOTCONN, n);
            ckpt_err e = scene_one(kind);
            bool hit = fault_disarm();
            if (!hit) break;
            snprintf(where, sizeof where, "%s of kind %d of a server that is away (call %d)", fault_where, kind, n);
            want(e == CKPT_OK || (e == CKPT_NET && last.transient));
            if (e != CKPT_OK && is_new()) want(last.unsure || strcmp(fault_where, "fstat") == 0);
            if (kind == 0 && !is_new()) want(!last.unsure || strcmp(fault_where, "rename") == 0);
            failed += e != CKPT_OK;
        }
        want(failed > 0);
    }
}

// What mkfs leaves at the top of a disk is not in the way of a list; that another folder may not be looked into is told.
static void test_lost_found(void **state) {
    (void)state;
    for (int other = 0; other < 2; other++) {
        put_old();
        util_remove_tree(util_join(bucket, "a"));
        util_mkdir(util_join(bucket, other ? "lost" : "lost+found"));
        util_write_text(util_join(bucket, "x"), "the old one");
        contract_names found;
        memset(&found, 0, sizeof found);
        fault_arm_call("opendir", EACCES, 2);
        ckpt_err e = ckpt_store_list(store, "", contract_note, &found);
        want(fault_disarm() && e == (other ? CKPT_AUTH : CKPT_OK));
        if (!other) want(found.count == 1 && strcmp(found.names[0], "x") == 0);
        contract_names_free(&found);
    }
}

// An upload in parts that has got its name, and could not be told so, is begun again: it is found to be there.
static void test_parts_twice(void **state) {
    (void)state;
    put_old();
    contract_multi c[2];
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < 2; i++) {
        the_contract.store = store;
        contract_begin(&c[i], "twice", "00112233445566778899aabbccddeeff", false);
        for (int k = 1; k <= 4; k++) contract_ok(contract_send_part(&c[i], k));
        contract_all(&c[i]);
        ckpt__store_stat st;
        ckpt__transfer t = contract_transfer();
        for (int n = 1; i == 0 && ckpt__store_run_stat(store, "twice", &st, &t) != CKPT_OK; n++) {
            fault_arm_call("fsync", EIO, n);
            e = ckpt__store_run_complete(store, &c[i].m);
            want(fault_disarm() && e == CKPT_IO);
        }
        if (i == 0) want(c[0].t.unsure);
    }
    contract_ok(ckpt__store_run_complete(store, &c[1].m));
    contract_ok(ckpt__store_run_abort(store, &c[0].m));
    want(strstr(util_list(bucket), ".ckpt-upload") == NULL);
    for (int i = 0; i < 2; i++) ckpt__buf_free(&c[i].id);
}

// Where the kernel copies nothing by itself, or keeps no attributes, everything works all the same. Of a copy that failed, a read or a
// write tells which of the two files is to blame.
static void test_fallbacks(void **state) {
    (void)state;
    static const int errors[] = { EXDEV, ENOSYS, EINVAL, EOPNOTSUPP, EPERM, EIO, ESTALE };
    static const char *const calls[] = { "copy_file_range", "fsetxattr", "fgetxattr", "renameat2", "fallocate", "fstatvfs" };
    for (int i = 0; i < UTIL_COUNT(errors); i++) {
        for (int c = 0; c < UTIL_COUNT(calls); c++) {
            if (errors[i] == EXDEV && strcmp(calls[c], "renameat2") == 0) continue;     // within one folder it cannot be
            if ((errors[i] == EIO || errors[i] == ESTALE) && c > 0) continue;
            for (int n = 1; n <= 2; n++) {
                put_old();
                snprintf(where, sizeof where, "%s says %d", calls[c], errors[i]);
                fault_arm_call(calls[c], errors[i], n);
                ckpt_err e = scene_put();
                if (e == CKPT_OK) e = ckpt_store_get(store, "a/x", target, false);
                if (e == CKPT_OK) e = scene_put_deep();
                (void)fault_disarm();
                contract_ok(e);
                want(is_new() && file_is(target, fresh, SIZE) && file_is(util_join(bucket, "made/for/it"), fresh, SIZE));
            }
        }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put), cmocka_unit_test(test_put_memory), cmocka_unit_test(test_put_deep), cmocka_unit_test(test_get),
        cmocka_unit_test(test_size), cmocka_unit_test(test_list), cmocka_unit_test(test_remove), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_away), cmocka_unit_test(test_lost_found), cmocka_unit_test(test_parts_twice), cmocka_unit_test(test_fallbacks)
    };
    util_clear_env();
    if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 1);       // thousands of syncs, whose time proves nothing
    dir = util_temp_dir();
    bucket = util_join(dir, "bucket");
    target = util_join(dir, "target");
    source = util_join(util_temp_dir(), "source");
    fresh = contract_bytes(SIZE, 1);
    util_write(source, fresh, SIZE);
    if (ckpt_store_open(&store, util_fmt("file://%s", bucket), NULL) != CKPT_OK) return 1;
    open_before = fault_open_files();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ckpt_store_close(store);
    return failed;
}
