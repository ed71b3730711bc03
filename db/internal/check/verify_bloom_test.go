package check_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/check"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// askedContext runs something when it is first asked whether it is over.
type askedContext struct {
	context.Context
	asked func()
}

func (c *askedContext) Err() error {
	if f := c.asked; f != nil {
		c.asked = nil
		f()
	}
	return nil
}

// A Bloom filter that is built anew while Verify compares the old one with the index does not know what was deleted meanwhile.
// That is no damage.
func TestVerifyWhileTheBloomFilterIsBuiltAnew(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16*20)}
	storetest.Put(t, m, p)
	storetest.Eventually(t, "the Bloom filter is there", func() bool { return storetest.Engine(s).Inside().Bloom().Load() != nil })
	storetest.OK(t, s.Checkpoint(t.Context()))
	out, err := check.Bloom(&askedContext{t.Context(), func() {
		_, err := m.Delete(t.Context(), p.Prefix(16))
		storetest.OK(t, errors.Join(err, storetest.Engine(s).RebuildBloom(t.Context())))
	}}, storetest.Engine(s))
	storetest.OK(t, err)
	if len(out.Damage) > 0 {
		t.Fatalf("%d false reports, the first: %v", len(out.Damage), out.Damage[0])
	}
}
