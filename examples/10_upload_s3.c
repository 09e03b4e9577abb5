// cc -I. examples/10_upload_s3.c -o uploading -lcurl -lcrypto -lpthread      ./uploading s3://bucket/{run_name}      saved, then uploaded
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(int argc, char **argv) {
    static float w[1 << 20];
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1 << 20);

    // Credentials come from where boto3 looks for them: environment, ~/.aws, the machine's role. S3_ENDPOINT_URL: another server.
    ckpt_saver *saver;
    ckpt_saver_desc desc = { .state = &st, .run_name = "demo", .folder = argc > 1 ? argv[1] : "file:///tmp/ckpt-bucket/{run_name}",
                             .save_interval = "10ba", .num_checkpoints_to_keep = 1, .num_remote_to_keep = 3,
                             .snapshot = CKPT_SNAPSHOT_LAZY, .progress = { ckpt_progress_bar, NULL } };
    if (ckpt_saver_open(&saver, &desc) != CKPT_OK) return failed();         // wrong credentials show here, not hours later
    ckpt_timestamp t = {0};
    ckpt_err e = ckpt_saver_resume(saver, &t);                              // from the bucket, if this machine has nothing newer
    if (e != CKPT_OK && e != CKPT_NOT_FOUND) return failed();
    printf("%s at batch %lld\n", e == CKPT_OK ? "resumed" : "a fresh start", (long long)t.batch);
    for (int64_t end = t.batch + 50; t.batch < end; ) {
        if (ckpt_saver_fence(saver) != CKPT_OK) return failed();            // before the weights change
        for (int i = 0; i < 1 << 20; i++) w[i] += 0.01f * (1 - w[i]);
        ckpt_next_batch(&t, 32, 0, 0.001);
        if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) fprintf(stderr, "%s\n", ckpt_last_error());    // no wait for the network
    }
    if (ckpt_saver_wait(saver, 0) != CKPT_OK) fprintf(stderr, "%s\n", ckpt_last_error());
    ckpt_saver_counts c;
    ckpt_saver_stats(saver, &c);
    printf("saved %d, uploaded %d, removed %d old ones there\n", (int)c.saved, (int)c.uploaded, (int)c.removed);
    return ckpt_saver_close(saver, 0) != CKPT_OK ? failed() : (ckpt_state_free(&st), 0);
}
