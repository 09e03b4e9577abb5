/* ckpt.h - v0.1.0 - training checkpoints that are whole or absent - MIT or public domain

   Do this in ONE C or C++ file, before any other include:

       #define CKPT_IMPLEMENTATION
       #include "ckpt.h"

   and just #include "ckpt.h" wherever else you need it. Link: -lcurl -lcrypto -lpthread.
   Local files only, which is all that this version does:  -DCKPT_NO_REMOTE  and link -lpthread alone.

   CONTENTS (search for the words)

       QUICK START ............ twenty lines that save and resume
       WHAT BLOCKS ............ which call waits for what
       SNAPSHOTS .............. NONE, COPY, LAZY: what they cost
       WHAT IS PROMISED ....... the order of a save, what a kill can do
       RETENTION .............. which checkpoints stay
       RESUMING ............... what is looked for, what is loaded
       NAMES .................. templates, tensors, what is reserved
       FILES .................. .pt, .safetensors, .tar, compression, the index
       THREADS, ERRORS, MEMORY
       COMPOSER ............... where we follow it, where we do not
       OPTIONS ................ the macros
       MAP .................... the sections of the implementation
       >>api.errors hooks time names state file saver folder ... the calls, each with its contract
       >>implementation ....... error memory platform text digest time name state plan pickle pt safetensors tar codec
                                engine file index saver loader resume folder public

   PLEASE KEEP THE ORDER OF THE SECTIONS. A section calls only the sections in its "uses:" line, all of them earlier in
   the file, and no private function is declared before it is defined: that is the architecture, and the compiler
   keeps it. tools/lint.py checks the rest.


   QUICK START
   ===========
   Bind your memory to names once. The same table saves and loads.

       ckpt_state st = {0};
       ckpt_bind_f32(&st, "state/model/wte", wte, vocab * dim);
       ckpt_bind_f32(&st, "state/optimizers/AdamW/exp_avg/wte", m_wte, vocab * dim);
       ckpt_bind_bytes(&st, "rng/0/xorshift", &rng, sizeof rng);

       ckpt_saver *saver;
       ckpt_saver_desc desc = {0};
       desc.state = &st;
       desc.folder = "runs/a";
       desc.save_interval = "500ba";
       desc.num_checkpoints_to_keep = 3;
       if (ckpt_saver_open(&saver, &desc) != CKPT_OK) die(ckpt_last_error());

       ckpt_timestamp t = {0};
       ckpt_err e = ckpt_saver_resume(saver, &t);              // the newest checkpoint that verifies
       if (e != CKPT_OK && e != CKPT_NOT_FOUND) die(ckpt_last_error());

       while (t.batch < max_batches) {
           train_one_batch();
           ckpt_next_batch(&t, batch_size, tokens, seconds);
           if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) warn(ckpt_last_error());
       }
       if (ckpt_saver_close(saver, 0) != CKPT_OK) die(ckpt_last_error());
       ckpt_state_free(&st);

   That leaves runs/a/ep0-ba500-rank0.pt ... and runs/a/latest-rank0.pt, a link to the newest. In Python:

       torch.load("runs/a/latest-rank0.pt")["state"]["model"]["wte"]

   One file, by hand:      ckpt_save("model.safetensors", &st, NULL);
   and back:               ckpt_load_desc l = {0}; l.load_path = "model.safetensors"; l.state = &st; ckpt_load(&l, NULL);


   WHAT BLOCKS
   ===========
       ckpt_bind*                       never
       ckpt_saver_open                  touches the folder; COPY and LAZY also touch a buffer as large as the state
       ckpt_saver_*_end, nothing due    nanoseconds
       ckpt_saver_*_end and save, due   NONE: until the file is durable. COPY: a copy of the state at memory speed, and the
                                        rest of the save before if that is not written yet. LAZY: well under a millisecond
       ckpt_saver_fence                 until the threads have what they need from the bound memory
       ckpt_saver_wait, close           until all is durable, linked and rotated, or the time is up
       ckpt_save, ckpt_load, ckpt_file_verify, ckpt_saver_resume   as long as the disk takes


   SNAPSHOTS
   =========
   CKPT_SNAPSHOT_NONE writes from the bound memory. Nothing is copied when tensors are aligned (64 bytes in memory,
   4096 in the file, where the system allows direct I/O); else a few bounce buffers are used.
   CKPT_SNAPSHOT_COPY keeps one buffer as large as the file, mapped and touched at open and reused for ever. The call
   copies into it with several threads and the checksum folded in; a thread writes it.
   CKPT_SNAPSHOT_LAZY returns at once and lets threads copy, or write straight from the bound memory when
   max_staging_bytes is smaller than the file, while the forward and backward pass only read the weights:

       forward(); backward();
       ckpt_saver_fence(saver);         // before anything that was bound is changed
       optimizer_step();
       ckpt_next_batch(&t, n, 0, dt);
       if (ckpt_saver_batch_end(saver, &t) != CKPT_OK) warn(ckpt_last_error());

   Ints, floats, bools, texts and bytes of up to 64 KiB (an RNG's state) are taken in the call in every mode. In LAZY
   mode all else that is bound, moments and gradients among them, must not change between the save and the fence.
   fork() was measured and left out: each page that training rewrites while the child lives costs more than a copy.


   WHAT IS PROMISED
   ================
       captured -> written -> durable -> linked -> retired

   captured   When the call returns (LAZY: when the fence returns) the checkpoint no longer depends on bound memory.
   written    To a hidden name in the same folder, checksummed on the way.
   durable    fsync(file), rename, fsync(folder). Only now does the checkpoint exist.
   linked     The index names it, then `latest` is replaced by renaming a new link over it.
   retired    Rotation takes a checkpoint from the index, and only then unlinks it, after a newer one is durable.

   At every instant, and after a kill at any instruction: a final name holds a whole file; `latest` names a checkpoint
   that verifies; the newest checkpoint that was reported saved, and not retired, loads. What a killed process leaves
   behind is a hidden temporary file, which the next saver in the folder removes.
   A power cut is as good as a kill where the disk keeps what fsync acknowledged.


   RETENTION
   =========
   Which checkpoints stay is a function of the folder's index alone: the newest num_checkpoints_to_keep; every
   keep_every-th beyond them; the best by keep_best (a NaN is never best); all that are pinned (ckpt_folder_pin, or
   `ckpt pin`). CKPT_KEEP_ALL, the default, deletes nothing. A run that resumes owns, and so rotates, the checkpoints of
   the run that it continues. Freeing the blocks of a deleted file happens on the writer thread.


   RESUMING
   ========
   ckpt_saver_resume looks through the index, or through the folder when the index is lost, takes the newest save,
   verifies while it loads, and walks back to the next older one when that fails. (The newest save is the newest by
   time, unless the loop itself went back: what lies after the point it went back to is then an abandoned future,
   tried last.) What is restored: bound values in place, the timestamp, the saver's own record. It is strict: a name
   that is bound but not in the file is an error, so that a resumed run never starts with half of its state. For
   fine-tuning load first, then resume:

       ckpt_load_desc l = {0};
       l.load_path = "base/latest-rank0.pt"; l.state = &st; l.load_weights_only = true; l.not_strict = true;
       ckpt_load(&l, NULL);                         // the first start takes the base model ...
       ckpt_saver_resume(saver, &t);                // ... a restart takes its own latest instead


   NAMES
   =====
   Templates are Python format strings, as in Composer:

       {run_name}  {rank} {local_rank} {node_rank} {world_size} {local_world_size}
       {epoch} {batch} {sample} {token}  {batch_in_epoch} {sample_in_epoch} {token_in_epoch}
       {total_wct} {epoch_wct} {batch_wct}

   with format specs: "ep{epoch:03d}-ba{batch:07d}.pt". A save interval is "1ep", "500ba", "1_000_000tok", "0.1dur" (of
   max_duration), "30m", "1h30m", "45s", "90sec"; or a callback decides.
   Tensors are named by paths: see >>api.state.


   FILES
   =====
   .pt            What torch.save writes: a stored zip with <stem>/data.pkl (protocol 2), <stem>/data/N, <stem>/version.
                  torch.load reads it, with weights_only=True too. Read: files of this library, of PyTorch and of
                  Composer, by an unpickler that knows a list of types, builds a table and executes nothing.
   .safetensors   Tensors by name; ints, floats, bools and texts in __metadata__. Every rule of the format is checked.
   .tar           composer_states.pt (a .pt as above) and attached files; .tar.gz .tgz .tar.bz2 .tar.lzma (xz inside).
   .pt.gz etc.    .gz .bz2 .lz4 .lzma .lzo .xz .zst after .pt or .safetensors, by the command line tools of those names
                  (pigz for gz where present), which are looked for when the saver is opened, or in-process: OPTIONS.
                  Floats hardly compress, and no compressor here keeps up with a disk: compress for slow storage only.

   Files of this library carry a CRC-32 for each entry and one for all the bytes between entries, so a changed byte
   anywhere is found. A .pt holds numbers in the machine's byte order and says which; .safetensors is little-endian.
   torch.load(weights_only=True) of PyTorch before 2.0 knows no Python floats: bind a float32 or float64 tensor of one
   element instead of ckpt_bind_float where that matters. (The saver's own clocks are stored that way.)

   In a checkpoint folder:  .ckpt-index.jsonl   one JSON line per checkpoint; rebuilt from the files when lost, all but the pins
                            .ckpt-lock          held while a saver is open; holds its process id and host
                            latest-rank0.pt     a relative symbolic link; where links do not work, a one-line text file


   THREADS
   =======
   An object belongs to one thread at a time; different objects may be used at the same time. ckpt_saver_request may be
   called from any thread and from signal handlers. ckpt_last_error is per thread. Each saver has one writer thread;
   large copies, writes and loads use a few more while they run. They block all signals, and call your code
   only through the logger, the allocator and state.copy.


   ERRORS
   ======
   A call returns a ckpt_err; ckpt_last_error() has the sentence: what failed, on which name, why, what to do. Nothing
   prints, exits or aborts. A failed save never harms the checkpoints before it, and training can go on: the
   next *_end returns the failure of the background once, ckpt_saver_close returns the first one ever.


   MEMORY
   ======
   NONE: up to 40 MiB while a save runs. COPY, and LAZY with enough max_staging_bytes: one buffer of the file's size,
   mapped at open. Loading: up to 40 MiB, and a device tensor with gaps between its elements whole. Tables: about 300
   bytes per bound name, and 600 more that a saver keeps from one save to the next. All through the allocator hook, but
   for the buffers, which are mapped from the system (huge pages where it offers them).


   COMPOSER
   ========
   The words, defaults, templates, time strings, interval decisions, conflict rules, rotation counts and ignore globs
   are those of MosaicML Composer (CheckpointSaver, v0.22), checked against tables of its real behaviour. What a Composer
   user may notice:
   - A checkpoint is written aside and renamed; `latest` is replaced atomically and never dangles. (Composer writes in place.)
   - A constant filename with rotation, or a latest name equal to a checkpoint name, cannot lose the checkpoint.
   - A resumed run rotates the checkpoints of the run before. Resuming takes the newest checkpoint that verifies, not
     whatever the link names.
   - The conflict check understands format specs, escapes and sub-folders.
   - Time strings without a unit or digits ("", "5") are refused; "24h", "90m" and "3600s" are accepted.
   - Loading a .pt.gz leaves no unpacked file behind. Names with '#', '?', ';' or ':' in them are just names.
   - num_checkpoints_to_keep: 0 keeps all (zero is always the default here) and -1 none; in Composer -1 keeps all and 0 none.
   - Wall-clock times are stored as seconds (float64 tensors), not as datetime.timedelta: weights_only loading works.
     The saver's record of what it keeps lists counters only.
   - "0.1dur" of a max_duration in seconds or iterations saves too (in Composer it silently saves only at the end).


   OPTIONS (define before the include)
   =======
       CKPT_IMPLEMENTATION        in one file
       CKPT_STATIC                all functions static: several files may each have the implementation
       CKPT_API                   the declarations' prefix, e.g. __attribute__((visibility("default")))
       CKPT_NO_REMOTE             local files only: the headers of libcurl and OpenSSL are not asked for
       CKPT_WITH_ZLIB, CKPT_WITH_ZSTD, CKPT_WITH_LZ4, CKPT_WITH_LZMA, CKPT_WITH_BZIP2
                                  compress in-process with that library (-lz -lzstd -llz4 -llzma -lbz2) instead of by tool
       CKPT_ASSERT(x)             for what cannot happen; default assert

   With -std=c99 and the like, include ckpt.h first in the file with CKPT_IMPLEMENTATION: it needs to ask
   the system headers for POSIX. Compilers' default modes (gnu99, gnu17, C++) do not mind.


   MAP
   ===
       your loop --*_end--> saver --plan--> pt, safetensors, tar        what goes where
                              |---image--> engine                       a snapshot in memory
                              '---write--> file --> codec, engine       aside, synced, renamed
                                            '--> index, latest          then named
       your start --resume--> loader --open--> file --toc--> pt, ...    what lies where
                                                '---read--> engine      straight into bound memory, checksums on the way

   Ways up, the only ones: logger, allocator, progress, state.copy, should_save, barrier.
*/

// >>guard
// Strict modes (-std=c99) hide fsync, lstat and clock_gettime. _DEFAULT_SOURCE is a superset switch: it takes nothing away
// from the includes that follow, unlike _POSIX_C_SOURCE. It must come before the first system header of the file.
#if defined(CKPT_IMPLEMENTATION) && !defined(_WIN32)
    #if defined(__STRICT_ANSI__) && !defined(_DEFAULT_SOURCE)
        #if (defined(__GLIBC__) && !defined(__USE_MISC)) || \
            (defined(_FEATURES_H) && !defined(__GLIBC__) && !defined(_GNU_SOURCE) && !defined(_BSD_SOURCE))
            #error ckpt.h: with -std=c99 the file that defines CKPT_IMPLEMENTATION must include ckpt.h before any system header \
                   (or compile it with -D_DEFAULT_SOURCE, or with -std=gnu99)
        #endif
        #define _DEFAULT_SOURCE 1
    #endif
    #if !defined(_FILE_OFFSET_BITS)
        #define _FILE_OFFSET_BITS 64
    #endif
    #if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
        #define _DARWIN_C_SOURCE 1
    #endif
#endif

#ifndef CKPT_H
#define CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

//------------------------------------------------------------------------------
// >>config     how the functions are declared
//------------------------------------------------------------------------------

#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 1
#define CKPT_VERSION_PATCH 0
#define CKPT_VERSION       "0.1.0"

#if defined(CKPT_STATIC)
    #if defined(__GNUC__)
        #define CKPT__DECL static __attribute__((unused))
    #else
        #define CKPT__DECL static
    #endif
#elif defined(CKPT_API)
    #define CKPT__DECL CKPT_API
#else
    #define CKPT__DECL extern
#endif

#if defined(__GNUC__)
    #define CKPT__MUST_USE __attribute__((warn_unused_result))
#else
    #define CKPT__MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

//------------------------------------------------------------------------------
// >>api.errors
//------------------------------------------------------------------------------

#define CKPT__ERRORS(X)                                                             \
    X(CKPT_OK,          "ok")                                                       \
    X(CKPT_ARG,         "an argument is wrong")                                     \
    X(CKPT_NOMEM,       "out of memory")                                            \
    X(CKPT_IO,          "reading or writing failed")                                \
    X(CKPT_NO_SPACE,    "the disk or quota is full")                                \
    X(CKPT_NOT_FOUND,   "there is no such file, checkpoint or object")              \
    X(CKPT_EXISTS,      "it exists already")                                        \
    X(CKPT_AUTH,        "permission was refused")                                   \
    X(CKPT_NET,         "the network or the server failed")                         \
    X(CKPT_TIMEOUT,     "it took too long")                                         \
    X(CKPT_CORRUPT,     "the data is damaged")                                      \
    X(CKPT_MISMATCH,    "the file and the bound state do not fit together")         \
    X(CKPT_CANCELLED,   "it was cancelled")                                         \
    X(CKPT_UNSUPPORTED, "this is not supported, or was left out of this build")

typedef enum ckpt_err {
#define CKPT__X(name, text) name,
    CKPT__ERRORS(CKPT__X)
#undef CKPT__X
    CKPT__ERR_COUNT
} ckpt_err;

// Every call that can fail returns one of these. Test for CKPT_OK; the others tell classes of failure apart,
// the sentence of ckpt_last_error tells the case.

// "CKPT_IO" for CKPT_IO; "CKPT_?" for a number that is no error. Any thread.
CKPT__DECL const char *ckpt_err_name(ckpt_err e);

// The calling thread's last failure as one sentence: what, which name, why, what to do. Never NULL; "" before
// any failure. Valid until the same thread's next failing call; a call that succeeds leaves it as it was.
CKPT__DECL const char *ckpt_last_error(void);

//------------------------------------------------------------------------------
// >>api.hooks      the user pointer is always last
//------------------------------------------------------------------------------

// All hooks are optional: a zeroed struct switches one off. A hook must not call back into the object that
// called it.

typedef enum ckpt_log_level { CKPT_LOG_DEBUG, CKPT_LOG_INFO, CKPT_LOG_WARN, CKPT_LOG_ERROR } ckpt_log_level;

// Receives one line without a newline. Called on the thread that has something to say, the saver's writer
// thread included; never for one object by two threads at once. Without a logger the library is silent: it
// never writes to stdout or stderr.
typedef struct ckpt_logger {
    void (*fn)(ckpt_log_level level, const char *msg, void *user);
    void *user;
} ckpt_logger;

// realloc with the old size beside it: ptr NULL allocates, new_size 0 frees (the result is ignored), anything
// else resizes. NULL means that there is no memory: the call fails with CKPT_NOMEM and loses nothing. Must be
// callable from any thread. Without it: realloc and free. Snapshot buffers, which are as large as the state,
// are mapped from the system instead.
typedef struct ckpt_allocator {
    void *(*fn)(void *ptr, size_t old_size, size_t new_size, void *user);
    void *user;
} ckpt_allocator;

// How far a save, load or check has come.
typedef struct ckpt_progress {
    const char *phase;          // "save", "load", "verify"
    const char *name;           // the checkpoint's path, valid during the call
    uint64_t    done, total;    // bytes; done never falls and ends at total
    int         attempt;        // 1 for the first try
    bool        finished;
    ckpt_err    err;            // of a finished one
    double      seconds;        // since this transfer began; 0: not known
} ckpt_progress;

// Called a few times a second and once with .finished, only on the thread that called ckpt_load or
// ckpt_saver_*, from inside that call; work of the writer thread is reported by the next call on the saver.
typedef struct ckpt_on_progress {
    void (*fn)(const ckpt_progress *p, void *user);
    void *user;
} ckpt_on_progress;

// Ready-made: a bar with rate and time left on stderr, silent when stderr is no terminal. user is not used:
// { ckpt_progress_bar, NULL }. The one function of this library that prints, and only when it is asked to.
CKPT__DECL void ckpt_progress_bar(const ckpt_progress *p, void *user);

//------------------------------------------------------------------------------
// >>api.time
//------------------------------------------------------------------------------

// Where training stands: counts of COMPLETED units and wall-clock seconds (Composer's Timestamp). Start with
// {0}, move it with the three calls below, hand it to the saver. Filling the fields by hand is as good: what a
// program does not count stays 0.
typedef struct ckpt_timestamp {
    int64_t iteration, epoch, batch, sample, token;
    int64_t epoch_in_iteration, token_in_iteration, batch_in_epoch, sample_in_epoch, token_in_epoch;
    double  total_wct, iteration_wct, epoch_wct, batch_wct;
} ckpt_timestamp;

// A batch of `samples` and `tokens` is done and took `seconds`. Then, when it was the epoch's last,
// ckpt_next_epoch: it counts the epoch and zeroes the *_in_epoch counters; likewise ckpt_next_iteration for an
// iteration of several epochs. Any thread; no errors.
CKPT__DECL void ckpt_next_batch(ckpt_timestamp *t, int64_t samples, int64_t tokens, double seconds);
CKPT__DECL void ckpt_next_epoch(ckpt_timestamp *t, double seconds);
CKPT__DECL void ckpt_next_iteration(ckpt_timestamp *t, double seconds);

// Suffixes in time strings: iter, ep, ba, sp, tok, dur (a fraction of max_duration), sec.
typedef enum ckpt_unit {
    CKPT_ITERATION, CKPT_EPOCH, CKPT_BATCH, CKPT_SAMPLE, CKPT_TOKEN, CKPT_DURATION, CKPT_SECOND
} ckpt_unit;

typedef struct ckpt_time {
    ckpt_unit unit;
    int64_t   value;            // every unit but CKPT_DURATION
    double    fraction;         // CKPT_DURATION only
} ckpt_time;

// Reads "10ep" "500ba" "3e10sp" "1_000tok" "0.1dur" "30sec" "1h20m40s" "90m" (letters of either case in
// suffixes, as Composer).
// CKPT_ARG with a sentence that shows the text: no unit, no digits, a fraction of a unit that is counted, an
// overflow. Any thread.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_time_parse(ckpt_time *out, const char *text);
// Writes what ckpt_time_parse reads ("500ba", "0.5dur"), with a NUL, into buf of cap bytes; 48 are always
// enough.
// CKPT_ARG: buf is NULL or too small, or t.unit is no unit. Any thread.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_time_format(char *buf, size_t cap, ckpt_time t);

//------------------------------------------------------------------------------
// >>api.names
//------------------------------------------------------------------------------

// Which process of a job this is. world_size 0: read RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and
// NODE_RANK, or what Open MPI (OMPI_COMM_WORLD_*), PMI (PMI_*) or SLURM (SLURM_*) set when those are absent;
// one process when nothing is set. The three functions are all given or all NULL. They are called by every rank
// in the same order, on the thread that called the saver; anything but CKPT_OK from them makes that call fail.
// Without them ranks never wait for each other.
typedef struct ckpt_ranks {
    int rank, world_size, local_rank, local_world_size, node_rank;
    ckpt_err (*barrier)(void *user);
    ckpt_err (*allreduce_min)(int64_t *values, int count, void *user);
    ckpt_err (*broadcast)(void *bytes, size_t size, int root, void *user);
    void *user;
} ckpt_ranks;

// An extra {name} and its text. Names of the built-in variables are refused.
typedef struct ckpt_name_var { const char *name, *text; } ckpt_name_var;

typedef struct ckpt_name_desc {
    const char           *run_name;         // NULL: {run_name} stays as it is
    const ckpt_timestamp *timestamp;        // NULL: the time variables stay as they are
    const ckpt_ranks     *ranks;            // NULL: from the environment
    const ckpt_name_var  *extra;
    int                   extra_count;
} ckpt_name_desc;

// Fills a name like Python's str.format, as Composer does it: {run_name} {rank} {local_rank} {world_size}
// {local_world_size} {node_rank}; with a timestamp {epoch} {batch} {sample} {token} {batch_in_epoch}
// {sample_in_epoch} {token_in_epoch} {total_wct} {epoch_wct} {batch_wct}; format specs ({epoch:03d}),
// conversions ({x!r}), {{ and }}. A variable that is not known keeps its text, so a name can be filled in
// steps. buf gets at most cap bytes, NUL included, and nothing when it does not fit.
// CKPT_ARG: what str.format calls a ValueError, a bad rank variable in the environment, a buffer that is too
// small. Any thread.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_format_name(char *buf, size_t cap, const char *format, const ckpt_name_desc *desc);

//------------------------------------------------------------------------------
// >>api.state
//------------------------------------------------------------------------------

// Names bound to the caller's memory. The same table saves and loads, so nothing is written twice and nothing
// is forgotten.
//
// A name is a path, '/' between levels, laid out as Composer lays out a checkpoint: "state/model/<parameter>",
// "state/optimizers/AdamW/...", "rng/...". In a .pt each level is a dict, so
// torch.load(f)["state"]["model"]["wte"] is the tensor bound as "state/model/wte". A level written "[0]" "[1]"
// ... is a Python list; loading takes it with or without brackets. Reserved, because the library writes them:
// state/timestamp, state/run_name, state/callbacks/CheckpointSaver.

typedef enum ckpt_dtype {
    CKPT_F64 = 1, CKPT_F32, CKPT_F16, CKPT_BF16, CKPT_F8_E4M3, CKPT_F8_E5M2,
    CKPT_I64, CKPT_I32, CKPT_I16, CKPT_I8, CKPT_U64, CKPT_U32, CKPT_U16, CKPT_U8, CKPT_BOOL, CKPT_C64, CKPT_C128
} ckpt_dtype;

#define CKPT_MAX_DIMS 8

typedef struct ckpt_tensor {
    ckpt_dtype dtype;
    int        ndim;                    // 0: one element
    int64_t    shape[CKPT_MAX_DIMS];    // row-major, contiguous; a 0 means no elements, and data may be NULL
    void      *data;                    // host address; a device address when .device
    bool       device;                  // moved through ckpt_state.copy
    int64_t    global_shape[CKPT_MAX_DIMS], offset[CKPT_MAX_DIMS];  // a piece of a sharded tensor: not yet, must be 0
} ckpt_tensor;

// Zero-initialise it (ckpt_state st = {0}), set the hooks if any, bind. Owned by the caller; one thread at a
// time. Several savers may share one state. While a saver is open the bound memory must stay where it is;
// binding more between two saves is fine.
typedef struct ckpt_state {
    uint32_t       _canary;             // must stay 0: catches a struct that was not zero-initialised
    ckpt_allocator allocator;
    // Moves `size` bytes between host and device, for tensors with .device. Called on threads of the library,
    // one at a time for each saver or load (a CUDA copy sets its device first); savers that share a state may
    // overlap.
    ckpt_err     (*copy)(void *dst, const void *src, size_t size, bool to_device, void *user);
    void          *copy_user;
    struct ckpt__binding *items;        // private from here on
    int            count, capacity;
    ckpt_err       err;
    struct ckpt__binds *binds;      // private: name table and the sentence of a bind that failed
} ckpt_state;

// Each binds one name; the name is copied, the data is not and must outlive its use. A bind that fails (a name
// that is empty, twice, reserved, not UTF-8, or both a value and a level; a NULL address; a shape that
// overflows; no memory) is kept in the state and reported by every later save or load with its sentence, so
// there is nothing to check line by line.

// A tensor; *t is copied.
CKPT__DECL void ckpt_bind(ckpt_state *st, const char *name, const ckpt_tensor *t);
// Short for a one-dimensional CKPT_F32 tensor of `count` elements.
CKPT__DECL void ckpt_bind_f32(ckpt_state *st, const char *name, float *data, int64_t count);
// A Python int, float and bool in a .pt. Loading takes what fits without loss: an int also from a bool, a float
// also from an int of up to 2^53, and each from a tensor of one element (torch keeps Adam's step as one).
CKPT__DECL void ckpt_bind_int(ckpt_state *st, const char *name, int64_t *value);
CKPT__DECL void ckpt_bind_float(ckpt_state *st, const char *name, double *value);
CKPT__DECL void ckpt_bind_bool(ckpt_state *st, const char *name, bool *value);
// NUL-terminated UTF-8 in a buffer of cap bytes; a Python str in a .pt. A longer text in the file is
// CKPT_MISMATCH.
CKPT__DECL void ckpt_bind_text(ckpt_state *st, const char *name, char *buf, size_t cap);
// `size` opaque bytes, e.g. an RNG state or a struct: taken as they lie in memory, so only for machines of one
// kind.
CKPT__DECL void ckpt_bind_bytes(ckpt_state *st, const char *name, void *data, size_t size);
// A file that travels in the checkpoint: only in the .tar kinds (CKPT_UNSUPPORTED elsewhere). Saving reads the
// file at `path`, loading writes it there again, whole or absent. The path is copied.
CKPT__DECL void ckpt_bind_file(ckpt_state *st, const char *name, const char *path);
// Frees the table, not the bound memory, and leaves the state empty and usable. NULL is fine.
CKPT__DECL void ckpt_state_free(ckpt_state *st);

//------------------------------------------------------------------------------
// >>api.file
//------------------------------------------------------------------------------

// Writes one checkpoint and returns when it is durable: written aside in the same folder, checksummed on the
// way, synced, renamed over what was there, the folder synced. Whatever happens in between, `path` holds the
// old file or the new one, whole.
// path: its ending chooses the container (.pt, also for any other ending; .safetensors; .tar holding a .pt) and
// the compression (.pt.gz .bz2 .lz4 .lzma .lzo .xz .zst, the same after .safetensors; .tar.gz .tgz .tar.bz2
// .tar.lzma). Missing folders are made.
// t: stored with it; NULL stores none. Blocks until done; several threads write big states. Any thread, if
// nobody changes the state.
// CKPT_ARG, CKPT_NO_SPACE, CKPT_IO, CKPT_AUTH (no permission), CKPT_NOMEM, CKPT_UNSUPPORTED (no such
// compression here), and what st->copy returned.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_save(const char *path, const ckpt_state *st, const ckpt_timestamp *t);

typedef struct ckpt_load_desc {
    uint32_t           _canary;                 // must stay 0
    const char        *load_path;               // required: a file, a link, "x.symlink"; when nothing of that very
                                                // name is there, {run_name} and {rank} (0) are filled in
    ckpt_state        *state;                   // required: filled in place
    bool               load_weights_only;       // only names under state/model/
    bool               not_strict;              // missing and unexpected names pass; same name, other shape never
    bool               no_verify;               // skip the checksums
    const char *const *load_ignore_keys;        // Composer's globs over names, '*' crosses '/': {"state/optimizers/*"}
    int                load_ignore_keys_count;
    ckpt_ranks         ranks;
    const char        *run_name;                // for {run_name} in load_path; default: COMPOSER_RUN_NAME, RUN_NAME
    ckpt_logger        logger;
    ckpt_on_progress   progress;
    ckpt_allocator     allocator;
} ckpt_load_desc;

// Fills the bound memory from a checkpoint: ours, or a .pt that PyTorch or Composer wrote, or any .safetensors.
// The file's content tells its kind, not its name. at (may be NULL): the stored timestamp, zeros when there is
// none or for weights only. First everything is compared: names, kinds, dtypes, shapes. CKPT_MISMATCH leaves
// bound memory untouched and names what differs. Then tensors are read straight into place, with several
// threads, checksums verified on the way: CKPT_CORRUPT names the damaged entry, and bound memory must then be
// taken as garbage (load another checkpoint, as ckpt_saver_resume does by itself). Names in the file that only
// this library or other ranks use are never unexpected. Nothing in a file is ever executed.
// CKPT_NOT_FOUND, CKPT_CORRUPT, CKPT_MISMATCH, CKPT_ARG, CKPT_IO, CKPT_NOMEM, CKPT_UNSUPPORTED. Blocks. Any
// thread.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_load(const ckpt_load_desc *desc, ckpt_timestamp *at);

typedef enum ckpt_kind {
    CKPT_KIND_TENSOR = 1, CKPT_KIND_INT, CKPT_KIND_FLOAT, CKPT_KIND_BOOL, CKPT_KIND_TEXT, CKPT_KIND_BYTES,
    CKPT_KIND_NONE,             // Python's None, an empty dict or an empty list
    CKPT_KIND_FILE,             // a file attached to a .tar
    CKPT_KIND_OTHER             // an object of a type that this reader does not know: kept as a name only
} ckpt_kind;

typedef struct ckpt_entry {
    const char *name;           // owned by the file, until ckpt_file_close
    ckpt_kind   kind;
    ckpt_tensor tensor;         // kind TENSOR: dtype, ndim, shape; data is NULL
    uint64_t    size;           // bytes that ckpt_file_read can read
    uint32_t    checksum;       // CRC-32 of the stored bytes
    bool        has_checksum;
} ckpt_entry;

typedef struct ckpt_file ckpt_file;     // looking inside without binding: tools, partial reads

// Opens a checkpoint file of any kind that ckpt_load reads. A compressed one is unpacked into an unnamed
// temporary file first. *out is NULL after a failure. Errors as ckpt_load. The object belongs to one thread at
// a time.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_file_open(ckpt_file **out, const char *path);
// Number of entries; 0 for NULL. Levels of nested dicts are no entries, their leaves are.
CKPT__DECL int      ckpt_file_count(const ckpt_file *f);
// Describes entry `index`, in file order. CKPT_ARG: no such index.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_file_entry(const ckpt_file *f, int index, ckpt_entry *out);
// Copies bytes [offset, offset + size) of an entry's value to dst: a tensor row-major whatever its strides in
// the file; an int as int64_t, a float as double, a bool as one byte, text without a NUL. Not verified: call
// ckpt_file_verify first where that matters.
// CKPT_ARG: the range reaches past ckpt_entry.size; CKPT_UNSUPPORTED: the kind has no bytes (NONE, OTHER).
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_file_read(ckpt_file *f, int index, uint64_t offset, void *dst, size_t size);
// Reads the whole file and checks every checksum in constant memory. CKPT_CORRUPT: the sentence names the bad
// entry. In files of this library a changed byte anywhere is found; files of others are covered as far as their
// own checksums go. Blocks.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_file_verify(ckpt_file *f);
// NULL is fine.
CKPT__DECL void     ckpt_file_close(ckpt_file *f);

// Makes `destination` lead to the file that path names (Composer's get_file): a symbolic link to its absolute
// path. A path that ends in ".symlink" is a text file that holds the real path, relative to its own folder; it
// is followed, up to 8 times, and it is tried when `path` itself is missing. CKPT_EXISTS: destination exists
// and overwrite is off. CKPT_NOT_FOUND names what was asked for.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_get_file(const char *path_or_uri, const char *destination, bool overwrite);
// Writes a text file that names `target`, for ckpt_get_file and ckpt_load to follow. path must end in
// ".symlink" (CKPT_ARG) and must not exist (CKPT_EXISTS).
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_create_symlink_file(const char *target, const char *path);
// CKPT_EXISTS when the folder or a folder below it holds a file, hidden ones not counted. A missing folder is
// empty.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_ensure_folder_is_empty(const char *folder);
// CKPT_EXISTS when the folder holds a file that matches the template `filename` and whose counters are later
// than desc->timestamp: saving on would mix two histories. The saver calls it by itself unless its `overwrite`
// is on. Composer's rule: any one counter later is a conflict; *_in_epoch counters count only in the same
// epoch.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_ensure_folder_has_no_conflicting_files(const char *folder, const char *filename,
                                                                                const ckpt_name_desc *desc);

//------------------------------------------------------------------------------
// >>api.saver
//------------------------------------------------------------------------------

#define CKPT_NONE      ""               // switches a default name off (Composer's None)
#define CKPT_KEEP_ALL  0
#define CKPT_KEEP_NONE (-1)             // delete each once handed on (Composer's 0); local folder alone: at once

// The moments at which Composer considers a checkpoint.
typedef enum ckpt_event { CKPT_BATCH_CHECKPOINT, CKPT_EPOCH_CHECKPOINT, CKPT_ITERATION_CHECKPOINT } ckpt_event;

typedef enum ckpt_snapshot {
    CKPT_SNAPSHOT_NONE,         // the call writes the file before it returns
    CKPT_SNAPSHOT_COPY,         // the call copies the state to a reused buffer; a thread writes it
    CKPT_SNAPSHOT_LAZY          // the call only notes names and scalars; threads copy while the forward and
                                // backward pass run; ckpt_saver_fence before the optimizer changes anything
} ckpt_snapshot;

// All strings are copied by ckpt_saver_open.
typedef struct ckpt_saver_desc {
    uint32_t           _canary;                 // must stay 0
    ckpt_state        *state;                   // required
    const char        *run_name;                // default: COMPOSER_RUN_NAME, RUN_NAME, else generated
    const char        *folder;                  // default "{run_name}/checkpoints"
    const char        *filename;                // default "ep{epoch}-ba{batch}-rank{rank}.pt"; may hold sub-folders;
                                                // the variables of ckpt_format_name (there is no {iteration})
    const char        *latest_filename;         // default "latest-rank{rank}.pt"; CKPT_NONE: no link
    const char        *save_interval;           // default "1ep"; "500ba" "1h30m" "0.1dur"; a bare integer counts epochs;
                                                // 0 or less: only by ckpt_saver_save and _request
    bool             (*should_save)(const ckpt_timestamp *t, ckpt_event event, void *user); // instead of save_interval
    void              *should_save_user;
    const char        *max_duration;            // "10ep", "20000ba": for "dur" intervals and the save at the end
    int64_t            batches_per_epoch;       // for "dur" intervals when max_duration is in epochs
    bool               overwrite;               // default: files of a later time in the folder are an error
    int                num_checkpoints_to_keep; // CKPT_KEEP_ALL (default), CKPT_KEEP_NONE, or the newest N
    int                keep_every;              // beyond the newest N, every Nth checkpoint for ever (0: none)
    const char        *keep_best;               // a bound float, "min:state/metrics/loss": the best one is kept too
    bool               weights_only;            // only names under state/model/
    const char *const *ignore_keys;             // globs over names that are left out, as in ckpt_load_desc
    int                ignore_keys_count;
    ckpt_snapshot      snapshot;                // default CKPT_SNAPSHOT_NONE
    size_t             max_staging_bytes;       // of the snapshot (0: what the state needs); see SNAPSHOTS
    ckpt_ranks         ranks;
    ckpt_logger        logger;
    ckpt_on_progress   progress;
    ckpt_allocator     allocator;
} ckpt_saver_desc;

// An open saver. After fork() only the parent may use it.
typedef struct ckpt_saver ckpt_saver;
// Opens a saver and checks now what could go wrong later: names, interval, compression tools, the folder (made
// when missing, must be writable, must not be in use by another saver: CKPT_EXISTS names it). COPY and LAZY
// allocate and touch their buffer here. *out is NULL after a failure. The object belongs to one thread at a
// time, except where ckpt_saver_request says otherwise.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_open(ckpt_saver **out, const ckpt_saver_desc *desc);
// Loads the newest checkpoint of the folder that verifies, strictly, into the bound state; *at (may be NULL)
// gets its timestamp. A damaged one is left where it is, reported to the logger, and the next older one is
// tried. From then on the saver owns the folder's checkpoints: it rotates them and goes on where they end. A
// checkpoint file that lies where the latest link belongs (a copy made by hand) gets the name of its time
// first.
// CKPT_NOT_FOUND: the folder has none, a fresh start; *at and the state are untouched. CKPT_CORRUPT: there are
// some but none verifies; bound memory may be garbage. CKPT_MISMATCH: the newest does not fit the binding. Call
// it before the first save.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_resume(ckpt_saver *s, ckpt_timestamp *at);
// Call each at the end of its unit, the timestamp already moved on; a checkpoint is saved when it is due, never
// twice for one batch count. Nothing due: nanoseconds. Due: NONE blocks until the file is durable; COPY for a
// copy of the state (and for the save before, if that is still being written); LAZY for well under a
// millisecond, some more with very many names. A failure of the background is returned once, by the next of
// these calls or by wait, and the saver goes on; the previous checkpoint and `latest` stay as they were.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_batch_end(ckpt_saver *s, const ckpt_timestamp *t);
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_epoch_end(ckpt_saver *s, const ckpt_timestamp *t);
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_iteration_end(ckpt_saver *s, const ckpt_timestamp *t);
// Saves now, due or not, in the saver's snapshot mode. Blocking and errors as above.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_save(ckpt_saver *s, const ckpt_timestamp *t);
// LAZY: blocks until the bound memory may change again. Call it before the optimizer step; without a running
// snapshot, and in the other modes, it returns at once. The next *_end and save fence by themselves.
CKPT__DECL ckpt_err ckpt_saver_fence(ckpt_saver *s);
// Asks for a checkpoint at the next *_end, due or not. Any thread, and async-signal-safe: meant for SIGTERM and
// SIGUSR1 handlers.
CKPT__DECL void     ckpt_saver_request(ckpt_saver *s);
// The checkpoints that the saver keeps (Composer's saved_checkpoints), oldest first, durable ones only. Returns
// how many; *paths (may be NULL) is valid until the next call on the saver.
CKPT__DECL int      ckpt_saver_checkpoints(const ckpt_saver *s, const char *const **paths);
// Blocks until all that was asked for is durable, linked and rotated. timeout_s 0: no limit; else CKPT_TIMEOUT,
// and the work goes on. Returns a background failure that was not returned yet.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_wait(ckpt_saver *s, double timeout_s);
// Waits as ckpt_saver_wait, then frees the saver; the state stays. Returns the first failure ever, also one
// that was returned before.
// CKPT_TIMEOUT: the saver stays open and valid, call again. NULL: CKPT_OK.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_saver_close(ckpt_saver *s, double timeout_s);

//------------------------------------------------------------------------------
// >>api.folder     a folder of checkpoints from outside, for tools; a training program needs only the saver
//------------------------------------------------------------------------------

typedef struct ckpt_folder_desc {
    uint32_t           _canary;         // must stay 0
    const char        *folder;          // required
    ckpt_logger        logger;
    ckpt_on_progress   progress;        // of the checks that gc, verify and remove make
    ckpt_allocator     allocator;
} ckpt_folder_desc;

typedef struct ckpt_checkpoint {
    const char    *name;                // below the folder; texts are the folder's, until it is changed or closed
    const char    *path;
    const char    *latest;              // name of the link that leads to it; NULL: none does
    ckpt_timestamp timestamp;
    double         saved_at;            // seconds since 1970
    uint64_t       number;              // how many-th save of its run it is; 0: unknown
    uint64_t       size;                // bytes of the file as it is now
    uint64_t       recorded_size;       // bytes when it was saved; 0: not in the index
    uint32_t       checksum;            // CRC-32 of the whole file
    double         metric;              // value of keep_best
    bool           has_checksum, has_metric;
    bool           pinned;              // never rotated, never removed
    bool           damaged;             // an earlier look found that it does not verify
    bool           abandoned;           // the run went back before it and saved again
    bool           missing;             // the index has it, the folder has not
    bool           foreign;             // not known to be of this library (a compressed file that is not in the
                                        // index is not opened to find out): listed, never removed by itself
} ckpt_checkpoint;

typedef struct ckpt_folder ckpt_folder;

// Looks at what the folder holds: its index, and the files that the index does not know. Changes nothing; a
// saver may be at work.
// CKPT_NOT_FOUND: no such folder. The object belongs to one thread at a time and is a view of the moment of
// opening.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_folder_open(ckpt_folder **out, const ckpt_folder_desc *desc);
// Number of checkpoints; 0 for NULL.
CKPT__DECL int      ckpt_folder_count(const ckpt_folder *f);
// Describes one, the oldest save first. CKPT_ARG: no such index.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_folder_entry(const ckpt_folder *f, int index, ckpt_checkpoint *out);
// Index of the checkpoint that a name below the folder, or any path to it, also through links, leads to; -1:
// none of these.
CKPT__DECL int      ckpt_folder_find(const ckpt_folder *f, const char *name);
// Reads all of it and checks every checksum, as ckpt_file_verify; the index remembers the outcome where it may
// be written.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_folder_verify(ckpt_folder *f, int index);
// Keeps a checkpoint for ever, or lets it go again. A live saver of the folder takes notice at its next save.
// CKPT_UNSUPPORTED: a foreign file.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_folder_pin(ckpt_folder *f, int index, bool pinned);
// Deletes one. A link that leads to it moves to the newest one left that verifies, before the file goes; with
// none left it is removed. Indices after it change. CKPT_ARG: it is pinned. CKPT_EXISTS: a saver has the folder
// open.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_folder_remove(ckpt_folder *f, int index);

typedef struct ckpt_gc_desc {
    uint32_t    _canary;                // must stay 0
    int         num_checkpoints_to_keep; // CKPT_KEEP_ALL (default): none is too old; else the newest N, at least 1
    int         keep_every;             // beyond those, every Nth save (0: none)
    const char *keep_best;              // "min" or "max": the best recorded metric stays too
    bool        damaged;                // delete what is known to be damaged
    bool        dry_run;                // report only
    void      (*removed)(const char *name, uint64_t size, void *user); // once per file
    void       *user;
} ckpt_gc_desc;

// Tidies a folder: deletes the hidden files of killed savers and what the rules above let go, brings the index
// up to what is there, and leads links that lead nowhere, or to a damaged one, to the newest checkpoint that
// verifies. Pinned and foreign files stay; nothing is deleted unless one that stays verifies (CKPT_CORRUPT).
// CKPT_EXISTS: a saver has the folder open.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_folder_gc(ckpt_folder *f, const ckpt_gc_desc *desc);
// NULL is fine.
CKPT__DECL void     ckpt_folder_close(ckpt_folder *f);

// Opens one file, checks every checksum, closes it. Errors as ckpt_file_open and ckpt_file_verify. progress may
// be NULL.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_verify(const char *path, const ckpt_on_progress *progress);

typedef struct ckpt_convert_desc {
    uint32_t           _canary;         // must stay 0
    const char        *from, *to;       // required; the ending of `to` says what it becomes, as in ckpt_save
    bool               overwrite;       // default: CKPT_EXISTS when `to` exists
    bool               no_verify;       // do not check `from` first
    ckpt_logger        logger;          // a line (WARN) for each value that the new kind of file cannot hold
    ckpt_on_progress   progress;
    ckpt_allocator     allocator;
} ckpt_convert_desc;

// Writes a checkpoint again in another container or compression, durably, in little memory whatever its size.
// Within one kind of container the bytes stay the same, so any file can be packed and unpacked; from one to
// another every tensor and value is carried over by name. Values of no kind (None, objects of unknown types)
// are left out.
CKPT__DECL CKPT__MUST_USE ckpt_err ckpt_convert(const ckpt_convert_desc *desc);

#ifdef __cplusplus
} // extern "C"
#endif

#endif // CKPT_H

//------------------------------------------------------------------------------
// >>implementation
//------------------------------------------------------------------------------

#if defined(CKPT_IMPLEMENTATION) && !defined(CKPT__IMPLEMENTED)
#define CKPT__IMPLEMENTED

#if !defined(CKPT_NO_REMOTE) && defined(__has_include)
    #if !__has_include(<curl/curl.h>)
        #error ckpt.h: curl/curl.h not found: install libcurl4-openssl-dev (Debian), libcurl-devel (Fedora) or curl (Homebrew), \
               or define CKPT_NO_REMOTE for local files only
    #elif !__has_include(<openssl/evp.h>)
        #error ckpt.h: openssl/evp.h not found: install libssl-dev (Debian), openssl-devel (Fedora) or openssl (Homebrew), \
               or define CKPT_NO_REMOTE for local files only
    #endif
#endif

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CKPT_ASSERT
    #include <assert.h>
    #define CKPT_ASSERT(x) assert(x)
#endif

#if defined(__cplusplus)
    #define CKPT__THREAD_LOCAL thread_local
#elif defined(_MSC_VER)
    #define CKPT__THREAD_LOCAL __declspec(thread)
#else
    #define CKPT__THREAD_LOCAL __thread
#endif

#if defined(__GNUC__)
    #define CKPT__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
    #define CKPT__PRINTF(fmt, args)
#endif

//------------------------------------------------------------------------------
// >>error      [A]  the thread's last failure as a sentence; log lines
//
// uses:    nothing
// threads: any; the record is per thread, so a worker's failure must be carried to the
//          owner's thread with ckpt__error_take and ckpt__error_put
//------------------------------------------------------------------------------

enum { CKPT__ERROR_MAX = 1024 };

typedef struct ckpt__error_record {
    ckpt_err code;
    char     text[CKPT__ERROR_MAX];
} ckpt__error_record;

static CKPT__THREAD_LOCAL ckpt__error_record ckpt__error_last;

// "CKPT_IO" for CKPT_IO.
static const char *ckpt__error_name(ckpt_err e) {
    switch (e) {
#define CKPT__X(name, text) case name: return #name;
        CKPT__ERRORS(CKPT__X)
#undef CKPT__X
        default: return "CKPT_?";
    }
}

// Cuts a sentence that did not fit at a whole UTF-8 character, so that what is left is still text.
static void ckpt__error_trim(char *text, size_t len) {
    while (len > 0 && ((unsigned char)text[len - 1] & 0xC0) == 0x80) len--;
    if (len > 0 && (unsigned char)text[len - 1] >= 0xC0) len--;
    text[len] = 0;
}

CKPT__PRINTF(2, 3)
static ckpt_err ckpt__error_set(ckpt_err code, const char *fmt, ...) {
    ckpt__error_record *r = &ckpt__error_last;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
    if (n >= (int)sizeof r->text) ckpt__error_trim(r->text, sizeof r->text - 1);
    r->code = code;
    return code;
}

// Puts "prefix: " before the current sentence and returns `code`, so that a layer can say what it was doing. OK passes through.
CKPT__PRINTF(2, 3)
static ckpt_err ckpt__error_prefix(ckpt_err code, const char *fmt, ...) {
    if (code == CKPT_OK) return CKPT_OK;
    char head[CKPT__ERROR_MAX], tail[CKPT__ERROR_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(head, sizeof head, fmt, args);
    va_end(args);
    if (n >= (int)sizeof head) ckpt__error_trim(head, sizeof head - 1);
    memcpy(tail, ckpt__error_last.text, sizeof tail);
    return ckpt__error_set(code, "%s: %s", head, tail);
}

// Copies this thread's record out, for another thread or for after some cleaning up.
static void ckpt__error_take(ckpt__error_record *out) {
    *out = ckpt__error_last;
}

static ckpt_err ckpt__error_put(const ckpt__error_record *r) {
    if (r->code != CKPT_OK) ckpt__error_last = *r;
    return r->code;
}

CKPT__PRINTF(3, 4)
static void ckpt__error_log(const ckpt_logger *logger, ckpt_log_level level, const char *fmt, ...) {
    if (logger == NULL || logger->fn == NULL) return;
    char text[CKPT__ERROR_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= (int)sizeof text) ckpt__error_trim(text, sizeof text - 1);
    logger->fn(level, text, logger->user);
}

//------------------------------------------------------------------------------
// >>memory     [B]  the allocator hook, growing arrays, a byte buffer with a sticky failure
//
// uses:    error
// threads: whoever owns the object; nothing is shared
//------------------------------------------------------------------------------

static ckpt_err ckpt__mem_fail(size_t size) {
    return ckpt__error_set(CKPT_NOMEM, "out of memory: %llu bytes were refused", (unsigned long long)size);
}

// realloc with the old size beside it: new_size 0 frees. NULL leaves the old block as it was and sets the sentence.
static void *ckpt__mem_resize(const ckpt_allocator *a, void *ptr, size_t old_size, size_t new_size) {
    void *p;
    if (a->fn != NULL) {
        p = a->fn(ptr, old_size, new_size, a->user);
    } else if (new_size == 0) {
        free(ptr);
        return NULL;
    } else {
        p = realloc(ptr, new_size);
    }
    if (p == NULL && new_size != 0) (void)ckpt__mem_fail(new_size);
    return p;
}

// Zeroed memory.
static void *ckpt__mem_alloc(const ckpt_allocator *a, size_t size) {
    void *p = ckpt__mem_resize(a, NULL, 0, size);
    if (p != NULL) memset(p, 0, size);
    return p;
}

static void ckpt__mem_free(const ckpt_allocator *a, void *ptr, size_t size) {
    if (ptr != NULL) (void)ckpt__mem_resize(a, ptr, size, 0);
}

static char *ckpt__mem_copy_text(const ckpt_allocator *a, const char *text) {
    size_t size = strlen(text) + 1;
    char *p = (char *)ckpt__mem_resize(a, NULL, 0, size);
    if (p != NULL) memcpy(p, text, size);
    return p;
}

static void ckpt__mem_free_text(const ckpt_allocator *a, char *text) {
    if (text != NULL) ckpt__mem_free(a, text, strlen(text) + 1);
}

// Makes room for `need` items in all, at least doubling, so that adding one at a time stays linear. What the new room holds is
// undefined: pages that are never used are never touched.
static ckpt_err ckpt__mem_room(const ckpt_allocator *a, void **items, size_t item_size, size_t *capacity, size_t need) {
    if (need <= *capacity) return CKPT_OK;
    size_t cap = *capacity < 8 ? 8 : *capacity;
    while (cap < need) {
        if (cap > SIZE_MAX / 2 / item_size) return ckpt__mem_fail(SIZE_MAX);
        cap *= 2;
    }
    void *p = ckpt__mem_resize(a, *items, *capacity * item_size, cap * item_size);
    if (p == NULL) return CKPT_NOMEM;
    *items = p;
    *capacity = cap;
    return CKPT_OK;
}

// The same with the new room zeroed.
static ckpt_err ckpt__mem_grow(const ckpt_allocator *a, void **items, size_t item_size, size_t *capacity, size_t need) {
    size_t before = *capacity;
    ckpt_err e = ckpt__mem_room(a, items, item_size, capacity, need);
    if (e == CKPT_OK && *capacity > before) memset((char *)*items + before * item_size, 0, (*capacity - before) * item_size);
    return e;
}

//-- buffer ----------------------------------------------------------------------

// Bytes that grow. The first failure sticks: later calls do nothing, so a writer checks `err` once, at its end.
typedef struct ckpt__buf {
    ckpt_allocator allocator;
    char          *data;
    size_t         len, cap;
    ckpt_err       err;
} ckpt__buf;

static void ckpt__buf_init(ckpt__buf *b, const ckpt_allocator *a) {
    memset(b, 0, sizeof *b);
    if (a != NULL) b->allocator = *a;
}

static void ckpt__buf_free(ckpt__buf *b) {
    ckpt__mem_free(&b->allocator, b->data, b->cap);
    b->data = NULL;
    b->len = b->cap = 0;
}

// Room for `more` bytes behind the end and one for a NUL; NULL after a failure. Does not move the end.
static char *ckpt__buf_reserve(ckpt__buf *b, size_t more) {
    if (b->err != CKPT_OK) return NULL;
    if (more > SIZE_MAX / 4 - b->len) { b->err = ckpt__mem_fail(more); return NULL; }
    size_t need = b->len + more + 1;
    if (need > b->cap) {
        size_t cap = b->cap < 64 ? 64 : b->cap;
        while (cap < need) cap *= 2;
        char *p = (char *)ckpt__mem_resize(&b->allocator, b->data, b->cap, cap);
        if (p == NULL) { b->err = CKPT_NOMEM; return NULL; }
        b->data = p;
        b->cap = cap;
    }
    return b->data + b->len;
}

static void ckpt__buf_add(ckpt__buf *b, const void *bytes, size_t size) {
    char *p = ckpt__buf_reserve(b, size);
    if (p == NULL) return;
    if (size > 0) memcpy(p, bytes, size);
    b->len += size;
}

static void ckpt__buf_byte(ckpt__buf *b, unsigned value) {
    char *p = ckpt__buf_reserve(b, 1);
    if (p == NULL) return;
    *p = (char)(unsigned char)value;
    b->len++;
}

static void ckpt__buf_text(ckpt__buf *b, const char *text) {
    ckpt__buf_add(b, text, strlen(text));
}

CKPT__PRINTF(2, 3)
static void ckpt__buf_fmt(ckpt__buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *p = n < 0 ? NULL : ckpt__buf_reserve(b, (size_t)n);
    if (p == NULL) return;
    va_start(args, fmt);
    (void)vsnprintf(p, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
}

static void ckpt__buf_fill(ckpt__buf *b, int value, size_t count) {
    char *p = ckpt__buf_reserve(b, count);
    if (p == NULL) return;
    memset(p, value, count);
    b->len += count;
}

// Little-endian integers of 2, 4 and 8 bytes, whatever the machine's own order.
static void ckpt__buf_le(ckpt__buf *b, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) ckpt__buf_byte(b, (unsigned)(value >> (8 * i)) & 255u);
}

// The contents as a C string, NUL behind the end; "" after a failure (check err).
static const char *ckpt__buf_cstr(ckpt__buf *b) {
    char *p = ckpt__buf_reserve(b, 0);
    if (p == NULL) return "";
    *p = 0;
    return b->data;
}

static uint64_t ckpt__mem_le(const void *p, int bytes) {
    const unsigned char *u = (const unsigned char *)p;
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | u[i];
    return v;
}


//------------------------------------------------------------------------------
// >>platform   [C]  files, folders, locks, threads, clocks, random bytes, child processes
//
// uses:    error memory
// threads: any, on different descriptors and objects; nothing is kept between calls
//
// The only section that knows the operating system. Every system call goes through CKPT__SYS,
// so that a test can define it before the include and make any call fail:
//     #define CKPT__SYS(name) fault_##name
// Calls interrupted by a signal are repeated, short reads and writes are finished, and a
// failure leaves the sentence "cannot <verb> <path>: <reason>". Descriptors are close-on-exec
// and never 0, 1 or 2: in a process that closed those, a stray printf would land in a checkpoint.
//------------------------------------------------------------------------------

#if defined(_WIN32)
    #error "ckpt.h: the implementation needs a POSIX system (Linux, macOS, BSD); on Windows, build it under WSL"
#endif

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
    #include <sys/syscall.h>
#elif defined(__APPLE__)
    #include <crt_externs.h>
    #include <sys/random.h>
#endif

#ifndef CKPT__SYS
    #define CKPT__SYS(name) name
#endif

// Strict modes hide the names of a few Linux flags; their values are part of the kernel's interface.
#if defined(__linux__)
    #if !defined(O_DIRECT) && defined(__O_DIRECT)
        #define CKPT__O_DIRECT __O_DIRECT
    #elif defined(O_DIRECT)
        #define CKPT__O_DIRECT O_DIRECT
    #endif
    #if !defined(O_TMPFILE) && defined(__O_TMPFILE)
        #define CKPT__O_TMPFILE (__O_TMPFILE | O_DIRECTORY)
    #elif defined(O_TMPFILE)
        #define CKPT__O_TMPFILE O_TMPFILE
    #endif
#endif

enum {
    CKPT__OS_CHUNK = 1 << 30,           // bytes per read or write call: Linux moves at most 2 GiB - 4 KiB, macOS refuses 2 GiB
    CKPT__OS_PAGE_HUGE = 2 << 20,
    CKPT__OS_PATH_MAX = 4096
};

typedef struct ckpt__os_info {
    uint64_t size, dev, ino, links;
    double   mtime;
    bool     is_file, is_dir, is_link;
} ckpt__os_info;

static ckpt_err ckpt__os_code(int errnum) {
    switch (errnum) {
        case ENOSPC: case EDQUOT: case EFBIG: return CKPT_NO_SPACE;
        case ENOENT: case ENOTDIR: return CKPT_NOT_FOUND;
        case EEXIST: return CKPT_EXISTS;
        case EACCES: case EPERM: case EROFS: return CKPT_AUTH;
        case ENOMEM: return CKPT_NOMEM;
        default: return CKPT_IO;
    }
}

// strerror is not safe in threads, and strerror_r has two shapes that share one name.
static const char *ckpt__os_reason(int errnum, char *buf, size_t cap) {
    if (errnum == 524) return "the file system does not support it";    // ENOTSUPP, which Linux keeps to itself but leaks
    buf[0] = 0;
#if defined(__GLIBC__) && defined(__USE_GNU)
    return strerror_r(errnum, buf, cap);
#else
    if (strerror_r(errnum, buf, cap) != 0) (void)snprintf(buf, cap, "error %d", errnum);
    return buf;
#endif
}

static ckpt_err ckpt__os_fail(int errnum, const char *verb, const char *path) {
    char text[128];
    return ckpt__error_set(ckpt__os_code(errnum), "cannot %s %s: %s", verb, path, ckpt__os_reason(errnum, text, sizeof text));
}

static ckpt_err ckpt__os_fail_pair(int errnum, const char *verb, const char *from, const char *to) {
    char text[128];
    const char *reason = ckpt__os_reason(errnum, text, sizeof text);
    return ckpt__error_set(ckpt__os_code(errnum), "cannot %s %s to %s: %s", verb, from, to, reason);
}

// Errors that say "not on this file system" rather than "not now".
static bool ckpt__os_is_unsupported(int errnum) {
    return errnum == EOPNOTSUPP || errnum == ENOTSUP || errnum == ENOSYS || errnum == EINVAL || errnum == 524;
}

//-- paths -----------------------------------------------------------------------

// What follows the last '/': all of the path when there is none, "" when it ends with one.
static const char *ckpt__os_path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

// Adds the folder part to `out`: "a" for "a/b", "/" for "/b", "." for "b".
static void ckpt__os_path_dir(ckpt__buf *out, const char *path) {
    size_t n = (size_t)(ckpt__os_path_base(path) - path);
    if (n == 0) {
        ckpt__buf_text(out, ".");
    } else {
        while (n > 1 && path[n - 1] == '/') n--;
        ckpt__buf_add(out, path, n);
    }
    (void)ckpt__buf_cstr(out);
}

// Adds "a/b" to `out`; b alone when it is absolute or when a is empty.
static void ckpt__os_path_join(ckpt__buf *out, const char *a, const char *b) {
    if (b[0] != '/' && a[0] != 0) {
        ckpt__buf_text(out, a);
        if (a[strlen(a) - 1] != '/') ckpt__buf_byte(out, '/');
    }
    ckpt__buf_text(out, b);
    (void)ckpt__buf_cstr(out);
}

//-- clock, environment, process -------------------------------------------------

static double ckpt__os_clock(clockid_t id) {
    struct timespec t;
    if (CKPT__SYS(clock_gettime)(id, &t) != 0) return 0.0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Monotonic seconds.
static double ckpt__os_now(void) {
    return ckpt__os_clock(CLOCK_MONOTONIC);
}

// Seconds since 1970.
static double ckpt__os_time(void) {
    return ckpt__os_clock(CLOCK_REALTIME);
}

static struct timespec ckpt__os_timespec(double seconds) {
    struct timespec t;
    if (!(seconds > 0.0)) seconds = 0.0;
    if (seconds > 1e9) seconds = 1e9;
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    return t;
}

static void ckpt__os_sleep(double seconds) {
    struct timespec t = ckpt__os_timespec(seconds), left;
    while (CKPT__SYS(nanosleep)(&t, &left) != 0 && errno == EINTR) t = left;
}

// NULL when unset.
static const char *ckpt__os_env(const char *name) {
    return getenv(name);
}

static int ckpt__os_pid(void) {
    return (int)getpid();
}

// Is there a process of that number on this machine, be it another user's?
static bool ckpt__os_alive(int pid) {
    return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

static void ckpt__os_host(char *buf, size_t cap) {
    if (CKPT__SYS(gethostname)(buf, cap) != 0) (void)snprintf(buf, cap, "unknown");
    buf[cap - 1] = 0;
}

// Processors that this process may run on, at least 1.
static int ckpt__os_cpus(void) {
#if defined(__linux__)
    unsigned long mask[128];
    long bytes = CKPT__SYS(syscall)((long)SYS_sched_getaffinity, 0L, (long)sizeof mask, mask);
    int n = 0;
    for (size_t i = 0; bytes > 0 && i < (size_t)bytes / sizeof mask[0]; i++) {
        for (unsigned long m = mask[i]; m != 0; m &= m - 1) n++;
    }
    if (n > 0) return n;
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < 65536 ? (int)online : 1;
}

static bool ckpt__os_is_terminal(int fd) {
    return CKPT__SYS(isatty)(fd) == 1;
}

// Columns of the terminal; 80 when nobody knows.
static int ckpt__os_terminal_width(int fd) {
    struct winsize size;
    memset(&size, 0, sizeof size);
    if (CKPT__SYS(ioctl)(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    long n = columns != NULL ? strtol(columns, NULL, 10) : 0;
    return n > 0 && n < 10000 ? (int)n : 80;
}

//-- opening ---------------------------------------------------------------------

// Gives a descriptor above 2, as SQLite's robust_open does.
static int ckpt__os_lift(int fd) {
    if (fd < 0 || fd > 2) return fd;
    int lifted = CKPT__SYS(fcntl)(fd, F_DUPFD_CLOEXEC, 3);
    int saved = errno;
    (void)CKPT__SYS(close)(fd);
    errno = saved;
    return lifted;
}

static int ckpt__os_open(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = CKPT__SYS(open)(path, flags | O_CLOEXEC | O_NOCTTY, mode); while (fd < 0 && errno == EINTR);
    return ckpt__os_lift(fd);
}

// close gives the descriptor back even when it fails with EINTR, so it is never called twice.
static ckpt_err ckpt__os_close(int fd, const char *path) {
    if (CKPT__SYS(close)(fd) == 0 || errno == EINTR) return CKPT_OK;
    return ckpt__os_fail(errno, "finish writing", path);
}

static void ckpt__os_drop(int fd) {
    int saved = errno;
    if (fd >= 0) (void)CKPT__SYS(close)(fd);
    errno = saved;
}

static void ckpt__os_fill_info(ckpt__os_info *out, const struct stat *s) {
    out->size = s->st_size > 0 ? (uint64_t)s->st_size : 0;
    out->dev = (uint64_t)s->st_dev;
    out->ino = (uint64_t)s->st_ino;
    out->links = (uint64_t)s->st_nlink;
#if defined(__APPLE__)
    out->mtime = (double)s->st_mtimespec.tv_sec + (double)s->st_mtimespec.tv_nsec * 1e-9;
#else
    out->mtime = (double)s->st_mtim.tv_sec + (double)s->st_mtim.tv_nsec * 1e-9;
#endif
    out->is_file = S_ISREG(s->st_mode);
    out->is_dir = S_ISDIR(s->st_mode);
    out->is_link = S_ISLNK(s->st_mode);
}

static int ckpt__os_ask(const char *path, struct stat *s) {
    int r;
    do r = CKPT__SYS(stat)(path, s); while (r != 0 && errno == EINTR);
    return r;
}

static int ckpt__os_ask_link(const char *path, struct stat *s) {
    int r;
    do r = CKPT__SYS(lstat)(path, s); while (r != 0 && errno == EINTR);
    return r;
}

static ckpt_err ckpt__os_stat(const char *path, ckpt__os_info *out) {
    struct stat s;
    if (ckpt__os_ask(path, &s) != 0) return ckpt__os_fail(errno, "look at", path);
    ckpt__os_fill_info(out, &s);
    return CKPT_OK;
}

static ckpt_err ckpt__os_lstat(const char *path, ckpt__os_info *out) {
    struct stat s;
    if (ckpt__os_ask_link(path, &s) != 0) return ckpt__os_fail(errno, "look at", path);
    ckpt__os_fill_info(out, &s);
    return CKPT_OK;
}

static ckpt_err ckpt__os_fstat(int fd, ckpt__os_info *out, const char *path) {
    struct stat s;
    int r;
    do r = CKPT__SYS(fstat)(fd, &s); while (r != 0 && errno == EINTR);
    if (r != 0) return ckpt__os_fail(errno, "look at", path);
    ckpt__os_fill_info(out, &s);
    return CKPT_OK;
}

// Is there anything of that name, be it a link to nowhere? Leaves the thread's last sentence alone.
static bool ckpt__os_exists(const char *path) {
    struct stat s;
    return ckpt__os_ask_link(path, &s) == 0;
}

// Opens a regular file. Anything else is refused before the open: opening a pipe would wait for its writer.
static ckpt_err ckpt__os_open_read(int *fd, const char *path) {
    *fd = -1;
    struct stat s;
    if (ckpt__os_ask(path, &s) != 0) return ckpt__os_fail(errno, "open", path);
    if (S_ISDIR(s.st_mode)) return ckpt__error_set(CKPT_IO, "cannot open %s: it is a folder, not a file", path);
    if (!S_ISREG(s.st_mode)) return ckpt__error_set(CKPT_IO, "cannot open %s: it is not a regular file", path);
    *fd = ckpt__os_open(path, O_RDONLY, 0);
    return *fd >= 0 ? CKPT_OK : ckpt__os_fail(errno, "open", path);
}

// Creates a file that must not exist yet.
static ckpt_err ckpt__os_create(int *fd, const char *path) {
    *fd = ckpt__os_open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
    return *fd >= 0 ? CKPT_OK : ckpt__os_fail(errno, "create", path);
}

#if defined(__linux__) && defined(SYS_statx)
// What direct reads and writes of this file must be aligned to; 0: it does not do them; 4096 when the kernel cannot say.
static size_t ckpt__os_direct_align(int fd) {
    // struct statx by its fixed layout (linux/stat.h): the mask first, stx_dio_mem_align and _offset_align as words 38 and 39.
    // The C library's own declaration is hidden in strict modes and lacks these two before Linux 6.1's headers.
    uint32_t words[64];
    enum { CKPT__AT_EMPTY_PATH = 0x1000, CKPT__STATX_DIOALIGN = 0x2000 };
    memset(words, 0, sizeof words);
    long r = CKPT__SYS(syscall)((long)SYS_statx, (long)fd, "", (long)CKPT__AT_EMPTY_PATH, (long)CKPT__STATX_DIOALIGN, words);
    if (r != 0 || (words[0] & CKPT__STATX_DIOALIGN) == 0) return 4096;
    size_t align = words[38] > words[39] ? words[38] : words[39];
    return words[38] == 0 || words[39] == 0 ? 0 : align;
}
#endif

// Opens a second descriptor that goes past the page cache; CKPT_UNSUPPORTED where that does not work.
static ckpt_err ckpt__os_reopen_direct(int *fd, const char *path, bool write, size_t *align) {
    *fd = -1;
    *align = 4096;
    int flags = write ? O_RDWR : O_RDONLY;
#if defined(CKPT__O_DIRECT)
    *fd = ckpt__os_open(path, flags | CKPT__O_DIRECT, 0);
    if (*fd < 0 && !ckpt__os_is_unsupported(errno)) return ckpt__os_fail(errno, "open", path);
    #if defined(SYS_statx)
    if (*fd >= 0) *align = ckpt__os_direct_align(*fd);
    #endif
#elif defined(F_NOCACHE)
    *fd = ckpt__os_open(path, flags, 0);
    if (*fd < 0) return ckpt__os_fail(errno, "open", path);
    if (CKPT__SYS(fcntl)(*fd, F_NOCACHE, 1) == -1) *align = 0;
#else
    (void)flags;
#endif
    bool usable = *fd >= 0 && *align > 0 && *align <= 65536 && (*align & (*align - 1)) == 0;
    if (usable) return CKPT_OK;
    ckpt__os_drop(*fd);
    *fd = -1;
    return ckpt__error_set(CKPT_UNSUPPORTED, "%s cannot be opened for direct input and output", path);
}

//-- reading and writing ---------------------------------------------------------

static size_t ckpt__os_chunk(size_t size) {
    return size < (size_t)CKPT__OS_CHUNK ? size : (size_t)CKPT__OS_CHUNK;
}

// How far a partial transfer counts: back to a multiple of 4096, so that a direct descriptor stays aligned when it goes on.
static size_t ckpt__os_partial(size_t moved, size_t asked, uint64_t offset) {
    size_t over = (size_t)((offset + moved) % 4096);
    return moved < asked && moved > over ? moved - over : moved;
}

// Reads until `size` bytes are there or the file ends.
static ckpt_err ckpt__os_pread(int fd, void *dst, size_t size, uint64_t offset, size_t *got, const char *path) {
    size_t done = 0;
    *got = 0;
    if (offset > (uint64_t)INT64_MAX - size) return ckpt__os_fail(EOVERFLOW, "read", path);
    while (done < size) {
        size_t want = ckpt__os_chunk(size - done);
        ssize_t n = CKPT__SYS(pread)(fd, (char *)dst + done, want, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ckpt__os_fail(errno, "read", path);
        if (n == 0) break;
        done += (size_t)n;
    }
    *got = done;
    return CKPT_OK;
}

static ckpt_err ckpt__os_pwrite(int fd, const void *src, size_t size, uint64_t offset, const char *path) {
    size_t done = 0;
    if (offset > (uint64_t)INT64_MAX - size) return ckpt__os_fail(EFBIG, "write", path);
    while (done < size) {
        size_t want = ckpt__os_chunk(size - done);
        ssize_t n = CKPT__SYS(pwrite)(fd, (const char *)src + done, want, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ckpt__os_fail(errno, "write", path);
        if (n == 0) return ckpt__os_fail(EIO, "write", path);
        done += ckpt__os_partial((size_t)n, want, offset + done);
    }
    return CKPT_OK;
}

// pwrite that drops its pages from the cache once they are on disk (Linux 6.14); CKPT_UNSUPPORTED elsewhere, nothing written.
static ckpt_err ckpt__os_pwrite_uncached(int fd, const void *src, size_t size, uint64_t offset, const char *path) {
#if defined(__linux__) && defined(SYS_pwritev2) && defined(__LP64__)
    enum { CKPT__RWF_DONTCACHE = 0x80 };
    size_t done = 0;
    if (offset > (uint64_t)INT64_MAX - size) return ckpt__os_fail(EFBIG, "write", path);
    while (done < size) {
        struct iovec v;
        v.iov_base = (void *)((uintptr_t)src + done);
        v.iov_len = ckpt__os_chunk(size - done);
        long n = CKPT__SYS(syscall)((long)SYS_pwritev2, (long)fd, &v, 1L, (long)(offset + done), 0L, (long)CKPT__RWF_DONTCACHE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && done == 0 && ckpt__os_is_unsupported(errno)) break;
        if (n < 0) return ckpt__os_fail(errno, "write", path);
        if (n == 0) return ckpt__os_fail(EIO, "write", path);
        done += (size_t)n;
    }
    if (done == size) return CKPT_OK;
#else
    (void)fd; (void)src; (void)size; (void)offset;
#endif
    return ckpt__error_set(CKPT_UNSUPPORTED, "%s cannot be written past the page cache", path);
}

// One successful read, of a pipe or a file at its own place; *got is 0 at the end.
static ckpt_err ckpt__os_read(int fd, void *dst, size_t size, size_t *got, const char *path) {
    *got = 0;
    for (;;) {
        ssize_t n = CKPT__SYS(read)(fd, dst, ckpt__os_chunk(size));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ckpt__os_fail(errno, "read", path);
        *got = (size_t)n;
        return CKPT_OK;
    }
}

static ckpt_err ckpt__os_write_all(int fd, const void *src, size_t size, const char *path) {
    size_t done = 0;
    while (done < size) {
        size_t want = ckpt__os_chunk(size - done);
        ssize_t n = CKPT__SYS(write)(fd, (const char *)src + done, want);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ckpt__os_fail(errno, "write", path);
        if (n == 0) return ckpt__os_fail(EIO, "write", path);
        done += (size_t)n;
    }
    return CKPT_OK;
}

// Takes back the SIGPIPE that this thread has just caused, unless one was pending before.
static void ckpt__os_eat_sigpipe(void) {
    sigset_t pipe_only, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    int sig;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1) (void)CKPT__SYS(sigwait)(&pipe_only, &sig);
}

// Writes everything to a pipe or a file at its own place. A reader that went away is an error, not the end of the process:
// SIGPIPE is held back for the calling thread while it writes.
static ckpt_err ckpt__os_write(int fd, const void *src, size_t size, const char *path) {
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigemptyset(&pending);
    (void)CKPT__SYS(sigpending)(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    bool held = CKPT__SYS(pthread_sigmask)(SIG_BLOCK, &pipe_only, &before) == 0;
    ckpt_err e = ckpt__os_write_all(fd, src, size, path);
    if (e != CKPT_OK && held && !was_pending) ckpt__os_eat_sigpipe();
    if (held) (void)CKPT__SYS(pthread_sigmask)(SIG_SETMASK, &before, NULL);
    return e;
}

// Reserves room for `size` bytes, so that a full disk shows before the first byte is written. A file system that cannot
// reserve is fine. posix_fallocate is not used on Linux: where it is unsupported, glibc writes to every block instead.
static ckpt_err ckpt__os_allocate(int fd, uint64_t size, const char *path) {
    if (size == 0) return CKPT_OK;
    if (size > (uint64_t)INT64_MAX) return ckpt__os_fail(EFBIG, "reserve space for", path);
#if defined(__linux__) && defined(SYS_fallocate) && defined(__LP64__)
    for (int tries = 0; tries < 100; tries++) {         // a busy interval timer may interrupt each try
        if (CKPT__SYS(syscall)((long)SYS_fallocate, (long)fd, 0L, 0L, (long)size) == 0) return CKPT_OK;
        if (errno != EINTR) break;
    }
    if (ckpt__os_code(errno) == CKPT_NO_SPACE || errno == EIO) return ckpt__os_fail(errno, "reserve space for", path);
#else
    (void)fd; (void)path;
#endif
    return CKPT_OK;
}

static ckpt_err ckpt__os_truncate(int fd, uint64_t size, const char *path) {
    int r;
    if (size > (uint64_t)INT64_MAX) return ckpt__os_fail(EFBIG, "set the length of", path);
    do r = CKPT__SYS(ftruncate)(fd, (off_t)size); while (r != 0 && errno == EINTR);
    return r == 0 ? CKPT_OK : ckpt__os_fail(errno, "set the length of", path);
}

// On return the bytes are on the medium. A failed fsync is never tried again: Linux reports a lost page once, and a
// second call would claim success.
static ckpt_err ckpt__os_sync(int fd, const char *path) {
    int r;
#if defined(__APPLE__) && defined(F_FULLFSYNC)
    do r = CKPT__SYS(fcntl)(fd, F_FULLFSYNC); while (r != 0 && errno == EINTR);
    if (r == 0) return CKPT_OK;
#endif
    do r = CKPT__SYS(fsync)(fd); while (r != 0 && errno == EINTR);
    return r == 0 ? CKPT_OK : ckpt__os_fail(errno, "bring to disk", path);
}

// Makes names that were created, renamed or removed in `dir` durable. Some network file systems refuse it with EINVAL or
// EBADF and are as durable as they get without.
static ckpt_err ckpt__os_sync_dir(const char *dir) {
    int fd = ckpt__os_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return ckpt__os_fail(errno, "bring to disk the folder", dir);
    int r;
    do r = CKPT__SYS(fsync)(fd); while (r != 0 && errno == EINTR);
    bool failed = r != 0 && !ckpt__os_is_unsupported(errno) && errno != EBADF;
    ckpt_err e = failed ? ckpt__os_fail(errno, "bring to disk the folder", dir) : CKPT_OK;
    ckpt__os_drop(fd);
    return e;
}

//-- random bytes, unnamed files -------------------------------------------------

static ckpt_err ckpt__os_random_file(unsigned char *dst, size_t size) {
    int fd = ckpt__os_open("/dev/urandom", O_RDONLY, 0);
    if (fd < 0) return ckpt__os_fail(errno, "open", "/dev/urandom");
    ckpt_err e = CKPT_OK;
    while (size > 0 && e == CKPT_OK) {
        size_t got;
        e = ckpt__os_read(fd, dst, size, &got, "/dev/urandom");
        if (e == CKPT_OK && got == 0) e = ckpt__os_fail(EIO, "read", "/dev/urandom");
        dst += got;
        size -= got;
    }
    ckpt__os_drop(fd);
    return e;
}

static ckpt_err ckpt__os_random(void *dst, size_t size) {
    unsigned char *p = (unsigned char *)dst;
#if defined(__linux__) && defined(SYS_getrandom)
    while (size > 0) {
        long n = CKPT__SYS(syscall)((long)SYS_getrandom, p, (long)size, 0L);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        p += n;
        size -= (size_t)n;
    }
#endif
    return size == 0 ? CKPT_OK : ckpt__os_random_file(p, size);
}

// Opens a file without a name in `dir`: it is gone when its descriptor is.
static ckpt_err ckpt__os_open_temp(int *fd, const char *dir) {
#if defined(CKPT__O_TMPFILE)
    *fd = ckpt__os_open(dir, O_RDWR | CKPT__O_TMPFILE, 0600);
    if (*fd >= 0) return CKPT_OK;
    bool known = !ckpt__os_is_unsupported(errno) && errno != EISDIR;    // EISDIR: kernels that do not know the flag
    if (known) return ckpt__os_fail(errno, "create a temporary file in", dir);
#endif
    *fd = -1;
    for (int tries = 0; tries < 100; tries++) {
        uint64_t number;
        ckpt_err e = ckpt__os_random(&number, sizeof number);
        if (e != CKPT_OK) return e;
        char path[CKPT__OS_PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/.ckpt-%016llx.tmp", dir, (unsigned long long)number);
        if (n < 0 || n >= (int)sizeof path) return ckpt__os_fail(ENAMETOOLONG, "create a temporary file in", dir);
        *fd = ckpt__os_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (*fd < 0 && errno == EEXIST) continue;
        if (*fd < 0) return ckpt__os_fail(errno, "create a temporary file in", dir);
        (void)CKPT__SYS(unlink)(path);
        return CKPT_OK;
    }
    return ckpt__os_fail(EEXIST, "create a temporary file in", dir);
}

//-- names -----------------------------------------------------------------------

static ckpt_err ckpt__os_rename(const char *from, const char *to) {
    int r;
    do r = CKPT__SYS(rename)(from, to); while (r != 0 && errno == EINTR);
    return r == 0 ? CKPT_OK : ckpt__os_fail_pair(errno, "rename", from, to);
}

static ckpt_err ckpt__os_remove(const char *path) {
    int r;
    do r = CKPT__SYS(unlink)(path); while (r != 0 && errno == EINTR);
    return r == 0 ? CKPT_OK : ckpt__os_fail(errno, "remove", path);
}

// Renames by link and unlink: errno of the failure, 0 when done. A lost reply of an NFS server makes the second try of a
// link that worked say EEXIST, so the two names are compared before that is believed (open(2), on O_EXCL).
static int ckpt__os_rename_by_link(const char *from, const char *to) {
    int r;
    do r = CKPT__SYS(link)(from, to); while (r != 0 && errno == EINTR);
    if (r != 0) {
        struct stat a, b;
        int why = errno;
        bool same = why == EEXIST && ckpt__os_ask_link(from, &a) == 0 && ckpt__os_ask_link(to, &b) == 0 && a.st_ino == b.st_ino &&
                    a.st_dev == b.st_dev;
        if (!same) return why;
    }
    do r = CKPT__SYS(unlink)(from); while (r != 0 && errno == EINTR);
    return r == 0 ? 0 : errno;
}

// Renames unless `to` exists: then CKPT_EXISTS, and both are as they were.
static ckpt_err ckpt__os_rename_new(const char *from, const char *to) {
    int why = ENOSYS;
#if defined(__linux__) && defined(SYS_renameat2)
    enum { CKPT__RENAME_NOREPLACE = 1 };
    long r;
    do {
        r = CKPT__SYS(syscall)((long)SYS_renameat2, (long)AT_FDCWD, from, (long)AT_FDCWD, to, (long)CKPT__RENAME_NOREPLACE);
    } while (r != 0 && errno == EINTR);
    if (r == 0) return CKPT_OK;
    why = errno;
#elif defined(__APPLE__) && defined(RENAME_EXCL)
    if (CKPT__SYS(renamex_np)(from, to, RENAME_EXCL) == 0) return CKPT_OK;
    why = errno;
#endif
    if (ckpt__os_is_unsupported(why)) why = ckpt__os_rename_by_link(from, to);
    if (why == 0) return CKPT_OK;
    if (ckpt__os_is_unsupported(why) || why == EPERM || why == EMLINK) {
        // Neither way exists here (FAT, some FUSE): look, then rename. Another process could come between the two.
        if (ckpt__os_exists(to)) return ckpt__os_fail_pair(EEXIST, "rename", from, to);
        return ckpt__os_rename(from, to);
    }
    return ckpt__os_fail_pair(why, "rename", from, to);
}

static ckpt_err ckpt__os_remove_dir(const char *path) {
    int r;
    do r = CKPT__SYS(rmdir)(path); while (r != 0 && errno == EINTR);
    return r == 0 ? CKPT_OK : ckpt__os_fail(errno, "remove the folder", path);
}

// Takes the name away now and keeps the file open: freeing its blocks (200 ms per GiB on ext4) is left to whoever closes
// *held_fd, a thread that nobody waits for. -1: there is nothing to close.
static ckpt_err ckpt__os_remove_slow(const char *path, int *held_fd) {
    *held_fd = ckpt__os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    ckpt_err e = ckpt__os_remove(path);
    if (e == CKPT_OK) return CKPT_OK;
    ckpt__os_drop(*held_fd);
    *held_fd = -1;
    return e;
}

static ckpt_err ckpt__os_symlink(const char *target, const char *path) {
    int r;
    do r = CKPT__SYS(symlink)(target, path); while (r != 0 && errno == EINTR);
    if (r == 0) return CKPT_OK;
    int why = errno;
    ckpt_err e = ckpt__os_fail(why, "make the link", path);
    bool unsupported = why == EPERM || why == EOPNOTSUPP || why == ENOTSUP || why == ENOSYS || why == 524;
    return unsupported ? CKPT_UNSUPPORTED : e;
}

// Adds the link's target to `out`.
static ckpt_err ckpt__os_readlink(ckpt__buf *out, const char *path) {
    char target[CKPT__OS_PATH_MAX];
    ssize_t n;
    do n = CKPT__SYS(readlink)(path, target, sizeof target); while (n < 0 && errno == EINTR);
    if (n < 0) return ckpt__os_fail(errno, "read the link", path);
    if (n == (ssize_t)sizeof target) return ckpt__os_fail(ENAMETOOLONG, "read the link", path);
    ckpt__buf_add(out, target, (size_t)n);
    (void)ckpt__buf_cstr(out);
    return out->err;
}

// Adds the absolute path without links, "." and ".." to `out`.
static ckpt_err ckpt__os_realpath(ckpt__buf *out, const char *path) {
    char real[PATH_MAX > 4096 ? PATH_MAX : 4096];
    char *r;
    do r = CKPT__SYS(realpath)(path, real); while (r == NULL && errno == EINTR);
    if (r == NULL) return ckpt__os_fail(errno, "resolve", path);
    ckpt__buf_text(out, real);
    (void)ckpt__buf_cstr(out);
    return out->err;
}

//-- folders ---------------------------------------------------------------------

// Makes one folder and its name durable. Returns errno, 0 also when it is there already. What is there is asked after any
// failure, since mkdir of an existing folder says EROFS or EACCES on some systems.
static int ckpt__os_mkdir(const char *path) {
    int r;
    do r = CKPT__SYS(mkdir)(path, 0777); while (r != 0 && errno == EINTR);
    if (r != 0) {
        int why = errno;
        struct stat s;
        if (ckpt__os_ask(path, &s) != 0) return why == EEXIST ? errno : why;
        return S_ISDIR(s.st_mode) ? 0 : ENOTDIR;
    }
    char dir[CKPT__OS_PATH_MAX];
    size_t n = (size_t)(ckpt__os_path_base(path) - path);
    if (n > 1) n--;
    memcpy(dir, n > 0 ? path : ".", n > 0 ? n : 1);
    dir[n > 0 ? n : 1] = 0;
    int fd = ckpt__os_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0) (void)CKPT__SYS(fsync)(fd);        // a courtesy: the saver syncs what it must
    ckpt__os_drop(fd);
    return 0;
}

// Makes a folder and those above it.
static ckpt_err ckpt__os_mkdirs(const char *path) {
    char part[CKPT__OS_PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) return CKPT_OK;
    if (n >= sizeof part) return ckpt__os_fail(ENAMETOOLONG, "make the folder", path);
    memcpy(part, path, n);
    part[n] = 0;
    int why = ckpt__os_mkdir(part);
    for (size_t i = 1; why == ENOENT && i <= n; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        char kept = part[i];
        part[i] = 0;
        int at = part[i - 1] == '/' ? 0 : ckpt__os_mkdir(part);
        part[i] = kept;
        if (at != 0 || i == n) { why = at; break; }
    }
    if (why == ENOTDIR) return ckpt__error_set(CKPT_EXISTS, "cannot make the folder %s: a file of that name is in the way", path);
    return why == 0 ? CKPT_OK : ckpt__os_fail(why, "make the folder", path);
}

// Calls `each` for every name in the folder, in the system's order, without "." and ".."; stops at its first error.
static ckpt_err ckpt__os_list(const char *dir, ckpt_err (*each)(const char *name, void *user), void *user) {
    DIR *d;
    do d = CKPT__SYS(opendir)(dir); while (d == NULL && errno == EINTR);
    if (d == NULL) return ckpt__os_fail(errno, "list the folder", dir);
    ckpt_err e = CKPT_OK;
    while (e == CKPT_OK) {
        errno = 0;
        struct dirent *entry = CKPT__SYS(readdir)(d);
        if (entry == NULL && errno == EINTR) continue;
        if (entry == NULL && errno != 0) e = ckpt__os_fail(errno, "list the folder", dir);
        if (entry == NULL) break;
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) e = each(name, user);
    }
    (void)CKPT__SYS(closedir)(d);
    return e;
}

//-- locks -----------------------------------------------------------------------

#if defined(__linux__)
enum { CKPT__OFD_SETLK = 37 };      // F_OFD_SETLK, hidden in strict modes; asm-generic/fcntl.h
#endif

// Tries to lock one byte: errno, 0 when it is ours.
static int ckpt__os_lock_byte(int fd, int command, off_t at) {
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = at;
    lock.l_len = 1;
    int r;
    do r = CKPT__SYS(fcntl)(fd, command, &lock); while (r != 0 && errno == EINTR);
    return r == 0 ? 0 : errno;
}

// When a process started, in clock ticks since boot; 0 when it is gone, a zombie, or nobody knows. Tells a process from a
// later one that got its number, which in containers is the rule: the trainer is number 7 every time.
static uint64_t ckpt__os_process_start(int pid) {
    uint64_t start = 0;
#if defined(__linux__)
    char path[64], text[1024];
    size_t got = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = ckpt__os_open(path, O_RDONLY, 0);
    if (fd < 0 || ckpt__os_pread(fd, text, sizeof text - 1, 0, &got, path) != CKPT_OK) got = 0;
    ckpt__os_drop(fd);
    text[got] = 0;
    const char *p = strrchr(text, ')');             // proc(5): pid (name) state, ..., the 22nd field is the start
    if (p == NULL || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X') return 0;
    p += 2;
    for (int field = 3; field < 22 && p != NULL; field++) {
        p = strchr(p, ' ');
        if (p != NULL) p++;
    }
    if (p != NULL) start = strtoull(p, NULL, 10);
#else
    (void)pid;
#endif
    return start;
}

// Who holds a lock file, as written inside: "pid host start\n".
typedef struct ckpt__os_holder {
    int  pid;                       // 0: not written, or not readable
    char host[256];
    bool here, ours, alive;         // on this machine; this process; still running as far as can be seen
} ckpt__os_holder;

static ckpt__os_holder ckpt__os_read_holder(int fd) {
    ckpt__os_holder h;
    memset(&h, 0, sizeof h);
    char text[400], host[256];
    ssize_t n;
    do n = CKPT__SYS(pread)(fd, text, sizeof text - 1, 0); while (n < 0 && errno == EINTR);
    text[n > 0 ? n : 0] = 0;
    char *at = text;
    long pid = strtol(text, &at, 10);
    if (pid <= 0 || pid > INT_MAX || *at != ' ') return h;
    size_t len = strcspn(++at, " \n");
    if (len >= sizeof h.host) return h;
    h.pid = (int)pid;
    memcpy(h.host, at, len);
    uint64_t started = strtoull(at + len, NULL, 10), now = ckpt__os_process_start(h.pid);
    ckpt__os_host(host, sizeof host);
    h.here = strcmp(host, h.host) == 0;
    bool running = CKPT__SYS(kill)((pid_t)pid, 0) == 0 || errno == EPERM;
    bool same = started == 0 || started == now;     // 0 was written where /proc is not
    h.alive = !h.here || (running && same);
    h.ours = h.here && same && h.pid == ckpt__os_pid();
    return h;
}

static void ckpt__os_write_holder(int fd, const char *path) {
    char host[256], text[400];
    ckpt__os_host(host, sizeof host);
    unsigned long long start = ckpt__os_process_start(ckpt__os_pid());
    (void)snprintf(text, sizeof text, "%d %s %llu\n", ckpt__os_pid(), host, start);
    // The lock holds without it, on a full disk for example.
    if (ckpt__os_truncate(fd, 0, path) == CKPT_OK) (void)ckpt__os_pwrite(fd, text, strlen(text), 0, path);
}

static ckpt_err ckpt__os_lock_busy(const char *path, const ckpt__os_holder *h) {
    if (h->pid == 0) return ckpt__error_set(CKPT_EXISTS, "%s is locked by another process", path);
    if (h->ours) return ckpt__error_set(CKPT_EXISTS, "%s is locked by this process already", path);
    return ckpt__error_set(CKPT_EXISTS, "%s is locked by process %d on %s", path, h->pid, h->host);
}

static bool ckpt__os_lock_unknown(int errnum) {
    return errnum == ENOLCK || ckpt__os_is_unsupported(errnum);
}

// Locks an open lock file. Two locks are taken, because each alone has a hole. The record lock (byte 0) belongs to the
// process: it dies with it although forked data loaders live on, but it does not keep out a second saver of the same
// process, and is lost when that one closes its descriptor. The lock of the open file (byte 1) does that, but forked
// children keep it: when it is held and the process named inside is gone, only orphans hold it, and they save nothing.
// Where a file system has no locks at all (some Lustre mounts), the name inside decides alone.
static ckpt_err ckpt__os_lock_fd(int fd, const char *path) {
    int whole = ckpt__os_lock_byte(fd, F_SETLK, 0), own = whole;
    bool taken = whole == EACCES || whole == EAGAIN;
#if defined(__linux__)
    if (!taken) own = ckpt__os_lock_byte(fd, CKPT__OFD_SETLK, 1);
    if (own == 0 && whole == 0) return CKPT_OK;
#endif
    bool held = own == EACCES || own == EAGAIN;
    int why = !taken && !ckpt__os_lock_unknown(whole) ? whole : !held && !ckpt__os_lock_unknown(own) ? own : 0;
    if (why != 0) return ckpt__os_fail(why, "lock", path);
    ckpt__os_holder h = ckpt__os_read_holder(fd);
    bool named = h.pid != 0 && h.alive && (whole != 0 || h.ours || (held && h.here));
    return taken || (held && h.pid == 0) || named ? ckpt__os_lock_busy(path, &h) : CKPT_OK;
}

// Is `path` still the name of this open file? Its last owner may have removed it between our open and our lock.
static bool ckpt__os_same_file(int fd, const char *path) {
    ckpt__os_info a, b;
    struct stat s;
    if (ckpt__os_fstat(fd, &a, path) != CKPT_OK || ckpt__os_ask(path, &s) != 0) return false;
    ckpt__os_fill_info(&b, &s);
    return a.ino == b.ino && a.dev == b.dev;
}

// Takes the exclusive lock called `path`, at once or not at all: CKPT_EXISTS names the holder. It dies with the process.
static ckpt_err ckpt__os_lock(int *fd, const char *path) {
    for (int tries = 0; tries < 100; tries++) {
        *fd = ckpt__os_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
        if (*fd < 0) return ckpt__os_fail(errno, "open the lock", path);
        ckpt_err e = ckpt__os_lock_fd(*fd, path);
        if (e == CKPT_OK && ckpt__os_same_file(*fd, path)) {
            ckpt__os_write_holder(*fd, path);
            return CKPT_OK;
        }
        ckpt__os_drop(*fd);
        *fd = -1;
        if (e != CKPT_OK) return e;
    }
    return ckpt__error_set(CKPT_EXISTS, "%s is being locked and unlocked by other processes all the time", path);
}

// The name goes first, while the lock is held, so that whoever opens it next gets a file of its own.
static void ckpt__os_unlock(int fd, const char *path) {
    if (fd < 0) return;
    int r;
    do r = CKPT__SYS(unlink)(path); while (r != 0 && errno == EINTR);
    ckpt__os_drop(fd);
}

//-- memory pages ----------------------------------------------------------------

static size_t ckpt__os_pages_size(size_t size) {
    size_t unit = size >= (size_t)CKPT__OS_PAGE_HUGE ? (size_t)CKPT__OS_PAGE_HUGE : 65536u;
    return size > SIZE_MAX - 2 * unit ? 0 : (size + unit - 1) / unit * unit;
}

// Zeroed memory aligned to 2 MiB that asks for huge pages; the kernel gives it when it is touched.
static void *ckpt__os_pages(size_t size) {
    size_t whole = ckpt__os_pages_size(size), spare = CKPT__OS_PAGE_HUGE;
    if (whole == 0 || whole > SIZE_MAX - spare) { (void)ckpt__mem_fail(size); return NULL; }
    void *p = CKPT__SYS(mmap)(NULL, whole + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) { (void)ckpt__mem_fail(size); return NULL; }
    char *base = (char *)p;
    size_t lead = (spare - ((uintptr_t)base & (spare - 1))) & (spare - 1);
    if (lead > 0) (void)CKPT__SYS(munmap)(base, lead);
    if (spare > lead) (void)CKPT__SYS(munmap)(base + lead + whole, spare - lead);
#if defined(MADV_HUGEPAGE)
    if (whole >= CKPT__OS_PAGE_HUGE) (void)CKPT__SYS(madvise)(base + lead, whole, MADV_HUGEPAGE);
#endif
    return base + lead;
}

static void ckpt__os_pages_free(void *p, size_t size) {
    if (p != NULL) (void)CKPT__SYS(munmap)(p, ckpt__os_pages_size(size));
}

// Is most of the range in the page cache? Asked of 32 pages spread over it; true when nobody knows.
static bool ckpt__os_cached(int fd, uint64_t offset, uint64_t size) {
#if defined(__linux__)
    enum { SAMPLES = 32 };
    long asked = sysconf(_SC_PAGESIZE);
    uint64_t page = asked > 0 ? (uint64_t)asked : 4096, start = offset / page * page;
    if (size == 0 || offset > (uint64_t)INT64_MAX - size || offset + size - start > SIZE_MAX / 2) return true;
    size_t span = (size_t)(offset + size - start), pages = (span + (size_t)page - 1) / (size_t)page;
    void *p = CKPT__SYS(mmap)(NULL, span, PROT_READ, MAP_SHARED, fd, (off_t)start);
    if (p == MAP_FAILED) return true;
    size_t count = pages < (size_t)SAMPLES ? pages : (size_t)SAMPLES, here = 0;
    bool known = true;
    for (size_t i = 0; i < count && known; i++) {
        unsigned char in = 0;
        known = CKPT__SYS(mincore)((char *)p + pages * i / count * (size_t)page, (size_t)page, &in) == 0;
        here += in & 1u;
    }
    (void)CKPT__SYS(munmap)(p, span);
    return !known || here * 2 > count;
#else
    (void)fd; (void)offset; (void)size;
    return true;
#endif
}

//-- threads ---------------------------------------------------------------------

typedef struct ckpt__os_thread {
    pthread_t id;
    void    (*fn)(void *);
    void     *arg;
} ckpt__os_thread;

typedef pthread_mutex_t ckpt__os_mutex;
typedef pthread_cond_t ckpt__os_cond;
typedef int ckpt__os_flag;              // read and written by ckpt__os_flag_* only; safe in signal handlers

static void *ckpt__os_thread_main(void *arg) {
    ckpt__os_thread *t = (ckpt__os_thread *)arg;
    t->fn(t->arg);
    return NULL;
}

// Starts a thread that receives no signals: handlers keep running on the program's own threads. `t` must stay where it is
// until the thread is joined.
static ckpt_err ckpt__os_thread_start(ckpt__os_thread *t, void (*fn)(void *), void *arg) {
    sigset_t all, before;
    t->fn = fn;
    t->arg = arg;
    sigfillset(&all);
    bool masked = CKPT__SYS(pthread_sigmask)(SIG_SETMASK, &all, &before) == 0;
    int why = CKPT__SYS(pthread_create)(&t->id, NULL, ckpt__os_thread_main, t);
    if (masked) (void)CKPT__SYS(pthread_sigmask)(SIG_SETMASK, &before, NULL);
    if (why == 0) return CKPT_OK;
    char text[128];
    return ckpt__error_set(CKPT_NOMEM, "cannot start a thread: %s", ckpt__os_reason(why, text, sizeof text));
}

static void ckpt__os_thread_join(ckpt__os_thread t) {
    (void)pthread_join(t.id, NULL);
}

static ckpt_err ckpt__os_mutex_init(ckpt__os_mutex *m) {
    if (CKPT__SYS(pthread_mutex_init)(m, NULL) == 0) return CKPT_OK;
    return ckpt__error_set(CKPT_NOMEM, "out of memory for a lock");
}

static void ckpt__os_mutex_free(ckpt__os_mutex *m) {
    (void)pthread_mutex_destroy(m);
}

static void ckpt__os_mutex_lock(ckpt__os_mutex *m) {
    int r = pthread_mutex_lock(m);
    CKPT_ASSERT(r == 0);
    (void)r;
}

static void ckpt__os_mutex_unlock(ckpt__os_mutex *m) {
    int r = pthread_mutex_unlock(m);
    CKPT_ASSERT(r == 0);
    (void)r;
}

// The condition's deadlines are on the monotonic clock, so that setting the wall clock wakes nobody.
static ckpt_err ckpt__os_cond_init(ckpt__os_cond *c) {
    int why;
#if defined(__APPLE__)
    why = pthread_cond_init(c, NULL);
#else
    pthread_condattr_t attr;
    why = CKPT__SYS(pthread_condattr_init)(&attr);
    if (why == 0) {
        why = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        if (why == 0) why = pthread_cond_init(c, &attr);
        (void)pthread_condattr_destroy(&attr);
    }
#endif
    return why == 0 ? CKPT_OK : ckpt__error_set(CKPT_NOMEM, "out of memory for a lock");
}

static void ckpt__os_cond_free(ckpt__os_cond *c) {
    (void)pthread_cond_destroy(c);
}

static void ckpt__os_cond_broadcast(ckpt__os_cond *c) {
    (void)pthread_cond_broadcast(c);
}

static void ckpt__os_cond_wait(ckpt__os_cond *c, ckpt__os_mutex *m) {
    (void)pthread_cond_wait(c, m);
}

// Waits until woken or until ckpt__os_now() reaches the deadline; false: it was the deadline.
static bool ckpt__os_cond_wait_until(ckpt__os_cond *c, ckpt__os_mutex *m, double deadline) {
#if defined(__APPLE__)
    struct timespec t = ckpt__os_timespec(deadline - ckpt__os_now());
    return pthread_cond_timedwait_relative_np(c, m, &t) != ETIMEDOUT;
#else
    struct timespec t = ckpt__os_timespec(deadline);
    return pthread_cond_timedwait(c, m, &t) != ETIMEDOUT;
#endif
}

static void ckpt__os_flag_set(ckpt__os_flag *f, int value) {
    __atomic_store_n(f, value, __ATOMIC_RELEASE);
}

static int ckpt__os_flag_get(const ckpt__os_flag *f) {
    return __atomic_load_n(f, __ATOMIC_ACQUIRE);
}

// Sets it and returns what it was.
static int ckpt__os_flag_swap(ckpt__os_flag *f, int value) {
    return __atomic_exchange_n(f, value, __ATOMIC_ACQ_REL);
}

// Adds and returns what it was.
static uint64_t ckpt__os_add64(uint64_t *counter, uint64_t value) {
    return __atomic_fetch_add(counter, value, __ATOMIC_ACQ_REL);
}

static uint64_t ckpt__os_load64(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

//-- child processes -------------------------------------------------------------

typedef struct ckpt__os_child {
    int  pid;                       // 0: none, or reaped
    int  err_fd;                    // an unnamed file that receives what the child says on stderr
    int  status;                    // after ckpt__os_wait_child: its exit status, or minus the signal that killed it
    char tool[64];
    char said[256];                 // after ckpt__os_wait_child: the first line that it said on stderr
} ckpt__os_child;

// Both ends close-on-exec: fds[0] reads, fds[1] writes.
static ckpt_err ckpt__os_pipe(int fds[2]) {
    int raw[2];
    if (CKPT__SYS(pipe)(raw) != 0) return ckpt__os_fail(errno, "make", "a pipe");
    for (int i = 0; i < 2; i++) {
        fds[i] = raw[i];
        if (fds[i] > 2) (void)CKPT__SYS(fcntl)(fds[i], F_SETFD, FD_CLOEXEC);
        else fds[i] = ckpt__os_lift(fds[i]);
    }
    if (fds[0] >= 0 && fds[1] >= 0) return CKPT_OK;
    ckpt_err e = ckpt__os_fail(errno, "make", "a pipe");
    ckpt__os_drop(fds[0]);
    ckpt__os_drop(fds[1]);
    return e;
}

static bool ckpt__os_runnable(const char *path) {
    struct stat s;
    return ckpt__os_ask(path, &s) == 0 && S_ISREG(s.st_mode) && CKPT__SYS(access)(path, X_OK) == 0;
}

// Is there such a program in PATH?
static bool ckpt__os_which(const char *tool) {
    if (strchr(tool, '/') != NULL) return ckpt__os_runnable(tool);
    const char *at = getenv("PATH");
    if (at == NULL) at = "/usr/bin:/bin";
    for (; tool[0] != 0; at++) {
        size_t n = strcspn(at, ":");
        char path[CKPT__OS_PATH_MAX];
        int len = snprintf(path, sizeof path, "%.*s/%s", n < 4000 ? (int)n : 0, n > 0 ? at : ".", tool);
        if (n == 0) len = snprintf(path, sizeof path, "./%s", tool);
        if (len > 0 && len < (int)sizeof path && n < 4000 && ckpt__os_runnable(path)) return true;
        at += n;
        if (*at == 0) break;
    }
    return false;
}

// A file for the child's complaints: a pipe would stop a talkative child, since nobody reads until it ends.
static int ckpt__os_scratch(void) {
    int fd = -1;
#if defined(__linux__) && defined(SYS_memfd_create)
    fd = ckpt__os_lift((int)CKPT__SYS(syscall)((long)SYS_memfd_create, "ckpt-stderr", 1L));     // 1: MFD_CLOEXEC
    if (fd >= 0) return fd;
#endif
    const char *dir = getenv("TMPDIR");
    return ckpt__os_open_temp(&fd, dir != NULL && dir[0] != 0 ? dir : "/tmp") == CKPT_OK ? fd : -1;
}

static char **ckpt__os_environment(void) {
#if defined(__APPLE__)
    return *_NSGetEnviron();
#else
    extern char **environ;
    return environ;
#endif
}

#if defined(__linux__)
typedef struct ckpt__os_close_list {
    posix_spawn_file_actions_t *actions;
} ckpt__os_close_list;

// The program's own descriptors that lack close-on-exec must not live on in the child: a listening socket, another pipe's end.
static ckpt_err ckpt__os_close_in_child(const char *name, void *user) {
    long fd = strtol(name, NULL, 10);
    int flags = fd > 2 && fd < INT_MAX ? CKPT__SYS(fcntl)((int)fd, F_GETFD) : -1;
    if (flags < 0 || (flags & FD_CLOEXEC) != 0) return CKPT_OK;
    int why = posix_spawn_file_actions_addclose(((ckpt__os_close_list *)user)->actions, (int)fd);
    return why == 0 ? CKPT_OK : CKPT_NOMEM;
}
#endif

static int ckpt__os_spawn_actions(posix_spawn_file_actions_t *actions, int in_fd, int out_fd, int err_fd) {
    int why = in_fd >= 0 ? posix_spawn_file_actions_adddup2(actions, in_fd, 0)
                         : posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (why == 0) why = out_fd >= 0 ? posix_spawn_file_actions_adddup2(actions, out_fd, 1)
                                    : posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
    if (why == 0) why = err_fd >= 0 ? posix_spawn_file_actions_adddup2(actions, err_fd, 2)
                                    : posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0);
#if defined(__linux__)
    ckpt__os_close_list list;
    list.actions = actions;
    if (why == 0) (void)ckpt__os_list("/proc/self/fd", ckpt__os_close_in_child, &list);
#endif
    return why;
}

// The child gets default signals, and a process group of its own: Ctrl-C on the terminal is the program's to handle, and
// would otherwise kill the compressor in the middle of the checkpoint that the handler asks for.
static int ckpt__os_spawn_attr(posix_spawnattr_t *attr) {
    sigset_t none, all;
    sigemptyset(&none);
    sigemptyset(&all);
    sigaddset(&all, SIGPIPE);
    sigaddset(&all, SIGINT);
    sigaddset(&all, SIGTERM);
    sigaddset(&all, SIGHUP);
    sigaddset(&all, SIGCHLD);
    int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
#if defined(POSIX_SPAWN_CLOEXEC_DEFAULT)
    flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
    int why = posix_spawnattr_setsigmask(attr, &none);
    if (why == 0) why = posix_spawnattr_setsigdefault(attr, &all);
    if (why == 0) why = posix_spawnattr_setpgroup(attr, 0);
    if (why == 0) why = posix_spawnattr_setflags(attr, (short)flags);
    return why;
}

// Runs argv[0], looked up in PATH, with stdin and stdout on the given descriptors (-1: /dev/null).
static ckpt_err ckpt__os_spawn(ckpt__os_child *c, const char *const *argv, int in_fd, int out_fd) {
    memset(c, 0, sizeof *c);
    (void)snprintf(c->tool, sizeof c->tool, "%s", ckpt__os_path_base(argv[0]));
    c->err_fd = ckpt__os_scratch();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    pid_t pid = 0;
    int why = CKPT__SYS(posix_spawn_file_actions_init)(&actions);
    if (why == 0) {
        why = posix_spawnattr_init(&attr);
        if (why == 0) {
            why = ckpt__os_spawn_actions(&actions, in_fd, out_fd, c->err_fd);
            if (why == 0) why = ckpt__os_spawn_attr(&attr);
            char *const *args = (char *const *)(uintptr_t)argv;     // the call does not write to it; its type predates const
            if (why == 0) why = CKPT__SYS(posix_spawnp)(&pid, argv[0], &actions, &attr, args, ckpt__os_environment());
            (void)posix_spawnattr_destroy(&attr);
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    if (why != 0) {
        ckpt__os_drop(c->err_fd);
        c->err_fd = -1;
        return ckpt__os_fail(why, "run", c->tool);
    }
    c->pid = (int)pid;
    return CKPT_OK;
}

// The first line of the child's stderr that is not empty, "" when it said nothing.
static void ckpt__os_child_said(const ckpt__os_child *c, char *line, size_t cap) {
    char text[1024];
    size_t got = 0;
    if (c->err_fd >= 0 && ckpt__os_pread(c->err_fd, text, sizeof text - 1, 0, &got, c->tool) != CKPT_OK) got = 0;
    text[got] = 0;
    const char *from = text + strspn(text, " \t\r\n");
    (void)snprintf(line, cap, "%.*s", (int)strcspn(from, "\r\n"), from);
}

// Waits for the child's end and reaps it. An exit status other than 0, or a signal, is CKPT_IO with what the child said.
static ckpt_err ckpt__os_wait_child(ckpt__os_child *c) {
    if (c->pid <= 0) return CKPT_OK;
    int status = 0;
    pid_t r;
    do r = CKPT__SYS(waitpid)((pid_t)c->pid, &status, 0); while (r < 0 && errno == EINTR);
    int why = errno;
    c->pid = 0;
    char *said = c->said;
    ckpt__os_child_said(c, said, sizeof c->said);
    c->status = r < 0 ? 0 : WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    const char *colon = said[0] != 0 ? ": " : "";
    ckpt__os_drop(c->err_fd);
    c->err_fd = -1;
    if (r < 0 && why == ECHILD)
        return ckpt__error_set(CKPT_IO, "cannot learn whether %s succeeded: the program ignores SIGCHLD", c->tool);
    if (r < 0) return ckpt__os_fail(why, "wait for", c->tool);
    if (WIFSIGNALED(status))
        return ckpt__error_set(CKPT_IO, "%s was killed by signal %d%s%s", c->tool, WTERMSIG(status), colon, said);
    if (WEXITSTATUS(status) == 127 && said[0] == 0) return ckpt__error_set(CKPT_IO, "%s could not be run", c->tool);
    if (WEXITSTATUS(status) == 0) return CKPT_OK;
    return ckpt__error_set(CKPT_IO, "%s failed with status %d%s%s", c->tool, WEXITSTATUS(status), colon, said);
}

// Ends the child at once and reaps it; for a child that has ended already, or was never started, it only cleans up.
static void ckpt__os_kill_child(ckpt__os_child *c) {
    if (c->pid > 0) {
        int status;
        pid_t r;
        (void)CKPT__SYS(kill)((pid_t)c->pid, SIGKILL);
        do r = CKPT__SYS(waitpid)((pid_t)c->pid, &status, 0); while (r < 0 && errno == EINTR);
    }
    if (c->err_fd > 0) ckpt__os_drop(c->err_fd);
    c->pid = 0;
    c->err_fd = -1;
}

//------------------------------------------------------------------------------
// >>text       [D]  views, UTF-8, numbers, globs, sizes, URIs, JSON
//
// uses:    error memory
// threads: any; every function works on its arguments alone
//
// Nothing here depends on the locale: a program may have called setlocale, and what one
// machine writes another must read.
//------------------------------------------------------------------------------

typedef struct ckpt__view {
    const char *p;
    size_t      n;
} ckpt__view;

static ckpt__view ckpt__txt_view(const char *cstr) {
    ckpt__view v = { cstr, strlen(cstr) };
    return v;
}

static bool ckpt__txt_eq(ckpt__view v, const char *cstr) {
    return strlen(cstr) == v.n && (v.n == 0 || memcmp(v.p, cstr, v.n) == 0);
}

static bool ckpt__txt_starts(const char *s, const char *part) {
    return strncmp(s, part, strlen(part)) == 0;
}

static bool ckpt__txt_ends(const char *s, const char *part) {
    size_t n = strlen(s), m = strlen(part);
    return n >= m && memcmp(s + n - m, part, m) == 0;
}

// ASCII only: tolower and isdigit ask the locale.
static int ckpt__txt_lower(int c) {
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

// floor without libm, which not every system links by itself. Doubles from 2^52 on are whole numbers.
static double ckpt__txt_floor(double v) {
    if (!(v > -4503599627370496.0 && v < 4503599627370496.0)) return v;
    double whole = (double)(int64_t)v;
    return whole > v ? whole - 1.0 : whole;
}

static bool ckpt__txt_is_digit(int c) {
    return c >= '0' && c <= '9';
}

static bool ckpt__txt_eq_nocase(ckpt__view v, const char *cstr) {
    if (strlen(cstr) != v.n) return false;
    for (size_t i = 0; i < v.n; i++) {
        if (ckpt__txt_lower(v.p[i]) != ckpt__txt_lower(cstr[i])) return false;
    }
    return true;
}

//-- utf-8 -----------------------------------------------------------------------

// Takes one code point. A byte that begins none becomes 0xDC00 + byte, as in Python's "surrogateescape", and is passed
// over alone.
static uint32_t ckpt__txt_next(const char **at, const char *end) {
    const unsigned char *p = (const unsigned char *)*at;
    uint32_t c = p[0];
    int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
    bool good = more >= 0 && end - *at > more;
    if (good && more > 0) {
        c &= 0x3Fu >> more;
        for (int i = 1; i <= more; i++) {
            if ((p[i] & 0xC0) != 0x80) good = false;
            c = c << 6 | (p[i] & 0x3Fu);
        }
        if (more == 2 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) good = false;
        if (more == 3 && (c < 0x10000 || c > 0x10FFFF)) good = false;
    }
    *at += good ? more + 1 : 1;
    return good ? c : 0xDC00u + p[0];
}

static bool ckpt__txt_is_stray(uint32_t c) {
    return c >= 0xDC80 && c <= 0xDCFF;
}

// Whether it is UTF-8 by RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF.
static bool ckpt__txt_utf8(const char *p, size_t n) {
    for (const char *end = p + n; p < end;) {
        if ((unsigned char)*p < 0x80) p++;
        else if (ckpt__txt_is_stray(ckpt__txt_next(&p, end))) return false;
    }
    return true;
}

// Writes one code point, 1 to 4 bytes. A stray byte of ckpt__txt_next becomes that byte again.
static size_t ckpt__txt_put(char *out, uint32_t c) {
    if (c < 0x80 || ckpt__txt_is_stray(c)) { out[0] = (char)(unsigned char)(c & 0xFFu); return 1; }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    uint32_t lead = more == 1 ? 0xC0u : more == 2 ? 0xE0u : 0xF0u;
    out[0] = (char)(unsigned char)(lead | c >> (6 * more));
    for (int i = 1; i <= more; i++) out[i] = (char)(unsigned char)(0x80u | (c >> (6 * (more - i)) & 0x3Fu));
    return (size_t)more + 1;
}

static void ckpt__txt_add_char(ckpt__buf *b, uint32_t c, size_t times) {
    char one[4];
    size_t n = ckpt__txt_put(one, c);
    for (size_t i = 0; i < times; i++) ckpt__buf_add(b, one, n);
}

// The number of code points.
static size_t ckpt__txt_length(ckpt__view v) {
    size_t n = 0;
    for (const char *p = v.p, *end = v.p + v.n; p < end; n++) (void)ckpt__txt_next(&p, end);
    return n;
}

//-- numbers ---------------------------------------------------------------------

// The whole view as a decimal number; false when it is anything else or does not fit.
static bool ckpt__txt_int(ckpt__view v, int64_t *out) {
    bool minus = v.n > 0 && v.p[0] == '-';
    size_t i = minus ? 1 : 0;
    if (i == v.n) return false;
    int64_t value = 0;                      // negative all the way: INT64_MIN has no positive twin
    for (; i < v.n; i++) {
        if (!ckpt__txt_is_digit(v.p[i])) return false;
        int digit = v.p[i] - '0';
        if (value < (INT64_MIN + digit) / 10) return false;
        value = value * 10 - digit;
    }
    if (!minus && value == INT64_MIN) return false;
    *out = minus ? value : -value;
    return true;
}

enum { CKPT__TXT_DIGITS = 800 };            // 767 significant digits decide any double; one more stands for all behind them

// digits * 10^exponent, rounded once. strtod is exact in every libc in use, and a number without a point reads the same
// in every locale.
static double ckpt__txt_scale(const char *digits, size_t count, int64_t exponent) {
    char text[CKPT__TXT_DIGITS + 32];
    if (exponent > 99999) exponent = 99999;
    if (exponent < -99999) exponent = -99999;
    memcpy(text, digits, count);
    (void)snprintf(text + count, sizeof text - count, "e%d", (int)exponent);
    return strtod(text, NULL);
}

typedef struct ckpt__txt_decimal {          // digits * 10^exponent, without leading zeros; count 0 is zero
    char    digits[CKPT__TXT_DIGITS + 1];
    size_t  count;
    int64_t exponent;
    bool    minus;
} ckpt__txt_decimal;

static void ckpt__txt_take_digit(ckpt__txt_decimal *d, char c, bool after_point) {
    if (after_point) d->exponent--;
    if (d->count == 0 && c == '0') return;
    if (d->count < CKPT__TXT_DIGITS - 1) {
        d->digits[d->count++] = c;
        return;
    }
    d->exponent++;
    if (c == '0') return;
    if (d->count < CKPT__TXT_DIGITS) { d->digits[d->count++] = '1'; d->exponent--; }
}

// [+-] digits [. digits] [e [+-] digits], all of the view, at least one digit before the exponent.
static bool ckpt__txt_split(ckpt__view v, ckpt__txt_decimal *d) {
    memset(d, 0, sizeof *d);
    size_t i = 0, seen = 0;
    bool point = false;
    if (i < v.n && (v.p[i] == '-' || v.p[i] == '+')) d->minus = v.p[i++] == '-';
    for (; i < v.n; i++) {
        if (v.p[i] == '.' && !point) { point = true; continue; }
        if (!ckpt__txt_is_digit(v.p[i])) break;
        ckpt__txt_take_digit(d, v.p[i], point);
        seen++;
    }
    if (seen == 0) return false;
    if (i == v.n) return true;
    if (ckpt__txt_lower(v.p[i++]) != 'e') return false;
    bool down = i < v.n && v.p[i] == '-';
    if (i < v.n && (v.p[i] == '-' || v.p[i] == '+')) i++;
    if (i == v.n) return false;
    int64_t e = 0;
    for (; i < v.n; i++) {
        if (!ckpt__txt_is_digit(v.p[i])) return false;
        if (e < 1000000000) e = e * 10 + (v.p[i] - '0');
    }
    d->exponent += down ? -e : e;
    return true;
}

// The whole view as a double, rounded correctly: what Python's float() takes, less blanks and underscores.
static bool ckpt__txt_double(ckpt__view v, double *out) {
    ckpt__txt_decimal d;
    if (ckpt__txt_split(v, &d)) {
        double value = d.count == 0 ? 0.0 : ckpt__txt_scale(d.digits, d.count, d.exponent);
        *out = d.minus ? -value : value;
        return true;
    }
    bool minus = v.n > 0 && v.p[0] == '-';
    if (v.n > 0 && (v.p[0] == '-' || v.p[0] == '+')) { v.p++; v.n--; }
    bool nan = ckpt__txt_eq_nocase(v, "nan"), infinite = ckpt__txt_eq_nocase(v, "inf") || ckpt__txt_eq_nocase(v, "infinity");
    if (nan) *out = (double)NAN;
    if (infinite) *out = minus ? -(double)INFINITY : (double)INFINITY;
    return nan || infinite;
}

// printf's %e or %f of a finite number, with '.' whatever the locale's point is (which may be several bytes long).
static void ckpt__txt_add_float(ckpt__buf *b, double v, int conversion, int precision) {
    size_t at = b->len;
    if (conversion == 'e') ckpt__buf_fmt(b, "%.*e", precision, v);
    else ckpt__buf_fmt(b, "%.*f", precision, v);
    if (b->err != CKPT_OK) return;
    if (at < b->len && b->data[at] == '-') at++;
    while (at < b->len && ckpt__txt_is_digit(b->data[at])) at++;
    if (at == b->len || b->data[at] == 'e') return;
    size_t end = at;
    while (end < b->len && !ckpt__txt_is_digit(b->data[end]) && b->data[end] != 'e') end++;
    b->data[at++] = '.';
    memmove(b->data + at, b->data + end, b->len - end);
    b->len -= end - at;
}

// The first `count` digits of v > 0, correctly rounded; returns the power of ten of the first.
static int ckpt__txt_digits(double v, int count, char *digits) {
    char text[64];
    (void)snprintf(text, sizeof text, "%.*e", count - 1, v);
    int n = 0;
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (ckpt__txt_is_digit(*p)) digits[n++] = *p;
    }
    return (int)strtol(p + 1, NULL, 10);
}

// Adds one unit in the last place; false when that would need another digit.
static bool ckpt__txt_digits_up(char *digits, int count) {
    for (int i = count - 1; i >= 0; i--) {
        if (digits[i] != '9') { digits[i]++; return true; }
        digits[i] = '0';
    }
    return false;
}

// The fewest digits that read back to v > 0, and of those the nearest. Returns how many.
// 15 digits survive any trip through a normal double, so a number that has 15 or fewer is found at once. At a power of two
// the doubles below are twice as dense as those above: there the nearest 16 digits may fail while the next ones up do not.
static int ckpt__txt_shortest(double v, char *digits, int *exponent) {
    int mantissa_exp;
    bool power = frexp(v, &mantissa_exp) == 0.5;
    for (int n = v < DBL_MIN ? 1 : 15; n < 17; n++) {
        *exponent = ckpt__txt_digits(v, n, digits);
        bool same = ckpt__txt_scale(digits, (size_t)n, *exponent - n + 1) == v;
        if (!same && (!power || !ckpt__txt_digits_up(digits, n))) continue;
        if (!same && ckpt__txt_scale(digits, (size_t)n, *exponent - n + 1) != v) continue;
        while (n > 1 && digits[n - 1] == '0') n--;
        return n;
    }
    *exponent = ckpt__txt_digits(v, 17, digits);
    return 17;
}

// The shortest text that reads back to the same double, as Python's repr writes it: 1.0, 0.1, 1e+16, 1e-05, inf, nan.
static void ckpt__txt_add_double(ckpt__buf *b, double v) {
    if (v != v) { ckpt__buf_text(b, "nan"); return; }
    if (signbit(v)) { ckpt__buf_byte(b, '-'); v = -v; }
    if (v > DBL_MAX) { ckpt__buf_text(b, "inf"); return; }
    if (v == 0) { ckpt__buf_text(b, "0.0"); return; }
    char digits[24];
    int exponent, n = ckpt__txt_shortest(v, digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        ckpt__buf_byte(b, (unsigned char)digits[0]);
        if (n > 1) ckpt__buf_byte(b, '.');
        ckpt__buf_add(b, digits + 1, (size_t)n - 1);
        ckpt__buf_fmt(b, "e%c%02d", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
        return;
    }
    for (int i = exponent < 0 ? exponent : 0; i < n || i <= exponent + 1; i++) {
        if (i == exponent + 1) ckpt__buf_byte(b, '.');
        ckpt__buf_byte(b, i >= 0 && i < n ? (unsigned char)digits[i] : '0');
    }
}

//-- globs -----------------------------------------------------------------------

// One bracket expression, *at behind its '['. Returns whether c is in it and moves *at behind the ']'; an unclosed one is
// a plain '['.
static bool ckpt__txt_glob_class(const char **at, const char *end, uint32_t c) {
    const char *p = *at, *close = p;
    bool negate = p < end && *p == '!';
    if (negate) close = ++p;
    if (close < end && *close == ']') close++;
    while (close < end && *close != ']') close++;
    if (close == end) return c == '[';
    bool in = false;
    while (p < close) {
        uint32_t low = ckpt__txt_next(&p, close), high = low;
        if (close - p >= 2 && *p == '-') { p++; high = ckpt__txt_next(&p, close); }
        if (c >= low && c <= high) in = true;
    }
    *at = close + 1;
    return in != negate;
}

// Python's fnmatch.fnmatchcase: '*' and '?' match '/' and line ends too, there is no escape character, "[!" negates and
// "[^" does not. Only the last '*' is ever gone back to, so the time is at most pattern times name.
static bool ckpt__txt_glob(const char *pattern, const char *name) {
    const char *p = pattern, *p_end = p + strlen(p), *s = name, *s_end = s + strlen(s);
    const char *star = NULL, *star_s = NULL;
    for (;;) {
        if (p < p_end && *p == '*') {
            star = ++p;
            star_s = s;
            continue;
        }
        bool ok = false;
        const char *next = s;
        if (s == s_end) {
            return p == p_end;
        } else if (p < p_end) {
            uint32_t c = ckpt__txt_next(&next, s_end), want = ckpt__txt_next(&p, p_end);
            ok = want == '?' ? true : want == '[' ? ckpt__txt_glob_class(&p, p_end, c) : want == c;
        }
        if (ok) {
            s = next;
        } else {
            if (star == NULL) return false;
            p = star;
            (void)ckpt__txt_next(&star_s, s_end);
            s = star_s;
        }
    }
}

//-- for people ------------------------------------------------------------------

// "512 B", "1.2 GiB": one digit behind the point, in integers, so that no locale's comma can come in.
static void ckpt__txt_size(ckpt__buf *b, uint64_t bytes) {
    static const char units[] = "KMGTPE";
    if (bytes < 1024) { ckpt__buf_fmt(b, "%u B", (unsigned)bytes); return; }
    int shift = 10;
    while (shift < 60 && bytes >> shift >= 1024) shift += 10;
    uint64_t tenth = (bytes >> (shift - 10)) * 10 + 512, whole = tenth / 10240;
    if (whole == 1024 && shift < 60) { shift += 10; whole = 1; tenth = 0; }
    ckpt__buf_fmt(b, "%u.%u %ciB", (unsigned)whole, (unsigned)(tenth / 1024 % 10), units[shift / 10 - 1]);
}

//-- uris ------------------------------------------------------------------------

enum { CKPT__URI_BACKEND = 24 };

typedef struct ckpt__uri {
    char       backend[CKPT__URI_BACKEND];  // lower case; "" for a local path
    bool       known;               // false with a backend: "://" behind a name that is no store's; for the caller to refuse
    ckpt__view authority;           // all between "://" and the next '/'
    ckpt__view bucket;              // the authority up to its first '@'
    ckpt__view path;                // without leading '/'; a local path is the text as it was given
} ckpt__uri;

static bool ckpt__txt_is_scheme(ckpt__view v) {
    if (v.n == 0 || v.n >= CKPT__URI_BACKEND || ckpt__txt_lower(v.p[0]) < 'a' || ckpt__txt_lower(v.p[0]) > 'z') return false;
    for (size_t i = 0; i < v.n; i++) {
        int c = ckpt__txt_lower(v.p[i]);
        if (!(c >= 'a' && c <= 'z') && !ckpt__txt_is_digit(c) && c != '+' && c != '-' && c != '.') return false;
    }
    return true;
}

// Splits "s3://bucket/path". Unlike urlparse, which Composer uses, it takes for a URI only what has "://" behind a legal
// scheme (or begins with "dbfs:"), so that local names may hold ':', '#', '?' and ';'.
static void ckpt__txt_uri(ckpt__uri *out, const char *text) {
    static const char *const names[] = { "s3", "gs", "oci", "sftp", "azure", "file", "http", "https", "wandb", "libcloud",
                                         "hf", "mlflow-artifacts", "dbfs" };
    memset(out, 0, sizeof *out);
    out->path = ckpt__txt_view(text);
    out->authority.p = out->bucket.p = text;
    const char *mark = strstr(text, "://");
    ckpt__view scheme = { text, mark == NULL ? 0 : (size_t)(mark - text) };
    bool azure = ckpt__txt_eq(scheme, "AZURE_BLOBS"), dbfs = ckpt__txt_starts(text, "dbfs:");
    if (dbfs) scheme.n = 4;
    if (!azure && !ckpt__txt_is_scheme(scheme)) return;
    if (azure) memcpy(out->backend, "azure", 6);
    else for (size_t i = 0; i < scheme.n; i++) out->backend[i] = (char)ckpt__txt_lower(scheme.p[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(out->backend, names[i]) == 0) out->known = true;
    }
    const char *p = text + scheme.n + 1;
    if (p[0] == '/' && p[1] == '/') {
        p += 2;
        out->authority.p = out->bucket.p = p;
        out->authority.n = strcspn(p, "/?#");
        out->bucket.n = strcspn(p, "/?#@");
        p += out->authority.n;
    }
    while (*p == '/') p++;
    out->path.p = p;
    out->path.n = strcspn(p, "?#");
}

//-- json ------------------------------------------------------------------------

typedef enum ckpt__json_kind {
    CKPT__JSON_NULL, CKPT__JSON_BOOL, CKPT__JSON_INT, CKPT__JSON_DOUBLE, CKPT__JSON_TEXT, CKPT__JSON_ARRAY, CKPT__JSON_OBJECT
} ckpt__json_kind;

typedef struct ckpt__json {
    ckpt__json_kind kind;
    int64_t         i;              // BOOL 0 or 1, INT
    double          f;              // INT and DOUBLE
    const char     *text;           // TEXT: decoded, a NUL behind it; INT and DOUBLE: as written
    size_t          text_len;
    const char     *key;            // of a member of an object, a NUL behind it; else NULL
    size_t          key_len;
    int             child, next;    // indices of nodes, 0: none
    int             owner;          // the array or object that it is in
    int             count;          // of an ARRAY or OBJECT
} ckpt__json;

enum { CKPT__JSON_DEPTH = 64 };

typedef struct ckpt__json_doc {
    ckpt_allocator allocator;
    ckpt__json    *nodes;           // nodes[0] is the root
    size_t         count, cap;
    char          *text;            // all decoded texts: no longer than the input, whose quotes and commas make room for NULs
    size_t         text_size, text_used;
    int           *slots;           // hash table of (object, key): node index, 0 empty
    size_t         slot_count, key_count;
    const char    *begin, *at, *end;    // the input, while it is parsed
} ckpt__json_doc;

static void ckpt__json_free(ckpt__json_doc *d) {
    ckpt__mem_free(&d->allocator, d->nodes, d->cap * sizeof *d->nodes);
    ckpt__mem_free(&d->allocator, d->text, d->text_size);
    ckpt__mem_free(&d->allocator, d->slots, d->slot_count * sizeof *d->slots);
    memset(d, 0, sizeof *d);
}

static ckpt_err ckpt__json_fail(const ckpt__json_doc *d, const char *what) {
    return ckpt__error_set(CKPT_CORRUPT, "not valid JSON: %s at byte %llu", what, (unsigned long long)(d->at - d->begin));
}

// Begins with the address of the texts, which a file's author does not know: keys that collide on purpose are hard to
// make.
static uint64_t ckpt__json_hash(const ckpt__json_doc *d, size_t object, const char *key, size_t n) {
    uint64_t h = ((uint64_t)(uintptr_t)d->text ^ object) * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t part = 0;
        memcpy(&part, key + i, n - i < 8 ? n - i : 8);
        h = (h ^ part) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (h ^ n) * 0xBF58476D1CE4E5B9u >> 16;
}

// The slot of that key of that object, or the empty one where it belongs.
static size_t ckpt__json_slot(const ckpt__json_doc *d, size_t object, const char *key, size_t n) {
    size_t mask = d->slot_count - 1, at = (size_t)ckpt__json_hash(d, object, key, n) & mask;
    for (; d->slots[at] != 0; at = (at + 1) & mask) {
        const ckpt__json *node = &d->nodes[d->slots[at]];
        if ((size_t)node->owner == object && node->key_len == n && memcmp(node->key, key, n) == 0) break;
    }
    return at;
}

// Enters a member into the table, which doubles when it is half full. A second member of one name is damage.
static ckpt_err ckpt__json_enter(ckpt__json_doc *d, int index) {
    if ((d->key_count + 1) * 2 > d->slot_count) {
        size_t old = d->slot_count, n = old == 0 ? 64 : old * 2;
        int *before = d->slots, *slots = (int *)ckpt__mem_alloc(&d->allocator, n * sizeof *slots);
        if (slots == NULL) return CKPT_NOMEM;
        d->slots = slots;
        d->slot_count = n;
        for (size_t i = 0; i < old; i++) {
            const ckpt__json *node = &d->nodes[before[i]];
            if (before[i] != 0) d->slots[ckpt__json_slot(d, (size_t)node->owner, node->key, node->key_len)] = before[i];
        }
        ckpt__mem_free(&d->allocator, before, old * sizeof *before);
    }
    const ckpt__json *node = &d->nodes[index];
    size_t at = ckpt__json_slot(d, (size_t)node->owner, node->key, node->key_len);
    if (d->slots[at] != 0) return ckpt__json_fail(d, "a key stands twice in one object");
    d->slots[at] = index;
    d->key_count++;
    return CKPT_OK;
}

static void ckpt__json_blanks(ckpt__json_doc *d) {
    while (d->at < d->end && (*d->at == ' ' || *d->at == '\t' || *d->at == '\n' || *d->at == '\r')) d->at++;
}

static bool ckpt__json_hex4(ckpt__json_doc *d, uint32_t *out) {
    *out = 0;
    if (d->end - d->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        int c = ckpt__txt_lower(d->at[i]);
        if (!ckpt__txt_is_digit(c) && !(c >= 'a' && c <= 'f')) return false;
        *out = *out << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    d->at += 4;
    return true;
}

// What follows a backslash. U+0000 is refused: all that comes out of here is also used as a C string.
static ckpt_err ckpt__json_escape(ckpt__json_doc *d, uint32_t *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = d->at < d->end && *d->at != 0 ? strchr(from, *d->at) : NULL;
    if (known != NULL) {
        d->at++;
        *out = (unsigned char)to[known - from];
        return CKPT_OK;
    }
    uint32_t high, low;
    bool unicode = d->at < d->end && *d->at++ == 'u';
    if (!unicode || !ckpt__json_hex4(d, &high)) return ckpt__json_fail(d, "an escape that there is not");
    if (high == 0) return ckpt__json_fail(d, "a NUL character");
    if (high >= 0xD800 && high < 0xE000) {
        bool pair = high < 0xDC00 && d->end - d->at >= 2 && d->at[0] == '\\' && d->at[1] == 'u';
        if (pair) d->at += 2;
        if (!pair || !ckpt__json_hex4(d, &low) || low < 0xDC00 || low >= 0xE000)
            return ckpt__json_fail(d, "half a surrogate pair");
        high = 0x10000 + ((high & 0x3FFu) << 10) + (low & 0x3FFu);
    }
    *out = high;
    return CKPT_OK;
}

// A text, *at behind its opening quote.
static ckpt_err ckpt__json_text(ckpt__json_doc *d, const char **text, size_t *len) {
    char *out = d->text + d->text_used;
    *text = out;
    for (;;) {
        const char *p = d->at;
        while (p < d->end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) p++;
        memcpy(out, d->at, (size_t)(p - d->at));
        out += p - d->at;
        d->at = p;
        if (p == d->end) return ckpt__json_fail(d, "a text without its closing quote");
        d->at++;
        if (*p == '"') break;
        if (*p != '\\') return ckpt__json_fail(d, "a control character inside a text");
        uint32_t c = 0;
        ckpt_err e = ckpt__json_escape(d, &c);
        if (e != CKPT_OK) return e;
        out += ckpt__txt_put(out, c);
    }
    *out++ = 0;
    *len = (size_t)(out - *text) - 1;
    d->text_used = (size_t)(out - d->text);
    return CKPT_OK;
}

static size_t ckpt__json_count_digits(const char *p, const char *end) {
    size_t n = 0;
    while (p + n < end && ckpt__txt_is_digit(p[n])) n++;
    return n;
}

static ckpt_err ckpt__json_number(ckpt__json_doc *d, ckpt__json *node) {
    const char *p = d->at, *start = p;
    if (p < d->end && *p == '-') p++;
    size_t n = ckpt__json_count_digits(p, d->end);
    bool whole = true, good = n == 1 || (n > 1 && *p != '0');
    p += n;
    if (good && p < d->end && *p == '.') {
        whole = false;
        n = ckpt__json_count_digits(++p, d->end);
        good = n > 0;
        p += n;
    }
    if (good && p < d->end && (*p == 'e' || *p == 'E')) {
        whole = false;
        p++;
        if (p < d->end && (*p == '+' || *p == '-')) p++;
        n = ckpt__json_count_digits(p, d->end);
        good = n > 0;
        p += n;
    }
    if (!good) return ckpt__json_fail(d, "something that is no value");
    ckpt__view raw = { start, (size_t)(p - start) };
    node->kind = whole && ckpt__txt_int(raw, &node->i) ? CKPT__JSON_INT : CKPT__JSON_DOUBLE;
    (void)ckpt__txt_double(raw, &node->f);
    node->text = d->text + d->text_used;
    node->text_len = raw.n;
    memcpy(d->text + d->text_used, raw.p, raw.n);
    d->text[d->text_used + raw.n] = 0;
    d->text_used += raw.n + 1;
    d->at = p;
    return CKPT_OK;
}

static bool ckpt__json_word(ckpt__json_doc *d, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(d->end - d->at) < n || memcmp(d->at, word, n) != 0) return false;
    d->at += n;
    return true;
}

// A value that is no array and no object.
static ckpt_err ckpt__json_scalar(ckpt__json_doc *d, ckpt__json *node) {
    if (ckpt__json_word(d, "\"")) {
        node->kind = CKPT__JSON_TEXT;
        return ckpt__json_text(d, &node->text, &node->text_len);
    }
    if (ckpt__json_word(d, "null")) return CKPT_OK;
    node->i = ckpt__json_word(d, "true");
    if (node->i == 0 && !ckpt__json_word(d, "false")) return ckpt__json_number(d, node);
    node->kind = CKPT__JSON_BOOL;
    return CKPT_OK;
}

// One value, with its key when it is a member: a node behind `*last`, the youngest child of `owner`.
static ckpt_err ckpt__json_value(ckpt__json_doc *d, int owner, int *last) {
    if (d->count >= (size_t)INT_MAX - 1) return ckpt__json_fail(d, "too many values");
    ckpt_err e = ckpt__mem_grow(&d->allocator, (void **)&d->nodes, sizeof *d->nodes, &d->cap, d->count + 1);
    if (e != CKPT_OK) return e;
    int index = (int)d->count++;
    ckpt__json *node = &d->nodes[index];
    if (last != NULL) {
        node->owner = owner;
        if (d->nodes[owner].count++ == 0) d->nodes[owner].child = index;
        else d->nodes[*last].next = index;
        *last = index;
        if (d->nodes[owner].kind == CKPT__JSON_OBJECT) {
            if (!ckpt__json_word(d, "\"")) return ckpt__json_fail(d, "a member without a name");
            e = ckpt__json_text(d, &node->key, &node->key_len);
            if (e == CKPT_OK) e = ckpt__json_enter(d, index);
            if (e != CKPT_OK) return e;
            ckpt__json_blanks(d);
            if (!ckpt__json_word(d, ":")) return ckpt__json_fail(d, "a name without ':'");
            ckpt__json_blanks(d);
        }
    }
    if (ckpt__json_word(d, "[")) node->kind = CKPT__JSON_ARRAY;
    else if (ckpt__json_word(d, "{")) node->kind = CKPT__JSON_OBJECT;
    else return ckpt__json_scalar(d, node);
    return CKPT_OK;
}

// All values, by a stack of the open arrays and objects instead of by recursion.
static ckpt_err ckpt__json_read(ckpt__json_doc *d) {
    int open[CKPT__JSON_DEPTH], last[CKPT__JSON_DEPTH], depth = 0;
    do {
        ckpt__json_blanks(d);
        int before = (int)d->count;
        ckpt_err e = ckpt__json_value(d, depth > 0 ? open[depth - 1] : 0, depth > 0 ? &last[depth - 1] : NULL);
        if (e != CKPT_OK) return e;
        ckpt__json_blanks(d);
        if (d->nodes[before].kind >= CKPT__JSON_ARRAY) {
            if (depth == CKPT__JSON_DEPTH) return ckpt__json_fail(d, "it is nested more than 64 deep");
            open[depth] = before;
            last[depth++] = 0;
            if (!ckpt__json_word(d, d->nodes[before].kind == CKPT__JSON_ARRAY ? "]" : "}")) continue;
            depth--;
            ckpt__json_blanks(d);
        }
        while (depth > 0 && !ckpt__json_word(d, ",")) {
            if (!ckpt__json_word(d, d->nodes[open[depth - 1]].kind == CKPT__JSON_ARRAY ? "]" : "}"))
                return ckpt__json_fail(d, "neither ',' nor the end of the array or object");
            depth--;
            ckpt__json_blanks(d);
        }
    } while (depth > 0);
    return d->at == d->end ? CKPT_OK : ckpt__json_fail(d, "more behind the value");
}

// Reads a whole text. Damage of any kind is CKPT_CORRUPT: bytes that are not UTF-8, a key twice, more than 64 levels.
// After a failure nothing is held; free after success.
static ckpt_err ckpt__json_parse(ckpt__json_doc *d, const ckpt_allocator *a, const char *text, size_t len) {
    memset(d, 0, sizeof *d);
    if (a != NULL) d->allocator = *a;
    d->begin = d->at = text;
    d->end = text + len;
    if (len > (size_t)INT_MAX || !ckpt__txt_utf8(text, len)) return ckpt__json_fail(d, "it is too long or not UTF-8");
    d->text_size = len + 2;
    d->text = (char *)ckpt__mem_resize(&d->allocator, NULL, 0, d->text_size);
    ckpt_err e = d->text == NULL ? CKPT_NOMEM : ckpt__json_read(d);
    d->begin = d->at = d->end = NULL;
    if (e != CKPT_OK) ckpt__json_free(d);
    return e;
}

static const ckpt__json *ckpt__json_root(const ckpt__json_doc *d) {
    return &d->nodes[0];
}

// The first value of an array or object, and the one behind a value; NULL when there is none. For loops in the file's order.
static const ckpt__json *ckpt__json_child(const ckpt__json_doc *d, const ckpt__json *node) {
    return node != NULL && node->child != 0 ? &d->nodes[node->child] : NULL;
}

static const ckpt__json *ckpt__json_next(const ckpt__json_doc *d, const ckpt__json *node) {
    return node->next != 0 ? &d->nodes[node->next] : NULL;
}

// A member by its name, in constant time; NULL when there is none, or when `object` is NULL or no object.
static const ckpt__json *ckpt__json_get(const ckpt__json_doc *d, const ckpt__json *object, const char *key) {
    if (object == NULL || object->kind != CKPT__JSON_OBJECT || object->count == 0) return NULL;
    int index = d->slots[ckpt__json_slot(d, (size_t)(object - d->nodes), key, strlen(key))];
    return index != 0 ? &d->nodes[index] : NULL;
}

// Writes a text with its quotes. Bytes that are not UTF-8 become U+FFFD, as JSON cannot hold them.
static void ckpt__json_add_text(ckpt__buf *b, const char *p, size_t n) {
    ckpt__buf_byte(b, '"');
    for (const char *end = p + n; p < end;) {
        const char *plain = p;
        while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' && *p != '\\') p++;
        ckpt__buf_add(b, plain, (size_t)(p - plain));
        if (p == end) break;
        uint32_t c = ckpt__txt_next(&p, end);
        if (c == '"' || c == '\\') ckpt__buf_fmt(b, "\\%c", (int)c);
        else if (c < 0x20) ckpt__buf_fmt(b, "\\u%04x", (unsigned)c);
        else ckpt__txt_add_char(b, ckpt__txt_is_stray(c) ? 0xFFFD : c, 1);
    }
    ckpt__buf_byte(b, '"');
}
//------------------------------------------------------------------------------
// >>digest     [E]  CRC-32 at the speed of memory, alone or while copying
//
// uses:    nothing
// threads: any; only constant tables
//
// The CRC-32 of zip, gzip and PNG: polynomial 0x04C11DB7, bits reflected, inverted before and after.
// Three engines give the same sums: carry-less multiplication over 512-bit registers, the same over
// 128-bit registers (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ",
// Intel 2009), and tables for every other machine. ARM has an instruction for this polynomial.
//------------------------------------------------------------------------------

#if (defined(__x86_64__) || defined(__i386__)) && !defined(CKPT__NO_SIMD)
    #if defined(__clang__)
        #if __clang_major__ >= 8
            #define CKPT__DIGEST_X86
        #endif
    #elif defined(__GNUC__)
        #if __GNUC__ >= 9
            #define CKPT__DIGEST_X86
        #endif
    #endif
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && !defined(__AARCH64EB__) && !defined(CKPT__NO_SIMD)
    #define CKPT__DIGEST_ARM
#endif

#if defined(CKPT__DIGEST_X86)
    #include <immintrin.h>
#elif defined(CKPT__DIGEST_ARM)
    #include <arm_acle.h>
#endif

//-- tables ----------------------------------------------------------------------

// A table of 256 sums is linear in its index: eight entries span it, and the preprocessor adds up the others.
#define CKPT__CRC_2(x, a)                         (x), (x) ^ (a)
#define CKPT__CRC_4(x, a, b)                      CKPT__CRC_2(x, a), CKPT__CRC_2((x) ^ (b), a)
#define CKPT__CRC_8(x, a, b, c)                   CKPT__CRC_4(x, a, b), CKPT__CRC_4((x) ^ (c), a, b)
#define CKPT__CRC_16(x, a, b, c, d)               CKPT__CRC_8(x, a, b, c), CKPT__CRC_8((x) ^ (d), a, b, c)
#define CKPT__CRC_32(x, a, b, c, d, e)            CKPT__CRC_16(x, a, b, c, d), CKPT__CRC_16((x) ^ (e), a, b, c, d)
#define CKPT__CRC_64(x, a, b, c, d, e, f)         CKPT__CRC_32(x, a, b, c, d, e), CKPT__CRC_32((x) ^ (f), a, b, c, d, e)
#define CKPT__CRC_128(x, a, b, c, d, e, f, g)     CKPT__CRC_64(x, a, b, c, d, e, f), CKPT__CRC_64((x) ^ (g), a, b, c, d, e, f)
#define CKPT__CRC_ROW(a, b, c, d, e, f, g, h) \
    { CKPT__CRC_128(0u, a, b, c, d, e, f, g), CKPT__CRC_128(h, a, b, c, d, e, f, g) }

// Row k: the sum of a byte that k zero bytes follow.
static const uint32_t ckpt__digest_table[16][256] = {
    CKPT__CRC_ROW(0x77073096u, 0xee0e612cu, 0x076dc419u, 0x0edb8832u, 0x1db71064u, 0x3b6e20c8u, 0x76dc4190u, 0xedb88320u),
    CKPT__CRC_ROW(0x191b3141u, 0x32366282u, 0x646cc504u, 0xc8d98a08u, 0x4ac21251u, 0x958424a2u, 0xf0794f05u, 0x3b83984bu),
    CKPT__CRC_ROW(0x01c26a37u, 0x0384d46eu, 0x0709a8dcu, 0x0e1351b8u, 0x1c26a370u, 0x384d46e0u, 0x709a8dc0u, 0xe1351b80u),
    CKPT__CRC_ROW(0xb8bc6765u, 0xaa09c88bu, 0x8f629757u, 0xc5b428efu, 0x5019579fu, 0xa032af3eu, 0x9b14583du, 0xed59b63bu),
    CKPT__CRC_ROW(0x3d6029b0u, 0x7ac05360u, 0xf580a6c0u, 0x30704bc1u, 0x60e09782u, 0xc1c12f04u, 0x58f35849u, 0xb1e6b092u),
    CKPT__CRC_ROW(0xcb5cd3a5u, 0x4dc8a10bu, 0x9b914216u, 0xec53826du, 0x03d6029bu, 0x07ac0536u, 0x0f580a6cu, 0x1eb014d8u),
    CKPT__CRC_ROW(0xa6770bb4u, 0x979f1129u, 0xf44f2413u, 0x33ef4e67u, 0x67de9cceu, 0xcfbd399cu, 0x440b7579u, 0x8816eaf2u),
    CKPT__CRC_ROW(0xccaa009eu, 0x4225077du, 0x844a0efau, 0xd3e51bb5u, 0x7cbb312bu, 0xf9766256u, 0x299dc2edu, 0x533b85dau),
    CKPT__CRC_ROW(0x177b1443u, 0x2ef62886u, 0x5dec510cu, 0xbbd8a218u, 0xacc04271u, 0x82f182a3u, 0xde920307u, 0x6655004fu),
    CKPT__CRC_ROW(0xefc26b3eu, 0x04f5d03du, 0x09eba07au, 0x13d740f4u, 0x27ae81e8u, 0x4f5d03d0u, 0x9eba07a0u, 0xe6050901u),
    CKPT__CRC_ROW(0xc18edfc0u, 0x586cb9c1u, 0xb0d97382u, 0xbac3e145u, 0xaef6c4cbu, 0x869c8fd7u, 0xd64819efu, 0x77e1359fu),
    CKPT__CRC_ROW(0x9ba54c6fu, 0xec3b9e9fu, 0x03063b7fu, 0x060c76feu, 0x0c18edfcu, 0x1831dbf8u, 0x3063b7f0u, 0x60c76fe0u),
    CKPT__CRC_ROW(0xdd96d985u, 0x605cb54bu, 0xc0b96a96u, 0x5a03d36du, 0xb407a6dau, 0xb37e4bf5u, 0xbd8d91abu, 0xa06a2517u),
    CKPT__CRC_ROW(0x9d0fe176u, 0xe16ec4adu, 0x19ac8f1bu, 0x33591e36u, 0x66b23c6cu, 0xcd6478d8u, 0x41b9f7f1u, 0x8373efe2u),
    CKPT__CRC_ROW(0xb9fbdbe8u, 0xa886b191u, 0x8a7c6563u, 0xcf89cc87u, 0x44629f4fu, 0x88c53e9eu, 0xcafb7b7du, 0x4e87f0bbu),
    CKPT__CRC_ROW(0xae689191u, 0x87a02563u, 0xd4314c87u, 0x73139f4fu, 0xe6273e9eu, 0x173f7b7du, 0x2e7ef6fau, 0x5cfdedf4u)
};

// x to the power 2^k modulo the polynomial. x^(2^32) is x again, so 32 of them serve every length.
static const uint32_t ckpt__digest_powers[32] = {
    0x40000000u, 0x20000000u, 0x08000000u, 0x00800000u, 0x00008000u, 0xedb88320u, 0xb1e6b092u, 0xa06a2517u,
    0xed627daeu, 0x88d14467u, 0xd7bbfe6au, 0xec447f11u, 0x8e7ea170u, 0x6427800eu, 0x4d47bae0u, 0x09fe548fu,
    0x83852d0fu, 0x30362f1au, 0x7b5a9cc3u, 0x31fec169u, 0x9fec022au, 0x6c8dedc4u, 0x15d6874du, 0x5fde7a4eu,
    0xbad90e37u, 0x2e4e5eefu, 0x4eaba214u, 0xa8a472c0u, 0x429a969eu, 0x148d302au, 0xc40ba6d0u, 0xc4e22c3cu
};

// Sixteen bytes a step. In this and the engines below `c` is the register: the sum, inverted.
static uint32_t ckpt__digest_run_table(uint32_t c, const unsigned char *p, size_t n) {
    const uint32_t (*t)[256] = ckpt__digest_table;
    for (; n >= 16; p += 16, n -= 16) {
        uint32_t x = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = t[15][x & 255] ^ t[14][x >> 8 & 255] ^ t[13][x >> 16 & 255] ^ t[12][x >> 24] ^
            t[11][p[4]] ^ t[10][p[5]] ^ t[9][p[6]] ^ t[8][p[7]] ^ t[7][p[8]] ^ t[6][p[9]] ^
            t[5][p[10]] ^ t[4][p[11]] ^ t[3][p[12]] ^ t[2][p[13]] ^ t[1][p[14]] ^ t[0][p[15]];
    }
    for (; n > 0; p++, n--) c = c >> 8 ^ t[0][(c ^ *p) & 255];
    return c;
}

//-- carry-less multiplication ---------------------------------------------------

#if defined(CKPT__DIGEST_X86)

// How far the engines fetch ahead of themselves: with streaming stores the processor's own prefetchers fall behind, and
// 1 to 24 KiB ahead makes the copy a quarter faster. Exactly 4 KiB does not: those lines meet in the same cache sets.
enum { CKPT__DIGEST_AHEAD = 8192 };

// Multiplies the two halves of `a` by the powers of x in `k` that move them over the distance to `b`, and adds `b`.
__attribute__((target("sse4.1,pclmul")))
static inline __m128i ckpt__digest_fold_128(__m128i a, __m128i b, __m128i k) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11)), b);
}

// Folds the rest, 16 bytes a step, and reduces the last 16 by table: that is one step and needs no further constants.
__attribute__((target("sse4.1,pclmul")))
static uint32_t ckpt__digest_end_128(__m128i x, unsigned char *dst, const unsigned char *src, size_t n) {
    const __m128i k16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    unsigned char last[16];
    for (size_t i = 0; i < n; i += 16) {
        __m128i y = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        if (dst != NULL) _mm_storeu_si128((__m128i *)(void *)(dst + i), y);
        x = ckpt__digest_fold_128(x, y, k16);
    }
    _mm_storeu_si128((__m128i *)(void *)last, x);
    return ckpt__digest_run_table(0, last, 16);
}

// n is a multiple of 16 and at least 64. Copies to dst on the way unless it is NULL; with `stream` past the caches
// (dst aligned to 64).
__attribute__((target("sse4.1,pclmul")))
static uint32_t ckpt__digest_run_128(uint32_t c, unsigned char *dst, const unsigned char *src, size_t n, bool stream) {
    const __m128i k64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), k16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const size_t bulk = n & ~(size_t)63;
    const bool ahead = n >= CKPT__DIGEST_AHEAD;
    __m128i x[4], y[4];
    for (size_t i = 0; i < bulk; i += 64) {
        if (ahead) _mm_prefetch((const char *)src + i + CKPT__DIGEST_AHEAD, _MM_HINT_T0);
        for (int j = 0; j < 4; j++) y[j] = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16 * j));
        if (dst != NULL && stream) {
            for (int j = 0; j < 4; j++) _mm_stream_si128((__m128i *)(void *)(dst + i + 16 * j), y[j]);
        } else if (dst != NULL) {
            for (int j = 0; j < 4; j++) _mm_storeu_si128((__m128i *)(void *)(dst + i + 16 * j), y[j]);
        }
        if (i == 0) {
            y[0] = _mm_xor_si128(y[0], _mm_cvtsi32_si128((int)c));
            for (int j = 0; j < 4; j++) x[j] = y[j];
        } else {
            for (int j = 0; j < 4; j++) x[j] = ckpt__digest_fold_128(x[j], y[j], k64);
        }
    }
    for (int j = 1; j < 4; j++) x[j] = ckpt__digest_fold_128(x[j - 1], x[j], k16);
    c = ckpt__digest_end_128(x[3], dst == NULL ? NULL : dst + bulk, src + bulk, n - bulk);
    if (stream) _mm_sfence();
    return c;
}

__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))
static inline __m512i ckpt__digest_fold_512(__m512i a, __m512i b, __m512i k) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00), _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96);
}

// As ckpt__digest_run_128, for n of at least 256.
__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))
static uint32_t ckpt__digest_run_512(uint32_t c, unsigned char *dst, const unsigned char *src, size_t n, bool stream) {
    const __m512i k256 = _mm512_set4_epi64(0x1322d1430, 0x11542778a, 0x1322d1430, 0x11542778a);
    const __m512i k64 = _mm512_set4_epi64(0x1c6e41596, 0x154442bd4, 0x1c6e41596, 0x154442bd4);
    const __m128i k16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const size_t bulk = n & ~(size_t)255, most = n & ~(size_t)63;
    const bool ahead = n >= CKPT__DIGEST_AHEAD;
    __m512i x[4], y[4];
    for (size_t i = 0; i < bulk; i += 256) {
        if (ahead) {
            for (int j = 0; j < 4; j++) _mm_prefetch((const char *)src + i + 64 * j + CKPT__DIGEST_AHEAD, _MM_HINT_T0);
        }
        for (int j = 0; j < 4; j++) y[j] = _mm512_loadu_si512((const void *)(src + i + 64 * j));
        if (dst != NULL && stream) {
            for (int j = 0; j < 4; j++) _mm512_stream_si512((__m512i *)(void *)(dst + i + 64 * j), y[j]);
        } else if (dst != NULL) {
            for (int j = 0; j < 4; j++) _mm512_storeu_si512((void *)(dst + i + 64 * j), y[j]);
        }
        if (i == 0) {
            y[0] = _mm512_xor_si512(y[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)c)));
            for (int j = 0; j < 4; j++) x[j] = y[j];
        } else {
            for (int j = 0; j < 4; j++) x[j] = ckpt__digest_fold_512(x[j], y[j], k256);
        }
    }
    for (int j = 1; j < 4; j++) x[j] = ckpt__digest_fold_512(x[j - 1], x[j], k64);
    for (size_t i = bulk; i < most; i += 64) {
        y[0] = _mm512_loadu_si512((const void *)(src + i));
        if (dst != NULL) _mm512_storeu_si512((void *)(dst + i), y[0]);
        x[3] = ckpt__digest_fold_512(x[3], y[0], k64);
    }
    __m128i z[4];                       // through memory: g++ 12 warns inside its own header about the extract instructions
    _mm512_storeu_si512((void *)z, x[3]);
    for (int j = 1; j < 4; j++) z[j] = ckpt__digest_fold_128(z[j - 1], z[j], k16);
    c = ckpt__digest_end_128(z[3], dst == NULL ? NULL : dst + most, src + most, n - most);
    if (stream) _mm_sfence();
    return c;
}

#endif // CKPT__DIGEST_X86

//-- choice ----------------------------------------------------------------------

// Below this a copy stays in the caches; above it the copy would only push useful lines out of them.
enum { CKPT__DIGEST_STREAM = 32 * 1024 };

// The register after n bytes, copied to dst on the way unless it is NULL.
static uint32_t ckpt__digest_run(uint32_t c, unsigned char *dst, const unsigned char *src, size_t n) {
#if defined(CKPT__DIGEST_X86)
    if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        bool stream = dst != NULL && n >= CKPT__DIGEST_STREAM;
        size_t head = stream ? (64 - ((uintptr_t)dst & 63)) & 63 : 0;
        if (head > 0) {
            memcpy(dst, src, head);
            c = ckpt__digest_run_table(c, src, head);
            dst += head, src += head, n -= head;
        }
        size_t bulk = n & ~(size_t)15;
        bool wide = n >= 256 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
        c = wide ? ckpt__digest_run_512(c, dst, src, bulk, stream) : ckpt__digest_run_128(c, dst, src, bulk, stream);
        if (dst != NULL) dst += bulk;
        src += bulk, n -= bulk;
    }
#elif defined(CKPT__DIGEST_ARM)
    while (n >= 8) {
        size_t bulk = dst != NULL && n > 4096 ? 4096 : n & ~(size_t)7;
        if (dst != NULL) { memcpy(dst, src, bulk); dst += bulk; }
        for (size_t i = 0; i < bulk; i += 8) {
            uint64_t x;
            memcpy(&x, src + i, 8);
            c = __crc32d(c, x);
        }
        src += bulk, n -= bulk;
    }
#endif
    while (dst != NULL && n > 4096) {
        memcpy(dst, src, 4096);
        c = ckpt__digest_run_table(c, src, 4096);
        dst += 4096, src += 4096, n -= 4096;
    }
    if (dst != NULL && n > 0) memcpy(dst, src, n);
    return ckpt__digest_run_table(c, src, n);
}

// The CRC-32 of what came before (0: nothing) and these n bytes.
static uint32_t ckpt__digest_crc32(uint32_t crc, const void *p, size_t n) {
    return ~ckpt__digest_run(~crc, NULL, (const unsigned char *)p, n);
}

// Copies n bytes and returns the CRC-32 as above; the sum costs nothing beside a large copy, which waits for memory.
static uint32_t ckpt__digest_crc32_copy(uint32_t crc, void *dst, const void *src, size_t n) {
    return ~ckpt__digest_run(~crc, (unsigned char *)dst, (const unsigned char *)src, n);
}

// The product of two polynomials modulo the CRC's, both reflected: bit 31 is x^0.
static uint32_t ckpt__digest_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        if ((a & 0x80000000u) != 0) product ^= b;
        b = (b & 1) != 0 ? b >> 1 ^ 0xedb88320u : b >> 1;
    }
    return product;
}

// What a part's CRC-32 adds to that of the whole when `size` bytes follow it. The whole's CRC-32 is the exclusive or of
// its parts' shares, in any order.
static uint32_t ckpt__digest_crc32_shift(uint32_t crc, uint64_t size) {
    for (unsigned k = 3; size != 0; size >>= 1, k++) {
        if ((size & 1) != 0) crc = ckpt__digest_multiply(ckpt__digest_powers[k & 31], crc);
    }
    return crc;
}

// The CRC-32 of A followed by B from those of A and B.
static uint32_t ckpt__digest_crc32_join(uint32_t a, uint32_t b, uint64_t b_size) {
    return ckpt__digest_crc32_shift(a, b_size) ^ b;
}


//------------------------------------------------------------------------------
// >>time       [F]  units, time strings, arithmetic, and when a checkpoint is due
//
// uses:    error memory text
// threads: any; a schedule belongs to the saver's owner
//------------------------------------------------------------------------------

typedef struct ckpt__time_word {
    const char *suffix, *name;      // "ep" in a time string; "epoch" where a unit is named
} ckpt__time_word;

enum { CKPT__TIME_UNITS = CKPT_SECOND + 1 };

static ckpt__time_word ckpt__time_words(ckpt_unit u) {
    static const ckpt__time_word words[CKPT__TIME_UNITS] = {
        { "iter", "iteration" }, { "ep", "epoch" }, { "ba", "batch" }, { "sp", "sample" }, { "tok", "token" },
        { "dur", "duration" }, { "sec", "second" }
    };
    return words[u];
}

// The unit called by its suffix or its name, in any case of letters.
static bool ckpt__time_unit(ckpt__view word, ckpt_unit *out) {
    for (int u = 0; u < CKPT__TIME_UNITS; u++) {
        ckpt__time_word w = ckpt__time_words((ckpt_unit)u);
        if (!ckpt__txt_eq_nocase(word, w.suffix) && !ckpt__txt_eq_nocase(word, w.name)) continue;
        *out = (ckpt_unit)u;
        return true;
    }
    return false;
}

//-- strings ---------------------------------------------------------------------

enum { CKPT__TIME_TEXT = 256 };     // no time string needs more

// Copies a number as Python's float() reads it: blanks around it dropped, and '_' dropped where it stands between two digits.
static bool ckpt__time_tidy(ckpt__view v, char *out, ckpt__view *tidy) {
    while (v.n > 0 && strchr(" \t\v\f\r", *v.p) != NULL) { v.p++; v.n--; }
    while (v.n > 0 && strchr(" \t\v\f\r", v.p[v.n - 1]) != NULL) v.n--;
    if (v.n == 0 || v.n >= CKPT__TIME_TEXT) return false;
    size_t n = 0;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] != '_') { out[n++] = v.p[i]; continue; }
        if (i == 0 || i + 1 == v.n || !ckpt__txt_is_digit(v.p[i - 1]) || !ckpt__txt_is_digit(v.p[i + 1])) return false;
    }
    tidy->p = out;
    tidy->n = n;
    return true;
}

// A whole number in any decimal form: "3e10" and "1.0" are whole. Exact for every int64; what is not whole as written but
// is so as a double below 2^53 counts too, since Composer takes it ("1.0000000000000001").
static bool ckpt__time_whole(ckpt__view v, int64_t *out) {
    ckpt__txt_decimal d;
    if (!ckpt__txt_split(v, &d)) return false;
    char digits[40];
    size_t n = 0;
    while (d.count > 0 && d.digits[d.count - 1] == '0') { d.count--; d.exponent++; }
    if (d.count == 0) { *out = 0; return true; }
    if (d.exponent < 0) {
        double f;
        if (!ckpt__txt_double(v, &f) || f != ckpt__txt_floor(f) || fabs(f) >= 9007199254740992.0) return false;
        *out = (int64_t)f;
        return true;
    }
    if (d.exponent > 19 || d.count > 19) return false;
    if (d.minus) digits[n++] = '-';
    memcpy(digits + n, d.digits, d.count);
    n += d.count;
    for (; d.exponent > 0; d.exponent--) digits[n++] = '0';
    ckpt__view whole = { digits, n };
    return ckpt__txt_int(whole, out);
}

static ckpt_err ckpt__time_fail(const char *text, const char *why) {
    return ckpt__error_set(CKPT_ARG, "'%.100s' is no time: %s (times are 10ep 500ba 2048sp 1e9tok 3iter 0.1dur 30sec 1h20m)",
                           text, why);
}

// "1h20m40s", "90m", "3600s": at least one part, in this order. False when it has another form.
static bool ckpt__time_clock(const char *text, int64_t *seconds) {
    static const char letters[] = "hms";
    static const int64_t worth[] = { 3600, 60, 1 };
    int64_t sum = 0;
    int part = 0;
    for (const char *p = text; *p != 0 || p == text;) {
        ckpt__view digits = { p, 0 };
        while (ckpt__txt_is_digit(p[digits.n])) digits.n++;
        p += digits.n;
        while (part < 3 && letters[part] != *p) part++;
        int64_t n;
        if (part == 3 || !ckpt__txt_int(digits, &n) || n > (INT64_MAX - sum) / worth[part]) return false;
        sum += n * worth[part++];
        p++;
    }
    *seconds = sum;
    return true;
}

// A number and a unit, or hours, minutes and seconds. Composer also reads '' as 0 s, '5' as 50 s and '1h5' as 3650 s, and
// refuses 24h, 90m and 3600s; here a time needs digits and a unit, and any number of hours, minutes or seconds is one.
static ckpt_err ckpt__time_read(ckpt_time *out, const char *text) {
    memset(out, 0, sizeof *out);
    out->unit = CKPT_SECOND;
    if (ckpt__time_clock(text, &out->value)) return CKPT_OK;
    ckpt__view v = ckpt__txt_view(text), tidy = v;
    if (v.n > 0 && v.p[v.n - 1] == '\n') v.n--;         // Composer's pattern ends in '$', which lets one line end pass
    char number[CKPT__TIME_TEXT];
    for (int u = 0; u < CKPT__TIME_UNITS; u++) {
        size_t n = strlen(ckpt__time_words((ckpt_unit)u).suffix);
        ckpt__view tail = { v.p + v.n - (v.n < n ? v.n : n), v.n < n ? v.n : n }, head = { v.p, v.n - tail.n };
        if (!ckpt__txt_eq_nocase(tail, ckpt__time_words((ckpt_unit)u).suffix)) continue;
        double f;
        out->unit = (ckpt_unit)u;
        if (!ckpt__time_tidy(head, number, &tidy) || !ckpt__txt_double(tidy, &f))
            return ckpt__time_fail(text, "it needs a number before the unit");
        if (u == CKPT_DURATION) { out->fraction = f; return CKPT_OK; }
        if (ckpt__time_whole(tidy, &out->value)) return CKPT_OK;
        return ckpt__time_fail(text, "only dur may be a fraction; the other units need a whole number below 2^63");
    }
    ckpt_unit unit;
    ckpt__view word = { v.p + v.n, 0 };
    while (word.n < v.n && ckpt__txt_lower(word.p[-1]) >= 'a' && ckpt__txt_lower(word.p[-1]) <= 'z') { word.p--; word.n++; }
    if (word.n > 1 && ckpt__txt_lower(word.p[word.n - 1]) == 's') word.n--;
    if (!ckpt__time_unit(word, &unit))
        return ckpt__time_fail(text, "it does not end in a unit: iter ep ba sp tok dur sec h m s");
    return ckpt__error_set(CKPT_ARG, "'%.100s' is no time: the unit is written '%s'", text, ckpt__time_words(unit).suffix);
}

// As ckpt__time_read, and a number alone counts in `unit`.
static ckpt_err ckpt__time_input(ckpt_time *out, const char *text, ckpt_unit unit) {
    char number[CKPT__TIME_TEXT];
    ckpt__view tidy;
    double f;
    if (!ckpt__time_tidy(ckpt__txt_view(text), number, &tidy) || !ckpt__txt_double(tidy, &f))
        return ckpt__time_read(out, text);
    memset(out, 0, sizeof *out);
    out->unit = unit;
    out->fraction = unit == CKPT_DURATION ? f : 0.0;
    if (unit == CKPT_DURATION || ckpt__time_whole(tidy, &out->value)) return CKPT_OK;
    return ckpt__time_fail(text, "only dur may be a fraction; the other units need a whole number below 2^63");
}

static void ckpt__time_write(ckpt__buf *b, ckpt_time t) {
    if (t.unit == CKPT_DURATION) ckpt__txt_add_double(b, t.fraction);
    else ckpt__buf_fmt(b, "%lld", (long long)t.value);
    ckpt__buf_text(b, ckpt__time_words(t.unit).suffix);
}

//-- arithmetic ------------------------------------------------------------------

// As Composer's Time has it. The scheduler counts for itself, so a build may leave these unused.
#if defined(__GNUC__)
    #define CKPT__TIME_MATH static __attribute__((unused))
#else
    #define CKPT__TIME_MATH static
#endif

CKPT__TIME_MATH ckpt_err ckpt__time_make(ckpt_time *out, ckpt_unit unit, double v) {
    memset(out, 0, sizeof *out);
    out->unit = unit;
    if (unit == CKPT_DURATION) { out->fraction = v; return CKPT_OK; }
    if (!(fabs(v) < 9223372036854775807.0)) return ckpt__error_set(CKPT_ARG, "the time does not fit into 64 bits");
    out->value = (int64_t)v;                // towards zero, as Python's int()
    return CKPT_OK;
}

CKPT__TIME_MATH double ckpt__time_number(ckpt_time t) {
    return t.unit == CKPT_DURATION ? t.fraction : (double)t.value;
}

CKPT__TIME_MATH ckpt_err ckpt__time_same(ckpt_time a, ckpt_time b) {
    if (a.unit == b.unit) return CKPT_OK;
    return ckpt__error_set(CKPT_ARG, "times in %s and in %s do not go together", ckpt__time_words(a.unit).suffix,
                           ckpt__time_words(b.unit).suffix);
}

CKPT__TIME_MATH ckpt_err ckpt__time_add(ckpt_time *out, ckpt_time a, ckpt_time b) {
    ckpt_err e = ckpt__time_same(a, b);
    if (e != CKPT_OK) return e;
    bool over = b.value > 0 ? a.value > INT64_MAX - b.value : a.value < INT64_MIN - b.value;
    if (over) return ckpt__error_set(CKPT_ARG, "the time does not fit into 64 bits");
    *out = a;
    out->value += b.value;
    out->fraction += b.fraction;
    return CKPT_OK;
}

CKPT__TIME_MATH ckpt_err ckpt__time_sub(ckpt_time *out, ckpt_time a, ckpt_time b) {
    if (b.value == INT64_MIN) return ckpt__error_set(CKPT_ARG, "the time does not fit into 64 bits");
    b.value = -b.value;
    b.fraction = -b.fraction;
    return ckpt__time_add(out, a, b);
}

// One of the two is a plain number, written as a dur; the product has the other's unit and drops its fraction.
CKPT__TIME_MATH ckpt_err ckpt__time_mul(ckpt_time *out, ckpt_time a, ckpt_time b) {
    if (a.unit != CKPT_DURATION && b.unit != CKPT_DURATION)
        return ckpt__error_set(CKPT_ARG, "a time is multiplied by a number or a dur, not by another time");
    return ckpt__time_make(out, a.unit == CKPT_DURATION ? b.unit : a.unit, ckpt__time_number(a) * ckpt__time_number(b));
}

// Times of one unit give a dur; a time over a plain number, written as a dur, keeps its unit.
CKPT__TIME_MATH ckpt_err ckpt__time_div(ckpt_time *out, ckpt_time a, ckpt_time b) {
    ckpt_err e = b.unit == CKPT_DURATION ? CKPT_OK : ckpt__time_same(a, b);
    if (e != CKPT_OK) return e;
    if (ckpt__time_number(b) == 0) return ckpt__error_set(CKPT_ARG, "a time is divided by zero");
    ckpt_unit unit = b.unit == CKPT_DURATION ? a.unit : CKPT_DURATION;
    return ckpt__time_make(out, unit, ckpt__time_number(a) / ckpt__time_number(b));
}

// fmod without libm: the divisor's largest power-of-two multiple is taken away, which is exact, until less than it is left.
CKPT__TIME_MATH double ckpt__time_remainder(double a, double b) {
    double left = fabs(a), step, divisor = fabs(b);
    if (!(left <= DBL_MAX) || !(divisor > 0.0)) return left - left;
    while (left >= divisor) {
        for (step = divisor; step <= left / 2;) step *= 2;
        left -= step;
    }
    return a < 0 ? -left : left;
}

// The remainder has the divisor's sign, as in Python.
CKPT__TIME_MATH ckpt_err ckpt__time_mod(ckpt_time *out, ckpt_time a, ckpt_time b) {
    ckpt_err e = ckpt__time_same(a, b);
    if (e != CKPT_OK) return e;
    if (ckpt__time_number(b) == 0) return ckpt__error_set(CKPT_ARG, "a time is divided by zero");
    *out = a;
    out->value = a.unit == CKPT_DURATION || b.value == -1 ? 0 : a.value % b.value;
    out->fraction = a.unit == CKPT_DURATION ? ckpt__time_remainder(a.fraction, b.fraction) : 0.0;
    if (out->value != 0 && (out->value < 0) != (b.value < 0)) out->value += b.value;
    if (out->fraction != 0 && (out->fraction < 0) != (b.fraction < 0)) out->fraction += b.fraction;
    return CKPT_OK;
}

// *out below, at or above 0 as a is before, at or after b.
CKPT__TIME_MATH ckpt_err ckpt__time_cmp(int *out, ckpt_time a, ckpt_time b) {
    ckpt_err e = ckpt__time_same(a, b);
    if (e != CKPT_OK) return e;
    *out = (a.value > b.value) - (a.value < b.value);
    if (a.unit == CKPT_DURATION) *out = (a.fraction > b.fraction) - (a.fraction < b.fraction);
    return CKPT_OK;
}

//-- timestamps ------------------------------------------------------------------

// From a double to the whole number below, kept inside int64.
static int64_t ckpt__time_floor(double v) {
    if (v != v) return 0;
    if (v >= 9223372036854775807.0) return INT64_MAX;
    if (v <= -9223372036854775808.0) return INT64_MIN;
    return (int64_t)ckpt__txt_floor(v);
}

// The counter of that unit; for seconds the whole seconds of the total wall clock. A timestamp has no duration: 0.
static int64_t ckpt__time_get(const ckpt_timestamp *t, ckpt_unit u) {
    switch (u) {
        case CKPT_ITERATION: return t->iteration;
        case CKPT_EPOCH:     return t->epoch;
        case CKPT_BATCH:     return t->batch;
        case CKPT_SAMPLE:    return t->sample;
        case CKPT_TOKEN:     return t->token;
        case CKPT_SECOND:    return ckpt__time_floor(t->total_wct);
        case CKPT_DURATION:  break;
    }
    return 0;
}

// Negative counters, and clocks that are negative, infinite or NaN, would spoil every later decision.
static ckpt_err ckpt__time_check(const ckpt_timestamp *t) {
    int64_t all = t->iteration | t->epoch | t->batch | t->sample | t->token | t->epoch_in_iteration | t->token_in_iteration |
                  t->batch_in_epoch | t->sample_in_epoch | t->token_in_epoch;
    if (all < 0)
        return ckpt__error_set(CKPT_ARG, "a counter of the timestamp is negative (its epoch is %lld, its batch %lld)",
                               (long long)t->epoch, (long long)t->batch);
    bool clocks = t->total_wct >= 0 && t->total_wct <= DBL_MAX && t->iteration_wct >= 0 && t->iteration_wct <= DBL_MAX &&
                  t->epoch_wct >= 0 && t->epoch_wct <= DBL_MAX && t->batch_wct >= 0 && t->batch_wct <= DBL_MAX;
    if (!clocks) return ckpt__error_set(CKPT_ARG, "a wall clock of the timestamp is negative, infinite or not a number");
    return CKPT_OK;
}

// Sums that stop at the ends of int64 instead of overflowing.
static int64_t ckpt__time_sum(int64_t a, int64_t b) {
    if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
    if (b < 0 && a < INT64_MIN - b) return INT64_MIN;
    return a + b;
}

static void ckpt__time_spend(ckpt_timestamp *t, double seconds) {
    t->total_wct += seconds;
    t->iteration_wct += seconds;
    t->epoch_wct += seconds;
    t->batch_wct = seconds;
}

static void ckpt__time_next_batch(ckpt_timestamp *t, int64_t samples, int64_t tokens, double seconds) {
    t->batch = ckpt__time_sum(t->batch, 1);
    t->batch_in_epoch = ckpt__time_sum(t->batch_in_epoch, 1);
    t->sample = ckpt__time_sum(t->sample, samples);
    t->sample_in_epoch = ckpt__time_sum(t->sample_in_epoch, samples);
    t->token = ckpt__time_sum(t->token, tokens);
    t->token_in_epoch = ckpt__time_sum(t->token_in_epoch, tokens);
    t->token_in_iteration = ckpt__time_sum(t->token_in_iteration, tokens);
    ckpt__time_spend(t, seconds);
}

static void ckpt__time_begin_epoch(ckpt_timestamp *t) {
    t->batch_in_epoch = t->sample_in_epoch = t->token_in_epoch = 0;
    t->epoch_wct = t->batch_wct = 0;
}

static void ckpt__time_next_epoch(ckpt_timestamp *t, double seconds) {
    ckpt__time_spend(t, seconds);
    t->epoch = ckpt__time_sum(t->epoch, 1);
    t->epoch_in_iteration = ckpt__time_sum(t->epoch_in_iteration, 1);
    ckpt__time_begin_epoch(t);
}

static void ckpt__time_next_iteration(ckpt_timestamp *t, double seconds) {
    ckpt__time_spend(t, seconds);
    t->iteration = ckpt__time_sum(t->iteration, 1);
    t->epoch_in_iteration = t->token_in_iteration = 0;
    t->iteration_wct = 0;
    ckpt__time_begin_epoch(t);
}

//-- when ------------------------------------------------------------------------

// How the interval is tested: not at all, as a multiple of the batch counter, or as a multiple passed since the last
// timestamp.
typedef enum ckpt__time_rule { CKPT__TIME_NEVER, CKPT__TIME_MULTIPLE, CKPT__TIME_CROSSED } ckpt__time_rule;

typedef struct ckpt__time_schedule {
    ckpt__time_rule rule;
    bool            off;            // an interval of 0 or less: never, not even at the end of training
    ckpt_event      event;          // where the interval is tested
    ckpt_unit       unit;           // the counter that it is tested on
    int64_t         every;          // > 0: the interval in that counter
    int64_t         cell;           // a multiple of `every` that an earlier call met, so that most calls need no division
    ckpt_unit       max_unit;
    int64_t         max;            // the end of training in max_unit; 0: not known
    int64_t         last_batch;     // of the last timestamp at which the interval (not the end) said yes; -1: none
} ckpt__time_schedule;

// ceil(max * fraction), where a product that is a whole number but for the rounding of `fraction` (half an ulp) and of the
// two products is that number: 0.07 of 100 is 7, though the doubles multiply to 7.000000000000001.
static bool ckpt__time_share(int64_t max, double fraction, int64_t batches_per_epoch, int64_t *out) {
    double p = (double)max * fraction * (double)batches_per_epoch, near = ckpt__txt_floor(p + 0.5);
    if (fabs(p - near) > 2 * DBL_EPSILON * p) near = -ckpt__txt_floor(-p);
    if (!(near < 9223372036854775807.0)) return false;
    *out = near < 1 ? 1 : (int64_t)near;
    return true;
}

static ckpt_err ckpt__time_schedule_dur(ckpt__time_schedule *s, const char *interval, double fraction,
                                        int64_t batches_per_epoch) {
    if (!(fraction > 0 && fraction <= DBL_MAX))
        return ckpt__error_set(CKPT_ARG, "save_interval '%.100s': a fraction of the training must be more than 0", interval);
    if (s->max == 0)
        return ckpt__error_set(CKPT_ARG, "save_interval '%.100s' is a part of max_duration: set max_duration", interval);
    if (s->max_unit == CKPT_EPOCH && batches_per_epoch <= 0)
        return ckpt__error_set(CKPT_ARG, "save_interval '%.100s' of a max_duration in epochs needs batches_per_epoch",
                               interval);
    bool by_batch = s->max_unit == CKPT_EPOCH || s->max_unit == CKPT_BATCH;
    s->unit = by_batch ? CKPT_BATCH : s->max_unit;
    s->rule = by_batch ? CKPT__TIME_MULTIPLE : CKPT__TIME_CROSSED;
    if (s->max_unit == CKPT_ITERATION) s->event = CKPT_ITERATION_CHECKPOINT;
    int64_t each = s->max_unit == CKPT_EPOCH ? batches_per_epoch : 1;
    if (!ckpt__time_share(s->max, fraction, each, &s->every)) s->rule = CKPT__TIME_NEVER;     // beyond 2^63
    return CKPT_OK;
}

// interval NULL: "1ep"; a number alone counts epochs. max_duration NULL: the end of training is not known.
static ckpt_err ckpt__time_schedule_init(ckpt__time_schedule *s, const char *interval, const char *max_duration,
                                         int64_t batches_per_epoch) {
    memset(s, 0, sizeof *s);
    s->last_batch = -1;
    s->every = 1;
    s->event = CKPT_BATCH_CHECKPOINT;
    ckpt_time t, max;
    if (interval == NULL) interval = "1ep";
    ckpt_err e = ckpt__time_input(&t, interval, CKPT_EPOCH);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "save_interval");
    if (max_duration != NULL) {
        e = ckpt__time_input(&max, max_duration, CKPT_EPOCH);
        if (e != CKPT_OK) return ckpt__error_prefix(e, "max_duration");
        if (max.unit == CKPT_DURATION || max.value <= 0)
            return ckpt__error_set(CKPT_ARG, "max_duration '%.100s' must be more than 0, and not in dur", max_duration);
        s->max_unit = max.unit;
        s->max = max.value;
    }
    if (t.unit == CKPT_DURATION) return ckpt__time_schedule_dur(s, interval, t.fraction, batches_per_epoch);
    s->off = t.value <= 0;
    s->rule = CKPT__TIME_CROSSED;
    s->unit = t.unit;
    if (t.unit == CKPT_EPOCH) s->event = CKPT_EPOCH_CHECKPOINT;
    if (t.unit == CKPT_ITERATION) s->event = CKPT_ITERATION_CHECKPOINT;
    if (!s->off) s->every = t.value;
    return CKPT_OK;
}

// Whether a multiple lies in (before, now]. Both in the cell of the last division: no.
static bool ckpt__time_crossed(ckpt__time_schedule *s, int64_t before, int64_t now) {
    uint64_t n = (uint64_t)s->every, cell = (uint64_t)s->cell;
    if ((uint64_t)before - cell < n && (uint64_t)now - cell < n) return false;
    int64_t a = before / s->every, b = now / s->every;
    s->cell = b * s->every;
    return a != b;
}

static bool ckpt__time_multiple(ckpt__time_schedule *s, int64_t now) {
    if ((uint64_t)now - (uint64_t)s->cell >= (uint64_t)s->every) s->cell = now - now % s->every;
    return now == s->cell;
}

// Composer's create_interval_scheduler, decision by decision, for the timestamp just reached; `prev` is the one before that
// step, NULL when there is none. Called once for every event: a "yes" of the interval is remembered, so that the end of
// training does not save the same batch again.
static bool ckpt__time_due(ckpt__time_schedule *s, const ckpt_timestamp *prev, const ckpt_timestamp *now, ckpt_event event) {
    if (s->off || prev == NULL) return false;
    bool ended = s->max > 0 && event != CKPT_ITERATION_CHECKPOINT && ckpt__time_get(now, s->max_unit) >= s->max;
    if (ended && now->batch != s->last_batch) return true;
    if (event != s->event || s->rule == CKPT__TIME_NEVER) return false;
    bool due = s->rule == CKPT__TIME_MULTIPLE
             ? ckpt__time_multiple(s, now->batch)
             : ckpt__time_crossed(s, ckpt__time_get(prev, s->unit), ckpt__time_get(now, s->unit));
    if (due) s->last_batch = now->batch;
    return due;
}

//------------------------------------------------------------------------------
// >>name       [G]  format strings, rank variables, and reading counters back out of names
//
// uses:    error memory platform text time
// threads: any; a pattern belongs to one thread at a time
//
// The language is Python's str.format as Composer calls it: a variable that is not known keeps
// its text, so that a name can be filled in steps. The order of checks, and what is an error,
// follow CPython 3.11 (Objects/stringlib/unicode_format.h, Python/formatter_unicode.c).
//------------------------------------------------------------------------------

static ckpt_err ckpt__name_bad(const char *format, const char *why) {
    return ckpt__error_set(CKPT_ARG, "cannot fill '%.300s': %s", format, why);
}

//-- ranks -----------------------------------------------------------------------

enum { CKPT__NAME_RANKS = 5 };      // rank, world size, local rank, local world size, node rank

static const char *ckpt__name_env(const char *variable) {
    const char *text = variable == NULL ? NULL : ckpt__os_env(variable);
    return text == NULL || text[0] == 0 ? NULL : text;
}

// A count from the environment, read as Python's int() does: blanks around it, a sign, '_' between digits.
static ckpt_err ckpt__name_env_int(const char *variable, const char *text, int *out) {
    char number[CKPT__TIME_TEXT];
    ckpt__view v = ckpt__txt_view(text);
    while (v.n > 0 && v.p[v.n - 1] == '\n') v.n--;
    int64_t value = -1;
    bool good = ckpt__time_tidy(v, number, &v);
    if (good && v.n > 1 && *v.p == '+') { v.p++; v.n--; }
    if (!good || !ckpt__txt_int(v, &value) || value < 0 || value > INT_MAX)
        return ckpt__error_set(CKPT_ARG, "the environment variable %s is '%.100s', not a number from 0 up", variable, text);
    *out = (int)value;
    return CKPT_OK;
}

// SLURM_TASKS_PER_NODE: "2(x3),1" is 2 tasks on each of the first three nodes and 1 on the fourth.
static ckpt_err ckpt__name_slurm_tasks(const char *text, int node, int *out) {
    const char *p = text;
    for (int64_t seen = 0; ckpt__txt_is_digit(*p);) {
        ckpt__view digits = { p, strspn(p, "0123456789") };
        int64_t tasks, times = 1;
        p += digits.n;
        bool good = ckpt__txt_int(digits, &tasks) && tasks <= INT_MAX;
        if (p[0] == '(' && p[1] == 'x') {
            digits.p = p += 2;
            digits.n = strspn(p, "0123456789");
            good = good && ckpt__txt_int(digits, &times) && times <= INT_MAX && p[digits.n] == ')';
            p += digits.n + 1;
        }
        if (!good || (*p != ',' && *p != 0)) break;
        seen += times;
        *out = (int)tasks;
        if (node < seen || *p == 0) return CKPT_OK;
        p++;
    }
    return ckpt__error_set(CKPT_ARG, "the environment variable SLURM_TASKS_PER_NODE is '%.100s', not a list like 2(x3),1",
                           text);
}

// The launcher's own names for the five numbers. The first family of which both the rank and the size are set speaks; it is
// asked only when neither RANK nor WORLD_SIZE is set (those come from torchrun, Composer's launcher, or a person).
// Open MPI's OMPI_COMM_WORLD_NODE_RANK is the process's place on its node, not the node's number: it is not asked.
static const char *const *ckpt__name_launcher(void) {
    static const char *const families[][CKPT__NAME_RANKS] = {
        { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
          NULL },
        { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL },
        { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID" }
    };
    if (ckpt__name_env("RANK") != NULL || ckpt__name_env("WORLD_SIZE") != NULL) return NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (ckpt__name_env(families[i][0]) != NULL && ckpt__name_env(families[i][1]) != NULL) return families[i];
    }
    return NULL;
}

// numbers: in the order of CKPT__NAME_RANKS; -1 where nothing is set. Precedence of each: RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, NODE_RANK (torchrun: GROUP_RANK); then the launcher's.
static ckpt_err ckpt__name_ranks_env(int *numbers) {
    static const char *const first[CKPT__NAME_RANKS] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                         "NODE_RANK" };
    const char *const *launcher = ckpt__name_launcher();
    for (int i = 0; i < CKPT__NAME_RANKS; i++) {
        numbers[i] = -1;
        const char *variable = first[i], *text = ckpt__name_env(variable);
        if (text == NULL && launcher == NULL && i == 4) text = ckpt__name_env(variable = "GROUP_RANK");
        if (text == NULL && launcher != NULL) text = ckpt__name_env(variable = launcher[i]);
        ckpt_err e = text == NULL ? CKPT_OK : ckpt__name_env_int(variable, text, &numbers[i]);
        if (e != CKPT_OK) return e;
    }
    const char *tasks = ckpt__name_env("SLURM_TASKS_PER_NODE");
    bool slurm = launcher != NULL && ckpt__txt_starts(launcher[0], "SLURM") && ckpt__name_env(first[3]) == NULL;
    if (slurm && tasks != NULL) return ckpt__name_slurm_tasks(tasks, numbers[4] < 0 ? 0 : numbers[4], &numbers[3]);
    return CKPT_OK;
}

static ckpt_err ckpt__name_ranks_check(const ckpt_ranks *r, bool sized, bool local_sized) {
    if (r->world_size < 1 || r->local_world_size < 1) return ckpt__error_set(CKPT_ARG, "a world of 0 or fewer ranks");
    if (r->rank < 0 || r->local_rank < 0 || r->node_rank < 0) return ckpt__error_set(CKPT_ARG, "a rank below 0");
    if (sized && r->rank >= r->world_size)
        return ckpt__error_set(CKPT_ARG, "rank %d of a world of %d: ranks count from 0", r->rank, r->world_size);
    if (local_sized && r->local_rank >= r->local_world_size)
        return ckpt__error_set(CKPT_ARG, "local rank %d of %d on this node: ranks count from 0", r->local_rank,
                               r->local_world_size);
    int functions = (r->barrier != NULL) + (r->allreduce_min != NULL) + (r->broadcast != NULL);
    if (functions != 0 && functions != 3)
        return ckpt__error_set(CKPT_ARG, "ckpt_ranks needs all of its three functions or none");
    return CKPT_OK;
}

// The ranks as given, or with world_size 0 (or NULL) from the environment; the functions are taken over in both cases. A size
// that nobody names is 1, and then does not limit its rank, as in Composer.
static ckpt_err ckpt__name_ranks(ckpt_ranks *out, const ckpt_ranks *given) {
    ckpt_ranks r;
    memset(&r, 0, sizeof r);
    if (given != NULL) r = *given;
    bool sized = r.world_size != 0, local_sized = r.local_world_size != 0;
    if (!sized) {
        int n[CKPT__NAME_RANKS];
        ckpt_err e = ckpt__name_ranks_env(n);
        if (e != CKPT_OK) return e;
        sized = n[1] >= 0;
        local_sized = n[3] >= 0;
        r.rank = n[0] < 0 ? 0 : n[0];
        r.world_size = sized ? n[1] : 1;
        r.local_rank = n[2] < 0 ? 0 : n[2];
        r.local_world_size = n[3];
        r.node_rank = n[4] < 0 ? 0 : n[4];
    }
    if (!local_sized) r.local_world_size = 1;
    ckpt_err e = ckpt__name_ranks_check(&r, sized, local_sized);
    if (e == CKPT_OK) *out = r;
    return e;
}

//-- variables -------------------------------------------------------------------

typedef enum ckpt__name_kind { CKPT__NAME_TEXT, CKPT__NAME_INT, CKPT__NAME_FLOAT } ckpt__name_kind;

typedef struct ckpt__name_value {
    ckpt__name_kind kind;
    ckpt__view      text;
    int64_t         i;
    double          f;
} ckpt__name_value;

// The variables of time: bits of ckpt__name_found.captured.
enum {
    CKPT__NAME_EPOCH, CKPT__NAME_BATCH, CKPT__NAME_SAMPLE, CKPT__NAME_TOKEN, CKPT__NAME_BATCH_IN_EPOCH,
    CKPT__NAME_SAMPLE_IN_EPOCH, CKPT__NAME_TOKEN_IN_EPOCH, CKPT__NAME_COUNTERS,
    CKPT__NAME_TOTAL_WCT = CKPT__NAME_COUNTERS, CKPT__NAME_EPOCH_WCT, CKPT__NAME_BATCH_WCT, CKPT__NAME_TIMES
};

static const char *ckpt__name_time_name(int which) {
    static const char *const names[CKPT__NAME_TIMES] = { "epoch", "batch", "sample", "token", "batch_in_epoch",
                                                         "sample_in_epoch", "token_in_epoch", "total_wct", "epoch_wct",
                                                         "batch_wct" };
    return names[which];
}

// Which variable of time that is; -1: none.
static int ckpt__name_time_find(ckpt__view name) {
    for (int i = 0; i < CKPT__NAME_TIMES; i++) {
        if (ckpt__txt_eq(name, ckpt__name_time_name(i))) return i;
    }
    return -1;
}

static int64_t *ckpt__name_counter(ckpt_timestamp *t, int which) {
    switch (which) {
        case CKPT__NAME_EPOCH:           return &t->epoch;
        case CKPT__NAME_BATCH:           return &t->batch;
        case CKPT__NAME_SAMPLE:          return &t->sample;
        case CKPT__NAME_TOKEN:           return &t->token;
        case CKPT__NAME_BATCH_IN_EPOCH:  return &t->batch_in_epoch;
        case CKPT__NAME_SAMPLE_IN_EPOCH: return &t->sample_in_epoch;
        default:                         return &t->token_in_epoch;
    }
}

static double *ckpt__name_clock(ckpt_timestamp *t, int which) {
    return which == CKPT__NAME_TOTAL_WCT ? &t->total_wct : which == CKPT__NAME_EPOCH_WCT ? &t->epoch_wct : &t->batch_wct;
}

typedef struct ckpt__name_vars {
    const char          *run_name;      // NULL: not known
    ckpt_ranks           ranks;
    bool                 has_ranks, has_world, has_time;
    ckpt_timestamp       t;
    const ckpt_name_var *extra;         // one with an empty name stands for the next positional field
    int                  extra_count;
} ckpt__name_vars;

static bool ckpt__name_rank_value(const ckpt__name_vars *v, ckpt__view name, int64_t *out) {
    if (!v->has_ranks) return false;
    if (ckpt__txt_eq(name, "rank")) *out = v->ranks.rank;
    else if (ckpt__txt_eq(name, "local_rank")) *out = v->ranks.local_rank;
    else if (ckpt__txt_eq(name, "node_rank")) *out = v->ranks.node_rank;
    else if (v->has_world && ckpt__txt_eq(name, "world_size")) *out = v->ranks.world_size;
    else if (v->has_world && ckpt__txt_eq(name, "local_world_size")) *out = v->ranks.local_world_size;
    else return false;
    return true;
}

static bool ckpt__name_lookup(const ckpt__name_vars *v, ckpt__view name, ckpt__name_value *out) {
    memset(out, 0, sizeof *out);
    int which = v->has_time ? ckpt__name_time_find(name) : -1;
    ckpt_timestamp t = v->t;
    if (v->run_name != NULL && ckpt__txt_eq(name, "run_name")) {
        out->text = ckpt__txt_view(v->run_name);
        return true;
    }
    if (which >= CKPT__NAME_COUNTERS) {
        out->kind = CKPT__NAME_FLOAT;
        out->f = *ckpt__name_clock(&t, which);
        return true;
    }
    out->kind = CKPT__NAME_INT;
    if (which >= 0) out->i = *ckpt__name_counter(&t, which);
    if (which >= 0 || ckpt__name_rank_value(v, name, &out->i)) return true;
    out->kind = CKPT__NAME_TEXT;
    for (int i = 0; i < v->extra_count; i++) {
        if (name.n == 0 || !ckpt__txt_eq(name, v->extra[i].name)) continue;
        out->text = ckpt__txt_view(v->extra[i].text);
        return true;
    }
    return false;
}

static bool ckpt__name_positional(const ckpt__name_vars *v, int index, ckpt__name_value *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < v->extra_count; i++) {
        if (v->extra[i].name[0] != 0 || index-- != 0) continue;
        out->text = ckpt__txt_view(v->extra[i].text);
        return true;
    }
    return false;
}

static ckpt_err ckpt__name_vars_init(ckpt__name_vars *v, const ckpt_name_desc *desc) {
    memset(v, 0, sizeof *v);
    v->has_ranks = v->has_world = true;
    ckpt_err e = ckpt__name_ranks(&v->ranks, desc == NULL ? NULL : desc->ranks);
    if (e != CKPT_OK || desc == NULL) return e;
    if (desc->timestamp != NULL) v->t = *desc->timestamp;
    v->has_time = true;                 // so that the check below knows every variable
    v->run_name = "";
    for (int i = 0; i < desc->extra_count; i++) {
        const ckpt_name_var *x = &desc->extra[i];
        ckpt__name_value value;
        if (x->name == NULL || x->text == NULL)
            return ckpt__error_set(CKPT_ARG, "an extra variable without a name or a text");
        if (ckpt__name_lookup(v, ckpt__txt_view(x->name), &value))
            return ckpt__error_set(CKPT_ARG, "the extra variable {%.100s} is there already", x->name);
    }
    v->has_time = desc->timestamp != NULL;
    v->run_name = desc->run_name;
    v->extra = desc->extra;
    v->extra_count = desc->extra_count;
    return CKPT_OK;
}

//-- format specs ----------------------------------------------------------------

enum { CKPT__NAME_WIDEST = 4096 };      // a name is never longer; Python would go on until memory ends

typedef struct ckpt__name_spec {        // [[fill]align][sign][z][#][0][width][grouping][.precision][type]
    uint32_t fill;
    int      align, sign, grouping, type;       // characters; 0: not given
    bool     plus_zero, alternate;              // 'z', '#'
    int      width, precision;                  // -1: not given
} ckpt__name_spec;

static bool ckpt__name_is_align(int c) {
    return c == '<' || c == '>' || c == '=' || c == '^';
}

// Digits at *p as a number; -1 when there are none, -2 when it is too wide.
static int ckpt__name_spec_number(const char **p, const char *end) {
    int n = -1;
    for (; *p < end && ckpt__txt_is_digit(**p); (*p)++) {
        if (n > CKPT__NAME_WIDEST || n == -2) n = -2;
        else n = (n < 0 ? 0 : n) * 10 + (**p - '0');
    }
    return n > CKPT__NAME_WIDEST ? -2 : n;
}

// NULL, or what is wrong. `number`: numbers stand right, and a leading 0 puts zeros behind their sign.
static const char *ckpt__name_spec_parse(ckpt__name_spec *s, ckpt__view v, bool number) {
    memset(s, 0, sizeof *s);
    const char *p = v.p, *end = v.p + v.n, *next = p;
    uint32_t first = p < end ? ckpt__txt_next(&next, end) : 0;
    bool filled = p < end && next < end && ckpt__name_is_align(*next);
    if (filled) { s->fill = first; p = next; }
    if (p < end && ckpt__name_is_align(*p)) s->align = *p++;
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) s->sign = *p++;
    if (p < end && *p == 'z') { s->plus_zero = true; p++; }
    if (p < end && *p == '#') { s->alternate = true; p++; }
    if (!filled && p < end && *p == '0') {
        s->fill = '0';
        if (s->align == 0 && number) s->align = '=';
        p++;
    }
    s->width = ckpt__name_spec_number(&p, end);
    while (p < end && (*p == ',' || *p == '_')) {
        if (s->grouping != 0) return "a format spec with two groupings";
        s->grouping = *p++;
    }
    s->precision = -1;
    if (p < end && *p == '.') {
        p++;
        s->precision = ckpt__name_spec_number(&p, end);
        if (s->precision == -1) return "a format spec with '.' but no precision";
    }
    if (s->width == -2 || s->precision == -2) return "a width or precision above 4096";
    if (end - p > 1) return "a format spec that there is not";
    if (p < end) s->type = *p;
    if (s->grouping != 0 && s->type != 0 && strchr(s->grouping == ',' ? "defgEGF%" : "defgEGF%boxX", s->type) == NULL)
        return "a grouping with a type that has none";
    if (s->align == 0) s->align = number ? '>' : '<';
    if (s->fill == 0) s->fill = ' ';
    return NULL;
}

// Text in its field. Widths and precisions count characters, not bytes.
static const char *ckpt__name_put_text(ckpt__buf *b, const ckpt__name_spec *s, ckpt__view v) {
    if (s->type != 0 && s->type != 's') return "a numeric format spec for a text (or for a variable that is not known yet)";
    if (s->sign != 0 || s->plus_zero || s->alternate || s->grouping != 0 || s->align == '=')
        return "a numeric format spec for a text";
    const char *end = v.p;
    size_t count = 0, limit = s->precision < 0 ? SIZE_MAX : (size_t)s->precision;
    for (; end < v.p + v.n && count < limit; count++) (void)ckpt__txt_next(&end, v.p + v.n);
    size_t pad = s->width > 0 && (size_t)s->width > count ? (size_t)s->width - count : 0;
    size_t left = s->align == '>' ? pad : s->align == '^' ? pad / 2 : 0;
    ckpt__txt_add_char(b, s->fill, left);
    ckpt__buf_add(b, v.p, (size_t)(end - v.p));
    ckpt__txt_add_char(b, s->fill, pad - left);
    return NULL;
}

// A number in its field: sign, prefix, digits (grouped, and filled up with zeros that are grouped too), and the rest.
static void ckpt__name_put_number(ckpt__buf *b, const ckpt__name_spec *s, bool minus, const char *prefix, ckpt__view digits,
                                  ckpt__view rest) {
    char sign = minus ? '-' : s->sign == '+' ? '+' : s->sign == ' ' ? ' ' : 0;
    size_t group = s->grouping == 0 ? SIZE_MAX : s->type != 0 && strchr("boxX", s->type) != NULL ? 4 : 3;
    size_t fixed = (sign != 0) + strlen(prefix) + ckpt__txt_length(rest), width = s->width > 0 ? (size_t)s->width : 0;
    size_t count = digits.n;
    if (s->fill == '0' && s->align == '=' && count > 0) {
        while (fixed + count + (count - 1) / group < width) count++;
    }
    size_t all = fixed + count + (count > 0 ? (count - 1) / group : 0), pad = width > all ? width - all : 0;
    size_t left = s->align == '>' ? pad : s->align == '^' ? pad / 2 : 0, inner = s->align == '=' ? pad : 0;
    ckpt__txt_add_char(b, s->fill, left);
    if (sign != 0) ckpt__buf_byte(b, (unsigned char)sign);
    ckpt__buf_text(b, prefix);
    ckpt__txt_add_char(b, s->fill, inner);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && (count - i) % group == 0) ckpt__buf_byte(b, (unsigned)s->grouping);
        ckpt__buf_byte(b, i < count - digits.n ? '0' : (unsigned char)digits.p[i - (count - digits.n)]);
    }
    ckpt__buf_add(b, rest.p, rest.n);
    ckpt__txt_add_char(b, s->fill, pad - left - inner);
}

// Drops the zeros at the end of the fraction, and its point when nothing is left, or one zero is kept behind it.
static void ckpt__name_trim_zeros(ckpt__buf *b, bool keep_one) {
    const char *e = (const char *)memchr(b->data, 'e', b->len);
    size_t end = e == NULL ? b->len : (size_t)(e - b->data), cut = end;
    if (memchr(b->data, '.', end) == NULL) return;
    while (b->data[cut - 1] == '0') cut--;
    if (b->data[cut - 1] == '.') cut = keep_one ? cut + 1 : cut - 1;
    memmove(b->data + cut, b->data + end, b->len - end);
    b->len -= end - cut;
}

// '#': a number without a point gets one.
static void ckpt__name_add_point(ckpt__buf *b) {
    if (memchr(b->data, '.', b->len) != NULL) return;
    const char *e = (const char *)memchr(b->data, 'e', b->len);
    size_t at = e == NULL ? b->len : (size_t)(e - b->data);
    ckpt__buf_byte(b, '.');
    if (b->err != CKPT_OK) return;
    memmove(b->data + at + 1, b->data + at, b->len - 1 - at);
    b->data[at] = '.';
}

// As printf's %g. No type but a precision is nearly the same: a fixed number keeps one digit behind its point, and turns to
// 'e' one place earlier. (%#g itself is not used: glibc drops zeros where rounding carries into a new digit.)
static void ckpt__name_general(ckpt__buf *b, const ckpt__name_spec *s, double v) {
    int precision = s->precision < 0 ? 6 : s->precision == 0 ? 1 : s->precision;
    ckpt__txt_add_float(b, v, 'e', precision - 1);
    if (b->err != CKPT_OK) return;
    int exponent = (int)strtol(strchr(ckpt__buf_cstr(b), 'e') + 1, NULL, 10);
    bool fixed = exponent >= -4 && exponent < precision - (s->type == 0 ? 1 : 0);
    if (fixed) {
        b->len = 0;
        ckpt__txt_add_float(b, v, 'f', precision - 1 - exponent);
    }
    if (b->err == CKPT_OK && !s->alternate) ckpt__name_trim_zeros(b, fixed && s->type == 0);
}

// The digits of v >= 0 for a type of float, as Python's float_repr_style "short" writes them.
static void ckpt__name_float_digits(ckpt__buf *b, const ckpt__name_spec *s, double v) {
    int type = ckpt__txt_lower(s->type), precision = s->precision < 0 ? 6 : s->precision;
    if (v > DBL_MAX || v != v) { ckpt__buf_text(b, v != v ? "nan" : "inf"); return; }
    if (type == '%' || type == 'f') ckpt__txt_add_float(b, v, 'f', precision);
    else if (type == 'e') ckpt__txt_add_float(b, v, 'e', precision);
    else if (type == 0 && s->precision < 0) ckpt__txt_add_double(b, v);
    else ckpt__name_general(b, s, v);
    if (s->alternate && b->err == CKPT_OK) ckpt__name_add_point(b);
}

static const char *ckpt__name_put_float(ckpt__buf *b, const ckpt__name_spec *s, double v) {
    if (s->type != 0 && strchr("eEfFgGn%", s->type) == NULL) return "an integer's or a text's format spec for a float";
    ckpt__buf digits;
    ckpt__buf_init(&digits, &b->allocator);
    bool minus = v == v && signbit(v);
    ckpt__name_float_digits(&digits, s, (minus ? -v : v) * (s->type == '%' ? 100.0 : 1.0));
    if (s->type == '%') ckpt__buf_byte(&digits, '%');
    if (digits.err == CKPT_OK) {
        bool zero = true;
        size_t lead = 0;
        for (size_t i = 0; i < digits.len && digits.data[i] != 'e'; i++) zero = zero && strchr("0.%", digits.data[i]) != NULL;
        if (s->plus_zero && zero) minus = false;
        if (s->type == 'E' || s->type == 'F' || s->type == 'G') {
            for (size_t i = 0; i < digits.len; i++) {
                if (digits.data[i] >= 'a' && digits.data[i] <= 'z') digits.data[i] = (char)(digits.data[i] - 32);
            }
        }
        while (lead < digits.len && ckpt__txt_is_digit(digits.data[lead])) lead++;
        ckpt__view whole = { digits.data, lead }, rest = { digits.data + lead, digits.len - lead };
        ckpt__name_put_number(b, s, minus, "", whole, rest);
    } else {
        b->err = digits.err;
    }
    ckpt__buf_free(&digits);
    return NULL;
}

static const char *ckpt__name_put_int(ckpt__buf *b, const ckpt__name_spec *s, int64_t v) {
    static const char low[] = "0123456789abcdef", high[] = "0123456789ABCDEF";
    if (s->type != 0 && strchr("eEfFgG%", s->type) != NULL) return ckpt__name_put_float(b, s, (double)v);
    if (s->type != 0 && strchr("bcdnoxX", s->type) == NULL) return "a text's format spec for an integer";
    if (s->precision >= 0) return "a precision for an integer";
    if (s->plus_zero) return "a 'z' for an integer";
    char digits[72];
    size_t at = sizeof digits;
    ckpt__view none = { digits, 0 };
    if (s->type == 'c') {
        if (s->sign != 0 || s->alternate) return "a sign or '#' for a character";
        if (v < 1 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return "a number that is no character";
        ckpt__view rest = { digits, ckpt__txt_put(digits, (uint32_t)v) };
        ckpt__name_put_number(b, s, false, "", none, rest);
        return NULL;
    }
    bool upper = s->type == 'X', bare = s->type == 0 || s->type == 'd' || s->type == 'n';
    unsigned base = bare ? 10 : s->type == 'b' ? 2 : s->type == 'o' ? 8 : 16;
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (upper ? high : low)[left % base];
        left /= base;
    } while (left > 0);
    char prefix[3] = { '0', (char)s->type, 0 };
    ckpt__view whole = { digits + at, sizeof digits - at };
    ckpt__name_put_number(b, s, v < 0, s->alternate && !bare ? prefix : "", whole, none);
    return NULL;
}

static const char *ckpt__name_put(ckpt__buf *b, const ckpt__name_value *v, ckpt__view spec) {
    ckpt__name_spec s;
    const char *why = ckpt__name_spec_parse(&s, spec, v->kind != CKPT__NAME_TEXT);
    if (why != NULL) return why;
    if (v->kind == CKPT__NAME_TEXT) return ckpt__name_put_text(b, &s, v->text);
    return v->kind == CKPT__NAME_INT ? ckpt__name_put_int(b, &s, v->i) : ckpt__name_put_float(b, &s, v->f);
}

//-- fields ----------------------------------------------------------------------

// A stretch of plain text and the field behind it.
typedef struct ckpt__name_field {
    ckpt__view literal;
    bool       present;             // false: only the literal
    ckpt__view name, path, spec;    // {name path ! conversion : spec}; path: ".attribute" and "[index]" parts
    int        conversion;          // 0, or the character behind '!'
} ckpt__name_field;

static const char *ckpt__name_scan_field(const char **at, const char *end, ckpt__name_field *f) {
    const char *p = *at, *start = p;
    bool bracket = false;
    for (; p < end; p++) {
        if (*p == '{') return "a '{' inside a field's name";
        if (*p == '[') bracket = true;
        else if (*p == ']') bracket = false;
        else if (!bracket && (*p == '}' || *p == ':' || *p == '!')) break;
    }
    if (p == end) return "a '{' without its '}'";
    size_t head = 0, all = (size_t)(p - start);
    while (head < all && start[head] != '.' && start[head] != '[') head++;
    f->present = true;
    f->name.p = start;
    f->name.n = head;
    f->path.p = start + head;
    f->path.n = all - head;
    if (*p++ == '!') {
        if (p == end) return "a '!' without its conversion";
        f->conversion = (unsigned char)*p++;
        if (p < end && *p != ':' && *p != '}') return "a conversion of more than one character";
        if (p == end) return "a '{' without its '}'";
        p++;
    }
    f->spec.p = p;
    if (p[-1] == '}') { *at = p; return NULL; }
    for (int depth = 1; p < end; p++) {
        if (*p == '{') depth++;
        if (*p != '}' || --depth != 0) continue;
        f->spec.n = (size_t)(p - f->spec.p);
        *at = p + 1;
        return NULL;
    }
    return "a '{' without its '}'";
}

// The next piece of [*at, end). "{{" and "}}" end a literal with one brace.
static const char *ckpt__name_scan(const char **at, const char *end, ckpt__name_field *f) {
    memset(f, 0, sizeof *f);
    const char *p = *at;
    f->literal.p = p;
    while (p < end && *p != '{' && *p != '}') p++;
    f->literal.n = (size_t)(p - *at);
    *at = p;
    if (p == end) return NULL;
    if (p + 1 < end && p[1] == *p) {
        f->literal.n++;
        *at = p + 2;
        return NULL;
    }
    if (*p == '}') return "a single '}' (a brace is written '}}')";
    *at = p + 1;
    if (*at == end) return "a single '{' (a brace is written '{{')";
    return ckpt__name_scan_field(at, end, f);
}

// Python's repr of a text. Characters above U+00A0 count as printable, but for the few that end a line.
static void ckpt__name_repr(ckpt__buf *b, ckpt__view v, bool ascii) {
    bool single = memchr(v.p, '\'', v.n) != NULL, twice = memchr(v.p, '"', v.n) != NULL;
    unsigned quote = single && !twice ? '"' : '\'';
    ckpt__buf_byte(b, quote);
    for (const char *p = v.p, *end = v.p + v.n; p < end;) {
        uint32_t c = ckpt__txt_next(&p, end);
        bool odd = c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x2028 || c == 0x2029 || ckpt__txt_is_stray(c);
        if (c == quote || c == '\\') ckpt__buf_fmt(b, "\\%c", (int)c);
        else if (c == '\n') ckpt__buf_text(b, "\\n");
        else if (c == '\r') ckpt__buf_text(b, "\\r");
        else if (c == '\t') ckpt__buf_text(b, "\\t");
        else if (!odd && (c < 0x80 || !ascii)) ckpt__txt_add_char(b, c, 1);
        else ckpt__buf_fmt(b, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    }
    ckpt__buf_byte(b, quote);
}

// Follows ".real" and "[0]": what numbers and texts have that makes sense in a name.
static const char *ckpt__name_follow(ckpt__name_value *v, ckpt__view path) {
    const char *p = path.p, *end = p + path.n;
    while (p < end) {
        bool index = *p == '[';
        if (!index && *p != '.') return "something behind a ']'";
        ckpt__view part = { ++p, 0 };
        while (p < end && (index ? *p != ']' : *p != '.' && *p != '[')) p++;
        part.n = (size_t)(p - part.p);
        if (part.n == 0) return "an attribute or index without a name";
        if (index && p++ == end) return "a '[' without its ']'";
        int64_t n = 0;
        if (index) {
            if (v->kind != CKPT__NAME_TEXT || part.p[0] == '-' || !ckpt__txt_int(part, &n))
                return "an index that the variable does not have";
            const char *c = v->text.p, *stop = c + v->text.n, *from = c;
            for (; c < stop && n >= 0; n--) { from = c; (void)ckpt__txt_next(&c, stop); }
            if (n >= 0) return "an index behind the end of the text";
            v->text.p = from;
            v->text.n = (size_t)(c - from);
        } else if (v->kind == CKPT__NAME_TEXT) {
            return "an attribute of a text (or of a variable that is not known yet)";
        } else if (ckpt__txt_eq(part, "imag")) {
            v->i = 0;
            v->f = 0;
        } else if (v->kind == CKPT__NAME_INT && ckpt__txt_eq(part, "denominator")) {
            v->i = 1;
        } else if (!ckpt__txt_eq(part, "real") && !(v->kind == CKPT__NAME_INT && ckpt__txt_eq(part, "numerator"))) {
            return "an attribute that the variable does not have";
        }
    }
    return NULL;
}

typedef struct ckpt__name_render {
    const ckpt__name_vars *vars;
    const char            *format;      // for sentences
    bool                   strict;      // a variable that is not known is an error
    int                    next;        // the next {} is this positional field
    bool                   counted, numbered;   // {} was seen, {0} was seen
} ckpt__name_render;

// The value of a field's name; one that is not known is its own text, "{name}", kept in `text`.
static ckpt_err ckpt__name_value_of(ckpt__name_render *r, const ckpt__name_field *f, ckpt__buf *text, ckpt__name_value *v) {
    int64_t index = -1;
    bool digits = f->name.n > 0 && ckpt__json_count_digits(f->name.p, f->name.p + f->name.n) == f->name.n;
    if (digits && (!ckpt__txt_int(f->name, &index) || index >= 10000))
        return ckpt__name_bad(r->format, "a positional field above 9999");
    if (digits) r->numbered = true;
    if (f->name.n == 0) { r->counted = true; index = r->next++; }
    if (r->counted && r->numbered) return ckpt__name_bad(r->format, "both {} and {0}");
    if (index >= 0 ? ckpt__name_positional(r->vars, (int)index, v) : ckpt__name_lookup(r->vars, f->name, v)) return CKPT_OK;
    if (r->strict)
        return ckpt__error_set(CKPT_ARG, "cannot fill '%.300s': {%.*s} is not known here", r->format,
                               f->name.n < 100 ? (int)f->name.n : 100, f->name.p);
    ckpt__buf_byte(text, '{');
    if (index < 0) ckpt__buf_add(text, f->name.p, f->name.n);
    ckpt__buf_byte(text, '}');
    v->kind = CKPT__NAME_TEXT;
    v->text = ckpt__txt_view(ckpt__buf_cstr(text));
    return text->err;
}

// !s, !r and !a make any value a text.
static const char *ckpt__name_convert(ckpt__name_value *v, int conversion, ckpt__buf *text) {
    ckpt__view none = { "", 0 };
    if (conversion == 0) return NULL;
    if (conversion != 's' && conversion != 'r' && conversion != 'a') return "a conversion that is none of !s !r !a";
    if (v->kind == CKPT__NAME_TEXT && conversion == 's') return NULL;
    if (v->kind == CKPT__NAME_TEXT) ckpt__name_repr(text, v->text, conversion == 'a');
    else (void)ckpt__name_put(text, v, none);
    v->kind = CKPT__NAME_TEXT;
    v->text = ckpt__txt_view(ckpt__buf_cstr(text));
    return NULL;
}

// One field into `out`, its spec already filled.
static ckpt_err ckpt__name_render_field(ckpt__name_render *r, ckpt__buf *out, const ckpt__name_field *f, ckpt__name_value *v,
                                        ckpt__view spec) {
    ckpt__buf text;
    ckpt__buf_init(&text, &out->allocator);
    const char *why = ckpt__name_follow(v, f->path);
    if (why == NULL) why = ckpt__name_convert(v, f->conversion, &text);
    if (why == NULL && text.err == CKPT_OK) why = ckpt__name_put(out, v, spec);
    ckpt_err e = why != NULL ? ckpt__name_bad(r->format, why) : text.err;
    ckpt__buf_free(&text);
    return e;
}

// Fills [at, end) into `out`. depth: fields may stand in a spec, but not in a spec's spec.
static ckpt_err ckpt__name_render_text(ckpt__name_render *r, ckpt__buf *out, const char *at, const char *end, int depth) {
    if (depth == 0) return ckpt__name_bad(r->format, "fields nested more than 2 deep");
    ckpt_err e = CKPT_OK;
    while (at < end && e == CKPT_OK) {
        ckpt__name_field f;
        const char *why = ckpt__name_scan(&at, end, &f);
        if (why != NULL) return ckpt__name_bad(r->format, why);
        ckpt__buf_add(out, f.literal.p, f.literal.n);
        if (!f.present) continue;
        ckpt__buf text, inner;
        ckpt__name_value v;
        ckpt__view spec = f.spec;
        ckpt__buf_init(&text, &out->allocator);
        ckpt__buf_init(&inner, &out->allocator);
        e = ckpt__name_value_of(r, &f, &text, &v);
        if (e == CKPT_OK && spec.n > 0 && memchr(spec.p, '{', spec.n) != NULL) {
            e = ckpt__name_render_text(r, &inner, spec.p, spec.p + spec.n, depth - 1);
            spec = ckpt__txt_view(ckpt__buf_cstr(&inner));
        }
        if (e == CKPT_OK) e = inner.err;
        if (e == CKPT_OK) e = ckpt__name_render_field(r, out, &f, &v, spec);
        ckpt__buf_free(&text);
        ckpt__buf_free(&inner);
    }
    return e != CKPT_OK ? e : out->err;
}

static ckpt_err ckpt__name_render_all(ckpt__buf *out, const char *format, const ckpt__name_vars *vars, bool strict) {
    ckpt__name_render r;
    memset(&r, 0, sizeof r);
    r.vars = vars;
    r.format = format;
    r.strict = strict;
    return ckpt__name_render_text(&r, out, format, format + strlen(format), 2);
}

// Appends the filled format. Fails with CKPT_ARG and a sentence, or CKPT_NOMEM; `out` is then cut back to what it was.
static ckpt_err ckpt__name_format(ckpt__buf *out, const char *format, const ckpt_name_desc *desc) {
    ckpt__name_vars vars;
    size_t before = out->len;
    ckpt_err e = ckpt__name_vars_init(&vars, desc);
    if (e == CKPT_OK) e = ckpt__name_render_all(out, format, &vars, false);
    if (e != CKPT_OK) out->len = before;
    return e;
}

// A path to load: {run_name} when it is known, and rank, local_rank and node_rank as 0, because rank 0's file is the one that
// is read (Composer, SPEC 7.3). Anything else in braces is an error. Composer fills in two passes; one keeps "{{" an escape.
static ckpt_err ckpt__name_load_path(ckpt__buf *out, const char *path, const char *run_name) {
    ckpt__name_vars vars;
    memset(&vars, 0, sizeof vars);
    vars.has_ranks = true;
    vars.run_name = run_name;
    size_t before = out->len;
    ckpt_err e = ckpt__name_render_all(out, path, &vars, true);
    if (e != CKPT_OK) out->len = before;
    return e;
}

//-- the inverse -----------------------------------------------------------------

typedef enum ckpt__name_part_kind {
    CKPT__NAME_LITERAL, CKPT__NAME_COUNT, CKPT__NAME_CLOCK, CKPT__NAME_ANY
} ckpt__name_part_kind;

typedef struct ckpt__name_part {
    ckpt__name_part_kind kind;
    ckpt__view           text;      // LITERAL, as an offset until the pattern is whole; ANY: the variable's name when bare
    int                  which;     // COUNT, CLOCK: the variable
    int                  same;      // the earlier part with the same value, -1: none
    bool                 closed;    // no part from here on looks back past here: what fails here once fails always
    bool                 plain;     // COUNT: digits only, of which at least `width`
    bool                 as_text;   // COUNT: converted by !s !r !a
    ckpt__name_spec      spec;
} ckpt__name_part;

enum { CKPT__NAME_PARTS = 64, CKPT__NAME_STEPS = 1 << 17 };

// What a name said: the counters in `t`, and which of them as bits 1 << CKPT__NAME_EPOCH and so on.
typedef struct ckpt__name_found {
    ckpt_timestamp t;
    unsigned       captured;
} ckpt__name_found;

// A format made ready for many names. Run name, ranks and extra variables are literals in it; a variable that is not known
// stands for any text without a '/'.
typedef struct ckpt__name_pattern {
    ckpt_allocator  allocator;
    ckpt__name_part parts[CKPT__NAME_PARTS];
    int             count;
    ckpt__buf       literals;
    // While one name is matched:
    ckpt__buf        scratch;
    ckpt__buf        dead;          // a byte per part and place that is known to fail
    ckpt__view       name;
    ckpt__view       taken[CKPT__NAME_PARTS];
    int64_t          value[CKPT__NAME_PARTS];
    double           clock[CKPT__NAME_PARTS];
    int              steps;
    bool             lenient;       // a counter may have zeros before it that this format would not write
} ckpt__name_pattern;

static void ckpt__name_pattern_free(ckpt__name_pattern *p) {
    ckpt__buf_free(&p->literals);
    ckpt__buf_free(&p->scratch);
    ckpt__buf_free(&p->dead);
}

static ckpt_err ckpt__name_pattern_add(ckpt__name_pattern *p, const char *format, ckpt__name_part_kind kind,
                                       ckpt__name_part **out) {
    if (p->count == CKPT__NAME_PARTS) return ckpt__name_bad(format, "too many fields");
    ckpt__name_part *part = &p->parts[p->count++];
    memset(part, 0, sizeof *part);
    part->kind = kind;
    part->same = -1;
    *out = part;
    return CKPT_OK;
}

// Adds text to the literal at the end, begun if need be. Its place is noted as an offset: the buffer may still move.
static ckpt_err ckpt__name_pattern_text(ckpt__name_pattern *p, const char *format, ckpt__view text) {
    if (text.n == 0) return CKPT_OK;
    ckpt__name_part *part = p->count > 0 ? &p->parts[p->count - 1] : NULL;
    if (part == NULL || part->kind != CKPT__NAME_LITERAL) {
        ckpt_err e = ckpt__name_pattern_add(p, format, CKPT__NAME_LITERAL, &part);
        if (e != CKPT_OK) return e;
    }
    part->text.n += text.n;
    ckpt__buf_add(&p->literals, text.p, text.n);
    return p->literals.err;
}

// A variable of time: digits, or whatever its spec makes of a number.
static ckpt_err ckpt__name_pattern_time(ckpt__name_pattern *p, const char *format, const ckpt__name_field *f, int which,
                                        ckpt__view spec) {
    ckpt__name_part *part = NULL;
    bool clock = which >= CKPT__NAME_COUNTERS;
    ckpt_err e = ckpt__name_pattern_add(p, format, clock ? CKPT__NAME_CLOCK : CKPT__NAME_COUNT, &part);
    if (e != CKPT_OK) return e;
    part->which = which;
    part->as_text = f->conversion != 0;
    const char *why = ckpt__name_spec_parse(&part->spec, spec, !part->as_text);
    if (why != NULL) return ckpt__name_bad(format, why);
    const ckpt__name_spec *s = &part->spec;
    bool zeros = s->width < 0 || (s->fill == '0' && (s->align == '=' || s->align == '>'));
    bool digits = (s->type == 0 || s->type == 'd' || s->type == 'n') && s->sign == 0 && s->grouping == 0;
    part->plain = zeros && digits && !part->as_text;
    return CKPT_OK;
}

static ckpt_err ckpt__name_pattern_field(ckpt__name_pattern *p, ckpt__name_render *r, const ckpt__name_field *f) {
    ckpt__buf text, filled;
    ckpt__name_value v;
    ckpt__view spec = f->spec;
    ckpt__name_part *part = NULL;
    ckpt__buf_init(&text, &p->allocator);
    ckpt__buf_init(&filled, &p->allocator);
    ckpt_err e = CKPT_OK;
    if (spec.n > 0 && memchr(spec.p, '{', spec.n) != NULL) {
        e = ckpt__name_render_text(r, &filled, spec.p, spec.p + spec.n, 1);
        spec = ckpt__txt_view(ckpt__buf_cstr(&filled));
    }
    int which = ckpt__name_time_find(f->name);
    bool bare = f->path.n == 0 && f->conversion == 0 && f->spec.n == 0;
    if (e == CKPT_OK && which >= 0 && (f->path.n == 0 || ckpt__txt_eq(f->path, ".real"))) {
        e = ckpt__name_pattern_time(p, r->format, f, which, spec);
    } else if (e == CKPT_OK) {
        e = ckpt__name_value_of(r, f, &text, &v);
        bool known = e == CKPT_OK && text.len == 0;
        text.len = 0;
        if (known) e = ckpt__name_render_field(r, &text, f, &v, spec);
        if (known && e == CKPT_OK) {
            ckpt__view literal = { text.data, text.len };
            e = text.err != CKPT_OK ? text.err : ckpt__name_pattern_text(p, r->format, literal);
        } else if (e == CKPT_OK) {
            e = ckpt__name_pattern_add(p, r->format, CKPT__NAME_ANY, &part);
            if (e == CKPT_OK && bare) part->text = f->name;
        }
    }
    ckpt__buf_free(&filled);
    ckpt__buf_free(&text);
    return e;
}

// Finds, for each part, the earlier one that must agree with it, and from which parts on no such tie reaches back.
static void ckpt__name_pattern_tie(ckpt__name_pattern *p) {
    size_t at = 0;
    for (int i = 0; i < p->count; i++) {
        ckpt__name_part *a = &p->parts[i];
        if (a->kind == CKPT__NAME_LITERAL) {
            a->text.p = p->literals.data + at;
            at += a->text.n;
        }
        for (int j = 0; j < i && a->same < 0; j++) {
            const ckpt__name_part *b = &p->parts[j];
            bool same = a->kind == b->kind && a->which == b->which && a->text.n == b->text.n;
            if (a->kind == CKPT__NAME_ANY) same = same && a->text.n > 0 && memcmp(a->text.p, b->text.p, a->text.n) == 0;
            if (same && (a->kind == CKPT__NAME_ANY || a->kind == CKPT__NAME_COUNT)) a->same = j;
        }
    }
    int reach = p->count;
    for (int i = p->count - 1; i >= 0; i--) {
        if (p->parts[i].same >= 0 && p->parts[i].same < reach) reach = p->parts[i].same;
        p->parts[i].closed = reach >= i;
    }
}

// desc: run name, ranks and extra variables; its timestamp does not matter. `format` must outlive the pattern. Free after
// success.
static ckpt_err ckpt__name_pattern_init(ckpt__name_pattern *p, const ckpt_allocator *a, const char *format,
                                        const ckpt_name_desc *desc) {
    ckpt__name_vars vars;
    ckpt__name_render r;
    memset(p, 0, sizeof *p);
    memset(&r, 0, sizeof r);
    if (a != NULL) p->allocator = *a;
    ckpt__buf_init(&p->literals, &p->allocator);
    ckpt__buf_init(&p->scratch, &p->allocator);
    ckpt__buf_init(&p->dead, &p->allocator);
    ckpt_err e = ckpt__name_vars_init(&vars, desc);
    vars.has_time = false;
    r.vars = &vars;
    r.format = format;
    const char *at = format, *end = format + strlen(format);
    while (at < end && e == CKPT_OK) {
        ckpt__name_field f;
        const char *why = ckpt__name_scan(&at, end, &f);
        e = why != NULL ? ckpt__name_bad(format, why) : ckpt__name_pattern_text(p, format, f.literal);
        if (e == CKPT_OK && f.present) e = ckpt__name_pattern_field(p, &r, &f);
    }
    if (e == CKPT_OK) ckpt__name_pattern_tie(p);
    else ckpt__name_pattern_free(p);
    return e;
}

// Whether `value`, put out as that part puts it, stands at `at`; *size is how long it is there.
static bool ckpt__name_stands(ckpt__name_pattern *p, const ckpt__name_part *part, int64_t value, size_t at, size_t *size) {
    ckpt__name_value v;
    char text[24];
    memset(&v, 0, sizeof v);
    v.kind = part->as_text ? CKPT__NAME_TEXT : CKPT__NAME_INT;
    v.i = value;
    if (part->as_text) {
        (void)snprintf(text, sizeof text, "%lld", (long long)value);
        v.text = ckpt__txt_view(text);
    }
    p->scratch.len = 0;
    const char *why = part->as_text ? ckpt__name_put_text(&p->scratch, &part->spec, v.text)
                                    : ckpt__name_put_int(&p->scratch, &part->spec, value);
    *size = p->scratch.len;
    if (why != NULL || p->scratch.err != CKPT_OK || *size == 0 || *size > p->name.n - at) return false;
    return memcmp(p->scratch.data, p->name.p + at, *size) == 0;
}

// The number that the first digits at `at` spell in the part's base, at most `limit` of them, separators passed over; *digits
// counts those taken. False when there are none or they do not fit.
static bool ckpt__name_guess(const ckpt__name_pattern *p, const ckpt__name_part *part, size_t at, int limit, int *digits,
                             int64_t *out) {
    const ckpt__name_spec *s = &part->spec;
    bool based = !part->as_text && s->type != 0 && strchr("boxX", s->type) != NULL;
    uint64_t base = !based ? 10 : s->type == 'b' ? 2 : s->type == 'o' ? 8 : 16, value = 0;
    const char *c = p->name.p + at, *end = p->name.p + p->name.n;
    *digits = 0;
    if (based && s->alternate) {
        while (end - c >= 2 && !(c[0] == '0' && c[1] == s->type) && *c != '/') c++;
        c += end - c >= 2 ? 2 : 0;
    }
    for (; c < end && *c != '/' && *digits < limit; c++) {
        int low = ckpt__txt_lower(*c), d = low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
        if (ckpt__txt_is_digit(low)) d = low - '0';
        if (d < (int)base) {
            if (value > ((uint64_t)INT64_MAX - (uint64_t)d) / base) { *digits = limit; return false; }
            value = value * base + (uint64_t)d;
            ++*digits;
        } else if (*digits > 0 && (s->grouping == 0 || *c != s->grouping)) {
            break;
        }
    }
    *out = (int64_t)value;
    return *digits > 0;
}

// The same for a number written as a float or as a character, from at most `limit` characters of it.
static bool ckpt__name_guess_float(const ckpt__name_pattern *p, const ckpt__name_part *part, size_t at, int limit, int *taken,
                                   int64_t *out) {
    const char *c = p->name.p + at, *end = p->name.p + p->name.n;
    char text[80];
    double v;
    *taken = 0;
    if (part->spec.type == 'c') {
        while (end - c > 1 && (uint32_t)(unsigned char)*c == part->spec.fill) c++;
        *out = c < end ? (int64_t)ckpt__txt_next(&c, end) : 0;
        *taken = 1;
        return limit == 1;
    }
    while (c < end && *c != '/' && !ckpt__txt_is_digit(*c)) c++;
    for (; c < end && *taken < limit && *taken < (int)sizeof text; c++) {
        bool sign = (*c == '+' || *c == '-') && *taken > 0 && ckpt__txt_lower(c[-1]) == 'e';
        if (ckpt__txt_is_digit(*c) || *c == '.' || ckpt__txt_lower(*c) == 'e' || sign) text[(*taken)++] = *c;
        else if (part->spec.grouping == 0 || *c != part->spec.grouping) break;
    }
    ckpt__view view = { text, (size_t)*taken };
    if (!ckpt__txt_double(view, &v)) return false;
    if (part->spec.type == '%') v /= 100;
    if (!(v < 9e18)) return false;
    *out = (int64_t)ckpt__txt_floor(v + 0.5);
    return true;
}

// Where one part may end: asked again and again, longest first.
typedef struct ckpt__name_turn {
    bool   begun;
    size_t length;
} ckpt__name_turn;

// How long the run is that the part may take from: characters of numbers for a clock, digits for a counter, and else
// anything but '/'.
static size_t ckpt__name_run_length(const ckpt__name_pattern *p, const ckpt__name_part *part, size_t at) {
    size_t n = at;
    for (; n < p->name.n && p->name.p[n] != '/'; n++) {
        int c = p->name.p[n];
        if (part->kind == CKPT__NAME_COUNT && !ckpt__txt_is_digit(c)) break;
        if (part->kind != CKPT__NAME_CLOCK || strchr("0123456789.+-eEinfaINFA", c) != NULL) continue;
        if (strchr(",_%", c) == NULL && (uint32_t)(unsigned char)c != part->spec.fill) break;
    }
    return n - at;
}

// Whether these characters are what a clock's format makes; its value where one can be read.
static bool ckpt__name_is_clock(const ckpt__name_part *part, ckpt__view v, double *out) {
    char text[64];
    size_t n = 0, digits = 0;
    *out = 0;
    if (part->spec.width < 0 && part->spec.grouping == 0 && part->spec.type != '%') return ckpt__txt_double(v, out);
    for (size_t i = 0; i < v.n; i++) {
        bool number = ckpt__txt_is_digit(v.p[i]) || strchr(".+-eEinfaINFA", v.p[i]) != NULL;
        digits += ckpt__txt_is_digit(v.p[i]);
        if (number && n < sizeof text) text[n++] = v.p[i];
    }
    ckpt__view kept = { text, n };
    if (ckpt__txt_double(kept, out) && part->spec.type == '%') *out /= 100;
    return digits > 0;
}

static bool ckpt__name_next_count(ckpt__name_pattern *p, int i, size_t at, ckpt__name_turn *turn, size_t *size) {
    const ckpt__name_part *part = &p->parts[i];
    if (part->same >= 0 && !(part->plain && p->lenient)) {      // its value is known: it stands here or it does not
        bool first = !turn->begun;
        turn->begun = true;
        p->steps += 8;
        p->value[i] = p->value[part->same];
        return first && ckpt__name_stands(p, part, p->value[i], at, size);
    }
    if (!turn->begun) {
        size_t zeros = 0, run = part->plain ? ckpt__name_run_length(p, part, at) : 80;
        while (zeros < run && p->name.p[at + zeros] == '0') zeros++;
        turn->length = part->plain && run - zeros > 19 ? zeros + 19 : run;     // no int64 has more
    }
    turn->begun = true;
    size_t least = part->plain && part->spec.width > 1 ? (size_t)part->spec.width : 1;
    while (turn->length >= least && p->steps < CKPT__NAME_STEPS) {
        bool good;
        p->steps += part->plain ? 1 : 8 + (part->spec.width > 0 ? part->spec.width / 64 : 0);
        size_t n = turn->length--;
        ckpt__view v = { p->name.p + at, n };
        *size = n;
        if (part->plain) {
            bool padded = n > 1 && v.p[0] == '0' && n > least;      // more zeros than the format writes
            good = (!padded || p->lenient) && ckpt__txt_int(v, &p->value[i]);
        } else {
            bool real = !part->as_text && part->spec.type != 0 && strchr("eEfFgGc%", part->spec.type) != NULL;
            int taken;
            good = real ? ckpt__name_guess_float(p, part, at, (int)n, &taken, &p->value[i])
                        : ckpt__name_guess(p, part, at, (int)n, &taken, &p->value[i]);
            if (taken < (int)n) {
                turn->length = (size_t)taken;           // asked again with just what is there
                continue;
            }
            good = good && ckpt__name_stands(p, part, p->value[i], at, size);
        }
        if (good && (part->same < 0 || p->value[part->same] == p->value[i])) return true;
    }
    return false;
}

// The next place where part i, begun at `at`, may end; false when there is no other.
static bool ckpt__name_next(ckpt__name_pattern *p, int i, size_t at, ckpt__name_turn *turn, size_t *size) {
    const ckpt__name_part *part = &p->parts[i];
    if (part->kind == CKPT__NAME_COUNT) return ckpt__name_next_count(p, i, at, turn, size);
    if (part->kind == CKPT__NAME_LITERAL || part->same >= 0) {
        ckpt__view want = part->kind == CKPT__NAME_LITERAL ? part->text : p->taken[part->same];
        bool first = !turn->begun;
        turn->begun = true;
        *size = want.n;
        p->taken[i] = want;
        return first && want.n <= p->name.n - at && memcmp(want.p, p->name.p + at, want.n) == 0;
    }
    if (!turn->begun) turn->length = ckpt__name_run_length(p, part, at);
    turn->begun = true;
    while (turn->length > 0 && p->steps < CKPT__NAME_STEPS) {
        p->steps += part->kind == CKPT__NAME_CLOCK ? 1 + (int)turn->length / 64 : 1;
        *size = turn->length--;
        p->taken[i].p = p->name.p + at;
        p->taken[i].n = *size;
        if (part->kind == CKPT__NAME_ANY || ckpt__name_is_clock(part, p->taken[i], &p->clock[i])) return true;
    }
    return false;
}

// Whether parts from i on take the name from `at` on. What failed is not tried again, and a name that still needs more than
// CKPT__NAME_STEPS (some tens of nanoseconds each: a name made for that) is taken for no match.
static bool ckpt__name_match_from(ckpt__name_pattern *p, int i, size_t at) {
    if (i == p->count) return at == p->name.n;
    char *dead = p->dead.data + (size_t)i * (p->name.n + 1) + at;
    if (*dead != 0 || p->steps++ >= CKPT__NAME_STEPS) return false;
    ckpt__name_turn turn = { false, 0 };
    size_t size;
    while (ckpt__name_next(p, i, at, &turn, &size)) {
        if (ckpt__name_match_from(p, i + 1, at + size)) return true;
    }
    if (p->parts[i].closed) *dead = 1;
    return false;
}

static bool ckpt__name_match_all(ckpt__name_pattern *p, bool lenient) {
    p->lenient = lenient;
    p->steps = 0;
    p->dead.len = 0;
    ckpt__buf_fill(&p->dead, 0, (p->name.n + 1) * ((size_t)p->count + 1));
    return p->dead.err == CKPT_OK && ckpt__name_match_from(p, 0, 0);
}

// Whether this format could have made `name`, and the counters that it then had. A name that it would have written with fewer
// zeros ("ba007" for ba{batch}) matches too, as in Composer. Fails only with CKPT_NOMEM.
static ckpt_err ckpt__name_pattern_match(ckpt__name_pattern *p, const char *name, bool *matches, ckpt__name_found *out) {
    memset(out, 0, sizeof *out);
    *matches = false;
    p->name = ckpt__txt_view(name);
    if (p->name.n > CKPT__NAME_WIDEST) return CKPT_OK;
    *matches = ckpt__name_match_all(p, false) || (p->steps < CKPT__NAME_STEPS && ckpt__name_match_all(p, true));
    if (p->dead.err != CKPT_OK) return p->dead.err;
    for (int i = 0; i < p->count && *matches; i++) {
        const ckpt__name_part *part = &p->parts[i];
        if (part->kind != CKPT__NAME_COUNT && part->kind != CKPT__NAME_CLOCK) continue;
        if (part->kind == CKPT__NAME_COUNT) *ckpt__name_counter(&out->t, part->which) = p->value[i];
        else if ((out->captured & 1u << part->which) == 0 || part->spec.precision < 0)      // the fullest of several
            *ckpt__name_clock(&out->t, part->which) = p->clock[i];
        out->captured |= 1u << part->which;
    }
    return p->scratch.err;
}

// For one name; who has many makes the pattern once.
static ckpt_err ckpt__name_match(const char *format, const ckpt_name_desc *desc, const char *name, bool *matches,
                                 ckpt__name_found *out) {
    ckpt__name_pattern p;
    ckpt_err e = ckpt__name_pattern_init(&p, NULL, format, desc);
    if (e != CKPT_OK) return e;
    e = ckpt__name_pattern_match(&p, name, matches, out);
    ckpt__name_pattern_free(&p);
    return e;
}

//-- conflicts -------------------------------------------------------------------

// CKPT_EXISTS when one counter in a name that matched is later than `t`'s. A counter inside an epoch counts only where the
// epochs are equal, and so cannot be judged when the name holds no epoch.
static ckpt_err ckpt__name_later(const char *format, const char *name, const ckpt__name_found *found,
                                 const ckpt_timestamp *t) {
    ckpt_timestamp theirs = found->t, ours = *t;
    for (int i = 0; i < CKPT__NAME_COUNTERS; i++) {
        int64_t a = *ckpt__name_counter(&theirs, i), b = *ckpt__name_counter(&ours, i);
        if ((found->captured & 1u << i) == 0) continue;
        if (i >= CKPT__NAME_BATCH_IN_EPOCH) {
            if ((found->captured & 1u << CKPT__NAME_EPOCH) == 0)
                return ckpt__error_set(CKPT_ARG, "cannot tell whether '%.200s' is of a later time: '%.200s' has {%s} but no "
                                       "{epoch}", name, format, ckpt__name_time_name(i));
            if (theirs.epoch != ours.epoch) continue;
        }
        if (a <= b) continue;
        return ckpt__error_set(CKPT_EXISTS, "'%.300s' is of a later time than this run (its %s is %lld, here it is %lld): "
                               "take another folder, remove the file, or set overwrite", name, ckpt__name_time_name(i),
                               (long long)a, (long long)b);
    }
    return CKPT_OK;
}

// Composer's conflict check for one file of the folder, with the whole format language instead of a regular expression: text
// in the format stands for itself, specs and sub-folders work, and a variable that stands twice must agree.
// desc->timestamp NULL: zero.
static ckpt_err ckpt__name_conflict(const char *format, const ckpt_name_desc *desc, const char *name) {
    ckpt_timestamp zero;
    ckpt__name_found found;
    bool matches;
    memset(&zero, 0, sizeof zero);
    ckpt_err e = ckpt__name_match(format, desc, name, &matches, &found);
    if (e != CKPT_OK || !matches) return e;
    return ckpt__name_later(format, name, &found, desc != NULL && desc->timestamp != NULL ? desc->timestamp : &zero);
}

//-- run names -------------------------------------------------------------------

// The name given, else COMPOSER_RUN_NAME, else RUN_NAME, else "<unix seconds>-<adjective>-<noun>". Ranks that must agree on a
// generated name get it from rank 0; that is the caller's part.
static ckpt_err ckpt__name_run(ckpt__buf *out, const char *given) {
    static const char *const adjectives[] = {
        "able", "amber", "brave", "brisk", "calm", "clear", "crisp", "dapper", "eager", "early", "fair", "famous", "gentle",
        "golden", "happy", "honest", "jolly", "keen", "kind", "lively", "lucky", "merry", "noble", "placid", "proud", "quick",
        "quiet", "rapid", "silver", "steady", "vivid", "witty"
    };
    static const char *const nouns[] = {
        "badger", "beetle", "bison", "condor", "crane", "dolphin", "eagle", "falcon", "finch", "fox", "gecko", "heron", "ibex",
        "jackal", "koala", "lemur", "lynx", "marmot", "moose", "newt", "otter", "owl", "panda", "puffin", "quail", "raven",
        "salmon", "seal", "tapir", "turtle", "walrus", "zebra"
    };
    const char *known = given != NULL && given[0] != 0 ? given : ckpt__name_env("COMPOSER_RUN_NAME");
    if (known == NULL) known = ckpt__name_env("RUN_NAME");
    if (known != NULL) {
        ckpt__buf_text(out, known);
        return out->err;
    }
    unsigned char dice[2];
    ckpt_err e = ckpt__os_random(dice, sizeof dice);
    if (e != CKPT_OK) return e;
    ckpt__buf_fmt(out, "%lld-%s-%s", (long long)ckpt__os_time(), adjectives[dice[0] % 32], nouns[dice[1] % 32]);
    return out->err;
}

//------------------------------------------------------------------------------
// >>state      [H]  names bound to the caller's memory; which of them a file holds
//
// uses:    error memory text
// threads: whoever owns the state; a state is only read while a checkpoint is written or loaded
// states:  good -> failed by the first bind that is wrong; its sentence stays until ckpt_state_free
//
// Names are paths. Every level of every name is a node of one hash table, so that a name bound
// twice, or one that would have to be a value and a dict at once, is found when it is bound.
// A level "[3]" is an item of a Python list; the canonical name writes it "3", as Composer's
// ignore globs and the containers' readers do.
//------------------------------------------------------------------------------

enum { CKPT__STATE_MAX_NAME = 16384, CKPT__STATE_MAX_LEVELS = 64, CKPT__STATE_MAX_LIST = 0x7FFFFFF };

typedef struct ckpt__binding {
    char       *name;               // as bound
    const char *canonical;          // without the brackets of list levels, in the block of `name`; NULL: the name has none
    ckpt_kind   kind;
    ckpt_tensor tensor;             // kind TENSOR
    void       *data;               // INT int64_t*, FLOAT double*, BOOL bool*, TEXT char*, BYTES, FILE the path's own copy
    size_t      size;               // TENSOR its bytes, TEXT the capacity, BYTES the bytes
    const char *path;               // FILE: as given to ckpt__state_bind, the caller's; not used afterwards
} ckpt__binding;

typedef struct ckpt__state_node {
    const char *path;               // canonical, `len` bytes of it
    size_t      len;
    int         parent;
    int         leaf;               // index of the binding, -1: a dict or a list
    int         children;
    int         last;               // highest list index seen
    bool        list;               // the children are items of a list
} ckpt__state_node;

struct ckpt__binds {
    ckpt__state_node *nodes;
    size_t            node_count, node_cap;
    int              *slots;        // node + 1, 0 empty
    size_t            slot_count;
    int               devices;      // tensors that need ckpt_state.copy
    int               gaps;         // lists in which an index below the highest one is missing
    char              sentence[CKPT__ERROR_MAX];
};

typedef struct ckpt__state_dtype_row { ckpt_dtype dtype; size_t size; const char *name; } ckpt__state_dtype_row;

static const ckpt__state_dtype_row ckpt__state_dtypes[] = {     // in the order of ckpt_dtype, which begins at 1
    { CKPT_F64, 8, "float64" },          { CKPT_F32, 4, "float32" },     { CKPT_F16, 2, "float16" },
    { CKPT_BF16, 2, "bfloat16" },        { CKPT_F8_E4M3, 1, "float8_e4m3fn" }, { CKPT_F8_E5M2, 1, "float8_e5m2" },
    { CKPT_I64, 8, "int64" },            { CKPT_I32, 4, "int32" },       { CKPT_I16, 2, "int16" },
    { CKPT_I8, 1, "int8" },              { CKPT_U64, 8, "uint64" },      { CKPT_U32, 4, "uint32" },
    { CKPT_U16, 2, "uint16" },           { CKPT_U8, 1, "uint8" },        { CKPT_BOOL, 1, "bool" },
    { CKPT_C64, 8, "complex64" },        { CKPT_C128, 16, "complex128" }
};

static bool ckpt__state_dtype_known(ckpt_dtype d) {
    return (int)d >= (int)CKPT_F64 && (int)d <= (int)CKPT_C128;
}

// Bytes of one element; 0 for a number that is no dtype.
static size_t ckpt__state_dtype_size(ckpt_dtype d) {
    return ckpt__state_dtype_known(d) ? ckpt__state_dtypes[(int)d - 1].size : 0;
}

static const char *ckpt__state_dtype_name(ckpt_dtype d) {
    return ckpt__state_dtype_known(d) ? ckpt__state_dtypes[(int)d - 1].name : "?";
}

static const char *ckpt__state_kind_name(ckpt_kind k) {
    static const char *const names[] = { "?", "a tensor", "an int", "a float", "a bool", "text", "bytes", "None", "a file",
                                         "an object of an unknown type" };
    return (int)k >= 1 && (int)k <= (int)CKPT_KIND_OTHER ? names[(int)k] : names[0];
}

// Bytes of a dense tensor. An extent of zero makes it empty whatever the others are.
static ckpt_err ckpt__state_shape_size(ckpt_dtype dtype, int ndim, const int64_t *shape, uint64_t *size) {
    *size = 0;
    uint64_t n = ckpt__state_dtype_size(dtype);
    if (n == 0) return ckpt__error_set(CKPT_ARG, "the dtype %d is none of ckpt_dtype", (int)dtype);
    if (ndim < 0 || ndim > CKPT_MAX_DIMS) return ckpt__error_set(CKPT_ARG, "ndim is %d; 0 to %d can be", ndim, CKPT_MAX_DIMS);
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return ckpt__error_set(CKPT_ARG, "shape[%d] is %lld", i, (long long)shape[i]);
        if (shape[i] == 0) empty = true;
    }
    for (int i = 0; i < ndim && !empty; i++) {
        if ((uint64_t)shape[i] > (uint64_t)INT64_MAX / n) return ckpt__error_set(CKPT_ARG, "the shape has more than 2^63 bytes");
        n *= (uint64_t)shape[i];
    }
    *size = empty ? 0 : n;
    return CKPT_OK;
}

static ckpt_err ckpt__state_tensor_size(const ckpt_tensor *t, uint64_t *size) {
    return ckpt__state_shape_size(t->dtype, t->ndim, t->shape, size);
}

//-- names -----------------------------------------------------------------------

// The index of a level that is written "[123]", -1 for any other. Leading zeros make it a plain key.
static int ckpt__state_list_index(const char *level, size_t n) {
    if (n < 3 || n > 11 || level[0] != '[' || level[n - 1] != ']') return -1;
    if (level[1] == '0' && n > 3) return -1;
    int64_t v = 0;
    for (size_t i = 1; i + 1 < n; i++) {
        if (level[i] < '0' || level[i] > '9') return -1;
        v = v * 10 + (level[i] - '0');
    }
    return v <= CKPT__STATE_MAX_LIST ? (int)v : -1;
}

// Writes the canonical name: list levels without their brackets. `out` has room for the name itself. Returns its length.
static size_t ckpt__state_canonical(char *out, const char *name) {
    size_t len = 0;
    for (const char *p = name; ; ) {
        size_t n = strcspn(p, "/");
        bool item = ckpt__state_list_index(p, n) >= 0;
        size_t keep = item ? n - 2 : n;
        memcpy(out + len, item ? p + 1 : p, keep);
        len += keep;
        p += n;
        if (*p == 0) break;
        out[len++] = '/';
        p++;
    }
    out[len] = 0;
    return len;
}

// Is `name` equal to `path` or below it?
static bool ckpt__state_under(const char *name, const char *path) {
    size_t n = strlen(path);
    return strncmp(name, path, n) == 0 && (name[n] == 0 || name[n] == '/');
}

// The names that the library writes by itself: the timestamp and the saver's own record.
static bool ckpt__state_is_reserved(const char *canonical) {
    return ckpt__state_under(canonical, "state/timestamp") || ckpt__state_under(canonical, "state/run_name") ||
           ckpt__state_under(canonical, "state/callbacks/CheckpointSaver");
}

// Random number state, as Composer names it: "rng/<rank>/<cuda, torch, python or numpy>". The rank, and what follows it; -1: this
// is none.
static int64_t ckpt__state_rng_rank(const char *canonical, const char **rest) {
    if (!ckpt__txt_starts(canonical, "rng/")) return -1;
    ckpt__view rank = { canonical + 4, strspn(canonical + 4, "0123456789") };
    int64_t n = -1;
    if (rank.p[rank.n] != '/' || !ckpt__txt_int(rank, &n)) return -1;
    *rest = rank.p + rank.n + 1;
    return n;
}

// What Composer keeps in a weights-only checkpoint: the model, and its descriptions of it.
static bool ckpt__state_is_weights(const char *canonical) {
    return ckpt__state_under(canonical, "state/model") || ckpt__state_under(canonical, "state/metadata") ||
           ckpt__state_under(canonical, "state/integrations");
}

static ckpt_err ckpt__state_check_name(const char *name) {
    size_t len = strlen(name);
    if (len == 0) return ckpt__error_set(CKPT_ARG, "the name is empty");
    if (len > CKPT__STATE_MAX_NAME)
        return ckpt__error_set(CKPT_ARG, "the name is longer than %d bytes", (int)CKPT__STATE_MAX_NAME);
    if (!ckpt__txt_utf8(name, len)) return ckpt__error_set(CKPT_ARG, "the name is not valid UTF-8");
    if (name[0] == '/') return ckpt__error_set(CKPT_ARG, "a name does not begin with '/'");
    int levels = 1;
    for (const char *p = name; *p != 0; p++) {
        if (*p != '/') continue;
        if (p[1] == '/' || p[1] == 0) return ckpt__error_set(CKPT_ARG, "the name has an empty level");
        levels++;
    }
    if (levels > CKPT__STATE_MAX_LEVELS)
        return ckpt__error_set(CKPT_ARG, "the name has more than %d levels", (int)CKPT__STATE_MAX_LEVELS);
    if (ckpt__state_list_index(name, strcspn(name, "/")) >= 0)
        return ckpt__error_set(CKPT_ARG, "the first level of a name is a dict key, not an item of a list");
    return CKPT_OK;
}

//-- the table of nodes ----------------------------------------------------------

static uint64_t ckpt__state_hash(const char *p, size_t n) {
    uint64_t h = 1469598103934665603u;      // FNV-1a, 64 bits
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static int ckpt__state_node_find(const struct ckpt__binds *b, const char *path, size_t len) {
    if (b->slot_count == 0) return -1;
    size_t mask = b->slot_count - 1;
    for (size_t at = (size_t)ckpt__state_hash(path, len) & mask; b->slots[at] != 0; at = (at + 1) & mask) {
        const ckpt__state_node *n = &b->nodes[b->slots[at] - 1];
        if (n->len == len && memcmp(n->path, path, len) == 0) return b->slots[at] - 1;
    }
    return -1;
}

static void ckpt__state_slot(struct ckpt__binds *b, int node) {
    size_t mask = b->slot_count - 1;
    size_t at = (size_t)ckpt__state_hash(b->nodes[node].path, b->nodes[node].len) & mask;
    while (b->slots[at] != 0) at = (at + 1) & mask;
    b->slots[at] = node + 1;
}

// Room for `more` further nodes, at most half of the slots taken.
static ckpt_err ckpt__state_reserve(struct ckpt__binds *b, const ckpt_allocator *a, size_t more) {
    ckpt_err e = ckpt__mem_grow(a, (void **)&b->nodes, sizeof *b->nodes, &b->node_cap, b->node_count + more);
    if (e != CKPT_OK) return e;
    size_t n = b->slot_count < 64 ? 64 : b->slot_count;
    while (n < (b->node_count + more) * 2) n *= 2;
    if (n == b->slot_count) return CKPT_OK;
    int *slots = (int *)ckpt__mem_alloc(a, n * sizeof *slots);
    if (slots == NULL) return CKPT_NOMEM;
    ckpt__mem_free(a, b->slots, b->slot_count * sizeof *b->slots);
    b->slots = slots;
    b->slot_count = n;
    for (size_t i = 0; i < b->node_count; i++) ckpt__state_slot(b, (int)i);
    return CKPT_OK;
}

// Adds one node below `parent` (-1: the root, which is always a dict). The room is there.
static int ckpt__state_node_add(struct ckpt__binds *b, const char *path, size_t len, int parent, int index) {
    int at = (int)b->node_count++;
    ckpt__state_node *n = &b->nodes[at];
    memset(n, 0, sizeof *n);
    n->path = path;
    n->len = len;
    n->parent = parent;
    n->leaf = -1;
    n->last = -1;
    ckpt__state_slot(b, at);
    if (parent >= 0) {
        ckpt__state_node *up = &b->nodes[parent];
        bool gap = up->list && up->last + 1 != up->children;
        up->list = index >= 0;
        up->children++;
        if (index > up->last) up->last = index;
        b->gaps += (up->list && up->last + 1 != up->children) - gap;
    }
    return at;
}

// Finds what of the name is there already and refuses what cannot be in one tree. Returns how many levels are new.
static ckpt_err ckpt__state_node_check(const struct ckpt__binds *b, const char *name, const char *canonical, size_t *fresh) {
    int parent = -1;
    const char *p = name;
    *fresh = 0;
    for (size_t from = 0; ; ) {
        size_t raw = strcspn(p, "/"), len = from + strcspn(canonical + from, "/");
        bool item = ckpt__state_list_index(p, raw) >= 0, last = p[raw] == 0;
        int at = *fresh > 0 ? -1 : ckpt__state_node_find(b, canonical, len);
        if (*fresh == 0 && parent >= 0 && b->nodes[parent].list != item)
            return ckpt__error_set(CKPT_ARG, "'%.*s' would be a list and a dict at once", (int)b->nodes[parent].len,
                                   b->nodes[parent].path);
        if (at >= 0 && last)
            return ckpt__error_set(CKPT_ARG, "%s", b->nodes[at].leaf >= 0 ? "this name is bound already"
                                                                         : "other names are bound below this one");
        if (at >= 0 && b->nodes[at].leaf >= 0)
            return ckpt__error_set(CKPT_ARG, "'%.*s' is bound already, so nothing can be bound below it", (int)len, canonical);
        if (at < 0) ++*fresh;
        if (last) return CKPT_OK;
        parent = at;
        p += raw + 1;
        from = len + 1;
    }
}

static void ckpt__state_node_insert(struct ckpt__binds *b, const char *name, const char *canonical, int leaf) {
    int parent = -1;
    const char *p = name;
    for (size_t from = 0; ; ) {
        size_t raw = strcspn(p, "/"), len = from + strcspn(canonical + from, "/");
        int at = ckpt__state_node_find(b, canonical, len);
        if (at < 0) at = ckpt__state_node_add(b, canonical, len, parent, ckpt__state_list_index(p, raw));
        if (p[raw] == 0) { b->nodes[at].leaf = leaf; return; }
        parent = at;
        p += raw + 1;
        from = len + 1;
    }
}

//-- binding ---------------------------------------------------------------------

// One block for the name, its NUL, the canonical name and its NUL.
static char *ckpt__state_copy_name(const ckpt_allocator *a, const char *name) {
    size_t n = strlen(name);
    char *copy = (char *)ckpt__mem_resize(a, NULL, 0, 2 * n + 2);
    if (copy == NULL) return NULL;
    memcpy(copy, name, n + 1);
    (void)ckpt__state_canonical(copy + n + 1, name);
    return copy;
}

static void ckpt__state_drop(const ckpt_allocator *a, ckpt__binding *it) {
    if (it->kind == CKPT_KIND_FILE) ckpt__mem_free_text(a, (char *)it->data);
    if (it->name != NULL) ckpt__mem_free(a, it->name, 2 * strlen(it->name) + 2);
}

// Refuses what could not be saved later: the tensor's dtype, shape and address.
static ckpt_err ckpt__state_check_tensor(const ckpt_tensor *t, uint64_t *size) {
    ckpt_err e = ckpt__state_tensor_size(t, size);
    if (e != CKPT_OK) return e;
    if (*size > SIZE_MAX / 2) return ckpt__error_set(CKPT_ARG, "the tensor is larger than this machine's memory can be");
    if (t->data == NULL && *size > 0) return ckpt__error_set(CKPT_ARG, "tensor.data is NULL");
    bool piece = false;
    for (int i = 0; i < t->ndim && t->global_shape[0] != 0; i++)
        piece = piece || t->offset[i] != 0 || t->global_shape[i] != t->shape[i];
    if (piece) return ckpt__error_set(CKPT_UNSUPPORTED, "a piece of a sharded tensor (global_shape) cannot be saved yet");
    return CKPT_OK;
}

static ckpt_err ckpt__state_grow(ckpt_state *st) {
    size_t cap = (size_t)st->capacity;
    if (st->count >= INT_MAX / 2) return ckpt__error_set(CKPT_ARG, "more than %d names", INT_MAX / 2);
    ckpt_err e = ckpt__mem_grow(&st->allocator, (void **)&st->items, sizeof *st->items, &cap, (size_t)st->count + 1);
    st->capacity = (int)cap;
    return e;
}

static ckpt_err ckpt__state_add(ckpt_state *st, const char *name, const ckpt__binding *given) {
    ckpt__binding it = *given;
    uint64_t size = 0;
    size_t fresh = 0;
    ckpt_err e = ckpt__state_check_name(name);
    if (e == CKPT_OK && it.kind == CKPT_KIND_TENSOR) e = ckpt__state_check_tensor(&it.tensor, &size);
    if (e == CKPT_OK) e = ckpt__state_grow(st);
    if (e != CKPT_OK) return e;
    if (it.kind == CKPT_KIND_TENSOR) it.size = (size_t)size;
    it.name = ckpt__state_copy_name(&st->allocator, name);
    if (it.name == NULL) return CKPT_NOMEM;
    const char *canonical = it.canonical = it.name + strlen(name) + 1;
    if (ckpt__state_is_reserved(canonical)) e = ckpt__error_set(CKPT_ARG, "the library writes this name by itself");
    if (e == CKPT_OK) e = ckpt__state_node_check(st->binds, it.name, canonical, &fresh);
    if (e == CKPT_OK) e = ckpt__state_reserve(st->binds, &st->allocator, fresh);
    if (e == CKPT_OK && it.kind == CKPT_KIND_FILE) {
        it.data = ckpt__mem_copy_text(&st->allocator, given->path);
        it.path = NULL;
        if (it.data == NULL) e = CKPT_NOMEM;
    }
    if (e != CKPT_OK) {
        if (it.kind == CKPT_KIND_FILE) it.data = NULL;
        ckpt__state_drop(&st->allocator, &it);
        return e;
    }
    ckpt__state_node_insert(st->binds, it.name, canonical, st->count);
    if (it.kind == CKPT_KIND_TENSOR && it.tensor.device) st->binds->devices++;
    st->items[st->count++] = it;
    return CKPT_OK;
}

// Keeps the current sentence as the state's failure, to be reported by the next save or load.
static void ckpt__state_fail(ckpt_state *st, ckpt_err e, const char *name) {
    bool cut = name != NULL && strlen(name) > 200;
    (void)ckpt__error_prefix(e, "cannot bind '%.200s%s'", name != NULL ? name : "(NULL)", cut ? "..." : "");
    st->err = e;
    if (st->binds != NULL) memcpy(st->binds->sentence, ckpt__error_last.text, sizeof st->binds->sentence);
}

// Makes the state fail because an argument of the bind is NULL.
static void ckpt__state_refuse(ckpt_state *st, const char *name, const char *argument) {
    if (st->binds == NULL) st->binds = (struct ckpt__binds *)ckpt__mem_alloc(&st->allocator, sizeof *st->binds);
    bool zero = strcmp(argument, "cap") == 0;
    ckpt__state_fail(st, ckpt__error_set(CKPT_ARG, "%s is %s", argument, zero ? "0" : "NULL"), name);
}

// Adds a binding, or makes the state fail. A state that was not zero-initialised is not touched: its fields mean nothing.
static void ckpt__state_bind(ckpt_state *st, const char *name, const ckpt__binding *it) {
    if (st == NULL || st->_canary != 0 || st->err != CKPT_OK) return;
    if (st->binds == NULL) st->binds = (struct ckpt__binds *)ckpt__mem_alloc(&st->allocator, sizeof *st->binds);
    ckpt_err e = st->binds == NULL ? CKPT_NOMEM : CKPT_OK;
    if (e == CKPT_OK && name == NULL) e = ckpt__error_set(CKPT_ARG, "the name is NULL");
    if (e == CKPT_OK) e = ckpt__state_add(st, name, it);
    if (e != CKPT_OK) ckpt__state_fail(st, e, name);
}

static void ckpt__state_free(ckpt_state *st) {
    for (int i = 0; i < st->count; i++) ckpt__state_drop(&st->allocator, &st->items[i]);
    ckpt__mem_free(&st->allocator, st->items, (size_t)st->capacity * sizeof *st->items);
    if (st->binds != NULL) {
        ckpt__mem_free(&st->allocator, st->binds->nodes, st->binds->node_cap * sizeof *st->binds->nodes);
        ckpt__mem_free(&st->allocator, st->binds->slots, st->binds->slot_count * sizeof *st->binds->slots);
        ckpt__mem_free(&st->allocator, st->binds, sizeof *st->binds);
    }
    st->items = NULL;
    st->binds = NULL;
    st->count = st->capacity = 0;
    st->err = CKPT_OK;
}

// The name that look-ups and globs use.
static const char *ckpt__state_canonical_of(const ckpt__binding *it) {
    return it->canonical != NULL ? it->canonical : it->name;
}

// The binding with that canonical name, -1 when there is none.
static int ckpt__state_find(const ckpt_state *st, const char *canonical_name) {
    int at = st->binds == NULL ? -1 : ckpt__state_node_find(st->binds, canonical_name, strlen(canonical_name));
    return at < 0 ? -1 : st->binds->nodes[at].leaf;
}

static ckpt_err ckpt__state_check_gaps(const struct ckpt__binds *b) {
    for (size_t i = 0; i < b->node_count; i++) {
        const ckpt__state_node *n = &b->nodes[i];
        if (n->list && n->last + 1 != n->children)
            return ckpt__error_set(CKPT_ARG, "the list '%.*s' has an item [%d] but only %d items are bound: a list has no gaps",
                                   (int)n->len, n->path, n->last, n->children);
    }
    return CKPT_OK;
}

// Can this state be saved or loaded? Reports the bind that failed with the sentence it had.
static ckpt_err ckpt__state_check(const ckpt_state *st) {
    if (st == NULL) return ckpt__error_set(CKPT_ARG, "the state is NULL");
    if (st->_canary != 0) return ckpt__error_set(CKPT_ARG, "the ckpt_state was not zero-initialised (ckpt_state st = {0})");
    if (st->err != CKPT_OK)
        return ckpt__error_set(st->err, "%s", st->binds != NULL ? st->binds->sentence : "cannot bind: out of memory");
    if (st->binds == NULL) return CKPT_OK;
    if (st->binds->devices > 0 && st->copy == NULL)
        return ckpt__error_set(CKPT_ARG, "%d tensors are on a device, but ckpt_state.copy is NULL", st->binds->devices);
    return st->binds->gaps == 0 ? CKPT_OK : ckpt__state_check_gaps(st->binds);
}

//-- globs -----------------------------------------------------------------------

// Composer's ignore keys (SPEC 7.5): a glob is matched against the path of every node, inner ones too, and what it matches
// goes with all that is below it. Names are asked for in any order; those that follow each other in a tree share the work.
typedef struct ckpt__state_globs {
    const char *const *list;
    int                count;
    bool              *hit;             // per glob: has matched something
    char              *last;            // the name asked for before
    size_t             last_cap, dead;  // dead: length of the shortest path of `last` that a glob matched, 0: none
    ckpt_allocator     allocator;
} ckpt__state_globs;

static void ckpt__state_globs_free(ckpt__state_globs *g) {
    ckpt__mem_free(&g->allocator, g->hit, (size_t)g->count * sizeof *g->hit);
    ckpt__mem_free(&g->allocator, g->last, g->last_cap);
    memset(g, 0, sizeof *g);
}

static ckpt_err ckpt__state_globs_init(ckpt__state_globs *g, const ckpt_allocator *a, const char *const *list, int count) {
    memset(g, 0, sizeof *g);
    g->allocator = *a;
    if (count <= 0) return CKPT_OK;
    if (list == NULL) return ckpt__error_set(CKPT_ARG, "%d ignore keys are promised, but the list is NULL", count);
    for (int i = 0; i < count; i++) {
        if (list[i] == NULL) return ckpt__error_set(CKPT_ARG, "ignore key %d is NULL", i);
    }
    g->hit = (bool *)ckpt__mem_alloc(a, (size_t)count * sizeof *g->hit);
    if (g->hit == NULL) return CKPT_NOMEM;
    g->list = list;
    g->count = count;
    for (int i = 0; i < count; i++) g->hit[i] = ckpt__txt_glob(list[i], "");     // the root: matched, never removed
    return CKPT_OK;
}

// Matches the one path that is `last` cut at `len`. A path that is gone already is still shown to globs without a match.
static void ckpt__state_globs_try(ckpt__state_globs *g, size_t len) {
    char cut = g->last[len];
    g->last[len] = 0;
    for (int i = 0; i < g->count; i++) {
        if ((g->dead != 0 && g->hit[i]) || !ckpt__txt_glob(g->list[i], g->last)) continue;
        g->hit[i] = true;
        if (g->dead == 0) g->dead = len;
    }
    g->last[len] = cut;
}

// Does a glob take this canonical name away?
static ckpt_err ckpt__state_globs_match(ckpt__state_globs *g, const char *name, bool *ignored) {
    *ignored = false;
    if (g->count == 0) return CKPT_OK;
    size_t len = strlen(name), same = 0, from = 0;
    if (g->last != NULL) {
        for (; g->last[same] != 0 && g->last[same] == name[same]; same++)
            if (name[same] == '/') from = same;
        if ((name[same] == 0 || name[same] == '/') && (g->last[same] == 0 || g->last[same] == '/')) from = same;
    }
    if (len + 1 > g->last_cap) {
        char *p = (char *)ckpt__mem_resize(&g->allocator, g->last, g->last_cap, 2 * len + 64);
        if (p == NULL) return CKPT_NOMEM;
        g->last = p;
        g->last_cap = 2 * len + 64;
    }
    memcpy(g->last, name, len + 1);
    if (g->dead > from) g->dead = 0;
    for (size_t at = from == 0 ? 0 : from + 1; at <= len; ) {      // every path of the name that the one before did not have
        at += strcspn(name + at, "/");
        ckpt__state_globs_try(g, at);
        at++;
    }
    *ignored = g->dead != 0;
    return CKPT_OK;
}

static void ckpt__state_globs_warn(const ckpt__state_globs *g, const ckpt_logger *log) {
    for (int i = 0; i < g->count; i++) {
        if (!g->hit[i]) ckpt__error_log(log, CKPT_LOG_WARN, "the ignore key '%s' matches nothing", g->list[i]);
    }
}

//-- selections ------------------------------------------------------------------

// What one checkpoint holds. Names and data still belong to whom they were taken from.
typedef struct ckpt__items {
    ckpt_allocator allocator;
    ckpt__binding *list;
    size_t         count, cap;
} ckpt__items;

static void ckpt__items_init(ckpt__items *it, const ckpt_allocator *a) {
    memset(it, 0, sizeof *it);
    if (a != NULL) it->allocator = *a;
}

static void ckpt__items_free(ckpt__items *it) {
    ckpt__mem_free(&it->allocator, it->list, it->cap * sizeof *it->list);
    it->list = NULL;
    it->count = it->cap = 0;
}

// Adds a value that is not the caller's: the timestamp's counters, the saver's record. `name`, which has no list levels, must
// outlive the selection.
static ckpt_err ckpt__items_add(ckpt__items *it, char *name, ckpt_kind kind, void *data, size_t size) {
    ckpt_err e = ckpt__mem_room(&it->allocator, (void **)&it->list, sizeof *it->list, &it->cap, it->count + 1);
    if (e != CKPT_OK) return e;
    ckpt__binding *b = &it->list[it->count++];
    memset(b, 0, sizeof *b);
    b->name = name;
    b->kind = kind;
    b->data = data;
    b->size = size;
    return CKPT_OK;
}

// The bindings of a state that go into a file, in the order in which they were bound. What `out` held is forgotten, its room is
// used again. Globs that match nothing are logged as warnings.
static ckpt_err ckpt__state_select_again(const ckpt_state *st, bool weights_only, const char *const *ignore, int ignore_count,
                                         const ckpt_logger *log, ckpt__items *out) {
    ckpt__state_globs globs;
    out->count = 0;
    ckpt_err e = ckpt__state_globs_init(&globs, &st->allocator, ignore, ignore_count);
    if (e == CKPT_OK && st->count > 0)
        e = ckpt__mem_room(&out->allocator, (void **)&out->list, sizeof *out->list, &out->cap, (size_t)st->count + 32);
    for (int i = 0; i < st->count && e == CKPT_OK; i++) {
        const char *canonical = ckpt__state_canonical_of(&st->items[i]);
        bool ignored = false;
        if (weights_only && !ckpt__state_is_weights(canonical)) continue;
        e = ckpt__state_globs_match(&globs, canonical, &ignored);
        if (e == CKPT_OK && !ignored) out->list[out->count++] = st->items[i];
    }
    if (e == CKPT_OK) ckpt__state_globs_warn(&globs, log);
    ckpt__state_globs_free(&globs);
    if (e != CKPT_OK) out->count = 0;
    return e;
}

// The same for an `out` that is not initialised yet; after a failure it is empty.
static ckpt_err ckpt__state_select(const ckpt_state *st, bool weights_only, const char *const *ignore, int ignore_count,
                                   const ckpt_logger *log, ckpt__items *out) {
    ckpt__items_init(out, &st->allocator);
    ckpt_err e = ckpt__state_select_again(st, weights_only, ignore, ignore_count, log, out);
    if (e != CKPT_OK) ckpt__items_free(out);
    return e;
}

//-- the timestamp ---------------------------------------------------------------

typedef struct ckpt__state_clock { char name[56]; size_t at; bool seconds; } ckpt__state_clock;

#define CKPT__CLOCK(field, seconds) { "state/timestamp/Timestamp/" #field, offsetof(ckpt_timestamp, field), seconds }
static const ckpt__state_clock ckpt__state_clocks[] = {
    CKPT__CLOCK(iteration, false), CKPT__CLOCK(epoch, false), CKPT__CLOCK(batch, false), CKPT__CLOCK(sample, false),
    CKPT__CLOCK(token, false), CKPT__CLOCK(epoch_in_iteration, false), CKPT__CLOCK(token_in_iteration, false),
    CKPT__CLOCK(batch_in_epoch, false), CKPT__CLOCK(sample_in_epoch, false), CKPT__CLOCK(token_in_epoch, false),
    CKPT__CLOCK(total_wct, true), CKPT__CLOCK(iteration_wct, true), CKPT__CLOCK(epoch_wct, true), CKPT__CLOCK(batch_wct, true)
};
#undef CKPT__CLOCK

enum { CKPT__CLOCKS = 14 };

// A timestamp with names for its fields, laid out so that a selection can point into it.
typedef struct ckpt__state_stamp {
    ckpt_timestamp t;
    char           names[CKPT__CLOCKS][56];
} ckpt__state_stamp;

// Adds the timestamp as Composer nests it. `stamp` must outlive the selection.
static ckpt_err ckpt__items_add_timestamp(ckpt__items *it, ckpt__state_stamp *stamp, const ckpt_timestamp *t) {
    stamp->t = *t;
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < CKPT__CLOCKS && e == CKPT_OK; i++) {
        memcpy(stamp->names[i], ckpt__state_clocks[i].name, sizeof stamp->names[i]);
        void *field = (char *)&stamp->t + ckpt__state_clocks[i].at;
        e = ckpt__items_add(it, stamp->names[i], ckpt__state_clocks[i].seconds ? CKPT_KIND_FLOAT : CKPT_KIND_INT, field, 8);
    }
    return e;
}
//------------------------------------------------------------------------------
// >>plan       [I]  a container as a list: what to write where, and what lies where
//
// uses:    error memory
// threads: built by one thread; the engine's workers read it and fill in the checksums
//
// A container's writer makes a plan: every byte of the file, in file order, either as bytes of
// the plan itself or as memory of the caller's. Sizes and places are known before the first
// byte is written, so any part can be written by any thread, and only checksums come late.
// A container's reader makes a table of contents (toc): what is called what and lies where.
// Neither touches tensor bytes: the engine moves those, for every container alike.
//------------------------------------------------------------------------------

// A byte range of the container that has one CRC-32: a zip entry, a tensor of a safetensors file, a file in a tar.
typedef struct ckpt__blob {
    const char *name;               // for the sentence when it is damaged; lives in the plan's or toc's texts
    uint64_t    offset, size;       // from the start of the whole file
    uint32_t    crc;
    bool        has_crc;
} ckpt__blob;

//-- writing ---------------------------------------------------------------------

// Bytes up to this size are copied into the plan: in a LAZY snapshot the state of a random number generator, which the next
// forward pass draws from, must be what it was in the call.
enum { CKPT__PLAN_CAPTURE = 65536 };

typedef enum ckpt__seg_kind {
    CKPT__SEG_BYTES,                // plan->bytes[at .. at + size)
    CKPT__SEG_DATA,                 // the caller's host memory at src
    CKPT__SEG_DEVICE,               // the caller's device memory at src, read through state->copy
    CKPT__SEG_FILE                  // `size` bytes of the file called (const char *)src
} ckpt__seg_kind;

// When a BYTES segment can be written: at once, when the blobs of its fixups are summed, or when everything else is.
typedef enum ckpt__seg_late { CKPT__LATE_NO, CKPT__LATE_BLOBS, CKPT__LATE_ALL } ckpt__seg_late;

typedef struct ckpt__seg {
    uint64_t       offset, size;
    ckpt__seg_kind kind;
    ckpt__seg_late late;
    const void    *src;
    size_t         at;
    int            blob;            // the blob these bytes belong to, -1: structure
} ckpt__seg;

// A place in plan->bytes that waits for a checksum: 4 bytes little-endian, or 8 lower-case hex digits.
// blob CKPT__FIXUP_STRUCTURE: the CRC-32 of every BYTES segment with blob -1 from segment `seg_first` up to the one that
// holds this fixup (itself included, this fixup's own bytes taken as '0' digits or zero bytes), in file order.
enum { CKPT__FIXUP_STRUCTURE = -2 };
typedef struct ckpt__fixup {
    size_t at;
    int    blob;
    bool   hex;
    size_t seg_first;
} ckpt__fixup;

typedef struct ckpt__plan {
    ckpt_allocator    allocator;
    const ckpt_state *state;        // for state->copy; may be NULL when there are no DEVICE segments
    ckpt__seg        *segs;
    ckpt__fixup      *fixups;       // in order of `at`
    ckpt__blob       *blobs;
    size_t            seg_count, seg_cap, fixup_count, fixup_cap, blob_count, blob_cap;
    ckpt__buf         bytes;        // all BYTES segments, in file order
    ckpt__buf         texts;        // blob names are offsets into it until ckpt__plan_finish
    uint64_t          size;         // bytes of the file so far: where the next segment goes
    ckpt_err          err;          // sticky
} ckpt__plan;

static void ckpt__plan_init(ckpt__plan *p, const ckpt_allocator *a, const ckpt_state *state) {
    memset(p, 0, sizeof *p);
    if (a != NULL) p->allocator = *a;
    p->state = state;
    ckpt__buf_init(&p->bytes, &p->allocator);
    ckpt__buf_init(&p->texts, &p->allocator);
}

static void ckpt__plan_free(ckpt__plan *p) {
    ckpt__mem_free(&p->allocator, p->segs, p->seg_cap * sizeof *p->segs);
    ckpt__mem_free(&p->allocator, p->fixups, p->fixup_cap * sizeof *p->fixups);
    ckpt__mem_free(&p->allocator, p->blobs, p->blob_cap * sizeof *p->blobs);
    ckpt__buf_free(&p->bytes);
    ckpt__buf_free(&p->texts);
    memset(p, 0, sizeof *p);
}

// Empties the plan and keeps its room: the next plan of the same state then needs no fresh pages, which cost more than the
// planning itself.
static void ckpt__plan_reset(ckpt__plan *p) {
    p->seg_count = p->fixup_count = p->blob_count = 0;
    p->bytes.len = p->texts.len = 0;
    p->bytes.err = p->texts.err = p->err = CKPT_OK;
    p->size = 0;
}

static ckpt__seg *ckpt__plan_add_seg(ckpt__plan *p, ckpt__seg_kind kind, uint64_t size) {
    if (p->err == CKPT_OK)
        p->err = ckpt__mem_room(&p->allocator, (void **)&p->segs, sizeof *p->segs, &p->seg_cap, p->seg_count + 1);
    if (p->err != CKPT_OK) return NULL;
    ckpt__seg *s = &p->segs[p->seg_count++];
    s->offset = p->size;
    s->size = size;
    s->kind = kind;
    s->late = CKPT__LATE_NO;
    s->src = NULL;
    s->at = 0;
    s->blob = -1;
    p->size += size;
    return s;
}

// Starts a blob at the current place; its size grows with the segments given to it. Returns its index, -1 after a failure.
static int ckpt__plan_blob(ckpt__plan *p, const char *name) {
    if (p->err == CKPT_OK)
        p->err = ckpt__mem_room(&p->allocator, (void **)&p->blobs, sizeof *p->blobs, &p->blob_cap, p->blob_count + 1);
    if (p->err != CKPT_OK) return -1;
    ckpt__blob *b = &p->blobs[p->blob_count];
    memset(b, 0, sizeof *b);
    b->offset = p->size;
    b->name = (const char *)(uintptr_t)p->texts.len;
    ckpt__buf_add(&p->texts, name, strlen(name) + 1);
    return (int)p->blob_count++;
}

// Adds bytes of the plan's own. Structure bytes (blob -1) that follow each other share one segment when neither is late.
static void ckpt__plan_bytes(ckpt__plan *p, const void *bytes, size_t size, int blob) {
    if (size == 0) return;
    ckpt__seg *last = p->seg_count > 0 ? &p->segs[p->seg_count - 1] : NULL;
    bool joins = last != NULL && last->kind == CKPT__SEG_BYTES && last->blob == blob && last->late == CKPT__LATE_NO;
    if (p->err == CKPT_OK && joins) {
        last->size += size;
        p->size += size;
    } else {
        ckpt__seg *s = ckpt__plan_add_seg(p, CKPT__SEG_BYTES, size);
        if (s == NULL) return;
        s->at = p->bytes.len;
        s->blob = blob;
    }
    ckpt__buf_add(&p->bytes, bytes, size);
    if (p->bytes.err != CKPT_OK) p->err = p->bytes.err;
    if (p->err == CKPT_OK && blob >= 0) p->blobs[blob].size += size;
}

// Adds bytes that hold checksums still to come; the caller then adds the fixups, `at` counted from the return value.
static size_t ckpt__plan_late_bytes(ckpt__plan *p, const void *bytes, size_t size, ckpt__seg_late late) {
    size_t at = p->bytes.len;
    ckpt__seg *s = ckpt__plan_add_seg(p, CKPT__SEG_BYTES, size);
    if (s == NULL) return 0;
    s->at = at;
    s->late = late;
    ckpt__buf_add(&p->bytes, bytes, size);
    if (p->bytes.err != CKPT_OK) p->err = p->bytes.err;
    return at;
}

static void ckpt__plan_fixup(ckpt__plan *p, size_t at, int blob, bool hex, size_t seg_first) {
    if (p->err == CKPT_OK)
        p->err = ckpt__mem_room(&p->allocator, (void **)&p->fixups, sizeof *p->fixups, &p->fixup_cap, p->fixup_count + 1);
    if (p->err != CKPT_OK) return;
    ckpt__fixup *f = &p->fixups[p->fixup_count++];
    f->at = at;
    f->blob = blob;
    f->hex = hex;
    f->seg_first = seg_first;
}

// Adds the caller's bytes to a blob: kind DATA, DEVICE or FILE.
static void ckpt__plan_data(ckpt__plan *p, ckpt__seg_kind kind, const void *src, uint64_t size, int blob) {
    if (size == 0) return;
    ckpt__seg *s = ckpt__plan_add_seg(p, kind, size);
    if (s == NULL) return;
    s->src = src;
    s->blob = blob;
    p->blobs[blob].size += size;
}

// Turns the names' offsets into pointers; nothing is added after this. Returns the plan's sticky error.
static ckpt_err ckpt__plan_finish(ckpt__plan *p) {
    if (p->err == CKPT_OK) p->err = p->texts.err;
    if (p->err != CKPT_OK) return p->err;
    for (size_t i = 0; i < p->blob_count; i++) p->blobs[i].name = p->texts.data + (uintptr_t)p->blobs[i].name;
    return CKPT_OK;
}

//-- reading ---------------------------------------------------------------------

// A range of an open file, read with pread: the whole file, or the member of a tar.
typedef struct ckpt__source {
    int         fd;
    const char *path;               // for sentences
    uint64_t    base, size;
} ckpt__source;

typedef struct ckpt__entry {
    const char *name;               // levels joined by '/'; owned by the toc
    ckpt_kind   kind;
    ckpt_dtype  dtype;              // kind TENSOR
    int         ndim;
    int64_t     shape[CKPT_MAX_DIMS], stride[CKPT_MAX_DIMS];    // stride in elements
    bool        contiguous;         // row-major without gaps
    uint64_t    offset;             // of the first element, from the start of the whole file; kinds TENSOR, BYTES, FILE
    uint64_t    size;               // bytes of the value: product of the shape times the element's size
    uint64_t    lists;              // bit d: level d of the name is the index of a Python list or tuple, no key
    int         blob;               // the blob that the bytes lie in; -1: the value is in the toc
    int64_t     i;                  // INT, BOOL
    double      f;                  // FLOAT
    const char *text;               // TEXT, and BYTES with blob -1: `size` bytes owned by the toc (and a NUL behind them)
} ckpt__entry;

typedef struct ckpt__toc {
    ckpt_allocator allocator;
    ckpt__entry   *entries;         // in the order of the file's own listing
    ckpt__blob    *blobs;           // in order of offset, not overlapping
    size_t         count, cap, blob_count, blob_cap;
    void         **pages;           // blocks of text; never move, so names stay valid
    size_t         page_count, page_cap, page_used, page_size;
    int           *slots;           // hash table of names: entry + 1, 0 empty
    size_t         slot_count;
    bool           own;             // written by this library
    // CRC-32 of all bytes of [structure_begin, structure_end) that lie in no blob, in file order, and of so many '0' behind them,
    // which stand for the sum's own digits; verified by the engine
    bool           has_structure_crc;
    uint64_t       structure_begin, structure_end;
    uint32_t       structure_crc;
    int            structure_blank;
} ckpt__toc;

static void ckpt__toc_init(ckpt__toc *t, const ckpt_allocator *a) {
    memset(t, 0, sizeof *t);
    if (a != NULL) t->allocator = *a;
}

static void ckpt__toc_free(ckpt__toc *t) {
    for (size_t i = 0; i < t->page_count; i++) {
        size_t size;
        memcpy(&size, t->pages[i], sizeof size);
        ckpt__mem_free(&t->allocator, t->pages[i], size);
    }
    ckpt__mem_free(&t->allocator, t->pages, t->page_cap * sizeof *t->pages);
    ckpt__mem_free(&t->allocator, t->entries, t->cap * sizeof *t->entries);
    ckpt__mem_free(&t->allocator, t->blobs, t->blob_cap * sizeof *t->blobs);
    ckpt__mem_free(&t->allocator, t->slots, t->slot_count * sizeof *t->slots);
    memset(t, 0, sizeof *t);
}

// Keeps a copy of `size` bytes with a NUL behind them, in pages that begin with their own size. NULL: out of memory.
static char *ckpt__toc_text(ckpt__toc *t, const void *bytes, size_t size) {
    if (t->page_count == 0 || t->page_size - t->page_used <= size) {
        size_t page = sizeof(size_t) + size + 1;
        if (page < 65536) page = 65536;
        ckpt_err e = ckpt__mem_grow(&t->allocator, (void **)&t->pages, sizeof *t->pages, &t->page_cap, t->page_count + 1);
        if (e != CKPT_OK) return NULL;
        char *p = (char *)ckpt__mem_resize(&t->allocator, NULL, 0, page);
        if (p == NULL) return NULL;
        memcpy(p, &page, sizeof page);
        t->pages[t->page_count++] = p;
        t->page_used = sizeof(size_t);
        t->page_size = page;
    }
    char *text = (char *)t->pages[t->page_count - 1] + t->page_used;
    if (size > 0) memcpy(text, bytes, size);
    text[size] = 0;
    t->page_used += size + 1;
    return text;
}

// Adds an empty entry; NULL: out of memory. The pointer is good until the next one is added.
static ckpt__entry *ckpt__toc_entry(ckpt__toc *t, const char *name, size_t name_len, ckpt_kind kind) {
    char *copy = ckpt__toc_text(t, name, name_len);
    if (copy == NULL) return NULL;
    if (t->count >= (size_t)INT_MAX - 1) {
        (void)ckpt__error_set(CKPT_CORRUPT, "it has more than 2147483646 entries");
        return NULL;
    }
    if (ckpt__mem_room(&t->allocator, (void **)&t->entries, sizeof *t->entries, &t->cap, t->count + 1) != CKPT_OK) return NULL;
    ckpt__entry *e = &t->entries[t->count++];
    memset(e, 0, sizeof *e);
    e->name = copy;
    e->kind = kind;
    e->blob = -1;
    e->contiguous = true;
    return e;
}

static uint64_t ckpt__toc_hash(const char *name) {
    uint64_t h = 1469598103934665603u;      // FNV-1a, 64 bits
    for (; *name != 0; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h ^ h >> 29;
}

typedef struct ckpt__toc_place { ckpt__blob blob; size_t was; } ckpt__toc_place;

static int ckpt__toc_place_order(const void *a, const void *b) {
    const ckpt__toc_place *x = (const ckpt__toc_place *)a, *y = (const ckpt__toc_place *)b;
    if (x->blob.offset != y->blob.offset) return x->blob.offset < y->blob.offset ? -1 : 1;
    if (x->blob.size != y->blob.size) return x->blob.size < y->blob.size ? -1 : 1;
    return x->was < y->was ? -1 : x->was > y->was;
}

// Puts the blobs in order of offset. The files of a tar are listed before what lies in its container, wherever that stands.
static ckpt_err ckpt__toc_sort(ckpt__toc *t) {
    bool sorted = true;
    for (size_t i = 1; i < t->blob_count; i++) sorted = sorted && t->blobs[i - 1].offset <= t->blobs[i].offset;
    if (sorted) return CKPT_OK;
    size_t n = t->blob_count;
    ckpt__toc_place *places = (ckpt__toc_place *)ckpt__mem_alloc(&t->allocator, n * sizeof *places);
    int *now = places == NULL ? NULL : (int *)ckpt__mem_alloc(&t->allocator, n * sizeof *now);
    for (size_t i = 0; i < n && now != NULL; i++) {
        places[i].blob = t->blobs[i];
        places[i].was = i;
    }
    if (now != NULL) qsort(places, n, sizeof *places, ckpt__toc_place_order);
    for (size_t i = 0; i < n && now != NULL; i++) {
        t->blobs[i] = places[i].blob;
        now[places[i].was] = (int)i;
    }
    for (size_t i = 0; i < t->count && now != NULL; i++) {
        if (t->entries[i].blob >= 0) t->entries[i].blob = now[t->entries[i].blob];
    }
    bool done = now != NULL;
    ckpt__mem_free(&t->allocator, now, n * sizeof *now);
    ckpt__mem_free(&t->allocator, places, n * sizeof *places);
    return done ? CKPT_OK : CKPT_NOMEM;
}

// Builds the name table. Two entries of one name are damage: which of them is meant cannot be known.
static ckpt_err ckpt__toc_finish(ckpt__toc *t) {
    if (ckpt__toc_sort(t) != CKPT_OK) return CKPT_NOMEM;
    size_t n = 16;
    while (n < t->count * 2) n *= 2;
    t->slots = (int *)ckpt__mem_alloc(&t->allocator, n * sizeof *t->slots);
    if (t->slots == NULL) return CKPT_NOMEM;
    t->slot_count = n;
    for (size_t i = 0; i < t->count; i++) {
        size_t at = (size_t)ckpt__toc_hash(t->entries[i].name) & (n - 1);
        for (; t->slots[at] != 0; at = (at + 1) & (n - 1)) {
            if (strcmp(t->entries[t->slots[at] - 1].name, t->entries[i].name) == 0)
                return ckpt__error_set(CKPT_CORRUPT, "it holds the name '%s' twice", t->entries[i].name);
        }
        t->slots[at] = (int)i + 1;
    }
    return CKPT_OK;
}

// The entry of that name, -1 when there is none. Needs ckpt__toc_finish.
static int ckpt__toc_find(const ckpt__toc *t, const char *name) {
    size_t mask = t->slot_count - 1;
    for (size_t at = (size_t)ckpt__toc_hash(name) & mask; t->slots[at] != 0; at = (at + 1) & mask) {
        if (strcmp(t->entries[t->slots[at] - 1].name, name) == 0) return t->slots[at] - 1;
    }
    return -1;
}

//------------------------------------------------------------------------------
// >>pickle     [I]  Python's pickle: a writer of plain values, a reader that executes nothing
//
// uses:    error memory text state
// threads: whoever owns the object; nothing is shared
//
// The writer emits what torch.save emits (protocol 2), with opcodes that every
// torch.load(weights_only=True) accepts; only floats need torch 2.0 there, because the allow-list
// of 1.13 has no BINFLOAT.
// The reader is a stack machine over an array of small nodes. A global is looked up in a table and
// never imported; what is not in the table, and all that is built from it, becomes an opaque node.
// Its memory is a fixed multiple of the pickle's size: an opcode makes at most two nodes, and
// sharing stays sharing (whoever walks the tree bounds the walk).
//------------------------------------------------------------------------------

enum { CKPT__PICKLE_DEPTH = 200, CKPT__PICKLE_MAX_SIZE = 1 << 30 };

// What torch calls a dtype. Those without a storage class of their own are written as torch >= 2.1 writes them:
// _rebuild_tensor_v3 over an untyped storage (torch/storage.py, _new_dtypes).
typedef struct ckpt__pickle_dtype { const char *storage, *name, *numpy; } ckpt__pickle_dtype;

static const ckpt__pickle_dtype ckpt__pickle_dtypes[] = {       // in the order of ckpt_dtype, which begins at 1
    { "DoubleStorage", "float64", "f8" },         { "FloatStorage", "float32", "f4" },    { "HalfStorage", "float16", "f2" },
    { "BFloat16Storage", "bfloat16", NULL },      { NULL, "float8_e4m3fn", NULL },        { NULL, "float8_e5m2", NULL },
    { "LongStorage", "int64", "i8" },             { "IntStorage", "int32", "i4" },        { "ShortStorage", "int16", "i2" },
    { "CharStorage", "int8", "i1" },              { NULL, "uint64", "u8" },               { NULL, "uint32", "u4" },
    { NULL, "uint16", "u2" },                     { "ByteStorage", "uint8", "u1" },       { "BoolStorage", "bool", "b1" },
    { "ComplexFloatStorage", "complex64", "c8" }, { "ComplexDoubleStorage", "complex128", "c16" }
};
enum { CKPT__PICKLE_DTYPES = (int)(sizeof ckpt__pickle_dtypes / sizeof ckpt__pickle_dtypes[0]), CKPT__PICKLE_UNTYPED = 255 };

// "little" or "big": the order in which this machine keeps the bytes of a number.
static const char *ckpt__pickle_byteorder(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1 ? "little" : "big";
}

//-- writing ---------------------------------------------------------------------

// Values used again and again are named once and fetched by number.
enum {
    CKPT__PICKLE_MEMO_V2, CKPT__PICKLE_MEMO_V3, CKPT__PICKLE_MEMO_STORAGE, CKPT__PICKLE_MEMO_CPU, CKPT__PICKLE_MEMO_HOOKS,
    CKPT__PICKLE_MEMO_UNTYPED,
    CKPT__PICKLE_MEMO_DTYPE,                                            // one for each storage class or dtype
    CKPT__PICKLE_MEMOS = CKPT__PICKLE_MEMO_DTYPE + CKPT__PICKLE_DTYPES
};

typedef struct ckpt__pickle_writer {
    ckpt__buf     out;
    unsigned      memo_count;
    unsigned char memo[CKPT__PICKLE_MEMOS];                             // number + 1, 0: not written yet
} ckpt__pickle_writer;

static void ckpt__pickle_begin(ckpt__pickle_writer *w, const ckpt_allocator *a) {
    memset(w, 0, sizeof *w);
    ckpt__buf_init(&w->out, a);
    ckpt__buf_add(&w->out, "\x80\x02", 2);
}

static void ckpt__pickle_op(ckpt__pickle_writer *w, char op) {
    ckpt__buf_add(&w->out, &op, 1);
}

// The functions that take a cursor write where there is room, and return where they stopped: a tensor is thirty small pieces,
// and looking for room at each of them took most of the time.
static char *ckpt__pickle_put_bytes(char *p, const void *bytes, size_t n) {
    memcpy(p, bytes, n);
    return p + n;
}

static char *ckpt__pickle_put_le(char *p, char op, uint64_t v, int bytes) {
    *p++ = op;
    for (int i = 0; i < bytes; i++) *p++ = (char)(v >> (8 * i) & 255);
    return p;
}

// The shortest form, as Python's own pickler chooses it: BININT1, BININT2, BININT, else LONG1.
static char *ckpt__pickle_put_int(char *p, int64_t v) {
    uint64_t u = (uint64_t)v;
    if (v >= 0 && v < 256) return ckpt__pickle_put_le(p, 'K', u, 1);
    if (v >= 0 && v < 65536) return ckpt__pickle_put_le(p, 'M', u, 2);
    if (v >= INT32_MIN && v <= INT32_MAX) return ckpt__pickle_put_le(p, 'J', u, 4);
    int n = 8;                                                          // the fewest bytes whose top bit is the sign
    for (; n > 1; n--) {
        uint64_t top = u >> (8 * n - 9) & 0x1FF;
        if (top != 0 && top != 0x1FF) break;
    }
    *p++ = '\x8a';
    return ckpt__pickle_put_le(p, (char)n, u, n);
}

static char *ckpt__pickle_put_ints(char *p, const int64_t *v, int n) {
    static const char short_tuple[] = { ')', '\x85', '\x86', '\x87' };
    if (n > 3) *p++ = '(';
    for (int i = 0; i < n; i++) p = ckpt__pickle_put_int(p, v[i]);
    *p++ = n > 3 ? 't' : short_tuple[n];
    return p;
}

static char *ckpt__pickle_put_text(char *p, const char *text, size_t len) {
    return ckpt__pickle_put_bytes(ckpt__pickle_put_le(p, 'X', len, 4), text, len);
}

// A value that was written before is fetched by its number; else *fresh is set and the caller writes and names it.
static char *ckpt__pickle_put_known(ckpt__pickle_writer *w, char *p, int memo, bool *fresh) {
    *fresh = w->memo[memo] == 0;
    return *fresh ? p : ckpt__pickle_put_le(p, 'h', w->memo[memo] - 1u, 1);
}

static char *ckpt__pickle_put_name(ckpt__pickle_writer *w, char *p, int memo) {
    p = ckpt__pickle_put_le(p, 'q', w->memo_count, 1);
    w->memo[memo] = (unsigned char)++w->memo_count;
    return p;
}

static char *ckpt__pickle_put_global(ckpt__pickle_writer *w, char *p, int memo, const char *module, const char *name) {
    bool fresh;
    p = ckpt__pickle_put_known(w, p, memo, &fresh);
    if (!fresh) return p;
    *p++ = 'c';
    p = ckpt__pickle_put_bytes(p, module, strlen(module));
    *p++ = '\n';
    p = ckpt__pickle_put_bytes(p, name, strlen(name));
    *p++ = '\n';
    return ckpt__pickle_put_name(w, p, memo);
}

static char *ckpt__pickle_put_word(ckpt__pickle_writer *w, char *p, int memo, const char *word) {
    bool fresh;
    p = ckpt__pickle_put_known(w, p, memo, &fresh);
    return fresh ? ckpt__pickle_put_name(w, ckpt__pickle_put_text(p, word, strlen(word)), memo) : p;
}

static void ckpt__pickle_done(ckpt__pickle_writer *w, const char *p) {
    w->out.len = (size_t)(p - w->out.data);
}

static void ckpt__pickle_text(ckpt__pickle_writer *w, const char *text, size_t len) {
    char *p = ckpt__buf_reserve(&w->out, len + 5);
    if (p != NULL) ckpt__pickle_done(w, ckpt__pickle_put_text(p, text, len));
}

static void ckpt__pickle_int(ckpt__pickle_writer *w, int64_t v) {
    char *p = ckpt__buf_reserve(&w->out, 10);
    if (p != NULL) ckpt__pickle_done(w, ckpt__pickle_put_int(p, v));
}

static void ckpt__pickle_float(ckpt__pickle_writer *w, double v) {
    uint64_t bits;
    char b[9] = { 'G' };
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 8; i++) b[8 - i] = (char)(bits >> (8 * i) & 255);
    ckpt__buf_add(&w->out, b, sizeof b);
}

// A dense tensor over the whole of the storage called `key`, of at most 24 characters.
static void ckpt__pickle_tensor(ckpt__pickle_writer *w, ckpt_dtype dtype, int ndim, const int64_t *shape, const char *key) {
    const ckpt__pickle_dtype *d = &ckpt__pickle_dtypes[(int)dtype - 1];
    int64_t stride[CKPT_MAX_DIMS], step = 1, count = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i] > 0 ? shape[i] : 1;
        count *= shape[i];
    }
    bool typed = d->storage != NULL;
    int memo = CKPT__PICKLE_MEMO_DTYPE + (int)dtype - 1;
    char *p = ckpt__buf_reserve(&w->out, 640);          // 2 * 8 ints of 10 bytes, 4 globals and 2 words of 40, a key
    if (p == NULL) return;
    if (typed) p = ckpt__pickle_put_global(w, p, CKPT__PICKLE_MEMO_V2, "torch._utils", "_rebuild_tensor_v2");
    else p = ckpt__pickle_put_global(w, p, CKPT__PICKLE_MEMO_V3, "torch._utils", "_rebuild_tensor_v3");
    p = ckpt__pickle_put_word(w, ckpt__pickle_put_bytes(p, "((", 2), CKPT__PICKLE_MEMO_STORAGE, "storage");
    if (typed) p = ckpt__pickle_put_global(w, p, memo, "torch", d->storage);
    else p = ckpt__pickle_put_global(w, p, CKPT__PICKLE_MEMO_UNTYPED, "torch.storage", "UntypedStorage");
    p = ckpt__pickle_put_text(p, key, strlen(key));
    p = ckpt__pickle_put_word(w, p, CKPT__PICKLE_MEMO_CPU, "cpu");
    p = ckpt__pickle_put_int(p, typed ? count : count * (int64_t)ckpt__state_dtype_size(dtype));
    p = ckpt__pickle_put_bytes(p, "tQK\0", 4);
    p = ckpt__pickle_put_ints(p, shape, ndim);
    p = ckpt__pickle_put_ints(p, stride, ndim);
    *p++ = '\x89';
    p = ckpt__pickle_put_global(w, p, CKPT__PICKLE_MEMO_HOOKS, "collections", "OrderedDict");
    p = ckpt__pickle_put_bytes(p, ")R", 2);
    if (!typed) p = ckpt__pickle_put_global(w, p, memo, "torch", d->name);
    ckpt__pickle_done(w, ckpt__pickle_put_bytes(p, "tR", 2));
}

//-- reading: the nodes ----------------------------------------------------------

typedef enum ckpt__pickle_kind {
    CKPT__PICKLE_NONE, CKPT__PICKLE_BOOL, CKPT__PICKLE_INT, CKPT__PICKLE_FLOAT,
    CKPT__PICKLE_TEXT,              // b: offset in the pickle, a: bytes
    CKPT__PICKLE_BYTES,             // the same; flag: UTF-8 text of which each character stands for one byte
    CKPT__PICKLE_TUPLE,             // a items from refs[b]
    CKPT__PICKLE_LIST,              // also sets; a: first cell, b: count << 32 | last cell
    CKPT__PICKLE_DICT,              // the same; keys and values take turns
    CKPT__PICKLE_GLOBAL,            // extra: what it is, flag: the dtype, a: module and b: name (TEXT nodes)
    CKPT__PICKLE_STORAGE,           // extra: dtype, a: key (TEXT), b: number of elements
    CKPT__PICKLE_TENSOR,            // extra: dtype, a: STORAGE, refs[b..b+2]: offset, shape, strides
    CKPT__PICKLE_ARRAY,             // numpy: extra: dtype, a: BYTES, refs[b]: shape; flag: complete
    CKPT__PICKLE_NPDTYPE,           // extra: dtype, 0: one that ckpt has not; flag: of the other byte order
    CKPT__PICKLE_OTHER              // opaque; a: the GLOBAL it was made from, 0: unknown
} ckpt__pickle_kind;

typedef struct ckpt__pickle_node { unsigned char kind, flag; uint16_t extra; uint32_t a; uint64_t b; } ckpt__pickle_node;
typedef struct ckpt__pickle_cell { uint32_t node, next; } ckpt__pickle_cell;

typedef struct ckpt__pickle {
    ckpt_allocator       allocator;
    const unsigned char *p;
    size_t               size, at;
    ckpt__pickle_node   *nodes;
    ckpt__pickle_cell   *cells;
    uint32_t            *refs, *stack, *marks, *memo;
    size_t               node_count, node_cap, cell_count, cell_cap, ref_count, ref_cap, depth, stack_cap;
    size_t               mark_count, mark_cap, memo_cap, memo_count;
    ckpt_err             err;
} ckpt__pickle;

// node 0 is never a value
enum { CKPT__PICKLE_ID_NONE = 1, CKPT__PICKLE_ID_TRUE, CKPT__PICKLE_ID_FALSE, CKPT__PICKLE_ID_EMPTY };

static void ckpt__pickle_free(ckpt__pickle *k) {
    ckpt__mem_free(&k->allocator, k->nodes, k->node_cap * sizeof *k->nodes);
    ckpt__mem_free(&k->allocator, k->cells, k->cell_cap * sizeof *k->cells);
    ckpt__mem_free(&k->allocator, k->refs, k->ref_cap * sizeof *k->refs);
    ckpt__mem_free(&k->allocator, k->stack, k->stack_cap * sizeof *k->stack);
    ckpt__mem_free(&k->allocator, k->marks, k->mark_cap * sizeof *k->marks);
    ckpt__mem_free(&k->allocator, k->memo, k->memo_cap * sizeof *k->memo);
    memset(k, 0, sizeof *k);
}

// The first failure sticks; the reader goes on with node 0 until its loop looks.
static uint32_t ckpt__pickle_fail(ckpt__pickle *k, const char *what) {
    if (k->err == CKPT_OK) k->err = ckpt__error_set(CKPT_CORRUPT, "its pickle is damaged before byte %zu: %s", k->at, what);
    return 0;
}

static uint32_t ckpt__pickle_node_new(ckpt__pickle *k, ckpt__pickle_kind kind, unsigned extra, uint32_t a, uint64_t b) {
    if (k->err == CKPT_OK && k->node_count == k->node_cap)
        k->err = ckpt__mem_grow(&k->allocator, (void **)&k->nodes, sizeof *k->nodes, &k->node_cap, k->node_count + 1);
    if (k->err != CKPT_OK) return 0;
    ckpt__pickle_node *n = &k->nodes[k->node_count];
    n->kind = (unsigned char)kind;
    n->flag = 0;
    n->extra = (uint16_t)extra;
    n->a = a;
    n->b = b;
    return (uint32_t)k->node_count++;
}

static void ckpt__pickle_push(ckpt__pickle *k, uint32_t node) {
    if (k->err == CKPT_OK && k->depth == k->stack_cap)
        k->err = ckpt__mem_grow(&k->allocator, (void **)&k->stack, sizeof *k->stack, &k->stack_cap, k->depth + 1);
    if (k->err == CKPT_OK) k->stack[k->depth++] = node;
}

// What lies below the last mark is out of reach, as it is in Python's own machine.
static size_t ckpt__pickle_floor(const ckpt__pickle *k) {
    return k->mark_count > 0 ? k->marks[k->mark_count - 1] : 0;
}

static uint32_t ckpt__pickle_pop(ckpt__pickle *k) {
    if (k->err != CKPT_OK || k->depth <= ckpt__pickle_floor(k)) return ckpt__pickle_fail(k, "the stack is empty");
    return k->stack[--k->depth];
}

static uint32_t ckpt__pickle_top(ckpt__pickle *k) {
    if (k->err != CKPT_OK || k->depth <= ckpt__pickle_floor(k)) return ckpt__pickle_fail(k, "the stack is empty");
    return k->stack[k->depth - 1];
}

static uint32_t ckpt__pickle_refs(ckpt__pickle *k, const uint32_t *items, size_t n) {
    if (k->err == CKPT_OK)
        k->err = ckpt__mem_grow(&k->allocator, (void **)&k->refs, sizeof *k->refs, &k->ref_cap, k->ref_count + n);
    if (k->err != CKPT_OK) return 0;
    if (n > 0) memcpy(k->refs + k->ref_count, items, n * sizeof *items);
    k->ref_count += n;
    return (uint32_t)(k->ref_count - n);
}

static uint32_t ckpt__pickle_tuple(ckpt__pickle *k, const uint32_t *items, size_t n) {
    if (n == 0) return CKPT__PICKLE_ID_EMPTY;
    uint32_t at = ckpt__pickle_refs(k, items, n);
    return ckpt__pickle_node_new(k, CKPT__PICKLE_TUPLE, 0, (uint32_t)n, at);
}

// Appends to a list or dict. An honest pickle spends a byte on each item; one that makes dicts of the same long list again and
// again would not, and is stopped here.
static void ckpt__pickle_append(ckpt__pickle *k, uint32_t list, uint32_t item) {
    if (k->cell_count > 2 * k->size + 16) (void)ckpt__pickle_fail(k, "it repeats the same items too often");
    if (k->err == CKPT_OK && k->cell_count == k->cell_cap) {
        k->err = ckpt__mem_grow(&k->allocator, (void **)&k->cells, sizeof *k->cells, &k->cell_cap, k->cell_count + 1);
        if (k->cell_count == 0) k->cell_count = 1;                      // cell 0 ends every chain
    }
    if (k->err != CKPT_OK) return;
    ckpt__pickle_node *n = &k->nodes[list];
    uint32_t at = (uint32_t)k->cell_count++;
    k->cells[at].node = item;
    k->cells[at].next = 0;
    if (n->a == 0) n->a = at;
    else k->cells[n->b & 0xFFFFFFFFu].next = at;
    n->b = ((n->b >> 32) + 1) << 32 | at;
}

// Item i of a tuple, 0 when there is none or it is no tuple.
static uint32_t ckpt__pickle_item(const ckpt__pickle *k, uint32_t tuple, uint32_t i) {
    const ckpt__pickle_node *n = &k->nodes[tuple];
    return n->kind == CKPT__PICKLE_TUPLE && i < n->a ? k->refs[n->b + i] : 0;
}

static bool ckpt__pickle_is(const ckpt__pickle *k, uint32_t node, ckpt__pickle_kind kind) {
    return node != 0 && k->nodes[node].kind == (unsigned char)kind;
}

static ckpt__view ckpt__pickle_view(const ckpt__pickle *k, uint32_t node) {
    ckpt__view v = { "", 0 };
    if (ckpt__pickle_is(k, node, CKPT__PICKLE_TEXT) || ckpt__pickle_is(k, node, CKPT__PICKLE_BYTES)) {
        v.p = (const char *)k->p + k->nodes[node].b;
        v.n = k->nodes[node].a;
    }
    return v;
}

static bool ckpt__pickle_int_of(const ckpt__pickle *k, uint32_t node, int64_t *v) {
    if (!ckpt__pickle_is(k, node, CKPT__PICKLE_INT) && !ckpt__pickle_is(k, node, CKPT__PICKLE_BOOL)) return false;
    *v = (int64_t)k->nodes[node].b;
    return true;
}

static uint32_t ckpt__pickle_int_node(ckpt__pickle *k, int64_t v) {
    return ckpt__pickle_node_new(k, CKPT__PICKLE_INT, 0, 0, (uint64_t)v);
}

static uint32_t ckpt__pickle_float_node(ckpt__pickle *k, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return ckpt__pickle_node_new(k, CKPT__PICKLE_FLOAT, 0, 0, bits);
}

static double ckpt__pickle_float_of(const ckpt__pickle *k, uint32_t node) {
    double v;
    memcpy(&v, &k->nodes[node].b, sizeof v);
    return v;
}

static uint32_t ckpt__pickle_other(ckpt__pickle *k, uint32_t global) {
    return ckpt__pickle_node_new(k, CKPT__PICKLE_OTHER, 0, ckpt__pickle_is(k, global, CKPT__PICKLE_GLOBAL) ? global : 0, 0);
}

// Copies the bytes that a BYTES node stands for into `out` (room for node.a bytes). Returns how many, or SIZE_MAX: not latin-1.
static size_t ckpt__pickle_bytes_of(const ckpt__pickle *k, uint32_t node, unsigned char *out, size_t room) {
    ckpt__view v = ckpt__pickle_view(k, node);
    const unsigned char *p = (const unsigned char *)v.p;
    size_t n = 0;
    for (size_t i = 0; i < v.n && n < room; n++) {
        unsigned c = p[i++];
        if (k->nodes[node].flag != 0 && c >= 0x80) {
            if ((c != 0xC2 && c != 0xC3) || i >= v.n || (p[i] & 0xC0) != 0x80) return SIZE_MAX;
            c = (c & 3) << 6 | (p[i++] & 0x3Fu);
        }
        out[n] = (unsigned char)c;
    }
    return n;
}

// How many bytes a BYTES node stands for.
static size_t ckpt__pickle_bytes_len(const ckpt__pickle *k, uint32_t node) {
    ckpt__view v = ckpt__pickle_view(k, node);
    size_t n = v.n;
    if (k->nodes[node].flag != 0) for (size_t i = 0; i < v.n; i++) n -= ((unsigned char)v.p[i] & 0xC0) == 0x80;
    return n;
}

//-- reading: globals and what is called -------------------------------------------

typedef enum ckpt__pickle_call {
    CKPT__CALL_UNKNOWN, CKPT__CALL_STORAGE, CKPT__CALL_DTYPE, CKPT__CALL_REBUILD, CKPT__CALL_REBUILD_V3, CKPT__CALL_FIRST,
    CKPT__CALL_FROM_TYPE, CKPT__CALL_DICT, CKPT__CALL_LIST, CKPT__CALL_TUPLE, CKPT__CALL_BYTES, CKPT__CALL_TIMEDELTA,
    CKPT__CALL_ARRAY, CKPT__CALL_SCALAR, CKPT__CALL_NPDTYPE, CKPT__CALL_FROMBUFFER
} ckpt__pickle_call;

typedef struct ckpt__pickle_known { const char *module, *name; ckpt__pickle_call call; } ckpt__pickle_known;

static const ckpt__pickle_known ckpt__pickle_table[] = {
    { "torch._utils", "_rebuild_tensor", CKPT__CALL_REBUILD },
    { "torch._utils", "_rebuild_tensor_v2", CKPT__CALL_REBUILD },
    { "torch._utils", "_rebuild_tensor_v3", CKPT__CALL_REBUILD_V3 },
    { "torch._utils", "_rebuild_parameter", CKPT__CALL_FIRST },
    { "torch._utils", "_rebuild_parameter_with_state", CKPT__CALL_FIRST },
    { "torch.nn.parameter", "Parameter", CKPT__CALL_FIRST },
    { "torch._tensor", "_rebuild_from_type_v2", CKPT__CALL_FROM_TYPE },
    { "torch", "Size", CKPT__CALL_TUPLE },
    { "collections", "OrderedDict", CKPT__CALL_DICT },
    { "collections", "defaultdict", CKPT__CALL_DICT },
    { "collections", "Counter", CKPT__CALL_DICT },
    { "builtins", "dict", CKPT__CALL_DICT },        { "__builtin__", "dict", CKPT__CALL_DICT },
    { "builtins", "set", CKPT__CALL_LIST },         { "__builtin__", "set", CKPT__CALL_LIST },
    { "builtins", "frozenset", CKPT__CALL_LIST },   { "__builtin__", "frozenset", CKPT__CALL_LIST },
    { "builtins", "list", CKPT__CALL_LIST },        { "__builtin__", "list", CKPT__CALL_LIST },
    { "collections", "deque", CKPT__CALL_LIST },
    { "builtins", "bytearray", CKPT__CALL_BYTES },  { "__builtin__", "bytearray", CKPT__CALL_BYTES },
    { "builtins", "bytes", CKPT__CALL_BYTES },      { "__builtin__", "bytes", CKPT__CALL_BYTES },
    { "_codecs", "encode", CKPT__CALL_BYTES },
    { "datetime", "timedelta", CKPT__CALL_TIMEDELTA },
    { "numpy.core.multiarray", "_reconstruct", CKPT__CALL_ARRAY },
    { "numpy._core.multiarray", "_reconstruct", CKPT__CALL_ARRAY },
    { "numpy.core.multiarray", "scalar", CKPT__CALL_SCALAR },        { "numpy._core.multiarray", "scalar", CKPT__CALL_SCALAR },
    { "numpy.core.numeric", "_frombuffer", CKPT__CALL_FROMBUFFER },
    { "numpy._core.numeric", "_frombuffer", CKPT__CALL_FROMBUFFER },
    { "numpy", "dtype", CKPT__CALL_NPDTYPE }
};

static uint32_t ckpt__pickle_global_node(ckpt__pickle *k, uint32_t module, uint32_t name) {
    ckpt__view m = ckpt__pickle_view(k, module), v = ckpt__pickle_view(k, name);
    ckpt__pickle_call call = CKPT__CALL_UNKNOWN;
    unsigned dtype = 0;
    for (size_t i = 0; i < sizeof ckpt__pickle_table / sizeof ckpt__pickle_table[0]; i++) {
        if (ckpt__txt_eq(v, ckpt__pickle_table[i].name) && ckpt__txt_eq(m, ckpt__pickle_table[i].module))
            call = ckpt__pickle_table[i].call;
    }
    if (ckpt__txt_eq(v, "UntypedStorage") && (ckpt__txt_eq(m, "torch.storage") || ckpt__txt_eq(m, "torch"))) {
        call = CKPT__CALL_STORAGE;
        dtype = CKPT__PICKLE_UNTYPED;
    }
    bool in_torch = ckpt__txt_eq(m, "torch") || ckpt__txt_eq(m, "torch.cuda");
    for (unsigned i = 0; in_torch && i < CKPT__PICKLE_DTYPES; i++) {
        const ckpt__pickle_dtype *d = &ckpt__pickle_dtypes[i];
        bool is_storage = d->storage != NULL && ckpt__txt_eq(v, d->storage);
        if (!is_storage && !ckpt__txt_eq(v, d->name)) continue;
        call = is_storage ? CKPT__CALL_STORAGE : CKPT__CALL_DTYPE;
        dtype = i + 1;
    }
    uint32_t n = ckpt__pickle_node_new(k, CKPT__PICKLE_GLOBAL, (unsigned)call, module, name);
    if (n != 0) k->nodes[n].flag = (unsigned char)dtype;
    return n;
}

// ('storage', class, key, location, elements): the only persistent id that torch writes.
static uint32_t ckpt__pickle_persistent(ckpt__pickle *k, uint32_t id) {
    uint32_t type = ckpt__pickle_item(k, id, 1), key = ckpt__pickle_item(k, id, 2);
    int64_t count = 0;
    bool good = ckpt__txt_eq(ckpt__pickle_view(k, ckpt__pickle_item(k, id, 0)), "storage") &&
                ckpt__pickle_is(k, type, CKPT__PICKLE_GLOBAL) && ckpt__pickle_is(k, key, CKPT__PICKLE_TEXT) &&
                ckpt__pickle_int_of(k, ckpt__pickle_item(k, id, 4), &count);
    if (!good || k->nodes[type].extra != CKPT__CALL_STORAGE) return ckpt__pickle_other(k, type);
    if (count < 0) return ckpt__pickle_fail(k, "a storage has a negative size");
    return ckpt__pickle_node_new(k, CKPT__PICKLE_STORAGE, k->nodes[type].flag, key, (uint64_t)count);
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]); v3 has the dtype before the metadata.
static uint32_t ckpt__pickle_rebuild(ckpt__pickle *k, uint32_t func, uint32_t args) {
    uint32_t storage = ckpt__pickle_item(k, args, 0), parts[3];
    for (uint32_t i = 0; i < 3; i++) parts[i] = ckpt__pickle_item(k, args, i + 1);
    bool v3 = k->nodes[func].extra == CKPT__CALL_REBUILD_V3;
    uint32_t meta = ckpt__pickle_item(k, args, v3 ? 7 : 6), type = v3 ? ckpt__pickle_item(k, args, 6) : 0;
    bool good = ckpt__pickle_is(k, storage, CKPT__PICKLE_STORAGE) && ckpt__pickle_is(k, parts[0], CKPT__PICKLE_INT) &&
                ckpt__pickle_is(k, parts[1], CKPT__PICKLE_TUPLE) && ckpt__pickle_is(k, parts[2], CKPT__PICKLE_TUPLE);
    // Metadata that is not empty says that the values are to be negated or conjugated when they are read.
    if (ckpt__pickle_is(k, meta, CKPT__PICKLE_DICT) && k->nodes[meta].a != 0) good = false;
    if (v3 && (!ckpt__pickle_is(k, type, CKPT__PICKLE_GLOBAL) || k->nodes[type].extra != CKPT__CALL_DTYPE)) good = false;
    if (!good) return ckpt__pickle_other(k, func);
    unsigned dtype = v3 ? k->nodes[type].flag : k->nodes[storage].extra;
    uint32_t at = ckpt__pickle_refs(k, parts, 3);
    return ckpt__pickle_node_new(k, CKPT__PICKLE_TENSOR, dtype, storage, at);
}

// A new dict: OrderedDict(), OrderedDict([[key, value], ...]), Counter({...}), defaultdict(factory).
static uint32_t ckpt__pickle_make_dict(ckpt__pickle *k, uint32_t args) {
    uint32_t from = ckpt__pickle_item(k, args, 0), made = ckpt__pickle_node_new(k, CKPT__PICKLE_DICT, 0, 0, 0);
    if (k->err != CKPT_OK) return 0;
    if (ckpt__pickle_is(k, from, CKPT__PICKLE_DICT)) k->nodes[made] = k->nodes[from];
    if (!ckpt__pickle_is(k, from, CKPT__PICKLE_LIST)) return made;
    for (uint32_t c = k->nodes[from].a; c != 0 && k->err == CKPT_OK; c = k->cells[c].next) {
        uint32_t pair = k->cells[c].node, key = ckpt__pickle_item(k, pair, 0), value = ckpt__pickle_item(k, pair, 1);
        if (ckpt__pickle_is(k, pair, CKPT__PICKLE_LIST) && k->nodes[pair].b >> 32 == 2) {
            key = k->cells[k->nodes[pair].a].node;
            value = k->cells[k->cells[k->nodes[pair].a].next].node;
        }
        if (key == 0 || value == 0) return ckpt__pickle_fail(k, "a dict is made of something else than pairs");
        ckpt__pickle_append(k, made, key);
        ckpt__pickle_append(k, made, value);
    }
    return made;
}

// A new list, set or deque, of what a list or tuple holds.
static uint32_t ckpt__pickle_make_list(ckpt__pickle *k, uint32_t args) {
    uint32_t from = ckpt__pickle_item(k, args, 0), made = ckpt__pickle_node_new(k, CKPT__PICKLE_LIST, 0, 0, 0);
    if (k->err == CKPT_OK && ckpt__pickle_is(k, from, CKPT__PICKLE_LIST)) k->nodes[made] = k->nodes[from];
    return k->err == CKPT_OK && ckpt__pickle_is(k, from, CKPT__PICKLE_TUPLE) && k->nodes[from].a > 0 ? from : made;
}

// bytes(), bytearray(b), bytearray(text, 'latin-1'), _codecs.encode(text, 'latin1').
static uint32_t ckpt__pickle_make_bytes(ckpt__pickle *k, uint32_t func, uint32_t args) {
    uint32_t from = ckpt__pickle_item(k, args, 0);
    ckpt__view how = ckpt__pickle_view(k, ckpt__pickle_item(k, args, 1));
    if (from == 0) return ckpt__pickle_node_new(k, CKPT__PICKLE_BYTES, 0, 0, 0);
    if (ckpt__pickle_is(k, from, CKPT__PICKLE_BYTES)) return from;
    if (!ckpt__pickle_is(k, from, CKPT__PICKLE_TEXT) || !(ckpt__txt_eq(how, "latin1") || ckpt__txt_eq(how, "latin-1")))
        return ckpt__pickle_other(k, func);
    uint32_t made = ckpt__pickle_node_new(k, CKPT__PICKLE_BYTES, 0, k->nodes[from].a, k->nodes[from].b);
    if (made != 0) k->nodes[made].flag = 1;
    return made;
}

// datetime.timedelta(days, seconds, microseconds) as seconds: Composer's clocks.
static uint32_t ckpt__pickle_make_seconds(ckpt__pickle *k, uint32_t func, uint32_t args) {
    int64_t v[3] = { 0, 0, 0 };
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t item = ckpt__pickle_item(k, args, i);
        if (item != 0 && !ckpt__pickle_int_of(k, item, &v[i])) return ckpt__pickle_other(k, func);
    }
    return ckpt__pickle_float_node(k, (double)v[0] * 86400.0 + ((double)v[1] * 1e6 + (double)v[2]) / 1e6);
}

// numpy.dtype('f8', False, True); BUILD tells the byte order later.
static uint32_t ckpt__pickle_make_npdtype(ckpt__pickle *k, uint32_t args) {
    ckpt__view v = ckpt__pickle_view(k, ckpt__pickle_item(k, args, 0));
    uint32_t made = ckpt__pickle_node_new(k, CKPT__PICKLE_NPDTYPE, 0, 0, 0);
    if (made == 0) return 0;
    if (v.n > 1 && strchr("<>|=", v.p[0]) != NULL) {
        k->nodes[made].flag = v.p[0] == '>';
        v.p++;
        v.n--;
    }
    for (unsigned i = 0; i < CKPT__PICKLE_DTYPES; i++) {
        if (ckpt__pickle_dtypes[i].numpy != NULL && ckpt__txt_eq(v, ckpt__pickle_dtypes[i].numpy))
            k->nodes[made].extra = (uint16_t)(i + 1);
    }
    return made;
}

// numpy.core.multiarray.scalar(dtype, bytes): an int, a float or a bool.
static uint32_t ckpt__pickle_make_scalar(ckpt__pickle *k, uint32_t func, uint32_t args) {
    uint32_t type = ckpt__pickle_item(k, args, 0), from = ckpt__pickle_item(k, args, 1);
    unsigned char raw[8];
    if (!ckpt__pickle_is(k, type, CKPT__PICKLE_NPDTYPE) || !ckpt__pickle_is(k, from, CKPT__PICKLE_BYTES))
        return ckpt__pickle_other(k, func);
    ckpt_dtype d = (ckpt_dtype)k->nodes[type].extra;
    size_t size = ckpt__state_dtype_size(d);
    bool good = size >= 1 && size <= 8 && k->nodes[type].flag == 0 && ckpt__pickle_bytes_len(k, from) == size &&
                ckpt__pickle_bytes_of(k, from, raw, sizeof raw) == size;
    uint64_t u = good ? ckpt__mem_le(raw, (int)size) : 0;
    bool is_signed = d == CKPT_I64 || d == CKPT_I32 || d == CKPT_I16 || d == CKPT_I8;
    if (is_signed && size < 8 && (u >> (8 * size - 1) & 1) != 0) u |= ~(uint64_t)0 << (8 * size);
    if (good && d == CKPT_BOOL) return u != 0 ? CKPT__PICKLE_ID_TRUE : CKPT__PICKLE_ID_FALSE;
    if (good && (is_signed || d == CKPT_U8 || d == CKPT_U16 || d == CKPT_U32 || (d == CKPT_U64 && u <= INT64_MAX)))
        return ckpt__pickle_node_new(k, CKPT__PICKLE_INT, 0, 0, u);
    if (good && d == CKPT_F64) return ckpt__pickle_node_new(k, CKPT__PICKLE_FLOAT, 0, 0, u);
    if (good && d == CKPT_F32) {
        uint32_t bits = (uint32_t)u;
        float f;
        memcpy(&f, &bits, sizeof f);
        return ckpt__pickle_float_node(k, (double)f);
    }
    return ckpt__pickle_other(k, func);
}

// Makes an array of a dtype, a shape and the raw bytes; it stays incomplete, and so opaque, when one of them does not fit.
static void ckpt__pickle_array_set(ckpt__pickle *k, uint32_t array, uint32_t type, uint32_t shape, uint32_t raw) {
    bool native = ckpt__pickle_byteorder()[0] == 'l';       // numpy writes '<' or '>', never "the machine's"
    bool good = ckpt__pickle_is(k, type, CKPT__PICKLE_NPDTYPE) && (k->nodes[type].flag == 0) == native &&
        k->nodes[type].extra != 0 &&
                ckpt__pickle_is(k, shape, CKPT__PICKLE_TUPLE) && ckpt__pickle_is(k, raw, CKPT__PICKLE_BYTES);
    if (!good || k->err != CKPT_OK) return;
    uint32_t at = ckpt__pickle_refs(k, &shape, 1);
    k->nodes[array].extra = k->nodes[type].extra;
    k->nodes[array].a = raw;
    k->nodes[array].b = at;
    k->nodes[array].flag = 1;
}

// numpy.core.numeric._frombuffer(buffer, dtype, shape, 'C'): arrays since protocol 5.
static uint32_t ckpt__pickle_frombuffer(ckpt__pickle *k, uint32_t args) {
    uint32_t made = ckpt__pickle_node_new(k, CKPT__PICKLE_ARRAY, 0, 0, 0);
    bool in_c_order = ckpt__txt_eq(ckpt__pickle_view(k, ckpt__pickle_item(k, args, 3)), "C");
    if (made != 0 && in_c_order)
        ckpt__pickle_array_set(k, made, ckpt__pickle_item(k, args, 1), ckpt__pickle_item(k, args, 2),
                               ckpt__pickle_item(k, args, 0));
    return made;
}

// REDUCE, NEWOBJ: what the known ones give; all else is opaque, and nothing is ever called.
static uint32_t ckpt__pickle_apply(ckpt__pickle *k, uint32_t func, uint32_t args) {
    if (k->err != CKPT_OK || !ckpt__pickle_is(k, func, CKPT__PICKLE_GLOBAL) || !ckpt__pickle_is(k, args, CKPT__PICKLE_TUPLE))
        return k->err != CKPT_OK ? 0 : ckpt__pickle_other(k, func);
    // _rebuild_from_type_v2(function, type, arguments, state): a tensor with attributes, of which only the tensor is kept.
    if (k->nodes[func].extra == CKPT__CALL_FROM_TYPE) {
        func = ckpt__pickle_item(k, args, 0);
        args = ckpt__pickle_item(k, args, 2);
        if (!ckpt__pickle_is(k, func, CKPT__PICKLE_GLOBAL) || !ckpt__pickle_is(k, args, CKPT__PICKLE_TUPLE))
            return ckpt__pickle_other(k, func);
    }
    uint32_t first = ckpt__pickle_item(k, args, 0);
    switch ((ckpt__pickle_call)k->nodes[func].extra) {
    case CKPT__CALL_REBUILD:
    case CKPT__CALL_REBUILD_V3:  return ckpt__pickle_rebuild(k, func, args);
    case CKPT__CALL_FIRST:       return ckpt__pickle_is(k, first, CKPT__PICKLE_TENSOR) ? first : ckpt__pickle_other(k, func);
    case CKPT__CALL_DICT:        return ckpt__pickle_make_dict(k, args);
    case CKPT__CALL_LIST:        return ckpt__pickle_make_list(k, args);
    case CKPT__CALL_TUPLE:       return ckpt__pickle_is(k, first, CKPT__PICKLE_TUPLE) ? first : ckpt__pickle_other(k, func);
    case CKPT__CALL_BYTES:       return ckpt__pickle_make_bytes(k, func, args);
    case CKPT__CALL_TIMEDELTA:   return ckpt__pickle_make_seconds(k, func, args);
    case CKPT__CALL_ARRAY:       return ckpt__pickle_node_new(k, CKPT__PICKLE_ARRAY, 0, 0, 0);
    case CKPT__CALL_SCALAR:      return ckpt__pickle_make_scalar(k, func, args);
    case CKPT__CALL_NPDTYPE:     return ckpt__pickle_make_npdtype(k, args);
    case CKPT__CALL_FROMBUFFER:  return ckpt__pickle_frombuffer(k, args);
    default:                     return ckpt__pickle_other(k, func);
    }
}

// BUILD: the state of a numpy dtype or array. The attributes of everything else (state_dict's _metadata) are dropped.
static void ckpt__pickle_build(ckpt__pickle *k, uint32_t object, uint32_t state) {
    if (k->err != CKPT_OK) return;
    if (ckpt__pickle_is(k, object, CKPT__PICKLE_NPDTYPE)) {
        ckpt__view order = ckpt__pickle_view(k, ckpt__pickle_item(k, state, 1));
        uint32_t sub = ckpt__pickle_item(k, state, 2), names = ckpt__pickle_item(k, state, 3);
        if (ckpt__txt_eq(order, ">")) k->nodes[object].flag = 1;
        if ((sub != 0 && sub != CKPT__PICKLE_ID_NONE) || (names != 0 && names != CKPT__PICKLE_ID_NONE))
            k->nodes[object].extra = 0;
    }
    if (ckpt__pickle_is(k, object, CKPT__PICKLE_ARRAY) && k->nodes[object].flag == 0 &&
        ckpt__pickle_is(k, state, CKPT__PICKLE_TUPLE)) {
        uint32_t shape = ckpt__pickle_item(k, state, 1);
        bool flat = ckpt__pickle_is(k, shape, CKPT__PICKLE_TUPLE) && k->nodes[shape].a <= 1;
        if (k->nodes[state].a == 5 && (flat || ckpt__pickle_item(k, state, 3) == CKPT__PICKLE_ID_FALSE))
            ckpt__pickle_array_set(k, object, ckpt__pickle_item(k, state, 2), shape, ckpt__pickle_item(k, state, 4));
    }
}

//-- reading: the machine ----------------------------------------------------------

// The next `n` bytes; NULL: they are not there.
static const unsigned char *ckpt__pickle_take(ckpt__pickle *k, uint64_t n) {
    if (k->err == CKPT_OK && n > k->size - k->at) (void)ckpt__pickle_fail(k, "it ends early");
    if (k->err != CKPT_OK) return NULL;
    k->at += (size_t)n;
    return k->p + (k->at - (size_t)n);
}

static uint64_t ckpt__pickle_take_le(ckpt__pickle *k, int bytes) {
    const unsigned char *p = ckpt__pickle_take(k, (uint64_t)bytes);
    return p == NULL ? 0 : ckpt__mem_le(p, bytes);
}

// A string whose length stands before it in `length_bytes` bytes.
static uint32_t ckpt__pickle_take_text(ckpt__pickle *k, ckpt__pickle_kind kind, int length_bytes) {
    uint64_t n = ckpt__pickle_take_le(k, length_bytes);
    const unsigned char *p = ckpt__pickle_take(k, n);
    if (p == NULL) return 0;
    return ckpt__pickle_node_new(k, kind, 0, (uint32_t)n, (uint64_t)(p - k->p));
}

// The rest of a line, for GLOBAL.
static uint32_t ckpt__pickle_take_line(ckpt__pickle *k) {
    const unsigned char *p = k->p + k->at;
    const unsigned char *end = k->at < k->size ? (const unsigned char *)memchr(p, '\n', k->size - k->at) : NULL;
    if (end == NULL) return ckpt__pickle_fail(k, "it ends early");
    k->at += (size_t)(end - p) + 1;
    return ckpt__pickle_node_new(k, CKPT__PICKLE_TEXT, 0, (uint32_t)(end - p), (uint64_t)(p - k->p));
}

// LONG1, LONG4: two's complement of any length; what does not fit 64 bits is opaque.
static uint32_t ckpt__pickle_take_long(ckpt__pickle *k, int length_bytes) {
    uint64_t n = ckpt__pickle_take_le(k, length_bytes);
    const unsigned char *p = ckpt__pickle_take(k, n);
    if (p == NULL) return 0;
    bool negative = n > 0 && (p[n - 1] & 0x80) != 0;
    unsigned char fill = negative ? 0xFF : 0;
    while (n > 8 && p[n - 1] == fill && ((p[n - 2] & 0x80) != 0) == negative) n--;
    if (n > 8) return ckpt__pickle_other(k, 0);
    uint64_t u = ckpt__mem_le(p, (int)n);
    if (negative && n < 8) u |= ~(uint64_t)0 << (8 * n);
    return ckpt__pickle_node_new(k, CKPT__PICKLE_INT, 0, 0, u);
}

static uint32_t ckpt__pickle_take_float(ckpt__pickle *k) {
    const unsigned char *p = ckpt__pickle_take(k, 8);
    uint64_t bits = 0;
    for (int i = 0; p != NULL && i < 8; i++) bits = bits << 8 | p[i];
    return ckpt__pickle_node_new(k, CKPT__PICKLE_FLOAT, 0, 0, bits);
}

// Numbers in the memo never exceed the pickle's own length, so a hostile one cannot ask for memory.
static void ckpt__pickle_memo_put(ckpt__pickle *k, uint64_t i) {
    uint32_t node = ckpt__pickle_top(k);
    if (i >= k->size) (void)ckpt__pickle_fail(k, "a memo number is out of range");
    if (k->err == CKPT_OK)
        k->err = ckpt__mem_grow(&k->allocator, (void **)&k->memo, sizeof *k->memo, &k->memo_cap, (size_t)i + 1);
    if (k->err != CKPT_OK) return;
    k->memo[i] = node;
    k->memo_count++;
}

static uint32_t ckpt__pickle_memo_get(ckpt__pickle *k, uint64_t i) {
    if (k->err != CKPT_OK || i >= k->memo_cap || k->memo[i] == 0)
        return ckpt__pickle_fail(k, "it refers to a value that is not there");
    return k->memo[i];
}

// Drops the last mark and says where its items begin on the stack.
static size_t ckpt__pickle_unmark(ckpt__pickle *k) {
    if (k->err == CKPT_OK && k->mark_count == 0) (void)ckpt__pickle_fail(k, "a mark is missing");
    return k->err != CKPT_OK ? k->depth : k->marks[--k->mark_count];
}

static void ckpt__pickle_mark(ckpt__pickle *k) {
    if (k->err == CKPT_OK)
        k->err = ckpt__mem_grow(&k->allocator, (void **)&k->marks, sizeof *k->marks, &k->mark_cap, k->mark_count + 1);
    if (k->err == CKPT_OK) k->marks[k->mark_count++] = (uint32_t)k->depth;
}

// Moves the stack's items from `from` on into the list, set or dict just below them. Items of an opaque object are dropped.
static void ckpt__pickle_add_items(ckpt__pickle *k, size_t from, bool pairs) {
    if (k->err != CKPT_OK) return;
    size_t end = k->depth;
    k->depth = from;
    uint32_t to = ckpt__pickle_top(k);
    if (k->err != CKPT_OK || k->nodes[to].kind == CKPT__PICKLE_OTHER) return;
    if (k->nodes[to].kind != (pairs ? CKPT__PICKLE_DICT : CKPT__PICKLE_LIST) || (pairs && (end - from) % 2 != 0)) {
        (void)ckpt__pickle_fail(k, pairs ? "items are set in what is no dict" : "items are added to what is no list");
        return;
    }
    for (size_t i = from; i < end; i++) ckpt__pickle_append(k, to, k->stack[i]);
}

static void ckpt__pickle_make_tuple(ckpt__pickle *k, size_t from) {
    if (k->err != CKPT_OK) return;
    if (from < ckpt__pickle_floor(k)) { (void)ckpt__pickle_fail(k, "the stack is empty"); return; }
    uint32_t n = k->depth == from ? (uint32_t)CKPT__PICKLE_ID_EMPTY : ckpt__pickle_tuple(k, k->stack + from, k->depth - from);
    k->depth = from;
    ckpt__pickle_push(k, n);
}

// Opcodes that push one value without looking at the stack. Returns false for all others.
static bool ckpt__pickle_step_value(ckpt__pickle *k, unsigned op) {
    uint32_t n;
    switch (op) {
    case 'N':  n = CKPT__PICKLE_ID_NONE; break;
    case 0x88: n = CKPT__PICKLE_ID_TRUE; break;
    case 0x89: n = CKPT__PICKLE_ID_FALSE; break;
    case ')':  n = CKPT__PICKLE_ID_EMPTY; break;
    case ']':
    case 0x8f: n = ckpt__pickle_node_new(k, CKPT__PICKLE_LIST, 0, 0, 0); break;
    case '}':  n = ckpt__pickle_node_new(k, CKPT__PICKLE_DICT, 0, 0, 0); break;
    case 'K':  n = ckpt__pickle_int_node(k, (int64_t)ckpt__pickle_take_le(k, 1)); break;
    case 'M':  n = ckpt__pickle_int_node(k, (int64_t)ckpt__pickle_take_le(k, 2)); break;
    case 'J':  n = ckpt__pickle_int_node(k, (int64_t)(int32_t)(uint32_t)ckpt__pickle_take_le(k, 4)); break;
    case 0x8a: n = ckpt__pickle_take_long(k, 1); break;
    case 0x8b: n = ckpt__pickle_take_long(k, 4); break;
    case 'G':  n = ckpt__pickle_take_float(k); break;
    case 'X':  n = ckpt__pickle_take_text(k, CKPT__PICKLE_TEXT, 4); break;
    case 0x8c: n = ckpt__pickle_take_text(k, CKPT__PICKLE_TEXT, 1); break;
    case 0x8d: n = ckpt__pickle_take_text(k, CKPT__PICKLE_TEXT, 8); break;
    case 'U':  n = ckpt__pickle_take_text(k, CKPT__PICKLE_TEXT, 1); break;      // Python 2's str
    case 'T':  n = ckpt__pickle_take_text(k, CKPT__PICKLE_TEXT, 4); break;
    case 'C':  n = ckpt__pickle_take_text(k, CKPT__PICKLE_BYTES, 1); break;
    case 'B':  n = ckpt__pickle_take_text(k, CKPT__PICKLE_BYTES, 4); break;
    case 0x8e:
    case 0x96: n = ckpt__pickle_take_text(k, CKPT__PICKLE_BYTES, 8); break;
    case 'h':  n = ckpt__pickle_memo_get(k, ckpt__pickle_take_le(k, 1)); break;
    case 'j':  n = ckpt__pickle_memo_get(k, ckpt__pickle_take_le(k, 4)); break;
    case 'c': {
        uint32_t module = ckpt__pickle_take_line(k), name = ckpt__pickle_take_line(k);
        n = ckpt__pickle_global_node(k, module, name);
        break;
    }
    default: return false;
    }
    ckpt__pickle_push(k, n);
    return true;
}

// Opcodes that gather what lies on the stack. Returns false for all others.
static bool ckpt__pickle_step_stack(ckpt__pickle *k, unsigned op) {
    size_t short_from = k->depth - (op >= 0x85 && op <= 0x87 && k->depth >= op - 0x84 ? op - 0x84 : 0);
    switch (op) {
    case '(':  ckpt__pickle_mark(k); break;
    case '0':
        if (k->depth > ckpt__pickle_floor(k)) k->depth--;
        else if (k->mark_count > 0) k->mark_count--;            // POP takes a mark when no item lies above it
        else (void)ckpt__pickle_fail(k, "the stack is empty");
        break;
    case '1':  k->depth = ckpt__pickle_unmark(k); break;
    case '2':  ckpt__pickle_push(k, ckpt__pickle_top(k)); break;
    case 't':  ckpt__pickle_make_tuple(k, ckpt__pickle_unmark(k)); break;
    case 0x85:
    case 0x86:
    case 0x87:
        if (k->depth < op - 0x84) (void)ckpt__pickle_fail(k, "the stack is empty");
        ckpt__pickle_make_tuple(k, short_from);
        break;
    case 'a':
        (void)ckpt__pickle_top(k);
        if (k->err == CKPT_OK) ckpt__pickle_add_items(k, k->depth - 1, false);
        break;
    case 'e':
    case 0x90: ckpt__pickle_add_items(k, ckpt__pickle_unmark(k), false); break;
    case 's':
        if (k->depth < ckpt__pickle_floor(k) + 2) (void)ckpt__pickle_fail(k, "the stack is empty");
        else ckpt__pickle_add_items(k, k->depth - 2, true);
        break;
    case 'u':  ckpt__pickle_add_items(k, ckpt__pickle_unmark(k), true); break;
    case 'l':
    case 'd':
    case 0x91: {
        size_t from = ckpt__pickle_unmark(k), end = k->depth;
        uint32_t n = ckpt__pickle_node_new(k, op == 'd' ? CKPT__PICKLE_DICT : CKPT__PICKLE_LIST, 0, 0, 0);
        if (op == 'd' && (end - from) % 2 != 0) (void)ckpt__pickle_fail(k, "a dict has a key without a value");
        for (size_t i = from; i < end && k->err == CKPT_OK; i++) ckpt__pickle_append(k, n, k->stack[i]);
        k->depth = from;
        ckpt__pickle_push(k, n);
        break;
    }
    default: return false;
    }
    return true;
}

// Opcodes of the memo and of objects. Returns false for all others.
static bool ckpt__pickle_step_object(ckpt__pickle *k, unsigned op) {
    uint32_t args, func;
    switch (op) {
    case 'q':  ckpt__pickle_memo_put(k, ckpt__pickle_take_le(k, 1)); break;
    case 'r':  ckpt__pickle_memo_put(k, ckpt__pickle_take_le(k, 4)); break;
    case 0x94: ckpt__pickle_memo_put(k, k->memo_count); break;
    case 0x95: (void)ckpt__pickle_take_le(k, 8); break;         // FRAME: a hint for readers from a pipe
    case 0x80: {
        uint64_t version = ckpt__pickle_take_le(k, 1);
        if (version > 5) (void)ckpt__pickle_fail(k, "it is of a protocol newer than 5");
        break;
    }
    case 'Q':  ckpt__pickle_push(k, ckpt__pickle_persistent(k, ckpt__pickle_pop(k))); break;
    case 'R':
    case 0x81:
        args = ckpt__pickle_pop(k);
        func = ckpt__pickle_pop(k);
        ckpt__pickle_push(k, ckpt__pickle_apply(k, func, args));
        break;
    case 0x92:                                                  // NEWOBJ_EX: class, arguments, keyword arguments
        (void)ckpt__pickle_pop(k);
        (void)ckpt__pickle_pop(k);
        ckpt__pickle_push(k, ckpt__pickle_other(k, ckpt__pickle_pop(k)));
        break;
    case 'b':
        args = ckpt__pickle_pop(k);
        ckpt__pickle_build(k, ckpt__pickle_top(k), args);
        break;
    case 0x93:
        args = ckpt__pickle_pop(k);
        func = ckpt__pickle_pop(k);
        ckpt__pickle_push(k, ckpt__pickle_global_node(k, func, args));
        break;
    default: return false;
    }
    return true;
}

static ckpt_err ckpt__pickle_unknown(ckpt__pickle *k, unsigned op) {
    if (op != 0 && strchr("FILSVPgpio", (int)op) != NULL)
        k->err = ckpt__error_set(CKPT_UNSUPPORTED, "its pickle is of protocol 0 or 1 (opcode '%c'); save it again with "
                                 "protocol 2 or later", (char)op);
    else (void)ckpt__pickle_fail(k, "an opcode is unknown");
    return k->err;
}

// Reads a pickle; `bytes` must live as long as `k`. *root is the value's node. The caller frees `k`, also after a failure.
static ckpt_err ckpt__pickle_read(ckpt__pickle *k, const ckpt_allocator *a, const void *bytes, size_t size, uint32_t *root) {
    memset(k, 0, sizeof *k);
    if (a != NULL) k->allocator = *a;
    k->p = (const unsigned char *)bytes;
    k->size = size;
    *root = 0;
    if (size > CKPT__PICKLE_MAX_SIZE) return ckpt__error_set(CKPT_UNSUPPORTED, "its pickle is larger than 1 GiB");
    static const ckpt__pickle_kind first[] = { CKPT__PICKLE_OTHER, CKPT__PICKLE_NONE, CKPT__PICKLE_BOOL, CKPT__PICKLE_BOOL,
                                               CKPT__PICKLE_TUPLE };
    for (unsigned i = 0; i < 5; i++) (void)ckpt__pickle_node_new(k, first[i], 0, 0, i == CKPT__PICKLE_ID_TRUE);
    while (k->err == CKPT_OK) {
        const unsigned char *op = ckpt__pickle_take(k, 1);
        if (op == NULL) break;
        if (*op == '.') {
            *root = ckpt__pickle_pop(k);
            break;
        }
        if (!ckpt__pickle_step_value(k, *op) && !ckpt__pickle_step_stack(k, *op) && !ckpt__pickle_step_object(k, *op))
            (void)ckpt__pickle_unknown(k, *op);
    }
    return k->err;
}

//------------------------------------------------------------------------------
// >>pt         [I]  .pt: the stored zip of torch.save, written as a plan, read as a toc
//
// uses:    error memory platform text digest state plan pickle
// threads: whoever owns the object; nothing is shared
//
// The zip follows PKWARE's APPNOTE 6.3 as torch's writer uses it: entries stored, sizes and CRC-32
// behind the data (4.3.9, general purpose bit 3), an "FB" extra field whose length aligns the data.
// A file of our own carries two things more: an entry `<stem>/.ckpt` and an archive comment with the
// CRC-32 of all bytes that belong to no entry. Each demands the other, and the engine compares that sum
// whenever it verifies, so that no byte of the file can change unseen.
// Whatever a reader finds wrong with a file of our own is damage, never "unsupported".
//------------------------------------------------------------------------------

enum {
    CKPT__PT_LOCAL = 30, CKPT__PT_CENTRAL = 46, CKPT__PT_END = 22, CKPT__PT_END64 = 56, CKPT__PT_LOCATOR = 20,
    CKPT__PT_FLAGS = 0x0808,        // sizes behind the data; names are UTF-8
    CKPT__PT_BIG = 65536,           // data from this size on is aligned for O_DIRECT
    CKPT__PT_ALIGN_BIG = 4096, CKPT__PT_ALIGN = 64,
    CKPT__PT_MAX_STEM = 1024, CKPT__PT_MAX_GAP = 1000000,
    CKPT__PT_COMMENT = 21, CKPT__PT_HEX = 8,
    CKPT__PT_WINDOW = 262144, CKPT__PT_PEEK = 8192, CKPT__PT_DRAIN = 32768
};
static const uint32_t ckpt__pt_max32 = 0xFFFFFFFFu;
static const char ckpt__pt_comment[] = "ckpt 1 crc32 00000000";     // the digits are the sum, they themselves taken as '0'
static const char ckpt__pt_marker[] = "ckpt 1\n";

//-- writing: names as a tree ------------------------------------------------------

typedef struct ckpt__pt_node {
    const char *key;                // of its level, in the binding's name
    uint32_t    len, hash;
    int         parent, first, last, next, children;
    int         index;              // as a list item, -1: a dict key
    int         listed;             // children that are list items
    int         item;               // the binding; -1: a dict or a list
} ckpt__pt_node;

typedef struct ckpt__pt_tree {
    const ckpt_allocator  *allocator;
    const ckpt__binding   *items;
    ckpt__pt_node         *nodes;   // 0 is the root
    int                   *slots;   // node + 1, 0 empty
    size_t                 count, cap, slot_count;
    const char            *last;    // the name added before, and its inner levels: the next name mostly shares them
    int                    levels, path[CKPT__PICKLE_DEPTH + 1];
    size_t                 ends[CKPT__PICKLE_DEPTH + 1];
} ckpt__pt_tree;

static void ckpt__pt_tree_free(ckpt__pt_tree *t) {
    ckpt__mem_free(t->allocator, t->nodes, t->cap * sizeof *t->nodes);
    ckpt__mem_free(t->allocator, t->slots, t->slot_count * sizeof *t->slots);
}

static ckpt_err ckpt__pt_tree_rehash(ckpt__pt_tree *t) {
    size_t n = t->slot_count < 64 ? 64 : t->slot_count * 4;
    int *slots = (int *)ckpt__mem_alloc(t->allocator, n * sizeof *slots);
    if (slots == NULL) return CKPT_NOMEM;
    for (size_t i = 1; i < t->count; i++) {
        size_t at = t->nodes[i].hash & (n - 1);
        while (slots[at] != 0) at = (at + 1) & (n - 1);
        slots[at] = (int)i + 1;
    }
    ckpt__mem_free(t->allocator, t->slots, t->slot_count * sizeof *t->slots);
    t->slots = slots;
    t->slot_count = n;
    return CKPT_OK;
}

// The child of `parent` with that key: found, or made with *fresh set. -1: out of memory.
static int ckpt__pt_tree_child(ckpt__pt_tree *t, int parent, const char *key, size_t len, bool *fresh) {
    uint32_t h = 2166136261u ^ (uint32_t)parent * 2654435761u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)key[i]) * 16777619u;
    h ^= h >> 15;
    if (t->count * 2 >= t->slot_count && ckpt__pt_tree_rehash(t) != CKPT_OK) return -1;
    size_t mask = t->slot_count - 1, at = h & mask;
    for (; t->slots[at] != 0; at = (at + 1) & mask) {
        const ckpt__pt_node *n = &t->nodes[t->slots[at] - 1];
        if (n->hash == h && n->parent == parent && n->len == len && memcmp(n->key, key, len) == 0) return t->slots[at] - 1;
    }
    if (ckpt__mem_grow(t->allocator, (void **)&t->nodes, sizeof *t->nodes, &t->cap, t->count + 1) != CKPT_OK) return -1;
    int made = (int)t->count++;
    ckpt__pt_node *n = &t->nodes[made], *up = &t->nodes[parent];
    n->key = key;
    n->len = (uint32_t)len;
    n->hash = h;
    n->parent = parent;
    n->first = n->last = n->next = n->item = -1;
    n->index = ckpt__state_list_index(key, len);
    if (up->first < 0) up->first = made;
    else t->nodes[up->last].next = made;
    up->last = made;
    up->children++;
    if (n->index >= 0) up->listed++;
    t->slots[at] = made + 1;
    *fresh = true;
    return made;
}

// The name of some binding at or below a node, for sentences.
static const char *ckpt__pt_tree_name(const ckpt__pt_tree *t, int node) {
    while (t->nodes[node].item < 0 && t->nodes[node].first >= 0) node = t->nodes[node].first;
    return t->nodes[node].item >= 0 ? t->items[t->nodes[node].item].name : "";
}

static ckpt_err ckpt__pt_tree_conflict(const ckpt__pt_tree *t, int node, const char *name) {
    const char *other = ckpt__pt_tree_name(t, node);
    if (strcmp(other, name) == 0) return ckpt__error_set(CKPT_ARG, "the name '%s' is bound twice", name);
    return ckpt__error_set(CKPT_ARG, "'%s' and '%s' cannot both be bound: one of them would be a value and a dict at once",
                           other, name);
}

static ckpt_err ckpt__pt_tree_add(ckpt__pt_tree *t, int item) {
    const char *name = t->items[item].name;
    int at = 0, level = 0;
    size_t from = 0;
    while (level < t->levels && strncmp(name + from, t->last + from, t->ends[level] - from + 1) == 0) {
        at = t->path[level];
        from = t->ends[level++] + 1;
    }
    t->last = name;
    for (t->levels = level; ; t->levels++) {
        bool fresh = false;
        size_t len = strcspn(name + from, "/");
        bool inner = name[from + len] == '/';
        at = ckpt__pt_tree_child(t, at, name + from, len, &fresh);
        if (at < 0) return CKPT_NOMEM;
        if (!fresh && (!inner || t->nodes[at].item >= 0)) return ckpt__pt_tree_conflict(t, at, name);
        if (!inner) break;
        if (t->levels >= CKPT__PICKLE_DEPTH - 1)
            return ckpt__error_set(CKPT_ARG, "the name '%s' has more than %d levels", name, (int)CKPT__PICKLE_DEPTH - 1);
        t->path[t->levels] = at;
        t->ends[t->levels] = from + len;
        from += len + 1;
    }
    t->nodes[at].item = item;
    return CKPT_OK;
}

typedef struct ckpt__pt_place { int index, node; } ckpt__pt_place;

static int ckpt__pt_place_order(const void *a, const void *b) {
    const ckpt__pt_place *x = (const ckpt__pt_place *)a, *y = (const ckpt__pt_place *)b;
    return x->index < y->index ? -1 : x->index > y->index;
}

// Puts the items of a list into the order of their indices: they may have been bound in any.
static ckpt_err ckpt__pt_tree_sort(ckpt__pt_tree *t, ckpt__pt_node *list) {
    bool sorted = true;
    for (int c = list->first; t->nodes[c].next >= 0; c = t->nodes[c].next) {
        if (t->nodes[c].index > t->nodes[t->nodes[c].next].index) sorted = false;
    }
    if (sorted) return CKPT_OK;
    size_t n = 0, size = (size_t)list->children * sizeof(ckpt__pt_place);
    ckpt__pt_place *places = (ckpt__pt_place *)ckpt__mem_alloc(t->allocator, size);
    if (places == NULL) return CKPT_NOMEM;
    for (int c = list->first; c >= 0; c = t->nodes[c].next, n++) {
        places[n].index = t->nodes[c].index;
        places[n].node = c;
    }
    qsort(places, n, sizeof *places, ckpt__pt_place_order);
    for (size_t i = 0; i < n; i++) t->nodes[places[i].node].next = i + 1 < n ? places[i + 1].node : -1;
    list->first = places[0].node;
    list->last = places[n - 1].node;
    ckpt__mem_free(t->allocator, places, size);
    return CKPT_OK;
}

static ckpt_err ckpt__pt_tree_check(ckpt__pt_tree *t, ckpt__pt_node *n) {
    if (n->listed == 0) return CKPT_OK;
    if (n->listed != n->children) {
        int item = -1, key = -1;
        for (int c = n->first; c >= 0; c = t->nodes[c].next) *(t->nodes[c].index >= 0 ? &item : &key) = c;
        return ckpt__error_set(CKPT_ARG, "'%s' and '%s' cannot both be bound: the same level would be a list and a dict",
                               ckpt__pt_tree_name(t, item), ckpt__pt_tree_name(t, key));
    }
    ckpt_err e = ckpt__pt_tree_sort(t, n);
    if (e == CKPT_OK && t->nodes[n->last].index - n->children > CKPT__PT_MAX_GAP)
        return ckpt__error_set(CKPT_ARG, "'%s' leaves too many items of its list unbound", ckpt__pt_tree_name(t, n->last));
    return e;
}

// Makes the tree of all names, in the order of their first appearance. Attached files are not the zip's business.
static ckpt_err ckpt__pt_tree_make(ckpt__pt_tree *t, const ckpt_allocator *a, const ckpt__binding *items, size_t count) {
    memset(t, 0, sizeof *t);
    t->allocator = a;
    t->items = items;
    size_t slots = 64;
    while (slots < count * 2 + count / 2) slots *= 2;
    t->slots = (int *)ckpt__mem_alloc(a, slots * sizeof *t->slots);
    if (t->slots == NULL) return CKPT_NOMEM;
    t->slot_count = slots;
    if (count > INT_MAX / 4) return ckpt__error_set(CKPT_ARG, "too many names are bound");
    if (ckpt__mem_grow(a, (void **)&t->nodes, sizeof *t->nodes, &t->cap, count + 64) != CKPT_OK) return CKPT_NOMEM;
    t->count = 1;
    t->nodes[0].parent = t->nodes[0].first = t->nodes[0].last = t->nodes[0].next = t->nodes[0].index = t->nodes[0].item = -1;
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; e == CKPT_OK && i < count; i++) if (items[i].kind != CKPT_KIND_FILE) e = ckpt__pt_tree_add(t, (int)i);
    for (size_t i = 0; e == CKPT_OK && i < t->count; i++) e = ckpt__pt_tree_check(t, &t->nodes[i]);
    return e;
}

//-- writing: the pickle -----------------------------------------------------------

// The name of a storage: its number. Bytes are stored as a uint8 tensor, because torch.load(weights_only=True) knew no other
// form before 2.4 (_codecs.encode is not in its list); the letter tells our own reader.
static void ckpt__pt_key(char out[24], size_t n, ckpt_kind kind) {
    char digits[24];
    int len = 0, at = 0;
    do { digits[len++] = (char)('0' + (int)(n % 10)); n /= 10; } while (n > 0);
    while (len > 0) out[at++] = digits[--len];
    if (kind == CKPT_KIND_BYTES) out[at++] = 'b';
    if (kind == CKPT_KIND_FLOAT) out[at++] = 'f';
    out[at] = 0;
}

// Is it one of the clocks that every saver writes? Those are float64 tensors of no dimension, not Python floats: the list of
// weights_only=True had none of the latter before 2.0, and a checkpoint should not be unreadable for its clocks alone.
static bool ckpt__pt_is_clock(const ckpt__binding *it) {
    return it->kind == CKPT_KIND_FLOAT && ckpt__txt_starts(it->name, "state/timestamp/");
}

static ckpt_err ckpt__pt_text(ckpt__pickle_writer *w, const ckpt__binding *it) {
    const char *text = (const char *)it->data;
    const char *end = (const char *)memchr(text, 0, it->size);
    if (end == NULL) return ckpt__error_set(CKPT_ARG, "the text '%s' has no end within its %zu bytes", it->name, it->size);
    size_t len = (size_t)(end - text);
    if (!ckpt__txt_utf8(text, len))
        return ckpt__error_set(CKPT_ARG, "the text '%s' is not valid UTF-8 (bind it as bytes)", it->name);
    if (len > INT32_MAX) return ckpt__error_set(CKPT_ARG, "the text '%s' is longer than 2 GiB", it->name);
    ckpt__pickle_text(w, text, len);
    return CKPT_OK;
}

static ckpt_err ckpt__pt_value(ckpt__pickle_writer *w, const ckpt__binding *it, size_t *stored) {
    char key[24];
    int64_t size = (int64_t)it->size;
    bool clock = ckpt__pt_is_clock(it);
    if (it->kind == CKPT_KIND_TENSOR || it->kind == CKPT_KIND_BYTES || clock) ckpt__pt_key(key, (*stored)++, it->kind);
    if (clock) {
        ckpt__pickle_tensor(w, CKPT_F64, 0, &size, key);
        return CKPT_OK;
    }
    switch (it->kind) {
    case CKPT_KIND_TENSOR: ckpt__pickle_tensor(w, it->tensor.dtype, it->tensor.ndim, it->tensor.shape, key); return CKPT_OK;
    case CKPT_KIND_BYTES:  ckpt__pickle_tensor(w, CKPT_U8, 1, &size, key); return CKPT_OK;
    case CKPT_KIND_INT:    ckpt__pickle_int(w, *(const int64_t *)it->data); return CKPT_OK;
    case CKPT_KIND_FLOAT:  ckpt__pickle_float(w, *(const double *)it->data); return CKPT_OK;
    case CKPT_KIND_BOOL:   ckpt__pickle_op(w, *(const bool *)it->data ? '\x88' : '\x89'); return CKPT_OK;
    case CKPT_KIND_TEXT:   return ckpt__pt_text(w, it);
    default:               return ckpt__error_set(CKPT_ARG, "'%s' is of a kind that a .pt cannot hold", it->name);
    }
}

// Moves what was pickled so far into the plan.
static ckpt_err ckpt__pt_drain(ckpt__pickle_writer *w, ckpt__plan *p, int blob) {
    if (w->out.err != CKPT_OK) return w->out.err;
    ckpt__plan_bytes(p, w->out.data, w->out.len, blob);
    w->out.len = 0;
    return p->err;
}

// Writes the tree without recursion. `order` receives the bindings that have a storage, in the order of their numbers.
static ckpt_err ckpt__pt_pickle(ckpt__pickle_writer *w, const ckpt__pt_tree *t, int *order, size_t *stored, ckpt__plan *p,
                                int blob) {
    int at = 0, next = t->nodes[0].first, filled = 0;
    ckpt_err e = CKPT_OK;
    ckpt__pickle_op(w, t->nodes[0].listed > 0 ? ']' : '}');
    if (next >= 0) ckpt__pickle_op(w, '(');
    while (e == CKPT_OK && t->nodes[0].first >= 0) {
        const ckpt__pt_node *up = &t->nodes[at];
        if (next < 0) {
            ckpt__pickle_op(w, up->listed > 0 ? 'e' : 'u');
            if (at == 0) break;
            next = up->next;
            filled = up->index + 1;
            at = up->parent;
            continue;
        }
        const ckpt__pt_node *n = &t->nodes[next];
        if (up->listed > 0) for (; filled < n->index; filled++) ckpt__pickle_op(w, 'N');    // left out by an ignore glob
        else ckpt__pickle_text(w, n->key, n->len);
        filled = n->index + 1;
        if (n->item >= 0) {
            ckpt_kind kind = t->items[n->item].kind;
            if (kind == CKPT_KIND_TENSOR) order[*stored] = n->item;
            if (kind == CKPT_KIND_BYTES || ckpt__pt_is_clock(&t->items[n->item])) order[*stored] = -1 - n->item;
            e = ckpt__pt_value(w, &t->items[n->item], stored);
            if (e == CKPT_OK && w->out.len >= CKPT__PT_DRAIN) e = ckpt__pt_drain(w, p, blob);
            next = n->next;
        } else {
            ckpt__buf_add(&w->out, n->listed > 0 ? "](" : "}(", 2);
            at = next;
            next = n->first;
            filled = 0;
        }
    }
    ckpt__pickle_op(w, '.');
    return e != CKPT_OK ? e : ckpt__pt_drain(w, p, blob);
}

//-- writing: the zip --------------------------------------------------------------

static const char *const ckpt__pt_records[] = { "data.pkl", "byteorder", "version", ".ckpt" };

typedef struct ckpt__pt_writer {
    ckpt__plan          *plan;
    const ckpt__binding *items;
    const int           *order;     // of the bindings that have a storage; -1 - binding for bytes and clocks
    size_t               stored;
    uint64_t             base;      // where the zip begins in the file
    size_t               seg_first, stem_len;
    int                  blob_first, blob;      // blob: of the entry whose sum is still to come, -1: none
    ckpt__buf            name;      // "<stem>/" and what follows
    ckpt__buf            head;
} ckpt__pt_writer;

static void ckpt__pt_put(char *p, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (char)(v >> (8 * i) & 255);
}

// Makes the name of entry `i`: torch's records stand around the storages. The tensors' bindings are not looked at, which would
// take most of the directory's time.
static void ckpt__pt_name(ckpt__pt_writer *w, size_t i) {
    char key[24];
    bool storage = i >= 2 && i < w->stored + 2;
    w->name.len = w->stem_len;
    if (storage) ckpt__pt_key(key, i - 2, w->order[i - 2] < 0 ? w->items[-1 - w->order[i - 2]].kind : CKPT_KIND_TENSOR);
    if (storage) ckpt__buf_add(&w->name, "data/", 5);
    ckpt__buf_text(&w->name, storage ? key : ckpt__pt_records[i < 2 ? i : i - w->stored]);
}

// The data descriptor (APPNOTE 4.3.9) of an entry; its sum is a fixup. Returns its length: the sizes of big entries are wider.
static size_t ckpt__pt_descriptor(char d[24], uint64_t size) {
    int wide = size >= ckpt__pt_max32 ? 8 : 4;
    ckpt__pt_put(d, 0x08074B50u, 4);
    ckpt__pt_put(d + 4, 0, 4);
    ckpt__pt_put(d + 8, size, wide);
    ckpt__pt_put(d + 8 + wide, size, wide);
    return (size_t)(8 + 2 * wide);
}

// Begins the bytes between two entries with the descriptor of the one before.
static void ckpt__pt_close(ckpt__pt_writer *w) {
    char d[24];
    w->head.len = 0;
    if (w->blob >= 0 && w->plan->err == CKPT_OK) ckpt__buf_add(&w->head, d, ckpt__pt_descriptor(d, w->plan->blobs[w->blob].size));
}

static void ckpt__pt_flush(ckpt__pt_writer *w) {
    ckpt__plan *p = w->plan;
    if (p->err == CKPT_OK) p->err = w->head.err != CKPT_OK ? w->head.err : w->name.err;
    if (p->err != CKPT_OK) return;
    if (w->blob < 0) {
        // A segment of its own, for what lies before the zip is not in its sum.
        (void)ckpt__plan_late_bytes(p, w->head.data, w->head.len, CKPT__LATE_NO);
    } else {
        size_t at = ckpt__plan_late_bytes(p, w->head.data, w->head.len, CKPT__LATE_BLOBS);
        ckpt__plan_fixup(p, at + 4, w->blob, false, 0);
    }
    w->blob = -1;
}

// Opens entry `i` and returns its blob, to which the caller gives `size` bytes. -1 after a failure.
static int ckpt__pt_open(ckpt__pt_writer *w, size_t i, const char *blob_name, uint64_t size) {
    ckpt__plan *p = w->plan;
    char h[CKPT__PT_LOCAL + 20] = { 0 }, pad[4];
    bool wide = size >= ckpt__pt_max32;
    uint64_t align = size >= CKPT__PT_BIG ? CKPT__PT_ALIGN_BIG : CKPT__PT_ALIGN;
    ckpt__pt_name(w, i);
    ckpt__pt_close(w);
    uint64_t at = p->size + w->head.len, fixed = CKPT__PT_LOCAL + w->name.len + (wide ? 20u : 0u) + sizeof pad;
    size_t fill = (size_t)((align - (at + fixed) % align) % align);
    ckpt__pt_put(h, 0x04034B50u, 4);
    ckpt__pt_put(h + 4, wide ? 45 : 20, 2);
    ckpt__pt_put(h + 6, CKPT__PT_FLAGS, 2);
    ckpt__pt_put(h + 12, 0x21, 2);
    ckpt__pt_put(h + 18, wide ? ckpt__pt_max32 : 0, 4);
    ckpt__pt_put(h + 22, wide ? ckpt__pt_max32 : 0, 4);
    ckpt__pt_put(h + 26, w->name.len, 2);
    ckpt__pt_put(h + 28, (wide ? 20u : 0u) + sizeof pad + fill, 2);
    ckpt__pt_put(h + CKPT__PT_LOCAL, 1, 2);             // zip64 (4.5.3), which makes the sizes of the descriptor 8 bytes wide
    ckpt__pt_put(h + CKPT__PT_LOCAL + 2, 16, 2);
    ckpt__pt_put(h + CKPT__PT_LOCAL + 4, size, 8);
    ckpt__pt_put(h + CKPT__PT_LOCAL + 12, size, 8);
    ckpt__pt_put(pad, 0x4246, 2);
    ckpt__pt_put(pad + 2, fill, 2);
    ckpt__buf_add(&w->head, h, CKPT__PT_LOCAL);
    ckpt__buf_add(&w->head, w->name.data, w->name.len);
    if (wide) ckpt__buf_add(&w->head, h + CKPT__PT_LOCAL, 20);
    ckpt__buf_add(&w->head, pad, sizeof pad);
    ckpt__buf_fill(&w->head, 'Z', fill);
    ckpt__pt_flush(w);
    w->blob = ckpt__plan_blob(p, blob_name);
    return w->blob;
}

static void ckpt__pt_record(ckpt__pt_writer *w, size_t i, const char *bytes, size_t size) {
    int blob = ckpt__pt_open(w, i, ckpt__pt_records[i < 2 ? i : i - w->stored], size);
    if (blob >= 0) ckpt__plan_bytes(w->plan, bytes, size, blob);
}

static void ckpt__pt_data(ckpt__pt_writer *w, size_t i) {
    const ckpt__binding *it = &w->items[w->order[i] < 0 ? -1 - w->order[i] : w->order[i]];
    bool tensor = it->kind == CKPT_KIND_TENSOR;
    int blob = ckpt__pt_open(w, i + 2, it->name, it->size);
    if (blob < 0) return;
    ckpt__seg_kind kind = tensor && it->tensor.device ? CKPT__SEG_DEVICE : CKPT__SEG_DATA;
    if (!tensor && it->size <= CKPT__PLAN_CAPTURE) ckpt__plan_bytes(w->plan, it->data, it->size, blob);
    else ckpt__plan_data(w->plan, kind, tensor ? it->tensor.data : it->data, it->size, blob);
}

// A header of the directory (4.3.12).
static void ckpt__pt_central(ckpt__pt_writer *w, uint64_t size, uint64_t offset) {
    char c[CKPT__PT_CENTRAL] = { 0 }, extra[28];
    size_t n = 0;
    if (size >= ckpt__pt_max32) {
        ckpt__pt_put(extra + 4, size, 8);
        ckpt__pt_put(extra + 12, size, 8);
        n = 16;
    }
    if (offset >= ckpt__pt_max32) {
        ckpt__pt_put(extra + 4 + n, offset, 8);
        n += 8;
    }
    ckpt__pt_put(extra, 1, 2);
    ckpt__pt_put(extra + 2, n, 2);
    ckpt__pt_put(c, 0x02014B50u, 4);
    ckpt__pt_put(c + 4, 45, 2);
    ckpt__pt_put(c + 6, n > 0 ? 45 : 20, 2);
    ckpt__pt_put(c + 8, CKPT__PT_FLAGS, 2);
    ckpt__pt_put(c + 14, 0x21, 2);                      // 1980-01-01: the same state gives the same bytes
    ckpt__pt_put(c + 20, size >= ckpt__pt_max32 ? ckpt__pt_max32 : size, 4);
    ckpt__pt_put(c + 24, size >= ckpt__pt_max32 ? ckpt__pt_max32 : size, 4);
    ckpt__pt_put(c + 28, w->name.len, 2);
    ckpt__pt_put(c + 30, n > 0 ? n + 4 : 0, 2);
    ckpt__pt_put(c + 42, offset >= ckpt__pt_max32 ? ckpt__pt_max32 : offset, 4);
    ckpt__buf_add(&w->head, c, sizeof c);
    ckpt__buf_add(&w->head, w->name.data, w->name.len);
    if (n > 0) ckpt__buf_add(&w->head, extra, n + 4);
}

// Adds a piece of the directory to the plan, with the fixups of the entries from `first` on.
static void ckpt__pt_piece(ckpt__pt_writer *w, int first) {
    ckpt__plan *p = w->plan;
    if (p->err == CKPT_OK) p->err = w->head.err != CKPT_OK ? w->head.err : w->name.err;
    if (p->err != CKPT_OK) return;
    size_t at = ckpt__plan_late_bytes(p, w->head.data, w->head.len, CKPT__LATE_BLOBS), off = 0;
    for (int b = first; p->err == CKPT_OK && off < w->head.len; b++) {
        const char *c = w->head.data + off;
        ckpt__plan_fixup(p, at + off + 16, b, false, 0);
        off += CKPT__PT_CENTRAL + (size_t)ckpt__mem_le(c + 28, 2) + (size_t)ckpt__mem_le(c + 30, 2);
    }
    w->head.len = 0;
}

// The directory in pieces: an entry begins where the one before ended, so nothing had to be kept for it.
static void ckpt__pt_directory(ckpt__pt_writer *w, uint64_t *at, uint64_t *size) {
    ckpt__plan *p = w->plan;
    char d[24];
    int first = w->blob_first;
    uint64_t begin = 0;
    ckpt__pt_close(w);
    ckpt__pt_flush(w);
    w->head.len = 0;
    *at = p->size - w->base;
    for (int b = first; p->err == CKPT_OK && b < (int)p->blob_count; b++) {
        const ckpt__blob *e = &p->blobs[b];
        ckpt__pt_name(w, (size_t)(b - w->blob_first));
        ckpt__pt_central(w, e->size, begin);
        begin = e->offset - w->base + e->size + ckpt__pt_descriptor(d, e->size);
        if (w->head.len < CKPT__PT_DRAIN && b + 1 < (int)p->blob_count) continue;
        ckpt__pt_piece(w, first);
        first = b + 1;
    }
    *size = p->size - w->base - *at;
}

// The zip64 end (4.3.14, 4.3.15), always, as torch does; the end record (4.3.16) and the comment with the sum of the structure,
// whose digits end the file.
static void ckpt__pt_end(ckpt__pt_writer *w) {
    uint64_t at, size, count = w->stored + 4;
    char e[CKPT__PT_END64 + CKPT__PT_LOCATOR + CKPT__PT_END + CKPT__PT_COMMENT] = { 0 }, *z = e;
    ckpt__pt_directory(w, &at, &size);
    ckpt__pt_put(z, 0x06064B50u, 4);
    ckpt__pt_put(z + 4, CKPT__PT_END64 - 12, 8);
    ckpt__pt_put(z + 12, 45, 2);
    ckpt__pt_put(z + 14, 45, 2);
    ckpt__pt_put(z + 24, count, 8);
    ckpt__pt_put(z + 32, count, 8);
    ckpt__pt_put(z + 40, size, 8);
    ckpt__pt_put(z + 48, at, 8);
    z += CKPT__PT_END64;
    ckpt__pt_put(z, 0x07064B50u, 4);
    ckpt__pt_put(z + 8, at + size, 8);
    ckpt__pt_put(z + 16, 1, 4);
    z += CKPT__PT_LOCATOR;
    ckpt__pt_put(z, 0x06054B50u, 4);
    ckpt__pt_put(z + 8, count < 0xFFFF ? count : 0xFFFF, 2);
    ckpt__pt_put(z + 10, count < 0xFFFF ? count : 0xFFFF, 2);
    ckpt__pt_put(z + 12, size < ckpt__pt_max32 ? size : ckpt__pt_max32, 4);
    ckpt__pt_put(z + 16, at < ckpt__pt_max32 ? at : ckpt__pt_max32, 4);
    ckpt__pt_put(z + 20, CKPT__PT_COMMENT, 2);
    memcpy(z + CKPT__PT_END, ckpt__pt_comment, CKPT__PT_COMMENT);
    size_t from = ckpt__plan_late_bytes(w->plan, e, sizeof e, CKPT__LATE_ALL);
    ckpt__plan_fixup(w->plan, from + sizeof e - CKPT__PT_HEX, CKPT__FIXUP_STRUCTURE, true, w->seg_first);
}

static ckpt_err ckpt__pt_entries(ckpt__pt_writer *w, const ckpt__pt_tree *tree, ckpt__pickle_writer *pickle, int *order) {
    const char *endian = ckpt__pickle_byteorder();
    int blob = ckpt__pt_open(w, 0, ckpt__pt_records[0], 0);
    ckpt_err e = blob < 0 ? w->plan->err : ckpt__pt_pickle(pickle, tree, order, &w->stored, w->plan, blob);
    if (e != CKPT_OK) return e;
    if (w->plan->blobs[blob].size > CKPT__PICKLE_MAX_SIZE)
        return ckpt__error_set(CKPT_ARG, "the names and texts are larger than 1 GiB");
    ckpt__pt_record(w, 1, endian, strlen(endian));
    for (size_t i = 0; i < w->stored; i++) ckpt__pt_data(w, i);
    ckpt__pt_record(w, w->stored + 2, "3\n", 2);
    ckpt__pt_record(w, w->stored + 3, ckpt__pt_marker, sizeof ckpt__pt_marker - 1);
    ckpt__pt_end(w);
    return w->plan->err;
}

// Two segments, a blob and two fixups for each entry: room for them at once spares copying them as they grow.
static ckpt_err ckpt__pt_room(ckpt__plan *p, size_t entries) {
    const ckpt_allocator *a = &p->allocator;
    ckpt_err e = ckpt__mem_grow(a, (void **)&p->segs, sizeof *p->segs, &p->seg_cap, p->seg_count + 2 * entries);
    if (e == CKPT_OK) e = ckpt__mem_grow(a, (void **)&p->fixups, sizeof *p->fixups, &p->fixup_cap, p->fixup_count + 2 * entries);
    return e == CKPT_OK ? ckpt__mem_grow(a, (void **)&p->blobs, sizeof *p->blobs, &p->blob_cap, p->blob_count + entries) : e;
}

// Plans a .pt at the plan's current end. Attached files (kind FILE) are passed over: they are members of a tar.
static ckpt_err ckpt__pt_plan(ckpt__plan *p, const ckpt__binding *items, size_t count, const char *stem) {
    const ckpt_allocator *a = &p->allocator;
    ckpt__pt_tree tree;
    ckpt__pickle_writer pickle;
    ckpt__pt_writer w;
    if (p->err != CKPT_OK) return p->err;
    if (stem == NULL || *stem == 0 || !ckpt__txt_utf8(stem, strlen(stem)) || strlen(stem) > CKPT__PT_MAX_STEM) stem = "archive";
    int *order = (int *)ckpt__mem_alloc(a, (count + 1) * sizeof *order);
    memset(&w, 0, sizeof w);
    w.plan = p;
    w.items = items;
    w.order = order;
    w.base = p->size;
    w.seg_first = p->seg_count;
    w.blob_first = (int)p->blob_count;
    w.blob = -1;
    ckpt__buf_init(&w.name, a);
    ckpt__buf_init(&w.head, a);
    ckpt__buf_fmt(&w.name, "%s/", stem);
    w.stem_len = w.name.len;
    ckpt__pickle_begin(&pickle, a);
    ckpt_err e = ckpt__pt_tree_make(&tree, a, items, count);
    if (e == CKPT_OK && order == NULL) e = CKPT_NOMEM;
    if (e == CKPT_OK) e = ckpt__pt_room(p, count + 8);
    if (e == CKPT_OK) e = ckpt__pt_entries(&w, &tree, &pickle, order);
    if (p->err == CKPT_OK) p->err = e;
    ckpt__mem_free(a, order, (count + 1) * sizeof *order);
    ckpt__pt_tree_free(&tree);
    ckpt__buf_free(&pickle.out);
    ckpt__buf_free(&w.name);
    ckpt__buf_free(&w.head);
    return p->err;
}

//-- reading: the zip --------------------------------------------------------------

typedef struct ckpt__pt_member {
    const char *name;               // in the directory's bytes, `name_len` of them
    size_t      name_len;
    uint32_t    crc;
    unsigned    method;             // 0: stored
    uint64_t    header, data, size; // from the start of the zip
    int         entry;              // the first toc entry that lies in it, -1: none
} ckpt__pt_member;

typedef struct ckpt__pt_reader {
    ckpt__toc           *toc;
    const ckpt__source  *src;
    ckpt__buf            dir, name; // the directory's bytes; a name being looked up
    ckpt__pt_member     *members;   // in order of their place
    size_t               count, cap;
    int                 *slots;     // names: member + 1, 0 empty
    size_t               slot_count;
    uint64_t             dir_at, dir_size, dir_count;
    char                *window;    // bytes of the file from window_at on
    uint64_t             window_at;
    size_t               window_len;
    bool                 commented; // the archive comment is ours, with the sum `sum`
    bool                 other_order; // its own words say that its numbers are not in this machine's byte order
    uint32_t             sum;
    const char          *stem;
    size_t               stem_len;
    // the tree that becomes entries
    ckpt__pickle         pickle;
    ckpt__buf            bytes, path;
    uint64_t             lists;     // as in ckpt__entry, of `path`
    uint64_t             text_left; // what names and texts may still take
    size_t               entries_max;
} ckpt__pt_reader;

static ckpt_err ckpt__pt_damaged(const char *what) {
    return ckpt__error_set(CKPT_CORRUPT, "its zip structure is damaged: %s", what);
}

// Reads exactly `size` bytes at `at`, both from the file: they are checked here.
static ckpt_err ckpt__pt_pread(ckpt__pt_reader *r, void *dst, size_t size, uint64_t at) {
    size_t got = 0;
    if (at > r->src->size || size > r->src->size - at) return ckpt__pt_damaged("it refers to bytes behind the end of the file");
    ckpt_err e = ckpt__os_pread(r->src->fd, dst, size, r->src->base + at, &got, r->src->path);
    if (e == CKPT_OK && got < size) return ckpt__error_set(CKPT_CORRUPT, "the file became shorter while it was read");
    return e;
}

// Bytes [at, at + size) through a window, so that headers that lie close together cost one read. `ahead`: how much to read.
static ckpt_err ckpt__pt_look(ckpt__pt_reader *r, uint64_t at, size_t size, size_t ahead, const char **p) {
    if (r->window == NULL) {
        r->window = (char *)ckpt__mem_resize(&r->toc->allocator, NULL, 0, CKPT__PT_WINDOW);
        if (r->window == NULL) return CKPT_NOMEM;
    }
    if (at < r->window_at || at - r->window_at > r->window_len || size > r->window_len - (size_t)(at - r->window_at)) {
        if (at > r->src->size || size > r->src->size - at) return ckpt__pt_damaged("an entry lies behind the end of the file");
        if (ahead < size) ahead = size;
        if (ahead > r->src->size - at) ahead = (size_t)(r->src->size - at);
        r->window_len = 0;
        ckpt_err e = ckpt__pt_pread(r, r->window, ahead, at);
        if (e != CKPT_OK) return e;
        r->window_at = at;
        r->window_len = ahead;
    }
    *p = r->window + (at - r->window_at);
    return CKPT_OK;
}

// What a file without a zip's end is: a shortened zip, or one of the forms that torch wrote before 1.6.
static ckpt_err ckpt__pt_no_zip(ckpt__pt_reader *r) {
    // torch/serialization.py, MAGIC_NUMBER
    static const char pickled[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    char head[512] = { 0 };
    size_t n = r->src->size < sizeof head ? (size_t)r->src->size : sizeof head;
    ckpt_err e = ckpt__pt_pread(r, head, n, 0);
    if (e != CKPT_OK) return e;
    if (n == 0) return ckpt__error_set(CKPT_CORRUPT, "the file is empty");
    bool legacy = n >= sizeof pickled - 1 && memcmp(head, pickled, sizeof pickled - 1) == 0;
    if (legacy || (n == sizeof head && memcmp(head + 257, "ustar", 5) == 0))
        return ckpt__error_set(CKPT_UNSUPPORTED, "it is of the form that torch wrote before 1.6; convert it with python3 -c "
                               "\"import torch; torch.save(torch.load('old.pt', map_location='cpu'), 'new.pt')\"");
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return ckpt__error_set(CKPT_CORRUPT, "it ends early: the directory at the end of the zip is missing");
    return ckpt__error_set(CKPT_CORRUPT, "it is no zip file, as torch.save writes: the directory at its end is missing");
}

static bool ckpt__pt_hex(const char *p, uint32_t *out) {
    uint32_t v = 0;
    for (int i = 0; i < CKPT__PT_HEX; i++) {
        const char *digits = "0123456789abcdef", *at = p[i] != 0 ? strchr(digits, p[i]) : NULL;
        if (at == NULL) return false;
        v = v << 4 | (uint32_t)(at - digits);
    }
    *out = v;
    return true;
}

// The zip64 end (4.3.14), found through its locator. It must agree with the end record wherever that one is not saturated.
static ckpt_err ckpt__pt_end64(ckpt__pt_reader *r, const char *end, uint64_t end_at) {
    char loc[CKPT__PT_LOCATOR], z[CKPT__PT_END64];
    r->dir_count = ckpt__mem_le(end + 10, 2);
    r->dir_size = ckpt__mem_le(end + 12, 4);
    r->dir_at = ckpt__mem_le(end + 16, 4);
    bool one_disk = ckpt__mem_le(end + 4, 4) == 0 && ckpt__mem_le(end + 8, 2) == r->dir_count;
    uint64_t limit = end_at;
    if (end_at >= sizeof loc) {
        ckpt_err e = ckpt__pt_pread(r, loc, sizeof loc, end_at - sizeof loc);
        if (e != CKPT_OK) return e;
    }
    if (end_at >= sizeof loc && memcmp(loc, "PK\6\7", 4) == 0) {
        uint64_t at = ckpt__mem_le(loc + 8, 8);
        if (at > end_at - sizeof loc || sizeof z > end_at - sizeof loc - at)
            return ckpt__pt_damaged("the zip64 locator points nowhere");
        ckpt_err e = ckpt__pt_pread(r, z, sizeof z, at);
        if (e != CKPT_OK) return e;
        if (memcmp(z, "PK\6\6", 4) != 0 || ckpt__mem_le(z + 4, 8) != end_at - sizeof loc - at - 12)
            return ckpt__pt_damaged("the zip64 end is not where its locator says");
        uint64_t count = ckpt__mem_le(z + 32, 8), size = ckpt__mem_le(z + 40, 8), dir = ckpt__mem_le(z + 48, 8);
        bool agree = (r->dir_count == 0xFFFF || r->dir_count == count) &&
            (r->dir_size == ckpt__pt_max32 || r->dir_size == size) &&
                     (r->dir_at == ckpt__pt_max32 || r->dir_at == dir) && ckpt__mem_le(z + 24, 8) == count;
        if (!agree) return ckpt__pt_damaged("its two end records disagree");
        one_disk = one_disk && ckpt__mem_le(z + 16, 8) == 0;
        r->dir_count = count;
        r->dir_size = size;
        r->dir_at = dir;
        limit = at;
    }
    if (!one_disk) return ckpt__error_set(CKPT_UNSUPPORTED, "its zip is split over several files");
    if (r->dir_at > limit || r->dir_size != limit - r->dir_at)
        return ckpt__pt_damaged("the directory is not where the end record says");
    if (r->dir_count > r->dir_size / CKPT__PT_CENTRAL || r->dir_count >= INT_MAX / 4)
        return ckpt__pt_damaged("the directory is too short for its entries");
    return CKPT_OK;
}

// Finds the end record (4.3.16): the last one whose comment ends with the file.
static ckpt_err ckpt__pt_find_end(ckpt__pt_reader *r) {
    size_t n = r->src->size < CKPT__PT_END + 65535u ? (size_t)r->src->size : CKPT__PT_END + 65535u;
    uint64_t from = r->src->size - n;
    const char *tail = NULL;
    ckpt_err e = ckpt__pt_look(r, from, n, n, &tail);
    if (e != CKPT_OK) return e;
    for (size_t at = n >= CKPT__PT_END ? n - CKPT__PT_END + 1 : 0; at-- > 0; ) {
        const char *end = tail + at;
        if (memcmp(end, "PK\5\6", 4) != 0 || ckpt__mem_le(end + 20, 2) != n - at - CKPT__PT_END) continue;
        r->commented = n - at - CKPT__PT_END == CKPT__PT_COMMENT &&
                       memcmp(end + CKPT__PT_END, ckpt__pt_comment, CKPT__PT_COMMENT - CKPT__PT_HEX) == 0 &&
                       ckpt__pt_hex(end + CKPT__PT_END + CKPT__PT_COMMENT - CKPT__PT_HEX, &r->sum);
        return ckpt__pt_end64(r, end, from + at);
    }
    return ckpt__pt_no_zip(r);
}

// Sizes and place that do not fit 32 bits stand in the zip64 extra field (4.5.3), in this order, only those that do not fit.
static ckpt_err ckpt__pt_wide(ckpt__pt_member *m, uint64_t *packed, const char *extra, size_t len) {
    uint64_t *fields[3] = { &m->size, packed, &m->header };
    const char *z = NULL;
    size_t left = 0;
    for (size_t at = 0; at + 4 <= len; ) {
        size_t n = (size_t)ckpt__mem_le(extra + at + 2, 2);
        if (n > len - at - 4) return ckpt__pt_damaged("an extra field is longer than its place");
        if (ckpt__mem_le(extra + at, 2) == 1 && z == NULL) { z = extra + at + 4; left = n; }
        at += 4 + n;
    }
    for (int i = 0; i < 3; i++) {
        if (*fields[i] != ckpt__pt_max32) continue;
        if (left < 8) {
            if (z == NULL) continue;            // really 4294967295: the bounds tell
            return ckpt__pt_damaged("a zip64 field is too short");
        }
        *fields[i] = ckpt__mem_le(z, 8);
        z += 8;
        left -= 8;
    }
    return CKPT_OK;
}

// One header of the directory (4.3.12) at `c`, of which `left` bytes are there. *used: its length.
static ckpt_err ckpt__pt_header(ckpt__pt_member *m, const char *c, size_t left, size_t *used) {
    if (left < CKPT__PT_CENTRAL || memcmp(c, "PK\1\2", 4) != 0) return ckpt__pt_damaged("a directory header is missing");
    size_t name = (size_t)ckpt__mem_le(c + 28, 2), extra = (size_t)ckpt__mem_le(c + 30, 2),
        comment = (size_t)ckpt__mem_le(c + 32, 2);
    if (name + extra + comment > left - CKPT__PT_CENTRAL)
        return ckpt__pt_damaged("a directory header is longer than the directory");
    *used = CKPT__PT_CENTRAL + name + extra + comment;
    uint64_t packed = ckpt__mem_le(c + 20, 4);
    m->name = c + CKPT__PT_CENTRAL;
    m->name_len = name;
    m->crc = (uint32_t)ckpt__mem_le(c + 16, 4);
    m->size = ckpt__mem_le(c + 24, 4);
    m->header = ckpt__mem_le(c + 42, 4);
    m->entry = -1;
    if (name == 0 || memchr(m->name, 0, name) != NULL) return ckpt__pt_damaged("an entry has no proper name");
    ckpt_err e = ckpt__pt_wide(m, &packed, m->name + name, extra);
    if (e != CKPT_OK) return e;
    if ((ckpt__mem_le(c + 8, 2) & 0x2041) != 0)
        return ckpt__error_set(CKPT_UNSUPPORTED, "its entry '%.*s' is encrypted", (int)name, m->name);
    if (name > 14 && memcmp(m->name + name - 14, "/constants.pkl", 14) == 0)
        return ckpt__error_set(CKPT_UNSUPPORTED, "it is a TorchScript program; save its state_dict() with torch.save");
    m->method = (unsigned)ckpt__mem_le(c + 10, 2);
    if (m->method == 0 && packed != m->size) return ckpt__pt_damaged("a stored entry has two sizes");
    return CKPT_OK;
}

static ckpt_err ckpt__pt_read_directory(ckpt__pt_reader *r) {
    if (r->dir_size > CKPT__PICKLE_MAX_SIZE) return ckpt__error_set(CKPT_UNSUPPORTED, "its zip directory is larger than 1 GiB");
    size_t size = (size_t)r->dir_size, at = 0;
    char *dir = ckpt__buf_reserve(&r->dir, size);
    if (dir == NULL) return r->dir.err;
    ckpt_err e = ckpt__pt_pread(r, dir, size, r->dir_at);
    if (e == CKPT_OK)
        e = ckpt__mem_grow(&r->toc->allocator, (void **)&r->members, sizeof *r->members, &r->cap, (size_t)r->dir_count);
    for (; e == CKPT_OK && r->count < r->dir_count; r->count++) {
        size_t used = 0;
        e = ckpt__pt_header(&r->members[r->count], dir + at, size - at, &used);
        if (e != CKPT_OK) break;
        at += used;
    }
    if (e == CKPT_OK && at != size) return ckpt__pt_damaged("the directory holds more than its entries");
    for (size_t i = 0; e == CKPT_OK && i < r->count; i++) {
        const ckpt__pt_member *m = &r->members[i];
        if (m->method != 0)
            return ckpt__error_set(CKPT_UNSUPPORTED, "its entry '%.*s' is compressed (zip method %u), which torch.save never "
                                   "does; unpack the zip and pack it again with zip -0", (int)m->name_len, m->name, m->method);
    }
    return e;
}

static int ckpt__pt_member_order(const void *a, const void *b) {
    const ckpt__pt_member *x = (const ckpt__pt_member *)a, *y = (const ckpt__pt_member *)b;
    return x->header < y->header ? -1 : x->header > y->header;
}

static uint64_t ckpt__pt_hash(const char *p, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return h ^ h >> 29;
}

// Sorts the entries by their place and builds the table of their names. One name twice would leave open which is meant.
static ckpt_err ckpt__pt_index(ckpt__pt_reader *r) {
    bool sorted = true;
    for (size_t i = 1; i < r->count; i++) if (r->members[i].header < r->members[i - 1].header) sorted = false;
    if (!sorted) qsort(r->members, r->count, sizeof *r->members, ckpt__pt_member_order);
    size_t n = 16;
    while (n < r->count * 2) n *= 2;
    r->slots = (int *)ckpt__mem_alloc(&r->toc->allocator, n * sizeof *r->slots);
    if (r->slots == NULL) return CKPT_NOMEM;
    r->slot_count = n;
    for (size_t i = 0; i < r->count; i++) {
        const ckpt__pt_member *m = &r->members[i];
        size_t at = (size_t)ckpt__pt_hash(m->name, m->name_len) & (n - 1);
        for (; r->slots[at] != 0; at = (at + 1) & (n - 1)) {
            const ckpt__pt_member *o = &r->members[r->slots[at] - 1];
            if (o->name_len == m->name_len && memcmp(o->name, m->name, m->name_len) == 0)
                return ckpt__error_set(CKPT_CORRUPT, "its zip has the entry '%.*s' twice", (int)m->name_len, m->name);
        }
        r->slots[at] = (int)i + 1;
    }
    return CKPT_OK;
}

// The entry "<stem>/<folder><name>", NULL when there is none.
static ckpt__pt_member *ckpt__pt_find(ckpt__pt_reader *r, const char *folder, ckpt__view name) {
    r->name.len = 0;
    ckpt__buf_add(&r->name, r->stem, r->stem_len);
    ckpt__buf_text(&r->name, folder);
    ckpt__buf_add(&r->name, name.p, name.n);
    if (r->name.err != CKPT_OK) return NULL;
    size_t mask = r->slot_count - 1;
    for (size_t at = (size_t)ckpt__pt_hash(r->name.data, r->name.len) & mask; r->slots[at] != 0; at = (at + 1) & mask) {
        ckpt__pt_member *m = &r->members[r->slots[at] - 1];
        if (m->name_len == r->name.len && memcmp(m->name, r->name.data, m->name_len) == 0) return m;
    }
    return NULL;
}

// A local header (4.3.7) must say what the directory says. Sets m->data.
static ckpt_err ckpt__pt_local(ckpt__pt_reader *r, ckpt__pt_member *m, uint64_t limit, size_t ahead) {
    const char *h = NULL;
    if (m->header > limit || CKPT__PT_LOCAL > limit - m->header) return ckpt__pt_damaged("an entry reaches into the next one");
    ckpt_err e = ckpt__pt_look(r, m->header, CKPT__PT_LOCAL, ahead, &h);
    if (e != CKPT_OK) return e;
    size_t name = (size_t)ckpt__mem_le(h + 26, 2), extra = (size_t)ckpt__mem_le(h + 28, 2);
    uint64_t left = limit - m->header - CKPT__PT_LOCAL;
    bool late = (ckpt__mem_le(h + 6, 2) & 8) != 0;      // the sizes follow the data
    uint64_t sizes[2] = { ckpt__mem_le(h + 18, 4), ckpt__mem_le(h + 22, 4) };
    bool agree = memcmp(h, "PK\3\4", 4) == 0 && ckpt__mem_le(h + 8, 2) == 0 && name == m->name_len &&
        (late || ckpt__mem_le(h + 14, 4) == m->crc);
    for (int i = 0; i < 2; i++) if (sizes[i] != m->size && sizes[i] != ckpt__pt_max32 && !(late && sizes[i] == 0)) agree = false;
    if (!agree)
        return ckpt__error_set(CKPT_CORRUPT, "its entry '%.*s' does not begin where the directory says", (int)m->name_len,
                               m->name);
    if (name + extra > left || m->size > left - name - extra) return ckpt__pt_damaged("an entry reaches into the next one");
    e = ckpt__pt_look(r, m->header + CKPT__PT_LOCAL, name, ahead, &h);
    if (e != CKPT_OK) return e;
    if (memcmp(h, m->name, name) != 0)
        return ckpt__error_set(CKPT_CORRUPT, "its entry '%.*s' has another name in its own header", (int)m->name_len, m->name);
    m->data = m->header + CKPT__PT_LOCAL + name + extra;
    return CKPT_OK;
}

// Checks every local header of a foreign file, and finds where the data begin.
static ckpt_err ckpt__pt_locals(ckpt__pt_reader *r) {
    uint64_t before = 0;
    size_t ahead = CKPT__PT_WINDOW;
    for (size_t i = 0; i < r->count; i++) {
        ckpt__pt_member *m = &r->members[i];
        if (m->header < before) return ckpt__pt_damaged("two entries overlap");
        ckpt_err e = ckpt__pt_local(r, m, i + 1 < r->count ? r->members[i + 1].header : r->dir_at, ahead);
        if (e != CKPT_OK) return e;
        before = m->data + m->size;
        ahead = m->size < CKPT__PT_BIG ? CKPT__PT_WINDOW : CKPT__PT_PEEK;
    }
    return CKPT_OK;
}

// In a file of our own the data end where their descriptor begins, and that ends where the next entry begins, so the headers need
// not be read to find them: of 100,000 small tensors they are most of the file. The sum over all bytes that belong to no
// entry is compared when the data are read and summed.
static ckpt_err ckpt__pt_places(ckpt__pt_reader *r) {
    uint64_t before = 0;
    for (size_t i = 0; i < r->count; i++) {
        ckpt__pt_member *m = &r->members[i];
        uint64_t limit = i + 1 < r->count ? r->members[i + 1].header : r->dir_at, least = CKPT__PT_LOCAL + m->name_len;
        uint64_t behind = m->size >= ckpt__pt_max32 ? 24 : 16;
        if (m->header != before || limit < m->header || limit - m->header < least + behind ||
            m->size > limit - m->header - least - behind)
            return ckpt__pt_damaged("its entries are not where the directory says");
        m->data = limit - behind - m->size;
        before = limit;
    }
    r->toc->has_structure_crc = true;
    r->toc->structure_begin = r->src->base;
    r->toc->structure_end = r->src->base + r->src->size - CKPT__PT_HEX;
    r->toc->structure_blank = CKPT__PT_HEX;
    r->toc->structure_crc = r->sum;
    return CKPT_OK;
}

// torch writes no sums under set_crc32_options(False).
static bool ckpt__pt_has_crc(const ckpt__pt_reader *r, const ckpt__pt_member *m) {
    return r->toc->own || m->crc != 0 || m->size == 0;
}

// Reads a small entry and checks its sum. A missing one gives NULL in *text, and OK.
static ckpt_err ckpt__pt_small(ckpt__pt_reader *r, const char *name, char text[16], bool *there) {
    ckpt__pt_member *m = ckpt__pt_find(r, name, ckpt__txt_view(""));
    memset(text, 0, 16);
    *there = m != NULL;
    if (m == NULL) return r->name.err;
    if (m->size >= 16) return ckpt__error_set(CKPT_CORRUPT, "its entry '%s' is longer than it can be", name + 1);
    ckpt_err e = ckpt__pt_pread(r, text, (size_t)m->size, m->data);
    if (e == CKPT_OK && ckpt__pt_has_crc(r, m) && ckpt__digest_crc32(0, text, (size_t)m->size) != m->crc)
        return ckpt__error_set(CKPT_CORRUPT, "its entry '%s' is damaged: its checksum is wrong", name + 1);
    return e;
}

// Finds the stem, tells whether the file is ours, and checks what torch's own reader looks at.
static ckpt_err ckpt__pt_identify(ckpt__pt_reader *r) {
    static const char pickle[] = "/data.pkl";
    size_t n = sizeof pickle - 1;
    char text[16];
    bool marked, there;
    for (size_t i = 0; r->stem == NULL && i < r->count; i++) {
        const ckpt__pt_member *m = &r->members[i];
        if (m->name_len <= n || memcmp(m->name + m->name_len - n, pickle, n) != 0) continue;
        r->stem = m->name;
        r->stem_len = m->name_len - n;
    }
    if (r->stem == NULL)
        return ckpt__error_set(CKPT_CORRUPT, "it is a zip without an entry 'data.pkl', so it is no file of torch.save");
    ckpt_err e = ckpt__pt_small(r, "/.ckpt", text, &marked);
    if (e != CKPT_OK) return e;
    if (marked != r->commented)
        return ckpt__pt_damaged(marked ? "the checksum in its comment is gone" : "the entry that announces its checksum is gone");
    r->toc->own = marked;
    if (marked && strcmp(text, ckpt__pt_marker) != 0) return ckpt__pt_damaged("the entry that announces its checksum is wrong");
    e = ckpt__pt_small(r, "/byteorder", text, &there);
    if (e != CKPT_OK) return e;
    if (there && strcmp(text, "little") != 0 && strcmp(text, "big") != 0)
        return ckpt__error_set(CKPT_CORRUPT, "its byte order is neither little nor big");
    r->other_order = there && strcmp(text, ckpt__pickle_byteorder()) != 0;
    if (r->other_order)
        return ckpt__error_set(CKPT_UNSUPPORTED, "it was written on a %s-endian machine and this one is not; load and save "
                               "it with torch first", text);
    return ckpt__pt_small(r, "/version", text, &there);
}

static ckpt_err ckpt__pt_read_pickle(ckpt__pt_reader *r, uint32_t *root) {
    const ckpt__pt_member *m = ckpt__pt_find(r, "/data.pkl", ckpt__txt_view(""));
    if (m == NULL) return ckpt__pt_damaged("the entry 'data.pkl' is gone");
    if (m->size > CKPT__PICKLE_MAX_SIZE) return ckpt__error_set(CKPT_UNSUPPORTED, "its data.pkl is larger than 1 GiB");
    size_t size = (size_t)m->size;
    char *p = ckpt__buf_reserve(&r->bytes, size);
    if (p == NULL) return r->bytes.err;
    ckpt_err e = ckpt__pt_pread(r, p, size, m->data);
    if (e != CKPT_OK) return e;
    if (ckpt__pt_has_crc(r, m) && ckpt__digest_crc32(0, p, size) != m->crc)
        return ckpt__error_set(CKPT_CORRUPT, "its entry 'data.pkl' is damaged: its checksum is wrong");
    r->text_left = (uint64_t)size * 64 + (16u << 20);
    r->entries_max = size + 65536;
    return ckpt__pickle_read(&r->pickle, &r->toc->allocator, p, size, root);
}

//-- reading: the tree becomes entries -----------------------------------------------

// Sharing makes small pickles that would unfold into endless trees; honest ones stay far below these bounds.
static ckpt_err ckpt__pt_spend(ckpt__pt_reader *r, uint64_t text) {
    if (r->toc->count >= r->entries_max || text > r->text_left)
        return ckpt__error_set(CKPT_CORRUPT, "its pickle unfolds into far more values than its size allows (the same "
                               "objects are shared again and again)");
    r->text_left -= text;
    return CKPT_OK;
}

static ckpt_err ckpt__pt_entry(ckpt__pt_reader *r, ckpt_kind kind, ckpt__entry **out) {
    ckpt__view name = { r->path.data, r->path.len };
    if (r->path.err != CKPT_OK) return r->path.err;
    if (name.n > CKPT__STATE_MAX_NAME)
        return ckpt__error_set(CKPT_UNSUPPORTED, "it holds a name longer than %d bytes", (int)CKPT__STATE_MAX_NAME);
    ckpt_err e = ckpt__pt_spend(r, name.n + 1);
    if (e != CKPT_OK) return e;
    *out = ckpt__toc_entry(r->toc, name.n > 0 ? name.p : "", name.n, kind);
    if (*out != NULL) (*out)->lists = r->lists;
    return *out == NULL ? ckpt__error_last.code : CKPT_OK;
}

// An opaque value: its entry's text says what Python calls it.
static ckpt_err ckpt__pt_opaque(ckpt__pt_reader *r, uint32_t global) {
    const ckpt__pickle *k = &r->pickle;
    ckpt__entry *e = NULL;
    ckpt_err err = ckpt__pt_entry(r, CKPT_KIND_OTHER, &e);
    if (err != CKPT_OK || !ckpt__pickle_is(k, global, CKPT__PICKLE_GLOBAL)) return err;
    ckpt__view m = ckpt__pickle_view(k, k->nodes[global].a), n = ckpt__pickle_view(k, (uint32_t)k->nodes[global].b);
    r->name.len = 0;
    ckpt__buf_fmt(&r->name, "%.*s.%.*s", (int)(m.n < 200 ? m.n : 200), m.p, (int)(n.n < 200 ? n.n : 200), n.p);
    if (r->name.err != CKPT_OK) return r->name.err;
    err = ckpt__pt_spend(r, r->name.len + 1);
    if (err == CKPT_OK) e->text = ckpt__toc_text(r->toc, r->name.data, r->name.len);
    return err == CKPT_OK && e->text == NULL ? CKPT_NOMEM : err;
}

// Bytes kept in the toc itself: a BYTES value, or (when `array` is its node) a numpy array's elements.
static ckpt_err ckpt__pt_bytes(ckpt__pt_reader *r, uint32_t node, uint32_t array) {
    const ckpt__pickle *k = &r->pickle;
    ckpt__view raw = ckpt__pickle_view(k, node);
    ckpt_err err = ckpt__pt_spend(r, raw.n + 1);
    if (err != CKPT_OK) return err;
    char *text = ckpt__toc_text(r->toc, raw.p, raw.n);
    if (text == NULL) return CKPT_NOMEM;
    size_t size = ckpt__pickle_bytes_of(k, node, (unsigned char *)text, raw.n);
    ckpt__entry made, *e = NULL;
    memset(&made, 0, sizeof made);
    uint64_t want = size;
    if (array != 0 && size != SIZE_MAX) {
        uint32_t shape = k->refs[k->nodes[array].b];
        made.dtype = (ckpt_dtype)k->nodes[array].extra;
        made.ndim = k->nodes[shape].a <= CKPT_MAX_DIMS ? (int)k->nodes[shape].a : 0;
        bool good = k->nodes[shape].a <= CKPT_MAX_DIMS;
        for (int i = 0; i < made.ndim; i++)
            good = good && ckpt__pickle_int_of(k, ckpt__pickle_item(k, shape, (uint32_t)i), &made.shape[i]);
        if (!good || ckpt__state_shape_size(made.dtype, made.ndim, made.shape, &want) != CKPT_OK || want != size) size = SIZE_MAX;
    }
    if (size == SIZE_MAX) return ckpt__pt_opaque(r, 0);
    text[size] = 0;
    err = ckpt__pt_entry(r, array != 0 ? CKPT_KIND_TENSOR : CKPT_KIND_BYTES, &e);
    if (err != CKPT_OK) return err;
    e->text = text;
    e->size = size;
    if (array == 0) return CKPT_OK;
    e->dtype = made.dtype;
    e->ndim = made.ndim;
    int64_t step = 1;
    for (int i = made.ndim - 1; i >= 0; i--) {
        e->shape[i] = made.shape[i];
        e->stride[i] = step;
        step *= made.shape[i] > 0 ? made.shape[i] : 1;
    }
    return CKPT_OK;
}

// Shape and strides must be sane, and the last element that they reach must lie in the storage of `room` elements.
static ckpt_err ckpt__pt_extent(const ckpt__pickle *k, ckpt__entry *e, uint32_t tensor, uint64_t room, uint64_t *first) {
    const uint32_t *parts = k->refs + k->nodes[tensor].b;
    int64_t offset = 0;
    uint64_t reach = 0;
    bool empty = false;
    e->ndim = (int)k->nodes[parts[1]].a;
    bool good = ckpt__pickle_int_of(k, parts[0], &offset) && offset >= 0 && k->nodes[parts[2]].a == (uint32_t)e->ndim;
    for (int i = 0; good && i < e->ndim; i++) {
        good = ckpt__pickle_int_of(k, ckpt__pickle_item(k, parts[1], (uint32_t)i), &e->shape[i]) && e->shape[i] >= 0 &&
               ckpt__pickle_int_of(k, ckpt__pickle_item(k, parts[2], (uint32_t)i), &e->stride[i]) && e->stride[i] >= 0;
        if (good && e->shape[i] == 0) empty = true;
    }
    if (!good) return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' has no proper shape", e->name);
    ckpt_err err = ckpt__state_shape_size(e->dtype, e->ndim, e->shape, &e->size);
    if (err != CKPT_OK) return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' is larger than any memory", e->name);
    int64_t step = 1;
    for (int i = e->ndim - 1; !empty && i >= 0; i--) {
        uint64_t n = (uint64_t)e->shape[i] - 1, s = (uint64_t)e->stride[i];
        if (n > 0 && e->stride[i] != step) e->contiguous = false;
        if (n > 0 && s > 0 && (n > room / s || reach > room - n * s))
            return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' reaches beyond its storage", e->name);
        reach += n * s;
        step *= e->shape[i];
    }
    *first = (uint64_t)offset;
    if (*first > room || (!empty && room - *first <= reach))
        return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' reaches beyond its storage", e->name);
    return CKPT_OK;
}

// Makes a clock the float that it was before it was written.
static ckpt_err ckpt__pt_clock(ckpt__pt_reader *r, ckpt__entry *e, const ckpt__pt_member *m) {
    ckpt_err err = ckpt__pt_pread(r, &e->f, 8, m->data);
    if (err == CKPT_OK && ckpt__digest_crc32(0, &e->f, 8) != m->crc)
        return ckpt__error_set(CKPT_CORRUPT, "'%s' is damaged: its checksum is wrong", e->name);
    e->kind = CKPT_KIND_FLOAT;
    e->blob = -1;
    e->ndim = 0;
    e->dtype = (ckpt_dtype)0;
    return err;
}

// A tensor, or with node 0 a storage by itself, which is a vector.
static ckpt_err ckpt__pt_tensor(ckpt__pt_reader *r, uint32_t tensor, uint32_t storage) {
    const ckpt__pickle *k = &r->pickle;
    unsigned of = k->nodes[storage].extra, dtype = tensor != 0 ? k->nodes[tensor].extra : of;
    if (of == CKPT__PICKLE_UNTYPED) of = (unsigned)CKPT_U8;
    if (dtype == CKPT__PICKLE_UNTYPED) dtype = (unsigned)CKPT_U8;
    if (tensor != 0 && k->nodes[k->refs[k->nodes[tensor].b + 1]].a > CKPT_MAX_DIMS) return ckpt__pt_opaque(r, 0);
    uint64_t count = k->nodes[storage].b, unit = ckpt__state_dtype_size((ckpt_dtype)of),
        each = ckpt__state_dtype_size((ckpt_dtype)dtype), first = 0;
    ckpt__entry *e = NULL;
    ckpt_err err = ckpt__pt_entry(r, CKPT_KIND_TENSOR, &e);
    if (err != CKPT_OK) return err;
    ckpt__view key = ckpt__pickle_view(k, k->nodes[storage].a);
    ckpt__pt_member *m = ckpt__pt_find(r, "/data/", key);
    if (r->name.err != CKPT_OK) return r->name.err;
    if (m == NULL)
        return ckpt__error_set(CKPT_CORRUPT, "the data of '%s' is missing (entry 'data/%.*s')", e->name,
                               (int)(key.n < 100 ? key.n : 100), key.p);
    if (unit == 0 || each == 0 || count > m->size / unit)
        return ckpt__error_set(CKPT_CORRUPT, "the data of '%s' is shorter than its storage", e->name);
    e->dtype = (ckpt_dtype)dtype;
    if (tensor != 0) {
        err = ckpt__pt_extent(k, e, tensor, count * unit / each, &first);
        if (err != CKPT_OK) return err;
    } else {
        e->ndim = 1;
        e->shape[0] = (int64_t)count;
        e->stride[0] = 1;
        e->size = count * each;
    }
    if (m->entry < 0) m->entry = (int)r->toc->count - 1;
    e->blob = (int)(r->toc->blob_count + (size_t)(m - r->members));
    e->offset = r->src->base + m->data + first * each;
    char letter = r->toc->own && key.n > 0 ? key.p[key.n - 1] : ' ';
    if (letter == 'b' && e->dtype == CKPT_U8) e->kind = CKPT_KIND_BYTES;
    return letter == 'f' && e->dtype == CKPT_F64 && e->size == 8 ? ckpt__pt_clock(r, e, m) : CKPT_OK;
}

static ckpt_err ckpt__pt_leaf(ckpt__pt_reader *r, uint32_t node) {
    const ckpt__pickle_node n = r->pickle.nodes[node];
    ckpt__entry *e = NULL;
    ckpt_err err = CKPT_OK;
    switch ((ckpt__pickle_kind)n.kind) {
    case CKPT__PICKLE_BOOL:
    case CKPT__PICKLE_INT:
        err = ckpt__pt_entry(r, n.kind == CKPT__PICKLE_BOOL ? CKPT_KIND_BOOL : CKPT_KIND_INT, &e);
        if (err == CKPT_OK) e->i = (int64_t)n.b;
        return err;
    case CKPT__PICKLE_FLOAT:
        err = ckpt__pt_entry(r, CKPT_KIND_FLOAT, &e);
        if (err == CKPT_OK) e->f = ckpt__pickle_float_of(&r->pickle, node);
        return err;
    case CKPT__PICKLE_TEXT:
        err = ckpt__pt_spend(r, n.a + 1u);
        if (err == CKPT_OK) err = ckpt__pt_entry(r, CKPT_KIND_TEXT, &e);
        if (err != CKPT_OK) return err;
        e->text = ckpt__toc_text(r->toc, ckpt__pickle_view(&r->pickle, node).p, n.a);
        e->size = n.a;
        return e->text == NULL ? CKPT_NOMEM : CKPT_OK;
    case CKPT__PICKLE_BYTES:   return ckpt__pt_bytes(r, node, 0);
    case CKPT__PICKLE_ARRAY:   return n.flag != 0 ? ckpt__pt_bytes(r, n.a, node) : ckpt__pt_opaque(r, 0);
    case CKPT__PICKLE_TENSOR:  return n.extra != 0 ? ckpt__pt_tensor(r, node, n.a) : ckpt__pt_opaque(r, 0);
    case CKPT__PICKLE_STORAGE: return ckpt__pt_tensor(r, 0, node);
    case CKPT__PICKLE_GLOBAL:  return ckpt__pt_opaque(r, node);
    case CKPT__PICKLE_OTHER:   return ckpt__pt_opaque(r, n.a);
    case CKPT__PICKLE_NPDTYPE: return ckpt__pt_opaque(r, 0);
    default:                   return ckpt__pt_entry(r, CKPT_KIND_NONE, &e);    // None, an empty dict, list or tuple
    }
}

// A dict's key as a level of a name. Keys that are no text are written as Python's str would; what no name can hold becomes '?'.
static void ckpt__pt_key_text(ckpt__pt_reader *r, uint32_t node, size_t number) {
    const ckpt__pickle *k = &r->pickle;
    ckpt__view v = ckpt__pickle_view(k, node);
    size_t from = r->path.len;
    switch ((ckpt__pickle_kind)k->nodes[node].kind) {
    case CKPT__PICKLE_NONE:  ckpt__buf_text(&r->path, "None"); break;
    case CKPT__PICKLE_BOOL:  ckpt__buf_text(&r->path, k->nodes[node].b != 0 ? "True" : "False"); break;
    case CKPT__PICKLE_INT:   ckpt__buf_fmt(&r->path, "%lld", (long long)(int64_t)k->nodes[node].b); break;
    case CKPT__PICKLE_FLOAT: ckpt__txt_add_double(&r->path, ckpt__pickle_float_of(k, node)); break;
    case CKPT__PICKLE_TEXT:
    case CKPT__PICKLE_BYTES:
        if (v.n > CKPT__STATE_MAX_NAME) v.n = CKPT__STATE_MAX_NAME + 1;        // the name is refused, but not before it is made
        ckpt__buf_add(&r->path, v.p, v.n);
        if (ckpt__txt_utf8(v.p, v.n) && memchr(v.p, 0, v.n) == NULL) break;
        for (size_t i = from; r->path.err == CKPT_OK && i < r->path.len; i++) {
            unsigned char c = (unsigned char)r->path.data[i];
            if (c == 0 || c >= 0x80) r->path.data[i] = '?';
        }
        break;
    default: ckpt__buf_fmt(&r->path, "?%zu", number); break;
    }
}

// Walks what is below a node, depth first. Its own depth bound is also what refuses a container that holds itself.
static ckpt_err ckpt__pt_walk(ckpt__pt_reader *r, uint32_t node, int depth) {
    const ckpt__pickle *k = &r->pickle;
    const ckpt__pickle_node n = k->nodes[node];
    bool dict = n.kind == CKPT__PICKLE_DICT, tuple = n.kind == CKPT__PICKLE_TUPLE;
    if (!((dict || tuple || n.kind == CKPT__PICKLE_LIST) && n.a != 0)) {
        if (depth == 0) ckpt__buf_text(&r->path, "value");      // a file of one tensor has no name for it
        return ckpt__pt_leaf(r, node);
    }
    if (depth >= CKPT__PICKLE_DEPTH)
        return ckpt__error_set(CKPT_CORRUPT, "its pickle nests deeper than %d levels, or holds itself", (int)CKPT__PICKLE_DEPTH);
    size_t base = r->path.len, i = 0, level = depth > 0 ? 1 : 0;
    uint32_t cell = tuple ? 0 : n.a;
    uint64_t lists = r->lists;
    for (size_t c = 0; c < base; c++) level += r->path.data[c] == '/';
    if (!dict && level < 64) lists |= (uint64_t)1 << level;
    for (; tuple ? i < n.a : cell != 0; i++) {
        uint32_t item = tuple ? k->refs[n.b + i] : k->cells[cell].node, key = item;
        if (dict) {
            cell = k->cells[cell].next;
            if (cell == 0) return ckpt__error_set(CKPT_CORRUPT, "its pickle has a key without a value");
            item = k->cells[cell].node;
        }
        if (!tuple) cell = k->cells[cell].next;
        r->path.len = base;
        if (depth > 0) ckpt__buf_byte(&r->path, '/');
        if (dict) ckpt__pt_key_text(r, key, i);
        else ckpt__buf_fmt(&r->path, "%zu", i);
        if (r->path.err != CKPT_OK) return r->path.err;
        if (r->path.len > CKPT__STATE_MAX_NAME)
            return ckpt__error_set(CKPT_UNSUPPORTED, "it holds a name longer than %d bytes", (int)CKPT__STATE_MAX_NAME);
        uint64_t outer = r->lists;
        r->lists = lists;
        ckpt_err e = ckpt__pt_walk(r, item, depth + 1);
        r->lists = outer;
        if (e != CKPT_OK) return e;
    }
    return CKPT_OK;
}

// Two keys may have one text ({1: a, '1': b}, or {'x/y': a, 'x': {'y': b}}): the later entry gets "#<its number>" behind it.
static ckpt_err ckpt__pt_rename(ckpt__pt_reader *r) {
    ckpt__toc *t = r->toc;
    size_t n = 16;
    while (n < t->count * 2) n *= 2;
    int *slots = (int *)ckpt__mem_alloc(&t->allocator, n * sizeof *slots);
    if (slots == NULL) return CKPT_NOMEM;
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; e == CKPT_OK && i < t->count; ) {
        size_t at = (size_t)ckpt__toc_hash(t->entries[i].name) & (n - 1);
        while (slots[at] != 0 && strcmp(t->entries[slots[at] - 1].name, t->entries[i].name) != 0) at = (at + 1) & (n - 1);
        if (slots[at] == 0) {
            slots[at] = (int)++i;
            continue;
        }
        r->name.len = 0;
        ckpt__buf_fmt(&r->name, "%s#%zu", t->entries[i].name, i);
        e = r->name.err != CKPT_OK ? r->name.err : ckpt__pt_spend(r, r->name.len + 1);
        if (e == CKPT_OK) t->entries[i].name = ckpt__toc_text(t, r->name.data, r->name.len);
        if (e == CKPT_OK && t->entries[i].name == NULL) e = CKPT_NOMEM;
    }
    ckpt__mem_free(&t->allocator, slots, n * sizeof *slots);
    return e;
}

// Every entry of the zip is a blob, called as the value that it holds.
static ckpt_err ckpt__pt_blobs(ckpt__pt_reader *r) {
    ckpt__toc *t = r->toc;
    size_t first = t->blob_count;
    if (ckpt__mem_grow(&t->allocator, (void **)&t->blobs, sizeof *t->blobs, &t->blob_cap, first + r->count) != CKPT_OK)
        return CKPT_NOMEM;
    for (size_t i = 0; i < r->count; i++) {
        const ckpt__pt_member *m = &r->members[i];
        ckpt__blob *b = &t->blobs[first + i];
        b->name = m->entry >= 0 ? t->entries[m->entry].name : ckpt__toc_text(t, m->name, m->name_len);
        if (b->name == NULL) return CKPT_NOMEM;
        b->offset = r->src->base + m->data;
        b->size = m->size;
        b->crc = m->crc;
        b->has_crc = ckpt__pt_has_crc(r, m);
        t->blob_count++;
    }
    return CKPT_OK;
}

static ckpt_err ckpt__pt_read_all(ckpt__pt_reader *r) {
    uint32_t root = 0;
    ckpt_err e = ckpt__pt_find_end(r);
    if (e == CKPT_OK) e = ckpt__pt_read_directory(r);
    if (e == CKPT_OK) e = ckpt__pt_index(r);
    if (e == CKPT_OK) e = r->commented ? ckpt__pt_places(r) : ckpt__pt_locals(r);
    if (e == CKPT_OK) e = ckpt__pt_identify(r);
    if (e == CKPT_OK) e = ckpt__pt_read_pickle(r, &root);
    if (e == CKPT_OK) e = ckpt__pt_walk(r, root, 0);
    if (e == CKPT_OK) e = ckpt__pt_rename(r);
    return e == CKPT_OK ? ckpt__pt_blobs(r) : e;
}

// Adds to a toc, in which a tar's reader may have put attached files. All but the tensors' bytes is read and verified here.
static ckpt_err ckpt__pt_read(ckpt__toc *t, const ckpt__source *src) {
    ckpt__pt_reader r;
    const ckpt_allocator *a = &t->allocator;
    memset(&r, 0, sizeof r);
    r.toc = t;
    r.src = src;
    ckpt__buf_init(&r.dir, a);
    ckpt__buf_init(&r.name, a);
    ckpt__buf_init(&r.bytes, a);
    ckpt__buf_init(&r.path, a);
    ckpt_err e = ckpt__pt_read_all(&r);
    if (e == CKPT_UNSUPPORTED && r.commented && !r.other_order) {
        e = CKPT_CORRUPT;
        ckpt__error_last.code = e;
    }
    ckpt__mem_free(a, r.members, r.cap * sizeof *r.members);
    ckpt__mem_free(a, r.slots, r.slot_count * sizeof *r.slots);
    ckpt__mem_free(a, r.window, CKPT__PT_WINDOW);
    ckpt__pickle_free(&r.pickle);
    ckpt__buf_free(&r.dir);
    ckpt__buf_free(&r.name);
    ckpt__buf_free(&r.bytes);
    ckpt__buf_free(&r.path);
    return e;
}

//------------------------------------------------------------------------------
// >>safetensors [I]  the .safetensors container: a writer's plan and a strict reader
//
// uses:    error memory platform text digest state plan
// threads: whoever owns the plan or the toc
//
// The format (github.com/huggingface/safetensors): 8 bytes little-endian length, a JSON object of that length padded with
// spaces, then the data. Each member of the object is a tensor, but for "__metadata__", which maps text to text. There go:
//     "ckpt.int:NAME" "ckpt.float:NAME" "ckpt.bool:NAME" "ckpt.text:NAME"      the value; floats as Python's repr
//     "ckpt.bytes"          JSON array of the names of U8 tensors that are bound bytes
//     "ckpt.crc32"          8 hex digits for each tensor, in the order of their data
//     "ckpt.header_crc32"   of the length, the object and its padding, these 8 digits taken as zeros
// A file with any "ckpt." key must hold a header_crc32 that is right, so no changed byte can make it look foreign.
// The format allows no holes. Tensors are ordered by the power of two that divides their size, largest first, which aligns
// each one as far as its own size goes without any; the header's padding brings the first to a multiple of 4096.
//------------------------------------------------------------------------------

enum {
    CKPT__SAFETENSORS_MAX_HEADER = 100000000,   // the limit of the reference implementation
    CKPT__SAFETENSORS_ALIGN = 4096
};

static const char *const ckpt__safetensors_meta = "__metadata__";

// By size, so that the reader knows a tensor's bytes even where it does not know what its numbers mean.
typedef struct ckpt__safetensors_type { const char *name; unsigned bits; ckpt_dtype dtype; } ckpt__safetensors_type;

static const ckpt__safetensors_type ckpt__safetensors_types[] = {
    { "F32", 32, CKPT_F32 },   { "F16", 16, CKPT_F16 },     { "BF16", 16, CKPT_BF16 },      { "F64", 64, CKPT_F64 },
    { "F8_E4M3", 8, CKPT_F8_E4M3 }, { "F8_E5M2", 8, CKPT_F8_E5M2 },
    { "I64", 64, CKPT_I64 },   { "I32", 32, CKPT_I32 },     { "I16", 16, CKPT_I16 },        { "I8", 8, CKPT_I8 },
    { "U64", 64, CKPT_U64 },   { "U32", 32, CKPT_U32 },     { "U16", 16, CKPT_U16 },        { "U8", 8, CKPT_U8 },
    { "BOOL", 8, CKPT_BOOL },  { "C64", 64, CKPT_C64 },
    { "F8_E8M0", 8, (ckpt_dtype)0 }, { "F8_E4M3FNUZ", 8, (ckpt_dtype)0 }, { "F8_E5M2FNUZ", 8, (ckpt_dtype)0 },
    { "F6_E2M3", 6, (ckpt_dtype)0 }, { "F6_E3M2", 6, (ckpt_dtype)0 },     { "F4", 4, (ckpt_dtype)0 }
};
enum { CKPT__SAFETENSORS_TYPES = (int)(sizeof ckpt__safetensors_types / sizeof ckpt__safetensors_types[0]) };

// The format's numbers are little-endian.
static bool ckpt__safetensors_fits_machine(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

static ckpt_err ckpt__safetensors_no_machine(void) {
    return ckpt__error_set(CKPT_UNSUPPORTED, ".safetensors is little-endian and this machine is not: use .pt");
}

//-- writing ---------------------------------------------------------------------

static const char *ckpt__safetensors_type_name(ckpt_dtype d) {
    for (int i = 0; i < CKPT__SAFETENSORS_TYPES; i++) {
        if (ckpt__safetensors_types[i].dtype == d) return ckpt__safetensors_types[i].name;
    }
    return NULL;
}

// Both write behind `p` and return the new end.
static char *ckpt__safetensors_put_text(char *p, const char *text) {
    size_t n = strlen(text);
    memcpy(p, text, n);
    return p + n;
}

static char *ckpt__safetensors_put_number(char *p, uint64_t v) {
    char text[20];
    size_t n = 0;
    do text[sizeof text - ++n] = (char)('0' + v % 10); while ((v /= 10) > 0);
    memcpy(p, text + sizeof text - n, n);
    return p + n;
}

// A key of __metadata__ and what stands before its value.
static void ckpt__safetensors_add_key(ckpt__buf *b, const char *kind, const char *name) {
    ckpt__buf_text(b, "\"ckpt.");
    ckpt__buf_text(b, kind);
    ckpt__buf_byte(b, ':');
    size_t quote = b->len;
    ckpt__json_add_text(b, name, strlen(name));
    if (b->err == CKPT_OK) memmove(b->data + quote, b->data + quote + 1, --b->len - quote);
    ckpt__buf_byte(b, ':');
}

// A scalar as it is now: the plan is its snapshot.
static ckpt_err ckpt__safetensors_add_scalar(ckpt__buf *b, const ckpt__binding *it, const char *name) {
    if (it->kind == CKPT_KIND_INT) {
        ckpt__safetensors_add_key(b, "int", name);
        ckpt__buf_fmt(b, "\"%lld\",", (long long)*(const int64_t *)it->data);
    } else if (it->kind == CKPT_KIND_BOOL) {
        ckpt__safetensors_add_key(b, "bool", name);
        ckpt__buf_text(b, *(const bool *)it->data ? "\"true\"," : "\"false\",");
    } else if (it->kind == CKPT_KIND_FLOAT) {
        ckpt__safetensors_add_key(b, "float", name);
        ckpt__buf_byte(b, '"');
        ckpt__txt_add_double(b, *(const double *)it->data);
        ckpt__buf_text(b, "\",");
    } else {
        const char *text = (const char *)it->data, *end = (const char *)memchr(text, 0, it->size);
        size_t n = end != NULL ? (size_t)(end - text) : it->size;
        if (!ckpt__txt_utf8(text, n))
            return ckpt__error_set(CKPT_ARG, "the text '%s' is not UTF-8: bind it with ckpt_bind_bytes", it->name);
        ckpt__safetensors_add_key(b, "text", name);
        ckpt__json_add_text(b, text, n);
        ckpt__buf_byte(b, ',');
    }
    return CKPT_OK;
}

// A tensor or bytes on their way into the file.
typedef struct ckpt__safetensors_item { const ckpt__binding *it; uint64_t size; int rank; size_t order; } ckpt__safetensors_item;

static ckpt_err ckpt__safetensors_measure(const ckpt__binding *it, ckpt__safetensors_item *out) {
    out->it = it;
    out->size = it->size;
    if (strcmp(ckpt__state_canonical_of(it), ckpt__safetensors_meta) == 0)
        return ckpt__error_set(CKPT_ARG, "no tensor of a .safetensors file can be called %s", ckpt__safetensors_meta);
    if (it->kind == CKPT_KIND_TENSOR) {
        ckpt_err e = ckpt__state_tensor_size(&it->tensor, &out->size);
        if (e != CKPT_OK) return ckpt__error_prefix(e, "'%s'", it->name);
        if (ckpt__safetensors_type_name(it->tensor.dtype) == NULL)
            return ckpt__error_set(CKPT_UNSUPPORTED, "'%s' is %s, which .safetensors has no type for: save it as .pt, "
                                   "or bind it as CKPT_F64 with a last extent of 2",
                                   it->name, ckpt__state_dtype_name(it->tensor.dtype));
    }
    out->rank = 0;
    while (out->rank < 12 && (out->size >> out->rank & 1) == 0) out->rank++;     // 4096 is 2^12
    return CKPT_OK;
}

static int ckpt__safetensors_order(const void *a, const void *b) {
    const ckpt__safetensors_item *x = (const ckpt__safetensors_item *)a, *y = (const ckpt__safetensors_item *)b;
    if (x->rank != y->rank) return x->rank > y->rank ? -1 : 1;
    if ((x->size == 0) != (y->size == 0)) return x->size == 0 ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void ckpt__safetensors_add_tensor(ckpt__buf *b, const ckpt__safetensors_item *item, uint64_t at) {
    const ckpt_tensor *t = &item->it->tensor;
    const char *name = ckpt__state_canonical_of(item->it);
    bool bytes = item->it->kind == CKPT_KIND_BYTES;
    char text[96 + 21 * (CKPT_MAX_DIMS + 2)], *p = text;       // in one piece: there may be 100,000 of them
    ckpt__buf_byte(b, ',');
    ckpt__json_add_text(b, name, strlen(name));
    p = ckpt__safetensors_put_text(p, ":{\"dtype\":\"");
    p = ckpt__safetensors_put_text(p, bytes ? "U8" : ckpt__safetensors_type_name(t->dtype));
    p = ckpt__safetensors_put_text(p, "\",\"shape\":[");
    if (bytes) p = ckpt__safetensors_put_number(p, item->size);
    for (int i = 0; !bytes && i < t->ndim; i++) {
        if (i > 0) *p++ = ',';
        p = ckpt__safetensors_put_number(p, (uint64_t)t->shape[i]);
    }
    p = ckpt__safetensors_put_text(p, "],\"data_offsets\":[");
    p = ckpt__safetensors_put_number(p, at);
    *p++ = ',';
    p = ckpt__safetensors_put_number(p, at + item->size);
    p = ckpt__safetensors_put_text(p, "]}");
    ckpt__buf_add(b, text, (size_t)(p - text));
}

// The names of the bound bytes, as a JSON array inside a JSON text.
static void ckpt__safetensors_add_bytes(ckpt__buf *b, const ckpt__safetensors_item *items, size_t count) {
    ckpt__buf list;
    ckpt__buf_init(&list, &b->allocator);
    for (size_t i = 0; i < count; i++) {
        const char *name = ckpt__state_canonical_of(items[i].it);
        if (items[i].it->kind != CKPT_KIND_BYTES) continue;
        ckpt__buf_byte(&list, list.len == 0 ? '[' : ',');
        ckpt__json_add_text(&list, name, strlen(name));
    }
    if (list.len > 0) {
        ckpt__buf_byte(&list, ']');
        ckpt__buf_text(b, "\"ckpt.bytes\":");
        ckpt__json_add_text(b, list.data, list.len);
        ckpt__buf_byte(b, ',');
    }
    if (b->err == CKPT_OK) b->err = list.err;
    ckpt__buf_free(&list);
}

// The header's text; *crc is where the tensors' digits begin, *own where the header's do.
static void ckpt__safetensors_add_header(ckpt__buf *b, const ckpt__safetensors_item *items, size_t count,
                                         size_t *crc, size_t *own) {
    ckpt__safetensors_add_bytes(b, items, count);
    ckpt__buf_text(b, "\"ckpt.crc32\":\"");
    *crc = b->len;
    ckpt__buf_fill(b, '0', 8 * count);
    ckpt__buf_text(b, "\",\"ckpt.header_crc32\":\"");
    *own = b->len;
    ckpt__buf_text(b, "00000000\"}");
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        ckpt__safetensors_add_tensor(b, &items[i], at);
        at += items[i].size;
    }
    ckpt__buf_byte(b, '}');
}

// Room for all at once: growing by doubling copies megabytes when there are many tensors.
static ckpt_err ckpt__safetensors_make_room(ckpt__plan *p, ckpt__buf *b, const ckpt__safetensors_item *items, size_t count) {
    const ckpt_allocator *a = &p->allocator;
    size_t text = 4096, n = count + 1;
    for (size_t i = 0; i < count; i++) text += strlen(ckpt__state_canonical_of(items[i].it)) + 128;
    (void)ckpt__buf_reserve(b, text);
    ckpt_err e = b->err;
    if (e == CKPT_OK) e = ckpt__mem_grow(a, (void **)&p->segs, sizeof *p->segs, &p->seg_cap, p->seg_count + n);
    if (e == CKPT_OK) e = ckpt__mem_grow(a, (void **)&p->blobs, sizeof *p->blobs, &p->blob_cap, p->blob_count + n);
    if (e == CKPT_OK) e = ckpt__mem_grow(a, (void **)&p->fixups, sizeof *p->fixups, &p->fixup_cap, p->fixup_count + n);
    return e;
}

// Adds the header as one segment that waits for all checksums, and the data.
static ckpt_err ckpt__safetensors_lay(ckpt__plan *p, ckpt__buf *b, const ckpt__safetensors_item *items, size_t count) {
    size_t crc, own;
    ckpt_err e = ckpt__safetensors_make_room(p, b, items, count);
    if (e != CKPT_OK) return e;
    ckpt__safetensors_add_header(b, items, count, &crc, &own);
    uint64_t end = p->size + b->len;
    ckpt__buf_fill(b, ' ', (size_t)((CKPT__SAFETENSORS_ALIGN - end % CKPT__SAFETENSORS_ALIGN) % CKPT__SAFETENSORS_ALIGN));
    if (b->err != CKPT_OK) return b->err;
    if (b->len - 8 > CKPT__SAFETENSORS_MAX_HEADER)
        return ckpt__error_set(CKPT_UNSUPPORTED, "the names of %zu tensors need a header of %zu bytes, and .safetensors "
                               "allows 100 MB: use .pt", count, b->len - 8);
    for (int i = 0; i < 8; i++) b->data[i] = (char)(unsigned char)((uint64_t)(b->len - 8) >> (8 * i) & 255);
    size_t seg = p->seg_count, first = p->blob_count, at = ckpt__plan_late_bytes(p, b->data, b->len, CKPT__LATE_ALL);
    for (size_t i = 0; i < count; i++) ckpt__plan_fixup(p, at + crc + 8 * i, (int)(first + i), true, 0);
    ckpt__plan_fixup(p, at + own, CKPT__FIXUP_STRUCTURE, true, seg);
    for (size_t i = 0; i < count && p->err == CKPT_OK; i++) {
        const ckpt__binding *it = items[i].it;
        bool tensor = it->kind == CKPT_KIND_TENSOR;
        int blob = ckpt__plan_blob(p, ckpt__state_canonical_of(it));
        if (blob < 0) break;
        if (!tensor && it->size <= CKPT__PLAN_CAPTURE) ckpt__plan_bytes(p, it->data, it->size, blob);
        else ckpt__plan_data(p, tensor && it->tensor.device ? CKPT__SEG_DEVICE : CKPT__SEG_DATA,
                             tensor ? it->tensor.data : it->data, items[i].size, blob);
    }
    return p->err;
}

// Scalars into the header, the rest into a list.
static ckpt_err ckpt__safetensors_collect(ckpt__buf *b, ckpt__safetensors_item *list, size_t *n,
                                          const ckpt__binding *items, size_t count) {
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < count && e == CKPT_OK; i++) {
        ckpt_kind kind = items[i].kind;
        if (kind == CKPT_KIND_TENSOR || kind == CKPT_KIND_BYTES) {
            list[*n].order = i;
            e = ckpt__safetensors_measure(&items[i], &list[(*n)++]);
        } else if (kind != CKPT_KIND_FILE) {        // a file goes into the tar around this
            e = ckpt__safetensors_add_scalar(b, &items[i], ckpt__state_canonical_of(&items[i]));
        }
    }
    return e;
}

// Plans the items as a .safetensors file, at the plan's current end.
static ckpt_err ckpt__safetensors_plan(ckpt__plan *p, const ckpt__binding *items, size_t count) {
    if (p->err != CKPT_OK) return p->err;
    if (!ckpt__safetensors_fits_machine()) return ckpt__safetensors_no_machine();
    size_t n = 0, room = (count + 1) * sizeof(ckpt__safetensors_item);
    ckpt__safetensors_item *list = (ckpt__safetensors_item *)ckpt__mem_resize(&p->allocator, NULL, 0, room);
    if (list == NULL) return p->err = CKPT_NOMEM;
    ckpt__buf b;
    ckpt__buf_init(&b, &p->allocator);
    ckpt__buf_fill(&b, 0, 8);
    ckpt__buf_text(&b, "{\"__metadata__\":{");
    ckpt_err e = ckpt__safetensors_collect(&b, list, &n, items, count);
    bool sorted = true;
    for (size_t i = 1; i < n; i++) sorted = sorted && ckpt__safetensors_order(&list[i - 1], &list[i]) < 0;
    if (e == CKPT_OK && !sorted) qsort(list, n, sizeof *list, ckpt__safetensors_order);
    if (e == CKPT_OK) e = ckpt__safetensors_lay(p, &b, list, n);
    ckpt__buf_free(&b);
    ckpt__mem_free(&p->allocator, list, room);
    if (p->err == CKPT_OK) p->err = e;
    return e;
}

//-- reading ---------------------------------------------------------------------

// `json` is used as a cursor with an arena for its texts: the header's shape is fixed, and 100,000 tensors need no tree.
typedef struct ckpt__safetensors_reader {
    ckpt__toc          *toc;
    const ckpt__source *src;
    ckpt__buf           header;         // with its 8 bytes of length
    ckpt__json_doc      json;
    ckpt__toc           meta;           // __metadata__: entries of kind TEXT
    bool                has_meta;
    uint64_t            data, end;      // bytes of the data: first, and how many
    size_t              first, first_blob;      // in the toc
} ckpt__safetensors_reader;

static ckpt_err ckpt__safetensors_damaged(const ckpt__safetensors_reader *r, const char *what) {
    return ckpt__error_set(CKPT_CORRUPT, "the safetensors header is damaged at byte %llu: %s",
                           (unsigned long long)(8 + (r->json.at - r->json.begin)), what);
}

static bool ckpt__safetensors_token(ckpt__safetensors_reader *r, const char *token) {
    ckpt__json_blanks(&r->json);
    return ckpt__json_word(&r->json, token);
}

static ckpt_err ckpt__safetensors_text(ckpt__safetensors_reader *r, const char **text, size_t *len) {
    if (!ckpt__safetensors_token(r, "\"")) return ckpt__safetensors_damaged(r, "a text is expected");
    ckpt_err e = ckpt__json_text(&r->json, text, len);
    return e == CKPT_OK ? e : ckpt__error_prefix(e, "the safetensors header");
}

// Before each member: is there one more? Takes the comma or the end.
static ckpt_err ckpt__safetensors_more(ckpt__safetensors_reader *r, const char *close, size_t index, bool *more) {
    *more = !ckpt__safetensors_token(r, close);
    if (!*more || index == 0 || ckpt__safetensors_token(r, ",")) return CKPT_OK;
    return ckpt__safetensors_damaged(r, "neither ',' nor the end of an array or object");
}

static ckpt_err ckpt__safetensors_number(ckpt__safetensors_reader *r, uint64_t *out) {
    ckpt__json_blanks(&r->json);
    const char *p = r->json.at;
    uint64_t v = 0;
    size_t n = ckpt__json_count_digits(p, r->json.end);
    if (n == 0 || n > 19 || (n > 1 && p[0] == '0')) return ckpt__safetensors_damaged(r, "a whole number below 2^63 is expected");
    for (size_t i = 0; i < n; i++) v = v * 10 + (uint64_t)(p[i] - '0');
    if (v > (uint64_t)INT64_MAX) return ckpt__safetensors_damaged(r, "a whole number below 2^63 is expected");
    r->json.at += n;
    *out = v;
    return CKPT_OK;
}

// __metadata__: text to text, no key twice.
static ckpt_err ckpt__safetensors_read_meta(ckpt__safetensors_reader *r) {
    if (r->has_meta) return ckpt__safetensors_damaged(r, "__metadata__ stands twice");
    if (!ckpt__safetensors_token(r, "{")) return ckpt__safetensors_damaged(r, "__metadata__ is no object");
    r->has_meta = true;
    for (size_t i = 0;; i++) {
        const char *key, *text;
        size_t key_len, len;
        bool more;
        ckpt_err e = ckpt__safetensors_more(r, "}", i, &more);
        if (e != CKPT_OK || !more) return e;
        e = ckpt__safetensors_text(r, &key, &key_len);
        if (e == CKPT_OK && !ckpt__safetensors_token(r, ":")) e = ckpt__safetensors_damaged(r, "a name without ':'");
        if (e == CKPT_OK) e = ckpt__safetensors_text(r, &text, &len);
        ckpt__entry *m = e == CKPT_OK ? ckpt__toc_entry(&r->meta, key, key_len, CKPT_KIND_TEXT) : NULL;
        if (m == NULL) return e == CKPT_OK ? CKPT_NOMEM : e;
        m->text = text;
        m->size = len;
    }
}

// A tensor's description, in whatever order its three members come.
typedef struct ckpt__safetensors_info {
    const ckpt__safetensors_type *type;
    size_t   ndim;
    uint64_t shape[CKPT_MAX_DIMS], elements, begin, end;
} ckpt__safetensors_info;

static ckpt_err ckpt__safetensors_read_shape(ckpt__safetensors_reader *r, ckpt__safetensors_info *info) {
    bool more, empty = false, over = false;
    if (!ckpt__safetensors_token(r, "[")) return ckpt__safetensors_damaged(r, "a shape is no array");
    info->elements = 1;
    for (info->ndim = 0;; info->ndim++) {
        uint64_t n = 0;
        ckpt_err e = ckpt__safetensors_more(r, "]", info->ndim, &more);
        if (e == CKPT_OK && more) e = ckpt__safetensors_number(r, &n);
        if (e != CKPT_OK) return e;
        if (!more) break;
        if (info->ndim < CKPT_MAX_DIMS) info->shape[info->ndim] = n;
        empty = empty || n == 0;
        over = over || (n > 0 && info->elements > (uint64_t)INT64_MAX / 64 / n);
        if (!over && n > 0) info->elements *= n;
    }
    if (over && !empty) return ckpt__safetensors_damaged(r, "a shape has more than 2^63 bits");
    if (empty) info->elements = 0;
    return CKPT_OK;
}

static ckpt_err ckpt__safetensors_read_type(ckpt__safetensors_reader *r, ckpt__safetensors_info *info) {
    const char *text;
    size_t len;
    ckpt_err e = ckpt__safetensors_text(r, &text, &len);
    for (int i = 0; e == CKPT_OK && i < CKPT__SAFETENSORS_TYPES && info->type == NULL; i++) {
        if (strcmp(ckpt__safetensors_types[i].name, text) == 0) info->type = &ckpt__safetensors_types[i];
    }
    if (e != CKPT_OK || info->type != NULL) return e;
    return ckpt__error_set(CKPT_CORRUPT, "the safetensors header names the dtype '%.40s', which is not known", text);
}

static ckpt_err ckpt__safetensors_read_offsets(ckpt__safetensors_reader *r, ckpt__safetensors_info *info) {
    if (!ckpt__safetensors_token(r, "[")) return ckpt__safetensors_damaged(r, "data_offsets is no array");
    ckpt_err e = ckpt__safetensors_number(r, &info->begin);
    if (e == CKPT_OK && !ckpt__safetensors_token(r, ",")) e = ckpt__safetensors_damaged(r, "data_offsets needs two numbers");
    if (e == CKPT_OK) e = ckpt__safetensors_number(r, &info->end);
    if (e == CKPT_OK && !ckpt__safetensors_token(r, "]")) e = ckpt__safetensors_damaged(r, "data_offsets needs two numbers");
    return e;
}

static ckpt_err ckpt__safetensors_read_info(ckpt__safetensors_reader *r, ckpt__safetensors_info *info) {
    static const char *const names[] = { "dtype", "shape", "data_offsets" };
    unsigned seen = 0;
    memset(info, 0, sizeof *info);
    if (!ckpt__safetensors_token(r, "{")) return ckpt__safetensors_damaged(r, "a tensor is no object");
    for (size_t i = 0;; i++) {
        const char *key;
        size_t len;
        bool more;
        ckpt_err e = ckpt__safetensors_more(r, "}", i, &more);
        if (e == CKPT_OK && !more) break;
        if (e == CKPT_OK) e = ckpt__safetensors_text(r, &key, &len);
        if (e == CKPT_OK && !ckpt__safetensors_token(r, ":")) e = ckpt__safetensors_damaged(r, "a name without ':'");
        if (e != CKPT_OK) return e;
        unsigned which = 0;
        while (which < 3 && strcmp(names[which], key) != 0) which++;
        if (which == 3 || (seen & 1u << which) != 0)
            return ckpt__safetensors_damaged(r, "a tensor has an unknown member, or one twice");
        seen |= 1u << which;
        e = which == 0 ? ckpt__safetensors_read_type(r, info)
          : which == 1 ? ckpt__safetensors_read_shape(r, info) : ckpt__safetensors_read_offsets(r, info);
        if (e != CKPT_OK) return e;
    }
    return seen == 7 ? CKPT_OK : ckpt__safetensors_damaged(r, "a tensor lacks its dtype, shape or data_offsets");
}

// Adds a tensor that agrees with itself. One of a type or with more dimensions than this library has is kept as a name.
static ckpt_err ckpt__safetensors_add(ckpt__safetensors_reader *r, const char *name, size_t len,
                                      const ckpt__safetensors_info *info) {
    uint64_t bits = info->elements * info->type->bits, size = bits / 8;
    if (bits % 8 != 0 || info->begin > info->end || info->end - info->begin != size)
        return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' of %llu x %s cannot be the bytes %llu to %llu", name,
                               (unsigned long long)info->elements, info->type->name, (unsigned long long)info->begin,
                               (unsigned long long)info->end);
    if (info->end > r->end)
        return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' ends at byte %llu of the data, but there are %llu", name,
                               (unsigned long long)info->end, (unsigned long long)r->end);
    ckpt__toc *t = r->toc;
    if (ckpt__mem_grow(&t->allocator, (void **)&t->blobs, sizeof *t->blobs, &t->blob_cap, t->blob_count + 1) != CKPT_OK)
        return CKPT_NOMEM;
    bool known = info->type->dtype != (ckpt_dtype)0 && info->ndim <= CKPT_MAX_DIMS;
    ckpt__entry *e = ckpt__toc_entry(t, name, len, known ? CKPT_KIND_TENSOR : CKPT_KIND_OTHER);
    if (e == NULL) return t->count >= (size_t)INT_MAX - 1 ? CKPT_CORRUPT : CKPT_NOMEM;
    e->dtype = info->type->dtype;
    e->ndim = known ? (int)info->ndim : 0;
    int64_t stride = 1;
    for (int i = e->ndim - 1; i >= 0; i--) {
        e->shape[i] = (int64_t)info->shape[i];
        e->stride[i] = stride;
        if (size > 0) stride *= e->shape[i];
    }
    e->offset = r->src->base + r->data + info->begin;
    e->size = size;
    e->blob = (int)t->blob_count++;
    ckpt__blob *b = &t->blobs[e->blob];
    memset(b, 0, sizeof *b);
    b->name = e->name;
    b->offset = e->offset;
    b->size = size;
    return CKPT_OK;
}

static ckpt_err ckpt__safetensors_read_object(ckpt__safetensors_reader *r) {
    if (!ckpt__safetensors_token(r, "{")) return ckpt__safetensors_damaged(r, "it is no object");
    for (size_t i = 0;; i++) {
        ckpt__safetensors_info info;
        const char *name;
        size_t len;
        bool more;
        ckpt_err e = ckpt__safetensors_more(r, "}", i, &more);
        if (e == CKPT_OK && !more) break;
        if (e == CKPT_OK) e = ckpt__safetensors_text(r, &name, &len);
        if (e == CKPT_OK && !ckpt__safetensors_token(r, ":")) e = ckpt__safetensors_damaged(r, "a name without ':'");
        if (e != CKPT_OK) return e;
        if (strcmp(name, ckpt__safetensors_meta) == 0) {
            e = ckpt__safetensors_read_meta(r);
        } else {
            e = ckpt__safetensors_read_info(r, &info);
            if (e == CKPT_OK) e = ckpt__safetensors_add(r, name, len, &info);
        }
        if (e != CKPT_OK) return e;
    }
    ckpt__json_blanks(&r->json);
    return r->json.at == r->json.end ? CKPT_OK : ckpt__safetensors_damaged(r, "more follows the object");
}

typedef struct ckpt__safetensors_place { uint64_t begin, size; int entry; } ckpt__safetensors_place;

static int ckpt__safetensors_place_order(const void *a, const void *b) {
    const ckpt__safetensors_place *x = (const ckpt__safetensors_place *)a, *y = (const ckpt__safetensors_place *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if ((x->size == 0) != (y->size == 0)) return x->size == 0 ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

// Puts the blobs in order of offset, which is not always the header's, and looks for holes and overlaps.
static ckpt_err ckpt__safetensors_settle(ckpt__safetensors_reader *r) {
    ckpt__toc *t = r->toc;
    size_t n = t->count - r->first, room = (n + 1) * sizeof(ckpt__safetensors_place);
    ckpt__safetensors_place *list = (ckpt__safetensors_place *)ckpt__mem_resize(&t->allocator, NULL, 0, room);
    if (list == NULL) return CKPT_NOMEM;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        list[i].begin = t->entries[r->first + i].offset;
        list[i].size = t->entries[r->first + i].size;
        list[i].entry = (int)(r->first + i);
        sorted = sorted && (i == 0 || ckpt__safetensors_place_order(&list[i - 1], &list[i]) < 0);
    }
    if (!sorted) qsort(list, n, sizeof *list, ckpt__safetensors_place_order);
    uint64_t at = r->src->base + r->data;
    const char *wrong = NULL;
    for (size_t i = 0; i < n; i++) {
        ckpt__entry *e = &t->entries[list[i].entry];
        ckpt__blob *b = &t->blobs[r->first_blob + i];
        if (e->offset != at && wrong == NULL) wrong = e->name;
        at = e->offset + e->size;
        e->blob = (int)(r->first_blob + i);
        b->name = e->name;
        b->offset = e->offset;
        b->size = e->size;
    }
    ckpt__mem_free(&t->allocator, list, room);
    if (wrong != NULL) return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' does not begin where the one before it ends", wrong);
    if (at == r->src->base + r->data + r->end) return CKPT_OK;
    return ckpt__error_set(CKPT_CORRUPT, "the file has %llu bytes behind its last tensor",
                           (unsigned long long)(r->src->base + r->data + r->end - at));
}

//-- what this library wrote -----------------------------------------------------

static bool ckpt__safetensors_hex(const char *p, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 8; i++) {
        bool digit = p[i] >= '0' && p[i] <= '9', letter = p[i] >= 'a' && p[i] <= 'f';
        if (!digit && !letter) return false;
        *out = *out << 4 | (uint32_t)(p[i] - (digit ? '0' : 'a' - 10));
    }
    return true;
}

// The header's own sum. Its digits are found in the text as they were written; a header written in another way is not ours.
static ckpt_err ckpt__safetensors_check_header(ckpt__safetensors_reader *r) {
    static const char key[] = "\"ckpt.header_crc32\":\"";
    int at = ckpt__toc_find(&r->meta, "ckpt.header_crc32");
    char *end = r->header.data + r->header.len, *p = r->header.data + 8;
    uint32_t want = 0;
    while (at >= 0 && (p = (char *)memchr(p, '"', (size_t)(end - p))) != NULL && (size_t)(end - p) > sizeof key + 8) {
        if (memcmp(p, key, sizeof key - 1) == 0) break;
        p++;
    }
    bool good = at >= 0 && p != NULL && (size_t)(end - p) > sizeof key + 8 && r->meta.entries[at].size == 8;
    if (good) {
        p += sizeof key - 1;
        good = memcmp(p, r->meta.entries[at].text, 8) == 0 && ckpt__safetensors_hex(p, &want);
    }
    if (good) {
        memset(p, '0', 8);
        good = ckpt__digest_crc32(0, r->header.data, r->header.len) == want;
    }
    return good ? CKPT_OK : ckpt__error_set(CKPT_CORRUPT, "the safetensors header does not have the checksum that it states");
}

static ckpt_err ckpt__safetensors_take_crcs(ckpt__safetensors_reader *r) {
    ckpt__toc *t = r->toc;
    int at = ckpt__toc_find(&r->meta, "ckpt.crc32");
    size_t n = t->blob_count - r->first_blob;
    if (at < 0 || r->meta.entries[at].size != 8 * (uint64_t)n)
        return ckpt__error_set(CKPT_CORRUPT, "ckpt.crc32 is not one sum for each tensor");
    for (size_t i = 0; i < n; i++) {
        ckpt__blob *b = &t->blobs[r->first_blob + i];
        b->has_crc = ckpt__safetensors_hex(r->meta.entries[at].text + 8 * i, &b->crc);
        if (!b->has_crc) return ckpt__error_set(CKPT_CORRUPT, "ckpt.crc32 has no sum for '%s'", b->name);
    }
    return CKPT_OK;
}

static int ckpt__safetensors_name_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Turns the U8 tensors that ckpt.bytes names back into bytes.
static ckpt_err ckpt__safetensors_take_bytes(ckpt__safetensors_reader *r) {
    int at = ckpt__toc_find(&r->meta, "ckpt.bytes");
    if (at < 0) return CKPT_OK;
    ckpt__toc *t = r->toc;
    ckpt__json_doc d;
    ckpt_err e = ckpt__json_parse(&d, &t->allocator, r->meta.entries[at].text, (size_t)r->meta.entries[at].size);
    if (e != CKPT_OK) return e;
    const ckpt__json *root = ckpt__json_root(&d);
    size_t n = 0, room = ((size_t)root->count + 1) * sizeof(const char *);
    const char **names = (const char **)ckpt__mem_resize(&t->allocator, NULL, 0, room);
    for (const ckpt__json *c = ckpt__json_child(&d, root); names != NULL && c != NULL; c = ckpt__json_next(&d, c)) {
        if (c->kind == CKPT__JSON_TEXT) names[n++] = c->text;
    }
    if (names == NULL) e = CKPT_NOMEM;
    else qsort(names, n, sizeof *names, ckpt__safetensors_name_order);
    for (size_t i = r->first; e == CKPT_OK && i < t->count; i++) {
        ckpt__entry *x = &t->entries[i];
        if (x->dtype != CKPT_U8 || x->ndim != 1) continue;
        if (bsearch(&x->name, names, n, sizeof *names, ckpt__safetensors_name_order) == NULL) continue;
        x->kind = CKPT_KIND_BYTES;
        x->ndim = 0;
    }
    ckpt__mem_free(&t->allocator, (void *)(uintptr_t)names, room);
    ckpt__json_free(&d);
    return e;
}

static ckpt_err ckpt__safetensors_take_scalar(ckpt__safetensors_reader *r, const ckpt__entry *m) {
    static const struct { const char *prefix; ckpt_kind kind; } kinds[] = {
        { "ckpt.int:", CKPT_KIND_INT },   { "ckpt.float:", CKPT_KIND_FLOAT },
        { "ckpt.bool:", CKPT_KIND_BOOL }, { "ckpt.text:", CKPT_KIND_TEXT }
    };
    for (int i = 0; i < 4; i++) {
        if (!ckpt__txt_starts(m->name, kinds[i].prefix)) continue;
        const char *name = m->name + strlen(kinds[i].prefix);
        ckpt__view v = { m->text, (size_t)m->size };
        ckpt__entry *e = ckpt__toc_entry(r->toc, name, strlen(name), kinds[i].kind);
        if (e == NULL) return CKPT_NOMEM;
        bool good = true;
        if (e->kind == CKPT_KIND_INT) good = ckpt__txt_int(v, &e->i);
        if (e->kind == CKPT_KIND_FLOAT) good = ckpt__txt_double(v, &e->f);
        if (e->kind == CKPT_KIND_BOOL) good = ckpt__txt_eq(v, "true") || ckpt__txt_eq(v, "false");
        if (e->kind == CKPT_KIND_BOOL) e->i = ckpt__txt_eq(v, "true");
        e->size = e->kind == CKPT_KIND_BOOL ? 1 : 8;
        if (e->kind == CKPT_KIND_TEXT) {
            e->text = ckpt__toc_text(r->toc, m->text, v.n);
            e->size = v.n;
            if (e->text == NULL) return CKPT_NOMEM;
        }
        return good ? CKPT_OK : ckpt__error_set(CKPT_CORRUPT, "the value of '%s' is '%.40s'", name, m->text);
    }
    return CKPT_OK;
}

// Metadata with keys of ours: verify the header, then take what the keys mean. Foreign keys mean nothing here.
static ckpt_err ckpt__safetensors_take_meta(ckpt__safetensors_reader *r) {
    ckpt_err e = ckpt__toc_finish(&r->meta);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "__metadata__");
    bool own = false;
    for (size_t i = 0; i < r->meta.count; i++) own = own || ckpt__txt_starts(r->meta.entries[i].name, "ckpt.");
    if (!own) return CKPT_OK;
    e = ckpt__safetensors_check_header(r);
    if (e == CKPT_OK) e = ckpt__safetensors_take_crcs(r);
    if (e == CKPT_OK) e = ckpt__safetensors_take_bytes(r);
    for (size_t i = 0; i < r->meta.count && e == CKPT_OK; i++) e = ckpt__safetensors_take_scalar(r, &r->meta.entries[i]);
    r->toc->own = e == CKPT_OK;
    return e;
}

static ckpt_err ckpt__safetensors_load(ckpt__safetensors_reader *r) {
    unsigned char length[8];
    size_t got = 0;
    ckpt_err e = ckpt__os_pread(r->src->fd, length, 8, r->src->base, &got, r->src->path);
    if (e != CKPT_OK) return e;
    uint64_t n = got == 8 ? ckpt__mem_le(length, 8) : 0;
    if (r->src->size < 10 || got < 8) return ckpt__error_set(CKPT_CORRUPT, "a .safetensors file is cut off: it has %llu bytes",
                                                             (unsigned long long)r->src->size);
    if (n < 2 || n > CKPT__SAFETENSORS_MAX_HEADER || n > r->src->size - 8)
        return ckpt__error_set(CKPT_CORRUPT, "the safetensors header cannot have %llu bytes (100 MB at most, in a file of %llu)",
                               (unsigned long long)n, (unsigned long long)r->src->size);
    char *p = ckpt__buf_reserve(&r->header, (size_t)n + 8);
    if (p == NULL) return CKPT_NOMEM;
    e = ckpt__os_pread(r->src->fd, p, (size_t)n + 8, r->src->base, &got, r->src->path);
    if (e != CKPT_OK) return e;
    if (got < n + 8) return ckpt__error_set(CKPT_CORRUPT, "the safetensors header is cut off at byte %zu", got);
    r->header.len = (size_t)n + 8;
    if (p[8] != '{') return ckpt__error_set(CKPT_CORRUPT, "the safetensors header does not begin with '{'");
    if (!ckpt__txt_utf8(p + 8, (size_t)n)) return ckpt__error_set(CKPT_CORRUPT, "the safetensors header is not UTF-8");
    r->data = n + 8;
    r->end = r->src->size - r->data;
    r->json.allocator = r->toc->allocator;
    r->json.begin = r->json.at = p + 8;
    r->json.end = p + 8 + n;
    r->json.text_size = (size_t)n + 2;
    r->json.text = (char *)ckpt__mem_resize(&r->toc->allocator, NULL, 0, r->json.text_size);
    if (r->json.text == NULL) r->json.text_size = 0;
    return r->json.text_size > 0 ? CKPT_OK : CKPT_NOMEM;
}

// Lists a .safetensors file, of this library or of any other.
static ckpt_err ckpt__safetensors_read(ckpt__toc *t, const ckpt__source *src) {
    if (!ckpt__safetensors_fits_machine()) return ckpt__safetensors_no_machine();
    ckpt__safetensors_reader r;
    memset(&r, 0, sizeof r);
    r.toc = t;
    r.src = src;
    r.first = t->count;
    r.first_blob = t->blob_count;
    ckpt__buf_init(&r.header, &t->allocator);
    ckpt__toc_init(&r.meta, &t->allocator);
    ckpt_err e = ckpt__safetensors_load(&r);
    if (e == CKPT_OK) e = ckpt__safetensors_read_object(&r);
    if (e == CKPT_OK) e = ckpt__safetensors_settle(&r);
    if (e == CKPT_OK) e = ckpt__safetensors_take_meta(&r);
    ckpt__toc_free(&r.meta);
    ckpt__json_free(&r.json);
    ckpt__buf_free(&r.header);
    return e;
}

//------------------------------------------------------------------------------
// >>tar        [I]  a container and attached files in one tar
//
// uses:    error memory platform text digest state plan
// threads: whoever owns the plan or the toc
//
// Written: ustar with pax headers (POSIX.1-2008, pax, "ustar Interchange Format"): the container first, its data at byte
// 4096 so that its own alignment holds, then the attached files, then .ckpt-sums:
//     5f6e7d8c 0 4096 head                          CRC-32, offset and size of a range, what it is
//     -------- 4096 123456 self composer_states.pt  a container checks itself
//     0a1b2c3d 127976 1048 head
//     8899aabb 129024 500 file vocab.json
//     end 1a2b3c4d                                  of all that follows the last range, these digits taken as zeros
// The ranges follow each other from byte 0 on, so a changed byte anywhere is found. Equal states are equal files: the
// times in the headers are constant.
// Read: what tar and Python's tarfile write (ustar, pax, GNU long names). Links, devices, absolute names and ".." are
// refused whoever wrote them (SPEC 10, defect 52); nothing is ever unpacked by name.
//------------------------------------------------------------------------------

enum {
    CKPT__TAR_BLOCK = 512,
    CKPT__TAR_LEAD = 4096,          // bytes before the container: a pax header with a filler, and its own header
    CKPT__TAR_TIME = 315532800,     // 1980-01-01, as torch writes into its zips; tar warns about 1970
    CKPT__TAR_MAX_META = 1 << 20    // bytes of a pax header or long name
};

static const char *const ckpt__tar_sums = ".ckpt-sums";
static const char *const ckpt__tar_mark = "ckpt.h";     // our first comment begins with it

static uint64_t ckpt__tar_round(uint64_t size) {
    return (size + CKPT__TAR_BLOCK - 1) / CKPT__TAR_BLOCK * CKPT__TAR_BLOCK;
}

//-- writing ---------------------------------------------------------------------

// Octal digits and a NUL; GNU's base 256 where they do not suffice, for readers that know no pax size.
static void ckpt__tar_put(unsigned char *field, int width, uint64_t value) {
    if (value >> 3 * (width - 1) == 0) {
        field[width - 1] = 0;
        for (int i = width - 2; i >= 0; i--, value >>= 3) field[i] = (unsigned char)('0' + (value & 7));
        return;
    }
    for (int i = width - 1; i > 0; i--, value >>= 8) field[i] = (unsigned char)(value & 255);
    field[0] = 0x80;
}

// One header block. A name that does not fit is cut: a pax header says it in full.
static void ckpt__tar_add_header(ckpt__buf *b, const char *name, uint64_t size, char type) {
    unsigned char h[CKPT__TAR_BLOCK];
    memset(h, 0, sizeof h);
    size_t n = strlen(name);
    memcpy(h, name, n < 100 ? n : 100);
    ckpt__tar_put(h + 100, 8, 0644);
    ckpt__tar_put(h + 108, 8, 0);
    ckpt__tar_put(h + 116, 8, 0);
    ckpt__tar_put(h + 124, 12, size);
    ckpt__tar_put(h + 136, 12, CKPT__TAR_TIME);
    memset(h + 148, ' ', 8);
    h[156] = (unsigned char)type;
    memcpy(h + 257, "ustar\0" "00", 8);
    unsigned sum = 0;
    for (int i = 0; i < CKPT__TAR_BLOCK; i++) sum += h[i];
    ckpt__tar_put(h + 148, 7, sum);
    ckpt__buf_add(b, h, sizeof h);
}

static void ckpt__tar_pad(ckpt__buf *b, uint64_t size) {
    ckpt__buf_fill(b, 0, (size_t)(ckpt__tar_round(size) - size));
}

// "LEN key=value\n", where LEN counts itself.
static void ckpt__tar_add_record(ckpt__buf *b, const char *key, const char *value) {
    size_t rest = strlen(key) + strlen(value) + 3, digits = 1;
    while (snprintf(NULL, 0, "%zu", rest + digits) != (int)digits) digits++;
    ckpt__buf_fmt(b, "%zu %s=%s\n", rest + digits, key, value);
}

// The header of a member, behind a pax header when its name or its size needs one.
static void ckpt__tar_add_member(ckpt__buf *b, const char *name, uint64_t size) {
    ckpt__buf records;
    ckpt__buf_init(&records, &b->allocator);
    bool plain = strlen(name) <= 100;
    for (const char *p = name; *p != 0; p++) plain = plain && (unsigned char)*p < 0x80;
    if (!plain) ckpt__tar_add_record(&records, "path", name);
    if (size >> 33 != 0) {
        char text[24];
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)size);
        ckpt__tar_add_record(&records, "size", text);
    }
    if (records.len > 0) {
        ckpt__tar_add_header(b, "././@PaxHeader", records.len, 'x');
        ckpt__buf_add(b, records.data, records.len);
        ckpt__tar_pad(b, records.len);
    }
    ckpt__tar_add_header(b, name, size, '0');
    if (b->err == CKPT_OK) b->err = records.err;
    ckpt__buf_free(&records);
}

// The first 4096 bytes: a pax header whose comment fills them up, and the container's header.
static void ckpt__tar_add_lead(ckpt__buf *b, const char *member, uint64_t size) {
    enum { ROOM = CKPT__TAR_LEAD - 2 * CKPT__TAR_BLOCK };
    char text[ROOM], number[24];
    size_t used = 0;
    ckpt__tar_add_header(b, "././@PaxHeader", ROOM, 'x');
    if (size >> 33 != 0) {
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)size);
        size_t start = b->len;
        ckpt__tar_add_record(b, "size", number);
        used = b->len - start;
    }
    size_t len = ROOM - used - strlen("3072 comment=\n");
    int n = snprintf(text, sizeof text, "%s 1 sums=%s; the rest of this comment aligns the data to 4096",
                     ckpt__tar_mark, ckpt__tar_sums);
    memset(text + n, ' ', len - (size_t)n);
    text[len] = 0;
    ckpt__tar_add_record(b, "comment", text);
    ckpt__tar_add_header(b, member, size, '0');
}

// May a member have this name? Returns what is wrong with it, NULL when nothing is.
static const char *ckpt__tar_bad_name(const char *name, size_t n) {
    if (n == 0) return "is empty";
    if (name[0] == '/') return "is absolute";
    if (!ckpt__txt_utf8(name, n)) return "is not UTF-8";
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F) return "has control characters";
    }
    for (size_t i = 0, end; i <= n; i = end + 1) {
        end = i;
        while (end < n && name[end] != '/') end++;
        if (end - i == 2 && name[i] == '.' && name[i + 1] == '.') return "climbs with '..'";
    }
    return NULL;
}

static ckpt_err ckpt__tar_check_name(const char *name, const char *member) {
    const char *why = ckpt__tar_bad_name(name, strlen(name));
    size_t n = strcspn(name, "/");
    if (why == NULL && name[strlen(name) - 1] == '/') why = "ends with '/'";
    if (why == NULL && n == strlen(member) && memcmp(name, member, n) == 0) why = "is the container's own";
    if (why == NULL && n == strlen(ckpt__tar_sums) && memcmp(name, ckpt__tar_sums, n) == 0) why = "is that of the sums";
    return why == NULL ? CKPT_OK : ckpt__error_set(CKPT_ARG, "cannot attach a file as '%s': the name %s", name, why);
}

// Makes room for the headers of the container, whose plan comes next. The tar must begin the plan.
static ckpt_err ckpt__tar_plan_begin(ckpt__plan *p) {
    static const char room[CKPT__TAR_LEAD] = { 0 };
    CKPT_ASSERT(p->size == 0);
    int blob = ckpt__plan_blob(p, "the headers of the tar");
    if (blob >= 0) ckpt__plan_bytes(p, room, sizeof room, blob);
    return p->err;
}

static void ckpt__tar_plan_add(ckpt__plan *p, ckpt__buf *b, const char *name) {
    if (b->err != CKPT_OK && p->err == CKPT_OK) p->err = b->err;
    int blob = ckpt__plan_blob(p, name);
    if (blob >= 0) ckpt__plan_bytes(p, b->data, b->len, blob);
    b->len = 0;
}

// Adds the bound files. `list` gets a line for each range.
static ckpt_err ckpt__tar_plan_files(ckpt__plan *p, ckpt__buf *list, const char *member,
                                     const ckpt__binding *items, size_t count) {
    ckpt__buf head;
    ckpt__buf_init(&head, &p->allocator);
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < count && e == CKPT_OK; i++) {
        if (items[i].kind != CKPT_KIND_FILE) continue;
        ckpt__os_info info;
        memset(&info, 0, sizeof info);
        const char *name = ckpt__state_canonical_of(&items[i]), *path = (const char *)items[i].data;
        e = ckpt__tar_check_name(name, member);
        if (e == CKPT_OK) e = ckpt__os_stat(path, &info);
        if (e == CKPT_OK && !info.is_file) e = ckpt__error_set(CKPT_ARG, "cannot attach %s: it is no regular file", path);
        if (e != CKPT_OK) break;
        uint64_t start = p->size;
        ckpt__tar_pad(&head, start);
        ckpt__tar_add_member(&head, name, info.size);
        ckpt__tar_plan_add(p, &head, "the headers of the tar");
        ckpt__buf_fmt(list, "00000000 %llu %llu head\n", (unsigned long long)start, (unsigned long long)(p->size - start));
        ckpt__buf_fmt(list, "00000000 %llu %llu file %s\n", (unsigned long long)p->size, (unsigned long long)info.size, name);
        int blob = ckpt__plan_blob(p, name);
        if (blob >= 0) ckpt__plan_data(p, CKPT__SEG_FILE, path, info.size, blob);
        e = p->err;
    }
    ckpt__buf_free(&head);
    return e;
}

// The last member: all lines of `list`, which the checksums of the blobs from `blob` on belong to, and the tar's end.
static void ckpt__tar_plan_close(ckpt__plan *p, ckpt__buf *list, int blob) {
    ckpt__buf b;
    ckpt__buf_init(&b, &p->allocator);
    ckpt__buf_text(list, "end 00000000\n");
    ckpt__tar_pad(&b, p->size);
    ckpt__tar_add_member(&b, ckpt__tar_sums, list->len);
    size_t text = b.len;
    ckpt__buf_add(&b, ckpt__buf_cstr(list), list->len);
    ckpt__tar_pad(&b, list->len);
    ckpt__buf_fill(&b, 0, 2 * CKPT__TAR_BLOCK);
    if (p->err == CKPT_OK) p->err = list->err != CKPT_OK ? list->err : b.err;
    if (p->err == CKPT_OK) {
        size_t seg = p->seg_count, at = ckpt__plan_late_bytes(p, b.data, b.len, CKPT__LATE_ALL) + text;
        ckpt__plan_fixup(p, at, 0, true, 0);
        for (const char *line = list->data; (line = strchr(line, '\n') + 1) < list->data + list->len;) {
            if (line[0] == '0') ckpt__plan_fixup(p, at + (size_t)(line - list->data), blob++, true, 0);
        }
        ckpt__plan_fixup(p, at + list->len - 9, CKPT__FIXUP_STRUCTURE, true, seg);
    }
    ckpt__buf_free(&b);
}

// Fills in the headers of the container, which is called `member`, and adds what follows it.
static ckpt_err ckpt__tar_plan_end(ckpt__plan *p, const char *member, const ckpt__binding *items, size_t count) {
    ckpt__buf lead, list;
    ckpt__buf_init(&lead, &p->allocator);
    ckpt__buf_init(&list, &p->allocator);
    uint64_t size = p->size - CKPT__TAR_LEAD;
    ckpt__tar_add_lead(&lead, member, size);
    if (p->err == CKPT_OK) p->err = lead.err;
    if (p->err == CKPT_OK) {
        CKPT_ASSERT(lead.len == CKPT__TAR_LEAD);
        memcpy(p->bytes.data, lead.data, CKPT__TAR_LEAD);
    }
    ckpt__buf_fmt(&list, "00000000 0 %d head\n-------- %d %llu self %s\n", (int)CKPT__TAR_LEAD, (int)CKPT__TAR_LEAD,
                  (unsigned long long)size, member);
    int blob = (int)p->blob_count;
    ckpt_err e = p->err == CKPT_OK ? ckpt__tar_plan_files(p, &list, member, items, count) : p->err;
    if (e == CKPT_OK) ckpt__tar_plan_close(p, &list, blob);
    ckpt__buf_free(&lead);
    ckpt__buf_free(&list);
    return e == CKPT_OK ? p->err : e;
}

//-- reading ---------------------------------------------------------------------

typedef struct ckpt__tar_member { const char *name; uint64_t offset, size; } ckpt__tar_member;     // offset in the tar

typedef struct ckpt__tar_reader {
    const ckpt__source *src;
    ckpt__toc          *toc;
    ckpt__tar_member   *members;
    size_t              count, cap;
    ckpt__buf           path;           // for the next member, from a pax header or a GNU long name; empty: none
    uint64_t            pax_size;       // UINT64_MAX: none
    uint64_t            at;
} ckpt__tar_reader;

static ckpt_err ckpt__tar_load(const ckpt__tar_reader *r, void *dst, uint64_t at, size_t size) {
    size_t got = 0;
    if (at > r->src->size || size > r->src->size - at) return ckpt__error_set(CKPT_CORRUPT, "the tar is cut off at byte %llu",
                                                                            (unsigned long long)r->src->size);
    ckpt_err e = ckpt__os_pread(r->src->fd, dst, size, r->src->base + at, &got, r->src->path);
    if (e != CKPT_OK || got == size) return e;
    return ckpt__error_set(CKPT_CORRUPT, "the tar is cut off at byte %llu", (unsigned long long)(at + got));
}

static ckpt_err ckpt__tar_load_buf(const ckpt__tar_reader *r, ckpt__buf *b, uint64_t at, size_t size) {
    b->len = 0;
    if (at > r->src->size || size > r->src->size - at) return ckpt__tar_load(r, NULL, at, size);
    char *p = ckpt__buf_reserve(b, size);
    if (p == NULL) return b->err;
    b->len = size;
    p[size] = 0;
    return ckpt__tar_load(r, p, at, size);
}

// A number of a header: octal with blanks around it, or GNU's base 256.
static bool ckpt__tar_get(const unsigned char *field, int width, uint64_t *out) {
    uint64_t v = 0;
    int i = 0, digits = 0;
    if (field[0] == 0x80) {
        for (i = 1; i < width; i++) {
            if (v >> 55 != 0) return false;
            v = v << 8 | field[i];
        }
        *out = v;
        return true;
    }
    while (i < width && field[i] == ' ') i++;
    for (; i < width && field[i] >= '0' && field[i] <= '7'; i++, digits++) {
        if (v >> 60 != 0) return false;
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    for (; i < width; i++) {
        if (field[i] != ' ' && field[i] != 0) return false;
    }
    *out = v;
    return digits > 0;
}

// The sum of a header with its own field taken as blanks; some old tars summed signed bytes.
static bool ckpt__tar_sum_holds(const unsigned char *h) {
    uint64_t want;
    unsigned sum = 8 * ' ';
    int odd = 8 * ' ';
    for (int i = 0; i < CKPT__TAR_BLOCK; i++) {
        if (i >= 148 && i < 156) continue;
        sum += h[i];
        odd += h[i] < 128 ? h[i] : h[i] - 256;
    }
    return ckpt__tar_get(h + 148, 8, &want) && (want == sum || (odd >= 0 && want == (unsigned)odd));
}

// One pax record: the name and the size of the next member matter here.
static ckpt_err ckpt__tar_record(ckpt__tar_reader *r, const char *key, ckpt__view value, bool global) {
    if (strncmp(key, "GNU.sparse", 10) == 0) return ckpt__error_set(CKPT_UNSUPPORTED, "the tar holds a sparse file");
    bool path = strcmp(key, "path") == 0, size = strcmp(key, "size") == 0;
    if ((path || size) && global) return ckpt__error_set(CKPT_CORRUPT, "the tar gives all its members one %s", key);
    if (path) {
        r->path.len = 0;
        ckpt__buf_add(&r->path, value.p, value.n);
        if (value.n == 0 || memchr(value.p, 0, value.n) != NULL)
            return ckpt__error_set(CKPT_CORRUPT, "a name in the tar is damaged");
    }
    int64_t n = 0;
    if (size && (!ckpt__txt_int(value, &n) || n < 0)) return ckpt__error_set(CKPT_CORRUPT, "a size in the tar is damaged");
    if (size) r->pax_size = (uint64_t)n;
    if (strcmp(key, "comment") == 0 && r->at == 0 && value.n > 7 && memcmp(value.p, ckpt__tar_mark, 6) == 0 && value.p[6] == ' ')
        r->toc->own = true;
    return r->path.err;
}

// The records of a pax header: "LEN key=value\n" each.
static ckpt_err ckpt__tar_pax(ckpt__tar_reader *r, ckpt__buf *b, bool global) {
    for (size_t at = 0; at < b->len;) {
        char *p = b->data + at;
        size_t n = 0, digits = 0;
        for (; digits < 8 && p[digits] >= '0' && p[digits] <= '9'; digits++) n = n * 10 + (size_t)(p[digits] - '0');
        bool good = digits > 0 && p[digits] == ' ' && n <= b->len - at && n > digits + 2 && p[n - 1] == '\n';
        char *equal = good ? (char *)memchr(p + digits + 1, '=', n - digits - 2) : NULL;
        if (equal == NULL) return ckpt__error_set(CKPT_CORRUPT, "a pax header of the tar is damaged");
        *equal = 0;
        ckpt__view value = { equal + 1, (size_t)(p + n - 1 - (equal + 1)) };
        ckpt_err e = ckpt__tar_record(r, p + digits + 1, value, global);
        if (e != CKPT_OK) return e;
        at += n;
    }
    return CKPT_OK;
}

// A header that describes the next one.
static ckpt_err ckpt__tar_meta(ckpt__tar_reader *r, char type, uint64_t size) {
    if (size > CKPT__TAR_MAX_META)
        return ckpt__error_set(CKPT_CORRUPT, "the tar has a header of %llu bytes", (unsigned long long)size);
    ckpt__buf b;
    ckpt__buf_init(&b, &r->toc->allocator);
    ckpt_err e = ckpt__tar_load_buf(r, &b, r->at + CKPT__TAR_BLOCK, (size_t)size);
    if (e == CKPT_OK && (type == 'x' || type == 'X' || type == 'g')) e = ckpt__tar_pax(r, &b, type == 'g');
    if (e == CKPT_OK && type == 'L') {
        r->path.len = 0;
        ckpt__buf_add(&r->path, b.data, strlen(b.data));
        e = r->path.err;
    }
    ckpt__buf_free(&b);
    return e;
}

// The member's name without "./" and empty levels; into r->path.
static ckpt_err ckpt__tar_name(ckpt__tar_reader *r, const unsigned char *h) {
    if (r->path.len == 0) {
        const char *name = (const char *)h, *prefix = (const char *)h + 345;
        const void *name_end = memchr(name, 0, 100), *prefix_end = memchr(prefix, 0, 155);
        size_t prefix_len = prefix_end != NULL ? (size_t)((const char *)prefix_end - prefix) : 155;
        if (prefix_len > 0 && memcmp(h + 257, "ustar\0", 6) == 0) {
            ckpt__buf_add(&r->path, prefix, prefix_len);
            ckpt__buf_byte(&r->path, '/');
        }
        ckpt__buf_add(&r->path, name, name_end != NULL ? (size_t)((const char *)name_end - name) : 100);
    }
    // Composer packs a folder under the name "", of which Python's tarfile makes "/".
    if (h[156] == '5' && r->path.len == 1 && r->path.data[0] == '/') r->path.data[0] = '.';
    const char *why = r->path.err != CKPT_OK ? NULL : ckpt__tar_bad_name(r->path.data, r->path.len);
    if (why != NULL) return ckpt__error_set(CKPT_CORRUPT, "the tar is refused: the name of its member at byte %llu %s",
                                            (unsigned long long)r->at, why);
    char *p = r->path.data;
    size_t n = 0;
    for (size_t i = 0, end; r->path.err == CKPT_OK && i < r->path.len; i = end + 1) {
        end = i;
        while (end < r->path.len && p[end] != '/') end++;
        if (end == i || (end == i + 1 && p[i] == '.')) continue;
        if (n > 0) p[n++] = '/';
        memmove(p + n, p + i, end - i);
        n += end - i;
    }
    r->path.len = n;
    return r->path.err;
}

static ckpt_err ckpt__tar_add_file(ckpt__tar_reader *r, uint64_t size) {
    ckpt_err e = ckpt__mem_grow(&r->toc->allocator, (void **)&r->members, sizeof *r->members, &r->cap, r->count + 1);
    if (e != CKPT_OK) return e;
    ckpt__tar_member *m = &r->members[r->count];
    m->name = ckpt__toc_text(r->toc, r->path.data, r->path.len);
    if (m->name == NULL) return CKPT_NOMEM;
    m->offset = r->at + CKPT__TAR_BLOCK;
    m->size = size;
    r->count++;
    return CKPT_OK;
}

// A header that is no description of another. Sets *size to what follows it.
static ckpt_err ckpt__tar_entry(ckpt__tar_reader *r, const unsigned char *h, uint64_t *size) {
    char type = (char)h[156];
    ckpt_err e = ckpt__tar_name(r, h);
    if (e != CKPT_OK) return e;
    const char *name = ckpt__buf_cstr(&r->path);
    if (r->pax_size != UINT64_MAX) *size = r->pax_size;
    size_t raw = strlen((const char *)h) < 100 ? strlen((const char *)h) : 100;
    if (type == 0 && raw > 0 && h[raw - 1] == '/') type = '5';         // how tars before POSIX mark a folder
    if (type >= '1' && type <= '6' && type != '5')
        return ckpt__error_set(CKPT_CORRUPT, "the tar is refused: '%s' is a %s", name, type < '3' ? "link" : "device");
    if (type != 0 && type != '0' && type != '7' && type != '5')
        return ckpt__error_set(CKPT_UNSUPPORTED, "the tar holds '%s', a member of the unknown type 0x%02x", name, h[156]);
    if (*size > r->src->size - r->at - CKPT__TAR_BLOCK && type != '5')
        return ckpt__error_set(CKPT_CORRUPT, "the tar is cut off inside '%s'", name);
    if (type != '5' && r->path.len == 0) return ckpt__error_set(CKPT_CORRUPT, "the tar holds a file without a name");
    if (type == '5') *size = 0;
    e = type == '5' ? r->path.err : ckpt__tar_add_file(r, *size);
    r->path.len = 0;
    r->pax_size = UINT64_MAX;
    return e;
}

// All headers up to the block of zeros that ends a tar.
static ckpt_err ckpt__tar_walk(ckpt__tar_reader *r) {
    unsigned char h[CKPT__TAR_BLOCK];
    for (;;) {
        ckpt_err e = ckpt__tar_load(r, h, r->at, sizeof h);
        if (e != CKPT_OK) return e;
        bool zero = h[0] == 0;
        for (int i = 1; i < CKPT__TAR_BLOCK && zero; i++) zero = h[i] == 0;
        if (zero) return CKPT_OK;
        uint64_t size;
        if (!ckpt__tar_sum_holds(h) || !ckpt__tar_get(h + 124, 12, &size))
            return ckpt__error_set(CKPT_CORRUPT, "the tar's header at byte %llu is damaged", (unsigned long long)r->at);
        bool meta = h[156] != 0 && strchr("xXgLK", h[156]) != NULL;
        e = meta ? ckpt__tar_meta(r, (char)h[156], size) : ckpt__tar_entry(r, h, &size);
        if (e != CKPT_OK) return e;
        r->at += CKPT__TAR_BLOCK + ckpt__tar_round(size);
    }
}

// The index of the container: Composer's name, else the only .pt or .safetensors file.
static ckpt_err ckpt__tar_find(const ckpt__tar_reader *r, size_t *out) {
    size_t exact = 0, other = 0, at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const char *name = r->members[i].name;
        bool fits = ckpt__txt_ends(name, ".pt") || ckpt__txt_ends(name, ".safetensors");
        bool is = strcmp(name, "composer_states.pt") == 0 || strcmp(name, "composer_states.safetensors") == 0;
        if (is || (fits && exact == 0)) at = i;
        exact += is;
        other += fits;
    }
    *out = at;
    if (exact == 1 || (exact == 0 && other == 1)) return CKPT_OK;
    if (other == 0)
        return ckpt__error_set(CKPT_CORRUPT, "the tar holds no composer_states.pt and no other .pt or .safetensors file");
    return ckpt__error_set(CKPT_CORRUPT, "the tar holds %s", exact > 1 ? "composer_states twice"
                           : "several .pt or .safetensors files and none is called composer_states.pt");
}

//-- sums ------------------------------------------------------------------------

typedef struct ckpt__tar_line { uint32_t crc; bool has_crc; uint64_t offset, size; const char *what, *name; } ckpt__tar_line;

static bool ckpt__tar_hex(const char *p, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 8; i++) {
        bool digit = p[i] >= '0' && p[i] <= '9', letter = p[i] >= 'a' && p[i] <= 'f';
        if (!digit && !letter) return false;
        *out = *out << 4 | (uint32_t)(p[i] - (digit ? '0' : 'a' - 10));
    }
    return true;
}

// Cuts "CRC OFFSET SIZE WHAT [NAME]" in place.
static bool ckpt__tar_cut(char *line, ckpt__tar_line *out) {
    char *field[5] = { line, NULL, NULL, NULL, NULL };
    for (int i = 1; i < 5 && field[i - 1] != NULL; i++) {
        field[i] = strchr(field[i - 1], ' ');
        if (field[i] != NULL) *field[i]++ = 0;
    }
    int64_t offset = 0, size = 0;
    if (field[3] == NULL || strlen(field[0]) != 8) return false;
    if (!ckpt__txt_int(ckpt__txt_view(field[1]), &offset) || !ckpt__txt_int(ckpt__txt_view(field[2]), &size)) return false;
    out->has_crc = ckpt__tar_hex(field[0], &out->crc);
    out->offset = (uint64_t)offset;
    out->size = (uint64_t)size;
    out->what = field[3];
    out->name = field[4] != NULL ? field[4] : "";
    return offset >= 0 && size >= 0;
}

static ckpt_err ckpt__tar_check_head(const ckpt__tar_reader *r, const ckpt__tar_line *line) {
    ckpt__buf b;
    ckpt__buf_init(&b, &r->toc->allocator);
    bool good = line->has_crc && line->size <= 2 * CKPT__TAR_MAX_META;
    ckpt_err e = good ? ckpt__tar_load_buf(r, &b, line->offset, (size_t)line->size) : CKPT_OK;
    good = good && e == CKPT_OK && ckpt__digest_crc32(0, b.data, b.len) == line->crc;
    ckpt__buf_free(&b);
    if (e != CKPT_OK || good) return e;
    return ckpt__error_set(CKPT_CORRUPT, "the tar's headers at byte %llu are damaged", (unsigned long long)line->offset);
}

// A line about a member's data: it must be the next one. A file's sum goes into its blob.
static bool ckpt__tar_check_member(const ckpt__tar_reader *r, const ckpt__tar_line *line, size_t *next, size_t inner,
                                   uint32_t *crcs) {
    if (*next >= r->count) return false;
    const ckpt__tar_member *m = &r->members[*next];
    bool self = *next == inner;
    if (strcmp(line->what, self ? "self" : "file") != 0 || strcmp(line->name, m->name) != 0) return false;
    crcs[(*next)++] = line->crc;
    return line->offset == m->offset && line->size == m->size && (self || line->has_crc);
}

// Reads the lines. They must cover the tar from its beginning to *end, where the closing part begins.
static ckpt_err ckpt__tar_check_lines(const ckpt__tar_reader *r, char *text, size_t inner, uint32_t *crcs, uint64_t *end) {
    size_t next = 0;
    *end = 0;
    while (text[0] != 0) {
        ckpt__tar_line line;
        char *stop = strchr(text, '\n');
        if (stop == NULL) break;
        *stop = 0;
        if (strncmp(text, "end ", 4) == 0 && stop[1] == 0 && next + 1 == r->count) return CKPT_OK;
        if (!ckpt__tar_cut(text, &line) || line.offset != *end || line.size > r->src->size - line.offset) break;
        *end += line.size;
        if (strcmp(line.what, "head") == 0) {
            ckpt_err e = ckpt__tar_check_head(r, &line);
            if (e != CKPT_OK) return e;
        } else if (!ckpt__tar_check_member(r, &line, &next, inner, crcs)) {
            break;
        }
        text = stop + 1;
    }
    return ckpt__error_set(CKPT_CORRUPT, "%s in the tar is damaged, or the tar was changed", ckpt__tar_sums);
}

// Everything behind the last range, up to the end of the file, has one sum, which stands in it.
static ckpt_err ckpt__tar_check_end(const ckpt__tar_reader *r, uint64_t begin, uint64_t digits) {
    ckpt__buf b;
    uint32_t want;
    ckpt__buf_init(&b, &r->toc->allocator);
    ckpt_err e = ckpt__tar_load_buf(r, &b, begin, (size_t)(r->src->size - begin));
    bool good = e == CKPT_OK && ckpt__tar_hex(b.data + (digits - begin), &want);
    if (good) {
        memset(b.data + (digits - begin), '0', 8);
        good = ckpt__digest_crc32(0, b.data, b.len) == want;
    }
    ckpt__buf_free(&b);
    if (e != CKPT_OK || good) return e;
    return ckpt__error_set(CKPT_CORRUPT, "the end of the tar, behind byte %llu, is damaged", (unsigned long long)begin);
}

// Verifies a tar of this library, and takes the sums of its files.
static ckpt_err ckpt__tar_check(const ckpt__tar_reader *r, size_t inner, uint32_t *crcs) {
    const ckpt__tar_member *m = &r->members[r->count - 1];
    if (strcmp(m->name, ckpt__tar_sums) != 0 || inner != 0)
        return ckpt__error_set(CKPT_CORRUPT, "the tar does not end with %s: it was cut off, or changed", ckpt__tar_sums);
    uint64_t limit = 256 + (uint64_t)r->count * (2 * (uint64_t)CKPT__TAR_MAX_META), begin = 0, last = m->offset + m->size;
    if (m->size < 13 || m->size > limit || r->src->size - last > 64 * CKPT__TAR_BLOCK)
        return ckpt__error_set(CKPT_CORRUPT, "%s in the tar has an impossible size", ckpt__tar_sums);
    ckpt__buf text;
    ckpt__buf_init(&text, &r->toc->allocator);
    ckpt_err e = ckpt__tar_load_buf(r, &text, m->offset, (size_t)m->size);
    if (e == CKPT_OK) e = ckpt__tar_check_lines(r, text.data, inner, crcs, &begin);
    bool near_enough = e != CKPT_OK || (begin <= m->offset && m->offset - begin <= 4 * CKPT__TAR_BLOCK);
    ckpt__buf_free(&text);
    if (!near_enough) return ckpt__error_set(CKPT_CORRUPT, "%s in the tar does not cover all of it", ckpt__tar_sums);
    return e == CKPT_OK ? ckpt__tar_check_end(r, begin, last - 9) : e;
}

// Adds a file to the table of contents.
static ckpt_err ckpt__tar_list(const ckpt__tar_reader *r, const ckpt__tar_member *m, const uint32_t *crc) {
    ckpt__toc *t = r->toc;
    ckpt_err e = ckpt__mem_grow(&t->allocator, (void **)&t->blobs, sizeof *t->blobs, &t->blob_cap, t->blob_count + 1);
    ckpt__entry *entry = e == CKPT_OK ? ckpt__toc_entry(t, m->name, strlen(m->name), CKPT_KIND_FILE) : NULL;
    if (entry == NULL) return e == CKPT_OK ? CKPT_NOMEM : e;
    ckpt__blob *b = &t->blobs[t->blob_count];
    b->name = entry->name;
    b->offset = entry->offset = r->src->base + m->offset;
    b->size = entry->size = m->size;
    b->has_crc = crc != NULL;
    b->crc = crc != NULL ? *crc : 0;
    entry->blob = (int)t->blob_count++;
    return CKPT_OK;
}

static ckpt_err ckpt__tar_finish(ckpt__tar_reader *r, ckpt__source *inner) {
    size_t at;
    ckpt_err e = ckpt__tar_find(r, &at);
    if (e != CKPT_OK) return e;
    uint32_t *crcs = (uint32_t *)ckpt__mem_alloc(&r->toc->allocator, r->count * sizeof *crcs);
    if (crcs == NULL) return CKPT_NOMEM;
    bool own = r->toc->own || strcmp(r->members[r->count - 1].name, ckpt__tar_sums) == 0;
    if (own) e = ckpt__tar_check(r, at, crcs);
    for (size_t i = 0; i < r->count && e == CKPT_OK; i++) {
        if (i != at && !(own && i + 1 == r->count)) e = ckpt__tar_list(r, &r->members[i], own ? &crcs[i] : NULL);
    }
    ckpt__mem_free(&r->toc->allocator, crcs, r->count * sizeof *crcs);
    inner->fd = r->src->fd;
    inner->path = r->src->path;
    inner->base = r->src->base + r->members[at].offset;
    inner->size = r->members[at].size;
    return e;
}

// Lists the attached files and finds the container, which its own reader is to read next from `inner`.
static ckpt_err ckpt__tar_read(ckpt__toc *t, const ckpt__source *src, ckpt__source *inner) {
    ckpt__tar_reader r;
    memset(&r, 0, sizeof r);
    r.src = src;
    r.toc = t;
    r.pax_size = UINT64_MAX;
    ckpt__buf_init(&r.path, &t->allocator);
    ckpt_err e = ckpt__tar_walk(&r);
    if (e == CKPT_OK) e = ckpt__tar_finish(&r, inner);
    ckpt__buf_free(&r.path);
    ckpt__mem_free(&t->allocator, r.members, r.cap * sizeof *r.members);
    return e;
}

//------------------------------------------------------------------------------
// >>codec      [J]  compression streams: by the usual command line tool, or by a library in-process
//
// uses:    error memory platform text
// threads: a stream belongs to one thread; a tool runs as a child process beside it
// states:  writer: open -> written to -> finished or aborted; an abort after a finish does nothing
//
// The names and the tools are Composer's (SPEC 1.7). Levels are the fastest ones, because weights are nearly random:
// of 1 GiB of float32, zstd 1 leaves 92 % and zstd 19 hardly less, at a fiftieth of the speed. Every format that has
// a checksum of its content gets it; .lzma has none, and there damage is found by the container inside.
// Several streams in one file are decoded one after the other, as the tools do (pzstd and pbzip2 write such files): the
// container refuses what is behind its own end. Anything else behind a stream is damage.
//------------------------------------------------------------------------------

#if defined(CKPT_WITH_ZLIB)
    #include <zlib.h>
#endif
#if defined(CKPT_WITH_BZIP2)
    #include <bzlib.h>
#endif
#if defined(CKPT_WITH_LZ4)
    #include <lz4frame.h>
#endif
#if defined(CKPT_WITH_LZMA)
    #include <lzma.h>
#endif
#if defined(CKPT_WITH_ZSTD)
    #include <zstd.h>
#endif

enum { CKPT__CODEC_BLOCK = 1 << 18 };       // bytes that are read, coded and written at a time

// One step of an in-process coder: takes from `in`, fills `out`, moves both. `last`: no input follows.
// `done`: the stream is complete; a coder that is done is not called again.
typedef struct ckpt__codec_step {
    const unsigned char *in;
    size_t               in_size;
    unsigned char       *out;
    size_t               out_size;
    bool                 last, done;
} ckpt__codec_step;

// A library's coder. `run` returns CKPT_CORRUPT for input that is not a stream of its kind, CKPT_NOMEM, or CKPT_IO.
typedef struct ckpt__codec_library {
    ckpt_err (*open)(void **state, bool encode, const ckpt_allocator *a);
    ckpt_err (*run)(void *state, ckpt__codec_step *s);
    void     (*close)(void *state, const ckpt_allocator *a);
} ckpt__codec_library;

typedef struct ckpt__codec {
    const char                *suffix;
    const char                *tool;        // decodes, and encodes when `faster` is not there
    const char                *faster;      // NULL: none
    const char                *options[3];  // for encoding, before -c
    const char                *package, *option;    // what a sentence offers when the tool is missing
    const char                *magic;
    size_t                     magic_size;
    const ckpt__codec_library *library;     // NULL: by tool
} ckpt__codec;

//-- libraries -------------------------------------------------------------------

#if defined(CKPT_WITH_ZLIB)

typedef struct ckpt__codec_zlib { z_stream z; bool encode; } ckpt__codec_zlib;

static ckpt_err ckpt__codec_zlib_open(void **state, bool encode, const ckpt_allocator *a) {
    ckpt__codec_zlib *s = (ckpt__codec_zlib *)ckpt__mem_alloc(a, sizeof *s);
    if (s == NULL) return CKPT_NOMEM;
    s->encode = encode;
    int window = 15 + 16;                   // zlib.h: 16 more asks for the gzip format
    int r = encode ? deflateInit2(&s->z, 1, Z_DEFLATED, window, 9, Z_DEFAULT_STRATEGY) : inflateInit2(&s->z, window);
    if (r == Z_OK) { *state = s; return CKPT_OK; }
    ckpt__mem_free(a, s, sizeof *s);
    return ckpt__error_set(CKPT_NOMEM, "zlib cannot start: out of memory");
}

static ckpt_err ckpt__codec_zlib_run(void *state, ckpt__codec_step *io) {
    ckpt__codec_zlib *s = (ckpt__codec_zlib *)state;
    unsigned in = (unsigned)io->in_size, out = (unsigned)io->out_size;      // at most one block
    s->z.next_in = (Bytef *)(uintptr_t)io->in;
    s->z.avail_in = in;
    s->z.next_out = io->out;
    s->z.avail_out = out;
    int r = s->encode ? deflate(&s->z, io->last ? Z_FINISH : Z_NO_FLUSH) : inflate(&s->z, Z_NO_FLUSH);
    io->in += in - s->z.avail_in;
    io->in_size = s->z.avail_in;
    io->out += out - s->z.avail_out;
    io->out_size = s->z.avail_out;
    io->done = r == Z_STREAM_END;
    if (r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR) return CKPT_OK;
    if (r == Z_MEM_ERROR) return ckpt__error_set(CKPT_NOMEM, "zlib: out of memory");
    return ckpt__error_set(CKPT_CORRUPT, "zlib: %s", s->z.msg != NULL ? s->z.msg : "damaged data");
}

static void ckpt__codec_zlib_close(void *state, const ckpt_allocator *a) {
    ckpt__codec_zlib *s = (ckpt__codec_zlib *)state;
    (void)(s->encode ? deflateEnd(&s->z) : inflateEnd(&s->z));
    ckpt__mem_free(a, s, sizeof *s);
}

static const ckpt__codec_library ckpt__codec_zlib_library = {
    ckpt__codec_zlib_open, ckpt__codec_zlib_run, ckpt__codec_zlib_close
};
#define CKPT__CODEC_ZLIB &ckpt__codec_zlib_library
#else
#define CKPT__CODEC_ZLIB NULL
#endif

#if defined(CKPT_WITH_BZIP2)

typedef struct ckpt__codec_bzip2 { bz_stream z; bool encode; } ckpt__codec_bzip2;

static ckpt_err ckpt__codec_bzip2_open(void **state, bool encode, const ckpt_allocator *a) {
    ckpt__codec_bzip2 *s = (ckpt__codec_bzip2 *)ckpt__mem_alloc(a, sizeof *s);
    if (s == NULL) return CKPT_NOMEM;
    s->encode = encode;
    int r = encode ? BZ2_bzCompressInit(&s->z, 1, 0, 0) : BZ2_bzDecompressInit(&s->z, 0, 0);
    if (r == BZ_OK) { *state = s; return CKPT_OK; }
    ckpt__mem_free(a, s, sizeof *s);
    return ckpt__error_set(CKPT_NOMEM, "bzip2 cannot start: out of memory");
}

static ckpt_err ckpt__codec_bzip2_run(void *state, ckpt__codec_step *io) {
    ckpt__codec_bzip2 *s = (ckpt__codec_bzip2 *)state;
    unsigned in = (unsigned)io->in_size, out = (unsigned)io->out_size;
    s->z.next_in = (char *)(uintptr_t)io->in;
    s->z.avail_in = in;
    s->z.next_out = (char *)io->out;
    s->z.avail_out = out;
    int r = BZ_RUN_OK;
    if (!s->encode) r = BZ2_bzDecompress(&s->z);
    else if (in > 0 || io->last) r = BZ2_bzCompress(&s->z, io->last ? BZ_FINISH : BZ_RUN);
    io->in += in - s->z.avail_in;
    io->in_size = s->z.avail_in;
    io->out += out - s->z.avail_out;
    io->out_size = s->z.avail_out;
    io->done = r == BZ_STREAM_END;
    if (r >= 0) return CKPT_OK;             // bzlib.h: the failures are the negative numbers
    if (r == BZ_MEM_ERROR) return ckpt__error_set(CKPT_NOMEM, "bzip2: out of memory");
    return ckpt__error_set(CKPT_CORRUPT, "bzip2: %s", r == BZ_DATA_ERROR_MAGIC ? "this is no bzip2 stream" : "damaged data");
}

static void ckpt__codec_bzip2_close(void *state, const ckpt_allocator *a) {
    ckpt__codec_bzip2 *s = (ckpt__codec_bzip2 *)state;
    (void)(s->encode ? BZ2_bzCompressEnd(&s->z) : BZ2_bzDecompressEnd(&s->z));
    ckpt__mem_free(a, s, sizeof *s);
}

static const ckpt__codec_library ckpt__codec_bzip2_library = {
    ckpt__codec_bzip2_open, ckpt__codec_bzip2_run, ckpt__codec_bzip2_close
};
#define CKPT__CODEC_BZIP2 &ckpt__codec_bzip2_library
#else
#define CKPT__CODEC_BZIP2 NULL
#endif

#if defined(CKPT_WITH_LZ4)

// LZ4F_compressUpdate wants room for the worst case, so what it makes waits in a buffer of its own.
typedef struct ckpt__codec_lz4 {
    LZ4F_cctx      *encoder;
    LZ4F_dctx      *decoder;
    unsigned char  *buf;
    size_t          cap, at, len;
    bool            begun, ended;
} ckpt__codec_lz4;

enum { CKPT__CODEC_LZ4_PIECE = 1 << 16 };

static LZ4F_preferences_t ckpt__codec_lz4_preferences(void) {
    LZ4F_preferences_t p;
    memset(&p, 0, sizeof p);
    p.frameInfo.blockSizeID = LZ4F_max4MB;
    p.frameInfo.blockMode = LZ4F_blockIndependent;
    p.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
    return p;
}

static void ckpt__codec_lz4_close(void *state, const ckpt_allocator *a) {
    ckpt__codec_lz4 *s = (ckpt__codec_lz4 *)state;
    if (s->encoder != NULL) (void)LZ4F_freeCompressionContext(s->encoder);
    if (s->decoder != NULL) (void)LZ4F_freeDecompressionContext(s->decoder);
    ckpt__mem_free(a, s->buf, s->cap);
    ckpt__mem_free(a, s, sizeof *s);
}

static ckpt_err ckpt__codec_lz4_open(void **state, bool encode, const ckpt_allocator *a) {
    ckpt__codec_lz4 *s = (ckpt__codec_lz4 *)ckpt__mem_alloc(a, sizeof *s);
    if (s == NULL) return CKPT_NOMEM;
    size_t r;
    if (encode) {
        LZ4F_preferences_t p = ckpt__codec_lz4_preferences();
        s->cap = LZ4F_compressBound(CKPT__CODEC_LZ4_PIECE, &p) + 64;        // lz4frame.h: a header is at most 19 bytes
        s->buf = (unsigned char *)ckpt__mem_alloc(a, s->cap);
        if (s->buf == NULL) { s->cap = 0; ckpt__codec_lz4_close(s, a); return CKPT_NOMEM; }
        r = LZ4F_createCompressionContext(&s->encoder, LZ4F_VERSION);
    } else {
        r = LZ4F_createDecompressionContext(&s->decoder, LZ4F_VERSION);
    }
    if (!LZ4F_isError(r)) { *state = s; return CKPT_OK; }
    ckpt__codec_lz4_close(s, a);
    return ckpt__error_set(CKPT_NOMEM, "lz4 cannot start: out of memory");
}

static ckpt_err ckpt__codec_lz4_decode(ckpt__codec_lz4 *s, ckpt__codec_step *io) {
    size_t in = io->in_size, out = io->out_size;
    size_t r = LZ4F_decompress(s->decoder, io->out, &out, io->in, &in, NULL);
    if (LZ4F_isError(r)) return ckpt__error_set(CKPT_CORRUPT, "lz4: %s", LZ4F_getErrorName(r));
    io->in += in;
    io->in_size -= in;
    io->out += out;
    io->out_size -= out;
    io->done = r == 0;
    return CKPT_OK;
}

static ckpt_err ckpt__codec_lz4_run(void *state, ckpt__codec_step *io) {
    ckpt__codec_lz4 *s = (ckpt__codec_lz4 *)state;
    if (s->decoder != NULL) return ckpt__codec_lz4_decode(s, io);
    if (s->at == s->len && !s->ended) {
        size_t take = io->in_size < CKPT__CODEC_LZ4_PIECE ? io->in_size : (size_t)CKPT__CODEC_LZ4_PIECE, r;
        LZ4F_preferences_t p = ckpt__codec_lz4_preferences();
        if (!s->begun) {
            r = LZ4F_compressBegin(s->encoder, s->buf, s->cap, &p);
            take = 0;
        } else if (take > 0) {
            r = LZ4F_compressUpdate(s->encoder, s->buf, s->cap, io->in, take, NULL);
        } else if (io->last) {
            r = LZ4F_compressEnd(s->encoder, s->buf, s->cap, NULL);
        } else {
            return CKPT_OK;
        }
        if (LZ4F_isError(r)) return ckpt__error_set(CKPT_NOMEM, "lz4: %s", LZ4F_getErrorName(r));
        s->ended = s->begun && take == 0;
        s->begun = true;
        io->in += take;
        io->in_size -= take;
        s->at = 0;
        s->len = r;
    }
    size_t n = s->len - s->at < io->out_size ? s->len - s->at : io->out_size;
    memcpy(io->out, s->buf + s->at, n);
    s->at += n;
    io->out += n;
    io->out_size -= n;
    io->done = s->ended && s->at == s->len;
    return CKPT_OK;
}

static const ckpt__codec_library ckpt__codec_lz4_library = { ckpt__codec_lz4_open, ckpt__codec_lz4_run, ckpt__codec_lz4_close };
#define CKPT__CODEC_LZ4 &ckpt__codec_lz4_library
#else
#define CKPT__CODEC_LZ4 NULL
#endif

#if defined(CKPT_WITH_LZMA)

static ckpt_err ckpt__codec_lzma_fail(lzma_ret r) {
    if (r == LZMA_MEM_ERROR || r == LZMA_MEMLIMIT_ERROR) return ckpt__error_set(CKPT_NOMEM, "xz: out of memory");
    if (r == LZMA_FORMAT_ERROR) return ckpt__error_set(CKPT_CORRUPT, "xz: this is no such stream");
    if (r == LZMA_OPTIONS_ERROR) return ckpt__error_set(CKPT_UNSUPPORTED, "xz: the stream needs a newer liblzma");
    return ckpt__error_set(CKPT_CORRUPT, "xz: damaged data");
}

// Several threads for encoding .xz; a liblzma that was built without them refuses, and then one does it.
static lzma_ret ckpt__codec_xz_encoder(lzma_stream *z) {
    lzma_mt mt;
    memset(&mt, 0, sizeof mt);
    mt.threads = (uint32_t)ckpt__os_cpus();
    mt.preset = 1;
    mt.check = LZMA_CHECK_CRC64;
    lzma_ret r = lzma_stream_encoder_mt(z, &mt);
    return r == LZMA_OK || r == LZMA_MEM_ERROR ? r : lzma_easy_encoder(z, 1, LZMA_CHECK_CRC64);
}

static lzma_ret ckpt__codec_lzma_encoder(lzma_stream *z) {
    lzma_options_lzma options;
    if (lzma_lzma_preset(&options, 1)) return LZMA_OPTIONS_ERROR;
    return lzma_alone_encoder(z, &options);
}

static ckpt_err ckpt__codec_lzma_start(void **state, bool encode, bool xz, const ckpt_allocator *a) {
    lzma_stream *z = (lzma_stream *)ckpt__mem_alloc(a, sizeof *z);      // all zero is LZMA_STREAM_INIT
    if (z == NULL) return CKPT_NOMEM;
    lzma_ret r;
    if (encode) r = xz ? ckpt__codec_xz_encoder(z) : ckpt__codec_lzma_encoder(z);
    else r = xz ? lzma_stream_decoder(z, UINT64_MAX, 0) : lzma_alone_decoder(z, UINT64_MAX);
    if (r == LZMA_OK) { *state = z; return CKPT_OK; }
    ckpt__mem_free(a, z, sizeof *z);
    return ckpt__codec_lzma_fail(r);
}

static ckpt_err ckpt__codec_xz_open(void **state, bool encode, const ckpt_allocator *a) {
    return ckpt__codec_lzma_start(state, encode, true, a);
}

static ckpt_err ckpt__codec_lzma_open(void **state, bool encode, const ckpt_allocator *a) {
    return ckpt__codec_lzma_start(state, encode, false, a);
}

static ckpt_err ckpt__codec_lzma_run(void *state, ckpt__codec_step *io) {
    lzma_stream *z = (lzma_stream *)state;
    z->next_in = io->in;
    z->avail_in = io->in_size;
    z->next_out = io->out;
    z->avail_out = io->out_size;
    lzma_ret r = lzma_code(z, io->last ? LZMA_FINISH : LZMA_RUN);
    io->in = z->next_in;
    io->in_size = z->avail_in;
    io->out = z->next_out;
    io->out_size = z->avail_out;
    io->done = r == LZMA_STREAM_END;
    return r == LZMA_OK || r == LZMA_STREAM_END || r == LZMA_BUF_ERROR ? CKPT_OK : ckpt__codec_lzma_fail(r);
}

static void ckpt__codec_lzma_close(void *state, const ckpt_allocator *a) {
    lzma_stream *z = (lzma_stream *)state;
    lzma_end(z);
    ckpt__mem_free(a, z, sizeof *z);
}

static const ckpt__codec_library ckpt__codec_xz_library = { ckpt__codec_xz_open, ckpt__codec_lzma_run, ckpt__codec_lzma_close };
static const ckpt__codec_library ckpt__codec_lzma_library = {
    ckpt__codec_lzma_open, ckpt__codec_lzma_run, ckpt__codec_lzma_close
};
#define CKPT__CODEC_XZ   &ckpt__codec_xz_library
#define CKPT__CODEC_LZMA &ckpt__codec_lzma_library
#else
#define CKPT__CODEC_XZ   NULL
#define CKPT__CODEC_LZMA NULL
#endif

#if defined(CKPT_WITH_ZSTD)

typedef struct ckpt__codec_zstd { ZSTD_CCtx *encoder; ZSTD_DCtx *decoder; } ckpt__codec_zstd;

static ckpt_err ckpt__codec_zstd_open(void **state, bool encode, const ckpt_allocator *a) {
    ckpt__codec_zstd *s = (ckpt__codec_zstd *)ckpt__mem_alloc(a, sizeof *s);
    if (s == NULL) return CKPT_NOMEM;
    if (encode) s->encoder = ZSTD_createCCtx();
    else s->decoder = ZSTD_createDCtx();
    if (s->encoder == NULL && s->decoder == NULL) {
        ckpt__mem_free(a, s, sizeof *s);
        return ckpt__error_set(CKPT_NOMEM, "zstd cannot start: out of memory");
    }
    if (encode) {
        (void)ZSTD_CCtx_setParameter(s->encoder, ZSTD_c_compressionLevel, 1);
        (void)ZSTD_CCtx_setParameter(s->encoder, ZSTD_c_checksumFlag, 1);
        (void)ZSTD_CCtx_setParameter(s->encoder, ZSTD_c_nbWorkers, ckpt__os_cpus());    // refused by a library without threads
    }
    *state = s;
    return CKPT_OK;
}

static ckpt_err ckpt__codec_zstd_run(void *state, ckpt__codec_step *io) {
    ckpt__codec_zstd *s = (ckpt__codec_zstd *)state;
    ZSTD_inBuffer in = { io->in, io->in_size, 0 };
    ZSTD_outBuffer out = { io->out, io->out_size, 0 };
    size_t r = s->encoder != NULL ? ZSTD_compressStream2(s->encoder, &out, &in, io->last ? ZSTD_e_end : ZSTD_e_continue)
                                  : ZSTD_decompressStream(s->decoder, &out, &in);
    if (ZSTD_isError(r)) return ckpt__error_set(s->encoder != NULL ? CKPT_NOMEM : CKPT_CORRUPT, "zstd: %s", ZSTD_getErrorName(r));
    io->in += in.pos;
    io->in_size -= in.pos;
    io->out += out.pos;
    io->out_size -= out.pos;
    io->done = r == 0 && (s->encoder == NULL || io->last);
    return CKPT_OK;
}

static void ckpt__codec_zstd_close(void *state, const ckpt_allocator *a) {
    ckpt__codec_zstd *s = (ckpt__codec_zstd *)state;
    (void)ZSTD_freeCCtx(s->encoder);        // zstd.h: NULL is accepted
    (void)ZSTD_freeDCtx(s->decoder);
    ckpt__mem_free(a, s, sizeof *s);
}

static const ckpt__codec_library ckpt__codec_zstd_library = {
    ckpt__codec_zstd_open, ckpt__codec_zstd_run, ckpt__codec_zstd_close
};
#define CKPT__CODEC_ZSTD &ckpt__codec_zstd_library
#else
#define CKPT__CODEC_ZSTD NULL
#endif

//-- names -----------------------------------------------------------------------

// gzip -n leaves the time out, so that equal checkpoints are equal files. pigz, bzip2, lz4, lzop, xz and zstd read
// standard input and write standard output with -c; all but .lzma are checked by CRC or xxHash by default.
static const ckpt__codec ckpt__codecs[] = {
    { "bz2",  "bzip2", NULL,   { "-1", NULL },        "bzip2",    "CKPT_WITH_BZIP2", "BZh", 3, CKPT__CODEC_BZIP2 },
    { "gz",   "gzip",  "pigz", { "-1", "-n", NULL },  "gzip",     "CKPT_WITH_ZLIB",  "\x1f\x8b", 2, CKPT__CODEC_ZLIB },
    { "lz4",  "lz4",   NULL,   { "-q", NULL },        "lz4",      "CKPT_WITH_LZ4",   "\x04\x22\x4d\x18", 4, CKPT__CODEC_LZ4 },
    { "lzma", "lzma",  NULL,   { "-1", "-q", NULL },  "xz-utils", "CKPT_WITH_LZMA",  "", 0, CKPT__CODEC_LZMA },
    { "lzo",  "lzop",  NULL,   { "-q", NULL },        "lzop",     NULL,              "\x89LZO\0\r\n\x1a\n", 9, NULL },
    { "xz",   "xz",    NULL,   { "-1", "-q", "-T0" }, "xz-utils", "CKPT_WITH_LZMA",  "\xfd" "7zXZ\0", 6, CKPT__CODEC_XZ },
    { "zst",  "zstd",  NULL,   { "-1", "-q", "-T0" }, "zstd",     "CKPT_WITH_ZSTD",  "\x28\xb5\x2f\xfd", 4, CKPT__CODEC_ZSTD }
};

enum { CKPT__CODEC_COUNT = (int)(sizeof ckpt__codecs / sizeof ckpt__codecs[0]) };

// "gz" -> its row; NULL for an unknown suffix.
static const ckpt__codec *ckpt__codec_by_suffix(const char *suffix) {
    for (int i = 0; i < CKPT__CODEC_COUNT; i++) {
        if (strcmp(ckpt__codecs[i].suffix, suffix) == 0) return &ckpt__codecs[i];
    }
    return NULL;
}

// .lzma has no magic number. The rule is that of xz's own `is_format_lzma`: properties below 225, a dictionary of 2^n or
// 2^n + 2^(n-1) bytes, and a size that is unknown or below 2^38. No zip, tar or safetensors file begins like that.
static bool ckpt__codec_is_lzma(const unsigned char *p, size_t n) {
    if (n < 13 || p[0] >= 225) return false;
    uint32_t dict = (uint32_t)ckpt__mem_le(p + 1, 4), rest = dict;
    uint64_t size = ckpt__mem_le(p + 5, 8);
    if (dict < 4096) return false;
    while ((rest & 1) == 0) rest >>= 1;
    return (rest == 1 || rest == 3 || dict == UINT32_MAX) && (size == UINT64_MAX || size < (uint64_t)1 << 38);
}

// The codec that a file's first bytes speak of; NULL for none. 13 bytes decide.
static const ckpt__codec *ckpt__codec_by_magic(const unsigned char *p, size_t n) {
    for (int i = 0; i < CKPT__CODEC_COUNT; i++) {
        const ckpt__codec *c = &ckpt__codecs[i];
        if (c->magic_size > 0 && n >= c->magic_size && memcmp(p, c->magic, c->magic_size) == 0) return c;
    }
    return ckpt__codec_is_lzma(p, n) ? ckpt__codec_by_suffix("lzma") : NULL;
}

// The last two parts of a name cut at its dots, as Composer cuts it: the whole path, case-sensitively. False: there is no dot.
static bool ckpt__codec_parts(const char *name, const char **before, size_t *before_len, const char **last) {
    const char *dot = strrchr(name, '.');
    if (dot == NULL) return false;
    const char *p = dot;
    while (p > name && p[-1] != '.') p--;
    *before = p;
    *before_len = (size_t)(dot - p);
    *last = dot + 1;
    return true;
}

static bool ckpt__codec_is_tar(const char *name) {
    const char *before, *last;
    size_t n;
    if (!ckpt__codec_parts(name, &before, &n, &last)) return false;
    return strcmp(last, "tar") == 0 || strcmp(last, "tgz") == 0 || (n == 3 && memcmp(before, "tar", 3) == 0);
}

static bool ckpt__codec_is_compressed_pt(const char *name) {
    const char *before, *last;
    size_t n;
    if (!ckpt__codec_parts(name, &before, &n, &last)) return false;
    return n == 2 && memcmp(before, "pt", 2) == 0 && strcmp(last, "symlink") != 0;
}

// The codec of a name for which ckpt__codec_is_compressed_pt holds.
static ckpt_err ckpt__codec_pt(const char *name, const ckpt__codec **out) {
    *out = NULL;
    if (!ckpt__codec_is_compressed_pt(name)) return ckpt__error_set(CKPT_ARG, "'%s' does not end in .pt and a compression", name);
    *out = ckpt__codec_by_suffix(strrchr(name, '.') + 1);
    if (*out != NULL) return CKPT_OK;
    return ckpt__error_set(CKPT_UNSUPPORTED, "'%s' names no known compression (.gz .bz2 .lz4 .lzma .lzo .xz .zst are known)",
                           name);
}

// The codec of a name for which ckpt__codec_is_tar holds; NULL for a plain .tar. In .tar.lzma lies xz, as Composer writes it.
static ckpt_err ckpt__codec_tar_mode(const char *name, const ckpt__codec **out) {
    static const char *const modes[][2] = { { ".tar.gz", "gz" }, { ".tgz", "gz" }, { ".tar.bz2", "bz2" }, { ".tar.lzma", "xz" } };
    *out = NULL;
    if (ckpt__txt_ends(name, ".tar")) return CKPT_OK;
    for (int i = 0; i < 4; i++) {
        if (!ckpt__txt_ends(name, modes[i][0])) continue;
        *out = ckpt__codec_by_suffix(modes[i][1]);
        return CKPT_OK;
    }
    return ckpt__error_set(CKPT_ARG, "'%s' is no way to write a tar: the name must end in .tar, .tar.gz, .tgz, .tar.bz2 or "
                           ".tar.lzma", name);
}

//-- tools -----------------------------------------------------------------------

// The tool to call, NULL when there is none. gzip decodes even where pigz is there: pigz passes over garbage behind a stream.
static const char *ckpt__codec_tool(const ckpt__codec *c, bool encode) {
    if (encode && c->faster != NULL && ckpt__os_which(c->faster)) return c->faster;
    if (ckpt__os_which(c->tool)) return c->tool;
    return c->faster != NULL && ckpt__os_which(c->faster) ? c->faster : NULL;
}

// Can files of this codec be written and read here? Asked before training begins.
static ckpt_err ckpt__codec_check(const ckpt__codec *c) {
    if (c->library != NULL || ckpt__codec_tool(c, true) != NULL) return CKPT_OK;
    bool option = c->option != NULL;
    return ckpt__error_set(CKPT_UNSUPPORTED, "compression .%s needs the tool '%s', which is not in PATH: install the package "
                           "%s%s%s", c->suffix, c->tool, c->package, option ? ", or build with " : "", option ? c->option : "");
}

static ckpt_err ckpt__codec_start(const ckpt__codec *c, bool encode, ckpt__os_child *child, int in_fd, int out_fd) {
    const char *argv[8];
    int n = 0;
    ckpt_err e = ckpt__codec_check(c);
    if (e != CKPT_OK) return e;
    argv[n++] = ckpt__codec_tool(c, encode);
    for (int i = 0; encode && i < 3 && c->options[i] != NULL; i++) argv[n++] = c->options[i];
    argv[n++] = encode ? "-c" : "-dc";
    argv[n] = NULL;
    return ckpt__os_spawn(child, argv, in_fd, out_fd);
}

//-- writing ---------------------------------------------------------------------

typedef struct ckpt__codec_writer {
    const ckpt__codec *codec;
    const char        *path;                // for sentences
    ckpt_allocator     allocator;
    int                out_fd;
    bool               open;
    ckpt__os_child     child;               // by tool: it writes to out_fd itself
    int                feed;                // the end of a pipe that the tool reads
    void              *state;               // in-process
    unsigned char     *out;                 // CKPT__CODEC_BLOCK bytes
    ckpt_err           err;                 // the first failure
} ckpt__codec_writer;

// Starts a stream into out_fd, from its current place on.
static ckpt_err ckpt__codec_open(ckpt__codec_writer *w, const ckpt__codec *c, int out_fd, const char *path,
                                 const ckpt_allocator *a) {
    memset(w, 0, sizeof *w);
    w->codec = c;
    w->path = path;
    w->out_fd = out_fd;
    w->feed = -1;
    if (a != NULL) w->allocator = *a;
    ckpt_err e;
    if (c->library != NULL) {
        w->out = (unsigned char *)ckpt__mem_resize(&w->allocator, NULL, 0, CKPT__CODEC_BLOCK);
        e = w->out == NULL ? CKPT_NOMEM : c->library->open(&w->state, true, &w->allocator);
        if (e != CKPT_OK) ckpt__mem_free(&w->allocator, w->out, CKPT__CODEC_BLOCK);
    } else {
        int fds[2];
        e = ckpt__os_pipe(fds);
        if (e != CKPT_OK) return e;
        e = ckpt__codec_start(c, true, &w->child, fds[0], out_fd);
        (void)ckpt__os_close(fds[0], "a pipe");
        if (e != CKPT_OK) (void)ckpt__os_close(fds[1], "a pipe");
        else w->feed = fds[1];
    }
    w->open = e == CKPT_OK;
    return e;
}

// Runs the coder over one block, writing what it makes.
static ckpt_err ckpt__codec_encode(ckpt__codec_writer *w, const void *p, size_t n, bool last) {
    ckpt__codec_step io;
    memset(&io, 0, sizeof io);
    io.in = (const unsigned char *)p;
    io.in_size = n;
    io.last = last;
    for (;;) {
        io.out = w->out;
        io.out_size = CKPT__CODEC_BLOCK;
        ckpt_err e = w->codec->library->run(w->state, &io);
        if (e != CKPT_OK) return e == CKPT_CORRUPT ? CKPT_IO : e;
        size_t made = (size_t)(io.out - w->out);
        if (made > 0) e = ckpt__os_write(w->out_fd, w->out, made, w->path);
        if (e != CKPT_OK) return e;
        if (last ? io.done : io.in_size == 0 && made < CKPT__CODEC_BLOCK) return CKPT_OK;
    }
}

// A tool that failed while it wrote: was the disk full? lz4 does not say so, so the disk is asked. The file is lost anyway.
static ckpt_err ckpt__codec_why(const ckpt__codec_writer *w, ckpt_err e) {
    static const char probe[65536] = { 0 };
    ckpt__error_record record;
    ckpt__os_info info;
    memset(&info, 0, sizeof info);
    ckpt__error_take(&record);
    ckpt_err full = ckpt__os_fstat(w->out_fd, &info, w->path);
    if (full == CKPT_OK) full = ckpt__os_pwrite(w->out_fd, probe, sizeof probe, info.size, w->path);
    if (full == CKPT_NO_SPACE) return full;
    (void)ckpt__error_put(&record);
    return e;
}

// Ends a tool. When it is gone already its own words say more than the broken pipe does.
static ckpt_err ckpt__codec_end_tool(ckpt__codec_writer *w) {
    if (w->feed >= 0) (void)ckpt__os_close(w->feed, "a pipe");
    w->feed = -1;
    w->open = false;
    ckpt_err e = ckpt__os_wait_child(&w->child);
    return e == CKPT_OK ? e : ckpt__codec_why(w, e);
}

static ckpt_err ckpt__codec_write(ckpt__codec_writer *w, const void *p, size_t n) {
    if (w->err != CKPT_OK) return w->err;
    if (w->codec->library == NULL) {
        w->err = n == 0 ? CKPT_OK : ckpt__os_write(w->feed, p, n, w->codec->tool);
        if (w->err == CKPT_OK) return CKPT_OK;
        ckpt_err e = ckpt__codec_end_tool(w);
        return w->err = e != CKPT_OK ? e : ckpt__error_set(CKPT_IO, "%s ended before its input did", w->codec->tool);
    }
    for (size_t done = 0; done < n && w->err == CKPT_OK;) {
        size_t block = n - done < CKPT__CODEC_BLOCK ? n - done : (size_t)CKPT__CODEC_BLOCK;
        w->err = ckpt__codec_encode(w, (const char *)p + done, block, false);
        done += block;
    }
    return w->err;
}

// Gives everything back. Without a finish the file is not a whole stream.
static void ckpt__codec_abort(ckpt__codec_writer *w) {
    if (w->open && w->codec->library == NULL) {
        ckpt__os_kill_child(&w->child);
        (void)ckpt__os_close(w->feed, "a pipe");
        w->feed = -1;
    }
    if (w->state != NULL) w->codec->library->close(w->state, &w->allocator);
    ckpt__mem_free(&w->allocator, w->out, CKPT__CODEC_BLOCK);
    w->state = NULL;
    w->out = NULL;
    w->open = false;
}

// Ends the stream: when it returns CKPT_OK all of it is in the file. Frees the writer in any case.
static ckpt_err ckpt__codec_finish(ckpt__codec_writer *w) {
    if (w->err == CKPT_OK && w->codec->library != NULL) w->err = ckpt__codec_encode(w, "", 0, true);
    else if (w->err == CKPT_OK) w->err = ckpt__codec_end_tool(w);
    ckpt__codec_abort(w);
    return w->err;
}

//-- reading ---------------------------------------------------------------------

typedef ckpt_err ckpt__codec_sink(const void *p, size_t n, void *user);

// Input of an in-process decoder: a block of the file at a time.
typedef struct ckpt__codec_input {
    int            fd;
    const char    *path;
    unsigned char *block;
    size_t         size, at;
    bool           end;
} ckpt__codec_input;

static ckpt_err ckpt__codec_fill(ckpt__codec_input *in) {
    if (in->at < in->size || in->end) return CKPT_OK;
    in->at = in->size = 0;
    ckpt_err e = ckpt__os_read(in->fd, in->block, CKPT__CODEC_BLOCK, &in->size, in->path);
    in->end = in->size == 0;
    return e;
}

// Decodes one stream, up to its end or the input's.
static ckpt_err ckpt__codec_decode_one(void *state, const ckpt__codec *c, ckpt__codec_input *in, unsigned char *out,
                                       ckpt__codec_sink *sink, void *user) {
    ckpt__codec_step io;
    memset(&io, 0, sizeof io);
    for (;;) {
        ckpt_err e = ckpt__codec_fill(in);
        if (e != CKPT_OK) return e;
        size_t given = in->size - in->at;
        io.in = in->block + in->at;
        io.in_size = given;
        io.last = in->end;
        io.out = out;
        io.out_size = CKPT__CODEC_BLOCK;
        e = c->library->run(state, &io);
        in->at = in->size - io.in_size;
        size_t made = (size_t)(io.out - out);
        if (e == CKPT_OK && made > 0) e = sink(out, made, user);
        if (e != CKPT_OK || io.done) return e;
        if (made == 0 && io.in_size == given)       // no way on: the input has ended, or the coder is stuck
            return ckpt__error_set(CKPT_CORRUPT, "the .%s stream %s", c->suffix, in->end ? "ends too early" : "is damaged");
    }
}

// Is what follows the end of a stream another one? Its first byte says enough: the decoder checks the rest.
static bool ckpt__codec_continues(const ckpt__codec *c, const ckpt__codec_input *in) {
    return c->magic_size > 0 && in->block[in->at] == (unsigned char)c->magic[0];
}

static ckpt_err ckpt__codec_decode_all(const ckpt__codec *c, ckpt__codec_input *in, unsigned char *out, ckpt__codec_sink *sink,
                                       void *user, const ckpt_allocator *a) {
    for (;;) {
        void *state = NULL;
        ckpt_err e = c->library->open(&state, false, a);
        if (e != CKPT_OK) return e;
        e = ckpt__codec_decode_one(state, c, in, out, sink, user);
        c->library->close(state, a);
        if (e == CKPT_OK) e = ckpt__codec_fill(in);
        if (e != CKPT_OK || in->end) return e;
        if (!ckpt__codec_continues(c, in)) return ckpt__error_set(CKPT_CORRUPT, "garbage follows the .%s stream", c->suffix);
    }
}

static ckpt_err ckpt__codec_decode_library(const ckpt__codec *c, int in_fd, const char *path, ckpt__codec_sink *sink, void *user,
                                           const ckpt_allocator *a) {
    ckpt__codec_input in;
    memset(&in, 0, sizeof in);
    unsigned char *blocks = (unsigned char *)ckpt__mem_resize(a, NULL, 0, 2 * CKPT__CODEC_BLOCK);
    if (blocks == NULL) return CKPT_NOMEM;
    in.fd = in_fd;
    in.path = path;
    in.block = blocks;
    ckpt_err e = ckpt__codec_decode_all(c, &in, blocks + CKPT__CODEC_BLOCK, sink, user, a);
    ckpt__mem_free(a, blocks, 2 * CKPT__CODEC_BLOCK);
    return e;
}

// What a decoder's exit means: killed or not runnable is CKPT_IO, a status of its own says that the stream is damaged. bzip2
// ends well in front of garbage that follows the stream, and only says so; other warnings (gzip's about $GZIP) mean nothing.
static ckpt_err ckpt__codec_judge(const ckpt__os_child *child, ckpt_err e) {
    if (e == CKPT_OK && strstr(child->said, "trailing garbage") != NULL)
        return ckpt__error_set(CKPT_CORRUPT, "%s: %s", child->tool, child->said);
    if (e != CKPT_IO || child->status <= 0 || child->status == 127) return e;
    ckpt__error_record record;
    ckpt__error_take(&record);
    record.code = CKPT_CORRUPT;
    return ckpt__error_put(&record);
}

// The tool reads the file by itself, so only its output must be drained.
static ckpt_err ckpt__codec_decode_tool(const ckpt__codec *c, int in_fd, ckpt__codec_sink *sink, void *user,
                                        const ckpt_allocator *a) {
    int fds[2];
    ckpt__os_child child;
    void *block = ckpt__mem_resize(a, NULL, 0, CKPT__CODEC_BLOCK);
    if (block == NULL) return CKPT_NOMEM;
    ckpt_err e = ckpt__os_pipe(fds);
    if (e == CKPT_OK) {
        e = ckpt__codec_start(c, false, &child, in_fd, fds[1]);
        (void)ckpt__os_close(fds[1], "a pipe");
        bool runs = e == CKPT_OK;
        size_t got = 1;
        while (e == CKPT_OK && got > 0) {
            e = ckpt__os_read(fds[0], block, CKPT__CODEC_BLOCK, &got, c->tool);
            if (e == CKPT_OK && got > 0) e = sink(block, got, user);
        }
        (void)ckpt__os_close(fds[0], "a pipe");
        if (runs && e == CKPT_OK) e = ckpt__codec_judge(&child, ckpt__os_wait_child(&child));
        else if (runs) ckpt__os_kill_child(&child);
    }
    ckpt__mem_free(a, block, CKPT__CODEC_BLOCK);
    return e;
}

// Hands the decoded content of a file, from its current place on, to `sink`, whose failure ends it at once and is
// returned. A stream that is truncated, damaged, empty or followed by garbage is CKPT_CORRUPT: what the sink got is then void.
static ckpt_err ckpt__codec_decode(const ckpt__codec *c, int in_fd, const char *path, ckpt__codec_sink *sink, void *user,
                                   const ckpt_allocator *a) {
    static const ckpt_allocator plain = { NULL, NULL };
    ckpt__os_info info;
    memset(&info, 0, sizeof info);
    ckpt_err e = ckpt__os_fstat(in_fd, &info, path);
    if (e != CKPT_OK) return e;
    if (info.is_file && info.size == 0) return ckpt__error_set(CKPT_CORRUPT, "%s is empty", path);
    if (a == NULL) a = &plain;
    return c->library != NULL ? ckpt__codec_decode_library(c, in_fd, path, sink, user, a)
                              : ckpt__codec_decode_tool(c, in_fd, sink, user, a);
}

//------------------------------------------------------------------------------
// >>engine     [K0] moves planned bytes to disk, to memory or to a stream, and back
//
// uses:    error memory platform digest state plan
// threads: every call starts its own workers and joins them before it returns; the caller's
//          thread is worker 0, and the only one that reports progress. Fields below a `lock`
//          are guarded by it, the others stay as they are while workers run. state->copy
//          is called on any of the workers, but never on two at a time.
// states:  of a write: SUMMING -> SUMMED, after which checksums are in the plan's bytes
//
// A plan is cut into chunks of some MiB, which workers take in order. Memory that lies as direct
// output wants it goes to the disk from where it is; everything else is gathered into a block of
// huge pages, with the checksum folded into the copy. A chunk never waits for another one.
//------------------------------------------------------------------------------

// Sizes are in this unit; a test makes it smaller, so that small plans meet every boundary.
#ifndef CKPT__ENGINE_MIB
    #define CKPT__ENGINE_MIB (1 << 20)
#endif

enum {
    CKPT__ENGINE_PAGE = 4096,                       // chunks begin and end at its multiples; the disk may do with less
    CKPT__ENGINE_CHUNK = 4 * CKPT__ENGINE_MIB,      // one direct write: above this only the blocks between get dearer
    CKPT__ENGINE_READ = 8 * CKPT__ENGINE_MIB,       // one direct read
    CKPT__ENGINE_COPY = 4 * CKPT__ENGINE_MIB,       // one piece of a copy in memory
    CKPT__ENGINE_PIECE = CKPT__ENGINE_MIB / 4,      // read and summed while it is in the processor's cache
    CKPT__ENGINE_STRAIGHT = CKPT__ENGINE_MIB,       // the least that goes from or to the caller's memory without a block between
    CKPT__ENGINE_LITTLE = CKPT__ENGINE_MIB / 16,    // below this a direct write's latency costs more than the page cache
    CKPT__ENGINE_SMALL = CKPT__ENGINE_MIB,          // a plan up to this size is written by one call of the caller's thread
    CKPT__ENGINE_WORKERS = 16
};

typedef struct ckpt__engine_job {
    int                     threads;        // 0: what fits the work
    bool                    no_direct;      // through the page cache, always
    const ckpt_on_progress *progress;       // may be NULL; the caller adds the finished one
    const char             *phase, *name;
    uint64_t                done;           // bytes moved so far
} ckpt__engine_job;

//-- workers ---------------------------------------------------------------------

typedef struct ckpt__engine_hand {
    ckpt__os_thread thread;
    void          (*fn)(void *ctx, int worker);
    void           *ctx;
    int             worker;
} ckpt__engine_hand;

static void ckpt__engine_hand_main(void *arg) {
    ckpt__engine_hand *h = (ckpt__engine_hand *)arg;
    h->fn(h->ctx, h->worker);
}

// Runs fn on so many threads, the caller's among them, and returns when all have. Fewer threads than asked for are fine, so
// fn must take its work from a common place; the caller's last error stays as it was.
static void ckpt__engine_parallel(int threads, void (*fn)(void *ctx, int worker), void *ctx) {
    ckpt__engine_hand hands[CKPT__ENGINE_WORKERS];
    ckpt__error_record before;
    int started = 1;
    if (threads > CKPT__ENGINE_WORKERS) threads = CKPT__ENGINE_WORKERS;
    ckpt__error_take(&before);
    for (; started < threads; started++) {
        ckpt__engine_hand *h = &hands[started];
        h->fn = fn;
        h->ctx = ctx;
        h->worker = started;
        if (ckpt__os_thread_start(&h->thread, ckpt__engine_hand_main, h) != CKPT_OK) break;
    }
    ckpt__error_last = before;
    fn(ctx, 0);
    for (int i = 1; i < started; i++) ckpt__os_thread_join(hands[i].thread);
}

// What the workers of one call share: the first failure, which stops the others, and the count of bytes.
typedef struct ckpt__engine_crew {
    ckpt__os_mutex     lock, copy_lock;     // copy_lock: around state->copy alone, never held together with lock
    ckpt__os_cond      wake;
    ckpt__error_record first;               // below lock
    bool               stop;                // below lock
    const ckpt_state  *state;
    ckpt__engine_job  *job;
    uint64_t           done, total;         // done: by ckpt__os_add64
    double             began, told;         // clock: of the call, and of its last report of progress
} ckpt__engine_crew;

static ckpt_err ckpt__engine_crew_init(ckpt__engine_crew *c, const ckpt_state *state, ckpt__engine_job *job, uint64_t total) {
    memset(c, 0, sizeof *c);
    c->state = state;
    c->job = job;
    c->total = total;
    c->began = ckpt__os_now();
    job->done = 0;
    ckpt_err e = ckpt__os_mutex_init(&c->lock);
    if (e != CKPT_OK) return e;
    e = ckpt__os_mutex_init(&c->copy_lock);
    if (e == CKPT_OK) {
        e = ckpt__os_cond_init(&c->wake);
        if (e == CKPT_OK) return CKPT_OK;
        ckpt__os_mutex_free(&c->copy_lock);
    }
    ckpt__os_mutex_free(&c->lock);
    return e;
}

// Returns the first worker's failure, its sentence in the calling thread's record.
static ckpt_err ckpt__engine_crew_free(ckpt__engine_crew *c) {
    ckpt__os_cond_free(&c->wake);
    ckpt__os_mutex_free(&c->copy_lock);
    ckpt__os_mutex_free(&c->lock);
    return ckpt__error_put(&c->first);
}

// Records the calling worker's failure and makes the others stop at their next chunk.
static void ckpt__engine_crew_fail(ckpt__engine_crew *c) {
    ckpt__os_mutex_lock(&c->lock);
    if (!c->stop) ckpt__error_take(&c->first);
    c->stop = true;
    ckpt__os_cond_broadcast(&c->wake);
    ckpt__os_mutex_unlock(&c->lock);
}

// Counts bytes; the caller's thread tells how many there are by now.
static void ckpt__engine_crew_moved(ckpt__engine_crew *c, uint64_t bytes, int worker) {
    (void)ckpt__os_add64(&c->done, bytes);
    if (worker != 0) return;
    uint64_t done = ckpt__os_load64(&c->done);
    if (done <= c->job->done || c->job->progress == NULL || c->job->progress->fn == NULL) {
        c->job->done = done;
        return;
    }
    double now = ckpt__os_now();
    if (done < c->total && now - c->told < 0.1) return;         // a few times a second is enough for anybody who looks
    c->told = now;
    ckpt_progress p;
    memset(&p, 0, sizeof p);
    p.seconds = now - c->began;
    p.phase = c->job->phase;
    p.name = c->job->name;
    p.done = c->job->done = done;
    p.total = c->total;
    p.attempt = 1;
    c->job->progress->fn(&p, c->job->progress->user);
}

static ckpt_err ckpt__engine_copy_device(ckpt__engine_crew *c, void *dst, const void *src, size_t size, bool to_device) {
    if (c->state == NULL || c->state->copy == NULL)
        return ckpt__error_set(CKPT_ARG, "a tensor is in device memory, but state.copy is not set");
    ckpt__os_mutex_lock(&c->copy_lock);
    ckpt_err e = c->state->copy(dst, src, size, to_device, c->state->copy_user);
    ckpt__os_mutex_unlock(&c->copy_lock);
    if (e == CKPT_OK) return CKPT_OK;
    return ckpt__error_set(e, "state.copy failed with error %d for %llu bytes", (int)e, (unsigned long long)size);
}

static uint64_t ckpt__engine_round(uint64_t at) {
    return (at + CKPT__ENGINE_PAGE - 1) & ~(uint64_t)(CKPT__ENGINE_PAGE - 1);
}

static uint64_t ckpt__engine_min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t ckpt__engine_max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// As many workers as there are pieces of work, at most `most`.
static int ckpt__engine_threads(const ckpt__engine_job *job, uint64_t size, uint64_t piece, int most) {
    if (job->threads > 0) most = job->threads;
    uint64_t pieces = size / piece + 1;
    return pieces < (uint64_t)most ? (int)pieces : most;
}

// Opens a second descriptor of the same file for direct transfers; -1 where there is none. The name is not trusted: it may
// belong to another file by now, or to the compressed one that this one was unpacked from.
static int ckpt__engine_open_direct(int fd, const char *path, bool write, size_t *align) {
    ckpt__error_record before;
    ckpt__os_info a, b;
    int direct = -1;
    ckpt__error_take(&before);
    if (ckpt__os_reopen_direct(&direct, path, write, align) != CKPT_OK) direct = -1;
    if (direct >= 0) {
        bool same = ckpt__os_fstat(fd, &a, path) == CKPT_OK && ckpt__os_fstat(direct, &b, path) == CKPT_OK &&
                    a.dev == b.dev && a.ino == b.ino && *align <= CKPT__ENGINE_PAGE;
        if (!same) {
            (void)ckpt__os_close(direct, path);
            direct = -1;
        }
    }
    ckpt__error_last = before;
    return direct;
}

//-- checksums of a plan ---------------------------------------------------------

// A fixup's bytes as they stand in the file; returns how many.
static size_t ckpt__engine_fixup_text(const ckpt__fixup *f, uint32_t crc, char out[8]) {
    static const char digits[] = "0123456789abcdef";
    if (!f->hex) {
        for (int i = 0; i < 4; i++) out[i] = (char)(unsigned char)(crc >> 8 * i & 255);
        return 4;
    }
    for (int i = 0; i < 8; i++) out[i] = digits[crc >> (28 - 4 * i) & 15];
    return 8;
}

// The first fixup with bytes at or behind a place in plan->bytes.
static size_t ckpt__engine_fixup_from(const ckpt__plan *p, size_t at) {
    size_t low = 0, high = p->fixup_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (p->fixups[mid].at + (p->fixups[mid].hex ? 8 : 4) > at) high = mid;
        else low = mid + 1;
    }
    return low;
}

// The CRC-32 of the structure bytes that a fixup stands for; its own bytes are still blank.
static uint32_t ckpt__engine_structure(const ckpt__plan *p, const ckpt__fixup *f) {
    uint32_t crc = 0;
    for (size_t i = f->seg_first; i < p->seg_count; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->kind != CKPT__SEG_BYTES || s->blob >= 0) continue;
        crc = ckpt__digest_crc32(crc, p->bytes.data + s->at, (size_t)s->size);
        if (f->at >= s->at && f->at < s->at + s->size) break;
    }
    return crc;
}

// Puts every checksum into the plan's bytes: first those of blobs, then those over the structure, which contains the former.
// Writing a plan a second time finds old sums in the place of the structure's own, so those are blanked first.
static void ckpt__engine_fix(ckpt__plan *p) {
    char text[8];
    for (size_t i = 0; i < p->fixup_count; i++) {
        const ckpt__fixup *f = &p->fixups[i];
        size_t n = ckpt__engine_fixup_text(f, f->blob >= 0 ? p->blobs[f->blob].crc : 0, text);
        if (f->blob < 0) memset(text, f->hex ? '0' : 0, n);
        memcpy(p->bytes.data + f->at, text, n);
    }
    for (size_t i = 0; i < p->fixup_count; i++) {
        const ckpt__fixup *f = &p->fixups[i];
        if (f->blob >= 0) continue;
        size_t n = ckpt__engine_fixup_text(f, ckpt__engine_structure(p, f), text);
        memcpy(p->bytes.data + f->at, text, n);
    }
}

//-- chunks of a plan ------------------------------------------------------------

typedef enum ckpt__engine_mode {
    CKPT__ENGINE_WRITE,             // to the file
    CKPT__ENGINE_FILL,              // to memory
    CKPT__ENGINE_SUM                // nowhere: checksums only
} ckpt__engine_mode;

typedef struct ckpt__engine_cursor {
    uint64_t at;
    size_t   seg;                   // the segment that `at` lies in
} ckpt__engine_cursor;

// Bytes [begin, end) of the file; those from `late` on hold checksums of blobs that end outside and are written in a second
// pass. Both cuts are multiples of a page, except at the end of the file.
typedef struct ckpt__engine_chunk {
    uint64_t begin, late, end;
    size_t   seg;
    bool     straight;              // all of it is one segment's memory, fit to be written from where it is
} ckpt__engine_chunk;

// How the workers get at the checksums that stand in front of what they sum: a chunk whose blobs lie all inside is finished at
// once. The others' pages with unknown checksums are left out, and nobody waits with a chunk in hand: a worker that finds
// no more chunks waits until `summing`, the number of chunks taken but not yet summed, is 0. Those are in the hands of workers
// that wait for nothing, so the count falls to 0 or a failure sets `stop`; both wake everybody. Then all sums are known,
// the last one to sum has put them into the plan's bytes, and the second pass writes what was left out.
typedef struct ckpt__engine_writer {
    ckpt__engine_crew   crew;
    ckpt__plan         *plan;
    ckpt__engine_mode   mode;
    char               *image;      // FILL
    int                 fd, direct_fd;
    const char         *path;
    uint64_t            chunk;
    size_t              align;      // of memory that is written straight
    ckpt__os_flag       direct;     // 1 until a direct write fails
    ckpt__os_flag       uncached;   // 1 until the kernel turns out not to have it
    ckpt__engine_cursor next, next_late;    // below crew.lock, as are the two that follow
    int                 summing;
    bool                summed;
} ckpt__engine_writer;

// How many bytes from `at` on can be written straight from the caller's memory.
static uint64_t ckpt__engine_straight(const ckpt__engine_writer *w, const ckpt__seg *s, uint64_t at) {
    if (s->kind != CKPT__SEG_DATA || at % CKPT__ENGINE_PAGE != 0) return 0;
    if (((uintptr_t)s->src + (uintptr_t)(at - s->offset)) % w->align != 0) return 0;
    uint64_t end = s->offset + s->size, n = end - at;
    if (n < CKPT__ENGINE_STRAIGHT) return 0;
    return end == w->plan->size ? n : n & ~(uint64_t)(CKPT__ENGINE_PAGE - 1);
}

// Whether a part of a late segment can be filled in from blobs that lie within [begin, end).
static bool ckpt__engine_known(const ckpt__plan *p, const ckpt__seg *s, uint64_t begin, uint64_t end) {
    if (s->late == CKPT__LATE_ALL) return false;
    size_t from = s->at + (size_t)(ckpt__engine_max(begin, s->offset) - s->offset);
    size_t to = s->at + (size_t)(ckpt__engine_min(end, s->offset + s->size) - s->offset);
    for (size_t i = ckpt__engine_fixup_from(p, from); i < p->fixup_count && p->fixups[i].at < to; i++) {
        if (p->fixups[i].blob < 0) return false;
        const ckpt__blob *b = &p->blobs[p->fixups[i].blob];
        if (b->offset < begin || b->offset + b->size > end) return false;
    }
    return true;
}

// Finds the first page with an unknown checksum. A chunk that a long blob leaves is cut behind that checksum, so that the
// second pass has only a page or two to write again; cutting may put other blobs outside, hence the loop: `end` only falls.
static void ckpt__engine_find_late(const ckpt__engine_writer *w, ckpt__engine_chunk *c) {
    const ckpt__plan *p = w->plan;
    for (bool again = true; again;) {
        again = false;
        c->late = c->end;
        for (size_t i = c->seg; i < p->seg_count && p->segs[i].offset < c->end; i++) {
            const ckpt__seg *s = &p->segs[i];
            if (s->late == CKPT__LATE_NO || ckpt__engine_known(p, s, c->begin, c->end)) continue;
            c->late = ckpt__engine_max(c->begin, s->offset) & ~(uint64_t)(CKPT__ENGINE_PAGE - 1);
            uint64_t cut = ckpt__engine_round(s->offset + s->size);
            again = cut < c->end && c->end - cut >= CKPT__ENGINE_LITTLE;
            if (again) c->end = cut;
            break;
        }
    }
}

// Cuts the next chunk off. The same calls give the same chunks, so a second cursor can walk them again.
static bool ckpt__engine_cut(const ckpt__engine_writer *w, ckpt__engine_cursor *at, ckpt__engine_chunk *c) {
    const ckpt__plan *p = w->plan;
    if (at->at >= p->size) return false;
    while (p->segs[at->seg].offset + p->segs[at->seg].size <= at->at) at->seg++;
    c->begin = at->at;
    c->end = c->late = ckpt__engine_min(at->at + w->chunk, p->size);
    c->seg = at->seg;
    uint64_t straight = w->mode == CKPT__ENGINE_WRITE ? ckpt__engine_straight(w, &p->segs[c->seg], c->begin) : 0;
    c->straight = straight > 0;
    if (c->straight) {
        c->end = c->late = ckpt__engine_min(c->end, c->begin + straight);
    } else if (w->mode == CKPT__ENGINE_WRITE) {
        for (size_t i = c->seg; i < p->seg_count && p->segs[i].offset < c->end; i++) {
            uint64_t from = ckpt__engine_round(p->segs[i].offset), to = p->segs[i].offset + p->segs[i].size;
            if (from > c->begin && from < to && from < c->end && ckpt__engine_straight(w, &p->segs[i], from) > 0) c->end = from;
        }
        ckpt__engine_find_late(w, c);
    }
    at->at = c->end;
    return true;
}

//-- writing ---------------------------------------------------------------------

static ckpt_err ckpt__engine_read_file(const ckpt__seg *s, char *dst, uint64_t skip, size_t size) {
    const char *path = (const char *)s->src;
    ckpt__os_info info;
    size_t got = 0;
    int fd;
    ckpt_err e = ckpt__os_open_read(&fd, path);
    if (e != CKPT_OK) return e;
    e = ckpt__os_fstat(fd, &info, path);
    if (e == CKPT_OK) e = ckpt__os_pread(fd, dst, size, skip, &got, path);
    (void)ckpt__os_close(fd, path);
    if (e == CKPT_OK && (got != size || info.size != s->size))
        e = ckpt__error_set(CKPT_IO, "%s changed its size while it was being saved", path);
    return e;
}

// Adds a part's sum to its blob's. Parts of a blob that leaves the chunk come from several workers, in any order.
static void ckpt__engine_credit(ckpt__engine_writer *w, const ckpt__engine_chunk *c, int blob, uint32_t crc, uint64_t end) {
    ckpt__blob *b = &w->plan->blobs[blob];
    crc = ckpt__digest_crc32_shift(crc, b->offset + b->size - end);
    bool shared = b->offset < c->begin || b->offset + b->size > c->end;
    if (shared) ckpt__os_mutex_lock(&w->crew.lock);
    b->crc ^= crc;
    if (shared) ckpt__os_mutex_unlock(&w->crew.lock);
}

// Brings bytes [from, to) of one segment to dst. With `sum` they count for their blob; dst may then be NULL, for memory.
static ckpt_err ckpt__engine_part(ckpt__engine_writer *w, const ckpt__engine_chunk *c, const ckpt__seg *s, char *dst,
                                  uint64_t from, uint64_t to, bool sum) {
    const uint64_t skip = from - s->offset;
    const size_t n = (size_t)(to - from);
    const char *src = s->kind == CKPT__SEG_BYTES ? w->plan->bytes.data + s->at : (const char *)s->src;
    ckpt_err e = CKPT_OK;
    sum = sum && s->blob >= 0;
    if (s->kind == CKPT__SEG_DEVICE) e = ckpt__engine_copy_device(&w->crew, dst, src + skip, n, false);
    else if (s->kind == CKPT__SEG_FILE) e = ckpt__engine_read_file(s, dst, skip, n);
    else if (dst != NULL && !sum) memcpy(dst, src + skip, n);
    if (e != CKPT_OK || !sum) return e;
    uint32_t crc;
    if (s->kind == CKPT__SEG_DEVICE || s->kind == CKPT__SEG_FILE) crc = ckpt__digest_crc32(0, dst, n);
    else if (dst == NULL) crc = ckpt__digest_crc32(0, src + skip, n);
    else crc = ckpt__digest_crc32_copy(0, dst, src + skip, n);
    ckpt__engine_credit(w, c, s->blob, crc, to);
    return CKPT_OK;
}

// Brings bytes [from, to) of a chunk to dst, which stands for `from`. `spare` takes what must be somewhere to be summed.
static ckpt_err ckpt__engine_gather(ckpt__engine_writer *w, const ckpt__engine_chunk *c, char *dst, char *spare,
                                    uint64_t from, uint64_t to, bool sum) {
    const ckpt__plan *p = w->plan;
    ckpt_err e = CKPT_OK;
    for (size_t i = c->seg; i < p->seg_count && p->segs[i].offset < to && e == CKPT_OK; i++) {
        const ckpt__seg *s = &p->segs[i];
        uint64_t a = ckpt__engine_max(from, s->offset), b = ckpt__engine_min(to, s->offset + s->size);
        if (a >= b) continue;
        char *out = dst != NULL ? dst + (a - from) : NULL;
        if (out == NULL && s->kind != CKPT__SEG_DATA && s->kind != CKPT__SEG_BYTES) out = spare + (a - from);
        e = ckpt__engine_part(w, c, s, out, a, b, sum);
    }
    return e;
}

// Fills the checksums into a gathered chunk, as far as it is written at once. A checksum that is cut by the chunk's end is
// filled in piece by piece, by whoever has the piece.
static void ckpt__engine_fill_known(const ckpt__engine_writer *w, const ckpt__engine_chunk *c, char *block) {
    const ckpt__plan *p = w->plan;
    char text[8];
    for (size_t i = c->seg; i < p->seg_count && p->segs[i].offset < c->late; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->late == CKPT__LATE_NO) continue;
        size_t from = s->at + (size_t)(ckpt__engine_max(c->begin, s->offset) - s->offset);
        size_t to = s->at + (size_t)(ckpt__engine_min(c->late, s->offset + s->size) - s->offset);
        if (from >= to) continue;               // else a checksum that is cut here would be read while others add to it
        char *out = block + (ckpt__engine_max(c->begin, s->offset) - c->begin);
        for (size_t k = ckpt__engine_fixup_from(p, from); k < p->fixup_count && p->fixups[k].at < to; k++) {
            const ckpt__fixup *f = &p->fixups[k];
            size_t n = ckpt__engine_fixup_text(f, p->blobs[f->blob].crc, text);
            for (size_t j = 0; j < n; j++) {
                if (f->at + j >= from && f->at + j < to) out[f->at + j - from] = text[j];
            }
        }
    }
}

// Writes through the page cache; large pieces past it where the kernel can, which saves the later write-back.
static ckpt_err ckpt__engine_put_buffered(ckpt__engine_writer *w, const char *src, uint64_t at, size_t size) {
    if (size >= CKPT__ENGINE_STRAIGHT && ckpt__os_flag_get(&w->uncached) != 0) {
        ckpt__error_record before;
        ckpt__error_take(&before);
        ckpt_err e = ckpt__os_pwrite_uncached(w->fd, src, size, at, w->path);
        if (e != CKPT_UNSUPPORTED) return e;
        ckpt__error_last = before;
        ckpt__os_flag_set(&w->uncached, 0);
    }
    return ckpt__os_pwrite(w->fd, src, size, at, w->path);
}

// Writes bytes to their place: whole pages directly, the rest through the page cache. A direct write that fails for another
// reason than space is repeated through the page cache, and so is everything after it: file systems refuse with different
// errors and sometimes only in the middle.
static ckpt_err ckpt__engine_put(ckpt__engine_writer *w, const char *src, uint64_t at, uint64_t size, int worker) {
    size_t direct = (size_t)(size & ~(uint64_t)(CKPT__ENGINE_PAGE - 1)), all = (size_t)size;
    if (size < CKPT__ENGINE_LITTLE || (uintptr_t)src % w->align != 0 || ckpt__os_flag_get(&w->direct) == 0) direct = 0;
    if (direct > 0) {
        ckpt__error_record before;
        ckpt__error_take(&before);
        ckpt_err e = ckpt__os_pwrite(w->direct_fd, src, direct, at, w->path);
        if (e == CKPT_NO_SPACE) return e;
        if (e != CKPT_OK) {
            ckpt__error_last = before;
            ckpt__os_flag_set(&w->direct, 0);
            direct = 0;
        }
    }
    ckpt_err e = direct < all ? ckpt__engine_put_buffered(w, src + direct, at + direct, all - direct) : CKPT_OK;
    if (e == CKPT_OK) ckpt__engine_crew_moved(&w->crew, size, worker);
    return e;
}

// Takes the next chunk of the first pass, or of the second; false: there is none, or somebody failed.
static bool ckpt__engine_take(ckpt__engine_writer *w, ckpt__engine_chunk *c) {
    ckpt__os_mutex_lock(&w->crew.lock);
    bool have = !w->crew.stop && ckpt__engine_cut(w, &w->next, c);
    if (have) w->summing++;
    ckpt__os_mutex_unlock(&w->crew.lock);
    return have;
}

static bool ckpt__engine_take_late(ckpt__engine_writer *w, ckpt__engine_chunk *c) {
    ckpt__os_mutex_lock(&w->crew.lock);
    while (!w->summed && !w->crew.stop) ckpt__os_cond_wait(&w->crew.wake, &w->crew.lock);
    bool have = false;
    while (!have && !w->crew.stop && ckpt__engine_cut(w, &w->next_late, c)) have = c->late < c->end;
    ckpt__os_mutex_unlock(&w->crew.lock);
    return have;
}

// The calling worker has summed its chunk; the last one of all completes the plan's bytes.
static void ckpt__engine_summed(ckpt__engine_writer *w) {
    ckpt__os_mutex_lock(&w->crew.lock);
    if (--w->summing == 0 && w->next.at >= w->plan->size && !w->crew.stop) {
        ckpt__engine_fix(w->plan);
        w->summed = true;
        ckpt__os_cond_broadcast(&w->crew.wake);
    }
    ckpt__os_mutex_unlock(&w->crew.lock);
}

// One chunk of the first pass. The worker's block comes when it is first needed: straight writes do without.
static ckpt_err ckpt__engine_first(ckpt__engine_writer *w, const ckpt__engine_chunk *c, char **block, int worker) {
    const ckpt__seg *s = &w->plan->segs[c->seg];
    const size_t n = (size_t)(c->end - c->begin);
    const char *src = (const char *)s->src;
    ckpt_err e = CKPT_OK;
    if (c->straight) {
        src += c->begin - s->offset;
        if (s->blob >= 0) ckpt__engine_credit(w, c, s->blob, ckpt__digest_crc32(0, src, n), c->end);
    } else {
        if (w->mode != CKPT__ENGINE_FILL && *block == NULL) *block = (char *)ckpt__os_pages((size_t)w->chunk);
        if (w->mode != CKPT__ENGINE_FILL && *block == NULL) return CKPT_NOMEM;
        char *dst = w->mode == CKPT__ENGINE_FILL ? w->image + c->begin : w->mode == CKPT__ENGINE_SUM ? NULL : *block;
        e = ckpt__engine_gather(w, c, dst, *block, c->begin, c->end, true);
        if (e != CKPT_OK) return e;
        src = *block;
        if (w->mode == CKPT__ENGINE_WRITE) ckpt__engine_fill_known(w, c, *block);
    }
    ckpt__engine_summed(w);
    if (w->mode == CKPT__ENGINE_WRITE && c->late > c->begin) e = ckpt__engine_put(w, src, c->begin, c->late - c->begin, worker);
    return e;
}

static void ckpt__engine_write_main(void *ctx, int worker) {
    ckpt__engine_writer *w = (ckpt__engine_writer *)ctx;
    ckpt__engine_chunk c;
    char *block = NULL;
    ckpt_err e = CKPT_OK;
    while (e == CKPT_OK && ckpt__engine_take(w, &c)) e = ckpt__engine_first(w, &c, &block, worker);
    while (e == CKPT_OK && w->mode == CKPT__ENGINE_WRITE && ckpt__engine_take_late(w, &c)) {
        if (block == NULL) block = (char *)ckpt__os_pages((size_t)w->chunk);
        e = block == NULL ? CKPT_NOMEM : ckpt__engine_gather(w, &c, block, NULL, c.late, c.end, false);
        if (e == CKPT_OK) e = ckpt__engine_put(w, block, c.late, c.end - c.late, worker);
    }
    if (e != CKPT_OK) ckpt__engine_crew_fail(&w->crew);
    if (block != NULL) ckpt__os_pages_free(block, (size_t)w->chunk);
}

// Runs a mode over the whole plan. Afterwards all checksums are in the plan's bytes.
static ckpt_err ckpt__engine_run(ckpt__engine_writer *w, ckpt__plan *p, ckpt__engine_mode mode, ckpt__engine_job *job) {
    if (p->size == 0) return CKPT_OK;
    ckpt_err e = ckpt__engine_crew_init(&w->crew, p->state, job, p->size);
    if (e != CKPT_OK) return e;
    w->plan = p;
    w->mode = mode;
    for (size_t i = 0; i < p->blob_count; i++) p->blobs[i].crc = 0;
    uint64_t most = mode == CKPT__ENGINE_WRITE ? CKPT__ENGINE_CHUNK : CKPT__ENGINE_COPY;
    w->chunk = ckpt__engine_min(most, ckpt__engine_max(p->size / 16, CKPT__ENGINE_PIECE));
    w->chunk = ckpt__engine_round(w->chunk);
    int cpus = ckpt__os_cpus();
    int threads = mode == CKPT__ENGINE_WRITE ? 4 : cpus < 8 ? cpus : 8;
    ckpt__engine_parallel(ckpt__engine_threads(job, p->size, CKPT__ENGINE_SMALL, threads), ckpt__engine_write_main, w);
    for (size_t i = 0; i < p->blob_count; i++) p->blobs[i].has_crc = true;
    e = ckpt__engine_crew_free(&w->crew);
    if (e != CKPT_OK || mode != CKPT__ENGINE_FILL) return e;
    for (size_t i = 0; i < p->seg_count; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->late != CKPT__LATE_NO) memcpy(w->image + s->offset, p->bytes.data + s->at, (size_t)s->size);
    }
    return CKPT_OK;
}

// A plan that is not worth threads: gathered in one block and written by one call.
static ckpt_err ckpt__engine_write_small(ckpt__plan *p, int fd, const char *path, ckpt__engine_job *job) {
    ckpt__engine_writer w;
    memset(&w, 0, sizeof w);
    size_t size = (size_t)p->size;
    if (size == 0) return CKPT_OK;
    w.image = (char *)ckpt__mem_resize(&p->allocator, NULL, 0, size);
    if (w.image == NULL) return CKPT_NOMEM;
    ckpt__engine_job alone = *job;
    alone.threads = 1;
    ckpt_err e = ckpt__engine_run(&w, p, CKPT__ENGINE_FILL, &alone);
    if (e == CKPT_OK) e = ckpt__os_pwrite(fd, w.image, size, 0, path);
    ckpt__mem_free(&p->allocator, w.image, size);
    if (e != CKPT_OK) return e;
    memset(&w.crew, 0, sizeof w.crew);
    w.crew.job = job;
    w.crew.total = size;
    job->done = 0;
    ckpt__engine_crew_moved(&w.crew, size, 0);
    return CKPT_OK;
}

// Writes the whole plan to an empty file, checksums filled in. Nothing is synced. Progress ends at the plan's size.
static ckpt_err ckpt__engine_write(ckpt__plan *p, int fd, const char *path, ckpt__engine_job *job) {
    if (p->size <= CKPT__ENGINE_SMALL) return ckpt__engine_write_small(p, fd, path, job);
    ckpt__engine_writer w;
    memset(&w, 0, sizeof w);
    ckpt_err e = ckpt__os_allocate(fd, p->size, path);
    if (e != CKPT_OK) return e;
    w.fd = fd;
    w.path = path;
    w.align = 1;
    w.direct_fd = job->no_direct ? -1 : ckpt__engine_open_direct(fd, path, true, &w.align);
    if (w.direct_fd < 0) w.align = 1;
    w.direct = w.direct_fd >= 0;
    w.uncached = 1;
    e = ckpt__engine_run(&w, p, CKPT__ENGINE_WRITE, job);
    if (e == CKPT_OK) ckpt__engine_crew_moved(&w.crew, 0, 0);
    if (w.direct_fd >= 0) {
        ckpt_err closed = ckpt__os_close(w.direct_fd, path);
        if (e == CKPT_OK) e = closed;
    }
    return e;
}

//-- streaming -------------------------------------------------------------------

typedef struct ckpt__engine_stream_out {
    ckpt__engine_crew crew;
    ckpt_err        (*sink)(const void *p, size_t n, void *user);
    void             *user;
    char             *block;        // of CKPT__ENGINE_COPY bytes
    size_t            used;
} ckpt__engine_stream_out;

static ckpt_err ckpt__engine_flush(ckpt__engine_stream_out *o) {
    if (o->used == 0) return CKPT_OK;
    ckpt_err e = o->sink(o->block, o->used, o->user);
    if (e == CKPT_OK) ckpt__engine_crew_moved(&o->crew, o->used, 0);
    o->used = 0;
    return e;
}

// Hands memory to the sink: large pieces as they are, small ones through the block.
static ckpt_err ckpt__engine_emit(ckpt__engine_stream_out *o, const char *src, uint64_t size) {
    ckpt_err e = CKPT_OK;
    while (size > 0 && e == CKPT_OK) {
        size_t n = (size_t)ckpt__engine_min(size, CKPT__ENGINE_COPY - o->used);
        if (size >= CKPT__ENGINE_PIECE) {
            n = (size_t)ckpt__engine_min(size, CKPT__ENGINE_COPY);
            e = ckpt__engine_flush(o);
            if (e == CKPT_OK) e = o->sink(src, n, o->user);
            if (e == CKPT_OK) ckpt__engine_crew_moved(&o->crew, n, 0);
        } else {
            memcpy(o->block + o->used, src, n);
            o->used += n;
            if (o->used == CKPT__ENGINE_COPY) e = ckpt__engine_flush(o);
        }
        src += n;
        size -= n;
    }
    return e;
}

// Hands over a segment that must be fetched first. It was fetched once already for its sum: both must be the same bytes.
static ckpt_err ckpt__engine_emit_fetched(ckpt__engine_stream_out *o, const ckpt__plan *p, const ckpt__seg *s) {
    const ckpt__blob *b = &p->blobs[s->blob];
    ckpt_err e = ckpt__engine_flush(o);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < s->size && e == CKPT_OK; at += CKPT__ENGINE_COPY) {
        size_t n = (size_t)ckpt__engine_min(s->size - at, CKPT__ENGINE_COPY);
        if (s->kind == CKPT__SEG_FILE) e = ckpt__engine_read_file(s, o->block, at, n);
        else e = ckpt__engine_copy_device(&o->crew, o->block, (const char *)s->src + at, n, false);
        if (e != CKPT_OK) return e;
        crc = ckpt__digest_crc32(crc, o->block, n);
        o->used = n;
        e = ckpt__engine_flush(o);
    }
    if (e == CKPT_OK && b->size == s->size && b->crc != crc)
        e = ckpt__error_set(CKPT_IO, "%s changed while it was being saved", b->name);
    return e;
}

// Hands the whole plan to a sink, in order. A stream cannot go back, so the checksums, which stand in front of what they
// sum, are taken in a pass of their own: memory is read far faster than any codec works.
static ckpt_err ckpt__engine_stream(ckpt__plan *p, ckpt_err (*sink)(const void *p, size_t n, void *user), void *user,
                                    ckpt__engine_job *job) {
    ckpt__engine_writer w;
    ckpt__engine_stream_out o;
    ckpt__engine_job quiet = *job;
    memset(&w, 0, sizeof w);
    memset(&o, 0, sizeof o);
    quiet.progress = NULL;
    ckpt_err e = ckpt__engine_run(&w, p, CKPT__ENGINE_SUM, &quiet);
    if (e == CKPT_OK) e = ckpt__engine_crew_init(&o.crew, p->state, job, p->size);
    if (e != CKPT_OK) return e;
    o.sink = sink;
    o.user = user;
    o.block = (char *)ckpt__os_pages(CKPT__ENGINE_COPY);
    if (o.block == NULL) e = CKPT_NOMEM;
    for (size_t i = 0; i < p->seg_count && e == CKPT_OK; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->kind == CKPT__SEG_BYTES) e = ckpt__engine_emit(&o, p->bytes.data + s->at, s->size);
        else if (s->kind == CKPT__SEG_DATA) e = ckpt__engine_emit(&o, (const char *)s->src, s->size);
        else e = ckpt__engine_emit_fetched(&o, p, s);
    }
    if (e == CKPT_OK) e = ckpt__engine_flush(&o);
    ckpt__os_pages_free(o.block, CKPT__ENGINE_COPY);
    (void)ckpt__engine_crew_free(&o.crew);
    return e;
}

//-- images ----------------------------------------------------------------------

// A file's bytes in memory: what a snapshot is copied into. Fresh pages cost ten times a copy, so the block is touched when it
// is reserved and kept from one snapshot to the next.
typedef struct ckpt__image {
    void  *data;
    size_t size, cap;
} ckpt__image;

static void ckpt__image_free(ckpt__image *im) {
    ckpt__os_pages_free(im->data, im->cap);
    memset(im, 0, sizeof *im);
}

typedef struct ckpt__image_touching {
    ckpt__image *im;
    uint64_t     next;
} ckpt__image_touching;

static void ckpt__image_touch_main(void *ctx, int worker) {
    ckpt__image_touching *t = (ckpt__image_touching *)ctx;
    (void)worker;
    for (;;) {
        uint64_t at = ckpt__os_add64(&t->next, CKPT__ENGINE_COPY);
        if (at >= t->im->cap) return;
        volatile char *p = (volatile char *)t->im->data;
        for (uint64_t end = ckpt__engine_min(at + CKPT__ENGINE_COPY, t->im->cap); at < end; at += CKPT__ENGINE_PAGE) p[at] = 0;
    }
}

// Makes room for `size` bytes, which are then in memory and not only promised.
static ckpt_err ckpt__image_reserve(ckpt__image *im, uint64_t size) {
    if (size <= im->cap && im->data != NULL) return CKPT_OK;
    ckpt__image_free(im);
    if (size > SIZE_MAX / 2) return ckpt__mem_fail(SIZE_MAX);
    im->data = ckpt__os_pages(size > 0 ? (size_t)size : 1);
    if (im->data == NULL) return CKPT_NOMEM;
    im->cap = size > 0 ? (size_t)size : 1;
    ckpt__image_touching t;
    t.im = im;
    t.next = 0;
    int cpus = ckpt__os_cpus();
    ckpt__engine_job any;
    memset(&any, 0, sizeof any);
    ckpt__engine_parallel(ckpt__engine_threads(&any, size, CKPT__ENGINE_COPY, cpus < 8 ? cpus : 8), ckpt__image_touch_main, &t);
    return CKPT_OK;
}

// Copies the whole plan into the image, checksums filled in. Afterwards the image is the file, and the plan and what it points
// to are no longer needed.
static ckpt_err ckpt__image_fill(ckpt__image *im, ckpt__plan *p, ckpt__engine_job *job) {
    ckpt__engine_writer w;
    ckpt__engine_job quiet = *job;
    memset(&w, 0, sizeof w);
    quiet.progress = NULL;
    im->size = 0;
    ckpt_err e = ckpt__image_reserve(im, p->size);
    if (e != CKPT_OK) return e;
    w.image = (char *)im->data;
    e = ckpt__engine_run(&w, p, CKPT__ENGINE_FILL, &quiet);
    if (e == CKPT_OK) im->size = (size_t)p->size;
    return e;
}

// Writes the image to an empty file: a plan of one piece of memory, which the page-aligned block makes a direct write.
static ckpt_err ckpt__image_write(const ckpt__image *im, int fd, const char *path, ckpt__engine_job *job) {
    ckpt__plan p;
    ckpt__seg seg;
    memset(&p, 0, sizeof p);
    memset(&seg, 0, sizeof seg);
    seg.kind = CKPT__SEG_DATA;
    seg.src = im->data;
    seg.size = im->size;
    seg.blob = -1;
    p.segs = &seg;
    p.seg_count = im->size > 0 ? 1 : 0;
    p.size = im->size;
    return ckpt__engine_write(&p, fd, path, job);
}

static ckpt_err ckpt__image_stream(const ckpt__image *im, ckpt_err (*sink)(const void *p, size_t n, void *user), void *user,
                                   ckpt__engine_job *job) {
    ckpt__engine_crew crew;
    ckpt_err e = ckpt__engine_crew_init(&crew, NULL, job, im->size);
    if (e != CKPT_OK) return e;
    for (size_t at = 0; at < im->size && e == CKPT_OK; at += CKPT__ENGINE_COPY) {
        size_t n = (size_t)ckpt__engine_min(im->size - at, CKPT__ENGINE_COPY);
        e = sink((const char *)im->data + at, n, user);
        if (e == CKPT_OK) ckpt__engine_crew_moved(&crew, n, 0);
    }
    (void)ckpt__engine_crew_free(&crew);
    return e;
}

//-- reading ---------------------------------------------------------------------

// What a caller wants of a file: an entry's bytes at dst, row-major.
typedef struct ckpt__want {
    int   entry;
    void *dst;
    bool  device;
} ckpt__want;

// Bytes of the file that are read: a blob with its sum, a gap of the structure, or just what is wanted.
enum { CKPT__RANGE_GAP = -1, CKPT__RANGE_PLAIN = -2 };
typedef struct ckpt__engine_range {
    uint64_t begin, end;
    int      blob;
} ckpt__engine_range;

// A want in order of place.
typedef struct ckpt__engine_goal {
    uint64_t           begin, end;  // first and last byte of the file that belong to it
    uint64_t           reach;       // the farthest end of this and all goals before it
    const ckpt__entry *entry;
    char              *dst;         // host memory, or device memory when `device`
    bool               device;
    bool               straight;    // large, in host memory, without gaps, and no other goal overlaps it
    char              *staged;      // host block of a device tensor with gaps, which becomes whole only at the end
} ckpt__engine_goal;

typedef struct ckpt__engine_reader {
    ckpt__engine_crew   crew;
    const ckpt__source *src;
    const ckpt__toc    *toc;
    ckpt__engine_range        *ranges;
    ckpt__engine_goal         *goals;
    uint32_t           *sums;       // of the blobs
    size_t              range_count, range_cap, goal_count;
    bool                verify, all;                // all: every blob is checked, wanted or not
    uint64_t            gap_total, gap_taken;   // bytes in gaps, in all and in front of the next window
    uint32_t            gap_sum;                // below crew.lock, as are gap_taken, sums of blobs that span windows, and:
    uint64_t            at;
    size_t              range, goal;            // the range that `at` lies in; the first straight goal that ends behind it
    uint64_t            chunk;
    int                 direct_fd;
    size_t              align;
    ckpt__os_flag       direct;
} ckpt__engine_reader;

// What one worker reads at a time: either a part of a straight goal or up to a chunk of anything.
typedef struct ckpt__engine_window {
    uint64_t begin, end;
    size_t   range;
    uint64_t bytes;                 // without what lies between the ranges
    uint64_t gap_after;             // bytes in gaps behind the window
    ckpt__engine_goal *straight;
} ckpt__engine_window;

// A tensor's elements in the file as nested steps, the widest first. Dimensions that follow each other without a gap in the file
// and in memory are one run.
typedef struct ckpt__engine_layout {
    int      dims;
    uint64_t count[CKPT_MAX_DIMS], step[CKPT_MAX_DIMS], dst_step[CKPT_MAX_DIMS];
    uint64_t span[CKPT_MAX_DIMS + 1];   // bytes of the file from the first to the last of what is nested at this depth
    uint64_t run;
} ckpt__engine_layout;

// CKPT_CORRUPT when the steps are negative or reach farther than 63 bits.
static ckpt_err ckpt__engine_layout_init(ckpt__engine_layout *l, const ckpt__entry *e) {
    const uint64_t limit = (uint64_t)INT64_MAX;
    uint64_t unit = ckpt__state_dtype_size(e->dtype), dst = unit;
    memset(l, 0, sizeof *l);
    l->run = unit;
    for (int d = e->ndim - 1; d >= 0 && unit > 0; d--) {
        uint64_t n = (uint64_t)e->shape[d], stride = (uint64_t)e->stride[d];
        if (e->shape[d] < 1 || e->stride[d] < 0 || stride > limit / unit || n > limit / dst) break;
        if (n > 1) {
            int at = l->dims++;
            for (; at > 0 && l->step[at - 1] < stride * unit; at--) {
                l->count[at] = l->count[at - 1];
                l->step[at] = l->step[at - 1];
                l->dst_step[at] = l->dst_step[at - 1];
            }
            l->count[at] = n;
            l->step[at] = stride * unit;
            l->dst_step[at] = dst;
        }
        dst *= n;
        if (d == 0 && dst == e->size) dst = 0;      // marks that every dimension was sound
    }
    if (dst != 0 && !(e->ndim == 0 && e->size == unit))
        return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' has an impossible shape", e->name);
    while (l->dims > 0 && l->step[l->dims - 1] == l->run && l->dst_step[l->dims - 1] == l->run) l->run *= l->count[--l->dims];
    l->span[l->dims] = l->run;
    for (int d = l->dims - 1; d >= 0; d--) {
        if (l->step[d] > 0 && l->count[d] - 1 > (limit - l->span[d + 1]) / l->step[d])
            return ckpt__error_set(CKPT_CORRUPT, "the tensor '%s' has impossible strides", e->name);
        l->span[d] = l->span[d + 1] + (l->count[d] - 1) * l->step[d];
    }
    return CKPT_OK;
}

// Copies those bytes of a tensor that lie in [begin, end) of the file, which stand at `block`. Only steps that meet the range are
// visited, so all windows of a tensor together cost one visit of each element.
static void ckpt__engine_layout_copy(const ckpt__engine_layout *l, int depth, uint64_t pos, char *dst, const char *block,
                                     uint64_t begin, uint64_t end) {
    if (pos >= end || pos + l->span[depth] <= begin) return;
    if (depth == l->dims) {
        uint64_t a = ckpt__engine_max(pos, begin), b = ckpt__engine_min(pos + l->run, end);
        memcpy(dst + (a - pos), block + (a - begin), (size_t)(b - a));
        return;
    }
    uint64_t step = l->step[depth], first = 0, last = l->count[depth];
    if (step > 0) {
        uint64_t span = l->span[depth + 1];
        if (begin >= pos + span) first = (begin - pos - span) / step + 1;
        last = ckpt__engine_min(last, (end - pos + step - 1) / step);
    }
    for (uint64_t i = first; i < last; i++)
        ckpt__engine_layout_copy(l, depth + 1, pos + i * step, dst + i * l->dst_step[depth], block, begin, end);
}

// Finds where a want lies in the file, and checks that it is there.
static ckpt_err ckpt__engine_find_goal(const ckpt__engine_reader *r, const ckpt__want *want, ckpt__engine_goal *g) {
    const ckpt__entry *e = &r->toc->entries[want->entry];
    ckpt__engine_layout l;
    memset(g, 0, sizeof *g);
    g->entry = e;
    g->dst = (char *)want->dst;
    g->device = want->device;
    g->begin = g->end = e->offset;
    if (e->size == 0) return CKPT_OK;
    uint64_t span = e->size;
    if (!e->contiguous) {
        ckpt_err err = ckpt__engine_layout_init(&l, e);
        if (err != CKPT_OK) return err;
        span = l.span[0];
    }
    uint64_t low = r->src->base, high = r->src->base + r->src->size;
    if (e->blob >= 0) {
        low = r->toc->blobs[e->blob].offset;
        high = low + r->toc->blobs[e->blob].size;
    }
    if (e->offset < low || e->offset > high || span > high - e->offset)
        return ckpt__error_set(CKPT_CORRUPT, "'%s' reaches outside of its place in the file", e->name);
    g->end = e->offset + span;
    g->straight = !g->device && e->contiguous && e->size >= CKPT__ENGINE_STRAIGHT;
    return CKPT_OK;
}

static int ckpt__engine_goal_order(const void *a, const void *b) {
    const ckpt__engine_goal *x = (const ckpt__engine_goal *)a, *y = (const ckpt__engine_goal *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

// Values that the reader already holds are handed out at once; the others become goals, in order of place.
static ckpt_err ckpt__engine_goals(ckpt__engine_reader *r, const ckpt__want *wants, size_t count) {
    if (count > SIZE_MAX / sizeof *r->goals) return ckpt__mem_fail(SIZE_MAX);
    if (count > 0) r->goals = (ckpt__engine_goal *)ckpt__mem_alloc(&r->toc->allocator, count * sizeof *r->goals);
    if (count > 0 && r->goals == NULL) return CKPT_NOMEM;
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < count && e == CKPT_OK; i++) {
        const ckpt__entry *entry = &r->toc->entries[wants[i].entry];
        if (entry->blob < 0 && entry->text != NULL) {
            size_t n = (size_t)entry->size;
            if (n > 0 && wants[i].device) e = ckpt__engine_copy_device(&r->crew, wants[i].dst, entry->text, n, true);
            else if (n > 0) memcpy(wants[i].dst, entry->text, n);
        } else {
            e = ckpt__engine_find_goal(r, &wants[i], &r->goals[r->goal_count]);
            if (e == CKPT_OK) r->goal_count++;
        }
    }
    if (e != CKPT_OK || r->goal_count == 0) return e;
    qsort(r->goals, r->goal_count, sizeof *r->goals, ckpt__engine_goal_order);
    uint64_t reach = 0;
    for (size_t i = 0; i < r->goal_count; i++) {
        ckpt__engine_goal *g = &r->goals[i];
        if (g->begin < reach || (i + 1 < r->goal_count && g[1].begin < g->end)) g->straight = false;
        reach = ckpt__engine_max(reach, g->end);
        g->reach = reach;
        if (!g->device || g->entry->contiguous || g->end == g->begin) continue;
        g->staged = (char *)ckpt__os_pages((size_t)g->entry->size);
        if (g->staged == NULL) return CKPT_NOMEM;
    }
    return CKPT_OK;
}

static ckpt_err ckpt__engine_add_range(ckpt__engine_reader *r, uint64_t begin, uint64_t end, int blob) {
    if (begin >= end) return CKPT_OK;
    if (end > r->src->base + r->src->size)
        return ckpt__error_set(CKPT_CORRUPT, "it is cut short: it lists bytes up to %llu, but has %llu", (unsigned long long)end,
                               (unsigned long long)(r->src->base + r->src->size));
    ckpt_err e = ckpt__mem_grow(&r->toc->allocator, (void **)&r->ranges, sizeof *r->ranges, &r->range_cap, r->range_count + 1);
    if (e != CKPT_OK) return e;
    ckpt__engine_range *x = &r->ranges[r->range_count++];
    x->begin = begin;
    x->end = end;
    x->blob = blob;
    r->crew.total += end - begin;
    if (blob == CKPT__RANGE_GAP) r->gap_total += end - begin;
    return CKPT_OK;
}

// Without verification: exactly what is wanted.
static ckpt_err ckpt__engine_ranges_plain(ckpt__engine_reader *r) {
    ckpt_err e = CKPT_OK;
    uint64_t begin = 0, end = 0;
    for (size_t i = 0; i < r->goal_count && e == CKPT_OK; i++) {
        const ckpt__engine_goal *g = &r->goals[i];
        if (g->begin > end) {
            e = ckpt__engine_add_range(r, begin, end, CKPT__RANGE_PLAIN);
            begin = g->begin;
        } else if (i == 0) {
            begin = g->begin;
        }
        end = ckpt__engine_max(end, g->end);
    }
    return e == CKPT_OK ? ckpt__engine_add_range(r, begin, end, CKPT__RANGE_PLAIN) : e;
}

// With verification: the blobs that something is wanted of (all of them when nothing is), whole, and the gaps between blobs.
static ckpt_err ckpt__engine_ranges_verified(ckpt__engine_reader *r) {
    const ckpt__toc *t = r->toc;
    uint64_t low = t->has_structure_crc ? t->structure_begin : 0, high = t->has_structure_crc ? t->structure_end : 0, at = 0;
    for (size_t i = 0; i < r->goal_count; i++) {
        if (r->goals[i].entry->blob >= 0) r->sums[r->goals[i].entry->blob] = 1;
    }
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i <= t->blob_count && e == CKPT_OK; i++) {
        uint64_t begin = i < t->blob_count ? t->blobs[i].offset : UINT64_MAX;
        if (begin < at) return ckpt__error_set(CKPT_CORRUPT, "'%s' overlaps what is before it", t->blobs[i].name);
        e = ckpt__engine_add_range(r, ckpt__engine_max(at, low), ckpt__engine_min(begin, high), CKPT__RANGE_GAP);
        if (i == t->blob_count) break;
        if (t->blobs[i].size > UINT64_MAX - begin) return ckpt__error_set(CKPT_CORRUPT, "'%s' is too long", t->blobs[i].name);
        at = begin + t->blobs[i].size;
        bool take = r->all || r->sums[i] != 0;
        r->sums[i] = take ? 0 : t->blobs[i].crc;
        if (take && e == CKPT_OK) e = ckpt__engine_add_range(r, begin, at, (int)i);
    }
    return e;
}

// Cuts the next window off, below crew.lock. Direct reads into the caller's memory must begin at a page of the file and of
// memory; what does not is read through the worker's block, and so is everything small, together with its neighbours.
static bool ckpt__engine_next_window(ckpt__engine_reader *r, ckpt__engine_window *w) {
    while (r->range < r->range_count && r->at >= r->ranges[r->range].end) r->range++;
    if (r->range >= r->range_count) return false;
    const ckpt__engine_range *x = &r->ranges[r->range];
    uint64_t at = ckpt__engine_max(r->at, x->begin), stop = UINT64_MAX;
    while (r->goal < r->goal_count && (!r->goals[r->goal].straight || r->goals[r->goal].end <= at)) r->goal++;
    ckpt__engine_goal *g = r->goal < r->goal_count ? &r->goals[r->goal] : NULL;
    w->range = r->range;
    w->begin = at;
    w->straight = NULL;
    if (g != NULL) {
        uint64_t unit = r->direct_fd >= 0 ? CKPT__ENGINE_PAGE : 1;
        stop = ckpt__engine_max(at, g->begin);
        stop = (stop + unit - 1) & ~(unit - 1);
        bool fits = ((uintptr_t)g->dst + (uintptr_t)(stop - g->begin)) % r->align == 0;
        if (!fits || stop >= g->end || g->end - stop < CKPT__ENGINE_STRAIGHT) stop = UINT64_MAX;
        if (stop == at) w->straight = g;
        if (stop == at) w->end = ckpt__engine_min(at + r->chunk, at + ((g->end - at) & ~(unit - 1)));
    }
    if (w->straight == NULL) {
        uint64_t limit = ckpt__engine_min((at + r->chunk) & ~(uint64_t)(CKPT__ENGINE_PAGE - 1), stop);
        w->end = at;
        w->bytes = 0;
        for (; r->range < r->range_count; r->range++) {
            x = &r->ranges[r->range];
            if (x->begin >= limit || (x->begin > w->end && x->begin - w->end > CKPT__ENGINE_LITTLE)) break;
            uint64_t bytes = ckpt__engine_min(x->end, limit) - ckpt__engine_max(at, x->begin);
            if (x->blob == CKPT__RANGE_GAP) r->gap_taken += bytes;
            w->bytes += bytes;
            w->end = ckpt__engine_min(x->end, limit);
            if (x->end > limit) break;
        }
    }
    if (w->straight != NULL) w->bytes = w->end - w->begin;
    r->at = w->end;
    w->gap_after = r->gap_total - r->gap_taken;
    return true;
}

// Reads [begin, end) of the file to dst. The file may turn out shorter than its own listing says.
static ckpt_err ckpt__engine_fetch(ckpt__engine_reader *r, char *dst, uint64_t begin, uint64_t end) {
    const char *path = r->src->path;
    size_t size = (size_t)(end - begin), got = 0;
    ckpt_err e = CKPT_IO;
    bool whole = begin % CKPT__ENGINE_PAGE == 0 && (uintptr_t)dst % r->align == 0;
    if (r->direct_fd >= 0 && whole && ckpt__os_flag_get(&r->direct) != 0) {
        // The worker's block has room for the rest of the last page; a straight read ends with a page.
        ckpt__error_record before;
        ckpt__error_take(&before);
        e = ckpt__os_pread(r->direct_fd, dst, (size_t)(ckpt__engine_round(end) - begin), begin, &got, path);
        if (e != CKPT_OK) {
            ckpt__error_last = before;
            ckpt__os_flag_set(&r->direct, 0);
        }
    }
    if (e != CKPT_OK) e = ckpt__os_pread(r->src->fd, dst, size, begin, &got, path);
    if (e == CKPT_OK && got < size)
        e = ckpt__error_set(CKPT_CORRUPT, "it is cut short: it ends at byte %llu, before what it lists",
                            (unsigned long long)(begin + got));
    return e;
}

static void ckpt__engine_credit_read(ckpt__engine_reader *r, int blob, uint32_t crc, uint64_t begin, uint64_t end) {
    const ckpt__blob *b = &r->toc->blobs[blob];
    crc = ckpt__digest_crc32_shift(crc, b->offset + b->size - end);
    bool shared = begin > b->offset || end < b->offset + b->size;
    if (shared) ckpt__os_mutex_lock(&r->crew.lock);
    r->sums[blob] ^= crc;
    if (shared) ckpt__os_mutex_unlock(&r->crew.lock);
}

// A window that is all of one goal's: read to where it belongs, and summed piece by piece while it is in the cache.
static ckpt_err ckpt__engine_read_straight(ckpt__engine_reader *r, const ckpt__engine_window *w) {
    char *dst = w->straight->dst + (w->begin - w->straight->begin);
    uint64_t piece = r->direct_fd >= 0 && ckpt__os_flag_get(&r->direct) != 0 ? r->chunk : (uint64_t)CKPT__ENGINE_PIECE;
    int blob = r->ranges[w->range].blob;
    uint32_t crc = 0;
    for (uint64_t at = w->begin; at < w->end; at += piece) {
        uint64_t end = ckpt__engine_min(w->end, at + piece);
        ckpt_err e = ckpt__engine_fetch(r, dst + (at - w->begin), at, end);
        if (e != CKPT_OK) return e;
        if (blob >= 0) crc = ckpt__digest_crc32(crc, dst + (at - w->begin), (size_t)(end - at));
    }
    if (blob >= 0) ckpt__engine_credit_read(r, blob, crc, w->begin, w->end);
    return CKPT_OK;
}

// The sums of a window while it is gone through: of the gaps so far, and of the range that is still open.
typedef struct ckpt__engine_sums {
    size_t   range;
    uint32_t gaps, blob;
} ckpt__engine_sums;

// Adds those bytes of the window's ranges that lie in [begin, end), which stand at `block`.
static void ckpt__engine_sum_window(ckpt__engine_reader *r, const ckpt__engine_window *w, ckpt__engine_sums *s, const char *block,
                                    uint64_t begin, uint64_t end) {
    for (; s->range < r->range_count && r->ranges[s->range].begin < end; s->range++) {
        const ckpt__engine_range *x = &r->ranges[s->range];
        uint64_t a = ckpt__engine_max(begin, x->begin), b = ckpt__engine_min(end, x->end);
        const char *p = block + (a - begin);
        if (x->blob == CKPT__RANGE_GAP) {
            s->gaps = ckpt__digest_crc32(s->gaps, p, (size_t)(b - a));
        } else {
            s->blob = ckpt__digest_crc32(s->blob, p, (size_t)(b - a));
            if (b == x->end || b == w->end) {
                ckpt__engine_credit_read(r, x->blob, s->blob, ckpt__engine_max(w->begin, x->begin), b);
                s->blob = 0;
            }
        }
        if (x->end > end) break;
    }
}

// Hands the bytes [begin, end) of the file, which stand at `block`, to every goal that has some of them.
static ckpt_err ckpt__engine_scatter(ckpt__engine_reader *r, const char *block, uint64_t begin, uint64_t end) {
    size_t low = 0, high = r->goal_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (r->goals[mid].reach > begin) high = mid;
        else low = mid + 1;
    }
    for (size_t i = low; i < r->goal_count && r->goals[i].begin < end; i++) {
        ckpt__engine_goal *g = &r->goals[i];
        uint64_t a = ckpt__engine_max(begin, g->begin), b = ckpt__engine_min(end, g->end);
        if (a >= b) continue;
        ckpt_err e = CKPT_OK;
        if (!g->entry->contiguous) {
            ckpt__engine_layout l;
            e = ckpt__engine_layout_init(&l, g->entry);
            char *dst = g->staged != NULL ? g->staged : g->dst;
            if (e == CKPT_OK) ckpt__engine_layout_copy(&l, 0, g->begin, dst, block, begin, end);
        } else if (g->device) {
            e = ckpt__engine_copy_device(&r->crew, g->dst + (a - g->begin), block + (a - begin), (size_t)(b - a), true);
        } else {
            memcpy(g->dst + (a - g->begin), block + (a - begin), (size_t)(b - a));
        }
        if (e != CKPT_OK) return e;
    }
    return CKPT_OK;
}

static ckpt_err ckpt__engine_read_window(ckpt__engine_reader *r, const ckpt__engine_window *w, char *block) {
    uint64_t begin = w->begin & ~(uint64_t)(CKPT__ENGINE_PAGE - 1);
    uint64_t piece = r->direct_fd >= 0 ? w->end - begin : (uint64_t)CKPT__ENGINE_PIECE;
    ckpt__engine_sums sums;
    memset(&sums, 0, sizeof sums);
    sums.range = w->range;
    for (uint64_t at = begin; at < w->end; at += piece) {
        uint64_t end = ckpt__engine_min(w->end, at + piece);
        ckpt_err e = ckpt__engine_fetch(r, block, at, end);
        for (uint64_t a = ckpt__engine_max(at, w->begin); a < end && e == CKPT_OK;) {
            uint64_t b = ckpt__engine_min(end, a + CKPT__ENGINE_PIECE);
            if (r->verify) ckpt__engine_sum_window(r, w, &sums, block + (a - at), a, b);
            e = ckpt__engine_scatter(r, block + (a - at), a, b);
            a = b;
        }
        if (e != CKPT_OK) return e;
    }
    if (sums.gaps != 0) {
        ckpt__os_mutex_lock(&r->crew.lock);
        r->gap_sum ^= ckpt__digest_crc32_shift(sums.gaps, w->gap_after);
        ckpt__os_mutex_unlock(&r->crew.lock);
    }
    return CKPT_OK;
}

static void ckpt__engine_read_main(void *ctx, int worker) {
    ckpt__engine_reader *r = (ckpt__engine_reader *)ctx;
    const size_t room = (size_t)r->chunk + 2 * CKPT__ENGINE_PAGE;
    char *block = NULL;
    ckpt_err e = CKPT_OK;
    while (e == CKPT_OK) {
        ckpt__engine_window w;
        ckpt__os_mutex_lock(&r->crew.lock);
        bool have = !r->crew.stop && ckpt__engine_next_window(r, &w);
        ckpt__os_mutex_unlock(&r->crew.lock);
        if (!have) break;
        if (w.straight == NULL && block == NULL) block = (char *)ckpt__os_pages(room);
        if (w.straight != NULL) e = ckpt__engine_read_straight(r, &w);
        else e = block == NULL ? CKPT_NOMEM : ckpt__engine_read_window(r, &w, block);
        if (e == CKPT_OK) ckpt__engine_crew_moved(&r->crew, w.bytes, worker);
    }
    if (e != CKPT_OK) ckpt__engine_crew_fail(&r->crew);
    if (block != NULL) ckpt__os_pages_free(block, room);
}

// Compares the sums: the first damaged blob is named, then the structure.
static ckpt_err ckpt__engine_compare(const ckpt__engine_reader *r) {
    const ckpt__toc *t = r->toc;
    for (size_t i = 0; i < t->blob_count; i++) {
        const ckpt__blob *b = &t->blobs[i];
        if (b->has_crc && r->sums[i] != b->crc)
            return ckpt__error_set(CKPT_CORRUPT, "'%s' is damaged: its checksum is %08x and should be %08x", b->name,
                                   (unsigned)r->sums[i], (unsigned)b->crc);
    }
    uint32_t sum = ckpt__digest_crc32(r->gap_sum, "00000000", (size_t)t->structure_blank);
    if (t->has_structure_crc && sum != t->structure_crc)
        return ckpt__error_set(CKPT_CORRUPT, "its headers are damaged: their checksum is %08x and should be %08x",
                               (unsigned)sum, (unsigned)t->structure_crc);
    return CKPT_OK;
}

// Device tensors with gaps go over whole.
static ckpt_err ckpt__engine_deliver(ckpt__engine_reader *r) {
    for (size_t i = 0; i < r->goal_count; i++) {
        const ckpt__engine_goal *g = &r->goals[i];
        if (g->staged == NULL) continue;
        ckpt_err e = ckpt__engine_copy_device(&r->crew, g->dst, g->staged, (size_t)g->entry->size, true);
        if (e != CKPT_OK) return e;
    }
    return CKPT_OK;
}

// Chooses how: what is in the page cache is copied from it, by a few threads; the rest comes faster past it.
static ckpt_err ckpt__engine_read_run(ckpt__engine_reader *r, ckpt__engine_job *job) {
    const ckpt__source *src = r->src;
    uint64_t begin = r->ranges[0].begin, end = r->ranges[r->range_count - 1].end, total = r->crew.total;
    int cpus = ckpt__os_cpus(), threads = cpus < 4 ? cpus : 4;
    bool cold = !job->no_direct && total >= CKPT__ENGINE_READ && !ckpt__os_cached(src->fd, begin, end - begin);
    if (cold) r->direct_fd = ckpt__engine_open_direct(src->fd, src->path, false, &r->align);
    if (r->direct_fd < 0) r->align = 1;
    r->direct = r->direct_fd >= 0;
    if (r->direct_fd >= 0) threads = 4;
    r->chunk = r->direct_fd >= 0 ? CKPT__ENGINE_READ : CKPT__ENGINE_COPY;
    r->chunk = ckpt__engine_round(ckpt__engine_min(r->chunk, ckpt__engine_max(total / 8, CKPT__ENGINE_PIECE)));
    ckpt__engine_parallel(ckpt__engine_threads(job, total, CKPT__ENGINE_SMALL, threads), ckpt__engine_read_main, r);
    if (r->direct_fd >= 0) (void)ckpt__os_close(r->direct_fd, src->path);
    return CKPT_OK;
}

// Reads the wanted entries into memory. With `verify`, the checksum of every blob touched and of the structure is compared;
// with `verify` and nothing wanted, the whole file is checked in constant memory. CKPT_CORRUPT names the blob.
static ckpt_err ckpt__engine_read(const ckpt__source *src, const ckpt__toc *toc, const ckpt__want *wants, size_t count,
                                  bool verify, const ckpt_state *state, ckpt__engine_job *job) {
    ckpt__engine_reader r;
    const ckpt_allocator *a = &toc->allocator;
    memset(&r, 0, sizeof r);
    ckpt_err e = ckpt__engine_crew_init(&r.crew, state, job, 0);
    if (e != CKPT_OK) return e;
    r.src = src;
    r.toc = toc;
    r.verify = verify;
    r.all = count == 0;
    r.direct_fd = -1;
    if (verify && toc->blob_count > 0) {
        r.sums = (uint32_t *)ckpt__mem_alloc(a, toc->blob_count * sizeof *r.sums);
        if (r.sums == NULL) e = CKPT_NOMEM;
    }
    if (e == CKPT_OK) e = ckpt__engine_goals(&r, wants, count);
    if (e == CKPT_OK) e = verify ? ckpt__engine_ranges_verified(&r) : ckpt__engine_ranges_plain(&r);
    if (e == CKPT_OK && r.range_count > 0) e = ckpt__engine_read_run(&r, job);
    if (e == CKPT_OK && !r.crew.stop && verify) e = ckpt__engine_compare(&r);
    if (e == CKPT_OK && !r.crew.stop) e = ckpt__engine_deliver(&r);
    if (e == CKPT_OK && !r.crew.stop) ckpt__engine_crew_moved(&r.crew, 0, 0);
    for (size_t i = 0; i < r.goal_count; i++) {
        if (r.goals[i].staged != NULL) ckpt__os_pages_free(r.goals[i].staged, (size_t)r.goals[i].entry->size);
    }
    ckpt__mem_free(a, r.goals, count * sizeof *r.goals);
    ckpt__mem_free(a, r.ranges, r.range_cap * sizeof *r.ranges);
    ckpt__mem_free(a, r.sums, toc->blob_count * sizeof *r.sums);
    ckpt_err failed = ckpt__engine_crew_free(&r.crew);
    return e != CKPT_OK ? e : failed;
}


//------------------------------------------------------------------------------
// >>file       [K]  one checkpoint file: written whole or not at all; opened, verified, restored
//
// uses:    error memory platform text digest time state plan pt safetensors tar codec engine
// threads: a ckpt_file belongs to one thread at a time; saves to different paths are independent
// states:  begin -> (engine or codec writes) -> commit, or abort on every other path: the hidden
//          file next to the final name is what exists until the rename
//------------------------------------------------------------------------------

enum {
    CKPT__FILE_SNIFF = 512,
    CKPT__FILE_TEMP_BASE = 200,         // bytes of the final name kept in the hidden one: NAME_MAX is 255
    CKPT__FILE_STALE = 24 * 3600        // seconds without a write after which another machine's hidden file is given up
};

//-- format by name --------------------------------------------------------------

typedef struct ckpt__file_format {
    bool               safetensors;     // the container, or the one inside the tar: .safetensors instead of .pt
    bool               tar;
    const ckpt__codec *codec;           // NULL: none
} ckpt__file_format;

static const char *const ckpt__file_member_pt = "composer_states.pt";
static const char *const ckpt__file_member_st = "composer_states.safetensors";

// Does the text [p, p + n) end with `part`?
static bool ckpt__file_ends(const char *p, size_t n, const char *part) {
    size_t k = strlen(part);
    return n >= k && memcmp(p + n - k, part, k) == 0;
}

// The container and the compression that a name asks for. Any ending that means nothing is a .pt, as for torch.save.
static ckpt_err ckpt__file_format_of(const char *path, ckpt__file_format *out) {
    memset(out, 0, sizeof *out);
    const char *base = ckpt__os_path_base(path);
    size_t n = strlen(base);
    if (n == 0) return ckpt__error_set(CKPT_ARG, "'%s' is a folder's name; a file name must follow it", path);
    if (ckpt__file_ends(base, n, ".symlink"))
        return ckpt__error_set(CKPT_ARG, "'%s': names in .symlink are for the text files that point at a checkpoint", path);
    if (ckpt__codec_is_tar(base)) {
        out->tar = true;
        const char *tar = strstr(base, ".tar"), *tgz = strstr(base, ".tgz");
        const char *stem = tar != NULL ? tar : tgz;
        out->safetensors = stem != NULL && ckpt__file_ends(base, (size_t)(stem - base), ".safetensors");
        return ckpt__codec_tar_mode(base, &out->codec);
    }
    const char *dot = strrchr(base, '.');
    if (dot == NULL) return CKPT_OK;
    if (strcmp(dot, ".safetensors") == 0) { out->safetensors = true; return CKPT_OK; }
    if (ckpt__codec_is_compressed_pt(base)) return ckpt__codec_pt(base, &out->codec);
    out->safetensors = ckpt__file_ends(base, (size_t)(dot - base), ".safetensors");
    if (out->safetensors) out->codec = ckpt__codec_by_suffix(dot + 1);
    if (!out->safetensors || out->codec != NULL) return CKPT_OK;
    return ckpt__error_set(CKPT_UNSUPPORTED, "'%s' names no known compression (.gz .bz2 .lz4 .lzma .lzo .xz .zst are)", base);
}

//-- a new file ------------------------------------------------------------------

typedef struct ckpt__file_new {
    const char *path;                   // the final name; the caller's
    ckpt__buf   dir, temp;
    int         fd;                     // -1: closed, or never opened
    bool        made;                   // the hidden file exists
} ckpt__file_new;

static uint32_t ckpt__file_host(void) {
    char host[256];
    ckpt__os_host(host, sizeof host);
    return ckpt__digest_crc32(0, host, strlen(host));
}

// Adds the hidden name beside `path`: ".<base>.<pid>-<machine><random>.tmp". ckpt__file_sweep knows it by that form.
static ckpt_err ckpt__file_temp_name(ckpt__buf *out, const char *path) {
    const char *base = ckpt__os_path_base(path);
    size_t keep = strlen(base);
    uint32_t number;
    ckpt_err e = ckpt__os_random(&number, sizeof number);
    if (e != CKPT_OK) return e;
    if (keep > CKPT__FILE_TEMP_BASE) keep = CKPT__FILE_TEMP_BASE;
    while (keep > 0 && base[keep] != 0 && ((unsigned char)base[keep] & 0xC0) == 0x80) keep--;
    ckpt__buf_add(out, path, (size_t)(base - path));
    ckpt__buf_byte(out, '.');
    ckpt__buf_add(out, base, keep);
    ckpt__buf_fmt(out, ".%d-%08lx%08lx.tmp", ckpt__os_pid(), (unsigned long)ckpt__file_host(), (unsigned long)number);
    (void)ckpt__buf_cstr(out);
    return out->err;
}

static void ckpt__file_new_free(ckpt__file_new *n) {
    ckpt__buf_free(&n->dir);
    ckpt__buf_free(&n->temp);
}

// Gives up: nothing of the new file is left, the thread's sentence stays.
static void ckpt__file_abort(ckpt__file_new *n) {
    ckpt__error_record kept;
    ckpt__error_take(&kept);
    if (n->fd >= 0) (void)ckpt__os_close(n->fd, n->temp.data);
    if (n->made) (void)ckpt__os_remove(n->temp.data);
    n->fd = -1;
    n->made = false;
    ckpt__file_new_free(n);
    (void)ckpt__error_put(&kept);
}

// What cannot end well is refused before a byte is written. Nothing there, the usual case, costs one system call.
static ckpt_err ckpt__file_check_target(const char *path, bool overwrite) {
    if (!ckpt__os_exists(path)) return CKPT_OK;
    ckpt__os_info info;
    ckpt_err e = ckpt__os_lstat(path, &info);
    if (e == CKPT_NOT_FOUND) return CKPT_OK;
    if (e != CKPT_OK) return e;
    if (info.is_dir) return ckpt__error_set(CKPT_EXISTS, "there is a folder of that name");
    if (!overwrite) return ckpt__error_set(CKPT_EXISTS, "it exists already, and overwriting it was not asked for");
    return CKPT_OK;
}

// Opens the hidden file beside `path`, making missing folders. On success ckpt__file_commit or ckpt__file_abort must follow.
static ckpt_err ckpt__file_begin(ckpt__file_new *n, const char *path, bool overwrite, const ckpt_allocator *a) {
    memset(n, 0, sizeof *n);
    n->path = path;
    n->fd = -1;
    ckpt__buf_init(&n->dir, a);
    ckpt__buf_init(&n->temp, a);
    ckpt__os_path_dir(&n->dir, path);
    ckpt_err e = n->dir.err;
    if (e == CKPT_OK) e = ckpt__file_check_target(path, overwrite);
    for (int tries = 0; e == CKPT_OK && n->fd < 0; tries++) {
        n->temp.len = 0;
        e = ckpt__file_temp_name(&n->temp, path);
        if (e != CKPT_OK) break;
        e = ckpt__os_create(&n->fd, n->temp.data);
        if (e == CKPT_NOT_FOUND && tries == 0) e = ckpt__os_mkdirs(n->dir.data);
        else if (e == CKPT_EXISTS && tries < 16) e = CKPT_OK;
    }
    if (e != CKPT_OK) { ckpt__file_new_free(n); return e; }
    n->made = true;
    return CKPT_OK;
}

// Brings the new file to disk and gives it its name. After a failure the hidden file is gone; only when the folder itself could
// not be synced has the new file its name already.
static ckpt_err ckpt__file_commit(ckpt__file_new *n, bool overwrite) {
    ckpt_err e = ckpt__os_sync(n->fd, n->temp.data);
    if (e == CKPT_OK) {
        e = ckpt__os_close(n->fd, n->temp.data);
        n->fd = -1;
    }
    if (e == CKPT_OK) e = overwrite ? ckpt__os_rename(n->temp.data, n->path) : ckpt__os_rename_new(n->temp.data, n->path);
    if (e == CKPT_OK) {
        n->made = false;
        e = ckpt__os_sync_dir(n->dir.data);
    }
    ckpt__file_abort(n);
    return e;
}

// A small file, whole or absent: the index, a .symlink text.
static ckpt_err ckpt__file_put(const char *path, const void *bytes, size_t size, bool overwrite, const ckpt_allocator *a) {
    ckpt__file_new n;
    ckpt_err e = ckpt__file_begin(&n, path, overwrite, a);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot write %s", path);
    e = ckpt__os_pwrite(n.fd, bytes, size, 0, n.temp.data);
    if (e == CKPT_OK) e = ckpt__file_commit(&n, overwrite);
    else ckpt__file_abort(&n);
    return ckpt__error_prefix(e, "cannot write %s", path);
}

static ckpt_err ckpt__file_replace(const char *path, const void *bytes, size_t size) {
    ckpt_allocator a = { NULL, NULL };
    return ckpt__file_put(path, bytes, size, true, &a);
}

//-- left-overs ------------------------------------------------------------------

typedef struct ckpt__file_sweeping {
    const char *dir;
    ckpt__buf   path;
    uint32_t    host;
} ckpt__file_sweeping;

// Reads ".<base>.<pid>-<8 hex machine><8 hex random>.tmp".
static bool ckpt__file_temp_parse(const char *name, int64_t *pid, uint32_t *host) {
    size_t n = strlen(name);
    if (n < 24 || name[0] != '.' || !ckpt__file_ends(name, n, ".tmp") || name[n - 21] != '-') return false;
    uint64_t hex = 0;
    for (size_t i = n - 20; i < n - 4; i++) {
        char c = name[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        hex = hex << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    size_t from = n - 21;
    while (from > 0 && name[from - 1] >= '0' && name[from - 1] <= '9') from--;
    if (from < 2 || name[from - 1] != '.') return false;
    ckpt__view digits = { name + from, n - 21 - from };
    *host = (uint32_t)(hex >> 32);
    return ckpt__txt_int(digits, pid) && *pid > 0 && *pid <= INT_MAX;
}

static ckpt_err ckpt__file_sweep_one(const char *name, void *user) {
    ckpt__file_sweeping *s = (ckpt__file_sweeping *)user;
    int64_t pid = 0;
    uint32_t host = 0;
    if (!ckpt__file_temp_parse(name, &pid, &host)) return CKPT_OK;
    s->path.len = 0;
    ckpt__os_path_join(&s->path, s->dir, name);
    if (s->path.err != CKPT_OK) return s->path.err;
    bool dead = host == s->host && !ckpt__os_alive((int)pid);
    ckpt__os_info info;
    if (!dead && ckpt__os_lstat(s->path.data, &info) == CKPT_OK)
        dead = host != s->host && info.is_file && ckpt__os_time() - info.mtime > (double)CKPT__FILE_STALE;
    if (dead) (void)ckpt__os_remove(s->path.data);
    return CKPT_OK;
}

// Removes the hidden files that killed processes left in a folder: those of this machine whose process is gone, and any
// machine's that nobody has written to for a day. What cannot be removed stays; the thread's sentence is left alone.
static void ckpt__file_sweep(const char *dir, const ckpt_allocator *a) {
    ckpt__error_record kept;
    ckpt__error_take(&kept);
    ckpt__file_sweeping s;
    s.dir = dir;
    s.host = ckpt__file_host();
    ckpt__buf_init(&s.path, a);
    (void)ckpt__os_list(dir, ckpt__file_sweep_one, &s);
    ckpt__buf_free(&s.path);
    ckpt__error_last = kept;
}

//-- writing ---------------------------------------------------------------------

// The folder name inside a .pt: the file's name up to its ".pt", as torch names it after the file.
static void ckpt__file_stem(ckpt__buf *out, const char *path) {
    const char *base = ckpt__os_path_base(path);
    const char *end = strstr(base, ".pt");
    if (end == NULL || end == base) end = strchr(base + 1, '.');
    size_t n = end != NULL ? (size_t)(end - base) : strlen(base);
    ckpt__buf_add(out, base, n);
    (void)ckpt__buf_cstr(out);
}

// Text must be text before it is written: a buffer without a NUL would be read past its end.
static ckpt_err ckpt__file_check_items(const ckpt__file_format *fmt, const ckpt__binding *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const ckpt__binding *b = &items[i];
        if (b->kind == CKPT_KIND_FILE && !fmt->tar)
            return ckpt__error_set(CKPT_UNSUPPORTED, "'%s' is a file to attach: only .tar checkpoints can hold one", b->name);
        if (b->kind != CKPT_KIND_TEXT) continue;
        const char *text = (const char *)b->data;
        const void *end = memchr(text, 0, b->size);
        if (end == NULL) return ckpt__error_set(CKPT_ARG, "the text '%s' has no NUL within its %zu bytes", b->name, b->size);
        if (!ckpt__txt_utf8(text, (size_t)((const char *)end - text)))
            return ckpt__error_set(CKPT_ARG, "the text '%s' is not valid UTF-8", b->name);
    }
    return CKPT_OK;
}

static ckpt_err ckpt__file_plan_container(ckpt__plan *p, const ckpt__file_format *fmt, const char *path,
                                          const ckpt__binding *items, size_t count) {
    if (fmt->safetensors) return ckpt__safetensors_plan(p, items, count);
    ckpt__buf stem;
    ckpt__buf_init(&stem, &p->allocator);
    if (fmt->tar) ckpt__buf_text(&stem, "composer_states");
    else ckpt__file_stem(&stem, path);
    const char *text = ckpt__buf_cstr(&stem);
    ckpt_err e = stem.err != CKPT_OK ? stem.err : ckpt__pt_plan(p, items, count, text);
    ckpt__buf_free(&stem);
    return e;
}

// Lays out a checkpoint called `path` in a plan that ckpt__plan_init has made, and finishes it. Scalars and texts are taken
// here; tensors, bytes and attached files when the plan is carried out.
static ckpt_err ckpt__file_plan(ckpt__plan *p, const ckpt__file_format *fmt, const char *path, const ckpt__binding *items,
                                size_t count) {
    ckpt_err e = ckpt__file_check_items(fmt, items, count);
    if (e == CKPT_OK && fmt->tar) e = ckpt__tar_plan_begin(p);
    if (e == CKPT_OK) e = ckpt__file_plan_container(p, fmt, path, items, count);
    if (e == CKPT_OK && fmt->tar)
        e = ckpt__tar_plan_end(p, fmt->safetensors ? ckpt__file_member_st : ckpt__file_member_pt, items, count);
    return e == CKPT_OK ? ckpt__plan_finish(p) : e;
}

// CRC-32 of all bytes of a plan that has been carried out, from the sums of its parts.
static uint32_t ckpt__file_plan_crc(const ckpt__plan *p) {
    uint32_t crc = 0;
    int blob = -1;
    for (size_t i = 0; i < p->seg_count; i++) {
        const ckpt__seg *s = &p->segs[i];
        if (s->blob < 0) crc = ckpt__digest_crc32(crc, p->bytes.data + s->at, (size_t)s->size);
        else if (s->blob != blob) crc = ckpt__digest_crc32_join(crc, p->blobs[s->blob].crc, p->blobs[s->blob].size);
        blob = s->blob;
    }
    return crc;
}

typedef struct ckpt__file_sink { ckpt__codec_writer w; } ckpt__file_sink;

static ckpt_err ckpt__file_to_codec(const void *p, size_t n, void *user) {
    return ckpt__codec_write(&((ckpt__file_sink *)user)->w, p, n);
}

static ckpt_err ckpt__file_compress(const ckpt__file_new *n, const ckpt__codec *codec, ckpt__plan *p, const ckpt__image *im,
                                    ckpt__engine_job *job, const ckpt_allocator *a) {
    ckpt__file_sink sink;
    ckpt_err e = ckpt__codec_open(&sink.w, codec, n->fd, n->temp.data, a);
    if (e != CKPT_OK) return e;
    if (p != NULL) e = ckpt__engine_stream(p, ckpt__file_to_codec, &sink, job);
    else e = ckpt__image_stream(im, ckpt__file_to_codec, &sink, job);
    if (e == CKPT_OK) return ckpt__codec_finish(&sink.w);
    ckpt__codec_abort(&sink.w);
    return e;
}

// Writes a plan, or an image that was made from one (p is NULL then), durably to `path`. *bytes: the size of the file;
// *crc: of the container before compression, only from a plan. Both may be NULL.
static ckpt_err ckpt__file_write(const char *path, const ckpt__file_format *fmt, ckpt__plan *p, const ckpt__image *im,
                                 bool overwrite, ckpt__engine_job *job, const ckpt_allocator *a, uint64_t *bytes, uint32_t *crc) {
    ckpt__file_new n;
    ckpt_err e = fmt->codec != NULL ? ckpt__codec_check(fmt->codec) : CKPT_OK;
    if (e == CKPT_OK) e = ckpt__file_begin(&n, path, overwrite, a);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot save %s", path);
    uint64_t size = p != NULL ? p->size : (uint64_t)im->size;
    if (fmt->codec != NULL) e = ckpt__file_compress(&n, fmt->codec, p, im, job, a);
    else if (p != NULL) e = ckpt__engine_write(p, n.fd, n.temp.data, job);
    else e = ckpt__image_write(im, n.fd, n.temp.data, job);
    if (e == CKPT_OK && fmt->codec != NULL) {
        ckpt__os_info info;
        e = ckpt__os_fstat(n.fd, &info, n.temp.data);
        size = info.size;
    }
    if (e == CKPT_OK) e = ckpt__file_commit(&n, overwrite);
    else ckpt__file_abort(&n);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot save %s", path);
    if (bytes != NULL) *bytes = size;
    if (crc != NULL && p != NULL) *crc = ckpt__file_plan_crc(p);
    return CKPT_OK;
}

// The whole of ckpt_save, below its argument checks.
static ckpt_err ckpt__file_save(const char *path, const ckpt_state *st, const ckpt_timestamp *t, ckpt__engine_job *job) {
    ckpt__file_format fmt;
    ckpt__items items;
    ckpt__plan plan;
    ckpt__state_stamp stamp;
    ckpt_err e = ckpt__file_format_of(path, &fmt);
    if (e == CKPT_OK && t != NULL) e = ckpt__time_check(t);
    if (e == CKPT_OK) e = ckpt__state_select(st, false, NULL, 0, NULL, &items);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot save %s", path);
    ckpt__plan_init(&plan, &st->allocator, st);
    if (t != NULL) e = ckpt__items_add_timestamp(&items, &stamp, t);
    if (e == CKPT_OK) e = ckpt__file_plan(&plan, &fmt, path, items.list, items.count);
    if (e != CKPT_OK) (void)ckpt__error_prefix(e, "cannot save %s", path);
    else e = ckpt__file_write(path, &fmt, &plan, NULL, true, job, &st->allocator, NULL, NULL);
    ckpt__plan_free(&plan);
    ckpt__items_free(&items);
    return e;
}

//-- opening ---------------------------------------------------------------------

struct ckpt_file {
    ckpt_allocator allocator;
    char          *path;
    ckpt__source   src;             // the container's bytes: the file's own, or unpacked ones in an unnamed file
    ckpt__toc      toc;
    char          *window;          // what ckpt__file_gather has read last
    size_t         window_cap, window_len;
    uint64_t       window_at;
};

typedef enum ckpt__file_guess { CKPT__GUESS_NONE, CKPT__GUESS_PT, CKPT__GUESS_SAFETENSORS, CKPT__GUESS_TAR } ckpt__file_guess;

// What the first bytes say. safetensors begins with the length of a JSON object, a zip with "PK", a tar has "ustar" at 257.
static ckpt__file_guess ckpt__file_sniff(const unsigned char *head, size_t n, uint64_t size) {
    if (n >= 9 && head[8] == '{' && ckpt__mem_le(head, 8) <= size - 8) return CKPT__GUESS_SAFETENSORS;
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) return CKPT__GUESS_PT;
    if (n >= 262 && memcmp(head + 257, "ustar", 5) == 0) return CKPT__GUESS_TAR;
    return CKPT__GUESS_NONE;
}

// Where the content says nothing, the name does: the container's own reader then says best what is wrong with it.
static ckpt__file_guess ckpt__file_guess_name(const char *path) {
    const char *base = ckpt__os_path_base(path);
    if (ckpt__codec_is_tar(base)) return CKPT__GUESS_TAR;
    if (strstr(base, ".safetensors") != NULL) return CKPT__GUESS_SAFETENSORS;
    return strstr(base, ".pt") != NULL ? CKPT__GUESS_PT : CKPT__GUESS_NONE;
}

static ckpt_err ckpt__file_no_container(const unsigned char *head, size_t n) {
    static const unsigned char old_torch[] = { 0x80, 2, 0x8A, 10, 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19 };
    if (n >= sizeof old_torch && memcmp(head, old_torch, sizeof old_torch) == 0)
        return ckpt__error_set(CKPT_UNSUPPORTED, "it is of PyTorch before 1.6; load it with torch and torch.save it again");
    char hex[3 * 8 + 1];
    hex[0] = 0;
    for (size_t i = 0; i < n && i < 8; i++) (void)snprintf(hex + 3 * i, 4, " %02x", head[i]);
    return ckpt__error_set(CKPT_CORRUPT, "it is no .pt, .safetensors or .tar file (it begins with%s)", hex);
}

static ckpt_err ckpt__file_head(const ckpt__source *src, unsigned char *head, size_t *n) {
    size_t want = src->size < CKPT__FILE_SNIFF ? (size_t)src->size : (size_t)CKPT__FILE_SNIFF;
    return ckpt__os_pread(src->fd, head, want, src->base, n, src->path);
}

// Reads the listing of a container that is no tar.
static ckpt_err ckpt__file_read_plain(ckpt_file *f, const ckpt__source *src, ckpt__file_guess named) {
    unsigned char head[CKPT__FILE_SNIFF];
    size_t n = 0;
    ckpt_err e = ckpt__file_head(src, head, &n);
    if (e != CKPT_OK) return e;
    ckpt__file_guess g = ckpt__file_sniff(head, n, src->size);
    if (g == CKPT__GUESS_NONE) g = named;
    if (g == CKPT__GUESS_PT && n >= 2 && head[0] == 0x80 && head[1] == 2) g = CKPT__GUESS_NONE;     // a bare pickle
    if (g == CKPT__GUESS_PT) return ckpt__pt_read(&f->toc, src);
    if (g == CKPT__GUESS_SAFETENSORS) return ckpt__safetensors_read(&f->toc, src);
    return ckpt__file_no_container(head, n);
}

static ckpt_err ckpt__file_read_toc(ckpt_file *f) {
    unsigned char head[CKPT__FILE_SNIFF];
    size_t n = 0;
    if (f->src.size == 0) return ckpt__error_set(CKPT_CORRUPT, "it is empty");
    ckpt_err e = ckpt__file_head(&f->src, head, &n);
    if (e != CKPT_OK) return e;
    ckpt__file_guess g = ckpt__file_sniff(head, n, f->src.size), named = ckpt__file_guess_name(f->path);
    if (g == CKPT__GUESS_TAR || (g == CKPT__GUESS_NONE && named == CKPT__GUESS_TAR)) {
        ckpt__source inner;
        e = ckpt__tar_read(&f->toc, &f->src, &inner);
        if (e == CKPT_OK) e = ckpt__file_read_plain(f, &inner, CKPT__GUESS_PT);
    } else {
        e = ckpt__file_read_plain(f, &f->src, named);
    }
    return e == CKPT_OK ? ckpt__toc_finish(&f->toc) : e;
}

typedef struct ckpt__file_unpacking { int fd; const char *path; uint64_t size; } ckpt__file_unpacking;

static ckpt_err ckpt__file_unpacked(const void *p, size_t n, void *user) {
    ckpt__file_unpacking *u = (ckpt__file_unpacking *)user;
    ckpt_err e = ckpt__os_pwrite(u->fd, p, n, u->size, u->path);
    u->size += n;
    return e;
}

// An unnamed file beside the checkpoint, else where temporary files belong: the folder may be read-only.
static ckpt_err ckpt__file_scratch(ckpt_file *f, int *fd) {
    ckpt__buf dir;
    ckpt__buf_init(&dir, &f->allocator);
    ckpt__os_path_dir(&dir, f->path);
    ckpt_err e = dir.err != CKPT_OK ? dir.err : ckpt__os_open_temp(fd, dir.data);
    ckpt__buf_free(&dir);
    const char *tmp = ckpt__os_env("TMPDIR");
    if (e != CKPT_OK && e != CKPT_NOMEM && tmp != NULL && tmp[0] != 0) e = ckpt__os_open_temp(fd, tmp);
    if (e != CKPT_OK && e != CKPT_NOMEM) e = ckpt__os_open_temp(fd, "/tmp");
    return e;
}

// Replaces the source by its unpacked bytes when it is compressed.
static ckpt_err ckpt__file_unpack(ckpt_file *f) {
    unsigned char head[CKPT__FILE_SNIFF];
    size_t n = 0;
    ckpt_err e = ckpt__file_head(&f->src, head, &n);
    if (e != CKPT_OK || ckpt__file_sniff(head, n, f->src.size) != CKPT__GUESS_NONE) return e;
    const ckpt__codec *codec = ckpt__codec_by_magic(head, n);
    if (codec == NULL) return CKPT_OK;
    e = ckpt__codec_check(codec);
    ckpt__file_unpacking u = { -1, "the unpacked checkpoint", 0 };
    if (e == CKPT_OK) e = ckpt__file_scratch(f, &u.fd);
    if (e != CKPT_OK) return e;
    e = ckpt__codec_decode(codec, f->src.fd, f->path, ckpt__file_unpacked, &u, &f->allocator);
    if (e != CKPT_OK) {
        ckpt__os_drop(u.fd);
        return e;
    }
    ckpt__os_drop(f->src.fd);
    f->src.fd = u.fd;
    f->src.size = u.size;
    return CKPT_OK;
}

static void ckpt__file_close(ckpt_file *f) {
    if (f == NULL) return;
    ckpt_allocator a = f->allocator;
    ckpt__os_drop(f->src.fd);
    ckpt__toc_free(&f->toc);
    ckpt__mem_free(&a, f->window, f->window_cap);
    ckpt__mem_free_text(&a, f->path);
    ckpt__mem_free(&a, f, sizeof *f);
}

static ckpt_err ckpt__file_open_source(ckpt_file *f) {
    ckpt__os_info info;
    ckpt_err e = ckpt__os_open_read(&f->src.fd, f->path);
    if (e == CKPT_OK) e = ckpt__os_fstat(f->src.fd, &info, f->path);
    if (e != CKPT_OK) return e;
    f->src.path = f->path;
    f->src.size = info.size;
    e = ckpt__file_unpack(f);
    if (e == CKPT_OK) e = ckpt__file_read_toc(f);
    return ckpt__error_prefix(e, "cannot read %s", f->path);
}

// Opens a checkpoint and reads its listing, which is verified as far as it has sums of its own. Neither a pipe nor a folder is
// ever opened. *out is NULL after a failure.
static ckpt_err ckpt__file_open(ckpt_file **out, const char *path, const ckpt_allocator *a) {
    *out = NULL;
    ckpt_file *f = (ckpt_file *)ckpt__mem_alloc(a, sizeof *f);
    if (f == NULL) return CKPT_NOMEM;
    f->allocator = *a;
    f->src.fd = -1;
    ckpt__toc_init(&f->toc, a);
    f->path = ckpt__mem_copy_text(a, path);
    ckpt_err e = f->path == NULL ? CKPT_NOMEM : ckpt__file_open_source(f);
    if (e == CKPT_OK) { *out = f; return CKPT_OK; }
    ckpt__error_record kept;
    ckpt__error_take(&kept);
    ckpt__file_close(f);
    return ckpt__error_put(&kept);
}

//-- reading parts ---------------------------------------------------------------

// Bytes that ckpt_file_read can give of an entry.
static uint64_t ckpt__file_entry_size(const ckpt__entry *e) {
    switch (e->kind) {
        case CKPT_KIND_INT: case CKPT_KIND_FLOAT: return 8;
        case CKPT_KIND_BOOL: return 1;
        case CKPT_KIND_TENSOR: case CKPT_KIND_BYTES: case CKPT_KIND_TEXT: case CKPT_KIND_FILE: return e->size;
        default: return 0;
    }
}

static ckpt_err ckpt__file_pread(const ckpt_file *f, void *dst, size_t size, uint64_t offset) {
    size_t got = 0;
    ckpt_err e = ckpt__os_pread(f->src.fd, dst, size, offset, &got, f->path);
    if (e == CKPT_OK && got < size) return ckpt__error_set(CKPT_CORRUPT, "%s ends early: it was cut while it was open", f->path);
    return e;
}

// The element at `offset` of the file, through a window of 1 MiB that moves when it must.
static ckpt_err ckpt__file_window(ckpt_file *f, uint64_t offset, size_t size, const char **out) {
    enum { WINDOW = 1 << 20 };
    if (f->window == NULL) {
        f->window = (char *)ckpt__mem_resize(&f->allocator, NULL, 0, WINDOW);
        if (f->window == NULL) return CKPT_NOMEM;
        f->window_cap = WINDOW;
    }
    uint64_t skip = offset - f->window_at;
    if (offset < f->window_at || skip > f->window_len || f->window_len - skip < size) {
        f->window_len = 0;
        ckpt_err e = ckpt__os_pread(f->src.fd, f->window, f->window_cap, offset, &f->window_len, f->path);
        if (e != CKPT_OK) { f->window_len = 0; return e; }
        f->window_at = offset;
        if (f->window_len < size) return ckpt__error_set(CKPT_CORRUPT, "%s ends early: it was cut while it was open", f->path);
    }
    *out = f->window + (offset - f->window_at);
    return CKPT_OK;
}

// Bytes [offset, offset + size) of the row-major form of a tensor that lies in the file with other strides.
static ckpt_err ckpt__file_gather(ckpt_file *f, const ckpt__entry *e, uint64_t offset, char *dst, size_t size) {
    size_t unit = ckpt__state_dtype_size(e->dtype);
    while (size > 0) {
        uint64_t left = offset / unit, at = e->offset;
        for (int d = e->ndim - 1; d >= 0; d--) {
            uint64_t extent = (uint64_t)e->shape[d];
            at += left % extent * (uint64_t)e->stride[d] * unit;
            left /= extent;
        }
        size_t skip = (size_t)(offset % unit), n = unit - skip < size ? unit - skip : size;
        const char *p = NULL;
        ckpt_err err = ckpt__file_window(f, at, unit, &p);
        if (err != CKPT_OK) return err;
        memcpy(dst, p + skip, n);
        dst += n;
        offset += n;
        size -= n;
    }
    return CKPT_OK;
}

// Bytes of an entry's value; the range has been checked.
static ckpt_err ckpt__file_read(ckpt_file *f, const ckpt__entry *e, uint64_t offset, void *dst, size_t size) {
    unsigned char flag = e->i != 0;
    if (size == 0) return CKPT_OK;
    if (e->kind == CKPT_KIND_INT) memcpy(dst, (const char *)&e->i + offset, size);
    else if (e->kind == CKPT_KIND_FLOAT) memcpy(dst, (const char *)&e->f + offset, size);
    else if (e->kind == CKPT_KIND_BOOL) memcpy(dst, &flag, 1);
    else if (e->blob < 0) memcpy(dst, e->text + offset, size);
    else if (e->kind == CKPT_KIND_TENSOR && !e->contiguous) return ckpt__file_gather(f, e, offset, (char *)dst, size);
    else return ckpt__file_pread(f, dst, size, e->offset + offset);
    return CKPT_OK;
}

static ckpt_err ckpt__file_verify(ckpt_file *f, ckpt__engine_job *job) {
    ckpt_err e = ckpt__engine_read(&f->src, &f->toc, NULL, 0, true, NULL, job);
    return ckpt__error_prefix(e, "%s does not verify", f->path);
}

//-- matching --------------------------------------------------------------------

typedef struct ckpt__file_options {
    bool               weights_only, not_strict, no_verify;
    const char *const *ignore;
    int                ignore_count;
    int                rank;            // whose rng entries are expected
    const ckpt_logger *log;             // may be NULL
    ckpt__engine_job  *job;
} ckpt__file_options;

// Names of one sort of difference: how many, and the first few for the sentence.
typedef struct ckpt__file_odd { size_t count; const char *first[3]; } ckpt__file_odd;

static void ckpt__file_odd_add(ckpt__file_odd *o, const char *name) {
    if (o->count < 3) o->first[o->count] = name;
    o->count++;
}

static void ckpt__file_odd_text(const ckpt__file_odd *o, ckpt__buf *out, const char *one, const char *many) {
    if (o->count == 0) return;
    if (out->len > 0) ckpt__buf_text(out, "; ");
    ckpt__buf_fmt(out, "%zu %s (", o->count, o->count == 1 ? one : many);
    for (size_t i = 0; i < o->count && i < 3; i++) ckpt__buf_fmt(out, "%s%.100s", i > 0 ? ", " : "", o->first[i]);
    ckpt__buf_text(out, o->count > 3 ? ", ...)" : ")");
}

// What the file and the state have in common, found before any bound memory is touched.
typedef struct ckpt__file_match {
    ckpt_file                *f;
    const ckpt_state         *st;
    const ckpt__file_options *o;
    int                      *entry;        // per binding: the entry that fills it, -1: none
    bool                     *used;         // per entry: bound, or ignored
    ckpt__want               *wants;
    size_t                    want_count;
    ckpt__want               *small;        // tensors of one element for scalar bindings, read into `cells`
    char                     *cells;        // 16 bytes for each of them
    int                      *small_of;     // the binding of each
    size_t                    small_count;
    ckpt__file_odd            missing, unexpected, different;
    char                      why[640];     // the first difference
} ckpt__file_match;

static void ckpt__file_match_free(ckpt__file_match *m) {
    const ckpt_allocator *a = &m->f->allocator;
    size_t n = (size_t)m->st->count;
    ckpt__mem_free(a, m->entry, n * sizeof *m->entry);
    ckpt__mem_free(a, m->used, m->f->toc.count * sizeof *m->used);
    ckpt__mem_free(a, m->wants, n * sizeof *m->wants);
    ckpt__mem_free(a, m->small, n * sizeof *m->small);
    ckpt__mem_free(a, m->small_of, n * sizeof *m->small_of);
    ckpt__mem_free(a, m->cells, n * 16);
}

static ckpt_err ckpt__file_match_init(ckpt__file_match *m, ckpt_file *f, const ckpt_state *st, const ckpt__file_options *o) {
    memset(m, 0, sizeof *m);
    m->f = f;
    m->st = st;
    m->o = o;
    const ckpt_allocator *a = &f->allocator;
    size_t n = (size_t)st->count, scalars = 0;
    for (size_t i = 0; i < n; i++) scalars += st->items[i].kind != CKPT_KIND_TENSOR && st->items[i].kind != CKPT_KIND_BYTES;
    if (n > 0) m->entry = (int *)ckpt__mem_alloc(a, n * sizeof *m->entry);
    if (n > 0) m->wants = (ckpt__want *)ckpt__mem_alloc(a, n * sizeof *m->wants);
    if (scalars > 0) m->small = (ckpt__want *)ckpt__mem_alloc(a, n * sizeof *m->small);
    if (scalars > 0) m->small_of = (int *)ckpt__mem_alloc(a, n * sizeof *m->small_of);
    if (scalars > 0) m->cells = (char *)ckpt__mem_alloc(a, n * 16);
    if (f->toc.count > 0) m->used = (bool *)ckpt__mem_alloc(a, f->toc.count * sizeof *m->used);
    bool short_of = (n > 0 && (m->entry == NULL || m->wants == NULL)) || (f->toc.count > 0 && m->used == NULL) ||
                    (scalars > 0 && (m->small == NULL || m->small_of == NULL || m->cells == NULL));
    if (short_of) return CKPT_NOMEM;
    for (size_t i = 0; i < n; i++) m->entry[i] = -1;
    return CKPT_OK;
}

// "float32 [4, 3]", "an int"
static void ckpt__file_describe(char *out, size_t cap, ckpt_kind kind, ckpt_dtype dtype, int ndim, const int64_t *shape,
                                uint64_t size) {
    size_t n = 0;
    int k = kind == CKPT_KIND_TENSOR ? snprintf(out, cap, "%s [", ckpt__state_dtype_name(dtype))
          : kind == CKPT_KIND_BYTES  ? snprintf(out, cap, "%llu bytes", (unsigned long long)size)
                                     : snprintf(out, cap, "%s", ckpt__state_kind_name(kind));
    for (int i = 0; kind == CKPT_KIND_TENSOR && i <= ndim; i++) {
        n += k > 0 ? (size_t)k : 0;
        if (n >= cap) return;
        if (i == ndim) k = snprintf(out + n, cap - n, "]");
        else k = snprintf(out + n, cap - n, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    }
}

static void ckpt__file_differs(ckpt__file_match *m, const ckpt__binding *b, const ckpt__entry *e, const char *note) {
    ckpt__file_odd_add(&m->different, e->name);
    if (m->different.count > 1) return;
    char in_file[160], bound[160];
    ckpt__file_describe(in_file, sizeof in_file, e->kind, e->dtype, e->ndim, e->shape, e->size);
    ckpt__file_describe(bound, sizeof bound, b->kind, b->tensor.dtype, b->tensor.ndim, b->tensor.shape, b->size);
    (void)snprintf(m->why, sizeof m->why, "%.120s is %s in the file%s, but bound as %s", e->name, in_file, note, bound);
}

static bool ckpt__file_same_tensor(const ckpt_tensor *t, const ckpt__entry *e) {
    if (t->dtype != e->dtype || t->ndim != e->ndim) return false;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] != e->shape[i]) return false;
    }
    return true;
}

// Bytes and a one-dimensional uint8 tensor are the same thing under two names: safetensors has only the latter.
static bool ckpt__file_same_bytes(const ckpt__binding *b, const ckpt__entry *e) {
    bool flat_entry = e->kind == CKPT_KIND_TENSOR && e->dtype == CKPT_U8 && e->ndim == 1;
    bool flat_bound = b->kind == CKPT_KIND_TENSOR && b->tensor.dtype == CKPT_U8 && b->tensor.ndim == 1;
    return (e->kind == CKPT_KIND_BYTES || flat_entry) && (b->kind == CKPT_KIND_BYTES || flat_bound) && e->size == b->size;
}

static bool ckpt__file_one_element(const ckpt__entry *e) {
    return e->kind == CKPT_KIND_TENSOR && e->size == ckpt__state_dtype_size(e->dtype);
}

// Can a value of the file's listing fill this scalar without loss? A Python bool is an int; an int that a double holds is
// a float.
static bool ckpt__file_scalar_fits(const ckpt__binding *b, const ckpt__entry *e) {
    const int64_t exact = (int64_t)1 << 53;
    switch (b->kind) {
        case CKPT_KIND_INT: return e->kind == CKPT_KIND_INT || e->kind == CKPT_KIND_BOOL;
        case CKPT_KIND_FLOAT: return e->kind == CKPT_KIND_FLOAT || (e->kind == CKPT_KIND_INT && e->i >= -exact && e->i <= exact);
        case CKPT_KIND_BOOL: return e->kind == CKPT_KIND_BOOL;
        case CKPT_KIND_FILE: return e->kind == CKPT_KIND_FILE;
        default: return false;
    }
}

static void ckpt__file_match_text(ckpt__file_match *m, const ckpt__binding *b, const ckpt__entry *e) {
    if (e->kind != CKPT_KIND_TEXT) {
        ckpt__file_differs(m, b, e, "");
    } else if (e->size >= b->size) {
        bool first = m->different.count == 0;
        ckpt__file_odd_add(&m->different, e->name);
        if (first)
            (void)snprintf(m->why, sizeof m->why, "%.120s has %llu bytes of text in the file, and its buffer holds %llu", e->name,
                           (unsigned long long)e->size, (unsigned long long)b->size - 1);
    } else if (memchr(e->text, 0, (size_t)e->size) != NULL) {
        ckpt__file_differs(m, b, e, " with a NUL inside");
    }
}

// Compares one binding with the entry of its name, and notes what must be read where.
static void ckpt__file_match_one(ckpt__file_match *m, int index, int at) {
    const ckpt__binding *b = &m->st->items[index];
    const ckpt__entry *e = &m->f->toc.entries[at];
    m->entry[index] = at;
    m->used[at] = true;
    if (b->kind == CKPT_KIND_TEXT) {
        ckpt__file_match_text(m, b, e);
        return;
    }
    bool tensor = b->kind == CKPT_KIND_TENSOR && e->kind == CKPT_KIND_TENSOR && ckpt__file_same_tensor(&b->tensor, e);
    if (tensor || ckpt__file_same_bytes(b, e)) {
        ckpt__want *w = &m->wants[m->want_count++];
        w->entry = at;
        w->dst = b->kind == CKPT_KIND_TENSOR ? b->tensor.data : b->data;
        w->device = b->kind == CKPT_KIND_TENSOR && b->tensor.device;
        return;
    }
    bool number = b->kind == CKPT_KIND_INT || b->kind == CKPT_KIND_FLOAT || b->kind == CKPT_KIND_BOOL;
    if (number && ckpt__file_one_element(e)) {
        ckpt__want *w = &m->small[m->small_count];
        w->entry = at;
        w->dst = m->cells + 16 * m->small_count;
        m->small_of[m->small_count++] = index;
        return;
    }
    if (!ckpt__file_scalar_fits(b, e)) ckpt__file_differs(m, b, e, "");
}

// Does an entry that nothing is bound to count against a strict load? Not what the library writes by itself, nor the random
// state of other ranks, nor what holds no value.
static bool ckpt__file_counts(const ckpt__entry *e, const ckpt__file_options *o) {
    if (e->kind == CKPT_KIND_NONE || e->kind == CKPT_KIND_OTHER) return false;
    if (o->weights_only && !ckpt__state_under(e->name, "state/model")) return false;
    if (ckpt__state_is_reserved(e->name)) return false;
    const char *rest = NULL;
    int64_t rank = ckpt__state_rng_rank(e->name, &rest);
    return rank < 0 || rank == o->rank;
}

// Compares what is bound, but for what the ignore globs take away.
static ckpt_err ckpt__file_match_bound(ckpt__file_match *m, ckpt__state_globs *globs) {
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < m->st->count && e == CKPT_OK; i++) {
        const char *canonical = ckpt__state_canonical_of(&m->st->items[i]);
        bool ignored = false;
        if (m->o->weights_only && !ckpt__state_under(canonical, "state/model")) continue;
        e = ckpt__state_globs_match(globs, canonical, &ignored);
        if (e != CKPT_OK || ignored) continue;
        int at = ckpt__toc_find(&m->f->toc, canonical);
        if (at < 0) ckpt__file_odd_add(&m->missing, m->st->items[i].name);
        else ckpt__file_match_one(m, i, at);
    }
    return e;
}

// Compares names. A glob that matches neither the file nor the binding is warned of: what a saver ignores it binds, but the
// file lacks it.
static ckpt_err ckpt__file_match_names(ckpt__file_match *m) {
    ckpt__state_globs globs;
    ckpt_err e = ckpt__state_globs_init(&globs, &m->f->allocator, m->o->ignore, m->o->ignore_count);
    for (size_t i = 0; i < m->f->toc.count && e == CKPT_OK && globs.count > 0; i++)
        e = ckpt__state_globs_match(&globs, m->f->toc.entries[i].name, &m->used[i]);
    if (e == CKPT_OK) e = ckpt__file_match_bound(m, &globs);
    if (e == CKPT_OK) ckpt__state_globs_warn(&globs, m->o->log);
    ckpt__state_globs_free(&globs);
    return e;
}

static ckpt_err ckpt__file_match_fail(ckpt__file_match *m) {
    ckpt__buf text;
    ckpt__buf_init(&text, &m->f->allocator);
    if (!m->o->not_strict) {
        ckpt__file_odd_text(&m->missing, &text, "bound name is missing in it", "bound names are missing in it");
        ckpt__file_odd_text(&m->unexpected, &text, "of its names is not bound", "of its names are not bound");
    }
    if (m->different.count > 0) {
        ckpt__buf_fmt(&text, "%s%s", text.len > 0 ? "; " : "", m->why);
        if (m->different.count > 1) ckpt__buf_fmt(&text, " (and %zu more differ)", m->different.count - 1);
    }
    if (m->different.count == 0) ckpt__buf_text(&text, "; bind or ignore them, or load with not_strict");
    const char *all = ckpt__buf_cstr(&text);
    ckpt_err e = text.err != CKPT_OK ? text.err : ckpt__error_set(CKPT_MISMATCH, "%s", all);
    ckpt__buf_free(&text);
    return e;
}

// Compares the whole file with the whole binding.
static ckpt_err ckpt__file_match_all(ckpt__file_match *m) {
    ckpt_err e = ckpt__file_match_names(m);
    if (e != CKPT_OK) return e;
    for (size_t i = 0; i < m->f->toc.count; i++) {
        const ckpt__entry *entry = &m->f->toc.entries[i];
        if (!m->used[i] && ckpt__file_counts(entry, m->o)) ckpt__file_odd_add(&m->unexpected, entry->name);
    }
    bool odd = !m->o->not_strict && (m->missing.count > 0 || m->unexpected.count > 0);
    return odd || m->different.count > 0 ? ckpt__file_match_fail(m) : CKPT_OK;
}

//-- restoring -------------------------------------------------------------------

static double ckpt__file_half(unsigned bits, int exponent_bits, int fraction_bits) {
    unsigned fraction = bits & ((1u << fraction_bits) - 1), top = (1u << exponent_bits) - 1;
    unsigned exponent = bits >> fraction_bits & top;
    double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1.0 : 1.0;
    int bias = (int)(top >> 1);
    if (exponent == top) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp((double)fraction, 1 - bias - fraction_bits);
    return sign * ldexp((double)(fraction | 1u << fraction_bits), (int)exponent - bias - fraction_bits);
}

// A tensor's one element as a number; false for types that are none of these.
static bool ckpt__file_number(ckpt_dtype dtype, const char *cell, bool *integral, int64_t *i, double *f) {
    uint64_t bits = ckpt__mem_le(cell, (int)ckpt__state_dtype_size(dtype) > 8 ? 8 : (int)ckpt__state_dtype_size(dtype));
    float f32;
    *integral = true;
    switch (dtype) {
        case CKPT_I64: *i = (int64_t)bits; break;
        case CKPT_I32: *i = (int32_t)(uint32_t)bits; break;
        case CKPT_I16: *i = (int16_t)(uint16_t)bits; break;
        case CKPT_I8: *i = (int8_t)(uint8_t)bits; break;
        case CKPT_U64: *i = (int64_t)bits; if (*i < 0) return false; break;
        case CKPT_U32: case CKPT_U16: case CKPT_U8: case CKPT_BOOL: *i = (int64_t)bits; break;
        default: *integral = false; *i = 0; break;
    }
    if (*integral) { *f = (double)*i; return true; }
    switch (dtype) {
        case CKPT_F64: memcpy(f, cell, sizeof *f); return true;
        case CKPT_F32: memcpy(&f32, cell, sizeof f32); *f = (double)f32; return true;
        case CKPT_F16: *f = ckpt__file_half((unsigned)bits, 5, 10); return true;
        case CKPT_BF16: *f = ckpt__file_half((unsigned)bits, 8, 7); return true;
        default: return false;
    }
}

// Turns a tensor's element into what a scalar binding wants, in place of the element; false when that loses something.
static bool ckpt__file_convert(ckpt_kind kind, ckpt_dtype dtype, char *cell) {
    bool integral;
    int64_t i = 0;
    double f = 0.0;
    if (!ckpt__file_number(dtype, cell, &integral, &i, &f)) return false;
    if (kind == CKPT_KIND_FLOAT) {
        if (integral && (int64_t)f != i) return false;
        memcpy(cell, &f, sizeof f);
        return true;
    }
    if (kind == CKPT_KIND_BOOL && dtype != CKPT_BOOL) return false;
    if (!integral) {
        if (!(f >= -9007199254740992.0 && f <= 9007199254740992.0) || ckpt__txt_floor(f) != f) return false;
        i = (int64_t)f;
    }
    memcpy(cell, &i, sizeof i);
    return true;
}

// torch keeps some counters as tensors of one element (the step of Adam). They are read and converted before anything that is
// bound is written, because what does not convert is a mismatch.
static ckpt_err ckpt__file_read_small(ckpt__file_match *m) {
    if (m->small_count == 0) return CKPT_OK;
    ckpt__engine_job quiet = *m->o->job;
    quiet.progress = NULL;
    ckpt_err e = ckpt__engine_read(&m->f->src, &m->f->toc, m->small, m->small_count, !m->o->no_verify, m->st, &quiet);
    for (size_t i = 0; i < m->small_count && e == CKPT_OK; i++) {
        const ckpt__binding *b = &m->st->items[m->small_of[i]];
        const ckpt__entry *entry = &m->f->toc.entries[m->small[i].entry];
        if (!ckpt__file_convert(b->kind, entry->dtype, m->cells + 16 * i)) ckpt__file_differs(m, b, entry, "");
    }
    if (e == CKPT_OK && m->different.count > 0) e = ckpt__file_match_fail(m);
    return e;
}

// Writes an attached file to where it is bound, whole or not at all.
static ckpt_err ckpt__file_extract(ckpt_file *f, const ckpt__entry *e, const char *path) {
    ckpt__file_new n;
    ckpt_err err = ckpt__file_begin(&n, path, true, &f->allocator);
    uint32_t crc = 0;
    char *block = err == CKPT_OK ? (char *)ckpt__mem_resize(&f->allocator, NULL, 0, 65536) : NULL;
    if (err != CKPT_OK) return ckpt__error_prefix(err, "cannot write %s", path);
    if (block == NULL) err = CKPT_NOMEM;
    for (uint64_t at = 0; at < e->size && err == CKPT_OK; at += 65536) {
        size_t size = e->size - at < 65536 ? (size_t)(e->size - at) : 65536;
        err = ckpt__file_pread(f, block, size, e->offset + at);
        if (err != CKPT_OK) break;
        crc = ckpt__digest_crc32(crc, block, size);
        err = ckpt__os_pwrite(n.fd, block, size, at, n.temp.data);
    }
    ckpt__mem_free(&f->allocator, block, 65536);
    const ckpt__blob *blob = e->blob >= 0 ? &f->toc.blobs[e->blob] : NULL;
    if (err == CKPT_OK && blob != NULL && blob->has_crc && blob->offset == e->offset && blob->size == e->size && blob->crc != crc)
        err = ckpt__error_set(CKPT_CORRUPT, "the attached file '%s' is damaged: its checksum does not fit", e->name);
    if (err == CKPT_OK) err = ckpt__file_commit(&n, true);
    else ckpt__file_abort(&n);
    return err;
}

static ckpt_err ckpt__file_restore_files(const ckpt__file_match *m) {
    ckpt_err e = CKPT_OK;
    for (int i = 0; i < m->st->count && e == CKPT_OK; i++) {
        const ckpt__binding *b = &m->st->items[i];
        if (b->kind != CKPT_KIND_FILE || m->entry[i] < 0) continue;
        e = ckpt__file_extract(m->f, &m->f->toc.entries[m->entry[i]], (const char *)b->data);
    }
    return e;
}

// Nothing here can fail any more.
static void ckpt__file_restore_scalars(const ckpt__file_match *m) {
    for (int i = 0; i < m->st->count; i++) {
        const ckpt__binding *b = &m->st->items[i];
        if (m->entry[i] < 0) continue;
        const ckpt__entry *e = &m->f->toc.entries[m->entry[i]];
        if (e->kind == CKPT_KIND_TENSOR) continue;
        if (b->kind == CKPT_KIND_INT) *(int64_t *)b->data = e->i;
        if (b->kind == CKPT_KIND_BOOL) *(bool *)b->data = e->i != 0;
        if (b->kind == CKPT_KIND_FLOAT) *(double *)b->data = e->kind == CKPT_KIND_INT ? (double)e->i : e->f;
        if (b->kind == CKPT_KIND_TEXT) {
            if (e->size > 0) memcpy(b->data, e->text, (size_t)e->size);
            ((char *)b->data)[e->size] = 0;
        }
    }
    for (size_t i = 0; i < m->small_count; i++) {
        const ckpt__binding *b = &m->st->items[m->small_of[i]];
        int64_t flag;
        memcpy(&flag, m->cells + 16 * i, sizeof flag);
        if (b->kind == CKPT_KIND_BOOL) *(bool *)b->data = flag != 0;
        else memcpy(b->data, m->cells + 16 * i, 8);
    }
}

// Reads the timestamp, but for entries marked in `ignored` (may be NULL); false when there is none. Composer's files before there
// were iterations count all of training as the first one (SPEC 3.3).
static bool ckpt__file_clocks(const ckpt_file *f, const bool *ignored, ckpt_timestamp *at) {
    memset(at, 0, sizeof *at);
    bool any = false, iteration = false;
    for (int i = 0; i < CKPT__CLOCKS; i++) {
        int index = ckpt__toc_find(&f->toc, ckpt__state_clocks[i].name);
        if (index < 0 || (ignored != NULL && ignored[index])) continue;
        const ckpt__entry *e = &f->toc.entries[index];
        char *field = (char *)at + ckpt__state_clocks[i].at;
        double seconds = e->kind == CKPT_KIND_INT ? (double)e->i : e->f;
        if (ckpt__state_clocks[i].seconds && (e->kind == CKPT_KIND_FLOAT || e->kind == CKPT_KIND_INT)) memcpy(field, &seconds, 8);
        if (!ckpt__state_clocks[i].seconds && e->kind == CKPT_KIND_INT) memcpy(field, &e->i, 8);
        any = true;
        if (ckpt__state_clocks[i].at == offsetof(ckpt_timestamp, iteration)) iteration = true;
    }
    if (any && !iteration) {
        at->epoch_in_iteration = at->epoch;
        at->token_in_iteration = at->token;
    }
    return any;
}

// The timestamp of a file; zeros and *has false when it has none.
static void ckpt__file_timestamp(const ckpt_file *f, ckpt_timestamp *at, bool *has) {
    *has = ckpt__file_clocks(f, NULL, at);
}

// The last report of a load: as many bytes as there were, or the failure.
static void ckpt__file_finished(const ckpt__engine_job *job, ckpt_err e) {
    if (job->progress == NULL || job->progress->fn == NULL) return;
    ckpt_progress p;
    memset(&p, 0, sizeof p);
    p.phase = job->phase;
    p.name = job->name;
    p.done = p.total = job->done;
    p.attempt = 1;
    p.finished = true;
    p.err = e;
    job->progress->fn(&p, job->progress->user);
}

// Fills the bound memory from an open file. Until the file as a whole fits the binding nothing is written; scalars come last.
// *at (may be NULL) gets the timestamp; zeros for weights alone, which begin a training of their own.
static ckpt_err ckpt__file_restore(ckpt_file *f, const ckpt_state *st, const ckpt__file_options *o, ckpt_timestamp *at) {
    ckpt__file_match m;
    ckpt_timestamp t;
    memset(&t, 0, sizeof t);
    ckpt_err e = ckpt__state_check(st);
    if (e != CKPT_OK) return e;
    e = ckpt__file_match_init(&m, f, st, o);
    if (e == CKPT_OK) e = ckpt__file_match_all(&m);
    if (e == CKPT_OK && !o->weights_only && ckpt__file_clocks(f, m.used, &t) && ckpt__time_check(&t) != CKPT_OK)
        e = ckpt__error_prefix(CKPT_CORRUPT, "its timestamp is damaged");
    if (e == CKPT_OK) e = ckpt__file_read_small(&m);
    if (e == CKPT_OK && (m.want_count > 0 || !o->no_verify))        // without a tensor to read, the whole file is verified
        e = ckpt__engine_read(&f->src, &f->toc, m.wants, m.want_count, !o->no_verify, st, o->job);
    if (e == CKPT_OK) e = ckpt__file_restore_files(&m);
    if (e == CKPT_OK) ckpt__file_restore_scalars(&m);
    ckpt__file_match_free(&m);
    if (e == CKPT_OK && at != NULL) *at = t;
    ckpt__file_finished(o->job, e);
    return ckpt__error_prefix(e, "cannot load %s", f->path);
}
//------------------------------------------------------------------------------
// >>index      [K]  which checkpoints a folder holds, which of them rotation lets go
//
// uses:    error memory platform text digest time name state plan file
// threads: whoever owns the object; two processes that change one index take turns by ckpt__index_lock
// states:  a line is saved -> abandoned (the run went back and saved again) or damaged (resume found it so)
//
// .ckpt-index.jsonl: one JSON line per checkpoint, oldest save first, each with the CRC-32 of its own
// text, and a last line with the CRC-32 of all. It is written aside and renamed. It holds nothing
// that cannot be found again from the files but the pins (and the metrics, where the files do not
// hold the bound float itself), so what is left of a damaged one is kept and the rest is read
// from the files. Names in it are hostile until checked: rotation deletes what they name.
//------------------------------------------------------------------------------

#define CKPT__INDEX_FILE "/.ckpt-index.jsonl"
#define CKPT__INDEX_LOCK "/.ckpt-index.lock"

enum { CKPT__INDEX_DEPTH = 16, CKPT__INDEX_NAME_MAX = 4096 };

typedef enum ckpt__index_state { CKPT__INDEX_SAVED, CKPT__INDEX_ABANDONED, CKPT__INDEX_DAMAGED } ckpt__index_state;

typedef struct ckpt__index_line {
    char             *name;             // relative to the folder, '/' between levels
    ckpt_timestamp    t;
    uint64_t          number;           // how many saves the run had made with this one; keep_every counts them
    uint64_t          bytes;
    uint32_t          checksum;         // CRC-32 of the whole file
    bool              has_checksum, has_metric, pinned;
    double            metric;           // the value of keep_best
    double            saved_at;         // wall clock
    ckpt__index_state state;
    bool              owned;            // not stored: this process's run saved it, or resumed from its folder
    bool              leaves;           // not stored: chosen by ckpt__index_choose
} ckpt__index_line;

typedef struct ckpt__index {
    ckpt_allocator    allocator;
    char             *folder;
    ckpt__index_line *lines;            // oldest save first
    size_t            count, cap;
    bool              lost;             // there was no index file
    bool              damaged;          // some of it could not be read
    const char       *best;             // name of the bound float that is the metric, the owner's; NULL: none
    int               lock;             // descriptor of the lock, -1
    ckpt__buf         lock_path;        // while it is held, so that letting go needs no memory
} ckpt__index;

static void ckpt__index_free(ckpt__index *ix) {
    for (size_t i = 0; i < ix->count; i++) ckpt__mem_free_text(&ix->allocator, ix->lines[i].name);
    ckpt__mem_free(&ix->allocator, ix->lines, ix->cap * sizeof *ix->lines);
    ckpt__mem_free_text(&ix->allocator, ix->folder);
    memset(ix, 0, sizeof *ix);
    ix->lock = -1;
}

static ckpt_err ckpt__index_init(ckpt__index *ix, const ckpt_allocator *a, const char *folder) {
    memset(ix, 0, sizeof *ix);
    if (a != NULL) ix->allocator = *a;
    ix->lock = -1;
    ix->folder = ckpt__mem_copy_text(&ix->allocator, folder);
    return ix->folder == NULL ? CKPT_NOMEM : CKPT_OK;
}

// A name that stays inside the folder: relative, no "..", no empty level, none of our own files.
static bool ckpt__index_name_ok(const char *name) {
    size_t len = strlen(name);
    if (len == 0 || len > CKPT__INDEX_NAME_MAX || name[0] == '/') return false;
    for (const char *p = name; ; ) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
        if (ckpt__txt_starts(p, ".ckpt-")) return false;
        if (p[n] == 0) return true;
        p += n + 1;
    }
}

// Drops "./" and doubled slashes, so that one file has one name.
static void ckpt__index_clean(ckpt__buf *out, const char *name) {
    for (const char *p = name; *p != 0; ) {
        size_t n = strcspn(p, "/");
        if (n > 0 && !(n == 1 && p[0] == '.')) {
            if (out->len > 0 && out->data[out->len - 1] != '/') ckpt__buf_byte(out, '/');
            ckpt__buf_add(out, p, n);
        }
        p += n;
        if (*p == '/' && p == name) ckpt__buf_byte(out, '/');
        while (*p == '/') p++;
    }
}

static void ckpt__index_path(ckpt__buf *out, const ckpt__index *ix, const char *name) {
    out->len = 0;
    ckpt__os_path_join(out, ix->folder, name);
}

// -1 when there is no such line.
static int ckpt__index_find(const ckpt__index *ix, const char *name) {
    for (size_t i = ix->count; i > 0; i--) {
        if (strcmp(ix->lines[i - 1].name, name) == 0) return (int)(i - 1);
    }
    return -1;
}

static void ckpt__index_drop(ckpt__index *ix, size_t at) {
    ckpt__mem_free_text(&ix->allocator, ix->lines[at].name);
    memmove(&ix->lines[at], &ix->lines[at + 1], (ix->count - at - 1) * sizeof *ix->lines);
    ix->count--;
}

// Adds a line at place `at`; the name is copied. A line of that name goes first, and its pin stays with the name.
static ckpt_err ckpt__index_insert(ckpt__index *ix, size_t at, const ckpt__index_line *line) {
    ckpt_err e = ckpt__mem_grow(&ix->allocator, (void **)&ix->lines, sizeof *ix->lines, &ix->cap, ix->count + 1);
    if (e != CKPT_OK) return e;
    ckpt__index_line copy = *line;
    copy.name = ckpt__mem_copy_text(&ix->allocator, line->name);
    if (copy.name == NULL) return CKPT_NOMEM;
    int old = ckpt__index_find(ix, line->name);
    if (old >= 0) {
        copy.pinned = copy.pinned || ix->lines[old].pinned;
        ckpt__index_drop(ix, (size_t)old);
        if (at > (size_t)old) at--;
    }
    memmove(&ix->lines[at + 1], &ix->lines[at], (ix->count - at) * sizeof *ix->lines);
    ix->lines[at] = copy;
    ix->count++;
    return CKPT_OK;
}

// The number that the next save gets.
static uint64_t ckpt__index_next_number(const ckpt__index *ix) {
    uint64_t n = 0;
    for (size_t i = 0; i < ix->count; i++) {
        if (ix->lines[i].number > n) n = ix->lines[i].number;
    }
    return n + 1;
}

// Orders two moments of a run: -1, 0, 1. Batches first: every event moves them or stands at the end of one.
static int ckpt__index_compare_time(const ckpt_timestamp *a, const ckpt_timestamp *b) {
    const int64_t x[] = { a->batch, a->epoch, a->iteration, a->sample, a->token };
    const int64_t y[] = { b->batch, b->epoch, b->iteration, b->sample, b->token };
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

// Sorts out what the order of saves means: a checkpoint of a later time than one saved after it belongs to a future that the run
// went back from. It stays a good checkpoint, but resuming prefers the others.
static void ckpt__index_settle(ckpt__index *ix) {
    const ckpt_timestamp *least = NULL;
    for (size_t i = ix->count; i > 0; i--) {
        ckpt__index_line *l = &ix->lines[i - 1];
        if (l->state == CKPT__INDEX_DAMAGED) continue;
        bool later = least != NULL && ckpt__index_compare_time(&l->t, least) > 0;
        l->state = later ? CKPT__INDEX_ABANDONED : CKPT__INDEX_SAVED;
        if (!later) least = &l->t;
    }
}

//-- the file --------------------------------------------------------------------

enum { CKPT__INDEX_MAX_FILE = 1 << 28 };

// Reads a whole small file.
static ckpt_err ckpt__index_slurp(ckpt__buf *out, const char *path) {
    ckpt__os_info info;
    int fd = -1;
    size_t got = 0;
    ckpt_err e = ckpt__os_open_read(&fd, path);
    if (e != CKPT_OK) return e;
    e = ckpt__os_fstat(fd, &info, path);
    if (e == CKPT_OK && info.size > CKPT__INDEX_MAX_FILE)
        e = ckpt__error_set(CKPT_CORRUPT, "%s is too large to be an index", path);
    char *to = e == CKPT_OK ? ckpt__buf_reserve(out, (size_t)info.size) : NULL;
    if (e == CKPT_OK) e = out->err;
    if (e == CKPT_OK) e = ckpt__os_pread(fd, to, (size_t)info.size, 0, &got, path);
    if (e == CKPT_OK) out->len += got;
    ckpt_err closed = ckpt__os_close(fd, path);
    return e != CKPT_OK ? e : closed;
}

static const char *const ckpt__index_states[] = { "saved", "abandoned", "damaged" };

static void ckpt__index_print(ckpt__buf *b, const ckpt__index_line *l) {
    size_t start = b->len;
    ckpt__buf_text(b, "{\"name\":");
    ckpt__json_add_text(b, l->name, strlen(l->name));
    ckpt__buf_fmt(b, ",\"number\":%llu,\"saved_at\":", (unsigned long long)l->number);
    ckpt__txt_add_double(b, l->saved_at);
    ckpt__buf_text(b, ",\"timestamp\":{");
    for (int i = 0; i < CKPT__CLOCKS; i++) {
        const ckpt__state_clock *c = &ckpt__state_clocks[i];
        const char *field = (const char *)&l->t + c->at;
        ckpt__buf_fmt(b, "%s\"%s\":", i > 0 ? "," : "", c->name + sizeof "state/timestamp/Timestamp/" - 1);
        double f;
        int64_t n;
        memcpy(&f, field, sizeof f);
        memcpy(&n, field, sizeof n);
        if (c->seconds) ckpt__txt_add_double(b, f - f == 0 ? f : 0);
        else ckpt__buf_fmt(b, "%lld", (long long)n);
    }
    ckpt__buf_fmt(b, "},\"bytes\":%llu,\"checksum\":", (unsigned long long)l->bytes);
    if (l->has_checksum) ckpt__buf_fmt(b, "\"%08lx\"", (unsigned long)l->checksum);
    else ckpt__buf_text(b, "null");
    ckpt__buf_text(b, ",\"metric\":");
    if (l->has_metric && l->metric - l->metric == 0) ckpt__txt_add_double(b, l->metric);
    else ckpt__buf_text(b, "null");
    ckpt__buf_fmt(b, ",\"pinned\":%s,\"state\":\"%s\"", l->pinned ? "true" : "false", ckpt__index_states[l->state]);
    if (b->err != CKPT_OK) return;
    uint32_t crc = ckpt__digest_crc32(0, b->data + start, b->len - start);
    ckpt__buf_fmt(b, ",\"line\":\"%08lx\"}\n", (unsigned long)crc);
}

// Reads 8 hex digits.
static bool ckpt__index_hex(const char *p, size_t n, uint32_t *out) {
    if (n != 8) return false;
    uint32_t v = 0;
    for (size_t i = 0; i < 8; i++) {
        const char *digits = "0123456789abcdef", *at = p[i] != 0 ? strchr(digits, p[i]) : NULL;
        if (at == NULL) return false;
        v = v << 4 | (uint32_t)(at - digits);
    }
    *out = v;
    return true;
}

static bool ckpt__index_number(const ckpt__json_doc *d, const ckpt__json *object, const char *key, double *out) {
    const ckpt__json *v = ckpt__json_get(d, object, key);
    if (v == NULL) return false;
    if (v->kind == CKPT__JSON_INT) *out = (double)v->i;
    else if (v->kind == CKPT__JSON_DOUBLE) *out = v->f;
    else return false;
    return true;
}

static bool ckpt__index_count(const ckpt__json_doc *d, const ckpt__json *object, const char *key, int64_t *out) {
    const ckpt__json *v = ckpt__json_get(d, object, key);
    if (v == NULL || v->kind != CKPT__JSON_INT || v->i < 0) return false;
    *out = v->i;
    return true;
}

static bool ckpt__index_read_time(const ckpt__json_doc *d, const ckpt__json *object, ckpt_timestamp *t) {
    if (object == NULL || object->kind != CKPT__JSON_OBJECT) return false;
    for (int i = 0; i < CKPT__CLOCKS; i++) {
        const ckpt__state_clock *c = &ckpt__state_clocks[i];
        const char *key = c->name + sizeof "state/timestamp/Timestamp/" - 1;
        char *field = (char *)t + c->at;
        double f = 0;
        int64_t n = 0;
        if (c->seconds ? !ckpt__index_number(d, object, key, &f) : !ckpt__index_count(d, object, key, &n)) return false;
        if (c->seconds) memcpy(field, &f, sizeof f);
        else memcpy(field, &n, sizeof n);
    }
    return true;
}

// Takes one line apart. `l->name` then points into the document.
static bool ckpt__index_read_line(const ckpt__json_doc *d, ckpt__index_line *l) {
    const ckpt__json *root = ckpt__json_root(d);
    if (root == NULL || root->kind != CKPT__JSON_OBJECT) return false;
    memset(l, 0, sizeof *l);
    const ckpt__json *name = ckpt__json_get(d, root, "name"), *sum = ckpt__json_get(d, root, "checksum");
    const ckpt__json *pin = ckpt__json_get(d, root, "pinned"), *state = ckpt__json_get(d, root, "state");
    int64_t number = 0, bytes = 0;
    if (name == NULL || name->kind != CKPT__JSON_TEXT || strlen(name->text) != name->text_len) return false;
    if (!ckpt__index_name_ok(name->text)) return false;
    if (!ckpt__index_count(d, root, "number", &number) || !ckpt__index_count(d, root, "bytes", &bytes)) return false;
    if (!ckpt__index_read_time(d, ckpt__json_get(d, root, "timestamp"), &l->t)) return false;
    if (pin == NULL || pin->kind != CKPT__JSON_BOOL || state == NULL || state->kind != CKPT__JSON_TEXT) return false;
    l->number = (uint64_t)number;
    l->bytes = (uint64_t)bytes;
    l->pinned = pin->i != 0;
    l->has_metric = ckpt__index_number(d, root, "metric", &l->metric);
    (void)ckpt__index_number(d, root, "saved_at", &l->saved_at);
    l->has_checksum = sum != NULL && sum->kind == CKPT__JSON_TEXT && ckpt__index_hex(sum->text, sum->text_len, &l->checksum);
    for (int i = 0; i < 3; i++) {
        if (strcmp(state->text, ckpt__index_states[i]) == 0) l->state = (ckpt__index_state)i;
    }
    // The name is not const in the line because the index owns its copy; this one is only looked at.
    memcpy(&l->name, &name->text, sizeof l->name);
    return true;
}

// Parses `{...,"line":"<crc>"}`. False: damaged. A failure of memory is returned.
static ckpt_err ckpt__index_parse_line(ckpt__index *ix, const char *p, size_t n, bool *good) {
    static const char tail[] = ",\"line\":\"";
    uint32_t crc = 0;
    *good = false;
    size_t end = sizeof tail - 1 + 8 + 2;
    if (n < end || memcmp(p + n - end, tail, sizeof tail - 1) != 0 || memcmp(p + n - 2, "\"}", 2) != 0) return CKPT_OK;
    if (!ckpt__index_hex(p + n - 10, 8, &crc) || ckpt__digest_crc32(0, p, n - end) != crc) return CKPT_OK;
    ckpt__json_doc doc;
    ckpt__index_line line;
    ckpt_err e = ckpt__json_parse(&doc, &ix->allocator, p, n);
    if (e != CKPT_OK) return e == CKPT_NOMEM ? e : CKPT_OK;
    if (ckpt__index_read_line(&doc, &line)) {
        *good = true;
        e = ckpt__index_insert(ix, ix->count, &line);
    }
    ckpt__json_free(&doc);
    return e;
}

// Takes the text of an index apart; what is damaged is left out and noted.
static ckpt_err ckpt__index_parse(ckpt__index *ix, const char *text, size_t size) {
    bool closed = false;
    ckpt_err e = CKPT_OK;
    for (size_t at = 0; at < size && e == CKPT_OK; ) {
        const char *p = text + at, *nl = (const char *)memchr(p, '\n', size - at);
        size_t n = nl == NULL ? size - at : (size_t)(nl - p);
        char last[64];
        int want = snprintf(last, sizeof last, "{\"checkpoints\":%llu,\"all\":\"%08lx\"}", (unsigned long long)ix->count,
                            (unsigned long)ckpt__digest_crc32(0, text, at));
        bool good = true;
        if (nl != NULL && n == (size_t)want && memcmp(p, last, n) == 0) closed = at + n + 1 == size;
        else e = ckpt__index_parse_line(ix, p, n, &good);
        if (!good || nl == NULL) ix->damaged = true;
        at += n + 1;
    }
    if (!closed) ix->damaged = true;
    return e;
}

// Reads the folder's index. A lost or damaged one is no failure: `lost` or `damaged` is set, and ckpt__index_scan finds the
// files.
static ckpt_err ckpt__index_load(ckpt__index *ix) {
    ckpt__buf path, text;
    ckpt__buf_init(&path, &ix->allocator);
    ckpt__buf_init(&text, &ix->allocator);
    ckpt__buf_fmt(&path, "%s" CKPT__INDEX_FILE, ix->folder);
    while (ix->count > 0) ckpt__index_drop(ix, ix->count - 1);
    ix->lost = ix->damaged = false;
    ckpt_err e = path.err;
    if (e == CKPT_OK) e = ckpt__index_slurp(&text, ckpt__buf_cstr(&path));
    if (e == CKPT_OK) e = ckpt__index_parse(ix, text.data, text.len);
    else if (e == CKPT_NOT_FOUND) { ix->lost = true; e = CKPT_OK; }
    else if (e != CKPT_NOMEM) { ix->damaged = true; e = CKPT_OK; }
    ckpt__buf_free(&path);
    ckpt__buf_free(&text);
    return e;
}

// Writes the index aside and renames it over the old one.
static ckpt_err ckpt__index_write(const ckpt__index *ix) {
    ckpt__buf path, text;
    ckpt__buf_init(&path, &ix->allocator);
    ckpt__buf_init(&text, &ix->allocator);
    ckpt__buf_fmt(&path, "%s" CKPT__INDEX_FILE, ix->folder);
    for (size_t i = 0; i < ix->count; i++) ckpt__index_print(&text, &ix->lines[i]);
    if (text.err == CKPT_OK) {
        uint32_t crc = text.len > 0 ? ckpt__digest_crc32(0, text.data, text.len) : 0;
        ckpt__buf_fmt(&text, "{\"checkpoints\":%llu,\"all\":\"%08lx\"}\n", (unsigned long long)ix->count, (unsigned long)crc);
    }
    ckpt_err e = text.err != CKPT_OK ? text.err : path.err;
    if (e == CKPT_OK) e = ckpt__file_replace(ckpt__buf_cstr(&path), text.data, text.len);
    ckpt__buf_free(&path);
    ckpt__buf_free(&text);
    return e;
}

// Keeps other processes from changing the index between a load and a write; a saver and `ckpt pin` may meet. The lock is held for
// milliseconds, so a few seconds of patience are enough; where locks do not work the write is as safe as rename is.
static ckpt_err ckpt__index_lock(ckpt__index *ix) {
    ckpt__buf_init(&ix->lock_path, &ix->allocator);
    ckpt__buf_fmt(&ix->lock_path, "%s" CKPT__INDEX_LOCK, ix->folder);
    const char *path = ckpt__buf_cstr(&ix->lock_path);
    ckpt_err e = ix->lock_path.err;
    double deadline = ckpt__os_now() + 10;
    while (e == CKPT_OK) {
        e = ckpt__os_lock(&ix->lock, path);
        if (e != CKPT_EXISTS || ckpt__os_now() > deadline) break;
        e = CKPT_OK;
        ckpt__os_sleep(0.001);
    }
    if (e != CKPT_OK) {
        ix->lock = -1;
        ckpt__buf_free(&ix->lock_path);
    }
    if (e == CKPT_UNSUPPORTED) e = CKPT_OK;
    return e;
}

static void ckpt__index_unlock(ckpt__index *ix) {
    if (ix->lock >= 0) ckpt__os_unlock(ix->lock, ckpt__buf_cstr(&ix->lock_path));
    ix->lock = -1;
    ckpt__buf_free(&ix->lock_path);
}

//-- the folder ------------------------------------------------------------------

typedef struct ckpt__index_names { ckpt__buf text; size_t count; } ckpt__index_names;       // each name with its NUL

static ckpt_err ckpt__index_collect(const char *name, void *user) {
    ckpt__index_names *names = (ckpt__index_names *)user;
    ckpt__buf_add(&names->text, name, strlen(name) + 1);
    names->count++;
    return names->text.err;
}

// Lists the regular files and the links below the folder, down to `depth` levels of directories, as relative names; links are not
// followed. each: called for every one, hidden ones too.
static ckpt_err ckpt__index_walk(const ckpt_allocator *a, const char *folder, int depth,
                                 ckpt_err (*each)(const char *name, const ckpt__os_info *info, void *user), void *user) {
    ckpt__buf dirs, path, rel;          // dirs: a queue of directories, each behind one byte for its depth
    ckpt__buf_init(&dirs, a);
    ckpt__buf_init(&path, a);
    ckpt__buf_init(&rel, a);
    ckpt__buf_add(&dirs, "\001", 2);       // the folder itself: level 1, name ""
    ckpt_err e = CKPT_OK;
    for (size_t at = 0; at < dirs.len && dirs.err == CKPT_OK && rel.err == CKPT_OK && path.err == CKPT_OK && e == CKPT_OK; ) {
        int level = (unsigned char)dirs.data[at];
        size_t dir = at + 1;
        at = dir + strlen(dirs.data + dir) + 1;
        ckpt__index_names names;
        names.count = 0;
        ckpt__buf_init(&names.text, a);
        path.len = 0;
        ckpt__os_path_join(&path, folder, dirs.data + dir);
        e = ckpt__os_list(dirs.data[dir] == 0 ? folder : ckpt__buf_cstr(&path), ckpt__index_collect, &names);
        const char *p = names.text.data;
        for (size_t i = 0; i < names.count && e == CKPT_OK; i++, p += strlen(p) + 1) {
            ckpt__os_info info;
            rel.len = path.len = 0;
            ckpt__buf_fmt(&rel, "%s%s%s", dirs.data + dir, dirs.data[dir] == 0 ? "" : "/", p);
            ckpt__os_path_join(&path, folder, ckpt__buf_cstr(&rel));
            if (rel.err != CKPT_OK || path.err != CKPT_OK) break;
            if (ckpt__os_lstat(ckpt__buf_cstr(&path), &info) != CKPT_OK) continue;      // gone meanwhile
            if (info.is_file || info.is_link) e = each(ckpt__buf_cstr(&rel), &info, user);
            if (!info.is_dir || level > depth) continue;
            ckpt__buf_byte(&dirs, (unsigned)level + 1);
            ckpt__buf_add(&dirs, ckpt__buf_cstr(&rel), rel.len + 1);
        }
        if (e == CKPT_OK) e = names.text.err;
        ckpt__buf_free(&names.text);
    }
    if (e == CKPT_OK) e = dirs.err != CKPT_OK ? dirs.err : path.err != CKPT_OK ? path.err : rel.err;
    ckpt__buf_free(&dirs);
    ckpt__buf_free(&path);
    ckpt__buf_free(&rel);
    return e;
}

// How many levels of directories a template's names have.
static int ckpt__index_levels(const char *text) {
    int n = 0;
    for (; *text != 0; text++) n += *text == '/';
    return n < CKPT__INDEX_DEPTH ? n : CKPT__INDEX_DEPTH;
}

typedef struct ckpt__index_scanner {
    ckpt__index          *ix;
    const char           *pattern;      // template of the names below the folder; NULL: whatever holds a checkpoint of ours
    const ckpt_name_desc *desc;
    size_t                added;
} ckpt__index_scanner;

// What a file that the index does not know says of itself: its header if that can be read, else its name.
static ckpt_err ckpt__index_describe(ckpt__index_scanner *sc, ckpt__index_line *l, const ckpt__name_found *found, bool *ours) {
    ckpt__buf path;
    ckpt__buf_init(&path, &sc->ix->allocator);
    ckpt__index_path(&path, sc->ix, l->name);
    ckpt_file *f = NULL;
    ckpt_timestamp t;
    bool has = false;
    int64_t number = 0;
    ckpt_err e = path.err;
    if (e == CKPT_OK) e = ckpt__file_open(&f, ckpt__buf_cstr(&path), &sc->ix->allocator);
    if (e == CKPT_OK) {
        *ours = f->toc.own;
        ckpt__file_timestamp(f, &t, &has);
        has = has && ckpt__time_check(&t) == CKPT_OK;
        int at = ckpt__toc_find(&f->toc, "state/callbacks/CheckpointSaver/save_count");
        if (at >= 0 && f->toc.entries[at].kind == CKPT_KIND_INT && f->toc.entries[at].i > 0) number = f->toc.entries[at].i;
        at = sc->ix->best != NULL ? ckpt__toc_find(&f->toc, sc->ix->best) : -1;
        l->has_metric = at >= 0 && f->toc.entries[at].kind == CKPT_KIND_FLOAT;
        if (l->has_metric) l->metric = f->toc.entries[at].f;
        ckpt__file_close(f);
    }
    ckpt__buf_free(&path);
    if (has) l->t = t;
    else if (found != NULL) l->t = found->t;
    l->number = (uint64_t)number;
    return e == CKPT_NOMEM ? e : CKPT_OK;
}

// The place of a line found in the folder: before the first one that is of a later time, or of the same and written later.
static size_t ckpt__index_place(const ckpt__index *ix, const ckpt__index_line *l) {
    for (size_t i = 0; i < ix->count; i++) {
        const ckpt__index_line *o = &ix->lines[i];
        if (l->number != 0 && o->number != 0 && l->number != o->number) {
            if (l->number < o->number) return i;
            continue;
        }
        int c = ckpt__index_compare_time(&l->t, &o->t);
        if (c == 0) c = l->saved_at < o->saved_at ? -1 : l->saved_at > o->saved_at;
        if (c == 0) c = strcmp(l->name, o->name);
        if (c < 0) return i;
    }
    return ix->count;
}

static ckpt_err ckpt__index_consider(const char *name, const ckpt__os_info *info, void *user) {
    ckpt__index_scanner *sc = (ckpt__index_scanner *)user;
    ckpt__name_found found;
    ckpt__os_info file = *info;
    bool matches = sc->pattern == NULL && ckpt__os_path_base(name)[0] != '.' && info->is_file, ours = false;
    if (!ckpt__index_name_ok(name) || ckpt__index_find(sc->ix, name) >= 0) return CKPT_OK;
    ckpt_err e = CKPT_OK;
    if (sc->pattern != NULL) e = ckpt__name_match(sc->pattern, sc->desc, name, &matches, &found);
    if (e != CKPT_OK || !matches) return e;
    if (info->is_link) {                    // a checkpoint that somebody moved elsewhere and left a link to
        ckpt__buf path;
        ckpt__buf_init(&path, &sc->ix->allocator);
        ckpt__index_path(&path, sc->ix, name);
        e = path.err != CKPT_OK ? path.err : ckpt__os_stat(ckpt__buf_cstr(&path), &file);
        ckpt__buf_free(&path);
        if (e != CKPT_OK || !file.is_file) return e == CKPT_NOMEM ? e : CKPT_OK;
    }
    ckpt__index_line line;
    memset(&line, 0, sizeof line);
    memcpy(&line.name, &name, sizeof line.name);
    line.bytes = file.size;
    line.saved_at = file.mtime;
    e = ckpt__index_describe(sc, &line, sc->pattern != NULL ? &found : NULL, &ours);
    if (e != CKPT_OK || (sc->pattern == NULL && !ours)) return e;
    sc->added++;
    return ckpt__index_insert(sc->ix, ckpt__index_place(sc->ix, &line), &line);
}

// Adds the files of the folder that match the template and that the index does not know, each at its place in time, and drops the
// lines whose file is gone. pattern NULL: every file that this library wrote, for tools that do not know the template.
static ckpt_err ckpt__index_scan(ckpt__index *ix, const char *pattern, const ckpt_name_desc *desc, size_t *added) {
    ckpt__index_scanner sc;
    ckpt__buf text;
    ckpt__buf_init(&text, &ix->allocator);
    ckpt_err e = CKPT_OK;
    for (size_t i = ix->count; i > 0; i--) {
        ckpt__os_info info;
        ckpt__index_path(&text, ix, ix->lines[i - 1].name);
        if (text.err == CKPT_OK && ckpt__os_lstat(ckpt__buf_cstr(&text), &info) == CKPT_NOT_FOUND) ckpt__index_drop(ix, i - 1);
    }
    sc.ix = ix;
    sc.pattern = pattern;
    sc.desc = desc;
    sc.added = 0;
    int depth = CKPT__INDEX_DEPTH;
    text.len = 0;
    if (pattern != NULL) {          // with a time: a variable with a format spec has no text without one
        ckpt_timestamp zero;
        ckpt_name_desc any = *desc;
        memset(&zero, 0, sizeof zero);
        any.timestamp = &zero;
        e = ckpt__name_format(&text, pattern, &any);
        depth = ckpt__index_levels(ckpt__buf_cstr(&text));
    }
    if (e == CKPT_OK) e = text.err;
    if (e == CKPT_OK) e = ckpt__index_walk(&ix->allocator, ix->folder, depth, ckpt__index_consider, &sc);
    for (size_t i = 0; i < ix->count; i++) {        // files without a number of their own are counted in their order
        if (ix->lines[i].number == 0) ix->lines[i].number = i > 0 ? ix->lines[i - 1].number + 1 : 1;
    }
    ckpt__index_settle(ix);
    if (added != NULL) *added = sc.added;
    ckpt__buf_free(&text);
    return e;
}

//-- rotation --------------------------------------------------------------------

typedef struct ckpt__index_rule {
    int  keep;                          // CKPT_KEEP_ALL, CKPT_KEEP_NONE or the newest N
    int  every;                         // every Nth save for ever, 0: none
    int  best;                          // -1: the smallest metric is kept, 1: the largest, 0: none
} ckpt__index_rule;

static bool ckpt__index_counts(const ckpt__index_line *l) {
    return l->owned && l->state != CKPT__INDEX_DAMAGED;
}

// The line with the best metric, the earlier of two equal ones; -1: none has one. A NaN or an infinity is never the best.
static int ckpt__index_best(const ckpt__index *ix, int direction) {
    int best = -1;
    for (size_t i = 0; i < ix->count && direction != 0; i++) {
        const ckpt__index_line *l = &ix->lines[i];
        if (!ckpt__index_counts(l) || !l->has_metric || l->metric - l->metric != 0) continue;
        if (best < 0 || (direction < 0 ? l->metric < ix->lines[best].metric : l->metric > ix->lines[best].metric)) best = (int)i;
    }
    return best;
}

// Marks the lines that rotation lets go. Lines that the run does not own, and damaged ones, neither go nor count.
static size_t ckpt__index_choose(ckpt__index *ix, const ckpt__index_rule *rule) {
    int best = ckpt__index_best(ix, rule->best);
    size_t newest = 0, gone = 0;
    for (size_t i = ix->count; i > 0; i--) {
        ckpt__index_line *l = &ix->lines[i - 1];
        l->leaves = false;
        if (rule->keep == CKPT_KEEP_ALL || !ckpt__index_counts(l)) continue;
        bool among_newest = rule->keep > 0 && newest < (size_t)rule->keep;
        newest++;
        bool nth = rule->every > 0 && l->number % (uint64_t)rule->every == 0;
        l->leaves = !among_newest && !nth && !l->pinned && best != (int)(i - 1);
        gone += l->leaves;
    }
    return gone;
}

//------------------------------------------------------------------------------
// >>saver      [P]  when to save, the snapshot, the order of a save, rotation, latest
//
// uses:    error memory platform text time name state plan codec engine file index
// threads: open, *_end, save, fence, wait, close run on the owner's thread. With COPY and LAZY a writer thread
//          runs ckpt__saver_main, which calls no hook but the allocator and state.copy. The first file that is
//          deleted starts a sweeper that frees blocks. What stands below `lock` in ckpt__saver_shared is guarded
//          by it, `index` too; `image` belongs to the writer from the hand-over until it is idle; all else is
//          the owner's, or constant after open
// states:  a save is planned -> handed over -> captured -> written -> durable -> indexed -> linked -> retired
//
// The newest save wins. `latest` and resume follow the order of saves, which is the order of time
// unless the training loop itself went back: with `overwrite` on, or within one run, a save of an
// earlier time makes those of later times an abandoned future (state of the index line).
//------------------------------------------------------------------------------

enum {
    CKPT__SAVER_RECORD = 32,            // checkpoints that the saver's record in a checkpoint lists at most, the newest ones
    CKPT__SAVER_HELD   = 64,            // descriptors of deleted files that wait for the sweeper
    CKPT__SAVER_SLACK  = 256 << 10      // room in the image for a record that grows
};

#define CKPT__SAVER_STATE "state/callbacks/CheckpointSaver/"

// Names and values of the items that are the saver's own, kept until the plan has copied them.
typedef struct ckpt__saver_record {
    ckpt__state_stamp stamp;
    ckpt__buf         names, paths;     // each with its NUL
    ckpt_timestamp    times[CKPT__SAVER_RECORD];
    size_t            count;
    int64_t           number;
    char              run_name[sizeof "state/run_name"], save_count[sizeof CKPT__SAVER_STATE "save_count"];
} ckpt__saver_record;

// One checkpoint on its way. Everything that names it was captured in the call.
typedef struct ckpt__saver_job {
    ckpt__plan         plan;
    bool               planned;         // the plan is in use; LAZY: the writer makes it, from what the call has taken
    bool               staged;          // the image holds the file's bytes
    bool               captured;        // the bound memory is no longer needed
    ckpt__file_format  format;
    ckpt__index_line   line;            // line.name is the job's own
    char              *path, *latest;   // latest NULL: no link
    uint64_t           size;
} ckpt__saver_job;

// A save of the writer thread, for the progress hook.
typedef struct ckpt__saver_told {
    char    *name;                      // NULL: none
    uint64_t total, turn;               // turn: saves that are finished before it begins
} ckpt__saver_told;

typedef struct ckpt__saver_shared {
    ckpt__os_mutex     lock;
    ckpt__os_cond      changed;         // broadcast at every change below
    // guarded by lock
    ckpt__saver_job    next;            // handed over, not yet taken
    bool               has_next, busy, uncaptured, stop;
    bool               writer_runs, sweeper_runs;
    ckpt__error_record first, unreported;
    uint64_t           finished;        // saves that the writer has done with
    ckpt_err           ended[2];        // how the last two ended, by whether their number is odd
    int                held[CKPT__SAVER_HELD];
    int                held_count;
    // atomics
    ckpt__os_flag      failed;          // unreported holds a failure
    ckpt__os_flag      waiting;         // something is handed over and not yet captured
    ckpt__os_flag      requested;
    ckpt__os_thread    writer, sweeper;
    uint64_t           done;            // bytes that the writer has written of its present file
    // the list that ckpt_saver_checkpoints hands out
    char             **paths;
    size_t             path_count, path_cap;
} ckpt__saver_shared;

struct ckpt_saver {
    ckpt_allocator       allocator;
    ckpt_state          *state;
    char                *run_name, *root, *filename, *latest;       // templates below root, latest NULL: none
    char               **ignore;
    int                  ignore_count;
    char                *best;          // canonical name of keep_best, NULL: none
    ckpt__index_rule     rule;
    bool               (*should_save)(const ckpt_timestamp *t, ckpt_event event, void *user);
    void                *should_save_user;
    bool                 overwrite, weights_only, latest_varies, writes;
    ckpt_snapshot        snapshot;
    size_t               staging;       // most bytes that the image may have
    ckpt_ranks           ranks, named;  // named: those that stand in names, rank 0's where another rank writes
    ckpt_logger          logger;
    ckpt_on_progress     progress;
    int                  lock_fd;
    char                *lock_path;
    // owner's thread
    ckpt__time_schedule  schedule;
    ckpt_timestamp       previous;
    bool                 has_previous, checked, resumed;
    int64_t              last_batch;    // of the last save, -1
    uint64_t             number;        // of the last save
    ckpt__saver_told     told[2];       // saves that the progress hook is being told of, the one being written first
    uint64_t             told_done;
    // What the save being planned holds. LAZY: the writer's from the hand-over until the bound memory is captured
    ckpt__items          items;
    ckpt__saver_record  *record;
    ckpt__buf            captured;      // LAZY: values that the call has taken
    ckpt__plan           spare;         // the last plan, for its room: of whoever plans
    ckpt__image          image;
    ckpt__index          index;         // guarded by shared->lock once the writer runs
    ckpt__os_info        index_seen;    // the index file as we wrote it
    ckpt__saver_shared  *shared;        // a pointer, so that a const saver can hand out its list
};

//-- names -----------------------------------------------------------------------

static ckpt_name_desc ckpt__saver_name_desc(const ckpt_saver *s, const ckpt_timestamp *t) {
    ckpt_name_desc d;
    memset(&d, 0, sizeof d);
    d.run_name = s->run_name;
    d.ranks = &s->named;
    d.timestamp = t;
    return d;
}

// A timestamp that differs from every other `seed`'s in each field: what a template makes of two of them tells whether it
// holds variables of time.
static ckpt_timestamp ckpt__saver_sample_time(int64_t seed) {
    ckpt_timestamp t;
    t.iteration = t.epoch = t.batch = t.sample = t.token = seed;
    t.epoch_in_iteration = t.token_in_iteration = t.batch_in_epoch = t.sample_in_epoch = t.token_in_epoch = seed;
    t.total_wct = t.iteration_wct = t.epoch_wct = t.batch_wct = (double)seed;
    return t;
}

// Formats a template into a cleaned name. NULL time: variables of time stay as text.
static ckpt_err ckpt__saver_format(const ckpt_saver *s, ckpt__buf *out, const char *format, const ckpt_timestamp *t) {
    ckpt__buf raw;
    ckpt__buf_init(&raw, &s->allocator);
    ckpt_name_desc d = ckpt__saver_name_desc(s, t);
    ckpt_err e = ckpt__name_format(&raw, format, &d);
    out->len = 0;
    if (e == CKPT_OK) ckpt__index_clean(out, ckpt__buf_cstr(&raw));
    (void)ckpt__buf_cstr(out);
    if (e == CKPT_OK) e = raw.err != CKPT_OK ? raw.err : out->err;
    ckpt__buf_free(&raw);
    return e;
}

// Does the template give different names at different times?
static ckpt_err ckpt__saver_varies(const ckpt_saver *s, const char *format, bool *varies) {
    ckpt__buf a, b;
    ckpt__buf_init(&a, &s->allocator);
    ckpt__buf_init(&b, &s->allocator);
    ckpt_timestamp one = ckpt__saver_sample_time(1), two = ckpt__saver_sample_time(2);
    ckpt_err e = ckpt__saver_format(s, &a, format, &one);
    if (e == CKPT_OK) e = ckpt__saver_format(s, &b, format, &two);
    *varies = e == CKPT_OK && strcmp(ckpt__buf_cstr(&a), ckpt__buf_cstr(&b)) != 0;
    ckpt__buf_free(&a);
    ckpt__buf_free(&b);
    return e;
}

// Splits the folder's template into the root, the levels that are the same at every time, formatted, and the rest. The index and
// the lock live in the root; file and link live together below it.
static ckpt_err ckpt__saver_split_folder(ckpt_saver *s, const char *folder, size_t *rest) {
    ckpt__buf part, text;
    ckpt__buf_init(&part, &s->allocator);
    ckpt__buf_init(&text, &s->allocator);
    size_t len = strlen(folder), best = 0;
    bool varies = true;
    ckpt_err e = ckpt__saver_varies(s, folder, &varies);
    if (e == CKPT_OK && !varies) best = len;
    for (size_t i = 0; i < len && e == CKPT_OK && varies; i++) {
        if (folder[i] != '/') continue;
        bool moves = true;
        part.len = 0;
        ckpt__buf_add(&part, folder, i + 1);
        ckpt_err cut = ckpt__saver_varies(s, ckpt__buf_cstr(&part), &moves);        // may cut a "{a/b}" in two: no level then
        if (cut == CKPT_NOMEM) e = cut;
        if (cut != CKPT_OK || moves) break;
        best = i + 1;
    }
    part.len = 0;
    ckpt__buf_add(&part, folder, best);
    ckpt_name_desc d = ckpt__saver_name_desc(s, NULL);
    if (e == CKPT_OK) e = ckpt__name_format(&text, ckpt__buf_cstr(&part), &d);
    while (text.len > 1 && text.data[text.len - 1] == '/') text.len--;
    if (e == CKPT_OK) e = text.err != CKPT_OK ? text.err : part.err;
    if (e == CKPT_OK) {
        s->root = ckpt__mem_copy_text(&s->allocator, text.len > 0 ? ckpt__buf_cstr(&text) : ".");
        if (s->root == NULL) e = CKPT_NOMEM;
    }
    *rest = best;
    ckpt__buf_free(&part);
    ckpt__buf_free(&text);
    return e;
}

// The template below the root: what is left of the folder, and a file name without leading slashes.
static ckpt_err ckpt__saver_template(const ckpt_saver *s, char **out, const char *folder, const char *name) {
    ckpt__buf b;
    ckpt__buf_init(&b, &s->allocator);
    while (*name == '/') name++;
    while (*folder == '/') folder++;
    ckpt__buf_text(&b, folder);
    if (b.len > 0 && b.data[b.len - 1] != '/') ckpt__buf_byte(&b, '/');
    ckpt__buf_text(&b, name);
    if (b.err == CKPT_OK) *out = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&b));
    ckpt_err e = b.err != CKPT_OK ? b.err : *out == NULL ? CKPT_NOMEM : CKPT_OK;
    ckpt__buf_free(&b);
    return e;
}

// Refuses a latest name that is, or could become, the name of a checkpoint: the link would replace the file.
static ckpt_err ckpt__saver_check_latest(ckpt_saver *s) {
    ckpt__buf a, b;
    ckpt__buf_init(&a, &s->allocator);
    ckpt__buf_init(&b, &s->allocator);
    ckpt_timestamp t = ckpt__saver_sample_time(1);
    ckpt__file_format format;
    ckpt__name_found found;
    bool matches = false;
    ckpt_err e = ckpt__saver_varies(s, s->latest, &s->latest_varies);
    if (e == CKPT_OK) e = ckpt__saver_format(s, &a, s->filename, &t);
    if (e == CKPT_OK) e = ckpt__saver_format(s, &b, s->latest, &t);
    if (e == CKPT_OK && !s->latest_varies) {
        ckpt_name_desc d = ckpt__saver_name_desc(s, NULL);
        e = ckpt__name_match(s->filename, &d, ckpt__buf_cstr(&b), &matches, &found);
    }
    if (e == CKPT_OK && (matches || strcmp(ckpt__buf_cstr(&a), ckpt__buf_cstr(&b)) == 0))
        e = ckpt__error_set(CKPT_ARG, "latest_filename '%s' is also the name of a checkpoint ('%s'): the link would replace the "
                            "file", s->latest, s->filename);
    size_t file = a.len, link = b.len;
    const char *longer = file > link ? ckpt__buf_cstr(&a) : ckpt__buf_cstr(&b);
    if (e == CKPT_OK && file != link && longer[file < link ? file : link] == '/' &&
        memcmp(ckpt__buf_cstr(&a), ckpt__buf_cstr(&b), file < link ? file : link) == 0)
        e = ckpt__error_set(CKPT_ARG, "latest_filename '%s' and filename '%s': one is a folder of the other", s->latest,
                            s->filename);
    if (e == CKPT_OK && ckpt__txt_ends(s->latest, "/"))
        e = ckpt__error_set(CKPT_ARG, "latest_filename '%s' names a folder", s->latest);
    if (e == CKPT_OK && ckpt__txt_starts(ckpt__os_path_base(ckpt__buf_cstr(&b)), ".ckpt-"))
        e = ckpt__error_set(CKPT_ARG, "latest_filename '%s': names that begin with .ckpt- are the library's own", s->latest);
    if (e == CKPT_OK) e = ckpt__error_prefix(ckpt__file_format_of(ckpt__buf_cstr(&b), &format), "latest_filename");
    ckpt__buf_free(&a);
    ckpt__buf_free(&b);
    return e;
}

// Checks what the file template makes: a name inside the folder, a kind of file that can be written on this machine.
static ckpt_err ckpt__saver_check_filename(ckpt_saver *s) {
    ckpt__buf name;
    ckpt__buf_init(&name, &s->allocator);
    ckpt_timestamp t = ckpt__saver_sample_time(1);
    ckpt__file_format format;
    ckpt_err e = ckpt__saver_format(s, &name, s->filename, &t);
    const char *text = ckpt__buf_cstr(&name);
    if (e == CKPT_OK && !ckpt__txt_utf8(text, name.len)) e = ckpt__error_set(CKPT_ARG, "filename '%s' is not UTF-8", text);
    if (e == CKPT_OK && !ckpt__index_name_ok(text))
        e = ckpt__error_set(CKPT_ARG, "filename '%s' gives '%s': a checkpoint needs a name inside its folder, without '..', and "
                            "names that begin with .ckpt- are the library's own",
                            s->filename, text);
    if (e == CKPT_OK) e = ckpt__file_format_of(text, &format);
    if (e == CKPT_OK && format.codec != NULL)
        e = ckpt__error_prefix(ckpt__codec_check(format.codec), "filename '%s'", s->filename);
    if (e == CKPT_OK && strchr(text, '{') != NULL && strstr(s->filename, "{{") == NULL)
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "filename '%s' has a variable that is not known: it stays as text, '%s'",
                        s->filename, text);
    ckpt__buf_free(&name);
    return e;
}

//-- latest ----------------------------------------------------------------------

// The way from one real directory to a file in another: "../sub/x.pt".
static void ckpt__saver_relative(ckpt__buf *out, const char *from_dir, const char *to_dir, const char *base) {
    size_t same = 0, i = 0;
    for (; from_dir[i] != 0 && from_dir[i] == to_dir[i]; i++) {
        if (from_dir[i] == '/') same = i + 1;
    }
    bool from_ends = from_dir[i] == 0, to_ends = to_dir[i] == 0;
    if ((from_ends && (to_ends || to_dir[i] == '/')) || (to_ends && from_dir[i] == '/')) same = i;
    const char *up = from_dir + same, *down = to_dir + same;
    while (*up == '/') up++;
    while (*down == '/') down++;
    while (*up != 0) {
        ckpt__buf_text(out, "../");
        up += strcspn(up, "/");
        while (*up == '/') up++;
    }
    if (*down != 0) {
        ckpt__buf_text(out, down);
        if (out->data != NULL && out->data[out->len - 1] != '/') ckpt__buf_byte(out, '/');
    }
    ckpt__buf_text(out, base);
    (void)ckpt__buf_cstr(out);
}

// What a link at `latest` must hold to lead to `path`. Both directories are resolved first: a folder may be reached through a
// link.
static ckpt_err ckpt__saver_target(const ckpt_saver *s, ckpt__buf *out, const char *latest, const char *path) {
    ckpt__buf dir, from, to;
    ckpt__buf_init(&dir, &s->allocator);
    ckpt__buf_init(&from, &s->allocator);
    ckpt__buf_init(&to, &s->allocator);
    out->len = 0;
    ckpt__os_path_dir(&dir, latest);
    ckpt_err e = dir.err;
    if (e == CKPT_OK) e = ckpt__os_realpath(&from, ckpt__buf_cstr(&dir));
    dir.len = 0;
    ckpt__os_path_dir(&dir, path);
    if (e == CKPT_OK) e = ckpt__os_realpath(&to, ckpt__buf_cstr(&dir));
    if (e == CKPT_OK) ckpt__saver_relative(out, ckpt__buf_cstr(&from), ckpt__buf_cstr(&to), ckpt__os_path_base(path));
    if (e == CKPT_OK) e = out->err != CKPT_OK ? out->err : dir.err;
    ckpt__buf_free(&dir);
    ckpt__buf_free(&from);
    ckpt__buf_free(&to);
    return e;
}

// Reads what `latest` says, as a link or as the one-line text file that stands for one. NOT_FOUND: neither.
static ckpt_err ckpt__saver_read_link(ckpt__buf *out, const char *latest) {
    ckpt__os_info info;
    out->len = 0;
    ckpt_err e = ckpt__os_lstat(latest, &info);
    if (e != CKPT_OK) return e;
    if (info.is_link) return ckpt__os_readlink(out, latest);
    if (!info.is_file || info.size == 0 || info.size > CKPT__INDEX_NAME_MAX)
        return ckpt__error_set(CKPT_NOT_FOUND, "%s is no link", latest);
    e = ckpt__index_slurp(out, latest);
    while (e == CKPT_OK && out->len > 0 && strchr(" \t\r\n", out->data[out->len - 1]) != NULL) out->len--;
    const char *text = ckpt__buf_cstr(out);
    if (e == CKPT_OK && (strlen(text) != out->len || !ckpt__txt_utf8(text, out->len)))
        e = ckpt__error_set(CKPT_NOT_FOUND, "%s is no link", latest);
    return e;
}

// Makes `latest` name `path`: aside, then renamed over what was there, so that a reader always finds the old or the new one.
static ckpt_err ckpt__saver_link(const ckpt_saver *s, const char *latest, const char *path) {
    ckpt__buf dir, target, aside;
    ckpt__buf_init(&dir, &s->allocator);
    ckpt__buf_init(&target, &s->allocator);
    ckpt__buf_init(&aside, &s->allocator);
    ckpt__os_path_dir(&dir, latest);
    ckpt_err e = dir.err;
    if (e == CKPT_OK) e = ckpt__os_mkdirs(ckpt__buf_cstr(&dir));
    if (e == CKPT_OK) e = ckpt__saver_target(s, &target, latest, path);
    if (e == CKPT_OK) e = ckpt__file_temp_name(&aside, latest);
    if (e == CKPT_OK) {
        e = ckpt__os_symlink(ckpt__buf_cstr(&target), ckpt__buf_cstr(&aside));
        if (e == CKPT_UNSUPPORTED) {
            e = ckpt__file_replace(latest, target.data, target.len);
        } else if (e == CKPT_OK) {
            e = ckpt__os_rename(ckpt__buf_cstr(&aside), latest);
            if (e == CKPT_OK) {
                e = ckpt__os_sync_dir(ckpt__buf_cstr(&dir));
            } else {
                ckpt__error_record why;
                ckpt__error_take(&why);
                (void)ckpt__os_remove(ckpt__buf_cstr(&aside));
                e = ckpt__error_put(&why);
            }
        }
    }
    ckpt__buf_free(&dir);
    ckpt__buf_free(&target);
    ckpt__buf_free(&aside);
    return e;
}

// The path of the link that goes with a checkpoint of time t; "" when the saver makes none.
static ckpt_err ckpt__saver_latest_path(const ckpt_saver *s, ckpt__buf *out, const ckpt_timestamp *t) {
    out->len = 0;
    (void)ckpt__buf_cstr(out);
    if (s->latest == NULL || s->rule.keep == CKPT_KEEP_NONE) return out->err;
    ckpt__buf name;
    ckpt__buf_init(&name, &s->allocator);
    ckpt_err e = ckpt__saver_format(s, &name, s->latest, t);
    if (e == CKPT_OK) ckpt__os_path_join(out, s->root, ckpt__buf_cstr(&name));
    if (e == CKPT_OK) e = out->err;
    ckpt__buf_free(&name);
    return e;
}

// Takes away the link of a checkpoint that is about to go. Only a latest name with variables of time leaves such links behind.
static ckpt_err ckpt__saver_unlink(const ckpt_saver *s, const ckpt__index_line *line, const char *path) {
    if (!s->latest_varies) return CKPT_OK;
    ckpt__buf link, says, want;
    ckpt__buf_init(&link, &s->allocator);
    ckpt__buf_init(&says, &s->allocator);
    ckpt__buf_init(&want, &s->allocator);
    ckpt_err e = ckpt__saver_latest_path(s, &link, &line->t);
    if (e == CKPT_OK && link.len > 0 && ckpt__saver_read_link(&says, ckpt__buf_cstr(&link)) == CKPT_OK &&
        ckpt__saver_target(s, &want, ckpt__buf_cstr(&link), path) == CKPT_OK &&
        strcmp(ckpt__buf_cstr(&says), ckpt__buf_cstr(&want)) == 0)
        e = ckpt__os_remove(ckpt__buf_cstr(&link));
    ckpt__buf_free(&link);
    ckpt__buf_free(&says);
    ckpt__buf_free(&want);
    return e;
}

//-- deleted files ---------------------------------------------------------------

// Frees the blocks of deleted files by closing the last descriptors on them: 195 ms per GiB on ext4, in no caller's time.
static void ckpt__saver_sweep_main(void *arg) {
    ckpt__saver_shared *sh = ((ckpt_saver *)arg)->shared;
    ckpt__os_mutex_lock(&sh->lock);
    for (;;) {
        while (sh->held_count == 0 && !sh->stop) ckpt__os_cond_wait(&sh->changed, &sh->lock);
        if (sh->held_count == 0) break;
        int fd = sh->held[--sh->held_count];
        ckpt__os_mutex_unlock(&sh->lock);
        ckpt__os_drop(fd);
        ckpt__os_mutex_lock(&sh->lock);
    }
    ckpt__os_mutex_unlock(&sh->lock);
}

// Hands a descriptor to the sweeper, which starts with the first; closes it here when there is none to be had.
static void ckpt__saver_hold(ckpt_saver *s, int fd) {
    ckpt__saver_shared *sh = s->shared;
    if (fd < 0) return;
    ckpt__os_mutex_lock(&sh->lock);
    if (!sh->sweeper_runs) sh->sweeper_runs = ckpt__os_thread_start(&sh->sweeper, ckpt__saver_sweep_main, s) == CKPT_OK;
    bool room = sh->sweeper_runs && sh->held_count < CKPT__SAVER_HELD;
    if (room) sh->held[sh->held_count++] = fd;
    if (room) ckpt__os_cond_broadcast(&sh->changed);
    ckpt__os_mutex_unlock(&sh->lock);
    if (!room) ckpt__os_drop(fd);
}

// Deletes the files of `gone`, whose lines have left the index. What cannot be deleted is found again by the next resume.
static ckpt_err ckpt__saver_retire(ckpt_saver *s, const ckpt__index *gone) {
    ckpt__buf path, dir;
    ckpt__buf_init(&path, &s->allocator);
    ckpt__buf_init(&dir, &s->allocator);
    ckpt__error_record first;
    first.code = CKPT_OK;
    for (size_t i = 0; i < gone->count; i++) {
        int fd = -1;
        ckpt__index_path(&path, &s->index, gone->lines[i].name);
        ckpt_err e = path.err;
        if (e == CKPT_OK) e = ckpt__saver_unlink(s, &gone->lines[i], ckpt__buf_cstr(&path));
        if (e == CKPT_OK) e = ckpt__os_remove_slow(ckpt__buf_cstr(&path), &fd);
        if (e == CKPT_OK) ckpt__saver_hold(s, fd);
        if (e != CKPT_OK && e != CKPT_NOT_FOUND && first.code == CKPT_OK) ckpt__error_take(&first);
        if (e == CKPT_OK && strchr(gone->lines[i].name, '/') != NULL) {
            dir.len = 0;
            ckpt__os_path_dir(&dir, ckpt__buf_cstr(&path));
            (void)ckpt__os_remove_dir(ckpt__buf_cstr(&dir));       // refused by the system unless it is empty
        }
    }
    ckpt__buf_free(&path);
    ckpt__buf_free(&dir);
    return ckpt__error_put(&first);
}

//-- the index -------------------------------------------------------------------

// Lines whose file somebody removed would take the places of real ones among the newest N.
static void ckpt__saver_drop_missing(ckpt_saver *s) {
    ckpt__buf path;
    ckpt__os_info info;
    ckpt__buf_init(&path, &s->allocator);
    for (size_t i = s->index.count; i > 0; i--) {
        ckpt__index_path(&path, &s->index, s->index.lines[i - 1].name);
        if (path.err == CKPT_OK && ckpt__os_lstat(ckpt__buf_cstr(&path), &info) == CKPT_NOT_FOUND) {
            ckpt__os_mutex_lock(&s->shared->lock);
            ckpt__index_drop(&s->index, i - 1);
            ckpt__os_mutex_unlock(&s->shared->lock);
        }
    }
    ckpt__buf_free(&path);
}

// Takes over what another process (`ckpt pin`, `ckpt rm`) has done since we wrote the index last: pins, and files that are gone.
static ckpt_err ckpt__saver_merge(ckpt_saver *s) {
    ckpt__buf path;
    ckpt__os_info now;
    ckpt__buf_init(&path, &s->allocator);
    ckpt__buf_fmt(&path, "%s" CKPT__INDEX_FILE, s->root);
    ckpt_err seen = path.err == CKPT_OK ? ckpt__os_stat(ckpt__buf_cstr(&path), &now) : path.err;
    ckpt__buf_free(&path);
    if (seen != CKPT_OK || (now.ino == s->index_seen.ino && now.mtime == s->index_seen.mtime && now.size == s->index_seen.size))
        return seen == CKPT_NOMEM ? seen : CKPT_OK;
    ckpt__index other;
    ckpt_err e = ckpt__index_init(&other, &s->allocator, s->root);
    if (e == CKPT_OK) e = ckpt__index_load(&other);
    ckpt__os_mutex_lock(&s->shared->lock);
    for (size_t i = 0; i < other.count && e == CKPT_OK; i++) {
        int at = ckpt__index_find(&s->index, other.lines[i].name);
        if (at >= 0) s->index.lines[at].pinned = other.lines[i].pinned;
    }
    ckpt__os_mutex_unlock(&s->shared->lock);
    ckpt__index_free(&other);
    if (e == CKPT_OK) ckpt__saver_drop_missing(s);
    return e;
}

// Remembers the index file as it is now, to see whether somebody else changes it.
static void ckpt__saver_note_index(ckpt_saver *s) {
    ckpt__buf path;
    ckpt__buf_init(&path, &s->allocator);
    ckpt__buf_fmt(&path, "%s" CKPT__INDEX_FILE, s->root);
    if (path.err != CKPT_OK || ckpt__os_stat(ckpt__buf_cstr(&path), &s->index_seen) != CKPT_OK)
        memset(&s->index_seen, 0, sizeof s->index_seen);
    ckpt__buf_free(&path);
}

// Moves the lines that rotation lets go to `gone`.
static ckpt_err ckpt__saver_rotate(ckpt_saver *s, ckpt__index *gone) {
    ckpt_err e = CKPT_OK;
    if (s->rule.keep != CKPT_KEEP_ALL) ckpt__saver_drop_missing(s);
    ckpt__os_mutex_lock(&s->shared->lock);
    (void)ckpt__index_choose(&s->index, &s->rule);
    for (size_t i = 0; i < s->index.count && e == CKPT_OK; ) {
        if (!s->index.lines[i].leaves) { i++; continue; }
        e = ckpt__index_insert(gone, gone->count, &s->index.lines[i]);
        if (e == CKPT_OK) ckpt__index_drop(&s->index, i);
    }
    ckpt__os_mutex_unlock(&s->shared->lock);
    return e;
}

static ckpt_err ckpt__saver_write_index(ckpt_saver *s) {
    ckpt_err e = ckpt__index_write(&s->index);
    if (e == CKPT_OK) ckpt__saver_note_index(s);
    return ckpt__error_prefix(e, "cannot update the index");
}

// A durable checkpoint gets its line, `latest` its new target, and those that rotation lets go are deleted.
static ckpt_err ckpt__saver_publish(ckpt_saver *s, const ckpt__index_line *line, const char *latest, const char *path) {
    ckpt__index gone;
    ckpt_err e = ckpt__index_init(&gone, &s->allocator, s->root);
    if (e == CKPT_OK) e = ckpt__index_lock(&s->index);
    bool locked = e == CKPT_OK;
    if (e == CKPT_OK) e = ckpt__saver_merge(s);
    if (e == CKPT_OK) {
        ckpt__os_mutex_lock(&s->shared->lock);
        e = ckpt__index_insert(&s->index, s->index.count, line);
        if (e == CKPT_OK) ckpt__index_settle(&s->index);
        ckpt__os_mutex_unlock(&s->shared->lock);
    }
    if (e == CKPT_OK) e = ckpt__saver_rotate(s, &gone);
    if (e == CKPT_OK) e = ckpt__saver_write_index(s);
    if (locked) ckpt__index_unlock(&s->index);
    if (e == CKPT_OK && latest != NULL) e = ckpt__error_prefix(ckpt__saver_link(s, latest, path), "cannot move %s", latest);
    if (e == CKPT_OK) e = ckpt__error_prefix(ckpt__saver_retire(s, &gone), "cannot delete an old checkpoint");
    // What could not go on stays in the index and goes with the next save.
    if (e != CKPT_OK && gone.count > 0) {
        ckpt__os_mutex_lock(&s->shared->lock);
        for (size_t i = gone.count; i > 0; i--) (void)ckpt__index_insert(&s->index, 0, &gone.lines[i - 1]);
        ckpt__os_mutex_unlock(&s->shared->lock);
    }
    ckpt__index_free(&gone);
    return e;
}

//-- what a checkpoint says of the saver -----------------------------------------

// The checkpoints that are kept, oldest first, and the one being made: Composer's all_saved_checkpoints_to_timestamp, but
// bounded.
static ckpt_err ckpt__saver_collect(const ckpt_saver *s, ckpt__saver_record *r, const ckpt__index_line *line) {
    ckpt__buf path;
    ckpt__buf_init(&path, &s->allocator);
    r->names.len = r->paths.len = r->count = 0;
    r->names.err = r->paths.err = CKPT_OK;
    ckpt__os_mutex_lock(&s->shared->lock);
    size_t live = 0, skip = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < s->index.count; i++) {
            const ckpt__index_line *l = &s->index.lines[i];
            if (!ckpt__index_counts(l) || strcmp(l->name, line->name) == 0) continue;
            if (pass == 0) { live++; continue; }
            if (skip > 0) { skip--; continue; }
            ckpt__index_path(&path, &s->index, l->name);
            ckpt__buf_add(&r->paths, ckpt__buf_cstr(&path), path.len + 1);
            r->times[r->count++] = l->t;
        }
        skip = live > CKPT__SAVER_RECORD - 1 ? live - (CKPT__SAVER_RECORD - 1) : 0;
    }
    ckpt__os_mutex_unlock(&s->shared->lock);
    ckpt__index_path(&path, &s->index, line->name);
    ckpt__buf_add(&r->paths, ckpt__buf_cstr(&path), path.len + 1);
    r->times[r->count++] = line->t;
    for (size_t i = 0; i < r->count; i++) {
        ckpt__buf_fmt(&r->names, CKPT__SAVER_STATE "all_saved_checkpoints_to_timestamp/[%zu]/[0]", i);
        ckpt__buf_byte(&r->names, 0);
        for (int c = 0; c < CKPT__CLOCKS; c++) {
            if (ckpt__state_clocks[c].seconds) continue;        // torch before 2.0 refuses floats with weights_only
            ckpt__buf_fmt(&r->names, CKPT__SAVER_STATE "all_saved_checkpoints_to_timestamp/[%zu]/[1]/%s", i,
                          ckpt__state_clocks[c].name + sizeof "state/timestamp/Timestamp/" - 1);
            ckpt__buf_byte(&r->names, 0);
        }
    }
    ckpt_err e = path.err != CKPT_OK ? path.err : r->names.err != CKPT_OK ? r->names.err : r->paths.err;
    ckpt__buf_free(&path);
    return e;
}

static ckpt_err ckpt__saver_add_list(ckpt__items *items, ckpt__saver_record *r) {
    char *name = r->names.data, *path = r->paths.data;
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < r->count && e == CKPT_OK; i++) {
        e = ckpt__items_add(items, name, CKPT_KIND_TEXT, path, strlen(path) + 1);
        name += strlen(name) + 1;
        path += strlen(path) + 1;
        for (int c = 0; c < CKPT__CLOCKS && e == CKPT_OK; c++) {
            if (ckpt__state_clocks[c].seconds) continue;
            e = ckpt__items_add(items, name, CKPT_KIND_INT, (char *)&r->times[i] + ckpt__state_clocks[c].at, 8);
            name += strlen(name) + 1;
        }
    }
    return e;
}

// Do the ignore keys take one of our own names away?
static ckpt_err ckpt__saver_ignores(const ckpt_saver *s, const char *name, bool *ignored) {
    ckpt__state_globs globs;
    ckpt_err e = ckpt__state_globs_init(&globs, &s->allocator, (const char *const *)s->ignore, s->ignore_count);
    *ignored = false;
    if (e == CKPT_OK) e = ckpt__state_globs_match(&globs, name, ignored);
    ckpt__state_globs_free(&globs);
    return e;
}

// Adds timestamp, run name and the saver's record to a selection, as far as the ignore keys leave them.
static ckpt_err ckpt__saver_add_own(const ckpt_saver *s, ckpt__items *items, ckpt__saver_record *r,
                                    const ckpt__index_line *line) {
    bool ignored = false;
    r->number = (int64_t)line->number;
    memcpy(r->run_name, "state/run_name", sizeof r->run_name);
    memcpy(r->save_count, CKPT__SAVER_STATE "save_count", sizeof r->save_count);
    ckpt_err e = ckpt__saver_ignores(s, "state/timestamp/Timestamp", &ignored);
    if (e == CKPT_OK && !ignored) e = ckpt__items_add_timestamp(items, &r->stamp, &line->t);
    if (e == CKPT_OK) e = ckpt__saver_ignores(s, "state/run_name", &ignored);
    if (e == CKPT_OK && !ignored) e = ckpt__items_add(items, r->run_name, CKPT_KIND_TEXT, s->run_name, strlen(s->run_name) + 1);
    if (e == CKPT_OK) e = ckpt__saver_ignores(s, CKPT__SAVER_STATE "all_saved_checkpoints_to_timestamp", &ignored);
    if (e != CKPT_OK || ignored) return e;
    e = ckpt__saver_collect(s, r, line);
    if (e == CKPT_OK) e = ckpt__saver_add_list(items, r);
    return e == CKPT_OK ? ckpt__items_add(items, r->save_count, CKPT_KIND_INT, &r->number, 8) : e;
}

//-- planning --------------------------------------------------------------------

// Keeps a plan's room for the next one.
static void ckpt__saver_drop_plan(ckpt_saver *s, ckpt__saver_job *job) {
    if (!job->planned) return;
    ckpt__plan_free(&s->spare);
    s->spare = job->plan;
    ckpt__plan_reset(&s->spare);
    job->planned = false;
}

static void ckpt__saver_job_free(ckpt_saver *s, ckpt__saver_job *job) {
    ckpt__saver_drop_plan(s, job);
    ckpt__mem_free_text(&s->allocator, job->line.name);
    ckpt__mem_free_text(&s->allocator, job->path);
    ckpt__mem_free_text(&s->allocator, job->latest);
    memset(job, 0, sizeof *job);
}

// Takes the names that this checkpoint will have.
static ckpt_err ckpt__saver_name_job(const ckpt_saver *s, ckpt__saver_job *job, const ckpt_timestamp *t) {
    ckpt__buf text, latest;
    ckpt__buf_init(&text, &s->allocator);
    ckpt__buf_init(&latest, &s->allocator);
    ckpt_err e = ckpt__saver_format(s, &text, s->filename, t);
    if (e == CKPT_OK && !ckpt__index_name_ok(ckpt__buf_cstr(&text)))
        e = ckpt__error_set(CKPT_ARG, "filename '%s' gives '%s', which is no name inside the folder", s->filename,
                            ckpt__buf_cstr(&text));
    if (e == CKPT_OK) job->line.name = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&text));
    text.len = 0;
    if (e == CKPT_OK && job->line.name != NULL) ckpt__os_path_join(&text, s->root, job->line.name);
    if (e == CKPT_OK) job->path = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&text));
    if (e == CKPT_OK) e = ckpt__saver_latest_path(s, &latest, t);
    if (e == CKPT_OK && latest.len > 0) job->latest = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&latest));
    bool all = job->line.name != NULL && job->path != NULL && (latest.len == 0 || job->latest != NULL) && text.err == CKPT_OK;
    if (e == CKPT_OK && !all) e = CKPT_NOMEM;
    if (e == CKPT_OK && job->latest != NULL && strcmp(job->latest, job->path) == 0)
        e = ckpt__error_set(CKPT_ARG, "the latest link and the checkpoint would both be %s", job->path);
    ckpt__buf_free(&text);
    ckpt__buf_free(&latest);
    return e;
}

// The value of keep_best now.
static void ckpt__saver_take_metric(const ckpt_saver *s, ckpt__index_line *line) {
    int at = s->best == NULL ? -1 : ckpt__state_find(s->state, s->best);
    if (at < 0 || s->state->items[at].kind != CKPT_KIND_FLOAT) return;
    line->metric = *(const double *)s->state->items[at].data;
    line->has_metric = true;
}

// Takes names, time and metric of a checkpoint of time t, and lists what it will hold.
static ckpt_err ckpt__saver_describe(ckpt_saver *s, ckpt__saver_job *job, const ckpt_timestamp *t, const ckpt_logger *log) {
    memset(job, 0, sizeof *job);
    job->line.t = *t;
    job->line.number = s->number + 1;
    job->line.saved_at = ckpt__os_time();
    job->line.owned = true;
    ckpt_err e = ckpt__state_check(s->state);
    if (e == CKPT_OK) e = ckpt__saver_name_job(s, job, t);
    if (e == CKPT_OK) e = ckpt__file_format_of(job->line.name, &job->format);
    if (e != CKPT_OK) return e;
    ckpt__saver_take_metric(s, &job->line);
    e = ckpt__state_select_again(s->state, s->weights_only, (const char *const *)s->ignore, s->ignore_count, log, &s->items);
    return e == CKPT_OK && !s->weights_only ? ckpt__saver_add_own(s, &s->items, s->record, &job->line) : e;
}

// Bytes of an item that the call must take, because they may change at once; 0 for what the fence is for. A text without an
// end is taken as it is, for the plan to refuse.
static size_t ckpt__saver_taken(const ckpt__binding *it) {
    const void *end;
    switch (it->kind) {
    case CKPT_KIND_INT:
    case CKPT_KIND_FLOAT: return 8;
    case CKPT_KIND_BOOL:  return sizeof(bool);
    case CKPT_KIND_BYTES: return it->size <= CKPT__PLAN_CAPTURE ? it->size : 0;
    case CKPT_KIND_TEXT:
        end = memchr(it->data, 0, it->size);
        return end != NULL ? (size_t)((const char *)end - (const char *)it->data) + 1 : it->size;
    default:              return 0;
    }
}

// LAZY: takes the small values and lets the items point to them. The plan is then the writer's work: for 100,000 tensors it is
// most of what a call would take.
static ckpt_err ckpt__saver_take(ckpt_saver *s, ckpt__saver_job *job) {
    ckpt__buf *b = &s->captured;
    size_t at = 0;
    b->len = 0;
    b->err = CKPT_OK;
    job->size = 0;
    for (size_t i = 0; i < s->items.count; i++) {
        const ckpt__binding *it = &s->items.list[i];
        size_t n = ckpt__saver_taken(it);
        ckpt__buf_add(b, it->data, n);
        ckpt__buf_fill(b, 0, (size_t)(-n & 7));
        job->size += it->size;
    }
    if (b->err != CKPT_OK) return b->err;
    for (size_t i = 0; i < s->items.count; i++) {
        ckpt__binding *it = &s->items.list[i];
        size_t n = ckpt__saver_taken(it);
        if (n == 0) continue;
        it->data = b->data + at;
        if (it->kind == CKPT_KIND_TEXT) it->size = n;
        at += (n + 7) & ~(size_t)7;
    }
    return CKPT_OK;
}

// Makes the plan of what was listed. From here on only tensors and large bytes are still read from the caller's memory.
static ckpt_err ckpt__saver_plan(ckpt_saver *s, ckpt__saver_job *job) {
    job->plan = s->spare;
    memset(&s->spare, 0, sizeof s->spare);
    job->planned = true;
    ckpt_err e = ckpt__file_plan(&job->plan, &job->format, job->line.name, s->items.list, s->items.count);
    job->size = job->plan.size;
    return e;
}

//-- writing ---------------------------------------------------------------------

// The bound memory may change from here on. Once for each job: the next one may be waiting by then.
static void ckpt__saver_captured(ckpt_saver *s, ckpt__saver_job *job) {
    ckpt__saver_shared *sh = s->shared;
    if (job->captured) return;
    job->captured = true;
    ckpt__os_mutex_lock(&sh->lock);
    sh->uncaptured = false;
    ckpt__os_flag_set(&sh->waiting, 0);
    ckpt__os_cond_broadcast(&sh->changed);
    ckpt__os_mutex_unlock(&sh->lock);
}

// May a file of that name be replaced? With overwrite off only what this run wrote, or what resume found damaged.
static bool ckpt__saver_may_replace(const ckpt_saver *s, const char *name) {
    if (s->overwrite) return true;
    ckpt__os_mutex_lock(&s->shared->lock);
    int at = ckpt__index_find(&s->index, name);
    bool may = at >= 0 && (s->index.lines[at].owned || s->index.lines[at].state == CKPT__INDEX_DAMAGED);
    ckpt__os_mutex_unlock(&s->shared->lock);
    return may;
}

static ckpt_err ckpt__saver_fill_file(ckpt_saver *s, ckpt__saver_job *job, ckpt__file_new *n, ckpt__engine_job *work) {
    ckpt__plan *plan = job->staged ? NULL : &job->plan;
    ckpt_err e;
    if (job->format.codec != NULL) e = ckpt__file_compress(n, job->format.codec, plan, &s->image, work, &s->allocator);
    else if (plan != NULL) e = ckpt__engine_write(plan, n->fd, n->temp.data, work);
    else e = ckpt__image_write(&s->image, n->fd, n->temp.data, work);
    ckpt__os_info info;
    if (e == CKPT_OK) e = ckpt__os_fstat(n->fd, &info, n->temp.data);
    if (e != CKPT_OK) return e;
    job->line.bytes = info.size;
    if (job->format.codec == NULL && plan != NULL) {
        job->line.checksum = ckpt__file_plan_crc(plan);
        job->line.has_checksum = true;
    }
    return CKPT_OK;
}

// Writes the file aside, lets the bound memory go, syncs and renames. A file that is replaced keeps a descriptor, so that its
// blocks are freed by the sweeper and not by the rename.
static ckpt_err ckpt__saver_write(ckpt_saver *s, ckpt__saver_job *job, ckpt__engine_job *work) {
    ckpt__file_new n;
    bool replace = ckpt__saver_may_replace(s, job->line.name);
    int old = -1;
    ckpt_err e = ckpt__file_begin(&n, job->path, replace, &s->allocator);
    if (e == CKPT_OK) {
        e = ckpt__saver_fill_file(s, job, &n, work);
        ckpt__saver_captured(s, job);
        if (e == CKPT_OK && replace && ckpt__os_exists(job->path)) (void)ckpt__os_open_read(&old, job->path);
        if (e == CKPT_OK) e = ckpt__file_commit(&n, replace);
        else ckpt__file_abort(&n);
        ckpt__saver_hold(s, old);
    }
    return e;
}

// Keeps a failed save for close, which returns the first one ever, and one of the background for the next call that can
// report it.
static void ckpt__saver_note_failure(ckpt_saver *s, bool background) {
    ckpt__saver_shared *sh = s->shared;
    ckpt__error_record r;
    ckpt__error_take(&r);
    ckpt__os_mutex_lock(&sh->lock);
    if (sh->first.code == CKPT_OK) sh->first = r;
    if (background && sh->unreported.code == CKPT_OK) {
        sh->unreported = r;
        ckpt__os_flag_set(&sh->failed, 1);
    }
    ckpt__os_mutex_unlock(&sh->lock);
}

// Brings one planned checkpoint to disk and frees the job. Runs on the writer thread, or in the call.
static ckpt_err ckpt__saver_commit(ckpt_saver *s, ckpt__saver_job *job, ckpt__engine_job *work) {
    ckpt_err e = job->planned || job->staged ? CKPT_OK : ckpt__saver_plan(s, job);
    bool stage = e == CKPT_OK && s->snapshot == CKPT_SNAPSHOT_LAZY && job->size <= s->staging;
    if (stage && ckpt__image_reserve(&s->image, job->size) == CKPT_OK) {
        e = ckpt__image_fill(&s->image, &job->plan, work);
        job->staged = true;
        if (e == CKPT_OK) {
            job->line.checksum = ckpt__file_plan_crc(&job->plan);
            job->line.has_checksum = job->format.codec == NULL;
        }
        ckpt__saver_captured(s, job);
    }
    if (e == CKPT_OK) e = ckpt__saver_write(s, job, work);
    ckpt__saver_captured(s, job);
    if (e != CKPT_OK) {
        (void)ckpt__error_prefix(e, "cannot save %s", job->path);
    } else {
        e = ckpt__saver_publish(s, &job->line, job->latest, job->path);
        (void)ckpt__error_prefix(e, "%s is saved, but not all that follows is done", job->path);
    }
    ckpt__saver_job_free(s, job);
    return e;
}

//-- the writer thread -----------------------------------------------------------

// The engine's progress hook on the writer thread: what it has done so far, for the owner to tell.
static void ckpt__saver_count(const ckpt_progress *p, void *user) {
    ckpt__saver_shared *sh = (ckpt__saver_shared *)user;
    uint64_t before = ckpt__os_load64(&sh->done);
    (void)ckpt__os_add64(&sh->done, p->done - before);
}

static void ckpt__saver_main(void *arg) {
    ckpt_saver *s = (ckpt_saver *)arg;
    ckpt__saver_shared *sh = s->shared;
    ckpt__os_mutex_lock(&sh->lock);
    for (;;) {
        while (!sh->has_next && !sh->stop) ckpt__os_cond_wait(&sh->changed, &sh->lock);
        if (!sh->has_next) break;
        ckpt__saver_job job = sh->next;
        memset(&sh->next, 0, sizeof sh->next);
        ckpt__engine_job work;
        ckpt_on_progress count = { ckpt__saver_count, sh };
        memset(&work, 0, sizeof work);
        work.progress = &count;
        (void)ckpt__os_add64(&sh->done, 0 - ckpt__os_load64(&sh->done));
        sh->has_next = false;
        sh->busy = true;
        ckpt__os_mutex_unlock(&sh->lock);
        ckpt_err e = ckpt__saver_commit(s, &job, &work);
        if (e != CKPT_OK) ckpt__saver_note_failure(s, true);
        ckpt__os_mutex_lock(&sh->lock);
        sh->busy = false;
        sh->ended[sh->finished++ & 1] = e;
        ckpt__os_cond_broadcast(&sh->changed);
    }
    ckpt__os_mutex_unlock(&sh->lock);
}

// The last report of a save or load.
static void ckpt__saver_tell_end(const ckpt_saver *s, const char *phase, const char *name, uint64_t total, ckpt_err err) {
    ckpt_progress p;
    if (s->progress.fn == NULL) return;
    memset(&p, 0, sizeof p);
    p.phase = phase;
    p.name = name;
    p.done = p.total = total;
    p.attempt = 1;
    p.finished = true;
    p.err = err;
    s->progress.fn(&p, s->progress.user);
}

// Tells the owner's progress hook how far the writer is. Called without the lock, on the owner's thread only.
static void ckpt__saver_report(ckpt_saver *s) {
    ckpt__saver_shared *sh = s->shared;
    while (s->told[0].name != NULL) {
        ckpt__saver_told *told = &s->told[0];
        ckpt__os_mutex_lock(&sh->lock);
        bool over = sh->finished > told->turn, runs = sh->busy && sh->finished == told->turn;
        ckpt_err err = sh->ended[told->turn & 1];
        ckpt__os_mutex_unlock(&sh->lock);
        if (!over) {
            ckpt_progress p;
            memset(&p, 0, sizeof p);
            p.phase = "save";
            p.name = told->name;
            p.total = told->total;
            p.done = runs ? ckpt__os_load64(&sh->done) : 0;
            if (p.done > p.total) p.done = p.total;
            if (p.done <= s->told_done) return;
            s->told_done = p.done;
            p.attempt = 1;
            s->progress.fn(&p, s->progress.user);
            return;
        }
        ckpt__saver_tell_end(s, "save", told->name, told->total, err);
        ckpt__mem_free_text(&s->allocator, told->name);
        s->told[0] = s->told[1];
        memset(&s->told[1], 0, sizeof s->told[1]);
        s->told_done = 0;
    }
}

// Waits until `idle`, or (not idle) until the bound memory is free. deadline 0: for ever. False: the time was up.
static bool ckpt__saver_await(ckpt_saver *s, bool idle, double deadline) {
    ckpt__saver_shared *sh = s->shared;
    bool reports = s->progress.fn != NULL && idle;
    if (!sh->writer_runs) return true;
    for (;;) {
        double slice = reports ? ckpt__os_now() + 0.1 : 0;
        double until = deadline > 0 && (slice <= 0 || deadline < slice) ? deadline : slice;
        ckpt__os_mutex_lock(&sh->lock);
        bool more = true;
        while ((idle ? sh->has_next || sh->busy : sh->uncaptured) && more) {
            if (until > 0) more = ckpt__os_cond_wait_until(&sh->changed, &sh->lock, until);
            else ckpt__os_cond_wait(&sh->changed, &sh->lock);
        }
        bool done = !(idle ? sh->has_next || sh->busy : sh->uncaptured);
        ckpt__os_mutex_unlock(&sh->lock);
        if (reports) ckpt__saver_report(s);
        if (done) return true;
        if (deadline > 0 && ckpt__os_now() >= deadline) return false;
    }
}

static ckpt_err ckpt__saver_fence(ckpt_saver *s) {
    if (ckpt__os_flag_get(&s->shared->waiting) != 0) (void)ckpt__saver_await(s, false, 0);
    return CKPT_OK;
}

// A failure of the background that nobody has been told of.
static ckpt_err ckpt__saver_take_failure(ckpt_saver *s) {
    ckpt__saver_shared *sh = s->shared;
    if (ckpt__os_flag_get(&sh->failed) == 0) return CKPT_OK;
    ckpt__error_record r;
    ckpt__os_mutex_lock(&sh->lock);
    r = sh->unreported;
    sh->unreported.code = CKPT_OK;
    ckpt__os_flag_set(&sh->failed, 0);
    ckpt__os_mutex_unlock(&sh->lock);
    ckpt__error_log(&s->logger, CKPT_LOG_ERROR, "%s", r.text);
    return ckpt__error_put(&r);
}

//-- saving ----------------------------------------------------------------------

// Begins to tell the progress hook of a save. At most one other is on its way: the writer has taken it already.
static void ckpt__saver_tell(ckpt_saver *s, const ckpt__saver_job *job) {
    ckpt__saver_shared *sh = s->shared;
    if (s->progress.fn == NULL) return;
    ckpt__saver_report(s);
    ckpt__saver_told *told = &s->told[s->told[0].name != NULL];
    ckpt__mem_free_text(&s->allocator, told->name);
    told->name = ckpt__mem_copy_text(&s->allocator, job->path);
    told->total = job->size;
    ckpt__os_mutex_lock(&sh->lock);
    told->turn = sh->finished + (sh->has_next ? 1u : 0u) + (sh->busy ? 1u : 0u);
    ckpt__os_mutex_unlock(&sh->lock);
}

// Gives a job to the writer, which is idle or has captured everything before. The job is the writer's afterwards.
static void ckpt__saver_hand_over(ckpt_saver *s, ckpt__saver_job *job) {
    ckpt__saver_shared *sh = s->shared;
    ckpt__saver_tell(s, job);
    ckpt__error_log(&s->logger, CKPT_LOG_INFO, "saving %s in the background", job->path);
    ckpt__os_mutex_lock(&sh->lock);
    sh->next = *job;
    sh->has_next = true;
    sh->uncaptured = !job->staged;
    ckpt__os_flag_set(&sh->waiting, !job->staged);
    ckpt__os_cond_broadcast(&sh->changed);
    ckpt__os_mutex_unlock(&sh->lock);
    memset(job, 0, sizeof *job);
}

// COPY: the image is free when the writer is idle. Afterwards the plan is done with.
static ckpt_err ckpt__saver_copy(ckpt_saver *s, ckpt__saver_job *job) {
    ckpt__engine_job work;
    memset(&work, 0, sizeof work);
    (void)ckpt__saver_await(s, true, 0);
    ckpt_err e = ckpt__image_reserve(&s->image, job->size);
    if (e == CKPT_OK) e = ckpt__image_fill(&s->image, &job->plan, &work);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot copy the state for %s", job->path);
    job->staged = job->captured = true;
    job->line.has_checksum = job->format.codec == NULL;
    job->line.checksum = job->line.has_checksum ? ckpt__file_plan_crc(&job->plan) : 0;
    ckpt__saver_drop_plan(s, job);
    ckpt__saver_hand_over(s, job);
    return CKPT_OK;
}

// NONE, and COPY without room for the image: the call itself writes.
static ckpt_err ckpt__saver_write_now(ckpt_saver *s, ckpt__saver_job *job) {
    ckpt__engine_job work;
    memset(&work, 0, sizeof work);
    work.phase = "save";
    work.progress = s->progress.fn != NULL ? &s->progress : NULL;
    ckpt__buf name;
    ckpt__buf_init(&name, &s->allocator);
    ckpt__buf_text(&name, job->path);
    work.name = ckpt__buf_cstr(&name);
    (void)ckpt__saver_await(s, true, 0);
    uint64_t total = job->size;
    ckpt_err e = ckpt__saver_commit(s, job, &work);
    ckpt__saver_tell_end(s, "save", ckpt__buf_cstr(&name), total, e);
    if (e == CKPT_OK) ckpt__error_log(&s->logger, CKPT_LOG_INFO, "saved %s", ckpt__buf_cstr(&name));
    ckpt__buf_free(&name);
    return e;
}

// Makes one checkpoint of now, in the saver's snapshot mode.
static ckpt_err ckpt__saver_snapshot(ckpt_saver *s, const ckpt_timestamp *t) {
    ckpt__saver_job job;
    memset(&job, 0, sizeof job);
    ckpt__error_record before;
    ckpt__error_take(&before);
    (void)ckpt__saver_fence(s);
    ckpt_err e = ckpt__time_check(t);
    bool lazy = s->snapshot == CKPT_SNAPSHOT_LAZY;
    if (e == CKPT_OK) e = ckpt__saver_describe(s, &job, t, NULL);
    if (e == CKPT_OK) e = lazy ? ckpt__saver_take(s, &job) : ckpt__saver_plan(s, &job);
    if (e != CKPT_OK) {
        (void)ckpt__error_prefix(e, "cannot save");
    } else {
        s->number++;
        bool room = job.size <= s->staging;
        if (lazy) ckpt__saver_hand_over(s, &job);
        else if (s->snapshot == CKPT_SNAPSHOT_COPY && room) e = ckpt__saver_copy(s, &job);
        else e = ckpt__saver_write_now(s, &job);
    }
    if (e != CKPT_OK) ckpt__saver_note_failure(s, false);
    else ckpt__error_last = before;         // what went wrong on the way and did not matter is nobody's last failure
    ckpt__saver_job_free(s, &job);
    return e;
}

typedef struct ckpt__saver_conflict {
    const char     *format;
    ckpt_name_desc  desc;
} ckpt__saver_conflict;

static ckpt_err ckpt__saver_conflict_one(const char *name, const ckpt__os_info *info, void *user) {
    const ckpt__saver_conflict *c = (const ckpt__saver_conflict *)user;
    if (!info->is_file) return CKPT_OK;
    return ckpt__name_conflict(c->format, &c->desc, name);
}

// Refuses to go on in a folder that holds files of a later time (SPEC 4.4), those in sub-folders of the template included.
static ckpt_err ckpt__saver_check_conflicts(const char *folder, const char *format, const ckpt_name_desc *desc,
                                            const ckpt_allocator *a) {
    ckpt__saver_conflict c;
    ckpt__buf text;
    ckpt__buf_init(&text, a);
    c.format = format;
    c.desc = *desc;
    if (!ckpt__os_exists(folder)) return CKPT_OK;
    ckpt_err e = ckpt__name_format(&text, format, desc);
    int depth = ckpt__index_levels(ckpt__buf_cstr(&text));
    if (e == CKPT_OK) e = text.err;
    if (e == CKPT_OK) e = ckpt__index_walk(a, folder, depth, ckpt__saver_conflict_one, &c);
    ckpt__buf_free(&text);
    return e == CKPT_EXISTS ? ckpt__error_prefix(e, "%s", folder) : e;
}

// Before the first checkpoint: is the folder free for this run? A resumed run has looked already.
static ckpt_err ckpt__saver_first(ckpt_saver *s, const ckpt_timestamp *t) {
    if (s->writes && !s->overwrite && !s->resumed) {
        ckpt_name_desc d = ckpt__saver_name_desc(s, t);
        ckpt_err e = ckpt__time_check(t);
        if (e == CKPT_OK) e = ckpt__saver_check_conflicts(s->root, s->filename, &d, &s->allocator);
        if (e != CKPT_OK) {
            ckpt__saver_note_failure(s, false);
            return e;
        }
    }
    s->checked = true;
    return CKPT_OK;
}

// Saves where this rank does, and keeps the ranks in step. `together`: every rank has come to the same decision.
static ckpt_err ckpt__saver_save(ckpt_saver *s, const ckpt_timestamp *t, bool together) {
    ckpt_err e = s->checked ? CKPT_OK : ckpt__saver_first(s, t);
    if (e == CKPT_OK && s->writes) e = ckpt__saver_snapshot(s, t);
    if (together && s->ranks.barrier != NULL && s->ranks.world_size > 1) {
        ckpt_err met = s->ranks.barrier(s->ranks.user);
        if (met != CKPT_OK && e == CKPT_OK)
            e = ckpt__error_set(met, "the ranks' barrier after the checkpoint failed (ckpt_err %d)", (int)met);
    }
    if (e == CKPT_OK) s->last_batch = t->batch;
    return e;
}

// Where the unit that ends now began, for the first event of a saver that has not resumed, and for a loop that went back: one
// that starts at zero begins there, one that was loaded by hand is taken to have made one step.
static ckpt_timestamp ckpt__saver_before(const ckpt_timestamp *t, ckpt_event event) {
    ckpt_timestamp p = *t;
    if (event == CKPT_EPOCH_CHECKPOINT) {
        if (p.epoch > 0) p.epoch--;
    } else if (event == CKPT_ITERATION_CHECKPOINT) {
        if (p.iteration > 0) p.iteration--;
    } else if (p.batch <= 1) {
        memset(&p, 0, sizeof p);
    } else {
        p.sample -= p.sample / p.batch;
        p.token -= p.token / p.batch;
        p.total_wct -= p.batch_wct;
        p.batch--;
    }
    return p;
}

// What an event costs when there is more to do than to look.
static ckpt_err ckpt__saver_act(ckpt_saver *s, const ckpt_timestamp *t, bool due) {
    ckpt_err e = CKPT_OK;
    (void)ckpt__saver_fence(s);
    ckpt__saver_report(s);
    if (!s->checked) e = ckpt__saver_first(s, t);
    if (e != CKPT_OK) return e;
    bool asked = ckpt__os_flag_swap(&s->shared->requested, 0) != 0;
    if ((due || asked) && t->batch != s->last_batch) e = ckpt__saver_save(s, t, due);
    return e != CKPT_OK ? e : ckpt__saver_take_failure(s);
}

static ckpt_err ckpt__saver_event(ckpt_saver *s, const ckpt_timestamp *t, ckpt_event event) {
    ckpt_timestamp first;
    const ckpt_timestamp *before = &s->previous;
    if (!s->has_previous || t->batch < s->previous.batch) {     // a loop that went back makes other batches of the same numbers
        first = ckpt__saver_before(t, event);
        before = &first;
        s->last_batch = s->schedule.last_batch = -1;
    }
    bool due = s->should_save != NULL ? s->should_save(t, event, s->should_save_user)
                                      : ckpt__time_due(&s->schedule, before, t, event);
    s->previous = *t;
    s->has_previous = true;
    const ckpt__saver_shared *sh = s->shared;
    bool quiet = s->checked && s->told[0].name == NULL && ckpt__os_flag_get(&sh->requested) == 0 &&
                 ckpt__os_flag_get(&sh->failed) == 0 && ckpt__os_flag_get(&sh->waiting) == 0;
    return due || !quiet ? ckpt__saver_act(s, t, due) : CKPT_OK;
}

//-- opening and closing ---------------------------------------------------------

static ckpt_err ckpt__saver_copy_ignore(ckpt_saver *s, const char *const *list, int count) {
    if (count < 0) return ckpt__error_set(CKPT_ARG, "ignore_keys_count is %d", count);
    if (count == 0) return CKPT_OK;
    if (list == NULL) return ckpt__error_set(CKPT_ARG, "%d ignore keys are promised, but ignore_keys is NULL", count);
    s->ignore = (char **)ckpt__mem_alloc(&s->allocator, (size_t)count * sizeof *s->ignore);
    if (s->ignore == NULL) return CKPT_NOMEM;
    s->ignore_count = count;
    for (int i = 0; i < count; i++) {
        if (list[i] == NULL) return ckpt__error_set(CKPT_ARG, "ignore_keys[%d] is NULL", i);
        s->ignore[i] = ckpt__mem_copy_text(&s->allocator, list[i]);
        if (s->ignore[i] == NULL) return CKPT_NOMEM;
    }
    return CKPT_OK;
}

// "min:state/metrics/loss" or "max:...", the name of a bound float.
static ckpt_err ckpt__saver_set_best(ckpt_saver *s, const char *text) {
    if (text == NULL || text[0] == 0) return CKPT_OK;
    if (!ckpt__txt_starts(text, "min:") && !ckpt__txt_starts(text, "max:"))
        return ckpt__error_set(CKPT_ARG, "keep_best '%s' begins with neither 'min:' nor 'max:'", text);
    s->rule.best = text[1] == 'i' ? -1 : 1;
    s->best = ckpt__mem_copy_text(&s->allocator, text + 4);
    if (s->best == NULL) return CKPT_NOMEM;
    int at = ckpt__state_find(s->state, s->best);
    if (at < 0) return ckpt__error_set(CKPT_ARG, "keep_best names '%s', but nothing is bound under that name", s->best);
    if (s->state->items[at].kind != CKPT_KIND_FLOAT)
        return ckpt__error_set(CKPT_ARG, "keep_best names '%s', which is bound as %s, not as a float", s->best,
                               ckpt__state_kind_name(s->state->items[at].kind));
    return CKPT_OK;
}

static ckpt_err ckpt__saver_check_numbers(const ckpt_saver_desc *d) {
    if (d->_canary != 0)
        return ckpt__error_set(CKPT_ARG, "the ckpt_saver_desc was not zero-initialised (ckpt_saver_desc d = {0})");
    if (d->state == NULL) return ckpt__error_set(CKPT_ARG, "ckpt_saver_desc.state is NULL: there is nothing to save");
    if (d->num_checkpoints_to_keep < CKPT_KEEP_NONE)
        return ckpt__error_set(CKPT_ARG, "num_checkpoints_to_keep is %d; it can be CKPT_KEEP_ALL (0), CKPT_KEEP_NONE (-1) or a "
                               "count", d->num_checkpoints_to_keep);
    if (d->keep_every < 0) return ckpt__error_set(CKPT_ARG, "keep_every is %d", d->keep_every);
    if (d->batches_per_epoch < 0) return ckpt__error_set(CKPT_ARG, "batches_per_epoch is %lld", (long long)d->batches_per_epoch);
    if ((int)d->snapshot < 0 || (int)d->snapshot > (int)CKPT_SNAPSHOT_LAZY)
        return ckpt__error_set(CKPT_ARG, "snapshot is %d, which is none of ckpt_snapshot", (int)d->snapshot);
    return CKPT_OK;
}

// Resolves the names: everything but the variables of time is fixed from here on.
static ckpt_err ckpt__saver_set_names(ckpt_saver *s, const ckpt_saver_desc *d) {
    const char *folder = d->folder != NULL ? d->folder : "{run_name}/checkpoints";
    const char *filename = d->filename != NULL ? d->filename : "ep{epoch}-ba{batch}-rank{rank}.pt";
    const char *latest = d->latest_filename != NULL ? d->latest_filename : "latest-rank{rank}.pt";
    ckpt__uri uri;
    ckpt__txt_uri(&uri, folder);
    if (uri.backend[0] != 0)
        return ckpt__error_set(CKPT_UNSUPPORTED, "folder '%s' is a URI: this version saves to local folders only", folder);
    if (filename[strspn(filename, "/")] == 0) return ckpt__error_set(CKPT_ARG, "filename is empty: a checkpoint needs a name");
    ckpt__buf name;
    ckpt__buf_init(&name, &s->allocator);
    size_t rest = 0;
    ckpt_err e = ckpt__name_ranks(&s->ranks, &d->ranks);
    s->writes = s->ranks.rank == 0;
    s->named = s->ranks;
    if (!s->writes) s->named.rank = s->named.local_rank = s->named.node_rank = 0;
    if (e == CKPT_OK) e = ckpt__name_run(&name, d->run_name);
    if (e == CKPT_OK && (s->run_name = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&name))) == NULL) e = CKPT_NOMEM;
    if (e == CKPT_OK) e = ckpt__saver_split_folder(s, folder, &rest);
    if (e == CKPT_OK) e = ckpt__saver_template(s, &s->filename, folder + rest, filename);
    if (e == CKPT_OK) e = ckpt__saver_check_filename(s);
    if (e == CKPT_OK && latest[strspn(latest, "/")] != 0) {
        e = ckpt__saver_template(s, &s->latest, folder + rest, latest);
        if (e == CKPT_OK) e = ckpt__saver_check_latest(s);
    }
    ckpt__buf_free(&name);
    return e;
}

static ckpt_err ckpt__saver_sweep_one(const char *name, const ckpt__os_info *info, void *user) {
    ckpt__buf *dir = (ckpt__buf *)user;
    const char *base = ckpt__os_path_base(name);
    (void)info;
    if (base[0] != '.' || !ckpt__txt_ends(base, ".tmp")) return CKPT_OK;
    // The folder is found once for each left-over; there are few.
    size_t root = dir->len;
    ckpt__buf_byte(dir, '/');
    ckpt__buf_add(dir, name, (size_t)(base - name));
    if (dir->err == CKPT_OK) ckpt__file_sweep(ckpt__buf_cstr(dir), &dir->allocator);
    dir->len = root;
    return dir->err;
}

// Removes what killed savers left behind, in the folder and its sub-folders and where `latest` lives.
static ckpt_err ckpt__saver_sweep(ckpt_saver *s) {
    ckpt__buf dir, link;
    ckpt__buf_init(&dir, &s->allocator);
    ckpt__buf_init(&link, &s->allocator);
    ckpt__buf_text(&dir, s->root);
    ckpt__file_sweep(s->root, &s->allocator);
    int depth = ckpt__index_levels(s->filename);
    if (s->latest != NULL && ckpt__index_levels(s->latest) > depth) depth = ckpt__index_levels(s->latest);
    ckpt_err e = ckpt__index_walk(&s->allocator, s->root, depth, ckpt__saver_sweep_one, &dir);
    ckpt_timestamp t = ckpt__saver_sample_time(1);
    if (e == CKPT_OK) e = ckpt__saver_latest_path(s, &link, &t);
    dir.len = 0;
    if (e == CKPT_OK && link.len > 0) ckpt__os_path_dir(&dir, ckpt__buf_cstr(&link));
    if (e == CKPT_OK && link.len > 0 && ckpt__os_exists(ckpt__buf_cstr(&dir)))
        ckpt__file_sweep(ckpt__buf_cstr(&dir), &s->allocator);
    ckpt__buf_free(&dir);
    ckpt__buf_free(&link);
    return e;
}

// Makes the folder, takes its lock, reads its index. Only the rank that writes does.
static ckpt_err ckpt__saver_enter_folder(ckpt_saver *s) {
    ckpt__buf path;
    ckpt__buf_init(&path, &s->allocator);
    ckpt__buf_fmt(&path, "%s/.ckpt-lock", s->root);
    ckpt_err e = path.err;
    if (e == CKPT_OK) e = ckpt__os_mkdirs(s->root);
    if (e == CKPT_OK && (s->lock_path = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&path))) == NULL) e = CKPT_NOMEM;
    if (e == CKPT_OK) {
        e = ckpt__os_lock(&s->lock_fd, s->lock_path);
        if (e != CKPT_OK) s->lock_fd = -1;
        if (e == CKPT_EXISTS) e = ckpt__error_prefix(e, "another saver is open in %s", s->root);
        if (e == CKPT_UNSUPPORTED) e = CKPT_OK;
    }
    ckpt__buf_free(&path);
    if (e == CKPT_OK) e = ckpt__saver_sweep(s);
    if (e == CKPT_OK) e = ckpt__index_load(&s->index);
    if (e == CKPT_OK && s->index.damaged)
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "the index in %s is damaged; it is made again from the files", s->root);
    ckpt_name_desc d = ckpt__saver_name_desc(s, NULL);
    if (e == CKPT_OK && (s->index.lost || s->index.damaged)) e = ckpt__index_scan(&s->index, s->filename, &d, NULL);
    if (e == CKPT_OK) ckpt__saver_note_index(s);
    s->number = ckpt__index_next_number(&s->index) - 1;
    return e;
}

// Plans a checkpoint that is not written: what cannot be saved is found now, and how much room an image needs.
static ckpt_err ckpt__saver_prepare(ckpt_saver *s) {
    ckpt__saver_job job;
    ckpt_timestamp t = ckpt__saver_sample_time(1);
    ckpt_err e = ckpt__saver_describe(s, &job, &t, &s->logger);
    if (e == CKPT_OK) e = ckpt__saver_plan(s, &job);
    uint64_t size = job.size + CKPT__SAVER_SLACK;
    ckpt__saver_job_free(s, &job);
    if (e == CKPT_NOT_FOUND) {              // an attached file, which resuming may bring back
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "a checkpoint cannot be saved yet: %s", ckpt__error_last.text);
        return CKPT_OK;
    }
    if (e != CKPT_OK || s->snapshot == CKPT_SNAPSHOT_NONE || !s->writes) return e;
    if (size - CKPT__SAVER_SLACK <= s->staging) return ckpt__image_reserve(&s->image, size < s->staging ? size : s->staging);
    if (s->snapshot == CKPT_SNAPSHOT_COPY)
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "max_staging_bytes %llu is less than the %llu bytes of a checkpoint: it is "
                        "not copied, the call writes it", (unsigned long long)s->staging,
                        (unsigned long long)(size - CKPT__SAVER_SLACK));
    return CKPT_OK;
}

static void ckpt__saver_log_desc(const ckpt_saver *s, const ckpt_saver_desc *d) {
    static const char *const modes[] = { "none", "copy", "lazy" };
    const char *interval = d->should_save != NULL ? "(callback)" : d->save_interval != NULL ? d->save_interval : "1ep";
    ckpt__error_log(&s->logger, CKPT_LOG_INFO, "saver: run %s, rank %d of %d%s, folder %s, filename %s, latest %s, "
                    "save_interval %s, max_duration %s, overwrite %d, keep %d, keep_every %d, keep_best %s, weights_only %d, "
                    "ignore_keys %d, snapshot %s, max_staging_bytes %llu",
                    s->run_name, s->ranks.rank, s->ranks.world_size, s->writes ? "" : " (does not write)", s->root, s->filename,
                    s->latest != NULL ? s->latest : "(none)", interval, d->max_duration != NULL ? d->max_duration : "(none)",
                    s->overwrite, s->rule.keep, s->rule.every, d->keep_best != NULL ? d->keep_best : "(none)", s->weights_only,
                    s->ignore_count, modes[s->snapshot],
                    (unsigned long long)d->max_staging_bytes);
    if (s->rule.keep == CKPT_KEEP_NONE)
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "CKPT_KEEP_NONE: each checkpoint in %s is deleted as soon as it is written",
                        s->root);
}

static void ckpt__saver_free(ckpt_saver *s) {
    ckpt_allocator a = s->allocator;
    ckpt__saver_shared *sh = s->shared;
    if (sh != NULL) {
        ckpt__os_mutex_lock(&sh->lock);
        sh->stop = true;
        ckpt__os_cond_broadcast(&sh->changed);
        ckpt__os_mutex_unlock(&sh->lock);
        if (sh->writer_runs) ckpt__os_thread_join(sh->writer);
        if (sh->sweeper_runs) ckpt__os_thread_join(sh->sweeper);
        for (size_t i = 0; i < sh->path_count; i++) ckpt__mem_free_text(&a, sh->paths[i]);
        ckpt__mem_free(&a, sh->paths, sh->path_cap * sizeof *sh->paths);
        ckpt__os_cond_free(&sh->changed);
        ckpt__os_mutex_free(&sh->lock);
        ckpt__mem_free(&a, sh, sizeof *sh);
    }
    if (s->lock_fd >= 0) ckpt__os_unlock(s->lock_fd, s->lock_path);
    for (int i = 0; i < s->ignore_count; i++) ckpt__mem_free_text(&a, s->ignore[i]);
    ckpt__mem_free(&a, s->ignore, (size_t)s->ignore_count * sizeof *s->ignore);
    ckpt__mem_free_text(&a, s->run_name);
    ckpt__mem_free_text(&a, s->root);
    ckpt__mem_free_text(&a, s->filename);
    ckpt__mem_free_text(&a, s->latest);
    ckpt__mem_free_text(&a, s->best);
    ckpt__mem_free_text(&a, s->lock_path);
    ckpt__mem_free_text(&a, s->told[0].name);
    ckpt__mem_free_text(&a, s->told[1].name);
    ckpt__items_free(&s->items);
    ckpt__buf_free(&s->captured);
    ckpt__plan_free(&s->spare);
    if (s->record != NULL) {
        ckpt__buf_free(&s->record->names);
        ckpt__buf_free(&s->record->paths);
        ckpt__mem_free(&a, s->record, sizeof *s->record);
    }
    ckpt__image_free(&s->image);
    ckpt__index_free(&s->index);
    ckpt__mem_free(&a, s, sizeof *s);
}

static ckpt_err ckpt__saver_make_shared(ckpt_saver *s) {
    ckpt__saver_shared *sh = (ckpt__saver_shared *)ckpt__mem_alloc(&s->allocator, sizeof *sh);
    if (sh == NULL) return CKPT_NOMEM;
    ckpt_err e = ckpt__os_mutex_init(&sh->lock);
    if (e == CKPT_OK) {
        e = ckpt__os_cond_init(&sh->changed);
        if (e != CKPT_OK) ckpt__os_mutex_free(&sh->lock);
    }
    if (e == CKPT_OK) s->shared = sh;
    else ckpt__mem_free(&s->allocator, sh, sizeof *sh);
    return e;
}

// All of opening. The saver is freed by the caller after a failure.
static ckpt_err ckpt__saver_open(ckpt_saver *s, const ckpt_saver_desc *d) {
    ckpt_err e = ckpt__saver_make_shared(s);
    if (e == CKPT_OK) e = ckpt__state_check(s->state);
    if (e != CKPT_OK) return e;
    s->record = (ckpt__saver_record *)ckpt__mem_alloc(&s->allocator, sizeof *s->record);
    if (s->record == NULL) return CKPT_NOMEM;
    ckpt__buf_init(&s->record->names, &s->allocator);
    ckpt__buf_init(&s->record->paths, &s->allocator);
    if (e == CKPT_OK) e = ckpt__saver_copy_ignore(s, d->ignore_keys, d->ignore_keys_count);
    if (e == CKPT_OK) e = ckpt__saver_set_best(s, d->keep_best);
    if (e == CKPT_OK && s->should_save == NULL)
        e = ckpt__time_schedule_init(&s->schedule, d->save_interval != NULL ? d->save_interval : "1ep", d->max_duration,
                                     d->batches_per_epoch);
    if (e == CKPT_OK) e = ckpt__saver_set_names(s, d);
    if (e != CKPT_OK) return e;
    e = ckpt__index_init(&s->index, &s->allocator, s->root);
    s->index.best = s->best;
    if (e == CKPT_OK && s->writes) e = ckpt__saver_enter_folder(s);
    if (e == CKPT_OK) e = ckpt__saver_prepare(s);
    if (e == CKPT_OK && s->writes && s->snapshot != CKPT_SNAPSHOT_NONE) {
        e = ckpt__os_thread_start(&s->shared->writer, ckpt__saver_main, s);
        s->shared->writer_runs = e == CKPT_OK;
    }
    if (e == CKPT_OK) ckpt__saver_log_desc(s, d);
    return e;
}

// The zeros of the desc and its plain fields.
static ckpt_saver *ckpt__saver_new(const ckpt_saver_desc *d) {
    ckpt_saver *s = (ckpt_saver *)ckpt__mem_alloc(&d->allocator, sizeof *s);
    if (s == NULL) return NULL;
    s->allocator = d->allocator;
    s->state = d->state;
    s->rule.keep = d->num_checkpoints_to_keep;
    s->rule.every = d->keep_every;
    s->should_save = d->should_save;
    s->should_save_user = d->should_save_user;
    s->overwrite = d->overwrite;
    s->weights_only = d->weights_only;
    s->snapshot = d->snapshot;
    s->staging = d->max_staging_bytes != 0 ? d->max_staging_bytes : SIZE_MAX;
    s->logger = d->logger;
    s->progress = d->progress;
    s->lock_fd = -1;
    s->last_batch = -1;
    s->index.lock = -1;
    ckpt__items_init(&s->items, &d->allocator);
    ckpt__buf_init(&s->captured, &d->allocator);
    ckpt__plan_init(&s->spare, &d->allocator, d->state);
    return s;
}

static ckpt_err ckpt__saver_wait(ckpt_saver *s, double timeout_s) {
    double deadline = timeout_s > 0 && timeout_s < 1e9 ? ckpt__os_now() + timeout_s : 0;
    if (!ckpt__saver_await(s, true, deadline))
        return ckpt__error_set(CKPT_TIMEOUT, "a checkpoint in %s is still being written after %g s", s->root, timeout_s);
    return CKPT_OK;
}

// Makes the list that ckpt_saver_checkpoints hands out. Returns how many, -1 without memory.
static int ckpt__saver_list(const ckpt_saver *s) {
    ckpt__saver_shared *sh = s->shared;
    ckpt__buf path;
    ckpt__buf_init(&path, &s->allocator);
    for (size_t i = 0; i < sh->path_count; i++) ckpt__mem_free_text(&s->allocator, sh->paths[i]);
    sh->path_count = 0;
    ckpt__os_mutex_lock(&sh->lock);
    ckpt_err e = ckpt__mem_grow(&s->allocator, (void **)&sh->paths, sizeof *sh->paths, &sh->path_cap, s->index.count + 1);
    for (size_t i = 0; i < s->index.count && e == CKPT_OK; i++) {
        if (!ckpt__index_counts(&s->index.lines[i])) continue;
        ckpt__index_path(&path, &s->index, s->index.lines[i].name);
        char *copy = ckpt__mem_copy_text(&s->allocator, ckpt__buf_cstr(&path));
        if (copy == NULL || path.err != CKPT_OK) e = CKPT_NOMEM;
        if (copy != NULL) sh->paths[sh->path_count++] = copy;
    }
    ckpt__os_mutex_unlock(&sh->lock);
    ckpt__buf_free(&path);
    return e == CKPT_OK ? (int)sh->path_count : -1;
}


//------------------------------------------------------------------------------
// >>loader     [Q]  from a load_path to a filled state: names, links, the file behind them
//
// uses:    error memory platform text name engine file
// threads: the caller's
//
// A path is followed as Composer follows it, with the holes closed: the text of a ".symlink" file is
// trimmed and taken relative to its own folder, and a ring of them ends. Where a file system has no
// links, `latest` is a one-line text file; what is in it decides, not its name.
//------------------------------------------------------------------------------

enum { CKPT__LOADER_HOPS = 8, CKPT__LOADER_LINK_MAX = 4096 };

// Refuses what is no local path.
static ckpt_err ckpt__loader_check_local(const char *path) {
    ckpt__uri uri;
    ckpt__txt_uri(&uri, path);
    if (uri.backend[0] == 0) return CKPT_OK;
    if (!uri.known) return ckpt__error_set(CKPT_ARG, "%s is neither a local path nor a URI of a store that is known", path);
    return ckpt__error_set(CKPT_UNSUPPORTED, "%s is a URI, and this version reads local paths only: fetch it first", path);
}

// Reads a small file without what is blank at either end.
static ckpt_err ckpt__loader_read_text(ckpt__buf *out, const char *path) {
    char text[CKPT__LOADER_LINK_MAX + 1];
    int fd = -1;
    size_t n = 0, from = 0;
    ckpt_err e = ckpt__os_open_read(&fd, path);
    if (e == CKPT_OK) e = ckpt__os_pread(fd, text, sizeof text, 0, &n, path);
    ckpt__os_drop(fd);
    if (e != CKPT_OK) return e;
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL) n--;
    while (from < n && strchr(" \t\r\n", text[from]) != NULL) from++;
    bool fits = n > from && n <= CKPT__LOADER_LINK_MAX && memchr(text + from, 0, n - from) == NULL &&
                memchr(text + from, '\n', n - from) == NULL && ckpt__txt_utf8(text + from, n - from);
    if (!fits) return ckpt__error_set(CKPT_CORRUPT, "%s should hold one line, the path of a checkpoint, and does not", path);
    ckpt__buf_add(out, text + from, n - from);
    (void)ckpt__buf_cstr(out);
    return out->err;
}

// Replaces `path` by the path that the text file of that name holds.
static ckpt_err ckpt__loader_hop(ckpt__buf *path) {
    ckpt__buf text, next;
    ckpt__buf_init(&text, &path->allocator);
    ckpt__buf_init(&next, &path->allocator);
    ckpt_err e = ckpt__loader_read_text(&text, path->data);
    if (e == CKPT_OK) e = ckpt__loader_check_local(text.data);
    if (e == CKPT_OK) {
        if (strchr(path->data, '/') != NULL) ckpt__os_path_dir(&next, path->data);
        ckpt__buf target;
        ckpt__buf_init(&target, &path->allocator);
        ckpt__os_path_join(&target, ckpt__buf_cstr(&next), text.data);
        path->len = 0;
        ckpt__buf_text(path, ckpt__buf_cstr(&target));
        (void)ckpt__buf_cstr(path);
        e = next.err != CKPT_OK ? next.err : target.err != CKPT_OK ? target.err : path->err;
        ckpt__buf_free(&target);
    }
    ckpt__buf_free(&text);
    ckpt__buf_free(&next);
    return e;
}

// Is this file the text that stands for a link: one line that names a file which is there? Containers hold NULs, so that most
// files are told apart without more.
static ckpt_err ckpt__loader_is_link_text(const ckpt__buf *path, const ckpt__os_info *info, bool *link) {
    *link = false;
    if (!info->is_file || info->size == 0 || info->size > CKPT__LOADER_LINK_MAX) return CKPT_OK;
    ckpt__buf target;
    ckpt__os_info there;
    ckpt__buf_init(&target, &path->allocator);
    ckpt_err e = ckpt__loader_read_text(&target, path->data);
    if (e == CKPT_OK) {
        target.len = 0;
        ckpt__buf_text(&target, path->data);
        (void)ckpt__buf_cstr(&target);
        e = target.err != CKPT_OK ? target.err : ckpt__loader_hop(&target);
        *link = e == CKPT_OK && ckpt__os_stat(target.data, &there) == CKPT_OK && there.is_file;
    }
    ckpt__buf_free(&target);
    return e == CKPT_NOMEM ? e : CKPT_OK;       // a file that cannot be read says so when it is opened
}

static ckpt_err ckpt__loader_missing(const char *asked, const char *path) {
    ckpt__os_info info;
    bool dangling = ckpt__os_exists(path) && ckpt__os_lstat(path, &info) == CKPT_OK && info.is_link;
    const char *why = dangling ? "it is a link to a file that is not there" : "there is no such file";
    if (strcmp(asked, path) == 0) return ckpt__error_set(CKPT_NOT_FOUND, "cannot find %s: %s", asked, why);
    return ckpt__error_set(CKPT_NOT_FOUND, "cannot find %s: it leads to %s, and there %s", asked, path,
                           dangling ? "is a link to a file that is not there" : "is no such file");
}

// Adds to `out` the path of the file that `asked` leads to, through .symlink files, and with `texts` through files of any name
// that hold nothing but a path. The file is there; what it holds is not looked at further.
static ckpt_err ckpt__loader_follow(ckpt__buf *out, const char *asked, bool texts) {
    if (asked[0] == 0) return ckpt__error_set(CKPT_ARG, "the path is empty");
    ckpt_err e = ckpt__loader_check_local(asked);
    ckpt__buf_text(out, asked);
    (void)ckpt__buf_cstr(out);
    for (int hops = 0; e == CKPT_OK && out->err == CKPT_OK; hops++) {
        ckpt__os_info info;
        if (hops > CKPT__LOADER_HOPS)
            return ckpt__error_set(CKPT_CORRUPT, "%s leads through more than %d .symlink files: is it a ring?", asked,
                                   (int)CKPT__LOADER_HOPS);
        e = ckpt__os_stat(out->data, &info);
        if (e == CKPT_OK && info.is_dir)
            return ckpt__error_set(CKPT_UNSUPPORTED, "%s is a folder: this version loads single files", out->data);
        if (e == CKPT_NOT_FOUND) {
            size_t len = out->len;
            ckpt__buf_text(out, ".symlink");
            (void)ckpt__buf_cstr(out);
            if (out->err != CKPT_OK || ckpt__os_exists(out->data)) { e = out->err; continue; }
            out->data[out->len = len] = 0;
            return ckpt__loader_missing(asked, out->data);
        }
        if (e != CKPT_OK) return e;
        bool link = ckpt__txt_ends(out->data, ".symlink");
        if (!link && texts) e = ckpt__loader_is_link_text(out, &info, &link);
        if (e != CKPT_OK || !link) return e;
        e = ckpt__loader_hop(out);
    }
    return e == CKPT_OK ? out->err : e;
}

// The same for a path to a checkpoint.
static ckpt_err ckpt__loader_resolve(ckpt__buf *out, const char *asked) {
    return ckpt__loader_follow(out, asked, true);
}

// The file name that a load_path means: {run_name} filled in, and the ranks, which are 0 for a file that all ranks load.
static ckpt_err ckpt__loader_path(ckpt__buf *out, const ckpt_load_desc *desc) {
    const char *run = desc->run_name;
    if (run == NULL || run[0] == 0) run = ckpt__os_env("COMPOSER_RUN_NAME");
    if (run == NULL || run[0] == 0) run = ckpt__os_env("RUN_NAME");
    if (run != NULL && run[0] == 0) run = NULL;
    ckpt__buf name;
    ckpt__buf_init(&name, &out->allocator);
    ckpt_err e = CKPT_OK;
    if (ckpt__os_exists(desc->load_path)) ckpt__buf_text(&name, desc->load_path);   // braces in it are just letters, then
    else e = ckpt__name_load_path(&name, desc->load_path, run);
    const char *path = ckpt__buf_cstr(&name);
    if (e == CKPT_OK) e = name.err;
    if (e == CKPT_OK) e = ckpt__loader_resolve(out, path);
    ckpt__buf_free(&name);
    return e;
}

// The whole of ckpt_load, below its argument checks.
static ckpt_err ckpt__loader_load(const ckpt_load_desc *desc, ckpt_timestamp *at) {
    ckpt_ranks ranks;
    ckpt_err e = ckpt__name_ranks(&ranks, &desc->ranks);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot load %s", desc->load_path);
    ckpt__buf path;
    ckpt_file *f = NULL;
    ckpt__buf_init(&path, &desc->allocator);
    e = ckpt__loader_path(&path, desc);
    if (e == CKPT_OK) e = ckpt__file_open(&f, path.data, &desc->allocator);
    if (e == CKPT_OK) {
        ckpt__engine_job job;
        memset(&job, 0, sizeof job);
        job.progress = &desc->progress;
        job.phase = "load";
        job.name = path.data;
        ckpt__file_options o;
        memset(&o, 0, sizeof o);
        o.weights_only = desc->load_weights_only;
        o.not_strict = desc->not_strict;
        o.no_verify = desc->no_verify;
        o.ignore = desc->load_ignore_keys;
        o.ignore_count = desc->load_ignore_keys_count;
        o.rank = ranks.rank;
        o.log = &desc->logger;
        o.job = &job;
        e = ckpt__file_restore(f, desc->state, &o, at);
    }
    ckpt__file_close(f);
    ckpt__buf_free(&path);
    return e;
}

//-- get_file --------------------------------------------------------------------

// Adds the absolute form of a path that exists, links in it kept as they are.
static ckpt_err ckpt__loader_absolute(ckpt__buf *out, const char *path) {
    if (path[0] == '/') {
        ckpt__buf_text(out, path);
        (void)ckpt__buf_cstr(out);
        return out->err;
    }
    while (path[0] == '.' && path[1] == '/') path += 2;
    ckpt__buf here;
    ckpt__buf_init(&here, &out->allocator);
    ckpt_err e = ckpt__os_realpath(&here, ".");
    if (e == CKPT_OK) ckpt__os_path_join(out, ckpt__buf_cstr(&here), path);
    ckpt__buf_free(&here);
    return e == CKPT_OK ? out->err : e;
}

// Copies a file, whole or not at all, where a link cannot be made.
static ckpt_err ckpt__loader_copy(const char *from, const char *to, bool overwrite, const ckpt_allocator *a) {
    enum { BLOCK = 1 << 20 };
    ckpt__file_new n;
    int fd = -1;
    size_t got = BLOCK;
    ckpt_err e = ckpt__os_open_read(&fd, from);
    if (e != CKPT_OK) return e;
    e = ckpt__file_begin(&n, to, overwrite, a);
    if (e != CKPT_OK) { ckpt__os_drop(fd); return e; }
    char *block = (char *)ckpt__mem_resize(a, NULL, 0, BLOCK);
    if (block == NULL) e = CKPT_NOMEM;
    for (uint64_t at = 0; e == CKPT_OK && got == BLOCK; at += BLOCK) {
        e = ckpt__os_pread(fd, block, BLOCK, at, &got, from);
        if (e == CKPT_OK && got > 0) e = ckpt__os_pwrite(n.fd, block, got, at, n.temp.data);
    }
    ckpt__mem_free(a, block, BLOCK);
    ckpt__os_drop(fd);
    if (e == CKPT_OK) return ckpt__file_commit(&n, overwrite);
    ckpt__file_abort(&n);
    return e;
}

// A link goes aside and is renamed, so that a destination that is overwritten is never missing. A destination that is a link to
// nowhere is left alone even then, as Composer leaves it: what it stood for is not known.
static ckpt_err ckpt__loader_place(const char *target, const char *destination, bool overwrite, const ckpt_allocator *a) {
    ckpt__os_info info;
    if (ckpt__os_exists(destination)) {
        if (!overwrite) return ckpt__error_set(CKPT_EXISTS, "it exists already, and overwriting it was not asked for");
        if (ckpt__os_stat(destination, &info) != CKPT_OK)
            return ckpt__error_set(CKPT_EXISTS, "it is a link to a file that is not there; remove it first");
        if (info.is_dir) return ckpt__error_set(CKPT_EXISTS, "there is a folder of that name");
    }
    ckpt__buf aside;
    ckpt__buf_init(&aside, a);
    ckpt_err e = ckpt__file_temp_name(&aside, destination);
    if (e == CKPT_OK) e = ckpt__os_symlink(target, aside.data);
    if (e == CKPT_OK) {
        e = overwrite ? ckpt__os_rename(aside.data, destination) : ckpt__os_rename_new(aside.data, destination);
        if (e != CKPT_OK) {
            ckpt__error_record kept;
            ckpt__error_take(&kept);
            (void)ckpt__os_remove(aside.data);
            (void)ckpt__error_put(&kept);
        }
    } else if (e == CKPT_UNSUPPORTED) {
        e = ckpt__loader_copy(target, destination, overwrite, a);
    }
    ckpt__buf_free(&aside);
    return e;
}

// Makes `destination` lead to the file that a local path names.
static ckpt_err ckpt__loader_get_file(const char *path, const char *destination, bool overwrite) {
    ckpt_allocator a = { NULL, NULL };
    ckpt__buf found, target;
    ckpt__buf_init(&found, &a);
    ckpt__buf_init(&target, &a);
    ckpt_err e = ckpt__loader_follow(&found, path, false);
    if (e == CKPT_OK) e = ckpt__loader_absolute(&target, found.data);
    if (e == CKPT_OK) {
        e = ckpt__loader_place(target.data, destination, overwrite, &a);
        (void)ckpt__error_prefix(e, "cannot make %s", destination);
    }
    ckpt__buf_free(&found);
    ckpt__buf_free(&target);
    return e;
}

//-- folders ---------------------------------------------------------------------

enum { CKPT__LOADER_DEPTH = 256 };

typedef struct ckpt__loader_walk {
    ckpt__buf path;
    int       depth;
} ckpt__loader_walk;

// Goes down one name: CKPT_EXISTS at the first file that is not hidden. Links to folders are not entered, as os.walk does not.
static ckpt_err ckpt__loader_walk_name(const char *name, void *user) {
    ckpt__loader_walk *w = (ckpt__loader_walk *)user;
    if (name[0] == '.') return CKPT_OK;
    size_t len = w->path.len;
    ckpt__os_info info, behind;
    ckpt__buf_byte(&w->path, '/');
    ckpt__buf_text(&w->path, name);
    (void)ckpt__buf_cstr(&w->path);
    if (w->path.err != CKPT_OK) return w->path.err;
    ckpt_err e = ckpt__os_lstat(w->path.data, &info);
    bool linked = e == CKPT_OK && info.is_link && ckpt__os_stat(w->path.data, &behind) == CKPT_OK && behind.is_dir;
    bool folder = e == CKPT_OK && (info.is_dir || linked);
    if (e == CKPT_NOT_FOUND) e = CKPT_OK;                   // gone since it was listed
    else if (e == CKPT_OK && !folder) e = ckpt__error_set(CKPT_EXISTS, "the folder is not empty: it holds %s", w->path.data);
    else if (e == CKPT_OK && info.is_dir) {
        if (++w->depth > CKPT__LOADER_DEPTH) return ckpt__error_set(CKPT_IO, "%s is too deep", w->path.data);
        e = ckpt__os_list(w->path.data, ckpt__loader_walk_name, w);
        w->depth--;
    }
    if (e == CKPT_OK) w->path.data[w->path.len = len] = 0;
    return e;
}

static ckpt_err ckpt__loader_check_empty(const char *folder) {
    ckpt__loader_walk w;
    ckpt__os_info info;
    ckpt_err e = ckpt__os_stat(folder, &info);
    if (e == CKPT_NOT_FOUND) return CKPT_OK;
    if (e == CKPT_OK && !info.is_dir) return ckpt__error_set(CKPT_EXISTS, "%s is a file, not a folder", folder);
    if (e != CKPT_OK) return e;
    ckpt_allocator a = { NULL, NULL };
    w.depth = 0;
    ckpt__buf_init(&w.path, &a);
    ckpt__buf_text(&w.path, folder);
    (void)ckpt__buf_cstr(&w.path);
    e = w.path.err != CKPT_OK ? w.path.err : ckpt__os_list(folder, ckpt__loader_walk_name, &w);
    ckpt__buf_free(&w.path);
    return e;
}

// The text file that stands for a link (Composer's create_symlink_file).
static ckpt_err ckpt__loader_create_symlink(const char *target, const char *path) {
    ckpt_allocator a = { NULL, NULL };
    if (!ckpt__txt_ends(path, ".symlink")) return ckpt__error_set(CKPT_ARG, "'%s' does not end in .symlink", path);
    return ckpt__file_put(path, target, strlen(target), false, &a);
}
//------------------------------------------------------------------------------
// >>resume     [Q]  the newest checkpoint of a folder that verifies
//
// uses:    error memory platform time plan engine file index saver
// threads: the owner's thread of the saver, its writer idle
//
// Index, folder and latest link are put together; the newest save comes first, and those of a
// future that the run went back from last. What does not verify is left where it is.
//------------------------------------------------------------------------------

// What is wrong with the checkpoints that were passed over, for the sentence when nothing is left.
typedef struct ckpt__resume_walk {
    ckpt__buf names;
    size_t    tried;
    bool      misfits;                  // one of them is whole, but somebody else's
} ckpt__resume_walk;

// A checkpoint that is called `latest` itself, as `scp host:run/latest-rank0.pt .` leaves it: the next link would replace it. It
// gets the name of its time; where that is taken it is a copy. What cannot be moved stays as it is.
static ckpt_err ckpt__resume_adopt_latest(ckpt_saver *s, const char *latest) {
    ckpt__os_info info;
    ckpt__buf name, path, dir;
    ckpt__buf_init(&name, &s->allocator);
    ckpt__buf_init(&path, &s->allocator);
    ckpt__buf_init(&dir, &s->allocator);
    ckpt_timestamp t;
    ckpt_file *f = NULL;
    bool has = false;
    memset(&t, 0, sizeof t);
    ckpt_err e = ckpt__os_lstat(latest, &info);
    if (e == CKPT_OK && info.is_file) e = ckpt__file_open(&f, latest, &s->allocator);
    if (e == CKPT_OK && f != NULL) {
        ckpt__file_timestamp(f, &t, &has);
        has = has && ckpt__time_check(&t) == CKPT_OK;
    }
    ckpt__file_close(f);
    if (has) e = ckpt__saver_format(s, &name, s->filename, &t);
    if (has && e == CKPT_OK) ckpt__index_path(&path, &s->index, ckpt__buf_cstr(&name));
    if (e == CKPT_OK) e = path.err;
    if (has && e == CKPT_OK) ckpt__os_path_dir(&dir, ckpt__buf_cstr(&path));
    if (has && e == CKPT_OK) e = dir.err != CKPT_OK ? dir.err : ckpt__os_mkdirs(ckpt__buf_cstr(&dir));
    if (has && e == CKPT_OK && ckpt__os_rename_new(latest, ckpt__buf_cstr(&path)) == CKPT_OK) {
        ckpt_name_desc d = ckpt__saver_name_desc(s, NULL);
        ckpt__index_scanner sc;
        memset(&sc, 0, sizeof sc);
        sc.ix = &s->index;
        sc.pattern = s->filename;
        sc.desc = &d;
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "%s is a checkpoint and no link; it is now called %s", latest, path.data);
        e = ckpt__index_consider(ckpt__buf_cstr(&name), &info, &sc);
    }
    ckpt__buf_free(&name);
    ckpt__buf_free(&path);
    ckpt__buf_free(&dir);
    return e == CKPT_NOMEM ? e : CKPT_OK;
}

// Adds what `latest` names, if that lies in the folder under a name that neither index nor template knows: another template was
// used before.
static ckpt_err ckpt__resume_follow_latest(ckpt_saver *s) {
    ckpt__buf link, says, dir, real, root;
    ckpt__buf *all[] = { &link, &says, &dir, &real, &root };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ckpt__buf_init(all[i], &s->allocator);
    ckpt_timestamp t = ckpt__saver_sample_time(1);
    ckpt__os_info info;
    ckpt_err e = s->latest_varies ? CKPT_OK : ckpt__saver_latest_path(s, &link, &t);
    bool leads = e == CKPT_OK && link.len > 0 && ckpt__saver_read_link(&says, ckpt__buf_cstr(&link)) == CKPT_OK;
    if (e == CKPT_OK && link.len > 0 && !leads && s->writes) e = ckpt__resume_adopt_latest(s, ckpt__buf_cstr(&link));
    if (e == CKPT_OK && leads) {
        ckpt__os_path_dir(&dir, ckpt__buf_cstr(&link));
        link.len = 0;
        ckpt__os_path_join(&link, ckpt__buf_cstr(&dir), ckpt__buf_cstr(&says));
        bool there = link.err == CKPT_OK && ckpt__os_realpath(&real, ckpt__buf_cstr(&link)) == CKPT_OK &&
                     ckpt__os_realpath(&root, s->root) == CKPT_OK && ckpt__os_stat(ckpt__buf_cstr(&real), &info) == CKPT_OK &&
                     info.is_file;
        if (there && real.len > root.len + 1 && memcmp(real.data, root.data, root.len) == 0 && real.data[root.len] == '/') {
            ckpt__index_scanner sc;
            memset(&sc, 0, sizeof sc);
            sc.ix = &s->index;
            e = ckpt__index_consider(ckpt__buf_cstr(&real) + root.len + 1, &info, &sc);
        }
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (e == CKPT_OK && all[i]->err != CKPT_OK) e = all[i]->err;
        ckpt__buf_free(all[i]);
    }
    return e;
}

// Brings the saver's index up to what the folder holds.
static ckpt_err ckpt__resume_look(ckpt_saver *s) {
    ckpt_name_desc d = ckpt__saver_name_desc(s, NULL);
    size_t added = 0;
    if (!ckpt__os_exists(s->root)) return CKPT_OK;
    ckpt_err e = ckpt__index_load(&s->index);
    bool rebuilt = s->index.lost || s->index.damaged;
    if (e == CKPT_OK) e = ckpt__index_scan(&s->index, s->filename, &d, &added);
    if (e == CKPT_OK) e = ckpt__resume_follow_latest(s);
    if (e == CKPT_OK && rebuilt && s->index.count > 0)
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "the index of %s was lost or damaged; %llu checkpoints were found by their "
                        "names", s->root, (unsigned long long)added);
    return e;
}

// Loads one checkpoint. *own: this library wrote it.
static ckpt_err ckpt__resume_load(ckpt_saver *s, const ckpt__index_line *line, const char *path, ckpt_timestamp *at, bool *own) {
    ckpt_file *f = NULL;
    ckpt__engine_job job;
    ckpt__file_options o;
    memset(&job, 0, sizeof job);
    memset(&o, 0, sizeof o);
    job.phase = "load";
    job.name = path;
    job.progress = s->progress.fn != NULL ? &s->progress : NULL;
    o.weights_only = s->weights_only;
    o.ignore = (const char *const *)s->ignore;
    o.ignore_count = s->ignore_count;
    o.rank = s->ranks.rank;
    o.log = &s->logger;
    o.job = &job;
    *own = false;
    ckpt_err e = ckpt__file_open(&f, path, &s->allocator);
    if (e != CKPT_OK) return e;
    *own = f->toc.own;
    bool stamped = ckpt__toc_find(&f->toc, "state/timestamp/Timestamp/batch") >= 0 && !s->weights_only;
    e = ckpt__file_restore(f, s->state, &o, at);
    if (!stamped) *at = line->t;
    ckpt__file_close(f);
    return e;
}

// Is this a reason to look at the next older checkpoint? A file that is whole but does not fit is the user's business, unless
// somebody else's file got into the folder.
static bool ckpt__resume_passes(ckpt_err e, bool own) {
    return e == CKPT_CORRUPT || e == CKPT_IO || e == CKPT_NOT_FOUND || (e == CKPT_MISMATCH && !own);
}

// Tries the line at `i`. *loaded: this is the one.
static ckpt_err ckpt__resume_try(ckpt_saver *s, size_t i, ckpt__resume_walk *w, ckpt_timestamp *at, bool *loaded) {
    ckpt__buf path;
    bool own = false;
    ckpt__buf_init(&path, &s->allocator);
    ckpt__index_line *l = &s->index.lines[i];
    ckpt__index_path(&path, &s->index, l->name);
    ckpt_err e = path.err;
    if (e == CKPT_OK) e = ckpt__resume_load(s, l, ckpt__buf_cstr(&path), at, &own);
    *loaded = e == CKPT_OK;
    if (e == CKPT_OK) {
        ckpt__error_log(&s->logger, CKPT_LOG_INFO, "resumed from %s: epoch %lld, batch %lld", ckpt__buf_cstr(&path),
                        (long long)at->epoch, (long long)at->batch);
        // A file replaced under a constant name by a process that was killed before it could say so in the index.
        ckpt__os_info info;
        bool same = ckpt__os_stat(ckpt__buf_cstr(&path), &info) != CKPT_OK || info.size == l->bytes;
        if (!same || ckpt__index_compare_time(&l->t, at) != 0) {
            l->bytes = same ? l->bytes : info.size;
            l->has_checksum = l->has_metric = false;
        }
        l->t = *at;
        if (l->state == CKPT__INDEX_DAMAGED) l->state = CKPT__INDEX_SAVED;
    } else if (ckpt__resume_passes(e, own)) {
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "%s is passed over: %s", ckpt__buf_cstr(&path), ckpt__error_last.text);
        if (w->tried++ < 8) ckpt__buf_fmt(&w->names, "%s%s", w->names.len > 0 ? ", " : "", l->name);
        w->misfits = w->misfits || e == CKPT_MISMATCH;
        l->state = CKPT__INDEX_DAMAGED;
        e = path.err;
    }
    ckpt__buf_free(&path);
    return e;
}

static ckpt_err ckpt__resume_nothing(const ckpt_saver *s, ckpt__resume_walk *w) {
    if (w->tried == 0)
        return ckpt__error_set(CKPT_NOT_FOUND, "%s holds no checkpoint that matches %s: a fresh start", s->root, s->filename);
    return ckpt__error_set(w->misfits ? CKPT_MISMATCH : CKPT_CORRUPT, "none of the %llu checkpoints in %s can be resumed from "
                           "(%s%s); the log says why of each", (unsigned long long)w->tried, s->root, ckpt__buf_cstr(&w->names),
                           w->tried > 8 ? ", ..." : "");
}

// From now on the folder's checkpoints are this run's. The index says so, and `latest` names what was loaded. A folder that
// cannot be written to is the next save's trouble.
static void ckpt__resume_own(ckpt_saver *s, const char *name, const ckpt_timestamp *t) {
    ckpt__buf path, link, says, want;
    ckpt__buf_init(&path, &s->allocator);
    ckpt__buf_init(&link, &s->allocator);
    ckpt__buf_init(&says, &s->allocator);
    ckpt__buf_init(&want, &s->allocator);
    ckpt__index_settle(&s->index);
    for (size_t i = 0; i < s->index.count; i++) s->index.lines[i].owned = true;
    ckpt__index_path(&path, &s->index, name);
    ckpt_err e = ckpt__index_lock(&s->index);
    if (e == CKPT_OK) {
        e = ckpt__saver_merge(s);
        if (e == CKPT_OK) e = ckpt__saver_write_index(s);
        ckpt__index_unlock(&s->index);
    }
    if (e == CKPT_OK) e = ckpt__saver_latest_path(s, &link, t);
    if (e == CKPT_OK && link.len > 0) {
        bool right = ckpt__saver_read_link(&says, ckpt__buf_cstr(&link)) == CKPT_OK &&
                     ckpt__saver_target(s, &want, ckpt__buf_cstr(&link), ckpt__buf_cstr(&path)) == CKPT_OK &&
                     strcmp(ckpt__buf_cstr(&says), ckpt__buf_cstr(&want)) == 0;
        if (!right) e = ckpt__saver_link(s, ckpt__buf_cstr(&link), ckpt__buf_cstr(&path));
    }
    if (e != CKPT_OK)
        ckpt__error_log(&s->logger, CKPT_LOG_WARN, "resumed, but %s could not be brought up to date: %s", s->root,
                        ckpt__error_last.text);
    ckpt__buf_free(&path);
    ckpt__buf_free(&link);
    ckpt__buf_free(&says);
    ckpt__buf_free(&want);
}

// The saver goes on from the line at `i`, of time t.
static void ckpt__resume_begin(ckpt_saver *s, size_t i, const ckpt_timestamp *t) {
    s->previous = *t;
    s->has_previous = s->resumed = s->checked = true;
    s->last_batch = s->schedule.last_batch = -1;
    s->number = ckpt__index_next_number(&s->index) - 1;
    if (s->writes) ckpt__resume_own(s, s->index.lines[i].name, t);
}

static ckpt_err ckpt__resume_run(ckpt_saver *s, ckpt_timestamp *at) {
    ckpt__resume_walk w;
    ckpt_timestamp t;
    memset(&w, 0, sizeof w);
    ckpt__buf_init(&w.names, &s->allocator);
    bool loaded = false;
    ckpt_err e = ckpt__resume_look(s);
    for (int pass = 0; pass < 2 && e == CKPT_OK && !loaded; pass++) {
        for (size_t i = s->index.count; i > 0 && e == CKPT_OK && !loaded; i--) {
            if ((s->index.lines[i - 1].state == CKPT__INDEX_ABANDONED) != (pass == 1)) continue;
            e = ckpt__resume_try(s, i - 1, &w, &t, &loaded);
            if (loaded) ckpt__resume_begin(s, i - 1, &t);
        }
    }
    if (e == CKPT_OK && !loaded) e = ckpt__resume_nothing(s, &w);
    if (e == CKPT_OK && at != NULL) *at = t;
    ckpt__buf_free(&w.names);
    return e;
}

//------------------------------------------------------------------------------
// >>folder     [Q]  a folder of checkpoints as tools see it: list, pin, remove, tidy; one file converted
//
// uses:    error memory platform state plan engine file index saver
// threads: a ckpt_folder belongs to one thread at a time
//
// The folder object is a view: the index, with the files beside it that the index does not know.
// Every change is made to an index read afresh, under the index's lock, and where files go under
// the saver's lock too; then the view is made again.
//------------------------------------------------------------------------------

#define CKPT__FOLDER_LOCK "/.ckpt-lock"        // the saver's

// What the view knows beyond the index line of the same place.
typedef struct ckpt__folder_item {
    char         *path, *latest;    // latest NULL: no link leads to it
    ckpt__os_info info;
    bool          missing;
} ckpt__folder_item;

// In the lines of the view `owned` means that this library wrote the file, `leaves` that the index has it.
struct ckpt_folder {
    ckpt_allocator     allocator;
    ckpt_logger        logger;
    ckpt_on_progress   progress;
    ckpt__index        index;
    ckpt__folder_item *items;
    size_t             item_count, item_cap;
};

static void ckpt__folder_free_items(ckpt_folder *f) {
    for (size_t i = 0; i < f->item_count; i++) {
        ckpt__mem_free_text(&f->allocator, f->items[i].path);
        ckpt__mem_free_text(&f->allocator, f->items[i].latest);
    }
    ckpt__mem_free(&f->allocator, f->items, f->item_cap * sizeof *f->items);
    f->items = NULL;
    f->item_count = f->item_cap = 0;
}

static void ckpt__folder_free(ckpt_folder *f) {
    if (f == NULL) return;
    ckpt_allocator a = f->allocator;
    ckpt__folder_free_items(f);
    ckpt__index_free(&f->index);
    ckpt__mem_free(&a, f, sizeof *f);
}

// Adds a file that the index does not know. A compressed one would have to be unpacked to be asked, so only its name speaks.
static ckpt_err ckpt__folder_consider(const char *name, const ckpt__os_info *info, void *user) {
    ckpt__index *ix = (ckpt__index *)user;
    const char *base = ckpt__os_path_base(name);
    if (!info->is_file || info->size == 0 || base[0] == '.' || !ckpt__index_name_ok(name)) return CKPT_OK;
    if (ckpt__index_find(ix, name) >= 0) return CKPT_OK;
    ckpt__file_format format;
    bool known = ckpt__file_format_of(name, &format) == CKPT_OK, ours = false, readable = false;
    ckpt__index_line line;
    memset(&line, 0, sizeof line);
    memcpy(&line.name, &name, sizeof line.name);
    line.saved_at = info->mtime;
    if (known && format.codec != NULL) {
        readable = strstr(base, ".pt") != NULL || strstr(base, ".safetensors") != NULL || format.tar;
    } else {
        ckpt__buf path;
        ckpt_file *f = NULL;
        int64_t number = 0;
        bool has = false;
        ckpt__buf_init(&path, &ix->allocator);
        ckpt__index_path(&path, ix, name);
        ckpt_err e = path.err != CKPT_OK ? path.err : ckpt__file_open(&f, path.data, &ix->allocator);
        ckpt__buf_free(&path);
        if (e == CKPT_NOMEM) return e;
        readable = e == CKPT_OK;
        if (e == CKPT_OK) {
            ours = f->toc.own;
            ckpt__file_timestamp(f, &line.t, &has);
            int at = ckpt__toc_find(&f->toc, "state/callbacks/CheckpointSaver/save_count");
            if (at >= 0 && f->toc.entries[at].kind == CKPT_KIND_INT) number = f->toc.entries[at].i;
            line.number = number > 0 ? (uint64_t)number : 0;
            ckpt__file_close(f);
        }
        // A damaged checkpoint should be seen, an image or a log should not.
        if (e == CKPT_CORRUPT && ckpt__file_guess_name(name) != CKPT__GUESS_NONE) {
            readable = true;
            line.state = CKPT__INDEX_DAMAGED;
        }
    }
    line.owned = ours;
    return readable ? ckpt__index_insert(ix, ckpt__index_place(ix, &line), &line) : CKPT_OK;
}

//-- links -----------------------------------------------------------------------

// A link, or the text file that stands for one, found in the folder.
typedef struct ckpt__folder_link {
    char         *name, *path;
    ckpt__os_info target;
    bool          there;            // it leads to something
    bool          inside;           // it leads nowhere, but would lead into this folder
    bool          moves;
} ckpt__folder_link;

typedef struct ckpt__folder_links {
    ckpt_allocator     allocator;
    const char        *folder;
    ckpt__folder_link *list;
    size_t             count, cap;
} ckpt__folder_links;

static void ckpt__folder_free_links(ckpt__folder_links *l) {
    for (size_t i = 0; i < l->count; i++) {
        ckpt__mem_free_text(&l->allocator, l->list[i].name);
        ckpt__mem_free_text(&l->allocator, l->list[i].path);
    }
    ckpt__mem_free(&l->allocator, l->list, l->cap * sizeof *l->list);
}

// Would `target`, seen from the folder of `link`, lie in the checkpoint folder?
static ckpt_err ckpt__folder_is_inside(const ckpt__folder_links *l, const char *link, const char *target, bool *inside) {
    ckpt__buf dir, there, real, root;
    ckpt__buf *all[] = { &dir, &there, &real, &root };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ckpt__buf_init(all[i], &l->allocator);
    ckpt__os_path_dir(&dir, link);
    ckpt__os_path_join(&there, ckpt__buf_cstr(&dir), target);
    dir.len = 0;
    ckpt__os_path_dir(&dir, ckpt__buf_cstr(&there));
    *inside = dir.err == CKPT_OK && there.err == CKPT_OK && ckpt__os_realpath(&real, ckpt__buf_cstr(&dir)) == CKPT_OK &&
              ckpt__os_realpath(&root, l->folder) == CKPT_OK && real.len >= root.len &&
              memcmp(real.data, root.data, root.len) == 0 && (real.len == root.len || real.data[root.len] == '/');
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->err != CKPT_OK) e = all[i]->err;
        ckpt__buf_free(all[i]);
    }
    return e;
}

static ckpt_err ckpt__folder_note_link(const char *name, const ckpt__os_info *info, void *user) {
    ckpt__folder_links *l = (ckpt__folder_links *)user;
    const char *base = ckpt__os_path_base(name);
    if (base[0] == '.' || (!info->is_link && (info->size == 0 || info->size > CKPT__INDEX_NAME_MAX))) return CKPT_OK;
    ckpt__folder_link link;
    ckpt__buf path, says, dir;
    memset(&link, 0, sizeof link);
    ckpt__buf_init(&path, &l->allocator);
    ckpt__buf_init(&says, &l->allocator);
    ckpt__buf_init(&dir, &l->allocator);
    ckpt__os_path_join(&path, l->folder, name);
    ckpt_err e = path.err;
    bool is_link = e == CKPT_OK && ckpt__saver_read_link(&says, ckpt__buf_cstr(&path)) == CKPT_OK && says.len > 0;
    if (is_link) {
        ckpt__os_path_dir(&dir, ckpt__buf_cstr(&path));
        ckpt__buf target;
        ckpt__buf_init(&target, &l->allocator);
        ckpt__os_path_join(&target, ckpt__buf_cstr(&dir), ckpt__buf_cstr(&says));
        e = dir.err != CKPT_OK ? dir.err : target.err;
        ckpt_err seen = e == CKPT_OK ? ckpt__os_stat(ckpt__buf_cstr(&target), &link.target) : e;
        ckpt__buf_free(&target);
        link.there = seen == CKPT_OK;
        // A text that names no file is a text.
        is_link = link.there || (info->is_link && seen == CKPT_NOT_FOUND);
        if (e == CKPT_OK && is_link && !link.there)
            e = ckpt__folder_is_inside(l, ckpt__buf_cstr(&path), ckpt__buf_cstr(&says), &link.inside);
    }
    if (e == CKPT_OK && is_link) {
        e = ckpt__mem_grow(&l->allocator, (void **)&l->list, sizeof *l->list, &l->cap, l->count + 1);
        if (e == CKPT_OK) link.name = ckpt__mem_copy_text(&l->allocator, name);
        if (e == CKPT_OK) link.path = ckpt__mem_copy_text(&l->allocator, ckpt__buf_cstr(&path));
        if (e == CKPT_OK) l->list[l->count++] = link;
        if (e == CKPT_OK && (link.name == NULL || link.path == NULL)) e = CKPT_NOMEM;
    }
    if (e == CKPT_OK) e = says.err != CKPT_OK ? says.err : dir.err;
    ckpt__buf_free(&path);
    ckpt__buf_free(&says);
    ckpt__buf_free(&dir);
    return e;
}

static ckpt_err ckpt__folder_find_links(ckpt__folder_links *l, const char *folder, const ckpt_allocator *a) {
    memset(l, 0, sizeof *l);
    l->allocator = *a;
    l->folder = folder;
    return ckpt__index_walk(a, folder, CKPT__INDEX_DEPTH, ckpt__folder_note_link, l);
}

//-- the view --------------------------------------------------------------------

static ckpt_err ckpt__folder_fill_items(ckpt_folder *f, const ckpt__folder_links *links) {
    ckpt__buf path;
    ckpt__buf_init(&path, &f->allocator);
    ckpt_err e = ckpt__mem_grow(&f->allocator, (void **)&f->items, sizeof *f->items, &f->item_cap, f->index.count + 1);
    for (size_t i = 0; i < f->index.count && e == CKPT_OK; i++) {
        ckpt__folder_item *it = &f->items[f->item_count++];
        ckpt__index_path(&path, &f->index, f->index.lines[i].name);
        it->path = path.err == CKPT_OK ? ckpt__mem_copy_text(&f->allocator, ckpt__buf_cstr(&path)) : NULL;
        if (it->path == NULL) e = CKPT_NOMEM;
        it->missing = e == CKPT_OK && ckpt__os_stat(it->path, &it->info) != CKPT_OK;
        for (size_t k = 0; k < links->count && e == CKPT_OK && !it->missing && it->latest == NULL; k++) {
            const ckpt__folder_link *l = &links->list[k];
            if (!l->there || l->target.ino != it->info.ino || l->target.dev != it->info.dev) continue;
            it->latest = ckpt__mem_copy_text(&f->allocator, l->name);
            if (it->latest == NULL) e = CKPT_NOMEM;
        }
    }
    ckpt__buf_free(&path);
    return e;
}

// Makes the view again from what is there now.
static ckpt_err ckpt__folder_look(ckpt_folder *f) {
    ckpt__folder_links links;
    ckpt__folder_free_items(f);
    ckpt_err e = ckpt__index_load(&f->index);
    if (e != CKPT_OK) return e;
    for (size_t i = 0; i < f->index.count; i++) f->index.lines[i].owned = f->index.lines[i].leaves = true;
    e = ckpt__index_walk(&f->allocator, f->index.folder, CKPT__INDEX_DEPTH, ckpt__folder_consider, &f->index);
    if (e != CKPT_OK) return e;
    e = ckpt__folder_find_links(&links, f->index.folder, &f->allocator);
    if (e == CKPT_OK) e = ckpt__folder_fill_items(f, &links);
    ckpt__folder_free_links(&links);
    return e;
}

static ckpt_err ckpt__folder_open(ckpt_folder **out, const ckpt_folder_desc *d) {
    ckpt__os_info info;
    ckpt_err e = ckpt__os_stat(d->folder, &info);
    if (e == CKPT_OK && !info.is_dir) e = ckpt__error_set(CKPT_NOT_FOUND, "%s is a file, not a folder", d->folder);
    if (e != CKPT_OK) return e;
    ckpt_folder *f = (ckpt_folder *)ckpt__mem_alloc(&d->allocator, sizeof *f);
    if (f == NULL) return CKPT_NOMEM;
    f->allocator = d->allocator;
    f->logger = d->logger;
    f->progress = d->progress;
    e = ckpt__index_init(&f->index, &f->allocator, d->folder);
    if (e == CKPT_OK) e = ckpt__folder_look(f);
    if (e == CKPT_OK) *out = f;
    else ckpt__folder_free(f);
    return e;
}

static void ckpt__folder_describe(const ckpt_folder *f, size_t i, ckpt_checkpoint *out) {
    const ckpt__index_line *l = &f->index.lines[i];
    const ckpt__folder_item *it = &f->items[i];
    memset(out, 0, sizeof *out);
    out->name = l->name;
    out->path = it->path;
    out->latest = it->latest;
    out->timestamp = l->t;
    out->saved_at = l->saved_at;
    out->number = l->number;
    out->size = it->missing ? 0 : it->info.size;
    out->recorded_size = l->leaves ? l->bytes : 0;
    out->checksum = l->checksum;
    out->has_checksum = l->has_checksum;
    out->metric = l->metric;
    out->has_metric = l->has_metric;
    out->pinned = l->pinned;
    out->damaged = l->state == CKPT__INDEX_DAMAGED;
    out->abandoned = l->state == CKPT__INDEX_ABANDONED;
    out->missing = it->missing;
    out->foreign = !l->owned;
}

static int ckpt__folder_find(const ckpt_folder *f, const char *name) {
    int at = ckpt__index_find(&f->index, name);
    ckpt__os_info info;
    if (at >= 0) return at;
    for (int pass = 0; pass < 2; pass++) {          // a path first, then a link below the folder
        ckpt__buf path;
        ckpt__buf_init(&path, &f->allocator);
        if (pass == 0) ckpt__buf_text(&path, name);
        else ckpt__os_path_join(&path, f->index.folder, name);
        bool there = path.err == CKPT_OK && ckpt__os_stat(ckpt__buf_cstr(&path), &info) == CKPT_OK;
        ckpt__buf_free(&path);
        for (size_t i = 0; there && i < f->item_count; i++) {
            if (!f->items[i].missing && f->items[i].info.ino == info.ino && f->items[i].info.dev == info.dev) return (int)i;
        }
        for (size_t i = 0; there && i < f->item_count; i++) {
            if (f->items[i].latest != NULL && strcmp(f->items[i].latest, name) == 0) return (int)i;
        }
    }
    return -1;
}

//-- changes ---------------------------------------------------------------------

// An index read afresh, under its lock. ckpt__folder_leave must follow, also after a failure.
static ckpt_err ckpt__folder_enter(const ckpt_folder *f, ckpt__index *ix) {
    ckpt_err e = ckpt__index_init(ix, &f->allocator, f->index.folder);
    if (e == CKPT_OK) e = ckpt__index_lock(ix);
    if (e == CKPT_OK) e = ckpt__index_load(ix);
    if (e == CKPT_OK && (ix->lost || ix->damaged)) e = ckpt__index_scan(ix, NULL, NULL, NULL);
    return e;
}

static void ckpt__folder_leave(ckpt__index *ix) {
    ckpt__error_record kept;
    ckpt__error_take(&kept);
    ckpt__index_unlock(ix);
    ckpt__index_free(ix);
    ckpt__error_last = kept;
}

// Finds the line of that name, looking through the files when the index does not have it. CKPT_OK and *at -1: not ours.
static ckpt_err ckpt__folder_locate(ckpt__index *ix, const char *name, int *at) {
    *at = ckpt__index_find(ix, name);
    if (*at >= 0) return CKPT_OK;
    ckpt_err e = ckpt__index_scan(ix, NULL, NULL, NULL);
    if (e == CKPT_OK) *at = ckpt__index_find(ix, name);
    return e;
}

static ckpt_err ckpt__folder_pin(ckpt_folder *f, size_t i, bool pinned) {
    ckpt__index ix;
    int at = -1;
    ckpt_err e = ckpt__folder_enter(f, &ix);
    if (e == CKPT_OK) e = ckpt__folder_locate(&ix, f->index.lines[i].name, &at);
    if (e == CKPT_OK && at < 0)
        e = ckpt__error_set(CKPT_UNSUPPORTED, "%s was not written by this library: no rotation removes it", f->items[i].path);
    if (e == CKPT_OK) {
        ix.lines[at].pinned = pinned;
        e = ckpt__index_write(&ix);
    }
    ckpt__folder_leave(&ix);
    if (e == CKPT_OK) f->index.lines[i].pinned = pinned;
    return e;
}

// Reads all of one file. The hook gets its finished report.
static ckpt_err ckpt__folder_check_file(const char *path, const ckpt_allocator *a, const ckpt_on_progress *progress) {
    ckpt_file *file = NULL;
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    job.phase = "verify";
    job.name = path;
    job.progress = progress != NULL && progress->fn != NULL ? progress : NULL;
    ckpt_err e = ckpt__file_open(&file, path, a);
    if (e != CKPT_OK) return e;
    e = ckpt__file_verify(file, &job);
    if (job.progress != NULL) {
        ckpt_progress p;
        memset(&p, 0, sizeof p);
        p.phase = "verify";
        p.name = path;
        p.done = p.total = file->src.size;
        p.attempt = 1;
        p.finished = true;
        p.err = e;
        progress->fn(&p, progress->user);
    }
    ckpt__file_close(file);
    return e;
}

// Notes an outcome in the index, as far as the folder may be written to.
static void ckpt__folder_note(const ckpt_folder *f, const char *name, bool damaged) {
    ckpt__index ix;
    ckpt_err e = ckpt__folder_enter(f, &ix);
    int at = e == CKPT_OK ? ckpt__index_find(&ix, name) : -1;
    if (at >= 0 && (ix.lines[at].state == CKPT__INDEX_DAMAGED) != damaged) {
        ix.lines[at].state = damaged ? CKPT__INDEX_DAMAGED : CKPT__INDEX_SAVED;
        ckpt__index_settle(&ix);
        (void)ckpt__index_write(&ix);
    }
    ckpt__folder_leave(&ix);
}

static ckpt_err ckpt__folder_verify(ckpt_folder *f, size_t i) {
    ckpt__error_record why;
    const ckpt__folder_item *it = &f->items[i];
    ckpt__index_line *l = &f->index.lines[i];
    ckpt_err e = ckpt__folder_check_file(it->path, &f->allocator, &f->progress);
    if (e == CKPT_OK && l->leaves && l->bytes != 0 && l->bytes != it->info.size)
        e = ckpt__error_set(CKPT_CORRUPT, "%s has %llu bytes, but the index says %llu: it is not what was saved", it->path,
                            (unsigned long long)it->info.size, (unsigned long long)l->bytes);
    ckpt__error_take(&why);
    bool damaged = e == CKPT_CORRUPT;
    if (l->leaves && (e == CKPT_OK || damaged) && damaged != (l->state == CKPT__INDEX_DAMAGED)) {
        ckpt__folder_note(f, l->name, damaged);
        l->state = damaged ? CKPT__INDEX_DAMAGED : CKPT__INDEX_SAVED;
    }
    if (e != CKPT_OK) (void)ckpt__error_put(&why);
    return e;
}

//-- removing --------------------------------------------------------------------

typedef struct ckpt__folder_change {
    ckpt_folder       *f;
    ckpt__index       *ix;          // lines that leave are marked
    ckpt__folder_links links;
    ckpt__buf          successor;   // path of the newest checkpoint that stays and verifies; empty: there is none
    bool               repair;      // links that lead nowhere move too
    const ckpt_gc_desc *gc;         // for its hook; may be NULL
} ckpt__folder_change;

// The saver's lock: nobody writes here while files are deleted.
static ckpt_err ckpt__folder_lock(const ckpt_folder *f, int *fd, ckpt__buf *path) {
    *fd = -1;
    ckpt__buf_init(path, &f->allocator);
    ckpt__buf_fmt(path, "%s" CKPT__FOLDER_LOCK, f->index.folder);
    ckpt_err e = path->err != CKPT_OK ? path->err : ckpt__os_lock(fd, ckpt__buf_cstr(path));
    if (e == CKPT_EXISTS) e = ckpt__error_prefix(e, "a saver has %s open", f->index.folder);
    return e == CKPT_UNSUPPORTED ? CKPT_OK : e;
}

static void ckpt__folder_unlock(int fd, ckpt__buf *path) {
    ckpt__os_unlock(fd, ckpt__buf_cstr(path));
    ckpt__buf_free(path);
}

// Marks the links that lead to a file that leaves, and those to be repaired: to nowhere, or to what is known to be damaged.
static ckpt_err ckpt__folder_mark_links(ckpt__folder_change *c, bool *any) {
    ckpt__buf path;
    ckpt__buf_init(&path, &c->f->allocator);
    *any = false;
    for (size_t i = 0; i < c->ix->count; i++) {
        ckpt__os_info info;
        ckpt__index_path(&path, c->ix, c->ix->lines[i].name);
        bool bad = c->ix->lines[i].leaves || (c->repair && c->ix->lines[i].state == CKPT__INDEX_DAMAGED);
        if (!bad || path.err != CKPT_OK || ckpt__os_stat(ckpt__buf_cstr(&path), &info) != CKPT_OK) continue;
        for (size_t k = 0; k < c->links.count; k++) {
            ckpt__folder_link *l = &c->links.list[k];
            if (l->there && l->target.ino == info.ino && l->target.dev == info.dev) l->moves = *any = true;
        }
    }
    for (size_t k = 0; k < c->links.count && c->repair; k++) {
        if (!c->links.list[k].there && c->links.list[k].inside) c->links.list[k].moves = *any = true;
    }
    ckpt_err e = path.err;
    ckpt__buf_free(&path);
    return e;
}

// Finds the newest checkpoint that stays and verifies, one of an abandoned future last. Those that do not are noted as damaged.
static ckpt_err ckpt__folder_find_successor(ckpt__folder_change *c) {
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = c->ix->count; i > 0; i--) {
            ckpt__index_line *l = &c->ix->lines[i - 1];
            if (l->leaves || l->state == CKPT__INDEX_DAMAGED || (l->state == CKPT__INDEX_ABANDONED) != (pass == 1)) continue;
            ckpt__index_path(&c->successor, c->ix, l->name);
            if (c->successor.err != CKPT_OK) return c->successor.err;
            ckpt_err e = ckpt__folder_check_file(ckpt__buf_cstr(&c->successor), &c->f->allocator, &c->f->progress);
            if (e == CKPT_OK) return CKPT_OK;
            if (e != CKPT_CORRUPT && e != CKPT_NOT_FOUND) return e;
            ckpt__error_log(&c->f->logger, CKPT_LOG_WARN, "%s", ckpt__error_last.text);
            if (e == CKPT_CORRUPT) l->state = CKPT__INDEX_DAMAGED;
        }
    }
    c->successor.len = 0;
    return CKPT_OK;
}

static ckpt_err ckpt__folder_move_links(ckpt__folder_change *c) {
    ckpt_saver hands;                   // moving a link takes nothing of a saver but its allocator
    memset(&hands, 0, sizeof hands);
    hands.allocator = c->f->allocator;
    ckpt_err e = CKPT_OK;
    for (size_t i = 0; i < c->links.count && e == CKPT_OK; i++) {
        if (!c->links.list[i].moves) continue;
        if (c->successor.len > 0) e = ckpt__saver_link(&hands, c->links.list[i].path, ckpt__buf_cstr(&c->successor));
        else if (!c->repair) e = ckpt__os_remove(c->links.list[i].path);
    }
    return e;
}

static void ckpt__folder_tell(const ckpt__folder_change *c, const char *name, uint64_t size) {
    if (c->gc != NULL && c->gc->removed != NULL) c->gc->removed(name, size, c->gc->user);
}

// Deletes one file whose line has left the index, and its sub-folder when that is empty then.
static ckpt_err ckpt__folder_delete(const ckpt__folder_change *c, const ckpt__index_line *l) {
    ckpt__buf path, dir;
    ckpt__os_info info;
    int held = -1;
    ckpt__buf_init(&path, &c->f->allocator);
    ckpt__buf_init(&dir, &c->f->allocator);
    ckpt__index_path(&path, c->ix, l->name);
    ckpt__os_path_dir(&dir, ckpt__buf_cstr(&path));
    ckpt_err e = path.err != CKPT_OK ? path.err : dir.err;
    if (e == CKPT_OK) e = ckpt__os_lstat(ckpt__buf_cstr(&path), &info);
    if (e == CKPT_OK) e = ckpt__os_remove_slow(ckpt__buf_cstr(&path), &held);
    ckpt__os_drop(held);
    if (e == CKPT_OK) {
        ckpt__folder_tell(c, l->name, info.size);
        e = ckpt__os_sync_dir(ckpt__buf_cstr(&dir));
        if (strchr(l->name, '/') != NULL) (void)ckpt__os_remove_dir(ckpt__buf_cstr(&dir));
    }
    ckpt__buf_free(&path);
    ckpt__buf_free(&dir);
    return e == CKPT_NOT_FOUND ? CKPT_OK : e;
}

// Carries out what the marks say: links first, then the index, the files last.
static ckpt_err ckpt__folder_retire(ckpt__folder_change *c, bool must_verify) {
    ckpt__index gone;
    bool moves = false;
    ckpt__buf_init(&c->successor, &c->f->allocator);
    ckpt_err e = ckpt__index_init(&gone, &c->f->allocator, c->f->index.folder);
    ckpt_err found = ckpt__folder_find_links(&c->links, c->f->index.folder, &c->f->allocator);
    if (e == CKPT_OK) e = found;
    if (e == CKPT_OK) e = ckpt__folder_mark_links(c, &moves);
    if (e == CKPT_OK && (moves || must_verify)) e = ckpt__folder_find_successor(c);
    if (e == CKPT_OK && must_verify && c->successor.len == 0)
        e = ckpt__error_set(CKPT_CORRUPT, "nothing was deleted in %s: of the checkpoints that would stay none verifies",
                            c->f->index.folder);
    if (e == CKPT_OK) e = ckpt__folder_move_links(c);
    for (size_t i = 0; i < c->ix->count && e == CKPT_OK; ) {
        if (!c->ix->lines[i].leaves) { i++; continue; }
        e = ckpt__index_insert(&gone, gone.count, &c->ix->lines[i]);
        if (e == CKPT_OK) ckpt__index_drop(c->ix, i);
    }
    if (e == CKPT_OK) ckpt__index_settle(c->ix);
    if (e == CKPT_OK && (c->ix->count > 0 || !c->ix->lost)) e = ckpt__index_write(c->ix);
    for (size_t i = 0; i < gone.count && e == CKPT_OK; i++) e = ckpt__folder_delete(c, &gone.lines[i]);
    ckpt__folder_free_links(&c->links);
    ckpt__buf_free(&c->successor);
    ckpt__index_free(&gone);
    return e;
}

// Looks again after a change; what went wrong with the change matters more.
static ckpt_err ckpt__folder_look_again(ckpt_folder *f, ckpt_err e) {
    ckpt__error_record why;
    ckpt__error_take(&why);
    ckpt_err seen = ckpt__folder_look(f);
    return e != CKPT_OK ? ckpt__error_put(&why) : seen;
}

static ckpt_err ckpt__folder_remove(ckpt_folder *f, size_t i) {
    ckpt__index ix;
    ckpt__buf lock;
    ckpt__folder_change c;
    int fd = -1, at = -1;
    if (f->index.lines[i].pinned) return ckpt__error_set(CKPT_ARG, "%s is pinned: unpin it first", f->items[i].path);
    ckpt_err e = ckpt__folder_lock(f, &fd, &lock);
    if (e != CKPT_OK) {
        ckpt__buf_free(&lock);
        return e;
    }
    e = ckpt__folder_enter(f, &ix);
    if (e == CKPT_OK) e = ckpt__folder_locate(&ix, f->index.lines[i].name, &at);
    if (e == CKPT_OK && at < 0) {
        e = ckpt__index_insert(&ix, 0, &f->index.lines[i]);
        at = 0;
    }
    if (e == CKPT_OK && ix.lines[at].pinned) e = ckpt__error_set(CKPT_ARG, "%s is pinned: unpin it first", f->items[i].path);
    if (e == CKPT_OK) {
        memset(&c, 0, sizeof c);
        c.f = f;
        c.ix = &ix;
        for (size_t k = 0; k < ix.count; k++) ix.lines[k].leaves = k == (size_t)at;
        e = ckpt__folder_retire(&c, false);
    }
    ckpt__folder_leave(&ix);
    ckpt__folder_unlock(fd, &lock);
    return ckpt__folder_look_again(f, e);
}

//-- tidying ---------------------------------------------------------------------

static ckpt_err ckpt__folder_rule(const ckpt_gc_desc *d, ckpt__index_rule *rule) {
    memset(rule, 0, sizeof *rule);
    if (d->num_checkpoints_to_keep < 0 || d->keep_every < 0)
        return ckpt__error_set(CKPT_ARG, "num_checkpoints_to_keep and keep_every cannot be negative here: one checkpoint stays");
    rule->keep = d->num_checkpoints_to_keep;
    rule->every = d->keep_every;
    if (d->keep_best == NULL) return CKPT_OK;
    rule->best = strcmp(d->keep_best, "min") == 0 ? -1 : strcmp(d->keep_best, "max") == 0 ? 1 : 0;
    return rule->best != 0 ? CKPT_OK : ckpt__error_set(CKPT_ARG, "keep_best is '%s'; \"min\" or \"max\" can be", d->keep_best);
}

// Marks what leaves. Returns how many.
static size_t ckpt__folder_choose(ckpt__index *ix, const ckpt_gc_desc *d, const ckpt__index_rule *rule) {
    for (size_t i = 0; i < ix->count; i++) ix->lines[i].owned = true;
    (void)ckpt__index_choose(ix, rule);
    size_t n = 0;
    for (size_t i = 0; i < ix->count; i++) {
        ckpt__index_line *l = &ix->lines[i];
        if (d->damaged && l->state == CKPT__INDEX_DAMAGED && !l->pinned) l->leaves = true;
        n += l->leaves;
    }
    return n;
}

// The hidden files of killed savers: noted with their size, then swept, and those that went are reported.
typedef struct ckpt__folder_litter {
    ckpt__buf names;                // each behind its size, with its NUL
    ckpt__buf dirs;
} ckpt__folder_litter;

static ckpt_err ckpt__folder_note_litter(const char *name, const ckpt__os_info *info, void *user) {
    ckpt__folder_litter *l = (ckpt__folder_litter *)user;
    const char *base = ckpt__os_path_base(name);
    int64_t pid = 0;
    uint32_t host = 0;
    if (!ckpt__file_temp_parse(base, &pid, &host)) return CKPT_OK;
    ckpt__buf_le(&l->names, info->size, 8);
    ckpt__buf_add(&l->names, name, strlen(name) + 1);
    return l->names.err;
}

static ckpt_err ckpt__folder_sweep(const ckpt__folder_change *c) {
    ckpt__folder_litter l;
    ckpt__buf path, dir;
    const char *folder = c->f->index.folder;
    ckpt__buf_init(&l.names, &c->f->allocator);
    ckpt__buf_init(&path, &c->f->allocator);
    ckpt__buf_init(&dir, &c->f->allocator);
    ckpt_err e = ckpt__index_walk(&c->f->allocator, folder, CKPT__INDEX_DEPTH, ckpt__folder_note_litter, &l);
    for (size_t at = 0; at < l.names.len && e == CKPT_OK; ) {
        uint64_t size = ckpt__mem_le(l.names.data + at, 8);
        const char *name = l.names.data + at + 8;
        path.len = dir.len = 0;
        ckpt__os_path_join(&path, folder, name);
        ckpt__os_path_dir(&dir, ckpt__buf_cstr(&path));
        e = path.err != CKPT_OK ? path.err : dir.err;
        if (e == CKPT_OK && ckpt__os_exists(ckpt__buf_cstr(&path))) ckpt__file_sweep(ckpt__buf_cstr(&dir), &c->f->allocator);
        if (e == CKPT_OK && !ckpt__os_exists(ckpt__buf_cstr(&path))) ckpt__folder_tell(c, name, size);
        at += 8 + strlen(name) + 1;
    }
    ckpt__buf_free(&l.names);
    ckpt__buf_free(&path);
    ckpt__buf_free(&dir);
    return e;
}

static ckpt_err ckpt__folder_gc_run(ckpt__folder_change *c, const ckpt__index_rule *rule) {
    ckpt_err e = ckpt__folder_enter(c->f, c->ix);
    if (e == CKPT_OK) e = ckpt__index_scan(c->ix, NULL, NULL, NULL);
    if (e != CKPT_OK) return e;
    size_t n = ckpt__folder_choose(c->ix, c->gc, rule);
    if (!c->gc->dry_run) {
        e = ckpt__folder_sweep(c);
        return e == CKPT_OK ? ckpt__folder_retire(c, n > 0) : e;
    }
    ckpt__buf path;
    ckpt__buf_init(&path, &c->f->allocator);
    for (size_t i = 0; i < c->ix->count; i++) {
        ckpt__os_info info;
        ckpt__index_path(&path, c->ix, c->ix->lines[i].name);
        if (c->ix->lines[i].leaves && path.err == CKPT_OK && ckpt__os_lstat(ckpt__buf_cstr(&path), &info) == CKPT_OK)
            ckpt__folder_tell(c, c->ix->lines[i].name, info.size);
    }
    e = path.err;
    ckpt__buf_free(&path);
    return e;
}

static ckpt_err ckpt__folder_gc(ckpt_folder *f, const ckpt_gc_desc *d) {
    ckpt__index ix;
    ckpt__index_rule rule;
    ckpt__buf lock;
    ckpt__folder_change c;
    int fd = -1;
    ckpt_err e = ckpt__folder_rule(d, &rule);
    if (e != CKPT_OK) return e;
    e = ckpt__folder_lock(f, &fd, &lock);
    if (e != CKPT_OK) {
        ckpt__buf_free(&lock);
        return e;
    }
    memset(&c, 0, sizeof c);
    c.f = f;
    c.ix = &ix;
    c.repair = true;
    c.gc = d;
    e = ckpt__folder_gc_run(&c, &rule);
    ckpt__folder_leave(&ix);
    ckpt__folder_unlock(fd, &lock);
    return ckpt__folder_look_again(f, e);
}

//-- converting ------------------------------------------------------------------

// The tensors of a file look to the engine like device memory: it fetches them in pieces through state.copy, here from the file.
// Addresses are offsets into the row of all tensors, behind CKPT__FOLDER_BASE so that none is NULL.
enum { CKPT__FOLDER_BASE = 65536 };

typedef struct ckpt__folder_piece { uint64_t start; size_t entry; } ckpt__folder_piece;

typedef struct ckpt__folder_convert {
    const ckpt_convert_desc *d;
    ckpt_file          *file;
    ckpt_state          state;
    ckpt__items         items;
    ckpt__buf           names;          // offsets into it until all are there
    ckpt__folder_piece *pieces;         // in order of start
    size_t              piece_count, piece_cap;
    uint64_t            total;
    void              **blocks;         // bytes that are read in one go, each behind its size
    size_t              block_count, block_cap;
    bool                flags[2];
    bool                raw;
} ckpt__folder_convert;

static ckpt_err ckpt__folder_fetch(void *dst, const void *src, size_t size, bool to_device, void *user) {
    ckpt__folder_convert *c = (ckpt__folder_convert *)user;
    uint64_t at = (uint64_t)((uintptr_t)src - CKPT__FOLDER_BASE);
    (void)to_device;
    if (c->raw) return ckpt__file_pread(c->file, dst, size, c->file->src.base + at);
    size_t low = 0, high = c->piece_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (c->pieces[middle].start <= at) low = middle;
        else high = middle;
    }
    return ckpt__file_read(c->file, &c->file->toc.entries[c->pieces[low].entry], at - c->pieces[low].start, dst, size);
}

// Adds an entry's name as a binding has it: list levels in brackets, and the canonical name behind its NUL.
static void ckpt__folder_spell(ckpt__buf *out, const ckpt__entry *e) {
    const char *p = e->name;
    for (int level = 0; ; level++) {
        size_t n = strcspn(p, "/");
        bool item = level < 64 && (e->lists >> level & 1) != 0;
        if (item) ckpt__buf_byte(out, '[');
        ckpt__buf_add(out, p, n);
        if (item) ckpt__buf_byte(out, ']');
        p += n;
        if (*p == 0) break;
        ckpt__buf_byte(out, '/');
        p++;
    }
    ckpt__buf_byte(out, 0);
    ckpt__buf_add(out, e->name, strlen(e->name) + 1);
}

static ckpt_err ckpt__folder_take_bytes(ckpt__folder_convert *c, const ckpt__entry *e, void **out) {
    const ckpt_allocator *a = &c->d->allocator;
    if (e->blob < 0) {
        *out = (void *)(uintptr_t)e->text;
        return CKPT_OK;
    }
    if (e->size > SIZE_MAX / 2) return ckpt__mem_fail(SIZE_MAX);
    size_t size = (size_t)e->size + 16;
    ckpt_err err = ckpt__mem_grow(a, (void **)&c->blocks, sizeof *c->blocks, &c->block_cap, c->block_count + 1);
    char *block = err == CKPT_OK ? (char *)ckpt__mem_resize(a, NULL, 0, size) : NULL;
    if (block == NULL) return CKPT_NOMEM;
    memcpy(block, &size, sizeof size);
    c->blocks[c->block_count++] = block;
    *out = block + 16;
    return ckpt__file_read(c->file, e, 0, block + 16, (size_t)e->size);
}

static void ckpt__folder_left_out(const ckpt__folder_convert *c, const ckpt__entry *e) {
    ckpt__error_log(&c->d->logger, CKPT_LOG_WARN, "left out: '%s', %s", e->name,
                    e->kind == CKPT_KIND_TEXT ? "text with a NUL inside" : ckpt__state_kind_name(e->kind));
}

// Turns one entry into a binding whose name is still an offset.
static ckpt_err ckpt__folder_bind(ckpt__folder_convert *c, size_t index) {
    ckpt__entry *e = &c->file->toc.entries[index];
    void *data = NULL;
    size_t size = 8;
    ckpt_err err = CKPT_OK;
    bool torn = e->kind == CKPT_KIND_TEXT && e->size > 0 && memchr(e->text, 0, (size_t)e->size) != NULL;
    if (torn || e->kind == CKPT_KIND_NONE || e->kind == CKPT_KIND_OTHER || e->kind == CKPT_KIND_FILE) {
        ckpt__folder_left_out(c, e);
        return CKPT_OK;
    }
    if (e->kind == CKPT_KIND_INT) data = &e->i;
    if (e->kind == CKPT_KIND_FLOAT) data = &e->f;
    if (e->kind == CKPT_KIND_BOOL) { data = &c->flags[e->i != 0]; size = sizeof(bool); }
    if (e->kind == CKPT_KIND_TEXT) { data = (void *)(uintptr_t)e->text; size = (size_t)e->size + 1; }
    if (e->kind == CKPT_KIND_BYTES) { err = ckpt__folder_take_bytes(c, e, &data); size = (size_t)e->size; }
    if (e->kind == CKPT_KIND_TENSOR) {
        if (e->size > (uint64_t)(UINTPTR_MAX / 2) - c->total || e->size > (uint64_t)SIZE_MAX)
            return ckpt__error_set(CKPT_UNSUPPORTED, "it is too large for the addresses of this machine");
        err = ckpt__mem_grow(&c->d->allocator, (void **)&c->pieces, sizeof *c->pieces, &c->piece_cap, c->piece_count + 1);
        data = (void *)((uintptr_t)CKPT__FOLDER_BASE + (uintptr_t)c->total);
        size = (size_t)e->size;
    }
    if (err == CKPT_OK) err = ckpt__items_add(&c->items, (char *)(uintptr_t)c->names.len, e->kind, data, size);
    if (err != CKPT_OK) return err;
    ckpt__folder_spell(&c->names, e);
    if (e->kind == CKPT_KIND_TENSOR) {
        ckpt_tensor *t = &c->items.list[c->items.count - 1].tensor;
        t->dtype = e->dtype;
        t->ndim = e->ndim;
        memcpy(t->shape, e->shape, sizeof t->shape);
        t->data = data;
        t->device = true;
        c->pieces[c->piece_count].start = c->total;
        c->pieces[c->piece_count++].entry = index;
        c->total += e->size;
    }
    return c->names.err;
}

// Is the container the same, so that its bytes can be taken as they are?
static ckpt_err ckpt__folder_same_container(const ckpt_file *f, const ckpt__file_format *to, bool *same) {
    unsigned char head[CKPT__FILE_SNIFF];
    size_t n = 0;
    ckpt_err e = ckpt__file_head(&f->src, head, &n);
    ckpt__file_guess g = ckpt__file_sniff(head, n, f->src.size);
    ckpt__file_guess want = to->tar ? CKPT__GUESS_TAR : to->safetensors ? CKPT__GUESS_SAFETENSORS : CKPT__GUESS_PT;
    *same = e == CKPT_OK && g == want;
    return e;
}

static ckpt_err ckpt__folder_plan(ckpt__folder_convert *c, ckpt__plan *plan, const ckpt__file_format *format) {
    ckpt_err e = ckpt__folder_same_container(c->file, format, &c->raw);
    if (e == CKPT_OK && c->raw) {
        if (c->file->src.size > (uint64_t)(UINTPTR_MAX / 2))
            return ckpt__error_set(CKPT_UNSUPPORTED, "it is too large for the addresses of this machine");
        int blob = ckpt__plan_blob(plan, "the file");
        if (blob < 0) return plan->err;
        ckpt__plan_data(plan, CKPT__SEG_DEVICE, (const void *)(uintptr_t)CKPT__FOLDER_BASE, c->file->src.size, blob);
        return ckpt__plan_finish(plan);
    }
    for (size_t i = 0; i < c->file->toc.count && e == CKPT_OK; i++) e = ckpt__folder_bind(c, i);
    if (e != CKPT_OK) return e;
    for (size_t i = 0; i < c->items.count; i++) {
        ckpt__binding *b = &c->items.list[i];
        b->name = c->names.data + (uintptr_t)b->name;
        b->canonical = b->name + strlen(b->name) + 1;
    }
    return ckpt__file_plan(plan, format, c->d->to, c->items.list, c->items.count);
}

static ckpt_err ckpt__folder_write(ckpt__folder_convert *c) {
    ckpt__file_format format;
    ckpt__plan plan;
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    job.phase = "save";
    job.name = c->d->to;
    job.progress = c->d->progress.fn != NULL ? &c->d->progress : NULL;
    ckpt_err e = ckpt__file_format_of(c->d->to, &format);
    if (e != CKPT_OK) return e;
    ckpt__plan_init(&plan, &c->d->allocator, &c->state);
    e = ckpt__folder_plan(c, &plan, &format);
    uint64_t size = plan.size;
    if (e == CKPT_OK) e = ckpt__file_write(c->d->to, &format, &plan, NULL, c->d->overwrite, &job, &c->d->allocator, NULL, NULL);
    if (job.progress != NULL) {
        ckpt_progress p;
        memset(&p, 0, sizeof p);
        p.phase = "save";
        p.name = c->d->to;
        p.done = p.total = size;
        p.attempt = 1;
        p.finished = true;
        p.err = e;
        job.progress->fn(&p, job.progress->user);
    }
    ckpt__plan_free(&plan);
    return e;
}

static void ckpt__folder_convert_free(ckpt__folder_convert *c) {
    const ckpt_allocator *a = &c->d->allocator;
    for (size_t i = 0; i < c->block_count; i++) {
        size_t size;
        memcpy(&size, c->blocks[i], sizeof size);
        ckpt__mem_free(a, c->blocks[i], size);
    }
    ckpt__mem_free(a, c->blocks, c->block_cap * sizeof *c->blocks);
    ckpt__mem_free(a, c->pieces, c->piece_cap * sizeof *c->pieces);
    ckpt__items_free(&c->items);
    ckpt__buf_free(&c->names);
    ckpt__file_close(c->file);
}

static ckpt_err ckpt__folder_convert_run(const ckpt_convert_desc *d, const char *from) {
    ckpt__folder_convert c;
    memset(&c, 0, sizeof c);
    c.d = d;
    c.flags[1] = true;
    c.state.allocator = d->allocator;
    c.state.copy = ckpt__folder_fetch;
    c.state.copy_user = &c;
    ckpt__items_init(&c.items, &d->allocator);
    ckpt__buf_init(&c.names, &d->allocator);
    ckpt_err e = CKPT_OK;
    if (!d->overwrite && ckpt__os_exists(d->to))
        e = ckpt__error_set(CKPT_EXISTS, "%s exists already, and overwriting it was not asked for", d->to);
    if (e == CKPT_OK && !d->no_verify) e = ckpt__folder_check_file(from, &d->allocator, &d->progress);
    if (e == CKPT_OK) e = ckpt__file_open(&c.file, from, &d->allocator);
    if (e == CKPT_OK) e = ckpt__folder_write(&c);
    ckpt__error_record why;
    ckpt__error_take(&why);
    ckpt__folder_convert_free(&c);
    return e == CKPT_OK ? e : ckpt__error_put(&why);
}

//------------------------------------------------------------------------------
// >>public     the ckpt_ functions: they check arguments, fill in defaults, and call below
//
// uses:    error memory platform text time name state plan engine file saver loader resume folder
// threads: as the contract above says of each
//------------------------------------------------------------------------------

//-- errors, progress ------------------------------------------------------------

CKPT__DECL const char *ckpt_err_name(ckpt_err e) {
    return ckpt__error_name(e);
}

CKPT__DECL const char *ckpt_last_error(void) {
    return ckpt__error_last.text;
}

static ckpt_err ckpt__public_null(const char *function, const char *argument) {
    return ckpt__error_set(CKPT_ARG, "%s: %s is NULL", function, argument);
}

static ckpt_err ckpt__public_canary(const char *function, const char *type) {
    return ckpt__error_set(CKPT_ARG, "%s: the %s was not zero-initialised (%s desc = {0})", function, type, type);
}

// A call that succeeds leaves the thread's last sentence as it was before it, whatever it tried on its way.
static ckpt_err ckpt__public_end(const ckpt__error_record *before, ckpt_err e) {
    if (e == CKPT_OK) ckpt__error_last = *before;
    return e;
}

// "1.2 GiB  2.5 GiB/s  4 s left"
static void ckpt__public_bar_numbers(ckpt__buf *b, const ckpt_progress *p) {
    ckpt__txt_size(b, p->done);
    if (!(p->seconds > 0.0) || p->done == 0) return;
    double rate = (double)p->done / p->seconds;
    ckpt__buf_text(b, "  ");
    ckpt__txt_size(b, (uint64_t)rate);
    ckpt__buf_text(b, "/s");
    if (!p->finished && p->total > p->done) ckpt__buf_fmt(b, "  %.0f s left", (double)(p->total - p->done) / rate + 0.5);
}

// "load ep1-ba500-rank0.pt [#########           ]  45%  1.2 GiB  2.5 GiB/s  1 s left", redrawn in place.
static void ckpt__public_draw_bar(ckpt__buf *b, const ckpt_progress *p, int columns) {
    ckpt__buf tail;
    ckpt__buf_init(&tail, NULL);
    double part = p->total > 0 ? (double)p->done / (double)p->total : p->finished ? 1.0 : 0.0;
    if (part > 1.0) part = 1.0;
    ckpt__buf_fmt(&tail, " %3d%%  ", (int)(part * 100.0));
    ckpt__public_bar_numbers(&tail, p);
    if (p->finished && p->err != CKPT_OK) ckpt__buf_text(&tail, "  failed");
    const char *base = ckpt__os_path_base(p->name != NULL ? p->name : "");
    int name = (int)strlen(base), room = columns - 1 - (int)tail.len - (int)strlen(p->phase != NULL ? p->phase : "") - 4;
    int shown = name < room / 2 ? name : room / 2;
    if (shown < 0) shown = 0;
    int cells = room - shown, full = (int)(part * (double)(cells > 0 ? cells : 0));
    ckpt__buf_fmt(b, "\r%s %.*s [", p->phase != NULL ? p->phase : "", shown, base);
    for (int i = 0; i < cells; i++) ckpt__buf_byte(b, i < full ? '#' : ' ');
    ckpt__buf_fmt(b, "]%s\x1b[K%s", ckpt__buf_cstr(&tail), p->finished ? "\n" : "");
    ckpt__buf_free(&tail);
}

CKPT__DECL void ckpt_progress_bar(const ckpt_progress *p, void *user) {
    (void)user;
    if (p == NULL || !ckpt__os_is_terminal(2)) return;
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__public_draw_bar(&b, p, ckpt__os_terminal_width(2));
    if (b.err == CKPT_OK) (void)fwrite(b.data, 1, b.len, stderr);
    (void)fflush(stderr);
    ckpt__buf_free(&b);
}

//-- state -----------------------------------------------------------------------

static void ckpt__public_bind(ckpt_state *st, const char *name, ckpt_kind kind, void *data, size_t size, const char *argument) {
    ckpt__binding it;
    memset(&it, 0, sizeof it);
    it.kind = kind;
    it.data = data;
    it.size = size;
    if (data != NULL || (kind == CKPT_KIND_BYTES && size == 0)) {
        ckpt__state_bind(st, name, &it);
    } else if (st != NULL && st->_canary == 0 && st->err == CKPT_OK) {
        ckpt__state_refuse(st, name, argument);
    }
}

CKPT__DECL void ckpt_bind(ckpt_state *st, const char *name, const ckpt_tensor *t) {
    ckpt__binding it;
    memset(&it, 0, sizeof it);
    it.kind = CKPT_KIND_TENSOR;
    if (t == NULL) {
        ckpt__public_bind(st, name, CKPT_KIND_TENSOR, NULL, 0, "t");
        return;
    }
    it.tensor = *t;
    ckpt__state_bind(st, name, &it);
}

CKPT__DECL void ckpt_bind_f32(ckpt_state *st, const char *name, float *data, int64_t count) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = CKPT_F32;
    t.ndim = 1;
    t.shape[0] = count;
    t.data = data;
    ckpt_bind(st, name, &t);
}

CKPT__DECL void ckpt_bind_int(ckpt_state *st, const char *name, int64_t *value) {
    ckpt__public_bind(st, name, CKPT_KIND_INT, value, sizeof *value, "value");
}

CKPT__DECL void ckpt_bind_float(ckpt_state *st, const char *name, double *value) {
    ckpt__public_bind(st, name, CKPT_KIND_FLOAT, value, sizeof *value, "value");
}

CKPT__DECL void ckpt_bind_bool(ckpt_state *st, const char *name, bool *value) {
    ckpt__public_bind(st, name, CKPT_KIND_BOOL, value, sizeof *value, "value");
}

CKPT__DECL void ckpt_bind_text(ckpt_state *st, const char *name, char *buf, size_t cap) {
    ckpt__public_bind(st, name, CKPT_KIND_TEXT, cap > 0 ? buf : NULL, cap, buf == NULL ? "buf" : "cap");
}

CKPT__DECL void ckpt_bind_bytes(ckpt_state *st, const char *name, void *data, size_t size) {
    ckpt__public_bind(st, name, CKPT_KIND_BYTES, data, size, "data");
}

CKPT__DECL void ckpt_bind_file(ckpt_state *st, const char *name, const char *path) {
    ckpt__binding it;
    memset(&it, 0, sizeof it);
    it.kind = CKPT_KIND_FILE;
    it.path = path;
    if (path != NULL && path[0] != 0) ckpt__state_bind(st, name, &it);
    else ckpt__public_bind(st, name, CKPT_KIND_FILE, NULL, 0, "path");
}

CKPT__DECL void ckpt_state_free(ckpt_state *st) {
    if (st != NULL && st->_canary == 0) ckpt__state_free(st);
}

//-- one file --------------------------------------------------------------------

CKPT__DECL ckpt_err ckpt_save(const char *path, const ckpt_state *st, const ckpt_timestamp *t) {
    if (path == NULL) return ckpt__public_null("ckpt_save", "path");
    if (st == NULL) return ckpt__public_null("ckpt_save", "st");
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt_err e = ckpt__state_check(st);
    if (e == CKPT_OK) e = ckpt__loader_check_local(path);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot save %s", path);
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    job.phase = "save";
    job.name = path;
    return ckpt__public_end(&before, ckpt__file_save(path, st, t, &job));
}

CKPT__DECL ckpt_err ckpt_load(const ckpt_load_desc *desc, ckpt_timestamp *at) {
    if (desc == NULL) return ckpt__public_null("ckpt_load", "desc");
    if (desc->_canary != 0) return ckpt__public_canary("ckpt_load", "ckpt_load_desc");
    if (desc->load_path == NULL) return ckpt__public_null("ckpt_load", "desc->load_path");
    if (desc->state == NULL) return ckpt__public_null("ckpt_load", "desc->state");
    if (desc->load_ignore_keys_count < 0)
        return ckpt__error_set(CKPT_ARG, "ckpt_load: desc->load_ignore_keys_count is %d", desc->load_ignore_keys_count);
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt_err e = ckpt__state_check(desc->state);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot load %s", desc->load_path);
    return ckpt__public_end(&before, ckpt__loader_load(desc, at));
}

CKPT__DECL ckpt_err ckpt_file_open(ckpt_file **out, const char *path) {
    if (out == NULL) return ckpt__public_null("ckpt_file_open", "out");
    *out = NULL;
    if (path == NULL) return ckpt__public_null("ckpt_file_open", "path");
    ckpt_allocator a = { NULL, NULL };
    ckpt__buf real;
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt__buf_init(&real, &a);
    ckpt_err e = ckpt__loader_resolve(&real, path);
    if (e == CKPT_OK) e = ckpt__file_open(out, real.data, &a);
    ckpt__buf_free(&real);
    return ckpt__public_end(&before, e);
}

CKPT__DECL int ckpt_file_count(const ckpt_file *f) {
    return f != NULL ? (int)f->toc.count : 0;
}

static ckpt_err ckpt__public_entry(const ckpt_file *f, int index, const char *function, const ckpt__entry **out) {
    if (f == NULL) return ckpt__public_null(function, "f");
    if (index >= 0 && (size_t)index < f->toc.count) {
        *out = &f->toc.entries[index];
        return CKPT_OK;
    }
    return ckpt__error_set(CKPT_ARG, "%s: index is %d, but %s has %zu entries", function, index, f->path, f->toc.count);
}

CKPT__DECL ckpt_err ckpt_file_entry(const ckpt_file *f, int index, ckpt_entry *out) {
    const ckpt__entry *e = NULL;
    if (out == NULL) return ckpt__public_null("ckpt_file_entry", "out");
    ckpt_err err = ckpt__public_entry(f, index, "ckpt_file_entry", &e);
    if (err != CKPT_OK) return err;
    memset(out, 0, sizeof *out);
    out->name = e->name;
    out->kind = e->kind;
    out->size = ckpt__file_entry_size(e);
    if (e->kind == CKPT_KIND_TENSOR) {
        out->tensor.dtype = e->dtype;
        out->tensor.ndim = e->ndim;
        memcpy(out->tensor.shape, e->shape, sizeof out->tensor.shape);
    }
    if (e->blob >= 0) {
        out->checksum = f->toc.blobs[e->blob].crc;
        out->has_checksum = f->toc.blobs[e->blob].has_crc;
    }
    return CKPT_OK;
}

CKPT__DECL ckpt_err ckpt_file_read(ckpt_file *f, int index, uint64_t offset, void *dst, size_t size) {
    const ckpt__entry *e = NULL;
    ckpt_err err = ckpt__public_entry(f, index, "ckpt_file_read", &e);
    if (err != CKPT_OK) return err;
    if (dst == NULL && size > 0) return ckpt__public_null("ckpt_file_read", "dst");
    if (e->kind == CKPT_KIND_NONE || e->kind == CKPT_KIND_OTHER)
        return ckpt__error_set(CKPT_UNSUPPORTED, "%s: '%s' is %s: it has no bytes", f->path, e->name,
                               ckpt__state_kind_name(e->kind));
    uint64_t all = ckpt__file_entry_size(e);
    if (offset > all || size > all - offset)
        return ckpt__error_set(CKPT_ARG, "ckpt_file_read: %zu bytes from %llu on were asked for, but '%s' has %llu", size,
                               (unsigned long long)offset, e->name, (unsigned long long)all);
    return ckpt__file_read(f, e, offset, dst, size);
}

CKPT__DECL ckpt_err ckpt_file_verify(ckpt_file *f) {
    if (f == NULL) return ckpt__public_null("ckpt_file_verify", "f");
    ckpt__engine_job job;
    memset(&job, 0, sizeof job);
    job.phase = "verify";
    job.name = f->path;
    ckpt__error_record before;
    ckpt__error_take(&before);
    return ckpt__public_end(&before, ckpt__file_verify(f, &job));
}

CKPT__DECL void ckpt_file_close(ckpt_file *f) {
    ckpt__file_close(f);
}

//-- files and folders -----------------------------------------------------------

CKPT__DECL ckpt_err ckpt_get_file(const char *path_or_uri, const char *destination, bool overwrite) {
    if (path_or_uri == NULL) return ckpt__public_null("ckpt_get_file", "path_or_uri");
    if (destination == NULL) return ckpt__public_null("ckpt_get_file", "destination");
    if (destination[0] == 0) return ckpt__error_set(CKPT_ARG, "ckpt_get_file: destination is empty");
    ckpt__error_record before;
    ckpt__error_take(&before);
    return ckpt__public_end(&before, ckpt__loader_get_file(path_or_uri, destination, overwrite));
}

CKPT__DECL ckpt_err ckpt_create_symlink_file(const char *target, const char *path) {
    if (target == NULL) return ckpt__public_null("ckpt_create_symlink_file", "target");
    if (path == NULL) return ckpt__public_null("ckpt_create_symlink_file", "path");
    ckpt__error_record before;
    ckpt__error_take(&before);
    return ckpt__public_end(&before, ckpt__loader_create_symlink(target, path));
}

CKPT__DECL ckpt_err ckpt_ensure_folder_is_empty(const char *folder) {
    if (folder == NULL) return ckpt__public_null("ckpt_ensure_folder_is_empty", "folder");
    ckpt__error_record before;
    ckpt__error_take(&before);
    return ckpt__public_end(&before, ckpt__loader_check_empty(folder));
}
//-- saver -----------------------------------------------------------------------

CKPT__DECL ckpt_err ckpt_saver_open(ckpt_saver **out, const ckpt_saver_desc *desc) {
    if (out == NULL) return ckpt__public_null("ckpt_saver_open", "out");
    *out = NULL;
    if (desc == NULL) return ckpt__public_null("ckpt_saver_open", "desc");
    ckpt_err e = ckpt__saver_check_numbers(desc);
    if (e != CKPT_OK) return ckpt__error_prefix(e, "cannot open the saver");
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt_saver *s = ckpt__saver_new(desc);
    if (s == NULL) return CKPT_NOMEM;
    e = ckpt__saver_open(s, desc);
    if (e == CKPT_OK) {
        ckpt__error_last = before;
        *out = s;
        return CKPT_OK;
    }
    ckpt__error_record why;
    (void)ckpt__error_prefix(e, "cannot open the saver");
    ckpt__error_take(&why);
    ckpt__saver_free(s);
    return ckpt__error_put(&why);
}

CKPT__DECL ckpt_err ckpt_saver_resume(ckpt_saver *s, ckpt_timestamp *at) {
    if (s == NULL) return ckpt__public_null("ckpt_saver_resume", "s");
    ckpt__error_record before;
    ckpt__error_take(&before);
    (void)ckpt__saver_await(s, true, 0);
    ckpt_err e = ckpt__resume_run(s, at);
    if (e == CKPT_OK) ckpt__error_last = before;
    return e == CKPT_OK ? e : ckpt__error_prefix(e, "cannot resume");
}

static ckpt_err ckpt__public_event(ckpt_saver *s, const ckpt_timestamp *t, ckpt_event event) {
    if (s == NULL) return ckpt__error_set(CKPT_ARG, "ckpt_saver_*_end: the saver is NULL");
    if (t == NULL) return ckpt__error_set(CKPT_ARG, "ckpt_saver_*_end: the timestamp is NULL");
    return ckpt__saver_event(s, t, event);
}

CKPT__DECL ckpt_err ckpt_saver_batch_end(ckpt_saver *s, const ckpt_timestamp *t) {
    return ckpt__public_event(s, t, CKPT_BATCH_CHECKPOINT);
}

CKPT__DECL ckpt_err ckpt_saver_epoch_end(ckpt_saver *s, const ckpt_timestamp *t) {
    return ckpt__public_event(s, t, CKPT_EPOCH_CHECKPOINT);
}

CKPT__DECL ckpt_err ckpt_saver_iteration_end(ckpt_saver *s, const ckpt_timestamp *t) {
    return ckpt__public_event(s, t, CKPT_ITERATION_CHECKPOINT);
}

CKPT__DECL ckpt_err ckpt_saver_save(ckpt_saver *s, const ckpt_timestamp *t) {
    if (s == NULL) return ckpt__public_null("ckpt_saver_save", "s");
    if (t == NULL) return ckpt__public_null("ckpt_saver_save", "t");
    ckpt__saver_report(s);
    ckpt_err e = ckpt__saver_save(s, t, true);
    return e != CKPT_OK ? e : ckpt__saver_take_failure(s);
}

CKPT__DECL ckpt_err ckpt_saver_fence(ckpt_saver *s) {
    if (s == NULL) return ckpt__public_null("ckpt_saver_fence", "s");
    return ckpt__saver_fence(s);
}

CKPT__DECL void ckpt_saver_request(ckpt_saver *s) {
    if (s != NULL) ckpt__os_flag_set(&s->shared->requested, 1);
}

CKPT__DECL int ckpt_saver_checkpoints(const ckpt_saver *s, const char *const **paths) {
    if (paths != NULL) *paths = NULL;
    if (s == NULL) return 0;
    int count = ckpt__saver_list(s);
    if (paths != NULL && count > 0) *paths = (const char *const *)s->shared->paths;
    return count > 0 ? count : 0;
}

CKPT__DECL ckpt_err ckpt_saver_wait(ckpt_saver *s, double timeout_s) {
    if (s == NULL) return ckpt__public_null("ckpt_saver_wait", "s");
    ckpt_err e = ckpt__saver_wait(s, timeout_s);
    return e != CKPT_OK ? e : ckpt__saver_take_failure(s);
}

CKPT__DECL ckpt_err ckpt_saver_close(ckpt_saver *s, double timeout_s) {
    if (s == NULL) return CKPT_OK;
    ckpt_err e = ckpt__saver_wait(s, timeout_s);
    if (e != CKPT_OK) return e;
    ckpt__error_record first = s->shared->first;
    ckpt__saver_free(s);
    return ckpt__error_put(&first);
}

CKPT__DECL ckpt_err ckpt_ensure_folder_has_no_conflicting_files(const char *folder, const char *filename,
                                                                 const ckpt_name_desc *desc) {
    static const char *const who = "ckpt_ensure_folder_has_no_conflicting_files";
    if (folder == NULL) return ckpt__public_null(who, "folder");
    if (filename == NULL) return ckpt__public_null(who, "filename");
    if (desc == NULL || desc->timestamp == NULL) return ckpt__public_null(who, desc == NULL ? "desc" : "desc->timestamp");
    ckpt_allocator a = { NULL, NULL };
    ckpt_err e = ckpt__time_check(desc->timestamp);
    return e != CKPT_OK ? e : ckpt__saver_check_conflicts(folder, filename, desc, &a);
}


//-- time ------------------------------------------------------------------------

CKPT__DECL void ckpt_next_batch(ckpt_timestamp *t, int64_t samples, int64_t tokens, double seconds) {
    if (t != NULL) ckpt__time_next_batch(t, samples, tokens, seconds);
}

CKPT__DECL void ckpt_next_epoch(ckpt_timestamp *t, double seconds) {
    if (t != NULL) ckpt__time_next_epoch(t, seconds);
}

CKPT__DECL void ckpt_next_iteration(ckpt_timestamp *t, double seconds) {
    if (t != NULL) ckpt__time_next_iteration(t, seconds);
}

CKPT__DECL ckpt_err ckpt_time_parse(ckpt_time *out, const char *text) {
    if (out == NULL || text == NULL)
        return ckpt__error_set(CKPT_ARG, "ckpt_time_parse needs a place for the time and a text");
    ckpt_time t;
    ckpt_err e = ckpt__time_read(&t, text);
    if (e == CKPT_OK) *out = t;
    return e;
}

// Hands a finished text over to the caller's memory. What does not fit is refused and not cut: half a name is another name.
static ckpt_err ckpt__public_hand_over(char *buf, size_t cap, ckpt__buf *text, ckpt_err e, const char *function) {
    if (e == CKPT_OK) e = text->err;
    if (e == CKPT_OK && text->len >= cap)
        e = ckpt__error_set(CKPT_ARG, "%s: %llu bytes are needed, the buffer has %llu", function,
                            (unsigned long long)text->len + 1, (unsigned long long)cap);
    if (e == CKPT_OK) memcpy(buf, ckpt__buf_cstr(text), text->len + 1);
    ckpt__buf_free(text);
    return e;
}

CKPT__DECL ckpt_err ckpt_time_format(char *buf, size_t cap, ckpt_time t) {
    if (buf == NULL || cap == 0) return ckpt__error_set(CKPT_ARG, "ckpt_time_format needs a buffer");
    buf[0] = 0;
    if ((unsigned)t.unit > (unsigned)CKPT_SECOND)
        return ckpt__error_set(CKPT_ARG, "ckpt_time_format: %d is no unit", (int)t.unit);
    ckpt__buf text;
    ckpt__buf_init(&text, NULL);
    ckpt__time_write(&text, t);
    return ckpt__public_hand_over(buf, cap, &text, CKPT_OK, "ckpt_time_format");
}

//-- names -----------------------------------------------------------------------

CKPT__DECL ckpt_err ckpt_format_name(char *buf, size_t cap, const char *format, const ckpt_name_desc *desc) {
    if (buf == NULL || cap == 0 || format == NULL)
        return ckpt__error_set(CKPT_ARG, "ckpt_format_name needs a buffer and a format");
    if (desc != NULL && (desc->extra_count < 0 || (desc->extra_count > 0 && desc->extra == NULL)))
        return ckpt__error_set(CKPT_ARG, "ckpt_format_name: extra_count does not fit extra");
    ckpt__buf text;
    ckpt__buf_init(&text, NULL);
    ckpt_err e = ckpt__name_format(&text, format, desc);
    buf[0] = 0;
    return ckpt__public_hand_over(buf, cap, &text, e, "ckpt_format_name");
}

//-- folders of checkpoints, converting ------------------------------------------

CKPT__DECL ckpt_err ckpt_folder_open(ckpt_folder **out, const ckpt_folder_desc *desc) {
    if (out == NULL) return ckpt__public_null("ckpt_folder_open", "out");
    *out = NULL;
    if (desc == NULL) return ckpt__public_null("ckpt_folder_open", "desc");
    if (desc->_canary != 0) return ckpt__public_canary("ckpt_folder_open", "ckpt_folder_desc");
    if (desc->folder == NULL || desc->folder[0] == 0) return ckpt__public_null("ckpt_folder_open", "desc->folder");
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt_err e = ckpt__folder_open(out, desc);
    if (e == CKPT_OK) ckpt__error_last = before;
    return e;
}

CKPT__DECL int ckpt_folder_count(const ckpt_folder *f) {
    return f != NULL ? (int)f->item_count : 0;
}

static ckpt_err ckpt__public_checkpoint(const ckpt_folder *f, int index, const char *function) {
    if (f == NULL) return ckpt__public_null(function, "f");
    if (index >= 0 && (size_t)index < f->item_count) return CKPT_OK;
    return ckpt__error_set(CKPT_ARG, "%s: index is %d, but %s holds %zu checkpoints", function, index, f->index.folder,
                           f->item_count);
}

CKPT__DECL ckpt_err ckpt_folder_entry(const ckpt_folder *f, int index, ckpt_checkpoint *out) {
    if (out == NULL) return ckpt__public_null("ckpt_folder_entry", "out");
    ckpt_err e = ckpt__public_checkpoint(f, index, "ckpt_folder_entry");
    if (e == CKPT_OK) ckpt__folder_describe(f, (size_t)index, out);
    return e;
}

CKPT__DECL int ckpt_folder_find(const ckpt_folder *f, const char *name) {
    if (f == NULL || name == NULL) return -1;
    ckpt__error_record before;
    ckpt__error_take(&before);
    int at = ckpt__folder_find(f, name);
    ckpt__error_last = before;
    return at;
}

typedef enum ckpt__public_deed { CKPT__DEED_VERIFY, CKPT__DEED_PIN, CKPT__DEED_UNPIN, CKPT__DEED_REMOVE } ckpt__public_deed;

static ckpt_err ckpt__public_do(ckpt_folder *f, int index, const char *function, ckpt__public_deed deed) {
    ckpt_err e = ckpt__public_checkpoint(f, index, function);
    if (e != CKPT_OK) return e;
    ckpt__error_record before;
    ckpt__error_take(&before);
    if (deed == CKPT__DEED_VERIFY) e = ckpt__folder_verify(f, (size_t)index);
    else if (deed == CKPT__DEED_REMOVE) e = ckpt__folder_remove(f, (size_t)index);
    else e = ckpt__folder_pin(f, (size_t)index, deed == CKPT__DEED_PIN);
    if (e == CKPT_OK) ckpt__error_last = before;
    return e;
}

CKPT__DECL ckpt_err ckpt_folder_verify(ckpt_folder *f, int index) {
    return ckpt__public_do(f, index, "ckpt_folder_verify", CKPT__DEED_VERIFY);
}

CKPT__DECL ckpt_err ckpt_folder_pin(ckpt_folder *f, int index, bool pinned) {
    return ckpt__public_do(f, index, "ckpt_folder_pin", pinned ? CKPT__DEED_PIN : CKPT__DEED_UNPIN);
}

CKPT__DECL ckpt_err ckpt_folder_remove(ckpt_folder *f, int index) {
    return ckpt__public_do(f, index, "ckpt_folder_remove", CKPT__DEED_REMOVE);
}

CKPT__DECL ckpt_err ckpt_folder_gc(ckpt_folder *f, const ckpt_gc_desc *desc) {
    if (f == NULL) return ckpt__public_null("ckpt_folder_gc", "f");
    if (desc == NULL) return ckpt__public_null("ckpt_folder_gc", "desc");
    if (desc->_canary != 0) return ckpt__public_canary("ckpt_folder_gc", "ckpt_gc_desc");
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt_err e = ckpt__folder_gc(f, desc);
    if (e == CKPT_OK) ckpt__error_last = before;
    return e;
}

CKPT__DECL void ckpt_folder_close(ckpt_folder *f) {
    ckpt__folder_free(f);
}

CKPT__DECL ckpt_err ckpt_verify(const char *path, const ckpt_on_progress *progress) {
    if (path == NULL) return ckpt__public_null("ckpt_verify", "path");
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt_allocator a = { NULL, NULL };
    ckpt__buf real;
    ckpt__buf_init(&real, &a);
    ckpt_err e = ckpt__loader_resolve(&real, path);
    if (e == CKPT_OK) e = ckpt__folder_check_file(real.data, &a, progress);
    ckpt__buf_free(&real);
    if (e == CKPT_OK) ckpt__error_last = before;
    return e;
}

CKPT__DECL ckpt_err ckpt_convert(const ckpt_convert_desc *desc) {
    if (desc == NULL) return ckpt__public_null("ckpt_convert", "desc");
    if (desc->_canary != 0) return ckpt__public_canary("ckpt_convert", "ckpt_convert_desc");
    if (desc->from == NULL) return ckpt__public_null("ckpt_convert", "desc->from");
    if (desc->to == NULL || desc->to[0] == 0) return ckpt__public_null("ckpt_convert", "desc->to");
    ckpt__error_record before;
    ckpt__error_take(&before);
    ckpt__buf real;
    ckpt__buf_init(&real, &desc->allocator);
    ckpt_err e = ckpt__loader_check_local(desc->to);
    if (e == CKPT_OK) e = ckpt__loader_resolve(&real, desc->from);
    if (e == CKPT_OK) e = ckpt__folder_convert_run(desc, real.data);
    ckpt__buf_free(&real);
    if (e == CKPT_OK) ckpt__error_last = before;
    return ckpt__error_prefix(e, "cannot convert %s", desc->from);
}
#endif // CKPT_IMPLEMENTATION

/*
   HISTORY
       0.1.0  names, times, state, .pt .safetensors .tar, compression, saver, retention, resume, on the local disk


   This software is available under two licences; choose the one that suits you.

   ------------------------------------------------------------------------------
   ALTERNATIVE A - MIT License

   Copyright (c) 2026 the ckpt.h contributors

   Permission is hereby granted, free of charge, to any person obtaining a copy of
   this software and associated documentation files (the "Software"), to deal in
   the Software without restriction, including without limitation the rights to
   use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
   of the Software, and to permit persons to whom the Software is furnished to do
   so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all
   copies or substantial portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
   IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
   FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
   LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
   SOFTWARE.

   ------------------------------------------------------------------------------
   ALTERNATIVE B - Public Domain (www.unlicense.org)

   This is free and unencumbered software released into the public domain.

   Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
   software, either in source code form or as a compiled binary, for any purpose,
   commercial or non-commercial, and by any means.

   In jurisdictions that recognize copyright laws, the author or authors of this
   software dedicate any and all copyright interest in the software to the public
   domain. We make this dedication for the benefit of the public at large and to
   the detriment of our heirs and successors. We intend this dedication to be an
   overt act of relinquishment in perpetuity of all present and future rights to
   this software under copyright law.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
   IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
   FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
   ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
   WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
