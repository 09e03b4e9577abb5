// Fuzzes the reader of .metadata: any bytes are a listing or damage. What is taken is sound: names stay in the directory, pieces lie
// inside of their files and wholes, and printed again it reads the same. The input's first byte says whether the checksum at the end is
// put right first, so that the fuzzer gets behind it. Without a single file there every load ends with an error.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fuzz_main.h"

#define CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)

static const char tail[] = ",\n\"crc32\":\"12345678\"}\n";

// Closes the text with the sum that it has.
static size_t seal(char *text, size_t size) {
    const size_t n = sizeof tail - 1;
    if (size < n || memcmp(text + size - n, tail, n - 11) != 0) {
        memcpy(text + size, tail, n);
        size += n;
    }
    char sum[9];
    (void)snprintf(sum, sizeof sum, "%08lx", (unsigned long)ckpt__digest_crc32(0, text, size - n));
    memcpy(text + size - 11, sum, 8);
    memcpy(text + size - 3, "\"}\n", 3);
    return size;
}

static void look(const ckpt__shard_meta *m) {
    for (size_t i = 0; i < m->file_count; i++) {
        CHECK(ckpt__index_name_ok(m->files[i].name) && strchr(m->files[i].name, '/') == NULL && m->files[i].name[0] != '.');
    }
    for (size_t i = 0; i < m->view.toc.count; i++) {
        const ckpt__entry *e = &m->view.toc.entries[i];
        uint64_t held = 0;
        CHECK(ckpt__toc_find(&m->view.toc, e->name) == (int)i);
        if (!ckpt__shard_has_bytes(e->kind)) continue;
        for (size_t k = m->first[i]; k < m->first[i + 1]; k++) {
            const ckpt__shard_piece *p = &m->pieces[k];
            uint64_t size = ckpt__shard_volume(m, p);
            CHECK(p->entry == i && p->file < m->file_count && ckpt__shard_inside(e, m->numbers + p->numbers));
            CHECK(p->place <= m->files[p->file].content && size <= m->files[p->file].content - p->place);
            CHECK(!p->has_sums || p->sums + (size - 1) / m->block < m->sum_count);
            held += size;
        }
        CHECK(held == e->size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckpt__shard_meta m, back;
    ckpt__buf text;
    ckpt_allocator a = { NULL, NULL };
    if (size == 0) return 0;
    char *copy = (char *)malloc(size + sizeof tail);
    CHECK(copy != NULL);
    size_t n = size - 1;
    memcpy(copy, data + 1, n);
    if (data[0] & 1) n = seal(copy, n);
    ckpt_err e = ckpt__shard_parse(&m, &a, copy, n);
    free(copy);
    if (e != CKPT_OK) {
        CHECK(e == CKPT_CORRUPT || e == CKPT_UNSUPPORTED);
        return 0;
    }
    look(&m);
    ckpt__buf_init(&text, &a);
    CHECK(ckpt__shard_print(&m, &text) == CKPT_OK);
    CHECK(ckpt__shard_parse(&back, &a, text.data, text.len) == CKPT_OK);
    CHECK(back.file_count == m.file_count && back.piece_count == m.piece_count && back.view.toc.count == m.view.toc.count);
    CHECK(back.sum_count == m.sum_count && back.world == m.world && back.block == m.block);
    look(&back);
    bool whole = false;
    text.len = 0;
    CHECK(ckpt__shard_hf_index(&m, &text, &whole) == CKPT_OK);
    ckpt__buf_free(&text);
    ckpt__shard_free(&back);
    ckpt__shard_free(&m);
    return 0;
}
