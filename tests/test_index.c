/* test_index.c: the index of thousands of checkpoints: its names are found without looking through all, and lines that have not
   changed are not printed again; both must not show. */

#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"

static unsigned seed;

static unsigned pick(unsigned n) {
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % n;
}

// Memory that fails now and then.
static int fails_every;                 // 0: never

static void *memory(void *ptr, size_t old_size, size_t new_size, void *user) {
    (void)old_size; (void)user;
    if (new_size == 0) { free(ptr); return NULL; }
    if (fails_every > 0 && pick((unsigned)fails_every) == 0) return NULL;
    return realloc(ptr, new_size);
}

static void begin(ckpt__index *ix, const char *folder) {
    ckpt_allocator a = { memory, NULL };
    assert_int_equal(ckpt__index_init(ix, &a, folder), CKPT_OK);
}

static ckpt__index_line line_of(char *name, unsigned n) {
    ckpt__index_line l;
    memset(&l, 0, sizeof l);
    l.name = name;
    l.number = n + 1;
    l.bytes = 1000 + n;
    l.t.batch = n;
    l.t.total_wct = 0.1 * n;
    l.saved_at = 1.7e9 + n / 3.0;
    l.has_checksum = n % 2 == 0;
    l.checksum = n * 2654435761u;
    return l;
}

static int look_through(const ckpt__index *ix, const char *name) {
    for (size_t i = ix->count; i > 0; i--) {
        if (strcmp(ix->lines[i - 1].name, name) == 0) return (int)(i - 1);
    }
    return -1;
}

static void test_names(void **state) {
    (void)state;
    for (int round = 0; round < 6; round++) {
        ckpt__index ix;
        char name[32];
        seed = (unsigned)round;
        fails_every = 0;
        begin(&ix, ".");
        fails_every = round % 2 == 0 ? 0 : 30;
        size_t most = 0;
        for (int i = 0; i < 6000; i++) {
            unsigned what = pick(100), grows = i / 1500 % 2 == 0 ? 70 : 30;
            (void)snprintf(name, sizeof name, "ba%u.pt", pick(round < 4 ? 1500 : 200));
            if (i == 4000 && round == 2) while (ix.count > 0) ckpt__index_drop(&ix, ix.count - 1);
            if (what < grows) {
                ckpt__index_line l = line_of(name, (unsigned)i);
                size_t at = pick(4) != 0 ? ix.count : pick((unsigned)ix.count + 1);
                ckpt_err e = ckpt__index_insert(&ix, at, &l);
                assert_true(e == CKPT_OK || (e == CKPT_NOMEM && fails_every > 0));
            } else if (ix.count > 0) {
                ckpt__index_drop(&ix, pick((unsigned)ix.count));
            }
            most = ix.count > most ? ix.count : most;
            for (int k = 0; k < 8; k++) {
                (void)snprintf(name, sizeof name, "ba%u.pt", pick(1600));
                assert_int_equal(ckpt__index_find(&ix, name), look_through(&ix, name));
            }
            if (ix.count > 0) {
                size_t at = pick((unsigned)ix.count);
                assert_int_equal(ckpt__index_find(&ix, ix.lines[at].name), (int)at);
            }
        }
        assert_true(most > 100 && ix.slots_used < ix.slots_cap + 1);
        assert_true(fails_every > 0 || ix.slots != NULL);
        fails_every = 0;
        ckpt__index_free(&ix);
    }
}

// Two names with one CRC-32 stay two.
static void test_same_sum(void **state) {
    (void)state;
    const char *a = "plumless", *b = "buckeroo";
    assert_int_equal(ckpt__digest_crc32(0, a, 8), ckpt__digest_crc32(0, b, 8));
    ckpt__index ix;
    begin(&ix, ".");
    for (unsigned i = 0; i < 100; i++) {
        ckpt__index_line l = line_of(i == 20 ? util_fmt("%s", a) : i == 80 ? util_fmt("%s", b) : util_fmt("ba%u", i), i);
        assert_int_equal(ckpt__index_find(&ix, l.name), -1);
        assert_int_equal(ckpt__index_insert(&ix, ix.count, &l), CKPT_OK);
    }
    assert_int_equal(ckpt__index_find(&ix, a), 20);
    assert_int_equal(ckpt__index_find(&ix, b), 80);
    ckpt__index_drop(&ix, 80);
    assert_int_equal(ckpt__index_find(&ix, a), 20);
    assert_int_equal(ckpt__index_find(&ix, b), -1);
    ckpt__index_free(&ix);
}

static void change(ckpt__index_line *l) {
    switch (pick(14)) {
        case 0: l->number += 1000; break;
        case 1: l->saved_at += 0.25; break;
        case 2: l->t.batch++; break;
        case 3: l->t.epoch_wct += 0.5; break;
        case 4: l->bytes++; break;
        case 5: l->checksum++; break;
        case 6: l->has_checksum = !l->has_checksum; break;
        case 7: l->has_metric = !l->has_metric; break;
        case 8: l->metric += 0.125; break;
        case 9: l->pinned = !l->pinned; break;
        case 10: l->state = l->state == CKPT__INDEX_SAVED ? CKPT__INDEX_ABANDONED : CKPT__INDEX_SAVED; break;
        case 11: l->upload = (ckpt__index_upload)((l->upload + 1) % 5); break;
        case 12: l->ranks = 1 + pick(9); l->edition = pick(3); break;
        default: l->found = !l->found; break;
    }
}

// What is written must be what an index without a memory of it would write.
static void test_written_again(void **state) {
    (void)state;
    const char *dirs[] = { util_temp_dir(), util_temp_dir() };
    const char *files[] = { util_join(dirs[0], ".ckpt-index.jsonl"), util_join(dirs[1], ".ckpt-index.jsonl") };
    ckpt__index ix;
    seed = 7;
    fails_every = 0;
    begin(&ix, dirs[0]);
    for (unsigned i = 0; i < 90; i++) {
        ckpt__index_line l = line_of(util_fmt("a \"%u\".pt", i), i);
        assert_int_equal(ckpt__index_insert(&ix, ix.count, &l), CKPT_OK);
    }
    int kept = 0;
    for (int round = 0; round < 120; round++) {
        ckpt__index other, back;
        size_t n[2];
        fails_every = round % 3 == 2 ? 10 : 0;      // of memory for what is only kept
        ix.best = round < 60 ? NULL : round < 90 ? "state/metrics/loss" : "state/metrics/accuracy";
        change(&ix.lines[pick((unsigned)ix.count)]);
        if (round % 10 == 9) ckpt__index_drop(&ix, pick((unsigned)ix.count));
        ckpt_err e = ckpt__index_write(&ix);
        assert_true(e == CKPT_OK || (e == CKPT_NOMEM && fails_every > 0));
        fails_every = 0;
        if (e != CKPT_OK) continue;
        begin(&other, dirs[1]);
        other.best = ix.best;
        for (size_t i = 0; i < ix.count; i++) {
            assert_int_equal(ckpt__index_insert(&other, i, &ix.lines[i]), CKPT_OK);
            assert_null(other.lines[i].shown);
            kept += ix.lines[i].shown != NULL;
        }
        assert_int_equal(ckpt__index_write(&other), CKPT_OK);
        char *text[] = { util_read(files[0], &n[0]), util_read(files[1], &n[1]) };
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(text[0], text[1], n[0]);
        begin(&back, dirs[0]);
        assert_int_equal(ckpt__index_load(&back), CKPT_OK);
        assert_true(!back.damaged && !back.lost && back.count == ix.count);
        ckpt__index_free(&back);
        ckpt__index_free(&other);
    }
    assert_true(kept > 2000);
    ckpt__index_free(&ix);
}

// A damaged line is left out, wherever it is, and the index knows that something was there.
static void test_damaged_line(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *file = util_join(dir, ".ckpt-index.jsonl");
    ckpt__index ix, back;
    begin(&ix, dir);
    for (unsigned i = 0; i < 100; i++) {
        ckpt__index_line l = line_of(util_fmt("ba%u.pt", i), i);
        assert_int_equal(ckpt__index_insert(&ix, ix.count, &l), CKPT_OK);
    }
    assert_int_equal(ckpt__index_write(&ix), CKPT_OK);
    size_t n, at[] = { 3, 50, 99, 100 };
    char *text = util_read(file, &n);
    for (size_t k = 0; k < 4; k++) {
        char *p = text;
        for (size_t i = 0; i < at[k]; i++) p = strchr(p, '\n') + 1;
        p[20] ^= 1;
        util_write(file, text, n);
        p[20] ^= 1;
        begin(&back, dir);
        assert_int_equal(ckpt__index_load(&back), CKPT_OK);
        assert_true(back.damaged && !back.lost);
        assert_int_equal(back.count, at[k] < 100 ? 99 : 100);
        ckpt__index_free(&back);
    }
    util_write(file, text, n);
    begin(&back, dir);
    assert_int_equal(ckpt__index_load(&back), CKPT_OK);
    assert_true(!back.damaged && back.count == 100);
    ckpt__index_free(&back);
    ckpt__index_free(&ix);
}

// What a tool has found may stand before saves of smaller numbers: another file comes behind all saves of smaller numbers than its own,
// whether a tool finds it or a saver.
static void test_place_beside_a_copy(void **state) {
    (void)state;
    ckpt__index ix;
    const unsigned order[] = { 2, 100, 3, 4, 6 }, numbers[] = { 1, 5, 7, 99, 101 };
    const size_t at[] = { 0, 4, 5, 5, 5 };
    fails_every = 0;
    begin(&ix, ".");
    for (size_t i = 0; i < UTIL_COUNT(order); i++) {
        ckpt__index_line l = line_of(util_fmt("ba%u", order[i]), order[i] - 1);
        l.found = order[i] == 100;
        assert_int_equal(ckpt__index_insert(&ix, ix.count, &l), CKPT_OK);
    }
    for (size_t i = 0; i < 2 * UTIL_COUNT(numbers); i++) {
        ckpt__index_line l = line_of(util_fmt("a"), numbers[i / 2] - 1);
        l.found = i % 2 > 0;
        assert_int_equal(ckpt__index_place(&ix, &l), at[i / 2]);
    }
    ckpt__index_free(&ix);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_same_sum),
        cmocka_unit_test(test_written_again),
        cmocka_unit_test(test_damaged_line),
        cmocka_unit_test(test_place_beside_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
