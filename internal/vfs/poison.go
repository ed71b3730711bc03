package vfs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Poison is the error that ends all writing to a file, or to all files of a kind: that of an fsync that has failed, say.
type Poison struct {
	once sync.Once
	err  atomic.Pointer[error]
}

// Set makes err what Err returns, as an [ErrPoisoned], and returns that; the first one stays. It is told before anybody hears of it and ends
// the process for it: whoever sets another one meanwhile waits.
func (p *Poison) Set(err error, tell func(err error)) error {
	p.once.Do(func() {
		if !errors.Is(err, ErrPoisoned) {
			err = fmt.Errorf("%w: %w", ErrPoisoned, err)
		}
		tell(err)
		p.err.Store(&err)
	})
	return p.Err()
}

// Err returns the error that every write returns, or nil.
func (p *Poison) Err() error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}
