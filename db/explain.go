package db

import (
	"context"
	"errors"
	"io/fs"
	"strconv"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Explanation says how much of a prompt would be reused, and what stands in the way of more.
type Explanation struct {
	Prompt int    // tokens of the prompt
	Tokens int    // usable prefix
	Reason Reason // why not more
	Blocks []ExplainedBlock
	// Other models in which the same prompt has a longer stored prefix, with the fields in which they differ, and those whose descriptor
	// cannot be read, by name.
	Elsewhere []Elsewhere
}

// ExplainedBlock is one block of the matched prefix.
type ExplainedBlock struct {
	Key        kv.Key
	Start, End int
	Scope      kv.ScopeID
	// Groups are "stored", "rows [a, b)", "missing", "damaged", "gone" (deleted while Explain ran) or "unreadable" (no leave to open the
	// file, or too many are open).
	Groups []string
}

// Elsewhere is a model that has more of a prompt than the one that was asked.
type Elsewhere struct {
	Name        string
	Fingerprint kv.Fingerprint
	Tokens      int
	Differs     []kv.Difference
	Err         error // the descriptor cannot be read, so what the model has is not known
}

// Explain answers why a prompt would, or would not, be reused. It reads every stored byte along the prompt, so that what it promises
// is what a Restore gives. It leaves no trace, and takes no lease longer than the call.
func (m *Model) Explain(ctx context.Context, prompt kv.Prompt, o MatchOptions) (out Explanation, err error) {
	o.NoLookup = false
	if out, err = m.explain(ctx, &prompt, o); err != nil {
		return Explanation{}, err
	}
	models, err := m.s.modelsByName(ctx)
	if err != nil {
		return out, err
	}
	for _, ms := range models {
		if ms.Fingerprint == m.ms.Fingerprint {
			continue
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if err := ms.Load(); err != nil {
			out.Elsewhere = append(out.Elsewhere, Elsewhere{Name: ms.Name, Fingerprint: ms.Fingerprint, Err: err})
			continue
		}
		other := &Model{s: m.s, ms: ms}
		tokens, err := other.verified(ctx, &prompt, o, out.Tokens)
		if err != nil && !errors.Is(err, ErrRetired) {
			return out, err
		}
		if tokens > out.Tokens {
			out.Elsewhere = append(out.Elsewhere, Elsewhere{
				Name: ms.Name, Fingerprint: ms.Fingerprint, Tokens: tokens, Differs: ms.Desc.Diff(&m.ms.Desc),
			})
		}
	}
	return out, nil
}

// explain is what Explain says of this model.
func (m *Model) explain(ctx context.Context, prompt *kv.Prompt, o MatchOptions) (out Explanation, err error) {
	p, err := m.probe(ctx, prompt, o)
	if err != nil {
		return out, err
	}
	defer p.end()
	if err := p.verify(ctx); err != nil {
		return out, err
	}
	out.Prompt = len(prompt.Tokens)
	out.Tokens, out.Reason = p.found()
	for i := range p.l.Hits {
		h := &p.l.Hits[i]
		b := ExplainedBlock{Key: h.Key, Start: h.Start, End: h.End, Scope: h.Scope}
		for g := range h.Groups {
			b.Groups = append(b.Groups, explainGroup(h, g))
		}
		out.Blocks = append(out.Blocks, b)
	}
	return out, nil
}

// verified is how many tokens of a prompt this model has. Where that may be more than least, every stored byte of them is read.
func (m *Model) verified(ctx context.Context, prompt *kv.Prompt, o MatchOptions, least int) (tokens int, err error) {
	p, err := m.probe(ctx, prompt, o)
	if err != nil {
		return 0, err
	}
	defer p.end()
	if p.l.Tokens > least {
		err = p.verify(ctx)
	}
	tokens, _ = p.found()
	return tokens, err
}

// modelsByName are the models, the newest version of each name before its older ones.
func (s *Store) modelsByName(ctx context.Context) ([]*catalog.Model, error) {
	e, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	return byName(e), nil
}

// explainGroup says what is stored of a group of a block.
func explainGroup(h *prefix.Hit, g int) string {
	r := h.Groups[g]
	switch from, to := h.Covers(g); {
	case errors.Is(r.Bad, segments.ErrDestroyed):
		return "gone"
	case read.Passing(r.Bad), errors.Is(r.Bad, fs.ErrPermission) && !errors.Is(r.Bad, ErrCorrupt):
		return "unreadable"
	case r.Bad != nil:
		return "damaged"
	case r.Loc == (index.Loc{}):
		return "missing"
	case from == h.Start && to == h.End:
		return "stored"
	default:
		return "rows [" + strconv.Itoa(from) + ", " + strconv.Itoa(to) + ")"
	}
}
