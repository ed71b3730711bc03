package db

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/kv"
)

// Deleted says what a deletion took.
type Deleted struct {
	Blocks  int
	Records int
	Refs    int
	Bytes   int64

	Sessions int // files of DeleteScope; Bytes has their length, too
}

// Delete removes a prefix for good, and with it everything that was stored as its continuation: the block that holds
// the prefix's last token and all blocks below it, with the refs on them, and the refs to its continuations of which nothing is
// stored any more. It returns when that is durable. After the next Sync, which waits for no lease but says what remains, tokens and
// rows are in no file of the store, nor the names and metadata of those refs. After an error, [ErrIndexDamaged] among them, a part of it may be
// deleted: make the call again.
//
// What is not stored any more a ref knows by hashes alone ([kv.Trail]). So one to an evicted prompt that parts from the prefix only within
// its last 64th may go, too; none that continues it stays.
//
// Blocks before the one with the last token stay: other prompts may go on from them. The same tokens with other adapters, in another scope or of
// another model are other prefixes, and stay. To delete a whole conversation, whatever it was computed with, give its scope to DeleteScope.
func (m *Model) Delete(ctx context.Context, prefix kv.Prompt) (Deleted, error) {
	if err := prefix.Validate(); err != nil {
		return Deleted{}, err
	}
	e, err := m.enter(ctx)
	if err != nil {
		return Deleted{}, err
	}
	defer m.leave()
	took, err := e.Remover.Delete(ctx, m.ms, &prefix)
	return Deleted(took), m.s.checkIndex(err)
}

// DeleteScope removes everything that was stored for a scope, of every model, with all its refs and its session ([Store.OpenSession]), and
// returns when that is durable; the session's file is gone then. It goes last: after an error, or a crash, it may be there still, and the deletion is
// to be made again. An open [Session] of it answers ErrNotFound from now on. What
// scopes share (the blocks before their prompts' ScopeStart) stays: it is no scope's, and neither is a ref to a prefix that ends there, whatever
// its prompt's Scope and its metadata say. A scope without a name is an error.
func (s *Store) DeleteScope(ctx context.Context, scope string) (Deleted, error) {
	if scope == "" {
		return Deleted{}, errors.New("db: DeleteScope without the name of a scope")
	}
	e, err := s.enter(ctx)
	if err != nil {
		return Deleted{}, err
	}
	defer s.leave()
	took, err := e.Remover.DeleteScope(ctx, e.Hasher.Scope(scope))
	return Deleted(took), s.checkIndex(err)
}

// DeleteScopeID is [Store.DeleteScope] of a scope whose name nobody knows: by its id, as [Store.Sessions] and blocks have it.
func (s *Store) DeleteScopeID(ctx context.Context, id kv.ScopeID) (Deleted, error) {
	if id.IsShared() {
		return Deleted{}, errors.New("db: DeleteScopeID of what scopes share")
	}
	e, err := s.enter(ctx)
	if err != nil {
		return Deleted{}, err
	}
	defer s.leave()
	took, err := e.Remover.DeleteScope(ctx, id)
	return Deleted(took), s.checkIndex(err)
}
