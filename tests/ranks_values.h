/* ranks_values.h: what the hooks of any ckpt_ranks must compute, for ranks_mpi.c and test_ranks_adapters.c. After ckpt.h. */
#ifndef RANKS_VALUES_H
#define RANKS_VALUES_H

// Ends the rank, or says so to who called, with the line that went wrong.
#define ranks_must(cond) do { if (!(cond)) { fprintf(stderr, "rank %d, line %d: %s: %s\n", ranks->rank, __LINE__, #cond, ckpt_last_error()); return 1; } } while (0)

static int ranks_values(const ckpt_ranks *ranks) {
    size_t big = 3000017;
    int n = ranks->world_size, me = ranks->rank;
    unsigned char *bytes = (unsigned char *)malloc(big), *all = me == 0 ? (unsigned char *)malloc(big * (size_t)n) : NULL;
    int64_t v[3];
    ranks_must(bytes != NULL && (all != NULL || me != 0));
    for (int k = 0; k < 200; k++) {
        v[0] = me + k;
        v[1] = -me * (int64_t)1000000007 * k;
        v[2] = me == k % n ? INT64_MIN : INT64_MAX;
        ranks_must(ranks->allreduce_min(v, 3, ranks->user) == CKPT_OK);
        ranks_must(v[0] == k && v[1] == -(int64_t)(n - 1) * 1000000007 * k && v[2] == INT64_MIN);
        ranks_must(ranks->barrier(ranks->user) == CKPT_OK);
    }
    for (int root = 0; root < n; root++) {
        for (size_t size = 0; size <= big; size = size * 3 + 1) {
            memset(bytes, me == root ? 7 + root : 0, size);
            ranks_must(ranks->broadcast(bytes, size, root, ranks->user) == CKPT_OK);
            for (size_t i = 0; i < size; i++) ranks_must(bytes[i] == 7 + root);
        }
    }
    for (size_t size = 0; size <= big; size = size * 5 + 1) {
        memset(bytes, 100 + me, size);
        ranks_must(ranks->gather(bytes, size, all, ranks->user) == CKPT_OK);
        for (size_t i = 0; me == 0 && i < size * (size_t)n; i++) ranks_must(all[i] == 100 + (int)(i / size));
    }
    free(bytes);
    free(all);
    return 0;
}

#endif // RANKS_VALUES_H
