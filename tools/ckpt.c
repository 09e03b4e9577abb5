/* ckpt: looks into checkpoints and keeps folders of them in order. Over the public interface of ckpt.h only.

   build:  cc -O2 -o ckpt tools/ckpt.c -lcurl -lcrypto -lpthread -lm
           cc -O2 -DCKPT_NO_REMOTE -o ckpt tools/ckpt.c -lpthread -lm       (without s3:// and sftp://)
   use:    ckpt --help
*/
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_OK, EXIT_NO, EXIT_USAGE, EXIT_MISSING, EXIT_REFUSED, EXIT_FAILED };

typedef struct tool_options {
    bool   json, quiet, stats, all, verify, force, no_verify, damaged, dry_run, now, whole, colour, utf8;
    int    keep, keep_every;
    const char *keep_best, *as;
    double rtol, atol, older;
    char **args;
    int    count;
} tool_options;

static tool_options opt;

//-- output ------------------------------------------------------------------------

static const char *paint(const char *code) {
    return opt.colour ? code : "";
}

#define BOLD   paint("\033[1m")
#define DIM    paint("\033[2m")
#define RED    paint("\033[31m")
#define GREEN  paint("\033[32m")
#define YELLOW paint("\033[33m")
#define CYAN   paint("\033[36m")
#define PLAIN  paint("\033[0m")

static int exit_of(ckpt_err e) {
    switch (e) {
        case CKPT_OK: return EXIT_OK;
        case CKPT_CORRUPT: case CKPT_MISMATCH: return EXIT_NO;
        case CKPT_NOT_FOUND: return EXIT_MISSING;
        case CKPT_EXISTS: case CKPT_AUTH: case CKPT_ARG: return EXIT_REFUSED;
        default: return EXIT_FAILED;
    }
}

#if defined(__GNUC__)
__attribute__((returns_nonnull))
#endif
static void *need(void *p) {
    if (p == NULL) {
        fprintf(stderr, "ckpt: out of memory\n");
        exit(EXIT_FAILED);
    }
    return p;
}

// Bytes of the UTF-8 character that n bytes begin with; 0: they begin with none.
static size_t character(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xC2 && p[0] < 0xE0 ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : p[0] >= 0xF0 && p[0] < 0xF5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++) if ((p[i] & 0xC0) != 0x80) return 0;
    bool overlong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    return overlong || (p[0] == 0xED && p[1] >= 0xA0) || (p[0] == 0xF4 && p[1] >= 0x90) ? 0 : len;
}

// JSON is UTF-8: a byte that is none is written as Python has it in the names of files, 0xFF as \udcff.
static void json_bytes(const char *s, size_t n) {
    putchar('"');
    for (size_t i = 0; i < n; ) {
        unsigned char c = (unsigned char)s[i];
        size_t len = character(s + i, n - i);
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f) printf("\\u%04x", c);
        else if (len == 0) printf("\\udc%02x", c);
        else fwrite(s + i, 1, len, stdout);
        i += len > 0 ? len : 1;
    }
    putchar('"');
}

// Takes the passwords out of the URIs in a text: sftp://user@host of sftp://user:password@host. Output is kept where others read it.
// An authority ends where a text goes on; a port of digits is none.
static void hide_passwords(char *text) {
    for (char *mark = strstr(text, "://"); mark != NULL; mark = strstr(mark + 3, "://")) {
        char *from = mark + 3, *end = from + strcspn(from, "/?# \t\r\n\"'<>"), *colon = (char *)memchr(from, ':', (size_t)(end - from)), *at = NULL;
        if (colon == NULL || *from == '[') continue;
        bool port = colon + 1 + strspn(colon + 1, "0123456789") == end;
        for (char *p = colon; p < end; p++) if (*p == '@') at = p;
        if (at == NULL && !port) end += strcspn(end, " \t\r\n\"'<>");       // one with a '/' is refused, and told of
        for (char *p = colon; at == NULL && p < end; p++) if (*p == '@') at = p;
        if (at != NULL) memmove(colon, at, strlen(at) + 1);
    }
}

// A copy without passwords. To be freed.
static char *public_text(const char *s) {
    char *out = strcpy((char *)need(malloc(strlen(s) + 1)), s);
    hide_passwords(out);
    return out;
}

static void json_text(const char *s) {
    char *out = s != NULL ? public_text(s) : NULL;
    if (out == NULL) printf("null");
    else json_bytes(out, strlen(out));
    free(out);
}

// Text from a file may hold anything: what a terminal could take for a command is shown as '?', and so is what is not UTF-8.
static const char *shown(const char *text, char *buf, size_t cap) {
    char *copy = public_text(text != NULL ? text : ""), *s = copy;
    size_t n = 0, left = strlen(s);
    for (; left > 0; ) {
        unsigned char c = (unsigned char)*s;
        size_t len = character(s, left);
        bool plain = len > 0 && c >= 0x20 && c != 0x7f && !(c == 0xC2 && (unsigned char)s[1] < 0xA0);      // those are commands too
        if (n + (plain ? len : 1) >= cap) break;
        if (plain) memcpy(buf + n, s, len);
        else buf[n] = '?';
        n += plain ? len : 1;
        s += len > 0 ? len : 1;
        left -= len > 0 ? len : 1;
    }
    buf[n] = 0;
    free(copy);
    return buf;
}

static const char *last_error(void) {
    static char text[8192];
    return shown(ckpt_last_error(), text, sizeof text);
}

// By their bits, and from where they lie: -ffast-math knows neither NaNs nor infinities, and `volatile` hides the question from it.
static const uint64_t infinity = (uint64_t)0x7FF << 52, a_nan = (uint64_t)0xFFF << 51;

static void set_double(double *out, uint64_t bits) {
    memcpy(out, &bits, sizeof bits);
}

static uint64_t unsigned_bits(const double *v) {
    uint64_t bits;
    memcpy(&bits, v, sizeof bits);
    volatile uint64_t kept = bits << 1 >> 1;
    return kept;
}

static bool is_nan(const double *v) {
    return unsigned_bits(v) > infinity;
}

static bool is_finite(const double *v) {
    return unsigned_bits(v) < infinity;
}

static void json_number(double v) {
    if (!is_finite(&v)) { printf("null"); return; }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    printf("%s", text);
}

// A failure as the last thing on stdout with --json, and always as a sentence on stderr. Returns the exit status.
static int complain(ckpt_err e) {
    fprintf(stderr, "%sckpt:%s %s\n", isatty(2) ? RED : "", isatty(2) ? PLAIN : "", last_error());
    if (opt.json) {
        printf("{\"error\": {\"code\": \"%s\", \"text\": ", ckpt_err_name(e));
        json_text(ckpt_last_error());
        printf("}}\n");
    }
    return exit_of(e);
}

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static int misuse(const char *fmt, ...) {
    va_list args;
    char text[8192], clean[8192];
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "ckpt: %s\nTry 'ckpt --help'.\n", shown(text, clean, sizeof clean));
    if (opt.json) {
        printf("{\"error\": {\"code\": \"%s\", \"text\": ", ckpt_err_name(CKPT_ARG));
        json_text(text);
        printf("}}\n");
    }
    return EXIT_USAGE;
}

// Which characters take no column of a terminal, and which take two: by Unicode's classes Mn, Me and East Asian Width, in the ranges
// that names are made of. (wcwidth knows them in some locales only, and nobody sets one here.)
static const struct { uint32_t first, last; int columns; } CELLS[] = {
    { 0x300, 0x36F, 0 }, { 0x483, 0x489, 0 }, { 0x591, 0x5BD, 0 }, { 0x610, 0x61A, 0 }, { 0x64B, 0x65F, 0 }, { 0x93C, 0x93C, 0 },
    { 0x941, 0x948, 0 }, { 0x94D, 0x94D, 0 }, { 0xE31, 0xE31, 0 }, { 0xE34, 0xE3A, 0 }, { 0xE47, 0xE4E, 0 }, { 0x1100, 0x115F, 2 },
    { 0x1160, 0x11FF, 0 }, { 0x1AB0, 0x1AFF, 0 }, { 0x1DC0, 0x1DFF, 0 }, { 0x200B, 0x200F, 0 }, { 0x2060, 0x2064, 0 },
    { 0x20D0, 0x20F0, 0 }, { 0x231A, 0x231B, 2 }, { 0x23E9, 0x23EC, 2 }, { 0x2614, 0x2615, 2 }, { 0x2648, 0x2653, 2 },
    { 0x26A1, 0x26A1, 2 }, { 0x2705, 0x2705, 2 }, { 0x270A, 0x270B, 2 }, { 0x2728, 0x2728, 2 }, { 0x274C, 0x274C, 2 },
    { 0x2753, 0x2757, 2 }, { 0x2B50, 0x2B50, 2 }, { 0x2E80, 0x303E, 2 }, { 0x3041, 0x3098, 2 }, { 0x3099, 0x309A, 0 },
    { 0x309B, 0xA4CF, 2 }, { 0xA960, 0xA97C, 2 }, { 0xAC00, 0xD7A3, 2 }, { 0xF900, 0xFAFF, 2 }, { 0xFE00, 0xFE0F, 0 },
    { 0xFE10, 0xFE19, 2 }, { 0xFE20, 0xFE2F, 0 }, { 0xFE30, 0xFE6F, 2 }, { 0xFEFF, 0xFEFF, 0 }, { 0xFF00, 0xFF60, 2 },
    { 0xFFE0, 0xFFE6, 2 }, { 0x16FE0, 0x1B2FB, 2 }, { 0x1F200, 0x1F265, 2 }, { 0x1F300, 0x1F320, 2 }, { 0x1F32D, 0x1F64F, 2 },
    { 0x1F680, 0x1F6FC, 2 }, { 0x1F7E0, 0x1F7EB, 2 }, { 0x1F90C, 0x1F9FF, 2 }, { 0x1FA70, 0x1FAFF, 2 }, { 0x20000, 0x3FFFD, 2 },
    { 0xE0100, 0xE01EF, 0 },
};

// Columns that UTF-8 text takes on a terminal.
static int columns_of(const char *s) {
    int n = 0;
    while (*s != 0) {
        uint32_t c = (unsigned char)*s++;
        c = c >= 0xF0 ? c & 7 : c >= 0xE0 ? c & 15 : c >= 0xC0 ? c & 31 : c;
        while (((unsigned char)*s & 0xC0) == 0x80) c = c << 6 | ((unsigned char)*s++ & 63);
        size_t i = 0;
        while (i < sizeof CELLS / sizeof *CELLS && c > CELLS[i].last) i++;
        n += i < sizeof CELLS / sizeof *CELLS && c >= CELLS[i].first ? CELLS[i].columns : 1;
    }
    return n;
}

static void pad(int from, int to) {
    for (; from < to; from++) putchar(' ');
}

static const char *size_text(uint64_t bytes, char *buf, size_t cap) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double v = (double)bytes;
    int u = 0;
    while (v >= 1023.95 && u < 5) { v /= 1024; u++; }
    if (u == 0) snprintf(buf, cap, "%llu B", (unsigned long long)bytes);
    else snprintf(buf, cap, "%.*f %s", v < 99.95 ? 1 : 0, v, units[u]);
    return buf;
}

static const char *count_text(double n, char *buf, size_t cap) {
    if (n < 10000) snprintf(buf, cap, "%.0f", n);
    else if (n < 1e6) snprintf(buf, cap, "%.1f K", n / 1e3);
    else if (n < 1e9) snprintf(buf, cap, "%.1f M", n / 1e6);
    else snprintf(buf, cap, "%.2f G", n / 1e9);
    return buf;
}

// Is it a time that a calendar has? What an index says may be any number.
static bool is_date(double unix_time) {
    return unix_time >= 0 && unix_time < 253402300800.0;        // the year 10000
}

static const char *age_text(double seconds, char *buf, size_t cap) {
    if (!is_date((double)time(NULL) - seconds)) snprintf(buf, cap, "-");
    else if (seconds < 0) snprintf(buf, cap, "now");
    else if (seconds < 100) snprintf(buf, cap, "%.0f s", seconds);
    else if (seconds < 100 * 60) snprintf(buf, cap, "%.0f min", seconds / 60);
    else if (seconds < 48 * 3600) snprintf(buf, cap, "%.0f h", seconds / 3600);
    else snprintf(buf, cap, "%.0f d", seconds / 86400);
    return buf;
}

static const char *clock_text(double unix_time, bool utc, char *buf, size_t cap) {
    time_t t = (time_t)(is_date(unix_time) ? unix_time : 0);
    struct tm parts;
    snprintf(buf, cap, "%s", utc ? "" : "-");
    if (!is_date(unix_time) || (utc ? gmtime_r(&t, &parts) : localtime_r(&t, &parts)) == NULL) return buf;
    if (strftime(buf, cap, utc ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%d %H:%M", &parts) == 0) buf[0] = 0;
    return buf;
}

static double now_monotonic(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The library's bar, taken away when it is full: what counts is then printed.
static void on_progress(const ckpt_progress *p, void *user) {
    (void)user;
    if (opt.quiet || !isatty(2)) return;
    if (p->finished) fprintf(stderr, "\r\033[K");
    else ckpt_progress_bar(p, NULL);
}

static void on_log(ckpt_log_level level, const char *msg, void *user) {
    (void)user;
    char clean[8192];
    if (level >= CKPT_LOG_WARN && !opt.quiet) fprintf(stderr, "ckpt: %s\n", shown(msg, clean, sizeof clean));
}

// Progress of what the tool itself reads.
typedef struct meter { ckpt_progress p; double last; char name[1024]; } meter;

static void meter_start(meter *m, const char *phase, const char *name, uint64_t total) {
    memset(m, 0, sizeof *m);
    m->p.phase = phase;
    m->p.name = shown(name, m->name, sizeof m->name);
    m->p.total = total;
    m->p.attempt = 1;
    m->last = now_monotonic() + 0.2;            // what is over at once needs no bar
}

static void meter_add(meter *m, uint64_t bytes) {
    m->p.done += bytes;
    double now = now_monotonic();
    if (now - m->last < 0.1) return;
    m->last = now;
    on_progress(&m->p, NULL);
}

static void meter_end(meter *m) {
    m->p.finished = true;
    on_progress(&m->p, NULL);
}

//-- numbers of every dtype --------------------------------------------------------

static const struct { const char *name; size_t size; } dtypes[] = {
    { "?", 1 }, { "float64", 8 }, { "float32", 4 }, { "float16", 2 }, { "bfloat16", 2 }, { "float8_e4m3fn", 1 }, { "float8_e5m2", 1 },
    { "int64", 8 }, { "int32", 4 }, { "int16", 2 }, { "int8", 1 }, { "uint64", 8 }, { "uint32", 4 }, { "uint16", 2 }, { "uint8", 1 },
    { "bool", 1 }, { "complex64", 8 }, { "complex128", 16 }
};

static int dtype_index(ckpt_dtype d) {
    return (int)d >= 1 && (int)d <= (int)CKPT_C128 ? (int)d : 0;
}

static void small_float(double *out, unsigned bits, int exponent_bits, int fraction_bits, bool has_inf) {
    unsigned fraction = bits & ((1u << fraction_bits) - 1), top = (1u << exponent_bits) - 1;
    unsigned exponent = bits >> fraction_bits & top;
    bool minus = (bits >> (exponent_bits + fraction_bits) & 1) != 0;
    int bias = (int)(top >> 1);
    if (exponent == top && has_inf) set_double(out, fraction != 0 ? a_nan : infinity | (uint64_t)minus << 63);
    else if (exponent == top && fraction == (1u << fraction_bits) - 1) set_double(out, a_nan);  // float8_e4m3fn: no infinities, one NaN
    else if (exponent == 0) *out = (minus ? -1.0 : 1.0) * ldexp((double)fraction, 1 - bias - fraction_bits);
    else *out = (minus ? -1.0 : 1.0) * ldexp((double)(fraction | 1u << fraction_bits), (int)exponent - bias - fraction_bits);
}

// One whose absolute value is beyond all doubles is no infinity for that.
static void absolute(double *out, const double *z) {
    *out = hypot(z[0], z[1]);
    if (!is_finite(out) && is_finite(&z[0]) && is_finite(&z[1])) set_double(out, infinity - 1);
}

#define EACH(type) do {                                                             \
        for (size_t i = 0; i < count; i++) {                                        \
            type v;                                                                 \
            memcpy(&v, p + i * sizeof v, sizeof v);                                 \
            out[i] = (double)v;                                                     \
        }                                                                           \
    } while (0)

// Complex numbers as their absolute values.
static void to_doubles(ckpt_dtype dtype, const char *p, size_t count, double *out) {
    static double half[65536], bfloat[65536];
    static bool made;
    if (!made) {
        for (unsigned b = 0; b < 65536; b++) {
            small_float(&half[b], b, 5, 10, true);
            small_float(&bfloat[b], b, 8, 7, true);
        }
        made = true;
    }
    uint16_t h;
    double z[2];
    float c[2];
    switch (dtype) {
        case CKPT_F64: EACH(double); break;
        case CKPT_F32: EACH(float); break;
        case CKPT_I64: EACH(int64_t); break;
        case CKPT_I32: EACH(int32_t); break;
        case CKPT_I16: EACH(int16_t); break;
        case CKPT_I8: EACH(int8_t); break;
        case CKPT_U64: EACH(uint64_t); break;
        case CKPT_U32: EACH(uint32_t); break;
        case CKPT_U16: EACH(uint16_t); break;
        case CKPT_U8: case CKPT_BOOL: EACH(uint8_t); break;
        case CKPT_F16: for (size_t i = 0; i < count; i++) { memcpy(&h, p + 2 * i, 2); out[i] = half[h]; } break;
        case CKPT_BF16: for (size_t i = 0; i < count; i++) { memcpy(&h, p + 2 * i, 2); out[i] = bfloat[h]; } break;
        case CKPT_F8_E4M3: for (size_t i = 0; i < count; i++) small_float(&out[i], (unsigned char)p[i], 4, 3, false); break;
        case CKPT_F8_E5M2: for (size_t i = 0; i < count; i++) small_float(&out[i], (unsigned char)p[i], 5, 2, true); break;
        case CKPT_C64: for (size_t i = 0; i < count; i++) { memcpy(c, p + 8 * i, 8); out[i] = hypot((double)c[0], (double)c[1]); } break;
        case CKPT_C128: for (size_t i = 0; i < count; i++) { memcpy(z, p + 16 * i, 16); absolute(&out[i], z); } break;
        default: for (size_t i = 0; i < count; i++) out[i] = 0; break;
    }
}

enum { PIECE = 4 << 20, BUCKETS = 16 };     // bytes that are read at a time; a multiple of every element's size

typedef struct tensor_stats {
    uint64_t count, nans, infs, zeros, buckets[BUCKETS];
    double   min, max, mean, std;
    bool     whole;                         // int64 and uint64: their extremes as they are, which few doubles are
    uint64_t low, high;                     // in the order of the numbers: for int64 with the first bit turned over
} tensor_stats;

// What is kept from piece to piece of one pass.
typedef struct stats_pass { tensor_stats *s; ckpt_dtype dtype; uint64_t finite; double m2, width, start, scale; } stats_pass;

static char   *piece_bytes[2];
static double *piece_values[2];

static void need_pieces(void) {
    for (int i = 0; i < 2; i++) {
        if (piece_bytes[i] == NULL) piece_bytes[i] = (char *)need(malloc(PIECE));
        if (piece_values[i] == NULL) piece_values[i] = (double *)need(malloc(PIECE * sizeof(double)));
    }
}

// Hands a tensor to `take`, a few MiB at a time: as doubles, and as it is.
static ckpt_err each_piece(ckpt_file *f, int index, const ckpt_entry *e, void (*take)(stats_pass *p, const double *v, const char *raw, size_t n),
                           stats_pass *p, meter *m) {
    size_t unit = dtypes[dtype_index(e->tensor.dtype)].size;
    need_pieces();
    for (uint64_t at = 0; at < e->size; at += PIECE) {
        size_t size = e->size - at < PIECE ? (size_t)(e->size - at) : PIECE;
        ckpt_err err = ckpt_file_read(f, index, at, piece_bytes[0], size);
        if (err != CKPT_OK) return err;
        to_doubles(e->tensor.dtype, piece_bytes[0], size / unit, piece_values[0]);
        take(p, piece_values[0], piece_bytes[0], size / unit);
        if (m != NULL) meter_add(m, size);
    }
    return CKPT_OK;
}

static void take_moments(stats_pass *p, const double *v, const char *raw, size_t n) {
    tensor_stats *s = p->s;
    (void)raw;
    for (size_t i = 0; i < n; i++) {
        if (!is_finite(&v[i])) continue;
        double x = v[i] * p->scale, d = x - s->mean;        // Welford's running moments do not cancel
        s->mean += d / (double)++p->finite;
        p->m2 += d * (x - s->mean);
    }
}

static void take_whole(tensor_stats *s, ckpt_dtype dtype, const char *raw, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, raw + 8 * i, 8);
        x ^= dtype == CKPT_I64 ? (uint64_t)1 << 63 : 0;
        if (x < s->low) s->low = x;
        if (x > s->high) s->high = x;
    }
}

static void take_extremes(stats_pass *p, const double *v, const char *raw, size_t n) {
    tensor_stats *s = p->s;
    for (size_t i = 0; i < n; i++) {
        if (!is_finite(&v[i])) {
            if (is_nan(&v[i])) s->nans++;
            else s->infs++;
            continue;
        }
        if (v[i] < s->min) s->min = v[i];
        if (v[i] > s->max) s->max = v[i];
        s->zeros += v[i] == 0;
    }
    s->count += n;
    if (s->whole) take_whole(s, p->dtype, raw, n);
    take_moments(p, v, raw, n);
}

static void take_buckets(stats_pass *p, const double *v, const char *raw, size_t n) {
    (void)raw;
    for (size_t i = 0; i < n; i++) {
        if (!is_finite(&v[i])) continue;
        int b = (int)((v[i] * p->scale / p->width - p->start) * BUCKETS);
        p->s->buckets[b < 0 ? 0 : b >= BUCKETS ? BUCKETS - 1 : b]++;
    }
}

// Two passes over a tensor: extremes and moments, then the histogram between the extremes. Where a square is no double the moments
// are taken again of numbers that are so much smaller.
static ckpt_err take_stats(ckpt_file *f, int index, const ckpt_entry *e, tensor_stats *s, meter *m) {
    stats_pass p;
    memset(s, 0, sizeof *s);
    memset(&p, 0, sizeof p);
    set_double(&s->min, infinity);
    set_double(&s->max, infinity | (uint64_t)1 << 63);
    p.s = s;
    p.dtype = e->tensor.dtype;
    p.scale = 1;
    s->whole = p.dtype == CKPT_I64 || p.dtype == CKPT_U64;
    s->low = UINT64_MAX;
    ckpt_err err = each_piece(f, index, e, take_extremes, &p, m);
    const int smaller = is_finite(&p.m2) && is_finite(&s->mean) ? 0 : 600;
    if (err == CKPT_OK && smaller > 0) {
        p.scale = ldexp(1.0, -smaller);
        p.finite = 0;
        s->mean = p.m2 = 0;
        err = each_piece(f, index, e, take_moments, &p, NULL);
    }
    s->mean = ldexp(s->mean, smaller);
    s->std = p.finite > 0 ? ldexp(sqrt(p.m2 / (double)p.finite), smaller) : 0;
    p.width = s->max - s->min;
    p.scale = p.finite == 0 || is_finite(&p.width) ? 1 : 0.5;
    volatile double low = s->min * p.scale, high = s->max * p.scale;   // or -ffast-math takes the difference of the ends first
    if (p.scale < 1) p.width = high - low;
    if (p.width > 0) p.start = low / p.width;
    if (err == CKPT_OK && p.width > 0) return each_piece(f, index, e, take_buckets, &p, m);
    if (p.width == 0) s->buckets[BUCKETS / 2] = s->count - s->nans - s->infs;
    meter_add(m, e->size);
    return err;
}

// An extreme: of 64 bits as it is.
static void json_extreme(const tensor_stats *s, ckpt_dtype dtype, double v, uint64_t whole) {
    if (!s->whole || s->count == 0) json_number(v);
    else if (dtype == CKPT_U64) printf("%llu", (unsigned long long)whole);
    else if (whole >= (uint64_t)1 << 63) printf("%llu", (unsigned long long)(whole - ((uint64_t)1 << 63)));
    else printf("-%llu", (unsigned long long)(((uint64_t)1 << 63) - whole));
}

static void histogram(const tensor_stats *s) {
    static const char *const bars[] = { "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87",
                                        "\xe2\x96\x88" };
    static const char ascii[] = ".:-=+*#@";
    uint64_t top = 0;
    for (int i = 0; i < BUCKETS; i++) if (s->buckets[i] > top) top = s->buckets[i];
    for (int i = 0; i < BUCKETS; i++) {
        int level = top == 0 ? 0 : (int)ceil((double)s->buckets[i] / (double)top * 8) - 1;
        if (s->buckets[i] == 0) putchar(' ');
        else if (opt.utf8) printf("%s", bars[level < 0 ? 0 : level]);
        else putchar(ascii[level < 0 ? 0 : level]);
    }
}

//-- ls ------------------------------------------------------------------------------

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

// Not compressed, by its name.
static bool is_plain(const char *name) {
    const char *dot = strrchr(base_of(name), '.');
    return dot != NULL && (strcmp(dot, ".pt") == 0 || strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".tar") == 0);
}

static bool is_dir(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

//-- checkpoints of many ranks: a directory with a file for each, and .metadata --------

static const char *const META = ".metadata", *const HF_INDEX = "model.safetensors.index.json";

// "__3_0.pt": a rank's file, by the library's own rule. The second number is above 0 when the checkpoint was saved again under its name.
static bool is_rank_file(const char *base) {
    static const char *const containers[] = { ".pt", ".safetensors", ".tar", ".tgz" };
    size_t digits = strncmp(base, "__", 2) == 0 ? strspn(base + 2, "0123456789") : 0;
    size_t edition = digits > 0 && base[2 + digits] == '_' ? strspn(base + 3 + digits, "0123456789") : 0;
    if (digits > 9 || edition == 0 || edition > 9) return false;
    const char *rest = base + 3 + digits + edition;
    for (size_t i = 0; i < sizeof containers / sizeof containers[0]; i++) {
        size_t n = strlen(containers[i]);
        if (strncmp(rest, containers[i], n) == 0 && (rest[n] == 0 || rest[n] == '.')) return true;
    }
    return false;
}

static bool belongs(const char *base) {
    return is_rank_file(base) || strcmp(base, META) == 0 || strcmp(base, HF_INDEX) == 0;
}

static char *keep_text(const char *s) {
    return strcpy((char *)need(malloc(strlen(s) + 1)), s);
}

// The folder that a path lies in. To be freed.
static char *parent_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *out = keep_text(slash != NULL ? path : ".");
    if (slash != NULL) out[slash == path ? 1 : slash - path] = 0;
    return out;
}

// Bytes of the schemes that need no "//" behind them, with the ':'; 0: it is none of them.
static size_t bare_scheme(const char *s) {
    return strncasecmp(s, "dbfs:", 5) == 0 ? 5 : strncasecmp(s, "mlflow-artifacts:", 17) == 0 ? 17 : 0;
}

// Is it the URI of a store, or of something in one, rather than a local path?
static bool is_uri(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._");
    return bare_scheme(s) > 0 || (n > 0 && strncmp(s + n, "://", 3) == 0);
}

// Where the path of a URI begins, with its '/'; NULL: it has none, or it is no URI.
static const char *uri_path(const char *uri) {
    const char *mark = strstr(uri, "://"), *bare = bare_scheme(uri) > 0 ? uri + bare_scheme(uri) : NULL;
    if (bare != NULL && strncmp(bare, "//", 2) != 0) return strchr(bare, '/');
    return mark != NULL ? strchr(mark + 3, '/') : NULL;
}

// Bytes before the settings of a libcloud:// URI, which stand behind the name; of any other text all.
static size_t before_query(const char *s) {
    return strncmp(s, "libcloud://", 11) == 0 ? strcspn(s, "?") : strlen(s);
}

static bool ends_with_slash(const char *s) {
    size_t n = before_query(s);
    return n > 0 && s[n - 1] == '/';
}

static char *joined(const char *a, const char *b) {
    size_t cap = strlen(a) + strlen(b) + 2, n = before_query(a);
    char *out = (char *)need(malloc(cap));
    snprintf(out, cap, "%.*s%s%s%s", (int)n, a, ends_with_slash(a) ? "" : "/", b, a + n);
    return out;
}

typedef enum directory { DIR_OTHER, DIR_SHARDED, DIR_UNFINISHED } directory;

// What a local directory is; DIR_OTHER also for what is none.
static directory look_at(const char *path) {
    if (!is_dir(path)) return DIR_OTHER;
    char *meta = joined(path, META);
    bool listed = access(meta, F_OK) == 0, ranks = false;
    free(meta);
    if (listed) return DIR_SHARDED;
    DIR *d = opendir(path);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && !ranks; e = readdir(d)) ranks = is_rank_file(e->d_name);
    if (d != NULL) closedir(d);
    return ranks ? DIR_UNFINISHED : DIR_OTHER;
}

static ckpt_err say_unfinished(const char *path) {
    char text[4200], clean[4096];
    snprintf(text, sizeof text, "%s has no .metadata: the save was never finished, and it does not count", shown(path, clean, sizeof clean));
    return ckpt_set_error(CKPT_CORRUPT, text);
}

static ckpt_err open_store(ckpt_store **out, const char *uri) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.logger.fn = on_log;
    d.progress.fn = on_progress;
    return ckpt_store_open(out, uri, &d);
}

typedef struct object_list { char **names; uint64_t *sizes; int count, cap; uint64_t bytes; } object_list;

static ckpt_err note_object(const char *name, uint64_t size, void *user) {
    object_list *l = (object_list *)user;
    if (l->count == l->cap) {
        l->cap = l->cap > 0 ? 2 * l->cap : 64;
        l->names = (char **)need(realloc(l->names, (size_t)l->cap * sizeof *l->names));
        l->sizes = (uint64_t *)need(realloc(l->sizes, (size_t)l->cap * sizeof *l->sizes));
    }
    l->names[l->count] = keep_text(name);
    l->sizes[l->count++] = size;
    l->bytes += size;
    return CKPT_OK;
}

static void free_objects(object_list *l) {
    for (int i = 0; i < l->count; i++) free(l->names[i]);
    free(l->names);
    free(l->sizes);
}

static bool has_rank_files(ckpt_store *s) {
    object_list l;
    bool ranks = false;
    memset(&l, 0, sizeof l);
    if (ckpt_store_list(s, "__", note_object, &l) == CKPT_OK) {
        for (int i = 0; i < l.count; i++) ranks = ranks || is_rank_file(l.names[i]);
    }
    free_objects(&l);
    return ranks;
}

// Are there ranks' files below a URI that names no object?
static bool is_half_uri(const char *uri) {
    ckpt_store *s = NULL;
    bool ranks = open_store(&s, uri) == CKPT_OK && has_rank_files(s);
    ckpt_store_close(s);
    return ranks;
}

// Says of a URI that is not there what is: a sentence of its own for ranks' files without .metadata.
static ckpt_err explain(ckpt_err e, const char *uri) {
    char said[4096];
    if (e != CKPT_NOT_FOUND || !is_uri(uri)) return e;
    snprintf(said, sizeof said, "%s", ckpt_last_error());
    return is_half_uri(uri) ? say_unfinished(uri) : ckpt_set_error(e, said);
}

// A folder of our own in the one for temporary files; "" until one is needed, and where none can be made. As long as we live we hold the
// lock of a file in it: what SIGKILL or the kernel has ended cannot clear its own, and that is free.
#define SPARE_NAME "ckpt-tool-"
#define SPARE_LOCK ".lock"

static char     spare_dir[4096];
static int      spare_lock = -1;
static sigset_t breaks;

// Takes out of a folder, whose descriptor it closes, everything but one file.
static void clear_dir(int fd, const char *but) {
    DIR *d = fdopendir(fd);
    if (d == NULL) close(fd);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        bool stays = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || (but != NULL && strcmp(e->d_name, but) == 0);
        if (stays || unlinkat(fd, e->d_name, 0) == 0) continue;
        int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) clear_dir(below, NULL);
        (void)unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    if (d != NULL) closedir(d);
}

static void clear_spare(void) {
    for (int i = 0; i < 100 && spare_dir[0] != 0 && rmdir(spare_dir) != 0; i++) {      // a download may make one more file meanwhile
        char path[4400];
        int fd = open(spare_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), lock = spare_lock;
        if (fd >= 0) clear_dir(fd, SPARE_LOCK);
        spare_lock = -1;
        if (lock >= 0) close(lock);         // NFS keeps what is open under another name
        snprintf(path, sizeof path, "%s/" SPARE_LOCK, spare_dir);
        (void)unlink(path);
    }
}

static bool take_lock(int fd) {
    struct flock all;
    memset(&all, 0, sizeof all);
    all.l_type = F_WRLCK;
    all.l_whence = SEEK_SET;
    return fcntl(fd, F_SETLK, &all) == 0;
}

// ckpt-tool-PID-TIME
static bool is_spare_name(const char *name) {
    size_t n = strlen(SPARE_NAME), pid, at;
    if (strncmp(name, SPARE_NAME, n) != 0) return false;
    pid = strspn(name + n, "0123456789");
    at = pid > 0 && name[n + pid] == '-' ? strspn(name + n + pid + 1, "0123456789abcdef") : 0;
    return at > 0 && name[n + pid + 1 + at] == 0;
}

// Removes the folder of a tool of ours that is gone; not one without a lock, which is just being made, or an earlier version's.
static void clear_dead(int tmp, const char *name) {
    struct stat st;
    int dir = openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ours = dir >= 0 && fstat(dir, &st) == 0 && st.st_uid == geteuid();
    int lock = ours ? openat(dir, SPARE_LOCK, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    if (lock >= 0 && take_lock(lock)) {
        clear_dir(dir, SPARE_LOCK);
        dir = openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir >= 0) (void)unlinkat(dir, SPARE_LOCK, 0);
    }
    if (lock >= 0) close(lock);
    if (dir >= 0) close(dir);
    if (lock >= 0) (void)unlinkat(tmp, name, AT_REMOVEDIR);         // not where there is anything in it
}

static void clear_all_dead(const char *tmp) {
    DIR *d = opendir(tmp);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (is_spare_name(e->d_name)) clear_dead(dirfd(d), e->d_name);
    }
    if (d != NULL) closedir(d);
}

// Takes the lock of our folder. False: another tool took us for dead in between, and removes it. Where the file system has no locks
// nobody takes anybody for that.
static bool hold_spare(void) {
    struct stat st;
    char path[4400];
    snprintf(path, sizeof path, "%s/" SPARE_LOCK, spare_dir);
    spare_lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (spare_lock < 0) return errno != ENOENT;
    bool got = take_lock(spare_lock), other = !got && (errno == EAGAIN || errno == EACCES);
    if (!other && (!got || fstat(spare_lock, &st) != 0 || st.st_nlink > 0)) return true;
    close(spare_lock);
    spare_lock = -1;
    return false;
}

// Waits for Ctrl-C and the like: what was fetched to be looked at may be many GiB, and nobody would find it.
static void *on_break(void *unused) {
    int sig = 0;
    (void)unused;
    if (sigwait(&breaks, &sig) != 0) return NULL;
    clear_spare();
    (void)signal(sig, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &breaks, NULL);
    (void)raise(sig);
    return NULL;
}

static bool name_spare(const char *tmp) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int n = snprintf(spare_dir, sizeof spare_dir, "%s/" SPARE_NAME "%ld-%lx%lx", tmp, (long)getpid(), (unsigned long)t.tv_sec, (unsigned long)t.tv_nsec);
    bool made = n > 0 && (size_t)n < sizeof spare_dir && mkdir(spare_dir, 0700) == 0;
    if (!made) spare_dir[0] = 0;
    return made;
}

static void make_spare_dir(void) {
    static const int all[] = { SIGINT, SIGTERM, SIGHUP };
    const char *dir = getenv("TMPDIR");
    pthread_t thread;
    if (dir == NULL || dir[0] == 0) dir = "/tmp";
    clear_all_dead(dir);
    for (int i = 0; i < 10 && spare_dir[0] == 0; i++) {
        if (!name_spare(dir)) return;
        if (!hold_spare()) spare_dir[0] = 0;
    }
    if (spare_dir[0] == 0) return;
    sigemptyset(&breaks);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct sigaction now;
        if (sigaction(all[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&breaks, all[i]);     // as nohup has it
    }
    (void)pthread_sigmask(SIG_BLOCK, &breaks, NULL);
    if (pthread_create(&thread, NULL, on_break, NULL) == 0) (void)pthread_detach(thread);
    else (void)pthread_sigmask(SIG_UNBLOCK, &breaks, NULL);
}

// What the library fetches to look into goes where Ctrl-C takes it away.
static void fetch_aside(const char *path) {
    if (!is_uri(path)) return;
    if (spare_dir[0] == 0) make_spare_dir();
    if (spare_dir[0] != 0) (void)setenv("TMPDIR", spare_dir, 1);
}

// Opens a checkpoint of any kind.
static ckpt_err open_any(ckpt_file **f, const char *path) {
    *f = NULL;
    fetch_aside(path);
    return look_at(path) == DIR_UNFINISHED ? say_unfinished(path) : explain(ckpt_file_open(f, path), path);
}

// Bytes of a checkpoint of many ranks, as its .metadata says.
static uint64_t shards_size(const ckpt_file *f, int *files) {
    uint64_t all = 0, size = 0;
    int i = 0;
    for (; ckpt_file_shard(f, i, &size) != NULL; i++) all += size;
    if (files != NULL) *files = i;
    return all;
}

// Bytes of a local file or directory, 0: not known.
static uint64_t size_on_disk(const char *path) {
    struct stat st;
    ckpt_file *f = NULL;
    uint64_t size = 0;
    if (look_at(path) == DIR_SHARDED) {
        if (ckpt_file_open(&f, path) == CKPT_OK) size = shards_size(f, NULL);
        ckpt_file_close(f);
    } else if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        size = (uint64_t)st.st_size;
    }
    return size;
}

// Is each file there with the bytes that it should have? The first that is not, as a sentence to be freed; NULL: all are.
static char *missing_shard(const ckpt_file *f, const char *path, bool full) {
    uint64_t size = 0;
    char text[1400], where[1024];
    const char *name = NULL;
    snprintf(where, sizeof where, "%.1000s%s", full ? path : "", full ? "/" : "");
    for (int i = 0; (name = ckpt_file_shard(f, i, &size)) != NULL; i++) {
        struct stat st;
        char *file = joined(path, name);
        bool there = stat(file, &st) == 0;
        free(file);
        if (there && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size) continue;
        if (!there) snprintf(text, sizeof text, "%s%s is missing", where, name);
        else snprintf(text, sizeof text, "%s%s has %llu bytes, and should have %llu", where, name, (unsigned long long)st.st_size,
                      (unsigned long long)size);
        return keep_text(text);
    }
    return NULL;
}

// flat: nothing below it is looked at.
static ckpt_err open_folder(ckpt_folder **out, const char *folder, bool flat) {
    ckpt_folder_desc d;
    memset(&d, 0, sizeof d);
    d.folder = folder;
    d.flat = flat;
    d.logger.fn = on_log;
    d.progress.fn = on_progress;
    return ckpt_folder_open(out, &d);
}

static int worse(int a, int b) {
    static const int rank[] = { 0, 3, 5, 2, 1, 4 };     // damage says more than a missing file, a failure more than damage
    return rank[a] >= rank[b] ? a : b;
}

typedef struct ls_row {
    ckpt_checkpoint c;
    int   verified;                 // 1 yes, 0 not looked, or it could not be, -1 no
    ckpt_err failed;                // why it could not be looked at, which says nothing of what it is
    char *problem;
} ls_row;

// Opens the folder anew, where *f is not that yet, and finds a checkpoint again. *at -1: a run that goes on has let go of it, and of its
// files some may be left.
static ckpt_err look_again(ckpt_folder **f, const char *folder, const char *name, int *at) {
    ckpt_checkpoint c;
    ckpt_err e = *f != NULL ? CKPT_OK : open_folder(f, folder, false);
    *at = e == CKPT_OK ? ckpt_folder_find(*f, name) : -1;
    if (*at >= 0 && ckpt_folder_entry(*f, *at, &c) == CKPT_OK && c.unfinished) *at = -1;
    return e;
}

// Was a checkpoint let go of since the folder was looked at? *now, NULL at first and to be closed, is the folder looked at again: once for
// all that were missing from the beginning, of which there may be thousands.
static bool has_gone(ckpt_folder **now, const char *folder, const ckpt_checkpoint *c) {
    char *file = c->sharded ? joined(c->path, META) : keep_text(c->path);
    int at = 0;
    bool away = access(file, F_OK) != 0;
    free(file);
    if (away && !c->missing) {
        ckpt_folder_close(*now);
        *now = NULL;
    }
    return away && look_again(now, folder, c->name, &at) == CKPT_OK && at < 0;
}

// Verifies one of a folder. Where that was removed, or saved again, since the folder was looked at, what is there now counts. *gone:
// nothing is.
static ckpt_err verify_entry(ckpt_folder *f, int index, const char *folder, const char *name, bool *gone) {
    ckpt_err e = ckpt_folder_verify(f, index);
    *gone = false;
    for (int tries = 0; tries < 3 && e == CKPT_NOT_FOUND && !*gone; tries++) {
        ckpt_folder *now = NULL;
        ckpt_err seen = look_again(&now, folder, name, &index);
        *gone = seen == CKPT_OK && index < 0;
        if (seen == CKPT_OK && !*gone) e = ckpt_folder_verify(now, index);
        ckpt_folder_close(now);
    }
    return e;
}

// Without --verify only the listing is read, which tells a torn file from a whole one; a compressed one would have to be unpacked.
// False: it is there no more.
static bool ls_check(ckpt_folder *f, int index, const char *folder, ckpt_folder **now, ls_row *r) {
    ckpt_file *file = NULL;
    ckpt_err e = CKPT_OK;
    bool plain = is_plain(r->c.name), gone = false;
    if (r->c.missing) {
        if (has_gone(now, folder, &r->c)) return false;
        r->verified = -1;
        r->problem = keep_text(r->c.sharded ? "the index has it, but its .metadata is gone: it does not count" : "the index has it, but the file is gone");
        return true;
    }
    if (r->c.unfinished) {          // no checkpoint at all, so that nothing is wrong with the folder
        r->problem = keep_text("it has no .metadata: being written, or never finished; it does not count");
        return true;
    }
    bool shut = !r->c.sharded && is_dir(r->c.path);         // nothing can be known of what is in it
    if (opt.verify || shut) {
        e = verify_entry(f, index, folder, r->c.name, &gone);
        r->verified = e == CKPT_OK ? 1 : 0;
    } else if (r->c.sharded) {
        e = ckpt_file_open(&file, r->c.path);
        r->problem = e == CKPT_OK ? missing_shard(file, r->c.path, false) : NULL;
        ckpt_file_close(file);
        if (r->problem != NULL) r->verified = -1;
    } else if (r->c.recorded_size != 0 && r->c.recorded_size != r->c.size) {
        r->verified = -1;
        r->problem = keep_text("its size is not what it was when it was saved");
    } else if (plain) {
        e = ckpt_file_open(&file, r->c.path);
        ckpt_file_close(file);
    }
    if (e == CKPT_CORRUPT || e == CKPT_NOT_FOUND) r->verified = -1;
    else r->failed = e;
    if (e != CKPT_OK) r->problem = keep_text(ckpt_last_error());
    else if (r->c.damaged && r->verified == 0) {
        r->verified = -1;
        r->problem = keep_text("it did not verify when it was looked at last");
    }
    return !gone && ((r->verified >= 0 && e == CKPT_OK) || !has_gone(now, folder, &r->c));
}

static void json_timestamp(const ckpt_timestamp *t) {
    printf("{\"iteration\": %lld, \"epoch\": %lld, \"batch\": %lld, \"sample\": %lld, \"token\": %lld, \"batch_in_epoch\": %lld, "
           "\"sample_in_epoch\": %lld, \"token_in_epoch\": %lld, \"total_wct\": ", (long long)t->iteration, (long long)t->epoch,
           (long long)t->batch, (long long)t->sample, (long long)t->token, (long long)t->batch_in_epoch, (long long)t->sample_in_epoch,
           (long long)t->token_in_epoch);
    json_number(t->total_wct);
    printf("}");
}

static void ls_json(const char *folder, const ls_row *rows, int count) {
    char text[64];
    printf("{\"folder\": ");
    json_text(folder);
    printf(", \"checkpoints\": [");
    for (int i = 0; i < count; i++) {
        const ckpt_checkpoint *c = &rows[i].c;
        printf("%s\n  {\"name\": ", i > 0 ? "," : "");
        json_text(c->name);
        printf(", \"path\": ");
        json_text(c->path);
        printf(", \"timestamp\": ");
        json_timestamp(&c->timestamp);
        printf(", \"saved_at\": ");
        json_number(c->saved_at);
        printf(", \"saved\": \"%s\", \"number\": %llu, \"size\": %llu, \"checksum\": ", clock_text(c->saved_at, true, text, sizeof text),
               (unsigned long long)c->number, (unsigned long long)c->size);
        if (c->has_checksum) printf("\"%08lx\"", (unsigned long)c->checksum);
        else printf("null");
        printf(", \"metric\": ");
        if (c->has_metric) json_number(c->metric);
        else printf("null");
        printf(", \"pinned\": %s, \"latest\": ", c->pinned ? "true" : c->untold != CKPT_OK ? "null" : "false");
        json_text(c->latest);
        printf(", \"verified\": %s, \"problem\": ", rows[i].verified > 0 ? "true" : rows[i].verified < 0 ? "false" : "null");
        json_text(rows[i].problem);
        printf(", \"abandoned\": %s, \"missing\": %s, \"foreign\": %s, \"sharded\": %s, \"unfinished\": %s, \"ranks\": ",
               c->abandoned ? "true" : "false", c->missing ? "true" : "false", c->foreign ? "true" : "false", c->sharded ? "true" : "false",
               c->unfinished ? "true" : "false");
        if (c->sharded && !c->unfinished && c->ranks > 0) printf("%d}", c->ranks);
        else printf("null}");
    }
    printf("%s]}\n", count > 0 ? "\n" : "");
}

static void ls_time(const ckpt_timestamp *t, char *buf, size_t cap) {
    if (t->batch == 0 && t->epoch == 0 && t->sample == 0 && t->token == 0) snprintf(buf, cap, "-");
    else snprintf(buf, cap, "ep %lld  ba %lld", (long long)t->epoch, (long long)t->batch);
}

// "ep1-ba5/" for a directory.
static const char *ls_name(const ckpt_checkpoint *c, char *buf, size_t cap) {
    shown(c->name, buf, cap - 1);
    if (c->sharded) strcat(buf, "/");
    return buf;
}

// The last column but what is wrong: verified, pinned, links.
static void ls_state(const ls_row *r) {
    const ckpt_checkpoint *c = &r->c;
    char name[1024];
    const char *word = c->missing ? "missing" : c->unfinished ? "unfinished" : r->verified > 0 ? "yes" : r->verified < 0 ? "NO" : r->failed != CKPT_OK ? "?" : "-";
    bool more = c->pinned || c->latest != NULL || c->abandoned || c->foreign;
    printf("%s%-*s%s", r->verified > 0 ? GREEN : r->verified < 0 ? RED : DIM, more ? c->unfinished ? 12 : 10 : 0, word, PLAIN);
    if (c->pinned) printf("%spinned%s", YELLOW, PLAIN);
    if (c->latest != NULL) printf("%s%s<- %s%s", c->pinned ? "  " : "", CYAN, shown(c->latest, name, sizeof name), PLAIN);
    const char *gap = c->pinned || c->latest != NULL ? "  " : "";
    const char *state = c->abandoned ? "abandoned" : is_plain(c->name) ? "foreign" : "not in the index";
    if (c->abandoned || c->foreign) printf("%s%s%s%s", gap, DIM, state, PLAIN);
    printf("\n");
}

static void ls_table(const char *folder, const ls_row *rows, int count) {
    char text[64], age[32], name[1024], name_head[1024], clean[4096];
    int wide = 4, wide_time = 4, finished = 0;
    uint64_t total = 0;
    bool metrics = false, problems = false, ranks = false;
    time_t now = time(NULL);
    for (int i = 0; i < count; i++) {
        int n = columns_of(ls_name(&rows[i].c, name, sizeof name));
        ranks = ranks || rows[i].c.sharded;
        finished += !rows[i].c.unfinished;
        ls_time(&rows[i].c.timestamp, text, sizeof text);
        if (n > wide) wide = n;
        if ((int)strlen(text) > wide_time) wide_time = (int)strlen(text);
        metrics = metrics || rows[i].c.has_metric;
        problems = problems || rows[i].problem != NULL;
        total += rows[i].c.size;
    }
    printf("%s%s%s  %d checkpoint%s, %s\n", BOLD, shown(folder, name_head, sizeof name_head), PLAIN, finished, finished == 1 ? "" : "s",
           size_text(total, text, sizeof text));
    if (count == 0) return;
    printf("\n%s", DIM);
    printf("NAME");
    pad(4, wide + 2);
    printf("%-*s  %-16s  %7s  ", wide_time, "TIME", "SAVED", "AGE");
    if (ranks) printf("RANKS  ");
    printf("%9s  ", "SIZE");
    if (metrics) printf("%10s  ", "METRIC");
    printf("VERIFIED%s\n", PLAIN);
    for (int i = 0; i < count; i++) {
        const ckpt_checkpoint *c = &rows[i].c;
        bool faint = c->missing || c->unfinished;
        ls_name(c, name, sizeof name);
        printf("%s%s%s", faint ? DIM : "", name, faint ? PLAIN : "");
        pad(columns_of(name), wide + 2);
        ls_time(&c->timestamp, text, sizeof text);
        printf("%-*s  ", wide_time, text);
        printf("%-16s  ", clock_text(c->saved_at, false, text, sizeof text));
        printf("%7s  ", age_text((double)now - c->saved_at, age, sizeof age));
        if (ranks && c->sharded && !faint && c->ranks > 0) printf("%5d  ", c->ranks);
        else if (ranks) printf("%5s  ", "-");
        printf("%9s  ", c->missing ? "-" : size_text(c->size, text, sizeof text));
        if (metrics && c->has_metric) printf("%10.5g  ", c->metric);
        else if (metrics) printf("%10s  ", "-");
        ls_state(&rows[i]);
    }
    for (int i = 0; i < count && problems; i++) {
        if (rows[i].problem == NULL) continue;
        printf("%s%s%s%s: %s\n", i == 0 || problems ? "\n" : "", rows[i].verified < 0 ? RED : DIM, ls_name(&rows[i].c, name, sizeof name), PLAIN,
               shown(rows[i].problem, clean, sizeof clean));
    }
    if (!opt.verify && isatty(1)) printf("\n%s- : its bytes were not read; ckpt ls --verify reads them all%s\n", DIM, PLAIN);
}

// What is there, and was not let go of meanwhile.
static ckpt_err ls_rows(ckpt_folder *f, const char *folder, ls_row *rows, int *n, int *status) {
    int all = ckpt_folder_count(f), count = 0;
    ckpt_folder *now = NULL;
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < all && e == CKPT_OK; i++) {
        ls_row *r = &rows[count];
        e = ckpt_folder_entry(f, i, &r->c);
        if (e == CKPT_OK && !ls_check(f, i, folder, &now, r)) {
            free(r->problem);
            memset(r, 0, sizeof *r);
            continue;
        }
        count++;
        if (r->verified < 0) *status = worse(*status, EXIT_NO);
        *status = worse(*status, exit_of(r->failed));
        *status = worse(*status, exit_of(r->c.untold));
    }
    ckpt_folder_close(now);
    *n = count;
    return e;
}

static int do_ls(void) {
    const char *folder = opt.count > 0 ? opt.args[0] : ".";
    ckpt_folder *f = NULL;
    ls_row *rows = NULL;
    ckpt_err e = CKPT_OK;
    int count = 0, status = EXIT_OK;
    bool went = true;                   // all that there was: of a run that keeps one the next is there now
    if (opt.count > 1) return misuse("ls takes one folder");
    if (opt.all) return misuse("--all is for what lies in a store; ckpt ls DIR lists all checkpoints of a folder");
    for (int tries = 0; tries < 3 && e == CKPT_OK && went; tries++) {
        free(rows);
        ckpt_folder_close(f);
        e = open_folder(&f, folder, false);
        if (e != CKPT_OK) return complain(e);
        rows = (ls_row *)need(calloc((size_t)ckpt_folder_count(f) + 1, sizeof *rows));
        e = ls_rows(f, folder, rows, &count, &status);
        went = count == 0 && ckpt_folder_count(f) > 0;
    }
    if (e != CKPT_OK) status = complain(e);
    else if (opt.json) ls_json(folder, rows, count);
    else ls_table(folder, rows, count);
    for (int i = 0; i < count; i++) free(rows[i].problem);
    free(rows);
    ckpt_folder_close(f);
    return status;
}

//-- objects of stores -----------------------------------------------------------------

// In a file:// URI a name is written with escapes.
static char *unescaped(const char *s) {
    char *out = keep_text(s), *to = out;
    for (const char *p = s; *p != 0; p++) {
        unsigned v = 0;
        if (*p == '%' && sscanf(p + 1, "%2x", &v) == 1 && v != 0 && strspn(p + 1, "0123456789abcdefABCDEF") >= 2) {
            *to++ = (char)v;
            p += 2;
        } else {
            *to++ = *p;
        }
    }
    *to = 0;
    return out;
}

// Cuts the URI of an object into its folder's and its name. The name is "" for a URI that ends with '/', or has no path. Both
// are to be freed.
static void cut_uri(const char *uri, char **folder, char **name) {
    const char *path = uri_path(uri), *end = uri + before_query(uri), *slash = NULL;
    for (const char *p = path; p != NULL && p < end; p++) if (*p == '/') slash = p;
    *folder = keep_text(uri);
    *name = keep_text(slash != NULL ? slash + 1 : "");
    if (slash == NULL) return;
    (*name)[end - slash - 1] = 0;
    strcpy(*folder + (slash + 1 - uri), end);
    if (uri[0] != 'f' && uri[0] != 'F') return;
    char *plain = unescaped(*name);
    free(*name);
    *name = plain;
}

// Opens the folder that cut_uri has found. In a bucket "x//y.pt" is another object than "x/y.pt", which a folder and a name come to.
static ckpt_err open_cut(ckpt_store **s, const char *folder, const char *name) {
    const char *path = uri_path(folder), *end = folder + before_query(folder);
    bool exact = strncasecmp(folder, "file:", 5) != 0 && strncasecmp(folder, "sftp:", 5) != 0;
    if (path != NULL) path += strspn(path, "/");
    *s = NULL;
    if (!exact || name[0] == 0 || path == NULL || end - path < 2 || end[-1] != '/' || end[-2] != '/') return open_store(s, folder);
    char text[9000], shown_name[4096], clean[4096];
    snprintf(text, sizeof text, "%s%s%s has '//' before its name: that is not the object with one '/', and ckpt takes none with two",
             shown(folder, clean, sizeof clean), *end != 0 ? ", " : "", shown(name, shown_name, sizeof shown_name));
    return ckpt_set_error(CKPT_ARG, text);
}

// Opens the folder of an object.
static ckpt_err open_object(ckpt_store **s, const char *uri, char **name) {
    char *folder;
    cut_uri(uri, &folder, name);
    ckpt_err e = open_cut(s, folder, *name);
    if (e == CKPT_OK && (*name)[0] == 0) {
        ckpt_store_close(*s);
        *s = NULL;
        e = ckpt_set_error(CKPT_ARG, "that URI names a folder or a store: the name of an object must follow");
    }
    free(folder);
    return e;
}

// A text is what a latest object holds: it is followed by the library, which asks for names as the run wrote them.
static bool is_symlink_name(const char *name) {
    size_t n = strlen(name);
    return n > 8 && strcmp(name + n - 8, ".symlink") == 0;
}

// Bytes of the object that a URI names itself; 0: not known.
static uint64_t size_in_store(const char *uri) {
    ckpt_store *s = NULL;
    char *name = NULL;
    uint64_t size = 0;
    if (open_object(&s, uri, &name) == CKPT_OK && !is_symlink_name(name) && ckpt_store_size(s, name, &size) != CKPT_OK) size = 0;
    ckpt_store_close(s);
    free(name);
    return size;
}

//-- show ----------------------------------------------------------------------------

static const char *const record = "state/callbacks/CheckpointSaver/all_saved_checkpoints_to_timestamp/";

static const char *kind_text(const ckpt_entry *e) {
    static const char *const names[] = { "?", "tensor", "int", "float", "bool", "text", "bytes", "none", "file", "object" };
    if (e->kind == CKPT_KIND_TENSOR) return dtypes[dtype_index(e->tensor.dtype)].name;
    return (int)e->kind >= 1 && (int)e->kind <= (int)CKPT_KIND_OTHER ? names[e->kind] : names[0];
}

static void shape_text(const ckpt_entry *e, char *buf, size_t cap) {
    size_t n = (size_t)snprintf(buf, cap, "[");
    for (int i = 0; i < e->tensor.ndim && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%lld", i > 0 ? ", " : "", (long long)e->tensor.shape[i]);
    if (n < cap) snprintf(buf + n, cap - n, "]");
}

static double elements_of(const ckpt_entry *e) {
    double n = 1;
    for (int i = 0; i < e->tensor.ndim; i++) n *= (double)e->tensor.shape[i];
    return n;
}

typedef struct scalar { bool has; int64_t i; double f; char text[512]; } scalar;

static scalar read_scalar(ckpt_file *f, int index, const ckpt_entry *e) {
    scalar s;
    memset(&s, 0, sizeof s);
    unsigned char flag = 0;
    size_t n = e->size < sizeof s.text - 1 ? (size_t)e->size : sizeof s.text - 1;
    ckpt_err err = CKPT_UNSUPPORTED;
    if (e->kind == CKPT_KIND_INT) err = ckpt_file_read(f, index, 0, &s.i, 8);
    if (e->kind == CKPT_KIND_FLOAT) err = ckpt_file_read(f, index, 0, &s.f, 8);
    if (e->kind == CKPT_KIND_BOOL) { err = ckpt_file_read(f, index, 0, &flag, 1); s.i = flag; }
    if (e->kind == CKPT_KIND_TEXT) err = ckpt_file_read(f, index, 0, s.text, n);
    s.has = err == CKPT_OK;
    return s;
}

static void value_text(const ckpt_file *f, int index, const ckpt_entry *e, const scalar *s, char *buf, size_t cap) {
    char clean[512];
    buf[0] = 0;
    if (e->kind == CKPT_KIND_TENSOR) { shape_text(e, buf, cap); return; }
    const char *what = ckpt_file_what(f, index);
    if (what != NULL && strcmp(what, "None") != 0) shown(what, buf, cap);
    if (!s->has) return;
    if (e->kind == CKPT_KIND_INT) snprintf(buf, cap, "%lld", (long long)s->i);
    if (e->kind == CKPT_KIND_FLOAT) snprintf(buf, cap, "%.10g", s->f);
    if (e->kind == CKPT_KIND_BOOL) snprintf(buf, cap, "%s", s->i != 0 ? "true" : "false");
    if (e->kind == CKPT_KIND_TEXT) {
        shown(s->text, clean, 64);
        snprintf(buf, cap, "\"%s\"%s", clean, strlen(s->text) > 63 || e->size > sizeof s->text - 1 ? "..." : "");
    }
}

typedef struct show_row { ckpt_entry e; scalar value; tensor_stats stats; int index; } show_row;

static bool wanted(const char *name) {
    if (opt.count <= 1) return true;
    for (int i = 1; i < opt.count; i++) {
        if (fnmatch(opt.args[i], name, 0) == 0 || strcmp(opt.args[i], name) == 0) return true;
        size_t n = strlen(opt.args[i]);
        if (strncmp(name, opt.args[i], n) == 0 && name[n] == '/') return true;
    }
    return false;
}

// The files of a checkpoint of many ranks.
static void show_files_json(const ckpt_file *f) {
    uint64_t size = 0;
    const char *name = NULL;
    printf(", \"ranks\": %d, \"files\": [", ckpt_file_ranks(f));
    for (int i = 0; (name = ckpt_file_shard(f, i, &size)) != NULL; i++) {
        printf("%s\n  {\"name\": ", i > 0 ? "," : "");
        json_text(name);
        printf(", \"size\": %llu}", (unsigned long long)size);
    }
    printf("]");
}

// A text as long as it is.
static void json_value_text(ckpt_file *f, int index, const ckpt_entry *e) {
    char *text = (char *)need(malloc((size_t)e->size + 1));
    if (ckpt_file_read(f, index, 0, text, (size_t)e->size) == CKPT_OK) json_bytes(text, (size_t)e->size);
    else printf("null");
    free(text);
}

static void show_json(ckpt_file *f, const char *path, uint64_t size, const show_row *rows, int count) {
    char text[512];
    printf("{\"file\": ");
    json_text(path);
    printf(", \"size\": ");
    if (size > 0) printf("%llu", (unsigned long long)size);
    else printf("null");
    if (ckpt_file_ranks(f) > 0) show_files_json(f);
    printf(", \"entries\": [");
    for (int i = 0; i < count; i++) {
        const ckpt_entry *e = &rows[i].e;
        printf("%s\n  {\"name\": ", i > 0 ? "," : "");
        json_text(e->name);
        printf(", \"kind\": \"%s\", \"bytes\": %llu", e->kind == CKPT_KIND_TENSOR ? "tensor" : kind_text(e), (unsigned long long)e->size);
        if (e->kind == CKPT_KIND_TENSOR) {
            shape_text(e, text, sizeof text);
            printf(", \"dtype\": \"%s\", \"shape\": %s", kind_text(e), text);
        }
        if (e->pieces > 0) printf(", \"pieces\": %d", e->pieces);
        if (e->has_checksum) printf(", \"checksum\": \"%08lx\"", (unsigned long)e->checksum);
        const char *what = ckpt_file_what(f, rows[i].index);
        if (what != NULL) printf(", \"what\": ");
        if (what != NULL) json_text(what);
        const scalar *v = &rows[i].value;
        if (v->has) printf(", \"value\": ");
        if (v->has && e->kind == CKPT_KIND_INT) printf("%lld", (long long)v->i);
        if (v->has && e->kind == CKPT_KIND_BOOL) printf("%s", v->i != 0 ? "true" : "false");
        if (v->has && e->kind == CKPT_KIND_FLOAT) json_number(v->f);
        if (v->has && e->kind == CKPT_KIND_TEXT) json_value_text(f, rows[i].index, e);
        if (opt.stats && e->kind == CKPT_KIND_TENSOR) {
            const tensor_stats *s = &rows[i].stats;
            printf(", \"stats\": {\"count\": %llu, \"min\": ", (unsigned long long)s->count);
            json_extreme(s, e->tensor.dtype, s->min, s->low);
            printf(", \"mean\": ");
            if (s->count > s->nans + s->infs) json_number(s->mean);
            else printf("null");
            printf(", \"max\": ");
            json_extreme(s, e->tensor.dtype, s->max, s->high);
            printf(", \"std\": ");
            json_number(s->std);
            printf(", \"zeros\": %llu, \"nan\": %llu, \"inf\": %llu, \"histogram\": [", (unsigned long long)s->zeros,
                   (unsigned long long)s->nans, (unsigned long long)s->infs);
            for (int b = 0; b < BUCKETS; b++) printf("%s%llu", b > 0 ? ", " : "", (unsigned long long)s->buckets[b]);
            printf("]}");
        }
        printf("}");
    }
    printf("%s]}\n", count > 0 ? "\n" : "");
}

static int levels_of(const char *name) {
    int n = 0;
    for (; *name != 0; name++) n += *name == '/';
    return n;
}

// How many levels two names begin with in common.
static int common_levels(const char *a, const char *b) {
    int n = 0;
    for (size_t i = 0; a[i] == b[i] && a[i] != 0; i++) n += a[i] == '/';
    return n;
}

static const char *level_of(const char *name, int level, size_t *len) {
    for (; level > 0; level--) name = strchr(name, '/') + 1;
    *len = strcspn(name, "/");
    return name;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const show_row *)a)->e.name, ((const show_row *)b)->e.name);
}

// Rows with a level in common, which stand together once they are sorted by name.
typedef struct branch { int from, to, first; bool leaf; } branch;

static int by_first(const void *a, const void *b) {
    return ((const branch *)a)->first - ((const branch *)b)->first;
}

// Puts rows that are sorted by name into the order in which their levels come in the listing first. Ranks bind names of one level
// each for itself, so that a listing of all comes back to it.
static void tree_order(const show_row *rows, int from, int to, int level, show_row *out, int *n) {
    branch *list = (branch *)need(malloc((size_t)(to - from) * sizeof *list));
    int count = 0;
    for (int i = from; i < to; i++) {
        size_t len = 0, before = 0;
        const char *p = level_of(rows[i].e.name, level, &len);
        bool same = count > 0 && !list[count - 1].leaf && p[len] == '/' &&
                    strncmp(level_of(rows[i - 1].e.name, level, &before), p, len + 1) == 0;
        branch *b = same ? &list[count - 1] : &list[count++];
        if (!same) b->from = i, b->first = rows[i].index, b->leaf = p[len] == 0;
        if (rows[i].index < b->first) b->first = rows[i].index;
        b->to = i + 1;
    }
    qsort(list, (size_t)count, sizeof *list, by_first);
    for (int i = 0; i < count; i++) {
        if (list[i].leaf) out[(*n)++] = rows[list[i].from];
        else tree_order(rows, list[i].from, list[i].to, level + 1, out, n);
    }
    free(list);
}

// The heads of the levels in which this name differs from the one before, each with what lies below it.
static void show_heads(const show_row *rows, int count, int i, int wide) {
    const char *name = rows[i].e.name;
    int shared = i > 0 ? common_levels(rows[i - 1].e.name, name) : 0;
    for (int level = shared; level < levels_of(name); level++) {
        size_t len, whole;
        char text[256], line[320], size[32];
        const char *p = level_of(name, level, &len);
        whole = (size_t)(p - name) + len + 1;
        uint64_t bytes = 0;
        int tensors = 0;
        for (int k = i; k < count && strncmp(rows[k].e.name, name, whole) == 0; k++) {
            if (rows[k].e.kind != CKPT_KIND_TENSOR) continue;
            tensors++;
            bytes += rows[k].e.size;
        }
        snprintf(line, sizeof line, "%.*s", (int)(len < 250 ? len : 250), p);
        shown(line, text, sizeof text);
        printf("%*s%s%s%s/", 2 * level, "", BOLD, text, PLAIN);
        if (tensors > 1) {
            pad(2 * level + columns_of(text) + 1, wide);
            printf("%s%-15s%-22s%10s%s", DIM, "", "", size_text(bytes, size, sizeof size), PLAIN);
        }
        printf("\n");
    }
}

static void show_stats(const tensor_stats *s) {
    if (s->count == 0) { printf("  %sempty%s", DIM, PLAIN); return; }
    if (s->count > s->nans + s->infs) printf("  %10.4g %10.4g %10.4g  ", s->min, s->mean, s->max);
    else printf("  %10s %10s %10s  ", "-", "-", "-");
    printf("%s", CYAN);
    histogram(s);
    printf("%s", PLAIN);
    if (s->nans > 0) printf("  %s%llu NaN%s", RED, (unsigned long long)s->nans, PLAIN);
    if (s->infs > 0) printf("  %s%llu Inf%s", RED, (unsigned long long)s->infs, PLAIN);
}

static void show_tree(const ckpt_file *f, const char *path, uint64_t size, const show_row *rows, int count, int hidden) {
    char text[640], num[32], name[512];
    double elements = 0;
    uint64_t bytes = 0;
    int tensors = 0, wide = 12;
    for (int i = 0; i < count; i++) {
        const ckpt_entry *e = &rows[i].e;
        size_t len;
        int levels = levels_of(e->name);
        int n = 2 * levels + columns_of(shown(level_of(e->name, levels, &len), name, sizeof name)) + 2;
        if (n > wide) wide = n;
        if (e->kind != CKPT_KIND_TENSOR) continue;
        tensors++;
        bytes += e->size;
        elements += elements_of(e);
    }
    if (wide > 60) wide = 60;
    printf("%s%s%s  ", BOLD, shown(path, text, sizeof text), PLAIN);
    if (ckpt_file_ranks(f) > 0) {
        int files = 0;
        (void)shards_size(f, &files);
        printf("%d rank%s, %d file%s, ", ckpt_file_ranks(f), ckpt_file_ranks(f) == 1 ? "" : "s", files, files == 1 ? "" : "s");
    }
    if (size > 0) printf("%s %s, ", size_text(size, num, sizeof num), is_uri(path) ? "in the store" : "on disk");
    printf("%d tensor%s of %s elements, ", tensors, tensors == 1 ? "" : "s", count_text(elements, num, sizeof num));
    printf("%s, %d other value%s\n\n", size_text(bytes, num, sizeof num), count - tensors, count - tensors == 1 ? "" : "s");
    if (opt.stats && tensors > 0) {
        printf("%s", DIM);
        pad(0, wide + 47);
        printf("  %10s %10s %10s  histogram%s\n", "min", "mean", "max", PLAIN);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_entry *e = &rows[i].e;
        show_heads(rows, count, i, wide);
        int levels = levels_of(e->name);
        size_t len;
        shown(level_of(e->name, levels, &len), name, sizeof name);
        printf("%*s%s", 2 * levels, "", name);
        pad(2 * levels + columns_of(name), wide);
        value_text(f, rows[i].index, e, &rows[i].value, text, sizeof text);
        bool sized = e->kind == CKPT_KIND_TENSOR || e->kind == CKPT_KIND_BYTES || e->kind == CKPT_KIND_FILE;
        printf("%s%-15s%s", e->kind == CKPT_KIND_TENSOR ? GREEN : DIM, kind_text(e), PLAIN);
        if (sized) printf("%-22s%10s", text, size_text(e->size, num, sizeof num));
        else printf("%s", text);
        if (opt.stats && e->kind == CKPT_KIND_TENSOR) show_stats(&rows[i].stats);
        if (e->pieces > 1) printf("  %sin %d pieces%s", DIM, e->pieces, PLAIN);
        printf("\n");
    }
    if (hidden > 0) printf("\n%s(%d values of the saver's own record are not shown; --all shows them)%s\n", DIM, hidden, PLAIN);
}

static int do_show(void) {
    ckpt_file *f = NULL;
    struct stat st;
    if (opt.count < 1) return misuse("show wants a file");
    const char *path = opt.args[0];
    if (is_dir(path) && look_at(path) == DIR_OTHER) return misuse("%s is a folder: ckpt ls lists it", path);
    ckpt_err e = open_any(&f, path);
    if (e != CKPT_OK) return complain(e);
    uint64_t size = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0, work = 0;
    if (ckpt_file_ranks(f) > 0) size = shards_size(f, NULL);
    else if (is_uri(path)) size = size_in_store(path);
    int all = ckpt_file_count(f), count = 0, hidden = 0;
    show_row *rows = (show_row *)need(calloc((size_t)all + 1, sizeof *rows));
    for (int i = 0; i < all && e == CKPT_OK; i++) {
        show_row *r = &rows[count];
        e = ckpt_file_entry(f, i, &r->e);
        if (e != CKPT_OK || !wanted(r->e.name)) continue;
        if (!opt.all && !opt.json && strncmp(r->e.name, record, strlen(record)) == 0) { hidden++; continue; }
        r->index = i;
        if (r->e.kind == CKPT_KIND_TENSOR) work += r->e.size;
        else r->value = read_scalar(f, i, &r->e);
        count++;
    }
    if (ckpt_file_ranks(f) > 0 && count > 0) {
        show_row *sorted = rows;
        int n = 0;
        rows = (show_row *)need(calloc((size_t)all + 1, sizeof *rows));
        qsort(sorted, (size_t)count, sizeof *sorted, by_name);
        tree_order(sorted, 0, count, 0, rows, &n);
        free(sorted);
    }
    meter m;
    meter_start(&m, "read", path, 2 * work);
    for (int i = 0; i < count && e == CKPT_OK && opt.stats; i++) {
        if (rows[i].e.kind == CKPT_KIND_TENSOR) e = take_stats(f, rows[i].index, &rows[i].e, &rows[i].stats, &m);
    }
    if (opt.stats) meter_end(&m);
    int status = EXIT_OK;
    if (e != CKPT_OK) status = complain(e);
    else if (opt.json) show_json(f, path, size, rows, count);
    else show_tree(f, path, size, rows, count, hidden);
    if (status == EXIT_OK && count == 0 && opt.count > 1) status = EXIT_MISSING;
    free(rows);
    ckpt_file_close(f);
    return status;
}

//-- stores --------------------------------------------------------------------------

// What lies below a URI; when nothing does, the object of that very name.
static ckpt_err list_uri(const char *uri, object_list *l) {
    ckpt_store *s = NULL;
    char *name = NULL;
    uint64_t size = 0;
    memset(l, 0, sizeof *l);
    ckpt_err e = open_store(&s, uri);
    if (e == CKPT_OK) e = ckpt_store_list(s, "", note_object, l);
    ckpt_store_close(s);
    if (e != CKPT_OK || l->count > 0) return e;
    if (open_object(&s, uri, &name) == CKPT_OK) {
        e = ckpt_store_size(s, name, &size);
        if (e == CKPT_OK) e = note_object(name, size, l);
        if (e == CKPT_NOT_FOUND || e == CKPT_AUTH) e = CKPT_OK;
        ckpt_store_close(s);
    }
    free(name);
    return e;
}

// A path for a file that is not there yet, in the folder for temporary files. To be freed.
static char *spare_path(void) {
    static unsigned number;
    const char *dir = getenv("TMPDIR");
    char name[64];
    if (spare_dir[0] == 0) make_spare_dir();
    snprintf(name, sizeof name, "ckpt-tool-%ld-%u", (long)getpid(), number++);
    return joined(spare_dir[0] != 0 ? spare_dir : dir != NULL && dir[0] != 0 ? dir : "/tmp", name);
}

// Whether a small file can be written there.
static bool is_writable(const char *path) {
    FILE *f = fopen(path, "wb");
    bool ok = f != NULL && fputc('x', f) != EOF && fflush(f) == 0;
    if (f != NULL) ok = fclose(f) == 0 && ok;
    (void)unlink(path);
    return ok;
}

// What a .symlink object holds: the name that it leads to, from the top of the bucket. NULL: it holds no such thing. To be freed.
static ckpt_err read_link(ckpt_store *s, const char *name, char **out) {
    char text[4097], *spare = spare_path();
    size_t n = 0;
    uint64_t size = 0;
    *out = NULL;
    ckpt_err e = ckpt_store_size(s, name, &size);
    bool may = e == CKPT_OK && size > 0 && size < sizeof text;
    if (may) e = ckpt_store_get(s, name, spare, false);
    // A machine without room for it must be able to remove what takes the room: there the link is taken for none.
    if (may && e != CKPT_OK && !is_writable(spare)) {
        e = CKPT_OK;
        may = false;
    }
    FILE *f = may && e == CKPT_OK ? fopen(spare, "rb") : NULL;
    if (f != NULL) {
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
    }
    (void)unlink(spare);
    free(spare);
    while (n > 0 && strchr(" \t\r\n/", text[n - 1]) != NULL) n--;
    text[n] = 0;
    if (n > 0 && strlen(text) == n) *out = keep_text(text);
    return e == CKPT_NOT_FOUND ? CKPT_OK : e;
}

// The same where one that cannot be read is as good as none.
static char *link_text(ckpt_store *s, const char *name) {
    char *text = NULL;
    (void)!read_link(s, name, &text);
    return text;
}

// A checkpoint of many ranks in a list of objects: those of one folder.
typedef struct group { char *dir; uint64_t bytes; int ranks; unsigned long last; bool listed, told; char *latest; } group;
typedef struct group_list { group *list; int count, cap; int *of; } group_list;     // of: each object's group, -1 none

static int group_of(group_list *g, const char *name, size_t dir) {
    for (int i = g->count - 1; i >= 0; i--) {                       // listings are sorted: it is mostly the last
        if (strncmp(g->list[i].dir, name, dir) == 0 && g->list[i].dir[dir] == 0) return i;
    }
    if (g->count == g->cap) {
        g->cap = g->cap > 0 ? 2 * g->cap : 16;
        g->list = (group *)need(realloc(g->list, (size_t)g->cap * sizeof *g->list));
    }
    group *x = &g->list[g->count];
    memset(x, 0, sizeof *x);
    x->dir = (char *)need(malloc(dir + 1));
    memcpy(x->dir, name, dir);
    x->dir[dir] = 0;
    return g->count++;
}

// Finds the checkpoints of many ranks in a listing. A folder with a .metadata and no rank's file is none.
static void find_groups(const object_list *l, group_list *g) {
    memset(g, 0, sizeof *g);
    g->of = (int *)need(malloc(((size_t)l->count + 1) * sizeof *g->of));
    for (int i = 0; i < l->count; i++) {
        const char *base = base_of(l->names[i]);
        size_t dir = base > l->names[i] ? (size_t)(base - l->names[i]) - 1 : 0;
        g->of[i] = -1;
        if (!belongs(base)) continue;
        g->of[i] = group_of(g, l->names[i], dir);
        group *x = &g->list[g->of[i]];
        x->bytes += l->sizes[i];
        if (is_rank_file(base)) {
            unsigned long rank = strtoul(base + 2, NULL, 10);
            x->ranks += x->ranks == 0 || rank != x->last;       // sorted: the files of one rank, saved again, are neighbours
            x->last = rank;
        }
        x->listed = x->listed || strcmp(base, META) == 0;
    }
    for (int i = 0; i < l->count; i++) if (g->of[i] >= 0 && g->list[g->of[i]].ranks == 0) g->of[i] = -1;
}

static void free_groups(group_list *g) {
    for (int i = 0; i < g->count; i++) {
        free(g->list[i].dir);
        free(g->list[i].latest);
    }
    free(g->list);
    free(g->of);
}

// Are the first n bytes of a text the last ones of a URI, but for slashes?
static bool is_end_of(const char *uri, const char *text, size_t n) {
    size_t k = before_query(uri);
    while (k > 0 && uri[k - 1] == '/') k--;
    return n <= k && memcmp(uri + k - n, text, n) == 0;
}

// Which of them do .symlink objects lead to? Their texts count from the top of the bucket, the listing from the URI.
static void find_latest(const char *uri, const object_list *l, group_list *g) {
    ckpt_store *s = NULL;
    if (g->count == 0 || open_store(&s, uri) != CKPT_OK) return;
    for (int i = 0, looked = 0; i < l->count && looked < 64; i++) {
        if (!is_symlink_name(l->names[i])) continue;
        char *text = link_text(s, l->names[i]);
        looked++;
        for (int k = 0; k < g->count && text != NULL; k++) {
            size_t n = strlen(text), d = strlen(g->list[k].dir);
            bool ends = n >= d && strcmp(text + n - d, g->list[k].dir) == 0 && (n == d || d == 0 || text[n - d - 1] == '/');
            bool same = ends && (n == d || is_end_of(uri, text, d == 0 ? n : n - d - 1));
            if (same && g->list[k].ranks > 0 && g->list[k].latest == NULL) g->list[k].latest = keep_text(l->names[i]);
        }
        free(text);
    }
    ckpt_store_close(s);
}

static void ls_uri_json(const char *uri, const object_list *l, const group_list *g) {
    int n = 0;
    printf("{\"uri\": ");
    json_text(uri);
    printf(", \"checkpoints\": [");
    for (int i = 0; i < g->count; i++) {
        const group *x = &g->list[i];
        if (x->ranks == 0) continue;
        printf("%s\n  {\"name\": ", n++ > 0 ? "," : "");
        json_text(x->dir[0] != 0 ? x->dir : ".");
        printf(", \"size\": %llu, \"ranks\": %d, \"unfinished\": %s, \"latest\": ", (unsigned long long)x->bytes, x->ranks, x->listed ? "false" : "true");
        json_text(x->latest);
        printf("}");
    }
    printf("%s], \"objects\": [", n > 0 ? "\n" : "");
    n = 0;
    for (int i = 0; i < l->count; i++) {
        if (g->of[i] >= 0 && !opt.all) continue;
        printf("%s\n  {\"name\": ", n++ > 0 ? "," : "");
        json_text(l->names[i]);
        printf(", \"size\": %llu}", (unsigned long long)l->sizes[i]);
    }
    printf("%s], \"bytes\": %llu}\n", n > 0 ? "\n" : "", (unsigned long long)l->bytes);
}

static void ls_uri_group(const group *x) {
    char text[32], clean[4096], link[4096];
    printf("%10s  %s/  %s%d rank%s%s", size_text(x->bytes, text, sizeof text), shown(x->dir[0] != 0 ? x->dir : ".", clean, sizeof clean), DIM,
           x->ranks, x->ranks == 1 ? "" : "s", PLAIN);
    if (!x->listed) printf("  %sunfinished: no .metadata, it does not count%s", YELLOW, PLAIN);
    if (x->latest != NULL) printf("  %s<- %s%s", CYAN, shown(x->latest, link, sizeof link), PLAIN);
    printf("\n");
}

static int ls_uri(void) {
    object_list l;
    group_list g;
    char text[32], clean[4096];
    if (opt.count != 1) return misuse("ls wants one folder or URI");
    if (opt.verify) return misuse("--verify is for folders of this machine; ckpt verify URI reads an object");
    ckpt_err e = list_uri(opt.args[0], &l);
    if (e != CKPT_OK) {
        free_objects(&l);
        return complain(e);
    }
    find_groups(&l, &g);
    find_latest(opt.args[0], &l, &g);
    if (opt.json) {
        ls_uri_json(opt.args[0], &l, &g);
    } else {
        for (int i = 0; i < l.count; i++) {
            group *x = g.of[i] >= 0 && !opt.all ? &g.list[g.of[i]] : NULL;
            if (x != NULL && !x->told) ls_uri_group(x);
            if (x != NULL) {
                x->told = true;
                continue;
            }
            printf("%10s  %s\n", size_text(l.sizes[i], text, sizeof text), shown(l.names[i], clean, sizeof clean));
        }
        if (isatty(1) || l.count == 0)
            printf("%s%d object%s, %s%s\n", DIM, l.count, l.count == 1 ? "" : "s", size_text(l.bytes, text, sizeof text), PLAIN);
    }
    free_groups(&g);
    free_objects(&l);
    return EXIT_OK;
}

static ckpt_err fetch_object(const char *uri, const char *to, bool overwrite) {
    ckpt_store *s = NULL;
    char *name = NULL;
    ckpt_err e = open_object(&s, uri, &name);
    if (e == CKPT_OK && is_symlink_name(name)) {
        e = ckpt_get_file(uri, to, overwrite);
    } else if (e == CKPT_OK) {
        e = ckpt_store_get(s, name, to, overwrite);
        if (e == CKPT_NOT_FOUND) e = ckpt_get_file(uri, to, overwrite);     // there may be a link of that name
    }
    ckpt_store_close(s);
    free(name);
    return e;
}

// The base name of a path or of a URI's object. To be freed.
static char *object_base(const char *s) {
    char *folder, *name;
    if (!is_uri(s)) return keep_text(base_of(s));
    cut_uri(s, &folder, &name);
    free(folder);
    return name;
}

// What the copy of an object is called: where a link leads is what comes. To be freed.
static char *copy_base(const char *from) {
    char *base = object_base(from);
    if (is_uri(from) && is_symlink_name(base)) base[strlen(base) - strlen(".symlink")] = 0;
    return base;
}

// The name that a file holds as a .symlink object does: one line of at most 4096 bytes. NULL: it holds no such thing. To be freed.
static char *link_in(const char *path) {
    char text[4098];
    FILE *f = fopen(path, "rb");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    bool line = n > 0 && n < sizeof text - 1;
    if (f != NULL) fclose(f);
    if (n > 0 && text[n - 1] == '\n') n--;
    if (n > 0 && text[n - 1] == '\r') n--;
    text[n] = 0;
    for (size_t i = 0; i < n; i++) line = line && (unsigned char)text[i] >= 0x20 && text[i] != 0x7F;
    return line && n > 0 ? keep_text(text) : NULL;
}

static ckpt_err say_no_link(const char *what, const char *object) {
    char text[9000], a[4096], b[4096];
    snprintf(text, sizeof text, "%s is to hold the name of a checkpoint, which readers follow, and %s is no such text (one line, at most 4096 bytes): "
             "give the copy a name that does not end in .symlink", shown(object, a, sizeof a), shown(what, b, sizeof b));
    return ckpt_set_error(CKPT_ARG, text);
}

// Refuses to put under a name in .symlink what no reader could follow. What is no file at all is the library's to refuse.
static ckpt_err check_link(const char *path, const char *called, const char *object) {
    struct stat st;
    if (!is_symlink_name(object) || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return CKPT_OK;
    char *text = link_in(path);
    bool good = text != NULL;
    free(text);
    return good ? CKPT_OK : say_no_link(called, object);
}

// base: what the object is called where the URI names none. called: what is put, in sentences.
static ckpt_err put_object(const char *path, const char *called, const char *base, const char *uri) {
    ckpt_store *s = NULL;
    char *folder, *name;
    cut_uri(uri, &folder, &name);
    const char *object = name[0] == 0 ? base : name;
    ckpt_err e = check_link(path, called, object);
    if (e == CKPT_OK) e = open_cut(&s, folder, object);
    if (e == CKPT_OK) e = ckpt_store_put(s, object, path, opt.force);
    ckpt_store_close(s);
    free(folder);
    free(name);
    return e;
}

static ckpt_err copy_between(const char *from, const char *base, const char *to) {
    char *spare = spare_path();
    ckpt_err e = fetch_object(from, spare, false);
    if (e == CKPT_OK) e = put_object(spare, from, base, to);
    (void)unlink(spare);
    free(spare);
    return e;
}

static bool is_link_uri(const char *uri) {
    char *folder, *name;
    if (!is_uri(uri)) return false;
    cut_uri(uri, &folder, &name);
    bool is = is_symlink_name(name);
    free(folder);
    free(name);
    return is;
}

// Is there what a link's text names, an object or a directory, seen from one level of a store?
static ckpt_err find_target(const char *top, const char *text) {
    ckpt_store *s = NULL;
    uint64_t size = 0;
    char *meta = joined(text, META);
    ckpt_err e = open_store(&s, top);
    if (e == CKPT_OK) e = ckpt_store_size(s, text, &size);
    if (e == CKPT_NOT_FOUND) e = ckpt_store_size(s, meta, &size);
    ckpt_store_close(s);
    free(meta);
    return e;
}

// Will a link at `to` lead anywhere? Its text counts from the top of the bucket, so that under another prefix it names what it named before.
static ckpt_err check_target(const char *from, const char *to, const char *text) {
    char said[13000], a[4096], b[4096], *folder, *name;
    ckpt_err e = CKPT_NOT_FOUND;
    cut_uri(to, &folder, &name);
    const char *slash = uri_path(folder), *query = folder + before_query(folder);
    // what is no store yet is CKPT_ARG: "dbfs:/", "wandb://entity/"
    for (; slash != NULL && slash < query && (e == CKPT_NOT_FOUND || e == CKPT_AUTH || e == CKPT_ARG); slash = strchr(slash + 1, '/')) {
        char *top = keep_text(folder);
        strcpy(top + (slash + 1 - folder), query);
        e = find_target(top, text);
        free(top);
    }
    free(folder);
    free(name);
    if (e != CKPT_NOT_FOUND) return e;
    snprintf(said, sizeof said, "%s leads to %s, which is not where the copy of the link is to be: copy the checkpoint there first, or put "
             "a link of its own there, a file that holds the name of a checkpoint in that store", shown(from, a, sizeof a), shown(text, b, sizeof b));
    return ckpt_set_error(CKPT_ARG, said);
}

// A .symlink object from store to store, as it is.
static ckpt_err copy_link(const char *from, const char *to) {
    ckpt_store *s = NULL;
    char *name = NULL, *text = NULL, *spare = spare_path();
    uint64_t size = 0;
    ckpt_err e = open_object(&s, from, &name);
    if (e == CKPT_OK) e = ckpt_store_size(s, name, &size);
    if (e == CKPT_OK && size > 4096) e = say_no_link(from, to);
    if (e == CKPT_OK) e = ckpt_store_get(s, name, spare, false);
    if (e == CKPT_OK && (text = link_in(spare)) == NULL) e = say_no_link(from, to);
    if (e == CKPT_OK) e = check_target(from, to, text);
    if (e == CKPT_OK) e = put_object(spare, from, name, to);
    (void)unlink(spare);
    ckpt_store_close(s);
    free(spare);
    free(name);
    free(text);
    return e;
}

//-- whole checkpoints of many ranks, from here to there ----------------------------

static bool has_metadata(const char *uri) {
    ckpt_store *s = NULL;
    uint64_t size = 0;
    bool found = open_store(&s, uri) == CKPT_OK && ckpt_store_size(s, META, &size) == CKPT_OK;
    ckpt_store_close(s);
    return found;
}

static char *without_slashes(const char *s) {
    char *out = keep_text(s);
    const char *mark = is_uri(s) ? strstr(s, "://") : NULL, *rest = s + before_query(s);
    size_t n = before_query(s), least = mark != NULL ? (size_t)(mark - s) + 3 : bare_scheme(s) + 1;
    while (n > least && out[n - 1] == '/') n--;
    strcpy(out + n, rest);
    return out;
}

// The URI of the directory that a URI names, or that a link of that name leads to; NULL: there is none. To be freed.
static char *sharded_uri(const char *uri) {
    char *dir = without_slashes(uri), *folder = NULL, *name = NULL, *text = NULL, *found = NULL;
    ckpt_store *s = NULL;
    if (has_metadata(dir)) return dir;
    cut_uri(dir, &folder, &name);
    if (name[0] != 0 && open_cut(&s, folder, name) == CKPT_OK) {
        char *link = (char *)need(malloc(strlen(name) + 10));
        sprintf(link, "%s%s", name, is_symlink_name(name) ? "" : ".symlink");
        text = link_text(s, link);
        free(link);
    }
    ckpt_store_close(s);
    const char *slash = uri_path(folder), *query = folder + before_query(folder);
    for (; slash != NULL && slash < query && text != NULL && found == NULL; slash = strchr(slash + 1, '/')) {
        size_t top = (size_t)(slash - folder) + 1;
        char *candidate = (char *)need(malloc(top + strlen(text) + strlen(query) + 1));
        memcpy(candidate, folder, top);
        strcpy(candidate + top, text);
        strcat(candidate, query);
        if (has_metadata(candidate)) found = candidate;
        else free(candidate);
    }
    free(dir);
    free(folder);
    free(name);
    free(text);
    return found;
}

// Does a name look like that of one file?
static bool names_a_file(const char *uri) {
    char *base = object_base(uri);
    bool file = strstr(base, ".pt") != NULL || strstr(base, ".safetensors") != NULL || strstr(base, ".tar") != NULL || strstr(base, ".tgz") != NULL;
    free(base);
    return file;
}

static ckpt_err taken(const char *place) {
    char text[4200], clean[4096];
    snprintf(text, sizeof text, "%s is a checkpoint already (--force replaces it)", shown(place, clean, sizeof clean));
    return ckpt_set_error(CKPT_EXISTS, text);
}

// Of what may not be seen: which right would do.
static ckpt_err say_unseen(const char *place) {
    char why[2000], text[7000], clean[4096];
    snprintf(why, sizeof why, "%s", ckpt_last_error());
    snprintf(text, sizeof text, "%s may be a checkpoint already: telling takes the right to list, and --force that or the right to remove: %s",
             shown(place, clean, sizeof clean), why);
    return ckpt_set_error(CKPT_AUTH, text);
}

// The file:// URI of a local folder. To be freed.
static char *uri_of(const char *dir) {
    char *real = realpath(dir, NULL), *out = (char *)need(malloc(3 * strlen(real != NULL ? real : dir) + 8)), *to = out + 7;
    strcpy(out, "file://");
    for (const char *p = real != NULL ? real : dir; *p != 0; p++) {
        bool plain = isalnum((unsigned char)*p) || *p == '/';
        to += plain ? sprintf(to, "%c", *p) : sprintf(to, "%%%02X", (unsigned)(unsigned char)*p);
    }
    free(real);
    return out;
}

// What a copy goes by: the .metadata that was there when it began, and is what the copy gets last. A run may save again under that
// name meanwhile, and what lies there then lists files that did not come.
typedef struct listing {
    ckpt_store *from, *kept;        // kept: over the folder for temporary files, where it is held
    char       *name, *folder;      // its name in `from`, which is another than .metadata where that is a link
    ckpt_file  *f;
} listing;

static void free_listing(listing *l) {
    char *meta = joined(l->folder, META);
    ckpt_file_close(l->f);
    ckpt_store_close(l->kept);
    ckpt_store_close(l->from);
    (void)unlink(meta);
    free(meta);
    free(l->folder);
    free(l->name);
}

// Opens the store that holds the listing of a URI, or of a local directory.
static ckpt_err open_listed(listing *l, const char *from) {
    char *meta = joined(from, META), *real = is_uri(from) ? NULL : realpath(meta, NULL), *above = parent_of(real != NULL ? real : meta);
    char *uri = is_uri(from) ? keep_text(from) : uri_of(above);
    l->name = keep_text(base_of(real != NULL ? real : META));
    ckpt_err e = open_store(&l->from, uri);
    free(meta);
    free(real);
    free(above);
    free(uri);
    return e;
}

// free_listing follows, whatever is returned.
static ckpt_err hold_listing(listing *l, const char *from) {
    char *spare = spare_path(), *meta = NULL, *kept = NULL;
    memset(l, 0, sizeof *l);
    l->folder = parent_of(spare);
    meta = joined(l->folder, META);
    ckpt_err e = open_any(&l->f, from);             // its sentences name the place
    ckpt_file_close(l->f);
    l->f = NULL;
    if (e == CKPT_OK) e = open_listed(l, from);
    if (e == CKPT_OK) e = ckpt_store_get(l->from, l->name, meta, true);
    if (e == CKPT_OK) e = open_store(&l->kept, kept = uri_of(l->folder));
    if (e == CKPT_OK) e = ckpt_file_open(&l->f, l->folder);
    free(spare);
    free(meta);
    free(kept);
    return e;
}

static bool same_bytes(const char *path, const char *other) {
    FILE *a = fopen(path, "rb"), *b = fopen(other, "rb");
    bool same = a != NULL && b != NULL;
    for (int c = 0; same && c != EOF;) {
        c = getc(a);
        same = c == getc(b);
    }
    if (a != NULL) fclose(a);
    if (b != NULL) fclose(b);
    return same;
}

// Is what a store has under a name the listing that is held, byte for byte?
static ckpt_err has_listing(const listing *l, ckpt_store *s, const char *name, bool *same) {
    char *spare = spare_path(), *meta = joined(l->folder, META);
    ckpt_err e = ckpt_store_get(s, name, spare, false);
    *same = e == CKPT_OK && same_bytes(meta, spare);
    (void)unlink(spare);
    free(spare);
    free(meta);
    return e == CKPT_NOT_FOUND ? CKPT_OK : e;
}

// Is that still what lies there? Else files of another save may have come, under the same names.
static ckpt_err still_holds(const listing *l) {
    bool same = false;
    ckpt_err e = has_listing(l, l->from, l->name, &same);
    if (e != CKPT_OK || same) return e;
    return ckpt_set_error(CKPT_CORRUPT, "it was saved again or removed while it was copied: the copy does not count");
}

static bool lists(const ckpt_file *f, const char *file) {
    const char *name = NULL;
    for (int i = 0; (name = ckpt_file_shard(f, i, NULL)) != NULL; i++) if (strcmp(name, file) == 0) return true;
    return false;
}

// Is Hugging Face's index there?
static ckpt_err find_hf(ckpt_store *s, bool *has) {
    uint64_t size = 0;
    ckpt_err e = ckpt_store_size(s, HF_INDEX, &size);
    *has = e == CKPT_OK;
    return e == CKPT_NOT_FOUND ? CKPT_OK : e;
}

// Is an object an index of Hugging Face's that leads to none of ranks' files, or may not be read? That is of somebody's model. What cannot
// be read just now may be ours, which must not outlive those files. Of objects with other names *model is left alone.
static ckpt_err ask_model_index(ckpt_store *s, const char *name, bool *model) {
    static const char file[] = ": \"__";
    if (strcmp(base_of(name), HF_INDEX) != 0) return CKPT_OK;
    char *spare = spare_path();
    ckpt_err e = ckpt_store_get(s, name, spare, false);
    FILE *f = e == CKPT_OK ? fopen(spare, "rb") : NULL;
    bool ranks = false;
    int at = 0;
    for (int c = 0; f != NULL && !ranks && (c = getc(f)) != EOF;) {
        ranks = file[at] == 0 && c >= '0' && c <= '9';
        at = file[at] != 0 && c == file[at] ? at + 1 : c == file[0];
    }
    if (e == CKPT_OK && (f == NULL || ferror(f))) e = ckpt_set_error(CKPT_IO, "the copy of an index in the folder for temporary files cannot be read");
    if (f != NULL) fclose(f);
    (void)unlink(spare);
    free(spare);
    *model = !ranks;
    return e == CKPT_NOT_FOUND || e == CKPT_AUTH || e == CKPT_UNSUPPORTED ? CKPT_OK : e;
}

// Is the place free? With --force what is there, *old, counts until the new .metadata comes; but where both have files of one name,
// it stops counting before the first of them is overwritten. Not so the very checkpoint that is copied, which may lie in that place:
// its files are replaced by themselves. hf: what is copied has Hugging Face's index; one that is there without ranks' files is of
// somebody's model. *drop: one that is there is to go with *old. Who may not list is told of what is not there that it is refused: with
// --force that is removed unseen.
static ckpt_err clear_place(ckpt_store *s, const char *place, const listing *l, bool hf, ckpt_file **old, bool *drop) {
    const char *name = NULL;
    uint64_t size = 0;
    bool model = false, theirs = false;
    ckpt_err e = opt.force && !hf ? ask_model_index(s, HF_INDEX, &theirs) : CKPT_OK;
    *old = NULL;
    *drop = opt.force && !hf && !theirs;
    if (e != CKPT_OK) return e;
    e = ckpt_store_size(s, META, &size);
    if (e == CKPT_AUTH && opt.force) {
        e = ckpt_store_remove(s, META);
        if (e == CKPT_OK) e = CKPT_NOT_FOUND;
    }
    if (e == CKPT_AUTH) return say_unseen(place);
    if (e == CKPT_NOT_FOUND) {
        e = hf && !opt.force && !has_rank_files(s) ? find_hf(s, &model) : CKPT_OK;
        return model ? taken(place) : e;
    }
    if (e == CKPT_OK && !opt.force) e = taken(place);
    if (e != CKPT_OK) return e;
    ckpt_err seen = open_any(old, place);
    bool both = seen == CKPT_CORRUPT || seen == CKPT_UNSUPPORTED || seen == CKPT_NOT_FOUND || seen == CKPT_ARG || seen == CKPT_AUTH;
    if (seen != CKPT_OK && !both) return seen;          // what cannot be read just now may be a good one
    for (int i = 0; !both && (name = ckpt_file_shard(*old, i, NULL)) != NULL; i++) both = lists(l->f, name);
    bool same = false;
    if (both) e = has_listing(l, s, META, &same);
    return e == CKPT_OK && both && !same ? ckpt_store_remove(s, META) : e;
}

// Where the files of a copy arrive, .metadata last. Without --force others may be at the same place: then no file comes over one that
// came meanwhile, and .metadata comes only when all are still those that this copy has brought.
typedef struct arrival {
    const listing *l;
    const char    *place, *dir, *local;     // the place as it was named; the directory that it is, NULL; that of the files, NULL: l->from
    ckpt_store    *to;                      // NULL: dir
    bool           hf;                      // Hugging Face's index comes, too
    int            count;                   // files besides that
    uint64_t      *sizes;                   // of each file as it was once it had come
    double        *times;                   // below 0: not known
    bool          *over;                    // what is there cannot be removed, and is overwritten
} arrival;

static void begin_arrival(arrival *a, const listing *l, const char *place) {
    memset(a, 0, sizeof *a);
    a->l = l;
    a->place = place;
    (void)shards_size(l->f, &a->count);
    size_t n = (size_t)a->count;
    a->sizes = (uint64_t *)need(calloc(n + 1, sizeof *a->sizes));
    a->times = (double *)need(calloc(n + 1, sizeof *a->times));
    a->over = (bool *)need(calloc(n + 1, sizeof *a->over));
}

static void free_arrival(arrival *a) {
    free(a->sizes);
    free(a->times);
    free(a->over);
}

// The files that come, NULL behind the last one.
static const char *arriving(const arrival *a, int i) {
    return a->hf && i == a->count ? HF_INDEX : ckpt_file_shard(a->l->f, i, NULL);
}

static ckpt_err see(const arrival *a, const char *name, uint64_t *size, double *at) {
    struct stat st;
    if (a->to != NULL) {
        ckpt_err e = ckpt_store_size(a->to, name, size);
        return e == CKPT_OK ? ckpt_store_time(a->to, name, at) : e;
    }
    char *file = joined(a->dir, name);
    int got = lstat(file, &st), why = got != 0 ? errno : 0;
    free(file);
    if (got != 0) return why == ENOENT || why == ENOTDIR ? CKPT_NOT_FOUND : ckpt_set_error(CKPT_IO, strerror(why));
    *size = (uint64_t)st.st_size;
#ifdef __APPLE__
    *at = (double)st.st_mtimespec.tv_sec + 1e-9 * (double)st.st_mtimespec.tv_nsec;
#else
    *at = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
#endif
    return CKPT_OK;
}

static ckpt_err say_met(const char *place) {
    char text[4400], clean[4096];
    snprintf(text, sizeof text, "%s was made by another meanwhile, or is being made: the files of this copy do not count", shown(place, clean, sizeof clean));
    return ckpt_set_error(CKPT_EXISTS, text);
}

// Removes what a copy that was broken off has left under the names that are to come, or one that is under way has brought, which then finds
// that out. That one knows its files by when they came: where a store has that in whole seconds, others come in another one.
static ckpt_err clear_way(arrival *a) {
    const struct timespec second = { 1, 100000000 };
    const char *name = NULL;
    bool waited = false;
    for (int i = 0; (name = arriving(a, i)) != NULL; i++) {
        uint64_t size = 0;
        double at = 0;
        ckpt_err e = see(a, name, &size, &at);
        if (e == CKPT_NOT_FOUND) continue;
        if (e != CKPT_OK && e != CKPT_AUTH) return e;
        if (!waited && at > 0 && !(at > floor(at))) {
            (void)nanosleep(&second, NULL);
            waited = true;
        }
        char *file = a->to == NULL ? joined(a->dir, name) : NULL;
        e = a->to != NULL ? ckpt_store_remove(a->to, name) : unlink(file) != 0 && errno != ENOENT ? CKPT_IO : CKPT_OK;
        a->over[i] = e != CKPT_OK && e != CKPT_NOT_FOUND;
        free(file);
    }
    return CKPT_OK;
}

static ckpt_err bring(const arrival *a, const char *name, bool over) {
    char *file = a->local != NULL ? joined(a->local, name) : a->dir != NULL ? joined(a->dir, name) : spare_path();
    bool passes = a->local == NULL && a->dir == NULL;
    ckpt_err e = a->local == NULL ? ckpt_store_get(a->l->from, name, file, over && !passes) : CKPT_OK;
    if (e == CKPT_OK && a->to != NULL) e = ckpt_store_put(a->to, name, file, over);
    if (passes) (void)unlink(file);
    free(file);
    return e;
}

static ckpt_err bring_files(arrival *a) {
    const char *name = NULL;
    ckpt_err e = opt.force ? CKPT_OK : clear_way(a);
    for (int i = 0; e == CKPT_OK && (name = arriving(a, i)) != NULL; i++) {
        e = bring(a, name, opt.force || a->over[i]);
        if (e == CKPT_EXISTS) e = say_met(a->place);
        if (e == CKPT_OK && !opt.force && see(a, name, &a->sizes[i], &a->times[i]) != CKPT_OK) a->times[i] = -1;
    }
    return e;
}

// What came, and cannot be seen now, is not this copy's. Who may not look at all is told by .metadata alone.
static ckpt_err still_there(const arrival *a) {
    const char *name = NULL;
    for (int i = 0; (name = arriving(a, i)) != NULL; i++) {
        uint64_t size = 0;
        double at = 0;
        ckpt_err e = a->times[i] < 0 ? CKPT_OK : see(a, name, &size, &at);
        bool same = e == CKPT_OK && (a->times[i] < 0 || (size == a->sizes[i] && !(at < a->times[i]) && !(at > a->times[i])));
        if (e != CKPT_OK && e != CKPT_NOT_FOUND) return e;
        if (!same) return say_met(a->place);
    }
    return CKPT_OK;
}

static ckpt_err bring_listing(const arrival *a) {
    char *meta = joined(a->l->folder, META), *there = a->dir != NULL ? joined(a->dir, META) : NULL;
    ckpt_err e = opt.force ? CKPT_OK : still_there(a);
    if (e == CKPT_OK && a->dir != NULL) e = ckpt_store_get(a->l->kept, META, there, opt.force);
    else if (e == CKPT_OK) e = ckpt_store_put(a->to, META, meta, opt.force);
    free(meta);
    free(there);
    return e == CKPT_EXISTS && !opt.force ? say_met(a->place) : e;
}

// What was replaced goes, as far as f has not taken its names: with drop also Hugging Face's, by which their loaders would look for
// it. What cannot be removed only costs room.
static void clear_old(ckpt_store *s, const ckpt_file *f, const ckpt_file *old, bool drop) {
    const char *name = NULL;
    if (drop) (void)!ckpt_store_remove(s, HF_INDEX);
    for (int i = 0; old != NULL && (name = ckpt_file_shard(old, i, NULL)) != NULL; i++) {
        if (!lists(f, name)) (void)!ckpt_store_remove(s, name);
    }
}

// Gets every file into a directory, .metadata last: until then none of it counts.
static ckpt_err get_shards(const char *uri, const char *dir, uint64_t *bytes, int *files) {
    listing l;
    arrival a;
    ckpt_store *d = NULL;
    ckpt_file *old = NULL;
    char *there = NULL, *wrong = NULL;
    bool hf = false, drop = false;
    ckpt_err e = hold_listing(&l, uri);
    if (e == CKPT_OK) e = find_hf(l.from, &hf);
    if (e == CKPT_OK && is_dir(dir)) e = open_store(&d, there = uri_of(dir));
    if (d != NULL) e = clear_place(d, dir, &l, hf, &old, &drop);
    begin_arrival(&a, &l, dir);
    a.dir = dir;
    a.hf = hf;
    if (e == CKPT_OK) e = bring_files(&a);
    if (e == CKPT_OK) wrong = missing_shard(l.f, dir, true);
    if (wrong != NULL) e = ckpt_set_error(CKPT_CORRUPT, wrong);
    if (e == CKPT_OK) e = still_holds(&l);
    if (e == CKPT_OK) e = bring_listing(&a);
    if (e == CKPT_OK && d != NULL) clear_old(d, l.f, old, drop);
    *bytes = shards_size(l.f, files);
    ckpt_file_close(old);
    ckpt_store_close(d);
    free_arrival(&a);
    free_listing(&l);
    free(there);
    free(wrong);
    return e;
}

static ckpt_err put_shards(const char *dir, const char *uri, uint64_t *bytes, int *files) {
    ckpt_store *s = NULL;
    ckpt_file *old = NULL;
    listing l;
    arrival a;
    char *real = realpath(dir, NULL);
    if (real != NULL) dir = real;                       // a link, as latest, may move on meanwhile
    char *hf = joined(dir, HF_INDEX), *wrong = NULL;
    bool has_hf = access(hf, F_OK) == 0, drop = false;
    ckpt_err e = hold_listing(&l, dir);
    if (e == CKPT_OK) wrong = missing_shard(l.f, dir, true);
    if (wrong != NULL) e = ckpt_set_error(CKPT_CORRUPT, wrong);
    if (e == CKPT_OK) e = open_store(&s, uri);
    if (e == CKPT_OK) e = clear_place(s, uri, &l, has_hf, &old, &drop);
    begin_arrival(&a, &l, uri);
    a.local = dir;
    a.to = s;
    a.hf = has_hf;
    if (e == CKPT_OK) e = bring_files(&a);
    if (e == CKPT_OK) e = still_holds(&l);
    if (e == CKPT_OK) e = bring_listing(&a);
    if (e == CKPT_OK) clear_old(s, l.f, old, drop);
    *bytes = shards_size(l.f, files);
    ckpt_file_close(old);
    ckpt_store_close(s);
    free_arrival(&a);
    free_listing(&l);
    free(real);
    free(hf);
    free(wrong);
    return e;
}

// From store to store, one file at a time through the folder for temporary files.
static ckpt_err pass_shards(const char *from, const char *to, uint64_t *bytes, int *files) {
    ckpt_store *d = NULL;
    ckpt_file *old = NULL;
    listing l;
    arrival a;
    bool hf = false, drop = false;
    ckpt_err e = hold_listing(&l, from);
    if (e == CKPT_OK) e = find_hf(l.from, &hf);
    if (e == CKPT_OK) e = open_store(&d, to);
    if (e == CKPT_OK) e = clear_place(d, to, &l, hf, &old, &drop);
    begin_arrival(&a, &l, to);
    a.to = d;
    a.hf = hf;
    if (e == CKPT_OK) e = bring_files(&a);
    if (e == CKPT_OK) e = still_holds(&l);
    if (e == CKPT_OK) e = bring_listing(&a);
    if (e == CKPT_OK) clear_old(d, l.f, old, drop);
    *bytes = shards_size(l.f, files);
    ckpt_file_close(old);
    ckpt_store_close(d);
    free_arrival(&a);
    free_listing(&l);
    return e;
}

// Where a directory goes: the very place, or below it when that is a folder of other things, or ends with '/'. To be freed.
static char *place_for(const char *from, const char *to) {
    char *plain = without_slashes(from), *base = object_base(plain), *out = NULL;
    bool below = ends_with_slash(to);
    if (!is_uri(to)) below = is_dir(to) && look_at(to) == DIR_OTHER;
    out = below && base[0] != 0 ? joined(to, base) : without_slashes(to);
    free(plain);
    free(base);
    return out;
}

// A whole checkpoint of many ranks; `from` is a directory or the URI of one, which was named `named`.
static int copy_shards(const char *from, const char *to, const char *named) {
    char *place = place_for(named, to);
    char a[4096], b[4096], size[32], rate[32];
    uint64_t bytes = 0;
    int files = 0;
    double start = now_monotonic();
    ckpt_err e = is_link_uri(place) ? say_no_link(from, place) : !is_uri(from) ? put_shards(from, place, &bytes, &files) : is_uri(place)
               ? pass_shards(from, place, &bytes, &files) : get_shards(from, place, &bytes, &files);
    double seconds = now_monotonic() - start;
    int status = e == CKPT_OK ? EXIT_OK : complain(e);
    if (e == CKPT_OK && opt.json) {
        printf("{\"from\": ");
        json_text(from);
        printf(", \"to\": ");
        json_text(place);
        printf(", \"seconds\": ");
        json_number(seconds);
        printf(", \"size\": %llu, \"files\": %d}\n", (unsigned long long)bytes, files);
    } else if (e == CKPT_OK) {
        printf("%s  ->  %s  (%d file%s, %s", shown(from, a, sizeof a), shown(place, b, sizeof b), files, files == 1 ? "" : "s",
               size_text(bytes, size, sizeof size));
        if (bytes > 0 && seconds > 0) printf(", %s/s", size_text((uint64_t)((double)bytes / seconds), rate, sizeof rate));
        printf(")\n");
    }
    free(place);
    return status;
}

// -1: it is no checkpoint of many ranks.
static int try_shards(const char *from, const char *to, const char *named) {
    if (!is_uri(from)) return look_at(from) != DIR_OTHER ? copy_shards(from, to, named) : -1;
    char *dir = sharded_uri(from);
    int status = dir != NULL ? copy_shards(dir, to, dir) : -1;
    free(dir);
    return status;
}

// A copy from here to there: the outcome, and how many bytes. `named`: how `from` was called, which may be the text of a link.
static int copy_one(const char *from, const char *to, const char *named) {
    struct stat st;
    bool link = is_link_uri(from) && is_link_uri(to), file = is_uri(from) && names_a_file(from);
    int status = link || file ? -1 : try_shards(from, to, named);
    if (status >= 0) return status;
    char *base = copy_base(named), *inside = is_uri(from) && !is_uri(to) && is_dir(to) ? joined(to, base) : NULL;
    const char *target = inside != NULL ? inside : to;
    char a[4096], b[4096], size[32], rate[32];
    uint64_t bytes = 0;
    double start = now_monotonic();
    ckpt_err e = link ? copy_link(from, to) : !is_uri(to) ? fetch_object(from, target, opt.force) : is_uri(from) ? copy_between(from, base, to)
               : put_object(from, named, base, to);
    double seconds = now_monotonic() - start;
    if (e == CKPT_OK && stat(is_uri(to) ? from : target, &st) == 0) bytes = (uint64_t)st.st_size;
    if (e == CKPT_NOT_FOUND && file && !link) {         // a link to a directory?
        char said[4096];
        snprintf(said, sizeof said, "%s", ckpt_last_error());
        status = try_shards(from, to, named);
        if (status < 0) e = ckpt_set_error(e, said);
    }
    if (status < 0) status = e == CKPT_OK ? EXIT_OK : complain(explain(e, from));
    if (e == CKPT_OK && opt.json) {
        printf("{\"from\": ");
        json_text(from);
        printf(", \"to\": ");
        json_text(target);
        printf(", \"seconds\": ");
        json_number(seconds);
        if (!(is_uri(from) && is_uri(to))) printf(", \"size\": %llu", (unsigned long long)bytes);
        printf("}\n");
    } else if (e == CKPT_OK) {
        printf("%s  ->  %s", shown(from, a, sizeof a), shown(target, b, sizeof b));
        if (bytes > 0) printf("  (%s", size_text(bytes, size, sizeof size));
        if (bytes > 0 && seconds > 0) printf(", %s/s", size_text((uint64_t)((double)bytes / seconds), rate, sizeof rate));
        printf("%s\n", bytes > 0 ? ")" : "");
    }
    free(base);
    free(inside);
    return status;
}

// Is it the folder of a run: with an index, that of a rank, or the lock of a saver that is yet to write one?
static bool is_run(const char *dir) {
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && !found; e = readdir(d)) {
        size_t n = strlen(e->d_name);
        bool index = strncmp(e->d_name, ".ckpt-index", 11) == 0 && n > 6 && strcmp(e->d_name + n - 6, ".jsonl") == 0;
        found = index || strncmp(e->d_name, ".ckpt-lock", 10) == 0;
    }
    if (d != NULL) closedir(d);
    return found;
}

// Is it a level that the folder above cannot be read off?
static bool is_dots(const char *level) {
    return strcmp(level, ".") == 0 || strcmp(level, "..") == 0;
}

// Cuts dir down to the nearest folder at or above it that is a run's, as far up as its text tells.
static bool climb(char *dir) {
    for (int levels = 0; levels < 17; levels++) {
        if (is_run(dir)) return true;
        char *cut = strrchr(dir, '/');
        if (cut == dir || is_dots(base_of(dir))) return false;
        strcpy(cut != NULL ? cut : dir, cut != NULL ? "" : ".");
    }
    return false;
}

// folder/name, of a folder that is to be freed; NULL stays NULL.
static char *below(char *folder, const char *name) {
    char *out = folder != NULL ? joined(folder, name) : NULL;
    free(folder);
    return out;
}

// The ways to write a path whose folders can be climbed: as it was named, so that what is said of it has that name too;
// from the root; with the links above its last level followed. NULL: this way does not do for it.
static char *written(const char *path, int way) {
    const char *base = base_of(path);
    if (way == 2 && is_dots(base)) return realpath(path, NULL);
    if (is_dots(base)) return NULL;
    if (way == 0) return keep_text(path);
    if (way == 1) return path[0] == '/' ? NULL : below(getcwd(NULL, 0), path);
    char *above = parent_of(path), *real = realpath(above, NULL);
    free(above);
    return below(real, base);
}

// What is left of a path that begins with dir, but for a "." that it leaves out.
static const char *rest_below(const char *dir, const char *path) {
    size_t n = strlen(dir);
    bool begins = strncmp(path, dir, n) == 0 && (dir[n - 1] == '/' || path[n] == '/');
    return begins ? path + n + strspn(path + n, "/") : path;
}

// The folder that a checkpoint belongs to, the nearest one above it that is a run's, else the one that it lies in; and its name there.
static char *folder_of(const char *path, char **inside) {
    char *whole = NULL;
    for (int way = 0; way < 3; way++) {
        free(whole);
        whole = written(path, way);
        if (whole == NULL) continue;
        char *dir = parent_of(whole);
        if (climb(dir)) {
            *inside = keep_text(rest_below(dir, whole));
            free(whole);
            return dir;
        }
        free(dir);
    }
    const char *last = is_dots(base_of(path)) && whole != NULL ? whole : path;
    char *lies_in = parent_of(last);
    *inside = keep_text(base_of(last));
    free(whole);
    return lies_in;
}

// Is a path another way to a checkpoint than its own entry in its folder? A link may well have the name of what it leads to.
static bool is_other_way(const char *path, const char *inside, const char *entry) {
    struct stat named, own;
    if (strcmp(base_of(entry), base_of(inside)) != 0) return true;
    if (lstat(path, &named) != 0) return false;
    return lstat(entry, &own) != 0 || named.st_ino != own.st_ino || named.st_dev != own.st_dev;
}

// Does a small file say the name of something, seen from its folder? *beside: of a file in that folder.
static bool names_something(const char *path, bool *beside) {
    struct stat st;
    char text[4097];
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0 || st.st_size >= (off_t)sizeof text) return false;
    FILE *f = fopen(path, "rb");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL) n--;
    text[n] = 0;
    if (n == 0 || strlen(text) != n) return false;
    char *dir = parent_of(path), *there = text[0] == '/' ? keep_text(text) : joined(dir, text);
    bool is = stat(there, &st) == 0;
    *beside = is && S_ISREG(st.st_mode) && strchr(text, '/') == NULL;
    free(dir);
    free(there);
    return is;
}

// What the text of a file that stands for a link leads to, where the file system has none. NULL: it is no such file. To be freed.
static char *follow_text(const char *path) {
    ckpt_folder *f = NULL;
    ckpt_checkpoint c;
    bool beside = false;
    if (!names_something(path, &beside)) return NULL;
    char *inside, *folder = folder_of(path, &inside), *whole = joined(folder, inside), *out = NULL;
    int at = open_folder(&f, folder, beside && !is_run(folder)) == CKPT_OK ? ckpt_folder_find(f, whole) : -1;
    if (at >= 0 && ckpt_folder_entry(f, at, &c) == CKPT_OK && is_other_way(path, inside, c.path)) out = keep_text(c.path);
    ckpt_folder_close(f);
    free(whole);
    free(folder);
    free(inside);
    return out;
}

// Is the object a text by its name, as a store's links are?
static bool goes_as_text(const char *from, const char *to) {
    char *folder, *name;
    cut_uri(to, &folder, &name);
    bool text = is_symlink_name(name[0] != 0 ? name : base_of(from));
    free(folder);
    free(name);
    return text;
}

static int copy_from(const char *from, const char *to) {
    char *real = is_uri(from) || goes_as_text(from, to) ? NULL : follow_text(from);
    int status = copy_one(real != NULL ? real : from, to, from);
    free(real);
    return status;
}

static int do_get(void) {
    if (opt.count < 1 || opt.count > 2) return misuse("get wants a URI, and where it is to go");
    if (!is_uri(opt.args[0])) return misuse("'%s' is no URI", opt.args[0]);
    if (opt.count == 2 && is_uri(opt.args[1])) return misuse("get is for files of this machine; ckpt cp copies from store to store");
    const char *given = opt.args[0];
    char *plain = without_slashes(given), *base = copy_base(plain);
    bool nameless = base[0] == 0;
    if (!nameless && ends_with_slash(given)) {           // only a directory can be meant
        char *dir = sharded_uri(plain);
        nameless = dir == NULL && !is_half_uri(plain);
        free(dir);
    }
    int status = nameless ? misuse("'%s' names no object", given) : copy_one(plain, opt.count == 2 ? opt.args[1] : base, plain);
    free(base);
    free(plain);
    return status;
}

static int do_put(void) {
    if (opt.count != 2) return misuse("put wants a file and a URI");
    if (!is_uri(opt.args[1])) return misuse("'%s' is no URI", opt.args[1]);
    if (is_uri(opt.args[0])) return misuse("put is for files of this machine; ckpt cp copies from store to store");
    return copy_from(opt.args[0], opt.args[1]);
}

static int do_cp(void) {
    if (opt.count != 2) return misuse("cp wants a source and a destination");
    if (!is_uri(opt.args[0]) && !is_uri(opt.args[1])) return misuse("neither is a URI; cp(1) copies files of this machine");
    return copy_from(opt.args[0], opt.args[1]);
}

// Gets an object into a temporary file and checks that.
static ckpt_err verify_uri(const char *uri, uint64_t *size) {
    ckpt_on_progress hook = { on_progress, NULL };
    struct stat st;
    char *spare = spare_path(), *dir = names_a_file(uri) ? NULL : sharded_uri(uri);
    ckpt_err e = dir != NULL ? CKPT_NOT_FOUND : fetch_object(uri, spare, false);
    if (e == CKPT_NOT_FOUND && dir == NULL && names_a_file(uri)) {
        char said[4096];
        snprintf(said, sizeof said, "%s", ckpt_last_error());
        dir = sharded_uri(uri);
        if (dir == NULL) e = ckpt_set_error(CKPT_NOT_FOUND, said);
    }
    if (dir == NULL) e = explain(e, uri);
    if (dir != NULL) {              // read where it lies
        ckpt_file *f = NULL;
        e = ckpt_file_open(&f, dir);
        if (e == CKPT_OK) *size = shards_size(f, NULL);
        ckpt_file_close(f);
        if (e == CKPT_OK) e = ckpt_verify(dir, &hook);
    } else if (e == CKPT_OK) {
        e = ckpt_verify(spare, &hook);
        if (stat(spare, &st) == 0) *size = (uint64_t)st.st_size;
    }
    (void)unlink(spare);
    free(spare);
    free(dir);
    return e;
}

// Removes a checkpoint of many ranks, or what is left of one: .metadata first, so that the rest does not count. False: there is none.
static bool rm_shards(const char *uri, ckpt_err *e, uint64_t *size) {
    ckpt_store *s = NULL;
    object_list l;
    char *folder, *prefix;
    int ranks = 0;
    memset(&l, 0, sizeof l);
    cut_uri(uri, &folder, &prefix);     // from above, so that a file:// store takes the empty folder away too
    char *below = prefix[0] != 0 ? joined(prefix, "") : keep_text("");
    size_t n = strlen(below);
    *e = open_cut(&s, folder, prefix);
    if (*e == CKPT_OK) *e = ckpt_store_list(s, below, note_object, &l);
    for (int i = 0; i < l.count; i++) ranks += is_rank_file(l.names[i] + n);
    bool found = *e == CKPT_OK && ranks > 0, model = false;
    for (int i = 0; found && i < l.count && *e == CKPT_OK; i++) {
        if (strcmp(l.names[i] + n, HF_INDEX) == 0) *e = ask_model_index(s, l.names[i], &model);
    }
    for (int pass = 0; pass < 2 && found; pass++) {
        for (int i = 0; i < l.count && *e == CKPT_OK; i++) {
            const char *base = l.names[i] + n;
            if (!belongs(base) || (strcmp(base, META) == 0) != (pass == 0) || (model && strcmp(base, HF_INDEX) == 0)) continue;
            *size += l.sizes[i];
            *e = ckpt_store_remove(s, l.names[i]);
            if (*e == CKPT_NOT_FOUND) *e = CKPT_OK;
        }
    }
    ckpt_store_close(s);
    free_objects(&l);
    free(folder);
    free(prefix);
    free(below);
    return found;
}

// The .symlink objects in a folder of a store, and what each holds: asked for once, however many arguments lie there.
typedef struct link_folder {
    struct link_folder *next;
    char               *uri;
    object_list         links;
    char              **texts;
} link_folder;

static link_folder *link_folders;

static void forget_links(void) {
    for (link_folder *f = link_folders, *next; f != NULL; f = next) {
        next = f->next;
        for (int i = 0; i < f->links.count; i++) free(f->texts[i]);
        free(f->texts);
        free_objects(&f->links);
        free(f->uri);
        free(f);
    }
    link_folders = NULL;
}

static ckpt_err note_link(const char *name, uint64_t size, void *user) {
    return is_symlink_name(name) && strchr(name, '/') == NULL ? note_object(name, size, user) : CKPT_OK;
}

static ckpt_err ask_links(link_folder *f) {
    ckpt_store *s = NULL;
    ckpt_err e = open_store(&s, f->uri);
    if (s != NULL) e = ckpt_store_list(s, "", note_link, &f->links);
    if (e == CKPT_NOT_FOUND || e == CKPT_AUTH || e == CKPT_UNSUPPORTED) e = CKPT_OK;        // who may remove may not list, perhaps
    f->texts = (char **)need(calloc((size_t)f->links.count + 1, sizeof *f->texts));
    for (int i = 0; i < f->links.count && e == CKPT_OK; i++) {
        char why[2000], said[4200], clean[4096];
        e = read_link(s, f->links.names[i], &f->texts[i]);
        if (e == CKPT_OK) continue;
        snprintf(why, sizeof why, "%s", ckpt_last_error());
        snprintf(said, sizeof said, "nothing was removed: what %.2000s leads to cannot be read: %s", shown(f->links.names[i], clean, sizeof clean), why);
        e = ckpt_set_error(e, said);
    }
    ckpt_store_close(s);
    return e;
}

// What cannot be read is asked for again by the next argument.
static ckpt_err links_of(const char *folder, link_folder **out) {
    for (*out = link_folders; *out != NULL; *out = (*out)->next) {
        if (strcmp((*out)->uri, folder) == 0) return CKPT_OK;
    }
    *out = (link_folder *)need(calloc(1, sizeof **out));
    (*out)->uri = keep_text(folder);
    (*out)->next = link_folders;
    link_folders = *out;
    ckpt_err e = ask_links(*out);
    if (e != CKPT_OK) forget_links();
    return e;
}

// Refuses what a .symlink object in its folder leads to: whoever loads by that would find nothing. The text of one counts from the
// top of the bucket.
static ckpt_err check_no_link(const char *uri) {
    link_folder *f = NULL;
    char *folder, *name, *whole = uri[0] == 'f' || uri[0] == 'F' ? unescaped(uri) : keep_text(uri), said[4200], clean[4096], there[4096];
    cut_uri(uri, &folder, &name);
    ckpt_err e = is_symlink_name(name) ? CKPT_OK : links_of(folder, &f);
    for (int i = 0; e == CKPT_OK && f != NULL && i < f->links.count; i++) {
        char *text = f->texts[i], *behind = text != NULL ? joined("", text + strspn(text, "/")) : NULL;
        if (behind != NULL && is_end_of(whole, behind, strlen(behind))) {
            snprintf(said, sizeof said, "%.2000s is what %.1000s leads to: remove that first, or have it lead elsewhere", shown(uri, there, sizeof there),
                     shown(f->links.names[i], clean, sizeof clean));
            e = ckpt_set_error(CKPT_ARG, said);
        }
        free(behind);
    }
    if (is_symlink_name(name)) forget_links();          // it is about to go
    free(folder);
    free(name);
    free(whole);
    return e;
}

static ckpt_err rm_object(const char *uri, uint64_t *size) {
    ckpt_store *s = NULL;
    char *name = NULL;
    ckpt_err e = open_object(&s, uri, &name);
    if (e == CKPT_OK) e = ckpt_store_size(s, name, size);       // S3 says yes to the removal of what is not there
    if (e == CKPT_OK) e = ckpt_store_remove(s, name);
    ckpt_store_close(s);
    free(name);
    return e;
}

static int rm_uri(const char *uri, bool first) {
    char clean[4096], text[32], said[4096], *plain = without_slashes(uri);
    uint64_t size = 0;
    bool below = ends_with_slash(uri), file = !below && names_a_file(plain);
    ckpt_err e = check_no_link(plain), other = CKPT_OK;
    if (e == CKPT_OK && below && !rm_shards(plain, &e, &size) && e == CKPT_OK) {        // the object without the '/' is another one
        snprintf(said, sizeof said, "%.2000s names a directory, and there is no sharded checkpoint in it", shown(uri, clean, sizeof clean));
        e = ckpt_set_error(CKPT_NOT_FOUND, said);
    }
    if (e == CKPT_OK && !below && (file || !rm_shards(plain, &e, &size))) e = rm_object(plain, &size);
    if (e == CKPT_NOT_FOUND && file) {                  // a directory may be called like a file
        snprintf(said, sizeof said, "%s", ckpt_last_error());
        e = rm_shards(plain, &other, &size) ? other : ckpt_set_error(e, said);
    }
    if (e != CKPT_OK) fprintf(stderr, "ckpt: %s\n", last_error());
    if (e == CKPT_OK && opt.json) printf("%s", first ? "" : ", ");
    if (e == CKPT_OK && opt.json) json_text(uri);
    if (e == CKPT_OK && !opt.json) printf("removed  %s  (%s)\n", shown(uri, clean, sizeof clean), size_text(size, text, sizeof text));
    free(plain);
    return exit_of(e);
}

// Uploads in parts that were begun and neither finished nor given up.
typedef struct gc_uploads { ckpt_store *store; double before; int count, young, dateless, failed; object_list running; } gc_uploads;

static ckpt_err gc_upload(const char *name, const char *upload_id, double started, void *user) {
    gc_uploads *g = (gc_uploads *)user;
    char clean[4096], age[32];
    double now = (double)time(NULL);
    if (started > g->before || (started <= 0 && opt.older > 0)) {       // an age that the store does not tell is none
        g->young++;
        g->dateless += started <= 0;
        return note_object(name, 0, &g->running);
    }
    ckpt_err e = opt.dry_run ? CKPT_OK : ckpt_store_abort_upload(g->store, name, upload_id);
    if (e != CKPT_OK) {
        fprintf(stderr, "ckpt: %s\n", last_error());
        g->failed = worse(g->failed, exit_of(e));
        return CKPT_OK;
    }
    if (opt.json) {
        printf("%s\n  {\"name\": ", g->count > 0 ? "," : "");
        json_text(name);
        printf(", \"upload_id\": ");
        json_text(upload_id);
        printf(", \"started\": ");
        json_number(started);
        printf("}");
    } else {
        printf("%s  the parts of %s  (begun %s%s)\n", opt.dry_run ? "would go" : "removed", shown(name, clean, sizeof clean),
               started > 0 ? age_text(now - started, age, sizeof age) : "at a time that is not known", started > 0 ? " ago" : "");
    }
    g->count++;
    return CKPT_OK;
}

// Is a file of this directory on its way just now?
static bool is_on_its_way(const gc_uploads *g, const char *dir) {
    size_t n = strlen(dir);
    for (int i = 0; i < g->running.count; i++) {
        const char *name = g->running.names[i], *base = base_of(name);
        if (n == 0 ? base == name : strncmp(name, dir, n) == 0 && base == name + n + 1) return true;
    }
    return false;
}

// Has a file of the directory been put lately? The others of a run may be kept from a store for hours, and it counts on those that
// are there. An age that the store does not tell is none.
static ckpt_err is_young(const gc_uploads *u, const object_list *l, const group_list *g, int which, bool *young) {
    *young = false;
    for (int i = 0; i < l->count && !*young; i++) {
        double at = 0;
        if (g->of[i] != which) continue;
        ckpt_err e = ckpt_store_time(u->store, l->names[i], &at);
        if (e != CKPT_OK) return e;
        *young = at <= 0 || at > u->before;
    }
    return CKPT_OK;
}

static ckpt_err gc_group(gc_uploads *u, const object_list *l, const group_list *g, int which) {
    const group *x = &g->list[which];
    char clean[4096], text[32];
    bool model = false;
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < l->count && e == CKPT_OK && !opt.dry_run; i++) {
        if (g->of[i] == which) e = ask_model_index(u->store, l->names[i], &model);
    }
    for (int i = 0; i < l->count && e == CKPT_OK && !opt.dry_run; i++) {
        if (g->of[i] == which && !(model && strcmp(base_of(l->names[i]), HF_INDEX) == 0)) e = ckpt_store_remove(u->store, l->names[i]);
        if (e == CKPT_NOT_FOUND) e = CKPT_OK;
    }
    if (e != CKPT_OK) return e;
    const char *dir = x->dir[0] != 0 ? x->dir : ".";
    if (opt.json) {
        printf("%s\n  {\"name\": ", u->count > 0 ? "," : "");
        json_text(dir);
        printf(", \"size\": %llu, \"unfinished\": true}", (unsigned long long)x->bytes);
    } else {
        printf("%s  %s/, which was never finished  (%s)\n", opt.dry_run ? "would go" : "removed", shown(dir, clean, sizeof clean),
               size_text(x->bytes, text, sizeof text));
    }
    u->count++;
    return CKPT_OK;
}

// Opens what a directory's .metadata says, of a copy of that alone. *f NULL, CKPT_OK: it says nothing that could be gone by.
static ckpt_err open_listing(const gc_uploads *u, const char *dir, ckpt_file **f) {
    char *copy = spare_path(), *name = dir[0] != 0 ? joined(dir, META) : keep_text(META), *path;
    *f = NULL;
    ckpt_err e = mkdir(copy, 0700) == 0 ? CKPT_OK : ckpt_set_error(CKPT_IO, "cannot make a temporary directory");
    path = joined(copy, META);
    if (e == CKPT_OK) e = ckpt_store_get(u->store, name, path, false);
    if (e == CKPT_OK && ckpt_file_open(f, copy) != CKPT_OK) *f = NULL;
    if (e == CKPT_NOT_FOUND) e = CKPT_OK;               // it has gone since
    (void)unlink(path);
    (void)rmdir(copy);
    free(path);
    free(name);
    free(copy);
    return e;
}

static bool is_named(const ckpt_file *f, const char *base) {
    const char *name;
    uint64_t size = 0;
    for (int i = 0; (name = ckpt_file_shard(f, i, &size)) != NULL; i++) {
        if (strcmp(name, base) == 0) return true;
    }
    return false;
}

// Is an object a file of a rank in this directory that its .metadata does not name? An earlier save of the same name was cut off there,
// or replaced.
static bool is_stray(const ckpt_file *f, const object_list *l, const group_list *g, int which, int at) {
    const char *base = base_of(l->names[at]);
    return g->of[at] == which && is_rank_file(base) && !is_named(f, base);
}

static bool has_strays(const ckpt_file *f, const object_list *l, const group_list *g, int which) {
    for (int i = 0; i < l->count; i++) {
        if (is_stray(f, l, g, which, i)) return true;
    }
    return false;
}

static ckpt_err gc_stray(gc_uploads *u, const char *name, uint64_t size) {
    char clean[4096], text[32];
    ckpt_err e = opt.dry_run ? CKPT_OK : ckpt_store_remove(u->store, name);
    if (e == CKPT_NOT_FOUND) return CKPT_OK;
    if (e != CKPT_OK) return e;
    if (opt.json) {
        printf("%s\n  {\"name\": ", u->count > 0 ? "," : "");
        json_text(name);
        printf(", \"size\": %llu, \"stray\": true}", (unsigned long long)size);
    } else {
        printf("%s  %s, which its .metadata does not name  (%s)\n", opt.dry_run ? "would go" : "removed", shown(name, clean, sizeof clean),
               size_text(size, text, sizeof text));
    }
    u->count++;
    return CKPT_OK;
}

static ckpt_err gc_strays(gc_uploads *u, const ckpt_file *f, const object_list *l, const group_list *g, int which) {
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < l->count && e == CKPT_OK; i++) {
        if (is_stray(f, l, g, which, i)) e = gc_stray(u, l->names[i], l->sizes[i]);
    }
    return e;
}

// Ranks' files without a .metadata, of a save that was given up, and those that one does not name. *young: how many of the first kind may
// still become a checkpoint. A .metadata is read before the ages are asked for: one that is put in between is young.
static ckpt_err gc_groups(gc_uploads *u, int *young) {
    object_list l;
    group_list g;
    memset(&l, 0, sizeof l);
    ckpt_err e = ckpt_store_list(u->store, "", note_object, &l);
    find_groups(&l, &g);
    for (int i = 0; i < g.count && e == CKPT_OK; i++) {
        ckpt_file *f = NULL;
        bool fresh = false, listed = g.list[i].listed;
        if (g.list[i].ranks == 0) continue;
        if (listed) e = open_listing(u, g.list[i].dir, &f);
        if (e != CKPT_OK) break;
        if (listed && (f == NULL || !has_strays(f, &l, &g, i))) {
            ckpt_file_close(f);
            continue;
        }
        bool busy = is_on_its_way(u, g.list[i].dir);
        if (!busy && !opt.now) e = is_young(u, &l, &g, i, &fresh);
        if (e == CKPT_NOT_FOUND) {          // somebody else is at it
            busy = true;
            e = CKPT_OK;
        }
        if (e == CKPT_OK && !busy && !fresh) e = listed ? gc_strays(u, f, &l, &g, i) : gc_group(u, &l, &g, i);
        else *young += !listed;
        ckpt_file_close(f);
    }
    free_groups(&g);
    free_objects(&l);
    return e;
}

static int gc_uri(void) {
    gc_uploads g;
    int young = 0;
    memset(&g, 0, sizeof g);
    if (opt.older < 0) opt.older = 24;
    g.before = (double)time(NULL) + 1 - 3600.0 * opt.older;         // time() has no fractions
    if (opt.keep > 0 || opt.keep_every > 0 || opt.keep_best != NULL || opt.damaged)
        return misuse("--keep and --damaged are for folders of this machine");
    ckpt_err e = open_store(&g.store, opt.args[0]);
    if (e != CKPT_OK) return complain(e);
    if (opt.json) printf("{\"dry_run\": %s, \"removed\": [", opt.dry_run ? "true" : "false");
    e = ckpt_store_uploads(g.store, "", gc_upload, &g);
    if (e == CKPT_OK) e = gc_groups(&g, &young);
    if (opt.json) {
        printf("%s], \"count\": %d, \"younger\": %d, \"unfinished\": %d, \"error\": ", g.count > 0 ? "\n" : "", g.count, g.young, young);
        json_text(e == CKPT_OK && g.failed == EXIT_OK ? NULL : ckpt_last_error());
        printf("}\n");
    } else if (e == CKPT_OK) {
        if (g.count == 0 && g.failed == EXIT_OK) printf("nothing to remove\n");
        int young_ones = g.young - g.dateless;
        if (young_ones > 0) printf("%d upload%s younger than %g h (--older-than)\n", young_ones, young_ones == 1 ? " is" : "s are", opt.older);
        if (g.dateless > 0) printf("%d upload%s begun at a time that is not known (--older-than 0)\n", g.dateless, g.dateless == 1 ? " was" : "s were");
        if (young > 0) printf("%d unfinished checkpoint%s may be on the way still (--now)\n", young, young == 1 ? "" : "s");
    }
    ckpt_store_close(g.store);
    free_objects(&g.running);
    if (e != CKPT_OK) fprintf(stderr, "ckpt: %s\n", last_error());
    return e != CKPT_OK ? exit_of(e) : g.failed;
}

//-- verify --------------------------------------------------------------------------

// One result; `first` is false from the second on.
static int verify_report(const char *path, ckpt_err e, uint64_t size, double seconds, bool first) {
    char text[32], clean[1024];
    if (opt.json) {
        printf("%s\n  {\"path\": ", first ? "" : ",");
        json_text(path);
        printf(", \"ok\": %s, \"size\": %llu, \"seconds\": ", e == CKPT_OK ? "true" : "false", (unsigned long long)size);
        json_number(seconds);
        printf(", \"code\": \"%s\", \"text\": ", ckpt_err_name(e));
        json_text(e == CKPT_OK ? NULL : ckpt_last_error());
        printf("}");
    } else if (e == CKPT_OK) {
        printf("%sok%s       %9s  %s\n", GREEN, PLAIN, size_text(size, text, sizeof text), shown(path, clean, sizeof clean));
    } else {
        printf("%s%s%s %s%s%s\n", RED, e == CKPT_CORRUPT ? "DAMAGED" : "FAILED ", PLAIN, is_uri(path) ? shown(path, clean, sizeof clean) : "",
               is_uri(path) ? ": " : "", last_error());
    }
    fflush(stdout);
    return exit_of(e);
}

// What does not count is no damage of the folder.
static void verify_unfinished(const char *path, uint64_t size, bool first) {
    char text[32], clean[1024];
    if (opt.json) {
        printf("%s\n  {\"path\": ", first ? "" : ",");
        json_text(path);
        printf(", \"ok\": null, \"size\": %llu, \"unfinished\": true}", (unsigned long long)size);
    } else {
        printf("%s--%s       %9s  %s: unfinished: no .metadata, it does not count\n", DIM, PLAIN, size_text(size, text, sizeof text),
               shown(path, clean, sizeof clean));
    }
}

// again: of what does not count was told already. *went: something was let go of meanwhile.
static int verify_entries(ckpt_folder *f, const char *folder, bool again, bool *first, int *verified, bool *went) {
    int status = EXIT_OK;
    ckpt_folder *now = NULL;
    for (int i = 0; i < ckpt_folder_count(f); i++) {
        ckpt_checkpoint c;
        if (ckpt_folder_entry(f, i, &c) != CKPT_OK || (c.unfinished && again)) continue;
        if (c.unfinished) {
            verify_unfinished(c.path, c.size, *first);
            *first = false;
            continue;
        }
        bool gone = c.missing && has_gone(&now, folder, &c);
        double start = now_monotonic();
        ckpt_err e = c.missing ? ckpt_folder_verify(f, i) : verify_entry(f, i, folder, c.name, &gone);
        *went = *went || gone;
        if (gone) continue;
        *verified += 1;
        status = worse(status, exit_of(c.untold));          // what is missing is told by the index alone
        status = worse(status, verify_report(c.path, e, c.size, now_monotonic() - start, *first));
        *first = false;
    }
    ckpt_folder_close(now);
    return status;
}

// Where all that there was went meanwhile, the next one of the run is there now.
static int verify_folder(const char *folder, bool *first) {
    char clean[4096];
    int status = EXIT_OK, verified = 0;
    bool went = true;
    for (int tries = 0; tries < 3 && went && verified == 0; tries++) {
        ckpt_folder *f = NULL;
        ckpt_err e = open_folder(&f, folder, false);
        went = false;
        if (e != CKPT_OK) {
            status = verify_report(folder, e, 0, 0, *first);
            *first = false;
        } else if (ckpt_folder_count(f) == 0) {         // a script that verifies a wrong folder must not be told that all is well
            fprintf(stderr, "ckpt: no checkpoints in %s\n", shown(folder, clean, sizeof clean));
            status = EXIT_MISSING;
        }
        if (status == EXIT_OK) status = verify_entries(f, folder, tries > 0, first, &verified, &went);
        ckpt_folder_close(f);
    }
    if (verified == 0 && status == EXIT_OK) {
        fprintf(stderr, "ckpt: no finished checkpoint in %s\n", shown(folder, clean, sizeof clean));
        status = EXIT_MISSING;
    }
    return status;
}

static int do_verify(void) {
    int status = EXIT_OK;
    bool first = true;
    ckpt_on_progress hook = { on_progress, NULL };
    if (opt.count < 1) return misuse("verify wants files or folders");
    if (opt.json) printf("{\"verified\": [");
    for (int i = 0; i < opt.count; i++) {
        directory what = look_at(opt.args[i]);
        if (is_dir(opt.args[i]) && what == DIR_OTHER) {
            status = worse(status, verify_folder(opt.args[i], &first));
            continue;
        }
        double start = now_monotonic();
        uint64_t size = size_on_disk(opt.args[i]);
        ckpt_err e = what == DIR_UNFINISHED ? say_unfinished(opt.args[i])
                   : is_uri(opt.args[i]) ? verify_uri(opt.args[i], &size) : ckpt_verify(opt.args[i], &hook);
        status = worse(status, verify_report(opt.args[i], e, size, now_monotonic() - start, first));
        first = false;
    }
    if (opt.json) printf("\n]}\n");
    return status;
}

//-- diff ----------------------------------------------------------------------------

typedef struct diff_side { ckpt_file *f; ckpt_entry *e; int *order; int count; } diff_side;

static const ckpt_entry *sort_entries;

static int compare_names(const void *a, const void *b) {
    return strcmp(sort_entries[*(const int *)a].name, sort_entries[*(const int *)b].name);
}

static ckpt_err diff_open(diff_side *s, const char *path) {
    memset(s, 0, sizeof *s);
    ckpt_err e = open_any(&s->f, path);
    if (e != CKPT_OK) return e;
    s->count = ckpt_file_count(s->f);
    s->e = (ckpt_entry *)need(calloc((size_t)s->count + 1, sizeof *s->e));
    s->order = (int *)need(calloc((size_t)s->count + 1, sizeof *s->order));
    for (int i = 0; i < s->count && e == CKPT_OK; i++) {
        s->order[i] = i;
        e = ckpt_file_entry(s->f, i, &s->e[i]);
    }
    sort_entries = s->e;
    qsort(s->order, (size_t)s->count, sizeof *s->order, compare_names);
    return e;
}

static void diff_close(diff_side *s) {
    ckpt_file_close(s->f);
    free(s->e);
    free(s->order);
}

typedef struct difference { bool differs, unread, numeric; uint64_t count, of; double largest; char note[1400]; } difference;

// How far two elements lie apart, complex ones in their plane; x and y: what to_doubles makes of them.
static double distance(ckpt_dtype dtype, const char *a, const char *b, double x, double y) {
    float c[4];
    double z[4];
    if (dtype == CKPT_I64 || dtype == CKPT_U64) {           // doubles are 1024 apart up there
        uint64_t u, v, top = dtype == CKPT_I64 ? (uint64_t)1 << 63 : 0;
        memcpy(&u, a, 8);
        memcpy(&v, b, 8);
        u ^= top;                   // in the order of the numbers
        v ^= top;
        return (double)(u > v ? u - v : v - u);
    }
    if (dtype == CKPT_C64) {
        memcpy(c, a, 8);
        memcpy(c + 2, b, 8);
        return hypot((double)c[0] - (double)c[2], (double)c[1] - (double)c[3]);
    }
    if (dtype == CKPT_C128) {
        memcpy(z, a, 16);
        memcpy(z + 2, b, 16);
        return hypot(z[0] - z[2], z[1] - z[3]);
    }
    return fabs(x - y);
}

// Within --rtol and --atol. An infinity is near none but itself.
static bool is_near(double by, double x, double y) {
    if (!(opt.rtol > 0 || opt.atol > 0)) return false;
    if (is_nan(&by)) return false;
    return by <= 0 || (is_finite(&x) && is_finite(&y) && by <= opt.atol + opt.rtol * fabs(y));
}

// Compares the values of two entries of one kind, in pieces. Equal bytes are equal, NaNs too.
static ckpt_err diff_bytes(diff_side *a, int ia, diff_side *b, int ib, difference *d, meter *m) {
    const ckpt_entry *ea = &a->e[ia], *eb = &b->e[ib];
    bool tensor = ea->kind == CKPT_KIND_TENSOR;
    size_t unit = tensor ? dtypes[dtype_index(ea->tensor.dtype)].size : 1;
    need_pieces();
    d->of = ea->size / unit;
    for (uint64_t at = 0; at < ea->size; at += PIECE) {
        size_t size = ea->size - at < PIECE ? (size_t)(ea->size - at) : PIECE, n = size / unit;
        ckpt_err e = ckpt_file_read(a->f, ia, at, piece_bytes[0], size);
        if (e == CKPT_OK) e = ckpt_file_read(b->f, ib, at, piece_bytes[1], size);
        if (e != CKPT_OK) return e;
        meter_add(m, size);
        if (memcmp(piece_bytes[0], piece_bytes[1], size) == 0) continue;
        if (tensor) {
            to_doubles(ea->tensor.dtype, piece_bytes[0], n, piece_values[0]);
            to_doubles(eb->tensor.dtype, piece_bytes[1], n, piece_values[1]);
        }
        for (size_t i = 0; i < n; i++) {
            const char *p = piece_bytes[0] + i * unit, *q = piece_bytes[1] + i * unit;
            if (memcmp(p, q, unit) == 0) continue;
            double x = tensor ? piece_values[0][i] : 0, y = tensor ? piece_values[1][i] : 0;
            double by = tensor ? distance(ea->tensor.dtype, p, q, x, y) : 0;
            if (tensor && is_near(by, x, y)) continue;
            d->count++;
            d->differs = true;
            d->numeric = tensor;
            if (is_nan(&by) || (!is_nan(&d->largest) && by > d->largest)) d->largest = by;
        }
    }
    return CKPT_OK;
}

static ckpt_err diff_values(diff_side *a, int ia, diff_side *b, int ib, difference *d, meter *m) {
    const ckpt_entry *ea = &a->e[ia], *eb = &b->e[ib];
    char x[640], y[640];
    memset(d, 0, sizeof *d);
    bool shapes = ea->kind == CKPT_KIND_TENSOR && (ea->tensor.ndim != eb->tensor.ndim || ea->tensor.dtype != eb->tensor.dtype ||
                  memcmp(ea->tensor.shape, eb->tensor.shape, (size_t)ea->tensor.ndim * sizeof(int64_t)) != 0);
    const char *what = ckpt_file_what(a->f, ia), *other = ckpt_file_what(b->f, ib);
    bool unread = ea->kind == CKPT_KIND_NONE || ea->kind == CKPT_KIND_OTHER, told = what != NULL && other != NULL;
    if (ea->kind != eb->kind || shapes || (unread && told && strcmp(what, other) != 0)) {
        scalar sx = read_scalar(a->f, ia, ea), sy = read_scalar(b->f, ib, eb);
        value_text(a->f, ia, ea, &sx, x, sizeof x);
        value_text(b->f, ib, eb, &sy, y, sizeof y);
        d->differs = true;
        snprintf(d->note, sizeof d->note, "%s %s -> %s %s", kind_text(ea), x, kind_text(eb), y);
        return CKPT_OK;
    }
    d->unread = unread && (ea->kind == CKPT_KIND_OTHER || !told);         // an object is known by its type alone
    if (unread) return CKPT_OK;
    bool large = ea->kind == CKPT_KIND_TENSOR || ea->kind == CKPT_KIND_BYTES || ea->kind == CKPT_KIND_FILE;
    if (large && ea->size != eb->size) {
        d->differs = true;
        snprintf(d->note, sizeof d->note, "%llu bytes -> %llu bytes", (unsigned long long)ea->size, (unsigned long long)eb->size);
        return CKPT_OK;
    }
    ckpt_err e = ea->size == eb->size ? diff_bytes(a, ia, b, ib, d, m) : CKPT_OK;
    if (ea->size != eb->size) d->differs = true;
    if (e != CKPT_OK || !d->differs) return e;
    if (large) {
        int n = snprintf(d->note, sizeof d->note, "%llu of %llu %s differ", (unsigned long long)d->count, (unsigned long long)d->of,
                         d->numeric ? "elements" : "bytes");
        if (d->numeric && n > 0) snprintf(d->note + n, sizeof d->note - (size_t)n, ", by up to %.6g", d->largest);
        return CKPT_OK;
    }
    scalar sx = read_scalar(a->f, ia, ea), sy = read_scalar(b->f, ib, eb);
    if (ea->kind == CKPT_KIND_FLOAT && is_near(fabs(sx.f - sy.f), sx.f, sy.f)) d->differs = false;
    if (ea->kind == CKPT_KIND_INT && is_near(distance(CKPT_I64, (const char *)&sx.i, (const char *)&sy.i, 0, 0), (double)sx.i, (double)sy.i))
        d->differs = false;
    value_text(a->f, ia, ea, &sx, x, sizeof x);
    value_text(b->f, ib, eb, &sy, y, sizeof y);
    snprintf(d->note, sizeof d->note, "%s -> %s", x, y);
    return CKPT_OK;
}

typedef struct diff_line { char sign; const char *name; char *note; difference d; } diff_line;

typedef struct diff_result { diff_line *lines; const char **unread; int count, same, unread_count; } diff_result;

static void diff_print_json(const char *a, const char *b, const diff_result *r) {
    printf("{\"a\": ");
    json_text(a);
    printf(", \"b\": ");
    json_text(b);
    printf(", \"same\": %s, \"equal_entries\": %d, \"not_compared\": [", r->count > 0 ? "false" : r->unread_count > 0 ? "null" : "true", r->same);
    for (int i = 0; i < r->unread_count; i++) {
        printf("%s", i > 0 ? ", " : "");
        json_text(r->unread[i]);
    }
    printf("], \"differences\": [");
    for (int i = 0; i < r->count; i++) {
        const diff_line *l = &r->lines[i];
        printf("%s\n  {\"name\": ", i > 0 ? "," : "");
        json_text(l->name);
        printf(", \"what\": \"%s\"", l->sign == '-' ? "only in a" : l->sign == '+' ? "only in b" : "differs");
        if (l->note != NULL) printf(", \"note\": ");
        if (l->note != NULL) json_text(l->note);
        if (l->d.numeric) printf(", \"elements\": %llu, \"max_abs\": ", (unsigned long long)l->d.count);
        if (l->d.numeric) json_number(l->d.largest);
        printf("}");
    }
    printf("%s]}\n", r->count > 0 ? "\n" : "");
}

static void diff_print(const diff_result *r) {
    const diff_line *lines = r->lines;
    const int count = r->count;
    char name[1024];
    int wide = 0;
    for (int i = 0; i < count; i++) {
        int n = columns_of(shown(lines[i].name, name, sizeof name));
        if (n > wide) wide = n;
    }
    for (int i = 0; i < count; i++) {
        const diff_line *l = &lines[i];
        shown(l->name, name, sizeof name);
        printf("%s%c %s%s", l->sign == '-' ? RED : l->sign == '+' ? GREEN : YELLOW, l->sign, name, PLAIN);
        if (l->note != NULL) pad(columns_of(name), wide + 2);
        printf("%s\n", l->note != NULL ? l->note : "");
    }
    if (count > 0) printf("\n%d entr%s differ%s, %d are the same\n", count, count == 1 ? "y" : "ies", count == 1 ? "s" : "", r->same);
    else if (r->unread_count == 0) printf("%sthe same%s: %d entries\n", GREEN, PLAIN, r->same);
    else printf("no difference found: %d entries are the same\n", r->same);
    if (r->unread_count == 0) return;
    printf("%snot compared%s: %d, of which only the type is known: %s", YELLOW, PLAIN, r->unread_count, shown(r->unread[0], name, sizeof name));
    for (int i = 1; i < r->unread_count && i < 3; i++) printf(", %s", shown(r->unread[i], name, sizeof name));
    printf("%s\n", r->unread_count > 3 ? ", ..." : "");
}

// Merges the two sorted lists of names.
static ckpt_err diff_walk(diff_side *a, diff_side *b, diff_result *r, meter *m) {
    for (int i = 0, k = 0; i < a->count || k < b->count; ) {
        const char *na = i < a->count ? a->e[a->order[i]].name : NULL, *nb = k < b->count ? b->e[b->order[k]].name : NULL;
        int c = na == NULL ? 1 : nb == NULL ? -1 : strcmp(na, nb);
        diff_line *l = &r->lines[r->count];
        memset(l, 0, sizeof *l);
        l->sign = c < 0 ? '-' : c > 0 ? '+' : '~';
        l->name = c <= 0 ? na : nb;
        if (opt.all || strncmp(l->name, record, strlen(record)) != 0) {
            if (c == 0) {
                ckpt_err e = diff_values(a, a->order[i], b, b->order[k], &l->d, m);
                if (e != CKPT_OK) return e;
                if (l->d.differs) l->note = keep_text(l->d.note);
            }
            if (c != 0 || l->d.differs) r->count++;
            else if (l->d.unread) r->unread[r->unread_count++] = l->name;
            else r->same++;
        }
        if (c <= 0) i++;
        if (c >= 0) k++;
    }
    return CKPT_OK;
}

static int do_diff(void) {
    diff_side a, b;
    if (opt.count != 2) return misuse("diff wants two files");
    memset(&b, 0, sizeof b);
    ckpt_err e = diff_open(&a, opt.args[0]);
    if (e == CKPT_OK) e = diff_open(&b, opt.args[1]);
    int status = EXIT_OK;
    diff_result r;
    memset(&r, 0, sizeof r);
    uint64_t work = 0;
    for (int i = 0; i < a.count && e == CKPT_OK; i++) work += a.e[i].kind == CKPT_KIND_TENSOR ? a.e[i].size : 0;
    r.lines = (diff_line *)need(calloc((size_t)a.count + (size_t)b.count + 1, sizeof *r.lines));
    r.unread = (const char **)need(calloc((size_t)a.count + 1, sizeof *r.unread));
    meter m;
    meter_start(&m, "compare", opt.args[0], work);
    if (e == CKPT_OK) e = diff_walk(&a, &b, &r, &m);
    meter_end(&m);
    if (e != CKPT_OK) {
        status = complain(e);
        if (status == EXIT_NO) status = EXIT_FAILED;        // 1 must mean: compared, and different
    } else {
        if (opt.json) diff_print_json(opt.args[0], opt.args[1], &r);
        else diff_print(&r);
        status = r.count > 0 ? EXIT_NO : EXIT_OK;
    }
    for (int i = 0; i < r.count; i++) free(r.lines[i].note);
    free(r.lines);
    free(r.unread);
    diff_close(&a);
    diff_close(&b);
    return status;
}

//-- convert, pin, rm, gc ------------------------------------------------------------

// shards 0: into one file.
static int convert(const char *from, const char *to, int shards) {
    ckpt_convert_desc d;
    char x[32], y[32], clean[1024], other[1024];
    memset(&d, 0, sizeof d);
    d.from = from;
    d.to = to;
    d.shards = shards;
    d.shard_ending = opt.as;
    d.shards_whole = opt.whole;
    d.overwrite = opt.force;
    d.no_verify = opt.no_verify;
    d.logger.fn = on_log;
    d.progress.fn = on_progress;
    fetch_aside(from);
    ckpt_err e = look_at(from) == DIR_UNFINISHED ? say_unfinished(from) : explain(ckpt_convert(&d), from);
    if (e != CKPT_OK) return complain(e);
    uint64_t before = size_on_disk(from), after = size_on_disk(to);
    if (opt.json) {
        printf("{\"from\": ");
        json_text(from);
        printf(", \"to\": ");
        json_text(to);
        if (before > 0) printf(", \"size_from\": %llu", (unsigned long long)before);
        if (shards > 0) printf(", \"files\": %d", shards);
        printf(", \"size_to\": %llu}\n", (unsigned long long)after);
        return EXIT_OK;
    }
    printf("%s", shown(from, clean, sizeof clean));
    if (before > 0) printf("  %s", size_text(before, x, sizeof x));
    printf("  ->  %s  %s", shown(to, other, sizeof other), size_text(after, y, sizeof y));
    if (shards > 0) printf("  (%d file%s)\n", shards, shards == 1 ? "" : "s");
    else if (before > 0) printf("  (%.0f %%)\n", 100.0 * (double)after / (double)before);
    else printf("\n");
    return EXIT_OK;
}

static int do_convert(void) {
    if (opt.count != 2) return misuse("it wants a checkpoint and the name of the new file");
    if (is_dir(opt.args[0]) && look_at(opt.args[0]) == DIR_OTHER) return misuse("%s is a folder: name a checkpoint", opt.args[0]);
    if (is_uri(opt.args[1])) return misuse("'%s' is a URI: convert to a file, and put that", opt.args[1]);
    return convert(opt.args[0], opt.args[1], 0);
}

static bool parse_count(const char *text, int *out) {
    char *end = NULL;
    errno = 0;
    long v = text != NULL ? strtol(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != 0 || errno != 0 || v < 1 || v > 1000000000) return false;
    *out = (int)v;
    return true;
}

static int do_split(void) {
    int shards = 0;
    if (opt.count != 3) return misuse("split wants a checkpoint, how many files, and a directory");
    if (!parse_count(opt.args[1], &shards)) return misuse("'%s' is no number of files", opt.args[1]);
    if (is_dir(opt.args[0]) && look_at(opt.args[0]) == DIR_OTHER) return misuse("%s is a folder: name a checkpoint", opt.args[0]);
    if (is_uri(opt.args[2])) return misuse("'%s' is a URI: split into a directory, and put that", opt.args[2]);
    if (opt.as != NULL) {
        char probe[64];
        snprintf(probe, sizeof probe, "__0_0%.40s", opt.as);
        if (opt.as[0] != '.' || strlen(opt.as) > 40 || strchr(opt.as, '/') != NULL || !is_rank_file(probe))
            return misuse("--as wants the ending of a checkpoint, as '.pt', '.safetensors' or '.pt.zst'");
    }
    return convert(opt.args[0], opt.args[2], shards);
}

// Is it a file by itself, in a folder that is no run's? That may be anything, a home folder with all that is below it.
static bool is_alone(const char *path, const char *folder) {
    struct stat st;
    bool beside = false;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && !is_run(folder) && !names_something(path, &beside);
}

typedef enum deed { DEED_PIN, DEED_UNPIN, DEED_RM } deed;

// A folder that stays open from name to name: to look at one of thousands of checkpoints takes its time.
typedef struct open_one { ckpt_folder *f; char *folder; bool flat; } open_one;

static void close_one(open_one *o) {
    ckpt_folder_close(o->f);
    free(o->folder);
    memset(o, 0, sizeof *o);
}

// anew: what is there now is to be looked at, whatever was.
static ckpt_err open_for(open_one *o, const char *folder, bool flat, bool anew) {
    if (!anew && o->f != NULL && o->flat == flat && strcmp(o->folder, folder) == 0) return CKPT_OK;
    close_one(o);
    ckpt_err e = open_folder(&o->f, folder, flat);
    if (e != CKPT_OK) return e;
    o->folder = keep_text(folder);
    o->flat = flat;
    return CKPT_OK;
}

typedef struct deed_done { char name[4096]; uint64_t size; bool misused; } deed_done;

static ckpt_err do_found(ckpt_folder *f, int at, const char *path, const char *inside, deed what, deed_done *done) {
    ckpt_checkpoint c;
    char clean[4096], other[4096];
    ckpt_err e = ckpt_folder_entry(f, at, &c);
    if (e != CKPT_OK) return e;
    snprintf(done->name, sizeof done->name, "%s", c.path);
    done->size = c.size;
    if (what != DEED_RM) return ckpt_folder_pin(f, at, what == DEED_PIN);
    if (!is_other_way(path, inside, c.path)) return ckpt_folder_remove(f, at);
    fprintf(stderr, "ckpt: %s is a link to %s: name the checkpoint itself\n", shown(path, clean, sizeof clean),
            shown(c.path, other, sizeof other));
    done->misused = true;
    return CKPT_OK;
}

// What is not found in a folder that was open already may have come since.
static ckpt_err do_one(open_one *o, const char *path, deed what, deed_done *done) {
    char clean[4096], *inside, *folder = folder_of(path, &inside);
    char *whole = joined(folder, inside);           // not the same name in the current folder
    bool flat = is_alone(path, folder), fresh = false;
    int at = -1;
    ckpt_err e = CKPT_NOT_FOUND;
    for (bool anew = false; !fresh && (at < 0 || e == CKPT_NOT_FOUND); anew = true) {
        const ckpt_folder *before = o->f;
        memset(done, 0, sizeof *done);
        e = open_for(o, folder, flat, anew);
        fresh = anew || o->f != before || e != CKPT_OK;
        at = e == CKPT_OK ? ckpt_folder_find(o->f, whole) : -1;
        if (at < 0 && e == CKPT_OK) at = ckpt_folder_find(o->f, inside);
        if (at >= 0) e = do_found(o->f, at, path, inside, what, done);
    }
    free(whole);
    if (at < 0 && e == CKPT_OK) {
        fprintf(stderr, "ckpt: there is no checkpoint %s\n", shown(path, clean, sizeof clean));
        e = CKPT_NOT_FOUND;
        done->misused = true;           // it has been said
    }
    free(folder);
    free(inside);
    return e;
}

static int do_each(deed what) {
    static const char *const words[] = { "pinned", "unpinned", "removed" };
    int status = EXIT_OK, good = 0;
    char clean[4096], text[32];
    open_one open = { NULL, NULL, false };
    deed_done done;
    if (opt.count < 1) return misuse("which checkpoints?");
    if (opt.json) printf("{\"%s\": [", words[what]);
    for (int i = 0; i < opt.count; i++) {
        if (what == DEED_RM && is_uri(opt.args[i])) {
            int removed = rm_uri(opt.args[i], good == 0);
            good += removed == EXIT_OK;
            status = worse(status, removed);
            continue;
        }
        if (is_dir(opt.args[i]) && look_at(opt.args[i]) == DIR_OTHER) {
            fprintf(stderr, "ckpt: %s is a folder: name a checkpoint\n", shown(opt.args[i], clean, sizeof clean));
            status = worse(status, EXIT_USAGE);
            continue;
        }
        char *plain = without_slashes(opt.args[i]);
        ckpt_err e = do_one(&open, plain, what, &done);
        free(plain);
        if (e != CKPT_OK && !done.misused) fprintf(stderr, "ckpt: %s\n", last_error());
        if (e == CKPT_OK && done.misused) status = worse(status, EXIT_USAGE);
        status = worse(status, exit_of(e));
        if (e != CKPT_OK || done.misused) continue;
        if (opt.json) {
            printf("%s", good > 0 ? ", " : "");
            json_text(done.name);
        } else if (what == DEED_RM) {
            printf("removed  %s  (%s)\n", shown(done.name, clean, sizeof clean), size_text(done.size, text, sizeof text));
        } else {
            printf("%s  %s\n", words[what], shown(done.name, clean, sizeof clean));
        }
        good++;
    }
    close_one(&open);
    forget_links();
    if (opt.json) printf("]}\n");
    return status;
}

typedef struct gc_seen { int count; uint64_t bytes; } gc_seen;

static void gc_removed(const char *name, uint64_t size, void *user) {
    gc_seen *seen = (gc_seen *)user;
    char clean[1024], text[32];
    if (opt.json) {
        printf("%s\n  {\"name\": ", seen->count > 0 ? "," : "");
        json_text(name);
        printf(", \"size\": %llu}", (unsigned long long)size);
    } else {
        printf("%s  %s  (%s)\n", opt.dry_run ? "would go" : "removed", shown(name, clean, sizeof clean), size_text(size, text, sizeof text));
    }
    seen->count++;
    seen->bytes += size;
}

static int do_gc(void) {
    ckpt_folder *f = NULL;
    ckpt_gc_desc d;
    gc_seen seen = { 0, 0 };
    char text[32];
    if (opt.count != 1) return misuse("gc wants a folder");
    if (opt.older >= 0) return misuse("--older-than is for uploads to a store; of a folder --now takes what is unfinished at any age");
    memset(&d, 0, sizeof d);
    d.num_checkpoints_to_keep = opt.keep;
    d.keep_every = opt.keep_every;
    d.keep_best = opt.keep_best;
    d.damaged = opt.damaged;
    d.dry_run = opt.dry_run;
    d.unfinished_now = opt.now;
    d.removed = gc_removed;
    d.user = &seen;
    if (opt.keep == 0 && (opt.keep_every > 0 || opt.keep_best != NULL)) return misuse("--keep-every and --keep-best only mean something with --keep");
    ckpt_err e = open_folder(&f, opt.args[0], false);
    if (e != CKPT_OK) return complain(e);
    if (opt.json) printf("{\"dry_run\": %s, \"removed\": [", opt.dry_run ? "true" : "false");
    e = ckpt_folder_gc(f, &d);
    if (opt.json) {
        printf("%s], \"count\": %d, \"bytes\": %llu", seen.count > 0 ? "\n" : "", seen.count, (unsigned long long)seen.bytes);
        printf(", \"error\": ");
        json_text(e == CKPT_OK ? NULL : ckpt_last_error());
        printf("}\n");
    }
    ckpt_folder_close(f);
    if (e != CKPT_OK) {
        fprintf(stderr, "ckpt: %s\n", last_error());
        return exit_of(e);
    }
    if (!opt.json && seen.count == 0) printf("nothing to remove\n");
    else if (!opt.json) printf("%d item%s, %s\n", seen.count, seen.count == 1 ? "" : "s", size_text(seen.bytes, text, sizeof text));
    return EXIT_OK;
}

// Files that a staging folder holds for upload.
typedef struct waiting { char *uri, *name, *file; uint64_t size, sent; double added; bool in_use, refused, damaged, unread, cut; } waiting;
typedef struct waiting_list { waiting *list; int count, cap; char *folder; } waiting_list;     // folder: which the records lie in

// Is less of the staged file there than its record says, or more? One that is being sent may go at any time.
static bool is_cut(const ckpt_pending *p) {
    struct stat st;
    if (p->damaged || p->in_use || p->sent >= p->size || strcmp(p->staged_path, p->record) == 0) return false;
    if (stat(p->staged_path, &st) != 0) return errno == ENOENT;
    return (uint64_t)st.st_size != p->size;
}

static void note_waiting(const ckpt_pending *p, void *user) {
    waiting_list *l = (waiting_list *)user;
    if (l->count == l->cap) {
        l->cap = l->cap > 0 ? 2 * l->cap : 64;
        l->list = (waiting *)need(realloc(l->list, (size_t)l->cap * sizeof *l->list));
    }
    if (l->folder == NULL) l->folder = parent_of(p->record);
    waiting *w = &l->list[l->count++];
    w->uri = keep_text(p->uri != NULL ? p->uri : "");
    w->name = keep_text(p->name != NULL ? p->name : base_of(p->record));
    w->file = keep_text(p->file_path != NULL ? p->file_path : "");
    w->size = p->size;
    w->sent = p->sent;
    w->added = p->added;
    w->in_use = p->in_use;
    w->refused = p->refused;
    w->damaged = p->damaged;
    w->unread = p->damaged && (access(p->record, R_OK) != 0 || is_dir(p->record));
    w->cut = is_cut(p);
}

static void free_waiting(waiting_list *l) {
    for (int i = 0; i < l->count; i++) {
        free(l->list[i].uri);
        free(l->list[i].name);
        free(l->list[i].file);
    }
    free(l->list);
    free(l->folder);
}

static const char *waiting_state(const waiting *w) {
    return w->unread ? "unread" : w->damaged || w->cut ? "damaged" : w->refused ? "refused" : w->in_use ? "on its way" : "waits";
}

static int do_pending(void) {
    waiting_list l;
    char size[32], age[32], clean[4096], uri[4096];
    if (opt.count > 1) return misuse("pending wants one folder");
    memset(&l, 0, sizeof l);
    ckpt_err e = ckpt_uploader_pending(opt.count > 0 ? opt.args[0] : ".", note_waiting, &l);
    if (e != CKPT_OK && l.count == 0) {
        free_waiting(&l);
        return complain(e);
    }
    if (opt.json) printf("{\"pending\": [");
    for (int i = 0; i < l.count; i++) {
        const waiting *w = &l.list[i];
        if (opt.json) {
            printf("%s\n  {\"uri\": ", i > 0 ? "," : "");
            json_text(w->uri);
            printf(", \"name\": ");
            json_text(w->name);
            printf(", \"file\": ");
            json_text(w->file);
            printf(", \"size\": %llu, \"sent\": %llu, \"added\": ", (unsigned long long)w->size, (unsigned long long)w->sent);
            if (w->added > 0) json_number(w->added);
            else printf("null");
            printf(", \"state\": \"%s\"}", waiting_state(w));
        } else {
            double share = w->size > 0 ? 100.0 * (double)w->sent / (double)w->size : 0.0;
            printf("%10s  %3.0f %%  %7s  %-10s  %s%s\n", size_text(w->size, size, sizeof size), share,
                   w->added > 0 ? age_text((double)time(NULL) - w->added, age, sizeof age) : "-", waiting_state(w), shown(w->uri, uri, sizeof uri),
                   shown(w->name, clean, sizeof clean));
        }
    }
    if (opt.json) printf("%s]}\n", l.count > 0 ? "\n" : "");
    else if (l.count == 0) printf("nothing is pending\n");
    free_waiting(&l);
    if (e != CKPT_OK) fprintf(stderr, "ckpt: %s\n", last_error());
    return exit_of(e);
}

// file_path_format_string for objects beside this one. Names that were recorded are not formatted again: only the uploader's trial
// write goes there, since rights may end at a run's folder.
static char *format_beside(const char *name) {
    const char *rest = "{remote_file_name}", *slash = strrchr(name, '/');
    size_t n = slash != NULL ? (size_t)(slash + 1 - name) : 0;
    char *out = (char *)need(malloc(2 * n + strlen(rest) + 1)), *to = out;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '{' || name[i] == '}') *to++ = name[i];
        *to++ = name[i];
    }
    strcpy(to, rest);
    return out;
}

// What was said while one store was sent to: what an upload fails with is logged, and returned in the end.
typedef struct said_list { pthread_mutex_t lock; char **lines; int count; } said_list;

static void on_push_log(ckpt_log_level level, const char *msg, void *user) {
    said_list *l = (said_list *)user;
    if (level < CKPT_LOG_WARN || opt.quiet) return;
    (void)pthread_mutex_lock(&l->lock);                 // workers of the uploader call it, too
    on_log(level, msg, NULL);
    l->lines = (char **)need(realloc(l->lines, (size_t)(l->count + 1) * sizeof *l->lines));
    l->lines[l->count++] = keep_text(msg);
    (void)pthread_mutex_unlock(&l->lock);
}

static bool was_said(const said_list *l, const char *text) {
    bool said = false;
    for (int i = 0; i < l->count && !said; i++) said = strcmp(l->lines[i], text) == 0;
    return said;
}

// Finishes what waits for one store; name: of one of these.
static int push_to(const char *uri, const char *name, const char *folder) {
    ckpt_uploader_desc d;
    ckpt_store_desc sd;
    ckpt_uploader *u = NULL;
    ckpt_transfer_stats st;
    char clean[4096], size[32];
    memset(&d, 0, sizeof d);
    memset(&sd, 0, sizeof sd);
    memset(&st, 0, sizeof st);
    said_list said = { PTHREAD_MUTEX_INITIALIZER, NULL, 0 };
    d.bucket_uri = uri;
    char *format = format_beside(name);
    d.file_path_format_string = format;
    d.run_name = "-";                   // asked for where "{{run_name}}" stands, but never filled in
    sd.logger.fn = d.logger.fn = on_push_log;
    sd.logger.user = d.logger.user = &said;
    d.store_desc = &sd;
    d.upload_staging_folder = folder;
    d.ranks.world_size = d.ranks.local_world_size = 1;      // also in the environment of a job: what all its ranks have left
    d.progress.fn = on_progress;
    double start = now_monotonic();
    ckpt_err e = ckpt_uploader_open(&u, &d);
    free(format);
    while (e == CKPT_OK) {
        e = ckpt_uploader_wait(u, 0.5);
        if (e == CKPT_TIMEOUT) e = CKPT_OK;
        ckpt_uploader_stats(u, &st);
        if (st.pending == 0) break;
    }
    if (u != NULL) {
        ckpt_err closed = ckpt_uploader_close(u, 0);
        if (e == CKPT_OK) e = closed;
    }
    if (e != CKPT_OK && !was_said(&said, ckpt_last_error())) fprintf(stderr, "ckpt: %s\n", last_error());
    for (int i = 0; i < said.count; i++) free(said.lines[i]);
    free(said.lines);
    double seconds = now_monotonic() - start;
    if (opt.json) {
        printf("\n  {\"uri\": ");
        json_text(uri);
        printf(", \"files\": %llu, \"bytes\": %llu, \"failed\": %llu, \"seconds\": ", (unsigned long long)st.files, (unsigned long long)st.bytes,
               (unsigned long long)st.failed);
        json_number(seconds);
        printf(", \"code\": \"%s\"}", ckpt_err_name(e));
    } else {
        printf("%llu file%s, %s  ->  %s\n", (unsigned long long)st.files, st.files == 1 ? "" : "s", size_text(st.bytes, size, sizeof size),
               shown(uri, clean, sizeof clean));
    }
    return exit_of(e) == EXIT_NO ? EXIT_REFUSED : exit_of(e);       // damaged, and it stays: no other status than the next time
}

// What has not arrived of all that waited: another process may have taken it up meanwhile.
static int push_left(const char *folder, const waiting_list *before) {
    waiting_list now;
    int left = 0, status = EXIT_OK;
    memset(&now, 0, sizeof now);
    ckpt_err e = before->count > 0 ? ckpt_uploader_pending(folder, note_waiting, &now) : CKPT_OK;
    if (e != CKPT_OK && now.count == 0) status = exit_of(e);
    for (int i = 0; i < now.count; i++) {
        const waiting *w = &now.list[i];
        bool known = false;
        for (int k = 0; k < before->count && !known; k++)
            known = strcmp(before->list[k].uri, w->uri) == 0 && strcmp(before->list[k].name, w->name) == 0;
        left += known;
    }
    if (left > 0 && !opt.quiet) {
        fprintf(stderr, "ckpt: %d file%s left: damaged, refused, not sent, or another process sends them (ckpt pending)\n", left,
                left == 1 ? " is" : "s are");
    }
    free_waiting(&now);
    return left > 0 ? EXIT_REFUSED : status;
}

static int do_push(void) {
    waiting_list l;
    const char *folder = opt.count > 0 ? opt.args[0] : ".";
    int status = EXIT_OK, stores = 0;
    if (opt.count > 1) return misuse("push wants one folder");
    memset(&l, 0, sizeof l);
    ckpt_err e = ckpt_uploader_pending(folder, note_waiting, &l);
    if (e != CKPT_OK && l.count == 0) {
        free_waiting(&l);
        return complain(e);
    }
    if (e != CKPT_OK) fprintf(stderr, "ckpt: %s\n", last_error());
    status = exit_of(e);
    if (opt.json) printf("{\"pushed\": [");
    for (int i = 0; i < l.count; i++) {
        const waiting *w = &l.list[i];
        bool seen = w->damaged || w->in_use || w->refused;
        for (int k = 0; k < i && !seen; k++) {
            const waiting *o = &l.list[k];
            seen = strcmp(o->uri, w->uri) == 0 && !o->damaged && !o->in_use && !o->refused;
        }
        if (seen) continue;
        if (opt.json && stores > 0) printf(",");
        status = worse(status, push_to(w->uri, w->name, l.folder));
        stores++;
    }
    if (opt.json) printf("%s]}\n", stores > 0 ? "\n" : "");
    else if (stores == 0) printf(l.count == 0 ? "nothing to push\n" : "nothing was sent\n");
    status = worse(status, push_left(folder, &l));
    free_waiting(&l);
    return status;
}

static int do_ls_any(void) {
    return opt.count > 0 && is_uri(opt.args[0]) ? ls_uri() : do_ls();
}

static int do_gc_any(void) {
    return opt.count == 1 && is_uri(opt.args[0]) ? gc_uri() : do_gc();
}

//-- help and options ----------------------------------------------------------------

static const char *const help_all =
    "usage: ckpt COMMAND [OPTIONS] ...\n"
    "\n"
    "  ls [DIR|URI]        the checkpoints of a folder: time, size, age, verified, pinned, latest; the objects of a store\n"
    "  show CKPT [NAME..]  what is in a checkpoint: names, dtypes, shapes, bytes, values\n"
    "  verify PATH|URI...  reads files, or all of a folder, and checks every checksum\n"
    "  diff A B            compares two checkpoints, value by value\n"
    "  convert A B         writes A again as B: another container or compression, by B's name\n"
    "  merge DIR B         the same for a directory that many ranks wrote: one file, all pieces joined\n"
    "  split A N DIR       the other way: a directory of N files, which any number of ranks loads\n"
    "  pin PATH...         keeps checkpoints for ever;  unpin lets them go again\n"
    "  rm PATH|URI...      deletes checkpoints; links that lead to them move to the newest one left\n"
    "  gc DIR|URI          tidies a folder: left-overs of killed runs, and what --keep lets go; a store: uploads given up\n"
    "  get URI [PATH]      copies a checkpoint from a store;  put PATH URI the other way;  cp A B either, or from store to store\n"
    "  pending [DIR]       the files that a staging folder, or a folder of checkpoints, holds for upload;  push sends them\n"
    "\n"
    "A checkpoint is a file, or the directory that many ranks wrote: .metadata and a file for each. Without .metadata such a\n"
    "directory is unfinished and does not count.\n"
    "URIs: s3://bucket/name  sftp://user@host/name  file:///folder/name, with credentials from the environment.\n"
    "\n"
    "Every command:  --json (for programs; a failure, and wrong usage, as {\"error\": {\"code\": ..., \"text\": ...}})\n"
    "                --quiet (no progress, no warnings)   --help\n"
    "Colours and progress bars appear on a terminal only; NO_COLOR switches colours off.\n"
    "\n"
    "Exit status:  0 done, the same, whole     1 different, or damaged     2 wrong usage\n"
    "              3 no such file              4 refused: pinned, in use by a saver, exists already, no permission\n"
    "              5 it failed: input or output, no space, no memory, not supported\n";

typedef struct command { const char *name; int (*run)(void); const char *options, *help; } command;

static int do_pin(void) { return do_each(DEED_PIN); }
static int do_unpin(void) { return do_each(DEED_UNPIN); }
static int do_rm(void) { return do_each(DEED_RM); }

static const command commands[] = {
    { "ls", do_ls_any, "--verify --all ",
      "usage: ckpt ls [--verify] [--json] [DIR]\n"
      "       ckpt ls [--all] [--json] URI\n\n"
      "Lists the checkpoints of a folder (default: this one), the oldest save first.\n\n"
      "  --verify   read every byte and check every checksum; without it VERIFIED says \"-\" for a file whose\n"
      "             listing is whole and whose size is right, \"NO\" for one that is damaged or missing, and \"?\" for one\n"
      "             that could not be looked at\n\n"
      "pinned: kept for ever (ckpt pin).   <- NAME: the link that leads to it.   abandoned: the run went back\n"
      "before it and saved again.   foreign, not in the index: not known to be written by ckpt.h; listed, never rotated.\n"
      "unfinished: a directory of ranks' files without .metadata: it is being written, or never was finished. missing: the index has\n"
      "it, so that it was finished once, and its file, or its .metadata, is gone.\n"
      "Exit status 1: at least one is damaged or missing.   4: one may not be read, or the folder's index, and it is not known which\n"
      "are pinned (null with --json) or missing.\n"
      "A URI: every object below it, by name, with its size; of a directory of ranks' files one line.\n\n"
      "  --all      of such a directory every object too\n" },
    { "show", do_show, "--stats --all ",
      "usage: ckpt show [--stats] [--all] [--json] FILE|DIR|URI [NAME...]\n\n"
      "Shows what is in a checkpoint as a tree. NAME: only that name, what is below it, or what matches the pattern.\n"
      "Of a directory that many ranks wrote: whole tensors with their whole shapes, and in how many pieces they lie.\n\n"
      "  --stats    also smallest, mean and largest value, a histogram between them, and counts of NaN and infinity,\n"
      "             of every tensor (of the absolute values, for complex ones); reads the file twice, a few MiB at a time\n"
      "  --all      also the saver's own record of earlier checkpoints\n" },
    { "verify", do_verify, "",
      "usage: ckpt verify [--json] FILE|DIR|URI...\n\n"
      "Reads whole files and checks every checksum. Of a folder, all its checkpoints; its index remembers the outcome.\n"
      "A directory that many ranks wrote: .metadata, and every file with every sum. One without .metadata is damaged when it is\n"
      "named; among a folder's it is told of and does not count.\n"
      "An object is copied to the folder for temporary files ($TMPDIR) first; a directory in a store is read where it lies.\n"
      "Exit status 1: at least one is damaged.  3: none is, but one is missing, or there is nothing to verify.\n"
      "4: one, or the folder's index, may not be read: the index alone tells which are missing.\n" },
    { "diff", do_diff, "--rtol --atol --all ",
      "usage: ckpt diff [--rtol X] [--atol X] [--all] [--json] A B\n\n"
      "Compares two checkpoints of any kinds name by name: - only in A, + only in B, ~ different.\n\n"
      "  --rtol X, --atol X   numbers count as the same when they differ by at most atol + rtol * |b| (default: 0, equal bytes)\n"
      "  --all                also the saver's own record of earlier checkpoints\n\n"
      "Of an object of a type that this reader does not know the type is compared, and no more: that is said, with --json in not_compared,\n"
      "where \"same\" is then null.\n\n"
      "Exit status 0: the same, as far as it was compared.  1: different.\n" },
    { "convert", do_convert, "--force --no-verify ",
      "usage: ckpt convert [--force] [--no-verify] [--json] A B\n\n"
      "Writes checkpoint A again as B, durably, whole or not at all. The ending of B says what it becomes:\n"
      "  .pt  .safetensors  .tar        and packed: .pt.gz .bz2 .lz4 .lzma .lzo .xz .zst, .tar.gz .tgz .tar.bz2 .tar.lzma\n"
      "Between .pt and .pt.zst the content stays the same to the byte. From one container to another, tensors and values are\n"
      "carried over by name; what the other cannot hold is named. A may be a directory that many ranks wrote: ckpt merge.\n\n"
      "  --force       replace B\n"
      "  --no-verify   do not check A, which else is read again, and must be whole, before B gets its name\n" },
    { "merge", do_convert, "--force --no-verify ",
      "usage: ckpt merge [--force] [--no-verify] [--json] DIR|URI FILE\n\n"
      "Writes the directory that many ranks wrote, here or in a store, as one file: pieces joined, values carried over by name,\n"
      "in little memory whatever its size. The ending of FILE says what it becomes, as for ckpt convert.\n\n"
      "  --force       replace FILE\n"
      "  --no-verify   do not check all sums, which else is done before FILE gets its name\n" },
    { "split", do_split, "--force --no-verify --whole --as ",
      "usage: ckpt split [--whole] [--as ENDING] [--force] [--no-verify] [--json] CKPT N DIR\n\n"
      "Writes a checkpoint of any kind as a directory of N files and .metadata, as N ranks write it. Any number of ranks loads it.\n"
      "Tensors are cut into N parts by rows (their first dimension); values, and tensors without rows, go to the first file.\n\n"
      "  --as ENDING   what the files are: .pt (default), .safetensors, .pt.zst ...\n"
      "  --whole       no tensor is cut: whole ones are spread over the files by their bytes, in order. With --as .safetensors\n"
      "                model.safetensors.index.json is written too, by which Hugging Face's loaders find each tensor's file\n"
      "  --force       replace the checkpoint in DIR, which stays whole until the new one is: there must be room for both, and the files\n"
      "                of the new one are called __0_1... where those of the old one are __0_0...\n"
      "  --no-verify   do not check CKPT, which else is read again, and must be whole, before DIR counts\n" },
    { "pin", do_pin, "",
      "usage: ckpt pin [--json] PATH...\n\nKeeps checkpoints for ever: neither a saver nor gc nor rm deletes them. PATH may be a link such as\n"
      "latest-rank0.pt. A saver that is running takes notice at its next save. A pin is of a name: a save of the same name (of a run that goes\n"
      "back, with overwrite, or where names do not vary) replaces the checkpoint, and the new one is pinned; the saver warns of that.\n" },
    { "unpin", do_unpin, "", "usage: ckpt unpin [--json] PATH...\n\nLets pinned checkpoints go again.\n" },
    { "rm", do_rm, "",
      "usage: ckpt rm [--json] PATH|URI...\n\n"
      "Deletes checkpoints, and objects of stores; of a directory that many ranks wrote .metadata goes first.\n"
      "A link that leads to one moves first, to the newest one left that verifies. Refused\n"
      "(status 4) while it is pinned, or while a saver has the folder open. Of an object no pins are known; it is refused while a\n"
      ".symlink object in its folder leads to it.\n" },
    { "gc", do_gc_any, "--keep --keep-every --keep-best --damaged --dry-run --older-than --now ",
      "usage: ckpt gc [--keep N [--keep-every N] [--keep-best min|max]] [--damaged] [--now] [--dry-run] [--json] DIR\n"
      "       ckpt gc [--older-than HOURS] [--now] [--dry-run] [--json] URI\n\n"
      "Tidies a folder: deletes the hidden files that killed runs left, and directories of ranks' files that have no .metadata,\n"
      "and ranks' files that the .metadata beside them does not name, where nothing has changed for an hour; brings the index\n"
      "up to what is there, and leads links that lead nowhere, or to a damaged file, to the newest checkpoint that verifies.\n"
      "Beyond that it deletes:\n\n"
      "  --keep N         all but the newest N, the pinned ones, and\n"
      "  --keep-every N     every Nth save, and\n"
      "  --keep-best W      the one with the best recorded metric (min or max); refused where none has one\n"
      "  --damaged        what was found to be damaged (ckpt verify DIR finds out), and is when it is looked at again\n"
      "  --now            what is unfinished and of the last hour too, but never one that a living process writes\n"
      "  --dry-run, -n    only say what would go, which takes no right to write\n\n"
      "Pinned ones stay, also a directory that has lost its .metadata, and what cannot be read just now. "
      "No checkpoint is deleted\nunless one of those that stay verifies. Refused (status 4) while a saver has the folder open. Folders below\n"
      "that have an index of their own are other runs': they are left alone, and to be named one by one.\n\n"
      "Of a URI: gives up uploads in parts that nobody finished, whose parts cost room although no listing shows them; and removes\n"
      "directories of ranks' files without .metadata, and ranks' files that the .metadata beside them does not name, where nothing\n"
      "in the directory has changed for as long and to which nothing is on its way.\n\n"
      "  --older-than H   what was begun, or changed last, more than H hours ago (default 24): the rest of a younger one may still\n"
      "                   be on its way, from a rank that cannot reach the store; 0: also what began at a time that is not known\n"
      "  --now            unfinished directories of any age: only when no run saves there\n" },
    { "get", do_get, "--force ",
      "usage: ckpt get [--force] [--json] URI [PATH]\n\nCopies an object to a file, whole or not at all, checked. PATH may be a folder; the default is this one.\n"
      "The name of a .symlink object, with or without the ending, gets what it leads to.\n"
      "A directory that many ranks wrote comes with all its files, .metadata last: one that was broken off does not count.\n\n"
      "  --force   replace the file, or the checkpoint in that directory: this counts until the new one does where none of their files\n"
      "            have one name; else it stops counting first, and there is none until the command has ended well, unless it is\n"
      "            the same checkpoint\n" },
    { "put", do_put, "--force ",
      "usage: ckpt put [--force] [--json] FILE|DIR URI\n\nCopies a file to a store, whole or not at all. A URI that ends with '/' gets the file's name behind it.\n"
      "FILE may be a link, or the text that stands for one where there are none; under a name in .symlink the text itself goes,\n"
      "and nothing else (status 4).\n"
      "DIR: a directory that many ranks wrote, with all its files, .metadata last. Of two copies to one place at once at most one counts;\n"
      "the other one, or both, end with status 4.\n\n"
      "  --force   replace the object, or the checkpoint there, which counts as long as with ckpt get\n" },
    { "cp", do_cp, "--force ",
      "usage: ckpt cp [--force] [--json] FROM TO\n\nAs get and put; from one store to another it goes through the folder for temporary files ($TMPDIR).\n"
      "To a name in .symlink goes the text of a .symlink object, when what it names is there; anything else is refused (status 4).\n\n"
      "  --force   replace what is there\n" },
    { "pending", do_pending, "",
      "usage: ckpt pending [--json] [DIR]\n\nShows what a staging folder (default: this one), or the hidden one in a folder of checkpoints, holds for upload:\n"
      "size, share that the store has confirmed, age, and whether it waits, is on its way in a running process, was refused\n"
      "because the object exists, or is damaged (its record, or the staged file is cut or gone). A record that cannot be read is\n"
      "\"unread\": the status is 4 or 5, and the rest is shown.\n" },
    { "push", do_push, "",
      "usage: ckpt push [--json] [DIR]\n\nSends what ckpt pending shows, going on where a dead process stopped, and returns when it has arrived.\n"
      "What is damaged or refused stays, and what another process sends (\"on its way\") is left to it: then the status is 4.\n" }
};

enum { COMMANDS = (int)(sizeof commands / sizeof commands[0]) };

static bool parse_tolerance(const char *text, double *out) {
    char *end = NULL;
    double v = text != NULL ? strtod(text, &end) : -1;
    if (text == NULL || end == text || *end != 0 || is_nan(&v) || v < 0) return false;
    *out = v;
    return true;
}

static bool allowed(const command *c, const char *option) {
    size_t n = strlen(option);
    for (const char *p = c->options; *p != 0; p += strcspn(p, " ") + 1) {
        if (strncmp(p, option, n) == 0 && p[n] == ' ') return true;
    }
    return false;
}

// Takes one option; -1 when it is none, else an exit status or 0. *used: the next argument was its value.
static int take_option(const command *c, const char *o, const char *value, bool *used) {
    static const struct { const char *name; bool *flag; } flags[] = {
        { "--json", &opt.json }, { "--quiet", &opt.quiet }, { "--stats", &opt.stats }, { "--all", &opt.all }, { "--verify", &opt.verify },
        { "--force", &opt.force }, { "--no-verify", &opt.no_verify }, { "--damaged", &opt.damaged }, { "--dry-run", &opt.dry_run },
        { "--now", &opt.now }, { "--whole", &opt.whole }
    };
    if (strcmp(o, "-n") == 0) o = "--dry-run";
    if (strcmp(o, "-q") == 0) o = "--quiet";
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(o, flags[i].name) != 0) continue;
        if (i > 1 && !allowed(c, o)) break;
        *flags[i].flag = true;
        return 0;
    }
    if (!allowed(c, o)) return misuse("ckpt %s has no option %s", c->name, o);
    *used = true;
    bool good = false;
    if (strcmp(o, "--keep") == 0) good = parse_count(value, &opt.keep);
    if (strcmp(o, "--keep-every") == 0) good = parse_count(value, &opt.keep_every);
    if (strcmp(o, "--older-than") == 0) good = parse_tolerance(value, &opt.older);
    if (strcmp(o, "--rtol") == 0) good = parse_tolerance(value, &opt.rtol);
    if (strcmp(o, "--atol") == 0) good = parse_tolerance(value, &opt.atol);
    if (strcmp(o, "--as") == 0) {
        good = value != NULL && value[0] != 0;
        opt.as = value;
    }
    if (strcmp(o, "--keep-best") == 0) {
        good = value != NULL && (strcmp(value, "min") == 0 || strcmp(value, "max") == 0);
        opt.keep_best = value;
    }
    return good ? 0 : misuse("%s does not take '%s'", o, value != NULL ? value : "nothing");
}

static void look_around(void) {
    const char *locale = getenv("LC_ALL"), *term = getenv("TERM"), *no = getenv("NO_COLOR");
    if (locale == NULL || locale[0] == 0) locale = getenv("LC_CTYPE");
    if (locale == NULL || locale[0] == 0) locale = getenv("LANG");
    opt.utf8 = locale != NULL && (strstr(locale, "UTF-8") != NULL || strstr(locale, "utf8") != NULL || strstr(locale, "UTF8") != NULL);
    opt.colour = isatty(1) && (no == NULL || no[0] == 0) && term != NULL && strcmp(term, "dumb") != 0;
}

// A compressed checkpoint of many ranks takes a descriptor for each of their files.
static void open_many(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);             // macOS may refuse: then it stays
}

// Where one of the three is closed the next file that is opened takes its place, as the lock of the folder for what is fetched, and
// the text goes into that. To what may only be read it goes nowhere, and that is told.
static void fill_standard(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!open("/dev/null", O_RDONLY);
}

// Output that is not whole is a failure: on a full disk a listing ends anywhere.
static int finish(int status) {
    int why = fflush(stdout) != 0 ? errno : 0;
    if (why == 0 && ferror(stdout) == 0) return status;
    fprintf(stderr, "ckpt: cannot write the output%s%s\n", why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
    return EXIT_FAILED;
}

int main(int argc, char **argv) {
    const command *c = NULL;
    fill_standard();
    look_around();
    open_many();
    opt.older = -1;                     // not given
    opt.args = argv;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) opt.json = opt.json || strcmp(argv[i], "--json") == 0;    // wrong usage, too
    for (int i = 0; i < COMMANDS && argc > 1; i++) if (strcmp(argv[1], commands[i].name) == 0) c = &commands[i];
    if (argc < 2) { fputs(help_all, stderr); return EXIT_USAGE; }
    if (strcmp(argv[1], "--version") == 0) { printf("ckpt %s\n", CKPT_VERSION); return finish(EXIT_OK); }
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0;
    for (int i = 0; i < COMMANDS && help && argc > 2; i++) if (strcmp(argv[2], commands[i].name) == 0) c = &commands[i];
    if (help && argc > 2 && argv[2][0] != '-' && c == NULL) return misuse("there is no command '%s'", argv[2]);
    if (help) { fputs(c != NULL ? c->help : help_all, stdout); return finish(EXIT_OK); }
    if (c == NULL) return misuse("there is no command '%s'", argv[1]);
    bool only_names = false;
    for (int i = 2; i < argc; i++) {
        bool used = false;
        if (!only_names && strcmp(argv[i], "--") == 0) { only_names = true; continue; }
        if (!only_names && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) { fputs(c->help, stdout); return finish(EXIT_OK); }
        if (only_names || argv[i][0] != '-' || argv[i][1] == 0) { opt.args[opt.count++] = argv[i]; continue; }
        int status = take_option(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used);
        if (status != 0) return status;
        i += used;
    }
    if (opt.json) opt.colour = false;
    int status = c->run();
    clear_spare();
    for (int i = 0; i < 2; i++) {
        free(piece_bytes[i]);
        free(piece_values[i]);
    }
    return finish(status);
}
