package segments

import (
	"fmt"
	"sort"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// Record is a view of one stored record: nothing is copied. It and every slice it gives are valid only inside the callback
// that received it. Its header, tokens, spans and tensor table were verified; planes are verified by whoever reads
// them ([Record.VerifyPlane], or the checksum in the tensor entry). Safe for concurrent use inside the callback.
type Record struct {
	h    recordHeader
	head []byte // [0, h.head)
	b    []byte // the bytes from part on: all of them, unless the record was read in parts ([Set.ReadPart])
	part uint64
	loc  Loc
	file string
}

func (r *Record) Key() kv.Key           { return r.h.key }
func (r *Record) Group() uint8          { return r.h.group }
func (r *Record) Parent() kv.Key        { return r.h.parent }
func (r *Record) Model() kv.Fingerprint { return r.h.model }
func (r *Record) Scope() kv.ScopeID     { return r.h.scope }
func (r *Record) Seq() uint64           { return r.h.seq }

// Created is when the record was first put, in Unix seconds; 0 if nobody knows.
func (r *Record) Created() int64 { return r.h.created }

// First is the position of the block's first token.
func (r *Record) First() uint32 { return r.h.first }

// Loc is where the record lies.
func (r *Record) Loc() Loc { return r.loc }

// File is the path of the segment.
func (r *Record) File() string { return r.file }

// Size is the record's bytes without the padding to the segment's alignment.
func (r *Record) Size() int64 { return r.h.total }

// TokenCount is the number of tokens of the block.
func (r *Record) TokenCount() int { return r.h.tokens }

// Token returns token i of the block.
func (r *Record) Token(i int) kv.Token {
	return decodeToken(r.head[recordHeaderBytes:r.h.spansAt()], i)
}

// Prompt returns a copy of the block's tokens and spans, with positions relative to the block. Its first span may begin
// before position 0, and its last one may end behind the last token: it is a cutting, which Validate refuses.
func (r *Record) Prompt() kv.Prompt {
	p := kv.Prompt{Tokens: make([]kv.Token, r.h.tokens)}
	for i := range p.Tokens {
		p.Tokens[i] = r.Token(i)
	}
	for i := range r.h.spans {
		p.Spans = append(p.Spans, r.Span(i))
	}
	return p
}

// Span returns span i; its Start is relative to the block's first token.
func (r *Record) Span(i int) kv.Span {
	return decodeSpan(r.head[r.h.spansAt():r.h.tableAt], i)
}

// MatchTokens compares the block with the prompt from position start on, and returns how many leading tokens agree:
// ids, and every span that touches them by start, length and content. The result never ends inside a span of either
// side, except at the block's end in a span that both sides share. It is 0 if start is not the block's own position.
// It allocates nothing.
func (r *Record) MatchTokens(p *kv.Prompt, start int) int {
	if start != int(r.h.first) || start > len(p.Tokens) {
		return 0
	}
	tokens := r.head[recordHeaderBytes:r.h.spansAt()]
	n := min(r.h.tokens, len(p.Tokens)-start)
	for i, t := range p.Tokens[start : start+n] {
		if t != decodeToken(tokens, i) {
			n = i
			break
		}
	}

	// Walk the spans of both sides side by side, up to the first that only one side has.
	mine := 0
	theirs := sort.Search(len(p.Spans), func(i int) bool { return p.Spans[i].End() > start })
	for {
		haveMine := mine < r.h.spans && r.Span(mine).Start < n
		haveTheirs := theirs < len(p.Spans) && p.Spans[theirs].Start-start < n
		if !haveMine && !haveTheirs {
			return n
		}
		cut := n
		if haveMine {
			cut = r.Span(mine).Start
		}
		if haveTheirs {
			cut = min(cut, p.Spans[theirs].Start-start)
		}
		shared := false
		if haveMine && haveTheirs {
			a, b := r.Span(mine), p.Spans[theirs]
			shared = a.Start == b.Start-start && a.Len == b.Len && a.Hash == b.Hash
			if shared && a.End() > n && n < r.h.tokens {
				shared = false // the tokens part inside of it
			}
		}
		if !shared {
			return max(cut, 0)
		}
		mine, theirs = mine+1, theirs+1
	}
}

// Tensors is the number of planes.
func (r *Record) Tensors() int { return r.h.table }

// Tensor returns the table's entry of plane i.
func (r *Record) Tensor(i int) TensorEntry {
	return decodeEntry(r.head[r.h.tableAt:], i)
}

// Plane returns the stored bytes of plane i, straight from the map. They are not verified. It is nil if somebody else
// changed the file after the table was verified, or if the plane is in no part of the record that was read.
func (r *Record) Plane(i int) []byte {
	e := r.Tensor(i)
	if !r.has(e) {
		return nil
	}
	from := e.Offset - r.part
	return r.b[from : from+e.Length : from+e.Length]
}

func (r *Record) has(e TensorEntry) bool {
	n := uint64(len(r.b))
	return e.Offset >= r.part && e.Offset-r.part <= n && e.Length <= n-(e.Offset-r.part)
}

// Head returns the bytes before the first plane, for [Set.ReadPart].
func (r *Record) Head() []byte { return r.head }

// VerifyPlane compares plane i with its checksum. The error is a *damage.Error.
func (r *Record) VerifyPlane(i int) error {
	e := r.Tensor(i)
	if got := crc32c(r.Plane(i)); got != e.CRC {
		return r.PlaneDamage(i, fmt.Sprintf("checksum %08x", e.CRC), fmt.Sprintf("%08x", got))
	}
	return nil
}

// Verify compares all planes with their checksums, and returns the first error of [Record.VerifyPlane].
func (r *Record) Verify() error {
	for i := range r.Tensors() {
		if err := r.VerifyPlane(i); err != nil {
			return err
		}
	}
	return nil
}

// PlaneDamage is the error for plane i of r, for a caller that verifies planes while it decodes them.
func (r *Record) PlaneDamage(i int, expected, found any) *damage.Error {
	e := r.Tensor(i)
	return damage.New(r.file, r.loc.Offset+int64(e.Offset), fmt.Sprintf("plane of tensor %d of block %s", e.Tensor, r.h.key), expected, found)
}
