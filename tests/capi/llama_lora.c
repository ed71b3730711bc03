/* LoRA adapters on a real llama.cpp: what was computed with one is not handed out without it, nor the other way round. Arguments: an empty folder, the small
 * model (stories260K), the folder of the libraries. */
#include <math.h>
#include <sys/stat.h>

#include "llama_kit.h"

enum { N = 200, MORE = 24, IN = 64, RANK = 8, OUT = 32, LAYER_PAIRS = 3 };

static struct llama_model *model;
static const char *path;
static dormouse_store store;

static void number(FILE *f, uint64_t n, size_t bytes) { CHECK(fwrite(&n, bytes, 1, f) == 1); }
static void name(FILE *f, const char *text) {
	number(f, strlen(text), 8);
	CHECK(fputs(text, f) >= 0);
}

static void matrix(FILE *f, int a, int b, uint32_t *x) {
	for (int i = 0; i < a * b; i++) {
		*x = *x * 1664525u + 1013904223u;
		float v = ((float)(*x >> 8) / (1 << 24) - 0.5f) * 2 / sqrtf((float)a);
		CHECK(fwrite(&v, sizeof v, 1, f) == 1);
	}
}

/* An adapter of the model's keys, as a GGUF file. */
static void write_adapter(const char *file) {
	FILE *f = fopen(file, "wb");
	uint32_t x = 7;
	char text[64];
	size_t at = 0;
	CHECK(f && fputs("GGUF", f) >= 0);
	number(f, 3, 4), number(f, 2 * LAYER_PAIRS, 8), number(f, 4, 8);
	const char *texts[][2] = {{"general.architecture", "llama"}, {"general.type", "adapter"}, {"adapter.type", "lora"}};
	for (int i = 0; i < 3; i++) name(f, texts[i][0]), number(f, 8, 4), name(f, texts[i][1]);
	float alpha = RANK;
	name(f, "adapter.lora.alpha"), number(f, 6, 4);
	CHECK(fwrite(&alpha, sizeof alpha, 1, f) == 1);
	for (int i = 0; i < 2 * LAYER_PAIRS; i++) {
		snprintf(text, sizeof text, "blk.%d.attn_k.weight.lora_%c", i / 2, "ab"[i % 2]);
		name(f, text), number(f, 2, 4);
		number(f, i % 2 ? RANK : IN, 8), number(f, i % 2 ? OUT : RANK, 8);
		number(f, 0, 4), number(f, at, 8);
		at += sizeof(float) * RANK * (i % 2 ? OUT : IN); /* a multiple of the alignment */
	}
	while (ftell(f) % 32) fputc(0, f);
	for (int i = 0; i < LAYER_PAIRS; i++) matrix(f, IN, RANK, &x), matrix(f, RANK, OUT, &x);
	CHECK(fclose(f) == 0);
}

static dormouse_status attach(struct llama_context *c, const char *options, dormouse_llama *l) {
	dormouse_llama_functions linked = dormouse_llama_linked();
	return dormouse_llama_attach(store, &linked, c, path, options, dormouse_llama_decode, c, NULL, l);
}

static void set(struct llama_context *c, struct llama_adapter_lora *adapter, float scale) {
	CHECK(llama_set_adapters_lora(c, &adapter, adapter != NULL, &scale) == 0);
}

/* Restores a prompt into the empty sequence 0, and writes on behind it. */
static void restored(dormouse_llama l, struct llama_context *c, const dormouse_prompt *p, const int32_t *want) {
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	int32_t got[MORE];
	OK(dormouse_llama_restore(l, p, 0, NULL, &r));
	CHECK(r.tokens == N - 1);
	OK(dormouse_llama_prefill(l, p, N - 1, 0, NULL));
	go_on(c, 0, N, got, MORE);
	CHECK(memcmp(want, got, sizeof got) == 0);
	wipe(c, 0);
}

int main(int argc, char **argv) {
	CHECK(argc == 4);
	path = argv[2];
	model = load(path, argv[3]);
	char file[4096], digits[33], options[256], half_options[256];
	CHECK(mkdir(argv[1], 0700) == 0);
	snprintf(file, sizeof file, "%s/adapter.gguf", argv[1]);
	write_adapter(file);
	struct llama_adapter_lora *adapter = llama_adapter_lora_init(model, file);
	CHECK(adapter != NULL);
	OK(dormouse_hash_file(file, digits));
	snprintf(options, sizeof options, "{\"adapters\":[{\"hash\":\"%s\"}]}", digits);
	snprintf(half_options, sizeof half_options, "{\"adapters\":[{\"hash\":\"%s\",\"scale\":0.5}]}", digits);
	dormouse_adapter said = {{0}, 1}, half;
	for (int i = 0; i < 16; i++) {
		unsigned byte;
		CHECK(sscanf(digits + 2 * i, "%2x", &byte) == 1);
		said.hash[i] = (uint8_t)byte;
	}
	half = said, half.scale = 0.5f;
	snprintf(file, sizeof file, "%s/store", argv[1]);
	OK(dormouse_open(file, "{\"codec\":\"raw\",\"budget\":67108864}", NULL, &store));

	int32_t tokens[N], base[MORE], adapted[MORE];
	words(tokens, N, 1);
	dormouse_prompt plain = prompt_of(tokens, N), with = plain, less = plain;
	with.adapters = &said, with.n_adapters = 1;
	less.adapters = &half, less.n_adapters = 1;
	dormouse_restored r = DORMOUSE_INIT(dormouse_restored);
	struct llama_context *a = context_of(model, 512, 64, 2), *b = context_of(model, 512, 64, 2);
	dormouse_llama la, lb, none;

	/* a has no adapter, b has one */
	OK(attach(a, NULL, &la));
	OK(dormouse_llama_prefill(la, &plain, 0, 0, NULL));
	OK(dormouse_llama_save(la, &plain, 0, NULL, NULL));
	go_on(a, 0, N, base, MORE);
	wipe(a, 0);
	set(b, adapter, 1);
	WANT(DORMOUSE_ERR_IDENTITY, attach(b, NULL, &none));
	CHECK(none.id == 0);
	WANT(DORMOUSE_ERR_IDENTITY, attach(a, options, &none));
	OK(attach(b, options, &lb));
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_restore(lb, &plain, 0, NULL, &r));
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_prefill(lb, &plain, 0, 0, NULL));
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_restore(lb, &less, 0, NULL, &r));
	CHECK(held(b, 0) == 0);
	OK(dormouse_llama_restore(lb, &with, 0, NULL, &r));
	CHECK(r.tokens == 0 && held(b, 0) == 0); /* what a stored is not b's */
	OK(dormouse_llama_prefill(lb, &with, 0, 0, NULL));
	WANT(DORMOUSE_ERR_LINEAGE, dormouse_llama_save(lb, &plain, 0, NULL, NULL));
	OK(dormouse_llama_save(lb, &with, 0, NULL, NULL));
	go_on(b, 0, N, adapted, MORE);
	CHECK(memcmp(base, adapted, sizeof base) != 0); /* the adapter does something */
	wipe(b, 0);
	restored(lb, b, &with, adapted);

	/* a is asked for what was stored with the adapter */
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_restore(la, &with, 0, NULL, &r));
	CHECK(held(a, 0) == 0);
	restored(la, a, &plain, base);

	/* b's is switched off, and nobody says so; then it is said */
	set(b, NULL, 0);
	OK(dormouse_llama_restore(lb, &plain, 0, NULL, &r)); /* it looks, and finds none */
	CHECK(r.tokens == N - 1);
	wipe(b, 0);
	OK(dormouse_llama_recheck(lb, NULL, 0, NULL));
	restored(lb, b, &plain, base);
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_restore(lb, &with, 0, NULL, &r));
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_recheck(lb, &said, 1, NULL)); /* it is not set */
	CHECK(held(b, 0) == 0);

	/* half of it is another one */
	set(b, adapter, 0.5f);
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_recheck(lb, &said, 1, NULL));
	WANT(DORMOUSE_ERR_IDENTITY, attach(b, options, &none));
	OK(dormouse_llama_recheck(lb, &half, 1, NULL));
	OK(dormouse_llama_restore(lb, &less, 0, NULL, &r));
	CHECK(r.tokens == 0);
	OK(dormouse_llama_close(lb));
	OK(attach(b, half_options, &lb));
	OK(dormouse_llama_close(lb));

	/* another process, as it were: the adapter on a, said at once */
	OK(dormouse_llama_close(la));
	set(a, adapter, 1);
	OK(attach(a, options, &la));
	restored(la, a, &with, adapted);

	/* set through the session: nobody has to say so */
	void *loaded = adapter, *none_loaded = NULL;
	OK(dormouse_llama_set_adapters(la, NULL, NULL, 0, NULL));
	restored(la, a, &plain, base);
	WANT(DORMOUSE_ERR_IDENTITY, dormouse_llama_save(la, &with, 0, NULL, NULL) == DORMOUSE_ERR_POSITIONS ? DORMOUSE_ERR_IDENTITY : DORMOUSE_OK);
	OK(dormouse_llama_set_adapters(la, &loaded, &said, 1, NULL));
	restored(la, a, &with, adapted);
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_set_adapters(la, NULL, &said, 1, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_set_adapters(la, &loaded, NULL, 1, NULL));
	WANT(DORMOUSE_ERR_ARGUMENT, dormouse_llama_set_adapters(la, &none_loaded, &said, 1, NULL));
	restored(la, a, &with, adapted);
	WANT(DORMOUSE_ERR_HANDLE, dormouse_llama_set_adapters(none, &loaded, &said, 1, NULL));
	/* what was evaluated with others is not stored under these */
	for (int i = 0; i < 40; i++) CHECK(dormouse_llama_decode(a, tokens + i, 1, i, 0) == 0);
	OK(dormouse_llama_set_adapters(la, &loaded, &half, 1, NULL));
	less.n_tokens = 40;
	WANT(DORMOUSE_ERR_LINEAGE, dormouse_llama_save(la, &less, 0, NULL, NULL));
	wipe(a, 0);
	OK(dormouse_llama_set_adapters(la, &loaded, &said, 1, NULL));

	/* a context has one session, the last one */
	OK(attach(a, options, &lb));
	WANT(DORMOUSE_ERR_CLOSED, dormouse_llama_restore(la, &with, 0, NULL, &r));
	WANT(DORMOUSE_ERR_CLOSED, dormouse_llama_prefill(la, &with, 0, 0, NULL));
	WANT(DORMOUSE_ERR_CLOSED, dormouse_llama_save(la, &with, 0, NULL, NULL));
	WANT(DORMOUSE_ERR_CLOSED, dormouse_llama_set_adapters(la, NULL, NULL, 0, NULL));
	OK(dormouse_llama_close(la));
	restored(lb, a, &with, adapted);
	OK(dormouse_llama_close(lb));
	OK(dormouse_close(store));
	llama_free(a), llama_free(b);
	llama_adapter_lora_free(adapter);
	llama_model_free(model);
	printf("llama_lora: ok\n");
	return 0;
}
