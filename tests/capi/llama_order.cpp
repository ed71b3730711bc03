// Handles of C++ that end in any order, above a context of llama.cpp: the store is closed when the Store and what it cannot be closed under are gone. Arguments: an
// empty folder, a small model, the folder of the libraries.
#include "llama_kit.h"

#include <atomic>
#include <thread>

#include "dormouse_llama.hpp"

static bool is_free(const char *dir) {
	try {
		dormouse::Store store(dir);
		return true;
	} catch (const dormouse::Error &e) {
		if (e.status != DORMOUSE_ERR_LOCKED) throw;
		return false;
	}
}

int main(int argc, char **argv) try {
	using namespace dormouse;
	CHECK(argc == 4);
	const char *dir = argv[1];
	llama_model *model = load(argv[2], argv[3]);
	llama_context *ctx = context_of(model, 256, 32, 1);
	std::vector<int32_t> tokens(200);
	words(tokens.data(), 200, 1);
	Prompt prompt(tokens);

	auto store = std::make_unique<Store>(dir);
	auto session = std::make_unique<Llama>(*store, ctx, argv[2]);
	Model models = session->model();
	session->prefill(prompt, 0);
	session->save(prompt);
	auto match = std::make_unique<Match>(models.match(prompt));
	store.reset(); // before its session and its match
	CHECK(!is_free(dir) && match->tokens() > 0 && models.probe(prompt).tokens > 0);
	session->save(prompt); // it goes on
	match.reset();
	CHECK(!is_free(dir)); // the session may still be asked
	session.reset();
	CHECK(is_free(dir));

	store = std::make_unique<Store>(dir);
	session = std::make_unique<Llama>(*store, ctx, argv[2]);
	store.reset(); // nothing keeps it
	CHECK(is_free(dir));
	try {
		session->save(prompt);
		FAIL("a session of a store that is closed saves");
	} catch (const Error &e) {
		CHECK(e.status == DORMOUSE_ERR_HANDLE);
	}
	session.reset();

	for (int round = 0; round < 20; round++) { // while a call is at work on the context
		wipe(ctx, 0);
		store = std::make_unique<Store>(dir);
		session = std::make_unique<Llama>(*store, ctx, argv[2]);
		std::atomic<bool> stop{false};
		std::thread at_work([&] {
			try {
				while (!stop) session->reset(0), wipe(ctx, 0), session->prefill(prompt, 0);
			} catch (const Error &e) {
				CHECK(e.status == DORMOUSE_ERR_HANDLE); // between two calls the store could be closed
			}
		});
		std::this_thread::sleep_for(std::chrono::milliseconds(2 + round % 7));
		store.reset();
		stop = true;
		at_work.join();
		session.reset();
		CHECK(is_free(dir));
	}
	llama_free(ctx);
	llama_model_free(model);
	std::puts("order: ok");
} catch (const dormouse::Error &e) {
	fprintf(stderr, "llama_order: %s\n", e.what());
	return 1;
}
