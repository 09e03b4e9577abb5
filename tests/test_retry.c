// run.sh: tsan
// Proves how one request is repeated: Composer's waits, Retry-After, expired credentials, cancelling; that a storm of refusals makes
// few requests; the meter; the event file.
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static ckpt__retry quick(void) {
    ckpt__retry r;
    memset(&r, 0, sizeof r);
    r.initial_backoff = 0.01;
    return r;
}

//-- attempts ------------------------------------------------------------------------

// retry_sleeps.tsv: the waits before jitter, and the most that jitter adds.
static void test_sleeps(void **state) {
    (void)state;
    util_table t = cases_tsv("retry_sleeps.tsv");
    for (int row = 0; row < t.rows; row++) {
        double backoff = strtod(cases_text(&t, row, "initial_backoff"), NULL);
        double jitter = strtod(cases_text(&t, row, "max_jitter (uniform, added to each)"), NULL);
        const char *p = strchr(cases_text(&t, row, "sleeps_before_jitter_json"), '[');
        int attempts = (int)cases_int(&t, row, "num_attempts");
        for (int i = 0; i < attempts - 1; i++) {
            char *end;
            double want = strtod(p + 1, &end);
            p = strchr(end, i < attempts - 2 ? ',' : ']');
            assert_non_null(p);
            assert_true(fabs(ckpt__retry_backoff(backoff, jitter, i, 0.0) - want) < 1e-9);
            assert_true(fabs(ckpt__retry_backoff(backoff, jitter, i, 1.0) - want - jitter) < 1e-9);
            ckpt__retry r;
            memset(&r, 0, sizeof r);
            r.initial_backoff = backoff;
            for (int k = 0; k < 200; k++) {
                double d = ckpt__retry_delay(&r, i, 0.0);
                assert_true(d >= want - 1e-9 && d <= want + jitter + 1e-9);
            }
        }
    }
    ckpt__retry r;                                      // the defaults are Composer's
    memset(&r, 0, sizeof r);
    for (int k = 0; k < 200; k++) {
        double d = ckpt__retry_delay(&r, 1, 0.0);
        assert_true(d >= 2.0 && d <= 2.5);
    }
    assert_true(ckpt__retry_delay(&r, 0, 7.5) >= 7.5);
    assert_true(ckpt__retry_delay(&r, 1000000, 0.0) <= 64.5);
}

typedef struct outcome { ckpt_err e; bool transient, throttled, expired; double retry_after; } outcome;

// Runs a loop whose tries end as the list says; returns how many were made.
static int play(const ckpt__retry *r, const outcome *list, ckpt_err *e) {
    ckpt__retry_loop l;
    int n = 0;
    *e = CKPT_OK;
    ckpt__retry_begin(&l, r, "put", "a.pt");
    while (ckpt__retry_next(&l, e)) {
        const outcome *o = &list[n++];
        assert_false(l.t.transient || l.t.throttled || l.t.expired || l.t.retry_after > 0.0);
        l.t.transient = o->transient;
        l.t.throttled = o->throttled;
        l.t.expired = o->expired;
        l.t.retry_after = o->retry_after;
        *e = o->e != CKPT_OK ? ckpt__error_set(o->e, "try %d failed", n) : CKPT_OK;
    }
    return n;
}

static void test_attempts(void **state) {
    (void)state;
    static const outcome net = { CKPT_NET, true, false, false, 0 }, well = { CKPT_OK, false, false, false, 0 };
    static const outcome denied = { CKPT_AUTH, false, false, false, 0 }, old = { CKPT_AUTH, false, false, true, 0 };
    ckpt__retry r = quick();
    ckpt__retry_counters c = { 0, 0, 0 };
    ckpt_err e;
    r.counters = &c;
    const outcome once[] = { well };
    assert_int_equal(play(&r, once, &e), 1);
    must(e);
    const outcome third[] = { net, net, well };
    double began = ckpt__os_now();
    assert_int_equal(play(&r, third, &e), 3);
    must(e);
    double took = ckpt__os_now() - began;
    assert_true(took >= 0.03 && took < 5.0);
    assert_int_equal(c.requests, 4);
    assert_int_equal(c.retries, 2);
    assert_true(c.stalled_us >= 30000);
    const outcome never[] = { net, net, net, well };
    assert_int_equal(play(&r, never, &e), 3);
    assert_int_equal(e, CKPT_NET);
    assert_string_equal(ckpt_last_error(), "try 3 failed (after 3 tries)");
    const outcome refused[] = { net, denied, well };
    assert_int_equal(play(&r, refused, &e), 2);
    assert_int_equal(e, CKPT_AUTH);
    assert_string_equal(ckpt_last_error(), "try 2 failed (after 2 tries)");
    assert_int_equal(play(&r, &refused[1], &e), 1);
    assert_string_equal(ckpt_last_error(), "try 1 failed");
    const outcome renewed[] = { old, net, net, well };      // the new credentials cost no try
    assert_int_equal(play(&r, renewed, &e), 4);
    must(e);
    const outcome still[] = { old, old, well };
    assert_int_equal(play(&r, still, &e), 2);
    assert_int_equal(e, CKPT_AUTH);
    r.num_attempts = 1;
    assert_int_equal(play(&r, third, &e), 1);
    assert_int_equal(e, CKPT_NET);
    assert_int_equal(play(NULL, once, &e), 1);
    must(e);
}

static void test_retry_after(void **state) {
    (void)state;
    ckpt__retry r = quick();
    ckpt_err e;
    const outcome later[] = { { CKPT_NET, true, false, false, 0.15 }, { CKPT_OK, false, false, false, 0 } };
    double began = ckpt__os_now();
    assert_int_equal(play(&r, later, &e), 2);
    double took = ckpt__os_now() - began;
    assert_true(took >= 0.15 && took < 5.0);
    const outcome odd[] = { { CKPT_NET, true, true, false, (double)NAN }, { CKPT_NET, true, true, false, -5.0 }, { CKPT_OK, false, false, false, 0 } };
    assert_int_equal(play(&r, odd, &e), 3);
    must(e);
}

static void *set_soon(void *arg) {
    ckpt__os_sleep(0.1);
    ckpt__os_flag_set((ckpt__os_flag *)arg, 1);
    return NULL;
}

// A wait ends when a flag is set, be it the back-off or the gate.
static void test_cancel(void **state) {
    (void)state;
    const outcome slow[] = { { CKPT_NET, true, true, false, 30.0 }, { CKPT_OK, false, false, false, 0 } };
    for (int which = 0; which < 4; which++) {
        ckpt__os_flag flag = 0;
        ckpt__gate gate;
        pthread_t t;
        ckpt__retry r = quick();
        ckpt_err e;
        must(ckpt__gate_init(&gate));
        if (which % 2 == 0) r.cancel = &flag;
        else r.stop = &flag;
        if (which >= 2) {
            r.gate = &gate;
            gate.open_at = ckpt__os_now() + 30.0;
        }
        pthread_create(&t, NULL, set_soon, &flag);
        double began = ckpt__os_now();
        assert_int_equal(play(&r, slow, &e), which >= 2 ? 0 : 1);
        assert_int_equal(e, CKPT_CANCELLED);
        expect_sentence("cancelled");
        double took = ckpt__os_now() - began;
        assert_true(took >= 0.09 && took < 5.0);
        pthread_join(t, NULL);
        assert_int_equal(play(&r, slow, &e), 0);            // set before: no request at all
        assert_int_equal(e, CKPT_CANCELLED);
        ckpt__gate_free(&gate);
    }
}

//-- the gate -------------------------------------------------------------------------

enum { WORKERS = 16 };

typedef struct storm {
    ckpt__retry     retry;
    pthread_mutex_t lock;
    double          until;              // the server refuses before
    int             calls, refused, busy, busiest, failed, each;
} storm;

// A server that takes a moment for each request and refuses all until a time.
static ckpt_err storm_request(storm *s, ckpt__transfer *t) {
    pthread_mutex_lock(&s->lock);
    bool refuse = ckpt__os_now() < s->until;
    s->calls++;
    s->refused += refuse;
    if (++s->busy > s->busiest) s->busiest = s->busy;
    pthread_mutex_unlock(&s->lock);
    ckpt__os_sleep(0.005);
    pthread_mutex_lock(&s->lock);
    s->busy--;
    pthread_mutex_unlock(&s->lock);
    if (!refuse) return CKPT_OK;
    t->throttled = t->transient = true;
    return ckpt__error_set(CKPT_NET, "429 Too Many Requests");
}

static void *storm_worker(void *arg) {
    storm *s = (storm *)arg;
    for (int i = 0; i < s->each; i++) {
        ckpt__retry_loop l;
        ckpt_err e = CKPT_OK;
        ckpt__retry_begin(&l, &s->retry, "part", "big.pt");
        while (ckpt__retry_next(&l, &e)) e = storm_request(s, &l.t);
        pthread_mutex_lock(&s->lock);
        s->failed += e != CKPT_OK;
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void storm_run(storm *s) {
    pthread_t t[WORKERS];
    for (int i = 0; i < WORKERS; i++) pthread_create(&t[i], NULL, storm_worker, s);
    for (int i = 0; i < WORKERS; i++) pthread_join(t[i], NULL);
}

// 16 workers in a storm of 1.2 s, back-off from 50 ms: the first volley, then one request per wait. Afterwards all are busy again.
static void test_storm(void **state) {
    (void)state;
    storm s;
    ckpt__gate gate;
    memset(&s, 0, sizeof s);
    pthread_mutex_init(&s.lock, NULL);
    must(ckpt__gate_init(&gate));
    s.retry.gate = &gate;
    s.retry.initial_backoff = 0.05;
    s.retry.num_attempts = 10;
    s.each = 1;
    s.until = ckpt__os_now() + 1.2;
    storm_run(&s);
    assert_int_equal(s.failed, 0);
    if (s.refused > WORKERS + 8) fail_msg("%d requests were refused", s.refused);
    assert_int_equal(s.calls, s.refused + WORKERS);
    s.each = 20;
    s.busiest = 0;
    s.calls = 0;
    s.refused = 0;
    storm_run(&s);
    assert_int_equal(s.refused, 0);
    assert_int_equal(s.calls, WORKERS * 20);
    assert_true(s.busiest > WORKERS / 2);
    ckpt__gate_free(&gate);
    pthread_mutex_destroy(&s.lock);
}

// The same without a gate, to see that the gate is what keeps the number down.
static void test_storm_without(void **state) {
    (void)state;
    storm s;
    memset(&s, 0, sizeof s);
    pthread_mutex_init(&s.lock, NULL);
    s.retry.initial_backoff = 0.05;
    s.retry.num_attempts = 10;
    s.each = 1;
    s.until = ckpt__os_now() + 1.2;
    storm_run(&s);
    assert_int_equal(s.failed, 0);
    assert_true(s.refused > WORKERS + 16);
    pthread_mutex_destroy(&s.lock);
}

// Step by step: who closes it, and how it opens.
static void test_gate(void **state) {
    (void)state;
    ckpt__gate g;
    ckpt__os_flag set = 1;
    unsigned a, b, c, d;
    must(ckpt__gate_init(&g));
    assert_true(ckpt__gate_enter(&g, NULL, NULL, &a));
    assert_true(ckpt__gate_enter(&g, NULL, NULL, &b));
    ckpt__gate_leave(&g, a, false, true, 0.02, 0.0);
    double closed = g.open_at;
    ckpt__gate_leave(&g, b, false, true, 0.02, 0.0);        // was under way: no second closing
    assert_int_equal(g.refused, 1);
    assert_true(g.open_at - closed < 0.02);
    assert_false(ckpt__gate_enter(&g, &set, NULL, &c));
    assert_true(ckpt__gate_enter(&g, NULL, NULL, &c));
    assert_true(ckpt__os_now() >= closed);
    assert_false(ckpt__gate_enter(&g, NULL, &set, &d));     // one alone
    ckpt__gate_leave(&g, c, true, false, 0.02, 0.0);
    assert_true(ckpt__gate_enter(&g, &set, NULL, &c));      // then two
    assert_true(ckpt__gate_enter(&g, &set, NULL, &d));
    assert_false(ckpt__gate_enter(&g, &set, NULL, &a));
    ckpt__gate_leave(&g, c, false, false, 0.02, 0.0);       // another failure changes nothing
    assert_true(ckpt__gate_enter(&g, &set, NULL, &c));
    assert_false(ckpt__gate_enter(&g, &set, NULL, &a));
    ckpt__gate_leave(&g, c, false, true, 0.02, 0.3);        // at least what the server says
    assert_true(g.open_at >= ckpt__os_now() + 0.25);
    ckpt__gate_leave(&g, d, true, false, 0.02, 0.0);        // of the round before
    assert_int_equal(g.room, 1);
    assert_int_equal(g.inside, 0);
    g.open_at = ckpt__os_now() - 0.01;
    assert_true(ckpt__gate_enter(&g, &set, NULL, &c));
    assert_false(ckpt__gate_enter(&g, &set, NULL, &d));
    g.open_at -= 4.0;                                       // a slow one, not refused for so long, keeps the others no longer
    assert_true(ckpt__gate_enter(&g, &set, NULL, &d));
    assert_false(ckpt__gate_enter(&g, &set, NULL, &a));
    g.open_at -= 60.0;
    for (int i = 0; i < 100; i++) assert_true(ckpt__gate_enter(&g, &set, NULL, &a));
    ckpt__gate_free(&g);
}

//-- the meter ------------------------------------------------------------------------

static void test_meter(void **state) {
    (void)state;
    ckpt__meter m;
    memset(&m, 0, sizeof m);
    m.total = 100;
    m.lane[3] = 30;
    m.lane[4] = 10;
    assert_int_equal(ckpt__meter_read(&m), 40);
    ckpt__meter_land(&m, 3, 0);                             // given up: it is sent again
    assert_int_equal(ckpt__meter_read(&m), 40);
    m.lane[3] = 20;
    assert_int_equal(ckpt__meter_read(&m), 40);
    ckpt__meter_land(&m, 3, 50);
    assert_int_equal(ckpt__meter_read(&m), 60);
    m.lane[4] = 70;                                         // more than there is, by a request that went out twice
    assert_int_equal(ckpt__meter_read(&m), 100);
    ckpt__meter_land(&m, 4, 50);
    assert_int_equal(ckpt__meter_read(&m), 100);
}

//-- the event file -------------------------------------------------------------------

static void *span_worker(void *arg) {
    for (int i = 0; i < 50; i++) {
        double now = ckpt__os_now();
        ckpt__events_span((ckpt__events *)arg, "part", "a \"quoted\"\n name", now - 0.25, now, 1234, i % 2 != 0 ? CKPT_NET : CKPT_OK);
    }
    return NULL;
}

// Two processes' worth of writers with several threads each: whole lines, each one JSON, and the file as a whole one array.
static void test_events(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "trace.json");
    ckpt__events ev[2];
    pthread_t t[8];
    size_t size;
    must(ckpt__events_open(&ev[0], path, NULL));
    must(ckpt__events_open(&ev[1], path, NULL));
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, span_worker, &ev[i % 2]);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    ckpt__events_close(&ev[0]);
    ckpt__events_close(&ev[0]);
    ckpt__events_close(&ev[1]);
    ckpt__events_span(&ev[0], "part", "closed", 0, 1, 0, CKPT_OK);
    ckpt__events_span(NULL, "part", "none", 0, 1, 0, CKPT_OK);
    char *text = util_read(path, &size);
    assert_memory_equal(text, "[\n", 2);
    assert_memory_equal(text + size - 3, "},\n", 3);
    ckpt_allocator a = { NULL, NULL };
    int lines = 0;
    for (char *p = text + 2; *p != 0; lines++) {
        char *end = strchr(p, '\n');
        ckpt__json_doc d;
        must(ckpt__json_parse(&d, &a, p, (size_t)(end - 1 - p)));
        const ckpt__json *root = ckpt__json_root(&d), *args = ckpt__json_get(&d, root, "args");
        assert_string_equal(ckpt__json_get(&d, root, "ph")->text, "X");
        assert_string_equal(ckpt__json_get(&d, root, "name")->text, "part");
        assert_string_equal(ckpt__json_get(&d, args, "object")->text, "a \"quoted\"\n name");
        assert_int_equal(ckpt__json_get(&d, args, "bytes")->i, 1234);
        int64_t dur = ckpt__json_get(&d, root, "dur")->i, ts = ckpt__json_get(&d, root, "ts")->i;
        assert_true(dur > 249000 && dur < 251000);
        assert_true(fabs((double)ts * 1e-6 - ckpt__os_time()) < 60.0);
        assert_true(ckpt__json_get(&d, root, "tid")->i >= 1 && ckpt__json_get(&d, root, "tid")->i <= 8);
        ckpt__json_free(&d);
        p = end + 1;
    }
    assert_int_equal(lines, 400);
    text[size - 2] = ']';                                   // what a viewer does for itself
    ckpt__json_doc d;
    must(ckpt__json_parse(&d, &a, text, size));
    ckpt__json_free(&d);
}

static void whole_lines(const char *path, int least) {
    ckpt_allocator a = { NULL, NULL };
    size_t size;
    char *text = util_read(path, &size);
    assert_memory_equal(text, "[\n", 2);
    int lines = 0;
    for (char *p = text + 2; *p != 0; lines++) {
        char *end = strchr(p, '\n');
        ckpt__json_doc d;
        assert_non_null(end);
        assert_true(end - p > 2 && end[-1] == ',');
        must(ckpt__json_parse(&d, &a, p, (size_t)(end - 1 - p)));
        ckpt__json_free(&d);
        p = end + 1;
    }
    assert_true(lines >= least);
}

static void *open_and_write(void *arg) {
    ckpt__events ev;
    must(ckpt__events_open(&ev, (const char *)arg, NULL));
    ckpt__events_span(&ev, "put", "x", 0, 1, 2, CKPT_OK);
    ckpt__events_close(&ev);
    return NULL;
}

// Ranks that open one new file at the same moment: it has one first line.
static void test_events_opened_at_once(void **state) {
    (void)state;
    const char *dir = util_temp_dir();
    for (int round = 0; round < 100; round++) {
        char path[4096];
        pthread_t t[4];
        snprintf(path, sizeof path, "%s/trace%d", dir, round);
        for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, open_and_write, path);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
        whole_lines(path, 4);
    }
}

// A line that a full disk or a power cut left unfinished goes when the file is opened again, and only that.
static void test_events_torn(void **state) {
    (void)state;
    static const char *const torn[] = { "[\n{\"ph\":\"X\"},\n{\"ph\":\"X\",\"p", "[\n{\"ph\":\"X\"},\n", "[\n", "[", "" };
    const char *path = util_join(util_temp_dir(), "trace");
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++) {
        util_write_text(path, torn[i]);
        (void)open_and_write((void *)(uintptr_t)path);
        whole_lines(path, i < 2 ? 2 : 1);
    }
}

// Adds an event; of how many the file is an array then, if it is closed in a way that every reader of JSON takes.
static int open_and_count(const char *path) {
    ckpt_allocator a = { NULL, NULL };
    ckpt__json_doc d;
    size_t size;
    int n = 0;
    (void)open_and_write((void *)(uintptr_t)path);
    char *text = util_read(path, &size);
    assert_memory_equal(text + size - 2, ",\n", 2);
    text[size - 2] = ']';
    must(ckpt__json_parse(&d, &a, text, size));
    for (const ckpt__json *e = ckpt__json_child(&d, ckpt__json_root(&d)); e != NULL; e = ckpt__json_next(&d, e)) n++;
    ckpt__json_free(&d);
    return n;
}

// A trace that somebody has closed, to be read by what is strict, goes on being one.
static void test_events_closed(void **state) {
    (void)state;
    static const char *const closed[] = { "[\n{\"ph\":\"X\"},\n{\"ph\":\"X\"}\n]\n", "[\n{\"ph\":\"X\"},\n{\"ph\":\"X\"}]", "[\n{\"ph\":\"X\"}]\n",
        "[\n{\"ph\":\"X\"},\n]", "[\n{\"ph\":\"X\"} ] \r\n\n", "[\n]\n", "[\n{\"ph\":\"X\",\"name\":\"a]\"},\n]\n",
        "[{\"ph\":\"X\"},{\"ph\":\"X\"}]", "[ {\"args\": {}, \"ph\": \"X\"} ]\n", "[]", "[ ]\n" };      // in one line, as jq -c has it
    static const char *const torn[] = { "[\n{\"ph\":\"X\"},\n{\"ph\":\"X\",\"name\":\"x}]", "[\n{\"ph\":\"X\"},\n{\"name\":[1,]" };
    static const int lines[] = { 3, 3, 2, 2, 2, 1, 2, 3, 2, 1, 1 };
    const char *path = util_join(util_temp_dir(), "trace");
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++) {
        util_write_text(path, closed[i]);
        assert_int_equal(open_and_count(path), lines[i]);
        assert_int_equal(open_and_count(path), lines[i] + 1);
    }
    char *big = (char *)malloc(200001);         // one line that is long
    size_t n = 0;
    for (int i = 0; i < 20000; i++) n += (size_t)snprintf(big + n, 12, "%c{\"ph\":1}", i == 0 ? '[' : ',');
    (void)snprintf(big + n, 2, "]");
    util_write_text(path, big);
    free(big);
    assert_int_equal(open_and_count(path), 20001);
    assert_int_equal(open_and_count(path), 20002);
    util_write_text(path, "[{\"ph\":\"X\"},{\"ph\":");      // nobody knows what that is: nothing of it goes
    (void)open_and_write((void *)(uintptr_t)path);
    assert_memory_equal(util_read(path, NULL), "[{\"ph\":\"X\"},{\"ph\":", 18);
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++) {         // a line that is torn, behind what looks like the end
        util_write_text(path, torn[i]);
        (void)open_and_write((void *)(uintptr_t)path);
        whole_lines(path, 2);
    }
}

// A pipe is refused while nobody reads it, and never waited for; a reader that goes away ends the trace and nothing else.
static void test_events_pipe(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "pipe");
    char text[4096];
    ckpt__events ev;
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(120);                                             // else it hung
    assert_int_equal(ckpt__events_open(&ev, path, NULL), CKPT_ARG);
    expect_sentence("a pipe that nobody reads");
    ckpt__events_close(&ev);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    must(ckpt__events_open(&ev, path, NULL));
    ckpt__events_span(&ev, "put", "x", 0, 1, 2, CKPT_OK);
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 4);
    text[n] = 0;
    assert_memory_equal(text, "[\n", 2);
    assert_non_null(strstr(text, "\"object\":\"x\""));
    for (int i = 0; i < 2000; i++) ckpt__events_span(&ev, "put", "x", 0, 1, 2, CKPT_OK);    // more than a pipe holds
    assert_int_equal(ev.fd, -1);
    ckpt__events_close(&ev);
    while (read(fd, text, sizeof text) > 0) {}
    must(ckpt__events_open(&ev, path, NULL));
    close(fd);
    ckpt__events_span(&ev, "put", "x", 0, 1, 2, CKPT_OK);
    assert_int_equal(ev.fd, -1);
    ckpt__events_close(&ev);
    alarm(0);
}

// A file of another kind stays as it is: it was taken for a trace with a torn line at its end.
static void test_events_of_somebody(void **state) {
    (void)state;
    static const char *const others[] = { "{\"lr\": 3e-4}", "step,loss\n1,2.5\n2,2.4", "[1, 2, 3]", "#!/bin/sh\n",
        "[{\"lr\": 1}, {\"lr\": 2}]", "[[]]" };
    const char *path = util_join(util_temp_dir(), "notes");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ckpt__events ev;
        util_write_text(path, others[i]);
        assert_int_equal(ckpt__events_open(&ev, path, NULL), CKPT_ARG);
        expect_sentence("name another file");
        ckpt__events_close(&ev);
        assert_string_equal(util_read(path, NULL), others[i]);
    }
}

static void test_events_fail(void **state) {
    (void)state;
    ckpt__events ev;
    const char *dir = util_temp_dir();
    assert_int_equal(ckpt__events_open(&ev, util_join(dir, "none/trace.json"), NULL), CKPT_NOT_FOUND);
    expect_sentence("event file");
    ckpt__events_close(&ev);
    must(ckpt__events_open(&ev, "/dev/full", NULL) == CKPT_NO_SPACE ? CKPT_OK : CKPT_IO);
    counting c = { 0, 0, 0 };
    ckpt_allocator a = { counting_fn, &c };
    for (c.fail_at = 1;; c.fail_at++) {
        c.calls = 0;
        ckpt_err e = ckpt__events_open(&ev, util_join(dir, "t"), &a);
        if (e == CKPT_OK) {
            (void)ckpt__error_set(CKPT_IO, "as before");
            ckpt__events_span(&ev, "put", "x", 0, 1, 2, CKPT_OK);
            assert_string_equal(ckpt_last_error(), "as before");
            ckpt__events_close(&ev);
        } else {
            assert_int_equal(e, CKPT_NOMEM);
        }
        assert_int_equal(c.live, 0);
        if (c.calls < c.fail_at) break;
    }
}

// The loop writes a span for each request by itself.
static void test_events_of_a_loop(void **state) {
    (void)state;
    const outcome third[] = { { CKPT_NET, true, false, false, 0 }, { CKPT_OK, false, false, false, 0 } };
    const char *path = util_join(util_temp_dir(), "trace.json");
    ckpt__events ev;
    ckpt__retry r = quick();
    ckpt_err e;
    must(ckpt__events_open(&ev, path, NULL));
    r.events = &ev;
    assert_int_equal(play(&r, third, &e), 2);
    ckpt__events_close(&ev);
    char *text = util_read(path, NULL);
    assert_non_null(strstr(text, "\"result\":\"CKPT_NET\""));
    assert_non_null(strstr(text, "\"result\":\"CKPT_OK\""));
    assert_null(strstr(text, "failed"));                    // sentences stay out
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_attempts),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_storm_without),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_meter),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_events_opened_at_once),
        cmocka_unit_test(test_events_torn),
        cmocka_unit_test(test_events_closed),
        cmocka_unit_test(test_events_pipe),
        cmocka_unit_test(test_events_of_somebody),
        cmocka_unit_test(test_events_fail),
        cmocka_unit_test(test_events_of_a_loop)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
