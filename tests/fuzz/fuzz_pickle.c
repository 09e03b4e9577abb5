/* fuzz_pickle.c: any bytes as a pickle, and its tree as entries. Memory stays in proportion to the input.

   clang -fsanitize=fuzzer,address -g tests/fuzz/fuzz_pickle.c -lpthread; or -DCKPT_FUZZ_MAIN to replay files.
*/
#define CKPT_IMPLEMENTATION
#define CKPT_NO_REMOTE
#define CKPT_STATIC
#include "../../ckpt.h"
#include "fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static size_t live, most;

static void *counted(void *p, size_t old_size, size_t new_size, void *user) {
    (void)user;
    live += new_size - old_size;
    if (live > most) abort();
    if (new_size != 0) return realloc(p, new_size);
    free(p);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    ckpt_allocator a = { counted, NULL };
    ckpt__source src = { -1, "fuzz", 0, 1 << 20 };
    ckpt__pt_member storage;
    ckpt__pt_reader r;
    ckpt__toc t;
    uint32_t root = 0;
    if (n > 1 << 16) return 0;
    live = 0;
    most = ((size_t)256 << 20) + 1024 * n;
    memset(&storage, 0, sizeof storage);
    storage.name = "a/data/0";
    storage.name_len = 8;
    storage.size = 64;
    storage.entry = -1;
    memset(&r, 0, sizeof r);
    ckpt__toc_init(&t, &a);
    r.toc = &t;
    r.src = &src;
    r.members = &storage;
    r.count = 1;
    r.stem = "a";
    r.stem_len = 1;
    r.text_left = ckpt__pt_text_room(n);
    r.entries_max = ckpt__pt_entries_room(n);
    ckpt__buf_init(&r.name, &a);
    ckpt__buf_init(&r.path, &a);
    if (ckpt__pt_index(&r) == CKPT_OK && ckpt__pickle_read(&r.pickle, &a, p, n, &root) == CKPT_OK &&
        ckpt__pt_walk(&r, root, 0) == CKPT_OK &&
        ckpt__pt_rename(&r) == CKPT_OK && ckpt__toc_finish(&t) == CKPT_OK) {
        for (size_t i = 0; i < t.count; i++) {
            const ckpt__entry *e = &t.entries[i];
            if (ckpt__toc_find(&t, e->name) != (int)i) abort();
            if (e->kind == CKPT_KIND_TENSOR && e->blob < 0 && (e->text == NULL || e->text[e->size] != 0)) abort();
            if (e->kind != CKPT_KIND_TENSOR || e->blob < 0 || e->size == 0) continue;
            uint64_t last = e->offset, each = ckpt__state_dtype_size(e->dtype);
            for (int d = 0; d < e->ndim; d++) last += (uint64_t)(e->shape[d] - 1) * (uint64_t)e->stride[d] * each;
            if (last + each > 64) abort();                  // behind the storage's end
        }
    }
    ckpt__mem_free(&a, r.slots, r.slot_count * sizeof *r.slots);
    ckpt__pickle_free(&r.pickle);
    ckpt__buf_free(&r.name);
    ckpt__buf_free(&r.path);
    ckpt__toc_free(&t);
    if (live != 0) abort();
    return 0;
}
