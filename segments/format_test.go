package segments

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
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

func goldenFooter() []byte {
	return encodeFooter(place{testUUID, 7, 16384}, []footerEntry{
		{key: kv.Key{1}, seq: 5, offset: 4096, length: 4096, group: 0, kind: Chained},
		{key: kv.Key{2}, seq: 6, offset: 12288, length: 4096, group: 1, kind: Chained},
	})
}

func TestGoldenBytes(t *testing.T) {
	golden(t, "segment-header.golden", encodeSegmentHeader(goldenHeader())[:1024])
	golden(t, "record.golden", goldenRecord(t))
	golden(t, "footer.golden", goldenFooter())
}

// What is written can be read.
func TestGoldenBytesAreRead(t *testing.T) {
	read := func(name string) []byte { return must(os.ReadFile("testdata/" + name))(t) }
	h, bad := decodeSegmentHeader(read("segment-header.golden"), testUUID, 7)
	if bad != nil || h.planned != 64<<10 || h.seed != testSeed {
		t.Fatal(h, bad)
	}
	d, err := decodeDescriptor(h.descriptor)
	if err != nil || d.Fingerprint() != h.model {
		t.Error(err)
	}
	rec, v, bad := decodeRecordHead(read("record.golden"), int64(len(read("record.golden"))), place{testUUID, 7, 8192})
	if v != isRecord || rec.seq != 43 || rec.tokens != 64 || rec.spans != 2 || rec.table != 2 || rec.group != 1 || rec.created != 0x5152535455565758 {
		t.Error(rec, v, bad)
	}
	entries, _, bad := decodeFooter(read("footer.golden"), place{testUUID, 7, 16384})
	if bad != nil || len(entries) != 2 || entries[1].seq != 6 {
		t.Error(entries, bad)
	}
}

// A wrong magic, a wrong version and a wrong checksum are three different errors. A segment's version that alone is wrong is damage.
func TestErrorsTellWhatIsWrong(t *testing.T) {
	at := place{testUUID, 7, 8192}
	foot := place{testUUID, 7, 16384}
	decode := map[string]func([]byte) *damage.Error{
		"segment": func(b []byte) *damage.Error { _, e := decodeSegmentHeader(b, testUUID, 7); return e },
		"record":  func(b []byte) *damage.Error { _, _, e := decodeRecordHead(b, int64(len(b)), at); return e },
		"footer":  func(b []byte) *damage.Error { _, _, e := decodeFooter(b, foot); return e },
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
		{"footer", 0, "footer", false},
		{"footer", 8, "footer version", true},
		{"footer", 55, "footer entry count", false},
		{"footer", 70, "footer checksum", false},
	}
	for _, test := range tests {
		b := map[string][]byte{"segment": encodeSegmentHeader(goldenHeader()), "record": goldenRecord(t), "footer": goldenFooter()}[test.format]
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
	withExtra := func(kind uint16, odd ...int) []byte {
		b := makeBlock(1, 1, 10).build(t)
		h := b.h
		h.extra, h.tokens, h.table = 16, 0, 0
		h.layout()
		h.at, h.total = place{testUUID, 7, 8192}, int64(h.head)
		raw := make([]byte, 4096)
		encodeRecordHeader(raw, &h)
		le.PutUint16(raw[recordHeaderBytes:], kind)
		le.PutUint32(raw[recordHeaderBytes+4:], 5)
		for _, off := range odd {
			raw[recordHeaderBytes+off] = 1
		}
		sealRecordHead(raw[:h.head])
		return raw
	}
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
		{"optional TLV", withExtra(5), false},
		{"mandatory TLV", withExtra(0x8001), true},
		{"reserved in a TLV", withExtra(5, 3), true},
		{"bytes of a TLV's value", withExtra(5, 8, 12), false},
		{"bytes behind a TLV's value", withExtra(5, 13), true},
		{"bytes before the table", plain(func(b []byte) { b[goldenTable(t)-1] = 1 }), true},
		{"optional flag", plain(func(b []byte) { b[15] = 1 }), false},
		{"mandatory flag", plain(func(b []byte) { b[12] = 1 }), true},
		{"foreign kind", plain(func(b []byte) { b[10] = byte(Foreign) }), true},
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
	const footerAt = 16384
	footer := func(b []byte) *damage.Error {
		le.PutUint32(b[len(b)-4:], crc32c(b[:len(b)-4]))
		_, _, e := decodeFooter(b, place{testUUID, 7, footerAt})
		return e
	}
	entry, trailer := footerHeaderBytes+footerEntryBytes, footerHeaderBytes+2*footerEntryBytes
	for _, test := range []struct {
		what    string
		at      int64 // where the bytes lie in the file
		bytes   func() []byte
		decode  func([]byte) *damage.Error
		offsets []int
	}{
		{"segment header", 0, func() []byte { return encodeSegmentHeader(goldenHeader()) }, segment, []int{10, 11, 88, 91, 92, 123}},
		{"footer", footerAt, goldenFooter, footer, []int{10, 15, 56, 63}},
		{"footer entry", footerAt, goldenFooter, footer, []int{entry + 41, entry + 42, entry + 47}},
		{"trailer", footerAt, goldenFooter, footer, []int{trailer + 8, trailer + 10, trailer + 15, trailer + 56, trailer + 59}},
	} {
		if e := test.decode(test.bytes()); e != nil {
			t.Fatalf("%s: %v", test.what, e)
		}
		for _, off := range test.offsets {
			b := test.bytes()
			b[off] ^= 0x40
			e := test.decode(b)
			if e == nil || !errors.Is(e, ErrVersion) || e.Offset != test.at+int64(off) || e.Expected == "" || e.Found == "" {
				t.Errorf("%s, byte %d: %v", test.what, off, e)
			}
		}
	}
}

// An element type, a role or a kind of group that this release does not know is another release's, not damage; so is a field more.
func TestDescriptorOfAnotherRelease(t *testing.T) {
	for want, change := range map[string]func(*kv.Descriptor){
		"tensor 1 has dtype 77":  func(d *kv.Descriptor) { d.Tensors[1].DType = 77 },
		"tensor 0 has dtype 0":   func(d *kv.Descriptor) { d.Tensors[0].DType = 0 },
		"tensor 1 has role 4":    func(d *kv.Descriptor) { d.Tensors[1].Role = 4 },
		"group 1 has kind 9":     func(d *kv.Descriptor) { d.Groups[1].Kind = 9 },
		"tensor 2 has dtype 258": func(d *kv.Descriptor) {},
		"18 fields":              func(d *kv.Descriptor) {},
	} {
		d, _ := testModel(1)
		change(d)
		b := must(encodeDescriptor(d))(t)
		switch want {
		case "18 fields": // a map of 17 is de 00 11
			b[2]++
			b = append(b, "\xa3newX"...)
		case "tensor 2 has dtype 258": // the last row: [1 K F16 64 1]
			b = append(b[:len(b)-3], 0xcd, 258>>8, 258&0xff, 64, 1)
		}
		if got, err := decodeDescriptor(b); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}

func TestDescriptorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Custom(func(t *rapid.T) (h kv.Hash) {
			copy(h[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "hash"))
			return h
		})
		d := kv.Descriptor{
			Name: rapid.String().Draw(t, "name"), Weights: hash.Draw(t, "weights"), Architecture: rapid.String().Draw(t, "arch"),
			Tokenizer: hash.Draw(t, "tokenizer"), Rotated: rapid.Bool().Draw(t, "rotated"),
			RoPE: kv.RoPE{Type: rapid.String().Draw(t, "rope"), Dims: rapid.IntRange(0, 1<<20).Draw(t, "dims"),
				Base: rapid.Float32().Draw(t, "base"), Scale: rapid.Float32().Draw(t, "scale"),
				Scaling: rapid.String().Draw(t, "scaling"), FreqFactors: hash.Draw(t, "factors")},
			Shards: 4, Shard: rapid.IntRange(0, 3).Draw(t, "shard"), StateFormat: rapid.String().Draw(t, "state"),
			Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: rapid.IntRange(1, 1<<20).Draw(t, "window")}, {Kind: kv.StateAt}},
		}
		for range rapid.IntRange(0, 40).Draw(t, "tensors") {
			d.Tensors = append(d.Tensors, kv.Tensor{
				Layer: rapid.IntRange(0, 200).Draw(t, "layer"), Role: kv.Role(rapid.IntRange(1, 3).Draw(t, "role")),
				DType: kv.DType(rapid.IntRange(1, 9).Draw(t, "dtype")), Width: 32 * rapid.IntRange(1, 300).Draw(t, "width"),
				Group: rapid.IntRange(0, 2).Draw(t, "group")})
		}
		d = must(d.Normal())(t)
		b := must(encodeDescriptor(&d))(t)
		got := must(decodeDescriptor(b))(t)
		if got.Fingerprint() != d.Fingerprint() || !reflect.DeepEqual(got, d) {
			t.Fatalf("got %+v, expected %+v", got, d)
		}
		n := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := decodeDescriptor(b[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a descriptor, too", n, len(b))
		}
	})
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
