// Fuzzes the XML reader, percent and base64: any bytes are well formed or damage, without a crash, a leak or a wild read. Begins and
// ends match, damage stays damage, and what is decoded and encoded again is the same.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT__TEXT_NET
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_main.h"

#define CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)

static void check_codes(const char *p, size_t n) {
    ckpt__buf code, text;
    ckpt__buf_init(&code, NULL);
    ckpt__buf_init(&text, NULL);
    ckpt__txt_add_percent(&code, p, n, false);
    CHECK(ckpt__txt_unpercent(&text, code.data == NULL ? "" : code.data, code.len) && text.len == n && (n == 0 || memcmp(text.data, p, n) == 0));
    code.len = text.len = 0;
    ckpt__txt_add_base64(&code, p, n);
    CHECK(ckpt__txt_unbase64(&text, code.data == NULL ? "" : code.data, code.len) && text.len == n && (n == 0 || memcmp(text.data, p, n) == 0));
    text.len = 0;
    (void)ckpt__txt_unpercent(&text, p, n);
    CHECK(text.len <= n);
    text.len = code.len = 0;
    if (ckpt__txt_unbase64(&text, p, n)) {      // only the one way of writing a text is taken
        ckpt__txt_add_base64(&code, text.data == NULL ? "" : text.data, text.len);
        CHECK(code.len == n && (n == 0 || memcmp(code.data, p, n) == 0));
    }
    ckpt__buf_free(&code);
    ckpt__buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    ckpt__view names[CKPT__XML_DEPTH], root;
    int depth = 0;
    size_t steps = 0;
    ckpt__xml x;
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__xml_init(&x, text, size);
    ckpt__xml_kind kind;
    for (;;) {
        kind = ckpt__xml_next(&x);
        if (kind != CKPT__XML_BEGIN && kind != CKPT__XML_END) break;
        CHECK(++steps <= size);
        if (kind == CKPT__XML_BEGIN) {
            CHECK(depth < CKPT__XML_DEPTH && x.depth == depth + 1);
            names[depth++] = x.name;
            continue;
        }
        CHECK(depth > 0 && x.depth == depth);
        depth--;
        CHECK(x.name.n == names[depth].n && memcmp(x.name.p, names[depth].p, x.name.n) == 0);
        CHECK(x.text.p >= text && x.text.p + x.text.n <= text + size);
        b.len = 0;
        if (x.plain && ckpt__xml_decode(&b, x.text)) CHECK(b.len <= x.text.n && (b.len == 0 || memchr(b.data, 0, b.len) == NULL));
    }
    CHECK(kind == CKPT__XML_DAMAGED || depth == 0);
    CHECK(ckpt__xml_next(&x) == kind);
    CHECK(ckpt__xml_root(&root, text, size) == (kind == CKPT__XML_DONE));
    (void)ckpt__xml_get(&b, text, size, "Code");
    check_codes(text, size);
    ckpt__buf_free(&b);
    return 0;
}
