// test_transfer.c: proves bodies, sinks, fields and sums: what every remote request is made of.
// run.sh: remote
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include <signal.h>
#include <sys/wait.h>

// What a worker does while the program ends: whoever registered first for that comes last.
static void at_exit(void) {
    unsigned char sum[32];
    _exit(ckpt__digest_sha256("abc", 3, sum) == CKPT_OK && sum[0] == 0xba ? 0 : 1);
}

// A program may end with uploads under way: OpenSSL serves them until the process is gone, whatever was first to want it. Comes before
// all tests that use it here.
static void test_at_exit(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        pid_t pid = fork();
        if (pid == 0) {
            unsigned char sum[32];
            ckpt_err e = CKPT_OK;
            (void)signal(SIGSEGV, SIG_DFL);
            if (atexit(at_exit) != 0) _exit(2);
            if (way == 0) e = ckpt__digest_sha256("abc", 3, sum);
            else if (way == 1) e = ckpt__http_global();
            else e = ckpt__digest_hmac_sha256("k", 1, "abc", 3, sum);
            if (e != CKPT_OK) _exit(3);
            exit(4);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0) fail_msg("way %d: status %x", way, (unsigned)status);
    }
}

static void test_fields(void **state) {
    (void)state;
    ckpt__fields f;
    ckpt__fields_init(&f, NULL);
    assert_null(ckpt__fields_get(&f, "a"));
    ckpt__fields_add(&f, "Content-Type", "text/plain");
    ckpt__fields_add(&f, "x-empty", "");
    ckpt__fields_add(&f, "CONTENT-TYPE", "second");
    assert_string_equal(ckpt__fields_get(&f, "content-type"), "text/plain");
    assert_string_equal(ckpt__fields_get(&f, "X-EMPTY"), "");
    assert_null(ckpt__fields_get(&f, "Content-Typ"));
    assert_null(ckpt__fields_get(&f, "second"));        // a value is no name
    const char *n, *v;
    size_t at = 0;
    int count = 0;
    while (ckpt__fields_next(&f, &at, &n, &v)) count++;
    assert_int_equal(count, 3);
    assert_string_equal(n, "CONTENT-TYPE");
    assert_string_equal(v, "second");
    ckpt__fields_free(&f);
}

static void test_fields_without_memory(void **state) {
    (void)state;
    for (int i = 1; i <= 2; i++) {
        counting c = { 0, 0, i };
        ckpt_allocator a = { counting_fn, &c };
        char longer[200];
        memset(longer, 'x', sizeof longer - 1);
        longer[sizeof longer - 1] = 0;
        ckpt__fields f;
        ckpt__fields_init(&f, &a);
        ckpt__fields_add(&f, "a", "b");
        ckpt__fields_add(&f, "c", longer);
        assert_int_equal(f.text.err, CKPT_NOMEM);
        assert_null(ckpt__fields_get(&f, "c"));
        ckpt__fields_free(&f);
        assert_int_equal(c.live, 0);
    }
}

static ckpt_err from_reader(void *dst, size_t size, uint64_t offset, void *user) {
    if (user == NULL) return ckpt__error_set(CKPT_IO, "the reader is broken");
    for (size_t i = 0; i < size; i++) ((unsigned char *)dst)[i] = (unsigned char)(offset + i);
    return CKPT_OK;
}

static void test_bodies(void **state) {
    (void)state;
    unsigned char bytes[1000], got[1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    const char *path = util_join(util_temp_dir(), "f");
    util_write(path, bytes, sizeof bytes);
    int fd, user = 1;
    assert_int_equal(ckpt__os_open_read(&fd, path), CKPT_OK);
    for (int kind = 0; kind < 3; kind++) {
        ckpt__body b;
        memset(&b, 0, sizeof b);
        b.fd = fd;
        b.path = path;
        if (kind == 1) b.memory = bytes;
        if (kind == 2) { b.read = from_reader; b.user = &user; }
        b.offset = 100;
        b.size = 500;
        memset(got, 0xEE, sizeof got);
        assert_int_equal(ckpt__body_read(&b, got, 200, 300), CKPT_OK);
        assert_memory_equal(got, bytes + 400, 200);
        assert_int_equal(got[200], 0xEE);
        assert_int_equal(ckpt__body_read(&b, got, 0, 500), CKPT_OK);
        assert_int_equal(ckpt__body_read(&b, got, 201, 300), CKPT_ARG);
        assert_int_equal(ckpt__body_read(&b, got, 1, UINT64_MAX), CKPT_ARG);
    }
    ckpt__body b;
    memset(&b, 0, sizeof b);
    b.fd = fd;
    b.path = path;
    b.size = 2000;
    assert_int_equal(ckpt__body_read(&b, got, 500, 900), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt__error_last.text, "has changed"));
    b.read = from_reader;
    assert_int_equal(ckpt__body_read(&b, got, 1, 0), CKPT_IO);
    ckpt__os_drop(fd);
}

static void test_sinks(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "f");
    char memory[100];
    int fd;
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_OK);
    for (int kind = 0; kind < 2; kind++) {
        ckpt__sink s;
        memset(&s, 0, sizeof s);
        memset(memory, '.', sizeof memory);
        s.fd = fd;
        s.path = path;
        if (kind == 1) s.memory = memory;
        s.offset = 10;
        s.size = 11;
        s.sum = true;
        assert_int_equal(ckpt__sink_write(&s, "hello ", 6), CKPT_OK);
        assert_int_equal(ckpt__sink_write(&s, "", 0), CKPT_OK);
        assert_int_equal(ckpt__sink_write(&s, "world!", 6), CKPT_NET);      // one too many: none is written, and nothing of it all
        assert_int_equal(s.got, 0);                                         // is what was asked for
        assert_int_equal(ckpt__sink_write(&s, "hello ", 6), CKPT_OK);
        assert_int_equal(s.got, 6);
        assert_int_equal(ckpt__sink_write(&s, "world", 5), CKPT_OK);
        assert_int_equal(s.got, 11);
        assert_true(s.crc == 0x0D4A1185u);
        if (kind == 1) {
            assert_memory_equal(memory + 10, "hello world", 11);
            assert_int_equal(memory[21], '.');
            assert_int_equal(memory[9], '.');
        }
    }
    ckpt__os_drop(fd);
    size_t size;
    char *text = util_read(path, &size);
    assert_int_equal(size, 21);
    assert_memory_equal(text + 10, "hello world", 11);
}

static void test_digest(void **state) {
    (void)state;
    ckpt__body b;
    ckpt__transfer_sums sums;
    memset(&b, 0, sizeof b);
    b.memory = "say abc";
    b.offset = 4;
    b.size = 3;
    assert_int_equal(ckpt__transfer_digest(&b, CKPT__SUM_CRC32, &sums), CKPT_OK);
    assert_int_equal(sums.has, CKPT__SUM_CRC32);
    assert_true(sums.crc == 0x352441C2u);
    unsigned all = CKPT__SUM_CRC32 | CKPT__SUM_MD5 | CKPT__SUM_SHA256;
    assert_int_equal(ckpt__transfer_digest(&b, all, &sums), CKPT_OK);
#ifndef CKPT_NO_REMOTE
    assert_true((sums.has & CKPT__SUM_SHA256) != 0);
    assert_memory_equal(sums.sha256, "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23"
                                     "\xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad", 32);
    if ((sums.has & CKPT__SUM_MD5) != 0) assert_memory_equal(sums.md5, "\x90\x01\x50\x98\x3c\xd2\x4f\xb0\xd6\x96\x3f\x7d\x28\xe1\x7f\x72", 16);
#endif
    b.size = 0;
    assert_int_equal(ckpt__transfer_digest(&b, CKPT__SUM_CRC32, &sums), CKPT_OK);
    assert_true(sums.crc == 0);
    // Many pieces, and a reader that fails.
    int user = 1;
    b.read = from_reader;
    b.user = &user;
    b.offset = 0;
    b.size = 1000003;
    unsigned char *bytes = (unsigned char *)malloc((size_t)b.size);
    assert_non_null(bytes);
    for (size_t i = 0; i < b.size; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(ckpt__transfer_digest(&b, all, &sums), CKPT_OK);
    assert_true(sums.crc == ckpt__digest_crc32(0, bytes, (size_t)b.size));
#ifndef CKPT_NO_REMOTE
    unsigned char whole[32];
    assert_int_equal(ckpt__digest_sha256(bytes, (size_t)b.size, whole), CKPT_OK);
    assert_memory_equal(sums.sha256, whole, 32);
#endif
    free(bytes);
    b.user = NULL;
    assert_int_equal(ckpt__transfer_digest(&b, all, &sums), CKPT_IO);
}

// Pieces of any size, from any offset, come out as whole writes up to each boundary; what waits is written by the flush.
static void test_gathered(void **state) {
    (void)state;
    enum { ROOM = CKPT__SINK_GATHER, SIZE = 3 * ROOM + 777 };
    static const size_t steps[] = { 16384, 1000, ROOM - 500, 2 * ROOM + 3 };
    char *bytes = (char *)malloc(SIZE), *back = (char *)malloc(SIZE), *room = (char *)malloc(ROOM);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (char)(i * 7 + i / 251);
    ckpt__os_mutex turn;
    assert_int_equal(ckpt__os_mutex_init(&turn), CKPT_OK);
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        FILE *f = tmpfile();
        ckpt__sink s;
        memset(&s, 0, sizeof s);
        s.fd = fileno(f);
        s.path = "x";
        s.offset = 4096 * k + k;
        s.size = SIZE;
        s.sum = true;
        s.gather = room;
        s.turn = &turn;
        for (size_t at = 0; at < SIZE;) {
            size_t n = SIZE - at < steps[k] ? SIZE - at : steps[k];
            assert_int_equal(ckpt__sink_write(&s, bytes + at, n), CKPT_OK);
            at += n;
            assert_int_equal(s.got, at);
            assert_int_equal(lseek(s.fd, 0, SEEK_END), s.got == s.gathered ? 0 : (off_t)(s.offset + s.got - s.gathered));
            assert_true(s.gathered == 0 || (s.offset + s.got - s.gathered) % ROOM == 0 || s.got == s.gathered);
        }
        assert_int_equal(ckpt__sink_flush(&s), CKPT_OK);
        // A try that broke off leaves bytes waiting; the next one begins where it did.
        assert_int_equal(ckpt__sink_write(&s, bytes, 0), CKPT_OK);
        ckpt__sink_begin(&s);
        assert_int_equal(ckpt__sink_write(&s, bytes, 5000), CKPT_OK);
        assert_true(s.gathered > 0);
        ckpt__sink_begin(&s);
        for (size_t at = 0; at < SIZE; at += 1000) {
            assert_int_equal(ckpt__sink_write(&s, bytes + at, SIZE - at < 1000 ? SIZE - at : 1000), CKPT_OK);
            assert_true(s.gathered <= ROOM);
        }
        assert_int_equal(s.crc, ckpt__digest_crc32(0, bytes, SIZE));
        assert_int_equal(ckpt__sink_flush(&s), CKPT_OK);
        assert_int_equal(ckpt__sink_flush(&s), CKPT_OK);
        assert_int_equal(s.gathered, 0);
        assert_int_equal(pread(s.fd, back, SIZE, (off_t)s.offset), SIZE);
        assert_memory_equal(back, bytes, SIZE);
        assert_int_equal(s.crc, ckpt__digest_crc32(0, bytes, SIZE));
        fclose(f);
    }
    ckpt__sink s;                               // a failure takes back what was not written
    memset(&s, 0, sizeof s);
    s.fd = -1;
    s.path = "x";
    s.size = SIZE;
    s.gather = room;
    assert_int_equal(ckpt__sink_write(&s, bytes, 100), CKPT_OK);
    assert_int_equal(ckpt__sink_flush(&s), CKPT_IO);
    assert_true(s.got == 0 && s.gathered == 0);
    ckpt__os_mutex_free(&turn);
    free(bytes);
    free(back);
    free(room);
}

// With a second descriptor whole pages go by it and the rest by the first one, also behind a try that broke off within a page.
// When it fails, all goes by the first.
static void test_direct(void **state) {
    (void)state;
    enum { ROOM = 16384, SIZE = 5 * ROOM + 777 };
    char *bytes = (char *)malloc(SIZE), *back = (char *)malloc(SIZE), *room = (char *)ckpt__os_pages(ROOM);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (char)(i * 7 + i / 251);
    for (int k = 0; k < 4; k++) {
        FILE *through = tmpfile(), *past = tmpfile();
        ckpt__sink_direct d = { k == 3 ? -1 : fileno(past), 1 };
        uint64_t from = k == 0 ? 0 : 4096u + 1000u * (unsigned)k, cut = k == 2 ? 20000 : SIZE;
        for (uint64_t at = 0; at < SIZE;) {
            ckpt__sink s;
            memset(&s, 0, sizeof s);
            s.fd = fileno(through);
            s.path = "x";
            s.offset = from + at;
            s.size = SIZE - at;
            s.gather = room;
            s.gather_size = ROOM;
            s.direct = &d;
            uint64_t until = at < cut ? cut : SIZE;
            for (uint64_t p = at; p < until; p += 1111) {
                assert_int_equal(ckpt__sink_write(&s, bytes + p, until - p < 1111 ? (size_t)(until - p) : 1111), CKPT_OK);
                assert_true(s.gathered < ROOM);
            }
            assert_int_equal(ckpt__sink_flush(&s), CKPT_OK);
            assert_int_equal(s.got, until - at);
            at = until;
        }
        assert_int_equal(d.works, k != 3);
        // each page is in one of the two, and the first chunk, which begins within a page, in the first
        memset(back, 0, SIZE);
        size_t paged = 0;
        for (uint64_t p = from / 4096 * 4096; p < from + SIZE; p += 4096) {
            char a[4096], b[4096];
            memset(a, 0, sizeof a);
            memset(b, 0, sizeof b);
            (void)!pread(fileno(through), a, sizeof a, (off_t)p);
            (void)!pread(fileno(past), b, sizeof b, (off_t)p);
            bool in_a = false, in_b = false;
            for (size_t i = 0; i < sizeof a; i++) {
                in_a = in_a || a[i] != 0;
                in_b = in_b || b[i] != 0;
                if (p + i >= from && p + i < from + SIZE) back[p + i - from] = (char)(a[i] | b[i]);
            }
            assert_false(in_a && in_b);
            paged += in_b;
        }
        assert_memory_equal(back, bytes, SIZE);
        assert_true(k == 3 ? paged == 0 : paged >= 12);
        fclose(through);
        fclose(past);
    }
    // A full disk ends it, and is known as one.
    int full = open("/dev/full", O_WRONLY);
    ckpt__sink_direct d = { full, 1 };
    ckpt__sink s;
    memset(&s, 0, sizeof s);
    s.fd = full;
    s.path = "x";
    s.size = ROOM;
    s.gather = room;
    s.gather_size = ROOM;
    s.direct = &d;
    assert_true(full >= 0);
    assert_int_equal(ckpt__sink_write(&s, bytes, ROOM), CKPT_NO_SPACE);
    assert_true(s.unheld && s.got == 0);
    (void)close(full);
    ckpt__os_pages_free(room, ROOM);
    free(bytes);
    free(back);
}

static void test_begin(void **state) {
    (void)state;
    uint64_t moved = 5;
    ckpt__os_flag cancel = 0;
    ckpt__transfer t;
    memset(&t, 0xFF, sizeof t);
    t.stall_timeout_s = 3.0;
    t.cancel = &cancel;
    t.moved = &moved;
    ckpt__transfer_begin(&t);
    assert_true(t.stall_timeout_s == 3.0 && t.cancel == &cancel && t.moved == &moved);
    assert_true(!t.transient && !t.throttled && !t.expired && !t.unsure && t.status == 0);
    assert_true(!(t.retry_after > 0.0));
    assert_false(ckpt__transfer_cancelled(&t));
    ckpt__os_flag_set(&cancel, 1);
    assert_true(ckpt__transfer_cancelled(&t));
    ckpt__transfer_moved(&t, 7);
    assert_int_equal(moved, 12);
    assert_int_equal(ckpt__transfer_again(&t, CKPT_NET), CKPT_NET);
    assert_true(t.transient);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_exit),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_fields_without_memory),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
