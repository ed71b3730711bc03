//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llama

import (
	"fmt"
	"unsafe"

	"github.com/dormousekv/dormouse/kv"
)

// Embed is the mean of what the last layer makes of the tokens, in a context that was made with ContextOptions.Embeddings. The text is at most
// one micro batch. The context's cache is emptied. The memory is the caller's.
func (c *Context) Embed(tokens []int32) ([]float32, error) {
	if c == nil || c.ptr == 0 {
		return nil, errClosed("context")
	}
	if most := c.model.lib.microBatch(c.ptr); len(tokens) == 0 || len(tokens) > int(most) { // an encoder aborts the process for more
		return nil, fmt.Errorf("%w: an embedding of %d tokens, 1 to %d", ErrDecode, len(tokens), most)
	}
	c.Clear()
	steps := make([]kv.Step, len(tokens))
	for i, t := range tokens {
		steps[i] = kv.Step{Token: t, Pos: i, Logits: true}
	}
	if err := c.DecodeSteps(steps); err != nil {
		return nil, err
	}
	p := c.model.lib.embeddings(c.ptr, 0)
	if p == 0 {
		return nil, fmt.Errorf("%w: the context was not made with ContextOptions.Embeddings", ErrDecode)
	}
	return append([]float32(nil), unsafe.Slice(*(**float32)(unsafe.Pointer(&p)), c.model.lib.width(c.model.ptr))...), nil
}
