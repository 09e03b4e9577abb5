/* fuzz_util.h: for fuzz targets that read files: the input as a file, and what must hold of a table of contents.

   Include it after ckpt.h.
*/
#ifndef FUZZ_UTIL_H
#define FUZZ_UTIL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// One unnamed file for all inputs. The input begins `base` bytes into it.
static inline ckpt__source fuzz_source(const uint8_t *data, size_t size, uint64_t base) {
    static int fd = -1;
    ckpt__source src;
    if (fd < 0 && ckpt__os_open_temp(&fd, "/dev/shm") != CKPT_OK && ckpt__os_open_temp(&fd, "/tmp") != CKPT_OK) abort();
    if (ftruncate(fd, (off_t)(base + size)) != 0 || pwrite(fd, data, size, (off_t)base) != (ssize_t)size) abort();
    src.fd = fd;
    src.path = "input";
    src.base = base;
    src.size = size;
    return src;
}

// Everything that is listed lies in the file, blobs follow each other, and a failure has a sentence.
static inline void fuzz_check(const ckpt__toc *t, const ckpt__source *src, ckpt_err e) {
    if (e != CKPT_OK) {
        if (ckpt__error_last.text[0] == 0) __builtin_trap();
        return;
    }
    uint64_t at = 0, end = src->base + src->size;
    for (size_t i = 0; i < t->blob_count; i++) {
        const ckpt__blob *b = &t->blobs[i];
        if (b->offset < at || b->offset > end || b->size > end - b->offset) __builtin_trap();
        at = b->offset + b->size;
    }
    for (size_t i = 0; i < t->count; i++) {
        const ckpt__entry *x = &t->entries[i];
        if (x->blob >= (int)t->blob_count || ckpt__toc_find(t, x->name) != (int)i) __builtin_trap();
        if (x->blob < 0) continue;
        const ckpt__blob *b = &t->blobs[x->blob];
        if (x->offset < b->offset || x->offset + x->size > b->offset + b->size) __builtin_trap();
    }
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    job.threads = 1;
    job.no_direct = true;
    e = ckpt__engine_read(src, t, NULL, 0, true, NULL, &job);
    if (e != CKPT_OK && e != CKPT_CORRUPT) __builtin_trap();
}

#include "fuzz_main.h"

#endif // FUZZ_UTIL_H
