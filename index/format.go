package index

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// This file alone knows the bytes of index.db's rows; docs/format/index.md draws the same. pages.go knows the pages that
// bbolt keeps them in.
//
// All rows are in one bbolt bucket, in one order. A row's key starts with its table:
//
//	table     key after the table byte                    payload
//	0 store   -                                           format, UUID, applied, totals
//	1 extra   chunk u32 BE                                a piece of the caller's small state
//	2 block   key 16 | group 1                            entry
//	3 child   parent 16 | scope 16 | hashes | 0 0 | key 16   -
//	4 leaf    model 16 | rank u64 BE | key 16             -
//	5 scope   scope 16 | key 16                           -
//	6 model   fingerprint 16                              blocks, records, bytes
//	7 segment id u64 BE                                   records, bytes
//	255 end   -                                           -
//
// The hashes of a child are two bytes a token, big-endian, never zero (a zero is stored as 1), so that the zero after them
// sorts a shorter child before the longer ones that begin alike.
//
// The rows of the tables store and end always exist: every other row lies between two, so that a tree which lost its
// first or last part cannot look whole.
//
// A value in the file is the payload behind its checksum:
//
//	 0      8
//	┌──────┬─────────┐
//	│ sum  │ payload │   sum = xxhash64(key | payload)
//	└──────┴─────────┘
const (
	tableStore   = 0
	tableExtra   = 1
	tableBlock   = 2
	tableChild   = 3
	tableLeaf    = 4
	tableScope   = 5
	tableModel   = 6
	tableSegment = 7
	tableEnd     = 255
)

const (
	formatVersion = 3

	sumBytes      = 8
	maxHashBytes  = MaxHashTokens * kv.TokenHashBytes
	blockKeyBytes = 1 + 16 + 1
	childKeyBytes = 1 + 16 + 16 + 0 + 2 + 16 // without hashes
	leafKeyBytes  = 1 + 16 + 8 + 16
	scopeKeyBytes = 1 + 16 + 16
	modelKeyBytes = 1 + 16
	segKeyBytes   = 1 + 8
	extraKeyBytes = 1 + 4

	maxKeyBytes     = childKeyBytes + maxHashBytes
	maxPayloadBytes = extraChunkBytes
	maxValueBytes   = sumBytes + maxPayloadBytes

	// Four rows fit a page, whichever they are: bbolt then never needs an overflow page for them.
	extraChunkBytes = 960
)

var (
	storeKey = []byte{tableStore}
	endKey   = []byte{tableEnd}
	empty    = []byte{}
)

// sumRow is the checksum of a row. It covers the key too, so that a value cannot be taken for another key's.
func sumRow(keyAndPayload []byte) uint64 { return xxhash.Sum64(keyAndPayload) }

// encodeValue puts the checksum before the payload.
func encodeValue(key, payload []byte) []byte {
	v := make([]byte, sumBytes+len(key)+len(payload))
	copy(v[sumBytes+copy(v[sumBytes:], key):], payload)
	binary.LittleEndian.PutUint64(v, sumRow(v[sumBytes:]))
	return append(v[:sumBytes], payload...)
}

// Keys. The append functions take a buffer so that a query does not allocate.

func appendBlockKey(b []byte, k kv.Key, group uint8) []byte {
	b = append(b, tableBlock)
	b = append(b, k[:]...)
	return append(b, group)
}

func appendChildPrefix(b []byte, parent kv.Key) []byte {
	b = append(b, tableChild)
	return append(b, parent[:]...)
}

// appendChildSeek is where the children of parent in scope that begin with hashes lie.
func appendChildSeek(b []byte, parent kv.Key, scope kv.ScopeID, hashes []byte) []byte {
	b = appendChildPrefix(b, parent)
	b = append(b, scope[:]...)
	if len(hashes) > maxHashBytes {
		hashes = hashes[:maxHashBytes]
	}
	for i := 0; i+1 < len(hashes); i += 2 {
		hi, lo := hashes[i], hashes[i+1]
		if hi|lo == 0 {
			lo = 1
		}
		b = append(b, hi, lo)
	}
	return b
}

func appendChildKey(b []byte, parent kv.Key, scope kv.ScopeID, hashes []byte, k kv.Key) []byte {
	b = appendChildSeek(b, parent, scope, hashes)
	b = append(b, 0, 0)
	return append(b, k[:]...)
}

func appendLeafPrefix(b []byte, model kv.Fingerprint) []byte {
	b = append(b, tableLeaf)
	return append(b, model[:]...)
}

func appendLeafKey(b []byte, model kv.Fingerprint, rank uint64, k kv.Key) []byte {
	b = appendLeafPrefix(b, model)
	b = binary.BigEndian.AppendUint64(b, rank)
	return append(b, k[:]...)
}

func appendScopePrefix(b []byte, scope kv.ScopeID) []byte {
	b = append(b, tableScope)
	return append(b, scope[:]...)
}

func appendScopeKey(b []byte, scope kv.ScopeID, k kv.Key) []byte {
	b = appendScopePrefix(b, scope)
	return append(b, k[:]...)
}

func appendModelKey(b []byte, model kv.Fingerprint) []byte {
	b = append(b, tableModel)
	return append(b, model[:]...)
}

func appendSegmentKey(b []byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, tableSegment), id)
}

func appendExtraKey(b []byte, chunk uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, tableExtra), chunk)
}

// splitChildKey takes a child row apart.
func splitChildKey(key []byte) (parent kv.Key, scope kv.ScopeID, hashes []byte, k kv.Key, ok bool) {
	if len(key) < childKeyBytes || len(key) > maxKeyBytes || key[0] != tableChild {
		return parent, scope, nil, k, false
	}
	copy(parent[:], key[1:])
	copy(scope[:], key[17:])
	end := len(key) - 16
	copy(k[:], key[end:])
	hashes = key[33 : end-2]
	return parent, scope, hashes, k, len(hashes)%2 == 0 && key[end-2]|key[end-1] == 0
}

func splitLeafKey(key []byte) (model kv.Fingerprint, rank uint64, k kv.Key, ok bool) {
	if len(key) != leafKeyBytes || key[0] != tableLeaf {
		return model, 0, k, false
	}
	copy(model[:], key[1:])
	copy(k[:], key[25:])
	return model, binary.BigEndian.Uint64(key[17:]), k, true
}

func splitScopeKey(key []byte) (scope kv.ScopeID, k kv.Key, ok bool) {
	if len(key) != scopeKeyBytes || key[0] != tableScope {
		return scope, k, false
	}
	copy(scope[:], key[1:])
	copy(k[:], key[17:])
	return scope, k, true
}

func splitBlockKey(key []byte) (k kv.Key, group uint8, ok bool) {
	if len(key) != blockKeyBytes || key[0] != tableBlock {
		return k, 0, false
	}
	copy(k[:], key[1:])
	return k, key[17], true
}

// The payload of a block row:
//
//	 0        16      32      48        56       64       72      80     88      92
//	┌────────┬───────┬───────┬─────────┬────────┬────────┬───────┬──────┬───────┬──────┐
//	│ parent │ model │ scope │ segment │ offset │ length │ seq   │ rank │ first │ hits │
//	└────────┴───────┴───────┴─────────┴────────┴────────┴───────┴──────┴───────┴──────┘
//	 96       98         100        102    103     104    108       116
//	┌────────┬──────────┬──────────┬──────┬───────┬──────┬─────────┬────────────────────┐
//	│ tokens │ rowFirst │ rowCount │ tier │ flags │ used │ created │ hashes, 0 to 128 B │
//	└────────┴──────────┴──────────┴──────┴───────┴──────┴─────────┴────────────────────┘
const entryBytes = 116

// appendEntry writes e and the hashes to keep with it.
func appendEntry(b []byte, e *Entry, hashes []byte) []byte {
	le := binary.LittleEndian
	b = append(b, e.Parent[:]...)
	b = append(b, e.Model[:]...)
	b = append(b, e.Scope[:]...)
	b = le.AppendUint64(b, e.Loc.Segment)
	b = le.AppendUint64(b, uint64(e.Loc.Offset))
	b = le.AppendUint64(b, uint64(e.Loc.Length))
	b = le.AppendUint64(b, e.Seq)
	b = le.AppendUint64(b, e.Rank)
	b = le.AppendUint32(b, e.First)
	b = le.AppendUint32(b, e.Hits)
	b = le.AppendUint16(b, e.Tokens)
	b = le.AppendUint16(b, e.RowFirst)
	b = le.AppendUint16(b, e.RowCount)
	b = append(b, e.Loc.Tier, e.Flags)
	b = le.AppendUint32(b, e.Used)
	b = le.AppendUint64(b, uint64(e.Created))
	return append(b, hashes...)
}

// decodeEntry reads the row of a block. hashes point into payload.
func decodeEntry(e *Entry, key, payload []byte) (hashes []byte, ok bool) {
	k, group, ok := splitBlockKey(key)
	if n := len(payload); !ok || n < entryBytes || n > entryBytes+maxHashBytes || (n-entryBytes)%kv.TokenHashBytes != 0 {
		return nil, false
	}
	le := binary.LittleEndian
	e.Key, e.Group = k, group
	copy(e.Parent[:], payload)
	copy(e.Model[:], payload[16:])
	copy(e.Scope[:], payload[32:])
	e.Loc.Segment = le.Uint64(payload[48:])
	e.Loc.Offset = int64(le.Uint64(payload[56:]))
	e.Loc.Length = int64(le.Uint64(payload[64:]))
	e.Seq = le.Uint64(payload[72:])
	e.Rank = le.Uint64(payload[80:])
	e.First = le.Uint32(payload[88:])
	e.Hits = le.Uint32(payload[92:])
	e.Tokens = le.Uint16(payload[96:])
	e.RowFirst = le.Uint16(payload[98:])
	e.RowCount = le.Uint16(payload[100:])
	e.Loc.Tier, e.Flags = payload[102], payload[103]
	e.Used = le.Uint32(payload[104:])
	e.Created = int64(le.Uint64(payload[108:]))
	e.Hashes = nil
	return payload[entryBytes:], e.Loc.Offset >= 0 && e.Loc.Length >= 0 && e.Created >= 0
}

// The payload of the store row:
//
//	 0         4      8      24    32        40          48            56      64
//	┌─────────┬──────┬──────┬─────┬─────────┬───────────┬─────────────┬───────┬────────┐
//	│ version │ zero │ UUID │ LSN │ walFile │ nextBirth │ nextSegment │ clock │ blocks │
//	└─────────┴──────┴──────┴─────┴─────────┴───────────┴─────────────┴───────┴────────┘
//	 72        80      88           92
//	┌─────────┬───────┬────────────┬──────┐
//	│ records │ bytes │ extraBytes │ zero │   96 bytes
//	└─────────┴───────┴────────────┴──────┘
const storeBytes = 96

type storeRow struct {
	UUID       kv.UUID
	Applied    Applied // without Extra
	Totals     Counts
	ExtraBytes uint32
}

func appendStore(b []byte, s *storeRow) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, formatVersion)
	b = le.AppendUint32(b, 0)
	b = append(b, s.UUID[:]...)
	b = le.AppendUint64(b, s.Applied.LSN)
	b = le.AppendUint64(b, s.Applied.WALFile)
	b = le.AppendUint64(b, s.Applied.NextSeq)
	b = le.AppendUint64(b, s.Applied.NextSegment)
	b = le.AppendUint64(b, s.Applied.Clock)
	b = appendCounts(b, s.Totals)
	b = le.AppendUint32(b, s.ExtraBytes)
	return le.AppendUint32(b, 0)
}

// decodeStore returns the UUID, too, of a row of a version that it does not know.
func decodeStore(file string, payload []byte) (s storeRow, err error) {
	le := binary.LittleEndian
	if len(payload) < 4 {
		return s, damage.New(file, 0, "store row", fmt.Sprintf("%d bytes", storeBytes), fmt.Sprintf("%d", len(payload)))
	}
	if len(payload) >= 24 {
		copy(s.UUID[:], payload[8:])
	}
	if v := le.Uint32(payload); v != formatVersion {
		return s, fmt.Errorf("%s: %w: version %d, this program writes %d", file, ErrVersion, v, formatVersion)
	}
	if len(payload) != storeBytes {
		return s, damage.New(file, 0, "store row", fmt.Sprintf("%d bytes", storeBytes), fmt.Sprintf("%d", len(payload)))
	}
	if zero := append(payload[4:8:8], payload[92:]...); !vfs.Blank(zero) {
		return s, fmt.Errorf("%s: %w: reserved bytes of the store row: expected zeros, found %x", file, ErrVersion, zero)
	}
	s.Applied.LSN = le.Uint64(payload[24:])
	s.Applied.WALFile = le.Uint64(payload[32:])
	s.Applied.NextSeq = le.Uint64(payload[40:])
	s.Applied.NextSegment = le.Uint64(payload[48:])
	s.Applied.Clock = le.Uint64(payload[56:])
	s.Totals, _ = decodeCounts(payload[64:88])
	s.ExtraBytes = le.Uint32(payload[88:])
	if s.ExtraBytes > MaxExtraBytes {
		return s, damage.New(file, 0, "length of the caller's state", fmt.Sprintf("at most %d", MaxExtraBytes), s.ExtraBytes)
	}
	return s, nil
}

// The payloads of the model and segment rows:
//
//	 0        8         16     24          0         8      16
//	┌────────┬─────────┬───────┐           ┌─────────┬───────┐
//	│ blocks │ records │ bytes │           │ records │ bytes │
//	└────────┴─────────┴───────┘           └─────────┴───────┘
const (
	countsBytes    = 24
	segCountsBytes = 16
)

func appendCounts(b []byte, c Counts) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(c.Blocks))
	b = le.AppendUint64(b, uint64(c.Records))
	return le.AppendUint64(b, uint64(c.Bytes))
}

func decodeCounts(b []byte) (c Counts, ok bool) {
	if len(b) != countsBytes {
		return c, false
	}
	le := binary.LittleEndian
	return Counts{int64(le.Uint64(b)), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))}, true
}

func appendSegmentCounts(b []byte, c SegmentCounts) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Records))
	return binary.LittleEndian.AppendUint64(b, uint64(c.Bytes))
}

func decodeSegmentCounts(b []byte) (c SegmentCounts, ok bool) {
	if len(b) != segCountsBytes {
		return c, false
	}
	return SegmentCounts{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}, true
}
