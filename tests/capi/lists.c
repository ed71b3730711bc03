/* What a store says of itself, and how it gives space back: explanations, lists, options of eviction, checkpoint, shrink, compact. The argument is an empty folder. */
#include "check.h"

enum { N = 300 };

/* A text of the library's, as long as it is. */
#define TEXT(call) \
	do { \
		char *buf = said; \
		size_t cap = sizeof said, needed = 0; \
		OK(call); \
		CHECK(needed == strlen(said) + 1); \
		cap = needed - 1, needed = 0; \
		WANT(DORMOUSE_ERR_BUFFER, call); \
		CHECK(needed == cap + 1); \
		cap = 10, buf = NULL; \
		WANT(DORMOUSE_ERR_ARGUMENT, call); \
	} while (0)
static char said[1 << 16];
static void says(const char *word) {
	if (!strstr(said, word)) FAIL("%s is not in %s", word, said);
}

static void options(const char *dir) {
	static const struct {
		const char *options, *why;
	} bad[] = {
		{"{\"eviction\":\"mru\"}", "eviction \"mru\": expected lru, fifo, cost-aware or depth-cap"},
		{"{\"eviction\":7}", "eviction is a number: expected a string"},
		{"{\"eviction\":\"depth-cap\"}", "depth_cap is 0"},
		{"{\"eviction\":\"depth-cap\",\"depth_cap\":-1}", "depth_cap is -1"},
		{"{\"eviction\":\"lru\",\"depth_cap\":64}", "depth_cap is 64"},
		{"{\"high_water\":1.5}", "HighWater is 1.5"},
		{"{\"low_water\":0.9,\"high_water\":0.8}", "LowWater is 0.9"},
		{"{\"low_water\":\"much\"}", "low_water is a string: expected a number"},
	};
	static const char *const good[] = {
		"{\"eviction\":\"lru\"}", "{\"eviction\":\"fifo\"}", "{\"eviction\":\"cost-aware\"}", "{\"eviction\":\"depth-cap\",\"depth_cap\":4096}",
		"{\"high_water\":1,\"low_water\":1}", "{\"high_water\":0.9,\"low_water\":0.25}",
	};
	dormouse_store s;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, bad[i].options, NULL, &s));
		if (!strstr(last(), bad[i].why)) FAIL("%s: %s", bad[i].options, last());
	}
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		OK(dormouse_open(dir, good[i], NULL, &s));
		OK(dormouse_close(s));
	}
}

int main(int argc, char **argv) {
	CHECK(argc == 2);
	options(argv[1]);
	int32_t tokens[N], others[N];
	tokens_of(tokens, N, 1), tokens_of(others, N, 2);
	memcpy(others, tokens, 160 * sizeof *tokens); /* they diverge there */
	cache c, o;
	make(&c, N), make(&o, N);
	compute(&c, N, tokens), compute(&o, N, others);
	dormouse_store s, closed = {0};
	dormouse_model m, no_model = {0};
	OK(dormouse_open(argv[1], "{\"codec\":\"raw\",\"budget\":67108864,\"segment_bytes\":65536}", NULL, &s));
	OK(dormouse_register(s, descriptor, NULL, &m));
	char fingerprint[33];
	OK(dormouse_fingerprint(m, fingerprint));
	dormouse_prompt p = prompt_of(tokens, N), q = prompt_of(others, N);
	volatile int32_t flag = 1;
	dormouse_call cancelled = DORMOUSE_INIT(dormouse_call);
	cancelled.cancel = &flag;

	/* nothing yet */
	TEXT(dormouse_explain(m, &p, DORMOUSE_ALL, NULL, buf, cap, &needed));
	says("\"prompt\":300"), says("\"tokens\":0"), says("\"reason\":\"nothing stored\""), says("\"blocks\":[]"), says("\"elsewhere\":[]");
	OK(dormouse_refs(s, NULL, said, sizeof said, NULL));
	CHECK(strcmp(said, "[]") == 0);
	OK(dormouse_notes(m, NULL, said, sizeof said, NULL));
	CHECK(strcmp(said, "[]") == 0);

	/* explain */
	OK(dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, NULL));
	TEXT(dormouse_explain(m, &q, DORMOUSE_ALL, NULL, buf, cap, &needed));
	says("\"reason\":\"diverged\""), says("\"text\":\""), says("of 300 tokens would be reused"), says("\"start\":0"), says("\"shared\":true"), says("\"groups\":[\"stored\"]");
	TEXT(dormouse_explain(m, &p, 100, NULL, buf, cap, &needed));
	says("\"tokens\":100");
	OK(dormouse_explain(m, &p, 0, NULL, said, sizeof said, NULL));
	says("\"tokens\":0");
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_explain(m, NULL, DORMOUSE_ALL, NULL, said, sizeof said, NULL));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_explain(no_model, &p, DORMOUSE_ALL, NULL, said, sizeof said, NULL));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_explain(m, &p, DORMOUSE_ALL, &cancelled, said, sizeof said, NULL));

	/* a model of other weights says who has more of the prompt */
	char changed[1024];
	dormouse_model second;
	snprintf(changed, sizeof changed, "%s", descriptor);
	memcpy(strstr(changed, "0011223344"), "ffffffffff", 10);
	OK(dormouse_register(s, changed, NULL, &second));
	TEXT(dormouse_explain(second, &p, DORMOUSE_ALL, NULL, buf, cap, &needed));
	says("\"elsewhere\":[{\"name\":\"toy\""), says(fingerprint), says("\"tokens\":300"), says("\"differs\":[{\"field\":\"weights\"");

	/* lists */
	TEXT(dormouse_models(s, NULL, buf, cap, &needed));
	says("\"name\":\"toy\""), says(fingerprint), says("\"latest\":true"), says("\"latest\":false"), says("\"error\":\"\"");
	dormouse_ref_options ro = DORMOUSE_INIT(dormouse_ref_options);
	ro.pinned = 1, ro.priority = 3;
	OK(dormouse_set_ref(m, "a \"pin\"", &p, &ro, NULL));
	OK(dormouse_set_ref(m, "mark", &p, NULL, NULL));
	TEXT(dormouse_refs(s, NULL, buf, cap, &needed));
	says("[{\"name\":\"a \\\"pin\\\"\",\"model\":\""), says("\"tokens\":300,\"stored\":true,\"pinned\":true,\"priority\":3,"), says("\"name\":\"mark\""), says("\"expires_ms\":0");
	WANT(DORMOUSE_ERR_HANDLE, dormouse_models(closed, NULL, said, sizeof said, NULL));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_refs(closed, NULL, said, sizeof said, NULL));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_notes(no_model, NULL, said, sizeof said, NULL));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_refs(s, &cancelled, said, sizeof said, NULL));
	OK(dormouse_stats(s, said, sizeof said, NULL));
	says("\"budget\":67108864"), says("\"disk_high_water\":"), says("\"disk_free\":"), says("\"full\":false"), says("\"text\":\"");

	/* what a match holds is not destroyed yet, and says so */
	dormouse_match x;
	OK(dormouse_put(m, &q, o.rows, TENSORS, NULL, NULL, NULL));
	OK(dormouse_match_prompt(m, &q, DORMOUSE_ALL, NULL, &x, NULL));
	OK(dormouse_delete(m, &q, NULL, NULL));
	WANT(DORMOUSE_ERR_NOT_DESTROYED, dormouse_sync(s, NULL));
	OK(dormouse_match_close(x));
	OK(dormouse_sync(s, NULL));

	/* space: what is pinned stays */
	for (int i = 3; i < 40; i++) {
		tokens_of(others, N, i);
		compute(&o, N, others);
		OK(dormouse_put(m, &q, o.rows, TENSORS, NULL, NULL, NULL));
	}
	OK(dormouse_checkpoint(s, NULL));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_checkpoint(s, &cancelled));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_checkpoint(closed, NULL));
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	int64_t disk = -1;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_shrink(s, -1, NULL, &disk));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_shrink(closed, 0, NULL, &disk));
	OK(dormouse_shrink(s, (int64_t)1 << 40, NULL, &disk));
	CHECK(disk > 0);
	int64_t before = disk;
	OK(dormouse_probe(m, &q, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens == N);
	OK(dormouse_shrink(s, 0, NULL, &disk));
	CHECK(disk > 0 && disk < before);
	OK(dormouse_shrink(s, 0, NULL, NULL));
	OK(dormouse_probe(m, &q, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens < N);
	OK(dormouse_probe(m, &p, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens == N);
	dormouse_compact_options co = DORMOUSE_INIT(dormouse_compact_options);
	dormouse_compacted done = DORMOUSE_INIT(dormouse_compacted), small = {8, 0, 0, 0, 0, 0};
	co.live_share = 1.5;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_compact(s, &co, NULL, &done));
	CHECK(strstr(last(), "LiveShare"));
	co.live_share = 0, co.all = 1;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_compact(s, &co, NULL, &small));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_compact(closed, &co, NULL, &done));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_compact(s, &co, &cancelled, &done));
	OK(dormouse_compact(s, &co, NULL, &done));
	CHECK(done.segments > 0 && done.records > 0 && done.bytes > 0 && done.before > 0 && done.after > 0);
	OK(dormouse_compact(s, NULL, NULL, NULL));
	OK(dormouse_probe(m, &p, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens == N);

	OK(dormouse_suspend(s, NULL));
	WANT(DORMOUSE_ERR_SUSPENDED, dormouse_checkpoint(s, NULL));
	WANT(DORMOUSE_ERR_SUSPENDED, dormouse_refs(s, NULL, said, sizeof said, NULL));
	WANT(DORMOUSE_ERR_SUSPENDED, dormouse_explain(m, &p, DORMOUSE_ALL, NULL, said, sizeof said, NULL));
	OK(dormouse_resume(s, NULL));
	OK(dormouse_close(s));
	OK(dormouse_open(argv[1], "{\"read_only\":true}", NULL, &s));
	WANT(DORMOUSE_ERR_READ_ONLY, dormouse_shrink(s, 0, NULL, &disk));
	WANT(DORMOUSE_ERR_READ_ONLY, dormouse_compact(s, NULL, NULL, NULL));
	OK(dormouse_models(s, NULL, said, sizeof said, NULL));
	says(fingerprint);
	OK(dormouse_close(s));
	drop(&c), drop(&o);
	puts("lists: ok");
	return 0;
}
