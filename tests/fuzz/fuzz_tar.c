// Fuzzes >>tar with a .safetensors inside: any bytes are listed or refused, without a crash, a leak or a wild read. Headers get
// the sum that they lack, or no input would come further than the first block.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_util.h"

// Puts right sums into what looks like headers.
static void mend(uint8_t *p, size_t size) {
    for (size_t at = 0; at + 512 <= size; at += 512) {
        unsigned char *h = p + at;
        if (memcmp(h + 257, "ustar", 5) != 0) continue;
        unsigned sum = 0;
        memset(h + 148, ' ', 8);
        for (int i = 0; i < 512; i++) sum += h[i];
        ckpt__tar_put(h + 148, 7, sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t *copy = (uint8_t *)malloc(size);
    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    if (data[size - 1] == 0) mend(copy, size);
    ckpt__toc t;
    ckpt__source src = fuzz_source(copy, size, 0), inner;
    ckpt__toc_init(&t, NULL);
    ckpt_err e = ckpt__tar_read(&t, &src, &inner);
    if (e == CKPT_OK) {
        if (inner.base > size || inner.size > size - inner.base) __builtin_trap();
        e = ckpt__safetensors_read(&t, &inner);
    }
    if (e == CKPT_OK) e = ckpt__toc_finish(&t);
    fuzz_check(&t, &src, e);
    ckpt__toc_free(&t);
    free(copy);
    return 0;
}
