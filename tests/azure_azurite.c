/* azure_azurite.c: what azure_azurite.sh does to a real blob server. Account, key and endpoint come from the environment.

       azure_azurite contract URI               the contract of all stores
       azure_azurite container URI              makes it
       azure_azurite sas                        prints an account's SAS, valid for an hour, signed here
       azure_azurite put URI NAME FILE [PART]   up, in blocks of so many bytes; transient failures are tried again for 20 s
       azure_azurite get URI NAME FILE [PIECE]  down, in ranges of so many bytes, all of one version
       azure_azurite list URI PREFIX            lines "size name"
       azure_azurite half URI NAME FILE PART    begins, sends every second block, prints the upload's name
       azure_azurite rest URI NAME FILE PART ID sends what is missing, and ends it
       azure_azurite uploads URI PREFIX         lines "name" of open uploads
       azure_azurite abort URI NAME ID          gives one up
       azure_azurite stat|remove URI NAME
   Failures are printed as "CKPT_X: sentence", status 1. Log lines go to stderr.
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "store_contract.h"

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    if (level > CKPT_LOG_DEBUG || getenv("AZURITE_DEBUG") != NULL) fprintf(stderr, "log %d: %s\n", (int)level, text);
}

static int failed(ckpt_err e) {
    if (e != CKPT_OK) printf("%s: %s\n", ckpt_err_name(e), ckpt_last_error());
    return e == CKPT_OK ? 0 : 1;
}

static const char *the_uri;

static ckpt_store *another(void *user) {
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    (void)user;
    memset(&d, 0, sizeof d);
    d.endpoint_url = getenv("AZURITE_ENDPOINT");
    d.logger.fn = on_log;
    d.stall_timeout_s = 20.0;
    if (ckpt_store_open(&s, the_uri, &d) != CKPT_OK) {
        printf("%s\n", ckpt_last_error());
        exit(1);
    }
    return s;
}

static int run_contract(void) {
    static const struct CMUnitTest tests[] = { CONTRACT_TESTS };
    ckpt_store *s = another(NULL);
    ckpt__azure_of(s)->page = 7;
    the_contract.store = s;
    the_contract.prefix = "some/folder/";
    the_contract.another = another;
    the_contract.no_newline = the_contract.no_backslash = true;
    int rc = cmocka_run_group_tests_name("azure", tests, NULL, NULL);
    ckpt_store_close(s);
    return rc;
}

static ckpt_err make_container(ckpt_store *s, ckpt__transfer *t) {
    ckpt__azure_call c;
    ckpt__azure_call_init(&c, s, "PUT", NULL, t);
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

//-- one object --------------------------------------------------------------------

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

static ckpt_err get(ckpt_store *s, const char *name, const char *path, uint64_t piece) {
    ckpt__transfer t;
    ckpt__store_stat there;
    ckpt__sink sink;
    uint32_t crc = 0;
    memset(&t, 0, sizeof t);
    memset(&sink, 0, sizeof sink);
    ckpt_err e;
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
    }
    if (e == CKPT_OK && there.has_crc && there.crc != crc) e = ckpt__error_set(CKPT_CORRUPT, "its checksum differs");
    return e;
}

static ckpt_err show(const char *name, uint64_t size, void *user) {
    (void)user;
    printf("%llu %s\n", (unsigned long long)size, name);
    return CKPT_OK;
}

static ckpt_err show_upload(const char *name, const char *id, double started, void *user) {
    (void)id, (void)user;
    printf("%s%s\n", name, started > 1e9 ? "" : " (of no date)");
    return CKPT_OK;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "sas") == 0) return print_sas();
    if (argc < 3) return 2;
    const char *verb = argv[1], *name = argc > 3 ? argv[3] : "", *path = argc > 4 ? argv[4] : "";
    the_uri = argv[2];
    if (strcmp(verb, "contract") == 0) return run_contract();
    deadline = ckpt__os_now() + 20.0;
    uint64_t size = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    ckpt_store *s = another(NULL);
    ckpt__transfer t;
    ckpt__store_stat there;
    ckpt_err e = CKPT_ARG;
    memset(&t, 0, sizeof t);
    if (strcmp(verb, "put") == 0 || strcmp(verb, "half") == 0 || strcmp(verb, "rest") == 0) {
        ckpt__body b = file_body(path);
        if (size == 0) e = put_whole(s, name, &b);
        else e = put_parts(s, name, &b, size, strcmp(verb, "half") == 0, argc > 6 ? argv[6] : NULL);
        ckpt__os_drop(b.fd);
    } else if (strcmp(verb, "get") == 0) {
        e = get(s, name, path, size > 0 ? size : UINT64_MAX / 2);
    } else if (strcmp(verb, "list") == 0) {
        e = ckpt__store_run_list(s, name, show, NULL, &t);
    } else if (strcmp(verb, "uploads") == 0) {
        e = ckpt__store_run_uploads(s, name, show_upload, NULL, &t);
    } else if (strcmp(verb, "stat") == 0) {
        e = ckpt__store_run_stat(s, name, &there, &t);
        if (e == CKPT_OK) printf("%llu\n", (unsigned long long)there.size);
    } else if (strcmp(verb, "container") == 0) {
        e = make_container(s, &t);
    } else if (strcmp(verb, "abort") == 0) {
        e = ckpt_store_abort_upload(s, name, path);
    } else if (strcmp(verb, "remove") == 0) {
        e = ckpt__store_run_remove(s, name, &t);
    }
    int rc = failed(e);
    ckpt_store_close(s);
    return rc;
}
