package admin_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// open is how many leading tokens of a prompt all scopes share.
func open(p kv.Prompt) int {
	if p.Scope == "" {
		return len(p.Tokens)
	}
	return min(p.ScopeStart, len(p.Tokens))
}

// agree is how many leading tokens two prompts have in common, as far as either may see the other.
func agree(a, b kv.Prompt) (n int, cut bool) {
	for n < min(len(a.Tokens), len(b.Tokens)) && a.Tokens[n] == b.Tokens[n] {
		n++
	}
	if a.Scope == b.Scope && (a.Scope == "" || a.ScopeStart == b.ScopeStart) {
		return n, false
	}
	most := min(open(a), open(b))
	return min(n, most), n >= most
}

// The place where a prompt parts from what is stored is that of a comparison with each stored prompt of its scope, token by token, and what is
// read behind it is one of theirs.
func TestNearestIsThatOfAComparisonWithAll(t *testing.T) {
	large := crashtest.Plain() // blocks of more tokens than the order of children looks at
	large.Name, large.BlockTokens = "large", 256
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(8), crashtest.Hybrid(), large} {
		t.Run(d.Name, func(t *testing.T) { testNearest(t, d) })
	}
}

func testNearest(t *testing.T, d kv.Descriptor) {
	s, m := storetest.Fresh(t, storetest.Options(), d)
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++ // no round sees what another has stored
		adapters := []kv.Adapter{{Hash: kv.HashOf(fmt.Sprint(round)), Scale: 1}}
		prompt := func(from []kv.Prompt) kv.Prompt {
			p := kv.Prompt{Adapters: adapters}
			if len(from) > 0 && rapid.IntRange(0, 5).Draw(r, "new") > 0 {
				q := rapid.SampledFrom(from).Draw(r, "like")
				p.Tokens = slices.Clone(q.Tokens[:rapid.IntRange(0, len(q.Tokens)).Draw(r, "common")])
			}
			more := rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 50).Draw(r, "more")
			p.Tokens = append(p.Tokens, more...)
			if len(p.Tokens) == 0 {
				p.Tokens = []kv.Token{1}
			}
			if p.Scope = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(r, "scope"); p.Scope != "" {
				p.ScopeStart = min(rapid.SampledFrom([]int{0, 16, 20, 37}).Draw(r, "scope start"), len(p.Tokens))
			}
			return p
		}
		var stored []kv.Prompt
		for range rapid.IntRange(0, 8).Draw(r, "prompts") {
			p := prompt(stored)
			storetest.Put(t, m, p)
			stored = append(stored, p)
		}
		p := prompt(stored)
		most := rapid.IntRange(0, 80).Draw(r, "at most")
		got, found, err := admin.FindNearest(t.Context(), s, m.Fingerprint(), p, most)
		if err != nil {
			r.Fatal(err)
		}
		common, parts := 0, false
		for _, q := range stored {
			n, cut := agree(p, q)
			if n > common {
				common, parts = n, false
			}
			parts = parts || n == common && !cut && n < min(len(p.Tokens), len(q.Tokens))
		}
		if got.Common != common || (len(got.Theirs) > 0) != (parts && most > 0) {
			r.Fatalf("%d tokens in common, %v behind; expected %d, and that they part: %v", got.Common, got.Theirs, common, parts)
		}
		if found && len(stored) == 0 || !found && common > 0 {
			r.Fatalf("found: %v", found)
		}
		if len(got.Theirs) == 0 {
			return
		}
		if got.Stored.IsZero() {
			r.Error("nobody knows when it was stored")
		}
		if !slices.ContainsFunc(stored, func(q kv.Prompt) bool {
			n, cut := agree(p, q)
			if n != common || cut {
				return false
			}
			end := len(q.Tokens)
			if n < open(q) { // what another scope may see of it
				if q.Scope != p.Scope || q.ScopeStart != p.ScopeStart || n < open(p) {
					end = open(q)
				}
			}
			behind := q.Tokens[n:end]
			return slices.Equal(got.Theirs, behind[:min(len(behind), most)])
		}) {
			r.Fatalf("%v is behind no stored prompt", got.Theirs)
		}
	})
}

// A search for the nearest prompt changes nothing: no count, no lease, no block's place in the order of eviction.
func TestNearestLeavesNoTrace(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 200)}
	storetest.Put(t, m, p)
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:100], crashtest.Tokens(2, 100))})
	entries := func() (out []index.Entry) {
		v := storetest.Engine(s).View()
		defer v.Release()
		storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool { out = append(out, x); return true }))
		return out
	}
	before, were := storetest.Stats(t, s), entries()
	for i := range 50 {
		q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:i*4], crashtest.Tokens(10+i, 300))}
		got, _, err := admin.FindNearest(t.Context(), s, m.Fingerprint(), q, 100)
		if err != nil || got.Common != i*4 {
			t.Fatalf("%+v, %v, expected %d", got, err, i*4)
		}
	}
	after := storetest.Stats(t, s)
	after.DiskFree = before.DiskFree // others write to this file system, too
	if !reflect.DeepEqual(before, after) {
		t.Errorf("counters changed:\n%+v\n%+v", before, after)
	}
	if !reflect.DeepEqual(were, entries()) {
		t.Error("entries of the index changed")
	}
}

// What was evicted or deleted is nobody's neighbour any more.
func TestNearestForgetsWhatIsGone(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100), Scope: "a"}
	storetest.Put(t, m, p)
	q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:50], crashtest.Tokens(2, 50)), Scope: "a"}
	look := func(scope string) (admin.Nearest, bool) {
		q := q
		q.Scope = scope
		got, found, err := admin.FindNearest(t.Context(), s, m.Fingerprint(), q, 10)
		storetest.OK(t, err)
		return got, found
	}
	if got, found := look("a"); !found || got.Common != 50 || !slices.Equal(got.Theirs, p.Tokens[50:60]) {
		t.Fatalf("%+v, %v", got, found)
	}
	if got, found := look("b"); found || got.Common != 0 || got.Theirs != nil {
		t.Fatalf("another scope sees %+v, %v", got, found)
	}
	storetest.Must(s.DeleteScope(t.Context(), "a"))(t)
	if got, found := look("a"); found || got.Common != 0 || got.Theirs != nil {
		t.Fatalf("after the deletion: %+v, %v", got, found)
	}
	if _, _, err := admin.FindNearest(t.Context(), s, kv.Fingerprint{1}, q, 10); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("of a model that is not there: %v", err)
	}
}

// BenchmarkNearest is a search in a store of 200 prompts of 20,000 tokens that part in the middle.
func BenchmarkNearest(b *testing.B) {
	d := crashtest.Opaque() // no rows
	d.BlockTokens = 64
	s, m := storetest.Fresh(b, storetest.Options(), d)
	begin := crashtest.Tokens(1, 10_000)
	for i := range 200 {
		storetest.Put(b, m, kv.Prompt{Tokens: crashtest.Concat(begin, crashtest.Tokens(2+i, 10_000))})
	}
	q := kv.Prompt{Tokens: crashtest.Concat(begin, crashtest.Tokens(1000, 10_000))}
	for b.Loop() {
		if got, _, err := admin.FindNearest(b.Context(), s, m.Fingerprint(), q, 160); err != nil || got.Common < 10_000 {
			b.Fatal(got, err)
		}
	}
}
