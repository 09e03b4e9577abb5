/* net_kill.c: a process that uploads to a server (sshd, or one of net_stores.h, RGW unless NET_STORE names another) without pause is killed
   at random instants; the next one, with the same staging folder, goes on. Every file whose upload was acknowledged gets there whole,
   no half-done upload is left, no part is sent twice but those that were on their way (counted in a proxy's log), and the published
   link never names something absent and never goes back, at which a reader looks all along. NET_URI, NET_KILLS, NET_SECONDS (the
   longest life); see net_kill.sh and net_clouds.sh. run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../result.h"
#include "net_util_s3.h"
#include "net_stores.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STEPS = 20000, WORKERS = 2, LANES = 2, LINES = 200000, PARTS_MOST = 4 /* see size_of */ };

// What the processes tell, in memory that outlives them.
typedef struct ledger {
    volatile int  step;                 // the last one begun
    volatile int  acked[STEPS];         // its upload was acknowledged
    volatile int  newest;               // the last acknowledged file of the constant name
    volatile int  child, reader;        // what went wrong: a line of this file, 0 nothing
    volatile char why[600];
    volatile int  stop, looks;
} ledger;

static ledger *shared;
static const char *staging, *source, *dir;
static bool sftp;
static const net_store *here;

static size_t size_of(int step) {
    unsigned x = (unsigned)step * 2654435761u;
    return step % 3 != 0 ? 1 + x % 100000 : here->part * 2 + x % (here->part * 7 / 5);
}

#define check(condition) do { if (!(condition)) broken(__LINE__); } while (0)

static void broken(int line) {
    shared->child = line;
    snprintf((char *)(uintptr_t)shared->why, sizeof shared->why, "%s", ckpt_last_error());
    _exit(1);
}

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    if (getenv("NET_DEBUG") != NULL) fprintf(stderr, "%d: %s\n", (int)level, text);
}

static void describe(ckpt_store_desc *d, const char *endpoint) {
    memset(d, 0, sizeof *d);
    d->endpoint_url = endpoint;
    d->stall_timeout_s = 20;
    d->logger.fn = on_log;
    if (sftp) {
        d->endpoint_url = NULL;
        d->key_filename = env("SFTP_KEY");
        d->known_hosts_filename = env("SFTP_KNOWN");
    }
}

static ckpt_uploader *start(void) {
    ckpt_store_desc s;
    ckpt_uploader_desc d;
    ckpt_uploader *u;
    memset(&d, 0, sizeof d);
    describe(&s, getenv("NET_ENDPOINT"));
    d.bucket_uri = env("NET_URI");
    d.store_desc = &s;
    d.upload_staging_folder = staging;
    d.num_concurrent_uploads = WORKERS;
    d.num_concurrent_parts = LANES;
    d.part_size = here->part;
    d.ranks.world_size = 1;
    d.logger.fn = on_log;
    check(ckpt_uploader_open(&u, &d) == CKPT_OK);
    return u;
}

static void upload(void) {
    ckpt_uploader *u = start();
    while (shared->step + 1 < STEPS) {
        int step = ++shared->step;
        char name[32], path[4200];
        ckpt__upload up;
        ckpt_transfer_stats st;
        snprintf(name, sizeof name, "ep%d", step);
        snprintf(path, sizeof path, "%s/%s", source, name);
        make_file(path, size_of(step), (unsigned)step);
        memset(&up, 0, sizeof up);
        up.name = name;
        up.path = path;
        up.durable = step % 2 == 0;     // linked, else as any file
        up.overwrite = step % 5 != 0 && step % 6 != 0;
        up.link_name = "latest.symlink";
        up.link_text = name;
        up.link_order[0] = (uint64_t)step;
        check(ckpt__uploader_add(u, &up) == CKPT_OK);
        shared->acked[step] = 1;
        if (step % 4 == 1) {
            check(ckpt_upload_file(u, "model.pt", path, true) == CKPT_OK);
            shared->newest = step;
        }
        (void)unlink(path);
        for (ckpt_uploader_stats(u, &st); st.pending > 3; ckpt_uploader_stats(u, &st)) usleep(500);
        check(ckpt_uploader_check(u) == CKPT_OK);
    }
    _exit(0);
}

static void finish(void) {
    check(ckpt_uploader_close(start(), 0) == CKPT_OK);
    _exit(0);
}

//-- what is there -----------------------------------------------------------------

static ckpt_store *open_direct(void) {
    ckpt_store_desc d;
    ckpt_store *s;
    if (sftp) return NULL;
    describe(&d, env("NET_DIRECT"));
    check(ckpt_store_open(&s, env("NET_URI"), &d) == CKPT_OK);
    return s;
}

// The bytes of an object into a file. sshd's are looked at where they lie.
static ckpt_err get(ckpt_store *s, const char *name, char *path, size_t cap) {
    if (s == NULL) {
        snprintf(path, cap, "%s/%s", env("SFTP_PLACE"), name);
        return util_exists(path) ? CKPT_OK : CKPT_NOT_FOUND;
    }
    snprintf(path, cap, "%s/got-%d", dir, (int)getpid());
    return ckpt_store_get(s, name, path, true);
}

static bool there(ckpt_store *s, const char *name, int step, bool whole) {
    char path[4200];
    uint64_t size;
    if (s != NULL && !whole) return ckpt_store_size(s, name, &size) == CKPT_OK && size == size_of(step);
    return get(s, name, path, sizeof path) == CKPT_OK && file_holds(path, size_of(step), (unsigned)step);
}

static void watch(void) {
    ckpt_store *s = open_direct();
    char path[4200];
    int last = 0;
    for (int i = 0; !shared->stop; i++) {
        size_t n;
        ckpt_err e = get(s, "latest.symlink", path, sizeof path);
        char *text = e == CKPT_OK ? util_slurp(path, &n) : NULL;
        if (e != CKPT_OK && e != CKPT_NOT_FOUND && shared->reader == 0) {
            shared->reader = __LINE__;
            snprintf((char *)(uintptr_t)shared->why, sizeof shared->why, "%s", ckpt_last_error());
        }
        if (e == CKPT_NOT_FOUND && last > 0 && !sftp && shared->reader == 0) shared->reader = __LINE__;
        if (text != NULL && n > 0) {
            int step = strncmp(text, "ep", 2) == 0 ? atoi(text + 2) : -1;
            if (step < last && shared->reader == 0) shared->reader = __LINE__;
            if ((step <= 0 || !there(s, text, step, i % 8 == 0)) && shared->reader == 0) {
                shared->reader = __LINE__;
                snprintf((char *)(uintptr_t)shared->why, sizeof shared->why, "it names %s", text);
            }
            last = step;
            shared->looks++;
        }
        free(text);
        usleep(20000);
    }
    _exit(0);
}

static pid_t run(void (*f)(void)) {
    pid_t pid = fork();
    if (pid == 0) { f(); _exit(0); }
    return pid;
}


static ckpt_err count_one(const char *name, const char *id, double started, void *user) {
    (void)id; (void)started;
    fprintf(stderr, "open upload of %s\n", name);
    ++*(int *)user;
    return CKPT_OK;
}

static int by_target(const void *a, const void *b) {
    const net_line *x = (const net_line *)a, *y = (const net_line *)b;
    int order = strcmp(x->target, y->target);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

// Leaves of the target of a part's request what names the part, and nothing of the upload it is of. false: it is none of those
// that are counted. Azure's number stands in the block's name, in base64: 32 bytes of the upload, '.', number, '.', CRC-32.
static bool cut_part(char *target) {
    char *id = strstr(target, "ploadId="), *number = strstr(target, "artNum"), *block = strstr(target, "?blockid=");
    if (strstr(target, "/model.pt?") != NULL || strstr(target, "%2Fmodel.pt?") != NULL) return false;
    if (block != NULL && strlen(block) > 9 + 64) {
        if (strncmp(block + 9 + 44, "MDAwMDAwLj", 10) == 0) return false;      // 000000.: a sign of life
        memmove(block + 1, block + 9 + 44, 21);
        block[21] = 0;
        return true;
    }
    if ((block = strstr(target, "&comp=block&blockid=")) != NULL && (id = strchr(target, '?')) != NULL && strlen(block) >= 20 + 52) {
        memmove(id + 1, block + 20 + 44, 9);        // the same of MLflow's blocks behind Databricks' addresses: without a sum
        return true;
    }
    char *signed_part = strstr(target, "?op=part&"), *nth = strstr(target, "&part=");     // Databricks' addresses
    if (signed_part != NULL && nth != NULL) {
        memmove(signed_part, nth, strcspn(nth + 1, "&") + 1);
        signed_part[strcspn(nth + 1, "&") + 1] = 0;
        return true;
    }
    if (number == NULL || id == NULL) return false;
    if (number < id) id[0] = 0;
    else memmove(id, number, strlen(number) + 1);
    return true;
}

// Parts that were put more than once, in all and (*most) of those that one process had put in vain.
static int count_twice(int *parts, int *most, const double *ends, int lives) {
    net_line *l = (net_line *)calloc(LINES, sizeof *l);
    int n = net_log(env("NET_LOG"), NULL, l, LINES), kept = 0, twice = 0;
    int *vain = (int *)calloc((size_t)lives + 1, sizeof *vain);
    for (int i = 0; i < n; i++) {
        if (strcmp(l[i].method, "PUT") == 0 && cut_part(l[i].target)) l[kept++] = l[i];
    }
    qsort(l, (size_t)kept, sizeof *l, by_target);
    for (int i = 1; i < kept; i++) {
        int life = 0;
        if (strcmp(l[i].target, l[i - 1].target) != 0) continue;
        while (life < lives && ends[life] < l[i - 1].at) life++;
        vain[life]++;
        twice++;
    }
    *parts = kept - twice;
    *most = 0;
    for (int i = 0; i <= lives; i++) if (vain[i] > *most) *most = vain[i];
    free(vain);
    free(l);
    return twice;
}

// Is there work that went on between the kills? On a slow machine that takes more of them.
static bool enough(int kills) {
    int n = 0;
    for (int i = 1; i <= shared->step; i++) n += shared->acked[i] != 0;
    return n > kills / 2;
}

int main(void) {
    int kills = atoi(env("NET_KILLS")), status, killed = 0;
    double *ends = (double *)util_keep(calloc((size_t)kills * 5, sizeof *ends), false);
    double longest = atof(env("NET_SECONDS"));
    sftp = strncmp(env("NET_URI"), "sftp:", 5) == 0;
    here = net_store_here();
    const char *what = sftp ? "sshd" : here->what;
    dir = util_temp_dir();
    staging = util_join(dir, "staging");
    source = util_join(dir, "source");
    util_mkdir(source);
    shared = (ledger *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    srand((unsigned)getpid());
    pid_t reader = run(watch);
    for (int i = 0; (i < kills || (i < kills * 4 && !enough(kills))) && shared->child == 0; i++) {
        pid_t pid = run(upload);
        usleep((useconds_t)((double)rand() / RAND_MAX * (i % 4 == 0 ? longest / 8 : longest) * 1e6));
        kill(pid, SIGKILL);
        if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status)) ends[killed++] = now();
        // A whole file that a dead process has sent may still be on its way, and would replace the newer one of its name that the next
        // process puts at once: no client can keep a server from that. The last ones, whose order is looked at, are not so fast.
        if (i + 4 >= kills) usleep(400000);
    }
    pid_t pid = shared->child == 0 ? run(finish) : 0;
    if (pid > 0) (void)waitpid(pid, &status, 0);
    usleep(100000);
    shared->stop = 1;
    (void)waitpid(reader, &status, 0);
    result(shared->child == 0, "%s: the uploading process was killed %d times and never failed%s%s", what, killed,
           shared->child != 0 ? (shared->child = -shared->child, ": ") : "", (const char *)(uintptr_t)shared->why);
    if (shared->child != 0) printf("    line %d\n", -shared->child);
    result(shared->reader == 0 && shared->looks > 0, "%s: the link never named something absent and never went back in %d looks (line %d%s%s)", what,
           shared->looks, shared->reader, shared->reader != 0 ? ": " : "", shared->reader != 0 ? (const char *)(uintptr_t)shared->why : "");
    if (shared->child != 0) return 1;

    ckpt_store *s = open_direct();
    int acked = 0, wrong = 0, last = 0, model = 0;
    char path[4200];
    for (int i = 1; i <= shared->step; i++) {
        char name[32];
        snprintf(name, sizeof name, "ep%d", i);
        bool good = there(s, name, i, true);
        if (shared->acked[i]) {
            acked++;
            if (!good) { wrong++; fprintf(stderr, "%s: acknowledged, and it is lost or wrong\n", name); }
        } else if (!good && get(s, name, path, sizeof path) != CKPT_NOT_FOUND) {
            wrong++;
            fprintf(stderr, "%s: not acknowledged, there, and wrong\n", name);
        }
        if (good) last = i;
    }
    result(wrong == 0 && acked > kills / 2, "%s: %d acknowledged uploads, %d lost or wrong", what, acked, wrong);
    size_t n;
    char *text = get(s, "latest.symlink", path, sizeof path) == CKPT_OK ? util_slurp(path, &n) : NULL;
    result(text != NULL && atoi(text + 2) == last, "%s: the link names the last one, ep%d (%s)", what, last, text != NULL ? text : "none");
    free(text);
    // Of the constant name: the newest acknowledged one, or one that was begun after it.
    for (int i = shared->newest; i <= shared->step && model == 0; i++) if (i > 0 && there(s, "model.pt", i, true)) model = i;
    result(model > 0 || shared->newest == 0, "%s: the constant name holds the newest of its files", what);
    if (s != NULL && !ckpt__store_has_parts(s)) {
        ckpt_store_close(s);
    } else if (s != NULL) {
        int open = 0, parts, most, twice = count_twice(&parts, &most, ends, killed);
        ckpt_err e = ckpt_store_uploads(s, "", count_one, &open);
        result(e == CKPT_OK && open == 0, "%s: %d multipart uploads are left", what, open);
        // Addresses of MLflow's proxy die with the process that asked for them: the parts of files under way go again.
        int flight = WORKERS * LANES, limit = strcmp(here->name, "mlflow-parts") == 0 ? WORKERS * PARTS_MOST : flight;
        result(most <= limit, "%s: %d parts, %d sent again, at most %d after one kill (%d can be in flight)", what, parts, twice, most, flight);
        ckpt_store_close(s);
    } else {
        const char *left = util_list(env("SFTP_PLACE"));
        bool clean = true;
        for (const char *p = left; *p != 0; p = strchr(p, '\n') + 1)
            if (strncmp(p, "ep", 2) != 0 && strncmp(p, "model.pt\n", 9) != 0 && strncmp(p, "latest.symlink\n", 15) != 0) {
                clean = false;
                fprintf(stderr, "left: %.*s\n", (int)strcspn(p, "\n"), p);
            }
        result(clean, "%s: nothing half-done is left", what);
    }
    bool empty = util_staged(staging) == NULL;
    result(empty, "%s: the staging folder is empty", what);
    if (!empty) fprintf(stderr, "%s", util_list(staging));
    return failures != 0;
}
