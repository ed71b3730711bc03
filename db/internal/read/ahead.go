package read

import "sync/atomic"

// aheadBytes is how much of what is not in memory is asked for before it is needed: enough for a disk to work at its rate.
const aheadBytes = 16 << 20

// ahead is how far a run has asked for what comes.
type ahead struct {
	on    bool
	asked atomic.Int64 // jobs
	depth int64        // jobs ahead of the one that is worked on
}

// startAhead asks ahead unless the run's records are in memory: asking costs time.
func (r *run) startAhead() {
	const samples = 8
	n := len(r.jobs)
	resident := true
	for i := 0; i < samples && resident && n > 0; i++ {
		j := &r.jobs[i*n/samples]
		resident = r.source.Segments.Resident(j.hit.Groups[j.group].Loc)
	}
	r.ahead.on = !resident
	if resident {
		return
	}
	bytes := int64(0)
	for i := range r.jobs {
		j := &r.jobs[i]
		bytes += j.hit.Groups[j.group].Loc.Length
	}
	r.ahead.asked.Store(0)
	r.ahead.depth = max(2, aheadBytes*int64(n)/max(1, bytes))
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
