// Dormouse from C++: what dormouse.h has, with handles that close themselves and errors that are thrown. Header only; C++17.
#ifndef DORMOUSE_HPP
#define DORMOUSE_HPP

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dormouse.h"

namespace dormouse {

// Error is what every function throws that does not succeed.
class Error : public std::runtime_error {
public:
	explicit Error(const dormouse_error &e) : std::runtime_error(e.message), status(static_cast<dormouse_status>(e.status)), file(e.file), offset(e.offset) {}

	const dormouse_status status;
	const std::string file; // that is damaged; else empty
	const int64_t offset;   // in it; else -1
};

inline void check(dormouse_status status) {
	if (status == DORMOUSE_OK) return;
	dormouse_error e = DORMOUSE_INIT(dormouse_error);
	dormouse_last_error(&e);
	throw Error(e);
}

// text calls f with larger buffers until what it gives fits.
template <typename F> std::string text(F f) {
	std::string out(4096, 0);
	for (;;) {
		size_t needed = 0;
		dormouse_status status = f(&out[0], out.size(), &needed);
		if (status == DORMOUSE_OK) {
			out.resize(needed - 1);
			return out;
		}
		if (status != DORMOUSE_ERR_BUFFER) check(status);
		out.resize(needed + needed / 2);
	}
}

// c_text throws where C would see the end of a text in the middle of it: two users whose names begin alike would share what is stored.
inline const char *c_text(const std::string &s) {
	if (s.find('\0') != std::string::npos) throw std::invalid_argument("dormouse: a text has a zero byte in it");
	return s.c_str();
}

// Call is how long a call may take.
struct Call : dormouse_call {
	Call() : dormouse_call(DORMOUSE_INIT(dormouse_call)) {}
	explicit Call(std::chrono::milliseconds limit) : Call() { timeout_ms = limit.count(); }
};

// Prompt is what a model is conditioned on. The tokens are copied.
class Prompt {
public:
	Prompt() = default;
	explicit Prompt(std::vector<int32_t> tokens, std::string scope = "", size_t scope_start = 0)
		: tokens(std::move(tokens)), scope(std::move(scope)), scope_start(scope_start) {}

	std::vector<int32_t> tokens;
	std::vector<dormouse_span> spans;
	std::vector<dormouse_adapter> adapters;
	std::string scope;
	size_t scope_start = 0;

	// prefix is the first n tokens, to be put or looked for: a beginning of what comes before scope_start is everybody's, as it is in the whole. n lies inside
	// no span.
	Prompt prefix(size_t n) const {
		Prompt p = *this;
		if (n > tokens.size()) throw std::out_of_range("dormouse: a prefix that is longer than its prompt");
		p.tokens.resize(n), p.spans.clear();
		for (const dormouse_span &s : spans)
			if (s.start + s.len <= n) p.spans.push_back(s);
		if (scope_start <= tokens.size()) p.scope_start = std::min(scope_start, n); // else a mistake, and it stays one
		return p;
	}

	// c is valid as long as this prompt is, and is not changed.
	dormouse_prompt c() const {
		dormouse_prompt p = DORMOUSE_INIT(dormouse_prompt);
		p.tokens = tokens.data(), p.n_tokens = tokens.size();
		p.spans = spans.data(), p.n_spans = spans.size();
		p.adapters = adapters.data(), p.n_adapters = adapters.size();
		p.scope = c_text(scope), p.scope_start = scope_start;
		return p;
	}
};

// packed are the rows [first, first+count) in one stretch of memory, row after row. It is kept by whoever calls.
inline dormouse_piece packed(void *mem, size_t bytes, size_t count) {
	dormouse_piece p = {};
	p.mem = mem, p.bytes = bytes, p.count = count;
	return p;
}

// Opened is the open store beneath handles. A store that cannot be closed when its Store is destroyed, since a match is open or a call is at work on a
// context of llama.cpp, is closed by the last Match or Llama that goes.
class Opened {
public:
	Opened() = default;
	Opened(const Opened &) = delete;
	Opened &operator=(const Opened &) = delete;
	~Opened() {
		if (s.id) dormouse_close(s);
	}

	dormouse_store s = {};
};

// Match is a stored prefix of a prompt, held until it is destroyed. It may outlive its Store, which is closed when the match is gone.
class Match {
public:
	Match(dormouse_match x, dormouse_restored found, std::shared_ptr<Opened> store = nullptr) : store(std::move(store)), found(found), x(x) {}
	Match(Match &&o) noexcept : store(std::move(o.store)), found(o.found), x(std::exchange(o.x, dormouse_match{})) {}
	Match &operator=(Match &&o) noexcept {
		std::swap(store, o.store);
		std::swap(x, o.x);
		found = o.found;
		return *this;
	}
	~Match() {
		if (x.id) dormouse_match_close(x);
	}

	size_t tokens() const { return found.tokens; }
	std::string reason() const { return dormouse_reason_text(found.reason); }

	dormouse_restored restore(const std::vector<dormouse_rows> &rows, const dormouse_call *call = nullptr) {
		dormouse_restored out = DORMOUSE_INIT(dormouse_restored);
		check(dormouse_restore(x, rows.data(), rows.size(), call, &out));
		return out;
	}
	// restore_layers is restore, in the order of the layers: ready(layer, tokens) when all rows of a layer are there, on a thread of the library. If tokens becomes
	// smaller, all layers come again. It must not call the store. What it throws ends the calls to it, and is thrown when the restore is over.
	template <typename F> dormouse_restored restore_layers(const std::vector<dormouse_rows> &rows, F ready, const dormouse_call *call = nullptr) {
		struct Ready {
			F &f;
			std::exception_ptr thrown;
		} to = {ready, nullptr};
		dormouse_restored out = DORMOUSE_INIT(dormouse_restored);
		dormouse_status status = dormouse_restore_layers(x, rows.data(), rows.size(), [](void *user, size_t layer, size_t tokens) {
			Ready *to = static_cast<Ready *>(user);
			if (to->thrown) return;
			try {
				to->f(layer, tokens);
			} catch (...) {
				to->thrown = std::current_exception();
			}
		}, &to, call, &out);
		if (to.thrown) std::rethrow_exception(to.thrown);
		check(status);
		return out;
	}
	// state_bytes is the size of the stored state of a tensor of a state group, 0 if there is none.
	int64_t state_bytes(size_t tensor) const {
		int64_t bytes = 0;
		check(dormouse_state_bytes(x, tensor, &bytes));
		return bytes;
	}
	// close gives it back, and says what went wrong, which the destructor cannot.
	void close() {
		check(dormouse_match_close(x));
		x = dormouse_match{};
		store.reset();
	}
	dormouse_put_result extend(const Prompt &prompt, const std::vector<dormouse_rows> &rows, const dormouse_put_options *options = nullptr, const dormouse_call *call = nullptr) {
		dormouse_put_result out = DORMOUSE_INIT(dormouse_put_result);
		dormouse_prompt p = prompt.c();
		check(dormouse_extend(x, &p, rows.data(), rows.size(), options, call, &out));
		return out;
	}
	dormouse_match get() const { return x; }

private:
	std::shared_ptr<Opened> store; // goes when the match is closed
	dormouse_restored found;
	dormouse_match x;
};

// Model is a registered model. Of a store that was closed every call is DORMOUSE_ERR_HANDLE.
class Model {
public:
	explicit Model(dormouse_model m, std::shared_ptr<Opened> store = nullptr) : store(std::move(store)), m(m) {}
	Model(Model &&o) noexcept : store(std::move(o.store)), m(std::exchange(o.m, dormouse_model{})) {}
	Model &operator=(Model &&o) noexcept {
		std::swap(store, o.store);
		std::swap(m, o.m);
		return *this;
	}
	~Model() {
		if (m.id) dormouse_model_close(m);
	}

	// probe is how much is stored of a prompt, at most limit tokens, without a lease or a trace.
	dormouse_restored probe(const Prompt &prompt, size_t limit = DORMOUSE_ALL, const dormouse_call *call = nullptr) const {
		dormouse_restored out = DORMOUSE_INIT(dormouse_restored);
		dormouse_prompt p = prompt.c();
		check(dormouse_probe(m, &p, limit, call, &out));
		return out;
	}
	// prefetch reads the stored prefix ahead, and gives its tokens.
	size_t prefetch(const Prompt &prompt, size_t limit = DORMOUSE_ALL, const dormouse_call *call = nullptr) {
		size_t tokens = 0;
		dormouse_prompt p = prompt.c();
		check(dormouse_prefetch(m, &p, limit, call, &tokens));
		return tokens;
	}
	// match finds the longest stored prefix of at most limit tokens.
	Match match(const Prompt &prompt, size_t limit = DORMOUSE_ALL, const dormouse_call *call = nullptr) {
		dormouse_match x = {};
		dormouse_restored found = DORMOUSE_INIT(dormouse_restored);
		dormouse_prompt p = prompt.c();
		auto opened = store.lock(); // before the match is open: a Store that goes meanwhile is closed by it
		check(dormouse_match_prompt(m, &p, limit, call, &x, &found));
		return Match(x, found, std::move(opened));
	}
	dormouse_put_result put(const Prompt &prompt, const std::vector<dormouse_rows> &rows, const dormouse_put_options *options = nullptr, const dormouse_call *call = nullptr) {
		dormouse_put_result out = DORMOUSE_INIT(dormouse_put_result);
		dormouse_prompt p = prompt.c();
		check(dormouse_put(m, &p, rows.data(), rows.size(), options, call, &out));
		return out;
	}
	dormouse_deleted remove(const Prompt &prefix, const dormouse_call *call = nullptr) {
		dormouse_deleted out = DORMOUSE_INIT(dormouse_deleted);
		dormouse_prompt p = prefix.c();
		check(dormouse_delete(m, &p, call, &out));
		return out;
	}
	// set_ref puts a name on a stored prefix.
	void set_ref(const std::string &name, const Prompt &prefix, const dormouse_ref_options *options = nullptr, const dormouse_call *call = nullptr) {
		dormouse_prompt p = prefix.c();
		check(dormouse_set_ref(m, c_text(name), &p, options, call));
	}
	// explain says why a prompt would, or would not, be reused: the JSON of dormouse_explain.
	std::string explain(const Prompt &prompt, size_t limit = DORMOUSE_ALL, const dormouse_call *call = nullptr) const {
		dormouse_prompt p = prompt.c();
		return text([&](char *buf, size_t cap, size_t *needed) { return dormouse_explain(m, &p, limit, call, buf, cap, needed); });
	}
	// notes are the model's, as the JSON of dormouse_notes.
	std::string notes(const dormouse_call *call = nullptr) const {
		return text([this, call](char *buf, size_t cap, size_t *needed) { return dormouse_notes(m, call, buf, cap, needed); });
	}
	// retire deletes everything of this model.
	void retire(const dormouse_call *call = nullptr) { check(dormouse_retire(m, call)); }
	std::string fingerprint() const {
		char text[33];
		check(dormouse_fingerprint(m, text));
		return text;
	}
	dormouse_model get() const { return m; }

private:
	std::weak_ptr<Opened> store; // a model keeps nothing open
	dormouse_model m;
};

// Store is an open store. close says what went wrong, and leaves it open while a match is. The destructor cannot say it: then the last match closes it.
class Store {
public:
	explicit Store(const std::string &dir, const std::string &options = "", const dormouse_call *call = nullptr) : o(std::make_shared<Opened>()) {
		check(dormouse_open(c_text(dir), options.empty() ? nullptr : c_text(options), call, &o->s));
	}
	Store(Store &&) noexcept = default;
	Store &operator=(Store &&other) noexcept {
		std::swap(o, other.o);
		return *this;
	}
	~Store() {
		if (o && o->s.id && dormouse_close(o->s) == DORMOUSE_OK) o->s = dormouse_store{};
	}

	void close() {
		check(dormouse_close(get()));
		o->s = dormouse_store{};
	}
	Model register_model(const std::string &descriptor, const dormouse_call *call = nullptr) {
		dormouse_model m = {};
		check(dormouse_register(get(), c_text(descriptor), call, &m));
		return Model(m, o);
	}
	void suspend(const dormouse_call *call = nullptr) { check(dormouse_suspend(get(), call)); }
	void resume(const dormouse_call *call = nullptr) { check(dormouse_resume(get(), call)); }
	void sync(const dormouse_call *call = nullptr) { check(dormouse_sync(get(), call)); }
	// pressure gives back memory when the system is short of it (level 1 to 3). Nothing goes from the disk.
	void pressure(int32_t level, const dormouse_call *call = nullptr) { check(dormouse_pressure(get(), level, call)); }
	void delete_ref(const std::string &name, const dormouse_call *call = nullptr) { check(dormouse_delete_ref(get(), c_text(name), call)); }
	dormouse_deleted delete_scope(const std::string &scope, const dormouse_call *call = nullptr) {
		dormouse_deleted out = DORMOUSE_INIT(dormouse_deleted);
		check(dormouse_delete_scope(get(), c_text(scope), call, &out));
		return out;
	}
	std::string stats() const { return text([this](char *buf, size_t cap, size_t *needed) { return dormouse_stats(get(), buf, cap, needed); }); }
	// models and refs are lists, as JSON.
	std::string models(const dormouse_call *call = nullptr) const {
		return text([this, call](char *buf, size_t cap, size_t *needed) { return dormouse_models(get(), call, buf, cap, needed); });
	}
	std::string refs(const dormouse_call *call = nullptr) const {
		return text([this, call](char *buf, size_t cap, size_t *needed) { return dormouse_refs(get(), call, buf, cap, needed); });
	}
	void checkpoint(const dormouse_call *call = nullptr) { check(dormouse_checkpoint(get(), call)); }
	// shrink evicts until the files take so many bytes or less, and gives what they take then.
	int64_t shrink(int64_t bytes, const dormouse_call *call = nullptr) {
		int64_t disk_bytes = 0;
		check(dormouse_shrink(get(), bytes, call, &disk_bytes));
		return disk_bytes;
	}
	// compact rewrites segments of which little is alive.
	dormouse_compacted compact(const dormouse_compact_options *options = nullptr, const dormouse_call *call = nullptr) {
		dormouse_compacted out = DORMOUSE_INIT(dormouse_compacted);
		check(dormouse_compact(get(), options, call, &out));
		return out;
	}
	std::string verify(const dormouse_call *call = nullptr) {
		return text([this, call](char *buf, size_t cap, size_t *needed) { return dormouse_verify(get(), call, buf, cap, needed); });
	}
	dormouse_store get() const { return o ? o->s : dormouse_store{}; }
	// opened is what keeps the store open: a handle that is not to lose it holds a copy.
	std::shared_ptr<Opened> opened() const { return o; }

private:
	std::shared_ptr<Opened> o;
};

} // namespace dormouse

#endif
