/* test_folder_shards.c: the folder's view of checkpoints of many ranks, and ckpt_convert into and out of them, below tools/ckpt.c:
   every allocation failed in turn, names and tables that are hostile, what gc may and may not take. */
#include "fault/faults.h"
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include <sys/stat.h>
#include <sys/time.h>

enum { ROWS = 37, COLUMNS = 1000 };

static float wide[ROWS * COLUMNS], first_of_wide;

static void ok(ckpt_err e) {
    if (e != CKPT_OK) fail_msg("%s: %s", ckpt_err_name(e), ckpt_last_error());
}

// One file with some of everything.
static const char *make_file(const char *path, int64_t step) {
    ckpt_state st;
    ckpt_tensor t;
    ckpt_timestamp at;
    double lr = 0.5;
    char note[] = "note";
    memset(&st, 0, sizeof st);
    memset(&t, 0, sizeof t);
    memset(&at, 0, sizeof at);
    at.batch = step;
    for (int i = 0; i < ROWS * COLUMNS; i++) wide[i] = first_of_wide + (float)i;
    t.dtype = CKPT_F32;
    t.ndim = 2;
    t.shape[0] = ROWS;
    t.shape[1] = COLUMNS;
    t.data = wide;
    ckpt_bind(&st, "state/model/wide", &t);
    t.ndim = 0;
    ckpt_bind(&st, "state/model/one", &t);
    ckpt_bind_f32(&st, "state/model/none", NULL, 0);
    ckpt_bind_int(&st, "state/step", &step);
    ckpt_bind_float(&st, "state/groups/[0]/lr", &lr);
    ckpt_bind_text(&st, "state/note", note, sizeof note);
    ckpt_bind_bytes(&st, "rng/0/python", wide, 999);
    ok(ckpt_save(path, &st, &at));
    ckpt_state_free(&st);
    return path;
}

static ckpt_err convert(const char *from, const char *to, int shards, const char *ending, bool whole, const ckpt_allocator *a) {
    ckpt_convert_desc d;
    memset(&d, 0, sizeof d);
    d.from = from;
    d.to = to;
    d.shards = shards;
    d.shard_ending = ending;
    d.shards_whole = whole;
    d.overwrite = true;
    if (a != NULL) d.allocator = *a;
    return ckpt_convert(&d);
}

static ckpt_folder *look(const char *dir) {
    ckpt_folder *f = NULL;
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = dir;
    ok(ckpt_folder_open(&f, &d));
    return f;
}

static ckpt_checkpoint entry(const ckpt_folder *f, const char *name) {
    ckpt_checkpoint c;
    int at = ckpt_folder_find(f, name);
    if (at < 0) fail_msg("there is no %s", name);
    ok(ckpt_folder_entry(f, at, &c));
    return c;
}

// A folder with ep1 and ep2, each of so many files.
static const char *make_folder(int shards, const char *ending) {
    const char *dir = util_temp_dir();
    ok(convert(make_file(util_join(dir, "../one.pt"), 10), util_join(dir, "ep1"), shards, ending, false, NULL));
    ok(convert(make_file(util_join(dir, "../one.pt"), 20), util_join(dir, "ep2"), shards, ending, false, NULL));
    return dir;
}

static void old(const char *dir, const char *name) {
    struct timeval t[2];
    memset(t, 0, sizeof t);
    t[0].tv_sec = t[1].tv_sec = 1500000000;
    assert_int_equal(utimes(util_join(dir, name), t), 0);
}

//-- what a file of a directory says of itself ----------------------------------------

// Files are opened when they are wanted: those of the directory that was opened by a relative name, wherever the program is by then.
static void test_opened_elsewhere(void **state) {
    (void)state;
    const char *dir = make_folder(3, ".pt");
    ckpt_file *f = NULL;
    float x = 0;
    char *was = getcwd(NULL, 0);
    assert_int_equal(chdir(dir), 0);
    ok(ckpt_file_open(&f, "ep2"));
    assert_int_equal(chdir("ep1"), 0);
    ok(ckpt_file_verify(f));
    ckpt_entry e;
    int at = 0;
    while (ckpt_file_entry(f, at, &e) == CKPT_OK && strcmp(e.name, "state/model/wide") != 0) at++;
    ok(ckpt_file_read(f, at, 7 * sizeof x, &x, sizeof x));
    assert_true(x == wide[7]);
    ckpt_file_close(f);
    assert_int_equal(chdir(was), 0);
    free(was);
}

static void test_entries(void **state) {
    (void)state;
    const char *dir = make_folder(3, ".pt");
    ckpt_file *f = NULL;
    ok(ckpt_file_open(&f, util_join(dir, "ep2")));
    assert_int_equal(ckpt_file_ranks(f), 3);
    uint64_t size = 0;
    for (int i = 0; i < 3; i++) {
        struct stat st;
        assert_string_equal(ckpt_file_shard(f, i, &size), util_fmt("__%d_0.pt", i));
        assert_int_equal(stat(util_join(dir, util_fmt("ep2/__%d_0.pt", i)), &st), 0);
        assert_int_equal(size, st.st_size);
    }
    assert_non_null(ckpt_file_shard(f, 0, NULL));
    assert_null(ckpt_file_shard(f, 3, &size));
    assert_null(ckpt_file_shard(f, -1, &size));
    for (int i = 0; i < ckpt_file_count(f); i++) {
        ckpt_entry e;
        ok(ckpt_file_entry(f, i, &e));
        bool array = e.kind == CKPT_KIND_TENSOR || e.kind == CKPT_KIND_BYTES;
        assert_int_equal(e.pieces, strcmp(e.name, "state/model/wide") == 0 ? 3 : array ? 1 : 0);
        assert_int_equal(e.has_checksum, e.pieces == 1);
    }
    ckpt_file_close(f);
    ok(ckpt_file_open(&f, util_join(dir, "../one.pt")));
    ckpt_entry e;
    assert_int_equal(ckpt_file_ranks(f), 0);
    assert_null(ckpt_file_shard(f, 0, NULL));
    ok(ckpt_file_entry(f, 0, &e));
    assert_int_equal(e.pieces, 0);
    ckpt_file_close(f);
    assert_int_equal(ckpt_file_ranks(NULL), 0);
    assert_null(ckpt_file_shard(NULL, 0, NULL));
}

static void test_store_time(void **state) {
    (void)state;
    const char *dir = make_folder(1, ".pt");
    ckpt_store *s = NULL;
    double at = 0;
    old(dir, "ep1/__0_0.pt");
    ok(ckpt_store_open(&s, util_fmt("file://%s", dir), NULL));
    ok(ckpt_store_time(s, "ep1/__0_0.pt", &at));
    assert_true(at == 1500000000.0);
    assert_int_equal(ckpt_store_time(s, "ep1/nothing", &at), CKPT_NOT_FOUND);
    assert_int_equal(ckpt_store_time(s, NULL, &at), CKPT_ARG);
    assert_int_equal(ckpt_store_time(NULL, "x", &at), CKPT_ARG);
    assert_int_equal(ckpt_store_time(s, "x", NULL), CKPT_ARG);
    ckpt_store_close(s);
}

//-- the view ------------------------------------------------------------------------

static void test_view(void **state) {
    (void)state;
    const char *dir = make_folder(4, ".safetensors");
    assert_int_equal(symlink("ep2", util_join(dir, "latest")), 0);
    util_mkdir(util_join(dir, "half"));
    util_write_text(util_join(dir, "half/__0_0.pt"), "anything");
    util_mkdir(util_join(dir, "sub"));
    ok(convert(util_join(dir, "ep1"), util_join(dir, "sub/ep3"), 2, ".pt.gz", true, NULL));
    make_file(util_join(dir, "single.pt"), 15);
    ckpt_folder *f = look(dir);
    assert_int_equal(ckpt_folder_count(f), 5);
    ckpt_checkpoint c = entry(f, "ep2");
    assert_true(c.sharded && !c.unfinished && !c.missing && !c.foreign && !c.damaged);
    assert_int_equal(c.ranks, 4);
    assert_int_equal(c.timestamp.batch, 20);
    assert_string_equal(c.latest, "latest");
    assert_string_equal(c.path, util_join(dir, "ep2"));
    assert_string_equal(entry(f, util_join(dir, "latest")).name, "ep2");
    assert_string_equal(entry(f, "latest").name, "ep2");
    assert_string_equal(entry(f, "sub/ep3").name, "sub/ep3");
    assert_int_equal(entry(f, "sub/ep3").ranks, 2);
    assert_false(entry(f, "single.pt").sharded);
    c = entry(f, "half");
    assert_true(c.sharded && c.unfinished);
    int at = ckpt_folder_find(f, "half");
    assert_int_equal(at, 4);                        // behind all that counts
    assert_int_equal(ckpt_folder_verify(f, at), CKPT_NOT_FOUND);
    assert_int_equal(ckpt_folder_pin(f, at, true), CKPT_UNSUPPORTED);
    assert_int_equal(ckpt_folder_find(f, "ep2/__0_0.safetensors"), -1);
    for (int i = 0; i < 4; i++) ok(ckpt_folder_verify(f, i));
    ok(ckpt_folder_pin(f, ckpt_folder_find(f, "ep1"), true));
    assert_int_equal(ckpt_folder_remove(f, ckpt_folder_find(f, "ep1")), CKPT_ARG);
    ok(ckpt_folder_remove(f, ckpt_folder_find(f, "ep2")));
    assert_string_equal(util_link_target(util_join(dir, "latest")), "single.pt");
    assert_false(util_exists(util_join(dir, "ep2")));
    ok(ckpt_folder_remove(f, ckpt_folder_find(f, "sub/ep3")));
    assert_false(util_exists(util_join(dir, "sub")));
    ok(ckpt_folder_remove(f, ckpt_folder_find(f, "half")));
    assert_false(util_exists(util_join(dir, "half")));
    assert_int_equal(ckpt_folder_count(f), 2);
    ckpt_folder_close(f);
    f = look(dir);                                  // the pin brought both into an index
    assert_true(entry(f, "ep1").pinned);
    assert_int_equal(entry(f, "ep1").ranks, 4);
    ckpt_folder_close(f);
}

// An unfinished directory is behind all that counts, also behind what the walk comes to later because it lies deeper.
static void test_unfinished_last(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    util_mkdir(util_join(dir, "half"));
    util_write_text(util_join(dir, "half/__0_0.pt"), "anything");
    util_mkdir(util_join(dir, "sub"));
    ok(convert(util_join(dir, "ep2"), util_join(dir, "sub/ep4"), 2, ".pt", true, NULL));
    ckpt_folder *f = look(dir);
    assert_int_equal(ckpt_folder_count(f), 4);
    assert_int_equal(ckpt_folder_find(f, "ep1"), 0);
    assert_int_equal(ckpt_folder_find(f, "half"), 3);
    assert_true(entry(f, "half").unfinished && !entry(f, "sub/ep4").unfinished);
    ckpt_folder_close(f);
}

// A rank's file that is gone or damaged is damage of the whole; the index remembers it, and gc takes it when asked to.
static void test_damage(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    ckpt_gc_desc g;
    memset(&g, 0, sizeof g);
    ckpt_folder *f = look(dir);
    ok(ckpt_folder_pin(f, ckpt_folder_find(f, "ep1"), true));
    ok(ckpt_folder_pin(f, ckpt_folder_find(f, "ep1"), false));
    ckpt_folder_close(f);
    f = look(dir);                                  // now both are in an index
    assert_int_equal(rename(util_join(dir, "ep2/__1_0.pt"), util_join(dir, "ep2/kept")), 0);
    assert_int_equal(ckpt_folder_verify(f, ckpt_folder_find(f, "ep2")), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "__1_0.pt"));
    assert_int_equal(ckpt_verify(util_join(dir, "ep2"), NULL), CKPT_CORRUPT);
    ckpt_file *file = NULL;
    ok(ckpt_file_open(&file, util_join(dir, "ep2")));
    assert_int_equal(ckpt_file_verify(file), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "__1_0.pt"));
    ckpt_file_close(file);
    assert_int_equal(rename(util_join(dir, "ep2/kept"), util_join(dir, "ep2/__1_0.pt")), 0);
    ok(ckpt_folder_verify(f, ckpt_folder_find(f, "ep2")));
    util_flip(util_join(dir, "ep2/__1_0.pt"), 5000, 4);
    assert_int_equal(ckpt_folder_verify(f, ckpt_folder_find(f, "ep2")), CKPT_CORRUPT);
    ckpt_folder_close(f);
    f = look(dir);
    assert_true(entry(f, "ep2").damaged);
    assert_int_equal(symlink("ep2", util_join(dir, "latest")), 0);
    g.damaged = true;
    ok(ckpt_folder_gc(f, &g));
    assert_int_equal(ckpt_folder_find(f, "ep2"), -1);
    assert_false(util_exists(util_join(dir, "ep2")));
    assert_string_equal(util_link_target(util_join(dir, "latest")), "ep1");
    ckpt_folder_close(f);
}

// What happens to a directory just before the second of its files is looked at.
static struct { const char *dir; void (*then)(const char *dir); bool on_open; } reading;

static void while_it_is_read(const char *name, const char *path) {
    if (reading.then == NULL || strstr(path, "/ep2/__1_0.pt") == NULL || (strcmp(name, "open") == 0) != reading.on_open) return;
    void (*then)(const char *dir) = reading.then;
    reading.then = NULL;
    then(reading.dir);
}

static void rotate(const char *dir) {
    ckpt_folder *f = look(dir);
    ok(ckpt_folder_remove(f, ckpt_folder_find(f, "ep2")));
    ckpt_folder_close(f);
}

static void save_again(const char *dir) {
    ok(convert(util_join(dir, "../one.pt"), util_join(dir, "ep2"), 3, ".pt", false, NULL));
}

static void save_same_names(const char *dir) {
    rotate(dir);
    ok(convert(make_file(util_join(dir, "../one.pt"), 30), util_join(dir, "ep2"), 2, ".safetensors", false, NULL));
    assert_int_equal(rename(util_join(dir, "ep2/__1_0.safetensors"), util_join(dir, "ep2/__1_0.pt")), 0);
}

static void lose_one(const char *dir) {
    assert_int_equal(unlink(util_join(dir, "ep2/__1_0.pt")), 0);
}

// A checkpoint that rotation takes away while it is verified is not damaged, nor one that another takes the place of; one that loses a
// file is.
static void test_gone_while_verified(void **state) {
    (void)state;
    static const struct { void (*then)(const char *dir); ckpt_err code; } cases[] = { { rotate, CKPT_NOT_FOUND },
        { save_again, CKPT_NOT_FOUND }, { save_same_names, CKPT_NOT_FOUND }, { lose_one, CKPT_CORRUPT } };
    for (int i = 0; i < 16; i++) {
        const char *dir = make_folder(2, ".pt"), *path = util_join(dir, "ep2");
        ckpt_gc_desc g;
        memset(&g, 0, sizeof g);
        ckpt_folder *f = look(dir);
        ok(ckpt_folder_gc(f, &g));                  // now both are in an index
        int at = ckpt_folder_find(f, "ep2");
        reading.dir = dir;
        reading.then = cases[i / 4].then;
        reading.on_open = i % 2 == 1;
        fault_set_spy(while_it_is_read);
        ckpt_err e = i % 4 < 2 ? ckpt_verify(path, NULL) : ckpt_folder_verify(f, at);
        fault_set_spy(NULL);
        assert_null(reading.then);
        if (e != cases[i / 4].code) fail_msg("case %d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        if (e == CKPT_NOT_FOUND) assert_non_null(strstr(ckpt_last_error(), "removed, or saved again"));
        ckpt_folder_close(f);
        f = look(dir);
        if (i / 4 < 3 && ckpt_folder_find(f, "ep2") >= 0) assert_false(entry(f, "ep2").damaged);
        ckpt_folder_close(f);
    }
}

// The same run has gone back and come to that step again: the same names, the same sizes, other values.
static void save_alike(const char *dir) {
    rotate(dir);
    first_of_wide = 1000.0f;
    ok(convert(make_file(util_join(dir, "../one.pt"), 20), util_join(dir, "ep2"), 2, ".pt", false, NULL));
    first_of_wide = 0.0f;
}

// Only the listing's file is another one.
static void copy_listing(const char *dir) {
    size_t size = 0;
    char *text = util_read(util_join(dir, "ep2/.metadata"), &size);
    util_write(util_join(dir, "ep2/copy"), text, size);
    assert_int_equal(rename(util_join(dir, "ep2/copy"), util_join(dir, "ep2/.metadata")), 0);
}

static void leave(const char *dir) { (void)dir; }

// Who reads on in a checkpoint that was saved again under its names gets nothing of the other save, also of a file that was not
// opened before. What is only copied is the same.
static void test_gone_while_open(void **state) {
    (void)state;
    static const struct { void (*then)(const char *dir); bool stays; } cases[] = { { rotate, false }, { save_again, false },
        { save_alike, false }, { leave, true }, { copy_listing, true } };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        const char *dir = make_folder(2, ".pt");
        ckpt_file *f = NULL;
        float value = -1.0f;
        int at = 0;
        ok(ckpt_file_open(&f, util_join(dir, "ep2")));
        while (strcmp(f->toc.entries[at].name, "state/model/wide") != 0) at++;
        ok(ckpt_file_read(f, at, 0, &value, sizeof value));
        assert_true(value == 0.0f);
        cases[i].then(dir);
        for (int k = 0; k < 2; k++) {
            uint64_t offset = k == 0 ? 4 : (ROWS * COLUMNS - 1) * sizeof value;
            ckpt_err e = ckpt_file_read(f, at, offset, &value, sizeof value);
            if (e != (cases[i].stays ? CKPT_OK : CKPT_NOT_FOUND)) fail_msg("case %d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
            if (cases[i].stays) assert_true(value == (float)(offset / 4));
            else assert_non_null(strstr(ckpt_last_error(), "ep2: it was removed, or saved again"));
        }
        ckpt_file_close(f);
    }
}

// Nor does a merge, or a split anew, of which nothing is left then.
static void test_gone_while_converted(void **state) {
    (void)state;
    static const struct { void (*then)(const char *dir); ckpt_err code; } cases[] = { { rotate, CKPT_NOT_FOUND },
        { save_again, CKPT_NOT_FOUND }, { save_alike, CKPT_NOT_FOUND }, { lose_one, CKPT_NOT_FOUND }, { copy_listing, CKPT_OK } };
    for (int i = 0; i < 2 * UTIL_COUNT(cases); i++) {
        const char *dir = make_folder(2, ".pt"), *to = util_join(dir, i % 2 == 0 ? "../to.pt" : "../to");
        ckpt_convert_desc d;
        memset(&d, 0, sizeof d);
        d.from = util_join(dir, "ep2");
        d.to = to;
        d.shards = i % 2 == 0 ? 0 : 3;
        d.no_verify = true;
        (void)remove(to);
        util_remove_tree(to);
        reading.dir = dir;
        reading.then = cases[i / 2].then;
        reading.on_open = true;
        fault_set_spy(while_it_is_read);
        ckpt_err e = ckpt_convert(&d);
        fault_set_spy(NULL);
        assert_null(reading.then);
        if (e != cases[i / 2].code) fail_msg("case %d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        assert_int_equal(util_exists(to), e == CKPT_OK);
        if (cases[i / 2].then == save_alike) assert_non_null(strstr(ckpt_last_error(), "removed, or saved again"));
        if (e == CKPT_OK) ok(ckpt_verify(to, NULL));
    }
}

// Bytes that change while they are converted: before any call of the system that the conversion makes. Nothing comes of it, or what
// they were.
static struct { const char *path; uint64_t offset; int at, seen; } rot;

static void rot_at(const char *name, const char *path) {
    (void)name;
    (void)path;
    if (++rot.seen == rot.at) util_flip(rot.path, rot.offset, 1);
}

static void test_rots_while_converted(void **state) {
    (void)state;
    static const struct { const char *to; int shards; bool merge; } jobs[] = { { "to.safetensors", 0, false }, { "to.pt", 0, false },
        { "to.pt.gz", 0, false }, { "to", 2, false }, { "to.pt", 0, true }, { "to.safetensors", 0, true }, { "to", 3, true } };
    fault_sync = FAULT_NO_SYNC;
    for (int j = 0; j < UTIL_COUNT(jobs); j++) {
        int refused = 0;
        for (int n = 1; n == 1 || rot.seen >= n - 1; n++) {
            const char *dir = util_temp_dir(), *from = make_file(util_join(dir, "one.pt"), 10), *to = util_join(dir, jobs[j].to);
            const char *want = util_join(dir, "want/one.pt"), *got = util_join(dir, "got/one.pt");
            size_t sizes[2];
            ok(convert(from, util_join(dir, "ep1"), 2, ".pt", false, NULL));
            if (jobs[j].merge) from = util_join(dir, "ep1");
            ok(convert(from, util_join(util_join(dir, "like"), jobs[j].to), jobs[j].shards, NULL, false, NULL));
            ok(convert(util_join(util_join(dir, "like"), jobs[j].to), want, 0, NULL, false, NULL));
            rot.path = jobs[j].merge ? util_join(from, "__1_0.pt") : from;
            rot.offset = jobs[j].merge ? sizeof wide / 4 : sizeof wide / 2;
            rot.seen = 0;
            rot.at = n;
            fault_set_spy(rot_at);
            ckpt_err e = convert(from, to, jobs[j].shards, NULL, false, NULL);
            fault_set_spy(NULL);
            refused += e != CKPT_OK;
            if (e != CKPT_OK) {
                if (e != CKPT_CORRUPT || strstr(ckpt_last_error(), "state/model/wide") == NULL) fail_msg("job %d, call %d: %s", j, n, ckpt_last_error());
                if (util_exists(to)) fail_msg("job %d, call %d: something is left", j, n);
            } else {
                ok(ckpt_verify(to, NULL));
                ok(convert(to, got, 0, NULL, false, NULL));
                char *a = util_slurp(want, &sizes[0]), *b = util_slurp(got, &sizes[1]);
                if (sizes[0] != sizes[1] || memcmp(a, b, sizes[0]) != 0) fail_msg("job %d, call %d: another value", j, n);
                free(a);
                free(b);
            }
            util_remove_tree(dir);
        }
        assert_true(refused > 2);
    }
    fault_sync = 0;
}

// What rotation took away since the folder was read cannot be pinned, nor can a single file, and nobody else is said to have made it.
static void test_gone_when_pinned(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *dir = make_folder(2, ".pt"), *name = i == 0 ? "ep2" : "one.pt";
        if (i == 1) make_file(util_join(dir, name), 10);
        ckpt_folder *f = look(dir);
        int at = ckpt_folder_find(f, name);
        ok(ckpt_folder_pin(f, at, false));
        ckpt_folder *other = look(dir);
        ok(ckpt_folder_remove(other, ckpt_folder_find(other, name)));
        ckpt_folder_close(other);
        assert_int_equal(ckpt_folder_pin(f, at, true), CKPT_NOT_FOUND);
        assert_non_null(strstr(ckpt_last_error(), util_fmt("%s was removed meanwhile", name)));
        ckpt_folder_close(f);
    }
}

// Rotation begins to take a directory away at any call of who lists the folder: a rank's file of it is no checkpoint of its own.
static void lose_listing(const char *dir) {
    assert_int_equal(rename(util_join(dir, "ep2/.metadata"), util_join(dir, "kept")), 0);
}

static struct { const char *dir; int left; } listing;

static void while_it_is_listed(const char *name, const char *path) {
    (void)name;
    if (path == NULL || strstr(path, listing.dir) == NULL || listing.left == 0 || --listing.left > 0) return;
    lose_listing(listing.dir);
}

static void test_gone_while_listed(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    bool more = true;
    listing.dir = dir;
    for (int n = 1; more; n++) {
        listing.left = n;
        fault_set_spy(while_it_is_listed);
        ckpt_folder *f = look(dir);
        fault_set_spy(NULL);
        for (int i = 0; i < ckpt_folder_count(f); i++) {
            ckpt_checkpoint c;
            ok(ckpt_folder_entry(f, i, &c));
            if (strcmp(c.name, "ep1") != 0 && strcmp(c.name, "ep2") != 0) fail_msg("call %d: %s is listed", n, c.name);
        }
        ckpt_folder_close(f);
        more = listing.left == 0;
        if (more) assert_int_equal(rename(util_join(dir, "kept"), util_join(dir, "ep2/.metadata")), 0);
        else assert_true(n > 5);
    }
}

//-- links that move on ----------------------------------------------------------------

// At a call, of those that are counted down, the path leads on and what it led to is taken away.
enum { BY_LINK, BY_TEXT, BY_URI, BY_NAME, WAYS };
static struct { const char *dir; int way, left; bool done; } moving;

static void rename_in(const char *from, const char *to) {
    assert_int_equal(rename(util_join(moving.dir, from), util_join(moving.dir, to)), 0);
}

static void lead_to(const char *name) {
    if (moving.way == BY_LINK) assert_int_equal(symlink(name, util_join(moving.dir, "new")), 0);
    else util_write_text(util_join(moving.dir, "new"), moving.way == BY_URI ? util_join(moving.dir, name) + 1 : name);
    rename_in("new", moving.way == BY_LINK ? "latest" : "latest.symlink");
}

static void move_on(void) {
    const bool dirs = moving.way == BY_LINK || moving.way == BY_NAME;
    if (moving.way != BY_NAME) lead_to(dirs ? "ep2" : "two.pt");
    rename_in(dirs ? "ep1" : "one.pt", "gone");
    if (moving.way == BY_NAME) rename_in("ep2", "ep1");
}

static void move_back(void) {
    const bool dirs = moving.way == BY_LINK || moving.way == BY_NAME;
    if (moving.way == BY_NAME && moving.done) rename_in("ep1", "ep2");
    if (moving.done) rename_in("gone", dirs ? "ep1" : "one.pt");
    if (moving.way != BY_NAME) lead_to(dirs ? "ep1" : "one.pt");
}

static void while_it_moves(const char *name, const char *path) {
    (void)name;
    if (path == NULL || strstr(path, moving.dir) == NULL || moving.left == 0 || --moving.left > 0) return;
    moving.done = true;
    move_on();
}

// What is loaded is one checkpoint, wholly.
static ckpt_err load_wide(const char *path, bool no_verify) {
    ckpt_state st;
    ckpt_load_desc d;
    memset(&st, 0, sizeof st);
    memset(&d, 0, sizeof d);
    int64_t shape[2] = { ROWS, COLUMNS }, one = -1;
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 2;
    memcpy(t.shape, shape, sizeof shape);
    t.data = wide;
    memset(wide, 0, sizeof wide);
    ckpt_bind(&st, "state/model/wide", &t);
    ckpt_bind_int(&st, "state/step", &one);
    d.load_path = path;
    d.state = &st;
    d.not_strict = true;
    d.no_verify = no_verify;
    ckpt_err e = ckpt_load(&d, NULL);
    for (int i = 0; i < ROWS * COLUMNS && e == CKPT_OK; i++) assert_true(wide[i] == wide[0] + (float)i);
    if (e == CKPT_OK) assert_int_equal(one, wide[0] == 0.0f ? 10 : 20);
    ckpt_state_free(&st);
    return e;
}

// A run moves its link on and takes away what it led to, or a checkpoint gets another's name, at any call of who opens it: it is
// loaded, as there is one at every instant. What is read longer than that, and then gone, is not damaged.
static void test_moves_on(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ok(convert(make_file(util_join(dir, "one.pt"), 10), util_join(dir, "ep1"), 2, ".pt", false, NULL));
    first_of_wide = 1000.0f;
    ok(convert(make_file(util_join(dir, "two.pt"), 20), util_join(dir, "ep2"), 2, ".pt", false, NULL));
    first_of_wide = 0.0f;
    for (int i = 0; i < 5 * WAYS; i++) {
        moving.dir = dir;
        moving.way = i / 5;
        const char *name = moving.way == BY_NAME ? "ep1" : moving.way == BY_LINK ? "latest" : "latest.symlink";
        const char *path = util_fmt("%s%s/%s", moving.way == BY_URI ? "file://" : "", dir, name), *to = util_join(dir, "to.pt");
        int moved = 0;
        moving.done = false;
        do {
            ckpt_file *f = NULL;
            move_back();
            moving.done = false;
            moving.left = ++moved;
            fault_set_spy(while_it_moves);
            ckpt_err e = i % 5 < 2 ? load_wide(path, i % 5 == 1) : i % 5 == 2 ? ckpt_file_open(&f, path)
                       : i % 5 == 3 ? ckpt_verify(path, NULL) : convert(path, to, 0, NULL, false, NULL);
            fault_set_spy(NULL);
            ckpt_file_close(f);
            if (e != CKPT_OK && (e != CKPT_NOT_FOUND || i % 5 < 3))
                fail_msg("way %d, case %d, call %d: %s: %s", moving.way, i % 5, moved, ckpt_err_name(e), ckpt_last_error());
            if (e != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), "removed, or saved again"));
            else if (i % 5 == 4) ok(load_wide(to, false));
        } while (moving.done);
        assert_true(moved > 5);
        move_back();
    }
}

//-- gc ------------------------------------------------------------------------------

static int gone;
static void count_gone(const char *name, uint64_t size, void *user) {
    (void)size;
    (void)user;
    if (name[0] != '.') assert_string_equal(name, "half");          // else a hidden file
    gone++;
}

// A directory that somebody moved elsewhere, with a link in its place, is a checkpoint and no link to one.
static void test_moved_elsewhere(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt"), *away = util_join(util_temp_dir(), "ep1"), *link = util_join(dir, "ep1");
    ckpt_gc_desc g;
    memset(&g, 0, sizeof g);
    ckpt_folder *f = look(dir);
    ok(ckpt_folder_gc(f, &g));                      // now both are in an index
    assert_int_equal(rename(link, away), 0);
    assert_int_equal(symlink(away, link), 0);
    assert_int_equal(rename(util_join(away, "__1_0.pt"), util_join(away, "kept")), 0);
    ckpt_folder_close(f);
    f = look(dir);
    assert_null(entry(f, "ep1").latest);
    assert_int_equal(ckpt_folder_verify(f, ckpt_folder_find(f, "ep1")), CKPT_CORRUPT);
    ok(ckpt_folder_gc(f, &g));
    assert_string_equal(util_link_target(link), away);
    ckpt_folder_close(f);
}

static void test_gc_unfinished(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    ckpt_gc_desc g;
    memset(&g, 0, sizeof g);
    g.removed = count_gone;
    assert_int_equal(rename(util_join(dir, "ep2"), util_join(dir, "half")), 0);
    assert_int_equal(unlink(util_join(dir, "half/.metadata")), 0);
    util_write_text(util_join(dir, "half/notes.txt"), "mine");
    ckpt_folder *f = look(dir);
    gone = 0;
    ok(ckpt_folder_gc(f, &g));                      // it is young
    assert_int_equal(gone, 0);
    old(dir, "half/__0_0.pt");
    ok(ckpt_folder_gc(f, &g));                      // one file is
    assert_int_equal(gone, 0);
    old(dir, "half/__1_0.pt");
    ckpt__buf temp;                                 // a process that lives writes here
    ckpt__buf_init(&temp, NULL);
    ok(ckpt__file_temp_name(&temp, util_join(dir, "half/__2_0.pt")));
    util_write_text(temp.data, "x");
    g.unfinished_now = true;
    ok(ckpt_folder_gc(f, &g));
    assert_int_equal(gone, 0);
    assert_int_equal(unlink(temp.data), 0);
    ckpt__buf_free(&temp);
    g.unfinished_now = false;
    pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    const char *dead[] = { util_fmt(".ep3.pt.%s", util_temp_tail((int)child)), util_fmt("half/.__2_0.pt.%s", util_temp_tail((int)child)) };
    for (int i = 0; i < 2; i++) {                   // of a process that is gone: one by itself, one in what goes as a whole
        util_write_text(util_join(dir, dead[i]), "x");
        old(dir, dead[i]);
    }
    g.dry_run = true;
    ok(ckpt_folder_gc(f, &g));
    assert_int_equal(gone, 2);
    assert_true(util_exists(util_join(dir, "half/__0_0.pt")));
    g.dry_run = false;
    ok(ckpt_folder_gc(f, &g));
    assert_int_equal(gone, 4);
    assert_string_equal(util_list(util_join(dir, "half")), "notes.txt\n");
    assert_true(util_exists(util_join(dir, "ep1/.metadata")));
    ckpt_folder_close(f);
    // what torch.distributed.checkpoint writes, and files of others by such a name, are nobody's business here
    util_mkdir(util_join(dir, "dcp"));
    util_write_text(util_join(dir, "dcp/.metadata"), "pickle");
    util_write_text(util_join(dir, "dcp/__0_0.distcp"), "x");
    util_write_text(util_join(dir, "dcp/__0_0.pt"), "x");
    util_mkdir(util_join(dir, "odd"));
    util_write_text(util_join(dir, "odd/__0_0.pt"), "no container at all");
    util_mkdir(util_join(dir, "other"));
    const unsigned char foreign[] = "\x38\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   abcd";
    util_write(util_join(dir, "other/__0_0.safetensors"), foreign, sizeof foreign - 1);
    old(dir, "dcp/__0_0.pt");
    old(dir, "other/__0_0.safetensors");
    f = look(dir);
    g.unfinished_now = true;
    ok(ckpt_folder_gc(f, &g));
    assert_true(util_exists(util_join(dir, "dcp/__0_0.pt")) && util_exists(util_join(dir, "other/__0_0.safetensors")));
    assert_true(util_exists(util_join(dir, "odd/__0_0.pt")));
    assert_int_equal(gone, 4);
    ckpt_folder_close(f);
}

static char strays[256];
static void note_stray(const char *name, uint64_t size, void *user) {
    (void)size;
    (void)user;
    strcat(strcat(strays, name), " ");
}

// What a killed split, or one with more ranks, has left beside a checkpoint.
static void test_gc_strays(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt"), *files[] = { ".metadata", "__0_0.pt", "__1_0.pt", "__0_48.pt", "__7_0.pt" };
    ckpt_gc_desc g;
    memset(&g, 0, sizeof g);
    g.removed = note_stray;
    util_write_text(util_join(dir, "ep1/__0_48.pt"), "cut off");
    util_write_text(util_join(dir, "ep1/__7_0.pt"), "cut off");
    util_write_text(util_join(dir, "ep1/__notes.pt"), "mine");
    ckpt_folder *f = look(dir);
    for (int i = 0; i < 5; i++) {                   // as long as one of them is young
        ok(ckpt_folder_gc(f, &g));
        assert_string_equal(strays, "");
        old(dir, util_fmt("ep1/%s", files[i]));
    }
    const char *lock = util_join(dir, "ep1" CKPT__FOLDER_SPLIT);
    int fd = -1;
    ok(ckpt__os_lock(&fd, lock));
    pid_t child = fork();
    if (child == 0) _exit(ckpt_folder_gc(f, &g) != CKPT_OK || !util_exists(util_join(dir, "ep1/__7_0.pt")));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);                    // a split comes to its end there
    ckpt__os_unlock(fd, lock);
    for (int dry = 1; dry >= 0; dry--) {
        strays[0] = 0;
        g.dry_run = dry > 0;
        ok(ckpt_folder_gc(f, &g));
        bool all = strcmp(strays, "ep1/__0_48.pt ep1/__7_0.pt ") == 0 || strcmp(strays, "ep1/__7_0.pt ep1/__0_48.pt ") == 0;
        if (!all) fail_msg("%s went", strays);
        assert_int_equal(util_exists(util_join(dir, "ep1/__7_0.pt")), dry);
        assert_int_equal(util_exists(util_join(dir, "ep1/__0_48.pt")), dry);
    }
    assert_true(util_exists(util_join(dir, "ep1/__notes.pt")) && util_exists(util_join(dir, "ep1/__1_0.pt")));
    strays[0] = 0;
    ok(ckpt_folder_gc(f, &g));
    assert_string_equal(strays, "");
    ckpt_folder_close(f);
    f = look(dir);
    ok(ckpt_folder_verify(f, ckpt_folder_find(f, "ep1")));
    ckpt_folder_close(f);
}

// What is pinned stays also when its .metadata is lost, until somebody lets it go.
static void test_pinned_without_listing(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt"), *meta = util_join(dir, "ep2/.metadata");
    ckpt_gc_desc g;
    memset(&g, 0, sizeof g);
    g.unfinished_now = true;
    g.damaged = true;
    ckpt_folder *f = look(dir);
    ok(ckpt_folder_pin(f, ckpt_folder_find(f, "ep2"), true));
    ok(ckpt_folder_gc(f, &g));
    assert_int_equal(rename(meta, util_join(dir, "kept")), 0);
    ckpt_folder_close(f);
    for (int i = 0; i < 2; i++) {
        f = look(dir);
        assert_true(entry(f, "ep2").missing && !entry(f, "ep2").unfinished && entry(f, "ep2").pinned);
        assert_int_equal(ckpt_folder_verify(f, ckpt_folder_find(f, "ep2")), CKPT_NOT_FOUND);
        ok(ckpt_folder_gc(f, &g));
        assert_string_equal(util_list(util_join(dir, "ep2")), "__0_0.pt\n__1_0.pt\n");
        ckpt_folder_close(f);
    }
    assert_int_equal(rename(util_join(dir, "kept"), meta), 0);
    f = look(dir);
    assert_true(entry(f, "ep2").pinned);
    ok(ckpt_folder_verify(f, ckpt_folder_find(f, "ep2")));
    assert_false(entry(f, "ep2").damaged);
    assert_int_equal(unlink(meta), 0);
    ok(ckpt_folder_pin(f, ckpt_folder_find(f, "ep2"), false));
    ok(ckpt_folder_gc(f, &g));
    assert_false(util_exists(util_join(dir, "ep2")));
    ckpt_folder_close(f);
}

static void shut_metadata(const char *name, const char *path) {
    const char *base = strrchr(path, '/');
    if (strcmp(name, "open") == 0 && base != NULL && strcmp(base, "/.metadata") == 0) fault_arm_here("open", EACCES);
}

// A checkpoint whose .metadata alone may not be read is one entry that does not verify, and its ranks' files are none, whether the
// index has it or not; nothing of it goes.
static void test_metadata_shut(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *sharded = util_join(dir, "sh"), *from = make_file(util_join(util_temp_dir(), "x.pt"), 1);
    ok(convert(from, sharded, 2, ".pt", false, NULL));
    util_write_text(util_join(dir, ".metadata"), "somebody's");         // no ranks' files are beside it
    const char *before = util_list(sharded);
    for (int indexed = 0; indexed < 2; indexed++) {
        ckpt_folder *f = NULL;
        ckpt_folder_desc d;
        ckpt_checkpoint c;
        ckpt_gc_desc g;
        memset(&d, 0, sizeof d);
        memset(&g, 0, sizeof g);
        d.folder = dir;
        g.damaged = g.unfinished_now = true;
        if (indexed) {
            ok(ckpt_folder_open(&f, &d));
            ok(ckpt_folder_pin(f, ckpt_folder_find(f, "sh"), true));
            ckpt_folder_close(f);
        }
        fault_set_spy(shut_metadata);
        ok(ckpt_folder_open(&f, &d));
        assert_int_equal(ckpt_folder_count(f), 1);
        ok(ckpt_folder_entry(f, 0, &c));
        assert_string_equal(c.name, "sh");
        assert_true(c.sharded && !c.damaged && !c.missing && !c.unfinished && c.foreign == !indexed);
        assert_int_equal(ckpt_folder_verify(f, 0), CKPT_AUTH);
        (void)!ckpt_folder_gc(f, &g);
        ckpt_folder_close(f);
        fault_set_spy(NULL);
        (void)fault_disarm();
        assert_string_equal(util_list(sharded), before);
        ok(ckpt_folder_open(&f, &d));
        assert_int_equal(ckpt_folder_count(f), 1);
        ok(ckpt_folder_verify(f, 0));
        ckpt_folder_close(f);
    }
}

//-- converting ----------------------------------------------------------------------

static void test_split_refusals(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt"), *ep1 = util_join(dir, "ep1");
    assert_int_equal(convert(ep1, ep1, 3, ".pt", false, NULL), CKPT_ARG);
    assert_int_equal(convert(util_join(dir, "ep1/__0_0.pt"), ep1, 3, ".pt", false, NULL), CKPT_ARG);
    ok(ckpt_verify(ep1, NULL));
    assert_int_equal(convert(ep1, util_join(dir, "x"), -1, ".pt", false, NULL), CKPT_ARG);
    util_write_text(util_join(dir, "file"), "x");
    assert_int_equal(convert(ep1, util_join(dir, "file"), 2, ".pt", false, NULL), CKPT_EXISTS);
    assert_int_equal(convert(ep1, util_join(dir, "x"), 2, ".pt.nothing", false, NULL), CKPT_UNSUPPORTED);
    static const char *const endings[] = { ".pth", "/x.pt", ".pt/x", ".pt.a/b", "pt", ".ptx.gz", ".tarry" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)       // of what nobody would know again, before anything is read
        assert_int_equal(convert(util_join(dir, "nothing"), util_join(dir, "x"), 2, endings[i], false, NULL), CKPT_ARG);
    assert_int_equal(convert(util_join(dir, "nothing"), util_join(dir, "x"), 2, ".pt.nothing", false, NULL), CKPT_UNSUPPORTED);
    assert_int_equal(convert(util_join(dir, "nothing"), util_join(dir, "x.pt.nothing"), 0, NULL, false, NULL), CKPT_UNSUPPORTED);
    assert_false(util_exists(util_join(dir, "x")));         // what a failure began is gone
    ok(convert(ep1, util_join(dir, "ep2"), 5, NULL, false, NULL));
    assert_string_equal(util_list(util_join(dir, "ep2")), ".metadata\n__0_1.pt\n__1_1.pt\n__2_1.pt\n__3_1.pt\n__4_1.pt\n");
}

// A split that fails leaves the checkpoint that it was to replace whole, and so does one that was broken off before.
static void test_split_replaces(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        const char *dir = util_temp_dir(), *to = util_join(dir, "ep1"), *meta = util_join(to, ".metadata");
        const char *hf = util_join(to, "model.safetensors.index.json"), *one = make_file(util_join(dir, "one.pt"), 10);
        const char *ending = how % 2 == 0 ? ".pt" : ".safetensors";
        ok(convert(one, to, 3, ending, true, NULL));
        ok(convert(make_file(util_join(dir, "two.pt"), 20), util_join(dir, "other"), 2, ".pt", false, NULL));
        bool failed = true;
        int failures = 0;
        for (int n = 1; failed; n++) {
            size_t before = 0, after = 0;
            char *was = util_read(meta, &before);
            if (how < 2) fault_arm_full_disk(n);
            else fault_arm(EIO, n);
            ckpt_err e = convert(util_join(dir, "two.pt"), to, 2, ending, true, NULL);
            failed = fault_disarm();
            if (!failed) ok(e);
            failures += e != CKPT_OK;
            ok(ckpt_verify(to, NULL));
            if (e != CKPT_OK) assert_memory_equal(was, util_read(meta, &after), before);
            if (e != CKPT_OK) ok(convert(one, to, 3, ending, true, NULL));
            assert_int_equal(util_exists(hf), how % 2 == 1);
        }
        assert_true(failures > 5);
    }
    const char *dir = make_folder(3, ".safetensors"), *to = util_join(dir, "ep1");
    ok(convert(util_join(dir, "ep2"), to, 2, ".pt", false, NULL));
    assert_string_equal(util_list(to), ".metadata\n__0_1.pt\n__1_1.pt\n");
    ok(convert(util_join(dir, "ep2"), to, 1, ".safetensors", true, NULL));
    assert_string_equal(util_list(to), ".metadata\n__0_2.safetensors\nmodel.safetensors.index.json\n");
    assert_int_equal(convert(util_join(dir, "ep2"), to, 1, ".pt.nothing", true, NULL), CKPT_UNSUPPORTED);
    ok(ckpt_verify(to, NULL));
    util_write_text(util_join(to, "__0_99999999.pt"), "x");
    assert_int_equal(convert(util_join(dir, "ep2"), to, 1, ".pt", true, NULL), CKPT_UNSUPPORTED);
    ok(ckpt_verify(to, NULL));
}

// The folder of a model that somebody else saved keeps its index, unless the split brings one; what was broken off leaves none.
static void test_split_beside_model(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *one = make_file(util_join(dir, "one.pt"), 10), *to = util_join(dir, "model");
    const char *hf = util_join(to, "model.safetensors.index.json");
    util_mkdir(to);
    util_write_text(hf, "theirs");
    for (int i = 0; i < 2; i++) {               // also the second time, when ranks' files lie beside it
        ok(convert(one, to, 2, ".pt", false, NULL));
        assert_string_equal(util_read(hf, NULL), "theirs");
    }
    ok(convert(one, to, 2, ".safetensors", true, NULL));
    assert_string_not_equal(util_read(hf, NULL), "theirs");
    assert_int_equal(unlink(util_join(to, ".metadata")), 0);
    ok(convert(one, to, 2, ".pt", false, NULL));
    assert_string_equal(util_list(to), ".metadata\n__0_3.pt\n__1_3.pt\n");
}

// So it does when the checkpoint beside it is removed; the index of that checkpoint itself goes with it.
static void test_remove_beside_model(void **state) {
    (void)state;
    static const char theirs[] = "{\"weight_map\": {\"__0\": \"model-1.safetensors\", \"a\": \"__x\"}}";
    for (int mine = 0; mine < 2; mine++) {
        const char *dir = util_temp_dir(), *to = util_join(dir, "model"), *hf = util_join(to, "model.safetensors.index.json");
        ok(convert(make_file(util_join(dir, "../one.pt"), 10), to, 2, mine > 0 ? ".safetensors" : ".pt", true, NULL));
        if (mine == 0) util_write_text(hf, theirs);
        ckpt_folder *f = look(dir);
        ok(ckpt_folder_remove(f, ckpt_folder_find(f, "model")));
        ckpt_folder_close(f);
        assert_string_equal(mine > 0 ? util_list(dir) : util_list(to), mine > 0 ? "" : "model.safetensors.index.json\n");
    }
}

// A split whose files or folder cannot be brought to disk takes all its files away again.
static void test_split_unsynced(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *to = util_join(dir, "ep1"), *one = make_file(util_join(dir, "one.pt"), 10);
    ok(convert(one, to, 3, ".safetensors", true, NULL));
    const char *before = util_list(to);
    int failures = 0;
    for (int n = 1; ; n++) {
        fault_arm_call("fsync", EIO, n);
        ckpt_err e = convert(one, to, 2, ".pt", true, NULL);
        if (!fault_disarm()) break;
        if (e == CKPT_OK) continue;
        failures++;
        assert_string_equal(util_list(to), before);
        ok(ckpt_verify(to, NULL));
    }
    assert_true(failures >= 4);
}

// Whole tensors go to files in order, each by where it begins among all bytes.
static struct { int finished; char name[4096]; uint64_t total; ckpt_err err; } told;

static void tell(const ckpt_progress *p, void *user) {
    (void)user;
    if (!p->finished || strcmp(p->phase, "save") != 0) return;
    told.finished++;
    snprintf(told.name, sizeof told.name, "%s", p->name);
    told.total = p->done == p->total ? p->total : 0;
    told.err = p->err;
}

// A split says once that it is over, whatever came of it.
static void test_split_reports(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *to = util_join(dir, "split");
    ckpt_convert_desc d;
    memset(&d, 0, sizeof d);
    d.from = make_file(util_join(dir, "one.pt"), 10);
    d.to = to;
    d.shards = 3;
    d.progress.fn = tell;
    for (int bad = 0; bad < 2; bad++) {
        memset(&told, 0, sizeof told);
        if (bad > 0) util_mkdir(util_join(dir, "other"));
        if (bad > 0) util_mkdir(util_join(dir, "other/__1_0.pt"));          // where a file is to be
        if (bad > 0) d.to = util_join(dir, "other");
        d.overwrite = bad > 0;
        ckpt_err e = ckpt_convert(&d);
        assert_int_equal(e == CKPT_OK, bad == 0);
        assert_int_equal(told.finished, 1);
        assert_string_equal(told.name, d.to);
        assert_int_equal(told.err, e);
        assert_true(bad > 0 || told.total > sizeof wide);
    }
}

// Two splits into one directory at the same time: one ends inside the other, at each of the other's reports. Whichever comes through
// is whole, and the other takes none of it away.
static struct { const char *from, *to, *ending; int at, seen; bool force; ckpt_err err; } rival;

static void split_too(const ckpt_progress *p, void *user) {
    ckpt_convert_desc d;
    (void)user;
    if (strcmp(p->phase, "save") != 0 || p->finished || ++rival.seen != rival.at) return;
    memset(&d, 0, sizeof d);
    d.from = rival.from;
    d.to = rival.to;
    d.shards = 2;
    d.shard_ending = rival.ending;
    d.shards_whole = true;
    d.overwrite = rival.force;
    rival.err = ckpt_convert(&d);
}

static void test_split_rivals(void **state) {
    (void)state;
    for (int how = 0; how < 12; how++) {
        bool force = how % 2 == 1, there = force && how / 2 % 2 == 1;
        memset(&rival, 0, sizeof rival);
        rival.ending = how / 4 == 0 ? ".pt" : how / 4 == 1 ? ".safetensors" : ".pt.gz";
        rival.force = how % 4 > 0;
        for (int n = 1; n == 1 || rival.seen >= n - 1; n++) {
            const char *dir = util_temp_dir();
            ckpt_convert_desc d;
            memset(&d, 0, sizeof d);
            d.from = make_file(util_join(dir, "one.pt"), 10);
            d.to = rival.to = util_join(dir, "split");
            d.shards = 3;
            d.shard_ending = ".safetensors";
            d.overwrite = force;
            d.shards_whole = true;
            d.progress.fn = split_too;
            rival.from = d.from;
            rival.at = n;
            rival.seen = 0;
            rival.err = CKPT_MISMATCH;
            if (there) ok(convert(d.from, d.to, 4, ".safetensors", true, NULL));
            ckpt_err e = ckpt_convert(&d);
            if (rival.seen < n) ok(e);
            if (rival.seen >= n && (e == CKPT_OK) == (rival.err == CKPT_OK))
                fail_msg("case %d, report %d: %s and %s", how, n, ckpt_err_name(e), ckpt_err_name(rival.err));
            if (e != CKPT_OK && e != CKPT_EXISTS) fail_msg("case %d, report %d: %s", how, n, ckpt_last_error());
            ok(ckpt_verify(d.to, NULL));
            util_remove_tree(dir);
        }
        assert_true(rival.at > 2);
    }
}

// What happens before a call of the system that one split makes: another split into the same directory, or somebody who tidies up.
static struct { const char *path, *tidy, *to; int at, seen; bool busy; } moment;

static void split_between(const char *name, const char *path) {
    (void)name;
    if (moment.busy || (moment.path != NULL && strstr(path, moment.path) == NULL) || ++moment.seen != moment.at) return;
    moment.busy = true;
    if (moment.tidy != NULL) {
        ckpt_gc_desc g;
        memset(&g, 0, sizeof g);
        g.unfinished_now = true;
        ckpt_folder *f = look(moment.tidy);
        ok(ckpt_folder_gc(f, &g));
        ckpt_folder_close(f);
    } else {
        rival.err = convert(rival.from, rival.to, 2, rival.ending, true, NULL);
    }
    moment.busy = false;
}

static ckpt_err split_with(const char *path, int at, const char *tidy) {
    memset(&moment, 0, sizeof moment);
    moment.path = path;
    moment.at = at;
    moment.tidy = tidy;
    rival.err = CKPT_MISMATCH;
    fault_set_spy(split_between);
    ckpt_err e = convert(rival.from, rival.to, 3, ".safetensors", true, NULL);
    fault_set_spy(NULL);
    return e;
}

// Whatever one split does when another replaces all of the directory: what is there then is whole, and while one writes .metadata the
// other ends.
static void test_split_rivals_calls(void **state) {
    (void)state;
    rival.ending = ".pt";
    fault_sync = FAULT_NO_SYNC;
    for (int there = 0; there < 2; there++) {
        for (int n = 0; n == 0 || moment.seen >= n; n++) {
            const char *dir = util_temp_dir();
            rival.from = make_file(util_join(dir, "one.pt"), 10);
            rival.to = util_join(dir, "split");
            if (there > 0) ok(convert(rival.from, rival.to, 4, ".safetensors", false, NULL));
            ckpt_err e = n == 0 ? split_with("/..metadata.", 1, NULL) : split_with(NULL, n, NULL);
            if (n == 0) ok(e);
            if (n == 0) assert_int_equal(rival.err, CKPT_EXISTS);
            if (e != CKPT_OK && e != CKPT_EXISTS) fail_msg("call %d: %s", n, ckpt_last_error());
            if (e != CKPT_OK && rival.err != CKPT_OK) fail_msg("call %d: neither: %s", n, ckpt_last_error());
            if (ckpt_verify(rival.to, NULL) != CKPT_OK) fail_msg("call %d: %s and %s: %s", n, ckpt_err_name(e), ckpt_err_name(rival.err), ckpt_last_error());
            assert_false(util_exists(util_join(rival.to, ".ckpt-split")));
            util_remove_tree(dir);
        }
    }
    fault_sync = 0;
}

// On a file system without locks nothing of one is left.
static void test_split_without_locks(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    fault_no_locks = true;
    ok(convert(util_join(dir, "ep2"), util_join(dir, "ep1"), 1, ".pt", false, NULL));
    fault_no_locks = false;
    assert_string_equal(util_list(util_join(dir, "ep1")), ".metadata\n__0_1.pt\n");
}

// Between two files nothing shows that a split is at work: what somebody deletes then is missed before .metadata counts.
static void test_split_tidied(void **state) {
    (void)state;
    for (int there = 0; there < 2; there++) {
        const char *dir = util_temp_dir();
        rival.from = make_file(util_join(dir, "../one.pt"), 10);
        rival.to = util_join(dir, "split");
        if (there > 0) util_mkdir(rival.to);
        if (there > 0) util_write_text(util_join(rival.to, "notes.txt"), "mine");
        assert_int_equal(split_with("/.__1_0.safetensors", 1, dir), CKPT_EXISTS);
        assert_non_null(strstr(ckpt_last_error(), "was removed by another"));
        assert_string_equal(there > 0 ? util_list(rival.to) : util_list(dir), there > 0 ? "notes.txt\n" : "");
    }
}

// Whenever somebody tidies up: a split that says it is done has left a whole checkpoint.
static void test_split_tidied_calls(void **state) {
    (void)state;
    fault_sync = FAULT_NO_SYNC;
    for (int n = 0, done = 0; n == 0 || moment.seen >= n || done == 0; n++) {
        const char *dir = util_temp_dir();
        rival.from = make_file(util_join(dir, "../one.pt"), 10);
        rival.to = util_join(dir, "split");
        ckpt_err e = n == 0 ? split_with("/..metadata.", 1, dir) : split_with(NULL, n, dir);
        done += e == CKPT_OK;
        if (e == CKPT_OK && ckpt_verify(rival.to, NULL) != CKPT_OK) fail_msg("call %d: %s", n, ckpt_last_error());
        if (n == 0) ok(e);
        util_remove_tree(dir);
    }
    fault_sync = 0;
}

static void remove_between(const char *name, const char *path) {
    (void)name;
    if (moment.busy || strstr(path, "/..metadata.") == NULL) return;
    moment.busy = true;
    ckpt_folder *f = look(moment.tidy);
    rival.err = ckpt_folder_remove(f, ckpt_folder_find(f, "ep1"));
    ckpt_folder_close(f);
}

// ep1 is damaged, the index knows that, and `latest` leads there.
static const char *make_damaged(void) {
    const char *dir = make_folder(2, ".pt");
    ckpt_gc_desc g;
    memset(&g, 0, sizeof g);
    util_write_text(util_join(dir, "ep1/__0_0.pt"), "damaged");
    ckpt_folder *f = look(dir);
    ok(ckpt_folder_gc(f, &g));                      // notes both
    assert_int_equal(ckpt_folder_verify(f, ckpt_folder_find(f, "ep1")), CKPT_CORRUPT);
    assert_true(entry(f, "ep1").damaged);
    ckpt_folder_close(f);
    assert_int_equal(symlink("ep1", util_join(dir, "latest")), 0);
    return dir;
}

// A checkpoint that a split is about to replace is not removed, and neither its line nor a link to it changes.
static void test_split_lock_of_others(void **state) {
    (void)state;
    memset(&moment, 0, sizeof moment);
    moment.tidy = make_damaged();
    const char *index = util_join(moment.tidy, ".ckpt-index.jsonl"), *was = util_read(index, NULL);
    rival.err = CKPT_MISMATCH;
    fault_set_spy(remove_between);
    ok(convert(util_join(moment.tidy, "ep2"), util_join(moment.tidy, "ep1"), 1, ".pt", false, NULL));
    fault_set_spy(NULL);
    assert_int_equal(rival.err, CKPT_EXISTS);
    ok(ckpt_verify(util_join(moment.tidy, "ep1"), NULL));
    assert_string_equal(util_link_target(util_join(moment.tidy, "latest")), "ep1");
    assert_string_equal(util_read(index, NULL), was);
}

static int  spared;
static bool spared_dry;

static void note_spared(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    spared += level == CKPT_LOG_WARN && (strstr(msg, "it stays: another checkpoint is just being put in place of") != NULL ||
                                         strstr(msg, "it stays: another checkpoint was just put in place of") != NULL);
}

static void count_removed(const char *name, uint64_t size, void *user) {
    (void)name;
    (void)size;
    (void)user;
    gone++;
}

static void (*tidy_progress)(const ckpt_progress *, void *);

static ckpt_err tidy_damaged(const char *dir) {
    ckpt_folder *f = NULL;
    ckpt_folder_desc d;
    ckpt_gc_desc g;
    memset(&d, 0, sizeof d);
    memset(&g, 0, sizeof g);
    d.folder = dir;
    d.logger.fn = note_spared;
    d.progress.fn = tidy_progress;
    g.damaged = g.unfinished_now = true;
    g.dry_run = spared_dry;
    g.removed = count_removed;
    spared = gone = 0;
    ok(ckpt_folder_open(&f, &d));
    ckpt_err e = ckpt_folder_gc(f, &g);
    ckpt_folder_close(f);
    return e;
}

static void tidy_between(const char *name, const char *path) {
    (void)name;
    if (moment.busy || strstr(path, "/..metadata.") == NULL) return;
    moment.busy = true;
    rival.err = tidy_damaged(moment.tidy);
}

// gc leaves the line and the files of such a one as they are, says so, and does the rest.
static void test_split_spared(void **state) {
    (void)state;
    for (int dry = 0; dry < 2; dry++) {
        memset(&moment, 0, sizeof moment);
        moment.tidy = make_damaged();
        spared_dry = dry > 0;
        rival.err = CKPT_MISMATCH;
        fault_set_spy(tidy_between);
        ok(convert(util_join(moment.tidy, "ep2"), util_join(moment.tidy, "ep1"), 1, ".pt", false, NULL));
        fault_set_spy(NULL);
        ok(rival.err);
        assert_int_equal(spared, 1);
        assert_int_equal(gone, 0);
        assert_non_null(strstr(util_read(util_join(moment.tidy, ".ckpt-index.jsonl"), NULL), "\"ep1/"));
        ok(ckpt_verify(util_join(moment.tidy, "ep1"), NULL));
    }
    spared_dry = false;
}

static int late_fd;
static bool late_ends;

// A split takes its lock, or is made and ended, on a server whose clock is behind.
static void split_now(void) {
    moment.busy = true;
    const char *to = util_join(moment.tidy, "ep1");
    rival.err = late_ends ? convert(util_join(moment.tidy, "ep2"), to, 1, ".pt", false, NULL)
        : ckpt__os_lock(&late_fd, util_join(to, ".ckpt-split"));
    if (late_ends) old(to, ".metadata");
}

// gc has looked, and its index is about to be written.
static void split_late(const char *name, const char *path) {
    if (!moment.busy && strcmp(name, "rename") == 0 && ckpt__txt_ends(path, "/.ckpt-index.jsonl")) split_now();
}

// gc has looked, and verifies what stays.
static void split_sooner(const ckpt_progress *p, void *user) {
    (void)user;
    if (!moment.busy && strstr(p->name, "ep2") != NULL) split_now();
}

// A split that begins, or comes to its end, between gc's look and its deletions loses nothing, and keeps its line if gc sees it before
// the index is written.
static void test_split_late(void **state) {
    (void)state;
    for (int ends = 0; ends < 3; ends++) {
        tidy_progress = ends == 2 ? split_sooner : NULL;
        memset(&moment, 0, sizeof moment);
        moment.tidy = make_damaged();
        const char *lock = util_join(moment.tidy, "ep1/.ckpt-split");
        rival.err = CKPT_MISMATCH;
        late_ends = ends > 0;
        late_fd = -1;
        if (ends < 2) fault_set_spy(split_late);
        ok(tidy_damaged(moment.tidy));
        fault_set_spy(NULL);
        tidy_progress = NULL;
        ok(rival.err);
        assert_int_equal(spared, 1);
        assert_int_equal(gone, 0);
        assert_int_equal(strstr(util_read(util_join(moment.tidy, ".ckpt-index.jsonl"), NULL), "\"ep1/") != NULL, ends == 2);
        assert_true(util_exists(util_join(moment.tidy, "ep1/.metadata")));
        if (ends) ok(ckpt_verify(util_join(moment.tidy, "ep1"), NULL));
        ckpt__os_unlock(late_fd, lock);
        assert_false(util_exists(lock));
    }
}

// A split is made and ended in an old directory while gc verifies the damaged one before it.
static void split_old(const ckpt_progress *p, void *user) {
    (void)user;
    if (moment.busy || strstr(p->name, "/ep1") == NULL) return;
    moment.busy = true;
    moment.to = util_join(moment.tidy, "ep2");
    rival.err = convert(util_join(moment.tidy, "ep3"), moment.to, 1, ".pt", false, NULL);
}

// The same while gc, which has lost the index, has found one of the two old ones, and not yet the other.
static void split_found(const char *name, const char *path) {
    bool one = ckpt__txt_ends(path, "/ep1/.metadata"), two = ckpt__txt_ends(path, "/ep2/.metadata");
    if (moment.busy || strcmp(name, "open") != 0 || (!one && !two)) return;
    const char *to = util_join(moment.tidy, one ? "ep1" : "ep2");
    if (moment.to == NULL) moment.to = to;
    if (strcmp(moment.to, to) == 0) return;
    moment.busy = true;
    rival.err = convert(util_join(moment.tidy, "ep3"), moment.to, 1, ".pt", false, NULL);
}

// Nor does rotation let go what a split puts in place of what was old, whatever gc does first.
static void test_split_of_old(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        memset(&moment, 0, sizeof moment);
        moment.tidy = make_damaged();
        ok(convert(make_file(util_join(moment.tidy, "../one.pt"), 30), util_join(moment.tidy, "ep3"), 1, ".pt", false, NULL));
        if (lost) assert_int_equal(unlink(util_join(moment.tidy, ".ckpt-index.jsonl")), 0);
        rival.err = CKPT_MISMATCH;
        ckpt_folder_desc d;
        ckpt_gc_desc g;
        memset(&d, 0, sizeof d);
        memset(&g, 0, sizeof g);
        d.folder = moment.tidy;
        d.logger.fn = note_spared;
        if (!lost) d.progress.fn = split_old;
        g.num_checkpoints_to_keep = 1;
        g.damaged = true;
        g.removed = count_removed;
        spared = gone = 0;
        ckpt_folder *f = NULL;
        ok(ckpt_folder_open(&f, &d));
        if (lost) fault_set_spy(split_found);
        ckpt_err e = ckpt_folder_gc(f, &g);
        fault_set_spy(NULL);
        ckpt_folder_close(f);
        ok(e);
        ok(rival.err);
        assert_int_equal(spared, 1);
        assert_int_equal(gone, 1);
        ok(ckpt_verify(moment.to, NULL));
        ok(ckpt_verify(util_join(moment.tidy, "ep3"), NULL));
    }
}

// What a clock that is ahead has dated, or a copy that kept its time, goes like any other.
static void test_split_ahead(void **state) {
    (void)state;
    const char *dir = make_damaged();
    struct timeval t[2];
    memset(t, 0, sizeof t);
    t[0].tv_sec = t[1].tv_sec = time(NULL) + 86400;
    assert_int_equal(utimes(util_join(dir, "ep1/.metadata"), t), 0);
    ok(tidy_damaged(dir));
    assert_int_equal(spared, 0);
    assert_int_equal(gone, 1);
    assert_false(util_exists(util_join(dir, "ep1")));
}

static void no_opening_of_lock(const char *name, const char *path) {
    if (strcmp(name, "open") == 0 && strstr(path, "/.ckpt-split") != NULL) fault_arm_here("open", EACCES);
}

// The lock of a split that was killed keeps nobody away, and goes too. One that cannot be opened, or that is only the word of another
// machine where there are no locks, does so for an hour.
static void test_split_lock_of_dead(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        const char *dir = make_folder(2, ".pt");
        util_write_text(util_join(dir, "ep1/.ckpt-split"), how == 1 ? "1 another-machine 17\n" : "");
        util_write_text(util_join(dir, "ep2/.ckpt-split"), how == 1 ? "1 another-machine 17\n" : "");
        fault_no_locks = how == 1;
        if (how == 2) fault_set_spy(no_opening_of_lock);
        ckpt_folder *f = look(dir);
        if (how > 0) assert_int_equal(ckpt_folder_remove(f, ckpt_folder_find(f, "ep1")), CKPT_EXISTS);
        if (how > 0) old(dir, "ep1/.ckpt-split");
        ok(ckpt_folder_remove(f, ckpt_folder_find(f, "ep1")));
        ckpt_folder_close(f);
        assert_false(util_exists(util_join(dir, "ep1")));
        assert_int_equal(unlink(util_join(dir, "ep2/.metadata")), 0);
        ok(tidy_damaged(dir));
        assert_int_equal(spared, how > 0);
        assert_int_equal(util_exists(util_join(dir, "ep2")), how > 0);
        if (how > 0) old(dir, "ep2/.ckpt-split");
        ok(tidy_damaged(dir));
        assert_false(util_exists(util_join(dir, "ep2")));
        fault_set_spy(NULL);
        (void)fault_disarm();
        fault_no_locks = false;
    }
}

// A directory that another split makes while the source is fetched and opened was not there to be replaced.
static void rival_begins(const char *name, const char *path) {
    if (strcmp(name, "open") != 0 || strstr(path, "one.pt") == NULL || util_exists(rival.to)) return;
    util_mkdir(rival.to);
    util_write_text(util_join(rival.to, "__0_0.pt"), "x");
}

static void test_split_appeared(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_convert_desc d;
    memset(&d, 0, sizeof d);
    d.from = make_file(util_join(dir, "one.pt"), 10);
    d.to = rival.to = util_join(dir, "split");
    d.shards = 3;
    fault_set_spy(rival_begins);
    assert_int_equal(ckpt_convert(&d), CKPT_EXISTS);
    fault_set_spy(NULL);
    assert_string_equal(util_list(d.to), "__0_0.pt\n");
}

// A file of the very directory that is read: without it that would be no checkpoint any more.
static void test_merge_into_itself(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".safetensors"), *from = util_join(dir, "ep1"), *link = util_join(dir, "way");
    ok(convert(from, util_join(dir, "whole"), 2, ".safetensors", true, NULL));
    assert_int_equal(symlink("ep1", link), 0);
    static const char *const own[] = { ".metadata", "__0_0.safetensors", "__1_0.safetensors" };
    for (int i = 0; i < UTIL_COUNT(own); i++) {
        assert_int_equal(convert(from, util_join(from, own[i]), 0, NULL, false, NULL), CKPT_ARG);
        assert_non_null(strstr(ckpt_last_error(), "of the checkpoint itself"));
        assert_int_equal(convert(from, util_join(link, own[i]), 0, NULL, false, NULL), CKPT_ARG);
        assert_int_equal(convert(link, util_join(from, own[i]), 0, NULL, false, NULL), CKPT_ARG);
    }
    assert_int_equal(convert(util_join(dir, "whole"), util_join(dir, "whole/model.safetensors.index.json"), 0, NULL, false, NULL), CKPT_ARG);
    ok(ckpt_verify(from, NULL));
    ok(ckpt_verify(util_join(dir, "whole"), NULL));
    ok(convert(from, util_join(from, "all.pt"), 0, NULL, false, NULL));
    ok(convert(from, util_join(from, "all.pt"), 0, NULL, false, NULL));
    ok(ckpt_verify(util_join(from, "all.pt"), NULL));
}

static void test_split_whole(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    for (int n = 1; n < 5; n++) {
        ckpt_file *f = NULL;
        const char *to = util_join(dir, util_fmt("whole%d", n));
        ok(convert(util_join(dir, "ep1"), to, n, ".safetensors", true, NULL));
        assert_true(util_exists(util_join(to, "model.safetensors.index.json")));
        ok(ckpt_verify(to, NULL));
        ok(ckpt_file_open(&f, to));
        assert_int_equal(ckpt_file_ranks(f), n);
        for (int i = 0; i < ckpt_file_count(f); i++) {
            ckpt_entry e;
            ok(ckpt_file_entry(f, i, &e));
            assert_true(e.pieces <= 1);
        }
        ckpt_file_close(f);
    }
}

//-- no memory -----------------------------------------------------------------------

static void test_no_memory_convert(void **state) {
    (void)state;
    const char *dir = make_folder(2, ".pt");
    struct { int shards; bool whole; const char *to, *from; } jobs[] = {
        { 3, false, "split", "ep1" }, { 2, true, "whole", "../one.pt" }, { 0, false, "merged.pt", "ep1" }
    };
    for (int j = 0; j < 3; j++) {
        bool made = false;
        for (int n = 1; ; n += n < 40 ? 1 : 3) {
            counting c = { 0, 0, n };
            ckpt_allocator a = { counting_fn, &c };
            const char *to = util_join(dir, jobs[j].to), *ending = jobs[j].whole ? ".safetensors" : ".pt";
            ckpt_err e = convert(util_join(dir, jobs[j].from), to, jobs[j].shards, ending, jobs[j].whole, &a);
            assert_int_equal(c.live, 0);
            if (e == CKPT_OK && c.calls < n) break;
            assert_true(e == CKPT_NOMEM || e == CKPT_OK);
            made = made || e == CKPT_OK;
            if (jobs[j].shards > 0) assert_int_equal(util_exists(util_join(to, ".metadata")), made);
        }
        ok(ckpt_verify(util_join(dir, jobs[j].to), NULL));
    }
}

static void test_no_memory_folder(void **state) {
    (void)state;
    for (int what = 0; what < 4; what++) {
        bool done = false;
        for (int n = 1; !done; n += n < 40 ? 1 : 3) {
            const char *dir = util_temp_dir();
            ckpt_folder *f = NULL;
            ckpt_folder_desc d;
            ckpt_gc_desc g;
            memset(&d, 0, sizeof d);
            memset(&g, 0, sizeof g);
            make_file(util_join(dir, "../two.pt"), 10);
            ok(convert(util_join(dir, "../two.pt"), util_join(dir, "ep1"), 2, ".pt", false, NULL));
            ok(convert(util_join(dir, "../two.pt"), util_join(dir, "ep2"), 2, ".pt", false, NULL));
            assert_int_equal(symlink("ep2", util_join(dir, "latest")), 0);
            if (what == 3) assert_int_equal(unlink(util_join(dir, "ep2/.metadata")), 0);
            counting c = { 0, 0, n };
            d.folder = dir;
            d.allocator.fn = counting_fn;
            d.allocator.user = &c;
            g.unfinished_now = true;
            ckpt_err e = ckpt_folder_open(&f, &d);
            int at = e == CKPT_OK ? ckpt_folder_find(f, "ep2") : -1;
            if (e == CKPT_OK && at >= 0 && what == 0) e = ckpt_folder_verify(f, at);
            if (e == CKPT_OK && at >= 0 && what == 1) e = ckpt_folder_pin(f, at, true);
            if (e == CKPT_OK && at >= 0 && what == 2) e = ckpt_folder_remove(f, at);
            if (e == CKPT_OK && what == 3) e = ckpt_folder_gc(f, &g);
            ckpt_folder_close(f);
            assert_int_equal(c.live, 0);
            if (e != CKPT_OK && e != CKPT_NOMEM) fail_msg("case %d, allocation %d: %s: %s", what, n, ckpt_err_name(e), ckpt_last_error());
            ok(ckpt_verify(util_join(dir, "ep1"), NULL));
            done = c.calls < n;
            if (done && what == 2) assert_string_equal(util_link_target(util_join(dir, "latest")), "ep1");
            if (done && what == 3) assert_false(util_exists(util_join(dir, "ep2")));
            util_remove_tree(dir);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_opened_elsewhere), cmocka_unit_test(test_entries),
    cmocka_unit_test(test_store_time),
    cmocka_unit_test(test_view), cmocka_unit_test(test_unfinished_last),
    cmocka_unit_test(test_damage), cmocka_unit_test(test_gone_while_verified),
    cmocka_unit_test(test_gone_while_open), cmocka_unit_test(test_gone_while_converted),
    cmocka_unit_test(test_rots_while_converted), cmocka_unit_test(test_moves_on),
    cmocka_unit_test(test_gone_when_pinned), cmocka_unit_test(test_gone_while_listed),
    cmocka_unit_test(test_moved_elsewhere),
    cmocka_unit_test(test_gc_unfinished), cmocka_unit_test(test_gc_strays), cmocka_unit_test(test_pinned_without_listing),
    cmocka_unit_test(test_split_refusals),
        cmocka_unit_test(test_metadata_shut), cmocka_unit_test(test_split_replaces),
    cmocka_unit_test(test_split_beside_model), cmocka_unit_test(test_remove_beside_model),
    cmocka_unit_test(test_split_reports), cmocka_unit_test(test_split_unsynced),
    cmocka_unit_test(test_split_rivals), cmocka_unit_test(test_split_appeared), cmocka_unit_test(test_merge_into_itself),
    cmocka_unit_test(test_split_rivals_calls), cmocka_unit_test(test_split_without_locks), cmocka_unit_test(test_split_tidied),
    cmocka_unit_test(test_split_tidied_calls), cmocka_unit_test(test_split_lock_of_others), cmocka_unit_test(test_split_spared),
    cmocka_unit_test(test_split_late), cmocka_unit_test(test_split_of_old), cmocka_unit_test(test_split_ahead),
    cmocka_unit_test(test_split_lock_of_dead),
    cmocka_unit_test(test_split_whole),
    cmocka_unit_test(test_no_memory_convert),
    cmocka_unit_test(test_no_memory_folder)
};

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    util_clear_env();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
