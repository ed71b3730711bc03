//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// What docs/llamacpp.md says of conversations is all that a program needs: from a folder of libraries and a file to an answer in text.
func TestPage(t *testing.T) {
	dir := os.Getenv("DORMOUSE_LLAMA_LIB")
	if dir == "" {
		t.Skip("SKIPPED, llama.cpp is not tried: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path, err := filepath.Abs(stories)
	check(err)
	t.Chdir(t.TempDir()) // where the memo goes
	store, err := db.Open(ctx, memdir.Dir(t), db.Options{Logger: kit.Quiet})
	check(err)
	lib, err := llama.Load(dir)
	check(err)
	model, err := lib.LoadModel(path, llama.ModelOptions{})
	check(err)
	defer model.Close()
	lctx, err := model.NewContext(llama.ContextOptions{Tokens: 6144, Sequences: 16, Unified: true, FullWindow: true})
	check(err)
	defer lctx.Close()

	api, err := llamacpp.Bind(lib.Lookup)
	check(err)
	s, err := llamacpp.Attach(ctx, store, api, lctx.Pointer(), llamacpp.Options{
		Identity: llamacpp.Identity{Path: path, Memo: "weights.memo"},
		Decode:   lctx.Decode,
	})
	check(err)
	runtime, err := s.Runtime(llamacpp.RuntimeOptions{Decode: lctx.DecodeSteps, Logits: lctx.Logits})
	check(err)
	host, err := chat.NewHost(store, s.Model(), runtime)
	check(err)

	c, err := host.Open(ctx, "ada", chat.Options{})
	check(err)
	message, err := model.TokenizeText("Once upon a time")
	check(err)
	turn, err := c.Begin(ctx, message, chat.BeginOptions{Reserve: 20})
	check(err)
	text := ""
	for token, err := range turn.Generate(ctx, chat.Greedy, model.Ends) {
		if err == chat.ErrTurnFull {
			break
		}
		check(err)
		text += model.Piece(token)
	}
	check(turn.Commit(ctx))
	if len(text) < 20 {
		t.Errorf("the answer is %q", text)
	}
	t.Log(text)
	check(host.Close())
	check(store.Close())
}
