/* test_folder.c: what tools do in a folder stays in its own run, takes nobody's copies for old checkpoints, and nobody's notes for links. */

// A file system without links is one whose symlink fails.
#include "fault/faults.h"
static double patience = 60.0;
#define CKPT__SAVER_PATIENCE patience
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "saver_util.h"

static ckpt_err tidy(const char *dir, int keep) {
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.num_checkpoints_to_keep = keep;
    ckpt_folder *f = look_into(dir);
    ckpt_err e = ckpt_folder_gc(f, &d);
    ckpt_folder_close(f);
    return e;
}

static void take_away(const char *dir, const char *name) {
    ckpt_folder *f = look_into(dir);
    ok(ckpt_folder_remove(f, at_name(f, name)));
    ckpt_folder_close(f);
}

// Another name for the same bytes, as cp makes it.
static void copy(const char *dir, const char *from, const char *to) {
    size_t size = 0;
    char *bytes = util_read(util_join(dir, from), &size);
    util_write(util_join(dir, to), bytes, size);
}

// A run in `dir` that has saved the first `last` batches and is still open.
static run *run_live(const char *dir, int keep, int last) {
    run *r = run_new(dir);
    r->d.num_checkpoints_to_keep = keep;
    run_open(r);
    for (int i = 1; i <= last; i++) run_save(r, i);
    return r;
}

// The next process: it resumes at `from` and saves up to `last`.
static void go_on(const char *dir, int keep, int from, int last) {
    run *r = run_new(dir);
    ckpt_timestamp t;
    r->d.num_checkpoints_to_keep = keep;
    run_open(r);
    ok(ckpt_saver_resume(r->s, &t));
    assert_int_equal(t.batch, from);
    for (int i = from + 1; i <= last; i++) run_save(r, i);
    run_end(r);
}

//-- the newest is damaged, as gc finds ----------------------------------------------

static void flip_in(const char *dir, const char *name) {
    util_flip(util_join(dir, name), 3000, 1);
}

static void note_check(const ckpt_progress *p, void *user) {
    char *said = (char *)user;
    if (p->finished) snprintf(said + strlen(said), 200 - strlen(said), "%s ", strrchr(p->name, '/') + 1);
}

// Each file is read once by one gc, however often it has to choose anew: it may have a hundred gigabytes.
static void test_read_once(void **state) {
    (void)state;
    static const struct { int flipped, keep; bool removes; const char *read, *left; } rows[] = {
        { 1, 2, false, "ba5.pt ba4.pt ", "ba3.pt ba4.pt ba5.pt latest.pt" }, { 2, 1, true, "ba5.pt ba4.pt ba3.pt ", "ba3.pt latest.pt" },
        { 2, 1, false, "ba5.pt ba4.pt ba3.pt ", "ba3.pt ba4.pt ba5.pt latest.pt" }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir();
        char said[200] = "";
        ckpt_gc_desc g;
        ckpt_folder_desc d;
        ckpt_folder *f = NULL;
        run_end(run_live(dir, CKPT_KEEP_ALL, 5));
        flip_in(dir, "ba5.pt");
        if (rows[i].flipped == 2) flip_in(dir, "ba4.pt");
        memset(&g, 0, sizeof g);
        g.num_checkpoints_to_keep = rows[i].keep;
        g.damaged = rows[i].removes;
        memset(&d, 0, sizeof d);
        d.folder = dir;
        d.progress.fn = note_check;
        d.progress.user = said;
        ok(ckpt_folder_open(&f, &d));
        ok(ckpt_folder_gc(f, &g));
        ckpt_folder_close(f);
        if (strcmp(said, rows[i].read) != 0) printf("row %d: %s\n", i, said);
        assert_string_equal(said, rows[i].read);
        assert_string_equal(names_in(dir), rows[i].left);
    }
}

// What gc finds to be damaged is none of those that it is to keep: as many older ones stay, also beside a pinned one, and the link
// leads to the newest of them, as where nothing leaves and only the link shows what is damaged.
static void test_damaged_while_tidying(void **state) {
    (void)state;
    static const struct { int keep, bad; bool pin; const char *left, *link; } rows[] = {
        { 1, 1, true, "ba1.pt ba5.pt ba6.pt latest.pt", "ba5.pt" },         { 1, 1, false, "ba5.pt ba6.pt latest.pt", "ba5.pt" },
        { 2, 1, false, "ba4.pt ba5.pt ba6.pt latest.pt", "ba5.pt" },        { 1, 3, true, "ba1.pt ba3.pt ba4.pt ba5.pt ba6.pt latest.pt", "ba3.pt" },
        { 4, 2, false, "ba1.pt ba2.pt ba3.pt ba4.pt ba5.pt ba6.pt latest.pt", "ba4.pt" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *dir = util_temp_dir();
        run_end(run_live(dir, CKPT_KEEP_ALL, 6));
        ckpt_folder *f = look_into(dir);
        if (rows[i].pin) ok(ckpt_folder_pin(f, at_name(f, "ba1.pt"), true));
        ckpt_folder_close(f);
        for (int k = 0; k < rows[i].bad; k++) flip_in(dir, util_fmt("ba%d.pt", 6 - k));
        for (int again = 0; again < 2; again++) {
            ok(tidy(dir, rows[i].keep));
            assert_string_equal(names_in(dir), rows[i].left);
            assert_string_equal(util_link_target(util_join(dir, "latest.pt")), rows[i].link);
        }
    }
}

//-- folders of several runs -----------------------------------------------------------

static int index_opens;
static void count_index_opens(const char *name, const char *path) {
    index_opens += strcmp(name, "open") == 0 && strcmp(ckpt__os_path_base(path), ".ckpt-index.jsonl") == 0;
}

// Each run below is asked once, in however many directories it saves, and however the folder above them is spelled.
static void test_runs_below_are_asked(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *before = (char *)util_keep(getcwd(NULL, 0), false);
    const char *const spelled[] = { top, util_fmt("%s/", top), "./", ".", util_fmt("%s/./", top) };
    for (int k = 0; k < 2; k++) {
        const char *dir = util_join(top, util_fmt("runs/r%d", k));
        run *r = run_new(dir);
        r->d.filename = "e{batch}/x.pt";
        run_open(r);
        for (int i = 1; i <= 3; i++) run_save(r, i);
        run_end(r);
        pin(dir, util_fmt("e%d/x.pt", k + 1), true);
    }
    assert_int_equal(chdir(top), 0);
    for (int i = 0; i < UTIL_COUNT(spelled); i++) {
        ckpt_checkpoint c;
        index_opens = 0;
        fault_set_spy(count_index_opens);
        ckpt_folder *f = look_into(spelled[i]);
        fault_set_spy(NULL);
        assert_int_equal(ckpt_folder_count(f), 6);
        if (index_opens != 2) fail_msg("%s: %d", spelled[i], index_opens);
        for (int k = 0; k < 6; k++) {
            ok(ckpt_folder_entry(f, at_name(f, util_fmt("runs/r%d/e%d/x.pt", k / 3, k % 3 + 1)), &c));
            assert_int_equal(c.pinned, k == 0 || k == 4);
        }
        ckpt_folder_close(f);
    }
    assert_int_equal(chdir(before), 0);
}

// Two savers at work below one folder: what names the folder above changes nothing of theirs.
static void test_runs_below(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *a = util_join(top, "a"), *b = util_join(top, "b");
    run *ra = run_live(a, CKPT_KEEP_ALL, 2), *rb = run_live(b, CKPT_KEEP_ALL, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tidy(top, i == 0 ? (int)CKPT_KEEP_ALL : 1), CKPT_ARG);
        assert_non_null(strstr(ckpt_last_error(), util_fmt("%s has no checkpoints of its own", top)));
        assert_true(strstr(ckpt_last_error(), a) != NULL || strstr(ckpt_last_error(), b) != NULL);
    }
    ckpt_folder *f = look_into(top);
    assert_int_equal(ckpt_folder_count(f), 5);          // they are shown, with what leads to them
    ckpt_checkpoint c;
    ok(ckpt_folder_entry(f, at_name(f, "a/ba2.pt"), &c));
    assert_string_equal(c.latest, "a/latest.pt");
    assert_int_equal(ckpt_folder_find(f, "a/latest.pt"), ckpt_folder_find(f, "a/ba2.pt"));
    ok(ckpt_folder_verify(f, at_name(f, "a/ba1.pt")));
    pin(b, "ba2.pt", true);
    flip_in(b, "ba1.pt");
    ckpt_folder *fb = look_into(b);
    assert_int_equal(ckpt_folder_verify(fb, at_name(fb, "ba1.pt")), CKPT_CORRUPT);
    ckpt_folder_close(fb);
    ckpt_folder_close(f);
    f = look_into(top);
    for (int i = 1; i <= 3; i++) {              // they are what their own index says
        ok(ckpt_folder_entry(f, at_name(f, util_fmt("b/ba%d.pt", i)), &c));
        assert_int_equal(c.pinned, i == 2);
        assert_int_equal(c.damaged, i == 1);
    }
    assert_int_equal(ckpt_folder_remove(f, at_name(f, "a/ba2.pt")), CKPT_ARG);
    assert_int_equal(ckpt_folder_remove(f, at_name(f, "b/ba2.pt")), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), util_fmt("the run in %s", b)));
    assert_int_equal(ckpt_folder_remove(f, at_name(f, "a/ba2.pt")), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), util_fmt("%s/ba2.pt is a checkpoint of the run in %s: name that folder", a, a)));
    assert_int_equal(ckpt_folder_pin(f, at_name(f, "a/ba1.pt"), true), CKPT_ARG);
    assert_int_equal(ckpt_folder_pin(f, at_name(f, "b/ba1.pt"), false), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), util_fmt("the run in %s", b)));
    ckpt_folder_close(f);
    assert_string_equal(util_list(top), "a\nb\n");
    assert_string_equal(names_in(a), "ba1.pt ba2.pt latest.pt");
    assert_string_equal(names_in(b), "ba1.pt ba2.pt ba3.pt latest.pt");
    assert_string_equal(util_link_target(util_join(a, "latest.pt")), "ba2.pt");
    run_save(ra, 3);
    assert_int_equal(ckpt_saver_checkpoints(ra->s, NULL), 3);
    run_end(ra);
    run_end(rb);
    assert_int_equal(tidy(top, 1), CKPT_ARG);           // nor when they have ended
    ok(tidy(a, 1));
    assert_string_equal(names_in(a), "ba3.pt latest.pt");
    assert_string_equal(names_in(b), "ba1.pt ba2.pt ba3.pt latest.pt");
}

static void note_named(const ckpt_progress *p, void *user) {
    if (strncmp(p->name, "ck/", 3) != 0) fail_msg("it is called %s", p->name);
    ++*(int *)user;
}

// The program goes elsewhere, where there is a run in a folder of the same relative name: the object is that of the one that it opened,
// and calls it as it was called.
static void test_gone_elsewhere(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *a = util_join(top, "a/ck"), *b = util_join(top, "b/ck"), *others = "ba1.pt ba2.pt ba3.pt ba4.pt latest.pt";
    run_end(run_live(a, CKPT_KEEP_ALL, 5));
    run_end(run_live(b, CKPT_KEEP_ALL, 4));
    char *was = getcwd(NULL, 0), *notes = util_read(util_join(b, ".ckpt-index.jsonl"), NULL);
    int reports = 0;
    ckpt_folder *f = NULL;
    ckpt_checkpoint c;
    ckpt_folder_desc d;
    ckpt_gc_desc g;
    memset(&d, 0, sizeof d);
    memset(&g, 0, sizeof g);
    d.folder = "ck";
    d.progress.fn = note_named;
    d.progress.user = &reports;
    g.num_checkpoints_to_keep = 2;
    assert_int_equal(chdir(util_join(top, "a")), 0);
    ok(ckpt_folder_open(&f, &d));
    assert_int_equal(chdir(util_join(top, "b")), 0);
    ok(ckpt_folder_entry(f, at_name(f, "ba5.pt"), &c));
    assert_string_equal(c.path, "ck/ba5.pt");
    ok(ckpt_folder_verify(f, at_name(f, "ba5.pt")));            // the other has none
    assert_true(reports > 0);
    ok(ckpt_folder_pin(f, at_name(f, "ba1.pt"), true));
    assert_int_equal(ckpt_folder_remove(f, at_name(f, "ba1.pt")), CKPT_ARG);
    assert_string_equal(ckpt_last_error(), "ck/ba1.pt is pinned: unpin it first");
    ok(ckpt_folder_remove(f, at_name(f, "ba2.pt")));
    assert_string_equal(names_in(a), "ba1.pt ba3.pt ba4.pt ba5.pt latest.pt");
    ok(ckpt_folder_gc(f, &g));
    assert_int_equal(ckpt_folder_count(f), 3);
    ckpt_folder_close(f);
    assert_int_equal(chdir(was), 0);
    free(was);
    assert_string_equal(names_in(a), "ba1.pt ba4.pt ba5.pt latest.pt");
    assert_string_equal(names_in(b), others);
    assert_string_equal(util_read(util_join(b, ".ckpt-index.jsonl"), NULL), notes);
}

// A view that was made before there was a run below.
static void test_view_is_older(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *a = util_join(top, "a");
    run_end(run_live(a, CKPT_KEEP_ALL, 2));
    assert_int_equal(unlink(util_join(a, ".ckpt-index.jsonl")), 0);
    ckpt_folder *f = look_into(top);
    int at = at_name(f, "a/ba1.pt");
    run *r = run_new(a);
    run_open(r);
    assert_int_equal(ckpt_folder_remove(f, at), CKPT_ARG);
    assert_int_equal(ckpt_folder_pin(f, at, true), CKPT_ARG);
    run_end(r);
    ckpt_folder_close(f);
    assert_string_equal(names_in(a), "ba1.pt ba2.pt latest.pt");
}

// What makes a folder a run's, and what does not: there its checkpoints are one's own.
static void test_marks(void **state) {
    (void)state;
    static const struct { const char *mark; bool apart; } rows[] = {
        { ".ckpt-index.jsonl", true }, { ".ckpt-index-rank3.jsonl", true }, { ".ckpt-lock", true }, { ".ckpt-lock-rank2", true },
        { "notes", false },            { ".ckpt-index.lock", false },       { ".hidden", false }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *top = util_temp_dir(), *sub = util_join(top, "x/y");
        run_end(run_live(top, CKPT_KEEP_ALL, 3));
        util_mkdir(util_join(top, "x"));
        util_mkdir(sub);
        copy(top, "ba1.pt", "x/y/ba1.pt");
        util_write_text(util_join(sub, rows[i].mark), "");
        assert_int_equal(unlink(util_join(top, ".ckpt-index.jsonl")), 0);     // else it may be a copy that somebody keeps
        ok(tidy(top, 1));
        assert_int_equal(util_exists(util_join(sub, "ba1.pt")), rows[i].apart);
        assert_string_equal(names_in(top), rows[i].apart || util_exists(sub) ? "ba3.pt latest.pt x" : "ba3.pt latest.pt");
    }
}

// Both the folder and one below it are runs: only the first is tidied, whatever an index that an earlier version has written says.
static void test_own_and_below(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *a = util_join(top, "a");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);        // a pid that nobody has any more
    const char *temp = util_fmt("%s/.ba9.pt.%s", a, util_temp_tail((int)child));
    run_end(run_live(top, CKPT_KEEP_ALL, 3));
    run *r = run_live(a, CKPT_KEEP_ALL, 4);
    ckpt_allocator plain = { NULL, NULL };
    ckpt__index ix;
    ok(ckpt__index_init(&ix, &plain, top));
    ok(ckpt__index_load(&ix));
    for (int i = 1; i <= 4; i++) {
        ckpt__index_line line = ix.lines[0];
        char *name = util_fmt("a/ba%d.pt", i);
        line.name = name;
        line.t = at_batch(i);
        line.state = i == 4 ? CKPT__INDEX_DAMAGED : CKPT__INDEX_SAVED;
        ok(ckpt__index_insert(&ix, ix.count, &line));
    }
    ok(ckpt__index_write(&ix));
    ckpt__index_free(&ix);
    util_write_text(temp, "half");
    assert_int_equal((symlink)("a/gone.pt", util_join(top, "best.pt")), 0);
    assert_int_equal((symlink)("gone.pt", util_join(a, "best.pt")), 0);
    assert_int_equal((symlink)("gone.pt", util_join(top, "other.pt")), 0);
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.num_checkpoints_to_keep = 1;
    d.damaged = d.unfinished_now = true;
    ckpt_folder *f = look_into(top);
    ok(ckpt_folder_gc(f, &d));
    ckpt_folder_close(f);
    assert_string_equal(names_in(top), "a ba3.pt best.pt latest.pt other.pt");
    assert_string_equal(util_link_target(util_join(top, "latest.pt")), "ba3.pt");
    assert_string_equal(util_link_target(util_join(top, "other.pt")), "ba3.pt");
    assert_string_equal(util_link_target(util_join(top, "best.pt")), "a/gone.pt");
    assert_string_equal(util_names(a, ".ba9"), "ba1.pt ba2.pt ba3.pt ba4.pt best.pt latest.pt");
    assert_string_equal(util_link_target(util_join(a, "best.pt")), "gone.pt");
    assert_string_equal(util_link_target(util_join(a, "latest.pt")), "ba4.pt");
    assert_true(util_exists(temp));
    run_end(r);
    take_away(top, "ba3.pt");                           // with none of its own left, its links go and lead nowhere else
    assert_string_equal(names_in(top), "a best.pt");
}

//-- a full disk -----------------------------------------------------------------------

static void make_room(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "unlink") == 0 && strstr(path, "/ba") != NULL) (void)fault_disarm();
}

// Where nothing more can be written, what takes checkpoints away is what makes room.
static void test_full_disk(void **state) {
    (void)state;
    for (int all = 0; all < 2; all++) {
        const char *dir = util_temp_dir();
        run_end(run_live(dir, CKPT_KEEP_ALL, 3));
        ckpt_folder *f = look_into(dir);
        ckpt_gc_desc d;
        memset(&d, 0, sizeof d);
        d.num_checkpoints_to_keep = 1;
        fault_watch = make_room;
        fault_arm_always("pwrite", ENOSPC);
        ckpt_err e = all > 0 ? ckpt_folder_gc(f, &d) : ckpt_folder_remove(f, at_name(f, "ba1.pt"));
        assert_true(fault_disarm());
        fault_watch = NULL;
        ok(e);
        assert_int_equal(ckpt_folder_count(f), all > 0 ? 1 : 2);
        ckpt_folder_close(f);
        assert_string_equal(names_in(dir), all > 0 ? "ba3.pt latest.pt" : "ba2.pt ba3.pt latest.pt");
        assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "ba1.pt"));
    }
}

//-- an index that cannot be read ------------------------------------------------------

static const char *spoils;          // the call that fails when an index is read
static int         spoils_left;

static void spoil(const char *name, const char *path) {
    if (strcmp(name, "open") != 0 || !ckpt__txt_ends(path, "/.ckpt-index.jsonl") || spoils_left == 0) return;
    spoils_left--;
    fault_arm_here(spoils, EIO);
}

static void spoil_index(const char *call, int count) {
    spoils = call;
    spoils_left = count;
    fault_set_spy(spoil);
}

static void spoil_no_more(void) {
    fault_set_spy(NULL);
    assert_true(fault_disarm());
}

static bool is_pinned(const char *dir, const char *name) {
    ckpt_folder *f = look_into(dir);
    ckpt_checkpoint c;
    ok(ckpt_folder_entry(f, at_name(f, name), &c));
    ckpt_folder_close(f);
    return c.pinned && !c.missing;
}

// One that cannot be read now is not damaged: it has the pins. What passes is tried again, what stays is told of, and in neither case
// does what is pinned go.
static void test_index_unread(void **state) {
    (void)state;
    static const char *const calls[] = { "open", "pread" };
    for (int i = 0; i < 4; i++) {
        const char *dir = util_temp_dir();
        int count = i < 2 ? 1 : 100;
        ckpt_err want = count == 1 ? CKPT_OK : CKPT_IO;
        ckpt_gc_desc d;
        memset(&d, 0, sizeof d);
        d.num_checkpoints_to_keep = 1;
        run *r = run_live(dir, 2, 2);
        pin(dir, "ba1.pt", true);
        run_save(r, 3);
        ckpt_folder *f = look_into(dir);
        spoil_index(calls[i % 2], count);
        ckpt_err e = ckpt_folder_pin(f, at_name(f, "ba2.pt"), true);
        spoil_no_more();
        assert_int_equal(e, want);
        if (want != CKPT_OK) expect_sentence("cannot tell which checkpoints");
        if (want != CKPT_OK) expect_sentence("if that does not pass, move .ckpt-index.jsonl away");
        ckpt_folder_close(f);
        for (int n = 4; n <= 6; n++) run_save(r, n);
        run_end(r);
        assert_true(is_pinned(dir, "ba1.pt"));
        if (want == CKPT_OK) assert_true(is_pinned(dir, "ba2.pt"));
        f = look_into(dir);
        spoil_index(calls[i % 2], count);
        e = ckpt_folder_gc(f, &d);
        spoil_no_more();
        assert_int_equal(e, want);
        ckpt_folder_close(f);
        assert_true(is_pinned(dir, "ba1.pt"));
        assert_int_equal(util_exists(util_join(dir, "ba5.pt")), want != CKPT_OK);
    }
}

// A saver that cannot read what tools have written saves no more than the file, and asks again; nor does it forget when it resumes.
static void test_index_unread_by_saver(void **state) {
    (void)state;
    static const char *const calls[] = { "open", "pread" };
    for (int i = 0; i < 4; i++) {
        const char *dir = util_temp_dir();
        int count = i < 2 ? 1 : 100;
        ckpt_err want = count == 1 ? CKPT_OK : CKPT_IO;
        ckpt_timestamp t = at_batch(4);
        run *r = run_live(dir, 2, 3);
        pin(dir, "ba2.pt", true);
        spoil_index(calls[i % 2], count);
        ckpt_err e = ckpt_saver_save(r->s, &t);
        spoil_no_more();
        assert_int_equal(e, want);
        if (want != CKPT_OK) expect_sentence("cannot tell what was pinned");
        if (want != CKPT_OK) expect_sentence("if that does not pass, move .ckpt-index.jsonl away");
        run_save(r, 5);
        run_save(r, 6);
        assert_true(is_pinned(dir, "ba2.pt"));
        spoil_index(calls[i % 2], count);
        e = ckpt_saver_resume(r->s, &t);
        spoil_no_more();
        assert_int_equal(e, want);
        for (int n = 7; n <= 9; n++) run_save(r, n);
        assert_int_equal(ckpt_saver_close(r->s, 0), want);
        ckpt_state_free(&r->st);
        assert_true(is_pinned(dir, "ba2.pt"));
        assert_string_equal(names_in(dir), "ba2.pt ba8.pt ba9.pt latest.pt");
    }
}

static const char *pins_in;         // the folder, until the pin is set

static void pin_when_read(const char *name, const char *path, int fd) {
    char at[4096];
    const char *dir = pins_in;
    (void)path;
    if (dir == NULL || strcmp(name, "close") != 0) return;
    ssize_t n = readlink(util_fmt("/proc/self/fd/%d", fd), at, sizeof at - 1);
    at[n > 0 ? n : 0] = 0;
    if (!ckpt__txt_ends(at, "/.ckpt-index.jsonl")) return;
    pins_in = NULL;
    pin(dir, "ba1.pt", true);
}

// A pin that is set while a saver opens, behind its reading of the index, is seen with the first save.
static void test_pin_while_opening(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run_end(run_live(dir, CKPT_KEEP_ALL, 2));
    run *r = run_new(dir);
    r->d.overwrite = true;
    pins_in = dir;
    fault_watch = pin_when_read;
    run_open(r);
    fault_watch = NULL;
    assert_null(pins_in);
    run_save(r, 3);
    run_end(r);
    assert_true(is_pinned(dir, "ba1.pt"));
}

static run *run_sharded(const char *dir) {
    run *r = run_new(dir);
    r->d.sharded = true;
    r->d.sharded_prefix_dir = "ba{batch}";
    return r;
}

static void listing_unseen(const char *name, const char *path) {
    if (strcmp(name, "lstat") == 0 && ckpt__txt_ends(path, "/.metadata")) fault_arm_here("lstat", EIO);
}

// Nor does it say that a directory is not finished when its listing cannot be looked at: gc takes none of its files.
static void test_listing_unseen(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run *r = run_sharded(dir);
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.unfinished_now = true;
    run_open(r);
    for (int i = 1; i <= 2; i++) run_save(r, i);
    run_end(r);
    ckpt_folder *f = look_into(dir);
    fault_set_spy(listing_unseen);
    (void)!ckpt_folder_gc(f, &d);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    ckpt_folder_close(f);
    for (int i = 1; i <= 2; i++) ok(ckpt_verify(util_join(dir, util_fmt("ba%d", i)), NULL));
}

static void pin_one(const char *dir, const char *name) {
    ckpt_folder *f = look_into(dir);
    ok(ckpt_folder_pin(f, at_name(f, name), true));
    ckpt_folder_close(f);
}

// A pinned checkpoint that loses its listing while its saver is at work is no best one any more, and takes no place among the newest.
static void test_pinned_best_unlisted(void **state) {
    (void)state;
    static const double losses[] = { 0, 1, 5, 3, 7, 6 };
    const char *dir = util_temp_dir();
    run *r = run_sharded(dir);
    r->d.num_checkpoints_to_keep = 1;
    r->d.keep_best = "min:state/metrics/loss";
    run_open(r);
    for (int i = 1; i <= 5; i++) {
        ckpt_timestamp t = at_batch(i);
        run_set(r, i);
        r->loss = losses[i];
        ok(ckpt_saver_save(r->s, &t));
        ok(ckpt_saver_wait(r->s, 0));
        if (i == 1) pin_one(dir, "ba1");
        if (i == 2) assert_int_equal(unlink(util_join(dir, "ba1/.metadata")), 0);
    }
    run_end(r);
    assert_string_equal(util_list(util_join(dir, "ba1")), "__0_0.pt\n");
    for (int i = 2; i <= 5; i++) assert_int_equal(util_exists(util_join(dir, util_fmt("ba%d", i))), i == 3 || i == 5);
}

// As the only one it is nothing to go on from, and keeps no run from beginning anew: nor from a save of that name, which replaces it.
static void test_pinned_only_unlisted(void **state) {
    (void)state;
    for (int next = 1; next <= 2; next++) {
        const char *dir = util_temp_dir();
        ckpt_timestamp t;
        run *r = run_sharded(dir);
        run_open(r);
        run_save(r, 1);
        run_end(r);
        pin_one(dir, "ba1");
        assert_int_equal(unlink(util_join(dir, "ba1/.metadata")), 0);
        for (int life = 0; life < 2; life++) {
            r = run_sharded(dir);
            run_open(r);
            assert_int_equal(ckpt_saver_resume(r->s, &t), life == 0 ? CKPT_NOT_FOUND : CKPT_OK);
            if (life == 0) assert_non_null(strstr(r->log, "ba1/.metadata"));
            if (life == 0) run_save(r, next);
            if (life == 1) run_check(r, next);
            run_end(r);
            assert_true(util_exists(util_join(dir, "ba1/__0_0.pt")) || next == 1);
        }
        ok(ckpt_verify(util_join(dir, util_fmt("ba%d", next)), NULL));
    }
}

// A link to a directory that gc takes away as unfinished does not lead nowhere afterwards, also where a rank has its own index.
static void test_link_to_what_goes(void **state) {
    (void)state;
    for (int ranks = 0; ranks < 2; ranks++) {
        const char *dir = util_temp_dir();
        run *r = run_sharded(dir);
        run_open(r);
        for (int i = 1; i <= 2; i++) run_save(r, i);
        run_end(r);
        util_mkdir(util_join(dir, "ba9"));
        copy(dir, "ba2/__0_0.pt", "ba9/__0_0.pt");
        assert_int_equal(symlink("ba9", util_join(dir, "newest")), 0);
        if (ranks == 1) util_write_text(util_join(dir, ".ckpt-index-rank1.jsonl"), "");
        ckpt_gc_desc d;
        memset(&d, 0, sizeof d);
        d.unfinished_now = true;
        ckpt_folder *f = look_into(dir);
        ok(ckpt_folder_gc(f, &d));
        ckpt_folder_close(f);
        assert_false(util_exists(util_join(dir, "ba9")));
        assert_string_equal(util_link_target(util_join(dir, "newest")), "ba2");
    }
}

static void flip_and_verify(const char *dir, const char *name, ckpt_err want) {
    util_flip(util_join(dir, name), 4000, 1);
    ckpt_folder *f = look_into(dir);
    assert_int_equal(ckpt_folder_verify(f, at_name(f, name)), want);
    ckpt_folder_close(f);
}

// Whatever cannot be looked at for the moment, no link leads nowhere afterwards.
static void test_target_unseen(void **state) {
    (void)state;
    static const char *const calls[] = { "stat", "lstat", "readlink", "open" };
    for (size_t k = 0; k < 4 * sizeof calls / sizeof *calls; k++) {
        bool hit = true;
        for (int n = 1; hit; n++) {
            const char *dir = util_temp_dir();
            run_end(run_live(dir, CKPT_KEEP_ALL, 3));
            if (k % 2 == 1) {                                   // a text for a link
                assert_int_equal(unlink(util_join(dir, "latest.pt")), 0);
                util_write_text(util_join(dir, "latest.pt"), "ba3.pt");
            }
            if (k / 8 == 1) flip_and_verify(dir, "ba3.pt", CKPT_CORRUPT);
            ckpt_gc_desc d;
            memset(&d, 0, sizeof d);
            d.num_checkpoints_to_keep = 1;
            d.damaged = true;
            ckpt_folder *f = look_into(dir);
            fault_arm_call(calls[k / 2 % 4], EIO, n);
            ckpt_err e = k / 8 == 1 ? ckpt_folder_gc(f, &d) : ckpt_folder_remove(f, at_name(f, "ba3.pt"));
            hit = fault_disarm();
            ckpt_folder_close(f);
            if (!hit) ok(e);                                    // gc leaves what it could not read
            if (e == CKPT_OK && (!hit || k / 8 == 0)) assert_false(util_exists(util_join(dir, "ba3.pt")));
            const char *latest = util_join(dir, "latest.pt"), *to = util_link_target(latest);
            if (to == NULL) to = util_read(latest, NULL);
            if (strlen(to) < 10 && !util_exists(util_join(dir, to)))
                fail_msg("latest.pt leads to %s, which is gone, since %s %d of case %zu failed (%s)", to, fault_where, n, k, ckpt_err_name(e));
        }
    }
}

// The best of a run whose index is lost is not known, and nothing goes in its place.
static void test_best_unknown(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run *r = run_new(dir);
    r->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    r->d.keep_best = "min:state/metrics/loss";
    run_open(r);
    for (int i = 1; i <= 4; i++) run_save(r, i);             // step * 5 % 11: 5 10 4 9
    run_end(r);
    char *index = util_read(util_join(dir, ".ckpt-index.jsonl"), NULL);
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.num_checkpoints_to_keep = 1;
    d.keep_best = "min";
    for (int lost = 1; lost >= 0; lost--) {
        if (lost) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        else util_write_text(util_join(dir, ".ckpt-index.jsonl"), index);
        ckpt_folder *f = look_into(dir);
        assert_int_equal(ckpt_folder_gc(f, &d), lost ? CKPT_ARG : CKPT_OK);
        ckpt_folder_close(f);
        assert_string_equal(names_in(dir), lost ? "ba1.pt ba2.pt ba3.pt ba4.pt latest.pt" : "ba3.pt ba4.pt latest.pt");
    }
}

static char best_said[300];

static void hear_best(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    if (level == CKPT_LOG_WARN && strstr(msg, "may be the best") != NULL) snprintf(best_said, sizeof best_said, "%s", msg);
}

// gc says how many stay for a metric that the index has lost, also when a saver has written that anew; what never had one goes.
static void test_best_lost(void **state) {
    (void)state;
    for (int anew = 0; anew < 2; anew++) {
        const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl");
        for (int life = 0; life < 2 + anew; life++) {
            ckpt_timestamp t;
            memset(&t, 0, sizeof t);
            run *r = run_new(dir);
            r->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
            r->d.weights_only = true;
            r->d.keep_best = life > 0 ? "min:state/metrics/loss" : NULL;
            run_open(r);
            if (life > 0) ok(ckpt_saver_resume(r->s, &t));
            for (int i = life == 0 ? 1 : 3; i <= (life == 0 ? 2 : 6) && life < 2; i++) run_save(r, i);     // step * 5 % 11
            run_end(r);
            char *text = util_read(index, NULL), *line = strstr(text, "\"ba4.pt\"");
            if (life == 1) util_flip(index, (uint64_t)(line - text), 1);
        }
        for (int again = 0; again < 2; again++) {
            ckpt_folder *f = NULL;
            ckpt_folder_desc d;
            ckpt_gc_desc g;
            memset(&d, 0, sizeof d);
            memset(&g, 0, sizeof g);
            d.folder = dir;
            d.logger.fn = hear_best;
            g.num_checkpoints_to_keep = 1;
            g.keep_best = "min";
            best_said[0] = 0;
            ok(ckpt_folder_open(&f, &d));
            ok(ckpt_folder_gc(f, &g));
            ckpt_folder_close(f);
            assert_string_equal(names_in(dir), "ba4.pt ba5.pt ba6.pt latest.pt");
            bool told = strstr(best_said, "the metric of 1 checkpoints") != NULL;
            assert_int_equal(told, anew || !again);                         // what gc itself has found counts as a copy then

        }
    }
}

// Nor is it known which of weights alone are every second save: all of them stay, and with the index those go that may.
static void test_every_unknown(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl");
    run *r = run_new(dir);
    r->d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
    r->d.weights_only = true;
    run_open(r);
    for (int i = 1; i <= 4; i++) run_save(r, i);
    run_end(r);
    char *text = util_read(index, NULL);
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.num_checkpoints_to_keep = 1;
    d.keep_every = 2;
    for (int k = 0; k < 4; k++) {       // the index is lost, was made again by gc, its first line is damaged, it is whole
        if (k == 0) assert_int_equal(unlink(index), 0);
        if (k == 2) util_write_text(index, strchr(text, '\n') + 1);
        if (k == 3) util_write_text(index, text);
        ckpt_folder *f = look_into(dir);
        assert_int_equal(ckpt_folder_gc(f, &d), k < 2 ? CKPT_ARG : CKPT_OK);
        if (k < 2) assert_non_null(strstr(ckpt_last_error(), "nobody knows every 2th"));
        ckpt_folder_close(f);
        assert_string_equal(names_in(dir), k < 2 ? "ba1.pt ba2.pt ba3.pt ba4.pt latest.pt" : k == 2 ? "ba1.pt ba2.pt ba4.pt latest.pt" : "ba2.pt ba4.pt latest.pt");
        if (k > 0) continue;
        d.num_checkpoints_to_keep = CKPT_KEEP_ALL;
        f = look_into(dir);
        ok(ckpt_folder_gc(f, &d));
        ckpt_folder_close(f);
        assert_true(util_exists(index));
        d.num_checkpoints_to_keep = 1;
    }
}

static void nothing_below(const char *name, const char *path) {
    (void)name;
    assert_null(strstr(path, "/below/"));
}

// A file in a folder that is no run's: what lies below is not touched, and no index is left beside the file.
static void test_no_runs_folder(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *run_dir = util_temp_dir();
    run_end(run_live(run_dir, CKPT_KEEP_ALL, 3));
    util_mkdir(util_join(dir, "below"));
    for (int i = 1; i <= 3; i++) {
        size_t size = 0;
        char *bytes = util_read(util_join(run_dir, util_fmt("ba%d.pt", i)), &size);
        util_write(util_join(dir, util_fmt(i < 3 ? "ba%d.pt" : "below/ba%d.pt", i)), bytes, size);
    }
    assert_int_equal(symlink("ba2.pt", util_join(dir, "latest.pt")), 0);
    ckpt_folder *f = NULL;
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = dir;
    d.flat = true;
    fault_set_spy(nothing_below);
    ok(ckpt_folder_open(&f, &d));
    assert_int_equal(ckpt_folder_count(f), 2);
    ok(ckpt_folder_remove(f, at_name(f, "ba2.pt")));
    fault_set_spy(NULL);
    ckpt_folder_close(f);
    assert_string_equal(util_list(dir), "ba1.pt\nbelow\nlatest.pt\n");
    assert_string_equal(util_link_target(util_join(dir, "latest.pt")), "ba1.pt");
}

// What never becomes readable, and no link was seen there, ends no clean-up.
static void never_seen(const char *name, const char *path) {
    if (strcmp(name, "lstat") == 0 && ckpt__txt_ends(path, "/broken")) fault_arm_here("lstat", EIO);
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, "/unread.txt")) fault_arm_here("open", EIO);
}

static void test_never_seen(void **state) {
    (void)state;
    static const char *const odd[] = { "circle", "long", "broken", "unread.txt", "deep/broken", "ba3.pt" };
    for (size_t k = 0; k < 2 * sizeof odd / sizeof *odd; k++) {
        const char *dir = util_temp_dir(), *path = util_join(dir, odd[k / 2]);
        char far[400];
        memset(far, 'x', sizeof far - 1);
        far[sizeof far - 1] = 0;
        run_end(run_live(dir, CKPT_KEEP_ALL, 4));
        assert_int_equal(mkdir(util_join(dir, "deep"), 0777), 0);
        if (k / 2 == 0) assert_int_equal(symlink("circle", path), 0);
        else if (k / 2 == 1) assert_int_equal(symlink(far, path), 0);
        else if (k / 2 < 5) util_write_text(path, "of somebody");
        if (k / 2 == 5) assert_true(unlink(path) == 0 && symlink("ba3.pt", path) == 0);
        ckpt_gc_desc d;
        memset(&d, 0, sizeof d);
        d.num_checkpoints_to_keep = 1;
        ckpt_folder *f = look_into(dir);
        fault_set_spy(never_seen);
        ckpt_err e = k % 2 == 1 ? ckpt_folder_gc(f, &d) : ckpt_folder_remove(f, at_name(f, "ba3.pt"));
        fault_set_spy(NULL);
        (void)fault_disarm();
        ok(e);
        ckpt_folder_close(f);
        assert_null(util_link_target(util_join(dir, "ba3.pt")));
        assert_false(util_exists(util_join(dir, "ba3.pt")));
        if (k / 2 < 2) assert_non_null(util_link_target(path));
        assert_string_equal(util_link_target(util_join(dir, "latest.pt")), "ba4.pt");
    }
}

//-- copies that somebody made ---------------------------------------------------------

static const char *folder_with_copies(void) {
    const char *dir = util_temp_dir();
    run_end(run_live(dir, 2, 3));
    copy(dir, "ba2.pt", "mine-a.pt");
    copy(dir, "ba2.pt", "mine-b.pt");
    util_mkdir(util_join(dir, "backup"));
    copy(dir, "ba3.pt", "backup/copy.pt");
    return dir;
}

// To pin one file says nothing of the files beside it.
static void test_pin_is_of_one(void **state) {
    (void)state;
    for (int unpinned = 0; unpinned < 2; unpinned++) {
        const char *dir = folder_with_copies();
        pin(dir, "mine-a.pt", true);
        char *text = util_read(util_join(dir, ".ckpt-index.jsonl"), NULL);
        assert_non_null(strstr(text, "mine-a.pt"));
        assert_null(strstr(text, "mine-b.pt"));
        assert_null(strstr(text, "copy.pt"));
        if (unpinned > 0) pin(dir, "mine-a.pt", false);
        go_on(dir, 2, 3, 5);
        assert_string_equal(names_in(dir), "ba4.pt ba5.pt backup latest.pt mine-a.pt mine-b.pt");
        assert_string_equal(names_in(util_join(dir, "backup")), "copy.pt");
        go_on(dir, 1, 5, 6);                            // the index still says so
        assert_string_equal(names_in(dir), "ba6.pt backup latest.pt mine-a.pt mine-b.pt");
    }
}

// A file that is taken away takes its neighbours into the index no more than a pinned one.
static void test_remove_is_of_one(void **state) {
    (void)state;
    const char *dir = folder_with_copies();
    take_away(dir, "mine-a.pt");
    go_on(dir, 2, 3, 5);
    assert_string_equal(names_in(dir), "ba4.pt ba5.pt backup latest.pt mine-b.pt");
}

// A tool that makes a lost index again does not know the template; the saver does.
static void test_found_by_tools(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        const char *dir = folder_with_copies();
        if (how < 2) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        if (how == 0) pin(dir, "mine-a.pt", true);
        else ok(tidy(dir, CKPT_KEEP_ALL));
        assert_non_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "\"found\":true"));
        go_on(dir, 2, 3, 5);
        assert_string_equal(names_in(dir), "ba4.pt ba5.pt backup latest.pt mine-a.pt mine-b.pt");
        assert_string_equal(names_in(util_join(dir, "backup")), "copy.pt");
    }
}

// What tools note while a saver is at work its saves leave as it is: pins, also of files that it has not got, and damage.
static void test_noted_while_saving(void **state) {
    (void)state;
    static const char *const names = "ba1.pt ba3.pt ba6.pt latest.pt mine.pt";
    const char *dir = util_temp_dir();
    ckpt_checkpoint c;
    run *r = run_live(dir, 3, 3);
    copy(dir, "ba1.pt", "mine.pt");
    run_save(r, 4);
    copy(dir, "mine.pt", "ba1.pt");                     // rotation has taken it away
    pin(dir, "mine.pt", true);
    pin(dir, "ba1.pt", true);
    util_flip(util_join(dir, "ba3.pt"), 4000, 1);
    ckpt_folder *f = look_into(dir);
    assert_int_equal(ckpt_folder_verify(f, at_name(f, "ba3.pt")), CKPT_CORRUPT);
    ckpt_folder_close(f);
    run_save(r, 5);
    assert_int_equal(ckpt_saver_checkpoints(r->s, NULL), 3);
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt ba3.pt ba4.pt ba5.pt latest.pt mine.pt");
    run_end(r);
    f = look_into(dir);
    ok(ckpt_folder_entry(f, at_name(f, "ba1.pt"), &c));
    assert_true(c.pinned);
    ok(ckpt_folder_entry(f, at_name(f, "ba3.pt"), &c));
    assert_true(c.damaged);
    ckpt_folder_close(f);
    go_on(dir, 1, 5, 6);
    assert_string_equal(names_in(dir), names);
    ok(tidy(dir, 1));
    assert_string_equal(names_in(dir), names);
}

static void check_verdict(const char *dir, const char *name, bool damaged) {
    ckpt_checkpoint c;
    ckpt_folder *f = look_into(dir);
    ok(ckpt_folder_entry(f, at_name(f, name), &c));
    assert_int_equal(c.damaged, damaged);
    ckpt_folder_close(f);
}

// A verdict that is taken back, since somebody has put the file right, is taken back for a saver at work as well.
static void test_verdict_taken_back(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run *r = run_live(dir, CKPT_KEEP_ALL, 3);
    for (int i = 0; i < 4; i++) {
        flip_and_verify(dir, "ba2.pt", i % 2 == 0 ? CKPT_CORRUPT : CKPT_OK);
        if (i < 3) run_save(r, 4 + i);
        check_verdict(dir, "ba2.pt", i % 2 == 0);
    }
    run_save(r, 7);
    run_end(r);
    check_verdict(dir, "ba2.pt", false);
    assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "abandoned"));
}

static void ba2_unread(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, "/ba2.pt")) fault_arm_here("open", EIO);
}

// gc takes nobody's word for damage: what was put right stays, and so does what cannot be read just now.
static void test_verdict_looked_at_again(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run_end(run_live(dir, CKPT_KEEP_ALL, 3));
    flip_and_verify(dir, "ba1.pt", CKPT_CORRUPT);
    flip_and_verify(dir, "ba2.pt", CKPT_CORRUPT);
    util_flip(util_join(dir, "ba1.pt"), 4000, 1);
    for (int pass = 0; pass < 2; pass++) {
        ckpt_gc_desc d;
        memset(&d, 0, sizeof d);
        d.damaged = true;
        ckpt_folder *f = look_into(dir);
        if (pass == 0) fault_set_spy(ba2_unread);
        ok(ckpt_folder_gc(f, &d));
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        ckpt_folder_close(f);
        check_verdict(dir, "ba1.pt", false);
        if (pass == 0) check_verdict(dir, "ba2.pt", true);
    }
    assert_string_equal(names_in(dir), "ba1.pt ba3.pt latest.pt");
}

static int listing_opened;
static void listing_unread(const char *name, const char *path) {         // whose it is can be read, and no more
    if (strcmp(name, "open") != 0 || !ckpt__txt_ends(path, "/ba1/.metadata")) return;
    if (++listing_opened % 2 == 0) fault_arm_here("open", EIO);
}

// A listing that cannot be read for the moment is no damaged one, where the index is lost, and no old one.
static void test_listing_unread(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run *r = run_new(dir);
    r->d.sharded = true;
    r->d.sharded_prefix_dir = "ba{batch}";
    run_open(r);
    for (int i = 1; i <= 3; i++) run_save(r, i);
    run_end(r);
    for (int view = 0; view < 2; view++) {
        ckpt__index ix;
        ckpt__os_info info;
        ok(ckpt__index_init(&ix, NULL, dir));
        ok(ckpt__os_lstat(util_join(dir, "ba1/.metadata"), &info));
        listing_opened = 0;
        fault_set_spy(listing_unread);
        assert_int_equal(ckpt__folder_enter_many(&ix, "ba1/.metadata", &info, view == 1), view == 1 ? CKPT_OK : CKPT_IO);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        assert_int_equal(ix.count, view);
        if (view == 1) assert_int_equal(ix.lines[0].state, CKPT__INDEX_SAVED);
        ckpt__index_free(&ix);
    }
}

// What resume finds counts for more than an older verdict that the index has, although somebody else has changed the index meanwhile.
static void test_verdict_of_resume(void **state) {
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        const char *dir = util_temp_dir();
        run_end(run_live(dir, CKPT_KEEP_ALL, 3));
        if (bad) util_flip(util_join(dir, "ba3.pt"), 4000, 1);
        run *r = run_new(dir);
        ckpt_timestamp t;
        run_open(r);
        if (!bad) flip_and_verify(dir, "ba3.pt", CKPT_CORRUPT);
        if (!bad) util_flip(util_join(dir, "ba3.pt"), 4000, 1);
        pin(dir, "ba1.pt", true);
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.batch, bad ? 2 : 3);
        check_verdict(dir, "ba3.pt", bad > 0);
        run_end(r);
    }
}

// A copy of a far later save of another run: neither the newest here, nor does anything leave for it.
static void test_copy_of_another_run(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        const char *top = util_temp_dir(), *b = util_join(top, "b");
        run_end(run_live(util_join(top, "a"), CKPT_KEEP_ALL, 10));
        run_end(run_live(b, CKPT_KEEP_ALL, 5));
        copy(top, "a/ba10.pt", "b/base.pt");
        if (how == 0) {
            ok(tidy(b, 1));
            ok(tidy(b, 1));                             // the index has it now
            assert_string_equal(names_in(b), "ba5.pt base.pt latest.pt");
            assert_string_equal(util_link_target(util_join(b, "latest.pt")), "ba5.pt");
        } else if (how == 1) {
            pin(b, "base.pt", true);
            take_away(b, "ba5.pt");
            assert_string_equal(util_link_target(util_join(b, "latest.pt")), "ba4.pt");
            for (int i = 4; i > 0; i--) take_away(b, util_fmt("ba%d.pt", i));
            assert_string_equal(util_link_target(util_join(b, "latest.pt")), "base.pt");
        } else {                                        // nothing says any more what is whose
            assert_int_equal(unlink(util_join(b, ".ckpt-index.jsonl")), 0);
            ok(tidy(b, 1));
            assert_string_equal(names_in(b), "base.pt latest.pt");
        }
    }
}

// A name that is not UTF-8 has no place in the index: such a file is listed and can be removed by name, no clean-up takes it, and
// who pins it learns that this is not possible.
static void test_not_utf8(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *odd = "best-\xff.pt";
    run_end(run_live(dir, 3, 3));
    for (int lost = 0; lost < 2; lost++) {
        ckpt_checkpoint c;
        copy(dir, "ba3.pt", odd);
        if (lost != 0) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        ckpt_folder *f = look_into(dir);
        int at = at_name(f, odd);
        ok(ckpt_folder_entry(f, at, &c));
        assert_true(c.foreign);
        assert_int_equal(ckpt_folder_pin(f, at, true), CKPT_UNSUPPORTED);
        assert_non_null(strstr(ckpt_last_error(), "UTF-8"));
        ok(ckpt_folder_verify(f, at));
        ckpt_folder_close(f);
        ok(tidy(dir, 1));
        pin(dir, "ba3.pt", true);
        assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "best"));
        assert_string_equal(names_in(dir), "ba3.pt best-\xff.pt latest.pt");
        take_away(dir, odd);
        assert_string_equal(names_in(dir), "ba3.pt latest.pt");
    }
}

// The folder itself may have such a name.
static void test_folder_is_not_utf8(void **state) {
    (void)state;
    const char *dir = util_join(util_temp_dir(), "run-\xff");
    run_end(run_live(dir, 2, 3));
    go_on(dir, 2, 3, 4);
    assert_string_equal(names_in(dir), "ba3.pt ba4.pt latest.pt");
    check_file(util_join(dir, "latest.pt"), 4);
}

// A run goes on from a checkpoint that somebody gave such a name, when `latest` leads to it.
static void test_latest_is_not_utf8(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run_end(run_live(dir, 3, 3));
    assert_int_equal(rename(util_join(dir, "ba3.pt"), util_join(dir, "best-\xff.pt")), 0);
    assert_int_equal(unlink(util_join(dir, "latest.pt")), 0);
    assert_int_equal((symlink)("best-\xff.pt", util_join(dir, "latest.pt")), 0);
    go_on(dir, CKPT_KEEP_ALL, 3, 4);
    assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "best"));
    ckpt_folder *f = look_into(dir);
    for (int i = 0; i < ckpt_folder_count(f); i++) {
        ckpt_checkpoint c;
        ok(ckpt_folder_entry(f, i, &c));
        assert_false(c.missing);
    }
    assert_int_equal(ckpt_folder_count(f), 4);
    ckpt_folder_close(f);
}

// A line that names what no file can be called is no line: it stops neither tools nor savers.
static void test_too_long(void **state) {
    (void)state;
    static char wide[300], deep[4080];
    memset(wide, 'x', sizeof wide - 1);
    for (size_t i = 0; i + 1 < sizeof deep; i++) deep[i] = i % 100 == 99 ? '/' : 'y';
    for (int tool = 0; tool < 2; tool++) {
        const char *dir = util_temp_dir();
        run_end(run_live(dir, 3, 3));
        ckpt__index ix;
        ok(ckpt__index_init(&ix, NULL, dir));
        ok(ckpt__index_load(&ix));
        for (int i = 0; i < 2; i++) {
            ckpt__index_line line = ix.lines[ix.count - 1];
            line.name = i == 0 ? wide : deep;
            ok(ckpt__index_insert(&ix, ix.count, &line));
        }
        ok(ckpt__index_write(&ix));
        ckpt__index_free(&ix);
        if (tool > 0) {
            ckpt_folder *f = look_into(dir);
            assert_int_equal(ckpt_folder_count(f), 3);
            ckpt_folder_close(f);
            ok(tidy(dir, 1));
            assert_string_equal(names_in(dir), "ba3.pt latest.pt");
        }
        go_on(dir, 2, 3, 5);
        assert_string_equal(names_in(dir), "ba4.pt ba5.pt latest.pt");
    }
}

// Saves again while another save of that name is looked at, once: after all of that has been read.
static void save_meanwhile(const ckpt_progress *p, void *user) {
    run *r = (run *)user;
    if (p->finished && r->step == 1) run_save(r, 2);
}

static run *run_of_one_name(const char *dir) {
    run *r = run_new(dir);
    r->d.filename = "last.pt";
    r->d.overwrite = true;
    run_open(r);
    return r;
}

// What is found out about a save is noted of that one, and of none that has taken its name since.
static void test_verdict_is_of_one_save(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl");
    ckpt_checkpoint c;
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    run *r = run_of_one_name(dir);
    run_save(r, 1);
    util_flip(util_join(dir, "last.pt"), 4000, 1);
    memset(&d, 0, sizeof d);
    d.folder = dir;
    d.progress.fn = save_meanwhile;
    d.progress.user = r;
    ok(ckpt_folder_open(&f, &d));
    assert_int_equal(ckpt_folder_verify(f, 0), CKPT_CORRUPT);
    assert_int_equal(r->step, 2);
    ckpt_folder_close(f);
    run_end(r);
    f = look_into(dir);
    ok(ckpt_folder_entry(f, 0, &c));
    assert_int_equal(c.timestamp.batch, 2);
    assert_false(c.damaged);
    ckpt_folder_close(f);

    char more[5000] = "", *old = util_read(index, NULL);        // a view between a save's file and its index
    r = run_of_one_name(dir);
    ckpt_bind_bytes(&r->st, "state/more", more, sizeof more);
    run_save(r, 3);
    run_end(r);
    char *now = util_read(index, NULL);
    util_write_text(index, old);
    f = look_into(dir);
    util_write_text(index, now);
    ok(ckpt_folder_verify(f, 0));
    ckpt_folder_close(f);
    assert_string_equal(util_read(index, NULL), now);
    util_write_text(index, old);                                // and one of a process that was killed before it wrote its index
    f = look_into(dir);
    ok(ckpt_folder_verify(f, 0));
    ckpt_folder_close(f);
    assert_string_equal(util_read(index, NULL), old);
}

//-- files that another program wrote again ------------------------------------------------

// As tar writes the same members again: another mode in the first header, whose sum is right, and blocks of zeros behind the end.
static void write_tar_again(const char *path) {
    size_t size = 0;
    unsigned sum = 0;
    char *old = util_read(path, &size), *now = (char *)util_keep(calloc(1, size + 8192), false);
    memcpy(now, old, size);
    memcpy(now + 100, "0000600", 7);
    memset(now + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)now[i];
    (void)snprintf(now + 148, 7, "%06o", sum);
    util_write(path, now, size + 8192);
}

// As a tape, or a disk of whole blocks, leaves it.
static void write_zeros_behind(const char *path) {
    size_t size = 0;
    char *old = util_read(path, &size), *now = (char *)util_keep(calloc(1, size + 700), false);
    memcpy(now, old, size);
    util_write(path, now, size + 700);
}

static run *run_of(const char *dir, const char *ending) {
    run *r = run_new(dir);
    r->d.filename = util_fmt("ba{batch}%s", ending);
    r->d.latest_filename = util_fmt("latest%s", ending);
    run_open(r);
    return r;
}

static void note_line(ckpt_log_level level, const char *msg, void *user) {
    char *said = (char *)user;
    (void)snprintf(said + strlen(said), 4000 - strlen(said), "%d %s\n", (int)level, msg);
}

static ckpt_err verify_in(const char *dir, const char *name, char *said) {
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    memset(&d, 0, sizeof d);
    said[0] = 0;
    d.folder = dir;
    d.logger.fn = note_line;
    d.logger.user = said;
    ok(ckpt_folder_open(&f, &d));
    ckpt_err e = ckpt_folder_verify(f, at_name(f, name));
    ckpt_folder_close(f);
    return e;
}

static bool is_damaged(const char *dir, const char *name) {
    ckpt_checkpoint c;
    ckpt_folder *f = look_into(dir);
    ok(ckpt_folder_entry(f, at_name(f, name), &c));
    ckpt_folder_close(f);
    return c.damaged;
}

static void tidy_damaged(const char *dir) {
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.damaged = true;
    ckpt_folder *f = look_into(dir);
    ok(ckpt_folder_gc(f, &d));
    ckpt_folder_close(f);
}

// Resume goes on from a healthy file that another program wrote again, whatever its size: then it is damaged for no tool either.
// What is cut is, also where the sums of this library say nothing any more.
static void test_written_again(void **state) {
    (void)state;
    static const struct { const char *ending, *tool; void (*again)(const char *path); } rows[] = {
        { ".tar", "sh", write_tar_again }, { ".pt.gz", "gzip", write_zeros_behind }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir(), *index = util_join(dir, ".ckpt-index.jsonl"), *ending = rows[i].ending;
        const char *third = util_fmt("ba3%s", ending), *path = util_join(dir, third), *all = util_fmt("ba1%s ba2%s ba3%s latest%s", ending, ending, ending, ending);
        char said[4000];
        size_t size, was;
        ckpt_timestamp t;
        if (!ckpt__os_which(rows[i].tool)) continue;
        run *r = run_of(dir, ending);
        for (int k = 1; k <= 3; k++) run_save(r, k);
        run_end(r);
        (void)util_read(path, &was);
        rows[i].again(path);
        const char *noted = util_read(index, NULL), *bytes = util_read(path, &size);
        ok(verify_in(dir, third, said));
        if (strstr(said, util_fmt("has %llu bytes, and the index says %llu", (unsigned long long)size, (unsigned long long)was)) == NULL) fail_msg("%s", said);
        assert_string_equal(util_read(index, NULL), noted);
        tidy_damaged(dir);
        assert_string_equal(names_in(dir), all);
        assert_string_equal(util_link_target(util_join(dir, util_fmt("latest%s", ending))), third);

        for (size_t n = size - size % 512; n > 0; n -= 512) {               // a cut one, but of the zeros behind its end
            util_write(path, bytes, n);
            ckpt_err e = verify_in(dir, third, said);
            if (e != (n > was ? CKPT_OK : CKPT_CORRUPT) && (n < was - 512 || n > was)) fail_msg("%s of %zu bytes: %s %s", ending, n, ckpt_err_name(e), said);
        }
        assert_true(is_damaged(dir, third));
        util_write(path, bytes, size);                                      // it is put right before it is to go
        tidy_damaged(dir);
        assert_string_equal(names_in(dir), all);
        assert_false(is_damaged(dir, third));
        r = run_of(dir, ending);
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.batch, 3);
        run_end(r);
        ok(verify_in(dir, third, said));
        assert_string_equal(said, "");                                      // resume has brought its line up to date
    }
}

//-- tarballs of each rank's own ---------------------------------------------------------

// What a saver of so many ranks puts into its tarball beside the state: a name that nobody can bind.
static void make_tarball(const char *path, const ckpt_timestamp *t, int64_t world) {
    char name[] = CKPT__SAVER_STATE "world_size", count[] = CKPT__SAVER_STATE "save_count";
    int64_t number = t->batch;
    ckpt_state st;
    ckpt__items items;
    ckpt__state_stamp stamp;
    ckpt__file_format fmt;
    ckpt__plan plan;
    ckpt__engine_job job;
    memset(&st, 0, sizeof st);
    memset(&job, 0, sizeof job);
    ok(ckpt__file_format_of(path, &fmt));
    ok(ckpt__state_select(&st, false, NULL, 0, NULL, &items));
    ckpt__plan_init(&plan, &st.allocator, &st);
    ok(ckpt__items_add_timestamp(&items, &stamp, t));
    ok(ckpt__items_add(&items, name, CKPT_KIND_INT, &world, 8));
    ok(ckpt__items_add(&items, count, CKPT_KIND_INT, &number, 8));
    ok(ckpt__file_plan(&plan, &fmt, path, items.list, items.count));
    ok(ckpt__file_write(path, &fmt, &plan, true, &job, &st.allocator, NULL));
    ckpt__plan_free(&plan);
    ckpt__items_free(&items);
}

// Adds to a rank's index the saves from `first` to `last`, and tarballs of them and of one more, which say how many ranks there were.
static void make_saves(const char *dir, int rank, int first, int last, bool more, int64_t world) {
    ckpt_allocator plain = { NULL, NULL };
    ckpt__index ix;
    ok(ckpt__index_init(&ix, &plain, dir));
    ckpt__folder_choose_index(&ix, rank);
    ok(ckpt__index_load(&ix));
    for (int i = first; i <= last + more; i++) {
        ckpt__index_line line;
        char *name = util_fmt("ba%d-rank%d.tar", i, rank);
        memset(&line, 0, sizeof line);
        line.name = name;
        line.t = at_batch(i);
        line.number = (uint64_t)i;
        make_tarball(util_join(dir, name), &line.t, world);
        if (i <= last) ok(ckpt__index_insert(&ix, ix.count, &line));
    }
    ok(ckpt__index_write(&ix));
    ckpt__index_free(&ix);
}

static void shut_index(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/.ckpt-index") != NULL) fault_arm_here("open", EACCES);
}

// Of a run below whose ranks have tarballs of their own, each rank's index is asked; what may not be asked is said, once.
static void test_ranks_below_are_asked(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *dir = util_join(top, "run");
    char said[4000] = "";
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    ckpt_checkpoint c;
    util_mkdir(dir);
    for (int rank = 0; rank < 3; rank++) make_saves(dir, rank, 3, 4, false, 3);
    pin(dir, "ba3-rank2.tar", true);
    flip_in(dir, "ba4-rank1.tar");
    (void)verify_in(dir, "ba4-rank1.tar", said);
    f = look_into(top);
    for (int k = 0; k < 6; k++) {
        ok(ckpt_folder_entry(f, at_name(f, util_fmt("run/ba%d-rank%d.tar", 3 + k / 3, k % 3)), &c));
        assert_int_equal(c.pinned, k == 2);
        assert_int_equal(c.damaged, k == 4);
    }
    ckpt_folder_close(f);

    for (int shut = 0; shut < 2; shut++) {
        said[0] = 0;
        memset(&d, 0, sizeof d);
        d.folder = top;
        d.logger.fn = note_line;
        d.logger.user = said;
        if (shut) fault_set_spy(shut_index);
        ok(ckpt_folder_open(&f, &d));
        ckpt_gc_desc g;
        memset(&g, 0, sizeof g);
        g.dry_run = true;
        (void)!ckpt_folder_gc(f, &g);
        fault_set_spy(NULL);
        (void)fault_disarm();
        assert_int_equal(ckpt_folder_count(f), 6);
        for (int k = 0; k < 6; k++) {
            ok(ckpt_folder_entry(f, k, &c));
            assert_int_equal(c.untold, shut ? CKPT_AUTH : CKPT_OK);
        }
        ckpt_folder_close(f);
        const char *at = strstr(said, "it is not known which checkpoints in ");
        if ((at != NULL) != shut) fail_msg("%d: %s", shut, said);
        if (shut) assert_null(strstr(at + 1, "it is not known"));
        if (shut) assert_non_null(strstr(at, util_fmt("in %s are pinned or damaged: ", dir)));
    }
}

// Nor is anything known of a folder whose own index may not be read: that is said, once, and of each checkpoint.
static void test_own_index_shut(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run_end(run_live(dir, CKPT_KEEP_ALL, 2));
    pin(dir, "ba1.pt", true);
    for (int shut = 0; shut < 2; shut++) {
        char said[4000] = "";
        ckpt_folder_desc d;
        ckpt_folder *f = NULL;
        ckpt_checkpoint c;
        memset(&d, 0, sizeof d);
        d.folder = dir;
        d.logger.fn = note_line;
        d.logger.user = said;
        if (shut) fault_set_spy(shut_index);
        ok(ckpt_folder_open(&f, &d));
        fault_set_spy(NULL);
        (void)fault_disarm();
        assert_int_equal(ckpt_folder_count(f), 2);
        for (int i = 0; i < 2; i++) {
            ok(ckpt_folder_entry(f, i, &c));
            assert_int_equal(c.untold, shut ? CKPT_AUTH : CKPT_OK);
            assert_int_equal(c.pinned, !shut && strcmp(c.name, "ba1.pt") == 0);
        }
        const char *at = strstr(said, "it is not known which checkpoints in ");
        if ((at != NULL) != shut) fail_msg("%d: %s", shut, said);
        if (shut) assert_null(strstr(at + 1, "it is not known"));
        ckpt_folder_close(f);
    }
}

// A job was killed in its 6th save, before all ranks had a tarball, or before all had it in their indexes: what is left to go on from
// is the 5th, which stays whatever is kept.
static void test_killed_among_ranks(void **state) {
    (void)state;
    for (int noted = 0; noted < 2; noted++) {
        for (int keep = 1; keep < 3; keep++) {
            const char *dir = util_temp_dir(), *latest = util_join(dir, "latest-rank0.tar");
            for (int rank = 0; rank < 3; rank++) make_saves(dir, rank, 3, rank != 1 && noted ? 6 : 5, rank != 1 && !noted, 3);
            assert_int_equal((symlink)("ba5-rank0.tar", latest), 0);
            ok(tidy(dir, keep));
            for (int rank = 0; rank < 3; rank++) {
                for (int i = 3; i < 6; i++) assert_int_equal(util_exists(util_join(dir, util_fmt("ba%d-rank%d.tar", i, rank))), i > 5 - keep);
                assert_int_equal(util_exists(util_join(dir, util_fmt("ba6-rank%d.tar", rank))), rank != 1);
            }
            assert_string_equal(util_link_target(latest), "ba5-rank0.tar");
        }
    }
}

// Are of all ranks' saves those from `first` to the 6th left, and none before?
static void check_left_of_ranks(const char *dir, int first) {
    for (int rank = 0; rank < 3; rank++) {
        for (int i = 3; i < 7; i++) assert_int_equal(util_exists(util_join(dir, util_fmt("ba%d-rank%d.tar", i, rank))), i >= first);
    }
}

// One rank's newest is damaged, as gc finds: the save before it is the newest that is complete, and stays with all ranks.
static void test_damaged_among_ranks(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        const char *dir = util_temp_dir(), *latest = util_join(dir, util_fmt("latest-rank%d.tar", k));
        for (int rank = 0; rank < 3; rank++) make_saves(dir, rank, 3, 6, false, 3);
        assert_int_equal((symlink)(util_fmt("ba6-rank%d.tar", k), latest), 0);
        util_flip(util_join(dir, util_fmt("ba6-rank%d.tar", k)), 5, 1);
        ok(tidy(dir, 1));
        check_left_of_ranks(dir, 5);
        assert_string_equal(util_link_target(latest), util_fmt("ba5-rank%d.tar", k));
    }
}

// So also where nothing leaves of the rank whose newest is damaged, for all else of it is pinned; and where of each rank another save
// is damaged, so that one is found only when another was.
static void test_damaged_behind_pins(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        const char *dir = util_temp_dir(), *latest = util_join(dir, util_fmt("latest-rank%d.tar", k));
        for (int rank = 0; rank < 3; rank++) make_saves(dir, rank, 3, 6, false, 3);
        assert_int_equal((symlink)(util_fmt("ba6-rank%d.tar", k), latest), 0);
        for (int i = 3; i < 6; i++) {
            ckpt_folder *f = look_into(dir);
            ok(ckpt_folder_pin(f, at_name(f, util_fmt("ba%d-rank%d.tar", i, k)), true));
            ckpt_folder_close(f);
        }
        util_flip(util_join(dir, util_fmt("ba6-rank%d.tar", k)), 5, 1);
        util_flip(util_join(dir, util_fmt("ba5-rank%d.tar", (k + 1) % 3)), 5, 1);
        ok(tidy(dir, 1));
        for (int rank = 0; rank < 3; rank++) {
            for (int i = 3; i < 7; i++) assert_int_equal(util_exists(util_join(dir, util_fmt("ba%d-rank%d.tar", i, rank))), i > 3 || rank == k);
        }
        assert_string_equal(util_link_target(latest), util_fmt("ba5-rank%d.tar", k));
    }
}

// Nor is it enough that a rank's newest verifies, which was killed in its next save: the newest that all have must.
static void test_damaged_behind_a_kill(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        const char *dir = util_temp_dir();
        for (int rank = 0; rank < 3; rank++) make_saves(dir, rank, 3, rank == k ? 7 : 6, false, 3);
        util_flip(util_join(dir, util_fmt("ba6-rank%d.tar", k)), 5, 1);
        ok(tidy(dir, 1));
        check_left_of_ranks(dir, 5);
        assert_true(util_exists(util_join(dir, util_fmt("ba7-rank%d.tar", k))));
        assert_int_equal(tidy(dir, 1), CKPT_OK);        // what is known to be damaged by now
        check_left_of_ranks(dir, 5);
    }
}

// Nothing goes of any rank where a saver of one has the folder open, nor where of one none verifies.
static void test_refused_among_ranks(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_logger quiet = { NULL, NULL };
    bool tool = false;
    int fd = -1;
    for (int rank = 0; rank < 3; rank++) make_saves(dir, rank, 3, 6, false, 3);
    ok(ckpt__os_lock_soon(&fd, util_join(dir, ".ckpt-lock-rank2"), false, 0.0, &quiet, &tool));
    assert_int_equal(tidy(dir, 1), CKPT_EXISTS);
    check_left_of_ranks(dir, 3);
    ckpt__os_unlock(fd, util_join(dir, ".ckpt-lock-rank2"));
    for (int i = 3; i < 7; i++) util_flip(util_join(dir, util_fmt("ba%d-rank1.tar", i)), 5, 1);
    ok(tidy(dir, 1));
    check_left_of_ranks(dir, 3);
}

// A machine without rank 0: another file of the library there, which the first clean-up notes, is none of its tarballs. Rank 0's own
// are, also where its index was lost.
static void test_machine_without_rank_0(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        const char *dir = util_temp_dir();
        run *r = run_new(dir);
        run_open(r);
        run_save(r, 9);
        run_end(r);
        for (int rank = lost ? 0 : 1; rank < 3; rank++) make_saves(dir, rank, 3, 5, false, 3);
        assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        for (int turn = 0; turn < 2; turn++) {
            ok(tidy(dir, 1));
            for (int i = 3; i < 6 + turn; i++)          // rank 0 has no 6th
                assert_int_equal(util_exists(util_join(dir, util_fmt("ba%d-rank1.tar", i))), i == 5 + turn || (lost && i == 5));
            assert_non_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "found"));
            for (int rank = 1; rank < 3; rank++) make_saves(dir, rank, 6 + turn, 6 + turn, false, 3);
        }
        assert_true(util_exists(util_join(dir, "ba9.pt")));
    }
}

// The job goes on with fewer ranks, and the indexes of the others are still there: a save is complete when the ranks that made it
// have it, but for one that rank 1 was killed in.
static void test_fewer_ranks(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    for (int rank = 0; rank < 4; rank++) make_saves(dir, rank, 1, 2, false, 4);
    for (int rank = 0; rank < 2; rank++) make_saves(dir, rank, 3, rank == 0 ? 7 : 6, false, 2);
    ok(tidy(dir, 2));
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 1; i < 7; i++) assert_int_equal(util_exists(util_join(dir, util_fmt("ba%d-rank%d.tar", i, rank))), i > 4);
    }
    assert_true(util_exists(util_join(dir, "ba7-rank0.tar")));
}

//-- a folder that may only be read ----------------------------------------------------

static int locks_refused;
static void no_locks(const char *name, const char *path) {
    if (strcmp(name, "open") != 0 || (!ckpt__txt_ends(path, "lock") && strstr(path, ".ckpt-lock") == NULL)) return;
    locks_refused++;
    fault_arm_here("open", EROFS);
}

static void note_gone(const char *name, uint64_t size, void *user) {
    (void)size;
    strcat((char *)user, name);
    strcat((char *)user, " ");
}

// While a saver has the folder open nothing is deleted, but what would be can be asked.
static void test_dry_run_beside_a_saver(void **state) {
    (void)state;
    char gone[512] = "";
    const char *dir = util_temp_dir();
    run *r = run_new(dir);
    run_open(r);
    for (int i = 1; i <= 4; i++) run_save(r, i);
    const char *before = names_in(dir);
    ckpt_folder *f = look_into(dir);
    ckpt_gc_desc d;
    memset(&d, 0, sizeof d);
    d.num_checkpoints_to_keep = 1;
    d.removed = note_gone;
    d.user = gone;
    d.dry_run = true;
    ok(ckpt_folder_gc(f, &d));
    d.dry_run = false;
    assert_int_equal(ckpt_folder_gc(f, &d), CKPT_EXISTS);
    assert_string_equal(gone, "ba1.pt ba2.pt ba3.pt ");
    ckpt_folder_close(f);
    assert_string_equal(names_in(dir), before);
    run_save(r, 5);
    run_end(r);
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt ba3.pt ba4.pt ba5.pt latest.pt");
}

// What would go can be told without a right to write; nothing goes without it.
static void test_dry_run_reads(void **state) {
    char gone[512] = "";
    (void)state;
    for (int ranks = 0; ranks < 2; ranks++) {
        const char *dir = util_temp_dir();
        for (int rank = 0; rank < 2 && ranks > 0; rank++) make_saves(dir, rank, 1, 3, false, 2);
        if (ranks == 0) run_end(run_live(dir, CKPT_KEEP_ALL, 3));
        const char *before = names_in(dir);
        ckpt_folder *f = look_into(dir);
        ckpt_gc_desc d;
        memset(&d, 0, sizeof d);
        d.num_checkpoints_to_keep = 1;
        d.removed = note_gone;
        d.user = gone;
        locks_refused = 0;
        for (int dry = 0; dry < 2; dry++) {
            gone[0] = 0;
            d.dry_run = dry > 0;
            fault_set_spy(no_locks);
            ckpt_err e = ckpt_folder_gc(f, &d);
            fault_set_spy(NULL);
            (void)fault_disarm();
            assert_int_equal(e, dry > 0 ? CKPT_OK : CKPT_AUTH);
            assert_string_equal(gone, dry == 0 ? "" : ranks == 0 ? "ba1.pt ba2.pt " : "ba1-rank0.tar ba2-rank0.tar ba1-rank1.tar ba2-rank1.tar ");
        }
        assert_true(locks_refused > 1);         // the folder's and, dry, the index's
        ckpt_folder_close(f);
        assert_string_equal(names_in(dir), before);
    }
}

//-- links and texts -------------------------------------------------------------------

// Where there are no links, `latest` is a text: no checkpoint, but the way to one.
static void test_text_for_a_link(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *latest = util_join(dir, "latest.pt");
    fault_arm_always("symlink", EPERM);
    run_end(run_live(dir, 3, 3));
    assert_string_equal(util_read(latest, NULL), "ba3.pt");
    ckpt_folder *f = look_into(dir);
    ckpt_checkpoint c;
    assert_int_equal(ckpt_folder_count(f), 3);
    ok(ckpt_folder_entry(f, at_name(f, "ba3.pt"), &c));
    assert_string_equal(c.latest, "latest.pt");
    assert_int_equal(ckpt_folder_find(f, "latest.pt"), ckpt_folder_find(f, "ba3.pt"));
    assert_int_equal(ckpt_folder_find(f, latest), ckpt_folder_find(f, "ba3.pt"));
    ok(ckpt_folder_remove(f, at_name(f, "latest.pt")));             // the checkpoint, and the text says the next
    ckpt_folder_close(f);
    assert_string_equal(names_in(dir), "ba1.pt ba2.pt latest.pt");
    assert_string_equal(util_read(latest, NULL), "ba2.pt");
    ok(ckpt_get_file(latest, util_join(dir, "got.pt"), false));
    check_file(util_join(dir, "got.pt"), 2);
    assert_int_equal(unlink(util_join(dir, "got.pt")), 0);
    ok(tidy(dir, 1));
    assert_string_equal(names_in(dir), "ba2.pt latest.pt");
    assert_true(fault_disarm());
}

// A folder that a file:// store has put objects into: its latest and a ledger's copy are no checkpoints, damaged ones least of all.
static void test_objects_of_a_store(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run_end(run_live(dir, CKPT_KEEP_ALL, 2));
    util_write_text(util_join(dir, "latest.pt.symlink"), "run/ba2.pt");
    util_write_text(util_join(dir, ".ckpt-ledger-01234567.jsonl"), "{}\n");
    ckpt_folder *f = look_into(dir);
    assert_int_equal(ckpt_folder_count(f), 2);
    for (int i = 0; i < 2; i++) ok(ckpt_folder_verify(f, i));
    ckpt_folder_close(f);
}

// Somebody moved a checkpoint elsewhere and left a link in its place: that is the checkpoint, and leads nowhere else when it is damaged.
static void test_moved_elsewhere(void **state) {
    (void)state;
    for (int named = 0; named < 2; named++) {
        const char *dir = util_temp_dir(), *away = util_join(util_temp_dir(), "ba1.pt"), *link = util_join(dir, "ba1.pt");
        run_end(run_live(dir, CKPT_KEEP_ALL, 3));
        assert_int_equal(rename(link, away), 0);
        assert_int_equal((symlink)(away, link), 0);
        if (named > 0) assert_int_equal((symlink)("ba1.pt", util_join(dir, "best.pt")), 0);
        util_flip(away, 6000, 1);
        ckpt_folder *f = look_into(dir);
        ckpt_checkpoint c;
        ok(ckpt_folder_entry(f, at_name(f, "ba1.pt"), &c));
        if (named > 0) assert_string_equal(c.latest, "best.pt");
        else assert_null(c.latest);
        assert_int_equal(ckpt_folder_verify(f, at_name(f, "ba1.pt")), CKPT_CORRUPT);
        ckpt_folder_close(f);
        ok(tidy(dir, CKPT_KEEP_ALL));
        assert_string_equal(util_link_target(link), away);
        if (named > 0) assert_string_equal(util_link_target(util_join(dir, "best.pt")), "ba3.pt");
        take_away(dir, "ba1.pt");
        assert_false(util_exists(link));
        assert_true(util_exists(away));
    }
}

// Who writes a checkpoint's name into a file has written a note.
static void test_note_is_no_link(void **state) {
    (void)state;
    static const char *const notes[] = { "ba1.pt\n", " ba1.pt", "./ba1.pt", "ba1.pt\t" };
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        const char *dir = util_temp_dir(), *note = util_join(dir, "best.txt");
        run_end(run_live(dir, CKPT_KEEP_ALL, 3));
        util_write_text(note, notes[i]);
        if (i % 2 == 0) take_away(dir, "ba1.pt");
        else ok(tidy(dir, 1));
        assert_string_equal(util_link_target(util_join(dir, "latest.pt")), "ba3.pt");
        assert_false(util_exists(util_join(dir, "ba1.pt")));
        assert_null(util_link_target(note));
        assert_string_equal(util_read(note, NULL), notes[i]);
    }
    const char *dir = util_temp_dir(), *note = util_join(dir, "best.txt");     // nor is it followed where any file may be meant
    run_end(run_live(dir, CKPT_KEEP_ALL, 1));
    util_write_text(note, "ba1.pt\n");
    ok(ckpt_get_file(note, util_join(dir, "got.txt"), false));
    assert_string_equal(util_read(util_join(dir, "got.txt"), NULL), "ba1.pt\n");
    util_write_text(note, "other.txt");
    util_write_text(util_join(dir, "other.txt"), "best.txt");
    ok(ckpt_get_file(note, util_join(dir, "got.txt"), true));
    assert_string_equal(util_read(util_join(dir, "got.txt"), NULL), "other.txt");
}

// The text of a store's .symlink object moves with what it leads to and stays a text: no reader takes a link by that name.
static void test_object_leads(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *dir = util_temp_dir(), *object = util_join(dir, "best.pt.symlink");
        run_end(run_live(dir, CKPT_KEEP_ALL, 3));
        ok(ckpt_create_symlink_file("ba1.pt", object));
        if (i == 2) assert_int_equal(unlink(object), 0);
        if (i == 2) assert_int_equal((symlink)("ba1.pt", object), 0);
        if (i == 0) take_away(dir, "ba1.pt");
        else ok(tidy(dir, 1));
        if (i < 2) assert_null(util_link_target(object));
        assert_string_equal(i < 2 ? util_read(object, NULL) : util_link_target(object), "ba3.pt");
        if (i < 2) ok(ckpt_get_file(object, util_join(dir, "got.pt"), false));
        if (i < 2) ok(ckpt_verify(util_join(dir, "got.pt"), NULL));
        take_away(dir, "ba3.pt");
        if (i == 0) assert_string_equal(util_read(object, NULL), "ba2.pt");
        else assert_false(util_exists(object));
    }
}

// Of two names of one file, as cp -l gives it, a path means the one that it ends with.
static void test_names_of_one_file(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *names[] = { "ba1.pt", "keep.pt", "sub/ba1.pt", "sub/keep.pt", "ba2.pt" };
    run_end(run_live(dir, CKPT_KEEP_ALL, 2));
    util_mkdir(util_join(dir, "sub"));
    for (int i = 1; i < 4; i++) assert_int_equal(link(util_join(dir, "ba1.pt"), util_join(dir, names[i])), 0);
    ckpt_folder *f = look_into(dir);
    assert_int_equal(ckpt_folder_count(f), 5);
    for (int i = 0; i < 5; i++) {
        ckpt_checkpoint c;
        int at = ckpt_folder_find(f, util_join(dir, names[i]));
        ok(ckpt_folder_entry(f, at, &c));
        assert_string_equal(c.name, names[i]);
        ok(ckpt_folder_pin(f, at, true));
        ok(ckpt_folder_entry(f, at, &c));
        assert_true(c.pinned);
    }
    ckpt_folder_close(f);
}

// A link, or a text that stands for one, has a name of its own: of two names of one file it means the one that it leads to.
static void test_link_to_one_of_two(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *names[] = { "ba1.pt", "abc.pt", "zoo.pt", "deep/ba1.pt" };
    run_end(run_live(dir, CKPT_KEEP_ALL, 1));
    util_mkdir(util_join(dir, "deep"));
    for (int i = 1; i < 4; i++) assert_int_equal(link(util_join(dir, "ba1.pt"), util_join(dir, names[i])), 0);
    for (int i = 0; i < 8; i++) {
        ckpt_checkpoint c;
        const char *at = util_join(dir, "best");
        if (i < 4) assert_int_equal((symlink)(names[i], at), 0);
        else ok(ckpt_create_symlink_file(names[i - 4], at = util_join(dir, "best.symlink")));
        ckpt_folder *f = look_into(dir);
        ok(ckpt_folder_entry(f, ckpt_folder_find(f, at), &c));
        assert_string_equal(c.name, names[i % 4]);
        ok(ckpt_folder_entry(f, ckpt_folder_find(f, i < 4 ? "best" : "best.symlink"), &c));
        assert_string_equal(c.name, names[i % 4]);
        ckpt_folder_close(f);
        assert_int_equal(unlink(at), 0);
    }
}

// A tool that has a folder: it lets go when the process that waits for it says so.
static int let_go[2];

static void hear_waiting(ckpt_log_level level, const char *msg, void *user) {
    (void)level;
    if (strstr(msg, "waiting") == NULL) return;
    ++*(int *)user;
    if (patience > 1 && write(let_go[1], "x", 1) != 1) abort();
}

static pid_t hold_folder(const char *dir) {
    int ready[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(let_go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = -1;
        const char *path = util_join(dir, ".ckpt-lock");
        (void)close(let_go[1]);
        if (ckpt__os_lock_as(&fd, path, true) != CKPT_OK || write(ready[1], "x", 1) != 1) _exit(1);
        while (read(let_go[0], &c, 1) < 0) { }
        ckpt__os_unlock(fd, path);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    (void)close(let_go[0]);
    return pid;
}

// A trainer starts, and a tool works, when the tool that is at work there is done.
static void test_tools_are_waited_for(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    int status, waited = 0;
    run *r = run_new(dir);
    run_open(r);
    for (int i = 1; i <= 3; i++) run_save(r, i);
    ok(ckpt_saver_close(r->s, 0));
    r->d.logger.fn = hear_waiting;
    r->d.logger.user = &waited;
    pid_t tool = hold_folder(dir);
    patience = 0.01;
    assert_int_equal(ckpt_saver_open(&r->s, &r->d), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "another process removes checkpoints in "));
    assert_int_equal(waited, 1);
    patience = 60.0;
    (void)close(let_go[1]);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    tool = hold_folder(dir);
    ok(ckpt_saver_open(&r->s, &r->d));
    assert_int_equal(waited, 2);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    (void)close(let_go[1]);
    ckpt_folder *f = look_into(dir);            // a saver is not
    assert_int_equal(ckpt_folder_remove(f, at_name(f, "ba1.pt")), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "a saver has "));
    ckpt_folder_close(f);
    run_end(r);
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = dir;
    d.logger.fn = hear_waiting;
    d.logger.user = &waited;
    ok(ckpt_folder_open(&f, &d));
    tool = hold_folder(dir);
    ok(ckpt_folder_remove(f, at_name(f, "ba1.pt")));
    assert_int_equal(waited, 3);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    (void)close(let_go[1]);
    ckpt_folder_close(f);
    assert_string_equal(names_in(dir), "ba2.pt ba3.pt latest.pt");
}

// Where ranks have tarballs of their own, gc has seen which saves are complete before it comes to a rank's lock: what the holder
// deletes meanwhile is not among it, so gc does not wait.
static void test_tool_among_ranks(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    int status;
    for (int rank = 0; rank < 2; rank++) make_saves(dir, rank, 1, 4, false, 2);
    pid_t tool = hold_folder(dir);
    assert_int_equal(tidy(dir, 1), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "another process removes checkpoints in "));
    (void)close(let_go[1]);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 1; i <= 4; i++) assert_true(util_exists(util_join(dir, util_fmt("ba%d-rank%d.tar", i, rank))));
    }
    ok(tidy(dir, 1));
}

//-- what permissions keep from being looked at ---------------------------------------

static bool is_shut(const char *path) {
    return strstr(path, "/shut") != NULL || strstr(path, "/lost+found") != NULL;
}

static void shut_open(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && is_shut(path)) fault_arm_here("open", EACCES);
}

static void shut_list(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "opendir") == 0 && is_shut(path)) fault_arm_here("opendir", EACCES);
}

// What cannot be read is not well for that: who looks after folders by a timer is not told otherwise.
static void test_shut(void **state) {
    (void)state;
    static const char *const names[] = { "shut", "shut.pt" };
    const char *dir = util_temp_dir();
    run_end(run_live(dir, CKPT_KEEP_ALL, 1));
    copy(dir, "ba1.pt", "shut.pt");
    util_write_text(util_join(dir, "shut.txt"), "a note");
    run_end(run_live(util_join(dir, "shut"), CKPT_KEEP_ALL, 1));
    assert_int_equal(mkdir(util_join(dir, "lost+found"), 0777), 0);
    fault_set_spy(shut_open);
    fault_watch = shut_list;
    ckpt_folder *f = look_into(dir);
    ckpt_checkpoint c;
    for (int i = 0; i < 2; i++) {
        int at = at_name(f, names[i]);
        assert_int_equal(ckpt_folder_verify(f, at), CKPT_AUTH);
        assert_non_null(strstr(ckpt_last_error(), names[i]));
        ok(ckpt_folder_entry(f, at, &c));
        assert_true(c.foreign && !c.damaged && !c.missing);
    }
    assert_int_equal(ckpt_folder_count(f), 3);
    ok(ckpt_folder_verify(f, at_name(f, "ba1.pt")));
    ckpt_folder_close(f);
    ok(tidy(dir, 1));
    fault_set_spy(NULL);
    fault_watch = NULL;
    (void)fault_disarm();
    f = look_into(dir);
    assert_int_equal(ckpt_folder_count(f), 3);
    for (int i = 0; i < 3; i++) ok(ckpt_folder_verify(f, i));
    ckpt_folder_close(f);
}

//-- killed while many go ------------------------------------------------------------

static void die_removing(const char *name, uint64_t size, void *user) {
    (void)name, (void)size, (void)user;
    _exit(7);
}

static void die_unlinking(const char *name, const char *path, int fd) {
    (void)fd;
    if (path != NULL && strcmp(name, "unlink") == 0 && strcmp(ckpt__os_path_base(path), "ba1.pt") == 0) _exit(7);
}

static void die_linking(const char *name, const char *path) {
    (void)path;
    if (strcmp(name, "symlink") == 0) _exit(7);
}

// How many are in the folder and not in its index.
static int unlisted_in(const char *dir, int last) {
    ckpt_allocator plain = { NULL, NULL };
    ckpt__index ix;
    int n = 0;
    ok(ckpt__index_init(&ix, &plain, dir));
    ok(ckpt__index_load(&ix));
    for (int i = 1; i <= last; i++) {
        const char *name = util_fmt("ba%d.pt", i);
        n += util_exists(util_join(dir, name)) && ckpt__index_find(&ix, name) < 0;
    }
    ckpt__index_free(&ix);
    return n;
}

// Who is killed while he deletes many leaves few that have no line: what has none may be a copy, and nothing that tidies deletes it.
static void test_killed_while_many_go(void **state) {
    (void)state;
    enum { LAST = 40 };
    for (int k = 0; k < 3; k++) {           // 0: gc; 1: a saver whose rule is lower than before; 2: before any went, behind its index
        const char *dir = util_temp_dir();
        int status = 0;
        run_end(run_live(dir, CKPT_KEEP_ALL, LAST));
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0 && k == 0) {
            ckpt_gc_desc d;
            memset(&d, 0, sizeof d);
            d.num_checkpoints_to_keep = 3;
            d.removed = die_removing;
            (void)!ckpt_folder_gc(look_into(dir), &d);
        } else if (child == 0) {
            run *r = run_new(dir);
            ckpt_timestamp t;
            r->d.num_checkpoints_to_keep = 3;
            r->d.snapshot = CKPT_SNAPSHOT_NONE;
            if (k == 1) fault_watch = die_unlinking;
            bool goes_on = ckpt_saver_open(&r->s, &r->d) == CKPT_OK && ckpt_saver_resume(r->s, &t) == CKPT_OK;
            if (k == 2) fault_set_spy(die_linking);
            if (goes_on) run_save(r, LAST + 1);
        }
        if (child == 0) _exit(1);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 7);
        assert_in_range(unlisted_in(dir, LAST), k < 2 ? 1 : 0, CKPT__INDEX_BATCH);
        ok(tidy(dir, 3));
        assert_in_range(unlisted_in(dir, LAST), 0, CKPT__INDEX_BATCH);
        for (int i = CKPT__INDEX_BATCH + 1; i <= LAST - 3; i++) assert_false(util_exists(util_join(dir, util_fmt("ba%d.pt", i))));
        check_file(util_join(dir, util_fmt("ba%d.pt", LAST)), LAST);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_while_many_go), cmocka_unit_test(test_shut),
        cmocka_unit_test(test_read_once), cmocka_unit_test(test_damaged_while_tidying), cmocka_unit_test(test_runs_below), cmocka_unit_test(test_runs_below_are_asked),
        cmocka_unit_test(test_ranks_below_are_asked),
        cmocka_unit_test(test_tool_among_ranks),
        cmocka_unit_test(test_tools_are_waited_for),
        cmocka_unit_test(test_gone_elsewhere),
        cmocka_unit_test(test_view_is_older),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_own_and_below),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_dry_run_reads), cmocka_unit_test(test_dry_run_beside_a_saver),
        cmocka_unit_test(test_index_unread), cmocka_unit_test(test_own_index_shut),
        cmocka_unit_test(test_index_unread_by_saver), cmocka_unit_test(test_listing_unseen), cmocka_unit_test(test_pinned_best_unlisted),
        cmocka_unit_test(test_pinned_only_unlisted), cmocka_unit_test(test_link_to_what_goes),
        cmocka_unit_test(test_target_unseen),
        cmocka_unit_test(test_never_seen),
        cmocka_unit_test(test_best_unknown), cmocka_unit_test(test_best_lost),
        cmocka_unit_test(test_every_unknown), cmocka_unit_test(test_no_runs_folder),
        cmocka_unit_test(test_pin_while_opening),
        cmocka_unit_test(test_pin_is_of_one),
        cmocka_unit_test(test_remove_is_of_one),
        cmocka_unit_test(test_found_by_tools), cmocka_unit_test(test_noted_while_saving), cmocka_unit_test(test_verdict_taken_back),
        cmocka_unit_test(test_verdict_looked_at_again), cmocka_unit_test(test_listing_unread),
        cmocka_unit_test(test_verdict_of_resume), cmocka_unit_test(test_copy_of_another_run), cmocka_unit_test(test_verdict_is_of_one_save), cmocka_unit_test(test_written_again),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_folder_is_not_utf8),
        cmocka_unit_test(test_latest_is_not_utf8),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_killed_among_ranks), cmocka_unit_test(test_damaged_among_ranks), cmocka_unit_test(test_damaged_behind_pins),
        cmocka_unit_test(test_damaged_behind_a_kill), cmocka_unit_test(test_refused_among_ranks), cmocka_unit_test(test_fewer_ranks), cmocka_unit_test(test_machine_without_rank_0),
        cmocka_unit_test(test_text_for_a_link),
        cmocka_unit_test(test_objects_of_a_store),
        cmocka_unit_test(test_moved_elsewhere),
        cmocka_unit_test(test_note_is_no_link), cmocka_unit_test(test_object_leads), cmocka_unit_test(test_names_of_one_file),
        cmocka_unit_test(test_link_to_one_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
