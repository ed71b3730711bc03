package llamaserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A router starts a server for each model: each has its own part of the store, also after another was loaded in its place.
func TestRouter(t *testing.T) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(program(t)), "interpreter")); err != nil {
		t.Skip("SKIPPED: this llama-server cannot start itself, as a router does: tests/llama/server.sh needs patchelf")
	}
	b, err := os.ReadFile(stories)
	if err != nil {
		t.Fatal(err)
	}
	models := t.TempDir()
	for _, name := range []string{"a", "b"} { // two models: the file's bytes differ
		if err := os.WriteFile(filepath.Join(models, name+".gguf"), append(b[:len(b):len(b)], name...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := ParseArguments([]string{program(t), "-t", "1", "--models-dir", models, "--models-max", "1"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if !a.Router {
		t.Fatal("it is not known as a router")
	}
	r := startWith(t, Options{}, a)
	body := func(model string) object {
		b := story("A model of many", 10)
		b["model"] = model
		return b
	}
	var first reply
	r.eventually(func() bool {
		first = r.ask("/completion", body("a"))
		return first.status == 200 && !strings.HasPrefix(first.header, "pass")
	})
	r.savedOf("a")
	r.eventually(func() bool {
		got := r.ask("/completion", body("b"))
		return got.status == 200 && !strings.HasPrefix(got.header, "pass")
	})
	r.savedOf("b")
	again := r.ask("/completion", body("a"))
	if again.status != 200 || again.text != first.text || again.a.Cached < 100 {
		t.Errorf("after another model was loaded the answer is %q (%s), %d tokens reused; expected %q", again.text, again.header, again.a.Cached, first.text)
	}
	if got := r.ask("/completion", body("nobody")); got.status == 200 || !strings.HasPrefix(got.header, "pass") {
		t.Errorf("a model that is not there: %d %s", got.status, got.header)
	}
	models2 := 0
	for _, err := range r.front.Store().Models() {
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
	if _, err := os.Stat(filepath.Join(filepath.Dir(program(t)), "interpreter")); err != nil {
		t.Skip("SKIPPED: this llama-server cannot start itself, as a router does: tests/llama/server.sh needs patchelf")
	}
	for _, how := range []string{"mmap", "none"} {
		t.Run(how, func(t *testing.T) {
			model, other := two(t)
			b, err := os.ReadFile(model)
			if err != nil {
				t.Fatal(err)
			}
			models := t.TempDir()
			write(t, filepath.Join(models, "a.gguf"), string(b))
			write(t, filepath.Join(models, "b.gguf"), string(b)+"b")
			a, err := ParseArguments([]string{program(t), "-t", "1", "--models-dir", models, "--models-max", "1", "-lm", how}, os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			body := func(model string) object {
				b := story("A model of many", 10)
				b["model"] = model
				return b
			}
			want := alone(t, body("a"), "-m", other)
			r := startWith(t, Options{}, a)
			r.eventually(func() bool {
				got := r.ask("/completion", body("a"))
				return got.status == 200 && !strings.HasPrefix(got.header, "pass")
			})
			r.savedOf("a")
			if err := os.Rename(other, filepath.Join(models, "a.gguf")); err != nil {
				t.Fatal(err)
			}
			r.ask("/completion", body("a")) // the old file still
			r.eventually(func() bool { return r.ask("/completion", body("b")).status == 200 })
			r.eventually(func() bool {
				got := r.ask("/completion", body("a"))
				if got.status == 200 && got.text != want {
					t.Fatalf("by the new file: %q (%s), alone %q", got.text, got.header, want)
				}
				return strings.HasPrefix(got.header, "slot")
			})
		})
	}
}
