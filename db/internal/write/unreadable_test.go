package write_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

// spoilTokens damages the first token of a prompt's first record.
func spoilTokens(t *testing.T, s *db.Store, m *db.Model, p kv.Prompt) {
	t.Helper()
	at := storetest.Place(t, s, m, p, 0, 0)
	storetest.Write(t, storetest.SegmentPath(s.Dir(), at.Segment), at.Offset+256, []byte{0xff, 0xff, 0xff, 0xff})
}

// broad is plain with blocks of more tokens than the index knows.
func broad() kv.Descriptor {
	d := crashtest.Plain()
	d.Name, d.BlockTokens = "broad", 128
	return d
}

// A block that cannot be read any more is stored anew by the next put of its prompt, whoever met the damage first, and keeps what
// hangs below it, refs and leases included.
func TestUnreadableBlockIsStoredAnew(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), broad()} {
		for _, how := range []string{"put", "put, met before", "extend", "after a reopen", "ref", "lease"} {
			t.Run(fmt.Sprint(d.Name, ", ", how), func(t *testing.T) {
				s, m := storetest.Fresh(t, storetest.Options(), d)
				dir := s.Dir()
				n := d.BlockTokens
				p := kv.Tokens(crashtest.Tokens(1, 3*n-5)...)
				other := kv.Tokens(crashtest.Concat(p.Tokens[:2*n], crashtest.Tokens(2, n))...)
				storetest.Put(t, m, p)
				storetest.Put(t, m, other)
				switch how {
				case "ref":
					storetest.OK(t, m.SetRef(t.Context(), "named", p, db.RefOptions{Pinned: true}))
				case "lease":
					defer storetest.Match(t, m, p).Close()
				}
				spoilTokens(t, s, m, p)
				switch how {
				case "put, met before":
					storetest.Expect(t, m, p, 0)
				case "after a reopen":
					storetest.Expect(t, m, p, 0)
					storetest.OK(t, s.Close())
					s = storetest.Open(t, dir, storetest.Options())
					m = storetest.Model(t, s, d)
				case "extend":
					x := storetest.Match(t, m, p)
					defer x.Close()
					storetest.Must(x.Extend(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{}))(t)
				}
				if how != "extend" {
					if got := storetest.Put(t, m, p); got.Blocks != 1 {
						t.Errorf("%d blocks are written, one was damaged", got.Blocks)
					}
				}
				storetest.Expect(t, m, p, len(p.Tokens))
				storetest.Expect(t, m, other, len(other.Tokens))
			})
		}
	}
}

// What was stored below a block that cannot be read any more can be deleted.
func TestDeleteBelowAnUnreadableBlock(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), broad()} {
		t.Run(d.Name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			p := kv.Tokens(crashtest.Tokens(1, 3*d.BlockTokens)...)
			storetest.Put(t, m, p)
			spoilTokens(t, s, m, p)
			if got, err := m.Delete(t.Context(), p.Prefix(2*d.BlockTokens)); err != nil || got.Blocks != 2 {
				t.Errorf("%+v deleted (%v)", got, err)
			}
		})
	}
}

// A put is under way when the blocks on which it rests are deleted, and some of them put again.
func TestPutBesideADeletionAndAnotherPut(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque()} {
		for _, again := range []int{0, 16, 32} {
			t.Run(fmt.Sprint(d.Name, again), func(t *testing.T) {
				s, m := storetest.Fresh(t, storetest.Options(), d)
				p := kv.Tokens(crashtest.Tokens(1, 48)...)
				storetest.Put(t, m, p.Prefix(32))
				slow := storetest.Engine(s).Inside().NewPut(storetest.Engine(s).Catalog.Model(m.Fingerprint()), storetest.Filled(d, &p, 0, 48), nil, write.Options{Codec: storetest.Options().Codec})
				storetest.OK(t, slow.Plan(&p))
				n, err := slow.Known()
				if err != nil || n > 2 {
					t.Fatal(n, err)
				}
				for i := n; i < 3; i++ {
					storetest.OK(t, slow.Block(t.Context(), i))
				}
				storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
				if again > 0 {
					storetest.Put(t, m, p.Prefix(again))
				}
				err = slow.Publish(t.Context())
				slow.Release()
				storetest.MayFail(t, err)
				storetest.Restore(t, m, p)
				storetest.Put(t, m, p)
				storetest.Expect(t, m, p, 48)
				storetest.Must(admin.VerifyStore(t.Context(), s, admin.VerifyOptions{}))(t)
			})
		}
	}
}

// Whatever lies under a prompt's key: a restore compares the tokens. Here another prompt's rows were stored there.
func TestRestoreComparesTokens(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			p := kv.Tokens(crashtest.Tokens(1, 32)...)
			q := kv.Tokens(crashtest.Concat(p.Tokens[:16], crashtest.Tokens(2, 16))...)
			storetest.Put(t, m, p.Prefix(16))
			forged := storetest.Engine(s).Inside().NewPut(storetest.Engine(s).Catalog.Model(m.Fingerprint()), storetest.Filled(d, &p, 0, 32), nil, write.Options{Codec: storetest.Options().Codec})
			storetest.OK(t, forged.Plan(&p))
			forged.Chain = storetest.Engine(s).Hasher.Chain(m.Fingerprint(), d.BlockTokens, &q)
			storetest.OK(t, forged.Block(t.Context(), 1))
			storetest.OK(t, forged.Publish(t.Context()))
			forged.Release()
			if n, why := storetest.Restore(t, m, q); n > 16 || why.Code != db.Collision && why.Code != db.StateMissing {
				t.Errorf("%d tokens of another prompt (%v)", n, why)
			}
		})
	}
}

// What tests/crash found, each by itself.

// What is stored after a match does not make it longer: its lease does not hold that. It still gives what it promised.
func TestMatchStaysAsLongAsItWas(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	for _, d := range []kv.Descriptor{crashtest.Opaque(), crashtest.Windowed(40)} {
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(3, 120)}
		d = m.Descriptor()
		long, short := p.Prefix(100), p.Prefix(50)
		if d.Name == "opaque" {
			storetest.Put(t, m, short)
			bare := storetest.Filled(d, &long, 0, 100)
			bare[0] = kv.TensorRows{} // tokens without their state
			storetest.Must(m.Put(t.Context(), long, bare, db.PutOptions{}))(t)
		} else {
			storetest.Put(t, m, short)
			late := storetest.Filled(d, &long, 0, 100)
			for i, tensor := range d.Tensors {
				if tensor.Group == 1 { // the window's rows begin late
					late[i] = late[i].Slice(tensor, 90, 100)
				}
			}
			storetest.Must(m.Put(t.Context(), long, late, db.PutOptions{}))(t)
		}
		x := storetest.Match(t, m, p)
		defer x.Close()
		promised, why := x.Tokens(), x.Reason()
		storetest.Put(t, m, long)
		rows := storetest.Empty(d, 120)
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != promised || got.Reason.Code != why.Code {
			t.Fatalf("%s: %+v, %v, expected %d tokens (%v)", d.Name, got, err, promised, why)
		}
		storetest.CheckRows(t, d, &p, rows, promised)
		if n, _ := storetest.Restore(t, m, p); n != 100 {
			t.Errorf("%s: a new match gives %d tokens", d.Name, n)
		}
	}
}

// A restore into memory that ends blocks before the match does gives the rows that there is room for.
func TestRestoreIntoLessMemory(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)} {
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(4, 150)}
		storetest.Put(t, m, p)
		for _, room := range []int{149, 130, 97, 96, 95, 50, 17} {
			x := storetest.Match(t, m, p)
			rows := storetest.Empty(m.Descriptor(), room)
			got, err := x.Restore(t.Context(), rows)
			if err != nil || got.Tokens != room || got.Reason.Code != db.MemoryShort {
				t.Errorf("%s, room for %d rows: %+v, %v", d.Name, room, got, err)
			} else {
				storetest.CheckRows(t, m.Descriptor(), &p, rows, room)
			}
			x.Close()
		}
	}
}

// What is allocated ahead for several models, the pages that a checkpoint writes anew, and a compaction's copies all fit into
// the budget, of which puts under open matches take all that they may.
func TestBudgetHoldsForManyModels(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.HighWater, o.LowWater = 5<<20, 128<<10, 1, 1
	s := storetest.Open(t, t.TempDir(), o)
	var models []*db.Model
	for i := range 7 {
		d := crashtest.Plain()
		d.Name = fmt.Sprint("model ", i)
		models = append(models, storetest.Model(t, s, d))
	}
	var held []*db.Match
	for i := range 400 {
		m, p := models[i%len(models)], kv.Prompt{Tokens: crashtest.Tokens(i, 40)}
		_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 40), db.PutOptions{})
		if err != nil && !errors.Is(err, db.ErrNoSpace) {
			t.Fatal(err)
		}
		if i%3 == 0 {
			x := storetest.Match(t, m, p)
			defer x.Close()
			held = append(held, x)
		}
		switch {
		case i%40 == 39:
			if _, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil && !errors.Is(err, db.ErrNoSpace) {
				t.Fatal(err)
			}
		case i%10 == 9:
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		if st, err := s.Stats(); err != nil || st.DiskHighWater > st.Budget {
			t.Fatalf("after put %d: %d bytes were in use, of a budget of %d (%v)", i, st.DiskHighWater, st.Budget, err)
		}
		if len(held) > 12 {
			held[0].Close()
			held = held[1:]
		}
	}
}
