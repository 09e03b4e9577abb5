// cc -O2 -DCKPT_NO_REMOTE -I. examples/15_ranks_tcp.c -o ranks_tcp -lm -lpthread      one process a rank, as torchrun starts them
// for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 ./ranks_tcp & done; wait      or: torchrun --no-python --nproc_per_node 4 ./ranks_tcp
// then with 3 ranks, or 8, and --steps 200: it goes on
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include "ranks_tcp.h"
#include "ranks_train.h"            // bind_rows: a tensor of which each rank has some rows; train: the loop that saves and resumes

int main(int argc, char **argv) {
    ckpt_ranks ranks;
    ranks_tcp net;
    memset(&net, 0, sizeof net);
    net.timeout_s = atof(train_option(argc, argv, "--timeout", "600"));
    if (ranks_tcp_open(&net, &ranks) != CKPT_OK) return fprintf(stderr, "%s\n", ckpt_last_error()), 1;
    int bad = train(&ranks, argc, argv);
    ranks_tcp_close(&net);
    return bad;
}
