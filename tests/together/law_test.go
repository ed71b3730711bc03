package together

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/dormousekv/dormouse/kv"
)

// The law: each operation takes effect at one moment between its call and its return, and the operations do to one another
// what they would one after the other, with these exceptions, which the store documents or which its callers cannot tell:
//
//   - A put that meets a deletion of what it hangs from may fail, and then has done nothing (linear_test.go looks that there
//     was such a deletion), or has stored the blocks before. A put is one step only if it is one frame of the log, under 32 MiB.
//   - A tail that the new, longer block begins with goes or stays, as leases have it.
//   - A call that meets the retirement of its model may find an empty model where others find none.
//   - Match and the first Restore are two steps: what is deleted between them, Restore does not get, also where it was stored anew, but for the last
//     blocks, which Match has looked at.

// state is a model at one moment.
type state struct {
	registered bool
	blocks     uint64
	refs       [refNames]refAt
	deleted    [clientsEach + 1]uint64 // blocks, since a client's last match
}

const refNames = 3

// refAt is where a ref is; a zero refAt is none.
type refAt struct {
	block  uint64 // the one bit of its block
	tokens int
	meta   int
}

// call is what a client asks for.
type call struct {
	what    string
	client  int // match and restore
	p       kv.Prompt
	from    int // put: of the first row
	limit   int // match
	matched int // restore
	ref     int
	meta    int
}

// answer is what it got. fail is "" or the kind of error.
type answer struct {
	fail string
	n    int // tokens or blocks
	refs int
	all  [refNames]refAt // block left out
}

const (
	failRetired   = "retired"
	failNotStored = "not stored"
	failNotFound  = "not found"
	failSuspended = "suspended"
)

// spec is the sequential model.
func (u *universe) spec() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{state{registered: true}} },
		Step: func(s, in, out interface{}) []interface{} {
			var next []interface{}
			for _, x := range u.step(s.(state), in.(call), out.(answer)) {
				next = append(next, x)
			}
			return next
		},
		DescribeOperation: func(in, out interface{}) string { return describe(in.(call), out.(answer)) },
		DescribeState:     func(s interface{}) string { return fmt.Sprintf("%+v", s) },
	}
	return m.ToModel()
}

func describe(in call, out answer) string {
	s := in.what
	if in.p.Tokens != nil {
		s += fmt.Sprintf(" %d tokens", len(in.p.Tokens))
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"from", in.from}, {"limit", in.limit}, {"matched", in.matched}, {"meta", in.meta}} {
		if x.n != 0 {
			s += fmt.Sprintf(" %s %d", x.name, x.n)
		}
	}
	switch {
	case in.what == "ref" || in.what == "set ref" || in.what == "delete ref":
		s += fmt.Sprintf(" %d", in.ref)
	}
	if s += " -> "; out.fail != "" {
		return s + out.fail
	}
	s += fmt.Sprint(out.n)
	if out.refs > 0 {
		s += fmt.Sprintf(", %d refs", out.refs)
	}
	for i, r := range out.all {
		if r != (refAt{}) {
			s += fmt.Sprintf(", ref %d of %d tokens meta %d", i, r.tokens, r.meta)
		}
	}
	return s
}

// step returns the states that may follow s if in was answered by out; none if that is no right answer.
func (u *universe) step(s state, in call, out answer) []state {
	switch in.what {
	case "put", "match", "restore", "delete", "set ref":
		if out.fail == failRetired {
			return when(s, !s.registered)
		}
	}
	switch in.what {
	case "put":
		if out.fail != "" {
			return u.failedPut(s, in, out)
		}
		stored, _ := u.longest(s.blocks, &in.p, len(in.p.Tokens))
		if !s.registered || out.n != len(in.p.Tokens) || stored < in.from {
			return nil
		}
		return u.put(s, &in.p)
	case "match":
		n, _ := u.longest(s.blocks, &in.p, in.limit)
		if n < kv.OpeningTokens {
			n = 0
		}
		s.deleted[in.client] = 0
		return when(s, out == answer{n: n})
	case "restore":
		return when(s, out.fail == "" && u.restores(s, in, out.n))
	case "delete":
		return u.remove(s, u.holding(&in.p), out)
	case "delete scope":
		return u.remove(s, u.scoped(), out)
	case "set ref":
		n, last := u.longest(s.blocks, &in.p, len(in.p.Tokens))
		if n < len(in.p.Tokens) {
			if n < kv.OpeningTokens {
				n = 0
			}
			return when(s, out == answer{fail: failNotStored, n: n})
		}
		var next []state
		for b := last; b != 0 && out.fail == ""; b &= b - 1 {
			s.refs[in.ref] = refAt{block: b & -b, tokens: n, meta: in.meta}
			next = append(next, s)
		}
		return next
	case "ref":
		r := s.refs[in.ref]
		if r == (refAt{}) {
			return when(s, out.fail == failNotFound)
		}
		r.block = 0
		return when(s, out.fail == "" && out.all[in.ref] == r)
	case "refs":
		for i, r := range s.refs {
			if r.block = 0; r != out.all[i] {
				return nil
			}
		}
		return []state{s}
	case "delete ref":
		had := s.refs[in.ref] != refAt{}
		s.refs[in.ref] = refAt{}
		return when(s, had == (out.fail == "") && (had || out.fail == failNotFound))
	case "count":
		if out.fail == failNotFound {
			return when(s, !s.registered)
		}
		return when(s, out.fail == "" && out.n == ones(s.blocks))
	case "retire":
		return when(state{}, s.registered == (out.fail == "") && (s.registered || out.fail == failNotFound))
	case "model":
		s.registered = true
		return when(s, out.fail == "")
	}
	panic(in.what)
}

func when(s state, ok bool) []state {
	if ok {
		return []state{s}
	}
	return nil
}

func ones(set uint64) (n int) {
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}

// failedPut has done nothing, or has stored the first blocks of its prompt, of which other prompts' blocks have the rows. With
// all rows, nothing that goes meanwhile keeps a put from storing them.
func (u *universe) failedPut(s state, in call, out answer) []state {
	next := when(s, out.fail == failNotStored && in.from > 0)
	if !s.registered || len(next) == 0 {
		return next
	}
	stored, _ := u.longest(s.blocks, &in.p, in.from)
	for _, x := range u.cut(&in.p) {
		if x.end > stored {
			break
		}
		if q := in.p.Prefix(x.end); x.id >= 0 && s.blocks>>x.id&1 == 0 {
			next = append(next, u.put(s, &q)...)
		}
	}
	return next
}

// put adds the prompt's blocks. Each tail that a new block begins with, and that nothing hangs from, goes or stays.
func (u *universe) put(s state, p *kv.Prompt) []state {
	set := chain(u.cut(p))
	var tails uint64
	for id := range u.blocks {
		if set&^s.blocks>>id&1 == 1 {
			tails |= u.blocks[id].tails
		}
	}
	s.blocks |= set
	for _, r := range s.refs {
		tails &^= r.block
	}
	next := []state{s}
	for id := range u.blocks {
		if tails&s.blocks>>id&1 == 0 || s.blocks&u.blocks[id].below != 0 {
			continue
		}
		for _, x := range next {
			x.blocks &^= 1 << id
			next = append(next, x)
		}
	}
	return next
}

// restores reports whether n tokens are what a match of in.matched tokens gives when it looks for its rows now.
func (u *universe) restores(s state, in call, n int) bool {
	usable := func(n int) int {
		if n < kv.OpeningTokens {
			return 0
		}
		return n
	}
	path := u.cut(&in.p)
	last := 0 // where the matched tokens end
	for last < len(path)-1 && path[last].end < in.matched {
		last++
	}
	looked := in.matched // Match has looked from here on, for window rows
	for _, g := range u.desc.Groups {
		looked = min(looked, in.matched-g.Window)
	}
	for i, x := range path[:last] {
		if x.id >= 0 && s.blocks&^s.deleted[in.client]>>x.id&1 == 1 {
			continue
		}
		if n == usable(x.start) {
			return true
		}
		if i < last-1 && x.end <= looked {
			return false
		}
	}
	return n == in.matched
}

// remove takes blocks, and the refs on them.
func (u *universe) remove(s state, set uint64, out answer) []state {
	gone := s.blocks & set
	s.blocks &^= set
	for i := range s.deleted {
		s.deleted[i] |= gone
	}
	refs := 0
	for i, r := range s.refs {
		if r.block&gone != 0 {
			s.refs[i] = refAt{}
			refs++
		}
	}
	return when(s, out == answer{n: ones(gone), refs: refs})
}
