package write

import (
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// exactTokens at the start of a prompt are kept exactly: attention sinks take most of every later token's attention.
const exactTokens = 4

// chunkBytes bounds what one log frame publishes, and so what a put holds back from others.
const chunkBytes = 32 << 20

// Options say how rows are stored.
type Options struct {
	Codec       quant.Codec // for float tensors; 0: each tensor's default
	Compression quant.Compression
}

// Result says what a put did.
type Result struct {
	Tokens  int   // the prompt is now stored up to here, after an error at least so far
	Blocks  int   // blocks that were not stored before
	Records int   // records written
	Reused  int   // records that were stored already; their headers are whole, their rows were not read
	Bytes   int64 // bytes written
}

// Add adds what another attempt did. What the first one stored, the next one finds.
func (r *Result) Add(x Result) {
	r.Reused = max(0, x.Reused-r.Records)
	r.Tokens = x.Tokens
	r.Blocks += x.Blocks
	r.Records += x.Records
	r.Bytes += x.Bytes
}

// IsGone reports whether a put failed because a block that it rests on went meanwhile: it was deleted, evicted, or a longer one took its
// place. It is to be begun anew; what was stored until then is found.
func IsGone(err error) bool {
	var missing *kv.NotStoredError
	return errors.As(err, &missing) && missing.Reason.Code == kv.Gone
}

// Put is one put under way. Not safe for concurrent use.
type Put struct {
	Result Result
	Chain  *kv.Chain // of the part of the prompt that has rows

	store   *Store
	model   Model
	extends *lease.Held // nil for a put that extends no match
	rows    kv.Rows
	options Options
	created int64 // when the put began, in Unix seconds

	prompt   kv.Prompt          // the part of the prompt that has rows
	cover    []coverage         // by group
	had      int                // leading blocks that were stored when it began
	pin      lease.Pin          // on the deepest block that this put rests on
	coming   lease.Pin          // on the next one, while it is published
	left     []kv.Key           // marked as leaving: partial blocks that it takes the place of
	below    []kv.Key           // their parents
	lent     []kv.Key           // blocks that must still be stored when what is planned is published
	lentPins []*lease.Pin       // on these
	met      map[index.Loc]bool // window records whose rows this put has looked at before it replaces them

	planned      []record // not yet written
	plannedBytes int64
	gated        bool          // holds the publish gate, and is at work
	batch        []index.Entry // written, not yet published
	batchBytes   int64
}

// New begins a put. extends is what a match holds that the prompt goes on from; it moves on with the put. nil: there is none.
func (s *Store) New(m Model, rows kv.Rows, extends *lease.Held, o Options) *Put {
	return &Put{store: s, model: m, rows: rows, extends: extends, options: o, created: index.SecondsOf(time.Now())}
}
