package space

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/budget"
)

// Shrink evicts, coldest first, until the files occupy bytes or less, and returns what they occupy then and how many blocks went.
func (sp *Space) Shrink(ctx context.Context, bytes int64) (used int64, evicted int, err error) {
	if err := sp.Ledger.Poisoned(); err != nil {
		return 0, 0, err
	}
	most := sp.Ledger.Counts().Blocks // those that are put meanwhile are no reason to go on
	for used := sp.Budget.Measure(); used > bytes && int64(evicted) <= most; {
		n, err := sp.Evictor.Until(ctx, func() budget.Lack {
			_, waiting := sp.Ledger.Catalog.Waiting()
			return budget.Lack{Bytes: sp.Budget.Used() - sp.Ledger.Segments.Held() - waiting - bytes} // what matches keep comes back, too
		})
		evicted += n
		if err != nil {
			return sp.Budget.Measure(), evicted, err
		}
		if err := sp.Checkpoint(ctx); err != nil {
			return sp.Budget.Measure(), evicted, err
		}
		if used = sp.Budget.Measure(); n == 0 {
			break
		}
	}
	if used := sp.Budget.Measure(); used > bytes {
		if err := sp.compactIndex(ctx); err != nil {
			return used, evicted, err
		}
	}
	return sp.Budget.Measure(), evicted, nil
}
