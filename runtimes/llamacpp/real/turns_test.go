//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// Thirty turns of a chat with models whose states cannot be cut, each in a context of its own: every turn goes on from the end of the
// one before, the same prompt again and one that ends otherwise reuse all but its end, at most four states stay, and the logits
// are those of the whole prompt evaluated at once. -v prints what is written, as a multiple of the final state.
func TestThirtyTurns(t *testing.T) {
	ctx := context.Background()
	const turns = 30
	mamba, jamba := ggufgen.Mamba(4, 2), ggufgen.Jamba(5, 4)
	for _, x := range []struct {
		name            string
		file            []byte
		asked, answered int
		most            float64 // written, of the final state
	}{
		{"opaque (mamba), short turns", mamba, 44, 16, 1.3 * turns},
		{"opaque (mamba), longer turns", mamba, 100, 20, 2.5 * turns},
		{"hybrid (jamba), short turns", jamba, 44, 16, 4},
		{"hybrid (jamba), longer turns", jamba, 100, 20, 4},
	} {
		name, asked, answered := x.name, x.asked, x.answered
		if testing.Short() && asked > 64 {
			continue
		}
		// Flash attention would take most of the time, and TestArchitectures has it.
		r := newRig(t, x.file, llama.ContextOptions{Tokens: 4096, FlashAttention: ref(false)}, db.Options{Codec: quant.Raw})
		tokens := randomTokens(1, turns*(asked+answered))
		var written, whole, final int64
		at := 0
		for turn := range turns {
			c := r.context()
			s := r.attach(c, nil)
			prompt := kv.Tokens(tokens[:at+asked]...)
			got, err := s.Restore(ctx, prompt, 0)
			if err != nil || got.Tokens != at {
				t.Fatalf("%s, turn %d: restored %d tokens of %d: %v %v", name, turn, got.Tokens, at, got.Reason, err)
			}
			if err := s.Prefill(ctx, prompt, at, 0); err != nil {
				t.Fatal(err)
			}
			for at += asked; at < (turn+1)*(asked+answered); at++ {
				if err := c.Decode(tokens[at:at+1], at, 0); err != nil {
					t.Fatal(err)
				}
			}
			put, err := s.Save(ctx, kv.Tokens(tokens[:at]...), 0)
			if err != nil {
				t.Fatal(err)
			}
			final = int64(r.api.StateSize(c.Pointer(), 0, 0))
			written += put.Bytes
			whole += final
			if turn == turns-1 {
				d := difference(r.prefilled(kv.Tokens(tokens[:at]...), 0), c.Logits(-1))
				t.Logf("%s: logits differ by %.2g of their spread from those of one prefill", name, d)
				if d > 0.005 {
					t.Errorf("%s: logits differ by %g", name, d)
				}
			}
			c.Close()
		}
		c := r.context()
		s := r.attach(c, nil)
		states := 0
		for n := at; n > 0; n-- {
			found, _, err := s.Model().Probe(ctx, kv.Tokens(tokens[:n]...), db.MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if n = found; n > 0 {
				states++
			}
		}
		t.Logf("%s: %d turns of %d tokens wrote %.1f times the final state of %d bytes; its whole at every turn, %.1f times; %d states stay",
			name, turns, asked+answered, float64(written)/float64(final), final, float64(whole)/float64(final), states)
		if states == 0 || states > 4 {
			t.Errorf("%s: %d states on the way of one prompt", name, states)
		}
		if float64(written) > x.most*float64(final) {
			t.Errorf("%s: %d bytes were written, more than %.0f times the final state", name, written, x.most)
		}
		// the answer once more, the question asked otherwise at its end, and the end of the turn before
		edited := append(append([]kv.Token(nil), tokens[:at-answered-2]...), 5, 4, 3)
		for _, prompt := range [][]kv.Token{tokens[:at-answered], edited} {
			got, err := s.Restore(ctx, kv.Tokens(prompt...), 0)
			want := at - answered - 4
			if asked < 64+4 { // the end of the turn before is near enough
				want = at - answered - asked
			}
			if err != nil || got.Tokens != want {
				t.Errorf("%s: of a prompt of %d tokens %d are restored, want %d: %v %v", name, len(prompt), got.Tokens, want, got.Reason, err)
			}
			r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
		}
		edited = append(append([]kv.Token(nil), tokens[:at-answered-20]...), 5, 4, 3)
		got, err := s.Restore(ctx, kv.Tokens(edited...), 0)
		if want := at - answered - asked; err != nil || got.Tokens != want {
			t.Errorf("%s: another question: %d tokens are restored, want %d: %v %v", name, got.Tokens, want, got.Reason, err)
		}
	}
}

// A long prompt leaves states on its way, no more than four, at the ends of batches; a shorter one two near its end.
func TestStatesOfLongPrompt(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"opaque (mamba)": ggufgen.Mamba(4, 2), "hybrid (jamba)": ggufgen.Jamba(5, 4)} {
		r := newRig(t, file, llama.ContextOptions{Tokens: 8192, Batch: 256, MicroBatch: 256}, db.Options{Codec: quant.Raw})
		tokens := randomTokens(1, 6000)
		prompt := kv.Tokens(tokens...)
		c := r.context()
		s := r.attach(c, nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
		for n, want := range map[int]int{6000: 5996, 5990: 5120, 5000: 512, 600: 512, 512: 0} {
			got, err := s.Restore(ctx, kv.Tokens(tokens[:n]...), 0)
			if err != nil || got.Tokens != want {
				t.Errorf("%s: of a prompt of %d tokens %d are restored, want %d: %v %v", name, n, got.Tokens, want, got.Reason, err)
			}
			r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
		}
		other := kv.Tokens(randomTokens(2, 200)...)
		kit.EvaluateAndSave(t, s, other, 0, 0)
		r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
		for n, want := range map[int]int{201: 200, 200: 196, 190: 132, 132: 0} {
			prompt := kv.Tokens(append(append([]kv.Token(nil), other.Tokens[:min(n, 200)]...), 1)[:n]...)
			got, err := s.Restore(ctx, prompt, 0)
			if err != nil || got.Tokens != want {
				t.Errorf("%s: of a prompt that shares %d of 200 tokens %d are restored, want %d: %v %v", name, n, got.Tokens, want, got.Reason, err)
			}
			r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
		}
	}
}

// The negative control: a recurrent state with some of its last bytes changed shows in the logits.
func TestSpoiltState(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"opaque (mamba)": ggufgen.Mamba(4, 2), "hybrid (jamba)": ggufgen.Jamba(5, 4)} {
		r := newRig(t, file, llama.ContextOptions{}, db.Options{Codec: quant.Raw})
		prompt := kv.Tokens(randomTokens(1, 100)...)
		s := r.attach(r.context(), nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		cold := r.prefilled(prompt, 0)
		lib := *r.api
		spoil := false
		lib.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
			if blob := kit.BytesAt(src, n); spoil {
				clear(blob[len(blob)-4096:])
			}
			return r.api.StateSet(c, src, n, sequence, flags)
		}
		c := r.context()
		s = r.withLibrary(&lib).attach(c, nil)
		spoil = true
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil || got.Tokens != 96 {
			t.Fatalf("%s: restored %d: %v %v", name, got.Tokens, got.Reason, err)
		}
		if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		if difference(cold, c.Logits(-1)) == 0 {
			t.Errorf("%s: zeros in its state do not change the logits", name)
		}
	}
}

// Damage in a hybrid's records, of rows or of a state: an earlier state is restored, or none, and nothing wrong.
func TestDamagedHybrid(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(5, 6))
	seen := map[int]int{}
	for range 8 {
		r := newRig(t, ggufgen.Jamba(5, 4), llama.ContextOptions{Sequences: 2, Unified: true}, db.Options{Codec: quant.Raw})
		prompt := kv.Tokens(randomTokens(1, 300)...)
		s := r.attach(r.context(), kit.Small)
		for _, part := range [][2]int{{0, 128}, {128, 300}} {
			if err := s.Prefill(ctx, prompt.Prefix(part[1]), part[0], 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, prompt, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			kit.Flip(t, r.store.Dir(), rng)
		}
		undo := piecesize.Set(20000)
		c := r.context()
		s = r.attach(c, kit.Small)
		got, err := s.Restore(ctx, prompt, 0)
		undo()
		if err != nil {
			t.Fatal(err)
		}
		seen[got.Tokens]++
		for i, want := range []int{got.Tokens, 0} {
			if n := int(r.api.SequenceMax(r.api.GetMemory(c.Pointer()), int32(i))) + 1; n != want {
				t.Fatalf("%d tokens are said, sequence %d holds %d", got.Tokens, i, n)
			}
		}
		if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		if d := difference(r.prefilled(prompt, 0), c.Logits(-1)); d > 0.005 {
			t.Errorf("restored %d tokens (%v): logits differ by %g", got.Tokens, got.Reason, d)
		}
	}
	t.Logf("restored tokens, and how often: %v", seen)
	if len(seen) < 2 {
		t.Error("no damage was ever met: the test shows nothing")
	}
}
