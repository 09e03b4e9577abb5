// Proves >>safetensors: what is written (byte for byte, aligned, every kind of value exactly), every rule of the format on
// reading, foreign files, damage at every byte, 100,000 tensors, and every allocation failing.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "container_util.h"

static ckpt_err plan_of(ckpt__plan *p, fixture *f, const ckpt_allocator *a) {
    size_t n;
    const ckpt__binding *items = fix_items(f, &n);
    ckpt__plan_init(p, a, &f->st);
    return ckpt__safetensors_plan(p, items, n);
}

static void write_state(fixture *f, const char *path) {
    ckpt__plan p;
    ckpt_err e = plan_of(&p, f, NULL);
    if (e == CKPT_OK) e = fix_write(&p, path);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    ckpt__plan_free(&p);
}

//-- a state with everything ---------------------------------------------------------

static int64_t int_min = INT64_MIN, int_max = INT64_MAX, minus_one = -1;
static double tenth = 0.1, tiny = 5e-324, huge = 1.7976931348623157e308, minus_zero = -0.0, third = 1.0 / 3, infinite, not_a_number;
static bool yes = true, no = false;
static char text[64] = "quote \" back \\ tab \t bell \a e \xc3\xa9 slash / \xf0\x9f\x98\x80", empty_text[4] = "";
static unsigned char data[65536], rng[2500], one_byte = 7;

static void everything(fixture *f) {
    static const char *const names[] = { "f64", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "i64", "i32", "i16", "i8", "u64", "u32",
                                         "u16", "u8", "bool", "c64" };
    infinite = HUGE_VAL;
    not_a_number = nan("");
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof rng; i++) rng[i] = (unsigned char)(i * 13);
    memset(f, 0, sizeof *f);
    for (int i = 0; i < UTIL_COUNT(names); i++)
        fix_tensor(f, util_fmt("state/model/%s", names[i]), (ckpt_dtype)((int)CKPT_F64 + i), data + 64 * i, 2, 3, 1 + i % 5, 0);
    fix_tensor(f, "state/model/scalar", CKPT_F32, data + 100, 0, 0, 0, 0);
    fix_tensor(f, "state/model/page", CKPT_F32, data + 4, 3, 2, 16, 32);
    fix_tensor(f, "state/model/none", CKPT_F32, NULL, 2, 0, 5, 0);
    fix_tensor(f, "state/model/q\"uo\\te \xc3\xa9.0.weight", CKPT_I16, data, 1, 5, 0, 0);
    fix_tensor(f, "state/optimizers/AdamW/param_groups/[0]/betas", CKPT_F64, data, 1, 2, 0, 0);
    fix_bind(f, "state/int_min", CKPT_KIND_INT, &int_min, 8);
    fix_bind(f, "state/int_max", CKPT_KIND_INT, &int_max, 8);
    fix_bind(f, "state/optimizers/AdamW/param_groups/[0]/step", CKPT_KIND_INT, &minus_one, 8);
    fix_bind(f, "state/tenth", CKPT_KIND_FLOAT, &tenth, 8);
    fix_bind(f, "state/tiny", CKPT_KIND_FLOAT, &tiny, 8);
    fix_bind(f, "state/huge", CKPT_KIND_FLOAT, &huge, 8);
    fix_bind(f, "state/minus_zero", CKPT_KIND_FLOAT, &minus_zero, 8);
    fix_bind(f, "state/third", CKPT_KIND_FLOAT, &third, 8);
    fix_bind(f, "state/infinite", CKPT_KIND_FLOAT, &infinite, 8);
    fix_bind(f, "state/nan", CKPT_KIND_FLOAT, &not_a_number, 8);
    fix_bind(f, "state/yes", CKPT_KIND_BOOL, &yes, 1);
    fix_bind(f, "state/no", CKPT_KIND_BOOL, &no, 1);
    fix_bind(f, "state/text", CKPT_KIND_TEXT, text, sizeof text);
    fix_bind(f, "state/empty", CKPT_KIND_TEXT, empty_text, sizeof empty_text);
    fix_bind(f, "rng/0/torch", CKPT_KIND_BYTES, rng, sizeof rng);
    fix_bind(f, "rng/0/one", CKPT_KIND_BYTES, &one_byte, 1);
}

static void check_int(const ckpt__toc *t, const char *name, int64_t want) {
    const ckpt__entry *e = fix_entry(t, name);
    assert_int_equal(e->kind, CKPT_KIND_INT);
    assert_true(e->i == want);
}

static void check_float(const ckpt__toc *t, const char *name, double want) {
    const ckpt__entry *e = fix_entry(t, name);
    assert_int_equal(e->kind, CKPT_KIND_FLOAT);
    if (want != want) assert_true(e->f != e->f);
    else assert_memory_equal(&e->f, &want, sizeof want);
}

static void check_everything(const char *path, const ckpt__toc *t, const ckpt_state *st) {
    assert_true(t->own);
    check_int(t, "state/int_min", int_min);
    check_int(t, "state/int_max", int_max);
    check_int(t, "state/optimizers/AdamW/param_groups/0/step", -1);
    check_float(t, "state/tenth", tenth);
    check_float(t, "state/tiny", tiny);
    check_float(t, "state/huge", huge);
    check_float(t, "state/minus_zero", minus_zero);
    check_float(t, "state/third", third);
    check_float(t, "state/infinite", infinite);
    check_float(t, "state/nan", not_a_number);
    assert_int_equal(fix_entry(t, "state/yes")->kind, CKPT_KIND_BOOL);
    assert_int_equal(fix_entry(t, "state/yes")->i, 1);
    assert_int_equal(fix_entry(t, "state/no")->i, 0);
    assert_int_equal(fix_entry(t, "state/text")->kind, CKPT_KIND_TEXT);
    assert_string_equal(fix_entry(t, "state/text")->text, text);
    assert_int_equal(fix_entry(t, "state/text")->size, strlen(text));
    assert_string_equal(fix_entry(t, "state/empty")->text, "");
    assert_int_equal(t->count, (size_t)st->count);
    for (int i = 0; i < st->count; i++) {
        const ckpt__binding *b = &st->items[i];
        if (b->kind != CKPT_KIND_TENSOR && b->kind != CKPT_KIND_BYTES) continue;
        const ckpt__entry *e = fix_entry(t, ckpt__state_canonical_of(b));
        assert_int_equal(e->kind, b->kind);
        assert_int_equal(e->size, b->size);
        assert_true(e->blob >= 0 && t->blobs[e->blob].has_crc);
        if (e->size > 0) assert_memory_equal(fix_bytes(path, e), b->kind == CKPT_KIND_BYTES ? b->data : b->tensor.data, b->size);
        if (b->kind != CKPT_KIND_TENSOR) continue;
        assert_int_equal(e->dtype, b->tensor.dtype);
        assert_int_equal(e->ndim, b->tensor.ndim);
        for (int d = 0; d < e->ndim; d++) assert_int_equal(e->shape[d], b->tensor.shape[d]);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    fixture f;
    ckpt__toc t;
    const char *path = util_join(util_temp_dir(), "x.safetensors");
    everything(&f);
    write_state(&f, path);
    ckpt_err e = fix_read(&t, ckpt__safetensors_read, path);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    check_everything(path, &t, &f.st);
    ckpt__toc_free(&t);
    fix_free(&f);
}

static void test_golden(void **state) {
    (void)state;
    fixture f;
    const char *dir = util_temp_dir();
    everything(&f);
    write_state(&f, util_join(dir, "a"));
    fix_golden(util_join(dir, "a"), "everything.safetensors");
    // As it was written before __metadata__ said its format, and before it named the lists.
    static const char *const older[] = { "golden/without_format.safetensors", "golden/without_lists.safetensors" };
    for (int i = 0; i < 2; i++) {
        ckpt__toc t;
        const char *before = util_tests_path(older[i]);
        assert_int_equal(fix_read(&t, ckpt__safetensors_read, before), CKPT_OK);
        check_everything(before, &t, &f.st);
        ckpt__toc_free(&t);
    }
    fix_free(&f);
    memset(&f, 0, sizeof f);
    write_state(&f, util_join(dir, "b"));
    fix_golden(util_join(dir, "b"), "empty.safetensors");
    fix_free(&f);
}

// The data begins at a multiple of 4096 of the file, each tensor at a multiple of the power of two in its size, also in a tar.
static void test_alignment(void **state) {
    (void)state;
    static const uint64_t begins[] = { 0, 4096, 100 };
    for (int k = 0; k < UTIL_COUNT(begins); k++) {
        fixture f;
        size_t n;
        ckpt__plan p;
        static const char filler[4096];
        everything(&f);
        const ckpt__binding *items = fix_items(&f, &n);
        ckpt__plan_init(&p, NULL, &f.st);
        if (begins[k] > 0) ckpt__plan_bytes(&p, filler, (size_t)begins[k], -1);
        assert_int_equal(ckpt__safetensors_plan(&p, items, n), CKPT_OK);
        assert_int_equal(ckpt__plan_finish(&p), CKPT_OK);
        assert_int_equal(p.blobs[0].offset % 4096, 0);
        for (size_t i = 0; i < p.blob_count; i++) {
            uint64_t unit = 4096;
            while (p.blobs[i].size % unit != 0) unit /= 2;
            assert_int_equal(p.blobs[i].offset % unit, 0);
        }
        ckpt__plan_free(&p);
        fix_free(&f);
    }
}

static void test_damage(void **state) {
    (void)state;
    fixture f;
    const char *path = util_join(util_temp_dir(), "x");
    everything(&f);
    write_state(&f, path);
    fix_damage(ckpt__safetensors_read, path);
    fix_free(&f);
    memset(&f, 0, sizeof f);        // nothing but a header
    write_state(&f, path);
    fix_damage(ckpt__safetensors_read, path);
}

// 0.0 / 0.0 is a NaN with its sign set on x86: what a loss may come to.
static void test_nan(void **state) {
    (void)state;
    static const uint64_t nans[] = { 0x7FF8000000000000u, 0xFFF8000000000000u };
    const char *path = util_join(util_temp_dir(), "x");
    for (int i = 0; i < 2; i++) {
        fixture f;
        double loss;
        ckpt__toc t;
        memcpy(&loss, &nans[i], sizeof loss);
        memset(&f, 0, sizeof f);
        fix_bind(&f, "loss", CKPT_KIND_FLOAT, &loss, 8);
        write_state(&f, path);
        assert_int_equal(fix_read(&t, ckpt__safetensors_read, path), CKPT_OK);
        assert_memory_equal(&fix_entry(&t, "loss")->f, &nans[i], sizeof loss);
        ckpt__toc_free(&t);
        fix_free(&f);
    }
}

//-- foreign files -----------------------------------------------------------------------

static ckpt_err read_made(ckpt__toc *t, const char *header, size_t header_size, size_t data_size) {
    static const char *path;
    if (path == NULL) path = util_join(util_temp_dir(), "x");
    size_t size = 8 + header_size + data_size;
    char *all = (char *)calloc(1, size);
    for (int i = 0; i < 8; i++) all[i] = (char)(unsigned char)((uint64_t)header_size >> (8 * i) & 255);
    memcpy(all + 8, header, header_size);
    util_write(path, all, size);
    free(all);
    return fix_read(t, ckpt__safetensors_read, path);
}

typedef struct made { const char *header; size_t data; ckpt_err err; const char *says; } made;

static void test_rules(void **state) {
    (void)state;
    static const made rows[] = {
        { "{}", 0, CKPT_OK, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 16, CKPT_OK, NULL },
        { "{\"a\":{\"data_offsets\":[0,16],\"shape\":[2,2],\"dtype\":\"F32\"}}  \n\t ", 16, CKPT_OK, NULL },
        { "{ \"__metadata__\" : { \"format\" : \"pt\" } , \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ ] , \"data_offsets\" : [ 0 , 1 ] } }", 1, CKPT_OK, NULL },
        { "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 5, CKPT_OK, NULL },
        { "{\"z\":{\"dtype\":\"U8\",\"shape\":[0,9],\"data_offsets\":[2,2]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_OK, NULL },
        { "{\"\\u0061\\ud83d\\ude00\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_OK, NULL },
        { "{\"__metadata__\":null,\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_OK, NULL },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, CKPT_OK, NULL },
        { "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, CKPT_OK, NULL },
        { "{\"a\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, CKPT_OK, NULL },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, CKPT_OK, NULL },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807,4,0],\"data_offsets\":[0,0]}}", 0, CKPT_OK, NULL },

        { "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_OK, NULL },
        { "{\"__metadata__\":{\"a\":\"1\",\"b\":\"x\\u0000y\",\"c\\u0000\":\"2\",\"c?\":\"3\"}}", 0, CKPT_OK, NULL },

        { "[]", 0, CKPT_CORRUPT, "'{'" },
        { " {}", 0, CKPT_CORRUPT, "'{'" },
        { "{}x", 0, CKPT_CORRUPT, "more follows" },
        { "{} {}", 0, CKPT_CORRUPT, "more follows" },
        { "{", 0, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},}", 16, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2,],\"data_offsets\":[0,16]}}", 16, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 15, CKPT_CORRUPT, "there are 15" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 17, CKPT_CORRUPT, "1 bytes behind" },
        { "{}", 1, CKPT_CORRUPT, "1 bytes behind" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,12]}}", 12, CKPT_CORRUPT, "'a' of 4 x F32" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,0]}}", 16, CKPT_CORRUPT, "'a'" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[1,17]}}", 17, CKPT_CORRUPT, "does not begin" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, CKPT_CORRUPT, "'b' does not begin" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", 5, CKPT_CORRUPT, "'b' does not begin" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, "'b' does not begin" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4, CKPT_CORRUPT, "'a' twice" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, CKPT_UNSUPPORTED, "'F33'" },
        { "{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, CKPT_UNSUPPORTED, "'f32'" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[7,9]},\"b\":{\"dtype\":\"I4X\",\"shape\":[9],\"data_offsets\":[0,7]}}", 9, CKPT_UNSUPPORTED, "'I4X'" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,9]}}", 8, CKPT_CORRUPT, "there are 8" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, CKPT_CORRUPT, "'a'" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":null}", 8, CKPT_CORRUPT, "no object" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]},\"__metadata__\":{\"ckpt.header_crc32\":\"00000000\"}}", 8, CKPT_UNSUPPORTED, "'F33'" },
        { "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, CKPT_CORRUPT, "3 x F4" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, CKPT_CORRUPT, "whole number" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]}}", 1, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}", 1, CKPT_CORRUPT, "whole number" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],\"data_offsets\":[0,1]}}", 1, CKPT_CORRUPT, "whole number" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, CKPT_CORRUPT, "2^63" },
        { "{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, CKPT_CORRUPT, "2^63" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":\"2\",\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, "no array" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0]}}", 2, CKPT_CORRUPT, "two numbers" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,4]}}", 2, CKPT_CORRUPT, "two numbers" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, CKPT_CORRUPT, "lacks" },
        { "{\"a\":{}}", 0, CKPT_CORRUPT, "lacks" },
        { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, "twice" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"more\":1}}", 2, CKPT_CORRUPT, "unknown member" },
        { "{\"a\":null}", 0, CKPT_CORRUPT, "no object" },
        { "{\"a\":[]}", 0, CKPT_CORRUPT, "no object" },
        { "{\"__metadata__\":{\"a\":1}}", 0, CKPT_CORRUPT, "a text is expected" },
        { "{\"__metadata__\":{\"a\":{}}}", 0, CKPT_CORRUPT, "a text is expected" },
        { "{\"__metadata__\":[]}", 0, CKPT_CORRUPT, "no object" },
        { "{\"__metadata__\":nul}", 0, CKPT_CORRUPT, "no object" },
        { "{\"__metadata__\":null,\"__metadata__\":{}}", 0, CKPT_CORRUPT, "stands twice" },
        { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, CKPT_CORRUPT, "'a' twice" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, CKPT_CORRUPT, "stands twice" },
        { "{\"__metadata__\":{\"ckpt.int:a\":\"1\"}}", 0, CKPT_OK, NULL },
        { "{\"__metadata__\":{\"ckpt.header_crc32\":\"00000000\"}}", 0, CKPT_OK, NULL },
        { "{\"__metadata__\":{\"ckpt.int:a\":\"x\"}}", 0, CKPT_CORRUPT, "the value of 'a'" },
        { "{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, "UTF-8" },
        { "{\"a\xed\xa0\x80\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, "UTF-8" },
        { "{\"a\\ud800\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, NULL },
        { "{\"a\nb\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, NULL },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}", 2, CKPT_CORRUPT, NULL },
        { "{\"a\" {\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, NULL },
        { "{a:{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKPT_CORRUPT, NULL }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__toc t;
        ckpt_err e = read_made(&t, rows[i].header, strlen(rows[i].header), rows[i].data);
        if (e != rows[i].err) fail_msg("%s: %s %s", rows[i].header, ckpt_err_name(e), ckpt_last_error());
        if (rows[i].says != NULL && strstr(ckpt_last_error(), rows[i].says) == NULL)
            fail_msg("%s: the sentence is '%s'", rows[i].header, ckpt_last_error());
        if (e == CKPT_OK) assert_false(t.own);
        ckpt__toc_free(&t);
    }
}

// What Hugging Face's files look like: metadata that is not ours, unsorted names, types that C has no word for.
static void test_foreign(void **state) {
    (void)state;
    ckpt__toc t;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\\\"ckpt.\"},\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[12,28]},"
        "\"b\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[8,12]},\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2,2],\"data_offsets\":[0,8]}}       ";
    assert_int_equal(read_made(&t, header, strlen(header), 28), CKPT_OK);
    assert_int_equal(t.count, 3);
    const ckpt__entry *e = fix_entry(&t, "lm_head.weight");
    assert_int_equal(e->kind, CKPT_KIND_TENSOR);
    assert_int_equal(e->dtype, CKPT_BF16);
    assert_int_equal(e->offset, 8 + strlen(header) + 12);
    assert_int_equal(e->stride[0], 2);
    assert_int_equal(e->stride[1], 1);
    assert_string_equal(t.blobs[e->blob].name, "lm_head.weight");
    assert_int_equal(t.blobs[e->blob].offset, e->offset);
    assert_false(t.blobs[e->blob].has_crc);
    assert_int_equal(fix_entry(&t, "b")->kind, CKPT_KIND_OTHER);
    assert_int_equal(fix_entry(&t, "b")->size, 4);
    assert_string_equal(fix_entry(&t, "b")->text, "F4");
    assert_int_equal(fix_entry(&t, "a")->dtype, CKPT_F8_E4M3);
    ckpt__toc_free(&t);
}

//-- ours, written again by another program -------------------------------------------------

// The header of a file: its text, padded with blanks to so many bytes.
static const char *padded(const char *header, size_t to) { return util_fmt("%-*s", (int)to, header); }

// What Python's save_file makes of a file of ours whose metadata its caller has carried on: the texts are the same, the data begins
// where it may, and may be other data. The sums say nothing then, and the values stay what they are.
static void test_written_again(void **state) {
    (void)state;
    fixture f;
    size_t size;
    const char *path = util_join(util_temp_dir(), "x"), *other = util_join(util_temp_dir(), "y");
    everything(&f);
    write_state(&f, path);
    char *bytes = util_read(path, &size);
    size_t begin = 8 + (size_t)ckpt__mem_le((unsigned char *)bytes, 8), end = begin;
    assert_int_equal(begin % 4096, 0);
    while (bytes[end - 1] == ' ') end--;
    end = (end + 7) / 8 * 8;
    for (int i = 0; i < 8; i++) bytes[i] = (char)(unsigned char)((uint64_t)(end - 8) >> (8 * i) & 255);
    memmove(bytes + end, bytes + begin, size - begin);
    bytes[end] = (char)(bytes[end] ^ 1);
    util_write(other, bytes, size - (begin - end));
    ckpt__toc t;
    ckpt_err e = fix_read(&t, ckpt__safetensors_read, other);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_false(t.own);
    for (size_t i = 0; i < t.blob_count; i++) assert_false(t.blobs[i].has_crc);
    assert_int_equal(t.count, (size_t)f.st.count);
    check_int(&t, "state/int_min", int_min);
    check_float(&t, "state/tenth", tenth);
    assert_int_equal(fix_entry(&t, "state/yes")->i, 1);
    assert_string_equal(fix_entry(&t, "state/text")->text, text);
    assert_int_equal(fix_entry(&t, "rng/0/torch")->kind, CKPT_KIND_BYTES);
    assert_memory_equal(fix_bytes(other, fix_entry(&t, "rng/0/torch")), rng, sizeof rng);
    assert_int_equal(fix_entry(&t, "state/optimizers/AdamW/param_groups/0/step")->lists, 16);
    ckpt__toc_free(&t);
    fix_free(&f);
}

// A NUL is a character like any other in JSON: a name shows it as '?', and metadata that hold one are passed over.
static void test_nul(void **state) {
    (void)state;
    ckpt__toc t;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"ckpt.text:a\\u0000\":\"1\",\"ckpt.text:b\":\"x\\u0000y\",\"ckpt.text:c\":\"z\"},"
        "\"w\\u0000x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    ckpt_err e = read_made(&t, header, strlen(header), 2);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_int_equal(t.count, 2);
    assert_string_equal(fix_entry(&t, "c")->text, "z");
    assert_int_equal(fix_entry(&t, "w?x")->size, 2);
    ckpt__toc_free(&t);
}

// Where the data begins is not all: the order of the keys is another's too. What has both of ours is ours, and damaged.
static void test_whose(void **state) {
    (void)state;
    static const struct { const char *meta; ckpt_err err; } rows[] = {
        { "\"ckpt.header_crc32\":\"00000000\",\"ckpt.crc32\":\"00000000\",\"format\":\"pt\",\"ckpt.int:n\":\"7\"", CKPT_OK },
        { "\"format\":\"pt\",\"ckpt.int:n\":\"7\",\"ckpt.header_crc32\":\"00000000\",\"ckpt.crc32\":\"00000000\"", CKPT_OK },
        { "\"ckpt.crc32\":\"00000000\",\"ckpt.int:n\":\"7\",\"ckpt.header_crc32\":\"00000000\"", CKPT_OK },
        { "\"format\":\"pt\",\"ckpt.int:n\":\"7\",\"ckpt.crc32\":\"00000000\",\"ckpt.header_crc32\":\"00000000\"", CKPT_CORRUPT },
        { "\"format\":\"pt\",\"ckpt.int:n\":\"7\",\"ckpt.crc32\":\"00000000\",\"ckpt.header_crc33\":\"00000000\"", CKPT_CORRUPT },
        { "\"format\":\"pt\",\"ckpt.int:n\":\"7\",\"ckpt.crc33\":\"00000000\",\"ckpt.header_crc32\":\"00000000\"", CKPT_CORRUPT }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__toc t;
        const char *header = util_fmt("{\"__metadata__\":{%s},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", rows[i].meta);
        ckpt_err e = read_made(&t, padded(header, 4088), 4088, 2);
        if (e != rows[i].err) fail_msg("%s: %s %s", header, ckpt_err_name(e), ckpt_last_error());
        if (e == CKPT_OK) check_int(&t, "n", 7);
        if (e == CKPT_OK) assert_false(t.own);
        ckpt__toc_free(&t);
    }
}

// No value of any byte of a header makes a file of ours pass for another's.
static void test_every_value(void **state) {
    (void)state;
    fixture f;
    size_t size, end = 4096;
    const char *path = util_join(util_temp_dir(), "x");
    memset(&f, 0, sizeof f);
    fix_tensor(&f, "w", CKPT_U8, data, 1, 9, 0, 0);
    fix_bind(&f, "n", CKPT_KIND_INT, &minus_one, 8);
    write_state(&f, path);
    const char *bytes = util_read(path, &size);
    while (bytes[end - 1] == ' ') end--;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < end + 2; i++) {
        for (int v = 0; v < 256; v++) {
            unsigned char c = (unsigned char)v;
            ckpt__toc t;
            if ((char)c == bytes[i]) continue;
            assert_int_equal(pwrite(fd, &c, 1, (off_t)i), 1);
            ckpt_err e = fix_read(&t, ckpt__safetensors_read, path);
            ckpt__toc_free(&t);
            if (e != CKPT_CORRUPT) fail_msg("byte %zu is %02x: %s %s", i, v, ckpt_err_name(e), ckpt_last_error());
        }
        assert_int_equal(pwrite(fd, bytes + i, 1, (off_t)i), 1);
    }
    close(fd);
    fix_free(&f);
}

// The length is checked before anything is allocated for it.
static void test_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = { 0, 1, 3, 100000001, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 7 };
    const char *path = util_join(util_temp_dir(), "x");
    for (int i = 0; i < UTIL_COUNT(lengths); i++) {
        unsigned char bytes[10] = { 0, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
        ckpt__toc t;
        for (int k = 0; k < 8; k++) bytes[k] = (unsigned char)(lengths[i] >> (8 * k) & 255);
        util_write(path, bytes, 10);
        assert_int_equal(fix_read(&t, ckpt__safetensors_read, path), CKPT_CORRUPT);
        ckpt__toc_free(&t);
    }
    // 100 MB and a byte more, in a file that is long enough.
    for (int more = 0; more < 2; more++) {
        unsigned char bytes[9] = { 0, 0, 0, 0, 0, 0, 0, 0, '{' };
        ckpt__toc t;
        uint64_t n = 100000000 + (uint64_t)more;
        for (int k = 0; k < 8; k++) bytes[k] = (unsigned char)(n >> (8 * k) & 255);
        util_write(path, bytes, 9);
        assert_int_equal(truncate(path, (off_t)(8 + n)), 0);
        assert_int_equal(fix_read(&t, ckpt__safetensors_read, path), CKPT_CORRUPT);
        assert_non_null(strstr(ckpt_last_error(), more ? "100 MB" : "damaged at byte 9"));
        ckpt__toc_free(&t);
    }
}

//-- refusals -------------------------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
    fixture f;
    ckpt__plan p;
    memset(&f, 0, sizeof f);
    fix_tensor(&f, "wave", CKPT_C128, data, 1, 2, 0, 0);
    assert_int_equal(plan_of(&p, &f, NULL), CKPT_UNSUPPORTED);
    assert_non_null(strstr(ckpt_last_error(), "'wave' is complex128"));
    ckpt__plan_free(&p);
    fix_free(&f);
    memset(&f, 0, sizeof f);
    fix_tensor(&f, "__metadata__", CKPT_F32, data, 1, 2, 0, 0);
    assert_int_equal(plan_of(&p, &f, NULL), CKPT_ARG);
    ckpt__plan_free(&p);
    fix_free(&f);
    char latin[8] = "caf\xe9";
    memset(&f, 0, sizeof f);
    fix_bind(&f, "t", CKPT_KIND_TEXT, latin, sizeof latin);
    assert_int_equal(plan_of(&p, &f, NULL), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "UTF-8"));
    ckpt__plan_free(&p);
    fix_free(&f);
}

// Names that look like keys of the format stay names.
static void test_odd_names(void **state) {
    (void)state;
    fixture f;
    ckpt__toc t;
    int64_t seven = 7;
    char trap[] = "\"ckpt.header_crc32\":\"00000000\"";
    const char *path = util_join(util_temp_dir(), "x");
    memset(&f, 0, sizeof f);
    fix_bind(&f, "trap", CKPT_KIND_TEXT, trap, sizeof trap);
    fix_bind(&f, "ckpt.int:a", CKPT_KIND_INT, &seven, 8);
    fix_bind(&f, "__metadata__", CKPT_KIND_INT, &seven, 8);
    fix_tensor(&f, "ckpt.header_crc32", CKPT_U8, data, 1, 9, 0, 0);
    fix_tensor(&f, "\"ckpt.header_crc32\":\"", CKPT_U8, data, 1, 9, 0, 0);
    write_state(&f, path);
    ckpt_err e = fix_read(&t, ckpt__safetensors_read, path);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_string_equal(fix_entry(&t, "trap")->text, trap);
    check_int(&t, "ckpt.int:a", 7);
    check_int(&t, "__metadata__", 7);
    assert_int_equal(fix_entry(&t, "ckpt.header_crc32")->size, 9);
    assert_int_equal(fix_entry(&t, "\"ckpt.header_crc32\":\"")->size, 9);
    ckpt__toc_free(&t);
    fix_free(&f);
}

// Which levels are items of lists comes back, whatever stands between them; a key that looks like an index stays a key.
static void test_lists(void **state) {
    (void)state;
    static const struct { const char *bound, *name; uint64_t lists; } rows[] = {
        { "opt/param_groups/[0]/lr", "opt/param_groups/0/lr", 1 << 2 },
        { "opt/state/0/step", "opt/state/0/step", 0 },
        { "opt/param_groups/[0]/betas/[0]", "opt/param_groups/0/betas/0", 1 << 2 | 1 << 4 },
        { "blocks/[0]", "blocks/0", 1 << 1 },
        { "opt/param_groups/[1]/lr", "opt/param_groups/1/lr", 1 << 2 },
        { "opt/param_groups/[0]/betas/[1]", "opt/param_groups/0/betas/1", 1 << 2 | 1 << 4 },
        { "opt/param_groups2/0/lr", "opt/param_groups2/0/lr", 0 },
        { "blocks/[1]/[0]", "blocks/1/0", 1 << 1 | 1 << 2 },
        { "a\"b/[0]", "a\"b/0", 1 << 1 }
    };
    fixture f;
    ckpt__toc t;
    const char *path = util_join(util_temp_dir(), "x");
    memset(&f, 0, sizeof f);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        if (i % 3 == 0) fix_bind(&f, rows[i].bound, CKPT_KIND_INT, &int_max, 8);
        else if (i % 3 == 1) fix_bind(&f, rows[i].bound, CKPT_KIND_BYTES, rng, sizeof rng);
        else fix_tensor(&f, rows[i].bound, CKPT_F32, data, 1, 3, 0, 0);
    }
    write_state(&f, path);
    ckpt_err e = fix_read(&t, ckpt__safetensors_read, path);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        if (fix_entry(&t, rows[i].name)->lists != rows[i].lists)
            fail_msg("%s: %llx", rows[i].bound, (unsigned long long)fix_entry(&t, rows[i].name)->lists);
    }
    ckpt__toc_free(&t);
    fix_free(&f);
}

// Lists that PyTorch saved are lists again behind .safetensors, or no optimizer would take them.
static void test_lists_converted(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *pt = util_join(dir, "a.pt"), *st = util_join(dir, "a.safetensors"), *back = util_join(dir, "b.pt");
    fixture f;
    ckpt_convert_desc d;
    memset(&f, 0, sizeof f);
    fix_bind(&f, "opt/param_groups/[0]/step", CKPT_KIND_INT, &int_max, 8);
    fix_tensor(&f, "opt/param_groups/[0]/betas/[0]", CKPT_F64, data, 1, 2, 0, 0);
    fix_tensor(&f, "opt/param_groups/[0]/betas/[1]", CKPT_F64, data, 1, 2, 0, 0);
    fix_tensor(&f, "opt/state/0/exp_avg", CKPT_F64, data, 1, 2, 0, 0);
    must(ckpt_save(pt, &f.st, NULL));
    for (int i = 0; i < 2; i++) {
        memset(&d, 0, sizeof d);
        d.from = i == 0 ? pt : st;
        d.to = i == 0 ? st : back;
        must(ckpt_convert(&d));
    }
    ckpt__toc t;
    must(fix_read(&t, ckpt__pt_read, back));
    assert_int_equal(fix_entry(&t, "opt/param_groups/0/step")->lists, 1 << 2);
    assert_int_equal(fix_entry(&t, "opt/param_groups/0/betas/1")->lists, 1 << 2 | 1 << 4);
    assert_int_equal(fix_entry(&t, "opt/state/0/exp_avg")->lists, 0);
    ckpt__toc_free(&t);
    fix_free(&f);
}

//-- size and memory ------------------------------------------------------------------------

static void test_many(void **state) {
    (void)state;
    enum { MANY = 100000 };
    fixture f;
    ckpt__plan p;
    ckpt__toc t;
    const char *path = util_join(util_temp_dir(), "x");
    memset(&f, 0, sizeof f);
    for (int i = 0; i < MANY; i++) {
        char name[80];
        snprintf(name, sizeof name, "state/model/transformer.blocks.%d.attn.weight.%d", i / 100, i);
        fix_tensor(&f, name, CKPT_F32, data, 2, 16, 16, 0);
    }
    double best_plan = 1e9, best_read = 1e9;
    for (int round = 0; round < 3; round++) {
        size_t n;
        const ckpt__binding *items = fix_items(&f, &n);
        double start = ckpt__os_now();
        ckpt__plan_init(&p, NULL, &f.st);
        assert_int_equal(ckpt__safetensors_plan(&p, items, n), CKPT_OK);
        double took = ckpt__os_now() - start;
        if (took < best_plan) best_plan = took;
        if (round == 0) assert_int_equal(fix_write(&p, path), CKPT_OK);
        ckpt__plan_free(&p);
        ckpt__source src;
        src.fd = open(path, O_RDONLY);
        src.path = path;
        src.base = 0;
        src.size = (uint64_t)lseek(src.fd, 0, SEEK_END);
        start = ckpt__os_now();
        ckpt__toc_init(&t, NULL);
        assert_int_equal(ckpt__safetensors_read(&t, &src), CKPT_OK);
        assert_int_equal(ckpt__toc_finish(&t), CKPT_OK);
        took = ckpt__os_now() - start;
        if (took < best_read) best_read = took;
        close(src.fd);
        assert_int_equal(t.count, MANY);
        ckpt__toc_free(&t);
    }
    printf("    100,000 tensors: planned in %.0f ms, read in %.0f ms\n", best_plan * 1e3, best_read * 1e3);
    assert_true(best_plan < 30 && best_read < 30);       // a quadratic step takes minutes
    fix_free(&f);
}

static void test_no_memory(void **state) {
    (void)state;
    fixture f;
    size_t n;
    const char *path = util_join(util_temp_dir(), "x");
    everything(&f);
    const ckpt__binding *items = fix_items(&f, &n);
    fix_memory m = { 0, 0, 0 };
    ckpt_allocator a = { fix_alloc, &m };
    ckpt_err e = CKPT_NOMEM;
    for (m.allowed = 0; e != CKPT_OK && m.allowed < 1000; m.allowed++) {
        ckpt__plan p;
        m.calls = 0;
        ckpt__plan_init(&p, &a, &f.st);
        e = ckpt__safetensors_plan(&p, items, n);
        if (e == CKPT_OK) e = ckpt__plan_finish(&p);
        ckpt__plan_free(&p);
        assert_true(e == CKPT_OK || e == CKPT_NOMEM);
        assert_int_equal(m.held, 0);
    }
    assert_int_equal(e, CKPT_OK);
    write_state(&f, path);
    ckpt__source src = { open(path, O_RDONLY), path, 0, 0 };
    src.size = (uint64_t)lseek(src.fd, 0, SEEK_END);
    e = CKPT_NOMEM;
    for (m.allowed = 0; e != CKPT_OK && m.allowed < 1000; m.allowed++) {
        ckpt__toc t;
        m.calls = 0;
        ckpt__toc_init(&t, &a);
        e = ckpt__safetensors_read(&t, &src);
        if (e == CKPT_OK) e = ckpt__toc_finish(&t);
        ckpt__toc_free(&t);
        assert_true(e == CKPT_OK || e == CKPT_NOMEM);
        assert_int_equal(m.held, 0);
    }
    assert_int_equal(e, CKPT_OK);
    close(src.fd);
    fix_free(&f);
}

static char heard[1000];
static int warnings;

static void hear(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    if (level != CKPT_LOG_WARN) return;
    warnings++;
    (void)snprintf(heard, sizeof heard, "%s", msg);
}

// What others put into __metadata__ has no place in a .pt, nor in a directory of many files: it is told of. Packing keeps it.
static void test_foreign_metadata(void **state) {
    (void)state;
    static const struct { const char *meta, *says; } rows[] = {
        { "\"format\":\"pt\",\"ss_network_alpha\":\"16\",\"modelspec.title\":\"x\"", "'ss_network_alpha', 'modelspec.title'" },
        { "\"format\":\"pt\"", NULL },
        { "\"ckpt.int:n\":\"1\",\"mine\":\"x\"", "'mine'" }
    };
    const char *dir = util_temp_dir(), *st = util_join(dir, "a.safetensors");
    for (int i = 0; i < 2 * UTIL_COUNT(rows); i++) {
        ckpt__toc t;
        ckpt_convert_desc d;
        const char *header = util_fmt("{\"__metadata__\":{%s},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", rows[i / 2].meta);
        assert_int_equal(read_made(&t, header, strlen(header), 2), CKPT_OK);
        ckpt__toc_free(&t);
        char all[1000] = { (char)(unsigned char)(strlen(header) & 255) };
        assert_true(strlen(header) < 256);
        memcpy(all + 8, header, strlen(header));
        util_write(st, all, 8 + strlen(header) + 2);
        memset(&d, 0, sizeof d);
        d.from = st;
        d.to = util_join(dir, i % 2 == 0 ? util_fmt("%d.pt", i) : util_fmt("%d", i));
        d.shards = i % 2;
        d.logger.fn = hear;
        warnings = 0;
        must(ckpt_convert(&d));
        assert_int_equal(warnings, rows[i / 2].says != NULL);
        if (warnings > 0) assert_non_null(strstr(heard, rows[i / 2].says));
        warnings = 0;
        d.to = util_join(dir, util_fmt("%d.safetensors", i));
        d.shards = 0;
        must(ckpt_convert(&d));
        assert_int_equal(warnings, 0);
    }
}

// Many long keys are counted, not listed.
static void test_many_keys(void **state) {
    (void)state;
    ckpt__toc t;
    char header[30000];
    size_t n = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{\"k\":\"\"");
    for (int i = 0; i < 100; i++) n += (size_t)snprintf(header + n, sizeof header - n, ",\"a_key_of_some_length_%d\":\"\"", i);
    n += (size_t)snprintf(header + n, sizeof header - n, "}}");
    assert_int_equal(read_made(&t, header, n, 0), CKPT_OK);
    assert_true(strlen(t.foreign) < 500);
    assert_non_null(strstr(t.foreign, "'k', 'a_key_of_some_length_0', "));
    assert_string_equal(t.foreign + strlen(t.foreign) - 5, " more");
    ckpt__toc_free(&t);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_golden),  cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_rules),   cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_foreign_metadata), cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_written_again), cmocka_unit_test(test_whose), cmocka_unit_test(test_every_value), cmocka_unit_test(test_nul), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_lengths),    cmocka_unit_test(test_refused), cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_lists),      cmocka_unit_test(test_lists_converted)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
