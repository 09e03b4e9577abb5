/* ranks_tcp.h: the hooks of ckpt_ranks over plain sockets, for launches that set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
   torchrun and most SLURM scripts do. Include it after ckpt.h. One thread at a time; no threads, no globals, no signals.

       ranks_tcp net = {0};
       ckpt_ranks ranks;
       net.timeout_s = 60;                                       // longer than any step or save; 0: 600
       if (ranks_tcp_open(&net, &ranks) != CKPT_OK) ...          // returns when all ranks are there
       desc.ranks = ranks;  ...  ranks_tcp_close(&net);          // after the saver

   A star: rank 0 listens at MASTER_ADDR, every other rank keeps one connection to it. A call is a frame from every rank to rank 0
   and one back, so it succeeds for all ranks or fails for all, unless rank 0 dies while it answers. A rank that has died is noticed
   at once, for its connection ends; one that hangs or whose machine is lost, when nothing has come for timeout_s. Rank 0 tells the
   others who is missing; when it is rank 0, each notices by itself. A failure is for good: the streams are not used again.
   Measured with all processes on one machine of two cores: a call takes 0.1 ms with 8 ranks, 0.7 ms with 64, 8 ms with 500, 51 ms
   with 2,000. Rank 0 sends what is broadcast once for each rank: beyond some hundreds of ranks MPI's trees are the better choice.

   No secret is asked for and nothing is encrypted: this is for a cluster's inner network, as torch's own store is. run_id (default:
   TORCHELASTIC_RUN_ID) keeps runs apart that meet on one port. Machines must be of one byte order. */
#ifndef RANKS_TCP_H
#define RANKS_TCP_H

#ifndef CKPT_H
    #error include ckpt.h before ranks_tcp.h
#endif
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0              // macOS has SO_NOSIGPIPE instead
#endif

enum { RANKS_TCP_MAGIC = 0x43524b31, RANKS_TCP_STRANGERS = 128, RANKS_TCP_ABSENT = -2, RANKS_TCP_GONE = -1 };
enum { RANKS_TCP_HELLO = 1, RANKS_TCP_MIN, RANKS_TCP_BROADCAST, RANKS_TCP_GATHER, RANKS_TCP_WHO, RANKS_TCP_FAIL };

typedef struct ranks_tcp_frame {        // stands before each payload
    uint32_t magic, op, call;
    int32_t  root;                      // HELLO: the rank; FAIL: the ckpt_err
    uint64_t size;                      // HELLO: of the world; BROADCAST: the same from those that send none
} ranks_tcp_frame;

typedef struct ranks_tcp_peer {
    int             fd;                 // or RANKS_TCP_ABSENT, RANKS_TCP_GONE
    bool            came;               // to this call
    size_t          in, out;            // bytes of a frame and its payload so far
    ranks_tcp_frame frame;
} ranks_tcp_peer;

typedef struct ranks_tcp {
    double          timeout_s;          // may be set before the open; what is 0 or NULL comes from the environment
    int             rank, world_size, port;
    const char     *address, *run_id;
    ranks_tcp_peer *peers;              // private from here on: on rank 0 of each rank, elsewhere of rank 0 alone
    struct pollfd  *polls;
    uint32_t        call;
    ckpt_err        broken;
    char            why[512], told[512];
} ranks_tcp;

typedef struct ranks_tcp_stranger { int fd; double since; size_t in; ranks_tcp_frame frame; char run_id[64]; } ranks_tcp_stranger;

static double ranks_tcp_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

//-- bytes -----------------------------------------------------------------------------

// Sends what goes out now of a frame and its payload: 0, nothing; -1, the connection has ended.
static ssize_t ranks_tcp_push(int fd, const ranks_tcp_frame *f, const void *payload, size_t size, size_t *done) {
    const char *p = *done < sizeof *f ? (const char *)f + *done : (const char *)payload + (*done - sizeof *f);
    size_t left = *done < sizeof *f ? sizeof *f - *done : size - (*done - sizeof *f);
    ssize_t n;
    if (left == 0) return 0;
    do n = send(fd, p, left, MSG_NOSIGNAL | MSG_DONTWAIT); while (n < 0 && errno == EINTR);
    if (n > 0) *done += (size_t)n;
    return n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK ? (n > 0 ? n : 0) : -1;
}

static ssize_t ranks_tcp_pull(int fd, ranks_tcp_frame *f, void *payload, size_t size, size_t *done) {
    char *p = *done < sizeof *f ? (char *)f + *done : (char *)payload + (*done - sizeof *f);
    size_t left = *done < sizeof *f ? sizeof *f - *done : size - (*done - sizeof *f);
    ssize_t n;
    if (left == 0) return 0;
    do n = recv(fd, p, left, MSG_DONTWAIT); while (n < 0 && errno == EINTR);
    if (n > 0) *done += (size_t)n;
    return n > 0 ? n : n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

static ranks_tcp_frame ranks_tcp_head(const ranks_tcp *r, int op, int root, size_t size) {
    ranks_tcp_frame f;
    f.magic = RANKS_TCP_MAGIC;
    f.op = (uint32_t)op;
    f.call = r->call;
    f.root = root;
    f.size = size;
    return f;
}

static void ranks_tcp_drop(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = RANKS_TCP_GONE;
}

// Milliseconds until then, for poll.
static int ranks_tcp_ms(double until) {
    double left = until - ranks_tcp_now();
    return left <= 0 ? 0 : left > 1000 ? 1000000 : (int)(left * 1000) + 1;
}

//-- failures --------------------------------------------------------------------------

// Keeps the failure for good, tells it to whoever is connected, and returns it with its sentence.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static ckpt_err ranks_tcp_fail(ranks_tcp *r, ckpt_err code, const char *fmt, ...) {
    ranks_tcp_frame f = ranks_tcp_head(r, RANKS_TCP_FAIL, (int)code, 0);
    char why[sizeof r->why];
    va_list args;
    va_start(args, fmt);
    memset(why, 0, sizeof why);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    memcpy(r->why, why, sizeof why);
    r->broken = code;
    for (int i = 0; i < (r->rank == 0 ? r->world_size : 1); i++) {
        ranks_tcp_peer *p = &r->peers[i];
        size_t done = 0;
        if (p->fd < 0 || p->out != 0) continue;         // nothing may follow half a frame
        while (ranks_tcp_push(p->fd, &f, why, sizeof why, &done) > 0) {}
        (void)shutdown(p->fd, SHUT_WR);                 // not closed: bytes unread there would turn what we said into a reset
    }
    return ckpt_set_error(code, r->why);
}

// Fails with what another rank has said.
static ckpt_err ranks_tcp_heard(ranks_tcp *r, int code) {
    r->told[sizeof r->told - 1] = 0;
    return ranks_tcp_fail(r, code > 0 && code < CKPT__ERR_COUNT ? (ckpt_err)code : CKPT_NET, "%s", r->told);
}

// Fails with "rank 3 has not come within 20 s" or "ranks 3, 5 have died ...": those that did not come, or whose connection ended.
static ckpt_err ranks_tcp_name(ranks_tcp *r, bool gone) {
    char names[200];
    int count = 0;
    size_t n = 0;
    for (int i = 1; i < r->world_size; i++) {
        if (gone ? r->peers[i].fd != RANKS_TCP_GONE : r->peers[i].came) continue;
        if (count++ < 12) n += (size_t)snprintf(names + n, sizeof names - n, "%s%d", count > 1 ? ", " : "", i);
    }
    if (count > 12) snprintf(names + n, sizeof names - n, " and %d more", count - 12);
    const char *ranks = count > 1 ? "ranks" : "rank", *have = count > 1 ? "have" : "has";
    if (gone) return ranks_tcp_fail(r, CKPT_NET, "%s %s %s died, or the connection is broken", ranks, names, have);
    return ranks_tcp_fail(r, CKPT_TIMEOUT, "%s %s %s not come within %g s", ranks, names, have, r->timeout_s);
}

//-- rank 0 ----------------------------------------------------------------------------

static void ranks_tcp_wait(ranks_tcp *r, short events, bool all, double until) {
    for (int i = 1; i < r->world_size; i++) {
        r->polls[i].fd = all || !r->peers[i].came ? r->peers[i].fd : -1;
        r->polls[i].events = events;
        r->polls[i].revents = 0;
    }
    (void)poll(r->polls + 1, (nfds_t)(r->world_size - 1), ranks_tcp_ms(until));
}

// Takes in what rank i has sent: its part of this call, perhaps a question or a failure behind it. True: there was something.
static bool ranks_tcp_take(ranks_tcp *r, int i, const ranks_tcp_frame *want, void *to, bool *asked) {
    ranks_tcp_peer *p = &r->peers[i];
    ranks_tcp_frame *f = &p->frame;
    for (bool any = false;; any = true) {
        bool head = p->in >= sizeof *f;
        size_t mine = want->op == RANKS_TCP_BROADCAST && i != want->root ? 0 : (size_t)want->size;
        if (head) mine = f->op == RANKS_TCP_FAIL ? sizeof r->told : f->op == RANKS_TCP_WHO ? 0 : mine;
        ssize_t n = ranks_tcp_pull(p->fd, f, head && f->op == RANKS_TCP_FAIL ? r->told : to, head ? mine : 0, &p->in);
        if (n < 0) return ranks_tcp_drop(&p->fd), true;
        if (n == 0 && (!head || p->in < sizeof *f + mine)) return any;
        if (p->in < sizeof *f) continue;
        bool extra = f->op == RANKS_TCP_WHO || f->op == RANKS_TCP_FAIL;
        if (f->magic != RANKS_TCP_MAGIC) return ranks_tcp_drop(&p->fd), true;
        if (!extra && (p->came || f->op != want->op || f->call != want->call || f->root != want->root || f->size != want->size))
            return ranks_tcp_fail(r, CKPT_ARG, "rank %d made another call than rank 0 (call %u)", i, (unsigned)want->call), true;
        if (!head && f->op != RANKS_TCP_WHO && (f->op == RANKS_TCP_FAIL || mine > 0)) continue;       // its payload comes now
        if (head && p->in < sizeof *f + mine) continue;
        p->in = 0;
        if (!extra) p->came = true;
        if (f->op == RANKS_TCP_WHO && f->call == want->call) *asked = true;     // else a question that the answer has crossed
        if (f->op == RANKS_TCP_FAIL) return ranks_tcp_heard(r, f->root), true;
    }
}

// Rank 0's half of a call: waits for the frames of all; their payloads go to in + rank * step.
static ckpt_err ranks_tcp_collect(ranks_tcp *r, const ranks_tcp_frame *want, void *in, size_t step) {
    double until = ranks_tcp_now() + r->timeout_s;
    bool asked = false;
    for (int i = 1; i < r->world_size; i++) r->peers[i].came = false;
    for (;;) {
        int waiting = 0, gone = 0;
        bool any = false;
        ranks_tcp_wait(r, POLLIN, true, asked ? 0 : until);
        for (int i = 1; i < r->world_size && r->broken == CKPT_OK; i++) {
            ranks_tcp_peer *p = &r->peers[i];
            if (p->fd >= 0 && r->polls[i].revents != 0 && ranks_tcp_take(r, i, want, (char *)in + (size_t)i * step, &asked)) any = true;
            gone += p->fd < 0;
            waiting += !p->came;
        }
        if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->why);
        if (gone > 0) return ranks_tcp_name(r, true);
        if (waiting == 0) return CKPT_OK;
        if (!any && (asked || ranks_tcp_now() >= until)) return ranks_tcp_name(r, false);
        if (any) until = ranks_tcp_now() + r->timeout_s;
        if (any && r->world_size > 256) (void)poll(NULL, 0, 1);         // so that late ones do not cost a look at all for each
    }
}

// The answer to all. Who cannot be reached now has been in this call: the next one fails, for all.
static ckpt_err ranks_tcp_deliver(ranks_tcp *r, const ranks_tcp_frame *f, const void *bytes, size_t size) {
    double until = ranks_tcp_now() + r->timeout_s;
    int left = r->world_size - 1, gone = 0;
    for (int i = 1; i < r->world_size; i++) r->peers[i].came = false, r->peers[i].out = 0;
    while (left > 0) {
        bool any = false;
        left = gone = 0;
        for (int i = 1; i < r->world_size; i++) {
            ranks_tcp_peer *p = &r->peers[i];
            size_t own = f->op == RANKS_TCP_BROADCAST && i == f->root ? 0 : size;
            ssize_t n = 1;
            while (p->fd >= 0 && !p->came && (n = ranks_tcp_push(p->fd, f, bytes, own, &p->out)) > 0) {
                any = true;
                if (p->out == sizeof *f + own) p->came = true, p->out = 0;
            }
            if (n < 0) ranks_tcp_drop(&p->fd);
            gone += p->fd < 0;
            left += p->fd >= 0 && !p->came;
        }
        if (any) until = ranks_tcp_now() + r->timeout_s;
        else if (ranks_tcp_now() >= until) break;
        if (left > 0) ranks_tcp_wait(r, POLLOUT, false, until);
    }
    if (gone > 0 || left > 0) (void)ranks_tcp_name(r, gone > 0);
    return CKPT_OK;
}

//-- the other ranks -------------------------------------------------------------------

// Their half: sends the frame and waits for the answer. Who has waited for the limit asks rank 0 who is missing.
static ckpt_err ranks_tcp_exchange(ranks_tcp *r, const ranks_tcp_frame *f, const void *up, size_t up_size, void *down, size_t down_size) {
    ranks_tcp_peer *p = &r->peers[0];
    double grace = r->timeout_s < 20 ? r->timeout_s / 4 + 0.25 : 5, until = ranks_tcp_now() + r->timeout_s;
    bool sent = false, asked = false;
    p->in = p->out = 0;
    for (;;) {
        bool head = p->in >= sizeof p->frame, fail = head && p->frame.op == RANKS_TCP_FAIL;
        size_t size = !head ? 0 : fail ? sizeof r->told : down_size;
        if (head && (p->frame.magic != f->magic || (!fail && (p->frame.op != f->op || p->frame.call != f->call))))
            return ranks_tcp_fail(r, CKPT_NET, "what came instead of rank 0's answer is none");
        if (head && p->in == sizeof p->frame + size) return fail ? ranks_tcp_heard(r, p->frame.root) : CKPT_OK;
        ssize_t n = ranks_tcp_pull(p->fd, &p->frame, fail ? r->told : (char *)down, size, &p->in), m = 0;
        if (n < 0) return ranks_tcp_drop(&p->fd), ranks_tcp_fail(r, CKPT_NET, "rank 0 has died, or the connection is broken");
        if (!sent) m = ranks_tcp_push(p->fd, f, up, up_size, &p->out);
        if (m < 0 || p->out == sizeof *f + up_size) sent = true, p->out = 0;        // what rank 0 said last can still be read
        if (n > 0 || m > 0) {
            until = ranks_tcp_now() + (asked ? grace : r->timeout_s);
        } else if (ranks_tcp_now() < until) {
            struct pollfd one = { p->fd, (short)(sent ? POLLIN : POLLIN | POLLOUT), 0 };
            (void)poll(&one, 1, ranks_tcp_ms(until));
        } else if (sent && !asked) {
            ranks_tcp_frame who = ranks_tcp_head(r, RANKS_TCP_WHO, 0, 0);
            size_t done = 0;
            asked = ranks_tcp_push(p->fd, &who, NULL, 0, &done) <= 0 || done == sizeof who;
            until = ranks_tcp_now() + grace;
        } else {
            return ranks_tcp_fail(r, CKPT_TIMEOUT, "rank 0 has not come within %g s", r->timeout_s);
        }
    }
}

//-- the hooks -------------------------------------------------------------------------

static ckpt_err ranks_tcp_min(int64_t *values, int count, void *user) {
    ranks_tcp *r = (ranks_tcp *)user;
    size_t size = (size_t)count * sizeof *values;
    if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->why);
    r->call++;
    ranks_tcp_frame f = ranks_tcp_head(r, RANKS_TCP_MIN, 0, size);
    if (r->rank != 0) return ranks_tcp_exchange(r, &f, values, size, values, size);
    int64_t *all = (int64_t *)malloc(size * (size_t)r->world_size + 1);
    if (all == NULL) return ranks_tcp_fail(r, CKPT_NOMEM, "rank 0 has no memory to gather %d numbers", count);
    ckpt_err e = ranks_tcp_collect(r, &f, all, size);
    for (int i = 1; i < r->world_size && e == CKPT_OK; i++)
        for (int k = 0; k < count; k++) if (all[i * count + k] < values[k]) values[k] = all[i * count + k];
    free(all);
    return e == CKPT_OK ? ranks_tcp_deliver(r, &f, values, size) : e;
}

static ckpt_err ranks_tcp_barrier(void *user) {
    return ranks_tcp_min(NULL, 0, user);
}

static ckpt_err ranks_tcp_broadcast(void *bytes, size_t size, int root, void *user) {
    ranks_tcp *r = (ranks_tcp *)user;
    if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->why);
    r->call++;
    ranks_tcp_frame f = ranks_tcp_head(r, RANKS_TCP_BROADCAST, root, size);
    if (r->rank == root && root != 0) return ranks_tcp_exchange(r, &f, bytes, size, NULL, 0);
    if (r->rank != 0) return ranks_tcp_exchange(r, &f, NULL, 0, bytes, size);
    ckpt_err e = ranks_tcp_collect(r, &f, bytes, 0);
    return e == CKPT_OK ? ranks_tcp_deliver(r, &f, bytes, size) : e;
}

static ckpt_err ranks_tcp_gather(const void *mine, size_t size, void *all, void *user) {
    ranks_tcp *r = (ranks_tcp *)user;
    if (r->broken != CKPT_OK) return ckpt_set_error(r->broken, r->why);
    r->call++;
    ranks_tcp_frame f = ranks_tcp_head(r, RANKS_TCP_GATHER, 0, size);
    if (r->rank != 0) return ranks_tcp_exchange(r, &f, mine, size, NULL, 0);
    if (size > 0) memcpy(all, mine, size);
    ckpt_err e = ranks_tcp_collect(r, &f, all, size);
    return e == CKPT_OK ? ranks_tcp_deliver(r, &f, NULL, 0) : e;
}

static void ranks_tcp_hooks(ranks_tcp *r, ckpt_ranks *out) {
    out->rank = r->rank;
    out->world_size = r->world_size;
    out->barrier = ranks_tcp_barrier;
    out->allreduce_min = ranks_tcp_min;
    out->broadcast = ranks_tcp_broadcast;
    out->gather = ranks_tcp_gather;
    out->user = r;
}

//-- meeting ---------------------------------------------------------------------------

static void ranks_tcp_close(ranks_tcp *r) {
    for (int i = 0; r->peers != NULL && i < (r->rank == 0 ? r->world_size : 1); i++) ranks_tcp_drop(&r->peers[i].fd);
    free(r->peers);
    free(r->polls);
    r->peers = NULL;
    r->polls = NULL;
    r->broken = CKPT_ARG;
    snprintf(r->why, sizeof r->why, "ranks_tcp is closed");
}

static void ranks_tcp_options(int fd) {
    int on = 1;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    (void)setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

// The hooks over sockets that are connected already: fds[i] leads to rank i on rank 0, fds[0] to rank 0 elsewhere.
static ckpt_err ranks_tcp_attach(ranks_tcp *r, const int *fds) {
    int count = r->rank == 0 ? r->world_size : 1;
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur < (rlim_t)count + 300) {          // often 1024 of which 4096 may be had
        most.rlim_cur = most.rlim_max < (rlim_t)count + 300 ? most.rlim_max : (rlim_t)count + 300;
        (void)setrlimit(RLIMIT_NOFILE, &most);
    }
    if (r->timeout_s <= 0) r->timeout_s = 600;
    r->broken = CKPT_OK;
    r->call = 0;
    r->peers = (ranks_tcp_peer *)calloc((size_t)count, sizeof *r->peers);
    r->polls = (struct pollfd *)calloc((size_t)count + RANKS_TCP_STRANGERS + 1, sizeof *r->polls);
    for (int i = 0; r->peers != NULL && i < count; i++) r->peers[i].fd = fds != NULL ? fds[i] : RANKS_TCP_ABSENT;
    for (int i = 0; fds != NULL && i < count; i++) if (r->rank != 0 || i > 0) ranks_tcp_options(fds[i]);
    if (r->rank == 0 && r->peers != NULL) r->peers[0].fd = RANKS_TCP_ABSENT;
    if (r->peers != NULL && r->polls != NULL) return CKPT_OK;
    ranks_tcp_close(r);
    return ckpt_set_error(CKPT_NOMEM, "no memory for the connections to other ranks");
}

// While nobody listens at a port of the range that outgoing connections use, a connection may meet itself.
static bool ranks_tcp_itself(int fd) {
    struct sockaddr_storage here, there;
    socklen_t a = sizeof here, b = sizeof there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return getsockname(fd, (struct sockaddr *)&here, &a) == 0 && getpeername(fd, (struct sockaddr *)&there, &b) == 0 && a == b &&
           memcmp(&here, &there, sizeof here) == 0;
}

// A machine's own name often leads to 127.0.1.1 there (its /etc/hosts says so): listening at that would meet no other machine.
static bool ranks_tcp_is_loop(const struct sockaddr *a) {
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (a->sa_family == AF_INET) return memcpy(&four, a, sizeof four), ntohl(four.sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && (memcpy(&six, a, sizeof six), IN6_IS_ADDR_LOOPBACK(&six.sin6_addr));
}

// Does an address mean this machine alone, as it is written?
static bool ranks_tcp_stays(const char *address) {
    return strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

// One address after another: listens there, or begins to connect. -1: errno says why.
static int ranks_tcp_reach(const char *address, int family, int port, bool listens) {
    struct addrinfo hints, *list = NULL;
    char service[16];
    int fd = -1, on = 1, off = 0, error = EADDRNOTAVAIL;
    bool far = listens && address != NULL && !ranks_tcp_stays(address);
    memset(&hints, 0, sizeof hints);
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &list) != 0) return errno = error, -1;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        if (far && ranks_tcp_is_loop(a->ai_addr)) continue;
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd < 0) continue;
        ranks_tcp_options(fd);
        if (listens) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (listens && a->ai_family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        bool good = listens ? bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0 : connect(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (!good && !listens && errno == EINPROGRESS) {
            struct pollfd one = { fd, POLLOUT, 0 };
            socklen_t len = sizeof error;
            error = ETIMEDOUT;
            good = poll(&one, 1, 5000) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
        } else if (!good) {
            error = errno;
        }
        if (good && !listens && ranks_tcp_itself(fd)) good = false, error = ECONNREFUSED;
        if (!good) (void)close(fd), fd = -1;
    }
    freeaddrinfo(list);
    errno = error;
    return fd;
}

// Rank 0: listens at MASTER_ADDR, everywhere when that is not an address of this machine (of a service in front of it), or a name
// that leads others to another one than it leads us to.
static ckpt_err ranks_tcp_listen(ranks_tcp *r, int *listener) {
    double until = ranks_tcp_now() + (r->timeout_s < 10 ? r->timeout_s : 10);           // another run may be about to end
    for (;;) {
        *listener = ranks_tcp_reach(r->address, AF_UNSPEC, r->port, true);
        if (*listener < 0 && errno == EADDRNOTAVAIL) *listener = ranks_tcp_reach(NULL, AF_INET6, r->port, true);
        if (*listener < 0 && errno != EADDRINUSE) *listener = ranks_tcp_reach(NULL, AF_INET, r->port, true);
        if (*listener >= 0) return CKPT_OK;
        if (errno != EADDRINUSE || ranks_tcp_now() > until)
            return ranks_tcp_fail(r, CKPT_NET, "rank 0 cannot listen at %s, port %d: %s", r->address, r->port, strerror(errno));
        (void)poll(NULL, 0, 50);
    }
}

// A stranger's first frame is whole: takes it in as the rank that it says it is, or says why not.
static void ranks_tcp_judge(ranks_tcp *r, ranks_tcp_stranger *s) {
    struct { ranks_tcp_frame f; char why[sizeof r->told]; } no;
    int rank = s->frame.root;
    bool ours = s->frame.op == RANKS_TCP_HELLO && strncmp(s->run_id, r->run_id, sizeof s->run_id - 1) == 0;
    if (ours && s->frame.size == (uint64_t)r->world_size && rank > 0 && rank < r->world_size && r->peers[rank].fd == RANKS_TCP_ABSENT) {
        r->peers[rank].fd = s->fd;
        r->peers[rank].came = true;
        s->fd = RANKS_TCP_GONE;
        return;
    }
    memset(&no, 0, sizeof no);
    no.f = ranks_tcp_head(r, RANKS_TCP_FAIL, CKPT_ARG, 0);
    snprintf(no.why, sizeof no.why, "rank 0 has a world of %d, and rank %d of a world of %d has no place in it, or another has it",
             r->world_size, rank, (int)s->frame.size);
    if (ours) (void)send(s->fd, &no, sizeof no, MSG_NOSIGNAL | MSG_DONTWAIT);          // of another run: it tries again later
    ranks_tcp_drop(&s->fd);
}

// Rank 0: takes in connections until every rank has one.
static ckpt_err ranks_tcp_admit(ranks_tcp *r, int listener) {
    ranks_tcp_stranger s[RANKS_TCP_STRANGERS];
    ranks_tcp_frame want = ranks_tcp_head(r, RANKS_TCP_HELLO, 0, 0);
    int count = 0, missing = r->world_size - 1, fd;
    bool asked = false;
    double until = ranks_tcp_now() + r->timeout_s, looked = 0;
    while (missing > 0 && r->broken == CKPT_OK) {
        for (int k = 0; k <= count; k++) {
            r->polls[k].fd = k > 0 ? s[k - 1].fd : count < RANKS_TCP_STRANGERS ? listener : -1;
            r->polls[k].events = POLLIN;
        }
        (void)poll(r->polls, (nfds_t)count + 1, 50);
        double now = ranks_tcp_now();
        for (int k = count - 1; k >= 0; k--) {
            ssize_t n;
            do n = ranks_tcp_pull(s[k].fd, &s[k].frame, s[k].run_id, sizeof s[k].run_id, &s[k].in); while (n > 0);
            bool garbage = s[k].in >= sizeof s[k].frame && s[k].frame.magic != RANKS_TCP_MAGIC;
            if (n < 0 || garbage || now > s[k].since + 10) ranks_tcp_drop(&s[k].fd);
            else if (s[k].in == sizeof s[k].frame + sizeof s[k].run_id) ranks_tcp_judge(r, &s[k]);
            if (s[k].fd < 0) s[k] = s[--count];
        }
        while (count < RANKS_TCP_STRANGERS && (fd = accept(listener, NULL, NULL)) >= 0) {
            ranks_tcp_options(fd);
            s[count].fd = fd;
            s[count].since = now;
            s[count++].in = 0;
        }
        if (count < RANKS_TCP_STRANGERS && (errno == EMFILE || errno == ENFILE))
            (void)ranks_tcp_fail(r, CKPT_IO, "rank 0 may not open %d connections: %s (ulimit -n)", r->world_size - 1, strerror(errno));
        if (now < looked + 0.05) continue;              // not a look at all of them for each that comes
        int before = missing;
        looked = now;
        missing = 0;
        for (int i = 1; i < r->world_size && r->broken == CKPT_OK; i++) {
            if (r->peers[i].fd >= 0) (void)ranks_tcp_take(r, i, &want, NULL, &asked);
            missing += !r->peers[i].came;
            if (r->peers[i].fd == RANKS_TCP_GONE) (void)ranks_tcp_name(r, true);
        }
        if (missing < before) until = now + r->timeout_s;
        else if (r->broken == CKPT_OK && (asked || now >= until)) (void)ranks_tcp_name(r, false);
    }
    while (count > 0) ranks_tcp_drop(&s[--count].fd);
    return ckpt_set_error(r->broken, r->why);
}

static ckpt_err ranks_tcp_join(ranks_tcp *r, const char run_id[64]) {
    ranks_tcp_frame f = ranks_tcp_head(r, RANKS_TCP_HELLO, r->rank, (size_t)r->world_size);
    double until = ranks_tcp_now() + r->timeout_s;
    for (int pause = 10;; pause = pause < 300 ? pause * 2 : pause) {
        const char *why = "what answers there is not rank 0 of this run";
        r->peers[0].fd = ranks_tcp_reach(r->address, AF_UNSPEC, r->port, false);
        if (r->peers[0].fd < 0) why = strerror(errno);
        else if (ranks_tcp_exchange(r, &f, run_id, 64, NULL, 0) == CKPT_OK) return CKPT_OK;
        else if (r->told[0] != 0 || r->broken != CKPT_NET) return r->broken;
        ranks_tcp_drop(&r->peers[0].fd);
        r->broken = CKPT_OK;
        if (ranks_tcp_now() >= until)
            return ranks_tcp_fail(r, CKPT_TIMEOUT, "rank 0 has not come to %s, port %d, within %g s: %s", r->address, r->port, r->timeout_s, why);
        (void)poll(NULL, 0, pause);
    }
}

static int ranks_tcp_env(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text != NULL && text[0] != 0 ? (int)strtol(text, NULL, 10) : otherwise;
}

static const char *ranks_tcp_text(const char *given, const char *name, const char *otherwise) {
    const char *text = given != NULL ? given : getenv(name);
    return text != NULL && text[0] != 0 ? text : otherwise;
}

// Meets all other ranks and fills *out. After a failure there is nothing to close.
static ckpt_err ranks_tcp_open(ranks_tcp *r, ckpt_ranks *out) {
    char run_id[64];
    memset(run_id, 0, sizeof run_id);
    memset(out, 0, sizeof *out);
    if (r->world_size == 0) r->rank = ranks_tcp_env("RANK", 0), r->world_size = ranks_tcp_env("WORLD_SIZE", 1);
    if (r->rank < 0 || r->rank >= r->world_size) return ckpt_set_error(CKPT_ARG, "RANK is not below WORLD_SIZE");
    r->address = ranks_tcp_text(r->address, "MASTER_ADDR", "localhost");
    r->run_id = ranks_tcp_text(r->run_id, "TORCHELASTIC_RUN_ID", "");
    // With an agent's store the port itself is taken by torchrun.
    if (r->port == 0) r->port = ranks_tcp_env("MASTER_PORT", 29500) + (strcmp(ranks_tcp_text(NULL, "TORCHELASTIC_USE_AGENT_STORE", ""), "True") == 0);
    snprintf(run_id, sizeof run_id, "%s", r->run_id);
    out->rank = r->rank;
    out->world_size = r->world_size;
    out->local_rank = ranks_tcp_env("LOCAL_RANK", 0);
    out->local_world_size = ranks_tcp_env("LOCAL_WORLD_SIZE", 0);
    out->node_rank = ranks_tcp_env("NODE_RANK", ranks_tcp_env("GROUP_RANK", 0));
    if (r->world_size == 1) return CKPT_OK;             // alone: there is nobody to meet
    ckpt_err e = ranks_tcp_attach(r, NULL);
    if (e != CKPT_OK) return e;
    int listener = -1;
    if (r->rank == 0) e = ranks_tcp_listen(r, &listener);
    if (e == CKPT_OK) e = r->rank == 0 ? ranks_tcp_admit(r, listener) : ranks_tcp_join(r, run_id);
    ranks_tcp_frame hello = ranks_tcp_head(r, RANKS_TCP_HELLO, 0, 0);
    if (e == CKPT_OK && r->rank == 0) e = ranks_tcp_deliver(r, &hello, NULL, 0);
    ranks_tcp_drop(&listener);
    if (e == CKPT_OK) return ranks_tcp_hooks(r, out), CKPT_OK;
    ranks_tcp_close(r);
    return e;
}

#endif
