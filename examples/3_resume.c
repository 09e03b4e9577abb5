// cc -DCKPT_NO_REMOTE -I. examples/3_resume.c -o resume -lpthread      stop it anywhere (kill -9 too) and run it again: it goes on
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static void on_log(ckpt_log_level level, const char *msg, void *user) { (void)user; if (level >= CKPT_LOG_WARN) puts(msg); }
static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(void) {
    float w[1000] = {0}, momentum[1000] = {0};
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1000);
    ckpt_bind_f32(&st, "state/optimizers/SGD/momentum", momentum, 1000);

    ckpt_saver *saver;
    ckpt_saver_desc desc = { .state = &st, .folder = "out/resume", .save_interval = "20ba", .num_checkpoints_to_keep = 3,
                             .logger = { on_log, NULL } };          // says so when a damaged checkpoint is passed over
    if (ckpt_saver_open(&saver, &desc) != CKPT_OK) return failed();

    ckpt_timestamp t = {0};
    ckpt_err e = ckpt_saver_resume(saver, &t);                      // the newest checkpoint that verifies
    if (e == CKPT_NOT_FOUND) printf("a fresh start\n");
    else if (e == CKPT_OK) printf("resumed at batch %lld\n", (long long)t.batch);
    else return failed();

    int64_t end = t.batch + 100;
    while (t.batch < end) {
        for (int i = 0; i < 1000; i++) w[i] -= 0.1f * (momentum[i] = 0.9f * momentum[i] + w[i] - 1);
        ckpt_next_batch(&t, 1, 0, 0);
        if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) fprintf(stderr, "%s\n", ckpt_last_error());    // training goes on
    }
    printf("now at batch %lld, w[0] = %.6f\n", (long long)t.batch, (double)w[0]);
    return ckpt_saver_close(saver, 0) != CKPT_OK ? failed() : (ckpt_state_free(&st), 0);
}
