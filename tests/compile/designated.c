// A program that fills every struct of the public interface by the names of its fields, all of them, in the order of the interface
// as it is agreed on (what was added since stands where the header has it). C takes any order, C++20 only the declared one:
// compiled as both, linked with the implementation, and run in a folder of its own with the URI of a store. What fails here breaks
// programs that are out there.
#include "ckpt.h"
#include <stdlib.h>
#include <string.h>

static void on_log(ckpt_log_level level, const char *msg, void *user) { (void)level; (void)msg; (void)user; }
static void on_progress(const ckpt_progress *p, void *user) { (void)p; (void)user; }
static void on_removed(const char *name, uint64_t size, void *user) { (void)name; (void)size; (void)user; }
static bool should_save(const ckpt_timestamp *t, ckpt_event event, void *user) {
    (void)user;
    return event == CKPT_BATCH_CHECKPOINT && t->batch == 1;
}
static ckpt_err barrier(void *user) { (void)user; return CKPT_OK; }
static ckpt_err allreduce_min(int64_t *values, int count, void *user) { (void)values; (void)count; (void)user; return CKPT_OK; }
static ckpt_err broadcast(void *bytes, size_t size, int root, void *user) {
    (void)bytes; (void)size; (void)root; (void)user;
    return CKPT_OK;
}
static ckpt_err gather(const void *bytes, size_t size, void *all, void *user) {
    (void)user;
    if (all != NULL) memcpy(all, bytes, size);
    return CKPT_OK;
}
static ckpt_err copy(void *dst, const void *src, size_t size, bool to_device, void *user) {
    (void)to_device; (void)user;
    memcpy(dst, src, size);
    return CKPT_OK;
}
static ckpt_err credentials(ckpt_credentials *out, void *user) { (void)out; (void)user; return CKPT_OK; }
static void *resize(void *ptr, size_t old_size, size_t new_size, void *user) {
    (void)old_size; (void)user;
    if (new_size != 0) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}
static ckpt_err put(const char *name, const char *path, bool overwrite, void *user) {
    (void)name; (void)path; (void)overwrite; (void)user;
    return CKPT_OK;
}
static ckpt_err get(const char *name, const char *to, void *user) { (void)name; (void)to; (void)user; return CKPT_NOT_FOUND; }
static ckpt_err size_of(const char *name, uint64_t *size, void *user) { (void)name; (void)size; (void)user; return CKPT_NOT_FOUND; }
static ckpt_err list(const char *prefix, ckpt_err (*each)(const char *, uint64_t, void *), void *each_user, void *user) {
    (void)prefix; (void)each; (void)each_user; (void)user;
    return CKPT_OK;
}
static ckpt_err drop(const char *name, void *user) { (void)name; (void)user; return CKPT_OK; }
static void done(void *user) { (void)user; }

static const ckpt_logger logger = { .fn = on_log, .user = NULL };
static const ckpt_allocator allocator = { .fn = resize, .user = NULL };
static const ckpt_on_progress progress = { .fn = on_progress, .user = NULL };
static const ckpt_ranks ranks = { .rank = 0, .world_size = 1, .local_rank = 0, .local_world_size = 1, .node_rank = 0, .barrier = barrier,
    .allreduce_min = allreduce_min, .broadcast = broadcast, .user = NULL, .gather = gather };

static int values(void) {
    const ckpt_progress p = { .phase = "save", .name = "a.pt", .done = 1, .total = 2, .attempt = 1, .finished = false, .err = CKPT_OK,
        .seconds = 0 };
    const ckpt_time t = { .unit = CKPT_EPOCH, .value = 3, .fraction = 0 };
    const ckpt_timestamp at = { .iteration = 0, .epoch = 1, .batch = 2, .sample = 3, .token = 4, .epoch_in_iteration = 1,
        .token_in_iteration = 4, .batch_in_epoch = 0, .sample_in_epoch = 0, .token_in_epoch = 0, .total_wct = 1, .iteration_wct = 1,
        .epoch_wct = 0, .batch_wct = 0 };
    const ckpt_name_var extra = { .name = "extension", .text = "pt" };
    const ckpt_name_desc desc = { .run_name = "r", .timestamp = &at, .ranks = &ranks, .extra = &extra, .extra_count = 1 };
    char text[64];
    ckpt_progress_bar(&p, NULL);
    if (ckpt_time_format(text, sizeof text, t) != CKPT_OK || strcmp(text, "3ep") != 0) return 1;
    return ckpt_format_name(text, sizeof text, "{run_name}-ba{batch}.{extension}", &desc) != CKPT_OK || strcmp(text, "r-ba2.pt") != 0;
}

static int stores(ckpt_uploader **out, const char *uri) {
    static ckpt_store *custom;
    const ckpt_store_ops ops = { .put = put, .get = get, .size = size_of, .list = list, .remove = drop, .close = done,
        .one_at_a_time = false, .name = "mine" };
    const ckpt_store_desc desc = { ._canary = 0, .endpoint_url = NULL, .region = NULL, .profile = NULL, .addressing_style = NULL,
        .access_key_id = NULL, .secret_access_key = NULL, .session_token = NULL, .credentials_file = NULL, .key_filename = NULL,
        .key_password = NULL, .known_hosts_filename = NULL, .username = NULL, .password = NULL, .ca_file = NULL, .canned_acl = NULL,
        .storage_class = NULL, .server_side_encryption = NULL, .sse_kms_key_id = NULL, .payload_signing = NULL,
        .credentials = credentials, .credentials_user = NULL, .stall_timeout_s = 0, .logger = logger, .progress = progress,
        .allocator = allocator };
    const ckpt_uploader_desc up = { ._canary = 0, .bucket_uri = uri, .store = NULL, .store_desc = &desc,
        .file_path_format_string = "{remote_file_name}", .num_concurrent_uploads = 1, .num_concurrent_parts = 4, .part_size = 0,
        .num_attempts = 3, .stall_timeout_s = 60, .upload_staging_folder = "staged", .run_name = "r", .event_file = NULL,
        .ranks = ranks, .logger = logger, .progress = progress, .allocator = allocator };
    if (ckpt_store_custom(&custom, &ops, NULL) != CKPT_OK) return 2;
    ckpt_store_close(custom);
    return ckpt_uploader_open(out, &up) == CKPT_OK ? 0 : 3;
}

static int save(ckpt_state *st, struct ckpt_uploader *const *to, const char *const *ignored) {
    ckpt_saver *s = NULL;
    ckpt_timestamp t = { .iteration = 0 };
    const ckpt_saver_desc desc = { ._canary = 0, .state = st, .run_name = "r", .folder = "run", .filename = "ba{batch}.pt",
        .remote_file_name = "run/ba{batch}.pt", .latest_filename = "latest.pt", .latest_remote_file_name = "run/latest.pt",
        .save_interval = NULL, .should_save = should_save, .should_save_user = NULL, .max_duration = "10ba", .batches_per_epoch = 10,
        .overwrite = true, .num_checkpoints_to_keep = CKPT_KEEP_ALL, .keep_every = 0, .keep_best = NULL, .num_remote_to_keep = 0,
        .weights_only = false, .ignore_keys = ignored, .ignore_keys_count = 1, .snapshot = CKPT_SNAPSHOT_NONE, .max_staging_bytes = 0,
        .sharded = false, .sharded_prefix_dir = "ep{epoch}-ba{batch}", .uploaders = to, .uploaders_count = 1,
        .num_concurrent_uploads = 1, .num_attempts = 3, .upload_staging_folder = "staged_too", .store_desc = NULL, .event_file = NULL,
        .resume_offline = false, .per_rank_tar = false, .ranks = ranks, .logger = logger, .progress = progress, .allocator = allocator };
    if (ckpt_saver_open(&s, &desc) != CKPT_OK) return 4;
    ckpt_next_batch(&t, 1, 1, 1);
    if (ckpt_saver_batch_end(s, &t) != CKPT_OK) return 5;
    return ckpt_saver_close(s, 60) == CKPT_OK ? 0 : 6;
}

static int load(ckpt_state *st, const char *const *ignored) {
    const ckpt_load_desc desc = { ._canary = 0, .load_path = "run/latest.pt", .state = st, .load_weights_only = false,
        .not_strict = true, .no_verify = false, .load_ignore_keys = ignored, .load_ignore_keys_count = 1, .store = NULL,
        .store_desc = NULL, .ranks = ranks, .run_name = "r", .logger = logger, .progress = progress, .allocator = allocator };
    return ckpt_load(&desc, NULL) == CKPT_OK ? 0 : 7;
}

static int folders(void) {
    const ckpt_folder_desc desc = { ._canary = 0, .folder = "run", .logger = logger, .progress = progress, .allocator = allocator,
        .flat = false };
    const ckpt_gc_desc gc = { ._canary = 0, .num_checkpoints_to_keep = 1, .keep_every = 0, .keep_best = NULL, .damaged = false,
        .dry_run = true, .unfinished_now = false, .removed = on_removed, .user = NULL };
    const ckpt_convert_desc to = { ._canary = 0, .from = "run/ba1.pt", .to = "copy.pt", .overwrite = true, .no_verify = false,
        .shards = 0, .shard_ending = NULL, .shards_whole = false, .logger = logger, .progress = progress, .allocator = allocator };
    ckpt_folder *f = NULL;
    if (ckpt_folder_open(&f, &desc) != CKPT_OK || ckpt_folder_gc(f, &gc) != CKPT_OK) return 8;
    ckpt_folder_close(f);
    return ckpt_convert(&to) == CKPT_OK ? 0 : 9;
}

int main(int argc, char **argv) {
    float w[2] = { 1, 2 }, spare[2] = { 3, 4 };
    const char *const ignored[] = { "state/model/spare" };
    const ckpt_tensor tensor = { .dtype = CKPT_F32, .ndim = 1, .shape = { 2 }, .data = w, .device = false, .global_shape = { 0 },
        .offset = { 0 } };
    ckpt_state st = { ._canary = 0, .allocator = allocator, .copy = copy, .copy_user = NULL, .items = NULL, .count = 0, .capacity = 0,
        .err = CKPT_OK, .binds = NULL };
    ckpt_uploader *up = NULL;
    ckpt_bind(&st, "state/model/w", &tensor);
    ckpt_bind_f32(&st, "state/model/spare", spare, 2);
    int bad = values();
    if (bad == 0) bad = argc == 2 ? stores(&up, argv[1]) : 12;
    if (bad == 0) bad = save(&st, &up, ignored);
    w[0] = 0;
    if (bad == 0) bad = load(&st, ignored);
    if (bad == 0 && w[0] != 1) bad = 10;
    if (bad == 0) bad = folders();
    if (ckpt_uploader_close(up, 60) != CKPT_OK && bad == 0) bad = 11;
    ckpt_state_free(&st);
    return bad;
}
