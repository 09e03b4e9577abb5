// Fuzzes the JSON reader: any bytes are a document or damage, without a crash, a leak or a wild read. What is taken is well
// formed: the tree's links agree, every member is found by its name, and its texts written again read the same.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_main.h"

#define CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)

static void check_text(const char *p, size_t n) {
    ckpt__buf b;
    ckpt__json_doc d;
    ckpt__buf_init(&b, NULL);
    CHECK(p[n] == 0 && memchr(p, 0, n) == NULL && ckpt__txt_utf8(p, n));
    ckpt__json_add_text(&b, p, n);
    CHECK(ckpt__json_parse(&d, NULL, b.data, b.len) == CKPT_OK);
    CHECK(ckpt__json_root(&d)->text_len == n && memcmp(ckpt__json_root(&d)->text, p, n) == 0);
    ckpt__json_free(&d);
    ckpt__buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckpt__json_doc d;
    ckpt_err e = ckpt__json_parse(&d, NULL, (const char *)data, size);
    CHECK(e == CKPT_OK || e == CKPT_CORRUPT);
    if (e != CKPT_OK) return 0;
    size_t seen = 1;
    for (size_t i = 0; i < d.count; i++) {
        const ckpt__json *node = &d.nodes[i];
        int count = 0;
        for (const ckpt__json *v = ckpt__json_child(&d, node); v != NULL; v = ckpt__json_next(&d, v), count++) {
            CHECK(node->kind == CKPT__JSON_ARRAY || node->kind == CKPT__JSON_OBJECT);
            CHECK((v->key != NULL) == (node->kind == CKPT__JSON_OBJECT));
            if (v->key != NULL && d.count < 1000) {
                CHECK(ckpt__json_get(&d, node, v->key) == v);
                check_text(v->key, v->key_len);
            }
            seen++;
        }
        CHECK(count == node->count);
        if (node->kind == CKPT__JSON_TEXT && d.count < 1000) check_text(node->text, node->text_len);
    }
    CHECK(seen == d.count);
    ckpt__json_free(&d);
    return 0;
}
