/* What Java gives as C takes it, and what C answers as Java takes it. */
#ifndef CONVERT_H
#define CONVERT_H

#include <jni.h>

#include "dormouse.h"

/* Copies of what Java gave, and the structs over them. free_all frees them; pinned memory there is none. */
enum { MEMORIES = 16 };
typedef struct {
	JNIEnv *env;
	void *memory[MEMORIES];
	int n;
	dormouse_call call;
} given;

/* These give 0 or null, and leave an exception pending, if memory is short or an array is not what Native.java says. */
given begin(JNIEnv *env, jlong timeout_ms, jobject cancel);
const dormouse_call *limits(const given *g);
const char *text(given *g, jbyteArray bytes); /* ends with a zero byte already; null stays null */
int prompt_of(given *g, jobjectArray prompt, dormouse_prompt *out);
dormouse_rows *rows_of(given *g, jobjectArray memory, jlongArray shape, size_t *n);
void free_all(given *g);

/* Throws the thread's last error if there is one, and reports whether all is well. */
int check(JNIEnv *env, dormouse_status status);
void throw_new(JNIEnv *env, const char *class, const char *message);
void give(JNIEnv *env, jlongArray to, const jlong *values, jsize n);
jbyteArray bytes_of(JNIEnv *env, const void *data, size_t n);

/* This thread's env, which is attached to the JVM if it was not: then *attached is 1, and detach is to be called. Null if it cannot be. */
JNIEnv *attach(int *attached);
void detach(int attached);

/* What a method of Java threw while C was below it: it is thrown on when the call is over. */
typedef struct {
	jobject target;    /* a reference that is good in every thread */
	jthrowable thrown; /* likewise, or null */
} callback;

void keep_thrown(JNIEnv *env, callback *c);
/* Throws it, if there is one, and reports whether there was. */
int throw_kept(JNIEnv *env, callback *c);

extern jmethodID ready_method, line_method;

#endif
