package together

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

// history is what some clients did to one model.
type history struct {
	t       *testing.T
	s       *db.Store
	u       *universe
	m       *db.Model
	seed    uint64
	begin   time.Time
	resumes *atomic.Int64 // begun and ended ones

	mu      sync.Mutex
	ops     []porcupine.Operation
	dropped int
}

func newHistory(t *testing.T, s *db.Store, seed uint64, resumes *atomic.Int64) *history {
	r := rand.New(rand.NewPCG(seed, 2))
	d := truth.Plain(fmt.Sprint("plain ", seed), 32)
	if seed%3 == 2 {
		d = truth.Windowed(fmt.Sprint("windowed ", seed), 32, 20)
	}
	h := &history{t: t, s: s, seed: seed, begin: time.Now(), resumes: resumes}
	for { // a Suspend may be under way
		m, err := s.Register(ctx, d)
		if err == nil {
			h.m = m.Model
			break
		} else if !errors.Is(err, db.ErrSuspended) {
			t.Fatal(err)
		}
	}
	d = h.m.Descriptor()
	h.u = newUniverse(r, d)
	return h
}

// do calls f and notes when, unless the store was suspended.
func (h *history) do(client int, in call, f func() (answer, error)) answer {
	return h.doWith(client, in, f, nil)
}

// doWith is do with a note on what came of it, which is asked for afterwards.
func (h *history) doWith(client int, in call, f func() (answer, error), note func() any) answer {
	in.client = client
	start := time.Since(h.begin)
	out, err := f()
	end := time.Since(h.begin)
	var missing *db.NotStoredError
	switch {
	case err == nil:
	case errors.Is(err, db.ErrSuspended):
		h.mu.Lock()
		h.dropped++
		h.mu.Unlock()
		return answer{fail: failSuspended}
	case errors.Is(err, db.ErrRetired):
		out = answer{fail: failRetired}
	case errors.Is(err, db.ErrNotFound):
		out = answer{fail: failNotFound}
	case errors.As(err, &missing) && in.what == "set ref":
		out = answer{fail: failNotStored, n: missing.Stored}
	case errors.As(err, &missing):
		out = answer{fail: failNotStored}
	default:
		h.t.Errorf("history %d: %s: %v", h.seed, in.what, err)
	}
	op := porcupine.Operation{ClientId: client, Input: in, Call: int64(start), Output: out, Return: int64(end), Metadata: err}
	if note != nil && err == nil {
		op.Metadata = note()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	return out
}

// client makes calls until it has made enough.
func (h *history) client(c int) {
	r := rand.New(rand.NewPCG(h.seed, 10+uint64(c)))
	var held []*db.Match
	defer func() {
		for _, x := range held {
			x.Close()
		}
	}()
	for range callsEach {
		p := h.u.prompts[r.IntN(len(h.u.prompts))]
		switch n := r.IntN(100); {
		case n < 22:
			h.put(c, p)
		case n < 60:
			if x := h.match(c, r, p); x != nil {
				held = append(held, x)
			}
			if len(held) > 2 {
				held[0].Close()
				held = held[1:]
			}
		case n < 70:
			q := p.Prefix(1 + r.IntN(len(p.Tokens)))
			h.do(c, call{what: "delete", p: q}, func() (answer, error) { return deleted(h.m.Delete(ctx, q)) })
		case n < 73:
			h.do(c, call{what: "delete scope"}, func() (answer, error) { return deleted(h.s.DeleteScope(ctx, h.u.scope)) })
		case n < 81:
			h.setRef(c, r, p)
		case n < 90:
			h.askRefs(c, r)
		case n < 93:
			ref := r.IntN(refNames)
			h.do(c, call{what: "delete ref", ref: ref}, func() (answer, error) { return answer{}, h.s.DeleteRef(ctx, h.refName(ref)) })
		case n < 97:
			h.do(c, call{what: "count"}, h.blocks)
		default:
			h.do(c, call{what: "retire"}, func() (answer, error) { return answer{}, h.s.Retire(ctx, h.m.Fingerprint()) })
			h.do(c, call{what: "model"}, func() (answer, error) {
				_, err := h.s.Register(ctx, h.u.desc)
				return answer{}, err
			})
		}
	}
}

func deleted(d db.Deleted, err error) (answer, error) { return answer{n: d.Blocks, refs: d.Refs}, err }

func (h *history) put(c int, p kv.Prompt) {
	rows := truth.Filled(&h.u.desc, &p, 0, len(p.Tokens))
	h.do(c, call{what: "put", p: p}, func() (answer, error) {
		res, err := h.m.Put(ctx, p, rows, db.PutOptions{})
		return answer{n: res.Tokens}, err
	})
}

// match looks p up, and goes on with what it finds as a runtime would. It returns the match if that stays open.
func (h *history) match(c int, r *rand.Rand, p kv.Prompt) *db.Match {
	resumes := h.resumes.Load()
	limit := len(p.Tokens)
	if r.IntN(3) == 0 {
		limit = 1 + r.IntN(limit)
	}
	in := call{what: "match", p: p, limit: limit}
	if r.IntN(5) == 0 {
		h.do(c, in, func() (answer, error) {
			n, _, err := h.m.Probe(ctx, p, db.MatchOptions{Limit: limit})
			return answer{n: n}, err
		})
		return nil
	}
	var x *db.Match
	got := h.doWith(c, in, func() (answer, error) {
		var err error
		if x, err = h.m.Match(ctx, p, db.MatchOptions{Limit: limit}); err != nil {
			return answer{}, err
		}
		return answer{n: x.Tokens()}, nil
	}, func() any { return fmt.Sprint(x.Reason(), ": ", x.Reason().Err) })
	if x == nil {
		return nil
	}
	if r.IntN(4) > 0 {
		h.restore(c, p, x, got.n, resumes)
	}
	if r.IntN(3) == 0 && got.n < len(p.Tokens) {
		from := got.n
		if r.IntN(3) == 0 {
			from = r.IntN(from + 1)
		}
		h.do(c, call{what: "put", p: p, from: from}, func() (answer, error) {
			res, err := x.Extend(ctx, p, truth.Filled(&h.u.desc, &p, from, len(p.Tokens)), db.PutOptions{})
			return answer{n: res.Tokens}, err
		})
	}
	if r.IntN(2) == 0 {
		return x
	}
	x.Close()
	return nil
}

// restore restores a match twice: the second time it gives the same, whatever was deleted meanwhile. After a Resume a match
// is looked up anew, which is two steps: then only its rows are looked at.
func (h *history) restore(c int, p kv.Prompt, x *db.Match, matched int, resumes int64) {
	again := func() (answer, error) {
		rows := truth.Empty(&h.u.desc, len(p.Tokens))
		got, err := x.Restore(ctx, rows)
		if err == nil {
			err = truth.Check(&h.u.desc, &p, rows, got.Tokens)
		}
		return answer{n: got.Tokens}, err
	}
	start := time.Since(h.begin)
	one, err := again()
	end := time.Since(h.begin)
	kept := func() bool { return resumes%2 == 0 && h.resumes.Load() == resumes }
	if err == nil && kept() {
		h.mu.Lock()
		in := call{what: "restore", client: c, p: p, matched: matched}
		h.ops = append(h.ops, porcupine.Operation{ClientId: c, Input: in, Call: int64(start), Output: one, Return: int64(end)})
		h.mu.Unlock()
	}
	gone := func(err error) bool { return errors.Is(err, db.ErrSuspended) || errors.Is(err, db.ErrRetired) }
	if err != nil && !gone(err) {
		h.t.Errorf("history %d: restore: %v", h.seed, err)
	}
	two, err2 := again()
	if err2 != nil && !gone(err2) {
		h.t.Errorf("history %d: restore again: %v", h.seed, err2)
	}
	if err == nil && err2 == nil && kept() && one != two {
		h.t.Errorf("history %d: a match gave %d tokens, and %d when it was restored again", h.seed, one.n, two.n)
	}
}

func (h *history) refName(i int) string { return fmt.Sprint("ref ", i, " of ", h.u.desc.Name) }

func (h *history) setRef(c int, r *rand.Rand, p kv.Prompt) {
	ref, meta := r.IntN(refNames), 1+r.IntN(200)
	q := p.Prefix(min(len(p.Tokens), kv.OpeningTokens+r.IntN(len(p.Tokens))))
	h.do(c, call{what: "set ref", p: q, ref: ref, meta: meta}, func() (answer, error) {
		return answer{}, h.m.SetRef(ctx, h.refName(ref), q, db.RefOptions{Pinned: meta%2 == 0, Meta: []byte{byte(meta)}})
	})
}

func (h *history) askRefs(c int, r *rand.Rand) {
	if r.IntN(2) == 0 {
		ref := r.IntN(refNames)
		h.do(c, call{what: "ref", ref: ref}, func() (answer, error) {
			x, err := h.s.Ref(h.refName(ref))
			out := answer{}
			if err == nil {
				out.all[ref] = refAt{tokens: x.Tokens, meta: int(x.Meta[0])}
			}
			return out, err
		})
		return
	}
	h.do(c, call{what: "refs"}, h.refs)
}

func (h *history) refs() (out answer, err error) {
	refs, err := db.Collect(h.s.Refs())
	if err != nil {
		return out, err
	}
	for _, x := range refs {
		for i := range refNames {
			if x.Name == h.refName(i) {
				out.all[i] = refAt{tokens: x.Tokens, meta: int(x.Meta[0])}
			}
		}
	}
	return out, nil
}

func (h *history) blocks() (answer, error) {
	all, err := db.Collect(h.s.Models())
	if err != nil {
		return answer{}, err
	}
	for _, x := range all {
		if x.Fingerprint == h.m.Fingerprint() {
			return answer{n: int(x.Blocks)}, nil
		}
	}
	return answer{}, db.ErrNotFound
}

// finish asks for everything once more, with nobody beside but what must not show, and leaves nothing behind.
func (h *history) finish() {
	surely := func(in call, f func() (answer, error)) {
		for h.do(clientsEach, in, f).fail == failSuspended {
			time.Sleep(100 * time.Microsecond)
		}
	}
	for _, p := range h.u.prompts {
		surely(call{what: "match", p: p, limit: len(p.Tokens)}, func() (answer, error) {
			n, _, err := h.m.Probe(ctx, p, db.MatchOptions{})
			return answer{n: n}, err
		})
	}
	surely(call{what: "count"}, h.blocks)
	surely(call{what: "refs"}, h.refs)
	surely(call{what: "retire"}, func() (answer, error) { return answer{}, h.s.Retire(ctx, h.m.Fingerprint()) })
}

// check asks whether some order explains the history; it returns 1 if that could not be told in time.
func (h *history) check() (undecided int) {
	switch porcupine.CheckOperationsTimeout(h.u.spec(), h.ops, 20*time.Second) {
	case porcupine.Unknown:
		return 1
	case porcupine.Illegal:
		h.t.Errorf("history %d of model %q: no order explains it:\n%s", h.seed, h.u.desc.Name, h)
	}
	return 0
}

func (h *history) String() string {
	ops := slices.SortedFunc(slices.Values(h.ops), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var out strings.Builder
	for _, op := range ops {
		in := op.Input.(call)
		who := slices.IndexFunc(h.u.prompts, func(p kv.Prompt) bool {
			return len(in.p.Tokens) <= len(p.Tokens) && in.p.Scope == p.Scope && slices.Equal(p.Tokens[:len(in.p.Tokens)], in.p.Tokens)
		})
		fmt.Fprintf(&out, "%8d to %8d us, client %d: prompt %d, %s (%v)\n", op.Call/1000, op.Return/1000, op.ClientId, who, describe(in, op.Output.(answer)), op.Metadata)
	}
	for i, path := range h.u.paths {
		fmt.Fprintf(&out, "prompt %d:", i)
		for _, x := range path {
			fmt.Fprintf(&out, " %d[%d,%d)", x.id, x.start, x.end)
		}
		out.WriteByte('\n')
	}
	return out.String()
}
