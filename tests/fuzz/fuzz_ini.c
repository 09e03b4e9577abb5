// Fuzzes the reader of the AWS tools' ini files, the splitter of words and the reader of dates: any bytes are taken or refused,
// without a crash, a leak or a wild read. Every key that was taken is found again; what is refused is told by its line's number.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT__TEXT_NET
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_main.h"

#define CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)

static void check_words(ckpt__view v) {
    ckpt__buf b;
    int count = 0, seen = 0;
    ckpt__buf_init(&b, NULL);
    if (ckpt__txt_words(&b, &count, v)) {
        for (size_t i = 0; i < b.len; i++) seen += b.data[i] == 0;
        CHECK(memchr(v.p, 0, v.n) != NULL || seen == count);
        CHECK(b.len <= 2 * v.n + 1);
    }
    ckpt__buf_free(&b);
}

// A date that was read and is written is the same date.
static void check_date(ckpt__view v) {
    double t = 0, again = 0;
    if (!ckpt__txt_read_date(v, &t) || t < 0 || t >= 253402300799.0) return;
    for (int kind = CKPT__DATE_BASIC; kind <= CKPT__DATE_HTTP; kind++) {
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        ckpt__txt_add_date(&b, t, (ckpt__txt_date_kind)kind);
        ckpt__view text = { b.data, b.len };
        CHECK(ckpt__txt_read_date(text, &again) && again == ckpt__txt_floor(t));
        ckpt__buf_free(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckpt__view all = { (const char *)data, size };
    check_words(all);
    check_date(all);
    ckpt__ini ini;
    ckpt_err e = ckpt__ini_parse(&ini, NULL, (const char *)data, size);
    CHECK(e == CKPT_OK || e == CKPT_CORRUPT);
    if (e != CKPT_OK) return 0;
    for (size_t i = 0; i < ini.count; i++) {
        const ckpt__ini_entry *entry = &ini.list[i];
        CHECK(ckpt__ini_get(&ini, entry->section, entry->key) == entry->value);
        CHECK(ckpt__ini_get(&ini, entry->section, "") != NULL);
        CHECK(strlen(entry->section) + strlen(entry->key) + strlen(entry->value) <= 2 * size);
    }
    ckpt__ini_free(&ini);
    return 0;
}
