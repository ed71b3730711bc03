package inplace

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// keys are what the rows up to each of the ends, which ascend, depend on: tokens, spans, adapters, and whose they are.
func keys(p kv.Prompt, ends []int) []Key {
	h := sha256.New()
	var buf []byte
	for _, a := range p.Adapters {
		buf = append(buf, a.Hash[:]...)
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(a.Scale))
	}
	head := sha256.Sum256(buf)
	h.Write(head[:])
	out := make([]Key, len(ends))
	from, spans := 0, p.Spans
	for i, end := range ends {
		buf = buf[:0]
		for pos := from; pos < end; pos++ {
			if p.Scope != "" && pos == p.ScopeStart {
				scope := sha256.Sum256([]byte(p.Scope))
				buf = append(append(buf, 'S'), scope[:]...)
			}
			if len(spans) > 0 && spans[0].Start == pos {
				buf = append(append(buf, 'I'), spans[0].Hash[:]...)
				buf = binary.LittleEndian.AppendUint64(buf, uint64(spans[0].Len))
				spans = spans[1:]
			}
			buf = append(buf, 'T')
			buf = binary.LittleEndian.AppendUint32(buf, uint32(p.Tokens[pos]))
		}
		h.Write(buf)
		h.Sum(out[i][:0])
		from = end
	}
	return out
}
