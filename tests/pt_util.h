/* pt_util.h: a .pt in memory, made from a plan by the plainest possible code, and read back with its sums checked.

   The engine does the same with threads; the tests of >>pt use this, so that they test the plan and not the engine.
   Include it after ckpt.h and util.h.
*/
#ifndef PT_UTIL_H
#define PT_UTIL_H

static void pt_hex(char *at, uint32_t v) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 8; i++) at[i] = digits[v >> (28 - 4 * i) & 15];
}

static uint32_t pt_structure_sum(const ckpt__plan *p, const ckpt__fixup *f) {
    uint32_t crc = 0;
    for (size_t s = f->seg_first; s < p->seg_count; s++) {
        const ckpt__seg *g = &p->segs[s];
        if (g->kind == CKPT__SEG_BYTES && g->blob == -1) crc = ckpt__digest_crc32(crc, p->bytes.data + g->at, (size_t)g->size);
        if (g->kind == CKPT__SEG_BYTES && f->at >= g->at && f->at < g->at + g->size) break;
    }
    return crc;
}

// Bytes of the whole plan, from malloc. Checks on the way that segments touch and that late ones are marked late.
UTIL_FN char *pt_image(ckpt__plan *p, size_t *size) {
    char *out = (char *)calloc(1, (size_t)p->size + 1);
    uint64_t at = 0;
    assert_non_null(out);
    for (size_t b = 0; b < p->blob_count; b++) p->blobs[b].crc = 0;
    for (size_t s = 0; s < p->seg_count; s++) {
        const ckpt__seg *g = &p->segs[s];
        assert_true(g->offset == at);
        const void *from = g->kind == CKPT__SEG_BYTES ? (const void *)(p->bytes.data + g->at) : g->src;
        memcpy(out + at, from, (size_t)g->size);
        at += g->size;
        if (g->blob < 0) continue;
        ckpt__blob *b = &p->blobs[g->blob];
        b->crc = ckpt__digest_crc32(b->crc, from, (size_t)g->size);
        b->has_crc = true;
    }
    assert_true(at == p->size);
    for (size_t i = 0, s = 0; i < p->fixup_count; i++) {
        const ckpt__fixup *f = &p->fixups[i];
        if (i > 0) assert_true(f->at > p->fixups[i - 1].at);
        while (!(p->segs[s].kind == CKPT__SEG_BYTES && f->at >= p->segs[s].at && f->at < p->segs[s].at + p->segs[s].size)) s++;
        assert_true(p->segs[s].late == (f->blob == CKPT__FIXUP_STRUCTURE ? CKPT__LATE_ALL : CKPT__LATE_BLOBS));
        uint32_t crc = f->blob == CKPT__FIXUP_STRUCTURE ? pt_structure_sum(p, f) : p->blobs[f->blob].crc;
        char raw[8] = { (char)(crc & 255), (char)(crc >> 8 & 255), (char)(crc >> 16 & 255), (char)(crc >> 24 & 255) };
        if (f->hex) pt_hex(raw, crc);
        memcpy(p->bytes.data + f->at, raw, f->hex ? 8 : 4);
        memcpy(out + p->segs[s].offset + (f->at - p->segs[s].at), raw, f->hex ? 8 : 4);
    }
    *size = (size_t)p->size;
    return out;
}

// The .pt of a list of bindings, beginning with `before` bytes of filler.
UTIL_FN char *pt_make(const ckpt__binding *items, size_t count, const char *stem, size_t before, size_t *size) {
    ckpt__plan p;
    ckpt__plan_init(&p, NULL, NULL);
    for (size_t i = 0; i < before; i++) ckpt__plan_bytes(&p, "#", 1, -1);
    ckpt_err e = ckpt__pt_plan(&p, items, count, stem);
    if (e == CKPT_OK) e = ckpt__plan_finish(&p);
    if (e != CKPT_OK) fprintf(stderr, "%s\n", ckpt_last_error());
    assert_int_equal(e, CKPT_OK);
    char *out = pt_image(&p, size);
    ckpt__plan_free(&p);
    return out;
}

// The sum over all bytes between the blobs, taken here without the engine.
UTIL_FN ckpt_err pt_verify_structure(const ckpt__toc *t, const ckpt__source *src) {
    uint64_t at = t->structure_begin;
    uint32_t crc = 0;
    for (size_t i = 0; i <= t->blob_count; i++) {
        if (i < t->blob_count && (t->blobs[i].offset < at || t->blobs[i].offset >= t->structure_end)) continue;   // of a tar around it
        uint64_t end = i < t->blob_count ? t->blobs[i].offset : t->structure_end;
        char *p = (char *)malloc((size_t)(end - at) + 1);
        size_t got = 0;
        assert_non_null(p);
        assert_int_equal(ckpt__os_pread(src->fd, p, (size_t)(end - at), at, &got, src->path), CKPT_OK);
        crc = ckpt__digest_crc32(crc, p, got);
        free(p);
        if (i < t->blob_count) at = end + t->blobs[i].size;
    }
    crc = ckpt__digest_crc32(crc, "00000000", (size_t)t->structure_blank);
    return crc == t->structure_crc ? CKPT_OK : ckpt__error_set(CKPT_CORRUPT, "the headers are damaged");
}

// Reads and verifies: the toc, then the sum of every blob.
UTIL_FN ckpt_err pt_verify(ckpt__toc *t, const ckpt__source *src) {
    ckpt_err e = ckpt__pt_read(t, src);
    if (e == CKPT_OK) e = ckpt__toc_finish(t);
    for (size_t i = 0; e == CKPT_OK && i < t->blob_count; i++) {
        const ckpt__blob *b = &t->blobs[i];
        char *p = (char *)malloc((size_t)b->size + 1);
        size_t got = 0;
        assert_non_null(p);
        e = ckpt__os_pread(src->fd, p, (size_t)b->size, b->offset, &got, src->path);
        if (e == CKPT_OK && b->has_crc && ckpt__digest_crc32(0, p, (size_t)b->size) != b->crc)
            e = ckpt__error_set(CKPT_CORRUPT, "'%s' is damaged", b->name);
        free(p);
    }
    return e == CKPT_OK && t->has_structure_crc ? pt_verify_structure(t, src) : e;
}

// The elements of a tensor in row-major order, from malloc: what a load puts into bound memory.
UTIL_FN char *pt_elements(const ckpt__entry *e, int fd) {
    size_t each = ckpt__state_dtype_size(e->dtype), n = (size_t)e->size / each, got = 0;
    char *out = (char *)malloc((size_t)e->size + 1);
    assert_non_null(out);
    if (e->blob < 0) return (char *)memcpy(out, e->text, (size_t)e->size);
    for (size_t i = 0; i < n; i++) {
        uint64_t at = 0;
        size_t rest = i;
        for (int d = e->ndim - 1; d >= 0; d--) {
            at += (uint64_t)(rest % (size_t)e->shape[d]) * (uint64_t)e->stride[d];
            rest /= (size_t)e->shape[d];
        }
        assert_int_equal(ckpt__os_pread(fd, out + i * each, each, e->offset + at * each, &got, "tensor"), CKPT_OK);
        assert_int_equal(got, each);
    }
    return out;
}

#endif
