//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// Turns that are saved in one buffer with other sequences, and so read in part, are restored as if they had never been: what is
// evaluated next has the logits of a context that saved nothing.
func TestTurnsInOneBuffer(t *testing.T) {
	library(t)
	ctx := context.Background()
	for _, arch := range architectures() {
		if arch.mode != llamacpp.Rows || arch.context.Sequences > 1 {
			continue
		}
		t.Run(arch.name, func(t *testing.T) {
			arch.context.Sequences, arch.context.Unified, arch.context.Tokens = 3, true, 1024
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			api, read := *r.api, 0
			get := api.StateGet
			api.StateGet = func(c uintptr, dst *byte, n uintptr, sequence int32, flags uint32) uintptr {
				if flags == 0 {
					read += int(n)
				}
				return get(c, dst, n, sequence, flags)
			}
			r.api = &api
			tokens := randomTokens(3, 400)
			c := r.context()
			s := r.attach(c, func(o *llamacpp.Options) { o.BlockTokens = 16 })
			if err := s.Prefill(ctx, kv.Tokens(randomTokens(4, 50)...), 0, 1); err != nil { // a neighbor
				t.Fatal(err)
			}
			whole := 0
			for from := 0; from < 400; from += 100 {
				prompt := kv.Tokens(tokens[:from+100]...)
				if err := s.Prefill(ctx, prompt, from, 0); err != nil {
					t.Fatal(err)
				}
				read = 0
				if got, err := s.Save(ctx, prompt, 0); err != nil || got.Tokens != from+100 {
					t.Fatalf("saved %d of %d: %v", got.Tokens, from+100, err)
				}
				if from == 0 {
					whole = read
				} else if read > 2*whole {
					t.Errorf("a turn of 100 tokens behind %d: %d bytes are read, for the first 100 it was %d", from, read, whole)
				}
			}
			want := r.evaluated(kv.Tokens(tokens...), s.BatchTokens(), 0)
			if d := difference(want, c.Logits(-1)); d > 0.005 { // cells lie elsewhere, beside a neighbor
				t.Errorf("saving changes the logits by %g", d)
			}
			for _, shared := range []int{399, 300, 250, 100, 37} {
				d := r.context()
				s := r.attach(d, func(o *llamacpp.Options) { o.BlockTokens = 16 })
				got, err := s.Restore(ctx, kv.Tokens(tokens[:shared+1]...), 2)
				if err != nil || got.Tokens != shared {
					t.Fatalf("restored %d of %d: %v %v", got.Tokens, shared, got.Reason, err)
				}
				if err := s.Prefill(ctx, kv.Tokens(tokens...), shared, 2); err != nil {
					t.Fatal(err)
				}
				if x := difference(want, d.Logits(-1)); x > 0.005 {
					t.Errorf("restored at %d: logits differ by %g of their spread", shared, x)
				}
				d.Close()
			}
		})
	}
}
