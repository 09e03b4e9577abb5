/* thread_ranks.h: ranks as threads of one process, for the tests of what ranks do together. After ckpt.h and util.h.

   The hooks meet in memory. Each has a time limit after which it names the ranks that are missing, as the contract of
   ckpt_ranks asks; and each checks that all ranks do the same thing, with the same sizes, at the same time: a rank that is
   out of step ends the program with a sentence. A rank can be made to die, or to hang, at its nth collective. While a rank is
   busy (tr_busy) the others may wait for it in the barrier, and in no other hook: tr_run fails.
*/
#ifndef THREAD_RANKS_H
#define THREAD_RANKS_H

#include <pthread.h>
#include <time.h>

enum { TR_MOST = 64 };

typedef enum tr_what { TR_BARRIER, TR_MIN, TR_BROADCAST, TR_GATHER } tr_what;
static const char *const tr_names[] = { "barrier", "allreduce_min", "broadcast", "gather" };

struct tr_world;

typedef struct tr_rank {
    struct tr_world *world;
    int              rank;
    ckpt_ranks       ranks;             // for a desc
    // this rank's part of the collective that is under way
    bool             here;
    const void      *in;
    void            *out;
    size_t           size;
    int              root;
    tr_what          what;
    // counted
    uint64_t         calls[4];
    // a death: from its nth collective on (0: never) the rank takes part in none
    uint64_t         dies_at;
    bool             hangs;             // it then comes back after the time limit of the others
    bool             dead;
    int              busy;              // with long work
    pthread_t        thread;
} tr_rank;

typedef struct tr_world {
    int              size;
    double           limit;             // seconds after which a rank that is dead is given up; others have a minute more
    bool             no_gather;
    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    uint64_t         round;
    int              arrived;
    ckpt_err         broken;
    char             why[200];
    int              failures;          // of TR_CHECK
    void           (*run)(tr_rank *r, void *arg);
    void            *arg;
    tr_rank          rank[TR_MOST];
} tr_world;

UTIL_FN struct timespec tr_until(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (t.tv_nsec >= 1000000000L) { t.tv_sec++; t.tv_nsec -= 1000000000L; }
    return t;
}

// All ranks are here: does what they came for.
UTIL_FN void tr_act(tr_world *w) {
    tr_rank *first = &w->rank[0];
    for (int i = 1; i < w->size; i++) {
        tr_rank *r = &w->rank[i];
        if (r->what != first->what || r->size != first->size || r->root != first->root) {
            fprintf(stderr, "thread_ranks.h: out of step: rank 0 calls %s(%zu, root %d), rank %d calls %s(%zu, root %d)\n",
                    tr_names[first->what], first->size, first->root, i, tr_names[r->what], r->size, r->root);
            abort();
        }
    }
    switch (first->what) {
    case TR_BARRIER: break;
    case TR_MIN:
        for (size_t k = 0; k < first->size / sizeof(int64_t); k++) {
            int64_t least = INT64_MAX;
            for (int i = 0; i < w->size; i++) if (((int64_t *)w->rank[i].out)[k] < least) least = ((int64_t *)w->rank[i].out)[k];
            for (int i = 0; i < w->size; i++) ((int64_t *)w->rank[i].out)[k] = least;
        }
        break;
    case TR_BROADCAST:
        for (int i = 0; i < w->size; i++)
            if (i != first->root) memcpy(w->rank[i].out, w->rank[first->root].out, first->size);
        break;
    case TR_GATHER:
        for (int i = 0; i < w->size; i++) memcpy((char *)first->out + (size_t)i * first->size, w->rank[i].in, first->size);
        break;
    }
}

// Says who is missing; under the lock.
UTIL_FN ckpt_err tr_missing(tr_world *w, tr_what what) {
    size_t n = (size_t)snprintf(w->why, sizeof w->why, "%s: no answer within %g s from rank", tr_names[what], w->limit);
    for (int i = 0; i < w->size && n < sizeof w->why; i++)
        if (!w->rank[i].here) n += (size_t)snprintf(w->why + n, sizeof w->why - n, " %d", i);
    w->broken = CKPT_TIMEOUT;
    pthread_cond_broadcast(&w->changed);
    return w->broken;
}

static __thread tr_rank *tr_self;       // of this thread; NULL: it is none of a rank's

// Does long work for `seconds`.
UTIL_FN void tr_busy(tr_rank *r, double seconds) {
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    for (int turn = 0; turn < 2; turn++) {
        pthread_mutex_lock(&r->world->lock);
        r->busy += turn == 0 ? 1 : -1;
        pthread_mutex_unlock(&r->world->lock);
        if (turn == 0) nanosleep(&t, NULL);
    }
}

UTIL_FN ckpt_err tr_meet(tr_rank *r, tr_what what, const void *in, void *out, size_t size, int root) {
    tr_world *w = r->world;
    uint64_t all = ++r->calls[what];
    for (int i = 0; i < 4; i++) all += i != (int)what ? r->calls[i] : 0;
    if (r->dies_at != 0 && all >= r->dies_at) {
        struct timespec rest = { (time_t)(w->limit * 1.5), 0 };
        pthread_mutex_lock(&w->lock);
        r->dead = true;
        pthread_mutex_unlock(&w->lock);
        if (r->hangs) nanosleep(&rest, NULL);
        return ckpt_set_error(CKPT_CANCELLED, "this rank is dead");
    }
    pthread_mutex_lock(&w->lock);
    ckpt_err e = w->broken;
    uint64_t round = w->round;
    for (int i = 0; i < w->size && e == CKPT_OK && what != TR_BARRIER; i++) {
        if (w->rank[i].busy == 0 || i == r->rank) continue;
        w->failures++;
        print_error("rank %d waits for rank %d's long work in %s(%zu), and not in barrier\n", r->rank, i, tr_names[what], size);
    }
    if (e == CKPT_OK) {
        r->here = true;
        r->what = what;
        r->in = in;
        r->out = out;
        r->size = size;
        r->root = root;
        if (++w->arrived == w->size) {
            tr_act(w);
            w->arrived = 0;
            w->round++;
            for (int i = 0; i < w->size; i++) w->rank[i].here = false;
            pthread_cond_broadcast(&w->changed);
        }
        struct timespec until = tr_until(w->limit);
        int late = 0;
        // A rank that lives may take its time, on a machine that does many things; one that is dead is known to be.
        for (int turns = 0; w->round == round && w->broken == CKPT_OK && (late == 0 || turns < 2000); turns++) {
            late = pthread_cond_timedwait(&w->changed, &w->lock, &until);
            if (late == 0) continue;
            bool dead = true;
            for (int i = 0; i < w->size; i++) dead = dead && (w->rank[i].here || w->rank[i].dead);
            if (dead) break;
            until = tr_until(0.03);
        }
        if (w->round == round) e = w->broken != CKPT_OK ? w->broken : tr_missing(w, what);
    }
    if (e != CKPT_OK) e = ckpt_set_error(e, w->why);
    pthread_mutex_unlock(&w->lock);
    return e;
}

UTIL_FN ckpt_err tr_barrier(void *user) { return tr_meet((tr_rank *)user, TR_BARRIER, NULL, NULL, 0, 0); }
UTIL_FN ckpt_err tr_min(int64_t *values, int count, void *user) {
    return tr_meet((tr_rank *)user, TR_MIN, NULL, values, (size_t)count * sizeof *values, 0);
}
UTIL_FN ckpt_err tr_broadcast(void *bytes, size_t size, int root, void *user) {
    return tr_meet((tr_rank *)user, TR_BROADCAST, NULL, bytes, size, root);
}
UTIL_FN ckpt_err tr_gather(const void *mine, size_t size, void *all, void *user) {
    tr_rank *r = (tr_rank *)user;
    if ((r->ranks.rank == 0) != (all != NULL)) abort();      // it calls itself so
    return tr_meet(r, TR_GATHER, mine, all, size, 0);
}

// A world of `size` ranks; freed at exit. Its fields may be changed before tr_run.
UTIL_FN tr_world *tr_new(int size) {
    tr_world *w = (tr_world *)util_keep(calloc(1, sizeof *w), false);
    w->size = size;
    w->limit = 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    return w;
}

UTIL_FN void *tr_main(void *arg) {
    tr_rank *r = (tr_rank *)arg;
    tr_self = r;
    r->world->run(r, r->world->arg);
    return NULL;
}

// Runs `fn` once on each rank, each on a thread of its own, and waits for all.
UTIL_FN void tr_run(tr_world *w, void (*fn)(tr_rank *r, void *arg), void *arg) {
    w->run = fn;
    w->arg = arg;
    w->broken = CKPT_OK;
    w->arrived = w->failures = 0;
    for (int i = 0; i < w->size; i++) {
        tr_rank *r = &w->rank[i];
        ckpt_ranks *k = &r->ranks;
        r->world = w;
        r->rank = i;
        r->dead = r->here = false;
        memset(r->calls, 0, sizeof r->calls);
        memset(k, 0, sizeof *k);
        k->rank = k->local_rank = i;
        k->world_size = k->local_world_size = w->size;
        k->barrier = tr_barrier;
        k->allreduce_min = tr_min;
        k->broadcast = tr_broadcast;
        k->gather = w->no_gather ? NULL : tr_gather;
        k->user = r;
    }
    for (int i = 0; i < w->size; i++)
        if (pthread_create(&w->rank[i].thread, NULL, tr_main, &w->rank[i]) != 0) util_die("cannot start", "a rank");
    for (int i = 0; i < w->size; i++) pthread_join(w->rank[i].thread, NULL);
    if (w->failures > 0) fail_msg("%d checks failed on ranks", w->failures);
}

UTIL_FN uint64_t tr_calls(const tr_rank *r) {
    return r->calls[0] + r->calls[1] + r->calls[2] + r->calls[3];
}

// cmocka's assertions leave by longjmp, which a rank's thread may not: these count, and tr_run fails at its end. The rank goes on.
#define TR_CHECK(r, condition) tr_check((r), (condition), #condition, __FILE__, __LINE__)
UTIL_FN void tr_check(tr_rank *r, bool good, const char *what, const char *file, int line) {
    if (good) return;
    pthread_mutex_lock(&r->world->lock);
    r->world->failures++;
    pthread_mutex_unlock(&r->world->lock);
    print_error("%s:%d: rank %d: not so: %s (last error: %s)\n", file, line, r->rank, what, ckpt_last_error());
}
#define TR_OK(r, call) tr_check((r), (call) == CKPT_OK, #call, __FILE__, __LINE__)

#endif // THREAD_RANKS_H
