/* bench_lab.h: over a distance (G21), part of bench.c: S3 and SFTP through a link with a round trip of 20 ms, beside rclone.

   The link is tests/servers/delay.c's: two network namespaces and a process that holds packets back, with no limit to its rate, so that
   windows, round trips and the two cores decide. It needs root. The servers run in the one namespace and the clients in the other:
   this process goes there and back (setns). S3 is tests/servers/sink.c, which drops what it gets: Ceph's RGW on the same two cores is slower
   than either client, and the two would come out alike. SFTP is sshd, with the files in memory.

   Both clients have 4 connections, the same part size and files out of the page cache, and take turns; who comes first changes. Of rclone the
   start of its process does not count (that of `rclone version`, of the same round, is taken off), nor do sums that ours does not make
   either (--s3-disable-checksum, --ignore-checksum, --sftp-disable-hashcheck, --s3-no-check-bucket, --sftp-shell-type none: its quickest way). Of ours all
   counts from the opening of the store on: logging in, the uploader's trial write, staging.
*/
#include <sched.h>

enum { LAB_FILES = 4, LAB_SMALL = 100 };

typedef struct lab {
    char        where[4200], memory[64];        // `memory`: in /dev/shm
    int         home, client, server;           // namespaces
    char        many[4300], small[4300], big[4300];
    size_t      size;                           // of `big`, and of the files in `many` together
    sink        k;
    char        sftp_uri[1024], sftp_peer[1500], sftp_data[1024], ssh[64];
    ckpt_store_desc sftp, s3;
    char        s3_url[64];
} lab;

static void lab_go(int ns) {
    if (setns(ns, CLONE_NEWNET) != 0) die("setns");
}

static void lab_file(const char *path, size_t size) {
    size_t unit = size < MIB ? size : MIB;
    char *p = (char *)malloc(unit);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (p == NULL || fd < 0) die(path);
    fill(p, unit);
    for (size_t at = 0; at < size; at += unit) {
        memcpy(p, &at, sizeof at);
        if (pwrite(fd, p, unit, (off_t)at) != (ssize_t)unit) die(path);
    }
    fsync(fd);
    close(fd);
    free(p);
}

static void lab_files(lab *l) {
    l->size = quick ? 128 * MIB : 256 * MIB;
    snprintf(l->many, sizeof l->many, "%s/many", l->where);
    snprintf(l->small, sizeof l->small, "%s/small", l->where);
    snprintf(l->big, sizeof l->big, "%s/big", l->where);
    mkdir(l->many, 0777);
    mkdir(l->small, 0777);
    lab_file(l->big, l->size);
    for (int i = 0; i < LAB_FILES; i++) lab_file(printed("%s/f%d", l->many, i), l->size / LAB_FILES);
    for (int i = 0; i < LAB_SMALL; i++) lab_file(printed("%s/f%03d", l->small, i), 4096);
}

// Everything that listens. False: not here, and a row has said why.
static bool lab_up(lab *l) {
    char why[256] = "", command[9000];
    const char *servers = getenv("CKPT_BENCH_SERVERS");
    memset(l, 0, sizeof *l);
    snprintf(l->where, sizeof l->where, "%s/lab", dir);
    snprintf(l->memory, sizeof l->memory, "/dev/shm/ckpt-bench-%d-lab", (int)getpid());
    snprintf(command, sizeof command, "LAB_OWNER=%d sh '%s/lab.sh' up '%s' 2>&1 | tail -n 1", (int)getpid(), servers != NULL ? servers : ".", l->where);
    FILE *f = servers != NULL ? popen(command, "r") : NULL;
    if (f != NULL && fgets(why, sizeof why, f) != NULL) why[strcspn(why, "\n")] = 0;
    if (f != NULL) pclose(f);
    l->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    l->client = open(server_value(l->where, "LAB_CLIENT"), O_RDONLY | O_CLOEXEC);
    l->server = open(server_value(l->where, "LAB_SERVER"), O_RDONLY | O_CLOEXEC);
    if (l->client >= 0 && l->server >= 0) return true;
    print_row("G21", "over a round trip of 20 ms", "-", "-", printed("skipped: %s", why[0] != 0 ? why : "run by tools/bench.sh"));
    return false;
}

static void lab_down(lab *l) {
    lab_go(l->home);
    if (l->k.pid > 0) sink_stop(&l->k);
    if (l->sftp_data[0] != 0) server_down("sftp.sh", l->memory);
    server_down("lab.sh", l->where);
    (void)shell("rm -rf '%s' '%s'", l->where, l->memory);
    close(l->home);
    close(l->client);
    close(l->server);
}

static void lab_servers(lab *l) {
    char spec[64];
    static char key[1024], known[1024];
    snprintf(spec, sizeof spec, "bench/big=%zu", l->size);
    lab_go(l->server);
    sink_host = "10.99.0.2";
    if (!sink_start(&l->k, false, "--object", spec)) die("the sink");
    sink_host = "127.0.0.1";
    setenv("SFTP_ADDRESS", "10.99.0.2", 1);
    if (server_up("sftp.sh", l->memory)) {
        snprintf(l->sftp_data, sizeof l->sftp_data, "%s", server_value(l->memory, "SFTP_DATA"));
        snprintf(key, sizeof key, "%s", server_value(l->memory, "SFTP_KEY"));
        snprintf(known, sizeof known, "%s", server_value(l->memory, "SFTP_KNOWN"));
        const char *port = server_value(l->memory, "SFTP_PORT"), *user = server_value(l->memory, "SFTP_USER");
        snprintf(l->sftp_uri, sizeof l->sftp_uri, "sftp://%s@10.99.0.2:%s/%s", user, port, l->sftp_data);
        snprintf(l->sftp_peer, sizeof l->sftp_peer, "--transfers 4 --checkers 4 --ignore-checksum --sftp-host 10.99.0.2 --sftp-port %s --sftp-user %s --sftp-key-file '%.1000s' "
                 "--sftp-known-hosts-file '%.200s' --sftp-disable-hashcheck --sftp-shell-type none", port, user, key, known);
        l->sftp.key_filename = key;
        l->sftp.known_hosts_filename = known;
    }
    unsetenv("SFTP_ADDRESS");
    snprintf(l->s3_url, sizeof l->s3_url, "http://10.99.0.2:%d", l->k.port);
    l->s3.endpoint_url = l->s3_url;
    l->s3.region = "us-east-1";
    l->s3.access_key_id = "A";
    l->s3.secret_access_key = "B";
    lab_go(l->client);
}

// A program's time without that of its start.
static double lab_peer(const char *format, ...) CKPT__PRINTF(1, 2);
static double lab_peer(const char *format, ...) {
    char command[6000];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    double start = shell("%s rclone version >/dev/null 2>&1", peer_env), t = shell("%s rclone --config '' --ignore-times %s >/dev/null 2>&1", peer_env, command);
    return t - start;
}

// As many files as there are in a folder, by an uploader with 4 connections, from its opening to the last confirmation.
static double lab_upload(const char *uri, const ckpt_store_desc *sd, const char *folder, const char *format, int count, const char *to) {
    ckpt_uploader *u;
    ckpt_uploader_desc d;
    memset(&d, 0, sizeof d);
    d.bucket_uri = uri;
    d.store_desc = sd;
    d.num_concurrent_uploads = 4;
    double t = now();
    must(ckpt_uploader_open(&u, &d), "uploader");
    for (int i = 0; i < count; i++) {
        char name[64], remote[128], path[4400];
        snprintf(name, sizeof name, format, i);
        snprintf(remote, sizeof remote, "%s/%s", to, name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        must(ckpt_upload_file(u, remote, path, true), "upload_file");
    }
    must(ckpt_uploader_wait(u, 0), "upload");
    t = now() - t;
    must(ckpt_uploader_close(u, 0), "close");
    return t;
}

static double lab_put(const lab *l) {
    long from = sink_mark(&l->k);
    double t = now();
    ckpt_store *s;
    must(ckpt_store_open(&s, "s3://bench", &l->s3), "opening the sink");
    must(ckpt_store_put(s, "own", l->big, true), "uploading");
    t = now() - t;
    ckpt_store_close(s);
    sink_check(&l->k, from, l->size, "own");
    return t;
}

// What came is compared, and goes.
static void lab_compare(const lab *l, const char *folder) {
    if (isnan(shell("diff -r '%s' '%s' -x '.ckpt*' >/dev/null", l->many, folder))) die(folder);
    (void)shell("rm -rf '%s'", folder);
}

typedef struct lab_pair { samples own, peer; } lab_pair;

static void lab_add(lab_pair *p, bool own, double t) {
    if (!isnan(t)) add(own ? &p->own : &p->peer, t);
}

static void lab_s3_up(const lab *l, lab_pair *p, bool own) {
    unsigned long long part = ckpt__send_share(l->size, 4) / MIB;
    long from = sink_mark(&l->k);
    warm_cache(l->big);
    if (own) {
        lab_add(p, true, lab_put(l));
        return;
    }
    double t = lab_peer("copyto --s3-provider Other --s3-env-auth --ignore-checksum --s3-no-check-bucket --s3-disable-checksum --s3-upload-concurrency 4 --s3-chunk-size %lluM "
                        "--s3-upload-cutoff 8M --transfers 4 --s3-endpoint %s '%s' :s3:bench/rclone", part, l->s3_url, l->big);
    if (!isnan(t)) sink_check(&l->k, from, l->size, "rclone");
    lab_add(p, false, t);
}

static void lab_s3_down(const lab *l, lab_pair *p, bool own) {
    char target[128];
    struct stat st;
    snprintf(target, sizeof target, "%s/down", l->memory);
    prewarm(l->size);
    double t = now();
    if (own) {
        ckpt_store *s;
        must(ckpt_store_open(&s, "s3://bench", &l->s3), "opening the sink");
        must(ckpt_store_get(s, "big", target, true), "downloading");
        t = now() - t;
        ckpt_store_close(s);
    } else {
        t = lab_peer("copyto --s3-provider Other --s3-env-auth --ignore-checksum --multi-thread-streams 4 --multi-thread-cutoff 8M --s3-endpoint %s :s3:bench/big '%s'", l->s3_url,
                     target);
    }
    if (!isnan(t) && (stat(target, &st) != 0 || (size_t)st.st_size != l->size)) die("the download's size");
    unlink(target);
    lab_add(p, own, t);
}

static void lab_sftp_up(const lab *l, lab_pair *p, bool own) {
    const char *to = own ? "own" : "peer";
    for (int i = 0; i < LAB_FILES; i++) warm_cache(printed("%s/f%d", l->many, i));
    prewarm(l->size);
    double t = own ? lab_upload(l->sftp_uri, &l->sftp, l->many, "f%d", LAB_FILES, to)
                   : lab_peer("copy %s '%s' ':sftp:%s/%s'", l->sftp_peer, l->many, l->sftp_data, to);
    if (!isnan(t)) lab_compare(l, printed("%s/%s", l->sftp_data, to));
    lab_add(p, own, t);
}

static void lab_sftp_down(const lab *l, lab_pair *p, bool own) {
    char target[128];
    snprintf(target, sizeof target, "%s/down", l->memory);
    mkdir(target, 0777);
    prewarm(l->size);
    double t = now();
    if (own) {
        ckpt_store *s;
        must(ckpt_store_open(&s, l->sftp_uri, &l->sftp), "opening the SFTP server");
        for (int i = 0; i < LAB_FILES; i++) must(ckpt_store_get(s, printed("many/f%d", i), printed("%s/f%d", target, i), true), "downloading");
        t = now() - t;
        ckpt_store_close(s);
    } else {
        t = lab_peer("copy %s ':sftp:%s/many' '%s'", l->sftp_peer, l->sftp_data, target);
    }
    if (!isnan(t)) lab_compare(l, target);
    else (void)shell("rm -rf '%s'", target);
    lab_add(p, own, t);
}

static void lab_s3_small(const lab *l, lab_pair *p, bool own) {
    lab_add(p, own, own ? lab_upload("s3://bench", &l->s3, l->small, "f%03d", LAB_SMALL, "own")
                        : lab_peer("copy --s3-provider Other --s3-env-auth --ignore-checksum --s3-no-check-bucket --transfers 4 --s3-endpoint %s '%s' :s3:bench/small", l->s3_url,
                                   l->small));
}

static void lab_sftp_small(const lab *l, lab_pair *p, bool own) {
    lab_add(p, own, own ? lab_upload(l->sftp_uri, &l->sftp, l->small, "f%03d", LAB_SMALL, "own")
                        : lab_peer("copy %s '%s' ':sftp:%s/peer'", l->sftp_peer, l->small, l->sftp_data));
    (void)shell("rm -rf '%s/own' '%s/peer'", l->sftp_data, l->sftp_data);
}

static void lab_row(const lab *l, const char *what, const lab_pair *p, bool goal) {
    double own = median(&p->own), peer = median(&p->peer), mib = (double)l->size / (double)MIB;
    if (goal) row("G21", what, printed("%.0f / %.0f MiB/s", mib / own, mib / peer), peer / own, false, 0.8, "");
    else info("G21", what, "%.2f (%.0f / %.0f MiB/s)", peer / own, mib / own, mib / peer);
}

static void lab_link(const lab *l) {
    samples s = { { 0 }, 0 };
    char kind[64] = "?";
    for (int i = 0; i < 9; i++) {
        double t = NAN;
        FILE *f = popen(printed("curl -s -o /dev/null -w '%%{time_connect}' http://10.99.0.2:%d/-/stats", l->k.port), "r");
        if (f != NULL && fscanf(f, "%lf", &t) != 1) t = NAN;
        if (f != NULL) pclose(f);
        if (!isnan(t)) add(&s, 1e3 * t);
    }
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
    if (f != NULL && fscanf(f, "%63s", kind) != 1) kind[0] = 0;
    if (f != NULL) fclose(f);
    info("G21", "the link", "a connection in %.1f ms; TCP's %s", median(&s), kind);
}

// Rounds of one thing, by turns, the first of them changing.
static void lab_rounds(const lab *l, lab_pair *p, void (*step)(const lab *l, lab_pair *p, bool own), int count) {
    memset(p, 0, sizeof *p);
    for (int r = 0; r < count; r++) {
        for (int turn = 0; turn < 2; turn++) {
            bool own = turn == (r & 1);
            if (own || have("rclone")) step(l, p, own);
        }
    }
}

static void lab_uploads(const lab *l, bool s3, bool sftp) {
    lab_pair p;
    if (s3) {
        lab_rounds(l, &p, lab_s3_up, rounds(5));
        lab_row(l, "20 ms: S3 upload, 4 connections: rate / rclone", &p, true);
    }
    if (!sftp) return;
    if (l->sftp_data[0] == 0) {
        print_row("G21", "20 ms: SFTP", "-", "-", "skipped: no sshd");
        return;
    }
    lab_rounds(l, &p, lab_sftp_up, rounds(5));
    lab_row(l, "20 ms: SFTP upload, 4 files, 4 connections: rate / rclone", &p, true);
}

static void lab_downloads(const lab *l) {
    lab_pair p;
    lab_rounds(l, &p, lab_s3_down, rounds(3));
    lab_row(l, "20 ms: S3 download, 4 connections: rate / rclone", &p, false);
    if (l->sftp_data[0] == 0) return;
    (void)shell("cp -r '%s' '%s/'", l->many, l->sftp_data);
    lab_rounds(l, &p, lab_sftp_down, rounds(3));
    lab_row(l, "20 ms: SFTP download, 4 connections: rate / rclone", &p, false);
    (void)shell("rm -rf '%s/many'", l->sftp_data);
}

static void lab_little(const lab *l) {
    lab_pair p;
    for (int sftp = 0; sftp < (l->sftp_data[0] != 0 ? 2 : 1); sftp++) {
        lab_rounds(l, &p, sftp ? lab_sftp_small : lab_s3_small, rounds(3));
        double own = median(&p.own), peer = median(&p.peer);
        info("G21", printed("20 ms: %d files of 4 KiB %s: rclone / own", LAB_SMALL, sftp ? "by SFTP" : "to S3"), "%.2f (%.2f / %.2f s)", peer / own, peer, own);
    }
}

// All of it, or what lab-s3, lab-sftp (uploads), lab-down and lab-small name.
static void goal_21(void) {
    static lab l;
    bool all = wanted("G21") || wanted("lab");
    if ((!all && !wanted("lab-s3") && !wanted("lab-sftp") && !wanted("lab-down") && !wanted("lab-small")) || !lab_up(&l)) return;
    lab_files(&l);
    lab_servers(&l);
    lab_link(&l);
    if (!have("rclone")) fprintf(stderr, "bench: rclone is not here: nothing to compare with over a distance (apt install rclone)\n");
    lab_uploads(&l, all || wanted("lab-s3"), all || wanted("lab-sftp"));
    if (all || wanted("lab-down")) lab_downloads(&l);
    if (all || wanted("lab-small")) lab_little(&l);
    lab_down(&l);
}
