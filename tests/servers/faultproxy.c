/* faultproxy.c: a TCP proxy in front of a real server that breaks what it is told to break, when it is told.

     cc -O2 -pthread faultproxy.c -o faultproxy
     ./faultproxy [options] [HOST:]PORT         prints "PORT CONTROL", the port to use and that of its control, on one line

     --port N --control N     on 127.0.0.1; 0, the default: free ones       --raw     not HTTP (TLS, SSH): rules meet connections
     --small                  small receive buffers, so that a stall is felt at once, not after megabytes
     --json                   the bodies of status and rstatus are JSON, as Google, Oracle and Databricks have it, not XML
     --xml PATH               but for targets that begin so: the cloud behind a workspace
     --bodies                 of a small request in JSON the body counts as the end of its target, blanks as '_': Databricks and MLflow
                              name there what it is about
     --log FILE               one line per request: CLOCK_MONOTONIC, method, target, what was done to it ("-": nothing)

   The control takes one command per connection, a line, or an HTTP GET whose path is the command with '&' for blanks:
     curl -s 'http://127.0.0.1:CONTROL/rst=1000000&n=2&match=partNumber'
     printf 'status=503 retry=2 n=5\n' | nc 127.0.0.1 CONTROL
   It answers "ok", "error: ...", or what was asked. Commands:
     stats        "name number" per line: connections requests faults bytes_up bytes_down rules (left)
     clear        drops all rules, and lets what stalls end
     kill         resets every open connection
     drop=TEXT    drops the rules whose match is TEXT
     FAULT ...    adds a rule. The first rule that fits a request is used for it, and used up by one

   Words of a rule:
     rst=N close=N stall=N flip=N     after N bytes: reset both sides, close both, stop moving bytes, or flip the lowest bit of that
                                      byte and go on. Bytes count from the first of the request (of the connection when --raw), its
                                      head included; with dir=down, from the first of the reply
     dir=up|down                      up, the default: from the client to the server
     status=S [early | rude]          the proxy answers S itself and the server never sees the request. After the body was read, and
                                      the connection stays; early: after the head, and the connection is closed politely (rude: at
                                      once, which resets it when bytes are still arriving)
     rstatus=S                        the server does the work, and its answer is replaced by S
     swallow=close|rst|stall          the server does the work, and its answer is lost
     length=N                         the answer's Content-Length is N more than its bytes, which are followed by a close; less when
                                      N is negative
     retry=SECONDS                    Retry-After of status and rstatus          code=NAME   <Code> of its body, SlowDown
     says=TEXT                        <Message> of its body, a '+' is a blank    more=TEXT   its <AuthenticationErrorDetail>, in XML
     delay=S                          seconds before the request goes on         rate=N      bytes per second in both directions
     n=N                              for the next N requests (connections); 1; -1: for all      skip=N   after the next N that fit
     match=TEXT                       only requests whose line ("PUT /b/k?partNumber=3 HTTP/1.1") has this in it; no blanks, a '+' is one,
                                      and a '*' stands for any text

   The signature of an S3 request stays valid when the client signs the proxy's own host and port. Requests need a Content-Length;
   pipelining is not supported.
*/
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 256 * 1024, RULES = 64, CONNS = 4096, BODY_MAX = 4000, BODY_SHOWN = 250 };

typedef enum kind { NONE, RST, CLOSE, STALL, FLIP, STATUS, RSTATUS, SWALLOW, LENGTH, SLOW } kind;
static const char *const kind_names[] = { "-", "rst", "close", "stall", "flip", "status", "rstatus", "swallow", "length", "slow" };

typedef struct rule {
    kind    kind, end;                  // end: of swallow
    int64_t at;
    int     status, n, skip;
    bool    down, early, rude;
    double  delay, rate, retry;
    char    match[200], code[64], says[80], more[80];
} rule;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rule     rules[RULES];
static int      rule_count, generation;             // clear adds to generation: what stalls ends
static uint64_t connections, requests, faults, bytes_up, bytes_down;
static int      open_fds[CONNS];
static bool     raw, small_buffers, speaks_json, reads_bodies;
static const char *xml_at;
static FILE    *log_file;
static struct sockaddr_in upstream;

typedef struct conn {
    int      client, server, generation;
    char    *buf;
    char     head[65536], body[BODY_MAX];
    size_t   head_size, body_size, body_want;       // body_want: so much of the body is waited for before a rule is chosen
    uint64_t body_left, up, down;       // bytes of this request and of its reply
    int64_t  reply_left;                // of a reply that was told to be of another length
    rule     r;                         // of this request
    bool     in_body, fired, over, deaf;     // deaf: the server takes no more, but may have something to say
} conn;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(double s) {
    if (s > 0) usleep((useconds_t)(s * 1e6));
}

static bool send_all(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

//-- rules ---------------------------------------------------------------------------------

static const char *value_of(const char *word, const char *name) {
    size_t n = strlen(name);
    return strncmp(word, name, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static void set_text(char *out, size_t cap, const char *text) {
    snprintf(out, cap, "%s", text);
    for (char *p = out; *p != 0; p++) if (*p == '+') *p = ' ';
}

static const char *add_rule(char *text) {
    rule r;
    memset(&r, 0, sizeof r);
    r.n = 1;
    snprintf(r.code, sizeof r.code, "SlowDown");
    snprintf(r.says, sizeof r.says, "by the fault proxy");
    static const struct { const char *name; kind kind; } ats[] = { { "rst", RST }, { "close", CLOSE }, { "stall", STALL }, { "flip", FLIP } };
    char *save = NULL;
    for (char *w = strtok_r(text, " &\r\n", &save); w != NULL; w = strtok_r(NULL, " &\r\n", &save)) {
        const char *v;
        bool known = false;
        for (size_t i = 0; i < 4; i++) {
            if ((v = value_of(w, ats[i].name)) != NULL) { r.kind = ats[i].kind; r.at = strtoll(v, NULL, 10); known = true; }
        }
        if (known) continue;
        if ((v = value_of(w, "status")) != NULL) { r.kind = STATUS; r.status = atoi(v); }
        else if ((v = value_of(w, "rstatus")) != NULL) { r.kind = RSTATUS; r.status = atoi(v); }
        else if ((v = value_of(w, "swallow")) != NULL) { r.kind = SWALLOW; r.end = v[0] == 'r' ? RST : v[0] == 's' ? STALL : CLOSE; }
        else if ((v = value_of(w, "length")) != NULL) { r.kind = LENGTH; r.at = strtoll(v, NULL, 10); }
        else if ((v = value_of(w, "dir")) != NULL) r.down = v[0] == 'd';
        else if ((v = value_of(w, "retry")) != NULL) r.retry = atof(v);
        else if ((v = value_of(w, "code")) != NULL) snprintf(r.code, sizeof r.code, "%s", v);
        else if ((v = value_of(w, "delay")) != NULL) r.delay = atof(v);
        else if ((v = value_of(w, "rate")) != NULL) r.rate = atof(v);
        else if ((v = value_of(w, "n")) != NULL) r.n = atoi(v);
        else if ((v = value_of(w, "skip")) != NULL) r.skip = atoi(v);
        else if ((v = value_of(w, "says")) != NULL) set_text(r.says, sizeof r.says, v);
        else if ((v = value_of(w, "more")) != NULL) set_text(r.more, sizeof r.more, v);
        else if ((v = value_of(w, "match")) != NULL) set_text(r.match, sizeof r.match, v);
        else if (strcmp(w, "early") == 0) r.early = true;
        else if (strcmp(w, "rude") == 0) r.early = r.rude = true;
        else return "error: no such word\n";
    }
    if (r.kind == NONE && (r.delay > 0 || r.rate > 0)) r.kind = SLOW;
    if (r.kind == NONE) return "error: a rule without a fault\n";
    if (raw && (r.kind == STATUS || r.kind == RSTATUS || r.kind == SWALLOW || r.kind == LENGTH)) return "error: not with --raw\n";
    pthread_mutex_lock(&lock);
    bool full = rule_count == RULES;
    if (!full) rules[rule_count++] = r;
    pthread_mutex_unlock(&lock);
    return full ? "error: too many rules\n" : "ok\n";
}

// Has the line these texts in it, one behind the other?
static bool fits(const char *line, const char *match) {
    char piece[sizeof ((rule *)0)->match];
    while (*match != 0) {
        size_t n = strcspn(match, "*");
        snprintf(piece, sizeof piece, "%.*s", (int)n, match);
        if ((line = strstr(line, piece)) == NULL) return false;
        line += n;
        match += n + (match[n] == '*');
    }
    return true;
}

// The rule for a request, or a connection; its kind is NONE when there is none.
static rule choose(const char *line) {
    rule found;
    memset(&found, 0, sizeof found);
    pthread_mutex_lock(&lock);
    requests += !raw;
    for (int i = 0; i < rule_count && found.kind == NONE; i++) {
        rule *r = &rules[i];
        if (!fits(line, r->match)) continue;
        if (r->skip > 0) { r->skip--; continue; }
        found = *r;
        if (r->n > 0 && --r->n == 0) {
            memmove(rules + i, rules + i + 1, (size_t)(rule_count - i - 1) * sizeof *rules);
            rule_count--;
        }
    }
    if (log_file != NULL) {
        fprintf(log_file, "%.6f %.*s %s\n", now(), (int)strcspn(line, "\r\n"), line, kind_names[found.kind]);
        fflush(log_file);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

//-- what is done --------------------------------------------------------------------------

static void count_fault(conn *c) {
    c->fired = true;
    pthread_mutex_lock(&lock);
    faults++;
    pthread_mutex_unlock(&lock);
}

static void end_with(conn *c, kind how) {
    struct linger at_once = { 1, 0 };
    c->over = true;
    if (how == RST) {
        setsockopt(c->client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (c->server >= 0) setsockopt(c->server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    while (how == STALL) {
        char byte;
        struct pollfd p = { c->client, 0, 0 };
        if (poll(&p, 1, 20) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0) break;
        if (recv(c->client, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) break;
        pthread_mutex_lock(&lock);
        bool cleared = generation != c->generation;
        pthread_mutex_unlock(&lock);
        if (cleared) break;
    }
}

static void answer(conn *c, bool closes) {
    char body[800], text[1200], retry[64] = "";
    const char *target = strchr(c->head, ' '), *mark = c->r.more[0] != 0 ? "AuthenticationErrorDetail" : "Resource";
    bool json = speaks_json && (xml_at == NULL || target == NULL || strncmp(target + 1, xml_at, strlen(xml_at)) != 0);
    int n = snprintf(body, sizeof body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message><%s>%s</%s></Error>",
                     c->r.code, c->r.says, mark, c->r.more, mark);
    if (json)
        n = snprintf(body, sizeof body, "{\"code\":\"%s\",\"error_code\":\"%s\",\"message\":\"%s\",\"error\":{\"code\":%d,\"message\":\"%s\","
                     "\"errors\":[{\"reason\":\"%s\"}]}}", c->r.code, c->r.code, c->r.says, c->r.status, c->r.says, c->r.code);
    if (c->r.retry > 0) snprintf(retry, sizeof retry, "Retry-After: %g\r\n", c->r.retry);
    bool head = strncmp(c->head, "HEAD ", 5) == 0;
    n = snprintf(text, sizeof text, "HTTP/1.1 %d Fault\r\nContent-Length: %d\r\nContent-Type: application/%s\r\n%s%s\r\n%s", c->r.status, n, json ? "json" : "xml", retry,
                 closes ? "Connection: close\r\n" : "", head ? "" : body);
    if (!send_all(c->client, text, (size_t)n)) c->over = true;
}

static void answer_early(conn *c) {
    count_fault(c);
    answer(c, true);
    c->over = true;
    if (c->r.rude) return;
    shutdown(c->client, SHUT_WR);
    for (double end = now() + 2.0; now() < end;) {
        struct pollfd p = { c->client, POLLIN, 0 };
        if (poll(&p, 1, 50) > 0 && recv(c->client, c->buf, PIECE, 0) <= 0) break;
    }
}

// Sends bytes on, as far as the rule lets them.
static void forward(conn *c, char *p, size_t n, bool down) {
    uint64_t *count = down ? &c->down : &c->up;
    int to = down ? c->client : c->server;
    while (n > 0 && !c->over) {
        size_t part = n;
        if (c->r.rate > 0 && part > c->r.rate / 20) part = (size_t)(c->r.rate / 20) + 1;
        bool aims = !c->fired && c->r.down == down && c->r.kind >= RST && c->r.kind <= FLIP;
        uint64_t left = aims && (uint64_t)c->r.at > *count ? (uint64_t)c->r.at - *count : 0;
        if (aims && left == 0) {
            count_fault(c);
            if (c->r.kind != FLIP) { end_with(c, c->r.kind); return; }
            p[0] ^= 1;
        } else if (aims && left < part) {
            part = (size_t)left;
        }
        if (part > n) part = n;
        if (!down && c->deaf) return;
        if (!send_all(to, p, part)) {
            if (down) c->over = true;
            else c->deaf = true;
            return;
        }
        *count += part;
        p += part;
        n -= part;
        pthread_mutex_lock(&lock);
        *(down ? &bytes_down : &bytes_up) += part;
        pthread_mutex_unlock(&lock);
        if (c->r.rate > 0) nap((double)part / c->r.rate);
    }
    // "After all of its N bytes" is as good a place as any other.
    bool at_end = !c->over && !c->fired && c->r.down == down && c->r.kind >= RST && c->r.kind <= STALL && (uint64_t)c->r.at == *count;
    if (at_end) {
        count_fault(c);
        end_with(c, c->r.kind);
    }
}

static void body_ended(conn *c) {
    if (c->r.kind != STATUS) return;
    count_fault(c);
    answer(c, false);
}

// What a header of the request says; "" without it.
static const char *header_of(const conn *c, const char *name) {
    for (const char *line = strchr(c->head, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        if (strncasecmp(line + 1, name, strlen(name)) == 0) return line + 1 + strlen(name);
    }
    return "";
}

// How much of the body the choice of a rule waits for.
static size_t told_body(const conn *c) {
    unsigned long long length = strtoull(header_of(c, "content-length:"), NULL, 10);
    return reads_bodies && length <= BODY_MAX && strncasecmp(header_of(c, "content-type:"), " application/json", 17) == 0 ? (size_t)length : 0;
}

// The request's line, with the body that was waited for behind the target.
static const char *line_of(const conn *c, char *out, size_t cap) {
    size_t first = strcspn(c->head, " "), target = first + 1 + strcspn(c->head + first + 1, " \r"), shown = c->body_size < BODY_SHOWN ? c->body_size : BODY_SHOWN;
    if (c->body_size == 0 || target + shown + 12 > cap) return c->head;
    memcpy(out, c->head, target);
    for (size_t i = 0; i < shown; i++) out[target + i] = c->body[i] > ' ' ? c->body[i] : '_';
    snprintf(out + target + shown, cap - target - shown, " HTTP/1.1");
    return out;
}

static void begin_request(conn *c) {
    char line[4096];
    c->r = choose(line_of(c, line, sizeof line));
    c->up = c->down = 0;
    c->fired = false;
    c->body_left = strtoull(header_of(c, "content-length:"), NULL, 10);
    c->in_body = true;
    nap(c->r.delay);
    if (c->r.kind == SLOW) count_fault(c);
    if (c->r.kind == STATUS && c->r.early) answer_early(c);
    else if (c->r.kind != STATUS) forward(c, c->head, c->head_size, false);
}

static void pass_body(conn *c, char *p, size_t n) {
    if (n > 0 && c->r.kind != STATUS) forward(c, p, n, false);
    c->body_left -= n;
    if (c->over || c->body_left > 0) return;
    body_ended(c);
    c->in_body = false;
    c->head_size = 0;
}

// Bytes of the client, which are heads and bodies.
static void from_client(conn *c, char *p, size_t n) {
    if (raw) { forward(c, p, n, false); return; }
    while (n > 0 && !c->over) {
        if (!c->in_body && c->body_want == 0) {
            size_t before = c->head_size, room = sizeof c->head - 1 - before, take = n < room ? n : room;
            memcpy(c->head + before, p, take);
            c->head[before + take] = 0;
            char *end = strstr(c->head, "\r\n\r\n");
            if (end == NULL) {
                c->head_size += take;
                if (take == room) c->over = true;
                return;
            }
            c->head_size = (size_t)(end - c->head) + 4;
            c->head[c->head_size] = 0;
            p += c->head_size - before;
            n -= c->head_size - before;
            c->body_want = told_body(c);
            if (c->body_want == 0) begin_request(c);
        }
        if (c->body_want > 0) {
            size_t take = n < c->body_want - c->body_size ? n : c->body_want - c->body_size;
            memcpy(c->body + c->body_size, p, take);
            c->body_size += take;
            p += take;
            n -= take;
            if (c->body_size < c->body_want) return;
            begin_request(c);
            if (!c->over) pass_body(c, c->body, c->body_size);
            c->body_size = c->body_want = 0;
            continue;
        }
        size_t part = n < c->body_left ? n : (size_t)c->body_left;
        if (!c->over) pass_body(c, p, part);
        p += part;
        n -= part;
    }
}

// The head of an answer, which has come with its first bytes, with another Content-Length.
static void answer_length(conn *c, char *p, size_t n) {
    static const char name[] = "\r\ncontent-length:";
    size_t at = 0;
    while (at + sizeof name < n && strncasecmp(p + at, name, sizeof name - 1) != 0) at++;
    if (at + sizeof name >= n) return;
    char text[64], *end;
    at += sizeof name - 1;
    long long length = strtoll(p + at, &end, 10);
    int size = snprintf(text, sizeof text, " %lld", length + c->r.at > 0 ? length + (long long)c->r.at : 0);
    count_fault(c);
    forward(c, p, at, true);
    forward(c, text, (size_t)size, true);
    forward(c, end, n - (size_t)(end - p), true);
    char *body = memmem(p, n, "\r\n\r\n", 4);
    c->reply_left = body != NULL ? length - (p + n - body - 4) : length;
    c->over = c->over || c->reply_left <= 0;
}

static void from_server(conn *c, char *p, size_t n) {
    bool interim = n > 10 && memcmp(p, "HTTP/1.1 1", 10) == 0;
    if ((c->r.kind == RSTATUS || c->r.kind == SWALLOW) && !c->fired && !interim) {
        count_fault(c);
        if (c->r.kind == RSTATUS) {
            answer(c, true);
            c->over = true;
        } else {
            end_with(c, c->r.end);
        }
        return;
    }
    if (c->r.kind == LENGTH && !c->fired && !interim) { answer_length(c, p, n); return; }
    forward(c, p, n, true);
    if (c->r.kind == LENGTH && c->fired && (c->reply_left -= (int64_t)n) <= 0) c->over = true;
}

static void keep_open(int fd, bool opened) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CONNS; i++) {
        if (open_fds[i] == (opened ? 0 : fd)) { open_fds[i] = opened ? fd : 0; break; }
    }
    pthread_mutex_unlock(&lock);
}

static void *serve(void *arg) {
    conn *c = calloc(1, sizeof *c);
    int one = 1;
    if (c == NULL || (c->buf = malloc(PIECE)) == NULL) abort();
    c->client = (int)(intptr_t)arg;
    c->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_mutex_lock(&lock);
    connections++;
    c->generation = generation;
    pthread_mutex_unlock(&lock);
    keep_open(c->client, true);
    setsockopt(c->client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(c->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (raw) {
        c->r = choose("");
        nap(c->r.delay);
        if (c->r.at == 0 && !c->r.down && c->r.kind >= RST && c->r.kind <= STALL) { count_fault(c); end_with(c, c->r.kind); }
    }
    if (!c->over && connect(c->server, (struct sockaddr *)&upstream, sizeof upstream) != 0) c->over = true;
    bool client_done = false;
    while (!c->over) {
        struct pollfd p[2] = { { c->client, client_done ? 0 : POLLIN, 0 }, { c->server, POLLIN, 0 } };
        if (poll(p, 2, -1) < 0) continue;
        if ((p[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            ssize_t n = recv(c->server, c->buf, PIECE, 0);
            if (n <= 0) break;
            from_server(c, c->buf, (size_t)n);
            continue;                       // what the server says first
        }
        if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            ssize_t n = recv(c->client, c->buf, PIECE, 0);
            if (n < 0) break;
            if (n == 0) {
                if (client_done) break;
                client_done = true;
                shutdown(c->server, SHUT_WR);
            } else {
                from_client(c, c->buf, (size_t)n);
            }
        }
    }
    keep_open(c->client, false);
    close(c->client);
    close(c->server);
    free(c->buf);
    free(c);
    return NULL;
}

//-- control -------------------------------------------------------------------------------

static void command(char *text, char *out, size_t cap) {
    if (strncmp(text, "stats", 5) == 0) {
        pthread_mutex_lock(&lock);
        snprintf(out, cap, "connections %llu\nrequests %llu\nfaults %llu\nbytes_up %llu\nbytes_down %llu\nrules %d\n", (unsigned long long)connections,
                 (unsigned long long)requests, (unsigned long long)faults, (unsigned long long)bytes_up, (unsigned long long)bytes_down, rule_count);
        pthread_mutex_unlock(&lock);
    } else if (strncmp(text, "clear", 5) == 0) {
        pthread_mutex_lock(&lock);
        rule_count = 0;
        generation++;
        pthread_mutex_unlock(&lock);
        snprintf(out, cap, "ok\n");
    } else if (strncmp(text, "drop=", 5) == 0) {
        for (char *p = text; *p != 0; p++) if (*p == '+') *p = ' ';
        pthread_mutex_lock(&lock);
        int kept = 0;
        for (int i = 0; i < rule_count; i++) if (strcmp(rules[i].match, text + 5) != 0) rules[kept++] = rules[i];
        rule_count = kept;
        pthread_mutex_unlock(&lock);
        snprintf(out, cap, "ok\n");
    } else if (strncmp(text, "kill", 4) == 0) {
        struct linger at_once = { 1, 0 };
        pthread_mutex_lock(&lock);
        for (int i = 0; i < CONNS; i++) {
            if (open_fds[i] == 0) continue;
            setsockopt(open_fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            shutdown(open_fds[i], SHUT_RD);         // wakes its thread, which closes it
        }
        pthread_mutex_unlock(&lock);
        snprintf(out, cap, "ok\n");
    } else {
        snprintf(out, cap, "%s", add_rule(text));
    }
}

static void *control(void *arg) {
    int listener = (int)(intptr_t)arg;
    for (;;) {
        char text[4096], out[1024], reply[1400];
        size_t n = 0;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        while (n < sizeof text - 1) {
            ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
            if (got <= 0) break;
            n += (size_t)got;
            text[n] = 0;
            if (strncmp(text, "GET ", 4) == 0 ? strstr(text, "\r\n\r\n") != NULL : memchr(text, '\n', n) != NULL) break;
        }
        text[n] = 0;
        bool http = strncmp(text, "GET /", 5) == 0;
        char *line = http ? text + 5 : text;
        line[strcspn(line, http ? " \r\n" : "\r\n")] = 0;
        command(line, out, sizeof out);
        if (http) snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(out), out);
        else snprintf(reply, sizeof reply, "%s", out);
        send_all(fd, reply, strlen(reply));
        close(fd);
    }
    return NULL;
}

static int listen_on(int port, int *chosen) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, few = 16384;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (small_buffers) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    if (bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 512) != 0 || getsockname(fd, (struct sockaddr *)&at, &size) != 0) {
        fprintf(stderr, "faultproxy: cannot listen on port %d: %s\n", port, strerror(errno));
        exit(1);
    }
    *chosen = ntohs(at.sin_port);
    return fd;
}

int main(int argc, char **argv) {
    int port = 0, control_port = 0, chosen, control_chosen;
    const char *to = NULL;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(a, "--raw") == 0) raw = true;
        else if (strcmp(a, "--small") == 0) small_buffers = true;
        else if (strcmp(a, "--json") == 0) speaks_json = true;
        else if (strcmp(a, "--bodies") == 0) reads_bodies = true;
        else if (strcmp(a, "--xml") == 0) { xml_at = v; i++; }
        else if (strcmp(a, "--port") == 0) { port = atoi(v); i++; }
        else if (strcmp(a, "--control") == 0) { control_port = atoi(v); i++; }
        else if (strcmp(a, "--log") == 0 && (log_file = fopen(v, "w")) != NULL) i++;
        else if (a[0] != '-' && to == NULL) to = a;
        else { fprintf(stderr, "faultproxy: %s? (see the top of faultproxy.c)\n", a); return 2; }
    }
    if (to == NULL) { fprintf(stderr, "faultproxy: to which [HOST:]PORT?\n"); return 2; }
    const char *colon = strrchr(to, ':');
    char host[256] = "127.0.0.1";
    if (colon != NULL) snprintf(host, sizeof host, "%.*s", (int)(colon - to), to);
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found = NULL;
    if (getaddrinfo(host, colon != NULL ? colon + 1 : to, &hints, &found) != 0) { fprintf(stderr, "faultproxy: no such host: %s\n", to); return 1; }
    memcpy(&upstream, found->ai_addr, sizeof upstream);
    freeaddrinfo(found);
    signal(SIGPIPE, SIG_IGN);
    int listener = listen_on(port, &chosen), control_fd = listen_on(control_port, &control_chosen);
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, control, (void *)(intptr_t)control_fd) != 0) return 1;
    printf("%d %d\n", chosen, control_chosen);
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && pthread_create(&thread, &detached, serve, (void *)(intptr_t)fd) != 0) close(fd);
    }
}
