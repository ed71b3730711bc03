package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// MaxRefMeta is the most metadata that a ref carries, in bytes.
const MaxRefMeta = 4 << 10

// MaxRefName is the longest name of a ref, in bytes.
const MaxRefName = 1 << 10

// Ref is a name on a prefix: a pin, a session, a bookmark.
type Ref struct {
	Name     string
	Model    kv.Fingerprint
	Block    kv.Key // the stored block that holds the prefix's last token
	Tokens   int    // length of the prefix
	Pinned   bool
	Priority uint8
	Expires  time.Time // zero: never
	Set      time.Time
	Meta     []byte // the caller's, at most MaxRefMeta bytes
	// Trail tells deletions what the prefix was, though nothing of it is stored any more. Not whole: an older build set the ref.
	Trail kv.Trail
}

// RefOptions say what a ref does.
type RefOptions struct {
	Pinned   bool          // the prefix is never evicted; Delete and Retire still take it
	Priority uint8         // 1 to 254: evicted after everything of a lower priority
	TTL      time.Duration // 0: for ever
	Meta     []byte        // the caller's, at most MaxRefMeta bytes
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o RefOptions) Validate() error {
	switch {
	case o.Priority == catalog.ClassPinned:
		return fmt.Errorf("db: RefOptions.Priority is %d: expected at most %d", o.Priority, catalog.ClassPinned-1)
	case o.TTL < 0:
		return fmt.Errorf("db: RefOptions.TTL is %v: expected a time to live, or 0 for no end", o.TTL)
	case len(o.Meta) > MaxRefMeta:
		return fmt.Errorf("%w: RefOptions.Meta is of %d bytes: expected at most %d", ErrLimit, len(o.Meta), MaxRefMeta)
	}
	return nil
}

// SetRef puts name on a prefix of this model, in the place of an older ref of that name. Setting it twice is the same
// as once. The whole prefix must be stored: else a [*NotStoredError] says up to where it is. ErrNoSpace if the budget has no room
// for the ref, and nothing can be evicted for it.
func (m *Model) SetRef(ctx context.Context, name string, prefix kv.Prompt, o RefOptions) error {
	switch {
	case name == "" || len(name) > MaxRefName:
		return fmt.Errorf("%w: ref name of %d bytes: 1 to %d", ErrLimit, len(name), MaxRefName)
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if n := len(prefix.Tokens); n < kv.OpeningTokens {
		return fmt.Errorf("db: ref to a prefix of %d tokens, at least %d", n, kv.OpeningTokens)
	}
	if err := prefix.Validate(); err != nil {
		return err
	}
	for {
		// What was found may go, or move, while other blocks hold the prefix, too: then the next one is named.
		if err := m.setRef(ctx, name, prefix, o); !errors.Is(err, errRefGone) {
			return err
		}
	}
}

// errRefGone says that what a ref was to name was deleted or moved meanwhile.
var errRefGone = errors.New("deleted or moved meanwhile")

func (m *Model) setRef(ctx context.Context, name string, prefix kv.Prompt, o RefOptions) error {
	return m.s.onIndex(ctx, func() error {
		e, err := m.enter()
		if err != nil {
			return err
		}
		defer m.s.leave()
		return e.insist(ctx, func() error { return m.setRefOnce(ctx, e, name, prefix, o) })
	})
}

func (m *Model) setRefOnce(ctx context.Context, e *engine, name string, prefix kv.Prompt, o RefOptions) error {
	x, err := m.whole(ctx, e, prefix)
	if err != nil {
		return err
	}
	defer func() { x.Close() }()
	ref := Ref{
		Name: name, Model: m.ms.Fingerprint, Tokens: len(prefix.Tokens),
		Pinned: o.Pinned, Priority: o.Priority, Set: time.Now().UTC().Round(0), Meta: slices.Clone(o.Meta),
		Trail: e.hasher.Trail(m.ms.Fingerprint, &prefix),
	}
	if o.TTL > 0 {
		ref.Expires = ref.Set.Add(o.TTL)
	}
	if err := e.catalog.RefFits(ref.op()); err != nil { // before room is made for it
		return err
	}
	if err := e.boundState(ctx); err != nil {
		return err
	}
	room, ok := e.reserveRef(ref)
	if !ok {
		x.Close() // its lease would keep what has to go
		if err := e.makeRoom(ctx, room, 0); err != nil {
			return err
		}
		again, err := m.whole(ctx, e, prefix) // or a part of it went
		if err != nil {
			e.space.giveUp(room, 0)
			return err
		}
		x = again
	}
	defer e.space.giveUp(room, 0)
	ref.Block = x.held.Rests[len(x.held.Rests)-1]
	lsn, err := e.logRef(ref, x.held.Found)
	if err != nil {
		return err
	}
	return e.durable(lsn)
}

// whole matches all of a prefix of this model.
func (m *Model) whole(ctx context.Context, e *engine, prefix kv.Prompt) (*Match, error) {
	x, err := m.match(ctx, e, prefix, MatchOptions{})
	if err != nil {
		return nil, err
	}
	if n := len(prefix.Tokens); x.tokens < n {
		x.Close()
		return nil, &NotStoredError{Stored: x.tokens, Needed: n, Reason: x.reason}
	}
	return x, nil
}

// logRef makes ref known, if what a lookup found is still stored: a Delete takes what is pinned, too, and a put that comes next may
// bring back the block without the state that it had. No checkpoint comes between the frame and the ranks that follow from it.
func (e *engine) logRef(ref Ref, found *prefix.Lookup) (lsn uint64, err error) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	v := e.view()
	stored, err := found.StillIn(v, ref.Block)
	v.Release()
	if err != nil {
		return 0, err
	}
	if !stored {
		return 0, errRefGone
	}
	if err := e.catalog.RefFits(ref.op()); err != nil { // others may have come meanwhile
		return 0, err
	}
	old, had := e.catalog.Ref(ref.Name)
	lsn, err = e.logStateLocked(ref.op())
	if err != nil {
		return 0, err
	}
	if had && old.Block != ref.Block {
		return lsn, e.reclassLocked(ref.Block, old.Block)
	}
	return lsn, e.reclassLocked(ref.Block)
}

// op is the ref as the log says it.
func (r Ref) op() oplog.Ref {
	return oplog.Ref{
		Name: r.Name, Model: r.Model, Block: r.Block, Tokens: r.Tokens, Pinned: r.Pinned, Priority: r.Priority,
		Expires: r.Expires, Set: r.Set, Meta: slices.Clone(r.Meta), Trail: r.Trail,
	}
}

func refOf(r oplog.Ref) Ref {
	return Ref{
		Name: r.Name, Model: r.Model, Block: r.Block, Tokens: r.Tokens, Pinned: r.Pinned, Priority: r.Priority,
		Expires: r.Expires, Set: r.Set, Meta: slices.Clone(r.Meta), Trail: r.Trail,
	}
}

// reserveRef reserves what a ref takes, if there is room without evicting: in the log, in the head of the next log file and in the index.
func (e *engine) reserveRef(r Ref) (bytes int64, ok bool) {
	bytes = 3 * r.op().Bytes()
	if old, ok := e.catalog.Ref(r.Name); ok {
		bytes = max(bytes-2*old.Bytes(), r.op().Bytes()) // its copies go when this one's come
	}
	e.measureOnce()
	return bytes, e.space.reserve(bytes, e.o.Budget-e.reserveBytes())
}

// DeleteRef takes a name off its prefix, which stays stored. ErrNotFound if there is no such name.
func (s *Store) DeleteRef(ctx context.Context, name string) error {
	tried := false
	return s.onIndex(ctx, func() error {
		err := s.deleteRefOnce(ctx, name)
		if tried && errors.Is(err, ErrNotFound) {
			return nil // the try that met the damage had logged it
		}
		tried = true
		return err
	})
}

func (s *Store) deleteRefOnce(ctx context.Context, name string) error {
	e, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	if err = e.dropRef(name, false); e.o.Durability == Power {
		err = e.goneForGood(err, e.wal.Sync)
	}
	return err
}

// dropRef drops a ref; if expired is set only one whose time is over, and which nobody set anew meanwhile.
func (e *engine) dropRef(name string, expired bool) error {
	e.logMu.Lock()
	old, ok := e.catalog.Ref(name)
	if !ok || expired && !old.Expired(time.Now()) {
		e.logMu.Unlock()
		return fmt.Errorf("%w: ref %q", ErrNotFound, name)
	}
	lsn, err := e.logStateLocked(oplog.Unref{Name: name})
	if err == nil {
		err = e.reclassLocked(old.Block)
	}
	e.logMu.Unlock()
	if err != nil {
		return err
	}
	return e.durable(lsn)
}

// reclass ranks a block anew after its refs changed.
func (e *engine) reclass(k kv.Key) error {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	return e.reclassLocked(k)
}

func (e *engine) reclassLocked(keys ...kv.Key) error {
	_, err := e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		for _, k := range keys {
			if err := recovery.Rerank(t, e.catalog, k); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return err
}

// Ref returns the ref of that name. ErrNotFound if there is none.
func (s *Store) Ref(name string) (Ref, error) {
	e, err := s.enter()
	if err != nil {
		return Ref{}, err
	}
	defer s.leave()
	r, ok := e.catalog.Ref(name)
	if !ok || r.Expired(time.Now()) {
		return Ref{}, fmt.Errorf("%w: ref %q", ErrNotFound, name)
	}
	return refOf(r), nil
}

func (s *Store) refs() (out []Ref, err error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	for _, r := range e.catalog.Refs() {
		out = append(out, refOf(r))
	}
	return out, nil
}
