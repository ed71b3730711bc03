package write

import (
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// ThinStates gives up states on the way of a prompt: of each StateAt group the first and the last keep-1 stay. Those that somebody else
// asked for stay, too: scopes share them, a ref names their block, an open match rests on it, or another prompt goes on from it. A partial
// block that was stored for its state alone goes with it. This is an eviction: nothing is lost but the time to compute it again.
func (s *Store) ThinStates(m prefix.Model, p *kv.Prompt, keep int) error {
	chain := s.Search.Hasher.Chain(m.Fingerprint, m.Desc.BlockTokens, p)
	for g, group := range m.Desc.Groups {
		if group.Kind != kv.StateAt {
			continue
		}
		way := stateWay{store: s, model: m, prompt: p, chain: chain, group: uint8(g)}
		v := s.Search.Index.View()
		states, err := way.states(v)
		v.Release()
		if err != nil {
			return err
		}
		if len(states) <= keep {
			continue
		}
		if err := way.thin(keep); err != nil {
			return err
		}
	}
	return nil
}

// stateWay is the way of a prompt, on which states of one group lie.
type stateWay struct {
	store  *Store
	model  prefix.Model
	prompt *kv.Prompt
	chain  *kv.Chain
	group  uint8
}

// wayState is a stored state on the way of a prompt.
type wayState struct {
	block int // of the chain: the one in which it ends
	at    int
	key   kv.Key
	entry index.Entry
}

// states lists the states, the first one first.
func (w *stateWay) states(v prefix.Reader) ([]wayState, error) {
	var out []wayState
	for i := range w.chain.Len() {
		_, end := w.chain.Block(i)
		at, err := prefix.StoredPrefixes(v, w.store.Search.Hasher, w.prompt, w.chain, i, end)
		if err != nil {
			return nil, err
		}
		for _, b := range at {
			x, ok, err := v.Get(b.Key, w.group)
			if err != nil {
				return nil, err
			}
			if ok && x.Model == w.model.Fingerprint && x.Loc.Length > 0 {
				out = append(out, wayState{i, b.End, b.Key, x})
			}
		}
	}
	return out, nil
}

// thin gives up states until keep are left, or nothing more can go.
func (w *stateWay) thin(keep int) error {
	var leaving []kv.Key
	defer func() { w.store.Pins.End(leaving) }()
	c, err := w.store.Ledger.Begin()
	if err != nil {
		return err
	}
	defer c.End()
	states, err := w.states(c.Index)
	if err != nil || len(states) <= keep {
		return err
	}
	op, blocks := oplog.Remove{Behind: true, Seq: w.store.Ledger.Seq.Load()}, int64(0)
	for _, s := range states[1 : len(states)-keep+1] {
		if wanted, err := w.wanted(c.Index, s); err != nil {
			return err
		} else if wanted {
			continue
		}
		if !w.store.Pins.Leave(s.key) {
			continue // an open match rests on it
		}
		leaving = append(leaving, s.key)
		dead, block, err := w.remove(c, s)
		if err != nil {
			return err
		}
		op.Dead = append(op.Dead, dead...)
		if block {
			blocks++
		}
	}
	if len(op.Dead) == 0 {
		return nil
	}
	for i := range op.Dead {
		op.Dead[i].Unseen = true // no match rests on them
	}
	if _, err := c.Commit(op); err != nil {
		return err
	}
	w.store.Filter.Removed(blocks)
	return nil
}

// remove takes a state out of the index. A partial block goes with it: its rows are in what goes on from it.
func (w *stateWay) remove(c *commit.Change, s wayState) (dead []oplog.Dead, block bool, err error) {
	if s.key != w.chain.Key(s.block) {
		entry, ok, err := c.Index.Get(s.key, 0)
		if err != nil {
			return nil, false, err
		}
		if ok {
			dead, _, err := c.RemoveBlock(entry)
			return dead, true, err
		}
	}
	return []oplog.Dead{{Key: s.key, Group: w.group, Loc: s.entry.Loc}}, false, c.Index.Remove(s.key, w.group)
}

// wanted reports whether a state is another's as well: scopes share it, a ref names its block, or some other prompt goes on from it.
func (w *stateWay) wanted(t *index.Txn, s wayState) (bool, error) {
	if w.prompt.Scope != "" && s.at <= w.prompt.ScopeStart || w.store.Ledger.Catalog.IsNamed(s.key) {
		return true, nil
	}
	own := map[kv.Key]bool{}
	i := s.block
	if s.key == w.chain.Key(i) {
		i++ // what goes on from a full block is below it
	}
	if i >= w.chain.Len() {
		return false, nil
	}
	start, end := w.chain.Block(i)
	mine, err := prefix.StoredPrefixes(t, w.store.Search.Hasher, w.prompt, w.chain, i, end)
	if err != nil {
		return false, err
	}
	for _, b := range mine {
		own[b.Key] = true
	}
	others := false
	other := func(k kv.Key) bool {
		others = !own[k]
		return !others
	}
	if s.key == w.chain.Key(s.block) {
		err = t.Children(s.key, nil, func(k kv.Key, _ kv.ScopeID) bool { return other(k) })
		return others, err
	}
	if below, err := t.HasChildren(s.key); below || err != nil {
		return below, err // a scope begins where the partial block ends
	}
	hashes := w.store.Search.Hasher.AppendTokenHashes(nil, w.prompt, start, s.at)
	err = t.ChildrenLike(w.chain.Parent(i), w.chain.Scope(i), hashes, other)
	return others, err
}
