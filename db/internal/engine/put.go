package engine

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// PutOptions say how a put stores what it gets.
type PutOptions struct {
	Codec       quant.Codec
	Compression quant.Compression
	KeepStates  int // of each group with states, those at the deepest positions stay; 0: all
}

// putAttempts bounds how often a put starts over because a block that it rests on went meanwhile: it was deleted, evicted, or
// a longer one took its place. What was stored until then stays, and is found.
const putAttempts = 100

// Put stores the rows of a prompt, and makes room for them. extends is the match that it goes on from, or nil.
func (e *Engine) Put(ctx context.Context, m *catalog.Model, p *kv.Prompt, rows kv.Rows, extends *lease.Held, o PutOptions) (sum write.Result, err error) {
	start := time.Now()
	defer e.Ledger.PutBegins()()
	model := written(m)
	gone, retries := 0, e.Space.Retries()
	var last *write.Put // what it has stored stays while room is made for the rest
	for again := true; again; {
		w := e.Puts.New(model, rows, extends, write.Options{Codec: o.Codec, Compression: o.Compression})
		err = w.Run(ctx, p)
		sum.Add(w.Result)
		if last != nil {
			last.Release()
		}
		last = w
		if write.IsGone(err) && !errors.Is(err, vfs.ErrNoSpace) { // with both, it would evict again and again
			gone++
			again = gone < putAttempts
			last.Release()
			e.Ledger.Await() // whoever takes the block out
			continue
		}
		again, err = retries.After(ctx, err)
	}
	last.Release()
	if err == nil && o.KeepStates > 0 {
		err = e.Puts.ThinStates(model.Model, p, max(2, o.KeepStates))
	}
	e.Count.Put(sum.Records, sum.Reused, sum.Bytes, time.Since(start))
	e.maybeBackground()
	return sum, err
}

// Searched is a loaded model as searches and reads know it.
func Searched(m *catalog.Model) prefix.Model {
	return prefix.Model{Fingerprint: m.Fingerprint, Desc: &m.Desc, GroupTensors: m.GroupTensors}
}

// written is a loaded model as puts know it.
func written(m *catalog.Model) write.Model { return write.Model{Model: Searched(m), Entry: m} }
