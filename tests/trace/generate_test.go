package trace

import (
	"encoding/binary"
	"hash/fnv"
	"testing"
)

// Generated traffic keeps the promises of Request: ids count up in order of first appearance and stand for their prefix,
// the tokens fill the blocks, and time runs forward.
func TestGeneratedRequests(t *testing.T) {
	for name, requests := range map[string][]Request{"chat": Chat(1, 200), "phone": Phone(1, 50)} {
		parents := map[uint32]int64{}
		for i, r := range requests {
			if i > 0 && r.Arrived < requests[i-1].Arrived {
				t.Fatalf("%s: request %d arrives before the one before it", name, i)
			}
			if want := (r.PromptTokens + GeneratedBlockTokens - 1) / GeneratedBlockTokens; len(r.Blocks) != want {
				t.Fatalf("%s: request %d has %d blocks for %d tokens", name, i, len(r.Blocks), r.PromptTokens)
			}
			parent := int64(-1)
			for _, id := range r.Blocks {
				before, known := parents[id]
				if !known && int(id) != len(parents) {
					t.Fatalf("%s: request %d names block %d, the next new one is %d", name, i, id, len(parents))
				}
				if known && before != parent {
					t.Fatalf("%s: block %d follows %d and %d", name, id, before, parent)
				}
				parents[id] = parent
				parent = int64(id)
			}
		}
	}
}

// The same seed gives the same traffic, on every machine and with every Go version: the figures in the documentation rest
// on it.
func TestGeneratedTrafficIsPinned(t *testing.T) {
	for _, g := range []struct {
		name     string
		requests []Request
		want     uint64
	}{
		{"Chat(5, 300)", Chat(5, 300), 0xb3254547f9482984},
		{"Phone(5, 70)", Phone(5, 70), 0xf2d6dd6b044cc821},
	} {
		h := fnv.New64a()
		for _, r := range g.requests {
			for _, v := range []uint64{uint64(r.Arrived), uint64(r.PromptTokens), uint64(r.OutputTokens)} {
				h.Write(binary.LittleEndian.AppendUint64(nil, v))
			}
			for _, id := range r.Blocks {
				h.Write(binary.LittleEndian.AppendUint32(nil, id))
			}
		}
		if got := h.Sum64(); got != g.want {
			t.Errorf("%s: digest %#x, expected %#x", g.name, got, g.want)
		}
	}
}
