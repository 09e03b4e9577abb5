// Proves >>time: time strings and arithmetic, timestamps, and that the scheduler saves where Composer's trainer would.
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <time.h>

// A row of a table where this library answers otherwise on purpose. Only rows that no test of Composer's asserts.
typedef struct left_row { const char *input, *ours, *why; } left_row;

static const left_row *find_left(const left_row *rows, int count, const char *input, const char *source) {
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].input, input) != 0) continue;
        if (source[0] == 'T') fail_msg("a tested row may not be left: %s", input);
        return &rows[i];
    }
    return NULL;
}

static const char *shown(ckpt_time t) {
    char text[64];
    return ckpt_time_format(text, sizeof text, t) == CKPT_OK ? util_fmt("%s", text) : "?";
}

static const left_row parse_left[] = {
    { "", "error", "no unit, no digits" }, { "1", "error", "no unit (Composer: 10 s)" },
    { "0", "error", "no unit (Composer: 0 s)" },
    { "1m5", "error", "a digit without a unit (Composer: 110 s)" },
    { "1h1m1", "error", "a digit without a unit (Composer: 3670 s)" },
    { "24h", "86400sec", "any number of hours is a time" }, { "90m", "5400sec", "any number of minutes is a time" },
    { "60s", "60sec", "any number of seconds is a time" }, { "61s", "61sec", "any number of seconds is a time" },
    { "9007199254740993ep", "9007199254740993ep", "not rounded through double" }
};

static void test_parse(void **state) {
    (void)state;
    util_table t = cases_tsv("time_parse.tsv");
    int left = 0;
    for (int i = 0; i < t.rows; i++) {
        const char *input = cases_text(&t, i, "input");
        const left_row *l = find_left(parse_left, UTIL_COUNT(parse_left), input, cases_text(&t, i, "source"));
        const char *want = strcmp(cases_text(&t, i, "status"), "ok") != 0 ? "error" : util_fmt("%s%s", cases_text(&t, i,
            "value"), cases_text(&t, i, "unit"));
        if (l != NULL) { want = l->ours; left++; }
        ckpt_time got;
        ckpt_err e = ckpt_time_parse(&got, input);
        if (e != CKPT_OK && e != CKPT_ARG) fail_msg("%s: %s", input, ckpt_err_name(e));
        if (strcmp(e != CKPT_OK ? "error" : shown(got), want) != 0) fail_msg("time_parse.tsv row %d '%s': want %s", i + 1,
            input, want);
    }
    assert_int_equal(left, UTIL_COUNT(parse_left));
    printf("time_parse.tsv: %d rows, %d left on purpose (item 27: a time has digits and a unit)\n", t.rows, left);
}

static void test_parse_more(void **state) {
    (void)state;
    static const struct { const char *text, *shown; } good[] = {
        { "3600s", "3600sec" }, { "1h90m", "9000sec" }, { "9223372036854775807tok", "9223372036854775807tok" },
        { "-9223372036854775808ba", "-9223372036854775808ba" },
        { "1234567890123456789tok", "1234567890123456789tok" }, { "12345.67890e5sp", "1234567890sp" }, { " 7ep", "7ep" },
        { "\t1_0 ep", "10ep" },
        { "0.0000000000000000000000000000000001e34ba", "1ba" }, { "2562047788015215h", "9223372036854774000sec" },
        { ".5dur", "0.5dur" }
    };
    static const char *const bad[] = {
        "5", "1h5", "1h 5m", "5m1h", "1s1s", "h", "9223372036854775808tok", "1e19ba", "1e999ep", "2562047788015216h",
        "99999999999999999999s", "ep", "1", "1 ", "-1h",
        "1.5s", "1ep1ep", "1\nep", "_1ep", "1._5dur", "0.1", "1ep\n\n", "30s\n"
    };
    for (int i = 0; i < UTIL_COUNT(good); i++) {
        ckpt_time t;
        if (ckpt_time_parse(&t, good[i].text) != CKPT_OK) fail_msg("%s: %s", good[i].text, ckpt_last_error());
        assert_string_equal(shown(t), good[i].shown);
    }
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        ckpt_time t;
        memset(&t, 0x55, sizeof t);
        if (ckpt_time_parse(&t, bad[i]) != CKPT_ARG) fail_msg("taken for a time: '%s'", bad[i]);
        assert_non_null(strstr(ckpt_last_error(), util_fmt("'%.*s", (int)strcspn(bad[i], "\n"), bad[i])));       // a sentence has one line
        assert_int_equal(t.value, 0x5555555555555555);          // a failure leaves it alone
    }
    static const struct { const char *text, *says; } said[] = {
        { "0.5h", "whole numbers" }, { "1.5m", "whole numbers" }, { "-1h", "no sign" }, { "1H", "small letters" }, { "1H20M", "small letters" },
        { "99999999999999999999h", "more seconds than fit" }, { "9223372036854775807h", "more seconds than fit" }, { "5m1h", "in this order" },
        { "1s1s", "in this order" }, { "h", "after a number" }, { "5", "does not end in a unit" }, { "5q", "does not end in a unit" },
        { "2epochs", "the unit is written 'ep'" }, { "1h5", "does not end in a unit" }, { "3batches", "the unit is written 'ba'" },
    };
    for (int i = 0; i < UTIL_COUNT(said); i++) {
        ckpt_time t;
        assert_int_equal(ckpt_time_parse(&t, said[i].text), CKPT_ARG);
        if (strstr(ckpt_last_error(), said[i].says) == NULL) fail_msg("%s", ckpt_last_error());
    }
    ckpt_time t;
    assert_int_equal(ckpt_time_parse(&t, "10epochs"), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "the unit is written 'ep'"));
    assert_int_equal(ckpt_time_parse(&t, "500 batches"), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "the unit is written 'ba'"));
    assert_int_equal(ckpt_time_parse(NULL, "1ep"), CKPT_ARG);
    assert_int_equal(ckpt_time_parse(&t, NULL), CKPT_ARG);
    char *big = (char *)util_keep(malloc(100001), false);
    memset(big, '1', 100000);
    memcpy(big + 99998, "ep", 3);
    assert_int_equal(ckpt_time_parse(&t, big), CKPT_ARG);
}

static void test_format(void **state) {
    (void)state;
    util_table t = cases_tsv("time_to_string.tsv");
    for (int i = 0; i < t.rows; i++) {
        ckpt_unit unit = CKPT_EPOCH;
        ckpt_time v;
        double f;
        memset(&v, 0, sizeof v);
        assert_true(ckpt__time_unit(ckpt__txt_view(cases_text(&t, i, "unit")), &unit));
        v.unit = unit;
        ckpt__view value = ckpt__txt_view(cases_text(&t, i, "value"));
        if (unit == CKPT_DURATION) { assert_true(ckpt__txt_double(value, &f)); v.fraction = f; }
        else assert_true(ckpt__txt_int(value, &v.value));
        assert_string_equal(shown(v), cases_text(&t, i, "string"));
    }
    char text[8];
    ckpt_time v = { CKPT_TOKEN, 12345, 0 };
    assert_int_equal(ckpt_time_format(text, sizeof text, v), CKPT_ARG);         // "12345tok" and its NUL are 9
    assert_non_null(strstr(ckpt_last_error(), "9 bytes"));
    assert_string_equal(text, "");
    v.value = 1234;
    assert_int_equal(ckpt_time_format(text, sizeof text, v), CKPT_OK);
    assert_string_equal(text, "1234tok");
    assert_int_equal(ckpt_time_format(NULL, 8, v), CKPT_ARG);
    assert_int_equal(ckpt_time_format(text, 0, v), CKPT_ARG);
    v.unit = (ckpt_unit)7;
    assert_int_equal(ckpt_time_format(text, sizeof text, v), CKPT_ARG);
}

static void test_unit_names(void **state) {
    (void)state;
    util_table t = cases_tsv("time_unit_names.tsv");
    for (int i = 0; i < t.rows; i++) {
        ckpt_unit unit = CKPT_EPOCH;
        bool ok = ckpt__time_unit(ckpt__txt_view(cases_text(&t, i, "input")), &unit);
        assert_int_equal(ok, strcmp(cases_text(&t, i, "status"), "ok") == 0);
        if (ok) assert_string_equal(ckpt__time_words(unit).suffix, cases_text(&t, i, "unit"));
    }
}

// Time.from_input: a text as it is, a number with a default unit. Here the unit is an enum, so the table's names are looked
// up first.
static void test_from_input(void **state) {
    (void)state;
    util_table t = cases_tsv("time_from_input.tsv");
    for (int i = 0; i < t.rows; i++) {
        const char *unit_name = cases_get(&t, i, "default_unit"), *value = cases_text(&t, i, "value");
        ckpt_unit unit = CKPT_EPOCH;
        ckpt_time v;
        ckpt_err e = unit_name == NULL || ckpt__time_unit(ckpt__txt_view(unit_name), &unit) ? CKPT_OK : CKPT_ARG;
        if (e == CKPT_OK) e = unit_name == NULL ? ckpt__time_read(&v, value) : ckpt__time_input(&v, value, unit);
        bool ok = strcmp(cases_text(&t, i, "status"), "ok") == 0;
        if ((e == CKPT_OK) != ok) fail_msg("time_from_input.tsv row %d: %s", i + 1, ckpt_last_error());
        if (ok) assert_string_equal(shown(v), cases_text(&t, i, "time"));
    }
}

// An operand of time_math.tsv: a time, or a plain number, which takes the other's unit or counts as a dur where it is a factor.
static bool operand(const char *text, const char *other, char op, bool right, ckpt_time *out) {
    ckpt_time o;
    double f;
    if (!ckpt__txt_double(ckpt__txt_view(text), &f)) return ckpt_time_parse(out, text) == CKPT_OK;
    memset(out, 0, sizeof *out);
    if (op == '*' || (op == '/' && right)) {
        out->unit = CKPT_DURATION;
        out->fraction = f;
        return true;
    }
    if (ckpt_time_parse(&o, other) != CKPT_OK) return false;
    if (o.unit != CKPT_DURATION && strchr(text, '.') != NULL) return false;     // TypeError: 5ep == 5.0
    return ckpt__time_input(out, text, o.unit) == CKPT_OK;
}

static void test_math(void **state) {
    (void)state;
    util_table t = cases_tsv("time_math.tsv");
    for (int i = 0; i < t.rows; i++) {
        const char *lhs = cases_text(&t, i, "lhs"), *rhs = cases_text(&t, i, "rhs"), *op = cases_text(&t, i, "op"),
            *got = "error";
        ckpt_time a, b, r;
        int c = 0;
        memset(&r, 0, sizeof r);
        if (operand(lhs, rhs, op[0], false, &a) && operand(rhs, lhs, op[0], true, &b)) {
            bool compare = strchr("<>=!", op[0]) != NULL;
            ckpt_err e = compare ? ckpt__time_cmp(&c, a, b) : op[0] == '+' ? ckpt__time_add(&r, a,
                b) : op[0] == '-' ? ckpt__time_sub(&r, a, b)
                       : op[0] == '*' ? ckpt__time_mul(&r, a, b) : op[0] == '/' ? ckpt__time_div(&r, a,
                           b) : ckpt__time_mod(&r, a, b);
            bool yes = op[0] == '<' ? c < 0 : op[0] == '>' ? c > 0 : op[0] == '!' && c != 0;
            if (op[0] != '!' && op[1] == '=') yes = yes || c == 0;
            if (e == CKPT_OK) got = compare ? (yes ? "true" : "false") : shown(r);
        }
        const char *want = strcmp(cases_text(&t, i, "status"), "ok") == 0 ? cases_text(&t, i, "result") : "error";
        if (strcmp(got, want) != 0) fail_msg("time_math.tsv row %d: %s %s %s: want %s, got %s", i + 1, lhs, op, rhs, want, got);
    }
    ckpt_time big = { CKPT_TOKEN, INT64_MAX, 0 }, one = { CKPT_TOKEN, 1, 0 }, low = { CKPT_TOKEN, INT64_MIN, 0 },
        minus = { CKPT_TOKEN, -1, 0 }, r;
    assert_int_equal(ckpt__time_add(&r, big, one), CKPT_ARG);
    assert_int_equal(ckpt__time_sub(&r, low, one), CKPT_ARG);
    assert_int_equal(ckpt__time_sub(&r, one, low), CKPT_ARG);
    assert_int_equal(ckpt__time_mod(&r, low, minus), CKPT_OK);
    assert_int_equal(r.value, 0);
    ckpt_time seven = { CKPT_TOKEN, -7, 0 }, three = { CKPT_TOKEN, 3, 0 };
    assert_int_equal(ckpt__time_mod(&r, seven, three), CKPT_OK);
    assert_int_equal(r.value, 2);
    static const struct { double a, b, left; } durs[] = {       // Python 3.11's %
        { 0.7, 0.2, 0.09999999999999992 }, { -0.7, 0.2, 0.10000000000000009 }, { 0.7, -0.2, -0.10000000000000009 },
        { 1e300, 0.3, 0.15321850028067768 }, { 5, 2.5, 0 }, { 0.1, 7, 0.1 }
    };
    for (int i = 0; i < UTIL_COUNT(durs); i++) {
        ckpt_time a = { CKPT_DURATION, 0, durs[i].a }, b = { CKPT_DURATION, 0, durs[i].b };
        assert_int_equal(ckpt__time_mod(&r, a, b), CKPT_OK);
        if (r.fraction != durs[i].left) fail_msg("%g %% %g is %.17g", durs[i].a, durs[i].b, r.fraction);
    }
}

static int64_t json_int(const ckpt__json_doc *d, const ckpt__json *object, const char *key, int64_t missing) {
    const ckpt__json *v = ckpt__json_get(d, object, key);
    return v == NULL ? missing : v->i;
}

static double json_float(const ckpt__json_doc *d, const ckpt__json *object, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, object, key);
    return v == NULL ? 0.0 : v->f;
}

static ckpt_timestamp json_timestamp(const ckpt__json_doc *d, const ckpt__json *o) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.iteration = json_int(d, o, "iteration", 0);
    t.epoch = json_int(d, o, "epoch", 0);
    t.batch = json_int(d, o, "batch", 0);
    t.sample = json_int(d, o, "sample", 0);
    t.token = json_int(d, o, "token", 0);
    t.epoch_in_iteration = json_int(d, o, "epoch_in_iteration", 0);
    t.token_in_iteration = json_int(d, o, "token_in_iteration", 0);
    t.batch_in_epoch = json_int(d, o, "batch_in_epoch", 0);
    t.sample_in_epoch = json_int(d, o, "sample_in_epoch", 0);
    t.token_in_epoch = json_int(d, o, "token_in_epoch", 0);
    t.total_wct = json_float(d, o, "total_wct");
    t.iteration_wct = json_float(d, o, "iteration_wct");
    t.epoch_wct = json_float(d, o, "epoch_wct");
    t.batch_wct = json_float(d, o, "batch_wct");
    return t;
}

static void test_progress(void **state) {
    (void)state;
    size_t size;
    const char *text = util_read(util_tests_path("cases/timestamp_progress.json"), &size);
    ckpt__json_doc d;
    assert_int_equal(ckpt__json_parse(&d, NULL, text, size), CKPT_OK);
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    int rows = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row),
        rows++) {
        const char *op = ckpt__json_get(&d, row, "op")->text;
        double args[3] = { 0, 0, 0 };
        int n = 0;
        for (const ckpt__json *a = ckpt__json_child(&d, ckpt__json_get(&d, row, "args")); a != NULL; a = ckpt__json_next(&d,
            a)) args[n++] = a->f;
        if (strcmp(op, "batch") == 0) ckpt_next_batch(&t, (int64_t)args[0], (int64_t)args[1], args[2]);
        else if (strcmp(op, "epoch") == 0) ckpt_next_epoch(&t, args[0]);
        else if (strcmp(op, "iteration") == 0) ckpt_next_iteration(&t, args[0]);
        else assert_string_equal(op, "init");
        ckpt_timestamp want = json_timestamp(&d, ckpt__json_get(&d, row, "state"));
        if (memcmp(&t, &want, sizeof t) != 0) fail_msg("timestamp_progress.json row %d (%s)", rows + 1, op);
    }
    assert_int_equal(rows, 8);
    ckpt__json_free(&d);
    ckpt_next_batch(NULL, 1, 1, 1);
    ckpt_next_epoch(NULL, 1);
    ckpt_next_iteration(NULL, 1);
    t.sample = INT64_MAX - 1;
    ckpt_next_batch(&t, 5, INT64_MIN, 0);
    assert_int_equal(t.sample, INT64_MAX);
}

static void test_check(void **state) {
    (void)state;
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    assert_int_equal(ckpt__time_check(&t), CKPT_OK);
    int64_t *const counters[] = { &t.iteration, &t.epoch, &t.batch, &t.sample, &t.token, &t.epoch_in_iteration,
        &t.token_in_iteration,
                                  &t.batch_in_epoch, &t.sample_in_epoch, &t.token_in_epoch };
    double *const clocks[] = { &t.total_wct, &t.iteration_wct, &t.epoch_wct, &t.batch_wct };
    const double wrong[] = { -1, (double)NAN, (double)INFINITY };
    for (int i = 0; i < UTIL_COUNT(counters); i++) {
        *counters[i] = -1;
        assert_int_equal(ckpt__time_check(&t), CKPT_ARG);
        *counters[i] = INT64_MAX;
        assert_int_equal(ckpt__time_check(&t), CKPT_OK);
    }
    for (int i = 0; i < UTIL_COUNT(clocks); i++) {
        for (int j = 0; j < UTIL_COUNT(wrong); j++) {
            *clocks[i] = wrong[j];
            assert_int_equal(ckpt__time_check(&t), CKPT_ARG);
        }
        *clocks[i] = 1e9;
    }
    assert_int_equal(ckpt__time_get(&t, CKPT_SECOND), 1000000000);
    assert_int_equal(ckpt__time_get(&t, CKPT_DURATION), 0);
    t.total_wct = 1e300;
    assert_int_equal(ckpt__time_get(&t, CKPT_SECOND), INT64_MAX);
}

//-- the scheduler ---------------------------------------------------------------

static void test_single_call(void **state) {
    (void)state;
    util_table t = cases_tsv("interval_single_call.tsv");
    for (int i = 0; i < t.rows; i++) {
        ckpt_timestamp prev, now;
        ckpt__time_schedule s;
        memset(&prev, 0, sizeof prev);
        memset(&now, 0, sizeof now);
        prev.batch = cases_int(&t, i, "prev_batch");
        prev.total_wct = (double)cases_int(&t, i, "prev_total_wct");
        now.batch = cases_int(&t, i, "batch");
        now.total_wct = (double)cases_int(&t, i, "total_wct");
        ckpt_time max = { CKPT_EPOCH, 0, 0 }, length = max;
        double elapsed;
        assert_int_equal(ckpt_time_parse(&max, cases_text(&t, i, "max_duration")), CKPT_OK);
        assert_int_equal(ckpt_time_parse(&length, cases_text(&t, i, "dataloader_len")), CKPT_OK);
        assert_true(ckpt__txt_double(ckpt__txt_view(cases_text(&t, i, "elapsed_duration")), &elapsed));
        assert_string_equal(cases_text(&t, i, "event"), "batch_checkpoint");
        assert_int_equal(ckpt__time_schedule_init(&s, cases_text(&t, i, "interval"), cases_text(&t, i, "max_duration"),
            length.value), CKPT_OK);
        // The tests set the elapsed share by hand, apart from the counters; here the counter of max_duration's unit must show it.
        // Epochs are not what these intervals are tested on; a batch counter that is past the end already would be.
        if (max.unit == CKPT_EPOCH) now.epoch = elapsed >= 1 ? max.value : 0;
        else if (elapsed >= 1) s.max = now.batch > 0 ? now.batch : (s.max_unit = CKPT_SECOND, 1);
        bool want = cases_true(&t, i, "fires");
        if (ckpt__time_due(&s, &prev, &now, CKPT_BATCH_CHECKPOINT) != want) fail_msg("interval_single_call.tsv row %d", i + 1);
    }
}

typedef struct run {
    ckpt__time_schedule s;
    ckpt_timestamp      t, prev;
    int64_t             last_saved;
    int                 saves, yes;
    ckpt__buf           list;
} run;

// One event, as the saver treats it: the scheduler is asked first, then a batch that is saved already is passed over.
static void run_event(run *r, ckpt_event event) {
    static const char letters[] = "BEI";
    if (!ckpt__time_due(&r->s, &r->prev, &r->t, event)) return;
    r->yes++;
    if (r->t.batch == r->last_saved) return;
    r->last_saved = r->t.batch;
    r->saves++;
    ckpt__buf_fmt(&r->list, "%s%c:%lld:%lld:%lld", r->list.len > 0 ? " " : "", letters[event], (long long)r->t.iteration,
                  (long long)r->t.epoch, (long long)r->t.batch);
}

static void run_iteration(run *r) {
    r->prev = r->t;
    ckpt_next_iteration(&r->t, 0);
    run_event(r, CKPT_ITERATION_CHECKPOINT);
}

// The trainer's loop (SPEC 1.2 and 3.4): BATCH_CHECKPOINT after the batch is counted; an epoch ends where its batches end, also
// when the training ends there; EPOCH_CHECKPOINT after the epoch is counted; ITERATION_CHECKPOINT after the iteration is. An
// iteration measured in tokens ends inside the batch loop and starts the dataloader anew; the recorded run of that kind never
// counts an epoch and was cut off after 400 batches.
static void run_training(run *r, const util_table *t, int row, ckpt_time max, const ckpt_time *iteration) {
    int64_t batches = cases_int(t, row, "batches_per_epoch"), samples = cases_int(t, row, "samples_per_batch");
    int64_t last = cases_get(t, row, "samples_in_last_batch") == NULL ? samples : cases_int(t, row, "samples_in_last_batch");
    int64_t tokens = cases_int(t, row, "tokens_per_batch");
    double seconds = (double)cases_int(t, row, "seconds_per_batch");
    bool by_tokens = iteration != NULL && iteration->unit == CKPT_TOKEN;
    while (ckpt__time_get(&r->t, max.unit) < max.value && r->t.batch < 400) {
        bool stopped = false;
        while (!stopped && r->t.batch_in_epoch < batches) {
            r->prev = r->t;
            ckpt_next_batch(&r->t, r->t.batch_in_epoch + 1 == batches ? last : samples, tokens, seconds);
            run_event(r, CKPT_BATCH_CHECKPOINT);
            stopped = ckpt__time_get(&r->t, max.unit) >= max.value;
            if (by_tokens && r->t.token_in_iteration >= iteration->value) {
                run_iteration(r);
                stopped = true;
            }
        }
        if (r->t.batch_in_epoch != batches) continue;
        r->prev = r->t;
        ckpt_next_epoch(&r->t, 0);
        run_event(r, CKPT_EPOCH_CHECKPOINT);
        if (iteration != NULL && !by_tokens && r->t.epoch_in_iteration >= iteration->value) run_iteration(r);
    }
}

static const left_row schedule_left[] = {
    { "0dur 2ep true", "error", "refused when the saver is opened (Composer: ZeroDivisionError in training)" },
    { "-0.5dur 2ep true", "error", "a share of the training is more than 0: refused with 0dur (Composer: as 0.5dur)" },
    { "0.07dur 100ba true",
      "B:0:1:7 B:0:2:14 B:0:4:21 B:0:5:28 B:0:6:35 B:0:8:42 B:0:9:49 B:0:11:56 B:0:12:63 B:0:13:70 B:0:15:77 B:0:16:84 "
      "B:0:18:91 B:0:19:98 B:0:19:100",
      "7 % of 100 is 7 (Composer: 8, the double product rounded up)" },
    { "0.5dur 10ba false", "B:0:0:5 B:0:1:10",
    "the length of the dataloader is needed for max_duration in epochs only (Composer: RuntimeError)" },
    { "0.1dur 100sec true",
      "B:0:1:10 B:0:3:20 B:0:5:30 B:0:7:40 B:0:9:50 B:0:11:60 "
      "B:0:13:70 B:0:15:80 B:0:17:90 B:0:19:100",
      "a share of seconds and of iterations saves too (Composer: silently only at the end)" }
};

static void test_schedule(void **state) {
    (void)state;
    util_table t = cases_tsv("interval_schedule.tsv");
    int left = 0;
    for (int i = 0; i < t.rows; i++) {
        const char *interval = cases_text(&t, i, "interval"), *max_text = cases_text(&t, i, "max_duration");
        const char *key = util_fmt("%s %s %s", interval, max_text, cases_text(&t, i, "dataloader_sized"));
        const left_row *l = find_left(schedule_left, UTIL_COUNT(schedule_left), key, cases_text(&t, i, "source"));
        const char *want = strcmp(cases_text(&t, i, "status"), "ok") == 0 ? cases_text(&t, i,
            "saves_event:iteration:epoch:batch") : "error";
        if (l != NULL) { want = l->ours; left++; }
        assert_true(cases_true(&t, i, "include_end_of_training"));
        run r;
        memset(&r, 0, sizeof r);
        ckpt__buf_init(&r.list, NULL);
        r.last_saved = -1;
        const char *start = cases_get(&t, i, "start_json");
        if (start != NULL) {
            ckpt__json_doc d;
            assert_int_equal(ckpt__json_parse(&d, NULL, start, strlen(start)), CKPT_OK);
            r.t = json_timestamp(&d, ckpt__json_root(&d));
            ckpt__json_free(&d);
        }
        int64_t length = cases_true(&t, i, "dataloader_sized") ? cases_int(&t, i, "batches_per_epoch") : 0;
        ckpt_err e = ckpt__time_schedule_init(&r.s, interval, max_text, length);
        ckpt_time max = { CKPT_EPOCH, 0, 0 }, iteration = max;
        const char *each = cases_get(&t, i, "iteration_length");
        assert_int_equal(ckpt_time_parse(&max, max_text), CKPT_OK);
        if (each != NULL) assert_int_equal(ckpt_time_parse(&iteration, each), CKPT_OK);
        if (e == CKPT_OK) run_training(&r, &t, i, max, each != NULL ? &iteration : NULL);
        const char *got = e == CKPT_OK ? ckpt__buf_cstr(&r.list) : "error";
        if (strcmp(got, want) != 0) fail_msg("interval_schedule.tsv row %d (%s):\nwant %s\ngot  %s", i + 1, key, want, got);
        if (e == CKPT_OK && l == NULL) {
            assert_int_equal(r.saves, cases_int(&t, i, "saves"));
            if (r.yes != cases_int(&t, i,
                "scheduler_true_count")) fail_msg("interval_schedule.tsv row %d (%s): %d times yes", i + 1, key, r.yes);
        }
        ckpt__buf_free(&r.list);
    }
    assert_int_equal(left, UTIL_COUNT(schedule_left));
    printf("interval_schedule.tsv: %d rows, %d left on purpose (item 27, and batches_per_epoch where it is needed)\n",
        t.rows, left);
}

static void test_schedule_errors(void **state) {
    (void)state;
    ckpt__time_schedule s;
    static const struct { const char *interval, *max; int64_t batches; const char *says; } bad[] = {
        { "", NULL, 0, "save_interval" }, { "1.5", NULL, 0, "save_interval" }, { "x", NULL, 0, "save_interval" },
        { "0.1dur", NULL, 0, "set max_duration" },
        { "0.1dur", "2ep", 0, "batches_per_epoch" }, { "0dur", "2ep", 5, "more than 0" },
        { "nandur", "2ep", 5, "must be a finite number" }, { "infdur", "2ep", 5, "must be a finite number" },
        { "1ep", "0ep", 0, "max_duration" }, { "1ep", "-1ep", 0, "max_duration" }, { "1ep", "1dur", 0, "max_duration" },
        { "1ep", "", 0, "max_duration" }
    };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        if (ckpt__time_schedule_init(&s, bad[i].interval, bad[i].max,
            bad[i].batches) != CKPT_ARG) fail_msg("taken: %s of %s", bad[i].interval, bad[i].max);
        if (strstr(ckpt_last_error(), bad[i].says) == NULL) fail_msg("%s of %s: %s", bad[i].interval, bad[i].max,
            ckpt_last_error());
    }
    assert_int_equal(ckpt__time_schedule_init(&s, NULL, NULL, 0), CKPT_OK);
    assert_true(s.unit == CKPT_EPOCH && s.every == 1 && s.event == CKPT_EPOCH_CHECKPOINT);
    ckpt_timestamp now;
    memset(&now, 0, sizeof now);
    now.epoch = 5;
    assert_false(ckpt__time_due(&s, NULL, &now, CKPT_EPOCH_CHECKPOINT));        // no previous timestamp
}

static int64_t share(double fraction, int64_t max, int64_t batches) {
    int64_t every = -1;
    assert_true(ckpt__time_share(max, fraction, batches, &every));
    return every;
}

// Every share that two decimals can write, of every length up to 1000: exactly ceil, as integers have it.
static void test_shares(void **state) {
    (void)state;
    for (int64_t percent = 1; percent <= 150; percent++) {
        for (int64_t max = 1; max <= 1000; max++) {
            int64_t want = (percent * max + 99) / 100;
            if (share((double)percent / 100, max, 1) != want) fail_msg("%d %% of %d", (int)percent, (int)max);
            if (share((double)percent / 100, 1, max) != want) fail_msg("%d %% of 1 x %d", (int)percent, (int)max);
        }
    }
    assert_int_equal(share(0.1, 1000000000000000000, 1), 100000000000000000);
    assert_int_equal(share(1e-300, 5, 1), 1);
    assert_int_equal(share(0.123456789, 1000000000, 1), 123456789);
    assert_int_equal(share(0.1234567891, 1000000000, 1), 123456790);
    int64_t every;
    assert_false(ckpt__time_share(INT64_MAX, 2, INT64_MAX, &every));
}

// A share of batches or of epochs is due as the same interval in batches is, also where the counter moves by more than one, and
// not again at a timestamp that was resumed from.
static void test_shares_in_strides(void **state) {
    (void)state;
    static const struct { const char *share, *max; int64_t each; const char *interval; } rows[] = {
        { "0.1dur", "100ba", 0, "10ba" }, { "0.1dur", "10ep", 10, "10ba" }, { "0.05dur", "20ep", 5, "5ba" }, { "0.07dur", "100ba", 0, "7ba" },
        { "0.5dur", "2ba", 0, "1ba" }
    };
    for (int i = 0; i < UTIL_COUNT(rows) * 20; i++) {
        ckpt__time_schedule share, whole;
        ckpt_timestamp prev, now;
        int k = i / 20, stride = i % 5 + 1;
        memset(&prev, 0, sizeof prev);
        prev.batch = i % 4;
        assert_int_equal(ckpt__time_schedule_init(&share, rows[k].share, rows[k].max, rows[k].each), CKPT_OK);
        assert_int_equal(ckpt__time_schedule_init(&whole, rows[k].interval, rows[k].max, 0), CKPT_OK);
        for (now = prev; now.batch < 120; prev = now) {
            now.batch += stride;
            bool want = ckpt__time_due(&whole, &prev, &now, CKPT_BATCH_CHECKPOINT);
            if (ckpt__time_due(&share, &prev, &now, CKPT_BATCH_CHECKPOINT) != want)
                fail_msg("%s of %s, batch %d, by %d", rows[k].share, rows[k].max, (int)now.batch, stride);
            share.last = now;       // what the end of training says is nobody's business here
            assert_false(ckpt__time_due(&share, &now, &now, CKPT_BATCH_CHECKPOINT));
            assert_false(ckpt__time_due(&share, &prev, &now, CKPT_EPOCH_CHECKPOINT));
            whole.last = share.last;
        }
    }
}

// The remembered cell never changes an answer: compared with plain division over random walks, forwards and back.
static void test_cells(void **state) {
    (void)state;
    uint64_t seed = 4711;
    for (int round = 0; round < 2000; round++) {
        ckpt__time_schedule s;
        ckpt_timestamp prev, now;
        memset(&prev, 0, sizeof prev);
        int64_t every = (int64_t)(seed >> 33) % 50 + 1;
        assert_int_equal(ckpt__time_schedule_init(&s, util_fmt("%dsp", (int)every), NULL, 0), CKPT_OK);
        for (int i = 0; i < 100; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            now = prev;
            now.batch++;
            now.sample += (int64_t)(seed >> 40) % 40;
            if (seed >> 60 == 0) now.sample = (int64_t)(seed >> 40) % 1000;
            bool want = prev.sample / every != now.sample / every;
            assert_int_equal(ckpt__time_due(&s, &prev, &now, CKPT_BATCH_CHECKPOINT), want);
            assert_false(ckpt__time_due(&s, &prev, &now, CKPT_EPOCH_CHECKPOINT));
            prev = now;
        }
    }
}

// A call when nothing is due costs nanoseconds; the limit is wide because tests share the machine and may run under sanitizers.
static void test_cost(void **state) {
    (void)state;
    ckpt__time_schedule s;
    ckpt_timestamp prev, now;
    memset(&prev, 0, sizeof prev);
    assert_int_equal(ckpt__time_schedule_init(&s, "1000000000ba", "2000000000ba", 0), CKPT_OK);
    enum { CALLS = 2000000 };
    clock_t start = clock();
    for (int i = 0; i < CALLS; i++) {
        now = prev;
        now.batch++;
        assert_false(ckpt__time_due(&s, &prev, &now, CKPT_BATCH_CHECKPOINT));
        prev = now;
    }
    double ns = (double)(clock() - start) * 1e9 / CLOCKS_PER_SEC / CALLS;
    printf("a decision when nothing is due: %.1f ns\n", ns);
    assert_true(ns < 1000);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse), cmocka_unit_test(test_parse_more), cmocka_unit_test(test_format),
            cmocka_unit_test(test_unit_names),
        cmocka_unit_test(test_from_input), cmocka_unit_test(test_math), cmocka_unit_test(test_progress),
            cmocka_unit_test(test_check),
        cmocka_unit_test(test_single_call), cmocka_unit_test(test_schedule), cmocka_unit_test(test_schedule_errors),
            cmocka_unit_test(test_shares), cmocka_unit_test(test_shares_in_strides),
        cmocka_unit_test(test_cells), cmocka_unit_test(test_cost)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
