/* torch_interop.c: what torch_interop.py drives: writes .pt files of known contents, and prints what a .pt holds.

   torch_interop write FILE        everything that torch 1.13 knows
   torch_interop write-plain FILE  the same without floats, for torch 1.13's weights_only
   torch_interop write-new FILE    dtypes that came with torch 2.1 and 2.3
   torch_interop write-big FILE    a sparse file with a tensor of 5 GiB and one behind it
   torch_interop write-many FILE   100,000 tensors
   torch_interop dump FILE         one line per entry: kind, name, then what it is
*/
#define CKPT_IMPLEMENTATION
#define CKPT_NO_REMOTE
#define CKPT_STATIC
#include "../ckpt.h"
#include "util.h"
#include "pt_util.h"

static void put_file(const char *path, const ckpt_state *st) {
    size_t size;
    if (st->err != CKPT_OK) { fprintf(stderr, "%s\n", ckpt_last_error()); exit(1); }
    char *bytes = pt_make(st->items, (size_t)st->count, "my run", 0, &size);
    util_write(path, bytes, size);
    free(bytes);
}

static ckpt_tensor tensor(ckpt_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c, void *data) {
    ckpt_tensor t = { dtype, ndim, { a, b, c, 0, 0, 0, 0, 0 }, data, false, { 0 }, { 0 } };
    return t;
}

static uint64_t patterns[16];

static void bind_tensors(ckpt_state *st) {
    static const struct { const char *name; ckpt_dtype dtype; } all[] = {
        { "float64", CKPT_F64 }, { "float32", CKPT_F32 }, { "float16", CKPT_F16 }, { "bfloat16", CKPT_BF16 },
            { "int64", CKPT_I64 },
        { "int32", CKPT_I32 }, { "int16", CKPT_I16 }, { "int8", CKPT_I8 }, { "uint8", CKPT_U8 }, { "complex64", CKPT_C64 },
        { "complex128", CKPT_C128 }
    };
    static bool flags[5] = { true, false, true, true, false };
    static float one = 42.5f, five[5] = { 1, 2, 3, 4, 5 };
    static float *big = NULL;
    for (int i = 0; i < 16; i++) patterns[i] = 0x0102030405060708u * (uint64_t)(i + 1) & 0x3FFF3FFF3FFF3F3Fu;
    for (int i = 0; i < UTIL_COUNT(all); i++) {
        ckpt_tensor t = tensor(all[i].dtype, 2, 2, 3, 0, patterns);
        ckpt_bind(st, util_fmt("state/model/%s", all[i].name), &t);
    }
    ckpt_tensor b = tensor(CKPT_BOOL, 1, 5, 0, 0, flags), zero = tensor(CKPT_F32, 3, 4, 0, 2, NULL),
        scalar = tensor(CKPT_F32, 0, 0, 0, 0, &one);
    ckpt_bind(st, "state/model/bool", &b);
    ckpt_bind(st, "state/model/empty", &zero);
    ckpt_bind(st, "state/model/scalar", &scalar);
    ckpt_tensor deep = { CKPT_F32, 5, { 1, 5, 1, 1, 1, 0, 0, 0 }, five, false, { 0 }, { 0 } };
    ckpt_bind(st, "state/model/deep", &deep);
    ckpt_bind_f32(st, "state/model/tied.a", five, 5);
    ckpt_bind_f32(st, "state/model/tied.b", five, 5);
    if (big == NULL) big = (float *)util_keep(calloc(40000, sizeof *big), false);
    for (int i = 0; i < 40000; i++) big[i] = (float)i;
    ckpt_bind_f32(st, "state/model/big", big, 40000);
}

static void bind_scalars(ckpt_state *st, bool floats) {
    static int64_t ints[] = { 0, 255, 256, 65535, 65536, 2147483647, 2147483648, -1, -128, -129, -32769, -2147483648, -2147483649,
                              INT64_MAX, INT64_MIN, 140737488355328, -140737488355328 };
    static double lr = 0.001, inf = HUGE_VAL, wd[2] = { 0.25, -0.0 };
    static bool yes = true, no = false;
    static char text[32] = "gr\xc3\xbc\xc3\x9f" "e", none[4] = "", code[8] = { 0, 1, (char)0xFF, 10, 'a', (char)0x80, 0, 7 };
    for (int i = 0; i < UTIL_COUNT(ints); i++) ckpt_bind_int(st, util_fmt("state/ints/%d", i), &ints[i]);
    // bound out of order: the list must come out in order
    ckpt_bind_int(st, "state/optimizers/AdamW/param_groups/[1]/step", &ints[2]);
    ckpt_bind_int(st, "state/optimizers/AdamW/param_groups/[0]/step", &ints[1]);
    ckpt_bind_bool(st, "state/optimizers/AdamW/param_groups/[0]/amsgrad", &yes);
    ckpt_bind_bool(st, "state/optimizers/AdamW/param_groups/[1]/amsgrad", &no);
    ckpt_bind_text(st, "state/text", text, sizeof text);
    ckpt_bind_text(st, "state/none", none, sizeof none);
    ckpt_bind_bytes(st, "state/code", code, sizeof code);
    ckpt_bind_bytes(st, "state/nothing", code, 0);
    if (!floats) return;
    ckpt_bind_float(st, "state/optimizers/AdamW/param_groups/[0]/lr", &lr);
    ckpt_bind_float(st, "state/inf", &inf);
    ckpt_bind_float(st, "state/wd/[0]", &wd[0]);
    ckpt_bind_float(st, "state/wd/[1]", &wd[1]);
}

static void bind_new(ckpt_state *st) {
    static const struct { const char *name; ckpt_dtype dtype; } all[] = {
        { "float8_e4m3fn", CKPT_F8_E4M3 }, { "float8_e5m2", CKPT_F8_E5M2 }, { "uint16", CKPT_U16 }, { "uint32", CKPT_U32 },
            { "uint64", CKPT_U64 }
    };
    for (int i = 0; i < 16; i++) patterns[i] = 0x0102030405060708u * (uint64_t)(i + 1);
    for (int i = 0; i < UTIL_COUNT(all); i++) {
        ckpt_tensor t = tensor(all[i].dtype, 2, 2, 3, 0, patterns);
        ckpt_bind(st, all[i].name, &t);
    }
}

// The plan's structure is written where it belongs and the tensor's zeros are left as a hole; their sum comes from joining.
static void write_big(const char *path) {
    uint64_t size = 5ull << 30;
    static int64_t after[3] = { 7, 8, 9 };
    char nothing[1] = { 0 };
    ckpt_tensor big = { CKPT_U8, 1, { 0 }, nothing, false, { 0 }, { 0 } }, small = tensor(CKPT_I64, 1, 3, 0, 0, after);
    big.shape[0] = (int64_t)size;
    char names[2][8] = { "big", "small" };
    ckpt__binding items[2];
    memset(items, 0, sizeof items);
    items[0].name = names[0];
    items[1].name = names[1];
    items[0].kind = items[1].kind = CKPT_KIND_TENSOR;
    items[0].tensor = big;
    items[1].tensor = small;
    items[0].size = (size_t)size;
    items[1].size = sizeof after;
    ckpt__plan p;
    ckpt__plan_init(&p, NULL, NULL);
    if (ckpt__pt_plan(&p, items, 2, "huge") != CKPT_OK || ckpt__plan_finish(&p) != CKPT_OK) util_die("cannot plan", path);
    char *zeros = (char *)calloc(1, 1 << 20);
    uint32_t crc = 0, part = ckpt__digest_crc32(0, zeros, 1 << 20);
    for (int i = 0; i < 5 << 10; i++) crc = ckpt__digest_crc32_join(crc, part, 1 << 20);
    free(zeros);
    for (size_t b = 0; b < p.blob_count; b++) p.blobs[b].crc = 0;
    for (size_t s = 0; s < p.seg_count; s++) {
        ckpt__seg *g = &p.segs[s];
        if (g->blob < 0) continue;
        const void *from = g->kind == CKPT__SEG_BYTES ? (const void *)(p.bytes.data + g->at) : g->src;
        p.blobs[g->blob].crc = g->src == nothing ? crc : ckpt__digest_crc32(0, from, (size_t)g->size);
    }
    for (size_t i = 0; i < p.fixup_count; i++) {
        const ckpt__fixup *f = &p.fixups[i];
        uint32_t sum = f->blob == CKPT__FIXUP_STRUCTURE ? pt_structure_sum(&p, f) : p.blobs[f->blob].crc;
        if (f->hex) pt_hex(p.bytes.data + f->at, sum);
        else for (int k = 0; k < 4; k++) p.bytes.data[f->at + (size_t)k] = (char)(sum >> (8 * k) & 255);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)p.size) != 0) util_die("cannot create", path);
    for (size_t s = 0; s < p.seg_count; s++) {
        const ckpt__seg *g = &p.segs[s];
        const void *from = g->kind == CKPT__SEG_BYTES ? (const void *)(p.bytes.data + g->at) : g->src;
        if (g->src != nothing && pwrite(fd, from, (size_t)g->size, (off_t)g->offset) != (ssize_t)g->size)
            util_die("cannot write", path);
    }
    close(fd);
    ckpt__plan_free(&p);
}

static void write_many(const char *path) {
    ckpt_state st = { 0 };
    static float data[256];
    for (int i = 0; i < 256; i++) data[i] = (float)i;
    for (int i = 0; i < 100000; i++) ckpt_bind_f32(&st, util_fmt("state/model/layer.%d.weight", i), data, 4 + i % 8);
    put_file(path, &st);
    ckpt_state_free(&st);
}

static void print_hex(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%02x", (unsigned char)p[i]);
}

static void print_entry(const ckpt__entry *e, int fd) {
    static const char *const kinds[] = { "?", "tensor", "int", "float", "bool", "text", "bytes", "none", "file", "other" };
    printf("%s\t", kinds[(int)e->kind]);
    print_hex(e->name, strlen(e->name));
    printf("\t");
    if (e->kind == CKPT_KIND_INT || e->kind == CKPT_KIND_BOOL) printf("%lld", (long long)e->i);
    if (e->kind == CKPT_KIND_FLOAT) printf("%a", e->f);
    if (e->kind == CKPT_KIND_TEXT) print_hex(e->text, (size_t)e->size);
    if (e->kind == CKPT_KIND_OTHER) print_hex(e->text != NULL ? e->text : "", e->text != NULL ? strlen(e->text) : 0);
    if (e->kind == CKPT_KIND_TENSOR || e->kind == CKPT_KIND_BYTES) {
        ckpt__entry flat = *e;
        if (e->kind == CKPT_KIND_BYTES) {
            flat.dtype = CKPT_U8;
            flat.ndim = 1;
            flat.shape[0] = (int64_t)e->size;
            flat.stride[0] = 1;
        }
        printf("%s\t", ckpt__state_dtype_name(flat.dtype));
        for (int i = 0; i < flat.ndim; i++) printf("%s%lld", i > 0 ? "," : "", (long long)flat.shape[i]);
        printf("\t");
        char *p = flat.size > 1u << 20 ? NULL : pt_elements(&flat, fd);
        if (p != NULL) print_hex(p, (size_t)e->size);
        else printf("large %llu", (unsigned long long)e->size);
        free(p);
    }
    printf("\n");
}

static int dump(const char *path) {
    ckpt__toc t;
    ckpt__source src = { open(path, O_RDONLY), path, 0, 0 };
    struct stat st;
    if (src.fd < 0 || fstat(src.fd, &st) != 0) util_die("cannot open", path);
    src.size = (uint64_t)st.st_size;
    ckpt__toc_init(&t, NULL);
    ckpt_err e = src.size < 1u << 30 ? pt_verify(&t, &src) : ckpt__pt_read(&t, &src);
    if (e != CKPT_OK) printf("%s\t%s\n", ckpt_err_name(e), ckpt_last_error());
    else for (size_t i = 0; i < t.count; i++) print_entry(&t.entries[i], src.fd);
    ckpt__toc_free(&t);
    close(src.fd);
    return 0;
}

int main(int argc, char **argv) {
    ckpt_state st = { 0 };
    const char *what = argc == 3 ? argv[1] : "";
    if (strcmp(what, "dump") == 0) return dump(argv[2]);
    if (strcmp(what, "write-big") == 0) { write_big(argv[2]); return 0; }
    if (strcmp(what, "write-many") == 0) { write_many(argv[2]); return 0; }
    if (strcmp(what, "write") == 0 || strcmp(what, "write-plain") == 0) {
        bind_tensors(&st);
        bind_scalars(&st, strcmp(what, "write") == 0);
    } else if (strcmp(what, "write-new") == 0) {
        bind_new(&st);
    } else {
        fprintf(stderr, "torch_interop: unknown command\n");
        return 2;
    }
    put_file(argv[2], &st);
    ckpt_state_free(&st);
    return 0;
}
