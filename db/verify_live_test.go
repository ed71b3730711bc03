package db

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/check"
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
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 16*20)}
	put(t, m, p)
	eventually(t, "the Bloom filter is there", func() bool { return s.eng.Inside().Bloom().Load() != nil })
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := check.Bloom(&askedContext{ctx, func() {
		_, err := m.Delete(ctx, p.Prefix(16))
		if err = errors.Join(err, s.eng.RebuildBloom(ctx)); err != nil {
			t.Fatal(err)
		}
	}}, s.eng)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Damage) > 0 {
		t.Fatalf("%d false reports, the first: %v", len(out.Damage), out.Damage[0])
	}
}
