/* test_resume.c: resuming takes the newest checkpoint that verifies, whatever lies beside it, and goes on from there bit for bit. */

#include "fault/faults.h"
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "saver_util.h"

// Saves 10, 20 ... `last` in a fresh folder.
static const char *folder_with(int last, int keep) {
    const char *dir = util_temp_dir();
    run *r = run_new(dir);
    r->d.num_checkpoints_to_keep = keep;
    run_open(r);
    for (int i = 10; i <= last; i += 10) run_save(r, i);
    run_end(r);
    return dir;
}

static uint64_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

// Opens a new process's saver and resumes; the caller ends it.
static run *resumed(const char *dir, int64_t step) {
    run *r = run_new(dir);
    run_open(r);
    ckpt_timestamp t;
    memset(&t, 0x55, sizeof t);
    ok(ckpt_saver_resume(r->s, &t));
    run_check(r, step);
    assert_int_equal(t.batch, step);
    return r;
}

static void test_fresh_start(void **state) {
    (void)state;
    run *r = run_new(util_temp_dir());
    run_open(r);
    ckpt_timestamp t = at_batch(77);
    run_set(r, 5);
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_NOT_FOUND);
    assert_int_equal(t.batch, 77);
    run_check(r, 5);
    util_write_text(util_join(r->dir, "notes.txt"), "not a checkpoint");
    util_write_text(util_join(r->dir, "other-ba3.pt"), "matches nothing");
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_NOT_FOUND);
    run_end(r);
}

static void damage_cut(const char *path) { assert_int_equal(truncate(path, (off_t)(size_of(path) / 2)), 0); }
static void damage_cut_one(const char *path) { assert_int_equal(truncate(path, (off_t)(size_of(path) - 1)), 0); }
static void damage_empty(const char *path) { assert_int_equal(truncate(path, 0), 0); }
static void damage_flip(const char *path) { util_flip(path, size_of(path) / 2, 1); }
static void damage_flip_head(const char *path) { util_flip(path, 40, 4); }
static void damage_flip_tail(const char *path) { util_flip(path, size_of(path) - 3, 128); }
static void damage_foreign(const char *path) { util_write_text(path, "PK\3\4 is how it begins, but it is a text\n"); }
static void damage_longer(const char *path) { (void)!truncate(path, (off_t)(size_of(path) + 100)); }
static void damage_folder(const char *path) { assert_int_equal(unlink(path), 0); util_mkdir(path); }
static void damage_gone(const char *path) { assert_int_equal(unlink(path), 0); }
static void damage_loop(const char *path) { assert_int_equal(unlink(path), 0); assert_int_equal(symlink("latest.pt", path), 0); }

static void (*const damages[])(const char *path) = {
    damage_cut, damage_cut_one, damage_empty, damage_flip, damage_flip_head, damage_flip_tail, damage_foreign, damage_longer,
    damage_folder, damage_gone, damage_loop,
};

// A name that each process makes up leads no process to what another has saved: that is said. Where the folder's name is without
// it, or it was given, there is nothing to be said.
static void test_made_up_name(void **state) {
    (void)state;
    static const char *const names[] = { NULL, "r", NULL };
    for (int k = 0; k < 3; k++) {
        const char *dir = util_temp_dir();
        for (int turn = 0; turn < 2; turn++) {
            run *r = run_new(dir);
            r->d.folder = k == 2 ? util_fmt("%s/c", dir) : util_fmt("%s/{run_name}/c", dir);
            r->d.run_name = names[k];
            run_open(r);
            bool finds = turn == 1 && k > 0;
            assert_int_equal(ckpt_saver_resume(r->s, NULL), finds ? CKPT_OK : CKPT_NOT_FOUND);
            assert_int_equal(strstr(r->log, "set run_name") != NULL, k == 0);
            run_save(r, 1);
            run_end(r);
        }
    }
}

// Past one damaged checkpoint, and past two of different kinds. The damaged ones stay, are told of, and are neither counted nor in
// the way when the run comes to the same names again.
static void test_walks_back(void **state) {
    (void)state;
    for (int i = 0; i < UTIL_COUNT(damages); i++) {
        for (int two = 0; two < 2; two++) {
            for (int lost = 0; lost < 2; lost++) {
                const char *dir = folder_with(50, 0);
                damages[i](util_join(dir, "ba50.pt"));
                if (two) damages[(i + 1) % UTIL_COUNT(damages)](util_join(dir, "ba40.pt"));
                if (lost) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
                int64_t good = two ? 30 : 40;
                run *r = resumed(dir, good);
                if (damages[i] != damage_gone && damages[i] != damage_loop && damages[i] != damage_folder) {
                    assert_true(util_exists(util_join(dir, "ba50.pt")));
                    assert_non_null(strstr(r->log, "ba50.pt is passed over"));
                }
                assert_string_equal(util_link_target(util_join(dir, "latest.pt")), util_fmt("ba%d.pt", (int)good));
                r->s->rule.keep = 2;
                // What is no file of ours at all is not replaced unasked: a folder never, a broken link when no index knows it.
                void (*other)(const char *path) = two ? damages[(i + 1) % UTIL_COUNT(damages)] : damages[i];
                bool in_the_way = damages[i] == damage_folder || other == damage_folder ||
                                  (lost && (damages[i] == damage_loop || other == damage_loop));
                if (!in_the_way) {
                    for (int64_t b = good + 10; b <= 50; b += 10) run_save(r, b);
                    run_save(r, 60);
                    assert_string_equal(names_in(dir), "ba50.pt ba60.pt latest.pt");
                    check_file(util_join(dir, "ba50.pt"), 50);
                } else {
                    run_save(r, 60);
                    check_file(util_join(dir, "latest.pt"), 60);
                    assert_true(util_exists(util_join(dir, util_fmt("ba%d.pt", (int)good))));    // the newest two, what is damaged not counted
                }
                run_end(r);
                util_remove_tree(dir);
            }
        }
    }
}

static void test_none_verifies(void **state) {
    (void)state;
    const char *dir = folder_with(30, 0);
    for (int i = 10; i <= 30; i += 10) damage_flip(util_join(dir, util_fmt("ba%d.pt", i)));
    run *r = run_new(dir);
    run_open(r);
    ckpt_timestamp t = at_batch(5);
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_CORRUPT);
    for (int i = 10; i <= 30; i += 10) assert_non_null(strstr(ckpt_last_error(), util_fmt("ba%d.pt", i)));
    assert_int_equal(t.batch, 5);
    assert_int_equal(ckpt_saver_batch_end(r->s, &t), CKPT_EXISTS);      // a fresh start must be asked for: another folder, or overwrite
    assert_string_equal(names_in(dir), "ba10.pt ba20.pt ba30.pt latest.pt");
    assert_int_equal(ckpt_saver_close(r->s, 0), CKPT_EXISTS);
    ckpt_state_free(&r->st);
}

// A file that is whole but does not fit the binding is the user's business: nothing older is loaded in its place.
static void test_mismatch_is_told(void **state) {
    (void)state;
    const char *dir = folder_with(30, 0);
    run *r = run_new(dir);
    int64_t more = 7;
    ckpt_bind_int(&r->st, "state/more", &more);
    run_open(r);
    ckpt_timestamp t;
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_MISMATCH);
    assert_non_null(strstr(ckpt_last_error(), "state/more"));
    run_check(r, 0);
    assert_int_equal(more, 7);
    (void)!ckpt_saver_close(r->s, 0);
    ckpt_state_free(&r->st);
}

static void test_lost_and_damaged_index(void **state) {
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        const char *dir = folder_with(70, 0), *path = util_join(dir, ".ckpt-index.jsonl");
        ckpt__index ix;
        ckpt_allocator a = { NULL, NULL };
        ok(ckpt__index_init(&ix, &a, dir));
        ok(ckpt__index_load(&ix));
        ix.lines[ckpt__index_find(&ix, "ba20.pt")].pinned = true;
        ok(ckpt__index_write(&ix));
        ckpt__index_free(&ix);
        switch (kind) {
            case 0: assert_int_equal(unlink(path), 0); break;
            case 1: util_flip(path, size_of(path) / 2, 1); break;
            case 2: assert_int_equal(truncate(path, (off_t)(size_of(path) / 3 * 2)), 0); break;
            case 3: util_write_text(path, "{}\n\n[1,2\n"); break;
            case 4: damage_folder(path); break;
            default: break;
        }
        run *r = resumed(dir, 70);
        assert_int_equal(ckpt_saver_checkpoints(r->s, NULL), 7);
        for (size_t i = 0; i < 7; i++) {
            assert_int_equal(r->s->index.lines[i].t.batch, (int)(i + 1) * 10);
            assert_int_equal(r->s->index.lines[i].number, i + 1);
        }
        if (kind == 4) assert_int_equal(rmdir(path), 0);
        r->s->rule.keep = 2;
        run_save(r, 80);
        bool pin_kept = kind == 1 || kind == 2;         // what can be read of a damaged index still counts
        assert_string_equal(names_in(dir), pin_kept ? "ba20.pt ba70.pt ba80.pt latest.pt" : "ba70.pt ba80.pt latest.pt");
        run_end(r);
        util_remove_tree(dir);
    }
}

static bool is_pinned(const char *dir, const char *name) {
    ckpt__index ix;
    ckpt_allocator a = { NULL, NULL };
    ok(ckpt__index_init(&ix, &a, dir));
    ok(ckpt__index_load(&ix));
    int at = ckpt__index_find(&ix, name);
    bool pinned = at >= 0 && ix.lines[at].pinned;
    ckpt__index_free(&ix);
    return pinned;
}

static void index_away(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && ckpt__txt_ends(path, CKPT__INDEX_FILE)) fault_arm_here("open", ETIMEDOUT);
}

// An index that may not be read, or cannot be reached now, is not taken for lost: it has the pins. [1] of a server that is away for a
// moment alone it is read again; [2] for longer
static void test_index_out_of_reach(void **state) {
    (void)state;
    static const int why[] = { EACCES, ESTALE, ETIMEDOUT }, wanted[] = { 1, 0, 1 };
    const char *dir = folder_with(30, 0);
    pin(dir, "ba20.pt", true);
    for (int i = 0; i < UTIL_COUNT(why); i++) {
        bool hit = true;
        int refused = 0;
        for (int n = 1; hit; n++) {
            run *r = run_new(dir);
            if (i == 2) fault_set_spy(index_away);
            else fault_arm_call("open", why[i], n);
            ckpt_err e = ckpt_saver_open(&r->s, &r->d);
            if (e == CKPT_OK) {
                ckpt_timestamp t = at_batch(40);
                run_set(r, 40);
                (void)!ckpt_saver_save(r->s, &t);
                (void)!ckpt_saver_close(r->s, 0);
            } else if (strstr(ckpt_last_error(), "cannot tell which checkpoints") != NULL) {
                assert_int_equal(e, i == 0 ? CKPT_AUTH : CKPT_NET);
                refused++;
            }
            fault_set_spy(NULL);
            hit = fault_disarm() && i != 2;
            ckpt_state_free(&r->st);
            assert_true(is_pinned(dir, "ba20.pt"));
        }
        assert_int_equal(refused, wanted[i]);
    }
}

static const char *silent_dir;

static void silent_once(const char *name, const char *path) {
    if (strcmp(name, "lstat") == 0 && strcmp(path, silent_dir) == 0) fault_arm_here("lstat", ETIMEDOUT);
}

// A folder that does not answer for a moment is not one that is missing: what came to it since the saver was opened is found.
static void test_folder_does_not_answer(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *from = folder_with(10, 0);
    size_t size;
    run *r = run_new(dir);
    run_open(r);
    char *bytes = util_read(util_join(from, "ba10.pt"), &size);
    util_write(util_join(dir, "ba10.pt"), bytes, size);
    silent_dir = dir;
    fault_set_spy(silent_once);
    ckpt_timestamp t;
    ckpt_err e = ckpt_saver_resume(r->s, &t);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    ok(e);
    run_check(r, 10);
    run_end(r);
}

static struct { const char *path; int times, errnum; } hidden;

static void hide(const char *name, const char *path) {
    bool looks = strcmp(name, "lstat") == 0 || strcmp(name, "stat") == 0;
    if (hidden.times == 0 || !looks || strcmp(path, hidden.path) != 0) return;
    hidden.times--;
    fault_arm_here(name, hidden.errnum);
}

// Resumes while the first looks at a path fail.
static ckpt_err resume_hidden(run *r, const char *path, int times, int errnum) {
    ckpt_timestamp t;
    hidden.path = path;
    hidden.times = times;
    hidden.errnum = errnum;
    fault_set_spy(hide);
    ckpt_err e = ckpt_saver_resume(r->s, &t);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    return e;
}

// Nor is a checkpoint of it that the index does not know, or a link to one: it is loaded, or it is said why not.
static void test_file_does_not_answer(void **state) {
    (void)state;
    static const struct { int times, errnum; ckpt_err e; int64_t step; } rows[] = {
        { 1, ETIMEDOUT, CKPT_OK, 30 }, { 2, EIO, CKPT_OK, 30 }, { 1000, ESTALE, CKPT_NET, 0 }, { 1000, EIO, CKPT_OK, 20 }
    };
    for (int i = 0; i < 2 * UTIL_COUNT(rows); i++) {
        const char *dir = folder_with(30, 0), *path = util_join(dir, "ba30.pt");
        uint64_t size = size_of(path);
        run *r = run_new(dir);
        if (i % 2 != 0) {
            const char *elsewhere = util_join(util_temp_dir(), "moved.pt");
            assert_int_equal(rename(path, elsewhere), 0);
            assert_int_equal(symlink(elsewhere, path), 0);
        }
        run_open(r);
        assert_int_equal(unlink(util_join(dir, CKPT__INDEX_FILE)), 0);
        ckpt_err e = resume_hidden(r, path, rows[i / 2].times, rows[i / 2].errnum);
        if (e != rows[i / 2].e) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        if (e == CKPT_OK) run_check(r, rows[i / 2].step);
        else assert_non_null(strstr(ckpt_last_error(), "ba30.pt"));
        assert_int_equal(strstr(r->log, "ba30.pt is passed over") != NULL, e == CKPT_OK && rows[i / 2].step != 30);
        run_end(r);
        if (rows[i / 2].step == 20) continue;
        run_end(resumed(dir, 30));
        ckpt_folder *f = look_into(dir);
        ckpt_checkpoint c;
        ok(ckpt_folder_entry(f, at_name(f, "ba30.pt"), &c));
        assert_int_equal(c.recorded_size, size);
        ckpt_folder_close(f);
    }
}

// Nor are those in a folder below of which nobody can say whether it is one.
static void test_folder_below_does_not_answer(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run *r = run_new(dir);
    r->d.filename = "ep{epoch}/ba{batch}.pt";
    run_open(r);
    run_save(r, 10);
    assert_int_equal(resume_hidden(r, util_join(dir, "ep0"), 1, ETIMEDOUT), CKPT_NET);
    assert_non_null(strstr(ckpt_last_error(), "/ep0"));
    ckpt_timestamp t;
    ok(ckpt_saver_resume(r->s, &t));
    run_check(r, 10);
    run_end(r);
}

// What no checkpoint can be below is in nobody's way, for however long it cannot be looked at: neither when a run goes on, nor when the
// index has to be made again.
static void test_stranger_does_not_answer(void **state) {
    (void)state;
    static const struct { const char *filename, *name; int errnum; } rows[] = {
        { "ep{epoch}/ba{batch}.pt", "s3mount", ENOTCONN }, { "ep{epoch}/ba{batch}.pt", "ep0/lost", EIO }, { "ep{epoch}/ba{batch}.pt", "ep.log", EIO },
        { NULL, ".snapshots", EIO }, { NULL, "ba10-copy", ENOTCONN }, { "ba{batch}.pt", "s3mount", ENOTCONN },
    };
    for (int i = 0; i < 2 * UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir(), *path = util_join(dir, rows[i / 2].name);
        for (int life = 0; life < 2; life++) {
            run *r = run_new(dir);
            r->d.filename = rows[i / 2].filename;
            r->d.sharded = rows[i / 2].filename == NULL;
            r->d.sharded_prefix_dir = "ba{batch}";
            hidden.path = path;
            hidden.times = 1000;
            hidden.errnum = rows[i / 2].errnum;
            if (life == 1) fault_set_spy(hide);
            run_open(r);
            if (life == 0) run_save(r, 10);
            else if (resume_hidden(r, path, 1000, rows[i / 2].errnum) != CKPT_OK) fail_msg("%d: %s", i, ckpt_last_error());
            run_check(r, 10);
            run_end(r);
            if (life == 0) util_mkdir(path);
            if (life == 0 && i % 2 != 0) assert_int_equal(unlink(util_join(dir, CKPT__INDEX_FILE)), 0);
        }
    }
}

// But what a name of the template may begin with is, also where the run's name has levels of its own.
static void test_levels_of_run_name(void **state) {
    (void)state;
    static const char *const levels[] = { "a", "a/b" };
    for (int i = 0; i < 2; i++) {
        const char *dir = util_temp_dir();
        run *r = run_new(dir);
        r->d.run_name = "a/b";
        r->d.filename = "{run_name}/ba{batch}.pt";
        run_open(r);
        run_save(r, 10);
        assert_int_equal(resume_hidden(r, util_join(dir, levels[i]), 1, ETIMEDOUT), CKPT_NET);
        run_end(r);
    }
}

static void hide_names(const char *name, const char *path, int fd) {
    (void)fd;
    if (strcmp(name, "opendir") == 0 && strcmp(path, hidden.path) == 0) fault_arm_here("opendir", EIO);
}

// What can be looked at, but not listed, is judged as what cannot be looked at: a stranger is in nobody's way, a folder of checkpoints is.
static void test_stranger_is_not_listed(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *dir = util_temp_dir(), *name = i == 0 ? "s3mount" : "ep0";
        run *r = run_new(dir);
        r->d.filename = "ep{epoch}/ba{batch}.pt";
        run_open(r);
        run_save(r, 10);
        ckpt_timestamp t;
        hidden.path = util_join(dir, name);
        if (i == 0) util_mkdir(hidden.path);
        FAULT_SET(fault_watch, hide_names);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        FAULT_SET(fault_watch, NULL);
        assert_true(fault_disarm());
        if (e != (i == 0 ? CKPT_OK : CKPT_IO)) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        if (e != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), "/ep0"));
        run_end(r);
    }
}

static void hide_target(const char *name, const char *path) {
    if (strcmp(name, "stat") == 0 && strcmp(path, hidden.path) == 0) fault_arm_here("stat", EACCES);
}

// A link to where this user may not look leads to nothing to go on from, which is said.
static void test_link_to_what_is_barred(void **state) {
    (void)state;
    const char *dir = folder_with(30, 0);
    hidden.path = util_join(dir, "ba40.pt");
    assert_int_equal(symlink("/elsewhere/ba40.pt", hidden.path), 0);
    run *r = run_new(dir);
    run_open(r);
    ckpt_timestamp t;
    fault_set_spy(hide_target);
    ckpt_err e = ckpt_saver_resume(r->s, &t);
    fault_set_spy(NULL);
    assert_true(fault_disarm());
    ok(e);
    run_check(r, 30);
    assert_non_null(strstr(r->log, "ba40.pt is passed over: cannot look at"));
    run_end(r);
}

static int listings_read;

static void listing_read(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/.metadata") != NULL) (void)__atomic_fetch_add(&listings_read, 1, __ATOMIC_SEQ_CST);
}

// Saves six times, or else resumes: how many listings that reads.
static int save_or_resume(run *r, bool resumes) {
    ckpt_timestamp t;
    run_open(r);
    listings_read = 0;
    fault_set_spy(listing_read);
    if (resumes) ok(ckpt_saver_resume(r->s, &t));
    fault_set_spy(NULL);
    for (int i = 10; i <= 60 && !resumes; i += 10) run_save(r, i);
    return listings_read;
}

// What keep_best goes by is in no checkpoint of many files that the run has: each is asked for it once, and not at every resume.
static void test_no_metric_is_noted(void **state) {
    (void)state;
    static const char *const ignored[] = { "state/metrics/accuracy" };
    const char *dir = util_temp_dir();
    int reads[3];
    for (int life = 0; life < 3; life++) {
        double accuracy = 0.5;
        run *r = run_new(dir);
        r->d.sharded = true;
        r->d.sharded_prefix_dir = "ba{batch}";
        r->d.ignore_keys = ignored;
        r->d.ignore_keys_count = 1;
        if (life > 0) ckpt_bind_float(&r->st, "state/metrics/accuracy", &accuracy);
        if (life > 0) r->d.keep_best = "max:state/metrics/accuracy";
        reads[life] = save_or_resume(r, life > 0);
        run_end(r);
    }
    assert_true(reads[1] >= 6);
    assert_true(reads[2] < 6);
}

// Those that were found by their names alone, as the index was lost, are read for what they say of themselves once, too.
static void test_found_is_noted(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    int reads[3];
    for (int life = 0; life < 3; life++) {
        run *r = run_new(dir);
        r->d.sharded = true;
        r->d.sharded_prefix_dir = "ba{batch}";
        reads[life] = save_or_resume(r, life > 0);
        if (life > 0) assert_int_equal(r->s->index.lines[5].number, 6);
        run_end(r);
        if (life == 0) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
    }
    assert_true(reads[1] >= 6);
    assert_true(reads[2] < 6);
}

static ckpt_err count_one(const char *name, const ckpt__os_info *info, void *user) {
    (void)name; (void)info;
    ++*(int *)user;
    return CKPT_OK;
}

// A folder below that may not be looked into, as lost+found, is not in the way.
static void test_folder_of_others_below(void **state) {
    (void)state;
    const char *dir = folder_with(30, 0);
    ckpt_allocator a = { NULL, NULL };
    int seen = 0, more = 0;
    assert_int_equal(mkdir(util_join(dir, "lost+found"), 0700), 0);
    ok(ckpt__index_walk_all(&a, dir, 5, 0, count_one, &seen));
    fault_arm_call("opendir", EACCES, 2);
    ok(ckpt__index_walk_all(&a, dir, 5, 0, count_one, &more));
    assert_true(fault_disarm());
    assert_true(seen >= 4 && more == seen);
    fault_arm_call("opendir", EACCES, 1);
    assert_int_equal(ckpt__index_walk_all(&a, dir, 5, 0, count_one, &more), CKPT_AUTH);
    assert_true(fault_disarm());
}

static void test_latest_link_is_a_hint_only(void **state) {
    (void)state;
    const char *dir = folder_with(30, 0), *latest = util_join(dir, "latest.pt");
    assert_int_equal(unlink(latest), 0);
    run_end(resumed(dir, 30));
    assert_string_equal(util_link_target(latest), "ba30.pt");
    assert_int_equal(unlink(latest), 0);
    assert_int_equal(symlink("ba999.pt", latest), 0);               // dangling
    run_end(resumed(dir, 30));
    assert_string_equal(util_link_target(latest), "ba30.pt");
    assert_int_equal(unlink(latest), 0);
    assert_int_equal(symlink("latest.pt", latest), 0);              // to itself
    run_end(resumed(dir, 30));
    assert_int_equal(unlink(latest), 0);
    assert_int_equal(symlink("ba10.pt", latest), 0);                // a kill before the link moved
    run_end(resumed(dir, 30));
    assert_string_equal(util_link_target(latest), "ba30.pt");
    assert_int_equal(unlink(latest), 0);
    util_write_text(latest, "ba10.pt\n");                           // the form for file systems without links
    run_end(resumed(dir, 30));
    assert_string_equal(util_link_target(latest), "ba30.pt");
}

// The template changed between two runs: the index and the link still know the old names.
static void test_template_changed(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        const char *dir = folder_with(30, 0);
        if (lost) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        run *r = run_new(dir);
        r->d.filename = "new-{batch}.pt";
        run_open(r);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(r->s, &t));
        run_check(r, 30);
        assert_int_equal(ckpt_saver_checkpoints(r->s, NULL), lost ? 1 : 3);
        run_save(r, 40);
        run_end(r);
        assert_string_equal(names_in(dir), "ba10.pt ba20.pt ba30.pt latest.pt new-40.pt");
    }
}

// A run under constant names, of which the next process may call its link by the one that the checkpoint had.
static const char *folder_named(const char *filename, const char *latest, bool pinned) {
    const char *dir = util_temp_dir();
    run *r = run_new(dir);
    r->d.filename = filename;
    r->d.latest_filename = latest;
    run_open(r);
    for (int i = 1; i <= 3; i++) run_save(r, i);
    run_end(r);
    if (pinned) pin(dir, filename, true);
    return dir;
}

// Opens the next process and resumes from batch 3.
static run *renamed(const char *dir, const char *filename, const char *latest, int keep) {
    run *r = run_new(dir);
    r->d.filename = filename;
    r->d.latest_filename = latest;
    r->d.num_checkpoints_to_keep = keep;
    run_open(r);
    ok(ckpt_saver_resume(r->s, NULL));
    run_check(r, 3);
    return r;
}

// The link gets the name that checkpoints had: that of what is there goes to its new name with it, the pin too, and rotation leaves the
// link alone. Lines of it that an earlier version has left are no checkpoints. The third process goes on from what the second has.
static void test_link_has_a_checkpoints_name(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        bool pinned = k % 2 == 0;
        const char *dir = folder_named("last.pt", CKPT_NONE, pinned), *index = util_join(dir, ".ckpt-index.jsonl");
        const char *old = util_read(index, NULL);
        run *r = renamed(dir, "ba{batch}.pt", "last.pt", 2);
        assert_null(strstr(r->log, "is passed over"));
        const char *const *paths;
        assert_int_equal(ckpt_saver_checkpoints(r->s, &paths), 1);
        assert_string_equal(paths[0], util_join(dir, "ba3.pt"));
        if (k >= 2) {
            run_end(r);
            util_write_text(index, old);
            r = renamed(dir, "ba{batch}.pt", "last.pt", 2);
        }
        for (int i = 4; i <= 6; i++) {
            run_save(r, i);
            assert_string_equal(util_link_target(util_join(dir, "last.pt")), util_fmt("ba%d.pt", i));
        }
        run_end(r);
        assert_string_equal(names_in(dir), pinned && k < 2 ? "ba3.pt ba5.pt ba6.pt last.pt" : "ba5.pt ba6.pt last.pt");
        assert_null(strstr(util_read(index, NULL), "\"last.pt\""));
        assert_true(is_pinned(dir, "ba3.pt") == (pinned && k < 2));
    }
}

// Both names are exchanged; or the name that the checkpoint would get is taken by something else.
static void test_link_and_checkpoint_exchanged(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *dir = folder_named("ckpt.pt", k == 0 ? "latest.pt" : CKPT_NONE, true);
        if (k == 1) util_write_text(util_join(dir, "latest.pt"), "not a checkpoint\n");
        for (int turn = 0; turn < 2; turn++) {
            run_end(renamed(dir, "latest.pt", "ckpt.pt", CKPT_KEEP_ALL));
            assert_string_equal(names_in(dir), k == 0 ? "ckpt.pt latest.pt" : "ckpt.pt ckpt.pt.kept latest.pt");
            assert_string_equal(util_link_target(util_join(dir, "ckpt.pt")), k == 0 ? "latest.pt" : "ckpt.pt.kept");
        }
        assert_true(is_pinned(dir, k == 0 ? "latest.pt" : "ckpt.pt.kept"));
    }
}

// Somebody else's files that match the template: a torch-like .pt that is whole but does not fit is passed over.
static void test_foreign_file(void **state) {
    (void)state;
    const char *dir = folder_with(20, 0);
    // A stored zip with a pickle of {"a": 1}, as torch.save writes it, less what torch does not need.
    run *r = run_new(dir);
    ckpt_state other;
    memset(&other, 0, sizeof other);
    int64_t a = 1;
    ckpt_bind_int(&other, "a", &a);
    ok(ckpt_save(util_join(dir, "ba90.pt"), &other, NULL));
    ckpt_state_free(&other);
    run_open(r);
    ckpt_timestamp t;
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_MISMATCH);       // ours, and newest by its name: the user's business
    (void)!ckpt_saver_close(r->s, 0);
    ckpt_state_free(&r->st);
    assert_false(ckpt__resume_passes(CKPT_MISMATCH, true));
    assert_true(ckpt__resume_passes(CKPT_MISMATCH, false));
    assert_true(ckpt__resume_passes(CKPT_CORRUPT, true));
    assert_false(ckpt__resume_passes(CKPT_NOMEM, true));
    assert_false(ckpt__resume_passes(CKPT_UNSUPPORTED, true));
    assert_false(ckpt__resume_passes(CKPT_AUTH, true));
}

static void unread_20(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/ba20.pt") != NULL) fault_arm_here("pread", EIO);
}

// What could not be read just now, and what is whole and somebody else's, is passed over and no more: whoever cleans up what is damaged
// must not take it. It is neither counted nor let go by rotation.
static void test_passed_over_is_not_damaged(void **state) {
    (void)state;
    for (int foreign = 0; foreign < 2; foreign++) {
        const char *dir = folder_with(20, 0);
        size_t size;
        if (foreign) {
            char *bytes = util_read(util_tests_path("golden/torch-1.13.pt"), &size);
            util_write(util_join(dir, "ba30.pt"), bytes, size);
        }
        run *r = run_new(dir);
        ckpt_timestamp t;
        run_open(r);
        if (!foreign) fault_set_spy(unread_20);
        ok(ckpt_saver_resume(r->s, &t));
        fault_set_spy(NULL);
        assert_true(fault_disarm() || foreign);
        assert_int_equal(t.batch, foreign ? 20 : 10);
        assert_non_null(strstr(r->log, foreign ? "ba30.pt is passed over" : "ba20.pt is passed over"));
        assert_null(strstr(util_read(util_join(dir, ".ckpt-index.jsonl"), NULL), "damaged"));
        r->s->rule.keep = 2;
        for (int64_t b = t.batch + 3; b <= t.batch + 6; b += 3) run_save(r, b);
        assert_string_equal(names_in(dir), foreign ? "ba23.pt ba26.pt ba30.pt latest.pt" : "ba13.pt ba16.pt ba20.pt latest.pt");
        run_end(r);
    }
}

// A checkpoint that was moved to another disk, with a link left in its place, is one still; rotation takes the link alone.
static void test_moved_checkpoint(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        const char *dir = folder_with(30, 0), *away = util_join(util_temp_dir(), "moved.pt");
        assert_int_equal(rename(util_join(dir, "ba30.pt"), away), 0);
        assert_int_equal(symlink(away, util_join(dir, "ba30.pt")), 0);
        if (lost) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        run *r = resumed(dir, 30);
        r->s->rule.keep = 1;
        run_save(r, 40);
        assert_string_equal(names_in(dir), "ba40.pt latest.pt");
        check_file(away, 30);
        run_end(r);
    }
}

// Makes `to` in `dir` a copy of a file, which somebody pins.
static void pin_copy(const char *dir, const char *from, const char *to) {
    size_t size;
    char *bytes = util_read(from, &size);
    util_write(util_join(dir, to), bytes, size);
    pin(dir, to, true);
}

// A pinned copy of another run's checkpoint, which had made more saves: the run goes on from its own, at a later time or an earlier
// one than the copy's, pinned while it works or after; without its own, from the copy.
static void test_pinned_copy_of_another_run(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        const char *dir = folder_with(30, 0), *other = folder_with(60, 0);
        run *r = k == 1 ? resumed(dir, 30) : NULL;
        pin_copy(dir, util_join(other, "ba60.pt"), "best.pt");
        if (k == 2) pin_copy(dir, util_join(folder_with(20, 0), "ba20.pt"), "early.pt");
        if (r != NULL) run_save(r, 40);
        for (size_t i = 0; r != NULL && i < r->s->index.count; i++) assert_int_equal(r->s->index.lines[i].state, CKPT__INDEX_SAVED);
        if (r != NULL) run_end(r);
        r = resumed(dir, k == 1 ? 40 : 30);
        for (size_t i = 0; i < r->s->index.count; i++)
            assert_true(r->s->index.lines[i].stray || r->s->index.lines[i].state == CKPT__INDEX_SAVED);
        assert_string_equal(util_link_target(util_join(dir, "latest.pt")), k == 1 ? "ba40.pt" : "ba30.pt");
        run_end(r);
        for (int i = 10; i <= 40; i += 10) (void)unlink(util_join(dir, util_fmt("ba%d.pt", i)));
        run_end(resumed(dir, 60));
    }
}

// The copy has more saves behind it, and saves of this run stand behind it in the index. A process died before it could note the
// newest of them: that is the newest still, found at resume or pinned before it.
static void test_unlisted_beside_a_copy(void **state) {
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        const char *dir = folder_with(30, 0), *index = util_join(dir, ".ckpt-index.jsonl");
        run *r = resumed(dir, 30);
        pin_copy(dir, util_join(folder_with(100, 0), "ba100.pt"), "best.pt");
        for (int i = 40; i <= 50; i += 10) run_save(r, i);
        size_t size;
        char *before = util_read(index, &size);
        run_save(r, 60);
        run_end(r);
        util_write(index, before, size);
        if (pinned) pin(dir, "ba60.pt", true);
        r = resumed(dir, 60);
        const ckpt__index *ix = &r->s->index;
        assert_string_equal(ix->lines[ix->count - 1].name, "ba60.pt");
        for (size_t i = 0; i < ix->count; i++) assert_true(ix->lines[i].stray || ix->lines[i].state == CKPT__INDEX_SAVED);
        run_end(r);
    }
}

// A pinned copy of a checkpoint has its number: that leads to the one that was saved.
static void test_pinned_copy_of_own(void **state) {
    (void)state;
    const char *dir = folder_with(30, 0);
    pin_copy(dir, util_join(dir, "ba30.pt"), "keep.pt");
    run *r = resumed(dir, 30);
    assert_string_equal(util_link_target(util_join(dir, "latest.pt")), "ba30.pt");
    int at = ckpt__remote_find(&r->s->index, 3);
    assert_true(at > 0);
    assert_string_equal(r->s->index.lines[at].name, "ba30.pt");
    assert_string_equal(r->s->index.lines[at - 1].name, "keep.pt");
    assert_false(r->s->index.lines[at].pinned);
    run_end(r);
}

// Two checkpoints of one moment: the one saved later. Without an index their own record tells, and without that the clock.
static void test_ties(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        for (int weights = 0; weights < 2; weights++) {
            const char *dir = util_temp_dir();
            run *r = run_new(dir);
            r->d.filename = "ba{batch}-tok{token}.pt";
            r->d.weights_only = weights;
            run_open(r);
            for (int i = 0; i < 3; i++) {
                ckpt_timestamp t = at_batch(10);
                t.token_in_iteration = i;
                run_set(r, 10 + i);
                t.token = i == 2 ? 1 : i;       // 0, 1, 1: the last replaces the second
                ok(ckpt_saver_save(r->s, &t));
                ckpt__os_sleep(0.02);
            }
            ok(ckpt_saver_close(r->s, 0));
            if (lost) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
            run_set(r, 0);
            run_open(r);
            ckpt_timestamp t;
            ok(ckpt_saver_resume(r->s, &t));
            assert_true(r->w[0] == 12 * 7);
            assert_int_equal(t.batch, 10);
            assert_int_equal(t.token, 1);
            assert_int_equal(r->step, weights ? 0 : 12);
            run_end(r);
        }
    }
}

// The rest of the timestamp, the interval grid and the numbers go on where they were.
static void test_goes_on(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_timestamp t, saved;
    memset(&t, 0, sizeof t);
    run *r = run_new(dir);
    r->d.save_interval = "4ba";
    run_open(r);
    for (int i = 0; i < 9; i++) {
        ckpt_next_batch(&t, 3, 5, 0.25);
        if (i == 5) ckpt_next_epoch(&t, 0.5);
        run_set(r, t.batch);
        ok(ckpt_saver_batch_end(r->s, &t));
        if (t.batch == 8) saved = t;
    }
    run_end(r);
    r = run_new(dir);
    r->d.save_interval = "4ba";
    run_open(r);
    memset(&t, 0, sizeof t);
    ok(ckpt_saver_resume(r->s, &t));
    assert_memory_equal(&t, &saved, sizeof t);
    run_check(r, 8);
    for (int i = 0; i < 5; i++) {
        ckpt_next_batch(&t, 3, 5, 0.25);
        run_set(r, t.batch);
        ok(ckpt_saver_batch_end(r->s, &t));
    }
    assert_string_equal(names_in(dir), "ba12.pt ba4.pt ba8.pt latest.pt");
    assert_int_equal(r->s->index.lines[2].number, 3);
    run_end(r);
}

// Rank 1 of two loads what rank 0 wrote, from the same names.
static void test_other_ranks_resume(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    for (int rank = 0; rank < 2; rank++) {
        run *r = run_new(util_fmt("%s/{rank}", dir));
        r->d.filename = "ba{batch}-rank{rank}.pt";
        r->d.ranks.world_size = 2;
        r->d.ranks.rank = rank;
        run_open(r);
        if (rank == 0) run_save(r, 10);
        run_set(r, 0);
        ckpt_timestamp t;
        ok(ckpt_saver_resume(r->s, &t));
        run_check(r, 10);
        run_end(r);
    }
    assert_string_equal(util_list(dir), "0\n");
}

// The newest of run 1 is loaded although a load_path was used on the first start, and the ignore keys of that load play no part.
static void check_autoresume(const ckpt__json_doc *d, const ckpt__json *setup) {
    const char *dir = util_temp_dir(), *base = util_join(dir, "base.pt");
    ckpt_timestamp t;
    for (int start = 0; start < 2; start++) {
        run *r = run_new(util_join(dir, field_text(d, setup, "save_folder")));
        r->d.run_name = field_text(d, setup, "run_name");
        r->d.filename = field_text(d, setup, "save_filename");
        r->d.latest_filename = field_text(d, setup, "latest_filename");
        r->d.overwrite = field_int(d, setup, "save_overwrite") != 0;
        if (start == 0) {
            run_set(r, 99);
            ok(ckpt_save(base, &r->st, NULL));
        }
        run_set(r, 1);
        static const char *const all[] = { "*" };
        ckpt_load_desc l;
        memset(&l, 0, sizeof l);
        l.load_path = base;
        l.state = &r->st;
        l.load_ignore_keys = all;
        l.load_ignore_keys_count = start;
        ok(ckpt_load(&l, NULL));
        run_open(r);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        assert_int_equal(e, start == 0 ? CKPT_NOT_FOUND : CKPT_OK);
        run_check(r, start == 0 ? 99 : 2);
        for (int epoch = 1; epoch <= 2 && start == 0; epoch++) {
            t = at_batch(5 * epoch);
            t.epoch = epoch;
            run_set(r, epoch);
            ok(ckpt_saver_save(r->s, &t));
        }
        if (start == 1) assert_int_equal(t.epoch, 2);
        run_end(r);
    }
}

// autoresume.json's rows about other things than what is saved where.
static const cases_row autoresume_elsewhere[] = {
    { "no run_name", "test_resume.c test_made_up_name" },
    { "no save_folder", "there is a default" },
    { "no latest filename", "test_resume.c test_latest_link_is_a_hint_only" },              // nothing is resumed by the link alone
    { "save_overwrite=True (v0.22 only)", "test_resume.c test_autoresume_cases" },          // the rows that have it
    { "folder and latest name come from the first CheckpointSaver callback", "test_resume.c test_autoresume_cases" },      // each saver resumes its own
    { "two uploaders, one with 2 concurrent uploads", "test_uploader.c test_links_many_workers" },     // which never goes back
    { "uploader with a path format and save_latest_filename set", "test_saver_remote.c test_file_path_format" },           // which resumes
    { "defaults", "test_resume.c test_autoresume_cases" },
    { "sharded, autoresume, local and remote", "test_saver_remote.c test_sharded_back_on_the_first_machine" },
    { "elastic: saved on 2, 4 or 7 ranks, resumed on 2", "test_crew.c test_reshape" },
};

// Those about the local disk, with lz4 or without.
static void autoresume_cases(bool lz4, int want) {
    ckpt__json_doc d = cases_json("autoresume.json");
    int rows = 0, elsewhere = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row)) {
        const ckpt__json *setup = ckpt__json_get(&d, row, "setup");
        const char *file = field_text(&d, setup, "save_filename");
        if (file == NULL) {
            cases_elsewhere(autoresume_elsewhere, UTIL_COUNT(autoresume_elsewhere), field_text(&d, row, "name"));
            elsewhere++;
        } else if (strstr(field_text(&d, setup, "save_folder"), "://") == NULL && (strstr(file, "lz4") != NULL) == lz4) {
            check_autoresume(&d, setup);
            rows++;
        }
    }
    assert_int_equal(rows, want);
    assert_int_equal(elsewhere, UTIL_COUNT(autoresume_elsewhere));
    ckpt__json_free(&d);
}

static void test_autoresume_cases(void **state) {
    (void)state;
    autoresume_cases(false, 8);
}

static void test_autoresume_cases_lz4(void **state) {
    (void)state;
    if (!ckpt__os_which("lz4")) util_skip("no lz4");
    autoresume_cases(true, 2);
}

// The model has got a tensor more, or lost one: the sentence says how the run goes on, and so it does.
static void test_bound_otherwise(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    float more[4] = { 1, 2, 3, 4 };
    ckpt_timestamp t;
    run *r = run_new(dir);
    run_open(r);
    run_save(r, 1);
    run_end(r);
    r = run_new(dir);
    ckpt_bind_f32(&r->st, "state/model/more", more, 4);
    run_open(r);
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_MISMATCH);
    const char *way = "; bind just what it has, resume, and bind the rest afterwards";
    assert_non_null(strstr(ckpt_last_error(), "1 bound name is missing in it (state/model/more)"));
    assert_non_null(strstr(ckpt_last_error(), way));
    assert_null(strstr(ckpt_last_error(), "not_strict"));
    run_end(r);
    r = run_new(dir);
    run_open(r);
    ok(ckpt_saver_resume(r->s, &t));
    run_check(r, 1);
    ckpt_bind_f32(&r->st, "state/model/more", more, 4);
    run_save(r, 2);
    run_end(r);
    r = run_new(dir);
    run_open(r);
    assert_int_equal(ckpt_saver_resume(r->s, &t), CKPT_MISMATCH);
    assert_non_null(strstr(ckpt_last_error(), "1 of its names is not bound (state/model/more)"));
    assert_non_null(strstr(ckpt_last_error(), way));
    ckpt_bind_f32(&r->st, "state/model/more", more, 4);
    more[3] = 0;
    ok(ckpt_saver_resume(r->s, &t));
    assert_true(more[3] == 4);
    run_end(r);
}

// Every failing system call while resuming: the right state or an error, never a wrong state.
static void test_faults_while_resuming(void **state) {
    (void)state;
    static const int faults[] = { EIO, EINTR, FAULT_SHORT, EMFILE };
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int n = 1;; n++) {
            const char *dir = folder_with(20, 0);
            run *r = run_new(dir);
            run_open(r);
            ckpt_timestamp t;
            fault_arm(faults[f], n);
            ckpt_err e = ckpt_saver_resume(r->s, &t);
            bool hit = fault_disarm();
            if (e == CKPT_OK) run_check(r, t.batch);
            if (e == CKPT_OK) assert_true(t.batch == 20 || (t.batch == 10 && faults[f] == EIO));
            if (faults[f] == EMFILE) assert_true(e == CKPT_OK || e == CKPT_NOMEM);
            else if (faults[f] != EIO) ok(e);
            run_end(r);
            run_end(resumed(dir, 20));          // nothing on the disk was harmed
            util_remove_tree(dir);
            if (!hit) break;
        }
    }
}

// A run whose checkpoints a tool compresses.
static run *packed_run(const char *dir) {
    run *r = run_new(dir);
    r->d.filename = "ba{batch}.pt.gz";
    run_open(r);
    return r;
}

// A folder with two checkpoints of such a run.
static const char *packed_folder(void) {
    const char *dir = util_temp_dir();
    run *r = packed_run(dir);
    run_save(r, 1);
    run_save(r, 2);
    run_end(r);
    return dir;
}

// What the process or the machine lacks just now says nothing of the file: that an older one is taken in its place, or none, must not
// come of too few descriptors, processes or pages.
static void test_short_of(void **state) {
    (void)state;
    static const struct { const char *call; int errnum; ckpt_err err; } rows[] = {
        { "open", EMFILE, CKPT_NOMEM }, { "open", ENFILE, CKPT_NOMEM }, { "open", ENOMEM, CKPT_NOMEM },
        { "posix_spawnp", EAGAIN, CKPT_NOMEM }, { "posix_spawnp", ENOMEM, CKPT_NOMEM }, { "pread", ETIMEDOUT, CKPT_NET },
        { "open", ENOTCONN, CKPT_NET }, { "open", ESTALE, CKPT_NET }, { "pread", ESTALE, CKPT_NET },
#if defined(EHOSTDOWN) && defined(ESHUTDOWN) && defined(EREMOTEIO)
        { "pread", EHOSTDOWN, CKPT_NET }, { "pread", ESHUTDOWN, CKPT_NET }, { "fstat", EREMOTEIO, CKPT_NET },
#endif
#if defined(ECOMM) && defined(ENONET) && defined(ENOLINK) && defined(EPROTO)
        { "open", ECOMM, CKPT_NET }, { "pread", ECOMM, CKPT_NET }, { "pread", ENONET, CKPT_NET }, { "fstat", ENOLINK, CKPT_NET },
        { "pread", EPROTO, CKPT_NET },
#endif
#if defined(ENOKEY) && defined(EKEYEXPIRED) && defined(EKEYREVOKED)
        { "open", EKEYEXPIRED, CKPT_AUTH }, { "pread", ENOKEY, CKPT_AUTH }, { "fstat", EKEYREVOKED, CKPT_AUTH },
#endif
    };
    const char *dir = packed_folder();
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bool hit = true;
        for (int n = 1; hit && n < 40; n++) {
            run *r = packed_run(dir);
            ckpt_timestamp t;
            fault_arm_call(rows[i].call, rows[i].errnum, n);
            ckpt_err e = ckpt_saver_resume(r->s, &t);
            hit = fault_disarm();
            if (e == CKPT_OK) run_check(r, 2);
            else if (e != rows[i].err) fail_msg("%s %d: %s: %s", rows[i].call, n, ckpt_err_name(e), ckpt_last_error());
            run_end(r);
        }
        assert_false(hit);
    }
}

// A disk that does not take the unpacked checkpoint says nothing of the checkpoint either: another is tried, and none is a reason to stop.
static void test_broken_scratch(void **state) {
    (void)state;
    const char *dir = packed_folder();
    for (int all = 0; all < 2; all++) {
        run *r = packed_run(dir);
        ckpt_timestamp t;
        fault_arm_call("pwrite", EIO, 1);
        fault_stays = all;
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        assert_true(fault_disarm());
        if (e != (all ? CKPT_NO_SPACE : CKPT_OK)) fail_msg("%d: %s: %s", all, ckpt_err_name(e), ckpt_last_error());
        if (all) assert_non_null(strstr(ckpt_last_error(), "the unpacked checkpoint in /"));
        else run_check(r, 2);
        run_end(r);
    }
}

// A gzip and a pigz in a folder in front of PATH, which is given back: the first one that is started does `first`, then all are gzip.
static char *gzip_that(const char *first) {
    static const char *const tools[] = { "gzip", "pigz" };
    const char *bin = util_temp_dir();
    char *kept = util_fmt("%s", getenv("PATH"));
    for (int i = 0; i < UTIL_COUNT(tools); i++) {
        const char *tool = util_join(bin, tools[i]);
        // Without a child of its own: after one dash lets all signals in.
        const char *once = util_fmt("if [ ! -e %s/once ]; then : >%s/once; %s; fi", bin, bin, first);
        util_write_text(tool, util_fmt("#!/bin/sh\n%s\nPATH='%s' exec gzip \"$@\"\n", once, kept));
        assert_int_equal(chmod(tool, 0755), 0);
    }
    setenv("PATH", util_fmt("%s:%s", bin, kept), 1);
    return kept;
}

// Nor does a decompressor that somebody kills, as the system does when memory is short, nor one that does not start.
static void test_killed_tool(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        { "kill -KILL $$", "killed by signal 9" }, { "kill -ALRM $$", "killed by signal 14" }, { "sh -c 'kill -KILL $$'; exit $?", "status 137" },
        { "exit 127", "could not be run" }, { "echo no interpreter >&2; exit 126", "no interpreter" }
    };
    const char *dir = packed_folder();
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        run *r = packed_run(dir);
        char *path = gzip_that(rows[i][0]);
        ckpt_timestamp t;
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        setenv("PATH", path, 1);
        if (e != CKPT_NOMEM) fail_msg("%s: %s: %s", rows[i][0], ckpt_err_name(e), ckpt_last_error());
        assert_non_null(strstr(ckpt_last_error(), rows[i][1]));
        ok(ckpt_saver_resume(r->s, &t));
        run_check(r, 2);
        run_end(r);
    }
}

// Nor does one that cannot read its input, which is no more damaged than before: the server of files is away.
static void test_tool_cannot_read(void **state) {
    (void)state;
    const char *dir = packed_folder();
    int told = 0;
    bool hit = true;
    for (int n = 1; hit && n < 40; n++) {
        run *r = packed_run(dir);
        char *path = gzip_that("echo cannot read >&2; exit 1");
        ckpt_timestamp t;
        fault_arm_call("pread", ESTALE, n);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        hit = fault_disarm();
        setenv("PATH", path, 1);
        if (hit && e != CKPT_OK) assert_int_equal(e, CKPT_NET);
        told += e == CKPT_NET && strstr(ckpt_last_error(), "cannot read ") != NULL && strstr(ckpt_last_error(), "ba2.pt.gz") != NULL;
        run_end(r);
    }
    assert_false(hit);
    assert_true(told >= 2);             // its first bytes, and what the tool was to read
}

// Nor one that could not read its input for a moment, nor one that took that for the input's end: it is tried again.
static void test_tool_could_not_read(void **state) {
    (void)state;
    static const char *const rows[] = { "echo stdin: Input/output error >&2; exit 1", "echo stdin: Stale file handle >&2; exit 1",
                                        "dd bs=20 count=1 2>/dev/null; exit 0", "dd bs=20 count=1 2>/dev/null; echo Link has been severed >&2; exit 1",
                                        "cat >/dev/null; echo 'bzip2: I/O or other error, bailing out.' >&2; exit 1" };
    const char *dir = packed_folder();
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        run *r = packed_run(dir);
        char *path = gzip_that(rows[i]);
        ckpt_timestamp t;
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        setenv("PATH", path, 1);
        if (e != CKPT_OK) fail_msg("%s: %s: %s", rows[i], ckpt_err_name(e), ckpt_last_error());
        run_check(r, 2);
        run_end(r);
    }
}

// Nor do a program that waits for any child, and so takes the tool's end away, and a tool that has gone since it was looked for.
static void test_untold_tool(void **state) {
    (void)state;
    static const struct { const char *call; int errnum; } rows[] = { { "waitpid", ECHILD }, { "posix_spawnp", ENOENT }, { "posix_spawnp", ENOEXEC } };
    const char *dir = packed_folder();
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        run *r = packed_run(dir);
        ckpt_timestamp t;
        fault_arm_call(rows[i].call, rows[i].errnum, 1);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        assert_true(fault_disarm());
        if (e != CKPT_NOMEM) fail_msg("%s: %s: %s", rows[i].call, ckpt_err_name(e), ckpt_last_error());
        ok(ckpt_saver_resume(r->s, &t));
        run_check(r, 2);
        run_end(r);
    }
}

// A tool that goes between two looks at it is said to be missing, as one that never was.
static void test_vanishing_tool(void **state) {
    (void)state;
    const char *dir = packed_folder(), *bin = util_temp_dir();
    char *path = gzip_that(":");
    const char *gzip = util_fmt("%.*s/gzip", (int)strcspn(getenv("PATH"), ":"), getenv("PATH"));
    assert_int_equal(symlink(gzip, util_join(bin, "gzip")), 0);
    setenv("PATH", bin, 1);                                 // where there is no pigz
    bool hit = true;
    for (int n = 1; hit && n < 10; n++) {
        run *r = packed_run(dir);
        ckpt_timestamp t;
        fault_arm_call("access", EACCES, n);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        hit = fault_disarm();
        if (e != (hit ? CKPT_UNSUPPORTED : CKPT_OK)) fail_msg("%d: %s: %s", n, ckpt_err_name(e), ckpt_last_error());
        if (hit) assert_non_null(strstr(ckpt_last_error(), "needs the tool 'gzip'"));
        run_end(r);
    }
    setenv("PATH", path, 1);
    assert_false(hit);
}

// A job's signal that reaches all of its processes is the program's to answer: it ends neither the save that it asks for nor a resume.
static void test_signalled_tool(void **state) {
    (void)state;
    static const char *const names[] = { "HUP", "INT", "QUIT", "TERM", "USR1", "USR2" };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        const char *dir = packed_folder();
        for (int saves = 0; saves < 2; saves++) {
            run *r = packed_run(dir);
            ckpt_timestamp t;
            char *path = gzip_that(util_fmt("kill -%s $$", names[i]));
            if (saves != 0) run_save(r, 3);
            else ok(ckpt_saver_resume(r->s, &t));
            setenv("PATH", path, 1);
            ok(ckpt_saver_resume(r->s, &t));
            run_check(r, saves != 0 ? 3 : 2);
            run_end(r);
        }
    }
}

static ckpt_err broken_device(void *dst, const void *src, size_t size, bool to_device, void *user) {
    const ckpt_err *what = (const ckpt_err *)user;
    if (to_device && *what != CKPT_OK) return *what;
    memcpy(dst, src, size);
    return CKPT_OK;
}

// A device that fails while it is filled says nothing of the files: no older one is taken, and no fresh start made.
static void test_device_fails(void **state) {
    (void)state;
    static const ckpt_err rows[] = { CKPT_IO, CKPT_CORRUPT, CKPT_NOT_FOUND, CKPT_MISMATCH, CKPT_NET, CKPT_TIMEOUT, CKPT_AUTH, CKPT_CANCELLED, CKPT_NOMEM };
    const char *dir = util_temp_dir();
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        run *r = run_new(dir);
        ckpt_err what = CKPT_OK;
        float cell[4] = { 1, 2, 3, 4 };
        run_bind_device(r, cell, broken_device, &what);
        r->d.overwrite = true;
        run_open(r);
        if (i == 0) run_save(r, 1);
        if (i == 0) run_save(r, 2);
        what = rows[i];
        r->log[0] = 0;
        ckpt_timestamp at = at_batch(77);
        ckpt_err e = ckpt_saver_resume(r->s, &at);
        if (e != (rows[i] == CKPT_NOMEM ? CKPT_NOMEM : CKPT_CANCELLED)) fail_msg("%s: %s: %s", ckpt_err_name(rows[i]), ckpt_err_name(e), ckpt_last_error());
        assert_non_null(strstr(ckpt_last_error(), "state.copy"));
        assert_int_equal(at.batch, 77);
        if (strstr(r->log, "passed over") != NULL) fail_msg("%s", r->log);
        what = CKPT_OK;
        ok(ckpt_saver_resume(r->s, &at));
        assert_int_equal(at.batch, 2);
        ok(ckpt_saver_close(r->s, 0));
        ckpt_state_free(&r->st);
    }
}

// Globs are meant for what is bound: a run goes on at the time it was saved at, whatever they take of the names of that time.
static void test_ignored_time(void **state) {
    (void)state;
    static const char *const globs[] = { "state/timestamp*", "*batch*", "*token*", "*epoch*" };
    for (int i = 0; i < UTIL_COUNT(globs); i++) {
        for (int sharded = 0; sharded < 2; sharded++) {
            const char *dir = util_temp_dir();
            ckpt_timestamp t;
            for (int step = 10; step <= 30; step += 10) {
                run *r = run_new(dir);
                r->d.sharded = sharded != 0;
                r->d.filename = sharded ? NULL : "ba{batch}.pt";
                r->d.ignore_keys = globs + i;
                r->d.ignore_keys_count = 1;
                run_open(r);
                memset(&t, 0, sizeof t);
                if (step > 10) ok(ckpt_saver_resume(r->s, &t));
                run_check(r, step - 10);
                if (t.batch != step - 10 || t.epoch != (step > 10) || t.token != (step - 10) * 1000)
                    fail_msg("%s, sharded %d: batch %d, epoch %d", globs[i], sharded, (int)t.batch, (int)t.epoch);
                assert_int_equal(ckpt_saver_checkpoints(r->s, NULL), step / 10 - 1);
                t = at_batch(step);
                t.epoch = 1;
                t.token = step * 1000;
                run_set(r, step);
                ok(ckpt_saver_save(r->s, &t));
                run_end(r);
            }
        }
    }
}

// Saves what is bound with clocks as Python may write them: a batch, or a count of tokens, that is text, or a batch that is a tensor of one
// element.
static void save_odd(run *r, const char *name, bool text, bool tokens) {
    static char token[] = "state/timestamp/Timestamp/token";
    static int64_t thirty = 30;
    static char batch[] = "state/timestamp/Timestamp/batch", epoch[] = "state/timestamp/Timestamp/epoch";
    static char word[] = "30";
    static float number = 30;
    static int64_t one = 1;
    const char *path = util_join(r->dir, name);
    ckpt__file_format fmt;
    ckpt__engine_job job;
    ckpt__items items;
    ckpt__plan plan;
    memset(&job, 0, sizeof job);
    ok(ckpt__state_select(&r->st, false, NULL, 0, NULL, &items));
    ok(ckpt__items_add(&items, epoch, CKPT_KIND_INT, &one, 8));
    if (tokens) ok(ckpt__items_add(&items, batch, CKPT_KIND_INT, &thirty, 8));
    ok(ckpt__items_add(&items, tokens ? token : batch, text ? CKPT_KIND_TEXT : CKPT_KIND_TENSOR, text ? (void *)word : &number, text ? sizeof word : 4));
    items.list[items.count - 1].tensor.dtype = CKPT_F32;
    items.list[items.count - 1].tensor.data = &number;
    ckpt__plan_init(&plan, &r->st.allocator, &r->st);
    ok(ckpt__file_format_of(path, &fmt));
    ok(ckpt__file_plan(&plan, &fmt, path, items.list, items.count));
    ok(ckpt__file_write(path, &fmt, &plan, true, &job, &r->st.allocator, NULL));
    ckpt__plan_free(&plan);
    ckpt__items_free(&items);
}

// The clock of a checkpoint that Python has edited: what fits is taken, in place of what does not the index's or the name's, and
// where neither knows it the run does not begin at 0, as its rotation would take all others.
static void test_odd_clock(void **state) {
    (void)state;
    static const struct { const char *filename, *name; bool text, lost, tokens; ckpt_err want; } rows[] = {
        { "ba{batch}.pt", "ba30.pt", false, false, false, CKPT_OK }, { "ba{batch}.pt", "ba30.pt", false, true, false, CKPT_OK },
        { "ba{batch}.pt", "ba30.pt", true, false, false, CKPT_OK },  { "ba{batch}.pt", "ba30.pt", true, true, false, CKPT_OK },
        { "ba{batch}.pt", "ba30.pt", true, false, true, CKPT_OK },   { "ba{batch}.pt", "ba30.pt", true, true, true, CKPT_OK },
        { "x{sample}.pt", "x0.pt", true, true, false, CKPT_MISMATCH }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = rows[i].want == CKPT_OK ? folder_with(30, 0) : util_temp_dir();
        run *r = run_new(dir);
        r->d.filename = rows[i].filename;
        run_set(r, 30);
        save_odd(r, rows[i].name, rows[i].text, rows[i].tokens);
        if (rows[i].lost && rows[i].want == CKPT_OK) assert_int_equal(unlink(util_join(dir, ".ckpt-index.jsonl")), 0);
        run_set(r, 0);
        run_open(r);
        ckpt_timestamp t;
        memset(&t, 0, sizeof t);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        if (e != rows[i].want) fail_msg("row %d: %s (%s)", i, ckpt_err_name(e), ckpt_last_error());
        if (e == CKPT_OK && t.batch != 30) fail_msg("row %d: batch %d", i, (int)t.batch);
        run_check(r, e == CKPT_OK ? 30 : 0);
        if (e != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), "'state/timestamp/Timestamp/batch' is text"));
        else assert_int_equal(strstr(r->log, rows[i].tokens ? "Timestamp/token' is text" : "Timestamp/batch' is text") != NULL, rows[i].text);
        run_end(r);
    }
}

// A saver that saves less than those before it resumes all that there is; what there is not, of what it leaves out, stays as it is and is
// told. What it would save must be there.
static void test_saves_less(void **state) {
    (void)state;
    static const char *const globs[] = { "state/step", "state/metrics/*" };
    for (int i = 0; i < 8; i++) {
        bool weights = i % 2 != 0, sharded = i / 2 % 2 != 0, there = i < 4;
        const char *dir = util_temp_dir();
        for (int life = 0; life < 2; life++) {
            run *r = run_new(dir);
            ckpt_timestamp t = at_batch(0);
            r->d.sharded = sharded;
            r->d.filename = sharded ? NULL : "ba{batch}.pt";
            r->d.sharded_prefix_dir = "ba{batch}";
            r->d.weights_only = weights && (life > 0 || !there);
            r->d.ignore_keys = globs;
            r->d.ignore_keys_count = !weights && (life > 0 || !there) ? 2 : 0;
            run_open(r);
            if (life == 0) run_save(r, 10);
            if (life == 0) { run_end(r); continue; }
            ok(ckpt_saver_resume(r->s, &t));
            assert_int_equal(t.batch, 10);
            assert_true(r->w[0] == 70);
            assert_int_equal(r->step, there ? 10 : 0);
            assert_true(r->loss == (there ? 6 : 0));
            const char *told = strstr(r->log, "2 bound names stay as they are (state/metrics/loss, state/step)");
            assert_true((told == NULL) == there && (there || strstr(told + 20, "bound names stay") == NULL));
            run_save(r, 20);
            run_end(r);
        }
        run *r = run_new(dir);
        float more[2] = { 0 };
        ckpt_bind_f32(&r->st, "state/model/more", more, 2);
        r->d.sharded = sharded;
        r->d.filename = sharded ? NULL : "ba{batch}.pt";
        r->d.sharded_prefix_dir = "ba{batch}";
        r->d.ignore_keys = globs;
        r->d.weights_only = weights;
        r->d.ignore_keys_count = weights ? 0 : 2;
        run_open(r);
        assert_int_equal(ckpt_saver_resume(r->s, NULL), CKPT_MISMATCH);
        assert_non_null(strstr(ckpt_last_error(), "1 bound name is missing in it (state/model/more)"));
        run_end(r);
    }
}

// What it leaves out may have another shape by now, which may be why, and of what it does not bind there may be more than its weights.
static void test_saves_less_of_others(void **state) {
    (void)state;
    static const char *const globs[] = { "state/optimizers/*" };
    for (int i = 0; i < 4; i++) {
        bool weights = i % 2 != 0, sharded = i / 2 != 0;
        const char *dir = util_temp_dir();
        float momentum[3] = { 1, 2, 3 };
        int64_t note = 7;
        for (int life = 0; life < 2; life++) {
            run *r = run_new(dir);
            ckpt_timestamp t = at_batch(0);
            ckpt_bind_f32(&r->st, "state/optimizers/momentum", momentum, life == 0 ? 3 : 2);
            if (life == 0 && weights) ckpt_bind_int(&r->st, "state/metadata/note", &note);
            r->d.sharded = sharded;
            r->d.filename = sharded ? NULL : "ba{batch}.pt";
            r->d.sharded_prefix_dir = "ba{batch}";
            r->d.weights_only = weights && life > 0;
            r->d.ignore_keys = globs;
            r->d.ignore_keys_count = !weights && life > 0 ? 1 : 0;
            run_open(r);
            if (life == 0) run_save(r, 10);
            if (life == 0) { run_end(r); continue; }
            momentum[0] = 9;
            ok(ckpt_saver_resume(r->s, &t));
            assert_int_equal(t.batch, 10);
            assert_true(r->w[0] == 70 && momentum[0] == 9);
            assert_non_null(strstr(r->log, "1 bound name stays as it is (state/optimizers/momentum)"));
            run_end(r);
        }
    }
}

// A process that was killed had put a save of its own under a name, and not come to the index: the best of all is known for that when it
// is gone on from.
static void test_replaced_is_best(void **state) {
    (void)state;
    const char *dirs[2] = { util_temp_dir(), util_temp_dir() };
    static const int steps[] = { 10, 15, 20, 30 };
    for (int k = 0; k < 2; k++) {
        run *r = run_new(dirs[k]);
        r->d.keep_best = k == 0 ? "max:state/metrics/loss" : NULL;
        run_open(r);
        for (int i = 0; i < 4; i++) {
            ckpt_timestamp t = at_batch(steps[i]);
            if (k == 0 && i == 1) continue;
            run_set(r, steps[i]);
            if (k == 1) r->loss = 100;
            ok(ckpt_saver_save(r->s, &t));
        }
        run_end(r);
    }
    assert_int_equal(rename(util_join(dirs[1], "ba30.pt"), util_join(dirs[0], "ba30.pt")), 0);
    run *r = run_new(dirs[0]);
    ckpt_timestamp t;
    r->d.keep_best = "max:state/metrics/loss";
    r->d.num_checkpoints_to_keep = 1;
    run_open(r);
    ok(ckpt_saver_resume(r->s, &t));
    assert_int_equal(t.batch, 30);
    for (int step = 40; step <= 60; step += 10) run_save(r, step);
    assert_string_equal(names_in(dirs[0]), "ba30.pt ba60.pt latest.pt");
    run_end(r);
}

static int best_errnum;

static void best_unread(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/ba20") != NULL) fault_arm_here("open", best_errnum);
}

// A life whose rule is keep_best: it goes on from what is there and saves once.
static run *best_life(const char *dir, bool sharded, const char *best, int keep, int step) {
    run *r = run_new(dir);
    ckpt_timestamp t;
    r->d.sharded = sharded;
    r->d.sharded_prefix_dir = "ba{batch}";
    r->d.keep_best = best;
    r->d.num_checkpoints_to_keep = keep;
    run_open(r);
    if (step > 30) ok(ckpt_saver_resume(r->s, &t));
    for (int i = step > 30 ? step : 10; i <= step; i += 10) run_save(r, i);
    return r;
}

// The best that cannot be read while it is asked for its metric stays, and is asked again by the next life.
static void test_unread_is_best(void **state) {
    (void)state;
    static const char *const rule = "min:state/metrics/loss";       // 6, 1, 7, 2, 8
    static const int errnums[] = { ECOMM, EIO, EACCES };
    for (int i = 0; i < 9; i++) {
        const char *dir = util_temp_dir();
        bool lost = i % 3 == 1, sharded = i % 3 == 2;
        run_end(best_life(dir, sharded, lost ? rule : NULL, CKPT_KEEP_ALL, 30));
        if (lost) assert_int_equal(unlink(util_join(dir, CKPT__INDEX_FILE)), 0);
        best_errnum = errnums[i / 3];
        fault_set_spy(best_unread);
        run *r = best_life(dir, sharded, rule, 1, 40);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        run_end(r);
        assert_string_equal(names_in(dir), sharded ? "ba20 ba40 latest.pt" : "ba20.pt ba40.pt latest.pt");
        assert_non_null(strstr(r->log, "1 checkpoints cannot be read for their state/metrics/loss now"));
        run_end(best_life(dir, sharded, rule, 1, 50));
        assert_string_equal(names_in(dir), sharded ? "ba20 ba50 latest.pt" : "ba20.pt ba50.pt latest.pt");
    }
}

static const char *late;                // epochs whose files cannot be opened

static void late_unread(const char *name, const char *path) {
    const char *base = ckpt__os_path_base(path);
    if (strcmp(name, "open") == 0 && strncmp(base, "ep", 2) == 0 && strchr(late, base[2]) != NULL) fault_arm_here("open", ESTALE);
}

static run *epochs_new(const char *dir, const char *filename) {
    run *r = run_new(dir);
    r->d.filename = filename;
    r->d.latest_filename = CKPT_NONE;
    r->d.save_interval = "1ep";
    return r;
}

static ckpt_timestamp at_epoch(int i) {
    ckpt_timestamp t = at_batch(10 * i);
    t.epoch = i;
    return t;
}

// Of files that no index tells of, and that cannot be read for the moment, the name may have only some of the counters: the newest is
// not the oldest of all for that, nor does it stay what it was taken for.
static void test_unread_in_order(void **state) {
    (void)state;
    static const struct { const char *filename, *late; int known, resumed; } rows[] = {     // known: lines of the index that a killed process left
        { "ep{epoch}.pt", "3",  0, 3 }, { "ep{epoch}.pt", "3", 2, 3 }, { "ep{epoch}.pt", "345",   0, 5 },
        { "ep{epoch}.pt", "12", 0, 5 }, { "ep{epoch}.pt", "2", 1, 4 }, { "ep{epoch}.pt", "12345", 0, 5 },
        { "ep{epoch}-ba{batch}.pt", "3", 0, 3 },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir(), *index = util_join(dir, CKPT__INDEX_FILE);
        char *before = NULL;
        run *r = epochs_new(dir, rows[i].filename);
        int last = rows[i].resumed;
        run_open(r);
        for (int k = 1; k <= last; k++) {
            ckpt_timestamp t = at_epoch(k);
            ok(ckpt_saver_epoch_end(r->s, &t));
            if (k == rows[i].known) before = util_read(index, NULL);
        }
        run_end(r);
        assert_int_equal(unlink(index), 0);
        if (before != NULL) util_write_text(index, before);
        late = rows[i].late;
        fault_set_spy(late_unread);
        r = epochs_new(dir, rows[i].filename);
        r->d.num_checkpoints_to_keep = 2;
        run_open(r);
        ckpt_timestamp t = at_batch(0);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        bool newest = strchr(late, '0' + last) != NULL;
        if (e != (newest ? CKPT_NET : CKPT_OK)) fail_msg("case %d: %s, epoch %d", i, ckpt_err_name(e), (int)t.epoch);
        if (e == CKPT_OK) {             // the old ones that were not asked stay for that long
            ckpt_timestamp next = at_epoch(last + 1);
            ok(ckpt_saver_epoch_end(r->s, &next));
            for (const char *p = late; *p != 0; p++) assert_true(util_exists(util_join(dir, util_fmt("ep%c.pt", *p))));
            ok(ckpt_saver_wait(r->s, 0));
            last++;
        }
        fault_set_spy(NULL);
        (void)fault_disarm();
        run_end(r);
        r = epochs_new(dir, rows[i].filename);
        r->d.num_checkpoints_to_keep = 2;
        run_open(r);
        t = at_batch(0);
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.epoch, last);
        for (size_t k = 0; k < r->s->index.count; k++) {
            const ckpt__index_line *l = &r->s->index.lines[k];
            assert_true(l->number == (uint64_t)l->t.epoch && l->t.batch == 10 * l->t.epoch);
            if (k > 0) assert_true(l->number > r->s->index.lines[k - 1].number);
        }
        ckpt_timestamp next = at_epoch(last + 1);
        ok(ckpt_saver_epoch_end(r->s, &next));
        ok(ckpt_saver_wait(r->s, 0));
        assert_int_equal(r->s->index.count, 2);
        assert_int_equal(r->s->index.lines[0].t.epoch, last);
        run_end(r);
    }
}

// Names tell where a file belongs only as far as nothing else does: a file whose number is known, or one of a future that the run went
// back from, is not the newest because its name is.
static void test_named_in_another_future(void **state) {
    (void)state;
    static const char *const ignored[] = { "state/timestamp/*" };
    static const struct { const char *filename; bool weights; int steps[5], loses, resumed; const char *order; } rows[] = {  // loses: a line; -1: all
        { "ba{batch}.pt", false, { 100, 200, 150 },           -1, 150, "100 200a 150" },
        { "ba{batch}.pt", false, { 100, 200, 150 },            1, 150, "100 200a 150" },
        { "ep{epoch}.pt", false, { 100, 200, 150 },           -1, 150, "100 200a 150" },
        { "ep{epoch}.pt", false, { 100, 200, 150 },            1, 150, "100 200a 150" },
        { "ep{epoch}.pt", false, { 100, 200, 150 },            0, 150, "100 200a 150" },
        { "ep{epoch}.pt", false, { 100, 200, 150 },            2, 150, "100 200a 150" },
        { "ba{batch}.pt", true,  { 100, 200, 300, 150, 160 },  1, 160, "100 200a 300a 150 160" },
        { "ep{epoch}-ba{batch}.pt", true, { 100, 200, 300, 150, 160 }, 1, 160, "100 200a 300a 150 160" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir(), *index = util_join(dir, CKPT__INDEX_FILE);
        const char *seen = "";
        for (int again = 0; again < 2; again++) {
            run *r = epochs_new(dir, rows[i].filename);
            r->d.weights_only = rows[i].weights;
            r->d.ignore_keys = ignored;
            r->d.ignore_keys_count = rows[i].weights ? 0 : 1;
            r->d.num_checkpoints_to_keep = again ? 2 : CKPT_KEEP_ALL;
            run_open(r);
            for (int k = 0; k < 5 && rows[i].steps[k] > 0 && !again; k++) {
                ckpt_timestamp t = at_epoch(rows[i].steps[k] / 10);
                ok(ckpt_saver_save(r->s, &t));
            }
            if (!again) {
                run_end(r);
                char *text = util_read(index, NULL), *line = text;
                for (int k = 0; k < rows[i].loses; k++) line = strchr(line, '\n') + 1;
                line[2] = '?';
                if (rows[i].loses < 0) assert_int_equal(unlink(index), 0);
                else util_write_text(index, text);
                continue;
            }
            ckpt_timestamp t = at_batch(0);
            ok(ckpt_saver_resume(r->s, &t));
            for (size_t k = 0; k < r->s->index.count; k++) {
                const ckpt__index_line *l = &r->s->index.lines[k];
                int step = atoi(&l->name[2]) * (l->name[0] == 'e' ? 10 : 1);
                if (strstr(l->name, "-ba") != NULL) step = atoi(strstr(l->name, "-ba") + 3);
                seen = util_fmt("%s%s%d%s", seen, k > 0 ? " " : "", step, l->state == CKPT__INDEX_ABANDONED ? "a" : "");
            }
            if (strcmp(seen, rows[i].order) != 0) fail_msg("case %d: %s", i, seen);
            ckpt_timestamp next = at_epoch(rows[i].resumed / 10 + 1);
            ok(ckpt_saver_save(r->s, &next));
            ok(ckpt_saver_wait(r->s, 0));
            assert_int_equal(r->s->index.count, 2);
            assert_int_equal(r->s->index.lines[0].number, rows[i].weights ? 5 : 3);
            run_end(r);
        }
    }
}

// One that is damaged has no metric, and goes.
static void test_damaged_is_not_best(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    run_end(best_life(dir, false, NULL, CKPT_KEEP_ALL, 30));
    damage_empty(util_join(dir, "ba20.pt"));
    run_end(best_life(dir, false, "min:state/metrics/loss", 1, 40));
    assert_string_equal(names_in(dir), "ba40.pt latest.pt");
}

// An attached file that cannot be written to where it is bound says nothing of the checkpoint: no older one is taken for that.
static const char *attached_call;
static int attached_errnum;

static void attached_spy(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/.words.txt.") != NULL) fault_arm_here(attached_call, attached_errnum);
}

static void test_attached_unwritten(void **state) {
    (void)state;
    static const struct { const char *call; int errnum; ckpt_err err; } rows[] = {
        { "open", EIO, CKPT_CANCELLED }, { "open", EACCES, CKPT_CANCELLED }, { "pwrite", ESTALE, CKPT_CANCELLED },
        { "fsync", EIO, CKPT_CANCELLED }, { "rename", EIO, CKPT_CANCELLED }, { "pwrite", ENOSPC, CKPT_NO_SPACE },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir(), *attached = util_join(util_temp_dir(), "words.txt");
        run *r = run_new(dir);
        ckpt_timestamp t;
        util_write_text(attached, "a b c\n");
        r->d.filename = "ba{batch}.tar";
        r->d.latest_filename = "latest.tar";
        ckpt_bind_file(&r->st, "words", attached);
        run_open(r);
        run_save(r, 1);
        run_save(r, 2);
        attached_call = rows[i].call;
        attached_errnum = rows[i].errnum;
        fault_set_spy(attached_spy);
        ckpt_err e = ckpt_saver_resume(r->s, &t);
        fault_set_spy(NULL);
        assert_true(fault_disarm());
        if (e != rows[i].err) fail_msg("%s %d: %s: %s", rows[i].call, rows[i].errnum, ckpt_err_name(e), ckpt_last_error());
        assert_non_null(strstr(ckpt_last_error(), util_fmt("cannot write the attached file %s", attached)));
        ok(ckpt_saver_resume(r->s, &t));
        assert_int_equal(t.batch, 2);
        run_end(r);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    fault_sync = FAULT_NO_SYNC;         // its calls matter here, not the time of the disk
    util_clear_env();
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_otherwise),
        cmocka_unit_test(test_fresh_start),
        cmocka_unit_test(test_made_up_name),
        cmocka_unit_test(test_walks_back),
        cmocka_unit_test(test_none_verifies),
        cmocka_unit_test(test_mismatch_is_told),
        cmocka_unit_test(test_lost_and_damaged_index),
        cmocka_unit_test(test_index_out_of_reach),
        cmocka_unit_test(test_folder_does_not_answer), cmocka_unit_test(test_file_does_not_answer),
        cmocka_unit_test(test_folder_below_does_not_answer), cmocka_unit_test(test_stranger_does_not_answer), cmocka_unit_test(test_stranger_is_not_listed),
        cmocka_unit_test(test_levels_of_run_name), cmocka_unit_test(test_link_to_what_is_barred), cmocka_unit_test(test_no_metric_is_noted), cmocka_unit_test(test_found_is_noted),
        cmocka_unit_test(test_folder_of_others_below),
        cmocka_unit_test(test_latest_link_is_a_hint_only),
        cmocka_unit_test(test_template_changed), cmocka_unit_test(test_link_has_a_checkpoints_name), cmocka_unit_test(test_link_and_checkpoint_exchanged),
        cmocka_unit_test(test_foreign_file),
        cmocka_unit_test(test_passed_over_is_not_damaged),
        cmocka_unit_test(test_moved_checkpoint),
        cmocka_unit_test(test_pinned_copy_of_another_run), cmocka_unit_test(test_pinned_copy_of_own),
        cmocka_unit_test(test_unlisted_beside_a_copy),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_other_ranks_resume),
        cmocka_unit_test(test_autoresume_cases), cmocka_unit_test(test_autoresume_cases_lz4),
        cmocka_unit_test(test_faults_while_resuming),
        cmocka_unit_test(test_short_of),
        cmocka_unit_test(test_broken_scratch), cmocka_unit_test(test_vanishing_tool), cmocka_unit_test(test_killed_tool), cmocka_unit_test(test_tool_cannot_read),
        cmocka_unit_test(test_tool_could_not_read),
        cmocka_unit_test(test_untold_tool),
        cmocka_unit_test(test_signalled_tool),
        cmocka_unit_test(test_device_fails),
        cmocka_unit_test(test_ignored_time), cmocka_unit_test(test_odd_clock), cmocka_unit_test(test_saves_less), cmocka_unit_test(test_saves_less_of_others),
        cmocka_unit_test(test_attached_unwritten), cmocka_unit_test(test_replaced_is_best), cmocka_unit_test(test_unread_is_best),
        cmocka_unit_test(test_damaged_is_not_best), cmocka_unit_test(test_unread_in_order),
        cmocka_unit_test(test_named_in_another_future),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
