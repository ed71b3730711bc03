// Llamahost is a program with stock llama.cpp whose process is killed, and which goes on where it was without reading its prompt again.
//
//   capi/build.sh out
//   c++ -std=c++17 -Iout/include -I$LLAMA/include main.cpp -o llamahost -Lout/lib -ldormouse -L$LLAMA/lib -lllama -lggml -lggml-base
//   ./llamahost MODEL.gguf STORE-FOLDER PROMPT-FILE [THREADS [TOKENS-TO-WRITE [BACKENDS-FOLDER [PROMPT-TOKENS]]]]
//
// It starts itself three times: once without a store, never killed; once with one, killed by SIGKILL as soon as the prompt is saved; and once more. The first and
// the last one must write the same, to the letter. What a program of yours needs is in answer; the rest is for the show.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <llama.h>

#include <dormouse_llama.hpp>

struct Job {
	std::string role, model, store, prompt;
	int threads = 2, write = 64;
	std::string backends = "";
	size_t most = 0; // tokens of the prompt; 0: all
};

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] static void fail(const std::string &why) { throw std::runtime_error(why); }

static std::vector<int32_t> tokens_of(const llama_vocab *vocab, const std::string &text) {
	std::vector<int32_t> tokens(text.size() + 8);
	int n = llama_tokenize(vocab, text.data(), (int32_t)text.size(), tokens.data(), (int32_t)tokens.size(), true, true);
	if (n <= 0) fail("the prompt cannot be made tokens of");
	tokens.resize(n);
	return tokens;
}

static int32_t likeliest(llama_context *ctx, const llama_vocab *vocab) {
	const float *logits = llama_get_logits_ith(ctx, -1);
	int32_t best = 0;
	for (int32_t i = 1; i < llama_vocab_n_tokens(vocab); i++) best = logits[i] > logits[best] ? i : best;
	return best;
}

static std::string write_on(llama_context *ctx, const llama_vocab *vocab, int32_t next, int32_t at, int n) {
	std::string text;
	for (; n > 0; n--, at++) {
		char piece[256];
		int bytes = llama_token_to_piece(vocab, next, piece, sizeof piece, 0, false);
		text.append(piece, bytes > 0 ? bytes : 0);
		if (dormouse_llama_decode(ctx, &next, 1, at, 0) != 0) fail("llama_decode");
		next = likeliest(ctx, vocab);
	}
	return text;
}

// answer reads a prompt and writes on. The last token of the prompt is evaluated by itself in all three processes, because it is after a restore: sums are the
// same to the last bit where they are added up in the same batches.
static void answer(const Job &job, llama_context *ctx, const std::vector<int32_t> &tokens) {
	const llama_vocab *vocab = llama_model_get_vocab(llama_get_model(ctx));
	const size_t n = tokens.size();
	dormouse::Prompt prompt(tokens), head(std::vector<int32_t>(tokens.begin(), tokens.end() - 1));

	double start = now();
	dormouse::Store store(job.store, R"({"codec":"raw"})");
	double opened = now();
	dormouse::Llama session(store, ctx, job.model, R"({"memo":")" + job.store + R"(.memo"})");
	double attached = now();
	dormouse_restored got = session.restore(prompt);
	double restored = now();
	if (got.tokens < n - 1) session.prefill(head, got.tokens);
	session.prefill(prompt, n - 1);
	int32_t first = likeliest(ctx, vocab);
	printf("tokens %zu\nreused %zu\nopen %.2f\nattach %.2f\nrestore %.2f\nfirst %.2f\n", n, got.tokens, opened - start, attached - opened, restored - attached, now() - start);
	if (job.role == "first") {
		session.save(prompt);
		fflush(stdout);
		raise(SIGKILL); // nothing is closed
	}
	printf("text %s\n", write_on(ctx, vocab, first, (int32_t)n, job.write).c_str());
	store.sync();
}

static void never_killed(const Job &job, llama_context *ctx, const std::vector<int32_t> &tokens) {
	const int n = (int)tokens.size(), batch = (int)llama_n_batch(ctx);
	double start = now();
	for (int at = 0, end; at < n; at = end) {
		end = at + batch < n - 1 ? at + batch : at < n - 1 ? n - 1 : n;
		if (dormouse_llama_decode(ctx, &tokens[at], end - at, at, 0) != 0) fail("llama_decode");
	}
	const llama_vocab *vocab = llama_model_get_vocab(llama_get_model(ctx));
	int32_t first = likeliest(ctx, vocab);
	printf("tokens %d\nfirst %.2f\n", n, now() - start);
	printf("text %s\n", write_on(ctx, vocab, first, n, job.write).c_str());
}

static void child(const Job &job) {
	llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
	if (job.backends.empty()) ggml_backend_load_all();
	else ggml_backend_load_all_from_path(job.backends.c_str());
	llama_model_params mp = llama_model_default_params();
	mp.n_gpu_layers = 0;
	llama_model *model = llama_model_load_from_file(job.model.c_str(), mp);
	if (!model) fail("no model: " + job.model);
	std::ostringstream text;
	text << std::ifstream(job.prompt).rdbuf();
	std::vector<int32_t> tokens = tokens_of(llama_model_get_vocab(model), text.str());
	if (job.most > 1 && job.most < tokens.size()) tokens.resize(job.most);
	llama_context_params cp = llama_context_default_params();
	cp.n_ctx = (uint32_t)tokens.size() + job.write + 64, cp.n_batch = cp.n_ubatch = 256;
	cp.n_threads = job.threads > 1 ? job.threads - 1 : 1, cp.n_threads_batch = job.threads;
	llama_context *ctx = llama_init_from_model(model, cp);
	if (!ctx) fail("no context");
	if (job.role == "never-killed") never_killed(job, ctx, tokens);
	else answer(job, ctx, tokens);
	llama_free(ctx), llama_model_free(model);
}

// run starts this program in a role and returns what it says, and how it ended.
static std::pair<std::string, int> run(char **argv, const char *role) {
	int ends[2], status;
	if (pipe(ends) != 0) fail("pipe");
	setenv("LLAMAHOST_ROLE", role, 1);
	posix_spawn_file_actions_t to;
	posix_spawn_file_actions_init(&to);
	posix_spawn_file_actions_adddup2(&to, ends[1], 1);
	posix_spawn_file_actions_addclose(&to, ends[0]);
	pid_t pid;
	if (posix_spawnp(&pid, argv[0], &to, nullptr, argv, environ) != 0) fail("this program cannot be started again");
	posix_spawn_file_actions_destroy(&to);
	close(ends[1]);
	std::string said;
	char buf[4096];
	for (ssize_t n; (n = read(ends[0], buf, sizeof buf)) > 0;) said.append(buf, n);
	close(ends[0]);
	waitpid(pid, &status, 0);
	return {said, status};
}

// field is what follows a name at the beginning of a line; the text goes to the end.
static std::string field(const std::string &said, const std::string &name) {
	size_t at = ("\n" + said).find("\n" + name + " ");
	if (at == std::string::npos) fail("a process ended before it said " + name);
	at += name.size() + 1;
	return said.substr(at, name == "text" ? std::string::npos : said.find('\n', at) - at);
}

int main(int argc, char **argv) try {
	if (argc < 4 || argc > 8) fail("usage: llamahost MODEL.gguf STORE-FOLDER PROMPT-FILE [THREADS [TOKENS-TO-WRITE [BACKENDS-FOLDER [PROMPT-TOKENS]]]]");
	Job job{"", argv[1], argv[2], argv[3]};
	if (argc > 4) job.threads = std::stoi(argv[4]);
	if (argc > 5) job.write = std::stoi(argv[5]);
	if (argc > 6) job.backends = argv[6];
	if (argc > 7) job.most = std::stoul(argv[7]);
	if (const char *role = getenv("LLAMAHOST_ROLE")) return job.role = role, child(job), 0;

	auto [want, a] = run(argv, "never-killed");
	auto [first, b] = run(argv, "first");
	auto [second, c] = run(argv, "second");
	if (a != 0 || c != 0 || !WIFSIGNALED(b) || WTERMSIG(b) != SIGKILL) fail("a process did not end as it should:\n" + want + first + second);
	printf("prompt            %s tokens\nnever killed      %s ms to the first token\n", field(want, "tokens").c_str(), field(want, "first").c_str());
	printf("killed by SIGKILL %s ms to the first token, %s tokens reused\n", field(first, "first").c_str(), field(first, "reused").c_str());
	printf("the next process  %s ms to the first token, %s tokens reused\n\n%s\n", field(second, "first").c_str(), field(second, "reused").c_str(), field(second, "text").c_str());
	if (field(second, "reused") == "0" || field(want, "text") != field(second, "text")) fail("the text is not the one of the process that was never killed:\n" + field(want, "text"));
	puts("the same text as in the process that was never killed");
	return 0;
} catch (const std::exception &e) {
	fprintf(stderr, "llamahost: %s\n", e.what());
	return 1;
}
