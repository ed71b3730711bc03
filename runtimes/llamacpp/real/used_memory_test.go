//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/largemem"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// What the memory of a state held before shows in no byte of what is restored: it may have been another session's.
func TestRestoreIntoUsedMemory(t *testing.T) {
	const tokens, large = 700, 8 << 20
	defer largemem.Trim()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 10, 256), "window": ggufgen.Gemma3(2, 27, 256, 300)} {
		for _, align := range []int{0, 1} { // with 1, a window has a row more
			r := newRig(t, file, llama.ContextOptions{Tokens: 1024, Sequences: 1}, db.Options{Codec: quant.Raw})
			prompt := kv.Tokens(randomTokens(1, tokens)...)
			c := r.context()
			s := r.attach(c, func(o *llamacpp.Options) { o.Align = align })
			kit.EvaluateAndSave(t, s, prompt, 0, 0)
			var states [][]byte
			for _, used := range []byte{0, 0xff} {
				s.Trim()
				if used != 0 {
					for _, n := range []int{large, 60 << 20} {
						b := largemem.Make(n)
						for i := range b[:cap(b)] {
							b[:cap(b)][i] = used
						}
						largemem.Free(b)
					}
				}
				r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
				got, err := s.Restore(context.Background(), prompt, 0)
				if err != nil || got.Tokens == 0 {
					t.Fatalf("%s: restored %d tokens: %v %v", name, got.Tokens, got.Reason, err)
				}
				state := make([]byte, r.api.StateSize(c.Pointer(), 0, 0))
				r.api.StateGet(c.Pointer(), &state[0], uintptr(len(state)), 0, 0)
				states = append(states, state)
				if got.Bytes < large {
					t.Fatalf("%s: a state of %d bytes has memory of the session's own", name, got.Bytes)
				}
				if !bytes.Equal(state, states[0]) {
					t.Errorf("%s: a state restored into used memory differs", name)
				}
			}
			c.Close()
		}
	}
}
