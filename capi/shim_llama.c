/* The functions of dormouse_llama.h, and what Go needs of it that is not Go's. */
#include <stddef.h>
#include <string.h>

#include "_cgo_export.h"
#include "dormouse_llama.h"
#include "shim.h"

#define NAME(name) #name,
static const char *const names[] = {DORMOUSE_LLAMA_FUNCTIONS(NAME, NAME)};
enum { NAMES = sizeof names / sizeof *names };

const char *dormouse_llama_function_name(size_t i) { return i < NAMES ? names[i] : NULL; }

/* The address of a function that the host has, or 0: the table of an older host ends earlier. */
uintptr_t dormouse_shim_function(const dormouse_llama_functions *f, char *name) {
	size_t i, at;
	dormouse_llama_fn fn;
	for (i = 0; i < NAMES; i++) {
		if (strcmp(names[i], name) != 0) continue;
		at = offsetof(dormouse_llama_functions, llama_get_model) + i * sizeof fn;
		if (f->size < at + sizeof fn) return 0;
		memcpy(&fn, (const char *)f + at, sizeof fn);
		return (uintptr_t)fn;
	}
	return 0;
}

/* Go cannot call a pointer. */
int32_t dormouse_shim_decode(dormouse_llama_decode_fn fn, void *user, int32_t *tokens, size_t n, int32_t first, int32_t sequence) {
	int32_t got;
	dormouse_shim_out();
	got = fn(user, tokens, n, first, sequence);
	dormouse_shim_back();
	return got;
}

dormouse_status dormouse_llama_attach(dormouse_store s, const dormouse_llama_functions *functions, void *context, const char *model_path, const char *options, dormouse_llama_decode_fn decode, void *user, const dormouse_call *call, dormouse_llama *out) {
	ENTER();
	return goLlamaAttach(LAST(), s, (dormouse_llama_functions *)functions, context, (char *)model_path, (char *)options, decode, user, (dormouse_call *)call, out);
}

dormouse_status dormouse_llama_close(dormouse_llama l) {
	ENTER();
	return goLlamaClose(LAST(), l);
}

dormouse_status dormouse_llama_info(dormouse_llama l, char *json, size_t cap, size_t *needed) {
	ENTER();
	return goLlamaInfo(LAST(), l, json, cap, needed);
}

dormouse_status dormouse_llama_model(dormouse_llama l, dormouse_model *out) {
	ENTER();
	return goLlamaModel(LAST(), l, out);
}

dormouse_status dormouse_llama_restore(dormouse_llama l, const dormouse_prompt *prompt, int32_t sequence, const dormouse_call *call, dormouse_restored *out) {
	ENTER();
	return goLlamaRestore(LAST(), l, (dormouse_prompt *)prompt, sequence, (dormouse_call *)call, out);
}

dormouse_status dormouse_llama_prefill(dormouse_llama l, const dormouse_prompt *prompt, size_t from, int32_t sequence, const dormouse_call *call) {
	ENTER();
	return goLlamaPrefill(LAST(), l, (dormouse_prompt *)prompt, from, sequence, (dormouse_call *)call);
}

dormouse_status dormouse_llama_save(dormouse_llama l, const dormouse_prompt *prompt, int32_t sequence, const dormouse_call *call, dormouse_put_result *out) {
	ENTER();
	return goLlamaSave(LAST(), l, (dormouse_prompt *)prompt, sequence, (dormouse_call *)call, out);
}

dormouse_status dormouse_llama_capture(dormouse_llama l, const dormouse_prompt *prompt, int32_t sequence, const dormouse_call *call) {
	ENTER();
	return goLlamaCapture(LAST(), l, (dormouse_prompt *)prompt, sequence, (dormouse_call *)call);
}

dormouse_status dormouse_llama_reset(dormouse_llama l, int32_t sequence) {
	ENTER();
	return goLlamaReset(LAST(), l, sequence);
}

dormouse_status dormouse_llama_truncate(dormouse_llama l, int32_t sequence, size_t n) {
	ENTER();
	return goLlamaTruncate(LAST(), l, sequence, n);
}

dormouse_status dormouse_llama_recheck(dormouse_llama l, const dormouse_adapter *adapters, size_t n, const dormouse_call *call) {
	ENTER();
	return goLlamaRecheck(LAST(), l, (dormouse_adapter *)adapters, n, (dormouse_call *)call);
}

dormouse_status dormouse_llama_set_adapters(dormouse_llama l, void *const *loaded, const dormouse_adapter *adapters, size_t n, const dormouse_call *call) {
	ENTER();
	return goLlamaSetAdapters(LAST(), l, (void **)loaded, (dormouse_adapter *)adapters, n, (dormouse_call *)call);
}

dormouse_status dormouse_llama_trim(dormouse_llama l) {
	ENTER();
	return goLlamaTrim(LAST(), l);
}
