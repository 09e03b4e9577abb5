/* net_faults.c: what becomes of uploads to and downloads from a server behind a proxy that breaks requests, and a made-up one that lies.
   After every fault the object is there, whole and right, or was never acknowledged and is absent; what failed goes through by the
   next uploader with the same staging folder; nothing half-done is left in the store. The server is one of net_stores.h, RGW unless
   NET_STORE names another. Driven by net_faults.sh, and by net_gs.sh, net_oci.sh, net_azure.sh, net_wandb.sh, net_uc.sh and net_mlflow_dbfs.sh.

       net_faults table       faults one by one, up and down, many side by side
       net_faults storm       429 and 503 against 16 workers: requests stay few
       net_faults stall       frozen links fail within the limit of 3 s +-20 %, slow ones succeed
       net_faults restart     radosgw dies in mid multipart: only what is missing is sent again
       net_faults lies        a server that keeps too few bytes, answers wrong sums, fails inside a 200
       net_faults tokens      session credentials that live for 3 s
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../result.h"
#include "net_util_s3.h"
#include "net_stores.h"

enum { SMALL = 100000, LINES = 20000 };

static const char *work;
static const net_store *here;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_log(ckpt_log_level level, const char *text, void *user) {
    if (getenv("NET_DEBUG") != NULL) fprintf(stderr, "%s %d: %s\n", (const char *)user, (int)level, text);
}

//-- doing things ------------------------------------------------------------------

typedef struct how {
    const char *endpoint, *name;        // of the object, or what its names begin with
    int         attempts, files, parts;
    double      stall;
    const ckpt_store_desc *store;
} how;

static ckpt_err open_uploader(ckpt_uploader **u, const char *staging, const how *h) {
    ckpt_store_desc s;
    ckpt_uploader_desc d;
    char uri[200];
    net_uri(uri, sizeof uri, h->name);
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    if (h->store != NULL) s = *h->store;
    s.endpoint_url = h->endpoint;
    s.stall_timeout_s = h->stall;
    d.bucket_uri = uri;
    d.store_desc = &s;
    d.upload_staging_folder = staging;
    d.num_attempts = h->attempts;
    d.num_concurrent_uploads = h->files;
    d.num_concurrent_parts = h->parts;
    d.part_size = here->part;
    d.stall_timeout_s = h->stall;
    d.logger.fn = on_log;
    d.logger.user = (void *)(uintptr_t)"uploader";
    d.ranks.world_size = 2;
    d.ranks.rank = strncmp(here->name, "s3", 2) != 0;   // rank 0 writes a trial, which would use faults up that are for a whole bucket
    return ckpt_uploader_open(u, &d);
}

// The store itself, no proxy between.
static ckpt_store *direct(const char *endpoint, const char *name) {
    ckpt_store_desc d;
    ckpt_store *s;
    char uri[200];
    net_uri(uri, sizeof uri, name);
    memset(&d, 0, sizeof d);
    d.endpoint_url = endpoint;
    if (ckpt_store_open(&s, uri, &d) != CKPT_OK) { printf("FAIL: %s\n", ckpt_last_error()); exit(1); }
    return s;
}

// 1: the object is there and right; 0: absent; -1: wrong, or not to be had.
static int look(ckpt_store *s, const char *name, size_t size, unsigned seed) {
    char path[600];
    uint64_t n;
    ckpt_err e = ckpt_store_size(s, name, &n);
    if (e == CKPT_NOT_FOUND) return 0;
    snprintf(path, sizeof path, "%s/look-%s", work, name);
    if (e == CKPT_OK) e = ckpt_store_get(s, name, path, true);
    int good = e == CKPT_OK && file_holds(path, size, seed) ? 1 : -1;
    unlink(path);
    return good;
}

static ckpt_err count_one(const char *name, const char *id, double started, void *user) {
    (void)id; (void)started;
    if (getenv("NET_DEBUG") != NULL) fprintf(stderr, "open upload of %s\n", name);
    ++*(int *)user;
    return CKPT_OK;
}

static int open_uploads(ckpt_store *s, const char *name) {
    int n = 0;
    return ckpt_store_uploads(s, name, count_one, &n) == CKPT_OK ? n : -1;
}

static void staging_of(char *out, size_t cap, const char *name) { snprintf(out, cap, "%s/staging-%s", work, name); }

static bool is_clean(const char *dir) {
    bool clean = true;
    DIR *d = opendir(dir);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        if (strstr(e->d_name, ".upload") != NULL || strstr(e->d_name, ".data") != NULL || strstr(e->d_name, ".tmp") != NULL ||
            strstr(e->d_name, ".journal") != NULL) clean = false;
    if (d != NULL) closedir(d);
    return clean;
}

//-- the table ---------------------------------------------------------------------

typedef enum act { UP, UP_NEW, BIG, BIG_NEW, SESSION, DOWN, DOWN_BIG } act;     // _NEW: without overwrite; SESSION: the same, where that is one

typedef struct fault {
    act         what;
    const char *rules;                  // "@": METHOD is followed by a blank as '+', then the object's path; several behind ';'
    ckpt_err    end;                    // CKPT_OK, or what comes before the fault is taken away
    int         most;                   // requests for the object, 0: any number
} fault;

#define ALL(act, head, tail) \
    { act, head "0" tail, CKPT_OK, 0 }, { act, head "1" tail, CKPT_OK, 0 }, { act, head "15" tail, CKPT_OK, 0 }, \
    { act, head "300" tail, CKPT_OK, 0 }, { act, head "700" tail, CKPT_OK, 0 }, { act, head "1000" tail, CKPT_OK, 0 }, \
    { act, head "50000" tail, CKPT_OK, 0 }, { act, head "99999" tail, CKPT_OK, 0 }

static const fault faults[] = {
    ALL(UP, "rst=", " $put"),
    ALL(UP, "close=", " $put"),
    { UP, "flip=50000 $put", CKPT_OK, 0 },
    { UP, "flip=99000 n=2 $put", CKPT_OK, 0 },
    { UP, "rst=40000 $put;close=90000 $put", CKPT_OK, 0 },
    { UP, "rst=0 dir=down $put", CKPT_OK, 0 },
    { UP, "rst=20 dir=down $put", CKPT_OK, 0 },
    { UP, "close=20 dir=down $put", CKPT_OK, 0 },
    { UP, "close=120 dir=down $put", CKPT_OK, 0 },
    { UP, "status=500 $put", CKPT_OK, 4 },
    { UP, "status=500 n=2 $put", CKPT_OK, 5 },
    { UP, "status=500 retry=1 $put", CKPT_OK, 4 },
    { UP, "status=502 $put", CKPT_OK, 4 },
    { UP, "status=503 $put", CKPT_OK, 4 },
    { UP, "status=503 retry=2 $put", CKPT_OK, 4 },
    { UP, "status=503 early $put", CKPT_OK, 4 },
    { UP, "status=503 rude $put", CKPT_OK, 4 },
    { UP, "status=429 $put", CKPT_OK, 4 },
    { UP, "status=429 retry=1 $put", CKPT_OK, 4 },
    { UP, "status=504 $put", CKPT_OK, 4 },
    { UP, "length=10 $put", CKPT_OK, 0 },
    { UP, "rstatus=500 $put", CKPT_OK, 0 },
    { UP, "rstatus=503 $put", CKPT_OK, 0 },
    { UP, "swallow=close $put", CKPT_OK, 0 },
    { UP, "swallow=rst n=2 $put", CKPT_OK, 0 },
    { UP, "swallow=stall $put", CKPT_OK, 0 },
    { UP, "stall=50000 $put", CKPT_OK, 0 },
    { UP_NEW, "swallow=close $put", CKPT_OK, 0 },
    { UP_NEW, "swallow=rst n=2 $put", CKPT_OK, 0 },
    { UP_NEW, "rstatus=500 $put", CKPT_OK, 0 },
    { UP_NEW, "rst=50000 $put", CKPT_OK, 0 },
    { UP, "rst=50000 n=-1 $put", CKPT_NET, 8 },
    { UP, "close=0 dir=down n=-1 $put", CKPT_NET, 9 },
    { UP, "status=500 n=-1 $put", CKPT_NET, 8 },
    { UP, "status=503 n=-1 $put", CKPT_NET, 8 },
    { UP, "flip=50000 n=-1 $put", CKPT_CORRUPT, 8 },
    { UP, "status=403 code=$denied n=-1 $put", CKPT_AUTH, 4 },
    { UP, "status=400 code=$invalid n=-1 $put", CKPT_NET, 4 },
    { UP, "status=404 code=$no_bucket n=-1 $put", CKPT_NOT_FOUND, 4 },
    { UP, "$late $put", CKPT_OK, 4 },
    { UP, "$late early n=2 $put", CKPT_OK, 5 },
    { UP_NEW, "$late $put", CKPT_OK, 4 },
    { UP, "$late n=-1 $put", CKPT_NET, 8 },

    { BIG, "rst=0 $part2", CKPT_OK, 0 },
    { BIG, "rst=600 $part2", CKPT_OK, 0 },
    { BIG, "rst=2500000 $part1", CKPT_OK, 0 },
    { BIG, "rst=5242880 $part2", CKPT_OK, 0 },
    { BIG, "close=1048576 n=2 $part3", CKPT_OK, 0 },
    { BIG, "flip=4000000 $part2", CKPT_OK, 0 },
    { BIG, "swallow=close $part1", CKPT_OK, 0 },
    { BIG, "rstatus=500 $part3", CKPT_OK, 0 },
    { BIG, "status=503 early n=2 $part2", CKPT_OK, 0 },
    { BIG, "rst=2000000 $part1;rst=3000000 $part2;rst=100 $part3", CKPT_OK, 0 },
    { BIG, "rst=0 $begin", CKPT_OK, 0 },
    { BIG, "status=503 retry=1 $begin", CKPT_OK, 0 },
    { BIG, "swallow=close $begin", CKPT_OK, 0 },
    { BIG, "close=200 dir=down $begin", CKPT_OK, 0 },
    { BIG, "rst=0 $end", CKPT_OK, 0 },
    { BIG, "rst=700 $end", CKPT_OK, 0 },
    { BIG, "status=500 n=2 $end", CKPT_OK, 0 },
    { BIG, "swallow=close $end", CKPT_OK, 0 },
    { BIG, "swallow=rst n=2 $end", CKPT_OK, 0 },
    { BIG, "rstatus=503 $end", CKPT_OK, 0 },
    { BIG, "close=30 dir=down $end", CKPT_OK, 0 },
    { BIG, "rst=0 $head", CKPT_OK, 0 },
    { BIG, "status=503 n=2 $head", CKPT_OK, 0 },
    { BIG, "length=5 $head", CKPT_OK, 0 },
    { BIG, "length=5 $end", CKPT_OK, 0 },
    { BIG_NEW, "swallow=close $end", CKPT_OK, 0 },
    { BIG_NEW, "rstatus=500 n=2 $end", CKPT_OK, 0 },
    { BIG_NEW, "rst=2500000 $part2", CKPT_OK, 0 },
    { BIG, "rst=2500000 n=-1 $part2", CKPT_NET, 0 },
    { BIG, "status=503 n=-1 $begin", CKPT_NET, 0 },
    { BIG, "status=500 n=-1 $end", CKPT_NET, 0 },
    { BIG, "status=403 code=$denied n=-1 $part1", CKPT_AUTH, 0 },
    { BIG, "status=404 code=$no_upload $part2", CKPT_OK, 0 },
    { BIG, "$late $part1;$late $part3", CKPT_OK, 0 },
    { BIG, "$late early $part2", CKPT_OK, 0 },
    { BIG, "$late n=-1 $part2", CKPT_NET, 0 },
    { BIG, "$late n=2 $end", CKPT_OK, 0 },

    { SESSION, "rst=0 $part1", CKPT_OK, 0 },
    { SESSION, "rst=600 $part1", CKPT_OK, 0 },
    { SESSION, "rst=3000000 $part1", CKPT_OK, 0 },
    { SESSION, "close=1048576 n=2 $part3", CKPT_OK, 0 },
    { SESSION, "stall=2000000 $part2", CKPT_OK, 0 },
    { SESSION, "swallow=close $part1", CKPT_OK, 0 },
    { SESSION, "swallow=rst n=2 $part2", CKPT_OK, 0 },
    { SESSION, "length=5 $part2", CKPT_OK, 0 },
    { SESSION, "rstatus=500 $part3", CKPT_OK, 0 },
    { SESSION, "status=429 retry=1 $part2", CKPT_OK, 0 },
    { SESSION, "status=503 early n=2 $part2", CKPT_OK, 0 },
    { SESSION, "rst=2500000 $part2;status=503 $part2;rst=2500000 $part2", CKPT_OK, 0 },
    { SESSION, "rst=0 $begin", CKPT_OK, 0 },
    { SESSION, "status=503 retry=1 $begin", CKPT_OK, 0 },
    { SESSION, "swallow=close $begin", CKPT_OK, 0 },
    { SESSION, "close=40 dir=down $begin", CKPT_OK, 0 },
    { SESSION, "rst=100 $end", CKPT_OK, 0 },
    { SESSION, "close=30 dir=down $end", CKPT_OK, 0 },
    { SESSION, "flip=3000000 $part1", CKPT_OK, 0 },
    { SESSION, "flip=3000000 n=-1 $part1", CKPT_CORRUPT, 0 },
    { SESSION, "status=410 code=gone $part2", CKPT_OK, 0 },
    { SESSION, "status=404 code=notFound $end", CKPT_OK, 0 },
    { SESSION, "rst=200 n=-1 $part2", CKPT_NET, 0 },
    { SESSION, "status=503 n=-1 $end", CKPT_NET, 0 },
    { SESSION, "status=403 code=$denied n=-1 $part1", CKPT_AUTH, 0 },

    ALL(DOWN, "rst=", " dir=down $get"),
    ALL(DOWN, "close=", " dir=down $get"),
    { DOWN, "rst=100 $get", CKPT_OK, 0 },
    { DOWN, "flip=60000 dir=down $get", CKPT_OK, 0 },
    { DOWN, "stall=60000 dir=down $get", CKPT_OK, 0 },
    { DOWN, "status=500 n=2 $get", CKPT_OK, 0 },
    { DOWN, "status=503 retry=1 $get", CKPT_OK, 0 },
    { DOWN, "rstatus=502 $get", CKPT_OK, 0 },
    { DOWN, "swallow=close $get", CKPT_OK, 0 },
    { DOWN, "length=1000 $get", CKPT_OK, 0 },
    { DOWN, "length=-1000 $get", CKPT_OK, 0 },
    { DOWN, "length=-100000 $get", CKPT_OK, 0 },
    { DOWN, "status=429 retry=1 $get", CKPT_OK, 0 },
    { DOWN, "close=60000 dir=down n=-1 $get", CKPT_OK, 0 },      // each try gets further
    { DOWN, "close=100 dir=down n=-1 $get", CKPT_NET, 8 },
    { DOWN, "flip=60000 dir=down n=-1 $get", CKPT_CORRUPT, 8 },
    { DOWN, "status=403 code=$denied n=-1 $get", CKPT_AUTH, 4 },
    { DOWN, "$late $get", CKPT_OK, 5 },
    { DOWN, "$late n=-1 $get", CKPT_NET, 8 },
    { DOWN_BIG, "$late n=3 $get", CKPT_OK, 0 },
    { DOWN_BIG, "rst=3000000 dir=down $get", CKPT_OK, 0 },
    { DOWN_BIG, "close=5000000 dir=down n=2 $get", CKPT_OK, 0 },
    { DOWN_BIG, "status=503 n=3 $get", CKPT_OK, 0 },
    { DOWN_BIG, "length=-1 n=2 $get", CKPT_OK, 0 },
    { DOWN_BIG, "length=1 n=2 $get", CKPT_OK, 0 },
    { DOWN_BIG, "flip=3000000 dir=down $get", CKPT_OK, 0 },
    { DOWN_BIG, "close=3000000 dir=down n=-1 $get", CKPT_OK, 0 },
    { DOWN_BIG, "close=50 dir=down n=-1 $get", CKPT_NET, 0 },
};

// Hands the rules over; drops: they are taken away instead. false: this store has no such requests.
static bool set_rules(const char *rules, const char *name, bool fresh, bool drops) {
    const char *control = env("NET_CONTROL");
    for (const char *p = rules; *p != 0; p += *p == ';') {
        char text[900];
        size_t n = strcspn(p, ";");
        if (!net_rule(text, sizeof text, p, n, name, fresh)) return false;
        if (drops) proxy(control, "drop=%s", strstr(text, "match=") + 6);
        else proxy(control, "%s", text);
        p += n;
    }
    return true;
}

static int requests_for(const char *name, int *broken) {
    net_line *l = (net_line *)calloc(LINES, sizeof *l);
    int n = net_log(env("NET_LOG"), NULL, l, LINES), count = 0;
    *broken = 0;
    for (int i = 0; i < n; i++) {
        if (strstr(l[i].target, name) == NULL) continue;
        count++;
        *broken += strcmp(l[i].done, "-") != 0;
    }
    free(l);
    return count;
}

static ckpt_err upload_once(const char *name, const char *staging, const char *path, bool overwrite, const how *h, char *why, size_t cap) {
    ckpt_uploader *u;
    ckpt_err e = open_uploader(&u, staging, h);
    if (e == CKPT_OK) {
        e = path != NULL ? ckpt_upload_file(u, name, path, overwrite) : CKPT_OK;
        ckpt_err closed = ckpt_uploader_close(u, 60);
        if (e == CKPT_OK) e = closed;
    }
    if (e != CKPT_OK) snprintf(why, cap, "%s", ckpt_last_error());
    return e;
}

static ckpt_err download_once(const char *name, const char *path, const how *h, char *why, size_t cap) {
    ckpt_store_desc d;
    ckpt_store *s;
    char uri[200];
    net_uri(uri, sizeof uri, name);
    memset(&d, 0, sizeof d);
    d.endpoint_url = h->endpoint;
    d.stall_timeout_s = h->stall;
    ckpt_err e = ckpt_store_open(&s, uri, &d);
    if (e == CKPT_OK) {
        e = ckpt_store_get(s, name, path, false);
        if (e != CKPT_OK) snprintf(why, cap, "%s", ckpt_last_error());
        ckpt_store_close(s);
    }
    return e;
}

// What a fault ends with at this store. Without ranges a download begins anew with each try, and is one request: it meets all.
static ckpt_err end_of(const fault *f, const ckpt_store *s) {
    bool further = f->what >= DOWN && f->end == CKPT_OK && (strstr(f->rules, "n=-1 ") != NULL || strstr(f->rules, "n=3 ") != NULL);
    if (further && s->table->get == NULL) return CKPT_NET;
    if (here->is_invalid != CKPT_OK && strstr(f->rules, "$invalid") != NULL) return here->is_invalid;
    if (here->is_no_bucket != CKPT_OK && strstr(f->rules, "$no_bucket") != NULL) return here->is_no_bucket;
    return f->end;
}

static const char *fault_up(const fault *f, const char *name, unsigned seed, ckpt_store *s, const how *h, ckpt_err *e, char *why) {
    char path[600], staging[600];
    bool big = f->what >= BIG, overwrite = f->what == UP || f->what == BIG;
    size_t size = big ? here->multi : SMALL;
    snprintf(path, sizeof path, "%s/source-%s", work, name);
    staging_of(staging, sizeof staging, name);
    make_file(path, size, seed);
    *e = upload_once(name, staging, path, overwrite, h, why, 1000);
    unlink(path);
    if (*e != end_of(f, s)) return "another end";
    int there = look(s, name, size, seed);
    if (there < 0) return "the object is damaged";
    if (*e == CKPT_OK && there == 0) return "acknowledged and not there";
    int broken, n = requests_for(name, &broken), most = f->most * (here->each > 0 ? here->each : 1);
    if (broken == 0) return "the fault did not happen";
    if (f->most > 0 && n > most) { snprintf(why, 1000, "%d requests", n); return "too many requests"; }
    if (*e != CKPT_OK) {
        set_rules(f->rules, name, !overwrite, true);
        *e = upload_once(name, staging, NULL, overwrite, h, why, 1000);
        if (*e != CKPT_OK) return "the next uploader fails";
        if (look(s, name, size, seed) != 1) return "the next uploader did not bring it there";
    }
    if (!is_clean(staging)) return "something is left in the staging folder";
    if (big && (n = open_uploads(s, name)) != 0) { snprintf(why, 1000, "%d", n); return "multipart uploads are left"; }
    return NULL;
}

// As a saver does it: with the checksum of the whole.
static ckpt_err put_summed(ckpt_store *s, const char *name, const char *path, size_t size, unsigned seed) {
    ckpt__send send;
    unsigned char *p = (unsigned char *)malloc(size);
    if (p == NULL) abort();
    util_fill(p, size, seed);
    memset(&send, 0, sizeof send);
    send.store = s;
    send.name = name;
    send.body.path = path;
    send.body.memory = p;
    send.body.size = size;
    send.overwrite = true;
    send.has_crc = true;
    send.crc = ckpt__digest_crc32(0, p, size);
    send.num_concurrent_parts = 2;
    ckpt_err e = ckpt__send_run(&send);
    free(p);
    return e;
}

static const char *fault_down(const fault *f, const char *name, unsigned seed, ckpt_store *s, const how *h, ckpt_err *e, char *why) {
    char path[600], source[600], dir[560];
    size_t size = f->what == DOWN_BIG ? 2 * here->multi : SMALL;
    snprintf(dir, sizeof dir, "%s/into-%s", work, name);
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(source, sizeof source, "%s/source-%s", work, name);
    make_file(source, size, seed);
    *e = f->what == DOWN_BIG ? put_summed(s, name, source, size, seed) : ckpt_store_put(s, name, source, true);
    unlink(source);
    if (*e != CKPT_OK) { snprintf(why, 1000, "%s", ckpt_last_error()); return "cannot put"; }
    util_mkdir(dir);
    *e = download_once(name, path, h, why, 1000);
    if (*e != end_of(f, s)) return "another end";
    int broken, n = requests_for(name, &broken), most = f->most * (here->each > 0 ? here->each : 1);
    if (broken == 0) return "the fault did not happen";
    if (f->most > 0 && n > most) { snprintf(why, 1000, "%d requests", n); return "too many requests"; }
    if (*e != CKPT_OK) {
        if (util_exists(path)) return "a failed download left a file";
        set_rules(f->rules, name, false, true);
        *e = download_once(name, path, h, why, 1000);
        if (*e != CKPT_OK) return "it fails without the fault";
    }
    if (!file_holds(path, size, seed)) return "other bytes have arrived";
    if (unlink(path) != 0 || rmdir(dir) != 0) return "something is left beside the file";
    return NULL;
}

static int next_fault, faults_run, faults_blind, faults_chunked, table_count = UTIL_COUNT(faults);

static void table_one(int i) {
    static const char *const names[] = { "up", "up, new", "parts up", "parts up, new", "session", "down", "ranges down" };
    const fault *f = &faults[i];
    bool fresh = f->what == UP_NEW || f->what == BIG_NEW || f->what == SESSION;
    char name[40], why[1000] = "";
    ckpt_err e = CKPT_OK;
    snprintf(name, sizeof name, "f%03d-%d", i, (int)getpid() % 1000);
    if (here->sumless && strncmp(f->rules, "flip=", 5) == 0) {
        __atomic_fetch_add(&faults_blind, 1, __ATOMIC_SEQ_CST);
        return;
    }
    if (strncmp(here->name, "mlflow", 6) == 0 && strncmp(f->rules, "length=", 7) == 0 && strstr(f->rules, "$get") != NULL) {
        __atomic_fetch_add(&faults_chunked, 1, __ATOMIC_SEQ_CST);
        return;
    }
    // Only what never answers is to be waited for to the limit: on a crowded machine a server needs seconds for what nothing is done to.
    bool silent = strstr(f->rules, "stall") != NULL || strstr(f->rules, "length=") != NULL;
    // With so short a limit such a server costs tries, of which there are more then: none of these faults lasts.
    how h = { env("NET_ENDPOINT"), name, silent ? 8 : 3, 1, 2, silent ? 6.0 : 30.0, NULL };
    if ((f->what == SESSION && here->fresh.begin == NULL) || !set_rules(f->rules, name, fresh, false)) return;
    ckpt_store *s = direct(env("NET_DIRECT"), name);
    const char *wrong = f->what >= DOWN ? fault_down(f, name, (unsigned)i, s, &h, &e, why) : fault_up(f, name, (unsigned)i, s, &h, &e, why);
    set_rules(f->rules, name, fresh, true);
    ckpt_store_close(s);
    __atomic_fetch_add(&faults_run, 1, __ATOMIC_SEQ_CST);
    if (wrong == NULL) result(true, "%s: %s", names[f->what], f->rules);
    else result(false, "%s: %s (%d): %s: %s: %s", names[f->what], f->rules, i, wrong, ckpt_err_name(e), why);
}

static void *table_main(void *arg) {
    const char *only = getenv("NET_ONLY");
    (void)arg;
    for (int i = __atomic_fetch_add(&next_fault, 1, __ATOMIC_SEQ_CST); i < table_count; i = __atomic_fetch_add(&next_fault, 1, __ATOMIC_SEQ_CST))
        if (only == NULL || atoi(only) == i) table_one(i);
    return NULL;
}

static void run_table(void) {
    pthread_t threads[24];
    for (int i = 0; i < 24; i++) if (pthread_create(&threads[i], NULL, table_main, NULL) != 0) abort();
    for (int i = 0; i < 24; i++) pthread_join(threads[i], NULL);
    printf("%s: %d faults\n", here->what, faults_run);
    if (faults_chunked > 0) printf("%s: %d wrong lengths were not tried: it answers in chunks, and tells none\n", here->what, faults_chunked);
    if (faults_blind > 0) printf("%s: %d flipped bits were not tried: the service has no checksums, so that only TLS tells\n", here->what, faults_blind);
}

//-- storms ------------------------------------------------------------------------

// All that asks for `prefix` is refused for `seconds`: how many requests are made meanwhile?
static void one_storm(const char *what, const char *prefix, int files, int parts, int count, size_t size, const char *rule, double seconds,
                      double quiet, int most) {
    char match[500];
    how h = { env("NET_ENDPOINT"), prefix, 8, files, parts, 20.0, NULL };
    ckpt_store *s = direct(env("NET_DIRECT"), prefix);
    char path[600], staging[600], name[100];
    ckpt_uploader *u = NULL;
    staging_of(staging, sizeof staging, prefix);
    snprintf(path, sizeof path, "%s/source-%s", work, prefix);
    make_file(path, size, 7);
    ckpt_err e = open_uploader(&u, staging, &h);
    double from = now();
    (void)net_match(match, sizeof match, "all", prefix, false);
    proxy(env("NET_CONTROL"), "%s n=-1 %s", rule, match);
    for (int i = 0; i < count && e == CKPT_OK; i++) {
        snprintf(name, sizeof name, "%s-%d", prefix, i);
        e = ckpt_upload_file(u, name, path, true);
    }
    usleep((useconds_t)(seconds * 1e6));
    proxy(env("NET_CONTROL"), "drop=%s", match + 6);
    double to = now();
    if (e == CKPT_OK) e = ckpt_uploader_wait(u, 90);
    double all = now() - from;
    ckpt_transfer_stats st;
    ckpt_uploader_stats(u, &st);
    ckpt_err closed = ckpt_uploader_close(u, 5);
    net_line *l = (net_line *)calloc(LINES, sizeof *l);
    int n = net_log(env("NET_LOG"), NULL, l, LINES), refused = 0, early = 0;
    double first = 0;
    for (int i = 0; i < n; i++) {
        if (strstr(l[i].target, prefix) == NULL || l[i].at > to) continue;
        if (strcmp(l[i].done, "-") == 0) continue;
        if (first == 0) first = l[i].at;
        // What was under way when the first answer came may arrive late on a crowded machine; who does not heed it comes all the while.
        early += quiet > 0 && l[i].at > first + 1.5 && l[i].at < first + quiet;
        refused++;
    }
    free(l);
    int right = 0;
    for (int i = 0; i < count && e == CKPT_OK; i++) {
        snprintf(name, sizeof name, "%s-%d", prefix, i);
        right += look(s, name, size, 7) == 1;
    }
    unlink(path);
    ckpt_store_close(s);
    result(e == CKPT_OK && closed == CKPT_OK && right == count && refused <= most && refused > 0 && early == 0,
           "%s: %d requests refused in %.1f s (%d at most), %d within Retry-After, %d of %d objects right after %.1f s, %llu tries again%s%s", what, refused,
           to - from, most, early, right, count, all, (unsigned long long)st.retries, e != CKPT_OK ? ": " : "", e != CKPT_OK ? ckpt_last_error() : "");
}

typedef struct storm { const char *what, *prefix; int files, parts, count; size_t size /* 0: four parts */; const char *rule; double seconds, quiet; int most; } storm;

static void *storm_main(void *arg) {
    const storm *s = (const storm *)arg;
    one_storm(s->what, s->prefix, s->files, s->parts, s->count, s->size != 0 ? s->size : 4 * here->part, s->rule, s->seconds, s->quiet, s->most);
    return NULL;
}

static void run_storm(void) {
    static const storm storms[] = {
        { "a 429 storm, 16 files at a time", "storm-a", 16, 1, 32, 20000, "status=429", 5.0, 0, 22 },
        { "a 503 storm, 4 files of 4 parts", "storm-b", 4, 4, 4, 0, "status=503", 5.0, 0, 22 },
        { "a 503 storm with Retry-After: 3", "storm-c", 16, 1, 32, 20000, "status=503 retry=3", 4.0, 2.9, 20 },
    };
    pthread_t t[3];
    for (int i = 0; i < 3; i++) if (pthread_create(&t[i], NULL, storm_main, (void *)(uintptr_t)&storms[i]) != 0) abort();
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

//-- stalls ------------------------------------------------------------------------

enum { LIMIT = 3 };                     // seconds

typedef struct stall { const char *what, *rule; bool down; size_t size /* 0: of parts */; ckpt_err end; double least, most; } stall;

// When the proxy met the last request for `name` that a rule is for: on a crowded machine it comes late, and is not what is timed.
static double met_at(const char *name, double else_at) {
    net_line *l = (net_line *)calloc(LINES, sizeof *l);
    int n = net_log(env("NET_LOG"), NULL, l, LINES);
    for (int i = 0; i < n; i++) if (strstr(l[i].target, name) != NULL && strcmp(l[i].done, "-") != 0) else_at = l[i].at;
    free(l);
    return else_at;
}

static const stall stalls[] = {
    { "frozen before the first byte", "stall=0 $put", false, SMALL, CKPT_TIMEOUT, 0.8 * LIMIT, 1.2 * LIMIT },
    { "frozen in the body", "stall=200000 $put", false, 400000, CKPT_TIMEOUT, 0.8 * LIMIT, 1.2 * LIMIT },
    { "no answer", "swallow=stall $put", false, SMALL, CKPT_TIMEOUT, 0.8 * LIMIT, 1.2 * LIMIT },
    { "frozen in a part", "stall=1000 $part3", false, 0, CKPT_TIMEOUT, 0.8 * LIMIT, 1.2 * LIMIT + 1 },
    { "no answer to a download", "swallow=stall $get", true, SMALL, CKPT_TIMEOUT, 0.8 * LIMIT, 1.2 * LIMIT },
    { "frozen in a download", "stall=50000 dir=down $get", true, SMALL, CKPT_TIMEOUT, 0.8 * LIMIT, 1.2 * LIMIT },
    { "slow up", "rate=40000 $put", false, 260000, CKPT_OK, 2.0 * LIMIT, 100 },
    { "slow down", "rate=40000 $get", true, 260000, CKPT_OK, 2.0 * LIMIT, 100 },
    { "an answer that takes a while", "delay=1.5 $put", false, SMALL, CKPT_OK, 1.5, 100 },
};

static void *stall_main(void *arg) {
    const stall *f = (const stall *)arg;
    ckpt_uploader *u = NULL;
    unsigned seed = 1000 + (unsigned)(f - stalls);
    size_t size = f->size != 0 ? f->size : here->multi;
    char name[40], path[600], staging[600], why[600] = "";
    if (!net_rule(path, sizeof path, f->rule, strlen(f->rule), "x", false)) return NULL;      // this store has no such requests
    snprintf(name, sizeof name, "stall-%u", seed);
    how h = { env("NET_ENDPOINT"), name, 1, 1, 2, LIMIT, NULL };
    ckpt_store *s = direct(env("NET_DIRECT"), name);
    snprintf(path, sizeof path, "%s/source-%s", work, name);
    staging_of(staging, sizeof staging, name);
    make_file(path, size, seed);
    ckpt_err e = open_uploader(&u, staging, &h);
    if (e == CKPT_OK && f->down) {
        e = ckpt_store_put(s, name, path, true);
        unlink(path);
    }
    set_rules(f->rule, name, false, false);
    double from = now();
    if (e == CKPT_OK) e = f->down ? ckpt_download_file(u, name, path, false) : ckpt_upload_file(u, name, path, true);
    if (e == CKPT_OK && !f->down) e = ckpt_uploader_wait(u, 60);
    double to = now(), took = to - met_at(name, from);
    if (e != CKPT_OK) snprintf(why, sizeof why, "%s", ckpt_last_error());
    (void)!ckpt_uploader_close(u, 5);
    set_rules(f->rule, name, false, true);
    int there = f->down ? 1 : look(s, name, size, seed);         // a close has tried again what failed: whole, or absent
    bool whole = f->down ? (e == CKPT_OK ? file_holds(path, size, seed) : !util_exists(path)) : there == 1 || (there == 0 && e != CKPT_OK);
    bool at_once = strcmp(here->name, "wandb") != 0;    // the request that is lost is all of a put
    if (!f->down && e != CKPT_OK && at_once && strcmp(f->rule, "swallow=stall $put") == 0) whole = there == 1;
    bool again = true;
    if (!f->down && e != CKPT_OK) again = upload_once(name, staging, NULL, true, &h, why, sizeof why) == CKPT_OK && look(s, name, size, seed) == 1;
    result(e == f->end && took >= f->least && took <= f->most && whole && again, "%s: %s after %.2f s (%.1f to %.1f)%s%s%s%s", f->what, ckpt_err_name(e), took,
           f->least, f->most, whole ? "" : ", damaged", again ? "" : ", not mended", e != f->end ? ": " : "", e != f->end ? why : "");
    ckpt_store_close(s);
    return NULL;
}

static void run_stall(void) {
    pthread_t t[UTIL_COUNT(stalls)];
    for (int i = 0; i < UTIL_COUNT(stalls); i++) if (pthread_create(&t[i], NULL, stall_main, (void *)(uintptr_t)&stalls[i]) != 0) abort();
    for (int i = 0; i < UTIL_COUNT(stalls); i++) pthread_join(t[i], NULL);
}

//-- a server that dies ------------------------------------------------------------

static int part_of(const net_line *l) {
    const char *p = strcmp(l->method, "PUT") == 0 ? strstr(l->target, "partNumber=") : NULL;
    return p != NULL ? atoi(p + 11) : 0;
}

static void rgw(const char *what) {
    char command[1000];
    snprintf(command, sizeof command, "sh '%s/servers/rgw.sh' %s '%s/rgw' >/dev/null 2>&1", CKPT_TESTS_DIR, what, work);
    if (system(command) != 0) { printf("FAIL: rgw.sh %s\n", what); exit(1); }
}

// The gateway is killed when `kills_at` parts have been begun. patient: the same uploader lives through it; else another goes on.
static void one_restart(const char *name, bool patient, int kills_at) {
    enum { PARTS = 8, LANES = 2 };
    how h = { env("NET_ENDPOINT"), name, patient ? 8 : 1, 1, LANES, 10.0, NULL };
    char path[600], staging[600], key[100], why[600] = "";
    ckpt_uploader *u = NULL;
    net_line *l = (net_line *)calloc(LINES, sizeof *l);
    size_t size = PARTS * here->part - 12345;
    int n = 0, before[PARTS + 1] = { 0 }, counts[PARTS + 1] = { 0 }, most = 0, again = 0;
    snprintf(key, sizeof key, "/net/%s", name);
    snprintf(path, sizeof path, "%s/source-%s", work, name);
    staging_of(staging, sizeof staging, name);
    make_file(path, size, 3);
    proxy(env("NET_CONTROL"), "rate=25000000 n=-1 match=PUT+%s", key);
    ckpt_err e = open_uploader(&u, staging, &h);
    if (e == CKPT_OK) e = ckpt_upload_file(u, name, path, true);
    unlink(path);
    for (double end = now() + 20; now() < end && most < kills_at; usleep(2000)) {
        n = net_log(env("NET_LOG"), key, l, LINES);
        most = 0;
        for (int i = 0; i < n; i++) most += part_of(&l[i]) > 0;
    }
    for (int i = 0; i < n; i++) if (part_of(&l[i]) > 0) before[part_of(&l[i])] = i + 1;
    rgw("kill");
    // The last ones that were begun may have been under way.
    int sure = 0, order[PARTS + 1];
    for (int i = 1; i <= PARTS; i++) {
        order[i] = 0;
        for (int k = 1; k <= PARTS; k++) order[i] += before[k] > before[i];
    }
    for (int i = 1; i <= PARTS; i++) {
        if (order[i] <= LANES) before[i] = 0;
        sure += before[i] > 0;
    }
    if (!patient) {
        ckpt_err failed = e == CKPT_OK ? ckpt_uploader_close(u, 30) : e;
        u = NULL;
        if (failed != CKPT_NET) snprintf(why, sizeof why, "the first uploader said %s", ckpt_err_name(failed));
    }
    rgw("restart");
    if (!patient) e = open_uploader(&u, staging, &h);
    if (e == CKPT_OK) e = ckpt_uploader_close(u, 60);
    if (e != CKPT_OK) snprintf(why, sizeof why, "%s", ckpt_last_error());
    n = net_log(env("NET_LOG"), key, l, LINES);
    for (int i = 0; i < n; i++) counts[part_of(&l[i])]++;
    for (int i = 1; i <= PARTS; i++) again += before[i] > 0 && counts[i] != 1;
    ckpt_store *s = direct(env("NET_DIRECT"), name);
    int there = look(s, name, size, 3), left = open_uploads(s, name);
    ckpt_store_close(s);
    free(l);
    result(e == CKPT_OK && there == 1 && left == 0 && again == 0 && sure > 0 && why[0] == 0,
           "radosgw killed in mid multipart, %s: %d of %d parts were confirmed, %d of those sent again, object %s, %d uploads left%s%s",
           patient ? "the same uploader" : "the next uploader", sure, PARTS, again, there == 1 ? "right" : "wrong", left, why[0] != 0 ? ": " : "", why);
}

static void run_restart(void) {
    one_restart("restart-a", true, 6);
    one_restart("restart-b", false, 6);
    if (util_long()) {
        for (int i = 4; i <= 8; i++) {
            char name[40];
            snprintf(name, sizeof name, "restart-%d", i);
            one_restart(name, i % 2 == 0, i);
        }
    }
}

//-- lies --------------------------------------------------------------------------

typedef struct lie { const char *kind; bool big; int n; ckpt_err end; } lie;

static const lie lies[] = {
    { "empty", false, 1, CKPT_OK }, { "empty", false, 2, CKPT_OK }, { "empty", false, -1, CKPT_CORRUPT }, { "short", false, 1, CKPT_OK },
    { "short", false, -1, CKPT_CORRUPT }, { "etag", false, 1, CKPT_OK }, { "etag", false, -1, CKPT_OK }, { "empty", true, 1, CKPT_OK },
    { "short", true, 1, CKPT_OK }, { "etag", true, 1, CKPT_OK }, { "etag", true, -1, CKPT_NOT_FOUND }, { "inside", true, 1, CKPT_OK },
    { "inside", true, 2, CKPT_OK }, { "inside", true, -1, CKPT_NET }, { "nothing", true, 1, CKPT_OK }, { "short", true, -1, CKPT_NOT_FOUND },
};

static void *lie_main(void *arg) {
    const lie *f = (const lie *)arg;
    unsigned seed = (unsigned)(f - lies);
    size_t size = f->big ? here->multi : SMALL;
    char name[40], path[600], staging[600], why[600] = "", answer[2000];
    snprintf(name, sizeof name, "lie%02u", seed);
    how h = { env("SINK_ENDPOINT"), name, 3, 1, 2, 5.0, NULL };
    ckpt_store *s = direct(h.endpoint, name);
    snprintf(path, sizeof path, "%s/source-%s", work, name);
    staging_of(staging, sizeof staging, name);
    make_file(path, size, seed);
    tell(env("SINK_PORT"), answer, sizeof answer, "PUT /-/lie?key=%s&kind=%s&n=%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", name, f->kind, f->n);
    ckpt_err e = upload_once(name, staging, path, true, &h, why, sizeof why);
    unlink(path);
    int there = look(s, name, size, seed), left = open_uploads(s, name);
    // What fails for good leaves what the server has made of it; what is acknowledged must be right.
    // An ETag that differs says nothing by itself: encrypted objects have others.
    bool good = e == f->end && (e != CKPT_OK || (there == 1 && left == 0 && is_clean(staging)));
    result(good, "a server that lies: %s, %s, %d times: %s%s%s%s%s", f->kind, f->big ? "parts" : "whole", f->n, ckpt_err_name(e),
           e == CKPT_OK && there != 1 ? ", and the object is wrong" : "", left != 0 && e == CKPT_OK ? ", an upload is left" : "", good ? "" : ": ", good ? "" : why);
    ckpt_store_close(s);
    return NULL;
}

static void run_lies(void) {
    pthread_t t[UTIL_COUNT(lies)];
    for (int i = 0; i < UTIL_COUNT(lies); i++) if (pthread_create(&t[i], NULL, lie_main, (void *)(uintptr_t)&lies[i]) != 0) abort();
    for (int i = 0; i < UTIL_COUNT(lies); i++) pthread_join(t[i], NULL);
}

//-- credentials that expire ---------------------------------------------------------

typedef struct giver { int calls, inside, overlaps; bool tells; } giver;

static ckpt_err give(ckpt_credentials *out, void *user) {
    giver *g = (giver *)user;
    if (__atomic_add_fetch(&g->inside, 1, __ATOMIC_SEQ_CST) != 1) g->overlaps++;
    double until = time_of_day() + 3.0;
    g->calls++;
    usleep(50000);
    snprintf(out->access_key_id, sizeof out->access_key_id, "ASIAEXAMPLE");
    snprintf(out->secret_access_key, sizeof out->secret_access_key, "aSecretThatIsNotChecked");
    snprintf(out->session_token, sizeof out->session_token, "until-%.3f", until);
    out->expires = g->tells ? until : 0.0;
    __atomic_sub_fetch(&g->inside, 1, __ATOMIC_SEQ_CST);
    return CKPT_OK;
}

static void one_token(bool tells, const char *prefix) {
    enum { FILES = 28 };
    giver g = { 0, 0, 0, tells };
    ckpt_store_desc d;
    ckpt_uploader *u = NULL;
    char path[600], big[600], staging[600], name[60], why[600] = "";
    memset(&d, 0, sizeof d);
    d.credentials = give;
    d.credentials_user = &g;
    how h = { env("TOKEN_ENDPOINT"), prefix, 3, 4, 2, 10.0, &d };
    staging_of(staging, sizeof staging, prefix);
    snprintf(path, sizeof path, "%s/source-%s", work, prefix);
    snprintf(big, sizeof big, "%s/big-%s", work, prefix);
    make_file(path, SMALL, 1);
    make_file(big, here->multi, 2);
    double from = now();
    proxy(env("TOKEN_CONTROL"), "rate=1200000 n=-1 match=%s-big", prefix);
    ckpt_err e = open_uploader(&u, staging, &h);
    snprintf(name, sizeof name, "%s-big", prefix);
    if (e == CKPT_OK) e = ckpt_upload_file(u, name, big, true);
    for (int i = 0; i < FILES && e == CKPT_OK; i++) {
        snprintf(name, sizeof name, "%s-%d", prefix, i);
        e = ckpt_upload_file(u, name, path, true);
        usleep(250000);
    }
    double took = now() - from;
    ckpt_err closed = ckpt_uploader_close(u, 60);
    if (e == CKPT_OK) e = closed;
    if (e != CKPT_OK) snprintf(why, sizeof why, "%s", ckpt_last_error());
    giver own = { 0, 0, 0, true };
    ckpt_store *s;
    d.endpoint_url = env("TOKEN_ENDPOINT");
    d.credentials_user = &own;
    int right = 0;
    if (ckpt_store_open(&s, here->uri, &d) != CKPT_OK) abort();
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s-%d", prefix, i);
        right += look(s, name, SMALL, 1) == 1;
    }
    snprintf(name, sizeof name, "%s-big", prefix);
    right += look(s, name, here->multi, 2) == 1;
    ckpt_store_close(s);
    int least = (int)(took / 4.0), most = (int)(took) + 6;
    result(e == CKPT_OK && right == FILES + 1 && g.overlaps == 0 && g.calls >= least && g.calls <= most,
           "tokens of 3 s, %s: %d of %d objects right, %.1f s, asked %d times (%d to %d), %d at once%s%s", tells ? "with their end told" : "their end not told", right,
           FILES + 1, took, g.calls, least, most, g.overlaps, why[0] != 0 ? ": " : "", why);
}

static void *token_main(void *arg) {
    one_token(arg != NULL, arg != NULL ? "told" : "untold");
    return NULL;
}

static void run_tokens(void) {
    pthread_t t;
    if (pthread_create(&t, NULL, token_main, NULL) != 0) abort();
    token_main(&t);
    pthread_join(t, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    work = env("NET_WORK");
    here = net_store_here();
    if (strcmp(what, "table") == 0) run_table();
    else if (strcmp(what, "storm") == 0) run_storm();
    else if (strcmp(what, "stall") == 0) run_stall();
    else if (strcmp(what, "restart") == 0) run_restart();
    else if (strcmp(what, "lies") == 0) run_lies();
    else if (strcmp(what, "tokens") == 0) run_tokens();
    else { fprintf(stderr, "net_faults: see its top\n"); return 2; }
    return failures != 0;
}
