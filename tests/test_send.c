// run.sh: tsan
// Proves one object up: sizes of parts, parts side by side, what is sent again after which failure, what a later process resumes,
// overwrite, a file that changes, cancelling, storms, no memory, no threads; on a store in memory that fails as told, and on file://.
#define CKPT__SEND_MIB 1024             // parts of 8 to 64 KiB
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "counting.h"
#include "scripted.h"

enum { KIB = 1024, BIG = 200 * KIB + 123, PARTS = 16 };     // of 13 KiB, by 4 workers

//-- one upload ----------------------------------------------------------------------

typedef struct world {
    scripted         *s;
    ckpt__retry       retry;
    ckpt__gate        gate;
    ckpt__meter       meter;
    ckpt__send_record record;
    ckpt__send        send;
    char             *bytes;
    int               remembered;       // calls of the hook
    int               inside;           // of them at once
    size_t            most;             // parts in the record
    bool              forget;
    int               asked;            // calls of ready
    ckpt_err          ready_result;
    int               logged;
    char              log[2048];
} world;

static ckpt_err remember(const ckpt__send_record *r, void *user) {
    world *w = (world *)user;
    if (__atomic_add_fetch(&w->inside, 1, __ATOMIC_SEQ_CST) != 1) fail_msg("two at a time");
    w->remembered++;
    if (r->count > w->most) w->most = r->count;
    __atomic_sub_fetch(&w->inside, 1, __ATOMIC_SEQ_CST);
    return w->forget ? ckpt__error_set(CKPT_NO_SPACE, "the journal's disk is full") : CKPT_OK;
}

static ckpt_err ready(void *user) {
    world *w = (world *)user;
    w->asked++;
    assert_int_equal(w->s->calls[OP_COMPLETE] + w->s->calls[OP_PUT], 0);
    return w->ready_result != CKPT_OK ? ckpt__error_set(w->ready_result, "it never became durable") : CKPT_OK;
}

static void note(ckpt_log_level level, const char *msg, void *user) {
    world *w = (world *)user;
    (void)level;
    pthread_mutex_lock(&w->s->lock);
    w->logged++;
    size_t n = strlen(w->log);
    snprintf(w->log + n, sizeof w->log - n, "%s\n", msg);
    pthread_mutex_unlock(&w->s->lock);
}

static void world_body(world *w, size_t size) {
    w->bytes = scripted_bytes(size);
    memset(&w->send.body, 0, sizeof w->send.body);
    w->send.body.memory = w->bytes;
    w->send.body.fd = -1;
    w->send.body.size = size;
    w->send.has_crc = true;
    w->send.crc = ckpt__digest_crc32(0, w->bytes, size);
}

static world *world_open(size_t size) {
    world *w = (world *)calloc(1, sizeof *w);
    static const ckpt_logger none = { NULL, NULL };
    ckpt_logger *logger = (ckpt_logger *)util_keep(malloc(sizeof *logger), false);
    (void)none;
    w->s = scripted_open(NULL);
    must(ckpt__gate_init(&w->gate));
    logger->fn = note;
    logger->user = w;
    w->retry.initial_backoff = 0.01;
    w->retry.gate = &w->gate;
    w->retry.cancel = &w->s->cancel;
    w->retry.logger = logger;
    ckpt__send_record_init(&w->record, NULL);
    w->send.store = &w->s->store;
    w->send.name = "run/ep1.pt";
    w->send.overwrite = true;
    w->send.mark = "mark-1";
    w->send.retry = &w->retry;
    w->send.record = &w->record;
    w->send.remember = remember;
    w->send.ready = ready;
    w->send.user = w;
    w->send.meter = &w->meter;
    world_body(w, size);
    return w;
}

static void world_close(world *w) {
    ckpt__send_record_free(&w->record);
    ckpt__gate_free(&w->gate);
    scripted_close(w->s);
    free(w);
}

// The object is there, whole, nothing is left over, and the meter is at its end.
static void expect_sent(world *w) {
    if (!scripted_has(w->s, w->send.name, w->bytes, w->send.body.size)) fail_msg("the object is not what was sent");
    assert_int_equal(scripted_uploads(w->s), 0);
    assert_int_equal(ckpt__meter_read(&w->meter), w->send.body.size);
    assert_int_equal(w->meter.done, w->send.body.size);
    assert_string_equal(scripted_find(w->s, w->send.name)->mark, "mark-1");
}

static int parts_of(const world *w) {
    return (int)((w->send.body.size + w->record.part_size - 1) / w->record.part_size);
}

//-- sizes ---------------------------------------------------------------------------

static void test_part_sizes(void **state) {
    (void)state;
    const uint64_t M = CKPT__SEND_MIB, K = M / 1024, G = 1024 * M;
    static const ckpt_store plain;
    ckpt_store s = plain;
    (void)K;
    assert_int_equal(ckpt__send_part_size(&s, 20 * M, 4, 0), 8 * M);            // never small ones
    assert_int_equal(ckpt__send_part_size(&s, 256 * M, 4, 0), 16 * M);          // all workers busy to the end
    assert_int_equal(ckpt__send_part_size(&s, 300 * M + 1, 4, 0), 19 * M);      // whole MiB
    assert_int_equal(ckpt__send_part_size(&s, G, 4, 0), 64 * M);
    assert_int_equal(ckpt__send_part_size(&s, 100 * G, 4, 0), 64 * M);          // never minutes
    assert_int_equal(ckpt__send_part_size(&s, 100 * G, 4, 5 * M + 1), 6 * M);   // as asked
    s.max_parts = 10000;
    assert_int_equal(ckpt__send_part_size(&s, 1000 * G, 4, 0), 103 * M);        // the limit is never met
    assert_true(1000 * G / ckpt__send_part_size(&s, 1000 * G, 4, 1) < 10000);
    s.min_part = 15 * M;
    assert_int_equal(ckpt__send_part_size(&s, 20 * M, 4, 0), 15 * M);
    assert_int_equal(ckpt__send_part_size(&s, 20 * M, 4, M), 15 * M);
    s.max_part = 50 * M;
    assert_int_equal(ckpt__send_part_size(&s, 10 * G, 4, 0), 50 * M);
    s.best_part = 32 * M;
    assert_int_equal(ckpt__send_part_size(&s, G, 4, 0), 32 * M);
    assert_int_equal(ckpt__send_part_size(&s, G, 4, 20 * M), 20 * M);
    s = plain;
    for (uint64_t size = 1; size < UINT64_MAX / 2; size *= 3) {
        uint64_t part = ckpt__send_part_size(&s, size, 16, 0);
        assert_true(part >= 8 * M && part <= 64 * M && part % M == 0);
    }
}

// Sizes at every boundary, several numbers of workers: the object is byte for byte what was sent.
static void test_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = { 0, 1, 1000, 8 * KIB, 16 * KIB - 1, 16 * KIB, 16 * KIB + 1, 24 * KIB, 64 * KIB, 64 * KIB + 1, BIG, 1500 * KIB };
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {
        for (int workers = 1; workers <= 16; workers = workers * 2 + 1) {
            world *w = world_open(sizes[i]);
            w->send.num_concurrent_parts = workers;
            must(ckpt__send_run(&w->send));
            expect_sent(w);
            assert_int_equal(w->asked, 1);
            bool whole = sizes[i] <= (size_t)(workers > 1 ? 16 * KIB : 64 * KIB);
            assert_int_equal(w->s->calls[OP_PUT], whole);
            assert_int_equal(w->s->calls[OP_BEGIN], !whole);
            assert_int_equal(w->s->calls[OP_STAT], 0);
            if (!whole) {
                assert_int_equal(w->s->calls[OP_PART], parts_of(w));
                assert_int_equal(w->remembered, 1 + parts_of(w));
                assert_int_equal(w->record.count, (size_t)parts_of(w));
                assert_true(w->s->busiest <= workers);
            }
            world_close(w);
        }
    }
}

static void test_side_by_side(void **state) {
    (void)state;
    world *w = world_open(BIG);
    w->s->pace = 0.02;
    must(ckpt__send_run(&w->send));
    expect_sent(w);
    assert_int_equal(w->s->busiest, 4);
    world_close(w);
}

static void test_store_limits(void **state) {
    (void)state;
    world *w = world_open(10 * KIB);
    w->send.ready = NULL;
    w->s->store.max_single = 8 * KIB;                       // parts are a must
    must(ckpt__send_run(&w->send));
    assert_int_equal(w->s->calls[OP_PART], 2);
    expect_sent(w);
    w->s->table.begin = NULL;                               // and cannot be had
    assert_int_equal(ckpt__send_run(&w->send), CKPT_ARG);
    expect_sentence("10240 bytes, and the store takes 8192");
    world_close(w);
    w = world_open(BIG);
    w->send.ready = NULL;
    w->s->store.max_parts = 3;
    w->s->store.max_part = 20 * KIB;
    assert_int_equal(ckpt__send_run(&w->send), CKPT_ARG);
    expect_sentence("the store takes 61440");
    assert_int_equal(w->s->calls[OP_BEGIN], 0);
    w->s->store.max_part = 0;
    must(ckpt__send_run(&w->send));
    assert_int_equal(w->s->calls[OP_PART], 3);
    w->s->table.begin = NULL;                               // a store without parts takes it whole
    w->s->store.max_parts = 0;
    must(ckpt__send_run(&w->send));
    assert_int_equal(w->s->calls[OP_PUT], 1);
    world_close(w);
}

// Of an upload that failed for good, or that nobody keeps a record of, what a store without parts has is thrown away, as from a full
// store; with a record of what may go well another time it stays.
static char given_up[100];

static ckpt_err give_up(ckpt_store *store, const ckpt__store_multi *m) {
    (void)store;
    (void)snprintf(given_up, sizeof given_up, "%s %s %s", m->name, m->mark, m->upload_id != NULL ? m->upload_id : "-");
    return CKPT_OK;
}

static ckpt_err no_uploads(ckpt_store *s, const char *prefix, ckpt__store_each_upload *each, void *user, ckpt__transfer *t) {
    (void)s, (void)prefix, (void)each, (void)user, (void)t;
    return CKPT_OK;
}

static ckpt_err put_code;

static ckpt_err put_half(ckpt_store *s, const ckpt__store_put *p) {
    (void)s;
    ckpt__transfer_moved(p->t, 100);
    p->t->transient = put_code == CKPT_NET;
    return put_code == CKPT_OK ? CKPT_OK : ckpt__error_set(put_code, "half of it");
}

static void test_nothing_stays(void **state) {
    (void)state;
    static const ckpt_err codes[] = { CKPT_NO_SPACE, CKPT_NET, CKPT_OK, CKPT_NET, CKPT_NO_SPACE, CKPT_CORRUPT, CKPT_IO };
    for (int i = 0; i < UTIL_COUNT(codes); i++) {           // the first three without a record
        bool stays = i == 2 || i == 3;
        world *w = world_open(5000);
        w->s->table.begin = NULL;
        w->s->table.abort = give_up;
        w->s->table.uploads = no_uploads;
        if (i < 3) w->send.record = NULL;
        given_up[0] = 0;
        w->s->table.put = put_half;
        put_code = codes[i];
        assert_int_equal(ckpt__send_run(&w->send), put_code);
        if (i != 2) expect_sentence("cannot upload run/ep1.pt to scripted://bucket/: half of it");
        assert_string_equal(given_up, stays ? "" : "run/ep1.pt mark-1 -");
        world_close(w);
    }
}

// So is what an earlier try or process has got to it of what is refused before it is sent.
static void test_nothing_stays_unsent(void **state) {
    (void)state;
    for (int reached = 0; reached < 2; reached++) {
        world *w = world_open(5000);
        w->send.ready = NULL;
        must(ckpt__send_run(&w->send));
        int puts = w->s->calls[OP_PUT];
        w->s->table.begin = NULL;
        w->s->table.abort = give_up;
        w->s->table.uploads = no_uploads;
        given_up[0] = 0;
        w->send.reached = reached != 0;
        w->send.overwrite = false;
        w->send.mark = "mark-2";
        w->s->store.creates_only = false;
        assert_int_equal(ckpt__send_run(&w->send), CKPT_EXISTS);
        assert_int_equal(w->s->calls[OP_PUT], puts);
        assert_string_equal(given_up, reached != 0 ? "run/ep1.pt mark-2 -" : "");
        world_close(w);
    }
}

//-- failures that pass ----------------------------------------------------------------

static void test_put_again(void **state) {
    (void)state;
    static const scripted_kind kinds[] = { DO_FAIL, DO_LOSE, DO_THROTTLE, DO_EXPIRE };
    for (int i = 0; i < UTIL_COUNT(kinds); i++) {
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            world *w = world_open(5000);
            w->send.overwrite = overwrite != 0;
            scripted_when(w->s, OP_PUT, 1, kinds[i]);
            must(ckpt__send_run(&w->send));
            expect_sent(w);
            assert_int_equal(w->s->calls[OP_PUT], 2);
            assert_int_equal(w->asked, 1);
            world_close(w);
        }
    }
}

// Each request of a big upload fails once, in turn: only that one is made again.
static void test_each_once(void **state) {
    (void)state;
    static const scripted_op ops[] = { OP_BEGIN, OP_PART, OP_COMPLETE };
    static const scripted_kind kinds[] = { DO_FAIL, DO_LOSE, DO_THROTTLE, DO_EXPIRE };
    for (int i = 0; i < UTIL_COUNT(ops); i++) {
        for (int k = 0; k < UTIL_COUNT(kinds); k++) {
            for (int part = 1; part <= (ops[i] == OP_PART ? 9 : 1); part += 4) {
                world *w = world_open(70 * KIB);
                scripted_rule *r = scripted_when(w->s, ops[i], 0, kinds[k]);
                if (ops[i] == OP_PART) r->part = part;
                must(ckpt__send_run(&w->send));
                assert_int_equal(parts_of(w), 9);
                assert_int_equal(w->s->calls[OP_PART], 9 + (ops[i] == OP_PART));
                assert_int_equal(w->s->calls[OP_BEGIN], 1 + (ops[i] == OP_BEGIN));
                assert_int_equal(w->s->calls[OP_COMPLETE], 1 + (ops[i] == OP_COMPLETE));
                if (ops[i] == OP_PART) assert_int_equal(w->s->sent[part], 2);
                if (ops[i] == OP_BEGIN && kinds[k] == DO_LOSE) {
                    assert_int_equal(scripted_uploads(w->s), 1);        // nobody knows of it: ckpt gc finds it
                    scripted_drop_upload(w->s, w->s->uploads->id);
                }
                expect_sent(w);
                assert_int_equal(w->asked, 1);
                world_close(w);
            }
        }
    }
}

static void test_wrong_size(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_when(w->s, OP_PART, 0, DO_SHORT)->part = 3;
    must(ckpt__send_run(&w->send));
    expect_sent(w);
    assert_int_equal(w->s->sent[3], 2);
    scripted_clear(w->s);
    ckpt__send_record_clear(&w->record);
    w->asked = 0;
    scripted_rule *r = scripted_when(w->s, OP_PART, 0, DO_SHORT);
    r->part = 3;
    r->times = -1;
    assert_int_equal(ckpt__send_run(&w->send), CKPT_CORRUPT);
    expect_sentence("cannot upload run/ep1.pt to scripted://bucket/: the store kept ");
    expect_sentence("(after 3 tries)");
    world_close(w);
}

// 16 workers, all refused for a while: few requests, and each part arrives.
static void test_storm(void **state) {
    (void)state;
    world *w = world_open(1500 * KIB);
    w->send.num_concurrent_parts = 16;
    w->retry.initial_backoff = 0.05;
    w->retry.num_attempts = 8;
    scripted_rule *r = scripted_when(w->s, OP_PART, 20, DO_THROTTLE);
    r->times = -1;
    r->until = ckpt__os_now() + 1.2;
    w->s->pace = 0.002;
    must(ckpt__send_run(&w->send));
    expect_sent(w);
    if (w->s->refused > 16 + 8) fail_msg("%d requests were refused", w->s->refused);
    world_close(w);
}

//-- failures that stay ----------------------------------------------------------------

static void expect_failed(world *w, ckpt_err want, const char *sentence) {
    ckpt_err e = ckpt__send_run(&w->send);
    if (e != want) fail_msg("%s instead of %s: %s", ckpt_err_name(e), ckpt_err_name(want), ckpt_last_error());
    expect_sentence("cannot upload run/ep1.pt to scripted://bucket/: ");
    expect_sentence(sentence);
    assert_null(scripted_find(w->s, "run/ep1.pt"));
}

// What trying again cannot cure: given up at once, and nothing stays in the store.
static void test_permanent(void **state) {
    (void)state;
    static const scripted_op ops[] = { OP_BEGIN, OP_PART, OP_COMPLETE };
    for (int i = 0; i < UTIL_COUNT(ops); i++) {
        world *w = world_open(BIG);
        scripted_rule *r = scripted_when(w->s, ops[i], ops[i] == OP_PART ? 5 : 1, DO_FAIL);
        r->err = CKPT_ARG;
        r->transient = false;
        w->s->pace = 0.01;
        expect_failed(w, CKPT_ARG, "scripted failure");
        assert_int_equal(w->s->calls[OP_ABORT], ops[i] != OP_BEGIN);
        assert_int_equal(scripted_uploads(w->s), 0);
        assert_int_equal(w->record.upload_id.len, 0);
        assert_int_equal(w->record.count, 0);
        if (ops[i] == OP_PART) assert_true(w->s->calls[OP_PART] < PARTS);
        world_close(w);
    }
}

// A dead network: the record stays for the next run. Where nobody keeps one, the store is cleaned.
static void test_exhausted(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        world *w = world_open(BIG);
        if (kept == 0) w->send.record = NULL;
        scripted_rule *r = scripted_when(w->s, OP_PART, 0, DO_FAIL);
        r->part = 4;
        r->times = -1;
        expect_failed(w, CKPT_NET, "scripted failure (after 3 tries)");
        assert_int_equal(w->s->sent[4], 3);
        assert_int_equal(w->s->calls[OP_ABORT], !kept);
        assert_int_equal(scripted_uploads(w->s), kept);
        assert_int_equal(w->record.upload_id.len > 0, kept);
        assert_int_equal(w->remembered > 0, kept);
        if (kept != 0) {
            int had = (int)w->record.count;
            scripted_clear(w->s);
            must(ckpt__send_run(&w->send));
            assert_int_equal(w->s->calls[OP_PART], parts_of(w) - had);
            assert_int_equal(w->s->calls[OP_BEGIN], 0);
            expect_sent(w);
        }
        world_close(w);
    }
}

// The replies to the end are lost: the object may be there. After a part that failed it is not.
static void test_end_is_unsure(void **state) {
    (void)state;
    for (int sure = 0; sure < 2; sure++) {
        world *w = world_open(BIG);
        scripted_rule *r = scripted_when(w->s, sure ? OP_PART : OP_COMPLETE, 0, sure ? DO_FAIL : DO_LOSE);
        r->times = -1;
        assert_int_equal(ckpt__send_run(&w->send), CKPT_NET);
        assert_int_equal(scripted_find(w->s, "run/ep1.pt") != NULL, !sure);
        assert_int_equal(w->send.unsure, !sure);
        world_close(w);
    }
}

static void test_ready_fails(void **state) {
    (void)state;
    world *w = world_open(BIG);
    w->ready_result = CKPT_NO_SPACE;
    expect_failed(w, CKPT_NO_SPACE, "it never became durable");
    assert_int_equal(w->s->calls[OP_COMPLETE], 0);
    assert_int_equal(scripted_uploads(w->s), 0);
    world_close(w);
    w = world_open(100);
    w->ready_result = CKPT_NO_SPACE;
    expect_failed(w, CKPT_NO_SPACE, "it never became durable");
    assert_int_equal(w->s->calls[OP_PUT], 0);
    world_close(w);
}

static void test_abort_refused(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_rule *r = scripted_when(w->s, OP_COMPLETE, 1, DO_FAIL);
    r->err = CKPT_CORRUPT;
    r->transient = false;
    r = scripted_when(w->s, OP_ABORT, 1, DO_FAIL);
    r->err = CKPT_AUTH;
    r->transient = false;
    expect_failed(w, CKPT_CORRUPT, "scripted failure");
    assert_non_null(strstr(w->log, "ckpt gc"));
    assert_true(w->record.upload_id.len > 0);
    scripted_clear(w->s);
    must(ckpt__send_abort(&w->s->store, w->send.name, &w->record, &w->retry));
    assert_int_equal(scripted_uploads(w->s), 0);
    must(ckpt__send_abort(&w->s->store, w->send.name, &w->record, &w->retry));
    assert_int_equal(w->s->calls[OP_ABORT], 1);
    world_close(w);
}

// What a store says at the end is wrong for good begins anew, once.
static void test_damaged(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_rule *r = scripted_when(w->s, OP_COMPLETE, 1, DO_FAIL);
    r->err = CKPT_CORRUPT;
    r->transient = false;
    w->send.ready = NULL;
    must(ckpt__send_run(&w->send));
    expect_sent(w);
    assert_int_equal(w->s->calls[OP_BEGIN], 2);
    assert_int_equal(w->s->calls[OP_COMPLETE], 2);
    assert_int_equal(scripted_uploads(w->s), 0);
    world_close(w);
    w = world_open(BIG);
    for (int n = 1; n <= 2; n++) {
        r = scripted_when(w->s, OP_COMPLETE, n, DO_FAIL);
        r->err = CKPT_CORRUPT;
        r->transient = false;
    }
    w->send.ready = NULL;
    expect_failed(w, CKPT_CORRUPT, "scripted failure");
    assert_int_equal(w->s->calls[OP_BEGIN], 2);
    assert_int_equal(scripted_uploads(w->s), 0);
    world_close(w);
}

//-- cancel and resume ---------------------------------------------------------------

// Cancelled after k parts; the next run sends the others, and only those.
static void test_resume(void **state) {
    (void)state;
    for (int k = 1; k <= PARTS; k += 3) {
        world *w = world_open(BIG);
        scripted_when(w->s, OP_PART, k, DO_CANCEL);
        expect_failed(w, CKPT_CANCELLED, "cancelled");
        assert_int_equal(w->s->calls[OP_ABORT], 0);
        assert_int_equal(scripted_uploads(w->s), 1);
        assert_int_equal(parts_of(w), PARTS);
        int had = (int)w->record.count;
        assert_true(had < k && had >= k - 4);
        scripted_clear(w->s);
        memset(&w->meter, 0, sizeof w->meter);
        w->asked = 0;
        scripted_when(w->s, OP_PARTS, 1, DO_FAIL);              // asking for the parts may fail as well
        must(ckpt__send_run(&w->send));
        assert_int_equal(w->s->calls[OP_BEGIN], 0);
        assert_int_equal(w->s->calls[OP_PARTS], 2);
        assert_int_equal(w->s->calls[OP_PART], PARTS - had);
        expect_sent(w);
        world_close(w);
    }
}

// The store is asked, not believed blindly: vanished and different parts are sent again, unknown ones are not counted.
static void test_resume_mismatch(void **state) {
    (void)state;
    world *w = world_open(BIG);
    w->ready_result = CKPT_CANCELLED;                           // all parts are there
    expect_failed(w, CKPT_CANCELLED, "");
    assert_int_equal(w->record.count, PARTS);
    scripted_upload *u = w->s->uploads;
    free(u->parts[2].data);
    u->parts[2].data = NULL;                                    // vanished
    snprintf(u->parts[5].etag, sizeof u->parts[5].etag, "\"other\"");
    u->parts[7].size--;
    w->record.parts[PARTS - 1].number = 100000;                        // a damaged journal
    w->record.parts[PARTS - 2].number = -3;
    int lost[2] = { 0, 0 };
    for (int n = 1; n <= PARTS; n++) {                             // the two that the journal has lost
        bool found = false;
        for (size_t i = 0; i < w->record.count; i++) found = found || w->record.parts[i].number == n;
        if (!found) lost[lost[0] != 0] = n;
    }
    w->record.parts[0].size += 1;                               // does not fit any more
    int bad = w->record.parts[0].number;
    scripted_clear(w->s);
    w->ready_result = CKPT_OK;
    w->asked = 0;
    memset(&w->meter, 0, sizeof w->meter);
    must(ckpt__send_run(&w->send));
    for (int n = 1; n <= PARTS; n++) {
        bool again = n == 2 || n == 5 || n == 7 || n == bad || n == lost[0] || n == lost[1];
        if (w->s->sent[n] != again) fail_msg("part %d was sent %d times", n, w->s->sent[n]);
    }
    expect_sent(w);
    assert_int_equal(w->record.count, PARTS);
    world_close(w);
}

// The upload is gone: expired, or aborted by a clean-up; during the listing, a part, or the end.
static void test_gone(void **state) {
    (void)state;
    static const scripted_op ops[] = { OP_PARTS, OP_PART, OP_COMPLETE };
    for (int i = 0; i < UTIL_COUNT(ops); i++) {
        world *w = world_open(BIG);
        if (ops[i] == OP_PARTS) {
            scripted_when(w->s, OP_PART, 8, DO_CANCEL);
            expect_failed(w, CKPT_CANCELLED, "");
            scripted_clear(w->s);
            w->asked = 0;
        }
        scripted_when(w->s, ops[i], ops[i] == OP_PART ? 10 : 1, DO_FORGET);
        if (ops[i] == OP_COMPLETE) w->send.ready = NULL;
        must(ckpt__send_run(&w->send));
        expect_sent(w);
        assert_int_equal(w->s->calls[OP_BEGIN], ops[i] == OP_PARTS ? 1 : 2);
        assert_non_null(strstr(w->log, "begins anew"));
        world_close(w);
    }
    world *w = world_open(BIG);                                 // again and again: the second time is the last
    scripted_rule *r = scripted_when(w->s, OP_PART, 0, DO_FORGET);
    r->part = PARTS;
    r->times = -1;
    expect_failed(w, CKPT_NOT_FOUND, "NoSuchUpload");
    assert_int_equal(w->s->calls[OP_BEGIN], 2);
    world_close(w);
}

// The process that began it died between the store's reply and its journal: the mark says that it is done.
static void test_completed_before(void **state) {
    (void)state;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        for (int knows = 0; knows < 2; knows++) {
            world *w = world_open(BIG);
            w->send.overwrite = overwrite != 0;
            w->s->store.creates_only = knows != 0;
            must(ckpt__send_run(&w->send));
            scripted_clear(w->s);
            memset(&w->meter, 0, sizeof w->meter);
            w->asked = 0;
            must(ckpt__send_run(&w->send));                     // with the record as it was
            assert_int_equal(w->s->calls[OP_PART] + w->s->calls[OP_BEGIN], 0);
            expect_sent(w);
            world_close(w);
        }
    }
}

static void test_foreign_record(void **state) {
    (void)state;
    world *w = world_open(BIG);
    ckpt__buf_text(&w->record.upload_id, "upload-of-another-size");
    w->record.part_size = 0;
    must(ckpt__send_run(&w->send));
    expect_sent(w);
    assert_int_equal(w->s->calls[OP_ABORT], 1);
    world_close(w);
}

static void test_forgetful(void **state) {
    (void)state;
    world *w = world_open(BIG);
    w->forget = true;
    must(ckpt__send_run(&w->send));
    expect_sent(w);
    assert_int_equal(w->logged, 1);
    assert_non_null(strstr(w->log, "the journal's disk is full"));
    world_close(w);
}

// However slow a request is, cancelling ends it at once, and all workers with it.
static void test_cancel_slow(void **state) {
    (void)state;
    world *w = world_open(BIG);
    scripted_rule *r = scripted_when(w->s, OP_PART, 3, DO_WAIT);
    r->times = -1;
    r->seconds = 60.0;
    scripted_when(w->s, OP_PART, 6, DO_CANCEL);
    w->s->rules[0].at = 1;
    w->s->rules[0].times = 3;
    double began = ckpt__os_now();
    expect_failed(w, CKPT_CANCELLED, "cancelled");
    assert_true(ckpt__os_now() - began < 5.0);
    world_close(w);
}

//-- overwrite -------------------------------------------------------------------------

static void test_overwrite(void **state) {
    (void)state;
    static const size_t sizes[] = { 100, BIG };
    for (int i = 0; i < 2; i++) {
        for (int server = 0; server < 2; server++) {
            for (int overwrite = 0; overwrite < 2; overwrite++) {
                for (int there = 0; there < 2; there++) {
                    world *w = world_open(sizes[i]);
                    w->s->store.creates_only = server != 0;
                    w->send.overwrite = overwrite != 0;
                    if (there != 0) scripted_keep(w->s, w->send.name, "old", 3);
                    ckpt_err e = ckpt__send_run(&w->send);
                    if (there != 0 && overwrite == 0) {
                        assert_int_equal(e, CKPT_EXISTS);
                        assert_true(scripted_has(w->s, w->send.name, "old", 3));
                        assert_int_equal(scripted_uploads(w->s), 0);
                        if (server == 0 || i == 1) assert_int_equal(w->s->calls[OP_BEGIN] + w->s->calls[OP_PUT], 0);
                    } else {
                        must(e);
                        expect_sent(w);
                    }
                    assert_int_equal(w->s->calls[OP_STAT], overwrite == 0 && (server == 0 || i == 1));
                    world_close(w);
                }
            }
        }
    }
}

// Before a big object is sent for nothing one look is taken: ours is there already, or what cannot be seen is left to the server.
static void test_looks_before_parts(void **state) {
    (void)state;
    static const ckpt_err errs[] = { CKPT_AUTH, CKPT_NET, CKPT_UNSUPPORTED };
    world *w = world_open(BIG);
    w->send.overwrite = false;
    must(ckpt__send_run(&w->send));
    ckpt__send_record_clear(&w->record);
    scripted_clear(w->s);
    memset(&w->meter, 0, sizeof w->meter);
    must(ckpt__send_run(&w->send));
    assert_int_equal(w->s->calls[OP_BEGIN] + w->s->calls[OP_PART], 0);
    expect_sent(w);
    world_close(w);
    for (int i = 0; i < UTIL_COUNT(errs); i++) {
        for (int there = 0; there < 2; there++) {
            w = world_open(BIG);
            w->send.overwrite = false;
            if (there != 0) scripted_keep(w->s, w->send.name, "other", 5);
            scripted_rule *r = scripted_when(w->s, OP_STAT, 0, DO_FAIL);
            r->err = errs[i];
            r->transient = errs[i] == CKPT_NET;
            r->times = -1;
            ckpt_err e = ckpt__send_run(&w->send);
            assert_int_equal(e, there ? CKPT_EXISTS : CKPT_OK);
            assert_int_equal(w->s->calls[OP_STAT], 1);
            assert_int_equal(w->s->calls[OP_PART], PARTS);
            world_close(w);
        }
    }
}

// Somebody else's object came before the resume: what was sent of ours is thrown away.
static void test_overtaken(void **state) {
    (void)state;
    for (int server = 0; server < 2; server++) {
        world *w = world_open(BIG);
        w->s->store.creates_only = server != 0;
        w->send.overwrite = false;
        scripted_when(w->s, OP_PART, 8, DO_CANCEL);
        assert_int_equal(ckpt__send_run(&w->send), CKPT_CANCELLED);
        assert_int_equal(scripted_uploads(w->s), 1);
        scripted_clear(w->s);
        scripted_keep(w->s, w->send.name, "other", 5);
        assert_int_equal(ckpt__send_run(&w->send), CKPT_EXISTS);
        assert_int_equal(scripted_uploads(w->s), 0);
        assert_int_equal(w->record.upload_id.len, 0);
        assert_true(scripted_has(w->s, w->send.name, "other", 5));
        world_close(w);
    }
}

// A failure of the network that is not worth another try at once, as a login page's answer, may have passed a minute later, wherever it
// comes: what is there stays, and the next run goes on with it. What is refused for what it is stays so.
static void test_network_passes(void **state) {
    (void)state;
    static const scripted_op where[] = { OP_PUT, OP_BEGIN, OP_PART, OP_COMPLETE };
    for (int i = 0; i < UTIL_COUNT(where); i++) {
        static const ckpt_err how[] = { CKPT_NET, CKPT_TIMEOUT, CKPT_ARG };
        for (int k = 0; k < UTIL_COUNT(how); k++) {
            world *w = world_open(where[i] == OP_PUT ? 100 : BIG);
            scripted_rule *r = scripted_when(w->s, where[i], 0, DO_FAIL);
            r->err = how[k];
            r->transient = false;
            assert_int_equal(ckpt__send_run(&w->send), how[k]);
            if (w->send.curable != (how[k] != CKPT_ARG)) fail_msg("%d %d: %d", i, k, (int)w->send.curable);
            if (how[k] != CKPT_ARG) assert_int_equal(w->s->calls[OP_ABORT], 0);
            scripted_clear(w->s);
            must(ckpt__send_run(&w->send));
            expect_sent(w);
            if (where[i] >= OP_PART && how[k] != CKPT_ARG) assert_int_equal(w->s->calls[OP_BEGIN], 0);
            world_close(w);
        }
    }
}

// The store refused the object for one of that name, and has none: whoever had it there has taken it away, or the store was
// mistaken. That is no reason to give it up.
static void test_refused_for_nothing(void **state) {
    (void)state;
    for (int there = 0; there < 2; there++) {
        world *w = world_open(100);
        w->s->store.creates_only = true;
        w->send.overwrite = false;
        w->send.unsure = true;
        if (there != 0) scripted_keep(w->s, w->send.name, "other", 5);
        scripted_rule *r = scripted_when(w->s, OP_PUT, 0, DO_FAIL);
        r->err = CKPT_EXISTS;
        r->transient = false;
        assert_int_equal(ckpt__send_run(&w->send), CKPT_EXISTS);
        assert_int_equal(w->send.curable, there == 0);
        scripted_clear(w->s);
        if (there == 0) {
            must(ckpt__send_run(&w->send));
            expect_sent(w);
        }
        world_close(w);
    }
}

//-- a file that changes ---------------------------------------------------------------

static void world_file(world *w, const char *path) {
    util_write(path, w->bytes, (size_t)w->send.body.size);
    w->send.body.memory = NULL;
    must(ckpt__os_open_read(&w->send.body.fd, path));
    w->send.body.path = path;
}

static void test_file(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "staged");
    static const size_t sizes[] = { 0, 100, BIG };
    for (int i = 0; i < 3; i++) {
        world *w = world_open(sizes[i]);
        world_file(w, path);
        must(ckpt__send_run(&w->send));
        expect_sent(w);
        close(w->send.body.fd);
        world_close(w);
    }
}

static ckpt_err truncate_it(void *user) {
    world *w = (world *)user;
    return truncate(w->send.body.path, 1000) == 0 ? CKPT_OK : CKPT_IO;
}

static void test_file_changes(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "staged");
    for (int how = 0; how < 4; how++) {
        world *w = world_open(BIG);
        world_file(w, path);
        if (how == 0) assert_int_equal(truncate(path, 1000), 0);                // shorter before it begins
        if (how == 1) assert_int_equal(truncate(path, BIG + 1), 0);             // longer
        if (how == 2) util_flip(path, BIG / 2, 1);                              // as long, other bytes: the sums tell
        if (how == 3) {                                                         // while it is being sent
            w->s->pace = 0.005;
            w->send.num_concurrent_parts = 1;
            w->send.remember = NULL;
            scripted_when(w->s, OP_PART, 2, DO_WAIT)->seconds = 0.3;
            int child = fork();
            if (child == 0) {
                usleep(60000);
                _exit(truncate(path, 1000) == 0 ? 0 : 1);
            }
            expect_failed(w, CKPT_CORRUPT, "changed");
            waitpid(child, NULL, 0);
        } else {
            expect_failed(w, CKPT_CORRUPT, "has changed while it was being sent");
        }
        assert_int_equal(scripted_uploads(w->s), 0);
        assert_int_equal(w->record.upload_id.len, 0);
        close(w->send.body.fd);
        world_close(w);
    }
    world *w = world_open(BIG);                                                 // by the hook, after all parts have left
    world_file(w, path);
    w->send.ready = truncate_it;
    w->send.has_crc = false;
    must(ckpt__send_run(&w->send));                                             // what was sent is what the file was
    expect_sent(w);
    close(w->send.body.fd);
    world_close(w);
}

// Writes over the file, whose length stays, some seconds after it was made. A clock's tick is too long to wait for it.
static void write_over(const char *path) {
    struct timespec times[2];
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    util_flip(path, 1, 1);
    times[0] = times[1] = st.st_mtim;
    times[1].tv_sec += 5;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void watch_it(world *w) {
    ckpt__os_info info;
    must(ckpt__os_fstat(w->send.body.fd, &info, w->send.body.path));
    ckpt__body_watch(&w->send.body, &info);
    w->send.has_crc = false;
    w->send.ready = NULL;
}

static world *watched;

// Takes half of the body, and comes for the rest when the file was written over, or has got a second name.
static ckpt_err put_halves(ckpt_store *s, const ckpt__store_put *p) {
    const char *path = p->body->path, *other = util_fmt("%s.link", path);
    char bytes[8000];
    (void)s;
    ckpt_err e = ckpt__body_read(p->body, bytes, 4000, 0);
    if (watched->forget) write_over(path);
    else assert_int_equal(link(path, other), 0);
    if (e == CKPT_OK) e = ckpt__body_read(p->body, bytes + 4000, 4000, 4000);
    if (!watched->forget) assert_int_equal(unlink(other), 0);
    return e;
}

static ckpt_err remember_write(const ckpt__send_record *r, void *user) {
    world *w = (world *)user;
    if (r->count == 1) write_over(w->send.body.path);
    return CKPT_OK;
}

// A file that is watched, of which no sum is known, is written to while it is sent: no object comes of it, neither whole nor in parts.
static void test_file_is_watched(void **state) {
    (void)state;
    const char *path = util_join(util_temp_dir(), "staged");
    for (int how = 0; how < 4; how++) {             // whole: a second name, which is no change; a write. In parts: one at a time, all at once
        world *w = watched = world_open(how < 2 ? 8000 : BIG);
        world_file(w, path);
        watch_it(w);
        w->forget = how > 0;
        if (how < 2) w->s->table.put = put_halves;
        else w->send.remember = remember_write;
        if (how == 2) w->send.num_concurrent_parts = 1;
        if (how == 0) must(ckpt__send_run(&w->send));
        else expect_failed(w, CKPT_CORRUPT, "staged has changed while it was being sent: it was written to");
        assert_true(how == 0 || w->send.amiss);
        assert_int_equal(scripted_uploads(w->s), 0);
        assert_int_equal(w->s->calls[OP_COMPLETE], 0);
        close(w->send.body.fd);
        world_close(w);
    }
}

static const char *written_over;

static void write_over_once(const char *name, const char *path, int fd) {
    (void)path, (void)fd;
    if (strcmp(name, "pwrite") != 0 || written_over == NULL) return;
    const char *at = written_over;
    written_over = NULL;
    write_over(at);
}

// The same of a copy into a folder that the system does not make by itself, in a piece of a MiB after the other.
static void test_copy_is_watched(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *path = util_join(dir, "staged"), *uri = util_fmt("file://%s/b", dir);
    char *bytes = scripted_bytes(3 << 20);
    for (int how = 0; how < 2; how++) {
        ckpt_store *s = NULL;
        util_write(path, bytes, 3 << 20);
        must(ckpt_store_open(&s, uri, NULL));
        written_over = path;
        fault_watch = write_over_once;
        fault_arm_call("copy_file_range", EXDEV, 1);
        ckpt_err e = how == 0 ? ckpt_store_put(s, "x", path, true) : ckpt_put_file(path, util_fmt("%s/x", uri), true);
        fault_watch = NULL;
        (void)fault_disarm();
        assert_int_equal(e, CKPT_CORRUPT);
        expect_sentence("staged has changed while it was being sent");
        uint64_t size;
        assert_int_equal(ckpt_store_size(s, "x", &size), CKPT_NOT_FOUND);
        ckpt_store_close(s);
    }
}

// The server of the file's folder is away for a moment: the same part goes again, and a last look that fails costs no part.
static void test_file_away(void **state) {
    (void)state;
    static const int why[] = { ESTALE, ETIMEDOUT, EIO };
    const char *path = util_join(util_temp_dir(), "staged");
    for (int i = 0; i < UTIL_COUNT(why); i++) {
        ckpt_err said = why[i] == EIO ? CKPT_IO : CKPT_NET;
        for (int big = 0; big < 2; big++) {
            world *w = world_open(big ? BIG : 5 * KIB);
            world_file(w, path);
            fault_arm_call("pread", why[i], big ? 50 : 3);
            must(ckpt__send_run(&w->send));
            assert_true(fault_disarm());
            assert_int_equal(w->s->calls[OP_ABORT], 0);
            assert_int_equal(w->s->calls[big ? OP_PART : OP_PUT], big ? PARTS + 1 : 2);
            expect_sent(w);
            close(w->send.body.fd);
            world_close(w);
            for (int look = 1; look <= 2; look++) {         // before anything is sent; before the end, or behind it
                w = world_open(big ? BIG : 5 * KIB);
                world_file(w, path);
                fault_arm_call("fstat", why[i], look);
                ckpt_err e = ckpt__send_run(&w->send);
                assert_true(fault_disarm());
                bool passed = !big && look == 2;
                assert_int_equal(e, passed ? CKPT_OK : said);
                assert_int_equal(w->send.curable, !passed);
                assert_int_equal(w->s->calls[OP_ABORT], 0);
                if (!passed) must(ckpt__send_run(&w->send));
                assert_int_equal(w->s->calls[OP_PART], big ? PARTS : 0);
                assert_int_equal(w->s->calls[OP_BEGIN], big);
                expect_sent(w);
                close(w->send.body.fd);
                world_close(w);
            }
        }
    }
}

// The same of what the caller waits for.
static void test_ready_passes(void **state) {
    (void)state;
    for (int big = 0; big < 2; big++) {
        world *w = world_open(big ? BIG : 100);
        w->ready_result = CKPT_NET;
        expect_failed(w, CKPT_NET, "it never became durable");
        assert_true(w->send.curable);
        w->ready_result = CKPT_OK;
        must(ckpt__send_run(&w->send));
        assert_int_equal(w->s->calls[OP_PART], big ? PARTS : 0);
        expect_sent(w);
        world_close(w);
    }
}

//-- progress --------------------------------------------------------------------------

typedef struct watcher { world *w; ckpt__os_flag stop; uint64_t last; int steps; bool fell; } watcher;

static void *watch(void *arg) {
    watcher *v = (watcher *)arg;
    while (ckpt__os_flag_get(&v->stop) == 0) {
        uint64_t now = ckpt__meter_read(&v->w->meter);
        if (now < v->last || now > BIG) v->fell = true;
        v->steps += now > v->last;
        v->last = now;
        ckpt__os_sleep(0.0005);
    }
    return NULL;
}

// How often the watcher saw it grow, while each part takes `pace` seconds.
static int watch_progress(double pace) {
    world *w = world_open(BIG);
    watcher v;
    pthread_t t;
    memset(&v, 0, sizeof v);
    v.w = w;
    w->s->pace = pace;
    w->retry.initial_backoff = 0.001;
    for (int part = 1; part <= PARTS; part += 2) {
        scripted_rule *r = scripted_when(w->s, OP_PART, 0, part % 2 != 0 ? DO_LOSE : DO_FAIL);
        r->part = part;
        r->times = 2;
    }
    scripted_when(w->s, OP_COMPLETE, 1, DO_FORGET);             // and all of it again
    w->send.ready = NULL;
    pthread_create(&t, NULL, watch, &v);
    ckpt_err e = ckpt__send_run(&w->send);
    ckpt__os_flag_set(&v.stop, 1);
    pthread_join(t, NULL);
    must(e);
    expect_sent(w);
    assert_false(v.fell);
    world_close(w);
    return v.steps;
}

static void test_progress(void **state) {
    (void)state;
    double pace = 0.002;
    while (watch_progress(pace) <= 3 && pace < 1.0) pace *= 5;  // on a busy machine the watcher seldom has its turn
    assert_true(pace < 1.0);
}

//-- no memory, no threads -------------------------------------------------------------

static void test_no_memory(void **state) {
    (void)state;
    for (int resumed = 0; resumed < 2; resumed++) {
        for (int n = 1;; n++) {
            counting c = { 0, 0, 0 };
            ckpt_allocator a = { counting_fn, &c };
            world *w = world_open(BIG);
            w->s->store.allocator = a;
            ckpt__send_record_free(&w->record);
            ckpt__send_record_init(&w->record, &a);
            if (resumed != 0) {
                scripted_when(w->s, OP_PART, 12, DO_CANCEL);
                expect_failed(w, CKPT_CANCELLED, "");
                scripted_clear(w->s);
                w->asked = 0;
                memset(&w->meter, 0, sizeof w->meter);
            }
            c.calls = 0;
            c.fail_at = n;
            ckpt_err e = ckpt__send_run(&w->send);
            bool passed = c.calls < n;
            if (passed) must(e);
            else if (e != CKPT_OK && e != CKPT_NOMEM) fail_msg("%s: %s", ckpt_err_name(e), ckpt_last_error());
            if (e == CKPT_OK) expect_sent(w);
            c.fail_at = 0;
            if (e != CKPT_OK) {                                 // the next run finishes
                scripted_clear(w->s);
                w->asked = 0;
                must(ckpt__send_run(&w->send));
                while (w->s->uploads != NULL) scripted_drop_upload(w->s, w->s->uploads->id);   // begun, and its id was lost
                expect_sent(w);
            }
            world_close(w);
            assert_int_equal(c.live, 0);
            if (passed) break;
        }
    }
}

// With fewer threads, or none, it takes longer.
typedef struct source { world *w; int reads; } source;

static ckpt_err read_and_cancel(void *dst, size_t size, uint64_t offset, void *user) {
    source *from = (source *)user;
    from->reads++;
    memcpy(dst, from->w->bytes + offset, size);
    ckpt__os_flag_set(&from->w->s->cancel, 1);
    return CKPT_OK;
}

// Nothing more is read of a file whose upload is cancelled, not even for a sum that a store takes before it sends a byte.
static void test_cancelled_while_read(void **state) {
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        world *w = world_open(parts == 1 ? BIG : 10000);
        source from = { w, 0 };
        w->send.num_concurrent_parts = 1;
        w->send.part_size = parts == 1 ? 8 * KIB : 0;
        w->send.body.memory = NULL;
        w->send.body.read = read_and_cancel;
        w->send.body.user = &from;
        assert_int_equal(ckpt__send_run(&w->send), CKPT_CANCELLED);
        assert_int_equal(from.reads, 1);
        world_close(w);
    }
}

// Whose object is there that has neither a mark nor a sum is told by its bytes, also over a connection that breaks.
static void test_compared_over_breaks(void **state) {
    (void)state;
    for (int breaks = 0; breaks < 3; breaks++) {
        world *w = world_open(3000);
        w->send.mark = NULL;
        w->send.has_crc = false;
        w->send.overwrite = false;
        w->s->store.creates_only = true;
        scripted_when(w->s, OP_PUT, 1, DO_LOSE);
        scripted_rule *r = scripted_when(w->s, OP_GET, 0, DO_SHORT);
        r->bytes = 1000;
        r->times = breaks;
        must(ckpt__send_run(&w->send));
        assert_int_equal(w->s->calls[OP_PUT], 2);
        assert_int_equal(w->s->calls[OP_GET], breaks + 1);
        world_close(w);
    }
}

static void test_no_threads(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) {
        world *w = world_open(BIG);
        fault_arm(EAGAIN, n);
        fault_only = "pthread_create";
        must(ckpt__send_run(&w->send));
        assert_int_equal(fault_disarm(), n < 4);
        expect_sent(w);
        world_close(w);
    }
}

//-- early parts -----------------------------------------------------------------------

typedef struct pipe_body { char *bytes; uint64_t there; } pipe_body;

static ckpt_err read_when_there(void *dst, size_t size, uint64_t offset, void *user) {
    pipe_body *p = (pipe_body *)user;
    while (ckpt__os_load64(&p->there) < offset + size) ckpt__os_sleep(0.001);
    memcpy(dst, p->bytes + offset, size);
    return CKPT_OK;
}

static void *produce(void *arg) {
    pipe_body *p = (pipe_body *)arg;
    for (int i = 0; i < 50; i++) {
        ckpt__os_sleep(0.002);
        uint64_t to = (uint64_t)BIG * (unsigned)(i + 1) / 50;
        (void)ckpt__os_add64(&p->there, to - ckpt__os_load64(&p->there));
    }
    return NULL;
}

// Bytes that come into being while they are sent; the sum is known at the end.
static ckpt_err ready_with_sum(void *user) {
    world *w = (world *)user;
    w->send.has_crc = true;
    w->send.crc = ckpt__digest_crc32(0, w->bytes, BIG);
    return CKPT_OK;
}

static void test_early(void **state) {
    (void)state;
    world *w = world_open(BIG);
    pipe_body p = { w->bytes, 0 };
    pthread_t t;
    w->send.body.memory = NULL;
    w->send.body.read = read_when_there;
    w->send.body.user = &p;
    w->send.has_crc = false;
    w->send.ready = ready_with_sum;
    pthread_create(&t, NULL, produce, &p);
    must(ckpt__send_run(&w->send));
    pthread_join(t, NULL);
    expect_sent(w);
    world_close(w);
}

//-- on file:// --------------------------------------------------------------------------

// The same against the reference store: in parts, cancelled and resumed, brought back.
static void test_file_store(void **state) {
    (void)state;
    const char *dir = util_temp_dir(), *got = util_join(dir, "got");
    ckpt_store *store;
    must(ckpt_store_open(&store, util_fmt("file://%s/bucket", dir), NULL));
    for (int resumed = 0; resumed < 2; resumed++) {
        world *w = world_open(BIG);
        w->send.store = store;
        w->send.ready = NULL;
        w->send.part_size = 8 * KIB;
        if (resumed != 0) {
            w->send.ready = ready;
            w->ready_result = CKPT_CANCELLED;
            w->send.name = "run/ep2.pt";
            assert_int_equal(ckpt__send_run(&w->send), CKPT_CANCELLED);
            assert_true(w->record.count > 8);
            w->send.ready = NULL;
        }
        must(ckpt__send_run(&w->send));
        assert_int_equal(ckpt__meter_read(&w->meter), BIG);
        ckpt__fetch f;
        memset(&f, 0, sizeof f);
        f.store = store;
        f.name = w->send.name;
        f.destination = got;
        f.overwrite = true;
        must(ckpt__fetch_run(&f));
        size_t n;
        char *bytes = util_read(got, &n);
        assert_int_equal(n, BIG);
        assert_memory_equal(bytes, w->bytes, BIG);
        w->send.overwrite = false;
        w->send.mark = "another";
        ckpt__send_record_clear(&w->record);
        assert_int_equal(ckpt__send_run(&w->send), CKPT_EXISTS);
        expect_sentence("exists");
        world_close(w);
    }
    assert_string_equal(util_list(util_join(dir, "bucket/run")), "ep1.pt\nep2.pt\n");
    ckpt_store_close(store);
}

static const char *synced_folder;
static int folder_syncs, folder_failures;

static void see_sync(const char *name, const char *path, int fd) {
    struct stat a, b;
    (void)path;
    if (strcmp(name, "fsync") != 0 || fstat(fd, &a) != 0 || stat(synced_folder, &b) != 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev) return;
    folder_syncs++;
    folder_failures += fault_calls + 1 == fault_nth;
}

// A file:// object has its name, and its folder could not be synced: the next try finds it there, and syncs it before it says so.
static void test_folder_synced_late(void **state) {
    (void)state;
    ckpt_store *store;
    ckpt__store_stat info;
    ckpt__transfer t;
    memset(&t, 0, sizeof t);
    memset(&info, 0, sizeof info);
    const char *dir = util_temp_dir();
    must(ckpt_store_open(&store, util_fmt("file://%s/bucket", dir), NULL));
    synced_folder = util_join(dir, "bucket/run");
    int late = 0;
    for (int big = 0; big < 2; big++) {
        for (int n = 1, hit = 1; hit; n++) {
            world *w = world_open(big ? BIG : 100);
            w->send.store = store;
            w->send.ready = NULL;
            w->send.overwrite = false;
            w->send.part_size = 64 * KIB;
            w->send.name = util_fmt("run/%d-%d.pt", big, n);
            folder_syncs = folder_failures = 0;
            __atomic_store_n(&fault_watch, see_sync, __ATOMIC_SEQ_CST);
            fault_arm_call("fsync", ESTALE, n);
            ckpt_err e = ckpt__send_run(&w->send);
            hit = fault_disarm();
            __atomic_store_n(&fault_watch, NULL, __ATOMIC_SEQ_CST);
            must(e);
            must(store->table->stat(store, w->send.name, &info, &t));
            if (info.mark[0] == 0) util_skip("this file system keeps no extended attributes");
            assert_true(folder_syncs >= 1 + folder_failures);
            late += folder_failures;
            world_close(w);
        }
    }
    assert_true(late >= 2);
    ckpt_store_close(store);
}

// So does a look that finds the object to be this one.
static void test_folder_synced_behind_look(void **state) {
    (void)state;
    ckpt_store *store;
    const char *dir = util_temp_dir();
    must(ckpt_store_open(&store, util_fmt("file://%s/bucket", dir), NULL));
    synced_folder = util_join(dir, "bucket/run");
    world *w = world_open(100);
    w->send.store = store;
    w->send.name = "run/1.pt";
    must(ckpt__send_run(&w->send));
    ckpt__send_job j;
    memset(&j, 0, sizeof j);
    j.s = &w->send;
    j.size = w->send.body.size;
    j.retry = *w->send.retry;
    for (int how = 0; how < 2; how++) {
        w->send.overwrite = how == 1;
        w->send.inherited = true;
        for (int look = 0; look < 2; look++) {
            for (int fails = 0; fails < 2; fails++) {
                bool ours = false;
                ckpt__send_whose whose = CKPT__SEND_UNKNOWN;
                folder_syncs = folder_failures = 0;
                __atomic_store_n(&fault_watch, see_sync, __ATOMIC_SEQ_CST);
                if (fails) fault_arm_call("fsync", EIO, 1);
                ckpt_err e = look ? ckpt__send_look(&j, &ours) : ckpt__send_tell(&w->send, &j.retry, &whose);
                __atomic_store_n(&fault_watch, NULL, __ATOMIC_SEQ_CST);
                (void)fault_disarm();
                if (e == CKPT_OK && !ours && whose != CKPT__SEND_OURS) util_skip("this file system keeps no extended attributes");
                assert_int_equal(folder_syncs, 1);
                assert_int_equal(e, fails ? CKPT_IO : CKPT_OK);
                assert_int_equal(ours || whose == CKPT__SEND_OURS, !fails);
            }
        }
    }
    world_close(w);
    ckpt_store_close(store);
}

// The file that a file:// store is to copy cannot be looked at for a moment: it goes again, as one that cannot be read does.
static void test_source_away(void **state) {
    (void)state;
    ckpt_store *store;
    const char *dir = util_temp_dir();
    must(ckpt_store_open(&store, util_fmt("file://%s/bucket", dir), NULL));
    for (int n = 2; n <= 3; n++) {                          // around the copy
        world *w = world_open(100);
        world_file(w, util_join(dir, "staged"));
        w->send.store = store;
        w->send.name = "run/1.pt";
        fault_arm_call("fstat", EIO, n);
        must(ckpt__send_run(&w->send));
        assert_true(fault_disarm());
        close(w->send.body.fd);
        world_close(w);
    }
    ckpt_store_close(store);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_sizes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_store_limits),
        cmocka_unit_test(test_nothing_stays), cmocka_unit_test(test_nothing_stays_unsent),
        cmocka_unit_test(test_put_again),
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_wrong_size),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_permanent),
        cmocka_unit_test(test_exhausted),
        cmocka_unit_test(test_ready_fails),
        cmocka_unit_test(test_abort_refused),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_mismatch),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_end_is_unsure),
        cmocka_unit_test(test_completed_before),
        cmocka_unit_test(test_foreign_record),
        cmocka_unit_test(test_forgetful),
        cmocka_unit_test(test_cancel_slow),
        cmocka_unit_test(test_overwrite),
        cmocka_unit_test(test_looks_before_parts), cmocka_unit_test(test_overtaken),
        cmocka_unit_test(test_network_passes), cmocka_unit_test(test_refused_for_nothing),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_changes), cmocka_unit_test(test_file_is_watched), cmocka_unit_test(test_copy_is_watched),
        cmocka_unit_test(test_file_away), cmocka_unit_test(test_ready_passes),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_cancelled_while_read),
        cmocka_unit_test(test_compared_over_breaks),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_file_store), cmocka_unit_test(test_folder_synced_late), cmocka_unit_test(test_source_away), cmocka_unit_test(test_folder_synced_behind_look)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
