/* Puts prompts, one after the other, and says each on stdout when it is stored; or, as a reader, restores those that are named on stdin and compares
 * them. Arguments: a folder, "write" or "read". */
#include "check.h"

enum { N = 150 };

int main(int argc, char **argv) {
	CHECK(argc == 3);
	dormouse_store s;
	dormouse_model m;
	OK(dormouse_open(argv[1], "{\"codec\":\"raw\",\"budget\":2147483648,\"min_free\":-1}", NULL, &s));
	OK(dormouse_register(s, descriptor, NULL, &m));
	int32_t tokens[N];
	cache c, got;
	make(&c, N), make(&got, N);
	if (strcmp(argv[2], "write") == 0) {
		for (int seed = getenv("FROM") ? atoi(getenv("FROM")) : 0;; seed++) {
			tokens_of(tokens, N, seed);
			compute(&c, N, tokens);
			dormouse_prompt p = prompt_of(tokens, N);
			OK(dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, NULL));
			printf("%d\n", seed);
			fflush(stdout);
		}
	}
	int seed, found = 0;
	while (scanf("%d", &seed) == 1) {
		tokens_of(tokens, N, seed);
		compute(&c, N, tokens);
		dormouse_prompt p = prompt_of(tokens, N);
		dormouse_match x;
		dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
		OK(dormouse_match_prompt(m, &p, DORMOUSE_ALL, NULL, &x, &r));
		if (r.tokens != N) FAIL("of prompt %d, which was stored, %zu tokens are there: %s", seed, r.tokens, dormouse_reason_text(r.reason));
		OK(dormouse_restore(x, got.rows, TENSORS, NULL, &r));
		CHECK(r.tokens == N);
		for (int t = 0; t < TENSORS; t++) CHECK(memcmp(got.mem[t], c.mem[t], N * ROW) == 0);
		OK(dormouse_match_close(x));
		found++;
	}
	OK(dormouse_close(s));
	printf("%d\n", found);
	return 0;
}
