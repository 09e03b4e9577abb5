/* bucket_util.h: a store of the user's own over a folder, which does what a test tells it to. After ckpt.h and util.h. */
#ifndef BUCKET_UTIL_H
#define BUCKET_UTIL_H

#include <pthread.h>

typedef struct bucket {
    const char      *dir;               // objects, '/' in names as '%'
    ckpt_store      *store;
    pthread_mutex_t  lock;
    char             log[65536];        // "put NAME\n" "get NAME\n" "size NAME\n" "list PREFIX\n" "remove NAME\n"
    const char      *fail;              // calls whose log line begins with this fail; "this|or this"
    ckpt_err         fail_with;
    int              fail_times;        // so many of them; -1: all
    bool             loses;             // the answers of puts, which it has done
    double           slow;              // seconds that a put takes
    bool             held;              // puts wait until it is false
    const char      *held_name;         // those whose name has this in it alone; NULL: all; "remove NAME": not a put, but that
    int              waiting;           // calls
    int              under_way, most;   // puts
    const char      *before;            // a call whose log line is that, once: before it `then` is called; NULL: none
    void           (*then)(struct bucket *b);
} bucket;

UTIL_FN const char *bucket_path(const bucket *b, const char *name) {
    static __thread char path[4096];
    int n = snprintf(path, sizeof path, "%s/", b->dir);
    for (const char *p = name; *p != 0 && n < (int)sizeof path - 1; p++) path[n++] = *p == '/' ? '%' : *p;
    path[n] = 0;
    return path;
}

// Notes a call and says how it ends.
UTIL_FN ckpt_err bucket_call(bucket *b, const char *verb, const char *name) {
    ckpt_err e = CKPT_OK;
    char line[1024];
    (void)snprintf(line, sizeof line, "%s %s", verb, name);
    pthread_mutex_lock(&b->lock);
    bool now = b->before != NULL && strcmp(line, b->before) == 0;
    if (now) b->before = NULL;
    if (now) b->then(b);
    size_t n = strlen(b->log);
    (void)snprintf(b->log + n, sizeof b->log - n, "%s\n", line);
    bool fails = false;
    for (const char *p = b->fail_times != 0 ? b->fail : NULL; p != NULL && !fails;) {
        fails = strncmp(line, p, strcspn(p, "|")) == 0;
        p = strchr(p, '|') != NULL ? strchr(p, '|') + 1 : NULL;
    }
    if (fails) e = b->fail_with;
    if (fails && b->fail_times > 0) b->fail_times--;
    pthread_mutex_unlock(&b->lock);
    return e == CKPT_OK ? e : ckpt_set_error(e, "the test says so");
}

UTIL_FN ckpt_err bucket_copy(const char *from, const char *to) {
    char block[65536];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = in != NULL ? fopen(to, "wb") : NULL;
    if (out == NULL) return ckpt_set_error(CKPT_IO, "cannot copy");
    while ((n = fread(block, 1, sizeof block, in)) > 0) (void)fwrite(block, 1, n, out);
    fclose(in);
    return fclose(out) == 0 ? CKPT_OK : ckpt_set_error(CKPT_IO, "cannot copy");
}

// Waits while a call is held: a put of that name, or another call whose log line is that.
UTIL_FN void bucket_await(bucket *b, const char *what, bool put) {
    bool held = true, waits = false;
    while (held) {
        pthread_mutex_lock(&b->lock);
        const char *name = b->held_name;
        held = b->held && (name == NULL ? put : put ? strstr(what, name) != NULL : strcmp(what, name) == 0);
        b->waiting += (int)held - (int)waits;
        waits = held;
        pthread_mutex_unlock(&b->lock);
        if (held) usleep(1000);
    }
}

UTIL_FN ckpt_err bucket_put(const char *name, const char *path, bool overwrite, void *user) {
    bucket *b = (bucket *)user;
    char temp[4200], final[4096];
    pthread_mutex_lock(&b->lock);
    if (++b->under_way > b->most) b->most = b->under_way;
    pthread_mutex_unlock(&b->lock);
    bucket_await(b, name, true);
    if (b->slow > 0) usleep((unsigned)(b->slow * 1e6));
    ckpt_err e = bucket_call(b, "put", name);
    (void)snprintf(final, sizeof final, "%s", bucket_path(b, name));
    (void)snprintf(temp, sizeof temp, "%s.part%ld", final, (long)pthread_self());
    if (e == CKPT_OK && !overwrite && access(final, F_OK) == 0) e = ckpt_set_error(CKPT_EXISTS, "it exists");
    if (e == CKPT_OK) e = bucket_copy(path, temp);
    if (e == CKPT_OK && rename(temp, final) != 0) e = ckpt_set_error(CKPT_IO, "cannot rename");
    pthread_mutex_lock(&b->lock);
    b->under_way--;
    if (e == CKPT_OK && b->loses) e = ckpt_set_error(CKPT_NET, "the answer is lost");
    pthread_mutex_unlock(&b->lock);
    return e;
}

UTIL_FN ckpt_err bucket_size(const char *name, uint64_t *size, void *user) {
    bucket *b = (bucket *)user;
    struct stat st;
    ckpt_err e = bucket_call(b, "size", name);
    if (e == CKPT_OK && stat(bucket_path(b, name), &st) != 0) e = ckpt_set_error(CKPT_NOT_FOUND, "there is no such object");
    if (e == CKPT_OK) *size = (uint64_t)st.st_size;
    return e;
}

UTIL_FN ckpt_err bucket_get(const char *name, const char *destination, void *user) {
    bucket *b = (bucket *)user;
    ckpt_err e = bucket_call(b, "get", name);
    if (e == CKPT_OK && access(bucket_path(b, name), F_OK) != 0) e = ckpt_set_error(CKPT_NOT_FOUND, "there is no such object");
    return e == CKPT_OK ? bucket_copy(bucket_path(b, name), destination) : e;
}

UTIL_FN ckpt_err bucket_list(const char *prefix, ckpt_err (*each)(const char *name, uint64_t size, void *each_user), void *each_user, void *user) {
    bucket *b = (bucket *)user;
    ckpt_err e = bucket_call(b, "list", prefix);
    char *all = strdup(util_list(b->dir)), *save = NULL;
    for (char *name = strtok_r(all, "\n", &save); name != NULL && e == CKPT_OK; name = strtok_r(NULL, "\n", &save)) {
        struct stat st;
        if (strstr(name, ".part") != NULL || stat(util_join(b->dir, name), &st) != 0) continue;
        for (char *p = name; *p != 0; p++) if (*p == '%') *p = '/';
        if (strncmp(name, prefix, strlen(prefix)) == 0) e = each(name, (uint64_t)st.st_size, each_user);
    }
    free(all);
    return e;
}

UTIL_FN ckpt_err bucket_remove(const char *name, void *user) {
    bucket *b = (bucket *)user;
    char line[1024];
    (void)snprintf(line, sizeof line, "remove %s", name);
    bucket_await(b, line, false);
    ckpt_err e = bucket_call(b, "remove", name);
    if (e == CKPT_OK && unlink(bucket_path(b, name)) != 0) e = ckpt_set_error(CKPT_NOT_FOUND, "there is no such object");
    return e;
}

UTIL_FN bucket *bucket_new_as(const char *dir, const char *name) {
    bucket *b = (bucket *)util_keep(calloc(1, sizeof *b), false);
    ckpt_store_ops ops;
    memset(&ops, 0, sizeof ops);
    ops.put = bucket_put;
    ops.get = bucket_get;
    ops.size = bucket_size;
    ops.list = bucket_list;
    ops.remove = bucket_remove;
    ops.name = name;
    b->dir = dir != NULL ? dir : util_temp_dir();
    pthread_mutex_init(&b->lock, NULL);
    if (ckpt_store_custom(&b->store, &ops, b) != CKPT_OK) fail();
    return b;
}

UTIL_FN bucket *bucket_new(const char *dir) {
    return bucket_new_as(dir, NULL);
}

UTIL_FN void bucket_end(bucket *b) {
    ckpt_store_close(b->store);
    pthread_mutex_destroy(&b->lock);
}

// How often a call was made whose line begins so.
UTIL_FN int bucket_count(bucket *b, const char *what) {
    int count = 0;
    pthread_mutex_lock(&b->lock);
    for (const char *p = b->log; *p != 0; p = strchr(p, '\n') + 1) count += strncmp(p, what, strlen(what)) == 0;
    pthread_mutex_unlock(&b->lock);
    return count;
}

// Is something being put?
UTIL_FN bool bucket_is_busy(bucket *b) {
    pthread_mutex_lock(&b->lock);
    bool busy = b->under_way > 0;
    pthread_mutex_unlock(&b->lock);
    return busy;
}

// How many calls wait until they are let go?
UTIL_FN int bucket_waiting(bucket *b) {
    pthread_mutex_lock(&b->lock);
    int waiting = b->waiting;
    pthread_mutex_unlock(&b->lock);
    return waiting;
}

UTIL_FN void bucket_hold(bucket *b, bool held) {
    pthread_mutex_lock(&b->lock);
    b->held = held;
    pthread_mutex_unlock(&b->lock);
}

UTIL_FN void bucket_hold_only(bucket *b, const char *name) {
    pthread_mutex_lock(&b->lock);
    b->held_name = name;
    b->held = true;
    pthread_mutex_unlock(&b->lock);
}

UTIL_FN void bucket_fail(bucket *b, const char *what, ckpt_err with, int times) {
    pthread_mutex_lock(&b->lock);
    b->fail = what;
    b->fail_with = with;
    b->fail_times = times;
    pthread_mutex_unlock(&b->lock);
}

UTIL_FN bool bucket_has(const bucket *b, const char *name) {
    return access(bucket_path(b, name), F_OK) == 0;
}

#define BUCKET_LEDGER ".ckpt-ledger-"

// "a b c": names in the bucket, '/' as '%', without copies of ledgers.
UTIL_FN const char *bucket_names(const bucket *b) {
    char *all = util_fmt("%s", util_list(b->dir)), *to = all;
    for (const char *p = all; *p != 0; ) {
        size_t n = strcspn(p, "\n") + 1;
        const char *hidden = strstr(p, BUCKET_LEDGER);
        bool shown = hidden == NULL || hidden >= p + n;
        if (shown && to > all) *to++ = ' ';
        if (shown) memmove(to, p, n - 1);
        if (shown) to += n - 1;
        p += n;
    }
    *to = 0;
    return all;
}

// The copy of a ledger in a folder of the bucket ("run/"); NULL: there is none.
UTIL_FN const char *bucket_ledger(const bucket *b, const char *folder) {
    char *all = util_fmt("%s", util_list(b->dir)), *next = NULL;
    for (char *name = strtok_r(all, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next)) {
        for (char *p = name; *p != 0; p++) if (*p == '%') *p = '/';
        const char *base = name + strlen(folder);
        if (strncmp(name, folder, strlen(folder)) == 0 && strncmp(base, BUCKET_LEDGER, sizeof BUCKET_LEDGER - 1) == 0) return name;
    }
    return NULL;
}

UTIL_FN const char *bucket_text(const bucket *b, const char *name) {
    return util_read(bucket_path(b, name), NULL);
}

// The ledger in a folder of its only store. Workers may be writing it anew, in a file beside it.
UTIL_FN const char *ledger_path(const char *dir) {
    const char *p = util_list(dir), *end = p;
    for (; *p != 0; p = *end != 0 ? end + 1 : end) {
        end = p + strcspn(p, "\n");
        bool whole = end - p > 6 && strncmp(end - 6, ".jsonl", 6) == 0;
        if (whole && strncmp(p, ".ckpt-remote-", 13) == 0) break;
    }
    assert_true(*p != 0);
    return util_join(dir, util_fmt("%.*s", (int)(end - p), p));
}

#endif // BUCKET_UTIL_H
