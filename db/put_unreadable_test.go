package db

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// mayFail ends the test for an error that is not that of a put whose prefix is not stored.
func mayFail(t *testing.T, err error) {
	t.Helper()
	var missing *NotStoredError
	if err != nil && !errors.As(err, &missing) && !read.Passing(err) {
		t.Fatal(err)
	}
}

// entryOf is what the index says about block i of a prompt.
func entryOf(t *testing.T, s *Store, m *Model, p kv.Prompt, i int) index.Entry {
	t.Helper()
	v := s.eng.View()
	defer v.Release()
	x, ok, err := v.Get(s.eng.Hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p).Key(i), 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return x
}

// spoilTokens damages the first token of a record.
func spoilTokens(t *testing.T, s *Store, x index.Entry) {
	t.Helper()
	f, err := os.OpenFile(s.eng.SegmentPath(x.Loc.Segment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, x.Loc.Offset+256); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// broad is plain with blocks of more tokens than the index knows.
func broad() kv.Descriptor {
	d := plain()
	d.Name, d.BlockTokens = "broad", 128
	return d
}

// A block that cannot be read any more is stored anew by the next put of its prompt, whoever met the damage first, and keeps what
// hangs below it, refs and leases included.
func TestUnreadableBlockIsStoredAnew(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), broad()} {
		for _, how := range []string{"put", "put, met before", "extend", "after a reopen", "ref", "lease"} {
			t.Run(fmt.Sprint(d.Name, ", ", how), func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir, options())
				m := model(t, s, d)
				n := d.BlockTokens
				p := kv.Tokens(tokens(1, 3*n-5)...)
				other := kv.Tokens(concat(p.Tokens[:2*n], tokens(2, n))...)
				put(t, m, p)
				put(t, m, other)
				switch how {
				case "ref":
					if err := m.SetRef(ctx, "named", p, RefOptions{Pinned: true}); err != nil {
						t.Fatal(err)
					}
				case "lease":
					defer match(t, m, p).Close()
				}
				spoilTokens(t, s, entryOf(t, s, m, p, 0))
				switch how {
				case "put, met before":
					expect(t, m, p, 0)
				case "after a reopen":
					expect(t, m, p, 0)
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, dir, options())
					m = model(t, s, d)
				case "extend":
					x := match(t, m, p)
					defer x.Close()
					if _, err := x.Extend(ctx, p, filled(d, &p, 0, len(p.Tokens)), PutOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if how != "extend" {
					if got := put(t, m, p); got.Blocks != 1 {
						t.Errorf("%d blocks are written, one was damaged", got.Blocks)
					}
				}
				expect(t, m, p, len(p.Tokens))
				expect(t, m, other, len(other.Tokens))
			})
		}
	}
}

func match(t *testing.T, m *Model, p kv.Prompt) *Match {
	t.Helper()
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// What was stored below a block that cannot be read any more can be deleted.
func TestDeleteBelowAnUnreadableBlock(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), broad()} {
		t.Run(d.Name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 3*d.BlockTokens)...)
			put(t, m, p)
			spoilTokens(t, s, entryOf(t, s, m, p, 0))
			if got, err := m.Delete(ctx, p.Prefix(2*d.BlockTokens)); err != nil || got.Blocks != 2 {
				t.Errorf("%+v deleted (%v)", got, err)
			}
		})
	}
}

// A put is under way when the blocks on which it rests are deleted, and some of them put again.
func TestPutBesideADeletionAndAnotherPut(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		for _, again := range []int{0, 16, 32} {
			t.Run(fmt.Sprint(d.Name, again), func(t *testing.T) {
				s := open(t, t.TempDir(), options())
				m := model(t, s, d)
				p := kv.Tokens(tokens(1, 48)...)
				put(t, m, p.Prefix(32))
				slow := s.eng.Inside().NewPut(m.ms, filled(d, &p, 0, 48), nil, write.Options{Codec: s.o.Codec})
				if err := slow.Plan(&p); err != nil {
					t.Fatal(err)
				}
				n, err := slow.Known()
				if err != nil || n > 2 {
					t.Fatal(n, err)
				}
				for i := n; i < 3; i++ {
					if err := slow.Block(ctx, i); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := m.Delete(ctx, p.Prefix(16)); err != nil {
					t.Fatal(err)
				}
				if again > 0 {
					put(t, m, p.Prefix(again))
				}
				err = slow.Publish(ctx)
				slow.Release()
				mayFail(t, err)
				restore(t, m, p)
				put(t, m, p)
				expect(t, m, p, 48)
				if _, err := s.Verify(ctx, VerifyOptions{}); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Whatever lies under a prompt's key: a restore compares the tokens. Here another prompt's rows were stored there.
func TestRestoreComparesTokens(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 32)...)
			q := kv.Tokens(concat(p.Tokens[:16], tokens(2, 16))...)
			put(t, m, p.Prefix(16))
			forged := s.eng.Inside().NewPut(m.ms, filled(d, &p, 0, 32), nil, write.Options{Codec: s.o.Codec})
			if err := forged.Plan(&p); err != nil {
				t.Fatal(err)
			}
			forged.Chain = s.eng.Hasher.Chain(m.Fingerprint(), d.BlockTokens, &q)
			if err := forged.Block(ctx, 1); err != nil {
				t.Fatal(err)
			}
			if err := forged.Publish(ctx); err != nil {
				t.Fatal(err)
			}
			forged.Release()
			if n, why := restore(t, m, q); n > 16 || why.Code != Collision && why.Code != StateMissing {
				t.Errorf("%d tokens of another prompt (%v)", n, why)
			}
		})
	}
}
