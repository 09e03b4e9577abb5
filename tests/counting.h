/* counting.h: an allocator hook that counts blocks, and fails the one whose turn it is. Workers call it side by side. */
#ifndef COUNTING_H
#define COUNTING_H

#include <stddef.h>
#include <stdlib.h>

typedef struct counting { int live, calls, fail_at; } counting;

static void *counting_fn(void *ptr, size_t old_size, size_t new_size, void *user) {
    counting *c = (counting *)user;
    (void)old_size;
    if (new_size == 0) {
        __atomic_fetch_sub(&c->live, 1, __ATOMIC_RELAXED);
        free(ptr);
        return NULL;
    }
    if (__atomic_add_fetch(&c->calls, 1, __ATOMIC_RELAXED) == c->fail_at) return NULL;
    if (ptr == NULL) __atomic_fetch_add(&c->live, 1, __ATOMIC_RELAXED);
    return realloc(ptr, new_size);
}

#endif // COUNTING_H
