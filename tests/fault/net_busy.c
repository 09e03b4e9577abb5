/* net_busy.c: the uploader at its busiest against RGW, for the sanitizers and valgrind; two processes with one staging folder; a staging
   folder whose disk is full. Driven by net_busy.sh.

       net_busy busy COUNT     16 workers up, ranges down, progress, stats and new files from several threads meanwhile
       net_busy share          two processes share a staging folder, a third has died
       net_busy full DIR       the staging folder is DIR/staging, on a file system of 24 MiB
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../result.h"
#include "net_util_s3.h"
#include <signal.h>
#include <sys/wait.h>

enum { MULTI = 21 << 20, PART = 5 << 20, SMALL = 30000, LINES = 20000 };

static const char *dir;

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    if (getenv("NET_DEBUG") != NULL) fprintf(stderr, "%d: %s\n", (int)level, text);
}

static void on_progress(const ckpt_progress *p, void *user) {
    (void)p;
    ++*(int *)user;
}

static int told;

static ckpt_err open_uploader(ckpt_uploader **u, const char *staging, int files, int parts) {
    ckpt_uploader_desc d;
    ckpt_store_desc s;
    memset(&d, 0, sizeof d);
    memset(&s, 0, sizeof s);
    s.endpoint_url = env("NET_ENDPOINT");
    d.bucket_uri = "s3://net/busy";
    d.store_desc = &s;
    d.upload_staging_folder = staging;
    d.num_concurrent_uploads = files;
    d.num_concurrent_parts = parts;
    d.part_size = PART;
    d.stall_timeout_s = 60;
    d.ranks.world_size = 1;
    d.logger.fn = on_log;
    d.progress.fn = on_progress;
    d.progress.user = &told;
    d.event_file = util_join(dir, "events");
    return ckpt_uploader_open(u, &d);
}

static bool right(const char *name, size_t size, unsigned seed) {
    ckpt_store_desc d;
    ckpt_store *s;
    char path[600];
    memset(&d, 0, sizeof d);
    d.endpoint_url = env("RGW_HTTP");
    snprintf(path, sizeof path, "%s/look-%d", dir, (int)getpid());
    if (ckpt_store_open(&s, "s3://net/busy", &d) != CKPT_OK) return false;
    bool good = ckpt_store_get(s, name, path, true) == CKPT_OK && file_holds(path, size, seed);
    ckpt_store_close(s);
    return good;
}

//-- busy --------------------------------------------------------------------------

typedef struct feeder { ckpt_uploader *u; int number, count, wrong; pthread_t thread; } feeder;

static void *feed(void *arg) {
    feeder *f = (feeder *)arg;
    char name[64], path[600];
    for (int i = 0; i < f->count; i++) {
        ckpt_transfer_stats st;
        bool big = i % 4 == 0;
        snprintf(name, sizeof name, "b%d-%d", f->number, i);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        make_file(path, big ? MULTI : SMALL, (unsigned)(f->number * 100 + i));
        f->wrong += ckpt_upload_file(f->u, name, path, true) != CKPT_OK;
        unlink(path);
        f->wrong += ckpt_upload_file(f->u, "same", path, true) != CKPT_NOT_FOUND;
        ckpt_uploader_stats(f->u, &st);
    }
    return NULL;
}

static void busy(int count) {
    enum { FEEDERS = 3 };
    feeder f[FEEDERS];
    ckpt_uploader *u;
    if (open_uploader(&u, util_join(dir, "staging"), 4, 4) != CKPT_OK) { result(false, "busy: %s", ckpt_last_error()); return; }
    for (int i = 0; i < FEEDERS; i++) {
        feeder one = { u, i, count, 0, pthread_self() };
        f[i] = one;
        if (pthread_create(&f[i].thread, NULL, feed, &f[i]) != 0) abort();
    }
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < 20 && e == CKPT_OK; i++) {
        e = ckpt_uploader_check(u);
        usleep(20000);
    }
    int wrong = 0, good = 0;
    for (int i = 0; i < FEEDERS; i++) { pthread_join(f[i].thread, NULL); wrong += f[i].wrong; }
    if (e == CKPT_OK) e = ckpt_uploader_wait(u, 300);
    const char *back = util_join(dir, "back");
    if (e == CKPT_OK) e = ckpt_download_file(u, "b0-0", back, true);
    bool same = e == CKPT_OK && file_holds(back, MULTI, 0);
    ckpt_err closed = ckpt_uploader_close(u, 60);
    for (int i = 0; i < FEEDERS; i++) {
        for (int k = 0; k < count; k++) {
            char name[64];
            snprintf(name, sizeof name, "b%d-%d", i, k);
            good += right(name, k % 4 == 0 ? MULTI : SMALL, (unsigned)(i * 100 + k));
        }
    }
    result(e == CKPT_OK && closed == CKPT_OK && same && wrong == 0 && good == FEEDERS * count && told > 0, "16 workers busy: %d of %d files right, %d calls of progress%s%s", good,
           FEEDERS * count, told, e != CKPT_OK ? ": " : "", e != CKPT_OK ? ckpt_last_error() : "");
}

//-- two processes, one staging folder ------------------------------------------------

enum { EACH = 10 };

static void member(int who, bool dies) {
    ckpt_uploader *u;
    char name[64], path[600];
    if (open_uploader(&u, util_join(dir, "shared"), 2, 2) != CKPT_OK) _exit(10);
    for (int i = 0; i < EACH; i++) {
        snprintf(name, sizeof name, "s%d-%d", who, i);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        make_file(path, i % 5 == 0 ? MULTI : SMALL, (unsigned)(1000 + who * 100 + i));
        if (ckpt_upload_file(u, name, path, true) != CKPT_OK) _exit(11);
        unlink(path);
    }
    if (dies) raise(SIGKILL);
    if (ckpt_uploader_close(u, 120) != CKPT_OK) { fprintf(stderr, "%s\n", ckpt_last_error()); _exit(12); }
    _exit(0);
}

static pid_t start(int who, bool dies) {
    pid_t pid = fork();
    if (pid == 0) member(who, dies);
    return pid;
}

static void share(void) {
    int status, bad = 0, good = 0, twice = 0, of_living = 0;
    pid_t dead = start(0, true);
    waitpid(dead, &status, 0);
    pid_t a = start(1, false), b = start(2, false);
    waitpid(a, &status, 0);
    bad += status != 0;
    waitpid(b, &status, 0);
    bad += status != 0;
    net_line *l = (net_line *)calloc(LINES, sizeof *l);
    for (int who = 0; who < 3; who++) {
        for (int i = 0; i < EACH; i++) {
            char name[64], key[100];
            int puts = 0, want = i % 5 == 0 ? MULTI / PART + 1 : 1;
            snprintf(name, sizeof name, "s%d-%d", who, i);
            snprintf(key, sizeof key, "/net/busy/%s", name);
            good += right(name, i % 5 == 0 ? MULTI : SMALL, (unsigned)(1000 + who * 100 + i));
            int n = net_log(env("NET_LOG"), key, l, LINES);
            for (int k = 0; k < n; k++) puts += strcmp(l[k].method, "PUT") == 0;
            twice += puts > want && who == 0 ? puts - want : 0;
            of_living += puts != want && who > 0;
        }
    }
    free(l);
    result(bad == 0 && good == 3 * EACH && of_living == 0 && twice <= 4 && util_staged(util_join(dir, "shared")) == NULL,
           "two processes share a staging folder with a dead one's files: %d of %d files right, %d of the living's and %d of the dead one's sent twice", good, 3 * EACH,
           of_living, twice);
}

//-- a full disk -------------------------------------------------------------------

static int fill_disk(const char *path) {
    static char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) return -1;
    for (size_t n = sizeof block; n > 0; n /= 2) while (write(fd, block, n) == (ssize_t)n) {}
    close(fd);
    return 0;
}

static void full(const char *small_disk) {
    ckpt_uploader *u;
    ckpt_transfer_stats st;
    const char *staging = util_join(small_disk, "staging"), *filler = util_join(small_disk, "filler");
    const char *big = util_join(dir, "too-big"), *fits = util_join(dir, "fits"), *tiny = util_join(dir, "tiny");
    make_file(big, 30 << 20, 1);
    make_file(fits, MULTI - PART, 2);       // 16 MiB, in parts
    make_file(tiny, SMALL, 3);
    if (open_uploader(&u, staging, 1, 2) != CKPT_OK) { result(false, "full disk: %s", ckpt_last_error()); return; }
    ckpt_err e = ckpt_upload_file(u, "too-big", big, true);
    result(e == CKPT_NO_SPACE && strstr(ckpt_last_error(), "too-big") != NULL, "a file that does not fit is CKPT_NO_SPACE: %s", ckpt_last_error());
    result(util_staged(staging) == NULL, "nothing of it is left");
    ckpt_err fit = ckpt_upload_file(u, "fits", fits, true);
    // While it is sent, the records of its parts cannot grow any more.
    fill_disk(filler);
    e = ckpt_upload_file(u, "tiny", tiny, true);
    ckpt_err waited = ckpt_uploader_wait(u, 60);
    result(e == CKPT_NO_SPACE, "a small file on a full disk is %s", ckpt_err_name(e));
    result(fit == CKPT_OK && waited == CKPT_OK && right("fits", MULTI - PART, 2), "what was staged before gets through without room for its journal (%s)", ckpt_err_name(waited));
    (void)unlink(filler);
    e = ckpt_upload_file(u, "tiny", tiny, true);
    ckpt_uploader_stats(u, &st);
    ckpt_err closed = ckpt_uploader_close(u, 60);
    result(e == CKPT_OK && closed == CKPT_OK && right("tiny", SMALL, 3), "with room again it goes on (%s, %s)", ckpt_err_name(e), ckpt_err_name(closed));
    result(util_staged(staging) == NULL, "the staging folder is empty in the end");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    dir = util_temp_dir();
    if (strcmp(what, "busy") == 0 && argc > 2) busy(atoi(argv[2]));
    else if (strcmp(what, "share") == 0) share();
    else if (strcmp(what, "full") == 0 && argc > 2) full(argv[2]);
    else return 2;
    return failures != 0;
}
