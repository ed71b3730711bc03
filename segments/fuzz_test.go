package segments

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/kv"
)

// FuzzRecord parses a record head with a checksum that fits, so that the checks behind it are reached, and touches all
// that the view gives: nothing lies outside of the record, or over another part of it.
func FuzzRecord(f *testing.F) {
	at := place{testUUID, 7, 8192}
	good := bytes.TrimRight(goldenRecord(f), "\x00")
	bad := func(off int, v uint64) []byte {
		b := bytes.Clone(good)
		le.PutUint64(b[off:], v)
		return b
	}
	table := len(good) - 2*64 - 2*entryBytes // of two planes, the first on 64 bytes
	fuzzkit.Seeds(f,
		[]any{good, true}, []any{good[:300], false}, []any{make([]byte, recordHeaderBytes), false},
		[]any{bad(120, 1<<63), true}, []any{bad(132, 1<<40), true},
		[]any{bad(table+8, 1<<64-64), true}, []any{bad(table+16, 1<<64-1), true},
		[]any{bad(table+4, 0xffff0000), true}, // rows
	)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		fuzzkit.Bounded(t, 1<<18+uint64(16*len(b)), func() { fuzzRecord(t, b, at, fix) })
	})
}

func fuzzRecord(t *testing.T, b []byte, at place, fix bool) {
	if fix && len(b) >= recordHeaderBytes {
		b = append([]byte(nil), b...)
		h := recordHeader{
			tokens: int(le.Uint32(b[132:]) % kv.MaxBlockTokens),
			spans:  int(le.Uint32(b[148:])/spanBytes) % kv.MaxBlockTokens, table: int(le.Uint32(b[152:])/entryBytes) % 64,
		}
		copy(b[80:], at.uuid[:])
		le.PutUint64(b[96:], at.segment)
		le.PutUint64(b[104:], uint64(at.offset))
		if h.layout(); h.head <= len(b) {
			sealRecordHead(b[:h.head])
		}
	}
	h, v, bad := decodeRecordHead(b, int64(len(b)), at)
	if v != isRecord {
		if v != isZero256 && !errors.Is(bad, damage.ErrCorrupt) {
			t.Fatalf("verdict %d with %v", v, bad)
		}
		return
	}
	if h.total > int64(len(b)) {
		t.Fatalf("a record of %d bytes in %d", h.total, len(b))
	}
	r := &Record{h: h, head: b[:h.head], b: b[:h.total]}
	p := r.Prompt()
	free := uint64(h.head)
	for i := range r.Tensors() {
		r.VerifyPlane(i)
		e := r.Tensor(i)
		if uint64(len(r.Plane(i))) != e.Length {
			t.Fatalf("plane %d: %d bytes, expected %d", i, len(r.Plane(i)), e.Length)
		}
		if e.Offset < free || e.Tensor >= kv.MaxTensors || int(e.FirstRow)+int(e.Rows) > r.TokenCount() {
			t.Fatalf("plane %d: %+v in a block of %d tokens, the one before ends at %d", i, e, r.TokenCount(), free)
		}
		free = e.Offset + e.Length
	}
	end := math.MinInt
	for _, sp := range p.Spans {
		if sp.Start < end || sp.Len <= 0 || sp.Start >= len(p.Tokens) {
			t.Fatalf("span %+v of a block of %d tokens, the one before ends at %d", sp, len(p.Tokens), end)
		}
		end = sp.End()
	}
	if n := r.MatchTokens(&p, int(r.First())); n < 0 || n > r.TokenCount() {
		t.Fatalf("%d of %d tokens match", n, r.TokenCount())
	}
	// The known fields are written as the same bytes.
	again := bytes.Clone(b[:recordHeaderBytes])
	if encodeRecordHeader(again, &h); !bytes.Equal(again, b[:recordHeaderBytes]) {
		t.Fatalf("%x became %x", b[:recordHeaderBytes], again)
	}
}

// FuzzSegment changes a segment file, five bytes an edit (where, to what), cuts it, repairs the checksums if asked to, and
// then does with it all that can be done without writing. Edits keep the inputs small, and the fuzzer fast.
func FuzzSegment(f *testing.F) {
	samples := map[bool][]byte{true: makeSample(f, true).b, false: makeSample(f, false).b}
	at := func(off int, v byte) []byte { return append(le.AppendUint32(nil, uint32(off)), v) }
	fuzzkit.Seeds(f,
		[]any{[]byte{}, 1 << 20, true, false},
		[]any{at(72, 1), 0, true, true},           // planned size
		[]any{at(80, 16), 1 << 20, false, true},   // alignment
		[]any{at(84, 255), 1 << 20, false, true},  // length of the descriptor
		[]any{at(4096, 0), 1 << 20, false, false}, // a magic
		[]any{slices.Concat(at(4096+120, 1), at(4096+152, 64)), 9000, false, true},
		[]any{at(4096+127, 0x7f), 1 << 20, true, true}, // length of a record
	)
	f.Fuzz(func(t *testing.T, edits []byte, cut int, sealed, repair bool) {
		edits = edits[:min(len(edits), 5*64)]
		fuzzkit.Bounded(t, 32<<20, func() { fuzzSegment(t, samples[sealed], edits, cut, repair) })
	})
}

func fuzzSegment(t *testing.T, sample, edits []byte, cut int, repair bool) {
	b := bytes.Clone(sample)
	if cut >= 0 && cut < len(b) {
		b = b[:cut]
	}
	for ; len(edits) >= 5 && len(b) > 0; edits = edits[5:] {
		b[int(le.Uint32(edits))%len(b)] = edits[4]
	}
	if repair {
		repairChecksums(b)
	}
	s := imageSet(t, b)
	last := int64(-1)
	end, err := s.Scan(t.Context(), 1, 0, func(loc Loc, r *Record) error {
		if loc.Offset <= last || loc.End() > int64(len(b)) {
			t.Fatalf("a record at %v after %d in a file of %d bytes", loc, last, len(b))
		}
		last = loc.Offset
		for i := range r.Tensors() {
			r.VerifyPlane(i)
		}
		if err := s.Read(loc, func(*Record) error { return nil }); err != nil {
			t.Fatalf("scan finds %v, read says %v", loc, err)
		}
		return nil
	}, func(e *damage.Error) {
		if e.File == "" {
			t.Fatalf("damage without a file: %v", e)
		}
	})
	if err != nil || end < 0 {
		t.Fatal(end, err)
	}
	ok(t, s.Verify(t.Context(), 1, func(loc Loc) bool { return loc.Offset%8192 == 0 }, func(*damage.Error) {}, nil))
	if d, err := s.Descriptor(1); err == nil {
		if _, err := d.Normal(); err != nil {
			t.Fatal(err)
		}
	}
	if info := s.Segments(); len(info) != 1 {
		t.Fatal(info)
	}
	ok(t, s.Close())
}

// repairChecksums makes every header checksum fit that can be found.
func repairChecksums(b []byte) {
	if len(b) >= segmentHeaderBytes {
		if n := segmentHeaderBytes + int(claimedDescriptor(b)); n <= len(b) {
			le.PutUint32(b[segmentCRCOffset:], crcAround(b[:n], segmentCRCOffset))
		}
	}
	for off := minAlignment; off+recordHeaderBytes <= len(b); off += minAlignment {
		r := b[off:]
		if string(r[:8]) != recordMagic {
			continue
		}
		h := recordHeader{
			tokens: int(le.Uint32(r[132:])) & 0xffff,
			spans:  int(le.Uint32(r[148:])) & 0xffff / spanBytes, table: int(le.Uint32(r[152:])) & 0xffff / entryBytes,
		}
		if h.layout(); h.head <= len(r) {
			sealRecordHead(r[:h.head])
		}
	}
}

// FuzzHeader: whatever is read as the header of a segment, behind a checksum that fits, is written as the same bytes, but for
// those that are reserved.
func FuzzHeader(f *testing.F) {
	h := goldenHeader()
	good := encodeSegmentHeader(h)[:segmentHeaderBytes+len(h.descriptor)]
	bad := func(off int, v uint64) []byte {
		b := bytes.Clone(good)
		le.PutUint64(b[off:], v)
		return b
	}
	fuzzkit.Seeds(f,
		[]any{good, true}, []any{good[:segmentHeaderBytes], false}, []any{bad(72, 1<<63), true}, []any{bad(80, 4096|1<<63), true},
		[]any{bad(8, 7), true}, []any{make([]byte, segmentHeaderBytes), false},
	)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if len(b) >= segmentHeaderBytes && fix {
			b = bytes.Clone(b)
			copy(b, segmentMagic)
			copy(b[16:], testUUID[:])
			le.PutUint64(b[64:], 7)
			if n := segmentHeaderBytes + int(claimedDescriptor(b)); n <= len(b) {
				le.PutUint32(b[segmentCRCOffset:], crcAround(b[:n], segmentCRCOffset))
			}
		}
		fuzzkit.Bounded(t, 1<<20+uint64(4*len(b)), func() {
			h, bad := decodeSegmentHeader(b, testUUID, 7)
			if bad != nil {
				if !errors.Is(bad, damage.ErrCorrupt) {
					t.Fatal(bad)
				}
				return
			}
			if h.end() < segmentHeaderBytes+int64(len(h.descriptor)) || h.planned < h.end() || len(h.descriptor) > len(b) {
				t.Fatalf("%+v", h)
			}
			same, bad := decodeSegmentHeader(encodeSegmentHeader(&h), testUUID, 7)
			if bad != nil || !bytes.Equal(same.descriptor, h.descriptor) || same.planned != h.planned || same.alignment != h.alignment {
				t.Fatalf("%+v became %+v: %v", h, same, bad)
			}
		})
	})
}
