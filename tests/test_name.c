// Proves >>name: Composer's format language, rank variables of every launcher, the inverse match, the conflict check, run names.
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <time.h>

// A row of a table where this library answers otherwise on purpose: counted and printed, never skipped in silence.
typedef struct left_row { const char *key, *ours, *why; } left_row;

static const left_row *find_left(const left_row *rows, int count, const char *key) {
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].key, key) == 0) return &rows[i];
    }
    return NULL;
}

static int64_t json_int(const ckpt__json_doc *d, const ckpt__json *object, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, object, key);
    return v == NULL ? 0 : v->i;
}

static double json_float(const ckpt__json_doc *d, const ckpt__json *object, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, object, key);
    return v == NULL ? 0.0 : v->f;
}

static ckpt_timestamp json_timestamp(const ckpt__json_doc *d, const ckpt__json *o) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.iteration = json_int(d, o, "iteration");
    t.epoch = json_int(d, o, "epoch");
    t.batch = json_int(d, o, "batch");
    t.sample = json_int(d, o, "sample");
    t.token = json_int(d, o, "token");
    t.epoch_in_iteration = json_int(d, o, "epoch_in_iteration");
    t.token_in_iteration = json_int(d, o, "token_in_iteration");
    t.batch_in_epoch = json_int(d, o, "batch_in_epoch");
    t.sample_in_epoch = json_int(d, o, "sample_in_epoch");
    t.token_in_epoch = json_int(d, o, "token_in_epoch");
    t.total_wct = json_float(d, o, "total_wct");
    t.iteration_wct = json_float(d, o, "iteration_wct");
    t.epoch_wct = json_float(d, o, "epoch_wct");
    t.batch_wct = json_float(d, o, "batch_wct");
    return t;
}

static ckpt__json_doc json_open(const char *text) {
    ckpt__json_doc d;
    if (ckpt__json_parse(&d, NULL, text, strlen(text)) != CKPT_OK) fail_msg("%s: %s", text, ckpt_last_error());
    return d;
}

// The environment holds the variables of that JSON object and no others that the library reads.
static void clear_env(void) {
    util_clear_env();
    unsetenv("GROUP_RANK");
    unsetenv("SLURM_TASKS_PER_NODE");
}

static void set_env(const char *json) {
    ckpt__json_doc d = json_open(json);
    clear_env();
    for (const ckpt__json *v = ckpt__json_child(&d, ckpt__json_root(&d)); v != NULL; v = ckpt__json_next(&d,
        v)) setenv(v->key, v->text, 1);
    ckpt__json_free(&d);
}

// What a JSON value is as text in Python.
static const char *json_shown(const ckpt__json *v) {
    if (v->kind == CKPT__JSON_NULL) return "None";
    if (v->kind == CKPT__JSON_BOOL) return v->i != 0 ? "True" : "False";
    return v->text;
}

static void compare(const char *table, int row, ckpt_err e, const char *got, const char *status, const char *want) {
    bool ok = strcmp(status, "ok") == 0;
    if (e != CKPT_OK && e != CKPT_ARG) fail_msg("%s row %d: %s", table, row + 1, ckpt_last_error());
    if ((e == CKPT_OK) != ok) fail_msg("%s row %d: %s, want %s", table, row + 1, e == CKPT_OK ? got : ckpt_last_error(),
        status);
    if (ok && strcmp(got, want) != 0) fail_msg("%s row %d: '%s', want '%s'", table, row + 1, got, want);
}

//-- tables ----------------------------------------------------------------------

static void test_name_format(void **state) {
    (void)state;
    util_table t = cases_tsv("name_format.tsv");
    for (int i = 0; i < t.rows; i++) {
        set_env(cases_text(&t, i, "env_json"));
        const char *stamp = cases_get(&t, i, "timestamp_json");
        ckpt__json_doc d = json_open(stamp != NULL ? stamp : "{}"), x = json_open(cases_text(&t, i, "extra_json"));
        ckpt_timestamp at = json_timestamp(&d, ckpt__json_root(&d));
        ckpt_name_var extra[4];
        ckpt_name_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.run_name = cases_text(&t, i, "run_name");
        desc.timestamp = stamp != NULL ? &at : NULL;
        desc.extra = extra;
        for (const ckpt__json *v = ckpt__json_child(&x, ckpt__json_root(&x)); v != NULL; v = ckpt__json_next(&x, v)) {
            extra[desc.extra_count].name = v->key;
            extra[desc.extra_count++].text = json_shown(v);
        }
        char name[1024];
        ckpt_err e = ckpt_format_name(name, sizeof name, cases_text(&t, i, "format"), &desc);
        compare("name_format.tsv", i, e, name, cases_text(&t, i, "status"), cases_text(&t, i, "result"));
        ckpt__json_free(&d);
        ckpt__json_free(&x);
    }
    clear_env();
    printf("name_format.tsv: %d rows, 0 left\n", t.rows);
}

// The table formats numbers under names of its own. Extra variables are text here, so {epoch} is the timestamp's, {f} becomes
// {total_wct}, and values without a spec are given as Python would show them. Positional values are extras without a name.
static void test_partial_format(void **state) {
    (void)state;
    clear_env();
    util_table t = cases_tsv("partial_format.tsv");
    for (int i = 0; i < t.rows; i++) {
        ckpt__json_doc a = json_open(cases_text(&t, i, "args_json")), k = json_open(cases_text(&t, i, "kwargs_json"));
        ckpt_name_var extra[8];
        ckpt_timestamp at;
        ckpt_name_desc desc;
        const char *format = cases_text(&t, i, "format");
        memset(&desc, 0, sizeof desc);
        memset(&at, 0, sizeof at);
        desc.extra = extra;
        for (const ckpt__json *v = ckpt__json_child(&a, ckpt__json_root(&a)); v != NULL; v = ckpt__json_next(&a, v)) {
            extra[desc.extra_count].name = "";
            extra[desc.extra_count++].text = json_shown(v);
        }
        for (const ckpt__json *v = ckpt__json_child(&k, ckpt__json_root(&k)); v != NULL; v = ckpt__json_next(&k, v)) {
            if (strcmp(v->key, "epoch") == 0) { at.epoch = v->i; desc.timestamp = &at; }
            else if (strcmp(v->key, "run_name") == 0) desc.run_name = v->text;
            else if (strcmp(v->key, "f") == 0) {
                at.total_wct = v->f;
                desc.timestamp = &at;
                assert_memory_equal(format, "{f", 2);
                format = util_fmt("{total_wct%s", format + 2);
            } else {
                extra[desc.extra_count].name = v->key;
                extra[desc.extra_count++].text = json_shown(v);
            }
        }
        char name[256];
        ckpt_err e = ckpt_format_name(name, sizeof name, format, &desc);
        compare("partial_format.tsv", i, e, name, cases_text(&t, i, "status"), cases_text(&t, i, "result"));
        ckpt__json_free(&a);
        ckpt__json_free(&k);
    }
    printf("partial_format.tsv: %d rows, 0 left\n", t.rows);
}

static int rank_field(const ckpt_ranks *r, const char *name) {
    if (strcmp(name, "rank") == 0) return r->rank;
    if (strcmp(name, "local_rank") == 0) return r->local_rank;
    if (strcmp(name, "world_size") == 0) return r->world_size;
    if (strcmp(name, "local_world_size") == 0) return r->local_world_size;
    assert_string_equal(name, "node_rank");
    return r->node_rank;
}

// A process group is a caller that fills ckpt_ranks: rank and size from the group, the rest from where it likes (here: the row's
// environment). All five numbers are then there, so Composer's "variable missing although a group exists" cannot come up; those
// rows, one of them asserted by a test of Composer's, are counted as such.
static void test_dist_env(void **state) {
    (void)state;
    util_table t = cases_tsv("dist_env.tsv");
    int no_group = 0, left = 0;
    for (int i = 0; i < t.rows; i++) {
        const char *variable = cases_text(&t, i, "variable"), *status = cases_text(&t, i, "status"), *env = cases_text(&t,
            i, "env_json");
        ckpt_ranks given, got;
        memset(&given, 0, sizeof given);
        set_env(env);
        if (strcmp(status, "MissingEnvironmentError") == 0) {
            assert_true(cases_true(&t, i, "dist_initialized"));
            no_group++;
            continue;
        }
        if (cases_true(&t, i, "dist_initialized")) {
            int numbers[CKPT__NAME_RANKS];
            assert_int_equal(ckpt__name_ranks_env(numbers), CKPT_OK);
            given.rank = (int)cases_int(&t, i, "dist_rank");
            given.world_size = (int)cases_int(&t, i, "dist_world_size");
            given.local_rank = numbers[2] < 0 ? 0 : numbers[2];
            given.local_world_size = numbers[3] < 0 ? 0 : numbers[3];
        }
        ckpt_err e = ckpt__name_ranks(&got, &given);
        const char *value = e == CKPT_OK ? util_fmt("%d", rank_field(&got, variable)) : "";
        if (strcmp(env, "{\"RANK\": \"abc\"}") == 0 && strcmp(variable, "local_world_size") == 0) {
            // Composer reads one variable at a time; here all five are read together, and garbage in one is an error.
            assert_int_equal(cases_text(&t, i, "source")[0], 'O');
            assert_int_equal(e, CKPT_ARG);
            left++;
            continue;
        }
        compare("dist_env.tsv", i, e, value, status, cases_text(&t, i, "value"));
    }
    clear_env();
    assert_int_equal(no_group, 5);
    assert_int_equal(left, 1);
    printf("dist_env.tsv: %d rows, %d cannot come up (no process group without its five numbers), %d left on purpose "
           "(garbage in any variable is an error)\n",
           t.rows, no_group, left);
}

static const char *load_path(const char *path, const char *run_name, ckpt_err *e) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    *e = ckpt__name_load_path(&b, path, run_name);
    const char *text = util_fmt("%s", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return text;
}

static void test_load_path(void **state) {
    (void)state;
    ckpt_err e;
    util_table t = cases_tsv("load_path_rank_zero.tsv");
    for (int i = 0; i < t.rows; i++) {
        const char *got = load_path(cases_text(&t, i, "path"), NULL, &e);
        compare("load_path_rank_zero.tsv", i, e, got, cases_text(&t, i, "status"), cases_text(&t, i, "result"));
    }
    t = cases_tsv("load_path_run_name.tsv");
    for (int i = 0; i < t.rows; i++) {
        const char *got = load_path(cases_text(&t, i, "path"), cases_text(&t, i, "run_name"), &e);
        compare("load_path_run_name.tsv", i, e, got, cases_text(&t, i, "status"), cases_text(&t, i, "result"));
    }
    assert_string_equal(load_path("{run_name}/latest-rank{rank}.pt", "{rank}", &e), "{rank}/latest-rank0.pt");   // filled once
    (void)load_path("{run_name}/x", NULL, &e);
    assert_int_equal(e, CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "{run_name} is not known"));
}

static void test_run_name(void **state) {
    (void)state;
    size_t size;
    ckpt__json_doc d = json_open(util_read(util_tests_path("cases/run_name.json"), &size));
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    int rows = 0;
    for (const ckpt__json *row = ckpt__json_child(&d, ckpt__json_root(&d)); row != NULL; row = ckpt__json_next(&d, row),
        rows++) {
        clear_env();
        for (const ckpt__json *v = ckpt__json_child(&d, ckpt__json_get(&d, row, "env")); v != NULL; v = ckpt__json_next(&d,
            v)) setenv(v->key, v->text, 1);
        const ckpt__json *arg = ckpt__json_get(&d, row, "arg");
        b.len = 0;
        assert_int_equal(ckpt__name_run(&b, arg->kind == CKPT__JSON_TEXT ? arg->text : NULL), CKPT_OK);
        assert_string_equal(ckpt__buf_cstr(&b), ckpt__json_get(&d, row, "result")->text);
    }
    assert_int_equal(rows, 2);
    ckpt__json_free(&d);
    setenv("COMPOSER_RUN_NAME", "first", 1);
    setenv("RUN_NAME", "second", 1);
    b.len = 0;
    assert_int_equal(ckpt__name_run(&b, "given"), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&b), "given");
    b.len = 0;
    assert_int_equal(ckpt__name_run(&b, NULL), CKPT_OK);
    assert_string_equal(ckpt__buf_cstr(&b), "first");
    clear_env();
    bool differ = false;
    char before[128] = "";
    for (int i = 0; i < 20; i++) {
        b.len = 0;
        assert_int_equal(ckpt__name_run(&b, ""), CKPT_OK);
        const char *name = ckpt__buf_cstr(&b), *dash = strchr(name, '-');
        assert_true(dash != NULL && strchr(dash + 1, '-') != NULL && strlen(name) < sizeof before);
        assert_int_equal(strspn(name, "0123456789"), dash - name);
        assert_int_equal(strspn(dash, "-abcdefghijklmnopqrstuvwxyz"), strlen(dash));
        assert_true(llabs(strtoll(name, NULL, 10) - (long long)time(NULL)) <= 5);
        if (i > 0 && strcmp(before, name) != 0) differ = true;
        strcpy(before, name);
    }
    assert_true(differ);
    ckpt__buf_free(&b);
}

static const left_row conflict_left[] = {
    { "ep{epoch}.pt [\"ep5xpt\"]", "ok", "a '.' in the format is a '.'" },
    { "c[1]-ep{epoch}.pt [\"c[1]-ep5.pt\"]", "FileExistsError", "brackets in the format are brackets" },
    { "{run_name}-ep{epoch}.pt [\"x-ep5.pt\"]", "FileExistsError", "{run_name} is filled (the run is called x here)" },
    { "ep{epoch}-{total_wct}.pt [\"ep5-1.0.pt\"]", "FileExistsError", "clocks match a float" },
    { "ep{epoch:03d}.pt [\"ep005.pt\"]", "FileExistsError", "format specs are read back" },
    { "ep{epoch}-{foo}.pt [\"ep5-x.pt\"]", "FileExistsError", "an unknown variable matches any text" },
    { "it{iteration}.pt [\"it5.pt\"]", "ok", "{iteration} is no variable (SPEC 2.2), so nothing in the name tells a time" },
    { "ep{epoch}.pt [\"ep\xD9\xA5.pt\"]", "ok", "counters are written in ASCII digits" }
};

static void test_folder_conflict(void **state) {
    (void)state;
    util_table t = cases_tsv("folder_conflict.tsv");
    int left = 0;
    for (int i = 0; i < t.rows; i++) {
        const char *format = cases_text(&t, i, "filename_format"), *files = cases_text(&t, i, "files_json"),
            *want = cases_text(&t, i, "status");
        set_env(cases_text(&t, i, "env_json"));
        ckpt__json_doc stamp = json_open(cases_text(&t, i, "timestamp_json")), list = json_open(files);
        ckpt_timestamp at = json_timestamp(&stamp, ckpt__json_root(&stamp));
        ckpt_name_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.run_name = "x";
        desc.timestamp = &at;
        const left_row *l = find_left(conflict_left, UTIL_COUNT(conflict_left), util_fmt("%s %s", format, files));
        if (l != NULL) {
            assert_int_equal(cases_text(&t, i, "source")[0], 'O');
            want = l->ours;
            left++;
        }
        const char *got = "ok";
        for (const ckpt__json *f = ckpt__json_child(&list, ckpt__json_root(&list)); f != NULL; f = ckpt__json_next(&list, f)) {
            ckpt_err e = ckpt__name_conflict(format, &desc, f->text);
            if (e == CKPT_EXISTS) got = "FileExistsError";
            else if (e != CKPT_OK) got = ckpt_err_name(e);
        }
        if (strcmp(got, want) != 0) fail_msg("folder_conflict.tsv row %d (%s %s): %s", i + 1, format, files, got);
        ckpt__json_free(&stamp);
        ckpt__json_free(&list);
    }
    clear_env();
    assert_int_equal(left, UTIL_COUNT(conflict_left));
    printf("folder_conflict.tsv: %d rows, %d left on purpose (item 24: the format is matched as a format, not as a regular "
           "expression)\n", t.rows, left);
}

//-- formatting ------------------------------------------------------------------

static ckpt_timestamp stamp(int64_t epoch, int64_t batch, double total) {
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    t.epoch = epoch;
    t.batch = batch;
    t.total_wct = total;
    return t;
}

// What Python 3.11 answers; NULL where it raises.
static void test_specs(void **state) {
    (void)state;
    clear_env();
    static const struct { const char *format, *want; } rows[] = {
        { "{batch:09,}", "0,001,234" }, { "{batch:010,}", "00,001,234" }, { "{batch:08,}", "0,001,234" },
        { "{batch:#010x}", "0x000004d2" }, { "{batch:#_b}", "0b100_1101_0010" },
        { "{batch:_x}", "4d2" }, { "{batch:,x}", NULL }, { "{batch:*<+9d}", "+1234****" }, { "{batch:=+9}", "+    1234" },
        { "{batch:\xE2\x82\xAC^8}", "\xE2\x82\xAC\xE2\x82\xAC" "1234\xE2\x82\xAC\xE2\x82\xAC" },
        { "{batch:.2}", NULL }, { "{batch:.2f}", "1234.00" }, { "{batch:e}", "1.234000e+03" }, { "{batch:c}", "\xD3\x92" },
        { "{batch:n}", "1234" }, { "{batch:q}", NULL }, { "{batch:dd}", NULL },
        { "{batch:,_}", NULL }, { "{batch!s:>6}", "  1234" }, { "{batch!s:d}", NULL }, { "{batch!s:.2}", "12" },
        { "{batch:5000}", NULL }, { "{batch:99999999999999999999}", NULL },
        { "{total_wct:,.2f}", "12,345,678.90" }, { "{total_wct:010.1e}", "0001.2e+07" }, { "{total_wct:.3}", "1.23e+07" },
        { "{total_wct:.20}", "12345678.900000000373" }, { "{total_wct:#.8g}", "12345679." },
        { "{total_wct:%}", "1234567890.000000%" }, { "{total_wct:.2E}", "1.23E+07" },
        { "{total_wct:x}", NULL }, { "{total_wct!r}", "12345678.9" },
        { "{total_wct.real}", "12345678.9" }, { "{total_wct.imag}", "0.0" },
        { "{epoch.denominator}", "1" }, { "{epoch.bit_length}", NULL }, { "{epoch[0]}", NULL },
        { "{run_name[1]}", "\xC3\xBC" }, { "{run_name[9]}", NULL }, { "{run_name[-1]}", NULL }, { "{run_name.x}", NULL },
        { "{run_name[}", NULL }, { "{run_name[]}", NULL }, { "{run_name[0]x}", NULL }, { "{run_name!r}", "'r\xC3\xBCn'" },
        { "{run_name!a}", "'r\\xfcn'" }, { "{run_name:=8}", NULL }, { "{run_name:+}", NULL },
        { "{run_name:05}", "r\xC3\xBCn00" }, { "{run_name:.2}", "r\xC3\xBC" }, { "{run_name:,}", NULL }, { "{x!r}", "'{x}'" },
        { "{:>4}{}", "  {}{}" }, { "{0[0]}", "{" }, { "{10000}", NULL },
        { "{epoch:{epoch}}", "  3" }, { "{epoch:{epoch:{epoch}}}", NULL }, { "{epoch!}", NULL }, { "{epoch!rs}", NULL },
        { "{epoch!r", NULL }, { "{epoch:{", NULL }, { "{{}}", "{}" }, { "{{{{", "{{" }, { "}", NULL },
        { "{a{b}}", NULL }, { "{rank}{local_rank}{node_rank}{world_size}{local_world_size}", "00011" }
    };
    ckpt_timestamp t = stamp(3, 1234, 12345678.9);
    ckpt_name_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.timestamp = &t;
    desc.run_name = "r\xC3\xBCn";
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        char name[256];
        ckpt_err e = ckpt_format_name(name, sizeof name, rows[i].format, &desc);
        compare("specs", i, e, name, rows[i].want != NULL ? "ok" : "ValueError", rows[i].want);
        if (e != CKPT_OK) assert_string_equal(name, "");
    }
}

// Whatever the failure, what was in the buffer is gone.
static void refuses(char name[8], const char *format, const ckpt_name_desc *desc) {
    memcpy(name, "before", 7);
    assert_int_equal(ckpt_format_name(name, 8, format, desc), CKPT_ARG);
    assert_string_equal(name, "");
}

static void test_arguments(void **state) {
    (void)state;
    clear_env();
    char name[8];
    ckpt_name_desc desc;
    memset(&desc, 0, sizeof desc);
    assert_int_equal(ckpt_format_name(NULL, 8, "x", NULL), CKPT_ARG);
    assert_int_equal(ckpt_format_name(name, 0, "x", NULL), CKPT_ARG);
    refuses(name, NULL, NULL);
    assert_int_equal(ckpt_format_name(name, 8, "1234567", NULL), CKPT_OK);
    assert_string_equal(name, "1234567");
    refuses(name, "12345678", NULL);
    assert_non_null(strstr(ckpt_last_error(), "9 bytes are needed"));
    refuses(name, "{epoch", NULL);
    memcpy(name, "r{rank}", 8);
    assert_int_equal(ckpt_format_name(name, 8, name, NULL), CKPT_OK);           // in its place
    assert_string_equal(name, "r0");
    desc.extra_count = 1;
    refuses(name, "x", &desc);
    desc.extra_count = -1;
    refuses(name, "x", &desc);
    static const char *const taken[] = { "run_name", "rank", "world_size", "epoch", "batch_wct", "token_in_epoch" };
    for (int i = 0; i < UTIL_COUNT(taken); i++) {
        ckpt_name_var x = { taken[i], "1" };
        desc.extra = &x;
        desc.extra_count = 1;
        refuses(name, "x", &desc);
        assert_non_null(strstr(ckpt_last_error(), taken[i]));
    }
    ckpt_name_var empty = { NULL, "1" };
    desc.extra = &empty;
    refuses(name, "x", &desc);
}

//-- ranks -----------------------------------------------------------------------

static void test_launchers(void **state) {
    (void)state;
    // env, then rank, world size, local rank, local world size, node rank
    static const struct { const char *env; int n[5]; } rows[] = {
        { "{}", { 0, 1, 0, 1, 0 } },
        { "{\"OMPI_COMM_WORLD_RANK\":\"5\",\"OMPI_COMM_WORLD_SIZE\":\"8\",\"OMPI_COMM_WORLD_LOCAL_RANK\":\"1\","
          "\"OMPI_COMM_WORLD_LOCAL_SIZE\":\"4\",\"OMPI_COMM_WORLD_NODE_RANK\":\"1\"}",
          { 5, 8, 1, 4, 0 } },      // Open MPI's NODE_RANK is the place on the node, not the node's number
        { "{\"PMI_RANK\":\"6\",\"PMI_SIZE\":\"8\",\"MPI_LOCALRANKID\":\"2\",\"MPI_LOCALNRANKS\":\"4\"}", { 6, 8, 2, 4, 0 } },
        { "{\"SLURM_PROCID\":\"7\",\"SLURM_NTASKS\":\"9\",\"SLURM_LOCALID\":\"0\",\"SLURM_NODEID\":\"3\","
          "\"SLURM_TASKS_PER_NODE\":\"2(x3),3\"}", { 7, 9, 0, 3, 3 } },
        { "{\"SLURM_PROCID\":\"3\",\"SLURM_NTASKS\":\"9\",\"SLURM_LOCALID\":\"1\",\"SLURM_NODEID\":\"1\","
          "\"SLURM_TASKS_PER_NODE\":\"2(x3),3\"}", { 3, 9, 1, 2, 1 } },
        { "{\"SLURM_PROCID\":\"3\",\"SLURM_NTASKS\":\"8\",\"SLURM_LOCALID\":\"1\",\"SLURM_NODEID\":\"0\","
          "\"SLURM_NTASKS_PER_NODE\":\"4\"}", { 3, 8, 1, 4, 0 } },
        // RANK or WORLD_SIZE speaks for all; else a single LOCAL_RANK or NODE_RANK speaks for itself.
        { "{\"RANK\":\"1\",\"WORLD_SIZE\":\"2\",\"OMPI_COMM_WORLD_RANK\":\"5\",\"OMPI_COMM_WORLD_SIZE\":\"8\","
          "\"OMPI_COMM_WORLD_LOCAL_RANK\":\"3\"}", { 1, 2, 0, 1, 0 } },
        { "{\"NODE_RANK\":\"2\",\"OMPI_COMM_WORLD_RANK\":\"5\",\"OMPI_COMM_WORLD_SIZE\":\"8\","
          "\"OMPI_COMM_WORLD_NODE_RANK\":\"1\"}", { 5, 8, 0, 1, 2 } },
        { "{\"RANK\":\"3\",\"WORLD_SIZE\":\"4\",\"LOCAL_RANK\":\"1\",\"LOCAL_WORLD_SIZE\":\"2\",\"GROUP_RANK\":\"1\"}", { 3,
        4, 1, 2, 1 } },
        { "{\"OMPI_COMM_WORLD_RANK\":\"1\",\"OMPI_COMM_WORLD_SIZE\":\"2\",\"PMI_RANK\":\"3\",\"PMI_SIZE\":\"4\"}", { 1, 2,
        0, 1, 0 } },
        { "{\"PMI_RANK\":\"3\",\"PMI_SIZE\":\"4\",\"SLURM_PROCID\":\"0\",\"SLURM_NTASKS\":\"1\"}", { 3, 4, 0, 1, 0 } },
        { "{\"SLURM_NTASKS\":\"4\"}", { 0, 1, 0, 1, 0 } },              // an allocation, but no task of it
        { "{\"RANK\":\" +1_0 \",\"WORLD_SIZE\":\"16\"}", { 10, 16, 0, 1, 0 } },
        { "{\"RANK\":\"\",\"WORLD_SIZE\":\"\"}", { 0, 1, 0, 1, 0 } }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt_ranks r;
        set_env(rows[i].env);
        if (ckpt__name_ranks(&r, NULL) != CKPT_OK) fail_msg("%s: %s", rows[i].env, ckpt_last_error());
        int got[5] = { r.rank, r.world_size, r.local_rank, r.local_world_size, r.node_rank };
        for (int j = 0; j < 5; j++) {
            if (got[j] != rows[i].n[j]) fail_msg("%s: number %d is %d, want %d", rows[i].env, j, got[j], rows[i].n[j]);
        }
    }
    clear_env();
}

static void test_rank_errors(void **state) {
    (void)state;
    static const struct { const char *env, *says; } rows[] = {
        { "{\"RANK\":\"x\"}", "RANK is 'x'" }, { "{\"RANK\":\"3.0\"}", "RANK" }, { "{\"RANK\":\"-1\"}", "RANK is '-1'" },
        { "{\"WORLD_SIZE\":\"99999999999\"}", "WORLD_SIZE" }, { "{\"RANK\":\"1__0\"}", "RANK" },
        { "{\"RANK\":\"0\",\"LOCAL_RANK\":\"one\"}", "LOCAL_RANK is 'one'" },
        { "{\"RANK\":\"4\",\"WORLD_SIZE\":\"4\"}", "rank 4 of a world of 4" }, { "{\"WORLD_SIZE\":\"0\"}", "world" },
        { "{\"RANK\":\"0\",\"WORLD_SIZE\":\"4\",\"LOCAL_RANK\":\"2\",\"LOCAL_WORLD_SIZE\":\"2\"}", "local rank 2 of 2" },
        { "{\"OMPI_COMM_WORLD_RANK\":\"a\",\"OMPI_COMM_WORLD_SIZE\":\"2\"}", "OMPI_COMM_WORLD_RANK" },
        { "{\"PMI_RANK\":\"1\",\"PMI_SIZE\":\"2\",\"MPI_LOCALRANKID\":\"q\"}", "MPI_LOCALRANKID" },
        { "{\"SLURM_PROCID\":\"1\",\"SLURM_NTASKS\":\"2\",\"SLURM_TASKS_PER_NODE\":\"2(x\"}", "SLURM_TASKS_PER_NODE is '2(x'" },
        { "{\"SLURM_PROCID\":\"1\",\"SLURM_NTASKS\":\"2\",\"SLURM_TASKS_PER_NODE\":\"two\"}", "SLURM_TASKS_PER_NODE" },
        { "{\"SLURM_PROCID\":\"1\",\"SLURM_NTASKS\":\"2\",\"SLURM_TASKS_PER_NODE\":\"99999999999999999999\"}",
        "SLURM_TASKS_PER_NODE" }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt_ranks r;
        memset(&r, 0x11, sizeof r);
        set_env(rows[i].env);
        if (ckpt__name_ranks(&r, NULL) != CKPT_ARG) fail_msg("taken: %s", rows[i].env);
        if (strstr(ckpt_last_error(), rows[i].says) == NULL) fail_msg("%s: %s", rows[i].env, ckpt_last_error());
        assert_int_equal(r.rank, 0x11111111);
        char name[64];
        assert_int_equal(ckpt_format_name(name, sizeof name, "{rank}", NULL), CKPT_ARG);
    }
    clear_env();
}

static ckpt_err no_barrier(void *user) {
    (void)user;
    return CKPT_OK;
}

static void test_given_ranks(void **state) {
    (void)state;
    ckpt_ranks given, r;
    setenv("RANK", "garbage", 1);               // not looked at when the caller gives the numbers
    memset(&given, 0, sizeof given);
    given.rank = 3;
    given.world_size = 4;
    given.local_rank = 1;
    assert_int_equal(ckpt__name_ranks(&r, &given), CKPT_OK);
    assert_true(r.rank == 3 && r.world_size == 4 && r.local_rank == 1 && r.local_world_size == 1 && r.node_rank == 0);
    given.rank = 4;
    assert_int_equal(ckpt__name_ranks(&r, &given), CKPT_ARG);
    given.rank = -1;
    assert_int_equal(ckpt__name_ranks(&r, &given), CKPT_ARG);
    given.rank = 0;
    given.world_size = -4;
    assert_int_equal(ckpt__name_ranks(&r, &given), CKPT_ARG);
    given.world_size = 4;
    given.barrier = no_barrier;
    assert_int_equal(ckpt__name_ranks(&r, &given), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "three functions"));
    clear_env();
}

//-- the inverse -----------------------------------------------------------------

static bool matches(const char *format, const ckpt_name_desc *desc, const char *name, ckpt__name_found *found) {
    bool yes = false;
    if (ckpt__name_match(format, desc, name, &yes, found) != CKPT_OK) fail_msg("%s: %s", format, ckpt_last_error());
    return yes;
}

static void test_match(void **state) {
    (void)state;
    clear_env();
    ckpt__name_found f;
    ckpt_name_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.run_name = "a.b/c+";
    static const struct { const char *format, *name; bool yes; int64_t epoch, batch; } rows[] = {
        { "ep{epoch}-ba{batch}-rank{rank}.pt", "ep3-ba1500-rank0.pt", true, 3, 1500 },
        { "ep{epoch}-ba{batch}-rank{rank}.pt", "ep3-ba1500-rank1.pt", false, 0, 0 },
        { "ep{epoch}-ba{batch}-rank{rank}.pt", "ep3-ba1500-rank0.pt.tmp", false, 0, 0 },
        { "ep{epoch}.pt", "ep.pt", false, 0, 0 }, { "ep{epoch}.pt", "ep-1.pt", false, 0, 0 },
        { "ep{epoch}.pt", "ep3Xpt", false, 0, 0 }, { "ep{epoch}", "ep99999999999999999999", false, 0, 0 },
        { "ep{epoch}", "ep9223372036854775807", true, INT64_MAX, 0 },
        { "{run_name}/ep{epoch}", "a.b/c+/ep7", true, 7, 0 }, { "{run_name}/ep{epoch}", "aXb/c+/ep7", false, 0, 0 },
        { "e{epoch}/b{batch}.pt", "e1/b2.pt", true, 1, 2 }, { "e{epoch}/b{batch}.pt", "e1b2.pt", false, 0, 0 },
        { "{epoch}-{epoch}", "5-5", true, 5, 0 }, { "{epoch}-{epoch}", "5-6", false, 0, 0 },
        { "{epoch:03d}-{epoch}", "005-5", true, 5, 0 }, { "{epoch}{epoch}", "1212", true, 12, 0 },
        { "{epoch}{epoch}", "1213", false, 0, 0 },
        { "{epoch:03d}", "005", true, 5, 0 }, { "{epoch:03d}", "5", false, 0, 0 }, { "{epoch:03d}", "1234", true, 1234, 0 },
        { "{epoch:03d}{batch}", "00123", true, 1, 23 }, { "ba{batch}", "ba007", true, 0, 7 },
        { "{epoch}0{batch}", "1005", true, 10, 5 }, { "{epoch:>5}|", "   42|", true, 42, 0 },
        { "{epoch:*^7}", "**42***", true, 42, 0 }, { "{epoch:<6}x", "42    x", true, 42, 0 },
        { "{epoch:,}", "1,234,567", true, 1234567, 0 },
        { "{epoch:,}", "1234567", false, 0, 0 }, { "{epoch:#x}", "0x4d2", true, 1234, 0 },
        { "{epoch:x}", "4d2", true, 1234, 0 }, { "{epoch:X}", "4d2", false, 0, 0 }, { "{epoch:b}", "101", true, 5, 0 },
        { "{epoch:+d}", "+5", true, 5, 0 },
        { "{epoch:+d}", "5", false, 0, 0 }, { "{epoch:.1f}", "5.0", true, 5, 0 }, { "{epoch:%}", "500.000000%", true, 5, 0 },
        { "{epoch:c}", "A", true, 65, 0 }, { "{epoch!s:0>4}", "0012", true, 12, 0 }, { "{epoch!r}", "12", true, 12, 0 },
        { "{epoch.real}", "12", true, 12, 0 }, { "{foo}-{epoch}", "any.thing-3", true, 3, 0 },
        { "{foo}-{epoch}", "-3", false, 0, 0 }, { "{foo}-{epoch}", "a/b-3", false, 0, 0 },
        { "{foo}-{foo}", "ab-ab", true, 0, 0 },
        { "{foo}-{foo}", "ab-ac", false, 0, 0 }, { "{foo:>5}-{foo}", "   ab-ac", true, 0, 0 }, { "{}-{}", "a-b", true, 0, 0 },
        { "{{{epoch}}}", "{4}", true, 4, 0 }, { "model.pt", "model.pt", true, 0, 0 },
        { "model.pt", "model.pt2", false, 0, 0 },
        { "{total_wct}-{epoch}", "36000.5-2", true, 2, 0 }, { "{total_wct}-{epoch}", "1e+16-2", true, 2, 0 },
        { "{total_wct}-{epoch}", "x-2", false, 0, 0 }, { "{total_wct:,.1f}s{epoch}", "1,234.5s2", true, 2, 0 },
        { "{iteration}", "5", true, 0, 0 }
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bool yes = matches(rows[i].format, &desc, rows[i].name, &f);
        if (yes != rows[i].yes) fail_msg("%s against %s", rows[i].format, rows[i].name);
        if (f.t.epoch != rows[i].epoch || f.t.batch != rows[i].batch) fail_msg("%s against %s: epoch %d batch %d",
            rows[i].format, rows[i].name, (int)f.t.epoch, (int)f.t.batch);
    }
    // Names are compared when they are clean, whatever the format and the run's name make of slashes.
    static const struct { const char *format, *run, *name; bool yes; } clean[] = {
        { "{run_name}/ck/ba{batch}.pt", "exp1/", "exp1/ck/ba7.pt", true }, { "{run_name}/ba{batch}.pt", "./a//b", "a/b/ba7.pt", true },
        { "./ba{batch}.pt", "r", "ba7.pt", true }, { "x//./ba{batch}/", "r", "x/ba7", true }, { "{run_name}/ba{batch}", "./", "ba7", true },
        { "ba{batch}//x/.", "r", "ba7/x", true }, { "{foo}//ba{batch}", "r", "y/ba7", true }, { ".{foo}/ba{batch}", "r", ".y/ba7", true },
        { "//x/ba{batch}", "r", "/x/ba7", true }, { "./.x/ba{batch}", "r", ".x/ba7", true }, { "x/ba{batch}.", "r", "x/ba7.", true },
        { "x/../ba{batch}", "r", "x/../ba7", true }, { "./ba{batch}.pt", "r", "./ba7.pt", false },
    };
    for (int i = 0; i < UTIL_COUNT(clean); i++) {
        ckpt_name_desc d = { clean[i].run, NULL, NULL, NULL, 0 };
        if (matches(clean[i].format, &d, clean[i].name, &f) != clean[i].yes) fail_msg("%s against %s", clean[i].format, clean[i].name);
    }
    assert_true(matches("ep{epoch}-{total_wct}", &desc, "ep3-7.25", &f));
    assert_int_equal(f.captured, 1u << CKPT__NAME_EPOCH | 1u << CKPT__NAME_TOTAL_WCT);
    assert_true(f.t.total_wct == 7.25);
    assert_true(matches("{sample}-{token}-{batch_in_epoch}-{sample_in_epoch}-{token_in_epoch}", &desc, "1-2-3-4-5", &f));
    assert_true(f.t.sample == 1 && f.t.token == 2 && f.t.batch_in_epoch == 3 && f.t.sample_in_epoch == 4
        && f.t.token_in_epoch == 5);
    bool yes;
    assert_int_equal(ckpt__name_match("ep{epoch", &desc, "x", &yes, &f), CKPT_ARG);
    assert_int_equal(ckpt__name_match("{epoch:q", &desc, "x", &yes, &f), CKPT_ARG);
    char many[2000] = "";
    for (int i = 0; i < 40; i++) strcat(many, "{epoch}-");
    assert_int_equal(ckpt__name_match(many, &desc, "x", &yes, &f), CKPT_ARG);
}

// A folder may hold names of a format where one can begin so, whatever run name, or how many levels, it begins with.
static void test_match_folder(void **state) {
    (void)state;
    clear_env();
    static const struct { const char *format, *folder; bool yes; } rows[] = {
        { "ep{epoch}/ba{batch}.pt", "ep3", true }, { "ep{epoch}/ba{batch}.pt", "ep", false }, { "ep{epoch}/ba{batch}.pt", "ep3x", false },
        { "ep{epoch}/ba{batch}.pt", "ep3/ba4.pt", false }, { "ep{epoch}/ba{batch}.pt", "mount", false }, { "ba{batch}.pt", "ba3.pt", false },
        { "a/b{epoch}/c", "a", true }, { "a/b{epoch}/c", "a/b1", true }, { "a/b{epoch}/c", "a/c", false }, { "a/b/c", "a/b", true },
        { "{epoch}/x{epoch}/y", "1/x1", true }, { "{epoch}/x{epoch}/y", "1/x2", false }, { "{foo}/{foo}/y", "a/b", false },
        { "{run_name}/ep{epoch}", "a", true }, { "{run_name}/ep{epoch}", "a/b", true }, { "{run_name}/ep{epoch}", "b", false },
        { "{run_name}/ep{epoch}", "a/b/ep1", false }, { "{foo}/ep{epoch}", ".x", true }, { "ba{batch:05}/.metadata", "ba00012", true },
    };
    ckpt_name_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.run_name = "a/b";
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bool yes = !rows[i].yes;
        assert_int_equal(ckpt__name_match_folder(rows[i].format, &desc, rows[i].folder, &yes), CKPT_OK);
        if (yes != rows[i].yes) fail_msg("%s against %s", rows[i].format, rows[i].folder);
    }
    bool yes;
    assert_int_equal(ckpt__name_match_folder("ep{epoch", &desc, "x", &yes), CKPT_ARG);
}

// Whatever a format makes of a timestamp is matched by it, and what is read back makes the same name again.
static void test_match_inverts_format(void **state) {
    (void)state;
    clear_env();
    static const char *const pieces[] = {
        "ep", "-", "/", "0", "1", "{{", "}}", "x", "_", ",", "{epoch}", "{batch}", "{sample}", "{epoch:03d}", "{batch:05}",
        "{epoch:>6}", "{batch:*^9}", "{epoch:,}", "{batch:_}", "{epoch:x}", "{batch:#x}",
        "{sample:X}", "{epoch:b}", "{batch:o}", "{epoch:+d}", "{batch: d}", "{epoch!s:>4}", "{epoch!r}", "{batch:<7}|",
        "{sample:#010b}", "{sample:#012,}", "{rank}", "{run_name}", "{batch_in_epoch:02}", "{epoch:0=8}",
        "{epoch.real}", "-{total_wct}-", "-{total_wct:.1f}-", "{epoch:.1f}", "{extra}", "{extra:>9}"
    };
    uint64_t seed = 99;
    int made = 0;
    for (int round = 0; round < 20000; round++) {
        char format[256] = "", name[512], again[512];
        for (int i = (int)(seed >> 62) + 1; i >= 0; i--) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            strcat(format, pieces[(seed >> 33) % (uint64_t)UTIL_COUNT(pieces)]);
        }
        ckpt_timestamp t;
        memset(&t, 0, sizeof t);
        int shift = (int)(seed >> 58);
        t.epoch = (int64_t)(seed >> 40) % 100;
        t.batch = (int64_t)(seed >> (shift > 1 ? shift : 1));
        t.sample = (int64_t)(seed >> 20) & 0xFFFFF;
        t.batch_in_epoch = t.batch % 1000;
        t.total_wct = (double)(seed >> 44) / 8;
        ckpt_name_var extra = { "extra", "e{x}" };
        ckpt_name_desc desc = { "run", &t, NULL, &extra, 1 };
        ckpt__name_found found;
        if (strstr(format, "{epoch:.1f}") != NULL && t.epoch > 1 << 20) continue;
        if (ckpt_format_name(name, sizeof name, format, &desc) != CKPT_OK) fail_msg("%s: %s", format, ckpt_last_error());
        ckpt__buf clean;                            // as it is where it is compared
        ckpt__buf_init(&clean, NULL);
        ckpt__index_clean(&clean, name);
        if (!matches(format, &desc, ckpt__buf_cstr(&clean), &found)) fail_msg("'%s' does not match its own '%s'", format, name);
        ckpt__buf_free(&clean);
        ckpt_timestamp back = found.t;
        desc.timestamp = &back;
        if (ckpt_format_name(again, sizeof again, format, &desc) != CKPT_OK) fail_msg("%s: %s", format, ckpt_last_error());
        if (strcmp(name, again) != 0) fail_msg("'%s': '%s' was read back as '%s'", format, name, again);
        made++;
    }
    assert_true(made > 10000);
}

// Names and formats made to be slow are not.
static void test_match_hostile(void **state) {
    (void)state;
    clear_env();
    static const char *const formats[] = {
        "{a}{b}{c}{d}{e}{f}{g}{h}x", "{a}{a}{b}{b}{c}{c}{d}{d}x",
        "{epoch}{batch}{sample}{token}{epoch}{batch}{sample}{token}x",
        "{epoch:>9}{epoch:<9}{batch:,}{batch:x}{epoch}{batch}x",
        "{total_wct}{epoch_wct}{batch_wct}{total_wct}x", "{a}1{a}1{a}1{b}1{b}1{b}x",
        "{total_wct:x>90}{total_wct:1>90}{epoch:1>90}x", "{epoch:b}{batch:b}{epoch:b}{batch:b}x"
    };
    char name[5000];
    for (int size = 200; size < 5000; size += 2350) {
        memset(name, '1', (size_t)size);
        name[size] = 0;
        for (int i = 0; i < UTIL_COUNT(formats); i++) {
            ckpt__name_found f;
            clock_t start = clock();
            assert_false(matches(formats[i], NULL, name, &f));
            double s = (double)(clock() - start) / CLOCKS_PER_SEC;
            if (s > 2) fail_msg("%s against %d digits: %.1f s", formats[i], size, s);
        }
    }
}

static void test_conflict_sentences(void **state) {
    (void)state;
    clear_env();
    ckpt_timestamp t = stamp(2, 7, 0);
    ckpt_name_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.timestamp = &t;
    assert_int_equal(ckpt__name_conflict("sub/ep{epoch}-ba{batch}.pt", &desc, "sub/ep2-ba8.pt"), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "its batch is 8, here it is 7"));
    assert_int_equal(ckpt__name_conflict("bie{batch_in_epoch}.pt", &desc, "bie8.pt"), CKPT_ARG);
    assert_non_null(strstr(ckpt_last_error(), "no {epoch}"));
    assert_int_equal(ckpt__name_conflict("bie{batch_in_epoch}.pt", &desc, "other.pt"), CKPT_OK);
    assert_int_equal(ckpt__name_conflict("ep{epoch}.pt", NULL, "ep1.pt"), CKPT_EXISTS);
    assert_int_equal(ckpt__name_conflict("ep{epoch}.pt", NULL, "ep0.pt"), CKPT_OK);
}

//-- memory ----------------------------------------------------------------------

// Every allocation failing in turn: CKPT_NOMEM, and nothing held.
static void test_memory(void **state) {
    (void)state;
    clear_env();
    static const char format[] = "a-rather-long-literal-at-the-start-so-that-buffers-must-grow/{run_name!r:>80}/"
                                 "{total_wct:.70f}{nobody:>200}{epoch:{w}}{batch:,}";
    ckpt_timestamp t = stamp(3, 1234567, 1.5);
    ckpt_name_var w = { "w", "070" };
    ckpt_name_desc desc = { "run", &t, NULL, &w, 1 };
    char name[1024];
    assert_int_equal(ckpt_format_name(name, sizeof name, format, &desc), CKPT_OK);
    for (int which = 0; which < 2; which++) {
        for (int allowed = 0;; allowed++) {
            budget g = { allowed, 0 };
            ckpt_allocator a = { budget_fn, &g };
            ckpt_err e;
            if (which == 0) {
                ckpt__buf b;
                ckpt__buf_init(&b, &a);
                e = ckpt__name_format(&b, format, &desc);
                if (e == CKPT_OK) assert_string_equal(ckpt__buf_cstr(&b), name);
                ckpt__buf_free(&b);
            } else {
                ckpt__name_pattern p;
                ckpt__name_found f;
                bool yes = false;
                e = ckpt__name_pattern_init(&p, &a, format, &desc);
                if (e == CKPT_OK) {
                    e = ckpt__name_pattern_match(&p, name, &yes, &f);
                    ckpt__name_pattern_free(&p);
                }
                if (e == CKPT_OK) assert_true(yes && f.t.epoch == 3 && f.t.batch == 1234567);
            }
            assert_int_equal(g.held, 0);
            if (e == CKPT_OK) { assert_true(allowed > 3); break; }
            if (e != CKPT_NOMEM) fail_msg("%d allocations: %s", allowed, ckpt_last_error());
        }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_format), cmocka_unit_test(test_partial_format), cmocka_unit_test(test_dist_env),
            cmocka_unit_test(test_load_path),
        cmocka_unit_test(test_run_name), cmocka_unit_test(test_folder_conflict), cmocka_unit_test(test_specs),
            cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_launchers), cmocka_unit_test(test_rank_errors), cmocka_unit_test(test_given_ranks),
            cmocka_unit_test(test_match), cmocka_unit_test(test_match_folder),
        cmocka_unit_test(test_match_inverts_format), cmocka_unit_test(test_match_hostile),
            cmocka_unit_test(test_conflict_sentences), cmocka_unit_test(test_memory)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
