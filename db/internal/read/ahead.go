package read

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
)

// aheadBytes is how much of what is not in memory is asked for before it is needed: enough for a disk to work at its rate.
const aheadBytes = 16 << 20

// ahead asks for what is not in memory before it is needed. Nil asks for nothing.
type ahead struct {
	n, depth int64       // jobs, and how many of them ahead of the one that is worked on
	ask      func(i int) // asks for the bytes of job i
	asked    atomic.Int64
}

// newAhead returns what asks for n jobs of so many bytes in all.
func newAhead(n int, bytes int64, ask func(i int)) *ahead {
	return &ahead{n: int64(n), depth: max(2, aheadBytes*int64(n)/max(1, bytes)), ask: ask}
}

// to asks for all jobs up to depth behind job i.
func (a *ahead) to(i int) {
	if a == nil {
		return
	}
	for target := min(a.n, int64(i)+1+a.depth); ; {
		k := a.asked.Load()
		if k >= target {
			return
		}
		if a.asked.CompareAndSwap(k, k+1) {
			a.ask(int(k))
		}
	}
}

// fetched says of which prefix the records were asked for last. Until they are there, the system says that they are not in memory.
type fetched struct {
	block kv.Key // that ends it
	at    time.Time
}

// fetchTime is how long records may be on their way that were asked for.
const fetchTime = 5 * time.Second

// Prefetch asks the system to read all that l found. A restore of it soon after waits for that, and reads nothing a second time.
func (s *Source) Prefetch(ctx context.Context, l *prefix.Lookup) error {
	if err := l.ResolveTo(l.Tokens); err != nil {
		return err
	}
	for i := range l.Hits {
		h := &l.Hits[i]
		if h.Start >= l.Tokens {
			break
		}
		s.fetched.Store(&fetched{h.Key, time.Now()})
		for _, g := range h.Groups {
			if err := ctx.Err(); err != nil {
				return err
			}
			if g.Loc.Length > 0 {
				s.Segments.ReadAhead(g.Loc)
			}
		}
	}
	for _, st := range l.States {
		s.Segments.ReadAhead(st.Loc)
	}
	return nil
}

// underWay reports whether the run's records were asked for a moment ago.
func (r *run) underWay() bool {
	f := r.source.fetched.Load()
	return f != nil && time.Since(f.at) < fetchTime && slices.ContainsFunc(r.found.Hits, func(h prefix.Hit) bool { return h.Key == f.block })
}

// inMemory reports whether the run's records are in memory, as far as one of each megabyte tells: asking for more costs time.
func (r *run) inMemory() bool {
	const each = 1 << 20
	r.openSegments()
	for i, bytes := 0, int64(each); i < len(r.jobs); i++ {
		at := r.jobs[i].at()
		if bytes += at.Length; bytes < each {
			continue
		}
		if bytes = 0; !r.source.Segments.Resident(at) {
			return false
		}
	}
	return true
}

// openSegments opens the files that the jobs read, as many as a restore usually has.
func (r *run) openSegments() {
	const most = 64
	r.segments = r.segments[:0]
	for i := range r.jobs {
		id := r.jobs[i].at().Segment
		if n := len(r.segments); (n == 0 || r.segments[n-1] != id) && n < most && !slices.Contains(r.segments, id) {
			r.segments = append(r.segments, id)
		}
	}
	if len(r.segments) > 1 {
		r.source.Segments.Prepare(r.segments)
	}
}

// aheadOfJobs asks for the records of the run's jobs.
func (r *run) aheadOfJobs() *ahead {
	bytes := int64(0)
	for i := range r.jobs {
		bytes += r.jobs[i].at().Length
	}
	return newAhead(len(r.jobs), bytes, func(i int) {
		r.source.Segments.ReadAhead(r.jobs[i].at())
	})
}
