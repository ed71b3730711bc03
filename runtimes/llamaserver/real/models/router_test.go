package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A router starts a server for each model: each has its own part of the store, also after another was loaded in its place.
func TestRouter(t *testing.T) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(rig.Program(t)), "interpreter")); err != nil {
		t.Skip("SKIPPED: this llama-server cannot start itself, as a router does: tests/llama/server.sh needs patchelf")
	}
	b, err := os.ReadFile(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	models := t.TempDir()
	for _, name := range []string{"a", "b"} { // two models: the file's bytes differ
		if err := os.WriteFile(filepath.Join(models, name+".gguf"), append(b[:len(b):len(b)], name...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := llamaserver.ParseArguments([]string{rig.Program(t), "-t", "1", "--models-dir", models, "--models-max", "1"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if !a.Router {
		t.Fatal("it is not known as a router")
	}
	r := rig.StartWith(t, llamaserver.Options{}, a)
	body := func(model string) rig.Object {
		b := rig.Story("A model of many", 10)
		b["model"] = model
		return b
	}
	var first rig.Reply
	r.Eventually(func() bool {
		first = r.Ask("/completion", body("a"))
		return first.Status == 200 && !strings.HasPrefix(first.Header, "pass")
	})
	r.Saved()
	r.Eventually(func() bool {
		got := r.Ask("/completion", body("b"))
		return got.Status == 200 && !strings.HasPrefix(got.Header, "pass")
	})
	r.Saved()
	again := r.Ask("/completion", body("a"))
	if again.Status != 200 || again.Text != first.Text || again.A.Cached < 100 {
		t.Errorf("after another model was loaded the answer is %q (%s), %d tokens reused; expected %q", again.Text, again.Header, again.A.Cached, first.Text)
	}
	if got := r.Ask("/completion", body("nobody")); got.Status == 200 || !strings.HasPrefix(got.Header, "pass") {
		t.Errorf("a model that is not there: %d %s", got.Status, got.Header)
	}
	models2 := 0
	for _, err := range r.Front.Store().Models() {
		if err != nil {
			t.Fatal(err)
		}
		models2++
	}
	if models2 != 2 {
		t.Errorf("the store has %d models, expected 2", models2)
	}
}

// A router loads a model's file again when another model had its place: what was stored of the old file is not for the new one.
func TestRouterLoadsAnotherFile(t *testing.T) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(rig.Program(t)), "interpreter")); err != nil {
		t.Skip("SKIPPED: this llama-server cannot start itself, as a router does: tests/llama/server.sh needs patchelf")
	}
	for _, how := range []string{"mmap", "none"} {
		t.Run(how, func(t *testing.T) {
			model, other := rig.TwoModels(t)
			b, err := os.ReadFile(model)
			if err != nil {
				t.Fatal(err)
			}
			models := t.TempDir()
			rig.WriteFile(t, filepath.Join(models, "a.gguf"), string(b))
			rig.WriteFile(t, filepath.Join(models, "b.gguf"), string(b)+"b")
			a, err := llamaserver.ParseArguments([]string{rig.Program(t), "-t", "1", "--models-dir", models, "--models-max", "1", "-lm", how}, os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			body := func(model string) rig.Object {
				b := rig.Story("A model of many", 10)
				b["model"] = model
				return b
			}
			want := rig.Alone(t, body("a"), "-m", other)
			r := rig.StartWith(t, llamaserver.Options{}, a)
			r.Eventually(func() bool {
				got := r.Ask("/completion", body("a"))
				return got.Status == 200 && !strings.HasPrefix(got.Header, "pass")
			})
			r.Saved()
			if err := os.Rename(other, filepath.Join(models, "a.gguf")); err != nil {
				t.Fatal(err)
			}
			r.Ask("/completion", body("a")) // the old file still
			r.Eventually(func() bool { return r.Ask("/completion", body("b")).Status == 200 })
			r.Eventually(func() bool {
				got := r.Ask("/completion", body("a"))
				if got.Status == 200 && got.Text != want {
					t.Fatalf("by the new file: %q (%s), alone %q", got.Text, got.Header, want)
				}
				return strings.HasPrefix(got.Header, "slot")
			})
		})
	}
}
