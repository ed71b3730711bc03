// The door of C++, for tests/capi/times: at each line of stdin it opens the store, attaches, restores the prompt and evaluates its last token, and says how long
// that took, in milliseconds. Arguments: the store's folder, a model, the folder of the libraries, a file with the prompt's tokens, threads.
#include <chrono>
#include <fstream>
#include <iostream>

#include "llama_kit.h"

#include "dormouse_llama.hpp"

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char **argv) try {
	CHECK(argc == 6);
	llama_model *model = load(argv[2], argv[3]);
	std::vector<int32_t> tokens;
	std::ifstream file(argv[4]);
	for (int32_t t; file >> t;) tokens.push_back(t);
	llama_context_params cp = llama_context_default_params();
	cp.n_ctx = (uint32_t)tokens.size() + 64, cp.n_batch = cp.n_ubatch = 256;
	cp.n_threads = cp.n_threads_batch = atoi(argv[5]);
	llama_context *ctx = llama_init_from_model(model, cp);
	CHECK(ctx != NULL);
	const std::string dir = argv[1];
	dormouse::Prompt prompt(tokens);
	auto turn = [&](std::string &said) {
		wipe(ctx, 0);
		double start = now();
		dormouse::Store store(dir);
		double opened = now();
		dormouse::Llama session(store, ctx, argv[2], "{\"memo\":\"" + dir + ".memo\"}");
		double attached = now();
		size_t reused = session.restore(prompt).tokens;
		double restored = now();
		session.prefill(prompt, reused);
		int32_t best = likeliest(ctx);
		double first = now();
		char text[512];
		int n = snprintf(text, sizeof text, "{\"reused\":%zu,\"best\":%d,\"open\":%f,\"attach\":%f,\"first\":%f,\"restore\":[%f", reused, best, opened - start, attached - opened, first - start, restored - attached);
		for (int i = 0; i < 4; i++) {
			wipe(ctx, 0);
			start = now();
			session.restore(prompt);
			n += snprintf(text + n, sizeof text - n, ",%f", now() - start);
		}
		said = std::string(text) + "]}";
	};
	for (std::string line, said; std::getline(std::cin, line);) {
		turn(said); // the store is closed when the next door is asked
		puts(said.c_str());
		fflush(stdout);
	}
} catch (const dormouse::Error &e) {
	fprintf(stderr, "llama_times: %s\n", e.what());
	return 1;
}
