// Proves the state: names and what is refused, the node table, ignore globs (cases/ignore_keys.json), weights-only, dtypes.
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"

//-- helpers -----------------------------------------------------------------------

static int64_t  an_int;
static double   a_float;
static bool     a_bool;
static float    floats[16];
static char     text[32] = "hello";

typedef struct warnings { int count; char last[256]; } warnings;

static void count_warning(ckpt_log_level level, const char *msg, void *user) {
    warnings *w = (warnings *)user;
    if (level != CKPT_LOG_WARN) return;
    w->count++;
    snprintf(w->last, sizeof w->last, "%s", msg);
}

// Binds an int under each name and expects the sentence of the failure, or none.
static void expect_bind(const char *const *names, int count, const char *sentence) {
    ckpt_state st = {0};
    for (int i = 0; i < count; i++) ckpt_bind_int(&st, names[i], &an_int);
    ckpt_err e = ckpt__state_check_whole(&st);
    if (sentence == NULL) {
        if (e != CKPT_OK) fail_msg("'%s': %s", names[count - 1], ckpt_last_error());
    } else {
        if (e != CKPT_ARG) fail_msg("'%s' was not refused", names[count - 1]);
        if (strstr(ckpt_last_error(), sentence) == NULL) fail_msg("'%s' is not in: %s", sentence, ckpt_last_error());
    }
    ckpt_state_free(&st);
}

static void expect_name(const char *name, const char *sentence) {
    expect_bind(&name, 1, sentence);
}

static void expect_pair(const char *a, const char *b, const char *sentence) {
    const char *names[2];
    names[0] = a;
    names[1] = b;
    expect_bind(names, 2, sentence);
}

//-- names -------------------------------------------------------------------------

static void test_names(void **unused) {
    (void)unused;
    expect_name("w", NULL);
    expect_name("state/model/layer1.weight", NULL);
    expect_name("a b/\xc3\xbc/~#?:", NULL);
    expect_name("state/x/[0]/[0]/y", NULL);
    expect_name("state/[a]/[01]/[]", NULL);         // none of these is a list item
    expect_name("", "empty");
    expect_name("/state", "begin with '/'");
    expect_name("state/", "empty level");
    expect_name("state//x", "empty level");
    expect_name("state/\xff", "UTF-8");
    expect_name("state/\xed\xa0\x80", "UTF-8");     // a surrogate
    expect_name("[0]/x", "first level");
    expect_name("state/timestamp", "by itself");
    expect_name("state/timestamp/Timestamp/epoch", "by itself");
    expect_name("state/run_name", "by itself");
    expect_name("state/callbacks/CheckpointSaver/x", "by itself");
    expect_name("state/timestamps", NULL);
    expect_name("state/callbacks/CheckpointSaver2", NULL);
    expect_name(NULL, "NULL");
    char long_name[CKPT__STATE_MAX_NAME + 2];
    memset(long_name, 'a', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    expect_name(long_name, "longer");
    long_name[sizeof long_name - 2] = 0;
    expect_name(long_name, NULL);
    char deep[2 * CKPT__STATE_MAX_LEVELS + 2];
    for (int i = 0; i <= CKPT__STATE_MAX_LEVELS; i++) memcpy(deep + 2 * i, "a/", 2);
    deep[2 * CKPT__STATE_MAX_LEVELS + 1] = 0;
    expect_name(deep, "levels");
    deep[2 * CKPT__STATE_MAX_LEVELS - 1] = 0;
    expect_name(deep, NULL);
}

static void test_conflicts(void **unused) {
    (void)unused;
    expect_pair("a/b", "a/c", NULL);
    expect_pair("a/b", "a/b", "bound already");
    expect_pair("a", "a/b", "'a' is bound already");
    expect_pair("a/b", "a", "below this one");
    expect_pair("a/b/c", "a/b", "below this one");
    expect_pair("a/[0]", "a/0", "list and a dict");
    expect_pair("a/0", "a/[0]", "list and a dict");
    expect_pair("a/[0]", "a/b", "list and a dict");
    expect_pair("a/[0]", "a/[0]", "bound already");
    expect_pair("a/[0]/x", "a/[1]/x", NULL);
    expect_pair("a/[0]/x", "a/[2]/x", "no gaps");
    expect_pair("a/[1]", "a/[0]", NULL);            // in any order
    expect_name("a/[1]", "no gaps");
}

static void test_canonical(void **unused) {
    (void)unused;
    char out[64];
    assert_int_equal(ckpt__state_canonical(out, "state/[0]/x/[12]"), 12);
    assert_string_equal(out, "state/0/x/12");
    ckpt__state_canonical(out, "[a]/[00]/[0]");
    assert_string_equal(out, "[a]/[00]/0");
    ckpt_state st = {0};
    ckpt_bind_int(&st, "state/l/[0]", &an_int);
    ckpt_bind_int(&st, "state/l/[1]/k", &an_int);
    assert_int_equal(ckpt__state_find(&st, "state/l/0"), 0);
    assert_int_equal(ckpt__state_find(&st, "state/l/1/k"), 1);
    assert_int_equal(ckpt__state_find(&st, "state/l/1"), -1);
    assert_int_equal(ckpt__state_find(&st, "state/l/[0]"), -1);
    assert_int_equal(ckpt__state_find(&st, ""), -1);
    assert_string_equal(ckpt__state_canonical_of(&st.items[1]), "state/l/1/k");
    ckpt_state_free(&st);
    assert_int_equal(ckpt__state_find(&st, "state/l/0"), -1);
}

static bool is_rng_key(const char *name) {
    const char *kind = "";
    if (ckpt__state_rng_rank(name, &kind) < 0) return false;
    return strcmp(kind, "cuda") == 0 || strcmp(kind, "torch") == 0 || strcmp(kind, "python") == 0 || strcmp(kind, "numpy") == 0;
}

static void test_rng_key(void **unused) {
    (void)unused;
    util_table t = cases_tsv("rng_key.tsv");
    for (int row = 0; row < t.rows; row++) {        // the table's '.' is the port's '/'
        char *name = util_fmt("%s", cases_text(&t, row, "key"));
        for (char *p = name; *p != 0; p++) if (*p == '.') *p = '/';
        if (is_rng_key(name) != cases_true(&t, row, "is_rng_key")) fail_msg("row %d: %s", row, name);
    }
    assert_false(is_rng_key("rng/x/cuda"));
    assert_false(is_rng_key("rng//cuda"));
    assert_false(is_rng_key("rng/0/cuda/1"));
    const char *rest = NULL;
    assert_int_equal(ckpt__state_rng_rank("rng/12/python/1/0", &rest), 12);
    assert_string_equal(rest, "python/1/0");
    assert_int_equal(ckpt__state_rng_rank("rng/99999999999999999999/x", &rest), -1);
    assert_int_equal(ckpt__state_rng_rank("rng/1", &rest), -1);
}

//-- kinds -------------------------------------------------------------------------

static void test_dtypes(void **unused) {
    (void)unused;
    static const struct { ckpt_dtype d; size_t size; const char *name; } rows[] = {
        { CKPT_F64, 8, "float64" }, { CKPT_F32, 4, "float32" }, { CKPT_F16, 2, "float16" }, { CKPT_BF16, 2, "bfloat16" },
        { CKPT_F8_E4M3, 1, "float8_e4m3fn" }, { CKPT_F8_E5M2, 1, "float8_e5m2" }, { CKPT_I64, 8, "int64" }, { CKPT_I32, 4, "int32" },
        { CKPT_I16, 2, "int16" }, { CKPT_I8, 1, "int8" }, { CKPT_U64, 8, "uint64" }, { CKPT_U32, 4, "uint32" },
        { CKPT_U16, 2, "uint16" }, { CKPT_U8, 1, "uint8" }, { CKPT_BOOL, 1, "bool" }, { CKPT_C64, 8, "complex64" },
        { CKPT_C128, 16, "complex128" }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        assert_int_equal(ckpt__state_dtype_size(rows[i].d), rows[i].size);
        assert_string_equal(ckpt__state_dtype_name(rows[i].d), rows[i].name);
    }
    assert_int_equal(ckpt__state_dtype_size((ckpt_dtype)0), 0);
    assert_int_equal(ckpt__state_dtype_size((ckpt_dtype)18), 0);
}

static ckpt_err bind_tensor(const ckpt_tensor *t) {
    ckpt_state st = {0};
    ckpt_bind(&st, "t", t);
    ckpt_err e = ckpt__state_check(&st);
    if (e == CKPT_OK) assert_int_equal(st.count, 1);
    ckpt_state_free(&st);
    return e;
}

static void test_tensors(void **unused) {
    (void)unused;
    ckpt_tensor t = {0};
    t.data = floats;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // no dtype
    t.dtype = CKPT_F32;
    assert_int_equal(bind_tensor(&t), CKPT_OK);                     // one element
    t.ndim = 9;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);
    t.ndim = -1;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);
    t.ndim = 2;
    t.shape[0] = 4;
    t.shape[1] = -1;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);
    t.shape[0] = t.shape[1] = (int64_t)1 << 32;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // 2^66 bytes
    t.shape[1] = 0;
    assert_int_equal(bind_tensor(&t), CKPT_OK);                     // empty whatever the other extent is
    t.data = NULL;
    assert_int_equal(bind_tensor(&t), CKPT_OK);
    t.shape[0] = t.shape[1] = 2;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "data is NULL"));
    t.data = floats;
    t.global_shape[0] = 4;
    t.global_shape[1] = 2;
    assert_int_equal(bind_tensor(&t), CKPT_OK);                     // half of a sharded tensor
    t.offset[0] = 2;
    assert_int_equal(bind_tensor(&t), CKPT_OK);                     // the other half
    t.offset[0] = 3;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // it leaves the whole
    assert_non_null(strstr(ckpt_last_error(), "leaves its whole: offset[0] 3 and shape[0] 2, but global_shape[0] is 4"));
    t.offset[0] = -1;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);
    t.offset[0] = 0;
    t.global_shape[1] = 1;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // smaller than its piece
    t.global_shape[0] = t.global_shape[1] = (int64_t)1 << 32;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // a whole of 2^66 bytes
    t.global_shape[1] = -2;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);
    t.global_shape[0] = t.global_shape[1] = 0;
    t.offset[1] = 1;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // a place in no whole
    t.offset[1] = 0;
    t.ndim = 0;
    t.global_shape[0] = 1;
    assert_int_equal(bind_tensor(&t), CKPT_ARG);                    // pieces of a scalar
    t.ndim = 2;
    t.global_shape[0] = t.global_shape[1] = 2;
    assert_int_equal(bind_tensor(&t), CKPT_OK);                     // all of it
    assert_int_equal(bind_tensor(NULL), CKPT_ARG);
    uint64_t size = 0;
    assert_int_equal(ckpt__state_tensor_size(&t, &size), CKPT_OK);
    assert_int_equal(size, 16);
}

// (size_t)-1 is what a call that failed has returned.
static void test_sizes(void **unused) {
    (void)unused;
    const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 5000, SIZE_MAX / 2 + 1, SIZE_MAX / 2 };
    for (int i = 0; i < 8; i++) {
        ckpt_state st = {0};
        const size_t size = sizes[i / 2];
        if (i % 2 == 0) ckpt_bind_bytes(&st, "rng/0/x", floats, size);
        else ckpt_bind_text(&st, "rng/0/x", text, size);
        assert_int_equal(ckpt__state_check(&st), i / 2 == 3 ? CKPT_OK : CKPT_ARG);
        if (i / 2 == 0) assert_non_null(strstr(ckpt_last_error(), util_fmt("cannot bind 'rng/0/x': its size, %zu bytes, is larger", size)));
        ckpt_state_free(&st);
    }
}

static ckpt_err fake_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    (void)to_device;
    (void)user;
    memcpy(dst, src, size);
    return CKPT_OK;
}

static void test_device_needs_copy(void **unused) {
    (void)unused;
    ckpt_state st = {0};
    ckpt_tensor t = {0};
    t.dtype = CKPT_F32;
    t.data = floats;
    t.device = true;
    ckpt_bind(&st, "t", &t);
    assert_int_equal(ckpt__state_check(&st), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "ckpt_state.copy"));
    st.copy = fake_copy;                                            // set after the bind is early enough
    assert_int_equal(ckpt__state_check(&st), CKPT_OK);
    ckpt_state_free(&st);
}

static void test_null_arguments(void **unused) {
    (void)unused;
    for (int i = 0; i < 7; i++) {
        static const char *const argument[] = { "value is NULL", "value is NULL", "value is NULL", "buf is NULL", "cap is 0",
                                                "data is NULL", "path is NULL" };
        ckpt_state st = {0};
        if (i == 0) ckpt_bind_int(&st, "state/x", NULL);
        if (i == 1) ckpt_bind_float(&st, "state/x", NULL);
        if (i == 2) ckpt_bind_bool(&st, "state/x", NULL);
        if (i == 3) ckpt_bind_text(&st, "state/x", NULL, 4);
        if (i == 4) ckpt_bind_text(&st, "state/x", text, 0);
        if (i == 5) ckpt_bind_bytes(&st, "state/x", NULL, 4);
        if (i == 6) ckpt_bind_file(&st, "state/x", NULL);
        assert_int_equal(ckpt__state_check(&st), CKPT_ARG);
        if (strstr(ckpt_last_error(), argument[i]) == NULL) fail_msg("%d: %s", i, ckpt_last_error());
        assert_non_null(strstr(ckpt_last_error(), "cannot bind 'state/x'"));
        ckpt_state_free(&st);
    }
    ckpt_bind_int(NULL, "x", &an_int);                              // nowhere to keep the failure, and no crash
    ckpt_state_free(NULL);
    assert_int_equal(ckpt__state_check(NULL), CKPT_ARG);
}

// An attached file's name is a path within a tar, where a level of "." is none.
static void test_file_names(void **unused) {
    (void)unused;
    static const char *const good[][2] = { { "./vocab.json", "vocab.json" }, { "data/./././x", "data/x" }, { "data/.", "data" },
                                           { "././x", "x" }, { "a./.b/..c", "a./.b/..c" }, { "composer_states.pt.txt", "composer_states.pt.txt" } };
    static const char *const bad[] = { ".", "./.", ".//x", "./", "/x", "./composer_states.pt", "composer_states.safetensors", "./.ckpt-sums" };
    for (int i = 0; i < UTIL_COUNT(good); i++) {
        counting c = { 0, 0, 0 };
        ckpt_state st = {0};
        st.allocator.fn = counting_fn;
        st.allocator.user = &c;
        ckpt_bind_file(&st, good[i][0], "/tmp/x");
        assert_int_equal(ckpt__state_check(&st), CKPT_OK);
        assert_int_equal(ckpt__state_find(&st, good[i][1]), 0);
        assert_string_equal(st.items[0].name, good[i][1]);
        ckpt_bind_file(&st, good[i][1], "/tmp/y");
        assert_int_equal(ckpt__state_check(&st), CKPT_ARG);                 // one name
        ckpt_state_free(&st);
        assert_int_equal(c.live, 0);
    }
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        ckpt_state st = {0};
        ckpt_bind_file(&st, bad[i], "/tmp/x");
        if (ckpt__state_check(&st) != CKPT_ARG) fail_msg("%s", bad[i]);
        ckpt_state_free(&st);
    }
    ckpt_state st = {0};                                                    // of a tensor they are keys like others
    ckpt_bind_f32(&st, "./x", floats, 4);
    ckpt_bind_f32(&st, "composer_states.pt", floats, 4);
    assert_int_equal(ckpt__state_check(&st), CKPT_OK);
    assert_int_equal(ckpt__state_find(&st, "./x"), 0);
    ckpt_state_free(&st);
}

static void test_sticky(void **unused) {
    (void)unused;
    ckpt_state st = {0};
    ckpt_bind_int(&st, "a", &an_int);
    ckpt_bind_int(&st, "a//b", &an_int);
    ckpt_bind_int(&st, "", &an_int);                                // does not hide the first failure
    (void)ckpt__error_set(CKPT_IO, "something else in between");
    assert_int_equal(ckpt__state_check(&st), CKPT_ARG);
    assert_string_equal(ckpt_last_error(), "cannot bind 'a//b': the name has an empty level");
    assert_int_equal(ckpt_save("/nowhere/x.pt", &st, NULL), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "cannot bind 'a//b'"));
    ckpt_load_desc d = {0};
    d.load_path = "/nowhere/x.pt";
    d.state = &st;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "cannot bind 'a//b'"));
    ckpt_state_free(&st);
    assert_int_equal(ckpt__state_check(&st), CKPT_OK);              // empty and usable
    ckpt_bind_int(&st, "a", &an_int);
    assert_int_equal(st.count, 1);
    ckpt_state_free(&st);
}

static void test_canary(void **unused) {
    (void)unused;
    ckpt_state st;
    memset(&st, 0xA5, sizeof st);
    ckpt_bind_int(&st, "a", &an_int);                               // touches nothing
    ckpt_state_free(&st);
    assert_int_equal(ckpt__state_check(&st), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "zero-initialised"));
}

//-- selections --------------------------------------------------------------------

static void test_weights_only(void **unused) {
    (void)unused;
    ckpt_state st = {0};
    static const char *const names[] = { "state/model/w", "state/modelx", "state/optimizers/a", "state/metadata/v", "rng/0/python",
                                         "state/integrations/h", "model/w" };
    for (int i = 0; i < UTIL_COUNT(names); i++) ckpt_bind_int(&st, names[i], &an_int);
    ckpt__items items;
    assert_int_equal(ckpt__state_select(&st, true, NULL, 0, NULL, &items), CKPT_OK);
    assert_int_equal(items.count, 3);
    assert_string_equal(items.list[0].name, "state/model/w");
    assert_string_equal(items.list[1].name, "state/metadata/v");
    assert_string_equal(items.list[2].name, "state/integrations/h");
    ckpt__items_free(&items);
    assert_int_equal(ckpt__state_select(&st, false, NULL, 0, NULL, &items), CKPT_OK);
    assert_int_equal(items.count, UTIL_COUNT(names));
    ckpt__items_free(&items);
    ckpt_state_free(&st);
}

typedef struct leaves { char *path[256]; bool empty[256]; int count; } leaves;

// The leaves of a JSON tree as names to bind; empty dicts and lists are leaves that cannot be bound.
static void flatten(const ckpt__json_doc *d, const ckpt__json *node, const char *path, leaves *out) {
    bool inner = (node->kind == CKPT__JSON_OBJECT || node->kind == CKPT__JSON_ARRAY) && node->count > 0;
    if (!inner) {
        out->path[out->count] = util_fmt("%s", path);
        out->empty[out->count++] = node->kind == CKPT__JSON_OBJECT || node->kind == CKPT__JSON_ARRAY;
        return;
    }
    int index = 0;
    for (const ckpt__json *c = ckpt__json_child(d, node); c != NULL; c = ckpt__json_next(d, c)) {
        const char *slash = path[0] != 0 ? "/" : "";
        if (node->kind == CKPT__JSON_ARRAY) flatten(d, c, util_fmt("%s%s[%d]", path, slash, index++), out);
        else flatten(d, c, util_fmt("%s%s%s", path, slash, c->key), out);
    }
}

// Is one of the removed paths this one or above it?
static bool expect_removed(const ckpt__json_doc *d, const ckpt__json *row, const char *canonical) {
    const ckpt__json *removed = ckpt__json_get(d, row, "removed_paths");
    for (const ckpt__json *r = ckpt__json_child(d, removed); r != NULL; r = ckpt__json_next(d, r)) {
        if (r->text[0] != 0 && ckpt__state_under(canonical, r->text)) return true;
    }
    return false;
}

static int globs_of(const ckpt__json_doc *d, const ckpt__json *row, const char **out) {
    int n = 0;
    for (const ckpt__json *g = ckpt__json_child(d, ckpt__json_get(d, row, "globs")); g != NULL; g = ckpt__json_next(d, g)) out[n++] = g->text;
    return n;
}

static void check_ignore_row(const ckpt__json_doc *d, const ckpt__json *row, int number, bool backwards) {
    const char *globs[16];
    int glob_count = globs_of(d, row, globs), kept = 0;
    long long warned = (long long)ckpt__json_get(d, row, "unmatched_globs_warned")->i;
    leaves all;
    all.count = 0;
    flatten(d, ckpt__json_get(d, row, "input"), "", &all);
    ckpt_allocator a = { NULL, NULL };
    ckpt__state_globs g;
    ckpt_state st = {0};
    bool empties = false;
    assert_int_equal(ckpt__state_globs_init(&g, &a, globs, glob_count), CKPT_OK);
    for (int k = 0; k < all.count; k++) {
        int i = backwards ? all.count - 1 - k : k;
        char canonical[256];
        bool ignored = false;
        ckpt__state_canonical(canonical, all.path[i]);
        assert_int_equal(ckpt__state_globs_match(&g, canonical, &ignored), CKPT_OK);
        if (ignored != expect_removed(d, row, canonical)) fail_msg("row %d: %s: %d", number, canonical, ignored);
        empties = empties || all.empty[i];
        if (all.empty[i] || ckpt__state_is_reserved(canonical)) continue;
        ckpt_bind_int(&st, all.path[i], &an_int);
        if (!ignored) kept++;
    }
    warnings w = { 0, "" };
    ckpt_logger log = { count_warning, &w };
    ckpt__state_globs_warn(&g, &log);
    if (w.count != warned) fail_msg("row %d: %d warnings", number, w.count);
    ckpt__state_globs_free(&g);
    ckpt__items items;
    w.count = 0;
    if (ckpt__state_check(&st) != CKPT_OK) fail_msg("row %d: %s", number, ckpt_last_error());
    assert_int_equal(ckpt__state_select(&st, false, globs, glob_count, &log, &items), CKPT_OK);
    assert_int_equal(items.count, kept);
    if (!empties) assert_int_equal(w.count, warned);
    ckpt__items_free(&items);
    ckpt_state_free(&st);
}

static void test_ignore_keys(void **unused) {
    (void)unused;
    size_t size;
    char *json = util_read(util_tests_path("cases/ignore_keys.json"), &size);
    ckpt_allocator a = { NULL, NULL };
    ckpt__json_doc d;
    assert_int_equal(ckpt__json_parse(&d, &a, json, size), CKPT_OK);
    int number = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row), number++) {
        check_ignore_row(&d, row, number, false);
        check_ignore_row(&d, row, number, true);
    }
    assert_int_equal(number, 25);
    ckpt__json_free(&d);
}

static void test_globs_refused(void **unused) {
    (void)unused;
    ckpt_state st = {0};
    ckpt__items items;
    const char *globs[2] = { "a", NULL };
    assert_int_equal(ckpt__state_select(&st, false, globs, 2, NULL, &items), CKPT_ARG);
    assert_int_equal(ckpt__state_select(&st, false, NULL, 1, NULL, &items), CKPT_ARG);
    ckpt_bind_int(&st, "x", &an_int);
    warnings w = { 0, "" };
    ckpt_logger log = { count_warning, &w };
    assert_int_equal(ckpt__state_select(&st, false, globs, 1, &log, &items), CKPT_OK);
    assert_int_equal(w.count, 1);
    assert_string_equal(w.last, "the ignore key 'a' matches nothing");
    ckpt__items_free(&items);
    ckpt_state_free(&st);
}

static void test_timestamp_items(void **unused) {
    (void)unused;
    ckpt__items items;
    ckpt__state_stamp stamp;
    ckpt_timestamp t = {0};
    t.batch = 7;
    t.total_wct = 1.5;
    ckpt__items_init(&items, NULL);
    assert_int_equal(ckpt__items_add_timestamp(&items, &stamp, &t), CKPT_OK);
    t.batch = 8;                                                    // the items hold a copy
    assert_int_equal(items.count, CKPT__CLOCKS);
    for (size_t i = 0; i < items.count; i++) {
        const ckpt__binding *b = &items.list[i];
        assert_true(ckpt__state_is_reserved(b->name));
        if (strcmp(b->name, "state/timestamp/Timestamp/batch") == 0) assert_int_equal(*(int64_t *)b->data, 7);
        if (strcmp(b->name, "state/timestamp/Timestamp/total_wct") == 0) assert_true(*(double *)b->data == 1.5);
    }
    ckpt__items_free(&items);
}

//-- size, memory ------------------------------------------------------------------

// 100,000 names in well under a second; a quadratic step anywhere takes minutes.
static void test_many(void **unused) {
    (void)unused;
    enum { MANY = 100000 };
    ckpt_state st = {0};
    char name[96];
    double begin = ckpt__os_clock(CLOCK_PROCESS_CPUTIME_ID);        // other programs keep the processors busy
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "state/model/blocks/%d/attention/[%d]/weight", i / 2, i % 2);
        ckpt_bind_int(&st, name, &an_int);
    }
    assert_int_equal(ckpt__state_check(&st), CKPT_OK);
    const char *globs[] = { "state/model/blocks/*/attention/0", "nothing" };
    ckpt__items items;
    assert_int_equal(ckpt__state_select(&st, false, globs, 2, NULL, &items), CKPT_OK);
    assert_int_equal(items.count, MANY / 2);
    for (int i = 0; i < MANY; i += 997) {
        snprintf(name, sizeof name, "state/model/blocks/%d/attention/%d/weight", i / 2, i % 2);
        assert_int_equal(ckpt__state_find(&st, name), i);
    }
    ckpt__items_free(&items);
    ckpt_state_free(&st);
    double took = ckpt__os_clock(CLOCK_PROCESS_CPUTIME_ID) - begin;
    if (took > 30.0) fail_msg("100,000 bindings took %.1f s", took);
}

static void bind_some(ckpt_state *st) {
    ckpt_bind_int(st, "state/i", &an_int);
    ckpt_bind_float(st, "state/f", &a_float);
    ckpt_bind_bool(st, "state/b", &a_bool);
    ckpt_bind_text(st, "state/t", text, sizeof text);
    ckpt_bind_bytes(st, "rng/0/python", floats, sizeof floats);
    ckpt_bind_bytes(st, "rng/0/torch", NULL, 0);
    ckpt_bind_file(st, "files/./a", "/tmp/a");
    ckpt_bind_f32(st, "state/model/w", floats, 16);
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "state/l/[%d]/x", i);
        ckpt_bind_int(st, name, &an_int);
    }
}

static void test_no_memory(void **unused) {
    (void)unused;
    const char *globs[] = { "state/l/*/x" };
    for (int n = 1; ; n++) {
        counting c = { 0, 0, n };
        ckpt_state st = {0};
        st.allocator.fn = counting_fn;
        st.allocator.user = &c;
        bind_some(&st);
        ckpt__items items;
        ckpt_err e = ckpt__state_check(&st);
        if (e == CKPT_OK) {
            e = ckpt__state_select(&st, false, globs, 1, NULL, &items);
            ckpt__items_free(&items);
        } else if (strstr(ckpt_last_error(), "out of memory") == NULL) {
            fail_msg("%s", ckpt_last_error());
        }
        ckpt_state_free(&st);
        assert_int_equal(c.live, 0);
        if (c.calls < n) break;
        assert_int_equal(e, CKPT_NOMEM);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),           cmocka_unit_test(test_conflicts),     cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_rng_key),         cmocka_unit_test(test_dtypes),        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_device_needs_copy), cmocka_unit_test(test_null_arguments), cmocka_unit_test(test_file_names),
        cmocka_unit_test(test_sticky),          cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_canary),          cmocka_unit_test(test_weights_only),  cmocka_unit_test(test_ignore_keys),
        cmocka_unit_test(test_globs_refused),   cmocka_unit_test(test_timestamp_items), cmocka_unit_test(test_many),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
