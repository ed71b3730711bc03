package db_test

import (
	"context"
	"fmt"
	"os"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Why a prompt would not be reused: printed, an Explanation is what a log needs.
func ExampleModel_Explain() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "dormouse")
	defer os.RemoveAll(dir)
	store, err := db.Open(ctx, dir, db.Options{})
	check(err)
	defer store.Close()
	model, err := store.Register(ctx, kv.Descriptor{
		Name: "toy", Architecture: "toy", Weights: kv.HashOf("toy"), Tokenizer: kv.HashOf("words"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: 16, Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 64}},
	})
	check(err)
	prompt := kv.Prompt{Tokens: tokenize("what was stored")[:64]}
	_, err = model.Put(ctx, prompt, kv.Rows{kv.Packed(0, 64, make([]byte, 64*128))}, db.PutOptions{})
	check(err)

	prompt.Tokens[40]++ // another word
	why, err := model.Explain(ctx, prompt, db.MatchOptions{})
	check(err)
	fmt.Println(why)
	// Output:
	// 40 of 64 tokens would be reused: diverged at token 40
	// [0, 40): 3 blocks, shared: stored
}
