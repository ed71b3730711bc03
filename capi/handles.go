//go:build cgo

package main

/*
void dormouse_shim_lock(int fd, int locked);
*/
import "C"

import (
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/vfs"
)

func init() {
	vfs.OnLock = func(fd uintptr, locked bool) {
		on := C.int(0)
		if locked {
			on = 1
		}
		C.dormouse_shim_lock(C.int(fd), on)
	}
}

// handles are the numbers that C programs hold. A number is never used twice.
var handles = struct {
	sync.RWMutex
	next uint64
	of   map[uint64]any // *store, *model, *match or *session
}{next: 1, of: map[uint64]any{}}

type store struct {
	db      *db.Store
	closes  sync.Mutex // held by the call that closes it: another one waits
	closing bool       // guarded by handles: nobody attaches a context any more
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

// attaching makes the session of an open store with which a call is at work, namely the one that attaches.
func attaching(open uint64) (*session, uint64, error) {
	handles.Lock()
	defer handles.Unlock()
	s, ok := handles.of[open].(*store)
	if !ok {
		return nil, 0, errHandle
	}
	if s.closing {
		return nil, 0, errBusy
	}
	v := &session{store: s}
	v.busy.Lock()
	id := handles.next
	handles.next++
	handles.of[id] = v
	return v, id, nil
}

// hold keeps calls away from a store's contexts of llama.cpp, until what it returns is called. It fails if one is at work. The caller holds s.closes.
func hold(s *store) (release func(), err error) {
	handles.Lock()
	defer handles.Unlock()
	var held []*session
	release = func() {
		for _, v := range held {
			v.busy.Unlock()
		}
		handles.Lock()
		s.closing = false
		handles.Unlock()
	}
	for _, v := range handles.of {
		v, ok := v.(*session)
		if !ok || v.store != s {
			continue
		}
		if !v.busy.TryLock() {
			for _, v := range held {
				v.busy.Unlock()
			}
			return nil, errBusy
		}
		held = append(held, v)
	}
	s.closing = true
	return release, nil
}

// dropAllOf forgets what belongs to a store that was closed: models, and contexts of llama.cpp.
func dropAllOf(s *store) {
	handles.Lock()
	defer handles.Unlock()
	for id, v := range handles.of {
		switch v := v.(type) {
		case *model:
			if v.store == s {
				delete(handles.of, id)
			}
		case *session:
			if v.store == s {
				delete(handles.of, id)
			}
		}
	}
}
