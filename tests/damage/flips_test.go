package damage

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// seedOf is DORMOUSE_DAMAGE_SEED, or another number each time.
func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DORMOUSE_DAMAGE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("DORMOUSE_DAMAGE_SEED=%d", seed)
	return seed
}

// A sample of all cases.
func TestSample(t *testing.T) {
	if os.Getenv("DORMOUSE_DAMAGE") != "" {
		t.Skip("SKIPPED: DORMOUSE_DAMAGE asks for other cases")
	}
	seed := seedOf(t)
	cases, spend := 1200, 25*time.Second
	if testing.Short() {
		cases = 100
	}
	bases := build(t, 1)
	ps := phases(bases, seed)
	r := newRun(t, bases)
	rnd := rand.New(rand.NewPCG(seed, 0))
	start := time.Now()
	for n := 0; n < cases && time.Since(start) < spend; n++ {
		// Every phase alike, but for those that find little.
		k := []int{0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7}[n%13]
		i := rnd.IntN(ps[k].n)
		h := ps[k].at(i)
		full := h.what != "flip" || n%4 == 0
		number := i
		for _, p := range ps[:k] {
			number += p.n
		}
		r.note(number, h, r.try(h, full))
	}
	for _, p := range ps {
		t.Logf("%9d %s", p.n, p.name)
	}
	t.Logf("%d cases, %.0f a second\n%s", r.tried, float64(r.tried)/time.Since(start).Seconds(), r.summary())
	for _, f := range r.fails {
		t.Error(f)
	}
	for k, n := range r.shape {
		t.Errorf("%d times: %s", n, k)
	}
}
