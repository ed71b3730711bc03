package llamacpp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/kv"
)

// fake is a llama.cpp context in a few lines: it has cells, windows, streams and state blobs, and an "attention" that is a
// hash of every row a token may see. One wrong, missing or displaced row changes all rows and logits after it, to the
// bit, and nothing else does.
type fake struct {
	layers     []fakeLayer
	window     int // n_swa
	transposed bool
	latent     bool    // no V
	rotation   *[2]int // of K and V, as releases from 0.6.0 on say it
	streams    int
	contextLen int
	ropeType   int32
	recurrent  bool
	hybrid     bool // says so; it has no recurrent layers
	causal     string
	meta       map[string]string
	file       string // that it was loaded from
	reorder    bool   // hands out cells in another order than that of positions
	refuseSet  bool
	stale      bool                  // a state that is given back reads differently
	full       bool                  // window layers keep all rows
	alike      bool                  // rows of a token at a position differ a little only, whatever it saw
	ring       int                   // so many rows of window layers are kept behind the window
	failAfter  int                   // the next Decode fails after so many tokens; 0: it does not
	instead    func([]kv.Step) error // of DecodeSteps
	sequences  int                   // 0: 3
	shifts     bool                  // its positions can be shifted

	seqs   map[int32]map[int32]*fakeCell // by sequence, by position
	logits uint64
	scores [][]float32 // of the last DecodeSteps, in memory that the next one overwrites
	decode int         // tokens evaluated

	read    int       // bytes of states that it handed out
	sets    int       // states that it was given
	largest int       // of them, in bytes
	onSet   func(int) // called with sets
}

// errDecode is what Decode returns that was told to fail.
var errDecode = errors.New("llama_decode failed")

// missing stands for a row that is not there.
const missing = 0x676e697373696d

type fakeLayer struct {
	windowed bool
	width    int // f16 values
}

// fakeCell has a row for each layer; a window layer's is nil once it is outside of the window.
type fakeCell struct{ k, v [][]byte }

func (f *fake) row(seed uint64, layer int, role byte) []byte {
	b := make([]byte, 0, 2*f.layers[layer].width)
	for i := 0; len(b) < cap(b); i++ {
		b = binary.LittleEndian.AppendUint16(b, uint16(hashOf(seed, uint64(layer), uint64(role), uint64(i))))
	}
	return b
}

func hashOf(words ...uint64) uint64 {
	h := xxhash.New()
	mix(h, words...)
	return h.Sum64()
}

func mix(h *xxhash.Digest, words ...uint64) {
	var b [8]byte
	for _, w := range words {
		binary.LittleEndian.PutUint64(b[:], w)
		h.Write(b[:])
	}
}

// Decode evaluates tokens one by one.
func (f *fake) Decode(tokens []kv.Token, first, sequence int) error {
	seq := int32(sequence)
	cells := f.seqs[seq]
	if cells == nil {
		cells = map[int32]*fakeCell{}
		f.seqs[seq] = cells
	}
	if last := f.max(seq); last >= 0 && last != int32(first)-1 {
		return fmt.Errorf("decode at %d after position %d", first, f.max(seq))
	}
	for i, token := range tokens {
		pos := int32(first + i)
		if f.failAfter > 0 && i == f.failAfter {
			f.failAfter = 0
			return errDecode
		}
		h := xxhash.New()
		mix(h, uint64(token), uint64(pos))
		for l, layer := range f.layers {
			from := int32(0)
			if layer.windowed {
				from = max(0, pos-int32(f.window)+1)
			}
			for p := from; p < pos; p++ {
				c := cells[p]
				if c == nil || c.k[l] == nil {
					mix(h, uint64(p), uint64(l), missing)
					continue
				}
				h.Write(c.k[l])
				if !f.latent {
					h.Write(c.v[l])
				}
			}
		}
		f.logits = h.Sum64()
		c := &fakeCell{}
		for l := range f.layers {
			k, v := f.row(f.logits, l, 'k'), f.row(f.logits, l, 'v')
			if f.alike {
				near := hashOf(uint64(token), uint64(pos))
				k, v = highBytes(k, f.row(near, l, 'k')), highBytes(v, f.row(near, l, 'v'))
			}
			c.k, c.v = append(c.k, k), append(c.v, v)
		}
		cells[pos] = c
		f.decode++
		if len(cells) > f.contextLen {
			return fmt.Errorf("no room for %d cells", len(cells))
		}
	}
	f.forget(seq)
	return nil
}

// highBytes gives values the sign, the exponent and the first digits of others.
func highBytes(values, of []byte) []byte {
	for i := 1; i < len(values); i += 2 {
		values[i] = of[i]
	}
	return values
}

// DecodeSteps evaluates steps one by one, if there is room for all of them.
func (f *fake) DecodeSteps(steps []kv.Step) error {
	if instead := f.instead; instead != nil {
		f.instead = nil
		defer func() { f.instead = instead }()
		return instead(steps)
	}
	if f.cells(-1)+len(steps) > f.contextLen {
		return kv.ErrFull
	}
	for i, s := range steps {
		if err := f.Decode([]kv.Token{s.Token}, s.Pos, s.Seq); err != nil {
			return err
		}
		if i == len(f.scores) {
			f.scores = append(f.scores, make([]float32, 64))
		}
		for k := range f.scores[i] {
			f.scores[i][k] = float32(hashOf(f.logits, uint64(k))%1024) / 64
		}
	}
	return nil
}

// Logits are made of the hash of what the step saw.
func (f *fake) Logits(step int) []float32 { return f.scores[step] }

// cells are those that sequences other than one hold; what they share counts once.
func (f *fake) cells(but int32) int {
	seen := map[*fakeCell]bool{}
	for seq, cells := range f.seqs {
		for _, c := range cells {
			if seq != but {
				seen[c] = true
			}
		}
	}
	return len(seen)
}

// forget drops what no later token can see.
func (f *fake) forget(seq int32) {
	last := f.max(seq)
	for pos, c := range f.seqs[seq] {
		if f.full || pos > last-int32(f.window+f.ring) {
			continue
		}
		c = &fakeCell{slices.Clone(c.k), slices.Clone(c.v)}
		for l, layer := range f.layers {
			if layer.windowed {
				c.k[l], c.v[l] = nil, nil
			}
		}
		f.seqs[seq][pos] = c
	}
}

// min is the first position whose rows all layers have.
func (f *fake) min(seq int32) int32 {
	first := int32(-1)
	for pos, c := range f.seqs[seq] {
		if (first < 0 || pos < first) && f.inWindow(c) {
			first = pos
		}
	}
	return first
}

// max is the last one of them.
func (f *fake) max(seq int32) int32 {
	last := int32(-1)
	for pos, c := range f.seqs[seq] {
		if f.inWindow(c) {
			last = max(last, pos)
		}
	}
	return last
}

// address is the pointer of its context.
func (f *fake) address() uintptr { return uintptr(unsafe.Pointer(f)) }
