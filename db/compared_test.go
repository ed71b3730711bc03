package db

import (
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"pgregory.net/rapid"
)

// What is remembered of one prompt is used for another only as far as blocks are the same in everything that a record says.
func TestComparedPrompts(t *testing.T) {
	const blockTokens = 4
	token := rapid.Int32Range(0, 1)
	prompt := func(t *rapid.T, name string) kv.Prompt {
		p := kv.Prompt{Tokens: []kv.Token(rapid.Map(rapid.SliceOfN(token, 1, 24), func(ids []int32) []kv.Token {
			out := make([]kv.Token, len(ids))
			for i, id := range ids {
				out[i] = kv.Token(id)
			}
			return out
		}).Draw(t, name))}
		if at := rapid.IntRange(0, 2*len(p.Tokens)).Draw(t, "span at"); at < len(p.Tokens) {
			n := rapid.IntRange(1, len(p.Tokens)-at).Draw(t, "span length")
			p.Spans = []kv.Span{{Start: at, Len: n, Hash: kv.Hash{byte(rapid.IntRange(0, 1).Draw(t, "span"))}}}
		}
		if rapid.Bool().Draw(t, "scoped") {
			p.Scope = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "scope")
			p.ScopeStart = p.Clip(rapid.IntRange(0, len(p.Tokens)).Draw(t, "scope start"))
		}
		if rapid.Bool().Draw(t, "adapted") {
			p.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: rapid.SampledFrom([]float32{1, 2}).Draw(t, "scale")}}
		}
		return p
	}
	hasher := kv.NewHasher(kv.Seed{1})
	fp := kv.Fingerprint{1}
	rapid.Check(t, func(t *rapid.T) {
		var c compared
		places := map[kv.Key]index.Loc{} // each key has a place of its own
		for range 8 {
			p := prompt(t, "prompt")
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			chain := hasher.Chain(fp, blockTokens, &p)
			at := c.of(fp, &p, blockTokens)
			if len(at) > chain.Len() {
				t.Fatalf("%d blocks of %d", len(at), chain.Len())
			}
			for i, loc := range at {
				if want, ok := places[chain.Key(i)]; loc != (index.Loc{}) && (!ok || want != loc) {
					t.Fatalf("block %d of %+v: another block's place", i, p)
				}
			}
			var put []index.Loc
			for i := range chain.Len() {
				k := chain.Key(i)
				if _, ok := places[k]; !ok {
					places[k] = index.Loc{Segment: 1, Offset: int64(len(places) + 1)}
				}
				loc := places[k]
				if rapid.IntRange(0, 9).Draw(t, "unread") == 0 {
					loc = index.Loc{}
				}
				put = append(put, loc)
			}
			put = put[:rapid.IntRange(0, len(put)).Draw(t, "compared")]
			c.keep(fp, &p, blockTokens, put)
			if len(put) > 0 && len(c.of(fp, &p, blockTokens)) < len(put) {
				t.Fatalf("%d of %d blocks are remembered", len(c.of(fp, &p, blockTokens)), len(put))
			}
			if got := c.of(kv.Fingerprint{2}, &p, blockTokens); len(got) > 0 {
				t.Fatal("another model's")
			}
			if len(p.Tokens) > 0 {
				p.Tokens[0]++ // the caller's
			}
		}
	})
}

// A conversation that is put block by block is remembered; another prompt with the same keys is compared all the same, and a
// record that was moved or put again is, too.
func TestComparedOnce(t *testing.T) {
	d := plain()
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 32*16)...)
	for end := 16; end <= len(p.Tokens); end += 16 {
		q := p.Prefix(end)
		if _, err := m.Put(ctx, q, filled(d, &q, end-16, end), PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	known := s.eng.compared.of(m.Fingerprint(), &p, 16)
	if len(known) < 24 || slices.Contains(known, index.Loc{}) {
		t.Fatalf("%d blocks of 32 are remembered: %v", len(known), known)
	}
	var missing *NotStoredError
	q := kv.Tokens(concat(twinTokens(p.Tokens[:16]), p.Tokens[16:])...)
	if _, err := m.Put(ctx, q, filled(d, &q, 0, len(q.Tokens)), PutOptions{}); !errors.As(err, &missing) || missing.Reason.Code != Collision {
		t.Fatalf("put below another prompt's blocks: %v", err)
	}
	// The other one takes the place.
	if _, err := m.Delete(ctx, p.Prefix(16)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(ctx, q, filled(d, &q, 0, 16), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(ctx, p, filled(d, &p, 0, len(p.Tokens)), PutOptions{}); !errors.As(err, &missing) || missing.Reason.Code != Collision {
		t.Fatalf("put below a block that was deleted and is another prompt's now: %v", err)
	}
	if err := s.Trim(ctx); err != nil {
		t.Fatal(err)
	}
	if got := s.eng.compared.of(m.Fingerprint(), &p, 16); len(got) > 0 {
		t.Fatal("Trim left it")
	}
}
