// Fuzzes >>safetensors: any bytes are listed or refused, without a crash, a leak or a wild read. What is listed agrees with the
// file, and the engine's verification stays inside it.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckpt__toc t;
    ckpt__source src = fuzz_source(data, size, 0);
    ckpt__toc_init(&t, NULL);
    ckpt_err e = ckpt__safetensors_read(&t, &src);
    if (e == CKPT_OK) e = ckpt__toc_finish(&t);
    fuzz_check(&t, &src, e);
    ckpt__toc_free(&t);
    return 0;
}
