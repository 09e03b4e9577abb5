// Proves >>codec: names as Composer reads them; every codec by tool and, with CKPT_WITH_*, in-process, each reading the
// other's streams; damaged, cut and empty streams; tools that are missing, fail or are killed; nothing left running or open.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#define CKPT_IMPLEMENTATION
#define CKPT__OS_CHILD_HOPE child_hope
static double child_hope = 60.0;
#include "../ckpt.h"
#include "util.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static const char *const suffixes[] = { "bz2", "gz", "lz4", "lzma", "lzo", "xz", "zst" };

// The same codec by its tool, and in-process where this build has it.
static int variants(const char *suffix, ckpt__codec out[2]) {
    const ckpt__codec *c = ckpt__codec_by_suffix(suffix);
    assert_non_null(c);
    int n = 0;
    if (c->library != NULL) out[n++] = *c;
    out[n] = *c;
    out[n].library = NULL;
    if (ckpt__codec_tool(&out[n], true) == NULL) printf("SKIP: %s is not installed\n", c->tool);
    else n++;
    return n;
}

static int open_count(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void assert_no_children(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

// Bytes that compress a little: half text, half noise.
static unsigned char *sample(size_t n) {
    unsigned char *p = (unsigned char *)util_keep(malloc(n + 1), false);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        p[i] = (unsigned char)((i / 1000) % 2 == 0 ? (unsigned)('a' + i % 17) : (unsigned)(x >> 32) & 255u);
    }
    return p;
}

static ckpt_err encode(const ckpt__codec *c, const char *path, const void *data, size_t n, size_t piece) {
    ckpt__codec_writer w;
    (void)unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    ckpt_err e = ckpt__codec_open(&w, c, fd, path, NULL);
    for (size_t at = 0; e == CKPT_OK && at < n; at += piece)
        e = ckpt__codec_write(&w, (const char *)data + at, n - at < piece ? n - at : piece);
    if (w.open || w.err != CKPT_OK) {
        ckpt_err f = ckpt__codec_finish(&w);
        if (e == CKPT_OK) e = f;
    }
    close(fd);
    return e;
}

typedef struct got { ckpt__buf buf; uint64_t total, stop; ckpt_err err; } got;

static ckpt_err keep(const void *p, size_t n, void *user) {
    got *g = (got *)user;
    if (n == 0) g->total = g->buf.len = 0;
    g->total += n;
    ckpt__buf_add(&g->buf, p, n);
    return g->stop > 0 && g->total >= g->stop ? ckpt__error_set(CKPT_CANCELLED, "enough") : CKPT_OK;
}

static ckpt_err decode(const ckpt__codec *c, const char *path, got *g) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    uint64_t stop = g->stop;
    memset(g, 0, sizeof *g);
    g->stop = stop;
    ckpt_err e = ckpt__codec_decode(c, fd, path, keep, g, NULL);
    close(fd);
    return e;
}

static void check_same(const ckpt__codec *c, const char *path, const void *data, size_t n) {
    got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
    ckpt_err e = decode(c, path, &g);
    if (e != CKPT_OK) fail_msg("%s %s: %s", c->suffix, path, ckpt_last_error());
    assert_int_equal(g.buf.len, n);
    if (n > 0) assert_memory_equal(g.buf.data, data, n);
    ckpt__buf_free(&g.buf);
}

//-- names -------------------------------------------------------------------------

static void test_case_tables(void **state) {
    (void)state;
    util_table t = cases_tsv("is_tar.tsv");
    for (int i = 0; i < t.rows; i++)
        assert_int_equal(ckpt__codec_is_tar(cases_text(&t, i, "name")), cases_true(&t, i, "is_tar"));
    t = cases_tsv("is_compressed_pt.tsv");
    for (int i = 0; i < t.rows; i++)
        assert_int_equal(ckpt__codec_is_compressed_pt(cases_text(&t, i, "name")), cases_true(&t, i, "is_compressed_pt"));
    t = cases_tsv("tar_write_mode.tsv");
    for (int i = 0; i < t.rows; i++) {
        const ckpt__codec *c;
        bool ok = strcmp(cases_text(&t, i, "status"), "ok") == 0;
        assert_true(ckpt__codec_is_tar(cases_text(&t, i, "filename")));
        assert_int_equal(ckpt__codec_tar_mode(cases_text(&t, i, "filename"), &c), ok ? CKPT_OK : CKPT_ARG);
        assert_null(c);         // mode "w": not compressed
    }
    t = cases_tsv("compressor_lookup.tsv");
    for (int i = 0; i < t.rows; i++) {
        const ckpt__codec *c;
        const char *status = cases_text(&t, i, "status");
        ckpt_err want = strcmp(status, "ok") == 0 ? CKPT_OK : strcmp(status, "ValueError") == 0 ? CKPT_ARG : CKPT_UNSUPPORTED;
        assert_int_equal(ckpt__codec_pt(cases_text(&t, i, "filename"), &c), want);
        if (want == CKPT_OK) assert_string_equal(c->tool, cases_text(&t, i, "tool"));
        else assert_null(c);
    }
    t = cases_tsv("compressors.tsv");
    for (int i = 0; i < t.rows; i++)
        assert_string_equal(ckpt__codec_by_suffix(cases_text(&t, i, "extension"))->tool, cases_text(&t, i, "tool"));
}

static void test_tar_modes(void **state) {
    (void)state;
    static const char *const rows[][2] = { { "a.tar.gz", "gz" }, { "a.tgz", "gz" }, { "a.tar.bz2", "bz2" }, { "d.x/a.tar.lzma", "xz" } };
    const ckpt__codec *c;
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        assert_int_equal(ckpt__codec_tar_mode(rows[i][0], &c), CKPT_OK);
        assert_string_equal(c->suffix, rows[i][1]);
    }
    assert_int_equal(ckpt__codec_tar_mode("a.tar.xz", &c), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), ".tar.lzma"));
}

static void test_magic(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            const char *path = util_join(dir, suffixes[i]);
            size_t size;
            assert_int_equal(encode(&v[k], path, "hello", 5, 5), CKPT_OK);
            char *bytes = util_read(path, &size);
            const ckpt__codec *c = ckpt__codec_by_magic((const unsigned char *)bytes, size);
            assert_non_null(c);
            assert_string_equal(c->suffix, suffixes[i]);
        }
    }
    static const unsigned char zip[16] = { 'P', 'K', 3, 4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0 };
    static const unsigned char tensors[16] = { 0xf8, 0x0f, 0, 0, 0, 0, 0, 0, '{', '"' }, other[16] = { 0x40, 0, 1, 0, 0, 0, 0, 0, '{', '"', 'a', '"', ':' };
    static const unsigned char zeros[16] = { 0 };
    // Frames to skip stand before zstd's (pzstd writes one before each) and lz4's; which it is says what follows them.
    static const unsigned char skipped[][28] = {
        { 0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 9, 9, 9, 9, 0x28, 0xb5, 0x2f, 0xfd },
        { 0x5f, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 0x53, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 7, 0x04, 0x22, 0x4d, 0x18 },
        { 0x51, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4 }, { 0x50, 0x2a, 0x4d, 0x18, 20, 0, 0, 0, 'P', 'K', 3, 4 },
        { 0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 9, 9, 9, 9, 'P', 'K', 3, 4 }, { 0x60, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 0x28, 0xb5, 0x2f, 0xfd }
    };
    static const char *const said[] = { "zst", "lz4", "zst", "zst", NULL, NULL };
    for (int i = 0; i < UTIL_COUNT(skipped); i++) {
        const ckpt__codec *c = ckpt__codec_by_magic(skipped[i], 28);
        if ((c == NULL) != (said[i] == NULL) || (c != NULL && strcmp(c->suffix, said[i]) != 0))
            fail_msg("%d: %s", i, c != NULL ? c->suffix : "none");
    }
    for (size_t k = 0; k < 28; k++) (void)ckpt__codec_by_magic(skipped[1], k);
    assert_null(ckpt__codec_by_magic(zip, 16));
    assert_null(ckpt__codec_by_magic(tensors, 16));
    assert_null(ckpt__codec_by_magic(other, 16));
    assert_null(ckpt__codec_by_magic(zeros, 16));
    assert_null(ckpt__codec_by_magic(zeros, 0));
}

//-- streams -----------------------------------------------------------------------

// Every way of writing against every way of reading, at the edges of the blocks.
static void test_round_trips(void **state) {
    (void)state;
    static const size_t sizes[] = { 0, 1, 65536, 262144, 262145, 1300000 };
    static const size_t pieces[] = { 1u << 30, 1u << 30, 7777, 262144, 1u << 30, 100001 };
    unsigned char *data = sample(1300000);
    const char *dir = util_temp_dir();
    int before = open_count();
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int s = 0; s < UTIL_COUNT(sizes); s++) {
            for (int k = 0; k < n; k++) {
                const char *path = util_fmt("%s/%d.%s", dir, k, suffixes[i]);
                ckpt_err e = encode(&v[k], path, data, sizes[s], pieces[s]);
                if (e != CKPT_OK) fail_msg("%s %d: %s", suffixes[i], k, ckpt_last_error());
                for (int r = 0; r < n; r++) check_same(&v[r], path, data, sizes[s]);
            }
        }
    }
    assert_int_equal(open_count(), before);
    assert_no_children();
}

// Tools' words for a file that was cut off speak of the file, those for a disk that errs of the reading.
static void test_words_of_reading(void **state) {
    (void)state;
    assert_false(ckpt__codec_is_unread("zstd: /*stdin*\\ : Read error (39) : premature end"));
    assert_false(ckpt__codec_is_unread("gzip: stdin: unexpected end of file"));
    assert_true(ckpt__codec_is_unread("gzip: stdin: Input/output error"));
    assert_true(ckpt__codec_is_unread("xz: (stdin): Read error: Stale file handle"));
    assert_true(ckpt__codec_is_unread("bzip2: I/O or other error, bailing out.  Possible reason follows."));
}

static ckpt_err count_starts(const void *p, size_t n, void *user) {
    (void)p;
    *(int *)user += n == 0;
    return CKPT_OK;
}

// A file that was cut off is not decoded twice: its tool has read all of it.
static void test_cut_off_once(void **state) {
    (void)state;
    unsigned char *data = sample(400000);
    const char *path = util_join(util_temp_dir(), "cut");
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v), again = 0;
        size_t size;
        if (n == 0 || v[n - 1].library != NULL) continue;
        assert_int_equal(encode(&v[n - 1], path, data, 400000, 400000), CKPT_OK);
        char *bytes = util_read(path, &size);
        util_write(path, bytes, size / 2);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ckpt_err e = ckpt__codec_decode(&v[n - 1], fd, path, count_starts, &again, NULL);
        close(fd);
        if (e != CKPT_CORRUPT || again != 0) fail_msg("%s: %s, %d more: %s", suffixes[i], ckpt_err_name(e), again, ckpt_last_error());
    }
    assert_no_children();
}

// Cut short at many lengths: never a success.
static void test_truncated(void **state) {
    (void)state;
    unsigned char *data = sample(5000);
    const char *dir = util_temp_dir(), *cut = util_join(dir, "cut");
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            const char *path = util_fmt("%s/%d.%s", dir, k, suffixes[i]);
            size_t size;
            assert_int_equal(encode(&v[k], path, data, 5000, 5000), CKPT_OK);
            char *bytes = util_read(path, &size);
            size_t step = v[k].library != NULL ? UTIL_STRIDE(7) : 307, edge = step == 1 ? 0 : 10;      // a process for each is slow
            for (size_t len = 0; len < size; len += len < edge || size - len <= edge ? 1 : size - len < edge + step ? size - len - edge : step) {
                got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
                util_write(cut, bytes, len);
                ckpt_err e = decode(&v[k], cut, &g);
                ckpt__buf_free(&g.buf);
                if (e != CKPT_CORRUPT) fail_msg("%s %d cut to %zu: %s, %s", suffixes[i], k, len, ckpt_err_name(e), ckpt_last_error());
                assert_true(strlen(ckpt_last_error()) > 5);
            }
        }
    }
    assert_no_children();
}

// One bit turned over: found, or without effect on the content. Only .lzma has no checksum.
static void test_flipped(void **state) {
    (void)state;
    unsigned char *data = sample(3000);
    const char *dir = util_temp_dir();
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            const char *path = util_fmt("%s/%d.%s", dir, k, suffixes[i]);
            size_t size, harmless = 0;
            assert_int_equal(encode(&v[k], path, data, 3000, 3000), CKPT_OK);
            (void)util_read(path, &size);
            for (size_t at = 0; at < size; at += at < 12 ? 1 : v[k].library != NULL ? UTIL_STRIDE(7) : 97) {
                got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
                util_flip(path, at, 1u << (at % 8));
                ckpt_err e = decode(&v[k], path, &g);
                bool same = g.buf.len == 3000 && memcmp(g.buf.data, data, 3000) == 0;
                ckpt__buf_free(&g.buf);
                util_flip(path, at, 1u << (at % 8));
                harmless += e == CKPT_OK;
                if (e == CKPT_OK && !same && strcmp(suffixes[i], "lzma") != 0) fail_msg("%s %d: byte %zu", suffixes[i], k, at);
                if (e != CKPT_OK && e != CKPT_CORRUPT && e != CKPT_NOMEM && e != CKPT_UNSUPPORTED)
                    fail_msg("%s %d: byte %zu: %s", suffixes[i], k, at, ckpt_last_error());
            }
            if (strcmp(suffixes[i], "lzma") != 0) assert_in_range(harmless, 0, 40);
        }
    }
}

static void test_what_follows(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x");
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            size_t size;
            assert_int_equal(encode(&v[k], path, "hello", 5, 5), CKPT_OK);
            char *bytes = util_read(path, &size);
            char *two = (char *)util_keep(calloc(1, 2 * size + 8), false);
            memcpy(two, bytes, size);
            memcpy(two + size, "garbage", 7);
            got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
            util_write(path, two, size + 7);
            if (decode(&v[k], path, &g) != CKPT_CORRUPT) fail_msg("%s %d takes garbage", suffixes[i], k);
            ckpt__buf_free(&g.buf);
            memcpy(two + size, bytes, size);
            util_write(path, two, 2 * size);
            ckpt_err e = decode(&v[k], path, &g);
            bool lonely = strncmp(suffixes[i], "lz", 2) == 0 && suffixes[i][2] != '4';     // .lzma and .lzo: one stream each
            if (e != (lonely ? CKPT_CORRUPT : CKPT_OK)) fail_msg("%s %d twice: %s", suffixes[i], k, ckpt_last_error());
            if (e == CKPT_OK) assert_memory_equal(g.buf.data, "hellohello", 10);
            ckpt__buf_free(&g.buf);
            g.stop = 0;
            util_write(path, "no such stream at all, just text", 32);
            assert_int_equal(decode(&v[k], path, &g), CKPT_CORRUPT);
            ckpt__buf_free(&g.buf);
        }
    }
}

// The bytes of one stream with others before it, between two of them and behind: what the format allows is read, the rest refused.
static void check_parts(const char *suffix, const char *before, size_t before_n, const void *between, size_t between_n, bool good) {
    const char *path = util_join(util_temp_dir(), "x");
    ckpt__codec v[2];
    int n = variants(suffix, v);
    for (int k = 0; k < n; k++) {
        size_t size;
        got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
        assert_int_equal(encode(&v[k], path, "hello", 5, 5), CKPT_OK);
        char *bytes = util_read(path, &size), *all = (char *)util_keep(malloc(2 * (before_n + size + between_n)), false), *p = all;
        for (int i = 0; i < 2; i++) {
            memcpy(p, before, before_n);
            memcpy(p + before_n, bytes, size);
            memcpy(p + before_n + size, between, between_n);
            p += before_n + size + between_n;
        }
        util_write(path, all, (size_t)(p - all));
        ckpt_err e = decode(&v[k], path, &g);
        if (e != (good ? CKPT_OK : CKPT_CORRUPT)) fail_msg("%s %d: %s %s", suffix, k, ckpt_err_name(e), ckpt_last_error());
        if (good) assert_int_equal(g.buf.len, 10);
        if (good) assert_memory_equal(g.buf.data, "hellohello", 10);
        ckpt__buf_free(&g.buf);
    }
}

static void test_padding(void **state) {
    (void)state;
    static const char frame[] = "\x5a\x2a\x4d\x18\4\0\0\0\x28\xb5\x2f\xfd", zeros[600000] = { 0 };
    check_parts("zst", frame, 12, "", 0, true);
    check_parts("zst", frame, 12, frame, 12, true);
    check_parts("zst", frame, 12, "\x60\x2a\x4d\x18\0\0\0\0", 8, false);
    check_parts("zst", "", 0, frame, 9, false);
    check_parts("lz4", frame, 12, frame, 12, true);
    check_parts("xz", "", 0, zeros, 4, true);
    check_parts("xz", "", 0, zeros, 600000, true);
    check_parts("xz", "", 0, zeros, 599999, false);
    check_parts("xz", "", 0, zeros, 2, false);
    check_parts("xz", zeros, 4, "", 0, false);
    check_parts("bz2", "", 0, zeros, 4, false);
}

// gzip passes over zeros up to the end of the file, as a tape or a disk of whole blocks leaves them.
static void test_zeros_behind_gzip(void **state) {
    (void)state;
    static const char zeros[600000] = { 0 };
    static const size_t sizes[] = { 1, 511, 600000 };
    const char *path = util_join(util_temp_dir(), "x");
    ckpt__codec v[2];
    int n = variants("gz", v);
    for (int i = 0; i < 2 * UTIL_COUNT(sizes); i++) {
        for (int k = 0; k < n; k++) {
            size_t size, more = sizes[i / 2];
            got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
            assert_int_equal(encode(&v[k], path, "hello", 5, 5), CKPT_OK);
            char *bytes = util_read(path, &size), *all = (char *)util_keep(malloc(size + more + 1), false);
            memcpy(all, bytes, size);
            memcpy(all + size, zeros, more);
            all[size + more] = 'x';
            util_write(path, all, size + more + (size_t)(i % 2));
            ckpt_err e = decode(&v[k], path, &g);
            if (e != (i % 2 ? CKPT_CORRUPT : CKPT_OK)) fail_msg("%zu zeros %d %d: %s %s", more, i % 2, k, ckpt_err_name(e), ckpt_last_error());
            if (e == CKPT_OK) assert_int_equal(g.buf.len, 5);
            ckpt__buf_free(&g.buf);
        }
    }
}

// What `zstd --long=31` writes asks for windows beyond 128 MiB, which zstd refuses unless it is told otherwise. A frame costs the
// memory that its content fills; one that asks for more than any zstd writes is damaged.
static void test_wide_windows(void **state) {
    (void)state;
    static const struct { unsigned char window; bool good; } rows[] = {      // RFC 8878, 3.1.1.1.2: exponent << 3 | eighths
        { 17 << 3, true }, { 18 << 3 | 1, true }, { 19 << 3, true }, { 21 << 3, true }, { 21 << 3 | 1, false }, { 255, false }
    };
    const char *path = util_join(util_temp_dir(), "x");
    ckpt__codec v[2];
    int n = variants("zst", v);
    if (sizeof(size_t) < 8) return;
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        for (int k = 0; k < n; k++) {
            unsigned char frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0, rows[i].window, 5 << 3 | 1, 0, 0, 'h', 'e', 'l', 'l', 'o' };
            got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
            util_write(path, frame, sizeof frame);
            ckpt_err e = decode(&v[k], path, &g);
            bool little = rows[i].good && e == CKPT_NOMEM;       // of address space, which a limit or the machine may set
            if (e != (rows[i].good ? CKPT_OK : CKPT_CORRUPT) && !little) fail_msg("%d %d: %s %s", i, k, ckpt_err_name(e), ckpt_last_error());
            if (e == CKPT_OK) assert_memory_equal(g.buf.data, "hello", 5);
            ckpt__buf_free(&g.buf);
        }
    }
}

static ckpt_err count(const void *p, size_t n, void *user) {
    got *g = (got *)user;
    g->total = n > 0 ? g->total + n : 0;
    if (n > 0) g->buf.len = ckpt__mem_le(p, 1);
    return CKPT_OK;
}

// 100 MB through each, 10 through the slow ones; half of it noise.
static void test_large(void **state) {
    (void)state;
    enum { BLOCK = 1 << 20, TIMES = 32 };
    unsigned char *data = sample(BLOCK);
    const char *path = util_join(util_temp_dir(), "x");
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v), times = (suffixes[i][0] == 'b' || strstr("lzma xz", suffixes[i]) != NULL ? 12 : TIMES) / UTIL_STRIDE(4);
        for (int k = 0; k < n; k++) {
            ckpt__codec_writer w;
            got g = { { { NULL, NULL }, NULL, 0, 0, CKPT_OK }, 0, 0, CKPT_OK };
            int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            double start = ckpt__os_now();
            assert_int_equal(ckpt__codec_open(&w, &v[k], fd, path, NULL), CKPT_OK);
            for (int t = 0; t < times; t++) assert_int_equal(ckpt__codec_write(&w, data, BLOCK), CKPT_OK);
            assert_int_equal(ckpt__codec_finish(&w), CKPT_OK);
            double middle = ckpt__os_now();
            assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
            assert_int_equal(ckpt__codec_decode(&v[k], fd, path, count, &g, NULL), CKPT_OK);
            assert_int_equal(g.total, (uint64_t)times * BLOCK);
            printf("    %-4s %-10s encode %6.0f MiB/s, decode %6.0f MiB/s\n", suffixes[i], k == 0 && n == 2 ? "in-process" : "by tool",
                   times / (middle - start), times / (ckpt__os_now() - middle));
            close(fd);
        }
    }
}

//-- failures ----------------------------------------------------------------------

// Runs `fn` in a child process whose PATH is `path`, and hands its assertion failures on.
static void with_path(const char *path, void (*fn)(const char *dir), const char *dir) {
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("PATH", path, 1);
        fn(dir);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("status %x", (unsigned)status);
}

#define expect(x) do { if (!(x)) { printf("    line %d: %s; %s\n", __LINE__, #x, ckpt_last_error()); fflush(stdout); _exit(1); } } while (0)

static ckpt__codec by_tool(const char *suffix) {
    ckpt__codec c = *ckpt__codec_by_suffix(suffix);
    c.library = NULL;
    return c;
}

static void missing(const char *dir) {
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec c = by_tool(suffixes[i]);
        ckpt__codec_writer w;
        expect(ckpt__codec_check(&c) == CKPT_UNSUPPORTED);
        expect(strstr(ckpt_last_error(), c.tool) != NULL && strstr(ckpt_last_error(), c.package) != NULL);
        expect(c.option == NULL || strstr(ckpt_last_error(), c.option) != NULL);
        int fd = open(util_join(dir, "x"), O_RDWR | O_CREAT, 0600);
        int before = open_count();
        expect(ckpt__codec_open(&w, &c, fd, "x", NULL) == CKPT_UNSUPPORTED);
        expect(write(fd, "data", 4) == 4);
        got g;
        memset(&g, 0, sizeof g);
        expect(ckpt__codec_decode(&c, fd, "x", keep, &g, NULL) == CKPT_UNSUPPORTED);
        expect(open_count() == before);
        close(fd);
    }
}

static void test_missing_tool(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    with_path(dir, missing, dir);
}

static void fake(const char *dir, const char *tool, const char *script) {
    const char *path = util_join(dir, tool);
    util_write_text(path, util_fmt("#!/bin/sh\n%s\n", script));
    assert_int_equal(chmod(path, 0755), 0);
}

// What the loader says of a preload that is not there any more, whoever is started.
#define STALE(name) "echo \"ERROR: ld.so: object '" name "' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.\" >&2; "

// What a tool that misbehaves leads to: `encode` and `decode` are the errors, `says` is part of both sentences.
typedef struct bad { const char *script; ckpt_err encode, decode; const char *says; } bad;
static bad bad_tool;

static void misbehave(const char *dir) {
    ckpt__codec c = by_tool("zst");
    unsigned char *data = sample(3000000);
    const char *path = util_join(dir, "x");
    int before = open_count();
    ckpt_err e = encode(&c, path, data, 3000000, 50000);
    expect(e == bad_tool.encode);
    if (e != CKPT_OK) expect(strstr(ckpt_last_error(), bad_tool.says) != NULL);
    util_write(path, data, 3000000);
    got g;
    memset(&g, 0, sizeof g);
    e = decode(&c, path, &g);
    expect(e == bad_tool.decode);
    if (e != CKPT_OK) expect(strstr(ckpt_last_error(), bad_tool.says) != NULL);
    ckpt__buf_free(&g.buf);
    expect(open_count() == before);
    expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void test_bad_tools(void **state) {
    (void)state;
    static const bad rows[] = {
        { "head -c 200000; kill -9 $$", CKPT_IO, CKPT_NOMEM, "killed by signal 9" },
        { "head -c 200000 >/dev/null; echo its own words >&2; exit 3", CKPT_IO, CKPT_CORRUPT, "status 3: its own words" },
        { "echo >&2; echo second line >&2; cat >/dev/null; exit 1", CKPT_IO, CKPT_CORRUPT, "second line" },
        { "exit 127", CKPT_IO, CKPT_NOMEM, "could not be run" },          // which says nothing of the stream
        { "cat >/dev/null; echo 'zstd: error 104 : Failed creating I/O thread pool' >&2; exit 104", CKPT_IO, CKPT_NOMEM, "status 104" },
        { "cat >/dev/null; echo 'xz: (stdin): Cannot allocate memory' >&2; exit 1", CKPT_IO, CKPT_NOMEM, "Cannot allocate" },
        { "cat >/dev/null; echo 'Frame requires too much memory for decoding' >&2; exit 1", CKPT_IO, CKPT_CORRUPT, "too much" },
        { STALE("libtcmalloc.so.4") "cat >/dev/null; exit 1", CKPT_IO, CKPT_CORRUPT, "failed with status 1" },
        { STALE("memory.so") STALE("libpthread.so") "cat >/dev/null; echo damaged >&2; exit 1", CKPT_IO, CKPT_CORRUPT, "status 1: damaged" },
        { STALE("x.so") "cat >/dev/null; echo 'xz: (stdin): Cannot allocate memory' >&2; exit 1", CKPT_IO, CKPT_NOMEM, "Cannot allocate" },
        { "cat >/dev/null; echo zstd: $LC_ALL $KEPT >&2; exit 1", CKPT_IO, CKPT_CORRUPT, "zstd: C kept" },       // English is what is looked for
        { "cat >/dev/null; if [ $LC_ALL = C ]; then echo no memory; else echo kein Speicher; fi >&2; exit 1", CKPT_IO, CKPT_NOMEM, "no memory" },
        { "exit 0", CKPT_IO, CKPT_OK, "before its input did" },
        { "kill -ALRM $$", CKPT_IO, CKPT_NOMEM, "signal 14" },            // from outside, or as good as that
        { "kill -SEGV $$", CKPT_IO, CKPT_IO, "signal 11" },               // its own doing
        { "kill -TERM $$; kill -USR1 $$; printf '(\\265/\\375'; exec cat", CKPT_OK, CKPT_OK, "" }       // for the program, not for its tools
    };
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("KEPT", "kept", 1);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir();
        bad_tool = rows[i];
        fake(dir, "zstd", rows[i].script);
        with_path(util_fmt("%s:%s", dir, getenv("PATH")), misbehave, dir);
    }
    unsetenv("LC_ALL");
    unsetenv("KEPT");
}

// A file that cannot be read is not damaged, whatever the tool says of it.
static void test_unreadable(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "x");
    unsigned char *data = sample(600000);
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            got g;
            memset(&g, 0, sizeof g);
            assert_int_equal(encode(&v[k], path, data, 600000, 50000), CKPT_OK);
            int fd = open(path, O_WRONLY | O_CLOEXEC), before = open_count();
            ckpt_err e = ckpt__codec_decode(&v[k], fd, path, keep, &g, NULL);
            if (e != CKPT_IO) fail_msg("%s: %s: %s", suffixes[i], ckpt_err_name(e), ckpt_last_error());
            assert_non_null(strstr(ckpt_last_error(), "cannot read"));
            assert_int_equal(open_count(), before);
            ckpt__buf_free(&g.buf);
            close(fd);
        }
    }
    assert_no_children();
}

// A library that is short of memory says nothing of the stream either.
static void test_short_libraries(void **state) {
    (void)state;
    assert_true(ckpt__codec_is_short("Allocation error : not enough memory"));
    assert_false(ckpt__codec_is_short("Data corruption detected"));
    assert_false(ckpt__codec_is_short("libtcmalloc.so.4: no version information available"));
    assert_false(ckpt__codec_is_short("libpthread.so.0: no version information available"));
    assert_true(ckpt__codec_is_short("Thread creation failed"));
#ifdef CKPT_WITH_ZSTD
    assert_true(ckpt__codec_is_short(ZSTD_getErrorName((size_t)0 - 64)));       // zstd_errors.h: ZSTD_error_memory_allocation
    assert_false(ckpt__codec_is_short(ZSTD_getErrorName((size_t)0 - 16)));      // ZSTD_error_frameParameter_windowTooLarge
    assert_false(ckpt__codec_is_short(ZSTD_getErrorName((size_t)0 - 20)));      // ZSTD_error_corruption_detected
#endif
#ifdef CKPT_WITH_LZ4
    assert_true(ckpt__codec_is_short(LZ4F_getErrorName((size_t)0 - 9)));        // lz4frame_static.h: LZ4F_ERROR_allocation_failed
    assert_false(ckpt__codec_is_short(LZ4F_getErrorName((size_t)0 - 18)));      // LZ4F_ERROR_contentChecksum_invalid
#endif
}

// A sink that has enough does not wait for a tool that goes on for ever; an abort in the middle leaves nothing either.
static void endless(const char *dir) {
    ckpt__codec c = by_tool("zst");
    const char *path = util_join(dir, "x");
    int before = open_count();
    util_write_text(path, "x");
    got g;
    memset(&g, 0, sizeof g);
    g.stop = 1000000;
    double start = ckpt__os_now();
    expect(decode(&c, path, &g) == CKPT_CANCELLED);
    ckpt__buf_free(&g.buf);
    ckpt__codec_writer w;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    expect(ckpt__codec_open(&w, &c, fd, "null", NULL) == CKPT_OK);
    expect(ckpt__codec_write(&w, "abc", 3) == CKPT_OK);
    ckpt__codec_abort(&w);
    ckpt__codec_abort(&w);
    close(fd);
    expect(ckpt__os_now() - start < 5);
    expect(open_count() == before);
    expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void test_early_stop(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    fake(dir, "zstd", "exec yes");
    with_path(util_fmt("%s:%s", dir, getenv("PATH")), endless, dir);
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        unsigned char *data = sample(1300000);
        for (int k = 0; k < n; k++) {
            got g;
            memset(&g, 0, sizeof g);
            g.stop = 1;
            assert_int_equal(encode(&v[k], util_join(dir, "x"), data, 1300000, 1300000), CKPT_OK);
            assert_int_equal(decode(&v[k], util_join(dir, "x"), &g), CKPT_CANCELLED);
            assert_string_equal(ckpt_last_error(), "enough");
            ckpt__buf_free(&g.buf);
        }
    }
    assert_no_children();
}

// A tool that ends well and has written nothing, or something else, has saved nothing.
static const char *idle_suffix, *idle_says;

static void idle(const char *dir) {
    ckpt__codec c = by_tool(idle_suffix);
    expect(encode(&c, util_join(dir, "x"), "hello, hello, hello, hello", 26, 26) == CKPT_IO);
    expect(strstr(ckpt_last_error(), idle_says) != NULL);
}

static void test_writes_nothing(void **state) {
    (void)state;
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        for (int copies = 0; copies < 2; copies++) {
            const char *dir = util_temp_dir();
            ckpt__codec c = by_tool(suffixes[i]);
            const char *tool = c.faster != NULL ? c.faster : c.tool;
            fake(dir, tool, copies ? "cat" : "cat > /dev/null");
            idle_suffix = suffixes[i];
            idle_says = copies ? util_fmt("what %s wrote is no .%s stream", tool, suffixes[i]) : util_fmt("%s wrote nothing", tool);
            with_path(util_fmt("%s:%s", dir, getenv("PATH")), idle, dir);
        }
    }
    assert_no_children();
}

// Every tool's full disk is CKPT_NO_SPACE, whatever it says about it.
static void test_full_disk(void **state) {
    (void)state;
    unsigned char *data = sample(1000000);
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            ckpt__codec_writer w;
            int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
            if (fd < 0) util_skip("no /dev/full");
            assert_int_equal(ckpt__codec_open(&w, &v[k], fd, "/dev/full", NULL), CKPT_OK);
            ckpt_err e = CKPT_OK, f;
            for (int t = 0; t < 10 && e == CKPT_OK; t++) e = ckpt__codec_write(&w, data, 1000000);
            f = ckpt__codec_finish(&w);
            assert_int_equal(e != CKPT_OK ? e : f, CKPT_NO_SPACE);
            assert_int_equal(f, CKPT_NO_SPACE);
            close(fd);
        }
    }
    assert_no_children();
}

// gzip warns about this variable on stderr and goes on.
static void warned(const char *dir) {
    ckpt__codec c = by_tool("gz");
    const char *path = util_join(dir, "x");
    got g;
    memset(&g, 0, sizeof g);
    setenv("GZIP", "-1", 1);
    expect(encode(&c, path, "hello", 5, 5) == CKPT_OK);
    expect(decode(&c, path, &g) == CKPT_OK && g.total == 5);
    ckpt__buf_free(&g.buf);
}

static void test_warnings(void **state) {
    (void)state;
    ckpt__codec v[2];
    if (variants("gz", v) == 0 || ckpt__codec_tool(&v[0], false) == NULL) util_skip("no gzip");
    with_path(getenv("PATH"), warned, util_temp_dir());
}

// Who forks without an exec while a stream is open has all of the library's descriptors too: the stream ends all the same.
static void test_forked(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "x");
    unsigned char *data = sample(3000000);
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        if (n == 0 || v[n - 1].library != NULL) continue;
        ckpt__codec_writer w;
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(ckpt__codec_open(&w, &v[n - 1], fd, path, NULL), CKPT_OK);
        pid_t pid = fork();
        if (pid == 0) { sleep(60); _exit(0); }
        ckpt_err e = ckpt__codec_write(&w, data, 3000000);
        if (e == CKPT_OK) e = ckpt__codec_finish(&w);
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);       // it still lives: nobody has waited for it
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        assert_int_equal(e, CKPT_OK);
        close(fd);
        check_same(&v[n - 1], path, data, 3000000);
    }
    assert_no_children();
}

// A process that holds the tool's own ends (forked before they were closed here) neither hides the tool's end nor its failure.
static const char *held_script;

static void held(const char *dir) {
    ckpt__codec c = by_tool("zst");
    unsigned char *data = sample(3000000);
    const char *path = util_join(dir, "x");
    bool decodes = strstr(held_script, "cat") != NULL;
    got g;
    memset(&g, 0, sizeof g);
    if (decodes) {
        util_write(path, data, 3000000);
        expect(decode(&c, path, &g) == CKPT_OK && g.total == 3000000 && memcmp(g.buf.data, data, 3000000) == 0);
        ckpt__buf_free(&g.buf);
    } else {
        expect(encode(&c, path, data, 3000000, 50000) == CKPT_IO);
        expect(strstr(ckpt_last_error(), "status 3: its own words") != NULL);
    }
    size_t size;
    long holder = strtol(util_read(util_join(dir, "holder"), &size), NULL, 10);
    expect(holder > 1 && kill((pid_t)holder, SIGKILL) == 0);    // it still lives
}

static void test_held(void **state) {
    (void)state;
    static const char *const rows[] = { "cat\n", "echo its own words >&2; exit 3\n" };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        const char *dir = util_temp_dir();
        held_script = rows[i];
        fake(dir, "zstd", util_fmt("exec 3<&0\nsleep 60 &\necho $! >%s/holder\n%s", dir, rows[i]));
        with_path(util_fmt("%s:%s", dir, getenv("PATH")), held, dir);
    }
}

// Who ignores SIGCHLD never learns whether a tool succeeded, and is told so before training begins, not by each save.
static void forgets(const char *dir) {
    struct sigaction act;
    (void)dir;
    for (int i = 0; i < 2; i++) {
        ckpt__codec c = by_tool("zst");
        expect(ckpt__codec_check(&c) == CKPT_OK);
        memset(&act, 0, sizeof act);
        act.sa_handler = i == 0 ? SIG_IGN : SIG_DFL;
        act.sa_flags = i == 0 ? 0 : SA_NOCLDWAIT;
        expect(sigaction(SIGCHLD, &act, NULL) == 0);
        expect(ckpt__codec_check(&c) == CKPT_UNSUPPORTED && strstr(ckpt_last_error(), "SIGCHLD") != NULL);
        expect(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
    }
}

static void test_forgotten_children(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    fake(dir, "zstd", "cat\n");
    with_path(util_fmt("%s:%s", dir, getenv("PATH")), forgets, dir);
}

//-- tools that hang -----------------------------------------------------------------

static const char *hang_when;           // "at once", or "at the end" of the input

static void *hang_thread(void *lock) {
    pthread_mutex_lock((pthread_mutex_t *)lock);
    return lock;
}

// This program when it is run as a tool: its two threads wait for one another, as those of pigz that may not start more of them.
static int hang(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char block[65536];
    pthread_t thread;
    if (strcmp(getenv("HANG_WHEN"), "at the end") == 0) while (read(0, block, sizeof block) > 0) {}
    (void)!write(2, "no more threads\n", 16);
    pthread_mutex_lock(&lock);
    if (pthread_create(&thread, NULL, hang_thread, &lock) != 0) return 9;
    return pthread_join(thread, NULL);
}

static void hung(const char *dir) {
    ckpt__codec c = by_tool("zst");
    const char *path = util_join(dir, "x");
    got g;
    memset(&g, 0, sizeof g);
    setenv("HANG_WHEN", hang_when, 1);
    expect(encode(&c, path, sample(3000000), 3000000, 50000) == CKPT_IO);
    expect(strstr(ckpt_last_error(), "zstd hung") != NULL && strstr(ckpt_last_error(), ": no more threads") != NULL);
    util_write_text(path, "text");
    expect(decode(&c, path, &g) == CKPT_NOMEM && strstr(ckpt_last_error(), "zstd hung") != NULL);       // it says nothing of the file
    expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

// One that is silent for longer, and waits for something: the child of a shell.
static void slow(const char *dir) {
    ckpt__codec c = by_tool("zst");
    expect(encode(&c, util_join(dir, "x"), sample(3000000), 3000000, 50000) == CKPT_OK);
}

static void test_hung(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    fake(dir, "zstd", "sleep 2; printf '(\\265/\\375'; cat");
    child_hope = 0.5;
    with_path(util_fmt("%s:%s", dir, getenv("PATH")), slow, dir);
#if defined(__linux__) && !defined(UTIL_TSAN)           // its runtime has a thread of its own, which sleeps and wakes
    static const char *const whens[] = { "at once", "at the end" };
    char self[4096];
    assert_non_null(realpath("/proc/self/exe", self));
    for (int i = 0; i < 2 && access("/proc/self/task", X_OK) == 0 && access("/proc/self/wchan", R_OK) == 0; i++) {
        dir = util_temp_dir();
        assert_int_equal(symlink(self, util_join(dir, "zstd")), 0);
        hang_when = whens[i];
        with_path(util_fmt("%s:%s", dir, getenv("PATH")), hung, dir);
    }
#endif
    child_hope = 60.0;
}

static int allocations, allowed, balance;

static void *stingy(void *ptr, size_t old_size, size_t new_size, void *user) {
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        if (ptr != NULL) balance--;
        free(ptr);
        return NULL;
    }
    if (allocations++ >= allowed) return NULL;
    if (ptr == NULL) balance++;
    return realloc(ptr, new_size);
}

static void test_no_memory(void **state) {
    (void)state;
    ckpt_allocator a = { stingy, NULL };
    const char *path = util_join(util_temp_dir(), "x");
    for (int i = 0; i < UTIL_COUNT(suffixes); i++) {
        ckpt__codec v[2];
        int n = variants(suffixes[i], v);
        for (int k = 0; k < n; k++) {
            bool done = false;
            for (allowed = 0; !done && allowed < 100; allowed++) {
                ckpt__codec_writer w;
                got g;
                memset(&g, 0, sizeof g);
                int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
                allocations = 0;
                ckpt_err e = ckpt__codec_open(&w, &v[k], fd, path, &a);
                if (e == CKPT_OK) e = ckpt__codec_write(&w, "hello", 5);
                if (e == CKPT_OK) e = ckpt__codec_finish(&w);
                assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
                if (e == CKPT_OK) e = ckpt__codec_decode(&v[k], fd, path, count, &g, &a);
                close(fd);
                done = e == CKPT_OK;
                if (!done) assert_int_equal(e, CKPT_NOMEM);
                assert_int_equal(balance, 0);
            }
            assert_true(done);
        }
    }
    assert_no_children();
}

int main(int argc, char **argv) {
    (void)argc;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_tables), cmocka_unit_test(test_tar_modes),    cmocka_unit_test(test_magic),
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_truncated), cmocka_unit_test(test_words_of_reading),
        cmocka_unit_test(test_cut_off_once), cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_zeros_behind_gzip), cmocka_unit_test(test_wide_windows),
        cmocka_unit_test(test_what_follows), cmocka_unit_test(test_padding),     cmocka_unit_test(test_large),
        cmocka_unit_test(test_missing_tool),
        cmocka_unit_test(test_bad_tools), cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_short_libraries),   cmocka_unit_test(test_early_stop),   cmocka_unit_test(test_full_disk), cmocka_unit_test(test_writes_nothing),
        cmocka_unit_test(test_warnings),    cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_forked),
        cmocka_unit_test(test_held),        cmocka_unit_test(test_forgotten_children),
        cmocka_unit_test(test_hung)
    };
    if (strcmp(ckpt__os_path_base(argv[0]), "zstd") == 0) return hang();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
