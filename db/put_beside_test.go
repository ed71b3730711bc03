package db

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

// Two puts at a time add different window rows to one block: those of both are stored afterwards, as if one had come after
// the other.
func TestPutsOfOneWindowBesideEachOther(t *testing.T) {
	d := windowed(8)
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 16)}
	rows := func(from, to int) kv.Rows { // of the window alone
		out := filled(d, &p, from, to)
		for i, tensor := range d.Tensors {
			if tensor.Group == 0 {
				out[i] = kv.TensorRows{}
			}
		}
		return out
	}
	base := filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			base[i] = kv.TensorRows{}
		}
	}
	if _, err := m.Put(ctx, p, base, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	slow := s.eng.Inside().NewPut(m.ms, rows(0, 8), nil, write.Options{Codec: s.o.Codec})
	if err := slow.Plan(&p); err != nil {
		t.Fatal(err)
	}
	if err := slow.Block(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(ctx, p, rows(8, 16), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 16)
	err := slow.Publish(ctx)
	slow.Release()
	if write.IsGone(err) { // put starts over
		_, err = m.Put(ctx, p, rows(0, 8), PutOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 16)
}

// putFrom stores a prompt whose caller has rows from one position on, and those of windows from another.
func putFrom(t *testing.T, m *Model, p kv.Prompt, from, windowsFrom int) {
	t.Helper()
	d := m.Descriptor()
	rows := filled(d, &p, from, len(p.Tokens))
	for i, r := range filled(d, &p, windowsFrom, len(p.Tokens)) {
		if d.Groups[d.Tensors[i].Group].Kind == kv.Window {
			rows[i] = r
		}
	}
	if res, err := m.Put(ctx, p, rows, PutOptions{}); err != nil || res.Tokens != len(p.Tokens) {
		t.Fatalf("%d of %d tokens are stored: %v", res.Tokens, len(p.Tokens), err)
	}
}

// Rows that begin inside a block go on from a stored block that has the rows before them, also where a shorter tail has more window
// rows than that block.
func TestRowsGoOnFromTheLongerTail(t *testing.T) {
	d := windowed(10)
	d.BlockTokens = 64
	m := model(t, open(t, t.TempDir(), options()), d)
	p := kv.Tokens(tokens(1, 128)...)
	put(t, m, p.Prefix(84))
	putFrom(t, m, p.Prefix(104), 0, 94) // its window rows leave the shorter tail where it is
	expect(t, m, p.Prefix(84), 84)
	putFrom(t, m, p, 88, 88)
	expect(t, m, p, 128)
}

// Of the blocks that have the rows before those of a put, one that has their window rows is taken, though another one has more tokens
// of the prompt.
func TestRowsGoOnFromTheTailWithWindowRows(t *testing.T) {
	d := windowed(10)
	d.BlockTokens = 64
	m := model(t, open(t, t.TempDir(), options()), d)
	p := kv.Tokens(tokens(1, 128)...)
	other := kv.Tokens(concat(p.Tokens[:94], tokens(2, 15))...)
	put(t, m, other)
	putFrom(t, m, p.Prefix(104), 0, 100)
	putFrom(t, m, p, 88, 88)
	if _, err := m.Delete(ctx, other); err != nil { // it has these rows, too
		t.Fatal(err)
	}
	for _, n := range []int{74, 88, 90, 128} {
		expect(t, m, p.Prefix(n), n)
	}
}
