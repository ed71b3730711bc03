package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

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
