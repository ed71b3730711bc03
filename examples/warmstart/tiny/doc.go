// Package tiny is a small decoder-only transformer in plain Go, so that the warm-start example needs no other runtime:
// RoPE, grouped-query attention, RMSNorm, SwiGLU, and a KV cache of f16 rows.
//
// It owns
//
//   - [Config] and [Model]: the shapes, the seeded random weights, and their hash;
//   - [Cache]: the rows of K (after RoPE) and V, one plain []byte per layer, which is all that a database has to know;
//   - [Model.Forward]: tokens in, rows and logits out;
//   - [Tokenizer]: English text to token ids and back, without loss.
//
// It promises that a token's rows and logits are the same to the last bit however a prompt is cut into calls of
// Forward, and whatever the number of processors: every sum has one fixed order, and no multiplication is fused with an
// addition. Without that, "the warm start continues like the cold one" could not be checked.
//
// It must not know that a database exists. It is not trained: what it writes is words without sense.
package tiny
