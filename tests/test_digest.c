// Proves >>digest: every engine's CRC-32 is the bitwise one, for all sizes and alignments; the copy copies, and touches
// nothing beside; sums of parts join.
#define CKPT_IMPLEMENTATION
#ifndef CKPT_NO_REMOTE
#define CKPT_NO_REMOTE
#endif
#include "../ckpt.h"
#include "util.h"

static uint32_t rng_state = 1;
static uint32_t rng(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 17;
    rng_state ^= rng_state << 5;
    return rng_state;
}

// A bit at a time, as the standard has it.
static uint32_t bitwise(uint32_t crc, const unsigned char *p, size_t n) {
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static unsigned char *noise(size_t n) {
    unsigned char *p = (unsigned char *)util_keep(malloc(n), false);
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(rng() >> 11);
    return p;
}

static void test_known(void **state) {
    (void)state;
    assert_int_equal(ckpt__digest_crc32(0, "", 0), 0);
    assert_int_equal(ckpt__digest_crc32(0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(ckpt__digest_crc32(0, "The quick brown fox jumps over the lazy dog", 43), 0x414fa339u);
    assert_int_equal(ckpt__digest_crc32(ckpt__digest_crc32(0, "12345", 5), "6789", 4), 0xcbf43926u);
}

static void test_tables(void **state) {
    (void)state;
    for (unsigned i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 16; k++) {
            for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (0xedb88320u & (0u - (c & 1u)));
            assert_int_equal(ckpt__digest_table[k][i], c);
        }
    }
    uint32_t x = 0x40000000u;
    for (int k = 0; k < 32; k++) {
        assert_int_equal(ckpt__digest_powers[k], x);
        x = ckpt__digest_multiply(x, x, 0xedb88320u);
    }
    assert_int_equal(x, 0x40000000u);
}

// The sum and the copy of one range against the bitwise sum.
static void check(const unsigned char *src, size_t n, unsigned char *room, size_t shift, uint32_t start) {
    uint32_t want = bitwise(start, src, n);
    assert_int_equal(ckpt__digest_crc32(start, src, n), want);
    assert_int_equal(~ckpt__digest_run_table(~start, src, n), want);
    unsigned char *dst = room + 64 + shift;
    memset(room, 0xA5, 64 + shift);
    memset(dst, 0xA5, n + 64);
    assert_int_equal(ckpt__digest_crc32_copy(start, dst, src, n), want);
    assert_memory_equal(dst, src, n);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(dst[n + i], 0xA5);
        assert_int_equal(dst[-1 - (ptrdiff_t)i], 0xA5);
    }
#if defined(CKPT__DIGEST_X86)
    // Each engine is chosen on some processors only, and right on all that can run it.
    size_t even = n & ~(size_t)15;
    if (even >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        assert_int_equal(~ckpt__digest_run_128(~start, NULL, src, even, false), bitwise(start, src, even));
    if (even >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq")) {
        unsigned char *aligned = room + ((64 - ((uintptr_t)room & 63)) & 63);
        assert_int_equal(~ckpt__digest_run_256(~start, NULL, src, even, false), bitwise(start, src, even));
        assert_int_equal(~ckpt__digest_run_256(~start, aligned, src, even, true), bitwise(start, src, even));
        assert_memory_equal(aligned, src, even);
    }
    size_t rounds = n - n % CKPT__DIGEST_ROUND;
    if (rounds > 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul")) {
        unsigned char *aligned = room + ((64 - ((uintptr_t)room & 63)) & 63);
        assert_int_equal(~ckpt__digest_run_added(~start, NULL, src, rounds, false), bitwise(start, src, rounds));
        assert_int_equal(~ckpt__digest_run_added(~start, room + 1, src, rounds, false), bitwise(start, src, rounds));
        assert_memory_equal(room + 1, src, rounds);
        assert_int_equal(~ckpt__digest_run_added(~start, aligned, src, rounds, true), bitwise(start, src, rounds));
        assert_memory_equal(aligned, src, rounds);
    }
    if (even >= 256 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        assert_int_equal(~ckpt__digest_run_512(~start, NULL, src, even, false), bitwise(start, src, even));
    size_t pages = n & ~(size_t)(CKPT__DIGEST_PAGES - 1);
    if (pages > 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
        unsigned char *aligned = room + ((64 - ((uintptr_t)room & 63)) & 63);
        assert_int_equal(~ckpt__digest_run_pages(~start, NULL, src, pages), bitwise(start, src, pages));
        assert_int_equal(~ckpt__digest_run_pages(~start, aligned, src, pages), bitwise(start, src, pages));
        assert_memory_equal(aligned, src, pages);
    }
#endif
}

static void test_sizes(void **state) {
    (void)state;
    const size_t big = 3 * CKPT__DIGEST_STREAM;
    unsigned char *src = noise(big + 256), *room = (unsigned char *)util_keep(malloc(big + 512), false);
    for (size_t n = 0; n <= 1200; n++) check(src + n % 67, n, room, n % 61, n % 3 == 0 ? 0 : rng());
    for (int i = 0; i < 60; i++) {
        size_t near = (size_t)CKPT__DIGEST_STREAM - 130 + rng() % 260;
        check(src + rng() % 64, near, room, rng() % 64, rng());
        check(src + rng() % 64, 1 + rng() % (unsigned)big, room, rng() % 64, rng());
    }
}

static void test_join(void **state) {
    (void)state;
    unsigned char *src = noise(20000);
    for (int i = 0; i < 300; i++) {
        size_t n = rng() % 20000, k = n == 0 ? 0 : rng() % n;
        uint32_t a = ckpt__digest_crc32(0, src, k), b = ckpt__digest_crc32(0, src + k, n - k);
        assert_int_equal(ckpt__digest_crc32_join(a, b, n - k), ckpt__digest_crc32(0, src, n));
    }
    // Lengths beyond 32 bits: the sum of A and 2^k zero bytes, made by doubling.
    uint32_t zeros = ckpt__digest_crc32(0, "", 1), whole = ckpt__digest_crc32(0, "A", 2);
    for (unsigned k = 0; k < 45; k++) {
        assert_int_equal(ckpt__digest_crc32_join(ckpt__digest_crc32(0, "A", 1), zeros, (uint64_t)1 << k), whole);
        whole = ckpt__digest_crc32_join(whole, zeros, (uint64_t)1 << k);
        zeros = ckpt__digest_crc32_join(zeros, zeros, (uint64_t)1 << k);
    }
}

#if defined(CKPT__DIGEST_X86)
// The upper halves of the sixteen registers that SSE code uses, as they are when the engine has just returned.
__attribute__((target("avx")))
static void keep_uppers(unsigned char uppers[16][16]) {
#define KEEP(i) "vextractf128 $1, %%ymm" #i ", " #i "*16(%0)\n\t"
    __asm__ volatile(KEEP(0) KEEP(1) KEEP(2) KEEP(3) KEEP(4) KEEP(5) KEEP(6) KEEP(7) : : "r"(uppers) : "memory");
#if defined(__x86_64__)
    __asm__ volatile(KEEP(8) KEEP(9) KEEP(10) KEEP(11) KEEP(12) KEEP(13) KEEP(14) KEEP(15) : : "r"(uppers) : "memory");
#endif
#undef KEEP
}

static void all_zero(const char *engine, unsigned char uppers[16][16]) {
    static const unsigned char zero[16];
    for (int i = 0; i < 16; i++) {
        if (memcmp(uppers[i], zero, 16) != 0) fail_msg("%s leaves the upper half of ymm%d", engine, i);
    }
}
#endif

// What it leaves there slows down all SSE code that the thread runs next.
static void test_no_upper_halves_left(void **state) {
    (void)state;
#if defined(CKPT__DIGEST_X86)
    if (!__builtin_cpu_supports("avx")) util_skip("this processor has no wide registers");
    const size_t n = 4 * (size_t)CKPT__DIGEST_PAGES;
    unsigned char *src = noise(n), *dst = (unsigned char *)util_keep(malloc(n), false), uppers[16][16];
    memset(uppers, 0, sizeof uppers);
    (void)ckpt__digest_run(1, NULL, src, n);
    keep_uppers(uppers);
    all_zero("a sum", uppers);
    (void)ckpt__digest_run(1, dst, src, n);
    keep_uppers(uppers);
    all_zero("a copy", uppers);
#else
    util_skip("no engine here has wide registers");
#endif
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_no_upper_halves_left)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
