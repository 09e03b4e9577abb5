// Proves the text side of the network: percent, hex and base64, dates, words, the ini files of the AWS tools, XML replies.
#define CKPT__TEXT_NET
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"

static const char *encoded(void (*fn)(ckpt__buf *, const void *, size_t), const char *p, size_t n) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    fn(&b, p, n);
    const char *text = util_fmt("%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return text;
}

static void percent_path(ckpt__buf *b, const void *p, size_t n) { ckpt__txt_add_percent(b, (const char *)p, n, true); }
static void percent_query(ckpt__buf *b, const void *p, size_t n) { ckpt__txt_add_percent(b, (const char *)p, n, false); }

static void test_percent(void **state) {
    (void)state;
    static const char all[] = "AZaz09-_.~/ +%=&?#\xC3\xA9\x01\x7F*'()!@:;,[]";
    assert_string_equal(encoded(percent_path, all, sizeof all - 1),
        "AZaz09-_.~/%20%2B%25%3D%26%3F%23%C3%A9%01%7F%2A%27%28%29%21%40%3A%3B%2C%5B%5D");
    assert_string_equal(encoded(percent_query, "a/b", 3), "a%2Fb");
    assert_string_equal(encoded(percent_path, "", 0), "");
    char every[256];
    for (int i = 0; i < 256; i++) every[i] = (char)(unsigned char)i;
    const char *code = encoded(percent_query, every, 256);
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    assert_true(ckpt__txt_unpercent(&b, code, strlen(code)));
    assert_int_equal(b.len, 256);
    assert_memory_equal(b.data, every, 256);
    static const char *const bad[] = { "%", "%4", "a%", "a%4", "%g0", "%0g", "%%41", "%+1", "% 1" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        char *exact = (char *)malloc(strlen(bad[i]));       // exactly as long: ASan sees a read behind it
        memcpy(exact, bad[i], strlen(bad[i]));
        assert_false(ckpt__txt_unpercent(&b, exact, strlen(bad[i])));
        free(exact);
    }
    b.len = 0;
    assert_true(ckpt__txt_unpercent(&b, "a+b%2f%2F", 9));
    assert_string_equal(ckpt__buf_cstr(&b), "a+b//");
    ckpt__buf_free(&b);
}

static void test_hex_base64(void **state) {
    (void)state;
    assert_string_equal(encoded(ckpt__txt_add_hex, "\x00\x7F\x80\xFF", 4), "007f80ff");
    static const char *const pairs[][2] = {      // RFC 4648, section 10
        { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" }, { "\xFB\xFF\xFE", "+//+" }
    };
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    for (int i = 0; i < UTIL_COUNT(pairs); i++) {
        assert_string_equal(encoded(ckpt__txt_add_base64, pairs[i][0], strlen(pairs[i][0])), pairs[i][1]);
        b.len = 0;
        assert_true(ckpt__txt_unbase64(&b, pairs[i][1], strlen(pairs[i][1])));
        assert_string_equal(ckpt__buf_cstr(&b), pairs[i][0]);
    }
    static const char *const bad[] = { "Z", "Zg", "Zg=", "Zg==Zg==", "====", "Z===", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zm9-", "=Zg=", "Z=g=" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_false(ckpt__txt_unbase64(&b, bad[i], strlen(bad[i])));
    ckpt__buf_free(&b);
}

static const char *date(double t, ckpt__txt_date_kind kind) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__txt_add_date(&b, t, kind);
    const char *text = util_fmt("%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return text;
}

static double read_date(const char *text) {
    double t = -1;
    char *exact = (char *)malloc(strlen(text) + 1);
    memcpy(exact, text, strlen(text));
    ckpt__view v = { exact, strlen(text) };
    bool ok = ckpt__txt_read_date(v, &t);
    free(exact);
    return ok ? t : -1;
}

static void test_dates(void **state) {
    (void)state;
    assert_string_equal(date(1795219060, CKPT__DATE_BASIC), "20261120T235740Z");
    assert_string_equal(date(1795219060.99, CKPT__DATE_ISO), "2026-11-20T23:57:40Z");
    assert_string_equal(date(1795219060, CKPT__DATE_HTTP), "Fri, 20 Nov 2026 23:57:40 GMT");
    assert_string_equal(date(0, CKPT__DATE_HTTP), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_string_equal(date(784111777, CKPT__DATE_HTTP), "Sun, 06 Nov 1994 08:49:37 GMT");     // RFC 9110, 5.6.7
    assert_string_equal(date(951782399, CKPT__DATE_ISO), "2000-02-28T23:59:59Z");
    assert_string_equal(date(951782400, CKPT__DATE_ISO), "2000-02-29T00:00:00Z");
    assert_string_equal(date(4107542400.0, CKPT__DATE_ISO), "2100-03-01T00:00:00Z");
    assert_string_equal(date(-5, CKPT__DATE_ISO), "1970-01-01T00:00:00Z");
    assert_string_equal(date(1e300, CKPT__DATE_ISO), "9999-12-31T23:59:59Z");
    assert_string_equal(date((double)NAN, CKPT__DATE_ISO), "1970-01-01T00:00:00Z");
    for (double t = 0; t < 2.5e11; t += 86400 * 97.0 + 12345) {
        for (int kind = CKPT__DATE_BASIC; kind <= CKPT__DATE_HTTP; kind++)
            assert_true(read_date(date(t, (ckpt__txt_date_kind)kind)) == t);
    }
    assert_true(read_date("2026-11-20T23:57:40.25Z") == 1795219060.25);
    assert_true(read_date("2026-11-20 23:57:40+00:00") == 1795219060);
    assert_true(read_date("2026-11-21T01:27:40+0130") == 1795219060);
    assert_true(read_date("2026-11-20T15:57:40.000000-08:00") == 1795219060);
    assert_true(read_date("2026-11-20T23:57:40") == 1795219060);
    assert_true(read_date("20261120T235740Z") == 1795219060);
    static const char *const bad[] = { "", "2026", "2026-11-20", "2026-11-20T", "2026-11-20T23:57", "2026-13-20T23:57:40Z",
        "2026-02-29T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z",
        "2026-1120T23:57:40Z", "2026-11-20T23:5740Z", "2026-11-20T23:57:40.Z", "2026-11-20T23:57:40X", "2026-11-20T23:57:40+1",
        "2026-11-20T23:57:40+25:00", "Fri, 20 Nov 2026", "Fri, 20 Nox 2026 23:57:40 GMT", "Fri, 31 Nov 2026 23:57:40 GMT", "tomorrow" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) assert_true(read_date(bad[i]) == -1);
}

static void test_words(void **state) {
    (void)state;
    static const struct { const char *text; int count; const char *words; } cases[] = {     // as Python's shlex.split has them
        { "", 0, "" }, { "  \t ", 0, "" }, { "a", 1, "a|" }, { " a  b ", 2, "a|b|" }, { "\"a b\" c", 2, "a b|c|" },
        { "'a \"b' c", 2, "a \"b|c|" }, { "a\\ b", 1, "a b|" }, { "'a\\b'", 1, "a\\b|" }, { "\"a\\b\\\"c\\\\\"", 1, "a\\b\"c\\|" },
        { "''", 1, "|" }, { "a'' b\"\"c", 2, "a|bc|" }, { "x --y='1 2'z", 2, "x|--y=1 2z|" }, { "a#b #c", 2, "a#b|#c|" },
        { "a\\\nb", 1, "a\nb|" },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt__buf b;
        int count = -1;
        ckpt__buf_init(&b, NULL);
        assert_true(ckpt__txt_words(&b, &count, ckpt__txt_view(cases[i].text)));
        assert_int_equal(count, cases[i].count);
        for (size_t j = 0; j < b.len; j++) if (b.data[j] == 0) b.data[j] = '|';
        assert_string_equal(ckpt__buf_cstr(&b), cases[i].words);
        ckpt__buf_free(&b);
    }
    static const char *const bad[] = { "'", "\"", "a 'b", "\"a\\\"", "a\\" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        ckpt__buf b;
        int count;
        ckpt__buf_init(&b, NULL);
        assert_false(ckpt__txt_words(&b, &count, ckpt__txt_view(bad[i])));
        ckpt__buf_free(&b);
    }
}

//-- ini ---------------------------------------------------------------------------

static void test_ini(void **state) {
    (void)state;
    static const char text[] =
        "\xEF\xBB\xBF# a comment\r\n"
        "; another = one\r\n"
        "[default]\r\n"
        "  region = us-west-2   \r\n"
        "output=json\n"
        "aws_secret_access_key = ab/c+d==#no comment ; nor this\n"
        "AWS_Access_Key_ID: AKID\n"
        "s3 =\n"
        "    addressing_style = path\n"
        "    # inside\n"
        "\n"
        "    Use_Dualstack=true\n"
        "    addressing_style = virtual\n"
        "empty =\n"
        "[profile  \"a b\"] ; trailing\n"
        "role_arn = arn:aws:iam::1:role/x\n"
        "long = one\n"
        "  two\n"
        "\n"
        "  three\n"
        "\n"
        "last = \"quoted\"\n"
        "[services my]\n"
        "s3 = \n"
        "  endpoint_url = http://h:1/\n"
        "sts =\n"
        "  endpoint_url = http://sts\n"
        "[profile 'x' y z]\n"
        "[a]b]\n"
        "k = 1";
    ckpt__ini ini;
    assert_int_equal(ckpt__ini_parse(&ini, NULL, text, sizeof text - 1), CKPT_OK);
    static const char *const want[][3] = {
        { "default", "", "" }, { "default", "region", "us-west-2" }, { "default", "output", "json" },
        { "default", "aws_secret_access_key", "ab/c+d==#no comment ; nor this" }, { "default", "aws_access_key_id", "AKID" },
        { "default", "s3", "" }, { "default", "s3.addressing_style", "virtual" }, { "default", "s3.Use_Dualstack", "true" },
        { "default", "empty", "" }, { "profile a b", "", "" }, { "profile a b", "role_arn", "arn:aws:iam::1:role/x" },
        { "profile a b", "long", "one\ntwo\n\nthree" }, { "profile a b", "last", "\"quoted\"" },
        { "services my", "s3.endpoint_url", "http://h:1/" }, { "services my", "sts.endpoint_url", "http://sts" },
        { "profile 'x' y z", "", "" }, { "a]b", "k", "1" },
    };
    for (int i = 0; i < UTIL_COUNT(want); i++) {
        const char *value = ckpt__ini_get(&ini, want[i][0], want[i][1]);
        if (value == NULL) fail_msg("[%s] %s is missing", want[i][0], want[i][1]);
        else assert_string_equal(value, want[i][2]);
    }
    assert_null(ckpt__ini_get(&ini, "default", "k"));
    assert_null(ckpt__ini_get(&ini, "nobody", ""));
    assert_null(ckpt__ini_get(&ini, "", ""));
    assert_null(ckpt__ini_get(&ini, "default", "AWS_Access_Key_ID"));
    ckpt__ini_free(&ini);
    assert_int_equal(ckpt__ini_parse(&ini, NULL, "", 0), CKPT_OK);
    assert_null(ckpt__ini_get(&ini, "default", ""));
    ckpt__ini_free(&ini);
}

static void test_ini_damaged(void **state) {
    (void)state;
    static const struct { const char *text; int line; } cases[] = {
        { "k = SECRET\n", 1 }, { "[d]\nSECRET\n", 2 }, { "[d]\n= SECRET\n", 2 }, { "[d]\nk=1\nk=SECRET\n", 3 }, { "[d]\n[d]\n", 2 },
        { "[d]\ns3 =\n  SECRET\n", 3 }, { "[]\n", 1 }, { "[d]\nk=1\nK:SECRET\n", 3 }, { "\n\n[d\n", 3 },
        { "[profile x]\n[profile \"x\"]\n", 2 },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        ckpt__ini ini;
        assert_int_equal(ckpt__ini_parse(&ini, NULL, cases[i].text, strlen(cases[i].text)), CKPT_CORRUPT);
        assert_non_null(strstr(ckpt_last_error(), util_fmt("line %d", cases[i].line)));
        assert_null(strstr(ckpt_last_error(), "SECRET"));
    }
    ckpt__ini ini;
    assert_int_equal(ckpt__ini_parse(&ini, NULL, "[d]\0", 4), CKPT_CORRUPT);
}

// 100,000 keys, sections and doubles: the time is n log n.
static void test_ini_large(void **state) {
    (void)state;
    ckpt__buf b;
    ckpt__ini ini;
    ckpt__buf_init(&b, NULL);
    for (int i = 0; i < 100000; i++) ckpt__buf_fmt(&b, i % 3 == 0 ? "[profile p%d]\n" : "k%d = v\n", i);
    double begin = ckpt__os_now();
    assert_int_equal(ckpt__ini_parse(&ini, NULL, b.data, b.len), CKPT_OK);
    assert_string_equal(ckpt__ini_get(&ini, "profile p99999", ""), "");
    assert_string_equal(ckpt__ini_get(&ini, "profile p99", "k100"), "v");
    assert_true(ckpt__os_now() - begin < 5);
    ckpt__ini_free(&ini);
    ckpt__buf_free(&b);
}

//-- xml ---------------------------------------------------------------------------

static const char *events(const char *text) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    size_t n = strlen(text);
    char *exact = (char *)malloc(n + (n == 0));
    memcpy(exact, text, n);
    ckpt__xml x;
    ckpt__xml_init(&x, exact, n);
    for (;;) {
        ckpt__xml_kind kind = ckpt__xml_next(&x);
        if (kind == CKPT__XML_DONE) { ckpt__buf_text(&b, "."); break; }
        if (kind == CKPT__XML_DAMAGED) { ckpt__buf_text(&b, "!"); break; }
        ckpt__buf_fmt(&b, "%s%d%.*s", kind == CKPT__XML_BEGIN ? "<" : ">", x.depth, (int)x.name.n, x.name.p);
        if (kind == CKPT__XML_END && x.plain) {
            ckpt__buf_text(&b, "=");
            if (!ckpt__xml_decode(&b, x.text)) ckpt__buf_text(&b, "?");
        }
    }
    assert_int_equal(ckpt__xml_next(&x), x.damaged ? CKPT__XML_DAMAGED : CKPT__XML_DONE);
    free(exact);
    const char *out = util_fmt("%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return out;
}

static void test_xml(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "<a/>", "<1a>1a=." }, { "<a></a>", "<1a>1a=." }, { "\n <?xml version=\"1.0\"?>\n<a>t</a >\n<!-- end -->", "<1a>1a=t." },
        { "<a><b>1</b><b>2</b></a>", "<1a<2b>2b=1<2b>2b=2>1a." }, { "<a> <b/> </a>", "<1a<2b>2b=>1a." },
        { "<a><b/></a>", "<1a<2b>2b=>1a." },
        { "<n:a xmlns:n='x>y' q=\"'/>\"><n:b>1</n:b></n:a>", "<1a<2b>2b=1>1a." },
        { "<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#xe9;&#x1F600;</a>", "<1a>1a=<>&\"'AB\xC3\xA9\xF0\x9F\x98\x80." },
        { "<a>x<![CDATA[<&]]]>y<!-- no -->z<?pi?></a>", "<1a>1a=x<&]yz." },
        { "<a>&nope;</a>", "<1a>1a=?." }, { "<a>&#0;</a>", "<1a>1a=?." }, { "<a>&#xD800;</a>", "<1a>1a=?." }, { "<a>&#1114112;</a>", "<1a>1a=?." },
        { "<a>&#99999999999999999999;</a>", "<1a>1a=?." }, { "<a>&</a>", "<1a>1a=?." }, { "<a>&#;</a>", "<1a>1a=?." }, { "<a>&#x</a>", "<1a>1a=?." },
        { "\xEF\xBB\xBF<a/>", "<1a>1a=." },
        { "", "!" }, { " ", "!" }, { "x", "!" }, { "<", "!" }, { "<a", "!" }, { "<a>", "<1a!" }, { "<a><", "<1a!" }, { "<a></", "<1a!" },
        { "<a></b>", "<1a!" }, { "<a></ab>", "<1a!" }, { "</a>", "!" }, { "<a/><b/>", "<1a>1a=!" }, { "<a/>x", "<1a>1a=!" }, { "<>", "!" },
        { "<a><b></a></b>", "<1a<2b!" }, { "<a q=\"></a>", "!" }, { "<a q=\"<\"/>", "!" }, { "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>", "!" },
        { "<!-- <a/>", "!" }, { "<a><![CDATA[x</a>", "<1a!" }, { "<![CDATA[x]]><a/>", "!" }, { "<a><!ELEMENT a></a>", "<1a!" }, { "<?x", "!" },
        { "<html><body>503<br></body></html>", "<1html<2body<3br!" },
    };
    for (int i = 0; i < UTIL_COUNT(cases); i++) assert_string_equal(events(cases[i][0]), cases[i][1]);
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    for (int depth = 31; depth < 35; depth++) {
        b.len = 0;
        for (int i = 0; i < depth; i++) ckpt__buf_text(&b, "<a>");
        for (int i = 0; i < depth; i++) ckpt__buf_text(&b, "</a>");
        const char *seen = events(ckpt__buf_cstr(&b));
        assert_int_equal(seen[strlen(seen) - 1], depth <= CKPT__XML_DEPTH ? '.' : '!');
    }
    ckpt__buf_free(&b);
}

static void test_xml_get(void **state) {
    (void)state;
    static const char error[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>a &amp; b</Message>"
                                "<Key></Key><Resource/><Deep><Code2>x</Code2></Deep></Error>";
    ckpt__buf b;
    ckpt__view root;
    ckpt__buf_init(&b, NULL);
    assert_true(ckpt__xml_get(&b, error, strlen(error), "Code"));
    assert_string_equal(ckpt__buf_cstr(&b), "NoSuchKey");
    assert_true(ckpt__xml_get(&b, error, strlen(error), "Message"));
    assert_string_equal(ckpt__buf_cstr(&b), "a & b");
    assert_true(ckpt__xml_get(&b, error, strlen(error), "Key"));
    assert_string_equal(ckpt__buf_cstr(&b), "");
    assert_true(ckpt__xml_get(&b, error, strlen(error), "Resource"));
    assert_false(ckpt__xml_get(&b, error, strlen(error), "Deep"));
    assert_false(ckpt__xml_get(&b, error, strlen(error), "Region"));
    assert_true(ckpt__xml_root(&root, error, strlen(error)));
    assert_true(ckpt__txt_eq(root, "Error"));
    for (size_t cut = 0; cut < strlen(error); cut++) {       // half a reply: what is there is found, nothing is made up
        assert_false(ckpt__xml_root(&root, error, cut));
        bool there = cut >= (size_t)(strstr(error, "</Code>") + 7 - error);
        assert_int_equal(ckpt__xml_get(&b, error, cut, "Code"), there);
    }
    ckpt__buf_free(&b);
}

//-- memory ------------------------------------------------------------------------

typedef struct fault { int left; size_t held; } fault;

static void *fault_alloc(void *ptr, size_t old_size, size_t new_size, void *user) {
    fault *f = (fault *)user;
    if (new_size != 0 && f->left-- <= 0) return NULL;
    f->held += new_size - old_size;
    if (new_size == 0) { free(ptr); return NULL; }
    return realloc(ptr, new_size);
}

// Every allocation refused in turn: CKPT_NOMEM, and nothing is held.
static void test_no_memory(void **state) {
    (void)state;
    ckpt__buf text;
    ckpt__buf_init(&text, NULL);
    for (int i = 0; i < 100; i++) ckpt__buf_fmt(&text, "[profile p%d]\nkey = value\ns3 =\n  a = b\n", i);
    fault f = { 0, 0 };
    ckpt_allocator a = { fault_alloc, &f };
    ckpt_err e = CKPT_NOMEM;
    for (int n = 0; e != CKPT_OK; n++) {
        ckpt__ini ini;
        f.left = n;
        e = ckpt__ini_parse(&ini, &a, text.data, text.len);
        assert_true(e == CKPT_OK || e == CKPT_NOMEM);
        if (e == CKPT_OK) {
            assert_string_equal(ckpt__ini_get(&ini, "profile p99", "s3.a"), "b");
            assert_true(n > 5);
            ckpt__ini_free(&ini);
        }
        assert_int_equal(f.held, 0);
    }
    ckpt__buf_free(&text);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percent), cmocka_unit_test(test_hex_base64), cmocka_unit_test(test_dates), cmocka_unit_test(test_words),
        cmocka_unit_test(test_ini), cmocka_unit_test(test_ini_damaged), cmocka_unit_test(test_ini_large),
        cmocka_unit_test(test_xml), cmocka_unit_test(test_xml_get), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
