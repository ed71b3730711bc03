package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// merged sorts ranges and joins those that touch. Empty ones are dropped.
func merged(rs []kv.Range) []kv.Range {
	rs = slices.DeleteFunc(slices.Clone(rs), func(r kv.Range) bool { return r.Len() == 0 })
	slices.SortFunc(rs, func(a, b kv.Range) int { return a.Start - b.Start })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}

// clipped is what of the merged ranges lies in [start, end).
func clipped(rs []kv.Range, start, end int) (out []kv.Range) {
	for _, r := range rs {
		if r := (kv.Range{Start: max(r.Start, start), End: min(r.End, end)}); r.Len() > 0 {
			out = append(out, r)
		}
	}
	return out
}

// without is what the merged ranges a have outside of the merged ranges b.
func without(a, b []kv.Range) (out []kv.Range) {
	for _, r := range a {
		at := r.Start
		for _, x := range clipped(b, r.Start, r.End) {
			if x.Start > at {
				out = append(out, kv.Range{Start: at, End: x.Start})
			}
			at = x.End
		}
		if at < r.End {
			out = append(out, kv.Range{Start: at, End: r.End})
		}
	}
	return out
}

// length is the number of positions in merged ranges.
func length(rs []kv.Range) (n int) {
	for _, r := range rs {
		n += r.Len()
	}
	return n
}

// recipe names a visible set: 128 bits of the SHA-256 of its merged ranges, and of the content of the span that they stand before, if there is one.
func recipe(visible []kv.Range, content *kv.Hash) (h kv.Hash) {
	b := []byte("dormouse view\x00")
	for _, r := range visible {
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Start))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.End))
	}
	if content != nil {
		b = append(b, "span"...)
		b = append(b, content[:]...)
	}
	sum := sha256.Sum256(b)
	copy(h[:], sum[:])
	return h
}

func whole(n int) []kv.Range { return merged([]kv.Range{{Start: 0, End: n}}) }
