package write

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/suspect"
)

// Store is the store that is written to. It is safe for concurrent use; its fields do not change.
type Store struct {
	*lease.Store
	Rows   *read.Source // what is stored already
	Ledger *commit.Ledger
	Filter *filter.Filter
	Judge  *suspect.Judge
	Budget *budget.Budget
	Space  *space.Space

	Replaced *atomic.Int64 // counts the records that puts took the place of
}

// Model is the model whose rows are put.
type Model struct {
	prefix.Model
	Entry *catalog.Model // what the catalog has of it, until it is retired
}
