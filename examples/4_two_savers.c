// cc -DCKPT_NO_REMOTE -I. examples/4_two_savers.c -o two_savers -lpthread      one state, two savers: all of it to resume, weights to share
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(void) {
    float w[1000] = {0}, momentum[1000] = {0};
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1000);
    ckpt_bind_f32(&st, "state/optimizers/SGD/momentum", momentum, 1000);

    ckpt_saver *all, *weights;
    ckpt_saver_desc every = { .state = &st, .folder = "out/two/resume", .save_interval = "10ba", .overwrite = true,
                              .num_checkpoints_to_keep = 1 };
    ckpt_saver_desc share = { .state = &st, .folder = "out/two/weights", .filename = "ba{batch}.safetensors",
                              .latest_filename = "latest.safetensors", .save_interval = "50ba", .overwrite = true,
                              .weights_only = true };
    if (ckpt_saver_open(&all, &every) != CKPT_OK || ckpt_saver_open(&weights, &share) != CKPT_OK) return failed();

    ckpt_timestamp t = {0};
    while (t.batch < 100) {
        for (int i = 0; i < 1000; i++) w[i] -= 0.1f * (momentum[i] = 0.9f * momentum[i] + w[i] - 1);
        ckpt_next_batch(&t, 1, 0, 0);
        if (ckpt_saver_batch_end(all, &t) != CKPT_OK) return failed();
        if (ckpt_saver_batch_end(weights, &t) != CKPT_OK) return failed();
    }
    printf("%d checkpoint to resume from, %d files of weights\n", ckpt_saver_checkpoints(all, NULL), ckpt_saver_checkpoints(weights, NULL));
    if (ckpt_saver_close(all, 0) != CKPT_OK || ckpt_saver_close(weights, 0) != CKPT_OK) return failed();
    ckpt_state_free(&st);
    return 0;
}
