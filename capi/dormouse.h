/* Dormouse from C: a store on disk for the KV cache of language-model prompts.
 *
 * Every function returns a dormouse_status, DORMOUSE_OK on success, unless it says otherwise. After another status dormouse_last_error says
 * more, of the same thread. All functions may be called from any thread, several at a time.
 *
 * Memory is the caller's. Nothing is kept after a call returns: not prompts, not rows, not strings. Strings are UTF-8 and end with a zero byte.
 * Handles are numbers that are checked: one that is 0, closed, or of another kind is DORMOUSE_ERR_HANDLE, never a crash. Pointers that must not be
 * null are DORMOUSE_ERR_ARGUMENT if they are; that memory is there behind the others is the caller's word.
 *
 * Structs begin with their size, sizeof of the struct as the caller was compiled with it, so that later versions can add fields: DORMOUSE_INIT sets
 * it. All else that is zero is the default. A size that is smaller than here, or by more than 4096 bytes larger, is DORMOUSE_ERR_ARGUMENT: it was not set.
 *
 * The library brings Go's runtime with it: a few threads, some 17 MB of memory, handlers for SIGSEGV, SIGPIPE and others that hand on what is not
 * theirs. It cannot be unloaded. A process that was forked has no store: every call is DORMOUSE_ERR_FORKED there, at once; fork before the
 * library is loaded, or exec. Callbacks return: no exceptions, no longjmp. Calls compute with the default rounding and without traps, whatever the caller
 * has set, which is in force again in callbacks on its thread and after the call. glibc only on Linux, not musl. docs/c.md says more.
 */
#ifndef DORMOUSE_H
#define DORMOUSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. dormouse_abi_version gives that of the library: the same, or a later one, which knows this header's structs. */
#define DORMOUSE_ABI_VERSION 1

#if defined(_WIN32) && defined(DORMOUSE_SHARED)
#define DORMOUSE_API __declspec(dllimport)
#else
#define DORMOUSE_API
#endif

typedef enum dormouse_status {
	DORMOUSE_OK = 0,
	DORMOUSE_ERR_ARGUMENT = 1,     /* a null pointer, a struct of another size, JSON or options that are refused */
	DORMOUSE_ERR_HANDLE = 2,       /* a handle that is 0, closed, or of another kind */
	DORMOUSE_ERR_FORKED = 3,       /* this process was forked from one that had loaded the library */
	DORMOUSE_ERR_SECOND_COPY = 4,  /* another copy of the library is in this process */
	DORMOUSE_ERR_CANCELLED = 5,    /* dormouse_call.cancel became 1 */
	DORMOUSE_ERR_DEADLINE = 6,     /* dormouse_call.timeout_ms is over */
	DORMOUSE_ERR_CORRUPT = 7,      /* damage on disk; dormouse_error has file and offset. Of index.db: make the call again, it waits for a new index */
	DORMOUSE_ERR_NO_SPACE = 8,     /* the budget, or the disk, is full, and nothing more can be evicted */
	DORMOUSE_ERR_POISONED = 9,     /* an fsync has failed: close the store and open it again */
	DORMOUSE_ERR_LOCKED = 10,      /* the store is open already; the message names the process */
	DORMOUSE_ERR_SUSPENDED = 11,   /* between suspend and resume */
	DORMOUSE_ERR_CLOSED = 12,      /* the store was closed, or another session was attached to the context of llama.cpp */
	DORMOUSE_ERR_READ_ONLY = 13,   /* the store was opened read-only */
	DORMOUSE_ERR_LEASED = 14,      /* close was called while a match is open */
	DORMOUSE_ERR_NOT_STORED = 15,  /* a prefix that the call needs is not in the store */
	DORMOUSE_ERR_NOT_FOUND = 16,   /* no ref, or model, of that name; no store to open read-only */
	DORMOUSE_ERR_RETIRED = 17,     /* the model was retired */
	DORMOUSE_ERR_LIMIT = 18,       /* too large, or too many */
	DORMOUSE_ERR_NOT_DESTROYED = 19, /* all is done, but some deleted bytes could not be destroyed, or live ones moved, yet: a match is open, or a file is in use */
	DORMOUSE_ERR_PROMPT = 20,      /* the prompt contradicts itself */
	DORMOUSE_ERR_ROWS = 21,        /* rows do not fit the model's tensors, or their memory cannot be read or written */
	DORMOUSE_ERR_DESCRIPTOR = 22,  /* the model's descriptor is refused */
	DORMOUSE_ERR_FOREIGN = 23,     /* the folder, or a file in it, is not the store's, or can be written to by others */
	DORMOUSE_ERR_VERSION = 24,     /* a store of another version of the format */
	DORMOUSE_ERR_BUFFER = 25,      /* a text does not fit into the caller's buffer; *needed says what it takes */
	/* Of dormouse_llama.h: */
	DORMOUSE_ERR_REFUSED = 26,   /* states of this llama.cpp context cannot be kept safely, or a function of llama.h is missing */
	DORMOUSE_ERR_IDENTITY = 27,  /* the context is not the model, or has not the adapters, that it is said to have */
	DORMOUSE_ERR_NOT_EMPTY = 28, /* the sequence has tokens, and a restore needs an empty one */
	DORMOUSE_ERR_POSITIONS = 29, /* what the sequence holds does not fit the prompt, or is not there */
	DORMOUSE_ERR_LINEAGE = 30,   /* the sequence cannot hold what it is said to hold; dormouse_error.offset is the first position that contradicts */
	DORMOUSE_ERR_STATE = 31,     /* llama.cpp did not hand out or accept a state as it should */
	DORMOUSE_ERR_TOO_LONG = 32,  /* the prompt is longer than the context */
	DORMOUSE_ERR_DECODE = 33,    /* the decode function returned another number than 0 */
	DORMOUSE_ERR_BUSY = 34,      /* another call is at work on this llama.cpp context */
	DORMOUSE_ERR_CALLBACK = 35,  /* called from within a callback of dormouse.h, where the library must not be called */
	DORMOUSE_ERR_DENIED = 36,    /* the system does not let this process read or write there: permissions, a read-only file system */
	DORMOUSE_ERR_OTHER = 99
} dormouse_status;

/* What went wrong in this thread's last call that failed. */
typedef struct dormouse_error {
	size_t size;
	int32_t status;     /* dormouse_status */
	int64_t offset;     /* in file, for DORMOUSE_ERR_CORRUPT; a position, for DORMOUSE_ERR_LINEAGE; else -1 */
	char file[512];     /* path of the file that is damaged; else empty */
	char message[1024]; /* a sentence, cut if need be */
} dormouse_error;

typedef struct dormouse_store { uint64_t id; } dormouse_store;
typedef struct dormouse_model { uint64_t id; } dormouse_model;
typedef struct dormouse_match { uint64_t id; } dormouse_match;

/* How long a call may take. A null pointer: as long as it takes. */
typedef struct dormouse_call {
	size_t size;
	int64_t timeout_ms;              /* 0 or less: no limit */
	const volatile int32_t *cancel;  /* null, or a number that another thread sets to 1 to end the call soon */
} dormouse_call;

/* Positions [start, start+len) stand for something other than their token ids: an image, a clip. hash is of its content. */
typedef struct dormouse_span {
	size_t start, len;
	uint8_t hash[16];
} dormouse_span;

/* A LoRA adapter, by the hash of its file, with its scale. */
typedef struct dormouse_adapter {
	uint8_t hash[16];
	float scale;
} dormouse_adapter;

/* What a model is conditioned on. Two prompts share what they agree on: tokens, spans, adapters, and, from scope_start on, scope. */
typedef struct dormouse_prompt {
	size_t size;
	const int32_t *tokens;
	size_t n_tokens;
	const dormouse_span *spans; /* sorted by start, not overlapping */
	size_t n_spans;
	const dormouse_adapter *adapters; /* in the order in which they apply */
	size_t n_adapters;
	const char *scope; /* whose data follows scope_start: a user, a conversation; null or empty: shared by all */
	size_t scope_start; /* counts tokens: at most n_tokens (for a beginning of a prompt, cut it, too), and 0 without a scope; else DORMOUSE_ERR_PROMPT */
} dormouse_prompt;

/* count rows in one stretch of memory. */
typedef struct dormouse_piece {
	void *mem;          /* the first element of the first row; only read by put and extend */
	size_t bytes;       /* that may be touched from mem on */
	size_t count;       /* rows */
	size_t row_stride;  /* bytes from one row to the next; 0: packed */
	size_t elem_stride; /* bytes from one element to the next; 0: packed */
	size_t heads;       /* memory of the shape (heads, rows, values): how many equal parts a row has; row_stride goes from row to row of one head. 0: one */
	size_t head_stride; /* bytes from one head to the next */
} dormouse_piece;

/* The rows of the positions first, first+1, … of one tensor, piece after piece; no pieces: this tensor is left out. */
typedef struct dormouse_rows {
	size_t first;
	const dormouse_piece *pieces;
	size_t n_pieces;
} dormouse_rows;

/* How a put stores rows. */
typedef struct dormouse_put_options {
	size_t size;
	const char *codec;       /* "raw", "q8_0", "bytesplit" or "q4r"; null: as the store was opened */
	const char *compression; /* "zstd", …; null: as the store was opened */
	int32_t no_store;        /* 1: store nothing */
	int32_t keep_states;     /* of models with states: how many stay on the way of this prompt, 1 as 2; 0: all */
} dormouse_put_options;

typedef struct dormouse_put_result {
	size_t size;
	size_t tokens; /* the prompt is now stored up to here */
	size_t blocks, records, reused;
	int64_t bytes;
} dormouse_put_result;

/* Why a match or a restore covers no more. The words are those of dormouse_reason_text. */
typedef struct dormouse_restored {
	size_t size;
	size_t tokens; /* usable ones; every row beyond is zero */
	int32_t reason;
	size_t reason_at; /* the position that it is about */
} dormouse_restored;

typedef struct dormouse_deleted {
	size_t size;
	size_t blocks, records, refs, sessions;
	int64_t bytes;
} dormouse_deleted;

typedef struct dormouse_ref_options {
	size_t size;
	int32_t pinned;   /* 1: never evicted */
	int32_t priority; /* 0 to 254: evicted after everything of a lower one */
	int64_t ttl_ms;   /* 0: for ever */
} dormouse_ref_options;

/* Which segments dormouse_compact rewrites. */
typedef struct dormouse_compact_options {
	size_t size;
	double live_share; /* those with a smaller share of live bytes; 0: one half */
	int32_t all;       /* 1: every one to which nothing is appended */
} dormouse_compact_options;

typedef struct dormouse_compacted {
	size_t size;
	size_t segments, records; /* rewritten, moved */
	int64_t bytes;            /* moved */
	int64_t before, after;    /* what all files take */
} dormouse_compacted;

#ifdef __cplusplus
extern "C++" { /* a list in braces that ends early is a warning in C++ */
template <class T> inline T dormouse_init_() {
	T t = T();
	t.size = sizeof t;
	return t;
}
}
#define DORMOUSE_INIT(type) dormouse_init_<type>()
#else
#define DORMOUSE_INIT(type) { .size = sizeof(type) }
#endif

/* Of the library: see DORMOUSE_ABI_VERSION. */
DORMOUSE_API int32_t dormouse_abi_version(void);
/* Of the library's release: "0.1.0". The text is the library's, for ever. */
DORMOUSE_API const char *dormouse_version(void);
/* Copies this thread's last error; err->size must be set. */
DORMOUSE_API dormouse_status dormouse_last_error(dormouse_error *err);
/* "nothing stored", "diverged", …: a dormouse_restored.reason in words. The text is the library's, for ever; never null. */
DORMOUSE_API const char *dormouse_reason_text(int32_t reason);

/* Is told what an operator should know, as lines of text, from threads of the library: it must not call the library (DORMOUSE_ERR_CALLBACK), and return
 * soon. level is -4 debug, 0 info, 4 warning, 8 error. */
typedef void (*dormouse_log_fn)(void *user, int32_t level, const char *line);
/* Where the log of stores goes that are opened from now on. Null: nowhere, which is the default. fn and user must stay as long as such a store is open. */
DORMOUSE_API dormouse_status dormouse_set_log(dormouse_log_fn fn, void *user);

/* Opens, or makes, the store in a folder. options is a JSON object, or null: {"budget": bytes, "min_free": bytes, "max_blocks": n, "durability": "process"
 * or "power", "codec": "q8_0", "compression": "zstd", "segment_bytes": n, "checkpoint_ms": n, "checkpoint_bytes": n, "read_only": false,
 * "allow_shared_dir": false, "eviction": "lru", "fifo", "cost-aware" or "depth-cap", "depth_cap": tokens, "high_water": 0.7, "low_water": 0.6}. A name that is
 * not known is refused. The water marks are shares of what pinned refs leave of the budget: above the high one, eviction starts in the background and goes down to the low one. */
DORMOUSE_API dormouse_status dormouse_open(const char *dir, const char *options, const dormouse_call *call, dormouse_store *out);
/* Closes a store, and the handles of its models. DORMOUSE_ERR_LEASED while a match is open, DORMOUSE_ERR_BUSY while a call is at work
 * on a llama.cpp context of it: the store stays open then. Of two calls at the same time the second waits, and is DORMOUSE_ERR_HANDLE if the first has closed it. */
DORMOUSE_API dormouse_status dormouse_close(dormouse_store s);
/* Makes everything durable and gives back locks, maps and files, until dormouse_resume: before a phone puts the process to sleep. It waits for
 * the calls at work; others get DORMOUSE_ERR_SUSPENDED meanwhile. If its time is over while it waits, the store is not suspended; after any other error it
 * is. dormouse_resume is right in both cases, and so is another dormouse_suspend. */
DORMOUSE_API dormouse_status dormouse_suspend(dormouse_store s, const dormouse_call *call);
DORMOUSE_API dormouse_status dormouse_resume(dormouse_store s, const dormouse_call *call);
/* Gives back memory when the system is short of it: level 1 moderate, 2 low, 3 critical. Nothing goes from the disk, and no later restore gets shorter by it. */
DORMOUSE_API dormouse_status dormouse_pressure(dormouse_store s, int32_t level, const dormouse_call *call);
/* What was put and deleted is durable, and what was deleted is in no file, when it returns DORMOUSE_OK. */
DORMOUSE_API dormouse_status dormouse_sync(dormouse_store s, const dormouse_call *call);
/* Compares every byte of every file. The report is JSON, in the caller's buffer of cap bytes; needed, which may be null, is set to what it takes. */
DORMOUSE_API dormouse_status dormouse_verify(dormouse_store s, const dormouse_call *call, char *report, size_t cap, size_t *needed);
/* Figures of the store as JSON, in the caller's buffer: "budget" and what of it is used, "disk_bytes", among them, and all in a few lines of "text". */
DORMOUSE_API dormouse_status dormouse_stats(dormouse_store s, char *json, size_t cap, size_t *needed);
/* The models of the store by name, the newest version of each name first, as a JSON array: [{"name": "…", "fingerprint": 32 digits, "latest": true, "blocks": n,
 * "records": n, "bytes": n, "error": why the descriptor cannot be read, or ""}, …]. */
DORMOUSE_API dormouse_status dormouse_models(dormouse_store s, const dormouse_call *call, char *json, size_t cap, size_t *needed);
/* The refs of the store by name, as a JSON array: [{"name": "…", "model": 32 digits, "tokens": n, "stored": true, "pinned": false, "priority": n, "set_ms": n,
 * "expires_ms": n, "used_ms": n}, …]. Times are milliseconds since 1970; 0: never, or not known. */
DORMOUSE_API dormouse_status dormouse_refs(dormouse_store s, const dormouse_call *call, char *json, size_t cap, size_t *needed);

/* Makes everything durable that was acknowledged, and moves it from the log to the index. */
DORMOUSE_API dormouse_status dormouse_checkpoint(dormouse_store s, const dormouse_call *call);
/* Evicts until the store's files take so many bytes or less. disk_bytes, which may be null, is set to what they take then: more, where the rest is pinned or
 * in use. */
DORMOUSE_API dormouse_status dormouse_shrink(dormouse_store s, int64_t bytes, const dormouse_call *call, int64_t *disk_bytes);
/* Rewrites segments of which little is alive. Nothing is evicted. options and out may be null. */
DORMOUSE_API dormouse_status dormouse_compact(dormouse_store s, const dormouse_compact_options *options, const dormouse_call *call, dormouse_compacted *out);

/* The hash by which weights and tokenizers are named, as 32 digits and a zero byte. Of a file: of all its bytes; one that is not there, or a folder, is
 * DORMOUSE_ERR_ARGUMENT. */
DORMOUSE_API dormouse_status dormouse_hash(const void *data, size_t n, char out[33]);
DORMOUSE_API dormouse_status dormouse_hash_file(const char *path, char out[33]);
/* Registers a model, or finds it. descriptor is a JSON object: {"name": "Gemma 3 270M", "architecture": "gemma3", "weights": 32 digits, "tokenizer": 32 digits,
 * "rope": {"type": "neox", "dims": 256, "base": 1000000, "scale": 1, "scaling": "", "freq_factors": ""}, "rotated": false, "shard": 0, "shards": 1,
 * "state_format": "", "block_tokens": 0, "groups": [{"kind": "all"}, {"kind": "window", "window": 511}, {"kind": "state"}],
 * "tensors": [{"layer": 0, "role": "K", "dtype": "f16", "width": 256, "group": 0}, …]}. docs/c.md says what each is. */
DORMOUSE_API dormouse_status dormouse_register(dormouse_store s, const char *descriptor, const dormouse_call *call, dormouse_model *out);
/* The model's fingerprint, as 32 digits and a zero byte. */
DORMOUSE_API dormouse_status dormouse_fingerprint(dormouse_model m, char out[33]);
/* Gives a model's handle back. The model stays in the store. */
DORMOUSE_API dormouse_status dormouse_model_close(dormouse_model m);
/* The model's notes by name, as a JSON array: [{"name": "…", "value": hexadecimal digits}, …]. */
DORMOUSE_API dormouse_status dormouse_notes(dormouse_model m, const dormouse_call *call, char *json, size_t cap, size_t *needed);
/* Deletes everything of a model. */
DORMOUSE_API dormouse_status dormouse_retire(dormouse_model m, const dormouse_call *call);

/* As a limit: all of the prompt. A limit of 0 finds nothing. */
#define DORMOUSE_ALL ((size_t)-1)
/* How many leading tokens of a prompt are stored, at most limit, without a lease or a trace. */
DORMOUSE_API dormouse_status dormouse_probe(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, dormouse_restored *out);
/* Says why a prompt would, or would not, be reused, as JSON: {"text": a few lines, "prompt": n, "tokens": n, "reason": "diverged", "reason_at": n, "blocks":
 * [{"key": 32 digits, "start": n, "end": n, "shared": true, "groups": ["stored", …]}, …], "elsewhere": [{"name": "…", "fingerprint": 32 digits, "tokens": n, "differs":
 * [{"field": "…", "have": "…", "want": "…"}, …], "error": ""}, …]}. "elsewhere" are other models that have more of the prompt. It reads every stored byte of the prompt:
 * a buffer that is too small makes it do so again. */
DORMOUSE_API dormouse_status dormouse_explain(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, char *json, size_t cap,
                                              size_t *needed);
/* Reads the stored prefix ahead, so that a restore soon after finds it in memory. tokens may be null. */
DORMOUSE_API dormouse_status dormouse_prefetch(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, size_t *tokens);
/* Finds the longest stored prefix of a prompt and holds on to it until dormouse_match_close. A runtime that needs to evaluate the last token gives
 * n_tokens-1 as limit. found may be null. A match that found nothing is closed, too. */
DORMOUSE_API dormouse_status dormouse_match_prompt(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, dormouse_match *out,
                                                   dormouse_restored *found);
DORMOUSE_API dormouse_status dormouse_match_close(dormouse_match x);
/* Writes the matched prefix into memory, rows[i] for tensor i of the descriptor. Every byte is checked before; damage makes out->tokens smaller, and so do
 * rows that end earlier. The match stays that short then: give more rows to a new one. */
DORMOUSE_API dormouse_status dormouse_restore(dormouse_match x, const dormouse_rows *rows, size_t n_rows, const dormouse_call *call, dormouse_restored *out);
/* Is called when all rows of a layer are there. tokens never grows; if it becomes smaller, all layers come again. It must not call the library:
 * every call is DORMOUSE_ERR_CALLBACK there, at once, but for dormouse_last_error and texts; nor wait for a thread that calls it for this match or store. */
typedef void (*dormouse_layer_fn)(void *user, size_t layer, size_t tokens);
/* dormouse_restore, in the order of the layers. */
DORMOUSE_API dormouse_status dormouse_restore_layers(dormouse_match x, const dormouse_rows *rows, size_t n_rows, dormouse_layer_fn ready, void *user,
                                                     const dormouse_call *call, dormouse_restored *out);
/* The size of the stored state of a tensor of a state group, 0 if there is none. */
DORMOUSE_API dormouse_status dormouse_state_bytes(dormouse_match x, size_t tensor, int64_t *bytes);
/* Stores rows of a prompt: of any positions, if all before them are stored or given. options and out may be null. */
DORMOUSE_API dormouse_status dormouse_put(dormouse_model m, const dormouse_prompt *prompt, const dormouse_rows *rows, size_t n_rows,
                                          const dormouse_put_options *options, const dormouse_call *call, dormouse_put_result *out);
/* dormouse_put for a prompt that goes on from a match, whose lease keeps the prefix meanwhile. */
DORMOUSE_API dormouse_status dormouse_extend(dormouse_match x, const dormouse_prompt *prompt, const dormouse_rows *rows, size_t n_rows,
                                             const dormouse_put_options *options, const dormouse_call *call, dormouse_put_result *out);
/* A plane of a stored block as it lies in the file. */
typedef struct dormouse_plane {
	size_t size;
	size_t tensor;      /* index in the descriptor */
	size_t first, rows; /* positions [first, first+rows) */
	const char *codec;
	const void *data; /* as stored; valid only during the call back */
	size_t bytes;
	const void *codes; /* of an uncompressed q8_0 plane: ggml's block_q8_0, row after row; else null */
	size_t codes_bytes;
} dormouse_plane;
/* Returns 0 to go on, anything else to stop. It must not call the library (DORMOUSE_ERR_CALLBACK). */
typedef int32_t (*dormouse_view_fn)(void *user, const dormouse_plane *plane);
/* Shows the stored planes of a match where they lie, unchecked and undecoded: data is a mapped file. If another program cuts that file meanwhile, reading data raises SIGBUS, which
 * is yours to handle; dormouse_restore, which copies, answers with an error instead. */
DORMOUSE_API dormouse_status dormouse_view(dormouse_match x, dormouse_view_fn fn, void *user, const dormouse_call *call);

/* Puts a name, which must not be null, on a stored prefix: a pin, a bookmark. options may be null. */
DORMOUSE_API dormouse_status dormouse_set_ref(dormouse_model m, const char *name, const dormouse_prompt *prefix, const dormouse_ref_options *options,
                                              const dormouse_call *call);
DORMOUSE_API dormouse_status dormouse_delete_ref(dormouse_store s, const char *name, const dormouse_call *call);
/* Deletes a prefix and everything that goes on from it; of a scope, which must be neither null nor empty: everything of it. It is durable when it returns; dormouse_sync removes the
 * bytes. out may be null. */
DORMOUSE_API dormouse_status dormouse_delete(dormouse_model m, const dormouse_prompt *prefix, const dormouse_call *call, dormouse_deleted *out);
DORMOUSE_API dormouse_status dormouse_delete_scope(dormouse_store s, const char *scope, const dormouse_call *call, dormouse_deleted *out);

#ifdef __cplusplus
}
#endif

#endif
