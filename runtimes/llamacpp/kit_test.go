package llamacpp_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"sort"
	"strings"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// copy lets one sequence hold positions [p0, p1) of another, too.
func (f *fake) copy(from, to, p0, p1 int32) {
	if f.seqs[to] == nil {
		f.seqs[to] = map[int32]*fakeCell{}
	}
	for pos, c := range f.seqs[from] {
		if pos >= p0 && (p1 < 0 || pos < p1) {
			f.seqs[to][pos] = c
		}
	}
}

// fits reports whether there is room for a blob's cells beside those of the other sequences.
func (f *fake) fits(blob []byte, seq int32) bool {
	if f.recurrent || f.streams > 1 {
		return true
	}
	return f.cells(seq)+int(binary.LittleEndian.Uint32(blob[12:])) <= f.contextLen
}

// library is the fake as what Attach wants.
func (f *fake) library() *llamacpp.Library {
	f.seqs = map[int32]map[int32]*fakeCell{}
	values := map[string]string{"general.architecture": "fake", "general.name": "fake", "fake.rope.freq_base": "10000.000000", "fake.rope.dimension_count": "8"}
	if f.file != "" { // loaded from there
		g, err := gguf.Open(f.file)
		if err != nil {
			panic(err)
		}
		values = map[string]string{}
		for k, v := range g.Meta {
			if x, ok := v.Scalar.(float64); ok {
				values[k] = fmt.Sprintf("%f", x)
			} else if v.Scalar != nil {
				values[k] = fmt.Sprint(v.Scalar)
			}
		}
	}
	for k, v := range f.meta {
		values[k] = v
	}
	var keys []string
	for k := range values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	put := func(s string, buf *byte, size uintptr) int32 {
		n := copy(unsafe.Slice(buf, size-1), s)
		unsafe.Slice(buf, size)[n] = 0
		return int32(len(s))
	}
	return &llamacpp.Library{
		GetModel:      func(uintptr) uintptr { return 2 },
		GetMemory:     func(uintptr) uintptr { return 3 },
		Synchronize:   func(uintptr) {},
		ContextTokens: func(uintptr) uint32 { return uint32(f.contextLen) },
		Batch:         func(uintptr) uint32 { return 32 },
		MicroBatch:    func(uintptr) uint32 { return 32 },
		Sequences:     func(uintptr) uint32 { return uint32(cmp.Or(f.sequences, 3)) },
		StateSize:     func(_ uintptr, seq int32, flags uint32) uintptr { return uintptr(len(f.state(seq, flags))) },
		StateGet: func(_ uintptr, dst *byte, size uintptr, seq int32, flags uint32) uintptr {
			f.read += int(size)
			return uintptr(copy(unsafe.Slice(dst, size), f.state(seq, flags)))
		},
		StateSet: func(_ uintptr, src *byte, n uintptr, seq int32, _ uint32) uintptr {
			if f.refuseSet {
				f.seqs[seq] = map[int32]*fakeCell{0: {}} // half of it
				return 0
			}
			f.sets++
			if f.onSet != nil {
				f.onSet(f.sets)
			}
			if f.largest = max(f.largest, int(n)); !f.fits(unsafe.Slice(src, n), seq) {
				return 0
			}
			f.load(unsafe.Slice(src, n), seq)
			if f.stale {
				f.logits++
				f.seqs[seq][f.max(seq)].k[0][0]++
			}
			return n
		},
		SequenceRemove: func(_ uintptr, seq, from, to int32) bool {
			for pos := range f.seqs[seq] {
				if pos >= from && (to < 0 || pos < to) {
					delete(f.seqs[seq], pos)
				}
			}
			if len(f.seqs[seq]) == 0 {
				delete(f.seqs, seq)
			}
			return true
		},
		SequenceCopy: func(_ uintptr, from, to, p0, p1 int32) { f.copy(from, to, p0, p1) },
		SequenceMax:  func(_ uintptr, seq int32) int32 { return f.max(seq) },
		SequenceMin:  func(_ uintptr, seq int32) int32 { return f.min(seq) },
		CanShift:     func(uintptr) bool { return f.shifts },
		Layers:       func(uintptr) int32 { return int32(len(f.layers)) },
		Heads:        func(uintptr) int32 { return 1 },
		Embedding:    func(uintptr) int32 { return 16 },
		Window:       func(uintptr) int32 { return int32(f.window) },
		RopeType:     func(uintptr) int32 { return f.ropeType },
		RopeScale:    func(uintptr) float32 { return 1 },
		HasEncoder:   func(uintptr) bool { return false },
		IsRecurrent:  func(uintptr) bool { return f.recurrent },
		IsHybrid:     func(uintptr) bool { return f.hybrid },
		MetaCount:    func(uintptr) int32 { return int32(len(keys)) },
		MetaKey:      func(_ uintptr, i int32, buf *byte, size uintptr) int32 { return put(keys[i], buf, size) },
		MetaIndex:    func(_ uintptr, i int32, buf *byte, size uintptr) int32 { return put(values[keys[i]], buf, size) },
		Meta: func(_ uintptr, key string, buf *byte, size uintptr) int32 {
			if f.causal != "" && strings.HasSuffix(key, ".attention.causal") {
				return put(f.causal, buf, size)
			}
			if v, ok := values[key]; ok {
				return put(v, buf, size)
			}
			return -1
		},
		Version: func() string { return "fake" },
	}
}

func options(decode llamacpp.DecodeFunc) llamacpp.Options {
	return llamacpp.Options{
		Identity: llamacpp.Identity{Weights: kv.Hash{1}, Tokenizer: kv.Hash{1}},
		Decode:   decode,
		Logger:   kit.Quiet,
	}
}

func attach(t kit.Fataler, store *db.Store, f *fake, change func(*llamacpp.Options)) *llamacpp.Session {
	o := options(f.Decode)
	if change != nil {
		change(&o)
	}
	s, err := llamacpp.Attach(context.Background(), store, f.library(), f.address(), o)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	if f.max(int32(o.Sequence)) >= 0 {
		t.Fatalf("attach left tokens in the sequence")
	}
	f.decode = 0
	return s
}

// kinds are the caches that a fake can have.
func kinds(name string) *fake {
	f := &fake{layers: []fakeLayer{{width: 8}, {width: 8}, {width: 4}}, streams: 1, contextLen: 4096}
	switch name {
	case "plain":
	case "channel-major":
		f.transposed = true
	case "reordered":
		f.reorder = true
	case "streams":
		f.streams = 3
	case "latent":
		f.latent = true
	case "window":
		f.window = 24
		f.layers[0].windowed, f.layers[2].windowed = true, true
	case "window, channel-major, reordered":
		f.window, f.transposed, f.reorder = 40, true, true
		f.layers[1].windowed = true
	case "window larger than prompts":
		f.window = 1024
		f.layers[1].windowed = true
	case "window, says its rotation":
		f.window, f.rotation = 24, new([2]int)
		f.layers[1].windowed = true
	case "windows only":
		f.window = 24
		for i := range f.layers {
			f.layers[i].windowed = true
		}
	}
	return f
}

var kindNames = []string{
	"plain", "channel-major", "reordered", "streams", "latent",
	"window", "window, channel-major, reordered", "window larger than prompts", "window, says its rotation", "windows only",
}
