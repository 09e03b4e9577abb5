/* databricks_fake.c: what uc_fake.sh and mlflow_fake.sh do to dbfs: and mlflow-artifacts: at tests/servers/fake-databricks.js.

       databricks_fake contract URI                 the contract of all stores
       databricks_fake put|new URI NAME FILE        up, replacing or creating only
       databricks_fake get URI NAME FILE            down
       databricks_fake list URI PREFIX              lines "size name"
       databricks_fake stat|remove URI NAME
       databricks_fake upload URI NAME FILE STAGING by the uploader, creating only unless REPLACE is set; NAME "": what is left there.
                                                    SECOND: a file of the same name a second later
       databricks_fake uri URI NAME                 opens, and tells the address of NAME
   PART: bytes of a part, the least and the best; below it objects go whole. NO_PARTS: the cloud takes none. Failures are printed as "CKPT_X: sentence", status 1. Log lines go
   to stderr.
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
    d.logger.fn = on_log;
    d.stall_timeout_s = 20.0;
    return d;
}

static ckpt_store *another(void *user) {
    (void)user;
    ckpt_store_desc d = description();
    ckpt_store *s = NULL;
    if (failed(ckpt_store_open(&s, the_uri, &d)) != 0) exit(1);
    const char *part = getenv("PART");
    if (part != NULL) s->best_part = s->min_part = (uint64_t)atoll(part);
    return s;
}

static int run_contract(void) {
    static const struct CMUnitTest tests[] = { CONTRACT_TESTS };
    ckpt_store *s = another(NULL);
    bool proxy = s->table->get == NULL;
    the_contract.store = s;
    the_contract.prefix = "some/folder/";
    the_contract.another = another;
    the_contract.is_folder = true;
    the_contract.no_marks = true;
    the_contract.no_crc = true;
    the_contract.no_newline = true;
    the_contract.no_remove = s->table->remove == NULL;
    the_contract.no_parts = getenv("NO_PARTS") != NULL;
    the_contract.no_letters = proxy ? "#%" : NULL;
    int rc = cmocka_run_group_tests_name("databricks", tests, NULL, NULL);
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
    ckpt_uploader *up = NULL;
    memset(&u, 0, sizeof u);
    u.store = another(NULL);
    u.upload_staging_folder = staging;
    u.logger.fn = on_log;
    ckpt_err e = ckpt_uploader_open(&up, &u);
    if (e == CKPT_OK && name[0] != 0) e = ckpt_upload_file(up, name, path, getenv("REPLACE") != NULL);
    const char *second = getenv("SECOND");
    if (e == CKPT_OK && second != NULL) {
        usleep(1000000);
        e = ckpt_upload_file(up, name, second, true);
    }
    if (e == CKPT_OK) e = ckpt_uploader_wait(up, 60.0);
    char text[1024];
    if (e == CKPT_OK && name[0] != 0) {
        e = ckpt_get_uri_for_file(up, name, text, sizeof text);
        printf("%s\n", text);
    }
    if (e != CKPT_OK) (void)failed(e);
    ckpt_err ended = ckpt_uploader_close(up, 5.0);
    ckpt_store_close(u.store);
    return e != CKPT_OK ? e : ended;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *verb = argv[1], *name = argc > 3 ? argv[3] : "";
    the_uri = argv[2];
    if (strcmp(verb, "contract") == 0) return run_contract();
    if (strcmp(verb, "upload") == 0 && argc > 5) return upload(name, argv[4], argv[5]) == CKPT_OK ? 0 : 1;
    ckpt_store *s = another(NULL);
    ckpt_err e = CKPT_ARG;
    if (strcmp(verb, "put") == 0 && argc > 4) e = ckpt_store_put(s, name, argv[4], true);
    else if (strcmp(verb, "new") == 0 && argc > 4) e = ckpt_store_put(s, name, argv[4], false);
    else if (strcmp(verb, "get") == 0 && argc > 4) e = ckpt_store_get(s, name, argv[4], true);
    else if (strcmp(verb, "list") == 0) e = ckpt_store_list(s, name, show, NULL);
    else if (strcmp(verb, "remove") == 0) e = ckpt_store_remove(s, name);
    else if (strcmp(verb, "uri") == 0) { printf("%s%s\n", s->uri, name); e = CKPT_OK; }
    else if (strcmp(verb, "stat") == 0) {
        uint64_t size = 0;
        e = ckpt_store_size(s, name, &size);
        if (e == CKPT_OK) printf("%llu\n", (unsigned long long)size);
    }
    (void)failed(e);
    ckpt_store_close(s);
    return e == CKPT_OK ? 0 : 1;
}
