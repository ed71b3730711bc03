package engine

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

// Inside is an engine as the store's tests see it: steps of what it does, and its state. Rooms have insides of their own.
type Inside struct{ e *Engine }

// Inside is for tests.
func (e *Engine) Inside() Inside { return Inside{e} }

// Watcher is a file system that is told of each engine that is started on it: so a test gets that of its store.
type Watcher interface{ Started(e *Engine) }

func (i Inside) Workers() *read.Workers                    { return i.e.workers }
func (i Inside) Unsynced() bool                            { return i.e.unsynced() }
func (i Inside) Turn(ctx context.Context, tick bool) error { return i.e.turn(ctx, tick) }

// EvictBlocks evicts n blocks, or what there is, whoever is destroying something meanwhile.
func (i Inside) EvictBlocks(n int) (evicted int, err error) {
	for evicted < n {
		some, err := i.e.Evictor.Some(budget.Lack{Blocks: int64(n - evicted)})
		if err != nil || some == 0 {
			return evicted, err
		}
		evicted += some
	}
	return evicted, nil
}

// NewPut is a put that the caller runs step by step.
func (i Inside) NewPut(m *catalog.Model, rows kv.Rows, extends *lease.Held, o write.Options) *write.Put {
	return i.e.Puts.New(written(m), rows, extends, o)
}

// SetMaxHead changes the longest head of a log file until reset is called.
func SetMaxHead(n int) (reset func()) {
	was := maxHead
	maxHead = n
	return func() { maxHead = was }
}

// ThinStates is what a put does with Options.KeepStates.
func (i Inside) ThinStates(m *catalog.Model, p *kv.Prompt, keep int) error {
	return i.e.Puts.ThinStates(Searched(m), p, keep)
}
