// Proves what a file:// store does on a disk that is full: CKPT_NO_SPACE at once, whole objects stay, nothing is left of those that found no
// room. run.sh: helper
// store_disk DIR: DIR is a file system with less than 8 MiB. Status 0: as it should be.
#define CKPT_IMPLEMENTATION
#include "../../ckpt.h"
#include "../util.h"
#include "../store_contract.h"

static int wrong(int line, const char *what) {
    printf("  line %d: %s; last error: '%s'\n", line, what, ckpt_last_error());
    return 1;
}

#define expect(condition) do { if (!(condition)) return wrong(__LINE__, "not " #condition); } while (0)

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const char *bucket = util_join(argv[1], "bucket"), *big = util_join(util_temp_dir(), "big"), *small = util_join(util_temp_dir(), "small");
    ckpt_store *s = NULL;
    util_write_text(small, "small");
    unsigned char *p = contract_bytes(12 << 20, 1);
    util_write(big, p, 12 << 20);
    expect(ckpt_store_open(&s, util_fmt("file://%s", bucket), NULL) == CKPT_OK);
    the_contract.store = s;
    expect(ckpt_store_put(s, "run/x", small, false) == CKPT_OK);
    for (int over = 0; over < 2; over++) {
        expect(ckpt_store_put(s, over != 0 ? "run/x" : "other/x", big, over != 0) == CKPT_NO_SPACE);
        expect(strstr(ckpt_last_error(), "space") != NULL && strstr(ckpt_last_error(), "upload") != NULL);
        expect(strcmp(util_list(bucket), "run\n") == 0 && strcmp(util_list(util_join(bucket, "run")), "x\n") == 0);
        expect(contract_holds(s, "run/x", "small", 5));
    }
    // In parts: no room for all of it shows before the first part.
    ckpt__transfer t = contract_transfer();
    ckpt__store_multi m;
    ckpt__buf id;
    memset(&m, 0, sizeof m);
    ckpt__buf_init(&id, NULL);
    m.name = "run/y";
    m.size = 12 << 20;
    m.t = &t;
    expect(ckpt__store_run_begin(s, &m, &id) == CKPT_NO_SPACE);
    expect(strcmp(util_list(util_join(bucket, "run")), "x\n") == 0);
    // With the room given back it goes on.
    expect(ckpt_store_remove(s, "run/x") == CKPT_OK);
    expect(ckpt_store_put(s, "run/x", small, false) == CKPT_OK && contract_holds(s, "run/x", "small", 5));
    // Into a full disk with get.
    const char *to = util_join(argv[1], "to");
    ckpt_store *from = NULL;
    expect(ckpt_store_open(&from, util_fmt("file://%.*s", (int)(strrchr(big, '/') - big), big), NULL) == CKPT_OK);
    expect(ckpt_store_get(from, "big", to, true) == CKPT_NO_SPACE);
    expect(!util_exists(to) && strcmp(util_list(argv[1]), "bucket\n") == 0);
    ckpt__buf_free(&id);
    ckpt_store_close(from);
    ckpt_store_close(s);
    return 0;
}
