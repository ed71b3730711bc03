// Quality measures what a codec costs: how far the predictions of real models are from those of a context that was never closed,
// after its f16 cache was stored and restored. It prints the tables of docs/llamacpp.md, of which docs/embedding.md has a part.
//
//	bash tests/llama/fetch.sh && . .cache/llama/env.sh
//	go run ./tests/quality
//
// The first 1,536 tokens of a real text (Newton's Opticks) are evaluated, stored, and restored into another context. Then the
// 256 tokens that follow in the text are evaluated, whatever the model would have said (teacher forcing), and the predictions
// after each are compared over the whole vocabulary. Beside it stands the noise floor: what the same model predicts, with
// nothing stored, after it evaluated the prompt in other batches; and what it predicts with llama.cpp's own quantized caches.
package main
