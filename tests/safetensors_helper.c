// run.sh: helper
// For safetensors_check.py: `write FILE` saves a state whose bytes the script knows, `read FILE` prints what the reader finds.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(void) {
    printf("%s: %s\n", ckpt_err_name(ckpt__error_last.code), ckpt__error_last.text);
    return 1;
}

static void bind(ckpt_state *st, const char *name, ckpt_kind kind, void *data, size_t size) {
    ckpt__binding it;
    memset(&it, 0, sizeof it);
    it.kind = kind;
    it.data = data;
    it.size = size;
    ckpt__state_bind(st, name, &it);
}

// Byte i of tensor k is (7 i + 31 k) mod 251.
static int write_file(const char *path) {
    static const int64_t shapes[][3] = { { 3, 5, 0 }, { 1024, 0, 0 }, { 7, 2, 3 }, { 0, 4, 0 } };
    static unsigned char data[16][65536];
    static int64_t ints[] = { 0, -1, INT64_MAX, INT64_MIN };
    static double floats[] = { 0.1, -0.0, 1e16, 5e-324, 1e300, 123456789.125 };
    static bool bools[] = { true, false };
    static char texts[][64] = { "", "plain", "q\" b\\ t\t \x01 \xc3\xa9 \xf0\x9f\x98\x80" };
    ckpt_state st;
    memset(&st, 0, sizeof st);
    for (int k = 0; k < 16; k++) {
        ckpt__binding it;
        char name[64];
        memset(&it, 0, sizeof it);
        for (unsigned i = 0; i < sizeof data[k]; i++) data[k][i] = (unsigned char)((7 * i + 31u * (unsigned)k) % 251);
        it.kind = CKPT_KIND_TENSOR;
        it.tensor.dtype = (ckpt_dtype)((int)CKPT_F64 + k);
        it.tensor.ndim = k % 4 == 1 ? 1 : k % 4 == 2 ? 3 : 2;
        memcpy(it.tensor.shape, shapes[k % 4], sizeof shapes[0]);
        it.tensor.data = data[k];
        snprintf(name, sizeof name, "state/model/%d.%s", k, k == 5 ? "\xc3\xa9\"\\" : "weight");
        ckpt__state_bind(&st, name, &it);
    }
    for (int i = 0; i < 4; i++) { char n[32]; snprintf(n, sizeof n, "state/int/%d", i); bind(&st, n, CKPT_KIND_INT, &ints[i], 8); }
    for (int i = 0; i < 6; i++) { char n[32]; snprintf(n, sizeof n, "state/float/%d", i); bind(&st, n, CKPT_KIND_FLOAT, &floats[i], 8); }
    for (int i = 0; i < 2; i++) { char n[32]; snprintf(n, sizeof n, "state/bool/%d", i); bind(&st, n, CKPT_KIND_BOOL, &bools[i], 1); }
    for (int i = 0; i < 3; i++) { char n[32]; snprintf(n, sizeof n, "state/text/%d", i); bind(&st, n, CKPT_KIND_TEXT, texts[i], 64); }
    bind(&st, "rng/0/bytes", CKPT_KIND_BYTES, data[3], 625);

    ckpt__plan p;
    ckpt__items items;
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    memset(&items, 0, sizeof items);
    int fd = -1;
    ckpt_err e = ckpt__state_check(&st);
    ckpt__plan_init(&p, NULL, &st);
    if (e == CKPT_OK) e = ckpt__state_select(&st, false, NULL, 0, NULL, &items);
    if (e == CKPT_OK) e = ckpt__safetensors_plan(&p, items.list, items.count);
    if (e == CKPT_OK) e = ckpt__plan_finish(&p);
    if (e == CKPT_OK) e = ckpt__os_create(&fd, path);
    if (e == CKPT_OK) e = ckpt__engine_write(&p, fd, path, &job);
    if (e == CKPT_OK) e = ckpt__os_close(fd, path);
    ckpt__plan_free(&p);
    ckpt__items_free(&items);
    ckpt__state_free(&st);
    return e == CKPT_OK ? 0 : failed();
}

// One line for each entry: name, kind, dtype, shape, CRC-32 of its bytes or its value.
static int read_file(const char *path) {
    ckpt__source src;
    ckpt__toc t;
    ckpt__engine_job job;
    ckpt__os_info info;
    memset(&job, 0, sizeof job);
    memset(&src, 0, sizeof src);
    ckpt__toc_init(&t, NULL);
    src.path = path;
    ckpt_err e = ckpt__os_open_read(&src.fd, path);
    if (e == CKPT_OK) e = ckpt__os_fstat(src.fd, &info, path);
    if (e != CKPT_OK) return failed();
    src.size = info.size;
    e = ckpt__safetensors_read(&t, &src);
    if (e == CKPT_OK) e = ckpt__toc_finish(&t);
    if (e == CKPT_OK) e = ckpt__engine_read(&src, &t, NULL, 0, true, NULL, &job);
    for (size_t i = 0; i < t.count && e == CKPT_OK; i++) {
        const ckpt__entry *x = &t.entries[i];
        printf("%s\t%d\t", x->name, (int)x->kind);
        if (x->kind == CKPT_KIND_TENSOR) printf("%s", ckpt__state_dtype_name(x->dtype));
        printf("\t");
        for (int d = 0; d < x->ndim; d++) printf(d > 0 ? ",%lld" : "%lld", (long long)x->shape[d]);
        printf("\t");
        size_t got = 0;
        char *bytes = x->blob >= 0 ? (char *)malloc((size_t)x->size + 1) : NULL;
        if (bytes != NULL) e = ckpt__os_pread(src.fd, bytes, (size_t)x->size, x->offset, &got, path);
        if (bytes != NULL) printf("%08x", (unsigned)ckpt__digest_crc32(0, bytes, got));
        free(bytes);
        if (x->kind == CKPT_KIND_INT || x->kind == CKPT_KIND_BOOL) printf("%lld", (long long)x->i);
        if (x->kind == CKPT_KIND_FLOAT) printf("%.17g", x->f);
        for (size_t k = 0; x->kind == CKPT_KIND_TEXT && k < x->size; k++) printf("%02x", (unsigned char)x->text[k]);
        printf("\n");
    }
    ckpt__toc_free(&t);
    (void)ckpt__os_close(src.fd, path);
    return e == CKPT_OK ? 0 : failed();
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "write") == 0) return write_file(argv[2]);
    if (argc == 3 && strcmp(argv[1], "read") == 0) return read_file(argv[2]);
    fprintf(stderr, "safetensors_helper write|read FILE\n");
    return 2;
}
