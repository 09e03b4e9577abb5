/* net_stores.h: the stores that net_faults.c and net_kill.c are run for, by NET_STORE (s3): how their servers are reached, and which
   requests do what, for the rules of a fault proxy. After net_util_s3.h. */
#ifndef NET_STORES_H
#define NET_STORES_H

// The requests of an object's life. "@" is the object's name, "#" the number of a part; a '*' is any text, a '+' a blank.
// "skip=N " may stand before the text of one that no text tells from others.
typedef struct net_requests {
    const char *begin, *part, *end;
    int         part_skip, end_skip;    // -1: none; else so many requests that fit come before the first part, before the end
} net_requests;

typedef struct net_store {
    const char  *name, *what, *uri;     // of the URI too
    size_t       part, multi;           // bytes of a part, and of a file in three of them
    const char  *put, *get, *head;      // head: NULL, none is asked for. get may begin with "skip=1 ": the first one is no download
    const char  *all;                   // what has to do with names that begin with "@"
    net_requests parts, fresh;          // fresh: without overwrite, where that goes another way
    const char  *denied, *no_bucket, *invalid, *no_upload;      // codes of errors; no_upload: NULL, there is no such error of a part
    ckpt_err     is_invalid, is_no_bucket;      // what these end with; CKPT_OK: CKPT_NET and CKPT_NOT_FOUND
    bool         sumless;               // the service takes and gives no checksums: nobody but TLS can tell a flipped bit
    int          each;                  // requests of an attempt, 0: one
    const char  *late;                  // what a cloud says of a signed address that has run out; NULL: there are none
} net_store;

#define NET_S3_REQUESTS "PUT+/net/@", "GET+/net/@", "HEAD+/net/@", "PUT+/net/@", \
    { "POST+/net/@?uploads", "PUT+/net/@?partNumber=#", "POST+/net/@?uploadId", -1, -1 }, { NULL, NULL, NULL, 0, 0 }, \
    "AccessDenied", "NoSuchBucket", "InvalidRequest", "NoSuchUpload", CKPT_OK, CKPT_OK, false, 0, NULL
#define NET_UC_PATH "/Volumes/main/default/ckpt/net"
#define NET_UC "dbfs:" NET_UC_PATH
#define NET_UC_STREAM "POST+/api/2.0/fs/files" NET_UC_PATH "/@?action=initiate", "PUT+/cloud/*F@?op=stream", "PUT+/cloud/*F@?op=stream", 0, 3
// Runs of Databricks: a folder for each name, so that lists are told apart. Bodies tell what POSTs are about: faultproxy --bodies.
#define NET_DBFS "dbfs:/databricks/mlflow-tracking/77/0123abcd/artifacts/net-@"
#define NET_DBFS_API "+/api/2.0/mlflow/artifacts/"
#define NET_DBFS_PUT "PUT+/cloud/*F@?op=put"
#define NET_DBFS_READS "skip=1 GET+/cloud/*F@?op=get", "GET" NET_DBFS_API "list*net-@", "@"
#define NET_LATE_AWS "status=403 code=AccessDenied says=Request+has+expired"
#define NET_LATE_AZURE "status=403 code=AuthenticationFailed says=Server+failed+to+authenticate+the+request. " \
    "more=Signature+not+valid+in+the+specified+time+frame"
#define NET_LATE_GCP "status=400 code=ExpiredToken says=The+provided+token+has+expired."
// A folder for each name: lists and what has to do with parts tell no more of a name than that.
#define NET_MLFLOW_AT "77/0123abcd/artifacts/"
#define NET_MLFLOW_API "/api/2.0/mlflow-artifacts/"
#define NET_MLFLOW(folder) "mlflow-artifacts:/" NET_MLFLOW_AT folder, 5 << 20, 11 << 20, "PUT+" NET_MLFLOW_API "artifacts/" NET_MLFLOW_AT folder "/@+", \
    "GET+" NET_MLFLOW_API "artifacts/" NET_MLFLOW_AT folder "/@+", "GET+" NET_MLFLOW_API "artifacts?path=77%2F0123abcd%2Fartifacts%2F" folder "+", "@"

static const net_store net_stores[] = {
    { "s3", "RGW", "s3://net", 5 << 20, 11 << 20, NET_S3_REQUESTS },
    { "gs-hmac", "RGW by gs://", "gs://net", 5 << 20, 11 << 20, NET_S3_REQUESTS },
    { "gs", "fake-gcs", "gs://ckpt-any-@", 5 << 20, (11 << 20) + 12345, "POST+/upload/storage/v1/b/ckpt-any-@/o?*uploadType=multipart",
      "GET+/storage/v1/b/ckpt-any-@/o/@?alt=media", "GET+/storage/v1/b/ckpt-any-@/o/@?fields=", "/ckpt-any-@",
      { "POST+/ckpt-any-@/@?uploads", "PUT+/ckpt-any-@/@?partNumber=#", "POST+/ckpt-any-@/@?uploadId", -1, -1 },
      { "POST+/upload/storage/v1/b/ckpt-any-@/o?*uploadType=resumable", "PUT+/upload/storage/v1/b/ckpt-any-@/o?*upload_id=",
        "PUT+/upload/storage/v1/b/ckpt-any-@/o?*upload_id=", 0, 3 },
      "forbidden", "notFound", "invalid", "NoSuchUpload", CKPT_OK, CKPT_OK, false, 0, NULL },
    { "oci", "fake-oci", "oci://any-@", 10 << 20, 21 << 20, "PUT+/n/fakespace/b/any-@/o/@", "GET+/n/fakespace/b/any-@/o/@",
      NULL, "/b/any-@",
      { "POST+/n/fakespace/b/any-@/u+", "PUT+/n/fakespace/b/any-@/u/@?*uploadPartNum=#", "POST+/n/fakespace/b/any-@/u/@?uploadId", -1, -1 },
      { NULL, NULL, NULL, 0, 0 }, "NotAuthorized", "BucketNotFound", "InvalidParameter", "NoSuchUpload",
      CKPT_OK, CKPT_OK, false, 0, NULL },
    { "azure", "Azurite", "azure://net", 5 << 20, 11 << 20, "PUT+/ckpttests/net/@+", "GET+/ckpttests/net/@+", "HEAD+/ckpttests/net/@",
      "PUT+/ckpttests/net/@",
      { "PUT+/ckpttests/net/@?blockid=", "PUT+/ckpttests/net/@?blockid=", "PUT+/ckpttests/net/@?comp=blocklist", 1, -1 },
      { NULL, NULL, NULL, 0, 0 }, "AuthorizationPermissionMismatch", "ContainerNotFound", "InvalidInput", NULL, CKPT_OK, CKPT_OK, false, 0, NULL },
    { "wandb", "fake-wandb", "wandb://ent/proj", 5 << 20, 11 << 20, "PUT+/storage/@/", "GET+/storage/@/", NULL, "/storage/@",
      { NULL, NULL, NULL, -1, -1 }, { NULL, NULL, NULL, 0, 0 }, "AccessDenied", "NoSuchBucket", "InvalidRequest", NULL, CKPT_OK, CKPT_OK, false, 0, NULL },
    { "dbfs-aws", "fake-databricks's runs on AWS", NET_DBFS, 5 << 20, 11 << 20, NET_DBFS_PUT, NET_DBFS_READS,
      { "POST" NET_DBFS_API "create-multipart-upload*@", "PUT+/cloud/*F@?op=part*part=#", "POST" NET_DBFS_API "complete-multipart-upload*@", -1, -1 },
      { NULL, NULL, NULL, 0, 0 }, "AccessDenied", "NoSuchBucket", "InvalidRequest", "NoSuchUpload", CKPT_ARG, CKPT_OK, true, 3, NET_LATE_AWS },
    { "dbfs-azure", "fake-databricks's runs on Azure", NET_DBFS, 5 << 20, 11 << 20, NET_DBFS_PUT, NET_DBFS_READS,
      { "POST" NET_DBFS_API "credentials-for-write*@", NET_DBFS_PUT "*comp=block*blockid=", NET_DBFS_PUT "*comp=blocklist", 0, -1 },
      { NULL, NULL, NULL, 0, 0 }, "AuthorizationFailure", "ContainerNotFound", "InvalidHeaderValue", NULL, CKPT_ARG, CKPT_OK, true, 3, NET_LATE_AZURE },
    { "dbfs-gcp", "fake-databricks's runs on Google Cloud", NET_DBFS, 5 << 20, 11 << 20, NET_DBFS_PUT, NET_DBFS_READS,
      { NULL, NULL, NULL, -1, -1 }, { NULL, NULL, NULL, 0, 0 }, "AccessDenied", "NoSuchBucket", "InvalidArgument", NULL, CKPT_ARG, CKPT_OK, true, 3,
      NET_LATE_GCP },
    { "uc", "fake-databricks", NET_UC, 5 << 20, 11 << 20, "PUT+/api/2.0/fs/files" NET_UC_PATH "/@?", "GET+/api/2.0/fs/files" NET_UC_PATH "/@+",
      "HEAD+/api/2.0/fs/files" NET_UC_PATH "/@+", "@",
      { "POST+/api/2.0/fs/files" NET_UC_PATH "/@?action=initiate", "PUT+/cloud/*F@?op=part*part=#",
        "POST+/api/2.0/fs/files" NET_UC_PATH "/@?action=complete", -1, -1 },
      { NULL, NULL, NULL, 0, 0 }, "PERMISSION_DENIED", "NOT_FOUND", "INVALID_PARAMETER_VALUE", "NoSuchUpload", CKPT_ARG, CKPT_OK, true, 0, NET_LATE_AWS },
    { "uc-gcp", "fake-databricks on Google Cloud", NET_UC, 5 << 20, (11 << 20) + 12345, "PUT+/api/2.0/fs/files" NET_UC_PATH "/@?",
      "GET+/api/2.0/fs/files" NET_UC_PATH "/@+", "HEAD+/api/2.0/fs/files" NET_UC_PATH "/@+", "@", { NET_UC_STREAM }, { NET_UC_STREAM },
      "PERMISSION_DENIED", "NOT_FOUND", "INVALID_PARAMETER_VALUE", "NoSuchUpload", CKPT_ARG, CKPT_OK, true, 0, NULL },
    { "mlflow", "fake-databricks's MLflow proxy", NET_MLFLOW("net-@"), { NULL, NULL, NULL, -1, -1 }, { NULL, NULL, NULL, 0, 0 },
      "PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", NULL, CKPT_ARG, CKPT_UNSUPPORTED, true, 0, NULL },
    { "mlflow-parts", "fake-databricks's MLflow proxy with parts", NET_MLFLOW("parts-@"),
      { "POST+" NET_MLFLOW_API "mpu/create/" NET_MLFLOW_AT "parts-@+", "PUT+/cloud/*parts-@*F@?op=part*part=#",
        "POST+" NET_MLFLOW_API "mpu/complete/" NET_MLFLOW_AT "parts-@+", -1, -1 },
      { NULL, NULL, NULL, 0, 0 }, "PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NoSuchUpload", CKPT_ARG, CKPT_UNSUPPORTED, true, 0, NULL },
};

UTIL_FN const net_store *net_store_here(void) {
    const char *name = getenv("NET_STORE");
    for (int i = 0; i < UTIL_COUNT(net_stores); i++) if (strcmp(net_stores[i].name, name != NULL ? name : "s3") == 0) return &net_stores[i];
    printf("FAIL: no store %s\n", name);
    exit(1);
}

// `text` with "@" and "#" filled in.
UTIL_FN void net_fill(char *out, size_t cap, const char *text, const char *name, int number) {
    size_t n = 0;
    out[0] = 0;
    for (; *text != 0; text++) {
        if (*text == '@') n += (size_t)snprintf(out + n, cap - n, "%s", name);
        else if (*text == '#') n += (size_t)snprintf(out + n, cap - n, "%d", number);
        else n += (size_t)snprintf(out + n, cap - n, "%c", *text);
        if (n >= cap) util_die("too long", out);
    }
}

// The URI of the store that holds `name`: some have one bucket for each, so that all its requests can be told from others.
UTIL_FN void net_uri(char *out, size_t cap, const char *name) { net_fill(out, cap, net_store_here()->uri, name, 0); }

// "match=..." for one of put, get, head, all, begin, end, part1, part2... `fresh`: without overwrite. false: there is no such request.
UTIL_FN bool net_match(char *out, size_t cap, const char *what, const char *name, bool fresh) {
    const net_store *s = net_store_here();
    const net_requests *r = fresh && s->fresh.begin != NULL ? &s->fresh : &s->parts;
    int number = strncmp(what, "part", 4) == 0 ? atoi(what + 4) : 0, skip = -1;
    const char *text = NULL;
    char filled[400];
    if (number > 0) { text = r->part; skip = r->part_skip >= 0 ? r->part_skip + number - 1 : -1; }
    else if (strcmp(what, "end") == 0) { text = r->end; skip = r->end_skip; }
    else if (strcmp(what, "begin") == 0) text = r->begin;
    else if (strcmp(what, "put") == 0) text = s->put;
    else if (strcmp(what, "get") == 0) text = s->get;
    else if (strcmp(what, "head") == 0) text = s->head;
    else if (strcmp(what, "all") == 0) text = s->all;
    else util_die("no such request", what);
    if (text == NULL) return false;
    if (strncmp(text, "skip=1 ", 7) == 0) { skip = 1; text += 7; }
    net_fill(filled, sizeof filled, text, name, number);
    if (skip > 0) snprintf(out, cap, "skip=%d match=%s", skip, filled);
    else snprintf(out, cap, "match=%s", filled);
    return true;
}

// A rule for a proxy: "$WORD" is what net_match makes of it, "code=$WORD" an error's code, "$late" all of what a cloud says of an
// address that has run out.
UTIL_FN bool net_rule(char *out, size_t cap, const char *rule, size_t size, const char *name, bool fresh) {
    const net_store *s = net_store_here();
    size_t n = 0;
    bool late = false;
    for (const char *p = rule; p < rule + size;) {
        char word[32], text[500];
        if (*p != '$') { out[n++] = *p++; continue; }
        snprintf(word, sizeof word, "%.*s", (int)strspn(p + 1, "abcdefghijklmnopqrstuvwxyz_0123456789"), p + 1);
        p += 1 + strlen(word);
        const char *code = strcmp(word, "denied") == 0 ? s->denied : strcmp(word, "no_bucket") == 0 ? s->no_bucket :
                           strcmp(word, "invalid") == 0 ? s->invalid : strcmp(word, "no_upload") == 0 ? s->no_upload : NULL;
        if (strcmp(word, "late") == 0) {
            late = true;
            code = s->late;
            if (code == NULL) return false;
        }
        if (code != NULL) snprintf(text, sizeof text, "%s", code);
        else if (strcmp(word, "no_upload") == 0 || !net_match(text, sizeof text, word, name, fresh)) return false;
        n += (size_t)snprintf(out + n, cap - n, "%s", text);
        if (n >= cap) util_die("too long", rule);
    }
    out[n] = 0;
    return !late || strstr(out, "/cloud/") != NULL;     // what is not at the cloud is not signed
}

#endif
