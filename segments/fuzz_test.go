package segments

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// FuzzRecord parses a record head with a checksum that fits, so that the checks behind it are reached, and touches all
// that the view gives.
func FuzzRecord(f *testing.F) {
	at := place{testUUID, 7, 8192}
	f.Add(goldenRecord(f), true)
	f.Add(goldenRecord(f)[:300], false)
	f.Add(make([]byte, recordHeaderBytes), false)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix && len(b) >= recordHeaderBytes {
			b = append([]byte(nil), b...)
			h := recordHeader{
				extra: int(le.Uint32(b[140:]) % maxExtraBytes), tokens: int(le.Uint32(b[132:]) % kv.MaxBlockTokens),
				spans: int(le.Uint32(b[148:])/spanBytes) % kv.MaxBlockTokens, table: int(le.Uint32(b[152:])/entryBytes) % 64,
			}
			copy(b[80:], at.uuid[:])
			le.PutUint64(b[96:], at.segment)
			le.PutUint64(b[104:], uint64(at.offset))
			if h.layout(); h.head <= len(b) {
				sealRecordHead(b[:h.head])
			}
		}
		h, v, bad := decodeRecordHead(b, at)
		if v != isRecord {
			if v != isZero256 && !errors.Is(bad, damage.ErrCorrupt) {
				t.Fatalf("verdict %d with %v", v, bad)
			}
			return
		}
		if h.total > int64(len(b)) {
			t.Fatalf("a record of %d bytes in %d", h.total, len(b))
		}
		r := &Record{h: h, b: b[:h.total]}
		p := r.Prompt()
		for i := range r.Tensors() {
			r.VerifyPlane(i)
			if e := r.Tensor(i); uint64(len(r.Plane(i))) != e.Length {
				t.Fatalf("plane %d: %d bytes, expected %d", i, len(r.Plane(i)), e.Length)
			}
		}
		if n := r.MatchTokens(&p, int(r.First())); n > r.TokenCount() {
			t.Fatalf("%d of %d tokens match", n, r.TokenCount())
		}
	})
}

// FuzzSegment changes a segment file, five bytes an edit (where, to what), cuts it, repairs the checksums if asked to, and
// then does with it all that can be done without writing. Edits keep the inputs small, and the fuzzer fast.
func FuzzSegment(f *testing.F) {
	samples := map[bool][]byte{true: makeSample(f, true).b, false: makeSample(f, false).b}
	f.Add([]byte{}, 1<<20, true, false)
	f.Add([]byte{72, 0, 0, 0, 1}, 0, true, true)       // planned size
	f.Add([]byte{80, 0, 0, 0, 16}, 1<<20, false, true) // alignment
	f.Add([]byte{0, 16, 0, 0, 0}, 1<<20, false, false) // a magic
	f.Add([]byte{120, 16, 0, 0, 1, 152, 16, 0, 0, 64}, 9000, false, true)
	f.Fuzz(func(t *testing.T, edits []byte, cut int, sealed, repair bool) {
		b := append([]byte(nil), samples[sealed]...)
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
		if err := s.Verify(t.Context(), 1, func(loc Loc) bool { return loc.Offset%8192 == 0 }, func(*damage.Error) {}, nil); err != nil {
			t.Fatal(err)
		}
		if d, err := s.Descriptor(1); err == nil {
			if _, err := d.Normal(); err != nil {
				t.Fatal(err)
			}
		}
		if info := s.Segments(); len(info) != 1 {
			t.Fatal(info)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
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
			extra: int(le.Uint32(r[140:])) & 0xffff, tokens: int(le.Uint32(r[132:])) & 0xffff,
			spans: int(le.Uint32(r[148:])) & 0xffff / spanBytes, table: int(le.Uint32(r[152:])) & 0xffff / entryBytes,
		}
		if h.layout(); h.head <= len(r) {
			sealRecordHead(r[:h.head])
		}
	}
}

func FuzzFooter(f *testing.F) {
	f.Add(goldenFooter(), true)
	f.Add(goldenFooter()[:100], false)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		at := place{testUUID, 7, 16384}
		if n := len(b) - 4; fix && n > trailerBytes+footerHeaderBytes {
			b = append([]byte(nil), b...)
			le.PutUint32(b[n:], crc32c(b[:n]))
		}
		entries, n, bad := decodeFooter(b, at)
		if bad != nil {
			return
		}
		if n > int64(len(b)) || int64(len(entries))*footerEntryBytes > n {
			t.Fatalf("%d entries in %d of %d bytes", len(entries), n, len(b))
		}
		if again := encodeFooter(at, entries); int64(len(again)) != n {
			t.Fatalf("%d bytes written anew, %d read", len(again), n)
		}
	})
}

func FuzzDescriptor(f *testing.F) {
	f.Add(goldenHeader().descriptor)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDescriptor(b)
		if err != nil {
			return
		}
		again, err := encodeDescriptor(&d)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeDescriptor(again); err != nil || got.Fingerprint() != d.Fingerprint() {
			t.Fatal(err)
		}
	})
}
