package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// What is logged while a checkpoint is written is in none, and counts for the next one.
func TestGrowthDuringACheckpoint(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 32)}
	put(t, m, p)
	if err := s.Checkpoint(&askedContext{ctx, func() {
		if err := m.SetRef(ctx, "late", p, RefOptions{Meta: make([]byte, MaxRefMeta)}); err != nil {
			t.Fatal(err)
		}
		put(t, m, kv.Prompt{Tokens: tokens(2, 32)})
	}}); err != nil {
		t.Fatal(err)
	}
	if n, all := s.eng.Inside().StateGrowth().Load(), s.eng.Inside().Growth().Load(); n < MaxRefMeta || all < n+1<<10 {
		t.Errorf("%d bytes of refs, %d in all are said to be behind the checkpoint", n, all)
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if n, all := s.eng.Inside().StateGrowth().Load(), s.eng.Inside().Growth().Load(); n != 0 || all != 0 {
		t.Errorf("%d bytes of refs, %d in all are said to be behind the next one", n, all)
	}
}

// A change that is not made does not take with it what matches have used.
func TestUsesOutliveAFailedChange(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 32)}
	put(t, m, p)
	expect(t, m, p, 32)
	e, failed := s.eng, errors.New("not this time")
	if _, err := e.Commit(func(*index.Txn) (oplog.Op, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	put(t, m, kv.Prompt{Tokens: tokens(2, 32)})
	c := e.Hasher.Chain(m.ms.Fingerprint, m.ms.Desc.BlockTokens, &p)
	v := e.View()
	defer v.Release()
	if x, ok, err := v.Get(c.Key(1), 0); err != nil || !ok || x.Hits != 1 {
		t.Errorf("%d hits, expected 1 (%v, %v)", x.Hits, ok, err)
	}
}
