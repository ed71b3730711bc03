package damage

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/internal/memdir"
)

// run tries cases, one after the other, in a directory of its own.
type run struct {
	dir   string
	laid  *base // what lies there, undamaged; nil if nobody knows
	tally map[string]int
	bound map[bool]uint64 // bytes that a case may allocate, with writes and without
	most  map[bool]uint64 // that one did
	fails []string
	shape map[string]int // failures by what they have in common
	tried int
}

func newRun(t testing.TB, bases []*base) *run {
	r := &run{
		dir: filepath.Join(memdir.Dir(t), "store"), tally: map[string]int{}, shape: map[string]int{},
		bound: map[bool]uint64{}, most: map[bool]uint64{},
	}
	// What it takes without damage, and with an index that must be rebuilt, is what it may take, several times over.
	for _, x := range bases {
		for _, full := range []bool{false, true} {
			r.bound[full] = 1 << 40
			index := len(x.files["index.db"])
			for _, h := range []harm{{x: x, what: "cut", file: "index.db", off: index}, {x: x, what: "zero", file: "index.db"}} {
				if bad := r.try(h, full); len(bad) > 0 {
					t.Fatalf("%v: %s", h, strings.Join(bad, "\n"))
				}
			}
		}
	}
	for full, n := range r.most {
		r.bound[full] = 4*n + 4<<20
	}
	r.tally, r.tried = map[string]int{}, 0
	return r
}

// try does one case. full means that the store is written to, closed and opened again.
func (r *run) try(h harm, full bool) (bad []string) {
	if r.laid != h.x {
		if err := h.x.files.lay(r.dir); err != nil {
			return []string{err.Error()}
		}
		r.laid = h.x
	}
	defer dog(h.String)()
	before := allocated()
	if err := h.do(r.dir); err != nil {
		return []string{err.Error()}
	}
	u := &user{x: h.x, cost: h.cost(), dir: r.dir}
	rep := u.read(!full)
	bad = r.verify(h, rep)
	if full {
		r.laid = nil
		u.readAndWrite()
	} else if err := h.undo(r.dir); err != nil {
		return []string{err.Error()}
	}
	bad = append(bad, u.bad...)
	n := allocated() - before
	r.most[full] = max(r.most[full], n)
	if n > r.bound[full] {
		bad = append(bad, fmt.Sprintf("%d bytes allocated, at most %d expected", n, r.bound[full]))
	}
	r.tried++
	return bad
}

// note keeps what went wrong.
func (r *run) note(n int, h harm, bad []string) {
	for _, b := range bad {
		key := h.what + ", " + h.x.at(h.file, h.off).what + ": " + strings.Map(func(c rune) rune {
			if c >= '0' && c <= '9' {
				return -1
			}
			return c
		}, b[:min(len(b), 60)])
		if r.shape[key]++; r.shape[key] <= 3 {
			r.fails = append(r.fails, fmt.Sprintf("case %d: %v: %s", n, h, b[:min(len(b), 600)]))
		}
	}
}

// summary lists the counts.
func (r *run) summary() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(r.tally)) {
		fmt.Fprintf(&b, "%9d %s\n", r.tally[k], k)
	}
	fmt.Fprintf(&b, "most bytes allocated by a case: %d of %d without writes, %d of %d with\n",
		r.most[false], r.bound[false], r.most[true], r.bound[true])
	return b.String()
}

// allocated is how many bytes were ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// read opens the store read-only, restores everything if all is set, and verifies.
func (u *user) read(all bool) (rep admin.Report) {
	o := options()
	o.ReadOnly = true
	s, err := db.Open(ctx, u.dir, o)
	var bad *db.CorruptError
	if errors.As(err, &bad) {
		rep.Damage = append(rep.Damage, bad)
	}
	if err != nil {
		u.fail("open read-only: %v", err)
		return rep
	}
	if all {
		u.restoreAll(s, "read-only", func(c *chat) int { return u.x.least(u.cost, c) })
	}
	if !u.cost.index || !all {
		rep, err = admin.VerifyStore(ctx, s, admin.VerifyOptions{})
	} else { // by now it may have been rebuilt
		rep, err = admin.Report{}, s.Close()
		if err == nil {
			rep, err = admin.Verify(ctx, u.dir, admin.VerifyOptions{})
		}
		if err != nil {
			u.fail("verify: %v", err)
		}
		return rep
	}
	if err != nil {
		u.fail("verify: %v", err)
	}
	if err := s.Close(); err != nil {
		u.fail("close of a read-only store: %v", err)
	}
	return rep
}

// notDone begins what is said of writes that are not there when the store is opened again.
const notDone = "opened again, not done: "

// readAndWrite uses the store as users do, closes it, and looks whether what was done is there when it is opened again.
func (u *user) readAndWrite() {
	o := options()
	s, err := db.Open(ctx, u.dir, o)
	if err != nil {
		u.fail("open: %v", err)
		return
	}
	short := u.restoreAll(s, "at first", func(c *chat) int { return u.x.least(u.cost, c) })
	u.look(s)
	fresh := u.write(s, short)
	if err := s.Close(); err != nil {
		u.fail("close: %v", err)
	}
	o.ReadOnly = true
	if s, err = db.Open(ctx, u.dir, o); err != nil {
		u.fail("open again: %v", err)
		return
	}
	u.restoreAll(s, "opened again", func(c *chat) int {
		switch c.name {
		case "images":
			return 0
		case "alice":
			return min(40, u.x.least(u.cost, c))
		}
		return c.want // what was short was put again
	})
	if m, err := s.Model(fresh.d.Fingerprint()); err != nil {
		u.fail("opened again: %v", err)
	} else if n, reason, err := fresh.restore(m); err != nil || n != len(fresh.p.Tokens) {
		u.fail(notDone+"%d tokens of what was put last (%v), %v", n, reason, err)
	}
	for _, c := range u.x.chats {
		if m, err := s.Model(c.d.Fingerprint()); err == nil && (c.name == "images" || c.name == "alice") {
			if n, _, err := m.Probe(ctx, c.p, db.MatchOptions{}); err != nil || n > map[string]int{"images": 30, "alice": 40}[c.name] {
				u.fail(notDone+"%s was deleted, and has %d tokens, %v", c.name, n, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		u.fail("close again: %v", err)
	}
}
