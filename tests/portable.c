// Proves, without cmocka, that a build for any machine does what it should: sums, names, times, every container against golden
// files, the saver in each snapshot mode, resume, folders.   portable TESTS_FOLDER [write]   run.sh: helper
#if !defined CKPT_NO_REMOTE && !defined PORTABLE_WHOLE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"

// Where a check is, and the library's last sentence: all that a log from another machine needs.
#define CHECK(x) ((x) ? (void)0 : bad(__LINE__, #x))
#define OK(x)    (((x) == CKPT_OK) ? (void)0 : bad(__LINE__, #x))

static const char *tests;
static char        root[900];
static bool        write_golden;
static int         failures;

static void bad(int line, const char *what) {
    printf("portable.c:%d: %s (%s)\n", line, what, ckpt_last_error());
    if (++failures > 20) exit(1);
}

static const char *in_root(const char *name) {
    static char paths[8][1000];
    static int  next;
    char *p = paths[next++ % 8];
    (void)snprintf(p, sizeof paths[0], "%s/%s", root, name);
    return p;
}

static bool says(const char *part) {
    return strstr(ckpt_last_error(), part) != NULL;
}

static bool little_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

// The whole file, from malloc.
static unsigned char *slurp(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    unsigned char *p = (unsigned char *)malloc(1 << 20);
    if (p == NULL) exit(1);
    *size = 0;
    if (f == NULL) { printf("cannot open %s\n", path); failures++; return p; }
    *size = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static void spit(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) { printf("cannot write %s\n", path); failures++; }
}

//-- sums, numbers, names, times -----------------------------------------------------

static uint32_t crc_by_bits(const unsigned char *p, size_t n) {
    uint32_t c = 0xFFFFFFFFu;
    while (n-- > 0) {
        c ^= *p++;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
    }
    return c ^ 0xFFFFFFFFu;
}

static void test_digest(void) {
    enum { SIZE = 70001 };
    static unsigned char from[SIZE + 64], to[SIZE + 64];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    CHECK(ckpt__digest_crc32(0, "123456789", 9) == 0xCBF43926u);
    CHECK(ckpt__digest_crc32(0, "", 0) == 0);
    static const size_t sizes[] = { 1, 3, 15, 16, 63, 64, 65, 255, 256, 1000, 4096, SIZE };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t at = 0; at < 17; at += 5) {
            uint32_t want = crc_by_bits(from + at, sizes[i]);
            CHECK(ckpt__digest_crc32(0, from + at, sizes[i]) == want);
            CHECK(ckpt__digest_crc32_copy(0, to + 3, from + at, sizes[i]) == want);
            CHECK(memcmp(to + 3, from + at, sizes[i]) == 0);
            size_t half = sizes[i] / 2;
            uint32_t a = ckpt__digest_crc32(0, from + at, half), b = ckpt__digest_crc32(0, from + at + half, sizes[i] - half);
            CHECK(ckpt__digest_crc32_join(a, b, sizes[i] - half) == want);
        }
    }
}

static const struct { uint64_t bits; const char *text; } odd[] = {
    { 0x7FF8000000000000u, "nan" }, { 0x7FF0000000000000u, "inf" }, { 0xFFF0000000000000u, "-inf" }, { 0x8000000000000000u, "-0.0" },
    { 1, "5e-324" }, { 0x8000000000003039u, "-6.099e-320" }, { 0x0008000000000000u, "1.1125369292536007e-308" }
};
static const struct { uint32_t bits; uint64_t wide; } floats[] = {
    { 0x7FC00001u, 0x7FF8000020000000u }, { 0xFF800000u, 0xFFF0000000000000u }, { 0x80000000u, 0x8000000000000000u }, { 0, 0 },
    { 1, 0x36A0000000000000u }, { 0x807FFFFFu, 0xB80FFFFFC0000000u }, { 0x00800000u, 0x3810000000000000u }, { 0x7F7FFFFFu, 0x47EFFFFFE0000000u }
};
enum { ODD = sizeof odd / sizeof odd[0], FLOATS = sizeof floats / sizeof floats[0] };

static void set_odd(double *out, int i) {
    memcpy(out, &odd[i].bits, sizeof *out);
}

static bool is_odd(const double *v, int i) {
    return memcmp(v, &odd[i].bits, sizeof *v) == 0;
}

static void test_numbers(void) {
    static const struct { double v; const char *text; } rows[] = {
        { 0.1, "0.1" }, { 1, "1.0" }, { -0.0, "-0.0" }, { 1e16, "1e+16" }, { 123456789.125, "123456789.125" }, { 5e-324, "5e-324" },
        { 1.7976931348623157e308, "1.7976931348623157e+308" }, { 2.0 / 3, "0.6666666666666666" }, { 9007199254740993.0, "9007199254740992.0" }
    };
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double back = 1;
        b.len = 0;
        ckpt__txt_add_double(&b, rows[i].v);
        CHECK(strcmp(ckpt__buf_cstr(&b), rows[i].text) == 0);
        CHECK(ckpt__txt_double(ckpt__txt_view(rows[i].text), &back) && memcmp(&back, &rows[i].v, sizeof back) == 0);
    }
    for (int i = 0; i < ODD; i++) {             // as bits: -ffast-math has no NaNs, infinities, signs of zeros, smallest numbers
        double v, back;
        set_odd(&v, i);
        b.len = 0;
        ckpt__txt_add_double(&b, v);
        CHECK(strcmp(ckpt__buf_cstr(&b), odd[i].text) == 0);
        CHECK(ckpt__txt_double(ckpt__txt_view(odd[i].text), &back) && is_odd(&back, i));
    }
    for (int i = 0; i < FLOATS; i++) {
        double wide;
        uint64_t bits;
        ckpt__mem_widen(floats[i].bits, 8, 23, &wide);
        memcpy(&bits, &wide, sizeof bits);
        CHECK(bits == floats[i].wide);
    }
    ckpt__buf_free(&b);
    int64_t n = 0;
    CHECK(ckpt__txt_int(ckpt__txt_view("-9223372036854775808"), &n) && n == INT64_MIN);
    CHECK(!ckpt__txt_int(ckpt__txt_view("9223372036854775808"), &n));
    CHECK(ckpt__txt_utf8("\xC3\xA9\xF0\x9F\x98\x80", 6) && !ckpt__txt_utf8("\xC3", 1) && !ckpt__txt_utf8("\xED\xA0\x80", 3));
    CHECK(ckpt__txt_glob("state/*/[a-c\xC3\xA9]", "state/x/y/\xC3\xA9") && !ckpt__txt_glob("a?", "a"));
}

static void test_names(void) {
    char buf[128];
    ckpt_ranks ranks;
    ckpt_timestamp t;
    ckpt_name_desc d;
    memset(&ranks, 0, sizeof ranks);
    memset(&t, 0, sizeof t);
    memset(&d, 0, sizeof d);
    ranks.rank = 3;
    ranks.world_size = 8;
    t.epoch = 2;
    t.batch = 5000000000;                   // more than 32 bits
    t.total_wct = 0.1;
    d.run_name = "caf\xC3\xA9";
    d.timestamp = &t;
    d.ranks = &ranks;
    OK(ckpt_format_name(buf, sizeof buf, "{run_name}/ep{epoch:03d}-ba{batch:,}-{rank!r}of{world_size}-{total_wct}-{{}}-{other}", &d));
    CHECK(strcmp(buf, "caf\xC3\xA9/ep002-ba5,000,000,000-3of8-0.1-{}-{other}") == 0);
    OK(ckpt_format_name(buf, sizeof buf, "{run_name:*^9}|{batch:x}|{total_wct:.3e}", &d));
    CHECK(strcmp(buf, "**caf\xC3\xA9***|12a05f200|1.000e-01") == 0);
    CHECK(ckpt_format_name(buf, 4, "{batch}", &d) == CKPT_ARG);
    CHECK(ckpt_format_name(buf, sizeof buf, "{batch", &d) == CKPT_ARG);
    set_odd(&t.total_wct, 0);
    set_odd(&t.epoch_wct, 2);
    OK(ckpt_format_name(buf, sizeof buf, "{total_wct:.2f} {total_wct:g} {total_wct} {epoch_wct:.2f} {epoch_wct:g}", &d));
    CHECK(strcmp(buf, "nan nan nan -inf -inf") == 0);
}

static void test_times(void) {
    ckpt_time t;
    ckpt_timestamp at;
    char buf[48];
    OK(ckpt_time_parse(&t, "3e10sp"));
    CHECK(t.unit == CKPT_SAMPLE && t.value == 30000000000);
    OK(ckpt_time_format(buf, sizeof buf, t));
    CHECK(strcmp(buf, "30000000000sp") == 0);
    OK(ckpt_time_parse(&t, "0.25dur"));
    CHECK(t.unit == CKPT_DURATION && t.fraction == 0.25);
    OK(ckpt_time_parse(&t, "1h20m40s"));
    CHECK(t.unit == CKPT_SECOND && t.value == 4840);
    CHECK(ckpt_time_parse(&t, "9223372036854775808ba") == CKPT_ARG);
    CHECK(ckpt_time_parse(&t, "0.5ba") == CKPT_ARG);
    memset(&at, 0, sizeof at);
    ckpt_next_batch(&at, 3000000000, 5000000000, 0.5);
    ckpt_next_batch(&at, 3000000000, 5000000000, 0.5);
    ckpt_next_epoch(&at, 1);
    CHECK(at.batch == 2 && at.sample == 6000000000 && at.token == 10000000000 && at.epoch == 1 && at.batch_in_epoch == 0);
    CHECK(at.total_wct == 1 || at.total_wct == 2);
}

//-- a state with one value of every kind ----------------------------------------------

enum { BIG = 16400 };                     // more than 64 KiB: lies on a page of its own

typedef struct model {
    uint64_t words[17][3];                  // one tensor of each dtype: 3 elements, 1 of the widest; 0 behind them
    float    big[BIG];
    double   scalar;
    int64_t  step, lowest;
    double   rate, third;
    bool     yes;
    char     text[40];
    unsigned char rng[5];
} model;

static void fill(model *m, unsigned seed) {
    static const size_t unit[17] = { 8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 8, 4, 2, 1, 1, 8, 16 };
    uint64_t third;
    memset(m, 0, sizeof *m);
    for (int d = 0; d < 17; d++) {
        uint64_t all[3];
        for (int i = 0; i < 3; i++) all[i] = (uint64_t)(d + 1) * 0x0101010101010101u * seed + (uint64_t)i;
        memcpy(m->words[d], d + 1 == (int)CKPT_BOOL ? "\1\0\1" : (const char *)all, unit[d] == 16 ? 16 : 3 * unit[d]);
    }
    for (int i = 0; i < BIG; i++) m->big[i] = (float)i * 0.5f + (float)seed;
    m->scalar = 0.125 * seed;
    m->step = (int64_t)4294967296 * seed + 7;
    m->lowest = INT64_MIN + seed;
    m->rate = seed / 1024.0;
    third = 0x3FD5555555555555u + seed;         // in bits: x87 would round 1.0 / 3 + seed in another way
    memcpy(&m->third, &third, 8);
    m->yes = true;
    (void)snprintf(m->text, sizeof m->text, "%u fran\xC3\xA7" "ais \"quoted\"\n", seed);
    memcpy(m->rng, "\0\1\377\200z", 5);
}

// Safetensors has no C128.
static void bind_model(ckpt_state *st, model *m, bool with_c128) {
    memset(st, 0, sizeof *st);
    for (int d = 0; d < (with_c128 ? 17 : 16); d++) {
        char name[60];
        ckpt_tensor t;
        memset(&t, 0, sizeof t);
        t.dtype = (ckpt_dtype)(d + 1);
        t.ndim = 2;
        t.shape[0] = t.dtype == CKPT_C128 ? 1 : 3;
        t.shape[1] = 1;
        t.data = m->words[d];
        (void)snprintf(name, sizeof name, "state/model/%s", ckpt__state_dtype_name(t.dtype));
        ckpt_bind(st, name, &t);
        if (t.dtype != CKPT_F64) continue;
        t.ndim = 0;
        t.data = &m->scalar;
        ckpt_bind(st, "state/model/scalar", &t);
    }
    ckpt_bind_f32(st, "state/model/big", m->big, BIG);
    ckpt_bind_int(st, "state/optimizers/AdamW/step", &m->step);
    ckpt_bind_int(st, "state/lowest", &m->lowest);
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[0]/lr", &m->rate);
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[1]/lr", &m->third);
    ckpt_bind_bool(st, "state/yes", &m->yes);
    ckpt_bind_text(st, "state/text", m->text, sizeof m->text);
    ckpt_bind_bytes(st, "rng/0/generator", m->rng, sizeof m->rng);
    OK(st->err);
}

static ckpt_err load(const char *path, ckpt_state *st, ckpt_timestamp *at) {
    ckpt_load_desc l;
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = st;
    return ckpt_load(&l, at);
}

static ckpt_timestamp some_time(void) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.epoch = 1;
    t.batch = 6000000000;
    t.sample = 96;
    t.total_wct = 12.75;
    return t;
}

// A file that holds `seed` loads into a state that held something else, and verifies.
static void check_file(const char *path, unsigned seed, bool with_c128) {
    static model want, got;
    ckpt_state st;
    ckpt_timestamp at;
    fill(&want, seed);
    fill(&got, seed + 1);
    if (!with_c128) memcpy(got.words[16], want.words[16], sizeof want.words[16]);
    memset(got.text, 0, sizeof got.text);
    bind_model(&st, &got, with_c128);
    OK(ckpt_verify(path, NULL));
    OK(load(path, &st, &at));
    CHECK(memcmp(&got, &want, sizeof got) == 0);
    CHECK(at.epoch == 1 && at.batch == 6000000000 && at.sample == 96 && at.total_wct == 12.75);
    ckpt_state_free(&st);
}

// One changed byte in the middle of the file is found.
static void check_damage(const char *path) {
    static model m;
    ckpt_state st;
    size_t size;
    unsigned char *bytes = slurp(path, &size);
    const char *copy = in_root("damaged");
    fill(&m, 1);
    bind_model(&st, &m, strstr(path, "safetensors") == NULL);
    for (size_t i = 1; i < 8; i++) {
        bytes[size * i / 8] ^= 0x10;
        spit(copy, bytes, size);
        CHECK(ckpt_verify(copy, NULL) == CKPT_CORRUPT);
        CHECK(load(copy, &st, NULL) == CKPT_CORRUPT);
        bytes[size * i / 8] ^= 0x10;
    }
    (void)remove(copy);
    free(bytes);
    ckpt_state_free(&st);
}

static void golden(const char *path, const char *name) {
    char kept[1000];
    size_t size, want_size;
    (void)snprintf(kept, sizeof kept, "%s/golden/%s", tests, name);
    unsigned char *got = slurp(path, &size);
    if (write_golden) spit(kept, got, size);
    unsigned char *want = slurp(kept, &want_size);
    CHECK(size == want_size && memcmp(got, want, size) == 0);
    free(got);
    free(want);
}

static void test_containers(void) {
    static model m;
    ckpt_state st;
    ckpt_timestamp t = some_time();
    char other[1000];
    fill(&m, 5);
    bind_model(&st, &m, true);
    OK(ckpt_save(in_root("golden.pt"), &st, &t));
    golden(in_root("golden.pt"), little_endian() ? "portable.pt" : "portable-big-endian.pt");
    check_file(in_root("golden.pt"), 5, true);
    check_damage(in_root("golden.pt"));
    OK(ckpt_save(in_root("x.tar"), &st, &t));
    check_file(in_root("x.tar"), 5, true);
    check_damage(in_root("x.tar"));
    static const char *const packed[] = { "x.pt.gz", "x.pt.xz", "x.tar.gz" };
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        ckpt_err e = ckpt_save(in_root(packed[i]), &st, &t);
        if (e == CKPT_UNSUPPORTED && says("install")) continue;         // the tool is not there
        OK(e);
        check_file(in_root(packed[i]), 5, true);
    }
    // What a machine of the other kind wrote is told, never taken as it lies.
    (void)snprintf(other, sizeof other, "%s/golden/%s", tests, little_endian() ? "portable-big-endian.pt" : "portable.pt");
    CHECK(load(other, &st, NULL) == CKPT_UNSUPPORTED);
    CHECK(says(little_endian() ? "big-endian" : "little-endian"));
    (void)snprintf(other, sizeof other, "%s/golden/small.pt", tests);
    CHECK(ckpt_verify(other, NULL) == (little_endian() ? CKPT_OK : CKPT_UNSUPPORTED));
    ckpt_state_free(&st);

    fill(&m, 6);
    bind_model(&st, &m, false);
    const char *path = in_root("x.safetensors");
    (void)snprintf(other, sizeof other, "%s/golden/portable.safetensors", tests);
    if (little_endian()) {
        OK(ckpt_save(path, &st, &t));
        golden(path, "portable.safetensors");
        check_file(path, 6, false);
        check_damage(path);
    } else {
        CHECK(ckpt_save(path, &st, &t) == CKPT_UNSUPPORTED && says("little-endian"));
        CHECK(load(other, &st, NULL) == CKPT_UNSUPPORTED && says("little-endian"));
    }
    ckpt_state_free(&st);
}

// torch before 2.1 does not say in a file which byte order it has: its numbers are taken as little-endian.
static void test_torch(void) {
    ckpt_state st;
    char path[1000];
    float t[4] = { 0, 0, 0, 0 };
    memset(&st, 0, sizeof st);
    ckpt_bind_f32(&st, "t", t, 4);
    (void)snprintf(path, sizeof path, "%s/golden/torch-1.13.pt", tests);
    CHECK(load(path, &st, NULL) == (little_endian() ? CKPT_OK : CKPT_UNSUPPORTED));
    CHECK(little_endian() ? t[0] == 1 && t[3] == 4 : says("little-endian"));
    ckpt_state_free(&st);
}

// Tensors of one element are taken for numbers, numpy's arrays as they lie.
static void test_elements(void) {
    static const ckpt_dtype dtypes[] = { CKPT_I64, CKPT_I32, CKPT_I16, CKPT_I8, CKPT_U64, CKPT_U32, CKPT_U16, CKPT_U8, CKPT_F64, CKPT_F32,
                                         CKPT_F16, CKPT_BF16 };
    static const char bytes[] = "\x80\x05\x8c\x12numpy.core.numeric\x8c\x0b_frombuffer\x93(\x96\x04\0\0\0\0\0\0\0abcd"
        "cnumpy\ndtype\nX\2\0\0\0i1\x89\x88\x87R(K\3X\1\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbK\4\x85X\1\0\0\0CtR.";
    enum { COUNT = sizeof dtypes / sizeof dtypes[0] };
    const int64_t i64 = 5;
    const int32_t i32 = 5;
    const int16_t i16 = 5, f16 = 0x4500, bf16 = 0x40A0;
    const int8_t i8 = 5;
    const double f64 = 5;
    const float f32 = 5;
    const void *const fives[] = { &i64, &i32, &i16, &i8, &i64, &i32, &i16, &i8, &f64, &f32, &f16, &bf16 };
    ckpt_state from, to;
    int64_t got[COUNT] = { 0 };
    memset(&from, 0, sizeof from);
    memset(&to, 0, sizeof to);
    for (int i = 0; i < COUNT; i++) {
        const char *name = ckpt__state_dtype_name(dtypes[i]);
        ckpt_tensor t;
        memset(&t, 0, sizeof t);
        t.dtype = dtypes[i];
        t.data = (void *)(uintptr_t)fives[i];
        ckpt_bind(&from, name, &t);
        ckpt_bind_int(&to, name, &got[i]);
    }
    OK(ckpt_save(in_root("five.pt"), &from, NULL));
    OK(load(in_root("five.pt"), &to, NULL));
    for (int i = 0; i < COUNT; i++) CHECK(got[i] == 5);
    ckpt_state_free(&from);
    ckpt_state_free(&to);
    ckpt__pickle k;
    uint32_t node = 0;
    OK(ckpt__pickle_read(&k, NULL, bytes, sizeof bytes - 1, &node));
    CHECK(ckpt__pickle_is(&k, node, CKPT__PICKLE_ARRAY) && k.nodes[node].flag == 1);
    ckpt__pickle_free(&k);
}

//-- looking inside ----------------------------------------------------------------

static void test_inside(void) {
    ckpt_file *f = NULL;
    float part[2];
    int64_t n = 0;
    uint64_t bits = 0;
    char text[40];
    unsigned seen = 0;
    memset(text, 0, sizeof text);
    OK(ckpt_file_open(&f, in_root("golden.pt")));
    for (int i = 0; i < ckpt_file_count(f); i++) {
        ckpt_entry e;
        OK(ckpt_file_entry(f, i, &e));
        if (strcmp(e.name, "state/model/big") == 0) {
            CHECK(e.kind == CKPT_KIND_TENSOR && e.tensor.dtype == CKPT_F32 && e.tensor.shape[0] == BIG && e.size == 4 * BIG && e.has_checksum);
            OK(ckpt_file_read(f, i, 4 * 1001, part, sizeof part));
            CHECK(part[0] == 1001 * 0.5f + 5 && part[1] == 1002 * 0.5f + 5);
            seen |= 1;
        } else if (strcmp(e.name, "state/lowest") == 0) {
            OK(ckpt_file_read(f, i, 0, &n, sizeof n));
            CHECK(n == INT64_MIN + 5);
            seen |= 2;
        } else if (strcmp(e.name, "state/optimizers/AdamW/param_groups/1/lr") == 0 ||
                   strcmp(e.name, "state/optimizers/AdamW/param_groups/[1]/lr") == 0) {
            OK(ckpt_file_read(f, i, 0, &bits, sizeof bits));
            CHECK(bits == 0x3FD5555555555555u + 5);
            seen |= 4;
        } else if (strcmp(e.name, "state/text") == 0) {
            OK(ckpt_file_read(f, i, 0, text, (size_t)e.size));
            CHECK(strcmp(text, "5 fran\xC3\xA7" "ais \"quoted\"\n") == 0);
            seen |= 8;
        }
    }
    CHECK(seen == 15);
    OK(ckpt_file_verify(f));
    ckpt_file_close(f);
}

//-- saver, resume, folder -----------------------------------------------------------

static ckpt_saver *open_saver(ckpt_state *st, const char *folder, ckpt_snapshot snapshot) {
    ckpt_saver *s = NULL;
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    d.state = st;
    d.run_name = "run";
    d.folder = folder;
    d.save_interval = "2ba";
    d.num_checkpoints_to_keep = 2;
    d.snapshot = snapshot;
    OK(ckpt_saver_open(&s, &d));
    return s;
}

// What the model is after `batches` steps: each shows in every part of it.
static void step(model *m, int64_t batches) {
    fill(m, (unsigned)batches);
}

static void test_saver(ckpt_snapshot snapshot, const char *folder_name) {
    static model m, want;
    ckpt_state st;
    ckpt_timestamp t, at;
    const char *const *paths = NULL;
    char path[1200], folder[1000];
    (void)snprintf(folder, sizeof folder, "%s", in_root(folder_name));
    memset(&t, 0, sizeof t);
    step(&m, 0);
    bind_model(&st, &m, true);
    ckpt_saver *s = open_saver(&st, folder, snapshot);
    if (s == NULL) return;
    CHECK(ckpt_saver_resume(s, &at) == CKPT_NOT_FOUND);
    for (int i = 1; i <= 7; i++) {
        OK(ckpt_saver_fence(s));
        step(&m, i);
        ckpt_next_batch(&t, 16, 1024, 0.25);
        if (i == 7) ckpt_saver_request(s);
        OK(ckpt_saver_batch_end(s, &t));
    }
    OK(ckpt_saver_wait(s, 0));
    CHECK(ckpt_saver_checkpoints(s, &paths) == 2 && paths != NULL && strstr(paths[1], "ep0-ba7-rank0.pt") != NULL);
    OK(ckpt_saver_close(s, 0));

    // The newest, through its link and by resuming.
    step(&want, 7);
    step(&m, 1);
    (void)snprintf(path, sizeof path, "%s/latest-rank0.pt", folder);
    OK(load(path, &st, &at));
    CHECK(memcmp(&m, &want, sizeof m) == 0 && at.batch == 7 && at.token == 7 * 1024);
    step(&m, 1);
    s = open_saver(&st, folder, snapshot);
    OK(ckpt_saver_resume(s, &at));
    CHECK(memcmp(&m, &want, sizeof m) == 0 && at.batch == 7 && at.total_wct == 1.75);
    OK(ckpt_saver_close(s, 0));

    // The newest is damaged and the index is lost: the one before.
    size_t size;
    (void)snprintf(path, sizeof path, "%s/ep0-ba7-rank0.pt", folder);
    unsigned char *bytes = slurp(path, &size);
    bytes[size / 2] ^= 1;
    spit(path, bytes, size);
    free(bytes);
    (void)snprintf(path, sizeof path, "%s/.ckpt-index.jsonl", folder);
    CHECK(remove(path) == 0);
    step(&want, 6);
    s = open_saver(&st, folder, snapshot);
    OK(ckpt_saver_resume(s, &at));
    CHECK(memcmp(&m, &want, sizeof m) == 0 && at.batch == 6);
    ckpt_next_batch(&at, 1, 1, 1);
    ckpt_next_batch(&at, 1, 1, 1);
    step(&m, 8);
    OK(ckpt_saver_batch_end(s, &at));
    OK(ckpt_saver_close(s, 0));

    ckpt_folder *f = NULL;
    ckpt_folder_desc d;
    ckpt_checkpoint c;
    memset(&d, 0, sizeof d);
    d.folder = folder;
    OK(ckpt_folder_open(&f, &d));
    int last = ckpt_folder_find(f, "ep0-ba8-rank0.pt");
    CHECK(last >= 0 && last == ckpt_folder_find(f, "latest-rank0.pt"));
    OK(ckpt_folder_entry(f, last, &c));
    CHECK(c.timestamp.batch == 8 && c.size == c.recorded_size && c.has_checksum && c.latest != NULL && !c.damaged);
    OK(ckpt_folder_verify(f, last));
    OK(ckpt_folder_pin(f, last, true));
    CHECK(ckpt_folder_remove(f, last) == CKPT_ARG);
    ckpt_folder_close(f);
    ckpt_state_free(&st);
}

// A checkpoint of a machine of the other byte order is no damaged one: an older one must not take its place unasked.
static void test_other_order(void) {
    static model m;
    ckpt_state st;
    ckpt_timestamp at;
    size_t size;
    char other[1000], folder[1000], path[1200];
    (void)snprintf(other, sizeof other, "%s/golden/%s", tests, little_endian() ? "portable-big-endian.pt" : "portable.pt");
    (void)snprintf(folder, sizeof folder, "%s", in_root("none-saver"));
    (void)snprintf(path, sizeof path, "%s/ep1-ba6000000000-rank0.pt", folder);
    unsigned char *bytes = slurp(other, &size);
    spit(path, bytes, size);
    fill(&m, 0);
    bind_model(&st, &m, true);
    ckpt_saver *s = open_saver(&st, folder, CKPT_SNAPSHOT_NONE);
    CHECK(ckpt_saver_resume(s, &at) == CKPT_UNSUPPORTED && says("endian"));
    OK(ckpt_saver_close(s, 0));
    CHECK(ckpt_verify(path, NULL) == CKPT_UNSUPPORTED);
    free(bytes);
    ckpt_state_free(&st);
}

// Values that -ffast-math does not know come back as they were, and tensors of one element do.
static void test_odd_values(void) {
    static double from[ODD], to[ODD], wide[FLOATS];
    ckpt_state st, of_floats, got;
    memset(&st, 0, sizeof st);
    memset(&of_floats, 0, sizeof of_floats);
    memset(&got, 0, sizeof got);
    for (int i = 0; i < ODD; i++) set_odd(&from[i], i);
    for (int i = 0; i < ODD; i++) ckpt_bind_float(&st, odd[i].text, &from[i]);
    for (int i = 0; i < ODD; i++) ckpt_bind_float(&got, odd[i].text, &to[i]);
    static const char *const names[] = { "odd.pt", "odd.tar", "odd.safetensors", "odd-2.pt" };
    for (int i = 0; i < (little_endian() ? 4 : 2); i++) {
        const char *path = in_root(names[i]);
        ckpt_convert_desc c;
        memset(&c, 0, sizeof c);
        memset(to, 0, sizeof to);
        c.from = in_root("odd.safetensors");
        c.to = path;
        OK(i < 3 ? ckpt_save(path, &st, NULL) : ckpt_convert(&c));
        OK(load(path, &got, NULL));
        CHECK(memcmp(to, from, sizeof to) == 0);
    }
    ckpt_state_free(&st);
    ckpt_state_free(&got);
    for (int i = 0; i < FLOATS; i++) {
        char name[20];
        ckpt_tensor t;
        memset(&t, 0, sizeof t);
        t.dtype = CKPT_F32;
        t.data = (void *)(uintptr_t)&floats[i].bits;
        (void)snprintf(name, sizeof name, "f%d", i);
        ckpt_bind(&of_floats, name, &t);
        ckpt_bind_float(&got, name, &wide[i]);
    }
    OK(ckpt_save(in_root("floats.pt"), &of_floats, NULL));
    OK(load(in_root("floats.pt"), &got, NULL));
    for (int i = 0; i < FLOATS; i++) CHECK(memcmp(&wide[i], &floats[i].wide, sizeof wide[i]) == 0);
    ckpt_state_free(&of_floats);
    ckpt_state_free(&got);
}

// What is no number is no best, is written to no index, and no clock may be it.
static void test_best(void) {
    static double loss;
    static const char *const kept[] = { "ep0-ba2-rank0.pt", "ep0-ba7-rank0.pt" };
    static const double losses[] = { 3, 1, 0, 4, 0, 0, 5 };         // 0: an odd one
    const char *folder = in_root("best");
    ckpt_state st;
    ckpt_saver_desc d;
    ckpt_saver *s = NULL;
    ckpt_timestamp t;
    ckpt_folder *f = NULL;
    ckpt_folder_desc fd;
    ckpt_checkpoint c;
    memset(&st, 0, sizeof st);
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    memset(&fd, 0, sizeof fd);
    ckpt_bind_float(&st, "state/loss", &loss);
    d.state = &st;
    d.folder = fd.folder = folder;
    d.save_interval = "1ba";
    d.num_checkpoints_to_keep = 1;
    d.keep_best = "min:state/loss";
    OK(ckpt_saver_open(&s, &d));
    if (s == NULL) return;
    for (int i = 0; i < 7; i++) {
        loss = losses[i];
        if (losses[i] == 0) set_odd(&loss, i == 2 ? 0 : i == 4 ? 1 : 2);
        ckpt_next_batch(&t, 1, 1, 1);
        OK(ckpt_saver_batch_end(s, &t));
        OK(ckpt_saver_wait(s, 0));
        OK(ckpt_folder_open(&f, &fd));
        CHECK(ckpt_folder_count(f) == (i < 2 ? 1 : 2));
        int at = ckpt_folder_count(f) - 1;
        OK(ckpt_folder_entry(f, at, &c));
        CHECK(c.timestamp.batch == i + 1 && c.has_metric == (losses[i] > 0) && c.metric == losses[i] && c.number == (uint64_t)i + 1);
        ckpt_folder_close(f);
    }
    for (int i = 0; i < 3; i++) {
        set_odd(&t.total_wct, i);
        CHECK(ckpt_save(in_root("clock.pt"), &st, &t) == CKPT_ARG && says("not a number"));
    }
    OK(ckpt_saver_close(s, 0));
    OK(ckpt_folder_open(&f, &fd));
    CHECK(ckpt_folder_count(f) == 2);
    for (int i = 0; i < ckpt_folder_count(f); i++) {
        OK(ckpt_folder_entry(f, i, &c));
        CHECK(strcmp(c.name, kept[i]) == 0 && c.has_checksum && c.has_metric);
    }
    ckpt_folder_close(f);
    ckpt_state_free(&st);
}

static void test_files(void) {
    CHECK(ckpt_ensure_folder_is_empty(root) == CKPT_EXISTS);
    OK(ckpt_ensure_folder_is_empty(in_root("none")));
    OK(ckpt_create_symlink_file("golden.pt", in_root("a.pt.symlink")));
    OK(ckpt_get_file(in_root("a.pt"), in_root("got.pt"), false));
    check_file(in_root("got.pt"), 5, true);
    ckpt_convert_desc c;
    memset(&c, 0, sizeof c);
    c.from = in_root("golden.pt");
    c.to = in_root("converted.tar");
    OK(ckpt_convert(&c));
    check_file(c.to, 5, true);
}

int main(int argc, char **argv) {
    if (argc < 2) { printf("usage: portable TESTS_FOLDER [write]\n"); return 2; }
    tests = argv[1];
    write_golden = argc > 2 && strcmp(argv[2], "write") == 0;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(root, sizeof root, "%s/ckpt-portable-XXXXXX", tmp != NULL && tmp[0] != 0 ? tmp : "/tmp");
    if (mkdtemp(root) == NULL) { printf("cannot make %s\n", root); return 2; }
    test_digest();
    test_numbers();
    test_names();
    test_times();
    test_containers();
    test_torch();
    test_elements();
    test_inside();
    test_files();
    test_odd_values();
    test_best();
    test_saver(CKPT_SNAPSHOT_NONE, "none-saver");
    test_saver(CKPT_SNAPSHOT_COPY, "copy-saver");
    test_saver(CKPT_SNAPSHOT_LAZY, "lazy-saver");
    test_other_order();
    char command[1000];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command) != 0) failures++;
    if (failures == 0) printf("%d bits, %s-endian: all as it should be\n", (int)(8 * sizeof(void *)), little_endian() ? "little" : "big");
    return failures == 0 ? 0 : 1;
}
