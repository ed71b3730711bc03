package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// What is logged while a checkpoint is written is in none, and counts for the next one.
func TestGrowthDuringACheckpoint(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(&askedContext{t.Context(), func() {
		storetest.OK(t, m.SetRef(t.Context(), "late", p, db.RefOptions{Meta: make([]byte, db.MaxRefMeta)}))
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)})
	}}))
	if n, all := storetest.Engine(s).Inside().StateGrowth().Load(), storetest.Engine(s).Inside().Growth().Load(); n < db.MaxRefMeta || all < n+1<<10 {
		t.Errorf("%d bytes of refs, %d in all are said to be behind the checkpoint", n, all)
	}
	storetest.OK(t, s.Checkpoint(t.Context()))
	if n, all := storetest.Engine(s).Inside().StateGrowth().Load(), storetest.Engine(s).Inside().Growth().Load(); n != 0 || all != 0 {
		t.Errorf("%d bytes of refs, %d in all are said to be behind the next one", n, all)
	}
}

// A change that is not made does not take with it what matches have used.
func TestUsesOutliveAFailedChange(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 32)
	e, failed := storetest.Engine(s), errors.New("not this time")
	if _, err := e.Commit(func(*index.Txn) (oplog.Op, error) { return nil, failed }, nil); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)})
	c := e.Hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p)
	v := e.View()
	defer v.Release()
	if x, ok, err := v.Get(c.Key(1), 0); err != nil || !ok || x.Hits != 1 {
		t.Errorf("%d hits, expected 1 (%v, %v)", x.Hits, ok, err)
	}
}

// askedContext runs something when it is first asked whether it is over.
type askedContext struct {
	context.Context
	asked func()
}

func (c *askedContext) Err() error {
	if f := c.asked; f != nil {
		c.asked = nil
		storetest.Meanwhile(f)
	}
	return nil
}
