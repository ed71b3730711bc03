package llamacpp

import (
	"fmt"
	"sync"
)

// live is the last session that was attached to each context. A session knows of a context what it did there itself, so there
// is one for each. The one before it ends then, whatever store or model it is of. A refusal would be wrong where a context
// was freed and another one made at the same address.
var live = struct {
	sync.Mutex
	last uint64
	of   map[uintptr]uint64 // number of the session, by the address of its context
}{of: map[uintptr]uint64{}}

// attachment is one attach of a context.
type attachment struct {
	lctx   uintptr
	number uint64 // of those of this process
}

// attach makes a session the one of its context.
func attach(lctx uintptr) attachment {
	live.Lock()
	defer live.Unlock()
	live.last++
	live.of[lctx] = live.last
	return attachment{lctx, live.last}
}

// over refuses a session after another one was attached to its context.
func (a attachment) over() error {
	live.Lock()
	defer live.Unlock()
	if live.of[a.lctx] == a.number {
		return nil
	}
	return fmt.Errorf("%w: each would not know what the other one did there. Keep one session for each context, or attach again", ErrReplaced)
}
