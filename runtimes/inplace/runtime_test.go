package inplace

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/conformance"
)

var (
	ctx   = context.Background()
	small = tiny.Config{Vocabulary: 96, Words: 64, Layers: 2, Width: 32, Heads: 4, KVHeads: 2, HeadDim: 16, Hidden: 48, RoPEBase: 10000}
)

var _ chat.Runtime = (*Runtime)(nil)

func newModel(t testing.TB) *tiny.Model {
	t.Helper()
	m, err := tiny.New(small, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newStore(t testing.TB, dir string) *db.Store {
	t.Helper()
	store, err := db.Open(ctx, dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func newRuntime(t testing.TB, store *db.Store, o Options) *Runtime {
	t.Helper()
	o.Codec, o.BlockTokens = quant.Raw, 16
	r, err := New(ctx, store, newModel(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// What package chat asks of a runtime, to the last bit: on a mapped file without a lock, on one with it, and in plain memory.
func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{
		"lock-free":   {Cells: 256, Ring: "ring"},
		"shared lock": {Cells: LockFree + 1, Ring: "ring"},
		"memory":      {Cells: 300, Batch: 7},
		"two turns":   {Cells: 256, Turns: 2, Ring: "ring"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && o.Cells > 300 {
				t.Skip("SKIPPED: more than a thousand cells are filled several times")
			}
			store := newStore(t, memdir.Dir(t))
			conformance.Run(t, conformance.Kit{Vocabulary: small.Vocabulary, New: func(t testing.TB) chat.Runtime {
				o := o
				if o.Ring != "" {
					o.Ring = filepath.Join(memdir.Dir(t), o.Ring)
				}
				return newRuntime(t, store, o)
			}})
		})
	}
}
