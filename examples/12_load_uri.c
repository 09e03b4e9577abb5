// cc -I. examples/12_load_uri.c -o load_uri -lcurl -lcrypto -lpthread      ./load_uri s3://bucket/run/latest-rank0.pt      from a bucket
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(int argc, char **argv) {
    float w[4] = { 1, 2, 3, 4 };
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 4);

    const char *uri = argc > 1 ? argv[1] : "file:///tmp/ckpt-bucket/single/latest.pt";
    if (argc < 2) {                                     // put one there first, and the text object that leads to it
        if (ckpt_save("single.pt", &st, NULL) != CKPT_OK) return failed();
        if (ckpt_put_file("single.pt", "file:///tmp/ckpt-bucket/single/ep1.pt", true) != CKPT_OK) return failed();
        remove("single.pt.symlink");
        if (ckpt_create_symlink_file("single/ep1.pt", "single.pt.symlink") != CKPT_OK) return failed();
        if (ckpt_put_file("single.pt.symlink", "file:///tmp/ckpt-bucket/single/latest.pt.symlink", true) != CKPT_OK) return failed();
        for (int i = 0; i < 4; i++) w[i] = 0;
    }
    ckpt_load_desc load = { .load_path = uri, .state = &st, .not_strict = argc > 1, .progress = { ckpt_progress_bar, NULL } };
    ckpt_err e = ckpt_load(&load, NULL);                // parallel ranges, every checksum verified, .symlink followed
    if (e == CKPT_NOT_FOUND) return printf("it is not there: %s\n", ckpt_last_error()), 1;
    if (e == CKPT_AUTH) return printf("we may not read it: %s\n", ckpt_last_error()), 1;
    if (e != CKPT_OK) return failed();
    printf("loaded: %g %g %g %g\n", (double)w[0], (double)w[1], (double)w[2], (double)w[3]);
    if (ckpt_get_file(uri, "copy.pt", true) != CKPT_OK) return failed();            // or just the file
    remove("copy.pt"), remove("single.pt"), remove("single.pt.symlink");
    ckpt_state_free(&st);
    return 0;
}
