package db_test

import (
	"context"
	"fmt"
	"os"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Embedding in 25 lines: match, restore, compute the rest, extend.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "dormouse")
	defer os.RemoveAll(dir)
	for range 2 { // the second time, the prompt is in the store
		store, err := db.Open(ctx, dir, db.Options{Budget: 2 << 30})
		check(err)
		model, err := store.Register(ctx, kv.Descriptor{
			Name: "my-model", Architecture: "llama",
			Weights:   kv.HashOf("my toy"), // in earnest: of all bytes of the weights file
			Tokenizer: kv.HashOf("my toy's words"),
			RoPE:      kv.RoPE{Type: "neox", Dims: 64, Base: 10000, Scale: 1}, // kv.NoRoPE: nothing is rotated into K
			Tensors: []kv.Tensor{
				{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 256},
				{Layer: 0, Role: kv.RoleV, DType: kv.F16, Width: 256},
			},
		})
		check(err)
		prompt := kv.Prompt{Tokens: tokenize("a long system prompt"), Scope: "alice", ScopeStart: 80}
		n := len(prompt.Tokens)
		k, v := make([]byte, n*512), make([]byte, n*512) // the runtime's own memory
		rows := kv.Rows{kv.Packed(0, n, k), kv.Packed(0, n, v)}

		match, err := model.Match(ctx, prompt, db.MatchOptions{Limit: n - 1}) // the last token gives the logits
		check(err)
		got, err := match.Restore(ctx, rows)
		check(err)
		prefill(k, v, got.Tokens, n) // only what is missing
		_, err = match.Extend(ctx, prompt, rows, db.PutOptions{})
		check(err)
		fmt.Printf("reused %d of %d tokens (%v)\n", got.Tokens, n, got.Reason)
		check(match.Close())
		check(store.Close())
	}
	// Output:
	// reused 0 of 100 tokens (nothing stored)
	// reused 99 of 100 tokens (complete)
}

func tokenize(string) []int32 {
	ids := make([]int32, 100)
	for i := range ids {
		ids[i] = int32(i * i % 50)
	}
	return ids
}

func prefill(k, v []byte, from, to int) {
	for i := from * 512; i < to*512; i++ {
		k[i], v[i] = byte(i%7), byte(i%5)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
