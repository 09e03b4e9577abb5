// mpicc -O2 -DCKPT_NO_REMOTE -I. examples/14_ranks_mpi.c -o ranks_mpi -lm -lpthread      mpirun -n 4 ./ranks_mpi; then mpirun -n 3 ./ranks_mpi --steps 200
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include "ranks_mpi.h"
#include "ranks_train.h"            // bind_rows: a tensor of which each rank has some rows; train: the loop that saves and resumes

int main(int argc, char **argv) {
    ckpt_ranks ranks;
    ranks_mpi mpi;
    int level;
    memset(&mpi, 0, sizeof mpi);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);     // the library's threads do not call MPI
    mpi.timeout_s = atof(train_option(argc, argv, "--timeout", "600"));
    if (ranks_mpi_open(&mpi, MPI_COMM_WORLD, &ranks) != CKPT_OK || train(&ranks, argc, argv) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);                               // MPI_Finalize would wait for a rank that is lost
    ranks_mpi_close(&mpi);
    MPI_Finalize();
    return 0;
}
