package direct

import (
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/internal/lock"
)

// Plan says what to read.
type Plan struct {
	N    int                         // reads
	Size func(i int) int             // bytes of read i, from 1 to RingBytes; of whole pages, if that is what the file needs
	Read func(i int, b []byte) error // does it; called by several goroutines at once
}

// Stream is reads under way, in order. Safe for concurrent use.
type Stream struct {
	plan Plan
	mem  []byte
	done sync.WaitGroup

	mu      lock.Mutex[lock.Reads] // guards all below
	room    *sync.Cond             // there may be memory for the next read, or none is begun any more
	slots   []slot                 // of each read
	begun   int                    // reads that have memory
	given   int                    // that Next has handed out
	freed   int                    // whose memory is free again: a beginning of all
	end     int                    // where the newest read's memory ends in mem
	stopped bool
}

// slot is the memory of a read.
type slot struct {
	from, to   int // in the ring
	read, free bool
	wanted     chan struct{} // closed when it is read; nil: nobody waits
	err        error
}

// Chunk is what was read. Err says why there is nothing.
type Chunk struct {
	I   int
	Mem []byte
	Err error
}

// Start begins the reads of p into mem, so many at once, until Stop. mem belongs to the stream until then.
func Start(mem []byte, p Plan, readers int) *Stream {
	s := &Stream{plan: p, mem: mem, slots: make([]slot, p.N)}
	s.room = sync.NewCond(&s.mu)
	for range min(readers, p.N) {
		s.done.Go(s.work)
	}
	return s
}

// Stop waits for the reads under way, and begins no more. Calling it again does nothing. Next may not be waiting.
func (s *Stream) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.room.Broadcast()
	s.mu.Unlock()
	s.done.Wait()
}

// Next waits for the next read, in order, and hands it out until Done. There must be one left.
func (s *Stream) Next() Chunk {
	s.mu.Lock()
	i := s.given
	s.given++
	x := &s.slots[i]
	if !x.read {
		wanted := make(chan struct{})
		x.wanted = wanted
		s.mu.Unlock()
		<-wanted // nobody else is woken for this read
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	return Chunk{i, s.mem[x.from:x.to:x.to], x.err}
}

// Ready reports whether Next would not wait.
func (s *Stream) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given < len(s.slots) && s.slots[s.given].read
}

// Done gives a chunk's memory back.
func (s *Stream) Done(c Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[c.I].free = true
	if c.I != s.freed {
		return
	}
	for s.freed < s.begun && s.slots[s.freed].free {
		s.freed++
	}
	s.offer()
}

// work reads until there is nothing left to read.
func (s *Stream) work() {
	for {
		i, b, ok := s.begin()
		if !ok {
			return
		}
		err := s.plan.Read(i, b)
		s.mu.Lock()
		s.slots[i].read, s.slots[i].err = true, err
		if w := s.slots[i].wanted; w != nil {
			close(w)
		}
		s.mu.Unlock()
	}
}

// begin waits for room in the ring and takes it for the next read.
func (s *Stream) begin() (i int, b []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped && s.begun < len(s.slots) {
		i := s.begun
		n := s.plan.Size(i)
		if n < 1 || n > len(s.mem) {
			panic(fmt.Sprintf("direct: a read of %d bytes in a ring of %d", n, len(s.mem)))
		}
		if from, ok := s.fit(n); ok {
			s.slots[i].from, s.slots[i].to = from, from+n
			s.begun++
			s.end = from + n
			s.offer()
			return i, s.mem[from : from+n : from+n], true
		}
		s.room.Wait()
	}
	return 0, nil, false
}

// offer wakes one who waits for room if there is some: whoever takes it wakes the next.
func (s *Stream) offer() {
	if s.begun == len(s.slots) {
		s.room.Broadcast() // there is nothing left to wait for
	} else if _, ok := s.fit(s.plan.Size(s.begun)); ok {
		s.room.Signal()
	}
}

// fit finds n bytes behind the newest read's, or before the oldest's.
func (s *Stream) fit(n int) (from int, ok bool) {
	if s.freed == s.begun {
		return 0, true // nothing is in use
	}
	oldest := s.slots[s.freed].from
	switch {
	case s.end <= oldest: // it goes on before the oldest, and may not reach it
		return s.end, n <= oldest-s.end
	case n <= len(s.mem)-s.end:
		return s.end, true
	}
	return 0, n <= oldest
}
