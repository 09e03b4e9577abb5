/* net_util_s3.h: what the programs of net_faults.sh and net_kill.sh share: the control of a fault proxy, its log, files of known bytes.
   After ckpt.h and ../util.h. */
#ifndef NET_UTIL_S3_H
#define NET_UTIL_S3_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <time.h>

UTIL_FN double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

UTIL_FN double time_of_day(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

UTIL_FN const char *env(const char *name) {
    const char *v = getenv(name);
    if (v == NULL) { printf("FAIL: %s is not set\n", name); exit(1); }
    return v;
}

//-- servers -----------------------------------------------------------------------

// One line to a port of this machine, all of the answer back.
UTIL_FN void tell(const char *port, char *answer, size_t cap, const char *fmt, ...) {
    char text[2048];
    struct sockaddr_in at;
    va_list args;
    size_t n = 0;
    va_start(args, fmt);
    int size = vsnprintf(text, sizeof text - 1, fmt, args);
    va_end(args);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)atoi(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0 || send(fd, text, (size_t)size, MSG_NOSIGNAL) != size) util_die("cannot tell", port);
    for (ssize_t got; n + 1 < cap && (got = recv(fd, answer + n, cap - 1 - n, 0)) > 0;) n += (size_t)got;
    answer[n] = 0;
    close(fd);
}

// A command of faultproxy.c.
UTIL_FN void proxy(const char *control, const char *fmt, ...) {
    char text[1024], answer[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    tell(control, answer, sizeof answer, "%s\n", text);
    if (strcmp(answer, "ok\n") != 0) { printf("FAIL: the fault proxy does not know '%s': %s", text, answer); exit(1); }
}

typedef struct net_line { double at; char method[8], target[600], done[12]; } net_line;

// The requests of a log whose target begins with `key`, up to '?' or the end; key NULL: all.
UTIL_FN int net_log(const char *path, const char *key, net_line *out, int cap) {
    char line[2000];
    FILE *f = fopen(path, "r");
    int n = 0;
    if (f == NULL) util_die("cannot open", path);
    while (n < cap && fgets(line, sizeof line, f) != NULL) {
        net_line *l = &out[n];
        if (strchr(line, '\n') == NULL || sscanf(line, "%lf %7s %599s HTTP/1.1 %11s", &l->at, l->method, l->target, l->done) < 3) continue;
        size_t len = key != NULL ? strlen(key) : 0;
        if (len > 0 && (strncmp(l->target, key, len) != 0 || (l->target[len] != 0 && l->target[len] != '?'))) continue;
        n++;
    }
    fclose(f);
    return n;
}

//-- files -------------------------------------------------------------------------

UTIL_FN void make_file(const char *path, size_t size, unsigned seed) {
    unsigned char *p = (unsigned char *)malloc(size + 1);
    if (p == NULL) abort();
    util_fill(p, size, seed);
    util_write(path, p, size);
    free(p);
}

UTIL_FN bool file_holds(const char *path, size_t size, unsigned seed) {
    size_t n;
    char *have = util_slurp(path, &n);
    unsigned char *want = (unsigned char *)malloc(size + 1);
    if (want == NULL) abort();
    util_fill(want, size, seed);
    bool good = have != NULL && n == size && memcmp(have, want, size) == 0;
    free(have);
    free(want);
    return good;
}

#endif // NET_UTIL_S3_H
