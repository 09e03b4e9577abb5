/* gcs_fake.c: what gcs_fake.sh does to gs:// at tests/servers/fake-gcs.js or, with an HMAC key, at an S3 server.

       gcs_fake contract URI                    the contract of all stores
       gcs_fake put|new URI NAME FILE           up, replacing or creating only; parts of 5 MiB above 16 MiB
       gcs_fake get URI NAME FILE               down
       gcs_fake list URI PREFIX                 lines "size name"
       gcs_fake stat|remove URI NAME
       gcs_fake upload URI NAME FILE STAGING    by the uploader, creating only
   GCS_ENDPOINT: of the store, with tokens. Failures are printed as "CKPT_X: sentence", status 1. Log lines go to stderr.
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "store_contract.h"

static const char *the_uri;

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    fprintf(stderr, "log %d: %s\n", (int)level, text);
}

static int failed(ckpt_err e) {
    if (e != CKPT_OK) printf("%s: %s\n", ckpt_err_name(e), ckpt_last_error());
    return e == CKPT_OK ? 0 : 1;
}

static ckpt_store_desc description(void) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.endpoint_url = getenv("GCS_ENDPOINT");
    d.logger.fn = on_log;
    d.stall_timeout_s = 20.0;
    return d;
}

static ckpt_store *another(void *user) {
    (void)user;
    ckpt_store_desc d = description();
    ckpt_store *s = NULL;
    if (failed(ckpt_store_open(&s, the_uri, &d)) != 0) exit(1);
    return s;
}

static int run_contract(void) {
    static const struct CMUnitTest tests[] = { CONTRACT_TESTS };
    ckpt_store *s = another(NULL);
    bool hmac = getenv("GCS_KEY") != NULL;
    ckpt__s3_of(s)->page = 7;
    if (hmac) s->creates_only = true;   // this server does, for single objects
    the_contract.store = s;
    the_contract.prefix = "some/folder/";
    the_contract.another = another;
    the_contract.blind_remove = hmac;
    the_contract.no_newline = !hmac;
    int rc = cmocka_run_group_tests_name("gs", tests, NULL, NULL);
    ckpt_store_close(s);
    return rc;
}

static ckpt_err show(const char *name, uint64_t size, void *user) {
    (void)user;
    printf("%llu %s\n", (unsigned long long)size, name);
    return CKPT_OK;
}

static ckpt_err upload(const char *name, const char *path, const char *staging) {
    ckpt_uploader_desc u;
    ckpt_store_desc d = description();
    ckpt_uploader *up = NULL;
    memset(&u, 0, sizeof u);
    u.bucket_uri = the_uri;
    u.store_desc = &d;
    u.upload_staging_folder = staging;
    u.part_size = 5 << 20;
    u.logger.fn = on_log;
    ckpt_err e = ckpt_uploader_open(&up, &u);
    if (e != CKPT_OK) return e;
    if (path[0] != 0) e = ckpt_upload_file(up, name, path, false);
    ckpt_err ended = ckpt_uploader_close(up, 60.0);
    return e != CKPT_OK ? e : ended;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *verb = argv[1], *name = argc > 3 ? argv[3] : "", *path = argc > 4 ? argv[4] : "";
    the_uri = argv[2];
    if (strcmp(verb, "contract") == 0) return run_contract();
    if (strcmp(verb, "upload") == 0) return failed(upload(name, path, argc > 5 ? argv[5] : ""));
    ckpt_store *s = another(NULL);
    uint64_t size = 0;
    ckpt_err e = CKPT_ARG;
    if (strcmp(verb, "put") == 0) e = ckpt_store_put(s, name, path, true);
    else if (strcmp(verb, "new") == 0) e = ckpt_store_put(s, name, path, false);
    else if (strcmp(verb, "get") == 0) e = ckpt_store_get(s, name, path, true);
    else if (strcmp(verb, "list") == 0) e = ckpt_store_list(s, name, show, NULL);
    else if (strcmp(verb, "remove") == 0) e = ckpt_store_remove(s, name);
    else if (strcmp(verb, "stat") == 0) {
        e = ckpt_store_size(s, name, &size);
        if (e == CKPT_OK) printf("%llu\n", (unsigned long long)size);
    }
    int rc = failed(e);
    ckpt_store_close(s);
    return rc;
}
