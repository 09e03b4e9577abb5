// Proves what SFTP decides without a server: addresses as Composer reads them, settings from the environment, known
// hosts, kinds of keys, names and their quoting, listings.
// run.sh: remote
static const char *machines = "/etc/ssh/ssh_known_hosts";
#define CKPT__SFTP_MACHINE machines
#include "fault/faults.h"
#define CKPT_IMPLEMENTATION
#include "../ckpt.h"
#include "util.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const ckpt_allocator heap = { NULL, NULL };

static void clear_env(void) {
    static const char *const names[] = { "COMPOSER_SFTP_KEY_FILE", "COMPOSER_SFTP_KNOWN_HOSTS_FILE", "LOGNAME", "USER", "LNAME", "USERNAME",
                                         "SSH_AUTH_SOCK" };
    for (int i = 0; i < UTIL_COUNT(names); i++) unsetenv(names[i]);
}

static const char *json_text(const ckpt__json_doc *d, const ckpt__json *o, const char *key) {
    const ckpt__json *v = ckpt__json_get(d, o, key);
    return v != NULL && v->kind == CKPT__JSON_TEXT ? v->text : NULL;
}

static void json_parse(ckpt__json_doc *d, const char *text) {
    assert_int_equal(ckpt__json_parse(d, &heap, text, strlen(text)), CKPT_OK);
}

static void same_text(int row, const char *what, const char *have, const char *wanted) {
    if (strcmp(have != NULL ? have : "", wanted != NULL ? wanted : "") != 0) fail_msg("row %d: %s is '%s', not '%s'", row, what, have, wanted);
}

// One row. Where this library means something else: "user@host" without a scheme is a user and a host; an IPv6 address keeps its
// brackets in the URI; the port 0 is the default one; a policy other than refusing does not exist.
static void try_row(const util_table *t, int row) {
    ckpt__json_doc args, env, connect;
    json_parse(&args, cases_get(t, row, "args_json"));
    json_parse(&env, cases_get(t, row, "env_json"));
    const ckpt__json *root = ckpt__json_root(&args), *port = ckpt__json_get(&args, root, "port");
    const char *host = json_text(&args, root, "host");
    const char *uri = strstr(host, "://") != NULL ? host : util_fmt("sftp://%s", host);
    if (port != NULL && port->i != 0 && port->i != 22) uri = util_fmt("%s:%d", uri, (int)port->i);
    clear_env();
    for (const ckpt__json *v = ckpt__json_child(&env, ckpt__json_root(&env)); v != NULL; v = ckpt__json_next(&env, v)) setenv(v->key, v->text, 1);
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.username = json_text(&args, root, "username");
    ckpt_store *s = NULL;
    ckpt_err e = ckpt_store_open(&s, uri, &d);
    if (strcmp(cases_get(t, row, "status"), "ok") != 0) {
        if (e != CKPT_ARG) fail_msg("row %d: '%s' is %s", row, uri, ckpt_err_name(e));
    } else {
        if (e != CKPT_OK) fail_msg("row %d: %s", row, ckpt_last_error());
        const ckpt__sftp *f = ckpt__sftp_of(s);
        json_parse(&connect, cases_get(t, row, "connect_args_json"));
        const ckpt__json *c = ckpt__json_root(&connect), *p = ckpt__json_get(&connect, c, "port");
        const char *at = strrchr(json_text(&connect, c, "hostname"), '@'), *user = json_text(&connect, c, "username");
        same_text(row, "the host", f->host, at != NULL ? at + 1 : json_text(&connect, c, "hostname"));
        same_text(row, "the user", f->user, at != NULL ? "user" : user);
        assert_int_equal(f->port, p != NULL ? p->i : 22);
        same_text(row, "the folder", f->cwd, cases_text(t, row, "cwd"));
        same_text(row, "the key", f->key_file, json_text(&connect, c, "key_filename"));
        if (cases_get(t, row, "known_hosts") != NULL) same_text(row, "known_hosts", f->known_hosts, cases_get(t, row, "known_hosts"));
        const char *wanted = cases_get(t, row, "uri_of_obj");
        if (strcmp(wanted, "sftp://::1:22/x/obj") == 0) wanted = "sftp://[::1]:22/x/obj";
        if (strcmp(wanted, "sftp://h/obj") == 0) wanted = "sftp://h:22/obj";
        same_text(row, "the URI", util_fmt("%sobj", s->uri), wanted);
        ckpt__buf path;
        ckpt__buf_init(&path, NULL);
        assert_int_equal(ckpt__sftp_path(s, "a/b.pt", &path), CKPT_OK);
        same_text(row, "the path", path.data, cases_get(t, row, "remote_path_of_a/b.pt"));
        ckpt__buf_free(&path);
        ckpt__json_free(&connect);
        ckpt_store_close(s);
    }
    ckpt__json_free(&args);
    ckpt__json_free(&env);
}

static void test_cases(void **state) {
    (void)state;
    util_table t = cases_tsv("sftp_connect.tsv");
    int tried = 0;
    for (int row = 0; row < t.rows; row++) {
        if (strstr(cases_get(&t, row, "args_json"), "connect_kwargs") != NULL) continue;    // Python's
        try_row(&t, row);
        tried++;
    }
    assert_true(tried >= 15);
}

// What a URI opens, and the URI of an object in it: Composer's tables, where they are of stores that need no server to be opened.
// Those of Databricks, MLflow and OCI have tests of their own; a libcloud provider "local" is file:// here.
static void test_uri_tables(void **state) {
    (void)state;
    clear_env();
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.session_token = "token";          // gs://
    int seen = 0;
    util_table t = cases_tsv("object_uri.tsv");
    for (int i = 0; i < t.rows; i++) {
        char bucket[64] = "", prefix[64] = "", host[64] = "", user[64] = "";
        int port = 22;
        const char *args = cases_text(&t, i, "args"), *name = cases_text(&t, i, "object_name"), *uri = NULL;
        if (sscanf(args, "bucket=%63s prefix=%63s", bucket, prefix) >= 1) uri = util_fmt("%s://%s/%s", cases_text(&t, i, t.names[0]), bucket, prefix);
        if (sscanf(args, "host=%63s port=%d username=%63s", host, &port, user) == 3) uri = util_fmt("sftp://%s@%s:%d", user, host, port);
        if (uri == NULL || strncmp(uri, "oci:", 4) == 0) continue;
        ckpt_store *s = NULL;
        if (ckpt_store_open(&s, uri, &d) != CKPT_OK) fail_msg("%s: %s", uri, ckpt_last_error());
        ckpt__buf out;
        ckpt__buf_init(&out, NULL);
        ckpt__stores_add_uri(&out, s, name);
        same_text(i, "the URI", ckpt__buf_cstr(&out), cases_text(&t, i, "uri"));
        ckpt__buf_free(&out);
        ckpt_store_close(s);
        seen++;
    }
    assert_int_equal(seen, 3);
    t = cases_tsv("store_from_uri.tsv");
    for (int i = 0; i < t.rows; i++) {
        const char *uri = cases_text(&t, i, "uri"), *args = cases_text(&t, i, "constructor_args");
        ckpt_store *s = NULL;
        if (strncmp(args, "bucket=", 7) != 0 || strncmp(uri, "oci:", 4) == 0) continue;
        if (ckpt_store_open(&s, uri, &d) != CKPT_OK) fail_msg("%s: %s", uri, ckpt_last_error());
        char scheme[8];
        assert_int_equal(sscanf(uri, "%7[^:]", scheme), 1);
        for (char *p = scheme; *p != 0; p++) *p = (char)ckpt__txt_lower((unsigned char)*p);
        const char *path = strchr(uri + strlen(scheme) + 3, '/');       // it is a prefix here, and dropped in Composer (SPEC 6.1)
        same_text(i, "the store", s->uri, util_fmt("%s://%s%s/", scheme, args + 7, path));
        ckpt_store_close(s);
        seen++;
    }
    assert_int_equal(seen, 6);
}

static void test_addresses(void **state) {
    (void)state;
    static const struct { const char *text, *cwd, *host, *user, *password; int port; } good[] = {
        { "sftp://h//abs/dir", "/abs/dir/", "h", "", "", 22 }, { "sftp://h/./rel", "./rel/", "h", "", "", 22 }, { "sftp://h//", "/", "h", "", "", 22 },
        { "sftp://u:p@h:2222/d", "d/", "h", "u", "p", 2222 }, { "sftp://u:p:q@r@h", "", "h", "u", "p:q@r", 22 },
        { "sftp://H.Example:/a b/c", "a b/c/", "h.example", "", "", 22 }, { "sftp://[fe80::1]", "", "fe80::1", "", "", 22 }
    };
    static const char *const bad[] = { "sftp://", "sftp:///x", "sftp://h:0", "sftp://h:65536", "sftp://h:x", "sftp://h?x", "sftp://h/a?b", "sftp://h/a#b",
                                       "sftp://[::1", "sftp://[::1]x", "sftp://h h/x", "sftp://u@", "sftp://h\\x/", "sftp://h/a\nb", "sftp://*/",
                                       "sftp://h;id/x", "sftp://$(id)/x", "sftp://h`id`", "sftp://h:1:2/x" };
    clear_env();
    for (int i = 0; i < UTIL_COUNT(good); i++) {
        ckpt_store *s = NULL;
        if (ckpt_store_open(&s, good[i].text, NULL) != CKPT_OK) fail_msg("%s: %s", good[i].text, ckpt_last_error());
        const ckpt__sftp *f = ckpt__sftp_of(s);
        same_text(i, "cwd", f->cwd, good[i].cwd);
        same_text(i, "host", f->host, good[i].host);
        same_text(i, "user", f->user, good[i].user);
        same_text(i, "password", f->password, good[i].password);
        assert_int_equal(f->port, good[i].port);
        if (good[i].password[0] != 0) assert_null(strstr(s->uri, util_fmt(":%s@", good[i].password)));
        ckpt_store_close(s);
    }
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        ckpt_store *s = NULL;
        if (ckpt_store_open(&s, bad[i], NULL) != CKPT_ARG) fail_msg("'%s' was taken", bad[i]);
        assert_null(s);
    }
    // Twice is once too often; a secret is not repeated.
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    ckpt_store *s = NULL;
    d.password = "other";
    assert_int_equal(ckpt_store_open(&s, "sftp://u:secret@h/x", &d), CKPT_ARG);
    assert_null(strstr(ckpt_last_error(), "secret"));
    assert_int_equal(ckpt_store_open(&s, "sftp://u:secret/word@h/x", NULL), CKPT_ARG);  // what seems to be a port
    assert_null(strstr(ckpt_last_error(), "secret"));
    setenv("LOGNAME", "me", 1);
    assert_int_equal(ckpt_store_open(&s, "sftp://h/x", &d), CKPT_OK);
    assert_string_equal(s->uri, "sftp://me@h:22/x/");
    assert_int_equal(ckpt__store_takes(s, util_fmt("a/%0255d", 0)), CKPT_OK);
    assert_int_equal(ckpt__store_takes(s, util_fmt("a/%0256d", 0)), CKPT_ARG);     // OpenSSH calls it a bad message
    ckpt_store_close(s);
}

static int lines_for(const char *host, int port, const char *text) {
    ckpt__sftp f;
    ckpt__buf in, out;
    memset(&f, 0, sizeof f);
    f.host = util_fmt("%s", host);
    f.port = port;
    ckpt__buf_init(&in, NULL);
    ckpt__buf_init(&out, NULL);
    ckpt__buf_text(&in, text);
    (void)ckpt__buf_cstr(&in);
    ckpt__sftp_known_lines(&f, &heap, &in, &out);
    int n = 0;
    for (size_t i = 0; i < out.len; i++) n += out.data[i] == '\n';
    ckpt__buf_free(&in);
    ckpt__buf_free(&out);
    return n;
}

static void test_known_hosts(void **state) {
    (void)state;
    assert_int_equal(lines_for("h", 22, ""), 0);
    assert_int_equal(lines_for("h", 22, "h ssh-ed25519 AAAA\n"), 1);
    assert_int_equal(lines_for("h", 22, "h ssh-ed25519 AAAA"), 1);
    assert_int_equal(lines_for("h", 22, "  a,h\tssh-ed25519  AAAA comment\r\n"), 1);
    assert_int_equal(lines_for("h", 2222, "h ssh-ed25519 AAAA\n[h]:2222 ssh-rsa BBBB\n[h]:222 ssh-rsa CCCC\n"), 1);
    assert_int_equal(lines_for("h", 22, "#h ssh-ed25519 AAAA\nhh ssh-ed25519 AAAA\nh\nh ssh-ed25519\nh unknown-type AAAA\n\n,,\n"), 0);
    assert_int_equal(lines_for("a.b.c", 22, "*.b.c ssh-ed25519 AAAA\n"), 1);
    assert_int_equal(lines_for("a.b.c", 22, "!a.*,*.b.c ssh-ed25519 AAAA\n"), 0);
    assert_int_equal(lines_for("a.b.c", 22, "?.B.C ssh-ed25519 AAAA\n"), 1);
    assert_int_equal(lines_for("h", 22, "@cert-authority h ssh-ed25519 AAAA\n"), 0);
    assert_int_equal(lines_for("h", 22, "h ssh-ed25519 AAAA\nh ssh-rsa BBBB\n@revoked * ssh-ed25519 AAAA\n"), 1);
    // Made by ssh-keygen -H of "[127.0.0.1]:28199 ssh-ed25519 ...".
    const char *hashed = "|1|qdp/deUkXc1otKlZyRdvibhqYJE=|RN8+qO0crHEBhwNVwE1ilUGCWf8= ssh-ed25519 "
                         "AAAAC3NzaC1lZDI1NTE5AAAAII2pgSdWYWFwA1Vl12LzV4VMdnGBVZQHY/R8Duz1+Ip2\n";
    assert_int_equal(lines_for("127.0.0.1", 28199, hashed), 1);
    assert_int_equal(lines_for("127.0.0.1", 28198, hashed), 0);
    assert_int_equal(lines_for("127.0.0.1", 28199, "|1|| ssh-rsa A\n|1|x|y ssh-rsa A\n|1 ssh-rsa A\n| ssh-rsa A\n|1|AAAA|AAAA ssh-rsa A\n"), 0);
}

static const char *known_hosts_of(const ckpt_store_desc *d) {
    ckpt_store *s = NULL;
    assert_int_equal(ckpt_store_open(&s, "sftp://user@host/dir", d), CKPT_OK);
    const char *path = util_fmt("%s", ckpt__sftp_of(s)->known_hosts);
    ckpt_store_close(s);
    return path;
}

// The user's own file comes before the machine's, also where it cannot be seen just now.
static void test_known_hosts_file(void **state) {
    (void)state;
    const char *home = util_temp_dir(), *folder = util_join(home, ".ssh"), *own = util_join(folder, "known_hosts"), *was = machines;
    const char *old = util_fmt("%s", getenv("HOME") != NULL ? getenv("HOME") : "");
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    clear_env();
    setenv("HOME", home, 1);
    machines = util_join(home, "machine");
    assert_string_equal(known_hosts_of(&d), own);
    util_write_text(machines, "");
    assert_string_equal(known_hosts_of(&d), machines);
    assert_int_equal(symlink(folder, folder), 0);           // a circle
    assert_string_equal(known_hosts_of(&d), own);
    assert_int_equal(unlink(folder), 0);
    util_mkdir(folder);
    util_write_text(own, "");
    assert_string_equal(known_hosts_of(&d), own);
    // A relative one is of the directory in which the program is now; so is a key.
    char *here = getcwd(NULL, 0);
    ckpt_store *s = NULL;
    d.known_hosts_filename = "machine";
    d.key_filename = "id";
    assert_string_equal(known_hosts_of(&d), util_join(here, "machine"));
    assert_int_equal(ckpt_store_open(&s, "sftp://user@host/dir", &d), CKPT_OK);
    assert_string_equal(ckpt__sftp_of(s)->key_file, util_join(here, "id"));
    ckpt_store_close(s);
    free(here);
    setenv("HOME", old, 1);
    machines = was;
}

static void test_names(void **state) {
    (void)state;
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__sftp_quote(&b, "a \"b\" 'c' \\d");
    assert_string_equal(ckpt__buf_cstr(&b), " \"a \\\"b\\\" \\'c\\' \\\\d\"");
    assert_int_equal(ckpt__sftp_hidden(&b, "dir/x.pt", "m", ckpt__sftp_part_end), CKPT_OK);
    assert_string_equal(b.data, "dir/.x.pt.m.ckpt-part");
    assert_int_equal(ckpt__sftp_hidden(&b, "x.pt", NULL, ckpt__sftp_old_end), CKPT_OK);
    assert_string_equal(b.data, ".x.pt.ckpt-old");
    char name[256], mark[64];
    memset(name, 'n', 255);
    name[255] = 0;
    assert_int_equal(ckpt__sftp_mark(mark, NULL), CKPT_OK);
    assert_int_equal(strlen(mark), 32);
    assert_int_equal(ckpt__sftp_hidden(&b, name, mark, ckpt__sftp_part_end), CKPT_OK);
    assert_true(b.len <= 255);
    assert_int_equal(ckpt__sftp_mark(mark, "../../x"), CKPT_OK);
    assert_null(strchr(mark, '/'));
    assert_int_equal(ckpt__sftp_mark(mark, "good-Mark_1"), CKPT_OK);
    assert_string_equal(mark, "good-Mark_1");
    ckpt__buf_free(&b);
}

static void test_lines(void **state) {
    (void)state;
    static const struct { const char *line, *name; char type; uint64_t size; } good[] = {
        { "-rw-r--r--    1 root     root            5 Nov 21 03:14 name", "name", '-', 5 },
        { "-rw-r--r--    1 root     root            5 Nov 21  2025  lead", " lead", '-', 5 },
        { "drwxr-xr-x    2 0        0            4096 Jan  1 00:00 d", "d", 'd', 4096 },
        { "-rw-r--r--    1 DOM\\domain users DOM\\staff 7 21 18446744 Nov 21 03:14 1 Nov 21 03:14 x", "1 Nov 21 03:14 x", '-', 18446744 },
        { "-rwxr--r--   1 -        -       12345678901 Nov 21 03:14 a -> b", "a -> b", '-', 12345678901ull }
    };
    static const char *const bad[] = { "", "-", "total 5", "-rw-r--r--    1 root     root            5 Nov 21 03:14", "-rw-r--r-- 1 root root 5 Nov 21",
                                       "-rw-r--r--    1 root     root            5 Nov 99 03:14 name", "xrw-r--r--    1 root root 5 Nov 21 03:14 name" };
    ckpt__sftp_entry en;
    for (int i = 0; i < UTIL_COUNT(good); i++) {
        if (!ckpt__sftp_parse_line(good[i].line, good[i].line + strlen(good[i].line), &en)) fail_msg("%s", good[i].line);
        same_text(i, "the name", util_fmt("%.*s", (int)en.name.n, en.name.p), good[i].name);
        assert_int_equal(en.type, good[i].type);
        assert_int_equal(en.size, good[i].size);
    }
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        if (ckpt__sftp_parse_line(bad[i], bad[i] + strlen(bad[i]), &en)) fail_msg("'%s' was taken", bad[i]);
    }
}

static void test_urls(void **state) {
    (void)state;
    static const char *const paths[][2] = { { "a b/~", "/~/a%20b/~" }, { "/abs/x", "/abs/x" }, { "/~/x", "/./~/x" }, { "~/x", "/~/~/x" } };
    ckpt__sftp f;
    ckpt__sftp_call c;
    char site[] = "sftp://h:22";
    memset(&f, 0, sizeof f);
    memset(&c, 0, sizeof c);
    f.site = site;
    c.f = &f;
    ckpt__buf_init(&c.url, NULL);
    for (int i = 0; i < UTIL_COUNT(paths); i++) assert_string_equal(ckpt__sftp_url(&c, paths[i][0]), util_fmt("%s%s", site, paths[i][1]));
    ckpt__buf_free(&c.url);
}

// libssh2 hands over the bytes of a host's key, libssh their base64: the fingerprint is that of the bytes.
static void test_fingerprint(void **state) {
    (void)state;
    static const char text[] = "AAAAC3NzaC1lZDI1NTE5AAAAII2pgSdWYWFwA1Vl12LzV4VMdnGBVZQHY/R8Duz1+Ip2";
    // Of ssh-keygen -lf.
    static const char *const sum = "SHA256:tiEd7ly+wdHG0LUXAGAa1heFbZLRWZmN1UIG3Tfwax8";
    ckpt_store *s = NULL;
    clear_env();
    assert_int_equal(ckpt_store_open(&s, "sftp://h/x", NULL), CKPT_OK);
    for (int raw = 0; raw < 2; raw++) {
        ckpt__sftp_call c;
        struct curl_khkey key;
        ckpt__buf b;
        memset(&c, 0, sizeof c);
        memset(&key, 0, sizeof key);
        c.store = s;
        ckpt__buf_init(&b, NULL);
        assert_true(ckpt__txt_unbase64(&b, text, strlen(text)));
        key.key = raw ? b.data : text;
        key.len = raw ? b.len : strlen(text);
        key.keytype = CURLKHTYPE_ED25519;
        assert_int_equal(ckpt__sftp_on_key(NULL, NULL, &key, CURLKHMATCH_MISMATCH, &c), CURLKHSTAT_REJECT);
        same_text(raw, "the fingerprint", c.sha, sum);
        ckpt__buf_free(&b);
    }
    ckpt_store_close(s);
}

// libcurl asks the agent together with a key file, or a password, over libssh2; over libssh apart from the file.
static void test_offers(void **state) {
    (void)state;
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    ckpt__sftp_offer o;
    ckpt__buf path;
    memset(&d, 0, sizeof d);
    ckpt__buf_init(&path, NULL);
    clear_env();
    setenv("SSH_AUTH_SOCK", "/agent", 1);
    for (int libssh = 0; libssh < 2; libssh++) {
        for (int file = 0; file < 2; file++) {
            d.key_filename = file ? "/k" : NULL;
            d.password = "w";
            assert_int_equal(ckpt_store_open(&s, "sftp://u@h/x", &d), CKPT_OK);
            bool apart = libssh != 0 && file != 0;
            assert_true(ckpt__sftp_offer_of(ckpt__sftp_of(s), 0, libssh != 0, &path, &o));
            assert_true((o.key != NULL) == (file != 0) && o.password && o.agent == !apart);
            assert_int_equal(ckpt__sftp_offer_of(ckpt__sftp_of(s), 1, libssh != 0, &path, &o), apart);
            if (apart) assert_true(o.key == NULL && o.agent && !o.password);
            assert_false(ckpt__sftp_offer_of(ckpt__sftp_of(s), 2, libssh != 0, &path, &o));
            ckpt_store_close(s);
        }
    }
    clear_env();
    ckpt__buf_free(&path);
}

// libssh may make one message of all that libcurl has in hand; libssh2 makes many.
static void test_upload_buffer(void **state) {
    (void)state;
    static const uint64_t left[] = { 0, 1, 100000, 1 << 20, UINT64_MAX };
    for (int i = 0; i < UTIL_COUNT(left); i++) {
        assert_int_equal(ckpt__sftp_upload_buffer(left[i], true), 32768);
        long own = ckpt__sftp_upload_buffer(left[i], false);
        assert_true(own >= 65536 && own <= CKPT__SFTP_UPLOAD && ((uint64_t)own >= left[i] || own == CKPT__SFTP_UPLOAD));
    }
}

// What a listing of "sftp://h/x" begins with.
typedef struct listing { ckpt__transfer t; ckpt__store_walk w; ckpt__sftp_call c; ckpt__sftp_listing l; } listing;

static ckpt_store *listing_begin(listing *g) {
    ckpt_store *s = NULL;
    clear_env();
    assert_int_equal(ckpt_store_open(&s, "sftp://h/x", NULL), CKPT_OK);
    memset(g, 0, sizeof *g);
    g->c.f = ckpt__sftp_of(s);
    g->l.c = &g->c;
    g->l.w = &g->w;
    ckpt__buf_init(&g->l.old, NULL);
    ckpt__sftp_walk_init(&g->w, s, "", &g->t);
    ckpt__buf_byte(&g->w.dirs, 0);
    return s;
}

// The file aside stands for its object, unless its name was too long for it to tell what the object is called.
static void test_aside(void **state) {
    (void)state;
    for (int n = 158; n < 250; n++) {
        listing g;
        ckpt_store *s = listing_begin(&g);
        ckpt__buf b;
        char *name = util_fmt("%0*d", n, 7);
        ckpt__buf_init(&b, NULL);
        assert_int_equal(ckpt__sftp_hidden(&b, name, NULL, ckpt__sftp_old_end), CKPT_OK);
        ckpt__sftp_entry en = { '-', 5, { b.data, b.len } };
        assert_int_equal(ckpt__sftp_see(&g.l, &en), CKPT_OK);
        assert_int_equal(ckpt__sftp_add_old(&g.l), CKPT_OK);
        assert_int_equal(g.w.count, n <= CKPT__SFTP_BASE);
        if (g.w.count > 0) assert_string_equal(g.w.names.data + g.w.found[0].name, name);
        ckpt__buf_free(&b);
        ckpt__buf_free(&g.l.old);
        ckpt__store_walk_free(&g.w);
        ckpt_store_close(s);
    }
}

// A server that has a folder in each folder comes to an end.
static void test_deep(void **state) {
    (void)state;
    listing g;
    ckpt_store *s = listing_begin(&g);
    char name[256];
    memset(name, 'd', 255);
    ckpt__sftp_entry en = { 'd', 0, { name, 255 } };
    ckpt_err e = CKPT_OK;
    int depth = 0;
    while (e == CKPT_OK && depth < 1000) {
        e = ckpt__sftp_see(&g.l, &en);
        g.w.dir += strlen(g.w.dirs.data + g.w.dir) + 1;
        depth++;
    }
    assert_int_equal(e, CKPT_UNSUPPORTED);
    assert_true(depth > 15);
    ckpt__store_walk_free(&g.w);
    ckpt_store_close(s);
}

// A login has stall_timeout_s, also when that is longer than the 10 s that other stores have for a connection.
static void test_slow_login(void **state) {
    (void)state;
    clear_env();
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 4) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    const char *host = util_fmt("127.0.0.1:%d", ntohs(at.sin_port)), *known = util_join(util_temp_dir(), "known");
    util_write_text(known, util_fmt("[127.0.0.1]:%s ssh-ed25519 AAAA\n", host + 10));
    d.known_hosts_filename = known;
    assert_int_equal(ckpt_store_open(&s, util_fmt("sftp://u:p@%s/x", host), &d), CKPT_OK);
    ckpt__transfer t;
    ckpt__store_stat st;
    memset(&t, 0, sizeof t);
    t.stall_timeout_s = 10.3;
    assert_int_equal(s->table->stat(s, "n", &st, &t), CKPT_TIMEOUT);
    if (strstr(ckpt_last_error(), "not a byte in 10.3 s") == NULL) fail_msg("%s", ckpt_last_error());
    assert_true(t.transient);
    ckpt_store_close(s);
    close(fd);
}

// A connection that is gone in the middle of an upload leaves open what became of the object only where it was to get its name, or to lose it.
static void test_unsure(void **state) {
    (void)state;
    static const char *const verbs[] = { "mkdir", "statvfs", "rm", "*rm", "rename" };
    clear_env();
    const char *known = util_join(util_temp_dir(), "known");
    util_write_text(known, "[127.0.0.1]:1 ssh-ed25519 AAAA\n");
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    d.known_hosts_filename = known;
    assert_int_equal(ckpt_store_open(&s, "sftp://u:p@127.0.0.1:1/x", &d), CKPT_OK);
    for (int i = 0; i < UTIL_COUNT(verbs); i++) {
        ckpt__sftp_call c;
        ckpt__transfer t;
        memset(&t, 0, sizeof t);
        bool renames = strcmp(verbs[i], "rename") == 0;
        assert_int_equal(ckpt__sftp_begin(&c, s, &t), CKPT_NET);        // nobody is there
        ckpt__transfer_begin(&t);
        assert_int_equal(ckpt__sftp_run(&c, verbs[i], "/x/a", renames ? "/x/b" : NULL), CKPT_NET);
        assert_int_equal(t.unsure, renames || strcmp(verbs[i], "rm") == 0);
        ckpt__sftp_end(&c);
    }
    ckpt_store_close(s);
}

// A file of known hosts that cannot be read just now says nothing of the store: it is read again, or its owner is to see to it. So it
// is at the first login, and where the host's key is none of those that were read and the file has changed.
static void test_known_hosts_unread(void **state) {
    (void)state;
    static const struct { int errnum; ckpt_err e; } faults[] = { { ESTALE, CKPT_NET }, { EIO, CKPT_AUTH } };
    clear_env();
    const char *known = util_join(util_temp_dir(), "known");
    util_write_text(known, "[127.0.0.1]:1 ssh-ed25519 AAAA\n");
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    ckpt__sftp_call c;
    ckpt__transfer t;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    d.known_hosts_filename = known;
    assert_int_equal(ckpt_store_open(&s, "sftp://u:p@127.0.0.1:1/x", &d), CKPT_OK);
    for (int i = 0; i < UTIL_COUNT(faults); i++) {
        ckpt__transfer_begin(&t);
        fault_arm_call("open", faults[i].errnum, 1);
        assert_int_equal(ckpt__sftp_begin(&c, s, &t), faults[i].e);
        assert_true(fault_disarm());
        assert_non_null(strstr(ckpt_last_error(), known));
        assert_int_equal(t.transient, faults[i].e == CKPT_NET);
        ckpt__sftp_end(&c);
    }
    assert_int_equal(ckpt__sftp_begin(&c, s, &t), CKPT_NET);        // nobody is there
    assert_null(strstr(ckpt_last_error(), known));
    util_write_text(known, "[127.0.0.1]:1 ssh-ed25519 AAAAAAAA\n");
    for (int i = 0; i < UTIL_COUNT(faults); i++) {
        bool again = true;
        ckpt__transfer_begin(&t);
        fault_arm_call("open", faults[i].errnum, 1);
        assert_int_equal(ckpt__sftp_known_again(&c, &again), faults[i].e);
        assert_true(fault_disarm());
        assert_false(again);
        assert_int_equal(t.transient, faults[i].e == CKPT_NET);
    }
    ckpt__sftp_end(&c);
    ckpt_store_close(s);
}

// A request that waits inside libcurl, as one does over libssh, ends: at its time, or soon after it is cancelled. One whose clocks
// are looked at is left alone.
static void test_guard(void **state) {
    (void)state;
    enum { ENDS, IS_CANCELLED, STALLS, WAYS };
    static const ckpt_err why[WAYS] = { CKPT_OK, CKPT_CANCELLED, CKPT_TIMEOUT };
    clear_env();
    for (int way = 0; way < WAYS; way++) {
        ckpt_store *s = NULL;
        assert_int_equal(ckpt_store_open(&s, "sftp://u@h/x", NULL), CKPT_OK);
        ckpt__sftp *f = ckpt__sftp_of(s);
        ckpt__transfer t;
        ckpt__http_job job;
        ckpt__os_flag cancel;
        ckpt__os_thread thread;
        int pair[2];
        memset(&t, 0, sizeof t);
        ckpt__os_flag_set(&cancel, 0);
        t.cancel = &cancel;
        assert_int_equal(ckpt__http_take(&f->http, &job, f->site, &t), CKPT_OK);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        ckpt__http_note_socket(job.slot, pair[0]);
        ckpt__sftp_guard g = { f, &job, 2.0, false, CKPT_OK };
        double began = ckpt__os_now();
        assert_int_equal(ckpt__os_thread_start(&thread, ckpt__sftp_guard_run, &g), CKPT_OK);
        for (int i = 0; way == ENDS && i < 130; i++) {
            (void)ckpt__http_watch(&job);
            ckpt__os_sleep(0.02);
        }
        if (way == ENDS) {
            assert_false(ckpt__os_is_hung_up(pair[1]));
            ckpt__os_mutex_lock(&f->lock);
            g.over = true;
            ckpt__os_cond_broadcast(&f->wake);
            ckpt__os_mutex_unlock(&f->lock);
        }
        if (way == IS_CANCELLED) ckpt__os_flag_set(&cancel, 1);
        ckpt__os_thread_join(thread);
        double took = ckpt__os_now() - began;
        assert_int_equal(g.why, why[way]);
        assert_int_equal(ckpt__os_is_hung_up(pair[1]), way != ENDS);
        if (way == STALLS) assert_true(took >= 2.0);
        if (way == IS_CANCELLED) assert_true(took >= 0.2);
        job.slot->sockets[0] = 0;
        close(pair[0]);
        close(pair[1]);
        ckpt__http_give(&f->http, &job, true);
        ckpt_store_close(s);
    }
}

// Each allocation of an opening fails once.
typedef struct failing { int left; long live; } failing;

static void *fail_at(void *ptr, size_t old_size, size_t new_size, void *user) {
    failing *f = (failing *)user;
    if (new_size == 0) { f->live -= (long)old_size; free(ptr); return NULL; }
    if (f->left-- == 0) return NULL;
    f->live += (long)new_size - (long)old_size;
    return realloc(ptr, new_size);
}

static void test_no_memory(void **state) {
    (void)state;
    clear_env();
    for (int i = 0;; i++) {
        failing f = { i, 0 };
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        memset(&d, 0, sizeof d);
        d.key_filename = "/k";
        d.key_password = "p";
        d.password = "w";
        d.allocator.fn = fail_at;
        d.allocator.user = &f;
        ckpt_err e = ckpt_store_open(&s, "sftp://u@h/dir", &d);
        if (e == CKPT_OK) ckpt_store_close(s);
        else assert_int_equal(e, CKPT_NOMEM);
        assert_int_equal(f.live, 0);
        if (e == CKPT_OK) { assert_true(i > 10); return; }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases), cmocka_unit_test(test_uri_tables), cmocka_unit_test(test_addresses), cmocka_unit_test(test_known_hosts),
        cmocka_unit_test(test_known_hosts_file), cmocka_unit_test(test_names), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_urls), cmocka_unit_test(test_deep), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_aside), cmocka_unit_test(test_upload_buffer), cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_offers), cmocka_unit_test(test_unsure), cmocka_unit_test(test_guard),
        cmocka_unit_test(test_known_hosts_unread), cmocka_unit_test(test_slow_login)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
