package db

import (
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
)

// pin keeps blocks, and with them every block before them, from being evicted. It fails, and pins none, if one is on
// its way out.
func (e *engine) pin(keys ...kv.Key) bool {
	e.pinMu.Lock()
	defer e.pinMu.Unlock()
	for _, k := range keys {
		if _, out := e.evicting[k]; out {
			return false
		}
	}
	for _, k := range keys {
		e.pinned[k]++
	}
	return true
}

func (e *engine) unpin(keys ...kv.Key) {
	e.pinMu.Lock()
	defer e.pinMu.Unlock()
	for _, k := range keys {
		if e.pinned[k]--; e.pinned[k] <= 0 {
			delete(e.pinned, k)
		}
	}
}

// endEvicting says that blocks which were being evicted are gone, or stay.
func (e *engine) endEvicting(keys []kv.Key) {
	if len(keys) == 0 {
		return
	}
	e.pinMu.Lock()
	defer e.pinMu.Unlock()
	for _, k := range keys {
		if e.evicting[k]--; e.evicting[k] <= 0 {
			delete(e.evicting, k)
		}
	}
	e.evicted.Add(1)
}

// pinFound is pin of the blocks on which rests what a lookup found, before which evicted was since. A block of which something was
// evicted in between, a state perhaps, is pinned by nobody.
func (e *engine) pinFound(since uint64, found *prefix.Lookup, rests ...kv.Key) bool {
	if !e.pin(rests...) {
		return false
	}
	if e.evicted.Load() == since {
		return true
	}
	v := e.view()
	defer v.Release()
	for _, k := range rests {
		if ok, err := found.StillIn(v, k); err != nil || !ok {
			e.unpin(rests...)
			return false
		}
	}
	return true
}
