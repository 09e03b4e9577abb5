// mortal.h: what the models of a run's lives share: a process that dies at its n-th step, and random numbers from a seed.
#ifndef MORTAL_H
#define MORTAL_H

#include <stdbool.h>
#include <stdint.h>
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

// What run_set makes of the loss.
UTIL_FN double loss_of(int batch) { return (double)((batch * 5) % 11); }

#endif
