// cc -DCKPT_NO_REMOTE -I. examples/6_inspect.c -o inspect -lpthread      ./inspect FILE: what is in a checkpoint, without binding anything
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }
int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "out/inspect.pt";
    if (argc < 2) {                                         // something to look at
        float w[6] = { 3, 1, 4, 1, 5, 9 };
        int64_t step = 12;
        ckpt_state st = {0};
        ckpt_bind_f32(&st, "state/model/w", w, 6);
        ckpt_bind_int(&st, "state/optimizers/SGD/step", &step);
        if (ckpt_save(path, &st, NULL) != CKPT_OK) return failed();
        ckpt_state_free(&st);
    }
    ckpt_file *f;
    if (ckpt_file_open(&f, path) != CKPT_OK) return failed();
    for (int i = 0; i < ckpt_file_count(f); i++) {
        ckpt_entry e;
        float first = 0;
        if (ckpt_file_entry(f, i, &e) != CKPT_OK) return failed();
        printf("%-36s %10llu bytes", e.name, (unsigned long long)e.size);
        for (int d = 0; e.kind == CKPT_KIND_TENSOR && d < e.tensor.ndim; d++)
            printf("%s%lld", d ? " x " : "   ", (long long)e.tensor.shape[d]);
        if (e.kind == CKPT_KIND_TENSOR && e.tensor.dtype == CKPT_F32 && e.size >= sizeof first) {
            if (ckpt_file_read(f, i, 0, &first, sizeof first) != CKPT_OK) return failed();
            printf("   begins with %g", (double)first);
        }
        printf("\n");
    }
    int bad = ckpt_file_verify(f) != CKPT_OK ? failed() : printf("every checksum is right\n") < 0;
    return ckpt_file_close(f), bad;
}
