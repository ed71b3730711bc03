package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// A store in a folder that others can write to is purged as it is served: where that was asked for.
func TestPurgeOfSharedFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(t.Context(), dir, db.Options{AllowSharedDir: true})
	if err != nil {
		t.Skip("SKIPPED: no store with such permissions here: ", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	purge := func(want int, says string, args ...string) {
		t.Helper()
		var out, err bytes.Buffer
		code := run(context.Background(), append([]string{"purge", "--all", "--store", dir}, args...), &out, &err)
		if said := out.String() + err.String(); code != want || !strings.Contains(said, says) {
			t.Errorf("%q: %d %q, expected %d and %q", args, code, said, want, says)
		}
	}
	purge(1, "--allow-shared-dir")
	purge(0, "purged", "--allow-shared-dir")
	t.Setenv("DORMOUSE_ALLOW_SHARED_DIR", "true")
	purge(0, "purged")
}

// A purge that names what is not stored fails, deletes nothing, and says what is there.
func TestPurgeOfNothing(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	s, err := db.Open(t.Context(), dir, db.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	purge := func(want int, says string, args ...string) {
		t.Helper()
		var out, err bytes.Buffer
		code := run(context.Background(), append([]string{"purge", "--store", dir}, args...), &out, &err)
		if said := out.String() + err.String(); code != want || !strings.Contains(said, says) {
			t.Errorf("%q: %d %q, expected %d and %q", args, code, said, want, says)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	purge(1, "nothing is stored with this API key. The store is empty\n", "--key", "sk-mistyped")
	purge(1, `no model "nobody" is stored. The store is empty`, "--model", "nobody")
	if s, err = db.Open(t.Context(), dir, db.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Register(t.Context(), small("tiny model"))
	if err != nil {
		t.Fatal(err)
	}
	for _, scope := range []string{"", llamaserver.ScopeOfKey("sk-right"), llamaserver.ScopeOfKey("sk-other")} {
		p := kv.Prompt{Tokens: make([]kv.Token, 100), Scope: scope}
		if _, err := m.Model.Put(t.Context(), p, kv.Rows{kv.Packed(0, 100, make([]byte, 100*1024))}, db.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	purge(1, "nothing is stored with this API key. The store has the model \"tiny model\", and prompts of 2 API keys or conversations\n", "--key", "sk-mistyped")
	purge(1, "no model \"nobody\" is stored. The store has the model \"tiny model\", and prompts of 2", "--model", "nobody")
	purge(0, "purged: 0 models, 0 conversations, ", "--key", "sk-right")
	purge(1, "nothing is stored with this API key. The store has the model \"tiny model\", and prompts of 1 API key or conversation\n", "--key", "sk-right")
	purge(0, "purged: 0 models, 0 conversations, ", "--key", "sk-other")
	purge(1, "The store has the model \"tiny model\", and nothing of an API key or conversation\n", "--key", "sk-other")
	purge(0, "purged: 1 model, ", "--model", "tiny model")
	purge(1, "The store is empty", "--model", "tiny model")
}

// small is a model of one tensor.
func small(name string) kv.Descriptor {
	return kv.Descriptor{
		Name: name, Weights: kv.HashOf(name), Architecture: "test", Tokenizer: kv.HashOf(name), RoPE: kv.RoPE{Type: kv.NoRoPE},
		Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 512}},
	}
}

// A purge of everything leaves nothing of a conversation either, and says what went.
func TestPurgeAll(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	const secret = "what was said in confidence"
	s, err := db.Open(t.Context(), dir, db.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Register(t.Context(), small("m"))
	if err != nil {
		t.Fatal(err)
	}
	p := kv.Prompt{Tokens: make([]kv.Token, 1000), Scope: "anna"}
	if _, err := m.Model.Put(t.Context(), p, kv.Rows{kv.Packed(0, 1000, make([]byte, 1000*1024))}, db.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	length := int64(0)
	for _, scope := range []string{"anna", "bert"} {
		x, err := s.OpenSession(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Append(t.Context(), 1, []byte(secret)); err != nil {
			t.Fatal(err)
		}
		length += x.Bytes()
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	code := run(context.Background(), []string{"purge", "--all", "--store", dir}, &out, &said)
	if want := fmt.Sprintf("purged: 1 model, 2 conversations, %s\n", humanize.IBytes(uint64(st.LiveBytes+length))); code != 0 || out.String() != want {
		t.Errorf("%d %q %q, expected %q", code, out.String(), said.String(), want)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s has it still", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	out.Reset()
	if code := run(context.Background(), []string{"purge", "--all", "--store", dir}, &out, &said); code != 0 || out.String() != "purged: 0 models, 0 conversations, 0 B\n" {
		t.Errorf("once more: %d %q %q", code, out.String(), said.String())
	}
}
