// Proves the way from a load_path to a filled state: names, .symlink files, links, text links, get_file, folders; the case
// tables loading.json, get_file_local.json, create_symlink_file.tsv, folder_empty.tsv, as far as they concern the local disk.
// run.sh: no-tsan (the savers' threads are test_saver.c's)
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"

static const char *root;                // of the running test; also the working directory

static int enter(void **unused) {
    (void)unused;
    root = util_temp_dir();
    util_clear_env();
    return chdir(root);
}

static int leave(void **unused) {
    (void)unused;
    return chdir("/");
}

static void save_value(const char *path, int64_t value) {
    ckpt_state st = {0};
    ckpt_bind_int(&st, "state/model/x", &value);
    must(ckpt_save(path, &st, NULL));
    ckpt_state_free(&st);
}

// The value found through a path, or the error as a negative number.
static int64_t load_run(const char *path, const char *run_name) {
    int64_t value = -100;
    ckpt_state st = {0};
    ckpt_load_desc d = {0};
    ckpt_bind_int(&st, "state/model/x", &value);
    d.load_path = path;
    d.run_name = run_name;
    d.state = &st;
    ckpt_err e = ckpt_load(&d, NULL);
    ckpt_state_free(&st);
    return e == CKPT_OK ? value : -(int64_t)e;
}

static int64_t load_value(const char *path) {
    return load_run(path, NULL);
}

//-- names -------------------------------------------------------------------------

static void test_path_names(void **unused) {
    (void)unused;
    save_value("a-run/ep1-rank0.pt", 1);
    save_value("{x}.pt", 2);
    assert_int_equal(load_run("{run_name}/ep1-rank{rank}.pt", "a-run"), 1);
    assert_int_equal(load_run("{run_name}/ep1-rank{local_rank:d}.pt", "a-run"), 1);
    assert_int_equal(load_run("{{x}}.pt", NULL), 2);
    assert_int_equal(load_run("{run_name}/ep{epoch}-rank0.pt", "a-run"), -CKPT_ARG);
    expect_sentence("epoch");
    assert_int_equal(load_run("{run_name}/ep1-rank0.pt", NULL), -CKPT_ARG);
    expect_sentence("run_name");
    setenv("RUN_NAME", "no-run", 1);
    setenv("COMPOSER_RUN_NAME", "a-run", 1);
    assert_int_equal(load_run("{run_name}/ep1-rank0.pt", NULL), 1);
    setenv("COMPOSER_RUN_NAME", "", 1);
    setenv("RUN_NAME", "a-run", 1);
    assert_int_equal(load_run("{run_name}/ep1-rank0.pt", NULL), 1);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    assert_int_equal(load_run("a-run/ep1-rank{rank}.pt", NULL), 1);         // every rank reads rank 0's file
    setenv("RANK", "2", 1);
    assert_int_equal(load_run("a-run/ep1-rank{rank}.pt", NULL), -CKPT_ARG); // rank 2 of 2
    util_clear_env();
}

static void test_awkward_names(void **unused) {
    (void)unused;
    static const char *const names[] = { "q?x.pt", "p%20x.pt", "a#b;c.pt", "c:d.pt", " spaces .pt", "\xc3\xbc.pt", "-rf.pt" };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        save_value(names[i], i + 10);
        assert_int_equal(load_value(names[i]), i + 10);
    }
    assert_int_equal(load_value("s3://bucket/x.pt"), -CKPT_UNSUPPORTED);
    expect_sentence("without the network");
    assert_int_equal(load_value("foo://bucket/x.pt"), -CKPT_ARG);
    assert_int_equal(load_value(""), -CKPT_ARG);
}

//-- links -------------------------------------------------------------------------

static void test_missing(void **unused) {
    (void)unused;
    assert_int_equal(load_value("run/nope.pt"), -CKPT_NOT_FOUND);
    expect_sentence("run/nope.pt: there is no such file");
    util_write_text("gone.pt.symlink", "nowhere.pt");
    assert_int_equal(load_value("gone.pt"), -CKPT_NOT_FOUND);
    expect_sentence("gone.pt");
    expect_sentence("nowhere.pt");
    assert_int_equal(symlink("nowhere", "dangling.pt"), 0);
    assert_int_equal(load_value("dangling.pt"), -CKPT_NOT_FOUND);
    expect_sentence("link to a file that is not there");
    assert_int_equal(load_value("none.symlink"), -CKPT_NOT_FOUND);
    expect_sentence("none.symlink");
    util_write_text("file", "x");
    assert_int_equal(load_value("file/below.pt"), -CKPT_NOT_FOUND);
}

static void test_symlink_files(void **unused) {
    (void)unused;
    save_value("runs/a/ep1.pt", 1);
    util_write_text("runs/a/latest.pt.symlink", "ep1.pt");                  // relative to its own folder
    util_write_text("runs/other.symlink", "  a/ep1.pt\n");                  // trimmed
    util_write_text("abs.symlink", util_fmt("%s/runs/a/ep1.pt", root));
    util_write_text("two.symlink", "runs/other.symlink");
    util_write_text("three.symlink", "runs/a/latest.pt");                   // through the fallback
    static const char *const ways[] = { "runs/a/latest.pt.symlink", "runs/a/latest.pt", "runs/other.symlink", "abs.symlink", "two.symlink",
                                        "three.symlink", "./runs/../runs/a/latest.pt" };
    for (int i = 0; i < UTIL_COUNT(ways); i++) {
        if (load_value(ways[i]) != 1) fail_msg("%s: %s", ways[i], ckpt_last_error());
        if (load_value(util_join(root, ways[i])) != 1) fail_msg("%s: %s", ways[i], ckpt_last_error());
        ckpt_file *f = NULL;
        must(ckpt_file_open(&f, ways[i]));
        ckpt_file_close(f);
    }
    save_value("runs/a/latest.pt", 2);                                      // the file itself comes before its .symlink
    assert_int_equal(load_value("runs/a/latest.pt"), 2);
    assert_int_equal(load_value("runs/a/latest.pt.symlink"), 1);
}

static void test_symlink_rings(void **unused) {
    (void)unused;
    util_write_text("a.symlink", "b.symlink");
    util_write_text("b.symlink", "a.symlink");
    assert_int_equal(load_value("a.symlink"), -CKPT_CORRUPT);
    expect_sentence("ring");
    util_write_text("self.symlink", "self");
    assert_int_equal(load_value("self"), -CKPT_CORRUPT);
    expect_sentence("ring");
    save_value("end.pt", 5);
    util_write_text("h1.symlink", "end.pt");
    for (int i = 2; i <= 9; i++) util_write_text(util_fmt("h%d.symlink", i), util_fmt("h%d.symlink", i - 1));
    assert_int_equal(load_value("h8.symlink"), 5);
    assert_int_equal(load_value("h9.symlink"), -CKPT_CORRUPT);
    util_write_text("empty.symlink", " \n");
    assert_int_equal(load_value("empty.symlink"), -CKPT_CORRUPT);
    util_write_text("lines.symlink", "end.pt\nend.pt");
    assert_int_equal(load_value("lines.symlink"), -CKPT_CORRUPT);
    util_write("nul.symlink", "end.pt\0x", 8);
    assert_int_equal(load_value("nul.symlink"), -CKPT_CORRUPT);
    char *long_text = util_fmt("%05000d", 0);
    util_write_text("long.symlink", long_text);
    assert_int_equal(load_value("long.symlink"), -CKPT_CORRUPT);
    util_write_text("uri.symlink", "s3://bucket/x.pt");
    assert_int_equal(load_value("uri.symlink"), -CKPT_UNSUPPORTED);
}

// `latest` as a link, and as the one line of text that stands for it where there are no links.
static void test_latest(void **unused) {
    (void)unused;
    save_value("run/sub/ep1.pt", 1);
    assert_int_equal(symlink("sub/ep1.pt", "run/latest-rank0.pt"), 0);
    assert_int_equal(load_value("run/latest-rank{rank}.pt"), 1);
    util_write_text("run/text.pt", "sub/ep1.pt");
    assert_int_equal(load_value("run/text.pt"), 1);
    util_write_text("run/text2.pt", "text.pt\n");
    assert_int_equal(load_value("run/text2.pt"), 1);
    util_write_text("run/text3.pt", "sub/none.pt");                         // names nothing: then it is a bad checkpoint
    assert_int_equal(load_value("run/text3.pt"), -CKPT_CORRUPT);
    util_write_text("run/text4.pt", "text4.pt");
    assert_int_equal(load_value("run/text4.pt"), -CKPT_CORRUPT);
}

//-- the case tables -----------------------------------------------------------------

typedef struct table { ckpt__json_doc d; const ckpt__json *row; } table;

static void open_table(table *t, const char *name) {
    size_t size;
    char *json = util_read(util_tests_path(util_fmt("cases/%s", name)), &size);
    ckpt_allocator a = { NULL, NULL };
    must(ckpt__json_parse(&t->d, &a, json, size));
    t->row = ckpt__json_child(&t->d, ckpt__json_root(&t->d));
}

static const char *field(const table *t, const char *key) {
    const ckpt__json *v = ckpt__json_get(&t->d, t->row, key);
    return v != NULL && v->kind == CKPT__JSON_TEXT ? v->text : NULL;
}

static bool truth(const table *t, const char *key) {
    const ckpt__json *v = ckpt__json_get(&t->d, t->row, key);
    return v != NULL && v->kind == CKPT__JSON_BOOL && v->i != 0;
}

// "$CWD/x" in the row's own folder.
static const char *placed(const char *text, const char *here) {
    return strncmp(text, "$CWD", 4) == 0 ? util_fmt("%s%s", here, text + 4) : text;
}

static void test_get_file_local(void **unused) {
    (void)unused;
    table t;
    int rows = 0;
    for (open_table(&t, "get_file_local.json"); t.row != NULL; t.row = ckpt__json_next(&t.d, t.row), rows++) {
        const char *here = util_temp_dir();
        assert_int_equal(chdir(here), 0);
        const ckpt__json *files = ckpt__json_get(&t.d, t.row, "files"), *links = ckpt__json_get(&t.d, t.row, "links");
        for (const ckpt__json *f = ckpt__json_child(&t.d, files); f != NULL; f = ckpt__json_next(&t.d, f)) util_write_text(f->key, f->text);
        for (const ckpt__json *l = ckpt__json_child(&t.d, links); l != NULL; l = ckpt__json_next(&t.d, l)) assert_int_equal(symlink(l->text, l->key), 0);
        const char *path = placed(field(&t, "path"), here), *status = field(&t, "status");
        ckpt_err want = strcmp(status, "ok") == 0 ? CKPT_OK : strcmp(status, "FileExistsError") == 0 ? CKPT_EXISTS : CKPT_NOT_FOUND;
        const char *note = field(&t, "note");
        bool dangles = note != NULL && strcmp(note, "dangling link at the destination") == 0;      // refused for ever, overwrite or not
        bool repaired = dangles || strcmp(path, "q?x") == 0;                // SPEC 10, 28: '?' cut the name
        if (repaired) want = CKPT_OK;
        ckpt_err e = ckpt_get_file(path, "dest", truth(&t, "overwrite"));
        if (e != want) fail_msg("%s: %s %s", path, ckpt_err_name(e), ckpt_last_error());
        if (dangles) assert_string_equal(util_link_target("dest"), util_join(here, "x"));
        if (repaired) continue;
        const char *target = util_link_target("dest"), *content = field(&t, "content");
        assert_int_equal(target != NULL, truth(&t, "dest_is_link"));
        if (target != NULL) assert_string_equal(target, placed(field(&t, "dest_link_target"), here));
        if (content != NULL) assert_string_equal(util_read("dest", NULL), content);
    }
    assert_int_equal(rows, 7);
    util_write_text("y", "y");                                              // in the last row's folder: the file of the link that was made
    assert_int_equal(unlink("x"), 0);                                       // goes, as rotation lets it
    assert_int_equal(ckpt_get_file("y", "dest", false), CKPT_EXISTS);
    must(ckpt_get_file("y", "dest", true));
    assert_string_equal(util_read("dest", NULL), "y");
    assert_int_equal(symlink("circle", "circle"), 0);
    must(ckpt_get_file("y", "circle", true));
    assert_string_equal(util_read("circle", NULL), "y");
    assert_string_equal(util_list("."), "circle\ndest\ny\n");
    ckpt__json_free(&t.d);
}

static void test_get_file(void **unused) {
    (void)unused;
    util_mkdir("run");
    util_write_text("run/ep1.pt", "content");
    util_write_text("run/latest.pt.symlink", "ep1.pt\n");
    must(ckpt_get_file("run/latest.pt", "got", false));
    assert_string_equal(util_read("got", NULL), "content");
    assert_string_equal(util_link_target("got"), util_join(root, "run/ep1.pt"));
    assert_int_equal(ckpt_get_file("run/latest.pt", "got", false), CKPT_EXISTS);
    expect_sentence("got");
    must(ckpt_get_file("./run/ep1.pt", "got", true));
    assert_string_equal(util_link_target("got"), util_join(root, "run/ep1.pt"));
    must(ckpt_get_file("got", "got", true));                         // a link that leads there already: not to itself
    assert_int_equal(symlink("got", "over"), 0);
    must(ckpt_get_file("over", "got", true));
    assert_string_equal(util_link_target("got"), util_join(root, "run/ep1.pt"));
    assert_int_equal(unlink("over"), 0);
    must(ckpt_get_file("run/ep1.pt", "run/ep1.pt", true));           // itself: nothing is to be done, by whatever name
    must(ckpt_create_symlink_file("ep1.pt", "run/way.symlink"));
    must(ckpt_get_file("run/way.symlink", "run/ep1.pt", true));
    assert_int_equal(symlink("run", "via"), 0);
    must(ckpt_get_file("run/ep1.pt", "via/ep1.pt", true));
    must(ckpt_get_file("via/ep1.pt", "run/ep1.pt", true));
    struct stat st;
    assert_true(lstat("run/ep1.pt", &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0);
    assert_int_equal(unlink("via"), 0);
    assert_int_equal(ckpt_get_file("run/ep1.pt", "run", true), CKPT_EXISTS);
    assert_int_equal(ckpt_get_file("run", "x", true), CKPT_UNSUPPORTED);
    ckpt_file *f;
    assert_int_equal(ckpt_file_open(&f, "run"), CKPT_UNSUPPORTED);
    expect_sentence("name a checkpoint in it, or its link, as in run/latest-rank0.pt");
    assert_int_equal(ckpt_get_file("s3://b/x", "x", true), CKPT_UNSUPPORTED);
    assert_int_equal(ckpt_get_file(NULL, "x", true), CKPT_ARG);
    assert_int_equal(ckpt_get_file("run/ep1.pt", NULL, true), CKPT_ARG);
    assert_int_equal(ckpt_get_file("run/ep1.pt", "", true), CKPT_ARG);
    assert_string_equal(util_list("."), "got\nrun\n");                      // nothing hidden is left
    must(ckpt_get_file("run/ep1.pt", "new/deep/got", false));               // folders are made
    assert_string_equal(util_link_target("new/deep/got"), util_join(root, "run/ep1.pt"));
    assert_string_equal(util_list("new/deep"), "got\n");
    assert_int_equal(ckpt_get_file("run/nothing.pt", "none/got", false), CKPT_NOT_FOUND);
    assert_int_equal(ckpt_get_file("run/ep1.pt", "run/ep1.pt/got", false), CKPT_EXISTS);
    expect_sentence("a file of that name is in the way");
    assert_int_equal(symlink("nowhere", "void"), 0);
    assert_int_equal(ckpt_get_file("run/ep1.pt", "void/got", false), CKPT_IO);      // it is the destination that is missing
    expect_sentence("there is no folder for it");
    assert_int_equal(unlink("void"), 0);
    assert_string_equal(util_list("."), "got\nnew\nrun\n");
    ckpt_allocator a = { NULL, NULL };
    must(ckpt__loader_copy("run/ep1.pt", "copied", false, &a));             // what stands in where links are refused
    assert_string_equal(util_read("copied", NULL), "content");
    assert_int_equal(ckpt__loader_copy("run/ep1.pt", "copied", false, &a), CKPT_EXISTS);
}

static void test_create_symlink_file(void **unused) {
    (void)unused;
    assert_int_equal(chdir(util_temp_dir()), 0);
    assert_int_equal(ckpt_create_symlink_file("ep1.pt", "s3://bucket/run/latest.pt.symlink"), CKPT_UNSUPPORTED);
    expect_sentence("s3://bucket/run/latest.pt.symlink is a URI, and only a local path will do here");
    assert_string_equal(util_list("."), "");
    util_table t = cases_tsv("create_symlink_file.tsv");
    int left = 0;
    for (int row = 0; row < t.rows; row++) {
        assert_int_equal(chdir(util_temp_dir()), 0);
        const char *name = cases_text(&t, row, "filename"), *status = cases_text(&t, row, "status");
        if (cases_true(&t, row, "exists_before")) util_write_text(name, cases_text(&t, row, "file_content"));
        ckpt_err want = strcmp(status, "ok") == 0 ? CKPT_OK : strcmp(status, "FileExistsError") == 0 ? CKPT_EXISTS : CKPT_ARG;
        bool nothing = cases_text(&t, row, "target")[0] == 0;       // Composer makes a link that leads nowhere
        if (nothing) want = CKPT_ARG, left++;
        ckpt_err e = ckpt_create_symlink_file(cases_text(&t, row, "target"), name);
        if (e != want) fail_msg("row %d: %s", row, ckpt_err_name(e));
        const char *content = nothing ? NULL : cases_get(&t, row, "file_content");
        assert_int_equal(util_exists(name), content != NULL);
        if (content != NULL) assert_string_equal(util_read(name, NULL), content);
    }
    assert_int_equal(t.rows, 4);
    assert_int_equal(left, 1);
    char *longest = (char *)util_keep(malloc(4098), false);
    memset(longest, 'x', 4097);
    longest[4097] = 0;
    const char *const bad[] = { " \t", "ep1.pt\n", "ep1.pt\nep2.pt", "\n", "\xff.pt", longest };     // what no reader takes
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        assert_int_equal(ckpt_create_symlink_file(bad[i], "bad.symlink"), CKPT_ARG);
        expect_sentence("bad.symlink");
        assert_false(util_exists("bad.symlink"));
    }
    must(ckpt_create_symlink_file(longest + 1, "long.symlink"));
    assert_string_equal(util_read("long.symlink", NULL), longest + 1);
    assert_int_equal(ckpt_create_symlink_file(NULL, "x.symlink"), CKPT_ARG);
    assert_int_equal(ckpt_create_symlink_file("x", NULL), CKPT_ARG);
}

static void make_parents(const char *path) {
    for (const char *p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/')) util_mkdir(util_fmt("%.*s", (int)(p - path), path));
}

static void test_folder_empty(void **unused) {
    (void)unused;
    util_table t = cases_tsv("folder_empty.tsv");
    ckpt_allocator a = { NULL, NULL };
    for (int row = 0; row < t.rows; row++) {
        assert_int_equal(chdir(util_temp_dir()), 0);
        util_mkdir("f");
        const char *json = cases_text(&t, row, "files_json");
        ckpt__json_doc d;
        must(ckpt__json_parse(&d, &a, json, strlen(json)));
        for (const ckpt__json *f = ckpt__json_child(&d, ckpt__json_root(&d)); f != NULL; f = ckpt__json_next(&d, f)) {
            const char *path = util_fmt("f/%s", f->text);
            make_parents(path);
            util_write_text(path, "x");
        }
        ckpt__json_free(&d);
        ckpt_err want = strcmp(cases_text(&t, row, "status"), "ok") == 0 ? CKPT_OK : CKPT_EXISTS;
        ckpt_err e = ckpt_ensure_folder_is_empty("f");
        if (e != want) fail_msg("%s: %s", json, ckpt_err_name(e));
        if (e != CKPT_OK) expect_sentence("f/d/x");
    }
    assert_int_equal(t.rows, 6);
    must(ckpt_ensure_folder_is_empty("missing"));
    util_write_text("file", "x");
    assert_int_equal(ckpt_ensure_folder_is_empty("file"), CKPT_EXISTS);
    assert_int_equal(ckpt_ensure_folder_is_empty(NULL), CKPT_ARG);
    assert_int_equal(ckpt_ensure_folder_is_empty("s3://bucket/run"), CKPT_UNSUPPORTED);         // no such local folder, but who knows
    util_mkdir("links");
    assert_int_equal(symlink("..", "links/up"), 0);                         // a folder: not entered, no file
    must(ckpt_ensure_folder_is_empty("links"));
    assert_int_equal(symlink("nowhere", "links/dangling"), 0);
    assert_int_equal(ckpt_ensure_folder_is_empty("links"), CKPT_EXISTS);
}

// A folder in it that cannot be listed to its end is named, whatever long names were in it.
static void test_folder_unlisted(void **unused) {
    (void)unused;
    const char *sub = util_fmt("f/%0200d", 1);
    util_mkdir("f");
    util_mkdir(sub);
    for (int i = 0; i < 4; i++) util_mkdir(util_fmt("%s/%0200d", sub, i));
    for (int n = 1;; n++) {
        fault_arm_call("readdir", EIO, n);
        ckpt_err e = ckpt_ensure_folder_is_empty("f");
        bool hit = fault_disarm();
        assert_int_equal(e, hit ? CKPT_IO : CKPT_OK);
        if (!hit) break;
        expect_sentence("cannot list the folder f");
    }
}

//-- loading.json --------------------------------------------------------------------

typedef struct model { ckpt_state st; float w; int64_t calls, rng, metric; } model;

static void model_bind(model *m, bool metrics) {
    memset(m, 0, sizeof *m);
    ckpt_bind_f32(&m->st, "state/model/w", &m->w, 1);
    ckpt_bind_int(&m->st, "state/callbacks/EarlyStopper/calls", &m->calls);
    ckpt_bind_int(&m->st, "rng/0/python", &m->rng);
    if (metrics) ckpt_bind_int(&m->st, "state/train_metrics/loss", &m->metric);
}

static void model_fill(model *m, int n) {
    m->w = (float)n;
    m->calls = m->rng = m->metric = n;
}

// ignore on save, ignore on load, weights only; expects what came back. On saving, what is left out is then loaded not strictly.
static void check_load(const char *glob, bool on_save, bool weights_only, bool w, bool calls, bool rng) {
    model m;
    model_bind(&m, false);
    model_fill(&m, 7);
    const char *globs[1];
    globs[0] = glob;
    ckpt__items items;
    ckpt__plan plan;
    ckpt__file_format fmt;
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    must(ckpt__state_select(&m.st, false, globs, on_save && glob != NULL ? 1 : 0, NULL, &items));
    ckpt__plan_init(&plan, NULL, &m.st);
    must(ckpt__file_format_of("t.pt", &fmt));
    must(ckpt__file_plan(&plan, &fmt, "t.pt", items.list, items.count));
    must(ckpt__file_write("t.pt", &fmt, &plan, true, &job, &m.st.allocator, NULL));
    ckpt__plan_free(&plan);
    ckpt__items_free(&items);
    model_fill(&m, 1);
    ckpt_load_desc d = {0};
    d.load_path = "t.pt";
    d.state = &m.st;
    d.not_strict = on_save;
    d.load_weights_only = weights_only;
    d.load_ignore_keys = globs;
    d.load_ignore_keys_count = !on_save && glob != NULL ? 1 : 0;
    must(ckpt_load(&d, NULL));
    if ((m.w == 7.0f) != w || (m.calls == 7) != calls || (m.rng == 7) != rng) fail_msg("%s %d %d", glob ? glob : "-", on_save, weights_only);
    ckpt_state_free(&m.st);
}

// "ignore ['state/model/*'] on load": the expectations stand in the row.
static bool check_ignore_row(const table *t, const char *name) {
    const char *open = strstr(name, "['"), *close = strstr(name, "']");
    if (strncmp(name, "ignore", 6) != 0 || open == NULL || close == NULL) return false;
    char *glob = util_fmt("%.*s", (int)(close - open - 2), open + 2);
    const ckpt__json *want = ckpt__json_get(&t->d, t->row, "expect");
    check_load(glob, strstr(close, "on save") != NULL, false, ckpt__json_get(&t->d, want, "weights")->i != 0,
               ckpt__json_get(&t->d, want, "callbacks")->i != 0, ckpt__json_get(&t->d, want, "rng")->i != 0);
    return true;
}

static void check_strict_row(const char *name) {
    int64_t a = 1, b = 2;
    ckpt_state saved = {0}, st = {0};
    ckpt_bind_int(&saved, "state/model/a", &a);
    if (strstr(name, "unexpected") != NULL) ckpt_bind_int(&saved, "state/model/b", &b);
    must(ckpt_save("s.pt", &saved, NULL));
    ckpt_bind_int(&st, "state/model/a", &a);
    if (strstr(name, "missing") != NULL) ckpt_bind_int(&st, "state/model/b", &b);
    for (int weights = 0; weights < 2; weights++) {
        ckpt_load_desc d = {0};
        d.load_path = "s.pt";
        d.state = &st;
        d.load_weights_only = weights != 0;
        bool same = strstr(name, "no difference") != NULL;
        assert_int_equal(ckpt_load(&d, NULL), same ? CKPT_OK : CKPT_MISMATCH);
        d.not_strict = true;
        must(ckpt_load(&d, NULL));
    }
    ckpt_state_free(&saved);
    ckpt_state_free(&st);
}

// A saver for rows about what is saved, or done next.
static ckpt_saver *row_saver(ckpt_state *st, const char *folder, const char *filename, const char *run_name, bool overwrite, bool weights_only) {
    ckpt_saver *s = NULL;
    ckpt_saver_desc d = {0};
    d.state = st;
    d.folder = folder;
    d.filename = filename;
    d.run_name = run_name;
    d.overwrite = overwrite;
    d.weights_only = weights_only;
    must(ckpt_saver_open(&s, &d));
    return s;
}

// The parts "state/KEY" that the row names are in the file, no others, and random state when it says so.
static void check_saved_row(const table *t) {
    static const char *const bound[] = { "model", "optimizers", "schedulers", "algorithms", "scaler", "rank_zero_seed", "dataset_state", "integrations", "metadata" };
    const ckpt__json *want = ckpt__json_get(&t->d, t->row, "expect"), *keys = ckpt__json_get(&t->d, want, "state_keys");
    bool weights_only = ckpt__json_get(&t->d, want, "rng") != NULL, rng = false;
    int64_t value = 1;
    int found[16] = { 0 }, others = 0;
    ckpt_state st = {0};
    for (int i = 0; i < UTIL_COUNT(bound); i++) ckpt_bind_int(&st, util_fmt("state/%s/x", bound[i]), &value);
    ckpt_bind_int(&st, "rng/0/python", &value);
    ckpt_saver *s = row_saver(&st, "saved", weights_only ? "weights.pt" : "all.pt", "r", false, weights_only);
    ckpt_timestamp now = {0};
    now.epoch = now.batch = 1;
    must(ckpt_saver_save(s, &now));
    must(ckpt_saver_close(s, 0));
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, weights_only ? "saved/weights.pt" : "saved/all.pt"));
    for (int i = 0; i < ckpt_file_count(f); i++) {
        ckpt_entry e;
        int k = 0, at = -1;
        must(ckpt_file_entry(f, i, &e));
        for (const ckpt__json *key = ckpt__json_child(&t->d, keys); key != NULL; key = ckpt__json_next(&t->d, key), k++)
            if (ckpt__state_under(e.name, util_fmt("state/%s", key->text))) at = k;
        if (strncmp(e.name, "rng/", 4) == 0) rng = true;
        else if (at >= 0) found[at]++;
        else others++;
    }
    ckpt_file_close(f);
    for (int k = 0; k < (int)keys->count; k++) if (found[k] == 0) fail_msg("weights %d: part %d is not in the file", weights_only, k);
    assert_int_equal(others, 0);
    assert_int_equal(rng, !weights_only);
    ckpt_state_free(&st);
}

// Epochs 1 and 2 are in the folder; training goes on from one of them.
static void check_overwrite_row(const char *name) {
    int64_t x = 0;
    ckpt_state st = {0};
    ckpt_timestamp now = {0};
    bool newest = strstr(name, "load ep2") != NULL;
    ckpt_bind_int(&st, "state/model/x", &x);
    assert_int_equal(chdir(util_temp_dir()), 0);
    ckpt_saver *s = row_saver(&st, "o", "ep{epoch}.pt", "r", false, false);
    for (int i = 0; i < 2; i++) {
        ckpt_next_batch(&now, 1, 0, 1);
        ckpt_next_epoch(&now, 1);
        must(ckpt_saver_epoch_end(s, &now));
    }
    must(ckpt_saver_close(s, 0));
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        if (!newest && overwrite != (strstr(name, "save_overwrite=True") != NULL)) continue;
        ckpt_load_desc d = {0};
        d.load_path = newest ? "o/ep2.pt" : "o/ep1.pt";
        d.state = &st;
        must(ckpt_load(&d, &now));
        s = row_saver(&st, "o", "ep{epoch}.pt", "r", overwrite != 0, false);
        ckpt_next_batch(&now, 1, 0, 1);
        assert_int_equal(ckpt_saver_batch_end(s, &now), newest || overwrite ? CKPT_OK : CKPT_EXISTS);
        (void)!ckpt_saver_close(s, 0);
    }
    ckpt_state_free(&st);
    assert_int_equal(chdir(root), 0);
}

static void check_run_names_row(void) {
    int64_t x = 0;
    ckpt_state st = {0};
    ckpt_timestamp now = {0};
    ckpt_bind_int(&st, "state/model/x", &x);
    for (int run = 0; run < 2; run++) {
        ckpt_load_desc d = {0};
        d.load_path = "old/ep1.pt";
        d.state = &st;
        if (run == 1) must(ckpt_load(&d, &now));
        ckpt_saver *s = row_saver(&st, "{run_name}", "ep{epoch}.pt", run == 0 ? "old" : "new", false, false);
        ckpt_next_batch(&now, 1, 0, 1);
        ckpt_next_epoch(&now, 1);
        must(ckpt_saver_epoch_end(s, &now));
        must(ckpt_saver_close(s, 0));
    }
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, "new/ep2.pt"));
    char text[8] = "";
    int at = ckpt__toc_find(&f->toc, "state/run_name");
    assert_true(at >= 0);
    must(ckpt_file_read(f, at, 0, text, (size_t)ckpt__file_entry_size(&f->toc.entries[at])));
    assert_string_equal(text, "new");
    ckpt_file_close(f);
    ckpt_state_free(&st);
}

typedef struct trained { int64_t x, seed; } trained;

// Two epochs of five batches, from the start or from a checkpoint, as the row saves them: what its last file holds.
static trained train_row(const table *t, const char *folder, const char *from) {
    trained m = { 1, 12345 }, got = { 0, 0 };
    ckpt_state st = {0}, other = {0};
    ckpt_timestamp now = {0};
    ckpt_saver *s = NULL;
    ckpt_saver_desc d = {0};
    ckpt_load_desc l = {0};
    ckpt_bind_int(&st, "state/model/x", &m.x);
    ckpt_bind_int(&st, "rng/0/python", &m.seed);
    l.load_path = from;
    l.state = &st;
    if (from != NULL) must(ckpt_load(&l, &now));
    if (from != NULL) assert_true(now.batch > 0 && m.x != 1);
    d.state = &st;
    d.folder = folder;
    d.filename = field(t, "save");
    d.save_interval = field(t, "interval");
    d.max_duration = "2ep";
    must(ckpt_saver_open(&s, &d));
    while (now.epoch < 2) {
        m.seed = (m.seed * 1103515245 + 12345) % 2147483648;
        m.x = (m.x * 31 + m.seed) % 1000003;
        ckpt_next_batch(&now, 8, 0, 0.1);
        must(ckpt_saver_batch_end(s, &now));
        if (now.batch_in_epoch < 5) continue;
        ckpt_next_epoch(&now, 0.5);
        must(ckpt_saver_epoch_end(s, &now));
    }
    must(ckpt_saver_close(s, 0));
    ckpt_bind_int(&other, "state/model/x", &got.x);
    ckpt_bind_int(&other, "rng/0/python", &got.seed);
    l.load_path = util_join(folder, field(t, "final"));
    l.state = &other;
    must(ckpt_load(&l, NULL));
    ckpt_state_free(&st);
    ckpt_state_free(&other);
    return got;
}

static void check_resume_row(const table *t) {
    const char *dir = util_temp_dir(), *whole = util_join(dir, "whole");
    trained a = train_row(t, whole, NULL), b = train_row(t, util_join(dir, "resumed"), util_join(whole, field(t, "resume")));
    if (a.x != b.x || a.seed != b.seed || a.seed == 12345) fail_msg("%s: %lld, and resumed %lld", field(t, "name"), (long long)a.x, (long long)b.x);
}

static bool check_named_row(const table *t, const char *name) {
    if (strcmp(name, "run_name in load_path") == 0) {
        save_value("a-quick-rabbit/first/ep1-rank0.pt", 3);
        assert_int_equal(load_run("{run_name}/first/ep1-rank0.pt", "a-quick-rabbit"), 3);
    } else if (strcmp(name, "load through the local latest link") == 0) {
        save_value("l/ep1-rank0.pt", 4);
        assert_int_equal(symlink("ep1-rank0.pt", "l/latest-rank0.pt"), 0);
        assert_int_equal(load_value(util_fmt("l/%s", field(t, "load_path"))), 4);
    } else if (strncmp(name, "missing local path, ", 20) == 0) {
        if (strstr(name, "other ranks") != NULL) setenv("RANK", "1", 1), setenv("WORLD_SIZE", "2", 1);
        assert_int_equal(load_value("fake/path.pt"), -CKPT_NOT_FOUND);
        expect_sentence("fake/path.pt");                                // on each rank, not in one rank's log
        util_clear_env();
    } else if (strncmp(name, "strict, ", 8) == 0) {
        check_strict_row(name);
    } else if (strcmp(name, "load_weights_only=True") == 0) {
        check_load(NULL, false, true, true, false, false);
    } else if (strcmp(name, "load_weights_only=False") == 0) {
        check_load(NULL, false, false, true, true, true);
    } else if (strcmp(name, "save_weights_only=True") == 0 || strcmp(name, "full checkpoint") == 0) {
        check_saved_row(t);
    } else if (strncmp(name, "save_overwrite", 14) == 0) {
        check_overwrite_row(name);
    } else if (strcmp(name, "run names differ between save and load") == 0) {
        check_run_names_row();
    } else if (strncmp(name, "resume ", 7) == 0) {
        check_resume_row(t);
    } else {
        return false;
    }
    return true;
}

// Composer calls what CHECKPOINT_VALIDATION_FUNCTION names; that is not there.
#define NO_VALIDATION "the caller looks at it himself, before"

static const cases_row loading_elsewhere[] = {
    { "URI without a store", "test_store.c test_store_from_uri" },
    { "URI with a store", "test_load_remote.c test_load_by_name" },
    { "object name with a store", "test_load_remote.c test_load_by_name" },
    { "store + latest name (no .symlink suffix)", "test_load_remote.c test_load_by_name" },
    { "validation function unset", NO_VALIDATION },
    { "validation module missing", NO_VALIDATION },
    { "validation function missing", NO_VALIDATION },
    { "validation true", NO_VALIDATION },
    { "validation with specs [(0,4),(5,4)] over \"good good\"", NO_VALIDATION },
    { "validation false", NO_VALIDATION },
    { "sharded load with validation false", NO_VALIDATION },
    { "sharded load of a file path", "test_shard_load.c test_single_files" },       // which here loads
    { "sharded load of a missing directory", "test_shard_load.c test_paths" },
    { "sharded load through remote latest-rank0.pt.symlink", "test_shard_load.c test_stores" },
};

static void test_loading(void **unused) {
    (void)unused;
    table t;
    int done = 0, elsewhere = 0;
    for (open_table(&t, "loading.json"); t.row != NULL; t.row = ckpt__json_next(&t.d, t.row)) {
        const char *name = field(&t, "name");
        if (check_ignore_row(&t, name) || check_named_row(&t, name)) { done++; continue; }
        cases_elsewhere(loading_elsewhere, UTIL_COUNT(loading_elsewhere), name);
        elsewhere++;
    }
    ckpt__json_free(&t.d);
    assert_int_equal(done, 28);
    assert_int_equal(elsewhere, UTIL_COUNT(loading_elsewhere));
}

// Metrics that the file lacks: fresh when not strict, an error when strict.
static void test_metrics(void **unused) {
    (void)unused;
    model with, without;
    model_bind(&with, true);
    model_bind(&without, false);
    must(ckpt_save("m.pt", &without.st, NULL));
    with.metric = 9;
    ckpt_load_desc d = {0};
    d.load_path = "m.pt";
    d.state = &with.st;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
    expect_sentence("state/train_metrics/loss");
    d.not_strict = true;
    must(ckpt_load(&d, NULL));
    assert_int_equal(with.metric, 9);
    ckpt_state_free(&with.st);
    ckpt_state_free(&without.st);
}

static void keep_log(ckpt_log_level level, const char *msg, void *user) {
    if (level == CKPT_LOG_WARN) (void)snprintf((char *)user, 1000, "%s", msg);
}

// Not strict lets a difference pass, and says it; a file that has nothing of what is bound it does not.
static void test_not_strict(void **unused) {
    (void)unused;
    float w[4] = { 1, 2, 3, 4 }, got[4] = { 0 }, more[2] = { 7, 7 };
    char log[1000] = "";
    ckpt_state st = {0}, other = {0}, some = {0}, none = {0};
    ckpt_bind_f32(&st, "fc.weight", w, 4);
    ckpt_bind_f32(&st, "fc.bias", w, 2);
    must(ckpt_save("foreign.safetensors", &st, NULL));
    ckpt_load_desc d = {0};
    d.load_path = "foreign.safetensors";
    d.logger.fn = keep_log;
    d.logger.user = log;
    d.not_strict = true;
    ckpt_bind_f32(&other, "state/model/fc.weight", got, 4);
    d.state = &other;
    for (int k = 0; k < 2; k++) {
        d.load_weights_only = k == 1;
        assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
        expect_sentence("nothing that is bound is in it");
    }
    static const char *const head[] = { "state/model/head*" };
    d.load_ignore_keys = head;
    d.load_ignore_keys_count = 1;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);       // what the globs leave is missing all the same
    static const char *const all[] = { "state/model/*" };
    d.load_ignore_keys = all;
    must(ckpt_load(&d, NULL));                                  // and where they leave nothing, nothing is
    d.load_ignore_keys_count = 0;
    assert_true(got[0] == 0);
    static const char empty[] = "\040\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}";
    util_write("none.safetensors", empty, sizeof empty - 1);
    must(ckpt_save("none.pt", &none, NULL));
    for (int k = 0; k < 8; k++) {           // so has a file of others that has no name at all; ours may have been saved without all
        d.load_path = k % 2 == 0 ? "none.safetensors" : "none.pt";
        d.load_weights_only = k / 2 % 2 == 1;
        d.state = k < 4 ? &other : &none;
        if (k < 4 && k != 1) assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
        if (k < 4 && k != 1) expect_sentence("nothing that is bound is in it; 1 bound name is missing in it (state/model/fc.weight)");
        if (k == 1 || k >= 4) must(ckpt_load(&d, NULL));
        if (k == 1) assert_string_equal(log, "not strict: 1 bound name is missing in it (state/model/fc.weight)");
    }
    d.load_path = "foreign.safetensors";
    ckpt_bind_f32(&some, "fc.weight", got, 4);
    ckpt_bind_f32(&some, "fc.more", more, 2);
    d.state = &some;
    for (int k = 0; k < 2; k++) {           // the file's own names are bound, and load_weights_only takes none of them
        d.not_strict = k == 0;
        d.load_weights_only = true;
        assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
        expect_sentence("load_weights_only takes names under state/model/, and of the 2 that are bound there is none ('fc.weight'): load without it");
    }
    d.not_strict = true;
    assert_true(got[0] == 0);
    log[0] = 0;
    d.state = &none;
    must(ckpt_load(&d, NULL));
    assert_non_null(strstr(log, "nothing is bound"));
    d.state = &some;
    d.load_weights_only = false;
    must(ckpt_load(&d, NULL));
    assert_true(memcmp(got, w, sizeof w) == 0 && more[0] == 7);
    assert_non_null(strstr(log, "not strict: 1 bound name is missing in it (fc.more); 1 of its names is not bound (fc.bias)"));
    ckpt_state_free(&st);
    ckpt_state_free(&other);
    ckpt_state_free(&some);
}

// A list's item that was left out stands as None in its place: it is missing, as a dict's would be.
static void test_left_out(void **unused) {
    (void)unused;
    const char *globs[] = { "l/0", "l/2" };
    int64_t n[4] = { 1, 2, 3, 4 };
    float w[4] = { 1, 2, 3, 4 };
    char log[1000] = "";
    ckpt_state st = {0}, piece = {0};
    ckpt_tensor t = {0};
    ckpt__items items;
    ckpt__plan plan;
    ckpt__file_format fmt;
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    for (int i = 0; i < 4; i++) ckpt_bind_int(&st, util_fmt("l/[%d]", i), &n[i]);
    ckpt_bind_f32(&st, "w", w, 4);
    must(ckpt__state_select(&st, false, globs, 2, NULL, &items));
    ckpt__plan_init(&plan, NULL, &st);
    must(ckpt__file_format_of("t.pt", &fmt));
    must(ckpt__file_plan(&plan, &fmt, "t.pt", items.list, items.count));
    must(ckpt__file_write("t.pt", &fmt, &plan, true, &job, &st.allocator, NULL));
    ckpt__plan_free(&plan);
    ckpt__items_free(&items);
    memset(n, 0, sizeof n);
    ckpt_load_desc d = {0};
    d.load_path = "t.pt";
    d.state = &st;
    d.logger.fn = keep_log;
    d.logger.user = log;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
    expect_sentence("2 bound names are missing in it (l/[0], l/[2])");
    d.not_strict = true;
    must(ckpt_load(&d, NULL));
    assert_string_equal(log, "not strict: 2 bound names are missing in it (l/[0], l/[2])");
    assert_true(n[0] == 0 && n[1] == 2 && n[2] == 0 && n[3] == 4);
    t.dtype = CKPT_F32;
    t.ndim = 1;
    t.shape[0] = t.offset[0] = 2;
    t.global_shape[0] = 4;
    t.data = w;
    for (int i = 0; i < 4; i++) ckpt_bind_int(&piece, util_fmt("l/[%d]", i), &n[i]);
    ckpt_bind(&piece, "w", &t);
    d.state = &piece;
    must(ckpt_load(&d, NULL));          // and so it is for a rank that binds a part
    assert_true(n[0] == 0 && n[3] == 4 && w[0] == 3 && w[1] == 4);
    ckpt_state_free(&st);
    ckpt_state_free(&piece);
}

// A password of a URI is in no sentence, also where the scheme is mistyped, or a call takes local paths alone.
static void test_password_hidden(void **unused) {
    (void)unused;
    static const char *const uris[] = { "stfp://me:SECRET@h/x.pt", "sftp://me:SECRET@h/x.pt", "stfp://me:pw/SECRET@h/x.pt", "sftp://me:a SECRET@h/x.pt",
        "sftp://me:SECRET@h/x\nftp://me:pw#SECRET@h", "https://me:8/SECRET:x@h/x.pt" };
    int64_t value = 5;
    ckpt_state st = {0};
    ckpt_bind_int(&st, "state/model/x", &value);
    util_write_text("plain", "x");
    for (int i = 0; i < UTIL_COUNT(uris); i++) {
        for (int k = 0; k < 13; k++) {
            const char *uri = uris[i];
            ckpt_load_desc l = {0};
            ckpt_saver_desc s = {0};
            ckpt_uploader_desc u = {0};
            ckpt_folder_desc f = {0};
            ckpt_convert_desc c = {0};
            ckpt_name_desc n = {0};
            ckpt_file *file;
            ckpt_saver *saver;
            ckpt_uploader *uploader;
            ckpt_folder *folder;
            ckpt_store *store;
            ckpt_err e = CKPT_OK;
            l.load_path = s.folder = u.bucket_uri = f.folder = c.from = uri;
            c.to = k == 8 ? uri : "to.pt";
            if (k == 8) c.from = "plain";
            l.state = s.state = &st;
            s.run_name = "r";
            switch (k) {
                case 0: e = ckpt_load(&l, NULL); break;
                case 1: e = ckpt_file_open(&file, uri); break;
                case 2: e = ckpt_verify(uri, NULL); break;
                case 3: e = ckpt_save(uri, &st, NULL); break;
                case 4: e = ckpt_saver_open(&saver, &s); break;
                case 5: e = ckpt_uploader_open(&uploader, &u); break;
                case 6: e = ckpt_folder_open(&folder, &f); break;
                case 7: e = ckpt_ensure_folder_is_empty(uri); break;
                case 8: case 9: e = ckpt_convert(&c); break;
                case 10: e = ckpt_get_file(uri, "got", true); break;
                case 11: e = ckpt_store_open(&store, uri, NULL); break;
                default: e = ckpt_ensure_folder_has_no_conflicting_files(uri, "ep{epoch}.pt", &n); break;
            }
            assert_int_not_equal(e, CKPT_OK);
            if (strstr(ckpt_last_error(), "SECRET") != NULL) fail_msg("call %d: %s", k, ckpt_last_error());
        }
    }
    ckpt_state_free(&st);
    // Whoever writes a sentence: a port, and an '@' behind it, are no password.
    static const char *const rows[][2] = { { "x 'http://u:w/@1@h:1/p' y", "x 'http://u:***@h:1/p' y" }, { "a://u:w@h b://:@", "a://u:*@h b://:@" },
        { "s3://h:9000/a@b", "s3://h:9000/a@b" }, { "s3://k@h:9000/a@b", "s3://k@h:9000/a@b" }, { "a://h: b@c ://u:12@h", "a://h: b@c ://u:**@h" },
        { "://", "://" }, { "a://u:1234", "a://u:1234" }, { "a://h/x:b@c", "a://h/x:b@c" }, { "a://u:12/w@h", "a://u:12/w@h" },
        { "a://u:123456/w@h", "a://u:***@h" }, { "http://[::1]:80/a@b", "http://[::1]:80/a@b" }, { "a://u:pass@[::1]:80/x", "a://u:***@[::1]:80/x" } };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        (void)ckpt__error_set(CKPT_IO, "%s", rows[i][0]);
        assert_string_equal(ckpt_last_error(), rows[i][1]);
    }
}

static void test_no_memory(void **unused) {
    (void)unused;
    int64_t value = 5;
    save_value("run/ep1.pt", 5);
    util_write_text("run/latest.pt.symlink", "text.pt");
    util_write_text("run/text.pt", "ep1.pt");
    ckpt_state st = {0};
    ckpt_bind_int(&st, "state/model/x", &value);
    ckpt_load_desc d = {0};
    counting c = { 0, 0, 0 };
    d.load_path = "{run_name}/latest.pt";
    d.run_name = "run";
    d.state = &st;
    d.allocator.fn = counting_fn;
    d.allocator.user = &c;
    for (int n = 1; ; n++) {
        c.live = c.calls = 0;
        c.fail_at = n;
        ckpt_err e = ckpt_load(&d, NULL);
        assert_int_equal(c.live, 0);
        if (c.calls < n) { must(e); break; }
        if (e != CKPT_NOMEM) fail_msg("allocation %d: %s %s", n, ckpt_err_name(e), e ? ckpt_last_error() : "");
    }
    ckpt_state_free(&st);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    static const struct CMUnitTest tests[] = {
        TEST(test_path_names),     TEST(test_awkward_names), TEST(test_missing),             TEST(test_symlink_files), TEST(test_symlink_rings),
        TEST(test_latest),         TEST(test_get_file_local), TEST(test_get_file),           TEST(test_create_symlink_file),
        TEST(test_folder_empty),   TEST(test_loading),       TEST(test_metrics),             TEST(test_password_hidden), TEST(test_no_memory),            TEST(test_not_strict),
        TEST(test_left_out),       TEST(test_folder_unlisted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
