// Fuzzes the reader of .ckpt-index.jsonl: any bytes are lines or damage. Names that are taken stay inside the folder, and what is
// taken, written again, reads the same. The input's first byte says whether the sums of its lines are put right first, so that the
// fuzzer gets behind them.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_main.h"

#define CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)

// Gives every line that has a place for its sum the right one.
static void put_sums_right(char *text, size_t size) {
    const size_t tail = sizeof ",\"line\":\"12345678\"}" - 1;
    for (size_t at = 0; at < size;) {
        const char *nl = (const char *)memchr(text + at, '\n', size - at);
        size_t n = nl == NULL ? size - at : (size_t)(nl - (text + at));
        if (n >= tail) {
            char sum[9];
            (void)snprintf(sum, sizeof sum, "%08lx", (unsigned long)ckpt__digest_crc32(0, text + at, n - tail));
            memcpy(text + at + n - 10, sum, 8);
        }
        at += n + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckpt__index ix, back;
    ckpt__buf text;
    if (size == 0) return 0;
    char *copy = (char *)malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 1) put_sums_right(copy, size - 1);
    CHECK(ckpt__index_init(&ix, NULL, ".") == CKPT_OK && ckpt__index_init(&back, NULL, ".") == CKPT_OK);
    CHECK(ckpt__index_parse(&ix, copy, size - 1) == CKPT_OK);
    free(copy);
    ckpt__buf_init(&text, NULL);
    for (size_t i = 0; i < ix.count; i++) {
        CHECK(ckpt__index_name_ok(ix.lines[i].name));
        CHECK(ckpt__index_find(&ix, ix.lines[i].name) == (int)i);
        ckpt__index_add_line(&text, &ix, &ix.lines[i]);
    }
    uint32_t crc = text.len > 0 ? ckpt__digest_crc32(0, text.data, text.len) : 0;
    ckpt__buf_fmt(&text, "{\"checkpoints\":%llu,\"all\":\"%08lx\"}\n", (unsigned long long)ix.count, (unsigned long)crc);
    CHECK(text.err == CKPT_OK);
    CHECK(ckpt__index_parse(&back, text.data, text.len) == CKPT_OK);
    CHECK(!back.damaged && back.count == ix.count);
    for (size_t i = 0; i < ix.count; i++) {
        const ckpt__index_line *a = &ix.lines[i], *b = &back.lines[i];
        CHECK(strcmp(a->name, b->name) == 0 && a->number == b->number && a->bytes == b->bytes && a->pinned == b->pinned);
        CHECK(a->state == b->state && ckpt__time_compare(&a->t, &b->t) == 0);
    }
    ckpt__index_rule rule = { (int)(data[0] >> 1 & 3) - 1, (int)(data[0] >> 3 & 3), (int)(data[0] >> 5 & 1) - 1 };
    ckpt__index_settle(&ix);
    for (size_t i = 0; i < ix.count; i++) ix.lines[i].owned = true;
    size_t gone = ckpt__index_choose(&ix, &rule);
    CHECK(gone <= ix.count && (rule.keep < 0 || ix.count == 0 || ix.lines[ix.count - 1].state == CKPT__INDEX_DAMAGED ||
                               !ix.lines[ix.count - 1].leaves));
    ckpt__buf_free(&text);
    ckpt__index_free(&ix);
    ckpt__index_free(&back);
    return 0;
}
