/* bench.c: how fast ckpt.h is beside what the machine can do and beside torch, in one run.

       cc -O2 -o bench tools/bench.c -lpthread -lm && ./bench [--quick] [--only G4,G7] [--rounds N] [--dir DIR] [--json]
       (with -DBENCH_NET -lcurl -lcrypto also the network's goals, of bench_net.h, which need what bench.sh builds beside it)
       sh tools/bench.sh [the same flags]
   G21 (bench_lab.h) measures S3 and SFTP over a round trip of 20 ms beside rclone: root only, on a link that it makes and takes away.

   Rules: own code and peers take turns within a round, on the same file system; what is reported are medians and ratios of
   medians, never times alone. Before each timed piece memory is pre-warmed: a virtual machine gives freed memory back to its
   host, and whoever comes first pays for getting it again. What was saved is read back and compared. A peer that is not
   installed is left out and said so. Without --quick the workloads are 1 and 4 GiB; with it 256 MiB.
*/
#define _GNU_SOURCE
#include <stdlib.h>
#if !defined(BENCH_NET) && !defined(CKPT_NO_REMOTE)
#define CKPT_NO_REMOTE
#endif
#include <errno.h>
#include <pthread.h>

// Threads that the library has at one time at most, the caller's among them; 0: no limit. For goals that compare with the same number.
static int threads_most, threads_live = 1;

typedef struct thread_start { void *(*fn)(void *); void *arg; } thread_start;
static void *thread_main(void *arg) {
    thread_start s = *(thread_start *)arg;
    free(arg);
    void *result = s.fn(s.arg);
    __atomic_sub_fetch(&threads_live, 1, __ATOMIC_SEQ_CST);
    return result;
}

static int thread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    int live = __atomic_add_fetch(&threads_live, 1, __ATOMIC_SEQ_CST), why = EAGAIN;
    thread_start *s = threads_most > 0 && live > threads_most ? NULL : (thread_start *)malloc(sizeof *s);
    if (s != NULL) {
        s->fn = fn;
        s->arg = arg;
        why = pthread_create(id, attr, thread_main, s);
    }
    if (why == 0) return 0;
    __atomic_sub_fetch(&threads_live, 1, __ATOMIC_SEQ_CST);
    free(s);
    return why;
}

#define pthread_create thread_create
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#undef pthread_create
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static bool        quick, as_json;
static int         rounds_asked;
static const char *only;
static char        dir[3000];
static int         missed_count, bare_count;

static void die(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, ckpt_last_error()[0] != 0 ? ckpt_last_error() : strerror(errno));
    exit(2);
}

static void must(ckpt_err e, const char *what) {
    if (e != CKPT_OK) die(what);
}

static const char *in_dir(const char *name) {
    static char paths[8][4096];
    static int  next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static double now(void) {
    return ckpt__os_now();
}

static double cpu_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + 1e-6 * (double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_sec + 1e-6 * (double)u.ru_stime.tv_usec;
}

//-- samples and the table ------------------------------------------------------------

typedef struct samples { double v[256]; int n; } samples;

static void add(samples *s, double v) {
    if (s->n < 256) s->v[s->n++] = v;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const samples *s) {
    samples t = *s;
    if (t.n == 0) return NAN;
    qsort(t.v, (size_t)t.n, sizeof t.v[0], by_value);
    return t.n % 2 != 0 ? t.v[t.n / 2] : (t.v[t.n / 2 - 1] + t.v[t.n / 2]) / 2;
}

static double spread(const samples *s) {
    samples t = *s;
    qsort(t.v, (size_t)t.n, sizeof t.v[0], by_value);
    return t.n == 0 ? NAN : t.v[t.n - 1] / t.v[0];
}

static bool json_first = true;

static void print_row(const char *goal, const char *what, const char *measured, const char *target, const char *verdict) {
    if (as_json) {
        printf("%s\n  {\"goal\": \"%s\", \"what\": \"%s\", \"measured\": \"%s\", \"target\": \"%s\", \"verdict\": \"%s\"}", json_first ? "" : ",",
               goal, what, measured, target, verdict);
        json_first = false;
    } else {
        printf("%-4s %-58s %-34s %-22s %s\n", goal, what, measured, target, verdict);
    }
    fflush(stdout);
}

// What a bare loop, which does nothing but move the bytes, reaches in the measure of the next row, where it is measured beside it:
// a goal that it misses too is this machine's. NaN: not measured.
static double bare_reaches = NAN;

// One line of the table: `value` must be at most (or at least) `limit`. `detail` says what it is made of.
static void row(const char *goal, const char *what, const char *detail, double value, bool at_most, double limit, const char *unit) {
    char measured[128], target[64], verdict[64];
    bool met = at_most ? value <= limit : value >= limit;
    bool bare_misses = at_most ? bare_reaches > limit : bare_reaches < limit;
    snprintf(verdict, sizeof verdict, met ? "met" : bare_misses ? "MISSED, as the bare loop (%.3g)" : "MISSED", bare_reaches);
    bare_reaches = NAN;
    if (isnan(value)) {
        print_row(goal, what, "-", "-", "skipped: no peer");
        return;
    }
    snprintf(measured, sizeof measured, "%.3g%s%s%s%s", value, unit, detail[0] != 0 ? " (" : "", detail, detail[0] != 0 ? ")" : "");
    snprintf(target, sizeof target, "%s %.3g%s", at_most ? "at most" : "at least", limit, unit);
    print_row(goal, what, measured, target, verdict);
    missed_count += !met;
    bare_count += !met && bare_misses;
}

static void info(const char *goal, const char *what, const char *fmt, ...) CKPT__PRINTF(3, 4);
static void info(const char *goal, const char *what, const char *fmt, ...) {
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_row(goal, what, text, "", "info");
}

// Text, until eight more have been made.
static const char *printed(const char *fmt, ...) CKPT__PRINTF(1, 2);
static const char *printed(const char *fmt, ...) {
    static char text[8][4500];
    static int  next;
    char *p = text[next++ % 8];
    va_list args;
    va_start(args, fmt);
    vsnprintf(p, sizeof text[0], fmt, args);
    va_end(args);
    return p;
}

static bool wanted(const char *goal) {
    if (only == NULL) return true;
    size_t n = strlen(goal);
    for (const char *p = only; p != NULL && *p != 0; p = strchr(p, ',') != NULL ? strchr(p, ',') + 1 : NULL) {
        if (strncmp(p, goal, n) == 0 && (p[n] == 0 || p[n] == ',')) return true;
    }
    return false;
}

static int rounds(int full) {
    return rounds_asked > 0 ? rounds_asked : quick ? 3 : full;
}

//-- memory ---------------------------------------------------------------------------

static char *block(size_t size, bool huge) {
    size_t unit = 2 * MIB;
    char *p = (char *)mmap(NULL, size + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("memory");
    p = (char *)(((uintptr_t)p + unit - 1) & ~(uintptr_t)(unit - 1));
    madvise(p, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(p, 0, size);
    return p;
}

static void unblock(char *p, size_t size) {
    munmap(p, size);
}

// Touches 1.2 times the bytes that the next piece will need, in huge and in small pages, and gives them back.
static void prewarm(size_t size) {
    size += size / 5;
    for (int huge = 0; huge < 2; huge++) {
        char *p = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return;
        madvise(p, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        for (size_t i = 0; i < size; i += 4096) p[i] = 1;
        munmap(p, size);
    }
}

// Reads a byte of each page: as after a training step the processor has been there. The host takes pages out of its tables that only
// a disk has read for some time (another program's turn is enough), and whoever reads them next would pay for that.
static void step_on(const char *p, size_t size) {
    size_t sum = 0;
    for (size_t i = 0; i < size; i += 4096) sum += (size_t)((const volatile char *)p)[i];
    (void)sum;
}

typedef struct slice { char *dst; const char *src; size_t size; } slice;
static void copy_main(void *ctx, int worker) {
    slice *s = (slice *)ctx + worker;
    memcpy(s->dst, s->src, s->size);
}

static double memcpy_2(char *dst, const char *src, size_t size) {
    slice s[2] = { { dst, src, size / 2 }, { dst + size / 2, src + size / 2, size - size / 2 } };
    double t = now();
    ckpt__engine_parallel(2, copy_main, s);
    return now() - t;
}

//-- workloads ------------------------------------------------------------------------

typedef struct workload {
    char      *mem;
    size_t     bytes, each, span;       // span: room of all tensors, with their distance
    int        count;
    ckpt_state st;
} workload;

static void bind_all(workload *w, char *mem, ckpt_state *st, size_t distance, size_t shift) {
    char name[64];
    memset(st, 0, sizeof *st);
    for (int i = 0; i < w->count; i++) {
        snprintf(name, sizeof name, "state/model/w%06d", i);
        ckpt_bind_f32(st, name, (float *)(void *)(mem + (size_t)i * distance + shift), (int64_t)(w->each / 4));
    }
}

static void fill(char *mem, size_t size) {
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint64_t y = (x & 0x807fffff807fffffu) | 0x3f0000003f000000u;      // floats of about one
        memcpy(mem + i, &y, 8);
    }
}

// `shift`: where a tensor begins within a page; 0 for memory that can be written directly.
static void make(workload *w, int count, size_t each, size_t shift, bool huge) {
    size_t distance = shift > 0 ? each + 4096 : each;
    memset(w, 0, sizeof *w);
    w->count = count;
    w->each = each;
    w->bytes = (size_t)count * each;
    w->span = (size_t)count * distance + 4096;
    w->mem = block(w->span, huge);
    fill(w->mem, w->span);
    bind_all(w, w->mem, &w->st, distance, shift);
}

static void unmake(workload *w) {
    ckpt_state_free(&w->st);
    unblock(w->mem, w->span);
}

// Loads a file into memory like the workload's own and compares every byte.
static void verify(workload *w, const char *path, char *back) {
    workload b = *w;
    size_t distance = (w->span - 4096) / (size_t)w->count, shift = (uintptr_t)w->st.items[0].tensor.data & 4095;
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    bind_all(w, back, &b.st, distance, shift);
    d.load_path = path;
    d.state = &b.st;
    must(ckpt_load(&d, NULL), "loading what was saved");
    for (int i = 0; i < w->count; i++) {
        if (memcmp(b.st.items[i].tensor.data, w->st.items[i].tensor.data, w->each) != 0) {
            fprintf(stderr, "bench: %s: tensor %d differs from what was saved\n", path, i);
            exit(3);
        }
    }
    ckpt_state_free(&b.st);
}

static int      small_count(void) { return quick ? 4 : 16; }
static int      large_count(void) { return quick ? 4 : 64; }
static void     make_small(workload *w) { make(w, small_count(), 64 * MIB, 0, true); }
static void     make_large(workload *w) { make(w, large_count(), 64 * MIB, 0, true); }

//-- python ---------------------------------------------------------------------------

static const char python_text[] =
    "import sys, os, time, shutil\n"
    "import torch, numpy\n"
    "torch.set_num_threads(2)\n"
    "st = {}\n"
    "def sync(p):\n"
    "    fd = os.open(p, os.O_RDONLY); os.fsync(fd); os.close(fd)\n"
    "print('ready torch', torch.__version__, flush=True)\n"
    "for line in sys.stdin:\n"
    "    a = line.split()\n"
    "    t = time.perf_counter()\n"
    "    if a[0] == 'make':\n"
    "        st = {'state': {'model': {'w%06d' % i: torch.rand(int(a[2]) // 4) for i in range(int(a[1]))}}}\n"
    "    elif a[0] == 'drop': st = {}\n"
    "    elif a[0] == 'save': torch.save(st, a[1])\n"
    "    elif a[0] == 'savesync':\n"
    "        torch.save(st, a[1]); sync(a[1])\n"
    "    elif a[0] == 'composer':\n"
    "        torch.save(st, a[1]); shutil.copy2(a[1], a[1] + '.staged')\n"
    "    elif a[0] == 'load':\n"
    "        x = torch.load(a[1]); t = time.perf_counter() - t; del x; print('ok', t, flush=True); continue\n"
    "    elif a[0] == 'equal':\n"
    "        x = torch.load(a[1])['state']['model']; y = torch.load(a[2])['state']['model']\n"
    "        print('ok', 1 if list(x) == list(y) and all(torch.equal(x[k], y[k]) for k in x) else 0, flush=True); continue\n"
    "    print('ok', time.perf_counter() - t, flush=True)\n";

static FILE *python_in, *python_out;
static pid_t python_pid;

static bool python_start(void) {
    int to[2], from[2];
    char line[256];
    if (python_in != NULL) return true;
    if (python_pid != 0 || pipe(to) != 0 || pipe(from) != 0) return false;
    python_pid = fork();
    if (python_pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        execlp("/usr/bin/python3", "python3", "-u", "-c", python_text, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    python_in = fdopen(to[1], "w");
    python_out = fdopen(from[0], "r");
    signal(SIGPIPE, SIG_IGN);
    if (fgets(line, sizeof line, python_out) == NULL || strncmp(line, "ready", 5) != 0) {
        fprintf(stderr, "bench: python3 with torch and numpy is not here: its rows are left out (apt install python3-torch)\n");
        fclose(python_in);
        python_in = NULL;
        return false;
    }
    line[strcspn(line, "\n")] = 0;
    fprintf(stderr, "bench: peer %s\n", line + 6);
    return true;
}

// Runs a command in the python child; what it took there, NaN when there is no python.
static double python(const char *fmt, ...) CKPT__PRINTF(1, 2);
static double python(const char *fmt, ...) {
    char line[256];
    double t = NAN;
    if (!python_start()) return NAN;
    va_list args;
    va_start(args, fmt);
    vfprintf(python_in, fmt, args);
    va_end(args);
    fputc('\n', python_in);
    fflush(python_in);
    if (fgets(line, sizeof line, python_out) == NULL || sscanf(line, "ok %lf", &t) != 1) {
        fprintf(stderr, "bench: python failed: %s", line);
        return NAN;
    }
    return t;
}

//-- peers in C -----------------------------------------------------------------------

static void sync_dir(void) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fsync(fd) != 0) die("fsync of the folder");
    close(fd);
}

// The least a durable save can do: direct writes of 8 MiB, fsync, rename, fsync of the folder.
static double peer_direct(const workload *w, const char *path) {
    const char *temp = in_dir("peer.tmp");
    double t = now();
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0666);
    if (fd < 0) return NAN;
    for (size_t i = 0; i < w->bytes; i += 8 * MIB) {
        if (pwrite(fd, w->mem + i, 8 * MIB, (off_t)i) != (ssize_t)(8 * MIB)) die("pwrite");
    }
    if (fsync(fd) != 0 || close(fd) != 0 || rename(temp, path) != 0) die("peer");
    sync_dir();
    return now() - t;
}

static double peer_buffered(const workload *w, const char *path) {
    double t = now();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    (void)posix_fallocate(fd, 0, (off_t)w->bytes);
    for (size_t i = 0; i < w->bytes; i += 64 * MIB) {
        if (write(fd, w->mem + i, 64 * MIB) != (ssize_t)(64 * MIB)) die("write");
    }
    t = now() - t;
    close(fd);
    return t;
}

typedef struct reading { int fd; char *dst; size_t size, piece, next; } reading;
static void reading_main(void *ctx, int worker) {
    reading *r = (reading *)ctx;
    (void)worker;
    for (;;) {
        size_t at = __atomic_fetch_add(&r->next, r->piece, __ATOMIC_SEQ_CST);
        if (at >= r->size) return;
        size_t n = r->size - at < r->piece ? r->size - at : r->piece;
        if (pread(r->fd, r->dst + at, n, (off_t)at) < 0) die("pread");
    }
}

static double peer_read(const char *path, char *dst, size_t size, int threads, size_t piece, bool direct) {
    reading r = { open(path, O_RDONLY | (direct ? O_DIRECT : 0)), dst, size, piece, 0 };
    if (r.fd < 0) return NAN;
    double t = now();
    ckpt__engine_parallel(threads, reading_main, &r);
    t = now() - t;
    close(r.fd);
    return t;
}

// Reads a file once, so that it is in the page cache.
static void warm_cache(const char *path) {
    char *p = (char *)malloc(4 * MIB);
    int fd = open(path, O_RDONLY);
    while (fd >= 0 && p != NULL && read(fd, p, 4 * MIB) > 0) continue;
    if (fd >= 0) close(fd);
    free(p);
}

static bool have(const char *tool) {
    return ckpt__os_which(tool);
}

static double shell(const char *fmt, ...) CKPT__PRINTF(1, 2);
static double shell(const char *fmt, ...) {
    char command[8192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    double t = now();
    int r = system(command);
    t = now() - t;
    return r == 0 ? t : NAN;
}

// fio's own start takes longer than a small save: what a 4 KiB run takes is taken off.
static double fio(size_t size, const char *engine) {
    static double start;
    const char *fixed = "--rw=write --direct=1 --fallocate=posix --end_fsync=1 --randrepeat=0 --numjobs=1 >/dev/null 2>&1";
    if (!have("fio")) return NAN;
    if (start == 0) {
        samples s = { { 0 }, 0 };
        for (int i = 0; i < 3; i++) add(&s, shell("fio --name=a --filename=%s --size=4k --bs=4k --ioengine=psync %s", in_dir("fio"), fixed));
        start = median(&s);
        unlink(in_dir("fio"));
    }
    double t = shell("fio --name=a --filename=%s --size=%zu %s %s", in_dir("fio"), size, engine, fixed) - start;
    unlink(in_dir("fio"));
    return t;
}

static double dd(size_t size) {
    double t = shell("dd if=/dev/zero of=%s bs=8M count=%zu oflag=direct conv=fsync 2>/dev/null", in_dir("dd"), size / (8 * MIB));
    unlink(in_dir("dd"));
    return t;
}

//-- goals: saving in the call --------------------------------------------------------

static double timed_save(workload *w, const char *path, double *cpu) {
    unlink(path);
    double c = cpu_now(), t = now();
    must(ckpt_save(path, &w->st, NULL), "ckpt_save");
    t = now() - t;
    if (cpu != NULL) *cpu = cpu_now() - c;
    return t;
}

// The bare writer again, while another thread sums the same memory once.
typedef struct bare_sums { const workload *w; const char *path; size_t sum; } bare_sums;

static void bare_sums_main(void *ctx, int worker) {
    bare_sums *b = (bare_sums *)ctx;
    if (worker == 0) {
        (void)peer_direct(b->w, b->path);
        return;
    }
    for (size_t i = 0; i < b->w->bytes; i += 8 * MIB) b->sum += ckpt__digest_crc32(0, b->w->mem + i, 8 * MIB);
}

static double peer_direct_summed(const workload *w, const char *path) {
    bare_sums b = { w, path, 0 };
    double t = now();
    ckpt__engine_parallel(2, bare_sums_main, &b);
    t = now() - t;
    unlink(path);
    return t;
}

static void goal_4(bool large) {
    workload w, u;
    samples own = { { 0 }, 0 }, cpu = own, unaligned = own, ucpu = own, direct = own, f1 = own, f2 = own, d1 = own, torch = own, torchsync = own, bare = own, beside = own;
    const char *size_name = large ? "large" : "small";
    if (large) make_large(&w);
    else make_small(&w);
    make(&u, w.count, 64 * MIB, 16, true);
    char *back = block(u.span, true);
    char path[4096], other[4096];
    snprintf(path, sizeof path, "%s/own.pt", dir);
    snprintf(other, sizeof other, "%s/peer.pt", dir);
    double gib = (double)w.bytes / (double)GIB, c;
    (void)python("make %d %zu", w.count, w.each);
    for (int r = 0; r < rounds(large ? 3 : 5); r++) {
        memset(w.mem, r + 1, 4096);
        for (int turn = 0; turn < 3; turn++) {          // who comes first, right behind torch, changes from round to round
            int who = (turn + r) % 3;
            workload *saved = who == 1 ? &u : &w;
            prewarm(w.bytes);
            (void)peer_direct(&w, in_dir("warm.pt"));       // untimed: the disk may still be busy with torch's
            unlink(in_dir("warm.pt"));
            step_on(saved->mem, saved->bytes);
            if (who == 2) {
                add(&direct, peer_direct(&w, other));
                unlink(other);
                continue;
            }
            add(who == 1 ? &unaligned : &own, timed_save(saved, path, &c));
            add(who == 1 ? &ucpu : &cpu, c / gib);
            verify(saved, path, back);
            unlink(path);
        }
        prewarm(w.bytes);
        step_on(w.mem, w.bytes);
        c = cpu_now();
        add(&beside, peer_direct_summed(&w, other));
        add(&bare, (cpu_now() - c) / gib);
        if (have("fio")) {
            prewarm(w.bytes);
            add(&f1, fio(w.bytes, "--ioengine=psync --bs=8M"));
            add(&f2, fio(w.bytes, "--ioengine=io_uring --bs=1M --iodepth=16"));
        }
        prewarm(w.bytes);
        add(&d1, dd(w.bytes));
        prewarm(w.bytes);
        add(&torch, python("save %s", other));
        unlink(other);
        prewarm(w.bytes);
        add(&torchsync, python("savesync %s", other));
        unlink(other);
    }
    (void)python("drop");
    double best = median(&direct), t = median(&own);
    if (f1.n > 0 && median(&f1) < best) best = median(&f1);
    if (f2.n > 0 && median(&f2) < best) best = median(&f2);
    if (d1.n > 0 && median(&d1) < best) best = median(&d1);
    info("G4", printed("%s, durable: GiB/s", size_name), "own %.2f, C loop %.2f, fio %.2f %.2f, dd %.2f", gib / t, gib / median(&direct),
         gib / median(&f1), gib / median(&f2), gib / median(&d1));
    bare_reaches = best / median(&beside);              // the bare writer while somebody sums what it writes
    row("G4", printed("%s: best direct writer's time / ckpt_save's", size_name), printed("%.2f / %.2f s", best, t), best / t, false, 0.95, "");
    bare_reaches = best / median(&torchsync);
    row("G4", printed("%s: ckpt_save / (torch.save + fsync)", size_name), printed("%.2f / %.2f s", t, median(&torchsync)), t / median(&torchsync), true,
        0.35, "");
    bare_reaches = best / median(&torch);
    row("G4", printed("%s: ckpt_save / torch.save", size_name), printed("%.2f / %.2f s", t, median(&torch)), t / median(&torch), true, 0.5, "");
    row("G4b", printed("%s: aligned / unaligned memory", size_name), printed("%.2f / %.2f s", t, median(&unaligned)), t / median(&unaligned), false, 0.93,
        "");
    row("G4b", printed("%s: CPU, unaligned", size_name), "", median(&ucpu), true, 0.15, " s/GiB");
    bare_reaches = median(&bare);
    row("G4c", printed("%s: CPU, aligned, checksums included", size_name), printed("a bare writer and a sum %.3f", median(&bare)), median(&cpu), true, 0.12,
        " s/GiB");
    unblock(back, u.span);
    unmake(&u);
    unmake(&w);
}

// A plan of the workload alone, for what has no public switch: without a sync, without checksums.
static double engine_only(const workload *w, const char *path, bool sums, bool direct, bool sync) {
    ckpt__plan p;
    ckpt__engine_job job;
    int fd;
    memset(&job, 0, sizeof job);
    job.no_direct = !direct;
    unlink(path);
    ckpt__plan_init(&p, NULL, NULL);
    for (int i = 0; i < w->count; i++) {
        int b = ckpt__plan_blob(&p, "w");
        ckpt__plan_data(&p, CKPT__SEG_DATA, w->st.items[i].tensor.data, w->each, b);
        if (!sums) p.segs[p.seg_count - 1].blob = -1;
    }
    must(ckpt__plan_finish(&p), "plan");
    must(ckpt__os_create(&fd, path), "create");
    double t = now();
    must(ckpt__engine_write(&p, fd, path, &job), "engine_write");
    if (sync) must(ckpt__os_sync(fd, path), "fsync");
    t = now() - t;
    must(ckpt__os_close(fd, path), "close");
    ckpt__plan_free(&p);
    unlink(path);
    return t;
}

static void goal_5(void) {
    workload w;
    samples own = { { 0 }, 0 }, peer = own, torch = own;
    const char *path = in_dir("g5");
    make_small(&w);
    double gib = (double)w.bytes / (double)GIB;
    (void)python("make %d %zu", w.count, w.each);
    for (int r = 0; r < rounds(5); r++) {
        prewarm(w.bytes);
        add(&own, engine_only(&w, path, true, false, false));
        prewarm(w.bytes);
        add(&peer, peer_buffered(&w, path));
        unlink(path);
        prewarm(w.bytes);
        add(&torch, python("save %s", path));
        unlink(path);
    }
    (void)python("drop");
    info("G5", "not durable, page cache: C write() / engine, spread of the peer", "%.2f (%.2f / %.2f GiB/s), spread %.1f", median(&peer) / median(&own),
         gib / median(&own), gib / median(&peer), spread(&peer));
    info("G5", "not durable: engine / torch.save", "%.2f", median(&own) / median(&torch));
    unmake(&w);
}

static void goal_6(void) {
    workload w;
    samples own = { { 0 }, 0 }, torch = own, load = own, tload = own, call = own;
    char path[4096], other[4096];
    int count = quick ? 20000 : 100000;
    snprintf(path, sizeof path, "%s/ws.pt", dir);
    snprintf(other, sizeof other, "%s/ws-torch.pt", dir);
    make(&w, count, 1024, 0, true);
    char *back = block(w.span, true);
    (void)python("make %d 1024", count);
    for (int r = 0; r < rounds(5); r++) {
        prewarm(2 * w.bytes);
        add(&own, timed_save(&w, path, NULL));
        verify(&w, path, back);
        prewarm(2 * w.bytes);
        add(&torch, python("save %s", other));
        ckpt_state st;
        bind_all(&w, back, &st, 1024, 0);
        ckpt_load_desc d;
        memset(&d, 0, sizeof d);
        d.load_path = path;
        d.state = &st;
        warm_cache(path);
        prewarm(2 * w.bytes);
        double t = now();
        must(ckpt_load(&d, NULL), "load");
        add(&load, now() - t);
        ckpt_state_free(&st);
        prewarm(2 * w.bytes);
        add(&tload, python("load %s", other));
        unlink(path);
        unlink(other);
    }
    ckpt_saver_desc sd;
    ckpt_saver *s;
    ckpt_timestamp t;
    memset(&sd, 0, sizeof sd);
    memset(&t, 0, sizeof t);
    sd.state = &w.st;
    sd.folder = in_dir("ws");
    sd.filename = "ba{batch}.pt";
    sd.num_checkpoints_to_keep = 1;
    sd.snapshot = CKPT_SNAPSHOT_LAZY;
    must(ckpt_saver_open(&s, &sd), "saver");
    for (int r = 0; r < rounds(5) + 1; r++) {
        ckpt_next_batch(&t, 1, 1, 0.1);
        double start = now();
        must(ckpt_saver_save(s, &t), "save");
        if (r > 0) add(&call, now() - start);
        must(ckpt_saver_fence(s), "fence");
        must(ckpt_saver_wait(s, 0), "wait");
    }
    must(ckpt_saver_close(s, 0), "close");
    (void)python("drop");
    double T = median(&torch);
    row("G6", printed("%d x 1 KiB: ckpt_save, durable / torch.save", count), printed("%.0f / %.0f ms", 1e3 * median(&own), 1e3 * T), median(&own) / T, true,
        0.06, "");
    row("G6", printed("%d x 1 KiB: LAZY call / torch.save", count), printed("%.1f ms", 1e3 * median(&call)), median(&call) / T, true, 0.015, "");
    row("G6b", printed("%d x 1 KiB: ckpt_load, verified / torch.load", count), printed("%.0f / %.0f ms", 1e3 * median(&load), 1e3 * median(&tload)),
        median(&load) / median(&tload), true, 0.05, "");
    unblock(back, w.span);
    unmake(&w);
}

static void goal_8(void) {
    workload w;
    samples with = { { 0 }, 0 }, without = with, ratio = with, bare = with;
    const char *path = in_dir("g8");
    make_small(&w);
    for (int r = 0; r < rounds(7) + 2; r++) {
        double a = engine_only(&w, path, r % 2 == 0, true, true), b = engine_only(&w, path, r % 2 != 0, true, true);
        add(&with, r % 2 == 0 ? a : b);
        add(&without, r % 2 == 0 ? b : a);
        add(&ratio, r % 2 == 0 ? a / b : b / a);
        double x = r % 2 == 0 ? peer_direct_summed(&w, path) : peer_direct(&w, path), y = r % 2 != 0 ? peer_direct_summed(&w, path) : peer_direct(&w, path);
        unlink(path);
        add(&bare, r % 2 == 0 ? x / y : y / x);
    }
    bare_reaches = median(&bare);
    row("G8", "durable write with / without CRC-32 (paired)", printed("%.3f / %.3f s", median(&with), median(&without)), median(&ratio), true, 1.02, "");
    unmake(&w);
}

//-- goals: loading -------------------------------------------------------------------

static double timed_load(workload *w, char *back, const char *path, bool no_verify) {
    ckpt_state st;
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    bind_all(w, back, &st, w->each, 0);
    d.load_path = path;
    d.state = &st;
    d.no_verify = no_verify;
    double t = now();
    must(ckpt_load(&d, NULL), "ckpt_load");
    t = now() - t;
    ckpt_state_free(&st);
    if (memcmp(back, w->mem, w->bytes) != 0) {
        fprintf(stderr, "bench: what was loaded differs from what was saved\n");
        exit(3);
    }
    return t;
}

static void drop_cache(const char *path) {
    int fd = open(path, O_RDONLY);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void goal_7(void) {
    workload w;
    samples own = { { 0 }, 0 }, checked = own, pread2 = own, torch = own, cold = own, cold_checked = own, direct4 = own, torch_cold = own, rc = own, rw = own;
    char path[4096], other[4096];
    snprintf(path, sizeof path, "%s/g7.pt", dir);
    snprintf(other, sizeof other, "%s/g7-torch.pt", dir);
    make_small(&w);
    char *back = block(w.bytes + 16 * MIB, true);
    double gib = (double)w.bytes / (double)GIB;
    (void)timed_save(&w, path, NULL);
    (void)python("make %d %zu", w.count, w.each);
    (void)python("savesync %s", other);
    (void)python("drop");
    for (int r = 0; r < rounds(5); r++) {
        prewarm(w.bytes);
        warm_cache(path);
        warm_cache(path);
        add(&pread2, peer_read(path, back, w.bytes, 2, 4 * MIB, false));
        double a = timed_load(&w, back, path, true), b = timed_load(&w, back, path, false);
        add(&own, a);
        add(&checked, b);
        add(&rw, b / a);
        prewarm(w.bytes);
        add(&torch, python("load %s", other));
        double x = 0, y = 0;
        for (int turn = 0; turn < 3; turn++) {          // who comes first, right behind torch, changes from round to round
            drop_cache(path);
            prewarm(w.bytes);
            switch ((turn + r) % 3) {
                case 0: x = timed_load(&w, back, path, true); break;
                case 1: y = timed_load(&w, back, path, false); break;
                default: add(&direct4, peer_read(path, back, w.bytes, 4, 8 * MIB, true));
            }
        }
        add(&cold, x);
        add(&cold_checked, y);
        add(&rc, y / x);
        drop_cache(other);
        prewarm(w.bytes);
        add(&torch_cold, python("load %s", other));
    }
    row("G7", "page cache: 2-thread pread / ckpt_load", printed("%.1f / %.1f GiB/s own", gib / median(&pread2), gib / median(&own)),
        median(&pread2) / median(&own), false, 0.9, "");
    bare_reaches = median(&pread2) / median(&torch);
    row("G7", "page cache: ckpt_load / torch.load", printed("%.3f / %.3f s", median(&own), median(&torch)), median(&own) / median(&torch), true, 0.15, "");
    info("G7", "page cache: ckpt_load, verified / torch.load", "%.3g (%.3f s; 2-thread pread %.3g)", median(&checked) / median(&torch), median(&checked),
         median(&pread2) / median(&torch));
    row("G7b", "cold: 4-thread direct 8 MiB reads / ckpt_load", printed("%.2f / %.2f GiB/s own", gib / median(&direct4), gib / median(&cold)),
        median(&direct4) / median(&cold), false, 0.95, "");
    bare_reaches = median(&direct4) / median(&torch_cold);
    row("G7b", "cold: ckpt_load / torch.load", printed("%.2f / %.2f s", median(&cold), median(&torch_cold)), median(&cold) / median(&torch_cold), true, 0.6, "");
    row("G7d", "page cache: verified / not verified (paired)", printed("%.3f / %.3f s", median(&checked), median(&own)), median(&rw), true, 1.2, "");
    row("G7d", "cold: verified / not verified (paired)", printed("%.2f / %.2f s", median(&cold_checked), median(&cold)), median(&rc), true, 1.05, "");
    unlink(path);
    unlink(other);
    unblock(back, w.bytes + 16 * MIB);
    unmake(&w);
}

//-- goals: snapshots -----------------------------------------------------------------

static ckpt_saver *open_saver(workload *w, const char *name, ckpt_snapshot mode, size_t staging) {
    ckpt_saver_desc d;
    ckpt_saver *s;
    memset(&d, 0, sizeof d);
    d.state = &w->st;
    d.folder = in_dir(name);
    d.filename = "ba{batch}.pt";
    d.num_checkpoints_to_keep = 1;
    d.overwrite = true;
    d.snapshot = mode;
    d.max_staging_bytes = staging;
    must(ckpt_saver_open(&s, &d), "ckpt_saver_open");
    return s;
}

static void close_saver(ckpt_saver *s) {
    must(ckpt_saver_wait(s, 0), "wait");
    must(ckpt_saver_close(s, 0), "close");
}

static const char *newest(const ckpt_saver *s) {
    const char *const *paths;
    int n = ckpt_saver_checkpoints(s, &paths);
    if (n < 1) die("no checkpoint");
    return paths[n - 1];
}

// The time to read a byte of each of 64 pages that were written before, by nobody since: microseconds, but where the machine is a
// virtual one whose host has taken them out of its tables. A call that touches as many pages costs that much more there.
static double touched(void) {
    enum { PAGES = 64, PAGE = 4096 };
    static volatile char *page[PAGES];
    int sum = 0;
    if (page[0] == NULL) {
        for (int i = 0; i < PAGES; i++) {
            page[i] = (volatile char *)malloc(PAGE);
            if (page[i] == NULL) die("out of memory");
            for (int k = 0; k < PAGE; k++) page[i][k] = (char)(i + 1);
        }
    }
    double a = now();
    for (int i = 0; i < PAGES; i++) sum += page[i][PAGE / 2];
    double b = now();
    if (sum == 0) die("the pages have changed");
    return b - a;
}

static void goal_1(bool huge) {
    workload w;
    samples call = { { 0 }, 0 }, bare = call, fence = call, torch = call, composer = call;
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    make(&w, large_count(), 64 * MIB, 0, huge);
    (void)touched();
    char *back = block(w.span, true), other[4096];
    snprintf(other, sizeof other, "%s/g1-torch.pt", dir);
    ckpt_saver *s = open_saver(&w, "g1", CKPT_SNAPSHOT_LAZY, 0);
    if (huge) (void)python("make %d %zu", w.count, w.each);
    for (int r = 0; r < rounds(3) + 1; r++) {
        memset(w.mem, r + 1, 4096);
        ckpt_next_batch(&t, 1, 1, 0.1);
        prewarm(w.bytes / 4);
        double first = touched();
        double a = now();
        must(ckpt_saver_save(s, &t), "save");
        double b = now();
        must(ckpt_saver_fence(s), "fence");
        double c = now();
        must(ckpt_saver_wait(s, 0), "wait");
        verify(&w, newest(s), back);
        if (r > 0) add(&call, b - a);
        if (r > 0) add(&bare, first);
        if (r > 0) add(&fence, c - b);
        if (r == 0 || !huge) continue;
        prewarm(w.bytes);
        add(&torch, python("save %s", other));
        unlink(other);
        prewarm(w.bytes);
        add(&composer, python("composer %s", other));
        unlink(other);
        unlink(printed("%s.staged", other));
    }
    close_saver(s);
    (void)python("drop");
    const char *pages = huge ? "huge pages" : "4K pages";
    row(huge ? "G1" : "G1b", printed("LAZY call, %s, 2nd and later", pages), "", 1e3 * median(&call), true, 1, " ms");
    info(huge ? "G1" : "G1b", "reading a byte of 64 own pages beside it", "%.3f ms", 1e3 * median(&bare));
    info(huge ? "G1" : "G1b", printed("LAZY fence at once after the call, %s", pages), "%.0f ms", 1e3 * median(&fence));
    if (huge && torch.n > 0) {
        row("G1", "LAZY call / torch.save", printed("%.3f ms / %.2f s", 1e3 * median(&call), median(&torch)), median(&call) / median(&torch), true, 2e-4, "");
        row("G1", "LAZY call / Composer's torch.save + copy2", printed("%.2f s", median(&composer)), median(&call) / median(&composer), true, 1e-4, "");
    }
    unblock(back, w.span);
    unmake(&w);
}

static void goal_2(void) {
    workload w;
    samples call = { { 0 }, 0 }, copy = call, ratio = call;
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    make_large(&w);
    char *back = block(w.span, true);
    ckpt_saver *s = open_saver(&w, "g2", CKPT_SNAPSHOT_COPY, 0);
    for (int r = 0; r < rounds(5) + 1; r++) {
        memset(w.mem, r + 1, 4096);
        ckpt_next_batch(&t, 1, 1, 0.1);
        double m = memcpy_2(back, w.mem, w.bytes), a = now();
        must(ckpt_saver_save(s, &t), "save");
        a = now() - a;
        must(ckpt_saver_wait(s, 0), "wait");
        verify(&w, newest(s), back);
        if (r == 0) continue;
        m = (m + memcpy_2(back, w.mem, w.bytes)) / 2;
        add(&call, a);
        add(&copy, m);
        add(&ratio, a / m);
    }
    close_saver(s);
    double gib = (double)w.bytes / (double)GIB;
    row("G2", "COPY call, checksums included / 2-thread memcpy (paired)", printed("%.1f / %.1f GiB/s", gib / median(&call), gib / median(&copy)), median(&ratio), true,
        1.10, "");
    unblock(back, w.span);
    unmake(&w);
}

// A training loop without arithmetic: a phase that reads all weights, then one that rewrites them all.
typedef struct trainer { float *w; size_t n; int threads, passes; double sum[2]; } trainer;
static void trainer_read(void *ctx, int worker) {
    trainer *t = (trainer *)ctx;
    size_t part = t->n / (size_t)t->threads;
    float *p = t->w + part * (size_t)worker, a[16] = { 0 };
    for (int pass = 0; pass < t->passes; pass++) {
        for (size_t i = 0; i + 16 <= part; i += 16) {
            for (int k = 0; k < 16; k++) a[k] += p[i + (size_t)k];
        }
    }
    for (int k = 0; k < 16; k++) t->sum[worker] += (double)a[k];
}
static void trainer_write(void *ctx, int worker) {
    trainer *t = (trainer *)ctx;
    size_t part = t->n / (size_t)t->threads;
    float *p = t->w + part * (size_t)worker;
    for (size_t i = 0; i < part; i++) p[i] += 1.0f;
}

// A bare loop of direct writes, with nothing of ours: what a training thread loses to the machine itself, and its memory alone.
typedef struct bare_write { workload *w; const char *path; pthread_t id; bool started; } bare_write;
static void *bare_write_main(void *arg) {
    bare_write *b = (bare_write *)arg;
    (void)peer_direct(b->w, b->path);
    return NULL;
}
static void bare_write_wait(bare_write *b) {
    if (b->started) pthread_join(b->id, NULL);
    b->started = false;
}
static void bare_write_begin(bare_write *b) {
    bare_write_wait(b);
    b->started = pthread_create(&b->id, NULL, bare_write_main, b) == 0;
}

// Each `every` steps a saver saves, or the bare loop writes; both NULL: training alone.
static double train(trainer *t, ckpt_saver *s, ckpt_timestamp *at, bare_write *b, int steps, int every, samples *call) {
    double start = now();
    for (int i = 0; i < steps; i++) {
        if (b != NULL && i % every == 0) bare_write_begin(b);
        if (s != NULL && i % every == 0) {
            ckpt_next_batch(at, 1, 1, 0.1);
            double c = now();
            must(ckpt_saver_save(s, at), "save");
            add(call, now() - c);
        }
        ckpt__engine_parallel(t->threads, trainer_read, t);
        if (s != NULL) must(ckpt_saver_fence(s), "fence");
        ckpt__engine_parallel(t->threads, trainer_write, t);
    }
    return now() - start;
}

static double train_beside(trainer *t, workload *other, int steps, int every) {
    bare_write b;
    memset(&b, 0, sizeof b);
    b.w = other;
    b.path = in_dir("beside");
    double took = train(t, NULL, NULL, &b, steps, every, NULL);
    bare_write_wait(&b);
    unlink(b.path);
    return took;
}

static void goal_3(int threads) {
    workload w, other;
    trainer t;
    samples loss = { { 0 }, 0 }, call = loss, bare = loss;
    ckpt_timestamp at;
    memset(&at, 0, sizeof at);
    memset(&t, 0, sizeof t);
    make_large(&w);
    char *back = block(w.span, true);
    other = w;                              // the same bytes at another place
    other.mem = back;
    t.w = (float *)(void *)w.mem;
    t.n = w.bytes / 4;
    t.threads = threads;
    for (size_t i = 0; i < t.n; i++) t.w[i] = (float)(i % 1000);
    double gib = (double)w.bytes / (double)GIB, copy = memcpy_2(back, w.mem, w.bytes), read = now();
    t.passes = 1;
    ckpt__engine_parallel(threads, trainer_read, &t);
    read = now() - read;
    t.passes = (int)ceil(2.5 * copy / read);
    ckpt_saver *s = open_saver(&w, "g3", CKPT_SNAPSHOT_LAZY, 0);
    (void)train(&t, s, &at, NULL, 2, 1, &call);
    must(ckpt_saver_wait(s, 0), "wait");
    call.n = 0;
    for (int r = 0; r < rounds(5); r++) {
        double a = r % 2 != 0 ? train(&t, NULL, &at, NULL, 12, 4, &call) : 0;
        double with = train(&t, s, &at, NULL, 12, 4, &call);
        must(ckpt_saver_wait(s, 0), "wait");
        double without = r % 2 != 0 ? a : train(&t, NULL, &at, NULL, 12, 4, &call);
        add(&loss, 1e3 * (with - without) / 3 / gib);
        add(&bare, 1e3 * (train_beside(&t, &other, 12, 4) - without) / 3 / gib);
    }
    ckpt_next_batch(&at, 1, 1, 0.1);
    must(ckpt_saver_save(s, &at), "save");
    must(ckpt_saver_wait(s, 0), "wait");
    verify(&w, newest(s), back);
    row(threads == 1 ? "G3" : "G3b", printed("training lost per LAZY checkpoint, %d trainer thread%s", threads, threads == 1 ? "" : "s"),
        printed("call %.2f ms", 1e3 * median(&call)), median(&loss), true, threads == 1 ? 40 : 90, " ms/GiB");
    info(threads == 1 ? "G3" : "G3b", "lost beside a bare loop of direct writes, which copies nothing", "%.3g ms/GiB", median(&bare));
    close_saver(s);
    unblock(back, w.span);
    unmake(&w);
}

static void goal_3c(void) {
    workload w;
    trainer t;
    samples ratio = { { 0 }, 0 }, cost = ratio;
    ckpt_timestamp at;
    memset(&at, 0, sizeof at);
    memset(&t, 0, sizeof t);
    make_large(&w);
    char *back = block(w.span, true);
    t.w = (float *)(void *)w.mem;
    t.n = w.bytes / 4;
    t.threads = 2;
    ckpt_saver *s = open_saver(&w, "g3c", CKPT_SNAPSHOT_LAZY, 0);
    for (int r = 0; r < rounds(5) + 1; r++) {
        double copy = memcpy_2(back, w.mem, w.bytes), a = now();
        ckpt__engine_parallel(2, trainer_write, &t);
        double plain = now() - a;
        ckpt_next_batch(&at, 1, 1, 0.1);
        a = now();
        must(ckpt_saver_save(s, &at), "save");
        must(ckpt_saver_fence(s), "fence");
        double blocked = now() - a;
        memcpy(back, w.mem, w.each);
        a = now();
        ckpt__engine_parallel(2, trainer_write, &t);
        double extra = now() - a - plain;
        must(ckpt_saver_wait(s, 0), "wait");
        if (r == 0) continue;
        add(&cost, blocked + extra);
        add(&ratio, (blocked + extra) / copy);
    }
    row("G3c", "everything rewritten at once: loss / 2-thread memcpy (paired)", printed("%.0f ms", 1e3 * median(&cost)), median(&ratio), true, 1.25, "");
    close_saver(s);
    unblock(back, w.span);
    unmake(&w);
}

//-- goals: memory, small things ------------------------------------------------------

static long status_kib(const char *key) {
    char line[256];
    long v = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) v = atol(line + strlen(key) + 1);
    }
    if (f != NULL) fclose(f);
    return v;
}

static long reset_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f != NULL) {
        fputs("5", f);
        fclose(f);
    }
    return status_kib("VmRSS:");
}

// In a child of its own, since the peak is the process's: prints KiB above the state for the first save and for the second.
static int peak_child(const char *mode) {
    workload w;
    ckpt_timestamp t;
    ckpt_saver *s = NULL;
    memset(&t, 0, sizeof t);
    bool unaligned = strcmp(mode, "none-unaligned") == 0;
    make(&w, quick ? 4 : 16, 64 * MIB, unaligned ? 16 : 0, true);
    long first = reset_peak(), second = 0;
    char path[4096];
    snprintf(path, sizeof path, "%s/peak.pt", dir);
    if (strncmp(mode, "none", 4) != 0)
        s = open_saver(&w, mode, strcmp(mode, "copy") == 0 ? CKPT_SNAPSHOT_COPY : CKPT_SNAPSHOT_LAZY, strcmp(mode, "straight") == 0 ? 1 : 0);
    for (int i = 0; i < 2; i++) {
        if (i == 1) second = reset_peak();
        ckpt_next_batch(&t, 1, 1, 0.1);
        unlink(path);
        if (s == NULL) must(ckpt_save(path, &w.st, NULL), "save");
        else must(ckpt_saver_save(s, &t), "save");
        if (s != NULL) must(ckpt_saver_wait(s, 0), "wait");
        long peak = status_kib("VmHWM:");
        if (i == 0) first = peak - first;
        else second = peak - second;
    }
    unlink(path);
    if (s != NULL) close_saver(s);
    printf("%ld %ld\n", first, second);
    return 0;
}

static void goal_12(const char *self) {
    static const char *const modes[][2] = { { "none", "NONE, aligned" }, { "none-unaligned", "NONE, unaligned" }, { "straight", "LAZY straight" },
                                            { "lazy", "LAZY with an image" }, { "copy", "COPY" } };
    for (int i = 0; i < 5; i++) {
        char command[8192];
        long first = 0, second = 0;
        snprintf(command, sizeof command, "'%s' %s --dir '%s' --peak %s", self, quick ? "--quick" : "", dir, modes[i][0]);
        FILE *f = popen(command, "r");
        if (f == NULL || fscanf(f, "%ld %ld", &first, &second) != 2) die("the child that measures memory");
        pclose(f);
        double state = i >= 3 ? (quick ? 256.0 : 1024.0) : 0;
        row("G12", printed("peak memory above the state, %s", modes[i][1]), state > 0 ? "one state taken off" : "", (double)first / 1024 - state, true, 40, " MiB");
        if (state > 0) row("G12", printed("new memory in the 2nd save, %s", modes[i][1]), "", (double)second / 1024, true, 40, " MiB");
    }
}

static void goal_13(void) {
    ckpt_state st;
    float data[256] = { 0 };
    char bytes[1024] = { 0 };
    samples own = { { 0 }, 0 }, peer = own;
    char path[4096], other[4096], temp[4096];
    snprintf(path, sizeof path, "%s/tiny.pt", dir);
    snprintf(other, sizeof other, "%s/tiny.raw", dir);
    snprintf(temp, sizeof temp, "%s/tiny.tmp", dir);
    memset(&st, 0, sizeof st);
    ckpt_bind_f32(&st, "state/model/w", data, 256);
    for (int i = 0; i < 110; i++) {
        double a = now();
        int fd = open(temp, O_RDWR | O_CREAT | O_EXCL, 0666);
        if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes || fsync(fd) != 0 || close(fd) != 0 || rename(temp, other) != 0) die("tiny");
        sync_dir();
        double b = now();
        data[0] = (float)i;
        must(ckpt_save(path, &st, NULL), "tiny save");
        double c = now();
        if (i >= 10) add(&peer, b - a);
        if (i >= 10) add(&own, c - b);
    }
    data[0] = -1;
    ckpt_load_desc d;
    memset(&d, 0, sizeof d);
    d.load_path = path;
    d.state = &st;
    must(ckpt_load(&d, NULL), "tiny load");
    if (data[0] != 109) die("tiny differs");
    row("G13", "1 KiB: ckpt_save / write, fsync, rename, fsync of folder", printed("%.0f / %.0f us", 1e6 * median(&own), 1e6 * median(&peer)),
        median(&own) / median(&peer), true, 1.3, "");
    ckpt_state_free(&st);
}

static void goal_16(void) {
    static const char *const tools[][3] = { { "zst", "zstd", "zstd -1 -q -T0 -c" }, { "lz4", "lz4", "lz4 -1 -q -c" }, { "gz", "pigz", "pigz -1 -n -c" } };
    workload w;
    char path[4096], out[4096], packed[4096];
    make(&w, 2, 64 * MIB, 0, true);
    snprintf(path, sizeof path, "%s/g16.pt", dir);
    snprintf(out, sizeof out, "%s/g16.out", dir);
    char *back = block(w.span, true);
    (void)timed_save(&w, path, NULL);
    warm_cache(path);
    for (int i = 0; i < 3; i++) {
        samples own = { { 0 }, 0 }, cli = own, gzip = own;
        if (!have(tools[i][1])) {
            print_row("G16", printed(".pt.%s", tools[i][0]), "-", "-", printed("skipped: no %s", tools[i][1]));
            continue;
        }
        snprintf(packed, sizeof packed, "%s/g16.pt.%s", dir, tools[i][0]);
        for (int r = 0; r < 3; r++) {
            add(&own, timed_save(&w, packed, NULL));
            if (r == 0) verify(&w, packed, back);
            unlink(packed);
            add(&cli, shell("cat %s | %s > %s && sync %s", path, tools[i][2], out, out));
            unlink(out);
            if (i == 2 && r == 0) add(&gzip, shell("cat %s | gzip -1 -c > %s && sync %s", path, out, out));
            unlink(out);
        }
        row("G16", printed(".pt.%s: cat | %s / ckpt_save", tools[i][0], tools[i][1]), printed("%.2f / %.2f s", median(&cli), median(&own)),
            median(&cli) / median(&own), false, 0.95, "");
        if (i == 2) row("G16", "gzip -1 / ckpt_save to .pt.gz", "", median(&gzip) / median(&own), false, 1.9, "");
    }
    unlink(path);
    unblock(back, w.span);
    unmake(&w);
}

static void goal_17(void) {
    workload w;
    samples call = { { 0 }, 0 };
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    make_small(&w);
    ckpt_saver *s = open_saver(&w, "g17", CKPT_SNAPSHOT_LAZY, 0);
    for (int r = 0; r < rounds(5) + 2; r++) {
        ckpt_next_batch(&t, 1, 1, 0.1);
        double a = now();
        must(ckpt_saver_save(s, &t), "save");
        if (r > 1) add(&call, now() - a);
        must(ckpt_saver_wait(s, 0), "wait");
        warm_cache(newest(s));      // so that there is something to free
    }
    const char *const *paths;
    if (ckpt_saver_checkpoints(s, &paths) != 1) die("retention did not keep one checkpoint");
    close_saver(s);
    row("G17", "LAZY call while each save deletes the one before", "", 1e3 * median(&call), true, 1, " ms");
    unmake(&w);
}

static void goal_idle(void) {
    ckpt_saver_desc d;
    ckpt_saver *s;
    ckpt_state st;
    ckpt_timestamp t;
    float x = 1;
    memset(&d, 0, sizeof d);
    memset(&st, 0, sizeof st);
    memset(&t, 0, sizeof t);
    ckpt_bind_f32(&st, "state/model/w", &x, 1);
    d.state = &st;
    d.folder = in_dir("idle");
    d.save_interval = "1000000000ba";
    must(ckpt_saver_open(&s, &d), "saver");
    samples each = { { 0 }, 0 };
    for (int r = 0; r < 9; r++) {
        const int calls = 200000;
        double a = now();
        for (int i = 0; i < calls; i++) {
            ckpt_next_batch(&t, 1, 1, 0.001);
            must(ckpt_saver_batch_end(s, &t), "batch_end");
        }
        add(&each, (now() - a) / calls);
    }
    must(ckpt_saver_close(s, 0), "close");
    ckpt_state_free(&st);
    row("-", "ckpt_saver_batch_end with nothing due", "", 1e9 * median(&each), true, 100, " ns");
}

#include "bench_ranks.h"
#ifdef BENCH_NET
#include "bench_net.h"
#include "bench_lab.h"
#endif

// Whatever becomes of this process, its files go: a child waits for its end, which it sees by a pipe that nobody writes to any more.
static void tidy_up_after(void) {
    int ends[2];
    char command[4000];
    snprintf(command, sizeof command, "rm -rf '%s' /dev/shm/ckpt-bench-%d-*", dir, (int)getpid());
    if (pipe(ends) != 0) die("a pipe");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid > 0) {
        close(ends[0]);
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        return;
    }
    char end;
    setsid();
    close(ends[1]);
    while (read(ends[0], &end, 1) < 0 && errno == EINTR) continue;
    _exit(system(command) != 0);
}

int main(int argc, char **argv) {
    const char *net_peak = NULL;
    const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp", *peak = NULL;
    bool given = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) quick = true;
        else if (strcmp(argv[i], "--json") == 0) as_json = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds_asked = atoi(argv[++i]);
        else if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc) base = argv[++i], given = true;
        else if (strcmp(argv[i], "--peak") == 0 && i + 1 < argc) peak = argv[++i];
        else if (strcmp(argv[i], "--net-peak") == 0 && i + 1 < argc) net_peak = argv[++i];
        else {
            fprintf(stderr, "usage: bench [--quick] [--only G4,G7] [--rounds N] [--dir DIR] [--json]\n");
            return 2;
        }
    }
    (void)given;
#ifdef BENCH_NET
    if (net_peak != NULL) return net_peak_child(net_peak);
#else
    if (net_peak != NULL) return 2;
#endif
    if (peak != NULL) {
        snprintf(dir, sizeof dir, "%s", base);
        return peak_child(peak);
    }
    snprintf(dir, sizeof dir, "%s/ckpt-bench-XXXXXX", base);
    if (mkdtemp(dir) == NULL) die(dir);
    tidy_up_after();
    if (as_json) printf("[");
    else printf("%-4s %-58s %-34s %-22s %s\n", "goal", "what", "measured", "target", "verdict");
    if (wanted("idle")) goal_idle();
    if (wanted("G13")) goal_13();
    if (wanted("G8")) goal_8();
    if (wanted("G4")) goal_4(false);
    if (wanted("G4") && !quick) goal_4(true);
    if (wanted("G5")) goal_5();
    if (wanted("G6")) goal_6();
    if (wanted("G7")) goal_7();
    if (wanted("G1")) goal_1(true);
    if (wanted("G1b") || wanted("G1")) goal_1(false);
    if (wanted("G2")) goal_2();
    if (wanted("G3")) goal_3(1);
    if (wanted("G3b") || wanted("G3")) goal_3(2);
    if (wanted("G3c") || wanted("G3")) goal_3c();
    if (wanted("G12")) goal_12(argv[0]);
    if (wanted("G16")) goal_16();
    if (wanted("G17")) goal_17();
    if (wanted("G18") || wanted("G20")) goal_18();
    if (wanted("G19")) goal_19();
#ifdef BENCH_NET
    if (wanted("G9") || wanted("http-up")) goal_9(false);
    if (wanted("G9") || wanted("http-down")) { goal_9_down(false, false); goal_9_down(false, true); }
    if (wanted("G9b") || wanted("G9") || wanted("https-up")) goal_9(true);
    if (wanted("G9b") || wanted("G9") || wanted("https-down")) { goal_9_down(true, false); goal_9_down(true, true); }
    if (wanted("G9d") || wanted("G9")) goal_9d(argv[0]);
    if (wanted("G10")) { goal_10(false); goal_10(true); }
    if (wanted("G11") || wanted("G14")) goal_11();
    if (wanted("G15")) goal_15();
    if (wanted("small")) goal_small();
    goal_21();
#endif
    if (as_json) printf("\n]\n");
    if (isnan(shell("rm -rf '%s'", dir))) die(dir);
    if (python_in != NULL) fclose(python_in);
    fprintf(stderr, "bench: %d goal%s missed, %d of them by the bare loop too\n", missed_count, missed_count == 1 ? "" : "s", bare_count);
    return missed_count == 0 ? 0 : 1;
}
