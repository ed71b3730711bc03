/* Calls of dormouse_llama.h in a random order, on two contexts of two sequences that are changed behind their back, with wrong handles, null pointers and a decode function that
 * fails: none may crash or hang, and a sequence has as many tokens as a restore says. What is in them is not looked at, because some of these calls are lies (reset): that is
 * llama_kill.cpp's. Arguments: an empty folder, calls, seed, a small model, the folder of the libraries. */
#include "llama_kit.h"

static uint64_t state;
static uint32_t rnd(uint32_t n) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

enum { CONTEXTS = 2, SLOTS = 4, MOST = 300, BATCH = 32 };

static struct llama_context *contexts[CONTEXTS];

/* Fails now and then, before or after the tokens are evaluated. */
static int32_t decode(void *user, const int32_t *tokens, size_t n, int32_t first, int32_t sequence) {
	CHECK(n > 0 && n <= BATCH && sequence >= 0 && sequence < 2 && first >= 0);
	if (!rnd(60)) return 3;
	int32_t got = dormouse_llama_decode(user, tokens, n, first, sequence);
	return got != 0 ? got : rnd(200) ? 0 : -5;
}

/* A prompt of one of four trunks, that parts from it somewhere. */
static void prompt(int32_t *tokens, int n) {
	words(tokens, n, (int)rnd(4));
	if (!rnd(3)) {
		int at = 1 + (int)rnd((uint32_t)n);
		for (int i = at; i < n; i++) tokens[i] = 3 + (int32_t)rnd(500);
	}
}

int main(int argc, char **argv) {
	CHECK(argc == 6);
	int calls = atoi(argv[2]), ok = 0, restored = 0;
	state = strtoull(argv[3], NULL, 10);
	struct llama_model *model = load(argv[4], argv[5]);
	for (int i = 0; i < CONTEXTS; i++) contexts[i] = context_of(model, i ? 1024 : 512, BATCH, 2);
	dormouse_store store;
	OK(dormouse_open(argv[1], "{\"codec\":\"raw\",\"budget\":33554432}", NULL, &store));
	dormouse_llama_functions linked = dormouse_llama_linked();
	uint64_t ids[SLOTS] = {0};
	int of[SLOTS] = {0};
	static int32_t tokens[MOST];
	char text[512];
	size_t needed;
	for (int i = 0; i < calls; i++) {
		uint32_t at = rnd(SLOTS), n = 1 + rnd(rnd(10) ? MOST : MOST / 10);
		prompt(tokens, (int)n);
		dormouse_llama l = {rnd(25) ? ids[at] : rnd(2) ? store.id : rnd(1000)};
		struct llama_context *c = contexts[of[at]];
		int32_t sequence = rnd(20) ? (int32_t)rnd(2) : (int32_t)rnd(9) - 4;
		int mine = sequence == 0 || sequence == 1;
		dormouse_prompt p = prompt_of(tokens, n), *pp = rnd(40) ? &p : NULL;
		if (!rnd(40)) p.size = rnd(200);
		if (!rnd(40)) p.tokens = NULL;
		if (!rnd(5)) p.scope = "some", p.scope_start = rnd(n + 2);
		dormouse_adapter lora = {{1}, 1};
		if (!rnd(40)) p.adapters = &lora, p.n_adapters = 1;
		volatile int32_t flag = !rnd(5);
		dormouse_call call = {rnd(30) ? sizeof call : rnd(40), rnd(10) ? 0 : 1, rnd(3) ? NULL : &flag}, *cc = rnd(4) ? NULL : &call;
		dormouse_restored r = DORMOUSE_INIT(dormouse_restored), *rr = rnd(40) ? &r : NULL;
		dormouse_put_result put = DORMOUSE_INIT(dormouse_put_result);
		dormouse_llama nl;
		dormouse_model m;
		int status = 0, which;
		switch (rnd(16)) {
		case 0:
			if (ids[at] && rnd(8)) break;
			dormouse_llama_close((dormouse_llama){ids[at]});
			which = (int)at % CONTEXTS; /* a session each; several for one context, as long as their calls do not overlap */
			status = dormouse_llama_attach(store, rnd(40) ? &linked : NULL, contexts[which], argv[4], rnd(9) ? NULL : "{\"rows_only\":true,\"sequence\":1}", decode, contexts[which], cc, &nl);
			ids[at] = nl.id, of[at] = which;
			break;
		case 1: case 2: case 3:
			if (mine && rnd(8)) wipe(c, sequence);
			if ((status = dormouse_llama_restore(l, pp, sequence, cc, rr)) != 0 || !rr || r.tokens == 0 || l.id != ids[at]) break;
			CHECK(held(c, sequence) == (int32_t)r.tokens && r.tokens < n);
			restored++;
			break;
		case 4: case 5: case 6: status = dormouse_llama_prefill(l, pp, rnd(4) && mine ? (size_t)held(c, sequence) : rnd(MOST), sequence, cc); break;
		case 7: case 8: status = dormouse_llama_save(l, pp, sequence, cc, rnd(3) ? &put : NULL); break;
		case 9: status = dormouse_llama_capture(l, pp, sequence, cc); break;
		case 10: status = rnd(2) ? dormouse_llama_reset(l, sequence) : dormouse_llama_truncate(l, sequence, rnd(9) ? rnd(MOST) : (size_t)-1); break;
		case 11:
			if (!mine) break;
			if (rnd(2)) wipe(c, sequence);
			else llama_memory_seq_rm(llama_get_memory(c), sequence, (llama_pos)rnd(MOST), -1);
			break;
		case 12: status = rnd(4) ? dormouse_llama_trim(l) : rnd(2) ? dormouse_llama_recheck(l, &lora, rnd(2), cc) : dormouse_llama_set_adapters(l, NULL, &lora, rnd(2), cc); break;
		case 13: status = dormouse_llama_info(l, text, rnd(sizeof text), &needed); break;
		case 14:
			if ((status = dormouse_llama_model(l, rnd(9) ? &m : NULL)) != 0) break;
			status = rnd(2) ? dormouse_delete(m, &p, NULL, NULL) : dormouse_probe(m, &p, rnd(MOST), NULL, &r);
			dormouse_model_close(m);
			break;
		case 15: if (!rnd(20)) status = dormouse_suspend(store, NULL), dormouse_resume(store, NULL); break;
		}
		CHECK(status >= 0 && status <= DORMOUSE_ERR_OTHER);
		if (status == DORMOUSE_ERR_OTHER) FAIL("call %d: %s", i, last());
		ok += status == 0;
	}
	OK(dormouse_close(store));
	for (int i = 0; i < CONTEXTS; i++) llama_free(contexts[i]);
	llama_model_free(model);
	printf("llama_fuzz: %d calls, %d succeeded, %d restored something\n", calls, ok, restored);
	return 0;
}
