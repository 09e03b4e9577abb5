/* wandb_fake.c: what wandb_fake.sh does to wandb:// at tests/servers/fake-wandb.js.

       wandb_fake contract URI                  the contract of all stores
       wandb_fake put|new URI NAME FILE         up, replacing or creating only
       wandb_fake get URI NAME FILE             down
       wandb_fake list URI PREFIX               lines "size name"
       wandb_fake stat|remove URI NAME
       wandb_fake ranges URI NAME FILE          down in ranges of 1 MiB by the version that was there at first
       wandb_fake upload URI NAME FILE STAGING  by the uploader
   Failures are printed as "CKPT_X: sentence", status 1. Log lines go to stderr. WANDB_STALL: seconds.
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
    d.stall_timeout_s = getenv("WANDB_STALL") != NULL ? atof(getenv("WANDB_STALL")) : 20.0;
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
    the_contract.store = s;
    the_contract.prefix = "some/folder/";
    the_contract.another = another;
    the_contract.folds = true;
    the_contract.keeps_versions = true;
    int rc = cmocka_run_group_tests_name("wandb", tests, NULL, NULL);
    ckpt_store_close(s);
    return rc;
}

static ckpt_err show(const char *name, uint64_t size, void *user) {
    (void)user;
    printf("%llu %s\n", (unsigned long long)size, name);
    return CKPT_OK;
}

static ckpt_err ranges(ckpt_store *s, const char *name, const char *path) {
    ckpt__store_stat st;
    ckpt__transfer t;
    FILE *f = fopen(path, "wb");
    static char piece[1 << 20];
    memset(&t, 0, sizeof t);
    t.stall_timeout_s = 20;
    ckpt_err e = ckpt__store_run_stat(s, name, &st, &t);
    for (uint64_t at = 0; e == CKPT_OK && at < st.size; at += sizeof piece) {
        ckpt__sink sink;
        memset(&sink, 0, sizeof sink);
        sink.memory = piece;
        sink.size = st.size - at < sizeof piece ? st.size - at : sizeof piece;
        e = ckpt__store_run_get(s, name, st.etag, at, &sink, &t);
        if (e == CKPT_OK) fwrite(piece, 1, (size_t)sink.size, f);
        if (at == 0 && getenv("WANDB_PAUSE") != NULL) sleep((unsigned)atoi(getenv("WANDB_PAUSE")));
    }
    fclose(f);
    return e;
}

static ckpt_err upload(const char *name, const char *path, const char *staging) {
    ckpt_uploader_desc u;
    ckpt_store_desc d = description();
    ckpt_uploader *up = NULL;
    memset(&u, 0, sizeof u);
    u.bucket_uri = the_uri;
    u.store_desc = &d;
    u.upload_staging_folder = staging;
    u.logger.fn = on_log;
    ckpt_err e = ckpt_uploader_open(&up, &u);
    if (e != CKPT_OK) return e;
    if (path[0] != 0) e = ckpt_upload_file(up, name, path, true);
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
    else if (strcmp(verb, "ranges") == 0) e = ranges(s, name, path);
    else if (strcmp(verb, "list") == 0) e = ckpt_store_list(s, name, show, NULL);
    else if (strcmp(verb, "remove") == 0) e = ckpt_store_remove(s, name);
    else if (strcmp(verb, "stat") == 0) {
        e = ckpt_store_size(s, name, &size);
        if (e == CKPT_OK) printf("%llu\n", (unsigned long long)size);
    }
    ckpt_store_close(s);
    return failed(e);
}
