/* test_ranks.c: the collectives of ranks.h over hooks: values, results, bytes of any length, and what happens when a hook fails. run.sh: tsan */
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "thread_ranks.h"

static void values(tr_rank *r, void *arg) {
    (void)arg;
    ckpt__ranks k;
    int64_t v[3];
    TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
    TR_CHECK(r, k.together == (r->world->size > 1) && ckpt__ranks_is_first(&k) == (r->rank == 0));
    v[0] = 10 - r->rank;
    v[1] = r->rank;
    v[2] = INT64_MIN + r->rank;
    TR_OK(r, ckpt__ranks_min(&k, v, 3));
    int n = r->world->size;
    TR_CHECK(r, v[0] == 10 - (n - 1) && v[1] == 0 && v[2] == INT64_MIN);
    for (int root = 0; root < n; root++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<%d>", r->rank);
        TR_OK(r, ckpt__ranks_broadcast(&k, text, sizeof text, root));
        char want[8];
        (void)snprintf(want, sizeof want, "<%d>", n > 1 ? root : r->rank);
        TR_CHECK(r, strcmp(text, want) == 0);
    }
    TR_OK(r, ckpt__ranks_meet(&k));
    TR_CHECK(r, n > 1 ? k.calls == tr_calls(r) && k.calls == 2 + (uint64_t)n : k.calls == 0);
}

static void results(tr_rank *r, void *arg) {
    (void)arg;
    ckpt__ranks k;
    TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
    TR_OK(r, ckpt__ranks_share(&k, CKPT_OK));
    ckpt_err mine = r->rank >= 2 ? ckpt__error_set(r->rank == 2 ? CKPT_NO_SPACE : CKPT_IO, "disk %d", r->rank) : CKPT_OK;
    TR_CHECK(r, ckpt__ranks_share(&k, mine) == CKPT_NO_SPACE && strcmp(ckpt_last_error(), "rank 2: disk 2") == 0);
    TR_CHECK(r, k.broken.code == CKPT_OK);
    // the sentence of a success is nobody's
    (void)ckpt__error_set(CKPT_ARG, "older");
    TR_OK(r, ckpt__ranks_share(&k, CKPT_OK));
    TR_CHECK(r, strcmp(ckpt_last_error(), "older") == 0);
    mine = r->rank == 1 ? ckpt__error_set(CKPT_CORRUPT, "mine") : r->rank == 0 ? CKPT_IO : CKPT_OK;
    TR_CHECK(r, ckpt__ranks_follow(&k, mine, 1) == CKPT_CORRUPT && strcmp(ckpt_last_error(), "rank 1: mine") == 0);
    // What rank 0 passes on of a failure that all have heard names the rank once.
    mine = ckpt__ranks_share(&k, r->rank == 0 ? ckpt__error_set(CKPT_MISMATCH, "not of as many") : CKPT_OK);
    TR_CHECK(r, ckpt__ranks_follow(&k, mine, 0) == CKPT_MISMATCH && strcmp(ckpt_last_error(), "rank 0: not of as many") == 0);
    TR_OK(r, ckpt__ranks_follow(&k, r->rank == 1 ? CKPT_OK : CKPT_IO, 1));
}

static void bytes(tr_rank *r, void *arg) {
    static const size_t sizes[] = { 0, 1, 7, 16376, 16377, 16384, 100000, 3000000 };
    ckpt__ranks k;
    (void)arg;
    TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ckpt__buf b, all, ends;
        ckpt__buf_init(&b, NULL);
        ckpt__buf_init(&all, NULL);
        ckpt__buf_init(&ends, NULL);
        int root = (int)i % r->world->size;
        if (r->rank == root) ckpt__buf_fill(&b, 'a' + (int)i, sizes[i]);
        else ckpt__buf_text(&b, "something older");
        TR_OK(r, ckpt__ranks_send(&k, &b, root));
        bool good = b.len == sizes[i];
        for (size_t j = 0; j < b.len; j++) good = good && b.data[j] == 'a' + (char)i;
        TR_CHECK(r, good);
        b.len = 0;                      // lengths that differ: rank r has size + 3 r bytes
        for (size_t j = 0; j < sizes[i] + 3 * (size_t)r->rank; j++) ckpt__buf_byte(&b, (unsigned)(j + (size_t)r->rank) & 255u);
        TR_OK(r, ckpt__ranks_gather(&k, &b, &all, &ends));
        if (r->rank == 0) {
            uint64_t at = 0;
            TR_CHECK(r, ends.len == 8 * (size_t)r->world->size);
            for (int q = 0; q < r->world->size; q++) {
                uint64_t end, n = sizes[i] + 3 * (uint64_t)q;
                memcpy(&end, ends.data + 8 * q, 8);
                good = end == at + n && end <= all.len;
                for (uint64_t j = 0; good && j < n; j++) good = (unsigned char)all.data[at + j] == ((j + (uint64_t)q) & 255);
                TR_CHECK(r, good);
                at = end;
            }
            TR_CHECK(r, at == all.len);
        } else {
            TR_CHECK(r, all.len == 0 && ends.len == 0);
        }
        ckpt__buf_free(&b);
        ckpt__buf_free(&all);
        ckpt__buf_free(&ends);
    }
}

static void *no_room(void *ptr, size_t old_size, size_t new_size, void *user) {
    (void)old_size;
    (void)user;
    if (new_size > 50000) return NULL;
    if (new_size == 0) { free(ptr); return NULL; }
    return realloc(ptr, new_size);
}

// A rank without memory for what comes: everybody fails, and the next thing works.
static void poor(tr_rank *r, void *arg) {
    ckpt__ranks k;
    ckpt_allocator a = { NULL, NULL };
    (void)arg;
    if (r->rank == 1) a.fn = no_room;
    TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
    ckpt__buf b, all, ends;
    ckpt__buf_init(&b, &a);
    ckpt__buf_init(&all, &a);
    ckpt__buf_init(&ends, &a);
    if (r->rank == 0) ckpt__buf_fill(&b, 'x', 100000);
    TR_CHECK(r, ckpt__ranks_send(&k, &b, 0) == CKPT_NOMEM);
    b.len = 0;
    b.err = CKPT_OK;
    if (r->rank == 1) b.err = CKPT_NOMEM;
    TR_CHECK(r, ckpt__ranks_gather(&k, &b, &all, &ends) == CKPT_NOMEM);
    TR_CHECK(r, ckpt__ranks_send(&k, &b, 1) == CKPT_NOMEM);
    TR_CHECK(r, k.broken.code == CKPT_OK);
    TR_OK(r, ckpt__ranks_share(&k, CKPT_OK));
    ckpt__buf_free(&b);
    ckpt__buf_free(&all);
    ckpt__buf_free(&ends);
}

static void dies(tr_rank *r, void *arg) {
    ckpt__ranks k;
    int64_t v = 1;
    (void)arg;
    TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
    if (r->rank == 2) r->dies_at = 3;
    TR_OK(r, ckpt__ranks_min(&k, &v, 1));
    TR_OK(r, ckpt__ranks_meet(&k));
    ckpt_err e = ckpt__ranks_share(&k, CKPT_OK);
    if (r->rank != 2) TR_CHECK(r, e == CKPT_TIMEOUT && strstr(ckpt_last_error(), "from rank 2") != NULL);
    TR_CHECK(r, k.broken.code == e);
    uint64_t calls = tr_calls(r);
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    TR_CHECK(r, ckpt__ranks_min(&k, &v, 1) == e && ckpt__ranks_meet(&k) == e && ckpt__ranks_send(&k, &b, 0) == e &&
                ckpt__ranks_gather(&k, &b, &b, &b) == e && ckpt__ranks_share(&k, CKPT_IO) == e);
    TR_CHECK(r, tr_calls(r) == calls);
    ckpt__buf_free(&b);
}

// Ranks that call themselves something else than the hooks do hear of the same one, and alike.
static void numbers(tr_rank *r, void *arg) {
    static const int called[][4] = { { 0, 1, 2, 3 }, { 0, 1, 1, 3 }, { 0, 2, 1, 3 }, { 1, 0, 2, 3 }, { 0, 0, 2, 3 }, { 3, 1, 2, 0 }, { 0, 1, 2, 0 } };
    static const int places[] = { -1, 2, 1, 0, 1, 0, 3 };
    (void)arg;
    if (r->world->size != 4) return;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        ckpt__ranks k;
        char want[64];
        r->ranks.rank = called[i][r->rank];
        TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
        ckpt_err e = ckpt__ranks_check(&k, &(ckpt_allocator){ 0 });
        r->ranks.rank = r->rank;
        if (places[i] < 0) {
            TR_OK(r, e);
            continue;
        }
        (void)snprintf(want, sizeof want, "know as %d calls itself rank %d:", places[i], called[i][places[i]]);
        TR_CHECK(r, e == CKPT_ARG && strstr(ckpt_last_error(), want) != NULL && k.broken.code == CKPT_OK);
    }
    ckpt__ranks k;
    r->ranks.world_size = r->rank == 1 ? 3 : 4;
    if (r->rank == 3) r->ranks.rank = 2;
    TR_OK(r, ckpt__ranks_init(&k, &r->ranks));
    TR_CHECK(r, ckpt__ranks_check(&k, &(ckpt_allocator){ 0 }) == CKPT_ARG && strstr(ckpt_last_error(), "world_size of 3, and others one of 4") != NULL);
}

static void on_all(void (*fn)(tr_rank *, void *), int least) {
    static const int sizes[] = { 1, 2, 3, 4, 8 };
    for (int gather = 0; gather < 2; gather++) {
        for (int i = 0; i < 5; i++) {
            if (sizes[i] < least) continue;
            tr_world *w = tr_new(sizes[i]);
            w->no_gather = gather == 1;
            w->limit = 0.01;
            tr_run(w, fn, NULL);
        }
    }
}

static void test_values(void **state) { (void)state; on_all(values, 1); }
static void test_results(void **state) { (void)state; on_all(results, 3); }
static void test_bytes(void **state) { (void)state; on_all(bytes, 1); }
static void test_poor(void **state) { (void)state; on_all(poor, 2); }
static void test_numbers(void **state) { (void)state; on_all(numbers, 1); }
static void test_dies(void **state) { (void)state; on_all(dies, 3); }

static ckpt_err silent(void *user) { (void)user; return CKPT_NET; }
static ckpt_err odd_min(int64_t *v, int n, void *user) { (void)v; (void)n; (void)user; return (ckpt_err)999; }
static ckpt_err odd_broadcast(void *b, size_t n, int root, void *user) { (void)b; (void)n; (void)root; (void)user; return CKPT_OK; }
static ckpt_err odd_gather(const void *m, size_t n, void *all, void *user) { (void)m; (void)n; (void)all; (void)user; return CKPT_OK; }

// Hooks that fail without a word, or with a code that is none; and a gather alone.
static void test_hooks(void **state) {
    (void)state;
    ckpt_ranks h;
    ckpt__ranks k;
    int64_t v = 0;
    memset(&h, 0, sizeof h);
    h.world_size = 2;
    h.barrier = silent;
    h.allreduce_min = odd_min;
    h.broadcast = odd_broadcast;
    assert_int_equal(ckpt__ranks_init(&k, &h), CKPT_OK);
    assert_int_equal(ckpt__ranks_meet(&k), CKPT_NET);
    assert_non_null(strstr(ckpt_last_error(), "barrier returned CKPT_NET"));
    assert_int_equal(ckpt__ranks_init(&k, &h), CKPT_OK);
    assert_int_equal(ckpt__ranks_min(&k, &v, 1), CKPT_NET);
    memset(&h, 0, sizeof h);
    h.world_size = 2;
    h.gather = odd_gather;
    assert_int_equal(ckpt__ranks_init(&k, &h), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "gather"));
    h.gather = NULL;
    assert_int_equal(ckpt__ranks_init(&k, &h), CKPT_OK);
    assert_false(k.together);
    assert_int_equal(ckpt__ranks_share(&k, CKPT_IO), CKPT_IO);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_results), cmocka_unit_test(test_bytes), cmocka_unit_test(test_poor),
        cmocka_unit_test(test_dies), cmocka_unit_test(test_hooks),  cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
