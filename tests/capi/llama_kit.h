/* A small model in llama.cpp, for the tests of dormouse_llama.h. */
#ifndef LLAMA_KIT_H
#define LLAMA_KIT_H

#include <llama.h>

#include "check.h"
#include "dormouse_llama.h"

__attribute__((unused)) static void quiet(enum ggml_log_level level, const char *text, void *user) {
	(void)user;
	if (level >= GGML_LOG_LEVEL_ERROR && getenv("LLAMA_LOG")) fputs(text, stderr);
}

/* The model at path, with the backends that lie in the folder lib. */
__attribute__((unused)) static struct llama_model *load(const char *path, const char *lib) {
	llama_log_set(quiet, NULL);
	ggml_backend_load_all_from_path(lib);
	llama_backend_init();
	struct llama_model_params mp = llama_model_default_params();
	mp.n_gpu_layers = 0;
	struct llama_model *m = llama_model_load_from_file(path, mp);
	CHECK(m != NULL);
	return m;
}

__attribute__((unused)) static struct llama_context *context_of(struct llama_model *m, uint32_t tokens, uint32_t batch, uint32_t sequences) {
	struct llama_context_params cp = llama_context_default_params();
	cp.n_ctx = tokens, cp.n_batch = batch, cp.n_ubatch = batch, cp.n_seq_max = sequences;
	cp.n_threads = cp.n_threads_batch = 1;
	struct llama_context *c = llama_init_from_model(m, cp);
	CHECK(c != NULL);
	return c;
}

__attribute__((unused)) static inline void wipe(struct llama_context *c, int32_t sequence) {
	llama_memory_seq_rm(llama_get_memory(c), sequence, -1, -1);
}

__attribute__((unused)) static inline int32_t held(struct llama_context *c, int32_t sequence) {
	return llama_memory_seq_pos_max(llama_get_memory(c), sequence) + 1;
}

/* The likeliest next token after the last decode. */
__attribute__((unused)) static inline int32_t likeliest(struct llama_context *c) {
	const float *l = llama_get_logits_ith(c, -1);
	int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(c))), best = 0;
	for (int32_t i = 1; i < n; i++) best = l[i] > l[best] ? i : best;
	return best;
}

/* Writes n tokens behind a sequence of at tokens whose last one was just evaluated. */
__attribute__((unused)) static inline void go_on(struct llama_context *c, int32_t sequence, int32_t at, int32_t *out, int n) {
	for (int i = 0; i < n; i++) {
		out[i] = likeliest(c);
		CHECK(dormouse_llama_decode(c, &out[i], 1, at + i, sequence) == 0);
	}
}

/* Tokens of a vocabulary of 512. */
__attribute__((unused)) static inline void words(int32_t *tokens, int n, int seed) {
	uint32_t x = (uint32_t)seed * 2654435761u + 1;
	for (int i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		tokens[i] = i == 0 ? 1 : 3 + (int32_t)((x >> 12) % 509);
	}
}

#endif
