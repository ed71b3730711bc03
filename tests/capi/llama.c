/* All functions of dormouse_llama.h on a real llama.cpp, and what each answers to what is wrong. Arguments: an empty folder, a small model, the folder of the
 * libraries, another model or "". */
#include <sys/wait.h>
#include <unistd.h>

#include "llama_kit.h"

enum { N = 200, MORE = 24 };

static struct llama_model *model;
static const char *path;
static dormouse_store store;
static dormouse_llama_functions linked;

#if defined(__x86_64__)
#include <xmmintrin.h>
static unsigned fp(void) { return _mm_getcsr(); }
static void round_up(int on) { _mm_setcsr(on ? 0x1f80 | _MM_ROUND_UP : 0x1f80); }
#else
static unsigned fp(void) { return 0; }
static void round_up(int on) { (void)on; }
#endif

/* A decode function that does what a test wants. */
static struct {
	struct llama_context *context;
	int calls, fail_at; /* 0: never */
	volatile int32_t *cancel;
	int cancel_at;
	dormouse_llama again; /* called from within */
	int status, closed; /* what that said */
	unsigned fp;        /* the floating-point control that it saw */
} host;

static int32_t decode(void *user, const int32_t *tokens, size_t n, int32_t first, int32_t sequence) {
	CHECK(user == &host);
	host.calls++;
	host.fp = fp();
	if (host.calls == host.fail_at) return 7;
	if (host.calls == host.cancel_at) *host.cancel = 1;
	if (host.again.id) host.status = dormouse_llama_trim(host.again), host.closed = dormouse_close(store);
	return dormouse_llama_decode(host.context, tokens, n, first, sequence);
}

static dormouse_llama attach(struct llama_context *c, const char *options) {
	dormouse_llama l;
	OK(dormouse_llama_attach(store, &linked, c, path, options, dormouse_llama_decode, c, NULL, &l));
	return l;
}

static dormouse_status refused(const dormouse_llama_functions *f, void *c, const char *at, const char *options, dormouse_llama_decode_fn d) {
	dormouse_llama l = {7};
	dormouse_status got = dormouse_llama_attach(store, f, c, at, options, d, c, NULL, &l);
	CHECK(got == DORMOUSE_OK || got == DORMOUSE_ERR_FORKED || l.id == 0);
	if (got == DORMOUSE_OK) OK(dormouse_llama_close(l));
	return got;
}

static void table(struct llama_context *c) {
	linked = dormouse_llama_linked();
	size_t n = (sizeof linked - sizeof linked.size) / sizeof(dormouse_llama_fn);
	for (size_t i = 0; i < n; i++) {
		dormouse_llama_fn fn;
		memcpy(&fn, (char *)&linked + sizeof linked.size + i * sizeof fn, sizeof fn);
		CHECK(fn != NULL && dormouse_llama_function_name(i));
	}
	CHECK(dormouse_llama_function_name(n) == NULL && dormouse_llama_function_name(SIZE_MAX) == NULL);
	CHECK(strcmp(dormouse_llama_function_name(0), "llama_get_model") == 0 && strcmp(dormouse_llama_function_name(n - 1), "llama_set_adapters_lora") == 0);

	dormouse_llama_functions f;
#define WITHOUT(name, status) f = linked, f.name = NULL; WANT(status, refused(&f, c, path, NULL, dormouse_llama_decode)); CHECK(status == DORMOUSE_OK || strstr(last(), #name));
#define NEEDED(name) WITHOUT(name, DORMOUSE_ERR_REFUSED)
#define OPTIONAL(name) WITHOUT(name, DORMOUSE_OK)
	DORMOUSE_LLAMA_FUNCTIONS(NEEDED, OPTIONAL)
	f = linked, f.size = 0;
	WANT(DORMOUSE_ERR_ARGUMENT, refused(&f, c, path, NULL, dormouse_llama_decode));
	f.size = sizeof f.size; /* of a host that knew none */
	WANT(DORMOUSE_ERR_REFUSED, refused(&f, c, path, NULL, dormouse_llama_decode));
	CHECK(strstr(last(), "llama_get_model"));
	f.size = offsetof(dormouse_llama_functions, llama_model_is_hybrid); /* of an old host */
	OK(refused(&f, c, path, NULL, dormouse_llama_decode));
	WANT(DORMOUSE_ERR_REFUSED, refused(&f, c, path, "{\"opaque_only\":true}", dormouse_llama_decode)); /* needs a version */
	OK(refused(&linked, c, path, "{\"opaque_only\":true}", dormouse_llama_decode));
}

static void wrong_attachments(struct llama_context *c, struct llama_context *stranger, const char *dir, const char *other) {
	dormouse_llama l;
	dormouse_store none = {0}, wrong = {99999};
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_attach(none, &linked, c, path, NULL, dormouse_llama_decode, c, NULL, &l));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_attach(wrong, &linked, c, path, NULL, dormouse_llama_decode, c, NULL, &l));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_attach(store, &linked, c, path, NULL, dormouse_llama_decode, c, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, refused(NULL, c, path, NULL, dormouse_llama_decode));
	WANT(DORMOUSE_ERR_ARGUMENT, refused(&linked, NULL, path, NULL, dormouse_llama_decode));
	WANT(DORMOUSE_ERR_ARGUMENT, refused(&linked, c, path, NULL, NULL));
	const char *bad[] = {"{", "[]", "{\"no\":1}", "{\"weights\":\"zz\"}", "{\"tokenizer\":\"12\"}", "{\"codec\":\"q99\"}", "{\"compression\":\"x\"}", "{\"align\":-4}",
		"{\"capture_tokens\":-1}", "{\"capture_bytes\":-1}", "{\"block_tokens\":-1}", "{\"keep_states\":-7}", "{\"rope_base\":-1}", "{\"sequence\":99}", "{\"sequence\":-1}", "{\"adapters\":[{\"hash\":\"1\"}]}", "{\"rotated\":3}"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) WANT(DORMOUSE_ERR_ARGUMENT, refused(&linked, c, path, bad[i], dormouse_llama_decode));
	WANT(DORMOUSE_ERR_ARGUMENT, refused(&linked, c, "/does/not/exist.gguf", NULL, dormouse_llama_decode));
	WANT(DORMOUSE_ERR_REFUSED, refused(&linked, c, NULL, NULL, dormouse_llama_decode));
	CHECK(refused(&linked, c, dir, NULL, dormouse_llama_decode) != DORMOUSE_OK);
	OK(refused(&linked, c, NULL, "{\"weights\":\"00112233445566778899aabbccddeeff\",\"tokenizer\":\"ffeeddccbbaa99887766554433221100\"}", dormouse_llama_decode));
	if (other[0]) WANT(DORMOUSE_ERR_IDENTITY, refused(&linked, c, other, NULL, dormouse_llama_decode));
	volatile int32_t flag = 1;
	dormouse_call cancelled = DORMOUSE_INIT(dormouse_call), small = {3, 0, NULL};
	cancelled.cancel = &flag;
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_llama_attach(store, &linked, c, path, NULL, dormouse_llama_decode, c, &cancelled, &l));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_attach(store, &linked, c, path, NULL, dormouse_llama_decode, c, &small, &l));
	host.context = c, host.calls = 0, host.fail_at = 1;
	round_up(1);
	unsigned hosts = fp();
	WANT(DORMOUSE_ERR_DECODE, dormouse_llama_attach(store, &linked, c, path, NULL, decode, &host, NULL, &l));
	CHECK(strstr(last(), "returned 7"));
	CHECK(host.fp == hosts && fp() == hosts); /* the decode function is the host's */
	round_up(0);
	host.fail_at = 0, host.context = stranger; /* it evaluates in another context than the one that is said */
	CHECK(dormouse_llama_attach(store, &linked, c, path, NULL, decode, &host, NULL, &l) != DORMOUSE_OK);
	wipe(stranger, 0);
	CHECK(held(c, 0) == 0);
}

/* One context computes and saves, another one restores and writes the same. */
static void two_contexts(struct llama_context *a, struct llama_context *b, const int32_t *tokens) {
	dormouse_llama la = attach(a, NULL), lb = attach(b, NULL);
	dormouse_prompt p = prompt_of(tokens, N), head = prompt_of(tokens, N - 1);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_put_result put = DORMOUSE_INIT(dormouse_put_result);
	char text[2048];
	size_t needed;
	OK(dormouse_llama_restore(la, &p, 0, NULL, &r));
	CHECK(r.tokens == 0 && strstr(dormouse_reason_text(r.reason), "nothing stored"));
	WANT(DORMOUSE_ERR_POSITIONS, dormouse_llama_save(la, &p, 0, NULL, &put));
	OK(dormouse_llama_prefill(la, &head, 0, 0, NULL));
	OK(dormouse_llama_prefill(la, &p, N - 1, 0, NULL));
	OK(dormouse_llama_save(la, &p, 0, NULL, &put));
	CHECK(put.tokens == N && put.bytes > 0);
	OK(dormouse_llama_save(la, &p, 0, NULL, NULL));
	WANT(DORMOUSE_ERR_NOT_EMPTY, dormouse_llama_restore(la, &p, 0, NULL, &r));
	CHECK(held(a, 0) == N && r.tokens == 0);
	int32_t want[MORE], got[MORE];
	go_on(a, 0, N, want, MORE);

	OK(dormouse_llama_restore(lb, &p, 1, NULL, &r));
	CHECK(r.tokens == N - 1 && held(b, 1) == N - 1 && held(b, 0) == 0);
	OK(dormouse_llama_prefill(lb, &p, r.tokens, 1, NULL));
	go_on(b, 1, N, got, MORE);
	CHECK(memcmp(want, got, sizeof got) == 0);

	/* what was written behind the prompt is kept, too, if it is said */
	int32_t longer[N + MORE];
	memcpy(longer, tokens, N * sizeof *tokens), memcpy(longer + N, got, sizeof got);
	dormouse_prompt lp = prompt_of(longer, N + MORE);
	OK(dormouse_llama_save(lb, &lp, 1, NULL, &put));
	CHECK(put.tokens == N + MORE);
	dormouse_model m;
	OK(dormouse_llama_model(lb, &m));
	OK(dormouse_probe(m, &lp, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens == N + MORE);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_model(lb, NULL));
	OK(dormouse_model_close(m));

	OK(dormouse_llama_info(lb, text, sizeof text, &needed));
	CHECK(strlen(text) == needed - 1 && strstr(text, "\"mode\":\"rows\"") && strstr(text, "\"batch_tokens\":64"));
	WANT(DORMOUSE_ERR_BUFFER, dormouse_llama_info(lb, text, needed - 1, &needed));
	WANT(DORMOUSE_ERR_BUFFER, dormouse_llama_info(lb, NULL, 0, &needed));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_info(lb, NULL, needed, NULL));
	OK(dormouse_llama_close(la));
	OK(dormouse_llama_close(lb));
	wipe(a, 0), wipe(b, 1);
}

static void wrong_calls(struct llama_context *c, const int32_t *tokens) {
	dormouse_llama l = attach(c, NULL), none = {0}, as_store = {store.id};
	dormouse_prompt p = prompt_of(tokens, N), bad = p;
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_put_result put = DORMOUSE_INIT(dormouse_put_result);
	dormouse_model as_model = {l.id}, m;
	char text[33];
	WANT(DORMOUSE_ERR_HANDLE, dormouse_fingerprint(as_model, text));
	for (int i = 0; i < 2; i++) {
		dormouse_llama h = i ? as_store : none;
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_restore(h, &p, 0, NULL, &r));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_prefill(h, &p, 0, 0, NULL));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_save(h, &p, 0, NULL, &put));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_capture(h, &p, 0, NULL));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_reset(h, 0));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_truncate(h, 0, 1));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_recheck(h, NULL, 0, NULL));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_set_adapters(h, NULL, NULL, 0, NULL));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_trim(h));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_model(h, &m));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_info(h, text, sizeof text, NULL));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_close(h));
	}
	/* prompts */
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_restore(l, NULL, 0, NULL, &r));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_restore(l, &p, 0, NULL, NULL));
	bad.size = 8;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_prefill(l, &bad, 0, 0, NULL));
	bad = p, bad.tokens = NULL;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_save(l, &bad, 0, NULL, &put));
	r.size = 4;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_restore(l, &p, 0, NULL, &r));
	r.size = sizeof r, put.size = 4;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_save(l, &p, 0, NULL, &put));
	put.size = sizeof put;
	/* an empty prompt, one of one token: nothing to restore */
	dormouse_prompt empty = prompt_of(NULL, 0), one = prompt_of(tokens, 1);
	OK(dormouse_llama_restore(l, &empty, 0, NULL, &r));
	OK(dormouse_llama_restore(l, &one, 0, NULL, &r));
	CHECK(r.tokens == 0 && held(c, 0) == 0);
	OK(dormouse_llama_prefill(l, &empty, 0, 0, NULL));
	/* sequences */
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_restore(l, &p, -1, NULL, &r));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_prefill(l, &p, 0, 99, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_save(l, &p, 99, NULL, &put));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_capture(l, &p, 99, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_reset(l, 99));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_truncate(l, -1, 0));
	/* positions */
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_prefill(l, &p, N + 1, 0, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_prefill(l, &p, SIZE_MAX, 0, NULL));
	WANT(DORMOUSE_ERR_POSITIONS, dormouse_llama_prefill(l, &p, 5, 0, NULL));
	static int32_t endless[5000];
	words(endless, 5000, 9);
	dormouse_prompt lp = prompt_of(endless, 5000);
	WANT(DORMOUSE_ERR_TOO_LONG, dormouse_llama_prefill(l, &lp, 0, 0, NULL));
	CHECK(held(c, 0) == 0);
	/* what contradicts the sequence */
	OK(dormouse_llama_prefill(l, &p, 0, 0, NULL));
	int32_t others[N];
	memcpy(others, tokens, sizeof others);
	others[150]++;
	dormouse_prompt op = prompt_of(others, N);
	WANT(DORMOUSE_ERR_LINEAGE, dormouse_llama_save(l, &op, 0, NULL, &put));
	dormouse_error e = DORMOUSE_INIT(dormouse_error);
	OK(dormouse_last_error(&e));
	CHECK(e.status == DORMOUSE_ERR_LINEAGE && e.offset == 150);
	WANT(DORMOUSE_ERR_LINEAGE, dormouse_llama_capture(l, &op, 0, NULL));
	OK(dormouse_llama_capture(l, &p, 0, NULL));
	/* honest changes: the positions from 150 on, then all */
	llama_memory_seq_rm(llama_get_memory(c), 0, 150, -1);
	OK(dormouse_llama_truncate(l, 0, 150));
	OK(dormouse_llama_truncate(l, 0, SIZE_MAX));
	CHECK(dormouse_llama_decode(c, others + 150, N - 150, 150, 0) == 0);
	OK(dormouse_llama_save(l, &op, 0, NULL, &put));
	CHECK(put.tokens == N);
	wipe(c, 0);
	lp.n_tokens = N;
	for (int i = 0; i < N; i += 50) CHECK(dormouse_llama_decode(c, endless + i, 50, i, 0) == 0);
	WANT(DORMOUSE_ERR_LINEAGE, dormouse_llama_save(l, &lp, 0, NULL, &put));
	OK(dormouse_llama_reset(l, 0));
	OK(dormouse_llama_save(l, &lp, 0, NULL, &put));
	CHECK(put.tokens == N);
	wipe(c, 0);
	/* adapters that are not set */
	dormouse_adapter lora = {{1, 2, 3}, 1};
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_recheck(l, NULL, 1, NULL));
	bad = p, bad.adapters = &lora, bad.n_adapters = 1;
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_restore(l, &bad, 0, NULL, &r));
	OK(dormouse_llama_recheck(l, NULL, 0, NULL));
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_recheck(l, &lora, 1, NULL));
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_save(l, &p, 0, NULL, &put) == DORMOUSE_ERR_POSITIONS ? DORMOUSE_ERR_IDENTITY : DORMOUSE_OK);
	OK(dormouse_llama_recheck(l, NULL, 0, NULL));
	OK(dormouse_llama_trim(l));
	OK(dormouse_llama_close(l));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_close(l));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_restore(l, &p, 0, NULL, &r));
}

static void limits_and_hosts_that_fail(struct llama_context *c) {
	int32_t tokens[N];
	words(tokens, N, 50);
	dormouse_prompt p = prompt_of(tokens, N);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_llama l;
	host.context = c, host.calls = 0;
	OK(dormouse_llama_attach(store, &linked, c, path, NULL, decode, &host, NULL, &l));
	volatile int32_t flag = 0;
	dormouse_call call = DORMOUSE_INIT(dormouse_call);
	call.cancel = host.cancel = &flag;
	host.calls = 0, host.cancel_at = 1;
	WANT(DORMOUSE_ERR_CANCELLED, (dormouse_llama_prefill(l, &p, 0, 0, &call), usleep(20000), dormouse_llama_prefill(l, &p, held(c, 0), 0, &call)));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_llama_restore(l, &p, 1, &call, &r));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_llama_save(l, &p, 0, &call, NULL));
	wipe(c, 0);
	host.cancel_at = 0, host.calls = 0, host.fail_at = 2; /* the second batch */
	WANT(DORMOUSE_ERR_DECODE, dormouse_llama_prefill(l, &p, 0, 0, NULL));
	CHECK(strstr(last(), "returned 7") && held(c, 0) == 64);
	host.fail_at = 0;
	OK(dormouse_llama_prefill(l, &p, 64, 0, NULL)); /* it goes on from there */
	wipe(c, 0);
	host.again = l;
	OK(dormouse_llama_prefill(l, &p, 0, 0, NULL));
	CHECK(host.status == DORMOUSE_ERR_BUSY && host.closed == DORMOUSE_ERR_BUSY);
	host.again.id = 0;
	OK(dormouse_llama_save(l, &p, 0, NULL, NULL));
	wipe(c, 0);

	/* fork: an answer at once, and the parent goes on */
	pid_t child = fork();
	if (child == 0) {
		alarm(5);
		_exit(dormouse_llama_restore(l, &p, 0, NULL, &r) != DORMOUSE_ERR_FORKED || dormouse_llama_close(l) != DORMOUSE_ERR_FORKED ||
		      refused(&linked, c, path, NULL, dormouse_llama_decode) != DORMOUSE_ERR_FORKED || dormouse_llama_function_name(0) == NULL);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(dormouse_llama_restore(l, &p, 0, NULL, &r));
	CHECK(r.tokens == N - 1);
	wipe(c, 0);

	OK(dormouse_suspend(store, NULL));
	WANT(DORMOUSE_ERR_SUSPENDED, dormouse_llama_restore(l, &p, 0, NULL, &r));
	CHECK(held(c, 0) == 0);
	OK(dormouse_resume(store, NULL));
	OK(dormouse_llama_restore(l, &p, 0, NULL, &r));
	CHECK(r.tokens == N - 1);
	wipe(c, 0);
	OK(dormouse_close(store)); /* and the session with it */
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_restore(l, &p, 0, NULL, &r));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_close(l));
}

int main(int argc, char **argv) {
	CHECK(argc == 5);
	path = argv[2];
	model = load(path, argv[3]);
	struct llama_context *a = context_of(model, 512, 64, 2), *b = context_of(model, 1024, 64, 2);
	int32_t tokens[N];
	words(tokens, N, 1);
	OK(dormouse_open(argv[1], "{\"codec\":\"raw\",\"budget\":67108864}", NULL, &store));
	table(a);
	wrong_attachments(a, b, argv[1], argv[4]);
	two_contexts(a, b, tokens);
	wrong_calls(b, tokens);
	limits_and_hosts_that_fail(a);
	llama_free(a), llama_free(b);
	llama_model_free(model);
	printf("llama: ok, llama.cpp %s\n", llama_version());
	return 0;
}
