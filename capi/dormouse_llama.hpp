// Dormouse beneath stock llama.cpp, from C++: dormouse_llama.h with a handle that closes itself and errors that are thrown. Include llama.h first.
// Header only; C++17.
#ifndef DORMOUSE_LLAMA_HPP
#define DORMOUSE_LLAMA_HPP

#include "dormouse.hpp"
#include "dormouse_llama.h"

namespace dormouse {

// Llama is a llama_context that is attached to a store. It goes before the context. When its Store goes first, it is closed with it, unless a call is at work
// on the context: then the store is closed when the Llama is gone.
class Llama {
public:
	// model_path is the file from which the context's model was loaded; options are those of dormouse_llama_attach.
	Llama(const Store &store, llama_context *context, const std::string &model_path, const std::string &options = "", const dormouse_call *call = nullptr) : store(store.opened()) {
		dormouse_llama_functions linked = dormouse_llama_linked();
		check(dormouse_llama_attach(store.get(), &linked, context, model_path.empty() ? nullptr : c_text(model_path), options.empty() ? nullptr : c_text(options),
			dormouse_llama_decode, context, call, &l));
	}
	Llama(Llama &&o) noexcept : store(std::move(o.store)), l(std::exchange(o.l, dormouse_llama{})) {}
	Llama &operator=(Llama &&o) noexcept {
		std::swap(store, o.store);
		std::swap(l, o.l);
		return *this;
	}
	~Llama() {
		if (l.id) dormouse_llama_close(l);
	}

	// restore brings the longest stored prefix into an empty sequence: tokens of the result need no evaluation.
	dormouse_restored restore(const Prompt &prompt, int32_t sequence = 0, const dormouse_call *call = nullptr) {
		dormouse_restored out = DORMOUSE_INIT(dormouse_restored);
		dormouse_prompt p = prompt.c();
		check(dormouse_llama_restore(l, &p, sequence, call, &out));
		return out;
	}
	// prefill evaluates the tokens from a position on, with the logits of the last one.
	void prefill(const Prompt &prompt, size_t from, int32_t sequence = 0, const dormouse_call *call = nullptr) {
		dormouse_prompt p = prompt.c();
		check(dormouse_llama_prefill(l, &p, from, sequence, call));
	}
	// save stores what the sequence holds of the prompt.
	dormouse_put_result save(const Prompt &prompt, int32_t sequence = 0, const dormouse_call *call = nullptr) {
		dormouse_put_result out = DORMOUSE_INIT(dormouse_put_result);
		dormouse_prompt p = prompt.c();
		check(dormouse_llama_save(l, &p, sequence, call, &out));
		return out;
	}
	// capture is called after every batch of a loop of your own around llama_decode.
	void capture(const Prompt &prompt, int32_t sequence = 0, const dormouse_call *call = nullptr) {
		dormouse_prompt p = prompt.c();
		check(dormouse_llama_capture(l, &p, sequence, call));
	}
	void reset(int32_t sequence = 0) { check(dormouse_llama_reset(l, sequence)); }
	void truncate(size_t n, int32_t sequence = 0) { check(dormouse_llama_truncate(l, sequence, n)); }
	void recheck(const std::vector<dormouse_adapter> &adapters, const dormouse_call *call = nullptr) {
		check(dormouse_llama_recheck(l, adapters.data(), adapters.size(), call));
	}
	// set_adapters sets the context's LoRA adapters, and says so: loaded are those of llama_adapter_lora_init.
	void set_adapters(const std::vector<llama_adapter_lora *> &loaded, const std::vector<dormouse_adapter> &adapters, const dormouse_call *call = nullptr) {
		if (loaded.size() != adapters.size()) throw std::invalid_argument("dormouse: as many adapters as are loaded must be said");
		std::vector<void *> all(loaded.begin(), loaded.end());
		check(dormouse_llama_set_adapters(l, all.data(), adapters.data(), adapters.size(), call));
	}
	void trim() { check(dormouse_llama_trim(l)); }
	// info says how states are kept, as JSON.
	std::string info() const {
		return text([this](char *buf, size_t cap, size_t *needed) { return dormouse_llama_info(l, buf, cap, needed); });
	}
	Model model() const {
		dormouse_model m = {};
		check(dormouse_llama_model(l, &m));
		return Model(m, store);
	}
	dormouse_llama get() const { return l; }

private:
	std::shared_ptr<Opened> store; // goes when the session is closed
	dormouse_llama l = {};
};

} // namespace dormouse

#endif
