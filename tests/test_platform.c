// Proves >>platform: every function does what its comment says, and with any one of its system calls failing it says so, leaks nothing
// and leaves no half-done work. run.sh: tsan
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"

//-- files -------------------------------------------------------------------------

static void test_read_write(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "a file");
    char src[10000], dst[10000];
    for (size_t i = 0; i < sizeof src; i++) src[i] = (char)(i * 7 / 3);
    int fd;
    size_t got;
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_OK);
    assert_true(fd > 2);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(ckpt__os_allocate(fd, sizeof src, path), CKPT_OK);
    assert_int_equal(ckpt__os_pwrite(fd, src, sizeof src, 0, path), CKPT_OK);
    assert_int_equal(ckpt__os_pwrite(fd, src, 100, 20000, path), CKPT_OK);
    assert_int_equal(ckpt__os_sync(fd, path), CKPT_OK);
    ckpt__os_info info;
    assert_int_equal(ckpt__os_fstat(fd, &info, path), CKPT_OK);
    assert_true(info.is_file && !info.is_dir && !info.is_link && info.links == 1 && info.size == 20100);
    assert_true(fabs(info.mtime - ckpt__os_time()) < 60);
    assert_int_equal(ckpt__os_pread(fd, dst, sizeof dst, 0, &got, path), CKPT_OK);
    assert_int_equal(got, sizeof dst);
    assert_memory_equal(src, dst, sizeof src);
    assert_int_equal(ckpt__os_pread(fd, dst, sizeof dst, 20050, &got, path), CKPT_OK);
    assert_int_equal(got, 50);
    assert_int_equal(ckpt__os_pread(fd, dst, 1, 1u << 30, &got, path), CKPT_OK);
    assert_int_equal(got, 0);
    assert_int_equal(ckpt__os_truncate(fd, 5, path), CKPT_OK);
    assert_int_equal(ckpt__os_close(fd, path), CKPT_OK);
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_EXISTS);
    assert_int_equal(fd, -1);
    assert_int_equal(ckpt__os_open_read(&fd, path), CKPT_OK);
    assert_int_equal(ckpt__os_pwrite(fd, src, 1, 0, path), CKPT_IO);
    assert_int_equal(ckpt__os_pread(fd, dst, 1, UINT64_MAX, &got, path), CKPT_IO);
    assert_int_equal(ckpt__os_pwrite(fd, dst, 1, UINT64_MAX, path), CKPT_NO_SPACE);
    assert_int_equal(ckpt__os_close(fd, path), CKPT_OK);
}

// Of memory nothing is reserved, and what cannot fit is refused all the same.
static void test_room_in_memory(void **state) {
    (void)state;
    struct statvfs room;
    struct stat st;
    const char *path = util_fmt("/dev/shm/ckpt-test-room-%d", (int)getpid());
    int fd;
    if (access("/dev/shm", W_OK) != 0) util_skip("no /dev/shm here");
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_OK);
    assert_int_equal(unlink(path), 0);
    if (!ckpt__os_in_memory(fd)) {
        close(fd);
        util_skip("/dev/shm is no tmpfs here, or this is a machine of 32 bits");
    }
    assert_int_equal(fstatvfs(fd, &room), 0);
    assert_int_equal(ckpt__os_allocate(fd, 1 << 20, path), CKPT_OK);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
    if (room.f_blocks > 0) {
        uint64_t all = (uint64_t)room.f_blocks * room.f_frsize;
        assert_int_equal(ckpt__os_allocate(fd, all + 1, path), CKPT_NO_SPACE);
        assert_string_equal(ckpt_last_error(), util_fmt("cannot reserve space for %s: %s", path, strerror(ENOSPC)));
        fault_arm_call("fstatvfs", ENOSYS, 1);          // who cannot say is believed to have room
        assert_int_equal(ckpt__os_allocate(fd, all + 1, path), CKPT_OK);
        assert_int_equal(fault_disarm(), 1);
    }
    assert_int_equal(ckpt__os_close(fd, path), CKPT_OK);
}

static void test_open_refuses(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *fifo = util_join(dir, "fifo");
    int fd = 0;
    assert_int_equal(ckpt__os_open_read(&fd, dir), CKPT_IO);
    assert_string_equal(ckpt_last_error(), util_fmt("cannot open %s: it is a folder, not a file", dir));
    assert_int_equal(fd, -1);
    assert_int_equal(mkfifo(fifo, 0666), 0);
    assert_int_equal(ckpt__os_open_read(&fd, fifo), CKPT_IO);       // and does not wait for a writer
    assert_int_equal(ckpt__os_open_read(&fd, util_join(dir, "none")), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "none: "));
    util_write_text(util_join(dir, "f"), "x");
    assert_int_equal(ckpt__os_open_read(&fd, util_join(dir, "f/g")), CKPT_NOT_FOUND);
    assert_int_equal(ckpt__os_create(&fd, dir), CKPT_EXISTS);
    assert_int_equal(ckpt__os_create(&fd, util_join(dir, "no/such")), CKPT_NOT_FOUND);
}

// A process without stdin, stdout and stderr must not get one of their numbers.
static void test_low_descriptors(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    pid_t pid = fork();
    if (pid == 0) {
        int fd = -1, fds[2] = { -1, -1 };
        for (int i = 0; i < 3; i++) close(i);
        bool ok = ckpt__os_create(&fd, util_join(dir, "x")) == CKPT_OK && fd > 2 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
        ok = ok && ckpt__os_pipe(fds) == CKPT_OK && fds[0] > 2 && fds[1] > 2 && (fcntl(fds[1], F_GETFD) & FD_CLOEXEC) != 0;
        ok = ok && fcntl(0, F_GETFD) == -1 && fcntl(1, F_GETFD) == -1 && fcntl(2, F_GETFD) == -1;
        const char *argv[] = { "sh", "-c", "cat >&2; exit 3", NULL };
        ckpt__os_child c;
        ok = ok && ckpt__os_write(fds[1], "from the pipe\n", 14, "pipe") == CKPT_OK && ckpt__os_spawn(&c, argv, fds[0], -1) == CKPT_OK;
        close(fds[1]);
        ok = ok && ckpt__os_wait_child(&c) == CKPT_IO && strcmp(ckpt_last_error(), "sh failed with status 3: from the pipe") == 0;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_temp_and_direct(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "d");
    int fd, direct;
    size_t align, got;
    assert_int_equal(ckpt__os_open_temp(&fd, dir), CKPT_OK);
    assert_string_equal(util_list(dir), "");
    assert_int_equal(ckpt__os_pwrite(fd, "abc", 3, 0, "temp"), CKPT_OK);
    assert_int_equal(ckpt__os_close(fd, "temp"), CKPT_OK);
    assert_int_equal(ckpt__os_open_temp(&fd, util_join(dir, "none")), CKPT_NOT_FOUND);
    assert_int_equal(ckpt__os_create(&fd, path), CKPT_OK);
    ckpt_err e = ckpt__os_reopen_direct(&direct, path, true, &align);
    if (e == CKPT_OK) {
        char *page = (char *)ckpt__os_pages(1 << 20);
        assert_non_null(page);
        assert_true(align > 0 && (align & (align - 1)) == 0);
        memset(page, 'p', 1 << 20);
        e = ckpt__os_pwrite(direct, page, 1 << 20, 0, path);
        if (e == CKPT_OK) {
            fault_arm(FAULT_SHORT, 1);      // goes on at an aligned place
            assert_int_equal(ckpt__os_pwrite(direct, page, 1 << 20, 1 << 20, path), CKPT_OK);
            assert_true(fault_disarm());
            assert_int_equal(ckpt__os_pread(fd, page, 1 << 20, 1 << 20, &got, path), CKPT_OK);
            assert_int_equal(got, 1 << 20);
            for (size_t i = 0; i < 1 << 20; i += 511) assert_int_equal(page[i], 'p');
        }
        ckpt__os_pages_free(page, 1 << 20);
        close(direct);
    } else {
        assert_int_equal(e, CKPT_UNSUPPORTED);
        assert_int_equal(direct, -1);
    }
    e = ckpt__os_pwrite_uncached(fd, "0123456789", 10, 1, path);
    assert_true(e == CKPT_OK || e == CKPT_UNSUPPORTED);
    (void)ckpt__os_cached(fd, 0, 4096);
    assert_true(ckpt__os_cached(fd, 0, 0));
    close(fd);
}

static void test_cached(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "c");
    char *bytes = (char *)calloc(1, 8 << 20);
    util_write(path, bytes, 8 << 20);
    free(bytes);
    int fd;
    assert_int_equal(ckpt__os_open_read(&fd, path), CKPT_OK);
    assert_true(ckpt__os_cached(fd, 0, 8 << 20));
    assert_true(ckpt__os_cached(fd, 12345, 54321));
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    ckpt__os_info info;
    assert_int_equal(ckpt__os_stat(path, &info), CKPT_OK);
    if (ckpt__os_cached(fd, 0, 8 << 20)) print_message("the file system keeps its pages (tmpfs?)\n");
    close(fd);
}

//-- names -------------------------------------------------------------------------

static void test_rename(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *a = util_join(dir, "a"), *b = util_join(dir, "b");
    util_write_text(a, "A");
    assert_int_equal(ckpt__os_rename_new(a, b), CKPT_OK);
    util_write_text(a, "A2");
    assert_int_equal(ckpt__os_rename_new(a, b), CKPT_EXISTS);
    assert_string_equal(util_read(b, NULL), "A");
    assert_string_equal(util_read(a, NULL), "A2");
    fault_arm_call("renameat2", ENOSYS, 1);             // an old kernel: by link
    assert_int_equal(ckpt__os_rename_new(a, b), CKPT_EXISTS);
    assert_true(fault_disarm());
    fault_arm_call("renameat2", EINVAL, 1);             // a file system without the flag
    assert_int_equal(ckpt__os_rename_new(a, util_join(dir, "c")), CKPT_OK);
    assert_true(fault_disarm());
    assert_string_equal(util_list(dir), "b\nc\n");
    assert_int_equal(ckpt__os_rename(b, util_join(dir, "c")), CKPT_OK);
    assert_string_equal(util_read(util_join(dir, "c"), NULL), "A");
    assert_int_equal(ckpt__os_rename(b, a), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), util_fmt("cannot rename %s to %s: ", b, a)));
    assert_int_equal(ckpt__os_rename_new(b, a), CKPT_NOT_FOUND);
    assert_int_equal(ckpt__os_rename_new(util_join(dir, "c"), dir), CKPT_EXISTS);
    assert_int_equal(ckpt__os_sync_dir(dir), CKPT_OK);
    assert_int_equal(ckpt__os_sync_dir(a), CKPT_NOT_FOUND);
}

typedef struct replaced {
    const char   *file, *next, *second;
    ckpt__os_flag end;
} replaced;

static void replace_it(void *arg) {
    replaced *it = (replaced *)arg;
    while (!ckpt__os_flag_get(&it->end)) {
        int fd = open(it->next, O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || close(fd) != 0 || rename(it->next, it->file) != 0) abort();
    }
}

// Somebody replaces the file by renames all the time: it is there at every instant, and so is its second name then.
static void test_link_while_replaced(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    replaced it = { util_join(dir, "f"), util_join(dir, "next"), util_join(dir, "second"), 0 };
    ckpt__os_thread thread;
    util_write_text(it.file, "x");
    assert_int_equal(ckpt__os_thread_start(&thread, replace_it, &it), CKPT_OK);
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < 20000 && e == CKPT_OK; i++) {
        e = ckpt__os_link(it.file, it.second);
        unlink(it.second);
    }
    ckpt__os_flag_set(&it.end, 1);
    ckpt__os_thread_join(thread);
    assert_int_equal(e, CKPT_OK);
    assert_int_equal(ckpt__os_link(util_join(dir, "none"), it.second), CKPT_NOT_FOUND);
    assert_int_equal(ckpt__os_link(it.file, util_join(dir, "none/second")), CKPT_NOT_FOUND);
}

static void replace_later(void *arg) {
    replaced *it = (replaced *)arg;
    ckpt__os_sleep(0.05);
    if (rename(it->next, it->file) != 0) abort();
}

// Who renames is put aside in the midst of it: the name leads to a file that has none for as long.
static void test_link_amid_rename(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    replaced it = { util_join(dir, "f"), util_join(dir, "next"), util_join(dir, "second"), 0 };
    ckpt__os_thread thread;
    int fd = open(it.next, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(unlink(it.next), 0);
    if (symlink(util_fmt("/proc/self/fd/%d", fd), it.file) != 0 || access(it.file, F_OK) != 0) util_skip("no /proc/self/fd here");
    util_write_text(it.next, "x");
    assert_int_equal(ckpt__os_thread_start(&thread, replace_later, &it), CKPT_OK);
    ckpt_err e = ckpt__os_link(it.file, it.second);
    ckpt__os_thread_join(thread);
    assert_int_equal(e, CKPT_OK);
    assert_string_equal(util_read(it.second, NULL), "x");
    close(fd);
}

static void test_links(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *file = util_join(dir, "f"), *link_path = util_join(dir, "l");
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    util_write_text(file, "x");
    assert_int_equal(ckpt__os_symlink("f", link_path), CKPT_OK);
    assert_int_equal(ckpt__os_symlink("f", link_path), CKPT_EXISTS);
    assert_int_equal(ckpt__os_readlink(&b, link_path), CKPT_OK);
    assert_string_equal(b.data, "f");
    b.len = 0;
    assert_int_equal(ckpt__os_realpath(&b, link_path), CKPT_OK);
    assert_string_equal(b.data, file);
    assert_int_equal(ckpt__os_readlink(&b, file), CKPT_IO);
    assert_int_equal(ckpt__os_realpath(&b, util_join(dir, "none")), CKPT_NOT_FOUND);
    ckpt__os_info info;
    assert_int_equal(ckpt__os_lstat(link_path, &info), CKPT_OK);
    assert_true(info.is_link && !info.is_file);
    assert_int_equal(ckpt__os_stat(link_path, &info), CKPT_OK);
    assert_true(!info.is_link && info.is_file);
    assert_int_equal(ckpt__os_remove(file), CKPT_OK);
    assert_int_equal(ckpt__os_remove(file), CKPT_NOT_FOUND);
    assert_int_equal(ckpt__os_stat(link_path, &info), CKPT_NOT_FOUND);
    assert_true(ckpt__os_exists(link_path));
    assert_false(ckpt__os_exists(file));
    static const int unsupported[] = { EPERM, EOPNOTSUPP, ENOSYS, 524 };
    for (int i = 0; i < UTIL_COUNT(unsupported); i++) {
        fault_arm_call("symlink", unsupported[i], 1);
        assert_int_equal(ckpt__os_symlink("f", file), CKPT_UNSUPPORTED);
        assert_true(fault_disarm());
    }
    util_write_text(file, "x");
    assert_int_equal(link(file, util_join(dir, "h")), 0);
    assert_int_equal(ckpt__os_stat(file, &info), CKPT_OK);
    assert_int_equal(info.links, 2);
    int held;
    static const long renames[] = { 0x6969, 0x65735546, 0xFF534D42, 0xFE534D42 };       // what is open: NFS, FUSE, SMB 1, 2 and 3
    for (int i = 0; i < UTIL_COUNT(renames); i++) {
        assert_int_equal(link(file, util_join(dir, "i")), 0);
        fault_file_system = renames[i];
        assert_int_equal(ckpt__os_remove_slow(util_join(dir, "i"), &held), CKPT_OK);
        fault_file_system = 0;
        assert_false(util_exists(util_join(dir, "i")));
        if (sizeof(long) > 4) assert_int_equal(held, -1);
        if (held >= 0) close(held);
    }
    assert_int_equal(ckpt__os_remove_slow(util_join(dir, "h"), &held), CKPT_OK);
    assert_true(held > 2);
    close(held);
    assert_int_equal(ckpt__os_remove_slow(util_join(dir, "h"), &held), CKPT_NOT_FOUND);
    assert_int_equal(held, -1);
    assert_int_equal(ckpt__os_remove_slow(link_path, &held), CKPT_OK);      // a link itself, not what it names
    assert_int_equal(held, -1);
    assert_string_equal(util_list(dir), "f\n");
    ckpt__buf_free(&b);
}

static void test_mkdirs(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    ckpt__os_info info;
    assert_int_equal(ckpt__os_mkdirs(util_join(dir, "a/b//c/")), CKPT_OK);
    assert_int_equal(ckpt__os_mkdirs(util_join(dir, "a/b/c")), CKPT_OK);
    assert_int_equal(ckpt__os_stat(util_join(dir, "a/b/c"), &info), CKPT_OK);
    assert_true(info.is_dir);
    assert_int_equal(ckpt__os_mkdirs("/"), CKPT_OK);
    assert_int_equal(ckpt__os_mkdirs("."), CKPT_OK);
    assert_int_equal(ckpt__os_mkdirs(""), CKPT_OK);
    util_write_text(util_join(dir, "f"), "");
    assert_int_equal(ckpt__os_mkdirs(util_join(dir, "f")), CKPT_EXISTS);
    assert_int_equal(ckpt__os_mkdirs(util_join(dir, "f/g/h")), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "a file of that name is in the way"));
    char *longer = (char *)util_keep(calloc(1, 6000), false);
    memset(longer, 'x', 5999);
    assert_int_equal(ckpt__os_mkdirs(longer), CKPT_IO);
    if (chdir(dir) != 0) fail();
    assert_int_equal(ckpt__os_mkdirs("relative/one"), CKPT_OK);
    assert_true(util_exists(util_join(dir, "relative/one")));
    assert_int_equal(ckpt__os_mkdirs("~/one"), CKPT_ARG);                   // a shell's, and a danger to the home when removed
    assert_non_null(strstr(ckpt_last_error(), "cannot make the folder ~/one: '~' is the home folder for a shell alone"));
    assert_int_equal(ckpt__os_mkdirs("~"), CKPT_ARG);
    assert_int_equal(ckpt__os_mkdirs("./~/one"), CKPT_OK);                  // meant
    assert_int_equal(ckpt__os_mkdirs("~/two"), CKPT_OK);                    // and there by now
    assert_int_equal(ckpt__os_mkdirs("~other"), CKPT_OK);
    if (chdir("/") != 0) fail();
}

static ckpt_err count_name(const char *name, void *user) {
    assert_true(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
    return ++*(int *)user == 1000 ? CKPT_CANCELLED : CKPT_OK;
}

static void test_list(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *tree = util_join(dir, "tree");
    int count = 0;
    assert_int_equal(ckpt__os_mkdirs(util_join(tree, "a/b/c")), CKPT_OK);
    for (int i = 0; i < 300; i++) util_write_text(util_join(tree, util_fmt("a/%d", i)), "");
    assert_int_equal(symlink(dir, util_join(tree, "a/out")), 0);
    assert_int_equal(ckpt__os_list(util_join(tree, "a"), count_name, &count), CKPT_OK);
    assert_int_equal(count, 302);
    count = 998;
    assert_int_equal(ckpt__os_list(util_join(tree, "a"), count_name, &count), CKPT_CANCELLED);
    assert_int_equal(count, 1000);
    assert_int_equal(ckpt__os_list(util_join(dir, "none"), count_name, &count), CKPT_NOT_FOUND);
    assert_int_equal(ckpt__os_remove_dir(tree), CKPT_IO);
}

static void test_paths(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        { "a/b", "a", "b" }, { "/b", "/", "b" }, { "b", ".", "b" }, { "a//b", "a", "b" }, { "//b", "/", "b" },
        { "/a/b/", "/a/b", "" }, { "", ".", "" }, { "/", "/", "" }, { "../x", "..", "x" }
    };
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        b.len = 0;
        ckpt__os_path_dir(&b, rows[i][0]);
        assert_string_equal(b.data, rows[i][1]);
        assert_string_equal(ckpt__os_path_base(rows[i][0]), rows[i][2]);
    }
    static const char *const joins[][3] = { { "a", "b", "a/b" }, { "a/", "b", "a/b" }, { "", "b", "b" }, { "a", "/b", "/b" }, { "/", "b", "/b" } };
    for (int i = 0; i < UTIL_COUNT(joins); i++) {
        b.len = 0;
        ckpt__os_path_join(&b, joins[i][0], joins[i][1]);
        assert_string_equal(b.data, joins[i][2]);
    }
    ckpt__buf_free(&b);
}

static void test_codes(void **state) {
    (void)state;
    static const int rows[][2] = {
        { ENOSPC, CKPT_NO_SPACE }, { EDQUOT, CKPT_NO_SPACE }, { EFBIG, CKPT_NO_SPACE }, { ENOENT, CKPT_NOT_FOUND }, { ENOTDIR, CKPT_NOT_FOUND },
        { EEXIST, CKPT_EXISTS }, { EACCES, CKPT_AUTH }, { EPERM, CKPT_AUTH }, { EROFS, CKPT_AUTH }, { ENOMEM, CKPT_NOMEM }, { EIO, CKPT_IO }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        assert_int_equal(ckpt__os_fail(rows[i][0], "write", "/some/file"), rows[i][1]);
        assert_true(strncmp(ckpt_last_error(), "cannot write /some/file: ", 25) == 0 && strlen(ckpt_last_error()) > 30);
    }
    (void)ckpt__os_fail(524, "do", "it");
    assert_string_equal(ckpt_last_error(), "cannot do it: the file system does not support it");
}

//-- locks -------------------------------------------------------------------------

// In a child process: takes the lock (0), finds it taken (1), or fails (2). With `stay`, keeps it until killed, once it has it.
static pid_t locker(const char *path, bool stay, int ready_fd) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    int fd;
    ckpt_err e = ckpt__os_lock(&fd, path);
    if (ready_fd >= 0 && write(ready_fd, &e, sizeof e) != sizeof e) _exit(3);
    while (stay && e == CKPT_OK) pause();
    _exit(e == CKPT_OK ? 0 : e == CKPT_EXISTS ? 1 : 2);
}

static int exit_of(pid_t pid) {
    int status;
    if (waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

static void test_lock(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "lock");
    int fd, second, before = fault_open_files();
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);
    assert_non_null(strstr(util_read(path, NULL), util_fmt("%d ", (int)getpid())));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ckpt__os_lock(&second, path), CKPT_EXISTS);        // the same process
        assert_int_equal(second, -1);
        assert_string_equal(ckpt_last_error(), util_fmt("%s is locked by this process already", path));
        // That attempt has lost the process's record lock (fcntl(2)); others must be kept out all the same.
        assert_int_equal(exit_of(locker(path, false, -1)), 1);
    }
    // So must those of another machine, which may have this one's name, and of a container on this one, who cannot see whether the
    // process lives. Here it does not, and the record lock is lost: what was forked keeps nobody out. Versions before named no boot.
    char host[256], space[64], *holder = util_read(path, NULL);
    ckpt__os_host(host, sizeof host);
    ckpt__os_pid_space(space, sizeof space);
    const struct { const char *text; bool held; } texts[] = {
        { "1 another-machine 17\n", true },
        { util_fmt("%d %s 5 pid:[1]\n", INT_MAX, host), true },
        { util_fmt("%d %s 5 %s\n1a2b3c4d-0000-4000-8000-123456789abc\n", INT_MAX, host, space), true },
        { util_fmt("%d %s 5 %s\n", INT_MAX, host, space), false }
    };
    for (int i = 0; i < UTIL_COUNT(texts); i++) {
        util_write_text(path, texts[i].text);
        int got = exit_of(locker(path, false, -1));
        if (got != (texts[i].held ? 1 : 0)) fail_msg("%s: %d", texts[i].text, got);
    }
    util_write_text(path, holder);
    ckpt__os_unlock(fd, path);
    assert_string_equal(util_list(dir), "");
    assert_int_equal(exit_of(locker(path, false, -1)), 0);
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);                    // what a dead process left behind
    ckpt__os_unlock(fd, path);
    assert_int_equal(fault_open_files(), before);
    assert_int_equal(ckpt__os_lock(&fd, util_join(dir, "no/lock")), CKPT_NOT_FOUND);
}

static void test_lock_of_others(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "lock");
    int fds[2], fd;
    ckpt_err e;
    assert_int_equal(ckpt__os_pipe(fds), CKPT_OK);
    pid_t holder = locker(path, true, fds[1]);
    assert_int_equal(read(fds[0], &e, sizeof e), sizeof e);
    assert_int_equal(e, CKPT_OK);
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), util_fmt("is locked by process %d on ", (int)holder)));
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(exit_of(holder), -2);
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);
    ckpt__os_unlock(fd, path);
    close(fds[0]);
    close(fds[1]);
}

// A trainer that was killed leaves forked data loaders, which have its descriptors: they must not keep its successor out.
static void test_lock_and_orphans(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "lock");
    int fds[2], fd;
    pid_t orphan;
    assert_int_equal(ckpt__os_pipe(fds), CKPT_OK);
    pid_t trainer = fork();
    if (trainer == 0) {
        if (ckpt__os_lock(&fd, path) != CKPT_OK) _exit(1);
        orphan = fork();
        if (orphan == 0) for (;;) pause();
        if (write(fds[1], &orphan, sizeof orphan) != sizeof orphan) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(fds[0], &orphan, sizeof orphan), sizeof orphan);
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_EXISTS);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    for (int i = 0; i < 500 && (kill(trainer, 0) != 0 || ckpt__os_process_start((int)trainer) != 0); i++) usleep(10000);
    // A zombie is dead enough, but the kernel shows one before its last thread (the sanitizer has some) has let go of the lock.
    ckpt_err e = ckpt__os_lock(&fd, path);
    for (int i = 0; i < 500 && e == CKPT_EXISTS; i++) { usleep(10000); e = ckpt__os_lock(&fd, path); }
    assert_int_equal(e, CKPT_OK);
    int second;
    assert_int_equal(ckpt__os_lock(&second, path), CKPT_EXISTS);
    assert_int_equal(exit_of(locker(path, false, -1)), 1);
    ckpt__os_unlock(fd, path);
    assert_int_equal(exit_of(trainer), -2);
    assert_int_equal(kill(orphan, SIGKILL), 0);
    close(fds[0]);
    close(fds[1]);
}

// A trainer that starts itself anew in place (execv) has the number and the start that are written inside, and no descriptor of what it
// had locked, while its forked data loaders have: it is not locked out by itself. What it locks then keeps others out, and itself.
static void test_lock_and_exec(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *path = util_join(util_temp_dir(), "lock");
        int fd, asks, second = -1, before = fault_open_files();
        fault_no_locks = k == 1;                            // then the text inside decides
        assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);
        pid_t orphan = fork();
        if (orphan == 0) for (;;) pause();
        asks = open(path, O_RDONLY);
        bool held = ckpt__os_lock_is_held(asks);
        close(asks);
        int calls = 0;                                      // where what it has open cannot be looked at, it has it
        ckpt_err refused = CKPT_EXISTS;
        for (bool more = true; more && refused == CKPT_EXISTS;) {
            fault_arm_call("stat", EIO, ++calls);
            refused = ckpt__os_lock(&second, path);
            more = fault_disarm();
        }
        asks = open(path, O_RDONLY);
        close(fd);                                          // as all descriptors are that execv does not hand on
        bool held_by_orphan = ckpt__os_lock_is_held(asks);
        close(asks);
        ckpt_err e = ckpt__os_lock(&fd, path), own = ckpt__os_lock(&second, path);
        int other = exit_of(locker(path, false, -1));
        if (e == CKPT_OK) ckpt__os_unlock(fd, path);
        fault_no_locks = false;
        assert_int_equal(kill(orphan, SIGKILL), 0);
        assert_int_equal(exit_of(orphan), -2);
        assert_int_equal(refused, CKPT_EXISTS);
        assert_true(held);
#if defined(__linux__)
        assert_true(calls > 1);
        assert_false(held_by_orphan);
        assert_int_equal(e, CKPT_OK);
        assert_false(util_exists(path));
#else
        (void)held_by_orphan;
#endif
        assert_int_equal(own, CKPT_EXISTS);
        assert_int_equal(other, 1);
        assert_int_equal(fault_open_files(), before);
    }
}

// A process that holds it, and of which /proc says nothing (hidepid, no descriptors left), lives, also where nothing but the text
// inside keeps the lock.
static void test_lock_and_proc(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *path = util_join(util_temp_dir(), "lock");
        int fds[2], fd, again;
        ckpt_err e;
        fault_no_locks = k == 1;
        assert_int_equal(ckpt__os_pipe(fds), CKPT_OK);
        pid_t holder = fork();
        if (holder == 0) {
            e = ckpt__os_lock(&fd, path);
            if (e == CKPT_OK && ckpt__os_lock(&again, path) != CKPT_EXISTS) _exit(1);       // which loses the record lock
            if (write(fds[1], &e, sizeof e) != sizeof e) _exit(1);
            for (;;) pause();
        }
        close(fds[1]);                      // a child that ends without a word is not waited for
        assert_int_equal(read(fds[0], &e, sizeof e), sizeof e);
        assert_int_equal(e, CKPT_OK);
        int calls = 0;
        e = CKPT_EXISTS;
        for (bool more = true; more && e != CKPT_OK;) {
            fault_arm_call("open", EMFILE, ++calls);
            e = ckpt__os_lock(&fd, path);
            more = fault_disarm();
        }
        assert_int_equal(kill(holder, SIGKILL), 0);
        assert_int_equal(exit_of(holder), -2);
        fault_no_locks = false;
        if (e != CKPT_EXISTS) fail_msg("%d: at call %d of open: %s", k, calls, ckpt_err_name(e));
        close(fds[0]);
    }
}

// Where the file system has no locks, the text inside decides.
static void test_lock_without_locks(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "lock");
    char host[256];
    int fd, open_too = -1;
    ckpt__os_host(host, sizeof host);
    unsigned long long start = ckpt__os_process_start((int)getpid());
    const struct { const char *text; ckpt_err want; bool opened; } rows[] = {
        { "", CKPT_OK, false },
        { "nonsense\n", CKPT_OK, false },
        { util_fmt("%d %s %llu\n", (int)getpid(), host, start), CKPT_EXISTS, true },
#if defined(__linux__)
        { util_fmt("%d %s %llu\n", (int)getpid(), host, start), CKPT_OK, false },      // from before it started itself anew
#endif
        { util_fmt("%d %s 1\n", (int)getpid(), host), CKPT_OK, true },      // an earlier process had our number
        { util_fmt("1 %s 1\n", host), CKPT_OK, false },
        { util_fmt("1 %s\n", host), CKPT_EXISTS, false },
        { util_fmt("%d %s %llu pid:[1]\n", (int)getpid(), host, start), CKPT_OK, true },   // of a container, which may have been started again
        { "1 another-machine 17\n", CKPT_EXISTS, false }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        util_write_text(path, rows[i].text);
        if (rows[i].opened) open_too = open(path, O_RDONLY);
        fault_arm_call("fcntl", ENOSYS, 1);
        ckpt_err e = ckpt__os_lock(&fd, path);
        assert_true(fault_disarm());
        if (rows[i].opened) close(open_too);
        assert_int_equal(e, rows[i].want);
        if (e == CKPT_OK) ckpt__os_unlock(fd, path);
    }
    assert_non_null(strstr(ckpt_last_error(), "on another-machine, which cannot be seen from here: when it is gone, remove the file"));
}

// A lock file that another machine removes between the open and the lock is opened anew, as one that this machine removes.
static void test_lock_removed_elsewhere(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "lock");
    int fd, before = fault_open_files();
    for (int times = 1; times < 3; times++) {
        fault_stale_locks = times;
        assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);
        assert_int_equal(fault_stale_locks, 0);
        ckpt__os_unlock(fd, path);
        fault_nameless = times;
        assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);
        assert_int_equal(fault_nameless, 0);
        ckpt__os_unlock(fd, path);
    }
    fault_stale_locks = 1000000;
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_NET);
    fault_stale_locks = 0;
    assert_int_equal(fd, -1);
    fault_nameless = 1000000;                               // of a file system that tells of no names
    assert_int_equal(ckpt__os_lock(&fd, path), CKPT_OK);
    fault_nameless = 0;
    ckpt__os_unlock(fd, path);
    assert_int_equal(fault_open_files(), before);
}

enum { CROWD = 8, TURNS = 200 };

// Processes that take and release the lock as fast as they can: never two at once.
static void test_lock_crowd(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "lock"), *inside = util_join(dir, "inside");
    pid_t pids[CROWD];
    for (int i = 0; i < CROWD; i++) {
        pids[i] = fork();
        if (pids[i] != 0) continue;
        for (int got = 0; got < TURNS;) {
            int fd, mark;
            ckpt_err e = ckpt__os_lock(&fd, path);
            if (e == CKPT_EXISTS) { usleep(200); continue; }
            if (e != CKPT_OK || ckpt__os_create(&mark, inside) != CKPT_OK) _exit(1);
            close(mark);
            if (unlink(inside) != 0) _exit(2);
            ckpt__os_unlock(fd, path);
            got++;
        }
        _exit(0);
    }
    for (int i = 0; i < CROWD; i++) assert_int_equal(exit_of(pids[i]), 0);
}

//-- threads, clocks ---------------------------------------------------------------

typedef struct shared {
    ckpt__os_mutex lock;
    ckpt__os_cond  cond;
    int            turns;
    uint64_t       total;
    ckpt__os_flag  flag;
} shared;

static void worker(void *arg) {
    shared *s = (shared *)arg;
    for (int i = 0; i < 1000; i++) (void)ckpt__os_add64(&s->total, 3);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (sigismember(&mask, SIGUSR1) != 1 || sigismember(&mask, SIGINT) != 1) ckpt__os_flag_set(&s->flag, 1);
    ckpt__os_mutex_lock(&s->lock);
    s->turns++;
    ckpt__os_cond_broadcast(&s->cond);
    ckpt__os_mutex_unlock(&s->lock);
}

static void test_threads(void **state) {
    (void)state;
    shared s;
    ckpt__os_thread t[4];
    memset(&s, 0, sizeof s);
    assert_int_equal(ckpt__os_mutex_init(&s.lock), CKPT_OK);
    assert_int_equal(ckpt__os_cond_init(&s.cond), CKPT_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(ckpt__os_thread_start(&t[i], worker, &s), CKPT_OK);
    ckpt__os_mutex_lock(&s.lock);
    while (s.turns < 4) ckpt__os_cond_wait(&s.cond, &s.lock);
    double start = ckpt__os_now();
    while (ckpt__os_cond_wait_until(&s.cond, &s.lock, start + 0.05)) {}
    assert_true(ckpt__os_now() - start >= 0.049);
    assert_false(ckpt__os_cond_wait_until(&s.cond, &s.lock, 0));            // long past
    ckpt__os_mutex_unlock(&s.lock);
    for (int i = 0; i < 4; i++) ckpt__os_thread_join(t[i]);
    assert_int_equal(ckpt__os_load64(&s.total), 12000);
    assert_int_equal(ckpt__os_flag_get(&s.flag), 0);
    assert_int_equal(ckpt__os_flag_swap(&s.flag, 7), 0);
    assert_int_equal(ckpt__os_flag_swap(&s.flag, 8), 7);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGUSR1), 0);                       // ours is as it was
    ckpt__os_cond_free(&s.cond);
    ckpt__os_mutex_free(&s.lock);
    fault_arm_call("pthread_create", EAGAIN, 1);
    assert_int_equal(ckpt__os_thread_start(&t[0], worker, &s), CKPT_NOMEM);
    assert_true(fault_disarm());
}

// Takes much of a stack, in steps that no guard page is missed by.
static void dive(void *arg) {
    volatile char room[700 * 1024];
    for (size_t i = sizeof room; i > 4096; i -= 4096) room[i - 1] = 1;
    *(int *)arg = room[sizeof room - 1];
}

// Where a system gives its threads little (musl, macOS, a small ulimit -s), ours have what TLS and the user's functions need.
static void test_stack(void **state) {
    (void)state;
#if defined(__GLIBC__)
    int pthread_setattr_default_np(const pthread_attr_t *);
    int pthread_getattr_default_np(pthread_attr_t *);
    pthread_attr_t before, small;
    ckpt__os_thread t;
    int came = 0;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 128 * 1024), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    ckpt_err e = ckpt__os_thread_start(&t, dive, &came);
    if (e == CKPT_OK) ckpt__os_thread_join(t);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&before);
    assert_int_equal(e, CKPT_OK);
    assert_int_equal(came, 1);
#else
    puts("SKIP: no call here that makes the stacks of threads small");
    skip();
#endif
}

static void test_clocks(void **state) {
    (void)state;
    double a = ckpt__os_now();
    ckpt__os_sleep(0.02);
    double b = ckpt__os_now();
    assert_true(b - a >= 0.0199 && b - a < 10);
    ckpt__os_sleep(0);
    ckpt__os_sleep(-1);
    assert_true(fabs(ckpt__os_time() - (double)time(NULL)) < 3);
    assert_true(ckpt__os_cpus() >= 1);
    assert_int_equal(ckpt__os_pid(), getpid());
    char space[64];
    ckpt__os_pid_space(space, sizeof space);
    assert_true(space[0] == 0 || strncmp(space, "pid:[", 5) == 0);
    char host[8];
    ckpt__os_host(host, sizeof host);
    assert_true(strlen(host) < sizeof host);
    unsigned char x[300], y[300];
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    assert_int_equal(ckpt__os_random(x, sizeof x), CKPT_OK);
    fault_arm_call("getrandom", ENOSYS, 1);
    assert_int_equal(ckpt__os_random(y, sizeof y), CKPT_OK);                // by /dev/urandom
    assert_true(fault_disarm());
    assert_memory_not_equal(x, y, sizeof x);
    int last = 0;
    for (int i = 200; i < 300; i++) last |= y[i];
    assert_true(last != 0);
}

static void test_pages(void **state) {
    (void)state;
    static const size_t sizes[] = { 1, 4096, 100000, 2 << 20, (2 << 20) + 1, 5 << 20 };
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        unsigned char *p = (unsigned char *)ckpt__os_pages(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (2 << 20), 0);
        assert_int_equal(p[0] | p[sizes[i] - 1], 0);
        memset(p, 1, sizes[i]);
        ckpt__os_pages_free(p, sizes[i]);
    }
    assert_null(ckpt__os_pages(SIZE_MAX));
    assert_null(ckpt__os_pages(SIZE_MAX / 2));
    assert_non_null(strstr(ckpt_last_error(), "out of memory"));
    ckpt__os_pages_free(NULL, 5);
}

// Blocks keep their bytes from small to large and back, and a user's allocator is left to its user.
static void test_resize(void **state) {
    (void)state;
    static const size_t sizes[] = { 1, 70000, 2 << 20, (2 << 20) + 5, 9 << 20, 3 << 20, 100, (2 << 20) - 1, 6 << 20, 0 };
    ckpt_allocator none = { NULL, NULL }, a = ckpt__os_allocator(&none), user = { ckpt__os_resize, &none };
    unsigned char *p = NULL;
    size_t size = 0;
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        p = (unsigned char *)ckpt__mem_resize(&a, p, size, sizes[i]);
        assert_true((p == NULL) == (sizes[i] == 0));
        for (size_t k = 0; k < size && k < sizes[i]; k += 99) assert_int_equal(p[k], k % 251);
        size = sizes[i];
        for (size_t k = 0; k < size; k += 99) p[k] = (unsigned char)(k % 251);
    }
    assert_null(ckpt__mem_resize(&a, NULL, 0, SIZE_MAX / 2));
    assert_null(ckpt__mem_resize(&a, NULL, 0, 0));
    assert_ptr_equal(ckpt__os_allocator(&user).user, &none);
    assert_ptr_equal(ckpt__os_allocator(NULL).fn, a.fn);
}

//-- child processes ---------------------------------------------------------------

static void *unset_in_between(void *ptr, size_t old_size, size_t new_size, void *user) {
    (void)old_size, (void)user;
    if (new_size == 0) { free(ptr); return NULL; }
    unsetenv("CKPT_TEST_A");
    unsetenv("CKPT_TEST_B");
    return realloc(ptr, new_size);
}

// The environment is copied with LC_ALL=C, also while the program takes something out of it on another thread.
static void test_english(void **state) {
    (void)state;
    ckpt_allocator a = { unset_in_between, NULL };
    size_t size, n = 0;
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("CKPT_TEST_A", "1", 1);
    setenv("CKPT_TEST_B", "2", 1);
    char **env = ckpt__os_english(&a, &size);
    assert_non_null(env);
    for (; env[n] != NULL; n++) assert_true(strncmp(env[n], "CKPT_TEST_", 10) != 0 && strcmp(env[n], "LC_ALL=de_DE.UTF-8") != 0);
    assert_true(n > 0 && n < size / sizeof *env);
    assert_string_equal(env[n - 1], "LC_ALL=C");
    ckpt__mem_free(&a, env, size);
    unsetenv("LC_ALL");
}

static ckpt_err run_fed(const char *script, int in_fd) {
    const char *argv[] = { "sh", "-c", script, NULL };
    ckpt__os_child c;
    ckpt_err e = ckpt__os_spawn(&c, argv, in_fd, -1);
    return e == CKPT_OK ? ckpt__os_wait_child(&c) : e;
}

static ckpt_err run_shell(const char *script) { return run_fed(script, -1); }

static void test_children(void **state) {
    (void)state;
    setenv("PATH", "/usr/bin:/bin", 1);     // a folder in it that may not be searched would make a missing tool "not permitted"
    int before = fault_open_files();
    assert_int_equal(run_shell("exit 0"), CKPT_OK);
    assert_int_equal(run_shell("exit 7"), CKPT_IO);
    assert_string_equal(ckpt_last_error(), "sh failed with status 7");
    assert_int_equal(run_shell("echo; echo 'no such thing' >&2; echo more >&2; exit 1"), CKPT_IO);
    assert_string_equal(ckpt_last_error(), "sh failed with status 1: no such thing");
    assert_int_equal(run_shell("kill -9 $$"), CKPT_IO);
    assert_string_equal(ckpt_last_error(), "sh was killed by signal 9");
    assert_int_equal(run_shell("i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done"), CKPT_OK);
    // No descriptor of ours, not even one without close-on-exec, and default signals. The fourth is the folder that the shell lists.
    // HUP, INT, QUIT, USR1, USR2 and TERM are kept away from what is fed.
    int leaky = open("/tmp", O_RDONLY);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(run_shell("set -- /proc/$$/fd/*; [ $# -le 4 ] && grep -q 'SigIgn:.*0000$' /proc/$$/status"), CKPT_OK);
#define BLOCKS(mask) "while read k v; do [ $k = SigBlk: ] && break; done </proc/$$/status; [ $v = " mask " ]"
    assert_int_equal(run_fed(BLOCKS("0000000000004a07"), leaky), CKPT_OK);
    assert_int_equal(run_shell(BLOCKS("0000000000000000")), CKPT_OK);
    signal(SIGPIPE, SIG_DFL);
    close(leaky);
    const char *none[] = { "ckpt-no-such-tool", NULL };
    ckpt__os_child c;
    assert_int_equal(ckpt__os_spawn(&c, none, -1, -1), CKPT_NOT_FOUND);
    assert_string_equal(ckpt_last_error(), "cannot run ckpt-no-such-tool: No such file or directory");
    ckpt__os_kill_child(&c);
    const char *sleeper[] = { "sleep", "1000", NULL };
    assert_int_equal(ckpt__os_spawn(&c, sleeper, -1, -1), CKPT_OK);
    pid_t pid = (pid_t)c.pid;
    ckpt__os_kill_child(&c);
    assert_int_equal(kill(pid, 0), -1);
    ckpt__os_kill_child(&c);
    memset(&c, 0, sizeof c);
    ckpt__os_kill_child(&c);
    assert_int_equal(ckpt__os_wait_child(&c), CKPT_OK);
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(run_shell("exit 0"), CKPT_IO);
    assert_non_null(strstr(ckpt_last_error(), "SIGCHLD"));
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(fault_open_files(), before);
    assert_true(ckpt__os_which("sh"));
    assert_true(ckpt__os_which("/bin/sh"));
    assert_false(ckpt__os_which("ckpt-no-such-tool"));
    assert_false(ckpt__os_which(""));
    assert_false(ckpt__os_which("/tmp"));
}

static void test_pipes(void **state) {
    (void)state;
    int in[2], out[2];
    size_t got, total = 0;
    char src[30000], dst[30000];
    memset(src, 'z', sizeof src);
    assert_int_equal(ckpt__os_pipe(in), CKPT_OK);
    assert_int_equal(ckpt__os_pipe(out), CKPT_OK);
    const char *cat[] = { "cat", NULL };
    ckpt__os_child c;
    assert_int_equal(ckpt__os_spawn(&c, cat, in[0], out[1]), CKPT_OK);
    close(in[0]);
    close(out[1]);
    fault_arm_call("write", FAULT_SHORT, 1);
    assert_int_equal(ckpt__os_write(in[1], src, sizeof src, "cat"), CKPT_OK);
    assert_true(fault_disarm());
    close(in[1]);
    do {
        assert_int_equal(ckpt__os_read(out[0], dst, sizeof dst, &got, "cat"), CKPT_OK);
        total += got;
    } while (got > 0);
    assert_int_equal(total, sizeof src);
    close(out[0]);
    assert_int_equal(ckpt__os_wait_child(&c), CKPT_OK);
    // A reader that is gone neither kills this process nor leaves a signal behind.
    assert_int_equal(ckpt__os_pipe(in), CKPT_OK);
    close(in[0]);
    assert_int_equal(ckpt__os_write(in[1], src, 10, "the pipe"), CKPT_IO);
    assert_string_equal(ckpt_last_error(), "cannot write the pipe: Broken pipe");
    sigset_t pending, mask;
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGPIPE), 0);
    close(in[1]);
}

// A widened pipe takes a megabyte at once where the system allows it; where it does not, the pipe is what it was.
static void test_pipe_room(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        int fds[2];
        assert_int_equal(ckpt__os_pipe(fds), CKPT_OK);
        if (refused) fault_arm_call("fcntl", EPERM, 1);
        ckpt__os_widen(fds[1]);
        bool failed = refused == 1 && fault_disarm();
#if defined(CKPT__F_SETPIPE_SZ)
        assert_true(failed == (refused == 1));
        int size = fcntl(fds[1], CKPT__F_SETPIPE_SZ + 1);                   // F_GETPIPE_SZ
        assert_true(size > 0);
        if (refused) assert_true(size < CKPT__OS_PIPE);
        else assert_true(size >= CKPT__OS_PIPE || fcntl(fds[1], CKPT__F_SETPIPE_SZ, CKPT__OS_PIPE) < 0);    // who has many already
#else
        assert_false(failed);
#endif
        assert_int_equal(write(fds[1], "x", 1), 1);
        close(fds[0]);
        close(fds[1]);
    }
}

//-- every system call failing in turn ---------------------------------------------

typedef struct scene {
    const char *dir, *file, *other;     // file exists, other does not
    int         fd;                     // of file, read-write
    void       *pages;
} scene;

static ckpt_err act_open(scene *s) {
    int fd;
    ckpt_err e = ckpt__os_open_read(&fd, s->file);
    if (e == CKPT_OK) e = ckpt__os_close(fd, s->file);
    return e;
}

static ckpt_err act_create(scene *s) {
    int fd;
    ckpt_err e = ckpt__os_create(&fd, s->other);
    if (e == CKPT_OK) e = ckpt__os_close(fd, s->other);
    (void)unlink(s->other);
    return e;
}

static ckpt_err act_temp(scene *s) {
    int fd;
    ckpt_err e = ckpt__os_open_temp(&fd, s->dir);
    if (e == CKPT_OK) close(fd);
    return e;
}

static ckpt_err act_direct(scene *s) {
    int fd;
    size_t align;
    ckpt_err e = ckpt__os_reopen_direct(&fd, s->file, true, &align);
    if (e == CKPT_OK) close(fd);
    return e == CKPT_UNSUPPORTED ? CKPT_OK : e;
}

static ckpt_err act_pread(scene *s) {
    char buf[9000];
    size_t got;
    ckpt_err e = ckpt__os_pread(s->fd, buf, sizeof buf, 100, &got, s->file);
    if (e != CKPT_OK) return e;
    for (size_t i = 0; i < sizeof buf; i++) if (buf[i] != (char)((i + 100) % 251)) return CKPT_CORRUPT;
    return got == sizeof buf ? CKPT_OK : CKPT_CORRUPT;
}

static ckpt_err act_pwrite(scene *s) {
    char buf[9000], back[9000];
    for (size_t i = 0; i < sizeof buf; i++) buf[i] = (char)((i + 100) % 251);
    ckpt_err e = ckpt__os_pwrite(s->fd, buf, sizeof buf, 100, s->file);
    if (e != CKPT_OK) return e;
    return pread(s->fd, back, sizeof back, 100) == (ssize_t)sizeof back && memcmp(buf, back, sizeof buf) == 0 ? CKPT_OK : CKPT_CORRUPT;
}

static ckpt_err act_uncached(scene *s) {
    ckpt_err e = ckpt__os_pwrite_uncached(s->fd, "\0\1\2", 3, 0, s->file);
    return e == CKPT_UNSUPPORTED ? CKPT_OK : e;
}

static ckpt_err act_pipe(scene *s) {
    int fds[2];
    char buf[100];
    size_t got;
    ckpt_err e = ckpt__os_pipe(fds);
    if (e != CKPT_OK) return e;
    e = ckpt__os_write(fds[1], s->dir, 10, s->dir);
    if (e == CKPT_OK) e = ckpt__os_read(fds[0], buf, sizeof buf, &got, s->dir);
    if (e == CKPT_OK && (got < 1 || got > 10)) e = CKPT_CORRUPT;
    close(fds[0]);
    close(fds[1]);
    return e;
}

static ckpt_err act_sync(scene *s) {
    ckpt_err e = ckpt__os_allocate(s->fd, 10000, s->file);
    if (e == CKPT_OK) e = ckpt__os_truncate(s->fd, 10000, s->file);
    if (e == CKPT_OK) e = ckpt__os_sync(s->fd, s->file);
    if (e == CKPT_OK) e = ckpt__os_sync_dir(s->dir);
    return e;
}

static ckpt_err act_stat(scene *s) {
    ckpt__os_info info;
    ckpt_err e = ckpt__os_stat(s->file, &info);
    if (e == CKPT_OK) e = ckpt__os_lstat(s->file, &info);
    if (e == CKPT_OK) e = ckpt__os_fstat(s->fd, &info, s->file);
    return e;
}

static ckpt_err act_rename(scene *s) {
    ckpt_err e = ckpt__os_rename(s->file, s->other);
    if (e == CKPT_OK && rename(s->other, s->file) != 0) e = CKPT_CORRUPT;
    return e;
}

static ckpt_err act_rename_new(scene *s) {
    ckpt_err e = ckpt__os_rename_new(s->file, s->other);
    if (e == CKPT_OK && rename(s->other, s->file) != 0) e = CKPT_CORRUPT;
    return e;
}

static ckpt_err act_link(scene *s) {
    ckpt_err e = ckpt__os_symlink("file", s->other);
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    if (e == CKPT_OK) e = ckpt__os_readlink(&b, s->other);
    if (e == CKPT_OK) e = ckpt__os_realpath(&b, s->other);
    if (e == CKPT_OK) e = ckpt__os_remove(s->other);
    (void)unlink(s->other);
    ckpt__buf_free(&b);
    return e;
}

static ckpt_err act_remove_slow(scene *s) {
    int fd;
    if (link(s->file, s->other) != 0) return CKPT_CORRUPT;
    ckpt_err e = ckpt__os_remove_slow(s->other, &fd);
    if (e == CKPT_OK && fd >= 0) close(fd);
    (void)unlink(s->other);
    return e;
}

static ckpt_err act_mkdirs(scene *s) {
    char path[600];
    (void)snprintf(path, sizeof path, "%s/a/b", s->other);
    ckpt_err e = ckpt__os_mkdirs(path);
    int count = 0;
    if (e == CKPT_OK) e = ckpt__os_list(s->other, count_name, &count);
    int errnum = fault_errnum;
    fault_errnum = 0;
    if (util_exists(s->other)) util_remove_tree(s->other);
    fault_errnum = errnum;
    return e;
}

static ckpt_err act_lock(scene *s) {
    int fd;
    ckpt_err e = ckpt__os_lock(&fd, s->other);
    if (e == CKPT_OK) ckpt__os_unlock(fd, s->other);
    (void)unlink(s->other);
    return e;
}

static ckpt_err act_child(scene *s) {
    const char *argv[] = { "sh", "-c", "echo oh >&2", NULL };
    ckpt__os_child c;
    (void)s;
    ckpt_err e = ckpt__os_spawn(&c, argv, -1, -1);
    return e == CKPT_OK ? ckpt__os_wait_child(&c) : e;
}

static ckpt_err act_quiet(scene *s) {
    unsigned char bytes[40];
    ckpt__os_sleep(1e-4);
    (void)ckpt__os_cpus();
    (void)ckpt__os_is_terminal(s->fd);
    (void)ckpt__os_terminal_width(s->fd);
    (void)ckpt__os_cached(s->fd, 0, 9000);
    (void)ckpt__os_which("sh");
    (void)ckpt__os_exists(s->file);
    return ckpt__os_random(bytes, sizeof bytes);
}

static ckpt_err act_pages(scene *s) {
    s->pages = ckpt__os_pages(3 << 20);
    if (s->pages == NULL) return CKPT_NOMEM;
    ckpt__os_pages_free(s->pages, 3 << 20);
    return CKPT_OK;
}

static const struct { const char *name; ckpt_err (*act)(scene *s); } acts[] = {
    { "open", act_open }, { "create", act_create }, { "temp", act_temp }, { "direct", act_direct }, { "pread", act_pread },
    { "pwrite", act_pwrite }, { "uncached", act_uncached }, { "pipe", act_pipe }, { "sync", act_sync }, { "stat", act_stat },
    { "rename", act_rename }, { "rename_new", act_rename_new }, { "link", act_link }, { "remove_slow", act_remove_slow },
    { "mkdirs", act_mkdirs }, { "lock", act_lock }, { "child", act_child }, { "quiet", act_quiet }, { "pages", act_pages }
};

static scene make_scene(void) {
    scene s;
    char bytes[10000];
    memset(&s, 0, sizeof s);
    s.dir = util_temp_dir();
    s.file = util_join(s.dir, "file");
    s.other = util_join(s.dir, "other");
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i % 251);
    util_write(s.file, bytes, sizeof bytes);
    s.fd = open(s.file, O_RDWR | O_CLOEXEC);
    return s;
}

// One scene with one fault: which outcomes are right?
static void check_fault(int errnum, ckpt_err e, const char *act, int n) {
    bool fine = e == CKPT_OK;
    if (errnum == ENOSPC) fine = fine || e == CKPT_NO_SPACE;
    if (errnum == EIO) fine = fine || e == CKPT_IO;
    if (errnum == EIO || errnum == ENOSPC) {
        // A lost file of a child's complaints, or a thread or memory that was refused, has its own code; link falls back.
        fine = fine || e == CKPT_NOMEM;
    }
    if (errnum == EACCES) fine = fine || e == CKPT_AUTH || e == CKPT_EXISTS || e == CKPT_NOMEM;
    if (!fine) fail_msg("%s with call %d (%s) failing with %d: code %d, %s", act, n, fault_where, errnum, (int)e, ckpt_last_error());
    if (e != CKPT_OK && e != CKPT_NOMEM && strncmp(ckpt_last_error(), "cannot ", 7) != 0 && errnum != EACCES)
        fail_msg("%s with call %d (%s) failing with %d: '%s'", act, n, fault_where, errnum, ckpt_last_error());
}

static void test_faults(void **state) {
    (void)state;
    static const int faults[] = { EINTR, FAULT_SHORT, ENOSPC, EIO, EACCES };
    int all = 0;
    for (int a = 0; a < UTIL_COUNT(acts); a++) {
        scene s = make_scene();
        int before = fault_open_files();
        for (int f = 0; f < UTIL_COUNT(faults); f++) {
            for (int n = 1;; n++) {
                assert_true(n < 1000);
                ckpt__error_last.text[0] = 0;
                fault_arm(faults[f], n);
                ckpt_err e = acts[a].act(&s);
                bool hit = fault_disarm();
                check_fault(faults[f], e, acts[a].name, n);
                if (!hit) assert_int_equal(e, CKPT_OK);
                if (fault_open_files() != before) fail_msg("%s with call %d (%s) failing with %d leaks a descriptor", acts[a].name, n, fault_where, faults[f]);
                if (strcmp(util_list(s.dir), "file\n") != 0)
                    fail_msg("%s with call %d (%s) failing with %d leaves %s", acts[a].name, n, fault_where, faults[f], util_list(s.dir));
                if (waitpid(-1, NULL, WNOHANG) != -1) fail_msg("%s with call %d (%s) failing with %d leaves a child", acts[a].name, n, fault_where, faults[f]);
                if (!hit) break;
                all++;
            }
        }
        close(s.fd);
    }
    print_message("%d faults injected\n", all);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_write),
        cmocka_unit_test(test_room_in_memory),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_low_descriptors),
        cmocka_unit_test(test_temp_and_direct),
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_rename),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_link_while_replaced),
        cmocka_unit_test(test_link_amid_rename),
        cmocka_unit_test(test_mkdirs),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_lock_of_others),
        cmocka_unit_test(test_lock_and_orphans),
        cmocka_unit_test(test_lock_and_exec),
        cmocka_unit_test(test_lock_and_proc),
        cmocka_unit_test(test_lock_without_locks), cmocka_unit_test(test_lock_removed_elsewhere),
        cmocka_unit_test(test_lock_crowd),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stack),
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_english),
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_pipe_room),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
