/* The native methods of io.github.dormousekv.Native: one call of dormouse.h each. Nothing here decides anything. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_io_github_dormousekv_Native_##name
#define STORE(h) ((dormouse_store){ (uint64_t)(h) })
#define MODEL(h) ((dormouse_model){ (uint64_t)(h) })
#define MATCH(h) ((dormouse_match){ (uint64_t)(h) })

NATIVE(jint, abi)(JNIEnv *env, jclass c) { return dormouse_abi_version() >= DORMOUSE_ABI_VERSION; }
NATIVE(jstring, version)(JNIEnv *env, jclass c) { return (*env)->NewStringUTF(env, dormouse_version()); }
NATIVE(jstring, reason)(JNIEnv *env, jclass c, jint reason) { return (*env)->NewStringUTF(env, dormouse_reason_text(reason)); }

NATIVE(void, setFlag)(JNIEnv *env, jclass c, jobject flag, jint value) {
	int32_t *at = (*env)->GetDirectBufferAddress(env, flag);
	if (at != NULL) __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}

NATIVE(jint, flag)(JNIEnv *env, jclass c, jobject flag) {
	int32_t *at = (*env)->GetDirectBufferAddress(env, flag);
	return at == NULL ? 0 : __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static void log_line(void *user, int32_t level, const char *line) {
	int attached;
	JNIEnv *env = attach(&attached);
	jbyteArray bytes;
	if (env == NULL) return;
	bytes = bytes_of(env, line, strlen(line));
	if (bytes != NULL) {
		(*env)->CallVoidMethod(env, (jobject)user, line_method, (jint)level, bytes);
		(*env)->DeleteLocalRef(env, bytes);
	}
	(*env)->ExceptionClear(env);
	detach(attached);
}

/* The log is kept for ever: stores that are open may write to it. */
NATIVE(void, setLog)(JNIEnv *env, jclass c, jobject log) {
	if (log == NULL) check(env, dormouse_set_log(NULL, NULL));
	else check(env, dormouse_set_log(log_line, (*env)->NewGlobalRef(env, log)));
}

NATIVE(jlong, open)(JNIEnv *env, jclass c, jbyteArray dir, jbyteArray options, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_store s = { 0 };
	const char *d = text(&g, dir), *o = d == NULL ? NULL : text(&g, options);
	if (o != NULL) check(env, dormouse_open(d, o, limits(&g), &s));
	free_all(&g);
	return (jlong)s.id;
}

NATIVE(void, close)(JNIEnv *env, jclass c, jlong store) { check(env, dormouse_close(STORE(store))); }
NATIVE(void, modelClose)(JNIEnv *env, jclass c, jlong model) { check(env, dormouse_model_close(MODEL(model))); }
NATIVE(void, matchClose)(JNIEnv *env, jclass c, jlong match) { check(env, dormouse_match_close(MATCH(match))); }

NATIVE(void, suspend)(JNIEnv *env, jclass c, jlong store, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	check(env, dormouse_suspend(STORE(store), limits(&g)));
}

NATIVE(void, resume)(JNIEnv *env, jclass c, jlong store, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	check(env, dormouse_resume(STORE(store), limits(&g)));
}

NATIVE(void, sync)(JNIEnv *env, jclass c, jlong store, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	check(env, dormouse_sync(STORE(store), limits(&g)));
}

NATIVE(void, retire)(JNIEnv *env, jclass c, jlong model, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	check(env, dormouse_retire(MODEL(model), limits(&g)));
}

NATIVE(void, pressure)(JNIEnv *env, jclass c, jlong store, jint level, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	check(env, dormouse_pressure(STORE(store), level, limits(&g)));
}

/* What gives a text: a function of dormouse.h by its number here, which is that of Native.Says. */
enum { STATS, VERIFY, MODELS, REFS, NOTES, EXPLAIN };

static dormouse_status says(jint what, jlong handle, const dormouse_prompt *prompt, jint limit, const given *g, char *buf, size_t room, size_t *needed) {
	switch (what) {
	case STATS: return dormouse_stats(STORE(handle), buf, room, needed);
	case VERIFY: return dormouse_verify(STORE(handle), limits(g), buf, room, needed);
	case MODELS: return dormouse_models(STORE(handle), limits(g), buf, room, needed);
	case REFS: return dormouse_refs(STORE(handle), limits(g), buf, room, needed);
	case NOTES: return dormouse_notes(MODEL(handle), limits(g), buf, room, needed);
	default: return dormouse_explain(MODEL(handle), prompt, (size_t)limit, limits(g), buf, room, needed);
	}
}

/* A text of the library's, in a larger buffer if it does not fit. */
static jbyteArray report(JNIEnv *env, jint what, jlong handle, const dormouse_prompt *prompt, jint limit, const given *g) {
	size_t room = 1 << 14, needed = 0;
	for (;;) {
		char *buf = malloc(room);
		jbyteArray out = NULL;
		dormouse_status status;
		if (buf == NULL) {
			throw_new(env, "java/lang/OutOfMemoryError", "dormouse: no memory for a report");
			return NULL;
		}
		status = says(what, handle, prompt, limit, g, buf, room, &needed);
		if (status == DORMOUSE_OK) out = bytes_of(env, buf, needed - 1);
		free(buf);
		if (status != DORMOUSE_ERR_BUFFER) {
			check(env, status);
			return out;
		}
		room = 2 * needed;
	}
}

NATIVE(jbyteArray, say)(JNIEnv *env, jclass c, jint what, jlong handle, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	return report(env, what, handle, NULL, 0, &g);
}

NATIVE(jbyteArray, explain)(JNIEnv *env, jclass c, jlong model, jobjectArray prompt, jint limit, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_prompt p;
	jbyteArray out = prompt_of(&g, prompt, &p) ? report(env, EXPLAIN, model, &p, limit, &g) : NULL;
	free_all(&g);
	return out;
}

NATIVE(void, checkpoint)(JNIEnv *env, jclass c, jlong store, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	check(env, dormouse_checkpoint(STORE(store), limits(&g)));
}

NATIVE(jlong, shrink)(JNIEnv *env, jclass c, jlong store, jlong bytes, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	int64_t disk = 0;
	check(env, dormouse_shrink(STORE(store), bytes, limits(&g), &disk));
	return disk;
}

NATIVE(void, compact)(JNIEnv *env, jclass c, jlong store, jdouble live_share, jboolean all, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_compact_options o = DORMOUSE_INIT(dormouse_compact_options);
	dormouse_compacted d = DORMOUSE_INIT(dormouse_compacted);
	o.live_share = live_share, o.all = all;
	if (check(env, dormouse_compact(STORE(store), &o, limits(&g), &d))) {
		give(env, out, (const jlong[]){ (jlong)d.segments, (jlong)d.records, d.bytes, d.before, d.after }, 5);
	}
}

NATIVE(jstring, hash)(JNIEnv *env, jclass c, jbyteArray data) {
	jsize n = (*env)->GetArrayLength(env, data);
	jbyte *bytes = (*env)->GetByteArrayElements(env, data, NULL);
	char out[33];
	dormouse_status status;
	if (bytes == NULL) return NULL;
	status = dormouse_hash(bytes, (size_t)n, out);
	(*env)->ReleaseByteArrayElements(env, data, bytes, JNI_ABORT);
	return check(env, status) ? (*env)->NewStringUTF(env, out) : NULL;
}

NATIVE(jstring, hashFile)(JNIEnv *env, jclass c, jbyteArray path) {
	given g = begin(env, 0, NULL);
	const char *p = text(&g, path);
	char out[33] = "";
	int ok = p != NULL && check(env, dormouse_hash_file(p, out));
	free_all(&g);
	return ok ? (*env)->NewStringUTF(env, out) : NULL;
}

NATIVE(jlong, register)(JNIEnv *env, jclass c, jlong store, jbyteArray descriptor, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_model m = { 0 };
	const char *d = text(&g, descriptor);
	if (d != NULL) check(env, dormouse_register(STORE(store), d, limits(&g), &m));
	free_all(&g);
	return (jlong)m.id;
}

NATIVE(jstring, fingerprint)(JNIEnv *env, jclass c, jlong model) {
	char out[33];
	return check(env, dormouse_fingerprint(MODEL(model), out)) ? (*env)->NewStringUTF(env, out) : NULL;
}

static void give_restored(JNIEnv *env, jlongArray out, const dormouse_restored *r) {
	give(env, out, (const jlong[]){ (jlong)r->tokens, r->reason, (jlong)r->reason_at }, 3);
}

static void give_deleted(JNIEnv *env, jlongArray out, const dormouse_deleted *d) {
	give(env, out, (const jlong[]){ (jlong)d->blocks, (jlong)d->records, (jlong)d->refs, (jlong)d->sessions, d->bytes }, 5);
}

NATIVE(void, probe)(JNIEnv *env, jclass c, jlong model, jobjectArray prompt, jint limit, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p) && check(env, dormouse_probe(MODEL(model), &p, (size_t)limit, limits(&g), &r))) give_restored(env, out, &r);
	free_all(&g);
}

NATIVE(jint, prefetch)(JNIEnv *env, jclass c, jlong model, jobjectArray prompt, jint limit, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	size_t tokens = 0;
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p)) check(env, dormouse_prefetch(MODEL(model), &p, (size_t)limit, limits(&g), &tokens));
	free_all(&g);
	return (jint)tokens;
}

NATIVE(jlong, match)(JNIEnv *env, jclass c, jlong model, jobjectArray prompt, jint limit, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_match x = { 0 };
	dormouse_prompt p;
	if (prompt_of(&g, prompt, &p) && check(env, dormouse_match_prompt(MODEL(model), &p, (size_t)limit, limits(&g), &x, &r))) give_restored(env, out, &r);
	free_all(&g);
	return (jlong)x.id;
}

/* Layers may become ready in a thread of the library. What ready throws ends the calls to it. */
static void layer_ready(void *user, size_t layer, size_t tokens) {
	callback *to = user;
	int attached;
	JNIEnv *env;
	if (to->thrown != NULL || (env = attach(&attached)) == NULL) return;
	(*env)->CallVoidMethod(env, to->target, ready_method, (jint)layer, (jint)tokens);
	keep_thrown(env, to);
	detach(attached);
}

NATIVE(void, restore)(JNIEnv *env, jclass c, jlong match, jobjectArray memory, jlongArray shape, jobject ready, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	size_t n;
	dormouse_rows *rows = rows_of(&g, memory, shape, &n);
	if (rows != NULL && ready == NULL) {
		if (check(env, dormouse_restore(MATCH(match), rows, n, limits(&g), &r))) give_restored(env, out, &r);
	} else if (rows != NULL) {
		callback to = { (*env)->NewGlobalRef(env, ready), NULL };
		dormouse_status status = dormouse_restore_layers(MATCH(match), rows, n, layer_ready, &to, limits(&g), &r);
		if (!throw_kept(env, &to) && check(env, status)) give_restored(env, out, &r);
	}
	free_all(&g);
}

NATIVE(jlong, stateBytes)(JNIEnv *env, jclass c, jlong match, jint tensor) {
	int64_t bytes = 0;
	check(env, dormouse_state_bytes(MATCH(match), (size_t)tensor, &bytes));
	return bytes;
}

NATIVE(void, put)(JNIEnv *env, jclass c, jboolean extend, jlong handle, jobjectArray prompt, jobjectArray memory, jlongArray shape, jbyteArray codec,
                  jbyteArray compression, jint keep_states, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_put_options o = DORMOUSE_INIT(dormouse_put_options);
	dormouse_put_result r = DORMOUSE_INIT(dormouse_put_result);
	dormouse_prompt p;
	dormouse_rows *rows;
	size_t n;
	o.codec = text(&g, codec);
	if (!(*env)->ExceptionCheck(env)) o.compression = text(&g, compression);
	o.keep_states = keep_states;
	if (!(*env)->ExceptionCheck(env) && prompt_of(&g, prompt, &p) && (rows = rows_of(&g, memory, shape, &n)) != NULL) {
		dormouse_status status =
			extend ? dormouse_extend(MATCH(handle), &p, rows, n, &o, limits(&g), &r) : dormouse_put(MODEL(handle), &p, rows, n, &o, limits(&g), &r);
		if (check(env, status)) give(env, out, (const jlong[]){ (jlong)r.tokens, (jlong)r.blocks, (jlong)r.records, (jlong)r.reused, r.bytes }, 5);
	}
	free_all(&g);
}

NATIVE(void, setRef)(JNIEnv *env, jclass c, jlong model, jbyteArray name, jobjectArray prefix, jboolean pinned, jint priority, jlong ttl_ms, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	dormouse_ref_options o = DORMOUSE_INIT(dormouse_ref_options);
	dormouse_prompt p;
	const char *n = text(&g, name);
	o.pinned = pinned, o.priority = priority, o.ttl_ms = ttl_ms;
	if (n != NULL && prompt_of(&g, prefix, &p)) check(env, dormouse_set_ref(MODEL(model), n, &p, &o, limits(&g)));
	free_all(&g);
}

NATIVE(void, deleteRef)(JNIEnv *env, jclass c, jlong store, jbyteArray name, jlong ms, jobject cancel) {
	given g = begin(env, ms, cancel);
	const char *n = text(&g, name);
	if (n != NULL) check(env, dormouse_delete_ref(STORE(store), n, limits(&g)));
	free_all(&g);
}

NATIVE(void, delete)(JNIEnv *env, jclass c, jlong model, jobjectArray prefix, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_deleted d = DORMOUSE_INIT(dormouse_deleted);
	dormouse_prompt p;
	if (prompt_of(&g, prefix, &p) && check(env, dormouse_delete(MODEL(model), &p, limits(&g), &d))) give_deleted(env, out, &d);
	free_all(&g);
}

NATIVE(void, deleteScope)(JNIEnv *env, jclass c, jlong store, jbyteArray scope, jlong ms, jobject cancel, jlongArray out) {
	given g = begin(env, ms, cancel);
	dormouse_deleted d = DORMOUSE_INIT(dormouse_deleted);
	const char *s = text(&g, scope);
	if (s != NULL && check(env, dormouse_delete_scope(STORE(store), s, limits(&g), &d))) give_deleted(env, out, &d);
	free_all(&g);
}
