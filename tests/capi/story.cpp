// The story of a store in C++: put, close, open, restore; an error that is caught. The argument is an empty folder.
#include <cstdio>
#include <cstring>
#include <thread>

#include "check.h"
#include "dormouse.hpp"

// is_free is whether nobody in this process has the store.
static bool is_free(const char *dir) {
	try {
		dormouse::Store store(dir);
		return true;
	} catch (const dormouse::Error &e) {
		if (e.status != DORMOUSE_ERR_LOCKED) throw;
		return false;
	}
}

// any_order destroys stores, models and matches in every order: the store is closed when the Store and the last match are gone, and a model keeps nothing.
static void any_order(const char *dir, const dormouse::Prompt &prompt) {
	using namespace dormouse;
	struct Runtime { // members are destroyed from the last to the first
		std::unique_ptr<Match> first, second;
		std::unique_ptr<Model> model;
		std::unique_ptr<Store> store;
	};
	for (int order = 0; order < 24; order++) {
		Runtime r;
		r.store = std::make_unique<Store>(dir);
		r.model = std::make_unique<Model>(r.store->register_model(descriptor));
		r.first = std::make_unique<Match>(r.model->match(prompt));
		r.second = std::make_unique<Match>(r.model->match(prompt));
		std::vector<int> left = {0, 1, 2, 3};
		for (int n = 4, at = order; n > 0; at /= n--) {
			int which = left[at % n];
			left.erase(left.begin() + at % n);
			if (which == 0) r.first.reset();
			if (which == 1) r.second.reset();
			if (which == 2) r.model.reset();
			if (which == 3) r.store.reset();
			bool open = r.store || r.first || r.second;
			CHECK(is_free(dir) == !open);
			if (r.model && open) CHECK(r.model->probe(prompt).tokens > 0); // it goes on as long as the store is open
			if (r.model && !open) try {
				r.model->probe(prompt);
				FAIL("a model of a store that is closed finds something");
			} catch (const Error &e) {
				CHECK(e.status == DORMOUSE_ERR_HANDLE);
			}
		}
	}
	std::unique_ptr<Match> kept;
	{
		Store store(dir), moved(std::move(store));
		kept = std::make_unique<Match>(moved.register_model(descriptor).match(prompt));
		try {
			moved.close();
			FAIL("a store was closed while a match is open");
		} catch (const Error &e) {
			CHECK(e.status == DORMOUSE_ERR_LEASED);
		}
		CHECK(moved.stats().size() > 0); // it is open still
		Match other = moved.register_model(descriptor).match(prompt);
		other = std::move(*kept);
		kept = std::make_unique<Match>(std::move(other));
	}
	CHECK(!is_free(dir) && kept->tokens() > 0);
	kept->close();
	CHECK(is_free(dir));
	std::thread([&] {
		Store store(dir);
		kept = std::make_unique<Match>(store.register_model(descriptor).match(prompt));
	}).join();
	CHECK(!is_free(dir));
	std::thread([&] { kept.reset(); }).join();
	CHECK(is_free(dir));
	for (int i = 0; i < 300; i++) { // the Store goes while another thread asks for a match: there is none, or it closes the store
		auto store = std::make_unique<Store>(dir);
		Model model = store->register_model(descriptor);
		std::unique_ptr<Match> found;
		std::thread asks([&] {
			try {
				found = std::make_unique<Match>(model.match(prompt));
			} catch (const Error &e) {
				CHECK(e.status == DORMOUSE_ERR_HANDLE || e.status == DORMOUSE_ERR_CLOSED);
			}
		});
		std::this_thread::sleep_for(std::chrono::microseconds(i));
		store.reset();
		asks.join();
		CHECK(is_free(dir) == !found);
		found.reset();
		CHECK(is_free(dir));
	}
}

int main(int argc, char **argv) {
	if (argc != 2) return 2;
	const int n = 200;
	std::vector<int32_t> tokens(n);
	tokens_of(tokens.data(), n, 3);
	cache c, got;
	make(&c, n), make(&got, n);
	compute(&c, n, tokens.data());
	dormouse::Prompt prompt(tokens, "alice", 64);
	std::vector<dormouse_rows> rows(c.rows, c.rows + TENSORS), into(got.rows, got.rows + TENSORS);
	{
		dormouse::Store store(argv[1], "{\"codec\":\"raw\"}");
		auto model = store.register_model(descriptor);
		CHECK(model.put(prompt, rows).tokens == n);
		try {
			dormouse::Store second(argv[1]);
			FAIL("a store was opened twice");
		} catch (const dormouse::Error &e) {
			CHECK(e.status == DORMOUSE_ERR_LOCKED && std::strlen(e.what()) > 0);
		}
		store.close();
	}
	any_order(argv[1], prompt);
	dormouse::Store store(argv[1], "{\"codec\":\"raw\"}");
	auto model = store.register_model(descriptor);
	{
		dormouse::Call call(std::chrono::seconds(10));
		auto match = model.match(prompt, n - 1, &call);
		CHECK(match.tokens() == n - 1 && !match.reason().empty());
		CHECK(match.restore(into).tokens == n - 1);
		for (int t = 0; t < TENSORS; t++) CHECK(std::memcmp(got.mem[t], c.mem[t], (n - 1) * ROW) == 0);
		auto moved = std::move(match);
		CHECK(moved.tokens() == n - 1);
		size_t layers = 0;
		auto refused = [](auto f) {
			try {
				f();
			} catch (const dormouse::Error &e) {
				return e.status == DORMOUSE_ERR_CALLBACK;
			}
			return false;
		};
		moved.restore_layers(into, [&](size_t, size_t tokens) {
			CHECK(tokens == n - 1 && refused([&] { moved.close(); }) && refused([&] { store.close(); }));
			layers++;
		});
		CHECK(layers == LAYERS);
		layers = 0;
		try {
			moved.restore_layers(into, [&](size_t, size_t) { layers++, throw std::runtime_error("enough"); });
			FAIL("what a callback threw is gone");
		} catch (const std::runtime_error &e) {
			CHECK(layers == 1 && std::strcmp(e.what(), "enough") == 0);
		}
		CHECK(moved.state_bytes(0) == 0);
		moved.close();
	}
	CHECK(model.probe(prompt).tokens == n && model.prefetch(prompt) == n);
	CHECK(model.put(prompt.prefix(30), rows).tokens == 30 && model.probe(prompt.prefix(30)).tokens == 30);
	try {
		model.probe(dormouse::Prompt(tokens, "alice", n + 5).prefix(n - 1));
		FAIL("a scope begins behind its prompt");
	} catch (const dormouse::Error &e) {
		CHECK(e.status == DORMOUSE_ERR_PROMPT);
	}
	model.set_ref("pin", prompt);
	CHECK(store.refs().find("\"name\":\"pin\"") != std::string::npos && store.models().find(model.fingerprint()) != std::string::npos && model.notes() == "[]");
	CHECK(model.explain(prompt).find("200 of 200 tokens would be reused") != std::string::npos);
	store.checkpoint();
	CHECK(store.shrink(int64_t(1) << 40) > 0 && store.compact().after > 0);
	store.delete_ref("pin");
	for (int level = 1; level <= 3; level++) store.pressure(level);
	CHECK(store.delete_scope("alice").blocks > 0);
	CHECK(store.stats().find("\"hits\"") != std::string::npos);
	CHECK(store.verify().find("\"damage\":[]") != std::string::npos);
	model.remove(prompt);
	store.close();
	drop(&c), drop(&got);
	std::puts("story: ok");
}
