// Proves that pieces of tensors are planned, saved and loaded on any number of ranks, byte for byte. run.sh: tsan-long
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include "thread_ranks.h"
#include "shard_util.h"

static const su_tensor all_kinds[] = {
    { "state/model/rows",    CKPT_F32,  2, { 13, 37 },     SU_ROWS },
    { "state/model/columns", CKPT_BF16, 2, { 11, 29 },     SU_COLUMNS },
    { "state/model/grid",    CKPT_F64,  2, { 24, 18 },     SU_GRID },
    { "state/model/uneven",  CKPT_F16,  3, { 9, 5, 3 },    SU_UNEVEN },
    { "state/model/few",     CKPT_I64,  2, { 3, 4 },       SU_ROWS },
    { "state/model/one",     CKPT_F32,  2, { 1, 700 },     SU_ROWS },
    { "state/model/twins",   CKPT_I32,  2, { 20, 31 },     SU_TWINS },
    { "state/model/inner",   CKPT_I16,  4, { 3, 2, 5, 17 }, SU_INNER },
    { "state/model/whole",   CKPT_I8,   2, { 40, 50 },     SU_WHOLE },
    { "state/model/scalar",  CKPT_F32,  0, { 0 },          SU_WHOLE },
    { "state/model/empty",   CKPT_F32,  2, { 5, 0 },       SU_ROWS },
    { "state/model/u64",     CKPT_U64,  1, { 333 },        SU_ROWS },
    { "state/model/u32",     CKPT_U32,  2, { 33, 8 },      SU_COLUMNS },
    { "state/model/u16",     CKPT_U16,  2, { 33, 8 },      SU_INNER },
    { "state/model/u8",      CKPT_U8,   1, { 5000 },       SU_UNEVEN },
    { "state/model/bool",    CKPT_BOOL, 1, { 77 },         SU_ROWS },
    { "state/model/c64",     CKPT_C64,  2, { 12, 12 },     SU_GRID },
    { "state/model/f8a",     CKPT_F8_E4M3, 2, { 100, 31 }, SU_COLUMNS },
    { "state/model/f8b",     CKPT_F8_E5M2, 2, { 31, 100 }, SU_ROWS },
    { "state/model/c128",    CKPT_C128, 2, { 10, 9 },      SU_ROWS }
};
static const su_model model = { all_kinds, UTIL_COUNT(all_kinds) };
static const su_model model_st = { all_kinds, UTIL_COUNT(all_kinds) - 1 };      // .safetensors has no complex128

static const int worlds[] = { 1, 2, 3, 4, 7, 8 };

static void load_on(const char *dir, const su_model *m, int saved, int world, bool no_verify) {
    ckpt__shard_place place = su_folder(dir);
    for (int as = -1; as <= (int)SU_INNER; as += world == 1 || no_verify ? 100 : 1) {
        for (int r = 0; r < world; r++) {
            su_rank rank;
            ckpt_timestamp at;
            ckpt__shard_count count;
            memset(&rank, 0, sizeof rank);
            memset(&count, 0, sizeof count);
            rank.other = as >= 0;
            rank.as = (su_split)as;
            su_bind(&rank, m, r, world, false);
            ckpt_err e = su_load(&rank, &place, no_verify, &count, &at);
            if (e != CKPT_OK) print_error("%d onto %d: %s\n", saved, world, ckpt_last_error());
            assert_int_equal(e, CKPT_OK);
            su_check(&rank, saved);
            assert_int_equal(at.batch, 12);
            assert_int_equal(at.epoch, 3);
            assert_true(count.read >= count.needed || count.needed == 0);
            su_free(&rank);
        }
    }
}

static void any_to_any(void **state) {
    (void)state;
    static const char *const endings[] = { ".pt", ".safetensors", ".tar" };
    for (int n = 0; n < UTIL_COUNT(worlds); n++) {
        const char *dir = util_temp_dir(), *ending = endings[n % 3];
        const su_model *m = n % 3 == 1 ? &model_st : &model;
        su_save(dir, m, worlds[n], ending, n & 1);
        for (int k = 0; k < UTIL_COUNT(worlds); k++) load_on(dir, m, worlds[n], worlds[k], (n + k) % 2 == 0);
    }
}

//-- who writes what ---------------------------------------------------------------

typedef struct told { int rank; const char *name; ckpt_dtype dtype; int ndim; int64_t whole[3], offset[3], extent[3]; } told;

// What rank 0 says to some bindings: OK, or the code; the bits of each row go to *bits as text, in the order of the rows.
static ckpt_err decide(const told *rows, int count, int world, char *bits) {
    static char memory[16];
    ckpt_allocator a = { NULL, NULL };
    ckpt__buf all, answer;
    uint64_t ends[16];
    ckpt__buf_init(&all, &a);
    ckpt__buf_init(&answer, &a);
    int mine[16] = { 0 };
    for (int r = 0; r < world; r++) {
        ckpt__binding items[16];
        char names[16][64];
        memset(items, 0, sizeof items);
        for (int i = 0; i < count; i++) {
            if (rows[i].rank != r) continue;
            ckpt__binding *b = &items[mine[r]];
            snprintf(names[mine[r]], sizeof names[0], "%s", rows[i].name);
            b->name = names[mine[r]++];
            b->kind = CKPT_KIND_TENSOR;
            b->data = memory;
            b->tensor.dtype = rows[i].dtype;
            b->tensor.ndim = rows[i].ndim;
            for (int d = 0; d < rows[i].ndim; d++) {
                b->tensor.shape[d] = rows[i].extent[d];
                b->tensor.global_shape[d] = rows[i].whole[d];
                b->tensor.offset[d] = rows[i].offset[d];
            }
        }
        ckpt__shard_table(&all, items, (size_t)mine[r]);
        ends[r] = all.len;
    }
    ckpt_err e = ckpt__shard_decide(&a, all.data, ends, world, 0, &answer);
    int at = 0;
    for (int r = 0; r < world && e == CKPT_OK; r++) {
        ckpt__shard_plan p;
        ckpt__shard_plan_init(&p, &a);
        assert_int_equal(ckpt__shard_heed(&p, answer.data, answer.len, r, world, (size_t)mine[r]), CKPT_OK);
        for (int i = 0; i < mine[r]; i++) bits[at++] = p.mine[i] ? 'w' : '-';
        ckpt__shard_plan_free(&p);
    }
    bits[at] = 0;
    ckpt__buf_free(&all);
    ckpt__buf_free(&answer);
    return e;
}

#define DECIDE(rows, world, bits) decide(rows, UTIL_COUNT(rows), world, bits)

static void test_owners(void **state) {
    (void)state;
    char bits[32];
    const told replicas[] = {       // the lowest rank that holds a piece writes it
        { 0, "w", CKPT_F32, 2, { 8, 4 }, { 0, 0 }, { 4, 4 } }, { 1, "w", CKPT_F32, 2, { 8, 4 }, { 4, 0 }, { 4, 4 } },
        { 2, "w", CKPT_F32, 2, { 8, 4 }, { 0, 0 }, { 4, 4 } }, { 3, "w", CKPT_F32, 2, { 8, 4 }, { 4, 0 }, { 4, 4 } }
    };
    assert_int_equal(DECIDE(replicas, 4, bits), CKPT_OK);
    assert_string_equal(bits, "ww--");
    const told whole[] = {          // bound whole by two, in pieces that are nothing by the third
        { 1, "w", CKPT_F32, 1, { 0 }, { 0 }, { 6 } }, { 2, "w", CKPT_F32, 1, { 6 }, { 6 }, { 0 } }, { 0, "w", CKPT_F32, 1, { 6 }, { 0 }, { 0 } },
        { 2, "v", CKPT_F32, 1, { 0 }, { 0 }, { 6 } }
    };
    assert_int_equal(DECIDE(whole, 3, bits), CKPT_OK);
    assert_string_equal(bits, "-w-w");
    const told empty[] = {          // of a tensor of no elements the lowest rank's piece is written, so that its name is there
        { 1, "w", CKPT_F32, 2, { 5, 0 }, { 0, 0 }, { 2, 0 } }, { 2, "w", CKPT_F32, 2, { 5, 0 }, { 2, 0 }, { 3, 0 } }
    };
    assert_int_equal(DECIDE(empty, 3, bits), CKPT_OK);
    assert_string_equal(bits, "w-");
    const told wheel[] = {          // no straight cut divides these five
        { 0, "w", CKPT_U8, 2, { 3, 3 }, { 0, 0 }, { 1, 2 } }, { 1, "w", CKPT_U8, 2, { 3, 3 }, { 0, 2 }, { 2, 1 } },
        { 2, "w", CKPT_U8, 2, { 3, 3 }, { 2, 1 }, { 1, 2 } }, { 3, "w", CKPT_U8, 2, { 3, 3 }, { 1, 0 }, { 2, 1 } },
        { 4, "w", CKPT_U8, 2, { 3, 3 }, { 1, 1 }, { 1, 1 } }
    };
    assert_int_equal(DECIDE(wheel, 5, bits), CKPT_OK);
    assert_string_equal(bits, "wwwww");
}

static void refused(const told *rows, int count, int world, ckpt_err code, const char *sentence) {
    char bits[32];
    ckpt_err e = decide(rows, count, world, bits);
    if (e != code || strstr(ckpt_last_error(), sentence) == NULL) print_error("%s: %s\n", ckpt_err_name(e), ckpt_last_error());
    assert_int_equal(e, code);
    assert_non_null(strstr(ckpt_last_error(), sentence));
}

#define REFUSED(rows, world, code, sentence) refused(rows, UTIL_COUNT(rows), world, code, sentence)

static void test_refusals(void **state) {
    (void)state;
    const told overlap[] = {
        { 0, "w", CKPT_F32, 2, { 8, 4 }, { 0, 0 }, { 4, 4 } }, { 1, "w", CKPT_F32, 2, { 8, 4 }, { 3, 0 }, { 5, 4 } }
    };
    REFUSED(overlap, 2, CKPT_ARG, "two pieces of 'w' overlap: that of rank 0, at [0, 0], and that of rank 1, at [3, 0]");
    const told both[] = {
        { 0, "w", CKPT_F32, 2, { 0 }, { 0 }, { 8, 4 } }, { 1, "w", CKPT_F32, 2, { 8, 4 }, { 4, 0 }, { 4, 4 } }
    };
    REFUSED(both, 2, CKPT_ARG, "two pieces of 'w' overlap: that of rank 0, at [0, 0], and that of rank 1, at [4, 0]");
    const told hole[] = {
        { 0, "a/w", CKPT_F32, 2, { 8, 4 }, { 0, 0 }, { 4, 4 } }, { 2, "a/w", CKPT_F32, 2, { 8, 4 }, { 6, 0 }, { 2, 4 } }
    };
    REFUSED(hole, 3, CKPT_ARG, "a piece of 'a/w' is missing: it is float32 [8, 4], and none of its 2 pieces (rank 0, rank 2) has the element [4, 0]");
    const told end[] = {
        { 0, "w", CKPT_F32, 2, { 8, 4 }, { 0, 0 }, { 8, 2 } }, { 1, "w", CKPT_F32, 2, { 8, 4 }, { 0, 2 }, { 7, 2 } }
    };
    REFUSED(end, 2, CKPT_ARG, "has the element [7, 2]");
    const told last[] = {
        { 0, "w", CKPT_F32, 2, { 8, 4 }, { 0, 0 }, { 4, 4 } }, { 1, "w", CKPT_F32, 2, { 8, 4 }, { 4, 0 }, { 3, 4 } }
    };
    REFUSED(last, 2, CKPT_ARG, "has the element [7, 0]");
    const told inner[] = {
        { 0, "w", CKPT_U8, 2, { 3, 3 }, { 0, 0 }, { 1, 2 } }, { 1, "w", CKPT_U8, 2, { 3, 3 }, { 0, 2 }, { 2, 1 } },
        { 2, "w", CKPT_U8, 2, { 3, 3 }, { 2, 1 }, { 1, 2 } }, { 3, "w", CKPT_U8, 2, { 3, 3 }, { 1, 0 }, { 2, 1 } }
    };
    REFUSED(inner, 4, CKPT_ARG, "and rank 2 hold 8 of 9 elements");
    const told nobody[] = { { 0, "w", CKPT_U8, 1, { 3 }, { 0 }, { 0 } }, { 1, "w", CKPT_U8, 1, { 3 }, { 3 }, { 0 } } };
    REFUSED(nobody, 2, CKPT_ARG, "a piece of 'w' is missing");
    const told dtype[] = {
        { 0, "w", CKPT_F32, 1, { 8 }, { 0 }, { 4 } }, { 1, "w", CKPT_F16, 1, { 8 }, { 4 }, { 4 } }
    };
    REFUSED(dtype, 2, CKPT_ARG, "'w' is float32 [8] on rank 0, but float16 [8] on rank 1");
    const told shape[] = {
        { 1, "w", CKPT_F32, 1, { 8 }, { 0 }, { 4 } }, { 2, "w", CKPT_F32, 1, { 9 }, { 4 }, { 5 } }
    };
    REFUSED(shape, 3, CKPT_ARG, "'w' is float32 [8] on rank 1, but float32 [9] on rank 2");
    const told dims[] = {
        { 0, "w", CKPT_F32, 1, { 0 }, { 0 }, { 4 } }, { 1, "w", CKPT_F32, 2, { 0 }, { 0 }, { 4, 1 } }
    };
    REFUSED(dims, 2, CKPT_ARG, "'w' is float32 [4] on rank 0, but float32 [4, 1] on rank 1");
}

// Values of one name are of one kind everywhere, and bytes of one size.
static void test_kinds(void **state) {
    (void)state;
    ckpt_allocator a = { NULL, NULL };
    for (int round = 0; round < 3; round++) {
        su_rank two[2];
        ckpt__items items[2];
        ckpt__shard_plan plans[2];
        int64_t i = 1;
        double f = 1;
        char bytes[8] = "abc", text[9] = "abc";
        memset(two, 0, sizeof two);
        memset(items, 0, sizeof items);
        ckpt_bind_int(&two[0].st, "v", &i);
        if (round == 0) ckpt_bind_float(&two[1].st, "v", &f);
        else ckpt_bind_int(&two[1].st, "v", &i);
        ckpt_bind_bytes(&two[0].st, "b", bytes, 4);
        ckpt_bind_bytes(&two[1].st, "b", bytes, round == 1 ? 5 : 4);
        ckpt_bind_text(&two[0].st, "t", text, 8);
        ckpt_bind_text(&two[1].st, "t", text, 9);
        ckpt_err e = su_agree(two, 2, items, plans, &a);
        assert_int_equal(e, round < 2 ? CKPT_ARG : CKPT_OK);
        if (round == 0) assert_string_equal(ckpt_last_error(), "'v' is an int on rank 0, but a float on rank 1");
        if (round == 1) assert_string_equal(ckpt_last_error(), "'b' is 4 bytes on rank 0, but 5 bytes on rank 1");
        for (int r = 0; r < 2; r++) {
            for (size_t k = 0; k < 3 && round == 2; k++) assert_int_equal(plans[r].mine[k], r == 0);
            ckpt__items_free(&items[r]);
            ckpt__shard_plan_free(&plans[r]);
            ckpt_state_free(&two[r].st);
        }
    }
}

//-- with real collectives ---------------------------------------------------------

typedef struct collective { const char *dir; ckpt_err failed; } collective;

static void save_together(tr_rank *r, void *arg) {
    collective *c = (collective *)arg;
    ckpt_allocator a = { NULL, NULL };
    ckpt__ranks ranks;
    ckpt__shard_plan plan;
    ckpt__items items;
    ckpt__shard_file f;
    ckpt__buf text, hf;
    su_rank mine;
    memset(&mine, 0, sizeof mine);
    su_bind(&mine, &model, r->rank, r->world->size, true);
    TR_CHECK(r, ckpt__ranks_init(&ranks, &r->ranks) == CKPT_OK);
    ckpt__shard_plan_init(&plan, &a);
    TR_CHECK(r, ckpt__state_select(&mine.st, false, NULL, 0, NULL, &items) == CKPT_OK);
    TR_CHECK(r, ckpt__shard_agree(&plan, &ranks, &items) == CKPT_OK);
    uint64_t before = tr_calls(r);
    TR_CHECK(r, ckpt__shard_agree(&plan, &ranks, &items) == CKPT_OK);      // nothing has changed: one allreduce
    TR_CHECK(r, tr_calls(r) == before + (r->world->size > 1));
    ckpt__shard_file_init(&f, &a);
    ckpt__buf_init(&text, &a);
    ckpt__buf_init(&hf, &a);
    TR_CHECK(r, su_write(c->dir, ".pt", &mine.st, &plan, &items, r->rank, r->rank & 1, &f) == CKPT_OK);
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = 12;
    t.epoch = 3;
    TR_CHECK(r, ckpt__shard_metadata(&ranks, &f, &t, ".pt", "run", &a, &text, &hf) == CKPT_OK);
    TR_CHECK(r, (text.len > 0) == (r->rank == 0) && hf.len == 0);
    char meta[4096];
    snprintf(meta, sizeof meta, "%s/.metadata", c->dir);
    if (r->rank == 0) util_write(meta, text.data, text.len);
    if (r->rank == 1) {                 // one binds more, and what it binds does not fit: all hear of it
        static char more[8];
        ckpt_tensor b;
        memset(&b, 0, sizeof b);
        b.dtype = CKPT_U8;
        b.ndim = 1;
        b.shape[0] = 4;
        b.global_shape[0] = 8;
        b.data = more;
        ckpt_bind(&mine.st, "more", &b);
    }
    ckpt__items_free(&items);
    TR_CHECK(r, ckpt__state_select(&mine.st, false, NULL, 0, NULL, &items) == CKPT_OK);
    if (r->world->size > 1) {
        TR_CHECK(r, ckpt__shard_agree(&plan, &ranks, &items) == CKPT_ARG);
        TR_CHECK(r, strstr(ckpt_last_error(), "a piece of 'more' is missing: it is uint8 [8], and none of its 1 pieces (rank 1)") != NULL);
    }
    ckpt__items_free(&items);
    ckpt__shard_file_free(&f);
    ckpt__shard_plan_free(&plan);
    ckpt__buf_free(&text);
    ckpt__buf_free(&hf);
    su_free(&mine);
}

static void test_together(void **state) {
    (void)state;
    for (int k = 0; k < 6; k++) {
        int size = 1 + k % 3 * 2;
        tr_world *w = tr_new(size);
        collective c = { util_temp_dir(), CKPT_OK };
        w->no_gather = k >= 3;
        tr_run(w, save_together, &c);
        assert_int_equal(w->failures, 0);
        load_on(c.dir, &model, size, 2, false);
    }
}

//-- the text ----------------------------------------------------------------------

static char *seal(const char *text, size_t *size) {
    const char *tail = strstr(text, ",\n\"crc32\":\"");
    while (tail != NULL && strlen(tail) > 30) tail = strstr(tail + 1, ",\n\"crc32\":\"");
    assert_non_null(tail);
    size_t n = (size_t)(tail - text);
    char *out = util_fmt("%.*s,\n\"crc32\":\"%08lx\"}\n", (int)n, text, (unsigned long)ckpt__digest_crc32(0, text, n));
    *size = strlen(out);
    return out;
}

// The text with one part replaced, and a checksum that fits.
static char *changed(const char *text, const char *from, const char *to, size_t *size) {
    const char *at = strstr(text, from);
    if (at == NULL) print_error("'%s' is not in it\n", from);
    assert_non_null(at);
    return seal(util_fmt("%.*s%s%s", (int)(at - text), text, to, at + strlen(from)), size);
}

static const su_tensor two_tensors[] = {
    { "a", CKPT_U8,  2, { 4, 600 }, SU_ROWS },
    { "b", CKPT_F32, 1, { 6 },      SU_WHOLE }
};
static const su_model two_model = { two_tensors, 2 };

static void test_hostile(void **state) {
    (void)state;
    static const struct { const char *from, *to; ckpt_err code; const char *sentence; } rows[] = {
        { "\"block\":1000", "\"block\":1000", CKPT_OK, "" },
        { "__0_0.pt", "../__0_0.pt", CKPT_CORRUPT, "is no name of a file" },
        { "__0_0.pt", "/etc/passwd", CKPT_CORRUPT, "is no name of a file" },
        { "__0_0.pt", "sub/__0_0.pt", CKPT_CORRUPT, "is no name of a file" },
        { "__0_0.pt", "..", CKPT_CORRUPT, "is no name of a file" },
        { "__0_0.pt", ".metadata", CKPT_CORRUPT, "is no name of a file" },
        { "__0_0.pt", "", CKPT_CORRUPT, "is no name of a file" },
        { "__0_0.pt", "a\\u0000b", CKPT_CORRUPT, "NUL" },
        { "__0_0.pt", "a\\ud800b", CKPT_CORRUPT, "surrogate" },
        { "\"world_size\":2", "\"world_size\":99999999999", CKPT_CORRUPT, "within its bounds" },
        { "\"world_size\":2", "\"world_size\":-1", CKPT_CORRUPT, "within its bounds" },
        { "\"version\":1", "\"version\":2", CKPT_UNSUPPORTED, "version 2" },
        { "\"byteorder\":\"little\"", "\"byteorder\":\"big\"", CKPT_UNSUPPORTED, "big-endian" },
        { "\"block\":1000", "\"block\":0", CKPT_CORRUPT, "blocks of no bytes" },
        { "\"block\":1000", "\"block\":100000000000", CKPT_CORRUPT, "within its bounds" },
        { "\"block\":1000", "\"block\":1", CKPT_CORRUPT, "" },
        { "\"block\":1000", "\"block\":100", CKPT_CORRUPT, "" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[-4,600]", CKPT_CORRUPT, "within its bounds" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[4,601]", CKPT_CORRUPT, "is missing" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[3,600]", CKPT_CORRUPT, "leaves the whole" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[4,600,1]", CKPT_CORRUPT, "too few" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[4]", CKPT_CORRUPT, "too many" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[1,1,1,1,1,1,1,1,1]", CKPT_CORRUPT, "too many" },
        { "\"tensor\":\"uint8\",\"shape\":[4,600]", "\"tensor\":\"uint8\",\"shape\":[4,9223372036854775807]", CKPT_CORRUPT, "2^63" },
        { "\"tensor\":\"uint8\"", "\"tensor\":\"float9\"", CKPT_CORRUPT, "dtype" },
        { "[0,0],[2,600]", "[0,0],[3,600]", CKPT_CORRUPT, "" },
        { "[0,0],[2,600]", "[0,0],[1,600]", CKPT_CORRUPT, "" },
        { "[2,0],[2,600]", "[1,0],[3,600]", CKPT_CORRUPT, "overlap" },
        { "[2,0],[2,600]", "[9223372036854775807,0],[2,600]", CKPT_CORRUPT, "leaves the whole" },
        { "[2,0],[2,600]", "[2,0],[9223372036854775807,600]", CKPT_CORRUPT, "leaves the whole" },
        { "\"pieces\":[[0,", "\"pieces\":[[7,", CKPT_CORRUPT, "within its bounds" },
        { "\"pieces\":[[0,", "\"pieces\":[[0,99999999", CKPT_CORRUPT, "outside of its file" },
        { "\"pieces\":[[0,", "\"pieces\":[[0,-", CKPT_CORRUPT, "within its bounds" },
        { "\"pieces\":[[0,", "\"pieces\":[[0,00", CKPT_CORRUPT, "within its bounds" },
        { "\"pieces\":[[0,", "\"pieces\":[[0.5,", CKPT_CORRUPT, "expected" },
        { "\"pieces\":[", "\"pieces\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", CKPT_CORRUPT, "within its bounds" },
        { "\n\"b\":{", "\n\"a\":{", CKPT_CORRUPT, "stands twice" },
        { "\n\"b\":{", "\n\"a/x\":{", CKPT_OK, "" },
        { "\n\"b\":{", "\n\"/b\":{", CKPT_CORRUPT, "the name '/b'" },
        { "\n\"b\":{", "\n\"\":{", CKPT_CORRUPT, "empty" },
        { "\n\"b\":{", "\n\"b/[0]/c\":{", CKPT_OK, "" },
        { "\"bytes\":1000", "\"bytes\":1001", CKPT_CORRUPT, "" },
        { "\"bytes\":1000", "\"bytes\":9223372036854775807", CKPT_CORRUPT, "outside of its file" },
        { "{\"int\":7}", "{\"int\":77777777777777777777}", CKPT_CORRUPT, "whole number" },
        { "{\"int\":7}", "{\"int\":seven}", CKPT_CORRUPT, "whole number" },
        { "{\"bool\":true}", "{\"bool\":1}", CKPT_CORRUPT, "'false' is expected" },
        { "{\"float\":\"0.1\"}", "{\"float\":\"zero\"}", CKPT_CORRUPT, "a number is expected" },
        { "{\"float\":\"0.1\"}", "{\"object\":\"zero\"}", CKPT_CORRUPT, "unknown kind" },
        { "\"batch\":12", "\"batch\":-12", CKPT_CORRUPT, "within its bounds" },
        { "\"files\":[", "\"files\":[],\"x\":[", CKPT_CORRUPT, "expected" },
        { "\"size\":", "\"size\":1", CKPT_OK, "" },
        { "{\"format\":\"ckpt", "{\"format\":\"kept", CKPT_CORRUPT, "expected" }
    };
    const char *dir = util_temp_dir();
    ckpt_allocator a = { NULL, NULL };
    su_save(dir, &two_model, 2, ".pt", 0);
    char *text = util_read(util_join(dir, ".metadata"), NULL);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__shard_meta m;
        size_t size = 0;
        char *bad = changed(text, rows[i].from, rows[i].to, &size);
        ckpt_err e = ckpt__shard_parse(&m, &a, bad, size);
        if (e != rows[i].code || (e != CKPT_OK && strstr(ckpt_last_error(), rows[i].sentence) == NULL))
            print_error("%s -> %s: %s %s\n", rows[i].from, rows[i].to, ckpt_err_name(e), ckpt_last_error());
        assert_int_equal(e, rows[i].code);
        if (e != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), rows[i].sentence));
        if (e == CKPT_OK) ckpt__shard_free(&m);
    }
    static const char theirs[] = "\x80\x02" "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81.";
    ckpt__shard_meta m;
    assert_int_equal(ckpt__shard_parse(&m, &a, theirs, sizeof theirs - 1), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "dcp_to_torch"));
}

// Whatever byte changes, and wherever the text ends, it is damage.
static void test_flip_listing(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_allocator a = { NULL, NULL };
    size_t size = 0;
    su_save(dir, &two_model, 2, ".pt", 0);
    char *text = util_read(util_join(dir, ".metadata"), &size);
    ckpt__shard_meta m;
    for (size_t i = 0; i < size; i++) {
        for (int mask = 1; mask < 256; mask += mask) {
            text[i] = (char)(text[i] ^ mask);
            assert_int_equal(ckpt__shard_parse(&m, &a, text, size), CKPT_CORRUPT);
            text[i] = (char)(text[i] ^ mask);
        }
        assert_int_equal(ckpt__shard_parse(&m, &a, text, i), CKPT_CORRUPT);
    }
    assert_int_equal(ckpt__shard_parse(&m, &a, text, size), CKPT_OK);
    ckpt__buf again;
    ckpt__buf_init(&again, &a);
    assert_int_equal(ckpt__shard_print(&m, &again), CKPT_OK);           // and what is parsed prints as it was
    assert_int_equal(again.len, size);
    assert_memory_equal(again.data, text, size);
    ckpt__buf_free(&again);
    ckpt__shard_free(&m);
}

//-- damage ------------------------------------------------------------------------

static ckpt_err load_two(const char *dir, su_rank *r, int rank, int world) {
    ckpt__shard_place place = su_folder(dir);
    memset(r, 0, sizeof *r);
    su_bind(r, &two_model, rank, world, false);
    return su_load(r, &place, false, NULL, NULL);
}

static ckpt_err verify(const char *dir) {
    ckpt__shard_meta m;
    ckpt__engine_job job;
    ckpt_allocator a = { NULL, NULL };
    ckpt__shard_place place = su_folder(dir);
    memset(&job, 0, sizeof job);
    ckpt_err e = ckpt__shard_open(&m, &a, &place);
    if (e != CKPT_OK) return e;
    e = ckpt__shard_verify(&m, &place, &job);
    ckpt__shard_free(&m);
    return e;
}

static void test_flip_shards(void **state) {
    (void)state;
    static const char *const endings[] = { ".pt", ".safetensors" };
    for (int k = 0; k < 2; k++) {
        const char *dir = util_temp_dir();
        ckpt_allocator a = { NULL, NULL };
        ckpt__shard_place place = su_folder(dir);
        ckpt__shard_meta m;
        su_rank r;
        su_save(dir, &two_model, 2, endings[k], 0);
        assert_int_equal(verify(dir), CKPT_OK);
        assert_int_equal(ckpt__shard_open(&m, &a, &place), CKPT_OK);
        for (size_t f = 0; f < m.file_count; f++) {
            const char *path = util_join(dir, m.files[f].name);
            for (uint64_t at = 0; at < m.files[f].size; at += at % 5 == 0 ? 1 : 7) {
                const char *entry = "its headers are damaged";
                for (size_t i = 0; i < m.piece_count; i++) {
                    const ckpt__shard_piece *p = &m.pieces[i];
                    if (p->file == f && at >= p->place && at - p->place < ckpt__shard_volume(&m, p))
                        entry = util_fmt("'%s' is damaged", ckpt__shard_entry_of(&m, p)->name);
                }
                util_flip(path, at, 0x10);
                assert_int_equal(verify(dir), CKPT_CORRUPT);
                if (strstr(ckpt_last_error(), entry) == NULL) print_error("byte %d: %s\n", (int)at, ckpt_last_error());
                assert_non_null(strstr(ckpt_last_error(), entry));
                assert_non_null(strstr(ckpt_last_error(), m.files[f].name));
                if (entry[0] == '\'' && at % 3 == 0) {        // a load finds what it reads
                    ckpt_err e = load_two(dir, &r, 0, 1);
                    bool other = strstr(entry, "rng/1") != NULL;
                    if (!other) assert_int_equal(e, CKPT_CORRUPT);
                    if (!other) assert_non_null(strstr(ckpt_last_error(), entry));
                    if (!other) assert_non_null(strstr(ckpt_last_error(), m.files[f].name));
                    su_free(&r);
                }
                util_flip(path, at, 0x10);
            }
        }
        ckpt__shard_free(&m);
        assert_int_equal(load_two(dir, &r, 0, 1), CKPT_OK);
        su_free(&r);
    }
}

// A shard that is missing or cut is found before anything that is bound changes.
static void test_missing(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    su_rank r;
    size_t size = 0;
    su_save(dir, &two_model, 3, ".pt", 0);
    const char *path = util_join(dir, "__2_0.pt"), *meta = util_join(dir, ".metadata");
    char *bytes = util_read(path, &size), *text = util_read(meta, NULL);
    assert_int_equal(truncate(path, (off_t)size - 1), 0);
    assert_int_equal(load_two(dir, &r, 2, 3), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "__2_0.pt"));
    assert_non_null(strstr(ckpt_last_error(), "bytes, and should have"));
    assert_int_equal((unsigned char)r.base[0][0], 0xEE);
    assert_int_equal(r.epoch, -1);
    su_free(&r);
    assert_int_equal(load_two(dir, &r, 0, 3), CKPT_OK);     // a rank that needs nothing of it loads
    su_free(&r);
    assert_int_equal(verify(dir), CKPT_CORRUPT);
    util_write(path, bytes, size);
    assert_int_equal(rename(path, util_join(dir, "gone")), 0);
    assert_int_equal(load_two(dir, &r, 2, 3), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "__2_0.pt"));
    assert_int_equal((unsigned char)r.base[0][0], 0xEE);
    su_free(&r);
    assert_int_equal(verify(dir), CKPT_NOT_FOUND);
    util_mkdir(path);
    assert_int_equal(load_two(dir, &r, 2, 3), CKPT_CORRUPT);
    su_free(&r);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(util_join(dir, "gone"), path), 0);
    assert_int_equal(load_two(dir, &r, 2, 3), CKPT_OK);
    su_free(&r);
    assert_int_equal(unlink(meta), 0);
    assert_int_equal(load_two(dir, &r, 2, 3), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "never finished"));
    su_free(&r);
    util_write_text(meta, text);
    assert_int_equal(truncate(meta, (off_t)strlen(text) / 2), 0);
    assert_int_equal(load_two(dir, &r, 2, 3), CKPT_CORRUPT);
    su_free(&r);
}

//-- memory, time ------------------------------------------------------------------

static ckpt_err save_and_load(counting *c, const char *dir) {
    ckpt_allocator a = { counting_fn, c };
    ckpt__shard_place place = su_folder(dir);
    su_rank two[2], one;
    memset(two, 0, sizeof two);
    memset(&one, 0, sizeof one);
    for (int r = 0; r < 2; r++) su_bind(&two[r], &two_model, r, 2, true);
    su_bind(&one, &two_model, 0, 1, false);
    for (int r = 0; r < 2; r++) two[r].st.allocator = a;    // after binding: binds are tested elsewhere
    struct ckpt__binds *binds[2] = { two[0].st.binds, two[1].st.binds };
    (void)binds;
    ckpt_err e = su_save_ranks(dir, two, 2, ".pt", 0, &a);
    one.st.allocator = a;
    if (e == CKPT_OK) e = su_load(&one, &place, false, NULL, NULL);
    if (e == CKPT_OK) su_check(&one, 2);
    ckpt_allocator plain = { NULL, NULL };
    for (int r = 0; r < 2; r++) two[r].st.allocator = plain;
    one.st.allocator = plain;
    for (int r = 0; r < 2; r++) su_free(&two[r]);
    su_free(&one);
    return e;
}

static void test_no_memory(void **state) {
    (void)state;
    for (int at = 1; ; at++) {
        counting c = { 0, 0, at };
        const char *dir = util_temp_dir();
        ckpt_err e = save_and_load(&c, dir);
        assert_int_equal(c.live, 0);
        if (c.calls < at) {
            assert_int_equal(e, CKPT_OK);
            assert_true(at > 100);
            return;
        }
        if (e != CKPT_NOMEM) print_error("allocation %d: %s %s\n", at, ckpt_err_name(e), ckpt_last_error());
        assert_int_equal(e, CKPT_NOMEM);
        util_remove_tree(dir);
    }
}

// Tables of 4,096 ranks, and a listing of 100,000 pieces in one tensor: rows, columns, a grid. Generous limits that anything
// quadratic would exceed by far.
static void test_cost(void **state) {
    (void)state;
    enum { RANKS = 4096, NAMES = 25 };
    ckpt_allocator a = { NULL, NULL };
    for (int split = 0; split < 3; split++) {
        ckpt__buf all, answer;
        uint64_t *ends = (uint64_t *)calloc(RANKS, sizeof *ends);
        ckpt__buf_init(&all, &a);
        ckpt__buf_init(&answer, &a);
        for (int r = 0; r < RANKS; r++) {
            ckpt__binding items[NAMES];
            char names[NAMES][32];
            memset(items, 0, sizeof items);
            for (int i = 0; i < NAMES; i++) {
                ckpt_tensor *t = &items[i].tensor;
                snprintf(names[i], sizeof names[i], "state/model/layer%d", i);
                items[i].name = names[i];
                items[i].kind = CKPT_KIND_TENSOR;
                t->dtype = CKPT_F32;
                t->ndim = 2;
                t->global_shape[0] = t->global_shape[1] = 8192;
                t->shape[0] = split == 0 ? 2 : split == 1 ? 8192 : 128;
                t->shape[1] = split == 0 ? 8192 : split == 1 ? 2 : 128;
                t->offset[0] = split == 0 ? r * 2 : split == 1 ? 0 : r / 64 * 128;
                t->offset[1] = split == 0 ? 0 : split == 1 ? r * 2 : r % 64 * 128;
            }
            ckpt__shard_table(&all, items, NAMES);
            ends[r] = all.len;
        }
        double began = ckpt__os_now();
        assert_int_equal(ckpt__shard_decide(&a, all.data, ends, RANKS, 0, &answer), CKPT_OK);
        double seconds = ckpt__os_now() - began;
        print_message("%d ranks with %d pieces each: agreed in %.3f s\n", (int)RANKS, (int)NAMES, seconds);
        assert_true(seconds < 20);
        ckpt__buf_free(&all);
        ckpt__buf_free(&answer);
        free(ends);
    }
}

// A listing built by hand: `files` files with `names` pieces each.
static void listing(ckpt__buf *b, int files, int names) {
    size_t from = b->len;
    ckpt__buf_fmt(b, "{\"format\":\"ckpt sharded checkpoint\",\"version\":1,\"byteorder\":\"%s\",\"world_size\":%d,\"block\":262144,\n\"files\":[",
                  ckpt__pickle_byteorder(), files);
    for (int i = 0; i < files; i++) ckpt__buf_fmt(b, "%s\n{\"name\":\"__%d_0.pt\",\"size\":99999999,\"crc32\":\"00000000\"}", i > 0 ? "," : "", i);
    ckpt__buf_text(b, "],\n\"entries\":{");
    for (int k = 0; k < names; k++) {
        ckpt__buf_fmt(b, "%s\n\"state/model/transformer/layer%d/weight\":{\"tensor\":\"float32\",\"shape\":[%d,64],\"pieces\":[", k > 0 ? "," : "", k, files * 4);
        for (int i = 0; i < files; i++) ckpt__buf_fmt(b, "%s[%d,%d,\"0000beef\",[%d,0],[4,64]]", i > 0 ? "," : "", i, 4096 + 1024 * k, i * 4);
        ckpt__buf_text(b, "]}");
    }
    ckpt__buf_text(b, "}");
    ckpt__buf_fmt(b, ",\n\"crc32\":\"%08lx\"}\n", (unsigned long)ckpt__digest_crc32(0, b->data + from, b->len - from));
    (void)ckpt__buf_cstr(b);
}

static void test_cost_parse(void **state) {
    (void)state;
    ckpt_allocator a = { NULL, NULL };
    bool whole = util_long();
    int sizes[][2] = { { 100000, 1 }, { 4096, 25 }, { 4096, 1000 } };
    for (int k = 0; k < (whole ? 3 : 2); k++) {
        ckpt__buf b;
        ckpt__shard_meta m;
        ckpt__buf_init(&b, &a);
        listing(&b, sizes[k][0], sizes[k][1]);
        double began = ckpt__os_now();
        ckpt_err e = ckpt__shard_parse(&m, &a, b.data, b.len);
        double seconds = ckpt__os_now() - began;
        if (e != CKPT_OK) print_error("%s\n", ckpt_last_error());
        assert_int_equal(e, CKPT_OK);
        print_message("%d files x %d pieces, %.1f MB: parsed in %.3f s\n", sizes[k][0], sizes[k][1], (double)b.len / 1e6, seconds);
        assert_true(seconds < 30);
        ckpt__shard_free(&m);
        ckpt__buf_free(&b);
    }
}

// Pieces that cannot be compared cheaply are refused rather than compared for hours.
static void test_cost_hostile(void **state) {
    (void)state;
    enum { N = 20000 };
    ckpt_allocator a = { NULL, NULL };
    ckpt__buf b;
    ckpt__shard_meta m;
    ckpt__buf_init(&b, &a);
    ckpt__buf_fmt(&b, "{\"format\":\"ckpt sharded checkpoint\",\"version\":1,\"byteorder\":\"%s\",\"world_size\":1,\"block\":262144,\n"
                  "\"files\":[{\"name\":\"f\",\"size\":9223372036854775807,\"crc32\":\"00000000\"}],\n\"entries\":{\"w\":{\"tensor\":\"uint8\","
                  "\"shape\":[%d,%d],\"pieces\":[", ckpt__pickle_byteorder(), N + 2, 2 * N + 2);
    for (int i = 0; i < N; i++)         // a staircase of which every step lies beside every other in both directions
        ckpt__buf_fmt(&b, "%s[0,0,\"00000000\",[%d,%d],[%d,1]%s]", i > 0 ? "," : "", 0, 2 * i, N + 1, "");
    ckpt__buf_text(&b, "]}}");
    ckpt__buf_fmt(&b, ",\n\"crc32\":\"%08lx\"}\n", (unsigned long)ckpt__digest_crc32(0, b.data, b.len));
    double began = ckpt__os_now();
    assert_int_equal(ckpt__shard_parse(&m, &a, ckpt__buf_cstr(&b), b.len), CKPT_CORRUPT);
    assert_true(ckpt__os_now() - began < 10);
    b.len = 0;
    ckpt__buf_fmt(&b, "{\"format\":\"ckpt sharded checkpoint\",\"version\":1,\"byteorder\":\"%s\",\"world_size\":1,\"block\":16777216,\n"
                  "\"files\":[{\"name\":\"f\",\"size\":9223372036854775807,\"crc32\":\"00000000\"}],\n\"entries\":{\"w\":{\"tensor\":\"uint8\","
                  "\"shape\":[%d,%d],\"pieces\":[", ckpt__pickle_byteorder(), N, N);
    // A spiral: each cut takes one piece off, so that cutting is quadratic.
    int64_t low[2] = { 0, 0 }, high[2] = { N, N };
    for (int i = 0; i < N - 1; i++) {
        int d = i % 2;
        int64_t ext[2] = { d == 0 ? 1 : high[0] - low[0], d == 1 ? 1 : high[1] - low[1] };
        ckpt__buf_fmt(&b, "%s[0,0,\"00000000\",[%d,%d],[%d,%d]]", i > 0 ? "," : "", (int)low[0], (int)low[1], (int)ext[0], (int)ext[1]);
        low[d]++;
    }
    ckpt__buf_text(&b, "]}}");
    ckpt__buf_fmt(&b, ",\n\"crc32\":\"%08lx\"}\n", (unsigned long)ckpt__digest_crc32(0, b.data, b.len));
    began = ckpt__os_now();
    assert_int_equal(ckpt__shard_parse(&m, &a, ckpt__buf_cstr(&b), b.len), CKPT_CORRUPT);
    print_message("a hostile spiral of %d pieces: refused in %.3f s: %.100s\n", (int)N, ckpt__os_now() - began, ckpt_last_error());
    assert_true(ckpt__os_now() - began < 20);
    ckpt__buf_free(&b);
}

int main(void) {
    fault_shard_block = 1000;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),       cmocka_unit_test(test_refusals),    cmocka_unit_test(test_kinds),
        cmocka_unit_test(any_to_any),        cmocka_unit_test(test_together),    cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_flip_listing), cmocka_unit_test(test_flip_shards), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_cost),        cmocka_unit_test(test_cost_parse),
        cmocka_unit_test(test_cost_hostile),
    };
    util_clear_env();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
