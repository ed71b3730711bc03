package storetest

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// The tiny store: a few kilobytes with every kind of file, group and log frame in it, written once and kept in testdata, so that
// an offset in a seed means the same on every machine. What it holds are TinyPrompts.
//
//go:embed testdata/tiny-store.zip
var tinyZip []byte

// TinyModels are one with rows and a window, and one with a state.
func TinyModels() []kv.Descriptor {
	return []kv.Descriptor{crashtest.Toy(kv.Descriptor{
		Name: "tiny", BlockTokens: 16,
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 10}},
		Tensors: []kv.Tensor{
			{Role: kv.RoleK, DType: kv.F16, Width: 8},
			{Role: kv.RoleV, DType: kv.F16, Width: 8},
			{Layer: 1, Role: kv.RoleK, DType: kv.F16, Width: 8, Group: 1},
		},
	}), crashtest.Opaque()}
}

// TinyPrompts are what it holds, but for the last one, which was deleted.
func TinyPrompts() []kv.Prompt {
	first := crashtest.Tokens(1, 40)
	return []kv.Prompt{
		{Tokens: first},
		{Tokens: crashtest.Concat(first[:20], crashtest.Tokens(2, 21)), Scope: "alice", ScopeStart: 16},
		{Tokens: crashtest.Concat(first[:32], crashtest.Tokens(3, 16)), Spans: []kv.Span{{Start: 35, Len: 5, Hash: kv.Hash{7}}}},
		{Tokens: crashtest.Concat(first[:16], crashtest.Tokens(4, 16))}, // deleted
	}
}

// TinyOptions are those that it was written with.
func TinyOptions() db.Options {
	o := Options()
	o.SegmentBytes, o.Codec, o.Compression = 64<<10, quant.Raw, quant.S2
	return o
}

// Image is the files of a store, by their names in its directory.
type Image map[string][]byte

// ReadDir reads all files in a folder.
func ReadDir(dir string) (Image, error) {
	m := Image{}
	return m, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
}

// Write makes the files in dir. Zeros at their ends are holes.
func (m Image) Write(dir string) error {
	for name, b := range m {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, bytes.TrimRight(b, "\x00"), 0o600); err != nil {
			return err
		}
		if err := os.Truncate(file, int64(len(b))); err != nil {
			return err
		}
	}
	return nil
}

// Clone copies it.
func (m Image) Clone() Image {
	out := Image{}
	for name, b := range m {
		out[name] = bytes.Clone(b)
	}
	return out
}

// Tiny is the tiny store. Most of what is only reserved is left out.
func Tiny(t testing.TB) Image {
	t.Helper()
	m := unzip(t, tinyZip)
	delete(m, path.Join(LogDir, "next.wal.tmp"))
	for name, b := range m {
		if path.Dir(name) == LogDir || name == IndexFile {
			m[name] = b[:min(len(b), (len(bytes.TrimRight(b, "\x00"))+8192)/4096*4096)]
		}
	}
	return m
}

// ReadZip reads a store that is kept in testdata.
func ReadZip(t testing.TB, name string) Image {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return unzip(t, b)
}

func unzip(t testing.TB, b []byte) Image {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	m := Image{}
	for _, x := range z.File {
		r, err := x.Open()
		if err != nil {
			t.Fatal(err)
		}
		if m[x.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	return m
}
