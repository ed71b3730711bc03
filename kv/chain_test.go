package kv_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// hashing is what goes into a chain besides the prompt.
type hashing struct {
	seed  kv.Seed
	print kv.Fingerprint
	size  int
}

var hashings = rapid.Custom(func(t *rapid.T) hashing {
	return hashing{seeds.Draw(t, "seed"), prints.Draw(t, "fingerprint"), blockSizes.Draw(t, "block tokens")}
})

func (h hashing) chain(p *kv.Prompt) *kv.Chain { return kv.NewHasher(h.seed).Chain(h.print, h.size, p) }

func (h hashing) keys(p *kv.Prompt) []kv.Key {
	c := h.chain(p)
	keys := make([]kv.Key, c.Len())
	for i := range keys {
		keys[i] = c.Key(i)
	}
	return keys
}

// Two prompts of one store have equal keys exactly for the blocks with the same bounds that end within what the prompts
// share: whatever follows changes no key, and every difference changes the key of its block and all later ones.
func TestKeysNamePrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		q := change(t, p)
		if err := q.Validate(); err != nil {
			t.Fatalf("the change made an invalid prompt: %v", err)
		}
		shared := sharedPlaces(&p, &q)
		if !slices.Equal(p.Adapters, q.Adapters) {
			shared = -1
		}
		a, b := h.keys(&p), h.keys(&q)
		for i := range a {
			start, end := p.Block(i, h.size)
			for j := range b {
				qStart, qEnd := q.Block(j, h.size)
				want := start == qStart && end == qEnd && end <= shared
				if got := a[i] == b[j]; got != want {
					t.Fatalf("block %d [%d, %d) and block %d [%d, %d) of prompts that share %d: equal keys = %v",
						i, start, end, j, qStart, qEnd, shared, got)
				}
			}
			if a[i].IsZero() {
				t.Fatalf("block %d has the zero key", i)
			}
		}
	})
}

// Seed and fingerprint, every bit of them, are in every key of a chain; the seed is in scope ids too.
func TestKeysOfOtherStores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		other := h
		id := (*[16]byte)(&other.print)
		seeded := rapid.Bool().Draw(t, "other seed")
		if seeded {
			id = (*[16]byte)(&other.seed)
		}
		id[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")

		theirs := append(other.keys(&p), other.chain(&p).Root(), other.chain(&p).Opening())
		for i, k := range append(h.keys(&p), h.chain(&p).Root(), h.chain(&p).Opening()) {
			if slices.Contains(theirs, k) {
				t.Fatalf("key %d is also in the other store", i)
			}
		}
		if p.Scope != "" {
			same := kv.NewHasher(h.seed).Scope(p.Scope) == kv.NewHasher(other.seed).Scope(p.Scope)
			if same == seeded {
				t.Fatalf("equal scope ids = %v, another seed = %v", same, seeded)
			}
		}
	})
}

// A prefix has the whole prompt's first keys, scopes and trail, wherever it ends: also where it ends before the scope begins, and its own
// ScopeStart is its length.
func TestKeysOfPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		n := cutPoint(t, &p)
		q := p.Prefix(n)
		if err := q.Validate(); err != nil {
			t.Fatalf("the prefix of %d tokens: %v", n, err)
		}
		whole, part := h.chain(&p), h.chain(&q)
		for i := range part.Len() {
			_, end := part.Block(i)
			if part.Key(i) != whole.Partial(i, end) || part.Parent(i) != whole.Parent(i) || part.Scope(i) != whole.Scope(i) {
				t.Fatalf("block %d of the prefix of %d tokens is not that of the whole, whose scope begins at %d", i, n, p.ScopeStart)
			}
		}
		if _, end := whole.Block(0); n >= min(end, kv.OpeningTokens) && n > 0 && part.Opening() != whole.Opening() {
			t.Fatalf("the prefix of %d tokens has another opening", n)
		}
		hasher := kv.NewHasher(h.seed)
		a, b := hasher.Trail(h.print, &q), hasher.Trail(h.print, &p)
		if !a.Begins(n, b, len(p.Tokens)) {
			t.Fatalf("by its trail the prefix of %d tokens does not begin the prompt", n)
		}
	})
}

// What lies before ScopeStart has the same keys in every scope, what follows has keys and a scope id of its own.
func TestScopesPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		alice := prompts.Draw(t, "prompt")
		bob := alice
		alice.Scope, bob.Scope = "alice", "bob"
		a, b := h.chain(&alice), h.chain(&bob)
		if a.Len() != b.Len() {
			t.Fatalf("%d blocks and %d", a.Len(), b.Len())
		}
		for i := range a.Len() {
			start, end := a.Block(i)
			shared := start < alice.ScopeStart
			if shared && end > alice.ScopeStart {
				t.Fatalf("block %d [%d, %d) reaches over the scope's start at %d", i, start, end, alice.ScopeStart)
			}
			if (a.Key(i) == b.Key(i)) != shared {
				t.Fatalf("block %d [%d, %d), scope at %d: equal keys = %v", i, start, end, alice.ScopeStart, !shared)
			}
			if a.Scope(i).IsShared() != shared || (a.Scope(i) == b.Scope(i)) != shared {
				t.Fatalf("block %d [%d, %d), scope at %d: scopes %s and %s", i, start, end, alice.ScopeStart, a.Scope(i), b.Scope(i))
			}
			if !shared && a.Scope(i) != kv.NewHasher(h.seed).Scope("alice") {
				t.Fatalf("block %d is in scope %s", i, a.Scope(i))
			}
		}
		if (a.Opening() == b.Opening()) != (alice.ScopeStart > 0) {
			t.Fatalf("scope at %d: equal openings = %v", alice.ScopeStart, a.Opening() == b.Opening())
		}
	})
}

// Partial(i, end) is the key of the last block of the prompt cut at end.
func TestPartialIsTheCutPromptsKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		end := cutPoint(t, &p)
		if end == 0 {
			return
		}
		i := p.BlockAt(end-1, h.size)
		cut := p.Prefix(end)
		c := h.chain(&cut)
		if c.Len() != i+1 {
			t.Fatalf("cut at %d the prompt has %d blocks, its last token is in block %d", end, c.Len(), i)
		}
		if got := h.chain(&p).Partial(i, end); got != c.Key(i) {
			t.Fatalf("Partial(%d, %d) is not the key of the prompt cut there", i, end)
		}
	})
}

// A chain answers the same, whatever was asked before; a parent is the key before, or the root.
func TestChainIsLazy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		keys, c := h.keys(&p), h.chain(&p)
		if c.Root() != kv.NewHasher(h.seed).Root(h.print, p.Adapters) {
			t.Fatal("the chain has another root than its hasher")
		}
		opening := c.Opening()
		for range min(c.Len(), 8) {
			i := rapid.IntRange(0, c.Len()-1).Draw(t, "block")
			start, end := c.Block(i)
			switch rapid.IntRange(0, 3).Draw(t, "question") {
			case 0:
				if c.Key(i) != keys[i] {
					t.Fatalf("key %d differs when asked out of order", i)
				}
			case 1:
				if c.Partial(i, end) != keys[i] || c.Partial(i, start+1) == (kv.Key{}) {
					t.Fatalf("Partial of the whole block %d is not its key", i)
				}
			case 2:
				if i == 0 && c.Parent(0) != c.Root() || i > 0 && c.Parent(i) != keys[i-1] {
					t.Fatalf("block %d has another parent", i)
				}
			case 3:
				if c.Opening() != opening {
					t.Fatal("the opening key changed")
				}
			}
		}
	})
}

// Two prompts have one opening exactly if they agree on the first 16 tokens of their first blocks, as far as those go.
func TestOpening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		q := change(t, p)
		covered := func(p *kv.Prompt) []place {
			_, end := p.Block(0, h.size)
			return places(p)[:min(end, kv.OpeningTokens)]
		}
		a, b := covered(&p), covered(&q)
		sameRoot := slices.Equal(p.Adapters, q.Adapters) && h.chain(&p).Scope(0) == h.chain(&q).Scope(0)
		got := h.chain(&p).Opening() == h.chain(&q).Opening()
		if sameRoot && slices.Equal(a, b) && !got {
			t.Fatal("a false negative: prompts that agree have different openings")
		}
		// Token hashes are hints of two bytes, so single differences may go unseen, though not many of them.
		differ := 0
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				differ++
			}
		}
		if (!sameRoot || len(a) != len(b) || differ >= 8) && got {
			t.Fatal("prompts that differ have one opening")
		}
	})
}

// An index that knows of a first block only its parent, scope and token hashes can make its opening anew: the one that
// every prompt which begins with that block looks for.
func TestOpeningFromTheIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hashings.Draw(t, "hashing")
		p := prompts.Draw(t, "prompt")
		if len(p.Tokens) == 0 {
			return
		}
		c := h.chain(&p)
		_, end := c.Block(0)
		hashes := kv.NewHasher(h.seed).AppendTokenHashes(nil, &p, 0, end)
		if kv.NewHasher(h.seed).Opening(c.Parent(0), c.Scope(0), hashes) != c.Opening() {
			t.Fatalf("block 0 ends at %d: its opening from the index is not the prompt's", end)
		}
	})
}

// Scope ids tell names apart; only the empty name is the shared scope.
func TestScopeIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := kv.NewHasher(seeds.Draw(t, "seed"))
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		if (h.Scope(a) == h.Scope(b)) != (a == b) || h.Scope(a).IsShared() != (a == "") {
			t.Fatalf("scopes %q and %q: %s and %s", a, b, h.Scope(a), h.Scope(b))
		}
	})
}

// A hasher may be used from several goroutines: for the race detector.
func TestHasherIsShared(t *testing.T) {
	h := kv.NewHasher(kv.Seed{7})
	p := kv.Tokens(slices.Repeat([]kv.Token{1, 2, 3}, 100)...)
	want := h.Chain(kv.Fingerprint{}, 64, &p).Key(4)
	done := make(chan kv.Key)
	for range 4 {
		go func() { done <- h.Chain(kv.Fingerprint{}, 64, &p).Key(4) }()
	}
	for range 4 {
		if got := <-done; got != want {
			t.Errorf("key %s, want %s", got, want)
		}
	}
}
