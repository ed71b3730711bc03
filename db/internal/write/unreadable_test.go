package write_test

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
				dir := t.TempDir()
				s := storetest.Open(t, dir, storetest.Options())
				m := storetest.Model(t, s, d)
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
