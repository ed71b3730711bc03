package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// The frame of a move is damaged; what was moved was deleted, and the new place was destroyed before the old one.
func TestDeletedBehindDamagedMove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	other, p := kv.Tokens(tokens(7, 32)...), kv.Tokens(tokens(1, 32)...)
	put(t, m, other)
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	reader, err := m.Match(ctx, other, MatchOptions{}) // keeps what is deleted
	if err != nil {
		t.Fatal(err)
	}
	wals, _ := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	before, _ := os.ReadFile(wals[len(wals)-1])
	key := keyAt(m, p, 1)
	moveAll(t, s, func(x index.Entry) bool { return x.Key == key })
	to := placeOf(t, m, p, 1, 0)
	after, _ := os.ReadFile(wals[len(wals)-1])
	at := 0
	for at < len(before) && before[at] == after[at] {
		at++
	}
	if _, err := m.Delete(ctx, p.Prefix(17)); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 16)
	put(t, m, kv.Tokens(tokens(9, 32)...)) // shows that the frames before were durable
	image := copyStore(t, dir)
	reader.Close()
	zeroRecord(t, image, to, to.Length)
	name := filepath.Join(image, walDir, filepath.Base(wals[len(wals)-1]))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at+60] ^= 0xff
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, image, options())
	if got, _ := restore(t, model(t, s, plain()), p); got != 16 {
		t.Errorf("%d tokens, expected 16: what was deleted is back", got)
	}
}

// A deletion takes what hangs below, though the frame that said so for that is damaged, and though the prefix was put again since.
func TestDeletedBelowBehindDamage(t *testing.T) {
	defer func(n int) { removeBatch = n }(removeBatch)
	removeBatch = 2
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	other, p := kv.Tokens(tokens(7, 32)...), kv.Tokens(tokens(1, 64)...)
	put(t, m, other)
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	reader, err := m.Match(ctx, other, MatchOptions{}) // keeps what is deleted
	if err != nil {
		t.Fatal(err)
	}
	wals, _ := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	before, _ := os.ReadFile(wals[len(wals)-1])
	if _, err := m.Delete(ctx, p.Prefix(1)); err != nil { // the deepest blocks first
		t.Fatal(err)
	}
	after, _ := os.ReadFile(wals[len(wals)-1])
	at := 0
	for at < len(before) && before[at] == after[at] {
		at++
	}
	put(t, m, p.Prefix(32))
	image := copyStore(t, dir)
	reader.Close()
	name := filepath.Join(image, walDir, filepath.Base(wals[len(wals)-1]))
	after, err = os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	after[at+60] ^= 0xff
	if err := os.WriteFile(name, after, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, image, options())
	if got, _ := restore(t, model(t, s, plain()), p); got != 32 {
		t.Errorf("%d tokens, expected 32: what was deleted is back", got)
	}
}
