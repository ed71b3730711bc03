package llamaserver

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
)

// two are copies of one small model with different weights, of the same size, in a folder of their own.
func two(t *testing.T) (model, other string) {
	t.Helper()
	dir := t.TempDir()
	model, other = filepath.Join(dir, "model.gguf"), filepath.Join(dir, "other.gguf")
	b, err := os.ReadFile(stories)
	if err != nil {
		t.Fatal(err)
	}
	write(t, model, string(b))
	otherWeights(t, other)
	return model, other
}

// alone is what a server without a front writes.
func alone(t *testing.T, body object, args ...string) string {
	t.Helper()
	b := object{"cache_prompt": false}
	for k, v := range body {
		if k != "cache_prompt" {
			b[k] = v
		}
	}
	got := ask(t, context.Background(), plain(t, args...), "/completion", b)
	if got.status != http.StatusOK {
		t.Fatalf("alone: %+v", got)
	}
	return got.text
}

// asleep waits until the server has given its model up.
func (r *rig) asleep() {
	r.t.Helper()
	direct := &api.Client{Base: r.server.URL(), Client: http.DefaultClient}
	r.eventually(func() bool { p, err := direct.Props(context.Background()); return err == nil && p.Sleeping })
}

// plainURL is a server without a front.
func plainURL(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse(plain(t, "-m", stories))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// How a model's file becomes another one.
var replacements = map[string]func(t *testing.T, model, other string){
	"renamed": func(t *testing.T, model, other string) {
		if err := os.Rename(other, model); err != nil {
			t.Fatal(err)
		}
	},
	"moved away": func(t *testing.T, model, other string) {
		if err := os.Rename(model, model+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, model); err != nil {
			t.Fatal(err)
		}
	},
	"written over": func(t *testing.T, model, other string) {
		info, err := os.Stat(model)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		write(t, model, string(b))
		if err := os.Chtimes(model, time.Time{}, info.ModTime()); err != nil { // as cp -p, and touch -r, do
			t.Fatal(err)
		}
	},
}

// A server that sleeps loads its files again: what was computed by the files before is not for the new ones, and the other way round.
func TestFilesChangeWhileAsleep(t *testing.T) {
	for name, replace := range replacements {
		for _, how := range []string{"mmap", "none"} {
			t.Run(name+" "+how, func(t *testing.T) {
				model, other := two(t)
				a, b, c := story("First", 8), story("Second", 8), story("Third", 8)
				wantB, wantC := alone(t, b, "-m", other), alone(t, c, "-m", model)
				dir := filepath.Join(t.TempDir(), "store")
				args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "-lm", how, "-m", model}
				r := start(t, Options{Dir: dir}, append(args, "--sleep-idle-seconds", "1")...)
				for _, body := range []object{a, b} {
					r.ask("/completion", body)
					r.saved()
				}
				r.asleep()
				bytes, err := os.ReadFile(model)
				if err != nil {
					t.Fatal(err)
				}
				replace(t, model, other)
				for _, body := range []object{a, b, c} {
					got := r.ask("/completion", body)
					if strings.HasPrefix(got.header, "hit") || body["prompt"] == b["prompt"] && got.text != wantB {
						t.Errorf("by the new file: %q (%s), alone %q", got.text, got.header, wantB)
					}
					r.settled()
					r.saved()
				}
				r.eventually(func() bool { // while the new file is being read, requests pass
					got := r.ask("/completion", a)
					r.saved()
					r.ask("/completion", b)
					r.saved()
					return strings.HasPrefix(got.header, "hit")
				})
				r.stop()
				if err := os.Remove(model); err != nil {
					t.Fatal(err)
				}
				write(t, model, string(bytes))
				r = start(t, Options{Dir: dir}, args...)
				if got := r.ask("/completion", c); got.text != wantC || strings.HasPrefix(got.header, "hit") {
					t.Errorf("by the old file: %q (%s), alone %q", got.text, got.header, wantC)
				}
				if got := r.ask("/completion", a); !strings.HasPrefix(got.header, "hit") {
					t.Errorf("what the old file has computed: %s", got.header)
				}
			})
		}
	}
}

// Whoever asks the server while its model is another one wakes it: what it has then is not what lies there again afterwards.
func TestFilesChangeAndComeBack(t *testing.T) {
	for _, how := range []string{"mmap", "none"} {
		t.Run(how, func(t *testing.T) {
			model, other := two(t)
			a := story("First", 8)
			wantOld, wantNew := alone(t, a, "-m", model), alone(t, a, "-m", other)
			r := start(t, Options{}, "-c", "2048", "-np", "1", "-lm", how, "-m", model, "--sleep-idle-seconds", "2")
			r.ask("/completion", a)
			r.saved()
			r.asleep()
			link := filepath.Dir(model)
			for _, move := range [][2]string{{model, link + "/kept"}, {other, model}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.ask("/tokenize", object{"content": "a"}); got.status != http.StatusOK { // it wakes
				t.Fatalf("%+v", got)
			}
			for _, move := range [][2]string{{model, other}, {link + "/kept", model}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				got := r.ask("/completion", a)
				if got.text != wantNew || strings.HasPrefix(got.header, "hit") {
					t.Errorf("the server has the new file: %q (%s), alone %q", got.text, got.header, wantNew)
				}
				if how == "none" && !strings.HasPrefix(got.header, "pass; reason=files_changed") {
					t.Errorf("which file it has cannot be seen: %s", got.header)
				}
				r.settled()
			}
			r.asleep() // now it can be told again
			r.eventually(func() bool {
				got := r.ask("/completion", a)
				r.settled()
				return got.text == wantOld && (strings.HasPrefix(got.header, "hit") || strings.HasPrefix(got.header, "slot"))
			})
		})
	}
}

// A wake with the same files is no doubt: what is stored is restored, each time.
func TestWakes(t *testing.T) {
	model, _ := two(t)
	r := start(t, Options{}, "-c", "2048", "-np", "2", "--cache-ram", "0", "-m", model, "--sleep-idle-seconds", "1")
	a := story("Awake", 8)
	first := r.ask("/completion", a)
	r.saved()
	for range 3 {
		r.asleep()
		got := r.ask("/completion", a)
		if !strings.HasPrefix(got.header, "hit; tokens=") || got.text != first.text || got.a.Cached < first.a.Prompt-1 {
			t.Errorf("after a sleep: %q (%s), %d tokens reused, expected %q", got.text, got.header, got.a.Cached, first.text)
		}
		r.saved()
	}
}

// A mode, a name more, a link, or a time that changes: the bytes are looked at once, and nothing is lost.
func TestFilesAreTouched(t *testing.T) {
	for name, touch := range map[string]func(model string) error{
		"mode":      func(model string) error { return os.Chmod(model, 0o640) },
		"hard link": func(model string) error { return os.Link(model, model+".name") },
		"time":      func(model string) error { return os.Chtimes(model, time.Now(), time.Now()) },
		"copied": func(model string) error {
			b, err := os.ReadFile(model)
			if err == nil {
				err = os.WriteFile(model+".copy", b, 0o600)
			}
			if err == nil {
				err = os.Rename(model+".copy", model)
			}
			return err
		},
	} {
		for _, sleep := range []string{"1", "-1"} {
			t.Run(name+" "+sleep, func(t *testing.T) {
				model, _ := two(t)
				r := start(t, Options{}, "-c", "2048", "-np", "1", "--cache-ram", "0", "-lm", "none", "-m", model, "--sleep-idle-seconds", sleep)
				a, b := story("First", 8), story("Second", 8)
				for _, body := range []object{a, b} {
					r.ask("/completion", body)
					r.saved()
				}
				if sleep == "1" {
					r.asleep()
				}
				if err := touch(model); err != nil {
					t.Fatal(err)
				}
				for _, body := range []object{a, b, a} {
					if got := r.ask("/completion", body); !strings.HasPrefix(got.header, "hit") {
						t.Errorf("afterwards: %s", got.header)
					}
					r.saved()
				}
			})
		}
	}
}

// What was computed and not saved when the file's bytes changed is dropped; what was stored before is not.
func TestChangeBeforeASave(t *testing.T) {
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			model, other := two(t)
			dir := filepath.Join(t.TempDir(), "store")
			args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "-lm", "none", "-m", model}
			r := start(t, Options{Dir: dir, SaveAfter: time.Second}, args...)
			a, b := story("Before", 8), story("Between", 8)
			wantB := alone(t, b, "-m", model)
			r.ask("/completion", a)
			r.saved()
			bytes, err := os.ReadFile(model)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.ask("/completion", b); got.text != wantB {
				t.Errorf("%q, alone %q", got.text, wantB)
			}
			replace(t, model, other)
			r.saved()
			got := r.ask("/completion", a)
			if got.header != "pass; reason=files_changed" {
				t.Errorf("which file it has cannot be seen: %s", got.header)
			}
			r.killServer() // it can be told again
			if got := r.ask("/completion", b); strings.HasPrefix(got.header, "hit") || strings.HasPrefix(got.header, "pass") {
				t.Errorf("by the new file: %s", got.header)
			}
			r.saved()
			r.stop()
			if err := os.Remove(model); err != nil {
				t.Fatal(err)
			}
			write(t, model, string(bytes))
			r = start(t, Options{Dir: dir}, args...)
			if got := r.ask("/completion", b); strings.HasPrefix(got.header, "hit") || got.text != wantB {
				t.Errorf("what was not saved: %q (%s)", got.text, got.header)
			}
			if got := r.ask("/completion", a); !strings.HasPrefix(got.header, "hit") {
				t.Errorf("what was stored: %s", got.header)
			}
		})
	}
}

// A server that has its file mapped goes on with it when another is moved to its place, and so does the front.
func TestMappedFileIsReplaced(t *testing.T) {
	if proc.MappedBy(plainURL(t)) == nil {
		t.Skip("SKIPPED: what a server has mapped is not to be seen here")
	}
	for _, name := range []string{"renamed", "moved away"} {
		t.Run(name, func(t *testing.T) {
			model, other := two(t)
			r := start(t, Options{}, "-c", "2048", "-np", "1", "--cache-ram", "0", "-m", model)
			a, b := story("First", 8), story("Second", 8)
			wantA, wantB, wantNew := alone(t, a, "-m", model), alone(t, b, "-m", model), alone(t, a, "-m", other)
			r.ask("/completion", a)
			r.saved()
			replacements[name](t, model, other)
			if got := r.ask("/completion", b); got.text != wantB || !strings.HasPrefix(got.header, "miss") {
				t.Errorf("%q (%s), alone %q", got.text, got.header, wantB)
			}
			r.saved()
			if got := r.ask("/completion", a); got.text != wantA || !strings.HasPrefix(got.header, "hit") {
				t.Errorf("%q (%s), alone %q", got.text, got.header, wantA)
			}
			r.saved()
			r.killServer()
			if got := r.ask("/completion", a); got.text != wantNew || !strings.HasPrefix(got.header, "miss") {
				t.Errorf("by the new file: %q (%s), alone %q", got.text, got.header, wantNew)
			}
		})
	}
}

// Each file counts: an adapter, a part of a model that is split, and where a link leads to.
func TestEachFileCounts(t *testing.T) {
	tiny := func(seed uint64) string { return string(ggufgen.WithText(ggufgen.LLaMA(seed, 2, 64))) }
	lora := func(seed uint64) string {
		return string(ggufgen.LoRA("llama", seed, 0.5, ggufgen.LoRATarget{Name: "blk.0.attn_k.weight", In: 128, Out: 128}))
	}
	for _, c := range []struct {
		name   string
		make   func(dir string) (args []string)
		change func(dir string) error
	}{
		{"adapter", func(dir string) []string {
			write(t, filepath.Join(dir, "model.gguf"), tiny(1))
			write(t, filepath.Join(dir, "a.gguf"), lora(7))
			write(t, filepath.Join(dir, "b.gguf"), lora(8))
			return []string{"-m", filepath.Join(dir, "model.gguf"), "--lora", filepath.Join(dir, "a.gguf")}
		}, func(dir string) error { return os.Rename(filepath.Join(dir, "b.gguf"), filepath.Join(dir, "a.gguf")) }},
		{"link", func(dir string) []string {
			write(t, filepath.Join(dir, "one.gguf"), tiny(1))
			write(t, filepath.Join(dir, "two.gguf"), tiny(2))
			if err := os.Symlink("one.gguf", filepath.Join(dir, "model.gguf")); err != nil {
				t.Fatal(err)
			}
			return []string{"-m", filepath.Join(dir, "model.gguf")}
		}, func(dir string) error {
			if err := os.Symlink("two.gguf", filepath.Join(dir, "new")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "model.gguf"))
		}},
		{"folder", func(dir string) []string {
			for i, name := range []string{"v1", "v2"} {
				if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, name, "model.gguf"), tiny(uint64(i+1)))
			}
			if err := os.Symlink("v1", filepath.Join(dir, "current")); err != nil {
				t.Fatal(err)
			}
			return []string{"-m", filepath.Join(dir, "current", "model.gguf")}
		}, func(dir string) error {
			if err := os.Symlink("v2", filepath.Join(dir, "new")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "current"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"-c", "2048", "-np", "1", "--cache-ram", "0"}, c.make(dir)...)
			r := start(t, Options{}, append(args, "--sleep-idle-seconds", "1")...)
			tokens := make([]int, 200)
			for i := range tokens {
				tokens[i] = 3 + i*i%50
			}
			body := object{"prompt": tokens, "n_predict": 8, "temperature": 0}
			r.ask("/completion", body)
			r.saved()
			r.asleep()
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			want := alone(t, body, args...)
			for i := range 2 {
				got := r.ask("/completion", body)
				if got.text != want || i == 0 && !strings.HasPrefix(got.header, "miss") {
					t.Errorf("%q (%s), alone %q", got.text, got.header, want)
				}
				r.saved()
			}
		})
	}
}
