package db

import (
	"errors"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// A ref is not acknowledged on a prefix whose state is gone: room is made for the ref, the prefix is evicted meanwhile, and a put of
// a longer prompt brings back its blocks, with a state of its own only.
func TestRefWhoseStateGoesMeanwhile(t *testing.T) {
	d := newCrashDisk(newCrashDirs(t).Next())
	o := options()
	o.Budget, o.SegmentBytes, o.HighWater, o.LowWater, o.fs = 4<<20, 64<<10, 1, 1, d
	s := open(t, d.Dir(), o)
	m, e := model(t, s, opaque()), s.eng
	for i := range 20 {
		put(t, m, kv.Tokens(tokens(10+i, 64)...))
	}
	p := kv.Tokens(tokens(1, 64)...)
	longer := kv.Tokens(concat(p.Tokens, tokens(2, 30))...)
	put(t, m, p)

	rest := int64(0) // all the room that is left
	for n := o.Budget; n >= 1<<10; n /= 2 {
		for e.Inside().TakeSpace(n, o.Budget-e.Inside().ReserveBytes()) {
			rest += n
		}
	}
	destroying, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "punch" || op.Kind == "remove" {
			once.Do(func() {
				close(destroying)
				<-goOn
			})
		}
		return nil
	})
	set := make(chan error)
	go func() { set <- m.SetRef(ctx, "ref", p, RefOptions{Pinned: true, Meta: make([]byte, MaxRefMeta)}) }()
	<-destroying // others go for it
	e.GiveUp(rest, 0)
	if n, err := e.Inside().EvictBlocks(1 << 20); err != nil || n == 0 {
		t.Error(n, err)
	}
	put(t, m, longer)
	close(goOn)
	err := <-set
	if n, why, perr := m.Probe(ctx, p, MatchOptions{}); err == nil && n < 64 || perr != nil {
		t.Errorf("a ref was set on 64 tokens of which %d are stored (%v), %v", n, why, perr)
	}
	if err != nil && !errors.Is(err, ErrNotStored) {
		t.Error(err)
	}
}

// Nor where a deletion took it.
func TestRefWhosePrefixIsPutAnew(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m, e := model(t, s, opaque()), s.eng
	p := kv.Tokens(tokens(1, 64)...)
	put(t, m, p)
	x, err := m.whole(ctx, e, p)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := m.Delete(ctx, p.Prefix(50)); err != nil {
		t.Fatal(err)
	}
	put(t, m, kv.Tokens(concat(p.Tokens, tokens(2, 30))...))
	ref := Ref{Name: "ref", Model: m.Fingerprint(), Block: x.held.Rests[0], Tokens: 64}
	if err := e.LogRef(ref.op(), x.held.Found); !errors.Is(err, engine.ErrRefGone) {
		t.Errorf("a ref on a state that was deleted: %v", err)
	}
	if err := m.SetRef(ctx, "ref", p, RefOptions{}); !errors.Is(err, ErrNotStored) {
		t.Error(err)
	}
}
