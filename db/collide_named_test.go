package db

import (
	"errors"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// twins are two prompts that begin with blocks of one key, and go on with the same tokens.
func twins() (p, q kv.Prompt) {
	p = kv.Tokens(tokens(1, 56)...)
	return p, twinOf(p)
}

// A deletion takes what was stored for its own prefix: not another prompt's blocks, though the keys of those before collide.
func TestDeleteOfATwinTakesNothing(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p, q := twins()
			put(t, m, p)
			for _, n := range []int{16, 32, 40, 56} {
				if got, err := m.Delete(ctx, q.Prefix(n)); err != nil || got.Blocks != 0 {
					t.Errorf("the first %d tokens: %+v deleted (%v)", n, got, err)
				}
			}
			expect(t, m, p, 56)
			if got, err := m.Delete(ctx, p.Prefix(40)); err != nil || got.Blocks != 2 {
				t.Errorf("its own prompt: %+v deleted (%v)", got, err)
			}
		})
	}
}

// What was stored below a block that cannot be read any more can be deleted.
func TestDeleteBelowAnUnreadableBlock(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), broad()} {
		t.Run(d.Name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 3*d.BlockTokens)...)
			put(t, m, p)
			v := s.eng.view()
			x, ok, err := v.Get(s.eng.hasher.Chain(m.Fingerprint(), d.BlockTokens, &p).Key(0), 0)
			v.Release()
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			spoilTokens(t, s, x)
			if got, err := m.Delete(ctx, p.Prefix(2*d.BlockTokens)); err != nil || got.Blocks != 2 {
				t.Errorf("%+v deleted (%v)", got, err)
			}
		})
	}
}

// A ref names a prefix that is stored: it does not pin another prompt's blocks.
func TestRefToATwin(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20)} {
		t.Run(d.Name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p, q := twins()
			put(t, m, p)
			q = kv.Tokens(concat(p.Tokens[:16], twinTokens(p.Tokens[16:32]), p.Tokens[32:])...)
			for _, n := range []int{32, 40, 48, 56} {
				var missing *NotStoredError
				err := m.SetRef(ctx, "twin", q.Prefix(n), RefOptions{Pinned: true, TTL: time.Hour})
				if !errors.As(err, &missing) || missing.Reason.Code != Collision {
					t.Errorf("ref to %d tokens of another prompt: %v", n, err)
				}
			}
			if _, err := s.Ref("twin"); !errors.Is(err, ErrNotFound) {
				t.Errorf("the ref is there: %v", err)
			}
			if err := m.SetRef(ctx, "own", p.Prefix(40), RefOptions{Pinned: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// broad is plain with blocks of more tokens than the index knows.
func broad() kv.Descriptor {
	d := plain()
	d.Name, d.BlockTokens = "broad", 128
	return d
}
