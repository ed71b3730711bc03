package read

import (
	"math"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/direct"
)

// cold is what a run reads around the page cache: records that are not in memory, by reads that are long enough. The map is for all else,
// and for what fails here: whatever is wrong with a file is said by one way of reading.
//
// A record is read as a whole, with its neighbours in the file; or in parts, if it is long, or if layers are wanted one after the other:
// its head through the map, which says where its planes are, then these, a run of them at a time, step by step.
type cold struct {
	run    *run
	mem    []byte // the ring
	files  files
	steps  []layers
	jobs   []coldJob
	units  []unit // in the order of the steps
	counts []int  // of the units of each step
	stream *direct.Stream
}

// coldJob is a job whose record is read around the page cache.
type coldJob struct {
	job
	parts  bool        // it is read in parts
	head   []byte      // of such a record: what comes before its planes
	failed atomic.Bool // it is to be read through the map
	back   bool        // and one of the run's jobs again
}

// unit is what one read brings: whole records, or planes of one.
type unit struct {
	segment   uint64
	off       int64
	size      int
	job, jobs int // the first job, and how many
	from, to  int // planes; none: whole records
}

// start begins the reads.
func (c *cold) start() {
	units := c.units
	bytes, largest := 0, 0
	for i := range units {
		bytes += units[i].size
		largest = max(largest, units[i].size)
	}
	readers := min(max(underWay*len(units)/max(1, bytes), minReaders), maxReaders)
	c.stream = direct.Start(c.mem[:min(len(c.mem), 2*readers*largest)], direct.Plan{ // the caches like memory that is used again soon
		N:    len(units),
		Size: func(i int) int { return units[i].size },
		Read: func(i int, b []byte) error { return c.files.read(units[i].segment, b, units[i].off) },
	}, readers)
}

// So many reads are under way at once: enough that they make up so many bytes.
const (
	underWay   = 5 << 20
	minReaders = 3
	maxReaders = 16
)

// decode waits for the next read and decodes it.
func (c *cold) decode(wanted layers) {
	chunk := c.stream.Next()
	defer c.stream.Done(chunk)
	u := &c.units[chunk.I]
	for i := range u.jobs {
		j := &c.jobs[u.job+i]
		if j.failed.Load() {
			continue
		}
		if chunk.Err != nil || c.decodeJob(u, j, chunk.Mem, wanted) != nil {
			j.failed.Store(true)
		}
	}
}

func (c *cold) decodeJob(u *unit, j *coldJob, b []byte, wanted layers) error {
	r := c.run
	at := j.at()
	d := decoder{
		model: r.found.Model(), prompt: r.found.Prompt(), job: &j.job, rows: r.rows, layers: wanted, written: r.written,
		planes: planes{u.from, 1, u.to},
	}
	if u.to > 0 {
		return readPart(r.source, at, j.head, b, u.off-at.Offset, d)
	}
	d.layers = layers{c.steps[0].lo, math.MaxInt}
	b = b[at.Offset-u.off:][:at.Length]
	return readPart(r.source, at, b, b, 0, d)
}

// takeBack makes jobs of the run of those that failed.
func (r *run) takeBack() {
	for i := range r.cold.jobs {
		if j := &r.cold.jobs[i]; j.failed.Load() && !j.back {
			j.back = true
			r.source.Segments.ReadAhead(j.at())
			r.jobs = append(r.jobs, j.job)
		}
	}
}

// stopCold ends all reads, if there are any, and gives the ring back.
func (r *run) stopCold() {
	c := r.cold
	if c == nil {
		return
	}
	r.cold = nil
	if c.stream != nil {
		c.stream.Stop()
	}
	c.files.close()
	r.source.Ring.Give(c.mem)
}

// turns shares a run's jobs and reads among its workers.
type turns struct {
	jobs, reads int
	nextJob     atomic.Int64
	nextRead    atomic.Int64
}

// next returns the job to do, or false for a read: of those one that is there, or any if no job is left. It is called as often as there
// are jobs and reads.
func (t *turns) next(s *direct.Stream) (i int, job bool) {
	take := func(next *atomic.Int64, n int) (int, bool) {
		for {
			i := next.Load()
			if i >= int64(n) {
				return 0, false
			}
			if next.CompareAndSwap(i, i+1) {
				return int(i), true
			}
		}
	}
	if s.Ready() {
		if _, ok := take(&t.nextRead, t.reads); ok {
			return 0, false
		}
	}
	if i, ok := take(&t.nextJob, t.jobs); ok {
		return i, true
	}
	take(&t.nextRead, t.reads)
	return 0, false
}
