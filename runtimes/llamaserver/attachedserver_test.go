package llamaserver_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A server that somebody else runs may be replaced while nobody asks: what the one before computed is not for its successor.
func TestAttachedServerIsReplaced(t *testing.T) {
	for _, name := range []string{"model.gguf", "other.gguf"} { // in place of the first file, or beside it
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b, err := os.ReadFile(rig.Stories)
			if err != nil {
				t.Fatal(err)
			}
			first, second := filepath.Join(dir, "model.gguf"), filepath.Join(dir, name)
			rig.WriteFile(t, first, string(b))
			r, replace := attached(t, first)
			r.Settled()
			body := rig.Story("Of the first model", 8)
			before := r.Ask("/completion", body)
			r.Saved()
			rig.OtherWeights(t, second)
			replace(second)
			body["cache_prompt"] = false
			alone := rig.Ask(t, context.Background(), r.Server.URL().String(), "/completion", body)
			delete(body, "cache_prompt")
			replace(second) // its slots are empty
			if alone.Text == before.Text {
				t.Fatal("the other model says the same")
			}
			for range 2 {
				got := r.Ask("/completion", body)
				if got.Text != alone.Text || strings.HasPrefix(got.Header, "hit") {
					t.Errorf("another model: %q (%s), alone %q", got.Text, got.Header, alone.Text)
				}
				r.Settled()
				r.Saved()
			}
		})
	}
}

// Of a server that somebody else has started, nobody sees the arguments. What it computes shows them.
func TestAttachedServerWithOtherArguments(t *testing.T) {
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range [][]string{{"--rope-freq-scale", "0.5"}, {"--rope-freq-base", "20000"}, {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "128"}} {
		t.Run(strings.Join(other, " "), func(t *testing.T) {
			r, replace := attached(t, model)
			r.Settled()
			body := rig.Story("Of the model as it is", 8)
			first := r.Ask("/completion", body)
			r.Saved()
			replace(model, other...)
			body["cache_prompt"] = false
			alone := rig.Ask(t, context.Background(), r.Server.URL().String(), "/completion", body)
			delete(body, "cache_prompt")
			for range 2 {
				got := r.Ask("/completion", body)
				if got.Text != alone.Text || strings.HasPrefix(got.Header, "hit") {
					t.Errorf("with %v: %q (%s), alone %q", other, got.Text, got.Header, alone.Text)
				}
				r.Settled()
				r.Saved()
			}
			if got := r.Ask("/completion", body); got.Header != "pass; reason=other_rows" {
				t.Errorf("with %v: %s", other, got.Header)
			}
			replace(model) // what is stored is whole
			r.UntilAnswered("/completion", rig.Story("Another", 4))
			r.Settled()
			r.Eventually(func() bool {
				got := r.Ask("/completion", body)
				return got.Text == first.Text && strings.HasPrefix(got.Header, "hit")
			})
		})
	}
}

// A path that is not absolute says nothing to whom was started elsewhere.
func TestAttachedServerNamesItsFile(t *testing.T) {
	r, _ := attached(t, rig.Stories)
	r.Settled()
	if got := r.Ask("/completion", rig.Story("Somewhere", 4)); got.Header != "pass; reason=unknown_model" {
		t.Errorf("a model by a relative path: %s", got.Header)
	}
}
