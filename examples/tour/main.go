// Tour puts the first tokens of one long prompt into a store, and says what it found before. docs/design.md looks at the files after each step.
//
//	go run ./examples/tour DIR TOKENS        puts, and closes the store
//	go run ./examples/tour -kill DIR TOKENS  puts, and kills its own process with SIGKILL
//	go run ./examples/tour DIR 0             only looks
//
// It needs nothing but Go. The rows are made up: they stand for what a model with 4 layers would compute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/kv"
)

const (
	layers = 4
	width  = 256 // values of a row of K or V, in f16
	long   = 1000
)

func main() {
	kill := flag.Bool("kill", false, "kill this process right after the put")
	flag.Parse()
	n, err := strconv.Atoi(flag.Arg(1))
	if err != nil || flag.NArg() != 2 || n < 0 || n > long {
		fmt.Fprintf(os.Stderr, "usage: tour [-kill] DIR TOKENS, with at most %d tokens\n", long)
		os.Exit(2)
	}
	command.End("tour", tour(context.Background(), flag.Arg(0), n, *kill))
}

func tour(ctx context.Context, dir string, n int, kill bool) (err error) {
	store, err := db.Open(ctx, dir, db.Options{Budget: 1 << 30})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	desc := kv.Descriptor{Name: "toy", Architecture: "toy", Weights: kv.HashOf("toy"), Tokenizer: kv.HashOf("toy"), RoPE: kv.RoPE{Type: kv.NoRoPE}}
	for layer := range layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			desc.Tensors = append(desc.Tensors, kv.Tensor{Layer: layer, Role: role, DType: kv.F16, Width: width})
		}
	}
	model, err := store.Register(ctx, desc)
	if err != nil {
		return err
	}
	prompt := kv.Prompt{Tokens: make([]int32, long), Scope: "alice"}
	for i := range prompt.Tokens {
		prompt.Tokens[i] = int32(i * i % 997)
	}
	found, why, err := model.Probe(ctx, prompt, db.MatchOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("found %d tokens (%v)\n", found, why)
	if n == 0 {
		return nil
	}
	prompt.Tokens = prompt.Tokens[:n]
	var rows kv.Rows
	for t := range desc.Tensors {
		b := make([]byte, n*width*2)
		for i := range b {
			b[i] = byte((i*7+t)%251) & 0x3f // the values of f16 are below 2
		}
		rows = append(rows, kv.Packed(0, n, b))
	}
	put, err := model.Put(ctx, prompt, rows, db.PutOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("stored %d tokens, new blocks: %d\n", put.Tokens, put.Blocks)
	if kill {
		me, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		if err := me.Kill(); err != nil {
			return err
		}
		select {}
	}
	return nil
}
