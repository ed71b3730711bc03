package catalog

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/kv"
)

// flagSet has blocks of which a record was once found damaged. Some may be whole again since, or gone.
type flagSet struct {
	of  map[kv.Key]struct{}
	any atomic.Bool // changed with of; read without the lock
}

func (s *flagSet) add(block kv.Key) {
	s.of[block] = struct{}{}
	s.any.Store(true)
}
