// Proves >>text: UTF-8, numbers in every locale as Python writes and reads them, globs, sizes, URIs, and JSON.
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <locale.h>
#include <time.h>

static const char *written(double v) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__txt_add_double(&b, v);
    char *text = util_fmt("%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return text;
}

static double parsed(const char *text) {
    double v = -12345;
    assert_true(ckpt__txt_double(ckpt__txt_view(text), &v));
    return v;
}

static void test_views(void **state) {
    (void)state;
    assert_true(ckpt__txt_eq(ckpt__txt_view("ab"), "ab"));
    assert_false(ckpt__txt_eq(ckpt__txt_view("ab"), "abc"));
    assert_true(ckpt__txt_starts("latest.pt", "latest"));
    assert_false(ckpt__txt_starts("lat", "latest"));
    assert_true(ckpt__txt_ends("x.symlink", ".symlink"));
    assert_true(ckpt__txt_ends("x", ""));
    assert_false(ckpt__txt_ends("link", ".symlink"));
}

static void test_utf8(void **state) {
    (void)state;
    static const char *const good[] = { "", "abc", "\xC2\x80", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF" };
    static const char *const bad[] = { "\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
        "\xED\xBF\xBF",
                                       "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82zz" };
    for (int i = 0; i < UTIL_COUNT(good); i++) assert_true(ckpt__txt_utf8(good[i], strlen(good[i])));
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_false(ckpt__txt_utf8(bad[i], strlen(bad[i])));
    assert_true(ckpt__txt_utf8("a\0b", 3));
    char out[4];
    for (uint32_t c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        if (c >= 0xD800 && c < 0xE000) continue;
        size_t n = ckpt__txt_put(out, c);
        const char *at = out;
        assert_int_equal(ckpt__txt_next(&at, out + n), c);
        assert_int_equal(at - out, n);
        assert_true(ckpt__txt_utf8(out, n));
    }
    for (unsigned c = 0x80; c < 0x100; c++) {           // a stray byte comes back as it was
        char byte = (char)c;
        const char *at = &byte;
        assert_int_equal(ckpt__txt_put(out, ckpt__txt_next(&at, &byte + 1)), 1);
        assert_int_equal((unsigned char)out[0], c);
    }
}

static void test_int(void **state) {
    (void)state;
    int64_t v;
    static const char *const bad[] = { "", "-", "+1", " 1", "1 ", "1.0", "1e3", "9223372036854775808",
        "-9223372036854775809", "0x1", "--1", "99999999999999999999" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_false(ckpt__txt_int(ckpt__txt_view(bad[i]), &v));
    assert_true(ckpt__txt_int(ckpt__txt_view("9223372036854775807"), &v) && v == INT64_MAX);
    assert_true(ckpt__txt_int(ckpt__txt_view("-9223372036854775808"), &v) && v == INT64_MIN);
    assert_true(ckpt__txt_int(ckpt__txt_view("-0"), &v) && v == 0);
    assert_true(ckpt__txt_int(ckpt__txt_view("007"), &v) && v == 7);
}

// The texts are what Python 3.11 prints.
static void test_double_text(void **state) {
    (void)state;
    static const struct { double v; const char *text; } rows[] = {
        { 0.0, "0.0" }, { -0.0, "-0.0" }, { 1, "1.0" }, { -1.5, "-1.5" }, { 0.1, "0.1" }, { 1e15, "1000000000000000.0" },
        { 1e16, "1e+16" },
        { 1e22, "1e+22" }, { 1e-4, "0.0001" }, { 1e-5, "1e-05" }, { 0.30000000000000004, "0.30000000000000004" },
        { 5e-324, "5e-324" },
        { 2.2250738585072014e-308, "2.2250738585072014e-308" }, { 1.7976931348623157e308, "1.7976931348623157e+308" },
        { 123456789012345680.0, "1.2345678901234568e+17" }, { 1234567890123456.8, "1234567890123456.8" },
        { 9007199254740993.0, "9007199254740992.0" },
        { 5.684341886080802e-14, "5.684341886080802e-14" },     // 2^-44: the nearest 16 digits do not read back
        { 9.5367431640625e-07, "9.5367431640625e-07" }, { 3661.5, "3661.5" }, { 1e100, "1e+100" }, { 1.25e-7, "1.25e-07" }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        assert_string_equal(written(rows[i].v), rows[i].text);
        assert_true(parsed(rows[i].text) == rows[i].v);
    }
    assert_string_equal(written((double)INFINITY), "inf");
    assert_string_equal(written(-(double)INFINITY), "-inf");
    assert_string_equal(written((double)NAN), "nan");
}

static void test_double_parse(void **state) {
    (void)state;
    double v;
    static const char *const bad[] = { "", ".", "-", "e5", "1e", "1e+", "1.2.3", "1,5", " 1", "1 ", "0x10", "1_0",
        "infinit", "na", "--1", "1e5x" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_false(ckpt__txt_double(ckpt__txt_view(bad[i]), &v));
    assert_true(parsed("1.") == 1.0 && parsed(".5") == 0.5 && parsed("+2e+3") == 2000.0 && parsed("1E-2") == 0.01);
    assert_true(parsed("1e999") > DBL_MAX && parsed("1e-999") == 0.0 && parsed("-Infinity") < -DBL_MAX);
    assert_true(parsed("0e99999999999999999999") == 0.0 && parsed("1e-99999999999999999999") == 0.0);
    assert_true(isnan(parsed("NaN")));
    // Halfway between 1 and the next double: exactly, a hair above after 900 zeros, and with as many leading zeros.
    char text[2100];
    int n = snprintf(text, sizeof text, "1.00000000000000011102230246251565404236316680908203125");
    assert_true(parsed(text) == 1.0);
    memset(text + n, '0', 900);
    strcpy(text + n + 900, "1");
    assert_true(parsed(text) == 1.0 + DBL_EPSILON);
    memset(text, '0', 2000);
    strcpy(text + 2000, "12.5");
    assert_true(parsed(text) == 12.5);
    memset(text, '1', 400);
    text[400] = 0;
    assert_true(parsed(text) > DBL_MAX);
    memmove(text + 402, text, 401);
    memcpy(text, "0.", 2);
    memset(text + 2, '0', 400);
    assert_true(parsed(text) == 0.0);
}

static uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

// Any double comes back from its text, and no text is longer than 17 digits.
static void round_trips(int count) {
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < count; i++) {
        uint64_t bits = next_random(&seed);
        double v, back;
        if (i < 2046) bits = (uint64_t)i << 52;         // every power of two
        memcpy(&v, &bits, sizeof v);
        if (v != v) continue;
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        ckpt__txt_add_double(&b, v);
        ckpt__view view = { b.data, b.len };
        assert_true(ckpt__txt_double(view, &back) && back == v);
        assert_true(b.len <= 24);
        ckpt__buf_free(&b);
    }
}

static void test_double_round_trip(void **state) {
    (void)state;
    round_trips(40000);
}

// The same under a locale whose decimal point is a comma, and one whose point is two bytes long. localedef makes them in a
// directory of this test's own, since a bare machine has only C and POSIX.
static void test_locales(void **state) {
    (void)state;
    static const char *const names[] = { "de_DE", "ps_AF" };
    const char *dir = util_temp_dir();
    int had = 0;
    setenv("LOCPATH", dir, 1);
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        int made = system(util_fmt("localedef -i %s -f UTF-8 %s/%s.UTF-8 >/dev/null 2>&1", names[i], dir, names[i]));
        (void)made;                                     // it warns and still works: setlocale is the judge
        if (setlocale(LC_ALL, util_fmt("%s.UTF-8", names[i])) == NULL) continue;
        char text[16];
        snprintf(text, sizeof text, "%.1f", 1.5);
        if (strcmp(text, "1.5") != 0) had++;
        test_double_text(state);
        test_double_parse(state);
        round_trips(4000);
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        ckpt__txt_add_float(&b, -1234.5, 'f', 2);
        ckpt__buf_byte(&b, ' ');
        ckpt__txt_add_float(&b, 1234.5, 'e', 3);
        ckpt__buf_byte(&b, ' ');
        ckpt__txt_add_float(&b, 2.5, 'f', 0);
        ckpt__buf_byte(&b, ' ');
        ckpt__txt_add_float(&b, 2, 'e', 0);
        assert_string_equal(ckpt__buf_cstr(&b), "-1234.50 1.234e+03 2 2e+00");
        ckpt__buf_free(&b);
        char name[64];
        ckpt_timestamp t;
        ckpt_name_desc desc;
        memset(&t, 0, sizeof t);
        memset(&desc, 0, sizeof desc);
        t.total_wct = 1234567.25;
        t.epoch = 1234567;
        desc.timestamp = &t;
        assert_int_equal(ckpt_format_name(name, sizeof name,
            "{total_wct:,.1f} {total_wct} {epoch:,} {total_wct:g} {epoch:n}", &desc), CKPT_OK);
        assert_string_equal(name, "1,234,567.2 1234567.25 1,234,567 1.23457e+06 1234567");
        ckpt__json_doc d;
        assert_int_equal(ckpt__json_parse(&d, NULL, "[1.5]", 5), CKPT_OK);
        assert_true(ckpt__json_child(&d, ckpt__json_root(&d))->f == 1.5);
        ckpt__json_free(&d);
    }
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    if (had == 0) util_skip("no locale with a decimal comma, and localedef could not make one (package locales)");
}

static void test_globs(void **state) {
    (void)state;
    util_table t = cases_tsv("fnmatch.tsv");
    for (int i = 0; i < t.rows; i++) {
        bool got = ckpt__txt_glob(cases_text(&t, i, "pattern"), cases_text(&t, i, "name"));
        if (got != cases_true(&t, i, "matches")) fail_msg("fnmatch.tsv row %d: %s", i + 1, cases_text(&t, i, "pattern"));
    }
    // What the table does not ask; answers of Python 3.11's fnmatchcase.
    assert_true(ckpt__txt_glob("", "") && !ckpt__txt_glob("", "a") && !ckpt__txt_glob("?", "") && ckpt__txt_glob("***", ""));
    assert_true(ckpt__txt_glob("[a-c-e]", "-") && ckpt__txt_glob("[a-c-e]", "e") && !ckpt__txt_glob("[a-c-e]", "d"));
    assert_true(ckpt__txt_glob("[!z-a]", "q") && !ckpt__txt_glob("[z-a]", "q") && ckpt__txt_glob("[--a]", "0"));
    assert_true(ckpt__txt_glob("?", "\xC3\xA9") && !ckpt__txt_glob("??", "\xC3\xA9")
        && ckpt__txt_glob("[\xC3\xA0-\xC3\xBF]", "\xC3\xA9"));
    assert_true(ckpt__txt_glob("[!]", "[!]") && ckpt__txt_glob("[", "[") && ckpt__txt_glob("a\\b", "a\\b"));
}

// Time grows with the product of the lengths and no faster, whatever the pattern.
static void test_glob_speed(void **state) {
    (void)state;
    char pattern[201], name[4001];
    for (int i = 0; i < 100; i++) memcpy(pattern + 2 * i, "*a", 2);
    memset(name, 'a', 4000);
    pattern[200] = name[4000] = 0;
    assert_true(ckpt__txt_glob(pattern, name));
    name[3999] = 'b';
    clock_t start = clock();
    assert_false(ckpt__txt_glob(pattern, name));
    assert_true(clock() - start < CLOCKS_PER_SEC);
}

static void test_sizes(void **state) {
    (void)state;
    static const struct { uint64_t n; const char *text; } rows[] = {
        { 0, "0 B" }, { 1023, "1023 B" }, { 1024, "1.0 KiB" }, { 1535, "1.5 KiB" }, { 1536, "1.5 KiB" },
        { 1048524, "1023.9 KiB" }, { 1048575, "1.0 MiB" },
        { 1288490189, "1.2 GiB" }, { 5368709120u, "5.0 GiB" }, { UINT64_MAX, "16.0 EiB" }
    };
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        b.len = 0;
        ckpt__txt_size(&b, rows[i].n);
        assert_string_equal(ckpt__buf_cstr(&b), rows[i].text);
    }
    ckpt__buf_free(&b);
}

// Rows of parse_uri.tsv where this library leaves Composer's answer: SPEC section 10, item 28. All but the last three stay
// local paths, whole: only a legal scheme with "://" (or "dbfs:") makes a URI.
static const struct { const char *uri, *path; } uri_repaired[] = {
    { "C:/x/y", "C:/x/y" },                 // a drive letter is no store
    { "run#1/x", "run#1/x" },               // local names may hold '#'
    { "a?b", "a?b" },                       // and '?'
    { "//host/path", "//host/path" },       // two slashes are a path
    { "s3:b/p", "s3:b/p" },                 // no "://"
    { "my-folder:x/y", "my-folder:x/y" },   // no "://"
};

static void test_uris(void **state) {
    (void)state;
    util_table t = cases_tsv("parse_uri.tsv");
    int left = 0;
    for (int i = 0; i < t.rows; i++) {
        const char *text = cases_text(&t, i, "uri"), *path = cases_text(&t, i, "path");
        const char *backend = cases_text(&t, i, "backend"), *bucket = cases_text(&t, i, "bucket");
        for (int j = 0; j < UTIL_COUNT(uri_repaired); j++) {
            if (strcmp(uri_repaired[j].uri, text) != 0) continue;
            if (cases_text(&t, i, "source")[0] != 'O') fail_msg("a tested row may not be left: %s", text);
            path = uri_repaired[j].path;
            backend = bucket = "";
            left++;
        }
        ckpt__uri uri;
        ckpt__txt_uri(&uri, text);
        bool same = strcmp(uri.backend, backend) == 0 && ckpt__txt_eq(uri.bucket, bucket) && ckpt__txt_eq(uri.path, path);
        if (!same) fail_msg("parse_uri.tsv row %d: %s -> '%s' '%.*s' '%.*s'", i + 1, text, uri.backend, (int)uri.bucket.n,
            uri.bucket.p, (int)uri.path.n, uri.path.p);
    }
    assert_int_equal(left, UTIL_COUNT(uri_repaired));
    printf("parse_uri.tsv: %d rows, %d left on purpose (item 28: local names are not cut)\n", t.rows, left);
    ckpt__uri uri;
    ckpt__txt_uri(&uri, "s3://b/p");
    assert_true(uri.known);
    ckpt__txt_uri(&uri, "nosuch://b/p");
    assert_string_equal(uri.backend, "nosuch");
    assert_false(uri.known);
    ckpt__txt_uri(&uri, "sftp://user@host:22/x");
    assert_true(ckpt__txt_eq(uri.authority, "user@host:22"));
    ckpt__txt_uri(&uri, "DBFS:/Volumes/c/s/v");                 // schemes may be in capitals, with "//" or without
    assert_true(uri.known && strcmp(uri.backend, "dbfs") == 0 && ckpt__txt_eq(uri.path, "Volumes/c/s/v"));
    ckpt__txt_uri(&uri, "MLflow-Artifacts:/1/2/artifacts");
    assert_true(uri.known && strcmp(uri.backend, "mlflow-artifacts") == 0 && ckpt__txt_eq(uri.path, "1/2/artifacts"));
    ckpt__txt_uri(&uri, "dbfs");
    assert_true(uri.backend[0] == 0 && ckpt__txt_eq(uri.path, "dbfs"));
    ckpt__txt_uri(&uri, "averyveryverylongschemename://b/p");
    assert_string_equal(uri.backend, "");
    ckpt__txt_uri(&uri, "");
    assert_true(uri.backend[0] == 0 && uri.path.n == 0);
}

//-- json ------------------------------------------------------------------------

static ckpt_err parse(ckpt__json_doc *d, const char *text) {
    return ckpt__json_parse(d, NULL, text, strlen(text));
}

static void test_json_values(void **state) {
    (void)state;
    ckpt__json_doc d;
    assert_int_equal(parse(&d,
        " { \"a\" : [ 1 , -2.5e1, true, false, null, \"x\\u00e9\\n\\ud83d\\ude00\" ] , \"\" : { } , \"b\" : [] }\n"),
        CKPT_OK);
    const ckpt__json *root = ckpt__json_root(&d), *a = ckpt__json_get(&d, root, "a"), *v = ckpt__json_child(&d, a);
    assert_int_equal(root->kind, CKPT__JSON_OBJECT);
    assert_int_equal(root->count, 3);
    assert_int_equal(a->kind, CKPT__JSON_ARRAY);
    assert_int_equal(a->count, 6);
    assert_true(v->kind == CKPT__JSON_INT && v->i == 1 && v->f == 1.0 && strcmp(v->text, "1") == 0);
    v = ckpt__json_next(&d, v);
    assert_true(v->kind == CKPT__JSON_DOUBLE && v->f == -25.0 && strcmp(v->text, "-2.5e1") == 0);
    v = ckpt__json_next(&d, v);
    assert_true(v->kind == CKPT__JSON_BOOL && v->i == 1);
    v = ckpt__json_next(&d, v);
    assert_true(v->kind == CKPT__JSON_BOOL && v->i == 0);
    v = ckpt__json_next(&d, v);
    assert_int_equal(v->kind, CKPT__JSON_NULL);
    v = ckpt__json_next(&d, v);
    assert_int_equal(v->kind, CKPT__JSON_TEXT);
    assert_string_equal(v->text, "x\xC3\xA9\n\xF0\x9F\x98\x80");
    assert_int_equal(v->text_len, 8);
    assert_null(ckpt__json_next(&d, v));
    v = ckpt__json_get(&d, root, "");
    assert_true(v != NULL && v->kind == CKPT__JSON_OBJECT && v->count == 0 && v->key_len == 0);
    assert_null(ckpt__json_get(&d, v, "a"));
    assert_null(ckpt__json_child(&d, v));
    assert_null(ckpt__json_get(&d, root, "c"));
    assert_null(ckpt__json_get(&d, a, "a"));
    assert_null(ckpt__json_get(&d, NULL, "a"));
    assert_null(ckpt__json_next(&d, ckpt__json_get(&d, root, "b")));
    ckpt__json_free(&d);
}

static void test_json_numbers(void **state) {
    (void)state;
    ckpt__json_doc d;
    static const struct { const char *text; ckpt__json_kind kind; int64_t i; double f; } rows[] = {
        { "0", CKPT__JSON_INT, 0, 0 }, { "-0", CKPT__JSON_INT, 0, 0 },
        { "9223372036854775807", CKPT__JSON_INT, INT64_MAX, 9223372036854775808.0 },
        { "9223372036854775808", CKPT__JSON_DOUBLE, 0, 9223372036854775808.0 }, { "1.0", CKPT__JSON_DOUBLE, 0, 1 },
        { "1e2", CKPT__JSON_DOUBLE, 0, 100 },
        { "0.1", CKPT__JSON_DOUBLE, 0, 0.1 }, { "1E+2", CKPT__JSON_DOUBLE, 0, 100 }, { "-0.0", CKPT__JSON_DOUBLE, 0, 0 }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        assert_int_equal(parse(&d, rows[i].text), CKPT_OK);
        const ckpt__json *v = ckpt__json_root(&d);
        assert_true(v->kind == rows[i].kind && v->i == rows[i].i && v->f == rows[i].f && strcmp(v->text, rows[i].text) == 0);
        ckpt__json_free(&d);
    }
}

static void test_json_damage(void **state) {
    (void)state;
    static const char *const bad[] = {
        "", " ", "{", "[", "]", "}", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}",
        "{\"a\":1 \"b\":2}", "{1:2}",
        "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "NaN", "Infinity", "-Infinity", "nul", "tru", "truex", "'a'", "\"",
        "\"a", "\"\\x\"", "\"\\", "\"\\u12\"",
        "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "\"\\u0000\"", "\"\n\"", "\"\t\"", "1 1", "[]]",
        "{}}", "[}", "{]", "// x\n1",
        "\xEF\xBB\xBF[]", "\"\xFF\"", "\"\xED\xA0\x80\"", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}",
        "{\"x\":{\"a\":1,\"b\":2,\"a\":3}}", "[1]x", "\x01"
    };
    ckpt__json_doc d;
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        if (parse(&d, bad[i]) != CKPT_CORRUPT) fail_msg("taken for JSON: %s", bad[i]);
        assert_null(d.nodes);
        assert_non_null(strstr(ckpt_last_error(), "not valid JSON"));
    }
    assert_int_equal(ckpt__json_parse(&d, NULL, "[1\0]", 4), CKPT_CORRUPT);
    assert_int_equal(ckpt__json_parse(&d, NULL, "\"a\0b\"", 5), CKPT_CORRUPT);
    // The same key in two objects is no double.
    assert_int_equal(parse(&d, "[{\"a\":1},{\"a\":2},{\"b\":{\"a\":1},\"a\":1}]"), CKPT_OK);
    ckpt__json_free(&d);
}

static void test_json_depth(void **state) {
    (void)state;
    char text[200];
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        ckpt__json_doc d;
        assert_int_equal(parse(&d, text), depth <= 64 ? CKPT_OK : CKPT_CORRUPT);
        ckpt__json_free(&d);
    }
}

// Every byte changed, and every cut: no crash, no leak (the sanitizers watch), and what is still taken is still well formed.
static void test_json_mutations(void **state) {
    (void)state;
    static const char seed[] = "{\"a\":[1,2.5,-3e4,\"x\\u00e9\"],\"b\":{\"c\":null,\"d\":true},\"e\":\"\\ud83d\\ude00\"}";
    char text[sizeof seed];
    ckpt__json_doc d;
    for (size_t i = 0; i < sizeof seed - 1; i++) {
        assert_int_equal(ckpt__json_parse(&d, NULL, seed, i), CKPT_CORRUPT);
        for (unsigned c = 0; c < 256; c++) {
            memcpy(text, seed, sizeof seed);
            text[i] = (char)c;
            if (ckpt__json_parse(&d, NULL, text, sizeof seed - 1) == CKPT_OK) ckpt__json_free(&d);
        }
    }
}

// 200,000 members: found by name, and no step that grows with the square.
static void test_json_many(void **state) {
    (void)state;
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__buf_byte(&b, '{');
    for (int i = 0; i < 200000; i++) ckpt__buf_fmt(&b, "%s\"layer.%d\":%d", i > 0 ? "," : "", i, i);
    ckpt__buf_byte(&b, '}');
    ckpt__json_doc d;
    clock_t start = clock();
    assert_int_equal(ckpt__json_parse(&d, NULL, b.data, b.len), CKPT_OK);
    for (int i = 0; i < 200000; i += 37) {
        const ckpt__json *v = ckpt__json_get(&d, ckpt__json_root(&d), util_fmt("layer.%d", i));
        assert_true(v != NULL && v->i == i);
    }
    assert_true(clock() - start < 4 * CLOCKS_PER_SEC);
    ckpt__json_free(&d);
    ckpt__buf_free(&b);
}

static void test_json_write(void **state) {
    (void)state;
    static const char text[] = "a\"b\\c/\n\t\x01\x7F\xC3\xA9\xF0\x9F\x98\x80\xFF.";
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__json_add_text(&b, text, strlen(text));
    assert_string_equal(ckpt__buf_cstr(&b), "\"a\\\"b\\\\c/\\u000a\\u0009\\u0001\x7F\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD.\"");
    ckpt__json_doc d;
    assert_int_equal(ckpt__json_parse(&d, NULL, b.data, b.len), CKPT_OK);
    assert_string_equal(ckpt__json_root(&d)->text, "a\"b\\c/\n\t\x01\x7F\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD.");
    ckpt__json_free(&d);
    ckpt__buf_free(&b);
}

// Every allocation failing in turn: CKPT_NOMEM, and nothing held.
static void test_json_memory(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1,2,3,4,5,6,7,8,9,10,11,12],\"b\":{\"c\":{\"d\":1}},\"e\":\"x\"}";
    for (int allowed = 0;; allowed++) {
        budget g = { allowed, 0 };
        ckpt_allocator a = { budget_fn, &g };
        ckpt__json_doc d;
        ckpt_err e = ckpt__json_parse(&d, &a, text, sizeof text - 1);
        if (e == CKPT_OK) ckpt__json_free(&d);
        assert_int_equal(g.held, 0);
        if (e == CKPT_OK) { assert_true(allowed > 2); break; }
        assert_int_equal(e, CKPT_NOMEM);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views), cmocka_unit_test(test_utf8), cmocka_unit_test(test_int),
            cmocka_unit_test(test_double_text),
        cmocka_unit_test(test_double_parse), cmocka_unit_test(test_double_round_trip), cmocka_unit_test(test_locales),
            cmocka_unit_test(test_globs),
        cmocka_unit_test(test_glob_speed), cmocka_unit_test(test_sizes),
            cmocka_unit_test(test_uris),
        cmocka_unit_test(test_json_values), cmocka_unit_test(test_json_numbers), cmocka_unit_test(test_json_damage),
            cmocka_unit_test(test_json_depth),
        cmocka_unit_test(test_json_mutations), cmocka_unit_test(test_json_many), cmocka_unit_test(test_json_write),
            cmocka_unit_test(test_json_memory)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
