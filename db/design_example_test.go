package db_test

import (
	"context"
	"os"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// The sketch of docs/design.md.
func Example_sketch() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	desc := kv.Descriptor{
		Name: "my-model", Architecture: "llama", Weights: kv.HashOf("my toy"), Tokenizer: kv.HashOf("my toy's words"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		Tensors: []kv.Tensor{{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 32}},
	}
	prompt := kv.Prompt{Tokens: make([]int32, 100)}
	n := len(prompt.Tokens)
	prefix := prompt.Prefix(80)
	rows := kv.Rows{kv.Packed(0, n, make([]byte, n*64))}

	store, err := db.Open(ctx, dir, db.Options{Budget: 2 << 30})
	check(err)
	defer store.Close()
	model, err := store.Register(ctx, desc) // weights, RoPE, tensors (section 4)
	check(err)
	m, err := model.Match(ctx, prompt, db.MatchOptions{Limit: n - 1}) // longest stored prefix; a lease on it
	check(err)
	defer m.Close()
	got, err := m.Restore(ctx, rows) // INT8 on disk -> f16 rows in the runtime's memory
	check(err)
	_ = got
	// the runtime prefills prompt[got.Tokens:] into the same rows
	_, err = m.Extend(ctx, prompt, rows, db.PutOptions{}) // store what is new
	check(err)
	err = model.SetRef(ctx, "system", prefix, db.RefOptions{Pinned: true})
	check(err)
	// Output:
}
