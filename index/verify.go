package index

import (
	"context"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Verify x.
func (ix *Index) Verify(ctx context.Context, report func(*damage.Error), progress func(bytes int64)) error {
	return nil
}
