package db

import (
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// chainState is a stored state on the way of a prompt.
type chainState struct {
	block int // of the chain: the one in which it ends
	at    int
	key   kv.Key
	entry index.Entry
}

// thinStates gives up states on the way of a prompt: of each StateAt group the first and the last keep-1 stay. Those that were asked
// for by somebody else stay, too ([PutOptions.KeepStates]). A tail that was stored for its state alone goes with it. It is an
// eviction: nothing is lost but the time to compute it again.
func (m *Model) thinStates(e *engine, p *kv.Prompt, keep int) error {
	chain := e.hasher.Chain(m.ms.Fingerprint, m.ms.desc.BlockTokens, p)
	for g, group := range m.ms.desc.Groups {
		if group.Kind != kv.StateAt {
			continue
		}
		v := e.view()
		states, err := m.statesOn(v, e, p, chain, uint8(g))
		v.Release()
		if err != nil {
			return err
		}
		if len(states) <= keep {
			continue
		}
		if err := m.dropStates(e, p, chain, uint8(g), keep); err != nil {
			return err
		}
	}
	return nil
}

// statesOn lists the states of a group on the way of a prompt, the first one first.
func (m *Model) statesOn(v prefix.Reader, e *engine, p *kv.Prompt, chain *kv.Chain, g uint8) ([]chainState, error) {
	var out []chainState
	for i := range chain.Len() {
		_, end := chain.Block(i)
		at, err := prefix.StoredPrefixes(v, e.hasher, p, chain, i, end)
		if err != nil {
			return nil, err
		}
		for _, f := range at {
			x, ok, err := v.Get(f.Key, g)
			if err != nil {
				return nil, err
			}
			if ok && x.Model == m.ms.Fingerprint && x.Loc.Length > 0 {
				out = append(out, chainState{i, f.End, f.Key, x})
			}
		}
	}
	return out, nil
}

func (m *Model) dropStates(e *engine, p *kv.Prompt, chain *kv.Chain, g uint8, keep int) error {
	var op oplog.Remove
	var marked []kv.Key
	blocks := 0
	defer func() { e.pins.End(marked) }()
	e.logMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	defer e.logMu.Unlock()
	_, err := e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		states, err := m.statesOn(t, e, p, chain, g)
		if err != nil || len(states) <= keep {
			return nil, err
		}
		for _, s := range states[1 : len(states)-keep+1] {
			if wanted, err := m.wanted(t, e, p, chain, s); err != nil {
				return nil, err
			} else if wanted {
				continue
			}
			if !e.pins.Leave(s.key, 0) {
				continue // an open match rests on it
			}
			marked = append(marked, s.key)
			if s.key != chain.Key(s.block) { // a tail: the rows are in what goes on from it
				block, ok, err := t.Get(s.key, 0)
				if err != nil {
					return nil, err
				}
				if ok {
					dead, _, err := e.removeBlock(t, block)
					if err != nil {
						return nil, err
					}
					op.Dead = append(op.Dead, dead...)
					blocks++
					continue
				}
			}
			op.Dead = append(op.Dead, oplog.Dead{Key: s.key, Group: g, Loc: s.entry.Loc})
			if err := t.Remove(s.key, g); err != nil {
				return nil, err
			}
		}
		if len(op.Dead) == 0 {
			return nil, nil
		}
		op.Seq = e.birth.Load()
		return op, nil
	})
	if err != nil {
		return err
	}
	e.doom(op.Dead, true) // the states that were put since must be durable first
	e.bloomRemoved(int64(blocks))
	return nil
}

// wanted reports whether a state is another's as well: scopes share it, a ref names its block, or some other prompt goes on from it.
func (m *Model) wanted(t *index.Txn, e *engine, p *kv.Prompt, chain *kv.Chain, s chainState) (bool, error) {
	if p.Scope != "" && s.at <= p.ScopeStart {
		return true, nil
	}
	e.stateMu.RLock()
	named := e.state.blocks[s.key] > 0
	e.stateMu.RUnlock()
	if named {
		return true, nil
	}
	own := map[kv.Key]bool{}
	i := s.block
	if s.key == chain.Key(i) {
		i++ // what goes on from a full block is below it
	}
	if i >= chain.Len() {
		return false, nil
	}
	start, end := chain.Block(i)
	mine, err := prefix.StoredPrefixes(t, e.hasher, p, chain, i, end)
	if err != nil {
		return false, err
	}
	for _, f := range mine {
		own[f.Key] = true
	}
	others := false
	other := func(k kv.Key) bool {
		others = !own[k]
		return !others
	}
	if s.key == chain.Key(s.block) {
		err = t.Children(s.key, func(k kv.Key, _ kv.ScopeID) bool { return other(k) })
		return others, err
	}
	if below, err := t.HasChildren(s.key); below || err != nil {
		return below, err // a scope begins where the tail ends
	}
	hashes := e.hasher.AppendTokenHashes(nil, p, start, s.at)
	err = t.ChildrenLike(chain.Parent(i), chain.Scope(i), hashes, other)
	return others, err
}
