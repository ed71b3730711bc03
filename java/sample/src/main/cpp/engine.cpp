// What the sample needs of llama.cpp: a model, a context, tokens. Engine.kt declares it. Rows and states are not touched: io.github.dormousekv.Llama does that
// by the address of the context.
#include <jni.h>

#include <string>
#include <vector>

#include <llama.h>

#define ENGINE(type, name) extern "C" JNIEXPORT type JNICALL Java_io_github_dormousekv_sample_Engine_##name

namespace {

struct Engine {
	llama_model *model;
	llama_context *ctx;
	const llama_vocab *vocab;
};

Engine *of(jlong engine) { return reinterpret_cast<Engine *>(engine); }

std::string text_of(JNIEnv *env, jbyteArray bytes) {
	std::string text(env->GetArrayLength(bytes), 0);
	env->GetByteArrayRegion(bytes, 0, (jsize)text.size(), reinterpret_cast<jbyte *>(&text[0]));
	return text;
}

} // namespace

ENGINE(void, start)(JNIEnv *env, jobject, jbyteArray backends) {
	llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
	std::string folder = text_of(env, backends);
	if (folder.empty()) ggml_backend_load_all();
	else ggml_backend_load_all_from_path(folder.c_str());
}

ENGINE(jlong, load)(JNIEnv *env, jobject, jbyteArray path, jint room, jint batch, jint threads) {
	llama_model_params mp = llama_model_default_params();
	mp.n_gpu_layers = 0;
	llama_model *model = llama_model_load_from_file(text_of(env, path).c_str(), mp);
	if (!model) return 0;
	llama_context_params cp = llama_context_default_params();
	cp.n_ctx = room, cp.n_batch = cp.n_ubatch = batch, cp.n_threads = cp.n_threads_batch = threads;
	llama_context *ctx = llama_init_from_model(model, cp);
	if (!ctx) {
		llama_model_free(model);
		return 0;
	}
	return reinterpret_cast<jlong>(new Engine{model, ctx, llama_model_get_vocab(model)});
}

ENGINE(void, free)(JNIEnv *, jobject, jlong engine) {
	llama_free(of(engine)->ctx);
	llama_model_free(of(engine)->model);
	delete of(engine);
}

ENGINE(jlong, context)(JNIEnv *, jobject, jlong engine) { return reinterpret_cast<jlong>(of(engine)->ctx); }

ENGINE(void, clear)(JNIEnv *, jobject, jlong engine) { llama_memory_seq_rm(llama_get_memory(of(engine)->ctx), 0, -1, -1); }

ENGINE(jintArray, tokenize)(JNIEnv *env, jobject, jlong engine, jbyteArray bytes) {
	std::string text = text_of(env, bytes);
	std::vector<llama_token> tokens(text.size() + 8);
	int n = llama_tokenize(of(engine)->vocab, text.data(), (int)text.size(), tokens.data(), (int)tokens.size(), true, true);
	jintArray out = env->NewIntArray(n > 0 ? n : 0);
	if (out && n > 0) env->SetIntArrayRegion(out, 0, n, tokens.data());
	return out;
}

// The likeliest token after the last one that was evaluated; -1 at the end of an answer.
ENGINE(jint, next)(JNIEnv *, jobject, jlong engine) {
	Engine *e = of(engine);
	const float *logits = llama_get_logits_ith(e->ctx, -1);
	llama_token best = 0;
	for (llama_token i = 1; i < llama_vocab_n_tokens(e->vocab); i++) best = logits[i] > logits[best] ? i : best;
	return llama_vocab_is_eog(e->vocab, best) ? -1 : best;
}

ENGINE(jbyteArray, piece)(JNIEnv *env, jobject, jlong engine, jint token) {
	char piece[256];
	int n = llama_token_to_piece(of(engine)->vocab, token, piece, sizeof piece, 0, false);
	jbyteArray out = env->NewByteArray(n > 0 ? n : 0);
	if (out && n > 0) env->SetByteArrayRegion(out, 0, n, reinterpret_cast<jbyte *>(piece));
	return out;
}
