package oplog

import (
	"testing"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// aPut publishes 64 blocks of 64 tokens.
func aPut() Put {
	var op Put
	for i := range 64 {
		r := Record{
			Key: kv.Key{byte(i), 7}, Parent: kv.Key{byte(i), 8}, Loc: loc.Loc{Segment: 3, Offset: int64(i) << 16, Length: 65536},
			First: uint32(i * 64), Tokens: 64, RowCount: 64, Seq: uint64(i) + 1e6, Hashes: make([]byte, 128),
		}
		op.Records = append(op.Records, r)
	}
	return op
}

func BenchmarkEncode(b *testing.B) {
	op := aPut()
	b.SetBytes(int64(len(Encode(op))))
	b.ReportAllocs()
	for b.Loop() {
		Encode(op)
	}
}

func BenchmarkDecode(b *testing.B) {
	payload := Encode(aPut())
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(KindPut, payload); err != nil {
			b.Fatal(err)
		}
	}
}
