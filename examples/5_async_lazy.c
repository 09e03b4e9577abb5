// cc -O2 -DCKPT_NO_REMOTE -I. examples/5_async_lazy.c -o async_lazy -lpthread      saving while training goes on: 64 MiB, one line more
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT = 16 << 20 };
static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6; }

int main(void) {
    float *w = calloc(COUNT, sizeof *w), grad = 0;
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, COUNT);
    ckpt_saver *saver;
    ckpt_saver_desc desc = { .state = &st, .folder = "out/lazy", .save_interval = "5ba", .overwrite = true,
                             .num_checkpoints_to_keep = 1, .snapshot = CKPT_SNAPSHOT_LAZY };
    if (w == NULL || ckpt_saver_open(&saver, &desc) != CKPT_OK) return failed();
    ckpt_timestamp t = {0};
    while (t.batch < 20) {
        for (int i = 0; i < COUNT; i++) grad += w[i] - 1;               // forward and backward: weights are only read
        if (ckpt_saver_fence(saver) != CKPT_OK) return failed();        // waits for the threads that copy, if they still do
        for (int i = 0; i < COUNT; i++) w[i] -= 1e-9f * grad;           // the optimizer changes them
        ckpt_next_batch(&t, 1, 0, 0);
        double begin = now();
        if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) return failed();
        if (t.batch % 5 == 0) printf("batch %2lld: the call took %.2f ms\n", (long long)t.batch, now() - begin);
    }
    int bad = ckpt_saver_close(saver, 0) != CKPT_OK ? failed() : 0;     // all of it is durable after this
    ckpt_state_free(&st);
    free(w);
    return bad;
}
