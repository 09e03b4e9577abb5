/* test_oci.c: what oci:// signs and sends, whose keys it finds, and what it makes of replies, good, bad and hostile, by a scripted
   server in the process. The signatures are those of oci_signing.json, two of them published by Oracle.
   run.sh: remote tsan-long */
#define CKPT_IMPLEMENTATION
#define CKPT__AUTH_OCI_BITS 1024
#include "../ckpt.h"
#include "util.h"
#include "net_util.h"
#include "counting.h"
#define SCRIPT_NUMBER "opc-request-id: N1\r\n"
#define SCRIPT_SECRETS "very.secret.token", "correct horse", "signature=", "PRIVATE"
#include "script_util.h"

//-- the vectors -------------------------------------------------------------------

static ckpt__json_doc vectors;
static const ckpt__json *vector_keys, *generated;

static const char *text_of(const ckpt__json *object, const char *key) {
    const ckpt__json *v = ckpt__json_get(&vectors, object, key);
    return v != NULL && v->kind == CKPT__JSON_TEXT ? v->text : "";
}

// Below a home of its own: the sample configuration of the vectors, with the key in the clear.
static const char *the_home;

static void write_config(const char *text) {
    util_write_text(util_join(the_home, ".oci/config"), text);
}

static void write_sample(void) {
    write_config(text_of(generated, "config_file"));
    util_write_text(util_join(the_home, ".oci/oci_api_key.pem"), util_fmt("%s\nOCI_API_KEY\n", text_of(generated, "pem_pkcs8_encrypted")));
}

static int set_up(void **state) {
    static const char *const names[] = { "OCI_" };
    size_t size = 0;
    script_set_up(state);
    script_unset(names, UTIL_COUNT(names));
    the_home = util_temp_dir();
    setenv("HOME", the_home, 1);
    util_mkdir(util_join(the_home, ".oci"));
    char *text = util_read(util_tests_path("cases/oci_signing.json"), &size);
    is(ckpt__json_parse(&vectors, NULL, text, size), CKPT_OK);
    vector_keys = ckpt__json_get(&vectors, ckpt__json_root(&vectors), "keys");
    generated = ckpt__json_get(&vectors, vector_keys, "generated_2048");
    write_sample();
    return 0;
}

static int tear_down(void **state) {
    ckpt__json_free(&vectors);
    return script_tear_down(state);
}

static void test_vectors(void **state) {
    (void)state;
    int count = 0;
    const ckpt__json *list = ckpt__json_get(&vectors, ckpt__json_root(&vectors), "vectors");
    for (const ckpt__json *v = ckpt__json_child(&vectors, list); v != NULL; v = ckpt__json_next(&vectors, v), count++) {
        const ckpt__json *key = ckpt__json_get(&vectors, vector_keys, text_of(v, "key")), *q = ckpt__json_get(&vectors, v, "request");
        const char *pem = text_of(key, "pem")[0] != 0 ? text_of(key, "pem") : text_of(key, "pem_pkcs1");
        bool with_body = has(text_of(v, "signed_headers"), "x-content-sha256");
        ckpt__fields f;
        ckpt__buf text, names;
        EVP_PKEY *k = NULL;
        ckpt__fields_init(&f, NULL);
        ckpt__buf_init(&text, NULL);
        ckpt__buf_init(&names, NULL);
        const ckpt__json *headers = ckpt__json_get(&vectors, q, "headers");
        for (const ckpt__json *h = ckpt__json_child(&vectors, headers); h != NULL; h = ckpt__json_next(&vectors, h)) {
            const ckpt__json *name = ckpt__json_child(&vectors, h);
            ckpt__fields_add(&f, name->text, ckpt__json_next(&vectors, name)->text);
        }
        is(ckpt__auth_oci_string(&text, &names, &f, text_of(q, "method"), text_of(q, "target"), with_body), CKPT_OK);
        assert_string_equal(ckpt__buf_cstr(&text), text_of(v, "signing_string"));
        assert_string_equal(ckpt__buf_cstr(&names), text_of(v, "signed_headers"));
        is(ckpt__auth_oci_read_key(&k, pem, strlen(pem), NULL, "the key"), CKPT_OK);
        is(ckpt__auth_oci_authorize(&f, k, text_of(v, "key_id"), text_of(q, "method"), text_of(q, "target"), with_body), CKPT_OK);
        assert_string_equal(ckpt__fields_get(&f, "authorization"), text_of(v, "authorization"));
        EVP_PKEY_free(k);
        ckpt__fields_free(&f);
        ckpt__buf_free(&text);
        ckpt__buf_free(&names);
    }
    assert_int_equal(count, 8);
}

static void test_keys(void **state) {
    (void)state;
    static const struct { const char *member; bool locked; } forms[] = { { "pem_pkcs1", false }, { "pem_pkcs8", false },
        { "pem_pkcs8_encrypted", true }, { "pem_traditional_encrypted", true } };
    const char *phrase = text_of(generated, "pass_phrase");
    char found[48];
    EVP_PKEY *k = NULL;
    for (int i = 0; i < UTIL_COUNT(forms); i++) {
        const char *pem = text_of(generated, forms[i].member);
        is(ckpt__auth_oci_read_key(&k, pem, strlen(pem), phrase, "the key"), CKPT_OK);
        ckpt__auth_oci_fingerprint(found, k);
        assert_string_equal(found, text_of(generated, "fingerprint_md5"));
        EVP_PKEY_free(k);
        if (!forms[i].locked) continue;
        is(ckpt__auth_oci_read_key(&k, pem, strlen(pem), NULL, "the key"), CKPT_AUTH);
        sentence_has("encrypted");
        is(ckpt__auth_oci_read_key(&k, pem, strlen(pem), "wrong", "the key"), CKPT_AUTH);
        sentence_has("decrypted");
        assert_null(k);
    }
    const char *pem = text_of(ckpt__json_get(&vectors, vector_keys, "oracle_doc_1024"), "pem");
    is(ckpt__auth_oci_read_key(&k, pem, strlen(pem), NULL, "the key"), CKPT_OK);
    ckpt__auth_oci_fingerprint(found, k);
    assert_string_equal(found, "73:61:a2:21:67:e0:df:be:7e:4b:93:1e:15:98:a5:b7");
    EVP_PKEY_free(k);
    static const char *const bad[] = { "", "hello", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIPTV8w2kHqSEkFYkXc3wK7xMRcjU4HYlwgbnN1kQYp1r\n-----END PRIVATE KEY-----\n" };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        is(ckpt__auth_oci_read_key(&k, bad[i], strlen(bad[i]), NULL, "the key"), CKPT_AUTH);
        sentence_has(i == 3 ? "RSA" : "PEM");
    }
}

//-- configuration -----------------------------------------------------------------

static ckpt_err settle(ckpt__auth_oci *a, const char *profile, const char *file) {
    ckpt_store_desc d;
    memset(&d, 0, sizeof d);
    d.profile = profile;
    d.credentials_file = file;
    d.region = d.key_filename = d.key_password = "";
    d.logger.fn = on_log;
    return ckpt__auth_oci_init(a, NULL, &d, NULL);
}

static void settles(const char *profile, const char *file, const char *id, const char *region) {
    ckpt__auth_oci a;
    is(settle(&a, profile, file), CKPT_OK);
    assert_string_equal(a.id, id);
    assert_string_equal(a.region != NULL ? a.region : "", region);
    ckpt__auth_oci_free(&a);
}

static void refuses(ckpt_err e, const char *word) {
    ckpt__auth_oci a;
    is(settle(&a, NULL, NULL), e);
    sentence_has(word);
    assert_false(has(ckpt_last_error(), "correct horse"));
}

// The same while a variable has that value.
static void refuses_with(const char *variable, const char *value, ckpt_err e, const char *word) {
    setenv(variable, value, 1);
    refuses(e, word);
    unsetenv(variable);
}

static const char id_of_sample[] = "ocid1.tenancy.oc1..aaaaaaaatesttenancy/ocid1.user.oc1..aaaaaaaatestuser/a6:ce:c3:d5:32:a0:3b:27:6d:76:05:81:b6:96:37:a0";

static void test_configuration(void **state) {
    (void)state;
    const char *plain = util_join(the_home, "plain.pem"), *token = util_join(the_home, "token"), *other = util_join(the_home, "other");
    util_write_text(plain, text_of(generated, "pem_pkcs1"));
    util_write_text(token, "\n");
    settles(NULL, NULL, id_of_sample, "us-ashburn-1");
    settles("", "", id_of_sample, "us-ashburn-1");              // as good as none
    // Another file, profiles that inherit, keys in capitals, ':' for '='.
    util_write_text(other, util_fmt("# x\n[DEFAULT]\nUSER: u1\ntenancy = t1\nregion=fra\nKey_File=%s\nfingerprint=%s\n; y\n[TWO]\nuser=u2\nregion=\n",
                                    plain, text_of(generated, "fingerprint_md5")));
    const char *fp = text_of(generated, "fingerprint_md5");
    settles("TWO", other, util_fmt("t1/u2/%s", fp), "fra");
    settles(NULL, other, util_fmt("t1/u1/%s", fp), "fra");
    setenv("OCI_CONFIG_FILE", other, 1);
    settles(NULL, NULL, util_fmt("t1/u1/%s", fp), "fra");
    setenv("OCI_CLI_PROFILE", "TWO", 1);
    setenv("OCI_CLI_REGION", "phx", 1);
    settles(NULL, NULL, util_fmt("t1/u2/%s", fp), "phx");
    setenv("OCI_CLI_USER", "u3", 1);
    settles(NULL, NULL, util_fmt("t1/u3/%s", fp), "phx");
    settles("TWO", NULL, util_fmt("t1/u2/%s", fp), "fra");      // a profile that the caller names: nobody overrules it
    unsetenv("OCI_CLI_USER");
    unsetenv("OCI_CLI_REGION");
    setenv("OCI_CLI_PROFILE", "NOBODY", 1);
    refuses(CKPT_AUTH, "NOBODY");
    unsetenv("OCI_CLI_PROFILE");
    setenv("OCI_CONFIG_FILE", "/no/such/file", 1);
    refuses(CKPT_AUTH, "OCI_CONFIG_FILE");
    unsetenv("OCI_CONFIG_FILE");
    static const struct { const char *text, *word; } lacking[] = { { "[DEFAULT]\n", "user" }, { "[DEFAULT]\nuser=u\n", "tenancy" },
        { "[DEFAULT]\nuser=u\ntenancy=t\n", "fingerprint" }, { "[DEFAULT]\nuser=u\ntenancy=t\nfingerprint=f\n", "key_file" },
        { "[DEFAULT]\nuser=u\ntenancy=t\nfingerprint=f\nkey_file=/no/key\n", "/no/key" }, { "user=u\n", "line 1" },
        { "[DEFAULT]\nauthentication_type=instance_obo_user\n", "instance_obo_user" }, { "[DEFAULT]\nauthentication_type=resource_principal\n",
          "OCI_RESOURCE_PRINCIPAL_VERSION" }, { "[DEFAULT]\nsecurity_token_file=/no/token\n", "key_file" } };
    for (int i = 0; i < UTIL_COUNT(lacking); i++) {
        write_config(lacking[i].text);
        refuses(i == 6 ? CKPT_UNSUPPORTED : CKPT_AUTH, lacking[i].word);
    }
    write_config(util_fmt("[DEFAULT]\nuser=u\ntenancy=t\nfingerprint=00:11\nkey_file=%s\n", plain));
    refuses(CKPT_AUTH, "another key");
    write_config(util_fmt("[DEFAULT]\nuser=u\"x\ntenancy=t\nfingerprint=%s\nkey_file=%s\n", fp, plain));
    refuses(CKPT_AUTH, "character");
    write_config(util_fmt("[DEFAULT]\nkey_file=%s\nsecurity_token_file=%s\n", plain, token));
    refuses(CKPT_AUTH, "empty");
    util_write_text(token, "very.secret.token\n");
    settles(NULL, NULL, "ST$very.secret.token", "");
    setenv("OCI_REGION", "iad", 1);
    settles(NULL, NULL, "ST$very.secret.token", "iad");
    unsetenv("OCI_REGION");
    // No file: resource principals, else nothing.
    (void)unlink(util_join(the_home, ".oci/config"));
    refuses(CKPT_AUTH, "no OCI credentials");
    setenv("OCI_RESOURCE_PRINCIPAL_VERSION", "1.1", 1);
    refuses(CKPT_UNSUPPORTED, "1.1");
    setenv("OCI_RESOURCE_PRINCIPAL_VERSION", "2.2", 1);
    setenv("OCI_RESOURCE_PRINCIPAL_RPST", token, 1);
    setenv("OCI_RESOURCE_PRINCIPAL_REGION", "uk-london-1", 1);
    refuses(CKPT_AUTH, "private key");
    setenv("OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM", text_of(generated, "pem_traditional_encrypted"), 1);
    setenv("OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM_PASSPHRASE", text_of(generated, "pass_phrase"), 1);
    settles(NULL, NULL, "ST$very.secret.token", "uk-london-1");
    static const char *const names[] = { "VERSION", "RPST", "REGION", "PRIVATE_PEM", "PRIVATE_PEM_PASSPHRASE" };
    for (int i = 0; i < UTIL_COUNT(names); i++) unsetenv(util_fmt("OCI_RESOURCE_PRINCIPAL_%s", names[i]));
    write_sample();
}

// A home that cannot be seen: nobody goes on as the machine, or is told that there is no file.
static void test_configuration_unseen(void **state) {
    (void)state;
    const char *path = util_join(the_home, ".oci"), *aside = util_join(the_home, "aside");
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(symlink(path, path), 0);
    refuses(CKPT_IO, ".oci/config");
    refuses_with("OCI_RESOURCE_PRINCIPAL_VERSION", "2.2", CKPT_IO, ".oci/config");
    refuses_with("OCI_CONFIG_FILE", util_join(path, "other"), CKPT_IO, ".oci/other");
    // Who is the machine, or what it runs, needs no file, unless for the region: another one has other buckets.
    setenv("OCI_CLI_AUTH", "instance_principal", 1);
    refuses(CKPT_IO, ".oci/config");
    setenv("OCI_CLI_REGION", "phx", 1);
    ckpt__auth_oci a;
    is(settle(&a, NULL, NULL), CKPT_OK);
    assert_int_equal(a.kind, CKPT__AUTH_OCI_INSTANCE);
    assert_string_equal(a.region, "phx");
    ckpt__auth_oci_free(&a);
    is(settle(&a, "DEFAULT", NULL), CKPT_IO);                   // one that is named counts
    refuses_with("OCI_CLI_PROFILE", "DEFAULT", CKPT_IO, ".oci/config");
    refuses_with("OCI_CONFIG_FILE", util_join(path, "other"), CKPT_IO, ".oci/other");
    setenv("OCI_CLI_AUTH", "api_key", 1);
    refuses(CKPT_IO, ".oci/config");
    setenv("OCI_CLI_AUTH", "resource_principal", 1);
    refuses(CKPT_AUTH, "OCI_RESOURCE_PRINCIPAL_VERSION");
    unsetenv("OCI_CLI_REGION");
    refuses(CKPT_IO, ".oci/config");
    refuses_with("OCI_CLI_ENDPOINT", "https://example.com", CKPT_AUTH, "OCI_RESOURCE_PRINCIPAL_VERSION");
    unsetenv("OCI_CLI_AUTH");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(aside, path), 0);
    settles(NULL, NULL, id_of_sample, "us-ashburn-1");
}

static ckpt_store *open_at(const char *uri, const char *endpoint, const char *region, const ckpt_allocator *a) {
    ckpt_store_desc d;
    ckpt_store *s = NULL;
    memset(&d, 0, sizeof d);
    memset(&t, 0, sizeof t);
    d.endpoint_url = endpoint;
    d.region = region;
    d.logger.fn = on_log;
    d.stall_timeout_s = t.stall_timeout_s = 5.0;
    if (a != NULL) d.allocator = *a;
    ckpt_err e = ckpt_store_open(&s, uri, &d);
    if (a == NULL) is(e, CKPT_OK);
    else assert_true(e == CKPT_OK || e == CKPT_NOMEM);
    return s;
}

//-- instances ---------------------------------------------------------------------

// A certificate and its key in PEM, and another key.
static char machine_cert[4096], machine_key[4096], another_key[4096];

static EVP_PKEY *new_key(char *pem, size_t cap) {
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_id(EVP_PKEY_RSA, NULL);
    EVP_PKEY *k = NULL;
    BIO *bio = BIO_new(BIO_s_mem());
    assert_true(EVP_PKEY_keygen_init(c) == 1 && EVP_PKEY_CTX_set_rsa_keygen_bits(c, 2048) == 1 && EVP_PKEY_keygen(c, &k) == 1);
    assert_int_equal(PEM_write_bio_PrivateKey(bio, k, NULL, NULL, 0, NULL, NULL), 1);
    pem[BIO_read(bio, pem, (int)cap - 1)] = 0;
    BIO_free(bio);
    EVP_PKEY_CTX_free(c);
    return k;
}

static void new_certificate(char *pem, size_t cap, const char *unit) {
    EVP_PKEY *k = new_key(machine_key, sizeof machine_key);
    X509 *x = X509_new();
    BIO *bio = BIO_new(BIO_s_mem());
    X509_NAME *name = X509_get_subject_name(x);
    assert_int_equal(X509_NAME_add_entry_by_txt(name, "OU", MBSTRING_ASC, (const unsigned char *)"opc-certtype:instance", -1, -1, 0), 1);
    assert_int_equal(X509_NAME_add_entry_by_txt(name, "OU", MBSTRING_ASC, (const unsigned char *)unit, -1, -1, 0), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_issuer_name(x, name);
    assert_true(X509_set_pubkey(x, k) == 1 && X509_sign(x, k, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_bio_X509(bio, x), 1);
    pem[BIO_read(bio, pem, (int)cap - 1)] = 0;
    BIO_free(bio);
    X509_free(x);
    EVP_PKEY_free(k);
}

// {"token"} of which the end is so many seconds from now.
static const char *token_reply(int seconds) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    const char *claims = util_fmt("{\"exp\":%ld}", (long)time(NULL) + seconds);
    ckpt__txt_add_base64(&b, claims, strlen(claims));
    const char *text = util_fmt("{\"token\":\"very.%.*s.secret.token\"}", (int)strcspn(ckpt__buf_cstr(&b), "="), b.data);
    ckpt__buf_free(&b);
    return text;
}

// An instance's store, in a region of its own unless it has an endpoint.
static ckpt_store *open_instance(const char *endpoint, const ckpt_allocator *a) {
    setenv("OCI_CLI_AUTH", "instance_principal", 1);
    setenv("OCI_METADATA_BASE_URL", util_fmt("%s/opc/v2/", server.url), 1);
    setenv("OCI_SDK_AUTH_CLIENT_REGION_URL", server.url, 1);
    setenv("HOME", "/nowhere", 1);
    return open_at("oci://bucket@space", endpoint, NULL, a);
}

static void close_instance(ckpt_store *s) {
    static const char *const names[] = { "OCI_" };
    script_unset(names, UTIL_COUNT(names));
    setenv("HOME", the_home, 1);
    ckpt_store_close(s);
}

static ckpt_err look(ckpt_store *s) {
    ckpt__store_stat info;
    ckpt__transfer_begin(&t);
    return ckpt__store_run_stat(s, "x", &info, &t);
}

#define HOME { 200, NULL, "{\"regionIdentifier\":\"us-luke-9\",\"realmDomainComponent\":\"oraclegovcloud.com\",\"regionKey\":\"X\"}", 0 }
#define THERE { 200, "ETag: e\r\n", NULL, 5 }

static void test_instance(void **state) {
    (void)state;
    char fingerprint[64];
    unsigned char sum[20];
    unsigned size = 0;
    new_certificate(machine_cert, sizeof machine_cert, "opc-tenant:ocid1.tenancy.oc1..fake");
    EVP_PKEY_free(new_key(another_key, sizeof another_key));
    const char *lasting = token_reply(1200), *ending = token_reply(8), *between = util_fmt("%s%s", machine_cert, machine_cert);
    // Nobody is asked before the first request; then one token signs all, until it is about to end.
    const step steps[] = { HOME, { 200, NULL, machine_cert, 0 }, { 200, NULL, machine_key, 0 }, { 200, NULL, between, 0 }, { 200, NULL, ending, 0 }, THERE,
        THERE };
    script_prepare(steps, UTIL_COUNT(steps));
    ckpt_store *s = open_instance(server.url, NULL);
    assert_int_equal(requests(), 0);
    is(look(s), CKPT_OK);
    is(look(s), CKPT_OK);
    static const char *const paths[] = { "/opc/v2/instance/regionInfo", "/opc/v2/identity/cert.pem", "/opc/v2/identity/key.pem",
        "/opc/v2/identity/intermediate.pem", "/v1/x509", "/n/space/b/bucket/o/x" };
    for (int i = 0; i < UTIL_COUNT(paths); i++) assert_string_equal(script.list[i].target, paths[i]);
    for (int i = 0; i < 4; i++) assert_string_equal(header_of(i, "authorization"), "Bearer Oracle");
    BIO *bio = BIO_new_mem_buf(machine_cert, -1);
    X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    assert_int_equal(X509_digest(x, EVP_sha1(), sum, &size), 1);
    for (int i = 0; i < 20; i++) snprintf(fingerprint + 3 * i, 4, "%02X:", sum[i]);
    fingerprint[59] = 0;
    const char *signs = util_fmt("headers=\"date (request-target) content-length content-type x-content-sha256\",keyId=\"ocid1.tenancy.oc1..fake/fed-x509/%s\"",
                                 fingerprint);
    assert_true(has(header_of(4, "authorization"), signs));
    // The certificates are in the body as their PEM has them, without its lines.
    char plain[4096];
    size_t n = 0;
    for (const char *line = strchr(machine_cert, '\n') + 1; line[0] != '-'; line = strchr(line, '\n') + 1) {
        memcpy(plain + n, line, strcspn(line, "\n"));
        n += strcspn(line, "\n");
    }
    plain[n] = 0;
    assert_true(has(script.list[4].body, util_fmt("{\"certificate\":\"%s\",\"publicKey\":\"", plain)));
    assert_true(has(script.list[4].body, util_fmt(",\"intermediateCertificates\":[\"%s\",\"%s\"]}", plain, plain)));
    X509_free(x);
    BIO_free(bio);
    assert_true(has(header_of(5, "authorization"), "keyId=\"ST$very."));
    assert_true(has(header_of(5, "authorization"), "headers=\"date (request-target) host\""));
    // Renewal: a token that still lasts does while the services are down, and 10 seconds on; another one signs afterwards.
    ckpt__auth_oci *a = &ckpt__oci_of(s)->auth;
    const step down[] = { { 503, NULL, "", 0 }, THERE, THERE };
    script_prepare(down, UTIL_COUNT(down));
    a->early = 10.0;
    is(look(s), CKPT_OK);
    assert_true(has(the_log, "was not renewed"));
    is(look(s), CKPT_OK);
    assert_int_equal(requests(), 3);
    const step again[] = { { 200, NULL, machine_cert, 0 }, { 200, NULL, machine_key, 0 }, { 200, NULL, machine_cert, 0 }, { 200, NULL, lasting, 0 }, THERE };
    script_prepare(again, UTIL_COUNT(again));
    a->again = 0.0;
    is(look(s), CKPT_OK);
    assert_true(a->early == 120.0 && a->version == 2);
    // One that is refused is had anew, once.
    const char *other = token_reply(1300);
    const step refused[] = { { 401, NULL, "{\"code\":\"NotAuthenticated\"}", 0 }, { 200, NULL, machine_cert, 0 }, { 200, NULL, machine_key, 0 },
        { 200, NULL, machine_cert, 0 }, { 200, NULL, other, 0 }, THERE };
    script_prepare(refused, UTIL_COUNT(refused));
    is(look(s), CKPT_OK);
    assert_int_equal(requests(), UTIL_COUNT(refused));
    close_instance(s);
    // Without an endpoint the machine's region is where the store is.
    const step home[] = { HOME, { 200, NULL, machine_cert, 0 }, { 200, NULL, machine_key, 0 }, { 200, NULL, machine_cert, 0 }, { 200, NULL, lasting, 0 } };
    script_prepare(home, UTIL_COUNT(home));
    s = open_instance(NULL, NULL);
    ckpt__oci_call c;
    memset(&c, 0, sizeof c);
    c.store = s;
    c.o = ckpt__oci_of(s);
    c.t = &t;
    assert_null(c.o->host);
    is(ckpt__oci_find_host(&c), CKPT_OK);
    is(ckpt__oci_find_host(&c), CKPT_OK);
    assert_string_equal(c.o->host, "objectstorage.us-luke-9.oraclegovcloud.com");
    unsetenv("OCI_SDK_AUTH_CLIENT_REGION_URL");
    ckpt__buf url;
    const char *target;
    ckpt__buf_init(&url, NULL);
    is(ckpt__auth_oci_federation(&c.o->auth, &url, &target), CKPT_OK);
    assert_string_equal(url.data, "https://auth.us-luke-9.oraclegovcloud.com/v1/x509");
    assert_string_equal(target, "/v1/x509");
    ckpt__buf_free(&url);
    close_instance(s);
    assert_false(leaked);
}

// What a metadata service, or somebody in its place, may answer.
static void test_instance_hostile(void **state) {
    (void)state;
    char nobody[4096];
    new_certificate(nobody, sizeof nobody, "opc-tenant:a b");
    new_certificate(machine_cert, sizeof machine_cert, "opc-identity:t");
    char *huge = (char *)malloc(70001);
    memset(huge, 'a', 70000);
    huge[70000] = 0;
    const step home = HOME, cert = { 200, NULL, machine_cert, 0 }, key = { 200, NULL, machine_key, 0 };
    const struct { int at; step bad; ckpt_err e; bool again; const char *word; } rows[] = {
        { 0, { 200, NULL, "{}", 0 }, CKPT_AUTH, false, "region" }, { 0, { 200, NULL, "us-ashburn-1", 0 }, CKPT_AUTH, false, "region" },
        { 0, { 200, NULL, "{\"regionIdentifier\":\"a/b\",\"realmDomainComponent\":\"x\"}", 0 }, CKPT_AUTH, false, "region" },
        { 0, { 200, NULL, "{\"regionIdentifier\":\"a\",\"realmDomainComponent\":\"x@evil\"}", 0 }, CKPT_AUTH, false, "region" },
        { 0, { 404, NULL, "no", 0 }, CKPT_AUTH, false, "404" }, { 0, { 500, NULL, "no", 0 }, CKPT_NET, true, "500" },
        { 0, { 0, NULL, NULL, 0 }, CKPT_NET, true, "metadata service" }, { 0, { 200, NULL, huge, 0 }, CKPT_NET, true, "longer than" },
        { 0, { 302, "Location: http://127.0.0.1:1/\r\n", "", 0 }, CKPT_AUTH, false, "302" },
        { 1, { 200, NULL, "", 0 }, CKPT_AUTH, false, "PEM" }, { 1, { 200, NULL, "a\0b", 3 }, CKPT_AUTH, false, "no text" },
        { 1, { 200, NULL, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0 }, CKPT_AUTH, false, "PEM" },
        { 2, { 200, NULL, machine_cert, 0 }, CKPT_AUTH, false, "private key" }, { 2, { 200, NULL, another_key, 0 }, CKPT_AUTH, true, "belong together" },
        { 3, { 503, NULL, "", 0 }, CKPT_NET, true, "503" },
        { 4, { 401, NULL, "{\"code\":\"NotAuthenticated\",\"message\":\"who is very.secret.token-and-what-not-else\"}", 0 }, CKPT_AUTH, false,
            "NotAuthenticated: who is ..." },
        { 4, { 429, NULL, "", 0 }, CKPT_NET, true, "429" }, { 4, { 200, NULL, "<html>", 0 }, CKPT_AUTH, false, "holds none" },
        { 4, { 200, NULL, "{\"token\":\"\"}", 0 }, CKPT_AUTH, false, "holds none" },
        { 4, { 200, NULL, "{\"token\":\"a\\\"b\"}", 0 }, CKPT_AUTH, false, "holds none" },
        { 4, { 200, NULL, "{\"token\":\"a\\u0000b\"}", 0 }, CKPT_AUTH, false, "holds none" }, { 4, { 200, NULL, huge, 0 }, CKPT_NET, true, "longer than" },
    };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        step steps[5] = { home, cert, key, cert, { 200, NULL, "{\"token\":\"a.b.c\"}", 0 } };
        steps[rows[i].at] = rows[i].bad;
        script_prepare(steps, rows[i].at + 1);
        ckpt_store *s = open_instance(server.url, NULL);
        ckpt_err e = look(s);
        if (e != rows[i].e || t.transient != rows[i].again || !has(ckpt_last_error(), rows[i].word))
            fail_msg("%d: %s%s %s", i, ckpt_err_name(e), t.transient ? ", again:" : ":", ckpt_last_error());
        if (requests() > script.count) fail_msg("%d: %d requests", i, requests());
        leaked = leaked || is_secret(ckpt_last_error());
        close_instance(s);
    }
    const step steps[] = { home, { 200, NULL, nobody, 0 } };
    char mine[4096];
    new_certificate(nobody, sizeof nobody, "opc-tenant:a b");
    (void)snprintf(mine, sizeof mine, "%s", machine_key);
    const step unnamed[] = { steps[0], steps[1], { 200, NULL, mine, 0 } };
    script_prepare(unnamed, UTIL_COUNT(unnamed));
    ckpt_store *s = open_instance(server.url, NULL);
    is(look(s), CKPT_AUTH);
    sentence_has("tenancy");
    close_instance(s);
    free(huge);
    assert_false(leaked);
}

static void test_instance_no_memory(void **state) {
    (void)state;
    new_certificate(machine_cert, sizeof machine_cert, "opc-tenant:t");
    const char *token = token_reply(1200);
    const step steps[] = { HOME, { 200, NULL, machine_cert, 0 }, { 200, NULL, machine_key, 0 }, { 200, NULL, machine_cert, 0 }, { 200, NULL, token, 0 }, THERE };
    int wins = 0;
    for (int at = 1; at < 1000 && wins == 0; at++) {
        counting k = { 0, 0, at };
        ckpt_allocator al = { counting_fn, &k };
        if (at % 100 == 0) { net_stop(&server); net_start(&server, on_request, NULL); }
        script_prepare(steps, UTIL_COUNT(steps));
        ckpt_store *s = open_instance(server.url, &al);
        ckpt_err e = s != NULL ? look(s) : CKPT_NOMEM;
        close_instance(s);
        if (e == CKPT_OK && k.calls < at) wins++;
        else if (e != CKPT_NOMEM && e != CKPT_OK) fail_msg("allocation %d: %s: %s", at, ckpt_err_name(e), ckpt_last_error());
        if (k.live != 0) fail_msg("allocation %d: %d blocks are left", at, k.live);
    }
    assert_int_equal(wins, 1);
}

static ckpt__os_flag cancelled;

// Cancels as the certificate is asked for a second time.
static void on_renewal(net_request *r, void *user) {
    if (requests() == 6) ckpt__os_flag_set(&cancelled, 1);
    on_request(r, user);
}

// What is cancelled while a token that was refused is had anew was not refused.
static void test_instance_cancelled(void **state) {
    (void)state;
    ckpt__store_stat info;
    new_certificate(machine_cert, sizeof machine_cert, "opc-tenant:t");
    const char *token = token_reply(1200);
    const step cert = { 200, NULL, machine_cert, 0 }, key = { 200, NULL, machine_key, 0 };
    const step steps[] = { HOME, cert, key, cert, { 200, NULL, token, 0 }, { 401, NULL, "{\"code\":\"NotAuthenticated\"}", 0 }, cert, key, cert };
    script_prepare(steps, UTIL_COUNT(steps));
    net_stop(&server);
    net_start(&server, on_renewal, NULL);
    ckpt_store *s = open_instance(server.url, NULL);
    ckpt__transfer_begin(&t);
    t.cancel = &cancelled;
    is(ckpt__store_run_stat(s, "x", &info, &t), CKPT_CANCELLED);
    t.cancel = NULL;
    close_instance(s);
    net_stop(&server);
    net_start(&server, on_request, NULL);
}

// An endpoint is there in both its halves, or not at all: the next request finds it.
static void test_endpoint_no_memory(void **state) {
    (void)state;
    bool tls = false, well = false;
    for (int at = 1; at < 50 && !well; at++) {
        counting c = { 0, 0, at };
        ckpt_allocator a = { counting_fn, &c };
        char *host = NULL, *base = NULL;
        ckpt_err e = ckpt__web_split_endpoint("https://host/base", &tls, &host, &base, &a);
        well = e == CKPT_OK && c.calls < at;
        if (e != CKPT_OK && (e != CKPT_NOMEM || host != NULL || base != NULL)) fail_msg("allocation %d: %s", at, ckpt_err_name(e));
        if (e == CKPT_OK) assert_true(host != NULL && base != NULL);
        ckpt__mem_free_text(&a, host);
        ckpt__mem_free_text(&a, base);
        assert_int_equal(c.live, 0);
    }
    assert_true(well);
}

// What stands behind an endpoint that is none may be a signature.
static void test_endpoint_shown(void **state) {
    (void)state;
    static const char *const rows[][2] = { { "https://host/p?sig=SECRET", "'https://host/p?...' is not" }, { "http://host#SECRET", "'http://host#...' is not" },
                                           { "http://ho st", "'http://ho st' is not" } };
    ckpt_allocator a = { NULL, NULL };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        bool tls = false;
        char *host = NULL, *base = NULL;
        is(ckpt__web_split_endpoint(rows[i][0], &tls, &host, &base, &a), CKPT_ARG);
        if (strstr(ckpt_last_error(), rows[i][1]) == NULL) fail_msg("%s", ckpt_last_error());
    }
}

static void test_expiry(void **state) {
    (void)state;
    ckpt_allocator none = { NULL, NULL };
    assert_true(ckpt__auth_oci_expiry("eyJhIjoxfQ.eyJleHAiOjE3MDAwMDAwMDB9.x", &none) == 1700000000.0);
    assert_true(ckpt__auth_oci_expiry("eyJhIjoxfQ.eyJleHAiOiIxIn0.x", &none) == 0.0);
    static const char *const odd[] = { "", ".", "..", "a.b", "a.****.c", "no token", "x.eyJleHAi.y", "x.bnVsbA.y" };
    for (int i = 0; i < UTIL_COUNT(odd); i++) assert_true(ckpt__auth_oci_expiry(odd[i], &none) == 0.0);
}

//-- addresses ---------------------------------------------------------------------

static ckpt_store *meet(const step *steps, int count) {
    script_prepare(steps, count);
    return open_at("oci://bucket@space/pre", server.url, NULL, NULL);
}
#define MEET(steps) meet(steps, UTIL_COUNT(steps))

static void test_addresses(void **state) {
    (void)state;
    static const struct { const char *region, *endpoint, *host, *base; bool tls; } rows[] = {
        { NULL, NULL, "objectstorage.us-ashburn-1.oraclecloud.com", "", true },
        { "phx", NULL, "objectstorage.us-phoenix-1.oraclecloud.com", "", true },
        { "FRA", NULL, "objectstorage.eu-frankfurt-1.oraclecloud.com", "", true },
        { "us-gov-phoenix-1", NULL, "objectstorage.us-gov-phoenix-1.oraclegovcloud.com", "", true },
        { "ltn", NULL, "objectstorage.uk-gov-london-1.oraclegovcloud.uk", "", true },
        { "eu-madrid-2", NULL, "objectstorage.eu-madrid-2.oraclecloud.eu", "", true },
        { "ap-chiyoda-1", NULL, "objectstorage.ap-chiyoda-1.oraclecloud8.com", "", true },
        { "xx-new-9", NULL, "objectstorage.xx-new-9.oraclecloud.com", "", true },
        { NULL, "https://Space.objectstorage.iad.oci.customer-oci.com:443/", "space.objectstorage.iad.oci.customer-oci.com", "", true },
        { NULL, "http://127.0.0.1:7880/a b", "127.0.0.1:7880", "/a%20b", false }, { NULL, "http://[::1]:80", "[::1]", "", false } };
    for (int i = 0; i < UTIL_COUNT(rows); i++) {
        ckpt_store *s = open_at("oci://bucket", rows[i].endpoint, rows[i].region, NULL);
        assert_string_equal(ckpt__oci_of(s)->host, rows[i].host);
        assert_string_equal(ckpt__oci_of(s)->base, rows[i].base);
        assert_int_equal(ckpt__oci_of(s)->tls, rows[i].tls);
        assert_true(s->creates_only && s->min_part == 10 << 20 && s->max_parts == 10000 && s->max_single == (uint64_t)50 << 30);
        ckpt_store_close(s);
    }
    util_table uris = cases_tsv("object_uri.tsv");
    int found = 0;
    for (int i = 0; i < uris.rows; i++) {
        if (strcmp(cases_text(&uris, i, uris.names[0]), "oci") != 0) continue;
        ckpt_store *s = open_at(util_fmt("oci://%s", strchr(cases_text(&uris, i, "args"), '=') + 1), NULL, "us-ashburn-1", NULL);
        ckpt__buf out;
        ckpt__buf_init(&out, NULL);
        ckpt__stores_add_uri(&out, s, cases_text(&uris, i, "object_name"));
        assert_string_equal(ckpt__buf_cstr(&out), cases_text(&uris, i, "uri"));
        ckpt__buf_free(&out);
        ckpt_store_close(s);
        found++;
    }
    assert_int_equal(found, 1);
    static const struct { const char *uri, *endpoint, *word; } bad[] = { { "oci://", NULL, "bucket" }, { "oci:///x", NULL, "bucket" },
        { "oci://b@", NULL, "namespace" }, { "oci://b@n@m", NULL, "namespace" }, { "oci://user:topsecret@n", NULL, "bucket" },
        { "oci://b%20", NULL, "bucket" }, { "oci://b", "ftp://x", "http" }, { "oci://b", "http://u:topsecret@h", "password" },
        { "oci://b", "http://h:99999", "endpoint" }, { "oci://b", "http://h?x", "endpoint" }, { "oci://b", "http://", "endpoint" },
        { "oci://b", "http://[::1", "endpoint" }, { "oci://b/\xff", NULL, "UTF-8" }, { "oci://b/a\nb", NULL, "line break" } };
    for (int i = 0; i < UTIL_COUNT(bad); i++) {
        ckpt_store_desc d;
        ckpt_store *s = NULL;
        memset(&d, 0, sizeof d);
        d.endpoint_url = bad[i].endpoint;
        is(ckpt_store_open(&s, bad[i].uri, &d), CKPT_ARG);
        sentence_has(bad[i].word);
        assert_false(has(ckpt_last_error(), "topsecret"));
    }
    // Names: '/' stays but where a level might be resolved on the way.
    static const struct { const char *prefix, *name, *path; } names[] = { { "", "run 1/ep0/x", "run%201/ep0/x" }, { "p/", "a+b&c?", "p/a%2Bb%26c%3F" },
        { "", "a/../b", "a%2F..%2Fb" }, { "p/", "./b", "p%2F.%2Fb" }, { "", "a//b", "a%2F%2Fb" }, { "", "a/", "a%2F" }, { "", ".", "%2E" },
        { "", "..", "%2E%2E" }, { "", "...", "..." }, { "", "\xc3\xbc", "%C3%BC" } };
    for (int i = 0; i < UTIL_COUNT(names); i++) {
        ckpt_store *s = open_at(util_fmt("oci://bucket/%s", names[i].prefix), NULL, NULL, NULL);
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        ckpt__oci_add_name(ckpt__oci_of(s), &b, names[i].name);
        assert_string_equal(ckpt__buf_cstr(&b), names[i].path);
        ckpt__buf_free(&b);
        ckpt_store_close(s);
    }
}

//-- what is sent ------------------------------------------------------------------

static ckpt_err put(ckpt_store *s, const char *name, bool overwrite, const char *mark) {
    ckpt__body b = body_of("hello oci");
    ckpt__store_put p;
    memset(&p, 0, sizeof p);
    p.name = name;
    p.body = &b;
    p.overwrite = overwrite;
    p.mark = mark;
    p.has_crc = true;
    p.crc = ckpt__digest_crc32(0, "hello oci", 9);
    p.t = &t;
    ckpt__transfer_begin(&t);
    return s->table->put(s, &p);
}

// The MD5 that the server would send back for "hello oci".
static const char *md5_line(void) {
    ckpt__buf b;
    unsigned char sum[16];
    ckpt__digest d;
    assert_true(ckpt__digest_begin(&d, CKPT__DIGEST_MD5));
    ckpt__digest_add(&d, "hello oci", 9);
    assert_true(ckpt__digest_end(&d, sum));
    ckpt__buf_init(&b, NULL);
    ckpt__txt_add_base64(&b, sum, sizeof sum);
    const char *line = util_fmt("ETag: e-1\r\nopc-content-md5: %s\r\n", ckpt__buf_cstr(&b));
    ckpt__buf_free(&b);
    return line;
}

static void test_requests(void **state) {
    (void)state;
    step steps[] = { { 200, NULL, "\"space\"", 0 }, { 200, md5_line(), NULL, 0 }, { 200, NULL, "{\"uploadId\":\"u&1\"}", 0 }, { 200, md5_line(), NULL, 0 },
                     { 204, NULL, NULL, 0 } };
    script_prepare(steps, UTIL_COUNT(steps));
    ckpt_store *s = open_at("oci://bucket/pre", server.url, NULL, NULL);
    is(put(s, "a b", false, "mark1"), CKPT_OK);
    assert_string_equal(script.list[0].target, "/n");
    assert_string_equal(script.list[1].target, "/n/space/b/bucket/o/pre/a%20b");
    assert_string_equal(header_of(1, "if-none-match"), "*");
    assert_string_equal(header_of(1, "opc-meta-ckpt-mark"), "mark1");
    assert_string_equal(header_of(1, "opc-meta-ckpt-crc32"), util_fmt("%08lx", (unsigned long)ckpt__digest_crc32(0, "hello oci", 9)));
    assert_string_equal(header_of(1, "x-content-sha256"), "");          // bodies of objects are not signed
    assert_true(has(header_of(1, "authorization"), "headers=\"date (request-target) host\""));
    assert_true(has(header_of(1, "authorization"), id_of_sample));
    ckpt__store_multi m;
    ckpt__buf id;
    ckpt__store_part part;
    ckpt__body b = body_of("hello oci");
    memset(&m, 0, sizeof m);
    memset(&part, 0, sizeof part);
    ckpt__buf_init(&id, NULL);
    m.name = "q\"uote";
    m.mark = "mark2";
    m.overwrite = true;
    m.has_crc = true;
    m.crc = 0xabc;
    m.t = &t;
    is(s->table->begin(s, &m, &id), CKPT_OK);
    assert_string_equal(script.list[2].target, "/n/space/b/bucket/u");
    assert_string_equal(script.list[2].body, "{\"object\":\"pre/q\\\"uote\",\"contentType\":\"application/octet-stream\",\"metadata\":"
                        "{\"opc-meta-ckpt-mark\":\"mark2\",\"opc-meta-ckpt-crc32\":\"00000abc\"}}");
    assert_true(has(header_of(2, "authorization"), "headers=\"date (request-target) host content-length content-type x-content-sha256\""));
    m.upload_id = ckpt__buf_cstr(&id);
    part.number = 3;
    is(s->table->part(s, &m, &b, &part), CKPT_OK);
    assert_string_equal(script.list[3].target, "/n/space/b/bucket/u/pre/q%22uote?uploadId=u%261&uploadPartNum=3");
    assert_true(has(part.etag, "e-1 ") && part.size == 9 && part.has_crc);
    is(s->table->abort(s, &m), CKPT_OK);
    assert_string_equal(script.list[4].method, "DELETE");
    ckpt__buf_free(&id);
    ckpt_store_close(s);
    s = open_at("oci://bucket", server.url, NULL, NULL);
    is(put(s, "a\nb", true, NULL), CKPT_ARG);
    is(put(s, "a\xff", true, NULL), CKPT_ARG);
    is(put(s, util_fmt("%01025d", 1), true, NULL), CKPT_ARG);
    ckpt_store_close(s);
}

// The rule of opc-multipart-md5, by the known answers.
static void test_sum_of_parts(void **state) {
    (void)state;
    ckpt__store_part parts[3];
    ckpt__store_multi m;
    ckpt__buf out;
    unsigned char *p = (unsigned char *)util_keep(malloc(250000), false);
    for (size_t i = 0; i < 250000; i++) p[i] = (unsigned char)((i * 31 + 7) % 256);
    memset(&m, 0, sizeof m);
    memset(parts, 0, sizeof parts);
    ckpt__buf_init(&out, NULL);
    m.parts = parts;
    m.part_count = 3;
    for (size_t i = 0; i < 3; i++) {
        ckpt__digest d;
        unsigned char sum[16];
        assert_true(ckpt__digest_begin(&d, CKPT__DIGEST_MD5));
        ckpt__digest_add(&d, p + i * 100000, i < 2 ? 100000 : 50000);
        assert_true(ckpt__digest_end(&d, sum));
        out.len = 0;
        ckpt__txt_add_base64(&out, sum, sizeof sum);
        assert_true(ckpt__oci_part_tag(parts[i].etag, sizeof parts[i].etag, "tag", ckpt__buf_cstr(&out)));
    }
    assert_true(ckpt__oci_sum_parts(&out, &m));
    assert_string_equal(out.data, "VB5no7oGVA1OPUiDsnjBBA==-3");
    snprintf(parts[1].etag, sizeof parts[1].etag, "tag");
    assert_false(ckpt__oci_sum_parts(&out, &m));
    snprintf(parts[1].etag, sizeof parts[1].etag, "tag AAAA");
    assert_false(ckpt__oci_sum_parts(&out, &m));
    ckpt__buf_free(&out);
}

//-- composer's tables -------------------------------------------------------------

static ckpt_err stat_it(ckpt_store *s) {
    ckpt__store_stat there;
    ckpt__transfer_begin(&t);
    return s->table->stat(s, "name", &there, &t);
}

static ckpt_err get_it(ckpt_store *s, const char *etag, uint64_t at, char *out, uint64_t size) {
    ckpt__sink k;
    memset(&k, 0, sizeof k);
    k.memory = out;
    k.fd = -1;
    k.size = size;
    ckpt__transfer_begin(&t);
    return s->table->get(s, "name", etag, at, &k, &t);
}

static ckpt_err note(const char *name, uint64_t size, void *user) {
    ckpt__buf *b = (ckpt__buf *)user;
    (void)size;
    ckpt__buf_fmt(b, "%s%s", b->len > 0 ? " " : "", name);
    return b->err;
}

static ckpt_err list_it(ckpt_store *s, const char *prefix, ckpt__buf *out) {
    ckpt__transfer_begin(&t);
    return s->table->list(s, prefix, note, out, &t);
}

static void test_errors(void **state) {
    (void)state;
    util_table rows = cases_tsv("oci_errors.tsv");
    int tried = 0;
    for (int i = 0; i < rows.rows; i++) {
        const char *op = cases_text(&rows, i, "operation"), *code = cases_get(&rows, i, "error_code"), *to = cases_text(&rows, i, "mapped_to");
        int status = cases_get(&rows, i, "http_status") != NULL ? (int)cases_int(&rows, i, "http_status") : 0;
        if (status == 0) continue;                              // is about files, or about an exception of Oracle's SDK
        step one[] = { { status, "opc-request-id: abc/def\r\n", util_fmt("{\"code\":\"%s\",\"message\":\"no\"}", code != NULL ? code : ""), 0 } };
        ckpt_store *s = MEET(one);
        ckpt__buf names;
        char out[4];
        ckpt__buf_init(&names, NULL);
        ckpt_err e = strcmp(op, "upload") == 0 ? put(s, "x", true, NULL) : strcmp(op, "list") == 0 ? list_it(s, "", &names) :
                     strcmp(op, "size") == 0 ? stat_it(s) : get_it(s, NULL, 0, out, 4);
        if (strcmp(to, "unchanged") == 0) { is(e, CKPT_NET); assert_true(t.transient); }
        else is(e, CKPT_NOT_FOUND);
        if (strcmp(to, "ValueError") == 0 && strcmp(op, "size") != 0) sentence_has("no bucket 'bucket'");
        if (strcmp(to, "FileNotFoundError") == 0) sentence_has("no such object");
        sentence_has("abc/def");
        ckpt__buf_free(&names);
        ckpt_store_close(s);
        tried++;
    }
    assert_int_equal(tried, 8);
}

// Composer's split, as a reference: the store gives exactly these ranges.
static void test_ranges(void **state) {
    (void)state;
    util_table rows = cases_tsv("oci_download_ranges.tsv");
    for (int i = 0; i < rows.rows; i++) {
        uint64_t size = (uint64_t)cases_int(&rows, i, "object_size"), least = (uint64_t)cases_int(&rows, i, "min_part_size");
        uint64_t count = size / least, most = (uint64_t)cases_int(&rows, i, "num_parts"), at = 0;
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        count = count < 1 ? 1 : count > most ? most : count;
        for (uint64_t k = 0; k < count; k++) {
            uint64_t n = size / count + (k < size % count ? 1 : 0);
            if (n > 0) ckpt__buf_fmt(&b, "%s%llu-%llu", at > 0 ? " " : "", (unsigned long long)at, (unsigned long long)(at + n - 1));
            if (n > 0) {
                const char *range = util_fmt("bytes %llu-%llu/%llu", (unsigned long long)at, (unsigned long long)(at + n - 1), (unsigned long long)size);
                ckpt__sink sink;
                memset(&sink, 0, sizeof sink);
                sink.size = n;
                sink.whole = size;
                assert_true(ckpt__web_is_range(range, at, &sink));
                sink.whole++;
                assert_false(ckpt__web_is_range(range, at, &sink));     // it is longer by now
                sink.whole = 0;
                assert_true(ckpt__web_is_range(range, at, &sink));
                sink.size++;
                assert_false(ckpt__web_is_range(range, at, &sink));
            }
            at += n;
        }
        assert_string_equal(ckpt__buf_cstr(&b), cases_text(&rows, i, "ranges"));
        assert_int_equal(at, size);
        ckpt__buf_free(&b);
    }
}

static void test_list(void **state) {
    (void)state;
    util_table rows = cases_tsv("oci_list.tsv");
    static const step steps[] = { { 200, NULL, "{\"objects\":[{\"name\":\"my_prefix/my_object\",\"size\":1}],\"nextStartWith\":\"my_prefix/z\"}", 0 },
                                  { 200, NULL, "{\"objects\":[],\"nextStartWith\":\"my_prefix/zz\"}", 0 },
                                  { 200, NULL, "{\"objects\":[{\"name\":\"my_prefix/another_object\",\"size\":2,\"etag\":null}],\"prefixes\":[]}", 0 } };
    for (int i = 1; i < rows.rows; i++) {
        script_prepare(steps, UTIL_COUNT(steps));
        ckpt_store *s = open_at("oci://bucket@space", server.url, NULL, NULL);
        ckpt__buf b;
        ckpt__buf_init(&b, NULL);
        const char *prefix = cases_text(&rows, i, "prefix");
        is(list_it(s, prefix, &b), CKPT_OK);
        assert_string_equal(ckpt__buf_cstr(&b), "my_prefix/my_object my_prefix/another_object");
        assert_true(has(script.list[0].target, util_fmt("&prefix=my_prefix%s", strlen(prefix) > 9 ? "%2F" : "")));
        assert_true(has(script.list[1].target, "&start=my_prefix%2Fz"));
        ckpt__buf_free(&b);
        ckpt_store_close(s);
    }
}

//-- what it makes of replies ------------------------------------------------------

#define STAT_REPLY "ETag: e\r\nopc-meta-ckpt-mark: mark1\r\nopc-meta-ckpt-crc32: 0000beef\r\nLast-Modified: Fri, 20 Nov 2026 23:57:40 GMT\r\n"

static void test_replies(void **state) {
    (void)state;
    ckpt__store_stat there;
    static const step found[] = { { 200, STAT_REPLY, "123456789", 9 } };
    ckpt_store *s = MEET(found);
    is(s->table->stat(s, "name", &there, &t), CKPT_OK);
    assert_true(there.size == 9 && there.has_crc && there.crc == 0xbeef && there.modified > 1.7e9);
    assert_string_equal(there.mark, "mark1");
    ckpt_store_close(s);
    // "Not found" is Oracle's word where it has a number or a reason.
    static const step strange[] = { { 404, NULL, NULL, 0 }, { 404, "Server: envoy\r\n", NULL, 0 }, { 404, "Server: nginx\r\n", "<html>Not Found</html>", 0 } };
    s = MEET(strange);
    is(s->table->stat(s, "name", &there, &t), CKPT_NOT_FOUND);
    is(s->table->stat(s, "name", &there, &t), CKPT_NET);
    assert_true(t.transient);
    sentence_has("no answer of Oracle's: is the server behind 127.0.0.1");
    is(s->table->remove(s, "name", &t), CKPT_NET);
    assert_true(t.transient);
    ckpt_store_close(s);
    // A portal answers all with 200 and a page.
    #define LOGIN { 200, "Content-Type: text/html; charset=utf-8\r\nServer: portal\r\n", "<html>Log in</html>", 0 }
    static const step portal[] = { LOGIN, LOGIN, LOGIN };
    char page[32];
    s = MEET(portal);
    is(s->table->stat(s, "name", &there, &t), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    is(get_it(s, NULL, 0, page, 19), CKPT_NET);
    assert_true(t.transient);
    sentence_has("web page");
    is(s->table->remove(s, "name", &t), CKPT_NET);
    assert_true(t.transient);
    ckpt_store_close(s);
    // Throttling says when.
    static const step busy[] = { { 429, "Retry-After: 7\r\n", "{\"code\":\"TooManyRequests\",\"message\":\"slow\"}", 0 }, { 503, "Retry-After: 9\r\n", NULL, 0 },
                                 { 500, NULL, "<html>", 0 }, { 409, NULL, "{\"code\":\"IncorrectState\"}", 0 }, { 409, NULL, "{\"code\":\"x\"}", 0 },
                                 { 301, "Location: http://evil.test/\r\n", NULL, 0 }, { 400, NULL, "{\"code\":\"UnmatchedContentMD5\"}", 0 },
        { 0, NULL, NULL, 0 }, { 0, NULL, NULL, 0 } };  // libcurl repeats one
    s = MEET(busy);
    is(put(s, "x", true, NULL), CKPT_NET);
    assert_true(t.transient && t.throttled && t.retry_after == 7.0);
    is(put(s, "x", true, NULL), CKPT_NET);
    assert_true(t.transient && t.throttled && t.retry_after == 9.0);
    is(put(s, "x", true, NULL), CKPT_NET);
    assert_true(t.transient && !t.throttled);
    is(put(s, "x", true, NULL), CKPT_NET);
    assert_true(t.transient);
    is(put(s, "x", true, NULL), CKPT_NET);
    assert_false(t.transient);
    is(put(s, "x", true, NULL), CKPT_NET);
    sentence_has("not followed");
    assert_false(t.transient);
    is(put(s, "x", true, NULL), CKPT_CORRUPT);
    assert_true(t.transient);
    is(put(s, "x", true, NULL), CKPT_NET);
    assert_true(t.transient && t.unsure);
    ckpt_store_close(s);
    // A lost reply is recognised by the mark.
    static const step lost[] = { { 412, NULL, "{\"code\":\"IfNoneMatchFailed\"}", 0 }, { 200, STAT_REPLY, "123456789", 9 },
                                 { 412, NULL, NULL, 0 }, { 200, STAT_REPLY, "123456789", 9 }, { 412, NULL, NULL, 0 }, { 404, NULL, NULL, 0 } };
    s = MEET(lost);
    is(put(s, "x", false, "mark1"), CKPT_OK);
    is(put(s, "x", false, "mark2"), CKPT_EXISTS);
    is(put(s, "x", false, "mark1"), CKPT_EXISTS);
    ckpt_store_close(s);
    // Also when it could not be looked at at once; so it is with one in parts, whose begin is refused.
    static const step unseen[] = { { 500, NULL, NULL, 0 }, { 412, NULL, NULL, 0 }, { 503, NULL, NULL, 0 }, { 200, STAT_REPLY, "123456789", 9 } };
    s = MEET(unseen);
    is(send_by(s, "x", "123456789", 9, 0, "mark1"), CKPT_OK);
    assert_int_equal(requests(), 4);
    ckpt_store_close(s);
    static char big[3 << 20];
    static const step refused[] = { { 404, NULL, NULL, 0 }, { 412, NULL, NULL, 0 }, { 503, NULL, NULL, 0 }, { 200, STAT_REPLY, NULL, sizeof big } };
    s = MEET(refused);
    s->min_part = 1;
    is(send_by(s, "x", big, sizeof big, 1 << 20, "mark1"), CKPT_OK);
    assert_string_equal(script.list[1].method, "POST");
    assert_int_equal(requests(), 4);
    ckpt_store_close(s);
    // As long as it cannot be looked at nobody is told that it may be ours when the very first request was refused; behind one that
    // failed it may be.
    static const step blind[] = { { 412, NULL, NULL, 0 } }, looked[] = { { 404, NULL, NULL, 0 }, { 412, NULL, NULL, 0 } },
                      failed[] = { { 502, NULL, NULL, 0 }, { 412, NULL, NULL, 0 } };
    for (int i = 0; i < 3; i++) {
        s = i == 2 ? MEET(failed) : i == 1 ? MEET(looked) : MEET(blind);
        s->min_part = 1;
        is(i == 1 ? send_by(s, "x", big, sizeof big, 1 << 20, "mark1") : send_by(s, "x", "123456789", 9, 0, "mark1"), CKPT_NET);
        sentence_has("cannot tell whose object is there");
        assert_true(sent.curable);
        assert_int_equal(sent.unsure, i == 2);
        ckpt_store_close(s);
    }
    // Without the server's MD5 a look confirms it; with another one it is damaged.
    static const step unproven[] = { { 200, NULL, NULL, 0 }, { 200, STAT_REPLY, "123456789", 9 }, { 200, NULL, NULL, 0 }, { 200, STAT_REPLY, "12345678", 8 },
                                     { 200, NULL, NULL, 0 }, { 404, NULL, NULL, 0 }, { 200, NULL, NULL, 0 }, { 403, NULL, NULL, 0 },
                                     { 200, "opc-content-md5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n", NULL, 0 } };
    s = MEET(unproven);
    is(put(s, "x", true, "mark1"), CKPT_OK);
    is(put(s, "x", true, "mark1"), CKPT_CORRUPT);
    assert_true(t.transient && t.unsure);
    is(put(s, "x", true, "mark1"), CKPT_CORRUPT);
    is(put(s, "x", true, "mark1"), CKPT_OK);
    is(put(s, "x", true, "mark1"), CKPT_CORRUPT);
    assert_true(t.transient);
    ckpt_store_close(s);
}

static void test_downloads(void **state) {
    (void)state;
    char out[8];
    static const step steps[] = { { 206, "ETag: e\r\nContent-Range: bytes 2-5/9\r\n", "cdef", 0 }, { 206, "ETag: e\r\nContent-Range: bytes 3-6/9\r\n", "cdef", 0 },
        { 206, "ETag: other\r\nContent-Range: bytes 2-5/9\r\n", "cdef", 0 }, { 412, NULL, "{\"code\":\"IfMatchFailed\"}", 0 },
        { 206, "ETag: e\r\nContent-Range: bytes 2-5/9\r\n", "cd", 0 }, { 206, "ETag: e\r\nContent-Range: bytes 2-5/9\r\n", "cdefghi", 0 },
        { 200, "ETag: e\r\n", "abcdefghi", 0 }, { 204, NULL, NULL, 0 }, { 416, NULL, "{\"code\":\"InvalidRange\"}", 0 }, { 206, NULL, "cdef", 0 } };
    static const ckpt_err want[] = { CKPT_OK, CKPT_CORRUPT, CKPT_CORRUPT, CKPT_CORRUPT, CKPT_NET, CKPT_NET, CKPT_UNSUPPORTED, CKPT_NET, CKPT_CORRUPT, CKPT_CORRUPT };
    ckpt_store *s = MEET(steps);
    for (int i = 0; i < UTIL_COUNT(want); i++) {
        is(get_it(s, "e", 2, out, 4), want[i]);
        if (i > 0 && i < 6) assert_true(t.transient || i == 5);
    }
    assert_string_equal(header_of(0, "range"), "bytes=2-5");
    assert_string_equal(header_of(0, "if-match"), "e");
    ckpt_store_close(s);
}

static void test_hostile(void **state) {
    (void)state;
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    static const char *const spaces[] = { "", "{}", "[\"a\"]", "\"\"", "\"a/b\"", "\"a", "\"a\\u0000b\"", "nonsense", "\"a b\"", "\"..\\r\\nx\"" };
    for (int i = 0; i < UTIL_COUNT(spaces); i++) {
        step one[] = { { 200, NULL, spaces[i], 0 } };
        ckpt_store *s = MEET(one);
        ckpt__oci_of(s)->space[0] = 0;
        is(stat_it(s), CKPT_NET);
        sentence_has("namespace");
        assert_true(t.transient);
        ckpt_store_close(s);
    }
    static const struct { const char *text; bool again; } lists[] = { { "", true }, { "{", true }, { "[]", true }, { "{\"objects\":{}}", true }, { "{}", true },
        { "{\"objects\":[{\"name\":\"pre/x\"}]}", false }, { "{\"objects\":[{\"name\":\"pre/x\",\"size\":-1}]}", false },
        { "{\"objects\":[{\"name\":\"pre/x\",\"size\":1e3}]}", false }, { "{\"objects\":[{\"name\":\"else\",\"size\":1}]}", false },
        { "{\"objects\":[{\"size\":1}]}", false }, { "{\"objects\":[7]}", false }, { "{\"objects\":[{\"name\":\"pre/x\\u0000y\",\"size\":1}]}", true },
        { "{\"objects\":[],\"nextStartWith\":7}", false } };
    for (int i = 0; i < UTIL_COUNT(lists); i++) {
        step one[] = { { 200, NULL, lists[i].text, 0 } };
        ckpt_store *s = MEET(one);
        is(list_it(s, "", &b), CKPT_NET);
        if (t.transient != lists[i].again) fail_msg("'%s': %s", lists[i].text, ckpt_last_error());
        ckpt_store_close(s);
    }
    // Pages without an end.
    step rounds[40];
    for (int i = 0; i < 40; i++) {
        memset(&rounds[i], 0, sizeof rounds[i]);
        rounds[i].status = 200;
        rounds[i].body = util_fmt("{\"objects\":[],\"nextStartWith\":\"pre/%d\"}", i % 5);
    }
    ckpt_store *s = MEET(rounds);
    is(list_it(s, "", &b), CKPT_NET);
    sentence_has("no end");
    ckpt_store_close(s);
    // Begin, part, commit, lists of parts.
    static const step parts[] = { { 200, NULL, "{}", 0 }, { 200, NULL, "x", 0 }, { 200, NULL, NULL, 0 }, { 200, NULL, "[{\"partNumber\":1,\"size\":5}]", 0 },
        { 200, NULL, "[{\"partNumber\":1e9,\"size\":5,\"etag\":\"x\"}]", 0 }, { 404, NULL, "{\"code\":\"BucketNotFound\"}", 0 },
        { 200, NULL, "[{\"object\":\"pre/x\"}]", 0 } };
    ckpt__store_multi m;
    ckpt__store_part part;
    ckpt__body body = body_of("hello oci");
    memset(&m, 0, sizeof m);
    memset(&part, 0, sizeof part);
    m.name = "x";
    m.t = &t;
    m.overwrite = true;
    m.upload_id = "u";
    part.number = 1;
    s = MEET(parts);
    b.len = 0;
    is(s->table->begin(s, &m, &b), CKPT_NET);
    is(s->table->begin(s, &m, &b), CKPT_NET);
    is(s->table->part(s, &m, &body, &part), CKPT_NET);
    sentence_has("ETag");
    is(s->table->parts(s, &m, NULL, NULL), CKPT_NET);
    is(s->table->parts(s, &m, NULL, NULL), CKPT_NET);
    is(s->table->abort(s, &m), CKPT_NOT_FOUND);
    is(s->table->uploads(s, "", NULL, NULL, &t), CKPT_NET);
    ckpt_store_close(s);
    ckpt__buf_free(&b);
}

// A token that the server repeats is not repeated by us; nor are control characters.
static void test_secrets(void **state) {
    (void)state;
    const char *token = util_join(the_home, "token"), *key = util_join(the_home, "plain.pem");
    util_write_text(token, "very.secret.token");
    util_write_text(key, text_of(generated, "pem_pkcs1"));
    write_config(util_fmt("[DEFAULT]\nregion=iad\nkey_file=%s\nsecurity_token_file=%s\n", key, token));
    static const step steps[] = { { 401, NULL, "{\"code\":\"NotAuthenticated\",\"message\":\"bad very.secret.token here\"}", 0 },
        { 403, NULL, "{\"code\":\"NotAuthorized\",\"message\":\"keyId=ST$abc\"}", 0 },
        { 400, "opc-request-id: \t id\x01x\r\n", "{\"code\":\"a\\nb\",\"message\":\"two\\r\\nlines\\u001b[0m\"}", 0 } };
    ckpt_store *s = MEET(steps);
    is(put(s, "x", true, NULL), CKPT_AUTH);
    assert_false(has(ckpt_last_error(), "very.secret"));
    is(put(s, "x", true, NULL), CKPT_AUTH);
    assert_false(has(ckpt_last_error(), "ST$"));
    is(put(s, "x", true, NULL), CKPT_NET);
    sentence_has("two lines");
    for (const char *p = ckpt_last_error(); *p != 0; p++) assert_true((unsigned char)*p >= ' ');
    ckpt_store_close(s);
    // Another one in its file is taken when the old one is refused.
    static const step renewed[] = { { 401, NULL, "{\"code\":\"NotAuthenticated\"}", 0 }, { 404, NULL, NULL, 0 } };
    s = MEET(renewed);
    util_write_text(token, "next.secret.token");
    is(stat_it(s), CKPT_NOT_FOUND);
    assert_true(has(header_of(0, "authorization"), "ST$very.secret.token\"") && has(header_of(1, "authorization"), "ST$next.secret.token\""));
    ckpt_store_close(s);
    assert_false(leaked);
    write_sample();
}

//-- memory ------------------------------------------------------------------------

static ckpt_err ignore_part(const ckpt__store_part *part, void *user) {
    (void)part, (void)user;
    return CKPT_OK;
}

// All operations, with one allocation failing, each in turn: no leak, no crash, CKPT_NOMEM.
static void test_failing_memory(void **state) {
    (void)state;
    const char *line = md5_line();
    step steps[] = { { 200, NULL, "\"space\"", 0 }, { 200, line, NULL, 0 }, { 412, NULL, "{\"code\":\"IfNoneMatchFailed\",\"message\":\"x\"}", 0 },
        { 200, NULL, "{\"uploadId\":\"u\"}", 0 }, { 200, line, NULL, 0 }, { 200, NULL, "[{\"partNumber\":1,\"etag\":\"e\",\"md5\":\"m\",\"size\":5}]", 0 },
        { 200, NULL, "{\"objects\":[{\"name\":\"pre/x\",\"size\":1}]}", 0 }, { 404, NULL, "{\"code\":\"ObjectNotFound\"}", 0 } };
    bool done = false;
    // A sanitizer takes ten times as long for each; the plain build has them all, and the long form of the others too.
#if defined(UTIL_ASAN) || defined(UTIL_TSAN)
    const int stride = util_long() ? 1 : 4;
#else
    const int stride = 1;
#endif
    for (int fail_at = 1; !done && fail_at < 3000; fail_at += stride) {
        counting c = { 0, 0, fail_at };
        if (fail_at % 25 < stride) {        // it keeps a thread for each connection that it ever had
            net_stop(&server);
            net_start(&server, on_request, NULL);
        }
        ckpt_allocator a;
        a.fn = counting_fn;
        a.user = &c;
        for (int op = 0; op < 7; op++) {
            step two[2];
            two[0] = steps[0];
            two[1] = steps[op + 1];
            script_prepare(two, 2);
            ckpt_store *s = open_at("oci://bucket/pre", server.url, NULL, &a);
            if (s == NULL) break;
            ckpt__store_multi m;
            ckpt__store_part part;
            ckpt__body body = body_of("hello oci");
            ckpt__buf b;
            memset(&m, 0, sizeof m);
            memset(&part, 0, sizeof part);
            ckpt__buf_init(&b, NULL);
            m.name = "x";
            m.upload_id = "u";
            m.t = &t;
            m.overwrite = true;
            part.number = 1;
            ckpt_err e = op == 0 ? put(s, "x", true, NULL) : op == 1 ? put(s, "x", false, NULL) : op == 2 ? s->table->begin(s, &m, &b) :
                         op == 3 ? s->table->part(s, &m, &body, &part) : op == 4 ? s->table->parts(s, &m, ignore_part, NULL) :
                         op == 5 ? list_it(s, "", &b) : s->table->remove(s, "x", &t);
            ckpt_err good = op == 1 ? CKPT_EXISTS : op == 6 ? CKPT_NOT_FOUND : CKPT_OK;
            if (e != good && e != CKPT_NOMEM) fail_msg("operation %d, allocation %d: %s", op, fail_at, ckpt_last_error());
            if (c.calls < fail_at) is(e, good);
            ckpt__buf_free(&b);
            ckpt_store_close(s);
            if (c.calls >= fail_at) break;
            if (op == 6) done = true;
        }
        assert_int_equal(c.live, 0);
    }
    assert_true(done);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_keys), cmocka_unit_test(test_configuration),
        cmocka_unit_test(test_configuration_unseen), cmocka_unit_test(test_instance),
        cmocka_unit_test(test_instance_hostile), cmocka_unit_test(test_instance_no_memory),
        cmocka_unit_test(test_instance_cancelled), cmocka_unit_test(test_endpoint_no_memory), cmocka_unit_test(test_endpoint_shown), cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_requests), cmocka_unit_test(test_sum_of_parts), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_ranges), cmocka_unit_test(test_list), cmocka_unit_test(test_replies), cmocka_unit_test(test_downloads),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_secrets), cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
