// Proves >>tar: what is written (byte for byte, aligned, with attached files) is read back and by GNU tar and Python; damage at
// every byte; hostile and foreign tars; sizes beyond 8 GiB; every allocation failing.
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#include <sys/types.h>
#include <unistd.h>
static ssize_t meddling_pread(int fd, void *p, size_t n, off_t at);
#define pread(fd, p, n, at) meddling_pread((fd), (p), (n), (at))
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#undef pread
#include "util.h"
#include "container_util.h"
#include "counting.h"
#include <sys/wait.h>

static bool inner_safetensors;      // the container in the tar: .safetensors instead of .pt

static ckpt_err read_tar(ckpt__toc *t, const ckpt__source *src) {
    ckpt__source inner;
    ckpt_err e = ckpt__tar_read(t, src, &inner);
    if (e != CKPT_OK) return e;
    unsigned char head[2] = { 0, 0 };
    size_t got;
    assert_int_equal(ckpt__os_pread(inner.fd, head, 2, inner.base, &got, inner.path), CKPT_OK);
    return head[0] == 'P' && head[1] == 'K' ? ckpt__pt_read(t, &inner) : ckpt__safetensors_read(t, &inner);
}

static ckpt_err plan_tar(ckpt__plan *p, fixture *f, const ckpt_allocator *a) {
    size_t n;
    const ckpt__binding *items = fix_items(f, &n);
    ckpt__plan_init(p, a, &f->st);
    ckpt_err e = ckpt__tar_plan_begin(p);
    if (e == CKPT_OK) e = inner_safetensors ? ckpt__safetensors_plan(p, items, n) : ckpt__pt_plan(p, items, n, "composer_states");
    if (e == CKPT_OK) e = ckpt__tar_plan_end(p, inner_safetensors ? "composer_states.safetensors" : "composer_states.pt", items, n);
    return e;
}

static void write_tar(fixture *f, const char *path) {
    ckpt__plan p;
    ckpt_err e = plan_tar(&p, f, NULL);
    if (e == CKPT_OK) e = fix_write(&p, path);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    ckpt__plan_free(&p);
}

static float weights[2000];
static int64_t step = 41;
static char note[16] = "a note";

// A small state with four attached files: one empty, one with a long name and one with a name beyond ASCII.
static void small_state(fixture *f, const char *dir, bool files) {
    static char vocab[1500];
    memset(f, 0, sizeof *f);
    for (int i = 0; i < 2000; i++) weights[i] = (float)i / 8;
    for (int i = 0; i < 1500; i++) vocab[i] = (char)('a' + i % 26);
    fix_tensor(f, "state/model/w", CKPT_F32, weights, 2, 4, 5, 0);
    fix_bind(f, "state/step", CKPT_KIND_INT, &step, 8);
    fix_bind(f, "state/note", CKPT_KIND_TEXT, note, sizeof note);
    if (!files) return;
    util_write(util_join(dir, "vocab"), vocab, 1500);
    util_write_text(util_join(dir, "empty"), "");
    util_write_text(util_join(dir, "block"), util_fmt("%.512s", vocab));
    fix_bind(f, "vocab.json", CKPT_KIND_FILE, (void *)(uintptr_t)util_join(dir, "vocab"), 0);
    fix_bind(f, "empty", CKPT_KIND_FILE, (void *)(uintptr_t)util_join(dir, "empty"), 0);
    fix_bind(f, "conf/\xc3\xbc" "ber.yaml", CKPT_KIND_FILE, (void *)(uintptr_t)util_join(dir, "block"), 0);
    fix_bind(f, "conf/a_name_of_more_than_one_hundred_characters_which_the_ustar_header_has_no_room_for_so_that_a_pax_header_must_hold_it.txt",
             CKPT_KIND_FILE, (void *)(uintptr_t)util_join(dir, "vocab"), 0);
}

static void check_small(const char *path, bool files) {
    ckpt__toc t;
    ckpt_err e = fix_read(&t, read_tar, path);
    if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
    assert_true(t.own);
    const ckpt__entry *w = fix_entry(&t, "state/model/w");
    assert_int_equal(w->kind, CKPT_KIND_TENSOR);
    assert_memory_equal(fix_bytes(path, w), weights, 80);
    assert_int_equal(fix_entry(&t, "state/step")->i, 41);
    assert_string_equal(fix_entry(&t, "state/note")->text, "a note");
    for (size_t i = 1; i < t.blob_count; i++) assert_true(t.blobs[i - 1].offset + t.blobs[i - 1].size <= t.blobs[i].offset);
    size_t attached = 0;
    for (size_t i = 0; i < t.count; i++) attached += t.entries[i].kind == CKPT_KIND_FILE;
    assert_int_equal(attached, files ? 4 : 0);
    if (files) {
        const ckpt__entry *v = fix_entry(&t, "vocab.json");
        assert_int_equal(v->kind, CKPT_KIND_FILE);
        assert_int_equal(v->size, 1500);
        assert_true(t.blobs[v->blob].has_crc);
        assert_memory_equal(fix_bytes(path, v), "abcdefghij", 10);
        assert_int_equal(fix_entry(&t, "empty")->size, 0);
        assert_int_equal(fix_entry(&t, "conf/\xc3\xbc" "ber.yaml")->size, 512);
    }
    ckpt__toc_free(&t);
}

static void test_round_trip(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x.tar");
    for (int k = 0; k < 4; k++) {
        fixture f;
        inner_safetensors = k >= 2;
        small_state(&f, dir, k % 2 == 1);
        write_tar(&f, path);
        check_small(path, k % 2 == 1);
        fix_free(&f);
    }
    inner_safetensors = false;
}

// Only safetensors inside: the bytes of a .pt are the business of its own golden files.
static void test_golden(void **state) {
    (void)state;
    fixture f;
    const char *dir = util_temp_dir();
    inner_safetensors = true;
    small_state(&f, dir, true);
    write_tar(&f, util_join(dir, "x"));
    fix_golden(util_join(dir, "x"), "attached.tar");
    fix_free(&f);
    inner_safetensors = false;
}

static void test_alignment(void **state) {
    (void)state;
    fixture f;
    ckpt__plan p;
    memset(&f, 0, sizeof f);
    static float big[32768];
    fix_tensor(&f, "state/model/big", CKPT_F32, big, 1, 32768, 0, 0);
    assert_int_equal(plan_tar(&p, &f, NULL), CKPT_OK);
    assert_int_equal(p.segs[0].size, 4096);
    bool found = false;
    for (size_t i = 0; i < p.seg_count; i++) {
        if (p.segs[i].src != big) continue;
        found = true;
        assert_int_equal(p.segs[i].offset % 4096, 0);
    }
    assert_true(found);
    ckpt__plan_free(&p);
    fix_free(&f);
}

static void test_damage(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x");
    for (int k = 0; k < 2; k++) {
        fixture f;
        inner_safetensors = k == 1;
        small_state(&f, dir, true);
        write_tar(&f, path);
        fix_damage(read_tar, path);
        fix_free(&f);
    }
    inner_safetensors = false;
}

// Two members exchanged, one taken out, or one from another checkpoint put in: each header is right, the sums are not.
static void test_edited(void **state) {
    (void)state;
    fixture f;
    size_t size;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x"), *other = util_join(dir, "y");
    small_state(&f, dir, true);
    write_tar(&f, path);
    char *bytes = util_read(path, &size);
    ckpt__toc t;
    assert_int_equal(fix_read(&t, read_tar, path), CKPT_OK);
    uint64_t vocab = fix_entry(&t, "vocab.json")->offset - 512, empty = fix_entry(&t, "empty")->offset - 512;
    ckpt__toc_free(&t);
    assert_int_equal(empty - vocab, 512 + 1536);
    char *made = (char *)util_keep(calloc(1, size), false);
    memcpy(made, bytes, vocab);
    memcpy(made + vocab, bytes + empty, size - empty);
    util_write(other, made, size - (empty - vocab));
    assert_int_equal(fix_read(&t, read_tar, other), CKPT_CORRUPT);
    ckpt__toc_free(&t);
    memcpy(made, bytes, size);
    memset(made + size - 1024 - 512 * 3, 0, 1024 + 512 * 3);     // the sums cut away, and ended properly
    util_write(other, made, size);
    assert_int_equal(fix_read(&t, read_tar, other), CKPT_CORRUPT);
    ckpt__toc_free(&t);
    fix_free(&f);
}

static void test_names(void **state) {
    (void)state;
    static const char *const bad[] = { "a/../b", "..", ".ckpt-sums", "composer_states.pt", "composer_states.pt/x", "new\nline" };
    const char *dir = util_temp_dir(), *file = util_join(dir, "file");
    util_write_text(file, "x");
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        fixture f;
        ckpt__plan p;
        ckpt__binding it;
        memset(&f, 0, sizeof f);
        memset(&it, 0, sizeof it);
        it.kind = CKPT_KIND_FILE;
        it.path = file;
        ckpt__state_bind(&f.st, bad[i], &it);
        if (f.st.err == CKPT_OK) {
            assert_int_equal(plan_tar(&p, &f, NULL), CKPT_ARG);
            ckpt__plan_free(&p);
        }
        fix_free(&f);
    }
    static const struct { const char *path; ckpt_err err; } rows[] = { { "gone", CKPT_NOT_FOUND }, { ".", CKPT_ARG } };
    for (int i = 0; i < 2; i++) {
        fixture f;
        ckpt__plan p;
        memset(&f, 0, sizeof f);
        fix_bind(&f, "x", CKPT_KIND_FILE, (void *)(uintptr_t)util_join(dir, rows[i].path), 0);
        assert_int_equal(plan_tar(&p, &f, NULL), rows[i].err);
        ckpt__plan_free(&p);
        fix_free(&f);
    }
}

// Earlier versions wrote levels of "." as they were bound, and let the container's other name be taken; readers drop such levels.
static void test_earlier_names(void **state) {
    (void)state;
    static const char *const rows[][2] = { { "./vocab.json", "vocab.json" }, { "conf/././a b", "conf/a b" }, { "conf/.", "conf" },
                                           { "composer_states.safetensors", "composer_states.safetensors" } };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        fixture f;
        ckpt__toc t;
        const char *dir = util_temp_dir(), *path = util_join(dir, "x");
        small_state(&f, dir, true);
        f.st.items[ckpt__state_find(&f.st, "vocab.json")].canonical = rows[i][0];
        write_tar(&f, path);
        ckpt_err e = fix_read(&t, read_tar, path);
        if (e != CKPT_OK) fail_msg("%s: %s", rows[i][0], ckpt_last_error());
        assert_int_equal(fix_entry(&t, rows[i][1])->size, 1500);
        assert_int_equal(fix_entry(&t, rows[i][1])->kind, CKPT_KIND_FILE);
        ckpt__toc_free(&t);
        fix_free(&f);
    }
}

//-- foreign tars ------------------------------------------------------------------------

// A tar put together by hand around a container of ours.
typedef struct hand { ckpt__buf b; char *inner; size_t inner_size; const char *path; } hand;

static void hand_begin(hand *h) {
    fixture f;
    ckpt__plan p;
    size_t n;
    const char *dir = util_temp_dir();
    small_state(&f, dir, false);
    const ckpt__binding *items = fix_items(&f, &n);
    ckpt__plan_init(&p, NULL, &f.st);
    assert_int_equal(ckpt__safetensors_plan(&p, items, n), CKPT_OK);
    h->path = util_join(dir, "x");
    assert_int_equal(fix_write(&p, h->path), CKPT_OK);
    h->inner = util_read(h->path, &h->inner_size);
    ckpt__plan_free(&p);
    fix_free(&f);
    ckpt__buf_init(&h->b, NULL);
}

static unsigned char *hand_header(hand *h, const char *name, uint64_t size, char type) {
    ckpt__tar_add_header(&h->b, name, size, type);
    return (unsigned char *)h->b.data + h->b.len - 512;
}

static void hand_sum(unsigned char *p) {
    unsigned sum = 0;
    memset(p + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += p[i];
    ckpt__tar_put(p + 148, 7, sum);
}

static void hand_data(hand *h, const void *data, size_t n) {
    ckpt__buf_add(&h->b, data, n);
    ckpt__tar_pad(&h->b, n);
}

static void hand_inner(hand *h, const char *name) {
    hand_header(h, name, h->inner_size, '0');
    hand_data(h, h->inner, h->inner_size);
}

// Ends the tar and reads it; starts the next.
static ckpt_err hand_read(hand *h, ckpt__toc *t) {
    ckpt__buf_fill(&h->b, 0, 1024);
    util_write(h->path, h->b.data, h->b.len);
    h->b.len = 0;
    ckpt_err e = fix_read(t, read_tar, h->path);
    if (e == CKPT_OK) assert_int_equal(fix_entry(t, "state/step")->i, 41);
    return e;
}

static void hand_expect(hand *h, ckpt_err want, const char *says, int line) {
    ckpt__toc t;
    ckpt_err e = hand_read(h, &t);
    ckpt__toc_free(&t);
    if (e != want || (says != NULL && strstr(ckpt_last_error(), says) == NULL))
        fail_msg("line %d: %s, '%s'", line, ckpt_err_name(e), ckpt_last_error());
}
#define expect(want, says) hand_expect(&h, want, says, __LINE__)

static void test_foreign(void **state) {
    (void)state;
    hand h;
    ckpt__toc t;
    hand_begin(&h);

    hand_header(&h, "./", 0, '5');                              // as Composer's tarfile.add of a folder
    hand_inner(&h, "./composer_states.pt");
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    ckpt__toc_free(&t);

    for (int i = 0; i < 2; i++) {                               // as the tar of macOS
        hand_header(&h, i == 0 ? "._model.pt" : "a/._b.safetensors", 3, '0');
        hand_data(&h, "mac", 3);
    }
    hand_inner(&h, "model.pt");
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    assert_int_equal(fix_entry(&t, "._model.pt")->kind, CKPT_KIND_FILE);
    ckpt__toc_free(&t);

    hand_header(&h, "././@LongLink", 194, 'L');                 // a GNU long name, and a file before the container
    hand_data(&h, util_fmt("deepspeed/%0180d.pt", 7), 194);
    hand_header(&h, "deepspeed/cut", 3, '0');
    hand_data(&h, "abc", 3);
    hand_inner(&h, "composer_states.pt");
    hand_header(&h, "z", 1, '7');
    hand_data(&h, "z", 1);
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    const ckpt__entry *e = fix_entry(&t, util_fmt("deepspeed/%0180d.pt", 7));
    assert_int_equal(e->kind, CKPT_KIND_FILE);
    assert_int_equal(e->size, 3);
    assert_memory_equal(fix_bytes(h.path, e), "abc", 3);
    assert_memory_equal(fix_bytes(h.path, fix_entry(&t, "z")), "z", 1);
    assert_false(t.blobs[e->blob].has_crc);
    for (size_t i = 1; i < t.blob_count; i++) assert_true(t.blobs[i - 1].offset < t.blobs[i].offset);
    ckpt__toc_free(&t);

    hand_header(&h, "pax_global_header", 19, 'g');
    hand_data(&h, "19 comment=abcdefg\n", 19);
    char *record = util_fmt("36 path=deep/./er//file.safetensors\n14 mtime=12.5\n%zu size=%zu\n", 7 + strlen(util_fmt("%zu", h.inner_size)) + 2, h.inner_size);
    hand_header(&h, "x", strlen(record), 'x');
    hand_data(&h, record, strlen(record));
    hand_header(&h, "wrong", 0, '0');
    hand_data(&h, h.inner, h.inner_size);
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    ckpt__toc_free(&t);

    unsigned char *p = hand_header(&h, "file.pt", h.inner_size, '0');       // ustar's prefix
    memcpy(p + 345, "some/folder", 11);
    hand_sum(p);
    hand_data(&h, h.inner, h.inner_size);
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    ckpt__toc_free(&t);

    p = hand_header(&h, "composer_states.pt", h.inner_size, '0');            // GNU's older magic, whose prefix is none, and base 256
    memcpy(p + 257, "ustar  \0", 8);
    memcpy(p + 345, "15034523415", 11);
    memset(p + 124, 0, 12);
    p[124] = 0x80;
    for (int i = 0; i < 8; i++) p[135 - i] = (unsigned char)(h.inner_size >> (8 * i));
    hand_sum(p);
    hand_data(&h, h.inner, h.inner_size);
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    ckpt__toc_free(&t);

    p = hand_header(&h, "folder/", 0, 0);                       // before POSIX: no type, no magic
    memset(p + 257, 0, 8);
    hand_sum(p);
    p = hand_header(&h, "composer_states.pt", h.inner_size, 0);
    memset(p + 257, 0, 8);
    hand_sum(p);
    hand_data(&h, h.inner, h.inner_size);
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    ckpt__toc_free(&t);

    p = hand_header(&h, "full", 1, '0');                        // not one zero in a header
    memset(p, '0', 512);
    p[135] = '1';
    hand_sum(p);
    p[154] = ' ';
    hand_data(&h, "x", 1);
    hand_inner(&h, "composer_states.pt");
    assert_int_equal(hand_read(&h, &t), CKPT_OK);
    assert_int_equal(fix_entry(&t, util_fmt("%0100d", 0))->size, 1);
    ckpt__toc_free(&t);
    ckpt__buf_free(&h.b);
}

static void test_hostile(void **state) {
    (void)state;
    static const char *const bad[] = { "/etc/passwd", "../x", "a/../../x", "a/..", "..", "bell\a", "\xff\xfe" };
    hand h;
    hand_begin(&h);
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        hand_inner(&h, "composer_states.pt");
        hand_header(&h, bad[i], 1, '0');
        hand_data(&h, "x", 1);
        expect(CKPT_CORRUPT, "refused");
        hand_header(&h, bad[i], 0, '5');
        hand_inner(&h, "composer_states.pt");
        expect(CKPT_CORRUPT, "refused");
    }
    for (char type = '1'; type <= '6'; type++) {
        if (type == '5') continue;
        unsigned char *p = hand_header(&h, "composer_states.pt", 0, type);
        memcpy(p + 157, "/etc/passwd", 11);
        hand_sum(p);
        hand_inner(&h, "composer_states.pt");
        expect(CKPT_CORRUPT, type < '3' ? "is a link" : "is a device");
    }
    hand_header(&h, "x", 10, 'x');                              // a pax name climbs, in a member that looks harmless
    hand_data(&h, "10 path=..\n", 11);
    hand_inner(&h, "composer_states.pt");
    expect(CKPT_CORRUPT, "pax header");
    hand_header(&h, "x", 11, 'x');
    hand_data(&h, "11 path=..\n", 11);
    hand_inner(&h, "composer_states.pt");
    expect(CKPT_CORRUPT, "'..'");
    hand_header(&h, "x", 13, 'x');
    hand_data(&h, "13 path=a\0b/\n", 13);
    hand_inner(&h, "composer_states.pt");
    expect(CKPT_CORRUPT, "damaged");
    static const char *const records[] = { "0 a=b\n", "99 a=b\n", "6 a=b ", "6 ab=\nx", "a=b\n", "5 =\n", "00000000000000000000009 a=b\n",
                                           "18446744073709551622 a=b\n", "9 size=-1\n", "11 size=1x\n", "7 path=\n", "" };
    for (int i = 0; i + 1 < UTIL_COUNT(records); i++) {
        hand_header(&h, "x", strlen(records[i]), 'x');
        hand_data(&h, records[i], strlen(records[i]));
        hand_inner(&h, "composer_states.pt");
        expect(CKPT_CORRUPT, NULL);
    }
    hand_header(&h, "x", 12, 'g');
    hand_data(&h, "12 path=abc\n", 12);
    hand_inner(&h, "composer_states.pt");
    expect(CKPT_CORRUPT, "all its members");
    hand_header(&h, "x", 21, 'x');
    hand_data(&h, "21 GNU.sparse.map=1\n\n", 21);
    hand_inner(&h, "composer_states.pt");
    expect(CKPT_UNSUPPORTED, "sparse");
    hand_header(&h, "x", (uint64_t)1 << 21, 'x');
    hand_inner(&h, "composer_states.pt");
    expect(CKPT_CORRUPT, NULL);
    hand_header(&h, "x", 0, 'S');
    expect(CKPT_UNSUPPORTED, "unknown type");
    hand_inner(&h, "composer_states.pt");
    hand_inner(&h, "./composer_states.pt");
    expect(CKPT_CORRUPT, "twice");
    hand_inner(&h, "composer_states.pt");
    for (int i = 0; i < 2; i++) {
        hand_header(&h, i == 0 ? "a/b" : "a//b", 1, '0');
        hand_data(&h, "x", 1);
    }
    expect(CKPT_CORRUPT, "'a/b' twice");
    hand_inner(&h, "one.pt");
    hand_inner(&h, "two.pt");
    expect(CKPT_CORRUPT, "several");
    hand_header(&h, "readme", 1, '0');
    hand_data(&h, "x", 1);
    expect(CKPT_CORRUPT, "no composer_states.pt");
    expect(CKPT_CORRUPT, "no composer_states.pt");
    hand_header(&h, "composer_states.pt", (uint64_t)1 << 62, '0');
    expect(CKPT_CORRUPT, "cut off inside");
    unsigned char *p = hand_header(&h, "composer_states.pt", 5, '0');
    memset(p + 124, 0xff, 12);                                  // base 256, negative
    hand_sum(p);
    expect(CKPT_CORRUPT, "damaged");
    p = hand_header(&h, "composer_states.pt", 5, '0');
    memset(p + 124, 0xff, 12);
    p[124] = 0x80;
    hand_sum(p);
    expect(CKPT_CORRUPT, "damaged");
    hand_header(&h, "composer_states.pt", 5, '0')[0] = 'C';     // the sum of the header does not hold
    expect(CKPT_CORRUPT, "damaged");
    ckpt__buf_free(&h.b);
}

// A foreign tar without its end was cut off.
static void test_no_end(void **state) {
    (void)state;
    hand h;
    ckpt__toc t;
    hand_begin(&h);
    hand_inner(&h, "composer_states.pt");
    util_write(h.path, h.b.data, h.b.len);
    assert_int_equal(fix_read(&t, read_tar, h.path), CKPT_CORRUPT);
    ckpt__toc_free(&t);
    ckpt__buf_fill(&h.b, 0, 512);
    util_write(h.path, h.b.data, h.b.len);
    assert_int_equal(fix_read(&t, read_tar, h.path), CKPT_OK);
    ckpt__toc_free(&t);
    ckpt__buf_free(&h.b);
}

//-- other programs ------------------------------------------------------------------------

static int run(const char *command) {
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_gnu_tar(void **state) {
    (void)state;
    fixture f;
    const char *dir = util_temp_dir();
    if (run("tar --version 2>/dev/null | grep -q GNU") != 0) util_skip("no GNU tar");
    small_state(&f, dir, true);
    write_tar(&f, util_join(dir, "x.tar"));
    fix_free(&f);
    util_mkdir(util_join(dir, "out"));
    assert_int_equal(run(util_fmt("cd '%s/out' && LC_ALL=C.UTF-8 tar -xf ../x.tar 2>../words && test ! -s ../words", dir)), 0);
    size_t size;
    assert_memory_equal(util_read(util_join(dir, "out/vocab.json"), &size), "abc", 3);
    assert_int_equal(size, 1500);
    (void)util_read(util_join(dir, "out/empty"), &size);
    assert_int_equal(size, 0);
    (void)util_read(util_join(dir, "out/conf/\xc3\xbc" "ber.yaml"), &size);
    assert_int_equal(size, 512);
    // and back: what tar packs is read
    static const char *const formats[] = { "gnu", "pax", "ustar", "v7" };
    for (int i = 0; i < UTIL_COUNT(formats); i++) {
        for (int whole = 0; whole < 2; whole++) {
            ckpt__toc t;
            const char *what = i >= 2 ? "composer_states.pt vocab.json" : whole ? "." : "composer_states.pt conf vocab.json";
            assert_int_equal(run(util_fmt("cd '%s/out' && rm -f .ckpt-sums && tar --format=%s -cf ../y.tar %s", dir, formats[i], what)), 0);
            ckpt_err e = fix_read(&t, read_tar, util_join(dir, "y.tar"));
            if (e != CKPT_OK) fail_msg("%s: %s", formats[i], ckpt_last_error());
            assert_int_equal(fix_entry(&t, "state/step")->i, 41);
            assert_int_equal(fix_entry(&t, "vocab.json")->size, 1500);
            ckpt__toc_free(&t);
        }
    }
}

static void test_python(void **state) {
    (void)state;
    fixture f;
    const char *dir = util_temp_dir();
    if (run("python3 -c 'import tarfile' 2>/dev/null") != 0) util_skip("no python3");
    small_state(&f, dir, true);
    write_tar(&f, util_join(dir, "x.tar"));
    fix_free(&f);
    util_write_text(util_join(dir, "t.py"),
        "import tarfile, os\n"
        "t = tarfile.open('x.tar')\n"
        "names = t.getnames()\n"
        "assert names[0] == 'composer_states.pt' and names[-1] == '.ckpt-sums' and len(names) == 6, names\n"
        "assert 'conf/\\u00fcber.yaml' in names and t.extractfile('vocab.json').read(3) == b'abc'\n"
        "assert t.extractfile('composer_states.pt').read(2) == b'PK'\n"
        "t.extractall('py')\n"
        "os.remove('py/.ckpt-sums')\n"
        "for fmt in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):\n"
        "    with tarfile.open('py%d.tar' % fmt, 'w', format=fmt) as o: o.add('py', arcname='')\n"       // Composer's way
        "    with tarfile.open('dot%d.tar' % fmt, 'w', format=fmt) as o: o.add('py', arcname='.')\n");
    assert_int_equal(run(util_fmt("cd '%s' && LC_ALL=C.UTF-8 python3 t.py", dir)), 0);
    static const char *const made[] = { "py1.tar", "py2.tar", "dot1.tar", "dot2.tar" };
    for (int i = 0; i < UTIL_COUNT(made); i++) {
        ckpt__toc t;
        ckpt_err e = fix_read(&t, read_tar, util_join(dir, made[i]));
        if (e != CKPT_OK) fail_msg("%s: %s", made[i], ckpt_last_error());
        assert_int_equal(fix_entry(&t, "state/step")->i, 41);
        assert_int_equal(fix_entry(&t, "conf/\xc3\xbc" "ber.yaml")->size, 512);
        ckpt__toc_free(&t);
    }
}

// A tar of ours that another program has written again, member for member with the sums: the sums say nothing of it, and are no
// attached file either. Python's tarfile takes over the comment of our first header, too.
static void test_written_again(void **state) {
    (void)state;
    static const char *const ways[] = {
        "python3 -c \"import tarfile\nwith tarfile.open('x.tar') as s, tarfile.open('y.tar', 'w') as d:\n"
            "    for m in s.getmembers(): d.addfile(m, s.extractfile(m))\"",
        "python3 -c \"import tarfile\nwith tarfile.open('x.tar') as s, tarfile.open('y.tar', 'w', format=tarfile.GNU_FORMAT) as d:\n"
            "    for m in s.getmembers(): d.addfile(m, s.extractfile(m))\"",
        "python3 -c \"import io, tarfile\nwith tarfile.open('x.tar') as s, tarfile.open('y.tar', 'w') as d:\n"
            "    for m in s.getmembers():\n"
            "        b = s.extractfile(m).read()\n"
            "        if m.name == 'vocab.json': b += b'more'\n"
            "        m.size = len(b)\n"
            "        d.addfile(m, io.BytesIO(b))\"",
        "rm -rf out && mkdir out && cd out && tar -xf ../x.tar && tar -cf ../y.tar composer_states.* vocab.json empty conf .ckpt-sums",
        "rm -rf out && mkdir out && cd out && tar -xf ../x.tar && tar --format=pax -cf ../y.tar ."
    };
    const char *dir = util_temp_dir();
    if (run("python3 -c 'import tarfile' 2>/dev/null && tar --version 2>/dev/null | grep -q GNU") != 0) util_skip("no python3, or no GNU tar");
    for (int i = 0; i < 2 * UTIL_COUNT(ways); i++) {
        fixture f;
        ckpt__toc t;
        inner_safetensors = i % 2 == 1;
        small_state(&f, dir, true);
        write_tar(&f, util_join(dir, "x.tar"));
        fix_free(&f);
        assert_int_equal(run(util_fmt("cd '%s' && export LC_ALL=C.UTF-8 && %s", dir, ways[i / 2])), 0);
        ckpt_err e = fix_read(&t, read_tar, util_join(dir, "y.tar"));
        if (e != CKPT_OK) fail_msg("%s: %s", ways[i / 2], ckpt_last_error());
        assert_int_equal(fix_entry(&t, "state/step")->i, 41);
        assert_int_equal(fix_entry(&t, "vocab.json")->size, i / 2 == 2 ? 1504 : 1500);
        assert_false(t.blobs[fix_entry(&t, "vocab.json")->blob].has_crc);
        assert_true(ckpt__toc_find(&t, ".ckpt-sums") < 0);
        ckpt__toc_free(&t);
    }
    inner_safetensors = false;
}

// No value of any byte of its first header makes a tar of ours pass for another's.
static void test_every_value(void **state) {
    (void)state;
    fixture f;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x");
    small_state(&f, dir, false);
    write_tar(&f, path);
    fix_free(&f);
    for (size_t i = 0; i < 640; i++) {
        for (unsigned mask = 1; mask < 256; mask++) {
            ckpt__toc t;
            if (i >= 512 && mask % 7 != 0) continue;
            util_flip(path, i, mask);
            ckpt_err e = fix_read(&t, read_tar, path);
            ckpt__toc_free(&t);
            util_flip(path, i, mask);
            if (e != CKPT_CORRUPT) fail_msg("byte %zu ^ %02x: %s %s", i, mask, ckpt_err_name(e), ckpt_last_error());
        }
    }
}

// Beyond 8 GiB: the headers are right by other programs' reading, and ours. The file is sparse; nothing of it is read.
static void test_huge(void **state) {
    (void)state;
    const uint64_t sizes[] = { ((uint64_t)1 << 33) - 1, (uint64_t)1 << 33, ((uint64_t)1 << 36) + 5 };
    const char *dir = util_temp_dir(), *path = util_join(dir, "x.tar");
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        ckpt__buf b;
        static const char zeros[1024];
        ckpt__buf_init(&b, NULL);
        ckpt__tar_add_lead(&b, "composer_states.pt", sizes[i]);
        assert_int_equal(b.len, 4096);
        util_write(path, b.data, b.len);
        uint64_t end = 4096 + ckpt__tar_round(sizes[i]);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        b.len = 0;
        ckpt__tar_add_member(&b, "after", sizes[i] / 2 + 1);
        bool fits = pwrite(fd, b.data, b.len, (off_t)end) == (ssize_t)b.len;
        uint64_t after = end + b.len;
        end = after + ckpt__tar_round(sizes[i] / 2 + 1);
        fits = fits && pwrite(fd, zeros, 1024, (off_t)end) == 1024;
        ckpt__buf_free(&b);
        if (!fits) util_skip("this file system holds no file of 12 GiB");
        ckpt__toc t;
        ckpt__source src = { fd, path, 0, end + 1024 };
        ckpt__tar_reader r;
        memset(&r, 0, sizeof r);
        ckpt__toc_init(&t, NULL);
        r.src = &src;
        r.toc = &t;
        r.pax_size = UINT64_MAX;
        ckpt__buf_init(&r.path, NULL);
        assert_int_equal(ckpt__tar_walk(&r), CKPT_OK);
        assert_true(t.own);
        assert_int_equal(r.count, 2);
        assert_true(r.members[0].offset == 4096 && r.members[0].size == sizes[i]);
        assert_true(r.members[1].offset == after && r.members[1].size == sizes[i] / 2 + 1);
        ckpt__buf_free(&r.path);
        ckpt__mem_free(&t.allocator, r.members, r.cap * sizeof *r.members);
        ckpt__toc_free(&t);
        close(fd);
        if (run("tar --version 2>/dev/null | grep -q GNU") == 0)
            assert_int_equal(run(util_fmt("tar -tvf '%s' | awk '{print $3}' | tr '\\n' ' ' | grep -q '^%llu %llu $'", path,
                                          (unsigned long long)sizes[i], (unsigned long long)(sizes[i] / 2 + 1))), 0);
        (void)unlink(path);
    }
}

static ckpt_err plan_with(const ckpt_allocator *a, const ckpt_state *st, const ckpt__binding *items, size_t n) {
    ckpt__plan p;
    ckpt__plan_init(&p, a, st);
    ckpt_err e = ckpt__tar_plan_begin(&p);
    if (e == CKPT_OK) e = ckpt__safetensors_plan(&p, items, n);
    if (e == CKPT_OK) e = ckpt__tar_plan_end(&p, "composer_states.safetensors", items, n);
    if (e == CKPT_OK) e = ckpt__plan_finish(&p);
    ckpt__plan_free(&p);
    return e;
}

static void test_no_memory(void **state) {
    (void)state;
    fixture f;
    size_t n;
    const char *dir = util_temp_dir(), *path = util_join(dir, "x");
    inner_safetensors = true;
    small_state(&f, dir, true);
    const ckpt__binding *items = fix_items(&f, &n);
    fix_memory m = { 0, 0, 0 };
    ckpt_allocator a = { fix_alloc, &m };
    ckpt_err e = CKPT_NOMEM;
    for (m.allowed = 0; e != CKPT_OK && m.allowed < 1000; m.allowed++) {
        m.calls = 0;
        e = plan_with(&a, &f.st, items, n);
        assert_true(e == CKPT_OK || e == CKPT_NOMEM);
        assert_int_equal(m.held, 0);
    }
    assert_int_equal(e, CKPT_OK);
    counting once = { 0, 0, 0 };                                // and a single one, with room again behind it
    ckpt_allocator other = { counting_fn, &once };
    for (once.fail_at = 1; once.calls == 0 || once.calls >= once.fail_at - 1; once.fail_at++) {
        once.calls = 0;
        e = plan_with(&other, &f.st, items, n);
        assert_int_equal(e, once.calls < once.fail_at ? CKPT_OK : CKPT_NOMEM);
        assert_int_equal(once.live, 0);
    }
    write_tar(&f, path);
    ckpt__source src = { open(path, O_RDONLY), path, 0, 0 };
    src.size = (uint64_t)lseek(src.fd, 0, SEEK_END);
    e = CKPT_NOMEM;
    for (m.allowed = 0; e != CKPT_OK && m.allowed < 1000; m.allowed++) {
        ckpt__toc t;
        m.calls = 0;
        ckpt__toc_init(&t, &a);
        e = read_tar(&t, &src);
        if (e == CKPT_OK) e = ckpt__toc_finish(&t);
        ckpt__toc_free(&t);
        assert_true(e == CKPT_OK || e == CKPT_NOMEM);
        assert_int_equal(m.held, 0);
    }
    assert_int_equal(e, CKPT_OK);
    close(src.fd);
    fix_free(&f);
    inner_safetensors = false;
}

// Something happens to an attached file after the first piece of it of that size or more was read.
static const char *meddle_path, *meddle_with;
static size_t      meddle_least = 200000;
static int         meddle_due;

static ssize_t meddling_pread(int fd, void *p, size_t n, off_t at) {
    ssize_t got = pread(fd, p, n, at);
    struct stat is, wanted;
    if (meddle_path == NULL || fstat(fd, &is) != 0 || stat(meddle_path, &wanted) != 0 || is.st_ino != wanted.st_ino) return got;
    if (n < meddle_least || __atomic_exchange_n(&meddle_due, 0, __ATOMIC_ACQ_REL) == 0) return got;
    if (meddle_with != NULL) {
        if (rename(meddle_with, meddle_path) != 0) abort();
    } else {
        int other = open(meddle_path, O_WRONLY);
        if (other < 0 || pwrite(other, "x", 1, 7000000) != 1 || close(other) != 0) abort();
    }
    return got;
}

static void big_text(const char *path, int c, size_t size) {
    char *text = (char *)util_keep(malloc(size), false);
    memset(text, c, size);
    util_write(path, text, size);
}

// A file that is replaced by one of its size, or written to, while it is saved in several pieces is not mixed from both.
static void test_changing_file(void **state) {
    (void)state;
    static const char *const names[] = { "a.tar", "a.tar.gz" };
    const char *dir = util_temp_dir(), *file = util_join(dir, "f"), *other = util_join(dir, "o");
    ckpt_state st;
    memset(&st, 0, sizeof st);
    ckpt_bind_int(&st, "step", &step);
    ckpt_bind_file(&st, "f", file);
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        for (int k = 0; k < 2; k++) {
            struct timespec past[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
            const char *path = util_join(dir, names[i]);
            big_text(file, 'a', 12000000);
            big_text(other, 'b', 12000000);
            assert_int_equal(utimensat(AT_FDCWD, file, past, 0), 0);
            assert_int_equal(ckpt_save(path, &st, NULL), CKPT_OK);
            meddle_path = file;
            meddle_with = k == 0 ? other : NULL;
            meddle_due = 1;
            ckpt_err e = ckpt_save(path, &st, NULL);
            assert_int_equal(meddle_due, 0);
            if (e != CKPT_IO) fail_msg("%s %d: %s: %s", names[i], k, ckpt_err_name(e), ckpt_last_error());
            assert_non_null(strstr(ckpt_last_error(), "changed while it was being saved"));
            assert_int_equal(ckpt_save(path, &st, NULL), CKPT_OK);
        }
    }
    ckpt_state_free(&st);
}

// A small file between the sums of the container and its own, as one that tells a watcher that the run is alive, is replaced after
// it was summed and before it is written: what was summed is saved.
static void test_replaced_small_file(void **state) {
    (void)state;
    static float large[600000];
    static const size_t sizes[] = { 300, 20000, 60000 };
    const char *dir = util_temp_dir(), *file = util_join(dir, "f"), *other = util_join(dir, "o"), *path = util_join(dir, "a.tar");
    ckpt_state st;
    ckpt_load_desc d;
    memset(&st, 0, sizeof st);
    memset(&d, 0, sizeof d);
    d.state = &st;
    d.load_path = path;
    ckpt_bind_f32(&st, "state/model/w", large, 600000);
    ckpt_bind_file(&st, "f", file);
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        size_t size = 0;
        big_text(file, 'a', sizes[i]);
        big_text(other, 'b', sizes[i]);
        meddle_path = file;
        meddle_with = other;
        meddle_least = sizes[i];
        meddle_due = 1;
        ckpt_err e = ckpt_save(path, &st, NULL);
        assert_int_equal(meddle_due, 0);
        if (e != CKPT_OK) fail_msg("%zu: %s", sizes[i], ckpt_last_error());
        if (ckpt_verify(path, NULL) != CKPT_OK) fail_msg("%zu: %s", sizes[i], ckpt_last_error());
        assert_int_equal(util_read(file, &size)[0], 'b');
        assert_int_equal(ckpt_load(&d, NULL), CKPT_OK);
        assert_int_equal(util_read(file, &size)[0], 'a');
        assert_int_equal(size, sizes[i]);
    }
    ckpt_state_free(&st);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_golden),   cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_edited),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_earlier_names),
        cmocka_unit_test(test_foreign),    cmocka_unit_test(test_hostile),  cmocka_unit_test(test_no_end),
        cmocka_unit_test(test_gnu_tar),    cmocka_unit_test(test_python),   cmocka_unit_test(test_huge),
        cmocka_unit_test(test_written_again), cmocka_unit_test(test_every_value),
        cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_changing_file),
        cmocka_unit_test(test_replaced_small_file)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
