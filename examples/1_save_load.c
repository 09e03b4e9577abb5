// cc -DCKPT_NO_REMOTE -I. examples/1_save_load.c -o save_load -lpthread      one file, saved and loaded: no saver, no folder
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(void) {
    float weight[6] = { 1, 2, 3, 4, 5, 6 }, bias[3] = { 0.5f, 0.25f, 0.125f };
    int64_t step = 700;
    char note[64] = "learning rate halved at 500";
    ckpt_tensor t = { .dtype = CKPT_F32, .ndim = 2, .shape = { 2, 3 }, .data = weight };

    ckpt_state st = {0};                        // the same table saves and loads
    ckpt_bind(&st, "state/model/weight", &t);
    ckpt_bind_f32(&st, "state/model/bias", bias, 3);
    ckpt_bind_int(&st, "state/optimizers/SGD/step", &step);
    ckpt_bind_text(&st, "state/note", note, sizeof note);

    if (ckpt_save("out/model.pt", &st, NULL) != CKPT_OK) return failed();

    weight[0] = bias[0] = 0;                    // as if another process had started
    step = 0;
    note[0] = 0;
    ckpt_load_desc load = { .load_path = "out/model.pt", .state = &st };
    if (ckpt_load(&load, NULL) != CKPT_OK) return failed();
    printf("weight[0] %g, bias[0] %g, step %lld, \"%s\"\n", (double)weight[0], (double)bias[0], (long long)step, note);
    printf("in Python: torch.load('out/model.pt')['state']['model']['weight']\n");
    ckpt_state_free(&st);
    return weight[0] == 1 && step == 700 ? 0 : 1;
}
