package db

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Deleted says what a deletion took.
type Deleted struct {
	Blocks  int
	Records int
	Refs    int
	Bytes   int64
}

// Delete removes a prefix for good, and with it everything that was stored as its continuation: the block that holds
// the prefix's last token and all blocks below it, with the refs on them, and the refs to its continuations of which nothing is
// stored any more. It returns when that is durable. After the next Sync, which waits for no lease but says what remains, tokens and
// rows are in no file of the store, nor the names and metadata of those refs.
//
// What is not stored any more a ref knows by hashes alone ([kv.Trail]). So one to an evicted prompt that parts from the prefix only within
// its last 64th may go, too; none that continues it stays.
//
// Blocks before the one with the last token stay: other prompts may go on from them. To delete a whole conversation, give
// its scope to DeleteScope.
func (m *Model) Delete(ctx context.Context, prefix kv.Prompt) (Deleted, error) {
	var out Deleted
	err := m.s.onIndex(ctx, func() (err error) {
		out, err = m.deleteOnce(ctx, prefix)
		return err
	})
	return out, err
}

func (m *Model) deleteOnce(ctx context.Context, prefix kv.Prompt) (Deleted, error) {
	if err := prefix.Validate(); err != nil {
		return Deleted{}, err
	}
	e, err := m.enter()
	if err != nil {
		return Deleted{}, err
	}
	defer m.s.leave()
	return e.delete(ctx, func(t *index.Txn) ([]kv.Key, error) { return m.holding(e, t, &prefix) }, e.below(m.ms.Fingerprint, &prefix))
}

// below returns what tells the refs to a prompt that begins with prefix, of which nothing may be stored any more.
func (e *engine) below(fp kv.Fingerprint, prefix *kv.Prompt) func(*oplog.Ref) bool {
	n := len(prefix.Tokens)
	trail := sync.OnceValue(func() kv.Trail { return e.hasher.Trail(fp, prefix) })
	return func(r *oplog.Ref) bool {
		return r.Model == fp && n > 0 && (!r.Trail.Whole(r.Tokens) || trail().Begins(n, r.Trail, r.Tokens))
	}
}

// holding returns the blocks that hold the prompt's last token, after the same prefix: the block of the chain itself, and
// every stored block that goes on differently after it.
func (m *Model) holding(e *engine, t *index.Txn, p *kv.Prompt) ([]kv.Key, error) {
	chain := e.hasher.Chain(m.ms.Fingerprint, m.ms.Desc.BlockTokens, p)
	n := len(p.Tokens)
	if n == 0 {
		return nil, nil
	}
	last := chain.Len() - 1
	start, _ := chain.Block(last)
	hashes := e.hasher.AppendTokenHashes(nil, p, start, n)
	var keys []kv.Key
	err := t.ChildrenLike(chain.Parent(last), chain.Scope(last), hashes, func(k kv.Key) bool {
		keys = append(keys, k)
		return true
	})
	if err != nil {
		return nil, err
	}
	// Two bytes a token are a hint: compare the tokens.
	var failed error
	keys = slices.DeleteFunc(keys, func(k kv.Key) bool {
		entry, ok, err := t.Get(k, 0)
		if err != nil || !ok {
			failed = errors.Join(failed, err) // what is not known to be gone is not deleted
			return true
		}
		shared, err := e.search.SharedTokens(p, entry)
		if read.Passing(err) { // it may be another prompt's
			failed = errors.Join(failed, err)
		}
		return err == nil && start+shared < n
	})
	return keys, failed
}

// DeleteScope removes everything that was stored for a scope, of every model, with all its refs, and returns when that is durable. What
// scopes share (the blocks before their prompts' ScopeStart) stays.
func (s *Store) DeleteScope(ctx context.Context, scope string) (Deleted, error) {
	var out Deleted
	err := s.onIndex(ctx, func() (err error) {
		out, err = s.deleteScopeOnce(ctx, scope)
		return err
	})
	return out, err
}

func (s *Store) deleteScopeOnce(ctx context.Context, scope string) (Deleted, error) {
	e, err := s.enter()
	if err != nil {
		return Deleted{}, err
	}
	defer s.leave()
	id := e.hasher.Scope(scope)
	if id.IsShared() {
		return Deleted{}, nil
	}
	return e.delete(ctx, func(t *index.Txn) (keys []kv.Key, err error) {
		err = t.ScopeRoots(id, func(k kv.Key) bool {
			keys = append(keys, k)
			return true
		})
		return keys, err
	}, func(r *oplog.Ref) bool { return !r.Trail.Whole(r.Tokens) || r.Trail.Scope() == id })
}

// removeBatch bounds the records that one log frame removes: a frame has a largest size, and so has the list of what waits to
// be destroyed, which every log file repeats. A variable for tests.
var removeBatch = 1 << 19

// delete removes the subtrees of the blocks that pick names, with the refs on them and those to what is not stored any more that named
// says yes to, and makes that durable: as one frame, or where they are very large as several, the deepest blocks first.
func (e *engine) delete(ctx context.Context, pick func(t *index.Txn) ([]kv.Key, error), named func(*oplog.Ref) bool) (Deleted, error) {
	if err := e.poisoned(); err != nil {
		return Deleted{}, err
	}
	var out Deleted
	for {
		lsn, more, err := e.deleteSome(pick, named, &out)
		if err != nil {
			return out, err
		}
		if lsn == 0 { // what took it, another deletion or an eviction, may not be durable yet
			return out, e.barrier(e.wal.LastLSN())
		}
		if err := e.barrier(lsn); err != nil {
			return out, err
		}
		if err := e.reclaim(ctx); err != nil || !more {
			return out, err
		}
	}
}

// deleteSome is one frame of delete; more says that something is left.
func (e *engine) deleteSome(pick func(t *index.Txn) ([]kv.Key, error), named func(*oplog.Ref) bool, out *Deleted) (lsn uint64, more bool, err error) {
	var took Deleted
	op := oplog.Remove{Deleted: true}
	e.logMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	defer e.logMu.Unlock()
	lsn, err = e.commitBoth(func(t *index.Txn) (oplog.Op, error) {
		roots, err := pick(t)
		if err != nil {
			return nil, err
		}
		for _, k := range roots {
			if more, err = e.removeSubtree(t, k, &op, &took); err != nil {
				return nil, err
			}
			if more {
				break
			}
		}
		if op.Refs, err = e.refsOf(t, op.Dead, named); err != nil || len(op.Dead) == 0 && len(op.Refs) == 0 {
			return nil, err
		}
		op.Seq = e.birth.Load()
		return op, nil
	})
	if err != nil || lsn == 0 {
		return 0, false, err
	}
	e.bloomRemoved(int64(took.Blocks))
	e.count.deleted.Add(int64(took.Blocks))
	out.Blocks += took.Blocks
	out.Bytes += took.Bytes
	out.Records += len(op.Dead)
	out.Refs += len(op.Refs)
	return lsn, more, nil
}

// refsOf returns the names of the refs on blocks that are dead, and of those that named says yes to whose block is not stored. The caller
// holds logMu.
func (e *engine) refsOf(t *index.Txn, dead []oplog.Dead, named func(*oplog.Ref) bool) ([]string, error) {
	gone := map[kv.Key]bool{}
	for _, d := range dead {
		gone[d.Key] = true
	}
	return e.catalog.RefsWhere(func(r *oplog.Ref) (bool, error) {
		if gone[r.Block] {
			return true, nil
		}
		if !named(r) {
			return false, nil
		}
		_, stored, err := t.Get(r.Block, 0) // then it says itself whether it goes
		return !stored, err
	})
}

// removeSubtree removes block k and everything below it, deepest first; more says that op is full before that is done.
func (e *engine) removeSubtree(t *index.Txn, k kv.Key, op *oplog.Remove, out *Deleted) (more bool, err error) {
	order, err := recovery.Below(t, k)
	if err != nil {
		return false, err
	}
	for _, k := range slices.Backward(order) {
		if len(op.Dead) >= removeBatch {
			return true, nil
		}
		block, ok, err := t.Get(k, 0)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		dead, bytes, err := e.removeBlock(t, block)
		if err != nil {
			return false, err
		}
		op.Dead = append(op.Dead, dead...)
		out.Blocks++
		out.Bytes += bytes
	}
	return false, nil
}
