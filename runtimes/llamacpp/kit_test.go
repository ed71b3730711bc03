package llamacpp_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// openStore opens an empty store that keeps rows as they are.
func openStore(t testing.TB) *db.Store {
	t.Helper()
	store := openStoreAt(t, t.TempDir(), db.Options{Codec: quant.Raw})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// openStoreAt opens the store in a folder; the caller closes it.
func openStoreAt(t testing.TB, dir string, o db.Options) *db.Store {
	t.Helper()
	o.Logger = quiet
	store, err := db.Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// writeFile makes a file in a folder of its own.
func writeFile(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// evaluateAndSave evaluates a prompt from a position on, and saves it.
func evaluateAndSave(t testing.TB, s *llamacpp.Session, prompt kv.Prompt, from, sequence int) {
	t.Helper()
	if err := s.Prefill(context.Background(), prompt, from, sequence); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(context.Background(), prompt, sequence); err != nil {
		t.Fatal(err)
	}
}

func options(decode llamacpp.DecodeFunc) llamacpp.Options {
	return llamacpp.Options{
		Identity: llamacpp.Identity{Weights: kv.Hash{1}, Tokenizer: kv.Hash{1}},
		Decode:   decode,
		Logger:   quiet,
	}
}

type fataler interface{ Fatalf(string, ...any) }

func attach(t fataler, store *db.Store, f *fake, change func(*llamacpp.Options)) *llamacpp.Session {
	o := options(f.Decode)
	if change != nil {
		change(&o)
	}
	s, err := llamacpp.Attach(context.Background(), store, f.library(), 1, o)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	if f.max(int32(o.Sequence)) >= 0 {
		t.Fatalf("attach left tokens in the sequence")
	}
	f.decode = 0
	return s
}

// kinds are the caches that a fake can have.
func kinds(name string) *fake {
	f := &fake{layers: []fakeLayer{{width: 8}, {width: 8}, {width: 4}}, streams: 1, contextLen: 4096}
	switch name {
	case "plain":
	case "channel-major":
		f.transposed = true
	case "reordered":
		f.reorder = true
	case "streams":
		f.streams = 3
	case "latent":
		f.latent = true
	case "window":
		f.window = 24
		f.layers[0].windowed, f.layers[2].windowed = true, true
	case "window, channel-major, reordered":
		f.window, f.transposed, f.reorder = 40, true, true
		f.layers[1].windowed = true
	case "window larger than prompts":
		f.window = 1024
		f.layers[1].windowed = true
	case "window, says its rotation":
		f.window, f.rotation = 24, new([2]int)
		f.layers[1].windowed = true
	case "windows only":
		f.window = 24
		for i := range f.layers {
			f.layers[i].windowed = true
		}
	}
	return f
}

var kindNames = []string{
	"plain", "channel-major", "reordered", "streams", "latent",
	"window", "window, channel-major, reordered", "window larger than prompts", "window, says its rotation", "windows only",
}
