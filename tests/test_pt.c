/* Proves that .pt files are written byte for byte as planned, that no byte of one can change or be missing unseen, and that
   zips and trees made to harm are refused.                                                                             */
#define CKPT_IMPLEMENTATION
#define CKPT_NO_REMOTE
#define CKPT_STATIC
#include "../ckpt.h"
#include "util.h"
#include "pt_util.h"

//-- states ------------------------------------------------------------------------

static uint64_t data_words[16384];
static int64_t  data_ints[] = { 0, 255, 256, -1, 2147483648, INT64_MIN };
static double   data_floats[] = { 0.001, -0.0, HUGE_VAL };
static bool     data_bools[] = { true, false };
static char     data_text[24] = "gr\xc3\xbc\xc3\x9f" "e", data_bytes[5] = { 0, 1, 2, (char)0xFF, 4 };

static void fill(void) {
    for (size_t i = 0; i < 16384; i++) data_words[i] = 0x0102030405060708u * (i + 1);
}

static ckpt__binding item(const char *name, ckpt_kind kind, void *data, size_t size) {
    ckpt__binding b;
    memset(&b, 0, sizeof b);
    b.name = util_fmt("%s", name);
    b.kind = kind;
    b.data = data;
    b.size = size;
    return b;
}

static ckpt__binding tensor(const char *name, ckpt_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c) {
    ckpt__binding it = item(name, CKPT_KIND_TENSOR, NULL, 0);
    uint64_t size = 0;
    it.tensor.dtype = dtype;
    it.tensor.ndim = ndim;
    it.tensor.shape[0] = a;
    it.tensor.shape[1] = b;
    it.tensor.shape[2] = c;
    it.tensor.data = data_words;
    assert_int_equal(ckpt__state_tensor_size(&it.tensor, &size), CKPT_OK);
    it.size = (size_t)size;
    return it;
}

static size_t small_items(ckpt__binding *it) {
    size_t n = 0;
    it[n++] = tensor("state/model/w", CKPT_F32, 2, 2, 3, 0);
    it[n++] = item("state/batch", CKPT_KIND_INT, &data_ints[1], 8);
    it[n++] = item("lr", CKPT_KIND_FLOAT, &data_floats[0], 8);
    it[n++] = item("code", CKPT_KIND_BYTES, data_bytes, sizeof data_bytes);
    it[n++] = item("text", CKPT_KIND_TEXT, data_text, sizeof data_text);
    it[n++] = item("groups/[0]/yes", CKPT_KIND_BOOL, &data_bools[0], 1);
    it[n++] = tensor("state/model/empty", CKPT_I64, 2, 0, 7, 0);
    return n;
}

//-- reading from memory -----------------------------------------------------------

typedef struct file { ckpt__toc toc; ckpt__source src; } file;

static ckpt_err open_bytes(file *f, const char *bytes, size_t size, uint64_t base) {
    static const char *path;
    static int fd = -1;
    if (fd < 0) {
        path = util_join(util_temp_dir(), "x.pt");
        fd = open(path, O_RDWR | O_CREAT, 0600);
        assert_true(fd >= 0);
    }
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_true(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    ckpt__toc_init(&f->toc, NULL);
    f->src.fd = fd;
    f->src.path = path;
    f->src.base = base;
    f->src.size = size - base;
    return pt_verify(&f->toc, &f->src);
}

static const ckpt__entry *get(const file *f, const char *name) {
    int i = ckpt__toc_find(&f->toc, name);
    if (i < 0) fail_msg("no entry '%s'", name);
    return &f->toc.entries[i];
}

static void assert_refused(const char *what, const char *bytes, size_t size, ckpt_err code, const char *words) {
    file f;
    ckpt_err e = open_bytes(&f, bytes, size, 0);
    ckpt__toc_free(&f.toc);
    if (e != code || strstr(ckpt_last_error(), words) == NULL)
        fail_msg("%s: got %s (%s)", what, ckpt_err_name(e), e != CKPT_OK ? ckpt_last_error() : "");
}

//-- round trips -------------------------------------------------------------------

static void test_all_kinds(void **unused) {
    (void)unused;
    ckpt__binding it[64];
    size_t n = small_items(it), size;
    for (int d = (int)CKPT_F64; d <= (int)CKPT_C128; d++) it[n++] = tensor(util_fmt("dtypes/%d", d), (ckpt_dtype)d, 3, 2, 1, 3);
    it[n++] = tensor("scalar", CKPT_BF16, 0, 0, 0, 0);
    it[n++] = item("nothing", CKPT_KIND_BYTES, data_bytes, 0);
    it[n++] = item("file", CKPT_KIND_FILE, data_text, 0);
    for (int i = 0; i < UTIL_COUNT(data_ints); i++) it[n++] = item(util_fmt("ints/%d", i), CKPT_KIND_INT, &data_ints[i], 8);
    char *bytes = pt_make(it, n, "run", 0, &size);
    file f;
    ckpt_err e = open_bytes(&f, bytes, size, 0);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_true(f.toc.own);
    assert_int_equal(f.toc.count, n - 1);
    assert_int_equal(get(&f, "state/batch")->i, 255);
    assert_true(get(&f, "lr")->f == 0.001 && get(&f, "lr")->kind == CKPT_KIND_FLOAT);
    assert_string_equal(get(&f, "text")->text, data_text);
    assert_int_equal(get(&f, "groups/0/yes")->kind, CKPT_KIND_BOOL);
    assert_int_equal(get(&f, "code")->kind, CKPT_KIND_BYTES);
    assert_int_equal(get(&f, "code")->size, sizeof data_bytes);
    assert_int_equal(get(&f, "nothing")->kind, CKPT_KIND_BYTES);
    assert_int_equal(get(&f, "nothing")->size, 0);
    assert_int_equal(get(&f, "scalar")->ndim, 0);
    assert_int_equal(get(&f, "scalar")->size, 2);
    for (int i = 0; i < UTIL_COUNT(data_ints); i++) assert_true(get(&f, util_fmt("ints/%d", i))->i == data_ints[i]);
    for (int d = (int)CKPT_F64; d <= (int)CKPT_C128; d++) {
        const ckpt__entry *t = get(&f, util_fmt("dtypes/%d", d));
        assert_int_equal(t->kind, CKPT_KIND_TENSOR);
        assert_int_equal(t->dtype, d);
        assert_true(t->ndim == 3 && t->shape[0] == 2 && t->shape[1] == 1 && t->shape[2] == 3 && t->contiguous);
        char *p = pt_elements(t, f.src.fd);
        assert_memory_equal(p, data_words, (size_t)t->size);
        free(p);
        assert_string_equal(f.toc.blobs[t->blob].name, t->name);
        assert_true(f.toc.blobs[t->blob].has_crc);
    }
    for (size_t i = 1; i < f.toc.blob_count; i++)
        assert_true(f.toc.blobs[i].offset >= f.toc.blobs[i - 1].offset + f.toc.blobs[i - 1].size);
    ckpt__toc_free(&f.toc);
    free(bytes);
}

static void test_empty_state(void **unused) {
    (void)unused;
    size_t size;
    char *bytes = pt_make(NULL, 0, "", 0, &size);
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 0), CKPT_OK);
    assert_int_equal(f.toc.count, 1);           // an empty dict
    assert_int_equal(f.toc.entries[0].kind, CKPT_KIND_NONE);
    assert_string_equal(f.toc.entries[0].text, "an empty dict");
    ckpt__toc_free(&f.toc);
    ckpt_file *opened = NULL;
    const char *path = util_join(util_temp_dir(), "empty.pt");
    util_write(path, bytes, size);
    assert_int_equal(ckpt_file_open(&opened, path), CKPT_OK);
    assert_string_equal(ckpt_file_what(opened, 0), "an empty dict");
    assert_null(ckpt_file_what(opened, 1));
    assert_null(ckpt_file_what(opened, -1));
    assert_null(ckpt_file_what(NULL, 0));
    ckpt_file_close(opened);
    free(bytes);
}

// Inside a tar the zip begins somewhere; its offsets count from there, its alignment from the beginning of the file.
static void test_inside_a_file(void **unused) {
    (void)unused;
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    it[n++] = tensor("big", CKPT_U64, 1, 16384, 0, 0);
    static const size_t before[] = { 0, 1, 512, 4096, 4099 };
    for (int i = 0; i < UTIL_COUNT(before); i++) {
        char *bytes = pt_make(it, n, "run", before[i], &size);
        file f;
        assert_int_equal(open_bytes(&f, bytes, size, before[i]), CKPT_OK);
        const ckpt__entry *t = get(&f, "big");
        assert_int_equal(t->offset % 4096, 0);
        assert_int_equal(get(&f, "state/model/w")->offset % 64, 0);
        assert_memory_equal(bytes + t->offset, data_words, (size_t)t->size);
        ckpt__toc_free(&f.toc);
        free(bytes);
    }
}

// A tar's reader puts the attached files into the toc before the zip inside it is read.
static void test_toc_with_files(void **unused) {
    (void)unused;
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    char *bytes = pt_make(it, n, "run", 512, &size);
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 512), CKPT_OK);
    ckpt__toc_free(&f.toc);
    ckpt__toc_init(&f.toc, NULL);
    ckpt__entry *e = ckpt__toc_entry(&f.toc, "file", 4, CKPT_KIND_FILE);
    assert_non_null(e);
    e->blob = 0;
    assert_int_equal(ckpt__mem_grow(&f.toc.allocator, (void **)&f.toc.blobs, sizeof *f.toc.blobs, &f.toc.blob_cap, 1), CKPT_OK);
    f.toc.blobs[0].name = "file";
    f.toc.blobs[0].size = 5;
    f.toc.blob_count = 1;
    assert_int_equal(pt_verify(&f.toc, &f.src), CKPT_OK);
    assert_string_equal(f.toc.blobs[get(&f, "state/model/w")->blob].name, "state/model/w");
    assert_string_equal(f.toc.blobs[get(&f, "file")->blob].name, "file");
    ckpt__toc_free(&f.toc);
    free(bytes);
}

static void test_device_memory(void **unused) {
    (void)unused;
    ckpt__binding it = tensor("w", CKPT_F32, 1, 4, 0, 0);
    ckpt__plan p;
    it.tensor.device = true;
    ckpt__plan_init(&p, NULL, NULL);
    assert_int_equal(ckpt__pt_plan(&p, &it, 1, "x"), CKPT_OK);
    size_t found = 0;
    for (size_t i = 0; i < p.seg_count; i++)
        found += p.segs[i].kind == CKPT__SEG_DEVICE && p.segs[i].src == data_words && p.segs[i].size == 16;
    assert_int_equal(found, 1);
    ckpt__plan_free(&p);
}

//-- golden files ------------------------------------------------------------------

// A writer that changes a byte changes what every program before it reads. CKPT_GOLDEN=1 writes the files anew.
static void golden(const char *name, const ckpt__binding *it, size_t n) {
    size_t size, had = 0;
    char *bytes = pt_make(it, n, "golden", 0, &size);
    const char *path = util_tests_path(util_fmt("golden/%s.pt", name));
    if (getenv("CKPT_GOLDEN") != NULL) util_write(path, bytes, size);
    char *want = util_read(path, &had);
    assert_int_equal(size, had);
    assert_memory_equal(bytes, want, size);
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 0), CKPT_OK);
    ckpt__toc_free(&f.toc);
    free(bytes);
}

static void test_golden(void **unused) {
    (void)unused;
    if (strcmp(ckpt__pickle_byteorder(), "little") != 0) util_skip("the golden files are little-endian");
    ckpt__binding it[64];
    golden("empty", NULL, 0);
    golden("small", it, small_items(it));
    size_t n = 0;
    for (int d = (int)CKPT_F64; d <= (int)CKPT_C128; d++)
        it[n++] = tensor(util_fmt("dtypes/%s", ckpt__state_dtype_name((ckpt_dtype)d)), (ckpt_dtype)d, 3, 2, 1, 3);
    golden("dtypes", it, n);
    it[0] = item("a/[1]/x", CKPT_KIND_INT, &data_ints[2], 8);
    it[1] = item("b", CKPT_KIND_FLOAT, &data_floats[2], 8);
    it[2] = item("a/[0]/[0]", CKPT_KIND_INT, &data_ints[4], 8);
    it[3] = item("a/[0]/[1]", CKPT_KIND_INT, &data_ints[5], 8);
    it[4] = tensor("c/big", CKPT_U8, 1, 65536, 0, 0);
    it[5] = tensor("c/behind", CKPT_U8, 1, 3, 0, 0);
    golden("lists", it, 6);
}

//-- damage ------------------------------------------------------------------------

static void test_every_byte(void **unused) {
    (void)unused;
    static const unsigned masks[] = { 0x01, 0x80, 0xFF };
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    char *bytes = pt_make(it, n, "run", 0, &size);
    for (size_t at = 0; at < size; at++) {
        for (int m = 0; m < UTIL_COUNT(masks); m++) {
            file f;
            bytes[at] = (char)((unsigned char)bytes[at] ^ masks[m]);
            ckpt_err e = open_bytes(&f, bytes, size, 0);
            ckpt__toc_free(&f.toc);
            if (e != CKPT_CORRUPT) fail_msg("byte %zu of %zu turned by %02x: %s", at, size, masks[m], ckpt_err_name(e));
            bytes[at] = (char)((unsigned char)bytes[at] ^ masks[m]);
        }
    }
    free(bytes);
}

static void test_every_length(void **unused) {
    (void)unused;
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    char *bytes = pt_make(it, n, "run", 0, &size);
    for (size_t keep = 0; keep < size; keep++) {
        file f;
        ckpt_err e = open_bytes(&f, bytes, keep, 0);
        ckpt__toc_free(&f.toc);
        if (e != CKPT_CORRUPT) fail_msg("the first %zu of %zu bytes: %s", keep, size, ckpt_err_name(e));
    }
    bytes = (char *)realloc(bytes, size + 1);
    bytes[size] = 0;
    assert_refused("a byte more", bytes, size + 1, CKPT_CORRUPT, "1 byte follows the end of its zip");
    free(bytes);
}

static void test_sentence_names_the_entry(void **unused) {
    (void)unused;
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    char *bytes = pt_make(it, n, "run", 0, &size);
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 0), CKPT_OK);
    uint64_t at = get(&f, "state/model/w")->offset;
    ckpt__toc_free(&f.toc);
    bytes[at + 5] ^= 4;
    assert_refused("damage", bytes, size, CKPT_CORRUPT, "'state/model/w'");
    free(bytes);
}

//-- names -------------------------------------------------------------------------

static void assert_names(const char *a, const char *b, const char *words) {
    ckpt__binding it[2] = { item(a, CKPT_KIND_INT, &data_ints[0], 8), item(b, CKPT_KIND_INT, &data_ints[0], 8) };
    ckpt__plan p;
    ckpt__plan_init(&p, NULL, NULL);
    assert_int_equal(ckpt__pt_plan(&p, it, 2, "x"), CKPT_ARG);
    if (strstr(ckpt_last_error(), words) == NULL || strstr(ckpt_last_error(), a) == NULL || strstr(ckpt_last_error(), b) == NULL)
        fail_msg("'%s' and '%s': %s", a, b, ckpt_last_error());
    ckpt__plan_free(&p);
}

static void test_names_that_conflict(void **unused) {
    (void)unused;
    assert_names("a/b", "a/b", "twice");
    assert_names("a", "a/b", "a value and a dict");
    assert_names("a/b/c", "a/b", "a value and a dict");
    assert_names("a/[0]", "a/x", "a list and a dict");
    assert_names("a/[0]/x", "a/[00]/x", "a list and a dict");
    ckpt__binding far = item("a/[9000000]", CKPT_KIND_INT, &data_ints[0], 8);
    ckpt__plan p;
    ckpt__plan_init(&p, NULL, NULL);
    assert_int_equal(ckpt__pt_plan(&p, &far, 1, "x"), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "a/[9000000]"));
    ckpt__plan_free(&p);
}

static void test_values_that_cannot_be_written(void **unused) {
    (void)unused;
    static char endless[3] = { 'a', 'b', 'c' }, latin[4] = "\xfc";
    ckpt__binding it[] = { item("endless", CKPT_KIND_TEXT, endless, 3), item("latin", CKPT_KIND_TEXT, latin, 4),
        item("none", CKPT_KIND_NONE, NULL, 0),
                           item("", CKPT_KIND_INT, &data_ints[0], 8) };
    assert_int_equal(ckpt__pt_check_directory(1u << 30), CKPT_OK);          // as the reader has it
    assert_int_equal(ckpt__pt_check_directory((1u << 30) + 1), CKPT_ARG);
    char *deep = util_fmt("%0*d", 500, 0);
    for (int i = 0; i < 500; i += 2) deep[i] = '/';
    it[3].name = deep + 1;
    for (int i = 0; i < UTIL_COUNT(it); i++) {
        ckpt__plan p;
        ckpt__plan_init(&p, NULL, NULL);
        assert_int_equal(ckpt__pt_plan(&p, &it[i], 1, "x"), CKPT_ARG);
        assert_non_null(strstr(ckpt_last_error(), it[i].name));
        assert_int_equal(ckpt__plan_finish(&p), CKPT_ARG);
        ckpt__plan_free(&p);
    }
}

// A list whose item was left out by an ignore glob keeps the places of the others.
static void test_lists(void **unused) {
    (void)unused;
    ckpt__binding it[] = { item("l/[10]", CKPT_KIND_INT, &data_ints[0], 8), item("l/[2]/x", CKPT_KIND_INT, &data_ints[1], 8),
        item("l/[9]", CKPT_KIND_INT, &data_ints[2], 8) };
    size_t size;
    char *bytes = pt_make(it, 3, "run", 0, &size);
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 0), CKPT_OK);
    assert_int_equal(f.toc.count, 11);
    assert_int_equal(get(&f, "l/10")->kind, CKPT_KIND_INT);
    assert_int_equal(get(&f, "l/2/x")->i, 255);
    assert_int_equal(get(&f, "l/9")->i, 256);
    assert_int_equal(get(&f, "l/3")->kind, CKPT_KIND_NONE);
    ckpt__toc_free(&f.toc);
    free(bytes);
}

static void test_many(void **unused) {
    (void)unused;
    enum { MANY = 100000 };
    ckpt__binding *it = (ckpt__binding *)util_keep(calloc(MANY, sizeof *it), false);
    char *names = (char *)util_keep(malloc(MANY * 32), false);
    for (int i = 0; i < MANY; i++) {
        snprintf(names + i * 32, 32, "m/%d/layer.%d.w", i % 7, i);
        it[i] = i == 0 ? tensor("", CKPT_F32, 1, 16, 0, 0) : it[0];
        it[i].name = names + i * 32;
    }
    double begin = ckpt__os_now();
    size_t size;
    char *bytes = pt_make(it, MANY, "run", 0, &size);
    double written = ckpt__os_now();
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 0), CKPT_OK);
    assert_int_equal(f.toc.count, MANY);
    assert_string_equal(f.toc.entries[1].name, "m/0/layer.7.w");        // dicts are written whole, in the order of appearance
    double end = ckpt__os_now();
    print_message("100,000 tensors: %.0f ms to plan and copy, %.0f ms to read and verify\n", (written - begin) * 1e3,
                  (end - written) * 1e3);
    assert_true(end - begin < 200);        // a quadratic step takes longer
    ckpt__toc_free(&f.toc);
    free(bytes);
}

//-- memory that is refused --------------------------------------------------------

static int  refuse_at, refuse_count;
static long refuse_live;

static void *refusing(void *p, size_t old_size, size_t new_size, void *user) {
    (void)user;
    if (new_size == 0) {
        refuse_live -= (long)old_size;
        free(p);
        return NULL;
    }
    if (refuse_count++ == refuse_at) return NULL;
    refuse_live += (long)new_size - (long)old_size;
    return realloc(p, new_size);
}

static void test_every_allocation(void **unused) {
    (void)unused;
    ckpt_allocator a = { refusing, NULL };
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    it[n++] = item("l/[1]", CKPT_KIND_INT, &data_ints[0], 8);
    it[n++] = item("l/[0]", CKPT_KIND_INT, &data_ints[0], 8);
    ckpt_err e = CKPT_NOMEM;
    for (refuse_at = 0; e != CKPT_OK; refuse_at++) {
        ckpt__plan p;
        refuse_count = 0;
        ckpt__plan_init(&p, &a, NULL);
        e = ckpt__pt_plan(&p, it, n, "run");
        if (e == CKPT_OK) e = ckpt__plan_finish(&p);
        if (e != CKPT_OK) assert_int_equal(e, CKPT_NOMEM);
        ckpt__plan_free(&p);
        assert_int_equal(refuse_live, 0);
    }
    assert_true(refuse_at > 5);
    char *bytes = pt_make(it, n, "run", 0, &size);
    file f;
    assert_int_equal(open_bytes(&f, bytes, size, 0), CKPT_OK);
    ckpt__toc_free(&f.toc);
    for (refuse_at = 0, e = CKPT_NOMEM; e != CKPT_OK; refuse_at++) {
        refuse_count = 0;
        ckpt__toc_init(&f.toc, &a);
        e = pt_verify(&f.toc, &f.src);
        if (e != CKPT_OK) assert_int_equal(e, CKPT_NOMEM);
        ckpt__toc_free(&f.toc);
        assert_int_equal(refuse_live, 0);
    }
    assert_true(refuse_at > 5);
    free(bytes);
}

//-- zips that are not ours --------------------------------------------------------

// A zip by other means, with a knob for everything that can be wrong.
typedef struct zip { char b[450000]; size_t n; char dir[8192]; size_t dir_n; int count; } zip;

static void le(char *p, uint64_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (char)(v >> (8 * i) & 255);
}

static size_t zip_add(zip *z, const char *name, const void *data, size_t size) {
    char h[30] = { 'P', 'K', 3, 4, 20 }, c[46] = { 'P', 'K', 1, 2, 20, 0, 20 };
    size_t at = z->n, len = strlen(name);
    uint32_t crc = ckpt__digest_crc32(0, data, size);
    le(h + 14, crc, 4);
    le(h + 18, size, 4);
    le(h + 22, size, 4);
    le(h + 26, len, 2);
    memcpy(c + 16, h + 14, 14);
    le(c + 42, at, 4);
    memcpy(z->b + z->n, h, 30);
    memcpy(z->b + z->n + 30, name, len);
    memcpy(z->b + z->n + 30 + len, data, size);
    z->n += 30 + len + size;
    memcpy(z->dir + z->dir_n, c, 46);
    memcpy(z->dir + z->dir_n + 46, name, len);
    z->dir_n += 46 + len;
    z->count++;
    return z->dir_n - 46 - len;
}

static char *zip_end(zip *z) {
    char e[22] = { 'P', 'K', 5, 6 };
    le(e + 8, (uint64_t)z->count, 2);
    le(e + 10, (uint64_t)z->count, 2);
    le(e + 12, z->dir_n, 4);
    le(e + 16, z->n, 4);
    memcpy(z->b + z->n, z->dir, z->dir_n);
    memcpy(z->b + z->n + z->dir_n, e, 22);
    z->n += z->dir_n + 22;
    return z->b + z->n - 22;
}

#define P_TENSOR(offset, shape, stride) \
    "\x80\x02}X\x01\0\0\0t" "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n" \
    "X\x01\0\0\0" "0" "X\x03\0\0\0cpuK\x04tQ" \
    offset shape stride "\x89" "ccollections\nOrderedDict\n)RtRs."

static void zip_torch(zip *z, const void *pickle, size_t size) {
    memset(z, 0, sizeof *z);
    zip_add(z, "a/data.pkl", pickle, size);
    zip_add(z, "a/data/0", data_words, 16);
    zip_add(z, "a/version", "3\n", 2);
}

static char heard[1000];

static void hear(ckpt_log_level level, const char *msg, void *user) {
    size_t n = strlen(heard);
    (void)user;
    if (level == CKPT_LOG_WARN) (void)snprintf(heard + n, sizeof heard - n, "%s\n", msg);
}

// Half a surrogate pair, which Python has for a byte of a file's name that is no UTF-8, is no reason to convert nothing; nor is a NUL.
static void test_odd_texts(void **unused) {
    (void)unused;
    static const char pickle[] = "\x80\x02}(X\x01\0\0\0aX\x02\0\0\0okX\x01\0\0\0hX\x04\0\0\0x\xed\xb2\x80X\x01\0\0\0nX\x03\0\0\0x\0yu.";
    static const char *const to[] = { "b.safetensors", "b.tar", "c.pt.gz", "d" };
    const char *dir = util_temp_dir();
    zip z;
    zip_torch(&z, pickle, sizeof pickle - 1);
    zip_end(&z);
    util_write(util_join(dir, "a.pt"), z.b, z.n);
    for (int i = 0; i < UTIL_COUNT(to); i++) {
        ckpt_convert_desc d;
        memset(&d, 0, sizeof d);
        heard[0] = 0;
        d.from = util_join(dir, "a.pt");
        d.to = util_join(dir, to[i]);
        d.shards = i == 3 ? 2 : 0;
        d.logger.fn = hear;
        ckpt_err e = ckpt_convert(&d);
        if (e != CKPT_OK) fail_msg("%s: %s", to[i], ckpt_last_error());
        assert_string_equal(heard, i == 2 ? "" : "left out: 'h', text that is no UTF-8\nleft out: 'n', text with a NUL inside\n");
    }
}

static void assert_pickle(const char *what, const void *pickle, size_t size, ckpt_err code, const char *words) {
    zip z;
    zip_torch(&z, pickle, size);
    zip_end(&z);
    assert_refused(what, z.b, z.n, code, words);
}
#define ASSERT_PICKLE(what, text, code, words) assert_pickle(what, text, sizeof text - 1, code, words)

static void test_shapes(void **unused) {
    (void)unused;
    static const char good[] = P_TENSOR("K\0", "K\x02K\x02\x86", "K\x01K\x02\x86");
    zip z;
    file f;
    zip_torch(&z, good, sizeof good - 1);
    zip_end(&z);
    assert_int_equal(open_bytes(&f, z.b, z.n, 0), CKPT_OK);
    assert_false(f.toc.own);
    const ckpt__entry *t = get(&f, "t");
    assert_true(!t->contiguous && t->stride[0] == 1 && t->stride[1] == 2 && t->size == 16);
    ckpt__toc_free(&f.toc);
    // An empty slice keeps the offset at which it would begin, which may lie behind the end.
    static const char empty[] = P_TENSOR("K\x05", "K\0K\x02\x86", "K\x05K\x01\x86"),
        far[] = P_TENSOR("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\0K\x02\x86", "K\x05K\x01\x86");
    for (int i = 0; i < 2; i++) {
        zip_torch(&z, i == 0 ? empty : far, i == 0 ? sizeof empty - 1 : sizeof far - 1);
        zip_end(&z);
        ckpt_err e = open_bytes(&f, z.b, z.n, 0);
        if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
        t = get(&f, "t");
        assert_true(t->size == 0 && t->shape[0] == 0 && t->shape[1] == 2 && t->offset == f.toc.blobs[t->blob].offset);
        ckpt__toc_free(&f.toc);
    }
    // An empty array's other levels may be of any size.
    static const char array[] = "\x80\x03}X\1\0\0\0t" "cnumpy.core.numeric\n_frombuffer\n(C\0cnumpy\ndtype\nX\2\0\0\0i2\x89\x88\x87R"
        "K\0\x8a\6\0\0\0\0\0\1\x8a\6\0\0\0\0\0\1\x87X\1\0\0\0CtRs.";
    zip_torch(&z, array, sizeof array - 1);
    zip_end(&z);
    assert_int_equal(open_bytes(&f, z.b, z.n, 0), CKPT_OK);
    t = get(&f, "t");
    assert_true(t->kind == CKPT_KIND_TENSOR && t->size == 0 && t->ndim == 3 && t->shape[2] == (int64_t)1 << 40);
    ckpt__toc_free(&f.toc);
    ASSERT_PICKLE("a row too many", P_TENSOR("K\0", "K\x03K\x02\x86", "K\x02K\x01\x86"), CKPT_CORRUPT,
                  "'t' reaches beyond its storage");
    ASSERT_PICKLE("an offset too far", P_TENSOR("K\x01", "K\x02K\x02\x86", "K\x02K\x01\x86"), CKPT_CORRUPT,
                  "'t' reaches beyond its storage");
    ASSERT_PICKLE("an offset beyond the end", P_TENSOR("K\x05", "K\x01\x85", "K\x01\x85"), CKPT_CORRUPT,
                  "'t' reaches beyond its storage");
    ASSERT_PICKLE("a stride that overflows", P_TENSOR("K\0", "K\x03K\x02\x86", "\x8a\x08\0\0\0\0\0\0\0\x70K\x01\x86"),
                  CKPT_CORRUPT, "'t' reaches beyond its storage");
    ASSERT_PICKLE("a negative stride", P_TENSOR("K\x02", "K\x02\x85", "J\xff\xff\xff\xff\x85"), CKPT_CORRUPT, "no proper shape");
    ASSERT_PICKLE("a negative extent", P_TENSOR("K\0", "J\xff\xff\xff\xff\x85", "K\x01\x85"), CKPT_CORRUPT, "no proper shape");
    ASSERT_PICKLE("shape and strides of two lengths", P_TENSOR("K\0", "K\x01\x85", "K\x01K\x01\x86"), CKPT_CORRUPT,
                  "no proper shape");
    ASSERT_PICKLE("an expanded tensor larger than any memory",
                  P_TENSOR("K\0", "\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86", "K\0K\0\x86"), CKPT_CORRUPT,
                      "larger than any memory");
    static const char lost[] = "\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" "7" "X\x03\0\0\0cpuK\x04tQ.";
    ASSERT_PICKLE("a storage that is not there", lost, CKPT_CORRUPT, "data/7");
    static const char much[] = "\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" "0" "X\x03\0\0\0cpuK\x05tQ.";
    ASSERT_PICKLE("a storage longer than its entry", much, CKPT_CORRUPT, "shorter than its storage");
}

// What Python has loaded and saved again has lost the letters of its storages; a clock is known by its name.
static void test_clocks_saved_again(void **unused) {
    (void)unused;
#define P_DOUBLE(offset) "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nDoubleStorage\n" \
    "X\x01\0\0\0" "0" "X\x03\0\0\0cpuK\x02tQ" offset "))\x89" "ccollections\nOrderedDict\n)RtR"
    static const char pickle[] = "\x80\x02}(" "X\x23\0\0\0state/timestamp/Timestamp/total_wct" P_DOUBLE("K\1")
        "X\x23\0\0\0state/timestamp/Timestamp/epoch_wct" P_DOUBLE("K\0") "X\1\0\0\0a" P_DOUBLE("K\1") "u.";
    static const double values[2] = { 12.25, 3600.5 };
    zip z;
    file f;
    memset(&z, 0, sizeof z);
    zip_add(&z, "a/data.pkl", pickle, sizeof pickle - 1);
    zip_add(&z, "a/data/0", values, 16);
    zip_add(&z, "a/version", "3\n", 2);
    zip_end(&z);
    memmove(z.b + 7, z.b, z.n);
    ckpt_err e = open_bytes(&f, z.b, z.n + 7, 7);           // as within a tar
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    for (int i = 0; i < 2; i++) {
        const ckpt__entry *t = get(&f, i == 0 ? "state/timestamp/Timestamp/epoch_wct" : "state/timestamp/Timestamp/total_wct");
        assert_int_equal(t->kind, CKPT_KIND_FLOAT);
        assert_true(t->f == values[i] && t->blob < 0);
    }
    assert_int_equal(get(&f, "a")->kind, CKPT_KIND_TENSOR);
    ckpt__toc_free(&f.toc);
    // Alone in its storage its sum is looked at, where there is one.
    static const char one[] = "\x80\x02}(" "X\x23\0\0\0state/timestamp/Timestamp/total_wct" "ctorch._utils\n_rebuild_tensor_v2\n"
        "((X\x07\0\0\0storagectorch\nDoubleStorage\nX\x01\0\0\0" "0" "X\x03\0\0\0cpuK\x01tQK\0))\x89" "ccollections\nOrderedDict\n)RtRu.";
    for (int damaged = 0; damaged < 2; damaged++) {
        memset(&z, 0, sizeof z);
        zip_add(&z, "a/data.pkl", one, sizeof one - 1);
        size_t dir = zip_add(&z, "a/data/0", values, 8);
        zip_add(&z, "a/version", "3\n", 2);
        uint32_t at = (unsigned char)z.dir[dir + 42] | (uint32_t)(unsigned char)z.dir[dir + 43] << 8;
        if (damaged) z.dir[dir + 16] ^= 1;
        else memset(z.dir + dir + 16, 0, 4);                // torch can be told to write none
        memcpy(z.b + at + 14, z.dir + dir + 16, 4);
        zip_end(&z);
        e = open_bytes(&f, z.b, z.n, 0);
        if (e != (damaged ? CKPT_CORRUPT : CKPT_OK)) fail_msg("%d: %s", damaged, ckpt_last_error());
        if (damaged) assert_non_null(strstr(ckpt_last_error(), "'state/timestamp/Timestamp/total_wct' is damaged"));
        if (!damaged) assert_true(get(&f, "state/timestamp/Timestamp/total_wct")->f == 12.25);
        ckpt__toc_free(&f.toc);
    }
}

static void test_zip_structure(void **unused) {
    (void)unused;
    static const char pickle[] = P_TENSOR("K\0", "K\x04\x85", "K\x01\x85");
    size_t n = sizeof pickle - 1, at;
    zip z, keep;
    zip_torch(&keep, pickle, n);
#define BEGIN z = keep
#define END(what, code, words) zip_end(&z); assert_refused(what, z.b, z.n, code, words)
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); z.dir[at + 8] = 1;
    END("an encrypted entry", CKPT_UNSUPPORTED, "encrypted");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); z.dir[at + 10] = 8;
    END("a deflated entry", CKPT_UNSUPPORTED, "compressed");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); le(z.dir + at + 24, 6, 4);
    END("two sizes", CKPT_CORRUPT, "two sizes");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); le(z.dir + at + 20, 9, 4); le(z.dir + at + 24, 9, 4);
    END("a size too large", CKPT_CORRUPT, "");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); le(z.dir + at + 42, 60000, 4);
    END("an entry behind the end", CKPT_CORRUPT, "");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); le(z.dir + at + 42, 0, 4);
    END("an entry over another", CKPT_CORRUPT, "");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); z.dir[at + 46] = 'b';
    END("two names", CKPT_CORRUPT, "another name");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); z.dir[at + 46] = 0;
    END("a NUL in a name", CKPT_CORRUPT, "proper name");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); le(z.dir + at + 28, 0, 2);
    END("no name", CKPT_CORRUPT, "");
    BEGIN; at = zip_add(&z, "a/x", "hello", 5); le(z.dir + at + 30, 60000, 2);
    END("an extra field too long", CKPT_CORRUPT, "longer than the directory");
    BEGIN; zip_add(&z, "a/version", "3\n", 2); END("an entry twice", CKPT_CORRUPT, "twice");
    BEGIN; zip_add(&z, "a/constants.pkl", "", 0);
    END("TorchScript", CKPT_UNSUPPORTED, "TorchScript");
    BEGIN; zip_add(&z, "a/byteorder", strcmp(ckpt__pickle_byteorder(), "little") == 0 ? "big" : "little", 3);
    END("the other byte order", strcmp(ckpt__pickle_byteorder(), "little") == 0 ? CKPT_UNSUPPORTED : CKPT_CORRUPT, "");
    BEGIN; zip_add(&z, "a/byteorder", "bug", 3); END("no byte order", CKPT_CORRUPT, "byte order");
    BEGIN; zip_add(&z, "a/.ckpt", ckpt__pt_marker, sizeof ckpt__pt_marker - 1);
    END("a marker without a sum", CKPT_CORRUPT, "comment is gone");
    BEGIN; z.dir[16] ^= 1; END("a wrong sum of data.pkl", CKPT_CORRUPT, "");
    BEGIN; char *e = zip_end(&z); le(e + 10, 4, 2); le(e + 8, 4, 2);
    assert_refused("an entry more", z.b, z.n, CKPT_CORRUPT, "");
    BEGIN; e = zip_end(&z); le(e + 10, 2, 2); le(e + 8, 2, 2);
    assert_refused("an entry fewer", z.b, z.n, CKPT_CORRUPT, "more than its entries");
    BEGIN; e = zip_end(&z); le(e + 16, 3, 4);
    assert_refused("the directory elsewhere", z.b, z.n, CKPT_CORRUPT, "directory is not where");
    BEGIN; e = zip_end(&z); le(e + 12, 0xFFFFFFFFu, 4);
    assert_refused("sizes without zip64", z.b, z.n, CKPT_CORRUPT, "directory is not where");
    BEGIN; e = zip_end(&z); le(e + 4, 1, 2);
    assert_refused("several disks", z.b, z.n, CKPT_UNSUPPORTED, "several files");
    BEGIN; e = zip_end(&z); le(e + 20, 1, 2);
    assert_refused("a comment that is not there", z.b, z.n, CKPT_CORRUPT, "ends early");
    BEGIN; zip_end(&z); memset(z.b + z.n, 0, 10);
    assert_refused("bytes behind its end", z.b, z.n + 10, CKPT_CORRUPT, "10 bytes follow the end of its zip");
    memset(&z, 0, sizeof z);
    zip_add(&z, "a/hello", "3\n", 2);
    END("no data.pkl", CKPT_CORRUPT, "data.pkl");
    memset(&z, 0, sizeof z);
    END("an empty zip", CKPT_CORRUPT, "data.pkl");
#undef BEGIN
#undef END
}

static void test_zip64_nonsense(void **unused) {
    (void)unused;
    ckpt__binding it[16];
    size_t n = small_items(it), size;
    char *bytes = pt_make(it, n, "run", 0, &size);
    memcpy(bytes + size - 8, "xxxxxxxx", 8);            // no longer ours by its comment, and still marked: also refused
    assert_refused("a comment without a sum", bytes, size, CKPT_CORRUPT, "comment is gone");
    char *end = bytes + size - CKPT__PT_COMMENT - CKPT__PT_END, *loc = end - CKPT__PT_LOCATOR, *z = loc - CKPT__PT_END64;
    static const struct { int at, n; uint64_t v; } wrong[] = {
        { 4, 8, 0 }, { 4, 8, UINT64_MAX }, { 16, 4, 1 }, { 24, 8, UINT64_MAX }, { 32, 8, 1u << 30 }, { 40, 8, UINT64_MAX - 4 },
            { 48, 8, UINT64_MAX }, { 48, 8, 0 },
        { 64, 8, UINT64_MAX }, { 64, 8, UINT64_MAX - 60 }, { 64, 8, 0 }
    };
    for (int i = 0; i < UTIL_COUNT(wrong); i++) {
        char was[8];
        memcpy(was, z + wrong[i].at, 8);
        le(z + wrong[i].at, wrong[i].v, wrong[i].n);
        file f;
        ckpt_err e = open_bytes(&f, bytes, size, 0);
        assert_true(e == CKPT_CORRUPT || e == CKPT_UNSUPPORTED);
        ckpt__toc_free(&f.toc);
        memcpy(z + wrong[i].at, was, 8);
    }
    free(bytes);
}

// A hostile entry count or shared tree must neither take memory out of proportion nor time.
static void test_bombs(void **unused) {
    (void)unused;
    static char pickle[400000];
    size_t n = 0;
    // ten levels of a list that holds the one before 200 times: 200^10 leaves
    memcpy(pickle + n, "\x80\x02K\x01q\0", 6);
    n += 6;
    for (int level = 0; level < 10; level++) {
        pickle[n++] = ']';
        pickle[n++] = '(';
        for (int i = 0; i < 200; i++) { pickle[n++] = 'h'; pickle[n++] = (char)level; }
        pickle[n++] = 'e';
        pickle[n++] = 'q';
        pickle[n++] = (char)(level + 1);
    }
    pickle[n++] = '.';
    assert_pickle("a billion laughs", pickle, n, CKPT_UNSUPPORTED, "unfolds");
    // one long text, referred to again and again
    n = 0;
    memcpy(pickle, "\x80\x02]X\0\x86\x01\0", 8);
    memset(pickle + 8, 'x', 0x18600);
    n = 8 + 0x18600;
    pickle[n++] = 'q';
    pickle[n++] = 0;
    pickle[n++] = 'a';
    for (int i = 0; i < 60000; i++) { pickle[n++] = 'h'; pickle[n++] = 0; pickle[n++] = 'a'; }
    pickle[n++] = '.';
    assert_pickle("a long text again and again", pickle, n, CKPT_UNSUPPORTED, "unfolds");
    // dicts made again and again of one long list of pairs
    n = 0;
    static const char begin[] = "\x80\x02" "ccollections\nOrderedDict\nq\0](";
    memcpy(pickle, begin, sizeof begin - 1);
    n = sizeof begin - 1;
    for (int i = 0; i < 20000; i++) { memcpy(pickle + n, "K\1K\2\x86", 5); n += 5; }
    memcpy(pickle + n, "e\x85q\1", 4);
    n += 4;
    for (int i = 0; i < 50000; i++) { memcpy(pickle + n, "h\0h\1R0", 6); n += 6 ; if (n > 390000) break; }
    pickle[n++] = '.';
    assert_pickle("dicts of one list again and again", pickle, n, CKPT_CORRUPT, "too often");
    static const char memo[] = "\x80\x02Nr\xff\xff\xff\x7f.";
    ASSERT_PICKLE("a large memo number", memo, CKPT_CORRUPT, "memo number");
}

static const ckpt__entry *open_pickle(file *f, const char *pickle, size_t size, const char *name) {
    zip z;
    zip_torch(&z, pickle, size);
    zip_end(&z);
    if (open_bytes(f, z.b, z.n, 0) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    return get(f, name);
}

// What Python programs do write: one thing in many places, something in itself, and more levels than anybody looks at.
static void test_shared_values(void **unused) {
    (void)unused;
    static char pickle[400000];
    file f;
    size_t n = 0;
    memcpy(pickle + n, "\x80\x02](K\0K\0K\1\x87q\0h\0", 13);           // [(0, 0, 1)] * 80000
    n += 13;
    for (int i = 0; i < 79999; i++) { pickle[n++] = 'h'; pickle[n++] = 0; }
    memcpy(pickle + n, "e.", 2);
    n += 2;
    assert_int_equal(open_pickle(&f, pickle, n, "79999/2")->i, 1);
    assert_int_equal(f.toc.count, 240000);
    ckpt__toc_free(&f.toc);
    n = 0;                                                                  // [cfg] * 5000, of 40 values
    memcpy(pickle, "\x80\x02](}q\0(", 8);
    n = 8;
    for (int i = 0; i < 40; i++) { memcpy(pickle + n, "K\0K\1", 4); pickle[n + 1] = (char)i; n += 4; }
    pickle[n++] = 'u';
    for (int i = 0; i < 4999; i++) { pickle[n++] = 'h'; pickle[n++] = 0; }
    memcpy(pickle + n, "e.", 2);
    n += 2;
    assert_int_equal(open_pickle(&f, pickle, n, "4999/39")->i, 1);
    ckpt__toc_free(&f.toc);
    static const char loop[] = "\x80\x02}q\0(X\1\0\0\0aK\7X\4\0\0\0selfh\0X\1\0\0\0b]h\0au.";
    assert_int_equal(open_pickle(&f, loop, sizeof loop - 1, "a")->i, 7);
    assert_int_equal(f.toc.count, 3);
    assert_int_equal(get(&f, "self")->kind, CKPT_KIND_OTHER);
    assert_int_equal(get(&f, "b/0")->kind, CKPT_KIND_OTHER);
    assert_non_null(strstr(get(&f, "b/0")->text, "part of"));
    ckpt__toc_free(&f.toc);
    memcpy(pickle, "\x80\x02}(X\1\0\0\0aK\7X\1\0\0\0b", 18);
    n = 18;
    memset(pickle + n, ']', 300);
    memset(pickle + n + 300, 'a', 299);
    memcpy(pickle + n + 599, "u.", 2);
    n += 601;
    assert_int_equal(open_pickle(&f, pickle, n, "a")->i, 7);
    assert_int_equal(f.toc.count, 2);
    assert_int_equal(f.toc.entries[1].kind, CKPT_KIND_OTHER);
    assert_non_null(strstr(f.toc.entries[1].text, "deeper than 200"));
    ckpt__toc_free(&f.toc);
}

// Loads the int 'w' of a .pt of that pickle; `heard` gets the warnings.
static ckpt_err load_w(const char *path, bool not_strict) {
    int64_t w = 0;
    ckpt_state st = { 0 };
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    ckpt_bind_int(&st, "w", &w);
    d.load_path = path;
    d.state = &st;
    d.not_strict = not_strict;
    d.logger.fn = hear;
    heard[0] = 0;
    ckpt_err e = ckpt_load(&d, NULL);
    assert_int_equal(w, e == CKPT_OK);
    ckpt_state_free(&st);
    return e;
}

static const char *write_pickle(const char *pickle, size_t size) {
    zip z;
    const char *path = util_join(util_temp_dir(), "a.pt");
    zip_torch(&z, pickle, size);
    zip_end(&z);
    util_write(path, z.b, z.n);
    return path;
}

// A weight that cannot be read is missed by a strict load, as one that is not bound; an object that is none is not.
static void test_lost_tensors(void **unused) {
    (void)unused;
    static const char pickle[] = "\x80\x02}(X\1\0\0\0wK\1X\1\0\0\0qctorch._utils\n_rebuild_sparse_tensor\n(K\1tRX\1\0\0\0mcmine\nThing\n)R"
        "X\1\0\0\0tctorch._tensor\n_rebuild_from_type_v2\n(cmine\nf\ncmine\nDTensor\n)}tRX\1\0\0\0dctorch\nfloat32\nu.";
    static const char plain[] = "\x80\x02}(X\1\0\0\0wK\1X\1\0\0\0mcmine\nThing\n)RX\1\0\0\0dctorch\nfloat32\nu.";
    static const char header[] = "{\"w\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"q\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[8,10]}}";
    char st[8 + sizeof header - 1 + 10] = { 0 };
    const char *path = write_pickle(pickle, sizeof pickle - 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(load_w(path, false), CKPT_MISMATCH);
        if (strstr(ckpt_last_error(), i == 0 ? "2 of its names are not bound (q, t)" : "1 of its names is not bound (q)") == NULL)
            fail_msg("%s", ckpt_last_error());
        assert_non_null(strstr(ckpt_last_error(), i == 0 ? "'q' is a tensor that cannot be read (torch._utils._rebuild_sparse_tensor)"
                                                         : "'q' is a tensor that cannot be read (F4)"));
        assert_int_equal(load_w(path, true), CKPT_OK);
        assert_non_null(strstr(heard, i == 0 ? "(q, t)" : "(q)"));
        path = util_join(util_temp_dir(), "a.safetensors");
        le(st, sizeof header - 1, 8);
        memcpy(st + 8, header, sizeof header - 1);
        st[8 + sizeof header - 1] = 1;
        util_write(path, st, sizeof st);
    }
    assert_int_equal(load_w(write_pickle(plain, sizeof plain - 1), false), CKPT_OK);
    assert_string_equal(heard, "");
    static const char meta[] = "\x80\x02}(X\1\0\0\0wK\1X\1\0\0\0tctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"
        "_rebuild_meta_tensor_no_storage\ncmine\nSub\n)}tRu.";
    assert_int_equal(load_w(write_pickle(meta, sizeof meta - 1), false), CKPT_OK);
}

// What a file calls its values must not make lines of a log, or colours.
static void test_names_in_sentences(void **unused) {
    (void)unused;
    static const char pickle[] = "\x80\x02}(X\1\0\0\0wK\1X\x0d\0\0\0a\n[2] b\x1b[3m\xc2\x9b" "K\2X\2\0\0\0\xc3\xbcK\3u.";
    const char *path = write_pickle(pickle, sizeof pickle - 1);
    assert_int_equal(load_w(path, false), CKPT_MISMATCH);
    if (strstr(ckpt_last_error(), "(a?[2] b?[3m??, \xc3\xbc)") == NULL) fail_msg("%s", ckpt_last_error());
    assert_int_equal(load_w(path, true), CKPT_OK);
    if (strstr(heard, "(a?[2] b?[3m??, \xc3\xbc)\n") == NULL) fail_msg("%s", heard);
}

// Text that no file of ours can hold is not loaded: the next save could not be made.
static void test_text_no_utf8(void **unused) {
    (void)unused;
    static const char pickle[] = "\x80\x02}(X\1\0\0\0pX\4\0\0\0x\xed\xb2\x80u.";
    char got[16] = "old";
    ckpt_state st = { 0 };
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    ckpt_bind_text(&st, "p", got, sizeof got);
    d.load_path = write_pickle(pickle, sizeof pickle - 1);
    d.state = &st;
    assert_int_equal(ckpt_load(&d, NULL), CKPT_MISMATCH);
    assert_non_null(strstr(ckpt_last_error(), "p is text in the file with bytes that are no UTF-8, but bound as text"));
    assert_string_equal(got, "old");
    ckpt_state_free(&st);
}

static void test_other_files(void **unused) {
    (void)unused;
    static const char legacy[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";
    char tar[1024] = { 0 };
    memcpy(tar + 257, "ustar", 5);
    assert_refused("the form before 1.6", legacy, sizeof legacy - 1, CKPT_UNSUPPORTED, "torch.save(torch.load(");
    assert_refused("the form before 0.1.10", tar, sizeof tar, CKPT_UNSUPPORTED, "before 1.6");
    assert_refused("text", "hello, this is no checkpoint at all", 34, CKPT_CORRUPT, "no zip");
    assert_refused("nothing", "", 0, CKPT_CORRUPT, "empty");
}

// A very long level above the list of thousands of bools makes a small file that nobody could load: it is not written. What is
// written loads.
static ckpt_err save_long(const char *path, ckpt_state *st, int count, int level) {
    char *name = (char *)util_keep(malloc((size_t)level + 40), false);
    ckpt_load_desc l;
    memset(name, 'n', (size_t)level);
    for (int i = 0; i < count; i++) {
        (void)snprintf(name + level, 40, "/[%d]", i);
        ckpt_bind_bool(st, name, &data_bools[1]);
    }
    memset(&l, 0, sizeof l);
    l.load_path = path;
    l.state = st;
    ckpt_err e = ckpt_save(path, st, NULL);
    if (e == CKPT_OK && ckpt_load(&l, NULL) != CKPT_OK) fail_msg("%s: %s", path, ckpt_last_error());
    return e;
}

static void test_long_levels(void **state) {
    (void)state;
    static const struct { int count, level; ckpt_err want; const char *name; } rows[] = {
        { 3000, 16000, CKPT_ARG, "a.pt" }, { 3000, 16000, CKPT_ARG, "a.tar" }, { 3000, 16000, CKPT_ARG, "a.pt.gz" },
        { 1000, 16000, CKPT_OK, "b.pt" }, { 3000, 6000, CKPT_OK, "c.pt" }, { 3000, 5000, CKPT_OK, "d.tar" },
        { 3000, 16000, CKPT_OK, "e.safetensors" }, { 40000, 600, CKPT_OK, "g.pt" }
    };
    const char *dir = util_temp_dir();
    for (int i = 0; i < UTIL_COUNT(rows); i += UTIL_STRIDE(3)) {
        ckpt_state st;
        memset(&st, 0, sizeof st);
        ckpt_err e = save_long(util_join(dir, rows[i].name), &st, rows[i].count, rows[i].level);
        if (e != rows[i].want) fail_msg("%s: %s: %s", rows[i].name, ckpt_err_name(e), ckpt_last_error());
        if (e != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), "levels"));
        ckpt_state_free(&st);
    }
    for (int level = 5000; level < 10000; level += UTIL_STRIDE(10) * 250) {      // either refused or good to load
        ckpt_state st;
        memset(&st, 0, sizeof st);
        (void)save_long(util_join(dir, "f.pt"), &st, 3000, level);
        ckpt_state_free(&st);
    }
}

// Names for long lists of bools, but not for a pickle whose names no memory holds.
static void test_room_for_names(void **state) {
    (void)state;
    assert_true(ckpt__pt_text_room(1000000) > 200000000);
    assert_true(ckpt__pt_text_room(16 << 20) >= (uint64_t)4 << 30);
    assert_true(ckpt__pt_text_room(64 << 20) < (uint64_t)5 << 30);
    assert_true(ckpt__pt_text_room(1 << 30) >= (uint64_t)64 << 30);
    for (uint64_t size = 1; size < 1 << 30; size *= 2) assert_true(ckpt__pt_text_room(size) <= ckpt__pt_text_room(size + 1));
}

//-- names that all fall on one slot -------------------------------------------------

enum { ALIKE = 300, ALIKE_SLOTS = 1024, ALIKE_RUN = 60 };

// Slots taken side by side: about 15 at most where names fall anywhere, all of them where each falls on one place.
static void assert_spread(const int *slots, size_t n) {
    size_t run = 0, longest = 0;
    assert_int_equal(n, ALIKE_SLOTS);
    for (size_t i = 0; i < n; i++) {
        run = slots[i] != 0 ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    assert_in_range(longest, 1, ALIKE_RUN);
}

// Names that collide in one table do not in the next: otherwise a file could be made of such as cost the square of their number.
static void test_names_that_collide(void **unused) {
    (void)unused;
    static char names[ALIKE][24];
    static ckpt__pt_member members[ALIKE];
    ckpt__toc known, other;
    ckpt__pt_reader r;
    ckpt_state st;
    ckpt__toc_init(&known, NULL);
    ckpt__toc_init(&other, NULL);
    memset(&r, 0, sizeof r);
    memset(&st, 0, sizeof st);
    known.slots = (int *)ckpt__mem_alloc(&known.allocator, ALIKE_SLOTS * sizeof *known.slots);
    known.slot_count = ALIKE_SLOTS;
    assert_non_null(known.slots);
    for (unsigned i = 0, n = 0; n < ALIKE; i++) {
        (void)snprintf(names[n], sizeof names[n], "name %u", i);
        if (ckpt__toc_slot(&known, names[n]) == 7) n++;
    }
    for (int i = 0; i < ALIKE; i++) {
        members[i].name = names[i];
        members[i].name_len = strlen(names[i]);
        assert_non_null(ckpt__toc_entry(&other, names[i], strlen(names[i]), CKPT_KIND_INT));
        ckpt_bind_int(&st, names[i], data_ints);
    }
    assert_int_equal(ckpt__toc_finish(&other), CKPT_OK);
    assert_spread(other.slots, other.slot_count);
    r.toc = &other;
    r.members = members;
    r.count = ALIKE;
    assert_int_equal(ckpt__pt_index(&r), CKPT_OK);
    assert_spread(r.slots, r.slot_count);
    assert_int_equal(st.err, CKPT_OK);
    assert_spread(st.binds->slots, st.binds->slot_count);
    ckpt__mem_free(&other.allocator, r.slots, r.slot_count * sizeof *r.slots);
    ckpt__toc_free(&known);
    ckpt__toc_free(&other);
    ckpt_state_free(&st);
}

// The same of the tree that a .pt is written from.
static void test_keys_that_collide(void **unused) {
    (void)unused;
    static char keys[ALIKE][24];
    ckpt__toc any;
    ckpt__pt_tree known, other;
    bool fresh;
    ckpt__toc_init(&any, NULL);
    memset(&known, 0, sizeof known);
    memset(&other, 0, sizeof other);
    known.allocator = other.allocator = &any.allocator;
    for (int i = 0; i < 2; i++) {
        ckpt__pt_tree *t = i == 0 ? &known : &other;
        assert_int_equal(ckpt__mem_room(t->allocator, (void **)&t->nodes, sizeof *t->nodes, &t->cap, 1), CKPT_OK);
        memset(t->nodes, 0, sizeof *t->nodes);
        t->count = 1;
    }
    for (unsigned i = 0, n = 0; n < ALIKE; i++, known.count = 1) {
        (void)snprintf(keys[n], sizeof keys[n], "name %u", i);
        int made = ckpt__pt_tree_child(&known, 0, keys[n], strlen(keys[n]), &fresh);
        assert_int_equal(made, 1);
        known.slots[known.nodes[made].hash & (known.slot_count - 1)] = 0;
        if (known.nodes[made].hash % ALIKE_SLOTS == 7) n++;
    }
    for (int i = 0; i < ALIKE; i++) assert_int_equal(ckpt__pt_tree_child(&other, 0, keys[i], strlen(keys[i]), &fresh), i + 1);
    assert_spread(other.slots, other.slot_count);
    ckpt__pt_tree_free(&known);
    ckpt__pt_tree_free(&other);
    ckpt__toc_free(&any);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds), cmocka_unit_test(test_empty_state), cmocka_unit_test(test_inside_a_file),
            cmocka_unit_test(test_toc_with_files),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_golden), cmocka_unit_test(test_every_byte), cmocka_unit_test(test_every_length),
            cmocka_unit_test(test_sentence_names_the_entry),
        cmocka_unit_test(test_names_that_conflict), cmocka_unit_test(test_values_that_cannot_be_written),
            cmocka_unit_test(test_lists), cmocka_unit_test(test_many),
        cmocka_unit_test(test_every_allocation), cmocka_unit_test(test_shapes), cmocka_unit_test(test_odd_texts), cmocka_unit_test(test_zip_structure),
            cmocka_unit_test(test_clocks_saved_again), cmocka_unit_test(test_zip64_nonsense),
        cmocka_unit_test(test_lost_tensors),
        cmocka_unit_test(test_names_in_sentences),
        cmocka_unit_test(test_text_no_utf8),
        cmocka_unit_test(test_bombs), cmocka_unit_test(test_shared_values), cmocka_unit_test(test_other_files), cmocka_unit_test(test_long_levels),
            cmocka_unit_test(test_room_for_names), cmocka_unit_test(test_names_that_collide), cmocka_unit_test(test_keys_that_collide)
    };
    util_clear_env();
    fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
