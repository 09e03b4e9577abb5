/* stores.c: what s3_rgw.sh, oci_fake.sh, azure_azurite.sh, gcs_fake.sh, wandb_fake.sh, uc_fake.sh and mlflow_fake.sh do to the store of a URI. Keys and
   endpoints come from the environment, as for users.

       stores contract URI                          the contract of all stores
       stores put|new URI NAME FILE                 up, replacing or creating only
       stores get URI NAME FILE                     down
       stores send URI NAME FILE [PART [new]]       up by the library's own sender, with short pauses between its tries; in parts of so many bytes, 0: whole
       stores upload URI NAME FILE STAGING          up by the uploader, creating only where the store can; NAME "": what is left there
       stores list URI PREFIX                       lines "size name"
       stores stat|remove URI NAME
       stores uploads URI PREFIX                    lines "name id" of open uploads
       stores abort URI NAME ID                     gives one up
       stores uri URI NAME                          opens, and tells the address of NAME
       stores save URI                              a saver of that folder saves; in the folder "elsewhere" another resumes, and ckpt_load loads
   by the store's own calls:
       stores raw-put URI NAME FILE [PART]          up
       stores raw-get URI NAME FILE [PIECE]         down in ranges of so many bytes, all of one version
       stores half URI NAME FILE PART               begins, sends every second part, prints the upload's name
       stores rest URI NAME FILE PART ID            sends what is missing, and ends it
       stores split URI NAME FILE                   down by Composer's ranges
   and for Azure alone:
       stores container URI                         makes it
       stores sas URI                               prints an account's SAS, valid for an hour, signed here; AZURITE_RIGHTS: what it is for

   STORE_ENDPOINT, STORE_STYLE, STORE_GUARD: endpoint_url, addressing_style and payload_signing. STORE_STALL: seconds (20). STORE_PART: bytes of a part,
   the least and the best. STORE_PATIENCE: seconds for which a store's own calls are tried again while their failures are transient (0). STORE_PAUSE:
   seconds between the first range and the next. STORE_REPLACE: upload replaces what is there. STORE_SECOND: a file that it sends by the same name, a
   second later. STORE_DEBUG: all log lines. NO_PARTS: the cloud behind takes none (lake: and what is replaced is empty for a moment). Failures are printed as
   "CKPT_X: sentence", status 1. Log lines go to stderr.
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "store_contract.h"

static const char *the_uri;

static bool is(const char *scheme) {
    return strncmp(the_uri, scheme, strlen(scheme)) == 0;
}

static double seconds(const char *name, double otherwise) {
    return getenv(name) != NULL ? atof(getenv(name)) : otherwise;
}

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    if (level > CKPT_LOG_DEBUG || getenv("STORE_DEBUG") != NULL) fprintf(stderr, "log %d: %s\n", (int)level, text);
}

static int failed(ckpt_err e) {
    if (e != CKPT_OK) printf("%s: %s\n", ckpt_err_name(e), ckpt_last_error());
    return e == CKPT_OK ? 0 : 1;
}

static ckpt_store_desc description(void) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.endpoint_url = getenv("STORE_ENDPOINT");
    d.addressing_style = getenv("STORE_STYLE");
    d.payload_signing = getenv("STORE_GUARD");
    d.stall_timeout_s = seconds("STORE_STALL", 20.0);
    d.logger.fn = on_log;
    return d;
}

static ckpt_store *another(void *user) {
    (void)user;
    ckpt_store_desc d = description();
    ckpt_store *s = NULL;
    if (failed(ckpt_store_open(&s, the_uri, &d)) != 0) exit(1);
    if (getenv("STORE_PART") != NULL) s->best_part = s->min_part = (uint64_t)atoll(getenv("STORE_PART"));
    return s;
}

//-- the contract ------------------------------------------------------------------

static const char *excuse(ckpt_store *s, contract *c) {
    if (is("s3:") || is("gs:")) {
        bool s3 = is("s3:") || getenv("GCS_KEY") != NULL;
        ckpt__s3_of(s)->page = 7;
        if (s3) s->creates_only = true;     // the server does, for single objects; s3 itself looks before it joins parts
        c->blind_remove = s3;
        c->no_newline = !s3;
        return is("s3:") ? "s3" : "gs";
    }
    if (is("oci:")) {
        ckpt__oci_of(s)->page = 7;
        c->no_newline = true;
        return "oci";
    }
    if (is("azure:")) {
        ckpt__azure_of(s)->page = 7;
        c->no_newline = c->no_backslash = c->no_last_dot = true;
        return "azure";
    }
    if (is("wandb:")) {
        c->folds = c->keeps_versions = true;
        return "wandb";
    }
    c->is_folder = c->no_marks = c->no_crc = c->no_newline = true;
    c->no_remove = s->table->remove == NULL;
    c->no_parts = getenv("NO_PARTS") != NULL;
    c->gap = c->no_parts && strcmp(getenv("NO_PARTS"), "lake") == 0;
    c->no_letters = s->table->get == NULL ? "#%" : NULL;
    return "databricks";
}

static int run_contract(void) {
    static const struct CMUnitTest tests[] = { CONTRACT_TESTS };
    ckpt_store *s = another(NULL);
    const char *name = excuse(s, &the_contract);
    the_contract.store = s;
    the_contract.prefix = "some/folder/";
    the_contract.another = another;
    int rc = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    ckpt_store_close(s);
    return rc;
}

//-- by the store's own calls ------------------------------------------------------

static double deadline;

// Is it worth another try? Waits a little.
static bool again(ckpt_err e, const ckpt__transfer *t) {
    if (e == CKPT_OK || !t->transient || ckpt__os_now() > deadline) return false;
    fprintf(stderr, "again: %s\n", ckpt_last_error());
    ckpt__os_sleep(0.2);
    return true;
}

static ckpt__body file_body(const char *path) {
    ckpt__body b;
    ckpt__os_info info;
    memset(&b, 0, sizeof b);
    if (ckpt__os_open_read(&b.fd, path) != CKPT_OK || ckpt__os_fstat(b.fd, &info, path) != CKPT_OK) exit(failed(CKPT_IO));
    b.path = path;
    b.size = info.size;
    return b;
}

static uint32_t sum_of(const ckpt__body *b) {
    ckpt__transfer_sums sums;
    if (ckpt__transfer_digest(b, CKPT__SUM_CRC32, &sums) != CKPT_OK) exit(failed(CKPT_IO));
    return sums.crc;
}

static ckpt_err put_whole(ckpt_store *s, const char *name, const ckpt__body *b) {
    ckpt__transfer t;
    ckpt__store_put p;
    ckpt_err e;
    memset(&t, 0, sizeof t);
    memset(&p, 0, sizeof p);
    p.name = name;
    p.body = b;
    p.overwrite = true;
    p.mark = "whole";
    p.has_crc = true;
    p.crc = sum_of(b);
    p.t = &t;
    do { ckpt__transfer_begin(&t); e = ckpt__store_run_put(s, &p); } while (again(e, &t));
    return e;
}

enum { MAX_PARTS = 1000 };
static ckpt__store_part the_parts[MAX_PARTS];

static ckpt_err have_part(const ckpt__store_part *part, void *user) {
    int *count = (int *)user;
    if (part->number >= 1 && part->number <= MAX_PARTS) the_parts[part->number - 1] = *part;
    ++*count;
    return CKPT_OK;
}

static ckpt_err send_parts(ckpt_store *s, ckpt__store_multi *m, const ckpt__body *whole, uint64_t size, size_t step) {
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < m->part_count && e == CKPT_OK; i += step) {
        ckpt__body b = *whole;
        if (the_parts[i].number != 0) continue;
        b.offset = (uint64_t)i * size;
        b.size = whole->size - b.offset < size ? whole->size - b.offset : size;
        the_parts[i].number = (int)i + 1;
        do { ckpt__transfer_begin(m->t); e = ckpt__store_run_part(s, m, &b, &the_parts[i]); } while (again(e, m->t));
    }
    return e;
}

// half: every second part is sent, and the upload left open. id: an upload to go on with, or NULL.
static ckpt_err put_parts(ckpt_store *s, const char *name, const ckpt__body *b, uint64_t size, bool half, const char *id) {
    ckpt__transfer t;
    ckpt__store_multi m;
    ckpt__buf upload;
    ckpt_err e = CKPT_OK;
    int before = 0;
    ckpt__buf_init(&upload, NULL);
    memset(&t, 0, sizeof t);
    memset(&m, 0, sizeof m);
    m.name = name;
    m.size = b->size;
    m.overwrite = true;
    m.mark = "parts";
    m.has_crc = true;
    m.crc = sum_of(b);
    m.t = &t;
    m.parts = the_parts;
    m.part_count = (size_t)((b->size + size - 1) / size);
    if (id != NULL) {
        ckpt__buf_text(&upload, id);
        m.upload_id = ckpt__buf_cstr(&upload);
        e = ckpt__store_run_parts(s, &m, have_part, &before);
        printf("%d parts were there\n", before);
    } else {
        do { ckpt__transfer_begin(&t); upload.len = 0; e = ckpt__store_run_begin(s, &m, &upload); } while (again(e, &t));
        m.upload_id = ckpt__buf_cstr(&upload);
    }
    if (e == CKPT_OK) e = send_parts(s, &m, b, size, half ? 2 : 1);
    if (half) printf("%s\n", m.upload_id);
    else if (e == CKPT_OK) do { ckpt__transfer_begin(&t); e = ckpt__store_run_complete(s, &m); } while (again(e, &t));
    ckpt__buf_free(&upload);
    return e;
}

static ckpt_err raw_get(ckpt_store *s, const char *name, const char *path, uint64_t piece) {
    ckpt__transfer t;
    ckpt__store_stat there;
    ckpt__sink sink;
    uint32_t crc = 0;
    memset(&t, 0, sizeof t);
    memset(&sink, 0, sizeof sink);
    ckpt_err e;
    (void)unlink(path);
    do { ckpt__transfer_begin(&t); e = ckpt__store_run_stat(s, name, &there, &t); } while (again(e, &t));
    if (e == CKPT_OK) e = ckpt__os_create(&sink.fd, path);
    sink.path = path;
    for (uint64_t at = 0; e == CKPT_OK && at < there.size; at += piece) {
        do {
            ckpt__transfer_begin(&t);
            sink.offset = at;
            sink.size = there.size - at < piece ? there.size - at : piece;
            sink.got = 0;
            sink.sum = true;
            sink.crc = 0;
            e = ckpt__store_run_get(s, name, there.etag, at, &sink, &t);
        } while (again(e, &t));
        crc = ckpt__digest_crc32_join(crc, sink.crc, sink.size);
        if (at == 0) ckpt__os_sleep(seconds("STORE_PAUSE", 0.0));
    }
    if (e == CKPT_OK && there.has_crc && there.crc != crc) e = ckpt__error_set(CKPT_CORRUPT, "its checksum differs");
    return e;
}

// Composer's own ranges: up to 10 of at least 128 MB, the first ones a byte longer.
static ckpt_err split(ckpt_store *s, const char *name, const char *path) {
    ckpt__transfer t;
    ckpt__store_stat there;
    ckpt__sink sink;
    memset(&t, 0, sizeof t);
    memset(&sink, 0, sizeof sink);
    ckpt_err e = ckpt__store_run_stat(s, name, &there, &t);
    uint64_t count = there.size / 128000000u, at = 0;
    count = count < 1 ? 1 : count > 10 ? 10 : count;
    if (e == CKPT_OK) e = ckpt__os_create(&sink.fd, path);
    sink.path = path;
    for (uint64_t i = 0; e == CKPT_OK && i < count; i++) {
        sink.offset = at;
        sink.size = there.size / count + (i < there.size % count ? 1 : 0);
        sink.got = 0;
        if (sink.size > 0) e = ckpt__store_run_get(s, name, there.etag, at, &sink, &t);
        at += sink.size;
    }
    return e;
}

static ckpt_err make_container(ckpt_store *s) {
    ckpt__transfer t;
    ckpt__azure_call c;
    memset(&t, 0, sizeof t);
    ckpt__azure_call_init(&c, s, "PUT", NULL, &t);
    ckpt__fields_add(&c.query, "restype", "container");
    ckpt_err e = ckpt__azure_run(&c);
    ckpt__azure_call_free(&c);
    return e;
}

// Microsoft: "Create an account SAS".
static int print_sas(void) {
    ckpt__buf key, text, value;
    unsigned char mac[32];
    const char *account = getenv("AZURE_ACCOUNT_NAME"), *secret = getenv("AZURE_ACCOUNT_ACCESS_KEY");
    ckpt__buf_init(&key, NULL);
    ckpt__buf_init(&text, NULL);
    ckpt__buf_init(&value, NULL);
    if (account == NULL || secret == NULL || !ckpt__txt_unbase64(&key, secret, strlen(secret))) return 1;
    ckpt__txt_add_date(&value, ckpt__os_time() + 3600.0, CKPT__DATE_ISO);
    const char *until = ckpt__buf_cstr(&value), *rights = getenv("AZURITE_RIGHTS") != NULL ? getenv("AZURITE_RIGHTS") : "rwdlac";
    ckpt__buf_fmt(&text, "%s\n%s\nb\nsco\n\n%s\n\nhttps,http\n2021-12-02\n\n", account, rights, until);
    if (ckpt__digest_hmac_sha256(key.data, key.len, text.data, text.len, mac) != CKPT_OK) return 1;
    printf("sv=2021-12-02&ss=b&srt=sco&sp=%s&se=%s&spr=https,http&sig=", rights, until);
    text.len = value.len = 0;
    ckpt__txt_add_base64(&text, mac, sizeof mac);
    ckpt__txt_add_percent(&value, text.data, text.len, false);
    printf("%s\n", ckpt__buf_cstr(&value));
    ckpt__buf_free(&key);
    ckpt__buf_free(&text);
    ckpt__buf_free(&value);
    return 0;
}

//-- by the library ----------------------------------------------------------------

static ckpt_err send_object(ckpt_store *s, const char *name, const char *path, uint64_t part, bool overwrite) {
    ckpt__send send;
    ckpt__retry retry;
    memset(&send, 0, sizeof send);
    memset(&retry, 0, sizeof retry);
    retry.initial_backoff = 0.05;
    retry.max_jitter = 0.01;
    retry.num_attempts = 4;
    retry.logger = &s->logger;
    send.store = s;
    send.name = name;
    send.body = file_body(path);
    send.overwrite = overwrite;
    send.mark = "0123456789abcdef";
    send.has_crc = true;
    send.crc = sum_of(&send.body);
    send.part_size = part;
    send.retry = &retry;
    ckpt_err e = ckpt__send_run(&send);
    ckpt__os_drop(send.body.fd);
    return e;
}

static int upload(const char *name, const char *path, const char *staging) {
    ckpt_uploader_desc u;
    ckpt_store_desc d = description();
    ckpt_uploader *up = NULL;
    char text[1024];
    memset(&u, 0, sizeof u);
    if (getenv("STORE_PART") != NULL) {
        u.store = another(NULL);
    } else {
        u.bucket_uri = the_uri;
        u.store_desc = &d;
    }
    u.upload_staging_folder = staging;
    if (is("gs:")) u.part_size = 5 << 20;
    u.logger.fn = on_log;
    ckpt_err e = ckpt_uploader_open(&up, &u);
    if (e == CKPT_OK && name[0] != 0) e = ckpt_upload_file(up, name, path, is("wandb:") || getenv("STORE_REPLACE") != NULL);
    if (e == CKPT_OK && getenv("STORE_SECOND") != NULL) {
        usleep(1000000);
        e = ckpt_upload_file(up, name, getenv("STORE_SECOND"), true);
    }
    if (e == CKPT_OK) e = ckpt_uploader_wait(up, 60.0);
    if (e == CKPT_OK && name[0] != 0) e = ckpt_get_uri_for_file(up, name, text, sizeof text);
    if (e == CKPT_OK && name[0] != 0) printf("%s\n", text);
    int rc = failed(e);
    ckpt_err ended = ckpt_uploader_close(up, 5.0);
    ckpt_store_close(u.store);
    return rc != 0 ? rc : failed(ended);
}

static ckpt_err show(const char *name, uint64_t size, void *user) {
    (void)user;
    printf("%llu %s\n", (unsigned long long)size, name);
    return CKPT_OK;
}

static ckpt_err show_upload(const char *name, const char *id, double started, void *user) {
    (void)user;
    printf("%s %s%s\n", name, id, started > 1e9 ? "" : " (of no date)");
    return CKPT_OK;
}

static ckpt_err show_size(ckpt_store *s, const char *name) {
    uint64_t size = 0;
    ckpt_err e = ckpt_store_size(s, name, &size);
    if (e == CKPT_OK) printf("%llu\n", (unsigned long long)size);
    return e;
}

static ckpt_err by_own_calls(ckpt_store *s, const char *verb, char **arg, int count) {
    const char *name = count > 0 ? arg[0] : "", *path = count > 1 ? arg[1] : "";
    uint64_t size = count > 2 ? strtoull(arg[2], NULL, 10) : 0;
    if (strcmp(verb, "raw-get") == 0) return raw_get(s, name, path, size > 0 ? size : UINT64_MAX / 2);
    if (strcmp(verb, "split") == 0) return split(s, name, path);
    if (strcmp(verb, "container") == 0) return make_container(s);
    bool half = strcmp(verb, "half") == 0;
    if (!half && strcmp(verb, "rest") != 0 && strcmp(verb, "raw-put") != 0) return ckpt__error_set(CKPT_ARG, "what is %s?", verb);
    ckpt__body b = file_body(path);
    ckpt_err e = size == 0 ? put_whole(s, name, &b) : put_parts(s, name, &b, size, half, count > 3 ? arg[3] : NULL);
    ckpt__os_drop(b.fd);
    return e;
}

static ckpt_err by_library(ckpt_store *s, const char *verb, char **arg, int count) {
    const char *name = count > 0 ? arg[0] : "", *path = count > 1 ? arg[1] : "";
    if (strcmp(verb, "put") == 0) return ckpt_store_put(s, name, path, true);
    if (strcmp(verb, "new") == 0) return ckpt_store_put(s, name, path, false);
    if (strcmp(verb, "get") == 0) return ckpt_store_get(s, name, path, true);
    if (strcmp(verb, "send") == 0) return send_object(s, name, path, count > 2 ? strtoull(arg[2], NULL, 10) : 0, count <= 3);
    if (strcmp(verb, "list") == 0) return ckpt_store_list(s, name, show, NULL);
    if (strcmp(verb, "stat") == 0) return show_size(s, name);
    if (strcmp(verb, "remove") == 0) return ckpt_store_remove(s, name);
    if (strcmp(verb, "uploads") == 0) return ckpt_store_uploads(s, name, show_upload, NULL);
    if (strcmp(verb, "abort") == 0) return ckpt_store_abort_upload(s, name, path);
    if (strcmp(verb, "uri") != 0) return by_own_calls(s, verb, arg, count);
    printf("%s%s\n", s->uri, name);
    return CKPT_OK;
}

// What a training program does: a URI as the saver's folder, a machine that has nothing, a checkpoint by its URI.
static int save_and_resume(void) {
    static float w[1000];
    char latest[512];
    ckpt_state st = {0};
    ckpt_saver_desc d = {0};
    ckpt_load_desc l = {0};
    ckpt_saver *s;
    ckpt_timestamp t = {0}, at = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1000);
    w[7] = 7;
    d.state = &st;
    d.folder = the_uri;
    d.save_interval = "1ba";
    ckpt_next_batch(&t, 1, 0, 0);
    if (failed(ckpt_saver_open(&s, &d)) || failed(ckpt_saver_batch_end(s, &t)) || failed(ckpt_saver_close(s, 0))) return 1;
    w[7] = 0;
    if (mkdir("elsewhere", 0777) != 0 || chdir("elsewhere") != 0) return 1;
    if (failed(ckpt_saver_open(&s, &d)) || failed(ckpt_saver_resume(s, &at)) || failed(ckpt_saver_close(s, 0))) return 1;
    if (w[7] != 7 || at.batch != 1) return puts("what was resumed is not what was saved"), 1;
    w[7] = 0;
    snprintf(latest, sizeof latest, "%s/latest-rank0.pt", the_uri);
    l.load_path = latest;
    l.state = &st;
    if (failed(ckpt_load(&l, NULL))) return 1;
    ckpt_state_free(&st);
    return w[7] == 7 ? 0 : (puts("what was loaded is not what was saved"), 1);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *verb = argv[1];
    the_uri = argv[2];
    deadline = ckpt__os_now() + seconds("STORE_PATIENCE", 0.0);
    if (strcmp(verb, "sas") == 0) return print_sas();
    if (strcmp(verb, "contract") == 0) return run_contract();
    if (strcmp(verb, "save") == 0) return save_and_resume();
    if (strcmp(verb, "upload") == 0 && argc > 5) return upload(argv[3], argv[4], argv[5]);
    ckpt_store *s = another(NULL);
    int rc = failed(by_library(s, verb, argv + 3, argc - 3));
    ckpt_store_close(s);
    return rc;
}
