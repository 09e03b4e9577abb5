/* secrets.c: what secrets.sh and secrets_clouds.sh do with the library, everything it says being kept: log lines of all levels on stderr,
   sentences on stdout, a trace, a staging folder. Settings come from the environment as for users, and SEC_DIR, SEC_ENDPOINT, SEC_KEY_FILE,
   SEC_PHRASE, SEC_PASSWORD, SEC_KNOWN, SEC_EXPLICIT (credentials by the descriptor), SEC_DIE (killed with uploads under way).

       secrets upload URI       two files up, one of them in parts, one down
       secrets save URI         a saver with that folder
       secrets echo [URI]       a server that shows requests in its replies, whose heads go to SEC_DIR/heads
       secrets redirect [URI]   a server that sends elsewhere: nothing may get there
       secrets names FILE_URI URI...   ".." in names and in .symlink objects
   run.sh: helper
*/
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include "result.h"
#include "net_util.h"

static const char *dir;

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != 0 ? v : NULL;
}

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)user;
    fprintf(stderr, "log %d: %s\n", (int)level, text);
}

static ckpt_err say(const char *what, ckpt_err e) {
    printf("%s: %s%s%s\n", what, ckpt_err_name(e), e != CKPT_OK ? ": " : "", e != CKPT_OK ? ckpt_last_error() : "");
    fflush(stdout);
    return e;
}

static ckpt_store_desc desc(void) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.endpoint_url = env("SEC_ENDPOINT");
    d.key_filename = env("SEC_KEY_FILE");
    d.key_password = env("SEC_PHRASE");
    d.password = env("SEC_PASSWORD");
    d.known_hosts_filename = env("SEC_KNOWN");
    if (env("SEC_EXPLICIT") != NULL) {
        d.access_key_id = env("SEC_EXPLICIT_ID");
        d.secret_access_key = env("SEC_EXPLICIT");
        d.session_token = env("SEC_EXPLICIT_TOKEN");
    }
    d.stall_timeout_s = 3;
    d.logger.fn = on_log;
    return d;
}

static const char *file_of(const char *name, size_t size) {
    const char *path = util_join(dir, name);
    char *bytes = (char *)calloc(1, size);
    util_write(path, bytes, size);
    free(bytes);
    return path;
}

// Does a record in the folder hold the id of an upload without overwrite?
static bool begun(const char *staging) {
    bool found = false;
    DIR *folder = opendir(staging);
    for (struct dirent *f = folder != NULL ? readdir(folder) : NULL; f != NULL; f = readdir(folder)) {
        if (strstr(f->d_name, ".upload") == NULL) continue;
        const char *text = util_read(util_join(staging, f->d_name), NULL);
        found = found || (strstr(text, "\"overwrite\":false") != NULL && strstr(text, "upload_id") != NULL);
    }
    if (folder != NULL) closedir(folder);
    return found;
}

static int upload(const char *uri) {
    ckpt_store_desc s = desc();
    ckpt_uploader_desc d;
    ckpt_uploader *u = NULL;
    ckpt_store *store = NULL;
    uint64_t size;
    memset(&d, 0, sizeof d);
    d.bucket_uri = uri;
    d.store_desc = &s;
    d.num_attempts = env("SEC_ATTEMPTS") != NULL ? atoi(env("SEC_ATTEMPTS")) : 2;
    d.part_size = strncmp(uri, "oci:", 4) == 0 ? 10 << 20 : 5 << 20;
    d.upload_staging_folder = util_join(dir, "staging");
    d.event_file = util_join(dir, "events");
    d.logger.fn = on_log;
    if (say("store open", ckpt_store_open(&store, uri, &s)) == CKPT_OK) {
        say("store size", ckpt_store_size(store, "not there", &size));
        say("store put", ckpt_store_put(store, "put", file_of("put", 1000), true));
        ckpt_store_close(store);
    }
    // Not rank 0: it asks for no trial, so that the failures are those of uploads.
    for (int rank = 1; rank >= 0; rank--) {
        d.ranks.world_size = 2;
        d.ranks.rank = rank;
        if (say("open", ckpt_uploader_open(&u, &d)) != CKPT_OK) continue;
        say("small", ckpt_upload_file(u, "small", file_of("small", 3000), true));
        if (env("SEC_FRESH") != NULL) say("fresh", ckpt_upload_file(u, "fresh", file_of("fresh", 11 << 20), false));
        say("big", ckpt_upload_file(u, "big", file_of("big", 11 << 20), true));
        if (env("SEC_DIE") != NULL) {
            usleep(400000);
            for (int i = 0; i < 200 && env("SEC_FRESH") != NULL && !begun(d.upload_staging_folder); i++) usleep(50000);
            _exit(0);
        }
        say("wait", ckpt_uploader_wait(u, 30));
        say("check", ckpt_uploader_check(u));
        (void)unlink(util_join(dir, "back"));
        say("download", ckpt_download_file(u, "small", util_join(dir, "back"), false));
        say("close", ckpt_uploader_close(u, 30));
    }
    return 0;
}

static int save(const char *uri) {
    static float w[5000];
    ckpt_state st;
    ckpt_store_desc s = desc();
    ckpt_saver_desc d;
    ckpt_saver *saver = NULL;
    ckpt_timestamp t;
    memset(&st, 0, sizeof st);
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    if (chdir(dir) != 0) return 1;
    ckpt_bind_f32(&st, "state/model/w", w, 5000);
    d.state = &st;
    d.run_name = "run";
    d.folder = uri;
    d.save_interval = "1ba";
    d.store_desc = &s;
    d.event_file = util_join(dir, "events");
    d.overwrite = true;
    d.num_attempts = 2;
    d.logger.fn = on_log;
    if (say("saver open", ckpt_saver_open(&saver, &d)) == CKPT_OK) {
        for (int i = 0; i < 3; i++) {
            ckpt_next_batch(&t, 1, 1, 0.1);
            say("batch", ckpt_saver_batch_end(saver, &t));
        }
        say("saver close", ckpt_saver_close(saver, 20));
    }
    ckpt_state_free(&st);
    return 0;
}

//-- servers -----------------------------------------------------------------------

static FILE *heads;
static pthread_mutex_t heads_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(net_request *r) {
    pthread_mutex_lock(&heads_lock);
    fputs(r->head, heads);
    fflush(heads);
    pthread_mutex_unlock(&heads_lock);
}

// Shows the request in its reply, as servers do that explain why a signature is wrong.
static void echo(net_request *r, void *user) {
    static const char *const codes[] = { "InternalError", "SignatureDoesNotMatch", "InvalidRequest" };
    char body[2 * NET_HEAD_MAX], header[16000], token[8192], signature[8192];
    note(r);
    snprintf(token, sizeof token, "%s", net_header(r, "x-amz-security-token"));
    snprintf(signature, sizeof signature, "%s", net_header(r, "authorization"));
    const char *sum = strstr(signature, "Signature=");
    if (sum == NULL && strncmp(signature, "SharedKey ", 10) == 0) sum = signature;
    snprintf(body, sizeof body, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>Not with %s, which is %s</Message><Token-0>%s</Token-0>"
             "<StringToSign>%s</StringToSign></Error>", codes[r->number % 3], r->number % 2 ? token : sum != NULL ? sum : "", r->target, token, r->head);
    snprintf(header, sizeof header, "x-echo: %s\r\nx-token: %.4000s\r\n", signature, token);
    net_reply(r, ((int *)user)[0], header, body, strlen(body));
}

// A text as JSON has it between quotes.
static void quote(char *out, size_t cap, const char *text) {
    size_t n = 0;
    for (; *text != 0 && n + 7 < cap; text++) {
        if (*text == '"' || *text == '\\') out[n++] = '\\', out[n++] = *text;
        else if ((unsigned char)*text < ' ') n += (size_t)snprintf(out + n, cap - n, "\\u%04x", (unsigned char)*text);
        else out[n++] = *text;
    }
    out[n] = 0;
}

// The same where errors are JSON, Google's, Oracle's and Databricks' in one.
static void echo_json(net_request *r, void *user) {
    static const char *const codes[] = { "backendError", "NotAuthenticated", "invalid" };
    static __thread char body[4 * NET_HEAD_MAX], head[2 * NET_HEAD_MAX], sign[16000], token[8192];
    char header[16000];
    note(r);
    snprintf(token, sizeof token, "%s", net_header(r, "authorization"));
    quote(sign, sizeof sign, token);
    quote(head, sizeof head, r->head);
    snprintf(body, sizeof body, "{\"code\":\"%s\",\"error_code\":\"%s\",\"message\":\"Not with %s, which is %s\",\"error\":{\"code\":400,\"message\":\"%s and %s\",\"errors\":"
             "[{\"reason\":\"%s\",\"message\":\"%s\"}]}}",
             codes[r->number % 3], codes[r->number % 3], r->number % 2 ? sign : head, r->target, r->number % 2 ? head : sign, r->target,
             codes[r->number % 3], sign);
    snprintf(header, sizeof header, "x-echo: %.8000s\r\nopc-request-id: %.4000s\r\n", token, token);
    net_reply(r, ((int *)user)[0], header, body, strlen(body));
}

static int run_echo(const char *uri) {
    static const int statuses[] = { 400, 403, 500, 200, 301 };
    heads = fopen(util_join(dir, "heads"), "w");
    for (int i = 0; i < 5; i++) {
        net_server n;
        int status = statuses[i];
        bool json = strncmp(uri, "gs:", 3) == 0 || strncmp(uri, "oci:", 4) == 0 || strncmp(uri, "dbfs:", 5) == 0 || strncmp(uri, "mlflow", 6) == 0;
        net_start(&n, json ? echo_json : echo, &status);
        setenv("SEC_ENDPOINT", n.url, 1);
        printf("a server that answers %d and shows the request\n", status);
        upload(uri);
        net_stop(&n);
    }
    fclose(heads);
    return 0;
}

static void elsewhere(net_request *r, void *user) {
    const char *to = (const char *)user;
    char header[600];
    snprintf(header, sizeof header, "Location: %s/stolen\r\nx-amz-bucket-region: eu-west-1\r\n", strchr(to, ' ') + 1);
    net_reply(r, atoi(to), header, "", 0);
}

static void record(net_request *r, void *user) {
    (void)user;
    note(r);
    net_reply(r, 200, "ETag: \"x\"\r\n", "", 0);
}

static int run_redirect(const char *uri) {
    static const int statuses[] = { 301, 302, 303, 307, 308 };
    heads = fopen(util_join(dir, "stolen"), "w");
    for (int i = 0; i < 5; i++) {
        net_server from, to;
        char text[200];
        net_start(&to, record, NULL);
        snprintf(text, sizeof text, "%d %s", statuses[i], to.url);
        net_start(&from, elsewhere, text);
        setenv("SEC_ENDPOINT", from.url, 1);
        upload(uri);
        int asked = net_count(&from), there = net_count(&to) + net_connections(&to);
        net_stop(&from);
        net_stop(&to);
        result(asked > 0 && there == 0, "a redirect by %d is not followed (%d requests, %d elsewhere)", statuses[i], asked, there);
    }
    fclose(heads);
    return failures != 0;
}

//-- names -------------------------------------------------------------------------

// `uri` must hold nothing but what this puts there. Below `outside` nothing may change.
static void check_names(const char *uri) {
    static const char *const bad[] = { "../up", "a/../../up", "..", "a/..", "../../../../../../../../tmp/ckpt-secrets-up" };
    static const char *const targets[] = { "../secret", "a/../../secret", "../../../../../../../../../../etc/passwd", "..", "a/.." };
    ckpt_store_desc s = desc();
    ckpt_uploader_desc d;
    ckpt_uploader *u = NULL;
    ckpt_store *store = NULL;
    const char *source = file_of("source", 100), *back = util_join(dir, "back"), *text = util_join(dir, "text");
    int refused = 0, kept = 0, followed = 0;
    memset(&d, 0, sizeof d);
    d.bucket_uri = uri;
    d.store_desc = &s;
    d.upload_staging_folder = util_join(dir, "staging");
    d.ranks.world_size = 1;
    if (say("open", ckpt_uploader_open(&u, &d)) != CKPT_OK || say("open", ckpt_store_open(&store, uri, &s)) != CKPT_OK) {
        result(false, "names in %.4s", uri);
        return;
    }
    for (int i = 0; i < UTIL_COUNT(bad); i++) refused += say(bad[i], ckpt_upload_file(u, bad[i], source, true)) == CKPT_ARG;
    result(refused == UTIL_COUNT(bad), "%.4s: %d of %d names with .. are refused by ckpt_upload_file", uri, refused, UTIL_COUNT(bad));
    if (strncmp(uri, "s3:", 3) != 0) {      // where names are paths; keys of S3 are any text
        refused = 0;
        for (int i = 0; i < UTIL_COUNT(bad); i++) refused += say(bad[i], ckpt_store_put(store, bad[i], source, true)) == CKPT_ARG;
        for (int i = 0; i < UTIL_COUNT(bad); i++) refused += say(bad[i], ckpt_store_get(store, bad[i], back, true)) == CKPT_ARG;
        for (int i = 0; i < UTIL_COUNT(bad); i++) refused += say(bad[i], ckpt_store_remove(store, bad[i])) == CKPT_ARG;
        result(refused == 3 * UTIL_COUNT(bad), "%.4s: %d of %d calls of the store with .. are refused", uri, refused, 3 * UTIL_COUNT(bad));
    }
    for (int i = 0; i < UTIL_COUNT(targets); i++) {
        util_write_text(text, targets[i]);
        util_write_text(back, "as it was");
        if (say("put", ckpt_store_put(store, "latest.symlink", text, true)) != CKPT_OK) continue;
        followed += say("follow", ckpt_download_file(u, "latest.symlink", back, true)) != CKPT_OK;
        followed += say("follow", ckpt_download_file(u, "latest", back, true)) != CKPT_OK;
        followed += say("get", ckpt_get_file(util_fmt("%s/latest.symlink", uri), back, true)) != CKPT_OK;
        kept += strcmp(util_read(back, NULL), "as it was") == 0;
    }
    result(followed == 3 * UTIL_COUNT(targets) && kept == UTIL_COUNT(targets), "%.4s: %d of %d .symlink objects with .. are refused, %d local files untouched", uri,
           followed, 3 * UTIL_COUNT(targets), kept);
    say("close", ckpt_uploader_close(u, 20));
    ckpt_store_close(store);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    dir = env("SEC_DIR");
    if (dir == NULL) return 2;
    util_mkdir(dir);
    if (strcmp(what, "upload") == 0 && argc > 2) return upload(argv[2]);
    if (strcmp(what, "save") == 0 && argc > 2) return save(argv[2]);
    if (strcmp(what, "echo") == 0) return run_echo(argc > 2 ? argv[2] : "s3://bucket/prefix");
    if (strcmp(what, "redirect") == 0) return run_redirect(argc > 2 ? argv[2] : "s3://bucket/prefix");
    if (strcmp(what, "names") != 0) return 2;
    for (int i = 2; i < argc; i++) check_names(argv[i]);
    return failures != 0;
}
