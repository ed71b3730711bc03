package models_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A server that sleeps loads its files again: what was computed by the files before is not for the new ones, and the other way round.
func TestFilesChangeWhileAsleep(t *testing.T) {
	for name, replace := range rig.Replacements {
		for _, how := range []string{"mmap", "none"} {
			t.Run(name+" "+how, func(t *testing.T) {
				model, other := rig.TwoModels(t)
				a, b, c := rig.Story("First", 8), rig.Story("Second", 8), rig.Story("Third", 8)
				wantB, wantC := rig.Alone(t, b, "-m", other), rig.Alone(t, c, "-m", model)
				dir := filepath.Join(t.TempDir(), "store")
				args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "-lm", how, "-m", model}
				r := rig.Start(t, llamaserver.Options{Dir: dir}, append(args, "--sleep-idle-seconds", "1")...)
				for _, body := range []rig.Object{a, b} {
					r.Ask("/completion", body)
					r.Saved()
				}
				r.Asleep()
				bytes, err := os.ReadFile(model)
				if err != nil {
					t.Fatal(err)
				}
				replace(t, model, other)
				for _, body := range []rig.Object{a, b, c} {
					got := r.Ask("/completion", body)
					if strings.HasPrefix(got.Header, "hit") || body["prompt"] == b["prompt"] && got.Text != wantB {
						t.Errorf("by the new file: %q (%s), alone %q", got.Text, got.Header, wantB)
					}
					r.Settled()
					r.Saved()
				}
				r.Eventually(func() bool { // while the new file is being read, requests pass
					got := r.Ask("/completion", a)
					r.Saved()
					r.Ask("/completion", b)
					r.Saved()
					return strings.HasPrefix(got.Header, "hit")
				})
				r.Stop()
				if err := os.Remove(model); err != nil {
					t.Fatal(err)
				}
				rig.WriteFile(t, model, string(bytes))
				r = rig.Start(t, llamaserver.Options{Dir: dir}, args...)
				if got := r.Ask("/completion", c); got.Text != wantC || strings.HasPrefix(got.Header, "hit") {
					t.Errorf("by the old file: %q (%s), alone %q", got.Text, got.Header, wantC)
				}
				if got := r.Ask("/completion", a); !strings.HasPrefix(got.Header, "hit") {
					t.Errorf("what the old file has computed: %s", got.Header)
				}
			})
		}
	}
}

// Whoever asks the server while its model is another one wakes it: what it has then is not what lies there again afterwards.
func TestFilesChangeAndComeBack(t *testing.T) {
	for _, how := range []string{"mmap", "none"} {
		t.Run(how, func(t *testing.T) {
			model, other := rig.TwoModels(t)
			a := rig.Story("First", 8)
			wantOld, wantNew := rig.Alone(t, a, "-m", model), rig.Alone(t, a, "-m", other)
			r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "-lm", how, "-m", model, "--sleep-idle-seconds", "2")
			r.Ask("/completion", a)
			r.Saved()
			r.Asleep()
			link := filepath.Dir(model)
			for _, move := range [][2]string{{model, link + "/kept"}, {other, model}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.Ask("/tokenize", rig.Object{"content": "a"}); got.Status != http.StatusOK { // it wakes
				t.Fatalf("%+v", got)
			}
			for _, move := range [][2]string{{model, other}, {link + "/kept", model}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				got := r.Ask("/completion", a)
				if got.Text != wantNew || strings.HasPrefix(got.Header, "hit") {
					t.Errorf("the server has the new file: %q (%s), alone %q", got.Text, got.Header, wantNew)
				}
				if how == "none" && !strings.HasPrefix(got.Header, "pass; reason=files_changed") {
					t.Errorf("which file it has cannot be seen: %s", got.Header)
				}
				r.Settled()
			}
			r.Asleep() // now it can be told again
			r.Eventually(func() bool {
				got := r.Ask("/completion", a)
				r.Settled()
				return got.Text == wantOld && (strings.HasPrefix(got.Header, "hit") || strings.HasPrefix(got.Header, "slot"))
			})
		})
	}
}

// A wake with the same files is no doubt: what is stored is restored, each time.
func TestWakes(t *testing.T) {
	model, _ := rig.TwoModels(t)
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "2", "--cache-ram", "0", "-m", model, "--sleep-idle-seconds", "1")
	a := rig.Story("Awake", 8)
	first := r.Ask("/completion", a)
	r.Saved()
	for range 3 {
		r.Asleep()
		got := r.Ask("/completion", a)
		if !strings.HasPrefix(got.Header, "hit; tokens=") || got.Text != first.Text || got.A.Cached < first.A.Prompt-1 {
			t.Errorf("after a sleep: %q (%s), %d tokens reused, expected %q", got.Text, got.Header, got.A.Cached, first.Text)
		}
		r.Saved()
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
				model, _ := rig.TwoModels(t)
				r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "--cache-ram", "0", "-lm", "none", "-m", model, "--sleep-idle-seconds", sleep)
				a, b := rig.Story("First", 8), rig.Story("Second", 8)
				for _, body := range []rig.Object{a, b} {
					r.Ask("/completion", body)
					r.Saved()
				}
				if sleep == "1" {
					r.Asleep()
				}
				if err := touch(model); err != nil {
					t.Fatal(err)
				}
				for _, body := range []rig.Object{a, b, a} {
					if got := r.Ask("/completion", body); !strings.HasPrefix(got.Header, "hit") {
						t.Errorf("afterwards: %s", got.Header)
					}
					r.Saved()
				}
			})
		}
	}
}

// What was computed and not saved when the file's bytes changed is dropped; what was stored before is not.
func TestChangeBeforeASave(t *testing.T) {
	for name, replace := range rig.Replacements {
		t.Run(name, func(t *testing.T) {
			model, other := rig.TwoModels(t)
			dir := filepath.Join(t.TempDir(), "store")
			args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "-lm", "none", "-m", model}
			r := rig.Start(t, llamaserver.Options{Dir: dir, SaveAfter: time.Second}, args...)
			a, b := rig.Story("Before", 8), rig.Story("Between", 8)
			wantB := rig.Alone(t, b, "-m", model)
			r.Ask("/completion", a)
			r.Saved()
			bytes, err := os.ReadFile(model)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Ask("/completion", b); got.Text != wantB {
				t.Errorf("%q, alone %q", got.Text, wantB)
			}
			replace(t, model, other)
			r.Saved()
			got := r.Ask("/completion", a)
			if got.Header != "pass; reason=files_changed" {
				t.Errorf("which file it has cannot be seen: %s", got.Header)
			}
			r.KillServer() // it can be told again
			if got := r.Ask("/completion", b); strings.HasPrefix(got.Header, "hit") || strings.HasPrefix(got.Header, "pass") {
				t.Errorf("by the new file: %s", got.Header)
			}
			r.Saved()
			r.Stop()
			if err := os.Remove(model); err != nil {
				t.Fatal(err)
			}
			rig.WriteFile(t, model, string(bytes))
			r = rig.Start(t, llamaserver.Options{Dir: dir}, args...)
			if got := r.Ask("/completion", b); strings.HasPrefix(got.Header, "hit") || got.Text != wantB {
				t.Errorf("what was not saved: %q (%s)", got.Text, got.Header)
			}
			if got := r.Ask("/completion", a); !strings.HasPrefix(got.Header, "hit") {
				t.Errorf("what was stored: %s", got.Header)
			}
		})
	}
}

// A server that has its file mapped goes on with it when another is moved to its place, and so does the front.
func TestMappedFileIsReplaced(t *testing.T) {
	if proc.MappedBy(rig.PlainURL(t)) == nil {
		t.Skip("SKIPPED: what a server has mapped is not to be seen here")
	}
	for _, name := range []string{"renamed", "moved away"} {
		t.Run(name, func(t *testing.T) {
			model, other := rig.TwoModels(t)
			r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "--cache-ram", "0", "-m", model)
			a, b := rig.Story("First", 8), rig.Story("Second", 8)
			wantA, wantB, wantNew := rig.Alone(t, a, "-m", model), rig.Alone(t, b, "-m", model), rig.Alone(t, a, "-m", other)
			r.Ask("/completion", a)
			r.Saved()
			rig.Replacements[name](t, model, other)
			if got := r.Ask("/completion", b); got.Text != wantB || !strings.HasPrefix(got.Header, "miss") {
				t.Errorf("%q (%s), alone %q", got.Text, got.Header, wantB)
			}
			r.Saved()
			if got := r.Ask("/completion", a); got.Text != wantA || !strings.HasPrefix(got.Header, "hit") {
				t.Errorf("%q (%s), alone %q", got.Text, got.Header, wantA)
			}
			r.Saved()
			r.KillServer()
			if got := r.Ask("/completion", a); got.Text != wantNew || !strings.HasPrefix(got.Header, "miss") {
				t.Errorf("by the new file: %q (%s), alone %q", got.Text, got.Header, wantNew)
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
			rig.WriteFile(t, filepath.Join(dir, "model.gguf"), tiny(1))
			rig.WriteFile(t, filepath.Join(dir, "a.gguf"), lora(7))
			rig.WriteFile(t, filepath.Join(dir, "b.gguf"), lora(8))
			return []string{"-m", filepath.Join(dir, "model.gguf"), "--lora", filepath.Join(dir, "a.gguf")}
		}, func(dir string) error { return os.Rename(filepath.Join(dir, "b.gguf"), filepath.Join(dir, "a.gguf")) }},
		{"link", func(dir string) []string {
			rig.WriteFile(t, filepath.Join(dir, "one.gguf"), tiny(1))
			rig.WriteFile(t, filepath.Join(dir, "two.gguf"), tiny(2))
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
				rig.WriteFile(t, filepath.Join(dir, name, "model.gguf"), tiny(uint64(i+1)))
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
			r := rig.Start(t, llamaserver.Options{}, append(args, "--sleep-idle-seconds", "1")...)
			tokens := make([]int, 200)
			for i := range tokens {
				tokens[i] = 3 + i*i%50
			}
			body := rig.Object{"prompt": tokens, "n_predict": 8, "temperature": 0}
			r.Ask("/completion", body)
			r.Saved()
			r.Asleep()
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			want := rig.Alone(t, body, args...)
			for i := range 2 {
				got := r.Ask("/completion", body)
				if got.Text != want || i == 0 && !strings.HasPrefix(got.Header, "miss") {
					t.Errorf("%q (%s), alone %q", got.Text, got.Header, want)
				}
				r.Saved()
			}
		})
	}
}
