/* store_contract.h: what every store must do, run on an open store: file://, custom, S3 and SFTP pass the same tests.

   Include it after ckpt.h (with CKPT_IMPLEMENTATION) and util.h. A program opens its store, fills in the_contract and runs

       static const struct CMUnitTest tests[] = { CONTRACT_TESTS };
       the_contract.store = s;
       the_contract.prefix = "some/folder/";           // names are put below it; it holds nothing yet and is emptied afterwards
       return cmocka_run_group_tests_name("s3", tests, NULL, NULL);

   The cases of composer's object_store_contract.json that are not about one product are here as well: test_store.c has the list.
*/
#ifndef STORE_CONTRACT_H
#define STORE_CONTRACT_H

#include <pthread.h>

typedef struct contract {
    ckpt_store *store;                      // required
    const char *prefix;                     // NULL: ""
    ckpt_store *(*another)(void *user);     // opens the same store again (closed here); NULL: not tried
    void       *user;
    bool        is_folder;                  // names become paths: absolute ones, "..", "." and empty levels are refused
    bool        no_marks;                   // nothing is kept beside the contents: a lost reply is not recognised
    bool        no_crc;                     // no checksum of the whole is kept
    bool        blind_remove;               // removing what is not there succeeds
    bool        no_list, no_remove;         // the store cannot
    bool        no_parts;                   // begin says CKPT_UNSUPPORTED: objects go whole
    bool        gap;                        // replacing an object leaves a moment without it
    bool        no_newline;                 // names may not hold control characters
    bool        no_backslash;               // nor a '\\'
    bool        keeps_versions;             // one that was replaced can still be read by its ETag
    bool        folds;                      // names with other characters than letters, digits and "-_./" may become another's
    const char *no_letters;                 // nor any of these; NULL: none
    bool        no_last_dot;                // a level of a name may not end in '.'
    bool        no_cancel;                  // a request under way cannot be cancelled
    int         many;                       // objects for the listing; 0: 40
    size_t      part;                       // bytes of a part; 0: 1 MiB or the store's least
    uint64_t    sparse;                     // size of the big object; 0: 24 MiB
} contract;

static contract the_contract;

//-- helpers -----------------------------------------------------------------------

UTIL_FN const char *contract_name(const char *name) {
    return util_fmt("%s%s", the_contract.prefix != NULL ? the_contract.prefix : "", name);
}

// Bytes that tell their place and their seed.
UTIL_FN unsigned char *contract_bytes(size_t n, unsigned seed) {
    unsigned char *p = (unsigned char *)util_keep(malloc(n + 1), false);
    util_fill(p, n, seed);
    return p;
}

UTIL_FN const char *contract_file(const void *p, size_t n) {
    const char *path = util_join(util_temp_dir(), "source");
    util_write(path, p, n);
    return path;
}

#define contract_ok(e) do { if ((e) != CKPT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, ckpt_last_error()); } while (0)
#define contract_is(e, code) do { \
        ckpt_err got_ = (e); \
        if (got_ != (code)) fail_msg("%s:%d: %s instead of %s: %s", __FILE__, __LINE__, ckpt_err_name(got_), #code, ckpt_last_error()); \
        if (got_ != CKPT_OK && strlen(ckpt_last_error()) < 12) fail_msg("%s:%d: no sentence", __FILE__, __LINE__); \
    } while (0)

UTIL_FN ckpt__transfer contract_transfer(void) {
    ckpt__transfer t;
    memset(&t, 0, sizeof t);
    t.stall_timeout_s = 30;
    return t;
}

UTIL_FN ckpt__body contract_memory(const void *p, size_t n) {
    ckpt__body b;
    memset(&b, 0, sizeof b);
    b.memory = n > 0 ? p : "";
    b.fd = -1;
    b.size = n;
    return b;
}

// Whole, by the internal table, from memory.
UTIL_FN ckpt_err contract_put(ckpt_store *s, const char *name, const void *p, size_t n, bool overwrite, const char *mark, ckpt__transfer *t) {
    ckpt__body b = contract_memory(p, n);
    ckpt__store_put put;
    memset(&put, 0, sizeof put);
    put.name = name;
    put.body = &b;
    put.overwrite = overwrite;
    put.mark = mark;
    put.has_crc = true;
    put.crc = ckpt__digest_crc32(0, p, n);
    put.t = t;
    return ckpt__store_run_put(s, &put);
}

UTIL_FN void contract_put_ok(const char *name, const void *p, size_t n) {
    ckpt__transfer t = contract_transfer();
    contract_ok(contract_put(the_contract.store, name, p, n, true, NULL, &t));
}

// Stores that do not tell a caller's overwrite == false from the other are looked at first, as the uploader does.
UTIL_FN ckpt_err contract_put_new(ckpt_store *s, const char *name, const void *p, size_t n, const char *mark, ckpt__transfer *t) {
    ckpt__store_stat st;
    if (!s->creates_only) {
        ckpt_err e = ckpt__store_run_stat(s, name, &st, t);
        if (e == CKPT_OK) return ckpt__error_set(CKPT_EXISTS, "it exists already, says the test");
        if (e != CKPT_NOT_FOUND) return e;
    }
    return contract_put(s, name, p, n, false, mark, t);
}

UTIL_FN bool contract_holds(ckpt_store *s, const char *name, const void *p, size_t n) {
    const char *path = util_join(util_temp_dir(), "back");
    size_t size = 0;
    ckpt_err e = ckpt_store_get(s, name, path, false);
    if (e != CKPT_OK) return false;
    char *back = util_slurp(path, &size);
    bool same = back != NULL && size == n && memcmp(back, p, n) == 0;
    free(back);
    (void)unlink(path);
    return same;
}

UTIL_FN void contract_remove(const char *name) {
    if (!the_contract.no_remove) (void)!ckpt_store_remove(the_contract.store, name);
}

typedef struct contract_names { char **names; uint64_t *sizes; int count; } contract_names;

UTIL_FN ckpt_err contract_note(const char *name, uint64_t size, void *user) {
    contract_names *n = (contract_names *)user;
    n->names = (char **)realloc(n->names, (size_t)(n->count + 1) * sizeof *n->names);
    n->sizes = (uint64_t *)realloc(n->sizes, (size_t)(n->count + 1) * sizeof *n->sizes);
    if (n->names == NULL || n->sizes == NULL) util_die("no memory for", "a listing");
    n->names[n->count] = strdup(name);
    n->sizes[n->count++] = size;
    return CKPT_OK;
}

UTIL_FN void contract_names_free(contract_names *n) {
    for (int i = 0; i < n->count; i++) free(n->names[i]);
    free(n->names);
    free(n->sizes);
    memset(n, 0, sizeof *n);
}

UTIL_FN int contract_find(const contract_names *n, const char *name) {
    int at = -1, times = 0;
    for (int i = 0; i < n->count; i++) {
        if (strcmp(n->names[i], name) == 0) { at = i; times++; }
    }
    return times == 1 ? at : -1;
}

//-- whole objects -----------------------------------------------------------------

UTIL_FN void contract_test_put(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *name = contract_name("put/a file.bin");
    unsigned char *p = contract_bytes(300000, 1);
    const char *path = contract_file(p, 300000);
    uint64_t size = 0;
    contract_ok(ckpt_store_put(s, name, path, false));
    contract_ok(ckpt_store_size(s, name, &size));
    assert_int_equal(size, 300000);
    assert_true(contract_holds(s, name, p, 300000));
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    contract_ok(ckpt__store_run_stat(s, name, &st, &t));
    assert_int_equal(st.size, 300000);
    if (st.has_crc) assert_int_equal(st.crc, ckpt__digest_crc32(0, p, 300000));
    if (st.modified > 0) assert_true(st.modified > 1.6e9 && st.modified < 4e9);
    contract_remove(name);
}

UTIL_FN void contract_test_get(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *name = contract_name("get"), *dir = util_temp_dir(), *path = util_join(dir, "fresh");
    unsigned char *p = contract_bytes(70001, 2);
    contract_put_ok(name, p, 70001);
    contract_ok(ckpt_store_get(s, name, path, false));
    contract_is(ckpt_store_get(s, name, path, false), CKPT_EXISTS);
    util_write_text(path, "old");
    contract_is(ckpt_store_get(s, name, path, false), CKPT_EXISTS);
    assert_string_equal(util_read(path, NULL), "old");
    contract_ok(ckpt_store_get(s, name, path, true));
    size_t size = 0;
    char *back = util_read(path, &size);
    assert_int_equal(size, 70001);
    assert_memory_equal(back, p, 70001);
    contract_ok(ckpt_store_get(s, name, util_join(dir, "made/for/it"), false));
    assert_string_equal(util_list(dir), "fresh\nmade\n");       // nothing is left beside it
    contract_remove(name);
}

UTIL_FN void contract_test_missing(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *name = contract_name("there is no such thing"), *dir = util_temp_dir(), *path = util_join(dir, "to");
    uint64_t size = 7;
    contract_is(ckpt_store_size(s, name, &size), CKPT_NOT_FOUND);
    assert_non_null(strstr(ckpt_last_error(), "there is no such thing"));
    contract_is(ckpt_store_get(s, name, path, false), CKPT_NOT_FOUND);
    contract_is(ckpt_store_get(s, name, path, true), CKPT_NOT_FOUND);
    assert_string_equal(util_list(dir), "");
    if (!the_contract.no_remove) contract_is(ckpt_store_remove(s, name), the_contract.blind_remove ? CKPT_OK : CKPT_NOT_FOUND);
    contract_put_ok(contract_name("folder/inside"), "x", 1);
    contract_is(ckpt_store_size(s, contract_name("folder"), &size), CKPT_NOT_FOUND);
    contract_is(ckpt_store_get(s, contract_name("folder"), path, false), CKPT_NOT_FOUND);
    contract_is(ckpt_store_get(s, contract_name("folder/inside/deeper"), path, false), CKPT_NOT_FOUND);
    contract_is(ckpt_store_put(s, name, util_join(dir, "no file"), true), CKPT_NOT_FOUND);
    contract_remove(contract_name("folder/inside"));
    contract_is(ckpt_store_size(s, name, &size), CKPT_NOT_FOUND);
}

UTIL_FN void contract_test_overwrite(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *name = contract_name("overwrite");
    const char *one = contract_file("one", 3), *two = contract_file("two!", 4);
    contract_ok(ckpt_store_put(s, name, one, false));
    contract_is(ckpt_store_put(s, name, two, false), CKPT_EXISTS);
    assert_non_null(strstr(ckpt_last_error(), "overwrite"));
    assert_true(contract_holds(s, name, "one", 3));
    contract_ok(ckpt_store_put(s, name, two, true));
    assert_true(contract_holds(s, name, "two!", 4));
    contract_remove(name);
    contract_ok(ckpt_store_put(s, name, one, true));            // nothing there to overwrite
    assert_true(contract_holds(s, name, "one", 3));
    contract_remove(name);
}

UTIL_FN void contract_test_empty(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *name = contract_name("empty object");
    uint64_t size = 1;
    contract_ok(ckpt_store_put(s, name, contract_file("", 0), false));
    contract_ok(ckpt_store_size(s, name, &size));
    assert_int_equal(size, 0);
    assert_true(contract_holds(s, name, "", 0));
    contract_put_ok(name, "", 0);
    assert_true(contract_holds(s, name, "", 0));
    if (s->table->get == NULL) {
        contract_remove(name);
        return;
    }
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    char byte;
    k.memory = &byte;
    k.fd = -1;
    ckpt__transfer t = contract_transfer();
    contract_ok(ckpt__store_run_get(s, name, NULL, 0, &k, &t));
    assert_int_equal(k.got, 0);
    contract_remove(name);
}

// Size and CRC of what is sent are looked at: a wrong one is never stored as if it were right.
UTIL_FN void contract_test_wrong_sum(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *name = contract_name("wrong sum");
    unsigned char *p = contract_bytes(9000, 3);
    ckpt__body b = contract_memory(p, 9000);
    ckpt__transfer t = contract_transfer();
    ckpt__store_put put;
    memset(&put, 0, sizeof put);
    put.name = name;
    put.body = &b;
    put.overwrite = true;
    put.has_crc = true;
    put.crc = ckpt__digest_crc32(0, p, 9000) ^ 1;
    put.t = &t;
    ckpt_err e = ckpt__store_run_put(s, &put);
    ckpt__store_stat st;
    if (e == CKPT_OK) {                     // it keeps what it is told; the reader finds out
        contract_ok(ckpt__store_run_stat(s, name, &st, &t));
        if (!st.has_crc || st.crc == ckpt__digest_crc32(0, p, 9000)) { contract_remove(name); return; }
        const char *path = util_join(util_temp_dir(), "bad");
        contract_is(ckpt_store_get(s, name, path, false), CKPT_CORRUPT);
        assert_false(util_exists(path));
    } else {
        contract_is(e, CKPT_CORRUPT);
        contract_is(ckpt__store_run_stat(s, name, &st, &t), CKPT_NOT_FOUND);
    }
    contract_remove(name);
}

//-- ranges ------------------------------------------------------------------------

UTIL_FN void contract_test_ranges(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (s->table->get == NULL) util_skip("this store has no ranges");
    const char *name = contract_name("ranges");
    enum { SIZE = 3 << 20 };
    unsigned char *p = contract_bytes(SIZE, 4), *back = (unsigned char *)util_keep(malloc(SIZE), false);
    contract_put_ok(name, p, SIZE);
    static const struct { uint64_t at; size_t n; } ranges[] = {
        { 0, SIZE }, { 0, 1 }, { SIZE - 1, 1 }, { 1, 4095 }, { 4096, 4096 }, { 1000003, 1000003 }, { SIZE - 70000, 70000 }, { 5, 0 }
    };
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    contract_ok(ckpt__store_run_stat(s, name, &st, &t));
    for (int i = 0; i < UTIL_COUNT(ranges); i++) {
        ckpt__sink k;
        uint64_t moved = 0;
        memset(&k, 0, sizeof k);
        memset(back, 0, SIZE);
        k.memory = back;
        k.fd = -1;
        k.size = ranges[i].n;
        k.sum = i % 2 == 0;
        t = contract_transfer();
        t.moved = &moved;
        contract_ok(ckpt__store_run_get(s, name, i % 3 == 0 ? NULL : st.etag[0] != 0 ? st.etag : NULL, ranges[i].at, &k, &t));
        assert_int_equal(k.got, ranges[i].n);
        assert_int_equal(moved, ranges[i].n);
        assert_memory_equal(back, p + ranges[i].at, ranges[i].n);
        if (k.sum) assert_int_equal(k.crc, ckpt__digest_crc32(0, p + ranges[i].at, ranges[i].n));
    }
    // Into a file, at a place of its own.
    const char *path = util_join(util_temp_dir(), "out");
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    for (int sum = 0; sum < 2; sum++) {
        ckpt__sink k;
        memset(&k, 0, sizeof k);
        k.fd = fd;
        k.path = path;
        k.offset = 12345;
        k.size = 200000;
        k.sum = sum == 1;
        t = contract_transfer();
        contract_ok(ckpt__store_run_get(s, name, NULL, 777, &k, &t));
        assert_int_equal(k.got, 200000);
        assert_int_equal(pread(fd, back, 200000, 12345), 200000);
        assert_memory_equal(back, p + 777, 200000);
    }
    (void)close(fd);
    // Past the end, and another version than the one asked for.
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    k.memory = back;
    k.fd = -1;
    k.size = 10;
    t = contract_transfer();
    assert_int_not_equal(ckpt__store_run_get(s, name, NULL, SIZE - 5, &k, &t), CKPT_OK);
    if (st.etag[0] != 0) {
        unsigned char *other = contract_bytes(SIZE, 5);
        contract_put_ok(name, other, SIZE);
        memset(&k, 0, sizeof k);
        k.memory = back;
        k.fd = -1;
        k.size = 10;
        t = contract_transfer();
        if (the_contract.keeps_versions) {
            contract_ok(ckpt__store_run_get(s, name, st.etag, 0, &k, &t));
            assert_memory_equal(back, p, 10);
        } else {
            contract_is(ckpt__store_run_get(s, name, st.etag, 0, &k, &t), CKPT_CORRUPT);
            assert_true(t.transient);
        }
        contract_ok(ckpt__store_run_stat(s, name, &st, &t));
        contract_ok(ckpt__store_run_get(s, name, st.etag, 0, &k, &t));
        assert_memory_equal(back, other, 10);
    }
    t = contract_transfer();
    contract_is(ckpt__store_run_get(s, contract_name("no such"), NULL, 0, &k, &t), CKPT_NOT_FOUND);
    contract_remove(name);
}

//-- names -------------------------------------------------------------------------

UTIL_FN bool contract_forbids(const char *name) {
    if (the_contract.folds && (strlen(name) > 60 || strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./") < strlen(name)))
        return true;
    if (the_contract.no_last_dot && (strstr(name, "./") != NULL || name[strlen(name) - 1] == '.')) return true;
    return (the_contract.no_newline && strpbrk(name, "\n\t") != NULL) || (the_contract.no_backslash && strchr(name, '\\') != NULL) ||
           (the_contract.no_letters != NULL && strpbrk(name, the_contract.no_letters) != NULL);
}

UTIL_FN void contract_test_names(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    static const char *const names[] = {
        "plain", "with space", " leading and trailing ", "plus+plus", "per%cent", "per%20cent", "ques?tion", "ha#sh", "a&b=c", "semi;colon",
        "quo'te", "quo\"te", "tilde~", "(paren)[bracket]{brace}", "at@colon:", "star*", "back\\slash", "dollar$HOME", "`tick`", "pipe|",
        "less<more>", "comma,", "excl!", "caret^", "-dash", "--double", ".hidden", "dots...", "trailing.", "..a", "...", "\xc3\xbc\xc3\xb1\xc3\xad.pt",
        "\xe6\x97\xa5\xe6\x9c\xac/\xe8\xaa\x9e.pt", "\xf0\x9f\x92\xbe", "a/b/c/d/e/f/g/h/i/j", "a/b.c/d e/f", "UPPER", "upper",
        "ep1-ba500-rank0.pt", "latest-rank0.pt.symlink", "new\nline", "tab\there"
    };
    char many[201];
    memset(many, 'n', 200);
    many[200] = 0;
    contract_names found;
    memset(&found, 0, sizeof found);
    int count = UTIL_COUNT(names) + 1, tried = 0;
    for (int i = 0; i < count; i++) {
        const char *plain = i < UTIL_COUNT(names) ? names[i] : many;
        if (contract_forbids(plain)) continue;
        const char *name = contract_name(util_fmt("names/%s", plain));
        ckpt__transfer t = contract_transfer();
        if (contract_put(s, name, plain, strlen(plain), true, NULL, &t) != CKPT_OK) fail_msg("put '%s': %s", name, ckpt_last_error());
        if (!contract_holds(s, name, plain, strlen(plain))) fail_msg("get '%s': %s", name, ckpt_last_error());
        uint64_t size = 0;
        if (ckpt_store_size(s, name, &size) != CKPT_OK || size != strlen(plain)) fail_msg("size '%s': %s", name, ckpt_last_error());
        tried++;
    }
    if (!the_contract.no_list) {
        contract_ok(ckpt_store_list(s, contract_name("names/"), contract_note, &found));
        assert_int_equal(found.count, tried);
    }
    for (int i = 0; i < count; i++) {
        const char *plain = i < UTIL_COUNT(names) ? names[i] : many;
        if (contract_forbids(plain)) continue;
        const char *name = contract_name(util_fmt("names/%s", plain));
        if (!the_contract.no_list && contract_find(&found, name) < 0) fail_msg("'%s' is not listed", name);
        if (!the_contract.no_remove && ckpt_store_remove(s, name) != CKPT_OK) fail_msg("remove '%s': %s", name, ckpt_last_error());
    }
    contract_names_free(&found);
}

UTIL_FN void contract_test_bad_names(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    const char *file = contract_file("x", 1), *to = util_join(util_temp_dir(), "to");
    uint64_t size;
    contract_is(ckpt_store_put(s, "", file, true), CKPT_ARG);
    contract_is(ckpt_store_get(s, "", to, true), CKPT_ARG);
    contract_is(ckpt_store_size(s, "", &size), CKPT_ARG);
    if (!the_contract.no_remove) contract_is(ckpt_store_remove(s, ""), CKPT_ARG);
    if (!the_contract.is_folder) return;
    static const char *const names[] = { "..", "../x", "a/../x", "a/..", ".", "./x", "a/./x", "a/.", "a//x", "a/", "a/b//" };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        const char *name = contract_name(names[i]);
        contract_is(ckpt_store_put(s, name, file, true), CKPT_ARG);
        contract_is(ckpt_store_get(s, name, to, true), CKPT_ARG);
        contract_is(ckpt_store_size(s, name, &size), CKPT_ARG);
        if (!the_contract.no_remove) contract_is(ckpt_store_remove(s, name), CKPT_ARG);
    }
    contract_is(ckpt_store_put(s, "/tmp/ckpt-absolute", file, true), CKPT_ARG);
    assert_false(util_exists("/tmp/ckpt-absolute"));
    assert_false(util_exists(to));
}

//-- listing -----------------------------------------------------------------------

typedef struct contract_writer { int first, step, count; ckpt_err e; char sentence[1024]; } contract_writer;

UTIL_FN const char *contract_many_name(char *buf, size_t cap, int i) {
    snprintf(buf, cap, "%slist/%s%04d", the_contract.prefix != NULL ? the_contract.prefix : "", i % 3 == 0 ? "a-" : i % 3 == 1 ? "a/" : "a0", i);
    return buf;
}

UTIL_FN void *contract_write_many(void *arg) {
    contract_writer *w = (contract_writer *)arg;
    for (int i = w->first; i < w->count && w->e == CKPT_OK; i += w->step) {
        char name[300];
        ckpt__transfer t = contract_transfer();
        w->e = contract_put(the_contract.store, contract_many_name(name, sizeof name, i), name, (size_t)(i % 50), true, NULL, &t);
        if (w->e != CKPT_OK) snprintf(w->sentence, sizeof w->sentence, "%s", ckpt_last_error());
    }
    return NULL;
}

UTIL_FN void *contract_remove_many(void *arg) {
    contract_writer *w = (contract_writer *)arg;
    for (int i = w->first; i < w->count; i += w->step) {
        char name[300];
        ckpt_err e = ckpt_store_remove(the_contract.store, contract_many_name(name, sizeof name, i));
        if (e != CKPT_OK && w->e == CKPT_OK) {
            w->e = e;
            snprintf(w->sentence, sizeof w->sentence, "%s", ckpt_last_error());
        }
    }
    return NULL;
}

UTIL_FN void contract_four(void *(*fn)(void *), int count) {
    contract_writer w[4];
    pthread_t id[4];
    for (int i = 0; i < 4; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].first = i;
        w[i].step = 4;
        w[i].count = count;
        assert_int_equal(pthread_create(&id[i], NULL, fn, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < 4; i++) if (w[i].e != CKPT_OK) fail_msg("%s", w[i].sentence);
}

UTIL_FN ckpt_err contract_stop(const char *name, uint64_t size, void *user) {
    (void)name;
    (void)size;
    return ++*(int *)user == 3 ? ckpt_set_error(CKPT_CANCELLED, "three are enough") : CKPT_OK;
}

UTIL_FN void contract_test_list(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (the_contract.no_list) {
        int n = 0;
        contract_is(ckpt_store_list(s, "", contract_stop, &n), CKPT_UNSUPPORTED);
        return;
    }
    int count = the_contract.many > 0 ? the_contract.many : 40, seen = 0;
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_four(contract_write_many, count);
    contract_ok(ckpt_store_list(s, contract_name("list/"), contract_note, &found));
    assert_int_equal(found.count, count);
    for (int i = 1; i < count; i++) {
        if (strcmp(found.names[i - 1], found.names[i]) >= 0) fail_msg("'%s' comes before '%s'", found.names[i - 1], found.names[i]);
    }
    for (int i = 0; i < count; i++) {
        char name[300];
        int at = contract_find(&found, contract_many_name(name, sizeof name, i));
        if (at < 0) fail_msg("'%s' is not listed once", name);
        assert_int_equal(found.sizes[at], i % 50);
    }
    contract_names_free(&found);
    // A prefix is text, not a folder.
    contract_ok(ckpt_store_list(s, contract_name("list/a0"), contract_note, &found));
    assert_int_equal(found.count, count / 3);
    contract_names_free(&found);
    contract_ok(ckpt_store_list(s, contract_name("list/a/00"), contract_note, &found));
    assert_true(found.count > 0 && found.count <= 34);
    contract_names_free(&found);
    contract_ok(ckpt_store_list(s, contract_name("lis"), contract_note, &found));
    assert_int_equal(found.count, count);
    contract_names_free(&found);
    contract_ok(ckpt_store_list(s, contract_name("list/a"), contract_note, &found));
    assert_int_equal(found.count, count);
    contract_names_free(&found);
    contract_ok(ckpt_store_list(s, contract_name("nothing begins so"), contract_note, &found));
    assert_int_equal(found.count, 0);
    // The caller's error ends it and comes back as it is.
    assert_int_equal(ckpt_store_list(s, contract_name("list/"), contract_stop, &seen), CKPT_CANCELLED);
    assert_int_equal(seen, 3);
    assert_non_null(strstr(ckpt_last_error(), "three are enough"));
    if (!the_contract.no_remove) contract_four(contract_remove_many, count);
    contract_ok(ckpt_store_list(s, contract_name("list/"), contract_note, &found));
    if (!the_contract.no_remove) assert_int_equal(found.count, 0);
    contract_names_free(&found);
}

//-- removing ----------------------------------------------------------------------

UTIL_FN void contract_test_remove(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (the_contract.no_remove) {
        contract_is(ckpt_store_remove(s, "x"), CKPT_UNSUPPORTED);
        return;
    }
    const char *a = contract_name("remove/deep/a"), *b = contract_name("remove/deep/b");
    uint64_t size;
    contract_put_ok(a, "a", 1);
    contract_put_ok(b, "b", 1);
    contract_ok(ckpt_store_remove(s, a));
    contract_is(ckpt_store_size(s, a, &size), CKPT_NOT_FOUND);
    contract_ok(ckpt_store_size(s, b, &size));
    contract_is(ckpt_store_remove(s, a), the_contract.blind_remove ? CKPT_OK : CKPT_NOT_FOUND);
    contract_is(ckpt_store_remove(s, contract_name("remove/deep")), the_contract.blind_remove ? CKPT_OK : CKPT_NOT_FOUND);
    contract_ok(ckpt_store_remove(s, b));
    contract_is(ckpt_store_size(s, b, &size), CKPT_NOT_FOUND);
    contract_put_ok(contract_name("remove"), "now an object", 13);      // an emptied folder is not in the way
    contract_ok(ckpt_store_remove(s, contract_name("remove")));
}

//-- progress and cancelling -------------------------------------------------------

// A body that counts, slows down, and may set a flag on its way.
typedef struct contract_source {
    const unsigned char *p;
    uint64_t             size, cancel_at;   // cancel_at 0: never
    ckpt__os_flag        cancel;
    uint64_t            *moved;
    uint64_t             last;
    bool                 fell;
} contract_source;

UTIL_FN ckpt_err contract_read(void *dst, size_t size, uint64_t offset, void *user) {
    contract_source *c = (contract_source *)user;
    if (c->moved != NULL) {
        uint64_t now = ckpt__os_load64(c->moved);
        if (now < c->last) c->fell = true;
        c->last = now;
    }
    memcpy(dst, c->p + offset, size);
    if (c->cancel_at > 0 && offset + size >= c->cancel_at) ckpt__os_flag_set(&c->cancel, 1);
    return CKPT_OK;
}

UTIL_FN void contract_test_progress(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    enum { SIZE = 6 << 20 };
    const char *name = contract_name("progress");
    contract_source c;
    uint64_t moved = 0;
    ckpt__body b;
    ckpt__store_put put;
    ckpt__transfer t = contract_transfer();
    memset(&c, 0, sizeof c);
    memset(&b, 0, sizeof b);
    memset(&put, 0, sizeof put);
    c.p = contract_bytes(SIZE, 6);
    c.size = SIZE;
    c.moved = t.moved = &moved;
    b.read = contract_read;
    b.user = &c;
    b.fd = -1;
    b.size = SIZE;
    put.name = name;
    put.body = &b;
    put.overwrite = true;
    put.has_crc = true;
    put.crc = ckpt__digest_crc32(0, c.p, SIZE);
    put.t = &t;
    contract_ok(ckpt__store_run_put(s, &put));
    assert_false(c.fell);
    assert_int_equal(moved, SIZE);
    assert_true(contract_holds(s, name, c.p, SIZE));
    contract_remove(name);
}

UTIL_FN void contract_test_cancel(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    enum { SIZE = 24 << 20 };
    const char *name = contract_name("cancelled");
    contract_source c;
    ckpt__body b;
    ckpt__store_put put;
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    memset(&c, 0, sizeof c);
    memset(&b, 0, sizeof b);
    memset(&put, 0, sizeof put);
    c.p = contract_bytes(SIZE, 7);
    c.size = SIZE;
    b.read = contract_read;
    b.user = &c;
    b.fd = -1;
    b.size = SIZE;
    put.name = name;
    put.body = &b;
    put.overwrite = true;
    put.t = &t;
    t.cancel = &c.cancel;
    // Before it begins.
    ckpt__os_flag_set(&c.cancel, 1);
    contract_is(ckpt__store_run_put(s, &put), CKPT_CANCELLED);
    contract_is(ckpt__store_run_stat(s, name, &st, &t), CKPT_CANCELLED);
    t = contract_transfer();
    contract_is(ckpt__store_run_stat(s, name, &st, &t), CKPT_NOT_FOUND);
    // In the middle.
    if (!the_contract.no_cancel) {
        t.cancel = &c.cancel;
        ckpt__os_flag_set(&c.cancel, 0);
        c.cancel_at = SIZE / 3;
        contract_is(ckpt__store_run_put(s, &put), CKPT_CANCELLED);
        t = contract_transfer();
        ckpt_err e = ckpt__store_run_stat(s, name, &st, &t);    // a lake shows the name
        if (e != CKPT_OK || !st.hollow || st.size > 0) contract_is(e, CKPT_NOT_FOUND);
    }
    c.cancel_at = 0;
    contract_ok(ckpt__store_run_put(s, &put));                  // and the store is none the worse for it
    assert_true(contract_holds(s, name, c.p, SIZE));
    contract_remove(name);
}

//-- threads -----------------------------------------------------------------------

typedef struct contract_thread { int number; ckpt_store *store; char why[1024]; } contract_thread;

UTIL_FN void contract_blame(contract_thread *c, const char *what) {
    if (c->why[0] == 0) snprintf(c->why, sizeof c->why, "thread %d, %s: %.900s", c->number, what, ckpt_last_error());
}

UTIL_FN void *contract_worker(void *arg) {
    contract_thread *c = (contract_thread *)arg;
    unsigned char *p = (unsigned char *)malloc(200000), *back = (unsigned char *)malloc(200000);
    char name[300];
    for (int round = 0; round < 6 && p != NULL && back != NULL; round++) {
        ckpt__transfer t = contract_transfer();
        ckpt__store_stat st;
        size_t n = (size_t)(1000 + 30011 * c->number % 190000);
        snprintf(name, sizeof name, "%sthreads/shared/t%d-%d", the_contract.prefix != NULL ? the_contract.prefix : "", c->number, round);
        util_fill(p, n, (unsigned)(c->number * 100 + round));
        if (contract_put(c->store, name, p, n, true, NULL, &t) != CKPT_OK) contract_blame(c, "put");
        if (ckpt__store_run_stat(c->store, name, &st, &t) != CKPT_OK || st.size != n) contract_blame(c, "stat");
        if (c->store->table->get != NULL) {
            ckpt__sink k;
            memset(&k, 0, sizeof k);
            k.memory = back;
            k.fd = -1;
            k.size = n;
            if (ckpt__store_run_get(c->store, name, NULL, 0, &k, &t) != CKPT_OK || memcmp(p, back, n) != 0) contract_blame(c, "get");
        }
        if (!the_contract.no_remove && ckpt__store_run_remove(c->store, name, &t) != CKPT_OK) contract_blame(c, "remove");
    }
    free(p);
    free(back);
    return NULL;
}

UTIL_FN void *contract_misser(void *arg) {
    contract_thread *c = (contract_thread *)arg;
    ckpt__transfer t = contract_transfer();
    ckpt__store_stat st;
    char name[300];
    snprintf(name, sizeof name, "%sthere is no %d", the_contract.prefix != NULL ? the_contract.prefix : "", c->number);
    if (ckpt__store_run_stat(c->store, name, &st, &t) != CKPT_NOT_FOUND) contract_blame(c, "missing");
    return NULL;
}

UTIL_FN void contract_threads(void *(*fn)(void *), int count) {
    contract_thread c[32];
    pthread_t id[32];
    for (int i = 0; i < count; i++) {
        memset(&c[i], 0, sizeof c[i]);
        c[i].number = i;
        c[i].store = the_contract.store;
        assert_int_equal(pthread_create(&id[i], NULL, fn, &c[i]), 0);
    }
    for (int i = 0; i < count; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < count; i++) if (c[i].why[0] != 0) fail_msg("%s", c[i].why);
}

UTIL_FN void contract_test_threads(void **state) {
    (void)state;
    contract_threads(contract_worker, 8);
    contract_threads(contract_misser, 32);
}

UTIL_FN void contract_test_another(void **state) {
    (void)state;
    if (the_contract.another == NULL) util_skip("this test opens its store once");
    ckpt_store *other = the_contract.another(the_contract.user);
    assert_non_null(other);
    const char *name = contract_name("another");
    contract_put_ok(name, "seen by both", 12);
    assert_true(contract_holds(other, name, "seen by both", 12));
    ckpt_store_close(other);
    assert_true(contract_holds(the_contract.store, name, "seen by both", 12));
    contract_remove(name);
}

typedef struct contract_racer { const unsigned char *p; size_t n; ckpt_err e; const char *mark; } contract_racer;

UTIL_FN void *contract_race(void *arg) {
    contract_racer *r = (contract_racer *)arg;
    char name[300];
    ckpt__transfer t = contract_transfer();
    snprintf(name, sizeof name, "%srace", the_contract.prefix != NULL ? the_contract.prefix : "");
    r->e = contract_put(the_contract.store, name, r->p, r->n, false, r->mark, &t);
    return NULL;
}

// Two writers that may only create: one of them does.
UTIL_FN void contract_test_race(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (!s->creates_only) util_skip("this store cannot create without replacing");
    const char *name = contract_name("race");
    for (int round = 0; round < 20; round++) {
        contract_racer r[2] = { { contract_bytes(50000, 11), 50000, CKPT_OK, "11111111111111111111111111111111" },
                                { contract_bytes(60000, 12), 60000, CKPT_OK, "22222222222222222222222222222222" } };
        pthread_t id[2];
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&id[i], NULL, contract_race, &r[i]), 0);
        for (int i = 0; i < 2; i++) pthread_join(id[i], NULL);
        int won = r[0].e == CKPT_OK ? 0 : 1;
        if (r[won].e != CKPT_OK || r[1 - won].e != CKPT_EXISTS) fail_msg("%s and %s", ckpt_err_name(r[0].e), ckpt_err_name(r[1].e));
        assert_true(contract_holds(s, name, r[won].p, r[won].n));
        contract_remove(name);
        if (the_contract.no_remove) return;
    }
}

typedef struct contract_flipper { const unsigned char *p[2]; size_t n[2]; ckpt__os_flag stop; ckpt_err e; char why[1024]; } contract_flipper;

UTIL_FN void *contract_flip(void *arg) {
    contract_flipper *f = (contract_flipper *)arg;
    char name[300];
    snprintf(name, sizeof name, "%sflip", the_contract.prefix != NULL ? the_contract.prefix : "");
    for (int i = 0; f->e == CKPT_OK && ckpt__os_flag_get(&f->stop) == 0; i++) {
        ckpt__transfer t = contract_transfer();
        f->e = contract_put(the_contract.store, name, f->p[i % 2], f->n[i % 2], true, NULL, &t);
        if (f->e != CKPT_OK) snprintf(f->why, sizeof f->why, "%s", ckpt_last_error());
        usleep(3000);
    }
    return NULL;
}

// A reader beside a writer that replaces the object all the time gets one version or the other, whole.
UTIL_FN void contract_test_whole(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (the_contract.gap) util_skip("replacing leaves a gap in this store");
    const char *name = contract_name("flip"), *path = util_join(util_temp_dir(), "flip");
    contract_flipper f;
    pthread_t id;
    memset(&f, 0, sizeof f);
    f.n[0] = 200000;
    f.n[1] = 300001;
    for (int i = 0; i < 2; i++) f.p[i] = contract_bytes(f.n[i], 20 + (unsigned)i);
    contract_put_ok(name, f.p[0], f.n[0]);
    assert_int_equal(pthread_create(&id, NULL, contract_flip, &f), 0);
    int read = 0, busy = 0, torn = 0;
    ckpt_err other = CKPT_OK;
    char why[1024] = "";
    for (int i = 0; i < 40 && other == CKPT_OK; i++) {
        size_t n = 0;
        ckpt_err e = ckpt_store_get(s, name, path, true);
        if (e == CKPT_CORRUPT) { busy++; continue; }            // changed each time it was tried
        if (e != CKPT_OK) {
            other = e;
            snprintf(why, sizeof why, "%s", ckpt_last_error());
            break;
        }
        char *back = util_slurp(path, &n);
        bool whole = back != NULL && ((n == f.n[0] && memcmp(back, f.p[0], n) == 0) || (n == f.n[1] && memcmp(back, f.p[1], n) == 0));
        free(back);
        torn += !whole;
        read++;
    }
    ckpt__os_flag_set(&f.stop, 1);
    pthread_join(id, NULL);
    if (f.e != CKPT_OK) fail_msg("%s", f.why);
    if (other != CKPT_OK) fail_msg("%s: %s", ckpt_err_name(other), why);
    assert_int_equal(torn, 0);
    assert_true(read > busy);
    contract_remove(name);
}

//-- lost replies ------------------------------------------------------------------

UTIL_FN void contract_test_lost_put(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (the_contract.no_marks || !s->creates_only) util_skip("this store keeps no marks");
    const char *name = contract_name("lost reply"), *mark = "0123456789abcdef0123456789abcdef", *other = "fedcba9876543210fedcba9876543210";
    ckpt__transfer t = contract_transfer();
    contract_ok(contract_put(s, name, "mine", 4, false, mark, &t));
    contract_ok(contract_put(s, name, "mine", 4, false, mark, &t));            // the same upload, asked once more
    contract_is(contract_put(s, name, "mine", 4, false, other, &t), CKPT_EXISTS);
    contract_is(contract_put(s, name, "mine", 4, false, NULL, &t), CKPT_EXISTS);
    ckpt__store_stat st;
    contract_ok(ckpt__store_run_stat(s, name, &st, &t));
    assert_string_equal(st.mark, mark);
    contract_remove(name);
}

//-- parts -------------------------------------------------------------------------

typedef struct contract_parts { int count; ckpt__store_part part[16]; } contract_parts;

UTIL_FN ckpt_err contract_note_part(const ckpt__store_part *part, void *user) {
    contract_parts *c = (contract_parts *)user;
    if (c->count < 16) c->part[c->count++] = *part;
    return CKPT_OK;
}

typedef struct contract_uploads { int count; const char *name; char id[16][1024]; } contract_uploads;

UTIL_FN ckpt_err contract_note_upload(const char *name, const char *id, double started, void *user) {
    contract_uploads *c = (contract_uploads *)user;
    if (strcmp(name, c->name) != 0) return CKPT_OK;
    if (started > 0 && !(started > 1.6e9 && started < 4e9)) return ckpt_set_error(CKPT_IO, "the start of an upload makes no sense");
    if (c->count < 16) snprintf(c->id[c->count++], sizeof c->id[0], "%s", id);
    return CKPT_OK;
}

typedef struct contract_multi {
    ckpt__store_multi m;
    ckpt__transfer    t;
    ckpt__buf         id;
    ckpt__store_part  part[8];
    unsigned char    *p;
    size_t            unit, size;
    int               count;
} contract_multi;

UTIL_FN size_t contract_part_size(void) {
    uint64_t n = the_contract.part > 0 ? the_contract.part : 1 << 20;
    return (size_t)(n > the_contract.store->min_part ? n : the_contract.store->min_part);
}

UTIL_FN void contract_begin(contract_multi *c, const char *name, const char *mark, bool overwrite) {
    memset(c, 0, sizeof *c);
    ckpt__buf_init(&c->id, NULL);
    c->t = contract_transfer();
    c->unit = contract_part_size();
    c->count = 4;
    c->size = c->unit * 3 + 12345;
    c->p = contract_bytes(c->size, 30);
    c->m.name = name;
    c->m.size = c->size;
    c->m.overwrite = overwrite;
    c->m.mark = mark;
    c->m.has_crc = true;
    c->m.crc = ckpt__digest_crc32(0, c->p, c->size);
    c->m.t = &c->t;
    contract_ok(ckpt__store_run_begin(the_contract.store, &c->m, &c->id));
    assert_true(c->id.len > 0);
    c->m.upload_id = ckpt__buf_cstr(&c->id);
}

UTIL_FN ckpt_err contract_send_part(contract_multi *c, int number) {
    ckpt__body b = contract_memory(c->p, c->size);
    uint64_t moved = 0;
    b.offset = (uint64_t)(number - 1) * c->unit;
    b.size = number == c->count ? c->size - (size_t)b.offset : c->unit;
    memset(&c->part[number - 1], 0, sizeof c->part[0]);
    c->part[number - 1].number = number;
    c->t = contract_transfer();
    c->t.moved = &moved;
    ckpt_err e = ckpt__store_run_part(the_contract.store, &c->m, &b, &c->part[number - 1]);
    c->t.moved = NULL;
    if (e != CKPT_OK) return e;
    assert_int_equal(moved, b.size);
    assert_int_equal(c->part[number - 1].size, b.size);
    if (c->part[number - 1].has_crc) assert_int_equal(c->part[number - 1].crc, ckpt__digest_crc32(0, c->p + b.offset, (size_t)b.size));
    return CKPT_OK;
}

UTIL_FN void contract_all(contract_multi *c) {
    c->m.parts = c->part;
    c->m.part_count = (size_t)c->count;
}

UTIL_FN void contract_test_parts(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (!ckpt__store_has_parts(s) || the_contract.no_parts) util_skip("this store takes whole objects only");
    const char *name = contract_name("parts/in pieces"), *mark = "00112233445566778899aabbccddeeff";
    contract_multi c;
    contract_parts seen;
    ckpt__store_stat st;
    contract_begin(&c, name, mark, true);
    memset(&seen, 0, sizeof seen);
    contract_ok(ckpt__store_run_parts(s, &c.m, contract_note_part, &seen));
    assert_int_equal(seen.count, 0);
    contract_ok(contract_send_part(&c, 3));
    contract_ok(contract_send_part(&c, 1));
    contract_is(ckpt__store_run_stat(s, name, &st, &c.t), CKPT_NOT_FOUND);     // nothing to be seen yet
    contract_names found;
    memset(&found, 0, sizeof found);
    if (!the_contract.no_list) {
        contract_ok(ckpt_store_list(s, contract_name("parts/"), contract_note, &found));
        assert_int_equal(found.count, 0);
        contract_names_free(&found);
    }
    // Another process asks what is there, and goes on.
    contract_ok(ckpt__store_run_parts(s, &c.m, contract_note_part, &seen));
    assert_int_equal(seen.count, 2);
    assert_true(seen.part[0].number == 1 && seen.part[1].number == 3);
    for (int i = 0; i < 2; i++) {
        const ckpt__store_part *mine = &c.part[seen.part[i].number - 1];
        assert_int_equal(seen.part[i].size, mine->size);
        assert_string_equal(seen.part[i].etag, mine->etag);
    }
    contract_uploads open;
    memset(&open, 0, sizeof open);
    open.name = name;
    if (s->table->uploads != NULL) {
        contract_ok(ckpt__store_run_uploads(s, contract_name("parts/"), contract_note_upload, &open, &c.t));
        assert_int_equal(open.count, 1);
        assert_string_equal(open.id[0], c.m.upload_id);
    }
    contract_ok(contract_send_part(&c, 4));
    contract_ok(contract_send_part(&c, 2));
    contract_ok(contract_send_part(&c, 3));                    // sent again
    contract_all(&c);
    contract_ok(ckpt__store_run_complete(s, &c.m));
    contract_ok(ckpt__store_run_stat(s, name, &st, &c.t));
    assert_int_equal(st.size, c.size);
    if (!the_contract.no_crc && st.has_crc) assert_int_equal(st.crc, c.m.crc);
    assert_true(contract_holds(s, name, c.p, c.size));
    if (!the_contract.no_marks) contract_ok(ckpt__store_run_complete(s, &c.m));        // its reply was lost
    contract_is(ckpt__store_run_parts(s, &c.m, contract_note_part, &seen), CKPT_NOT_FOUND);
    contract_ok(ckpt__store_run_abort(s, &c.m));               // of what is gone
    assert_true(contract_holds(s, name, c.p, c.size));
    open.count = 0;
    if (s->table->uploads != NULL) contract_ok(ckpt__store_run_uploads(s, contract_name(""), contract_note_upload, &open, &c.t));
    assert_int_equal(open.count, 0);
    contract_remove(name);
    ckpt__buf_free(&c.id);
}

UTIL_FN void contract_test_abort(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (!ckpt__store_has_parts(s) || the_contract.no_parts) util_skip("this store takes whole objects only");
    const char *name = contract_name("abort/given up");
    contract_multi c;
    contract_parts seen;
    ckpt__store_stat st;
    memset(&seen, 0, sizeof seen);
    contract_begin(&c, name, NULL, true);
    contract_ok(contract_send_part(&c, 1));
    contract_ok(ckpt__store_run_abort(s, &c.m));
    contract_ok(ckpt__store_run_abort(s, &c.m));
    contract_is(ckpt__store_run_parts(s, &c.m, contract_note_part, &seen), CKPT_NOT_FOUND);
    contract_is(contract_send_part(&c, 2), CKPT_NOT_FOUND);
    contract_all(&c);
    contract_is(ckpt__store_run_complete(s, &c.m), CKPT_NOT_FOUND);
    contract_is(ckpt__store_run_stat(s, name, &st, &c.t), CKPT_NOT_FOUND);
    contract_uploads open;
    memset(&open, 0, sizeof open);
    open.name = name;
    if (s->table->uploads != NULL) contract_ok(ckpt__store_run_uploads(s, contract_name(""), contract_note_upload, &open, &c.t));
    assert_int_equal(open.count, 0);
    ckpt__buf_free(&c.id);
}

UTIL_FN void contract_test_parts_create_only(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    if (!ckpt__store_has_parts(s) || !s->creates_only) util_skip("this store cannot create without replacing in parts");
    const char *name = contract_name("parts new");
    contract_multi c;
    contract_begin(&c, name, "00000000000000000000000000000001", false);
    for (int i = 1; i <= 4; i++) contract_ok(contract_send_part(&c, i));
    contract_put_ok(name, "somebody else", 13);
    contract_all(&c);
    contract_is(ckpt__store_run_complete(s, &c.m), CKPT_EXISTS);
    assert_true(contract_holds(s, name, "somebody else", 13));
    contract_ok(ckpt__store_run_abort(s, &c.m));
    contract_remove(name);
    ckpt__buf_free(&c.id);
}

//-- big ---------------------------------------------------------------------------

// A sparse file of the_contract.sparse bytes with marks at a few places, there and back; in parts where the store has them.
UTIL_FN void contract_test_big(void **state) {
    (void)state;
    ckpt_store *s = the_contract.store;
    uint64_t size = the_contract.sparse > 0 ? the_contract.sparse : (uint64_t)24 << 20;
    const char *dir = util_temp_dir(), *path = util_join(dir, "big"), *back = util_join(dir, "back"), *name = contract_name("big object");
    const uint64_t places[] = { 0, 4095, 8 << 20, (16 << 20) - 3, size / 2, size - 16 };
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    for (int i = 0; i < UTIL_COUNT(places); i++) {
        char text[17];
        snprintf(text, sizeof text, "<place %08x>", (unsigned)i);
        if (places[i] + 16 <= size) assert_int_equal(pwrite(fd, text, 16, (off_t)places[i]), 16);
    }
    uint64_t got = 0;
    contract_ok(ckpt_store_put(s, name, path, true));
    contract_ok(ckpt_store_size(s, name, &got));
    assert_int_equal(got, size);
    contract_ok(ckpt_store_get(s, name, back, false));
    int out = open(back, O_RDONLY);
    assert_true(out >= 0);
    assert_int_equal(lseek(out, 0, SEEK_END), size);
    char *a = (char *)malloc(1 << 20), *b = (char *)malloc(1 << 20);
    for (uint64_t at = 0; at < size; at += 1 << 20) {
        ssize_t n = pread(fd, a, 1 << 20, (off_t)at), m = pread(out, b, 1 << 20, (off_t)at);
        if (n != m || n <= 0 || memcmp(a, b, (size_t)n) != 0) fail_msg("differs near %llu", (unsigned long long)at);
    }
    free(a);
    free(b);
    (void)close(fd);
    (void)close(out);
    contract_remove(name);
}

//-- the fork ----------------------------------------------------------------------

UTIL_FN void contract_test_fork(void **state) {
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        uint64_t size;
        bool right = ckpt_store_size(the_contract.store, "x", &size) == CKPT_ARG && strstr(ckpt_last_error(), "fork") != NULL;
        _exit(right ? 0 : 1);
    }
    int status = 1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    assert_int_equal(status, 0);
}

// Nothing may be left below the prefix.
UTIL_FN void contract_test_clean(void **state) {
    (void)state;
    if (the_contract.no_list || the_contract.no_remove) util_skip("this store cannot list or remove");
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(ckpt_store_list(the_contract.store, contract_name(""), contract_note, &found));
    for (int i = 0; i < found.count; i++) print_message("left: %s\n", found.names[i]);
    assert_int_equal(found.count, 0);
    contract_names_free(&found);
}

#define CONTRACT_TESTS                                                                                                  \
    cmocka_unit_test(contract_test_put), cmocka_unit_test(contract_test_get), cmocka_unit_test(contract_test_missing),  \
    cmocka_unit_test(contract_test_overwrite), cmocka_unit_test(contract_test_empty), cmocka_unit_test(contract_test_wrong_sum), \
    cmocka_unit_test(contract_test_ranges), cmocka_unit_test(contract_test_names), cmocka_unit_test(contract_test_bad_names), \
    cmocka_unit_test(contract_test_list), cmocka_unit_test(contract_test_remove), cmocka_unit_test(contract_test_progress), \
    cmocka_unit_test(contract_test_cancel), cmocka_unit_test(contract_test_threads), cmocka_unit_test(contract_test_another), \
    cmocka_unit_test(contract_test_race), cmocka_unit_test(contract_test_whole), cmocka_unit_test(contract_test_lost_put), \
    cmocka_unit_test(contract_test_parts), cmocka_unit_test(contract_test_abort),                                       \
    cmocka_unit_test(contract_test_parts_create_only), cmocka_unit_test(contract_test_big), cmocka_unit_test(contract_test_fork), \
    cmocka_unit_test(contract_test_clean)

#endif // STORE_CONTRACT_H
