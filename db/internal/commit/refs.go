package commit

import (
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
)

// ErrNotFound says that there is no such ref or model.
var ErrNotFound = errors.New("not found")

// ErrRefGone says that what a ref was to name was deleted or moved meanwhile.
var ErrRefGone = errors.New("deleted or moved meanwhile")

// SetRef makes ref known, if what a lookup found is still stored: a Delete takes what is pinned, too, and a put that comes next may
// bring back the block without the state that it had. It returns when the mode's promise holds.
func (l *Ledger) SetRef(ref oplog.Ref, found *prefix.Lookup) error {
	lsn, err := l.setRef(ref, found)
	if err != nil {
		return err
	}
	return l.Durable(lsn)
}

func (l *Ledger) setRef(ref oplog.Ref, found *prefix.Lookup) (lsn uint64, err error) {
	c, err := l.Begin()
	if err != nil {
		return 0, err
	}
	defer c.End()
	stored, err := found.StillIn(&c.Index.View, ref.Block)
	if err != nil {
		return 0, err
	}
	if !stored {
		return 0, ErrRefGone
	}
	if err := l.Catalog.RefFits(ref); err != nil { // others may have come meanwhile
		return 0, err
	}
	old, had := l.Catalog.Ref(ref.Name)
	if lsn, err = c.LogState(ref); err != nil {
		return 0, err
	}
	if err := c.Rerank(ref.Block); err != nil {
		return lsn, err
	}
	if had && old.Block != ref.Block {
		if err := c.Rerank(old.Block); err != nil {
			return lsn, err
		}
	}
	return lsn, c.Publish()
}

// DropRef drops a ref; if expired is set only one whose time is over, and which nobody set anew meanwhile. It is not durable yet.
func (l *Ledger) DropRef(name string, expired bool) (lsn uint64, err error) {
	missing := fmt.Errorf("%w: ref %q", ErrNotFound, name)
	if _, ok := l.Catalog.Ref(name); !ok {
		return 0, missing
	}
	c, err := l.Begin()
	if err != nil {
		return 0, err
	}
	defer c.End()
	old, ok := l.Catalog.Ref(name)
	if !ok || expired && !old.Expired(time.Now()) {
		return 0, missing
	}
	if lsn, err = c.LogState(oplog.Unref{Name: name}); err != nil {
		return 0, err
	}
	if err := c.Rerank(old.Block); err != nil {
		return lsn, err
	}
	return lsn, c.Publish()
}

// ExpireRefs drops the refs whose time is over, and says how many these were. It does not wait for the disk: a ref that a power cut brings back has
// run out as before, Store.Ref does not give it, and the worker drops it again.
func (l *Ledger) ExpireRefs() (n int, err error) {
	for _, name := range l.Catalog.Expired(time.Now()) {
		if _, err := l.DropRef(name, true); err != nil && !errors.Is(err, ErrNotFound) {
			return n, err
		}
		n++
	}
	return n, nil
}

// DeleteRef drops a ref. Where an acknowledgement waits for the disk, it returns when that is durable, also where another call has dropped it.
func (l *Ledger) DeleteRef(name string) error {
	lsn, err := l.DropRef(name, false)
	switch {
	case err == nil:
		err = l.Durable(lsn)
	case l.Power:
		err = l.GoneForGood(err, l.WAL.Sync)
	}
	return err
}

// GoneForGood returns err, which may say that there is no such thing, when that is made durable: what took it, another call, may not be
// there yet.
func (l *Ledger) GoneForGood(err error, durable func(lsn uint64) error) error {
	if !errors.Is(err, ErrNotFound) || l.ReadOnly() {
		return err
	}
	if serr := durable(l.WAL.LastLSN()); serr != nil {
		return serr
	}
	return err
}

// Rerank is a change of its own that ranks a block anew after its refs changed.
func (l *Ledger) Rerank(k kv.Key) error {
	c, err := l.Begin()
	if err != nil {
		return err
	}
	defer c.End()
	if err := c.Rerank(k); err != nil {
		return err
	}
	return c.Publish()
}
