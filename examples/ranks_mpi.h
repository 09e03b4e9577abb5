/* ranks_mpi.h: the hooks of ckpt_ranks over MPI (any implementation of MPI 3). Include it after ckpt.h.

       MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);       // the library's own threads never call MPI
       ranks_mpi mpi = {0};
       ckpt_ranks ranks;
       mpi.timeout_s = 60;                                               // longer than any step or save; 0: 600
       if (ranks_mpi_open(&mpi, MPI_COMM_WORLD, &ranks) != CKPT_OK) ...
       desc.ranks = ranks;  ...  ranks_mpi_close(&mpi);                  // after the saver, before MPI_Finalize

   Each call is a nonblocking collective that is tested until it is done or the limit has passed. MPI does not say who is missing, so
   rank 0 then calls the roll: a message to every rank, which each answers from within its own wait. All who wait get the result; when
   no answer comes from rank 0 it is the one that is missing. A rank that is busy elsewhere for longer than the limit counts as missing.

   What MPI makes of a process that dies:
     - mpirun ends the whole job, as a rule within a second: no call returns, and the last checkpoint is what remains. That is the
       default of Open MPI and MPICH, and a good one: start the job again.
     - `mpirun --enable-recovery` (Open MPI 4), `-disable-auto-cleanup` (MPICH) let the others live. What MPI notices then comes back
       as an error, for MPI_ERRORS_RETURN is set on the communicators here; with the default, MPI_ERRORS_ARE_FATAL, the first error
       would end the process. But Open MPI 4.1.4 and MPICH 4.0.2 were seen to notice nothing, over shared memory and over TCP: the
       limit does, and the roll names the dead rank.
     - With ULFM (Open MPI 5, mpirun --with-ft ulfm) calls fail at once with MPIX_ERR_PROC_FAILED, by its papers; it was not tried.
   After a failure the pending collective cannot be taken back: its buffers stay with MPI, the communicators are not used again,
   MPI_Finalize may wait for ever, and MPI_Abort is the way out. Unlike ranks_tcp.h, MPI may complete a call for some ranks and not for
   others when a process dies in the middle; the others' next call then fails. */
#ifndef RANKS_MPI_H
#define RANKS_MPI_H

#ifndef CKPT_H
    #error include ckpt.h before ranks_mpi.h
#endif
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Tags on the second communicator. To rank 0: who is missing? no more matter; I am here. From rank 0: who is here? all are; the end.
enum { RANKS_MPI_WHO = 1, RANKS_MPI_NEVERMIND, RANKS_MPI_HERE, RANKS_MPI_ROLL, RANKS_MPI_ALL, RANKS_MPI_NEWS };

typedef struct ranks_mpi_news { int code; char why[512]; } ranks_mpi_news;

typedef struct ranks_mpi {
    double         timeout_s;           // may be set before the open
    MPI_Comm       comm, roll;          // private from here on: copies, so that nobody else's messages are met
    int            rank, world_size;
    ckpt_err       broken;
    ranks_mpi_news news;
    char          *here;                // rank 0: who has answered
    int            questions;           // rank 0: ranks that wait to hear who is missing
} ranks_mpi;

// Keeps the failure for good and returns it with its sentence; rank 0 tells all.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static ckpt_err ranks_mpi_fail(ranks_mpi *r, int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->news.why, sizeof r->news.why, fmt, args);
    va_end(args);
    r->news.code = code;
    r->broken = code > 0 && code < CKPT__ERR_COUNT ? (ckpt_err)code : CKPT_NET;
    for (int i = 1; i < r->world_size && r->rank == 0; i++) {
        MPI_Request q;
        if (MPI_Isend(&r->news, (int)sizeof r->news, MPI_BYTE, i, RANKS_MPI_NEWS, r->roll, &q) == MPI_SUCCESS) (void)MPI_Request_free(&q);
    }
    return ckpt_set_error(r->broken, r->news.why);
}

static void ranks_mpi_tell(ranks_mpi *r, int rank, int tag) {
    MPI_Request q;
    if (MPI_Isend(NULL, 0, MPI_BYTE, rank, tag, r->roll, &q) == MPI_SUCCESS) (void)MPI_Request_free(&q);
}

// Takes in one message of the roll, if there is one: its tag, else 0.
static int ranks_mpi_hear(ranks_mpi *r, int *from) {
    ranks_mpi_news heard;
    MPI_Status status;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, r->roll, &there, &status) != MPI_SUCCESS || !there) return 0;
    memset(&heard, 0, sizeof heard);
    if (MPI_Recv(&heard, (int)sizeof heard, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, r->roll, MPI_STATUS_IGNORE) != MPI_SUCCESS) return 0;
    *from = status.MPI_SOURCE;
    r->questions += (status.MPI_TAG == RANKS_MPI_WHO) - (status.MPI_TAG == RANKS_MPI_NEVERMIND);
    if (status.MPI_TAG == RANKS_MPI_ROLL) ranks_mpi_tell(r, 0, RANKS_MPI_HERE);
    if (status.MPI_TAG == RANKS_MPI_NEWS) (void)ranks_mpi_fail(r, heard.code, "%.*s", (int)sizeof heard.why - 1, heard.why);
    return status.MPI_TAG;
}

// Not to take a core from those that are waited for.
static void ranks_mpi_pause(int k) {
    struct timespec t;
    t.tv_sec = 0;
    t.tv_nsec = k < 200 ? 0 : k < 2000 ? 50000 : 500000;
    if (k >= 20) (void)nanosleep(&t, NULL);
}

// Rank 0: everybody who waits in a call answers within the grace. The pending call, and those of who has asked, may end meanwhile.
static ckpt_err ranks_mpi_call_roll(ranks_mpi *r, MPI_Request *q, int *done, double grace, const char *error) {
    double until = MPI_Wtime() + grace;
    bool asked = r->questions > 0;
    int missing = r->world_size - 1, from = 0, shown = 0;
    char names[200];
    size_t n = 0;
    memset(r->here, 0, (size_t)r->world_size);
    for (int i = 1; i < r->world_size; i++) ranks_mpi_tell(r, i, RANKS_MPI_ROLL);
    for (int k = 0; missing > 0 && MPI_Wtime() < until; k++) {
        if (error == NULL && MPI_Test(q, done, MPI_STATUS_IGNORE) == MPI_SUCCESS && *done) return CKPT_OK;
        for (int tag = ranks_mpi_hear(r, &from); tag != 0; tag = ranks_mpi_hear(r, &from)) {
            if (tag != RANKS_MPI_HERE || r->here[from]) continue;
            r->here[from] = 1;
            missing--;
        }
        if (asked && r->questions == 0) return CKPT_OK;
        ranks_mpi_pause(k);
    }
    if (missing == 0 && error == NULL) {                        // all wait, only MPI is slow
        for (int i = 1; i < r->world_size; i++) ranks_mpi_tell(r, i, RANKS_MPI_ALL);
        r->questions = 0;
        return CKPT_OK;
    }
    for (int i = 1; i < r->world_size; i++)
        if (!r->here[i] && shown++ < 12) n += (size_t)snprintf(names + n, sizeof names - n, "%s%d", shown > 1 ? ", " : "", i);
    if (missing == 0) return ranks_mpi_fail(r, CKPT_NET, "MPI failed, though all ranks are there: %s", error);
    if (missing > 12) snprintf(names + n, sizeof names - n, " and %d more", missing - 12);
    const char *ranks = missing > 1 ? "ranks" : "rank", *have = missing > 1 ? "have" : "has";
    if (error != NULL) return ranks_mpi_fail(r, CKPT_NET, "%s %s %s died or cannot be reached: %s", ranks, names, have, error);
    return ranks_mpi_fail(r, CKPT_TIMEOUT, "%s %s %s not come within %g s", ranks, names, have, r->timeout_s);
}

// Waits for a call that was begun with the result `e`.
static ckpt_err ranks_mpi_wait(ranks_mpi *r, int e, MPI_Request *q) {
    double grace = r->timeout_s < 20 ? r->timeout_s / 4 + 0.25 : 5, until = MPI_Wtime() + r->timeout_s;
    char text[MPI_MAX_ERROR_STRING + 1] = "", *error = NULL;
    bool asked = false;
    for (int k = 0;; k++) {
        int done = 0, from = 0, len = 0;
        if (e == MPI_SUCCESS) e = MPI_Test(q, &done, MPI_STATUS_IGNORE);
        if (e == MPI_SUCCESS && done) {
            if (asked) ranks_mpi_tell(r, 0, RANKS_MPI_NEVERMIND);
            return CKPT_OK;
        }
        if (e != MPI_SUCCESS && error == NULL) {
            (void)MPI_Error_string(e, text, &len);
            error = text;
            until = 0;
        }
        int tag = k >= 100 || error != NULL ? ranks_mpi_hear(r, &from) : 0;
        if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->news.why);
        if (tag == RANKS_MPI_ALL) {
            until = MPI_Wtime() + r->timeout_s;
            asked = false;
        }
        bool over = MPI_Wtime() >= until || r->questions > 0;
        if (over && r->rank == 0) {
            ckpt_err err = ranks_mpi_call_roll(r, q, &done, grace, error);
            if (err != CKPT_OK || done) return err;
            until = MPI_Wtime() + r->timeout_s;
        } else if (over && !asked) {
            asked = true;
            until = MPI_Wtime() + 2 * grace;
            ranks_mpi_tell(r, 0, RANKS_MPI_WHO);
        } else if (over) {
            if (error != NULL) return ranks_mpi_fail(r, CKPT_NET, "rank 0 has died or cannot be reached: %s", error);
            return ranks_mpi_fail(r, CKPT_TIMEOUT, "rank 0 has not come within %g s", r->timeout_s);
        }
        ranks_mpi_pause(k);
    }
}

static ckpt_err ranks_mpi_barrier(void *user) {
    ranks_mpi *r = (ranks_mpi *)user;
    MPI_Request q;
    if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->news.why);
    int e = MPI_Ibarrier(r->comm, &q);
    return ranks_mpi_wait(r, e, &q);
}

// What is handed to MPI: memory that may be left to it when a call fails.
static ckpt_err ranks_mpi_memory(ranks_mpi *r, char **p, size_t size) {
    if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->news.why);
    *p = (char *)malloc(size + 1);
    return *p != NULL ? CKPT_OK : ranks_mpi_fail(r, CKPT_NOMEM, "rank %d has no memory for a call of all ranks", r->rank);
}

static ckpt_err ranks_mpi_min(int64_t *values, int count, void *user) {
    ranks_mpi *r = (ranks_mpi *)user;
    size_t size = (size_t)count * sizeof *values;
    char *p;
    MPI_Request q;
    ckpt_err err = ranks_mpi_memory(r, &p, 2 * size);
    if (err != CKPT_OK) return err;
    if (size > 0) memcpy(p, values, size);
    int e = MPI_Iallreduce(p, p + size, count, MPI_INT64_T, MPI_MIN, r->comm, &q);
    err = ranks_mpi_wait(r, e, &q);
    if (err != CKPT_OK) return err;
    if (size > 0) memcpy(values, p + size, size);
    free(p);
    return CKPT_OK;
}

// In parts, as MPI counts with int. The barrier behind keeps everybody in the call until all have come.
static ckpt_err ranks_mpi_broadcast(void *bytes, size_t size, int root, void *user) {
    ranks_mpi *r = (ranks_mpi *)user;
    const size_t most = (size_t)64 << 20;
    char *p;
    ckpt_err err = ranks_mpi_memory(r, &p, size < most ? size : most);
    for (size_t at = 0, n; err == CKPT_OK && at < size; at += n) {
        MPI_Request q;
        n = size - at < most ? size - at : most;
        memcpy(p, (char *)bytes + at, n);
        int e = MPI_Ibcast(p, (int)n, MPI_BYTE, root, r->comm, &q);
        err = ranks_mpi_wait(r, e, &q);
        if (err == CKPT_OK) memcpy((char *)bytes + at, p, n);
    }
    if (err != CKPT_OK) return err;
    free(p);
    return ranks_mpi_barrier(user);
}

static ckpt_err ranks_mpi_gather(const void *mine, size_t size, void *all, void *user) {
    ranks_mpi *r = (ranks_mpi *)user;
    size_t ranks = r->rank == 0 ? (size_t)r->world_size : 0, most = ((size_t)64 << 20) / (size_t)r->world_size, step = size < most ? size : most;
    char *p;
    ckpt_err err = ranks_mpi_memory(r, &p, step * (1 + ranks));
    for (size_t at = 0, n; err == CKPT_OK && at < size; at += n) {
        MPI_Request q;
        n = size - at < step ? size - at : step;
        memcpy(p, (const char *)mine + at, n);
        int e = MPI_Igather(p, (int)n, MPI_BYTE, p + step, (int)n, MPI_BYTE, 0, r->comm, &q);
        err = ranks_mpi_wait(r, e, &q);
        for (size_t i = 0; i < ranks && err == CKPT_OK; i++) memcpy((char *)all + i * size + at, p + step + i * n, n);
    }
    if (err != CKPT_OK) return err;
    free(p);
    return ranks_mpi_barrier(user);
}

// Collective. Fills *out: the numbers in comm, on this node, and of the node, and the hooks.
static ckpt_err ranks_mpi_open(ranks_mpi *r, MPI_Comm comm, ckpt_ranks *out) {
    MPI_Comm node;
    int leader = 0;
    memset(out, 0, sizeof *out);
    r->broken = CKPT_OK;
    if (r->timeout_s <= 0) r->timeout_s = 600;
    if (MPI_Comm_dup(comm, &r->comm) != MPI_SUCCESS || MPI_Comm_dup(comm, &r->roll) != MPI_SUCCESS ||
        MPI_Comm_rank(comm, &r->rank) != MPI_SUCCESS || MPI_Comm_size(comm, &r->world_size) != MPI_SUCCESS ||
        MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, r->rank, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return ckpt_set_error(CKPT_NET, "MPI gives no communicators");
    (void)MPI_Comm_set_errhandler(r->comm, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(r->roll, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(node, &out->local_rank);
    (void)MPI_Comm_size(node, &out->local_world_size);
    leader = out->local_rank == 0;
    (void)MPI_Exscan(&leader, &out->node_rank, 1, MPI_INT, MPI_SUM, comm);
    if (r->rank == 0) out->node_rank = 0;
    (void)MPI_Bcast(&out->node_rank, 1, MPI_INT, 0, node);
    (void)MPI_Comm_free(&node);
    out->rank = r->rank;
    out->world_size = r->world_size;
    if (r->world_size == 1) return CKPT_OK;
    r->here = (char *)malloc((size_t)r->world_size);
    if (r->here == NULL) return ckpt_set_error(CKPT_NOMEM, "no memory for the roll");
    out->barrier = ranks_mpi_barrier;
    out->allreduce_min = ranks_mpi_min;
    out->broadcast = ranks_mpi_broadcast;
    out->gather = ranks_mpi_gather;
    out->user = r;
    return CKPT_OK;
}

// Collective when all is well. After a failure the communicators are left as they are, for MPI_Abort.
static void ranks_mpi_close(ranks_mpi *r) {
    if (r->broken != CKPT_OK) return;
    (void)MPI_Comm_free(&r->comm);
    (void)MPI_Comm_free(&r->roll);
    free(r->here);
    r->here = NULL;
    r->broken = CKPT_ARG;
    snprintf(r->news.why, sizeof r->news.why, "ranks_mpi is closed");
}

#endif
