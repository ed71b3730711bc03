package db

import (
	"context"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// unknownTokens is why nothing can be put below a large block: it cannot be read any more, and the index has hashes of its first
// tokens only.
type unknownTokens struct {
	key kv.Key
	loc index.Loc
	err error
}

func (u *unknownTokens) Error() string { return u.err.Error() }
func (u *unknownTokens) Unwrap() error { return u.err }

// makeWay removes the block that err names so, with all that hangs below it: no match goes beyond such a block, and whose it was
// cannot be told any more. It does nothing where a ref or a lease rests on one of them. It reports whether the block is gone.
func (e *engine) makeWay(ctx context.Context, err error) (bool, error) {
	var missing *NotStoredError
	var u *unknownTokens
	if !errors.As(err, &missing) || !errors.As(missing.Reason.Err, &u) {
		return false, nil
	}
	gone := false
	got, err := e.delete(ctx, func(t *index.Txn) ([]kv.Key, error) {
		x, ok, err := t.Get(u.key, 0)
		if gone = !ok || x.Loc != u.loc; err != nil || gone || x.Flags&index.FlagDamaged == 0 {
			return nil, err
		}
		all, err := below(t, u.key)
		if err != nil || slices.ContainsFunc(all, e.needed) {
			return nil, err
		}
		return []kv.Key{u.key}, nil
	}, func(Ref) bool { return false })
	if got.Blocks > 0 {
		e.log.Warn("blocks below one that cannot be read were removed", "block", u.key.String(), "blocks", got.Blocks, "bytes", got.Bytes)
		gone = true
	}
	return gone && err == nil, err
}

// needed reports whether a ref or a lease rests on block k.
func (e *engine) needed(k kv.Key) bool {
	e.stateMu.RLock()
	named := e.state.blocks[k] > 0
	e.stateMu.RUnlock()
	if named {
		return true
	}
	e.pinMu.Lock()
	defer e.pinMu.Unlock()
	return e.pinned[k] > 0
}
