/* fuzz_zip.c: any bytes as a .pt file.

   clang -fsanitize=fuzzer,address -g tests/fuzz/fuzz_zip.c -lpthread; or -DCKPT_FUZZ_MAIN to replay files.
*/
#define CKPT_IMPLEMENTATION
#define CKPT_NO_REMOTE
#define CKPT_STATIC
#include "../../ckpt.h"
#include "fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    static int fd = -1;
    ckpt__source src = { -1, "fuzz", 0, n };
    ckpt__toc t;
    if (n > 1 << 18) return 0;
    if (fd < 0 && ckpt__os_open_temp(&fd, "/tmp") != CKPT_OK) abort();
    if (ckpt__os_truncate(fd, 0, "fuzz") != CKPT_OK || ckpt__os_pwrite(fd, p, n, 0, "fuzz") != CKPT_OK) abort();
    src.fd = fd;
    ckpt__toc_init(&t, NULL);
    if (ckpt__pt_read(&t, &src) == CKPT_OK) {
        if (ckpt__toc_finish(&t) != CKPT_OK) abort();
        for (size_t i = 0; i < t.blob_count; i++) {
            const ckpt__blob *b = &t.blobs[i];
            if (b->offset > n || b->size > n - b->offset) abort();
            if (i > 0 && b->offset < t.blobs[i - 1].offset + t.blobs[i - 1].size) abort();
        }
        for (size_t i = 0; i < t.count; i++) {
            const ckpt__entry *e = &t.entries[i];
            if (e->blob >= (int)t.blob_count) abort();
            if (e->blob < 0 || e->size == 0) continue;
            uint64_t last = e->offset, each = e->kind == CKPT_KIND_TENSOR ? ckpt__state_dtype_size(e->dtype) : 1;
            for (int d = 0; e->kind == CKPT_KIND_TENSOR && d < e->ndim; d++)
                last += (uint64_t)(e->shape[d] - 1) * (uint64_t)e->stride[d] * each;
            const ckpt__blob *b = &t.blobs[e->blob];
            if (e->offset < b->offset || last + each > b->offset + b->size) abort();
        }
    } else if (ckpt__error_last.text[0] == 0) {
        abort();
    }
    ckpt__toc_free(&t);
    return 0;
}
