package oplog

import (
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// samples has an operation of every kind, in their order. Every field has a value, and its own where that is possible.
func samples() []Op {
	id := func(b byte) (x [16]byte) {
		for i := range x {
			x[i] = b<<4 | byte(i)
		}
		return x
	}
	place := func(n uint64) loc.Loc {
		return loc.Loc{Segment: 0x0102030405060700 + n, Offset: 0x1112131415161700 + int64(n), Length: 0x2122232425262700 + int64(n)}
	}
	record := index.Entry{
		Key: id(1), Group: 3, Parent: id(2), Model: id(3), Scope: id(4), Loc: place(1), First: 0x31323334, Tokens: 0x4142,
		RowFirst: 0x5152, RowCount: 0x6162, Flags: index.FlagDamaged | index.FlagScopeRoot, Seq: 0x8182838485868788,
		Created: 0x7172737475767778, Hashes: []byte{0xde, 0xad, 0xbe, 0xef},
	}
	dead := []Dead{{Key: id(5), Group: 1, Loc: place(2)}, {Key: id(6), Group: 2, Loc: place(3)}}
	gemma := sampleDescriptor()
	ref := Ref{
		Name: "system", Model: id(10), Block: id(11), Tokens: 70000, Pinned: true, Priority: 200,
		Expires: time.Unix(1900000000, 987654321).UTC(), Set: time.Unix(1800000000, 0).UTC(), Meta: []byte("meta"),
		Trail: kv.Trail("trail"),
	}
	note := Note{Model: id(15), Name: "canary", Value: []byte{0xca, 0xfe}}
	return []Op{
		Snapshot{
			Ends:   map[uint64]int64{0xa1a2a3a4a5a6a7a8: 0x3132333435363738, 7: 0},
			Next:   Counters{Seq: 0xb1b2b3b4b5b6b7b8, Segment: 0xc1c2c3c4c5c6c7c8, Clock: 0xd1d2d3d4d5d6d7d8},
			Models: []Model{NewModel(&gemma, 0xe1e2e3e4e5e6e7e8)}, Refs: []Ref{{Name: "alone"}, ref}, Tombstones: []loc.Loc{place(4)},
			Unlinked: []uint64{0x9192939495969798}, Flagged: []kv.Key{id(21)}, Notes: []Note{note}, FormerRefs: FormerDeleted,
		},
		Put{Records: []index.Entry{record, {}}, Dead: dead},
		Remove{Deleted: true, Dead: dead, Refs: []string{"a ref", "another"}, Seq: 0x4142434445464748},
		Move{Key: id(12), Group: 4, From: place(5), To: place(6), Seq: 0x0102030405060708},
		NewModel(&gemma, 0x1112131415161718),
		Retire{Model: id(13), Segments: []uint64{7, 0x2122232425262728}},
		ref,
		Unref{Name: "system"},
		Flag{Key: id(14), Group: 5, Loc: place(7), Flags: index.FlagPartial},
		note,
		Barrier{LSN: 0x5152535455565758},
	}
}

func sampleDescriptor() kv.Descriptor {
	d := kv.Descriptor{
		Name: "gemma-3", Weights: kv.Hash{7}, Architecture: "gemma3", Tokenizer: kv.Hash{8},
		RoPE:    kv.RoPE{Type: "neox", Dims: 256, Base: 1e6, Scale: 0.125, Scaling: "linear", FreqFactors: kv.Hash{9}},
		Rotated: true, Shard: 1, Shards: 2, StateFormat: "v3", BlockTokens: 128,
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 512}, {Kind: kv.StateAt}},
		Tensors: []kv.Tensor{
			{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 256},
			{Layer: 1, Role: kv.RoleV, DType: kv.Q8_0, Width: 128, Group: 1},
			{Layer: 300, Role: kv.RoleState, DType: kv.Bytes, Width: 0, Group: 2},
		},
	}
	normal, err := d.Normal()
	if err != nil {
		panic(err)
	}
	return normal
}
