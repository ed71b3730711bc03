package kv

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Trail is what can be told of a prompt when nothing of it is stored any more: whose data its last token is, and whether another
// prompt is a beginning of it. It holds no token: only two bytes of a seeded hash of all that leads up to a position, at every
// position at first and ever more sparsely further on. Of 8,192 tokens it takes 1 KiB, of the longest prompt 3.3 KiB.
//
//	 0       16      20
//	┌───────┬───────┬─────────────────────────────────────┐
//	│ scope │ from  │ marks, u16 each                     │
//	│ 16    │ u32   │ one for each position, one the end's│
//	└───────┴───────┴─────────────────────────────────────┘
//
// scope is that of the last token, from the position at which it begins; both are 0 where the last token is shared. Integers are
// little-endian. The positions are 1 to 128, then every second to 256, every fourth to 512, and so on.
type Trail []byte

const (
	trailHeadBytes = 20
	trailMarkBytes = 2
)

// nextMark is the position of the first mark behind pos.
func nextMark(pos int) int {
	gap := 1
	if pos >= 128 {
		gap = 1 << (bits.Len(uint(pos)) - 7)
	}
	return pos + gap
}

// marks counts the positions up to n.
func marks(n int) (count int) {
	for pos := nextMark(0); pos <= n; pos = nextMark(pos) {
		count++
	}
	return count
}

// Trail returns the trail of p, which must be valid, for the model with that fingerprint.
func (h Hasher) Trail(fp Fingerprint, p *Prompt) Trail {
	n := len(p.Tokens)
	var scope ScopeID
	from := 0
	if n > 0 && p.scoped(n-1) {
		scope, from = h.Scope(p.Scope), p.ScopeStart
	}
	t := append(make(Trail, 0, trailBytes(n)), scope[:]...)
	t = binary.LittleEndian.AppendUint32(t, uint32(from))
	key := h.Root(fp, p.Adapters)
	var buf []byte
	step := func(start, end int) {
		if start == from && !scope.IsShared() {
			key, buf = h.enter(buf, key, scope)
		}
		buf = append(h.begin(buf, tagMark), key[:]...)
		buf = appendTokens(buf, p, start, end)
		key = sum(buf)
	}
	for pos := 0; pos < n; {
		mark := nextMark(pos)
		end := min(mark, n)
		if pos < from && from < end {
			step(pos, from)
			step(from, end)
		} else {
			step(pos, end)
		}
		if end == mark {
			t = append(t, key[:trailMarkBytes]...)
		}
		pos = end
	}
	return append(t, key[:trailMarkBytes]...)
}

func trailBytes(n int) int { return trailHeadBytes + trailMarkBytes*(marks(n)+1) }

// Whole reports whether t can be the trail of a prompt of n tokens: nothing can be told from another one.
func (t Trail) Whole(n int) bool { return n >= 0 && n <= MaxTokens && len(t) == trailBytes(n) }

// Scope is that of the prompt's last token. t must be whole.
func (t Trail) Scope() ScopeID { return ScopeID(t[:16]) }

func (t Trail) from() int { return int(binary.LittleEndian.Uint32(t[16:])) }

// Begins reports whether the prompt of t, of n tokens, is a beginning of that of the other trail, of m tokens, with the same model, adapters
// and spans, in the same scopes. Both trails must be whole. Where the two part behind the last mark that they share, within the last 64th of
// n, that is not seen and it says yes; no is always right.
func (t Trail) Begins(n int, other Trail, m int) bool {
	switch {
	case n > m:
		return false
	case t.Scope().IsShared():
		if !other.Scope().IsShared() && other.from() < n {
			return false
		}
	case t.Scope() != other.Scope() || t.from() != other.from():
		return false
	}
	k := trailBytes(n) - trailMarkBytes
	return bytes.Equal(t[trailHeadBytes:k], other[trailHeadBytes:k]) && (n < m || bytes.Equal(t[k:], other[k:]))
}
