/* test_ranks_adapters.c: the hooks of examples/ranks_tcp.h, over sockets and over the socket pairs of fork_ranks.h: what they compute,
   that a dead rank is noticed at once and a stopped one within the limit, by name and by all, and that strangers on the port do no
   harm. run.sh: waits tsan */

#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <netdb.h>

// "own.name" leads to 127.0.1.1, as a machine's own name does by its /etc/hosts on many.
static int named(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
    return getaddrinfo(name != NULL && strcmp(name, "own.name") == 0 ? "127.0.1.1" : name, service, hints, out);
}
#define getaddrinfo named
#include "fork_ranks.h"
#undef getaddrinfo
#include "ranks_values.h"

//-- what they compute -----------------------------------------------------------------

#define must ranks_must

static int exercise(const ckpt_ranks *ranks, void *user) {
    (void)user;
    return ranks_values(ranks);
}

static void all_end_well(fork_ranks *job) {
    for (int i = 0; i < job->count; i++) {
        int status = fork_ranks_wait(job, i, 120);
        if (status != 0) {
            fork_ranks_end(job);
            fail_msg("rank %d: status %d", i, status);
        }
    }
}

static void test_values(void **state) {
    static const int worlds[] = { 2, 3, 8 };
    (void)state;
    for (int k = 0; k < UTIL_COUNT(worlds); k++) {
        fork_ranks job;
        fork_ranks_start(&job, worlds[k], 30, exercise, NULL);
        all_end_well(&job);
    }
}

static void test_threads(void **state) {
    (void)state;
    assert_int_equal(fork_ranks_threads(4, 30, exercise, NULL), 0);
}

// Calls that do not belong together are an error for all, not garbage.
static int quarrel(const ckpt_ranks *ranks, void *user) {
    int64_t v[4] = { 1, 2, 3, 4 };
    (void)user;
    must(ranks->barrier(ranks->user) == CKPT_OK);
    must(ranks->allreduce_min(v, ranks->rank == 2 ? 3 : 4, ranks->user) == CKPT_ARG);
    must(strstr(ckpt_last_error(), "rank 2") != NULL);
    must(ranks->barrier(ranks->user) == CKPT_ARG && strstr(ckpt_last_error(), "rank 2") != NULL);
    return 0;
}

static void test_quarrel(void **state) {
    fork_ranks job;
    (void)state;
    fork_ranks_start(&job, 4, 30, quarrel, NULL);
    all_end_well(&job);
}

//-- ranks that are missing ------------------------------------------------------------

typedef struct loss {
    volatile int    calls[FORK_RANKS_MOST];     // that each rank has come through
    volatile int    errors[FORK_RANKS_MOST];
    volatile double failed_at[FORK_RANKS_MOST];
    char            why[FORK_RANKS_MOST][256];
    int             work;                       // microseconds between two calls
    size_t          size;
} loss;

static loss *shared;

// Calls until one fails. Then once more: it must fail at once, with the same sentence.
static int until_failure(const ckpt_ranks *ranks, void *user) {
    loss *l = (loss *)user;
    int me = ranks->rank;
    char *bytes = (char *)calloc(1, l->size + 1), *all = (char *)calloc(l->size + 1, me == 0 ? (size_t)ranks->world_size : 1);
    for (int k = 0;; k++) {
        int64_t v = me;
        ckpt_err e = k % 4 == 0 ? ranks->barrier(ranks->user) : k % 4 == 1 ? ranks->allreduce_min(&v, 1, ranks->user) :
            k % 4 == 2 ? ranks->broadcast(bytes, l->size, k / 4 % ranks->world_size, ranks->user) : ranks->gather(bytes, l->size, all, ranks->user);
        if (e != CKPT_OK) {
            l->failed_at[me] = ranks_tcp_now();
            snprintf(l->why[me], sizeof l->why[me], "%.255s", ckpt_last_error());
            l->errors[me] = (int)e;
            must(ranks->barrier(ranks->user) == e && strcmp(l->why[me], ckpt_last_error()) == 0);
            must(ranks_tcp_now() - l->failed_at[me] < 0.1);
            break;
        }
        l->calls[me]++;
        if (l->work > 0) usleep((useconds_t)l->work * (useconds_t)(1 + (me * 7 + k) % 3));
    }
    free(bytes);
    free(all);
    return 0;
}

typedef void (*starter)(fork_ranks *job, int count, double limit, fork_ranks_body body, void *user);

static void lose(starter start, int count, int rank, int sig, double limit, int work, size_t size) {
    fork_ranks job;
    memset((void *)shared, 0, sizeof *shared);
    shared->work = work;
    shared->size = size;
    start(&job, count, limit, until_failure, shared);
    for (int k = 0; k < 20000 && shared->calls[rank] < 6; k++) usleep(1000);
    usleep((useconds_t)(rand() % 3000));
    double at = ranks_tcp_now();
    assert_int_equal(kill(job.pid[rank], sig), 0);
    for (int i = 0; i < count; i++) {
        if (i == rank) continue;
        int status = fork_ranks_wait(&job, i, limit * 3 + 10);
        double took = shared->failed_at[i] - at;
        const char *name = util_fmt("rank %d has", rank);
        bool good = status == 0 && strstr(shared->why[i], name) != NULL;
        if (sig == SIGKILL) good = good && shared->errors[i] == CKPT_NET && took < 1;
        else good = good && shared->errors[i] == CKPT_TIMEOUT && took > limit * 0.5 && took < limit * 1.5 + 2;
        if (good) continue;
        fork_ranks_end(&job);
        fail_msg("%s of rank %d: rank %d: status %d, after %.3f s: %d %s", sig == SIGKILL ? "death" : "stop", rank, i, status, took,
                 shared->errors[i], shared->why[i]);
    }
    if (sig == SIGSTOP) {               // it wakes up: it, too, is told, and does not hang
        assert_int_equal(kill(job.pid[rank], SIGCONT), 0);
        assert_int_equal(fork_ranks_wait(&job, rank, 10), 0);
        assert_true(shared->errors[rank] != CKPT_OK);
    }
    fork_ranks_end(&job);
}

static void test_dead(void **state) {
    (void)state;
    for (int k = 0; k < 24; k++) lose(fork_ranks_start, 4 + k % 5, (k * 3) % 4, SIGKILL, 20, k % 2 * 2000, k % 3 == 0 ? 400000 : 100);
}

static void test_stopped(void **state) {
    (void)state;
    for (int k = 0; k < 5; k++) lose(fork_ranks_start, 5, k, SIGSTOP, 1, k % 2 * 2000, k % 3 == 0 ? 400000 : 100);
}

// A rank that ends in the middle of a call is named by ranks that come to the next call only later, too.
static int late(const ckpt_ranks *ranks, void *user) {
    (void)user;
    must(ranks->barrier(ranks->user) == CKPT_OK);
    if (ranks->rank == 1) return 0;
    if (ranks->rank > 1) usleep(300000 * (unsigned)ranks->rank);
    must(ranks->barrier(ranks->user) == CKPT_NET && strstr(ckpt_last_error(), "rank 1 has died") != NULL);
    return 0;
}

static void test_late(void **state) {
    fork_ranks job;
    (void)state;
    fork_ranks_start(&job, 4, 30, late, NULL);
    all_end_well(&job);
}

//-- over sockets ----------------------------------------------------------------------

static int         port;
static const char *address = "127.0.0.1", *first_address;       // first_address: rank 0's, where it differs

// A port that is free now, above those that tests of servers take.
static int free_port(void) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    (void)close(fd);
    return ntohs(a.sin_port);
}

typedef struct meeting { fork_ranks_body body; void *user; double limit; int count, absent; bool fails; } meeting;

static int meet(int rank, const meeting *m) {
    ranks_tcp net;
    ckpt_ranks own, *ranks = &own;
    memset(&net, 0, sizeof net);
    net.rank = rank;
    net.world_size = m->count;
    net.timeout_s = m->limit;
    net.address = rank == 0 && first_address != NULL ? first_address : address;
    net.port = port;
    net.run_id = "test";
    own.rank = rank;
    if (m->fails) {
        must(ranks_tcp_open(&net, &own) == CKPT_TIMEOUT);
        must(strstr(ckpt_last_error(), util_fmt("rank %d has not come within", m->absent)) != NULL);
        return 0;
    }
    must(ranks_tcp_open(&net, &own) == CKPT_OK);
    int result = m->body(&own, m->user);
    ranks_tcp_close(&net);
    return result;
}

static void start_meeting(fork_ranks *job, const meeting *m, const int *order) {
    memset(job, 0, sizeof *job);
    job->count = m->count;
    (void)fflush(NULL);
    for (int i = 0; i < m->count; i++) {
        int rank = order != NULL ? order[i] : i;
        if (m->absent > 0 && m->absent == rank) continue;
        job->pid[rank] = fork();
        if (job->pid[rank] == 0) _exit(meet(rank, m));
        if (order != NULL) usleep(100000);
    }
}

static void start_tcp(fork_ranks *job, int count, double limit, fork_ranks_body body, void *user) {
    meeting m;
    memset(&m, 0, sizeof m);
    m.body = body;
    m.user = user;
    m.limit = limit;
    m.count = count;
    port = free_port();
    start_meeting(job, &m, NULL);
}

static void test_tcp(void **state) {
    static const char *const addresses[] = { "127.0.0.1", "localhost", "::1" };
    fork_ranks job;
    (void)state;
    for (int k = 0; k < UTIL_COUNT(addresses); k++) {
        address = addresses[k];
        if (k == 2) {
            int fd = socket(AF_INET6, SOCK_STREAM, 0);
            struct sockaddr_in6 six;
            memset(&six, 0, sizeof six);
            six.sin6_family = AF_INET6;
            six.sin6_addr = in6addr_loopback;
            bool there = fd >= 0 && bind(fd, (struct sockaddr *)&six, sizeof six) == 0;
            if (fd >= 0) (void)close(fd);
            if (!there) continue;               // a machine without IPv6
        }
        start_tcp(&job, 4, 30, exercise, NULL);
        all_end_well(&job);
    }
    address = "127.0.0.1";
}

// Rank 0's name leads it to another address of its machine than the others.
static void test_tcp_own_name(void **state) {
    fork_ranks job;
    (void)state;
    first_address = "own.name";
    start_tcp(&job, 3, 15, exercise, NULL);
    all_end_well(&job);
    first_address = NULL;
}

static void test_tcp_lost(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) lose(start_tcp, 5, k % 5, SIGKILL, 20, k % 2 * 2000, k % 3 == 0 ? 400000 : 100);
    for (int k = 0; k < 3; k++) lose(start_tcp, 4, k, SIGSTOP, 1, k % 2 * 2000, k % 3 == 0 ? 4000000 : 100);
}

// Rank 0 comes last: the others try until it listens.
static void test_tcp_order(void **state) {
    static const int order[] = { 3, 2, 1, 0 };
    fork_ranks job;
    meeting m;
    (void)state;
    memset(&m, 0, sizeof m);
    m.body = exercise;
    m.limit = 30;
    m.count = 4;
    port = free_port();
    start_meeting(&job, &m, order);
    all_end_well(&job);
}

static void test_tcp_absent(void **state) {
    fork_ranks job;
    meeting m;
    (void)state;
    memset(&m, 0, sizeof m);
    m.limit = 1;
    m.count = 4;
    m.absent = 2;
    m.fails = true;
    port = free_port();
    start_meeting(&job, &m, NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(fork_ranks_wait(&job, i, 10), 0);
}

static int dial(void) {
    struct sockaddr_in a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)port);
    for (int k = 0; k < 1000; k++) {
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
        usleep(5000);
    }
    fail_msg("nobody listens");
    return -1;
}

// Garbage, silence, half a hello, another run, a rank that is there already and one of another world: the job begins as if nothing were.
static void test_tcp_strangers(void **state) {
    static const char noise[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fds[60];
    fork_ranks job;
    meeting m;
    (void)state;
    memset(&m, 0, sizeof m);
    m.body = exercise;
    m.limit = 30;
    m.count = 3;
    port = free_port();
    m.absent = 2;                       // so that the meeting lasts
    start_meeting(&job, &m, NULL);
    m.absent = 0;
    for (int i = 0; i < 60; i++) {
        fds[i] = dial();
        if (i % 3 != 0) (void)!send(fds[i], i % 3 == 1 ? (const void *)noise : (const void *)"1KRC\1", i % 3 == 1 ? sizeof noise : 5, MSG_NOSIGNAL);
    }
    pid_t pid = fork();
    if (pid == 0) {
        ckpt_ranks own, *ranks = &own;
        ranks_tcp net;
        own.rank = 1;
        for (int k = 0; k < 3; k++) {
            memset(&net, 0, sizeof net);
            net.rank = k == 2 ? 7 : 1;
            net.world_size = k == 2 ? 9 : 3;
            net.timeout_s = k == 0 ? 1 : 20;
            net.address = address;
            net.port = port;
            net.run_id = k == 0 ? "other" : "test";
            ckpt_err e = ranks_tcp_open(&net, &own);
            const char *why = k == 0 ? "not rank 0 of this run" : "has no place in it";
            own.rank = 1;
            if (e != (k == 0 ? CKPT_TIMEOUT : CKPT_ARG) || strstr(ckpt_last_error(), why) == NULL) {
                fprintf(stderr, "stranger %d: %d %s\n", k, (int)e, ckpt_last_error());
                _exit(1);
            }
        }
        (void)ranks;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    int went_well = status;
    job.pid[2] = fork();
    if (job.pid[2] == 0) _exit(meet(2, &m));
    all_end_well(&job);
    for (int i = 0; i < 60; i++) (void)close(fds[i]);
    assert_int_equal(went_well, 0);
}

// What answers at rank 0's port is something else: the error says so.
static void test_tcp_wrong_master(void **state) {
    (void)state;
    int listener = -1;
    port = free_port();
    listener = ranks_tcp_reach("127.0.0.1", AF_INET, port, true);
    assert_true(listener >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            struct pollfd one = { listener, POLLIN, 0 };
            (void)poll(&one, 1, 1000);
            int fd = accept(listener, NULL, NULL);
            if (fd < 0) continue;
            (void)!send(fd, "SSH-2.0-OpenSSH_9.2 and so on, and so on\r\n", 42, MSG_NOSIGNAL);
            usleep(20000);
            (void)close(fd);
        }
    }
    ranks_tcp net;
    ckpt_ranks ranks;
    memset(&net, 0, sizeof net);
    net.rank = 1;
    net.world_size = 2;
    net.timeout_s = 1;
    net.address = "127.0.0.1";
    net.port = port;
    double begin = ranks_tcp_now();
    ckpt_err e = ranks_tcp_open(&net, &ranks);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)close(listener);
    assert_int_equal(e, CKPT_TIMEOUT);
    assert_non_null(strstr(ckpt_last_error(), "what answers there is not rank 0 of this run"));
    assert_true(ranks_tcp_now() - begin < 4);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_threads), cmocka_unit_test(test_quarrel), cmocka_unit_test(test_dead),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_late), cmocka_unit_test(test_tcp), cmocka_unit_test(test_tcp_own_name),
        cmocka_unit_test(test_tcp_lost),
        cmocka_unit_test(test_tcp_order), cmocka_unit_test(test_tcp_absent), cmocka_unit_test(test_tcp_strangers),
        cmocka_unit_test(test_tcp_wrong_master),
    };
    util_clear_env();
    shared = (loss *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
