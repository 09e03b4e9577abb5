/* ranks_mpi.c: what ranks_mpi.sh starts under mpirun: the hooks of examples/ranks_mpi.h.
     ranks_mpi values            what they compute
     ranks_mpi stop|kill RANK    that rank stops or dies after some calls; the others print the error of the call that fails */

#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "../examples/ranks_mpi.h"
#include "ranks_values.h"
#include <signal.h>
#include <unistd.h>

#define must(cond) do { if (!(cond)) { fprintf(stderr, "rank %d, line %d: %s: %s\n", ranks->rank, __LINE__, #cond, ckpt_last_error()); \
    MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)

static void values(const ckpt_ranks *ranks) {
    int n = ranks->world_size, me = ranks->rank;
    must(ranks->gather != NULL && ranks->local_rank == me && ranks->local_world_size == n && ranks->node_rank == 0);
    must(ranks_values(ranks) == 0);
    size_t huge = ((size_t)64 << 20) + 5;       // more than one part
    unsigned char *bytes = (unsigned char *)calloc(huge, 1);
    must(bytes != NULL);
    if (me == n - 1) bytes[0] = bytes[huge - 1] = 9;
    must(ranks->broadcast(bytes, huge, n - 1, ranks->user) == CKPT_OK && bytes[0] == 9 && bytes[huge - 1] == 9 && bytes[huge / 2] == 0);
    free(bytes);
    must(ranks->barrier(ranks->user) == CKPT_OK);
    if (me == 0) printf("all values are right on %d ranks\n", n);
}

static void lose(const ckpt_ranks *ranks, int victim, bool stop) {
    int64_t v = 0, bytes[8] = { 0 };
    for (int k = 0;; k++) {
        if (ranks->rank == victim && k == 300) {
            printf("rank %d is process %d\n", victim, (int)getpid());
            fflush(stdout);
            usleep(100000);
            raise(stop ? SIGSTOP : SIGKILL);
        }
        double begin = MPI_Wtime();
        ckpt_err e = k % 3 == 0 ? ranks->barrier(ranks->user) : k % 3 == 1 ? ranks->allreduce_min(&v, 1, ranks->user) :
            ranks->broadcast(bytes, sizeof bytes, k % ranks->world_size, ranks->user);
        if (e == CKPT_OK) continue;
        printf("rank %d: %s after %.1f s: %s\n", ranks->rank, ckpt_err_name(e), MPI_Wtime() - begin, ckpt_last_error());
        must(ranks->barrier(ranks->user) == e);
        fflush(stdout);
        sleep(2);                               // so that all can say it
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

int main(int argc, char **argv) {
    ckpt_ranks own, *ranks = &own;
    ranks_mpi mpi;
    int level;
    memset(&mpi, 0, sizeof mpi);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    mpi.timeout_s = argc > 2 ? 2 : 30;
    if (ranks_mpi_open(&mpi, MPI_COMM_WORLD, &own) != CKPT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    if (argc > 2) lose(ranks, atoi(argv[2]), argv[1][0] == 's');
    values(ranks);
    ranks_mpi_close(&mpi);
    MPI_Finalize();
    return 0;
}
