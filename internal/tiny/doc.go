// Package tiny is a small decoder-only transformer in plain Go, so that examples and runtimes/inplace need no other runtime:
// RoPE, grouped-query attention, RMSNorm, SwiGLU, and a KV cache of f16 rows that attention reads where it lies.
//
// It owns
//
//   - [Config] and [Model]: the shapes, the seeded random weights, and their hash;
//   - [Cache]: the rows of K (after RoPE) and V, one plain []byte per layer, which is all that a database has to know;
//   - [Visible]: what a sequence shows to attention, a bit a position and the row where it lies;
//   - [Model.Forward]: tokens of one conversation in, rows and logits out; [Model.Decode]: steps of any number of them, with holes;
//   - [Tokenizer]: English text to token ids and back, without loss.
//
// It promises that a token's rows and logits are the same to the last bit however a prompt is cut into calls of
// Forward and Decode, wherever the rows lie, and whatever the number of processors: every sum has one fixed order, and no multiplication is
// fused with an addition. Without that, "the warm start continues like the cold one" could not be checked.
//
// It must not know that a database exists. It is not trained: what it writes is words without sense.
package tiny
