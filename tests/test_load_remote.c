/* test_load_remote.c: loading, getting, looking into and verifying what lies in a store, and what is left on the disk afterwards.
   run.sh: tsan */

#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "saver_util.h"
#include "bucket_util.h"

// Loads by a name in the bucket; what it must be, or how it must fail.
static ckpt_err load_store(ckpt_store *s, const char *name, int64_t step) {
    run *r = run_new(".");
    ckpt_load_desc l;
    ckpt_timestamp t;
    memset(&l, 0, sizeof l);
    l.load_path = name;
    l.state = &r->st;
    l.store = s;
    l.run_name = "r";
    ckpt_err e = ckpt_load(&l, &t);
    if (e == CKPT_OK) run_check(r, step);
    if (e == CKPT_OK) assert_int_equal(t.batch, step);
    if (e != CKPT_OK && e != CKPT_CORRUPT) run_check(r, 0);     // bound memory is as it was
    ckpt_state_free(&r->st);
    return e;
}

static ckpt_err load_from(bucket *b, const char *name, int64_t step) {
    return load_store(b != NULL ? b->store : NULL, name, step);
}

static void save_to(const char *path, int64_t step) {
    run *r = run_new(".");
    ckpt_timestamp t = at_batch(step);
    run_set(r, step);
    ok(ckpt_save(path, &r->st, &t));
    ckpt_state_free(&r->st);
}

// Puts a checkpoint of that ending into the bucket.
static void put_checkpoint(bucket *b, const char *name, int64_t step) {
    const char *local = util_join(util_temp_dir(), strrchr(name, '/') != NULL ? strrchr(name, '/') + 1 : name);
    save_to(local, step);
    ok(ckpt_store_put(b->store, name, local, true));
}

// Names in TMPDIR but for the tests' own folders.
static const char *left_in(const char *tmp) {
    char *all = util_fmt("%s", util_list(tmp)), *next = NULL, *out = util_fmt("%s", all);
    out[0] = 0;
    for (char *name = strtok_r(all, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next)) {
        if (strncmp(name, "ckpt-test-", 10) != 0) strcat(out, name);
    }
    return out;
}

static const char *fresh_tmp(void) {
    const char *dir = util_temp_dir();
    assert_int_equal(setenv("TMPDIR", dir, 1), 0);
    return dir;
}

//-- custom stores -----------------------------------------------------------------

static void test_load_by_name(void **state) {
    (void)state;
    const char *tmp = fresh_tmp();
    bucket *b = bucket_new(NULL);
    put_checkpoint(b, "r/checkpoints/ba3.pt", 3);
    put_checkpoint(b, "r/x-rank0.safetensors", 4);
    util_write_text(bucket_path(b, "r/checkpoints/latest-rank0.pt.symlink"), "r/checkpoints/ba3.pt");
    util_write_text(bucket_path(b, "r/twice.symlink"), "r/checkpoints/latest-rank0.pt\n");
    ok(load_from(b, "r/checkpoints/ba3.pt", 3));
    ok(load_from(b, "r/checkpoints/latest-rank0.pt", 3));               // by fallback
    ok(load_from(b, "r/checkpoints/latest-rank0.pt.symlink", 3));       // by suffix
    ok(load_from(b, "r/twice", 3));
    ok(load_from(b, "{run_name}/checkpoints/latest-rank{rank}.pt", 3));
    ok(load_from(b, "s3://any-bucket/r/checkpoints/ba3.pt", 3));        // loading.json: with a store, a URI's path is the name
    ok(load_from(b, "r/x-rank{rank}.safetensors", 4));
    assert_string_equal(left_in(tmp), "");
    bucket_end(b);
}

// What ckpt_get_uri_for_file says of a file is what it is loaded by, with the store as well; with braces doubled, as in any load_path.
static void test_load_by_own_uri(void **state) {
    (void)state;
    static const char *const names[] = { "plain.pt", "r/q?x#y %41.pt", "r{1}/a.pt" };
    const char *tmp = fresh_tmp(), *dir = util_temp_dir(), *root = util_join(dir, "a b");
    util_mkdir(root);
    for (int near = 0; near < 2; near++) {
        bucket *b = near ? NULL : bucket_new(NULL);
        ckpt_store *s = near ? NULL : b->store;
        ckpt_uploader_desc d;
        ckpt_uploader *u;
        char uri[600];
        if (near) ok(ckpt_store_open(&s, util_fmt("file://%s", root), NULL));
        memset(&d, 0, sizeof d);
        d.store = s;
        ok(ckpt_uploader_open(&u, &d));
        for (int i = 0; i < UTIL_COUNT(names); i++) {
            save_to(util_join(dir, "one.pt"), i + 1);
            ok(ckpt_store_put(s, names[i], util_join(dir, "one.pt"), true));
            ok(ckpt_get_uri_for_file(u, names[i], uri, sizeof uri));
            if (i < 2 || near) ok(load_store(s, uri, i + 1));
            if (near) ok(load_from(NULL, uri, i + 1));
        }
        ok(load_store(s, "r{{1}}/a.pt", 3));
        assert_int_equal(load_store(s, "r{1}/a.pt", 3), CKPT_ARG);
        ok(load_store(s, util_fmt("%sr{{1}}/a.pt", s->uri), 3));
        assert_int_equal(load_store(s, util_fmt("%s", s->uri), 3), CKPT_ARG);
        ok(ckpt_uploader_close(u, 0));
        if (near) ckpt_store_close(s);
        else bucket_end(b);
    }
    assert_string_equal(left_in(tmp), "");
}

// The run goes on: its link leads to the next checkpoint, and the one before is rotated out.
static void move_on(bucket *b) {
    util_write_text(bucket_path(b, "r/latest-rank0.pt.symlink"), "r/ba2.pt");
    assert_int_equal(unlink(bucket_path(b, "r/ba1.pt")), 0);
}

// While somebody follows it, or fetches what it led to.
static void test_link_moves_on(void **state) {
    (void)state;
    static const char *const moments[] = { "size r/ba1.pt", "get r/ba1.pt" };
    const char *tmp = fresh_tmp();
    for (int i = 0; i < 2 * UTIL_COUNT(moments); i++) {
        bucket *b = bucket_new(NULL);
        put_checkpoint(b, "r/ba1.pt", 1);
        put_checkpoint(b, "r/ba2.pt", 2);
        util_write_text(bucket_path(b, "r/latest-rank0.pt.symlink"), "r/ba1.pt");
        b->then = move_on;
        if (i < 2) {
            b->before = moments[i];
            ok(load_from(b, "r/latest-rank0.pt.symlink", 2));
        } else {
            ckpt_uploader_desc d;
            ckpt_uploader *u;
            memset(&d, 0, sizeof d);
            d.store = b->store;
            ok(ckpt_uploader_open(&u, &d));
            b->before = moments[i - 2];
            const char *to = util_join(util_temp_dir(), "got.pt");
            ok(ckpt_download_file(u, "r/latest-rank0.pt.symlink", to, false));
            assert_int_equal(ckpt_uploader_close(u, 0), CKPT_OK);
            ok(load_from(NULL, to, 2));
        }
        assert_null(b->before);
        assert_int_equal(unlink(bucket_path(b, "r/ba2.pt")), 0);            // one that leads nowhere for good is not looked at for ever
        assert_int_equal(load_from(b, "r/latest-rank0.pt.symlink", 0), CKPT_NOT_FOUND);
        bucket_end(b);
    }
    assert_string_equal(left_in(tmp), "");
}

static void test_compressed(void **state) {
    (void)state;
    static const char *const names[][2] = { { "x.pt.gz", "gzip" }, { "x.pt.lz4", "lz4" }, { "x.tgz", "gzip" }, { "x.safetensors.zst", "zstd" },
                                            { "x.tar", "sh" } };
    const char *tmp = fresh_tmp();
    bucket *b = bucket_new(NULL);
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        if (!ckpt__os_which(names[i][1])) continue;
        put_checkpoint(b, names[i][0], i + 1);
        ok(load_from(b, names[i][0], i + 1));
        ok(load_from(NULL, util_fmt("file://%s/%s", b->dir, names[i][0]), i + 1));
    }
    assert_string_equal(left_in(tmp), "");
    bucket_end(b);
}

// What a process that was killed has fetched goes with the next fetch; that of one that lives stays.
static void test_sweep(void **state) {
    (void)state;
    const char *tmp = fresh_tmp();
    bucket *b = bucket_new(NULL);
    put_checkpoint(b, "ba3.pt", 3);
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    const char *live = util_fmt(".ba1.pt.%s", util_temp_tail((int)getpid()));
    util_write_text(util_join(tmp, util_fmt(".ba1.pt.%s", util_temp_tail((int)pid))), "fetched");
    util_write_text(util_join(tmp, live), "being fetched");
    ok(load_from(b, "ba3.pt", 3));
    assert_string_equal(left_in(tmp), live);
    bucket_end(b);
}

// Every way to fail has its own code, and leaves nothing in TMPDIR.
static void test_failures(void **state) {
    (void)state;
    const char *tmp = fresh_tmp();
    bucket *b = bucket_new(NULL);
    put_checkpoint(b, "ba3.pt", 3);
    util_write_text(bucket_path(b, "gone.symlink"), "ba9.pt");
    util_write_text(bucket_path(b, "ring.symlink"), "ring.symlink");
    util_write_text(bucket_path(b, "up.symlink"), "../../etc/passwd");
    util_write_text(bucket_path(b, "root.symlink"), "/etc/passwd");
    util_write_text(bucket_path(b, "uri.symlink"), "file:///etc/passwd");
    util_write_text(bucket_path(b, "text.pt"), "this is no checkpoint");
    assert_int_equal(load_from(b, "nothing.pt", 0), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "nothing.pt"));
    assert_int_equal(load_from(b, "gone", 0), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "gone"));
    assert_int_equal(load_from(b, "ring", 0), CKPT_CORRUPT);
    assert_int_equal(load_from(b, "up", 0), CKPT_CORRUPT);
    assert_int_equal(load_from(b, "root", 0), CKPT_CORRUPT);
    assert_int_equal(load_from(b, "uri", 0), CKPT_CORRUPT);
    assert_true(load_from(b, "text.pt", 0) != CKPT_OK);
    assert_int_equal(load_from(b, "", 0), CKPT_ARG);
    static const ckpt_err codes[] = { CKPT_AUTH, CKPT_IO };
    static const char *const calls[] = { "size ba3.pt", "get ba3.pt" };
    for (int i = 0; i < UTIL_COUNT(codes); i++) {
        for (int k = 0; k < UTIL_COUNT(calls); k++) {
            bucket_fail(b, calls[k], codes[i], -1);
            assert_int_equal(load_from(b, "ba3.pt", 0), codes[i]);
        }
    }
    bucket_fail(b, "size ba3.pt", CKPT_NET, 1);
    ok(load_from(b, "ba3.pt", 3));                  // tried again
    bucket_fail(b, NULL, CKPT_OK, 0);
    util_flip(bucket_path(b, "ba3.pt"), 5000, 1);
    assert_int_equal(load_from(b, "ba3.pt", 0), CKPT_CORRUPT);
    assert_string_equal(left_in(tmp), "");
    bucket_end(b);
}

// A TMPDIR that cannot be, as a file is in its place: it is not said of the checkpoint that it is missing, nor of the store that it refuses.
static void test_unheld(void **state) {
    (void)state;
    const char *dir = fresh_tmp();
    bucket *b = bucket_new(NULL);
    put_checkpoint(b, "ba3.pt", 3);
    util_write_text(util_join(dir, "file"), "x");
    static const char *const names[] = { "file", "file/below" };
    run *r = run_new(".");
    ckpt_load_desc l;
    memset(&l, 0, sizeof l);
    l.load_path = "ba3.pt";
    l.state = &r->st;
    l.store = b->store;
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        assert_int_equal(setenv("TMPDIR", util_join(dir, names[i]), 1), 0);
        ckpt_err e = ckpt_load(&l, NULL);
        if (e != CKPT_CANCELLED) fail_msg("%s: %s: %s", names[i], ckpt_err_name(e), ckpt_last_error());
        assert_non_null(strstr(ckpt_last_error(), "this machine cannot hold a copy"));
    }
    assert_int_equal(setenv("TMPDIR", dir, 1), 0);
    ok(ckpt_load(&l, NULL));
    ckpt_state_free(&r->st);
    bucket_end(b);
}

static void count_progress(const ckpt_progress *p, void *user) {
    int *calls = (int *)user;
    assert_true(p->done <= p->total);
    if (p->finished) calls[1]++;
    calls[0]++;
}

static void test_progress(void **state) {
    (void)state;
    (void)fresh_tmp();
    bucket *b = bucket_new(NULL);
    put_checkpoint(b, "ba3.pt", 3);
    run *r = run_new(".");
    int calls[2] = { 0, 0 };
    ckpt_load_desc l;
    memset(&l, 0, sizeof l);
    l.load_path = "ba3.pt";
    l.state = &r->st;
    l.store = b->store;
    l.progress.fn = count_progress;
    l.progress.user = calls;
    ok(ckpt_load(&l, NULL));
    assert_int_equal(calls[1], 1);
    // What cannot be fetched, and what turns out to be none once it is, has its end as well.
    bucket_fail(b, "get ba3.pt", CKPT_AUTH, -1);
    assert_int_equal(ckpt_load(&l, NULL), CKPT_AUTH);
    assert_int_equal(calls[1], 2);
    bucket_fail(b, NULL, CKPT_OK, 0);
    util_write_text(bucket_path(b, "ba3.pt"), "this is no checkpoint");
    assert_true(ckpt_load(&l, NULL) != CKPT_OK);
    assert_int_equal(calls[1], 3);
    ckpt_state_free(&r->st);
    bucket_end(b);
}

//-- URIs --------------------------------------------------------------------------

// The text of a link is relative to the bucket that the writer had; the URI of the reader may begin further up.
static void test_uri_above_the_bucket(void **state) {
    (void)state;
    const char *tmp = fresh_tmp(), *dir = util_temp_dir();
    util_mkdir(util_join(dir, "lab"));
    util_mkdir(util_join(dir, "lab/run"));
    save_to(util_join(dir, "lab/run/ba3.pt"), 3);
    save_to(util_join(dir, "lab/run/ba4.pt"), 4);
    const char *link = util_join(dir, "lab/run/latest.pt.symlink"), *uri = util_fmt("file://%s/lab/run/latest.pt", dir);
    util_write_text(link, "run/ba3.pt");                                        // bucket file://<dir>/lab
    ok(load_from(NULL, uri, 3));
    util_write_text(link, "lab/run/ba4.pt");                                    // bucket file://<dir>
    ok(load_from(NULL, uri, 4));
    util_write_text(link, util_fmt("%s/lab/run/ba3.pt", dir + 1));              // the root, as a saver with that folder has it
    ok(load_from(NULL, uri, 3));
    util_write_text(link, "nowhere/ba3.pt");
    assert_int_equal(load_from(NULL, uri, 3), CKPT_NOT_FOUND);
    assert_string_equal(left_in(tmp), "");
}

static void test_uri_errors(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    assert_int_equal(load_from(NULL, util_fmt("file://%s/x.pt", dir), 0), CKPT_NOT_FOUND);
    assert_int_equal(load_from(NULL, "file://", 0), CKPT_ARG);
    assert_int_equal(load_from(NULL, "nosuch://b/x.pt", 0), CKPT_ARG);
    assert_int_equal(load_from(NULL, "gs://b/x.pt", 0), CKPT_UNSUPPORTED);
    assert_int_equal(ckpt_get_file("nosuch://b/x.pt", util_join(dir, "y"), false), CKPT_ARG);
    assert_false(util_exists(util_join(dir, "y")));
}

static void test_tools_take_uris(void **state) {
    (void)state;
    const char *tmp = fresh_tmp(), *dir = util_temp_dir();
    save_to(util_join(dir, "a b.pt"), 3);
    const char *uri = util_fmt("file://%s/a%%20b.pt", dir);
    ok(ckpt_verify(uri, NULL));
    ckpt_file *f;
    ok(ckpt_file_open(&f, uri));
    assert_true(ckpt_file_count(f) >= 3);
    ok(ckpt_file_verify(f));
    ckpt_file_close(f);
    ckpt_convert_desc c;
    memset(&c, 0, sizeof c);
    c.from = uri;
    c.to = util_join(dir, "b.safetensors");
    ok(ckpt_convert(&c));
    ok(load_from(NULL, c.to, 3));
    c.to = "file:///x.pt";
    assert_int_equal(ckpt_convert(&c), CKPT_UNSUPPORTED);
    util_flip(util_join(dir, "a b.pt"), 5000, 1);
    assert_int_equal(ckpt_verify(uri, NULL), CKPT_CORRUPT);
    assert_true(util_exists(util_join(dir, "a b.pt")));
    assert_string_equal(left_in(tmp), "");
}

//-- get_file ----------------------------------------------------------------------

// get_file_remote.json. A ring is CKPT_CORRUPT here instead of a stack that runs out.
static void test_get_file_cases(void **state) {
    (void)state;
    size_t size;
    char *text = util_read(util_tests_path("cases/get_file_remote.json"), &size);
    ckpt__json_doc d;
    ckpt_allocator a = { NULL, NULL };
    ok(ckpt__json_parse(&d, &a, text, size));
    int rows = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row)) {
        const ckpt__json *objects = ckpt__json_get(&d, row, "objects"), *content = ckpt__json_get(&d, row, "content");
        const char *status = ckpt__json_get(&d, row, "status")->text, *path = ckpt__json_get(&d, row, "path")->text;
        ckpt_err want = strcmp(status, "ok") == 0 ? CKPT_OK : strcmp(status, "FileNotFoundError") == 0 ? CKPT_NOT_FOUND
                      : strcmp(status, "FileExistsError") == 0 ? CKPT_EXISTS : CKPT_CORRUPT;
        const char *dir = util_temp_dir(), *to = util_join(util_temp_dir(), "out");
        for (const ckpt__json *o = ckpt__json_child(&d, objects); o != NULL; o = ckpt__json_next(&d, o)) {
            const char *slash = strchr(o->key, '/');
            if (slash != NULL) util_mkdir(util_fmt("%s/%.*s", dir, (int)(slash - o->key), o->key));
            util_write_text(util_join(dir, o->key), o->text);
        }
        bool there = ckpt__json_get(&d, row, "dest_exists")->i != 0;
        if (there) util_write_text(to, "old");
        // In a custom store, with the bucket as its top.
        bucket *b = bucket_new(NULL);
        for (const ckpt__json *o = ckpt__json_child(&d, objects); o != NULL; o = ckpt__json_next(&d, o))
            util_write_text(bucket_path(b, o->key), o->text);
        ckpt_uploader_desc ud;
        ckpt_uploader *u;
        memset(&ud, 0, sizeof ud);
        ud.store = b->store;
        ok(ckpt_uploader_open(&u, &ud));
        assert_int_equal(ckpt_download_file(u, path, to, ckpt__json_get(&d, row, "overwrite")->i != 0), want);
        ok(ckpt_uploader_close(u, 0));
        bucket_end(b);
        if (content->kind == CKPT__JSON_TEXT) assert_string_equal(util_read(to, NULL), content->text);
        else assert_false(util_exists(to));
        // By URI.
        (void)unlink(to);
        if (there) util_write_text(to, "old");
        ckpt_err e = ckpt_get_file(util_fmt("file://%s/%s", dir, path), to, ckpt__json_get(&d, row, "overwrite")->i != 0);
        assert_int_equal(e, want == CKPT_CORRUPT ? CKPT_NOT_FOUND : want);     // the ring is none, seen from the root
        if (content->kind == CKPT__JSON_TEXT) assert_string_equal(util_read(to, NULL), content->text);
        rows++;
    }
    assert_int_equal(rows, 11);
    ckpt__json_free(&d);
}

int main(void) {
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    util_clear_env();
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_by_name), cmocka_unit_test(test_load_by_own_uri), cmocka_unit_test(test_link_moves_on),
        cmocka_unit_test(test_compressed), cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_unheld),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_uri_above_the_bucket),
        cmocka_unit_test(test_uri_errors),
        cmocka_unit_test(test_tools_take_uris),
        cmocka_unit_test(test_get_file_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
