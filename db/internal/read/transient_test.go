package read_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// windowOnly leaves only the window rows of the positions [from, to).
func windowOnly(d kv.Descriptor, p *kv.Prompt, from, to int) kv.Rows {
	rows := storetest.Filled(d, p, from, to)
	for i, tensor := range d.Tensors {
		if tensor.Group == 0 {
			rows[i] = kv.TensorRows{}
		}
	}
	return rows
}

// A put that cannot read the window rows to which it adds others, for want of file handles, does not put its own in their place.
func TestWindowRowsOutliveWantOfFiles(t *testing.T) {
	d := crashtest.Windowed(16)
	var short atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, "", &short, vfs.PassingErrors[0])
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	p := kv.Tokens(crashtest.Tokens(1, 16)...)
	m := storetest.Model(t, s, d)
	rows := storetest.Filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			rows[i] = rows[i].Slice(tensor, 0, 8)
		}
	}
	storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{}))(t)
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, d)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 64)...)) // so that there is a segment to write to
	short.Store(true)
	_, err := m.Put(t.Context(), p, windowOnly(d, &p, 8, 16), db.PutOptions{})
	short.Store(false)
	storetest.MayFail(t, err)
	if err != nil {
		storetest.Must(m.Put(t.Context(), p, windowOnly(d, &p, 8, 16), db.PutOptions{}))(t)
	}
	storetest.Expect(t, m, p, 16)
}

// likeToken is another token than the one at a prompt's position i that has the same hash in the index.
func likeToken(t *testing.T, s *db.Store, p kv.Prompt, i int) kv.Token {
	q := kv.Tokens(append([]kv.Token(nil), p.Tokens...)...)
	want := storetest.Hasher(t, s.Dir()).AppendTokenHashes(nil, &p, i, i+1)
	for {
		q.Tokens[i]++
		if bytes.Equal(storetest.Hasher(t, s.Dir()).AppendTokenHashes(nil, &q, i, i+1), want) {
			return q.Tokens[i]
		}
	}
}

// A deletion that cannot read a block, for want of file handles, does not take it for its own prompt's: the index knows two bytes
// of a token, which many have.
func TestDeleteForWantOfFilesTakesNoOthers(t *testing.T) {
	var short atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, "", &short, vfs.PassingErrors[0])
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 17)...)
	q := kv.Tokens(crashtest.Concat(p.Tokens[:16], []kv.Token{likeToken(t, s, p, 16)})...)
	storetest.Put(t, m, p)
	storetest.Put(t, m, q)
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 64)...)) // so that there is a segment and a log to write to
	short.Store(true)
	_, err := m.Delete(t.Context(), p)
	short.Store(false)
	storetest.Expect(t, m, q, 17)
	storetest.MayFail(t, err)
	if err != nil {
		if got, err := m.Delete(t.Context(), p); err != nil || got.Blocks != 1 {
			t.Fatalf("%+v deleted (%v)", got, err)
		}
	}
	storetest.Expect(t, m, p, 16)
	storetest.Expect(t, m, q, 17)
}
