//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"syscall"
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
	conversationOnGemma(t, 560, 5, func(what string, ms float64) { t.Logf("%s: %.2f ms", what, ms) })
}

// BenchmarkConversation says what the parts of a conversation of 1,500 tokens take on Gemma 3 270M.
func BenchmarkConversation(b *testing.B) {
	for b.Loop() {
		conversationOnGemma(b, 1500, 20, func(what string, ms float64) {
			b.ReportMetric(ms, strings.NewReplacer(" ", "_", ",", "").Replace(what)+"_ms")
		})
	}
}

// processorTime is what the process has computed, whatever else the machine does.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func conversationOnGemma(t testing.TB, n, rounds int, took func(what string, ms float64)) {
	ctx := context.Background()
	lib, api := library(t)
	path := realModel(t)
	o := llama.ContextOptions{Tokens: 4096, Sequences: 4, Unified: true, Batch: 512, MicroBatch: 512, Threads: 1}
	r := rigFor(t, lib, api, path, o, db.Options{Codec: quant.Raw})
	if l := r.runtime(nil).Limits(); !strings.Contains(l.Missing, "swa_full") {
		t.Errorf("without swa_full: %+v", l)
	}
	r.opt.FullWindow, r.opt.Sequences, r.opt.Tokens = true, 21, 2048 // 10 for the caller
	tokens := realTokens(t, r.model, n+160)
	p := kv.Tokens(tokens...)

	best := func(what string, times int, f func(i int)) { // other work disturbs all but the best
		least, processor := math.Inf(1), math.Inf(1)
		for i := range times {
			start, before := time.Now(), processorTime(t)
			f(i)
			least, processor = min(least, time.Since(start).Seconds()*1e3), min(processor, (processorTime(t)-before).Seconds()*1e3)
		}
		took(what, least)
		took(what+", processor", processor)
	}
	c := r.context()
	s := r.attach(c, nil)
	var x *talker
	best("runtime", 1, func(int) { x = r.hold(c, s) })
	if l := x.Limits(); l.Missing != "" || l.Sequences != 10 || l.Cells != 2048 || l.Window != 512 || l.Trained != 32768 {
		t.Fatalf("%+v", l)
	}
	best("evaluate all", 1, func(int) { x.say(0, 0, tokens[:n]...) })
	x.stores(p, 0, 0, n)
	best("store 100 rows", 10, func(i int) { x.stores(recipe(tokens[:n], n-100, byte(i)), 0, n-100, n) })

	memory := api.GetMemory(c.Pointer())
	buf := make([]byte, api.StateSize(c.Pointer(), 0, 0))
	get := func(seq int32) { api.StateGet(c.Pointer(), &buf[0], api.StateSize(c.Pointer(), seq, 0), seq, 0) }
	best("read the whole state", 20, func(int) { get(0) })
	best("read 100 rows", 20, func(int) {
		api.SequenceCopy(memory, 0, 20, int32(n-100), int32(n))
		get(20)
		api.SequenceRemove(memory, 20, -1, -1)
	})

	// A view that leaves turns out, here and loaded into another context.
	hidden := kv.Range{Start: 400, End: max(520, n-580)}
	visible := []kv.Range{{Start: 0, End: hidden.Start}, {Start: hidden.End, End: n}}
	best("copy a view", 10, func(int) {
		x.removes(1, 0, n)
		x.copies(0, 1, visible...)
	})
	y := r.runtime(nil)
	best(fmt.Sprintf("load %d rows", n-hidden.Len()), 10, func(int) {
		y.removes(3, 0, n)
		y.loads(p, 3, n, visible...)
	})
	saying := func(x *talker, seq int) (all [][]float32) {
		for i := n; i < n+20; i++ {
			all = append(all, x.say(seq, i, tokens[i]))
		}
		x.removes(seq, n, n+20)
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
	t.Logf("a view, and all: %v", logits.Compare(saying(x, 0), view))
	x.removes(0, hidden.Start, hidden.End)
	like("a view, and what is removed", view, saying(x, 0))

	// Eight branches, together and one by one.
	const branches = 8
	apart, together := make([][]float32, rounds*branches), make([][]float32, rounds*branches)
	step := func(i, b int) kv.Step { return kv.Step{Token: tokens[n+20*b+i], Pos: n + i, Seq: 2 + b, Logits: true} }
	for b := range branches {
		x.copies(0, 2+b, kv.Range{Start: 0, End: n})
	}
	best("8 branches one by one", rounds, func(i int) {
		for b := range branches {
			apart[i*branches+b] = x.say(2+b, n+i, step(i, b).Token)
		}
	})
	for b := range branches {
		x.removes(2+b, n, n+rounds)
	}
	best("8 branches in a batch", rounds, func(i int) {
		var steps []kv.Step
		for b := range branches {
			steps = append(steps, step(i, b))
		}
		if err := x.Decode(ctx, steps); err != nil {
			t.Fatal(err)
		}
		for b := range branches {
			together[i*branches+b] = x.Logits(b)
		}
	})
	like("eight branches in one batch", apart, together)
}
