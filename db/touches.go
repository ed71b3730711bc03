package db

import (
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// touchLimit bounds the recency notes that wait for a writer; more are dropped.
const touchLimit = 1 << 14

// touch is a note that a match ended in a block.
type touch struct {
	key    kv.Key
	minute uint32
}

// minute is the time, as the index keeps it. A variable for tests.
var minute = func() uint32 { return uint32(time.Now().Unix() / 60) }

// touch notes that a match ended in block k.
func (e *engine) touch(k kv.Key) {
	e.touchMu.Lock()
	defer e.touchMu.Unlock()
	if len(e.touched) < touchLimit {
		e.touched = append(e.touched, touch{k, minute()})
	}
}

// touching is an Update of the index that first ranks the touched blocks anew, in the order in which they were touched.
func (e *engine) touching(fn func(t *index.Txn) error) error {
	e.touchMu.Lock()
	touched := e.touched
	e.touched = nil
	e.touchMu.Unlock()
	err := e.ix.Update(func(t *index.Txn) error {
		if err := e.applyTouches(t, touched); err != nil {
			return err
		}
		return fn(t)
	})
	if err != nil && len(touched) > 0 { // nothing was changed: they wait for the next one
		e.touchMu.Lock()
		touched = append(touched, e.touched...)
		e.touched = touched[:min(len(touched), touchLimit)]
		e.touchMu.Unlock()
	}
	return err
}

func (e *engine) applyTouches(t *index.Txn, touched []touch) error {
	for _, x := range touched {
		entry, ok, err := t.Get(x.key, 0)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		entry.Hits++
		if err := t.Use(x.key, e.rank(entry), entry.Hits, x.minute); err != nil {
			return err
		}
	}
	return nil
}
