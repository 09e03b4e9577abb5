/* moody.h: a store of the user's own, a folder, that is away, fails now and then, hangs, refuses, or does what it is asked and loses the
   answer; and in which a process can die in the middle of any request. After ckpt.h, saver_util.h and mortal.h.

   Its names begin with "run/", which is the folder itself. */
#ifndef MOODY_H
#define MOODY_H

typedef enum mood { FINE, AWAY, FLAKY, HANGS, REFUSES, LOSES, MOODS } mood;

typedef struct place {
    const char *dir, *name;
    mood        how;
    int         from, until;            // requests in which it is so
    int         asked;
    unsigned    random;
    bool       *owes;
} place;

static const char *place_log;           // a file that gets a line for each request; NULL: none

UTIL_FN void place_tell(const place *p, const char *what, const char *name, ckpt_err e) {
    FILE *f = place_log != NULL ? fopen(place_log, "a") : NULL;
    if (f != NULL) (void)fprintf(f, "store %s: %s %s: %s\n", p->name, what, name, ckpt_err_name(e));
    if (f != NULL) fclose(f);
}

UTIL_FN ckpt_err place_mood(place *p, bool *done_first) {
    int n = __atomic_fetch_add(&p->asked, 1, __ATOMIC_SEQ_CST);
    unsigned dice = (__atomic_fetch_add(&p->random, 2654435761u, __ATOMIC_SEQ_CST) >> 13) % 3;
    *done_first = false;
    mortal("request", NULL, -1);
    if (p->how == FINE || n < p->from || n >= p->until) return CKPT_OK;
    if (p->how == FLAKY && dice != 0) return CKPT_OK;
    if (p->how == HANGS) usleep(3000);
    *done_first = p->how == LOSES && dice != 0;
    return p->how == REFUSES ? CKPT_AUTH : CKPT_NET;
}

UTIL_FN const char *place_path(const place *p, const char *name, char *room, size_t size) {
    (void)snprintf(room, size, "%s/%s", p->dir, strchr(name, '/') != NULL ? strchr(name, '/') + 1 : name);
    return room;
}

// The folders above an object come and go with it: another rank may take one away that this one has just made.
UTIL_FN FILE *place_create(const place *p, const char *path) {
    char folder[1100];
    FILE *f = NULL;
    for (int i = 0; i < 100 && (f = fopen(path, "wb")) == NULL; i++) {
        (void)snprintf(folder, sizeof folder, "%s", path);
        *strrchr(folder, '/') = 0;
        if (strcmp(folder, p->dir) != 0) (void)mkdir(folder, 0777);
    }
    return f;
}

UTIL_FN ckpt_err place_copy(const place *p, const char *from, const char *to) {
    char block[8192];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = in == NULL ? NULL : p != NULL ? place_create(p, to) : fopen(to, "wb");
    if (out == NULL) {
        if (in != NULL) fclose(in);
        return ckpt_set_error(CKPT_NOT_FOUND, "there is no such object");
    }
    while ((n = fread(block, 1, sizeof block, in)) > 0) (void)fwrite(block, 1, n, out);
    fclose(in);
    return fclose(out) == 0 ? CKPT_OK : ckpt_set_error(CKPT_IO, "cannot copy");
}

UTIL_FN ckpt_err place_end(ckpt_err mood_says, ckpt_err e) {
    mortal("answer", NULL, -1);
    return mood_says != CKPT_OK ? ckpt_set_error(mood_says, "the store is in a mood") : e;
}

UTIL_FN ckpt_err place_put(const char *name, const char *path, bool overwrite, void *user) {
    place *p = (place *)user;
    bool done_first;
    char final[1000], temp[1100];
    ckpt_err m = place_mood(p, &done_first), e = CKPT_OK;
    if (m != CKPT_OK && !done_first) return place_end(m, e);
    (void)place_path(p, name, final, sizeof final);
    (void)snprintf(temp, sizeof temp, "%s.part%ld", final, (long)getpid());
    if (!overwrite && access(final, F_OK) == 0) return place_end(m, ckpt_set_error(CKPT_EXISTS, "it exists"));
    e = place_copy(p, path, temp);
    mortal("half", NULL, -1);
    if (e == CKPT_OK && rename(temp, final) != 0) e = ckpt_set_error(CKPT_IO, "cannot rename");
    bool link = place_log != NULL && strstr(name, ".symlink") != NULL;
    place_tell(p, "put", link ? util_fmt("%s (%s)", name, util_read(path, NULL)) : name, e);
    return place_end(m, e);
}

UTIL_FN ckpt_err place_size(const char *name, uint64_t *size, void *user) {
    place *p = (place *)user;
    bool done_first;
    char path[1000];
    struct stat st;
    ckpt_err m = place_mood(p, &done_first);
    if (m != CKPT_OK && p->owes != NULL) *p->owes = true;
    if (m != CKPT_OK) return place_end(m, m);
    if (stat(place_path(p, name, path, sizeof path), &st) != 0 || !S_ISREG(st.st_mode)) return ckpt_set_error(CKPT_NOT_FOUND, "there is no such object");
    *size = (uint64_t)st.st_size;
    return CKPT_OK;
}

UTIL_FN ckpt_err place_get(const char *name, const char *destination, void *user) {
    place *p = (place *)user;
    bool done_first;
    char path[1000];
    ckpt_err m = place_mood(p, &done_first);
    if (m != CKPT_OK) return place_end(m, m);
    return place_copy(NULL, place_path(p, name, path, sizeof path), destination);
}

UTIL_FN ckpt_err place_each(const char *folder, const char *above, const char *prefix,
                            ckpt_err (*each)(const char *name, uint64_t size, void *each_user), void *each_user) {
    ckpt_err e = CKPT_OK;
    DIR *d = opendir(folder);
    if (d == NULL) return errno == ENOENT ? CKPT_OK : ckpt_set_error(CKPT_IO, "cannot list");
    for (struct dirent *n = readdir(d); n != NULL && e == CKPT_OK; n = readdir(d)) {
        char name[700], path[1000];
        struct stat st;
        (void)snprintf(name, sizeof name, "%.300s%.250s", above, n->d_name);
        (void)snprintf(path, sizeof path, "%.600s/%.250s", folder, n->d_name);
        if (strcmp(n->d_name, ".") == 0 || strcmp(n->d_name, "..") == 0 || strncmp(n->d_name, ".ckpt", 5) == 0 || strstr(name, ".part") != NULL) continue;
        if (stat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) {
            (void)snprintf(name, sizeof name, "%.300s%.250s/", above, n->d_name);
            e = place_each(path, name, prefix, each, each_user);
        } else if (strncmp(name, prefix, strlen(prefix)) == 0) {
            e = each(name, (uint64_t)st.st_size, each_user);
        }
    }
    closedir(d);
    return e;
}

UTIL_FN ckpt_err place_list(const char *prefix, ckpt_err (*each)(const char *name, uint64_t size, void *each_user), void *each_user,
                            void *user) {
    place *p = (place *)user;
    bool done_first;
    ckpt_err e = place_mood(p, &done_first);
    return e != CKPT_OK ? place_end(e, e) : place_each(p->dir, "run/", prefix, each, each_user);
}

UTIL_FN ckpt_err place_remove(const char *name, void *user) {
    place *p = (place *)user;
    bool done_first;
    char path[1000];
    ckpt_err m = place_mood(p, &done_first), e = CKPT_OK;
    if (m != CKPT_OK && p->owes != NULL) *p->owes = true;
    if (m != CKPT_OK && !done_first) return place_end(m, m);
    if (unlink(place_path(p, name, path, sizeof path)) != 0) e = ckpt_set_error(CKPT_NOT_FOUND, "there is no such object");
    place_tell(p, "remove", name, e);
    *strrchr(path, '/') = 0;
    if (strcmp(path, p->dir) != 0) (void)rmdir(path);
    return place_end(m, e);
}

UTIL_FN ckpt_store *place_store(place *p) {
    ckpt_store_ops ops;
    ckpt_store *store = NULL;
    memset(&ops, 0, sizeof ops);
    ops.name = p->name;
    ops.put = place_put;
    ops.get = place_get;
    ops.size = place_size;
    ops.list = place_list;
    ops.remove = place_remove;
    if (ckpt_store_custom(&store, &ops, p) != CKPT_OK) _exit(1);
    return store;
}

// "ckpt push": what is staged for it goes.
UTIL_FN void place_push(const char *dir, const char *name, const char *staging) {
    place at;
    ckpt_uploader_desc d;
    ckpt_uploader *u;
    memset(&at, 0, sizeof at);
    memset(&d, 0, sizeof d);
    at.dir = dir;
    at.name = name;
    d.store = place_store(&at);
    d.upload_staging_folder = staging;
    ok(ckpt_uploader_open(&u, &d));
    while (ckpt_uploader_wait(u, 0) != CKPT_OK) {}
    (void)!ckpt_uploader_close(u, 0);
    ckpt_store_close(d.store);
}

//-- a ledger's copy -------------------------------------------------------------------

// What it says of a checkpoint: that it is this save; its metric; that it is pinned.
typedef struct place_says { bool known, measured, pinned; } place_says;

// The text of the copy in a store; NULL: there is none.
UTIL_FN const char *place_ledger(const char *dir) {
    static const char begin[] = ".ckpt-ledger-", end[] = ".jsonl";
    char *list = util_fmt("%s", util_list(dir)), *next = NULL;
    for (char *name = strtok_r(list, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next)) {
        size_t n = strlen(name);
        if (n > sizeof end && strncmp(name, begin, sizeof begin - 1) == 0 && strcmp(name + n - (sizeof end - 1), end) == 0) return util_read(util_join(dir, name), NULL);
    }
    return NULL;
}

UTIL_FN place_says place_ledger_says(const char *text, const char *name, uint64_t number, double metric) {
    place_says says = { false, false, false };
    const char *at = text != NULL ? strstr(text, util_fmt("%s\",\"number\":%llu,", name, (unsigned long long)number)) : NULL;
    if (at == NULL) return says;
    const char *line = util_fmt("%.*s", (int)strcspn(at, "\n"), at), *value = strstr(line, "\"metric\":");
    says.known = true;
    says.measured = value != NULL && value[9] != 'n' && strtod(value + 9, NULL) == metric;
    says.pinned = strstr(line, "\"pinned\":true") != NULL;
    return says;
}

// Which of the rules keeps it, as far as the copy knew; NULL: none of them. best: it is the best of all. moved: the machine that knew
// of pins is gone.
UTIL_FN const char *place_kept_by(place_says says, uint64_t number, int every, bool best, bool moved) {
    if (says.known && every > 0 && number % (uint64_t)every == 0) return util_fmt("was save %d", (int)number);
    if (says.known && best && says.measured) return "was the best";
    return says.known && says.pinned && moved ? "was pinned on another machine" : NULL;
}

#endif // MOODY_H
