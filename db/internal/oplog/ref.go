package oplog

import (
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/kv"
)

// Ref sets a name on a prefix.
type Ref struct {
	Name     string
	Model    kv.Fingerprint
	Block    kv.Key // the stored block that holds the prefix's last token
	Tokens   int    // length of the prefix
	Pinned   bool
	Priority uint8
	Expires  time.Time // zero: never
	Set      time.Time
	Meta     []byte // the caller's
	Trail    kv.Trail
}

// Bytes is what a ref takes in the head of the log, generously.
func (op Ref) Bytes() int64 { return int64(256 + len(op.Name) + len(op.Meta) + len(op.Trail)) }

// Expired reports whether the ref's time is over.
func (op Ref) Expired(now time.Time) bool { return !op.Expires.IsZero() && op.Expires.Before(now) }

func (Ref) Kind() uint8 { return KindRef }

func (op Ref) String() string {
	return fmt.Sprintf("ref %.40q on block %s, %s", op.Name, op.Block, count(op.Tokens, "token"))
}

func (Ref) Room() Room { return Ordinary }

func (Ref) Numbers() Counters { return Counters{} }

func (Ref) Places(func(loc.Loc, Use)) {}

func (op Ref) Replay(ix Index) error {
	ix.RankRef(op.Name)
	ix.RankBlock(op.Block)
	return nil
}

func (op Ref) Change(c Catalog) { c.SetRef(op) }

// refBytes is the least length of a ref.
const refBytes = 74

// ref = fingerprint 16 | block 16 | u32 tokens | bool pinned | u8 priority | time expires | time set | string name | bytes meta | bytes trail
func (op Ref) append(b []byte) []byte {
	b = append(b, op.Model[:]...)
	b = append(b, op.Block[:]...)
	b = le.AppendUint32(b, uint32(op.Tokens))
	b = append(packed.AppendBool(b, op.Pinned), op.Priority)
	b = appendTime(appendTime(b, op.Expires), op.Set)
	return packed.AppendBytes(packed.AppendBytes(packed.AppendBytes(b, op.Name), op.Meta), op.Trail)
}

func (Ref) read(r *reader) Op { return readRef(r) }

func readRef(r *reader) Ref {
	return Ref{
		Model: r.ID(), Block: r.ID(), Tokens: r.Length("tokens"), Pinned: r.Bool("pinned"), Priority: r.U8(),
		Expires: r.time(), Set: r.time(), Name: r.Text(), Meta: r.Bytes(), Trail: r.Bytes(),
	}
}
