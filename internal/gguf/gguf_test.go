package gguf_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"pgregory.net/rapid"
)

func read(b []byte) (*gguf.File, error) { return gguf.Read(bytes.NewReader(b), int64(len(b))) }

// What the writer was told is what the reader finds.
func TestReadWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := ggufgen.NewWriter("test", 1)
		want := map[string]any{"general.architecture": "test"}
		for i := range rapid.IntRange(0, 8).Draw(t, "keys") {
			key := rapid.StringMatching(`[a-z.]{1,12}`).Draw(t, "key")
			if _, ok := want[key]; ok {
				continue
			}
			switch i % 5 {
			case 0:
				v := rapid.Uint32().Draw(t, "v")
				w.Uint(key, int(v))
				want[key] = uint64(v)
			case 1:
				v := rapid.String().Draw(t, "v")
				w.String(key, v)
				want[key] = v
			case 2:
				v := rapid.Float32().Draw(t, "v")
				w.Float(key, v)
				want[key] = float64(v)
			case 3:
				v := rapid.SliceOfN(rapid.IntRange(-9, 9), 0, 9).Draw(t, "v")
				w.Ints(key, v...)
				want[key] = int64(len(v))
			case 4:
				v := rapid.SliceOfN(rapid.String(), 0, 9).Draw(t, "v")
				w.Strings(key, v...)
				want[key] = int64(len(v))
			}
		}
		tensors := rapid.IntRange(0, 4).Draw(t, "tensors")
		for i := range tensors {
			w.Matrix(string(rune('a'+i)), 3, i+1)
		}
		f, err := read(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Meta) != len(want) || len(f.Tensors) != tensors {
			t.Fatalf("%d keys and %d tensors, want %d and %d", len(f.Meta), len(f.Tensors), len(want), tensors)
		}
		for key, v := range want {
			found := f.Meta[key]
			if found.Type == gguf.Array {
				if found.Count != v {
					t.Fatalf("%s has %d elements, want %v", key, found.Count, v)
				}
			} else if found.Scalar != v {
				t.Fatalf("%s is %v, want %v", key, found.Scalar, v)
			}
		}
		for i, x := range f.Tensors {
			if x.Dims[0] != 3 || x.Dims[1] != int64(i+1) || f.Data+x.Offset > f.Size {
				t.Fatalf("tensor %d: %+v", i, x)
			}
		}
	})
}

func TestEveryCutIsRefused(t *testing.T) {
	b := ggufgen.LLaMA(1, 1, 16)
	f, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(0); n < f.Data-32; n++ {
		if _, err := read(b[:n]); err == nil {
			t.Fatalf("cut to %d bytes it is read", n)
		}
	}
}

func TestErrorsDiffer(t *testing.T) {
	good := ggufgen.LLaMA(1, 1, 16)
	change := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	for name, x := range map[string]struct {
		b    []byte
		want error
	}{
		"magic":            {change(0, 'G', 'G', 'M', 'L'), gguf.ErrMagic},
		"empty":            {nil, gguf.ErrMagic},
		"version":          {change(4, 1), gguf.ErrVersion},
		"big endian":       {change(4, 0, 0, 0, 3), gguf.ErrVersion},
		"too many tensors": {change(8, 255, 255, 255, 255, 255, 255, 255, 255), gguf.ErrFormat},
		"too many keys":    {change(16, 255, 255, 255, 255, 255, 255, 255, 255), gguf.ErrFormat},
		"long key":         {change(24, 255, 255, 255, 255, 255, 255, 255, 127), gguf.ErrFormat},
	} {
		if _, err := read(x.b); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
}

func TestHashes(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	weights := func(path string) kv.Hash {
		h, err := gguf.WeightsHash(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	meta := func(path, prefix string) kv.Hash {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		h, err := f.MetaHash(prefix)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	b := ggufgen.LLaMA(1, 1, 16)
	one, same := write("a.gguf", b), write("b.gguf", b)
	b[len(b)-1] ^= 1
	other := write("c.gguf", b)
	if weights(one) != weights(same) || weights(one) == weights(other) {
		t.Error("the weights hash must depend on every byte and on nothing else")
	}
	if meta(one, "tokenizer.") != meta(other, "tokenizer.") || meta(one, "tokenizer.") == meta(one, "llama.") {
		t.Error("the tokenizer's hash must depend on the tokenizer's keys only")
	}
	if meta(one, "nothing.") != (kv.Hash{}) {
		t.Error("the hash of no keys must be zero")
	}
	half := len(b) / 2
	first, second := write("m-00001-of-00002.gguf", b[:half]), write("m-00002-of-00002.gguf", b[half:])
	if weights(first) != weights(other) || weights(second) != weights(other) {
		t.Error("a split model is its parts in order")
	}
	os.Remove(second)
	if _, err := gguf.WeightsHash(t.Context(), first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing part: %v", err)
	}
}

// llama.cpp loads the parts of a split model under any names; those that the name of the first does not lead to would not count,
// and the first may hold nothing but metadata.
func TestPartsUnderOtherNames(t *testing.T) {
	w := ggufgen.NewWriter("llama", 1)
	w.Uint("split.count", 2)
	path := filepath.Join(t.TempDir(), "part-one.gguf")
	if err := os.WriteFile(path, w.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if h, err := gguf.WeightsHash(t.Context(), path); !errors.Is(err, gguf.ErrFormat) {
		t.Errorf("one of two parts has the hash %s (%v)", h, err)
	}
}

func TestWeightsHashIsCut(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.WeightsHash(ctx, path); !errors.Is(err, enough) {
		t.Fatalf("a hash whose context has ended: %v", err)
	}
}
