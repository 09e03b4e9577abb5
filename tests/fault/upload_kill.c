/* upload_kill.c: a process that uploads without pause is killed at random instants; the next one goes on. Every file whose upload was
   acknowledged gets there whole, no half-done upload is left, the published link never names something absent and never goes back, and
   no part is sent twice but those that were on their way. CKPT_KILLS says how often (100). run.sh: no-asan no-tsan */

#define CKPT_NO_REMOTE
#define CKPT__SEND_MIB 1024             // parts of 8 to 64 KiB
#define CKPT__UPLOADER_SINGLE 0         // the first small file begins the journal
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STEPS = 20000, PARTS = 64, WORKERS = 2, LANES = 2, LARGEST = 300000 };

// What the uploading process tells, in memory that outlives it.
typedef struct ledger {
    volatile int     step;              // the last one begun
    volatile int     acked[STEPS];      // its upload was acknowledged
    volatile int     sent[STEPS][PARTS];    // how often each of its parts was confirmed
    volatile int     newest;            // the last acknowledged file of the constant name
    volatile int     child, reader;     // what went wrong: a line of this file, 0 nothing
    volatile int     stop, looks;
} ledger;

static ledger *shared;
static ckpt__store_table table;
static const ckpt__store_table *inner;
static const char *bucket, *staging, *source;

static size_t size_of(int step) {
    unsigned x = (unsigned)step * 2654435761u;
    return step % 3 == 0 ? 1 + x % 2000 : 20000 + x % (LARGEST - 20000);
}

static bool holds(const char *path, int step) {
    static unsigned char want[LARGEST];
    size_t n, size = size_of(step);
    char *bytes = util_slurp(path, &n);
    util_fill(want, size, (uint64_t)step);
    bool good = bytes != NULL && n == size && memcmp(bytes, want, n) == 0;
    free(bytes);
    return good;
}

static int step_of(const char *name) {
    return strncmp(name, "ep", 2) == 0 ? atoi(name + 2) : -1;
}

static ckpt_err count_part(ckpt_store *s, const ckpt__store_multi *m, const ckpt__body *body, ckpt__store_part *part) {
    ckpt_err e = inner->part(s, m, body, part);
    int step = step_of(m->name);
    if (e == CKPT_OK && step >= 0 && part->number < PARTS) __atomic_add_fetch(&shared->sent[step][part->number], 1, __ATOMIC_SEQ_CST);
    return e;
}

#define check(condition) do { if (!(condition)) { shared->child = __LINE__; _exit(1); } } while (0)

static ckpt_uploader *start(ckpt_store **store) {
    ckpt_uploader_desc d;
    ckpt_uploader *u;
    char uri[4200];
    memset(&d, 0, sizeof d);
    snprintf(uri, sizeof uri, "file://%s", bucket);
    check(ckpt_store_open(store, uri, NULL) == CKPT_OK);
    inner = (*store)->table;
    table = *inner;
    table.part = count_part;
    (*store)->table = &table;
    (*store)->best_part = 0;
    d.store = *store;
    d.upload_staging_folder = staging;
    d.num_concurrent_uploads = WORKERS;
    d.num_concurrent_parts = LANES;
    check(ckpt_uploader_open(&u, &d) == CKPT_OK);
    return u;
}

static void upload(void) {
    static unsigned char bytes[LARGEST];
    ckpt_store *store;
    ckpt_uploader *u = start(&store);
    while (shared->step + 1 < STEPS) {
        int step = ++shared->step;
        char name[32], path[4200];
        ckpt__upload up;
        snprintf(name, sizeof name, "ep%d", step);
        snprintf(path, sizeof path, "%s/%s", source, name);
        size_t size = size_of(step);
        util_fill(bytes, size, (uint64_t)step);
        util_write(path, bytes, size);
        memset(&up, 0, sizeof up);
        up.name = name;
        up.path = path;
        up.durable = step % 2 == 0;     // linked, else copied
        up.overwrite = step % 5 != 0;
        up.link_name = "latest.symlink";
        up.link_text = name;
        up.link_order[0] = (uint64_t)step;
        check(ckpt__uploader_add(u, &up) == CKPT_OK);
        shared->acked[step] = 1;
        if (step % 4 == 0) {
            check(ckpt_upload_file(u, "model.pt", path, true) == CKPT_OK);
            shared->newest = step;
        }
        (void)unlink(path);
        ckpt_transfer_stats st;
        for (ckpt_uploader_stats(u, &st); st.pending > 4; ckpt_uploader_stats(u, &st)) usleep(200);
        check(ckpt_uploader_check(u) == CKPT_OK);
    }
    _exit(0);
}

// Looks at the published link all along.
static void watch(void) {
    int last = 0;
    char path[4200];
    while (!shared->stop) {
        size_t n;
        snprintf(path, sizeof path, "%s/latest.symlink", bucket);
        char *text = util_slurp(path, &n);
        if (text != NULL) {
            int step = step_of(text);
            snprintf(path, sizeof path, "%s/%s", bucket, text);
            if (step < last && shared->reader == 0) shared->reader = __LINE__;
            if ((step <= 0 || !holds(path, step)) && shared->reader == 0) shared->reader = __LINE__;
            last = step;
            shared->looks++;
            free(text);
        }
        usleep(300);
    }
    _exit(0);
}

static bool has_marks(void) {
    char path[4200], text[8];
    snprintf(path, sizeof path, "%s/try", source);
    util_write_text(path, "x");
    int fd = open(path, O_RDWR);
    bool marks = fd >= 0 && ckpt__os_note_set(fd, "user.ckpt-test", "1") && ckpt__os_note_get(fd, "user.ckpt-test", text, sizeof text);
    close(fd);
    (void)unlink(path);
    return marks;
}

static pid_t run(void (*f)(void)) {
    pid_t pid = fork();
    if (pid == 0) { f(); _exit(0); }
    return pid;
}

static void finish(void) {
    ckpt_store *store;
    ckpt_uploader *u = start(&store);
    check(ckpt_uploader_close(u, 0) == CKPT_OK);
    ckpt_store_close(store);
}

static int acknowledged(void) {
    int n = 0;
    for (int i = 1; i <= shared->step; i++) n += shared->acked[i] ? 1 : 0;
    return n;
}

static void test_killed(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *often = getenv("CKPT_KILLS");
    int kills = often != NULL ? atoi(often) : 100, status;
    bucket = util_join(dir, "bucket");
    staging = util_join(dir, "staging");
    source = util_join(dir, "source");
    util_mkdir(bucket);
    util_mkdir(source);
    shared = (ledger *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    srand(1);
    pid_t reader = run(watch);
    int longest = 150000;                   // microseconds of a life; more on a machine that is too busy for an upload within them
    for (int i = 0; i < kills && shared->child == 0; i++) {
        pid_t pid = run(upload);
        usleep((useconds_t)(rand() % (i % 4 == 0 ? 10000 : longest)));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (acknowledged() <= i / 2) longest += 10000;
    }
    pid_t pid = run(finish);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (shared->child != 0) fail_msg("the uploading process failed at line %d", shared->child);
    assert_int_equal(status, 0);
    usleep(20000);
    shared->stop = 1;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    if (shared->reader != 0) fail_msg("the reader found something wrong at line %d", shared->reader);

    int acked = 0, twice = 0, parts = 0, last = 0;
    for (int i = 1; i <= shared->step; i++) {
        const char *path = util_fmt("%s/ep%d", bucket, i);
        if (shared->acked[i]) {
            if (!holds(path, i)) fail_msg("the acknowledged upload of step %d is %s", i, util_exists(path) ? "wrong" : "lost");
            acked++;
            last = i;
        } else if (util_exists(path)) {
            if (!holds(path, i)) fail_msg("step %d, never acknowledged, is there and wrong", i);
            last = i;
        }
        for (int k = 0; k < PARTS; k++) {
            parts += shared->sent[i][k] > 0;
            twice += shared->sent[i][k] > 1 ? shared->sent[i][k] - 1 : 0;
        }
    }
    char *latest = util_read(util_join(bucket, "latest.symlink"), NULL);
    assert_int_equal(step_of(latest), last);
    // Of the constant name: the newest acknowledged one, or one that was begun after it.
    int model = 0;
    for (int i = shared->newest; i <= shared->step && model == 0; i++) if (i > 0 && holds(util_join(bucket, "model.pt"), i)) model = i;
    assert_true(model > 0);
    const char *left = util_list(bucket);
    if (strstr(left, ".ckpt-upload-") != NULL) fail_msg("half-done uploads are left: %s", strstr(left, ".ckpt-upload-"));
    assert_null(util_staged(staging));
    printf("%d kills, %d acknowledged uploads, %d parts, %d of them sent twice, %d looks at the link\n", kills, acked, parts, twice, shared->looks);
    assert_true(acked > kills / 2);
    // On their way at a kill: a part for each lane of each worker. Without marks a finished object cannot be told from another's.
    if (has_marks()) assert_true(twice <= kills * WORKERS * LANES);
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_killed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
