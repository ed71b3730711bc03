package llamacpp

import (
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/largemem"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
)

// keptReadBytes is the largest state whose memory waits for the next save, until Trim: new memory takes longer than the
// copy into it.
const keptReadBytes = 64 << 20

// get returns the sequence's state, which the next call overwrites. The caller calls giveBack when it is done with it.
func (c *cells) get(sequence int, flags uint32) ([]byte, error) {
	c.lib.Synchronize(c.lctx)
	size := int(c.lib.StateSize(c.lctx, int32(sequence), flags))
	if size <= 0 {
		return nil, fmt.Errorf("%w: llama.cpp gives no size for sequence %d", ErrState, sequence)
	}
	var b []byte
	if size <= keptReadBytes {
		b = c.memoryFor(size)
	} else {
		b = c.roomFor(size)
	}
	if n := c.lib.StateGet(c.lctx, &b[0], uintptr(size), int32(sequence), flags); int(n) != size {
		return nil, fmt.Errorf("%w: llama.cpp wrote %d bytes for sequence %d, announced were %d", ErrState, n, sequence, size)
	}
	return b, nil
}

// getFrom returns the sequence's state as get does. It leaves out the positions before from where it can: an empty
// sequence that shares the cells is given the others for the length of the call. lay is nil if the state has no rows.
func (c *cells) getFrom(sequence, from int, lay *layout.Layout) ([]byte, error) {
	if from == 0 || lay == nil {
		return c.get(sequence, 0)
	}
	free, ok := c.free(sequence, lay)
	if !ok {
		return c.get(sequence, 0)
	}
	return c.getRange(sequence, free, from, -1)
}

// getRange returns the state of the positions [start, end) of a sequence, by way of an empty one that shares its cells.
func (c *cells) getRange(sequence, scratch, start, end int) ([]byte, error) {
	c.share(sequence, scratch, start, end)
	blob, err := c.get(scratch, 0)
	if err := c.empty(scratch); err != nil {
		return nil, err
	}
	return blob, err
}

// errNotTaken says that llama.cpp did not take a state: there may be no room for it.
var errNotTaken = fmt.Errorf("%w: not taken", ErrState)

// set gives an empty sequence a state. If llama.cpp does not take all of it, the sequence is empty afterwards.
func (c *cells) set(sequence int, blob []byte) error {
	if n := c.setPart(sequence, blob, 0); n != len(blob) {
		c.clear(sequence) // half of it may be there
		return fmt.Errorf("%w: llama.cpp took %d of %d bytes into sequence %d", errNotTaken, n, len(blob), sequence)
	}
	return nil
}

// setPart gives a sequence a state, or what the flags name of one, and returns how many bytes llama.cpp took.
func (c *cells) setPart(sequence int, blob []byte, flags uint32) int {
	c.lib.Synchronize(c.lctx)
	return int(c.lib.StateSet(c.lctx, &blob[0], uintptr(len(blob)), int32(sequence), flags))
}

// free finds a sequence beside this one that holds nothing and shares its cells.
func (c *cells) free(sequence int, lay *layout.Layout) (int, bool) {
	if c.lib.SequenceCopy == nil || !lay.OneBuffer() {
		return 0, false
	}
	empty := lay.EmptyBytes()
	for i := c.sequences() - 1; i >= 0; i-- {
		if i != sequence && c.tokens(i) == 0 && int(c.lib.StateSize(c.lctx, int32(i), 0)) == empty {
			return i, true
		}
	}
	return 0, false
}

// memoryFor returns n bytes that stay with the context. Their contents are whatever was there.
func (c *cells) memoryFor(n int) []byte {
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	return c.buf[:n]
}

// keptBytes is the largest memory that a call leaves to the next one.
const keptBytes = 8 << 20

// roomFor returns n bytes for a state, until giveBack. Their contents are whatever was there.
func (c *cells) roomFor(n int) []byte {
	if n <= keptBytes {
		return c.memoryFor(n)
	}
	if cap(c.large) < n {
		c.giveBack()
		c.large = largemem.Make(n)
	}
	return c.large[:n]
}

// giveBack ends what roomFor returned, if it is more than the context keeps: it waits for the next session that needs as
// much, or goes back to the system.
func (c *cells) giveBack() {
	if c.large != nil {
		largemem.Free(c.large)
		c.large = nil
	}
}

// trim gives back what waits for the next call, of all sessions of the process.
func (c *cells) trim() {
	c.buf = nil
	largemem.Trim()
}
