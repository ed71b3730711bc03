/* All functions, and what each answers to what is wrong. The argument is an empty folder. */
#include <errno.h>
#include <pthread.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__GLIBC__) && defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "check.h"

enum { N = 300 };

/* What the library says when a callback calls it: an error at once, of this very match and store, too. */
static struct {
	dormouse_store s;
	dormouse_match x;
} busy;
static void call_from_within(void) {
	dormouse_store other;
	char text[33];
	WANT(DORMOUSE_ERR_CALLBACK, dormouse_match_close(busy.x));
	CHECK(strstr(last(), "callback"));
	WANT(DORMOUSE_ERR_CALLBACK, dormouse_close(busy.s));
	WANT(DORMOUSE_ERR_CALLBACK, dormouse_suspend(busy.s, NULL));
	WANT(DORMOUSE_ERR_CALLBACK, dormouse_open("/tmp", NULL, NULL, &other));
	WANT(DORMOUSE_ERR_CALLBACK, dormouse_hash("abc", 3, text));
	CHECK(dormouse_version()[0] && dormouse_reason_text(0)[0] && dormouse_abi_version() == DORMOUSE_ABI_VERSION);
}

static int lines;
static void on_log(void *user, int32_t level, const char *line) {
	(void)user, (void)level;
	call_from_within();
	if (line[0]) __atomic_add_fetch(&lines, 1, __ATOMIC_RELAXED);
}

static size_t layers_seen, layer_tokens;
static void on_layer(void *user, size_t layer, size_t tokens) {
	CHECK(user == &layers_seen);
	CHECK(layer == layers_seen);
	call_from_within();
	layers_seen++, layer_tokens = tokens;
}

static int planes;
static int32_t on_plane(void *user, const dormouse_plane *p) {
	CHECK(p->size == sizeof *p && p->tensor < TENSORS && p->bytes > 0 && p->data && p->codec[0]);
	const uint8_t *b = p->data;
	CHECK(b[0] + b[p->bytes - 1] >= 0); /* it can be read */
	call_from_within();
	planes++;
	return user != NULL;
}

/* Whether this process has the file open that locks a store: /proc/self/fd is this process's own, also after a fork. */
static int lock_is_open(const char *dir) {
	char name[4096], is[4096], wanted[4096];
	CHECK(realpath(dir, wanted));
	strncat(wanted, "/LOCK", sizeof wanted - strlen(wanted) - 1);
	for (int fd = 0; fd < 1024; fd++) {
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(name, is, sizeof is - 1);
		if (n > 0 && (is[n] = 0, strcmp(is, wanted) == 0)) return 1;
	}
	return 0;
}

static dormouse_model shared;
/* A destructor of the host's that calls, after the one of the library: in the order of the keys. */
static pthread_key_t hosts;
static void at_the_end(void *arg) {
	(void)arg;
	WANT(DORMOUSE_ERR_HANDLE, dormouse_match_close((dormouse_match){0}));
	CHECK(strstr(last(), "handle"));
}
static void *end_with_a_call(void *arg) {
	CHECK(pthread_setspecific(hosts, arg) == 0);
	WANT(DORMOUSE_ERR_HANDLE, dormouse_match_close((dormouse_match){0}));
	return NULL;
}

static void *restore_many(void *arg) {
	int32_t tokens[N];
	cache got, want;
	tokens_of(tokens, N, 1);
	make(&got, N), make(&want, N);
	compute(&want, N, tokens);
	for (int i = 0; i < 25; i++) {
		dormouse_prompt p = prompt_of(tokens, N);
		dormouse_match x;
		dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
		OK(dormouse_match_prompt(shared, &p, DORMOUSE_ALL, NULL, &x, &r));
		CHECK(r.tokens == N);
		OK(dormouse_restore(x, got.rows, TENSORS, NULL, &r));
		CHECK(r.tokens == N);
		for (int t = 0; t < TENSORS; t++) CHECK(memcmp(got.mem[t], want.mem[t], N * ROW) == 0);
		OK(dormouse_match_close(x));
		WANT(DORMOUSE_ERR_HANDLE, dormouse_match_close(x)); /* this thread's own error */
		CHECK(strstr(last(), "handle"));
	}
	drop(&got), drop(&want);
	return arg;
}

#if defined(__GLIBC__) && defined(__x86_64__)
static unsigned hosts_fp;
static int layers_fp;
static void on_layer_fp(void *user, size_t layer, size_t tokens) {
	(void)user, (void)layer, (void)tokens;
	if (_mm_getcsr() == hosts_fp) layers_fp++;
}

static void put_q8(dormouse_model m, const dormouse_prompt *p, cache *from, cache *to, dormouse_layer_fn fn) {
	dormouse_put_options po = DORMOUSE_INIT(dormouse_put_options);
	dormouse_put_result put = DORMOUSE_INIT(dormouse_put_result);
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	dormouse_match x;
	po.codec = "q8_0";
	OK(dormouse_put(m, p, from->rows, TENSORS, &po, NULL, &put));
	CHECK(put.blocks > 0);
	OK(dormouse_match_prompt(m, p, DORMOUSE_ALL, NULL, &x, &r));
	OK(dormouse_restore_layers(x, to->rows, TENSORS, fn, NULL, NULL, &r));
	CHECK(r.tokens == N);
	OK(dormouse_match_close(x));
	OK(dormouse_delete(m, p, NULL, NULL));
}

/* A host may have floating-point exceptions trapped, round upward, and flush subnormals: calls compute without that, and leave it as it is. */
static void floating_point(dormouse_model m) {
	int32_t tokens[N];
	cache c, got, want;
	tokens_of(tokens, N, 9);
	make(&c, N), make(&got, N), make(&want, N);
	compute(&c, N, tokens);
	memset(c.mem[0], 0, ROW);
	for (int i = 1; i < ROW; i += 2) c.mem[1][i] = 0; /* subnormals */
	dormouse_prompt p = prompt_of(tokens, N);
	put_q8(m, &p, &c, &want, NULL);
	unsigned before = _mm_getcsr();
	hosts_fp = (0x1f80 & ~_MM_MASK_MASK) | _MM_MASK_DENORM | _MM_ROUND_UP | _MM_FLUSH_ZERO_ON; /* what is not masked is trapped */
	_mm_setcsr(hosts_fp);
	int real = _mm_getcsr() == hosts_fp; /* valgrind has the rounding only */
	put_q8(m, &p, &c, &got, on_layer_fp);
	unsigned after = _mm_getcsr();
	_mm_setcsr(before);
	CHECK(!real || after == hosts_fp);
	CHECK(!real || layers_fp == LAYERS);
	for (int t = 0; t < TENSORS; t++) CHECK(memcmp(got.mem[t], want.mem[t], N * ROW) == 0);
	drop(&c), drop(&got), drop(&want);
}
#else
static void floating_point(dormouse_model m) { (void)m; }
#endif

/* A process that has few descriptors left when it opens its first store: an error, and it goes on. */
static void few_files(const char *dir, int left) {
	struct rlimit most = {256, 256};
	dormouse_store s;
	int fd, top = -1, got;
	CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
	while ((fd = open("/dev/null", O_RDONLY)) >= 0) top = fd;
	for (int i = 0; i < left; i++) close(top - i);
	got = dormouse_open(dir, NULL, NULL, &s);
	const char *why = last();
	CHECK(got == DORMOUSE_OK || strstr(why, "too many open files"));
	_exit(0); /* without a leak check, which opens files */
}

static void with_few_files(char *self, const char *dir) {
	for (int left = 0; left <= 4; left++) {
		char is[4096], n[2] = {(char)('0' + left), 0};
		int status;
		snprintf(is, sizeof is, "%s-few", dir);
		pid_t child = fork();
		if (child == 0) {
			execv(self, (char *[]){self, is, n, NULL});
			_exit(errno == ENOEXEC ? 77 : 1);
		}
		CHECK(waitpid(child, &status, 0) == child);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return; /* under qemu, which starts no other machine's programs */
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("with %d descriptors left: ended with %x", left, status);
	}
}

static dormouse_store twice;
static void *close_it(void *arg) {
	*(int *)arg = dormouse_close(twice);
	return NULL;
}

/* Two threads close one store: it is closed once, and neither hears of a llama.cpp context. */
static void close_twice(const char *dir) {
	char name[4096];
	snprintf(name, sizeof name, "%s-twice", dir);
	for (int i = 0; i < 10; i++) {
		pthread_t th[2];
		int got[2];
		OK(dormouse_open(name, NULL, NULL, &twice));
		for (int t = 0; t < 2; t++) CHECK(pthread_create(&th[t], NULL, close_it, &got[t]) == 0);
		for (int t = 0; t < 2; t++) pthread_join(th[t], NULL);
		if (got[0] + got[1] != DORMOUSE_OK + DORMOUSE_ERR_HANDLE || got[0] == got[1]) FAIL("two closes gave %d and %d", got[0], got[1]);
	}
}

int main(int argc, char **argv) {
	if (argc == 3) few_files(argv[1], atoi(argv[2]));
	CHECK(argc == 2);
	const char *dir = argv[1];
	with_few_files(argv[0], dir);
	int32_t tokens[N];
	tokens_of(tokens, N, 1);
	cache c;
	make(&c, N);
	compute(&c, N, tokens);
	char text[33];
	size_t needed;

	CHECK(dormouse_abi_version() == DORMOUSE_ABI_VERSION);
	CHECK(dormouse_version()[0]);
	CHECK(strcmp(dormouse_reason_text(-5), dormouse_reason_text(0)) == 0 && strcmp(dormouse_reason_text(99999), dormouse_reason_text(0)) == 0);
	OK(dormouse_set_log(on_log, NULL));
	OK(dormouse_hash("abc", 3, text));
	CHECK(strlen(text) == 32);
	OK(dormouse_hash(NULL, 0, text));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_hash(NULL, 3, text));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_hash("abc", 3, NULL));
	OK(dormouse_hash_file(argv[0], text));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_hash_file("/does/not/exist", text));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_hash_file(NULL, text));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_hash_file("/", text));
	CHECK(strstr(last(), "folder"));

	/* open */
	dormouse_store s, none = {0}, wrong = {77777};
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(NULL, NULL, NULL, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, NULL, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open("", NULL, NULL, &s));
	WANT(DORMOUSE_ERR_FOREIGN, dormouse_open(argv[0], NULL, NULL, &s)); /* a file */
	WANT(DORMOUSE_ERR_DENIED, dormouse_open("/sys/dormouse", NULL, NULL, &s)); /* not even root makes a folder there */
	WANT(DORMOUSE_ERR_NOT_FOUND, dormouse_open("/does/not/exist", "{\"read_only\":true}", NULL, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, "{", NULL, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, "{\"no\":1}", NULL, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, "{\"budget\":-1}", NULL, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, "{\"codec\":\"q99\"}", NULL, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, "{\"checkpoint_ms\":9223372036854775807}", NULL, &s));
	CHECK(strstr(last(), "checkpoint_ms is 9223372036854775807"));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, "{\"budget\":1.5}", NULL, &s));
	CHECK(strstr(last(), "options: budget is number 1.5: expected a whole number") && !strstr(last(), "Go"));
	dormouse_call small = {3, 0, NULL}, later = {sizeof later + 64, 0, NULL}, garbage = {(size_t)1 << 40, 0, NULL};
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, NULL, &small, &s));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, NULL, &garbage, &s));
	CHECK(strstr(last(), "dormouse_call.size is 1099511627776"));
	OK(dormouse_open(dir, NULL, &later, &s)); /* of a later header */
	OK(dormouse_close(s));
	OK(dormouse_open(dir, "{\"budget\":67108864,\"codec\":\"raw\",\"durability\":\"power\"}", NULL, &s));
	dormouse_store again;
	WANT(DORMOUSE_ERR_LOCKED, dormouse_open(dir, NULL, NULL, &again));
	CHECK(again.id == 0);

	/* register */
	dormouse_model m, no_model = {0};
	WANT(DORMOUSE_ERR_HANDLE, dormouse_register(none, descriptor, NULL, &m));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_register(wrong, descriptor, NULL, &m));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_register(s, NULL, NULL, &m));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_register(s, descriptor, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_register(s, "[]", NULL, &m));
	WANT(DORMOUSE_ERR_DESCRIPTOR, dormouse_register(s, "{\"name\":\"x\"}", NULL, &m));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_register(s, "{\"weights\":\"zz\"}", NULL, &m));
	OK(dormouse_register(s, descriptor, NULL, &m));
	OK(dormouse_fingerprint(m, text));
	CHECK(strlen(text) == 32);
	WANT(DORMOUSE_ERR_HANDLE, dormouse_fingerprint(no_model, text));
	dormouse_model as_model = {s.id};
	WANT(DORMOUSE_ERR_HANDLE, dormouse_fingerprint(as_model, text)); /* a handle of another kind */
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_fingerprint(m, NULL));

	/* put */
	dormouse_prompt p = prompt_of(tokens, N), bad = p;
	dormouse_put_result put = DORMOUSE_INIT(dormouse_put_result);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_put(m, NULL, c.rows, TENSORS, NULL, NULL, &put));
	bad.size = 8;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_put(m, &bad, c.rows, TENSORS, NULL, NULL, &put));
	bad = p, bad.tokens = NULL;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_put(m, &bad, c.rows, TENSORS, NULL, NULL, &put));
	dormouse_span beyond = {N - 1, 5, {0}};
	bad = p, bad.spans = &beyond, bad.n_spans = 1;
	WANT(DORMOUSE_ERR_PROMPT, dormouse_put(m, &bad, c.rows, TENSORS, NULL, NULL, &put));
	WANT(DORMOUSE_ERR_ROWS, dormouse_put(m, &p, c.rows, 1, NULL, NULL, &put));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_put(m, &p, NULL, TENSORS, NULL, NULL, &put));
	c.piece[1].bytes--; /* the last row is not all there */
	WANT(DORMOUSE_ERR_ROWS, dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, &put));
	c.piece[1].bytes++;
	dormouse_put_options po = DORMOUSE_INIT(dormouse_put_options);
	po.codec = "no";
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_put(m, &p, c.rows, TENSORS, &po, NULL, &put));
	po.codec = NULL, po.keep_states = -7;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_put(m, &p, c.rows, TENSORS, &po, NULL, &put));
	CHECK(strstr(last(), "keep_states is -7"));
	for (int t = 0; t < TENSORS; t++) c.rows[t].first = 5;
	WANT(DORMOUSE_ERR_NOT_STORED, dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, &put));
	for (int t = 0; t < TENSORS; t++) c.rows[t].first = 0;
	volatile int32_t flag = 1;
	dormouse_call cancelled = DORMOUSE_INIT(dormouse_call);
	cancelled.cancel = &flag;
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_put(m, &p, c.rows, TENSORS, NULL, &cancelled, &put));
	dormouse_match stopped = {7};
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_match_prompt(m, &p, DORMOUSE_ALL, &cancelled, &stopped, NULL));
	CHECK(stopped.id == 0);
	dormouse_call ages = DORMOUSE_INIT(dormouse_call);
	ages.timeout_ms = INT64_MAX;
	OK(dormouse_put(m, &p, c.rows, TENSORS, NULL, &ages, &put));
	CHECK(put.tokens == N && put.blocks > 0 && put.bytes > 0);
	OK(dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, NULL));

	/* find */
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	OK(dormouse_probe(m, &p, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens == N);
	OK(dormouse_probe(m, &p, 100, NULL, &r));
	CHECK(r.tokens == 100);
	OK(dormouse_probe(m, &p, 0, NULL, &r)); /* a prompt of one token, but for its last */
	CHECK(r.tokens == 0);
	OK(dormouse_prefetch(m, &p, 0, NULL, &needed));
	CHECK(needed == 0);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_probe(m, &p, DORMOUSE_ALL, NULL, NULL));
	OK(dormouse_prefetch(m, &p, DORMOUSE_ALL, NULL, &needed));
	CHECK(needed == N);
	OK(dormouse_prefetch(m, &p, DORMOUSE_ALL, NULL, NULL));
	dormouse_match x, no_match = {0};
	OK(dormouse_match_prompt(m, &p, 0, NULL, &x, &r));
	CHECK(r.tokens == 0);
	OK(dormouse_match_close(x));
	OK(dormouse_match_prompt(m, &p, N - 1, NULL, &x, &r));
	CHECK(r.tokens == N - 1);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_match_prompt(m, &p, DORMOUSE_ALL, NULL, NULL, &r));

	/* restore */
	busy.s = s, busy.x = x;
	cache got;
	make(&got, N);
	OK(dormouse_restore(x, got.rows, TENSORS, NULL, &r));
	CHECK(r.tokens == N - 1);
	for (int t = 0; t < TENSORS; t++) CHECK(memcmp(got.mem[t], c.mem[t], (N - 1) * ROW) == 0 && got.mem[t][(N - 1) * ROW] == 0);
	OK(dormouse_restore_layers(x, got.rows, TENSORS, on_layer, &layers_seen, NULL, &r));
	CHECK(layers_seen == LAYERS && layer_tokens == N - 1);
	OK(dormouse_restore_layers(x, got.rows, TENSORS, NULL, NULL, NULL, &r));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_restore(x, got.rows, TENSORS, NULL, NULL));
	WANT(DORMOUSE_ERR_ROWS, dormouse_restore(x, got.rows, 2, NULL, &r));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_restore(no_match, got.rows, TENSORS, NULL, &r));
	WANT(DORMOUSE_ERR_CANCELLED, dormouse_restore(x, got.rows, TENSORS, &cancelled, &r));
	int64_t bytes;
	OK(dormouse_state_bytes(x, 0, &bytes));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_state_bytes(x, 99, &bytes));
	OK(dormouse_view(x, on_plane, NULL, NULL));
	CHECK(planes >= TENSORS);
	planes = 0;
	OK(dormouse_view(x, on_plane, &planes, NULL));
	CHECK(planes == 1);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_view(x, NULL, NULL, NULL));
	WANT(DORMOUSE_ERR_LEASED, dormouse_close(s));

	/* extend: what the match holds, and 50 tokens more */
	int32_t longer[N + 50];
	tokens_of(longer, N + 50, 1);
	cache more;
	make(&more, N + 50);
	compute(&more, N + 50, longer);
	dormouse_prompt lp = prompt_of(longer, N + 50);
	OK(dormouse_extend(x, &lp, more.rows, TENSORS, NULL, NULL, &put));
	CHECK(put.tokens == N + 50);
	OK(dormouse_match_close(x));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_restore(x, got.rows, TENSORS, NULL, &r));

	/* threads */
	shared = m;
	pthread_t th[8];
	for (int i = 0; i < 8; i++) CHECK(pthread_create(&th[i], NULL, restore_many, NULL) == 0);
	for (int i = 0; i < 8; i++) pthread_join(th[i], NULL);
	CHECK(pthread_key_create(&hosts, at_the_end) == 0);
	for (int i = 0; i < 8; i++) CHECK(pthread_create(&th[i], NULL, end_with_a_call, &hosts) == 0);
	for (int i = 0; i < 8; i++) pthread_join(th[i], NULL);

	/* refs, deletions, figures */
	dormouse_ref_options ro = DORMOUSE_INIT(dormouse_ref_options);
	ro.pinned = 1, ro.priority = 255;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_set_ref(m, "pin", &p, &ro, NULL));
	ro.priority = 3, ro.ttl_ms = -5;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_set_ref(m, "pin", &p, &ro, NULL));
	CHECK(strstr(last(), "ttl_ms is -5"));
	ro.ttl_ms = INT64_MAX;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_set_ref(m, "pin", &p, &ro, NULL));
	ro.ttl_ms = 1000000;
	OK(dormouse_set_ref(m, "pin", &p, &ro, NULL));
	OK(dormouse_set_ref(m, "mark", &p, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_set_ref(m, NULL, &p, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_delete_ref(s, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_delete_scope(s, NULL, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_delete_scope(s, "", NULL, NULL));
	OK(dormouse_delete_ref(s, "pin", NULL));
	WANT(DORMOUSE_ERR_NOT_FOUND, dormouse_delete_ref(s, "pin", NULL));
	dormouse_prompt scoped = p;
	scoped.scope = "alice", scoped.scope_start = 64;
	OK(dormouse_put(m, &scoped, c.rows, TENSORS, NULL, NULL, &put));
	dormouse_prompt unscoped = scoped; /* characters taken for tokens: all of it would be shared */
	unscoped.scope_start = N + 5;
	WANT(DORMOUSE_ERR_PROMPT, dormouse_put(m, &unscoped, c.rows, TENSORS, NULL, NULL, &put));
	WANT(DORMOUSE_ERR_PROMPT, dormouse_probe(m, &unscoped, DORMOUSE_ALL, NULL, &r));
	WANT(DORMOUSE_ERR_PROMPT, dormouse_set_ref(m, "mark", &unscoped, NULL, NULL));
	WANT(DORMOUSE_ERR_PROMPT, dormouse_delete(m, &unscoped, NULL, NULL));
	unscoped.scope = "", unscoped.scope_start = 64;
	WANT(DORMOUSE_ERR_PROMPT, dormouse_put(m, &unscoped, c.rows, TENSORS, NULL, NULL, &put));
	dormouse_deleted d = DORMOUSE_INIT(dormouse_deleted);
	OK(dormouse_delete_scope(s, "alice", NULL, &d));
	CHECK(d.blocks > 0 && d.bytes > 0);
	OK(dormouse_delete(m, &lp, NULL, NULL));
	OK(dormouse_delete(m, &p, NULL, &d));
	OK(dormouse_sync(s, NULL));
	OK(dormouse_probe(m, &p, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens < N);
	WANT(DORMOUSE_ERR_BUFFER, dormouse_stats(s, text, sizeof text, &needed));
	char *big = malloc(needed);
	OK(dormouse_stats(s, big, needed, NULL));
	CHECK(strlen(big) == needed - 1 && strstr(big, "\"puts\""));
	free(big);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_stats(s, NULL, 10, NULL));
	WANT(DORMOUSE_ERR_BUFFER, dormouse_verify(s, NULL, NULL, 0, &needed));
	big = malloc(2 * needed);
	OK(dormouse_verify(s, NULL, big, 2 * needed, &needed));
	CHECK(strstr(big, "\"damage\":[]"));
	free(big);
	OK(dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_pressure(s, 0, NULL));
	for (int32_t level = 1; level <= 3; level++) OK(dormouse_pressure(s, level, NULL));

	floating_point(m);
	close_twice(dir);

	/* asleep */
	OK(dormouse_suspend(s, NULL));
	WANT(DORMOUSE_ERR_SUSPENDED, dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, NULL));
	OK(dormouse_resume(s, NULL));

	/* fork: an answer at once, and the parent goes on */
	CHECK(lock_is_open(dir));
	pid_t child = fork();
	if (child == 0) {
		alarm(60); /* a hang ends here */
		dormouse_error e = DORMOUSE_INIT(dormouse_error);
		int bad = dormouse_probe(m, &p, DORMOUSE_ALL, NULL, &r) != DORMOUSE_ERR_FORKED || dormouse_close(s) != DORMOUSE_ERR_FORKED || dormouse_version()[0] != 0;
		bad |= lock_is_open(dir); /* it would outlive the parent */
		bad |= dormouse_last_error(&e) != DORMOUSE_OK || e.status != DORMOUSE_ERR_FORKED || !strstr(e.message, "forked");
		/* Files that it opens now may get the numbers of locks: a child of its own has them, too. */
		int files[4];
		for (int i = 0; i < 4; i++) files[i] = dup(2);
		pid_t grandchild = fork();
		if (grandchild == 0) {
			int lost = 0;
			for (int i = 0; i < 4; i++) lost |= fcntl(files[i], F_GETFD) == -1;
			_exit(lost);
		}
		int ended;
		bad |= waitpid(grandchild, &ended, 0) != grandchild || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0;
		_exit(bad);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(dormouse_probe(m, &p, DORMOUSE_ALL, NULL, &r));
	CHECK(r.tokens == N);

	/* the end */
	OK(dormouse_retire(m, NULL));
	WANT(DORMOUSE_ERR_RETIRED, dormouse_put(m, &p, c.rows, TENSORS, NULL, NULL, NULL));
	dormouse_model other;
	OK(dormouse_register(s, descriptor, NULL, &other));
	OK(dormouse_model_close(other));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_fingerprint(other, text));
	OK(dormouse_close(s));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_close(s));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_sync(s, NULL));
	WANT(DORMOUSE_ERR_HANDLE, dormouse_fingerprint(m, text)); /* closed with its store */
	dormouse_error tiny = {4, 0, 0, "", ""};
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_last_error(&tiny));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_last_error(NULL));
	tiny.size = (size_t)1 << 40;
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_last_error(&tiny));
	OK(dormouse_set_log(NULL, NULL));
	drop(&c), drop(&got), drop(&more);
	printf("functions: ok, %d lines logged\n", lines);
	return 0;
}
