package engine_test

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// numbered is a model that differs from others in its name and its weights.
func numbered(i int) kv.Descriptor {
	d := crashtest.Plain()
	d.Name = fmt.Sprint("model ", i)
	d.Weights = kv.HashOf(d.Name)
	return d
}

// What the segments of many models have reserved ahead of a small prompt each goes back before anything is evicted for a long one.
func TestManyModelsReserveNothingThatOthersNeed(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 64<<20, 4<<20
	o.HighWater, o.LowWater = 1, 1
	s := storetest.Open(t, t.TempDir(), o)
	small := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	const models = 80 // a step ahead of each would be more than the budget
	for i := range models {
		storetest.Put(t, storetest.Model(t, s, numbered(i)), small)
	}
	long := kv.Prompt{Tokens: crashtest.Tokens(2, 16*3000)} // 24 MB
	storetest.Put(t, storetest.Model(t, s, numbered(models)), long)
	if st := storetest.Stats(t, s); st.Evicted != 0 {
		t.Errorf("%d blocks were evicted, and %d bytes are alive of %d", st.Evicted, st.LiveBytes, o.Budget)
	}
	for i := range models { // each goes on in the segment that it has
		m := storetest.Model(t, s, numbered(i))
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 64)})
		storetest.Expect(t, m, small, 64)
	}
	segments := map[kv.Fingerprint]int{}
	for _, info := range storetest.Engine(s).Segments.Segments() {
		segments[info.Model]++
	}
	for i := range models {
		d := numbered(i)
		normal := storetest.Must(d.Normal())(t)
		if n := segments[normal.Fingerprint()]; n != 1 {
			t.Errorf("model %d has %d segments", i, n)
		}
	}
	storetest.Sound(t, s)
	if used := storetest.Engine(s).Measure(); used > o.Budget {
		t.Errorf("%d bytes are used of %d", used, o.Budget)
	}
}
