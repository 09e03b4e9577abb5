/* faults.h: makes the n-th system call of ckpt.h fail, so that "the disk fills up at byte 4096" is an ordinary test.

   Include it before ckpt.h: it defines CKPT__SYS, through which the library's >>platform section makes every call.

       for (int n = 1;; n++) {
           fault_arm(ENOSPC, n);
           ckpt_err e = ckpt_save(...);
           if (!fault_disarm()) break;          // the run passed: there was no n-th call
           ...
       }

   Counting is for the whole process, threads included. A failing close or waitpid has done its work all the same, as the
   real ones have: otherwise each injected failure would leak the descriptor that it is the test's business to find.
*/
#ifndef FAULTS_H
#define FAULTS_H

#if !defined(_DEFAULT_SOURCE)
    #define _DEFAULT_SOURCE 1
#endif
#if !defined(_FILE_OFFSET_BITS)
    #define _FILE_OFFSET_BITS 64
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CKPT__SYS(name) fault_##name

#define FAULT_FN static __attribute__((unused))

#define FAULT_SHORT (-1)            // for fault_arm: the n-th read or write moves half of what was asked

enum {
    FAULT_INTR = 1,                 // a signal can interrupt it
    FAULT_GROWS = 2                 // it needs room on the disk
};

static int         fault_errnum;    // 0: no fault
static int         fault_nth;
static bool        fault_stays;     // every later call that needs room fails too
static const char *fault_only;      // count calls of this name alone; NULL: of any
static int         fault_calls;     // counted since fault_arm
static int         fault_hits;
static const char *fault_where;     // the call that failed
static int         fault_arming;    // grows when all are disarmed

// What a spy arms on its thread alone.
static __thread const char *fault_own_name;
static __thread int         fault_own_errnum;
static __thread int         fault_own_arming;
// Hears of calls that change or look through folders, and of closes and pwrites, before they are made; path NULL: of fd. It may take its time.
static void      (*fault_watch)(const char *name, const char *path, int fd);
static void      (*fault_spy)(const char *name, const char *path);      // the same of opens, stats, lstats, symlinks and renames, and may arm a fault for this very call

//-- what the library has as constants, as variables: tests that want other ones share what is compiled -------------

#define FAULT_NO_SYNC (-1)

static int      fault_sync;         // 0: fsync and fdatasync do their work; FAULT_NO_SYNC: nothing; else they take so many microseconds instead
static double   fault_backoff = 0;
static double   fault_hope = 60;
static double   fault_hope_most = 900;
static double   fault_pause = 900;
static double   fault_pause_most = 86400;
static size_t   fault_single = 8;
static unsigned fault_journal_most = 16 << 20;
static unsigned fault_shard_block = 256 * 1024;
static const char *fault_boot;      // NULL: what the kernel says
static long     fault_file_system;  // what every file lies on; 0: what the kernel says
static bool     fault_no_locks;     // there are no locks on it
static int      fault_nameless;     // so many fstats tell of no name yet
static int      fault_stale_locks;  // so many locks find a file that is no more
static double   fault_link_wait = 30;

#define CKPT__UPLOADER_BACKOFF fault_backoff
#define CKPT__UPLOADER_HOPE fault_hope
#define CKPT__UPLOADER_HOPE_MOST fault_hope_most
#define CKPT__REMOTE_PAUSE fault_pause
#define CKPT__REMOTE_PAUSE_MOST fault_pause_most
#define CKPT__UPLOADER_SINGLE fault_single
#define CKPT__UPLOADER_JOURNAL_MAX fault_journal_most
#define CKPT__SHARD_BLOCK fault_shard_block
#define CKPT__UPLOADER_LINK_WAIT fault_link_wait
#define CKPT__OS_BOOT_ID (fault_boot != NULL ? fault_boot : "/proc/sys/kernel/random/boot_id")

// A spy arms faults on the threads it is told on.
#define FAULT_GET(v) __atomic_load_n(&(v), __ATOMIC_SEQ_CST)
#define FAULT_SET(v, x) __atomic_store_n(&(v), (x), __ATOMIC_SEQ_CST)

FAULT_FN void fault_forget_hits(void) {
    __atomic_store_n(&fault_hits, 0, __ATOMIC_SEQ_CST);
    FAULT_SET(fault_where, "");
}

FAULT_FN void fault_note_hit(const char *name) {
    if (__atomic_fetch_add(&fault_hits, 1, __ATOMIC_SEQ_CST) == 0) FAULT_SET(fault_where, name);
}

// The n-th call fails with `errnum`, those after it work again.
FAULT_FN void fault_arm(int errnum, int nth) {
    __atomic_store_n(&fault_calls, 0, __ATOMIC_SEQ_CST);
    fault_forget_hits();
    FAULT_SET(fault_nth, nth);
    FAULT_SET(fault_stays, false);
    FAULT_SET(fault_only, NULL);
    __atomic_store_n(&fault_errnum, errnum, __ATOMIC_SEQ_CST);
}

// From the n-th call that needs room on, the disk stays full.
FAULT_FN void fault_arm_full_disk(int nth) {
    fault_arm(0, nth);
    FAULT_SET(fault_stays, true);
    __atomic_store_n(&fault_errnum, ENOSPC, __ATOMIC_SEQ_CST);
}

// The n-th call of that name fails.
FAULT_FN void fault_arm_call(const char *name, int errnum, int nth) {
    fault_arm(0, nth);
    FAULT_SET(fault_only, name);
    __atomic_store_n(&fault_errnum, errnum, __ATOMIC_SEQ_CST);
}

// The next call of that name on this very thread fails: for a spy, which hears of a call that other threads may make as well.
FAULT_FN void fault_arm_here(const char *name, int errnum) {
    fault_forget_hits();
    fault_own_name = name;
    fault_own_errnum = errnum;
    fault_own_arming = FAULT_GET(fault_arming);
}

// Every call of that name fails, if it is one that needs room.
FAULT_FN void fault_arm_always(const char *name, int errnum) {
    fault_arm_call(name, errnum, 1);
    FAULT_SET(fault_stays, true);
}

// No more faults, on no thread. Did one happen?
FAULT_FN bool fault_disarm(void) {
    __atomic_store_n(&fault_errnum, 0, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&fault_arming, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&fault_hits, __ATOMIC_SEQ_CST) > 0;
}

FAULT_FN void fault_tell(const char *name, const char *path, int fd) {
    void (*watch)(const char *name, const char *path, int fd) = __atomic_load_n(&fault_watch, __ATOMIC_SEQ_CST);
    if (watch != NULL) watch(name, path, fd);
}

// Workers may look at it just then.
FAULT_FN void fault_set_spy(void (*spy)(const char *name, const char *path)) {
    __atomic_store_n(&fault_spy, spy, __ATOMIC_SEQ_CST);
}

FAULT_FN void fault_tell_spy(const char *name, const char *path) {
    void (*spy)(const char *name, const char *path) = __atomic_load_n(&fault_spy, __ATOMIC_SEQ_CST);
    if (spy != NULL) spy(name, path);
}

// What is armed on this thread alone, and then no more.
FAULT_FN int fault_take_own(const char *name) {
    int errnum = fault_own_errnum;
    if (errnum == 0 || fault_own_arming != FAULT_GET(fault_arming)) return 0;
    if (fault_own_name == NULL || strcmp(fault_own_name, name) != 0) return 0;
    fault_own_errnum = 0;
    fault_note_hit(name);
    return errnum;
}

// The errno to fail with, 0 for none, FAULT_SHORT to move half.
FAULT_FN int fault_take(const char *name, int flags, bool moves) {
    int own = fault_take_own(name);
    if (own != 0) return own;
    int errnum = __atomic_load_n(&fault_errnum, __ATOMIC_SEQ_CST);
    if (errnum == 0) return 0;
    if (errnum == EINTR && (flags & FAULT_INTR) == 0) return 0;
    if (errnum == FAULT_SHORT && !moves) return 0;
    bool stays = FAULT_GET(fault_stays);
    const char *only = FAULT_GET(fault_only);
    if (stays && (flags & FAULT_GROWS) == 0) return 0;
    if (only != NULL && strcmp(only, name) != 0) return 0;
    int n = __atomic_add_fetch(&fault_calls, 1, __ATOMIC_SEQ_CST), nth = FAULT_GET(fault_nth);
    if (n != nth && !(stays && n > nth)) return 0;
    fault_note_hit(name);
    return errnum;
}

FAULT_FN bool fault_fails(const char *name, int flags) {
    int f = fault_take(name, flags, false);
    if (f == 0) return false;
    errno = f;
    return true;
}

// Half of a transfer, whole pages where it can be, since a direct descriptor moves no less.
FAULT_FN size_t fault_half(size_t size) {
    return size >= 8192 ? size / 2 / 4096 * 4096 : size > 1 ? size / 2 : size;
}

//-- calls that move bytes ---------------------------------------------------------

#define FAULT_MOVE(name, flags, size, call_of_part)                                 \
    int f = fault_take(name, flags, true);                                          \
    if (f > 0) { errno = f; return -1; }                                            \
    size_t part = f == FAULT_SHORT ? fault_half(size) : (size);                     \
    return call_of_part

FAULT_FN ssize_t fault_read(int fd, void *p, size_t n) { FAULT_MOVE("read", FAULT_INTR, n, read(fd, p, part)); }
FAULT_FN ssize_t fault_write(int fd, const void *p, size_t n) { FAULT_MOVE("write", FAULT_INTR | FAULT_GROWS, n, write(fd, p, part)); }
FAULT_FN ssize_t fault_pread(int fd, void *p, size_t n, off_t at) { FAULT_MOVE("pread", FAULT_INTR, n, pread(fd, p, part, at)); }
FAULT_FN ssize_t fault_pwrite(int fd, const void *p, size_t n, off_t at) {
    fault_tell("pwrite", NULL, fd);
    FAULT_MOVE("pwrite", FAULT_INTR | FAULT_GROWS, n, pwrite(fd, p, part, at));
}

//-- calls that return -1 ----------------------------------------------------------

#define FAULT_CALL(name, flags, call) (fault_fails(name, flags) ? -1 : (call))

FAULT_FN int fault_open(const char *path, int flags, mode_t mode) {
    fault_tell_spy("open", path);
    return FAULT_CALL("open", FAULT_INTR | ((flags & O_CREAT) != 0 ? FAULT_GROWS : 0), open(path, flags, mode));
}

FAULT_FN int fault_close(int fd) {
    fault_tell("close", NULL, fd);
    int r = close(fd);
    return FAULT_CALL("close", FAULT_INTR, r);
}

FAULT_FN pid_t fault_waitpid(pid_t pid, int *status, int options) {
    if (fault_take("waitpid", FAULT_INTR, false) == 0) return waitpid(pid, status, options);
    int f = fault_errnum;
    if (f != EINTR) (void)waitpid(pid, status, options);
    errno = f;
    return -1;
}

FAULT_FN int fault_waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
    return FAULT_CALL("waitid", FAULT_INTR, waitid(type, id, info, options));
}

FAULT_FN int fault_nanosleep(const struct timespec *t, struct timespec *left) {
    if (left != NULL) *left = *t;
    return FAULT_CALL("nanosleep", FAULT_INTR, nanosleep(t, left));
}

FAULT_FN int fault_stat(const char *path, struct stat *s) {
    fault_tell_spy("stat", path);
    return FAULT_CALL("stat", FAULT_INTR, stat(path, s));
}
FAULT_FN int fault_lstat(const char *path, struct stat *s) {
    fault_tell_spy("lstat", path);
    return FAULT_CALL("lstat", FAULT_INTR, lstat(path, s));
}
FAULT_FN int fault_fstat(int fd, struct stat *s) {
    int r = FAULT_CALL("fstat", FAULT_INTR, fstat(fd, s));
    if (r == 0 && fault_nameless > 0) { fault_nameless--; s->st_nlink = 0; }
    return r;
}
FAULT_FN int fault_fstatvfs(int fd, struct statvfs *s) { return FAULT_CALL("fstatvfs", FAULT_INTR, fstatvfs(fd, s)); }
FAULT_FN int fault_syncs(int fd, int (*call)(int fd)) {
    int how = __atomic_load_n(&fault_sync, __ATOMIC_SEQ_CST);
    if (how > 0) usleep((useconds_t)how);
    return how == 0 ? call(fd) : 0;
}
FAULT_FN int fault_fsync(int fd) {
    fault_tell("fsync", NULL, fd);
    return FAULT_CALL("fsync", FAULT_INTR, fault_syncs(fd, fsync));
}
FAULT_FN int fault_fdatasync(int fd) {
    fault_tell("fdatasync", NULL, fd);
    return FAULT_CALL("fdatasync", FAULT_INTR, fault_syncs(fd, fdatasync));
}
FAULT_FN int fault_ftruncate(int fd, off_t n) { return FAULT_CALL("ftruncate", FAULT_INTR | FAULT_GROWS, ftruncate(fd, n)); }
FAULT_FN int fault_link(const char *a, const char *b) { return FAULT_CALL("link", FAULT_INTR | FAULT_GROWS, link(a, b)); }
FAULT_FN int fault_symlink(const char *a, const char *b) {
    fault_tell_spy("symlink", b);
    return FAULT_CALL("symlink", FAULT_INTR | FAULT_GROWS, symlink(a, b));
}
FAULT_FN int fault_rename(const char *a, const char *b) {
    fault_tell_spy("rename", b);
    return FAULT_CALL("rename", FAULT_INTR | FAULT_GROWS, rename(a, b));
}
FAULT_FN int fault_unlink(const char *path) {
    fault_tell("unlink", path, -1);
    return FAULT_CALL("unlink", FAULT_INTR, unlink(path));
}
FAULT_FN int fault_rmdir(const char *path) {
    fault_tell("rmdir", path, -1);
    return FAULT_CALL("rmdir", FAULT_INTR, rmdir(path));
}
FAULT_FN int fault_mkdir(const char *path, mode_t m) { return FAULT_CALL("mkdir", FAULT_INTR | FAULT_GROWS, mkdir(path, m)); }
FAULT_FN ssize_t fault_readlink(const char *p, char *b, size_t n) { return FAULT_CALL("readlink", FAULT_INTR, readlink(p, b, n)); }
FAULT_FN int fault_fchown(int fd, uid_t u, gid_t g) { return FAULT_CALL("fchown", FAULT_INTR, fchown(fd, u, g)); }
FAULT_FN int fault_fchmod(int fd, mode_t m) { return FAULT_CALL("fchmod", FAULT_INTR, fchmod(fd, m)); }
FAULT_FN int fault_access(const char *path, int mode) { return FAULT_CALL("access", 0, access(path, mode)); }
FAULT_FN int fault_pipe(int fds[2]) { return FAULT_CALL("pipe", 0, pipe(fds)); }
#define fault_getrlimit(what, l) FAULT_CALL("getrlimit", 0, getrlimit((what), (l)))
FAULT_FN off_t fault_lseek(int fd, off_t at, int from) { return FAULT_CALL("lseek", 0, lseek(fd, at, from)); }
FAULT_FN int fault_madvise(void *p, size_t n, int what) { return FAULT_CALL("madvise", 0, madvise(p, n, what)); }
FAULT_FN int fault_mincore(void *p, size_t n, unsigned char *v) { return FAULT_CALL("mincore", 0, mincore(p, n, v)); }
FAULT_FN int fault_clock_gettime(clockid_t id, struct timespec *t) { return FAULT_CALL("clock_gettime", 0, clock_gettime(id, t)); }
FAULT_FN int fault_gethostname(char *b, size_t n) { return FAULT_CALL("gethostname", 0, gethostname(b, n)); }
FAULT_FN int fault_isatty(int fd) { return FAULT_CALL("isatty", 0, isatty(fd)); }
FAULT_FN int fault_sigpending(sigset_t *s) { return FAULT_CALL("sigpending", 0, sigpending(s)); }
FAULT_FN int fault_linkat(int d, const char *a, int e, const char *b, int flags) {
    fault_tell("linkat", b, -1);
    return FAULT_CALL("linkat", FAULT_INTR | FAULT_GROWS, linkat(d, a, e, b, flags));
}
FAULT_FN int fault_socket(int domain, int type, int protocol) { return FAULT_CALL("socket", 0, socket(domain, type, protocol)); }
FAULT_FN ssize_t fault_recv(int fd, void *p, size_t n, int flags) { FAULT_MOVE("recv", FAULT_INTR, n, recv(fd, p, part, flags)); }
// Those for locks of open files, 36 to 38 on Linux, have no names in strict modes.
FAULT_FN bool fault_lock_fails(int fd, int command, ...) {
    (void)fd;
    if (fault_stale_locks > 0 && command == F_SETLK) { fault_stale_locks--; errno = ESTALE; return true; }
    if (!fault_no_locks || (command != F_SETLK && command != F_GETLK && (command < 36 || command > 38))) return false;
    errno = ENOLCK;
    return true;
}
#define fault_fcntl(...)   (fault_lock_fails(__VA_ARGS__) ? -1 : FAULT_CALL("fcntl", FAULT_INTR, fcntl(__VA_ARGS__)))
#define fault_dup2(fd, to) FAULT_CALL("dup2", FAULT_INTR, dup2((fd), (to)))
#define fault_ioctl(...)   FAULT_CALL("ioctl", 0, ioctl(__VA_ARGS__))
#define fault_setsockopt(...) FAULT_CALL("setsockopt", 0, setsockopt(__VA_ARGS__))
#define fault_getsockopt(...) FAULT_CALL("getsockopt", 0, getsockopt(__VA_ARGS__))
#define fault_poll(...)    FAULT_CALL("poll", FAULT_INTR, poll(__VA_ARGS__))
#define fault_shutdown(...) FAULT_CALL("shutdown", 0, shutdown(__VA_ARGS__))

// fallocate, renameat2, getrandom, statx, pwritev2, memfd_create and sched_getaffinity, which strict C libraries hide.
#define fault_syscall(number, ...) \
    (fault_fails(fault_number_name(number), fault_number_flags(number)) ? -1L : \
     fault_statfs(number, __VA_ARGS__) ? 0L : syscall(number, __VA_ARGS__))

// fstatfs by the script.
FAULT_FN bool fault_statfs(long number, ...) {
    va_list args;
    if (number != SYS_fstatfs || fault_file_system == 0) return false;
    va_start(args, number);
    (void)va_arg(args, long);
    *va_arg(args, long *) = fault_file_system;          // the first word is the type
    va_end(args);
    return true;
}

FAULT_FN const char *fault_number_name(long number) {
    switch (number) {
        case SYS_fallocate: return "fallocate";
        case SYS_renameat2: return "renameat2";
        case SYS_getrandom: return "getrandom";
        case SYS_sched_getaffinity: return "sched_getaffinity";
#ifdef SYS_statx
        case SYS_statx: return "statx";
#endif
#ifdef SYS_pwritev2
        case SYS_pwritev2: return "pwritev2";
#endif
#ifdef SYS_copy_file_range
        case SYS_copy_file_range: return "copy_file_range";
#endif
        case SYS_fsetxattr: return "fsetxattr";
        case SYS_fgetxattr: return "fgetxattr";
#ifdef SYS_socketpair
        case SYS_socketpair: return "socketpair";
        case SYS_setsockopt: return "setsockopt";
        case SYS_shutdown: return "shutdown";
#endif
#ifdef SYS_pipe2
        case SYS_pipe2: return "pipe";
#endif
        default: return "syscall";
    }
}

FAULT_FN int fault_number_flags(long number) {
    if (number == SYS_fallocate || number == SYS_renameat2) return FAULT_INTR | FAULT_GROWS;
#ifdef SYS_pwritev2
    if (number == SYS_pwritev2) return FAULT_INTR | FAULT_GROWS;
#endif
#ifdef SYS_copy_file_range
    if (number == SYS_copy_file_range) return FAULT_INTR | FAULT_GROWS;
#endif
    if (number == SYS_fsetxattr) return FAULT_GROWS;
    return number == SYS_getrandom ? FAULT_INTR : 0;
}

//-- calls with other ways to fail -------------------------------------------------

FAULT_FN DIR *fault_opendir(const char *path) {
    fault_tell("opendir", path, -1);
    return fault_fails("opendir", FAULT_INTR) ? NULL : opendir(path);
}
FAULT_FN struct dirent *fault_readdir(DIR *d) { return fault_fails("readdir", 0) ? NULL : readdir(d); }
FAULT_FN int fault_closedir(DIR *d) {
    int r = closedir(d);
    return FAULT_CALL("closedir", FAULT_INTR, r);
}

FAULT_FN char *fault_realpath(const char *path, char *out) { return fault_fails("realpath", FAULT_INTR) ? NULL : realpath(path, out); }

FAULT_FN void *fault_mmap(void *p, size_t n, int prot, int flags, int fd, off_t at) {
    return fault_fails("mmap", 0) ? MAP_FAILED : mmap(p, n, prot, flags, fd, at);
}

FAULT_FN int fault_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg) {
    int f = fault_take("pthread_create", 0, false);
    return f != 0 ? f : pthread_create(t, a, fn, arg);
}

FAULT_FN int fault_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    int f = fault_take("pthread_mutex_init", 0, false);
    return f != 0 ? f : pthread_mutex_init(m, a);
}

FAULT_FN int fault_pthread_condattr_init(pthread_condattr_t *a) {
    int f = fault_take("pthread_condattr_init", 0, false);
    return f != 0 ? f : pthread_condattr_init(a);
}

FAULT_FN int fault_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                                char *const *argv, char *const *env) {
    int f = fault_take("posix_spawnp", 0, false);
    return f != 0 ? f : posix_spawnp(pid, file, actions, attr, argv, env);
}

FAULT_FN int fault_posix_spawn_file_actions_init(posix_spawn_file_actions_t *a) {
    int f = fault_take("posix_spawn_file_actions_init", 0, false);
    return f != 0 ? f : posix_spawn_file_actions_init(a);
}

// These do not fail: what they undo must be undone, and the others change nothing but the time at which a signal arrives.
FAULT_FN int fault_munmap(void *p, size_t n) { return munmap(p, n); }
FAULT_FN int fault_kill(pid_t pid, int sig) { return kill(pid, sig); }
FAULT_FN int fault_sigwait(const sigset_t *s, int *sig) { return sigwait(s, sig); }
FAULT_FN int fault_pthread_sigmask(int how, const sigset_t *s, sigset_t *old) { return pthread_sigmask(how, s, old); }

//-- what must not leak ------------------------------------------------------------

FAULT_FN int fault_open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL) return -1;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

#endif // FAULTS_H
