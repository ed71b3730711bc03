//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/conformance"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// What every runtime does: with full attention on trained weights, with windows on random ones.
func TestConformance(t *testing.T) {
	window := newRig(t, ggufgen.Gemma3(2, 7, 64, 40), windowed(9, 256, true), db.Options{Codec: quant.Raw})
	for name, k := range map[string]conformance.Kit{
		"plain":  {New: storiesRig(t, exact(5, 256)).chat, Vocabulary: 512, Tolerance: mostApart},
		"window": {New: window.chat, Vocabulary: ggufgen.Vocabulary, Tolerance: 1e-7},
	} {
		t.Run(name, func(t *testing.T) { conformance.Run(t, k) })
	}
}

// chat is a new context for the length of a test.
func (r *rig) chat(t testing.TB) chat.Runtime {
	q := *r
	q.t = t
	return q.runtime(nil)
}

// A view that leaves a turn out predicts what a sequence predicts from which the turn was removed, also after it was stored and loaded by
// ranges in another context; the sequence that the view was made of is as it was.
func TestView(t *testing.T) {
	r := storiesRig(t, exact(6, 512))
	tokens := realTokens(t, r.model, 240)
	const a, b, n = 60, 120, 200 // [a, b) is hidden
	visible := []kv.Range{{Start: 0, End: a}, {Start: b, End: n}}

	x := r.runtime(nil)
	x.say(0, 0, tokens[:n]...)
	x.copies(0, 1, visible...)
	view := x.say(1, n, tokens[n:220]...)

	y := r.runtime(nil)
	y.say(0, 0, tokens[:n]...)
	plain := y.say(0, n, tokens[n:220]...)
	y.removes(0, n, 220)
	y.removes(0, a, b)
	removed := y.say(0, n, tokens[n:220]...)

	like(t, "a view, and what is removed", removed, view)
	unlike(t, "a view, and all", plain, view)
	like(t, "what the view was made of", plain, x.say(0, n, tokens[n:220]...))

	// The rows of the view are those of other keys than those of the same tokens that saw all.
	p := recipe(tokens[:220], n, 1)
	x.stores(p, 0, 0, n)
	x.stores(p, 1, n, 210)
	x.stores(p, 1, 210, 220)
	next := x.say(1, 220, tokens[220:]...)
	for name, p := range map[string]kv.Prompt{"no span": kv.Tokens(tokens...), "another span": recipe(tokens, n, 2)} {
		z := r.runtime(nil)
		z.loads(p, 0, n, kv.Range{Start: n, End: 220})
		if z.say(0, 3000, tokens[0]); t.Failed() {
			t.Fatal(name)
		}
	}
	z := r.runtime(nil)
	z.loads(recipe(tokens, n, 1), 2, 220, kv.Range{Start: b, End: 240}, kv.Range{Start: 0, End: a}, kv.Range{Start: 230, End: 250})
	like(t, "loaded by ranges", next, z.say(2, 220, tokens[220:]...))
	z.loads(recipe(tokens, n, 1), 2, 220, kv.Range{Start: a, End: b}) // shown again
	z.removes(2, 220, 240)
	unlike(t, "with the hidden turn", next, z.say(2, 220, tokens[220:]...))
}

// Positions may have holes of any size, and begin anywhere, in as few cells as there are rows.
func TestHole(t *testing.T) {
	r := storiesRig(t, exact(3, 256))
	tokens := realTokens(t, r.model, 100)
	x := r.runtime(nil)
	x.say(0, 0, tokens[:4]...)
	x.say(1, 3000, tokens[4:60]...)
	x.copies(1, 0, kv.Range{Start: 3000, End: 3056})
	x.say(0, 3056, tokens[60:]...)

	// Attention sees distances only: what lies behind the hole predicts the same somewhere else.
	y := r.runtime(nil)
	want := y.say(0, 0, tokens[4:60]...)
	x.removes(1, 3050, 3056)
	like(t, "at position 3,000", want, x.say(1, 3050, tokens[54:60]...))
	for name, step := range map[string]kv.Step{
		"behind a gap": {Seq: 0, Pos: 3097}, "in the middle": {Seq: 0, Pos: 100}, "before the beginning": {Seq: 1, Pos: 2999}, "there already": {Seq: 1, Pos: 3055},
		"negative": {Seq: 0, Pos: -1}, "beyond all": {Seq: 0, Pos: 1 << 40}, "beyond all that there are": {Seq: 1, Pos: 1 << 24},
	} {
		if err := x.Decode(context.Background(), []kv.Step{step}); !errors.Is(err, llamacpp.ErrPositions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Branches that are decoded in one batch predict what each predicts alone, and a batch may want the logits of any of its steps.
func TestBranches(t *testing.T) {
	r := storiesRig(t, exact(10, 512))
	tokens := realTokens(t, r.model, 200)
	x, y := r.runtime(nil), r.runtime(nil)
	const n, branches = 100, 8
	x.say(0, 0, tokens[:n]...)
	y.say(0, 0, tokens[:n]...)
	var batch []kv.Step
	for b := range branches {
		x.copies(0, 1+b, kv.Range{Start: 0, End: n})
	}
	for i := range 10 { // 80 steps, more than n_batch of 32
		for b := range branches {
			batch = append(batch, kv.Step{Token: tokens[n+10*b+i], Pos: n + i, Seq: 1 + b, Logits: i%3 == 0})
		}
	}
	if err := x.Decode(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	for b := range branches {
		y.copies(0, 1, kv.Range{Start: 0, End: n})
		for i := range 10 {
			want, got := y.say(1, n+i, tokens[n+10*b+i]), x.Logits(i*branches+b)
			if i%3 != 0 {
				if got != nil {
					t.Errorf("logits that were not asked for")
				}
				continue
			}
			like(t, fmt.Sprintf("branch %d, step %d", b, i), want, got)
		}
		y.removes(1, 0, n+10)
	}
	if x.Logits(-1) != nil || x.Logits(len(batch)) != nil {
		t.Error("logits of no step")
	}
}

// A batch that has no room changes nothing, whichever part of it that is; what is loaded neither.
func TestFull(t *testing.T) {
	ctx := context.Background()
	for name, r := range map[string]*rig{
		"plain":  storiesRig(t, exact(5, 256)),
		"window": newRig(t, ggufgen.Gemma3(2, 7, 64, 40), windowed(5, 256, true), db.Options{Codec: quant.Raw}),
	} {
		tokens := randomTokens(1, 300)
		x, y := r.runtime(nil), r.runtime(nil)
		x.say(0, 0, tokens[:150]...)
		x.copies(0, 1, kv.Range{Start: 0, End: 50}, kv.Range{Start: 140, End: 150})
		x.say(1, 150, tokens[100:150]...)
		x.stores(kv.Tokens(tokens...), 0, 0, 150)
		before := positions(t, r, x.c)
		if err := x.Decode(ctx, append(stepsOf(1, 200, tokens[150:180]...), stepsOf(0, 150, tokens[150:177]...)...)); !errors.Is(err, kv.ErrFull) { // 57 in 56 cells, in two batches
			t.Fatalf("%s: %v", name, err)
		}
		if after := positions(t, r, x.c); !slices.Equal(before, after) {
			t.Errorf("%s: the sequences have\n%s\nthey had\n%s", name, after, before)
		}
		if x.Logits(0) != nil {
			t.Errorf("%s: logits of what was not evaluated", name)
		}
		if n, err := x.Load(ctx, kv.Tokens(tokens...), 1, []kv.Range{{Start: 50, End: 100}, {Start: 200, End: 260}}); err != nil || n != 150 {
			t.Fatalf("%s: %d, %v", name, n, err)
		}
		before = positions(t, r, x.c)
		var other int
		if x.Limits().Sequences > 2 {
			other = 2
			if n, err := x.Load(ctx, kv.Tokens(tokens...), other, []kv.Range{{Start: 0, End: 4}, {Start: 100, End: 103}}); n != 0 || !errors.Is(err, kv.ErrFull) { // 7 in 6 cells
				t.Fatalf("%s: %d, %v", name, n, err)
			}
			if after := positions(t, r, x.c); !slices.Equal(before, after) {
				t.Errorf("%s: after a load that failed the sequences have\n%s\nthey had\n%s", name, after, before)
			}
		}
		// What has room goes on as if nothing had been.
		y.say(0, 0, tokens[:150]...)
		want, got := y.say(0, 150, tokens[150:156]...), x.say(0, 150, tokens[150:156]...)
		like(t, name, want, got)
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		y.removes(0, 150, 156)
		before = positions(t, r, y.c)
		if err := y.Decode(canceled, stepsOf(0, 150, tokens[150:156]...)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if after := positions(t, r, y.c); !slices.Equal(before, after) {
			t.Errorf("%s: after it was cancelled %s, before %s", name, after, before)
		}
	}
}

// windowed is a context in which a window model does not lose rows, if full.
func windowed(sequences, tokens int, full bool) llama.ContextOptions {
	o := exact(sequences, tokens)
	o.FullWindow = full
	return o
}

// positions are what llama.cpp says of all sequences: the first and the last position, and a hash of the state.
func positions(t testing.TB, r *rig, c *llama.Context) (out []string) {
	t.Helper()
	for i := range int32(r.opt.Sequences) {
		b := make([]byte, r.api.StateSize(c.Pointer(), i, 0))
		r.api.StateGet(c.Pointer(), &b[0], uintptr(len(b)), i, 0)
		out = append(out, fmt.Sprintf("%d: to %d, %d bytes %x", i, r.api.SequenceMax(r.api.GetMemory(c.Pointer()), i), len(b), sha256.Sum256(b)))
	}
	return out
}

// Rows of window layers stay where turns were evicted and others took their cells, though llama.cpp alone takes them away from behind a sequence, with
// swa_full, too: a rewind predicts what it would have, and old rows can be stored.
func TestWindowRowsStay(t *testing.T) {
	r := newRig(t, ggufgen.Gemma3(2, 7, 64, 40), windowed(6, 512, true), db.Options{Codec: quant.Raw})
	tokens := randomTokens(1, 500)
	x, y := r.runtime(nil), r.runtime(nil)
	x.say(0, 0, tokens[:300]...)
	x.stores(kv.Tokens(tokens...), 0, 0, 60)
	x.removes(0, 50, 60)
	x.say(0, 300, tokens[300:400]...) // in the cells that were freed, and on
	y.say(0, 0, tokens[:160]...)
	y.removes(0, 50, 60)
	x.stores(recipe(tokens, 60, 1), 0, 60, 400) // as if they had seen what they did
	x.removes(0, 120, 400)
	y.removes(0, 120, 160)
	want := y.say(0, 120, tokens[450:]...)
	like(t, "after a rewind", want, x.say(0, 120, tokens[450:]...))

	z := r.runtime(nil)
	z.loads(recipe(tokens, 60, 1), 1, 400, kv.Range{Start: 0, End: 50}, kv.Range{Start: 60, End: 120})
	likeTo(t, "loaded, in cells of another order", 1e-7, want, z.say(1, 120, tokens[450:]...))

	// Negative control: the same by llama.cpp alone.
	c := r.context()
	memory := r.api.GetMemory(c.Pointer())
	r.decode(c, tokens[:300], 0, 32)
	r.api.SequenceRemove(memory, 0, 50, 60)
	r.decode(c, tokens[:400], 300, 32)
	r.api.SequenceRemove(memory, 0, 120, -1)
	r.decode(c, append(slices.Clone(tokens[:120]), tokens[450:]...), 120, 32)
	unlike(t, "by llama.cpp alone", want, c.Logits(-1))
}

// What a context cannot do is said, and nothing is tried there that would end the process.
func TestMissing(t *testing.T) {
	ctx := context.Background()
	_, api := library(t)
	plain, window := ggufgen.LLaMA(1, 2, 64), ggufgen.Gemma3(2, 7, 64, 40)
	lies, lacks, alone := *api, *api, *api
	lies.SequenceRemove = func(memory uintptr, seq, from, to int32) bool { // as on recurrent models
		return from > 0 || api.SequenceRemove(memory, seq, from, to)
	}
	alone.SequenceCopy = func(memory uintptr, from, to, p0, p1 int32) { api.SequenceCopy(memory, from, to, -1, -1) }
	lacks.SequenceCopy = nil
	for _, x := range []struct {
		name string
		file []byte
		o    llama.ContextOptions
		api  *llamacpp.Library
		want string // in Limits.Missing; empty: nothing is missing
	}{
		{"recurrent (mamba)", ggufgen.Mamba(4, 2), llama.ContextOptions{Sequences: 4, Unified: true}, nil, "recurrent"},
		{"hybrid (jamba)", ggufgen.Jamba(5, 4), llama.ContextOptions{Sequences: 4, Unified: true}, nil, "recurrent"},
		{"hybrid of convolutions (lfm2)", ggufgen.LFM2(8, 4), llama.ContextOptions{Sequences: 4, Unified: true}, nil, "recurrent"},
		{"M-RoPE (qwen2vl)", ggufgen.Qwen2VL(6, 2), llama.ContextOptions{Sequences: 4, Unified: true}, nil, "more than one dimension"},
		{"streams", plain, llama.ContextOptions{Sequences: 4}, nil, "kv_unified"},
		{"streams, window", window, llama.ContextOptions{Sequences: 4, FullWindow: true}, nil, "kv_unified"},
		{"one sequence", plain, llama.ContextOptions{Sequences: 1}, nil, "n_seq_max"},
		{"two sequences, window", window, llama.ContextOptions{Sequences: 2, Unified: true, FullWindow: true}, nil, "n_seq_max"},
		{"window without swa_full", window, llama.ContextOptions{Tokens: 1000, Sequences: 4, Unified: true}, nil, "swa_full"},
		{"seq_rm that does nothing", plain, llama.ContextOptions{Sequences: 4, Unified: true}, &lies, "llama_memory_seq_rm"},
		{"seq_cp of all", plain, llama.ContextOptions{Sequences: 4, Unified: true}, &alone, "llama_memory_seq_cp"},
		{"no seq_cp", plain, llama.ContextOptions{Sequences: 4, Unified: true}, &lacks, "llama_memory_seq_cp"},
		{"plain", plain, llama.ContextOptions{Tokens: 1000, Sequences: 2, Unified: true}, nil, ""},
		{"window", window, llama.ContextOptions{Tokens: 1000, Sequences: 3, Unified: true, FullWindow: true}, nil, ""},
		{"window whose cells are as many anyway", window, llama.ContextOptions{Tokens: 256, Sequences: 3, Unified: true}, nil, ""},
		{"latent", ggufgen.DeepSeek2(3, 3), llama.ContextOptions{Sequences: 2, Unified: true}, nil, ""},
	} {
		r := newRig(t, x.file, x.o, db.Options{Codec: quant.Raw})
		if x.api != nil {
			r = r.withLibrary(x.api)
		}
		y := r.runtime(nil)
		l := y.Limits()
		if (l.Missing == "") != (x.want == "") || !strings.Contains(l.Missing, x.want) {
			t.Errorf("%s: missing is %q, want %q", x.name, l.Missing, x.want)
			continue
		}
		t.Logf("%s: %+v", x.name, l)
		prompt := kv.Tokens(randomTokens(1, 40)...)
		some := kv.Range{Start: 0, End: 20}
		_, loaded := y.Load(ctx, prompt, 0, []kv.Range{some})
		for what, err := range map[string]error{
			"decode": y.Decode(ctx, stepsOf(0, 0, prompt.Tokens...)), "copy": y.Copy(0, 0, some), "remove": y.Remove(0, kv.Range{Start: 1, End: 2}),
			"load": loaded, "store": y.Store(ctx, prompt, 0, kv.Range{}),
		} {
			if x.want != "" && (!errors.Is(err, kv.ErrUnsupported) || !strings.Contains(err.Error(), l.Missing)) || x.want == "" && err != nil && what != "load" {
				t.Errorf("%s: %s: %v", x.name, what, err)
			}
		}
		want := kv.Limits{Cells: l.Cells, Batch: batchTokens, Trained: l.Trained, Vocabulary: l.Vocabulary, Window: l.Window, Missing: l.Missing}
		if x.want == "" {
			want.Sequences = 1
		}
		if l != want || l.Cells < r.opt.Tokens || l.Trained == 0 || l.Vocabulary == 0 || (l.Window == 40) != strings.Contains(x.name, "window") {
			t.Errorf("%s: limits are %+v", x.name, l)
		}
		for i := range int32(r.opt.Sequences) {
			if n := int(api.SequenceMax(api.GetMemory(y.c.Pointer()), i)); n != -1 && (i != 0 || x.want != "") && l.Window == 0 && x.api != &lies {
				t.Errorf("%s: sequence %d ends at %d", x.name, i, n)
			}
		}
	}
}
