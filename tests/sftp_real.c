// run.sh: helper (sftp_real.sh runs it). SFTP against OpenSSH's sshd: the contract of stores, logins, host keys, resumed uploads,
// frozen and dying servers, replacing under the eyes of a reader.
#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

// Sees the commands and the requests that libcurl is given before they are sent.
static struct curl_slist *lossy_append(struct curl_slist *list, const char *text);
static CURLMcode lossy_add(CURLM *multi, CURL *easy);
#define curl_slist_append lossy_append
#define curl_multi_add_handle lossy_add
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#undef curl_slist_append
#undef curl_multi_add_handle
#include "util.h"
#include "store_contract.h"

static const char *env(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? text : "";
}

static char *the_log;
static pthread_mutex_t the_log_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_log(ckpt_log_level level, const char *text, void *user) {
    (void)level; (void)user;
    pthread_mutex_lock(&the_log_lock);
    size_t old = the_log != NULL ? strlen(the_log) : 0, n = strlen(text);
    the_log = (char *)realloc(the_log, old + n + 2);
    memcpy(the_log + old, text, n);
    memcpy(the_log + old + n, "\n", 2);
    pthread_mutex_unlock(&the_log_lock);
}

static ckpt_store_desc desc(void) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.known_hosts_filename = env("SFTP_KNOWN");
    d.key_filename = env("SFTP_KEY");
    d.logger.fn = on_log;
    return d;
}

// "sftp://user@host:port//data/folder"
static const char *address(const char *user, const char *folder) {
    return util_fmt("sftp://%s%s%s:%s/%s/%s", user, user[0] != 0 ? "@" : "", env("SFTP_HOST"), env("SFTP_PORT"), env("SFTP_DATA"), folder);
}

static ckpt_store *open_store(const ckpt_store_desc *d, const char *folder) {
    ckpt_store *s = NULL;
    contract_ok(ckpt_store_open(&s, address(env("SFTP_USER"), folder), d));
    return s;
}

static ckpt_store *open_another(void *user) {
    (void)user;
    ckpt_store_desc d = desc();
    return open_store(&d, "contract");
}

// One look with these settings; the sentence is in ckpt_last_error. A login that works finds nothing.
static ckpt_err login(const ckpt_store_desc *d, const char *user) {
    ckpt_store *s = NULL;
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    // From the root: not every user may enter the folder of this test.
    contract_ok(ckpt_store_open(&s, util_fmt("sftp://%s%s%s:%s//", user, user[0] != 0 ? "@" : "", env("SFTP_HOST"), env("SFTP_PORT")), d));
    ckpt_err e = ckpt__store_run_stat(s, "nothing of this name", &st, &t);
    if (e == CKPT_AUTH) assert_false(t.transient);
    ckpt__error_record kept;
    ckpt__error_take(&kept);
    ckpt_store_close(s);
    (void)ckpt__error_put(&kept);
    return e;
}

static void says(const char *what) {
    if (strstr(ckpt_last_error(), what) == NULL) fail_msg("'%s' is not in: %s", what, ckpt_last_error());
}

static const char *file_path(const char *name) {
    return util_fmt("%s/%s", env("SFTP_DATA"), name);
}

static void server(const char *command) {
    const char *line = util_fmt("sh '%s/servers/sftp.sh' %s '%s'", CKPT_TESTS_DIR, command, env("SFTP_SERVER"));
    if (system(line) != 0) fail_msg("%s", line);
}

//-- host keys and logins ----------------------------------------------------------

static void test_host_keys(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    const char *dir = util_temp_dir(), *user = env("SFTP_USER");
    static const char *const good[] = { "SFTP_KNOWN", "SFTP_KNOWN_HASHED", "SFTP_KNOWN_ED25519", "SFTP_KNOWN_ECDSA" };
    for (int i = 0; i < UTIL_COUNT(good); i++) {
        d.known_hosts_filename = env(good[i]);
        contract_is(login(&d, user), CKPT_NOT_FOUND);
    }
    d.known_hosts_filename = env("SFTP_KNOWN_WRONG");
    contract_is(login(&d, user), CKPT_AUTH);
    says("is not the one in");
    says("SHA256:");
    d.known_hosts_filename = util_join(dir, "absent");
    contract_is(login(&d, user), CKPT_AUTH);
    says("ssh-keyscan -p");
    says("absent");
    util_write_text(util_join(dir, "empty"), "");
    d.known_hosts_filename = util_join(dir, "empty");
    contract_is(login(&d, user), CKPT_AUTH);
    says("no usable key");
    util_write_text(util_join(dir, "other"), util_fmt("elsewhere %s", strchr(util_read(env("SFTP_KNOWN_ED25519"), NULL), ' ') + 1));
    d.known_hosts_filename = util_join(dir, "other");
    contract_is(login(&d, user), CKPT_AUTH);
    // The port is part of the name.
    util_write_text(util_join(dir, "port"), util_fmt("127.0.0.1 %s", strchr(util_read(env("SFTP_KNOWN_ED25519"), NULL), ' ') + 1));
    d.known_hosts_filename = util_join(dir, "port");
    contract_is(login(&d, user), CKPT_AUTH);
    // A revoked key is none.
    const char *line = util_read(env("SFTP_KNOWN_ED25519"), NULL);
    util_write_text(util_join(dir, "revoked"), util_fmt("%s@revoked * %s", line, strchr(line, ' ') + 1));
    d.known_hosts_filename = util_join(dir, "revoked");
    contract_is(login(&d, user), CKPT_AUTH);
    util_write_text(util_join(dir, "pattern"), util_fmt("# text\n\n[127.0.0.*]:* %s", strchr(line, ' ') + 1));
    d.known_hosts_filename = util_join(dir, "pattern");
    contract_is(login(&d, user), CKPT_NOT_FOUND);
    d.known_hosts_filename = env("SFTP_KNOWN_RSA");
    ckpt_err e = login(&d, user);
    if (ckpt__sftp_old_libssh2() != NULL) {
        contract_is(e, CKPT_AUTH);
        says("RSA");
    } else contract_is(e, CKPT_NOT_FOUND);
    // A file that comes into being later is found.
    ckpt_store *s = NULL;
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    d.known_hosts_filename = util_join(dir, "later");
    s = open_store(&d, "login");
    contract_is(ckpt__store_run_stat(s, "nothing", &st, &t), CKPT_AUTH);
    util_write_text(util_join(dir, "later"), util_read(env("SFTP_KNOWN"), NULL));
    contract_is(ckpt__store_run_stat(s, "nothing", &st, &t), CKPT_NOT_FOUND);
    ckpt_store_close(s);
    // And one that the user corrects, when the host has a new key, while the store is open.
    const char *known = util_join(dir, "corrected");
    util_write_text(known, util_read(env("SFTP_KNOWN_WRONG"), NULL));
    d.known_hosts_filename = known;
    s = open_store(&d, "login");
    for (int i = 0; i < 2; i++) {
        contract_is(ckpt__store_run_stat(s, "nothing", &st, &t), CKPT_AUTH);
        says("is not the one in");
    }
    assert_int_equal(unlink(known), 0);                 // ssh-keygen -R, and a scan that has not come yet
    contract_is(ckpt__store_run_stat(s, "nothing", &st, &t), CKPT_AUTH);
    says("there is no file of known hosts");
    assert_false(t.transient);
    util_write_text(known, util_read(env("SFTP_KNOWN"), NULL));
    contract_is(ckpt__store_run_stat(s, "nothing", &st, &t), CKPT_NOT_FOUND);
    ckpt_store_close(s);
}

static void test_logins(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    const char *user = env("SFTP_USER");
    unsetenv("SSH_AUTH_SOCK");
    d.key_filename = env("SFTP_KEY_ECDSA");
    contract_is(login(&d, user), CKPT_NOT_FOUND);
    d.key_filename = env("SFTP_KEY_PASS");
    contract_is(login(&d, user), CKPT_AUTH);
    says("needs a pass phrase");
    d.key_password = "wrong one";
    contract_is(login(&d, user), CKPT_AUTH);
    says("pass phrase is wrong");
    assert_null(strstr(ckpt_last_error(), "wrong one"));
    d.key_password = env("SFTP_PASS_PHRASE");
    contract_is(login(&d, user), CKPT_NOT_FOUND);
    d.key_password = NULL;
    d.key_filename = env("SFTP_KEY_OTHER");
    contract_is(login(&d, user), CKPT_AUTH);
    says("refused the login");
    says(env("SFTP_KEY_OTHER"));
    d.key_filename = env("SFTP_KEY");
    contract_is(login(&d, "no-such-user-here"), CKPT_AUTH);
    says("no-such-user-here");
    d.key_filename = "/nonexistent/key";
    contract_is(login(&d, user), CKPT_AUTH);
    says("cannot be read");
    d.key_filename = env("SFTP_KEY_RSA");
    ckpt_err e = login(&d, user);
    if (ckpt__sftp_old_libssh2() != NULL) {
        contract_is(e, CKPT_AUTH);
        says("RSA key");
    } else contract_is(e, CKPT_NOT_FOUND);
}

// Without a key file: what ssh looks for in ~/.ssh, and the agent.
static void test_default_keys(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    const char *home = util_temp_dir(), *user = env("SFTP_USER"), *own = getenv("HOME") != NULL ? util_fmt("%s", env("HOME")) : NULL;
    d.key_filename = NULL;
    setenv("HOME", home, 1);
    unsetenv("SSH_AUTH_SOCK");
    contract_is(login(&d, user), CKPT_AUTH);
    says("nothing to log in with");
    util_mkdir(util_join(home, ".ssh"));
    util_write_text(util_join(home, ".ssh/id_ed25519"), util_read(env("SFTP_KEY_OTHER"), NULL));
    contract_is(login(&d, user), CKPT_AUTH);
    says("id_ed25519");
    util_write_text(util_join(home, ".ssh/id_ecdsa"), util_read(env("SFTP_KEY_ECDSA"), NULL));
    contract_is(login(&d, user), CKPT_NOT_FOUND);
    util_write_text(util_join(home, ".ssh/known_hosts"), util_read(env("SFTP_KNOWN"), NULL));
    d.known_hosts_filename = NULL;
    contract_is(login(&d, user), CKPT_NOT_FOUND);
    setenv("LOGNAME", user, 1);
    contract_is(login(&d, ""), CKPT_NOT_FOUND);
    if (env("SFTP_AGENT")[0] != 0) {
        util_remove_tree(util_join(home, ".ssh/id_ecdsa"));
        setenv("SSH_AUTH_SOCK", env("SFTP_AGENT"), 1);
        contract_is(login(&d, user), CKPT_NOT_FOUND);
        d.key_filename = env("SFTP_KEY_OTHER");         // refused; the agent is asked besides
        contract_is(login(&d, user), CKPT_NOT_FOUND);
        unsetenv("SSH_AUTH_SOCK");
    } else print_message("no agent\n");
    if (own != NULL) setenv("HOME", own, 1);
}

static void test_password(void **state) {
    (void)state;
    if (env("SFTP_PASS_USER")[0] == 0) util_skip("only root can make a user with a password");
    ckpt_store_desc d = desc();
    d.key_filename = NULL;
    d.password = env("SFTP_PASSWORD");
    contract_is(login(&d, env("SFTP_PASS_USER")), CKPT_NOT_FOUND);
    d.password = "a wrong password";
    contract_is(login(&d, env("SFTP_PASS_USER")), CKPT_AUTH);
    says("a password");
    assert_null(strstr(ckpt_last_error(), "a wrong password"));
    assert_true(the_log == NULL || (strstr(the_log, "a wrong password") == NULL && strstr(the_log, env("SFTP_PASSWORD")) == NULL));
}

static void test_no_server(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = NULL;
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    util_write_text(util_join(util_temp_dir(), "k"), "");
    const char *known = util_join(util_temp_dir(), "known");
    util_write_text(known, util_fmt("[127.0.0.1]:1 %s", strchr(util_read(env("SFTP_KNOWN_ED25519"), NULL), ' ') + 1));
    d.known_hosts_filename = known;
    contract_ok(ckpt_store_open(&s, util_fmt("sftp://%s@127.0.0.1:1/x", env("SFTP_USER")), &d));
    contract_is(ckpt__store_run_stat(s, "nothing", &st, &t), CKPT_NET);
    assert_true(t.transient);
    ckpt_store_close(s);
}

typedef struct crowd { ckpt_store *s; ckpt_err e; char why[1024]; } crowd;

static void *look_once(void *arg) {
    crowd *c = (crowd *)arg;
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    c->e = ckpt__store_run_stat(c->s, "nothing", &st, &t);
    snprintf(c->why, sizeof c->why, "%s", ckpt_last_error());
    return NULL;
}

// The server drops whoever comes while eight are logging in; twice as many threads of one store all get in.
static void test_many_logins(void **state) {
    (void)state;
    enum { MANY = 16 };
    ckpt_store_desc d = desc();
    crowd c[MANY];
    pthread_t id[MANY];
    ckpt_store *s = open_store(&d, "many");
    for (int i = 0; i < MANY; i++) {
        memset(&c[i], 0, sizeof c[i]);
        c[i].s = s;
        assert_int_equal(pthread_create(&id[i], NULL, look_once, &c[i]), 0);
    }
    for (int i = 0; i < MANY; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < MANY; i++) {
        if (c[i].e != CKPT_NOT_FOUND) fail_msg("%s", c[i].why);
    }
    ckpt_store_close(s);
}

//-- with OpenSSH's own program -----------------------------------------------------

static void sftp_batch(const char *commands) {
    const char *batch = util_join(util_temp_dir(), "batch");
    util_write_text(batch, commands);
    const char *line = util_fmt("sftp -q -b '%s' -i '%s' -P %s -o IdentitiesOnly=yes -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile='%s' "
                                "-F /dev/null '%s@%s' >/dev/null", batch, env("SFTP_KEY"), env("SFTP_PORT"), env("SFTP_KNOWN"), env("SFTP_USER"),
                                env("SFTP_HOST"));
    if (system(line) != 0) fail_msg("%s", commands);
}

static void test_openssh(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "openssh/deep er");
    const char *dir = util_temp_dir(), *path = util_join(dir, "mine"), *back = util_join(dir, "back");
    unsigned char *p = contract_bytes(5000001, 7);
    util_write(path, p, 5000001);
    contract_ok(ckpt_store_put(s, "sub/ours.pt", path, false));
    sftp_batch(util_fmt("get \"%s/openssh/deep er/sub/ours.pt\" \"%s\"\nput \"%s\" \"%s/openssh/deep er/theirs.pt\"\n", env("SFTP_DATA"), back, path,
                        env("SFTP_DATA")));
    size_t size = 0;
    assert_memory_equal(util_read(back, &size), p, 5000001);
    assert_int_equal(size, 5000001);
    assert_true(contract_holds(s, "theirs.pt", p, 5000001));
    ckpt_store_close(s);
    // A folder relative to the login folder.
    const char *name = util_fmt("ckpt test %d", (int)getpid());
    contract_ok(ckpt_store_open(&s, util_fmt("sftp://%s@%s:%s/%s", env("SFTP_USER"), env("SFTP_HOST"), env("SFTP_PORT"), name), &d));
    contract_ok(ckpt_store_put(s, "a 'quoted' \"name\"", path, true));
    contract_ok(ckpt_store_put(s, "a 'quoted' \"name\"", path, true));
    sftp_batch(util_fmt("get \"%s/a 'quoted' \\\"name\\\"\" \"%s\"\n", name, back));
    assert_memory_equal(util_read(back, NULL), p, 5000001);
    contract_ok(ckpt_store_remove(s, "a 'quoted' \"name\""));
    sftp_batch(util_fmt("rmdir \"%s\"\n", name));
    ckpt_store_close(s);
}

// What others may have put into the folder.
static void test_strange_folder(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "strange");
    const char *dir = file_path("strange");
    util_mkdir(dir);
    util_mkdir(util_join(dir, "sub"));
    util_write_text(util_join(dir, "new\nline"), "1");
    util_write_text(util_join(dir, "new\n-rw-r--r--    1 root     root            5 Nov 21 03:14 ghost"), "1");
    util_write_text(util_join(dir, "12 Jan 1 2020 like a line"), "1234567");
    util_write_text(util_join(dir, "back\\slash -> arrow"), "12");
    util_write_text(util_join(dir, "sub/file"), "123");
    assert_int_equal(symlink("/etc", util_join(dir, "link-out")), 0);
    assert_int_equal(symlink(".", util_join(dir, "sub/loop")), 0);
    assert_int_equal(mkfifo(util_join(dir, "pipe"), 0600), 0);
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    int at = contract_find(&found, "12 Jan 1 2020 like a line");
    assert_true(at >= 0 && found.sizes[at] == 7);
    assert_true(contract_find(&found, "back\\slash -> arrow") >= 0);
    assert_true(contract_find(&found, "sub/file") >= 0);
    for (int i = 0; i < found.count; i++) assert_null(strchr(found.names[i], '\n'));
    if (found.count > 5) fail_msg("%d names", found.count);     // a break in a name that imitates a line makes two of one
    contract_names_free(&found);
    contract_ok(ckpt_store_list(s, "../", contract_note, &found));
    assert_int_equal(found.count, 0);
    contract_is(ckpt_store_list(s, "no such/", contract_note, &found), CKPT_OK);
    assert_int_equal(found.count, 0);
    ckpt_store_close(s);
}

//-- broken uploads ----------------------------------------------------------------

// A body that tells what is read of it, and does something at a place.
typedef struct source {
    const unsigned char *p;
    uint64_t size, first, read, act_at;
    const char *act;
    double acted, slow;
} source;

static ckpt_err read_source(void *dst, size_t size, uint64_t offset, void *user) {
    source *b = (source *)user;
    memcpy(dst, b->p + offset, size);
    if (b->read == 0 || offset < b->first) b->first = offset;
    b->read += size;
    if (b->slow > 0) ckpt__os_sleep(b->slow);
    if (b->act != NULL && offset + size > b->act_at) {
        server(b->act);
        b->act = NULL;
        b->acted = ckpt__os_now();
    }
    return CKPT_OK;
}

static ckpt_err put_source(ckpt_store *s, const char *name, source *b, const char *mark, ckpt__transfer *t) {
    ckpt__body body;
    ckpt__store_put put;
    memset(&body, 0, sizeof body);
    body.read = read_source;
    body.user = b;
    body.fd = -1;
    body.size = b->size;
    memset(&put, 0, sizeof put);
    put.name = name;
    put.body = &body;
    put.overwrite = true;
    put.mark = mark;
    put.t = t;
    ckpt__transfer_begin(t);
    return ckpt__store_run_put(s, &put);
}

static ckpt_err unread(void *dst, size_t size, uint64_t offset, void *user) {
    (void)dst, (void)size, (void)offset, (void)user;
    return ckpt__error_set(CKPT_AUTH, "its ticket has run out");
}

// What this machine's disk says is none of the server's, though libcurl hangs up for it; nor is what is there of an upload taken away.
static void test_own_disk(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "own");
    ckpt__transfer t = contract_transfer();
    contract_ok(contract_put(s, "x", "hello", 5, true, NULL, &t));
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    k.fd = open("/dev/full", O_WRONLY);
    k.path = "the file";
    k.size = 5;
    contract_is(ckpt__store_run_get(s, "x", NULL, 0, &k, &t), CKPT_NO_SPACE);
    assert_true(k.unheld && !t.transient);
    (void)close(k.fd);
    ckpt__body body = { unread, NULL, NULL, -1, NULL, 0, 5, NULL, NULL };
    ckpt__store_put put;
    memset(&put, 0, sizeof put);
    put.name = "y";
    put.body = &body;
    put.mark = "mark";
    put.t = &t;
    contract_is(ckpt__store_run_put(s, &put), CKPT_AUTH);
    says("ticket");
    assert_false(t.transient);
    assert_true(util_exists(file_path("own/.y.mark.ckpt-part")));
    contract_ok(contract_put(s, "y", "hello", 5, true, "mark", &t));
    ckpt_store_close(s);
}

enum { BIG = 48 << 20 };

static void test_resume(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "resume");
    unsigned char *p = contract_bytes(BIG, 8);
    ckpt__transfer t = contract_transfer();
    uint64_t moved = 0;
    struct stat st;
    source b = { p, BIG, 0, 0, BIG / 2, "kill", 0, 0 };
    t.moved = &moved;
    t.stall_timeout_s = 10;
    contract_is(put_source(s, "a big one", &b, "mark-1", &t), CKPT_NET);
    assert_true(t.transient);
    assert_false(util_exists(file_path("resume/a big one")));
    assert_int_equal(stat(file_path("resume/.a big one.mark-1.ckpt-part"), &st), 0);
    uint64_t there = (uint64_t)st.st_size;
    assert_true(there > BIG / 4 && there < BIG);
    source again = { p, BIG, 0, 0, 0, NULL, 0, 0 };
    contract_is(put_source(s, "a big one", &again, "mark-1", &t), CKPT_NET);    // nobody there
    assert_true(t.transient);
    server("restart");
    // Another process, which has only the mark: another store.
    ckpt_store_close(s);
    s = open_store(&d, "resume");
    moved = 0;
    contract_ok(put_source(s, "a big one", &again, "mark-1", &t));
    assert_int_equal(moved, BIG);
    assert_true(again.read <= BIG - there + CKPT__SFTP_TAIL);
    assert_true(again.first + CKPT__SFTP_TAIL >= there);
    assert_true(contract_holds(s, "a big one", p, BIG));
    assert_false(util_exists(file_path("resume/.a big one.mark-1.ckpt-part")));
    // A part file that holds other bytes, or too many, is begun again.
    unsigned char *q = contract_bytes(BIG, 9);
    util_write(file_path("resume/.other.mark-2.ckpt-part"), q, BIG / 2);
    source whole = { p, BIG, 0, 0, 0, NULL, 0, 0 };
    contract_ok(put_source(s, "other", &whole, "mark-2", &t));
    assert_true(contract_holds(s, "other", p, BIG));
    util_write(file_path("resume/.longer.mark-3.ckpt-part"), q, BIG);
    whole.size = BIG / 2;
    contract_ok(put_source(s, "longer", &whole, "mark-3", &t));
    assert_true(contract_holds(s, "longer", p, BIG / 2));
    // One that is complete only needs its name.
    util_write(file_path("resume/.done.mark-4.ckpt-part"), p, BIG / 2);
    whole.read = 0;
    contract_ok(put_source(s, "done", &whole, "mark-4", &t));
    assert_true(whole.read <= CKPT__SFTP_TAIL);
    assert_true(contract_holds(s, "done", p, BIG / 2));
    // The writer before died when it had moved the old file aside: that one goes.
    util_write(file_path("resume/.aside.mark-6.ckpt-part"), p, BIG / 2);
    util_write_text(file_path("resume/.aside.ckpt-old"), "old");
    contract_ok(put_source(s, "aside", &whole, "mark-6", &t));
    assert_true(contract_holds(s, "aside", p, BIG / 2));
    assert_false(util_exists(file_path("resume/.aside.ckpt-old")));
    // The answer to the rename was lost: nothing is sent again.
    ckpt__store_set_mark(&ckpt__sftp_of(s)->unsure, "mark-5", true, &ckpt__sftp_of(s)->lock);
    whole.read = 0;
    contract_ok(put_source(s, "done", &whole, "mark-5", &t));
    assert_int_equal(whole.read, 0);
    whole.read = 0;
    contract_ok(put_source(s, "done", &whole, "mark-5", &t));
    assert_int_equal(whole.read, BIG / 2);
    ckpt_store_close(s);
}

// What is left of an upload can be found and removed.
static void test_leftovers(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "left");
    util_mkdir(file_path("left"));
    util_mkdir(file_path("left/sub"));
    util_write_text(file_path("left/sub/.a name.0123.ckpt-part"), "12345");
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    assert_int_equal(found.count, 0);
    contract_uploads open;
    memset(&open, 0, sizeof open);
    open.name = "sub/a name";
    ckpt__transfer t = contract_transfer();
    contract_ok(ckpt__store_run_uploads(s, "", contract_note_upload, &open, &t));
    assert_int_equal(open.count, 1);
    ckpt__store_multi m;
    memset(&m, 0, sizeof m);
    m.name = open.name;
    m.upload_id = open.id[0];
    m.t = &t;
    contract_ok(ckpt__store_run_abort(s, &m));
    contract_ok(ckpt__store_run_abort(s, &m));
    assert_false(util_exists(file_path("left/sub/.a name.0123.ckpt-part")));
    // Somebody's files that are called like that by chance are no uploads.
    util_write_text(file_path("left/.x.ckpt-part"), "1");
    util_write_text(file_path("left/...ckpt-part"), "1");
    open.count = 0;
    open.name = "";
    contract_ok(ckpt__store_run_uploads(s, "", contract_note_upload, &open, &t));
    assert_int_equal(open.count, 0);
    m.upload_id = "../../key_ed25519.ckpt-part";
    contract_is(ckpt__store_run_abort(s, &m), CKPT_ARG);
    contract_is(contract_put(s, ".x.ckpt-old", "x", 1, true, NULL, &t), CKPT_ARG);
    ckpt_store_close(s);
}

static void test_frozen(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "frozen");
    unsigned char *p = contract_bytes(BIG, 8);
    ckpt__transfer t = contract_transfer();
    t.stall_timeout_s = 3;              // now and then bytes still move 0.4 s after the freeze, by TCP most likely
    source b = { p, BIG, 0, 0, BIG / 2, "freeze", 0, 0 };
    contract_is(put_source(s, "upload", &b, "mark", &t), CKPT_TIMEOUT);
    double took = ckpt__os_now() - b.acted;
    server("thaw");
    assert_true(t.transient);
    print_message("frozen upload: %.2f s of 3\n", took);
    assert_true(took > 2.4 && took < 3.6);
    source rest = { p, BIG, 0, 0, 0, NULL, 0, 0 };
    contract_ok(put_source(s, "upload", &rest, "mark", &t));
    assert_true(rest.read < BIG);
    assert_true(contract_holds(s, "upload", p, BIG));
    ckpt__store_stat st;
    contract_ok(ckpt__store_run_stat(s, "upload", &st, &t));
    server("freeze");
    double began = ckpt__os_now();
    contract_is(ckpt__store_run_stat(s, "upload", &st, &t), CKPT_TIMEOUT);
    took = ckpt__os_now() - began;
    server("thaw");
    print_message("frozen look: %.2f s of 3\n", took);
    assert_true(t.transient && took > 2.4 && took < 3.6);
    ckpt_store_close(s);
}

//-- lost answers ------------------------------------------------------------------

// The process ends when this many commands have been given and one more is: 0 never.
static int die_at;

// A server in between. From the `at`-th command that begins with `verb` on it swallows what comes back, and hangs up soon after:
// the command is carried out and its answer is lost.
typedef struct lossy {
    int              listener, port, at;
    int              request;           // or from the so-many-th request on, whatever it is; 0: none
    const char      *verb;
    ckpt__os_flag    swallow, stop, lost;
    pthread_t        thread;
} lossy;

static lossy between;

static bool vague;                      // the server says "failure" of a folder whose parent is missing: here it is asked for one that is there

static bool lacks_parent(const char *command) {
    const char *path = command + strlen("mkdir \""), *slash = strrchr(command, '/');
    return strncmp(command, "mkdir ", 6) == 0 && slash > path && !util_exists(util_fmt("%.*s", (int)(slash - path), path));
}

static const char *hidden;              // a virtual root: of this folder, and those above it, the server knows nothing
static const char *vanishing;           // this folder, once it is there, is removed by others before the next request

static bool is_hidden(const char *command) {
    if (hidden == NULL || strncmp(command, "mkdir \"", 7) != 0) return false;
    size_t n = strcspn(command + 7, "\"");
    return strncmp(hidden, command + 7, n) == 0 && (hidden[n] == '/' || hidden[n] == 0);
}

static struct curl_slist *lossy_append(struct curl_slist *list, const char *text) {
    if (die_at > 0 && --die_at == 0) _exit(9);
    if (vague && lacks_parent(text)) text = "mkdir \"/\"";
    if (is_hidden(text)) text = "mkdir \"/ckpt-nowhere/x\"";
    if (between.verb != NULL && strncmp(text, between.verb, strlen(between.verb)) == 0 && --between.at == 0) {
        between.verb = NULL;
        ckpt__os_flag_set(&between.swallow, 1);
    }
    return curl_slist_append(list, text);
}

static CURLMcode lossy_add(CURLM *multi, CURL *easy) {
    if (vanishing != NULL && rmdir(vanishing) == 0) vanishing = NULL;
    if (between.request > 0 && --between.request == 0) ckpt__os_flag_set(&between.swallow, 1);
    return curl_multi_add_handle(multi, easy);
}

static bool pass_on(int from, int to, bool drop) {
    char bytes[65536];
    ssize_t n = read(from, bytes, sizeof bytes);
    for (ssize_t at = 0; n > 0 && !drop && at < n;) {
        ssize_t m = write(to, bytes + at, (size_t)(n - at));
        if (m <= 0) return false;
        at += m;
    }
    return n > 0;
}

// One client after the other; the library's stores here use one connection at a time.
static void *lossy_run(void *arg) {
    lossy *l = (lossy *)arg;
    struct sockaddr_in real;
    memset(&real, 0, sizeof real);
    real.sin_family = AF_INET;
    real.sin_port = htons((uint16_t)atoi(env("SFTP_PORT")));
    real.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (ckpt__os_flag_get(&l->stop) == 0) {
        struct pollfd wait = { l->listener, POLLIN, 0 };
        if (poll(&wait, 1, 20) != 1) continue;
        int a = accept(l->listener, NULL, NULL), b = socket(AF_INET, SOCK_STREAM, 0);
        bool on = connect(b, (struct sockaddr *)&real, sizeof real) == 0;
        double since = 0;
        while (on && ckpt__os_flag_get(&l->stop) == 0) {
            struct pollfd p[2] = { { a, POLLIN, 0 }, { b, POLLIN, 0 } };
            bool swallow = ckpt__os_flag_get(&l->swallow) != 0;
            (void)poll(p, 2, 10);
            if (p[0].revents != 0) on = pass_on(a, b, false);
            if (on && p[1].revents != 0) on = pass_on(b, a, swallow);
            if (swallow && since == 0) since = ckpt__os_now();
            if (swallow && ckpt__os_now() - since > 0.1) break;
        }
        if (since > 0) { ckpt__os_flag_set(&l->swallow, 0); ckpt__os_flag_set(&l->lost, 1); }
        close(a);
        close(b);
    }
    return NULL;
}

static void lossy_start(lossy *l) {
    struct sockaddr_in at;
    socklen_t n = sizeof at;
    memset(l, 0, sizeof *l);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(l->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(l->listener, 8), 0);
    assert_int_equal(getsockname(l->listener, (struct sockaddr *)&at, &n), 0);
    l->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&l->thread, NULL, lossy_run, l), 0);
}

static void lossy_stop(lossy *l) {
    ckpt__os_flag_set(&l->stop, 1);
    pthread_join(l->thread, NULL);
    close(l->listener);
    l->verb = NULL;
    l->request = 0;
}

static ckpt_store *open_lossy(const char *folder) {
    ckpt_store_desc d = desc();
    ckpt_store *s = NULL;
    char *key = strchr(util_read(env("SFTP_KNOWN_ED25519"), NULL), ' ');
    const char *known = util_join(util_temp_dir(), "known");
    util_write_text(known, util_fmt("[127.0.0.1]:%d%s", between.port, key));
    d.known_hosts_filename = known;
    contract_ok(ckpt_store_open(&s, util_fmt("sftp://%s@127.0.0.1:%d/%s/%s", env("SFTP_USER"), between.port, env("SFTP_DATA"), folder), &d));
    return s;
}

static void lose(const char *verb, int at) {
    ckpt__os_flag_set(&between.lost, 0);
    between.at = at;
    between.verb = verb;
}

// The same upload again, as the uploader does it, until an answer comes.
static int put_lossy(ckpt_store *s, const char *name, const char *text, bool overwrite, const char *mark) {
    for (int tries = 1;; tries++) {
        ckpt__transfer t = contract_transfer();
        ckpt_err e = contract_put(s, name, text, strlen(text), overwrite, mark, &t);
        if (e == CKPT_OK) return tries;
        if (e != CKPT_NET || !t.transient || tries == 4) fail_msg("%s, try %d: %s", name, tries, ckpt_last_error());
    }
}

// Whatever answer gets lost: what was carried out counts, once, and nothing is left behind.
static void test_lost_answers(void **state) {
    (void)state;
    static const struct { const char *verb; int at; bool there, overwrite; int tries; } cases[] = {
        { "rename", 1, false, true, 2 }, { "rename", 1, false, false, 2 }, { "rename", 1, true, true, 2 }, { "rename", 2, true, true, 2 },
        { "rename", 3, true, true, 2 }, { "*rm", 1, true, true, 1 }
    };
    lossy_start(&between);
    ckpt_store *s = open_lossy("lost");
    util_mkdir(file_path("lost"));
    for (int i = 0; i < UTIL_COUNT(cases); i++) {
        const char *name = util_fmt("name-%d", i), *mark = util_fmt("mark-%d", i);
        if (cases[i].there) assert_int_equal(put_lossy(s, name, "old", true, NULL), 1);
        lose(cases[i].verb, cases[i].at);
        assert_int_equal(put_lossy(s, name, "what is put", cases[i].overwrite, mark), cases[i].tries);
        assert_true(ckpt__os_flag_get(&between.lost) != 0);
        assert_true(contract_holds(s, name, "what is put", 11));
        assert_string_equal(util_list(file_path("lost")), util_fmt("%s\n", name));
        lose("rm", 1);
        contract_ok(ckpt_store_remove(s, name));
        assert_true(ckpt__os_flag_get(&between.lost) != 0);
        assert_false(util_exists(file_path(util_fmt("lost/%s", name))));
        util_mkdir(file_path("lost"));
    }
    ckpt_store_close(s);
    lossy_stop(&between);
}

// The `at`-th request of what follows is answered no more. Before it, the server said of something that it is not there.
static void lose_request(ckpt_store *s, int at) {
    ckpt__store_stat st;
    ckpt__transfer t = contract_transfer();
    contract_is(ckpt__store_run_stat(s, "nothing of this name", &st, &t), CKPT_NOT_FOUND);
    ckpt__os_flag_set(&between.lost, 0);
    between.request = at;
}

// Was an answer lost? When there were fewer requests than that, there are no more to lose.
static bool was_lost(void) {
    if (between.request > 0) {
        between.request = 0;
        return false;
    }
    for (int i = 0; i < 500 && ckpt__os_flag_get(&between.lost) == 0; i++) ckpt__os_sleep(0.01);
    return true;
}

// Whatever request it was that a server died under, nobody is told that there is nothing, or that there is another's.
static void test_lost_looks(void **state) {
    (void)state;
    lossy_start(&between);
    ckpt_store *s = open_lossy("looks");
    assert_int_equal(put_lossy(s, "sub/name", "text", true, NULL), 1);
    int lists = 0, looks = 0, gets = 0, puts = 0;
    for (bool on = true; on; lists++) {
        contract_names found;
        memset(&found, 0, sizeof found);
        lose_request(s, lists + 1);
        ckpt_err e = ckpt_store_list(s, "", contract_note, &found);
        on = was_lost();
        if (e == CKPT_OK && found.count != 1) fail_msg("request %d of a listing: %d names", lists + 1, found.count);
        if (e != CKPT_OK) contract_is(e, CKPT_NET);
        contract_names_free(&found);
    }
    for (bool on = true; on; looks++) {
        ckpt__store_stat st;
        ckpt__transfer t = contract_transfer();
        lose_request(s, looks + 1);
        ckpt_err e = ckpt__store_run_stat(s, "sub/name", &st, &t);
        on = was_lost();
        if (e != CKPT_OK && (e != CKPT_NET || !t.transient)) fail_msg("request %d of a look: %s", looks + 1, ckpt_last_error());
    }
    for (bool on = true; on; gets++) {
        char back[4];
        ckpt__transfer t = contract_transfer();
        ckpt__sink k;
        memset(&k, 0, sizeof k);
        k.memory = back;
        k.fd = -1;
        k.size = sizeof back;
        lose_request(s, gets + 1);
        ckpt_err e = ckpt__store_run_get(s, "sub/name", NULL, 0, &k, &t);
        on = was_lost();
        if (e != CKPT_OK && !t.transient) fail_msg("request %d of a get: %s", gets + 1, ckpt_last_error());
    }
    for (bool on = true; on; puts++) {
        const char *name = util_fmt("sub/new-%d", puts);
        lose_request(s, puts + 1);
        int tries = put_lossy(s, name, "new", false, name + 4);
        on = was_lost();
        assert_true(tries <= 2);
        assert_true(contract_holds(s, name, "new", 3));
    }
    print_message("requests lost: %d of listings, %d of looks, %d of gets, %d of puts\n", lists - 1, looks - 1, gets - 1, puts - 1);
    assert_true(lists > 2 && looks > 2 && gets > 1 && puts > 4);
    ckpt_store_close(s);
    lossy_stop(&between);
}

// A process that replaces an object is killed before each of its commands in turn. Whenever that is, a reader finds one whole
// version, and the next process brings it to an end and leaves nothing behind.
static void test_killed(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "killed");
    int deaths = 0;
    for (int step = 1, status = -1; status != 0; step++) {
        ckpt__transfer t = contract_transfer();
        contract_ok(contract_put(s, "name", "the old one", 11, true, NULL, &t));
        pid_t pid = fork();
        if (pid == 0) {
            ckpt_store *own = NULL;
            if (ckpt_store_open(&own, address(env("SFTP_USER"), "killed"), &d) != CKPT_OK) _exit(2);
            die_at = step;
            ckpt_err e = contract_put(own, "name", "a new one", 9, true, "mark", &t);
            _exit(e == CKPT_OK ? 0 : 3);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0));
        if (WEXITSTATUS(status) == 9) deaths++;
        if (!contract_holds(s, "name", "the old one", 11)) assert_true(contract_holds(s, "name", "a new one", 9));
        contract_names found;
        memset(&found, 0, sizeof found);
        contract_ok(ckpt_store_list(s, "", contract_note, &found));
        assert_int_equal(found.count, 1);
        assert_string_equal(found.names[0], "name");
        contract_names_free(&found);
        contract_ok(contract_put(s, "name", "a new one", 9, true, "mark", &t));
        assert_true(contract_holds(s, "name", "a new one", 9));
        contract_ok(ckpt_store_remove(s, "name"));
        assert_string_equal(util_exists(file_path("killed")) ? util_list(file_path("killed")) : "", "");
    }
    print_message("killed at each of %d commands\n", deaths);
    assert_true(deaths >= 4);
    ckpt_store_close(s);
}

//-- replacing ---------------------------------------------------------------------

// A writer died between moving the old file aside and putting its own in place.
static void test_gap(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "gap");
    ckpt__transfer t = contract_transfer();
    ckpt__store_stat st;
    contract_names found;
    memset(&found, 0, sizeof found);
    contract_ok(contract_put(s, "name", "old", 3, true, NULL, &t));
    const char *name = file_path("gap/name"), *old = file_path("gap/.name.ckpt-old");
    assert_int_equal(rename(name, old), 0);
    contract_ok(ckpt__store_run_stat(s, "name", &st, &t));
    assert_int_equal(st.size, 3);
    assert_true(contract_holds(s, "name", "old", 3));
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    assert_int_equal(found.count, 1);
    assert_string_equal(found.names[0], "name");
    assert_int_equal(found.sizes[0], 3);
    contract_names_free(&found);
    contract_is(contract_put(s, "name", "new!", 4, false, NULL, &t), CKPT_EXISTS);
    assert_string_equal(util_list(file_path("gap")), ".name.ckpt-old\n");
    contract_ok(contract_put(s, "name", "new!", 4, true, NULL, &t));            // the next writer puts it right
    assert_true(contract_holds(s, "name", "new!", 4));
    contract_ok(ckpt_store_list(s, "", contract_note, &found));
    assert_int_equal(found.count, 1);
    assert_int_equal(found.sizes[0], 4);
    contract_names_free(&found);
    // What that writer left aside is taken for another's turn for some seconds, and then for a dead one's.
    double began = ckpt__os_now();
    contract_ok(contract_put(s, "name", "newer", 5, true, NULL, &t));
    print_message("after a dead writer: %.1f s\n", ckpt__os_now() - began);
    assert_true(contract_holds(s, "name", "newer", 5));
    assert_string_equal(util_list(file_path("gap")), "name\n");
    // Removing removes both.
    util_write_text(old, "older");
    contract_ok(ckpt_store_remove(s, "name"));
    assert_string_equal(util_list(file_path("gap")), "");
    util_write_text(old, "older");
    contract_ok(ckpt_store_remove(s, "name"));
    contract_is(ckpt_store_remove(s, "name"), CKPT_NOT_FOUND);
    ckpt_store_close(s);
}

typedef struct writer { ckpt_store *s; int seed; ckpt__os_flag done, *stop; ckpt_err e; char why[1024]; } writer;

enum { WHOLE = 60000 };

static void *replace_all_the_time(void *arg) {
    writer *w = (writer *)arg;
    unsigned char *p = (unsigned char *)malloc(WHOLE);
    for (int i = 0; w->e == CKPT_OK && ckpt__os_flag_get(w->stop) == 0; i++) {
        ckpt__transfer t = contract_transfer();
        util_fill(p, WHOLE, (unsigned)(w->seed + i));
        uint32_t crc = ckpt__digest_crc32(0, p + 4, WHOLE - 4);
        memcpy(p, &crc, 4);
        w->e = contract_put(w->s, "one name", p, WHOLE, true, NULL, &t);
        if (w->e != CKPT_OK) snprintf(w->why, sizeof w->why, "%s", ckpt_last_error());
        else ckpt__os_flag_set(&w->done, ckpt__os_flag_get(&w->done) + 1);
    }
    free(p);
    return NULL;
}

// Two writers replace one name as fast as they can; a reader never finds it missing or torn.
static void test_two_writers(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "two");
    ckpt__os_flag stop;
    memset(&stop, 0, sizeof stop);
    writer w[2];
    pthread_t id[2];
    unsigned char *back = (unsigned char *)util_keep(malloc(WHOLE), false);
    memset(back, 0, WHOLE);
    uint32_t crc = ckpt__digest_crc32(0, back + 4, WHOLE - 4);
    memcpy(back, &crc, 4);
    ckpt__transfer first = contract_transfer();
    contract_ok(contract_put(s, "one name", back, WHOLE, true, NULL, &first));
    for (int i = 0; i < 2; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].s = s;
        w[i].seed = 1000000 * i;
        w[i].stop = &stop;
        assert_int_equal(pthread_create(&id[i], NULL, replace_all_the_time, &w[i]), 0);
    }
    int reads = 0, missing = 0, torn = 0, again = 0;
    // Who meets the other's gap steps back, and may be the one who does for seconds on a busy machine; not for ever.
    for (double began = ckpt__os_now();; reads++) {
        double took = ckpt__os_now() - began;
        bool both = ckpt__os_flag_get(&w[0].done) > 5 && ckpt__os_flag_get(&w[1].done) > 5;
        if (took > 60.0 || (took > 3.0 && both && !util_long())) break;
        ckpt__transfer t = contract_transfer();
        ckpt__sink k;
        memset(&k, 0, sizeof k);
        k.memory = back;
        k.fd = -1;
        k.size = WHOLE;
        ckpt_err e = ckpt__store_run_get(s, "one name", NULL, 0, &k, &t);
        if (e == CKPT_NOT_FOUND) missing++;
        else if (e == CKPT_CORRUPT && t.transient) again++;
        else if (e != CKPT_OK) fail_msg("%s", ckpt_last_error());
        else if (memcmp(back, (crc = ckpt__digest_crc32(0, back + 4, WHOLE - 4), &crc), 4) != 0) torn++;
    }
    ckpt__os_flag_set(&stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(id[i], NULL);
    print_message("%d reads, %d and %d writes: %d missing, %d torn, %d to be tried again\n", reads, w[0].done, w[1].done, missing, torn, again);
    for (int i = 0; i < 2; i++) {
        if (w[i].e != CKPT_OK) fail_msg("%s", w[i].why);
        assert_true(w[i].done > 5);
    }
    assert_int_equal(missing, 0);
    assert_int_equal(torn, 0);
    assert_true(again < reads / 10 + 2);
    assert_string_equal(util_list(file_path("two")), "one name\n");
    ckpt_store_close(s);
}

typedef struct remover { const char *folder; double seconds; ckpt__os_flag removed; } remover;

// What every remove of a last object does, over and over: the folder goes as soon as it is empty.
static void *remove_all_the_time(void *arg) {
    remover *r = (remover *)arg;
    for (double until = ckpt__os_now() + 10.0; ckpt__os_now() < until;) {
        if (rmdir(r->folder) != 0) continue;
        int before = ckpt__os_flag_get(&r->removed);
        if (before == 0) until = ckpt__os_now() + r->seconds;
        ckpt__os_flag_set(&r->removed, before + 1);
    }
    return NULL;
}

// A put whose folder is removed again and again between its making and the first file in it.
static void test_folder_removed(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "removed");
    util_mkdir(file_path("removed"));
    ckpt__transfer t = contract_transfer();
    contract_ok(contract_put(s, "logged in", "x", 1, true, NULL, &t));
    remover r;
    pthread_t id;
    memset(&r, 0, sizeof r);
    r.folder = file_path("removed/folder");
    r.seconds = 0.05;
    assert_int_equal(pthread_create(&id, NULL, remove_all_the_time, &r), 0);
    ckpt_err e = contract_put(s, "folder/file", "x", 1, true, NULL, &t);
    pthread_join(id, NULL);
    print_message("removed %d times\n", ckpt__os_flag_get(&r.removed));
    contract_ok(e);
    assert_true(contract_holds(s, "folder/file", "x", 1));
    ckpt_store_close(s);
}

static void test_refused(void **state) {
    (void)state;
    ckpt_store_desc d = desc();
    ckpt_store *s = open_store(&d, "refused");
    ckpt__transfer t = contract_transfer();
    contract_ok(contract_put(s, "folder/file", "x", 1, true, NULL, &t));
    for (int overwrite = 0; overwrite < 2; overwrite++) {       // as file:// says it: only of an object is it CKPT_EXISTS
        contract_is(contract_put(s, "folder", "y", 1, overwrite != 0, NULL, &t), CKPT_IO);
        says("folder of that name");
        assert_false(t.transient);
    }
    util_mkdir(file_path("refused/empty"));
    contract_ok(contract_put(s, "empty", "y", 1, false, NULL, &t));
    contract_ok(ckpt_store_remove(s, "empty"));
    assert_string_equal(util_list(file_path("refused")), "folder\n");
    // Folders are made on the way, all or the last ones; where a file is in their place it ends.
    contract_ok(contract_put(s, "folder/a/b/c/d/file", "y", 1, true, NULL, &t));
    contract_ok(contract_put(s, "folder/a/b/e/f/file", "z", 1, true, NULL, &t));
    assert_true(contract_holds(s, "folder/a/b/c/d/file", "y", 1) && contract_holds(s, "folder/a/b/e/f/file", "z", 1));
    vague = true;
    contract_ok(contract_put(s, "folder/g/h/i/j/file", "y", 1, true, NULL, &t));
    contract_ok(contract_put(s, "folder/g/h/k/file", "z", 1, true, NULL, &t));
    vague = false;
    assert_true(contract_holds(s, "folder/g/h/i/j/file", "y", 1) && contract_holds(s, "folder/g/h/k/file", "z", 1));
    hidden = file_path("refused");
    vanishing = file_path("refused/folder/l/m");
    contract_ok(contract_put(s, "folder/l/m/file", "y", 1, true, NULL, &t));
    assert_null(vanishing);
    hidden = NULL;
    for (int deep = 0; deep < 2; deep++) {
        t = contract_transfer();
        contract_is(contract_put(s, deep ? "folder/file/far/below" : "folder/file/below", "y", 1, true, NULL, &t), CKPT_AUTH);
        says("a file is in its place");
        assert_false(t.transient);
    }
    assert_true(contract_holds(s, "folder/file", "x", 1));
    if (env("SFTP_FULL")[0] != 0) {         // a small file system
        const char *uri = util_fmt("sftp://%s@%s:%s/%s", env("SFTP_USER"), env("SFTP_HOST"), env("SFTP_PORT"), env("SFTP_FULL"));
        ckpt_store *full = NULL;
        contract_ok(ckpt_store_open(&full, uri, &d));
        unsigned char *p = contract_bytes(8 << 20, 1);
        t = contract_transfer();
        contract_is(contract_put(full, "too big", p, 8 << 20, true, NULL, &t), CKPT_NO_SPACE);
        assert_false(t.transient);
        for (const char *left = util_list(env("SFTP_FULL")); *left != 0; left = util_list(env("SFTP_FULL")))     // of that, which may be resumed
            assert_int_equal(unlink(util_join(env("SFTP_FULL"), util_fmt("%.*s", (int)strcspn(left, "\n"), left))), 0);
        util_write(file_path("refused-big"), p, 8 << 20);
        contract_is(ckpt_store_put(full, "too big", file_path("refused-big"), true), CKPT_NO_SPACE);    // nobody can go on with it
        assert_string_equal(util_list(env("SFTP_FULL")), "");
        ckpt_store_close(full);
    } else print_message("no small file system\n");
    if (geteuid() != 0) {
        assert_int_equal(mkdir(file_path("refused/closed"), 0500), 0);
        t = contract_transfer();
        contract_is(contract_put(s, "closed/file", "y", 1, true, NULL, &t), CKPT_AUTH);
        assert_false(t.transient);
    }
    ckpt_store_close(s);
}

// A server on which a file that is there cannot be opened for writing, as with proftpd without AllowOverwrite: what a broken upload
// left does not block the object.
static void test_part_in_the_way(void **state) {
    (void)state;
    bool root = geteuid() == 0;
    if (root && env("SFTP_PASS_USER")[0] == 0) util_skip("nobody whom permissions hold back");
    ckpt_store_desc d = desc();
    if (root) {
        d.key_filename = NULL;
        d.password = env("SFTP_PASSWORD");
    }
    char dir[] = "/tmp/ckpt-part-XXXXXX";                   // $TMPDIR may be below a folder that is closed to other users
    const char *user = env(root ? "SFTP_PASS_USER" : "SFTP_USER");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0777), 0);
    ckpt_store *s = NULL;
    contract_ok(ckpt_store_open(&s, util_fmt("sftp://%s@%s:%s/%s", user, env("SFTP_HOST"), env("SFTP_PORT"), dir), &d));
    static const int sizes[] = { 3, 8 << 20 };
    for (int i = 0; i < UTIL_COUNT(sizes); i++) {           // begun again, and to be resumed
        unsigned char *p = contract_bytes((size_t)sizes[i], 5);
        const char *part = util_join(dir, ".name.mark.ckpt-part");
        util_write(part, p, (size_t)sizes[i] / 2);
        assert_int_equal(chmod(part, 0444), 0);
        ckpt__transfer t = contract_transfer();
        contract_ok(contract_put(s, "name", p, (size_t)sizes[i], true, "mark", &t));
        assert_true(contract_holds(s, "name", p, (size_t)sizes[i]));
        assert_string_equal(util_list(dir), "name\n");
    }
    // Where nothing may be written at all it stays that.
    assert_int_equal(chmod(dir, 0555), 0);
    ckpt__transfer t = contract_transfer();
    contract_is(contract_put(s, "other", "x", 1, true, "mark", &t), CKPT_AUTH);
    assert_false(t.transient);
    assert_int_equal(chmod(dir, 0777), 0);
    contract_ok(ckpt_store_remove(s, "name"));
    assert_int_equal(rmdir(dir), 0);
    ckpt_store_close(s);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const struct CMUnitTest contract_tests[] = { CONTRACT_TESTS };
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_keys), cmocka_unit_test(test_logins), cmocka_unit_test(test_default_keys), cmocka_unit_test(test_password),
        cmocka_unit_test(test_no_server), cmocka_unit_test(test_many_logins), cmocka_unit_test(test_openssh),
        cmocka_unit_test(test_strange_folder), cmocka_unit_test(test_leftovers), cmocka_unit_test(test_gap), cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_folder_removed), cmocka_unit_test(test_refused), cmocka_unit_test(test_part_in_the_way), cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_own_disk), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_lost_answers), cmocka_unit_test(test_lost_looks), cmocka_unit_test(test_killed)
    };
    ckpt_store_desc d = desc();
    the_contract.store = open_store(&d, "contract");
    the_contract.prefix = "";
    the_contract.another = open_another;
    the_contract.is_folder = the_contract.no_marks = the_contract.no_crc = the_contract.no_newline = true;
    int failed = env("SFTP_ONLY")[0] != 0 ? 0 : cmocka_run_group_tests_name("contract", contract_tests, NULL, NULL);
    ckpt_store_close(the_contract.store);
    if (env("SFTP_ONLY")[0] != 0) cmocka_set_test_filter(env("SFTP_ONLY"));
    failed += cmocka_run_group_tests_name("sshd", tests, NULL, NULL);
    free(the_log);
    return failed;
}
