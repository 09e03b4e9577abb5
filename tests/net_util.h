/* net_util.h: a loopback HTTP server inside the test, which does to a client whatever the test says.

   Include it after ckpt.h and util.h. One thread per connection; for each request that arrives, the test's handler is called
   with the head parsed and nothing of the body read. What the handler does is what the client sees:

       static void handler(net_request *r, void *user) {
           if (r->number == 0) { net_body(r, 1000); net_reset(r); return; }     // first request: RST after 1000 bytes of its body
           net_reply(r, 200, "ETag: \"x\"\r\n", "hello", 5);                     // reads the rest of the body, then answers
       }
       net_server s;
       net_start(&s, handler, user);       ... s.url is "http://127.0.0.1:PORT" ...        net_stop(&s);

   number          counts the requests to the server from 0, connection its connections, nth the requests on this connection
   net_header      the value of a header of the request, "" when it has none
   net_body        reads up to so many bytes of the body (SIZE_MAX: all) into r->body; the number read so far is r->body_size
   net_drain       the same without keeping them; a rate in bytes per second, 0: as fast as they come
   net_send        bytes as they are; net_text the same as printf; net_zeros so many zero bytes
   net_drip        bytes in pieces of so many, with a pause after each
   net_reply       a whole reply with Content-Length, after the rest of the request's body was read
   net_close       says goodbye (FIN) after what was sent; net_reset: RST; net_stall: neither reads nor writes until the client leaves
                   or the server is stopped; net_wait: so many seconds, less when the server is stopped
   net_small_buffers   set to 1 before net_start: sockets that hold little, so that a slow server is felt by the client at once
   A handler that returns without these three keeps the connection alive. What it leaves of the body is read and dropped.
   net_count       requests so far (net_connections: connections), safe while the server runs

   With NET_TLS defined (link with -lssl) net_start_tls serves TLS with a certificate made on the spot for 127.0.0.1 and localhost,
   signed by itself and written to a file that a client may trust (its `name` may be another, to be refused).
*/
#ifndef NET_UTIL_H
#define NET_UTIL_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#ifdef NET_TLS
    #include <openssl/evp.h>
    #include <openssl/pem.h>
    #include <openssl/ssl.h>
    #include <openssl/x509v3.h>
#endif

enum { NET_HEAD_MAX = 65536, NET_CONNECTIONS_MAX = 256 };

typedef struct net_request {
    struct net_server *server;
    int      fd;
    void    *tls;
    int      number, connection, nth;
    char     method[16], target[4096];
    char     head[NET_HEAD_MAX];        // request line and headers, with their line breaks
    size_t   head_size;
    int64_t  length;                    // Content-Length, -1: none was sent
    int64_t  taken;                     // bytes of the body that were read
    char    *body;                      // those that net_body read
    size_t   body_size;
    bool     ended;                     // the connection was closed, reset or stalled
    char     early[NET_HEAD_MAX];       // bytes that came with the head
    size_t   early_at, early_size;
} net_request;

typedef void (*net_handler)(net_request *r, void *user);

typedef struct net_server {
    net_handler     fn;
    void           *user;
    int             listener, port;
    char            url[64];
    pthread_t       thread, workers[NET_CONNECTIONS_MAX];
    int             fds[NET_CONNECTIONS_MAX];   // -1: closed
    int             connections, requests, stopping;
    pthread_mutex_t lock;
    void           *tls;                // SSL_CTX
} net_server;

static int net_small_buffers;

typedef struct net_worker { net_server *server; int index, fd; } net_worker;

UTIL_FN int net_get(net_server *s, const int *counter) {
    pthread_mutex_lock(&s->lock);
    int v = *counter;
    pthread_mutex_unlock(&s->lock);
    return v;
}

UTIL_FN int net_count(net_server *s) { return net_get(s, &s->requests); }
UTIL_FN int net_connections(net_server *s) { return net_get(s, &s->connections); }

UTIL_FN void net_sleep(double seconds) {
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

UTIL_FN double net_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

//-- bytes -------------------------------------------------------------------------

UTIL_FN ssize_t net_raw_read(net_request *r, void *p, size_t n) {
#ifdef NET_TLS
    if (r->tls != NULL) return SSL_read((SSL *)r->tls, p, (int)n);
#endif
    ssize_t got;
    do got = recv(r->fd, p, n, 0); while (got < 0 && errno == EINTR);
    return got;
}

UTIL_FN void net_send(net_request *r, const void *p, size_t n) {
    const char *at = (const char *)p;
    while (n > 0 && !r->ended) {
#ifdef NET_TLS
        if (r->tls != NULL) {
            int done = SSL_write((SSL *)r->tls, at, n > 65536 ? 65536 : (int)n);
            if (done <= 0) { r->ended = true; return; }
            at += done;
            n -= (size_t)done;
            continue;
        }
#endif
        ssize_t done = send(r->fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) { r->ended = true; return; }
        at += done;
        n -= (size_t)done;
    }
}

__attribute__((format(printf, 2, 3)))
UTIL_FN void net_text(net_request *r, const char *fmt, ...) {
    char text[8192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    net_send(r, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

UTIL_FN void net_zeros(net_request *r, uint64_t n) {
    static const char zeros[65536];
    for (; n > 0 && !r->ended; n -= n < sizeof zeros ? n : sizeof zeros) net_send(r, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros);
}

UTIL_FN void net_wait(net_request *r, double seconds) {
    for (double end = net_now() + seconds; net_now() < end && net_get(r->server, &r->server->stopping) == 0;) net_sleep(0.005);
}

UTIL_FN void net_drip(net_request *r, const void *p, size_t n, size_t piece, double pause) {
    for (size_t at = 0; at < n && !r->ended; at += piece) {
        net_send(r, (const char *)p + at, n - at < piece ? n - at : piece);
        net_wait(r, pause);
    }
}

// Bytes of the connection: first those that were read ahead.
UTIL_FN ssize_t net_take(net_request *r, void *p, size_t n) {
    size_t left = r->early_size - r->early_at;
    if (left == 0) return net_raw_read(r, p, n);
    if (n > left) n = left;
    memcpy(p, r->early + r->early_at, n);
    r->early_at += n;
    return (ssize_t)n;
}

UTIL_FN size_t net_body(net_request *r, size_t most) {
    if (r->length < 0) return 0;
    size_t size = (uint64_t)r->length < most ? (size_t)r->length : most;
    char *room = (char *)realloc(r->body, size + 1);
    if (room == NULL) abort();
    r->body = room;
    while (r->taken < r->length && r->body_size < size && !r->ended) {
        ssize_t got = net_take(r, r->body + r->body_size, size - r->body_size < 65536 ? size - r->body_size : 65536);
        if (got <= 0) { r->ended = true; break; }
        r->body_size += (size_t)got;
        r->taken += got;
    }
    r->body[r->body_size] = 0;
    return r->body_size;
}

UTIL_FN void net_drain(net_request *r, uint64_t most, double rate) {
    char piece[65536];
    double began = net_now();
    uint64_t done = 0;
    while (r->length > r->taken && done < most && !r->ended && net_get(r->server, &r->server->stopping) == 0) {
        size_t n = most - done < sizeof piece ? (size_t)(most - done) : sizeof piece;
        if ((uint64_t)(r->length - r->taken) < n) n = (size_t)(r->length - r->taken);
        if (rate > 0 && (double)n > rate / 20) n = (size_t)(rate / 20) + 1;
        ssize_t got = net_take(r, piece, n);
        if (got <= 0) { r->ended = true; break; }
        r->taken += got;
        done += (uint64_t)got;
        if (rate > 0) net_wait(r, began + (double)done / rate - net_now());
    }
}

//-- replies and ends --------------------------------------------------------------

UTIL_FN const char *net_header(const net_request *r, const char *name) {
    static __thread char value[8192];
    size_t n = strlen(name);
    for (const char *line = strchr(r->head, '\n'); line != NULL; line = strchr(line, '\n')) {
        line++;
        if (strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
        const char *from = line + n + 1;
        from += strspn(from, " ");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "\r\n"), from);
        return value;
    }
    return "";
}

UTIL_FN void net_reply(net_request *r, int status, const char *headers, const void *body, size_t size) {
    net_drain(r, UINT64_MAX, 0);
    net_text(r, "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\n%s\r\n", status, size, headers != NULL ? headers : "");
    if (strcmp(r->method, "HEAD") != 0) net_send(r, body, size);
}

UTIL_FN void net_close(net_request *r) {
    r->ended = true;
}

UTIL_FN void net_reset(net_request *r) {
    struct linger now = { 1, 0 };
    setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    r->ended = true;
}

UTIL_FN void net_stall(net_request *r) {
    while (net_get(r->server, &r->server->stopping) == 0) {
        char c;
        struct pollfd p = { r->fd, 0, 0 };
        if (poll(&p, 1, 10) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0) break;
        if (recv(r->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0) break;
    }
    r->ended = true;
}

//-- connections -------------------------------------------------------------------

// Reads one head; false: the connection ended.
UTIL_FN bool net_read_head(net_request *r) {
    r->head_size = 0;
    size_t kept = r->early_size - r->early_at;
    memmove(r->early, r->early + r->early_at, kept);
    r->early_at = 0;
    r->early_size = kept;
    for (;;) {
        r->early[r->early_size] = 0;
        char *end = strstr(r->early, "\r\n\r\n");
        if (end != NULL) {
            r->head_size = (size_t)(end - r->early) + 4;
            break;
        }
        if (r->early_size >= sizeof r->early - 1) return false;
        ssize_t got = net_raw_read(r, r->early + r->early_size, sizeof r->early - 1 - r->early_size);
        if (got <= 0) return false;
        r->early_size += (size_t)got;
    }
    memcpy(r->head, r->early, r->head_size);
    r->head[r->head_size] = 0;
    r->early_at = r->head_size;
    const char *space = strchr(r->head, ' ');
    if (space == NULL) return false;
    snprintf(r->method, sizeof r->method, "%.*s", (int)(space - r->head), r->head);
    snprintf(r->target, sizeof r->target, "%.*s", (int)strcspn(space + 1, " \r\n"), space + 1);
    const char *length = net_header(r, "Content-Length");
    r->length = length[0] != 0 ? strtoll(length, NULL, 10) : -1;
    r->taken = 0;
    return true;
}

UTIL_FN void net_serve(net_server *s, net_request *r) {
#ifdef NET_TLS
    if (s->tls != NULL) {
        SSL *tls = SSL_new((SSL_CTX *)s->tls);
        SSL_set_fd(tls, r->fd);
        r->tls = tls;
        if (SSL_accept(tls) != 1) r->ended = true;
    }
#endif
    for (r->nth = 0; !r->ended && net_read_head(r); r->nth++) {
        pthread_mutex_lock(&s->lock);
        r->number = s->requests++;
        pthread_mutex_unlock(&s->lock);
        s->fn(r, s->user);
        if (!r->ended) net_drain(r, UINT64_MAX, 0);
        free(r->body);
        r->body = NULL;
        r->body_size = 0;
    }
#ifdef NET_TLS
    if (r->tls != NULL) {
        if (SSL_get_error((SSL *)r->tls, 0) != SSL_ERROR_SSL) (void)SSL_shutdown((SSL *)r->tls);
        SSL_free((SSL *)r->tls);
    }
#endif
}

UTIL_FN void *net_worker_main(void *arg) {
    net_worker *w = (net_worker *)arg;
    net_server *s = w->server;
    net_request *r = (net_request *)calloc(1, sizeof *r);
    if (r == NULL) abort();
    sigset_t all;                       // SIGPIPE above all: what it does to the client is the client's affair
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    r->server = s;
    r->fd = w->fd;
    r->connection = w->index;
    net_serve(s, r);
    pthread_mutex_lock(&s->lock);
    s->fds[w->index] = -1;
    close(w->fd);
    pthread_mutex_unlock(&s->lock);
    free(r);
    free(w);
    return NULL;
}

UTIL_FN void *net_accept_main(void *arg) {
    net_server *s = (net_server *)arg;
    for (;;) {
        int fd = accept(s->listener, NULL, NULL), one = 1;
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) return NULL;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        net_worker *w = (net_worker *)calloc(1, sizeof *w);
        if (w == NULL) abort();
        pthread_mutex_lock(&s->lock);
        if (s->stopping != 0 || s->connections == NET_CONNECTIONS_MAX) {
            pthread_mutex_unlock(&s->lock);
            close(fd);
            free(w);
            return NULL;
        }
        w->server = s;
        w->fd = fd;
        w->index = s->connections;
        s->fds[w->index] = fd;
        if (pthread_create(&s->workers[w->index], NULL, net_worker_main, w) != 0) abort();
        s->connections++;
        pthread_mutex_unlock(&s->lock);
    }
}

UTIL_FN void net_start_any(net_server *s, net_handler fn, void *user, void *tls) {
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    memset(s, 0, sizeof *s);
    s->fn = fn;
    s->user = user;
    s->tls = tls;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 16384;
    if (net_small_buffers) setsockopt(s->listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&at, size) != 0 || listen(s->listener, 64) != 0 ||
        getsockname(s->listener, (struct sockaddr *)&at, &size) != 0) util_die("cannot listen on", "127.0.0.1");
    s->port = ntohs(at.sin_port);
    snprintf(s->url, sizeof s->url, "%s://127.0.0.1:%d", tls != NULL ? "https" : "http", s->port);
    pthread_mutex_init(&s->lock, NULL);
    if (pthread_create(&s->thread, NULL, net_accept_main, s) != 0) util_die("cannot start", "a thread");
}

UTIL_FN void net_start(net_server *s, net_handler fn, void *user) {
    net_start_any(s, fn, user, NULL);
}

// Ends all connections and waits for their threads.
UTIL_FN void net_stop(net_server *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    int count = s->connections;
    for (int i = 0; i < count; i++) {
        if (s->fds[i] >= 0) shutdown(s->fds[i], SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->lock);
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < count; i++) pthread_join(s->workers[i], NULL);
    close(s->listener);
    pthread_mutex_destroy(&s->lock);
#ifdef NET_TLS
    if (s->tls != NULL) SSL_CTX_free((SSL_CTX *)s->tls);
#endif
}

//-- tls ---------------------------------------------------------------------------

#ifdef NET_TLS
// Makes a key and a certificate for `name` ("IP:127.0.0.1,DNS:localhost") and writes the certificate to `ca_path`.
UTIL_FN void net_start_tls(net_server *s, net_handler fn, void *user, const char *name, const char *ca_path) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509V3_CTX v3;
    FILE *f = fopen(ca_path, "w");
    if (key == NULL || cert == NULL || f == NULL) util_die("cannot make", ca_path);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -86400);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400L * 30);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)"ckpt test", -1, -1, 0);
    X509_set_issuer_name(cert, subject);
    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, &v3, NID_subject_alt_name, name);
    X509_EXTENSION *ca = X509V3_EXT_conf_nid(NULL, &v3, NID_basic_constraints, "critical,CA:TRUE");
    if (names == NULL || ca == NULL || X509_add_ext(cert, names, -1) != 1 || X509_add_ext(cert, ca, -1) != 1 ||
        X509_sign(cert, key, EVP_sha256()) == 0 || PEM_write_X509(f, cert) != 1) util_die("cannot sign", ca_path);
    fclose(f);
    X509_EXTENSION_free(names);
    X509_EXTENSION_free(ca);
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (tls == NULL || SSL_CTX_use_certificate(tls, cert) != 1 || SSL_CTX_use_PrivateKey(tls, key) != 1) util_die("cannot use", ca_path);
    X509_free(cert);
    EVP_PKEY_free(key);
    net_start_any(s, fn, user, tls);
}
#endif

#endif // NET_UTIL_H
