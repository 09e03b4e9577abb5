// cc -DCKPT_NO_REMOTE -I. examples/8_signals.c -o signals -lpthread      SIGUSR1 saves now; SIGTERM (SLURM, spot machines) saves and ends
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <signal.h>
#include <stdio.h>

static ckpt_saver *saver;
static volatile sig_atomic_t stop;

static void on_signal(int sig) {
    if (sig == SIGTERM) stop = 1;
    ckpt_saver_request(saver);                  // may be called here: it only raises a flag
}
static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(void) {
    float w[1000] = {0};
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1000);
    ckpt_saver_desc desc = { .state = &st, .folder = "out/signals", .save_interval = "1000000ba", .overwrite = true };
    if (ckpt_saver_open(&saver, &desc) != CKPT_OK) return failed();
    signal(SIGUSR1, on_signal), signal(SIGTERM, on_signal);
    ckpt_timestamp t = {0};
    while (!stop && t.batch < 2000) {
        for (int i = 0; i < 1000; i++) w[i] += 0.01f * (1 - w[i]);
        if (t.batch == 500) raise(SIGUSR1);     // as if somebody had asked
        ckpt_next_batch(&t, 1, 0, 0);
        if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) return failed();
        if (t.batch == 1500) raise(SIGTERM);    // when the saver has just looked
    }
    signal(SIGUSR1, SIG_IGN), signal(SIGTERM, SIG_DFL);     // the handler must not find a saver that is being closed
    if (stop && ckpt_saver_batch_end(saver, &t) != CKPT_OK) return failed();        // asked after the last look; never saves twice
    printf("stopped at batch %lld with %d checkpoints\n", (long long)t.batch, ckpt_saver_checkpoints(saver, NULL));
    return ckpt_saver_close(saver, 0) != CKPT_OK ? failed() : (ckpt_state_free(&st), 0);
}
