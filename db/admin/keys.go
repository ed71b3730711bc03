package admin

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// KeysOf are the keys that the whole blocks of a prompt have in a store, in order, whether they are stored or not: by them a drawing of the store's blocks
// tells which are the prompt's. [db.ErrNotFound] if there is no such model.
func KeysOf(s *db.Store, model kv.Fingerprint, prompt kv.Prompt) (keys []kv.Key, err error) {
	if err := prompt.Validate(); err != nil {
		return nil, err
	}
	e, leave, err := s.Enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer leave()
	m := e.Catalog.Model(model)
	if m == nil {
		return nil, fmt.Errorf("%w: model %s", db.ErrNotFound, model)
	}
	if err := m.Load(); err != nil {
		return nil, err
	}
	chain := e.Hasher.Chain(m.Fingerprint, m.Desc.BlockTokens, &prompt)
	for i := range chain.Len() {
		if start, end := chain.Block(i); end-start == m.Desc.BlockTokens {
			keys = append(keys, chain.Key(i))
		}
	}
	return keys, nil
}
