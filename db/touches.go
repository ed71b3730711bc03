package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// touchLimit bounds the recency notes that wait for a writer; more are dropped.
const touchLimit = 1 << 14

// touch notes that a match ended in block k.
func (e *engine) touch(k kv.Key) {
	e.touchMu.Lock()
	defer e.touchMu.Unlock()
	if len(e.touched) < touchLimit {
		e.touched = append(e.touched, k)
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

func (e *engine) applyTouches(t *index.Txn, touched []kv.Key) error {
	for _, k := range touched {
		entry, ok, err := t.Get(k, 0)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		entry.Hits++
		if err := t.SetRank(k, e.rank(entry), entry.Hits); err != nil {
			return err
		}
	}
	return nil
}
