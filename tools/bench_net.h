/* bench_net.h: the network's goals of bench.c (G9, G9b, G9c, G9d, G10, G11, G14, G15, small files), part of that program.

   The peer of a client's own speed is tests/servers/sink.c, which answers as S3 does and drops the bytes: a real server on the same two
   cores would be measured instead. Clients that are programs of their own (aws, rclone) are timed by the sink's log, from the first byte of
   their first request to the last answer, so that their start does not count. What was uploaded is counted by the sink, byte for byte, on
   every round; that it is right is the tests' business.
*/
#include <curl/curl.h>
#include <sys/prctl.h>

typedef struct sink {
    pid_t pid;
    int   port;
    bool  tls;
    const char *host;
    char  log[4200], ca[4200];
} sink;

static const char *sink_host = "127.0.0.1";     // where the next one listens

static const char *tool_dir(void) { return getenv("CKPT_BENCH_BUILD") != NULL ? getenv("CKPT_BENCH_BUILD") : "."; }

static bool sink_start(sink *k, bool tls, const char *extra, const char *extra_value) {
    int out[2];
    char program[4200], line[64];
    memset(k, 0, sizeof *k);
    k->tls = tls;
    k->host = sink_host;
    snprintf(program, sizeof program, "%s/%s", tool_dir(), tls ? "sink_tls" : "sink");
    snprintf(k->log, sizeof k->log, "%s/sink.log", dir);
    snprintf(k->ca, sizeof k->ca, "%s/sink.pem", dir);
    unlink(k->log);
    if (access(program, X_OK) != 0 || pipe(out) != 0) return false;
    k->pid = fork();
    if (k->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], 1);
        close(out[0]);
        const char *args[12] = { program, "--log", k->log, "--host", k->host };
        int n = 5;
        if (tls) args[n++] = "--tls", args[n++] = k->ca;
        if (extra != NULL) args[n++] = extra;
        if (extra_value != NULL) args[n++] = extra_value;
        execv(program, (char **)(void *)args);
        _exit(127);
    }
    close(out[1]);
    ssize_t got = read(out[0], line, sizeof line - 1);
    close(out[0]);
    if (got <= 0) return false;
    line[got] = 0;
    k->port = atoi(line);
    return k->port > 0;
}

static void sink_stop(sink *k) {
    if (k->pid > 0) {
        kill(k->pid, SIGKILL);
        waitpid(k->pid, NULL, 0);
    }
}

// What the log says of the requests since `from`.
typedef struct sink_seen { double first, last, complete, last_part, link; unsigned long long bytes; int requests; } sink_seen;

static long sink_mark(const sink *k) {
    struct stat s;
    return stat(k->log, &s) == 0 ? (long)s.st_size : 0;
}

static sink_seen sink_look(const sink *k, long from) {
    sink_seen seen;
    char line[8192], method[16], target[4096];
    memset(&seen, 0, sizeof seen);
    usleep(50000);                      // the log's last line may be on its way
    FILE *f = fopen(k->log, "r");
    if (f == NULL) return seen;
    fseek(f, from, SEEK_SET);
    while (fgets(line, sizeof line, f) != NULL) {
        double a, b;
        int status;
        unsigned long long bytes;
        if (sscanf(line, "%lf %lf %15s %4095s %d %llu", &a, &b, method, target, &status, &bytes) != 6 || status >= 300) continue;
        bool put = strcmp(method, "PUT") == 0;
        if (seen.first == 0 && (put || strcmp(method, "POST") == 0 || (strcmp(method, "GET") == 0 && bytes > 4096))) seen.first = a;
        if (put && strstr(target, "symlink") != NULL) seen.link = a;
        else if (put && bytes > 4096 && b > seen.last_part) seen.last_part = b;
        if (strcmp(method, "POST") == 0 && strstr(target, "uploadId") != NULL) seen.complete = a;       // asked for
        if (put) seen.bytes += bytes;
        if (b > seen.last) seen.last = b;
        seen.requests++;
    }
    fclose(f);
    return seen;
}

static sink_seen sink_check(const sink *k, long from, unsigned long long bytes, const char *who) {
    sink_seen seen = sink_look(k, from);
    if (seen.bytes < bytes) {
        fprintf(stderr, "bench: %s: the sink got %llu bytes of %llu\n", who, seen.bytes, bytes);
        exit(3);
    }
    return seen;
}

//-- peers ----------------------------------------------------------------------------

// SUMMED: as UP, each part behind its SHA-256, which a signed payload needs before its first byte.
typedef enum raw_way { RAW_UP, RAW_DOWN, RAW_SUMMED } raw_way;
typedef struct raw_job { const sink *k; const char *path; uint64_t size, part; raw_way way; uint64_t next; int failed; } raw_job;
typedef struct raw_part { int fd; uint64_t at, end; } raw_part;

static size_t raw_read(char *p, size_t a, size_t b, void *user) {
    raw_part *r = (raw_part *)user;
    uint64_t left = r->end - r->at;
    size_t n = a * b < left ? a * b : (size_t)left;
    ssize_t got = pread(r->fd, p, n, (off_t)r->at);
    if (got < 0) return CURL_READFUNC_ABORT;
    r->at += (uint64_t)got;
    return (size_t)got;
}

static size_t raw_write(char *p, size_t a, size_t b, void *user) {
    raw_part *r = (raw_part *)user;
    ssize_t put = pwrite(r->fd, p, a * b, (off_t)r->at);
    if (put > 0) r->at += (uint64_t)put;
    return put < 0 ? 0 : (size_t)put;
}

// The SHA-256 of a range, read as sha256sum does it.
static void sum_range(const char *path, int fd, uint64_t at, uint64_t end) {
    unsigned char sum[32];
    char *p = (char *)malloc(256 << 10);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (p == NULL || md == NULL || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) die(path);
    for (ssize_t n; at < end; at += (uint64_t)n) {
        n = pread(fd, p, end - at < 256 << 10 ? (size_t)(end - at) : 256 << 10, (off_t)at);
        if (n <= 0 || EVP_DigestUpdate(md, p, (size_t)n) != 1) die(path);
    }
    if (EVP_DigestFinal_ex(md, sum, NULL) != 1) die(path);
    EVP_MD_CTX_free(md);
    free(p);
}

// The least that a parallel transfer over libcurl can do: a handle for each worker, kept alive, large buffers, no checks.
static void raw_main(void *ctx, int worker) {
    raw_job *j = (raw_job *)ctx;
    char url[256], range[64];
    (void)worker;
    CURL *c = curl_easy_init();
    struct curl_slist *h = curl_slist_append(NULL, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    h = curl_slist_append(h, "x-amz-date: 20260101T000000Z");
    h = curl_slist_append(h, "Authorization: AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request, "
                             "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                             "Signature=0123456789012345678901234567890123456789012345678901234567890123");
    h = curl_slist_append(h, "Expect:");
    bool down = j->way == RAW_DOWN;
    int fd = open(j->path, down ? O_RDWR : O_RDONLY);
    for (;;) {
        uint64_t i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED), at = i * j->part;
        if (at >= j->size || fd < 0) break;
        raw_part part = { fd, at, at + j->part < j->size ? at + j->part : j->size };
        if (j->way == RAW_SUMMED) sum_range(j->path, fd, part.at, part.end);
        curl_easy_reset(c);
        if (down) snprintf(url, sizeof url, "%s://127.0.0.1:%d/bench/big", j->k->tls ? "https" : "http", j->k->port);
        else snprintf(url, sizeof url, "%s://127.0.0.1:%d/bench/raw%d", j->k->tls ? "https" : "http", j->k->port, (int)i);
        curl_easy_setopt(c, CURLOPT_URL, url);
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, h);
        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(c, CURLOPT_CAINFO, j->k->ca);
        curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
        curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 512L * 1024);
        if (down) {
            snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)part.at, (unsigned long long)part.end - 1);
            curl_easy_setopt(c, CURLOPT_RANGE, range);
            curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, raw_write);
            curl_easy_setopt(c, CURLOPT_WRITEDATA, &part);
        } else {
            curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
            curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)(part.end - part.at));
            curl_easy_setopt(c, CURLOPT_READFUNCTION, raw_read);
            curl_easy_setopt(c, CURLOPT_READDATA, &part);
        }
        long status = 0;
        if (curl_easy_perform(c) != CURLE_OK) j->failed = 1;
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        if (status / 100 != 2) j->failed = 1;
    }
    if (fd >= 0) close(fd);
    curl_slist_free_all(h);
    curl_easy_cleanup(c);
}

static double raw_transfer(const sink *k, const char *path, uint64_t size, raw_way way) {
    raw_job j = { k, path, size, 64 * MIB, way, 0, 0 };
    double t = now();
    ckpt__engine_parallel(4, raw_main, &j);
    t = now() - t;
    return j.failed ? NAN : t;
}

// Whole bodies of a known length: the sink reads no chunks, and a sum behind the body would cost the client time.
static const char peer_env[] = "env -u AWS_CA_BUNDLE AWS_ACCESS_KEY_ID=A AWS_SECRET_ACCESS_KEY=B AWS_DEFAULT_REGION=us-east-1 "
                               "AWS_REQUEST_CHECKSUM_CALCULATION=when_required AWS_RESPONSE_CHECKSUM_VALIDATION=when_required";

static double peer_boto3(const sink *k, const char *path, bool down) {
    double t = NAN;
    char command[16000];
    snprintf(command, sizeof command,
             "for python in /usr/bin/python3 python3; do $python -c 'import boto3' 2>/dev/null && break; done; "
             "%s %s%s%s $python -c \"\n"
             "import boto3, time\n"
             "c = boto3.client('s3', endpoint_url='%s://127.0.0.1:%d'%s)\n"
             "c.put_object(Bucket='bench', Key='warm', Body=b'x')\n"
             "t = time.perf_counter()\n"
             "c.%s\n"
             "print(time.perf_counter() - t)\" 2>/dev/null", peer_env, k->tls ? "AWS_CA_BUNDLE='" : "", k->tls ? k->ca : "", k->tls ? "'" : "", k->tls ? "https" : "http", k->port,
             k->tls ? "" : ", config=boto3.session.Config(signature_version='s3v4')",
             down ? printed("download_file('bench', 'big', '%s')", path) : printed("upload_file('%s', 'bench', 'boto3')", path));
    FILE *f = popen(command, "r");
    if (f == NULL) return NAN;
    if (fscanf(f, "%lf", &t) != 1) t = NAN;
    pclose(f);
    return t;
}

static double peer_program(const sink *k, const char *format, const char *path) {
    char command[20000], middle[12000];
    long from = sink_mark(k);
    snprintf(middle, sizeof middle, format, k->port, path);
    // AWS_CA_BUNDLE, which confuses rclone, may stand in the environment; rclone and minio-go read SSL_CERT_FILE
    bool aws = strncmp(middle, "aws", 3) == 0;
    snprintf(command, sizeof command, "%s %s%s%s %s >/dev/null 2>&1", peer_env, k->tls ? (aws ? "AWS_CA_BUNDLE='" : "SSL_CERT_FILE='") : "",
             k->tls ? k->ca : "", k->tls ? "'" : "", middle);
    if (system(command) != 0) return NAN;
    sink_seen seen = sink_look(k, from);
    return seen.bytes > MIB ? seen.last - seen.first : NAN;
}

static double peer_minio(const sink *k, const char *path) {
    char program[4300], command[4400];
    snprintf(program, sizeof program, "%s/miniogo", tool_dir());
    if (access(program, X_OK) != 0) return NAN;
    snprintf(command, sizeof command, "'%s' %s 127.0.0.1:%%d '%%s'", program, k->tls ? "https" : "http");
    return peer_program(k, command, path);
}

//-- own ------------------------------------------------------------------------------

static void own_desc(const sink *k, const char *signing, char *url, size_t room, ckpt_store_desc *d) {
    memset(d, 0, sizeof *d);
    snprintf(url, room, "%s://%s:%d", k->tls ? "https" : "http", k->host, k->port);
    d->endpoint_url = url;
    d->region = "us-east-1";
    d->access_key_id = "A";
    d->secret_access_key = "B";
    d->ca_file = k->tls ? k->ca : NULL;
    d->payload_signing = signing;
}

static ckpt_store *own_store(const sink *k, const char *signing) {
    ckpt_store *s;
    ckpt_store_desc d;
    char url[128];
    own_desc(k, signing, url, sizeof url, &d);
    must(ckpt_store_open(&s, "s3://bench", &d), "opening the sink");
    return s;
}

static const char *flat_file(size_t size) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/flat", dir);
    if (access(path, R_OK) == 0) return path;
    char *p = block(size, true);
    fill(p, size);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    for (size_t at = 0; at < size; at += 8 * MIB) if (pwrite(fd, p + at, 8 * MIB, (off_t)at) != (ssize_t)(8 * MIB)) die(path);
    fsync(fd);
    close(fd);
    unblock(p, size);
    return path;
}

// What one upload of the whole file takes, on the clock and of the processors' time.
typedef struct spent { double t, cpu; } spent;

static spent own_upload(const sink *k, ckpt_store *s, const char *name, const char *path, size_t size) {
    long from = sink_mark(k);
    double c = cpu_now(), t = now();
    must(ckpt_store_put(s, name, path, true), "uploading");
    spent took = { now() - t, cpu_now() - c };
    sink_check(k, from, size, name);
    return took;
}

static spent raw_spent(const sink *k, const char *path, size_t size, raw_way way) {
    double c = cpu_now(), t = raw_transfer(k, path, size, way);
    return (spent){ t, cpu_now() - c };
}

// What signing is measured by: the SHA-256 of the file alone, a share of it by each of so many threads, as the parts of an upload
// are: two that sum at once take more of their processors' time than one after the other.
typedef struct sum_job { const char *path; size_t share; int shares, next; } sum_job;
static void sum_main(void *ctx, int worker) {
    sum_job *j = (sum_job *)ctx;
    (void)worker;
    int fd = open(j->path, O_RDONLY);
    for (int i; (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->shares;) {     // fewer threads may have started
        sum_range(j->path, fd, (uint64_t)i * j->share, (uint64_t)(i + 1) * j->share);
    }
    close(fd);
}

static spent sum_alone(const char *path, size_t size, int threads) {
    sum_job j = { path, size / (size_t)threads, threads, 0 };
    double c = cpu_now(), t = now();
    ckpt__engine_parallel(threads, sum_main, &j);
    return (spent){ now() - t, cpu_now() - c };
}

static void goal_9(bool tls) {
    size_t size = quick ? 256 * MIB : 1024 * MIB;
    const char *path = flat_file(size), *g = tls ? "G9b" : "G9";
    samples own = { { 0 }, 0 }, cpu = own, raw = own, raw_cpu = own, minio = own, boto = own, aws = own, rclone = own, sign = own, sign_cpu = own, sha = own;
    samples extra = own, sha_cpu = own, bare = own;
    sink k;
    if (!sink_start(&k, tls, NULL, NULL)) {
        print_row(g, "uploads", "-", "-", "skipped: no sink (run by tools/bench.sh, with libcurl and OpenSSL)");
        return;
    }
    // No checks but TLS's own, as the loop and minio-go have it; the default's price over TLS is told beside it.
    ckpt_store *s = own_store(&k, "unsigned"), *signing = own_store(&k, tls ? "auto" : "signed");
    for (int r = -1; r < rounds(5); r++) {
        warm_cache(path);
        spent loop = { 0, 0 }, summed = loop, plain = loop, guarded = loop, alone = loop, single = loop;
        for (int turn = 0; turn < 4; turn++) {          // who comes first changes from round to round
            int who = (turn + r + 1) % 4;
            if (who == 0) {
                loop = raw_spent(&k, path, size, RAW_UP);
            } else if (who == 3) {
                if (!tls) summed = raw_spent(&k, path, size, RAW_SUMMED);
            } else if (who == 1) {
                plain = own_upload(&k, s, "own", path, size);
            } else {
                guarded = own_upload(&k, signing, "guarded", path, size);
            }
        }
        if (!tls) alone = sum_alone(path, size, 4), single = sum_alone(path, size, 1);
        double m = peer_minio(&k, path);
        double b = peer_boto3(&k, path, false), a = NAN, c = NAN;
        if (r < 2) {                    // slow ones: three rounds are enough. rclone leaves out what is there already unless told not to
            a = peer_program(&k, tls ? "aws --endpoint-url https://127.0.0.1:%d s3 cp '%s' s3://bench/aws"
                                     : "aws --endpoint-url http://127.0.0.1:%d s3 cp '%s' s3://bench/aws", path);
            c = peer_program(&k, tls ? "rclone copyto --ignore-times --s3-provider Other --s3-env-auth --s3-endpoint https://127.0.0.1:%d '%s' :s3:bench/rclone"
                                     : "rclone copyto --ignore-times --s3-provider Other --s3-env-auth --s3-endpoint http://127.0.0.1:%d '%s' :s3:bench/rclone", path);
        }
        if (r < 0) continue;
        add(&own, plain.t);
        add(&cpu, plain.cpu);
        add(&raw, loop.t);
        add(&raw_cpu, loop.cpu);
        if (!isnan(m)) add(&minio, m);
        if (!isnan(b)) add(&boto, b);
        if (!isnan(a)) add(&aws, a);
        if (!isnan(c)) add(&rclone, c);
        add(&sign, guarded.t);
        add(&sign_cpu, guarded.cpu);
        add(&extra, guarded.cpu - plain.cpu);
        add(&bare, summed.cpu - loop.cpu);
        add(&sha, single.t);
        add(&sha_cpu, alone.cpu);
    }
    double o = median(&own), gib = (double)size / (double)GIB;
    row(g, "upload: rate / raw libcurl loop, 4 connections", printed("%.2f / %.2f s", o, median(&raw)), median(&raw) / o, false, 0.95, "");
    row(g, "upload: rate / minio-go, 64 MiB, 4 threads", printed("%.2f s", median(&minio)), median(&minio) / o, false, tls ? 0.98 : 1.0, "");
    bare_reaches = median(&boto) / median(&raw);
    row(g, "upload: rate / boto3 default", printed("%.2f s", median(&boto)), median(&boto) / o, false, tls ? 3 : 5, "");
    bare_reaches = median(&aws) / median(&raw);
    row(g, "upload: rate / aws cli", printed("%.2f s", median(&aws)), median(&aws) / o, false, tls ? 4 : 6, "");
    bare_reaches = median(&rclone) / median(&raw);
    row(g, "upload: rate / rclone", printed("%.2f s", median(&rclone)), median(&rclone) / o, false, tls ? 6 : 10, "");
    bare_reaches = median(&raw_cpu) / gib;
    row("G9c", tls ? "upload over TLS: processor time" : "upload: processor time", printed("raw loop %.2f", median(&raw_cpu) / gib), median(&cpu) / gib, true,
        tls ? 0.60 : 0.35, " s/GiB");
    if (tls) info("G9b", "upload with the default check, a CRC-32 before each part", "%.2f s, processor time %.2f s/GiB", median(&sign),
                  median(&sign_cpu) / gib);
    else {
        bare_reaches = median(&bare) / median(&sha_cpu);
        row("G9", "signed payload: processor time it adds / SHA-256 in 4 threads", printed("%.2f / %.2f s", median(&extra), median(&sha_cpu)),
            median(&extra) / median(&sha_cpu), true, 1.1, "");
        info("G9", "signed payload: time / SHA-256 alone on one core, on two", "%.2f, %.2f (%.2f s)", median(&sign) / median(&sha),
             2 * median(&sign) / median(&sha), median(&sign));
    }
    ckpt_store_close(s);
    ckpt_store_close(signing);
    sink_stop(&k);
}

// A target of the loop's: as many bytes as will come.
static void raw_target(const char *path, size_t size) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) die(path);
    close(fd);
}

// The loop, and that its file is on disk, as ckpt_store_get's is when it returns.
static double raw_download(const sink *k, const char *path, size_t size) {
    double t = now();
    if (isnan(raw_transfer(k, path, size, RAW_DOWN))) return NAN;
    int fd = open(path, O_RDWR);
    if (fd < 0 || fsync(fd) != 0) die(path);
    close(fd);
    return now() - t;
}

// Into a folder of the file system that is measured, as downloads go; or, with `memory`, of tmpfs, where no disk is the limit but
// new memory is: it alone costs more processor time than the goal has, so that time is only told.
static void goal_9_down(bool tls, bool memory) {
    size_t size = quick ? 256 * MIB : 1024 * MIB;
    const char *g = tls ? "G9b" : "G9", *where = memory ? "/dev/shm" : "disk", *folder = memory ? "/dev/shm" : dir;
    char target[4200], loop_target[4200], boto_target[4200], spec[64];
    samples own = { { 0 }, 0 }, cpu = own, raw = own, raw_cpu = own, boto = own;
    sink k;
    snprintf(spec, sizeof spec, "bench/big=%zu", size);
    if (access(folder, W_OK) != 0 || !sink_start(&k, tls, "--object", spec)) {
        print_row(g, "downloads", "-", "-", "skipped: no sink or no /dev/shm");
        return;
    }
    snprintf(target, sizeof target, "%s/ckpt-bench-%d-own", folder, (int)getpid());
    snprintf(loop_target, sizeof loop_target, "%s/ckpt-bench-%d-raw", folder, (int)getpid());
    snprintf(boto_target, sizeof boto_target, "%s/ckpt-bench-%d-boto", folder, (int)getpid());
    ckpt_store *s = own_store(&k, NULL);
    for (int r = -1; r < rounds(5); r++) {
        double t = 0, u = 0, v = 0, w = 0, b = NAN;
        for (int turn = 0; turn < 2; turn++) {          // who comes first changes from round to round
            prewarm(size);
            if (turn == (r & 1)) raw_target(loop_target, size);
            double at = now(), c = cpu_now();
            if (turn == (r & 1)) {
                w = raw_download(&k, loop_target, size);
                v = cpu_now() - c;
                unlink(loop_target);
                continue;
            }
            must(ckpt_store_get(s, "big", target, true), "downloading");
            t = now() - at;
            u = cpu_now() - c;
            struct stat st;
            if (stat(target, &st) != 0 || (size_t)st.st_size != size) die("the download's size");
            unlink(target);
        }
        b = peer_boto3(&k, boto_target, true);
        unlink(boto_target);
        if (r < 0) continue;
        add(&own, t);
        add(&cpu, u);
        add(&raw, w);
        add(&raw_cpu, v);
        if (!isnan(b)) add(&boto, b);
    }
    double o = median(&own), gib = (double)size / (double)GIB, most = tls ? 0.60 : 0.35;
    row(g, printed("download to %s: rate / raw libcurl loop, 4 connections", where), printed("%.2f / %.2f s", o, median(&raw)), median(&raw) / o, false, 0.95, "");
    if (memory) info(g, printed("download to %s: rate / boto3 default", where), "%.3g (%.2f s; raw loop %.3g)", median(&boto) / o, median(&boto), median(&boto) / median(&raw));
    else bare_reaches = median(&boto) / median(&raw);
    if (!memory) row(g, printed("download to %s: rate / boto3 default", where), printed("%.2f s", median(&boto)), median(&boto) / o, false, tls ? 3 : 5, "");
    const char *what = printed("download%s to %s: processor time", tls ? " over TLS" : "", where), *peer = printed("raw loop %.2f", median(&raw_cpu) / gib);
    if (!memory) bare_reaches = median(&raw_cpu) / gib;
    if (memory) info("G9c", what, "%.3g s/GiB (%s)", median(&cpu) / gib, peer);
    else row("G9c", what, peer, median(&cpu) / gib, true, most, " s/GiB");
    ckpt_store_close(s);
    sink_stop(&k);
}

// In a child: prints the KiB that an upload adds.
static int net_peak_child(const char *spec) {
    sink k;
    char path[4096];
    memset(&k, 0, sizeof k);
    k.host = sink_host;
    if (sscanf(spec, "%d,%4095s", &k.port, path) != 2) return 2;
    ckpt_store *s = own_store(&k, "unsigned");
    long before = reset_peak();
    must(ckpt_store_put(s, "peak", path, true), "uploading");
    printf("%ld\n", status_kib("VmHWM:") - before);
    ckpt_store_close(s);
    return 0;
}

static void goal_9d(const char *self) {
    size_t size = quick ? 256 * MIB : 1024 * MIB;
    const char *path = flat_file(size);
    char command[12000];
    long kib = 0;
    sink k;
    if (!sink_start(&k, false, NULL, NULL)) return;
    snprintf(command, sizeof command, "'%s' --net-peak %d,'%s'", self, k.port, path);
    FILE *f = popen(command, "r");
    if (f == NULL || fscanf(f, "%ld", &kib) != 1) die("the child that measures memory");
    pclose(f);
    row("G9d", "peak memory of an upload, 4 connections", "", (double)kib / 1024, true, 2 * 4 + 8, " MiB");
    sink_stop(&k);
}

// G10, G11, G14: a saver whose folder is an S3 URI.
// The least that a durable "this file is to be sent" costs: a link, a small record written aside and renamed, and both with their names on disk.
static double least_journal(const char *path) {
    char link_name[4300], temp[4300], record[4300], text[600];
    snprintf(link_name, sizeof link_name, "%s/least.data", dir);
    snprintf(temp, sizeof temp, "%s/least.tmp", dir);
    snprintf(record, sizeof record, "%s/least.upload", dir);
    memset(text, 'x', sizeof text);
    double t = now();
    int fd = -1, data = -1, folder = open(dir, O_RDONLY | O_DIRECTORY);
    bool ok = folder >= 0 && link(path, link_name) == 0 && (fd = open(temp, O_RDWR | O_CREAT | O_EXCL, 0666)) >= 0 && (data = open(link_name, O_RDONLY)) >= 0;
    ok = ok && write(fd, text, sizeof text) == (ssize_t)sizeof text && rename(temp, record) == 0;
    ok = ok && fsync(data) == 0 && fsync(fd) == 0 && fsync(folder) == 0;
    t = now() - t;
    if (fd >= 0) close(fd);
    if (data >= 0) close(data);
    if (folder >= 0) close(folder);
    unlink(link_name);
    unlink(record);
    return ok ? t : NAN;
}

// A saver that also uploads to the sink.
static ckpt_saver *uploading_saver(workload *w, ckpt_uploader **u, ckpt_snapshot snapshot) {
    ckpt_saver *s;
    ckpt_saver_desc d;
    memset(&d, 0, sizeof d);
    d.state = &w->st;
    d.folder = in_dir("g10");
    d.snapshot = snapshot;
    d.overwrite = true;
    d.uploaders = u;
    d.uploaders_count = 1;
    must(ckpt_saver_open(&s, &d), "saver");
    return s;
}

static ckpt_uploader *own_uploader(const sink *k) {
    ckpt_uploader *u;
    ckpt_store_desc sd;
    ckpt_uploader_desc d;
    char url[128];
    own_desc(k, "unsigned", url, sizeof url, &sd);
    memset(&d, 0, sizeof d);
    d.bucket_uri = "s3://bench";
    d.store_desc = &sd;
    must(ckpt_uploader_open(&u, &d), "uploader");
    return u;
}

// One checkpoint from the call until it is on disk and with the sink; what was in the folder is gone first.
static double timed_both(ckpt_saver *s, ckpt_timestamp *t, sink *k, size_t bytes, sink_seen *seen) {
    (void)shell("rm -f '%s'/*.pt", in_dir("g10"));
    ckpt_next_batch(t, 1, 1, 0.1);
    long from = sink_mark(k);
    double took = now();
    must(ckpt_saver_save(s, t), "save");
    must(ckpt_saver_wait(s, 0), "wait");
    took = now() - took;
    *seen = sink_check(k, from, bytes, "saver");
    return took;
}

// What the machine gives to whoever does both at once: a bare direct writer of the state beside the raw libcurl loop, which sends
// a file that the page cache holds.
typedef struct bare_both { const workload *w; const sink *k; const char *path; double failed; } bare_both;

static void bare_both_main(void *ctx, int worker) {
    bare_both *b = (bare_both *)ctx;
    double t = worker == 0 ? raw_transfer(b->k, b->path, b->w->bytes, RAW_UP) : peer_direct(b->w, in_dir("bare.pt"));
    if (isnan(t)) b->failed = NAN;
}

static double timed_bare_both(const workload *w, const sink *k, const char *path) {
    bare_both b = { w, k, path, 0 };
    double t = now();
    ckpt__engine_parallel(2, bare_both_main, &b);
    t = now() - t + b.failed;
    unlink(in_dir("bare.pt"));
    return t;
}

// A save that runs beside training is G1's, LAZY, and its 2nd and later ones count: the first of a process also makes the snapshot's
// memory. COPY, whose call copies the whole state before anything else begins, is told.
static void goal_10(bool tls) {
    workload w;
    samples both = { { 0 }, 0 }, local = both, up = both, link = both, parts = both, composer = both, first = both, copy = both, bare = both, writer = both, loop = both;
    sink k;
    const char *scheme = tls ? "https" : "http";
    if (!sink_start(&k, tls, NULL, NULL)) return;
    make_small(&w);
    ckpt_store *s = own_store(&k, "unsigned");
    char other[4096], staged[4200];
    snprintf(other, sizeof other, "%s/peer.pt", dir);
    snprintf(staged, sizeof staged, "%s.staged", other);
    (void)python("make %d %zu", w.count, w.each);
    for (int r = -1; r < rounds(5); r++) {
        ckpt_timestamp t;
        sink_seen seen;
        memset(&t, 0, sizeof t);
        prewarm(2 * w.bytes);
        double a = timed_save(&w, in_dir("g10.pt"), NULL);
        warm_cache(in_dir("g10.pt"));
        double b = own_upload(&k, s, "g9", in_dir("g10.pt"), w.bytes).t;
        double alone = raw_transfer(&k, in_dir("g10.pt"), w.bytes, RAW_UP), at_once = timed_bare_both(&w, &k, in_dir("g10.pt"));
        double direct = peer_direct(&w, in_dir("bare.pt"));
        unlink(in_dir("bare.pt"));
        unlink(in_dir("g10.pt"));
        double took[2][2];              // COPY, LAZY: the first, the second
        for (int lazy = 0; lazy < 2; lazy++) {
            ckpt_uploader *u = own_uploader(&k);
            ckpt_saver *sv = uploading_saver(&w, &u, lazy ? CKPT_SNAPSHOT_LAZY : CKPT_SNAPSHOT_COPY);
            prewarm(w.bytes);
            for (int i = 0; i < 2; i++) took[lazy][i] = timed_both(sv, &t, &k, w.bytes, &seen);
            must(ckpt_saver_close(sv, 0), "close");
            must(ckpt_uploader_close(u, 0), "close");
            (void)shell("rm -rf '%s'", in_dir("g10"));
        }
        double p = NAN;
        if (r >= 0 && r < 3) {
            prewarm(2 * w.bytes);
            if (!isnan(p = python("composer %s", other))) p += peer_boto3(&k, staged, false);
            unlink(other);
            unlink(staged);
        }
        if (r < 0) continue;
        add(&local, a);
        add(&up, b);
        add(&both, took[1][1]);
        add(&first, took[1][0]);
        add(&copy, took[0][1]);
        add(&bare, at_once);
        add(&loop, alone);
        add(&writer, direct);
        if (!isnan(p)) add(&composer, p);
        // The object comes into being when its parts are confirmed and its file is on disk, whichever is later: then Complete is asked for.
        if (seen.link > 0 && seen.complete > 0) {
            add(&link, 1e3 * (seen.link - seen.complete));
            add(&parts, 1e3 * (seen.complete - seen.last_part));
        }
    }
    (void)python("drop");
    double slower = median(&local) > median(&up) ? median(&local) : median(&up);
    // The goal's times are G4's and G9's, which is http; over TLS both processors are busy all the time, and the bare pair takes as long.
    const char *what = printed("LAZY: saved durably and uploaded, %s / the slower of the two", scheme);
    const char *times = printed("%.2f: %.2f, %.2f s", median(&both), median(&local), median(&up));
    double most = median(&writer) > median(&loop) ? median(&writer) : median(&loop);
    if (!tls) bare_reaches = median(&bare) / most;
    if (tls) info("G10", what, "%.3g (%s)", median(&both) / slower, times);
    else row("G10", what, times, median(&both) / slower, true, 1.15, "");
    info("G10", printed("a bare direct writer beside the raw loop, %s / the slower of the two", scheme), "%.3g (%.2f: %.2f, %.2f s)", median(&bare) / most,
         median(&bare), median(&writer), median(&loop));
    info("G10", printed("the first checkpoint of a process, %s; with COPY", scheme), "%.2f s; %.2f s (%.3g)", median(&first), median(&copy), median(&copy) / slower);
    if (composer.n > 0) row("G10", printed("the same / torch.save, copy2, boto3's upload, %s", scheme), printed("%.2f s", median(&composer)),
                            median(&both) / median(&composer), true, tls ? 0.25 : 0.15, "");
    row("G14", printed("parts confirmed and file on disk until .symlink's request, %s", scheme),
        link.n == 0 ? "no link seen" : printed("parts %.0f ms before", median(&parts)), link.n == 0 ? NAN : median(&link), true, 5, " ms");
    ckpt_store_close(s);
    unmake(&w);
    sink_stop(&k);
}

// A file that is there already is handed over.
static void goal_11(void) {
    samples start = { { 0 }, 0 }, stage = start, least = start;
    const char *flat = flat_file(quick ? 256 * MIB : 1024 * MIB);
    sink k;
    if (!sink_start(&k, false, NULL, NULL)) return;
    ckpt_uploader *u = own_uploader(&k);
    int one_fd = open(in_dir("one"), O_RDWR | O_CREAT, 0666);      // the first file from a folder makes its staging folder
    if (one_fd < 0 || write(one_fd, "x", 1) != 1) die("a file of one byte");
    close(one_fd);
    must(ckpt_upload_file(u, "one", in_dir("one"), true), "upload_file");
    must(ckpt_uploader_wait(u, 0), "wait");
    for (int r = -1; r < rounds(5); r++) {
        long from = sink_mark(&k);
        double j = 1e3 * least_journal(flat), p = now();
        must(ckpt_upload_file(u, "flat", flat, true), "upload_file");
        double q = now();
        must(ckpt_uploader_wait(u, 0), "wait");
        sink_seen seen = sink_look(&k, from);
        if (r < 0) continue;
        add(&start, 1e3 * (seen.first - q));
        add(&stage, 1e3 * (q - p));
        if (!isnan(j)) add(&least, j);
    }
    must(ckpt_uploader_close(u, 0), "close");
    row("G11", "ckpt_upload_file of 1 GiB / a link and a record, fsynced", printed("%.2f / %.2f ms", median(&stage), median(&least)),
        median(&stage) / median(&least), true, 1.3, "");
    row("G14", "upload_file returned until the first request", "", median(&start), true, 1, " ms");
    sink_stop(&k);
}

// Starts tests/servers/NAME in a folder and reads a variable of the env file it leaves.
static bool server_up(const char *name, const char *where) {
    return getenv("CKPT_BENCH_SERVERS") != NULL && !isnan(shell("SFTP_OWNER=0 RGW_OWNER=0 sh '%s/%s' up '%s' >/dev/null 2>&1", getenv("CKPT_BENCH_SERVERS"), name, where));
}

static const char *server_value(const char *where, const char *key) {
    static char values[8][1024];
    static int next;
    char *v = values[next++ % 8], command[5000];
    v[0] = 0;
    snprintf(command, sizeof command, ". '%s/env' && printf '%%s' \"$%s\"", where, key);
    FILE *f = popen(command, "r");
    if (f == NULL || fgets(v, 1024, f) == NULL) v[0] = 0;
    if (f != NULL) pclose(f);
    return v;
}

static void server_down(const char *name, const char *where) {
    (void)shell("sh '%s/%s' down '%s' >/dev/null 2>&1", getenv("CKPT_BENCH_SERVERS"), name, where);
}

// The files go, and who comes next finds as much warm memory for its own as who came before.
static void sftp_room(const char *data, size_t size) {
    (void)shell("rm -f '%s'/own '%s'/peer '%s'/curl", data, data, data);
    prewarm(size);
}

static void goal_15(void) {
    size_t size = quick ? 256 * MIB : 1024 * MIB;
    const char *path = flat_file(size);
    char where[64], uri[512];
    samples own = { { 0 }, 0 }, peer = own, tool = own;
    snprintf(where, sizeof where, "/dev/shm/ckpt-bench-%d-sftp", (int)getpid());
    if (!server_up("sftp.sh", where)) {
        print_row("G15", "SFTP upload", "-", "-", "skipped: no sshd");
        return;
    }
    ckpt_store *s;
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.key_filename = server_value(where, "SFTP_KEY");
    d.known_hosts_filename = server_value(where, "SFTP_KNOWN");
    const char *port = server_value(where, "SFTP_PORT"), *user = server_value(where, "SFTP_USER"), *data = server_value(where, "SFTP_DATA");
    snprintf(uri, sizeof uri, "sftp://%s@127.0.0.1:%s//%s", user, port, data + (data[0] == '/'));
    must(ckpt_store_open(&s, uri, &d), "opening the SFTP server");
    for (int r = -1; r < rounds(5); r++) {
        warm_cache(path);
        sftp_room(data, size);
        double t = now();
        must(ckpt_store_put(s, "own", path, true), "uploading");
        t = now() - t;
        sftp_room(data, size);
        double p = shell("echo \"put '%s' '%s/peer'\" | sftp -q -b - -i '%s' -o UserKnownHostsFile='%s' -P %s %s@127.0.0.1 >/dev/null 2>&1", path, data,
                         d.key_filename, d.known_hosts_filename, port, user);
        sftp_room(data, size);
        double c = shell("curl -s -T '%s' --key '%s' --pubkey '%s.pub' --user %s: 'sftp://127.0.0.1:%s/%s/curl' -k 2>/dev/null", path, d.key_filename,
                         d.key_filename, user, port, data + (data[0] == '/'));
        if (r < 0) continue;
        add(&own, t);
        if (!isnan(p)) add(&peer, p);
        if (!isnan(c)) add(&tool, c);
    }
    row("G15", "SFTP upload: rate / OpenSSH sftp", printed("%.2f / %.2f s", median(&own), median(&peer)), median(&peer) / median(&own), false, 1.0, "");
    row("G15", "SFTP upload: rate / curl's tool", printed("%.2f s", median(&tool)), median(&tool) / median(&own), false, 2.0, "");
    ckpt_store_close(s);
    server_down("sftp.sh", where);
    (void)shell("rm -rf '%s'", where);
}

// What the server takes of eight callers at once, with nothing recorded anywhere: no client can do much better.
typedef struct puts_job { ckpt_store *s; const char *folder; int count, round, next; } puts_job;
static void puts_main(void *ctx, int worker) {
    puts_job *j = (puts_job *)ctx;
    (void)worker;
    for (int i; (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->count;) {
        char name[64], file[4300];
        snprintf(name, sizeof name, "puts%d/f%04d", j->round, i);
        snprintf(file, sizeof file, "%s/f%04d", j->folder, i);
        must(ckpt_store_put(j->s, name, file, true), "put");
    }
}

// 1,000 files of 4 KiB to a real S3 server.
static void goal_small(void) {
    char where[4200], folder[4200];
    samples own = { { 0 }, 0 }, aws = own, bare = own;
    int count = quick ? 200 : 1000;
    snprintf(where, sizeof where, "%s/rgw", dir);
    snprintf(folder, sizeof folder, "%s/small", dir);
    if (!have("radosgw") || !server_up("rgw.sh", where)) {
        print_row("small", "4 KiB files to Ceph RGW", "-", "-", "skipped: no radosgw");
        return;
    }
    mkdir(folder, 0777);
    for (int i = 0; i < count; i++) {
        char name[4300], bytes[4096];
        snprintf(name, sizeof name, "%s/f%04d", folder, i);
        memset(bytes, i, sizeof bytes);
        int fd = open(name, O_RDWR | O_CREAT, 0666);
        if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes) die(name);
        close(fd);
    }
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.endpoint_url = server_value(where, "RGW_HTTP");
    d.access_key_id = server_value(where, "RGW_KEY");
    d.secret_access_key = server_value(where, "RGW_SECRET");
    d.region = "us-east-1";
    (void)shell("AWS_ACCESS_KEY_ID='%s' AWS_SECRET_ACCESS_KEY='%s' AWS_DEFAULT_REGION=us-east-1 aws --endpoint-url %s s3 mb s3://bench >/dev/null 2>&1",
                d.access_key_id, d.secret_access_key, d.endpoint_url);
    for (int r = 0; r < rounds(3); r++) {
        ckpt_uploader *u;
        ckpt_uploader_desc ud;
        memset(&ud, 0, sizeof ud);
        ud.bucket_uri = "s3://bench";
        ud.store_desc = &d;
        ud.num_concurrent_uploads = 8;
        must(ckpt_uploader_open(&u, &ud), "uploader");
        double t = now();
        for (int i = 0; i < count; i++) {
            char name[64], file[4300];
            snprintf(name, sizeof name, "own%d/f%04d", r, i);
            snprintf(file, sizeof file, "%s/f%04d", folder, i);
            must(ckpt_upload_file(u, name, file, true), "upload_file");
        }
        must(ckpt_uploader_wait(u, 0), "wait");
        add(&own, now() - t);
        must(ckpt_uploader_close(u, 0), "close");
        puts_job puts = { NULL, folder, count, r, 0 };
        must(ckpt_store_open(&puts.s, "s3://bench", &d), "store");
        t = now();
        ckpt__engine_parallel(8, puts_main, &puts);
        add(&bare, now() - t);
        ckpt_store_close(puts.s);
        add(&aws, shell("AWS_ACCESS_KEY_ID='%s' AWS_SECRET_ACCESS_KEY='%s' AWS_DEFAULT_REGION=us-east-1 aws --endpoint-url %s s3 cp --quiet --recursive "
                        "'%s' s3://bench/aws%d >/dev/null 2>&1", d.access_key_id, d.secret_access_key, d.endpoint_url, folder, r));
    }
    bare_reaches = median(&aws) / median(&bare);
    row("small", printed("%d files of 4 KiB to RGW: aws cli / own", count), printed("%.2f / %.2f s", median(&aws), median(&own)), median(&aws) / median(&own), false,
        5, "");
    info("small", "the same by eight callers of ckpt_store_put, nothing recorded", "%.2f s", median(&bare));
    server_down("rgw.sh", where);
}
