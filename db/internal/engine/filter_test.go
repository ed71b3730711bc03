package engine_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// The Bloom filter cannot forget. After 8,192 removed blocks it is as it was; one more, and it is built anew of what is left, which is found.
func TestFilterIsRebuiltOnDrift(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	keep, last := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}, kv.Prompt{Tokens: crashtest.Tokens(2, 16)}
	storetest.Put(t, m, keep)
	storetest.Put(t, m, last)
	gone := kv.Prompt{Tokens: crashtest.Tokens(3, 16*8192)}
	storetest.Must(putBlank(m, gone))(t)
	filter := storetest.Engine(s).Filter
	old := filter.Loaded()

	deleted := storetest.Must(m.Delete(t.Context(), gone.Prefix(1)))(t)
	if deleted.Blocks != 8192 {
		t.Fatalf("%d blocks were deleted", deleted.Blocks)
	}
	storetest.OK(t, s.Checkpoint(t.Context()))
	if filter.Stale() || filter.Current().Load() != old {
		t.Fatal("the filter is built anew after 8,192 removals")
	}
	storetest.Must(m.Delete(t.Context(), last))(t)
	var built *index.Bloom
	storetest.Eventually(t, "the filter is built anew after 8,193 removals", func() bool {
		built = filter.Current().Load()
		return built != old
	})
	if built.Keys() >= old.Keys()-8000 {
		t.Errorf("%d keys before, %d after", old.Keys(), built.Keys())
	}
	storetest.Expect(t, m, keep, 32)
}
