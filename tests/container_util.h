/* container_util.h: a state in three lines, files from plans, and reading them back, for the tests of >>safetensors and >>tar.

   Include it after util.h. Memory of states and names is freed at exit.
*/
#ifndef CONTAINER_UTIL_H
#define CONTAINER_UTIL_H

// The state's names live as long as the program: tests fill one static state after the other.
typedef struct fixture { ckpt_state st; ckpt__items items; } fixture;

UTIL_FN void fix_bind(fixture *f, const char *name, ckpt_kind kind, void *data, size_t size) {
    ckpt__binding it;
    memset(&it, 0, sizeof it);
    it.kind = kind;
    it.data = data;
    it.size = size;
    if (kind == CKPT_KIND_FILE) it.path = (const char *)data;       // copied by the bind
    ckpt__state_bind(&f->st, name, &it);
    if (f->st.err != CKPT_OK) fail_msg("bind: %s", ckpt_last_error());
}

UTIL_FN void fix_tensor(fixture *f, const char *name, ckpt_dtype dtype, void *data, int ndim, int64_t a, int64_t b, int64_t c) {
    ckpt__binding it;
    memset(&it, 0, sizeof it);
    it.kind = CKPT_KIND_TENSOR;
    it.tensor.dtype = dtype;
    it.tensor.ndim = ndim;
    it.tensor.shape[0] = a;
    it.tensor.shape[1] = b;
    it.tensor.shape[2] = c;
    it.tensor.data = data;
    ckpt__state_bind(&f->st, name, &it);
    if (f->st.err != CKPT_OK) fail_msg("bind: %s", ckpt_last_error());
}

UTIL_FN void fix_free(fixture *f) {
    ckpt__items_free(&f->items);
    ckpt__state_free(&f->st);
}

// Lists the bindings, as a saver does.
UTIL_FN const ckpt__binding *fix_items(fixture *f, size_t *count) {
    ckpt__items_free(&f->items);
    assert_int_equal(ckpt__state_select(&f->st, false, NULL, 0, NULL, &f->items), CKPT_OK);
    *count = f->items.count;
    return f->items.list;
}

// Carries a plan out into a new file.
UTIL_FN ckpt_err fix_write(ckpt__plan *p, const char *path) {
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    ckpt_err e = ckpt__plan_finish(p);
    (void)unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (e == CKPT_OK) e = ckpt__engine_write(p, fd, path, &job);
    close(fd);
    return e;
}

typedef ckpt_err fix_reader(ckpt__toc *t, const ckpt__source *src);

// Lists a file and verifies every checksum of it. The toc is to be freed in any case.
UTIL_FN ckpt_err fix_read(ckpt__toc *t, fix_reader *read, const char *path) {
    ckpt__engine_job job;
    ckpt__source src;
    struct stat st;
    memset(&job, 0, sizeof job);
    ckpt__toc_init(t, NULL);
    src.fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(src.fd >= 0 && fstat(src.fd, &st) == 0);
    src.path = path;
    src.base = 0;
    src.size = (uint64_t)st.st_size;
    ckpt_err e = read(t, &src);
    if (e == CKPT_OK) e = ckpt__toc_finish(t);
    if (e == CKPT_OK) e = ckpt__engine_read(&src, t, NULL, 0, true, NULL, &job);
    close(src.fd);
    return e;
}

UTIL_FN const ckpt__entry *fix_entry(const ckpt__toc *t, const char *name) {
    int i = ckpt__toc_find(t, name);
    if (i < 0) fail_msg("no entry '%s'", name);
    return &t->entries[i];
}

// The bytes that an entry has in the file; freed at exit.
UTIL_FN const char *fix_bytes(const char *path, const ckpt__entry *e) {
    size_t size;
    char *all = util_slurp(path, &size);
    char *part = (char *)util_keep(calloc(1, (size_t)e->size + 1), false);
    assert_true(e->offset + e->size <= size);
    memcpy(part, all + e->offset, (size_t)e->size);
    free(all);
    return part;
}

// Compares a file with tests/golden/<name>; with CKPT_GOLDEN=write it becomes that file.
UTIL_FN void fix_golden(const char *path, const char *name) {
    size_t size, want_size;
    char *got = util_read(path, &size);
    const char *golden = util_tests_path(util_fmt("golden/%s", name)), *how = getenv("CKPT_GOLDEN");
    if (how != NULL && strcmp(how, "write") == 0) util_write(golden, got, size);
    char *want = util_read(golden, &want_size);
    assert_int_equal(size, want_size);
    assert_memory_equal(got, want, size);
}

// Every byte changed in turn, every shorter length, and a byte more must be CKPT_CORRUPT.
UTIL_FN void fix_damage(fix_reader *read, const char *path) {
    size_t size;
    ckpt__toc t;
    char *bytes = util_slurp(path, &size);
    ckpt_err e = fix_read(&t, read, path);
    ckpt__toc_free(&t);
    if (e != CKPT_OK) fail_msg("whole: %s", ckpt_last_error());
    for (size_t i = 0; i < size; i++) {
        unsigned mask = i % 3 == 0 ? 0x20 : 1u << (i % 8);          // 0x20: upper and lower case, blank and NUL
        util_flip(path, i, mask);
        e = fix_read(&t, read, path);
        ckpt__toc_free(&t);
        util_flip(path, i, mask);
        if (e != CKPT_CORRUPT) fail_msg("byte %zu ^ %02x: %s %s", i, mask, ckpt_err_name(e), ckpt_last_error());
    }
    bytes[size] = 0;
    util_write(path, bytes, size + 1);
    e = fix_read(&t, read, path);
    ckpt__toc_free(&t);
    assert_int_equal(e, CKPT_CORRUPT);
    for (size_t n = size; n-- > 0;) {
        assert_int_equal(truncate(path, (off_t)n), 0);
        e = fix_read(&t, read, path);
        ckpt__toc_free(&t);
        if (e != CKPT_CORRUPT) fail_msg("cut to %zu: %s %s", n, ckpt_err_name(e), ckpt_last_error());
    }
    util_write(path, bytes, size);
    free(bytes);
}

// An allocator that refuses from a chosen call on, and counts what is held.
typedef struct fix_memory { int calls, allowed, held; } fix_memory;

UTIL_FN void *fix_alloc(void *ptr, size_t old_size, size_t new_size, void *user) {
    fix_memory *m = (fix_memory *)user;
    (void)old_size;
    if (new_size == 0) {
        m->held -= ptr != NULL;
        free(ptr);
        return NULL;
    }
    if (m->calls++ >= m->allowed) return NULL;
    m->held += ptr == NULL;
    return realloc(ptr, new_size);
}

#endif // CONTAINER_UTIL_H
