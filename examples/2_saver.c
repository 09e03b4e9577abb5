// cc -DCKPT_NO_REMOTE -I. examples/2_saver.c -o saver -lpthread      a saver: an interval, a name template, rotation, the best one kept
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(void) {
    float w[1000] = {0};
    double loss = 0;
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1000);
    ckpt_bind_float(&st, "state/metrics/loss", &loss);

    ckpt_saver *saver;
    ckpt_saver_desc desc = { .state = &st, .run_name = "demo", .folder = "out/{run_name}", .filename = "ep{epoch:02d}-ba{batch:04d}.pt",
                             .save_interval = "10ba",
                             .overwrite = true,           // this program starts from nothing each time; 3_resume.c goes on
                             .num_checkpoints_to_keep = 2, .keep_best = "min:state/metrics/loss" };
    if (ckpt_saver_open(&saver, &desc) != CKPT_OK) return failed();
    ckpt_timestamp t = {0};
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int batch = 0; batch < 20; batch++) {
            for (int i = 0; i < 1000; i++) w[i] += 0.01f * (1 - w[i]);
            loss = (t.batch - 25.0) * (t.batch - 25.0);                         // best near batch 25
            ckpt_next_batch(&t, 32, 0, 0.001);
            if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) return failed();    // costs nanoseconds when nothing is due
        }
        ckpt_next_epoch(&t, 0);
        if (ckpt_saver_epoch_end(saver, &t) != CKPT_OK) return failed();
    }
    const char *const *paths;
    for (int i = 0, n = ckpt_saver_checkpoints(saver, &paths); i < n; i++) printf("%s\n", paths[i]);
    return ckpt_saver_close(saver, 0) != CKPT_OK ? failed() : (ckpt_state_free(&st), 0);
}
