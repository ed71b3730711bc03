package kv

import (
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"
)

// A trail knows every beginning of its prompt. Of prompts that part it says so, unless that is within the last 64th of the shorter one.
func TestTrailBegins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	h := NewHasher(Seed{1})
	fp := Fingerprint{2}
	for range 3000 {
		n := 1 + r.IntN(40)
		if r.IntN(2) == 0 {
			n = 1 + r.IntN(3000)
		}
		whole := Prompt{Tokens: make([]Token, n)}
		for i := range whole.Tokens {
			whole.Tokens[i] = Token(r.IntN(1000))
		}
		if at := r.IntN(n); r.IntN(2) == 0 && at+3 < n {
			whole.Spans = []Span{{Start: at, Len: 1 + r.IntN(n-at-2), Hash: Hash{byte(r.IntN(9))}}}
		}
		if r.IntN(2) == 0 {
			whole.Scope, whole.ScopeStart = "alice", whole.Clip(r.IntN(n+1))
		}
		if r.IntN(4) == 0 {
			whole.Adapters = []Adapter{{Hash: Hash{1}, Scale: 1}}
		}
		trail := h.Trail(fp, &whole)
		if !trail.Whole(n) || len(trail) > trailHeadBytes+2*(130+64*5) {
			t.Fatalf("a trail of %d bytes for %d tokens", len(trail), n)
		}
		if want := whole.Scope != "" && n > whole.ScopeStart; want != (trail.Scope() == h.Scope("alice")) || want == trail.Scope().IsShared() {
			t.Fatalf("scope %v of %+v", trail.Scope(), whole)
		}
		m := whole.Clip(1 + r.IntN(n))
		if m == 0 {
			continue
		}
		p := whole.Prefix(m)
		if r.IntN(2) == 0 && m <= whole.ScopeStart {
			p.Scope = "" // what comes before it is everybody's
		}
		if q := h.Trail(fp, &p); !q.Begins(m, trail, n) {
			t.Fatalf("%d of %d tokens are no beginning: %+v", m, n, whole)
		}
		// Another prompt.
		p = whole.Prefix(m)
		p.Tokens = slices.Clone(p.Tokens)
		seen := true
		switch at := r.IntN(m); r.IntN(5) {
		case 0:
			p.Tokens[at]++
			seen = m == n || m-at > m/64+1
		case 1:
			p.Adapters = []Adapter{{Hash: Hash{1}, Scale: 2}}
		case 2:
			if p.Scope == "" || p.ScopeStart >= m {
				continue
			}
			p.Scope = "bob"
		case 3:
			if p.Scope == "" || p.ScopeStart >= m {
				continue
			}
			p.Scope = ""
		case 4:
			if len(p.Spans) == 0 {
				continue
			}
			p.Spans = []Span{p.Spans[0]}
			p.Spans[0].Hash[3]++
			seen = m == n || m-p.Spans[0].Start > m/64+1
		}
		q := h.Trail(fp, &p)
		if seen && q.Begins(m, trail, n) {
			// Two marks may agree by chance, one time in 65,536.
			t.Errorf("%+v is taken for a beginning of %+v", p, whole)
		}
		if m == n && trail.Begins(n, q, m) != q.Begins(m, trail, n) {
			t.Error("one begins the other, and not the other way round")
		}
	}
	if h.Trail(fp, &Prompt{Tokens: []Token{1}}).Begins(1, h.Trail(Fingerprint{3}, &Prompt{Tokens: []Token{1, 2}}), 2) {
		t.Error("another model's")
	}
}

// The bytes of a trail are stored: they do not change.
func TestTrailGolden(t *testing.T) {
	p := Prompt{Tokens: []Token{1, 2, 3, 4, 5, 6}, Spans: []Span{{Start: 4, Len: 2, Hash: Hash{7}}}, Scope: "alice", ScopeStart: 3}
	got := NewHasher(Seed{1}).Trail(Fingerprint{2}, &p)
	const want = "0b080b448e3373338a860050f5b244c5 03000000f3b666f46ed54164724487498749"
	if s := Hash(got[:16]).String() + " " + hex.EncodeToString(got[16:]); s != want {
		t.Errorf("%s, expected %s", s, want)
	}
}
