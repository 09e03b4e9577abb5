// Proves >>store, >>stores and the public ckpt_store_ functions without a network: file:// and custom stores keep the contract that S3
// and SFTP keep too (store_contract.h); what is special to file://; URIs by Composer's tables. CKPT_LONG=1: an object of 5 GiB and a byte.
// run.sh: tsan
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include <math.h>
#include "util.h"
#include "store_contract.h"

static ckpt_store *open_uri(const char *uri) {
    ckpt_store *s = NULL;
    if (ckpt_store_open(&s, uri, NULL) != CKPT_OK) fail_msg("%s: %s", uri, ckpt_last_error());
    return s;
}

static ckpt_store *open_folder(const char *dir) {
    return open_uri(util_fmt("file://%s", dir));
}

//-- a custom store in memory ------------------------------------------------------

typedef struct memory_object { char *name; char *data; size_t size; } memory_object;

typedef struct memory_store {
    pthread_mutex_t lock;
    memory_object   list[4096];
    int             count, calls, fail_puts, inside, most, closed;
    ckpt_err        failure;
    bool            silent, truncate;
    int             lost_puts, fail_sizes, gets;    // lost: they come through, and fail
    int             late;                           // so many sizes find nothing yet
    ckpt_err        get_failure;
    const char     *rival;                          // comes through instead of a lost put
} memory_store;

static int memory_find(memory_store *m, const char *name) {
    for (int i = 0; i < m->count; i++) if (strcmp(m->list[i].name, name) == 0) return i;
    return -1;
}

static void memory_drop(memory_store *m, int i) {
    free(m->list[i].name);
    free(m->list[i].data);
    m->list[i] = m->list[--m->count];
}

static void memory_enter(memory_store *m) {
    int n = __atomic_add_fetch(&m->inside, 1, __ATOMIC_SEQ_CST);
    if (n > __atomic_load_n(&m->most, __ATOMIC_SEQ_CST)) __atomic_store_n(&m->most, n, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&m->lock);
}

static void memory_leave(memory_store *m) {
    pthread_mutex_unlock(&m->lock);
    __atomic_sub_fetch(&m->inside, 1, __ATOMIC_SEQ_CST);
}

static ckpt_err memory_put(const char *name, const char *file_path, bool overwrite, void *user) {
    memory_store *m = (memory_store *)user;
    ckpt_err e = CKPT_OK;
    memory_enter(m);
    int at = memory_find(m, name);
    m->calls++;
    if (m->fail_puts > 0) {
        m->fail_puts--;
        e = m->silent ? m->failure : ckpt_set_error(m->failure, "the memory is tired");
    } else if (at >= 0 && !overwrite) {
        e = ckpt_set_error(CKPT_EXISTS, "it exists already, and overwriting it was not asked for");
    } else {
        memory_object o;
        o.name = strdup(name);
        o.data = util_slurp(file_path, &o.size);
        if (m->lost_puts > 0) {
            m->lost_puts--;
            e = ckpt_set_error(m->failure, "the answer is lost");
            if (m->rival != NULL) {
                free(o.data);
                o.data = strdup(m->rival);
                o.size = strlen(m->rival);
            }
        }
        if (m->truncate && o.size > 0) o.size--;
        if (at >= 0) memory_drop(m, at);
        assert_true(m->count < UTIL_COUNT(m->list));
        m->list[m->count++] = o;
    }
    memory_leave(m);
    return e;
}

static ckpt_err memory_get(const char *name, const char *destination, void *user) {
    memory_store *m = (memory_store *)user;
    memory_enter(m);
    int at = memory_find(m, name);
    ckpt_err e = m->get_failure;
    m->gets++;
    if (at >= 0) util_write(destination, m->list[at].data, m->list[at].size);
    memory_leave(m);
    if (e != CKPT_OK) return ckpt_set_error(e, "the memory fails it");
    return at >= 0 ? CKPT_OK : ckpt_set_error(CKPT_NOT_FOUND, "the memory holds no such object");
}

static ckpt_err memory_size(const char *name, uint64_t *size, void *user) {
    memory_store *m = (memory_store *)user;
    memory_enter(m);
    int at = m->late > 0 ? -1 : memory_find(m, name);
    if (m->late > 0) m->late--;
    if (at >= 0) *size = m->list[at].size;
    bool fails = m->fail_sizes > 0;
    if (fails) m->fail_sizes--;
    memory_leave(m);
    if (fails) return ckpt_set_error(CKPT_NET, "the memory is elsewhere");
    return at >= 0 ? CKPT_OK : CKPT_NOT_FOUND;
}

static int memory_compare(const void *a, const void *b) {
    return strcmp(((const memory_object *)a)->name, ((const memory_object *)b)->name);
}

static ckpt_err memory_list(const char *prefix, ckpt_err (*each)(const char *name, uint64_t size, void *each_user), void *each_user, void *user) {
    memory_store *m = (memory_store *)user;
    ckpt_err e = CKPT_OK;
    memory_enter(m);
    qsort(m->list, (size_t)m->count, sizeof m->list[0], memory_compare);
    for (int i = 0; i < m->count && e == CKPT_OK; i++) {
        if (strncmp(m->list[i].name, prefix, strlen(prefix)) == 0) e = each(m->list[i].name, m->list[i].size, each_user);
    }
    memory_leave(m);
    return e;
}

static ckpt_err memory_remove(const char *name, void *user) {
    memory_store *m = (memory_store *)user;
    memory_enter(m);
    int at = memory_find(m, name);
    if (at >= 0) memory_drop(m, at);
    memory_leave(m);
    return at >= 0 ? CKPT_OK : CKPT_NOT_FOUND;
}

static void memory_close(void *user) {
    memory_store *m = (memory_store *)user;
    while (m->count > 0) memory_drop(m, 0);
    m->closed++;
}

static memory_store the_memory;

static ckpt_store *open_memory(bool one_at_a_time, bool bare) {
    ckpt_store_ops ops;
    ckpt_store *s = NULL;
    memset(&ops, 0, sizeof ops);
    memset(&the_memory, 0, sizeof the_memory);
    pthread_mutex_init(&the_memory.lock, NULL);
    ops.put = memory_put;
    ops.get = memory_get;
    ops.size = memory_size;
    ops.close = memory_close;
    ops.one_at_a_time = one_at_a_time;
    if (!bare) {
        ops.list = memory_list;
        ops.remove = memory_remove;
    }
    assert_int_equal(ckpt_store_custom(&s, &ops, &the_memory), CKPT_OK);
    return s;
}

// What a process that was killed was giving to its put function goes when the next one opens a store; what this one gives stays.
static void test_custom_left(void **state) {
    (void)state;
    const char *was = getenv("TMPDIR"), *kept = was != NULL ? util_fmt("%s", was) : NULL, *dir = util_temp_dir();
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    const char *theirs = util_join(dir, util_fmt(".ckpt-object.%s", util_temp_tail((int)dead)));
    const char *ours = util_join(dir, util_fmt(".ckpt-object.%s", util_temp_tail((int)getpid())));
    util_write_text(theirs, "x");
    util_write_text(ours, "x");
    setenv("TMPDIR", dir, 1);
    ckpt_store_close(open_memory(false, false));
    if (kept != NULL) setenv("TMPDIR", kept, 1);
    else unsetenv("TMPDIR");
    assert_false(util_exists(theirs));
    assert_true(util_exists(ours));
}

static void test_custom_failures(void **state) {
    (void)state;
    ckpt_store *s = open_memory(false, false);
    const char *file = contract_file("abc", 3);
    uint64_t size = 0;
    // Trouble that may pass is tried again, other trouble is not; a function without a sentence gets one.
    the_memory.failure = CKPT_NET;
    the_memory.fail_puts = 1;
    contract_ok(ckpt_store_put(s, "a", file, false));
    assert_int_equal(the_memory.calls, 2);
    the_memory.failure = CKPT_AUTH;
    the_memory.fail_puts = 1;
    contract_is(ckpt_store_put(s, "b", file, false), CKPT_AUTH);
    assert_int_equal(the_memory.calls, 3);
    assert_non_null(strstr(ckpt_last_error(), "the memory is tired"));
    assert_non_null(strstr(ckpt_last_error(), "cannot upload b to custom://"));
    the_memory.silent = true;
    the_memory.fail_puts = 1;
    contract_is(ckpt_store_put(s, "b", file, false), CKPT_AUTH);
    assert_non_null(strstr(ckpt_last_error(), "put function failed with CKPT_AUTH"));
    the_memory.failure = (ckpt_err)999;
    the_memory.fail_puts = 1;
    contract_is(ckpt_store_put(s, "b", file, false), CKPT_IO);
    assert_non_null(strstr(ckpt_last_error(), "999"));
    contract_is(ckpt_store_size(s, "b", &size), CKPT_NOT_FOUND);
    // A store that loses bytes is found out.
    the_memory.truncate = true;
    ckpt__transfer t = contract_transfer();
    contract_is(contract_put(s, "c", "xyz", 3, true, NULL, &t), CKPT_CORRUPT);
    assert_true(t.transient);
    assert_non_null(strstr(ckpt_last_error(), "keeps 2 bytes of its 3"));
    ckpt_store_close(s);
    assert_int_equal(the_memory.closed, 1);
    ckpt_store_ops none;
    memset(&none, 0, sizeof none);
    contract_is(ckpt_store_custom(&s, &none, NULL), CKPT_ARG);
    assert_null(s);
    contract_is(ckpt_store_custom(&s, NULL, NULL), CKPT_ARG);
    assert_int_equal(ckpt_set_error(CKPT_OK, "nothing"), CKPT_OK);
    assert_int_equal(ckpt_set_error(CKPT_NET, NULL), CKPT_NET);
    assert_true(ckpt_last_error()[0] != 0);
    assert_int_equal(ckpt_set_error(CKPT_NET, "the disk: is full"), CKPT_NET);
    assert_int_equal(ckpt_set_error(CKPT_NO_SPACE, ckpt_last_error()), CKPT_NO_SPACE);     // of a call that it is made of
    assert_string_equal(ckpt_last_error(), "the disk: is full");
    assert_int_equal(ckpt_set_error(CKPT_IO, ckpt_last_error() + 10), CKPT_IO);
    assert_string_equal(ckpt_last_error(), "is full");
}

// A put that came through and failed for a reason that passes is met by the next try: the object is the caller's own, which its bytes tell.
static void test_custom_own_object(void **state) {
    (void)state;
    static const struct { int lost, sizes; const char *rival; ckpt_err get, want; int calls, gets; } rows[] = {
        { 1, 0, NULL, CKPT_OK, CKPT_OK, 2, 1 },
        { 0, 1, NULL, CKPT_OK, CKPT_OK, 2, 1 },                     // the size that was asked for after it failed
        { 1, 1, NULL, CKPT_OK, CKPT_OK, 2, 1 },                     // and once more while it is looked at
        { 1, 0, "abd", CKPT_OK, CKPT_EXISTS, 2, 1 },
        { 1, 0, "abcd", CKPT_OK, CKPT_EXISTS, 2, 0 },               // its length tells
        { 1, 0, NULL, CKPT_AUTH, CKPT_AUTH, 2, 1 },                 // it cannot be told, which is no CKPT_EXISTS
        { 1, 0, NULL, CKPT_NET, CKPT_NET, 2, 3 },
        { 0, 0, NULL, CKPT_OK, CKPT_OK, 1, 0 },
    };
    const char *file = contract_file("abc", 3), *temp = util_temp_dir(), *none = contract_file("", 0);
    ckpt__retry quick = ckpt__retry_default;
    char *was = getenv("TMPDIR") != NULL ? strdup(getenv("TMPDIR")) : NULL;
    quick.initial_backoff = quick.max_jitter = 0.001;
    setenv("TMPDIR", temp, 1);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt_store *s = open_memory(i % 2 == 0, true);
        the_memory.failure = CKPT_NET;
        the_memory.lost_puts = rows[i].lost;
        the_memory.fail_sizes = rows[i].sizes;
        the_memory.rival = rows[i].rival;
        the_memory.get_failure = rows[i].get;
        ckpt_err e = ckpt__public_put(s, "a", file, false, &quick);
        if (e != rows[i].want) fail_msg("%d: %s: %s", i, ckpt_err_name(e), ckpt_last_error());
        if (e != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), "cannot upload a to custom://"));
        if (rows[i].get != CKPT_OK) assert_non_null(strstr(ckpt_last_error(), "cannot tell whose object is there: the memory fails it"));
        assert_int_equal(the_memory.calls, rows[i].calls);
        assert_int_equal(the_memory.gets, rows[i].gets);
        the_memory.get_failure = CKPT_OK;
        contract_is(ckpt__public_put(s, "a", file, false, &quick), CKPT_EXISTS);    // by another call it is another's
        the_memory.lost_puts = 1;
        the_memory.rival = NULL;
        contract_ok(ckpt__public_put(s, "empty", none, false, &quick));
        ckpt_store_close(s);
        assert_string_equal(util_list(temp), "");
    }
    // The same by the public call, which waits a second before the second try.
    ckpt_store *s = open_memory(false, true);
    the_memory.failure = CKPT_TIMEOUT;
    the_memory.lost_puts = 1;
    contract_ok(ckpt_store_put(s, "a", file, false));
    assert_int_equal(the_memory.calls, 2);
    ckpt_store_close(s);
    if (was != NULL) setenv("TMPDIR", was, 1);
    else unsetenv("TMPDIR");
    free(was);
}

// A store that finds an object some time after its put: the next try does.
static void test_custom_late(void **state) {
    (void)state;
    ckpt__retry quick = ckpt__retry_default;
    quick.initial_backoff = quick.max_jitter = 0.001;
    ckpt_store *s = open_memory(false, false);
    const char *file = contract_file("abc", 3);
    ckpt__transfer t = contract_transfer();
    the_memory.late = 1;
    contract_is(contract_put(s, "a", "xyz", 3, true, NULL, &t), CKPT_CORRUPT);
    assert_true(t.transient && t.unsure);
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        the_memory.late = 1;
        the_memory.calls = 0;
        contract_ok(ckpt__public_put(s, "b", file, overwrite, &quick));
        assert_int_equal(the_memory.calls, 2);
    }
    ckpt_store_close(s);
}

static void test_custom_turn(void **state) {
    (void)state;
    for (int one = 0; one < 2; one++) {
        the_contract.store = open_memory(one == 1, false);
        contract_threads(contract_worker, 8);
        contract_four(contract_write_many, 40);
        if (one == 1) assert_int_equal(the_memory.most, 1);
        ckpt_store_close(the_contract.store);
    }
}

typedef struct turn { ckpt_store *s; ckpt__os_flag cancel; ckpt_err e; } turn;

static void *wait_for_turn(void *arg) {
    turn *w = (turn *)arg;
    ckpt__store_stat info;
    ckpt__transfer t = contract_transfer();
    t.cancel = &w->cancel;
    w->e = ckpt__store_run_stat(w->s, "a", &info, &t);
    return NULL;
}

// Who waits for his turn, and is cancelled before it comes, does not begin: the call before may have taken minutes.
static void test_custom_turn_cancelled(void **state) {
    (void)state;
    turn w = { open_memory(true, true), 0, CKPT_IO };
    pthread_t thread;
    ckpt__os_mutex_lock(&w.s->turn);
    pthread_create(&thread, NULL, wait_for_turn, &w);
    ckpt__os_sleep(0.1);
    ckpt__os_flag_set(&w.cancel, 1);
    ckpt__os_mutex_unlock(&w.s->turn);
    pthread_join(thread, NULL);
    assert_int_equal(w.e, CKPT_CANCELLED);
    ckpt__os_mutex_lock(&w.s->turn);                                // and it was given back
    ckpt__os_mutex_unlock(&w.s->turn);
    ckpt_store_close(w.s);
}

//-- file:// -----------------------------------------------------------------------

static void test_plain_files(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *bucket = util_join(dir, "made/on demand");
    ckpt_store *s = open_uri(util_fmt("file://%s/made/on%%20demand/", dir));
    assert_false(util_exists(bucket));
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(ckpt_store_list(s, NULL, contract_note, &found));
    assert_int_equal(found.count, 0);
    contract_ok(ckpt_store_put(s, "run 1/ep1.pt", contract_file("bytes", 5), false));
    assert_string_equal(util_read(util_join(bucket, "run 1/ep1.pt"), NULL), "bytes");
    assert_string_equal(util_list(bucket), "run 1\n");
    assert_string_equal(util_list(util_join(bucket, "run 1")), "ep1.pt\n");
    // What other tools put there is there.
    util_write_text(util_join(bucket, "other.txt"), "from outside");
    assert_true(contract_holds(s, "other.txt", "from outside", 12));
    uint64_t size = 0;
    contract_ok(ckpt_store_size(s, "other.txt", &size));
    assert_int_equal(size, 12);
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    assert_int_equal(found.count, 2);
    assert_string_equal(found.names[0], "other.txt");
    assert_string_equal(found.names[1], "run 1/ep1.pt");
    contract_names_free(&found);
    // Emptied folders go, the bucket stays.
    contract_ok(ckpt_store_remove(s, "run 1/ep1.pt"));
    assert_string_equal(util_list(bucket), "other.txt\n");
    contract_ok(ckpt_store_remove(s, "other.txt"));
    assert_true(util_exists(bucket));
    ckpt_store_close(s);
}

// Checksum and mark belong to the bytes that they were made for.
static void test_note(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_store *s = open_folder(dir);
    ckpt__transfer t = contract_transfer();
    ckpt__store_stat st, again;
    contract_ok(contract_put(s, "x", "hello", 5, true, "00112233445566778899aabbccddeeff", &t));
    contract_ok(ckpt__store_run_stat(s, "x", &st, &t));
    if (!st.has_crc) { ckpt_store_close(s); util_skip("this file system keeps no attributes"); }
    assert_int_equal(st.crc, ckpt__digest_crc32(0, "hello", 5));
    assert_string_equal(st.mark, "00112233445566778899aabbccddeeff");
    contract_ok(ckpt__store_run_stat(s, "x", &again, &t));
    assert_string_equal(st.etag, again.etag);
    usleep(20000);
    int fd = open(util_join(dir, "x"), O_WRONLY);
    assert_int_equal(pwrite(fd, "J", 1, 0), 1);
    close(fd);
    contract_ok(ckpt__store_run_stat(s, "x", &again, &t));
    assert_false(again.has_crc);
    assert_string_equal(again.mark, "");
    assert_string_not_equal(st.etag, again.etag);
    assert_true(contract_holds(s, "x", "Jello", 5));
    // A checksum that is wrong although nobody wrote: the medium lied, and the reader is told.
    contract_ok(contract_put(s, "x", "hello", 5, true, NULL, &t));
    struct stat before;
    assert_int_equal(stat(util_join(dir, "x"), &before), 0);
    fd = open(util_join(dir, "x"), O_WRONLY);
    assert_int_equal(pwrite(fd, "J", 1, 0), 1);
    struct timespec times[2] = { before.st_atim, before.st_mtim };
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    const char *to = util_join(dir, "to");
    contract_is(ckpt_store_get(s, "x", to, false), CKPT_CORRUPT);
    assert_false(util_exists(to));
    ckpt_store_close(s);
}

static void test_links(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *bucket = util_join(dir, "bucket"), *outside = util_join(dir, "outside"), *to = util_join(dir, "to");
    util_mkdir(bucket);
    util_mkdir(outside);
    util_mkdir(util_join(bucket, "real"));
    util_write_text(util_join(outside, "secret"), "secret");
    util_write_text(util_join(bucket, "real/file"), "inside");
    assert_int_equal(symlink("../outside", util_join(bucket, "out")), 0);
    assert_int_equal(symlink("../outside/secret", util_join(bucket, "leak")), 0);
    assert_int_equal(symlink(".", util_join(bucket, "loop")), 0);
    assert_int_equal(symlink("real", util_join(bucket, "in")), 0);
    assert_int_equal(symlink("real/file", util_join(bucket, "latest")), 0);
    assert_int_equal(symlink("nowhere", util_join(bucket, "dangling")), 0);
    ckpt_store *s = open_folder(bucket);
    uint64_t size;
    contract_is(ckpt_store_get(s, "leak", to, false), CKPT_AUTH);
    contract_is(ckpt_store_get(s, "out/secret", to, false), CKPT_AUTH);
    contract_is(ckpt_store_size(s, "out/secret", &size), CKPT_AUTH);
    contract_is(ckpt_store_put(s, "out/new", util_join(outside, "secret"), false), CKPT_AUTH);
    contract_is(ckpt_store_put(s, "out/new/er", util_join(outside, "secret"), false), CKPT_AUTH);
    contract_is(ckpt_store_remove(s, "out/secret"), CKPT_AUTH);
    assert_string_equal(util_list(outside), "secret\n");
    contract_is(ckpt_store_size(s, "dangling", &size), CKPT_NOT_FOUND);
    assert_true(contract_holds(s, "latest", "inside", 6));      // within the bucket links are as good as files
    assert_true(contract_holds(s, "in/file", "inside", 6));
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    assert_int_equal(found.count, 1);
    assert_string_equal(found.names[0], "real/file");
    contract_names_free(&found);
    // A put over a link replaces the link; a remove removes it.
    contract_is(ckpt_store_put(s, "leak", util_join(bucket, "real/file"), false), CKPT_EXISTS);
    contract_ok(ckpt_store_put(s, "leak", util_join(bucket, "real/file"), true));
    assert_string_equal(util_read(util_join(outside, "secret"), NULL), "secret");
    assert_null(util_link_target(util_join(bucket, "leak")));
    contract_ok(ckpt_store_remove(s, "latest"));
    assert_true(util_exists(util_join(bucket, "real/file")));
    ckpt_store_close(s);
    // A bucket that is a link itself is what it leads to.
    assert_int_equal(symlink("bucket", util_join(dir, "alias")), 0);
    s = open_folder(util_join(dir, "alias"));
    assert_true(contract_holds(s, "in/file", "inside", 6));
    ckpt_store_close(s);
}

static void test_hidden(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_store *s = open_folder(dir);
    const char *file = contract_file("x", 1);
    contract_is(ckpt_store_put(s, ".ckpt-upload-00112233445566778899aabbccddeeff/x", file, true), CKPT_ARG);
    contract_is(ckpt_store_put(s, "a/.ckpt-upload-x", file, true), CKPT_ARG);
    contract_is(ckpt_store_put(s, "a/.b.123-0123456789abcdef01234567.tmp", file, true), CKPT_ARG);
    assert_string_equal(util_list(dir), "");
    // A file or a folder in the way.
    contract_ok(ckpt_store_put(s, "file", file, true));
    contract_is(ckpt_store_put(s, "file/below", file, true), CKPT_IO);
    contract_is(ckpt_store_put(s, "file/below", file, false), CKPT_IO);
    contract_ok(ckpt_store_put(s, "folder/below", file, true));
    contract_is(ckpt_store_put(s, "folder", file, true), CKPT_IO);
    contract_is(ckpt_store_put(s, "folder", file, false), CKPT_IO);
    contract_is(ckpt_store_put(s, "of_a_folder", util_temp_dir(), true), CKPT_ARG);     // as ckpt_put_file and ckpt_upload_file have it
    assert_non_null(strstr(ckpt_last_error(), "is a folder, not a file"));
    assert_true(contract_holds(s, "folder/below", "x", 1));
    // Uploads with ids that no store made.
    contract_multi c;
    memset(&c, 0, sizeof c);
    ckpt__transfer t = contract_transfer();
    c.m.name = "file";
    c.m.t = &t;
    static const char *const ids[] = { "", "x", "../../etc", "0011223344556677/../9aabbccddeeff", "00112233445566778899AABBCCDDEEFF" };
    for (int i = 0; i < UTIL_COUNT(ids); i++) {
        c.m.upload_id = ids[i];
        contract_is(ckpt__store_run_abort(s, &c.m), CKPT_ARG);
        contract_is(ckpt__store_run_complete(s, &c.m), CKPT_ARG);
    }
    // A pipe is no object, and nobody waits for its writer.
    uint64_t size;
    assert_int_equal(mkfifo(util_join(dir, "pipe"), 0666), 0);
    contract_is(ckpt_store_size(s, "pipe", &size), CKPT_NOT_FOUND);
    ckpt_store_close(s);
}

static ckpt_err give_up(const char *name, const char *id, double started, void *user) {
    assert_true(started > 1.6e9);
    return ckpt_store_abort_upload((ckpt_store *)user, name, id);
}

// Killed at any instant, a put leaves the old object or the new one, whole, and an upload in parts can be found and given up.
static void test_kill(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_store *s = the_contract.store = open_folder(dir);
    unsigned char *one = contract_bytes(400000, 40), *two = contract_bytes(700000, 41);
    contract_put_ok("x", one, 400000);
    for (int round = 0; round < 25; round++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            ckpt_store *mine = the_contract.store = open_folder(dir);
            for (int i = 0;; i++) {
                ckpt__transfer t = contract_transfer();
                if (contract_put(mine, "x", i % 2 == 0 ? two : one, i % 2 == 0 ? 700000 : 400000, true, NULL, &t) != CKPT_OK) _exit(1);
                contract_multi c;
                contract_begin(&c, "parts", NULL, true);
                for (int k = 1; k <= 4; k++) if (contract_send_part(&c, k) != CKPT_OK) _exit(1);
                contract_all(&c);
                if (ckpt__store_run_complete(mine, &c.m) != CKPT_OK) _exit(1);
            }
        }
        usleep((useconds_t)(round * 1700 % 23000));
        kill(pid, SIGKILL);
        int status = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        assert_true(WIFSIGNALED(status));
        assert_true(contract_holds(s, "x", one, 400000) || contract_holds(s, "x", two, 700000));
        uint64_t size = 0;
        ckpt_err e = ckpt_store_size(s, "parts", &size);
        assert_true(e == CKPT_NOT_FOUND || (e == CKPT_OK && size == contract_part_size() * 3 + 12345));
        contract_ok(ckpt_store_uploads(s, "", give_up, s));
        assert_null(strstr(util_list(dir), ".ckpt-upload"));
    }
    const char *big = util_join(util_temp_dir(), "big");
    util_write_text(big, "x");
    assert_int_equal(truncate(big, 65 << 20), 0);
    contract_ok(ckpt_store_put(s, "swept", big, false));
    assert_null(strstr(util_list(dir), ".tmp"));
    ckpt_store_close(s);
}

// A killed process leaves its hidden file; the next big put beside it takes it away.
static void test_sweep(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    const char *litter = util_fmt("%s/.ep1.pt.%s", dir, util_temp_tail((int)pid));
    const char *live = util_fmt("%s/.ep1.pt.%s", dir, util_temp_tail((int)getpid()));
    util_write_text(litter, "left");
    util_write_text(live, "mine");
    ckpt_store *s = open_folder(dir);
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    assert_int_equal(found.count, 0);
    const char *big = util_join(util_temp_dir(), "big");
    util_write_text(big, "x");
    assert_int_equal(truncate(big, 65 << 20), 0);
    contract_ok(ckpt_store_put(s, "ep2.pt", big, false));
    assert_false(util_exists(litter));
    assert_true(util_exists(live));
    ckpt_store_close(s);
    // The first put into a folder looks whatever its size, later ones do not.
    const char *small = util_join(util_temp_dir(), "small");
    util_write_text(small, "x");
    util_write_text(litter, "left");
    s = open_folder(dir);
    contract_ok(ckpt_store_put(s, "ep3.pt", small, false));
    assert_false(util_exists(litter));
    util_write_text(litter, "left");
    contract_ok(ckpt_store_put(s, "ep4.pt", small, false));
    assert_true(util_exists(litter));
    ckpt_store_close(s);
}

// What an upload in parts damages or loses is found before the object is there.
static void test_parts_damaged(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_store *s = the_contract.store = open_folder(dir);
    the_contract.prefix = NULL;
    for (int kind = 0; kind < 5; kind++) {
        contract_multi c;
        contract_begin(&c, "p", NULL, true);
        for (int i = 1; i <= 4; i++) if (kind != 0 || i != 2) contract_ok(contract_send_part(&c, i));
        const char *inner = util_fmt("%s/.ckpt-upload-%s/p", dir, c.m.upload_id);
        contract_all(&c);
        if (kind == 0) (void)contract_send_part;                                // part 2 was never sent
        if (kind == 1) util_write_text(util_fmt("%s/part-3", inner), "nonsense");
        if (kind == 2) snprintf(c.part[1].etag, sizeof c.part[1].etag, "other");
        if (kind == 3) c.m.part_count = 3;
        if (kind == 4) c.m.crc ^= 1;
        contract_is(ckpt__store_run_complete(s, &c.m), CKPT_CORRUPT);
        assert_false(util_exists(util_join(dir, "p")));
        contract_ok(ckpt__store_run_abort(s, &c.m));
        assert_string_equal(util_list(dir), "");
        ckpt__buf_free(&c.id);
    }
    // A part that reaches past the end; parts of files, as the uploader sends them.
    contract_multi c;
    contract_begin(&c, "q", NULL, true);
    ckpt__store_part part;
    memset(&part, 0, sizeof part);
    part.number = 1;
    ckpt__body b = contract_memory(c.p, c.size);
    b.offset = 1;
    b.size = c.size;
    contract_is(ckpt__store_run_part(s, &c.m, &b, &part), CKPT_ARG);
    const char *path = contract_file(c.p, c.size);
    b.memory = NULL;
    b.path = path;
    b.fd = open(path, O_RDONLY);
    for (int i = 0; i < 4; i++) {
        b.offset = (uint64_t)i * c.unit;
        b.size = i == 3 ? c.size - 3 * c.unit : c.unit;
        memset(&c.part[i], 0, sizeof c.part[i]);
        c.part[i].number = i + 1;
        contract_ok(ckpt__store_run_part(s, &c.m, &b, &c.part[i]));
    }
    close(b.fd);
    contract_all(&c);
    contract_ok(ckpt__store_run_complete(s, &c.m));
    assert_true(contract_holds(s, "q", c.p, c.size));
    assert_string_equal(util_list(dir), "q\n");
    ckpt__buf_free(&c.id);
    ckpt_store_close(s);
}

// Uploads that were left behind are found and given up by the public functions.
static void test_uploads(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt_store *s = the_contract.store = open_folder(dir);
    contract_multi a, b, c;
    contract_begin(&a, "run/one", NULL, true);
    contract_begin(&b, "run/one", NULL, true);
    contract_begin(&c, "two", NULL, true);
    contract_ok(contract_send_part(&b, 2));
    contract_uploads seen;
    memset(&seen, 0, sizeof seen);
    seen.name = "run/one";
    contract_ok(ckpt_store_uploads(s, NULL, contract_note_upload, &seen));
    assert_int_equal(seen.count, 2);
    seen.count = 0;
    contract_ok(ckpt_store_uploads(s, "tw", contract_note_upload, &seen));
    assert_int_equal(seen.count, 0);
    contract_ok(ckpt_store_uploads(s, "run/", give_up, s));
    assert_true(strncmp(util_list(dir), ".ckpt-upload-", 13) == 0 && strstr(util_list(dir), "run") == NULL);
    contract_ok(ckpt_store_uploads(s, "", give_up, s));
    assert_string_equal(util_list(dir), "");
    ckpt__buf_free(&a.id);
    ckpt__buf_free(&b.id);
    ckpt__buf_free(&c.id);
    ckpt_store_close(s);
}

// A source that shrinks or changes is never taken for whole.
static void test_source_changes(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = contract_file("0123456789", 10);
    ckpt_store *s = open_folder(dir);
    ckpt__transfer t = contract_transfer();
    ckpt__body b;
    ckpt__store_put put;
    memset(&b, 0, sizeof b);
    memset(&put, 0, sizeof put);
    b.fd = open(path, O_RDONLY);
    b.path = path;
    b.size = 20;
    put.name = "x";
    put.body = &b;
    put.t = &t;
    contract_is(ckpt__store_run_put(s, &put), CKPT_CORRUPT);
    assert_string_equal(util_list(dir), "");
    close(b.fd);
    contract_is(ckpt_store_put(s, "x", util_join(dir, "none"), true), CKPT_NOT_FOUND);
    contract_is(ckpt_store_put(s, "x", dir, true), CKPT_ARG);
    ckpt_store_close(s);
}

static const char *custom_source;

static ckpt_err put_and_change(const char *name, const char *file_path, bool overwrite, void *user) {
    struct timespec times[2];
    struct stat st;
    ckpt_err e = memory_put(name, file_path, overwrite, user);
    if (custom_source == NULL) return e;
    assert_int_equal(stat(custom_source, &st), 0);
    util_flip(custom_source, 1, 1);
    times[0] = times[1] = st.st_mtim;
    times[1].tv_sec += 5;
    assert_int_equal(utimensat(AT_FDCWD, custom_source, times, 0), 0);
    return e;
}

// A custom store reads the file by itself: that it was written to meanwhile, and kept its length, is told afterwards.
static void test_custom_source_changes(void **state) {
    (void)state;
    const char *file = contract_file("0123456789", 10);
    ckpt_store_ops ops;
    ckpt_store *s = open_memory(false, false);
    ckpt_store_close(s);
    memset(&ops, 0, sizeof ops);
    ops.put = put_and_change;
    ops.get = memory_get;
    ops.size = memory_size;
    ops.close = memory_close;
    contract_ok(ckpt_store_custom(&s, &ops, &the_memory));
    custom_source = NULL;
    contract_ok(ckpt_store_put(s, "a", file, false));
    custom_source = file;
    contract_is(ckpt_store_put(s, "b", file, false), CKPT_CORRUPT);
    assert_non_null(strstr(ckpt_last_error(), "it was written to, and what the store has may be partly the old file"));
    ckpt_store_close(s);
}

//-- progress of the public calls --------------------------------------------------

typedef struct seen_progress { pthread_t thread; int calls, finished; uint64_t last, total; bool fell, elsewhere; const char *phase; ckpt_err e; int attempt; } seen_progress;

static void see_progress(const ckpt_progress *p, void *user) {
    seen_progress *s = (seen_progress *)user;
    s->calls++;
    s->finished += p->finished;
    if (p->done < s->last || p->done > p->total) s->fell = true;
    if (!pthread_equal(pthread_self(), s->thread)) s->elsewhere = true;
    s->last = p->done;
    s->total = p->total;
    s->phase = p->phase;
    s->e = p->err;
    s->attempt = p->attempt;
    assert_string_equal(p->name, "big");
}

static void test_progress_hook(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *big = util_join(dir, "source");
    unsigned char *p = contract_bytes(20 << 20, 50);
    for (int i = 0; i < 20; i++) {
        int fd = open(big, O_WRONLY | O_CREAT | O_APPEND, 0666);
        assert_int_equal(write(fd, p, 20 << 20), 20 << 20);
        close(fd);
    }
    ckpt_store_desc d;
    seen_progress seen;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    d.progress.fn = see_progress;
    d.progress.user = &seen;
    contract_ok(ckpt_store_open(&s, util_fmt("file://%s/b", dir), &d));
    for (int i = 0; i < 4; i++) {
        memset(&seen, 0, sizeof seen);
        seen.thread = pthread_self();
        ckpt_err e = i == 0 ? ckpt_store_put(s, "big", big, false) : i == 1 ? ckpt_store_get(s, "big", util_join(dir, "back"), false)
                   : i == 2 ? ckpt_store_put(s, "big", big, false) : ckpt_store_get(s, "big", util_join(dir, "back"), false);
        assert_int_equal(e, i < 2 ? CKPT_OK : CKPT_EXISTS);
        assert_int_equal(seen.finished, 1);
        assert_false(seen.fell || seen.elsewhere);
        assert_int_equal(seen.e, e);
        assert_string_equal(seen.phase, i % 2 == 0 ? "upload" : "download");
        assert_int_equal(seen.attempt, 1);
        if (i < 2) assert_true(seen.last == (uint64_t)400 << 20 && seen.total == seen.last);
    }
    assert_non_null(strstr(ckpt_last_error(), "exists"));
    ckpt_store_close(s);
}

// A store that cannot be reached at the first try, and keeps nothing.
static bool was_tried;

static ckpt_err reach(void) {
    was_tried = !was_tried;
    return was_tried ? ckpt_set_error(CKPT_NET, "no answer") : CKPT_OK;
}

static ckpt_err shaky_put(const char *name, const char *path, bool overwrite, void *user) {
    (void)name, (void)path, (void)overwrite, (void)user;
    return reach();
}

static ckpt_err shaky_get(const char *name, const char *destination, void *user) {
    (void)name, (void)user;
    ckpt_err e = reach();
    if (e == CKPT_OK) util_write_text(destination, "text");
    return e;
}

static ckpt_err shaky_size(const char *name, uint64_t *size, void *user) {
    (void)name, (void)user;
    *size = 4;
    return CKPT_OK;
}

// The hook is told how often the request was tried.
static void test_progress_attempts(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "source");
    seen_progress seen;
    ckpt_store_ops ops;
    ckpt_store *s = NULL;
    memset(&ops, 0, sizeof ops);
    ops.put = shaky_put;
    ops.get = shaky_get;
    ops.size = shaky_size;
    contract_ok(ckpt_store_custom(&s, &ops, NULL));
    s->progress.fn = see_progress;              // a custom store is given none
    s->progress.user = &seen;
    util_write_text(path, "text");
    for (int i = 0; i < 2; i++) {
        memset(&seen, 0, sizeof seen);
        seen.thread = pthread_self();
        contract_ok(i == 0 ? ckpt_store_put(s, "big", path, true) : ckpt_store_get(s, "big", util_join(dir, "back"), false));
        assert_int_equal(seen.finished, 1);
        assert_int_equal(seen.attempt, 2);
    }
    ckpt_store_close(s);
}

// A store's settings that nobody has set up are refused wherever they are given, before a text of theirs is read.
static void test_wrong_store_desc(void) {
    static const double stalls[] = { -1.0, 0.0, 0.0 };
    static float w[1];
    for (int i = 0; i < 3; i++) {
        ckpt_store_desc sd;
        ckpt_load_desc load;
        ckpt_saver_desc save;
        ckpt_uploader_desc up;
        ckpt_state st;
        ckpt_saver *s = NULL;
        ckpt_uploader *u = NULL;
        memset(&sd, 0, sizeof sd);
        memset(&load, 0, sizeof load);
        memset(&save, 0, sizeof save);
        memset(&up, 0, sizeof up);
        memset(&st, 0, sizeof st);
        if (i == 1) memset(&sd, 0xa5, sizeof sd);
        sd.stall_timeout_s = i == 2 ? (double)NAN : stalls[i];
        ckpt_bind_f32(&st, "state/w", w, 1);
        load.load_path = "file:///nowhere/x.pt";
        load.state = save.state = &st;
        save.folder = util_fmt("file://%s/run", util_temp_dir());
        up.bucket_uri = util_fmt("file://%s", util_temp_dir());
        load.store_desc = save.store_desc = up.store_desc = &sd;
        contract_is(ckpt_load(&load, NULL), CKPT_ARG);
        contract_is(ckpt_saver_open(&s, &save), CKPT_ARG);
        contract_is(ckpt_uploader_open(&u, &up), CKPT_ARG);
        ckpt_state_free(&st);
    }
}

//-- URIs --------------------------------------------------------------------------

static void test_open(void **state) {
    (void)state;
    ckpt_store *s = NULL;
    static const struct { const char *uri; ckpt_err e; const char *word; } rows[] = {
        { "file://host/x", CKPT_ARG, "another machine" }, { "file://", CKPT_ARG, "file:///folder" }, { "file:///a%00b", CKPT_ARG, "%" },
        { "file:///a%2", CKPT_ARG, "escape" }, { "file:///a?b", CKPT_ARG, "%3F" }, { "file:///a#b", CKPT_ARG, "%23" },
        { "folder/x", CKPT_ARG, "file:///" }, { "/folder", CKPT_ARG, "file:///" }, { "", CKPT_ARG, "URI" }, { "C:/x", CKPT_ARG, "URI" },
        { "gs://b/p", CKPT_UNSUPPORTED, "Google" }, { "oci://b", CKPT_UNSUPPORTED, "Oracle" }, { "azure://c/p", CKPT_UNSUPPORTED, "Azure" },
        { "AZURE_BLOBS://c/p", CKPT_UNSUPPORTED, "Azure" }, { "http://h/p", CKPT_UNSUPPORTED, "a web server, which this library does not read; fetch" },
        { "https://h/p", CKPT_UNSUPPORTED, "a web server, which this library does not read; fetch" },
        { "wandb://x/y", CKPT_UNSUPPORTED, "Weights" }, { "libcloud://c/x", CKPT_UNSUPPORTED, "Libcloud" }, { "hf://m/x", CKPT_UNSUPPORTED, "Hugging" },
        { "mlflow-artifacts://x", CKPT_UNSUPPORTED, "MLflow" }, { "dbfs:/Volumes/a/b/c/d", CKPT_UNSUPPORTED, "Databricks" },
        { "ms://b/x", CKPT_UNSUPPORTED, "ms://" }, { "foo://user:hunter2@host/x", CKPT_UNSUPPORTED, "foo://" },
#ifdef CKPT_NO_REMOTE
        { "s3://b/p", CKPT_UNSUPPORTED, "without the network" }, { "S3://B/p", CKPT_UNSUPPORTED, "without the network" },
        { "sftp://user:hunter2@host/p", CKPT_UNSUPPORTED, "without the network" },
#endif
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        s = (ckpt_store *)&s;
        ckpt_err e = ckpt_store_open(&s, rows[i].uri, NULL);
        if (e != rows[i].e || strstr(ckpt_last_error(), rows[i].word) == NULL || s != NULL)
            fail_msg("'%s': %s '%s'", rows[i].uri, ckpt_err_name(e), ckpt_last_error());
        assert_null(strstr(ckpt_last_error(), "hunter2"));
    }
    contract_is(ckpt_store_open(NULL, "file:///x", NULL), CKPT_ARG);
    contract_is(ckpt_store_open(&s, NULL, NULL), CKPT_ARG);
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d._canary = 1;
    contract_is(ckpt_store_open(&s, "file:///x", &d), CKPT_ARG);
    d._canary = 0;
    d.stall_timeout_s = -1;
    contract_is(ckpt_store_open(&s, "file:///x", &d), CKPT_ARG);
    test_wrong_store_desc();
    ckpt_store_close(NULL);
    static const char *const same[] = { "file://%s", "FILE://%s/", "file://localhost%s", "file://%s//", "file://%s/%%2E" };
    const char *dir = util_temp_dir();
    util_write_text(util_join(dir, "there"), "yes");
    for (int i = 0; i < UTIL_COUNT(same); i++) {
        char uri[600];
        char *at = strstr(same[i], "%s") != NULL ? util_fmt("%.*s", (int)(strstr(same[i], "%s") - same[i]), same[i]) : NULL;
        snprintf(uri, sizeof uri, "%s%s%s", at, dir, i == 3 ? "//" : i == 4 ? "/%2E" : i == 1 ? "/" : "");
        s = open_uri(uri);
        assert_true(contract_holds(s, "there", "yes", 3));
        ckpt_store_close(s);
    }
}

// What may be a secret is left out of sentences: a password, a token for a user, all that stands behind the path.
static void test_shown(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        { "azure://c/p/a.pt?sv=2020&sig=SECRET", "azure://c/p/a.pt?..." }, { "azure://c@account/p#SECRET", "azure://c@account/p#..." },
        { "s3://b?X-Amz-Signature=SECRET", "s3://b?..." }, { "wandb://SECRET@e/p?key=SECRET", "wandb://***@e/p?..." },
        { "dbfs:/Volumes/a/b/c/d?token=SECRET", "dbfs:/Volumes/a/b/c/d?..." }, { "file:///x?SECRET#1", "file:///x?..." },
        { "https://h/x?sig=SECRET", "https://h/x?..." }, { "https://SECRET@h/x", "https://***@h/x" }, { "hf://SECRET@a/b", "hf://***@a/b" },
        { "hf://org/repo@main/x", "hf://org/repo@main/x" }, { "ms://SECRET@b/x", "ms://***@b/x" }, { "sftp://user@h/x", "sftp://user@h/x" },
        { "oci://b@space/x", "oci://b@space/x" }, { "sftp://u:SECRET/1@h/x", "sftp://u:***@h/x" }, { "sftp://u:SECRET?1@h/x", "sftp://u:***?..." },
        { "sftp://[::1]:2/x", "sftp://[::1]:2/x" }, { "libcloud://c/x?provider=S3", "libcloud://c/x?..." }, { "run#1/a?b", "run#1/a?b" },
    };
    char shown[768];
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__stores_shown(shown, sizeof shown, rows[i][0]);
        assert_string_equal(shown, rows[i][1]);
    }
    static const char *const uris[] = { "file:///x?sig=hunter2", "azure://c/a.pt?sig=hunter2", "s3://b/a.pt#hunter2", "hf://hunter2@a/b", "file://hunter2@h/x",
                                        "ms://b/x?sig=hunter2", "s3:/b/x?sig=hunter2", "file://h:hunter2?@x/a", "file:///%?hunter2" };
    const char *dir = util_temp_dir(), *from = util_join(dir, "from"), *to = util_join(dir, "to");
    util_write_text(from, "x");
    assert_int_equal(chdir(dir), 0);
    for (int i = 0; i < UTIL_COUNT(uris); i++) {
        bool uri = strstr(uris[i], "://") != NULL;
        ckpt_state st;
        ckpt_load_desc load;
        ckpt_saver_desc save;
        ckpt_uploader_desc up;
        ckpt_store *s = NULL;
        ckpt_saver *saver = NULL;
        ckpt_uploader *u = NULL;
        float w[1];
        memset(&st, 0, sizeof st);
        memset(&load, 0, sizeof load);
        memset(&save, 0, sizeof save);
        memset(&up, 0, sizeof up);
        ckpt_bind_f32(&st, "state/w", w, 1);
        load.load_path = save.folder = up.bucket_uri = uris[i];
        load.state = save.state = &st;
        for (int k = uri ? 0 : 5; k < 6; k++) {
            ckpt_err e = k == 0 ? ckpt_store_open(&s, uris[i], NULL) : k == 1 ? ckpt_put_file(from, uris[i], true) :
                         k == 2 ? ckpt_get_file(uris[i], to, true) : k == 3 ? ckpt_load(&load, NULL) :
                         k == 4 ? ckpt_uploader_open(&u, &up) : ckpt_saver_open(&saver, &save);
            assert_int_not_equal(e, CKPT_OK);
            if (strstr(ckpt_last_error(), "hunter2") != NULL) fail_msg("%d: %s", k, ckpt_last_error());
        }
        ckpt_state_free(&st);
    }
}

// Composer's table of what a URI becomes: what it knows and this build does not is refused with a sentence; what it does not know as well.
static void test_store_from_uri(void **state) {
    (void)state;
    util_table t = cases_tsv("store_from_uri.tsv");
    for (int r = 0; r < t.rows; r++) {
        const char *uri = cases_text(&t, r, "uri"), *kind = cases_text(&t, r, "store");
        ckpt_store *s = NULL;
        ckpt_err e = ckpt_store_open(&s, uri, NULL);
        if (strcmp(kind, "none (local)") == 0) {
            assert_int_equal(e, CKPT_ARG);
            assert_false(ckpt__stores_is_uri(uri));
            continue;
        }
        assert_true(ckpt__stores_is_uri(uri));
        bool ours = strcmp(kind, "S3ObjectStore") == 0 || strncmp(uri, "sftp://", 7) == 0;      // sftp is repaired: Composer's own URI is refused
#ifdef CKPT_NO_REMOTE
        ours = false;
#endif
        if (!ours && e != CKPT_UNSUPPORTED) fail_msg("%s: %s", uri, ckpt_err_name(e));
        if (ours && e != CKPT_OK) fail_msg("%s: %s", uri, ckpt_last_error());
        ckpt_store_close(s);
    }
}

// What a download is to be called is no folder, and not empty.
static void test_destinations(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *object = util_fmt("file://%s/bucket/o", dir), *from = util_join(dir, "from");
    util_write_text(from, "x");
    ckpt_store *s = open_folder(util_join(dir, "bucket"));
    contract_ok(ckpt_store_put(s, "o", from, false));
    ckpt_uploader *u = NULL;
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.store = s;
    contract_ok(ckpt_uploader_open(&u, &d));
    const char *const bad[] = { "", util_fmt("%s/new/", dir) };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        contract_is(ckpt_store_get(s, "o", bad[i], true), CKPT_ARG);
        contract_is(ckpt_download_file(u, "o", bad[i], true), CKPT_ARG);
        contract_is(ckpt_get_file(object, bad[i], true), CKPT_ARG);
        contract_is(ckpt_get_file(from, bad[i], true), CKPT_ARG);
    }
    assert_false(util_exists(util_join(dir, "new")));
    ckpt_convert_desc c;
    memset(&c, 0, sizeof c);
    c.from = from;
    c.to = "";
    contract_is(ckpt_convert(&c), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "is empty"));
    contract_ok(ckpt_uploader_close(u, 0));
    ckpt_store_close(s);
}

static void test_split(void **state) {
    (void)state;
    static const struct { const char *uri, *store, *name; } rows[] = {
        { "s3://b/a/b/c.pt", "s3://b/", "a/b/c.pt" }, { "S3://B/x", "S3://B/", "x" }, { "file:///a/b/c.pt", "file:///a/b/", "c.pt" },
        { "file:///c.pt", "file:///", "c.pt" }, { "file:///a%20b/c%25.pt", "file:///a%20b/", "c%.pt" }, { "sftp://u@h:22/d/c.pt", "sftp://u@h:22/d/", "c.pt" },
        { "sftp://h//abs/c.pt", "sftp://h//abs/", "c.pt" }, { "s3://b", NULL, NULL }, { "s3://b/", NULL, NULL }, { "file:///a/", NULL, NULL },
        { "local/x", NULL, NULL }, { "file:///a/x%2", NULL, NULL }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt__buf store, name;
        ckpt__buf_init(&store, NULL);
        ckpt__buf_init(&name, NULL);
        ckpt_err e = ckpt__stores_split(rows[i].uri, &store, &name);
        if (rows[i].store == NULL) {
            assert_int_equal(e, CKPT_ARG);
        } else {
            contract_ok(e);
            assert_string_equal(store.data, rows[i].store);
            assert_string_equal(name.data, rows[i].name);
        }
        ckpt__buf_free(&store);
        ckpt__buf_free(&name);
    }
}

//-- memory ------------------------------------------------------------------------

typedef struct counted { int calls, fail_at; long live; } counted;

static void *counted_alloc(void *p, size_t old_size, size_t new_size, void *user) {
    counted *c = (counted *)user;
    (void)old_size;
    if (new_size == 0) { if (p != NULL) __atomic_sub_fetch(&c->live, 1, __ATOMIC_SEQ_CST); free(p); return NULL; }
    if (__atomic_add_fetch(&c->calls, 1, __ATOMIC_SEQ_CST) == c->fail_at) return NULL;
    void *q = realloc(p, new_size);
    if (p == NULL && q != NULL) __atomic_add_fetch(&c->live, 1, __ATOMIC_SEQ_CST);
    return q;
}

// Every allocation fails in turn: no leak, no half-done object.
static void test_allocations(void **state) {
    (void)state;
    const char *file = contract_file("some bytes", 10);
    int n = 1;
    for (bool done = false; !done; n++) {
        const char *dir = util_temp_dir(), *to = util_join(dir, "to");
        counted c;
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        memset(&c, 0, sizeof c);
        memset(&d, 0, sizeof d);
        c.fail_at = n;
        d.allocator.fn = counted_alloc;
        d.allocator.user = &c;
        ckpt_err e = ckpt_store_open(&s, util_fmt("file://%s/b", dir), &d);
        uint64_t size;
        contract_names found;
        memset(&found, 0, sizeof found);
        if (e == CKPT_OK) e = ckpt_store_put(s, "a/x", file, false);
        if (e == CKPT_OK) e = ckpt_store_size(s, "a/x", &size);
        if (e == CKPT_OK) e = ckpt_store_list(s, "", contract_note, &found);
        if (e == CKPT_OK) e = ckpt_store_get(s, "a/x", to, false);
        if (e == CKPT_OK) {
            the_contract.store = s;
            contract_multi m;
            memset(&m, 0, sizeof m);
            ckpt__transfer t = contract_transfer();
            ckpt__body b = contract_memory("0123456789", 10);
            ckpt__buf id;
            ckpt__buf_init(&id, NULL);
            contract_parts seen;
            memset(&seen, 0, sizeof seen);
            contract_uploads open;
            memset(&open, 0, sizeof open);
            open.name = "a/y";
            m.m.name = "a/y";
            m.m.size = 10;
            m.m.t = &t;
            e = ckpt__store_run_begin(s, &m.m, &id);
            m.m.upload_id = ckpt__buf_cstr(&id);
            m.part[0].number = 1;
            if (e == CKPT_OK) e = ckpt__store_run_part(s, &m.m, &b, &m.part[0]);
            if (e == CKPT_OK) e = ckpt__store_run_parts(s, &m.m, contract_note_part, &seen);
            if (e == CKPT_OK) e = ckpt__store_run_uploads(s, "", contract_note_upload, &open, &t);
            m.m.parts = m.part;
            m.m.part_count = 1;
            if (e == CKPT_OK) e = ckpt__store_run_complete(s, &m.m);
            if (e == CKPT_OK) assert_string_equal(util_read(util_join(dir, "b/a/y"), NULL), "0123456789");
            ckpt__buf_free(&id);
        }
        if (e == CKPT_OK) e = ckpt_store_remove(s, "a/x");
        done = c.calls < c.fail_at;
        if (!done && e != CKPT_OK && e != CKPT_NOMEM) fail_msg("allocation %d: %s: %s", n, ckpt_err_name(e), ckpt_last_error());
        if (done) contract_ok(e);
        ckpt_store_close(s);
        contract_names_free(&found);
        if (c.live != 0) fail_msg("allocation %d: %ld blocks are left", n, c.live);
        if (e != CKPT_OK) assert_null(strstr(util_list(util_join(dir, "b/a")), ".tmp"));
        assert_true(n < 500);
    }
    print_message("%d allocations\n", n - 2);
}

//-- Composer's contract -----------------------------------------------------------

#define BY_CONTRACT(test) "store_contract.h contract_test_" test

static const cases_row contract_rows[] = {
    { "upload then size", BY_CONTRACT("put") },
    { "upload with callback", BY_CONTRACT("progress") },
    { "size of a missing object", BY_CONTRACT("missing") },
    { "download to a fresh path", BY_CONTRACT("get") },
    { "download again, overwrite=False", BY_CONTRACT("get") },
    { "download again, overwrite=True", BY_CONTRACT("get") },
    { "download a missing object", BY_CONTRACT("missing") },
    { "100 threads, one store each, missing key", BY_CONTRACT("threads") },         // 32 of them, on one store
    { "gcs list prefix path/to", BY_CONTRACT("list") },
    { "gcs list unknown prefix", BY_CONTRACT("list") },
    { "gcs size", "test_gcs.c test_stat" },
    { "gcs upload", "test_gcs.c test_put" },
    { "gcs download, file exists", BY_CONTRACT("get") },
    { "gcs download, foreign error", "test_gcs.c test_refusals" },
    { "uc size", "test_uc.c test_read" },                                           // the object's own, where Composer says 1000000 of each
    { "uc size, NOT_FOUND", "test_uc.c test_missing" },
    { "uc download, NOT_FOUND", "test_uc.c test_missing" },
    { "uc download, any other Databricks error", "test_uc.c test_refusals" },       // tried again is what may pass
    { "uc list nested", "test_uc.c test_list" },
    { "uc list prefix None", "test_uc.c test_list" },
    { "uc without DATABRICKS_HOST/DATABRICKS_TOKEN", "test_uc.c test_settings" },
    { "mlflow with MLFLOW_TRACKING_URI other than databricks", "test_mlflow.c test_settings" },
    { "mlflow run id given, experiment id placeholder", "test_mlflow.c test_settings" },
    { "mlflow size of dir1/a.txt", "test_mlflow.c test_proxy" },
    { "mlflow size of a directory", "test_mlflow.c test_proxy" },
    { "mlflow upload under another base name", "test_mlflow.c test_proxy" },        // which needs no link for it
    { "libcloud list", BY_CONTRACT("list") },
};

// object_store_contract.json is sentences: each has a test that says it in C.
static void test_contract_rows(void **state) {
    (void)state;
    size_t size;
    char *text = util_read(util_tests_path("cases/object_store_contract.json"), &size);
    ckpt_allocator a = { NULL, NULL };
    ckpt__json_doc d;
    int rows = 0;
    must(ckpt__json_parse(&d, &a, text, size));
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row), rows++)
        cases_elsewhere(contract_rows, UTIL_COUNT(contract_rows), ckpt__json_get(&d, row, "op")->text);
    assert_int_equal(rows, UTIL_COUNT(contract_rows));
    ckpt__json_free(&d);
}

//-- the groups --------------------------------------------------------------------

static const char *contract_dir;

static ckpt_store *another_folder(void *user) {
    (void)user;
    return open_folder(contract_dir);
}

static const struct CMUnitTest contract_tests[] = { CONTRACT_TESTS };

static const struct CMUnitTest own_tests[] = {
    cmocka_unit_test(test_plain_files), cmocka_unit_test(test_note), cmocka_unit_test(test_links), cmocka_unit_test(test_hidden),
    cmocka_unit_test(test_kill), cmocka_unit_test(test_sweep), cmocka_unit_test(test_parts_damaged), cmocka_unit_test(test_uploads), cmocka_unit_test(test_source_changes),
    cmocka_unit_test(test_progress_hook), cmocka_unit_test(test_progress_attempts),
    cmocka_unit_test(test_custom_left), cmocka_unit_test(test_custom_failures), cmocka_unit_test(test_custom_source_changes), cmocka_unit_test(test_custom_own_object),
    cmocka_unit_test(test_custom_late), cmocka_unit_test(test_custom_turn),
    cmocka_unit_test(test_custom_turn_cancelled), cmocka_unit_test(test_open),
    cmocka_unit_test(test_shown), cmocka_unit_test(test_store_from_uri), cmocka_unit_test(test_destinations), cmocka_unit_test(test_split), cmocka_unit_test(test_contract_rows),
    cmocka_unit_test(test_allocations)
};

int main(void) {
    bool is_long = util_long();
    util_clear_env();
    contract_dir = util_temp_dir();
    the_contract.store = open_folder(contract_dir);
    the_contract.another = another_folder;
    the_contract.prefix = "contract/";
    the_contract.is_folder = true;
    the_contract.many = 1500;
    the_contract.sparse = is_long ? ((uint64_t)5 << 30) + 1 : (uint64_t)300 << 20;
#ifdef UTIL_TSAN
    the_contract.many = 200;
    the_contract.sparse = (uint64_t)40 << 20;
#endif
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    contract_put(the_contract.store, "probe", "x", 1, true, "0", &t);
    the_contract.no_marks = ckpt__store_run_stat(the_contract.store, "probe", &st, &t) != CKPT_OK || st.mark[0] == 0;
    (void)!ckpt_store_remove(the_contract.store, "probe");
    int failed = cmocka_run_group_tests_name("file://", contract_tests, NULL, NULL);
    ckpt_store_close(the_contract.store);
    memset(&the_contract, 0, sizeof the_contract);
    the_contract.store = open_memory(false, false);
    the_contract.prefix = "c/";
    the_contract.no_marks = the_contract.no_crc = the_contract.no_cancel = true;
    the_contract.many = 300;
    failed += cmocka_run_group_tests_name("custom", contract_tests, NULL, NULL);
    ckpt_store_close(the_contract.store);
    the_contract.store = open_memory(true, true);
    the_contract.no_list = the_contract.no_remove = true;
    failed += cmocka_run_group_tests_name("custom, bare", contract_tests, NULL, NULL);
    ckpt_store_close(the_contract.store);
    memset(&the_contract, 0, sizeof the_contract);
    failed += cmocka_run_group_tests_name("store", own_tests, NULL, NULL);
    return failed;
}
