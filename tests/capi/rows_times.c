/* The door of C to a store's rows, for tests/capi/times: what its rows.go says. Argument: the store's folder. */
#include <time.h>

#include "check.h"

enum { TOKENS = 2048, DOOR_LAYERS = 28, DOOR_WIDTH = 128, DOOR_TENSORS = 2 * DOOR_LAYERS, EACH = TOKENS * 2 * DOOR_WIDTH, TIMES = 5 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const char *described(void) {
	static char text[1 << 14];
	int n = snprintf(text, sizeof text, "{\"name\":\"rows\",\"architecture\":\"rows\",\"weights\":\"00000000000000000000000000000001\",\"tokenizer\":\"00000000000000000000000000000002\","
		"\"rope\":{\"type\":\"none\"},\"tensors\":[");
	for (int t = 0; t < DOOR_TENSORS; t++) {
		n += snprintf(text + n, sizeof text - (size_t)n, "%s{\"layer\":%d,\"role\":\"%s\",\"dtype\":\"f16\",\"width\":%d}", t ? "," : "", t / 2, t % 2 ? "V" : "K", DOOR_WIDTH);
	}
	snprintf(text + n, sizeof text - (size_t)n, "]}");
	return text;
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	void *all;
	CHECK(posix_memalign(&all, 4096, (size_t)DOOR_TENSORS * EACH) == 0);
	uint8_t *mem = memset(all, 0, (size_t)DOOR_TENSORS * EACH);
	dormouse_rows rows[DOOR_TENSORS];
	dormouse_piece pieces[DOOR_TENSORS];
	int32_t tokens[TOKENS];
	for (int t = 0; t < DOOR_TENSORS; t++) {
		pieces[t] = (dormouse_piece){mem + (size_t)t * EACH, EACH, TOKENS, 0, 0, 0, 0};
		rows[t] = (dormouse_rows){0, &pieces[t], 1};
	}
	for (int i = 0; i < TOKENS; i++) tokens[i] = i;
	dormouse_prompt p = DORMOUSE_INIT(dormouse_prompt);
	p.tokens = tokens, p.n_tokens = TOKENS;
	char line[256];
	while (fgets(line, sizeof line, stdin)) {
		dormouse_store s;
		dormouse_model m;
		dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
		double start = now(), opened, first = 0, took[TIMES];
		OK(dormouse_open(argv[1], NULL, NULL, &s));
		OK(dormouse_register(s, described(), NULL, &m));
		opened = now();
		for (int i = 0; i < TIMES; i++) {
			dormouse_match x;
			double begin = now();
			OK(dormouse_match_prompt(m, &p, DORMOUSE_ALL, NULL, &x, NULL));
			OK(dormouse_restore(x, rows, DOOR_TENSORS, NULL, &r));
			took[i] = now() - begin;
			if (i == 0) first = now() - start;
			OK(dormouse_match_close(x));
		}
		uint32_t best = 0;
		for (size_t i = 0; i < (size_t)DOOR_TENSORS * EACH; i += 4096) best = 31 * best + mem[i];
		OK(dormouse_close(s));
		printf("{\"reused\":%zu,\"best\":%d,\"open\":%f,\"attach\":0,\"first\":%f,\"restore\":[", r.tokens, (int32_t)best, opened - start, first);
		for (int i = 0; i < TIMES; i++) printf("%s%f", i ? "," : "", took[i]);
		printf("]}\n");
		fflush(stdout);
	}
	free(all);
	return 0;
}
