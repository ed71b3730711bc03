package script

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
)

// Run runs a script with every choice that it leaves, with several losses if they are drawn, and with each call that is to fail; where the
// power is cut once more, with the volume lost instead.
func Run(t testing.TB, x *Script) error {
	if err := run(t, x, false); err != nil || !x.cuts {
		return err
	}
	if err := run(t, x, true); err != nil {
		return fmt.Errorf("%w, the volume lost instead of the power", err)
	}
	return nil
}

func run(t testing.TB, x *Script, went bool) error {
	first, seeds := uint64(0), uint64(1)
	if x.drawn {
		seed, all := crashtest.Seed(t)
		if first, seeds = seed, 8; all {
			seeds = 200
		}
	}
	dirs := crashtest.NewDirs(t)
	choice := make([]int, len(x.lines))
	for more := true; more; more = nextChoice(x, choice) {
		for seed := first; seed < first+seeds; seed++ {
			for nth := int64(1); nth > 0; {
				r := &scriptRun{
					dirs: dirs, went: went, rnd: rand.New(rand.NewPCG(seed, 7)), nth: nth, d: crashtest.NewDisk(dirs.Next()), model: "plain",
					put0: map[string]int{}, tried: map[string]int{}, frames: map[string]scriptFrame{}, held: map[string]*db.Match{}, talks: map[string]*talk{}, o: scriptOptions{budget: 16 << 20},
				}
				err := r.run(x, choice)
				through := r.through
				r.die()
				os.RemoveAll(r.d.Dir())
				switch {
				case err != nil:
					return fmt.Errorf("%w%s", err, with(x, choice, seed, nth))
				case x.each && !through:
					nth++
				default:
					nth = 0
				}
			}
		}
	}
	return nil
}

// nextChoice goes on to the next combination of choices, if there is one.
func nextChoice(x *Script, choice []int) bool {
	for i, l := range x.lines {
		if choice[i]++; choice[i] < len(l.choices) {
			return true
		}
		choice[i] = 0
	}
	return false
}

// with says which of its runs a script failed in.
func with(x *Script, choice []int, seed uint64, nth int64) (out string) {
	for i, l := range x.lines {
		if len(l.choices) > 1 {
			out += fmt.Sprintf(", line %d: choice %d", l.n, choice[i]+1)
		}
	}
	if x.drawn {
		out += fmt.Sprint(", cut ", seed)
	}
	if x.each {
		out += fmt.Sprint(", call ", nth)
	}
	return out
}
