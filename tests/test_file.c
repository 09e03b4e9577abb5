// Proves one checkpoint file: every container and compression both ways, every byte flipped, every length cut, what fits a
// binding and what does not, partial reads, hidden files, no memory, odd inputs, 100,000 entries, several threads. run.sh: tsan-long
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include <sys/resource.h>

//-- a state with one of everything --------------------------------------------------

enum { DTYPES = 17, ELEMENTS = 6 };

typedef struct world {
    ckpt_state    st;
    int           dtypes;
    unsigned char cells[DTYPES][ELEMENTS * 16];
    float         weights[40];
    int64_t       step;
    double        lr;
    bool          flag, no;
    char          text[40];
    unsigned char bytes[33], none[1];
    double        betas[2];
    float         scalar;
} world;

// Fills everything with values that depend on `seed`; 0 makes it blank.
static void world_fill(world *w, unsigned seed) {
    unsigned char *cells = &w->cells[0][0];
    for (size_t i = 0; i < sizeof w->cells; i++) cells[i] = (unsigned char)(i * 7 * seed + seed);
    for (int i = 0; i < ELEMENTS * 16; i++) w->cells[CKPT_BOOL - 1][i] = seed != 0 && i % 2 == 0;
    for (int i = 0; i < 40; i++) w->weights[i] = (float)i * 0.25f * (float)seed;
    w->step = seed == 0 ? 0 : -123456789012345 * (int64_t)seed;
    w->lr = 0.1 * (double)seed;
    w->flag = seed != 0;
    w->no = false;
    snprintf(w->text, sizeof w->text, "%s", seed == 0 ? "" : "na\xc3\xafve text");
    for (size_t i = 0; i < sizeof w->bytes; i++) w->bytes[i] = (unsigned char)(i * seed);
    w->betas[0] = 0.9 * (double)seed;
    w->betas[1] = 0.999 * (double)seed;
    w->scalar = 3.5f * (float)seed;
}

// .safetensors has no complex128.
static void world_bind(world *w, bool c128) {
    ckpt_state *st = &w->st;
    memset(w, 0, sizeof *w);
    w->dtypes = c128 ? DTYPES : DTYPES - 1;
    for (int i = 0; i < w->dtypes; i++) {
        ckpt_tensor t = {0};
        t.dtype = (ckpt_dtype)(i + 1);
        t.ndim = 2;
        t.shape[0] = 2;
        t.shape[1] = 3;
        t.data = w->cells[i];
        ckpt_bind(st, util_fmt("state/model/all.%s", ckpt__state_dtype_name(t.dtype)), &t);
    }
    ckpt_bind_f32(st, "state/model/w", w->weights, 40);
    ckpt_tensor zero = {0};
    zero.dtype = CKPT_F32;
    zero.data = &w->scalar;
    ckpt_bind(st, "state/model/scalar", &zero);
    zero.ndim = 2;
    zero.shape[1] = 5;
    zero.data = NULL;
    ckpt_bind(st, "state/model/empty", &zero);
    ckpt_bind_int(st, "state/optimizers/AdamW/step", &w->step);
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[0]/lr", &w->lr);
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[0]/betas/[0]", &w->betas[0]);
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[0]/betas/[1]", &w->betas[1]);
    ckpt_bind_bool(st, "state/flag", &w->flag);
    ckpt_bind_bool(st, "state/no", &w->no);
    ckpt_bind_text(st, "state/text", w->text, sizeof w->text);
    ckpt_bind_bytes(st, "rng/0/xoshiro", w->bytes, sizeof w->bytes);
    ckpt_bind_bytes(st, "rng/0/none", w->none, 0);
    assert_int_equal(ckpt__state_check(st), CKPT_OK);
}

static void expect_world(const world *w, unsigned seed, const char *where) {
    world *want = (world *)calloc(1, sizeof *want);
    world_fill(want, seed);
    for (int i = 0; i < w->dtypes; i++) {
        size_t n = ELEMENTS * ckpt__state_dtype_size((ckpt_dtype)(i + 1));
        if (memcmp(w->cells[i], want->cells[i], n) != 0) fail_msg("%s: %s differs", where, ckpt__state_dtype_name((ckpt_dtype)(i + 1)));
    }
    if (memcmp(w->weights, want->weights, sizeof w->weights) != 0) fail_msg("%s: weights differ", where);
    if (w->step != want->step || w->flag != want->flag || w->no != want->no) fail_msg("%s: scalars differ", where);
    if (memcmp(&w->lr, &want->lr, 8) != 0 || memcmp(w->betas, want->betas, 16) != 0) fail_msg("%s: floats differ", where);
    if (memcmp(&w->scalar, &want->scalar, 4) != 0) fail_msg("%s: the tensor of no dimension differs", where);
    if (strcmp(w->text, want->text) != 0) fail_msg("%s: text is '%s'", where, w->text);
    if (memcmp(w->bytes, want->bytes, sizeof w->bytes) != 0) fail_msg("%s: bytes differ", where);
    free(want);
}

static ckpt_err load(const char *path, ckpt_state *st) {
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = st;
    return ckpt_load(&d, NULL);
}

static ckpt_err load_loose(const char *path, ckpt_state *st) {
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = st;
    d.not_strict = true;
    return ckpt_load(&d, NULL);
}

static ckpt_timestamp some_time(void) {
    ckpt_timestamp t = {0};
    t.iteration = 1; t.epoch = 2; t.batch = 300; t.sample = 4000; t.token = 50000;
    t.epoch_in_iteration = 6; t.token_in_iteration = 7; t.batch_in_epoch = 8; t.sample_in_epoch = 9; t.token_in_epoch = 10;
    t.total_wct = 11.5; t.iteration_wct = 12.25; t.epoch_wct = 13.125; t.batch_wct = 0.1;
    return t;
}

//-- formats -----------------------------------------------------------------------

static void test_formats(void **unused) {
    (void)unused;
    static const struct { const char *name; ckpt_err err; bool st, tar; const char *codec; } rows[] = {
        { "a.pt", CKPT_OK, false, false, NULL },           { "a", CKPT_OK, false, false, NULL },
        { "a.bin", CKPT_OK, false, false, NULL },          { "x.tar/a", CKPT_OK, false, false, NULL },
        { "a.safetensors", CKPT_OK, true, false, NULL },   { "a.tar", CKPT_OK, false, true, NULL },
        { "a.tar.gz", CKPT_OK, false, true, "gz" },        { "a.tgz", CKPT_OK, false, true, "gz" },
        { "a.tar.bz2", CKPT_OK, false, true, "bz2" },      { "a.tar.lzma", CKPT_OK, false, true, "xz" },
        { "a.pt.gz", CKPT_OK, false, false, "gz" },        { "a.pt.bz2", CKPT_OK, false, false, "bz2" },
        { "a.pt.lz4", CKPT_OK, false, false, "lz4" },      { "a.pt.lzma", CKPT_OK, false, false, "lzma" },
        { "a.pt.lzo", CKPT_OK, false, false, "lzo" },      { "a.pt.xz", CKPT_OK, false, false, "xz" },
        { "a.pt.zst", CKPT_OK, false, false, "zst" },      { "a.safetensors.zst", CKPT_OK, true, false, "zst" },
        { "a.safetensors.tar", CKPT_OK, true, true, NULL }, { "a.gz", CKPT_OK, false, false, NULL },
        { "a.pt.rar", CKPT_UNSUPPORTED, false, false, NULL }, { "a.safetensors.7z", CKPT_UNSUPPORTED, false, false, NULL },
        { "a.tar.xz", CKPT_ARG, false, false, NULL },      { "a.pt.symlink", CKPT_ARG, false, false, NULL },
        { "dir/", CKPT_ARG, false, false, NULL },          { "", CKPT_ARG, false, false, NULL }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__file_format f;
        ckpt_err e = ckpt__file_format_of(rows[i].name, &f);
        if (e != rows[i].err) fail_msg("'%s': %s", rows[i].name, ckpt_err_name(e));
        if (e != CKPT_OK) continue;
        bool codec = rows[i].codec == NULL ? f.codec == NULL : f.codec != NULL && strcmp(f.codec->suffix, rows[i].codec) == 0;
        if (f.safetensors != rows[i].st || f.tar != rows[i].tar || !codec) fail_msg("'%s': wrong format", rows[i].name);
    }
}

static void round_trip(const char *path) {
    world *w = (world *)malloc(sizeof *w);
    world_bind(w, strstr(path, ".safetensors") == NULL);
    world_fill(w, 3);
    ckpt_timestamp t = some_time(), at;
    ckpt_err e = ckpt_save(path, &w->st, &t);
    if (e == CKPT_UNSUPPORTED && strstr(ckpt_last_error(), "install the package") != NULL) {
        printf("SKIP: %s\n", ckpt_last_error());
    } else {
        must(e);
        world_fill(w, 0);
        memset(&at, 0xEE, sizeof at);
        ckpt_load_desc d = {0};
        d.load_path = path;
        d.state = &w->st;
        must(ckpt_load(&d, &at));
        expect_world(w, 3, path);
        assert_memory_equal(&at, &t, sizeof at);
        ckpt_file *f = NULL;
        must(ckpt_file_open(&f, path));
        assert_int_equal(ckpt_file_count(f), w->st.count + CKPT__CLOCKS);
        must(ckpt_file_verify(f));
        ckpt_file_close(f);
    }
    ckpt_state_free(&w->st);
    free(w);
}

static void test_round_trips(void **unused) {
    (void)unused;
    static const char *const names[] = { "a.pt", "a.bin", "a", "a.safetensors", "a.tar", "a.safetensors.tar", "a.tar.gz", "a.tgz",
        "a.tar.bz2", "a.tar.lzma", "a.pt.gz", "a.pt.bz2", "a.pt.lz4", "a.pt.lzma", "a.pt.lzo", "a.pt.xz", "a.pt.zst",
        "a.safetensors.gz", "a.safetensors.zst" };
    const char *dir = util_temp_dir();
    for (int i = 0; i < UTIL_COUNT(names); i++) round_trip(util_join(dir, names[i]));
    for (int i = 0; i < UTIL_COUNT(names); i++) (void)unlink(util_join(dir, names[i]));
    assert_string_equal(util_list(dir), "");                // nothing hidden is left
}

// The content decides, not the name.
static void test_content_decides(void **unused) {
    (void)unused;
    static const char *const names[] = { "a.pt", "a.safetensors", "a.tar", "a.pt.gz" };
    const char *dir = util_temp_dir();
    world *w = (world *)malloc(sizeof *w);
    world_bind(w, false);
    for (int i = 0; i < 4; i++) {
        const char *path = util_join(dir, names[i]);
        world_fill(w, 2);
        must(ckpt_save(path, &w->st, NULL));
        for (int k = 0; k < 4; k++) {
            const char *other = util_fmt("%s/%d%s", dir, i, names[k]);
            assert_int_equal(rename(path, other), 0);
            path = other;
            world_fill(w, 0);
            must(load(path, &w->st));
            expect_world(w, 2, path);
        }
    }
    ckpt_state_free(&w->st);
    free(w);
}

//-- damage ------------------------------------------------------------------------

typedef struct small { ckpt_state st; float w[5]; int64_t step; char text[8]; unsigned char bytes[3]; } small;

static void small_bind(small *s) {
    memset(s, 0, sizeof *s);
    ckpt_bind_f32(&s->st, "state/model/w", s->w, 5);
    ckpt_bind_int(&s->st, "state/step", &s->step);
    ckpt_bind_text(&s->st, "state/text", s->text, sizeof s->text);
    ckpt_bind_bytes(&s->st, "rng/0/x", s->bytes, 3);
    for (int i = 0; i < 5; i++) s->w[i] = (float)(i + 1);
    s->step = 42;
    memcpy(s->text, "abc", 4);
    memcpy(s->bytes, "xyz", 3);
}

// Every byte with one bit turned, and with all of them turned: load and verify both say CKPT_CORRUPT and name the file.
static void flip_all(const char *path) {
    small s;
    small_bind(&s);
    ckpt_timestamp t = some_time();
    must(ckpt_save(path, &s.st, &t));
    size_t size;
    char *whole = util_slurp(path, &size);
    for (size_t i = 0; i < 2 * size; i += UTIL_STRIDE(3)) {
        unsigned mask = i < size ? 1u << (i % 8) : 0xFF;
        util_flip(path, i % size, mask);
        ckpt_err e = load(path, &s.st);
        if (e != CKPT_CORRUPT) fail_msg("%s: byte %zu ^ %02x: load gives %s %s", path, i % size, mask, ckpt_err_name(e), e ? ckpt_last_error() : "");
        if (strstr(ckpt_last_error(), path) == NULL) fail_msg("the sentence does not name the file: %s", ckpt_last_error());
        ckpt_file *f = NULL;
        e = ckpt_file_open(&f, path);
        if (e == CKPT_OK) e = ckpt_file_verify(f);
        if (e != CKPT_CORRUPT) fail_msg("%s: byte %zu ^ %02x: verify gives %s", path, i % size, mask, ckpt_err_name(e));
        ckpt_file_close(f);
        util_flip(path, i % size, mask);
    }
    must(load(path, &s.st));
    free(whole);
    ckpt_state_free(&s.st);
}

static void test_flip_pt(void **unused) { (void)unused; flip_all(util_join(util_temp_dir(), "a.pt")); }
static void test_flip_safetensors(void **unused) { (void)unused; flip_all(util_join(util_temp_dir(), "a.safetensors")); }
static void test_flip_tar(void **unused) { (void)unused; flip_all(util_join(util_temp_dir(), "a.tar")); }

static void test_flip_names_entry(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.safetensors");
    small s;
    small_bind(&s);
    must(ckpt_save(path, &s.st, NULL));
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, path));
    int at = ckpt__toc_find(&f->toc, "state/model/w");
    uint64_t offset = f->toc.entries[at].offset;
    util_flip(path, offset, 4);
    assert_int_equal(ckpt_file_verify(f), CKPT_CORRUPT);
    expect_sentence("state/model/w");
    ckpt_file_close(f);
    assert_int_equal(load(path, &s.st), CKPT_CORRUPT);
    expect_sentence("state/model/w");
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = &s.st;
    d.no_verify = true;
    must(ckpt_load(&d, NULL));                                  // asked for
    ckpt_state_free(&s.st);
}

static void truncate_all(const char *path, size_t step) {
    small s;
    small_bind(&s);
    ckpt_err e = ckpt_save(path, &s.st, NULL);
    must(e);
    size_t size;
    char *whole = util_slurp(path, &size);
    for (size_t left = size; left > 0; left = left > step ? left - step : 0) {
        size_t n = left - 1;
        assert_int_equal(truncate(path, (off_t)n), 0);
        e = load(path, &s.st);
        if (e != CKPT_CORRUPT) fail_msg("%s cut to %zu of %zu: %s %s", path, n, size, ckpt_err_name(e), e ? ckpt_last_error() : "");
        ckpt_file *f = NULL;
        e = ckpt_file_open(&f, path);
        if (e == CKPT_OK) e = ckpt_file_verify(f);
        if (e != CKPT_CORRUPT) fail_msg("%s cut to %zu of %zu: verify gives %s", path, n, size, ckpt_err_name(e));
        ckpt_file_close(f);
    }
    for (size_t more = 1; more <= 1000; more *= 10) {           // and something behind the end
        char *longer = (char *)calloc(1, size + more);
        memcpy(longer, whole, size);
        memset(longer + size, 'x', more);
        util_write(path, longer, size + more);
        e = load(path, &s.st);
        if (e != CKPT_CORRUPT) fail_msg("%s with %zu bytes behind it: %s", path, more, ckpt_err_name(e));
        free(longer);
    }
    free(whole);
    ckpt_state_free(&s.st);
}

static void test_truncate(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    truncate_all(util_join(dir, "a.pt"), 1);
    truncate_all(util_join(dir, "a.safetensors"), 1);
    truncate_all(util_join(dir, "a.tar"), 1);
}

static void test_truncate_compressed(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    truncate_all(util_join(dir, "a.pt.gz"), 41);
    truncate_all(util_join(dir, "a.tar.gz"), 83);
}

// Some bytes of a compressed stream mean nothing (the time in gzip's header): a changed one is found, or changes nothing.
static void test_flip_compressed(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt.gz");
    small s;
    small_bind(&s);
    must(ckpt_save(path, &s.st, NULL));
    size_t size;
    free(util_slurp(path, &size));
    int found = 0, tries = 0;
    for (size_t i = 0; i < size; i += 17, tries++) {
        util_flip(path, i, 0x10);
        memset(s.w, 0, sizeof s.w);
        ckpt_err e = load(path, &s.st);
        if (e == CKPT_CORRUPT) found++;
        else if (e != CKPT_OK || s.w[4] != 5.0f) fail_msg("byte %zu: %s", i, ckpt_err_name(e));
        util_flip(path, i, 0x10);
    }
    assert_true(found >= tries - 2);
    ckpt_state_free(&s.st);
}

//-- odd inputs --------------------------------------------------------------------

static void expect_open(const char *path, ckpt_err want, const char *part) {
    ckpt_file *f = (ckpt_file *)(uintptr_t)8;
    ckpt_err e = ckpt_file_open(&f, path);
    if (e != want) fail_msg("%s: %s %s", path, ckpt_err_name(e), ckpt_last_error());
    assert_null(f);
    expect_sentence(part);
    ckpt_state st = {0};
    assert_int_equal(load(path, &st), want);
}

static void test_odd_inputs(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    expect_open(util_join(dir, "missing.pt"), CKPT_NOT_FOUND, "missing.pt");
    expect_open(dir, CKPT_UNSUPPORTED, "folder");
    util_write_text(util_join(dir, "empty.pt"), "");
    expect_open(util_join(dir, "empty.pt"), CKPT_CORRUPT, "empty");
    assert_int_equal(mkfifo(util_join(dir, "pipe.pt"), 0600), 0);
    expect_open(util_join(dir, "pipe.pt"), CKPT_IO, "not a regular file");
    util_write_text(util_join(dir, "text"), "this is no checkpoint\nat all");
    expect_open(util_join(dir, "text"), CKPT_CORRUPT, "no .pt, .safetensors or .tar");
    util_write(util_join(dir, "old"), "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02", 17);
    expect_open(util_join(dir, "old"), CKPT_UNSUPPORTED, "PyTorch before 1.6");
    util_write(util_join(dir, "old4.pt"), "\x80\x04\x95\x0d\0\0\0\0\0\0\0\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 24);
    expect_open(util_join(dir, "old4.pt"), CKPT_UNSUPPORTED, "PyTorch before 1.6");
    util_write(util_join(dir, "bare.pt"), "\x80\x04\x95\x02\0\0\0\0\0\0\0}.", 13);
    expect_open(util_join(dir, "bare.pt"), CKPT_UNSUPPORTED, "bare pickle");
    util_write_text(util_join(dir, "model.safetensors.index.json"), "{\n  \"metadata\": {\"total_size\": 4},\n  \"weight_map\": {}\n}\n");
    expect_open(util_join(dir, "model.safetensors.index.json"), CKPT_UNSUPPORTED, "load each of them");
    util_write(util_join(dir, ".metadata"), "\x80\x02" "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81.", 53);
    expect_open(util_join(dir, ".metadata"), CKPT_UNSUPPORTED, "dcp_to_torch");
    static const char *const pointers[] = { "lfs.safetensors", "lfs.pt", "lfs.tar", "lfs.pt.gz", "lfs" };
    for (int i = 0; i < UTIL_COUNT(pointers); i++) {
        util_write_text(util_join(dir, pointers[i]), "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b"
                                                     "1258daaa5e2ca24d17e2393\nsize 12345\n");
        expect_open(util_join(dir, pointers[i]), CKPT_UNSUPPORTED, "git lfs pull");
        util_write(util_join(dir, pointers[i]), "\x02\x21\x4c\x18\x04\0\0\0\x30xyz", 12);
        expect_open(util_join(dir, pointers[i]), CKPT_UNSUPPORTED, "lz4 -l");
    }
    static const char *const sparse[] = { "sparse", "sparse.pt", "sparse.safetensors", "sparse.tar" };
    double begin = ckpt__os_now();
    for (int i = 0; i < 4; i++) {
        const char *path = util_join(dir, sparse[i]);
        util_write_text(path, "");
        if (truncate(path, (off_t)1 << 40) != 0) continue;      // not every file system has holes
        expect_open(path, CKPT_CORRUPT, sparse[i]);
    }
    assert_true(ckpt__os_now() - begin < 20.0);
}

static void test_read_only_folder(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir(), *inner = util_join(dir, "ro"), *path = util_join(inner, "a.pt.gz");
    util_mkdir(inner);
    small s;
    small_bind(&s);
    must(ckpt_save(path, &s.st, NULL));
    assert_int_equal(chmod(inner, 0555), 0);
    memset(s.w, 0, sizeof s.w);
    must(load(path, &s.st));                                    // unpacks elsewhere
    assert_true(s.w[4] == 5.0f);
    if (geteuid() != 0) {
        assert_int_equal(ckpt_save(path, &s.st, NULL), CKPT_AUTH);
        expect_sentence("cannot save");
    }
    assert_int_equal(chmod(inner, 0755), 0);
    assert_string_equal(util_list(inner), "a.pt.gz\n");
    ckpt_state_free(&s.st);
}

//-- writing -----------------------------------------------------------------------

static int hidden_opens;

static void count_hidden(const char *name, const char *path) {
    hidden_opens += strcmp(name, "open") == 0 && strstr(path, ".tmp") != NULL;
}

static void test_targets(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    small s;
    small_bind(&s);
    must(ckpt_save(util_join(dir, "a/b/c/x.pt"), &s.st, NULL));             // folders are made
    must(load(util_join(dir, "a/b/c/x.pt"), &s.st));
    util_mkdir(util_join(dir, "d.pt"));
    assert_int_equal(ckpt_save(util_join(dir, "d.pt"), &s.st, NULL), CKPT_EXISTS);
    expect_sentence("folder");
    assert_int_equal(ckpt_save(util_join(dir, "a/"), &s.st, NULL), CKPT_ARG);
    util_write_text(util_join(dir, "plain"), "x");
    assert_int_equal(ckpt_save(util_join(dir, "plain/x.pt"), &s.st, NULL), CKPT_EXISTS);
    expect_sentence("in the way");
    assert_int_equal(ckpt_save("", &s.st, NULL), CKPT_ARG);
    assert_int_equal(ckpt_save("s3://bucket/x.pt", &s.st, NULL), CKPT_UNSUPPORTED);
    assert_int_equal(ckpt_save(NULL, &s.st, NULL), CKPT_ARG);
    assert_int_equal(ckpt_save("x.pt", NULL, NULL), CKPT_ARG);
    // A link is replaced, what it points at stays.
    must(ckpt_save(util_join(dir, "old.pt"), &s.st, NULL));
    assert_int_equal(symlink("old.pt", util_join(dir, "link.pt")), 0);
    s.step = 43;
    must(ckpt_save(util_join(dir, "link.pt"), &s.st, NULL));
    assert_null(util_link_target(util_join(dir, "link.pt")));
    must(load(util_join(dir, "old.pt"), &s.st));
    assert_int_equal(s.step, 42);
    must(load(util_join(dir, "link.pt"), &s.st));
    assert_int_equal(s.step, 43);
    // A name of the greatest length still has room for a hidden one.
    char *name = util_fmt("%0251d.pt", 7);
    must(ckpt_save(util_join(dir, name), &s.st, NULL));
    assert_int_equal(unlink(util_join(dir, name)), 0);
    // One that is longer, or behind links in a circle, is refused before anything is written.
    assert_int_equal(symlink("ring", util_join(dir, "ring")), 0);
    const char *const never[] = { util_fmt("%0253d.pt", 7), "ring/x.pt" };
    for (int i = 0; i < UTIL_COUNT(never); i++) {
        fault_set_spy(count_hidden);
        ckpt_err e = ckpt_save(util_join(dir, never[i]), &s.st, NULL);
        fault_set_spy(NULL);
        assert_int_equal(e, CKPT_IO);
        expect_sentence(strerror(i == 0 ? ENAMETOOLONG : ELOOP));
        assert_int_equal(hidden_opens, 0);
    }
    assert_int_equal(unlink(util_join(dir, "ring")), 0);
    assert_string_equal(util_list(dir), "a\nd.pt\nlink.pt\nold.pt\nplain\n");
    ckpt_state_free(&s.st);
}

static void test_no_overwrite(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x.symlink");
    ckpt_allocator a = { NULL, NULL };
    must(ckpt__file_put(path, "one", 3, false, &a));
    assert_int_equal(ckpt__file_put(path, "two", 3, false, &a), CKPT_EXISTS);
    assert_string_equal(util_read(path, NULL), "one");
    must(ckpt__file_replace(path, "three", 5));
    assert_string_equal(util_read(path, NULL), "three");
    // Somebody takes the name between the look and the rename.
    ckpt__file_new n;
    const char *raced = util_join(dir, "raced");
    must(ckpt__file_begin(&n, raced, false, &a));
    util_write_text(raced, "theirs");
    assert_int_equal(ckpt__file_commit(&n, false), CKPT_EXISTS);
    assert_string_equal(util_read(raced, NULL), "theirs");
    assert_string_equal(util_list(dir), "raced\nx.symlink\n");
}

static void test_bad_texts(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x.pt");
    char buf[4];
    ckpt_state st = {0};
    ckpt_bind_text(&st, "state/t", buf, sizeof buf);
    memset(buf, 'a', sizeof buf);
    assert_int_equal(ckpt_save(path, &st, NULL), CKPT_ARG);
    expect_sentence("no NUL");
    memcpy(buf, "\xff", 2);
    assert_int_equal(ckpt_save(path, &st, NULL), CKPT_ARG);
    expect_sentence("UTF-8");
    ckpt_timestamp t = {0};
    t.batch = -1;
    buf[0] = 0;
    assert_int_equal(ckpt_save(path, &st, &t), CKPT_ARG);
    ckpt_bind_file(&st, "notes.txt", util_join(dir, "notes.txt"));
    assert_int_equal(ckpt_save(path, &st, NULL), CKPT_UNSUPPORTED);
    expect_sentence("notes.txt");
    assert_string_equal(util_list(dir), "");
    ckpt_state_free(&st);
}

// Tensors that pass one by one, and with what the file has beside them come to more than a file can be.
static void test_sizes_add_up(void **unused) {
    (void)unused;
    static const char *const endings[] = { "pt", "safetensors", "tar", "safetensors.tar" };
    static const int64_t elements[] = { INT64_MAX, INT64_MAX / 2 + 1, INT64_MAX - 2000 };
    for (int i = 0; i < 4 * 3; i++) {
        const char *path = util_join(util_temp_dir(), util_fmt("sum%d.%s", i, endings[i % 4]));
        const int count = i / 4 == 1 ? 4 : 2;                   // 4 * 2^62 is 0 in 64 bits
        float values[4] = { 1, 2, 3, 4 };
        ckpt_state st = {0};
        ckpt_bind_f32(&st, "w", values, 4);
        must(ckpt_save(path, &st, NULL));
        ckpt_tensor t = {0};
        t.dtype = CKPT_I8;
        t.ndim = 1;
        t.shape[0] = elements[i / 4];
        t.data = values;
        for (int k = 0; k < count; k++) ckpt_bind(&st, util_fmt("t%d", k), &t);
        assert_int_equal(ckpt_save(path, &st, NULL), CKPT_ARG);
        if (sizeof(size_t) == 8) expect_sentence("more than 2^63 bytes");
        ckpt_state_free(&st);
        must(ckpt_verify(path, NULL));                          // what was there stays
    }
    ckpt__plan plan;
    ckpt__plan_init(&plan, NULL, NULL);
    int blob = ckpt__plan_blob(&plan, "f");
    ckpt__plan_data(&plan, CKPT__SEG_FILE, "f", (uint64_t)INT64_MAX - 1, blob);
    ckpt__plan_bytes(&plan, "x", 1, -1);
    assert_int_equal(plan.err, CKPT_OK);
    ckpt__plan_bytes(&plan, "y", 1, -1);                        // joins the one before
    assert_int_equal(plan.err, CKPT_ARG);
    assert_int_equal(ckpt__plan_finish(&plan), CKPT_ARG);
    ckpt__plan_free(&plan);
}

static void *live_on(void *go_on) {
    char c;
    (void)!read(*(const int *)go_on, &c, 1);
    _exit(0);
}

// A process whose first thread has ended while another waits for the end of a pipe. *go_on: that pipe.
static pid_t leave_others_alive(int *go_on) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t;
        close(ends[1]);
        if (pthread_create(&t, NULL, live_on, &ends[0]) != 0) _exit(1);
        pthread_exit(NULL);
    }
    close(ends[0]);
    *go_on = ends[1];
    return pid;
}

static bool looks_dead(pid_t pid) {
    char text[512] = "";
    FILE *f = fopen(util_fmt("/proc/%d/stat", (int)pid), "r");
    if (f == NULL) return true;             // no such system
    (void)!fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    const char *end = strrchr(text, ')');
    return end != NULL && end[2] == 'Z';
}

// Left-overs go when their writer is gone, as far as that can be seen from here; else when they are old. Nobody need have reaped it;
// one of which only the first thread has ended looks like that, and lives.
static void test_sweep(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    ckpt_allocator a = { NULL, NULL };
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    siginfo_t how;
    int go_on;
    pid_t zombie = fork();
    if (zombie == 0) _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)zombie, &how, WEXITED | WNOWAIT), 0);
    pid_t headless = leave_others_alive(&go_on);
    for (int i = 0; i < 1000 && !looks_dead(headless); i++) usleep(1000);
    assert_true(looks_dead(headless));
    ckpt__file_writer me = ckpt__file_writer_of((int)getpid()), other = ckpt__file_writer_of((int)headless);
    bool knows = me.start != 0 && me.space != 0;            // where the system tells
    unsigned long host = me.host;
    unsigned space = me.space, start = me.start, pid = (unsigned)getpid(), gone = (unsigned)dead, left = (unsigned)zombie;
    assert_int_equal(other.start != 0, start != 0);
    const struct { const char *name; int age; bool stays; } rows[] = {
        { util_fmt(".ep1.pt.%u-%08lx%04x%04x00000007.tmp", gone, host, space, start), 0, false },
        { util_fmt(".ep1.pt.%u-%08lx%04x%04x00000007.tmp", pid, host, space, start), 0, true },
        { util_fmt(".ep2.pt.%u-%08lx%04x%04x00000007.tmp", pid, host, space, start), 2 * CKPT__FILE_STALE, true },
        { util_fmt(".ep1.pt.%u-%08lx%04x%04x00000007.tmp", pid, host, space, start ^ 1), 0, !knows },      // in a container, the one before
        { util_fmt(".ep1.pt.%u-%08lx%04x%04x00000007.tmp", left, host, space, start), 0, !knows },
        { util_fmt(".ep1.pt.%u-%08lx%04x%04x00000007.tmp", (unsigned)headless, host, space, other.start), 0, true },
        { util_fmt(".ep1.pt.%u-%08lx%04x000000000007.tmp", (unsigned)headless, host, space), 0, true },
        { util_fmt(".ep1.pt.1-%08lx%04x%04x00000007.tmp", host, space ^ 1, start), 0, true },              // in another container
        { util_fmt(".ep1.pt.1-%08lx%04x%04x00000007.tmp", host ^ 1, space, start), 0, true },              // on another machine
        { util_fmt(".ep1.pt.%u-%08lx.tmp", gone, host), 0, true },
        { util_fmt(".ep1.pt.%u-%08lx%04x%04x0000000x.tmp", gone, host, space, start), 0, true },
        { "ep1.pt", 0, true }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        struct timespec old[2];
        memset(old, 0, sizeof old);
        old[0].tv_sec = old[1].tv_sec = time(NULL) - rows[i].age;
        util_write_text(util_join(dir, rows[i].name), "x");
        assert_int_equal(utimensat(AT_FDCWD, util_join(dir, rows[i].name), old, 0), 0);
    }
    const char *aside = util_join(dir, util_fmt(".latest.pt.%s", util_temp_tail((int)dead)));
    assert_int_equal(symlink("ep1.pt", aside), 0);
    (void)ckpt__error_set(CKPT_IO, "kept");
    ckpt__file_sweep(dir, &a);
    ckpt__file_sweep(util_join(dir, "missing"), &a);
    assert_string_equal(ckpt_last_error(), "kept");
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        if (util_exists(util_join(dir, rows[i].name)) != rows[i].stays) fail_msg("%s %s", rows[i].name, rows[i].stays ? "is gone" : "stays");
    }
    assert_int_equal(readlink(aside, (char[8]){ 0 }, 8), -1);
    close(go_on);
    assert_int_equal(waitpid(headless, NULL, 0), headless);
    assert_int_equal(waitpid(zombie, NULL, 0), zombie);
    // Of those that cannot be seen from here time tells.
    static const struct { bool machine, space; int64_t age; bool gone; } ages[] = {
        { true, false, CKPT__FILE_STALE - 60, false }, { true, false, CKPT__FILE_STALE + 60, true },
        { false, true, CKPT__FILE_OLD - 60, false },   { false, true, CKPT__FILE_OLD + 60, true }
    };
    for (int i = 0; i < UTIL_COUNT(ages); i++) {
        ckpt__file_writer w = me;
        ckpt__os_info info;
        memset(&info, 0, sizeof info);
        if (ages[i].machine) w.host ^= 1;
        if (ages[i].space) w.space ^= 1;
        info.touched = ckpt__os_time() - (double)ages[i].age;
        assert_int_equal(ckpt__file_abandoned(&w, &info), ages[i].gone);
    }
    // On a machine of the same name nobody else's live file goes, and the numbers of processes before a restart say nothing.
    const char *theirs = util_join(dir, util_fmt(".ep1.pt.%s", util_temp_tail((int)dead))), *boot = fault_boot;
    util_write_text(theirs, "x");
    fault_boot = util_join(dir, "boot");
    util_write_text(fault_boot, "1a2b3c4d-0000-4000-8000-123456789abc\n");
    ckpt__file_sweep(dir, &a);
    assert_true(util_exists(theirs) || me.space == 0);
    fault_boot = boot;
    ckpt__file_sweep(dir, &a);
    assert_false(util_exists(theirs));
    // The names that are made are the names that are known.
    ckpt__buf name;
    ckpt__file_writer w;
    ckpt__buf_init(&name, &a);
    must(ckpt__file_temp_name(&name, util_join(dir, "ep1.pt")));
    assert_true(ckpt__file_temp_parse(ckpt__os_path_base(name.data), &w));
    assert_true(w.pid == me.pid && w.host == me.host && w.space == me.space && w.start == me.start);
    ckpt__buf_free(&name);
}

// What is written again for somebody else stays his: root may pin in a folder whose saver is not root's.
static void test_owner_stays(void **unused) {
    (void)unused;
    if (geteuid() != 0) {
        puts("SKIP: only root can give a file to somebody else");
        skip();
    }
    struct stat s;
    const char *path = util_join(util_temp_dir(), "index");
    util_write_text(path, "old");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(chown(path, 12345, 54321), 0);
    mode_t mask = umask(077);
    must(ckpt__file_replace(path, "new", 3));
    umask(mask);
    assert_int_equal(stat(path, &s), 0);
    assert_true(s.st_uid == 12345 && s.st_gid == 54321 && (s.st_mode & 0777) == 0640);
    assert_string_equal(util_read(path, NULL), "new");
}

//-- matching ----------------------------------------------------------------------

static const char *saved_small(void) {
    const char *path = util_join(util_temp_dir(), "a.pt");
    small s;
    small_bind(&s);
    ckpt_timestamp t = some_time();
    must(ckpt_save(path, &s.st, &t));
    ckpt_state_free(&s.st);
    return path;
}

static void test_strict(void **unused) {
    (void)unused;
    const char *path = saved_small();
    float w[5] = { -1, -1, -1, -1, -1 };
    int64_t step = -1, more = -1;
    char text[8] = "old";
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 5);
    ckpt_bind_text(&st, "state/text", text, sizeof text);
    ckpt_bind_int(&st, "state/step", &step);
    assert_int_equal(load(path, &st), CKPT_MISMATCH);                       // rng/0/x is not bound
    expect_sentence("1 of its names is not bound (rng/0/x)");
    expect_sentence("not_strict");
    ckpt_bind_int(&st, "state/more", &more);
    assert_int_equal(load(path, &st), CKPT_MISMATCH);
    expect_sentence("1 bound name is missing in it (state/more)");
    assert_true(w[0] == -1 && w[4] == -1 && step == -1);                    // nothing was touched
    assert_string_equal(text, "old");
    must(load_loose(path, &st));
    assert_true(w[0] == 1 && w[4] == 5 && step == 42 && more == -1);
    assert_string_equal(text, "abc");
    ckpt_state_free(&st);
}

static void test_different(void **unused) {
    (void)unused;
    const char *path = saved_small();
    static const struct { int ndim; int64_t shape[2]; ckpt_dtype dtype; const char *part; } rows[] = {
        { 1, { 4, 0 }, CKPT_F32, "float32 [5] in the file, but bound as float32 [4]" },
        { 2, { 5, 1 }, CKPT_F32, "but bound as float32 [5, 1]" },
        { 1, { 5, 0 }, CKPT_I32, "but bound as int32 [5]" },
        { 0, { 0, 0 }, CKPT_F32, "but bound as float32 []" }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        float w[5] = { -1, -1, -1, -1, -1 };
        ckpt_state st = {0};
        ckpt_tensor t = {0};
        t.dtype = rows[i].dtype;
        t.ndim = rows[i].ndim;
        memcpy(t.shape, rows[i].shape, sizeof rows[i].shape);
        t.data = w;
        ckpt_bind(&st, "state/model/w", &t);
        assert_int_equal(load_loose(path, &st), CKPT_MISMATCH);             // not even when not strict
        expect_sentence(rows[i].part);
        for (int k = 0; k < 5; k++) assert_true(w[k] == -1);
        ckpt_state_free(&st);
    }
}

// What no C type can hold is named, and is missed as any other weight.
static void test_opaque(void **unused) {
    (void)unused;
    static const char header[] = "{\"s\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[4,8]},"
        "\"t\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[8,9]},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    const char *path = util_join(util_temp_dir(), "mx.safetensors");
    char file[8 + sizeof header - 1 + 9] = { (char)(unsigned char)(sizeof header - 1), 0 };
    const float one = 1.0f;
    float w = -1, s = -1;
    ckpt_state st = {0};
    assert_true(sizeof header - 1 < 256);
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, &one, 4);
    util_write(path, file, sizeof file);
    ckpt_bind_f32(&st, "w", &w, 1);
    assert_int_equal(load(path, &st), CKPT_MISMATCH);
    expect_sentence("2 of its names are not bound (s, t); 's' is a tensor that cannot be read (F8_E8M0)");
    must(load_loose(path, &st));
    assert_true(w == 1.0f);
    ckpt_bind_f32(&st, "s", &s, 1);
    assert_int_equal(load_loose(path, &st), CKPT_MISMATCH);
    expect_sentence("s is an object of an unknown type (F8_E8M0) in the file, but bound as float32 [1]");
    ckpt_state_free(&st);
    ckpt_bind_f32(&st, "t", &s, 1);
    assert_int_equal(load_loose(path, &st), CKPT_MISMATCH);
    expect_sentence("(a tensor of more than 8 dimensions)");
    ckpt_state_free(&st);
    // A file of nothing else has nothing of what is bound, also when not strict: a run that took it would begin with random weights.
    static const char *const alone = "{\"value\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    memset(file, 0, sizeof file);
    file[0] = (char)strlen(alone);
    memcpy(file + 8, alone, strlen(alone));
    util_write(path, file, 8 + strlen(alone) + 4);
    ckpt_bind_f32(&st, "w", &w, 1);
    assert_int_equal(load_loose(path, &st), CKPT_MISMATCH);
    expect_sentence("nothing that is bound is in it");
    expect_sentence("'value' in it is of a type that cannot be read (F8_E8M0)");
    assert_int_equal(load(path, &st), CKPT_MISMATCH);
    expect_sentence("save the state_dict()");
    ckpt_state_free(&st);
}

// Every kind of value bound as every kind.
static void test_kinds(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "kinds.pt");
    int64_t five = 5, big = ((int64_t)1 << 53) + 1;
    double half = 0.5;
    bool yes = true;
    char text[8] = "abc";
    unsigned char bytes[4] = { 1, 2, 3, 4 };
    float f32 = 7.0f, frac = 7.5f;
    unsigned char flag = 1;
    uint64_t huge = UINT64_MAX;
    uint16_t bf = 0x4120, f16 = 0xC500;                                     // 10.0 and -5.0
    ckpt_state st = {0};
    ckpt_bind_int(&st, "int", &five);
    ckpt_bind_int(&st, "big", &big);
    ckpt_bind_float(&st, "float", &half);
    ckpt_bind_bool(&st, "bool", &yes);
    ckpt_bind_text(&st, "text", text, sizeof text);
    ckpt_bind_bytes(&st, "bytes", bytes, 4);
    static const struct { const char *name; ckpt_dtype dtype; } tensors[] = {
        { "t.f32", CKPT_F32 }, { "t.frac", CKPT_F32 }, { "t.bool", CKPT_BOOL }, { "t.huge", CKPT_U64 }, { "t.bf16", CKPT_BF16 },
        { "t.f16", CKPT_F16 }, { "t.int", CKPT_I64 }
    };
    void *data[7];
    data[0] = &f32; data[1] = &frac; data[2] = &flag; data[3] = &huge; data[4] = &bf; data[5] = &f16; data[6] = &five;
    for (int i = 0; i < 7; i++) {
        ckpt_tensor t = {0};
        t.dtype = tensors[i].dtype;
        t.ndim = i % 2;                                                     // [] or [1]
        t.shape[0] = 1;
        t.data = data[i];
        ckpt_bind(&st, tensors[i].name, &t);
    }
    ckpt_tensor u8 = {0};
    u8.dtype = CKPT_U8;
    u8.ndim = 1;
    u8.shape[0] = 4;
    u8.data = bytes;
    ckpt_bind(&st, "u8", &u8);
    must(ckpt_save(path, &st, NULL));
    ckpt_state_free(&st);
    // i int, f float, b bool, t text, y 4 bytes, u uint8 [4]
    static const struct { const char *name, *fits; double value; } rows[] = {
        { "int", "if", 5 }, { "big", "i", 0 }, { "float", "f", 0.5 }, { "bool", "ib", 1 }, { "text", "t", 0 }, { "bytes", "yu", 0 },
        { "u8", "yu", 0 }, { "t.f32", "if", 7 }, { "t.frac", "f", 7.5 }, { "t.bool", "ibf", 1 }, { "t.huge", "", 0 },
        { "t.bf16", "if", 10 }, { "t.f16", "if", -5 }, { "t.int", "if", 5 }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        for (const char *as = "ifbtyu"; *as != 0; as++) {
            int64_t n = -9;
            double d = -9;
            bool b = false;
            ckpt_state one = {0};
            unsigned char out[4] = { 9, 9, 9, 9 };
            char words[8] = "old";
            u8.data = out;
            if (*as == 'i') ckpt_bind_int(&one, rows[i].name, &n);
            if (*as == 'f') ckpt_bind_float(&one, rows[i].name, &d);
            if (*as == 'b') ckpt_bind_bool(&one, rows[i].name, &b);
            if (*as == 't') ckpt_bind_text(&one, rows[i].name, words, sizeof words);
            if (*as == 'y') ckpt_bind_bytes(&one, rows[i].name, out, 4);
            if (*as == 'u') ckpt_bind(&one, rows[i].name, &u8);
            bool fits = strchr(rows[i].fits, *as) != NULL;
            ckpt_err e = load_loose(path, &one);
            if (e != (fits ? CKPT_OK : CKPT_MISMATCH)) fail_msg("%s as %c: %s", rows[i].name, *as, ckpt_err_name(e));
            if (!fits && !(n == -9 && d == -9 && !b && out[0] == 9 && strcmp(words, "old") == 0)) fail_msg("%s as %c: touched", rows[i].name, *as);
            if (fits && *as == 'i' && strcmp(rows[i].name, "big") != 0 && n != (int64_t)rows[i].value) fail_msg("%s: %lld", rows[i].name, (long long)n);
            if (fits && *as == 'f' && d != rows[i].value) fail_msg("%s: %g", rows[i].name, d);
            if (fits && *as == 'b' && !b) fail_msg("%s: false", rows[i].name);
            if (fits && *as == 't') assert_string_equal(words, "abc");
            if (fits && (*as == 'y' || *as == 'u')) assert_memory_equal(out, bytes, 4);
            ckpt_state_free(&one);
        }
    }
}

static void test_text_too_long(void **unused) {
    (void)unused;
    const char *path = saved_small();
    char text[4];
    for (size_t cap = 1; cap <= 4; cap++) {
        ckpt_state st = {0};
        ckpt_bind_text(&st, "state/text", text, cap);
        ckpt_err e = load_loose(path, &st);
        assert_int_equal(e, cap < 4 ? CKPT_MISMATCH : CKPT_OK);
        if (cap < 4) expect_sentence("its buffer holds");
        ckpt_state_free(&st);
    }
    assert_string_equal(text, "abc");
}

// The library's own names and other ranks' random state are never unexpected; this rank's is.
static void test_unexpected(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    int64_t a = 1;
    ckpt_state st = {0}, one = {0};
    ckpt_bind_int(&st, "state/a", &a);
    ckpt_bind_int(&st, "rng/1/python", &a);
    ckpt_bind_int(&st, "rng/12/torch/deep", &a);
    ckpt_timestamp t = some_time();
    must(ckpt_save(path, &st, &t));
    ckpt_bind_int(&one, "state/a", &a);
    must(load(path, &one));
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = &one;
    d.ranks.rank = 1;
    d.ranks.world_size = 2;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
    expect_sentence("rng/1/python");
    ckpt_state_free(&st);
    ckpt_state_free(&one);
}

// Random state is missed up to the last rank that the file has any of.
static void test_random_state_of_others(void **unused) {
    (void)unused;
    static const struct { const char *in, *asked; ckpt_err want; } rows[] = {
        { "rng/0/python", "rng/1/python", CKPT_OK },       { "rng/1/python", "rng/0/python", CKPT_MISMATCH },
        { "rng/1/python", "rng/1/numpy", CKPT_MISMATCH },  { "state/rng", "rng/1/python", CKPT_MISMATCH } };
    const char *path = util_join(util_temp_dir(), "a.pt");
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        int64_t saved = 7, kept = 3, a = 1;
        ckpt_state st = {0}, other = {0};
        ckpt_bind_int(&st, "state/a", &a);
        ckpt_bind_int(&st, rows[i].in, &saved);
        must(ckpt_save(path, &st, NULL));
        ckpt_bind_int(&other, "state/a", &a);
        ckpt_bind_int(&other, rows[i].asked, &kept);
        ckpt_load_desc d = {0};
        d.load_path = path;
        d.state = &other;
        d.ranks.rank = 2;
        d.ranks.world_size = 3;
        if (ckpt_load(&d, NULL) != rows[i].want) fail_msg("%d: %s", i, ckpt_last_error());
        assert_int_equal(kept, 3);
        ckpt_state_free(&st);
        ckpt_state_free(&other);
    }
}

static void count_warning(ckpt_log_level level, const char *msg, void *user) {
    if (level == CKPT_LOG_WARN && strstr(msg, "matches nothing") != NULL) ++*(int *)user;
}

static void test_weights_and_globs(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    int64_t w = 1, opt = 2, step = 3;
    ckpt_state st = {0};
    ckpt_bind_int(&st, "state/model/w", &w);
    ckpt_bind_int(&st, "state/optimizers/m", &opt);
    ckpt_bind_int(&st, "state/l/[0]", &step);
    ckpt_timestamp t = some_time(), at;
    must(ckpt_save(path, &st, &t));
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = &st;
    d.load_weights_only = true;
    w = opt = step = 0;
    memset(&at, 0xEE, sizeof at);
    must(ckpt_load(&d, &at));
    assert_true(w == 1 && opt == 0 && step == 0 && at.batch == 0 && at.total_wct == 0);     // a training of its own begins
    d.load_weights_only = false;
    const char *globs[] = { "state/l/0", "state/optimizers/*" };
    d.load_ignore_keys = globs;
    d.load_ignore_keys_count = 2;
    w = 0;
    must(ckpt_load(&d, &at));
    assert_true(w == 1 && opt == 0 && step == 0 && at.batch == 300);
    const char *all[] = { "*" };
    d.load_ignore_keys = all;
    d.load_ignore_keys_count = 1;
    w = 0;
    must(ckpt_load(&d, &at));
    assert_true(w == 0 && at.batch == 0);
    d.load_ignore_keys_count = -1;
    assert_int_equal(ckpt_load(&d, &at), CKPT_ARG);
    // A glob is warned of when neither the file nor the binding has what it names.
    const char *some[] = { "state/l", "state/new", "state/nothing" };
    int warned = 0;
    ckpt_bind_int(&st, "state/new", &opt);
    d.load_ignore_keys = some;
    d.load_ignore_keys_count = 3;
    d.logger.fn = count_warning;
    d.logger.user = &warned;
    must(ckpt_load(&d, NULL));
    assert_int_equal(warned, 1);
    ckpt_state_free(&st);
}

// What a file says of its time: nothing, all of it, or what Composer wrote before there were iterations.
static void test_timestamps(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    ckpt_state st = {0};
    ckpt_timestamp at;
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = &st;
    must(ckpt_save(path, &st, NULL));
    memset(&at, 0xEE, sizeof at);
    must(ckpt_load(&d, &at));
    ckpt_timestamp zero = {0};
    assert_memory_equal(&at, &zero, sizeof at);
    static char names[4][56] = { "state/timestamp/Timestamp/epoch", "state/timestamp/Timestamp/token", "state/timestamp/Timestamp/batch",
                                 "state/timestamp/Timestamp/total_wct" };
    int64_t values[3] = { 3, 400, 50 };
    double clock = 2.5;
    ckpt__items items;
    ckpt__plan plan;
    ckpt__file_format fmt;
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    for (int bad = 0; bad < 2; bad++) {
        if (bad) values[2] = -1;
        ckpt__items_init(&items, NULL);
        for (int i = 0; i < 3; i++) must(ckpt__items_add(&items, names[i], CKPT_KIND_INT, &values[i], 8));
        must(ckpt__items_add(&items, names[3], CKPT_KIND_FLOAT, &clock, 8));
        ckpt__plan_init(&plan, NULL, &st);
        must(ckpt__file_format_of(path, &fmt));
        must(ckpt__file_plan(&plan, &fmt, path, items.list, items.count));
        must(ckpt__file_write(path, &fmt, &plan, true, &job, &st.allocator, NULL));
        size_t size;
        char *whole = util_read(path, &size);
        assert_int_equal(plan.size, size);
        assert_int_equal(ckpt__file_plan_crc(&plan), ckpt__digest_crc32(0, whole, size));
        ckpt__plan_free(&plan);
        ckpt__items_free(&items);
        assert_int_equal(ckpt_load(&d, &at), bad ? CKPT_CORRUPT : CKPT_OK);
    }
    assert_true(at.epoch == 3 && at.batch == 50 && at.epoch_in_iteration == 3 && at.token_in_iteration == 400 && at.iteration == 0);
    assert_true(at.total_wct == 2.5);
    ckpt_state_free(&st);
}

// Of a list one item alone may be loaded, by either way to write it; to save it alone is what leaves gaps.
static void test_one_item(void **unused) {
    (void)unused;
    static const char *const endings[] = { "a.pt", "a.safetensors" };
    for (int i = 0; i < UTIL_COUNT(endings); i++) {
        const char *path = util_join(util_temp_dir(), endings[i]);
        double betas[2] = { 0.9, 0.999 };
        ckpt_state st = {0};
        ckpt_bind_float(&st, "opt/betas/[0]", &betas[0]);
        ckpt_bind_float(&st, "opt/betas/[1]", &betas[1]);
        must(ckpt_save(path, &st, NULL));
        ckpt_state_free(&st);
        for (int way = 0; way < 2; way++) {
            double got = 0;
            ckpt_load_desc d = {0};
            d.load_path = path;
            d.state = &st;
            d.not_strict = true;
            ckpt_bind_float(&st, way == 0 ? "opt/betas/[1]" : "opt/betas/1", &got);
            must(ckpt_load(&d, NULL));
            assert_true(got == 0.999);
            assert_int_equal(ckpt_save(util_join(util_temp_dir(), endings[i]), &st, NULL), way == 0 ? CKPT_ARG : CKPT_OK);
            if (way == 0) expect_sentence("a list has no gaps");
            ckpt_state_free(&st);
        }
    }
}

// A clock that Python has written anew as something else: what fits is taken, and what does not is never 0 without a word.
typedef struct odd_clock { ckpt_kind kind; ckpt_dtype dtype; const void *data; size_t size; bool fits; int64_t want; double seconds; } odd_clock;

static int odd_words;

static void odd_log(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    if (level == CKPT_LOG_WARN && strstr(msg, "Timestamp/batch") != NULL) odd_words++;
}

static void odd_write(const char *path, char *name, const odd_clock *row) {
    static char epoch[] = "state/timestamp/Timestamp/epoch";
    static int64_t two = 2;
    ckpt__file_format fmt;
    ckpt__engine_job job;
    ckpt__items items;
    ckpt__plan plan;
    ckpt_allocator a = {0};
    memset(&job, 0, sizeof job);
    ckpt__items_init(&items, NULL);
    must(ckpt__items_add(&items, epoch, CKPT_KIND_INT, &two, 8));
    must(ckpt__items_add(&items, name, row->kind, (void *)(uintptr_t)row->data, row->size));
    ckpt_tensor *t = &items.list[1].tensor;
    t->dtype = row->dtype;
    t->data = items.list[1].data;
    if (row->kind == CKPT_KIND_TENSOR && row->size != ckpt__state_dtype_size(row->dtype)) {
        t->ndim = 1;
        t->shape[0] = (int64_t)(row->size / ckpt__state_dtype_size(row->dtype));
    }
    ckpt__plan_init(&plan, NULL, NULL);
    must(ckpt__file_format_of(path, &fmt));
    must(ckpt__file_plan(&plan, &fmt, path, items.list, items.count));
    must(ckpt__file_write(path, &fmt, &plan, true, &job, &a, NULL));
    ckpt__plan_free(&plan);
    ckpt__items_free(&items);
}

static void test_odd_clocks(void **unused) {
    (void)unused;
    static const int64_t many[2] = { 103, 104 }, i64 = 103;
    static const int32_t i32 = 103;
    static const float f32 = 103, half = 103.5f, clock = 64.25f;
    static const double f64 = 103, nan_like = HUGE_VAL;
    static const uint16_t bf16 = 0x42CE;            // 103
    static const uint8_t u8 = 103;
    static const bool yes = true;
    static const uint64_t huge = UINT64_MAX;
    static const odd_clock rows[] = {
        { CKPT_KIND_BOOL, (ckpt_dtype)0, &yes, 1, true, 1, 1 },       { CKPT_KIND_FLOAT, (ckpt_dtype)0, &f64, 8, true, 103, 103 },
        { CKPT_KIND_TENSOR, CKPT_I64, &i64, 8, true, 103, 103 },      { CKPT_KIND_TENSOR, CKPT_I32, &i32, 4, true, 103, 103 },
        { CKPT_KIND_TENSOR, CKPT_F32, &f32, 4, true, 103, 103 },      { CKPT_KIND_TENSOR, CKPT_F64, &f64, 8, true, 103, 103 },
        { CKPT_KIND_TENSOR, CKPT_BF16, &bf16, 2, true, 103, 103 },    { CKPT_KIND_TENSOR, CKPT_U8, &u8, 1, true, 103, 103 },
        { CKPT_KIND_TENSOR, CKPT_BOOL, &yes, 1, true, 1, 1 },         { CKPT_KIND_TENSOR, CKPT_F32, &clock, 4, false, 0, 64.25 },
        { CKPT_KIND_TENSOR, CKPT_F32, &half, 4, false, 0, 103.5 },    { CKPT_KIND_FLOAT, (ckpt_dtype)0, &nan_like, 8, false, 0, -1 },
        { CKPT_KIND_TEXT, (ckpt_dtype)0, "103", 4, false, 0, 0 },     { CKPT_KIND_TENSOR, CKPT_I64, many, 16, false, 0, 0 },
        { CKPT_KIND_BYTES, (ckpt_dtype)0, "103", 3, false, 0, 0 },    { CKPT_KIND_TENSOR, CKPT_U64, &huge, 8, false, 0, 0 },
        { CKPT_KIND_TENSOR, CKPT_C64, many, 8, false, 0, 0 }
    };
    static char batch[] = "state/timestamp/Timestamp/batch", wct[] = "state/timestamp/Timestamp/total_wct";
    static const char *const keys[] = { "state/timestamp/*" };
    static const char *const endings[] = { "a.pt", "a.tar", "a.safetensors" };
    for (int i = 0; i < UTIL_COUNT(rows) * UTIL_COUNT(endings); i++) {
        const odd_clock *row = &rows[i / UTIL_COUNT(endings)];
        const char *path = util_join(util_temp_dir(), endings[i % UTIL_COUNT(endings)]);
        ckpt_state st = {0};
        ckpt_load_desc d = {0};
        ckpt_timestamp t;
        d.load_path = path;
        d.state = &st;
        d.logger.fn = odd_log;
        odd_words = 0;
        odd_write(path, batch, row);
        ckpt_err e = ckpt_load(&d, &t);
        if (e != (row->fits ? CKPT_OK : CKPT_MISMATCH) || (row->fits && (t.batch != row->want || t.epoch != 2)))
            fail_msg("row %d: %s, batch %d (%s)", i, ckpt_err_name(e), (int)t.batch, ckpt_last_error());
        if (!row->fits) expect_sentence("'state/timestamp/Timestamp/batch'");
        assert_int_equal(odd_words, 0);
        d.not_strict = true;
        must(ckpt_load(&d, &t));
        assert_true(t.batch == row->want && t.epoch == 2);
        assert_int_equal(odd_words, row->fits ? 0 : 1);
        d.not_strict = false;
        d.load_ignore_keys = keys;
        d.load_ignore_keys_count = 1;
        must(ckpt_load(&d, &t));
        d.load_ignore_keys_count = 0;
        odd_write(path, wct, row);
        e = ckpt_load(&d, &t);
        ckpt_err want = row->seconds > 0 ? CKPT_OK : row->seconds < 0 ? CKPT_CORRUPT : CKPT_MISMATCH;
        if (e != want || (e == CKPT_OK && (t.total_wct < row->seconds || t.total_wct > row->seconds)))
            fail_msg("row %d: %s, total_wct %g (%s)", i, ckpt_err_name(e), t.total_wct, ckpt_last_error());
        ckpt_state_free(&st);
    }
}

//-- looking inside ----------------------------------------------------------------

static int find(const ckpt_file *f, const char *name, ckpt_entry *out) {
    for (int i = 0; i < ckpt_file_count(f); i++) {
        must(ckpt_file_entry(f, i, out));
        if (strcmp(out->name, name) == 0) return i;
    }
    fail_msg("no entry %s", name);
    return -1;
}

static void look_inside(const char *path) {
    world *w = (world *)malloc(sizeof *w);
    world_bind(w, false);
    world_fill(w, 3);
    must(ckpt_save(path, &w->st, NULL));
    ckpt_file *f = NULL;
    ckpt_entry e;
    must(ckpt_file_open(&f, path));
    int at = find(f, "state/model/w", &e);
    assert_int_equal(e.kind, CKPT_KIND_TENSOR);
    assert_int_equal(e.tensor.dtype, CKPT_F32);
    assert_int_equal(e.tensor.ndim, 1);
    assert_int_equal(e.tensor.shape[0], 40);
    assert_null(e.tensor.data);
    assert_int_equal(e.size, 160);
    assert_true(e.has_checksum);
    if (ckpt__txt_ends(path, ".safetensors")) assert_int_equal(e.checksum, ckpt__digest_crc32(0, w->weights, sizeof w->weights));
    float part[40];
    for (size_t from = 0; from <= 160; from += 7) {
        for (size_t n = 0; n + from <= 160; n += 31) {
            memset(part, 0xEE, sizeof part);
            must(ckpt_file_read(f, at, from, part, n));
            assert_memory_equal(part, (char *)w->weights + from, n);
            if (n < sizeof part) assert_int_equal(((unsigned char *)part)[n], 0xEE);
        }
    }
    assert_int_equal(ckpt_file_read(f, at, 0, part, 161), CKPT_ARG);
    assert_int_equal(ckpt_file_read(f, at, 161, part, 0), CKPT_ARG);
    assert_int_equal(ckpt_file_read(f, at, UINT64_MAX, part, 2), CKPT_ARG);
    assert_int_equal(ckpt_file_read(f, at, 0, NULL, 4), CKPT_ARG);
    must(ckpt_file_read(f, at, 160, NULL, 0));
    int64_t i = 0;
    double d = 0;
    unsigned char b = 9;
    char text[32] = "";
    at = find(f, "state/optimizers/AdamW/step", &e);
    assert_true(e.kind == CKPT_KIND_INT && e.size == 8);
    must(ckpt_file_read(f, at, 0, &i, 8));
    assert_true(i == w->step);
    at = find(f, "state/optimizers/AdamW/param_groups/0/lr", &e);
    assert_true(e.kind == CKPT_KIND_FLOAT && e.size == 8);
    must(ckpt_file_read(f, at, 0, &d, 8));
    assert_true(d == w->lr);
    at = find(f, "state/flag", &e);
    assert_true(e.kind == CKPT_KIND_BOOL && e.size == 1);
    must(ckpt_file_read(f, at, 0, &b, 1));
    assert_int_equal(b, 1);
    at = find(f, "state/text", &e);
    assert_true(e.kind == CKPT_KIND_TEXT && e.size == strlen(w->text));
    must(ckpt_file_read(f, at, 2, text, (size_t)e.size - 2));
    assert_string_equal(text, w->text + 2);
    at = find(f, "rng/0/xoshiro", &e);
    assert_int_equal(e.size, 33);
    must(ckpt_file_read(f, at, 1, text, 32));
    assert_memory_equal(text, w->bytes + 1, 32);
    assert_int_equal(ckpt_file_entry(f, -1, &e), CKPT_ARG);
    assert_int_equal(ckpt_file_entry(f, ckpt_file_count(f), &e), CKPT_ARG);
    assert_int_equal(ckpt_file_entry(f, 0, NULL), CKPT_ARG);
    ckpt_file_close(f);
    ckpt_state_free(&w->st);
    free(w);
}

static void test_look_inside(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    look_inside(util_join(dir, "a.pt"));
    look_inside(util_join(dir, "a.safetensors"));
    look_inside(util_join(dir, "a.tar"));
    look_inside(util_join(dir, "a.pt.gz"));
    assert_int_equal(ckpt_file_count(NULL), 0);
    ckpt_entry e;
    assert_int_equal(ckpt_file_entry(NULL, 0, &e), CKPT_ARG);
    assert_int_equal(ckpt_file_read(NULL, 0, 0, &e, 1), CKPT_ARG);
    assert_int_equal(ckpt_file_verify(NULL), CKPT_ARG);
    assert_int_equal(ckpt_file_open(NULL, "x"), CKPT_ARG);
    ckpt_file *f = NULL;
    assert_int_equal(ckpt_file_open(&f, NULL), CKPT_ARG);
    ckpt_file_close(NULL);
}

// A tensor that lies transposed in the file, as torch saves views; here the strides are changed under the reader.
static void test_gather(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    int32_t cells[6] = { 0, 1, 2, 3, 4, 5 };
    static const int32_t turned[6] = { 0, 2, 4, 1, 3, 5 };
    ckpt_tensor t = {0};
    t.dtype = CKPT_I32;
    t.ndim = 2;
    t.shape[0] = 2;
    t.shape[1] = 3;
    t.data = cells;
    ckpt_state st = {0};
    ckpt_bind(&st, "m", &t);
    must(ckpt_save(path, &st, NULL));
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, path));
    f->toc.entries[0].contiguous = false;
    f->toc.entries[0].stride[0] = 1;
    f->toc.entries[0].stride[1] = 2;
    for (size_t from = 0; from <= sizeof turned; from++) {
        for (size_t n = 0; n + from <= sizeof turned; n++) {
            char out[sizeof turned];
            must(ckpt_file_read(f, 0, from, out, n));
            assert_memory_equal(out, (const char *)turned + from, n);
        }
    }
    ckpt_file_close(f);
    ckpt_state_free(&st);
}

// Ranges of tensors with other strides against the elements one by one: more than a window, gaps worth passing over, rows that repeat.
static void test_gather_ranges(void **unused) {
    (void)unused;
    enum { CELLS = 600000 };
    static const struct { int64_t shape[4], stride[4]; } rows[] = {
        { { 740, 800 }, { 1, 740 } }, { { 3, 5, 7, 11 }, { 1, 3, 1155, 15 } }, { { 200, 300 }, { 3000, 2 } }, { { 60, 40, 50 }, { 10000, 0, 200 } },
        { { 2, 290000 }, { 300000, 1 } }, { { 1, 20, 1, 30 }, { 7, 1, 9, 20000 } }, { { 100, 4000 }, { 0, 1 } }, { { 500000 }, { 1 } }
    };
    const char *path = util_join(util_temp_dir(), "a.pt");
    int32_t *cells = (int32_t *)malloc(4 * CELLS);
    char *want = (char *)malloc(4 * CELLS), *got = (char *)malloc(4 * CELLS);
    for (int i = 0; i < CELLS; i++) cells[i] = i * 7;
    ckpt_tensor t = {0};
    t.dtype = CKPT_I32;
    t.ndim = 1;
    t.shape[0] = CELLS;
    t.data = cells;
    ckpt_state st = {0};
    ckpt_bind(&st, "m", &t);
    must(ckpt_save(path, &st, NULL));
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, path));
    uint64_t start = f->toc.entries[0].offset, random = 88172645463325252u;
    for (int k = 0; k < UTIL_COUNT(rows); k++) {
        ckpt__entry *e = &f->toc.entries[0];
        size_t count = 1;
        e->contiguous = false;
        e->offset = start + 4 * 100;
        for (e->ndim = 0; e->ndim < 4 && rows[k].shape[e->ndim] > 0; e->ndim++) {
            e->shape[e->ndim] = rows[k].shape[e->ndim];
            e->stride[e->ndim] = rows[k].stride[e->ndim];
            count *= (size_t)e->shape[e->ndim];
        }
        e->size = 4 * count;
        for (size_t i = 0; i < count; i++) {
            size_t left = i, at = 100;
            for (int d = e->ndim - 1; d >= 0; left /= (size_t)e->shape[d--]) at += left % (size_t)e->shape[d] * (size_t)e->stride[d];
            assert_true(at < CELLS);
            memcpy(want + 4 * i, &cells[at], 4);
        }
        for (int n = 0; n < 30; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t from = n == 0 ? 0 : (size_t)(random >> 20) % e->size, size = n == 0 ? (size_t)e->size : (size_t)(random >> 40) % (n < 15 ? 5000 : e->size);
            if (size > e->size - from) size = (size_t)e->size - from;
            memset(got, 0x55, size);
            must(ckpt_file_read(f, 0, from, got, size));
            if (memcmp(got, want + from, size) != 0) fail_msg("tensor %d: bytes from %zu, %zu of them", k, from, size);
        }
    }
    // A file that was cut while it was open is no memory's business.
    assert_int_equal(truncate(path, (off_t)start + 1000), 0);
    assert_int_equal(ckpt_file_read(f, 0, 0, got, 4000), CKPT_CORRUPT);
    expect_sentence("cut while it was open");
    ckpt_file_close(f);
    ckpt_state_free(&st);
    free(cells);
    free(want);
    free(got);
}

static void test_attached_files(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    static const char *const names[] = { "a.tar", "a.tgz" };
    for (int i = 0; i < 2; i++) {
        const char *path = util_join(dir, names[i]), *notes = util_join(dir, "notes.txt");
        char *big = (char *)malloc(200000);
        for (int k = 0; k < 200000; k++) big[k] = (char)((unsigned)k * (unsigned)k);
        util_write(notes, big, 200000);
        int64_t a = 5;
        ckpt_state st = {0};
        ckpt_bind_int(&st, "state/a", &a);
        ckpt_bind_file(&st, i == 0 ? "files/notes.txt" : "./files/./notes.txt", notes);
        must(ckpt_save(path, &st, NULL));
        util_write_text(notes, "changed");
        a = 0;
        must(load(path, &st));
        assert_int_equal(a, 5);
        size_t size;
        char *back = util_slurp(notes, &size);
        assert_int_equal(size, 200000);
        assert_memory_equal(back, big, size);
        ckpt_file *f = NULL;
        ckpt_entry e;
        must(ckpt_file_open(&f, path));
        int at = find(f, "files/notes.txt", &e);
        assert_true(e.kind == CKPT_KIND_FILE && e.size == 200000);
        char some[100];
        must(ckpt_file_read(f, at, 1000, some, 100));
        assert_memory_equal(some, big + 1000, 100);
        if (i == 0) {
            util_flip(path, f->toc.entries[at].offset + 150000, 1);
            assert_int_equal(ckpt_file_verify(f), CKPT_CORRUPT);
            util_write_text(notes, "mine");
            assert_int_equal(load(path, &st), CKPT_CORRUPT);
            expect_sentence("notes.txt");
            assert_string_equal(util_read(notes, NULL), "mine");            // whole or not at all
        }
        ckpt_file_close(f);
        unlink(notes);
        assert_int_equal(ckpt_save(path, &st, NULL), CKPT_NOT_FOUND);       // nothing to attach; what was there stays
        ckpt_state_free(&st);
        free(back);
        free(big);
    }
    assert_string_equal(util_list(dir), "a.tar\na.tgz\n");
}

//-- memory, progress, size, threads -------------------------------------------------

static void no_memory(const char *path) {
    small s;
    small_bind(&s);
    counting c = { 0, 0, 0 };
    must(ckpt_save(path, &s.st, NULL));
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = &s.st;
    d.allocator.fn = counting_fn;
    d.allocator.user = &c;
    const char *globs[] = { "state/step" };
    d.load_ignore_keys = globs;
    d.load_ignore_keys_count = 1;
    for (int n = 1; ; n++) {
        c.live = c.calls = 0;
        c.fail_at = n;
        ckpt_err e = ckpt_load(&d, NULL);
        assert_int_equal(c.live, 0);
        if (c.calls < n) { must(e); break; }
        if (e != CKPT_NOMEM) fail_msg("%s: allocation %d of a load: %s %s", path, n, ckpt_err_name(e), e ? ckpt_last_error() : "");
    }
    ckpt_state_free(&s.st);
    // The same for saving, whose allocator is the state's.
    for (int n = 1; ; n++) {
        small_bind(&s);
        ckpt_state_free(&s.st);
        s.st.allocator.fn = counting_fn;
        s.st.allocator.user = &c;
        c.live = c.calls = c.fail_at = 0;
        ckpt_bind_f32(&s.st, "state/model/w", s.w, 5);
        ckpt_bind_text(&s.st, "state/text", s.text, sizeof s.text);
        c.fail_at = c.calls + n;
        int live = c.live;
        ckpt_err e = ckpt_save(path, &s.st, NULL);
        assert_int_equal(c.live, live);
        bool done = c.calls < c.fail_at;
        c.fail_at = 0;
        ckpt_state_free(&s.st);
        assert_int_equal(c.live, 0);
        if (done) { must(e); break; }
        if (e != CKPT_NOMEM) fail_msg("%s: allocation %d of a save: %s %s", path, n, ckpt_err_name(e), e ? ckpt_last_error() : "");
    }
}

static void test_no_memory(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    static const char *const names[] = { "a.pt", "a.pt.gz", "a.safetensors", "a.tar" };
    for (int i = 0; i < 4; i++) no_memory(util_join(dir, names[i]));
    assert_string_equal(util_list(dir), "a.pt\na.pt.gz\na.safetensors\na.tar\n");
}

//-- system calls that fail ----------------------------------------------------------

static const int faults[] = { EIO, ENOSPC, EINTR, FAULT_SHORT };

static bool harmless(int fault) {
    return fault == EINTR || fault == FAULT_SHORT;
}

// Every system call of a save failing in turn: the old file or the new one, whole, and nothing beside it.
static void save_faults(const char *dir, const char *name) {
    const char *path = util_join(dir, name);
    small s;
    small_bind(&s);
    for (int f = 0; f < UTIL_COUNT(faults); f++) {
        for (int n = 1; ; n++) {
            s.step = 1;
            must(ckpt_save(path, &s.st, NULL));
            int open_before = fault_open_files();
            s.step = 2;
            fault_arm(faults[f], n);
            ckpt_err e = ckpt_save(path, &s.st, NULL);
            bool hit = fault_disarm();
            if (e != CKPT_OK && (!hit || harmless(faults[f]))) fail_msg("%s: call %d (%s): %s", name, n, fault_where, ckpt_last_error());
            if (e != CKPT_OK && strstr(ckpt_last_error(), path) == NULL) fail_msg("does not name the file: %s", ckpt_last_error());
            s.step = 0;
            must(load(path, &s.st));
            if (s.step != 2 && (e == CKPT_OK || s.step != 1)) fail_msg("%s: call %d (%s): found %d", name, n, fault_where, (int)s.step);
            assert_int_equal(fault_open_files(), open_before);
            if (strcmp(util_list(dir), util_fmt("%s\n", name)) != 0) fail_msg("%s: call %d (%s) left %s", name, n, fault_where, util_list(dir));
            if (!hit) break;
        }
    }
    ckpt_state_free(&s.st);
}

// Half a name is none: who tidies up would remove, and name, what it happens to be. And whoever looks at a text that got no memory
// for more finds its end.
static void test_half_a_name(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a-checkpoint-whose-name-is-longer-than-the-first-block-of-a-buffer-has-room-for.pt");
    ckpt_err e = CKPT_NOMEM;
    for (int n = 1; e != CKPT_OK; n++) {
        counting c = { 0, 0, n };
        ckpt_allocator a = { counting_fn, &c };
        ckpt__buf b;
        ckpt__buf_init(&b, &a);
        e = ckpt__file_temp_name(&b, path);
        assert_int_equal(b.len > 0, e == CKPT_OK);
        ckpt__buf_free(&b);
        c.fail_at = c.calls + 2;
        ckpt__buf_init(&b, &a);
        for (int i = 0; i < 64 && b.err == CKPT_OK; i++) ckpt__buf_text(&b, "x");
        assert_int_equal(b.err, CKPT_NOMEM);
        assert_int_equal(b.data[b.len], 0);
        ckpt__buf_free(&b);
        assert_int_equal(c.live, 0);
        assert_true(n < 100);
    }
}

static void test_save_faults(void **unused) {
    (void)unused;
    static const char *const names[] = { "a.pt", "a.safetensors", "a.tar", "a.pt.gz" };
    for (int i = 0; i < 4; i++) save_faults(util_temp_dir(), names[i]);
}

// Every system call of a load failing in turn: the right values, or an error that says which file and leaves nothing open.
static void test_load_faults(void **unused) {
    (void)unused;
    static const char *const names[] = { "a.pt", "a.safetensors", "a.tar", "a.pt.gz" };
    for (int i = 0; i < 4; i++) {
        const char *dir = util_temp_dir(), *path = util_join(dir, names[i]);
        small s;
        small_bind(&s);
        must(ckpt_save(path, &s.st, NULL));
        for (int f = 0; f < UTIL_COUNT(faults); f++) {
            for (int n = 1; ; n++) {
                int open_before = fault_open_files();
                s.step = 0;
                s.w[4] = 0;
                fault_arm(faults[f], n);
                ckpt_err e = load(path, &s.st);
                bool hit = fault_disarm();
                if (e != CKPT_OK && (!hit || harmless(faults[f]))) fail_msg("%s: call %d (%s): %s", path, n, fault_where, ckpt_last_error());
                if (e == CKPT_OK && (s.step != 42 || s.w[4] != 5.0f)) fail_msg("%s: call %d (%s): wrong values", path, n, fault_where);
                if (e == CKPT_MISMATCH || e == CKPT_ARG) fail_msg("%s: call %d (%s): %s", path, n, fault_where, ckpt_last_error());
                assert_int_equal(fault_open_files(), open_before);
                if (!hit) break;
            }
        }
        assert_string_equal(util_list(dir), util_fmt("%s\n", names[i]));
        ckpt_state_free(&s.st);
    }
}

// A disk that fills up while a large file is written, straight from memory and through blocks.
static void test_full_disk(void **unused) {
    (void)unused;
    enum { MIB = 1 << 20, SIZE = 24 * MIB };
    const char *dir = util_temp_dir(), *path = util_join(dir, "a.pt");
    unsigned char *big = (unsigned char *)malloc(SIZE + 1);
    ckpt_state st = {0};
    ckpt_bind_bytes(&st, "big", big, SIZE);
    ckpt_bind_bytes(&st, "odd", big + 1, SIZE);
    memset(big, 1, SIZE + 1);
    must(ckpt_save(path, &st, NULL));
    memset(big, 2, SIZE + 1);
    for (int n = 1; ; n += UTIL_STRIDE(4)) {
        fault_arm_full_disk(n);
        ckpt_err e = ckpt_save(path, &st, NULL);
        bool hit = fault_disarm();
        if (!hit) { must(e); break; }
        assert_int_equal(e, CKPT_NO_SPACE);
        assert_string_equal(util_list(dir), "a.pt\n");
        unsigned char *back = (unsigned char *)malloc(SIZE);
        ckpt_state out = {0};
        ckpt_bind_bytes(&out, "big", back, SIZE);
        must(load_loose(path, &out));
        if (back[0] != 1 || back[SIZE - 1] != 1) fail_msg("call %d (%s): the old file is gone", n, fault_where);
        ckpt_state_free(&out);
        free(back);
    }
    ckpt_state_free(&st);
    free(big);
}

// A compressed file is unpacked elsewhere where its folder will not do; that there is room nowhere is not said of the file.
static void test_unpacked_elsewhere(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir(), *path = util_join(dir, "a.pt.gz");
    small s;
    small_bind(&s);
    must(ckpt_save(path, &s.st, NULL));
    int open_before = fault_open_files();
    fault_arm_full_disk(1);
    assert_int_equal(load(path, &s.st), CKPT_NO_SPACE);
    assert_true(fault_disarm());
    expect_sentence("a.pt.gz");
    expect_sentence("the unpacked checkpoint in /");
    static const int errors[] = { EIO, ENOENT, EACCES };
    for (int i = 0; i < UTIL_COUNT(errors); i++) {
        s.step = 0;
        fault_arm_call("open", errors[i], 3);       // behind a look whether it is a link's text, and the checkpoint itself
        must(load(path, &s.st));
        assert_true(fault_disarm() && s.step == 42);
    }
    assert_int_equal(fault_open_files(), open_before);
    assert_string_equal(util_list(dir), "a.pt.gz\n");
    ckpt_state_free(&s.st);
}

typedef struct seen { int calls, finished; uint64_t last, total; ckpt_err err; bool fell; } seen;

static void see(const ckpt_progress *p, void *user) {
    seen *s = (seen *)user;
    s->calls++;
    s->fell = s->fell || p->done < s->last;
    s->last = p->done;
    s->total = p->total;
    if (p->finished) s->finished++;
    s->err = p->err;
}

static void test_progress(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    enum { BIG = 3 << 20 };
    float *w = (float *)calloc(BIG, sizeof *w);
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "w", w, BIG);
    must(ckpt_save(path, &st, NULL));
    seen s;
    memset(&s, 0, sizeof s);
    ckpt_load_desc d = {0};
    d.load_path = path;
    d.state = &st;
    d.progress.fn = see;
    d.progress.user = &s;
    must(ckpt_load(&d, NULL));
    assert_true(s.calls >= 2 && s.finished == 1 && !s.fell && s.last == s.total && s.err == CKPT_OK);
    assert_true(s.total >= BIG * sizeof *w);
    util_flip(path, 8 << 20, 1);
    memset(&s, 0, sizeof s);
    assert_int_equal(ckpt_load(&d, NULL), CKPT_CORRUPT);
    assert_true(s.finished == 1 && s.err == CKPT_CORRUPT);
    ckpt_progress_bar(NULL, NULL);
    ckpt_progress p;
    memset(&p, 0, sizeof p);
    for (int columns = 1; columns < 120; columns += 7) {       // draws into any width
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        p.phase = "load";
        p.name = "some/folder/ep1-ba1-rank0.pt";
        p.done = 50;
        p.total = 100;
        p.finished = columns > 60;
        ckpt__public_draw_bar(&b, &p, columns);
        assert_int_equal(b.err, CKPT_OK);
        assert_non_null(strstr(ckpt__buf_cstr(&b), "50%"));
        ckpt__buf_free(&b);
    }
    ckpt_state_free(&st);
    free(w);
}

// A pipe or a device is no file that a checkpoint replaces: /dev/null would be a file after it, and /dev/stdout, which is a link.
// Nor is a link to a folder. One that leads nowhere may be replaced.
static void test_no_file(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir(), *path = util_join(dir, "pipe");
    static const char *const links[][3] = { { "to_pipe", "pipe", "a device or a pipe" }, { "to_null", "/dev/null", "a device or a pipe" },
        { "to_folder", ".", "a folder" }, { "to_link", "to_folder", "a folder" }, { "to_opened", "/dev/fd/9", "a device or a pipe" } };
    struct stat st;
    small s;
    small_bind(&s);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ckpt_save(path, &s.st, NULL), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "a device or a pipe"));
    assert_true(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    const char *whole = util_join(util_temp_dir(), "whole.pt");
    must(ckpt_save(whole, &s.st, NULL));
    int opened = open(util_join(dir, "opened"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(opened >= 0 && dup2(opened, 9) == 9);
    for (int i = 0; i < UTIL_COUNT(links); i++) {
        const char *link = util_join(dir, links[i][0]);
        assert_int_equal(symlink(links[i][1], link), 0);
        assert_int_equal(ckpt_save(link, &s.st, NULL), CKPT_EXISTS);
        expect_sentence(links[i][2]);
        assert_int_equal(ckpt_get_file(util_fmt("file://%s", whole), link, true), CKPT_EXISTS);
        expect_sentence(links[i][2]);
        assert_int_equal(ckpt_get_file(whole, link, true), CKPT_EXISTS);
        expect_sentence(links[i][2]);
        assert_string_equal(util_link_target(link), links[i][1]);
    }
    (void)close(opened);
    (void)close(9);
    assert_int_equal(symlink("nowhere", util_join(dir, "dangles")), 0);
    must(ckpt_save(util_join(dir, "dangles"), &s.st, NULL));
    assert_true(lstat(util_join(dir, "dangles"), &st) == 0 && S_ISREG(st.st_mode));
    ckpt_state_free(&s.st);
}

static const char *bar(const ckpt_progress *p, int columns) {
    static char text[1024];
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__public_draw_bar(&b, p, columns);
    snprintf(text, sizeof text, "%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return text;
}

// A bar is redrawn in its line: one that is longer than the line would leave a line behind each time.
static void test_bar(void **unused) {
    (void)unused;
    ckpt_progress p;
    memset(&p, 0, sizeof p);
    p.phase = "download";
    p.name = "run/ep1-ba1-\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xff\x1b[31m-rank0.pt";
    p.done = (uint64_t)1 << 30;
    p.total = (uint64_t)100 << 30;
    p.seconds = 90;
    for (int columns = 12; columns < 120; columns++) {
        const char *text = bar(&p, columns), *end = strstr(text, "\x1b[K");
        int n = 0;
        assert_true(text[0] == '\r' && end != NULL && ckpt__txt_utf8(text, strlen(text)));
        for (const char *c = text + 1; c < end; c++) {
            assert_true((unsigned char)*c >= 0x20);
            n += ((unsigned char)*c & 0xC0) != 0x80;
        }
        if (n >= columns) fail_msg("%d columns for %d: %s", n, columns, text + 1);
        assert_non_null(strstr(text, "1%"));
        if (columns > 60) assert_non_null(strstr(text, "1.0 GiB  11.4 MiB/s  2 h left"));       // 8,910 s
    }
    p.seconds = 20;
    assert_non_null(strstr(bar(&p, 100), "  33 min left"));
    p.done = (uint64_t)99 << 30;
    assert_non_null(strstr(bar(&p, 100), "  1 s left"));
    p.seconds = 1e-300;
    assert_null(strstr(bar(&p, 100), "/s"));
    memset(&p, 0, sizeof p);
    p.phase = "load";
    assert_non_null(strstr(bar(&p, 80), "   0%"));
    p.finished = true;
    assert_non_null(strstr(bar(&p, 80), " 100%"));
    p.err = CKPT_IO;
    assert_non_null(strstr(bar(&p, 80), "   0%"));
    assert_non_null(strstr(bar(&p, 80), "  failed"));
}

static void test_last_error_stays(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir(), *path = util_join(dir, "new/a.pt.gz");
    small s;
    small_bind(&s);
    (void)ckpt__error_set(CKPT_NET, "an older failure");
    must(ckpt_save(path, &s.st, NULL));
    assert_string_equal(ckpt_last_error(), "an older failure");
    must(load(path, &s.st));
    assert_string_equal(ckpt_last_error(), "an older failure");
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, path));
    must(ckpt_file_verify(f));
    assert_string_equal(ckpt_last_error(), "an older failure");
    ckpt_file_close(f);
    assert_string_equal(ckpt_err_name(CKPT_MISMATCH), "CKPT_MISMATCH");
    assert_string_equal(ckpt_err_name((ckpt_err)99), "CKPT_?");
    ckpt_load_desc d = {0};
    assert_int_equal(ckpt_load(NULL, NULL), CKPT_ARG);
    assert_int_equal(ckpt_load(&d, NULL), CKPT_ARG);
    expect_sentence("load_path");
    d.load_path = path;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_ARG);
    expect_sentence("state");
    d._canary = 1;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_ARG);
    expect_sentence("zero-initialised");
    ckpt_state_free(&s.st);
}

static void many_entries(const char *path) {
    enum { MANY = 100000 };
    ckpt_state st = {0};
    float *w = (float *)calloc(MANY, sizeof *w);
    char name[64];
    for (int i = 0; i < MANY; i++) {
        w[i] = (float)i;
        snprintf(name, sizeof name, "state/model/layer%d.weight", i);
        ckpt_bind_f32(&st, name, &w[i], 1);
    }
    double begin = ckpt__os_now();
    must(ckpt_save(path, &st, NULL));
    memset(w, 0, MANY * sizeof *w);
    must(load(path, &st));
    for (int i = 0; i < MANY; i++) if (w[i] != (float)i) fail_msg("%d", i);
    ckpt_file *f = NULL;
    must(ckpt_file_open(&f, path));
    assert_int_equal(ckpt_file_count(f), MANY);
    float one = 0;
    for (int i = 0; i < MANY; i += 991) {
        int at = ckpt__toc_find(&f->toc, util_fmt("state/model/layer%d.weight", i));
        must(ckpt_file_read(f, at, 0, &one, 4));
        assert_true(one == (float)i);
    }
    must(ckpt_file_verify(f));
    ckpt_file_close(f);
    ckpt_state_free(&st);
    free(w);
    if (ckpt__os_now() - begin > 300.0) fail_msg("%s: 100,000 entries took %.1f s", path, ckpt__os_now() - begin);
}

static void test_many_entries(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    many_entries(util_join(dir, "a.pt"));
    many_entries(util_join(dir, "a.safetensors"));
}

typedef struct racer { const char *path; bool save; char why[512]; } racer;

static void race(void *arg) {
    racer *r = (racer *)arg;
    small s;
    small_bind(&s);
    for (int i = 0; i < 30 && r->why[0] == 0; i++) {
        ckpt_err e = r->save ? ckpt_save(r->path, &s.st, NULL) : load(r->path, &s.st);
        if (e == CKPT_OK && s.w[4] == 5.0f && s.step == 42) continue;
        snprintf(r->why, sizeof r->why, "%s: %.400s", ckpt_err_name(e), ckpt_last_error());
    }
    ckpt_state_free(&s.st);
}

// Readers and writers of one path: every reader finds a whole file.
static void test_threads(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    racer r[5];
    ckpt__os_thread threads[5];
    small s;
    small_bind(&s);
    must(ckpt_save(path, &s.st, NULL));
    ckpt_state_free(&s.st);
    for (int i = 0; i < 5; i++) {
        memset(&r[i], 0, sizeof r[i]);
        r[i].path = path;
        r[i].save = i >= 3;
        must(ckpt__os_thread_start(&threads[i], race, &r[i]));
    }
    for (int i = 0; i < 5; i++) ckpt__os_thread_join(threads[i]);
    for (int i = 0; i < 5; i++) if (r[i].why[0] != 0) fail_msg("%s", r[i].why);
}

static ckpt_err device_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    int *calls = (int *)user;
    calls[to_device]++;
    unsigned char *d = (unsigned char *)dst;
    for (size_t i = 0; i < size; i++) d[i] = (unsigned char)(((const unsigned char *)src)[i] ^ 0x5A);    // "device" bytes are scrambled
    return CKPT_OK;
}

static ckpt_err device_fails(void *dst, const void *src, size_t size, bool to_device, void *user) {
    (void)dst; (void)src; (void)size; (void)user;
    return to_device ? CKPT_TIMEOUT : ckpt_set_error(CKPT_TIMEOUT, "the stream hangs");
}

static void test_device(void **unused) {
    (void)unused;
    const char *dir = util_temp_dir();
    static const char *const names[] = { "a.pt", "a.safetensors", "a.pt.gz" };
    unsigned char device[1000], plain[1000];
    int calls[2] = { 0, 0 };
    for (int i = 0; i < 3; i++) {
        const char *path = util_join(dir, names[i]);
        for (int k = 0; k < 1000; k++) device[k] = (unsigned char)((unsigned char)k ^ 0x5A);
        ckpt_tensor t = {0};
        t.dtype = CKPT_U8;
        t.ndim = 1;
        t.shape[0] = 1000;
        t.data = device;
        t.device = true;
        ckpt_state st = {0}, host = {0};
        ckpt_bind(&st, "t", &t);
        assert_int_equal(ckpt_save(path, &st, NULL), CKPT_ARG);
        st.copy = device_fails;
        assert_int_equal(ckpt_save(path, &st, NULL), CKPT_TIMEOUT);
        assert_non_null(strstr(ckpt_last_error(), "state.copy failed for 1000 bytes: the stream hangs"));
        st.copy = device_copy;
        st.copy_user = calls;
        must(ckpt_save(path, &st, NULL));
        t.data = plain;
        t.device = false;
        ckpt_bind(&host, "t", &t);
        must(load(path, &host));
        for (int k = 0; k < 1000; k++) assert_int_equal(plain[k], (unsigned char)k);
        memset(device, 0, sizeof device);
        must(load(path, &st));
        for (int k = 0; k < 1000; k++) assert_int_equal(device[k], (unsigned char)((unsigned char)k ^ 0x5A));
        st.copy = device_fails;
        assert_int_equal(load(path, &st), CKPT_CANCELLED);
        assert_non_null(strstr(ckpt_last_error(), "state.copy failed with error 9 (CKPT_TIMEOUT)"));
        ckpt_state_free(&st);
        ckpt_state_free(&host);
    }
    assert_true(calls[0] > 0 && calls[1] > 0);
    assert_string_equal(util_list(dir), "a.pt\na.pt.gz\na.safetensors\n");
}

// Beside an extent of 0 the others may be as large as they like: nothing is multiplied beyond what a number holds.
static void test_empty_and_huge(void **unused) {
    (void)unused;
    const char *path = util_join(util_temp_dir(), "a.pt");
    ckpt_state st = {0};
    ckpt_tensor t = {0};
    t.dtype = CKPT_F32;
    t.ndim = 3;
    t.shape[1] = t.shape[2] = INT64_MAX;
    ckpt_bind(&st, "t", &t);
    must(ckpt_save(path, &st, NULL));
    must(load(path, &st));
    ckpt_state_free(&st);
}

// A save or a download past `ulimit -f` is an error with a sentence: the signal for it, which ends a program, is never sent.
static void limited_saver(const char *dir, ckpt_state *st, ckpt_snapshot snapshot) {
    ckpt_saver *s;
    ckpt_timestamp at;
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    memset(&at, 0, sizeof at);
    d.state = st;
    d.folder = util_join(dir, util_fmt("run%d", (int)snapshot));
    d.run_name = "r";
    d.snapshot = snapshot;
    assert_int_equal(ckpt_saver_open(&s, &d), CKPT_OK);
    ckpt_err e = ckpt_saver_save(s, &at);
    if (e == CKPT_OK) e = ckpt_saver_fence(s);
    if (e == CKPT_OK) e = ckpt_saver_wait(s, 0);
    assert_int_equal(e, CKPT_NO_SPACE);
    assert_non_null(strstr(ckpt_last_error(), "ulimit -f"));
    assert_int_equal(ckpt_saver_close(s, 0), CKPT_NO_SPACE);
}

static void test_limit(void **state) {
    (void)state;
    static const char *const names[] = { "a.pt", "a.safetensors", "a.tar", "a.pt.gz", "a.pt.zst", "a.tar.gz" };
    const char *dir = util_temp_dir(), *big = util_join(dir, "big.pt");
    const int64_t count = 1 << 20;
    float *w = (float *)util_keep(malloc((size_t)count * sizeof *w), false);
    uint64_t x = 88172645463325252u;
    for (int64_t i = 0; i < count; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        w[i] = (float)(x >> 11);
    }
    ckpt_state st, little;
    memset(&st, 0, sizeof st);
    memset(&little, 0, sizeof little);
    ckpt_bind_f32(&st, "state/model/w", w, count);
    ckpt_bind_f32(&little, "state/model/w", w, 1000);
    assert_int_equal(ckpt_save(big, &st, NULL), CKPT_OK);
    for (int i = 0; i < UTIL_COUNT(names); i++)
        if (ckpt_save(util_join(dir, names[i]), &little, NULL) != CKPT_OK) printf("SKIP: %s\n", ckpt_last_error());
    char *before = util_fmt("%s", util_list(dir));
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        const char *path = util_join(dir, names[i]);
        if (!util_exists(path)) continue;
        assert_int_equal(ckpt_save(path, &st, NULL), CKPT_NO_SPACE);
        if (strstr(ckpt_last_error(), "ulimit -f") == NULL) fail_msg("%s", ckpt_last_error());
        ckpt_load_desc l;
        memset(&l, 0, sizeof l);
        l.load_path = path;
        l.state = &little;
        assert_int_equal(ckpt_load(&l, NULL), CKPT_OK);
        assert_int_equal(ckpt_save(path, &little, NULL), CKPT_OK);
    }
    assert_int_equal(ckpt_get_file(util_fmt("file://%s", big), util_join(dir, "got.pt"), false), CKPT_NO_SPACE);
    assert_non_null(strstr(ckpt_last_error(), "ulimit -f"));
    assert_string_equal(util_list(dir), before);
    limited_saver(dir, &st, CKPT_SNAPSHOT_NONE);
    limited_saver(dir, &st, CKPT_SNAPSHOT_COPY);
    limited_saver(dir, &st, CKPT_SNAPSHOT_LAZY);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(ckpt_save(util_join(dir, "a.pt"), &st, NULL), CKPT_OK);
    ckpt_state_free(&st);
    ckpt_state_free(&little);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),       cmocka_unit_test(test_round_trips),        cmocka_unit_test(test_content_decides),
        cmocka_unit_test(test_flip_pt),       cmocka_unit_test(test_flip_safetensors),   cmocka_unit_test(test_flip_tar),
        cmocka_unit_test(test_flip_names_entry), cmocka_unit_test(test_truncate),        cmocka_unit_test(test_truncate_compressed),
        cmocka_unit_test(test_flip_compressed), cmocka_unit_test(test_odd_inputs),       cmocka_unit_test(test_read_only_folder),
        cmocka_unit_test(test_targets),       cmocka_unit_test(test_no_overwrite),       cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_sizes_add_up), cmocka_unit_test(test_sweep),         cmocka_unit_test(test_owner_stays),
        cmocka_unit_test(test_strict),             cmocka_unit_test(test_different),
        cmocka_unit_test(test_opaque),        cmocka_unit_test(test_unpacked_elsewhere),
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_text_too_long),      cmocka_unit_test(test_unexpected), cmocka_unit_test(test_random_state_of_others),
        cmocka_unit_test(test_weights_and_globs), cmocka_unit_test(test_timestamps), cmocka_unit_test(test_odd_clocks),
        cmocka_unit_test(test_one_item),     cmocka_unit_test(test_look_inside),
        cmocka_unit_test(test_gather),        cmocka_unit_test(test_gather_ranges),      cmocka_unit_test(test_attached_files),
        cmocka_unit_test(test_half_a_name), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_progress),      cmocka_unit_test(test_bar),           cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_last_error_stays),   cmocka_unit_test(test_many_entries),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_device), cmocka_unit_test(test_empty_and_huge),             cmocka_unit_test(test_save_faults),
        cmocka_unit_test(test_load_faults),   cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_limit),
    };
    util_clear_env();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
