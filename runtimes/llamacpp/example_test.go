package llamacpp_test

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// A prompt is evaluated only where no stored prompt has done so before.
func ExampleAttach() {
	ctx := context.Background()
	store, err := db.Open(ctx, "cache", db.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	answer := func(lookup func(string) (uintptr, error), llamaContext uintptr, decode llamacpp.DecodeFunc, prompt kv.Prompt) error {
		lib, err := llamacpp.Bind(lookup) // purego.Dlsym of the libllama that made llamaContext
		if err != nil {
			return err
		}
		s, err := llamacpp.Attach(ctx, store, lib, llamaContext, llamacpp.Options{
			Identity: llamacpp.Identity{Path: "model.gguf", Memo: "weights.memo"},
			Decode:   decode,
		})
		if err != nil {
			return err
		}
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil {
			return err
		}
		fmt.Println(got.Tokens, "tokens restored:", got.Reason)
		if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
			return err
		}
		// sample, decode …
		_, err = s.Save(ctx, prompt, 0)
		return err
	}
	_ = answer
}
