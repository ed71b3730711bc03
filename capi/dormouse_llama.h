/* Dormouse beneath stock llama.cpp, from C: the KV cache of a llama_context that is yours goes into a store and comes back.
 *
 *	#include <llama.h>
 *	#include <dormouse_llama.h>
 *
 *	dormouse_llama_functions functions = dormouse_llama_linked();
 *	dormouse_llama session;
 *	dormouse_llama_attach(store, &functions, ctx, "model.gguf", "{\"memo\":\"model.memo\"}", dormouse_llama_decode, ctx, NULL, &session);
 *
 *	dormouse_llama_restore(session, &prompt, 0, NULL, &got);           got.tokens tokens need no evaluation
 *	dormouse_llama_prefill(session, &prompt, got.tokens, 0, NULL);     evaluates the rest; the logits of the last token are there
 *	dormouse_llama_save(session, &prompt, 0, NULL, NULL);
 *
 *	dormouse_llama_close(session);                                     before llama_free
 *
 * The library calls llama.cpp only through the functions that it is given, so the context may come from any build: a shared library, one
 * that is linked in, on Android and iOS, too. It is the adapter of Go's package runtimes/llamacpp with its checks: what a context computes is compared with
 * what is stored before a row is used, and what contradicts a prompt is not stored. docs/llamacpp.md says what of which models can be kept.
 *
 * As in llama.cpp itself, calls for one context must not overlap; a call for a session while another one is at work there is DORMOUSE_ERR_BUSY. All of it is
 * as in dormouse.h otherwise: statuses, errors, memory, threads, dormouse_call. Include llama.h first for what needs it, at the end.
 */
#ifndef DORMOUSE_LLAMA_H
#define DORMOUSE_LLAMA_H

#include "dormouse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of llama.h that are called. Those of the second kind may be missing, for the price that is said; of the first kind none may. The list only
 * grows at its end. */
#define DORMOUSE_LLAMA_FUNCTIONS(NEEDED, OPTIONAL) \
	NEEDED(llama_get_model) NEEDED(llama_get_memory) NEEDED(llama_synchronize) \
	NEEDED(llama_n_ctx) NEEDED(llama_n_batch) NEEDED(llama_n_ubatch) NEEDED(llama_n_seq_max) \
	NEEDED(llama_state_seq_get_size_ext) NEEDED(llama_state_seq_get_data_ext) NEEDED(llama_state_seq_set_data_ext) \
	NEEDED(llama_memory_seq_rm) NEEDED(llama_memory_seq_pos_max) \
	NEEDED(llama_model_n_layer) NEEDED(llama_model_n_head) NEEDED(llama_model_n_embd) NEEDED(llama_model_n_swa) \
	NEEDED(llama_model_rope_type) NEEDED(llama_model_rope_freq_scale_train) NEEDED(llama_model_has_encoder) NEEDED(llama_model_is_recurrent) \
	NEEDED(llama_model_meta_count) NEEDED(llama_model_meta_key_by_index) NEEDED(llama_model_meta_val_str_by_index) NEEDED(llama_model_meta_val_str) \
	OPTIONAL(llama_model_is_hybrid)    /* hybrids are then taken for what their states look like */ \
	OPTIONAL(llama_model_is_diffusion) /* diffusion models are then not refused */ \
	OPTIONAL(llama_version)            /* states that cannot be cut are then refused */ \
	OPTIONAL(llama_memory_seq_cp)      /* whole states are then moved at once, where pieces would do */ \
	OPTIONAL(llama_model_size) OPTIONAL(llama_model_n_params) /* the file at the path is then not compared with the model */ \
	OPTIONAL(llama_model_get_vocab) OPTIONAL(llama_vocab_n_tokens) /* rare tokens are then evaluated to know the model again by */ \
	OPTIONAL(llama_n_ctx_seq)          /* a sequence is then taken to have room for n_ctx tokens */ \
	OPTIONAL(llama_memory_seq_pos_min) /* a sequence of a sliding-window model from which positions were removed is then refused */ \
	OPTIONAL(llama_memory_can_shift)   /* positions are then taken to be such as can be shifted: a save may evaluate a token where it need not */ \
	OPTIONAL(llama_get_logits)         /* logits of the last decode are then lost where a save or a restore evaluates a token */ \
	OPTIONAL(llama_set_adapters_lora)  /* dormouse_llama_set_adapters is then refused */

typedef void (*dormouse_llama_fn)(void);

/* Your llama.cpp: each field is the address of the function of its name, or null where there is none. dormouse_llama_linked fills it in. A program that loads
 * llama.cpp by itself fills it in by name: after size come as many pointers as dormouse_llama_function_name has names, in that order. It is not kept after the
 * call; the functions must stay. */
typedef struct dormouse_llama_functions {
	size_t size;
#define DORMOUSE_LLAMA_FIELD_(name) dormouse_llama_fn name;
	DORMOUSE_LLAMA_FUNCTIONS(DORMOUSE_LLAMA_FIELD_, DORMOUSE_LLAMA_FIELD_)
#undef DORMOUSE_LLAMA_FIELD_
} dormouse_llama_functions;

/* The name of field i of dormouse_llama_functions, as the library knows it; null behind the last. The text is the library's, for ever. */
DORMOUSE_API const char *dormouse_llama_function_name(size_t i);

/* Evaluates n tokens at the positions first, first+1, … of a sequence in one llama_decode, with the logits of the last one; n is at most llama_n_batch. Returns 0, or a number
 * that the message of DORMOUSE_ERR_DECODE then has. It is called on the thread of the call that needs it, must not call the library for this session, and must
 * return: no exceptions, no longjmp. dormouse_llama_decode, below, is one. */
typedef int32_t (*dormouse_llama_decode_fn)(void *user, const int32_t *tokens, size_t n, int32_t first, int32_t sequence);

/* A llama_context that is attached to a store. */
typedef struct dormouse_llama { uint64_t id; } dormouse_llama;

/* Finds out how states of a context can be kept, and registers its model. The context must stay until dormouse_llama_close. A context has one session: calls of the one that was attached
 * before return DORMOUSE_ERR_CLOSED from then on, but for dormouse_llama_close. model_path is the GGUF file from which
 * the model was loaded, the first one if it is split: all its bytes are hashed, unless the memo remembers them. It may be null if options name the weights
 * and the tokenizer.
 *
 * It evaluates eight tokens, 24 the first time: the logits of the last decode are lost. What the context computes for them is compared with what it computed when
 * rows were first stored under its identity: DORMOUSE_ERR_IDENTITY says that it is something else, DORMOUSE_ERR_REFUSED that states of it cannot be kept safely.
 *
 * options is a JSON object, or null; what is left out is the default, and a name that is not known is refused:
 * "memo": a file that remembers between runs what was read from model_path; without it, every attach reads the whole model, and so it does where the
 * memo cannot be written, which is a line of the log;
 * "weights", "tokenizer": 32 digits, in place of what is read from model_path; "name": what people call the model;
 * "rope_base", "rope_scale", "rope_scaling": what the context was made with, where that was not the model's own: llama.cpp does not tell;
 * "sequence": in which the tokens are evaluated (0), if it is empty;
 * "adapters": [{"hash": 32 digits, "scale": 1}, …], those that are set on the context; without "scale", 1; "discard_canary": true drops all that is stored of this model if the
 * context computes something else;
 * "rows_only", "opaque_only": refuse what cannot be cut, or cut nothing; "rotated": true or false, of a quantized cache, for releases that do not tell;
 * "block_tokens", "capture_tokens", "capture_bytes", "align", "token_spans": as in Go's llamacpp.Options;
 * "codec", "compression", "keep_states", "no_store": as in dormouse_put_options, but that 0 states are 4, and -1 all. */
DORMOUSE_API dormouse_status dormouse_llama_attach(dormouse_store s, const dormouse_llama_functions *functions, void *context, const char *model_path, const char *options,
                                                   dormouse_llama_decode_fn decode, void *user, const dormouse_call *call, dormouse_llama *out);
/* Gives the session back, before llama_free of its context. Its sequences stay as they are. dormouse_close of the store does it, too. */
DORMOUSE_API dormouse_status dormouse_llama_close(dormouse_llama l);
/* How states are kept, as JSON in the caller's buffer: {"mode": "rows", "hybrid" or "opaque", "why": a sentence, "fingerprint": 32 digits, "batch_tokens": what
 * prefill evaluates at a time, "deviation": how far what the context computes was from what is stored, above 1 it is refused}. */
DORMOUSE_API dormouse_status dormouse_llama_info(dormouse_llama l, char *json, size_t cap, size_t *needed);
/* The context's model: for probes, refs and deletions. It is closed by dormouse_model_close. */
DORMOUSE_API dormouse_status dormouse_llama_model(dormouse_llama l, dormouse_model *out);

/* Brings the longest stored prefix of a prompt into an empty sequence, at most all but its last token, which has to be evaluated for its logits. After an error the
 * sequence is empty, but after DORMOUSE_ERR_NOT_EMPTY, which leaves it as it was; so it is after damage that leaves nothing. out must not be null. */
DORMOUSE_API dormouse_status dormouse_llama_restore(dormouse_llama l, const dormouse_prompt *prompt, int32_t sequence, const dormouse_call *call, dormouse_restored *out);
/* Evaluates the tokens from position from on, in a sequence that holds those before, batch by batch. A limit or a cancel is looked at between two batches; the
 * sequence then holds what was evaluated. */
DORMOUSE_API dormouse_status dormouse_llama_prefill(dormouse_llama l, const dormouse_prompt *prompt, size_t from, int32_t sequence, const dormouse_call *call);
/* Stores what a sequence holds of a prompt, which it must have been filled with; what is stored already costs nothing. The sequence may hold more tokens. What contradicts
 * what the session saw in it is DORMOUSE_ERR_LINEAGE, and nothing is stored: dormouse_error.offset is the first position that does. out may be null. */
DORMOUSE_API dormouse_status dormouse_llama_save(dormouse_llama l, const dormouse_prompt *prompt, int32_t sequence, const dormouse_call *call, dormouse_put_result *out);

/* For programs with a loop of their own around llama_decode. Copies rows of sliding-window layers before llama.cpp forgets them: to be called after every batch of at
 * most batch_tokens tokens (dormouse_llama_info). prompt is what the sequence holds. */
DORMOUSE_API dormouse_status dormouse_llama_capture(dormouse_llama l, const dormouse_prompt *prompt, int32_t sequence, const dormouse_call *call);
/* Says that you emptied a sequence and filled it without the session: the next save takes your word for what is in it. Not for shifted positions: those must never
 * be saved. */
DORMOUSE_API dormouse_status dormouse_llama_reset(dormouse_llama l, int32_t sequence);
/* Says that you removed the positions from n on (llama_memory_seq_rm), before you evaluate others there. In a sliding-window model call it whenever you removed
 * positions, whatever you evaluate there, also the same tokens: DORMOUSE_ERR_LINEAGE says that the rows of the window before n are not there any more, or were not
 * restored: empty the sequence and restore. What is evaluated there is then refused by a save, which without this call may not see it. */
DORMOUSE_API dormouse_status dormouse_llama_truncate(dormouse_llama l, int32_t sequence, size_t n);
/* Says which LoRA adapters the context has now, after llama_set_adapters_lora, and compares what it computes, as attach does. */
DORMOUSE_API dormouse_status dormouse_llama_recheck(dormouse_llama l, const dormouse_adapter *adapters, size_t n, const dormouse_call *call);
/* Sets the LoRA adapters of the context, in place of all that were set (llama_set_adapters_lora), and compares what it computes, as recheck does: a program that sets them in no other
 * way cannot forget to say so. loaded are n pointers of llama_adapter_lora_init, adapters what they are: the hash of the file (dormouse_hash_file), and the scale. What the sequences hold
 * that was not evaluated by dormouse_llama_prefill is not stored any more: it was computed with others. */
DORMOUSE_API dormouse_status dormouse_llama_set_adapters(dormouse_llama l, void *const *loaded, const dormouse_adapter *adapters, size_t n, const dormouse_call *call);
/* Gives back memory that is kept between calls, and captured rows that were not saved. */
DORMOUSE_API dormouse_status dormouse_llama_trim(dormouse_llama l);

#ifdef LLAMA_API /* llama.h was included before */

#include <string.h>

/* A compiler that stops here has another llama.h than this header knows. */
static inline int dormouse_llama_fits_(struct llama_context *c, const struct llama_model *m, llama_memory_t mem, uint8_t *b, char *t) {
#define DORMOUSE_LLAMA_BYTES_(call, n) ((int)sizeof(char[sizeof(call) == (n) ? 1 : -1]))
	return DORMOUSE_LLAMA_BYTES_(llama_n_ctx(c), 4) + DORMOUSE_LLAMA_BYTES_(llama_n_batch(c), 4) + DORMOUSE_LLAMA_BYTES_(llama_n_seq_max(c), 4) +
	       DORMOUSE_LLAMA_BYTES_(llama_state_seq_get_size_ext(c, 0, 0), sizeof(size_t)) + DORMOUSE_LLAMA_BYTES_(llama_state_seq_get_data_ext(c, b, 1, 0, 0), sizeof(size_t)) +
	       DORMOUSE_LLAMA_BYTES_(llama_state_seq_set_data_ext(c, b, 1, 0, 0), sizeof(size_t)) + DORMOUSE_LLAMA_BYTES_(llama_memory_seq_rm(mem, 0, 0, 0), 1) +
	       DORMOUSE_LLAMA_BYTES_(llama_memory_seq_pos_max(mem, 0), 4) + DORMOUSE_LLAMA_BYTES_(llama_model_rope_type(m), 4) +
	       DORMOUSE_LLAMA_BYTES_(llama_model_rope_freq_scale_train(m), 4) + DORMOUSE_LLAMA_BYTES_(llama_model_meta_val_str(m, t, t, 1), 4) +
	       DORMOUSE_LLAMA_BYTES_(llama_model_meta_key_by_index(m, 0, t, 1), 4) + DORMOUSE_LLAMA_BYTES_(llama_token, 4) + DORMOUSE_LLAMA_BYTES_(llama_pos, 4);
#undef DORMOUSE_LLAMA_BYTES_
}

/* The functions of the llama.cpp that the program is linked with. For a llama.h that lacks one of the optional functions, define DORMOUSE_LLAMA_OLD before this header: all of
 * those are null then, and you set those that there are: functions.llama_memory_seq_cp = (dormouse_llama_fn)llama_memory_seq_cp. */
static inline dormouse_llama_functions dormouse_llama_linked(void) {
	dormouse_llama_functions f;
	memset(&f, 0, sizeof f);
	f.size = sizeof f;
#define DORMOUSE_LLAMA_FILL_(name) f.name = (dormouse_llama_fn)name;
#define DORMOUSE_LLAMA_NONE_(name)
#ifdef DORMOUSE_LLAMA_OLD
	DORMOUSE_LLAMA_FUNCTIONS(DORMOUSE_LLAMA_FILL_, DORMOUSE_LLAMA_NONE_)
#else
	DORMOUSE_LLAMA_FUNCTIONS(DORMOUSE_LLAMA_FILL_, DORMOUSE_LLAMA_FILL_)
#endif
#undef DORMOUSE_LLAMA_FILL_
#undef DORMOUSE_LLAMA_NONE_
	return f;
}

/* A dormouse_llama_decode_fn: user is the llama_context. */
static inline int32_t dormouse_llama_decode(void *user, const int32_t *tokens, size_t n, int32_t first, int32_t sequence) {
	struct llama_batch b = llama_batch_init((int32_t)n, 0, 1);
	int32_t got, i;
	for (i = 0; i < (int32_t)n; i++) {
		b.token[i] = tokens[i], b.pos[i] = first + i;
		b.n_seq_id[i] = 1, b.seq_id[i][0] = sequence;
		b.logits[i] = i == (int32_t)n - 1;
	}
	b.n_tokens = (int32_t)n;
	got = llama_decode((struct llama_context *)user, b);
	llama_batch_free(b);
	return got;
}

#endif /* LLAMA_API */

#ifdef __cplusplus
}
#endif

#endif
