package filter

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// Plan says whether the filter's file may be used, and what it must cover: all that the log does not repeat.
type Plan struct {
	Usable      bool
	Fresh       bool // the log holds all there ever was, if it begins with the first frame
	First, Last uint64
}

// load reads the filter when the store is already in use. Its file is the only one whose size an Open would have to wait for; reading it beside Open
// made some Opens ten times as long on two processors. Until it is there, every key may be held, and the index answers.
type load struct {
	plan Plan
	once sync.Once
	done chan struct{} // closed when loading is over
}

func newLoad() *load { return &load{done: make(chan struct{})} }

// Start begins to read the file.
func (f *Filter) Start() {
	f.load.once.Do(func() {
		go func() {
			b := f.read(f.load.plan)
			f.pending.end(f, b)
			close(f.load.done)
			if b == nil {
				f.o.Wake()
			}
		}()
	})
}

// Wait returns when the filter is there, or known not to be usable.
func (f *Filter) Wait() {
	f.Start()
	<-f.load.done
}

// Drop gives the filter up, if nobody has begun to read it, or waits for it.
func (f *Filter) Drop() {
	f.load.once.Do(func() { close(f.load.done) })
	<-f.load.done
}

// read returns the filter, or nil if it must be built anew.
func (f *Filter) read(plan Plan) *index.Bloom {
	b, lsn, err := index.ReadBloom(f.o.FS, f.o.Path, f.o.UUID)
	switch {
	case errors.Is(err, index.ErrMissing) && plan.Fresh && plan.First <= 1:
		return index.NewBloom(minKeys, f.o.FPR) // replay fills it
	case err != nil:
		f.o.Logger.Info("Bloom filter will be rebuilt", "dir", f.o.Dir, "why", err)
	case lsn+1 < plan.First || lsn > plan.Last:
		f.o.Logger.Info("Bloom filter will be rebuilt", "dir", f.o.Dir, "why", "it is of another generation than the log")
	default:
		f.fileLSN.Store(lsn)
		return b
	}
	return nil
}

// Pending are the keys that are put while a filter is read or built: it gets them last.
type Pending struct {
	on   atomic.Bool // a filter is being read or built
	mu   lock.Mutex[lock.PendingKeys]
	keys []kv.Key // guarded by mu
}

// NewPending returns the pending keys of a store that is being opened: it is not known yet whether the filter's file can be used.
func NewPending() *Pending {
	p := new(Pending)
	p.on.Store(true)
	return p
}

// Add keeps a key if there is a filter to come.
func (p *Pending) Add(k kv.Key) {
	if !p.on.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on.Load() {
		p.keys = append(p.keys, k)
	}
}

// end puts a filter to use, with the keys that are pending; nil for none.
func (p *Pending) end(f *Filter, b *index.Bloom) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b != nil {
		for _, k := range p.keys {
			b.Add(k)
		}
		f.current.Store(b)
	}
	p.keys = nil
	p.on.Store(false)
}
