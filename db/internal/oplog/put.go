package oplog

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Put publishes records. Dead are those that they replace.
type Put struct {
	Records []index.Entry // rank, hits and last use are not logged
	Dead    []Dead
}

func (Put) Kind() uint8 { return KindPut }

func (op Put) String() string {
	return fmt.Sprintf("put of %s in the place of %d", count(len(op.Records), "record"), len(op.Dead))
}

func (Put) Room() Room { return Ordinary }

func (op Put) Numbers() (n Counters) {
	for i := range op.Records {
		n = n.Max(Counters{Seq: op.Records[i].Seq + 1, Segment: op.Records[i].Loc.Segment + 1})
	}
	return n
}

func (op Put) Places(see func(at loc.Loc, is Use)) {
	for i := range op.Records {
		see(op.Records[i].Loc, UseStored)
	}
	seeDead(op.Dead, see)
}

func (op Put) Replay(ix Index) error { return ix.Put(op.Records, op.Dead) }

// The records in their place must be durable before the dead are destroyed.
func (op Put) Change(c Catalog) { c.Bury(op.Dead, true) }

// put = list of record | list of dead
func (op Put) append(b []byte) []byte {
	b = slices.Grow(b, 8+len(op.Records)*(recordBytes+256)+len(op.Dead)*deadBytes)
	b = packed.AppendList(b, op.Records, appendRecord)
	return packed.AppendList(b, op.Dead, appendDead)
}

func (Put) read(r *reader) Op {
	return Put{Records: packed.List(&r.Reader, recordBytes, r.record), Dead: r.dead()}
}

// recordBytes is the length of a record without its hashes.
const recordBytes = 138

// A record; kind and runtime key are those of the record itself (docs/format/record.md), of which there is only one yet.
//
//	  0 │ key 16 │ parent 16 │ fingerprint 16 │ scope 16 │ runtime key 16 = 0 │
//	 80 │ place 25 │ u8 kind = 1 │ u8 group │ u8 flags │
//	108 │ u32 first │ u16 tokens │ u16 first row │ u16 rows │ u64 seq │ u64 created │
//	134 │ bytes hashes │
func appendRecord(b []byte, x index.Entry) []byte {
	b = append(b, x.Key[:]...)
	b = append(b, x.Parent[:]...)
	b = append(b, x.Model[:]...)
	b = append(b, x.Scope[:]...)
	b = append(b, make([]byte, 16)...)
	b = appendPlace(b, x.Loc)
	b = append(b, kindChained, x.Group, x.Flags)
	b = le.AppendUint32(b, x.First)
	b = le.AppendUint16(b, x.Tokens)
	b = le.AppendUint16(b, x.RowFirst)
	b = le.AppendUint16(b, x.RowCount)
	b = le.AppendUint64(b, x.Seq)
	b = le.AppendUint64(b, uint64(x.Created))
	return packed.AppendBytes(b, x.Hashes)
}

// kindChained is that of records in segments, of which there is only one.
const kindChained = 1

func (r *reader) record() index.Entry {
	b := r.Take(recordBytes - 4)
	if b == nil {
		return index.Entry{}
	}
	x := index.Entry{
		Key: kv.Key(b[0:16]), Parent: kv.Key(b[16:32]), Model: kv.Fingerprint(b[32:48]), Scope: kv.ScopeID(b[48:64]),
		Loc: r.placeIn(b[80:]), Group: b[106], Flags: b[107],
		First: le.Uint32(b[108:]), Tokens: le.Uint16(b[112:]), RowFirst: le.Uint16(b[114:]), RowCount: le.Uint16(b[116:]),
		Seq: le.Uint64(b[118:]), Created: int64(le.Uint64(b[126:])), Hashes: r.Bytes(),
	}
	if [16]byte(b[64:80]) != [16]byte{} {
		r.Fail(vfs.ErrVersion, "a runtime's own key")
	}
	r.known("record kind", uint64(b[105]), kindChained)
	r.knownFlags(x.Flags)
	if x.Created < 0 {
		r.Fail(ErrPayload, "created %d seconds before 1970", -x.Created)
	}
	if n := len(x.Hashes); n%kv.TokenHashBytes != 0 {
		r.Fail(ErrPayload, "%d bytes of token hashes", n)
	}
	return x
}

// Before is the block that one hangs from; zero for the first of a prompt.
func Before(block index.Entry) kv.Key {
	if block.First == 0 {
		return kv.Key{}
	}
	return block.Parent
}
