package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/wal"
)

// FuzzFormat reads a FORMAT file, as it is or with a checksum that fits: the errors are those that Open can act upon, and
// what is accepted is written as the same bytes, but for those that are reserved.
func FuzzFormat(f *testing.F) {
	good := goldenFormat().encode()
	later := goldenFormat()
	later.Version, later.Incompatible = 2, 1<<63
	fuzzkit.Seeds(f,
		[]any{good, true}, []any{good, false}, []any{good[:80], false}, []any{[]byte{}, true},
		[]any{later.encode(), true}, []any{append(bytes.Clone(good), 0), false}, []any{make([]byte, formatBytes), true},
	)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= formatBytes {
			b = bytes.Clone(b)
			copy(b, formatMagic)
			binary.LittleEndian.PutUint64(b[80:], xxhash.Sum64(b[:80]))
		}
		fuzzkit.Bounded(t, 1<<16, func() {
			got, err := decodeFormat("FORMAT", b)
			switch {
			case err != nil:
				if errors.Is(err, ErrCorrupt) == errors.Is(err, ErrVersion) {
					t.Fatalf("neither damage nor another version, or both: %v", err)
				}
			default:
				want := bytes.Clone(b)
				clear(want[72:80])
				binary.LittleEndian.PutUint64(want[80:], xxhash.Sum64(want[:80]))
				if !bytes.Equal(got.encode(), want) {
					t.Fatalf("%x read as %+v", b, got)
				}
			}
		})
	})
}

// FuzzPayload decodes the payload of a log frame of any kind: it takes no more memory than its bytes account for, and what is
// accepted says the same when it was written and read again.
func FuzzPayload(f *testing.F) {
	var seeds [][]any
	for _, p := range goldenPayloads() {
		seeds = append(seeds, []any{p.kind, p.encode()})
	}
	seeds = append(seeds,
		[]any{uint8(framePut), []byte("\x92\xdd\xff\xff\xff\xff\xc0")},                                 // as many records as there can be
		[]any{uint8(framePut), append([]byte("\x92\xdc\x01\x00"), bytes.Repeat([]byte{0xc0}, 257)...)}, // small ones
		[]any{uint8(frameRemove), []byte("\x93\xc2\xc0\xdd\x7f\xff\xff\xff\xa1x")},                     // names
		[]any{uint8(frameSnapshot), append([]byte("\x81\xa1x"), bytes.Repeat([]byte{0x91}, 2000)...)},  // depth
		[]any{uint8(frameSnapshot), []byte("\x81\xa4Ends\xdf\xff\xff\xff\xff\x01\x01")},
		[]any{uint8(frameRef), []byte("\x81\xa4Meta\xc6\xff\xff\xff\xff\x00")},
		[]any{uint8(frameRetire), []byte("\x90")},
		[]any{uint8(frameUnref), []byte{}},
	)
	fuzzkit.Seeds(f, seeds...)
	decoders := map[uint8]func(wal.Frame) (any, error){}
	for _, p := range goldenPayloads() {
		decoders[p.kind] = p.decode
	}
	decoders[frameSnapshot] = func(f wal.Frame) (any, error) {
		_, snap, err := decodeSnapshot(f.Payload)
		return snap, err
	}
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		kind = (kind-1)%frameBarrier + 1
		if len(payload) > 1<<16 {
			return
		}
		fuzzkit.Bounded(t, 1<<20+256*uint64(len(payload)), func() {
			decode := decoders[kind]
			op, err := decode(wal.Frame{Kind: kind, Payload: payload})
			if err != nil {
				return
			}
			again := encodeOp(op)
			same, err := decode(wal.Frame{Kind: kind, Payload: again})
			if err != nil {
				t.Fatalf("%+v is refused when it was written again: %v", op, err)
			}
			if !reflect.DeepEqual(local(op), local(same)) && !bytes.Equal(again, encodeOp(same)) {
				t.Fatalf("%+v became %+v", op, same)
			}
		})
	})
}

// What msgpack would take at its word is refused before it does: lists of more elements than there are bytes, and values so
// deep in others that stepping over them overflows the stack, which ends the process.
func TestHostilePayloads(t *testing.T) {
	for name, payload := range map[string][]byte{
		"records":  []byte("\x92\xdd\xff\xff\xff\xff\xc0"),
		"nothings": append([]byte("\x92\xdd\x00\x10\x00\x00"), bytes.Repeat([]byte{0xc0}, 1<<20+1)...),
	} {
		fuzzkit.Bounded(t, 1<<20, func() {
			if _, err := decodeOp[opPut](wal.Frame{Payload: payload}); !errors.Is(err, ErrCorrupt) || !errors.Is(err, errPayload) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	deep := append([]byte("\x82\xa1x"), bytes.Repeat([]byte{0x91}, 32<<20)...)
	if _, _, err := decodeSnapshot(deep); !errors.Is(err, errPayload) {
		t.Error(err)
	}
}
