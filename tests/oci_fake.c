/* oci_fake.c: what oci_fake.sh does to the server of servers/fake-oci.js. Keys and endpoint come from the environment, as for users.

       oci_fake contract URI                    the contract of all stores
       oci_fake put URI NAME FILE [PART] [new]  by the library's own sender: whole or in parts, with its tries; new: create only
       oci_fake get URI NAME FILE               by its own receiver: ranges in parallel, checked
       oci_fake split URI NAME FILE             by Composer's ranges
       oci_fake list URI PREFIX                 lines "size name"
       oci_fake half URI NAME FILE PART         begins, sends every second part, prints the upload's name
       oci_fake rest URI NAME FILE PART ID      sends what is missing, and ends it
       oci_fake uploads URI PREFIX              lines "name id"
       oci_fake abort URI NAME ID
       oci_fake stat|remove URI NAME
   Failures are printed as "CKPT_X: sentence", status 1. Log lines go to stderr.
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "store_contract.h"

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    if (level > CKPT_LOG_DEBUG || getenv("OCI_FAKE_DEBUG") != NULL) fprintf(stderr, "log %d: %s\n", (int)level, text);
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
    d.logger.fn = on_log;
    d.stall_timeout_s = getenv("OCI_FAKE_STALL") != NULL ? 1.0 : 20.0;
    ckpt_err e = ckpt_store_open(&s, the_uri, &d);
    if (e != CKPT_OK) exit(failed(e));
    return s;
}

static int run_contract(void) {
    static const struct CMUnitTest tests[] = { CONTRACT_TESTS };
    ckpt_store *s = another(NULL);
    ckpt__oci_of(s)->page = 7;
    the_contract.store = s;
    the_contract.prefix = "some/folder/";
    the_contract.another = another;
    the_contract.no_newline = true;
    int rc = cmocka_run_group_tests_name("oci", tests, NULL, NULL);
    ckpt_store_close(s);
    return rc;
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

static ckpt_err put(ckpt_store *s, const char *name, const ckpt__body *b, uint64_t part, bool overwrite) {
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
    send.body = *b;
    send.overwrite = overwrite;
    send.mark = "0123456789abcdef";
    send.has_crc = true;
    send.crc = sum_of(b);
    send.part_size = part;
    send.retry = &retry;
    return ckpt__send_run(&send);
}

enum { MAX_PARTS = 1000 };
static ckpt__store_part the_parts[MAX_PARTS];

static ckpt_err have_part(const ckpt__store_part *part, void *user) {
    int *count = (int *)user;
    if (part->number >= 1 && part->number <= MAX_PARTS) the_parts[part->number - 1] = *part;
    ++*count;
    return CKPT_OK;
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
        e = ckpt__store_run_begin(s, &m, &upload);
        m.upload_id = ckpt__buf_cstr(&upload);
    }
    for (size_t i = 0; i < m.part_count && e == CKPT_OK; i += half ? 2 : 1) {
        ckpt__body piece = *b;
        if (the_parts[i].number != 0) continue;
        piece.offset = (uint64_t)i * size;
        piece.size = b->size - piece.offset < size ? b->size - piece.offset : size;
        the_parts[i].number = (int)i + 1;
        e = ckpt__store_run_part(s, &m, &piece, &the_parts[i]);
    }
    if (half) printf("%s\n", m.upload_id);
    else if (e == CKPT_OK) e = ckpt__store_run_complete(s, &m);
    ckpt__buf_free(&upload);
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

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *verb = argv[1], *name = argc > 3 ? argv[3] : "", *path = argc > 4 ? argv[4] : "";
    the_uri = argv[2];
    if (strcmp(verb, "contract") == 0) return run_contract();
    uint64_t size = argc > 5 ? strtoull(argv[5], NULL, 10) : 0, bytes = 0;
    ckpt_store *s = another(NULL);
    ckpt__transfer t;
    ckpt_err e = CKPT_ARG;
    memset(&t, 0, sizeof t);
    if (strcmp(verb, "put") == 0 || strcmp(verb, "half") == 0 || strcmp(verb, "rest") == 0) {
        ckpt__body b = file_body(path);
        if (strcmp(verb, "put") == 0) e = put(s, name, &b, size, argc <= 6);
        else e = put_parts(s, name, &b, size, strcmp(verb, "half") == 0, argc > 6 ? argv[6] : NULL);
        ckpt__os_drop(b.fd);
    } else if (strcmp(verb, "get") == 0) {
        e = ckpt_store_get(s, name, path, true);
    } else if (strcmp(verb, "split") == 0) {
        e = split(s, name, path);
    } else if (strcmp(verb, "list") == 0) {
        e = ckpt_store_list(s, name, show, NULL);
    } else if (strcmp(verb, "uploads") == 0) {
        e = ckpt_store_uploads(s, name, show_upload, NULL);
    } else if (strcmp(verb, "abort") == 0) {
        e = ckpt_store_abort_upload(s, name, path);
    } else if (strcmp(verb, "stat") == 0) {
        e = ckpt_store_size(s, name, &bytes);
        if (e == CKPT_OK) printf("%llu\n", (unsigned long long)bytes);
    } else if (strcmp(verb, "remove") == 0) {
        e = ckpt_store_remove(s, name);
    }
    int rc = failed(e);
    ckpt_store_close(s);
    return rc;
}
