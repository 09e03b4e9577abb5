/* delay.c: a long way on one machine: two network namespaces, joined by a link whose packets arrive later, too slowly or not at all.

     cc -O2 -pthread delay.c -o delay
     ./delay [options]          prints two lines, then carries packets until it is killed (root only, Linux, /dev/net/tun):
                                  client /proc/PID/fd/N 10.99.0.1         a namespace, as setns and nsenter --net= take it,
                                  server /proc/PID/fd/N 10.99.0.2         and the address there

     --rtt MS       round trip, half of it each way; 20 is the default
     --rate MBIT    of each direction, 10^6 bits a second; 0, the default: what the machine does
     --loss P       percent of the packets that are lost, each way; 0 is the default
     --seed N       of the loss
     --queue KIB    bytes of a direction's queue, what the delay holds among them; what comes on top is lost; 16384
     --owner PID    the process that the link outlives by a moment at most

   Nothing has a name: the namespaces are this process's open files and the devices its own, so that any number run at once, and all of it
   goes when the process goes. Ended by its owner's end, SIGTERM or SIGINT it first kills what runs in the two namespaces: what was started
   there leaves nothing behind.

   Without loss the devices take segments of up to 64 KiB, as a network card does that cuts them up itself: a packet of 1500 bytes costs
   two system calls, which two cores pay for no more than 100 MB/s of, and then it would be this program that is measured. With loss they are
   of 1500 bytes, so that one is what is lost. There is no tc netem in every kernel; hence this.
*/
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_MAX = 65536 + 64, DEVICE_QUEUE = 8192 };

static struct { double rtt, rate, loss; uint64_t seed, queue; pid_t owner; } opt = { 20, 0, 0, 1, 16384, 0 };

static void die(const char *what) {
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

//-- an end: a namespace with a device ----------------------------------------------------------

typedef struct end { const char *name, *address; int ns, tun; } end;

static void set_up(int s, const char *device, int request, struct ifreq *r, const char *what) {
    memset(r->ifr_name, 0, sizeof r->ifr_name);
    strncpy(r->ifr_name, device, sizeof r->ifr_name - 1);
    if (ioctl(s, (unsigned long)request, r) != 0) die(what);
}

static void set_address(int s, int request, const char *address) {
    struct ifreq r;
    struct sockaddr_in a;
    memset(&r, 0, sizeof r);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    inet_pton(AF_INET, address, &a.sin_addr);
    memcpy(&r.ifr_addr, &a, sizeof a);
    set_up(s, "lab0", request, &r, "an address for the device");
}

// Makes the namespace and stays in it: what opens a device owns one there.
static void end_make(end *e) {
    struct ifreq r;
    int header = sizeof(struct virtio_net_hdr);
    if (unshare(CLONE_NEWNET) != 0) die("no right to make a network namespace");
    e->ns = open("/proc/self/ns/net", O_RDONLY);
    e->tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (e->ns < 0 || e->tun < 0) die("/dev/net/tun");
    memset(&r, 0, sizeof r);
    r.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    set_up(e->tun, "lab0", TUNSETIFF, &r, "no TUN device");
    if (ioctl(e->tun, TUNSETVNETHDRSZ, &header) != 0) die("TUNSETVNETHDRSZ");
    if (opt.loss <= 0 && ioctl(e->tun, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4)) != 0) die("TUNSETOFFLOAD");
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (s < 0) die("socket");
    memset(&r, 0, sizeof r);
    r.ifr_qlen = DEVICE_QUEUE;          // else a moment without the processor would lose packets
    set_up(s, "lab0", SIOCSIFTXQLEN, &r, "the device's queue");
    set_address(s, SIOCSIFADDR, e->address);
    set_address(s, SIOCSIFNETMASK, "255.255.255.252");
    const char *const devices[] = { "lo", "lab0" };
    for (int i = 0; i < 2; i++) {
        memset(&r, 0, sizeof r);
        r.ifr_flags = IFF_UP | IFF_RUNNING;
        set_up(s, devices[i], SIOCSIFFLAGS, &r, "a device does not come up");
    }
    close(s);
}

//-- a direction -----------------------------------------------------------------------------------

// The packets lie one behind the other in a ring, each behind its head, in the order in which they came and leave.
typedef struct packet { double due; size_t size; } packet;
typedef struct direction { int from, to; uint64_t random; double free_at; unsigned char *ring; size_t in, out, wrap; } direction;

static bool lost(direction *d) {
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return (double)(d->random >> 11) / 9007199254740992.0 < opt.loss / 100;
}

// Where the next packet goes: room for the largest there is, in one piece; NULL when the queue is full.
static packet *room(direction *d) {
    const size_t most = sizeof(packet) + PACKET_MAX;
    if (d->in >= d->out && d->in + most > opt.queue) {
        if (d->out <= most) return NULL;
        d->wrap = d->in;
        d->in = 0;
    }
    if (d->in < d->out && d->in + most >= d->out) return NULL;
    return (packet *)(void *)(d->ring + d->in);
}

// Takes one packet. False: there is none.
static bool take(direction *d) {
    static _Thread_local unsigned char spilt[PACKET_MAX];
    packet *p = room(d);
    ssize_t n = read(d->from, p != NULL ? (unsigned char *)(p + 1) : spilt, PACKET_MAX);
    if (n <= 0) return false;
    if (p == NULL || (opt.loss > 0 && lost(d))) return true;
    double t = now();
    if (opt.rate > 0) {
        if (d->free_at < t) d->free_at = t;
        t = d->free_at += (double)n * 8 / (opt.rate * 1e6);
    }
    p->due = t + opt.rtt / 2000;
    p->size = (size_t)n;
    d->in += (sizeof *p + p->size + sizeof *p - 1) / sizeof *p * sizeof *p;
    return true;
}

static packet *first(direction *d) {
    if (d->out == d->wrap && d->in < d->out) {
        d->out = 0;
        d->wrap = SIZE_MAX;
    }
    return d->out == d->in ? NULL : (packet *)(void *)(d->ring + d->out);
}

// Gives what is due. A packet that is not taken is lost, as packets are.
static void give(direction *d) {
    double t = now();
    for (packet *p; (p = first(d)) != NULL && p->due <= t;) {
        if (write(d->to, p + 1, p->size) < 0 && errno == EBADFD) exit(1);
        d->out += (sizeof *p + p->size + sizeof *p - 1) / sizeof *p * sizeof *p;
    }
}

static void *carry(void *arg) {
    direction *d = arg;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        struct pollfd f = { d->from, POLLIN, 0 };
        const packet *p = first(d);
        double wait = p == NULL ? 1 : p->due - now();
        if (wait < 0) wait = 0;
        struct timespec t = { (time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9) };
        ppoll(&f, 1, &t, NULL);
        for (int i = 0; i < 64 && take(d); i++) {}          // not for ever: what is due goes out between
        give(d);
    }
    return NULL;
}

//-- the end of it ------------------------------------------------------------------------------------

// Kills what runs in the two namespaces.
static void clear(const end *e) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    struct stat ns[2], other;
    char path[300];
    if (proc == NULL || fstat(e[0].ns, &ns[0]) != 0 || fstat(e[1].ns, &ns[1]) != 0) return;
    while ((entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (!isdigit((unsigned char)entry->d_name[0]) || pid <= 1 || pid == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
        if (stat(path, &other) != 0) continue;
        for (int i = 0; i < 2; i++) if (other.st_dev == ns[i].st_dev && other.st_ino == ns[i].st_ino) kill(pid, SIGKILL);
    }
    closedir(proc);
}

static void wait_for_end(int owner, const sigset_t *ends) {
    int got = 0;
    if (owner < 0) {
        sigwait(ends, &got);
        return;
    }
    for (;;) {
        struct pollfd p = { owner, POLLIN, 0 };
        struct timespec none = { 0, 0 };
        if (poll(&p, 1, 200) > 0) return;
        if (sigtimedwait(ends, NULL, &none) > 0) return;
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--rtt") == 0) opt.rtt = atof(v);
        else if (strcmp(argv[i], "--rate") == 0) opt.rate = atof(v);
        else if (strcmp(argv[i], "--loss") == 0) opt.loss = atof(v);
        else if (strcmp(argv[i], "--seed") == 0) opt.seed = strtoull(v, NULL, 10);
        else if (strcmp(argv[i], "--queue") == 0) opt.queue = strtoull(v, NULL, 10);
        else if (strcmp(argv[i], "--owner") == 0) opt.owner = (pid_t)atoi(v);
        else {
            fprintf(stderr, "usage: delay [--rtt MS] [--rate MBIT] [--loss PERCENT] [--seed N] [--queue KIB] [--owner PID]\n");
            return 2;
        }
    }
    for (int fd = 3; fd < 256; fd++) close(fd);         // the caller's, which may be locks
    opt.queue = (opt.queue > 1024 ? opt.queue : 1024) * 1024;
    int owner = -1;
    if (opt.owner > 0 && (owner = (int)syscall(SYS_pidfd_open, opt.owner, 0)) < 0) die("the owner");
    end ends[2] = { { "client", "10.99.0.1", -1, -1 }, { "server", "10.99.0.2", -1, -1 } };
    for (int i = 0; i < 2; i++) end_make(&ends[i]);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    direction ways[2];
    memset(ways, 0, sizeof ways);
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        ways[i].from = ends[i].tun;
        ways[i].to = ends[1 - i].tun;
        ways[i].random = (opt.seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i;
        ways[i].wrap = SIZE_MAX;
        if ((ways[i].ring = malloc(opt.queue)) == NULL) die("memory");
        if (pthread_create(&thread, NULL, carry, &ways[i]) != 0) die("a thread");
    }
    for (int i = 0; i < 2; i++) printf("%s /proc/%d/fd/%d %s\n", ends[i].name, (int)getpid(), ends[i].ns, ends[i].address);
    fclose(stdout);                     // a reader has all of it
    wait_for_end(owner, &signals);
    clear(ends);
    return 0;
}
