package db

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// noFilesFS is a file system of a process that has no file handles left while short is set.
type noFilesFS struct {
	vfs.FS
	short *atomic.Bool
}

func (f noFilesFS) Open(name string, readOnly bool) (vfs.File, error) {
	if f.short.Load() {
		return nil, &os.PathError{Op: "open", Path: name, Err: vfs.PassingErrors[0]}
	}
	return f.FS.Open(name, readOnly)
}

// windowOnly leaves only the window rows of the positions [from, to).
func windowOnly(d kv.Descriptor, p *kv.Prompt, from, to int) kv.Rows {
	rows := filled(d, p, from, to)
	for i, tensor := range d.Tensors {
		if tensor.Group == 0 {
			rows[i] = kv.TensorRows{}
		}
	}
	return rows
}

// A put that cannot read the window rows to which it adds others, for want of file handles, does not put its own in their place.
func TestWindowRowsOutliveWantOfFiles(t *testing.T) {
	d := windowed(16)
	var short atomic.Bool
	o := options()
	o.fs = noFilesFS{vfs.OS, &short}
	dir := t.TempDir()
	s := open(t, dir, o)
	p := kv.Tokens(tokens(1, 16)...)
	m := model(t, s, d)
	rows := filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			rows[i] = rows[i].Slice(tensor, 0, 8)
		}
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	m = model(t, s, d)
	put(t, m, kv.Tokens(tokens(2, 64)...)) // so that there is a segment to write to
	short.Store(true)
	_, err := m.Put(ctx, p, windowOnly(d, &p, 8, 16), PutOptions{})
	short.Store(false)
	mayFail(t, err)
	if err != nil {
		if _, err := m.Put(ctx, p, windowOnly(d, &p, 8, 16), PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, m, p, 16)
}

// likeToken is another token than the one at a prompt's position i that has the same hash in the index.
func likeToken(s *Store, p kv.Prompt, i int) kv.Token {
	q := kv.Tokens(append([]kv.Token(nil), p.Tokens...)...)
	want := s.eng.hasher.AppendTokenHashes(nil, &p, i, i+1)
	for {
		q.Tokens[i]++
		if bytes.Equal(s.eng.hasher.AppendTokenHashes(nil, &q, i, i+1), want) {
			return q.Tokens[i]
		}
	}
}

// A deletion that cannot read a block, for want of file handles, does not take it for its own prompt's: the index knows two bytes
// of a token, which many have.
func TestDeleteForWantOfFilesTakesNoOthers(t *testing.T) {
	var short atomic.Bool
	o := options()
	o.fs = noFilesFS{vfs.OS, &short}
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 17)...)
	q := kv.Tokens(concat(p.Tokens[:16], []kv.Token{likeToken(s, p, 16)})...)
	put(t, m, p)
	put(t, m, q)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	m = model(t, s, plain())
	put(t, m, kv.Tokens(tokens(2, 64)...)) // so that there is a segment and a log to write to
	short.Store(true)
	_, err := m.Delete(ctx, p)
	short.Store(false)
	expect(t, m, q, 17)
	mayFail(t, err)
	if err != nil {
		if got, err := m.Delete(ctx, p); err != nil || got.Blocks != 1 {
			t.Fatalf("%+v deleted (%v)", got, err)
		}
	}
	expect(t, m, p, 16)
	expect(t, m, q, 17)
}
