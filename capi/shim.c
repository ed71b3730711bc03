/* The functions of dormouse.h. They keep Go out of a process that was forked, where its runtime does not run, and hold each thread's last error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "dormouse.h"
#include "shim.h"

#if defined(_WIN32)
#include <process.h>
#include <windows.h>
#define getpid _getpid
#else
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#endif

/* A thread's last error lies outside of its static memory, of which there is little for libraries that are loaded late. */
static _Thread_local dormouse_error *mine;
static dormouse_error nobodys; /* where memory is short */
#if !defined(_WIN32)
static pthread_key_t freed; /* at the end of a thread */

/* A destructor of the host's may still call: it gets another one. */
static void forget(void *last) {
	free(last);
	mine = NULL;
}
#endif

dormouse_error *dormouse_shim_last(void) {
	if (mine == NULL) {
		mine = calloc(1, sizeof *mine);
		if (mine == NULL) return &nobodys;
		mine->size = sizeof *mine, mine->offset = -1;
#if !defined(_WIN32)
		pthread_setspecific(freed, mine);
#endif
	}
	return mine;
}

/* What the host had set when this thread's call came in, or its last callback returned. On Go's own threads: the default. */
static _Thread_local dormouse_fp hosts = FP_DEFAULT;

int dormouse_shim_calm(void) {
	hosts = fp_get();
	fp_set(FP_DEFAULT);
	return 1;
}

void dormouse_shim_leave(int *entered) {
	(void)entered;
	fp_set(hosts);
}

void dormouse_shim_out(void) { fp_set(hosts); }

void dormouse_shim_back(void) {
	hosts = fp_get(); /* what a callback sets stays set, as after any function of the host's */
	fp_set(FP_DEFAULT);
}

static volatile int forked;
static int second_copy;
static const char mark[16] = "dormouse-loaded";

#if !defined(_WIN32)
/* The files that lock stores. A child has them, too: the lock would last as long as the child, when its parent is dead. */
enum { LOCKS = 256 };
static volatile int locks[LOCKS]; /* descriptors, from 1 on; 0: none */

static void in_child(void) {
	forked = 1;
	for (int i = 0; i < LOCKS; i++) {
		if (locks[i] != 0) close(locks[i]);
		locks[i] = 0; /* the child may get this number for another file, and fork, too */
	}
}
#endif

/* here reports whether mark lies at an address of this process: a pipe does not take what cannot be read. */
static int here(const void *at) {
	char got[sizeof mark];
	int ok = 0;
#if !defined(_WIN32)
	int ends[2];
	if (pipe(ends) != 0) return 0;
	if (write(ends[1], at, sizeof mark) == (ssize_t)sizeof mark && read(ends[0], got, sizeof mark) == (ssize_t)sizeof mark) ok = memcmp(got, mark, sizeof mark) == 0;
	close(ends[0]);
	close(ends[1]);
#else
	SIZE_T n;
	ok = ReadProcessMemory(GetCurrentProcess(), at, got, sizeof got, &n) && n == sizeof got && memcmp(got, mark, sizeof mark) == 0;
#endif
	return ok;
}

static dormouse_fp loaders;

/* Go's poller begins with the first file that is polled, or the first timer, and takes two descriptors that it cannot do without: a host that has none left when it opens its first store would
 * be aborted. So they are kept from the start, and poller.go has it begin when the library is loaded. */
#if !defined(_WIN32)
static int reserve[3] = {-1, -1, -1};

static void keep_descriptors(void) {
	if (pipe(reserve) != 0) return;
	reserve[2] = dup(reserve[1]);
	for (int i = 0; i < 3; i++) fcntl(reserve[i], F_SETFD, FD_CLOEXEC);
	fcntl(reserve[0], F_SETFL, O_NONBLOCK); /* what blocks is not polled */
}

/* Gives the room of two descriptors, and one to poll, or -1 if there were not so many. */
int dormouse_shim_to_poll(void) {
	int enough = reserve[2] >= 0, file = reserve[0];
	for (int i = enough ? 1 : 0; i < 3; i++) {
		if (reserve[i] >= 0) close(reserve[i]);
	}
	return enough ? file : -1;
}
#else
static void keep_descriptors(void) {}
int dormouse_shim_to_poll(void) { return -1; }
#endif

/* Go's threads inherit their floating-point control from the one that loads the library, and start further ones: the default has to be in force when Go's runtime starts, which is a
 * constructor without a priority. */
__attribute__((constructor(101))) static void before_go(void) {
	loaders = fp_get();
	fp_set(FP_DEFAULT);
	keep_descriptors();
}

/* Runs when the library is loaded, behind Go's start in a shared library: Go's object is linked first. Two copies in one process would be two Go runtimes,
 * with two ideas of who has a store open. The environment is where they meet; a program that was started with exec keeps it, and its process id, but not the mark. */
__attribute__((constructor)) static void loaded(void) {
	char name[64];
	const char *other = getenv("DORMOUSE_LOADED");
	long pid;
	void *at;
	second_copy = other != NULL && sscanf(other, "%ld:%p", &pid, &at) == 2 && pid == (long)getpid() && here(at);
	snprintf(name, sizeof name, "%ld:%p", (long)getpid(), (const void *)mark);
#if defined(_WIN32)
	_putenv_s("DORMOUSE_LOADED", name);
#else
	if (!second_copy) setenv("DORMOUSE_LOADED", name, 1);
	pthread_atfork(NULL, NULL, in_child);
	pthread_key_create(&freed, forget);
#endif
	fp_set(loaders);
}

static dormouse_status fail(dormouse_status status, const char *message) {
	dormouse_error *e = LAST();
	e->status = status;
	e->offset = -1;
	e->file[0] = 0;
	snprintf(e->message, sizeof e->message, "%s", message);
	return status;
}

static _Thread_local int inside; /* callbacks of the host that this thread runs */

static int can_run(void) { return !forked && !second_copy; }

/* Is called by one thread at a time. */
void dormouse_shim_lock(int fd, int locked) {
#if !defined(_WIN32)
	for (int i = 0; i < LOCKS; i++) {
		if (locks[i] == (locked ? 0 : fd)) {
			locks[i] = locked ? fd : 0;
			return;
		}
	}
#else
	(void)fd, (void)locked;
#endif
}

dormouse_status dormouse_shim_enter(void) {
	if (forked) {
		return fail(DORMOUSE_ERR_FORKED, "this process was forked from one that uses Dormouse, and Go does not run here: use exec, or fork before the library is loaded");
	}
	if (second_copy) {
		return fail(DORMOUSE_ERR_SECOND_COPY, "another copy of the Dormouse library is loaded in this process: link or load it once");
	}
	if (inside) { /* the call that waits for the callback may hold what this one would wait for */
		return fail(DORMOUSE_ERR_CALLBACK, "the library was called from within one of its callbacks (layers, view, log): do it when the call that called back has returned");
	}
	return DORMOUSE_OK;
}

/* Texts that the library has given out for ever, where LeakSanitizer sees them: only Go's heap has their addresses otherwise. */
enum { TEXTS = 256 };
static char *volatile texts[TEXTS]; /* volatile: or the compiler leaves out what nobody reads */
static size_t n_texts;

char *dormouse_shim_keep(char *text) {
	size_t i = __atomic_fetch_add(&n_texts, 1, __ATOMIC_RELAXED);
	if (i < TEXTS) texts[i] = text;
	return text;
}

int32_t dormouse_abi_version(void) { return DORMOUSE_ABI_VERSION; }

const char *dormouse_version(void) { return can_run() ? goVersion() : ""; }
const char *dormouse_reason_text(int32_t reason) { return can_run() ? goReasonText(reason) : ""; }

dormouse_status dormouse_last_error(dormouse_error *err) {
	size_t size;
	if (err == NULL || err->size < sizeof(size_t) || err->size > sizeof *err + 4096) return DORMOUSE_ERR_ARGUMENT;
	size = err->size < sizeof *err ? err->size : sizeof *err;
	memcpy((char *)err + sizeof(size_t), (const char *)LAST() + sizeof(size_t), size - sizeof(size_t));
	return DORMOUSE_OK;
}

static void outside(void) {
	inside++;
	dormouse_shim_out();
}

static void back(void) {
	dormouse_shim_back();
	inside--;
}

/* Calls back from Go, which cannot call a pointer. */
void dormouse_call_log(dormouse_log_fn fn, void *user, int32_t level, const char *line) {
	outside();
	fn(user, level, line);
	back();
}

void dormouse_call_layer(dormouse_layer_fn fn, void *user, size_t layer, size_t tokens) {
	outside();
	fn(user, layer, tokens);
	back();
}

int32_t dormouse_call_view(dormouse_view_fn fn, void *user, const dormouse_plane *plane) {
	int32_t got;
	outside();
	got = fn(user, plane);
	back();
	return got;
}

dormouse_status dormouse_set_log(dormouse_log_fn fn, void *user) {
	ENTER();
	return goSetLog(LAST(), fn, user);
}

dormouse_status dormouse_open(const char *dir, const char *options, const dormouse_call *call, dormouse_store *out) {
	ENTER();
	return goOpen(LAST(), (char *)dir, (char *)options, (dormouse_call *)call, out);
}

dormouse_status dormouse_close(dormouse_store s) {
	ENTER();
	return goClose(LAST(), s);
}

dormouse_status dormouse_suspend(dormouse_store s, const dormouse_call *call) {
	ENTER();
	return goSuspend(LAST(), s, (dormouse_call *)call);
}

dormouse_status dormouse_resume(dormouse_store s, const dormouse_call *call) {
	ENTER();
	return goResume(LAST(), s, (dormouse_call *)call);
}

dormouse_status dormouse_pressure(dormouse_store s, int32_t level, const dormouse_call *call) {
	ENTER();
	return goPressure(LAST(), s, level, (dormouse_call *)call);
}

dormouse_status dormouse_sync(dormouse_store s, const dormouse_call *call) {
	ENTER();
	return goSync(LAST(), s, (dormouse_call *)call);
}

dormouse_status dormouse_verify(dormouse_store s, const dormouse_call *call, char *report, size_t cap, size_t *needed) {
	ENTER();
	return goVerify(LAST(), s, (dormouse_call *)call, report, cap, needed);
}

dormouse_status dormouse_stats(dormouse_store s, char *json, size_t cap, size_t *needed) {
	ENTER();
	return goStats(LAST(), s, json, cap, needed);
}

dormouse_status dormouse_hash(const void *data, size_t n, char out[33]) {
	ENTER();
	return goHash(LAST(), (void *)data, n, out);
}

dormouse_status dormouse_hash_file(const char *path, char out[33]) {
	ENTER();
	return goHashFile(LAST(), (char *)path, out);
}

dormouse_status dormouse_register(dormouse_store s, const char *descriptor, const dormouse_call *call, dormouse_model *out) {
	ENTER();
	return goRegister(LAST(), s, (char *)descriptor, (dormouse_call *)call, out);
}

dormouse_status dormouse_fingerprint(dormouse_model m, char out[33]) {
	ENTER();
	return goFingerprint(LAST(), m, out);
}

dormouse_status dormouse_model_close(dormouse_model m) {
	ENTER();
	return goModelClose(LAST(), m);
}

dormouse_status dormouse_retire(dormouse_model m, const dormouse_call *call) {
	ENTER();
	return goRetire(LAST(), m, (dormouse_call *)call);
}

dormouse_status dormouse_probe(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, dormouse_restored *out) {
	ENTER();
	return goProbe(LAST(), m, (dormouse_prompt *)prompt, limit, (dormouse_call *)call, out);
}

dormouse_status dormouse_prefetch(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, size_t *tokens) {
	ENTER();
	return goPrefetch(LAST(), m, (dormouse_prompt *)prompt, limit, (dormouse_call *)call, tokens);
}

dormouse_status dormouse_match_prompt(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, dormouse_match *out, dormouse_restored *found) {
	ENTER();
	return goMatchPrompt(LAST(), m, (dormouse_prompt *)prompt, limit, (dormouse_call *)call, out, found);
}

dormouse_status dormouse_match_close(dormouse_match x) {
	ENTER();
	return goMatchClose(LAST(), x);
}

dormouse_status dormouse_restore(dormouse_match x, const dormouse_rows *rows, size_t n_rows, const dormouse_call *call, dormouse_restored *out) {
	ENTER();
	return goRestore(LAST(), x, (dormouse_rows *)rows, n_rows, (dormouse_call *)call, out);
}

dormouse_status dormouse_restore_layers(dormouse_match x, const dormouse_rows *rows, size_t n_rows, dormouse_layer_fn ready, void *user, const dormouse_call *call, dormouse_restored *out) {
	ENTER();
	return goRestoreLayers(LAST(), x, (dormouse_rows *)rows, n_rows, ready, user, (dormouse_call *)call, out);
}

dormouse_status dormouse_state_bytes(dormouse_match x, size_t tensor, int64_t *bytes) {
	ENTER();
	return goStateBytes(LAST(), x, tensor, bytes);
}

dormouse_status dormouse_put(dormouse_model m, const dormouse_prompt *prompt, const dormouse_rows *rows, size_t n_rows, const dormouse_put_options *options, const dormouse_call *call, dormouse_put_result *out) {
	ENTER();
	return goPut(LAST(), m, (dormouse_prompt *)prompt, (dormouse_rows *)rows, n_rows, (dormouse_put_options *)options, (dormouse_call *)call, out);
}

dormouse_status dormouse_extend(dormouse_match x, const dormouse_prompt *prompt, const dormouse_rows *rows, size_t n_rows, const dormouse_put_options *options, const dormouse_call *call, dormouse_put_result *out) {
	ENTER();
	return goExtend(LAST(), x, (dormouse_prompt *)prompt, (dormouse_rows *)rows, n_rows, (dormouse_put_options *)options, (dormouse_call *)call, out);
}

dormouse_status dormouse_view(dormouse_match x, dormouse_view_fn fn, void *user, const dormouse_call *call) {
	ENTER();
	return goView(LAST(), x, fn, user, (dormouse_call *)call);
}

dormouse_status dormouse_set_ref(dormouse_model m, const char *name, const dormouse_prompt *prefix, const dormouse_ref_options *options, const dormouse_call *call) {
	ENTER();
	return goSetRef(LAST(), m, (char *)name, (dormouse_prompt *)prefix, (dormouse_ref_options *)options, (dormouse_call *)call);
}

dormouse_status dormouse_delete_ref(dormouse_store s, const char *name, const dormouse_call *call) {
	ENTER();
	return goDeleteRef(LAST(), s, (char *)name, (dormouse_call *)call);
}

dormouse_status dormouse_delete(dormouse_model m, const dormouse_prompt *prefix, const dormouse_call *call, dormouse_deleted *out) {
	ENTER();
	return goDelete(LAST(), m, (dormouse_prompt *)prefix, (dormouse_call *)call, out);
}

dormouse_status dormouse_delete_scope(dormouse_store s, const char *scope, const dormouse_call *call, dormouse_deleted *out) {
	ENTER();
	return goDeleteScope(LAST(), s, (char *)scope, (dormouse_call *)call, out);
}

dormouse_status dormouse_explain(dormouse_model m, const dormouse_prompt *prompt, size_t limit, const dormouse_call *call, char *json, size_t cap, size_t *needed) {
	ENTER();
	return goExplain(LAST(), m, (dormouse_prompt *)prompt, limit, (dormouse_call *)call, json, cap, needed);
}

dormouse_status dormouse_models(dormouse_store s, const dormouse_call *call, char *json, size_t cap, size_t *needed) {
	ENTER();
	return goModels(LAST(), s, (dormouse_call *)call, json, cap, needed);
}

dormouse_status dormouse_refs(dormouse_store s, const dormouse_call *call, char *json, size_t cap, size_t *needed) {
	ENTER();
	return goRefs(LAST(), s, (dormouse_call *)call, json, cap, needed);
}

dormouse_status dormouse_notes(dormouse_model m, const dormouse_call *call, char *json, size_t cap, size_t *needed) {
	ENTER();
	return goNotes(LAST(), m, (dormouse_call *)call, json, cap, needed);
}

dormouse_status dormouse_checkpoint(dormouse_store s, const dormouse_call *call) {
	ENTER();
	return goCheckpoint(LAST(), s, (dormouse_call *)call);
}

dormouse_status dormouse_shrink(dormouse_store s, int64_t bytes, const dormouse_call *call, int64_t *disk_bytes) {
	ENTER();
	return goShrink(LAST(), s, bytes, (dormouse_call *)call, disk_bytes);
}

dormouse_status dormouse_compact(dormouse_store s, const dormouse_compact_options *options, const dormouse_call *call, dormouse_compacted *out) {
	ENTER();
	return goCompact(LAST(), s, (dormouse_compact_options *)options, (dormouse_call *)call, out);
}
