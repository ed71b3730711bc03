package segments

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

func drawBytes(t *rapid.T, n int, label string) (b [16]byte) {
	copy(b[:], rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, label))
	return b
}

// Whatever is built is read back, however the planes' bytes come about.
func TestBuildAndRead(t *testing.T) {
	s := newSet(t)
	d, fp := testModel(1)
	rapid.Check(t, func(t *rapid.T) {
		p := drawPrompt(t, rapid.IntRange(1, 600).Draw(t, "tokens"))
		start := rapid.IntRange(0, len(p.Tokens)-1).Draw(t, "start")
		b := block{meta: cutting(&p, start, min(len(p.Tokens), start+rapid.IntRange(0, kv.MaxBlockTokens).Draw(t, "block")))}
		b.meta.Model, b.meta.Group = fp, uint8(rapid.IntRange(0, kv.MaxGroups-1).Draw(t, "group"))
		b.meta.Key, b.meta.Parent = drawBytes(t, 16, "key"), drawBytes(t, 16, "parent")
		b.meta.Scope, b.meta.Seq = drawBytes(t, 16, "scope"), rapid.Uint64().Draw(t, "seq")
		for range rapid.IntRange(0, 6).Draw(t, "planes") {
			plane := make([]byte, rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 90<<10)).Draw(t, "bytes"))
			for i := range plane {
				plane[i] = byte(i*7 + len(plane))
			}
			b.planes = append(b.planes, plane)
		}
		r := NewBuilder(b.meta, len(b.planes))
		defer r.Release()
		if rapid.Bool().Draw(t, "grow") {
			r.Grow(rapid.Int64Range(0, 200<<10).Draw(t, "by"))
		}
		for i, plane := range b.planes {
			moved := rapid.Bool().Draw(t, "moved")
			first := uint16(min(i, len(b.meta.Tokens)))
			ok(t, r.AddPlane(TensorEntry{Tensor: uint16(i), Codec: 2, FirstRow: first}, func(dst []byte, e *TensorEntry) ([]byte, error) {
				if len(dst) != 0 {
					t.Fatalf("%d bytes in a new plane", len(dst))
				}
				if cap(dst) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%planeAlignment != 0 {
					t.Fatal("a plane does not begin on a 64-byte boundary")
				}
				e.Exceptions, e.MaxError, e.CRC = uint32(i), float32(i)/4, crc32c(plane)
				e.Rows = uint16(len(b.meta.Tokens)) - first
				if moved {
					dst = nil
				}
				return append(dst, plane...), nil
			}))
		}
		loc := must(s.Append(d, fp, r))(t)
		if loc.Length != alignUp(r.Size(), 4096) {
			t.Fatalf("%d bytes take %d", r.Size(), loc.Length)
		}
		ok(t, b.read(s, loc))
		ok(t, s.Read(loc, func(r *Record) error {
			for i := range r.Tensors() {
				e, n, first := r.Tensor(i), uint16(len(b.meta.Tokens)), uint16(min(i, len(b.meta.Tokens)))
				if e.Codec != 2 || int(e.Exceptions) != i || e.MaxError != float32(i)/4 || e.FirstRow != first || e.Rows != n-first || int(e.Length) != len(b.planes[i]) {
					t.Fatalf("entry %d: %+v", i, e)
				}
			}
			return nil
		}))
	})
	for _, info := range s.Segments() {
		sound(t, s, info.ID)
	}
	ok(t, s.Close())
}

// A builder that is appended twice gives two records; one that failed gives none, and harms nobody.
func TestBuilderMisuse(t *testing.T) {
	s := newSet(t)
	d, fp := testModel(1)
	b := makeBlock(1, 1, 100)
	r := b.build(t)
	for range 2 {
		ok(t, b.read(s, must(s.Append(d, fp, r))(t)))
	}
	if err := r.AddPlane(TensorEntry{}, func(dst []byte, _ *TensorEntry) ([]byte, error) { return dst, nil }); !errors.Is(err, errRecord) {
		t.Error("one plane too many:", err)
	}
	r.Release()
	r.Release()
	for name, r := range map[string]*Builder{
		"released":          r,
		"planes missing":    NewBuilder(b.meta, 1),
		"too many tokens":   NewBuilder(Meta{Model: fp, Tokens: make([]kv.Token, kv.MaxBlockTokens+1)}, 0),
		"span behind block": NewBuilder(Meta{Model: fp, Tokens: make([]kv.Token, 8), Spans: []kv.Span{spanOf(8, 1, 0)}}, 0),
		"span before block": NewBuilder(Meta{Model: fp, Tokens: make([]kv.Token, 8), Spans: []kv.Span{spanOf(-2, 2, 0)}}, 0),
		"spans overlap":     NewBuilder(Meta{Model: fp, Tokens: make([]kv.Token, 8), Spans: []kv.Span{spanOf(0, 3, 0), spanOf(2, 1, 0)}}, 0),
		"empty span":        NewBuilder(Meta{Model: fp, Tokens: make([]kv.Token, 8), Spans: []kv.Span{spanOf(2, 0, 0)}}, 0),
		"group":             NewBuilder(Meta{Model: fp, Group: kv.MaxGroups}, 0),
		"position":          NewBuilder(Meta{Model: fp, First: kv.MaxTokens, Tokens: make([]kv.Token, 1)}, 0),
		"planes":            NewBuilder(Meta{Model: fp}, kv.MaxTensors+1),
		"another model":     NewBuilder(Meta{Model: kv.Fingerprint{9}}, 0),
	} {
		if _, err := s.Append(d, fp, r); !errors.Is(err, errRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	failed := errors.New("failed")
	r = NewBuilder(b.meta, 1)
	if err := r.AddPlane(TensorEntry{}, func(dst []byte, _ *TensorEntry) ([]byte, error) { return nil, failed }); err != failed {
		t.Error(err)
	}
	if _, err := s.Append(d, fp, r); err != failed {
		t.Error(err)
	}
	other, _ := testModel(2)
	if _, err := s.Append(other, kv.Fingerprint{9}, NewBuilder(Meta{Model: kv.Fingerprint{9}}, 0)); !errors.Is(err, errRecord) {
		t.Error("a descriptor of another fingerprint:", err)
	}
	d.Name = strings.Repeat("x", maxDescriptorBytes)
	if _, err := newSet(t).Append(d, fp, b.build(t)); !errors.Is(err, errRecord) {
		t.Error("a descriptor that no header can hold:", err)
	}
	ok(t, s.Close())
}

func TestBuffersAreAligned(t *testing.T) {
	for n := int64(1); n < 80<<20; n = n*3 + 1 {
		b := getBuffer(n)
		if int64(len(b)) < n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%planeAlignment != 0 {
			t.Errorf("a buffer of %d bytes for %d, at %p", len(b), n, b)
		}
		putBuffer(b)
	}
}

func spanOf(start, length int, content byte) kv.Span {
	return kv.Span{Start: start, Len: length, Hash: kv.Hash{content}}
}

// recordOf is a record in memory only.
func recordOf(t rapid.TB, m Meta) *Record {
	b := NewBuilder(m, 0)
	ok(t, b.check())
	at := place{testUUID, 1, 4096}
	raw := b.stamp(at, 16<<10)
	h, v, bad := decodeRecordHead(raw, int64(len(raw)), at)
	if v != isRecord {
		t.Fatal(bad)
	}
	return &Record{h: h, head: raw[:h.head], b: raw[:h.total]}
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
