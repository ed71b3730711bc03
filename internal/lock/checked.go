//go:build lockorder

package lock

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Checked says whether the order is checked.
const Checked = true

// Mutex is a [sync.Mutex] that panics when it is locked out of order.
type Mutex[P Place] struct{ mu sync.Mutex }

func (m *Mutex[P]) Lock() {
	taking[P](m)
	m.mu.Lock()
	took[P](m)
}

func (m *Mutex[P]) TryLock() bool { // never waits, so it may come in any order
	ok := m.mu.TryLock()
	if ok {
		took[P](m)
	}
	return ok
}

func (m *Mutex[P]) Unlock() {
	gave(m)
	m.mu.Unlock()
}

// RWMutex is a [sync.RWMutex] that panics when it is locked out of order.
type RWMutex[P Place] struct{ mu sync.RWMutex }

func (m *RWMutex[P]) Lock() {
	taking[P](m)
	m.mu.Lock()
	took[P](m)
}

func (m *RWMutex[P]) TryLock() bool {
	ok := m.mu.TryLock()
	if ok {
		took[P](m)
	}
	return ok
}

func (m *RWMutex[P]) Unlock() {
	gave(m)
	m.mu.Unlock()
}

func (m *RWMutex[P]) RLock() {
	taking[P](m)
	m.mu.RLock()
	took[P](m)
}

func (m *RWMutex[P]) TryRLock() bool {
	ok := m.mu.TryRLock()
	if ok {
		took[P](m)
	}
	return ok
}

func (m *RWMutex[P]) RUnlock() {
	gave(m)
	m.mu.RUnlock()
}

// held are the locks that each goroutine has, in the order in which it took them.
var held = struct {
	sync.Mutex
	by map[uint64][]taken
}{by: map[uint64][]taken{}}

type taken struct {
	lock any
	rank int
	name string
}

// taking panics if this goroutine has a lock that comes behind P, or one of the same place.
func taking[P Place](m any) {
	var p P
	who, rank := goroutine(), rankOf(p)
	held.Lock()
	defer held.Unlock()
	for _, t := range held.by[who] {
		if t.rank >= rank {
			panic(fmt.Sprintf("lock order: who has %s takes %s", t.name, Name(p)))
		}
	}
}

func took[P Place](m any) {
	var p P
	who := goroutine()
	held.Lock()
	defer held.Unlock()
	held.by[who] = append(held.by[who], taken{m, rankOf(p), Name(p)})
}

// gave forgets a lock, of whichever goroutine has it.
func gave(m any) {
	who := goroutine()
	held.Lock()
	defer held.Unlock()
	if drop(who, m) {
		return
	}
	for other := range held.by {
		if drop(other, m) {
			return
		}
	}
}

func drop(who uint64, m any) bool {
	all := held.by[who]
	for i, t := range slices.Backward(all) {
		if t.lock != m {
			continue
		}
		if all = slices.Delete(all, i, i+1); len(all) == 0 {
			delete(held.by, who)
		} else {
			held.by[who] = all
		}
		return true
	}
	return false
}

func rankOf(p Place) int {
	for i, x := range Order {
		if x.Place == p {
			return i
		}
	}
	panic("lock order: " + Name(p) + " is not in the table")
}

// goroutine is the number of the one that runs.
func goroutine() uint64 {
	var b [64]byte
	line := b[:runtime.Stack(b[:], false)]
	line, _ = bytes.CutPrefix(line, []byte("goroutine "))
	n, _ := strconv.ParseUint(string(line[:bytes.IndexByte(line, ' ')]), 10, 64)
	return n
}
