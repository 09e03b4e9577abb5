// A program written against the public interface as it is agreed on: every function by its exact type, every field by its
// own. It is compiled as C99 and as C++11, linked with the implementation, and run. What fails here breaks programs that are
// out there.
#include "ckpt.h"

// A pointer to a field of another type is an error, in C (with -Werror) as in C++.
#define FIELD(type, object, field) do { type *p_ = &(object).field; (void)p_; seen++; } while (0)

static int seen;

//-- functions -------------------------------------------------------------------

static void functions_of_values(void) {
    const char *(*err_name)(ckpt_err) = ckpt_err_name;
    const char *(*last_error)(void) = ckpt_last_error;
    void (*progress_bar)(const ckpt_progress *, void *) = ckpt_progress_bar;
    void (*next_batch)(ckpt_timestamp *, int64_t, int64_t, double) = ckpt_next_batch;
    void (*next_epoch)(ckpt_timestamp *, double) = ckpt_next_epoch;
    void (*next_iteration)(ckpt_timestamp *, double) = ckpt_next_iteration;
    ckpt_err (*time_parse)(ckpt_time *, const char *) = ckpt_time_parse;
    ckpt_err (*time_format)(char *, size_t, ckpt_time) = ckpt_time_format;
    ckpt_err (*format_name)(char *, size_t, const char *, const ckpt_name_desc *) = ckpt_format_name;
    seen += err_name && last_error && progress_bar && next_batch && next_epoch && next_iteration;
    seen += time_parse && time_format && format_name;
}

static void functions_of_states(void) {
    void (*bind)(ckpt_state *, const char *, const ckpt_tensor *) = ckpt_bind;
    void (*bind_f32)(ckpt_state *, const char *, float *, int64_t) = ckpt_bind_f32;
    void (*bind_int)(ckpt_state *, const char *, int64_t *) = ckpt_bind_int;
    void (*bind_float)(ckpt_state *, const char *, double *) = ckpt_bind_float;
    void (*bind_bool)(ckpt_state *, const char *, bool *) = ckpt_bind_bool;
    void (*bind_text)(ckpt_state *, const char *, char *, size_t) = ckpt_bind_text;
    void (*bind_bytes)(ckpt_state *, const char *, void *, size_t) = ckpt_bind_bytes;
    void (*bind_file)(ckpt_state *, const char *, const char *) = ckpt_bind_file;
    void (*state_free)(ckpt_state *) = ckpt_state_free;
    seen += bind && bind_f32 && bind_int && bind_float && bind_bool && bind_text && bind_bytes && bind_file && state_free;
}

static void functions_of_files(void) {
    ckpt_err (*save)(const char *, const ckpt_state *, const ckpt_timestamp *) = ckpt_save;
    ckpt_err (*load)(const ckpt_load_desc *, ckpt_timestamp *) = ckpt_load;
    ckpt_err (*file_open)(ckpt_file **, const char *) = ckpt_file_open;
    int (*file_count)(const ckpt_file *) = ckpt_file_count;
    int (*file_ranks)(const ckpt_file *) = ckpt_file_ranks;
    const char *(*file_shard)(const ckpt_file *, int, uint64_t *) = ckpt_file_shard;
    ckpt_err (*file_entry)(const ckpt_file *, int, ckpt_entry *) = ckpt_file_entry;
    const char *(*file_what)(const ckpt_file *, int) = ckpt_file_what;
    ckpt_err (*file_read)(ckpt_file *, int, uint64_t, void *, size_t) = ckpt_file_read;
    ckpt_err (*file_verify)(ckpt_file *) = ckpt_file_verify;
    void (*file_close)(ckpt_file *) = ckpt_file_close;
    ckpt_err (*get_file)(const char *, const char *, bool) = ckpt_get_file;
    ckpt_err (*put_file)(const char *, const char *, bool) = ckpt_put_file;
    ckpt_err (*symlink_file)(const char *, const char *) = ckpt_create_symlink_file;
    ckpt_err (*is_empty)(const char *) = ckpt_ensure_folder_is_empty;
    ckpt_err (*no_conflict)(const char *, const char *, const ckpt_name_desc *) = ckpt_ensure_folder_has_no_conflicting_files;
    ckpt_err (*verify)(const char *, const ckpt_on_progress *) = ckpt_verify;
    ckpt_err (*convert)(const ckpt_convert_desc *) = ckpt_convert;
    seen += save && load && file_open && file_count && file_ranks && file_shard && file_entry && file_read && file_verify;
    seen += file_close != NULL && file_what != NULL;
    seen += get_file && put_file && symlink_file && is_empty && no_conflict && verify && convert;
}

static void functions_of_savers(void) {
    ckpt_err (*open)(ckpt_saver **, const ckpt_saver_desc *) = ckpt_saver_open;
    ckpt_err (*resume)(ckpt_saver *, ckpt_timestamp *) = ckpt_saver_resume;
    ckpt_err (*batch_end)(ckpt_saver *, const ckpt_timestamp *) = ckpt_saver_batch_end;
    ckpt_err (*epoch_end)(ckpt_saver *, const ckpt_timestamp *) = ckpt_saver_epoch_end;
    ckpt_err (*iteration_end)(ckpt_saver *, const ckpt_timestamp *) = ckpt_saver_iteration_end;
    ckpt_err (*save)(ckpt_saver *, const ckpt_timestamp *) = ckpt_saver_save;
    ckpt_err (*fence)(ckpt_saver *) = ckpt_saver_fence;
    void (*request)(ckpt_saver *) = ckpt_saver_request;
    int (*checkpoints)(const ckpt_saver *, const char *const **) = ckpt_saver_checkpoints;
    ckpt_err (*wait)(ckpt_saver *, double) = ckpt_saver_wait;
    ckpt_err (*close)(ckpt_saver *, double) = ckpt_saver_close;
    void (*stats)(const ckpt_saver *, ckpt_saver_counts *) = ckpt_saver_stats;
    seen += open && resume && batch_end && epoch_end && iteration_end && save && fence && request && checkpoints;
    seen += wait && close && stats;
}

static void functions_of_folders(void) {
    ckpt_err (*open)(ckpt_folder **, const ckpt_folder_desc *) = ckpt_folder_open;
    int (*count)(const ckpt_folder *) = ckpt_folder_count;
    ckpt_err (*entry)(const ckpt_folder *, int, ckpt_checkpoint *) = ckpt_folder_entry;
    int (*find)(const ckpt_folder *, const char *) = ckpt_folder_find;
    ckpt_err (*verify)(ckpt_folder *, int) = ckpt_folder_verify;
    ckpt_err (*pin)(ckpt_folder *, int, bool) = ckpt_folder_pin;
    ckpt_err (*remove)(ckpt_folder *, int) = ckpt_folder_remove;
    ckpt_err (*gc)(ckpt_folder *, const ckpt_gc_desc *) = ckpt_folder_gc;
    void (*close)(ckpt_folder *) = ckpt_folder_close;
    seen += open && count && entry && find && verify && pin && remove && gc && close;
}

static void functions_of_stores(void) {
    ckpt_err (*open)(ckpt_store **, const char *, const ckpt_store_desc *) = ckpt_store_open;
    ckpt_err (*custom)(ckpt_store **, const ckpt_store_ops *, void *) = ckpt_store_custom;
    ckpt_err (*put)(ckpt_store *, const char *, const char *, bool) = ckpt_store_put;
    ckpt_err (*get)(ckpt_store *, const char *, const char *, bool) = ckpt_store_get;
    ckpt_err (*size)(ckpt_store *, const char *, uint64_t *) = ckpt_store_size;
    ckpt_err (*time)(ckpt_store *, const char *, double *) = ckpt_store_time;
    ckpt_err (*list)(ckpt_store *, const char *, ckpt_err (*)(const char *, uint64_t, void *), void *) = ckpt_store_list;
    ckpt_err (*remove)(ckpt_store *, const char *) = ckpt_store_remove;
    ckpt_err (*uploads)(ckpt_store *, const char *, ckpt_err (*)(const char *, const char *, double, void *), void *);
    uploads = ckpt_store_uploads;
    ckpt_err (*abort_upload)(ckpt_store *, const char *, const char *) = ckpt_store_abort_upload;
    void (*close)(ckpt_store *) = ckpt_store_close;
    ckpt_err (*set_error)(ckpt_err, const char *) = ckpt_set_error;
    seen += open && custom && put && get && size && time && list && remove && uploads && abort_upload && close && set_error;
}

static void functions_of_uploaders(void) {
    ckpt_err (*open)(ckpt_uploader **, const ckpt_uploader_desc *) = ckpt_uploader_open;
    ckpt_err (*upload)(ckpt_uploader *, const char *, const char *, bool) = ckpt_upload_file;
    ckpt_err (*check)(ckpt_uploader *) = ckpt_uploader_check;
    ckpt_err (*wait)(ckpt_uploader *, double) = ckpt_uploader_wait;
    ckpt_err (*close)(ckpt_uploader *, double) = ckpt_uploader_close;
    ckpt_err (*download)(ckpt_uploader *, const char *, const char *, bool) = ckpt_download_file;
    ckpt_err (*uri)(ckpt_uploader *, const char *, char *, size_t) = ckpt_get_uri_for_file;
    void (*stats)(const ckpt_uploader *, ckpt_transfer_stats *) = ckpt_uploader_stats;
    ckpt_err (*pending)(const char *, void (*)(const ckpt_pending *, void *), void *) = ckpt_uploader_pending;
    seen += open && upload && check && wait && close && download && uri && stats && pending;
}

//-- types and fields ------------------------------------------------------------

static void hooks(void) {
    typedef void (*log_fn)(ckpt_log_level, const char *, void *);
    typedef void *(*resize_fn)(void *, size_t, size_t, void *);
    typedef void (*progress_fn)(const ckpt_progress *, void *);
    ckpt_logger logger = {0};
    ckpt_allocator allocator = {0};
    ckpt_on_progress on = {0};
    ckpt_progress p = {0};
    FIELD(log_fn, logger, fn); FIELD(void *, logger, user);
    FIELD(resize_fn, allocator, fn); FIELD(void *, allocator, user);
    FIELD(progress_fn, on, fn); FIELD(void *, on, user);
    FIELD(const char *, p, phase); FIELD(const char *, p, name); FIELD(uint64_t, p, done); FIELD(uint64_t, p, total);
    FIELD(int, p, attempt); FIELD(bool, p, finished); FIELD(ckpt_err, p, err); FIELD(double, p, seconds);
}

static void times_and_names(void) {
    typedef ckpt_err (*barrier_fn)(void *);
    typedef ckpt_err (*min_fn)(int64_t *, int, void *);
    typedef ckpt_err (*broadcast_fn)(void *, size_t, int, void *);
    typedef ckpt_err (*gather_fn)(const void *, size_t, void *, void *);
    ckpt_timestamp t = {0};
    ckpt_time x = { CKPT_EPOCH, 0, 0 };
    ckpt_ranks r = {0};
    ckpt_name_var v = {0};
    ckpt_name_desc n = {0};
    FIELD(int64_t, t, iteration); FIELD(int64_t, t, epoch); FIELD(int64_t, t, batch); FIELD(int64_t, t, sample);
    FIELD(int64_t, t, token);
    FIELD(int64_t, t, epoch_in_iteration); FIELD(int64_t, t, token_in_iteration); FIELD(int64_t, t, batch_in_epoch);
    FIELD(int64_t, t, sample_in_epoch); FIELD(int64_t, t, token_in_epoch);
    FIELD(double, t, total_wct); FIELD(double, t, iteration_wct); FIELD(double, t, epoch_wct); FIELD(double, t, batch_wct);
    FIELD(ckpt_unit, x, unit); FIELD(int64_t, x, value); FIELD(double, x, fraction);
    FIELD(int, r, rank); FIELD(int, r, world_size); FIELD(int, r, local_rank); FIELD(int, r, local_world_size);
    FIELD(int, r, node_rank);
    FIELD(barrier_fn, r, barrier); FIELD(min_fn, r, allreduce_min); FIELD(broadcast_fn, r, broadcast);
    FIELD(gather_fn, r, gather);
    FIELD(void *, r, user);
    FIELD(const char *, v, name); FIELD(const char *, v, text);
    FIELD(const char *, n, run_name); FIELD(const ckpt_timestamp *, n, timestamp); FIELD(const ckpt_ranks *, n, ranks);
    FIELD(const ckpt_name_var *, n, extra); FIELD(int, n, extra_count);
}

static void states_and_files(void) {
    typedef ckpt_err (*copy_fn)(void *, const void *, size_t, bool, void *);
    typedef int64_t extents[8];
    ckpt_tensor t = { CKPT_F32, 0, {0}, NULL, false, {0}, {0} };
    ckpt_state s = {0};
    ckpt_load_desc l = {0};
    ckpt_entry e = { NULL, CKPT_KIND_NONE, { CKPT_F32, 0, {0}, NULL, false, {0}, {0} }, 0, 0, false, 0 };
    FIELD(ckpt_dtype, t, dtype); FIELD(int, t, ndim); FIELD(extents, t, shape); FIELD(void *, t, data); FIELD(bool, t, device);
    FIELD(extents, t, global_shape); FIELD(extents, t, offset);
    FIELD(uint32_t, s, _canary); FIELD(ckpt_allocator, s, allocator); FIELD(copy_fn, s, copy); FIELD(void *, s, copy_user);
    FIELD(int, s, count); FIELD(int, s, capacity); FIELD(ckpt_err, s, err); FIELD(struct ckpt__binding *, s, items);
    FIELD(uint32_t, l, _canary); FIELD(const char *, l, load_path); FIELD(ckpt_state *, l, state);
    FIELD(bool, l, load_weights_only);
    FIELD(bool, l, not_strict); FIELD(bool, l, no_verify); FIELD(const char *const *, l, load_ignore_keys);
    FIELD(int, l, load_ignore_keys_count); FIELD(struct ckpt_store *, l, store);
    FIELD(const struct ckpt_store_desc *, l, store_desc);
    FIELD(ckpt_ranks, l, ranks); FIELD(const char *, l, run_name); FIELD(ckpt_logger, l, logger);
    FIELD(ckpt_on_progress, l, progress);
    FIELD(ckpt_allocator, l, allocator);
    FIELD(const char *, e, name); FIELD(ckpt_kind, e, kind); FIELD(ckpt_tensor, e, tensor); FIELD(uint64_t, e, size);
    FIELD(uint32_t, e, checksum); FIELD(bool, e, has_checksum); FIELD(int, e, pieces);
}

static void savers(void) {
    typedef bool (*should_save_fn)(const ckpt_timestamp *, ckpt_event, void *);
    ckpt_saver_desc d = {0};
    ckpt_saver_counts c = {0};
    FIELD(uint32_t, d, _canary); FIELD(ckpt_state *, d, state); FIELD(const char *, d, run_name); FIELD(const char *, d, folder);
    FIELD(const char *, d, filename); FIELD(const char *, d, remote_file_name); FIELD(const char *, d, latest_filename);
    FIELD(const char *, d, latest_remote_file_name); FIELD(const char *, d, save_interval); FIELD(should_save_fn, d, should_save);
    FIELD(void *, d, should_save_user); FIELD(const char *, d, max_duration); FIELD(int64_t, d, batches_per_epoch);
    FIELD(bool, d, overwrite);
    FIELD(int, d, num_checkpoints_to_keep); FIELD(int, d, keep_every); FIELD(const char *, d, keep_best);
    FIELD(int, d, num_remote_to_keep);
    FIELD(bool, d, weights_only); FIELD(const char *const *, d, ignore_keys); FIELD(int, d, ignore_keys_count);
    FIELD(ckpt_snapshot, d, snapshot); FIELD(size_t, d, max_staging_bytes); FIELD(bool, d, sharded);
    FIELD(const char *, d, sharded_prefix_dir);
    FIELD(bool, d, per_rank_tar); FIELD(struct ckpt_uploader *const *, d, uploaders); FIELD(int, d, uploaders_count);
    FIELD(int, d, num_concurrent_uploads); FIELD(int, d, num_attempts); FIELD(const char *, d, upload_staging_folder);
    FIELD(const struct ckpt_store_desc *, d, store_desc); FIELD(const char *, d, event_file); FIELD(bool, d, resume_offline);
    FIELD(ckpt_ranks, d, ranks); FIELD(ckpt_logger, d, logger); FIELD(ckpt_on_progress, d, progress);
    FIELD(ckpt_allocator, d, allocator);
    FIELD(uint64_t, c, saved); FIELD(uint64_t, c, saved_bytes); FIELD(uint64_t, c, uploaded); FIELD(uint64_t, c, uploaded_bytes);
    FIELD(uint64_t, c, pending); FIELD(uint64_t, c, failed); FIELD(uint64_t, c, removed); FIELD(uint64_t, c, requests);
    FIELD(uint64_t, c, retries); FIELD(double, c, stalled_s); FIELD(double, c, waited_s);
}

static void folders(void) {
    typedef void (*removed_fn)(const char *, uint64_t, void *);
    ckpt_folder_desc d = {0};
    ckpt_checkpoint c = {0};
    ckpt_gc_desc g = {0};
    ckpt_convert_desc v = {0};
    FIELD(uint32_t, d, _canary); FIELD(const char *, d, folder); FIELD(ckpt_logger, d, logger);
    FIELD(ckpt_on_progress, d, progress);
    FIELD(ckpt_allocator, d, allocator);
    FIELD(const char *, c, name); FIELD(const char *, c, path); FIELD(const char *, c, latest);
    FIELD(ckpt_timestamp, c, timestamp);
    FIELD(double, c, saved_at); FIELD(uint64_t, c, number); FIELD(uint64_t, c, size); FIELD(uint64_t, c, recorded_size);
    FIELD(uint32_t, c, checksum); FIELD(double, c, metric); FIELD(bool, c, has_checksum); FIELD(bool, c, has_metric);
    FIELD(bool, c, pinned);
    FIELD(bool, c, damaged); FIELD(bool, c, abandoned); FIELD(bool, c, missing); FIELD(bool, c, foreign); FIELD(bool, c, sharded);
    FIELD(bool, c, unfinished); FIELD(int, c, ranks);
    FIELD(uint32_t, g, _canary); FIELD(int, g, num_checkpoints_to_keep); FIELD(int, g, keep_every);
    FIELD(const char *, g, keep_best);
    FIELD(bool, g, damaged); FIELD(bool, g, dry_run); FIELD(bool, g, unfinished_now); FIELD(removed_fn, g, removed);
    FIELD(void *, g, user);
    FIELD(uint32_t, v, _canary); FIELD(const char *, v, from); FIELD(const char *, v, to); FIELD(bool, v, overwrite);
    FIELD(bool, v, no_verify);
    FIELD(int, v, shards); FIELD(const char *, v, shard_ending); FIELD(bool, v, shards_whole); FIELD(ckpt_logger, v, logger);
    FIELD(ckpt_on_progress, v, progress); FIELD(ckpt_allocator, v, allocator);
}

static void stores(void) {
    typedef char id_text[256];
    typedef char key_text[512];
    typedef char token_text[8192];
    typedef ckpt_err (*credentials_fn)(ckpt_credentials *, void *);
    typedef ckpt_err (*put_fn)(const char *, const char *, bool, void *);
    typedef ckpt_err (*get_fn)(const char *, const char *, void *);
    typedef ckpt_err (*size_fn)(const char *, uint64_t *, void *);
    typedef ckpt_err (*list_fn)(const char *, ckpt_err (*)(const char *, uint64_t, void *), void *, void *);
    typedef ckpt_err (*remove_fn)(const char *, void *);
    typedef void (*close_fn)(void *);
    static ckpt_credentials c;
    ckpt_store_desc d = {0};
    ckpt_store_ops o = {0};
    FIELD(id_text, c, access_key_id); FIELD(key_text, c, secret_access_key); FIELD(token_text, c, session_token);
    FIELD(double, c, expires);
    FIELD(uint32_t, d, _canary); FIELD(const char *, d, endpoint_url); FIELD(const char *, d, region);
    FIELD(const char *, d, profile);
    FIELD(const char *, d, addressing_style); FIELD(const char *, d, access_key_id); FIELD(const char *, d, secret_access_key);
    FIELD(const char *, d, session_token); FIELD(const char *, d, credentials_file); FIELD(const char *, d, key_filename);
    FIELD(const char *, d, key_password); FIELD(const char *, d, known_hosts_filename); FIELD(const char *, d, username);
    FIELD(const char *, d, password); FIELD(const char *, d, ca_file); FIELD(const char *, d, canned_acl);
    FIELD(const char *, d, storage_class);
    FIELD(const char *, d, server_side_encryption); FIELD(const char *, d, sse_kms_key_id);
    FIELD(const char *, d, payload_signing);
    FIELD(credentials_fn, d, credentials); FIELD(void *, d, credentials_user); FIELD(double, d, stall_timeout_s);
    FIELD(ckpt_logger, d, logger);
    FIELD(ckpt_on_progress, d, progress); FIELD(ckpt_allocator, d, allocator);
    FIELD(put_fn, o, put); FIELD(get_fn, o, get); FIELD(size_fn, o, size); FIELD(list_fn, o, list); FIELD(remove_fn, o, remove);
    FIELD(close_fn, o, close); FIELD(bool, o, one_at_a_time); FIELD(const char *, o, name);
}

static void uploaders(void) {
    ckpt_uploader_desc d = {0};
    ckpt_transfer_stats s = {0};
    ckpt_pending p = {0};
    FIELD(uint32_t, d, _canary); FIELD(const char *, d, bucket_uri); FIELD(struct ckpt_store *, d, store);
    FIELD(const ckpt_store_desc *, d, store_desc); FIELD(const char *, d, file_path_format_string);
    FIELD(int, d, num_concurrent_uploads);
    FIELD(int, d, num_concurrent_parts); FIELD(size_t, d, part_size); FIELD(int, d, num_attempts);
    FIELD(double, d, stall_timeout_s);
    FIELD(const char *, d, upload_staging_folder); FIELD(const char *, d, run_name); FIELD(const char *, d, event_file);
    FIELD(ckpt_ranks, d, ranks); FIELD(ckpt_logger, d, logger); FIELD(ckpt_on_progress, d, progress);
    FIELD(ckpt_allocator, d, allocator);
    FIELD(uint64_t, s, files); FIELD(uint64_t, s, bytes); FIELD(uint64_t, s, requests); FIELD(uint64_t, s, retries);
    FIELD(uint64_t, s, pending);
    FIELD(uint64_t, s, failed); FIELD(double, s, stalled_s); FIELD(double, s, waited_s);
    FIELD(const char *, p, uri); FIELD(const char *, p, name); FIELD(const char *, p, file_path);
    FIELD(const char *, p, staged_path);
    FIELD(const char *, p, record); FIELD(uint64_t, p, size); FIELD(uint64_t, p, sent); FIELD(double, p, added);
    FIELD(bool, p, in_use);
    FIELD(bool, p, refused); FIELD(bool, p, damaged);
}

// Numbers that are written into files, logs and other programs, and may not move.
static int constants(void) {
    int bad = CKPT_OK != 0 || CKPT_ARG != 1 || CKPT_NOMEM != 2 || CKPT_IO != 3 || CKPT_NO_SPACE != 4 || CKPT_NOT_FOUND != 5;
    bad |= CKPT_EXISTS != 6;
    bad |= CKPT_AUTH != 7 || CKPT_NET != 8 || CKPT_TIMEOUT != 9 || CKPT_CORRUPT != 10 || CKPT_MISMATCH != 11;
    bad |= CKPT_CANCELLED != 12;
    bad |= CKPT_UNSUPPORTED != 13;
    bad |= CKPT_ITERATION != 0 || CKPT_EPOCH != 1 || CKPT_BATCH != 2 || CKPT_SAMPLE != 3 || CKPT_TOKEN != 4;
    bad |= CKPT_DURATION != 5 || CKPT_SECOND != 6;
    bad |= CKPT_F64 != 1 || CKPT_F32 != 2 || CKPT_F16 != 3 || CKPT_BF16 != 4 || CKPT_F8_E4M3 != 5 || CKPT_F8_E5M2 != 6;
    bad |= CKPT_I64 != 7;
    bad |= CKPT_I32 != 8 || CKPT_I16 != 9 || CKPT_I8 != 10 || CKPT_U64 != 11 || CKPT_U32 != 12 || CKPT_U16 != 13 || CKPT_U8 != 14;
    bad |= CKPT_BOOL != 15 || CKPT_C64 != 16 || CKPT_C128 != 17 || CKPT_MAX_DIMS != 8;
    bad |= CKPT_SNAPSHOT_NONE != 0 || CKPT_SNAPSHOT_COPY != 1 || CKPT_SNAPSHOT_LAZY != 2 || CKPT_KEEP_ALL != 0;
    bad |= CKPT_KEEP_NONE != -1;
    bad |= CKPT_BATCH_CHECKPOINT != 0 || CKPT_EPOCH_CHECKPOINT != 1 || CKPT_ITERATION_CHECKPOINT != 2 || CKPT_NONE[0] != 0;
    bad |= CKPT_LOG_DEBUG != 0 || CKPT_LOG_INFO != 1 || CKPT_LOG_WARN != 2 || CKPT_LOG_ERROR != 3;
    bad |= CKPT_KIND_TENSOR != 1 || CKPT_KIND_INT != 2 || CKPT_KIND_FLOAT != 3 || CKPT_KIND_BOOL != 4 || CKPT_KIND_TEXT != 5;
    bad |= CKPT_KIND_BYTES != 6 || CKPT_KIND_NONE != 7 || CKPT_KIND_FILE != 8 || CKPT_KIND_OTHER != 9;
    return bad;
}

int main(void) {
    functions_of_values();
    functions_of_states();
    functions_of_files();
    functions_of_savers();
    functions_of_folders();
    functions_of_stores();
    functions_of_uploaders();
    hooks();
    times_and_names();
    states_and_files();
    savers();
    folders();
    stores();
    uploaders();
    return constants() || seen < 200;
}
