/* Rows of the shape (heads, tokens, values): put and restored where they lie, and the same in the store as rows of (tokens, heads, values). The argument is an empty folder. */
#include "check.h"

enum { N = 300, HEADS = 4, CELLS = 512, PART = ROW / HEADS };

/* Memory of another layout than check.h's. */
static void make_heads(cache *c) {
	make(c, CELLS);
	for (int t = 0; t < TENSORS; t++) {
		dormouse_piece *p = &c->piece[t];
		p->count = N, p->row_stride = PART, p->heads = HEADS, p->head_stride = (size_t)CELLS * PART;
	}
}

static uint8_t *at(cache *c, int t, int row, int head) { return c->mem[t] + (size_t)head * CELLS * PART + (size_t)row * PART; }

static int same(cache *by_head, cache *by_token, int n) {
	for (int t = 0; t < TENSORS; t++)
		for (int i = 0; i < n; i++)
			for (int h = 0; h < HEADS; h++)
				if (memcmp(at(by_head, t, i, h), by_token->mem[t] + (size_t)i * ROW + (size_t)h * PART, PART) != 0) return 0;
	return 1;
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	int32_t tokens[N], others[N];
	tokens_of(tokens, N, 1), tokens_of(others, N, 2);
	cache plain, got, heads, back;
	make(&plain, N), make(&got, N), make_heads(&heads), make_heads(&back);
	dormouse_store s;
	dormouse_model m;
	OK(dormouse_open(argv[1], "{\"codec\":\"raw\"}", NULL, &s));
	OK(dormouse_register(s, descriptor, NULL, &m));
	dormouse_prompt p = prompt_of(tokens, N), q = prompt_of(others, N);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_match x;

	/* put by token, restored by head: the cells behind the rows stay as they are */
	compute(&plain, N, tokens);
	OK(dormouse_put(m, &p, plain.rows, TENSORS, NULL, NULL, NULL));
	OK(dormouse_match_prompt(m, &p, DORMOUSE_ALL, NULL, &x, NULL));
	memset(at(&back, 1, N, 2), 7, (CELLS - N) * PART);
	OK(dormouse_restore(x, back.rows, TENSORS, NULL, &r));
	CHECK(r.tokens == N && same(&back, &plain, N) && at(&back, 1, N, 2)[0] == 7 && at(&back, 1, CELLS - 1, 2)[PART - 1] == 7);
	OK(dormouse_match_close(x));

	/* put by head, restored by token */
	compute(&plain, N, others);
	for (int t = 0; t < TENSORS; t++)
		for (int i = 0; i < N; i++)
			for (int h = 0; h < HEADS; h++) memcpy(at(&heads, t, i, h), plain.mem[t] + (size_t)i * ROW + (size_t)h * PART, PART);
	OK(dormouse_put(m, &q, heads.rows, TENSORS, NULL, NULL, NULL));
	OK(dormouse_match_prompt(m, &q, DORMOUSE_ALL, NULL, &x, NULL));
	OK(dormouse_restore(x, got.rows, TENSORS, NULL, &r));
	CHECK(r.tokens == N && same(&heads, &got, N));
	OK(dormouse_match_close(x));

	/* what does not fit */
	heads.piece[2].heads = 3;
	WANT(DORMOUSE_ERR_ROWS, dormouse_put(m, &q, heads.rows, TENSORS, NULL, NULL, NULL));
	CHECK(strstr(last(), "3 heads"));
	heads.piece[2].heads = HEADS, heads.piece[2].head_stride = (N - 1) * PART;
	WANT(DORMOUSE_ERR_ROWS, dormouse_put(m, &q, heads.rows, TENSORS, NULL, NULL, NULL));
	CHECK(strstr(last(), "overlap"));
	heads.piece[2].head_stride = (size_t)CELLS * PART, heads.piece[2].bytes = (size_t)(3 * CELLS + N) * PART - 1;
	WANT(DORMOUSE_ERR_ROWS, dormouse_put(m, &q, heads.rows, TENSORS, NULL, NULL, NULL));
	heads.piece[2].bytes++;
	OK(dormouse_put(m, &q, heads.rows, TENSORS, NULL, NULL, NULL));
	heads.piece[2].head_stride = (size_t)-1;
	WANT(DORMOUSE_ERR_ROWS, dormouse_put(m, &q, heads.rows, TENSORS, NULL, NULL, NULL));
	OK(dormouse_close(s));
	drop(&plain), drop(&got), drop(&heads), drop(&back);
	puts("heads: ok");
	return 0;
}
