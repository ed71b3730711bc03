/* Calls in a random order with random handles, null pointers and sizes: none may crash or hang. Arguments: an empty folder, calls, seed. */
#include "check.h"

static uint64_t state;
static uint32_t rnd(uint32_t n) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

enum { SLOTS = 6, MOST = 400 };

int main(int argc, char **argv) {
	CHECK(argc == 4);
	int calls = atoi(argv[2]), ok = 0;
	state = strtoull(argv[3], NULL, 10);
	uint64_t ids[3][SLOTS] = {{0}};
	static int32_t tokens[MOST];
	cache c, got;
	make(&c, MOST), make(&got, MOST);
	char text[256];
	size_t needed;
	int64_t bytes;
	for (int i = 0; i < calls; i++) {
		tokens_of(tokens, MOST, (int)rnd(4));
		compute(&c, MOST, tokens);
		uint32_t at = rnd(SLOTS), n = 1 + rnd(MOST);
		/* mostly the right handle; else one of another kind, or of none */
		dormouse_store s = {ids[rnd(20) ? 0 : rnd(3)][at]};
		dormouse_model m = {ids[rnd(20) ? 1 : rnd(3)][rnd(SLOTS)]};
		dormouse_match x = {ids[rnd(20) ? 2 : rnd(3)][rnd(SLOTS)]};
		if (!rnd(50)) s.id = m.id = x.id = rnd(1000);
		dormouse_prompt p = prompt_of(tokens, n), *pp = rnd(30) ? &p : NULL;
		if (!rnd(20)) p.size = rnd(200);
		if (!rnd(30)) p.tokens = NULL;
		if (!rnd(5)) p.scope = "some", p.scope_start = rnd(n + 2);
		dormouse_span span = {rnd(n + 3), rnd(9), {1}};
		if (!rnd(10)) p.spans = rnd(9) ? &span : NULL, p.n_spans = 1;
		for (int t = 0; t < TENSORS; t++) {
			c.piece[t].count = got.piece[t].count = rnd(10) ? n : rnd(MOST + 1);
			c.piece[t].bytes = got.piece[t].bytes = rnd(20) ? (size_t)MOST * ROW : rnd(MOST * ROW);
			c.piece[t].row_stride = got.piece[t].row_stride = rnd(20) ? 0 : rnd(1000);
			c.rows[t].first = got.rows[t].first = rnd(20) ? 0 : rnd(n + 1);
			c.rows[t].n_pieces = got.rows[t].n_pieces = rnd(20) ? 1 : 0;
		}
		dormouse_rows *cr = rnd(40) ? c.rows : NULL, *gr = rnd(40) ? got.rows : NULL;
		size_t nr = rnd(30) ? TENSORS : rnd(10);
		volatile int32_t flag = !rnd(5);
		dormouse_call call = {rnd(30) ? sizeof call : rnd(40), rnd(10) ? 0 : 1, rnd(3) ? NULL : &flag}, *cc = rnd(2) ? &call : NULL;
		dormouse_restored r = DORMOUSE_INIT(dormouse_restored), *rr = rnd(30) ? &r : NULL;
		dormouse_put_result pr = DORMOUSE_INIT(dormouse_put_result);
		dormouse_deleted d = DORMOUSE_INIT(dormouse_deleted);
		dormouse_store ns;
		dormouse_model nm;
		dormouse_match nx;
		char dir[512];
		int status = 0;
		switch (rnd(22)) {
		case 0:
			snprintf(dir, sizeof dir, "%s/%u", argv[1], rnd(2));
			if ((status = dormouse_open(dir, rnd(3) ? NULL : "{\"codec\":\"raw\",\"budget\":33554432}", cc, &ns)) == 0) ids[0][at] = ns.id;
			break;
		case 1: if (!rnd(3)) status = dormouse_close(s); break;
		case 2: case 3: if ((status = dormouse_register(s, rnd(20) ? descriptor : "{}", cc, &nm)) == 0) ids[1][rnd(SLOTS)] = nm.id; break;
		case 4: if (!rnd(4)) status = dormouse_model_close(m); break;
		case 5: case 6: case 7: status = dormouse_put(m, pp, cr, nr, NULL, cc, &pr); break;
		case 8: case 9: if ((status = dormouse_match_prompt(m, pp, rnd(3) ? DORMOUSE_ALL : rnd(MOST), cc, &nx, rr)) == 0) ids[2][rnd(SLOTS)] = nx.id; break;
		case 10: case 11: status = dormouse_restore(x, gr, nr, cc, rr); break;
		case 12: status = dormouse_restore_layers(x, gr, nr, NULL, NULL, cc, rr); break;
		case 13: case 14: status = dormouse_match_close(x); break;
		case 15: status = dormouse_extend(x, pp, cr, nr, NULL, cc, NULL); break;
		case 16: status = dormouse_probe(m, pp, rnd(MOST), cc, rr); break;
		case 17: status = rnd(2) ? dormouse_delete(m, pp, cc, &d) : dormouse_delete_scope(s, rnd(9) ? "some" : NULL, cc, &d); break;
		case 18: status = dormouse_stats(s, text, rnd(sizeof text), &needed); break;
		case 19: status = rnd(2) ? dormouse_suspend(s, cc) : dormouse_resume(s, cc); break;
		case 20: status = rnd(2) ? dormouse_pressure(s, (int32_t)rnd(5), cc) : dormouse_sync(s, cc); break;
		case 21: status = rnd(2) ? dormouse_set_ref(m, rnd(9) ? "name" : NULL, pp, NULL, cc) : dormouse_state_bytes(x, rnd(9), &bytes); break;
		}
		CHECK(status >= 0 && status <= DORMOUSE_ERR_OTHER);
		if (status == DORMOUSE_ERR_OTHER && strstr(last(), "fault of the library")) FAIL("call %d: %s", i, last());
		ok += status == 0;
	}
	for (int i = 0; i < SLOTS; i++) dormouse_match_close((dormouse_match){ids[2][i]});
	for (int i = 0; i < SLOTS; i++) dormouse_close((dormouse_store){ids[0][i]});
	drop(&c), drop(&got);
	printf("fuzz: %d calls, %d succeeded\n", calls, ok);
	return 0;
}
