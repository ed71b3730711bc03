#include "convert.h"

#include <stdlib.h>
#include <string.h>

static JavaVM *vm;
static jclass exception_class;
static jmethodID exception_of;
jmethodID ready_method, line_method;

static jmethodID method_of(JNIEnv *env, const char *class, const char *name, const char *signature) {
	jclass c = (*env)->FindClass(env, class);
	return c == NULL ? NULL : (*env)->GetMethodID(env, c, name, signature);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *loader, void *reserved) {
	JNIEnv *env;
	jclass c;
	vm = loader;
	if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
	c = (*env)->FindClass(env, "io/github/dormousekv/DormouseException");
	if (c == NULL) return JNI_ERR;
	exception_class = (*env)->NewGlobalRef(env, c);
	exception_of = (*env)->GetStaticMethodID(env, c, "of", "(IJ[B[B)Lio/github/dormousekv/DormouseException;");
	ready_method = method_of(env, "io/github/dormousekv/Match$LayerReady", "ready", "(II)V");
	line_method = method_of(env, "io/github/dormousekv/Log", "bytes", "(I[B)V");
	if (exception_class == NULL || exception_of == NULL || ready_method == NULL || line_method == NULL) return JNI_ERR;
	return JNI_VERSION_1_6;
}

void throw_new(JNIEnv *env, const char *class, const char *message) {
	jclass c = (*env)->FindClass(env, class);
	if (c != NULL) (*env)->ThrowNew(env, c, message);
}

static void *copy_room(given *g, size_t n) {
	void *m = g->n == MEMORIES ? NULL : calloc(1, n > 0 ? n : 1);
	if (m == NULL) {
		throw_new(g->env, "java/lang/OutOfMemoryError", "dormouse: no memory for a copy of an argument");
		return NULL;
	}
	g->memory[g->n++] = m;
	return m;
}

void free_all(given *g) {
	while (g->n > 0) free(g->memory[--g->n]);
}

given begin(JNIEnv *env, jlong timeout_ms, jobject cancel) {
	given g = { .env = env, .call = DORMOUSE_INIT(dormouse_call) };
	g.call.timeout_ms = timeout_ms;
	g.call.cancel = cancel == NULL ? NULL : (*env)->GetDirectBufferAddress(env, cancel);
	return g;
}

/* Null where there is no limit: the library takes a shorter way then. */
const dormouse_call *limits(const given *g) {
	return g->call.timeout_ms > 0 || g->call.cancel != NULL ? &g->call : NULL;
}

const char *text(given *g, jbyteArray bytes) {
	char *out;
	jsize n;
	if (bytes == NULL) return NULL;
	n = (*g->env)->GetArrayLength(g->env, bytes);
	out = copy_room(g, (size_t)n + 1);
	if (out != NULL) (*g->env)->GetByteArrayRegion(g->env, bytes, 0, n, (jbyte *)out);
	return out;
}

/* prompt is what Prompt.java packs: int[] tokens, byte[] scope, long[] {tokens, scope start, each span's start and length}, byte[] hashes of
 * spans and adapters, float[] scales of adapters. */
int prompt_of(given *g, jobjectArray prompt, dormouse_prompt *out) {
	JNIEnv *env = g->env;
	jobject part[5];
	jlong *numbers;
	jsize n, n_numbers, n_spans, n_adapters;
	int32_t *tokens;
	uint8_t *hashes;
	float *scales;
	dormouse_span *spans;
	dormouse_adapter *adapters;
	for (jsize i = 0; i < 5; i++) part[i] = (*env)->GetObjectArrayElement(env, prompt, i);
	n_numbers = (*env)->GetArrayLength(env, part[2]);
	n_spans = (n_numbers - 2) / 2;
	n_adapters = (*env)->GetArrayLength(env, part[4]);
	if ((numbers = copy_room(g, (size_t)n_numbers * sizeof *numbers)) == NULL) return 0;
	(*env)->GetLongArrayRegion(env, part[2], 0, n_numbers, numbers);
	n = (jsize)numbers[0];
	if ((tokens = copy_room(g, (size_t)n * sizeof *tokens)) == NULL || (hashes = copy_room(g, (size_t)(n_spans + n_adapters) * 16)) == NULL ||
	    (scales = copy_room(g, (size_t)n_adapters * sizeof *scales)) == NULL || (spans = copy_room(g, (size_t)n_spans * sizeof *spans)) == NULL ||
	    (adapters = copy_room(g, (size_t)n_adapters * sizeof *adapters)) == NULL) {
		return 0;
	}
	(*env)->GetIntArrayRegion(env, part[0], 0, n, (jint *)tokens);
	(*env)->GetByteArrayRegion(env, part[3], 0, (n_spans + n_adapters) * 16, (jbyte *)hashes);
	(*env)->GetFloatArrayRegion(env, part[4], 0, n_adapters, scales);
	if ((*env)->ExceptionCheck(env)) return 0;
	for (jsize i = 0; i < n_spans; i++) {
		spans[i].start = (size_t)numbers[2 + 2 * i], spans[i].len = (size_t)numbers[3 + 2 * i];
		memcpy(spans[i].hash, hashes + 16 * i, 16);
	}
	for (jsize i = 0; i < n_adapters; i++) {
		memcpy(adapters[i].hash, hashes + 16 * (n_spans + i), 16);
		adapters[i].scale = scales[i];
	}
	*out = (dormouse_prompt)DORMOUSE_INIT(dormouse_prompt);
	out->tokens = tokens, out->n_tokens = (size_t)n;
	out->spans = spans, out->n_spans = (size_t)n_spans;
	out->adapters = adapters, out->n_adapters = (size_t)n_adapters;
	out->scope_start = (size_t)numbers[1];
	out->scope = text(g, part[1]);
	return !(*env)->ExceptionCheck(env);
}

/* memory is the direct buffers of all pieces, shape what Rows.java packs: for each tensor {first, pieces, and for each of these: where it begins in its
 * buffer, bytes, rows, row stride, element stride}. The buffers stay where they are, and the array keeps them, as long as the native method runs. */
dormouse_rows *rows_of(given *g, jobjectArray memory, jlongArray shape, size_t *n) {
	JNIEnv *env = g->env;
	jsize n_shape = (*env)->GetArrayLength(env, shape), n_pieces = (*env)->GetArrayLength(env, memory), tensor = 0, piece = 0, i = 0;
	jlong *s = copy_room(g, (size_t)n_shape * sizeof *s);
	dormouse_rows *rows = copy_room(g, (size_t)n_shape * sizeof *rows);
	dormouse_piece *pieces = copy_room(g, (size_t)n_pieces * sizeof *pieces);
	if (s == NULL || rows == NULL || pieces == NULL) return NULL;
	(*env)->GetLongArrayRegion(env, shape, 0, n_shape, s);
	while (i < n_shape) {
		dormouse_rows *r = &rows[tensor++];
		r->first = (size_t)s[i], r->n_pieces = (size_t)s[i + 1], r->pieces = &pieces[piece];
		i += 2;
		for (size_t k = 0; k < r->n_pieces; k++, i += 5) {
			jobject buffer = (*env)->GetObjectArrayElement(env, memory, piece);
			char *mem = (*env)->GetDirectBufferAddress(env, buffer);
			dormouse_piece *p = &pieces[piece++];
			(*env)->DeleteLocalRef(env, buffer);
			if (mem == NULL) {
				throw_new(env, "java/lang/IllegalArgumentException", "dormouse: this JVM does not say where a direct buffer lies");
				return NULL;
			}
			p->mem = mem + s[i], p->bytes = (size_t)s[i + 1], p->count = (size_t)s[i + 2];
			p->row_stride = (size_t)s[i + 3], p->elem_stride = (size_t)s[i + 4];
			p->heads = p->head_stride = 0;
		}
	}
	*n = (size_t)tensor;
	return rows;
}

jbyteArray bytes_of(JNIEnv *env, const void *data, size_t n) {
	jbyteArray out = n > INT32_MAX ? NULL : (*env)->NewByteArray(env, (jsize)n);
	if (out != NULL) (*env)->SetByteArrayRegion(env, out, 0, (jsize)n, data);
	return out;
}

int check(JNIEnv *env, dormouse_status status) {
	dormouse_error e = DORMOUSE_INIT(dormouse_error);
	jbyteArray file, message;
	jobject thrown;
	if (status == DORMOUSE_OK) return 1;
	dormouse_last_error(&e);
	if ((message = bytes_of(env, e.message, strlen(e.message))) == NULL || (file = bytes_of(env, e.file, strlen(e.file))) == NULL) return 0;
	thrown = (*env)->CallStaticObjectMethod(env, exception_class, exception_of, (jint)status, (jlong)e.offset, file, message);
	if (thrown != NULL) (*env)->Throw(env, thrown);
	return 0;
}

void give(JNIEnv *env, jlongArray to, const jlong *values, jsize n) {
	(*env)->SetLongArrayRegion(env, to, 0, n, values);
}

JNIEnv *attach(int *attached) {
	JNIEnv *env = NULL;
	*attached = 0;
	if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) == JNI_OK) return env;
#ifdef __ANDROID__
	if ((*vm)->AttachCurrentThreadAsDaemon(vm, &env, NULL) != JNI_OK) return NULL;
#else
	if ((*vm)->AttachCurrentThreadAsDaemon(vm, (void **)&env, NULL) != JNI_OK) return NULL;
#endif
	*attached = 1;
	return env;
}

void detach(int attached) {
	if (attached) (*vm)->DetachCurrentThread(vm);
}

void keep_thrown(JNIEnv *env, callback *c) {
	jthrowable thrown = (*env)->ExceptionOccurred(env);
	if (thrown == NULL) return;
	(*env)->ExceptionClear(env);
	if (c->thrown == NULL) c->thrown = (*env)->NewGlobalRef(env, thrown);
	(*env)->DeleteLocalRef(env, thrown);
}

int throw_kept(JNIEnv *env, callback *c) {
	int was = c->thrown != NULL;
	if (was) {
		(*env)->Throw(env, c->thrown);
		(*env)->DeleteGlobalRef(env, c->thrown);
	}
	if (c->target != NULL) (*env)->DeleteGlobalRef(env, c->target);
	return was;
}
