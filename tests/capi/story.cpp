// The story of a store in C++: put, close, open, restore; an error that is caught. The argument is an empty folder.
#include <cstdio>
#include <cstring>

#include "check.h"
#include "dormouse.hpp"

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
	store.delete_ref("pin");
	CHECK(store.pressure(1) <= 1 << 20);
	CHECK(store.delete_scope("alice").blocks > 0);
	CHECK(store.stats().find("\"hits\"") != std::string::npos);
	CHECK(store.verify().find("\"damage\":[]") != std::string::npos);
	model.remove(prompt);
	store.close();
	drop(&c), drop(&got);
	std::puts("story: ok");
}
