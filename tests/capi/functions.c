/* All functions, and what each answers to what is wrong. The argument is an empty folder. */
#include <pthread.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv) {
	CHECK(argc == 2);
	const char *dir = argv[1];
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
	dormouse_call small = {3, 0, NULL};
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_open(dir, NULL, &small, &s));
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
	OK(dormouse_delete_ref(s, "pin", NULL));
	WANT(DORMOUSE_ERR_NOT_FOUND, dormouse_delete_ref(s, "pin", NULL));
	dormouse_prompt scoped = p;
	scoped.scope = "alice", scoped.scope_start = 64;
	OK(dormouse_put(m, &scoped, c.rows, TENSORS, NULL, NULL, &put));
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
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_pressure(s, 0, NULL, NULL));
	OK(dormouse_pressure(s, 1, NULL, &bytes));

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
	OK(dormouse_set_log(NULL, NULL));
	drop(&c), drop(&got), drop(&more);
	printf("functions: ok, %d lines logged\n", lines);
	return 0;
}
