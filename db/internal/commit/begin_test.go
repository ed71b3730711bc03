package commit_test

import (
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// panicking is LRU that panics when it is told to.
type panicking struct {
	db.Policy
	now *atomic.Bool
}

func (p panicking) Rank(l db.Leaf) uint64 {
	if p.now.Load() {
		panic("policy")
	}
	return p.Policy.Rank(l)
}

// A change that a panic of the host's policy ends keeps nobody from the next one.
func TestPolicyPanicsWhileAChangeBegins(t *testing.T) {
	now := new(atomic.Bool)
	o := storetest.Options()
	o.Policy = panicking{db.LRU(), now}
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	storetest.OK(t, storetest.Match(t, m, p).Close()) // its use waits for the next change

	l := storetest.Engine(s).Ledger
	now.Store(true)
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("no panic")
			}
		}()
		l.Begin()
	}()
	now.Store(false)

	if l.Recency().None() {
		t.Fatal("the use is lost")
	}
	done := make(chan error, 1)
	go func() { done <- s.Checkpoint(t.Context()) }()
	storetest.Eventually(t, "the next change", func() bool { return len(done) > 0 })
	storetest.OK(t, <-done)
	if !l.Recency().None() {
		t.Fatal("the use waits still")
	}
}
