package db

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/oplog"
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
	Stored   bool // the block is stored, and so is all that it continues
	// Used is when the ref's block was last put, or a match ended in it, to the minute ([Block.Used]); matches that went on behind it are
	// counted where they ended. Zero: not known, or the block is not stored any more.
	Used time.Time
	Meta []byte // the caller's, at most MaxRefMeta bytes
	// Trail tells deletions what the prefix was, though nothing of it is stored any more. Not whole: an older build set the ref.
	Trail kv.Trail
}

// Expired reports whether the ref's time is over.
func (r Ref) Expired(now time.Time) bool { return !r.Expires.IsZero() && r.Expires.Before(now) }

// RefOptions say what a ref does.
type RefOptions struct {
	Pinned   bool          // the prefix is never evicted; Delete and Retire still take it
	Priority uint8         // 1 to 254: evicted after everything of a lower priority
	TTL      time.Duration // of the ref, and not of what is stored; 0: for ever
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
	if name == "" || len(name) > MaxRefName {
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
		if err := m.setRefOnce(ctx, name, prefix, o); !errors.Is(err, engine.ErrRefGone) {
			return err
		}
	}
}

// setRefOnce is SetRef, or ErrRefGone.
func (m *Model) setRefOnce(ctx context.Context, name string, prefix kv.Prompt, o RefOptions) error {
	e, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer m.leave()
	retries := e.Space.Retries()
	for again := true; again; {
		again, err = retries.After(ctx, m.setRef(ctx, e, name, prefix, o))
	}
	return m.s.checkIndex(err)
}

func (m *Model) setRef(ctx context.Context, e *engine.Engine, name string, prefix kv.Prompt, o RefOptions) error {
	x, err := m.whole(ctx, e, prefix)
	if err != nil {
		return err
	}
	defer x.Close()
	ref := oplog.Ref{
		Name: name, Model: m.ms.Fingerprint, Tokens: len(prefix.Tokens),
		Pinned: o.Pinned, Priority: o.Priority, Set: time.Now().UTC().Round(0), Meta: slices.Clone(o.Meta),
		Trail: e.Hasher.Trail(m.ms.Fingerprint, &prefix),
	}
	if o.TTL > 0 {
		ref.Expires = ref.Set.Add(o.TTL)
	}
	if err := e.Catalog.RefFits(ref); err != nil { // before room is made for it
		return err
	}
	if err := e.Space.BoundState(ctx); err != nil {
		return err
	}
	room := 3 * ref.Bytes() // in the log, in the head of its next file and in the index
	if old, ok := e.Catalog.Ref(name); ok {
		room = max(room-2*old.Bytes(), ref.Bytes()) // its copies go when this one's come
	}
	if err := e.Space.ReserveState(ctx, room); err != nil { // what the ref is to name stays: the match is open
		return err
	}
	defer e.Budget.GiveUp(room, 0)
	ref.Block = x.held.Rests[len(x.held.Rests)-1]
	return e.Ledger.SetRef(ref, x.held.Found)
}

// whole matches all of a prefix of this model.
func (m *Model) whole(ctx context.Context, e *engine.Engine, prefix kv.Prompt) (*Match, error) {
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

func refOf(r oplog.Ref) Ref {
	return Ref{
		Name: r.Name, Model: r.Model, Block: r.Block, Tokens: r.Tokens, Pinned: r.Pinned, Priority: r.Priority,
		Expires: r.Expires, Set: r.Set, Meta: slices.Clone(r.Meta), Trail: r.Trail,
	}
}

// DeleteRef takes a name off its prefix, which stays stored. ErrNotFound if there is no such name. After [ErrIndexDamaged] the name may be gone: call
// it again, and take ErrNotFound for success.
func (s *Store) DeleteRef(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	return s.checkIndex(e.Ledger.DeleteRef(name))
}

// Ref returns the ref of that name. ErrNotFound if there is none.
func (s *Store) Ref(name string) (Ref, error) {
	e, err := s.enter(context.Background())
	if err != nil {
		return Ref{}, err
	}
	defer s.leave()
	r, ok := e.Catalog.Ref(name)
	if !ok || r.Expired(time.Now()) {
		return Ref{}, fmt.Errorf("%w: ref %q", ErrNotFound, name)
	}
	return s.usedRefs(e, []oplog.Ref{r})[0], nil
}

// Refs lists all refs by name, with those whose time is over until they are dropped ([Ref.Expired]).
func (s *Store) Refs() iter.Seq2[Ref, error] { return listed(s.refs) }

func (s *Store) refs() ([]Ref, error) {
	e, err := s.enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer s.leave()
	return s.usedRefs(e, e.Catalog.Refs()), nil
}

// usedRefs are refs with the times of their blocks. Where the index is damaged, these are not known, and it is rebuilt.
func (s *Store) usedRefs(e *engine.Engine, refs []oplog.Ref) (out []Ref) {
	v := e.View()
	defer v.Release()
	for _, r := range refs {
		ref := refOf(r)
		x, ok, err := v.Get(r.Block, 0)
		if engine.IsIndexDamage(err) {
			s.indexDamaged(err)
		}
		ref.Stored, ref.Used = ok && err == nil, timeOf(60*int64(x.Used))
		out = append(out, ref)
	}
	return out
}
