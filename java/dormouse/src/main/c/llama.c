/* The native methods of io.github.dormousekv.NativeLlama: dormouse_llama.h over a llama.cpp that is in the process already. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "dormouse_llama.h"

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_io_github_dormousekv_NativeLlama_##name
#define LLAMA(h) ((dormouse_llama){ (uint64_t)(h) })

/* llama_batch of llama.h. */
typedef struct {
	int32_t n_tokens;
	int32_t *token;
	float *embd;
	int32_t *pos, *n_seq_id, **seq_id;
	int8_t *logits;
} batch;

typedef struct {
	void *context;
	int32_t (*decode)(void *, batch);
	batch (*init)(int32_t, int32_t, int32_t);
	void (*free)(batch);
} host;

/* As dormouse_llama_decode of dormouse_llama.h, by addresses. */
static int32_t decode(void *user, const int32_t *tokens, size_t n, int32_t first, int32_t sequence) {
	const host *h = user;
	batch b = h->init((int32_t)n, 0, 1);
	int32_t got;
	for (int32_t i = 0; i < (int32_t)n; i++) {
		b.token[i] = tokens[i], b.pos[i] = first + i;
		b.n_seq_id[i] = 1, b.seq_id[i][0] = sequence;
		b.logits[i] = i == (int32_t)n - 1;
	}
	b.n_tokens = (int32_t)n;
	got = h->decode(h->context, b);
	h->free(b);
	return got;
}

/* A dormouse_llama_functions, by name; null, with an exception, if that cannot be. */
static dormouse_llama_functions *functions_of(JNIEnv *env, given *g, void *library) {
	size_t n = 0;
	void **table;
	dormouse_llama_functions *f;
	while (dormouse_llama_function_name(n) != NULL) n++;
	f = calloc(1, sizeof(size_t) + n * sizeof(void *));
	if (f == NULL || g->n == MEMORIES) {
		free(f);
		throw_new(env, "java/lang/OutOfMemoryError", "dormouse: no memory for a table of functions");
		return NULL;
	}
	g->memory[g->n++] = f;
	f->size = sizeof(size_t) + n * sizeof(void *);
	table = (void **)((char *)f + sizeof(size_t));
	for (size_t i = 0; i < n; i++) table[i] = dlsym(library, dormouse_llama_function_name(i));
	return f;
}

NATIVE(jlong, attach)(JNIEnv *env, jclass c, jlong store, jbyteArray library, jlong context, jbyteArray model, jbyteArray options, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_llama l = { 0 };
	const char *name = text(&g, library), *path = name == NULL ? NULL : text(&g, model), *o = (*env)->ExceptionCheck(env) ? NULL : text(&g, options);
	void *loaded = o == NULL ? NULL : dlopen(name, RTLD_NOW | RTLD_NOLOAD);
	host *h = loaded == NULL ? NULL : malloc(sizeof *h); /* as long as the process: a session may be closed by its store */
	if (h != NULL) {
		dormouse_llama_functions *f = functions_of(env, &g, loaded);
		h->context = (void *)(intptr_t)context;
		*(void **)&h->decode = dlsym(loaded, "llama_decode");
		*(void **)&h->init = dlsym(loaded, "llama_batch_init");
		*(void **)&h->free = dlsym(loaded, "llama_batch_free");
		if (f != NULL && (h->decode == NULL || h->init == NULL || h->free == NULL)) {
			throw_new(env, "java/lang/IllegalArgumentException", "the library has no llama_decode, llama_batch_init or llama_batch_free: is it libllama?");
		} else if (f != NULL) {
			check(env, dormouse_llama_attach((dormouse_store){ (uint64_t)store }, f, h->context, path, o, decode, h, limits(&g), &l));
		}
		if (l.id == 0) free(h);
	} else if (o != NULL) {
		throw_new(env, "java/lang/IllegalArgumentException", "the library is not loaded into this process: name the file as dlopen knows it");
	}
	free_all(&g);
	return (jlong)l.id;
}

NATIVE(void, close)(JNIEnv *env, jclass c, jlong l) { check(env, dormouse_llama_close(LLAMA(l))); }

NATIVE(jbyteArray, info)(JNIEnv *env, jclass c, jlong l) {
	char buf[4096]; /* a sentence and a few numbers */
	size_t needed;
	return check(env, dormouse_llama_info(LLAMA(l), buf, sizeof buf, &needed)) ? bytes_of(env, buf, needed - 1) : NULL;
}

NATIVE(jlong, model)(JNIEnv *env, jclass c, jlong l) {
	dormouse_model m = { 0 };
	check(env, dormouse_llama_model(LLAMA(l), &m));
	return (jlong)m.id;
}

NATIVE(void, restore)(JNIEnv *env, jclass c, jlong l, jobjectArray prompt, jint sequence, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p) && check(env, dormouse_llama_restore(LLAMA(l), &p, sequence, limits(&g), &r))) {
		give(env, out, (const jlong[]){ (jlong)r.tokens, r.reason, (jlong)r.reason_at }, 3);
	}
	free_all(&g);
}

NATIVE(void, prefill)(JNIEnv *env, jclass c, jlong l, jobjectArray prompt, jint from, jint sequence, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p)) check(env, dormouse_llama_prefill(LLAMA(l), &p, (size_t)from, sequence, limits(&g)));
	free_all(&g);
}

NATIVE(void, save)(JNIEnv *env, jclass c, jlong l, jobjectArray prompt, jint sequence, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_put_result r = DORMOUSE_INIT(dormouse_put_result);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p) && check(env, dormouse_llama_save(LLAMA(l), &p, sequence, limits(&g), &r))) {
		give(env, out, (const jlong[]){ (jlong)r.tokens, (jlong)r.blocks, (jlong)r.records, (jlong)r.reused, r.bytes }, 5);
	}
	free_all(&g);
}

NATIVE(void, capture)(JNIEnv *env, jclass c, jlong l, jobjectArray prompt, jint sequence, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p)) check(env, dormouse_llama_capture(LLAMA(l), &p, sequence, limits(&g)));
	free_all(&g);
}

NATIVE(void, reset)(JNIEnv *env, jclass c, jlong l, jint sequence) { check(env, dormouse_llama_reset(LLAMA(l), sequence)); }
NATIVE(void, truncate)(JNIEnv *env, jclass c, jlong l, jint sequence, jint n) { check(env, dormouse_llama_truncate(LLAMA(l), sequence, (size_t)n)); }

/* The adapters are those of a prompt. */
NATIVE(void, recheck)(JNIEnv *env, jclass c, jlong l, jobjectArray prompt, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p)) check(env, dormouse_llama_recheck(LLAMA(l), p.adapters, p.n_adapters, limits(&g)));
	free_all(&g);
}

/* As many are loaded as the prompt has adapters. */
NATIVE(void, setAdapters)(JNIEnv *env, jclass c, jlong l, jlongArray loaded, jobjectArray prompt, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p)) {
		size_t n = p.n_adapters;
		void **all = calloc(n + 1, sizeof *all);
		if (all == NULL) {
			throw_new(env, "java/lang/OutOfMemoryError", "dormouse: no memory for the adapters' addresses");
		} else {
			for (size_t i = 0; i < n; i++) {
				jlong one = 0;
				(*env)->GetLongArrayRegion(env, loaded, (jsize)i, 1, &one);
				all[i] = (void *)(intptr_t)one;
			}
			if (!(*env)->ExceptionCheck(env)) check(env, dormouse_llama_set_adapters(LLAMA(l), all, p.adapters, n, limits(&g)));
			free(all);
		}
	}
	free_all(&g);
}

NATIVE(void, trim)(JNIEnv *env, jclass c, jlong l) { check(env, dormouse_llama_trim(LLAMA(l))); }
