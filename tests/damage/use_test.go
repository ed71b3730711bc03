package damage

import (
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// user opens a damaged store and does with it what users do.
type user struct {
	x    *base
	cost *cost
	dir  string
	bad  []string // laws that were broken

	final func(error) bool // whether no waiting mends it; nil: nothing is final
}

func (u *user) fail(format string, args ...any) { u.bad = append(u.bad, fmt.Sprintf(format, args...)) }

// patience is for an index that is being rebuilt in the background.
const patience = 10 * time.Second

// again calls do until it says yes; where the cost is the index alone, a no is a no only after a while.
func (u *user) again(do func() bool) bool {
	if do() {
		return true
	}
	if !u.cost.index {
		return false
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		if do() {
			return true
		}
	}
	return false
}

// try calls do likewise, unless its error is final, and fails with that error.
func (u *user) try(what string, do func() error) {
	var err error
	if !u.again(func() bool { err = do(); return err == nil || u.final != nil && u.final(err) }) || err != nil {
		u.fail("%s: %v", what, err)
	}
}

// restoreAll restores every prompt, and returns those that came back short.
func (u *user) restoreAll(s *db.Store, when string, floor func(*chat) int) (short []*chat) {
	for _, c := range u.x.chats {
		m, err := s.Model(c.d.Fingerprint())
		if errors.Is(err, db.ErrNotFound) {
			if floor(c) > 0 {
				u.fail("%s: %s: its model is not there", when, c.name)
			}
			continue
		}
		if err != nil {
			u.fail("%s: %s: %v", when, c.name, err)
			continue
		}
		var n int
		var reason db.Reason
		ok := u.again(func() bool {
			if n, reason, err = c.restore(m); err != nil {
				return false
			}
			if bad := c.compare(n); bad != "" {
				u.fail("%s: %s", when, bad)
			}
			return n >= floor(c)
		})
		switch {
		case err != nil:
			u.fail("%s: %s: %v", when, c.name, err)
		case !ok:
			u.fail("%s: %s: %d tokens, expected %d (%v)", when, c.name, n, floor(c), reason)
		case n > u.x.most(u.cost, c):
			u.fail("%s: %s: %d tokens, though what is beyond %d was deleted", when, c.name, n, c.want)
		}
		if n < c.want {
			short = append(short, c)
		}
	}
	return short
}

// look asks everything that only reads.
func (u *user) look(s *db.Store) {
	for _, c := range u.x.chats {
		m, err := s.Model(c.d.Fingerprint())
		if err != nil {
			continue
		}
		u.try("probe", func() error { _, _, err := m.Probe(ctx, c.p, db.MatchOptions{}); return err })
		u.try("explain", func() error { _, err := m.Explain(ctx, c.p, db.MatchOptions{}); return err })
		u.view(m, c)
	}
	u.try("blocks", func() error {
		n := 0
		for b, err := range s.Blocks(ctx) {
			if err != nil {
				return err
			}
			if n++; n%7 == 0 {
				db.Collect(admin.Planes(ctx, s, b)) // may be damaged
			}
		}
		return nil
	})
	u.try("models", func() error { _, err := db.Collect(s.Models()); return err })
	u.try("segments", func() error { _, err := db.Collect(admin.Segments(ctx, s)); return err })
	u.try("tombstones", func() error { _, err := db.Collect(admin.Tombstones(s)); return err })
	u.try("log", func() error { _, err := db.Collect(admin.Log(ctx, s)); return err })
	u.try("stats", func() error { _, err := s.Stats(); return err })
	u.try("refs", func() error {
		refs, err := db.Collect(s.Refs())
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, r := range refs {
			have[r.Name] = true
			if r.Name == "system" && (!r.Pinned || r.Tokens != 40 || string(r.Meta) != "about system") {
				return fmt.Errorf("ref %+v", r)
			}
		}
		if !have["system"] && !(u.cost.log && u.cost.index) {
			return errors.New("a ref of before the checkpoint is gone")
		}
		if (!have["late"] || have["gone"] || have["brief"]) && !u.cost.log {
			return fmt.Errorf("refs %v", have)
		}
		return nil
	})
}

// view walks over the stored planes of a prompt. Damage ends the walk.
func (u *user) view(m *db.Model, c *chat) {
	x, err := m.Match(ctx, c.p, db.MatchOptions{})
	if err != nil {
		return // restoreAll has said so
	}
	defer x.Close()
	err = x.View(ctx, func(p db.StoredPlane) error {
		if p.Tensor >= len(c.d.Tensors) || p.First < 0 || p.First+p.Rows > len(c.p.Tokens) {
			u.fail("view of %s: tensor %d, rows [%d, +%d)", c.name, p.Tensor, p.First, p.Rows)
			return nil
		}
		t := c.d.Tensors[p.Tensor]
		if c.put.Codec == quant.Raw && len(p.Bytes) >= p.Rows*t.RowBytes() && c.put.Compression == quant.None {
			n := p.Rows * t.RowBytes()
			if string(p.Bytes[:n]) != string(c.exact[p.Tensor][p.First*t.RowBytes():][:n]) {
				u.fail("view of %s: rows of tensor %d at %d are wrong", c.name, p.Tensor, p.First)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, db.ErrCorrupt) && len(u.cost.blocks) == 0 {
		u.fail("view of %s: %v", c.name, err)
	}
}

// fresh is a prompt that no base holds.
func (u *user) fresh() *chat {
	for _, c := range u.x.chats {
		if c.name == "plain" {
			f := &chat{name: "fresh", kind: c.kind, p: kv.Prompt{Tokens: tokens(99, 60)}}
			f.rows, f.memo, f.want = f.compute(60), f.memory(), 60
			for i := range f.rows {
				f.exact = append(f.exact, f.rows[i].Pieces[0].Mem)
			}
			f.put.Codec = quant.Raw // else the rows would come back a little different
			return f
		}
	}
	panic("no plain chat")
}

// write stores, deletes and makes checkpoints: what is short is put again, something new is put, something goes.
func (u *user) write(s *db.Store, short []*chat) (fresh *chat) {
	put := func(c *chat) {
		p := c.p.Prefix(max(c.want, kv.OpeningTokens))
		u.try("put of "+c.name, func() error {
			m, err := s.Register(ctx, c.d)
			if err != nil {
				return err
			}
			// A put replaces the damage that is known. What lies behind that is found by the restore that comes to it.
			for range 2 * (len(c.p.Tokens)/blockTokens + 1) {
				got, err := m.Put(ctx, p, c.rows, c.put)
				if err != nil || got.Tokens != len(p.Tokens) {
					return fmt.Errorf("%d of %d tokens stored, %v", got.Tokens, len(p.Tokens), err)
				}
				n, reason, err := c.restore(m.Model)
				if err != nil {
					return err
				}
				if bad := c.compare(n); bad != "" {
					u.fail("after a put: %s", bad)
				}
				if n >= c.want {
					return nil
				}
				if reason.Code != db.Damaged {
					return fmt.Errorf("then %d of %d tokens restored (%v)", n, len(p.Tokens), reason)
				}
			}
			return errors.New("every restore finds new damage")
		})
	}
	fresh = u.fresh()
	put(fresh)
	for _, c := range short {
		put(c)
	}
	u.try("checkpoint", func() error { return s.Checkpoint(ctx) })
	for _, c := range u.x.chats {
		switch c.name {
		case "late":
			u.try("set a ref", func() error {
				m, err := s.Register(ctx, c.d)
				if err != nil {
					return err
				}
				return m.SetRef(ctx, "new", c.p.Prefix(20), db.RefOptions{})
			})
		case "images":
			u.try("delete", func() error {
				m, err := s.Register(ctx, c.d)
				if err != nil {
					return err
				}
				_, err = m.Delete(ctx, c.p.Prefix(30))
				return err
			})
		}
	}
	u.try("delete a scope", func() error { _, err := s.DeleteScope(ctx, "alice"); return err })
	return fresh
}
