package write

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Rows of a record that was replaced since a put looked into the index are not added to: nothing kept its bytes before the put's
// lease was taken.
func TestOlderRecordIsLookedUpUnderTheLease(t *testing.T) {
	dir := t.TempDir()
	set, err := segments.Open(segments.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Abandon()
	ix := index.Memory()
	hasher := kv.NewHasher(kv.Seed{1})
	s := &Store{Store: &lease.Store{Search: &prefix.Store{Hasher: hasher, Index: ix, Segments: set}, Pins: lease.NewPins()}}

	d := kv.Descriptor{BlockTokens: 16, Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 16}}}
	p := kv.Prompt{Tokens: make([]kv.Token, 16)}
	w := &Put{store: s, prompt: p, Chain: hasher.Chain(d.Fingerprint(), d.BlockTokens, &p)}
	w.model.Model = prefix.Model{Fingerprint: d.Fingerprint(), Desc: &d}
	x := index.Entry{Key: w.Chain.Key(0), Group: 1, Model: d.Fingerprint(), Loc: index.Loc{Segment: 1, Offset: 8192, Length: 4096}, RowCount: 16}
	if err := ix.Update(func(t *index.Txn) error {
		base := x
		base.Group, base.Tokens, base.Loc.Offset = 0, 16, 4096
		return errors.Join(t.Put(base), t.Put(x))
	}); err != nil {
		t.Fatal(err)
	}
	now := w.older(0, 1, x)
	now.release(s.Pins)
	if now.err != nil {
		t.Error(now.err)
	}
	if err := ix.Update(func(t *index.Txn) error {
		return t.SetLoc(x.Key, 1, index.Loc{Segment: 1, Offset: 12288, Length: 4096}, 9)
	}); err != nil {
		t.Fatal(err)
	}
	then := w.older(0, 1, x)
	then.release(s.Pins)
	if !IsGone(then.err) {
		t.Errorf("its place may hold anything by now: %v", then.err)
	}
	if n, _ := set.Leases(); n != 0 {
		t.Errorf("%d leases are open", n)
	}
}
