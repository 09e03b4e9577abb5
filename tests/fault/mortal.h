// mortal.h: what the models of a run's lives share: a process that dies at its n-th step, and random numbers from a seed.
#ifndef MORTAL_H
#define MORTAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DIED = 9 };                      // the status of a process that has died so

static int   deaths_in;                 // system calls (and what else is told of) until this process dies; 0: never
static bool *mortal_tells;              // set before it dies, unless it is NULL

UTIL_FN void mortal(const char *name, const char *path, int fd) {
    (void)name; (void)path; (void)fd;
    if (__atomic_load_n(&deaths_in, __ATOMIC_SEQ_CST) <= 0 || __atomic_sub_fetch(&deaths_in, 1, __ATOMIC_SEQ_CST) != 0) return;
    if (mortal_tells != NULL) *mortal_tells = true;
    _exit(DIED);
}

// Below n. *random must not be 0.
UTIL_FN unsigned mortal_pick(uint64_t *random, unsigned n) {
    *random ^= *random << 13; *random ^= *random >> 7; *random ^= *random << 17;
    return (unsigned)((*random >> 16) % n);
}

// What decides all of a scenario.
UTIL_FN uint64_t mortal_random(unsigned seed) {
    uint64_t random = seed * 0x9E3779B97F4A7C15u + 1;
    for (int i = 0; i < 5; i++) (void)mortal_pick(&random, 2);
    return random;
}

typedef struct mortal_seeds { unsigned first, count; } mortal_seeds;

// Which scenarios: MODEL_SEED=n, MODEL_SEEDS=how many from it; else `few`, or `many` with CKPT_LONG.
UTIL_FN mortal_seeds mortal_choose(unsigned few, unsigned many) {
    const char *only = getenv("MODEL_SEED"), *more = getenv("MODEL_SEEDS");
    mortal_seeds m = { 1, util_long() ? many : few };
    if (only != NULL) m.first = (unsigned)strtoul(only, NULL, 10);
    if (only != NULL) m.count = 1;
    if (more != NULL) m.count = (unsigned)strtoul(more, NULL, 10);
    return m;
}

// Memory that outlives the deaths.
UTIL_FN void *mortal_memory(size_t size) {
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return shared;
}

// What run_set makes of the loss.
UTIL_FN double loss_of(int batch) { return (double)((batch * 5) % 11); }

#endif
