package segments

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

func spanOf(start, length int, content byte) kv.Span {
	return kv.Span{Start: start, Len: length, Hash: kv.Hash{content}}
}

// recordOf is a record in memory only.
func recordOf(t rapid.TB, m Meta) *Record {
	b := NewBuilder(m, 0)
	if err := b.check(); err != nil {
		t.Fatal(err)
	}
	at := place{testUUID, 1, 4096}
	raw := b.stamp(at, 16<<10)
	h, v, bad := decodeRecordHead(raw, at)
	if v != isRecord {
		t.Fatal(bad)
	}
	return &Record{h: h, b: raw[:h.total]}
}

// agree says what MatchTokens must return, position by position: n is a valid answer if all tokens before it agree, every
// span of either side that begins before it is one of both, and none of them ends behind it unless the block ends there.
func agree(m Meta, p *kv.Prompt, start int) int {
	best := 0
	for n := 1; n <= len(m.Tokens) && start+n <= len(p.Tokens); n++ {
		if m.Tokens[n-1] != p.Tokens[start+n-1] {
			break
		}
		mine, theirs := []kv.Span{}, []kv.Span{}
		for _, s := range m.Spans {
			if s.Start < n {
				mine = append(mine, s)
			}
		}
		for _, s := range p.Spans {
			s.Start -= start
			if s.Start < n && s.End() > 0 {
				theirs = append(theirs, s)
			}
		}
		inside := slices.ContainsFunc(mine, func(s kv.Span) bool { return s.End() > n }) && n < len(m.Tokens)
		if slices.Equal(mine, theirs) && !inside {
			best = n
		}
	}
	return best
}

func drawPrompt(t *rapid.T, tokens int) kv.Prompt {
	p := kv.Prompt{Tokens: rapid.SliceOfN(rapid.Int32Range(0, 2), tokens, tokens).Draw(t, "tokens")}
	for at := rapid.IntRange(0, 5).Draw(t, "first span"); at < tokens; {
		length := rapid.IntRange(1, 7).Draw(t, "length")
		if length > tokens-at {
			break
		}
		p.Spans = append(p.Spans, spanOf(at, length, byte(rapid.IntRange(0, 1).Draw(t, "content"))))
		at += length + rapid.IntRange(0, 9).Draw(t, "gap")
	}
	return p
}

// cutting is the meta of the block [start, end) of p.
func cutting(p *kv.Prompt, start, end int) Meta {
	m := Meta{First: uint32(start), Tokens: p.Tokens[start:end]}
	for _, s := range p.Spans {
		if s.End() > start && s.Start < end {
			s.Start -= start
			m.Spans = append(m.Spans, s)
		}
	}
	return m
}

func TestMatchTokensIsTheLongestSharedCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored := drawPrompt(t, rapid.IntRange(1, 40).Draw(t, "stored"))
		asked := stored
		if rapid.Bool().Draw(t, "change tokens") {
			asked.Tokens = slices.Clone(stored.Tokens)
			asked.Tokens[rapid.IntRange(0, len(asked.Tokens)-1).Draw(t, "where")]++
		}
		if rapid.Bool().Draw(t, "change spans") && len(stored.Spans) > 0 {
			asked.Spans = slices.Clone(stored.Spans)
			s := &asked.Spans[rapid.IntRange(0, len(asked.Spans)-1).Draw(t, "which")]
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				s.Hash[1]++
			case 1:
				s.Len = rapid.IntRange(1, s.Len).Draw(t, "shorter")
			case 2:
				asked.Spans = asked.Spans[:len(asked.Spans)-1]
			}
		}
		if rapid.Bool().Draw(t, "other prompt") {
			asked = drawPrompt(t, rapid.IntRange(1, 40).Draw(t, "asked"))
		}
		if rapid.Bool().Draw(t, "shorter") {
			asked = asked.Prefix(asked.Clip(rapid.IntRange(0, len(asked.Tokens)).Draw(t, "cut")))
		}
		start := rapid.IntRange(0, len(stored.Tokens)-1).Draw(t, "start")
		end := rapid.IntRange(start, len(stored.Tokens)).Draw(t, "end")
		m := cutting(&stored, start, end)
		r := recordOf(t, m)
		want := 0
		if start <= len(asked.Tokens) {
			want = agree(m, &asked, start)
		}
		if got := r.MatchTokens(&asked, start); got != want {
			t.Fatalf("block %+v at %d against %+v: %d tokens agree, expected %d", m, start, asked, got, want)
		}
		if got := r.MatchTokens(&stored, start); got != end-start {
			t.Fatalf("a block agrees with its own prompt in %d of %d tokens", got, end-start)
		}
		if got := r.MatchTokens(&stored, start+1); got != 0 {
			t.Fatalf("a block of position %d matched at another: %d", start, got)
		}
	})
}

// The token hashes of a record alone are those of the prompt it was cut from: a lost index is rebuilt from records.
func TestPromptGivesTheSameTokenHashes(t *testing.T) {
	h := kv.NewHasher(testSeed)
	rapid.Check(t, func(t *rapid.T) {
		p := drawPrompt(t, rapid.IntRange(1, 40).Draw(t, "tokens"))
		start := rapid.IntRange(0, len(p.Tokens)-1).Draw(t, "start")
		end := rapid.IntRange(start, len(p.Tokens)).Draw(t, "end")
		q := recordOf(t, cutting(&p, start, end)).Prompt()
		got, want := h.AppendTokenHashes(nil, &q, 0, len(q.Tokens)), h.AppendTokenHashes(nil, &p, start, end)
		if !slices.Equal(got, want) {
			t.Fatalf("%x, expected %x", got, want)
		}
	})
}

func TestMatchTokensAllocatesNothing(t *testing.T) {
	p := kv.Prompt{Tokens: make([]kv.Token, 64), Spans: []kv.Span{spanOf(0, 4, 1), spanOf(10, 20, 2)}}
	r := recordOf(t, cutting(&p, 0, 64))
	if n := testing.AllocsPerRun(100, func() { r.MatchTokens(&p, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
