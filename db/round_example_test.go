package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// model describes what the engine runs. Whatever changes K or V is in it: two models that it does not tell apart would be given
// each other's rows.
var model = kv.Descriptor{
	Name:         "my-model", // what people call it; all else is its identity
	Architecture: "llama",
	Weights:      kv.HashOf("my toy"), // of all bytes of the weights file
	Tokenizer:    kv.HashOf("my toy's words"),
	RoPE:         kv.RoPE{Type: "neox", Dims: 64, Base: 10000, Scale: 1}, // as the context was made, not as the file says
	Tensors: []kv.Tensor{ // of every layer; DType is that of the cache, not of the weights
		{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 256}, // heads of K and V x width of a head
		{Layer: 0, Role: kv.RoleV, DType: kv.F16, Width: 256},
	},
}

// round brings the engine's cache to the end of the prompt: it reuses what is stored, computes the rest, and stores that.
func round(ctx context.Context, m *db.Model, e *engine, prompt kv.Prompt) (err error) {
	n := len(prompt.Tokens)
	match, err := m.Match(ctx, prompt, db.MatchOptions{Limit: n - 1}) // the last token is always computed: rows carry no logits
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, match.Close()) }() // until then it holds disk space, and store.Close returns ErrLeased

	rows := e.rows(n) // the engine's own memory, for all n tokens: one kv.TensorRows for each tensor of the descriptor
	got, err := match.Restore(ctx, rows)
	if err != nil {
		return err
	}
	fmt.Printf("reused %d of %d tokens: %v\n", got.Tokens, n, got.Reason) // 0 is no error: nothing is stored, or the disk is damaged

	e.prefill(prompt.Tokens, got.Tokens) // the positions from got.Tokens on; rows before are right, rows behind are zeros

	_, err = match.Extend(ctx, prompt, rows, db.PutOptions{}) // reads and writes only what is new; then the rows outlive the process
	return err
}

// docs/embedding.md shows model and round: three turns of a conversation, and another one that begins like it.
func Example_round() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "dormouse")
	defer os.RemoveAll(dir)

	store, err := db.Open(ctx, dir, db.Options{Budget: 2 << 30})
	check(err)
	m, err := store.Register(ctx, model) // once; it is safe for concurrent use, as the store is
	check(err)
	conversation := tokenize("a long system prompt")
	for range 3 {
		check(round(ctx, m.Model, &engine{}, kv.Prompt{Tokens: conversation, Scope: "alice", ScopeStart: 80}))
		conversation = append(conversation, 7, 8, 9) // what was answered, and said next
	}
	other := append(conversation[:80:80], 1, 2, 3)
	check(round(ctx, m.Model, &engine{}, kv.Prompt{Tokens: other, Scope: "bob", ScopeStart: 80}))

	check(store.Close())
	// Output:
	// reused 0 of 100 tokens: nothing stored
	// reused 100 of 103 tokens: stored prefix ends at token 100
	// reused 103 of 106 tokens: stored prefix ends at token 103
	// reused 80 of 83 tokens: stored prefix ends at token 80
}

// engine is a runtime with a cache of its own.
type engine struct{ k, v []byte }

// rows describes the memory of the first n tokens, here one row after the other; pieces and strides describe other caches.
func (e *engine) rows(n int) kv.Rows {
	e.k, e.v = make([]byte, n*512), make([]byte, n*512)
	return kv.Rows{kv.Packed(0, n, e.k), kv.Packed(0, n, e.v)}
}

func (e *engine) prefill(tokens []int32, from int) { prefill(e.k, e.v, from, len(tokens)) }
