package recovery

import (
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// ranks has the blocks whose class may be another one than the index says. The class of a block follows from its refs, and is in no frame.
// So what the log says of refs since the index was written must change it anew: a pin that stayed would keep a block from eviction for ever.
type ranks struct{ changed map[kv.Key]struct{} }

// block notes a block whose refs changed, or which has lost a child from whom it has its rank.
func (s *ranks) block(k kv.Key) {
	if s.changed == nil {
		s.changed = map[kv.Key]struct{}{}
	}
	s.changed[k] = struct{}{}
}

// ref notes the block that a name is on.
func (s *ranks) ref(c *catalog.Catalog, name string) {
	if ref, ok := c.Ref(name); ok {
		s.block(ref.Block)
	}
}

// settle gives every block that was noted the class that its refs say.
func (s *ranks) settle(t *index.Txn, c *catalog.Catalog) error {
	for k := range s.changed {
		if err := Rerank(t, c, k); err != nil {
			return err
		}
	}
	return nil
}
