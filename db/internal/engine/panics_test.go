package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A panic that passes through a put and that the caller recovers from, a library's host say, leaves a store that can be used and closed.
func TestPanicInAPut(t *testing.T) {
	var armed atomic.Bool
	disk := storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "write" && strings.HasSuffix(c.Name, ".seg") && armed.CompareAndSwap(true, false) {
			panic("broken")
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	for n := range 4 {
		p := kv.Prompt{Tokens: crashtest.Tokens(n, 64*(1+n))}
		armed.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("nothing panicked")
				}
			}()
			m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{})
		}()
		storetest.Put(t, m, p)
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.Expect(t, m, p, len(p.Tokens))
	}
	storetest.OK(t, s.Close())
}

// An Open whose Progress panics leaves no lock.
func TestPanicInProgress(t *testing.T) {
	dir, o := t.TempDir(), storetest.Options()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.OK(t, putNth(t, m, 1))
	storetest.OK(t, s.Close())
	storetest.Remove(t, dir, "index.db")
	o.Progress = func(db.Progress) { panic("broken") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing panicked")
			}
		}()
		storetest.Open(t, dir, o)
	}()
	o.Progress = nil
	storetest.OK(t, storetest.Open(t, dir, o).Close())
}
