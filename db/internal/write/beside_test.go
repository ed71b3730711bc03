package write_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

// Two puts at a time add different window rows to one block: those of both are stored afterwards, as if one had come after
// the other.
func TestPutsOfOneWindowBesideEachOther(t *testing.T) {
	d := crashtest.Windowed(8)
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	rows := func(from, to int) kv.Rows { // of the window alone
		out := storetest.Filled(d, &p, from, to)
		for i, tensor := range d.Tensors {
			if tensor.Group == 0 {
				out[i] = kv.TensorRows{}
			}
		}
		return out
	}
	base := storetest.Filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			base[i] = kv.TensorRows{}
		}
	}
	storetest.Must(m.Put(t.Context(), p, base, db.PutOptions{}))(t)
	slow := storetest.Engine(s).Inside().NewPut(storetest.Engine(s).Catalog.Model(m.Fingerprint()), rows(0, 8), nil, write.Options{Codec: storetest.Options().Codec})
	storetest.OK(t, slow.Plan(&p))
	storetest.OK(t, slow.Block(t.Context(), 0))
	storetest.Must(m.Put(t.Context(), p, rows(8, 16), db.PutOptions{}))(t)
	storetest.Expect(t, m, p, 16)
	err := slow.Publish(t.Context())
	slow.Release()
	if write.IsGone(err) { // put starts over
		_, err = m.Put(t.Context(), p, rows(0, 8), db.PutOptions{})
	}
	storetest.OK(t, err)
	storetest.Expect(t, m, p, 16)
}

// putFrom stores a prompt whose caller has rows from one position on, and those of windows from another.
func putFrom(t *testing.T, m *db.Model, p kv.Prompt, from, windowsFrom int) {
	t.Helper()
	d := m.Descriptor()
	rows := storetest.Filled(d, &p, from, len(p.Tokens))
	for i, r := range storetest.Filled(d, &p, windowsFrom, len(p.Tokens)) {
		if d.Groups[d.Tensors[i].Group].Kind == kv.Window {
			rows[i] = r
		}
	}
	if res, err := m.Put(t.Context(), p, rows, db.PutOptions{}); err != nil || res.Tokens != len(p.Tokens) {
		t.Fatalf("%d of %d tokens are stored: %v", res.Tokens, len(p.Tokens), err)
	}
}

// Rows that begin inside a block go on from a stored block that has the rows before them, also where a shorter tail has more window
// rows than that block.
func TestRowsGoOnFromTheLongerTail(t *testing.T) {
	d := crashtest.Windowed(10)
	d.BlockTokens = 64
	m := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
	p := kv.Tokens(crashtest.Tokens(1, 128)...)
	storetest.Put(t, m, p.Prefix(84))
	putFrom(t, m, p.Prefix(104), 0, 94) // its window rows leave the shorter tail where it is
	storetest.Expect(t, m, p.Prefix(84), 84)
	putFrom(t, m, p, 88, 88)
	storetest.Expect(t, m, p, 128)
}

// Of the blocks that have the rows before those of a put, one that has their window rows is taken, though another one has more tokens
// of the prompt.
func TestRowsGoOnFromTheTailWithWindowRows(t *testing.T) {
	d := crashtest.Windowed(10)
	d.BlockTokens = 64
	m := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
	p := kv.Tokens(crashtest.Tokens(1, 128)...)
	other := kv.Tokens(crashtest.Concat(p.Tokens[:94], crashtest.Tokens(2, 15))...)
	storetest.Put(t, m, other)
	putFrom(t, m, p.Prefix(104), 0, 100)
	putFrom(t, m, p, 88, 88)
	storetest.Must(m.Delete(t.Context(), other))(t) // it has these rows, too
	for _, n := range []int{74, 88, 90, 128} {
		storetest.Expect(t, m, p.Prefix(n), n)
	}
}
