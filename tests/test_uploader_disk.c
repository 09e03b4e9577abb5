// Proves in which order an upload reaches the disk: staged, recorded and synced before it is acknowledged, and the record goes first.
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <pthread.h>
#include <sys/syscall.h>

//-- the calls that matter, as the C library gets them ------------------------------------------------------

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char            trace[4096];
static bool            tracing;
static const char     *staging;

// "data", "record" or "folder"; NULL: none of ours.
static const char *kind_of(const char *path) {
    size_t n = strlen(staging);
    if (strncmp(path, staging, n) != 0) return NULL;
    if (path[n] == 0) return "folder";
    if (strstr(path, ".journal") != NULL) return "journal";
    return strstr(path, ".data") != NULL ? "data" : strstr(path, ".upload") != NULL ? "record" : NULL;
}

static void note(const char *what, const char *path) {
    pthread_mutex_lock(&lock);
    const char *kind = tracing ? kind_of(path) : NULL;
    size_t n = strlen(trace);
    if (kind != NULL) snprintf(trace + n, sizeof trace - n, "%s %s; ", what, kind);
    pthread_mutex_unlock(&lock);
}

static void path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = 0;
}

int fsync(int fd) {
    char path[4096];
    path_of(fd, path, sizeof path);
    note("sync", path);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    char path[4096];
    path_of(fd, path, sizeof path);
    note("sync bytes of", path);
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwrite(int fd, const void *p, size_t size, off_t at) {
    char path[4096];
    path_of(fd, path, sizeof path);
    if (strstr(path, ".journal") != NULL) note("write", path);
    return (ssize_t)syscall(SYS_pwrite64, fd, p, size, at);
}

int rename(const char *from, const char *to) {
    note("name", to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int a, const char *from, int b, const char *to, int flags) {
    note("link", to);
    return (int)syscall(SYS_linkat, a, from, b, to, flags);
}

int unlink(const char *path) {
    note("remove", path);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static void start(void) {
    pthread_mutex_lock(&lock);
    trace[0] = 0;
    tracing = true;
    pthread_mutex_unlock(&lock);
}

static void stop(const char *expected) {
    pthread_mutex_lock(&lock);
    tracing = false;
    pthread_mutex_unlock(&lock);
    assert_string_equal(trace, expected);
}

//-- the tests ------------------------------------------------------------------------------------------

typedef struct world { const char *dir; ckpt_uploader *u; } world;

static void open_world(world *w) {
    ckpt_uploader_desc d;
    util_clear_env();
    w->dir = util_temp_dir();
    util_mkdir(util_join(w->dir, "staging"));
    char *real = realpath(util_join(w->dir, "staging"), NULL);
    staging = real;
    memset(&d, 0, sizeof d);
    d.bucket_uri = util_fmt("file://%s/bucket", w->dir);
    d.upload_staging_folder = real;
    if (ckpt_uploader_open(&w->u, &d) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    ckpt__uploader_pause(w->u, 1);                          // its workers take nothing yet
}

static void close_world(world *w) {
    start();
    ckpt__uploader_pause(w->u, -1);
    if (ckpt_uploader_wait(w->u, 0) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    stop("remove record; remove data; ");
    assert_int_equal(ckpt_uploader_close(w->u, 0), CKPT_OK);
    free((void *)(uintptr_t)staging);
}

static const char *file_of(const world *w, size_t size) {
    const char *path = util_join(w->dir, "file");
    char *p = (char *)calloc(1, size);
    util_write(path, p, size);
    free(p);
    return path;
}

// Small: a copy.
static void test_copied(void **state) {
    (void)state;
    world w;
    open_world(&w);
    start();
    assert_int_equal(ckpt_upload_file(w.u, "a", file_of(&w, 100), true), CKPT_OK);
    stop("name record; sync data; sync record; sync folder; ");
    close_world(&w);
}

// Many small ones: their journal is made once, and then each is one write and one sync of bytes alone; its end is not synced.
static void test_journal(void **state) {
    (void)state;
    world w;
    open_world(&w);
    for (int i = 0; i < CKPT__UPLOADER_SINGLE; i++) {
        start();
        assert_int_equal(ckpt_upload_file(w.u, util_fmt("%d", i), file_of(&w, 100), true), CKPT_OK);
        stop("name record; sync data; sync record; sync folder; ");
    }
    start();
    assert_int_equal(ckpt_upload_file(w.u, "a", file_of(&w, 100), true), CKPT_OK);
    stop("write journal; write journal; write journal; write journal; write journal; sync journal; sync folder; "
         "write journal; sync bytes of journal; ");
    for (int i = 0; i < 3; i++) {
        start();
        assert_int_equal(ckpt_upload_file(w.u, util_fmt("b%d", i), file_of(&w, CKPT__UPLOADER_SMALL), true), CKPT_OK);
        stop("write journal; sync bytes of journal; ");
    }
    ckpt__uploader_pause(w.u, -1);
    if (ckpt_uploader_wait(w.u, 0) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    ckpt__uploader_pause(w.u, 1);
    start();                                                // that those are done is on disk before anything is recorded elsewhere
    assert_int_equal(ckpt_upload_file(w.u, "large", file_of(&w, CKPT__UPLOADER_SMALL + 1), true), CKPT_OK);
    stop("sync bytes of journal; name record; sync data; sync record; sync folder; ");
    start();                                                // the other way round: that the first ones' records are gone
    assert_int_equal(ckpt_upload_file(w.u, "c", file_of(&w, 100), true), CKPT_OK);
    stop("sync folder; write journal; sync bytes of journal; ");
    start();
    ckpt__uploader_pause(w.u, -1);
    if (ckpt_uploader_wait(w.u, 0) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    stop("remove record; remove data; write journal; ");
    // A newer file of a name: that the older one is done is on disk before the newer one is.
    ckpt__uploader_pause(w.u, 1);
    assert_int_equal(ckpt_upload_file(w.u, "c", file_of(&w, 100), true), CKPT_OK);
    start();
    assert_int_equal(ckpt_upload_file(w.u, "c", file_of(&w, 200), true), CKPT_OK);
    stop("write journal; sync bytes of journal; write journal; ");
    start();
    ckpt__uploader_pause(w.u, -1);
    if (ckpt_uploader_wait(w.u, 0) != CKPT_OK) fail_msg("%s", ckpt_last_error());
    stop("sync bytes of journal; write journal; ");
    start();
    assert_int_equal(ckpt_uploader_close(w.u, 0), CKPT_OK);
    stop("remove journal; ");
    free((void *)(uintptr_t)staging);
}

static void test_linked(void **state) {
    (void)state;
    world w;
    open_world(&w);
    start();
    assert_int_equal(ckpt_upload_file(w.u, "a", file_of(&w, CKPT__UPLOADER_COPIED + 1), true), CKPT_OK);
    stop("link data; name record; sync data; sync record; sync folder; ");
    close_world(&w);
}

// The saver's: its bytes are on the disk already.
static void test_durable(void **state) {
    (void)state;
    world w;
    ckpt__upload up;
    open_world(&w);
    memset(&up, 0, sizeof up);
    up.name = "a";
    up.path = file_of(&w, 100);
    up.durable = up.overwrite = true;
    start();
    assert_int_equal(ckpt__uploader_add(w.u, &up), CKPT_OK);
    stop("link data; name record; sync record; sync folder; ");
    close_world(&w);
}

static ckpt_err no_bytes(void *dst, size_t size, uint64_t offset, void *user) {
    (void)offset; (void)user;
    memset(dst, 0, size);
    return CKPT_OK;
}

// Begun before the file was finished: the word that it counts comes last.
static void test_early(void **state) {
    (void)state;
    world w;
    ckpt__upload up;
    ckpt__body body;
    ckpt__uploader_item *ticket;
    open_world(&w);
    memset(&up, 0, sizeof up);
    memset(&body, 0, sizeof body);
    up.name = "a";
    up.path = file_of(&w, 100);
    up.durable = up.overwrite = true;
    body.fd = -1;
    body.read = no_bytes;
    body.size = 100;
    start();
    assert_int_equal(ckpt__uploader_begin(w.u, &up, &body, &ticket), CKPT_OK);
    stop("name record; sync record; sync folder; ");
    start();
    assert_int_equal(ckpt__uploader_commit(w.u, ticket, &up), CKPT_OK);
    stop("link data; sync folder; sync record; ");
    close_world(&w);
}

// A record whose end was torn is written anew, and counts all the while: its successor is synced before it takes the name.
static void test_rewritten(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ckpt__uploader_place *p = w.u->places;
    ckpt__uploader_item *it = ckpt__uploader_item_new(w.u, CKPT__UPLOADER_PUT, "a");
    assert_non_null(it);
    assert_int_equal(ckpt__uploader_settle_in(w.u, it, p), CKPT_OK);
    util_write_text(it->data, "x");
    it->size = 1;
    it->adopted = it->overwrite = true;
    start();
    assert_int_equal(ckpt__uploader_write_record(w.u, it, false), CKPT_OK);
    stop("sync record; name record; sync record; sync folder; ");
    assert_int_equal(ckpt__uploader_enqueue(w.u, it, false), CKPT_OK);
    close_world(&w);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copied),
        cmocka_unit_test(test_journal),
        cmocka_unit_test(test_linked),
        cmocka_unit_test(test_durable),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_rewritten)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
