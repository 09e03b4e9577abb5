// Fuzzes names: the first line is a format, the second a file name, the third a glob and a time string. Nothing crashes, leaks
// or takes long; what a format of counters makes is matched by it; a time that is read is written and read back as the same.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_main.h"

#define CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)

// Cuts off the first line as a text of its own, at most `cap` - 1 bytes of it.
static void line(const uint8_t **data, size_t *size, char *out, size_t cap) {
    size_t n = 0;
    while (*size > 0 && **data != '\n') {
        if (n + 1 < cap && **data != 0) out[n++] = (char)**data;
        ++*data;
        --*size;
    }
    if (*size > 0) { ++*data; --*size; }
    out[n] = 0;
}

// Only plain counters and text: there the inverse must hold.
static bool is_plain(const char *format) {
    static const char *const fields[] = { "{epoch}", "{batch}", "{sample}", "{rank}", "{run_name}", "{epoch:04d}",
        "{batch:,}", "{sample:x}" };
    int count = 0;
    for (const char *p = format; *p != 0; count++) {
        size_t n = *p == '{' || *p == '}' ? 0 : 1;
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            if (strncmp(p, fields[i], strlen(fields[i])) == 0) n = strlen(fields[i]);
        }
        if (n == 0) return false;
        if (n > 1 && p > format && p[-1] == '}') return false;      // numbers that touch may need more steps than are given
        p += n;
    }
    return count < 40;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char format[120], name[160], last[100];      // long ones are slow, and test_name.c has them
    line(&data, &size, format, sizeof format);
    line(&data, &size, name, sizeof name);
    line(&data, &size, last, sizeof last);
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.epoch = 3;
    t.batch = 1234567;
    t.sample = (int64_t)strlen(name) << 40;
    t.total_wct = 3661.25;
    ckpt_ranks ranks;
    memset(&ranks, 0, sizeof ranks);
    ranks.world_size = 1;
    ckpt_name_var extra[] = { { "w", "7" }, { "", "first" } };
    ckpt_name_desc desc = { "run-1", &t, &ranks, extra, 2 };
    ckpt__name_found found;
    bool matches = false;
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt_err e = ckpt__name_format(&b, format, &desc);
    CHECK(e == CKPT_OK || e == CKPT_ARG);
    if (e == CKPT_OK && is_plain(format)) {
        ckpt__buf clean;                            // as it is where it is compared
        ckpt__buf_init(&clean, NULL);
        ckpt__index_clean(&clean, ckpt__buf_cstr(&b));
        CHECK(ckpt__name_match(format, &desc, ckpt__buf_cstr(&clean), &matches, &found) == CKPT_OK && matches);
        ckpt__buf_free(&clean);
    }
    e = ckpt__name_match(format, &desc, name, &matches, &found);
    CHECK(e == CKPT_OK || e == CKPT_ARG);
    e = ckpt__name_conflict(format, &desc, name);
    CHECK(e == CKPT_OK || e == CKPT_ARG || e == CKPT_EXISTS);
    b.len = 0;
    e = ckpt__name_load_path(&b, name, "run-1");
    CHECK(e == CKPT_OK || e == CKPT_ARG);
    ckpt__buf_free(&b);
    (void)ckpt__txt_glob(last, name);
    ckpt__uri uri;
    ckpt__txt_uri(&uri, name);
    ckpt_time time, again;
    char text[64];
    if (ckpt_time_parse(&time, last) == CKPT_OK && ckpt_time_format(text, sizeof text, time) == CKPT_OK) {
        CHECK(ckpt_time_parse(&again, text) == CKPT_OK && again.unit == time.unit && again.value == time.value);
        CHECK(again.fraction == time.fraction || time.fraction != time.fraction);
    }
    ckpt__time_schedule s;
    (void)ckpt__time_schedule_init(&s, last, "10ep", 7);
    return 0;
}
