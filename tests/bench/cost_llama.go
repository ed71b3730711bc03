//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// measureRecompute has llama.cpp compute prompts of each length with the first model.
func (r *run) measureRecompute(all *costs) error {
	dir, path := os.Getenv("DORMOUSE_LLAMA_LIB"), os.Getenv("DORMOUSE_LLAMA_MODEL")
	if dir == "" || path == "" {
		return errors.New("DORMOUSE_LLAMA_LIB or DORMOUSE_LLAMA_MODEL is not set; tests/llama/fetch.sh fetches the library and a model")
	}
	lib, err := llama.Load(dir)
	if err != nil {
		return err
	}
	lib.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	model, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return err
	}
	defer model.Close()
	const batch = 512
	context, err := model.NewContext(llama.ContextOptions{Tokens: slices.Max(costTokens) + batch, Batch: batch, MicroBatch: batch, Threads: processors()})
	if err != nil {
		return err
	}
	defer context.Close()
	prompt := make([]int32, slices.Max(costTokens))
	for i, t := range tokens(1, len(prompt)) {
		prompt[i] = int32(t) % int32(model.Vocabulary())
	}
	for _, n := range costTokens {
		compute := func() (time.Duration, error) {
			context.Clear()
			return since(func() error {
				for at := 0; at < n; at += batch {
					if err := context.Decode(prompt[at:min(at+batch, n)], at, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
		var seconds []float64
		for range max(1, 2048/n) {
			took, err := compute()
			if err != nil {
				return err
			}
			seconds = append(seconds, took.Seconds())
		}
		all.prompt(shapes[0].Name, n).add(costRecompute, seconds)
		r.log("computing %d tokens: %.2f s", n, median(seconds))
	}
	return nil
}
