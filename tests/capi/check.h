/* What the tests of the C library have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dormouse.h"

__attribute__((unused)) static const char *last(void) {
	static __thread dormouse_error e;
	e.size = sizeof e;
	dormouse_last_error(&e);
	return e.message;
}

#define FAIL(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define CHECK(x) do { if (!(x)) FAIL("%s is false; last error: %s", #x, last()); } while (0)
#define WANT(status, call) do { int got_ = (call); if (got_ != (status)) FAIL("%s is %d, expected %s; last error: %s", #call, got_, #status, last()); } while (0)
#define OK(call) WANT(DORMOUSE_OK, call)

enum { LAYERS = 2, TENSORS = 2 * LAYERS, WIDTH = 64, ROW = 2 * WIDTH };

__attribute__((unused)) static const char *const descriptor =
	"{\"name\":\"toy\",\"architecture\":\"toy\",\"weights\":\"00112233445566778899aabbccddeeff\",\"tokenizer\":\"ffeeddccbbaa99887766554433221100\","
	"\"rope\":{\"type\":\"none\"},\"tensors\":["
	"{\"layer\":0,\"role\":\"K\",\"dtype\":\"f16\",\"width\":64},{\"layer\":0,\"role\":\"V\",\"dtype\":\"f16\",\"width\":64},"
	"{\"layer\":1,\"role\":\"K\",\"dtype\":\"f16\",\"width\":64},{\"layer\":1,\"role\":\"V\",\"dtype\":\"f16\",\"width\":64}]}";

/* Rows whose bytes follow from seed, tensor and position: so a prefix of the same tokens has the same rows. */
__attribute__((unused)) static inline void fill(uint8_t *mem, int tensor, int first, int count, const int32_t *tokens) {
	uint32_t h = 2166136261u ^ (uint32_t)tensor;
	for (int i = 0; i < first + count; i++) {
		h = (h ^ (uint32_t)tokens[i]) * 16777619u;
		if (i < first) continue;
		uint32_t x = h;
		for (int j = 0; j < ROW; j += 2) { /* f16 values between 1 and 2 */
			x = x * 1664525u + 1013904223u;
			mem[(size_t)(i - first) * ROW + j] = (uint8_t)(x >> 24);
			mem[(size_t)(i - first) * ROW + j + 1] = 0x3c;
		}
	}
}

/* Memory for n tokens of all tensors. */
typedef struct {
	uint8_t *mem[TENSORS];
	dormouse_piece piece[TENSORS];
	dormouse_rows rows[TENSORS];
} cache;

__attribute__((unused)) static inline void make(cache *c, int n) {
	memset(c, 0, sizeof *c);
	for (int t = 0; t < TENSORS; t++) {
		c->mem[t] = (uint8_t *)calloc((size_t)n, ROW);
		c->piece[t].mem = c->mem[t], c->piece[t].bytes = (size_t)n * ROW, c->piece[t].count = (size_t)n;
		c->rows[t].pieces = &c->piece[t], c->rows[t].n_pieces = 1;
	}
}

__attribute__((unused)) static inline void drop(cache *c) {
	for (int t = 0; t < TENSORS; t++) free(c->mem[t]);
}

__attribute__((unused)) static inline void compute(cache *c, int n, const int32_t *tokens) {
	for (int t = 0; t < TENSORS; t++) fill(c->mem[t], t, 0, n, tokens);
}

__attribute__((unused)) static inline dormouse_prompt prompt_of(const int32_t *tokens, size_t n) {
	dormouse_prompt p = DORMOUSE_INIT(dormouse_prompt);
	p.tokens = tokens, p.n_tokens = n;
	return p;
}

__attribute__((unused)) static inline void tokens_of(int32_t *tokens, int n, int seed) {
	for (int i = 0; i < n; i++) tokens[i] = (i * 7 + seed * 31 + (i > 100 ? seed : 0)) % 1000;
}

#endif
