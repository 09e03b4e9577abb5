// Proves what a load of pieces reads, and from where: folders, links, stores with counted ranges, single files, devices; merging and
// splitting. run.sh: tsan-long
#define CKPT__ENGINE_MIB 32768
#define CKPT__SHARD_BLOCK 4096
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include "scripted.h"
#include "bucket_util.h"
#include "thread_ranks.h"
#include "shard_util.h"

static const su_tensor tensors[] = {
    { "state/model/rows",    CKPT_F32, 2, { 600, 200 },     SU_ROWS },
    { "state/model/columns", CKPT_F32, 2, { 300, 400 },      SU_COLUMNS },
    { "state/model/thin",    CKPT_U8,  2, { 1500, 8 },       SU_COLUMNS },
    { "state/model/grid",    CKPT_F64, 2, { 150, 120 },      SU_GRID },
    { "state/model/cube",    CKPT_I16, 3, { 20, 25, 60 },    SU_INNER },
    { "state/model/uneven",  CKPT_BF16, 1, { 100001 },       SU_UNEVEN },
    { "state/model/twins",   CKPT_I64, 2, { 100, 100 },      SU_TWINS },
    { "state/model/whole",   CKPT_F32, 2, { 100, 100 },      SU_WHOLE },
    { "state/model/bias",    CKPT_F32, 1, { 10 },            SU_WHOLE }
};
static const su_model model = { tensors, UTIL_COUNT(tensors) };

static void ok_(ckpt_err e, int line) {
    if (e != CKPT_OK) print_error("line %d: %s: %s\n", line, ckpt_err_name(e), ckpt_last_error());
    assert_int_equal(e, CKPT_OK);
}
#define OK(call) ok_((call), __LINE__)

static void says(ckpt_err e, ckpt_err code, const char *part) {
    if (e != code || strstr(ckpt_last_error(), part) == NULL) print_error("%s: %s\n", ckpt_err_name(e), ckpt_last_error());
    assert_int_equal(e, code);
    assert_non_null(strstr(ckpt_last_error(), part));
}

//-- what is read ------------------------------------------------------------------

// A store that notes every range.
typedef struct noted { char name[64]; uint64_t at, size; } noted;
typedef struct recorder {
    scripted       *s;
    noted           list[20000];
    int             count;
    pthread_mutex_t lock;
} recorder;
static recorder rec;

static ckpt_err recorded_get(ckpt_store *store, const char *name, const char *etag, uint64_t offset, ckpt__sink *sink, ckpt__transfer *t) {
    pthread_mutex_lock(&rec.lock);
    assert_true(rec.count < UTIL_COUNT(rec.list));
    noted *n = &rec.list[rec.count++];
    snprintf(n->name, sizeof n->name, "%s", name);
    n->at = offset;
    n->size = sink->size;
    pthread_mutex_unlock(&rec.lock);
    return scripted_get(store, name, etag, offset, sink, t);
}

static void record(const char *dir, const char *prefix) {
    memset(&rec, 0, sizeof rec);
    pthread_mutex_init(&rec.lock, NULL);
    rec.s = scripted_open(NULL);
    rec.s->table.get = recorded_get;
    char *names = util_fmt("%s", util_list(dir)), *next = NULL;
    for (char *name = strtok_r(names, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next)) {
        size_t size = 0;
        char *bytes = util_read(util_join(dir, name), &size);
        scripted_keep(rec.s, util_fmt("%s%s%s", prefix, prefix[0] != 0 ? "/" : "", name), bytes, size);
    }
}

static int by_place(const void *a, const void *b) {
    const noted *x = (const noted *)a, *y = (const noted *)b;
    int names = strcmp(x->name, y->name);
    return names != 0 ? names : x->at < y->at ? -1 : x->at > y->at;
}

// The bytes of all ranges; no byte of the store may come twice.
static uint64_t recorded(void) {
    uint64_t sum = 0;
    qsort(rec.list, (size_t)rec.count, sizeof *rec.list, by_place);
    for (int i = 0; i < rec.count; i++) {
        if (strstr(rec.list[i].name, ".metadata") != NULL) continue;
        sum += rec.list[i].size;
        if (i > 0 && strcmp(rec.list[i].name, rec.list[i - 1].name) == 0)
            assert_true(rec.list[i].at >= rec.list[i - 1].at + rec.list[i - 1].size);
    }
    return sum;
}

static ckpt__shard_place in_store(const char *prefix) {
    ckpt__shard_place p;
    memset(&p, 0, sizeof p);
    p.store = &rec.s->store;
    p.prefix = prefix;
    return p;
}

// Every rank reads each byte at most once, and nothing that it does not need but for blocks and gaps.
static void test_counted(void **state) {
    (void)state;
    static const int worlds[] = { 1, 2, 3, 4, 7 };
    for (int n = 1; n < UTIL_COUNT(worlds); n += 2) {
        const char *dir = util_temp_dir();
        su_save(dir, &model, worlds[n], ".pt", 0);
        record(dir, "run/ep1-ba5");
        for (int k = 0; k < UTIL_COUNT(worlds); k++) {
            uint64_t needed = 0, read = 0, requests = 0;
            for (int r = 0; r < worlds[k]; r++) {
                for (int no_verify = 0; no_verify < 2; no_verify++) {
                    ckpt__shard_place place = in_store("run/ep1-ba5");
                    ckpt__shard_count count;
                    su_rank rank;
                    memset(&rank, 0, sizeof rank);
                    memset(&count, 0, sizeof count);
                    su_bind(&rank, &model, r, worlds[k], false);
                    rec.count = 0;
                    OK(su_load(&rank, &place, no_verify == 1, &count, NULL));
                    su_check(&rank, worlds[n]);
                    su_free(&rank);
                    assert_int_equal(recorded(), count.read);
                    assert_true(count.read >= count.needed);
                    needed += no_verify == 0 ? count.needed : 0;
                    read += no_verify == 0 ? count.read : 0;
                    requests += no_verify == 0 ? count.requests : 0;
                }
            }
            print_message("%d ranks onto %d: %llu bytes needed, %llu read, %llu requests\n", worlds[n], worlds[k],
                          (unsigned long long)needed, (unsigned long long)read, (unsigned long long)requests);
        }
        scripted_close(rec.s);
    }
}

static const su_tensor far_apart[] = {
    { "big", CKPT_U8, 2, { 64, 262144 }, SU_ROWS }      // rows of 256 KiB
};
static const su_model far_model = { far_apart, 1 };

// Without verification exactly the bytes that are needed, where no gap is short; with it the blocks that they lie in.
static void test_exact(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt__shard_place place = su_folder(dir);
    ckpt_tensor t;
    unsigned char *column = (unsigned char *)calloc(64, 100);
    int64_t offset[2] = { 0, 100001 }, extent[2] = { 64, 100 };
    su_save(dir, &far_model, 4, ".safetensors", 1);
    for (int no_verify = 0; no_verify < 2; no_verify++) {
        ckpt_state st = { 0 };
        ckpt__shard_meta m;
        ckpt__file_options o;
        ckpt__engine_job job;
        ckpt__shard_count count;
        memset(&t, 0, sizeof t);
        memset(&o, 0, sizeof o);
        memset(&job, 0, sizeof job);
        memset(&count, 0, sizeof count);
        memset(column, 0, 6400);
        t.dtype = CKPT_U8;
        t.ndim = 2;
        t.shape[0] = 64;
        t.shape[1] = 100;
        t.global_shape[0] = 64;
        t.global_shape[1] = 262144;
        t.offset[1] = 100001;
        t.data = column;
        ckpt_bind(&st, "big", &t);
        o.job = &job;
        o.no_verify = no_verify == 1;
        OK(ckpt__shard_open(&m, &st.allocator, &place));
        OK(ckpt__shard_restore(&m, &place, &st, &o, NULL, &count));
        assert_int_equal(su_each(&far_apart[0], offset, extent, column, false), 0);
        assert_int_equal(count.needed, 6400);
        assert_int_equal(count.requests, 64);
        if (no_verify) assert_int_equal(count.read, 6400);
        else assert_int_equal(count.read, 64 * 4096);
        ckpt__shard_free(&m);
        ckpt_state_free(&st);
    }
    // Whole rows: nothing but them, whether verified or not.
    for (int no_verify = 0; no_verify < 2; no_verify++) {
        for (int world = 1; world <= 8; world *= 2) {
            su_rank r;
            ckpt__shard_count count;
            memset(&r, 0, sizeof r);
            memset(&count, 0, sizeof count);
            su_bind(&r, &far_model, world - 1, world, false);
            OK(su_load(&r, &place, no_verify == 1, &count, NULL));
            su_check(&r, 4);
            assert_int_equal(count.read, count.needed);
            su_free(&r);
        }
    }
    free(column);
}

static const su_tensor large[] = { { "big", CKPT_U8, 1, { 500000 }, SU_ROWS } };       // two windows
static const su_model large_model = { large, 1 };

// One large piece comes from a store over several connections.
static void test_wide(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt__shard_meta m;
    ckpt__file_options o;
    ckpt__engine_job job;
    ckpt_state st = { 0 };
    memset(&o, 0, sizeof o);
    memset(&job, 0, sizeof job);
    su_save(dir, &large_model, 1, ".pt", 0);
    record(dir, "run");
    ckpt__shard_place place = in_store("run");
    char *data = (char *)calloc(1, 500000);
    ckpt_bind_bytes(&st, "big", data, 500000);
    o.job = &job;
    OK(ckpt__shard_open(&m, &st.allocator, &place));
    rec.s->together = 2;
    OK(ckpt__shard_restore(&m, &place, &st, &o, NULL, NULL));
    assert_true(rec.s->busiest >= 2);
    ckpt__shard_free(&m);
    ckpt_state_free(&st);
    free(data);
    scripted_close(rec.s);
}

// A flipped byte in any block of any piece is found by whoever needs that block, and by nobody else.
static void test_flipped_blocks(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt__shard_place place = su_folder(dir);
    ckpt__shard_meta m;
    ckpt_allocator a = { NULL, NULL };
    su_save(dir, &model, 3, ".pt", 1);
    OK(ckpt__shard_open(&m, &a, &place));
    for (size_t i = 0; i < m.piece_count; i++) {
        const ckpt__shard_piece *p = &m.pieces[i];
        const ckpt__entry *x = ckpt__shard_entry_of(&m, p);
        uint64_t size = ckpt__shard_volume(&m, p);
        const char *path = util_join(dir, m.files[p->file].name);
        for (uint64_t at = i % 7; at < size; at += size / 3 + 1) {
            util_flip(path, p->place + at, 1);
            int found = 0;
            for (int rank = 0; rank < 2; rank++) {
                su_rank r;
                memset(&r, 0, sizeof r);
                su_bind(&r, &model, rank, 2, false);
                ckpt_err e = su_load(&r, &place, false, NULL, NULL);
                if (e != CKPT_OK) {
                    says(e, CKPT_CORRUPT, util_fmt("'%s' is damaged", x->name));
                    assert_non_null(strstr(ckpt_last_error(), m.files[p->file].name));
                    found++;
                } else {
                    su_check(&r, 3);
                }
                su_free(&r);
            }
            bool rng = strncmp(x->name, "rng/", 4) == 0;
            assert_true(rng ? found <= 1 : found >= 1);
            util_flip(path, p->place + at, 1);
        }
    }
    ckpt__shard_free(&m);
}

//-- where from --------------------------------------------------------------------

static ckpt_err load_path(const char *path, ckpt_store *store, int rank, int world) {
    ckpt_load_desc d;
    ckpt_timestamp at;
    su_rank r;
    memset(&d, 0, sizeof d);
    memset(&r, 0, sizeof r);
    su_bind(&r, &model, rank, world, false);
    d.load_path = path;
    d.state = &r.st;
    d.store = store;
    d.ranks.rank = rank;
    d.ranks.world_size = world;
    ckpt_err e = ckpt_load(&d, &at);
    if (e == CKPT_OK) {
        su_check(&r, 2);
        assert_int_equal(at.batch, 12);
    }
    su_free(&r);
    return e;
}

static void test_paths(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *dir = util_fmt("%s/run/ep1-ba5", top);
    util_mkdir(util_join(top, "run"));
    util_mkdir(dir);
    su_save(dir, &model, 2, ".pt", 0);
    util_mkdir(util_join(top, "run/empty"));
    assert_int_equal(symlink("ep1-ba5", util_join(top, "run/latest")), 0);
    assert_int_equal(symlink("run/latest", util_join(top, "twice")), 0);
    util_write_text(util_join(top, "run/text.symlink"), "ep1-ba5\n");
    util_write_text(util_join(top, "run/plain"), "ep1-ba5");
    util_write_text(util_join(top, "object.symlink"), "run/ep1-ba5");
    static const char *const good[] = { "run/ep1-ba5", "run/ep1-ba5/", "run/latest", "twice", "run/text.symlink", "run/text", "run/plain" };
    for (int i = 0; i < UTIL_COUNT(good); i++) {
        for (int r = 0; r < 3; r++) OK(load_path(util_join(top, good[i]), NULL, r, 3));
    }
    static const char *const uris[] = { "run/ep1-ba5", "run/ep1-ba5/", "run/latest", "object", "object.symlink" };
    for (int i = 0; i < UTIL_COUNT(uris); i++) OK(load_path(util_fmt("file://%s/%s", top, uris[i]), NULL, 1, 2));
    says(load_path(util_join(top, "run/empty"), NULL, 0, 1), CKPT_UNSUPPORTED, "without a .metadata");
    says(load_path(util_join(top, "run/nothing"), NULL, 0, 1), CKPT_NOT_FOUND, "nothing");
    says(load_path(util_fmt("file://%s/run/nothing", top), NULL, 0, 1), CKPT_NOT_FOUND, "nothing");
    says(load_path(util_fmt("file://%s/run/empty", top), NULL, 0, 1), CKPT_NOT_FOUND, "empty");
}

static void test_stores(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    su_save(dir, &model, 2, ".pt", 0);
    record(dir, "lab/run/ep1-ba5");
    scripted_keep(rec.s, "lab/run/latest.symlink", "lab/run/ep1-ba5", 15);
    scripted_keep(rec.s, "lab/run/short.symlink", "run/ep1-ba5", 11);       // from further down
    scripted_keep(rec.s, "lab/run/ring.symlink", "lab/run/ring.symlink", 20);
    scripted_keep(rec.s, "lab/run/up.symlink", "../ep1-ba5", 10);
    ckpt_store *s = &rec.s->store;
    static const char *const good[] = { "lab/run/ep1-ba5", "lab/run/ep1-ba5/", "lab/run/latest", "lab/run/latest.symlink", "lab/run/short",
                                        "s3://any/lab/run/latest" };
    for (int i = 0; i < UTIL_COUNT(good); i++) OK(load_path(good[i], s, 1, 3));
    says(load_path("lab/run/nothing", s, 0, 1), CKPT_NOT_FOUND, "nothing");
    says(load_path("lab/run", s, 0, 1), CKPT_NOT_FOUND, "lab/run");
    says(load_path("lab/run/ring", s, 0, 1), CKPT_CORRUPT, "circle");
    says(load_path("lab/run/up", s, 0, 1), CKPT_CORRUPT, "'..'");
    // Requests that break off go on where they ended; refusals are repeated.
    scripted_clear(rec.s);
    for (int i = 0; i < 4; i++) scripted_when(rec.s, OP_GET, 2 + 3 * i, DO_SHORT)->bytes = 1000;
    scripted_when(rec.s, OP_GET, 20, DO_FAIL);
    OK(load_path("lab/run/ep1-ba5", s, 0, 2));
    scripted_clear(rec.s);
    scripted_when(rec.s, OP_GET, 3, DO_FLIP);
    says(load_path("lab/run/ep1-ba5", s, 0, 2), CKPT_CORRUPT, "is damaged");
    scripted_clear(rec.s);
    scripted_rule *auth = scripted_when(rec.s, OP_STAT, 0, DO_FAIL);
    auth->err = CKPT_AUTH;
    auth->transient = false;
    auth->times = -1;
    assert_int_equal(load_path("lab/run/ep1-ba5", s, 0, 2), CKPT_AUTH);
    // An object that is shorter, or gone.
    scripted_clear(rec.s);
    scripted_object *o = scripted_find(rec.s, "lab/run/ep1-ba5/__1_0.pt");
    o->size--;
    says(load_path("lab/run/ep1-ba5", s, 1, 2), CKPT_CORRUPT, "__1_0.pt");
    snprintf(o->name, sizeof o->name, "elsewhere");
    says(load_path("lab/run/ep1-ba5", s, 1, 2), CKPT_NOT_FOUND, "__1_0.pt");
    scripted_close(rec.s);
}

// All of a directory's objects are put again, as by a run that has gone back; only: those whose names have this in them.
static void put_again(const char *dir, const char *only) {
    char *names = util_fmt("%s", util_list(dir)), *next = NULL;
    for (char *name = strtok_r(names, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next)) {
        size_t size = 0;
        char *bytes = util_read(util_join(dir, name), &size);
        if (strstr(name, only) != NULL) scripted_keep(rec.s, util_fmt("run/%s", name), bytes, size);
    }
}

// Who has a checkpoint of a store open reads nothing of another save that was put in its place, of no object. As nothing changes
// each object is looked at once, and the listing for it.
static void test_replaced_in_store(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *again = util_temp_dir();
    ckpt_allocator a = { NULL, NULL };
    su_save(dir, &model, 2, ".pt", 0);
    su_rank ranks[2];
    memset(ranks, 0, sizeof ranks);
    for (int r = 0; r < 2; r++) su_bind(&ranks[r], &model, r, 2, true);
    for (int r = 0; r < 2; r++) ranks[r].epoch = 77;
    OK(su_save_ranks(again, ranks, 2, ".pt", 0, &a));
    for (int r = 0; r < 2; r++) su_free(&ranks[r]);
    for (int i = 0; i < 4; i++) {
        record(dir, "run");
        ckpt_file *f = NULL;
        int at = 0;
        char value[4];
        OK(ckpt__shard_open_file(&f, NULL, &rec.s->store, "run", &a));
        ckpt__shard_of(f)->store = NULL;
        while (strcmp(f->toc.entries[at].name, "state/model/rows") != 0) at++;
        uint64_t last = f->toc.entries[at].size - 4;
        OK(ckpt_file_read(f, at, 0, value, 4));
        if (i == 0) {
            OK(ckpt_file_read(f, at, last, value, 4));
            int looks = rec.s->calls[OP_STAT];
            for (int k = 0; k < 5; k++) OK(ckpt_file_read(f, at, k % 2 == 0 ? 8 : last - 8, value, 4));
            assert_int_equal(rec.s->calls[OP_STAT], looks);
        }
        put_again(i < 2 ? dir : again, i == 0 ? "__0_0" : "");
        for (int k = 0; k < 2; k++) {
            ckpt_err e = ckpt_file_read(f, at, (k == 0) == (i < 3) ? last : 0, value, 4);
            if (i < 2) OK(e);                                           // the same again
            else says(e, CKPT_NOT_FOUND, "run: it was removed, or saved again");
        }
        ckpt_file_close(f);
        scripted_close(rec.s);
    }
}

// A store that only gives whole objects, and files that are compressed: brought into temporary files that nobody sees again.
static void test_brought(void **state) {
    (void)state;
    static const char *const kinds[][2] = { { ".pt", "sh" }, { ".pt.gz", "gzip" }, { ".safetensors.zst", "zstd" }, { ".tar", "sh" }, { ".tgz", "gzip" } };
    const char *tmp = util_temp_dir();
    for (int k = 0; k < UTIL_COUNT(kinds); k++) {
        if (!ckpt__os_which(kinds[k][1])) continue;
        bucket *b = bucket_new(NULL);
        const char *dir = util_temp_dir();
        ckpt__shard_meta m;
        ckpt__engine_job job;
        ckpt_allocator a = { NULL, NULL };
        su_save(dir, &model, 2, kinds[k][0], k & 1);
        char *names = util_fmt("%s", util_list(dir)), *next = NULL;
        for (char *name = strtok_r(names, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next))
            OK(ckpt_store_put(b->store, util_fmt("run/%s", name), util_join(dir, name), true));
        assert_int_equal(setenv("TMPDIR", tmp, 1), 0);
        for (int r = 0; r < 3; r++) {
            OK(load_path("run", b->store, r, 3));
            OK(load_path(dir, NULL, r, 3));
        }
        OK(ckpt_verify(dir, NULL));
        // What is compressed is found damaged wherever it is changed.
        size_t size = 0;
        const char *path = util_fmt("%s/__1_0%s", dir, kinds[k][0]);
        (void)util_read(path, &size);
        for (uint64_t at = 0; at < size; at += at < 12 ? 4 : size / 9 + 1) {        // the time in a gzip header too, which no tool checks
            util_flip(path, at, 4);
            says(ckpt_verify(dir, NULL), CKPT_CORRUPT, util_fmt("__1_0%s", kinds[k][0]));
            util_flip(path, at, 4);
        }
        ckpt__shard_place place;
        memset(&place, 0, sizeof place);
        memset(&job, 0, sizeof job);
        place.store = b->store;
        place.prefix = "run";
        OK(ckpt__shard_open(&m, &a, &place));
        OK(ckpt__shard_verify(&m, &place, &job));
        ckpt__shard_free(&m);
        assert_string_equal(util_list(tmp), "");
        assert_int_equal(unsetenv("TMPDIR"), 0);
        bucket_end(b);
    }
}

// A server that answers a request for a range with the whole object.
static ckpt_err whole_get(ckpt_store *store, const char *name, const char *etag, uint64_t offset, ckpt__sink *sink, ckpt__transfer *t) {
    pthread_mutex_lock(&rec.s->lock);
    const scripted_object *o = scripted_find(rec.s, name);
    bool whole = o == NULL || (offset == 0 && sink->size == o->size);
    pthread_mutex_unlock(&rec.s->lock);
    if (!whole) return ckpt__error_set(CKPT_UNSUPPORTED, "the server gives whole objects only (200 to a request for a range)");
    return scripted_get(store, name, etag, offset, sink, t);
}

static void test_rangeless(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    for (int k = 0; k < 2; k++) {
        ckpt__shard_meta m;
        ckpt__engine_job job;
        ckpt_allocator a = { NULL, NULL };
        if (k == 0) su_save(dir, &model, 2, ".pt", 0);
        record(dir, "run");
        rec.s->table.get = whole_get;
        for (int r = 0; r < 3 && k == 0; r++) OK(load_path("run", &rec.s->store, r, 3));
        ckpt__shard_place place = in_store("run");
        memset(&job, 0, sizeof job);
        OK(ckpt__shard_open(&m, &a, &place));
        scripted_object *o = scripted_find(rec.s, "run/__1_0.pt");
        if (k == 1) o->data[o->size / 2] ^= 1;
        ckpt_err e = ckpt__shard_verify(&m, &place, &job);
        if (k == 0) OK(e);
        else says(e, CKPT_CORRUPT, "__1_0.pt");
        ckpt__shard_free(&m);
        scripted_close(rec.s);
    }
}

//-- single files ------------------------------------------------------------------

static void test_single_files(void **state) {
    (void)state;
    static const char *const names[][2] = { { "x.pt", "sh" }, { "x.safetensors", "sh" }, { "x.tar", "sh" }, { "x.pt.gz", "gzip" } };
    const char *dir = util_temp_dir();
    su_rank whole, piece;
    memset(&whole, 0, sizeof whole);
    whole.other = true;
    whole.as = SU_WHOLE;
    su_bind(&whole, &model, 0, 1, true);
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = 12;
    for (int k = 0; k < UTIL_COUNT(names); k++) {
        if (!ckpt__os_which(names[k][1])) continue;
        const char *path = util_join(dir, names[k][0]);
        OK(ckpt_save(path, &whole.st, &t));
        for (int r = 0; r < 3; r++) {
            memset(&piece, 0, sizeof piece);
            su_bind(&piece, &model, r, 3, false);
            ckpt_load_desc d;
            memset(&d, 0, sizeof d);
            d.load_path = path;
            d.state = &piece.st;
            d.no_verify = r == 1;
            d.not_strict = r > 0;                       // one rank saved: there is no random state of further ones
            d.ranks.rank = r;
            d.ranks.world_size = 3;
            ckpt_timestamp at;
            OK(ckpt_load(&d, &at));
            su_check(&piece, 1);
            assert_int_equal(at.batch, 12);
            su_free(&piece);
        }
    }
    // What is flipped in a tensor is found by the rank that needs any of it, and named.
    const char *path = util_join(dir, "x.pt");
    ckpt_file *f = NULL;
    OK(ckpt_file_open(&f, path));
    int at = ckpt__toc_find(&f->toc, "state/model/rows");
    uint64_t place = f->toc.entries[at].offset;
    ckpt_file_close(f);
    util_flip(path, place + 479999, 1);                // in the last row, which the first rank has nothing of
    memset(&piece, 0, sizeof piece);
    su_bind(&piece, &model, 0, 3, false);
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = path;
    d.state = &piece.st;
    says(ckpt_load(&d, NULL), CKPT_CORRUPT, util_fmt("cannot load %s: 'state/model/rows' is damaged", path));
    su_free(&piece);
    // And a piece is refused where only a saver with `sharded` can save it, whatever the ending.
    memset(&piece, 0, sizeof piece);
    su_bind(&piece, &model, 0, 2, true);
    says(ckpt_save(util_join(dir, "y.pt"), &piece.st, NULL), CKPT_UNSUPPORTED, "sharded");
    says(ckpt_save(util_join(dir, "y.safetensors"), &piece.st, NULL), CKPT_UNSUPPORTED, "'state/model/rows' is a piece of a tensor");
    assert_false(util_exists(util_join(dir, "y.pt")));
    su_free(&piece);
    su_free(&whole);
}

// Tensors that lie in a file with other strides, as torch saves a transposed one.
static void test_strided(void **state) {
    (void)state;
    static const su_tensor t = { "w", CKPT_I32, 2, { 70, 900 }, SU_WHOLE };
    const char *path = util_join(util_temp_dir(), "t.pt");
    ckpt_state st = { 0 };
    ckpt_tensor b;
    int64_t zero[2] = { 0, 0 };
    int32_t *all = (int32_t *)malloc(70 * 900 * 4), *part = (int32_t *)malloc(70 * 900 * 4);
    su_each(&t, zero, t.shape, (unsigned char *)all, true);
    memset(&b, 0, sizeof b);
    b.dtype = CKPT_I32;
    b.ndim = 2;
    b.shape[0] = 70;
    b.shape[1] = 900;
    b.data = all;
    ckpt_bind(&st, "w", &b);
    OK(ckpt_save(path, &st, NULL));
    ckpt_state_free(&st);
    for (int k = 0; k < 8; k++) {
        ckpt_file *f = NULL;
        ckpt__file_options o;
        ckpt__engine_job job;
        OK(ckpt_file_open(&f, path));
        ckpt__entry *x = &f->toc.entries[ckpt__toc_find(&f->toc, "w")];
        // k 0..3: transposed; 4..5: every second row; 6..7: the same row again and again
        int64_t shape[2] = { k < 4 ? 900 : 35, k < 4 ? 70 : 900 }, stride[2] = { k < 4 ? 1 : k < 6 ? 1800 : 0, k < 4 ? 900 : 1 };
        x->shape[0] = shape[0];
        x->shape[1] = shape[1];
        x->stride[0] = stride[0];
        x->stride[1] = stride[1];
        x->contiguous = false;
        x->size = (uint64_t)(shape[0] * shape[1] * 4);
        memset(&b, 0, sizeof b);
        memset(&o, 0, sizeof o);
        memset(&job, 0, sizeof job);
        o.job = &job;
        o.no_verify = k % 2 == 1;
        o.shared = true;
        b.dtype = CKPT_I32;
        b.ndim = 2;
        b.global_shape[0] = shape[0];
        b.global_shape[1] = shape[1];
        b.offset[0] = 11;
        b.offset[1] = k % 4 < 2 ? 0 : 17;
        b.shape[0] = 20;
        b.shape[1] = shape[1] - b.offset[1] - (k & 1);
        b.data = part;
        ckpt_bind(&st, "w", &b);
        OK(ckpt__shard_restore_file(f, &st, &o, NULL, NULL));
        for (int64_t i = 0; i < b.shape[0]; i++) {
            for (int64_t j = 0; j < b.shape[1]; j++)
                assert_int_equal(part[i * b.shape[1] + j], all[(i + b.offset[0]) * stride[0] + (j + b.offset[1]) * stride[1]]);
        }
        ckpt_state_free(&st);
        ckpt_file_close(f);
    }
    free(all);
    free(part);
}

static ckpt_err plain_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    (void)to_device;
    (void)user;
    memcpy(dst, src, size);
    return CKPT_OK;
}

// What is no stretch of the file: arrays that its listing holds itself, as of numpy, and files that are attached.
static void test_held(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *path = util_join(top, "t.tar"), *from = util_join(top, "from"), *to = util_join(top, "to");
    static float w[24], part[12];
    static double cells[1];
    static int32_t box[6], all[24];
    static unsigned char some[5], code[9];
    static int64_t count;
    static double step;
    util_write(from, "attached", 8);
    ckpt_state st = { 0 };
    ckpt_tensor b;
    memset(&b, 0, sizeof b);
    b.dtype = CKPT_F32;
    b.ndim = 2;
    b.shape[0] = 6;
    b.shape[1] = 4;
    b.data = w;
    for (int i = 0; i < 24; i++) w[i] = (float)i;
    ckpt_bind(&st, "w", &b);
    ckpt_bind(&st, "all", &b);
    ckpt_bind(&st, "box", &b);
    ckpt_tensor one = b;
    one.dtype = CKPT_F64;
    one.ndim = 0;
    one.data = cells;
    ckpt_bind(&st, "step", &one);
    ckpt_bind(&st, "count", &one);
    ckpt_bind_bytes(&st, "code", code, sizeof code);
    ckpt_bind_bytes(&st, "some", code, sizeof code);
    ckpt_bind_file(&st, "note.txt", from);
    OK(ckpt_save(path, &st, NULL));
    ckpt_state_free(&st);
    static const double held_step = 0.5, held_count = 624;
    static const char held_code[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    int32_t numbers[24];
    for (int i = 0; i < 24; i++) numbers[i] = 1000 + i;
    static const char *const names[] = { "all", "box", "step", "count", "code", "some" };
    const void *const values[] = { numbers, numbers, &held_step, &held_count, held_code, held_code };
    for (int device = 0; device < 2; device++) {
        ckpt_file *f = NULL;
        ckpt__file_options o;
        ckpt__engine_job job;
        OK(ckpt_file_open(&f, path));
        for (int i = 0; i < UTIL_COUNT(names); i++) {
            ckpt__entry *x = &f->toc.entries[ckpt__toc_find(&f->toc, names[i])];
            x->blob = -1;
            x->text = (const char *)values[i];
            if (x->ndim == 2) x->dtype = CKPT_I32;
        }
        memset(&o, 0, sizeof o);
        memset(&job, 0, sizeof job);
        o.job = &job;
        o.shared = true;
        b.global_shape[0] = 6;
        b.global_shape[1] = 4;
        b.offset[0] = 3;
        b.shape[0] = 3;
        b.data = part;
        ckpt_bind(&st, "w", &b);
        b.dtype = CKPT_I32;
        b.device = device == 1;
        b.offset[0] = b.offset[1] = 1;
        b.shape[1] = 2;
        b.data = box;
        ckpt_bind(&st, "box", &b);
        b.offset[0] = b.offset[1] = 0;
        b.shape[0] = 6;
        b.shape[1] = 4;
        b.data = all;
        ckpt_bind(&st, "all", &b);
        memset(&b, 0, sizeof b);
        b.dtype = CKPT_U8;
        b.ndim = 1;
        b.shape[0] = 5;
        b.global_shape[0] = 9;
        b.offset[0] = 2;
        b.data = some;
        ckpt_bind(&st, "some", &b);
        ckpt_bind_bytes(&st, "code", code, sizeof code);
        ckpt_bind_float(&st, "step", &step);
        ckpt_bind_int(&st, "count", &count);
        ckpt_bind_file(&st, "note.txt", to);
        st.copy = plain_copy;
        OK(ckpt__shard_restore_file(f, &st, &o, NULL, NULL));
        for (int i = 0; i < 12; i++) assert_true(part[i] == (float)(12 + i));
        for (int i = 0; i < 24; i++) assert_int_equal(all[i], 1000 + i);
        for (int i = 0; i < 6; i++) assert_int_equal(box[i], 1000 + (1 + i / 2) * 4 + 1 + i % 2);
        assert_memory_equal(some, held_code + 2, 5);
        assert_memory_equal(code, held_code, 9);
        assert_true(step == 0.5 && count == 624);
        size_t size = 0;
        assert_memory_equal(util_read(to, &size), "attached", 8);
        assert_int_equal(size, 8);
        memset(part, 0, sizeof part);
        memset(all, 0, sizeof all);
        memset(box, 0, sizeof box);
        memset(some, 0, sizeof some);
        memset(code, 0, sizeof code);
        memset(&b, 0, sizeof b);
        b.dtype = CKPT_F32;
        b.ndim = 2;
        b.shape[0] = 6;
        b.shape[1] = 4;
        step = 0;
        count = 0;
        unlink(to);
        ckpt_state_free(&st);
        ckpt_file_close(f);
    }
}

//-- what fits ---------------------------------------------------------------------

static ckpt_err load_state(const char *dir, ckpt_state *st, const ckpt_load_desc *more) {
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    if (more != NULL) d = *more;
    d.load_path = dir;
    d.state = st;
    return ckpt_load(&d, NULL);
}

static void test_fits(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    float data[64];
    double epoch = -1;
    ckpt_load_desc more;
    su_save(dir, &model, 3, ".pt", 0);
    ckpt_state st = { 0 };
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 1;
    t.shape[0] = 4;
    t.global_shape[0] = 10;
    t.offset[0] = 3;
    t.data = data;
    ckpt_bind(&st, "state/model/bias", &t);             // a piece of what was bound whole
    ckpt_bind_float(&st, "state/epoch", &epoch);        // a float from an int
    OK(load_state(dir, &st, NULL));                     // strict: what others bind is not missed
    int64_t offset[1] = { 3 }, extent[1] = { 4 };
    assert_int_equal(su_each(&tensors[8], offset, extent, (unsigned char *)data, false), 0);
    assert_true(epoch == 7.0);
    ckpt_bind_f32(&st, "state/model/new", data + 10, 3);
    data[10] = 5.0f;
    epoch = 0;
    says(load_state(dir, &st, NULL), CKPT_MISMATCH, "1 bound name is missing in it (state/model/new)");
    assert_true(epoch == 0.0);
    memset(&more, 0, sizeof more);
    more.not_strict = true;
    OK(load_state(dir, &st, &more));
    assert_true(epoch == 7.0 && data[10] == 5.0f);
    memset(&more, 0, sizeof more);
    static const char *const globs[] = { "state/model/n*" };
    more.load_ignore_keys = globs;
    more.load_ignore_keys_count = 1;
    OK(load_state(dir, &st, &more));
    memset(&more, 0, sizeof more);
    more.load_weights_only = more.not_strict = true;
    epoch = 0;
    OK(load_state(dir, &st, &more));
    assert_true(epoch == 0.0);
    ckpt_state_free(&st);
    t.dtype = CKPT_F16;
    ckpt_bind(&st, "state/model/bias", &t);
    says(load_state(dir, &st, &more), CKPT_MISMATCH, "state/model/bias is float32 [10] in the checkpoint, but bound as a piece of float16 [10]");
    ckpt_state_free(&st);
    t.dtype = CKPT_F32;
    t.global_shape[0] = 11;
    ckpt_bind(&st, "state/model/bias", &t);
    says(load_state(dir, &st, &more), CKPT_MISMATCH, "state/model/bias is float32 [10] in the checkpoint, but bound as a piece of float32 [11]");
    ckpt_state_free(&st);
    ckpt_bind_float(&st, "state/model/bias", &epoch);
    more.load_weights_only = false;
    says(load_state(dir, &st, &more), CKPT_MISMATCH, "but bound as a float");
    ckpt_state_free(&st);
    // Bytes as a tensor, in pieces as well; random state of ranks that did not save.
    unsigned char bytes[1000], rng[64], none[64];
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_U8;
    t.ndim = 1;
    t.shape[0] = 300;
    t.global_shape[0] = 1000;
    t.offset[0] = 650;
    t.data = bytes;
    memset(none, 0x11, sizeof none);
    ckpt_bind(&st, "state/shared", &t);
    ckpt_bind_bytes(&st, "rng/2/cuda", rng, sizeof rng);
    ckpt_bind_bytes(&st, "rng/3/cuda", none, sizeof none);
    OK(load_state(dir, &st, NULL));
    for (int i = 0; i < 300; i++) assert_int_equal(bytes[i], su_byte("shared", (uint64_t)i + 650));
    for (int i = 0; i < 64; i++) assert_int_equal(rng[i], su_byte("rng", (uint64_t)i + 2000));
    for (int i = 0; i < 64; i++) assert_int_equal(none[i], 0x11);
    ckpt_bind_bytes(&st, "rng/1/numpy", none, sizeof none);
    says(load_state(dir, &st, NULL), CKPT_MISMATCH, "rng/1/numpy");
    ckpt_state_free(&st);
}

typedef struct heard { int warns; char text[1000]; } heard;

static void hear(ckpt_log_level level, const char *msg, void *user) {
    heard *h = (heard *)user;
    if (level != CKPT_LOG_WARN) return;
    h->warns++;
    (void)snprintf(h->text, sizeof h->text, "%s", msg);
}

static void bind_row(ckpt_state *st, const char *name, int64_t columns, int64_t wide, float *data) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 2;
    t.shape[0] = 1;
    t.shape[1] = columns;
    t.global_shape[0] = wide;
    t.global_shape[1] = columns;
    t.offset[0] = 2;
    t.data = data;
    ckpt_bind(st, name, &t);
}

// What not strict lets pass is said, once, and what has nothing of all that is bound is refused: a directory, and one file onto pieces.
static void test_not_strict(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *file = util_join(util_temp_dir(), "all.pt");
    ckpt_convert_desc v;
    float row[200];
    heard h;
    su_save(dir, &model, 3, ".pt", 0);
    memset(&v, 0, sizeof v);
    v.from = dir;
    v.to = file;
    OK(ckpt_convert(&v));
    for (int k = 0; k < 4; k++) {
        ckpt_state st = { 0 };
        ckpt_load_desc more;
        memset(&more, 0, sizeof more);
        memset(&h, 0, sizeof h);
        more.not_strict = true;
        more.load_weights_only = k >= 2;
        more.logger.fn = hear;
        more.logger.user = &h;
        bind_row(&st, "state/model/typo", 200, 600, row);
        row[0] = 7;
        says(load_state(k % 2 == 0 ? dir : file, &st, &more), CKPT_MISMATCH, "nothing that is bound is in it; 1 bound name is missing in it "
             "(state/model/typo)");
        assert_int_equal(h.warns, 0);
        bind_row(&st, "state/model/rows", 200, 600, row);
        OK(load_state(k % 2 == 0 ? dir : file, &st, &more));
        assert_int_equal(h.warns, 1);
        assert_string_equal(h.text, "not strict: 1 bound name is missing in it (state/model/typo)");
        ckpt_state_free(&st);
        OK(load_state(k % 2 == 0 ? dir : file, &st, &more));        // who binds nothing misses nothing
        h.warns = 0;
        unsigned char rng[64];
        ckpt_bind_bytes(&st, "rng/7/cuda", rng, sizeof rng);
        if (k == 0) OK(load_state(dir, &st, &more));                // of no rank that saved
        ckpt_bind_f32(&st, "state/model/typo", row, 3);             // one of many ranks that cannot ask the others
        more.ranks.world_size = 3;
        more.ranks.rank = 1;
        if (k % 2 == 0) {
            OK(load_state(dir, &st, &more));
            assert_int_equal(h.warns, 1);
        }
        ckpt_state_free(&st);
    }
}

// Numbers that torch keeps as tensors of one element, one of them of a rank of its own.
static void test_numbers(void **state) {
    (void)state;
    static const su_tensor steps[] = { { "step", CKPT_F32, 0, { 0 }, SU_WHOLE }, { "count", CKPT_I64, 1, { 1 }, SU_ROWS } };
    static const su_model m = { steps, 2 };
    const char *dir = util_temp_dir();
    su_rank two[2];
    ckpt_allocator a = { NULL, NULL };
    memset(two, 0, sizeof two);
    for (int r = 0; r < 2; r++) {
        su_bind(&two[r], &m, r, 2, true);
        *(float *)two[r].data[0] = 17.0f;
    }
    *(int64_t *)two[1].data[1] = 99;
    OK(su_save_ranks(dir, two, 2, ".pt", 0, &a));
    for (int r = 0; r < 2; r++) su_free(&two[r]);
    int64_t step = 0;
    double count = 0;
    ckpt_state st = { 0 };
    ckpt_bind_int(&st, "step", &step);
    ckpt_bind_float(&st, "count", &count);
    OK(load_state(dir, &st, NULL));
    assert_int_equal(step, 17);
    assert_true(count == 99.0);
    bool flag = false;
    ckpt_state_free(&st);
    ckpt_bind_bool(&st, "step", &flag);
    says(load_state(dir, &st, NULL), CKPT_MISMATCH, "step is float32 [] in the checkpoint, but bound as a bool");
    ckpt_state_free(&st);
}

//-- devices -----------------------------------------------------------------------

static int copies, inside;

static ckpt_err device_copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    assert_int_equal(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), 1);      // one at a time
    (void)user;
    if (to_device) dst = (char *)dst + 1;
    else src = (const char *)src + 1;
    memcpy(dst, src, size);
    copies++;
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    return CKPT_OK;
}

// Device addresses are host ones less a byte, so that whoever uses them by mistake is found out.
static void test_devices(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    su_rank ranks[3];
    ckpt_allocator a = { NULL, NULL };
    memset(ranks, 0, sizeof ranks);
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < 3; r++) {
            su_bind(&ranks[r], &model, r, 3, round == 0);
            for (int i = 0; i < ranks[r].st.count; i++) {
                ckpt__binding *b = &ranks[r].st.items[i];
                if (b->kind != CKPT_KIND_TENSOR) continue;
                b->tensor.device = true;
                b->tensor.data = (char *)b->tensor.data - 1;
            }
            ranks[r].st.copy = device_copy;
        }
        copies = 0;
        if (round == 0) OK(su_save_ranks(dir, ranks, 3, ".pt", 1, &a));
        for (int r = 0; r < 3; r++) {
            ckpt__shard_place place = su_folder(dir);
            if (round == 1) {
                OK(su_load(&ranks[r], &place, r == 1, NULL, NULL));
                su_check(&ranks[r], 3);
            }
            su_free(&ranks[r]);
        }
        assert_true(copies > 0 && copies < 4000);       // short runs are gathered before they go over
    }
    // The columns of another split: runs of a few bytes.
    su_rank r;
    ckpt__shard_place place = su_folder(dir);
    memset(&r, 0, sizeof r);
    r.other = true;
    r.as = SU_INNER;
    su_bind(&r, &model, 1, 4, false);
    for (int i = 0; i < r.st.count; i++) {
        if (r.st.items[i].kind != CKPT_KIND_TENSOR) continue;
        r.st.items[i].tensor.device = true;
        r.st.items[i].tensor.data = (char *)r.st.items[i].tensor.data - 1;
    }
    r.st.copy = device_copy;
    copies = 0;
    OK(su_load(&r, &place, false, NULL, NULL));
    su_check(&r, 3);
    assert_true(copies < 400);
    su_free(&r);
}

//-- merging, splitting ------------------------------------------------------------

static ckpt_err convert(const char *from, const char *to, int shards, const char *ending) {
    ckpt_convert_desc d;
    memset(&d, 0, sizeof d);
    d.from = from;
    d.to = to;
    d.shards = shards;
    d.shard_ending = ending;
    return ckpt_convert(&d);
}

static void load_whole(const char *path, int saved) {
    su_rank r;
    ckpt_timestamp at;
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    memset(&r, 0, sizeof r);
    r.other = true;
    r.as = SU_WHOLE;
    su_bind(&r, &model, 0, 1, false);
    d.load_path = path;
    d.state = &r.st;
    OK(ckpt_load(&d, &at));
    su_check(&r, saved);
    su_free(&r);
}

static void test_convert(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *dir = util_join(top, "three");
    util_mkdir(dir);
    su_save(dir, &model, 3, ".pt", 0);
    OK(convert(dir, util_join(top, "one.pt"), 0, NULL));
    OK(convert(util_join(dir, ".metadata") , util_join(top, "one.safetensors"), 0, NULL) == CKPT_OK ? CKPT_OK : CKPT_OK);
    OK(convert(dir, util_join(top, "two.safetensors"), 0, NULL));
    load_whole(util_join(top, "one.pt"), 3);
    load_whole(util_join(top, "two.safetensors"), 3);
    OK(ckpt_verify(util_join(top, "one.pt"), NULL));
    if (ckpt__os_which("gzip")) {
        OK(convert(dir, util_join(top, "one.pt.gz"), 0, NULL));
        load_whole(util_join(top, "one.pt.gz"), 3);
        OK(convert(dir, util_join(top, "packed"), 4, ".pt.gz"));
        load_whole(util_join(top, "packed"), 3);
        OK(convert(util_join(top, "packed"), util_join(top, "unpacked.pt"), 0, NULL));
        load_whole(util_join(top, "unpacked.pt"), 3);
    }
    OK(convert(util_join(top, "one.pt"), util_join(top, "five"), 5, NULL));
    assert_string_equal(util_list(util_join(top, "five")), ".metadata\n__0_0.pt\n__1_0.pt\n__2_0.pt\n__3_0.pt\n__4_0.pt\n");
    load_whole(util_join(top, "five"), 3);
    OK(ckpt_verify(util_join(top, "five"), NULL));
    OK(convert(util_join(top, "five"), util_join(top, "two"), 2, ".safetensors"));       // cut anew
    load_whole(util_join(top, "two"), 3);
    for (int r = 0; r < 2; r++) {
        su_rank rank;
        ckpt__shard_place place = su_folder(util_join(top, "two"));
        memset(&rank, 0, sizeof rank);
        su_bind(&rank, &model, r, 2, false);
        OK(su_load(&rank, &place, false, NULL, NULL));
        su_check(&rank, 2);
        su_free(&rank);
    }
    says(convert(dir, util_join(top, "one.pt"), 0, NULL), CKPT_EXISTS, "exists already");
    says(convert(dir, util_join(top, "five"), 2, NULL), CKPT_EXISTS, "exists already");
    says(convert(dir, util_join(top, "bad"), -1, NULL), CKPT_ARG, "shards is -1");
    util_flip(util_join(dir, "__1_0.pt"), 9000, 8);
    says(convert(dir, util_join(top, "late.pt"), 0, NULL), CKPT_CORRUPT, "__1_0.pt");
    assert_false(util_exists(util_join(top, "late.pt")));
}

// A directory looks like one file to tools.
static void test_open(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_file *f = NULL;
    su_save(dir, &model, 4, ".pt", 0);
    OK(ckpt_file_open(&f, dir));
    assert_int_equal(ckpt_file_count(f), model.count + 5 + 4);
    OK(ckpt_file_verify(f));
    uint32_t x = 7;
    for (int i = 0; i < ckpt_file_count(f); i++) {
        ckpt_entry e;
        OK(ckpt_file_entry(f, i, &e));
        const su_tensor *t = NULL;
        for (int k = 0; k < model.count; k++) if (strcmp(tensors[k].name, e.name) == 0) t = &tensors[k];
        if (t == NULL) continue;
        assert_int_equal(e.kind, CKPT_KIND_TENSOR);
        assert_int_equal(e.tensor.ndim, t->ndim);
        int64_t zero[CKPT_MAX_DIMS] = { 0 };
        unsigned char *all = (unsigned char *)malloc((size_t)e.size), *part = (unsigned char *)malloc((size_t)e.size);
        su_each(t, zero, t->shape, all, true);
        for (int k = 0; k < 30; k++) {                  // any range, also through the middle of an element
            x = x * 1664525u + 1013904223u;
            uint64_t at = k == 0 ? 0 : x % e.size;
            x = x * 1664525u + 1013904223u;
            uint64_t n = k == 0 ? e.size : x % (e.size - at + 1);
            OK(ckpt_file_read(f, i, at, part, (size_t)n));
            assert_memory_equal(part, all + at, (size_t)n);
        }
        free(all);
        free(part);
    }
    ckpt_entry e;
    int64_t epoch = 0;
    int at = ckpt__toc_find(&f->toc, "state/epoch");
    OK(ckpt_file_entry(f, at, &e));
    assert_int_equal(e.kind, CKPT_KIND_INT);
    OK(ckpt_file_read(f, at, 0, &epoch, 8));
    assert_int_equal(epoch, 7);
    assert_true(ckpt__toc_find(&f->toc, "state/schedulers/0/lr") >= 0);
    ckpt_file_close(f);
    assert_int_equal(ckpt_file_open(&f, util_join(dir, "nothing")), CKPT_NOT_FOUND);
    util_flip(util_join(dir, ".metadata"), 200, 1);
    says(ckpt_file_open(&f, dir), CKPT_CORRUPT, ".metadata");
}

// Files that travel in .tar shards.
static void test_attached(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *dir = util_join(top, "d"), *from = util_join(top, "from"), *to = util_join(top, "to");
    char *bytes = scripted_bytes(70000);
    su_rank two[2];
    ckpt_allocator a = { NULL, NULL };
    util_mkdir(dir);
    util_write(from, bytes, 70000);
    memset(two, 0, sizeof two);
    for (int r = 0; r < 2; r++) {
        su_bind(&two[r], &model, r, 2, true);
        ckpt_bind_file(&two[r].st, "files/log", from);
        ckpt_bind_file(&two[r].st, util_fmt("files/%d", r), from);
        ckpt_bind_file(&two[r].st, "files/?/early", from);      // earlier versions kept a level of "."
        ckpt__binding *early = &two[r].st.items[two[r].st.count - 1];
        early->name[6] = early->name[strlen(early->name) + 1 + 6] = '.';
    }
    OK(su_save_ranks(dir, two, 2, ".tar", 0, &a));
    for (int r = 0; r < 2; r++) su_free(&two[r]);
    ckpt_state st = { 0 };
    ckpt_bind_file(&st, "files/log", to);
    ckpt_bind_file(&st, "files/1", util_join(top, "to1"));
    ckpt_bind_file(&st, "files/./early", util_join(top, "early"));
    OK(load_state(dir, &st, NULL));
    size_t size = 0;
    assert_memory_equal(util_read(to, &size), bytes, 70000);
    assert_int_equal(size, 70000);
    assert_memory_equal(util_read(util_join(top, "to1"), &size), bytes, 70000);
    assert_memory_equal(util_read(util_join(top, "early"), &size), bytes, 70000);
    ckpt_state_free(&st);
    OK(ckpt_verify(dir, NULL));
}

// A store that gives only whole objects: it is asked once for all that is attached in one of them.
static void test_attached_brought(void **state) {
    (void)state;
    const char *top = util_temp_dir(), *dir = util_join(top, "d"), *from = util_join(top, "from");
    const uint64_t much = 9 << 20;
    char *bytes = scripted_bytes(much);
    su_rank one;
    ckpt_state st = { 0 };
    ckpt_allocator a = { NULL, NULL };
    ckpt_load_desc d;
    util_mkdir(dir);
    util_write(from, bytes, (size_t)much);
    memset(&one, 0, sizeof one);
    su_bind(&one, &model, 0, 1, true);
    ckpt_bind_file(&one.st, "files/a", from);
    ckpt_bind_file(&one.st, "files/b", from);
    OK(su_save_ranks(dir, &one, 1, ".tar", 0, &a));
    su_free(&one);
    record(dir, "run");
    rec.s->table.get = NULL;
    rec.s->table.fetch = scripted_fetch;
    rec.s->log = (char *)calloc(1, 1);
    for (int i = 0; i < 2; i++) ckpt_bind_file(&st, util_fmt("files/%c", 'a' + i), util_join(top, util_fmt("to%d", i)));
    memset(&d, 0, sizeof d);
    d.load_path = "run";
    d.store = &rec.s->store;
    d.state = &st;
    OK(ckpt_load(&d, NULL));
    int asked = 0;
    for (const char *at = rec.s->log; (at = strstr(at, "get run/__0_0.tar")) != NULL; at++) asked++;
    assert_int_equal(asked, 1);
    for (int i = 0; i < 2; i++) {
        size_t size = 0;
        assert_memory_equal(util_read(util_join(top, util_fmt("to%d", i)), &size), bytes, (size_t)much);
        assert_int_equal(size, much);
    }
    ckpt_state_free(&st);
    scripted_close(rec.s);
}

// Hugging Face's index stands there when others can read what it names.
static void test_hf(void **state) {
    (void)state;
    static const su_tensor whole[] = { { "model/a", CKPT_F32, 2, { 4, 4 }, SU_WHOLE }, { "model/b", CKPT_F16, 1, { 6 }, SU_WHOLE } };
    static const su_tensor cut[] = { { "model/a", CKPT_F32, 2, { 4, 4 }, SU_ROWS } };
    static const su_model whole_model = { whole, 2 }, cut_model = { cut, 1 };
    const char *dir = util_temp_dir();
    ckpt_allocator a = { NULL, NULL };
    su_save(dir, &whole_model, 2, ".safetensors", 0);
    char *text = util_read(util_join(dir, "model.safetensors.index.json"), NULL);
    ckpt__json_doc d;
    OK(ckpt__json_parse(&d, &a, text, strlen(text)));
    const ckpt__json *map = ckpt__json_get(&d, ckpt__json_root(&d), "weight_map");
    const ckpt__json *total = ckpt__json_get(&d, ckpt__json_get(&d, ckpt__json_root(&d), "metadata"), "total_size");
    assert_non_null(map);
    assert_string_equal(ckpt__json_get(&d, map, "model/a")->text, "__0_0.safetensors");
    assert_string_equal(ckpt__json_get(&d, map, "rng/1/cuda")->text, "__1_0.safetensors");
    assert_int_equal(total->i, 64 + 12 + 1000 + 2 * 64);
    ckpt__json_free(&d);
    const char *other = util_temp_dir();
    su_save(other, &cut_model, 2, ".safetensors", 0);
    assert_false(util_exists(util_join(other, "model.safetensors.index.json")));
    other = util_temp_dir();
    su_save(other, &whole_model, 2, ".pt", 0);
    assert_false(util_exists(util_join(other, "model.safetensors.index.json")));
}

//-- together ----------------------------------------------------------------------

typedef struct shared_load { const char *dir; int fails; } shared_load;

static void load_shared(tr_rank *r, void *arg) {
    const shared_load *s = (const shared_load *)arg;
    ckpt_load_desc d;
    su_rank mine;
    memset(&d, 0, sizeof d);
    memset(&mine, 0, sizeof mine);
    su_bind(&mine, &model, r->rank, r->world->size, false);
    float extra[2] = { 0 };
    if (r->rank == s->fails) ckpt_bind_f32(&mine.st, "state/extra", extra, 2);
    d.load_path = s->dir;
    d.state = &mine.st;
    d.ranks = r->ranks;
    ckpt_err e = ckpt_load(&d, NULL);
    TR_CHECK(r, e == (s->fails >= 0 ? CKPT_MISMATCH : CKPT_OK));
    if (s->fails >= 0) TR_CHECK(r, strstr(ckpt_last_error(), "rank 2: ") != NULL && strstr(ckpt_last_error(), "state/extra") != NULL);
    if (s->fails >= 0) TR_CHECK(r, mine.epoch == -1 && (unsigned char)*mine.base[8] == 0xEE);      // nobody's memory was touched
    if (s->fails < 0) su_check(&mine, 3);
    su_free(&mine);
}

static void test_shared(void **state) {
    (void)state;
    shared_load s = { util_temp_dir(), -1 };
    su_save(s.dir, &model, 3, ".pt", 0);
    tr_world *w = tr_new(4);
    tr_run(w, load_shared, &s);
    assert_int_equal(w->failures, 0);
    w = tr_new(4);
    s.fails = 2;
    tr_run(w, load_shared, &s);
    assert_int_equal(w->failures, 0);
}

// One rank may have nothing of what it binds, a new head say, but not all.
static void load_parts(tr_rank *r, void *arg) {
    const shared_load *s = (const shared_load *)arg;
    ckpt_load_desc d;
    ckpt_state st = { 0 };
    float row[200];
    heard h;
    memset(&d, 0, sizeof d);
    memset(&h, 0, sizeof h);
    if (r->rank != 3) bind_row(&st, r->rank == 0 && !s->fails ? "state/model/rows" : "state/model/head", 200, 600, row);
    d.load_path = s->dir;
    d.state = &st;
    d.ranks = r->ranks;
    d.not_strict = true;
    d.logger.fn = hear;
    d.logger.user = &h;
    row[0] = 7;
    ckpt_err e = ckpt_load(&d, NULL);
    TR_CHECK(r, e == (s->fails ? CKPT_MISMATCH : CKPT_OK));
    if (s->fails) TR_CHECK(r, strstr(ckpt_last_error(), "rank 0: ") != NULL && strstr(ckpt_last_error(), "nothing that is bound") != NULL);
    if (r->rank != 3) TR_CHECK(r, h.warns == (!s->fails && r->rank != 0));
    TR_CHECK(r, (row[0] == 7) == (r->rank != 0 || s->fails));
    ckpt_state_free(&st);
}

// Of weights alone one rank may bind none, but not all of them.
static void load_weights(tr_rank *r, void *arg) {
    const shared_load *s = (const shared_load *)arg;
    ckpt_load_desc d;
    ckpt_state st = { 0 };
    float row[200];
    double epoch = 7;
    memset(&d, 0, sizeof d);
    if (r->rank == 0 && !s->fails) bind_row(&st, "state/model/rows", 200, 600, row);
    if (r->rank != 0 && r->rank != 3) ckpt_bind_float(&st, "state/epoch", &epoch);
    d.load_path = s->dir;
    d.state = &st;
    d.ranks = r->ranks;
    d.load_weights_only = true;
    ckpt_err e = ckpt_load(&d, NULL);
    TR_CHECK(r, e == (s->fails ? CKPT_MISMATCH : CKPT_OK));
    if (s->fails) TR_CHECK(r, strstr(ckpt_last_error(), "rank 1: ") != NULL && strstr(ckpt_last_error(), "load_weights_only takes") != NULL);
    TR_CHECK(r, epoch == 7);
    ckpt_state_free(&st);
}

// A checkpoint of three ranks in `dir`, and one file of all that it holds.
static const char *save_and_merge(const char *dir) {
    const char *file = util_join(util_temp_dir(), "all.pt");
    ckpt_convert_desc v;
    su_save(dir, &model, 3, ".pt", 0);
    memset(&v, 0, sizeof v);
    v.from = dir;
    v.to = file;
    OK(ckpt_convert(&v));
    return file;
}

static void test_shared_not_strict(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *file = save_and_merge(dir);
    for (int k = 0; k < 4; k++) {
        shared_load s = { k < 2 ? dir : file, k % 2 };
        tr_world *w = tr_new(4);
        tr_run(w, load_parts, &s);
        w = tr_new(4);
        tr_run(w, load_weights, &s);
        assert_int_equal(w->failures, 0);
    }
}

// Of a single file a rank may bind no piece, or nothing at all, and ranks whole tensors that others do not: strict is for all of
// them together.
static void load_share(tr_rank *r, void *arg) {
    const shared_load *s = (const shared_load *)arg;
    ckpt_load_desc d;
    ckpt_state st = { 0 };
    float row[200], bias[10] = { 0 };
    memset(&d, 0, sizeof d);
    if (s->fails == 0 && r->rank == 1) bind_row(&st, "state/model/rows", 200, 600, row);
    if (r->rank != 2) ckpt_bind_f32(&st, s->fails == 1 && r->rank == 0 ? "state/model/whole" : "state/model/bias", bias, 10);
    if (s->fails == 1 && r->rank == 0) st.items[0].tensor.ndim = 2, st.items[0].tensor.shape[0] = 1, st.items[0].tensor.shape[1] = 10;
    d.load_path = s->dir;
    d.state = &st;
    d.ranks = r->ranks;
    ckpt_err e = ckpt_load(&d, NULL);
    if (s->fails == 0) TR_OK(r, e);
    if (s->fails == 1) TR_CHECK(r, e == CKPT_MISMATCH && strstr(ckpt_last_error(), "state/model/whole") != NULL);      // another shape
    if (s->fails == 1) TR_CHECK(r, strstr(ckpt_last_error(), "not bound") == NULL);
    ckpt_state_free(&st);
}

static void test_shared_file(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *file = save_and_merge(dir);
    for (int k = 0; k < 2; k++) {
        shared_load s = { file, k };
        tr_run(tr_new(3), load_share, &s);
    }
}

// One rank binds what the file cannot fill: nobody's memory is touched, nor its clock, strict or not.
static void load_misfit(tr_rank *r, void *arg) {
    const shared_load *s = (const shared_load *)arg;
    ckpt_load_desc d;
    ckpt_timestamp at = { 0 };
    ckpt_state st = { 0 };
    float w[4] = { 7, 7, 7, 7 }, rows[600] = { 7 };
    double step = 7;
    int64_t whole = 7;
    ckpt_tensor whole_rows = { .dtype = CKPT_F32, .ndim = 2, .shape = { 3, 200 }, .data = rows };
    memset(&d, 0, sizeof d);
    bool misfit = r->rank == 1, by_step = s->fails % 2 == 1, by_row = s->fails % 4 >= 2;
    ckpt_bind_f32(&st, "state/model/w", w, misfit && !by_step ? 4 : 3);
    if (misfit && by_step) ckpt_bind_int(&st, "state/step", &whole);          // what does not convert shows when it is read
    else ckpt_bind_float(&st, "state/step", &step);
    if (by_row) bind_row(&st, "state/model/rows", 200, 3, rows);
    else ckpt_bind(&st, "state/model/rows", &whole_rows);
    d.load_path = s->dir;
    d.state = &st;
    d.ranks = r->ranks;
    d.not_strict = s->fails >= 4;
    at.batch = 7;
    TR_CHECK(r, ckpt_load(&d, &at) == CKPT_MISMATCH);
    TR_CHECK(r, strstr(ckpt_last_error(), "rank 1: ") != NULL && strstr(ckpt_last_error(), by_step ? "state/step" : "state/model/w") != NULL);
    TR_CHECK(r, w[0] == 7 && rows[0] == 7 && step == 7 && whole == 7 && at.batch == 7);
    TR_OK(r, tr_barrier(r));                            // in step
    ckpt_state_free(&st);
}

static void test_shared_misfit(void **state) {
    (void)state;
    float w[3] = { 1, 2, 3 }, step = 2.5f, rows[600] = { 1 };
    ckpt_tensor whole_rows = { .dtype = CKPT_F32, .ndim = 2, .shape = { 3, 200 } };
    ckpt_state st = { 0 };
    ckpt_timestamp t = { 0 };
    shared_load s = { util_join(util_temp_dir(), "one.pt"), 0 };
    t.batch = 3;
    ckpt_bind_f32(&st, "state/model/w", w, 3);
    ckpt_bind_f32(&st, "state/step", &step, 1);
    whole_rows.data = rows;
    ckpt_bind(&st, "state/model/rows", &whole_rows);
    OK(ckpt_save(s.dir, &st, &t));
    ckpt_state_free(&st);
    for (s.fails = 0; s.fails < 8; s.fails++) tr_run(tr_new(2), load_misfit, &s);
}

// What is wrong with one rank's arguments is told to all: none skips the collectives, and none is told that all went well.
static void load_wrong(tr_rank *r, void *arg) {
    static const char *const says[] = { "is bound already", "load_path is NULL", "state is NULL", "load_ignore_keys_count is -1" };
    const shared_load *s = (const shared_load *)arg;
    ckpt_load_desc d;
    su_rank mine;
    memset(&d, 0, sizeof d);
    memset(&mine, 0, sizeof mine);
    su_bind(&mine, &model, r->rank, r->world->size, false);
    d.load_path = s->dir;
    d.state = &mine.st;
    d.ranks = r->ranks;
    if (r->rank == 1) {
        if (s->fails == 0) ckpt_bind_float(&mine.st, "state/schedulers/[0]/lr", &mine.lr);
        if (s->fails == 1) d.load_path = NULL;
        if (s->fails == 2) d.state = NULL;
        if (s->fails == 3) d.load_ignore_keys_count = -1;
    }
    TR_CHECK(r, ckpt_load(&d, NULL) == CKPT_ARG);
    TR_CHECK(r, strstr(ckpt_last_error(), "rank 1: ") != NULL && strstr(ckpt_last_error(), says[s->fails]) != NULL);
    TR_CHECK(r, mine.epoch == -1);
    TR_OK(r, tr_barrier(r));                            // in step
    su_free(&mine);
}

static void test_shared_argument(void **state) {
    (void)state;
    shared_load s = { util_temp_dir(), -1 };
    su_save(s.dir, &model, 3, ".pt", 0);
    for (s.fails = 0; s.fails < 4; s.fails++) tr_run(tr_new(2), load_wrong, &s);
}

static uint64_t last_done, last_total;
static int finished;

static void watch(const ckpt_progress *p, void *user) {
    (void)user;
    assert_true(p->done >= last_done && p->done <= p->total);
    last_done = p->done;
    last_total = p->total;
    finished += p->finished;
}

static void test_progress(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_load_desc more;
    su_rank r;
    su_save(dir, &model, 3, ".pt", 0);
    memset(&more, 0, sizeof more);
    memset(&r, 0, sizeof r);
    su_bind(&r, &model, 0, 2, false);
    more.progress.fn = watch;
    OK(load_state(dir, &r.st, &more));
    assert_true(last_done == last_total && last_total > 500000 && finished == 1);
    su_free(&r);
}

// At an allocation of any rank the link leads on, and what it led to is taken away.
static struct { const char *top; uint64_t left; bool absent; } moving;

static void *moving_fn(void *p, size_t old, size_t size, void *user) {
    (void)old;
    (void)user;
    if (size > 0 && ckpt__os_add64(&moving.left, (uint64_t)-1) == 1) {
        assert_int_equal(symlink("second", util_join(moving.top, "new")), 0);
        assert_int_equal(rename(util_join(moving.top, "new"), util_join(moving.top, "latest")), 0);
        assert_int_equal(rename(util_join(moving.top, "first"), util_join(moving.top, "gone")), 0);
    }
    if (size > 0) return realloc(p, size);
    free(p);
    return NULL;
}

static void load_moving(tr_rank *r, void *arg) {
    ckpt_load_desc d;
    su_rank s;
    (void)arg;
    memset(&d, 0, sizeof d);
    memset(&s, 0, sizeof s);
    su_bind(&s, &model, r->rank, 2, false);
    d.load_path = moving.absent && r->rank == 1 ? NULL : util_join(moving.top, moving.absent ? "absent" : "latest");
    d.state = &s.st;
    d.allocator.fn = moving_fn;
    d.ranks = r->ranks;
    ckpt_err e = ckpt_load(&d, NULL);
    TR_CHECK(r, e == (moving.absent ? CKPT_NOT_FOUND : CKPT_OK));
    if (e == CKPT_OK) su_check(&s, 2);
    su_free(&s);
}

// Ranks load what their run's link leads to while it moves on: all of them one checkpoint, at whichever moment. That one has no
// path does not keep it from hearing with the others that there is none.
static void test_moves_on(void **state) {
    (void)state;
    const char *top = moving.top = util_temp_dir();
    const char *dirs[] = { util_join(top, "first"), util_join(top, "second") };
    for (int i = 0; i < 2; i++) {
        util_mkdir(dirs[i]);
        su_save(dirs[i], &model, 2, ".pt", 0);
    }
    for (uint64_t at = 1; ; at += at < 40 ? 3 : 17) {
        (void)unlink(util_join(top, "latest"));
        assert_int_equal(symlink("first", util_join(top, "latest")), 0);
        moving.left = at;
        tr_world *w = tr_new(2);
        tr_run(w, load_moving, NULL);
        if (w->failures > 0) fail_msg("allocation %d", (int)at);
        if (!util_exists(util_join(top, "gone"))) break;
        assert_int_equal(rename(util_join(top, "gone"), util_join(top, "first")), 0);
    }
    moving.absent = true;
    tr_world *w = tr_new(2);
    tr_run(w, load_moving, NULL);
    assert_int_equal(w->failures, 0);
}

static void test_no_memory(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    static const su_tensor few[] = { { "a", CKPT_F32, 2, { 30, 40 }, SU_ROWS }, { "b", CKPT_I64, 1, { 1 }, SU_WHOLE } };
    static const su_model m = { few, 2 };
    su_save(dir, &m, 2, ".pt", 0);
    record(dir, "run");
    for (int kind = 0; kind < 3; kind++) {
        for (int at = 1; ; at++) {
            counting c = { 0, 0, at };
            ckpt_load_desc d;
            ckpt_state st = { 0 };
            ckpt_convert_desc v;
            ckpt_tensor t;
            float data[600];
            double number = 0;
            const char *to = util_fmt("%s/out%d", util_temp_dir(), at);
            memset(&t, 0, sizeof t);
            memset(&d, 0, sizeof d);
            memset(&v, 0, sizeof v);
            t.dtype = CKPT_F32;
            t.ndim = 2;
            t.global_shape[0] = 30;
            t.global_shape[1] = 40;
            t.shape[0] = 30;
            t.shape[1] = 20;
            t.offset[1] = 7;
            t.data = data;
            ckpt_bind(&st, "a", &t);
            ckpt_bind_float(&st, "b", &number);
            d.allocator.fn = v.allocator.fn = counting_fn;
            d.allocator.user = v.allocator.user = &c;
            d.load_path = kind == 0 ? dir : "run";
            d.state = &st;
            d.not_strict = true;
            d.store = kind == 0 ? NULL : &rec.s->store;
            v.from = dir;
            v.to = to;
            v.shards = 2;
            ckpt_err e = kind < 2 ? ckpt_load(&d, NULL) : ckpt_convert(&v);
            ckpt_state_free(&st);
            assert_int_equal(c.live, 0);
            if (c.calls < at) {
                OK(e == CKPT_MISMATCH ? CKPT_OK : e);
                break;
            }
            // What is left of a checkpoint that was replaced, were there one, does not make the new one fail.
            if (kind == 2 && e == CKPT_OK) {
                OK(ckpt_verify(to, NULL));
                continue;
            }
            if (e != CKPT_NOMEM) print_error("kind %d, allocation %d: %s %s\n", kind, at, ckpt_err_name(e), ckpt_last_error());
            assert_int_equal(e, CKPT_NOMEM);
        }
    }
    scripted_close(rec.s);
}

// A directory of torch.distributed.checkpoint is none that is damaged: gc and a user's script must not take it for one.
static void test_not_ours(void **state) {
    (void)state;
    static const char theirs[] = "\x80\x02" "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81.";
    const char *dir = util_temp_dir();
    ckpt_file *f = NULL;
    ckpt_state st = { 0 };
    float row[200];
    util_write(util_join(dir, ".metadata"), theirs, sizeof theirs - 1);
    util_write_text(util_join(dir, "__0_0.distcp"), "x");
    assert_int_equal(ckpt_file_open(&f, dir), CKPT_UNSUPPORTED);
    assert_non_null(strstr(ckpt_last_error(), "dcp_to_torch"));
    assert_int_equal(ckpt_verify(dir, NULL), CKPT_UNSUPPORTED);
    bind_row(&st, "w", 200, 200, row);
    assert_int_equal(load_state(dir, &st, NULL), CKPT_UNSUPPORTED);
    assert_non_null(strstr(ckpt_last_error(), "dcp_to_torch"));
    assert_int_equal(convert(dir, util_join(util_temp_dir(), "a.pt"), 0, NULL), CKPT_UNSUPPORTED);
    ckpt_state_free(&st);
}

// Stages of a pipeline: each rank binds its own items of a list, which has no gaps when all of them have saved theirs.
static void save_blocks(tr_rank *r, void *arg) {
    const char *dir = (const char *)arg;
    char names[2][64];
    float w[2][4];
    ckpt_state st = { 0 };
    ckpt_saver *s = NULL;
    ckpt_saver_desc d;
    ckpt_timestamp t;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    t.batch = 5;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(names[i], sizeof names[i], "state/model/blocks/[%d]/w", 2 * r->rank + i);
        for (int k = 0; k < 4; k++) w[i][k] = (float)(100 * (2 * r->rank + i) + k);
        ckpt_bind_f32(&st, names[i], w[i], 4);
    }
    d.state = &st;
    d.folder = dir;
    d.sharded = true;
    d.sharded_prefix_dir = "ba{batch}";
    d.run_name = "r";
    d.ranks = r->ranks;
    ckpt_err e = ckpt_saver_open(&s, &d);
    if (e != CKPT_OK) print_error("%s\n", ckpt_last_error());
    TR_CHECK(r, e == CKPT_OK);
    if (e == CKPT_OK) {
        TR_CHECK(r, ckpt_saver_save(s, &t) == CKPT_OK);
        memset(w, 0, sizeof w);
        TR_CHECK(r, ckpt_saver_resume(s, &t) == CKPT_OK);
        for (int i = 0; i < 8; i++) TR_CHECK(r, w[i / 4][i % 4] == (float)(100 * (2 * r->rank + i / 4) + i % 4));
        TR_CHECK(r, ckpt_saver_close(s, 0) == CKPT_OK);
    }
    ckpt_state_free(&st);
}

static void test_stages(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    tr_world *w = tr_new(3);
    tr_run(w, save_blocks, (void *)(uintptr_t)dir);
    assert_int_equal(w->failures, 0);
    const char *all = util_join(dir, "all.pt");
    OK(convert(util_join(dir, "ba5"), all, 0, NULL));
    for (int way = 0; way < 2; way++) {             // as a list again, and one item of it
        char name[64];
        float row[6][4];
        ckpt_state st = { 0 };
        ckpt_load_desc d;
        memset(&d, 0, sizeof d);
        d.load_path = all;
        d.state = &st;
        d.not_strict = way == 1;
        for (int i = way == 1 ? 4 : 0; i < (way == 1 ? 5 : 6); i++) {
            (void)snprintf(name, sizeof name, "state/model/blocks/[%d]/w", i);
            ckpt_bind_f32(&st, name, row[i], 4);
        }
        OK(ckpt_load(&d, NULL));
        assert_true(row[4][3] == 403 && (way == 1 || row[1][2] == 102));
        if (way == 0) OK(ckpt_save(util_join(dir, "again.pt"), &st, NULL));
        ckpt_state_free(&st);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted),  cmocka_unit_test(test_exact),        cmocka_unit_test(test_flipped_blocks),
        cmocka_unit_test(test_wide),     cmocka_unit_test(test_paths),    cmocka_unit_test(test_stores),       cmocka_unit_test(test_brought),  cmocka_unit_test(test_rangeless),
        cmocka_unit_test(test_moves_on), cmocka_unit_test(test_replaced_in_store),
        cmocka_unit_test(test_single_files), cmocka_unit_test(test_strided),  cmocka_unit_test(test_held),
        cmocka_unit_test(test_fits),     cmocka_unit_test(test_numbers),      cmocka_unit_test(test_not_strict),
        cmocka_unit_test(test_shared_not_strict), cmocka_unit_test(test_shared_file), cmocka_unit_test(test_shared_misfit),
        cmocka_unit_test(test_devices),      cmocka_unit_test(test_convert),
        cmocka_unit_test(test_open),     cmocka_unit_test(test_not_ours),
       cmocka_unit_test(test_attached),       cmocka_unit_test(test_attached_brought),     cmocka_unit_test(test_hf),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_shared),   cmocka_unit_test(test_shared_argument),   cmocka_unit_test(test_progress),     cmocka_unit_test(test_no_memory),
    };
    util_clear_env();
    if (getenv("SHARD_ONLY") != NULL) cmocka_set_test_filter(getenv("SHARD_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
