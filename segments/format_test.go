package segments

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

func goldenHeader() *segmentHeader {
	d, fp := testModel(1)
	packed, _ := encodeDescriptor(d)
	return &segmentHeader{uuid: testUUID, seed: testSeed, hashID: kv.HashID, model: fp, id: 7, planned: 64 << 10, alignment: 4096, descriptor: packed}
}

func goldenRecord(t testing.TB) []byte {
	b := makeBlock(1, 42, 40, 100)
	b.meta.Spans = []kv.Span{spanOf(-3, 10, 1), spanOf(60, 40, 3)}
	b.meta.Group, b.meta.Scope, b.meta.Created = 1, kv.ScopeID{9}, 0x5152535455565758
	r := b.build(t)
	defer r.Release()
	return append([]byte(nil), r.stamp(place{testUUID, 7, 8192}, 4096)...)
}

func TestGoldenBytes(t *testing.T) {
	golden(t, "segment-header.golden", encodeSegmentHeader(goldenHeader())[:1024])
	golden(t, "record.golden", goldenRecord(t))
}

// What is written can be read.
func TestGoldenBytesAreRead(t *testing.T) {
	read := func(name string) []byte { return must(os.ReadFile("testdata/" + name))(t) }
	h, bad := decodeSegmentHeader(read("segment-header.golden"), testUUID, 7)
	if bad != nil || h.planned != 64<<10 || h.seed != testSeed {
		t.Fatal(h, bad)
	}
	d, err := decodeDescriptor(h.descriptor)
	if err != nil || d.Fingerprint() != h.model || d.Name != "model 1" {
		t.Error(d, err)
	}
	rec, v, bad := decodeRecordHead(read("record.golden"), int64(len(read("record.golden"))), place{testUUID, 7, 8192})
	if v != isRecord || rec.seq != 43 || rec.tokens != 64 || rec.spans != 2 || rec.table != 2 || rec.group != 1 || rec.created != 0x5152535455565758 {
		t.Error(rec, v, bad)
	}
}

// A wrong magic, a wrong version and a wrong checksum are three different errors. A segment's version that alone is wrong is damage.
func TestErrorsTellWhatIsWrong(t *testing.T) {
	at := place{testUUID, 7, 8192}
	decode := map[string]func([]byte) *damage.Error{
		"segment": func(b []byte) *damage.Error { _, e := decodeSegmentHeader(b, testUUID, 7); return e },
		"record":  func(b []byte) *damage.Error { _, _, e := decodeRecordHead(b, int64(len(b)), at); return e },
	}
	tests := []struct {
		format string
		offset int
		what   string
		newer  bool
	}{
		{"segment", 0, "segment magic", false},
		{"segment", 9, "segment version", false}, // with the known version its checksum fits
		{"segment", 12, "segment header checksum", false},
		{"segment", 200, "segment header checksum", false},
		{"segment", 80, "segment alignment", false},
		{"segment", 87, "descriptor length", false},
		{"record", 7, "record magic", false},
		{"record", 8, "record version", true},
		{"record", 80, "store UUID of a record", false},
		{"record", 96, "segment id of a record", false},
		{"record", 111, "own offset of a record", false},
		{"record", 127, "record length", false},
		{"record", 135, "token count of a record", false},
		{"record", 155, "table length of a record", false},
		{"record", 16, "record header checksum", false},
		{"record", 188, "record header checksum", false},
		{"record", 300, "record header checksum", false},
	}
	for _, test := range tests {
		b := map[string][]byte{"segment": encodeSegmentHeader(goldenHeader()), "record": goldenRecord(t)}[test.format]
		if e := decode[test.format](b); e != nil {
			t.Fatal(e)
		}
		b[test.offset] ^= 0x80
		e := decode[test.format](b)
		if e == nil || e.What != test.what || errors.Is(e, ErrVersion) != test.newer || !errors.Is(e, damage.ErrCorrupt) {
			t.Errorf("%s, byte %d: %v, expected a report of %q", test.format, test.offset, e, test.what)
		}
	}
}

// A segment of another release has another version and a checksum of its own. One whose version alone was damaged is no reason to refuse a store.
func TestVersionOfAnotherRelease(t *testing.T) {
	for bit := range 16 {
		for _, newer := range []bool{false, true} {
			b := encodeSegmentHeader(goldenHeader())
			b[8+bit/8] ^= 1 << (bit % 8)
			if newer {
				h, _ := decodeSegmentHeader(encodeSegmentHeader(goldenHeader()), testUUID, 7)
				le.PutUint32(b[segmentCRCOffset:], crcAround(b[:segmentHeaderBytes+len(h.descriptor)], segmentCRCOffset))
			}
			_, e := decodeSegmentHeader(b, testUUID, 7)
			if e == nil || e.Offset != 8 || errors.Is(e, ErrVersion) != newer {
				t.Errorf("bit %d, newer %t: %v", bit, newer, e)
			}
		}
	}
}

// What a newer program may add is refused where it must be understood, and skipped where it need not be.
func TestWhatANewerProgramAdds(t *testing.T) {
	plain := func(change func(b []byte)) []byte {
		raw := goldenRecord(t)
		h, _, _ := decodeRecordHead(raw, int64(len(raw)), place{testUUID, 7, 8192})
		change(raw)
		sealRecordHead(raw[:h.head])
		return raw
	}
	tests := []struct {
		name    string
		raw     []byte
		refused bool
	}{
		{"length of a part more", plain(func(b []byte) { b[140] = 8 }), true},
		{"end of that length", plain(func(b []byte) { b[143] = 1 }), true},
		{"bytes before the table", plain(func(b []byte) { b[goldenTable(t)-1] = 1 }), true},
		{"optional flag", plain(func(b []byte) { b[15] = 1 }), false},
		{"mandatory flag", plain(func(b []byte) { b[12] = 1 }), true},
		{"another kind", plain(func(b []byte) { b[10] = 2 }), true},
		{"no kind", plain(func(b []byte) { b[10] = 0 }), true},
		{"cipher", plain(func(b []byte) { b[156] = 1 }), true},
		{"key id", plain(func(b []byte) { b[160] = 1 }), true},
		{"nonce", plain(func(b []byte) { b[187] = 1 }), true},
		{"runtime's own key", plain(func(b []byte) { b[196] = 1 }), true},
		{"reserved", plain(func(b []byte) { b[251] = 1 }), true},
		{"reserved in the table", plain(func(b []byte) { b[goldenTable(t)+36] = 1 }), true},
		{"tag of a plane", plain(func(b []byte) { b[goldenTable(t)+127] = 1 }), true},
	}
	for _, test := range tests {
		_, v, e := decodeRecordHead(test.raw, int64(len(test.raw)), place{testUUID, 7, 8192})
		if (v != isRecord) != test.refused || test.refused && !errors.Is(e, ErrVersion) {
			t.Errorf("%s: %v, expected it to be refused: %t", test.name, e, test.refused)
		}
	}
}

// goldenTable is where the table of goldenRecord begins.
func goldenTable(t *testing.T) int {
	h, _, _ := decodeRecordHead(goldenRecord(t), int64(len(goldenRecord(t))), place{testUUID, 7, 8192})
	return h.tableAt
}

// What is only reserved is refused as another version, where it lies: a cipher, a kind of record, or a byte that is drawn as zero.
func TestReserved(t *testing.T) {
	head := segmentHeaderBytes + len(goldenHeader().descriptor)
	segment := func(b []byte) *damage.Error {
		le.PutUint32(b[segmentCRCOffset:], crcAround(b[:head], segmentCRCOffset))
		_, e := decodeSegmentHeader(b, testUUID, 7)
		return e
	}
	if e := segment(encodeSegmentHeader(goldenHeader())); e != nil {
		t.Fatal(e)
	}
	for _, off := range []int{10, 11, 88, 91, 92, 123} {
		b := encodeSegmentHeader(goldenHeader())
		b[off] ^= 0x40
		if e := segment(b); e == nil || !errors.Is(e, ErrVersion) || e.Offset != int64(off) || e.Expected == "" || e.Found == "" {
			t.Errorf("byte %d: %v", off, e)
		}
	}
}

// An element type that this release does not know is another release's, not damage, and refuses that segment alone. A descriptor that is cut, or
// goes on, is damage.
func TestDescriptorOfAnotherRelease(t *testing.T) {
	d, _ := testModel(1)
	b := must(encodeDescriptor(d))(t)
	for _, wrong := range [][]byte{b[:len(b)-1], append(b, 0)} {
		if got, err := decodeDescriptor(wrong); err == nil || errors.Is(err, ErrVersion) {
			t.Errorf("%d bytes, expected %d: %+v, %v", len(wrong), len(b), got, err)
		}
	}
	d.Tensors[1].DType = 77
	got, err := decodeDescriptor(must(encodeDescriptor(d))(t))
	if !errors.Is(err, ErrVersion) || errors.Is(err, vfs.ErrVersion) || !strings.Contains(err.Error(), "tensor 1 has dtype 77") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSegmentNames(t *testing.T) {
	for _, id := range []uint64{1, 255, 1 << 63} {
		if got, ok := parseSegmentName(segmentName(id)); !ok || got != id {
			t.Error(id, got, ok)
		}
	}
	for _, name := range []string{"", "1.seg", "000000000000000G.seg", "00000000000000FF.seg", "+000000000000001.seg", "0000000000000001.seg.tmp"} {
		if id, ok := parseSegmentName(name); ok {
			t.Errorf("%q is segment %d", name, id)
		}
	}
}
