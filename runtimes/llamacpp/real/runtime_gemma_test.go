//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// A real model with windows: how far batches, cells and the store move its predictions. Its own noise is so large that it shows no small fault
// (TestView does).
func TestConversationOnGemma(t *testing.T) {
	conversationOnGemma(t, 560, func(what string, ms float64) { t.Logf("%s: %.2f ms", what, ms) })
}

// BenchmarkConversation says what the parts of a conversation of 1,500 tokens take on Gemma 3 270M.
func BenchmarkConversation(b *testing.B) {
	for b.Loop() {
		conversationOnGemma(b, 1500, func(what string, ms float64) { b.ReportMetric(ms, strings.ReplaceAll(what, " ", "_")+"_ms") })
	}
}

func conversationOnGemma(t testing.TB, n int, took func(what string, ms float64)) {
	ctx := context.Background()
	lib, api := library(t)
	path := realModel(t)
	o := llama.ContextOptions{Tokens: 4096, Sequences: 4, Unified: true, Batch: 512, MicroBatch: 512, Threads: 1}
	r := rigFor(t, lib, api, path, o, db.Options{Codec: quant.Raw})
	if l := r.runtime(nil).Limits(); !strings.Contains(l.Missing, "swa_full") {
		t.Errorf("without swa_full: %+v", l)
	}
	r.opt.FullWindow, r.opt.Sequences, r.opt.Tokens = true, 21, 2048 // 10 for the caller
	const branches = 8
	tokens := realTokens(t, r.model, n+160)
	p := kv.Tokens(tokens...)

	began := func() func(what string, times int) {
		start := time.Now()
		return func(what string, times int) {
			took(what, time.Since(start).Seconds()*1e3/float64(times))
		}
	}
	c := r.context()
	s := r.attach(c, nil)
	done := began()
	x := r.hold(c, s)
	done("runtime", 1)
	if l := x.Limits(); l.Missing != "" || l.Sequences != 10 || l.Cells != 2048 || l.Window != 512 || l.Trained != 32768 {
		t.Fatalf("%+v", l)
	}
	done = began()
	x.say(0, 0, tokens[:n]...)
	done("evaluate all", 1)
	x.stores(p, 0, 0, n-100)
	done = began()
	x.stores(p, 0, n-100, n)
	done("store 100 rows", 1)

	memory := api.GetMemory(c.Pointer())
	get := func(seq int32) int {
		b := make([]byte, api.StateSize(c.Pointer(), seq, 0))
		return int(api.StateGet(c.Pointer(), &b[0], uintptr(len(b)), seq, 0))
	}
	get(0)
	done = began()
	for range 10 {
		get(0)
	}
	done("read the whole state", 10)
	done = began()
	for range 10 {
		api.SequenceCopy(memory, 0, 20, int32(n-100), int32(n))
		get(20)
		api.SequenceRemove(memory, 20, -1, -1)
	}
	done("read 100 rows", 10)

	// A view that leaves turns out, here and loaded into another context.
	hidden := kv.Range{Start: 400, End: max(520, n-580)}
	visible := []kv.Range{{Start: 0, End: hidden.Start}, {Start: hidden.End, End: n}}
	done = began()
	x.copies(0, 1, visible...)
	done("copy a view", 1)
	y := r.runtime(nil)
	done = began()
	y.loads(p, 3, n, visible...)
	done(fmt.Sprintf("load %d rows", n-hidden.Len()), 1)
	y.loads(p, 4, n, kv.Range{Start: 0, End: 4}, kv.Range{Start: n - 1, End: n})
	saying := func(x *talker, seq int) (all [][]float32) {
		for i := n; i < n+20; i++ {
			all = append(all, slices.Clone(x.say(seq, i, tokens[i])))
		}
		return all
	}
	like := func(what string, want, got [][]float32) {
		l := logits.Compare(want, got)
		t.Logf("%s: %v", what, l)
		if !(l.MeanKL < 0.02) {
			t.Errorf("%s: mean KL %g", what, l.MeanKL)
		}
	}
	view := saying(x, 1)
	like("a view, loaded", view, saying(y, 3))
	x.removes(1, n, n+20)
	all := saying(x, 0)
	t.Logf("a view, and all: %v", logits.Compare(all, view))
	x.removes(0, n, n+20)
	x.removes(0, hidden.Start, hidden.End)
	like("a view, and what is removed", view, saying(x, 0))
	x.removes(0, n, n+20)

	// Eight branches, together and one by one.
	apart, together := make([][]float32, 5*branches), make([][]float32, 5*branches)
	for b := range branches {
		x.copies(0, 2+b, kv.Range{Start: 0, End: n})
	}
	token := func(b, i int) kv.Token { return tokens[n+20*b+i] }
	done = began()
	for i := range 5 {
		for b := range branches {
			apart[i*branches+b] = slices.Clone(x.say(2+b, n+i, token(b, i)))
		}
	}
	done("8 branches one by one", 5)
	for b := range branches {
		x.removes(2+b, n, n+5)
	}
	done = began()
	for i := range 5 {
		var steps []kv.Step
		for b := range branches {
			steps = append(steps, kv.Step{Token: token(b, i), Pos: n + i, Seq: 2 + b, Logits: true})
		}
		if err := x.Decode(ctx, steps); err != nil {
			t.Fatal(err)
		}
		for b := range branches {
			together[i*branches+b] = slices.Clone(x.Logits(b))
		}
	}
	done("8 branches in a batch", 5)
	like("eight branches in one batch", apart, together)
}
