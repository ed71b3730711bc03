package damage

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

// verdict is what Verify makes of a damage.
type verdict int

const (
	silent verdict = iota // it names nothing in that file
	far                   // it names the file, and another place
	beside                // it names a page of index.db that does not fit the one that was changed
	named
)

var place = regexp.MustCompile(`([^/ ]+): corrupt .* at offset (\d+)`)

// judge looks for a stretch of a file in what Verify reported. Notes count: a log that ends in a damaged frame looks torn.
func (x *base) judge(rep admin.Report, file string, lo, hi int) verdict {
	near := func(name string, off int) verdict {
		if name != filepath.Base(file) {
			return silent
		}
		first, last := x.at(file, lo), x.at(file, hi-1)
		if strings.HasPrefix(first.what, "index.db: page, ") && first.what != "index.db: page, leaf" && off%pageBytes == 0 {
			if off < first.lo || last.hi < off {
				return beside
			}
		}
		if file == "FORMAT" || file == "bloom" || first.lo <= off && off <= last.hi {
			return named
		}
		return far
	}
	best := silent
	for _, d := range rep.Damage {
		best = max(best, near(filepath.Base(d.File), int(d.Offset)))
	}
	for _, n := range rep.Notes {
		if m := place.FindStringSubmatch(n); m != nil {
			off, _ := strconv.Atoi(m[2])
			best = max(best, near(m[1], off))
		}
		if file == "index.db" && strings.HasPrefix(n, "index.db will be rebuilt") {
			best = max(best, beside) // as where the log is damaged, too: then nothing more of it is read
		}
	}
	return best
}

// mustName says whether Verify has to name a stretch of a file that h changed: where something is lost that had been durable. Of a
// segment that is cut where nothing lives nothing is lost: so one looks that was sealed.
func (h harm) mustName(file string, lo, hi int) bool {
	b := h.x.files[file]
	for _, r := range h.x.regions[file] {
		from, to := max(r.lo, lo), min(r.hi, hi)
		if from >= to || r.idle {
			continue
		}
		if h.what == "flip" {
			return true
		}
		if r.what == "log: frame" && r.step >= h.x.sure || r.what == "log: space behind the end" {
			continue // the log just ends earlier
		}
		if h.what == "cut" && r.block == (kv.Key{}) && strings.HasPrefix(r.what, "segment: ") && lastByte(b[from:to]) < 0 {
			continue
		}
		if h.what == "cut" || lastByte(b[from:to]) >= 0 {
			return true
		}
	}
	return false
}

// verify counts what Verify says, and complains where it is silent.
func (r *run) verify(h harm, rep admin.Report) (bad []string) {
	h.touched(func(file string, lo, hi int) {
		got, region := h.x.judge(rep, file, lo, hi), h.x.at(file, lo)
		must := h.mustName(file, lo, hi)
		if h.what == "swap" && !must {
			return
		}
		what := "named"
		switch {
		case got == beside:
			what = "named beside it"
		case got == silent && !must:
			what = "silent, as nothing reads it"
		case got == silent:
			what = "SILENT"
			bad = append(bad, fmt.Sprintf("Verify does not name %s: %v %v", file, rep.Damage, rep.Notes))
		case got == far && h.what == "flip":
			what = "FAR"
			bad = append(bad, fmt.Sprintf("Verify names another place of %s: %v %v", file, rep.Damage, rep.Notes))
		}
		r.tally[h.what+", "+region.what+": "+what]++
	})
	return bad
}
