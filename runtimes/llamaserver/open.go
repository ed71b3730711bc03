package llamaserver

import (
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
)

// openError makes errors of all types fit into one atomic value.
type openError struct{ err error }

func stateOf(err error) openError { return openError{err} }

// openStore opens the store, and tries again as long as another process has it.
func (f *Front) openStore() {
	defer f.work.Done()
	said, first := "", sync.OnceFunc(func() { close(f.tried) })
	defer first()
	for f.ctx.Err() == nil {
		store, err := db.Open(f.ctx, f.o.Dir, f.o.DB)
		if err == nil {
			f.recall(store)
			f.db.Store(store)
			f.dbState.Store(stateOf(nil))
			f.log.Info("the store is open", "dir", f.o.Dir)
			f.sayRoom(store)
			f.again()
			first()
			f.keepTotalsOn()
			return
		}
		if f.ctx.Err() != nil {
			return
		}
		f.dbState.Store(stateOf(err))
		first()
		if said != err.Error() {
			said = err.Error()
			f.log.Warn("no store: requests pass until there is one", "dir", f.o.Dir, "err", err)
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// store is the store, or why there is none.
func (f *Front) store() (*db.Store, error) {
	if s := f.db.Load(); s != nil {
		return s, nil
	}
	return nil, f.dbState.Load().(openError).err
}
