package llamacpp

import "fmt"

// check refuses a sequence that llama.cpp would abort for.
func (s *Session) check(sequence int) error {
	if n := s.lib.Sequences(s.lctx); sequence < 0 || sequence >= int(n) {
		return fmt.Errorf("%w: %d of %d", ErrSequence, sequence, n)
	}
	return nil
}

// keptReadBytes is the largest state whose memory waits for the next save, until Trim: new memory takes longer than the copy into it.
const keptReadBytes = 64 << 20

// get returns the sequence's state, which the next call overwrites. The caller calls giveBack when it is done with it.
func (s *Session) get(sequence int, flags uint32) ([]byte, error) {
	s.lib.Synchronize(s.lctx)
	size := int(s.lib.StateSize(s.lctx, int32(sequence), flags))
	if size <= 0 {
		return nil, fmt.Errorf("%w: llama.cpp gives no size for sequence %d", ErrState, sequence)
	}
	var b []byte
	if size <= keptReadBytes {
		b = s.memoryFor(size)
	} else {
		b = s.roomFor(size)
	}
	if n := s.lib.StateGet(s.lctx, &b[0], uintptr(size), int32(sequence), flags); int(n) != size {
		return nil, fmt.Errorf("%w: llama.cpp wrote %d bytes for sequence %d, announced were %d", ErrState, n, sequence, size)
	}
	return b, nil
}

// memoryFor returns n bytes of s.buf. Their contents are whatever was there.
func (s *Session) memoryFor(n int) []byte {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	return s.buf[:n]
}

// keptBytes is the largest memory that a call leaves to the next one.
const keptBytes = 8 << 20

// roomFor returns n bytes for a state, until giveBack. Their contents are whatever was there.
func (s *Session) roomFor(n int) []byte {
	if n <= keptBytes {
		return s.memoryFor(n)
	}
	if cap(s.large) < n {
		s.giveBack()
		s.large = largeMemory(n)
	}
	return s.large[:n]
}

// giveBack frees what roomFor returned, if it is more than may be kept.
func (s *Session) giveBack() {
	if s.large != nil {
		freeLarge(s.large)
		s.large = nil
	}
}

// Trim gives back the memory that the session keeps between calls: as much as the largest state that it moved, and captured
// window rows that were not saved yet, whose positions are then not restorable.
func (s *Session) Trim() {
	s.buf = nil
	for _, l := range s.lines {
		l.captured, l.states = captured{}, nil
	}
}

// errNotTaken says that llama.cpp did not take a state: there may be no room for it.
var errNotTaken = fmt.Errorf("%w: not taken", ErrState)

// set gives an empty sequence a state. If llama.cpp does not take all of it, the sequence is empty afterwards.
func (s *Session) set(sequence int, blob []byte) error {
	s.lib.Synchronize(s.lctx)
	n := s.lib.StateSet(s.lctx, &blob[0], uintptr(len(blob)), int32(sequence), 0)
	if int(n) != len(blob) {
		s.clear(sequence) // half of it may be there
		return fmt.Errorf("%w: llama.cpp took %d of %d bytes into sequence %d", errNotTaken, n, len(blob), sequence)
	}
	return nil
}

// clear empties a sequence.
func (s *Session) clear(sequence int) bool {
	return s.lib.SequenceRemove(s.memory, int32(sequence), -1, -1)
}

// tokens is how many positions the sequence has: one more than its last.
func (s *Session) tokens(sequence int) int {
	return int(s.lib.SequenceMax(s.memory, int32(sequence))) + 1
}
