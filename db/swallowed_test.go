package db

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A Delete that cannot read which blocks there are has not deleted them, and does not say so: they are back once the index is
// rebuilt.
func TestDeleteWithADamagedIndex(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	var p kv.Prompt
	var k kv.Key // the smallest: none of the other rows that a Delete reads lies beside its
	for i := range 8 {
		q := kv.Prompt{Tokens: tokens(i, 16)}
		put(t, m, q)
		chain := s.eng.hasher.Chain(m.ms.Fingerprint, m.ms.desc.BlockTokens, &q)
		if key := chain.Key(0); i == 0 || bytes.Compare(key[:], k[:]) < 0 {
			p, k = q, key
		}
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, indexName)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	row := append(append([]byte{2}, k[:]...), 0) // of the table of blocks; its checksum comes behind the key
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], row)
		if i < 0 {
			break
		}
		at += i
		if _, err := f.WriteAt([]byte{^b[at+len(row)]}, int64(at+len(row))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Delete(ctx, p); err == nil {
		if n, err := m.Match(ctx, p, MatchOptions{}); err == nil { // meets the damage, if the Delete has not
			n.Close()
		}
		eventually(t, "the index is rebuilt", func() bool { return s.rebuilding.Load() == nil })
		if n, _ := restore(t, m, p); n > 0 {
			t.Fatalf("%d tokens are back that a Delete said to have deleted", n)
		}
	} else if !isIndexDamage(err) {
		t.Fatal(err)
	}
	eventually(t, "the index is rebuilt", func() bool { return s.rebuilding.Load() == nil })
	if _, err := m.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 0)
}
