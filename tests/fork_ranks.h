/* fork_ranks.h: a job of many ranks for tests: processes of one fork each (or threads), joined by socket pairs under the hooks of
   examples/ranks_tcp.h. After ckpt.h.

       static int body(const ckpt_ranks *ranks, void *user) { ... return 0; }       // one rank; its result is its exit status
       fork_ranks job;
       fork_ranks_start(&job, 8, 5.0, body, user);         // 8 ranks; who keeps the others waiting for 5 s is missing
       kill(job.pid[3], SIGKILL);
       int status = fork_ranks_wait(&job, 0, 10.0);        // of one rank: as waitpid; -1 when it has not ended within 10 s
       fork_ranks_end(&job);                               // kills what is left, and reaps it

   fork_ranks_threads runs the ranks as threads of one process instead, so that a sanitizer sees them all. */
#ifndef FORK_RANKS_H
#define FORK_RANKS_H

#include "../examples/ranks_tcp.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { FORK_RANKS_MOST = 64 };

typedef int (*fork_ranks_body)(const ckpt_ranks *ranks, void *user);

typedef struct fork_ranks {
    int   count;
    pid_t pid[FORK_RANKS_MOST];         // 0: reaped
    int   status[FORK_RANKS_MOST];
} fork_ranks;

typedef struct fork_ranks_thread {
    ranks_tcp       net;
    ckpt_ranks      ranks;
    fork_ranks_body body;
    void           *user;
    int             result;
    pthread_t       thread;
} fork_ranks_thread;

#if defined(__GNUC__)
    #define FORK_RANKS_FN static __attribute__((unused))
#else
    #define FORK_RANKS_FN static
#endif

// pairs[0][i] and pairs[1][i]: rank 0's and rank i's end.
FORK_RANKS_FN void fork_ranks_pairs(int pairs[2][FORK_RANKS_MOST], int count) {
    for (int i = 0; i < count; i++) {
        int two[2] = { -1, -1 };
        if (i > 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, two) != 0) {
            perror("socketpair");
            exit(99);
        }
        pairs[0][i] = two[0];
        pairs[1][i] = two[1];
    }
}

FORK_RANKS_FN ckpt_err fork_ranks_join(ranks_tcp *net, ckpt_ranks *ranks, int pairs[2][FORK_RANKS_MOST], int rank, int count, double timeout_s) {
    memset(net, 0, sizeof *net);
    memset(ranks, 0, sizeof *ranks);
    net->rank = rank;
    net->world_size = count;
    net->timeout_s = timeout_s;
    ckpt_err e = ranks_tcp_attach(net, rank == 0 ? pairs[0] : &pairs[1][rank]);
    ranks->rank = rank;
    ranks->world_size = count;
    if (e == CKPT_OK && count > 1) ranks_tcp_hooks(net, ranks);
    ranks->local_rank = rank;
    ranks->local_world_size = count;
    return e;
}

FORK_RANKS_FN void fork_ranks_start(fork_ranks *job, int count, double timeout_s, fork_ranks_body body, void *user) {
    int pairs[2][FORK_RANKS_MOST];
    fork_ranks_pairs(pairs, count);
    memset(job, 0, sizeof *job);
    job->count = count;
    (void)fflush(NULL);
    for (int rank = 0; rank < count; rank++) {
        job->pid[rank] = fork();
        if (job->pid[rank] < 0) {
            perror("fork");
            exit(99);
        }
        if (job->pid[rank] > 0) continue;
        for (int i = 1; i < count; i++) {               // an end that is held twice never ends
            if (rank != 0) (void)close(pairs[0][i]);
            if (rank != i) (void)close(pairs[1][i]);
        }
        ranks_tcp net;
        ckpt_ranks ranks;
        int status = fork_ranks_join(&net, &ranks, pairs, rank, count, timeout_s) == CKPT_OK ? body(&ranks, user) : 98;
        ranks_tcp_close(&net);
        (void)fflush(NULL);
        _exit(status);
    }
    for (int i = 1; i < count; i++) {
        (void)close(pairs[0][i]);
        (void)close(pairs[1][i]);
    }
}

FORK_RANKS_FN int fork_ranks_wait(fork_ranks *job, int rank, double timeout_s) {
    double until = ranks_tcp_now() + timeout_s;
    while (job->pid[rank] > 0) {
        pid_t got = waitpid(job->pid[rank], &job->status[rank], WNOHANG);
        if (got == job->pid[rank] || (got < 0 && errno == ECHILD)) job->pid[rank] = 0;
        else if (ranks_tcp_now() > until) return -1;
        else (void)poll(NULL, 0, 2);
    }
    return job->status[rank];
}

FORK_RANKS_FN void fork_ranks_end(fork_ranks *job) {
    for (int i = 0; i < job->count; i++) if (job->pid[i] > 0) (void)kill(job->pid[i], SIGKILL);
    for (int i = 0; i < job->count; i++) (void)fork_ranks_wait(job, i, 10);
}

FORK_RANKS_FN void *fork_ranks_run(void *arg) {
    fork_ranks_thread *t = (fork_ranks_thread *)arg;
    t->result = t->body(&t->ranks, t->user);
    ranks_tcp_close(&t->net);
    return NULL;
}

// The number of ranks whose body did not return 0.
FORK_RANKS_FN int fork_ranks_threads(int count, double timeout_s, fork_ranks_body body, void *user) {
    int pairs[2][FORK_RANKS_MOST], failed = 0;
    fork_ranks_thread *all = (fork_ranks_thread *)calloc((size_t)count, sizeof *all);
    fork_ranks_pairs(pairs, count);
    for (int i = 0; i < count; i++) {
        all[i].body = body;
        all[i].user = user;
        if (fork_ranks_join(&all[i].net, &all[i].ranks, pairs, i, count, timeout_s) != CKPT_OK ||
            pthread_create(&all[i].thread, NULL, fork_ranks_run, &all[i]) != 0) exit(99);
    }
    for (int i = 0; i < count; i++) {
        (void)pthread_join(all[i].thread, NULL);
        failed += all[i].result != 0;
    }
    free(all);
    return failed;
}

#endif // FORK_RANKS_H
