package index

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// Loc is where a record lies.
type Loc = loc.Loc

// Flags of an [Entry].
const (
	FlagDamaged   = 1 << 0 // a read found the record damaged: matches stop before it, a put replaces it
	FlagPartial   = 1 << 1 // the block is shorter than the model's blocks
	FlagScopeRoot = 1 << 2 // the block's parent is in another scope
)

// Entry is what the index knows of one record: the rows of one block for one group.
type Entry struct {
	Key    kv.Key
	Group  uint8
	Parent kv.Key // key of the block before it; the root key for a first block
	Model  kv.Fingerprint
	Scope  kv.ScopeID
	Loc    Loc

	First    uint32 // position of the block's first token
	Tokens   uint16 // tokens of the block
	RowFirst uint16 // first row that the record covers, relative to the block
	RowCount uint16
	Flags    uint8
	Seq      uint64 // orders copies of one key
	Created  int64  // when the record was put, in Unix seconds; 0: not known. Moves leave it

	// Rank orders the leaves of a model: the lowest is evicted first. Rank, Hits and Used mean something in group 0 only.
	Rank uint64
	Hits uint32
	Used uint32 // when the block was last put or hit, in minutes since 1970; 0: not known

	// Hashes are two bytes for each of the block's first tokens, of which [MaxHashTokens] are kept: the order of a
	// parent's children. Group 0 only, read by [Txn.Put]; queries but [Txn.Load] leave it nil.
	Hashes []byte
}

// SecondsOf is a time as [Entry].Created has it, MinutesOf as Used: 0 for one before 1970, as of a clock that was never set.
func SecondsOf(t time.Time) int64 { return max(0, t.Unix()) }

// MinutesOf: see [SecondsOf].
func MinutesOf(t time.Time) uint32 { return uint32(min(SecondsOf(t)/60, math.MaxUint32)) }

// MaxHashTokens is how many tokens the order of children looks at.
const MaxHashTokens = 64

// MaxExtraBytes bounds [Applied.Extra].
const MaxExtraBytes = 64 << 20

// ErrNotFound is returned when a change names an entry that is not there.
var ErrNotFound = errors.New("index: no such entry")

// errEntry is returned when an entry cannot be stored: a negative offset, length or time, half a token hash.
var errEntry = errors.New("index: invalid entry")

func (e *Entry) validate() error {
	switch {
	case e.Loc.Offset < 0 || e.Loc.Length < 0:
		return fmt.Errorf("%w: %s: offset %d, length %d", errEntry, e.Key, e.Loc.Offset, e.Loc.Length)
	case e.Created < 0:
		return fmt.Errorf("%w: %s: created %d seconds before 1970", errEntry, e.Key, -e.Created)
	case len(e.Hashes)%kv.TokenHashBytes != 0:
		return fmt.Errorf("%w: %s: %d bytes of token hashes, %d a token", errEntry, e.Key, len(e.Hashes), kv.TokenHashBytes)
	}
	return nil
}
