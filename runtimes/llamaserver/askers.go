package llamaserver

import (
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/kv"
)

// askers remembers which programs have asked for which blocks since the start, so that a drawing of the store can say whose they are. It has names of programs and
// beginnings of keys, which are hashes: no token, no text.
type askers struct {
	mu    sync.Mutex
	of    map[askedKey]uint32 // sets of programs, a bit each
	names []string
}

// askedKey is as much of a block's key as a drawing has.
type askedKey [6]byte

const (
	maxAskers    = 32
	maxAskedKeys = 1 << 16 // blocks; then all are forgotten
)

// add says that a program has asked for blocks.
func (a *askers) add(name string, keys []kv.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.names, name)
	if i < 0 {
		if len(a.names) == maxAskers {
			return
		}
		i = len(a.names)
		a.names = append(a.names, name)
	}
	if a.of == nil || len(a.of)+len(keys) > maxAskedKeys {
		a.of = map[askedKey]uint32{}
	}
	for _, k := range keys[:min(len(keys), maxAskedKeys)] {
		a.of[askedKey(k[:len(askedKey{})])] |= 1 << i
	}
}

// who are the programs that have asked for a block, whose key begins so.
func (a *askers) who(block string) string {
	var k askedKey
	if n, err := hex.Decode(k[:], []byte(block[:min(len(block), 2*len(k))])); err != nil || n != len(k) {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for i, name := range a.names {
		if a.of[k]&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
