package llamacpp

import (
	"fmt"
	"sync"
)

// A session knows of a context what it did there itself, so there is one for each: the last one that was attached. The one before it ends then, whatever
// store or model it is of. A refusal would be wrong where a context was freed and another one made at the same address.
var live = struct {
	sync.Mutex
	last uint64
	of   map[uintptr]uint64 // number of the session, by the address of its context
}{of: map[uintptr]uint64{}}

// begins makes s the session of its context.
func (s *Session) begins() {
	live.Lock()
	defer live.Unlock()
	live.last++
	s.number = live.last
	live.of[s.lctx] = s.number
}

// over refuses a session after another one was attached to its context.
func (s *Session) over() error {
	live.Lock()
	defer live.Unlock()
	if live.of[s.lctx] == s.number {
		return nil
	}
	return fmt.Errorf("%w: each would not know what the other one did there. Keep one session for each context, or attach again", ErrReplaced)
}
