package db

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Probe answers how many leading tokens a Match would find, with no lease and no trace in recency or counters, but for damage that it meets.
func (m *Model) Probe(ctx context.Context, prompt kv.Prompt, o MatchOptions) (int, Reason, error) {
	p, err := m.probe(ctx, &prompt, o)
	if err != nil {
		return 0, Reason{}, err
	}
	defer p.end()
	tokens, reason := p.found()
	return tokens, reason, nil
}

// Prefetch reads the stored prefix of prompt ahead, so that a Restore soon after finds it in memory. It returns the
// tokens found; cancelling ctx stops it. Like Probe it leaves no trace in recency or counters.
func (m *Model) Prefetch(ctx context.Context, prompt kv.Prompt, o MatchOptions) (int, error) {
	p, err := m.probe(ctx, &prompt, o)
	if err != nil {
		return 0, err
	}
	defer p.end()
	err = p.prefetch(ctx)
	tokens, _ := p.found()
	return tokens, err
}

// probe is a lookup that leaves no trace, in a store that was entered. What it finds stays readable until end.
type probe struct {
	m     *Model
	e     *engine.Engine
	lease *segments.Lease
	l     *prefix.Lookup
	bad   error // damage of the index: nothing is found
}

// probe looks for a prefix. Where the index is damaged it finds nothing, as Match does.
func (m *Model) probe(ctx context.Context, prompt *kv.Prompt, o MatchOptions) (*probe, error) {
	if err := prompt.Validate(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	e.Restores().Enter()
	p := &probe{m: m, e: e, lease: e.Segments.AcquireShort()}
	p.l = e.Search.Lookup(engine.Searched(m.ms), prompt, max(0, o.limit(len(prompt.Tokens))), false)
	if o.NoLookup {
		p.l.Reason = Reason{Code: LookupOff}
		return p, nil
	}
	if err := p.noteDamage(p.l.Find()); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// noteDamage takes damage of the index out of err: it makes the probe a miss.
func (p *probe) noteDamage(err error) error {
	if !engine.IsIndexDamage(err) {
		return err
	}
	p.m.s.indexDamaged(err)
	p.l.Reset()
	p.bad = err
	return nil
}

// verify reads every stored byte of what was found.
func (p *probe) verify(ctx context.Context) error {
	if p.bad != nil {
		return nil
	}
	return p.noteDamage(p.e.Source.Verify(ctx, p.l))
}

// prefetch has the system read what was found.
func (p *probe) prefetch(ctx context.Context) error {
	if p.bad != nil {
		return nil
	}
	return p.noteDamage(p.e.Source.Prefetch(ctx, p.l))
}

// found is how many tokens are usable, by what was read so far, and why not more.
func (p *probe) found() (tokens int, reason Reason) {
	if p.bad != nil {
		return 0, Reason{Code: Damaged, Err: p.bad}
	}
	return p.l.Tokens, p.l.Reason
}

func (p *probe) end() {
	p.l.Free()
	p.lease.Release()
	p.e.Restores().Leave()
	p.m.leave()
}
