/* test_saver_remote.c: a saver's uploads: names, order of publication, rotation in stores, failures, recovery, resuming.
   run.sh: tsan */

#include "fault/faults.h"
#include <sys/time.h>
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "saver_util.h"
#include "bucket_util.h"

//-- a run with destinations -------------------------------------------------------

static ckpt_uploader *uploader_on(bucket *b, const char *staging) {
    ckpt_uploader_desc d;
    ckpt_uploader *u = NULL;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.upload_staging_folder = staging;
    d.num_attempts = 1;
    ok(ckpt_uploader_open(&u, &d));
    return u;
}

typedef struct remote_run {
    run           *r;
    bucket        *b;
    ckpt_uploader *u;
} remote_run;

// A run in `dir` with the bucket as a destination; names there are "run/ba<batch>.pt" and "run/latest.pt.symlink".
static remote_run remote_new(const char *dir, bucket *b) {
    remote_run m;
    m.r = run_new(dir);
    m.b = b;
    m.u = uploader_on(b, NULL);
    m.r->d.remote_file_name = "run/ba{batch}.pt";
    m.r->d.latest_remote_file_name = "run/latest.pt";
    ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(1, sizeof *list), false);
    list[0] = m.u;
    m.r->d.uploaders = list;
    m.r->d.uploaders_count = 1;
    return m;
}

static void remote_end(remote_run *m) {
    run_end(m->r);
    ok(ckpt_uploader_close(m->u, 0));
}

static void save_wait(remote_run *m, int64_t step) {
    run_save(m->r, step);
    ok(ckpt_saver_wait(m->r->s, 0));
}

// Saves with a store that answers only afterwards, so that no failure is met by the save itself.
static void save_held(remote_run *m, int64_t step) {
    bucket_hold(m->b, true);
    run_save(m->r, step);
    bucket_hold(m->b, false);
}

// An uploader that a saver sends with is not closed before the saver is: it says so, and goes on.
static void test_uploader_closed_first(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    ckpt_saver *second = NULL;
    ckpt_saver_desc d = m.r->d;
    d.folder = util_temp_dir();
    d.remote_file_name = "other/ba{batch}.pt";
    d.latest_remote_file_name = "other/latest.pt";
    run_open(m.r);
    ok(ckpt_saver_open(&second, &d));
    d.folder = m.r->dir;
    ckpt_saver *third = NULL;
    assert_int_equal(ckpt_saver_open(&third, &d), CKPT_EXISTS);         // and one that fails to open holds none
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_ARG);
        assert_non_null(strstr(ckpt_last_error(), i == 0 ? "2 savers that send with it are open" : "1 saver that sends with it is open"));
        if (i == 0) ok(ckpt_saver_close(second, 0));
    }
    save_wait(&m, 1);
    assert_string_equal(bucket_names(b), "run%ba1.pt run%latest.pt.symlink");
    remote_end(&m);
    bucket_end(b);
}

//-- Composer's tables -------------------------------------------------------------

// A name argument of CheckpointSaver: given, None, or its default.
static const char *layout_arg(const ckpt__json_doc *d, const ckpt__json *args, const char *key, const char *preset) {
    const ckpt__json *v = ckpt__json_get(d, args, key);
    if (v == NULL) return preset;
    return v->kind == CKPT__JSON_TEXT ? v->text : CKPT_NONE;
}

// What one save has put are the row's next uploads. Of a sharded one .metadata follows the file, where Composer puts it before.
static const ckpt__json *layout_puts(const ckpt__json_doc *d, const ckpt__json *up, bucket *b, const char *log) {
    char *calls = util_fmt("%s", log), *next = NULL;
    const ckpt__json *late = NULL;
    for (char *line = strtok_r(calls, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next)) {
        if (strncmp(line, "put ", 4) != 0) continue;
        const ckpt__json *now = late != NULL ? late : up;
        assert_non_null(now);
        up = late != NULL ? up : ckpt__json_next(d, up);
        late = NULL;
        if (strstr(line, "/__0_0.") != NULL) {
            late = now;
            assert_non_null(now = up);
            up = ckpt__json_next(d, up);
        }
        assert_string_equal(line + 4, cases_shard(field_text(d, now, "remote_name")));
        const char *text = field_text(d, now, "symlink_content");
        if (text != NULL) assert_string_equal(bucket_text(b, line + 4), text);
    }
    assert_null(late);
    return up;
}

// saver_layout.json: what is uploaded, under which names, in which order. Each save is waited for, so that the calls have one order.
static void layout_row(const ckpt__json_doc *d, const ckpt__json *row, ckpt_snapshot mode) {
    const ckpt__json *args = ckpt__json_get(d, row, "args"), *uploads = ckpt__json_get(d, row, "uploads"), *v;
    const char *dir = util_temp_dir(), *filename = field_text(d, args, "filename");
    assert_int_equal(chdir(dir), 0);
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(layout_arg(d, args, "folder", NULL), b);
    run *r = m.r;
    r->d.run_name = field_text(d, row, "run_name");
    r->d.filename = filename;
    r->d.latest_filename = layout_arg(d, args, "latest_filename", NULL);
    r->d.remote_file_name = layout_arg(d, args, "remote_file_name", "{run_name}/checkpoints/ep{epoch}-ba{batch}-rank{rank}.pt");
    r->d.latest_remote_file_name = layout_arg(d, args, "latest_remote_file_name", "{run_name}/checkpoints/latest-rank{rank}.pt");
    r->d.save_interval = field_text(d, args, "save_interval");
    r->d.overwrite = ckpt__json_get(d, args, "overwrite") != NULL;
    r->d.snapshot = mode;
    r->d.sharded_prefix_dir = field_text(d, row, "sharded_prefix_dir");
    r->d.sharded = r->d.sharded_prefix_dir != NULL;
    v = ckpt__json_get(d, args, "num_checkpoints_to_keep");
    if (v != NULL) r->d.num_checkpoints_to_keep = v->i < 0 ? CKPT_KEEP_ALL : v->i == 0 ? CKPT_KEEP_NONE : (int)v->i;
    const char *rank = field_text(d, ckpt__json_get(d, row, "env"), "RANK");
    if (rank != NULL && strcmp(rank, "0") != 0)
        r->d.ranks.rank = r->d.ranks.local_rank = 1, r->d.ranks.world_size = r->d.ranks.local_world_size = 2;
    run_open(r);
    const ckpt__json *up = uploads != NULL ? ckpt__json_child(d, uploads) : NULL;
    for (const ckpt__json *save = ckpt__json_child(d, ckpt__json_get(d, row, "saves")); save != NULL; save = ckpt__json_next(d, save)) {
        ckpt_timestamp t = at_batch(field_int(d, save, "batch"));
        t.epoch = field_int(d, save, "epoch");
        run_set(r, t.batch);
        size_t before = strlen(b->log);
        ok(ckpt_saver_save(r->s, &t));
        ok(ckpt_saver_fence(r->s));
        ok(ckpt_saver_wait(r->s, 0));
        up = layout_puts(d, up, b, b->log + before);
    }
    assert_null(up);
    remote_end(&m);
    bucket_end(b);
}

// Rows whose outcome differs on purpose (SPEC 10): two times in the folder, a latest that is the checkpoint's own name, a folder of shards
// that is the same at every time.
static bool layout_differs(const ckpt__json_doc *d, const ckpt__json *row) {
    const ckpt__json *args = ckpt__json_get(d, row, "args");
    const char *folder = field_text(d, args, "folder"), *filename = field_text(d, args, "filename");
    const char *latest = field_text(d, args, "latest_filename");
    const char *prefix = field_text(d, row, "sharded_prefix_dir");
    if (strcmp(field_text(d, row, "status"), "ok") != 0) return true;
    if (prefix != NULL && strchr(prefix, '{') == NULL) return true;
    if (folder != NULL && strstr(folder, "{epoch}") != NULL) return true;
    return filename != NULL && latest != NULL && strcmp(filename, latest) == 0;
}

static void test_layout_cases(void **state) {
    (void)state;
    ckpt__json_doc d = cases_json("saver_layout.json");
    int rows = 0, sharded = 0, differ = 0, of_two = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row)) {
        if (layout_of_two(&d, row)) {                                                           // test_crew.c has them
            of_two++;
        } else if (layout_differs(&d, row) || field_text(&d, row, "run_name")[0] == 0) {        // test_saver.c has what happens
            differ++;
        } else {
            layout_row(&d, row, modes[rows++ % 3]);
            if (field_text(&d, row, "sharded_prefix_dir") != NULL) sharded++;
        }
    }
    assert_int_equal(rows, 33);
    assert_true(sharded == 4 && differ == 11 && of_two == 3);
    ckpt__json_free(&d);
}

// A compression that nobody knows in a remote name is refused when the saver is opened.
static void test_remote_names_refused(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *const bad[][2] = { { "x{batch}.pt.unknown", NULL }, { NULL, "latest.pt.unknown" }, { "../x.pt", NULL }, { NULL, "a/../l" } };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        remote_run m = remote_new(util_temp_dir(), b);
        if (bad[i][0] != NULL) m.r->d.remote_file_name = bad[i][0];
        if (bad[i][1] != NULL) m.r->d.latest_remote_file_name = bad[i][1];
        assert_int_equal(ckpt_saver_open(&m.r->s, &m.r->d), i < 2 ? CKPT_UNSUPPORTED : CKPT_ARG);
        assert_null(m.r->s);
        ckpt_state_free(&m.r->st);
        ok(ckpt_uploader_close(m.u, 0));
    }
    bucket_end(b);
}

// trainer_save_folder.tsv: which bucket, which local folder, which names follow from a folder. Stores of all kinds are split the
// same way, though this build may not reach them. (Of the row with a '?' a saver says so: test_uri_folder_cut.)
static void test_trainer_save_folder(void **state) {
    (void)state;
    util_table t = cases_tsv("trainer_save_folder.tsv");
    ckpt_allocator a = { NULL, NULL };
    int rows = 0;
    for (int i = 0; i < t.rows; i++) {
        const char *folder = cases_text(&t, i, "save_folder"), *file = cases_text(&t, i, "save_filename");
        const char *latest = cases_get(&t, i, "save_latest_filename"), *backend = cases_text(&t, i, "backend");
        if (strncmp(folder, "gcs:", 4) == 0) continue;          // no store's name: refused
        if (strcmp(backend, "wandb") == 0) continue;            // Composer's savers refuse it; the project says which store it is
        if (strcmp(folder, "run#1") == 0) continue;             // repair 28: '#' is a letter of a local path
        ckpt__buf root, path, name, link;
        ckpt__buf_init(&root, &a);
        ckpt__buf_init(&path, &a);
        ckpt__buf_init(&name, &a);
        ckpt__buf_init(&link, &a);
        if (backend[0] != 0) {
            ok(ckpt__remote_split(folder, &root, &path));
            if (strcmp(backend, "dbfs") != 0 && strcmp(backend, "oci") != 0)
                assert_string_equal(ckpt__buf_cstr(&root), util_fmt("%s://%s", backend, cases_text(&t, i, "bucket")));
            const char *local = cases_text(&t, i, "local_folder");
            assert_string_equal(path.len > 0 ? path.data : ".", local + strlen("$TMP/"));
            ok(ckpt__remote_derive(&name, path.data, file));
            if (latest != NULL) ok(ckpt__remote_derive(&link, path.data, latest));
        } else {
            assert_false(ckpt__stores_is_uri(folder));
            ok(ckpt__remote_derive(&name, folder, file));
            if (latest != NULL) ok(ckpt__remote_derive(&link, folder, latest));
        }
        assert_string_equal(name.data, cases_text(&t, i, "remote_file_name"));
        if (latest != NULL) assert_string_equal(link.data, cases_text(&t, i, "latest_remote_file_name"));
        rows++;
        ckpt__buf_free(&root);
        ckpt__buf_free(&path);
        ckpt__buf_free(&name);
        ckpt__buf_free(&link);
    }
    assert_int_equal(rows, t.rows - 3);
}

//-- a folder that is a URI --------------------------------------------------------

static void test_uri_folder(void **state) {
    (void)state;
    for (int m = 0; m < 3; m++) {
        const char *here = util_temp_dir(), *far = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        run *r = run_new(util_fmt("file://%s/{run_name}/ckpt", far));
        r->d.snapshot = modes[m];
        r->d.num_checkpoints_to_keep = 1;
        run_open(r);
        for (int i = 1; i <= 3; i++) run_save(r, i);
        ok(ckpt_saver_wait(r->s, 0));
        assert_string_equal(names_in(util_fmt("%s/r/ckpt", far)), "ba1.pt ba2.pt ba3.pt latest.pt.symlink");
        assert_string_equal(util_read(util_fmt("%s/r/ckpt/latest.pt.symlink", far), NULL), util_fmt("%s/r/ckpt/ba3.pt", far + 1));
        assert_string_equal(names_in(util_fmt(".%s/r/ckpt", far)), "ba3.pt latest.pt");
        for (int i = 1; i <= 3; i++) check_file(util_fmt("%s/r/ckpt/ba%d.pt", far, i), i);
        check_file(util_fmt("file://%s/r/ckpt/latest.pt", far), 3);
        ckpt_saver_counts c;
        ckpt_saver_stats(r->s, &c);
        assert_int_equal(c.saved, 3);
        assert_int_equal(c.uploaded, 3);
        assert_int_equal(c.pending, 0);
        assert_int_equal(c.failed, 0);
        assert_true(c.uploaded_bytes == c.saved_bytes && c.requests >= 3 && c.waited_s > 0);
        ckpt_saver_stats(NULL, &c);
        assert_int_equal(c.saved, 0);
        run_end(r);
    }
}

// Two runs whose folders differ only behind a '?' or '#' would share one (Composer drops what stands there). What is filled in may have both.
static void test_uri_folder_cut(void **state) {
    (void)state;
    static const char *const ends[] = { "exp#1", "exp?lr=3", "exp#{run_name}", "#1", "exp?sv=1&sig=hunter2" };
    const char *here = util_temp_dir(), *far = util_temp_dir();
    assert_int_equal(chdir(here), 0);
    for (int i = 0; i < UTIL_COUNT(ends); i++) {
        const char *const uris[] = { util_fmt("file://%s/%s", far, ends[i]), util_fmt("s3://b/%s", ends[i]), util_fmt("azure://c/%s", ends[i]) };
        for (int k = 0; k < UTIL_COUNT(uris); k++) {
            run *r = run_new(uris[k]);
            assert_int_equal(ckpt_saver_open(&r->s, &r->d), CKPT_ARG);
            assert_non_null(strstr(ckpt_last_error(), util_fmt("has a '%c'", ends[i][strcspn(ends[i], "?#")])));
            ckpt_state_free(&r->st);
        }
    }
    assert_string_equal(util_list(far), "");
    assert_string_equal(util_list(here), "");
    run *r = run_new(util_fmt("file://%s/a%%23b/{run_name}", far));
    r->d.run_name = "x#1?2";
    run_open(r);
    run_save(r, 1);
    ok(ckpt_saver_wait(r->s, 0));
    assert_string_equal(names_in(util_fmt("%s/a#b/x#1?2", far)), "ba1.pt latest.pt.symlink");
    run_end(r);
}

// What a saver has put below its run's name, a load with the same template finds, whatever letters that has.
static void test_uri_folder_load(void **state) {
    (void)state;
    static const char *const names[] = { "50%off", "a%41", "aA", "x#1?2", "a/b c", "{rank}" };
    const char *here = util_temp_dir(), *far = util_temp_dir();
    assert_int_equal(chdir(here), 0);
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        run *r = run_new(util_fmt("file://%s/a%%23b/{run_name}", far));
        r->d.run_name = names[i];
        run_open(r);
        run_save(r, i + 1);
        run_end(r);
    }
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        run *r = run_new(".");
        ckpt_load_desc l;
        memset(&l, 0, sizeof l);
        l.load_path = util_fmt("file://%s/a%%23b/{run_name}/latest.pt", far);
        l.run_name = names[i];
        l.state = &r->st;
        if (ckpt_load(&l, NULL) != CKPT_OK) fail_msg("%s: %s", names[i], ckpt_last_error());
        run_check(r, i + 1);
        l.load_path = "azure://c/{epoch}/x.pt?sig=hunter2";
        assert_int_equal(ckpt_load(&l, NULL), CKPT_ARG);
        assert_null(strstr(ckpt_last_error(), "hunter2"));
        ckpt_state_free(&r->st);
    }
}

// A local link that cannot be moved is reported, and is no reason to keep the checkpoint from the store.
static void test_link_in_the_way(void **state) {
    (void)state;
    const char *here = util_temp_dir(), *far = util_temp_dir();
    assert_int_equal(chdir(here), 0);
    run *r = run_new(util_fmt("file://%s/run", far));
    run_open(r);
    util_mkdir(util_fmt(".%s/run/latest.pt", far));
    util_write_text(util_fmt(".%s/run/latest.pt/x", far), "x");
    ckpt_timestamp t = at_batch(1);
    run_set(r, 1);
    assert_int_not_equal(ckpt_saver_save(r->s, &t), CKPT_OK);
    assert_non_null(strstr(ckpt_last_error(), "latest.pt"));
    ok(ckpt_saver_wait(r->s, 0));
    check_file(util_fmt("%s/run/ba1.pt", far), 1);
    assert_int_not_equal(ckpt_saver_close(r->s, 0), CKPT_OK);
    ckpt_state_free(&r->st);
}

// All files of a folder, byte for byte.
static const char *bytes_in(const char *dir) {
    char *all = util_fmt("%s", util_list(dir)), *save = NULL, *out = util_fmt("%s", "");
    for (char *name = strtok_r(all, "\n", &save); name != NULL; name = strtok_r(NULL, "\n", &save)) {
        const char *path = util_join(dir, name);
        struct stat st;
        size_t size = 0;
        if (lstat(path, &st) != 0 || S_ISDIR(st.st_mode)) continue;
        const char *text = S_ISLNK(st.st_mode) ? util_link_target(path) : util_read(path, &size);
        if (S_ISLNK(st.st_mode)) size = strlen(text);
        out = util_fmt("%s%s %ld %08lx\n", out, name, (long)st.st_ino, (unsigned long)ckpt__digest_crc32(0, text, size));
    }
    return out;
}

static void await_uploads(const run *r, uint64_t uploaded) {
    ckpt_saver_counts c = { 0 };
    for (double end = ckpt__os_now() + 60; ckpt__os_now() < end;) {
        ckpt_saver_stats(r->s, &c);
        if (c.uploaded >= uploaded && c.pending == 0) return;
        usleep(1000);
    }
    fail_msg("%d are uploaded, %d are pending", (int)c.uploaded, (int)c.pending);
}

// An upload ends while the program is in another directory, where there may be a finished run of the same relative name: nothing
// there is touched, and what follows is done when the program is back, by a wait, a save, or the next process.
static void check_chdir(int keep, bool twin, int then) {
    const char *home = util_temp_dir(), *other = util_temp_dir();
    bucket *b = bucket_new(NULL), *far = bucket_new(NULL);
    assert_int_equal(chdir(other), 0);
    if (twin) {
        remote_run was = remote_new("run", far);
        run_open(was.r);
        for (int i = 1; i <= 2; i++) save_wait(&was, i);
        remote_end(&was);
        pin("run", "ba2.pt", true);
        assert_int_equal(link("run/ba2.pt", "run/ba3.pt"), 0);
    }
    assert_int_equal(chdir(home), 0);
    remote_run m = remote_new("run", b);
    m.r->d.num_checkpoints_to_keep = keep;
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    save_wait(&m, 1);
    if (keep == CKPT_KEEP_ALL) pin("run", "ba1.pt", true);
    bucket_hold(b, true);
    for (int i = 2; i <= 3; i++) run_save(m.r, i);
    assert_int_equal(chdir(other), 0);
    const char *before = twin ? bytes_in("run") : "";
    bucket_hold(b, false);
    await_uploads(m.r, 3);
    if (twin) assert_string_equal(bytes_in("run"), before);
    assert_string_equal(names_in("."), twin ? "run" : "");
    assert_true(bucket_has(b, "run/ba1.pt"));
    if (then == 2) remote_end(&m);                      // it ends without going back
    if (twin) assert_string_equal(bytes_in("run"), before);
    assert_int_equal(chdir(home), 0);
    int last = then == 1 ? 4 : 3;
    if (then == 2) {
        m = remote_new("run", b);
        m.r->d.num_checkpoints_to_keep = keep;
        m.r->d.num_remote_to_keep = 2;
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 3);
    }
    if (then == 1) save_wait(&m, 4);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_null(strstr(util_read(ledger_path("run"), NULL), "pending"));
    assert_null(strstr(util_read("run/.ckpt-index.jsonl", NULL), "pending"));
    const char *all = last == 4 ? "ba1.pt ba2.pt ba3.pt ba4.pt latest.pt" : "ba1.pt ba2.pt ba3.pt latest.pt";
    if (keep == CKPT_KEEP_ALL) assert_string_equal(names_in("run"), all);
    else if (then != 2) assert_string_equal(names_in("run"), "");
    if (keep == CKPT_KEEP_ALL) {
        ckpt_folder *f = look_into("run");
        ckpt_checkpoint e;
        ok(ckpt_folder_entry(f, at_name(f, "ba1.pt"), &e));
        assert_true(e.pinned);
        ckpt_folder_close(f);
    }
    if (then != 2) assert_int_equal(bucket_has(b, "run/ba1.pt"), keep == CKPT_KEEP_ALL);        // it was pinned
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), util_fmt("run/ba%d.pt", last));
    remote_end(&m);
    bucket_end(b);
    bucket_end(far);
}

static void test_chdir_while_uploading(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        for (int twin = 0; twin < 2; twin++) {
            for (int then = 0; then < 3; then++) check_chdir(keep == 0 ? CKPT_KEEP_ALL : CKPT_KEEP_NONE, twin != 0, then);
        }
    }
}

// The same when the folder itself has got another name, and another saver has opened one of its own name.
static void test_upload_ends_in_a_moved_folder(void **state) {
    (void)state;
    const char *here = util_temp_dir(), *dir = util_join(here, "run"), *old = util_join(here, "run.old");
    bucket *b = bucket_new(NULL), *far = bucket_new(NULL);
    remote_run m = remote_new(dir, b);
    ok(ckpt_uploader_close(m.u, 0));
    m.u = uploader_on(b, util_temp_dir());              // whose staged file does not move
    m.r->d.uploaders = &m.u;
    run_open(m.r);
    bucket_hold(b, true);
    run_save(m.r, 1);
    assert_int_equal(rename(dir, old), 0);
    remote_run now = remote_new(dir, far);
    run_open(now.r);
    for (int i = 1; i <= 2; i++) save_wait(&now, i);
    const char *before = bytes_in(dir);
    bucket_hold(b, false);
    await_uploads(m.r, 1);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bytes_in(dir), before);
    remote_end(&m);
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt latest.pt");
    save_wait(&now, 3);
    remote_end(&now);
    bucket_end(b);
    bucket_end(far);
}

// In "/" the folder of file:///x is /x itself: uploading each file over itself is refused.
static void test_uri_folder_is_itself(void **state) {
    (void)state;
    const char *far = util_temp_dir();
    assert_int_equal(chdir("/"), 0);
    run *r = run_new(util_fmt("file://%s/x", far));
    assert_int_equal(ckpt_saver_open(&r->s, &r->d), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "itself"));
    ckpt_state_free(&r->st);
}

// What is left of "file://$FOLDER" without the variable is not the root of all folders.
static void test_uri_folder_is_nothing(void **state) {
    (void)state;
    assert_int_equal(chdir(util_temp_dir()), 0);
    run *r = run_new("file://");
    assert_int_equal(ckpt_saver_open(&r->s, &r->d), CKPT_ARG);
    expect_sentence("'file://' names no folder");
    ckpt_state_free(&r->st);
}

// Rights often end at a folder of the store, so the trial is made in the one that all checkpoints lie in, and not at the top.
static void test_trial_is_in_the_folder(void **state) {
    (void)state;
    static const struct { const char *filename, *folder; } rows[] = {
        { "ba{batch}.pt",            "r/ckpt/" },
        { "deep/e{epoch}/{batch}.pt", "r/ckpt/deep/" },
        { "2{batch}/x.pt",           "r/ckpt/" },           // the digit before it is no folder
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *here = util_temp_dir(), *far = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        run *r = run_new(util_fmt("file://%s/{run_name}/ckpt", far));
        r->d.filename = rows[i].filename;
        util_write_text(util_fmt("%s/r", far), "a file where the folder should be");
        assert_int_not_equal(ckpt_saver_open(&r->s, &r->d), CKPT_OK);
        const char *says = util_fmt("refuses a trial, file://%s/%s.credentials_validated_successfully: ", far, rows[i].folder);
        if (strstr(ckpt_last_error(), says) == NULL) fail_msg("%s\n%s", says, ckpt_last_error());
        assert_int_equal(unlink(util_fmt("%s/r", far)), 0);
        run_open(r);
        assert_string_equal(names_in(util_fmt("%s/%s", far, rows[i].folder)), "");
        run_end(r);
    }
}

static void test_two_destinations(void **state) {
    (void)state;
    bucket *a = bucket_new(NULL), *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), a);
    ckpt_uploader *list[3] = { m.u, uploader_on(b, util_temp_dir()), m.u };     // one of them twice
    m.r->d.uploaders = list;
    m.r->d.uploaders_count = 3;
    run_open(m.r);
    for (int i = 1; i <= 2; i++) save_wait(&m, i);
    remote_end(&m);
    ok(ckpt_uploader_close(list[1], 0));
    assert_string_equal(bucket_names(a), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
    assert_int_equal(bucket_count(a, "put run/ba"), 2);
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba2.pt");
    bucket_end(a);
    bucket_end(b);
}

// The uploader's own format stands around the names, and what the link says is the object's real name.
static void test_file_path_format(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.file_path_format_string = "lab/{remote_file_name}";
    ckpt_uploader *u;
    ok(ckpt_uploader_open(&u, &d));
    m.r->d.uploaders = &u;
    run_open(m.r);
    save_wait(&m, 7);
    run_end(m.r);
    assert_string_equal(bucket_names(b), "lab%run%ba7.pt lab%run%latest.pt.symlink");
    assert_string_equal(bucket_text(b, "lab/run/latest.pt.symlink"), "lab/run/ba7.pt");
    // A machine that has nothing.
    m.r = run_new(util_temp_dir());
    m.r->d.remote_file_name = "run/ba{batch}.pt";
    m.r->d.latest_remote_file_name = "run/latest.pt";
    m.r->d.uploaders = &u;
    m.r->d.uploaders_count = 1;
    ckpt_timestamp t;
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 7);
    run_end(m.r);
    ok(ckpt_uploader_close(u, 0));
    ok(ckpt_uploader_close(m.u, 0));
    bucket_end(b);
}

// Names with "//" and "./", of whatever they come: they are cleaned, and found again: by the link, by a listing, by rotation after a
// restart, and on a machine that has nothing.
static remote_run unclean_new(const char *dir, bucket *b, const char *const row[4]) {
    remote_run m = remote_new(dir, b);
    ckpt_uploader_desc u;
    memset(&u, 0, sizeof u);
    u.store = b->store;
    u.run_name = row[0];
    u.file_path_format_string = row[1];
    ok(ckpt_uploader_close(m.u, 0));
    ok(ckpt_uploader_open(&m.u, &u));
    ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(1, sizeof *list), false);
    list[0] = m.u;
    m.r->d.uploaders = list;
    m.r->d.run_name = row[0];
    m.r->d.filename = row[2];
    m.r->d.remote_file_name = row[3];
    m.r->d.latest_remote_file_name = "latest.pt";
    m.r->d.num_remote_to_keep = m.r->d.num_checkpoints_to_keep = 2;
    return m;
}

static void test_unclean_names(void **state) {
    (void)state;
    static const char *const rows[][4] = {
        { "exp1/", NULL, "ba{batch}.pt", "{run_name}/ba{batch}.pt" }, { "./exp1", NULL, "./ba{batch}.pt", "{run_name}/ba{batch}.pt" },
        { "a//b", NULL, "x//ba{batch}.pt", "{run_name}/ba{batch}.pt" }, { "r", NULL, "ba{batch}.pt", "x//./ba{batch}.pt" },
        { "r", "q//{remote_file_name}", "ba{batch}.pt", "ba{batch}.pt" }, { "r/", "./{run_name}/{remote_file_name}", "ba{batch}.pt", "ba{batch}.pt" },
    };
    static const char *const at[] = { "exp1", "exp1", "a/b", "x", "q", "r" }, *const link[] = { "", "", "", "", "q/", "r/" };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        ckpt_timestamp t;
        for (int k = 0; k < 5; k++) {           // on the first machine; again; on two that have nothing; on one that knows of files alone
            remote_run m = unclean_new(k == 0 || k == 1 || k == 4 ? dir : util_temp_dir(), b, rows[i]);
            if (k == 3) ok(ckpt__os_remove(bucket_path(b, util_fmt("%slatest.pt.symlink", link[i]))));
            if (k == 4) {
                ok(ckpt__os_remove(util_fmt("%s/.ckpt-index.jsonl", dir)));
                ok(ckpt_saver_open(&m.r->s, &m.r->d));
                assert_int_equal(m.r->s->index.count, 2);
                t = at_batch(1);
                assert_int_equal(ckpt_saver_save(m.r->s, &t), CKPT_EXISTS);     // it did not resume
                assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_EXISTS);
                ckpt_state_free(&m.r->st);
                ok(ckpt_uploader_close(m.u, 0));
                break;
            }
            run_open(m.r);
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), k > 0 ? CKPT_OK : CKPT_NOT_FOUND);
            run_check(m.r, 3 * k);
            for (int j = 1; j <= 3; j++) save_wait(&m, 3 * k + j);
            ok(ckpt_saver_wait(m.r->s, 0));
            assert_string_equal(bucket_text(b, util_fmt("%slatest.pt.symlink", link[i])), util_fmt("%s/ba%d.pt", at[i], 3 * k + 3));
            for (int n = 1; n <= 3 * k + 3; n++)
                assert_int_equal(ckpt__os_exists(bucket_path(b, util_fmt("%s/ba%d.pt", at[i], n))), n > 3 * k + 1);
            remote_end(&m);
        }
        bucket_end(b);
    }
    // What an uploader makes of a name must be one that resume can take.
    static const char *const bad[] = { "r", ".ckpt-x/{remote_file_name}", "ba{batch}.pt", "ba{batch}.pt" };
    bucket *b = bucket_new(NULL);
    remote_run m = unclean_new(util_temp_dir(), b, bad);
    assert_int_equal(ckpt_saver_open(&m.r->s, &m.r->d), CKPT_ARG);
    ckpt_state_free(&m.r->st);
    ok(ckpt_uploader_close(m.u, 0));
    bucket_end(b);
}

// A saver that fails to open when it has handed over what was left: the caller's uploader goes on, and the next saver knows of it.
static void test_open_fails_after_handing_over(void **state) {
    (void)state;
    for (int held = 0; held < 2; held++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(1, sizeof *list), false);
        char text[8] = "fine";
        run_open(m.r);
        bucket_fail(b, "put", CKPT_NET, -1);
        bucket_hold(b, true);           // until both are saved: the second save might tell of the first one's upload
        for (int i = 1; i <= 2; i++) run_save(m.r, i);
        bucket_hold(b, false);
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
        (void)!ckpt_uploader_close(m.u, 0);
        int failed = bucket_count(b, "put run/ba");
        bucket_fail(b, NULL, CKPT_OK, 0);
        util_remove_tree(util_join(m.r->dir, ".ckpt-staging"));
        assert_int_equal(unlink(ledger_path(m.r->dir)), 0);
        m.u = list[0] = uploader_on(b, NULL);
        m.r->d.uploaders = list;
        ckpt_bind_text(&m.r->st, "state/note", text, sizeof text);
        bucket_hold(b, held == 1);
        text[0] = '\xff';
        assert_int_equal(ckpt_saver_open(&m.r->s, &m.r->d), CKPT_ARG);
        text[0] = 'f';
        run_open(m.r);
        bucket_hold(b, false);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
        if (held == 1) assert_int_equal(bucket_count(b, "put run/ba"), failed + 2);
        save_wait(&m, 3);
        remote_end(&m);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba3.pt");
        bucket_end(b);
    }
}

// Two savers that are open cannot publish one link in one store: each would move it back to what it saved itself.
static void test_latest_of_two_savers(void **state) {
    (void)state;
    static const struct { const char *one, *two; ckpt_err e; } rows[] = {
        { "run/latest.pt", "run/latest.pt", CKPT_EXISTS }, { "run/latest.pt", "/{run_name}/latest.pt", CKPT_EXISTS },
        { "run/latest.pt", "run/latest-2.pt", CKPT_OK }, { "run/latest.pt", CKPT_NONE, CKPT_OK }, { CKPT_NONE, CKPT_NONE, CKPT_OK },
        { "run/{batch}.pt", "run/{batch}.pt", CKPT_EXISTS }, { "run/{batch}.pt", "run/{epoch}.pt", CKPT_OK },
        { "run/1.pt", "run/{batch}.pt", CKPT_OK }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        run *two = run_new(util_temp_dir());
        m.r->d.latest_remote_file_name = rows[i].one;
        two->d = m.r->d;
        two->d.folder = two->dir;
        two->d.run_name = "run";
        two->d.state = &two->st;
        two->d.remote_file_name = "run/two{batch}.pt";
        two->d.latest_remote_file_name = rows[i].two;
        run_open(m.r);
        assert_int_equal(ckpt_saver_open(&two->s, &two->d), rows[i].e);
        if (rows[i].e != CKPT_OK) {
            if (strstr(ckpt_last_error(), "another saver") == NULL) fail_msg("%s", ckpt_last_error());
            assert_null(two->s);
            save_wait(&m, 1);
            ok(ckpt_saver_close(m.r->s, 0));
            run_open(two);              // the first one is not there any more
            run_save(two, 2);
            ok(ckpt_saver_close(two->s, 0));
            run_open(m.r);              // nor is the second
        } else {
            ok(ckpt_saver_close(two->s, 0));
        }
        ckpt_state_free(&two->st);
        remote_end(&m);
        bucket_end(b);
    }
}

//-- order, and who waits ----------------------------------------------------------

// No saving call waits for the network: with a store that does not answer, saves go on, and nothing is published.
static void test_calls_do_not_wait(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        m.r->d.snapshot = modes[k];
        m.r->d.num_checkpoints_to_keep = 1;
        run_open(m.r);
        bucket_hold(b, true);
        for (int i = 1; i <= 4; i++) {
            ckpt_timestamp t = at_batch(i);
            run_set(m.r, i);
            ok(ckpt_saver_batch_end(m.r->s, &t));
            ok(ckpt_saver_fence(m.r->s));
        }
        assert_int_equal(ckpt_saver_wait(m.r->s, 0.05), CKPT_TIMEOUT);
        assert_string_equal(bucket_names(b), "");
        ckpt_saver_counts c;
        ckpt_saver_stats(m.r->s, &c);
        for (int i = 0; i < 60000 && c.pending < 4; i++, ckpt_saver_stats(m.r->s, &c)) usleep(1000);     // of a busy machine
        assert_int_equal(c.pending, 4);
        assert_int_equal(ckpt_saver_close(m.r->s, 0.05), CKPT_TIMEOUT);     // still open
        bucket_hold(b, false);
        ok(ckpt_saver_wait(m.r->s, 0));
        // Rotation deleted the files long before they were sent.
        assert_string_equal(names_in(m.r->dir), "ba4.pt latest.pt");
        assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%ba3.pt run%ba4.pt run%latest.pt.symlink");
        for (int i = 1; i <= 4; i++) check_file(bucket_path(b, util_fmt("run/ba%d.pt", i)), i);
        remote_end(&m);
        bucket_end(b);
    }
}

// The link appears only when its checkpoint is there, and never goes back, with several uploads at a time.
static void *watch_link(void *arg) {
    bucket *b = (bucket *)arg;
    char path[4096], text[256];
    intptr_t newest = 0, wrong = 0;
    (void)snprintf(path, sizeof path, "%s/run%%latest.pt.symlink", b->dir);
    for (;;) {
        pthread_mutex_lock(&b->lock);
        bool over = b->fail != NULL;
        pthread_mutex_unlock(&b->lock);
        FILE *f = fopen(path, "rb");
        if (f != NULL) {
            size_t n = fread(text, 1, sizeof text - 1, f);
            text[n] = 0;
            fclose(f);
            intptr_t batch = n > 6 ? atoi(text + 6) : -1;
            char object[4096];
            (void)snprintf(object, sizeof object, "%s/run%%ba%d.pt", b->dir, (int)batch);
            if (batch < newest || access(object, F_OK) != 0) wrong++;
            newest = batch;
        }
        if (over) return (void *)wrong;
        usleep(200);
    }
}

static void test_publication_order(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.num_concurrent_uploads = 4;
    ckpt_uploader *u;
    ok(ckpt_uploader_open(&u, &d));
    m.r->d.uploaders = &u;
    m.r->d.snapshot = CKPT_SNAPSHOT_COPY;
    b->slow = 0.002;
    pthread_t watcher;
    void *wrong;
    assert_int_equal(pthread_create(&watcher, NULL, watch_link, b), 0);
    run_open(m.r);
    for (int i = 1; i <= 30; i++) run_save(m.r, i);
    ok(ckpt_saver_wait(m.r->s, 0));
    bucket_fail(b, "never", CKPT_IO, 0);
    pthread_join(watcher, &wrong);
    assert_null(wrong);
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba30.pt");
    run_end(m.r);
    ok(ckpt_uploader_close(u, 0));
    ok(ckpt_uploader_close(m.u, 0));
    bucket_end(b);
}

// The store's latest goes on where the local folder does not know how far it was: nothing is kept here and the process has not
// resumed, or the folder is new and only the staging folder is the old one.
static void test_publication_goes_on(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *staging = util_temp_dir();
        for (int process = 0; process < 3; process++) {
            remote_run m = remote_new(dir, b);
            if (k > 0) {
                ok(ckpt_uploader_close(m.u, 0));
                m.u = uploader_on(b, staging);
                *(ckpt_uploader **)(uintptr_t)m.r->d.uploaders = m.u;
            }
            if (k == 0) m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
            run_open(m.r);
            for (int i = 1; i <= 4 - process; i++) save_wait(&m, process * 10 + i);
            remote_end(&m);
            assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), util_fmt("run/ba%d.pt", process * 10 + 4 - process));
            if (k > 0) {
                util_remove_tree(dir);
                util_mkdir(dir);
            }
            if (k == 2) {                               // the bucket as well
                bucket_end(b);
                b = bucket_new(NULL);
            }
        }
        remote_run m = remote_new(dir, b);
        ckpt_timestamp t;
        run_open(m.r);
        if (k < 2) {
            ok(ckpt_saver_resume(m.r->s, &t));
            run_check(m.r, 22);
        }
        remote_end(&m);
        bucket_end(b);
    }
}

// An idle event costs nanoseconds with destinations too. On a busy machine it may take many rounds until nobody else has the processor.
static void test_idle_events(void **state) {
    (void)state;
    enum { ROUND = 1000 };
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.save_interval = "1000000ba";
    run_open(m.r);
    ckpt_timestamp t = at_batch(1);
    ok(ckpt_saver_batch_end(m.r->s, &t));
    double each = 1, until = ckpt__os_now() + 60;
    for (int i = 1; i < 20 * ROUND || (each >= 20e-6 && i < 900 * ROUND && ckpt__os_now() < until);) {
        double begin = ckpt__os_now();
        for (int end = i + ROUND; i < end; i++) {
            t.batch = t.batch_in_epoch = i + 1;
            ok(ckpt_saver_batch_end(m.r->s, &t));
        }
        double took = (ckpt__os_now() - begin) / ROUND;
        if (took < each) each = took;
    }
    assert_true(each < 20e-6);          // a sanitizer's build; the plain one takes a hundredth of it
    remote_end(&m);
    bucket_end(b);
}

// A big snapshot leaves in parts while its file is being written. What arrives is the file; nothing arrives when there is none.
enum { BIG = 6 << 20 };

static void test_early_parts(void **state) {
    (void)state;
    float *big = (float *)util_keep(calloc(BIG, sizeof *big), false);
    for (int k = 1; k < 3; k++) {
        const char *here = util_temp_dir(), *far = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_fmt("file://%s/x", far), b);        // a store with parts, and one without
        run *r = m.r;
        ckpt_bind_f32(&r->st, "state/model/big", big, BIG);
        r->d.remote_file_name = util_fmt("%s/run/ba{batch}.pt", far + 1);           // the bucket of file:// is the root
        r->d.latest_remote_file_name = util_fmt("%s/run/latest.pt", far + 1);
        r->d.snapshot = modes[k];
        r->d.num_checkpoints_to_keep = 1;
        run_open(r);
        for (int i = 1; i <= 3; i++) {
            for (int n = 0; n < BIG; n += 1000) big[n] = (float)(i * 3 + n % 7);
            run_save(r, i);
        }
        ok(ckpt_saver_wait(r->s, 0));
        assert_string_equal(names_in(util_fmt("%s/run", far)), "ba1.pt ba2.pt ba3.pt latest.pt.symlink");
        for (int i = 1; i <= 3; i++) {
            ok(ckpt_verify(util_fmt("%s/run/ba%d.pt", far, i), NULL));
            ok(ckpt_verify(bucket_path(b, util_fmt("%s/run/ba%d.pt", far + 1, i)), NULL));
        }
        size_t size[2];
        char *a = util_read(util_fmt("%s/run/ba3.pt", far), &size[0]), *c = util_read(util_fmt(".%s/x/ba3.pt", far), &size[1]);
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(a, c, size[0]);
        // A folder where the file belongs: it is not saved, and so not uploaded.
        util_mkdir(util_fmt(".%s/x/ba4.pt", far));
        ckpt_timestamp t = at_batch(4);
        ckpt_err e = ckpt_saver_save(r->s, &t);
        ok(ckpt_saver_fence(r->s));
        assert_int_equal(e != CKPT_OK ? e : ckpt_saver_wait(r->s, 0), CKPT_EXISTS);
        ok(ckpt_saver_wait(r->s, 0));
        assert_false(util_exists(util_fmt("%s/run/ba4.pt", far)));
        assert_false(bucket_has(b, util_fmt("%s/run/ba4.pt", far + 1)));
        run_save(r, 5);
        ok(ckpt_saver_wait(r->s, 0));
        assert_string_equal(names_in(util_fmt("%s/run", far)), "ba1.pt ba2.pt ba3.pt ba5.pt latest.pt.symlink");
        assert_int_equal(ckpt_saver_close(r->s, 0), CKPT_EXISTS);
        ckpt_state_free(&r->st);
        ok(ckpt_uploader_close(m.u, 0));
        bucket_end(b);
    }
}

static bucket *removing_from;
static int     writes;                  // armed for the next one

// A checkpoint is being written: meanwhile the one before it gets there, and the one that had its name is to go.
static void remove_meanwhile(const char *name, const char *path, int fd) {
    (void)path, (void)fd;
    if (strcmp(name, "pwrite") != 0 || __atomic_exchange_n(&writes, 0, __ATOMIC_SEQ_CST) == 0) return;
    bucket_hold_only(removing_from, "remove run/ba1.pt");
    for (int i = 0; i < 60000 && bucket_count(removing_from, "put run/ba2") == 0; i++) usleep(1000);
    for (int i = 0; i < 60000 && bucket_waiting(removing_from) == 0; i++) usleep(1000);
}

static bool is_writing(run *r) {
    ckpt__saver_shared *sh = r->s->shared;
    ckpt__os_mutex_lock(&sh->lock);
    bool busy = sh->has_next || sh->busy;
    ckpt__os_mutex_unlock(&sh->lock);
    return busy;
}

// A save that has the name of an old one, which rotation lets go while the new one is being written: the new one is there in the end.
static void test_removed_while_written(void **state) {
    (void)state;
    float *big = (float *)util_keep(calloc(BIG, sizeof *big), false);
    bucket *b = removing_from = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    ckpt_bind_f32(&m.r->st, "state/model/big", big, BIG);
    m.r->d.snapshot = CKPT_SNAPSHOT_COPY;
    m.r->d.overwrite = true;
    m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    save_wait(&m, 1);
    bucket_hold_only(b, "run/ba2");
    run_save(m.r, 2);
    while (is_writing(m.r) || bucket_waiting(b) == 0) usleep(1000);
    writes = 1;
    __atomic_store_n(&fault_watch, remove_meanwhile, __ATOMIC_SEQ_CST);
    run_save(m.r, 1);
    while (is_writing(m.r)) usleep(1000);
    __atomic_store_n(&fault_watch, NULL, __ATOMIC_SEQ_CST);
    assert_int_equal(bucket_waiting(b), 1);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba1.pt run%latest.pt.symlink");
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1.pt");
    remote_end(&m);
    bucket_end(b);
}

//-- failures ----------------------------------------------------------------------

static void test_failure_is_reported_once(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        m.r->d.snapshot = modes[k];
        m.r->d.save_interval = "1000000ba";
        run_open(m.r);
        save_wait(&m, 1);
        bucket_fail(b, "put run/ba2.pt", CKPT_AUTH, -1);
        bucket_hold(b, true);
        run_save(m.r, 2);
        bucket_hold(b, false);
        ckpt_err e = CKPT_OK;
        for (int i = 0; e == CKPT_OK && i < 60000; i++) {
            ckpt_timestamp t = at_batch(2);
            e = ckpt_saver_batch_end(m.r->s, &t);       // nothing is due: the report alone
            usleep(1000);
        }
        assert_int_equal(e, CKPT_AUTH);
        assert_non_null(strstr(ckpt_last_error(), "run/ba2.pt"));
        save_wait(&m, 3);                               // reported once, and training goes on
        assert_string_equal(bucket_names(b), "run%ba1.pt run%ba3.pt run%latest.pt.symlink");
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba3.pt");
        assert_string_equal(names_in(m.r->dir), "ba1.pt ba2.pt ba3.pt latest.pt");
        ckpt_saver_counts c;
        ckpt_saver_stats(m.r->s, &c);
        assert_int_equal(c.failed, 1);
        assert_int_equal(c.uploaded, 2);
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_AUTH);       // the first failure ever
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_AUTH);
        // The next process uploads what was left, and the link stays with the newest.
        bucket_fail(b, NULL, CKPT_OK, 0);
        remote_run again = remote_new(m.r->dir, b);
        run_open(again.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(again.r->s, &t));
        run_check(again.r, 3);
        ok(ckpt_saver_wait(again.r->s, 0));
        assert_true(bucket_has(b, "run/ba2.pt"));
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba3.pt");
        remote_end(&again);
        bucket_end(b);
    }
}

// A failed upload's staged file is there until a newer one is safe: parts of a checkpoint that is not saved in the end cost nothing.
static void test_failed_upload_outlives_a_failed_save(void **state) {
    (void)state;
    float *big = (float *)util_keep(calloc(BIG, sizeof *big), false);
    const char *here = util_temp_dir(), *far = util_temp_dir(), *object = util_fmt("%s/run/model.pt", far);
    const char *staging = util_fmt("%s/%s/x/.ckpt-staging", here, far + 1);
    assert_int_equal(chdir(here), 0);
    run *r = NULL;
    for (int k = 0; k < 2; k++) {                       // the process that fails, and the next
        r = run_new(util_fmt("file://%s/x", far));
        ckpt_bind_f32(&r->st, "state/model/big", big, BIG);
        r->d.remote_file_name = util_fmt("%s/run/model.pt", far + 1);
        r->d.latest_remote_file_name = CKPT_NONE;
        r->d.snapshot = CKPT_SNAPSHOT_COPY;
        r->d.overwrite = true;
        r->d.num_attempts = 1;
        if (k == 1) break;
        util_mkdir(util_fmt("%s/run", far));
        util_mkdir(object);                             // a folder is in the object's way
        run_open(r);
        run_set(r, 1);
        ckpt_timestamp t = at_batch(1);
        ckpt_err e = ckpt_saver_save(r->s, &t);                     // may meet the failure itself
        if (e == CKPT_OK) e = ckpt_saver_wait(r->s, 0);
        assert_true(e == CKPT_EXISTS || e == CKPT_IO);
        util_remove_tree(object);
        util_mkdir(util_fmt("%s/%s/x/ba2.pt", here, far + 1));      // and one in the file's
        t = at_batch(2);
        ckpt_err second = ckpt_saver_save(r->s, &t);
        assert_int_equal(second != CKPT_OK ? second : ckpt_saver_wait(r->s, 0), CKPT_EXISTS);
        assert_false(util_exists(object));
        assert_non_null(util_staged(staging));
        assert_int_equal(ckpt_saver_close(r->s, 0), e);
        ckpt_state_free(&r->st);
    }
    run_open(r);
    ok(ckpt_saver_wait(r->s, 0));
    ok(ckpt_verify(object, NULL));
    assert_null(util_staged(staging));
    run_end(r);
}

// The same through folder's own uploader, which the saver asks for its failures.
static void test_own_failure_is_reported_once(void **state) {
    (void)state;
    const char *here = util_temp_dir(), *dir = util_temp_dir();
    assert_int_equal(chdir(here), 0);
    run *r = run_new(util_fmt("file://%s/x", dir));
    run_open(r);
    run_save(r, 1);
    ok(ckpt_saver_wait(r->s, 0));
    util_mkdir(util_fmt("%s/x/ba2.pt", dir));               // a folder is in the way
    ckpt_timestamp t = at_batch(2);
    run_set(r, 2);
    ckpt_err e = ckpt_saver_save(r->s, &t);
    if (e == CKPT_OK) e = ckpt_saver_wait(r->s, 0);
    assert_true(e == CKPT_EXISTS || e == CKPT_IO);
    ok(ckpt_saver_wait(r->s, 0));
    run_save(r, 3);
    ok(ckpt_saver_wait(r->s, 0));
    assert_string_equal(util_read(util_fmt("%s/x/latest.pt.symlink", dir), NULL), util_fmt("%s/x/ba3.pt", dir + 1));
    assert_int_equal(ckpt_saver_close(r->s, 0), e);
    ckpt_state_free(&r->st);
}

// In the folder `here`, with the store at `folder` or none: goes on from `from` and saves at `to`; 0: neither. Its log.
static const char *go_on_in(const char *here, const char *folder, int from, int to) {
    ckpt_timestamp t;
    assert_int_equal(chdir(here), 0);
    run *r = run_new(folder);
    run_open(r);
    if (from > 0) ok(ckpt_saver_resume(r->s, &t));
    if (from > 0) assert_int_equal(t.batch, from);
    if (to > 0) run_save(r, to);
    run_end(r);
    return r->log;
}

// A machine that went on without the store comes back with a later step than what another has put since: it says so.
static void test_overtaken_is_told(void **state) {
    (void)state;
    const char *one = util_temp_dir(), *other = util_temp_dir(), *far = util_temp_dir(), *uri = util_fmt("file://%s/run", far);
    (void)go_on_in(one, uri, 0, 2);
    assert_null(strstr(go_on_in(other, uri, 2, 0), "two histories"));
    (void)go_on_in(other, util_fmt("%s/run", far + 1), 2, 4);
    assert_null(strstr(go_on_in(one, uri, 2, 3), "two histories"));
    struct timeval later[2] = { { time(NULL) + 100, 0 }, { time(NULL) + 100, 0 } };
    assert_int_equal(utimes(util_fmt("%s/run/ba3.pt", far), later), 0);
    assert_non_null(strstr(go_on_in(other, uri, 4, 0), "/run/ba3.pt, which the latest there leads to, was put by another machine after ba4.pt"));
    assert_null(strstr(go_on_in(other, uri, 4, 0), "two histories"));
}

// A rank's object that had come and is not there any more is no failure to the uploader that has looked for it: wait tells of it all the
// same, though it is folder's own.
static void test_own_object_is_gone(void **state) {
    (void)state;
    assert_int_equal(chdir(util_temp_dir()), 0);
    run *r = run_new(util_fmt("file://%s/x", util_temp_dir()));
    ckpt__saver_flight f;
    memset(&f, 0, sizeof f);
    run_open(r);
    f.object = util_fmt("x/ba1/__0_0.pt");
    ckpt__saver_look_for(r->s, &f);
    assert_int_equal(ckpt_saver_wait(r->s, 0), CKPT_NOT_FOUND);
    assert_int_equal(f.state, CKPT__PART_FAILED);
    ok(ckpt_saver_wait(r->s, 0));
    assert_int_equal(ckpt_saver_close(r->s, 0), CKPT_NOT_FOUND);
    ckpt_state_free(&r->st);
}

// A save and an upload that fail together are both told by the next two events, though nothing is due.
static void test_two_failures_at_once(void **state) {
    (void)state;
    const char *here = util_temp_dir(), *far = util_temp_dir();
    assert_int_equal(chdir(here), 0);
    run *r = run_new(util_fmt("file://%s/x", far));
    r->d.snapshot = CKPT_SNAPSHOT_LAZY;
    r->d.save_interval = "1000000ba";
    r->d.num_attempts = 1;
    r->d.overwrite = true;
    run_open(r);
    run_save(r, 1);
    ok(ckpt_saver_wait(r->s, 0));
    util_mkdir(util_fmt("%s/x/ba2.pt", far));               // a folder is in the object's way
    util_mkdir(util_fmt("%s/%s/x/ba3.pt", here, far + 1));  // and one in the file's
    ckpt__saver_enter(r->s);                                // the upload begins when both calls have returned
    run_save(r, 2);
    ckpt_timestamp t = at_batch(3);
    ok(ckpt_saver_save(r->s, &t));
    ckpt__saver_leave(r->s);
    ckpt_saver_counts c;
    bool both = false;
    for (int i = 0; !both && i < 60000; i++) {
        usleep(1000);
        ckpt_saver_stats(r->s, &c);
        ckpt__os_mutex_lock(&r->s->shared->lock);
        both = c.failed == 1 && c.pending == 0 && r->s->shared->unreported.code != CKPT_OK;
        ckpt__os_mutex_unlock(&r->s->shared->lock);
    }
    assert_true(both);
    assert_int_not_equal(ckpt_saver_batch_end(r->s, &t), CKPT_OK);
    assert_non_null(strstr(ckpt_last_error(), "ba3.pt"));
    assert_int_not_equal(ckpt_saver_batch_end(r->s, &t), CKPT_OK);
    assert_non_null(strstr(ckpt_last_error(), "ba2.pt"));
    ok(ckpt_saver_batch_end(r->s, &t));
    assert_int_not_equal(ckpt_saver_close(r->s, 0), CKPT_OK);
    ckpt_state_free(&r->st);
}

// An upload that fails with CKPT_TIMEOUT is a failure and no time that is up: close frees the saver, and says CKPT_NET.
static ckpt_err stalls(ckpt_store *s, const ckpt__store_put *p) {
    (void)s;
    (void)p;
    return ckpt__error_set(CKPT_TIMEOUT, "not a byte in a minute");
}

static void test_stalled_upload(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    bucket_fail(b, "put run/ba1.pt", CKPT_TIMEOUT, -1);
    ckpt_timestamp t = at_batch(1);
    ckpt_err e = ckpt_saver_save(m.r->s, &t);                           // may meet the failure itself
    assert_true(e == CKPT_OK || e == CKPT_TIMEOUT);
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
    assert_non_null(strstr(ckpt_last_error(), "the test says so"));
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_TIMEOUT);        // which is freed in any case
    bucket_end(b);
    // The same through folder's own uploader.
    const char *dir = util_temp_dir();
    assert_int_equal(chdir(util_temp_dir()), 0);
    for (int limit = 0; limit < 2; limit++) {
        run *r = run_new(util_fmt("file://%s/x%d", dir, limit));
        r->d.num_attempts = 1;
        run_open(r);
        ckpt__store_table table = *r->s->remotes[0].store->table;
        table.put = stalls;
        r->s->remotes[0].store->table = &table;
        e = ckpt_saver_save(r->s, &t);
        assert_true(e == CKPT_OK || e == CKPT_TIMEOUT);
        assert_int_equal(ckpt_saver_close(r->s, limit * 1000), CKPT_NET);
        assert_non_null(strstr(ckpt_last_error(), "not a byte in a minute"));
        ckpt_state_free(&r->st);
    }
}

// overwrite off: an object of that name that is not this run's is left alone.
static void test_overwrite(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    util_write_text(bucket_path(b, "run/ba5.pt"), "somebody's");
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    bucket_hold(b, true);
    run_save(m.r, 5);
    bucket_hold(b, false);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_EXISTS);
    assert_string_equal(bucket_text(b, "run/ba5.pt"), "somebody's");
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_EXISTS);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_EXISTS);
    m = remote_new(util_temp_dir(), b);
    m.r->d.overwrite = true;
    run_open(m.r);
    save_wait(&m, 5);
    check_file(bucket_path(b, "run/ba5.pt"), 5);
    remote_end(&m);
    // A constant name is this run's own from the second save on.
    m = remote_new(util_temp_dir(), b);
    m.r->d.filename = "model.pt";
    m.r->d.remote_file_name = "run/model.pt";
    m.r->d.latest_remote_file_name = CKPT_NONE;
    run_open(m.r);
    for (int i = 1; i <= 3; i++) save_wait(&m, i);
    check_file(bucket_path(b, "run/model.pt"), 3);
    remote_end(&m);
    bucket_end(b);
}

// A run whose saves all have one name.
static remote_run remote_constant(bucket *b) {
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.filename = "model.pt";
    m.r->d.remote_file_name = "run/model.pt";
    m.r->d.latest_remote_file_name = CKPT_NONE;
    return m;
}

// Waits, and takes all failures.
static ckpt_err wait_all(remote_run *m) {
    ckpt_err first = ckpt_saver_wait(m->r->s, 0);
    for (ckpt_err e = first; e != CKPT_OK; e = ckpt_saver_wait(m->r->s, 0)) assert_int_equal(e, first);
    return first;
}

static void remote_end_refused(remote_run *m) {
    assert_int_equal(ckpt_saver_close(m->r->s, 0), CKPT_EXISTS);
    ckpt_state_free(&m->r->st);
    assert_int_equal(ckpt_uploader_close(m->u, 0), CKPT_EXISTS);
}

// A constant name: that a save was refused does not make the object this run's, whenever the next one comes.
static void test_refused_stays_refused(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {                       // the first has been refused, is being put, waits
        bucket *b = bucket_new(NULL);
        util_write_text(bucket_path(b, "run/model.pt"), "somebody's");
        remote_run m = remote_constant(b);
        run_open(m.r);
        bucket_hold(b, i > 0);
        const char *other = util_join(util_temp_dir(), "other");
        util_write_text(other, "1");
        if (i == 2) ok(ckpt_upload_file(m.u, "other", other, true));
        if (i == 0) save_held(&m, 1);
        else run_save(m.r, 1);
        if (i == 0) assert_int_equal(wait_all(&m), CKPT_EXISTS);
        while (i > 0 && !bucket_is_busy(b)) usleep(1000);
        bucket_hold(b, true);
        for (int k = 2; k < 4; k++) run_save(m.r, k);
        bucket_hold(b, false);
        assert_int_equal(wait_all(&m), CKPT_EXISTS);
        assert_string_equal(bucket_text(b, "run/model.pt"), "somebody's");
        assert_int_equal(unlink(bucket_path(b, "run/model.pt")), 0);
        for (int k = 4; k < 6; k++) {
            save_wait(&m, k);
            check_file(bucket_path(b, "run/model.pt"), k);
        }
        remote_end_refused(&m);
        bucket_end(b);
    }
}

// Nor does it when the next save is there before the first one's object, which is this run's.
static void test_own_object_is_replaced(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_constant(b);
    run_open(m.r);
    bucket_hold(b, true);
    run_save(m.r, 1);
    while (!bucket_is_busy(b)) usleep(1000);
    for (int k = 2; k < 4; k++) run_save(m.r, k);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    check_file(bucket_path(b, "run/model.pt"), 3);
    assert_int_equal(bucket_count(b, "put run/model.pt"), 2);
    remote_end(&m);
    bucket_end(b);
}

// Nor when the first one's object is there and its link is not: that has failed, or fails when the next save waits.
static void test_own_object_without_link_is_replaced(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_constant(b);
        m.r->d.latest_remote_file_name = "run/latest.pt";
        run_open(m.r);
        bucket_fail(b, "put run/latest", CKPT_NET, 1);
        bucket_hold(b, true);
        run_save(m.r, 1);
        while (!bucket_is_busy(b)) usleep(1000);
        if (i == 1) run_save(m.r, 2);
        bucket_hold(b, false);
        assert_int_equal(wait_all(&m), CKPT_NET);
        if (i == 0) save_wait(&m, 2);
        check_file(bucket_path(b, "run/model.pt"), 2);
        assert_true(bucket_has(b, "run/latest.pt.symlink"));
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
        bucket_end(b);
    }
}

static void refuse_next(bucket *b) {
    b->fail = "put run/model.pt";
    b->fail_with = CKPT_EXISTS;
    b->fail_times = 1;
}

static void lose_next(bucket *b) {
    refuse_next(b);
    b->fail_with = CKPT_NET;
    b->before = "put run/model.pt";     // the next but one
    b->then = refuse_next;
}

// A store that was mistaken, after an answer that was lost: the save it refused, though nothing was there, goes another time, and its
// object is this run's as any other.
static void test_refused_for_nothing_is_own(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    ckpt_transfer_stats stats;
    fault_hope = fault_hope_most = 0.02;
    fault_backoff = 0.001;
    remote_run m = remote_constant(b);
    m.u->retry.num_attempts = 2;
    run_open(m.r);
    b->before = "put run/model.pt";
    b->then = lose_next;
    save_held(&m, 1);
    assert_int_equal(wait_all(&m), CKPT_EXISTS);
    for (int i = 0; i < 6000; i++) {
        ckpt_uploader_stats(m.u, &stats);
        if (stats.failed == 0 && stats.pending == 0) break;
        usleep(10000);
    }
    assert_int_equal(stats.failed, 0);
    check_file(bucket_path(b, "run/model.pt"), 1);
    for (int k = 2; k < 4; k++) {
        save_wait(&m, k);
        check_file(bucket_path(b, "run/model.pt"), k);
    }
    remote_end_refused(&m);
    bucket_end(b);
    fault_hope = 60, fault_hope_most = 900;
    fault_backoff = 0;
}

// Nor is the object this run's when the first save could not be handed over: it could not be staged, or not be noted.
static void test_not_handed_over_is_not_own(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bucket *b = bucket_new(NULL);
        util_write_text(bucket_path(b, "run/model.pt"), "somebody's");
        remote_run m = remote_constant(b);
        run_open(m.r);
        const char *ledger = m.r->s->remotes[0].ledger.file + 1, *way = util_join(m.r->dir, i == 0 ? ".ckpt-staging" : ledger);
        if (i == 0) util_write_text(way, "in the way");
        else util_mkdir(way);
        ckpt_timestamp t = at_batch(1);
        run_set(m.r, 1);
        ckpt_err first = ckpt_saver_save(m.r->s, &t);
        if (first == CKPT_OK) first = ckpt_saver_wait(m.r->s, 0);
        assert_int_not_equal(first, CKPT_OK);
        assert_int_equal(bucket_count(b, "put run/model.pt"), 0);
        util_remove_tree(way);
        save_held(&m, 2);
        assert_int_equal(wait_all(&m), CKPT_EXISTS);
        assert_string_equal(bucket_text(b, "run/model.pt"), "somebody's");
        assert_int_equal(ckpt_saver_close(m.r->s, 0), first);
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_EXISTS);
        bucket_end(b);
    }
}

// The next process does not replace it either, unless it is asked to, or the object is gone.
static void test_refused_after_restart(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        util_write_text(bucket_path(b, "run/ba5.pt"), "somebody's");
        remote_run m = remote_new(dir, b);
        run_open(m.r);
        save_held(&m, 5);
        assert_int_equal(wait_all(&m), CKPT_EXISTS);
        remote_end_refused(&m);
        m = remote_new(dir, b);
        run_open(m.r);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_text(b, "run/ba5.pt"), "somebody's");
        remote_end(&m);
        if (i == 0) assert_int_equal(unlink(bucket_path(b, "run/ba5.pt")), 0);
        m = remote_new(dir, b);
        m.r->d.overwrite = i == 1;
        run_open(m.r);
        ok(ckpt_saver_wait(m.r->s, 0));
        check_file(bucket_path(b, "run/ba5.pt"), 5);
        remote_end(&m);
        assert_null(util_staged(util_join(dir, ".ckpt-staging")));
        bucket_end(b);
    }
}

// A fresh start over what a store holds of a later time is refused as it is over local files.
static void test_remote_conflict(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    save_wait(&m, 9);
    remote_end(&m);
    m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    ckpt_timestamp t = at_batch(3);
    assert_int_equal(ckpt_saver_save(m.r->s, &t), CKPT_EXISTS);
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_EXISTS);
    ckpt_state_free(&m.r->st);
    ok(ckpt_uploader_close(m.u, 0));
    m = remote_new(util_temp_dir(), b);
    m.r->d.overwrite = true;
    run_open(m.r);
    save_wait(&m, 3);
    remote_end(&m);
    bucket_end(b);
}

// Where it could not be seen what the store's latest names, the run goes on, and does not lead it back.
static void test_newest_unseen(void **state) {
    (void)state;
    for (int resumes = 0; resumes < 2; resumes++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        run_open(m.r);
        save_wait(&m, 9);
        remote_end(&m);
        m = remote_new(util_temp_dir(), b);
        bucket_fail(b, "size run/latest|get run/latest", CKPT_NET, -1);
        run_open(m.r);
        assert_non_null(strstr(m.r->log, "it could not be seen what"));
        bucket_fail(b, NULL, CKPT_OK, 0);
        ckpt_timestamp t;
        if (resumes) ok(ckpt_saver_resume(m.r->s, &t));
        save_wait(&m, 3);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), resumes ? "run/ba3.pt" : "run/ba9.pt");
        assert_true(bucket_has(b, "run/ba3.pt"));
        save_wait(&m, 10);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba10.pt");
        int asked = bucket_count(b, "get run/latest");
        save_wait(&m, 11);
        assert_int_equal(bucket_count(b, "get run/latest"), asked);     // it is this run's by now
        remote_end(&m);
        bucket_end(b);
    }
}

// Nor does it remove another run's checkpoint of a name of which its own was never sent.
static void test_newest_unseen_and_taken_back(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    save_wait(&m, 2);
    remote_end(&m);
    m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 1;
    bucket_fail(b, "size run/latest|get run/latest", CKPT_NET, -1);
    run_open(m.r);
    bucket_fail(b, NULL, CKPT_OK, 0);
    bucket_hold(b, true);
    run_save(m.r, 1);
    for (int i = 0; !bucket_is_busy(b) && i < 60000; i++) usleep(1000);     // a worker has it
    for (int i = 2; i <= 3; i++) run_save(m.r, i);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    save_wait(&m, 4);
    assert_string_equal(bucket_names(b), "run%ba2.pt run%ba4.pt run%latest.pt.symlink");
    remote_end(&m);
    bucket_end(b);
}

//-- rotation ----------------------------------------------------------------------

static void test_keep_none(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *a = bucket_new(NULL), *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), a);
        ckpt_uploader *list[2] = { m.u, uploader_on(b, util_temp_dir()) };
        m.r->d.uploaders = list;
        m.r->d.uploaders_count = 2;
        m.r->d.snapshot = modes[k];
        m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
        run_open(m.r);
        bucket_hold(b, true);
        run_save(m.r, 1);
        for (int i = 0; !bucket_has(a, "run/latest.pt.symlink") && i < 60000; i++) usleep(1000);
        usleep(20000);
        assert_string_equal(names_in(m.r->dir), "ba1.pt");          // the other store has not got it yet
        bucket_hold(b, false);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(names_in(m.r->dir), "");
        bucket_fail(b, "put run/ba2.pt", CKPT_AUTH, -1);
        bucket_hold(b, true);
        run_save(m.r, 2);
        bucket_hold(b, false);
        assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_AUTH);
        assert_string_equal(names_in(m.r->dir), "ba2.pt");          // what was not uploaded everywhere stays
        assert_int_equal(ckpt_saver_checkpoints(m.r->s, NULL), 1);
        bucket_fail(b, NULL, CKPT_OK, 0);
        save_wait(&m, 3);
        assert_string_equal(names_in(m.r->dir), "ba2.pt");
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_AUTH);
        ckpt_state_free(&m.r->st);
        ok(ckpt_uploader_close(m.u, 0));
        assert_int_equal(ckpt_uploader_close(list[1], 0), CKPT_AUTH);
        bucket_end(a);
        bucket_end(b);
    }
}

// Once the first uploader has taken something, the saver goes on only when it is there: what is uploaded while the other
// destinations have not been told yet.
typedef struct late { bucket *first; ckpt_uploader *taker; int waited; } late;

static void *late_wait(void *p, size_t old_size, size_t new_size, void *user) {
    late *l = (late *)user;
    (void)old_size;
    ckpt_transfer_stats t;
    memset(&t, 0, sizeof t);
    if (l->taker != NULL && __atomic_load_n(&l->waited, __ATOMIC_SEQ_CST) == 0) ckpt_uploader_stats(l->taker, &t);
    if (t.pending > 0 && __atomic_exchange_n(&l->waited, 1, __ATOMIC_SEQ_CST) == 0) {
        bucket_hold(l->first, false);       // else it may be there before this is called
        for (int i = 0; !bucket_has(l->first, "run/latest.pt.symlink") && i < 60000; i++) usleep(1000);
        usleep(50000);
    }
    if (new_size != 0) return realloc(p, new_size);
    free(p);
    return NULL;
}

static void test_keep_none_waits_for_all(void **state) {
    (void)state;
    bucket *a = bucket_new(NULL), *b = bucket_new(NULL);
    late l = { a, NULL, 0 };
    ckpt_uploader *first = uploader_on(a, util_temp_dir());
    remote_run m = remote_new(util_temp_dir(), b);
    ckpt_uploader *list[2] = { first, m.u };
    m.r->d.uploaders = list;
    m.r->d.uploaders_count = 2;
    m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    m.r->d.allocator.fn = late_wait;
    m.r->d.allocator.user = &l;
    run_open(m.r);
    bucket_hold(a, true);
    bucket_hold(b, true);
    l.taker = first;
    run_save(m.r, 1);
    for (int i = 0; !bucket_has(a, "run/latest.pt.symlink") && i < 60000; i++) usleep(1000);
    usleep(20000);
    assert_int_equal(l.waited, 1);
    assert_string_equal(names_in(m.r->dir), "ba1.pt");
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(names_in(m.r->dir), "");
    remote_end(&m);
    ok(ckpt_uploader_close(first, 0));
    bucket_end(a);
    bucket_end(b);
}

// A constant name is saved again just when the upload of the one before lets its file go.
static void test_keep_none_same_name(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        m.r->d.filename = "model.pt";
        m.r->d.remote_file_name = "run/model.pt";
        m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
        m.r->d.snapshot = modes[k];
        run_open(m.r);
        fault_sync = 20000;             // the index is without its line for so long, and the file is there
        for (int i = 1; i <= 3; i++) {
            run_save(m.r, i);
            for (size_t left = 1; left > 0; usleep(200)) {
                ckpt__os_mutex_lock(&m.r->s->shared->lock);
                left = k > 0 && ckpt__os_load64(&m.r->s->shared->saved) < (uint64_t)i ? 1 : m.r->s->index.count;
                ckpt__os_mutex_unlock(&m.r->s->shared->lock);
            }
        }
        ok(ckpt_saver_wait(m.r->s, 0));
        fault_sync = FAULT_NO_SYNC;
        assert_string_equal(names_in(m.r->dir), "");
        assert_string_equal(bucket_names(b), "run%latest.pt.symlink run%model.pt");
        remote_end(&m);
        bucket_end(b);
    }
}

// What was not there any more is gone, and was taken away by somebody else.
static void test_removed_is_counted(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    for (int i = 1; i <= 4; i++) {
        if (i == 3) assert_int_equal(unlink(bucket_path(b, "run/ba1.pt")), 0);
        save_wait(&m, i);
    }
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba3.pt run%ba4.pt run%latest.pt.symlink");
    ckpt_saver_counts c;
    ckpt_saver_stats(m.r->s, &c);
    assert_int_equal(c.removed, 1);
    assert_int_equal(c.failed, 0);
    remote_end(&m);
    bucket_end(b);
}

static void test_remote_rotation(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = 1;
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    for (int i = 1; i <= 5; i++) save_wait(&m, i);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba4.pt run%ba5.pt run%latest.pt.symlink");
    assert_string_equal(names_in(dir), "ba5.pt latest.pt");
    ckpt_saver_counts c;
    ckpt_saver_stats(m.r->s, &c);
    assert_int_equal(c.removed, 3);
    remote_end(&m);
    // The next process goes on with it, without a listing.
    m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = 1;
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 5);
    for (int i = 6; i <= 7; i++) save_wait(&m, i);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba6.pt run%ba7.pt run%latest.pt.symlink");
    assert_int_equal(bucket_count(b, "list"), 0);
    remote_end(&m);
    // A machine that has nothing lists, and then knows of all.
    m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 7);
    assert_int_equal(bucket_count(b, "list run/ba"), 1);
    for (int i = 8; i <= 9; i++) save_wait(&m, i);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba8.pt run%ba9.pt run%latest.pt.symlink");
    assert_int_equal(bucket_count(b, "list run/ba"), 1);
    remote_end(&m);
    bucket_end(b);
}

// One of several runs in one folder, with one destination.
static remote_run named_new(const char *dir, bucket *b, const char *name) {
    remote_run m = remote_new(dir, b);
    m.r->d.run_name = name;
    m.r->d.filename = "{run_name}-ba{batch}.pt";
    m.r->d.latest_filename = "latest-{run_name}.pt";
    m.r->d.remote_file_name = "{run_name}/ba{batch}.pt";
    m.r->d.latest_remote_file_name = "{run_name}/latest.pt";
    return m;
}

// The ledger tells of two runs: each rotates its own objects, and never the one that its own link leads to.
static void test_remote_rotation_of_two_runs(void **state) {
    (void)state;
    static const char *const runs[] = { "a", "b", "b", "a" }, *const left[] = {
        "a%ba1.pt a%ba2.pt a%latest.pt.symlink", "a%ba1.pt a%ba2.pt a%latest.pt.symlink b%ba3.pt b%ba4.pt b%latest.pt.symlink",
        "a%ba1.pt a%ba2.pt a%latest.pt.symlink b%ba5.pt b%ba6.pt b%latest.pt.symlink",
        "a%ba7.pt a%ba8.pt a%latest.pt.symlink b%ba5.pt b%ba6.pt b%latest.pt.symlink" };
    static const int is_at[] = { 0, 0, 4, 2 };
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    for (int k = 0; k < UTIL_COUNT(runs); k++) {
        remote_run m = named_new(dir, b, runs[k]);
        ckpt_timestamp t;
        m.r->d.num_remote_to_keep = 2;
        run_open(m.r);
        assert_int_equal(ckpt_saver_resume(m.r->s, &t), is_at[k] > 0 ? CKPT_OK : CKPT_NOT_FOUND);
        run_check(m.r, is_at[k]);
        for (int i = 1; i <= 2; i++) save_wait(&m, 2 * k + i);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), left[k]);
        remote_end(&m);
    }
    bucket_end(b);
}

// A run that goes on in a copy of another's folder, with a place of its own in the store, has the other's ledger too: it never removes
// what that one has there. A template of the same folder is the same run's.
static void test_remote_rotation_in_a_copy(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        remote_run m = remote_new(dir, b);
        ckpt_timestamp t;
        run_open(m.r);
        for (int i = 1; i <= 3; i++) save_wait(&m, i);
        remote_end(&m);
        m = remote_new(dir, b);
        m.r->d.remote_file_name = k == 0 ? "copy/ba{batch}.pt" : "run/b{batch}.pt";
        m.r->d.latest_remote_file_name = k == 0 ? "copy/latest.pt" : "run/latest.pt";
        m.r->d.num_remote_to_keep = 2;
        run_open(m.r);
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 3);
        for (int i = 4; i <= 6; i++) save_wait(&m, i);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), k == 0 ? "copy%ba5.pt copy%ba6.pt copy%latest.pt.symlink "
                                                      "run%ba1.pt run%ba2.pt run%ba3.pt run%latest.pt.symlink"
                                                    : "run%b5.pt run%b6.pt run%latest.pt.symlink");
        remote_end(&m);
        bucket_end(b);
    }
}

// Losses of 1 to 8, 10 and 12: 5 10 4 9 3 8 2 7 6 5. Of the store's the newest two, every 4th save, batch 3, which is pinned, and
// batch 7, the best, stay.
static void ledger_run(remote_run *m, const char *dir, bucket *b) {
    *m = remote_new(dir, b);
    m->r->d.num_remote_to_keep = 2;
    m->r->d.keep_every = 4;
    m->r->d.keep_best = "min:state/metrics/loss";
    run_open(m->r);
}

static void ledger_first(bucket *b) {
    const char *dir = util_temp_dir();
    remote_run m;
    ledger_run(&m, dir, b);
    for (int i = 1; i <= 12; i++) {
        if (i == 9 || i == 11) continue;
        save_wait(&m, i);
        if (i == 3) pin(dir, "ba3.pt", true);
    }
    ok(ckpt_saver_wait(m.r->s, 0));
    remote_end(&m);
    assert_string_equal(bucket_names(b), "run%ba10.pt run%ba12.pt run%ba3.pt run%ba4.pt run%ba7.pt run%ba8.pt run%latest.pt.symlink");
}

// A machine that has nothing keeps in the store what the one before kept there: a listing says nothing of metrics and pins, and
// not which save of the run an object was. A copy of the ledger says it; without one all stay that may be one to keep.
static void test_ledger_goes_along(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        bucket *b = bucket_new(NULL);
        ledger_first(b);
        const char *copy = bucket_ledger(b, "run/");
        assert_non_null(copy);
        size_t size;
        char *text = util_read(bucket_path(b, copy), &size);
        if (k == 1) util_write(bucket_path(b, copy), text, size - 20);      // what is whole counts
        if (k == 2) util_write(bucket_path(b, copy), "{\"name\":\"../../x\"}\n", 20);
        if (k == 3) assert_int_equal(unlink(bucket_path(b, copy)), 0);
        remote_run m;
        ledger_run(&m, util_temp_dir(), b);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 12);
        for (int i = 13; i <= 17; i++) save_wait(&m, i);        // 10 4 9 3 8: batch 14 is save 12
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), util_fmt("%srun%%ba14.pt run%%ba16.pt run%%ba17.pt run%%ba3.pt run%%ba4.pt run%%ba7.pt "
                                                      "run%%ba8.pt run%%latest.pt.symlink", k < 2 ? "" : "run%ba10.pt "));
        remote_end(&m);
        bucket_end(b);
    }
}

// A run of that template, which keeps two in the store.
static remote_run template_run(const char *dir, bucket *b, const char *ending) {
    remote_run m = remote_new(dir, b);
    m.r->d.filename = util_fmt("ba{batch}%s", ending);
    m.r->d.remote_file_name = util_fmt("run/ba{batch}%s", ending);
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    return m;
}

// The template goes forth and back: what was pinned under the first one, and was noted in the copy of the second's, stays when a
// machine comes that has nothing; 1: which cannot read that copy at first. 2: another run of the folder pins one of its own, of the
// same number: that is none of ours. 3: an older copy of our own tells of it as not pinned.
static void test_ledger_of_another_template(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        remote_run m = template_run(dir, b, ".pt");
        for (int i = 1; i <= 3; i++) save_wait(&m, i);
        if (k == 3) pin(dir, "ba3.pt", true);
        if (k == 3) save_wait(&m, 4);
        if (k == 3) pin(dir, "ba3.pt", false);
        remote_end(&m);
        pin(dir, k == 3 ? "ba4.pt" : "ba2.pt", true);
        const char *place = k == 2 ? util_temp_dir() : dir;
        m = template_run(place, b, k == 2 ? ".other.pt" : ".safetensors");
        if (k != 2) ok(ckpt_saver_resume(m.r->s, NULL));
        for (int i = 5; i <= 6; i++) save_wait(&m, i);
        if (k == 2) pin(place, "ba6.other.pt", true);
        if (k == 2) save_wait(&m, 7);
        remote_end(&m);
        const char *copy = bucket_ledger(b, "run/");
        assert_non_null(copy);
        if (k == 2) util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba3.pt");
        if (k == 1) bucket_fail(b, util_fmt("get %s", copy), CKPT_NET, -1);
        m = template_run(util_temp_dir(), b, ".pt");
        ok(ckpt_saver_resume(m.r->s, NULL));
        for (int i = 8; i <= 10; i++) {
            if (i == 9) bucket_fail(b, NULL, CKPT_OK, 0);
            save_wait(&m, i);
        }
        remote_end(&m);
        const char *names = bucket_names(b);
        assert_true((strstr(names, "run%ba2.pt") != NULL) == (k < 2));
        assert_true((strstr(names, "run%ba4.pt") != NULL) == (k == 3));
        if (k != 3) assert_null(strstr(names, "run%ba3.pt"));
        assert_true((strstr(names, "run%ba6.other.pt") != NULL) == (k == 2));
        bucket_end(b);
    }
}

// The next machine: goes on from batch `from`, and saves up to `last`.
static void ledger_next(bucket *b, int from, int last, int heals_at) {
    remote_run m;
    ckpt_timestamp t;
    ledger_run(&m, util_temp_dir(), b);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, from);
    for (int i = from + 1; i <= last; i++) {
        if (i == 9 || i == 11) continue;
        if (i == heals_at) bucket_fail(b, NULL, CKPT_OK, 0);
        save_wait(&m, i);
    }
    remote_end(&m);
}

// The copy could not be read while a machine resumed, or for as long as it lived: what it puts there itself tells of all that the copy
// told of, or it puts none, and the machine after it keeps what is to be kept.
static void test_ledger_is_out_of_reach(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        ledger_first(b);
        const char *copy = bucket_ledger(b, "run/");
        bucket_fail(b, util_fmt("size %s|get %s", copy, copy), k == 2 ? CKPT_AUTH : CKPT_NET, -1);
        ledger_next(b, 12, 16, k == 0 ? 13 : k == 1 ? 15 : 0);
        bucket_fail(b, NULL, CKPT_OK, 0);
        if (k < 2) assert_null(strstr(bucket_names(b), "run%ba10.pt"));         // what was learned takes part in rotation
        assert_non_null(strstr(bucket_text(b, copy), "\"pinned\":true"));
        ledger_next(b, 16, 19, 0);
        const char *names = bucket_names(b);
        assert_non_null(strstr(names, "run%ba3.pt"));
        assert_non_null(strstr(names, "run%ba4.pt"));
        assert_non_null(strstr(names, "run%ba7.pt"));
        if (k < 2) assert_null(strstr(names, "run%ba10.pt"));
        bucket_end(b);
    }
}

// The checkpoint that such a machine went on from is pinned in the store, as it learns later only.
static void test_ledger_out_of_reach_and_pinned(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        remote_run m;
        const char *dir = util_temp_dir();
        ledger_run(&m, dir, b);
        for (int i = 1; i <= 6; i++) save_wait(&m, i);
        pin(dir, "ba6.pt", true);
        bucket_hold_only(b, "run/ba7.pt");
        run_save(m.r, 7);
        bucket_hold(b, false);
        ok(ckpt_saver_wait(m.r->s, 0));
        remote_end(&m);
        assert_int_equal(unlink(bucket_path(b, "run/ba7.pt")), 0);
        util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba6.pt");
        const char *copy = bucket_ledger(b, "run/");
        bucket_fail(b, util_fmt("size %s", copy), CKPT_NET, -1);
        ledger_next(b, 6, 14, k == 0 ? 8 : 13);
        bucket_fail(b, NULL, CKPT_OK, 0);
        assert_non_null(strstr(bucket_names(b), "run%ba6.pt"));
        assert_non_null(strstr(bucket_text(b, copy), "\"pinned\":true"));
        bucket_end(b);
    }
}

// The same where the machine itself is started again: a ledger that is not complete is made again.
static void test_partial_ledger_is_made_again(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir(), *copy;
    remote_run m;
    ckpt_timestamp t;
    ledger_first(b);
    copy = bucket_ledger(b, "run/");
    for (int life = 0; life < 2; life++) {
        if (life == 0) bucket_fail(b, util_fmt("size %s", copy), CKPT_NET, -1);
        ledger_run(&m, dir, b);
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 12 + 2 * life);
        for (int i = 1; i <= 2; i++) save_wait(&m, 12 + 2 * life + i);
        bucket_fail(b, NULL, CKPT_OK, 0);
        remote_end(&m);
    }
    assert_string_equal(bucket_names(b), "run%ba14.pt run%ba15.pt run%ba16.pt run%ba3.pt run%ba4.pt run%ba7.pt run%ba8.pt "
                                         "run%latest.pt.symlink");
    for (const char *name = "ba3 ba4 ba7 ba8"; *name != 0; name += name[3] == 0 ? 3 : 4)
        assert_non_null(strstr(bucket_text(b, copy), util_fmt("run/%.3s.pt", name)));
    bucket_end(b);
}

// The store keeps the newest two, and what is pinned.
static void pins_run(remote_run *m, const char *dir, bucket *b) {
    *m = remote_new(dir, b);
    m->r->d.num_remote_to_keep = 2;
    run_open(m->r);
}

// Saves of 1 to 6, of which 3 and 5 are pinned; with `lost` 6 is not in the store any more, which is back at 5.
static void pins_first(const char *dir, bucket *b, bool lost) {
    remote_run m;
    pins_run(&m, dir, b);
    for (int i = 1; i <= 6; i++) {
        save_wait(&m, i);
        if (i == 3 || i == 5) pin(dir, util_fmt("ba%d.pt", i), true);
    }
    remote_end(&m);
    if (!lost) return;
    assert_int_equal(unlink(bucket_path(b, "run/ba6.pt")), 0);
    util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba5.pt");
}

static void pins_next(const char *dir, bucket *b, int from, int last) {
    remote_run m;
    ckpt_timestamp t;
    pins_run(&m, dir, b);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, from);
    for (int i = from + 1; i <= last; i++) save_wait(&m, i);
    remote_end(&m);
}

// What is pinned in the store stays, also where the folder has it as well without knowing that: it was fetched while the store did
// not tell of pins, or copied there, or the folder's index is lost, alone or with what tells of the store.
static void test_pins_of_what_is_local(void **state) {
    enum { FETCHED, COPIED, NO_INDEX, TORN_INDEX, NEITHER, HOWS };
    (void)state;
    for (int how = 0; how < HOWS; how++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *index;
        int from = how == FETCHED ? 7 : 6;
        pins_first(dir, b, how == FETCHED);
        if (how == FETCHED) {
            bucket_fail(b, util_fmt("size %s", bucket_ledger(b, "run/")), CKPT_NET, -1);
            pins_next(dir = util_temp_dir(), b, 5, 7);
            bucket_fail(b, NULL, CKPT_OK, 0);
        } else if (how == COPIED) {
            const char *other = util_temp_dir();
            for (int i = 1; i <= 6; i++) {
                size_t size;
                const char *name = util_fmt("ba%d.pt", i);
                char *text = util_read(util_join(dir, name), &size);
                util_write(util_join(other, name), text, size);
            }
            dir = other;
        } else {
            index = util_join(dir, ".ckpt-index.jsonl");
            if (how == TORN_INDEX) util_write_text(index, "{\"name\":\"ba1");
            else assert_int_equal(unlink(index), 0);
            if (how == NEITHER) assert_int_equal(unlink(ledger_path(dir)), 0);
        }
        pins_next(dir, b, from, 9);
        assert_string_equal(bucket_names(b), "run%ba3.pt run%ba5.pt run%ba8.pt run%ba9.pt run%latest.pt.symlink");
        pins_next(util_temp_dir(), b, 9, 12);                           // and the next machine hears of it
        assert_string_equal(bucket_names(b), "run%ba11.pt run%ba12.pt run%ba3.pt run%ba5.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// The same where the one before could not read the copy, and one between them ended before it resumed, or could not: it hears that
// an upload has come which was left.
static void test_partial_ledger_without_resume(void **state) {
    (void)state;
    for (int mismatch = 0; mismatch < 2; mismatch++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        remote_run m;
        ckpt_timestamp t;
        float more[4] = { 0 };
        pins_first(util_temp_dir(), b, false);
        bucket_fail(b, util_fmt("size %s", bucket_ledger(b, "run/")), CKPT_NET, -1);
        pins_run(&m, dir, b);
        ok(ckpt_saver_resume(m.r->s, &t));
        save_wait(&m, 7);
        bucket_fail(b, "size|get|put|list|remove", CKPT_NET, -1);
        t = at_batch(8);
        run_set(m.r, 8);
        (void)!ckpt_saver_save(m.r->s, &t);                             // it is staged
        while (ckpt_saver_wait(m.r->s, 0) != CKPT_OK) {}
        (void)!ckpt_saver_close(m.r->s, 0);
        ckpt_state_free(&m.r->st);
        (void)!ckpt_uploader_close(m.u, 0);
        bucket_fail(b, NULL, CKPT_OK, 0);
        m = remote_new(dir, b);
        m.r->d.num_remote_to_keep = 2;
        if (mismatch) ckpt_bind_f32(&m.r->st, "state/model/new", more, 4);
        run_open(m.r);
        if (mismatch) assert_int_equal(ckpt_saver_resume(m.r->s, &t), CKPT_MISMATCH);
        remote_end(&m);
        assert_non_null(strstr(bucket_names(b), "run%ba8.pt"));
        pins_next(dir, b, 8, 11);
        assert_non_null(strstr(bucket_text(b, bucket_ledger(b, "run/")), "\"pinned\":true"));
        pins_next(util_temp_dir(), b, 11, 13);
        assert_string_equal(bucket_names(b), "run%ba12.pt run%ba13.pt run%ba3.pt run%ba5.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// A machine that may not list, or asks a user's store that has no list: it puts no copy that does not tell what the one there told.
static void test_pins_without_a_list(void **state) {
    static const ckpt_err says[] = { CKPT_AUTH, CKPT_UNSUPPORTED, CKPT_NOT_FOUND };
    (void)state;
    for (int k = 0; k < 6; k++) {
        bucket *b = bucket_new(NULL);
        if (k % 2 == 0) pins_first(util_temp_dir(), b, false);
        else ledger_first(b);
        const char *copy = bucket_ledger(b, "run/");
        bucket_fail(b, "list", says[k / 2], -1);
        if (k % 2 == 0) pins_next(util_temp_dir(), b, 6, 8);
        else ledger_next(b, 12, 15, 0);
        bucket_fail(b, NULL, CKPT_OK, 0);
        assert_non_null(strstr(bucket_text(b, copy), "run/ba3.pt"));
        assert_non_null(strstr(bucket_text(b, copy), "\"pinned\":true"));
        if (k % 2 == 0) pins_next(util_temp_dir(), b, 8, 10);
        else ledger_next(b, 15, 17, 0);
        assert_string_equal(bucket_names(b), k % 2 == 0 ? "run%ba10.pt run%ba3.pt run%ba5.pt run%ba9.pt run%latest.pt.symlink" :
                            "run%ba14.pt run%ba16.pt run%ba17.pt run%ba3.pt run%ba4.pt run%ba7.pt run%ba8.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// The newest one is damaged, and passed over, while the copy that tells of it cannot be read: it is learnt afterwards all the same,
// once. So is what a store that is not listed has of later saves.
static void test_copy_tells_of_later(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        pins_first(util_temp_dir(), b, false);
        const char *copy = bucket_ledger(b, "run/");
        size_t size;
        char *text = util_read(bucket_path(b, "run/ba6.pt"), &size);
        text[size / 2] = (char)~text[size / 2];
        util_write(bucket_path(b, "run/ba6.pt"), text, size);
        if (k == 0) bucket_fail(b, util_fmt("size %s", copy), CKPT_NET, -1);
        else util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba5.pt");
        if (k == 1) bucket_fail(b, "list", CKPT_UNSUPPORTED, -1);
        remote_run m;
        ckpt_timestamp t;
        pins_run(&m, util_temp_dir(), b);
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 5);
        if (k == 0) bucket_fail(b, NULL, CKPT_OK, 0);
        for (int i = 7; i <= 9; i++) save_wait(&m, i);
        int asked = bucket_count(b, "size run/ba3.pt");
        for (int i = 10; i <= 12; i++) save_wait(&m, i);
        assert_int_equal(bucket_count(b, "size run/ba3.pt"), asked);
        remote_end(&m);
        assert_non_null(strstr(bucket_text(b, copy), "run/ba12.pt"));
        assert_string_equal(bucket_names(b), "run%ba11.pt run%ba12.pt run%ba3.pt run%ba5.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// Nothing in the store is pinned, and no rule keeps more than the newest: what an earlier machine has left there goes all the same
// when the store can be read again.
static void test_ledger_without_a_copy(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m;
    ckpt_timestamp t;
    pins_run(&m, util_temp_dir(), b);
    for (int i = 1; i <= 4; i++) save_wait(&m, i);
    remote_end(&m);
    assert_null(bucket_ledger(b, "run/"));
    bucket_fail(b, "size run/" BUCKET_LEDGER, CKPT_NET, -1);
    pins_run(&m, util_temp_dir(), b);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 4);
    bucket_fail(b, NULL, CKPT_OK, 0);
    for (int i = 5; i <= 8; i++) save_wait(&m, i);
    assert_string_equal(bucket_names(b), "run%ba7.pt run%ba8.pt run%latest.pt.symlink");
    remote_end(&m);
    bucket_end(b);
}

// Whose pin is taken away while no saver is open goes, also where what tells of the store is damaged.
static void test_unpinned_meanwhile(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        pins_first(dir, b, false);
        pin(dir, "ba3.pt", false);
        size_t size;
        char *text = util_read(ledger_path(dir), &size);
        if (k == 1) util_write(ledger_path(dir), text, size - 20);
        pins_next(dir, b, 6, 9);
        assert_string_equal(bucket_names(b), "run%ba5.pt run%ba8.pt run%ba9.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// A machine is killed in its first resume, at each file that it gives a name: the pin of what it went on from is not lost.
static int renames_left;

static void kill_at_rename(const char *name, const char *path) {
    (void)path;
    if (strcmp(name, "rename") == 0 && __atomic_sub_fetch(&renames_left, 1, __ATOMIC_SEQ_CST) == 0) _exit(9);
}

static void test_pinned_and_killed(void **state) {
    (void)state;
    bool killed = true;
    for (int k = 1; killed; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        pins_first(util_temp_dir(), b, true);
        pid_t child = fork();
        if (child == 0) {
            remote_run m;
            ckpt_timestamp t;
            pins_run(&m, dir, bucket_new(b->dir));
            __atomic_store_n(&renames_left, k, __ATOMIC_SEQ_CST);
            fault_set_spy(kill_at_rename);
            _exit(ckpt_saver_resume(m.r->s, &t) != CKPT_OK);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0));
        killed = WEXITSTATUS(status) == 9;
        pins_next(dir, b, 5, 9);
        assert_string_equal(bucket_names(b), "run%ba3.pt run%ba5.pt run%ba8.pt run%ba9.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// What a machine has put, and could not note in the store before it died, may be the best one.
static void test_ledger_lags_behind(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m;
    const char *dir = util_temp_dir();
    ledger_run(&m, dir, b);
    for (int i = 1; i <= 6; i++) save_wait(&m, i);
    bucket_fail(b, util_fmt("put %s", bucket_ledger(b, "run/")), CKPT_NET, -1);
    for (int i = 7; i <= 8; i++) {                          // the loss of 7 is the least
        ckpt_timestamp at = at_batch(i);
        run_set(m.r, i);
        (void)!ckpt_saver_save(m.r->s, &at);
        while (ckpt_saver_wait(m.r->s, 0) != CKPT_OK) {}
    }
    (void)!ckpt_saver_close(m.r->s, 0);
    ckpt_state_free(&m.r->st);
    (void)!ckpt_uploader_close(m.u, 0);
    bucket_fail(b, NULL, CKPT_OK, 0);
    ledger_next(b, 8, 14, 0);
    assert_non_null(strstr(bucket_names(b), "run%ba7.pt"));
    bucket_end(b);
}

// The checkpoint files that wait in the staging folder of `dir`.
static int staged_in(const char *dir) {
    const char *folder = util_join(dir, ".ckpt-staging");
    int n = 0;
    for (const char *p = util_exists(folder) ? util_list(folder) : ""; *p != 0; p = strchr(p, '\n') + 1) {
        size_t len = strcspn(p, "\n");
        n += len > 5 && memcmp(p + len - 5, ".data", 5) == 0;
    }
    return n;
}

// A store that is away: no more waits for it than it would keep, else the disk fills with what nobody wants; when it is back the
// newest go, and the link is right.
static void test_store_away(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = 1;
    m.r->d.num_remote_to_keep = 2;
    run_open(m.r);
    save_wait(&m, 1);
    bucket_fail(b, "", CKPT_NET, -1);   // everything
    for (int i = 2; i <= 8; i++) {
        ckpt_timestamp t = at_batch(i);
        run_set(m.r, i);
        (void)!ckpt_saver_save(m.r->s, &t);             // the failure of the one before
        (void)!ckpt_saver_wait(m.r->s, 0);
        while (ckpt_uploader_wait(m.u, 0) != CKPT_OK) {}
        assert_true(staged_in(dir) <= 2);
        assert_string_equal(names_in(dir), util_fmt("ba%d.pt latest.pt", i));
    }
    assert_int_equal(staged_in(dir), 2);
    assert_string_equal(bucket_names(b), "run%ba1.pt run%latest.pt.symlink");
    bucket_fail(b, NULL, CKPT_OK, 0);
    while (ckpt_saver_wait(m.r->s, 0) != CKPT_OK) {}
    ckpt_timestamp t = at_batch(9);
    run_set(m.r, 9);
    ok(ckpt_saver_save(m.r->s, &t));
    ok(ckpt_saver_wait(m.r->s, 0));
    ok(ckpt_uploader_wait(m.u, 0));                     // the store answers again: what failed goes now
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba8.pt run%ba9.pt run%latest.pt.symlink");
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba9.pt");
    assert_int_equal(staged_in(dir), 0);
    ckpt_saver_counts c;
    ckpt_saver_stats(m.r->s, &c);
    assert_int_equal(c.uploaded, 3);
    assert_int_equal(c.failed, 6);
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
    bucket_end(b);
}

// A store that cannot keep up: what has begun is finished, then the newest go; those between are not sent to be removed at once,
// and leave the disk as well. What is pinned, the best and every Nth go.
static void test_store_too_slow(void **state) {
    (void)state;
    for (int none = 0; none < 2; none++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = none ? CKPT_KEEP_NONE : 1;
        m.r->d.num_remote_to_keep = 2;
        m.r->d.keep_every = 4;
        m.r->d.keep_best = "min:state/metrics/loss";    // 5 10 4 9 3 8 2 7 1 6 0 5: of batch 11
        run_open(m.r);
        bucket_hold(b, true);
        for (int i = 1; i <= 14; i++) {
            run_save(m.r, i);
            for (int k = 0; i == 1 && k < 60000 && !bucket_is_busy(b); k++) usleep(1000);
        }
        assert_int_equal(staged_in(dir), 7);    // the first is on its way; 13, 14; 4, 8, 12; 11 is the best
        ckpt_saver_counts c;
        ckpt_transfer_stats all;
        ckpt_saver_stats(m.r->s, &c);
        ckpt_uploader_stats(m.u, &all);
        assert_int_equal(c.pending, 7);         // and nothing that was given up
        assert_int_equal(all.pending, 7);
        bucket_hold(b, false);
        ok(ckpt_saver_wait(m.r->s, 0));
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), "run%ba11.pt run%ba12.pt run%ba13.pt run%ba14.pt run%ba4.pt run%ba8.pt run%latest.pt.symlink");
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba14.pt");
        assert_null(strstr(b->log, "put run/ba2.pt\n"));
        assert_null(strstr(b->log, "put run/ba10.pt\n"));
        assert_int_equal(staged_in(dir), 0);
        if (none) assert_string_equal(names_in(dir), "ba11.pt ba12.pt ba4.pt ba8.pt");
        else assert_string_equal(names_in(dir), "ba11.pt ba12.pt ba14.pt ba4.pt ba8.pt latest.pt");
        ckpt_saver_stats(m.r->s, &c);
        assert_int_equal(c.uploaded, 7);
        assert_int_equal(c.failed, 0);
        assert_int_equal(c.pending, 0);
        remote_end(&m);
        bucket_end(b);
    }
}

// A newer one that cannot be staged is not on its way: none is given up for it.
static void test_given_up_for_nothing(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir(), *staging = util_join(dir, ".ckpt-staging"), *away = util_join(dir, ".ckpt-away");
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = 2;
    m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    bucket_fail(b, "put run/ba1.pt", CKPT_NET, -1);
    save_held(&m, 1);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_NET);
    ckpt_timestamp t = at_batch(2);
    run_set(m.r, 2);
    assert_int_equal(rename(staging, away), 0);
    util_write_text(staging, "in the way");
    assert_int_not_equal(ckpt_saver_save(m.r->s, &t), CKPT_OK);
    assert_int_equal(unlink(staging), 0);
    assert_int_equal(rename(away, staging), 0);
    (void)!ckpt_saver_wait(m.r->s, 0);
    bucket_fail(b, NULL, CKPT_OK, 0);
    util_write_text(util_join(dir, "note"), "");
    while (ckpt_uploader_wait(m.u, 0) != CKPT_OK) {}
    ok(ckpt_upload_file(m.u, "note", util_join(dir, "note"), true));
    ok(ckpt_uploader_wait(m.u, 0));             // the store answers again
    ok(ckpt_uploader_wait(m.u, 0));
    assert_true(bucket_has(b, "run/ba1.pt"));
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1.pt");
    assert_int_not_equal(ckpt_saver_close(m.r->s, 0), CKPT_OK);
    ckpt_state_free(&m.r->st);
    assert_int_not_equal(ckpt_uploader_close(m.u, 0), CKPT_OK);
    bucket_end(b);
}

// One that got to the store, but for its link, and is given up for newer ones: its object goes when theirs are there.
static void test_given_up_and_there(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    save_wait(&m, 1);
    bucket_fail(b, "put run/latest", CKPT_NET, -1);
    for (int i = 2; i <= 3; i++) {
        save_held(&m, i);
        assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_NET);
        while (ckpt_uploader_wait(m.u, 0) != CKPT_OK) {}
    }
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%ba3.pt run%latest.pt.symlink");
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1.pt");
    assert_string_equal(names_in(dir), "ba3.pt");
    bucket_fail(b, NULL, CKPT_OK, 0);
    save_wait(&m, 4);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba4.pt run%latest.pt.symlink");
    assert_string_equal(names_in(dir), "");
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
    bucket_end(b);
}

// Constant names, and two stores of which one was away: the newest is that of the other, whichever is asked first.
static void test_newest_of_two_constant_names(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *a = bucket_new(NULL), *b = bucket_new(NULL);
        for (int life = 0; life < 2; life++) {
            remote_run m = remote_new(util_temp_dir(), a);
            ckpt_uploader *list[2] = { m.u, uploader_on(b, util_temp_dir()) };
            m.r->d.uploaders = list;
            m.r->d.uploaders_count = 2;
            m.r->d.filename = "model.pt";
            m.r->d.remote_file_name = "run/model.pt";
            run_open(m.r);
            ckpt_timestamp t;
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
            if (life == 0) {
                save_wait(&m, 1);
                bucket_fail(k == 0 ? a : b, "put", CKPT_NET, -1);
                bucket_hold(k == 0 ? a : b, true);
                run_save(m.r, 2);
                bucket_hold(k == 0 ? a : b, false);
                assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_NET);
                bucket_fail(k == 0 ? a : b, NULL, CKPT_OK, 0);
            } else {
                assert_int_equal(t.batch, 2);
            }
            (void)!ckpt_saver_close(m.r->s, 0.001);
            ckpt_state_free(&m.r->st);
            (void)!ckpt_uploader_close(m.u, 0.001);
            (void)!ckpt_uploader_close(list[1], 0.001);
        }
        bucket_end(a);
        bucket_end(b);
    }
}

// Two stores, and a machine that has nothing: what the second one holds is counted like what the first one does, so that rotation
// and pins there are right.
static void test_two_stores_on_an_empty_machine(void **state) {
    (void)state;
    bucket *a = bucket_new(NULL), *b = bucket_new(NULL);
    for (int life = 0; life < 2; life++) {
        const char *dir = util_temp_dir();
        remote_run m = remote_new(dir, a);
        ckpt_uploader *list[2] = { m.u, uploader_on(b, util_temp_dir()) };
        m.r->d.uploaders = list;
        m.r->d.uploaders_count = 2;
        m.r->d.num_remote_to_keep = 2;
        m.r->d.keep_every = 4;
        run_open(m.r);
        ckpt_timestamp t;
        assert_int_equal(ckpt_saver_resume(m.r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
        for (int i = life == 0 ? 1 : 6; i <= (life == 0 ? 5 : 8); i++) save_wait(&m, i);
        ok(ckpt_saver_wait(m.r->s, 0));
        const char *want = life == 0 ? "run%ba4.pt run%ba5.pt run%latest.pt.symlink" : "run%ba4.pt run%ba7.pt run%ba8.pt run%latest.pt.symlink";
        assert_string_equal(bucket_names(a), want);
        assert_string_equal(bucket_names(b), want);
        remote_end(&m);
        ok(ckpt_uploader_close(list[1], 0));
    }
    bucket_end(a);
    bucket_end(b);
}

// An earlier process's upload that fails again before the saver looks, and then gets through: the saver learns of it.
static void test_failed_before_it_opened(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir(), *staging = util_temp_dir();
    for (int life = 0; life < 2; life++) {
        remote_run m = remote_new(dir, b);
        ok(ckpt_uploader_close(m.u, 0));
        m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
        bucket_fail(b, "put", CKPT_NET, -1);
        m.u = uploader_on(b, staging);
        ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(1, sizeof *list), false);
        list[0] = m.u;
        m.r->d.uploaders = list;
        if (life == 1) assert_int_equal(ckpt_uploader_wait(m.u, 0), CKPT_NET);
        run_open(m.r);
        ckpt_timestamp t;
        assert_int_equal(ckpt_saver_resume(m.r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
        if (life == 0) {
            save_held(&m, 1);
            assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
        } else {
            assert_string_equal(names_in(dir), "ba1.pt");
            bucket_fail(b, NULL, CKPT_OK, 0);
            save_wait(&m, 2);
            ok(ckpt_uploader_wait(m.u, 0));
            ok(ckpt_saver_wait(m.r->s, 0));
            assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
            assert_string_equal(names_in(dir), "");
            ok(ckpt_saver_close(m.r->s, 0));
        }
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
    }
    bucket_end(b);
}

// A machine that has nothing, and whose saver saves less than the one before it, resumes all that is in the store.
static void test_saves_less_elsewhere(void **state) {
    (void)state;
    static const char *const globs[] = { "state/step", "state/metrics/*" };
    for (int k = 0; k < 4; k++) {
        bucket *b = bucket_new(NULL);
        for (int life = 0; life < 2; life++) {
            remote_run m = remote_new(util_temp_dir(), b);
            m.r->d.sharded = k > 1;
            m.r->d.weights_only = life == 1 && k % 2 == 0;
            m.r->d.ignore_keys = globs;
            m.r->d.ignore_keys_count = life == 1 && k % 2 == 1 ? 2 : 0;
            run_open(m.r);
            if (life == 0) save_wait(&m, 10);
            ckpt_timestamp t = at_batch(0);
            if (life == 1) ok(ckpt_saver_resume(m.r->s, &t));
            if (life == 1) assert_int_equal(t.batch, 10);
            run_check(m.r, 10);
            remote_end(&m);
        }
        bucket_end(b);
    }
}

// A process was killed after a file had its name and before the index had its line, and the file does not say which save it is: the number
// that it is given is none that the ledger has, or it would be taken for what is in the store. What is there by its name is known for that.
static void test_left_without_a_number(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {           // 0: all go from the folder; 1: the store keeps two; 2: all stay, and the index is lost
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *left = util_temp_dir();
        run *o = run_new(left);
        o->d.weights_only = true;
        run_open(o);
        for (int i = 1; i <= 4; i++) run_save(o, i);
        run_end(o);
        for (int life = 0; life < 2; life++) {
            remote_run m = remote_new(dir, b);
            m.r->d.weights_only = true;
            m.r->d.num_checkpoints_to_keep = k == 2 ? CKPT_KEEP_ALL : CKPT_KEEP_NONE;
            m.r->d.num_remote_to_keep = k == 1 ? 2 : 0;
            run_open(m.r);
            ckpt_timestamp t = at_batch(0);
            ckpt_err e = ckpt_saver_resume(m.r->s, &t);
            assert_int_equal(e, life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
            if (life == 1) assert_int_equal(t.batch, 4);
            for (int i = life == 0 ? 1 : 5; i <= (life == 0 ? 3 : 5); i++) save_wait(&m, i);
            for (size_t i = 0; i < m.r->s->index.count; i++) {
                const ckpt__index_line *l = &m.r->s->index.lines[i];
                assert_true(l->t.batch < 4 ? l->number == (uint64_t)l->t.batch : i == 0 || l->number > l[-1].number);
            }
            if (life == 1) assert_string_equal(names_in(dir), k == 2 ? "ba2.pt ba3.pt ba4.pt ba5.pt latest.pt" : "");
            remote_end(&m);
            if (life == 1) continue;
            assert_int_equal(rename(util_join(left, "ba4.pt"), util_join(dir, "ba4.pt")), 0);
            if (k == 2) assert_int_equal(unlink(util_join(dir, CKPT__INDEX_FILE)), 0);
            if (k == 2) assert_int_equal(unlink(util_join(dir, "ba1.pt")), 0);
        }
        assert_string_equal(bucket_names(b), k == 1 ? "run%ba4.pt run%ba5.pt run%latest.pt.symlink" :
                                             "run%ba1.pt run%ba2.pt run%ba3.pt run%ba4.pt run%ba5.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// Makes an index, or a ledger, say of 1 that it has yet to come to the store.
static void set_back(const char *dir, const char *file) {
    ckpt__index ix;
    ckpt_allocator a = { NULL, NULL };
    ok(ckpt__index_init(&ix, &a, dir));
    (void)snprintf(ix.file, sizeof ix.file, "/%s", ckpt__os_path_base(file));
    ok(ckpt__index_load(&ix));
    assert_true(ix.count == 2 && ix.lines[0].number == 1);
    ix.lines[0].upload = CKPT__UPLOAD_PENDING;
    ok(ckpt__index_write(&ix));
    ckpt__index_free(&ix);
}

static pthread_t owner;
static int       at_gate, looks;        // a worker drops lines whose file is gone; so often has the owner looked for files meanwhile
static int       gate_shut;

static void stand_at_gate(const char *name, const char *path) {
    if (strcmp(name, "lstat") != 0 || strstr(path, "/ba") == NULL || __atomic_load_n(&gate_shut, __ATOMIC_SEQ_CST) == 0) return;
    if (pthread_equal(pthread_self(), owner)) {
        if (__atomic_load_n(&at_gate, __ATOMIC_SEQ_CST) != 0) looks++;
        return;
    }
    __atomic_store_n(&at_gate, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&gate_shut, __ATOMIC_SEQ_CST) != 0) usleep(1000);
}

// Does the owner, who is this process's first thread, sleep? Where the system does not tell, after a while.
static bool owner_sleeps(void) {
    FILE *f = fopen("/proc/self/stat", "r");
    char text[256] = "";
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f == NULL) usleep(100000);
    else fclose(f);
    const char *end = n > 0 ? strrchr(text, ')') : NULL;
    return end == NULL || strncmp(end, ") S", 3) == 0;
}

// Opens the gate when the owner waits for its turn, or has looked.
static void *open_gate(void *arg) {
    while (__atomic_load_n((int *)arg, __ATOMIC_SEQ_CST) == 0 || !owner_sleeps()) usleep(1000);
    __atomic_store_n(&gate_shut, 0, __ATOMIC_SEQ_CST);
    return NULL;
}

// Resume is called while an upload that the open has handed over comes, and lines leave the index: it looks when that is done.
static void test_resumes_while_one_comes(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    pthread_t opener;
    ckpt_timestamp t;
    int resumes = 0;
    for (int life = 0; life < 2; life++) {
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = life == 0 ? CKPT_KEEP_ALL : CKPT_KEEP_NONE;
        owner = pthread_self();
        if (life == 1) bucket_hold_only(b, "run/ba1");      // the open needs the turn in which it comes
        run_open(m.r);
        if (life == 0) {
            save_wait(&m, 1);
            bucket_fail(b, "put run/ba2.pt", CKPT_NET, -1);
            save_held(&m, 2);
            assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
            (void)!ckpt_uploader_close(m.u, 0);
            ckpt_state_free(&m.r->st);
            set_back(dir, ".ckpt-index.jsonl");
            set_back(dir, ledger_path(dir));
            assert_int_equal(unlink(bucket_path(b, "run/ba1.pt")), 0);
            continue;
        }
        __atomic_store_n(&gate_shut, 1, __ATOMIC_SEQ_CST);
        fault_set_spy(stand_at_gate);
        bucket_hold(b, false);
        for (int i = 0; __atomic_load_n(&at_gate, __ATOMIC_SEQ_CST) == 0 && i < 60000; i++) usleep(1000);
        assert_int_equal(__atomic_load_n(&at_gate, __ATOMIC_SEQ_CST), 1);
        assert_int_equal(pthread_create(&opener, NULL, open_gate, &resumes), 0);
        __atomic_store_n(&resumes, 1, __ATOMIC_SEQ_CST);
        ok(ckpt_saver_resume(m.r->s, &t));
        fault_set_spy(NULL);
        pthread_join(opener, NULL);
        assert_int_equal(looks, 0);
        assert_int_equal(t.batch, 2);
        bucket_fail(b, NULL, CKPT_OK, 0);
        (void)!ckpt_saver_close(m.r->s, 0);
        (void)!ckpt_uploader_close(m.u, 0);
        ckpt_state_free(&m.r->st);
    }
    bucket_end(b);
}

// A process that saves 1 and is killed before it hears that the store has it: its index, or its ledger, is as it was then. The ledger's
// path.
static const char *save_unheard(bucket *b, const char *dir, bool of_index) {
    size_t size = 0;
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    const char *ledger = util_join(dir, m.r->s->remotes[0].ledger.file + 1);
    const char *file = of_index ? util_join(dir, ".ckpt-index.jsonl") : ledger;
    bucket_hold(b, true);
    run_save(m.r, 1);
    char *before = util_read(file, &size);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    remote_end(&m);
    util_write(file, before, size);
    return ledger;
}

// A file that was damaged after it had got to the store, which no sums tell of, when a killed process did not hear of that: it is not
// sent again over the good object.
static void test_damaged_is_not_sent(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    (void)save_unheard(b, dir, false);
    int fd = open(util_join(dir, "ba1.pt"), O_RDWR);
    assert_true(fd >= 0 && pwrite(fd, "x", 1, 6000) == 1);
    close(fd);
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_wait(m.r->s, 0));
    check_file(bucket_path(b, "run/ba1.pt"), 1);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    assert_int_equal(t.batch, 1);
    remote_end(&m);
    bucket_end(b);
}

// A checkpoint that a killed process had not entered into its ledger yet, and that is damaged when the next one finds it: the store's
// latest does not lead to it.
static void test_damaged_is_not_handed_over(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    assert_int_equal(unlink(save_unheard(b, dir, true)), 0);
    assert_int_equal(unlink(bucket_path(b, "run/ba1.pt")), 0);
    assert_int_equal(unlink(bucket_path(b, "run/latest.pt.symlink")), 0);
    util_flip(util_join(dir, "ba1.pt"), 6000, 1);
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "");
    ckpt_timestamp t;
    assert_int_equal(ckpt_saver_resume(m.r->s, &t), CKPT_CORRUPT);
    remote_end(&m);
    bucket_end(b);
}

// An object that was confirmed, and has gone from the store before the next process publishes it: it is sent again, and then the link is
// put.
static void test_removed_before_it_was_published(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    bucket_fail(b, "put run/latest", CKPT_NET, -1);
    save_held(&m, 1);
    (void)!ckpt_saver_close(m.r->s, 0);
    ckpt_state_free(&m.r->st);
    (void)!ckpt_uploader_close(m.u, 0);
    assert_string_equal(bucket_names(b), "run%ba1.pt");
    assert_int_equal(unlink(bucket_path(b, "run/ba1.pt")), 0);
    bucket_fail(b, NULL, CKPT_OK, 0);
    m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba1.pt run%latest.pt.symlink");
    check_file(bucket_path(b, "run/ba1.pt"), 1);
    remote_end(&m);
    bucket_end(b);
}

// The answer to a put is lost, and whose object is there cannot be asked either: that passes as well, and the same process goes on.
static void test_lost_answer_and_no_look(void **state) {
    (void)state;
    static const ckpt_err why[] = { CKPT_NET, CKPT_AUTH };      // a network that is away, rights that are renewed
    for (int k = 0; k < UTIL_COUNT(why); k++) {
        bucket *b = bucket_new(NULL);
        ckpt_transfer_stats stats;
        fault_hope = fault_hope_most = 0.02;
        remote_run m = remote_new(util_temp_dir(), b);
        run_open(m.r);
        bucket_hold(b, true);
        b->loses = true;
        bucket_fail(b, "size run/ba1", why[k], -1);
        run_save(m.r, 1);
        bucket_hold(b, false);
        assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_NET);
        usleep(200000);                     // for some tries
        pthread_mutex_lock(&b->lock);
        b->loses = false;
        pthread_mutex_unlock(&b->lock);
        bucket_fail(b, NULL, CKPT_OK, 0);
        for (int i = 0; i < 6000; i++) {
            ckpt_uploader_stats(m.u, &stats);
            if (stats.failed == 0 && stats.pending == 0) break;
            usleep(10000);
        }
        assert_int_equal(stats.failed, 0);
        check_file(bucket_path(b, "run/ba1.pt"), 1);
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
        bucket_end(b);
        fault_hope = 60, fault_hope_most = 900;
    }
}

// A save that was given up, whose object is there all the same since only the answer was lost: when somebody pins it, it stays.
static void test_given_up_and_pinned(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    b->loses = true;
    bucket_hold(b, true);
    run_save(m.r, 1);
    bucket_hold(b, false);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_NET);
    bucket_hold(b, true);
    b->loses = false;
    run_save(m.r, 2);
    pin(dir, "ba1.pt", true);
    bucket_hold(b, false);
    (void)!ckpt_saver_wait(m.r->s, 0);
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
    (void)!ckpt_saver_close(m.r->s, 0);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
    bucket_end(b);
}

// A pinned checkpoint that is damaged and fetched again is pinned as before.
static void test_fetched_stays_pinned(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    for (int life = 0; life < 2; life++) {
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = m.r->d.num_remote_to_keep = 1;
        run_open(m.r);
        ckpt_timestamp t;
        assert_int_equal(ckpt_saver_resume(m.r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
        for (int i = life == 0 ? 1 : 2; i <= (life == 0 ? 1 : 3); i++) save_wait(&m, i);
        remote_end(&m);
        if (life == 1) break;
        pin(dir, "ba1.pt", true);
        util_flip(util_join(dir, "ba1.pt"), 6000, 1);
    }
    assert_string_equal(names_in(dir), "ba1.pt ba3.pt latest.pt");
    check_file(util_join(dir, "ba1.pt"), 1);
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba3.pt run%latest.pt.symlink");
    bucket_end(b);
}

// One name for all objects, and a name of its own for each file: a save whose upload a newer one has replaced is not sent by the
// next process, over the newer one; and it may leave the folder.
static void test_replaced_in_the_store(void **state) {
    (void)state;
    for (int none = 0; none < 2; none++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        for (int life = 0; life < 2; life++) {
            remote_run m = remote_new(dir, b);
            m.r->d.num_checkpoints_to_keep = none ? CKPT_KEEP_NONE : 5;
            m.r->d.remote_file_name = "run/model.pt";
            run_open(m.r);
            ckpt_timestamp t;
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
            if (life == 0) {
                bucket_hold(b, true);
                for (int i = 1; i <= 4; i++) {
                    run_save(m.r, i);
                    for (int k = 0; i == 1 && k < 60000 && !bucket_is_busy(b); k++) usleep(1000);
                }
                bucket_hold(b, false);
            } else {
                assert_int_equal(t.batch, 4);
            }
            ok(ckpt_saver_wait(m.r->s, 0));
            assert_string_equal(names_in(dir), none ? life == 0 ? "" : "ba4.pt" : "ba1.pt ba2.pt ba3.pt ba4.pt latest.pt");
            check_file(bucket_path(b, "run/model.pt"), 4);
            remote_end(&m);
        }
        bucket_end(b);
    }
}

// A pin that somebody sets while an upload is on its way counts when it ends.
static void test_pinned_meanwhile(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    save_wait(&m, 1);
    bucket_hold(b, true);
    run_save(m.r, 2);
    pin(dir, "ba1.pt", true);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
    remote_end(&m);
    bucket_end(b);
}

static const char *full_for;            // "/..ckpt-index" or "/..ckpt-remote": what cannot be written while the disk is full

static void fill_disk(const char *name, const char *path) {
    const char *what = __atomic_load_n(&full_for, __ATOMIC_SEQ_CST);
    if (what != NULL && strcmp(name, "open") == 0 && strstr(path, what) != NULL) fault_arm_here("open", ENOSPC);
}

// There is room when a checkpoint's blocks are free, which they are not before its last descriptor is closed.
static void free_blocks(const char *name, const char *path, int fd) {
    struct stat st;
    (void)path;
    if (strcmp(name, "close") != 0 || fstat(fd, &st) != 0 || st.st_nlink > 0 || st.st_size < WEIGHTS) return;
    __atomic_store_n(&full_for, (const char *)NULL, __ATOMIC_SEQ_CST);
    (void)fault_disarm();
}

// Where there is no room to stage what was saved, the old one goes nonetheless: else there would be none for the next one either.
static void test_full_disk_stages_nothing(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = 1;
    run_open(m.r);
    save_wait(&m, 1);
    __atomic_store_n(&full_for, "/.ckpt-staging", __ATOMIC_SEQ_CST);
    fault_set_spy(fill_disk);
    ckpt_timestamp t = at_batch(2);
    run_set(m.r, 2);
    ckpt_err e = ckpt_saver_save(m.r->s, &t);
    fault_set_spy(NULL);
    __atomic_store_n(&full_for, (const char *)NULL, __ATOMIC_SEQ_CST);
    assert_true(fault_disarm());
    assert_int_equal(e, CKPT_NO_SPACE);
    expect_sentence("cannot hand it over");
    assert_string_equal(names_in(dir), "ba2.pt latest.pt");
    save_wait(&m, 3);
    assert_string_equal(names_in(dir), "ba3.pt latest.pt");
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NO_SPACE);
    ckpt_state_free(&m.r->st);
    ok(ckpt_uploader_close(m.u, 0));
    bucket_end(b);
}

// What leaves the folder when it has come to the store leaves a full disk, too, on which nobody can write that it came.
static void test_full_disk_keeps_none(void **state) {
    (void)state;
    static const char *const what[] = { "/..ckpt-index", "/..ckpt-remote" };
    for (int i = 0; i < UTIL_COUNT(what); i++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
        run_open(m.r);
        save_wait(&m, 1);
        bucket_hold(b, true);
        run_save(m.r, 2);
        __atomic_store_n(&full_for, what[i], __ATOMIC_SEQ_CST);
        __atomic_store_n(&fault_watch, free_blocks, __ATOMIC_SEQ_CST);
        fault_set_spy(fill_disk);
        bucket_hold(b, false);
        ckpt_err e = ckpt_saver_wait(m.r->s, 0);
        __atomic_store_n(&fault_watch, (void (*)(const char *, const char *, int))NULL, __ATOMIC_SEQ_CST);
        fault_set_spy(NULL);
        ok(e);
        assert_null(__atomic_load_n(&full_for, __ATOMIC_SEQ_CST));
        assert_string_equal(names_in(dir), "");
        assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "ba2.pt"));
        assert_non_null(strstr(util_read(ledger_path(dir), NULL), "published"));
        save_wait(&m, 3);
        assert_string_equal(names_in(dir), "");
        remote_end(&m);
        bucket_end(b);
    }
}

// So does one that somebody sets on what rotation has just let go of, while the new one's copy for the store is being made: the file was
// there to be pinned, and it stays, with all that its line says.
static const char *pins_in;             // the folder, until the pin is set

static void pin_when_staged(const char *name, const char *path, int fd) {
    const char *dir = __atomic_load_n(&pins_in, __ATOMIC_SEQ_CST);
    int saved = errno;
    (void)fd;
    if (dir == NULL || strcmp(name, "linkat") != 0 || strstr(path, "/.ckpt-staging") == NULL) return;
    if (strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "ba1.pt") != NULL) return;
    __atomic_store_n(&pins_in, (const char *)NULL, __ATOMIC_SEQ_CST);
    pin(dir, "ba1.pt", true);
    errno = saved;
}

static void test_pinned_while_staged(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    save_wait(&m, 1);
    __atomic_store_n(&pins_in, dir, __ATOMIC_SEQ_CST);
    __atomic_store_n(&fault_watch, pin_when_staged, __ATOMIC_SEQ_CST);
    run_save(m.r, 2);
    __atomic_store_n(&fault_watch, (void (*)(const char *, const char *, int))NULL, __ATOMIC_SEQ_CST);
    assert_null(__atomic_load_n(&pins_in, __ATOMIC_SEQ_CST));
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt latest.pt");
    ok(ckpt_saver_wait(m.r->s, 0));
    save_wait(&m, 3);
    assert_string_equal(names_in(dir), "ba1.pt ba3.pt latest.pt");
    assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "found"));
    pin(dir, "ba1.pt", false);
    save_wait(&m, 4);
    assert_string_equal(names_in(dir), "ba4.pt latest.pt");
    remote_end(&m);
    bucket_end(b);
}

// Nor does it leave the store when its file is away before anybody has looked what is pinned for that: it was pinned, and comes back.
static void test_pinned_and_away(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir(), *file = util_join(dir, "ba1.pt"), *aside = util_join(util_temp_dir(), "ba1.pt");
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    save_wait(&m, 1);
    pin(dir, "ba1.pt", true);
    assert_int_equal(rename(file, aside), 0);
    save_wait(&m, 2);
    save_wait(&m, 3);
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba3.pt run%latest.pt.symlink");
    assert_int_equal(rename(aside, file), 0);
    save_wait(&m, 4);
    assert_string_equal(names_in(dir), "ba1.pt ba4.pt latest.pt");
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba4.pt run%latest.pt.symlink");
    pin(dir, "ba1.pt", false);
    save_wait(&m, 5);
    assert_string_equal(names_in(dir), "ba5.pt latest.pt");
    assert_string_equal(bucket_names(b), "run%ba5.pt run%latest.pt.symlink");
    remote_end(&m);
    bucket_end(b);
}

// What was pinned and is let go again leaves the store, too, though the next save takes it from the folder before anybody looks what is
// pinned for the store: while the saver is open [0..3], and between two [4..5]; and when its file is gone as well [2..3].
static void test_unpinned_leaves_the_store(void **state) {
    (void)state;
    for (int k = 0; k < 6; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        int lives = k >= 4 ? 2 : 1;
        for (int life = 0; life < lives; life++) {
            remote_run m = remote_new(dir, b);
            m.r->d.num_checkpoints_to_keep = k % 2 != 0 ? CKPT_KEEP_NONE : 1;
            m.r->d.num_remote_to_keep = 1;
            run_open(m.r);
            ckpt_timestamp t;
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
            if (life == 0) {
                bucket_hold(b, true);
                run_save(m.r, 1);
                pin(dir, "ba1.pt", true);
                bucket_hold(b, false);
                ok(ckpt_saver_wait(m.r->s, 0));
                save_wait(&m, 2);
                assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%latest.pt.symlink");
                if (lives > 1) remote_end(&m);
                pin(dir, "ba1.pt", false);
                if (k / 2 == 1) assert_int_equal(unlink(util_join(dir, "ba1.pt")), 0);
                if (lives > 1) continue;
            }
            save_wait(&m, 3);
            assert_string_equal(names_in(dir), k % 2 != 0 ? "" : "ba3.pt latest.pt");
            assert_string_equal(bucket_names(b), "run%ba3.pt run%latest.pt.symlink");
            remote_end(&m);
        }
        bucket_end(b);
    }
}

// A pin is of a name in the folder. Where that has one name for all saves, and the store one for each, what was saved before under the
// pinned name leaves the store like any other: each would be pinned there for ever.
static void test_pinned_name_in_the_store(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.filename = "model.pt";
    m.r->d.num_checkpoints_to_keep = m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    for (int i = 1; i <= 4; i++) {
        save_wait(&m, i);
        if (i == 1) pin(dir, "model.pt", true);
        assert_string_equal(bucket_names(b), util_fmt("run%%ba%d.pt run%%latest.pt.symlink", i));
    }
    assert_non_null(strstr(m.r->log, "2 a save of the same name has replaced model.pt, which was pinned"));
    remote_end(&m);
    bucket_end(b);
}

// The newest that no store was told of, since the process died before, is handed over at resume: also when the index has somebody's
// pinned copy of another run's behind it.
static void test_left_before_a_copy(void **state) {
    (void)state;
    for (int copied = 0; copied < 2; copied++) {
        const char *dirs[] = { util_temp_dir(), util_temp_dir() };
        for (int i = 0; i < 2; i++) {
            run *r = run_new(dirs[i]);
            run_open(r);
            for (int k = 1; k <= 2 + 2 * i; k++) run_save(r, k);
            run_end(r);
        }
        if (copied) {
            assert_int_equal(rename(util_join(dirs[1], "ba4.pt"), util_join(dirs[0], "best.pt")), 0);
            pin(dirs[0], "best.pt", true);
        }
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(dirs[0], b);
        ckpt_timestamp t;
        run_open(m.r);
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 2);
        assert_true(m.r->s->index.lines[m.r->s->index.count - 1].stray == (copied > 0));
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), "run%ba2.pt run%latest.pt.symlink");
        remote_end(&m);
        bucket_end(b);
    }
}

// A run that goes on with another store, beside its own or instead of it, or with one more: what it goes on from comes there as well, for
// after the last step nothing newer does. What a store has though its ledger is lost is not put again.
static void test_goes_on_with_another_store(void **state) {
    (void)state;
    for (int k = 0; k < 6; k++) {
        const char *dir = util_temp_dir();
        bucket *first = bucket_new_as(NULL, "first"), *other = bucket_new_as(NULL, "other");
        bool lost = k >= 4, both = k % 2 != 0;
        remote_run m = remote_new(dir, first);
        m.r->d.num_checkpoints_to_keep = k / 2 == 1 ? 1 : CKPT_KEEP_ALL;
        run_open(m.r);
        for (int i = 1; i <= 3; i++) save_wait(&m, i);
        ok(ckpt_saver_wait(m.r->s, 0));
        const char *ledger = util_join(dir, m.r->s->remotes[0].ledger.file + 1);
        remote_end(&m);
        if (lost) assert_int_equal(unlink(ledger), 0);
        int puts = bucket_count(first, "put ");
        m = remote_new(dir, lost ? first : other);
        ckpt_uploader *uploaders[2] = { m.u, NULL };
        bucket *second = lost ? other : first;
        if (both) uploaders[1] = uploader_on(second, NULL);
        m.r->d.uploaders = uploaders;
        m.r->d.uploaders_count = 1 + both;
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 3);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(first), "run%ba1.pt run%ba2.pt run%ba3.pt run%latest.pt.symlink");
        assert_string_equal(bucket_names(other), lost && !both ? "" : "run%ba3.pt run%latest.pt.symlink");
        if (lost) assert_int_equal(bucket_count(first, "put "), puts);
        remote_end(&m);
        if (both) ok(ckpt_uploader_close(uploaders[1], 0));
        bucket_end(first);
        bucket_end(other);
    }
}

// The index cannot be written when an upload ends: what would have gone, here and there, goes another time.
static void test_index_cannot_be_written(void **state) {
    (void)state;
    for (int none = 0; none < 2; none++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl"), *kept = util_join(dir, ".ckpt-kept");
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = none ? CKPT_KEEP_NONE : CKPT_KEEP_ALL;
        m.r->d.num_remote_to_keep = 1;
        run_open(m.r);
        save_wait(&m, 1);
        bucket_hold(b, true);
        run_save(m.r, 2);
        assert_int_equal(rename(index, kept), 0);
        util_mkdir(index);                              // nothing can be renamed to it
        util_write_text(util_join(index, "in the way"), "");
        bucket_hold(b, false);
        assert_int_not_equal(ckpt_saver_wait(m.r->s, 0), CKPT_OK);
        util_remove_tree(index);
        assert_int_equal(rename(kept, index), 0);
        save_wait(&m, 3);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), "run%ba3.pt run%latest.pt.symlink");
        assert_string_equal(names_in(dir), none ? "" : "ba1.pt ba2.pt ba3.pt latest.pt");
        assert_int_not_equal(ckpt_saver_close(m.r->s, 0), CKPT_OK);
        ckpt_state_free(&m.r->st);
        ok(ckpt_uploader_close(m.u, 0));
        bucket_end(b);
    }
}

// A ledger that cannot be written: the checkpoint is not handed over, since nobody would know of the object; the call says so,
// what comes later goes, and the next process hands over what was kept back.
static void test_ledger_cannot_be_written(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    run_open(m.r);
    save_wait(&m, 1);
    ok(ckpt_saver_wait(m.r->s, 0));
    const char *ledger = util_join(dir, m.r->s->remotes[0].ledger.file + 1);
    assert_true(util_exists(ledger));
    assert_int_equal(unlink(ledger), 0);
    util_mkdir(ledger);                                 // nothing can be renamed to it
    util_write_text(util_join(ledger, "in the way"), "");
    ckpt_timestamp t = at_batch(2);
    run_set(m.r, 2);
    ckpt_err e = ckpt_saver_save(m.r->s, &t);
    if (e == CKPT_OK) e = ckpt_saver_wait(m.r->s, 0);
    assert_int_equal(e, CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "cannot note what goes to"));
    assert_false(bucket_has(b, "run/ba2.pt"));
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1.pt");
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt latest.pt");
    assert_int_equal(unlink(util_join(ledger, "in the way")), 0);
    assert_int_equal(rmdir(ledger), 0);
    save_wait(&m, 3);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba3.pt run%latest.pt.symlink");
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_EXISTS);      // the first failure ever
    ckpt_state_free(&m.r->st);
    ok(ckpt_uploader_close(m.u, 0));
    // The next process hands over what was kept back.
    m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 3);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%ba3.pt run%latest.pt.symlink");
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba3.pt");
    remote_end(&m);
    bucket_end(b);
}

// What is pinned, every Nth, the best, and what the link names stay in the store.
static void test_remote_rotation_keeps(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 1;
    m.r->d.keep_every = 5;
    m.r->d.keep_best = "min:state/metrics/loss";        // (5 * step) % 11: the smallest of 1..8 is step 8's 7... step 7's 2
    run_open(m.r);
    for (int i = 1; i <= 8; i++) {
        save_wait(&m, i);
        if (i == 2) pin(m.r->dir, "ba2.pt", true);
    }
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba2.pt run%ba5.pt run%ba7.pt run%ba8.pt run%latest.pt.symlink");
    // A checkpoint that could not be published keeps the one that is.
    bucket_fail(b, "put run/latest.pt.symlink", CKPT_AUTH, -1);
    save_held(&m, 9);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_AUTH);
    assert_true(bucket_has(b, "run/ba8.pt") && bucket_has(b, "run/ba9.pt"));
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba8.pt");
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_AUTH);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_AUTH);
    bucket_end(b);
}

static void first_unread(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, "/ba1.pt")) fault_arm_here("open", ESTALE);
}

// So it is when the rule is new, or another one: what lies there learns its metric with the files of the folder, before those go.
// Of a file that cannot be read then the object stays as well.
static void test_best_by_a_new_rule(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        for (int life = 0; life < 2; life++) {
            remote_run m = remote_new(dir, b);
            ckpt_timestamp t;
            m.r->d.num_remote_to_keep = life == 0 ? 5 : 2;
            m.r->d.num_checkpoints_to_keep = life == 0 ? CKPT_KEEP_ALL : 1;
            m.r->d.keep_best = life == 1 ? "min:state/metrics/loss" : k == 1 ? "min:state/metrics/other" : NULL;
            double other = 1;
            ckpt_bind_float(&m.r->st, "state/metrics/other", &other);
            if (life == 1 && k == 2) fault_set_spy(first_unread);
            run_open(m.r);
            if (life == 1) ok(ckpt_saver_resume(m.r->s, &t));
            fault_set_spy(NULL);
            for (int i = life * 3 + 1; i <= life * 3 + 3; i++) {
                run_set(m.r, i);
                m.r->loss = other = i;
                t = at_batch(i);
                ok(ckpt_saver_save(m.r->s, &t));
                ok(ckpt_saver_wait(m.r->s, 0));
            }
            remote_end(&m);
        }
        if (k == 2) assert_true(fault_disarm());
        assert_string_equal(bucket_names(b), util_fmt("run%%ba1.pt %srun%%ba5.pt run%%ba6.pt run%%latest.pt.symlink", k == 2 ? "run%ba2.pt " : ""));
        bucket_end(b);
    }
}

// A store that lets us put but not remove says so once.
static void test_removal_refused(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 1;
    run_open(m.r);
    bucket_fail(b, "remove", CKPT_AUTH, -1);
    save_wait(&m, 1);
    save_held(&m, 2);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_AUTH);
    if (strstr(ckpt_last_error(), "cannot remove run/ba1.pt from custom://") == NULL) fail_msg("%s", ckpt_last_error());
    for (int i = 3; i <= 5; i++) save_wait(&m, i);
    assert_int_equal(bucket_count(b, "remove"), 1);
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_AUTH);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_AUTH);
    bucket_end(b);
}

// What it would not remove a later process asks for one by one, not for all of it with each start; when it has removed one, the others
// go as well.
static void test_removal_refused_at_each_start(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    for (int i = 1; i <= 5; i++) save_wait(&m, i);
    remote_end(&m);
    for (int life = 0; life < 3; life++) {
        bool refuses = life < 2;
        int before = bucket_count(b, "remove");
        m = remote_new(dir, b);
        m.r->d.num_remote_to_keep = 1;
        bucket_fail(b, "remove", CKPT_AUTH, refuses ? -1 : 0);
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        save_held(&m, 6 + 2 * life);
        assert_int_equal(ckpt_saver_wait(m.r->s, 0), refuses ? CKPT_AUTH : CKPT_OK);
        save_wait(&m, 7 + 2 * life);
        assert_int_equal(bucket_count(b, "remove") - before, refuses ? 1 : 10);
        ckpt_transfer_stats stats;
        ckpt_uploader_stats(m.u, &stats);
        assert_int_equal(stats.failed, refuses);
        assert_int_equal(ckpt_saver_close(m.r->s, 0), refuses ? CKPT_AUTH : CKPT_OK);
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), refuses ? CKPT_AUTH : CKPT_OK);
    }
    assert_string_equal(bucket_names(b), "run%ba11.pt run%latest.pt.symlink");
    bucket_end(b);
}

// One that cannot be removed, for whatever reason, keeps no others, in no later process either. A store that has no way to remove
// says so of two.
static void test_removal_fails_for_one(void **state) {
    (void)state;
    static const ckpt_err how[] = { CKPT_IO, CKPT_NET, CKPT_UNSUPPORTED, CKPT_UNSUPPORTED };
    for (int k = 0; k < UTIL_COUNT(how); k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        bool all = k == 3;
        fault_pause = 0.01;
        for (int life = 0, i = 0; life < 2; life++) {
            remote_run m = remote_new(dir, b);
            ckpt_timestamp t;
            m.r->d.num_remote_to_keep = 1;
            bucket_fail(b, all ? "remove" : "remove run/ba1.pt", how[k], -1);
            run_open(m.r);
            if (life > 0) ok(ckpt_saver_resume(m.r->s, &t));
            int told = 0, before = bucket_count(b, "remove");
            for (int j = 0; j < 5; j++) {
                save_held(&m, ++i);
                told += ckpt_saver_wait(m.r->s, 0) == how[k];
                usleep(20000);
            }
            assert_true(how[k] == CKPT_UNSUPPORTED ? told == 1 : told >= 1);
            if (all) assert_int_equal(bucket_count(b, "remove") - before, 3);        // the first of them once more
            for (int j = 2; j < i && !all; j++) assert_false(bucket_has(b, util_fmt("run/ba%d.pt", j)));
            assert_true(bucket_has(b, "run/ba1.pt"));
            assert_int_equal(ckpt_saver_close(m.r->s, 0), how[k]);
            ckpt_state_free(&m.r->st);
            assert_int_equal(ckpt_uploader_close(m.u, 0), how[k]);
        }
        bucket_end(b);
        fault_pause = 900;
    }
}

// One that is held for some time, and one that is held for ever, keep no others; rights that come back are found out. Nobody is told
// more than once, nor is the store asked all the time.
static void test_removal_refused_for_some_time(void **state) {
    (void)state;
    static const char *const refuses[] = { "remove run/ba1.pt", "remove run/ba1.pt", "remove" };
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        remote_run m = remote_new(util_temp_dir(), b);
        int i = 2;
        bool gone = false;
        double begin = ckpt__os_now();
        m.r->d.num_remote_to_keep = 1;
        fault_pause = 0.01;
        run_open(m.r);
        bucket_fail(b, refuses[k], CKPT_AUTH, k == 0 ? 2 : k == 1 ? -1 : 5);
        save_wait(&m, 1);
        save_held(&m, 2);
        assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_AUTH);
        for (double until = ckpt__os_now() + 60; !gone && ckpt__os_now() < until;) {
            save_wait(&m, ++i);
            gone = true;
            for (int j = k == 1 ? 2 : 1; j < i; j++) gone = gone && !bucket_has(b, util_fmt("run/ba%d.pt", j));
        }
        assert_true(gone);
        if (k == 1) {                       // it is asked for still, and less and less often
            for (int j = 0; j < 20; j++) save_wait(&m, ++i);
            int asked = bucket_count(b, "remove run/ba1.pt"), most = 4;
            for (double pause = fault_pause; pause < ckpt__os_now() - begin; pause *= 2) most += 2;
            assert_true(bucket_has(b, "run/ba1.pt") && asked >= 2 && asked <= most);
            assert_int_equal(bucket_count(b, "remove"), asked + i - 2);
        }
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_AUTH);
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_AUTH);
        bucket_end(b);
        fault_pause = 900;
    }
}

// One object has been held for very long, so that it is hardly asked for any more. When the store refuses another one the rest waits
// no longer for that.
static void test_removal_refused_for_another(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 1;
    fault_pause = 0.01;
    run_open(m.r);
    bucket_fail(b, "remove run/ba1.pt", CKPT_AUTH, -1);
    save_wait(&m, 1);
    save_held(&m, 2);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0), CKPT_AUTH);
    int i = 2, held = 0;
    ckpt__remote *r = &m.r->s->remotes[0];
    for (double until = ckpt__os_now() + 60; (r->stuck || bucket_has(b, "run/ba2.pt")) && ckpt__os_now() < until;) save_wait(&m, ++i);
    assert_false(r->stuck);
    r->pause = 50000;                       // as after days
    r->again_at = ckpt__os_now() + r->pause;
    held = i;
    bucket_fail(b, util_fmt("remove run/ba1.pt|remove run/ba%d.pt", held), CKPT_AUTH, -1);
    bool gone = false;
    for (double until = ckpt__os_now() + 60; !gone && ckpt__os_now() < until;) {
        save_wait(&m, ++i);
        gone = i > held + 2;
        for (int j = held + 1; j < i; j++) gone = gone && !bucket_has(b, util_fmt("run/ba%d.pt", j));
    }
    assert_true(gone);
    assert_true(bucket_has(b, "run/ba1.pt") && bucket_has(b, util_fmt("run/ba%d.pt", held)));
    assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_AUTH);
    ckpt_state_free(&m.r->st);
    assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_AUTH);
    bucket_end(b);
    fault_pause = 900;
}

// The index says how far each upload is.
static void test_index_state(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    bucket_hold(b, true);
    run_save(m.r, 1);
    const char *index = util_join(m.r->dir, ".ckpt-index.jsonl");
    assert_non_null(strstr(util_read(index, NULL), "\"upload\":\"pending\""));
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_non_null(strstr(util_read(index, NULL), "\"upload\":\"published\""));
    remote_end(&m);
    bucket_end(b);
}

//-- processes that end ------------------------------------------------------------

static void test_next_process_finishes(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    for (int last = 4; last <= 12; last += 4) {
        pid_t child = fork();
        if (child == 0) {
            bucket *mine = bucket_new(b->dir);
            remote_run m = remote_new(dir, mine);
            m.r->d.num_checkpoints_to_keep = 1;
            m.r->d.num_remote_to_keep = 3;
            if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
            ckpt_timestamp t;
            ckpt_err e = ckpt_saver_resume(m.r->s, &t);
            if (e != (last == 4 ? CKPT_NOT_FOUND : CKPT_OK)) _exit(3);
            if (e == CKPT_OK && t.batch != last - 4) _exit(4);
            bucket_hold(mine, true);
            for (int i = last - 3; i <= last; i++) {
                t = at_batch(i);
                run_set(m.r, i);
                if (ckpt_saver_save(m.r->s, &t) != CKPT_OK) _exit(5);
            }
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = 1;
    m.r->d.num_remote_to_keep = 3;
    run_open(m.r);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 12);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba12.pt");
    save_wait(&m, 13);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba11.pt run%ba12.pt run%ba13.pt run%latest.pt.symlink");
    remote_end(&m);
    bucket_end(b);
}

// A process was killed when a save had its file under the name of the one before, and nothing said so yet: neither the index nor a
// ledger. The upload of that one before, which goes on, says nothing of the file that is there now.
static void test_replaced_before_it_was_noted(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {               // had the one before got there?
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        pid_t child = fork();
        if (child == 0) {
            remote_run m = remote_new(dir, bucket_new(b->dir));
            m.r->d.filename = "model.pt";
            m.r->d.remote_file_name = "run/model.pt";
            if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
            ckpt_timestamp t = at_batch(1);
            run_set(m.r, 1);
            bucket_hold(m.b, k == 0);
            if (ckpt_saver_save(m.r->s, &t) != CKPT_OK || ckpt_saver_fence(m.r->s) != CKPT_OK) _exit(3);
            if (k == 1 && ckpt_saver_wait(m.r->s, 0) != CKPT_OK) _exit(4);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        run *other = run_new(util_temp_dir());
        other->d.filename = "model.pt";
        run_open(other);
        run_save(other, 1);
        run_save(other, 2);
        run_end(other);
        ok(bucket_copy(util_join(other->dir, "model.pt"), util_join(dir, "model.pt")));
        remote_run m = remote_new(dir, b);
        m.r->d.filename = "model.pt";
        m.r->d.remote_file_name = "run/model.pt";
        m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 2);
        ok(ckpt_saver_wait(m.r->s, 0));
        check_file(bucket_path(b, "run/model.pt"), 2);
        save_wait(&m, 3);
        check_file(bucket_path(b, "run/model.pt"), 3);
        assert_string_equal(names_in(dir), "");
        remote_end(&m);
        bucket_end(b);
    }
}

static int ledger_lines(const char *dir) {
    int n = 0;
    const char *text = util_read(ledger_path(dir), NULL);
    for (const char *at = text; (at = strstr(at, "\"number\":")) != NULL; at++) n++;
    return n;
}

static void remove_all(const char *dir) {
    char *list = util_fmt("%s", util_list(dir)), *next = NULL;
    for (char *line = strtok_r(list, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next)) (void)unlink(util_join(dir, line));
    assert_int_equal(rmdir(dir), 0);
}

// A process that makes saves 1, 2, .. in `dir`, of which the store answers to the first `answered`, and ends with the others on their way.
static void leave_uploads_as(const bucket *b, const char *dir, const char *name, int keep, int answered, int saves) {
    pid_t child = fork();
    if (child == 0) {
        bucket *mine = bucket_new(b->dir);
        remote_run m = remote_new(dir, mine);
        m.r->d.remote_file_name = name;
        m.r->d.num_checkpoints_to_keep = keep;
        if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
        for (int k = 1; k <= saves; k++) {
            ckpt_timestamp t = at_batch(k);
            run_set(m.r, k);
            if (k > answered) bucket_hold(mine, true);
            if (ckpt_saver_save(m.r->s, &t) != CKPT_OK || (k <= answered && ckpt_saver_wait(m.r->s, 0) != CKPT_OK)) _exit(3);
            if (ckpt_saver_fence(m.r->s) != CKPT_OK) _exit(4);
        }
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void leave_uploads(const bucket *b, const char *dir, int keep, int answered, int saves) {
    leave_uploads_as(b, dir, "run/ba{batch}.pt", keep, answered, saves);
}

// Of the newest of three that a killed process has left it cannot be seen whether it is there. It is sent all the same, and all leave
// the folder when they are there.
static void test_left_and_one_unseen(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir(), *staging = util_join(dir, ".ckpt-staging");
    leave_uploads(b, dir, CKPT_KEEP_NONE, 0, 3);
    char *list = util_fmt("%s", util_list(staging)), *next = NULL;
    for (char *line = strtok_r(list, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next)) {
        if (ckpt__txt_ends(line, ".upload") && strstr(util_read(util_join(staging, line), NULL), "ba3") != NULL)
            assert_int_equal(unlink(util_join(staging, line)), 0);
    }
    remote_run m = remote_new(dir, b);
    m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    bucket_fail(b, "size run/ba3.pt", CKPT_NET, -1);
    run_open(m.r);
    bucket_fail(b, NULL, CKPT_OK, 0);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 3);
    t = at_batch(4);
    ckpt_err told = ckpt_saver_save(m.r->s, &t);                // the newest is tried as well, and may have met the failing store
    assert_true(told == CKPT_OK || told == CKPT_NET);
    for (double until = ckpt__os_now() + 60; names_in(dir)[0] != 0 && ckpt__os_now() < until;) {
        (void)!ckpt_uploader_wait(m.u, 0);
        (void)!ckpt_saver_wait(m.r->s, 0);
    }
    for (int i = 1; i <= 4; i++) assert_true(bucket_has(b, util_fmt("run/ba%d.pt", i)));
    assert_string_equal(names_in(dir), "");
    (void)!ckpt_saver_close(m.r->s, 0);
    ckpt_state_free(&m.r->st);
    (void)!ckpt_uploader_close(m.u, 0);
    bucket_end(b);
}

// A killed process had got an upload through and could not say so any more. It is sent again, and given up while it waits, because newer
// ones are on their way: its object goes all the same.
static void test_given_up_when_it_was_there(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    leave_uploads(b, dir, CKPT_KEEP_ALL, 0, 2);
    remove_all(util_join(dir, ".ckpt-staging"));
    ok(bucket_copy(util_join(dir, "ba1.pt"), bucket_path(b, "run/ba1.pt")));
    remote_run m = remote_new(dir, b);
    ok(ckpt_uploader_close(m.u, 0));
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.store = b->store;
    d.num_concurrent_uploads = 1;
    ok(ckpt_uploader_open(&m.u, &d));
    m.r->d.uploaders = &m.u;
    m.r->d.num_remote_to_keep = 2;
    ckpt_timestamp t;
    bucket_hold(b, true);
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    for (int k = 3; k <= 5; k++) run_save(m.r, k);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_non_null(strstr(m.r->log, "are not sent any more"));
    save_wait(&m, 6);
    ok(ckpt_saver_wait(m.r->s, 0));
    assert_string_equal(bucket_names(b), "run%ba5.pt run%ba6.pt run%latest.pt.symlink");
    assert_int_equal(ledger_lines(dir), 2);
    remote_end(&m);
    bucket_end(b);
}

// Two workers put their links in one order and say so in the other: the newer one's is the published one, or its object would be one that
// rotation may take.
static void test_told_in_the_other_order(void **state) {
    (void)state;
    ckpt_allocator a = { NULL, NULL };
    ckpt__remote r;
    ckpt__index_line line;
    memset(&r, 0, sizeof r);
    memset(&line, 0, sizeof line);
    r.links = true;
    ok(ckpt__index_init(&r.ledger, &a, util_temp_dir()));
    for (uint64_t n = 1; n <= 3; n++) {
        char name[2] = { (char)('a' + (int)n), 0 };
        line.name = name;
        line.number = n;
        line.upload = n < 3 ? CKPT__UPLOAD_PENDING : CKPT__UPLOAD_FAILED;
        ok(ckpt__index_insert(&r.ledger, r.ledger.count, &line));
    }
    ckpt__remote_arrived(&r, 2, CKPT_OK, true);
    ckpt__remote_arrived(&r, 1, CKPT_OK, true);
    assert_int_equal(r.ledger.lines[0].upload, CKPT__UPLOAD_UPLOADED);
    assert_int_equal(r.ledger.lines[1].upload, CKPT__UPLOAD_PUBLISHED);
    ckpt__remote_arrived(&r, 3, CKPT_OK, true);
    assert_int_equal(r.ledger.lines[1].upload, CKPT__UPLOAD_UPLOADED);
    assert_int_equal(r.ledger.lines[2].upload, CKPT__UPLOAD_PUBLISHED);
    ckpt__index_free(&r.ledger);
}

// A ledger, and what a listing tells.
typedef struct adoption { ckpt__remote r; ckpt__index listed, copy; ckpt_name_desc names; } adoption;

static void adoption_new(adoption *p) {
    ckpt_allocator a = { NULL, NULL };
    memset(p, 0, sizeof *p);
    ok(ckpt__index_init(&p->r.ledger, &a, util_temp_dir()));
    ok(ckpt__index_init(&p->listed, &a, p->r.ledger.folder));
    ok(ckpt__index_init(&p->copy, &a, p->r.ledger.folder));
}

static void adoption_end(adoption *p) {
    ckpt__index_free(&p->listed);
    ckpt__index_free(&p->copy);
    ckpt__index_free(&p->r.ledger);
}

// What a listing tells of by names that have only some of the counters stands among the saves that are known: what another machine has
// saved last is not the oldest of all, which rotation would take first.
static void test_listed_in_order(void **state) {
    (void)state;
    adoption p;
    ckpt__index_line line;
    memset(&line, 0, sizeof line);
    adoption_new(&p);
    for (int i = 2; i <= 3; i++) {
        line.name = i == 2 ? util_fmt("ep2.pt") : util_fmt("ep3.pt");
        line.number = (uint64_t)i;
        line.t.epoch = i;
        line.t.batch = 10 * i;
        ok(ckpt__index_insert(&p.r.ledger, p.r.ledger.count, &line));
    }
    ckpt__remote_lister l = { &p.listed, NULL, "ep{epoch}.pt", &p.names };
    for (int i = 4; i >= 1; i--) ok(ckpt__remote_list_one(util_fmt("ep%d.pt", i), 1, &l));
    ok(ckpt__remote_adopt(&p.r, &p.listed, &p.copy));
    assert_int_equal(p.r.ledger.count, 4);
    for (size_t i = 0; i < p.r.ledger.count; i++) assert_int_equal(p.r.ledger.lines[i].t.epoch, i + 1);
    ckpt__index_settle(&p.r.ledger);
    for (size_t i = 0; i < p.r.ledger.count; i++) assert_int_equal(p.r.ledger.lines[i].state, CKPT__INDEX_SAVED);
    adoption_end(&p);
}

// One of a future that the run went back from, whose name has the batch, stands where it was: it is not the newest.
static void test_listed_in_another_future(void **state) {
    (void)state;
    static const int batches[] = { 100, 300, 150, 160 }, numbers[] = { 1, 3, 4, 5 }, want[] = { 100, 200, 300, 150, 160 };
    adoption p;
    ckpt__index_line line;
    memset(&line, 0, sizeof line);
    adoption_new(&p);
    for (int i = 0; i < 4; i++) {
        line.name = util_fmt("ba%d.pt", batches[i]);
        line.number = (uint64_t)numbers[i];
        line.t.batch = batches[i];
        line.saved_at = 1e9 + i;
        ok(ckpt__index_insert(&p.r.ledger, p.r.ledger.count, &line));
    }
    ckpt__remote_lister l = { &p.listed, NULL, "ba{batch}.pt", &p.names };
    for (int i = 0; i < 5; i++) ok(ckpt__remote_list_one(util_fmt("ba%d.pt", want[i]), 1, &l));
    ok(ckpt__remote_adopt(&p.r, &p.listed, &p.copy));
    ckpt__index_settle(&p.r.ledger);
    assert_int_equal(p.r.ledger.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(p.r.ledger.lines[i].t.batch, want[i]);
        assert_int_equal(p.r.ledger.lines[i].state, i == 1 || i == 2 ? CKPT__INDEX_ABANDONED : CKPT__INDEX_SAVED);
    }
    adoption_end(&p);
}

// The link of one checkpoint could not be put, then neither could that of the next, and now the first is tried again: it must not be put
// any more, for the answer of the second may have been lost. That is no reason to remove what the link leads to.
static void test_link_leads_to_an_older_one(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    fault_hope = fault_hope_most = 0.02;
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.num_remote_to_keep = 1;
    m.r->d.keep_every = 2;              // else they are given up
    run_open(m.r);
    save_wait(&m, 1);
    bucket_fail(b, "put run/latest", CKPT_NET, -1);
    for (int k = 2; k <= 5; k++) {
        save_held(&m, k);
        (void)!ckpt_saver_wait(m.r->s, 0);
        if (k != 3) continue;           // the store answers: all that has failed is tried again
        ok(ckpt_upload_file(m.u, "other", util_join(m.r->dir, "ba1.pt"), true));
        usleep(100000);
    }
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba1.pt");
    assert_true(bucket_has(b, "run/ba1.pt") && bucket_has(b, "run/ba2.pt") && bucket_has(b, "run/ba5.pt"));
    bucket_fail(b, NULL, CKPT_OK, 0);
    save_held(&m, 6);
    (void)!ckpt_saver_wait(m.r->s, 0);
    for (int i = 0; i < 1000 && ckpt_uploader_wait(m.u, 0) != CKPT_OK; i++) {}
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba6.pt");
    save_held(&m, 7);
    (void)!ckpt_saver_close(m.r->s, 0);         // it tells of the links
    ckpt_state_free(&m.r->st);
    (void)!ckpt_uploader_close(m.u, 0);
    assert_string_equal(bucket_names(b), "other run%ba2.pt run%ba4.pt run%ba6.pt run%ba7.pt run%latest.pt.symlink");
    bucket_end(b);
    fault_hope = 60, fault_hope_most = 900;
}

// A custom store that knows sums.
static bucket *summed;

static ckpt_err stat_summed(ckpt_store *store, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    ckpt_err e = ckpt__store_custom_table.stat(store, name, out, t);
    size_t size = 0;
    if (e != CKPT_OK) return e;
    const char *bytes = util_read(bucket_path(summed, name), &size);
    out->has_crc = true;
    out->crc = ckpt__digest_crc32(0, bytes, size);
    return CKPT_OK;
}

// A process died before it had staged what it had noted, or noted what it had saved, and an object of that name is there. It is not
// replaced for that, unless it may be this run's: by its size where there is no sum, and under a name that later saves have too, of
// which it may be an earlier one.
static void test_left_and_somebody_elses(void **state) {
    (void)state;
    enum { OTHER_SIZE, NO_LEDGER, SAME, SAME_SIZE, OTHER_SUM, CONSTANT, REPEATS, CASES };
    for (int k = 0; k < CASES; k++) {
        bucket *b = summed = bucket_new(NULL);
        const char *dir = util_temp_dir(), *name = k == CONSTANT ? "run/model.pt" : k == REPEATS ? "run/ep0.pt" : "run/ba1.pt";
        const char *format = k == CONSTANT ? name : k == REPEATS ? "run/ep{epoch}.pt" : "run/ba{batch}.pt";
        const char *object = util_fmt("%s", bucket_path(b, name));
        bool refused = k == OTHER_SIZE || k == NO_LEDGER || k == OTHER_SUM;
        leave_uploads_as(b, dir, format, CKPT_KEEP_ALL, 0, 1);
        remove_all(util_join(dir, ".ckpt-staging"));
        if (k == NO_LEDGER) assert_int_equal(unlink(ledger_path(dir)), 0);
        ok(bucket_copy(util_join(dir, "ba1.pt"), object));
        if (k != SAME) util_flip(object, 5000, 1);
        if (k == OTHER_SIZE || k == REPEATS) assert_int_equal(truncate(object, 6000), 0);
        size_t size = 0, left = 0;
        const char *before = util_read(object, &size);
        ckpt__store_table table = ckpt__store_custom_table;
        table.stat = stat_summed;
        if (k == OTHER_SUM || k == CONSTANT) b->store->table = &table;
        remote_run m = remote_new(dir, b);
        m.r->d.remote_file_name = format;
        run_open(m.r);
        (void)!ckpt_saver_wait(m.r->s, 0);
        const char *after = util_read(object, &left);
        assert_int_equal(left == size && memcmp(before, after, size) == 0, refused || k == SAME);
        if (refused) remote_end_refused(&m);
        else remote_end(&m);
        if (!refused) check_file(object, 1);
        bucket_end(b);
    }
}

static int marked_held;

// The object that another machine has put is marked as one of just now.
static ckpt_err stat_marked(ckpt_store *store, const char *name, ckpt__store_stat *out, ckpt__transfer *t) {
    while (strstr(name, "ba1.pt") != NULL && __atomic_load_n(&marked_held, __ATOMIC_SEQ_CST) != 0) usleep(1000);
    ckpt_err e = ckpt__store_custom_table.stat(store, name, out, t);
    if (e == CKPT_OK && strstr(name, "ba1.pt") != NULL)
        (void)snprintf(out->mark, sizeof out->mark, "t%016llx%015d", (unsigned long long)(ckpt__os_time() * 1e6), 0);
    return e;
}

// What a dead process left is not sent, because another machine has put a newer one of that name meanwhile: that is not this run's, nor
// does the file leave the folder for it. The uploader has dropped it when the saver comes, or does so afterwards.
static void test_left_and_overtaken(void **state) {
    (void)state;
    for (int after = 0; after < 2; after++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        pid_t child = fork();
        if (child == 0) {
            remote_run m = remote_new(dir, bucket_new(b->dir));
            m.r->d.overwrite = true;
            m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
            if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
            ckpt_timestamp t = at_batch(1);
            run_set(m.r, 1);
            bucket_hold(m.b, true);
            _exit(ckpt_saver_save(m.r->s, &t) != CKPT_OK || ckpt_saver_fence(m.r->s) != CKPT_OK);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        util_write_text(bucket_path(b, "run/ba1.pt"), "newer");
        ckpt__store_table table = ckpt__store_custom_table;
        table.stat = stat_marked;
        b->store->table = &table;
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
        m.r->d.num_remote_to_keep = 1;
        if (!after) ok(ckpt__uploader_resume(m.u, dir));
        if (!after) ok(ckpt_uploader_wait(m.u, 0));
        __atomic_store_n(&marked_held, after, __ATOMIC_SEQ_CST);
        run_open(m.r);
        __atomic_store_n(&marked_held, 0, __ATOMIC_SEQ_CST);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(names_in(dir), "ba1.pt");
        assert_false(bucket_has(b, "run/latest.pt.symlink"));
        for (int i = 2; i <= 4; i++) save_wait(&m, i);
        assert_string_equal(names_in(dir), "ba1.pt");
        assert_string_equal(bucket_text(b, "run/ba1.pt"), "newer");
        assert_string_equal(bucket_names(b), "run%ba1.pt run%ba4.pt run%latest.pt.symlink");
        remote_end(&m);
        bucket_end(b);
    }
}

// A folder's listing was not handed over when the process died, and there is one of an earlier save in a store that knows no sums: its
// length says nothing, and the only copy of the checkpoint must not go for it.
static void test_listing_of_an_earlier_save(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        pid_t child = -1;
        for (int life = 0; life < 2; life++) {
            if (life == 0) child = fork();
            if (life == 0 && child > 0) continue;
            remote_run m = remote_new(dir, life == 0 ? bucket_new(b->dir) : b);
            m.r->d.sharded = true;
            m.r->d.sharded_prefix_dir = "ba{batch}";
            m.r->d.remote_file_name = "run";
            m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
            if (life == 0) {
                ckpt_timestamp t = at_batch(1);
                bucket_hold(m.b, true);
                run_set(m.r, 1);
                _exit(ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK || ckpt_saver_save(m.r->s, &t) != CKPT_OK);
            }
            int status = 0;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
            ok(bucket_copy(util_join(dir, "ba1/__0_0.pt"), bucket_path(b, "ba1/__0_0.pt")));
            ok(bucket_copy(util_join(dir, "ba1/.metadata"), bucket_path(b, "ba1/.metadata")));
            if (same == 0) util_flip(bucket_path(b, "ba1/.metadata"), 200, 1);
            char *mine = util_read(util_join(dir, "ba1/.metadata"), NULL);
            remove_all(util_join(dir, ".ckpt-staging"));
            run_open(m.r);
            ckpt_timestamp t;
            ok(ckpt_saver_resume(m.r->s, &t));
            ok(ckpt_saver_wait(m.r->s, 0));
            assert_int_equal(bucket_count(b, "put ba1/__0_0.pt"), same == 0);
            size_t size = 0;
            const char *there = util_read(bucket_path(b, "ba1/.metadata"), &size);
            assert_int_equal(memcmp(there, mine, size), 0);
            remote_end(&m);
        }
        bucket_end(b);
    }
}

// The staging folder was thrown away, and rotation has let the files go: nobody has what was never uploaded. The ledger forgets
// it, or it would count when rotation keeps some; but not while the store cannot be asked, nor what has a file.
static void test_lost_for_good(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        leave_uploads(b, dir, i == 3 ? CKPT_KEEP_ALL : 1, 2, 5);
        assert_int_equal(ledger_lines(dir), 5);
        if (i != 2) remove_all(util_join(dir, ".ckpt-staging"));
        remote_run m = remote_new(dir, b);
        m.r->d.num_checkpoints_to_keep = 1;
        m.r->d.num_remote_to_keep = 3;
        if (i == 1) {                               // the store cannot be asked
            bucket_fail(b, "size", CKPT_NET, -1);
            run_open(m.r);
            assert_int_equal(ledger_lines(dir), 5);
            (void)!ckpt_saver_close(m.r->s, 0);
            ckpt_state_free(&m.r->st);
            (void)!ckpt_uploader_close(m.u, 0);
            bucket_fail(b, "size", CKPT_OK, 0);
            m = remote_new(dir, b);
            m.r->d.num_checkpoints_to_keep = 1;
            m.r->d.num_remote_to_keep = 3;
        }
        run_open(m.r);
        ok(ckpt_saver_wait(m.r->s, 0));
        bool lost = i < 2;                          // else the staging folder, or the files themselves, are there
        assert_int_equal(strstr(m.r->log, "run/ba3.pt was not uploaded, and its file is gone") != NULL, lost);
        assert_int_equal(strstr(m.r->log, "run/ba4.pt was not uploaded, and its file is gone") != NULL, lost);
        assert_null(strstr(m.r->log, "run/ba5.pt was not uploaded"));
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 5);
        save_wait(&m, 6);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_names(b), lost ? "run%ba2.pt run%ba5.pt run%ba6.pt run%latest.pt.symlink"
                                                  : "run%ba4.pt run%ba5.pt run%ba6.pt run%latest.pt.symlink");
        assert_int_equal(ledger_lines(dir), 3);
        remote_end(&m);
        bucket_end(b);
    }
}

// Another staging folder is named between two runs: what waits in the hidden one, and nowhere else, goes to the store all the same, for
// the folder's own uploader and for one of the caller's.
static void test_staging_folder_is_named_later(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *staging = util_temp_dir(), *far = util_temp_dir();
        assert_int_equal(chdir(dir), 0);
        const char *uri = util_fmt("file://%s/x", far), *local = own ? util_fmt("%s%s/x", dir, far) : dir;
        if (!own) leave_uploads(b, dir, 1, 0, 3);
        pid_t child = own ? fork() : -1;
        if (child == 0) {
            run *r = run_new(uri);
            r->d.num_checkpoints_to_keep = 1;
            if (ckpt_saver_open(&r->s, &r->d) != CKPT_OK) _exit(2);
            ckpt__uploader_pause(r->s->remotes[0].uploader, 1);
            for (int i = 1; i <= 3; i++) run_save(r, i);
            _exit(0);
        }
        int status = 0;
        if (own) assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_string_equal(names_in(local), "ba3.pt latest.pt");
        remote_run m = { own ? run_new(uri) : NULL, b, NULL };
        if (!own) {
            m = remote_new(dir, b);
            ok(ckpt_uploader_close(m.u, 0));
            m.u = uploader_on(b, staging);
            ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(1, sizeof *list), false);
            list[0] = m.u;
            m.r->d.uploaders = list;
        }
        m.r->d.num_checkpoints_to_keep = 1;
        m.r->d.upload_staging_folder = staging;
        run_open(m.r);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_null(strstr(m.r->log, "it is forgotten"));
        assert_string_equal(own ? names_in(util_fmt("%s/x", far)) : bucket_names(b),
                            own ? "ba1.pt ba2.pt ba3.pt latest.pt.symlink" : "run%ba1.pt run%ba2.pt run%ba3.pt run%latest.pt.symlink");
        assert_int_equal(m.r->s->number, 3);
        save_wait(&m, 4);
        assert_string_equal(own ? util_read(util_fmt("%s/x/latest.pt.symlink", far), NULL) + strlen(far) - 1 : bucket_text(b, "run/latest.pt.symlink"),
                            own ? "/x/ba4.pt" : "run/ba4.pt");
        run_end(m.r);
        if (!own) ok(ckpt_uploader_close(m.u, 0));
        assert_null(util_staged(util_join(local, ".ckpt-staging")));
        assert_int_equal(chdir("/"), 0);
        bucket_end(b);
    }
}

// What another run of the folder has not brought to its store stays that run's: this one neither sends it under a name of its own
// nor goes on from it.
static void test_left_by_another_run(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++) {              // is the other run's store this one's as well?
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *far = util_temp_dir();
        remote_run m = named_new(dir, b, "a");
        run_open(m.r);
        bucket_fail(b, "put", CKPT_NET, -1);
        save_held(&m, 5);
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
        ckpt_state_free(&m.r->st);
        (void)!ckpt_uploader_close(m.u, 0);
        bucket_fail(b, NULL, CKPT_OK, 0);
        remove_all(util_join(dir, ".ckpt-staging"));
        m = named_new(dir, b, "b");
        ckpt_uploader_desc d;
        ckpt_uploader *u = m.u;
        memset(&d, 0, sizeof d);
        d.bucket_uri = util_fmt("file://%s", far);
        if (!same) ok(ckpt_uploader_open(&u, &d));
        m.r->d.uploaders = &u;
        run_open(m.r);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(same ? bucket_names(b) : names_in(far), "");
        ckpt_timestamp t;
        assert_int_equal(ckpt_saver_resume(m.r->s, &t), CKPT_NOT_FOUND);
        remote_end(&m);
        if (!same) ok(ckpt_uploader_close(u, 0));
        bucket_end(b);
    }
}

// Nothing local is left but the staging folder: what it holds is newer than what is published, so it is waited for.
static void test_staged_is_newer(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    leave_uploads(b, dir, CKPT_KEEP_ALL, 1, 2);
    for (int i = 1; i <= 2; i++) (void)unlink(util_join(dir, util_fmt("ba%d.pt", i)));
    b->slow = 0.05;
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 2);
    remote_end(&m);
    bucket_end(b);
}

//-- resuming ----------------------------------------------------------------------

static bucket *bucket_with(int saves) {
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    for (int i = 1; i <= saves; i++) save_wait(&m, i);
    remote_end(&m);
    b->log[0] = 0;
    return b;
}

static void test_resume_on_an_empty_machine(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_with(3);
        remote_run m = remote_new(util_temp_dir(), b);
        m.r->d.snapshot = modes[k];
        run_open(m.r);
        ckpt_timestamp t;
        memset(&t, 0, sizeof t);
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 3);
        assert_int_equal(t.batch, 3);
        assert_string_equal(names_in(m.r->dir), "ba3.pt latest.pt");
        assert_int_equal(bucket_count(b, "list"), 0);
        assert_int_equal(bucket_count(b, "get run/ba"), 1);
        save_wait(&m, 4);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba4.pt");
        // A name that the run before has used, uploaded but not published, is this run's own.
        util_write_text(bucket_path(b, "run/ba5.pt"), "left by the other machine");
        save_wait(&m, 5);
        check_file(bucket_path(b, "run/ba5.pt"), 5);
        const char *const *paths;
        assert_int_equal(ckpt_saver_checkpoints(m.r->s, &paths), 3);
        remote_end(&m);
        bucket_end(b);
    }
}

// A run that has moved on to another machine: what the first one had staged and finishes later, here after it was told to by hand,
// does not lead the link back. Coming back, the run goes on from the newest; rotation in the store knows what the other has put there.
static void test_back_on_the_first_machine(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        const char *first = util_temp_dir(), *second = util_temp_dir();
        remote_run m = remote_new(first, b);
        m.r->d.num_remote_to_keep = 3;
        run_open(m.r);
        save_wait(&m, 1);
        bucket_fail(b, "put", CKPT_NET, -1);
        save_held(&m, 2);
        assert_int_equal(ckpt_saver_close(m.r->s, 0), CKPT_NET);
        ckpt_state_free(&m.r->st);
        assert_int_equal(ckpt_uploader_close(m.u, 0), CKPT_NET);
        bucket_fail(b, NULL, CKPT_OK, 0);

        m = remote_new(second, b);
        m.r->d.num_remote_to_keep = 3;
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 1);
        for (int i = 2; i <= 12; i++) save_wait(&m, i);
        remote_end(&m);
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba12.pt");

        if (k == 1) {
            ckpt_uploader *u = uploader_on(b, util_join(first, ".ckpt-staging"));
            ok(ckpt_uploader_wait(u, 0));
            ok(ckpt_uploader_close(u, 0));
            assert_true(bucket_has(b, "run/ba2.pt"));
            assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba12.pt");
        }
        m = remote_new(first, b);
        m.r->d.num_remote_to_keep = 3;
        run_open(m.r);
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 12);
        for (int i = 13; i <= 14; i++) save_wait(&m, i);
        ok(ckpt_saver_wait(m.r->s, 0));
        assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba14.pt");
        assert_string_equal(bucket_names(b), "run%ba12.pt run%ba13.pt run%ba14.pt run%latest.pt.symlink");
        remote_end(&m);
        bucket_end(b);
    }
}

// The same of a sharded one, which is loaded where it lies. Every 5th save is kept, also where the run is on a third machine by then.
static void test_sharded_back_on_the_first_machine(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        bucket *b = bucket_new(NULL);
        const char *dirs[] = { util_temp_dir(), util_temp_dir(), NULL };
        static const int saves[] = { 4, 4, 3 };
        dirs[2] = k % 2 == 0 ? dirs[0] : util_temp_dir();           // or on a third
        for (int i = 0, step = 0; i < 3; i++) {
            remote_run m = remote_new(dirs[i], b);
            ckpt_timestamp t;
            m.r->d.sharded = true;
            m.r->d.sharded_prefix_dir = "ba{batch}";
            m.r->d.remote_file_name = "run";
            m.r->d.num_remote_to_keep = 2;
            m.r->d.keep_every = k < 2 ? 0 : 5;
            run_open(m.r);
            if (step > 0) ok(ckpt_saver_resume(m.r->s, &t));
            if (step > 0) assert_int_equal(t.batch, step);
            for (int n = 0; n < saves[i]; n++) save_wait(&m, ++step);
            remote_end(&m);
        }
        const char *names = bucket_names(b);
        for (int i = 1; i <= 11; i++) {
            bool stays = i > 9 || (k >= 2 && i % 5 == 0);
            if ((strstr(names, util_fmt("ba%d%%", i)) != NULL) != stays) fail_msg("%d: ba%d: %s", k, i, names);
        }
        bucket_end(b);
    }
}

// A sharded run that goes on in one file, by itself: what leaves the store leaves it as a whole, also what an earlier process has begun
// to remove, or could not. k: 1, a removal fails for once; 2, the process ends before.
static void test_sharded_goes_on_whole(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        int step = 0;
        for (int i = 0; i < (k == 2 ? 3 : 2); i++) {
            remote_run m = remote_new(dir, b);
            ckpt_timestamp t;
            m.r->d.sharded = i == 0;
            m.r->d.sharded_prefix_dir = "ba{batch}";
            m.r->d.num_remote_to_keep = 2;
            run_open(m.r);
            if (i > 0) ok(ckpt_saver_resume(m.r->s, &t));
            if (i > 0) assert_int_equal(t.batch, step);
            if (k > 0 && i == 1) bucket_fail(b, "remove run/ba2/__0", CKPT_NET, k == 1 ? 1 : -1);
            for (int n = 0; n < 3; n++) {
                run_save(m.r, ++step);
                ckpt_err e = ckpt_saver_wait(m.r->s, 0);
                if (k == 0 || i != 1) ok(e);
            }
            bool fails = k > 0 && i == 1;
            assert_int_equal(ckpt_saver_close(m.r->s, 0), fails ? CKPT_NET : CKPT_OK);
            ckpt_state_free(&m.r->st);
            (void)!ckpt_uploader_close(m.u, 0);
            bucket_fail(b, NULL, CKPT_OK, 0);
        }
        assert_string_equal(bucket_names(b), util_fmt("run%%ba%d.pt run%%ba%d.pt run%%latest.pt.symlink", step - 1, step));
        bucket_end(b);
    }
}

// One that was killed before its listing was on its way: what the uploader still brings of it nobody finishes, and it goes.
static void test_sharded_killed_goes_on_whole(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    pid_t child = fork();
    if (child == 0) {
        remote_run m = remote_new(dir, bucket_new(b->dir));
        m.r->d.sharded = true;
        m.r->d.sharded_prefix_dir = "ba{batch}";
        bucket_fail(m.b, "put run/ba1/__0_0.pt", CKPT_NET, -1);
        if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
        ckpt_timestamp t = at_batch(1);
        run_set(m.r, 1);
        _exit(ckpt_saver_save(m.r->s, &t) != CKPT_OK || ckpt_saver_wait(m.r->s, 0) != CKPT_NET);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        remote_run m = remote_new(dir, b);
        ckpt_timestamp t;
        m.r->d.num_remote_to_keep = 1;
        run_open(m.r);
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 1 + i);
        ok(ckpt_uploader_wait(m.u, 0));
        if (i == 0) assert_string_equal(bucket_names(b), "run%ba1%__0_0.pt");
        save_wait(&m, 2 + i);
        assert_string_equal(bucket_names(b), util_fmt("run%%ba%d.pt run%%latest.pt.symlink", 2 + i));
        remote_end(&m);
    }
    bucket_end(b);
}

// The same without a call that waits: what happens in the background goes on at the loop's events.
static void test_sharded_goes_on_whole_unwaited(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    for (int i = 0; i < 2; i++) {
        remote_run m = remote_new(dir, b);
        ckpt_timestamp t = at_batch(3);
        m.r->d.sharded = i == 0;
        m.r->d.sharded_prefix_dir = "ba{batch}";
        m.r->d.num_remote_to_keep = 1;
        if (i == 1) m.r->d.save_interval = "1000ba";
        run_open(m.r);
        if (i == 0) for (int n = 1; n <= 2; n++) save_wait(&m, n);
        if (i == 1) {
            ok(ckpt_saver_resume(m.r->s, &t));
            t = at_batch(3);
            run_set(m.r, 3);
            ok(ckpt_saver_save(m.r->s, &t));
        }
        double until = ckpt__os_now() + 60;
        while (i == 1 && bucket_has(b, "run/ba2/__0_0.pt") && ckpt__os_now() < until) {
            t.batch++;
            ok(ckpt_saver_batch_end(m.r->s, &t));
            usleep(1000);
        }
        if (i == 1) assert_string_equal(bucket_names(b), "run%ba3.pt run%latest.pt.symlink");
        remote_end(&m);
    }
    bucket_end(b);
}

// Another machine goes back and saves names again, in files of a later edition; the first one, which goes on from a later save,
// removes those too.
static void test_sharded_saved_again_elsewhere(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dirs[] = { util_temp_dir(), util_temp_dir() };
    static const int from[] = { 0, 2, 6 }, to[] = { 5, 6, 11 };
    for (int i = 0; i < 3; i++) {
        remote_run m = remote_new(dirs[i % 2], b);
        ckpt_timestamp t;
        m.r->d.sharded = true;
        m.r->d.sharded_prefix_dir = "ba{batch}";
        m.r->d.num_remote_to_keep = 4;
        run_open(m.r);
        if (i > 0) ok(ckpt_saver_resume(m.r->s, &t));
        if (i > 0) assert_int_equal(t.batch, i == 1 ? 5 : 6);
        for (int step = from[i] + 1; step <= to[i]; step++) save_wait(&m, step);
        if (i == 1) assert_true(bucket_has(b, "run/ba4/__0_1.pt") && bucket_has(b, "run/ba5/__0_1.pt"));
        remote_end(&m);
    }
    const char *names = bucket_names(b);
    for (int i = 1; i <= 7; i++) if (strstr(names, util_fmt("ba%d%%", i)) != NULL) fail_msg("ba%d: %s", i, names);
    bucket_end(b);
}

// One listing that cannot be read does not keep what is older and newer in the store: of it what its line knows goes.
static void test_sharded_listing_unread(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        for (int i = 0; i < 2; i++) {
            remote_run m = remote_new(dir, b);
            m.r->d.sharded = true;
            m.r->d.sharded_prefix_dir = "ba{batch}";
            m.r->d.num_remote_to_keep = i == 0 ? 5 : 1;
            run_open(m.r);
            if (i == 1) ok(ckpt_saver_resume(m.r->s, NULL));
            if (i == 1) bucket_fail(b, "get run/ba1/.metadata", k == 0 ? CKPT_NET : CKPT_IO, -1);
            for (int step = 3 * i + 1; step <= 3 * i + 3; step++) save_wait(&m, step);
            ok(ckpt_saver_wait(m.r->s, 0));
            bucket_fail(b, NULL, CKPT_OK, 0);
            remote_end(&m);
        }
        assert_string_equal(bucket_names(b), "run%ba6%.metadata run%ba6%__0_0.pt run%latest.pt.symlink");
        bucket_end(b);
    }
}

// A store that did not answer for once is asked another time, not left with the files that only the listing tells of.
static void test_sharded_listing_away(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dirs[] = { util_temp_dir(), util_temp_dir() };
    static const int from[] = { 0, 2, 6 }, to[] = { 5, 6, 14 };
    for (int i = 0; i < 3; i++) {
        remote_run m = remote_new(dirs[i % 2], b);
        m.r->d.sharded = true;
        m.r->d.sharded_prefix_dir = "ba{batch}";
        m.r->d.num_remote_to_keep = 4;
        run_open(m.r);
        if (i > 0) ok(ckpt_saver_resume(m.r->s, NULL));
        if (i == 2) bucket_fail(b, "size run/ba4/.metadata", CKPT_NET, 1);
        for (int step = from[i] + 1; step <= to[i]; step++) save_wait(&m, step);
        bucket_fail(b, NULL, CKPT_OK, 0);
        remote_end(&m);
    }
    assert_null(strstr(bucket_names(b), "run%ba4%"));
    assert_non_null(strstr(bucket_names(b), "run%ba14%.metadata"));
    bucket_end(b);
}

static uint64_t puts_begun;

static ckpt_err put_is_slow_and_fails(ckpt_store *s, const ckpt__store_put *p) {
    (void)s;
    (void)p;
    (void)ckpt__os_add64(&puts_begun, 1);
    ckpt__os_sleep(0.2);
    return ckpt__error_set(CKPT_NET, "it is down");
}

// A closing call tries what has failed once, and so do all that follow a timeout together: else none of them would ever end.
static void test_close_tries_once(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        static ckpt__store_table down;
        const char *far = util_temp_dir(), *here = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        run *r = run_new(util_fmt("file://%s/run", far));
        r->d.num_attempts = 1;
        r->d.remote_file_name = NULL;
        run_open(r);
        down = *r->s->store->table;
        down.put = put_is_slow_and_fails;
        down.begin = NULL;
        r->s->store->table = &down;
        puts_begun = 0;
        run_set(r, 1);
        ckpt_timestamp t = at_batch(1);
        ok(ckpt_saver_save(r->s, &t));
        assert_int_equal(ckpt_saver_wait(r->s, 0), CKPT_NET);
        assert_int_equal(ckpt__os_load64(&puts_begun), 1);
        ckpt_err e = CKPT_TIMEOUT;
        for (int i = 0; i < 600 && e == CKPT_TIMEOUT && ckpt__os_load64(&puts_begun) < 4; i++) {
            e = ckpt_saver_close(r->s, k == 0 ? 0.05 : 0);
            if (e == CKPT_TIMEOUT) ckpt__os_sleep(0.3);         // the try ends meanwhile
        }
        assert_int_equal(e, CKPT_NET);
        assert_int_equal(ckpt__os_load64(&puts_begun), 2);
        ckpt_state_free(&r->st);
    }
}

// One life of a machine whose store keeps two: it saves the steps `first`, first + 10, ... up to `last`, and pins that of `pinned` and the next.
static void pinning_life(const char *dir, bucket *b, int first, int last, int pinned, bool resumes, const char *fails, ckpt_err with) {
    remote_run m = remote_new(dir, b);
    m.r->d.num_remote_to_keep = 2;
    m.r->d.resume_offline = fails != NULL;
    if (fails != NULL) bucket_fail(b, fails, with, -1);
    run_open(m.r);
    if (resumes) ok(ckpt_saver_resume(m.r->s, NULL));
    if (with == CKPT_NET) bucket_fail(b, NULL, CKPT_OK, 0);
    for (int i = first; i <= last; i += 10) {
        save_wait(&m, i);
        if (i == pinned || i == pinned + 10) pin(dir, util_fmt("ba%d.pt", i), true);
    }
    bucket_fail(b, NULL, CKPT_OK, 0);
    remote_end(&m);
}

// Another machine has gone on meanwhile, and pinned something, when one comes back that can ask the store only after it has resumed:
// it learns what that has noted before it puts its own in place of it.
static void test_pinned_while_offline(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *first = util_temp_dir(), *second = util_temp_dir();
    pinning_life(first, b, 1, 21, 11, false, NULL, CKPT_OK);
    pinning_life(second, b, 101, 141, 111, true, NULL, CKPT_OK);
    pinning_life(first, b, 1001, 1021, 0, true, "size run/latest.pt.symlink", CKPT_NET);
    pinning_life(util_temp_dir(), b, 2001, 2021, 0, true, NULL, CKPT_OK);
    assert_true(bucket_has(b, "run/ba111.pt") && bucket_has(b, "run/ba121.pt"));
    assert_false(bucket_has(b, "run/ba141.pt"));
    bucket_end(b);
}

// What another machine has saved since is not this run's, which has gone on without it: it stays, pinned or not.
static void test_anothers_while_offline(void **state) {
    (void)state;
    static const char *const fails[] = { "get run/ba1", "size run/latest" };
    for (int k = 0; k < 2; k++) {
        bucket *b = bucket_new(NULL);
        const char *first = util_temp_dir(), *second = util_temp_dir();
        pinning_life(first, b, 1, 41, 0, false, NULL, CKPT_OK);
        pinning_life(second, b, 101, 161, 111, true, NULL, CKPT_OK);
        remote_run m = remote_new(first, b);
        m.r->d.num_remote_to_keep = 2;
        m.r->d.resume_offline = true;
        run_open(m.r);
        bucket_fail(b, fails[k], CKPT_NET, -1);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 41);
        bucket_fail(b, NULL, CKPT_OK, 0);
        for (int i = 42; i < 47; i++) save_wait(&m, i);
        assert_true(bucket_has(b, "run/ba111.pt") && bucket_has(b, "run/ba121.pt"));
        assert_true(bucket_has(b, "run/ba151.pt") && bucket_has(b, "run/ba161.pt"));
        assert_true(bucket_has(b, "run/ba46.pt") && !bucket_has(b, "run/ba43.pt"));
        remote_end(&m);
        bucket_end(b);
    }
}

// Also where names tell of no batch, or of nothing by which a time is earlier or later.
static void test_anothers_of_epochs_while_offline(void **state) {
    (void)state;
    static const char *const names[] = { "ep{epoch}.pt", "s{sample}.pt", "x{total_wct}.pt", "ep{epoch}-ba{batch}.pt" };
    static const int from[] = { 1, 101, 5 }, to[] = { 4, 106, 11 };
    for (int k = 0; k < UTIL_COUNT(names); k++) {
        bucket *b = bucket_new(NULL);
        const char *dirs[] = { util_temp_dir(), util_temp_dir() };
        char others[256];
        for (int life = 0; life < 3; life++) {
            remote_run m = remote_new(dirs[life % 2], b);
            m.r->d.filename = names[k];
            m.r->d.remote_file_name = util_fmt("run/%s", names[k]);
            m.r->d.num_remote_to_keep = 2;
            m.r->d.resume_offline = life == 2;
            run_open(m.r);
            ckpt_timestamp t = at_batch(0);
            if (life == 2) bucket_fail(b, "get run/", CKPT_NET, -1);
            if (life > 0) ok(ckpt_saver_resume(m.r->s, &t));
            if (life > 0) assert_int_equal(t.epoch, 4);
            bucket_fail(b, NULL, CKPT_OK, 0);
            for (int i = from[life]; i <= to[life]; i++) {
                memset(&t, 0, sizeof t);
                t.epoch = i;
                t.batch = i * 100;
                t.sample = i * 1000;
                t.total_wct = i * 10;
                run_set(m.r, i);
                ok(ckpt_saver_save(m.r->s, &t));
                ok(ckpt_saver_wait(m.r->s, 0));
            }
            remote_end(&m);
            if (life == 1) (void)snprintf(others, sizeof others, "%s", bucket_names(b));
        }
        char *word = strtok(others, " ");
        for (; word != NULL; word = strtok(NULL, " ")) {
            if (strstr(word, ".symlink") == NULL && strstr(bucket_names(b), word) == NULL) fail_msg("%s: %s is gone: %s", names[k], word, bucket_names(b));
        }
        bucket_end(b);
    }
}

// Two machines that did not know of each other have counted from the same number: what the folder says of its save is not said of the
// other one's, which is pinned.
static void test_pinned_of_the_same_number(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *first = util_temp_dir(), *second = util_temp_dir();
    pinning_life(first, b, 1, 81, 51, false, NULL, CKPT_OK);
    const char *copy = util_fmt("%s", bucket_ledger(b, "run/"));
    util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba51.pt");
    pinning_life(second, b, 111, 111, 0, true, util_fmt("list|size %s", copy), CKPT_AUTH);
    pinning_life(second, b, 121, 141, 0, true, NULL, CKPT_OK);
    assert_true(bucket_has(b, "run/ba51.pt") && bucket_has(b, "run/ba61.pt"));
    bucket_end(b);
}

// A machine that has nothing of a sharded run, in a store from which nothing goes, counts its saves on: here the 5th stays.
static void test_sharded_count_goes_on(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    for (int i = 0, step = 0; i < 2; i++) {
        remote_run m = remote_new(util_temp_dir(), b);
        ckpt_timestamp t;
        m.r->d.sharded = true;
        m.r->d.sharded_prefix_dir = "ba{batch}";
        m.r->d.remote_file_name = "run";
        m.r->d.num_checkpoints_to_keep = 1;
        m.r->d.keep_every = 5;
        run_open(m.r);
        if (i > 0) ok(ckpt_saver_resume(m.r->s, &t));
        for (int n = 0; n < 4; n++) save_wait(&m, ++step);
        assert_string_equal(names_in(m.r->dir), i == 0 ? "ba4 latest.pt" : "ba5 ba8 latest.pt");
        remote_end(&m);
    }
    bucket_end(b);
}

static void test_fresh_start(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    ckpt_timestamp t;
    assert_int_equal(ckpt_saver_resume(m.r->s, &t), CKPT_NOT_FOUND);
    save_wait(&m, 1);
    remote_end(&m);
    bucket_end(b);
}

// The newer of folder and store is taken.
static void test_resume_newest(void **state) {
    (void)state;
    bucket *b = bucket_with(5);
    // Local is older: another machine went on.
    const char *dir = util_temp_dir();
    run *old = run_new(dir);
    run_open(old);
    for (int i = 1; i <= 2; i++) run_save(old, i);
    run_end(old);
    remote_run m = remote_new(dir, b);
    run_open(m.r);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 5);
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt ba5.pt latest.pt");
    assert_string_equal(util_link_target(util_join(dir, "latest.pt")), "ba5.pt");
    remote_end(&m);
    // Local is as new: nothing is fetched.
    b->log[0] = 0;
    m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 5);
    assert_int_equal(bucket_count(b, "get run/ba"), 0);
    // And newer.
    bucket_hold(b, true);
    run_save(m.r, 6);
    assert_int_equal(ckpt_saver_wait(m.r->s, 0.01), CKPT_TIMEOUT);
    bucket_hold(b, false);
    ok(ckpt_saver_wait(m.r->s, 0));
    remote_end(&m);
    util_write_text(bucket_path(b, "run/latest.pt.symlink"), "run/ba5.pt");
    m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 6);
    assert_int_equal(bucket_count(b, "get run/ba"), 0);
    remote_end(&m);
    bucket_end(b);
}

// A machine whose folder is behind comes back, and its `latest` in the store has another name: it goes on from the newest all the same,
// and writes over nothing of it. The next process asks the link again. 1: nor by a store that was not used yet it is kept from what it
// has; 2: nor by one that is not there.
static void test_resume_by_another_latest_name(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        bucket *b = k == 0 ? bucket_with(5) : bucket_new(NULL);
        const ckpt__store_table *own = b->store->table;
        ckpt__store_table other = *own;
        const char *dir = util_temp_dir();
        run *old = run_new(dir);
        run_open(old);
        for (int i = 1; i <= 2; i++) run_save(old, i);
        run_end(old);
        int at = k == 0 ? 5 : 2;
        for (int turn = 0; turn < 2; turn++) {
            remote_run m = remote_new(dir, b);
            m.r->d.latest_remote_file_name = "run/newest.pt";
            if (k >= 2 && turn == 0) bucket_fail(b, "list", k == 2 ? CKPT_NOT_FOUND : CKPT_IO, -1);     // 3: it cannot be listed
            if (k == 2) b->store->table = &other;
            run_open(m.r);
            ckpt_timestamp t;
            ok(ckpt_saver_resume(m.r->s, &t));
            run_check(m.r, at + turn);
            assert_int_equal(bucket_count(b, "list"), 1);
            assert_null(strstr(m.r->log, "resuming without "));
            assert_true((strstr(m.r->log, "whether there are newer checkpoints is not known") != NULL) == (k == 3 && turn == 0));
            bucket_fail(b, NULL, CKPT_OK, 0);
            save_wait(&m, at + turn + 1);
            assert_string_equal(bucket_text(b, "run/newest.pt.symlink"), util_fmt("run/ba%d.pt", at + turn + 1));
            remote_end(&m);
            b->store->table = own;
        }
        bucket_end(b);
    }
}

// What does not verify is passed over and reported, and the next older one found by a listing.
static void test_resume_walks_back(void **state) {
    (void)state;
    bucket *b = bucket_with(12);
    util_flip(bucket_path(b, "run/ba12.pt"), 5000, 0x10);
    util_flip(bucket_path(b, "run/ba11.pt"), 5000, 0x10);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 10);
    assert_int_equal(bucket_count(b, "list"), 1);
    assert_non_null(strstr(m.r->log, "run/ba12.pt is passed over"));
    assert_non_null(strstr(m.r->log, "run/ba11.pt is passed over"));
    assert_string_equal(names_in(m.r->dir), "ba10.pt latest.pt");
    save_wait(&m, 11);
    check_file(bucket_path(b, "run/ba11.pt"), 11);
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), "run/ba11.pt");
    remote_end(&m);
    // The same with a local one in between: it comes before what is older in the store.
    bucket_end(b);
    b = bucket_with(5);
    util_flip(bucket_path(b, "run/ba5.pt"), 5000, 0x10);
    const char *dir = util_temp_dir();
    run *old = run_new(dir);
    run_open(old);
    run_save(old, 4);
    run_end(old);
    m = remote_new(dir, b);
    run_open(m.r);
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 4);
    assert_int_equal(bucket_count(b, "get run/ba4"), 0);
    remote_end(&m);
    bucket_end(b);
}

// The link leads to nothing, or is damaged: what is there is found all the same.
static void test_resume_without_a_good_link(void **state) {
    (void)state;
    static const char *const texts[] = { "run/ba9.pt", "../../etc/passwd", "", NULL };
    for (int i = 0; i < UTIL_COUNT(texts); i++) {
        bucket *b = bucket_with(3);
        if (texts[i] != NULL) util_write_text(bucket_path(b, "run/latest.pt.symlink"), texts[i]);
        else (void)unlink(bucket_path(b, "run/latest.pt.symlink"));
        remote_run m = remote_new(util_temp_dir(), b);
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        run_check(m.r, 3);
        remote_end(&m);
        bucket_end(b);
    }
}

// Without a link a checkpoint is found in the list whatever its number is filled up with.
static void test_resume_listed_by_filled_names(void **state) {
    (void)state;
    static const char *const names[] = { "ba{batch:011_}.pt", "ba{batch:_>8}.pt", "ba{batch:+09d}.pt" };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        bucket *b = bucket_new(NULL);
        for (int empty = 0; empty < 2; empty++) {
            remote_run m = remote_new(util_temp_dir(), b);
            ckpt_timestamp t;
            m.r->d.filename = names[i];
            m.r->d.remote_file_name = util_fmt("run/%s", names[i]);
            m.r->d.latest_remote_file_name = CKPT_NONE;
            run_open(m.r);
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), empty ? CKPT_OK : CKPT_NOT_FOUND);
            if (empty) run_check(m.r, 1000);
            else save_wait(&m, 1000);
            remote_end(&m);
        }
        bucket_end(b);
    }
}

// All of them damaged is not a fresh start.
static void test_resume_all_damaged(void **state) {
    (void)state;
    bucket *b = bucket_with(2);
    for (int i = 1; i <= 2; i++) util_flip(bucket_path(b, util_fmt("run/ba%d.pt", i)), 5000, 0x10);
    remote_run m = remote_new(util_temp_dir(), b);
    run_open(m.r);
    ckpt_timestamp t;
    assert_int_equal(ckpt_saver_resume(m.r->s, &t), CKPT_CORRUPT);
    assert_string_equal(names_in(m.r->dir), "");            // nothing of them is left here
    remote_end(&m);
    bucket_end(b);
}

// A store that cannot be asked: loud, unless the user knows better. "Not allowed" is never "not there".
static void test_resume_offline(void **state) {
    (void)state;
    static const ckpt_err how[] = { CKPT_NET, CKPT_AUTH, CKPT_TIMEOUT };
    for (int i = 0; i < UTIL_COUNT(how); i++) {
        bucket *b = bucket_with(3);
        for (int local = 0; local < 2; local++) {
            const char *dir = util_temp_dir();
            run *old = run_new(dir);
            run_open(old);
            if (local) run_save(old, 2);
            run_end(old);
            for (int offline = 0; offline < 2; offline++) {
                remote_run m = remote_new(dir, b);
                m.r->d.resume_offline = offline != 0;
                run_open(m.r);
                bucket_fail(b, "size run/latest", how[i], -1);
                ckpt_timestamp t;
                ckpt_err e = ckpt_saver_resume(m.r->s, &t);
                if (!offline) assert_int_equal(e, how[i]);
                else if (local) ok(e);
                if (offline && local) run_check(m.r, 2);
                bucket_fail(b, NULL, CKPT_OK, 0);
                // What resume hands over of the folder may have met the failing store by now, and says so.
                ckpt_err saver = ckpt_saver_close(m.r->s, 0), uploads = ckpt_uploader_close(m.u, 0);
                ckpt_err told = how[i] == CKPT_TIMEOUT ? CKPT_NET : how[i];
                assert_true(saver == CKPT_OK || (offline && local && saver == told));
                assert_true(uploads == CKPT_OK || (offline && local && uploads == how[i]));
                ckpt_state_free(&m.r->st);
            }
        }
        bucket_end(b);
    }
}

// The same of a store that fails later: its latest is known, but the checkpoint does not come, nor a list of older ones. What is known
// to be there and was not to be had is no fresh start.
static void check_resume_offline_later(bucket *b, const char *fails, ckpt_err how, bool sharded, bool offline, bool local) {
    const char *dir = util_temp_dir();
    run *old = run_new(dir);
    old->d.sharded = sharded;
    old->d.sharded_prefix_dir = "ba{batch}";
    run_open(old);
    if (local) run_save(old, 2);
    run_end(old);
    remote_run m = remote_new(dir, b);
    m.r->d.sharded = sharded;
    m.r->d.sharded_prefix_dir = "ba{batch}";
    if (sharded) m.r->d.remote_file_name = "run";
    m.r->d.resume_offline = offline;
    run_open(m.r);
    bucket_fail(b, fails, how, -1);
    ckpt_timestamp t;
    ckpt_err e = ckpt_saver_resume(m.r->s, &t);
    bucket_fail(b, NULL, CKPT_OK, 0);
    if (offline && local) {
        ok(e);
        run_check(m.r, 2);
        if (strstr(m.r->log, "resuming without ") == NULL) fail_msg("%s: %s", fails, m.r->log);
    } else {
        if (e != how) fail_msg("%s, %d: %s: %s", fails, (int)offline, ckpt_err_name(e), ckpt_last_error());
        if (!offline) assert_non_null(strstr(ckpt_last_error(), "resume_offline"));
    }
    ok(ckpt_saver_wait(m.r->s, 0));
    remote_end(&m);
    // What is handed over of the folder is older than what the link leads to.
    assert_string_equal(bucket_text(b, "run/latest.pt.symlink"), sharded ? "ba3" : "run/ba3.pt");
}

static void test_resume_offline_later(void **state) {
    (void)state;
    static const ckpt_err how[] = { CKPT_NET, CKPT_AUTH, CKPT_TIMEOUT, CKPT_IO };
    bucket *b = bucket_with(3);
    for (int i = 0; i < UTIL_COUNT(how); i++) {
        for (int offline = 0; offline < 2; offline++) {
            for (int local = 0; local < 2; local++)
                for (int k = 0; k < 2; k++)
                    check_resume_offline_later(b, k == 0 ? "get run/ba3.pt" : "size run/ba3.pt", how[i], false, offline != 0, local != 0);
        }
    }
    util_flip(bucket_path(b, "run/ba3.pt"), 5000, 0x10);
    for (int offline = 0; offline < 2; offline++) check_resume_offline_later(b, "list", CKPT_NET, false, offline != 0, true);
    bucket_end(b);
    b = bucket_new(NULL);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.sharded = true;
    m.r->d.sharded_prefix_dir = "ba{batch}";
    m.r->d.remote_file_name = "run";
    run_open(m.r);
    save_wait(&m, 3);
    remote_end(&m);
    for (int offline = 0; offline < 2; offline++) {
        for (int local = 0; local < 2; local++) {
            check_resume_offline_later(b, "get ba3/__0_0.pt", CKPT_NET, true, offline != 0, local != 0);
            check_resume_offline_later(b, "get ba3/.metadata", CKPT_NET, true, offline != 0, local != 0);
            check_resume_offline_later(b, "size ba3", CKPT_NET, true, offline != 0, local != 0);
        }
    }
    bucket_end(b);
}

// A list that is answered "not found" (a bucket that is gone, or a balancer's word) is none: nothing is known of the store then, and it is
// no fresh start. A folder that is not there yet is an empty list.
static void test_resume_no_list(void **state) {
    (void)state;
    bucket *b = bucket_with(3);
    (void)unlink(bucket_path(b, "run/latest.pt.symlink"));
    const ckpt__store_table *own = b->store->table;
    ckpt__store_table other = *own;
    for (int k = 0; k < 3; k++) {                       // 2: of the user's own functions it is a word for nothing there
        bool offline = k > 0;
        b->store->table = k < 2 ? &other : own;
        remote_run m = remote_new(util_temp_dir(), b);
        m.r->d.resume_offline = k == 1;
        run_open(m.r);
        bucket_fail(b, "list", CKPT_NOT_FOUND, -1);
        ckpt_timestamp t;
        assert_int_equal(ckpt_saver_resume(m.r->s, &t), offline ? CKPT_NOT_FOUND : CKPT_NET);
        if (k == 2) assert_null(strstr(m.r->log, "resuming without "));
        else if (offline) assert_non_null(strstr(m.r->log, "resuming without "));
        else assert_non_null(strstr(ckpt_last_error(), "cannot be asked for a newer checkpoint (resume_offline goes on without): cannot list"));
        bucket_fail(b, NULL, CKPT_OK, 0);
        remote_end(&m);
        b->store->table = own;
    }
    bucket_end(b);
    const char *dir = util_temp_dir();
    run *r = run_new(util_join(dir, "here"));
    r->d.remote_file_name = util_fmt("file://%s/there/run/ba{batch}.pt", dir);
    run_open(r);
    ckpt_timestamp t;
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_NOT_FOUND);
    run_end(r);
}

// What a process noted and did not come to hand over goes by the next one, though the store is away when that is opened. Where there
// is something of its name by then it stays, unless it is the same.
static void test_left_while_the_store_is_away(void **state) {
    (void)state;
    static const char *const what[] = { "size", "size|put|get|list" };
    for (int k = 0; k < 6; k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        pid_t child = fork();
        if (child == 0) {
            bucket *mine = bucket_new(b->dir);
            remote_run m = remote_new(dir, mine);
            if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
            bucket_hold(mine, true);
            for (int i = 1; i <= 2; i++) {
                ckpt_timestamp t = at_batch(i);
                run_set(m.r, i);
                if (ckpt_saver_save(m.r->s, &t) != CKPT_OK) _exit(3);
            }
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        util_remove_tree(util_join(dir, ".ckpt-staging"));      // as if it had been killed before
        if (k / 2 == 1) ok(bucket_copy(util_join(dir, "ba2.pt"), bucket_path(b, "run/ba2.pt")));
        if (k / 2 == 2) util_write_text(bucket_path(b, "run/ba2.pt"), "somebody else's");
        remote_run m = remote_new(dir, b);
        m.r->d.resume_offline = true;
        bucket_fail(b, what[k % 2], CKPT_NET, -1);
        run_open(m.r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(m.r->s, &t));
        assert_int_equal(t.batch, 2);
        bucket_fail(b, NULL, CKPT_OK, 0);
        t = at_batch(3);
        (void)!ckpt_saver_save(m.r->s, &t);                     // may tell what has failed; when it is there the others are tried again
        bool there = false;
        for (double until = ckpt__os_now() + 60; !there && ckpt__os_now() < until;) {
            (void)!ckpt_uploader_wait(m.u, 0);
            (void)!ckpt_saver_wait(m.r->s, 0);
            const char *ledger = util_read(ledger_path(dir), NULL);
            int published = 0;
            for (const char *p = ledger; (p = strstr(p, "\"upload\":\"uploaded\"")) != NULL; p++) published++;
            there = strstr(ledger, "pending") == NULL && published == (k / 2 == 2 ? 1 : 2);
        }
        if (!there) fail_msg("%d: %s\n%s", k, bucket_names(b), b->log);
        if (k / 2 == 2) assert_string_equal(bucket_text(b, "run/ba2.pt"), "somebody else's");
        else check_file(bucket_path(b, "run/ba2.pt"), 2);
        (void)!ckpt_saver_close(m.r->s, 0);
        ckpt_state_free(&m.r->st);
        (void)!ckpt_uploader_close(m.u, 0);
        bucket_end(b);
    }
}

// The index was lost and made of the files, and the server that dates these has its clock behind. A saver that hands over again what has come
// meanwhile, of a store that keeps no sums, does not take it for another's newer one.
static void test_left_and_files_are_dated_back(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    leave_uploads(b, dir, CKPT_KEEP_ALL, 0, 2);
    struct timespec times[2] = { { (time_t)ckpt__os_time() - 100, 0 }, { (time_t)ckpt__os_time() - 100, 0 } };
    for (int i = 1; i < 3; i++) assert_int_equal(utimensat(AT_FDCWD, util_join(dir, util_fmt("ba%d.pt", i)), times, 0), 0);
    assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
    pin(dir, "ba1.pt", true);
    assert_non_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "\"remade\":true"));
    remote_run m = remote_new(dir, b);
    ckpt_uploader **list = (ckpt_uploader **)util_keep(calloc(1, sizeof *list), false);
    ok(ckpt_uploader_close(m.u, 0));
    list[0] = m.u = uploader_on(b, util_join(dir, ".ckpt-staging"));
    m.r->d.uploaders = list;
    for (double until = ckpt__os_now() + 20; strstr(util_list(util_join(dir, ".ckpt-staging")), ".upload") != NULL;) {
        assert_true(ckpt__os_now() < until);
        ok(ckpt_uploader_wait(m.u, 0));
    }
    run_open(m.r);
    ok(ckpt_uploader_wait(m.u, 0));
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    run_check(m.r, 2);
    ok(ckpt_saver_wait(m.r->s, 0));
    save_wait(&m, 3);
    assert_string_equal(bucket_names(b), "run%ba1.pt run%ba2.pt run%ba3.pt run%latest.pt.symlink");
    assert_null(strstr(util_read(ledger_path(dir), NULL), "failed"));
    remote_end(&m);
    bucket_end(b);
}

// What dead processes' files say of when they were saved, put off by so many seconds.
static void put_off(const char *path, double seconds) {
    char *text = util_read(path, NULL), *at = strstr(text, "\"saved_at\":"), *end = NULL;
    assert_non_null(at);
    double was = strtod(at + sizeof "\"saved_at\":" - 1, &end);
    util_write_text(path, util_fmt("%.*s\"saved_at\":%.6f%s", (int)(at - text), text, was + seconds, end));
}

// Where the other's file stands: it is in the store, on its way, has failed and is tried again, the same and is older than what was left.
typedef enum stands { STANDS_THERE, STANDS_HELD, STANDS_FAILED, STANDS_OLDER } stands;

// The same of a name that does not vary: what this uploader has put there since, for another folder, or is about to put, is not put over
// with what is older, nor taken for it: the only copy of that stays.
static void check_left_and_another(stands how) {
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    bool fails = how >= STANDS_FAILED;
    pid_t child = fork();
    if (child == 0) {
        bucket *mine = bucket_new(b->dir);
        remote_run m = remote_constant(mine);
        m.r->d.folder = dir;
        if (ckpt_saver_open(&m.r->s, &m.r->d) != CKPT_OK) _exit(2);
        bucket_hold(mine, true);
        ckpt_timestamp t = at_batch(1);
        run_set(m.r, 1);
        if (ckpt_saver_save(m.r->s, &t) != CKPT_OK) _exit(3);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    util_remove_tree(util_join(dir, ".ckpt-staging"));
    if (how == STANDS_OLDER) put_off(ledger_path(dir), 1000);
    if (how == STANDS_OLDER) put_off(util_join(dir, ".ckpt-index.jsonl"), 1000);
    if (fails) fault_hope = fault_hope_most = 0.02;
    remote_run other = remote_constant(b), m = remote_constant(b);
    other.r->d.overwrite = true;
    run_open(other.r);
    if (fails) bucket_fail(b, "put", CKPT_NET, -1);
    if (how != STANDS_THERE) bucket_hold(b, true);
    run_save(other.r, 5);
    if (fails) bucket_hold(b, false);
    if (how == STANDS_THERE) ok(ckpt_saver_wait(other.r->s, 0));
    if (how == STANDS_THERE) run_end(other.r);
    if (fails) assert_int_not_equal(ckpt_saver_wait(other.r->s, 0), CKPT_OK);
    (void)!ckpt_uploader_close(m.u, 0);
    m.u = other.u;
    m.r->d.uploaders = &m.u;
    m.r->d.folder = dir;
    m.r->d.resume_offline = true;
    m.r->d.num_checkpoints_to_keep = CKPT_KEEP_NONE;
    bucket_fail(b, fails ? "size|put" : "size", CKPT_NET, -1);
    run_open(m.r);
    ckpt_timestamp t;
    ok(ckpt_saver_resume(m.r->s, &t));
    assert_int_equal(t.batch, 1);
    bucket_fail(b, NULL, CKPT_OK, 0);
    bucket_hold(b, false);
    bool told = false, there = false;
    const char *object = bucket_path(b, "run/model.pt"), *says = how == STANDS_OLDER ? "\"uploaded\"" : "\"upload\":\"failed\"";
    for (double until = ckpt__os_now() + 60; !(told && there) && ckpt__os_now() < until;) {
        there = util_exists(object);                    // and by what is told after that it is judged
        (void)!ckpt_uploader_wait(m.u, 0);
        (void)!ckpt_saver_wait(m.r->s, 0);
        told = strstr(util_read(ledger_path(dir), NULL), says) != NULL;
    }
    check_file(object, how == STANDS_OLDER ? 1 : 5);
    if (!told) fail_msg("%s\n%s", util_read(ledger_path(dir), NULL), b->log);  // what is there is another's
    if (how != STANDS_OLDER) check_file(util_join(dir, "model.pt"), 1);
    if (how != STANDS_THERE) (void)!ckpt_saver_close(other.r->s, 0);
    if (how != STANDS_THERE) ckpt_state_free(&other.r->st);
    (void)!ckpt_saver_close(m.r->s, 0);
    ckpt_state_free(&m.r->st);
    (void)!ckpt_uploader_close(m.u, 0);
    bucket_end(b);
    fault_hope = 60, fault_hope_most = 900;
}

static void test_left_and_another_is_newer(void **state) {
    (void)state;
    for (int how = STANDS_THERE; how <= STANDS_OLDER; how++) check_left_and_another((stands)how);
}

// What is sent while it is written is a living saver's, whatever it comes to.
static void test_left_and_another_is_early(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    char name[] = "run/model.pt";
    ckpt__uploader_item it;
    ckpt__index_line l;
    ckpt__remote r;
    bool newer = false, later = false;
    memset(&it, 0, sizeof it);
    memset(&l, 0, sizeof l);
    memset(&r, 0, sizeof r);
    r.uploader = uploader_on(b, NULL);
    l.name = name;
    l.bytes = it.size = 100;
    l.saved_at = 10;
    it.kind = CKPT__UPLOADER_PUT;
    it.early = true;
    it.added = 11000000;
    ckpt__os_mutex_lock(&r.uploader->lock);
    ckpt__uploader_slot *slot = ckpt__uploader_slot_of(r.uploader, name, true);
    slot->waiting = &it;
    ckpt__os_mutex_unlock(&r.uploader->lock);
    bool early = ckpt__remote_brings_another(&r, &l, &newer);
    it.committed = true;
    bool committed = ckpt__remote_brings_another(&r, &l, &later);
    ckpt__os_mutex_lock(&r.uploader->lock);
    slot->waiting = NULL;
    ckpt__uploader_slot_drop(r.uploader, slot);
    ckpt__os_mutex_unlock(&r.uploader->lock);
    assert_true(early && newer);
    assert_false(committed);
    ok(ckpt_uploader_close(r.uploader, 0));
    bucket_end(b);
}

// Names that say nothing of their time: the file itself is asked, unless it is the one that is here.
static void test_resume_constant_names(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir(), *other = util_temp_dir();
    for (int i = 1; i <= 3; i++) {
        remote_run m = remote_new(i == 2 ? other : dir, b);
        if (i == 1) m.r->d.num_remote_to_keep = 1;
        else m.r->d.num_checkpoints_to_keep = 1;
        m.r->d.filename = "model.pt";
        m.r->d.remote_file_name = "run/model.pt";
        run_open(m.r);
        assert_true((strstr(m.r->log, "2 filename 'model.pt' is the same at every time") != NULL) == (i == 1));
        assert_true((strstr(m.r->log, "2 remote_file_name 'run/model.pt' is the same at every time") != NULL) == (i != 1));
        ckpt_timestamp t;
        b->log[0] = 0;
        ckpt_err e = ckpt_saver_resume(m.r->s, &t);
        assert_int_equal(e, i == 1 ? CKPT_NOT_FOUND : CKPT_OK);
        if (i > 1) run_check(m.r, i - 1);
        assert_int_equal(bucket_count(b, "get run/model.pt"), i == 1 ? 0 : 1);         // also where it was asked for its time
        assert_string_equal(names_in(m.r->dir), i == 1 ? "" : "latest.pt model.pt");
        save_wait(&m, i);
        remote_end(&m);
    }
    check_file(bucket_path(b, "run/model.pt"), 3);
    bucket_end(b);
}

// Names that say the epoch, or where in it, but count nothing from the start: what another machine has saved since is newer.
static void test_resume_names_of_epochs(void **state) {
    (void)state;
    static const char *const names[] = { "ep{epoch}.pt", "ep{epoch}-b{batch_in_epoch}.pt" };
    for (int k = 0; k < UTIL_COUNT(names); k++) {
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir(), *other = util_temp_dir();
        for (int i = 1; i <= 3; i++) {
            remote_run m = remote_new(i == 2 ? other : dir, b);
            m.r->d.filename = names[k];
            m.r->d.remote_file_name = util_fmt("run/%s", names[k]);
            run_open(m.r);
            ckpt_timestamp t;
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), i == 1 ? CKPT_NOT_FOUND : CKPT_OK);
            run_check(m.r, i - 1);
            t = at_batch(i);
            t.epoch = 2;
            run_set(m.r, i);
            ok(ckpt_saver_save(m.r->s, &t));
            ok(ckpt_saver_wait(m.r->s, 0));
            remote_end(&m);
        }
        bucket_end(b);
    }
}

// Saves step `step` as the 2nd epoch's.
static void save_epoch(run *r, int64_t step) {
    ckpt_timestamp t = at_batch(step);
    t.epoch = 2;
    run_set(r, step);
    ok(ckpt_saver_save(r->s, &t));
    ok(ckpt_saver_wait(r->s, 0));
}

// A store that keeps no checksum: the same name and size are not fetched to see whether it is the same, but another machine's is.
static void test_resume_epochs_by_their_ends(void **state) {
    (void)state;
    for (int other = 0; other < 2; other++) {
        const char *here = util_temp_dir(), *far = util_temp_dir(), *object = util_fmt("%s/run/ep2.pt", far);
        ckpt_timestamp t;
        for (int i = 1; i <= 3; i++) {
            if (i == 2 && !other) continue;
            assert_int_equal(chdir(i == 2 ? util_temp_dir() : here), 0);
            run *r = run_new(util_fmt("file://%s/run", far));
            r->d.filename = "ep{epoch}.pt";
            run_open(r);
            assert_int_equal(ckpt_saver_resume(r->s, &t), i == 1 ? CKPT_NOT_FOUND : CKPT_OK);
            run_check(r, i == 3 ? 1 + other : i - 1);
            if (i == 3) assert_int_equal(strstr(r->log, "fetching") != NULL, other);
            else save_epoch(r, i);
            run_end(r);
            ok(bucket_copy(object, util_fmt("%s.copy", object)));       // without the note that has the sum
            assert_int_equal(rename(util_fmt("%s.copy", object), object), 0);
        }
    }
}

// An object that is replaced between the look at it and its bytes: the index notes no sum but that of what came.
static ckpt_store *exchange_in;
static const char *exchange_for;

static void exchange(const char *name, const char *path) {
    const char *with = strcmp(name, "open") == 0 && strstr(path, "/..model.pt.") != NULL ? exchange_for : NULL;
    if (with == NULL) return;
    exchange_for = NULL;
    ok(ckpt_store_put(exchange_in, "run/model.pt", with, true));
}

static void test_resume_exchanged(void **state) {
    (void)state;
    const char *far = util_temp_dir(), *here = NULL;
    for (int i = 1; i <= 3; i++) {                      // two machines save, and a third one resumes
        ckpt_timestamp t;
        here = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        run *r = run_new(util_fmt("file://%s/run", i == 2 ? util_temp_dir() : far));
        r->d.filename = "model.pt";
        r->d.overwrite = true;
        r->d.num_checkpoints_to_keep = 1;
        run_open(r);
        if (i == 3) {
            ok(ckpt_store_open(&exchange_in, util_fmt("file://%s", far), NULL));
            fault_set_spy(exchange);
        }
        if (i < 3) run_save(r, i);
        else ok(ckpt_saver_resume(r->s, &t));
        fault_set_spy(NULL);
        run_check(r, i == 1 ? 1 : 2);
        if (i == 2) exchange_for = util_join(here, util_fmt(".%s/model.pt", r->d.folder + strlen("file://")));
        if (i == 3) assert_null(exchange_for);
        run_end(r);
    }
    size_t size = 0;
    char *got = util_read(util_join(here, util_fmt(".%s/run/model.pt", far)), &size);
    const char *noted = strstr(util_read(util_join(here, util_fmt(".%s/run/.ckpt-index.jsonl", far)), NULL), "\"checksum\":\"");
    assert_true(noted == NULL || strtoul(noted + strlen("\"checksum\":\""), NULL, 16) == ckpt__digest_crc32(0, got, size));
    ckpt_store_close(exchange_in);
}

// Without room to fetch it, what this machine has put there itself counts as the local one; what is not that does not.
static void test_resume_epochs_without_room(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    const char *dir = util_temp_dir();
    ckpt_timestamp t;
    for (int i = 0; i < 3; i++) {
        remote_run m = remote_new(dir, b);
        m.r->d.filename = "ep{epoch}.pt";
        m.r->d.remote_file_name = "run/ep{epoch}.pt";
        run_open(m.r);
        if (i == 0) save_epoch(m.r, 1);
        if (i == 2) util_write_text(bucket_path(b, "run/ep2.pt"), "another machine's");
        bucket_fail(b, "get run/ep", CKPT_NO_SPACE, -1);
        if (i > 0) assert_int_equal(ckpt_saver_resume(m.r->s, &t), i == 1 ? CKPT_OK : CKPT_NO_SPACE);
        if (i == 1) run_check(m.r, 1);
        if (i == 1) assert_non_null(strstr(m.r->log, "run/ep2.pt is taken for the same as ep2.pt"));
        bucket_fail(b, NULL, CKPT_OK, 0);
        remote_end(&m);
    }
    bucket_end(b);
}

// Ranks that do not write resume from the store too, and leave nothing.
static void test_other_ranks(void **state) {
    (void)state;
    bucket *b = bucket_with(3);
    remote_run m = remote_new(util_temp_dir(), b);
    m.r->d.ranks.rank = m.r->d.ranks.local_rank = 1;
    m.r->d.ranks.world_size = m.r->d.ranks.local_world_size = 2;
    run_open(m.r);
    ckpt_timestamp t;
    const char *temp = util_temp_dir(), *kept = getenv("TMPDIR");
    assert_int_equal(setenv("TMPDIR", temp, 1), 0);
    pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    util_write_text(util_fmt("%s/.ba1.pt.%s", temp, util_temp_tail((int)child)), "fetched");
    ok(ckpt_saver_resume(m.r->s, &t));
    assert_int_equal(kept != NULL ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
    run_check(m.r, 3);
    assert_string_equal(util_list(temp), "");           // not even what a process has left that was killed
    assert_string_equal(util_list(m.r->dir), "");
    run_save(m.r, 4);
    remote_end(&m);
    assert_false(bucket_has(b, "run/ba4.pt"));
    bucket_end(b);
}

// The newest of run 1, whether its local copy is there or not.
static void check_autoresume(const ckpt__json_doc *d, const ckpt__json *setup) {
    const char *here = util_temp_dir(), *dir = util_temp_dir();
    assert_int_equal(chdir(here), 0);
    ckpt_timestamp t;
    for (int start = 0; start < 2; start++) {
        run *r = run_new(util_fmt("file://%s/%s", dir, field_text(d, setup, "save_folder") + strlen("s3://bucket_name/")));
        r->d.run_name = field_text(d, setup, "run_name");
        r->d.filename = field_text(d, setup, "save_filename");
        r->d.latest_filename = field_text(d, setup, "latest_filename");
        r->d.overwrite = field_int(d, setup, "save_overwrite") != 0;
        run_open(r);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        assert_int_equal(e, start == 0 ? CKPT_NOT_FOUND : CKPT_OK);
        if (start == 1) run_check(r, 2);
        if (start == 1) assert_int_equal(t.epoch, 2);
        for (int epoch = 1; epoch <= 2 && start == 0; epoch++) {
            t = at_batch(5 * epoch);
            t.epoch = epoch;
            run_set(r, epoch);
            ok(ckpt_saver_save(r->s, &t));
        }
        run_end(r);
        if (start == 0 && field_int(d, setup, "delete_local") != 0) util_remove_tree(util_fmt("%s%s", here, dir));
    }
}

// autoresume.json, the rows with a store, with lz4 or without; the others are test_resume.c's.
static void autoresume_cases(bool lz4, int want) {
    ckpt__json_doc d = cases_json("autoresume.json");
    int rows = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row)) {
        const ckpt__json *setup = ckpt__json_get(&d, row, "setup");
        const char *folder = field_text(&d, setup, "save_folder"), *file = field_text(&d, setup, "save_filename");
        if (file == NULL || strncmp(folder, "s3://bucket_name/", 17) != 0 || (strstr(file, "lz4") != NULL) != lz4) continue;
        check_autoresume(&d, setup);
        rows++;
    }
    assert_int_equal(rows, want);
    ckpt__json_free(&d);
}

static void test_autoresume_cases(void **state) {
    (void)state;
    autoresume_cases(false, 16);
}

static void test_autoresume_cases_lz4(void **state) {
    (void)state;
    if (!ckpt__os_which("lz4")) util_skip("no lz4");
    autoresume_cases(true, 4);
}

// Each allocation of a run with a URI folder failing in turn: an error or success, no crash, nothing half done that hinders the
// next process.
static int      nomem_at;
static int      nomem_seen;
static void *nomem_fn(void *p, size_t old_size, size_t new_size, void *user) {
    (void)old_size;
    (void)user;
    if (new_size == 0) { free(p); return NULL; }
    return __atomic_add_fetch(&nomem_seen, 1, __ATOMIC_SEQ_CST) == nomem_at ? NULL : realloc(p, new_size);
}

static void test_out_of_memory(void **state) {
    (void)state;
    int step = util_long() ? 1 : 7;
    for (nomem_at = 1;; nomem_at += step) {
        const char *far = util_temp_dir();
        for (int machine = 0; machine < 2; machine++) {
            const char *here = util_temp_dir();
            assert_int_equal(chdir(here), 0);
            run *r = run_new(util_fmt("file://%s/x", far));
            r->d.allocator.fn = nomem_fn;
            r->d.num_remote_to_keep = 1;
            nomem_seen = machine == 0 ? 0 : nomem_seen;
            ckpt_timestamp t;
            ckpt_err e = ckpt_saver_open(&r->s, &r->d);
            if (e == CKPT_OK) {
                e = ckpt_saver_resume(r->s, &t);
                if (e == CKPT_OK) run_check(r, t.batch);
                for (int i = 1; i <= 2; i++) {
                    t = at_batch(10 * machine + i);
                    run_set(r, t.batch);
                    (void)(ckpt_saver_save(r->s, &t) == CKPT_OK);
                }
                (void)(ckpt_saver_close(r->s, 0) == CKPT_OK);
            } else {
                assert_null(r->s);
            }
            ckpt_state_free(&r->st);
            assert_int_equal(chdir("/"), 0);
            util_remove_tree(here);
        }
        bool over = nomem_seen < nomem_at;
        nomem_seen = 1 << 30;
        const char *here = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        run *r = run_new(util_fmt("file://%s/x", far));
        ckpt_timestamp t;
        run_open(r);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        if (e != CKPT_NOT_FOUND) ok(e);
        if (e == CKPT_OK) run_check(r, t.batch);
        run_end(r);
        assert_int_equal(chdir("/"), 0);
        util_remove_tree(here);
        util_remove_tree(far);
        if (over) break;
    }
    assert_true(nomem_at > 200);
}

// The store has it, but this machine cannot hold what it fetches, or not read its own copy: that is said neither of the checkpoint nor of
// the store, and an older one must not be taken for it, not with resume_offline either.
static const char *unheld_name, *unheld_call;
static int unheld_errnum;

static void unheld_spy(const char *name, const char *path) {
    if (strcmp(name, "open") != 0 || strstr(path, unheld_name) == NULL) return;
    if (strcmp(unheld_call, "pwrite") == 0) fault_arm_always(unheld_call, unheld_errnum);       // what passes is tried again
    else fault_arm_here(unheld_call, unheld_errnum);
}

// files: a store with ranges, which the library itself writes to the disk; a sharded checkpoint in it is compressed.
static remote_run unheld_new(const char *dir, bucket *b, bool sharded, bool files) {
    remote_run m = remote_new(dir, b);
    const char *in = files ? util_fmt("%s/", b->dir + 1) : "";
    m.r->d.sharded = sharded;
    m.r->d.sharded_prefix_dir = "ba{batch}";
    if (files && sharded) m.r->d.filename = "ba{batch}.pt.gz";
    m.r->d.remote_file_name = sharded ? util_fmt("%srun", in) : util_fmt("%srun/ba{batch}.pt", in);
    m.r->d.latest_remote_file_name = util_fmt("%srun/latest.pt", in);
    return m;
}

static void check_unheld(bucket *b, bool sharded, bool files, const char *name, const char *call, int errnum) {
    const char *dir = util_temp_dir();
    ckpt_timestamp t;
    for (int offline = 0; offline < 2; offline++) {
        run *old = run_new(dir);
        old->d.sharded = sharded;
        old->d.sharded_prefix_dir = "ba{batch}";
        if (files && sharded) old->d.filename = "ba{batch}.pt.gz";
        run_open(old);
        if (offline == 0) run_save(old, 2);
        run_end(old);
        remote_run m = unheld_new(dir, b, sharded, files);
        m.r->d.resume_offline = offline != 0;
        run_open(m.r);
        unheld_name = name;
        unheld_call = call;
        unheld_errnum = errnum;
        fault_set_spy(unheld_spy);
        ckpt_err e = ckpt_saver_resume(m.r->s, &t);
        fault_set_spy(NULL);
        bool hit = fault_disarm();
        if (e != CKPT_CANCELLED) fail_msg("%s %s %d: %s: %s", name, call, errnum, ckpt_err_name(e), ckpt_last_error());
        if (!hit) fail_msg("%s %s: no fault", name, call);
        assert_non_null(strstr(ckpt_last_error(), "this machine cannot hold a copy"));
        if (offline) ok(ckpt_saver_resume(m.r->s, &t));
        if (offline) assert_int_equal(t.batch, 3);
        remote_end(&m);
    }
}

static void test_resume_unheld(void **state) {
    (void)state;
    static const struct { const char *name, *call; int errnum; bool files; } rows[] = {
        { "/..ba3.pt.", "open", EACCES, false }, { "/..ba3.pt.", "open", ESTALE, false }, { "/..ba3.pt.", "open", EIO, false },
        { "/..ba3.pt.", "fsync", EIO, false }, { "/.ba3.pt.", "open", ESTALE, false }, { "/.ba3.pt.", "pread", ESTALE, false },
        { "/.ba3.pt.", "pread", EIO, false }, { "/..ba3.pt.", "fstat", ESTALE, false },
        { "/..__0_0.pt.", "open", EACCES, false }, { "/..__0_0.pt.", "open", ESTALE, false }, { "/..__0_0.pt.", "fsync", EIO, false },
        { "/.__0_0.pt.", "open", ESTALE, false }, { "/.__0_0.pt.", "pread", ESTALE, false }, { "/.__0_0.pt.", "pread", EIO, false },
        { "/..ba3.pt.", "pwrite", EIO, true }, { "/..ba3.pt.", "pwrite", ESTALE, true },
        { "/..__0_0.pt.gz.", "pwrite", EIO, true }, { "/..__0_0.pt.gz.", "pwrite", ESTALE, true },
        { "/.__0_0.pt.gz.", "pread", EIO, true }, { "/.__0_0.pt.gz.", "pread", ESTALE, true },
    };
    bucket *b[2][2];                    // [files][sharded]
    for (int i = 0; i < 4; i++) {
        bucket *now = b[i / 2][i % 2] = bucket_new(NULL);
        if (i >= 2) ckpt_store_close(now->store);
        if (i >= 2) ok(ckpt_store_open(&now->store, "file:///", NULL));
        remote_run m = unheld_new(util_temp_dir(), now, i % 2 != 0, i >= 2);
        run_open(m.r);
        save_wait(&m, 3);
        remote_end(&m);
    }
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bool sharded = strstr(rows[i].name, "__0_0") != NULL;
        check_unheld(b[rows[i].files][sharded], sharded, rows[i].files, rows[i].name, rows[i].call, rows[i].errnum);
    }
    for (int i = 0; i < 4; i++) bucket_end(b[i / 2][i % 2]);
}

static ckpt_err device_away(void *dst, const void *src, size_t size, bool to_device, void *user) {
    if (to_device && *(bool *)user) return ckpt_set_error(CKPT_NET, "the device is away");
    memcpy(dst, src, size);
    return CKPT_OK;
}

// A device that fails while it is filled from what was fetched is neither the store's fault nor the disk's.
static void test_resume_device_fails(void **state) {
    (void)state;
    bucket *b = bucket_new(NULL);
    for (int turn = 0; turn < 2; turn++) {
        bool away = turn > 0;
        float cell[4] = { 1, 2, 3, 4 };
        remote_run m = remote_new(util_temp_dir(), b);
        run_bind_device(m.r, cell, device_away, &away);
        m.r->d.resume_offline = true;
        run_open(m.r);
        if (!away) save_wait(&m, 1);
        ckpt_timestamp t;
        if (away) {
            assert_int_equal(ckpt_saver_resume(m.r->s, &t), CKPT_CANCELLED);
            assert_non_null(strstr(ckpt_last_error(), "state.copy failed"));
            assert_null(strstr(ckpt_last_error(), "cannot hold a copy"));
        }
        away = false;
        if (turn > 0) ok(ckpt_saver_resume(m.r->s, &t));
        remote_end(&m);
    }
    bucket_end(b);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    fault_sync = FAULT_NO_SYNC;         // that it is called matters elsewhere; its time would be most of this test's
    util_clear_env();
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uploader_closed_first),
        cmocka_unit_test(test_layout_cases),
        cmocka_unit_test(test_remote_names_refused), cmocka_unit_test(test_latest_of_two_savers),
        cmocka_unit_test(test_trainer_save_folder),
        cmocka_unit_test(test_uri_folder),
        cmocka_unit_test(test_uri_folder_cut),
        cmocka_unit_test(test_uri_folder_load),
        cmocka_unit_test(test_link_in_the_way),
        cmocka_unit_test(test_chdir_while_uploading), cmocka_unit_test(test_upload_ends_in_a_moved_folder),
        cmocka_unit_test(test_uri_folder_is_itself), cmocka_unit_test(test_uri_folder_is_nothing),
        cmocka_unit_test(test_trial_is_in_the_folder),
        cmocka_unit_test(test_two_destinations), cmocka_unit_test(test_removed_is_counted),
        cmocka_unit_test(test_file_path_format), cmocka_unit_test(test_unclean_names),
        cmocka_unit_test(test_open_fails_after_handing_over),
        cmocka_unit_test(test_calls_do_not_wait),
        cmocka_unit_test(test_publication_order),
        cmocka_unit_test(test_publication_goes_on),
        cmocka_unit_test(test_idle_events),
        cmocka_unit_test(test_early_parts),
        cmocka_unit_test(test_failure_is_reported_once),
        cmocka_unit_test(test_failed_upload_outlives_a_failed_save),
        cmocka_unit_test(test_own_failure_is_reported_once), cmocka_unit_test(test_own_object_is_gone),
        cmocka_unit_test(test_overtaken_is_told), cmocka_unit_test(test_two_failures_at_once),
        cmocka_unit_test(test_stalled_upload),
        cmocka_unit_test(test_overwrite), cmocka_unit_test(test_refused_stays_refused),
        cmocka_unit_test(test_own_object_is_replaced), cmocka_unit_test(test_own_object_without_link_is_replaced),
        cmocka_unit_test(test_not_handed_over_is_not_own),
        cmocka_unit_test(test_refused_after_restart),
        cmocka_unit_test(test_remote_conflict), cmocka_unit_test(test_newest_unseen), cmocka_unit_test(test_newest_unseen_and_taken_back),
        cmocka_unit_test(test_keep_none),
        cmocka_unit_test(test_keep_none_waits_for_all),
        cmocka_unit_test(test_keep_none_same_name),
        cmocka_unit_test(test_remote_rotation), cmocka_unit_test(test_remote_rotation_of_two_runs),
        cmocka_unit_test(test_remote_rotation_in_a_copy),
        cmocka_unit_test(test_ledger_is_out_of_reach), cmocka_unit_test(test_ledger_out_of_reach_and_pinned),
        cmocka_unit_test(test_partial_ledger_is_made_again), cmocka_unit_test(test_ledger_of_another_template),
        cmocka_unit_test(test_pins_of_what_is_local),
        cmocka_unit_test(test_partial_ledger_without_resume),
        cmocka_unit_test(test_pins_without_a_list),
        cmocka_unit_test(test_copy_tells_of_later),
        cmocka_unit_test(test_ledger_without_a_copy),
        cmocka_unit_test(test_unpinned_meanwhile), cmocka_unit_test(test_pinned_and_killed),
        cmocka_unit_test(test_ledger_lags_behind), cmocka_unit_test(test_ledger_goes_along),
        cmocka_unit_test(test_store_away),
        cmocka_unit_test(test_store_too_slow),
        cmocka_unit_test(test_given_up_for_nothing),
        cmocka_unit_test(test_given_up_and_there),
        cmocka_unit_test(test_damaged_is_not_sent),
        cmocka_unit_test(test_newest_of_two_constant_names),
        cmocka_unit_test(test_two_stores_on_an_empty_machine),
        cmocka_unit_test(test_failed_before_it_opened), cmocka_unit_test(test_resumes_while_one_comes),
        cmocka_unit_test(test_replaced_in_the_store),
        cmocka_unit_test(test_damaged_is_not_handed_over),
        cmocka_unit_test(test_removed_before_it_was_published),
        cmocka_unit_test(test_lost_answer_and_no_look), cmocka_unit_test(test_refused_for_nothing_is_own),
        cmocka_unit_test(test_removed_while_written),
        cmocka_unit_test(test_given_up_and_pinned),
        cmocka_unit_test(test_fetched_stays_pinned),
        cmocka_unit_test(test_pinned_meanwhile),
        cmocka_unit_test(test_unpinned_leaves_the_store), cmocka_unit_test(test_pinned_name_in_the_store),
        cmocka_unit_test(test_pinned_while_staged),
        cmocka_unit_test(test_pinned_and_away), cmocka_unit_test(test_full_disk_keeps_none), cmocka_unit_test(test_full_disk_stages_nothing),
        cmocka_unit_test(test_left_before_a_copy),
        cmocka_unit_test(test_goes_on_with_another_store),
        cmocka_unit_test(test_index_cannot_be_written),
        cmocka_unit_test(test_remote_rotation_keeps), cmocka_unit_test(test_ledger_cannot_be_written), cmocka_unit_test(test_lost_for_good),
        cmocka_unit_test(test_staging_folder_is_named_later),
        cmocka_unit_test(test_left_by_another_run),
        cmocka_unit_test(test_left_and_somebody_elses), cmocka_unit_test(test_left_and_overtaken),
        cmocka_unit_test(test_listing_of_an_earlier_save),
        cmocka_unit_test(test_left_and_one_unseen),
        cmocka_unit_test(test_given_up_when_it_was_there), cmocka_unit_test(test_told_in_the_other_order),
        cmocka_unit_test(test_listed_in_order),
        cmocka_unit_test(test_left_without_a_number),
        cmocka_unit_test(test_saves_less_elsewhere), cmocka_unit_test(test_listed_in_another_future), cmocka_unit_test(test_link_leads_to_an_older_one),
        cmocka_unit_test(test_best_by_a_new_rule),
        cmocka_unit_test(test_removal_refused), cmocka_unit_test(test_removal_refused_at_each_start), cmocka_unit_test(test_removal_fails_for_one),
        cmocka_unit_test(test_removal_refused_for_some_time), cmocka_unit_test(test_removal_refused_for_another),
        cmocka_unit_test(test_index_state),
        cmocka_unit_test(test_next_process_finishes),
        cmocka_unit_test(test_replaced_before_it_was_noted),
        cmocka_unit_test(test_staged_is_newer),
        cmocka_unit_test(test_resume_on_an_empty_machine),
        cmocka_unit_test(test_back_on_the_first_machine), cmocka_unit_test(test_sharded_back_on_the_first_machine),
        cmocka_unit_test(test_sharded_goes_on_whole),
        cmocka_unit_test(test_sharded_goes_on_whole_unwaited),
        cmocka_unit_test(test_sharded_killed_goes_on_whole),
        cmocka_unit_test(test_sharded_saved_again_elsewhere),
        cmocka_unit_test(test_pinned_while_offline), cmocka_unit_test(test_anothers_while_offline), cmocka_unit_test(test_anothers_of_epochs_while_offline),
        cmocka_unit_test(test_pinned_of_the_same_number),
        cmocka_unit_test(test_sharded_listing_unread),
        cmocka_unit_test(test_sharded_listing_away),
        cmocka_unit_test(test_close_tries_once),
        cmocka_unit_test(test_sharded_count_goes_on),
        cmocka_unit_test(test_fresh_start),
        cmocka_unit_test(test_resume_newest), cmocka_unit_test(test_resume_by_another_latest_name),
        cmocka_unit_test(test_resume_walks_back),
        cmocka_unit_test(test_resume_without_a_good_link), cmocka_unit_test(test_resume_listed_by_filled_names),
        cmocka_unit_test(test_resume_all_damaged),
        cmocka_unit_test(test_resume_offline),
        cmocka_unit_test(test_resume_offline_later), cmocka_unit_test(test_resume_no_list),
        cmocka_unit_test(test_left_while_the_store_is_away), cmocka_unit_test(test_resume_unheld),
        cmocka_unit_test(test_resume_device_fails), cmocka_unit_test(test_left_and_another_is_newer),
        cmocka_unit_test(test_left_and_another_is_early),
        cmocka_unit_test(test_left_and_files_are_dated_back),
        cmocka_unit_test(test_resume_constant_names), cmocka_unit_test(test_resume_names_of_epochs),
        cmocka_unit_test(test_resume_exchanged), cmocka_unit_test(test_resume_epochs_by_their_ends), cmocka_unit_test(test_resume_epochs_without_room),
        cmocka_unit_test(test_other_ranks),
        cmocka_unit_test(test_autoresume_cases), cmocka_unit_test(test_autoresume_cases_lz4),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
