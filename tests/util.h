/* util.h: what every test needs: cmocka, case tables, temporary directories, files, environment, skips with a reason.

   Include it after ckpt.h. Everything that the functions return is freed at exit, so that a test can stay short;
   temporary directories are removed at exit by the process that made them (not by its forked children).
*/
#ifndef UTIL_H
#define UTIL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__GNUC__)
    #define UTIL_FN static __attribute__((unused))
#else
    #define UTIL_FN static
#endif

// For what a test computes byte by byte on its own, which the sanitizers need not look at: it would be most of their time.
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 8)
    #define UTIL_UNWATCHED __attribute__((no_sanitize("thread"), no_sanitize("address"), no_sanitize("undefined")))
#else
    #define UTIL_UNWATCHED
#endif

#define UTIL_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

// From one of many like cases to the next: the plain build tries them all and proves what comes of each; where a sanitizer reads the
// same lines at a fraction of the speed, each n-th one.
#if defined(UTIL_ASAN) || defined(UTIL_TSAN)
    #define UTIL_STRIDE(n) (n)
#else
    #define UTIL_STRIDE(n) 1
#endif

//-- what calls return -------------------------------------------------------------

UTIL_FN void must(ckpt_err e) {
    if (e != CKPT_OK) fail_msg("%s: %s", ckpt_err_name(e), ckpt_last_error());
}

UTIL_FN void expect_sentence(const char *part) {
    if (strstr(ckpt_last_error(), part) == NULL) fail_msg("'%s' is not in: %s", part, ckpt_last_error());
}

//-- memory that is refused -------------------------------------------------------

// An allocator that gives so many blocks and no more.
typedef struct budget { int left; long held; } budget;

UTIL_FN void *budget_fn(void *ptr, size_t old_size, size_t new_size, void *user) {
    budget *g = (budget *)user;
    if (new_size > old_size && g->left-- <= 0) return NULL;
    g->held += (long)new_size - (long)old_size;
    if (new_size == 0) { free(ptr); return NULL; }
    return realloc(ptr, new_size);
}

//-- things freed at exit ----------------------------------------------------------

typedef struct util_kept { struct util_kept *next; void *ptr; bool is_dir; } util_kept;
static util_kept *util_kept_list;
static pid_t      util_owner;

#if defined(__GNUC__)
__attribute__((noreturn))
#endif
UTIL_FN void util_die(const char *what, const char *name) {
    fprintf(stderr, "tests/util.h: %s %s: %s\n", what, name, strerror(errno));
    exit(99);
}

UTIL_FN void util_remove_tree(const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0) return;
    if (S_ISDIR(st.st_mode)) {
        (void)chmod(path, 0700);
        DIR *d = opendir(path);
        if (d != NULL) {
            for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
                size_t size = strlen(path) + strlen(e->d_name) + 2;
                char *inner = (char *)malloc(size);
                if (inner == NULL) break;
                snprintf(inner, size, "%s/%s", path, e->d_name);
                util_remove_tree(inner);
                free(inner);
            }
            closedir(d);
        }
        (void)rmdir(path);
    } else {
        (void)unlink(path);
    }
}

UTIL_FN void util_cleanup(void) {
    while (util_kept_list != NULL) {
        util_kept *k = util_kept_list;
        util_kept_list = k->next;
        if (k->is_dir && getpid() == util_owner) util_remove_tree((const char *)k->ptr);
        free(k->ptr);
        free(k);
    }
}

// Hands `ptr` (from malloc) over: it is freed at exit. Any thread may, also those of a store of the test's own.
UTIL_FN void *util_keep(void *ptr, bool is_dir) {
    pid_t none = 0;
    if (__atomic_compare_exchange_n(&util_owner, &none, getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) (void)atexit(util_cleanup);
    util_kept *k = (util_kept *)malloc(sizeof *k);
    if (k == NULL || ptr == NULL) util_die("no memory for", "a test");
    k->ptr = ptr;
    k->is_dir = is_dir;
    k->next = __atomic_load_n(&util_kept_list, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(&util_kept_list, &k->next, k, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return ptr;
}

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
UTIL_FN char *util_fmt(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = (char *)util_keep(malloc((size_t)n + 1), false);
    va_start(args, fmt);
    (void)vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}

//-- skips -------------------------------------------------------------------------

// Ends the running cmocka test as skipped; run.sh shows the reason.
#define util_skip(reason) do { printf("SKIP: %s\n", (reason)); fflush(stdout); skip(); } while (0)

// The long form is asked for (run.sh --long, CKPT_LONG=1).
UTIL_FN bool util_long(void) {
    const char *asked = getenv("CKPT_LONG");
    return asked != NULL && strcmp(asked, "1") == 0;
}

//-- files -------------------------------------------------------------------------

// A fresh empty directory under $TMPDIR, else /tmp; its real path. Removed at exit.
UTIL_FN const char *util_temp_dir(void) {
    const char *base = getenv("TMPDIR");
    char *real = realpath(base != NULL && base[0] != 0 ? base : "/tmp", NULL);
    if (real == NULL) util_die("cannot find", "$TMPDIR");
    size_t size = strlen(real) + sizeof "/ckpt-test-XXXXXX";
    char *path = (char *)util_keep(malloc(size), true);
    snprintf(path, size, "%s/ckpt-test-XXXXXX", real);
    free(real);
    if (mkdtemp(path) == NULL) util_die("cannot create", path);
    return path;
}

UTIL_FN const char *util_join(const char *dir, const char *name) {
    return util_fmt("%s/%s", dir, name);
}

// Bytes that differ everywhere, of any seed its own; word by word (splitmix64), since much of a test's time would be theirs.
UTIL_FN void util_fill(void *bytes, size_t size, uint64_t seed) {
    unsigned char *p = (unsigned char *)bytes;
    for (uint64_t x = seed * 0xD1342543DE82EF95u; size > 0;) {
        uint64_t z = x += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        size_t n = size < sizeof z ? size : sizeof z;
        memcpy(p, &z, n);
        p += n;
        size -= n;
    }
}

UTIL_FN void util_mkdir(const char *path) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST) util_die("cannot create", path);
}

UTIL_FN void util_write(const char *path, const void *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) util_die("cannot create", path);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno != EINTR) util_die("cannot write", path);
        if (n > 0) done += (size_t)n;
    }
    if (close(fd) != 0) util_die("cannot close", path);
}

UTIL_FN void util_write_text(const char *path, const char *text) {
    util_write(path, text, strlen(text));
}

// The whole file with a NUL behind it; NULL when it cannot be opened. The caller frees it.
UTIL_FN char *util_slurp(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) return NULL;
    size_t len = 0, cap = 4096;
    char *data = (char *)malloc(cap);
    for (;;) {
        if (data == NULL) util_die("no memory for", path);
        ssize_t n = read(fd, data + len, cap - len - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) util_die("cannot read", path);
        if (n == 0) break;
        len += (size_t)n;
        if (cap - len < 2) data = (char *)realloc(data, cap *= 2);
    }
    (void)close(fd);
    data[len] = 0;
    if (size != NULL) *size = len;
    return data;
}

// As util_slurp, but a file that is not there is a failure, and the bytes are freed at exit.
UTIL_FN char *util_read(const char *path, size_t *size) {
    char *data = util_slurp(path, size);
    if (data == NULL) util_die("cannot open", path);
    return (char *)util_keep(data, false);
}

UTIL_FN bool util_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

// Where a link points, as text; NULL when `path` is no link.
UTIL_FN const char *util_link_target(const char *path) {
    char buf[4096];
    ssize_t n = readlink(path, buf, sizeof buf - 1);
    if (n < 0) return NULL;
    buf[n] = 0;
    return util_fmt("%s", buf);
}

UTIL_FN int util_compare_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The names in a directory, sorted, each followed by '\n'; "" when it is empty or absent.
UTIL_FN const char *util_list(const char *dir) {
    char *names[4096];
    size_t count = 0, size = 1;
    DIR *d = opendir(dir);
    if (d == NULL) return "";
    for (struct dirent *e = readdir(d); e != NULL && count < 4096; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        names[count] = util_fmt("%s\n", e->d_name);
        size += strlen(names[count++]);
    }
    closedir(d);
    if (count > 0) qsort(names, count, sizeof *names, util_compare_text);
    char *all = (char *)util_keep(malloc(size), false), *p = all;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]);
        memcpy(p, names[i], n);
        p += n;
    }
    *p = 0;
    return all;
}

// The names in a folder but the library's own and, unless it is NULL, those that begin with `without`: "a b c".
UTIL_FN const char *util_names(const char *dir, const char *without) {
    char *all = util_fmt("%s", util_list(dir)), *out = util_fmt("%s ", all), *save = NULL;
    size_t n = 0;
    for (char *line = strtok_r(all, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        const char *name = line + (line[0] == '.' && line[1] == '.');         // one that is being written
        if (strncmp(name, ".ckpt-", 6) == 0 || (without != NULL && strncmp(line, without, strlen(without)) == 0)) continue;
        n += (size_t)sprintf(out + n, "%s%s", n > 0 ? " " : "", line);
    }
    out[n] = 0;
    return out;
}

// The first of an uploader's files in a staging folder: staged bytes, a record or a journal; NULL: nothing waits there.
UTIL_FN const char *util_staged(const char *dir) {
    static const char *const endings[] = { ".data", ".upload", ".journal" };
    const char *left = util_list(dir), *found = NULL;
    for (int i = 0; i < UTIL_COUNT(endings) && found == NULL; i++) found = strstr(left, endings[i]);
    return found;
}

// Turns over the bits `mask` of one byte of a file.
UTIL_FN void util_flip(const char *path, uint64_t offset, unsigned mask) {
    int fd = open(path, O_RDWR);
    unsigned char c;
    if (fd < 0 || pread(fd, &c, 1, (off_t)offset) != 1) util_die("cannot change", path);
    c = (unsigned char)(c ^ mask);
    if (pwrite(fd, &c, 1, (off_t)offset) != 1) util_die("cannot change", path);
    (void)close(fd);
}

//-- environment -------------------------------------------------------------------

// Takes away every variable that the library reads, so that the machine's own settings cannot decide a test.
UTIL_FN void util_clear_env(void) {
    static const char *const names[] = {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "COMPOSER_RUN_NAME", "RUN_NAME",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_NODE_RANK", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_NNODES"
    };
    for (int i = 0; i < UTIL_COUNT(names); i++) unsetenv(names[i]);
}

//-- case tables -------------------------------------------------------------------

// The folder of the tests: given by run.sh, else where this file was found by the compiler.
UTIL_FN const char *util_tests_path(const char *name) {
#ifdef CKPT_TESTS_DIR
    return util_fmt("%s/%s", CKPT_TESTS_DIR, name);
#else
    const char *self = __FILE__, *slash = strrchr(self, '/');
    return slash != NULL ? util_fmt("%.*s/%s", (int)(slash - self), self, name) : name;
#endif
}

typedef struct util_table {
    int    columns, rows;
    char **names;               // of the columns
    char **fields;              // rows * columns; NULL is None
} util_table;

// Undoes \t \n \r \\ in place; NULL for \N.
UTIL_FN char *util_unescape(char *field) {
    if (strcmp(field, "\\N") == 0) return NULL;
    char *to = field;
    for (const char *from = field; *from != 0; from++) {
        char c = *from;
        if (c == '\\' && from[1] != 0) {
            from++;
            c = *from == 't' ? '\t' : *from == 'n' ? '\n' : *from == 'r' ? '\r' : *from;
        }
        *to++ = c;
    }
    *to = 0;
    return field;
}

// Cuts `line` at its tabs; returns the number of fields, at most `cap` of which are kept.
UTIL_FN int util_split(char *line, char **fields, int cap) {
    int count = 0;
    for (char *p = line;;) {
        char *tab = strchr(p, '\t');
        if (tab != NULL) *tab = 0;
        if (count < cap) fields[count] = p;
        count++;
        if (tab == NULL) return count;
        p = tab + 1;
    }
}

// Reads tests/cases/<name>. Format: tests/cases/README.md. A row with another number of fields than the header ends the process.
UTIL_FN util_table cases_tsv(const char *name) {
    util_table t;
    size_t size;
    char *text = util_read(util_tests_path(util_fmt("cases/%s", name)), &size);
    int lines = 0;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
    if (text[0] != '#' || lines < 1 || text[size - 1] != '\n') util_die("no case table:", name);
    t.names = (char **)util_keep(calloc(64, sizeof *t.names), false);
    t.fields = NULL;
    t.columns = t.rows = 0;
    char *p = text + 1;
    for (int i = 0; i < lines; i++) {
        char *end = strchr(p, '\n');
        *end = 0;
        if (i == 0) {
            t.columns = util_split(p, t.names, 64);
            t.fields = (char **)util_keep(calloc((size_t)lines * (size_t)t.columns, sizeof *t.fields), false);
        } else {
            char **row = t.fields + t.rows * t.columns;
            if (util_split(p, row, t.columns) != t.columns) util_die("a row has a wrong number of fields in", name);
            for (int c = 0; c < t.columns; c++) row[c] = util_unescape(row[c]);
            t.rows++;
        }
        p = end + 1;
    }
    return t;
}

// The field of that column; NULL is None. An unknown column ends the process: the test is wrong.
UTIL_FN const char *cases_get(const util_table *t, int row, const char *column) {
    for (int c = 0; c < t->columns; c++) {
        if (strcmp(t->names[c], column) == 0) return t->fields[row * t->columns + c];
    }
    util_die("no such column:", column);
    return NULL;
}

// As cases_get, but "" for None.
UTIL_FN const char *cases_text(const util_table *t, int row, const char *column) {
    const char *s = cases_get(t, row, column);
    return s != NULL ? s : "";
}

UTIL_FN bool cases_true(const util_table *t, int row, const char *column) {
    return strcmp(cases_text(t, row, column), "true") == 0;
}

UTIL_FN long long cases_int(const util_table *t, int row, const char *column) {
    return strtoll(cases_text(t, row, column), NULL, 10);
}

// A row of a table that the test which reads it does not try itself, and where it is tried instead, as "test_x.c test_y", or why nowhere.
typedef struct cases_row { const char *name, *where; } cases_row;

// A test that is gone, or that nobody calls any more, would leave the row untried.
UTIL_FN void cases_tried(const char *name, const char *where) {
    int length = (int)strcspn(where, " ");
    if (length < 3 || where[length] == 0 || where[length - 2] != '.') return;
    const char *test = where + length + 1;
    char *path = util_fmt("%.*s", length, where), *text = util_slurp(util_tests_path(path), NULL);
    if (text == NULL) fail_msg("%s: there is no tests/%s", name, path);
    bool there = strstr(text, util_fmt(" %s(void **", test)) != NULL;
    bool called = strstr(text, util_fmt("(%s)", test)) != NULL || strstr(text, util_fmt("(%s,", test)) != NULL;
    free(text);
    if (!there || !called) fail_msg("%s: tests/%s has no test %s, or does not call it", name, path, test);
}

// A row that the test which reads the table does not try must stand in the list.
UTIL_FN void cases_elsewhere(const cases_row *list, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) != 0) continue;
        cases_tried(name, list[i].where);
        return;
    }
    fail_msg("'%s' is not tried, and nothing says where it is", name);
}

// A rank's file of a sharded checkpoint by Composer's name: "ba1/__0_0.distcp" is our "ba1/__0_0.pt".
UTIL_FN const char *cases_shard(const char *name) {
    const char *ending = strstr(name, ".distcp");
    return ending != NULL ? util_fmt("%.*s.pt", (int)(ending - name), name) : name;
}

#if defined(CKPT_IMPLEMENTATION)
// The end of the name of a hidden file that a process of this machine has made.
UTIL_FN const char *util_temp_tail(int pid) {
    ckpt__file_writer w = ckpt__file_writer_of(pid);
    return util_fmt("%d-%08lx%04x%04x0123abcd.tmp", pid, (unsigned long)w.host, (unsigned)w.space, (unsigned)w.start);
}
#endif

#endif // UTIL_H
