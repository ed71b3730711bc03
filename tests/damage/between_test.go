package damage

import (
	"strings"
	"testing"
)

// A file that is cut between two frames of the log, or two parts of a segment, shows no torn byte: it is missed all the same.
func TestCutBetween(t *testing.T) {
	bases := build(t, seedOf(t))
	r := newRun(t, bases)
	tried := 0
	for _, x := range bases {
		for file, regions := range x.regions {
			if !strings.HasPrefix(file, "wal/") && !strings.HasPrefix(file, "segments/") {
				continue
			}
			for _, g := range regions {
				h := harm{x: x, what: "cut", file: file, off: g.lo}
				tried++
				for _, bad := range r.try(h, true) {
					t.Errorf("%v: %s", h, bad)
				}
			}
		}
	}
	t.Logf("%d cuts", tried)
}
