// cc -DCKPT_NO_REMOTE -I. examples/13_custom_store.c -o custom_store -lpthread      a store of your own: three functions are enough
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 16, ROOM = 1 << 16 };
static struct { char name[200]; char bytes[ROOM]; size_t size; } objects[MOST];            // a "cloud" in memory

static int find(const char *name) { int i = 0; while (i < MOST && strcmp(objects[i].name, name) != 0) i++; return i < MOST ? i : -1; }
static ckpt_err put(const char *name, const char *path, bool overwrite, void *user) {
    int at = find(name), i = at >= 0 ? at : find("");
    (void)user;
    if (at >= 0 && !overwrite) return ckpt_set_error(CKPT_EXISTS, "it is there");
    FILE *f = i >= 0 ? fopen(path, "rb") : NULL;
    if (f == NULL) return ckpt_set_error(CKPT_NO_SPACE, "the cloud is full");              // CKPT_NET would be tried again
    objects[i].size = fread(objects[i].bytes, 1, ROOM, f);
    snprintf(objects[i].name, sizeof objects[i].name, "%s", name);
    return fclose(f) == 0 ? CKPT_OK : CKPT_IO;
}
static ckpt_err get(const char *name, const char *to, void *user) {
    int i = find(name);
    FILE *f = i >= 0 ? fopen(to, "wb") : NULL;
    (void)user;
    if (f == NULL) return ckpt_set_error(CKPT_NOT_FOUND, "no such object");
    bool whole = fwrite(objects[i].bytes, 1, objects[i].size, f) == objects[i].size;
    return fclose(f) == 0 && whole ? CKPT_OK : ckpt_set_error(CKPT_IO, "cannot write");
}
static ckpt_err size(const char *name, uint64_t *out, void *user) {
    int i = find(name);
    (void)user;
    return i < 0 ? ckpt_set_error(CKPT_NOT_FOUND, "no such object") : (*out = objects[i].size, CKPT_OK);
}

int main(void) {
    float w[1000] = { 42 };
    ckpt_state st = {0};
    ckpt_bind_f32(&st, "state/model/w", w, 1000);
    ckpt_store_ops ops = { .put = put, .get = get, .size = size, .one_at_a_time = true };
    ckpt_store *store = NULL;
    ckpt_uploader *up = NULL;
    ckpt_saver *saver = NULL;
    ckpt_uploader_desc ud = { .store = NULL };
    ckpt_saver_desc sd = { .state = &st, .run_name = "custom", .folder = "out/{run_name}", .overwrite = true,
                           .uploaders = &up, .uploaders_count = 1 };
    ckpt_timestamp t = { .epoch = 1, .batch = 10 };
    bool ok = ckpt_store_custom(&store, &ops, NULL) == CKPT_OK && (ud.store = store, ckpt_uploader_open(&up, &ud)) == CKPT_OK &&
              ckpt_saver_open(&saver, &sd) == CKPT_OK && ckpt_saver_save(saver, &t) == CKPT_OK && ckpt_saver_close(saver, 0) == CKPT_OK &&
              ckpt_uploader_close(up, 0) == CKPT_OK;
    w[0] = 0;
    ckpt_load_desc load = { .load_path = "out/custom/latest-rank0.pt", .state = &st, .store = store };      // a name in the store
    if (!ok || ckpt_load(&load, &t) != CKPT_OK) return fprintf(stderr, "%s\n", ckpt_last_error()), 1;
    printf("epoch %d is back from the cloud: w[0] = %g\n", (int)t.epoch, (double)w[0]);
    ckpt_store_close(store);
    ckpt_state_free(&st);
    return 0;
}
