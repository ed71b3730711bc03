package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/kv"
)

// Nearest is the stored prompt that has most leading tokens in common with another one.
type Nearest struct {
	Common int // leading tokens that both have
	// Theirs are tokens of the stored prompt behind these: where they begin, the two part. None: the stored prompt ends there, or the other one does.
	Theirs []kv.Token
	Stored time.Time // when the block in which they part was put; zero: not known
}

// FindNearest says where a prompt parts from what is stored of a model: it looks for the stored prompt that has most leading tokens in common with it,
// and reads at most more tokens of that behind these. What another scope has stored it never looks at; in front of the prompt's ScopeStart
// it looks at what all scopes share. It gives false where nothing is stored that could have anything in common.
//
// It leaves no trace in recency or counters and takes no lease longer than the call. What is stored of prompts in other blocks, because their scope
// begins elsewhere, is compared up to the block in which it begins. [db.ErrNotFound] if there is no such model.
func FindNearest(ctx context.Context, s *db.Store, model kv.Fingerprint, prompt kv.Prompt, more int) (out Nearest, found bool, err error) {
	if err := prompt.Validate(); err != nil {
		return out, false, err
	}
	if err := ctx.Err(); err != nil {
		return out, false, err
	}
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return out, false, err
	}
	defer leave()
	m := e.Catalog.Model(model)
	if m == nil {
		return out, false, fmt.Errorf("%w: model %s", db.ErrNotFound, model)
	}
	if err := m.Load(); err != nil {
		return out, false, err
	}
	restores := e.Restores() // somebody waits for it: puts give way
	restores.Enter()
	defer restores.Leave()
	lease := e.Segments.AcquireShort()
	defer lease.Release()
	near, found, err := e.Search.Nearest(engine.Searched(m), &prompt, more)
	if err != nil {
		return out, false, err
	}
	out = Nearest{Common: near.Common, Theirs: near.Theirs}
	if near.Created > 0 {
		out.Stored = time.Unix(near.Created, 0)
	}
	return out, found, nil
}
