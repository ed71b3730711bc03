// As much of llama.cpp's llama.h as the program in docs/llamacpp.md uses: it is compiled with this, and linked with nothing.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct llama_model;
struct llama_context;
typedef int32_t llama_token;
typedef int32_t llama_pos;
typedef int32_t llama_seq_id;

struct llama_model_params { int32_t n_gpu_layers; };
struct llama_context_params { uint32_t n_ctx; };

typedef struct llama_batch {
	int32_t        n_tokens;
	llama_token  * token;
	float        * embd;
	llama_pos    * pos;
	int32_t      * n_seq_id;
	llama_seq_id ** seq_id;
	int8_t       * logits;
} llama_batch;

void ggml_backend_load_all(void); // llama.h includes ggml-backend.h
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);
struct llama_model * llama_model_load_from_file(const char * path, struct llama_model_params params);
struct llama_context * llama_init_from_model(struct llama_model * model, struct llama_context_params params);
void llama_model_free(struct llama_model * model);
void llama_free(struct llama_context * ctx);
struct llama_batch llama_batch_init(int32_t n_tokens, int32_t embd, int32_t n_seq_max);
void llama_batch_free(struct llama_batch batch);
int32_t llama_decode(struct llama_context * ctx, struct llama_batch batch);
