// cc -DCKPT_NO_REMOTE -I. examples/7_fine_tune.c -o fine_tune -lpthread      start from another run's weights, with a new head
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(void) {
    float body[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, head[4] = { 9, 9, 9, 9 }, momentum[8] = {0};
    ckpt_state base = {0};                                  // the run that was before
    ckpt_bind_f32(&base, "state/model/body", body, 8);
    ckpt_bind_f32(&base, "state/model/head", head, 4);
    ckpt_bind_f32(&base, "state/optimizers/SGD/momentum", momentum, 8);
    if (ckpt_save("out/base.pt", &base, NULL) != CKPT_OK) return failed();
    ckpt_state_free(&base);

    float new_body[8] = {0}, new_head[2] = { 0.5f, 0.5f }, new_momentum[8] = {0};
    ckpt_state st = {0};                                    // this run: the same body, a head of another size
    ckpt_bind_f32(&st, "state/model/body", new_body, 8);
    ckpt_bind_f32(&st, "state/model/head", new_head, 2);
    ckpt_bind_f32(&st, "state/optimizers/SGD/momentum", new_momentum, 8);
    const char *const ignore[] = { "state/model/head" };    // other shapes are never forced together
    ckpt_load_desc load = { .load_path = "out/base.pt", .state = &st, .load_weights_only = true, .not_strict = true,
                            .load_ignore_keys = ignore, .load_ignore_keys_count = 1 };
    if (ckpt_load(&load, NULL) != CKPT_OK) return failed();
    printf("body from the base (%g ... %g), head as it was (%g)\n", (double)new_body[0], (double)new_body[7], (double)new_head[0]);

    load.load_ignore_keys_count = 0;
    if (ckpt_load(&load, NULL) == CKPT_MISMATCH) printf("without the ignored key: %s\n", ckpt_last_error());
    ckpt_state_free(&st);
    return new_body[7] == 8 && new_head[0] == 0.5f ? 0 : 1;
}
