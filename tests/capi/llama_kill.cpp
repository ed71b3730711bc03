// Evaluates and saves prompts through the C++ API, one after the other, and says each on stdout when it is saved; or, as a reader, restores those that are named on
// stdin and compares llama.cpp's state, byte by byte, with that of a context that evaluated them itself. Arguments: a folder, "write" or "read", a small model, the
// folder of the libraries.
#include "llama_kit.h"

#include "dormouse_llama.hpp"

enum { TOKENS = 120, BATCH = 32 };

static dormouse::Prompt prompt(int seed) {
	std::vector<int32_t> tokens(TOKENS);
	words(tokens.data(), TOKENS, seed);
	return dormouse::Prompt(tokens, "user " + std::to_string(seed % 7), 40);
}

static std::vector<uint8_t> state(llama_context *c) {
	std::vector<uint8_t> b(llama_state_seq_get_size(c, 0));
	b.resize(llama_state_seq_get_data(c, b.data(), b.size(), 0));
	return b;
}

int main(int argc, char **argv) try {
	CHECK(argc == 5);
	llama_model *model = load(argv[3], argv[4]);
	llama_context *ctx = context_of(model, 256, BATCH, 1), *other = context_of(model, 256, BATCH, 1);
	dormouse::Store store(argv[1], R"({"codec":"raw","budget":268435456,"min_free":-1,"checkpoint_ms":150})");
	dormouse::Llama session(store, ctx, argv[3]);
	if (std::string(argv[2]) == "write") {
		for (int seed = getenv("FROM") ? atoi(getenv("FROM")) : 0;; seed++) {
			auto p = prompt(seed);
			wipe(ctx, 0);
			session.prefill(p, session.restore(p).tokens);
			session.save(p);
			printf("%d\n", seed);
			fflush(stdout);
		}
	}
	int seed, found = 0;
	while (scanf("%d", &seed) == 1) {
		auto p = prompt(seed);
		wipe(ctx, 0), wipe(other, 0);
		auto got = session.restore(p);
		if (got.tokens != TOKENS - 1) FAIL("lost: of prompt %d, which was saved, %zu tokens are there: %s", seed, got.tokens, dormouse_reason_text(got.reason));
		for (int at = 0; at < TOKENS; at += BATCH) CHECK(dormouse_llama_decode(other, &p.tokens[at], std::min<size_t>(BATCH, TOKENS - at), at, 0) == 0);
		llama_memory_seq_rm(llama_get_memory(other), 0, TOKENS - 1, -1);
		if (state(ctx) != state(other)) FAIL("wrong: prompt %d was restored otherwise than it is evaluated", seed);
		found++;
	}
	printf("%d\n", found);
} catch (const dormouse::Error &e) {
	fprintf(stderr, "llama_kill: %s\n", e.what());
	return 1;
}
