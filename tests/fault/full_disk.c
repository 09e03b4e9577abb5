// Proves what happens on a disk that is full, has no inodes left, is read-only, or has a folder where a file should be: a clear failure, and
// what was saved before stays whole. run.sh: helper
// full_disk DIR KIND: DIR is a small file system of that kind: full, inodes, readonly, folder. Status 0: as it should be.
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "fault_util.h"

static int wrong(const char *what) {
    printf("  %s; last error: '%s'\n", what, ckpt_last_error());
    return 1;
}

#define expect(condition) do { if (!(condition)) return wrong("not " #condition); } while (0)

// Fills the file system but for `left` bytes.
static void fill(const char *path, size_t left) {
    static char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    off_t size = 0;
    if (fd < 0) util_die("cannot create", path);
    for (size_t n = sizeof block; n > 0; n /= 2) {
        ssize_t w;
        while ((w = write(fd, block, n)) > 0) size += w;
    }
    if (ftruncate(fd, size > (off_t)left ? size - (off_t)left : 0) != 0) util_die("cannot cut", path);
    close(fd);
}

static void fill_inodes(const char *dir) {
    for (int i = 0; i < 100000; i++) {
        int fd = open(util_fmt("%s/f%d", dir, i), O_WRONLY | O_CREAT, 0666);
        if (fd < 0) break;
        close(fd);
    }
}

static int one_full(const char *dir, model *m, ckpt_snapshot snapshot, const char *filename, ckpt_err code, bool inodes) {
    const char *folder = util_fmt("%s/run", dir), *filler = util_join(dir, "filler");
    const char *latest = util_fmt("%s/latest-rank0.pt", folder), *single = util_join(dir, "single.pt");
    run_report r = run_saver(m, folder, CKPT_SNAPSHOT_NONE, filename, false, 1, 2);
    expect(r.first == CKPT_OK && r.acked == 2);
    model_set(m, 7);
    expect(ckpt_save(single, &m->st, NULL) == CKPT_OK);
    // From no room at all to almost enough.
    for (size_t left = 0; left <= 280000 && (left == 0 || !inodes); left += 40000) {
        if (inodes) fill_inodes(dir);
        else fill(filler, left);
        model_set(m, 8);
        ckpt_err e = ckpt_save(single, &m->st, NULL);
        expect(e == code);
        expect(strstr(ckpt_last_error(), "single.pt") != NULL && strstr(ckpt_last_error(), "space") != NULL);
        expect(number_in(single) == 7);
        r = run_saver(m, folder, snapshot, filename, true, 3, 4);
        expect(r.first == code && r.acked == 0);
        expect(strstr(util_list(folder), ".tmp") == NULL && strstr(util_list(dir), ".tmp") == NULL);
        expect(ckpt_verify(latest, NULL) == CKPT_OK && number_in(latest) == 2);
    }
    if (inodes) for (int i = 0; i < 100000 && unlink(util_fmt("%s/f%d", dir, i)) == 0; i++) {}
    else (void)unlink(filler);
    r = run_saver(m, folder, snapshot, filename, true, 3, 4);
    expect(r.first == CKPT_OK && r.acked == 4);
    expect(number_in(latest) == 4);
    util_remove_tree(folder);
    (void)unlink(single);
    return 0;
}

// A run whose rule is lower than that of the one before, on a disk that this one has filled: what is not to be kept any more makes room.
static int lowered(const char *dir, model *m, ckpt_snapshot snapshot, bool inodes) {
    const char *folder = util_join(dir, "run"), *filler = util_join(dir, "filler"), *latest = util_join(folder, "latest-rank0.pt");
    ckpt_saver_desc d = saver_desc(m, folder, snapshot, "ba{batch}.pt");
    for (int life = 0; life < 2; life++) {
        ckpt_saver *s = NULL;
        ckpt_timestamp t;
        d.num_checkpoints_to_keep = life == 0 ? 3 : 1;
        expect(ckpt_saver_open(&s, &d) == CKPT_OK);
        if (life == 1) expect(ckpt_saver_resume(s, &t) == CKPT_OK && t.batch == 3);
        for (int b = life == 0 ? 1 : 4; b <= (life == 0 ? 3 : 6); b++) {
            t = batch_time(b);
            model_set(m, b);
            ckpt_err e = ckpt_saver_save(s, &t);
            if (e == CKPT_OK) e = ckpt_saver_wait(s, 0);
            expect(e == CKPT_OK && number_in(latest) == b);
        }
        expect(ckpt_saver_close(s, 0) == CKPT_OK);
        if (life == 1) break;
        if (inodes) {                   // but for two: what the saver itself has open
            fill_inodes(dir);
            expect(unlink(util_fmt("%s/f0", dir)) == 0 && unlink(util_fmt("%s/f1", dir)) == 0);
        } else {
            fill(filler, 4096);         // the folder's lock has something in it
        }
    }
    expect(strcmp(util_names(folder, NULL), "ba6.pt latest-rank0.pt") == 0);
    for (int i = 2; inodes && unlink(util_fmt("%s/f%d", dir, i)) == 0; i++) {}
    (void)unlink(filler);
    util_remove_tree(folder);
    return 0;
}

// A compressed checkpoint that has no room to be unpacked beside itself.
static int packed(const char *dir) {
    enum { SIZE = 4 << 20 };
    const char *path = util_join(dir, "packed.pt.gz"), *before = getenv("TMPDIR");
    unsigned char *zeros = (unsigned char *)util_keep(calloc(1, SIZE), false);
    ckpt_load_desc d;
    ckpt_state st;
    memset(&st, 0, sizeof st);
    memset(&d, 0, sizeof d);
    ckpt_bind_bytes(&st, "zeros", zeros, SIZE);
    d.load_path = path;
    d.state = &st;
    expect(ckpt_save(path, &st, NULL) == CKPT_OK);
    for (int full_too = 0; full_too < 2; full_too++) {      // and where TMPDIR is that disk
        if (full_too) setenv("TMPDIR", dir, 1);
        memset(zeros, 1, SIZE);
        expect(ckpt_load(&d, NULL) == CKPT_OK);
        expect(zeros[0] == 0 && zeros[SIZE - 1] == 0);
        expect(strcmp(util_list(dir), "packed.pt.gz\n") == 0);
    }
    if (before != NULL) setenv("TMPDIR", before, 1);
    else unsetenv("TMPDIR");
    ckpt_state_free(&st);
    (void)unlink(path);
    return 0;
}

static int readonly(const char *dir, model *m) {
    const char *folder = util_join(dir, "run");
    ckpt_err e = ckpt_save(util_join(dir, "b.pt"), &m->st, NULL);
    expect(e == CKPT_AUTH);
    expect(strstr(ckpt_last_error(), "b.pt") != NULL);
    run_report r = run_saver(m, folder, CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 3, 4);
    expect(r.first == CKPT_AUTH);
    expect(strstr(r.sentence, dir) != NULL);
    expect(number_in(util_join(folder, "latest-rank0.pt")) == 2);
    expect(ckpt_verify(util_join(folder, "ba2.pt"), NULL) == CKPT_OK);
    ckpt_folder_desc d;
    ckpt_folder *f = NULL;
    memset(&d, 0, sizeof d);
    d.folder = folder;
    expect(ckpt_folder_open(&f, &d) == CKPT_OK && ckpt_folder_count(f) == 2);
    expect(ckpt_folder_verify(f, 1) == CKPT_OK);
    expect(ckpt_folder_pin(f, 1, true) == CKPT_AUTH);
    expect(ckpt_folder_remove(f, 0) == CKPT_AUTH);
    ckpt_folder_close(f);
    return 0;
}

static int in_the_way(const char *dir, model *m) {
    const char *folder = util_join(dir, "way");
    util_mkdir(folder);
    util_mkdir(util_join(folder, "x.pt"));
    util_mkdir(util_join(folder, "ba3.pt"));
    ckpt_err e = ckpt_save(util_join(folder, "x.pt"), &m->st, NULL);
    expect(e == CKPT_EXISTS && strstr(ckpt_last_error(), "folder") != NULL);
    run_report r = run_saver(m, folder, CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 1, 4);
    expect(r.first == CKPT_EXISTS && strstr(r.sentence, "ba3.pt") != NULL && r.acked == 4);
    expect(number_in(util_join(folder, "latest-rank0.pt")) == 4);
    expect(strstr(util_list(folder), ".tmp") == NULL);
    util_write_text(util_join(dir, "file"), "in the way");
    r = run_saver(m, util_join(dir, "file"), CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 1, 1);
    expect(r.first == CKPT_EXISTS && strstr(r.sentence, "in the way") != NULL);
    r = run_saver(m, util_join(dir, "file/below"), CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 1, 1);
    expect(r.first == CKPT_EXISTS);
    return 0;
}

int main(int argc, char **argv) {
    model m;
    if (argc != 3) return 2;
    util_clear_env();
    model_open(&m, NULL);
    int bad = 0;
    if (strcmp(argv[2], "full") == 0 || strcmp(argv[2], "inodes") == 0) {
        bool inodes = argv[2][0] == 'i';
        if (!inodes) bad = packed(argv[1]);
        if (bad == 0) bad = one_full(argv[1], &m, CKPT_SNAPSHOT_NONE, "ba{batch}.pt", CKPT_NO_SPACE, inodes);
        if (bad == 0) bad = one_full(argv[1], &m, CKPT_SNAPSHOT_COPY, "ba{batch}.pt", CKPT_NO_SPACE, inodes);
        if (bad == 0) bad = one_full(argv[1], &m, CKPT_SNAPSHOT_LAZY, "ba{batch}.pt", CKPT_NO_SPACE, inodes);
        static const ckpt_snapshot all[] = { CKPT_SNAPSHOT_NONE, CKPT_SNAPSHOT_COPY, CKPT_SNAPSHOT_LAZY };
        for (int i = 0; i < 3 && bad == 0; i++) bad = lowered(argv[1], &m, all[i], inodes);
    } else if (strcmp(argv[2], "prepare") == 0) {
        bad = run_saver(&m, util_join(argv[1], "run"), CKPT_SNAPSHOT_NONE, "ba{batch}.pt", false, 1, 2).first != CKPT_OK;
    } else if (strcmp(argv[2], "readonly") == 0) {
        bad = readonly(argv[1], &m);
    } else {
        bad = in_the_way(argv[1], &m);
    }
    model_close(&m);
    return bad;
}
