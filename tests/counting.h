/* counting.h: an allocator hook that counts blocks, and fails the one whose turn it is. */
#ifndef COUNTING_H
#define COUNTING_H

#include <stddef.h>
#include <stdlib.h>

typedef struct counting { int live, calls, fail_at; } counting;

static void *counting_fn(void *ptr, size_t old_size, size_t new_size, void *user) {
    counting *c = (counting *)user;
    (void)old_size;
    if (new_size == 0) {
        c->live--;
        free(ptr);
        return NULL;
    }
    if (++c->calls == c->fail_at) return NULL;
    if (ptr == NULL) c->live++;
    return realloc(ptr, new_size);
}

#endif // COUNTING_H
