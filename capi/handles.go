//go:build cgo

package main

import (
	"sync"

	"github.com/dormousekv/dormouse/db"
)

// handles are the numbers that C programs hold. A number is never used twice.
var handles = struct {
	sync.RWMutex
	next uint64
	of   map[uint64]any // *store, *model or *match
}{next: 1, of: map[uint64]any{}}

type store struct {
	db *db.Store
}

type model struct {
	*db.Model
	store *store
}

type match struct {
	*db.Match
	model *model
}

func newHandle(v any) uint64 {
	handles.Lock()
	defer handles.Unlock()
	id := handles.next
	handles.next++
	handles.of[id] = v
	return id
}

// of is what a handle stands for.
func of[T any](id uint64) (T, error) {
	handles.RLock()
	defer handles.RUnlock()
	v, ok := handles.of[id].(T)
	if !ok {
		return v, errHandle
	}
	return v, nil
}

func drop(id uint64) {
	handles.Lock()
	defer handles.Unlock()
	delete(handles.of, id)
}

// dropModels forgets the models of a store that was closed.
func dropModels(s *store) {
	handles.Lock()
	defer handles.Unlock()
	for id, v := range handles.of {
		if m, ok := v.(*model); ok && m.store == s {
			delete(handles.of, id)
		}
	}
}
