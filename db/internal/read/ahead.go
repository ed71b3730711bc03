package read

import (
	"slices"
	"sync/atomic"
)

// aheadBytes is how much of what is not in memory is asked for before it is needed: enough for a disk to work at its rate.
const aheadBytes = 16 << 20

// ahead is how far a run has asked for what comes.
type ahead struct {
	on    bool
	asked atomic.Int64 // jobs
	depth int64        // jobs ahead of the one that is worked on
}

// inMemory reports whether the run's records are in memory, as far as one of each megabyte tells: asking for more costs time.
func (r *run) inMemory() bool {
	const each = 1 << 20
	r.openSegments()
	for i, bytes := 0, int64(each); i < len(r.jobs); i++ {
		j := &r.jobs[i]
		at := j.hit.Groups[j.group].Loc
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
		j := &r.jobs[i]
		id := j.hit.Groups[j.group].Loc.Segment
		if n := len(r.segments); (n == 0 || r.segments[n-1] != id) && n < most && !slices.Contains(r.segments, id) {
			r.segments = append(r.segments, id)
		}
	}
	if len(r.segments) > 1 {
		r.source.Segments.Prepare(r.segments)
	}
}

// startAhead begins to ask ahead for the jobs' records.
func (r *run) startAhead() {
	bytes := int64(0)
	for i := range r.jobs {
		j := &r.jobs[i]
		bytes += j.hit.Groups[j.group].Loc.Length
	}
	r.ahead.on = true
	r.ahead.asked.Store(0)
	r.ahead.depth = max(2, aheadBytes*int64(len(r.jobs))/max(1, bytes))
}

// askAhead asks for the records that come after job i.
func (r *run) askAhead(i int) {
	if !r.ahead.on {
		return
	}
	for target := min(int64(len(r.jobs)), int64(i)+1+r.ahead.depth); ; {
		k := r.ahead.asked.Load()
		if k >= target {
			return
		}
		if r.ahead.asked.CompareAndSwap(k, k+1) {
			if j := &r.jobs[k]; j.plane == 0 {
				r.source.Segments.ReadAhead(j.hit.Groups[j.group].Loc)
			}
		}
	}
}
