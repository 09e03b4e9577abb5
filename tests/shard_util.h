/* shard_util.h: models cut up among ranks, saved one rank after the other, loaded on any number of ranks, every byte compared.

   After ckpt.h and util.h. A model is a table of tensors; what is in them follows from the name and the place in the whole, so
   any rank's share can be made and checked alone.
*/
#ifndef SHARD_UTIL_H
#define SHARD_UTIL_H

typedef enum su_split { SU_WHOLE, SU_ROWS, SU_COLUMNS, SU_GRID, SU_UNEVEN, SU_TWINS, SU_INNER } su_split;

typedef struct su_tensor {
    const char *name;
    ckpt_dtype  dtype;
    int         ndim;
    int64_t     shape[CKPT_MAX_DIMS];
    su_split    split;
} su_tensor;

typedef struct su_model { const su_tensor *list; int count; } su_model;

typedef struct su_rank {
    ckpt_state st;
    void      *data[400];
    char      *base[400];       // what data[i] points into
    int        count, rank, world;
    int64_t    epoch;
    double     lr;
    bool       flag;
    char       text[40];
    char       shared[1000], rng[64];
    const su_model *model;
    su_split   as;              // how it is cut here, when not as the model says
    bool       other;
} su_rank;

static unsigned char su_mix(uint64_t seed, uint64_t at) {
    uint64_t h = at * 0x9E3779B97F4A7C15u + seed;
    h ^= h >> 31;
    h *= 0xBF58476D1CE4E5B9u;
    return (unsigned char)(h >> 40);
}

UTIL_FN unsigned char su_byte(const char *name, uint64_t at) {
    return su_mix(ckpt__toc_hash(NULL, name), at);
}

UTIL_FN void su_share(int64_t whole, int part, int parts, int64_t *offset, int64_t *extent) {
    *offset = whole * part / parts;
    *extent = whole * (part + 1) / parts - *offset;
}

// The box of one rank.
UTIL_FN void su_box(const su_tensor *t, su_split split, int rank, int world, int64_t *offset, int64_t *extent) {
    for (int d = 0; d < t->ndim; d++) { offset[d] = 0; extent[d] = t->shape[d]; }
    if (t->ndim == 0) return;
    int rows = 1;
    switch (split) {
        case SU_WHOLE: return;
        case SU_ROWS: su_share(t->shape[0], rank, world, &offset[0], &extent[0]); return;
        case SU_COLUMNS: su_share(t->shape[t->ndim > 1], rank, world, &offset[t->ndim > 1], &extent[t->ndim > 1]); return;
        case SU_INNER: su_share(t->shape[t->ndim - 1], rank, world, &offset[t->ndim - 1], &extent[t->ndim - 1]); return;
        case SU_GRID:
            for (int i = 1; i * i <= world; i++) if (world % i == 0) rows = i;
            su_share(t->shape[0], rank / (world / rows), rows, &offset[0], &extent[0]);
            if (t->ndim > 1) su_share(t->shape[1], rank % (world / rows), world / rows, &offset[1], &extent[1]);
            else if (world / rows > 1) su_share(t->shape[0], rank, world, &offset[0], &extent[0]);
            return;
        case SU_UNEVEN:
            if (world == 1) return;
            if (rank == 0) { extent[0] = t->shape[0] / 2; return; }
            su_share(t->shape[0] - t->shape[0] / 2, rank - 1, world - 1, &offset[0], &extent[0]);
            offset[0] += t->shape[0] / 2;
            return;
        default:
            if (world % 2 != 0) world *= 2; else rank %= world / 2;
            su_share(t->shape[0], rank, world / 2, &offset[0], &extent[0]);
            return;
    }
}

// Goes through the box's bytes: fills them, or counts those that are wrong.
UTIL_FN uint64_t su_each(const su_tensor *t, const int64_t *offset, const int64_t *extent, unsigned char *data, bool fill) {
    uint64_t unit = ckpt__state_dtype_size(t->dtype), rows = 1, wrong = 0, row = unit, seed = ckpt__toc_hash(NULL, t->name);
    int last = t->ndim - 1;
    if (last >= 0) row *= (uint64_t)extent[last];
    for (int d = 0; d < last; d++) rows *= (uint64_t)extent[d];
    for (uint64_t i = 0; i < rows && row > 0; i++) {
        uint64_t left = i, at = last >= 0 ? (uint64_t)offset[last] : 0, step = last >= 0 ? (uint64_t)t->shape[last] : 1;
        for (int d = last - 1; d >= 0; d--) {
            at += ((uint64_t)offset[d] + left % (uint64_t)extent[d]) * step;
            left /= (uint64_t)extent[d];
            step *= (uint64_t)t->shape[d];
        }
        for (uint64_t b = 0; b < row; b++) {
            unsigned char value = su_mix(seed, at * unit + b);
            if (t->dtype == CKPT_BOOL) value &= 1;
            if (fill) data[i * row + b] = value;
            else wrong += data[i * row + b] != value;
        }
    }
    return wrong;
}

// Binds one rank's share, with what is in the model, or with rubbish that a load must replace.
UTIL_FN void su_bind(su_rank *r, const su_model *m, int rank, int world, bool fill) {
    r->model = m;
    r->rank = rank;
    r->world = world;
    for (int i = 0; i < m->count; i++) {
        const su_tensor *t = &m->list[i];
        su_split split = r->other ? r->as : t->split;
        int64_t offset[CKPT_MAX_DIMS] = { 0 }, extent[CKPT_MAX_DIMS] = { 0 };
        ckpt_tensor b;
        memset(&b, 0, sizeof b);
        su_box(t, split, rank, world, offset, extent);
        b.dtype = t->dtype;
        b.ndim = t->ndim;
        uint64_t size = ckpt__state_dtype_size(t->dtype);
        for (int d = 0; d < t->ndim; d++) {
            b.shape[d] = extent[d];
            if (split != SU_WHOLE) b.global_shape[d] = t->shape[d];
            if (split != SU_WHOLE) b.offset[d] = offset[d];
            size *= (uint64_t)extent[d];
        }
        r->base[i] = (char *)malloc((size_t)size + 64);
        r->data[i] = r->base[i];
        memset(r->base[i], 0xEE, (size_t)size + 64);
        if (fill) su_each(t, offset, extent, (unsigned char *)r->data[i], true);
        b.data = r->data[i];
        ckpt_bind(&r->st, t->name, &b);
    }
    r->count = m->count;
    r->epoch = fill ? 7 : -1;
    r->lr = fill ? 0.1 : -1;
    r->flag = fill;
    snprintf(r->text, sizeof r->text, "%s", fill ? "gr\xC3\xBC\xC3\x9F \"dich\"" : "?");
    for (size_t i = 0; i < sizeof r->shared; i++) r->shared[i] = (char)(fill ? su_byte("shared", i) : 0xEE);
    for (size_t i = 0; i < sizeof r->rng; i++) r->rng[i] = (char)(fill ? su_byte("rng", i + 1000 * (uint64_t)rank) : 0xEE);
    ckpt_bind_int(&r->st, "state/epoch", &r->epoch);
    ckpt_bind_float(&r->st, "state/schedulers/[0]/lr", &r->lr);
    ckpt_bind_bool(&r->st, "state/flag", &r->flag);
    ckpt_bind_text(&r->st, "state/text", r->text, sizeof r->text);
    ckpt_bind_bytes(&r->st, "state/shared", r->shared, sizeof r->shared);
    char own[32];
    snprintf(own, sizeof own, "rng/%d/cuda", rank);
    ckpt_bind_bytes(&r->st, own, r->rng, sizeof r->rng);
    assert_int_equal(ckpt__state_check(&r->st), CKPT_OK);
}

// Is everything there? saved: ranks that saved, whose random state there is.
UTIL_FN void su_check(su_rank *r, int saved) {
    for (int i = 0; i < r->model->count; i++) {
        const su_tensor *t = &r->model->list[i];
        int64_t offset[CKPT_MAX_DIMS] = { 0 }, extent[CKPT_MAX_DIMS] = { 0 };
        su_box(t, r->other ? r->as : t->split, r->rank, r->world, offset, extent);
        uint64_t wrong = su_each(t, offset, extent, (unsigned char *)r->data[i], false), size = ckpt__state_dtype_size(t->dtype);
        for (int d = 0; d < t->ndim; d++) size *= (uint64_t)extent[d];
        if (wrong > 0) print_error("%s: %llu bytes are wrong on rank %d of %d\n", t->name, (unsigned long long)wrong, r->rank, r->world);
        assert_int_equal(wrong, 0);
        for (int k = 0; k < 64; k++) assert_int_equal((unsigned char)r->base[i][size + (uint64_t)k], 0xEE);
    }
    assert_int_equal(r->epoch, 7);
    assert_true(r->lr == 0.1 && r->flag);
    assert_string_equal(r->text, "gr\xC3\xBC\xC3\x9F \"dich\"");
    for (size_t i = 0; i < sizeof r->shared; i++) assert_int_equal((unsigned char)r->shared[i], su_byte("shared", i));
    for (size_t i = 0; i < sizeof r->rng; i++)
        assert_int_equal((unsigned char)r->rng[i], r->rank < saved ? su_byte("rng", i + 1000 * (uint64_t)r->rank) : 0xEE);
}

UTIL_FN void su_free(su_rank *r) {
    ckpt_state_free(&r->st);
    for (int i = 0; i < r->count; i++) free(r->base[i]);
    memset(r, 0, sizeof *r);
}

// What of `items` a rank writes.
UTIL_FN ckpt_err su_pick(const ckpt__shard_plan *p, const ckpt__items *items, ckpt__items *out) {
    ckpt_err e = ckpt__mem_room(&out->allocator, (void **)&out->list, sizeof *out->list, &out->cap, items->count + 1);
    for (size_t i = 0; i < items->count && i < p->count && e == CKPT_OK; i++) {
        if (p->mine[i]) out->list[out->count++] = items->list[i];
    }
    return e;
}

// Writes an image as a saver does.
UTIL_FN ckpt_err su_write_image(const char *path, const ckpt__file_format *fmt, const ckpt__image *im, ckpt__engine_job *job, const ckpt_allocator *a) {
    ckpt__file_new n;
    ckpt_err e = ckpt__file_begin(&n, path, true, a);
    if (e != CKPT_OK) return e;
    if (fmt->codec != NULL) e = ckpt__file_compress(&n, fmt->codec, NULL, im, job, a);
    else e = ckpt__image_write(im, n.fd, n.temp.data, job);
    if (e == CKPT_OK) return ckpt__file_commit(&n, true);
    ckpt__file_abort(&n);
    return e;
}

// Ranks may be threads, which util_fmt is not for. Writes the file of one rank and describes it: what a saver does. how: 0 straight to the file, 1 through an image.
UTIL_FN ckpt_err su_write(const char *dir, const char *ending, const ckpt_state *st, const ckpt__shard_plan *plan, const ckpt__items *items,
                          int rank, int how, ckpt__shard_file *f) {
    ckpt__items mine;
    ckpt__plan p;
    ckpt__file_format fmt;
    ckpt__engine_blocks sums;
    ckpt__engine_job job;
    ckpt__image image;
    ckpt__buf name;
    memset(&job, 0, sizeof job);
    memset(&image, 0, sizeof image);
    ckpt__buf_init(&name, &st->allocator);
    ckpt__shard_name(&name, rank, ending);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name.err == CKPT_OK ? name.data : "?");
    ckpt__items_init(&mine, &st->allocator);
    ckpt__plan_init(&p, &st->allocator, st);
    ckpt__shard_sums_init(&sums, &st->allocator);
    job.blocks = &sums;
    ckpt_err e = name.err != CKPT_OK ? name.err : su_pick(plan, items, &mine);
    if (e == CKPT_OK) e = ckpt__file_format_of(path, &fmt);
    fmt.sharded = true;
    if (e == CKPT_OK) e = ckpt__file_plan(&p, &fmt, path, mine.list, mine.count);
    if (e == CKPT_OK && how == 1) e = ckpt__image_fill(&image, &p, &job);
    if (e == CKPT_OK && how == 1) e = ckpt__shard_describe(f, &p, mine.list, mine.count, &sums);
    if (e == CKPT_OK && how == 1) e = su_write_image(path, &fmt, &image, &job, &st->allocator);
    else if (e == CKPT_OK) e = ckpt__file_write(path, &fmt, &p, true, &job, &st->allocator, NULL);
    if (e == CKPT_OK && how == 0) e = ckpt__shard_describe(f, &p, mine.list, mine.count, &sums);
    if (e == CKPT_OK) e = ckpt__shard_stored(f, path, fmt.codec != NULL);
    ckpt__image_free(&image);
    ckpt__engine_blocks_free(&sums);
    ckpt__plan_free(&p);
    ckpt__items_free(&mine);
    ckpt__buf_free(&name);
    return e;
}

// All ranks' tables, looked at as rank 0 does; *plans gets what each rank would hear.
UTIL_FN ckpt_err su_agree(su_rank *ranks, int world, ckpt__items *items, ckpt__shard_plan *plans, const ckpt_allocator *a) {
    ckpt__buf all, answer;
    uint64_t *ends = (uint64_t *)calloc((size_t)world + 1, sizeof *ends);
    ckpt__buf_init(&all, a);
    ckpt__buf_init(&answer, a);
    ckpt_err e = CKPT_OK;
    for (int r = 0; r < world; r++) {
        if (e == CKPT_OK) e = ckpt__state_select(&ranks[r].st, false, NULL, 0, NULL, &items[r]);
        if (e == CKPT_OK) ckpt__shard_table(&all, items[r].list, items[r].count);
        ends[r] = all.len;
    }
    if (e == CKPT_OK) e = all.err;
    if (e == CKPT_OK) e = ckpt__shard_decide(a, all.data, ends, world, 0, &answer);
    for (int r = 0; r < world; r++) {
        ckpt__shard_plan_init(&plans[r], a);
        if (e == CKPT_OK) e = ckpt__shard_heed(&plans[r], answer.data, answer.len, r, world, items[r].count);
    }
    ckpt__buf_free(&all);
    ckpt__buf_free(&answer);
    free(ends);
    return e;
}

// Saves a whole checkpoint to `dir`, one rank after the other.
UTIL_FN ckpt_err su_save_ranks(const char *dir, su_rank *ranks, int world, const char *ending, int how, const ckpt_allocator *a) {
    ckpt__items *items = (ckpt__items *)calloc((size_t)world, sizeof *items);
    ckpt__shard_plan *plans = (ckpt__shard_plan *)calloc((size_t)world, sizeof *plans);
    uint64_t *ends = (uint64_t *)calloc((size_t)world, sizeof *ends);
    ckpt__buf reports, text, hf;
    ckpt__buf_init(&reports, a);
    ckpt__buf_init(&text, a);
    ckpt__buf_init(&hf, a);
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.batch = 12;
    t.epoch = 3;
    t.total_wct = 1.5;
    ckpt_err e = su_agree(ranks, world, items, plans, a);
    for (int r = 0; r < world && e == CKPT_OK; r++) {
        ckpt__shard_file f;
        ckpt__shard_file_init(&f, a);
        e = su_write(dir, ending, &ranks[r].st, &plans[r], &items[r], r, how, &f);
        if (e == CKPT_OK) ckpt__shard_report(&reports, &f);
        ckpt__shard_file_free(&f);
        ends[r] = reports.len;
    }
    if (e == CKPT_OK) e = reports.err;
    if (e == CKPT_OK) e = ckpt__shard_compile(a, reports.data, ends, world, 0, world, &t, ending, "a run", &text, &hf);
    if (e == CKPT_OK) e = ckpt__file_replace(util_fmt("%s/%s", dir, CKPT__SHARD_META), text.data, text.len);
    if (e == CKPT_OK && hf.len > 0) e = ckpt__file_replace(util_fmt("%s/%s", dir, CKPT__SHARD_HF), hf.data, hf.len);
    for (int r = 0; r < world; r++) {
        ckpt__shard_plan_free(&plans[r]);
        ckpt__items_free(&items[r]);
    }
    ckpt__buf_free(&reports);
    ckpt__buf_free(&text);
    ckpt__buf_free(&hf);
    free(items);
    free(plans);
    free(ends);
    return e;
}

UTIL_FN void su_save(const char *dir, const su_model *m, int world, const char *ending, int how) {
    su_rank *ranks = (su_rank *)calloc((size_t)world, sizeof *ranks);
    ckpt_allocator a = { NULL, NULL };
    for (int r = 0; r < world; r++) su_bind(&ranks[r], m, r, world, true);
    ckpt_err e = su_save_ranks(dir, ranks, world, ending, how, &a);
    if (e != CKPT_OK) print_error("%s\n", ckpt_last_error());
    assert_int_equal(e, CKPT_OK);
    for (int r = 0; r < world; r++) su_free(&ranks[r]);
    free(ranks);
}

// Loads one rank's share.
UTIL_FN ckpt_err su_load(su_rank *r, const ckpt__shard_place *place, bool no_verify, ckpt__shard_count *count, ckpt_timestamp *at) {
    ckpt__shard_meta m;
    ckpt__file_options o;
    ckpt__engine_job job;
    memset(&o, 0, sizeof o);
    memset(&job, 0, sizeof job);
    job.phase = "load";
    o.rank = r->rank;
    o.no_verify = no_verify;
    o.job = &job;
    ckpt_err e = ckpt__shard_open(&m, &r->st.allocator, place);
    if (e != CKPT_OK) return e;
    e = ckpt__shard_fits(&m, &r->st, &o, NULL);
    if (e == CKPT_OK) e = ckpt__shard_present(&m, place, &r->st, &o);
    if (e == CKPT_OK) e = ckpt__shard_restore(&m, place, &r->st, &o, at, count);
    ckpt__shard_free(&m);
    return e;
}

UTIL_FN ckpt__shard_place su_folder(const char *dir) {
    ckpt__shard_place p;
    memset(&p, 0, sizeof p);
    p.folder = dir;
    return p;
}

#endif // SHARD_UTIL_H
