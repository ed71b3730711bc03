package kit

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// Quiet is a log that nobody reads.
var Quiet = slog.New(slog.DiscardHandler)

// OpenStore opens an empty store that keeps rows as they are.
func OpenStore(t testing.TB) *db.Store {
	t.Helper()
	store := OpenStoreAt(t, memdir.Dir(t), db.Options{Codec: quant.Raw})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// OpenStoreAt opens the store in a folder; the caller closes it.
func OpenStoreAt(t testing.TB, dir string, o db.Options) *db.Store {
	t.Helper()
	o.Logger = Quiet
	store, err := db.Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// WriteFile makes a file in a folder of its own.
func WriteFile(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// EvaluateAndSave evaluates a prompt from a position on, and saves it.
func EvaluateAndSave(t testing.TB, s *llamacpp.Session, prompt kv.Prompt, from, sequence int) {
	t.Helper()
	if err := s.Prefill(context.Background(), prompt, from, sequence); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(context.Background(), prompt, sequence); err != nil {
		t.Fatal(err)
	}
}

// Flip changes a byte that is in use, of some segment.
func Flip(t testing.TB, dir string, rng *rand.Rand) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatal("no segments", err)
	}
	f, err := os.OpenFile(files[rng.IntN(len(files))], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for range 100000 {
		b, at := make([]byte, 1), 8192+rng.IntN(int(info.Size())-8192)
		if _, err := f.ReadAt(b, int64(at)); err != nil {
			t.Fatal(err)
		}
		if b[0] != 0 {
			if _, err := f.WriteAt([]byte{b[0] ^ 0x40}, int64(at)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("nothing to damage")
}

// Without is tokens without those of [from, to).
func Without(tokens []kv.Token, from, to int) []kv.Token {
	return append(append([]kv.Token(nil), tokens[:from]...), tokens[to:]...)
}

// Fataler is what tests and rapid's have in common.
type Fataler interface{ Fatalf(string, ...any) }

// WantLineage wants an ErrLineage from that position on.
func WantLineage(t Fataler, what string, err error, from int) {
	var l *llamacpp.LineageError
	if !errors.Is(err, llamacpp.ErrLineage) || !errors.As(err, &l) || l.From != from {
		t.Fatalf("%s: %v, want ErrLineage from %d on", what, err, from)
	}
}

// Small has a prompt cut into many records.
func Small(o *llamacpp.Options) { o.BlockTokens = 16 }

// BytesAt is the memory that was passed to a C function.
func BytesAt(p *byte, n uintptr) []byte { return unsafe.Slice(p, n) }
