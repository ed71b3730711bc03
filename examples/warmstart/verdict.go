package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/quant"
)

// leastSameTop1 is the share of the steps at which a warm start from Q8_0, fed with the reference's tokens, must like the
// same word best. INT8 moves a score by 0.5 % of the spread of all scores. The two best of a thousand random words are
// 30 % of that spread apart on average, but now and then hardly at all: with twelve seeds, 1 % of the steps tipped over
// (0 to 2 of 64). One spoiled row tips over most of them.
const leastSameTop1 = 0.95

// measured is what came of one codec.
type measured struct {
	codec      quant.Codec
	cold, warm answer
	diskBytes  int64 // allocated to all files of the store, after the warm start
}

func (m measured) speedUp() float64 {
	return float64(m.cold.firstToken()) / float64(m.warm.firstToken())
}

// outcome is everything that was measured.
type outcome struct {
	seed      uint64
	reference answer // never killed, no store
	raw, q8   measured
	control   answer // Raw, with one row spoiled
}

func (o *outcome) rawIdentical() bool {
	return sameTokens(o.raw.warm.Best, o.reference.Best) == len(o.reference.Best) &&
		o.raw.warm.Logits == o.reference.Logits
}

func (o *outcome) q8SameTop1() float64 {
	return float64(sameTokens(o.q8.warm.Best, o.reference.Best)) / float64(len(o.reference.Best))
}

// controlAt is the first step at which the spoiled row changed the text; the number of steps if it did not.
func (o *outcome) controlAt() int {
	for i, t := range o.control.Best {
		if t != o.reference.Best[i] {
			return i
		}
	}
	return len(o.control.Best)
}

func (o *outcome) controlDiffers() bool { return o.controlAt() < len(o.reference.Best) }

// failures says what of all that has to hold does not.
func (o *outcome) failures() []string {
	bad := []string{}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	for _, m := range []measured{o.raw, o.q8} {
		check(m.cold.Reused == 0, "%s: the cold start found %d tokens", m.codec, m.cold.Reused)
		check(m.warm.Reused == m.warm.PromptTokens-1, "%s: the warm start found %d tokens of the first %d",
			m.codec, m.warm.Reused, m.warm.PromptTokens-1)
	}
	check(o.rawIdentical(), "raw: the continuation is not that of the run that was never killed")
	check(o.q8SameTop1() >= leastSameTop1, "q8_0: same top word in %.3f of the steps, want %.2f", o.q8SameTop1(), leastSameTop1)
	check(o.control.Reused == o.raw.warm.Reused, "control: found %d tokens, want %d", o.control.Reused, o.raw.warm.Reused)
	check(o.controlDiffers(), "control: a spoiled row changed nothing, so that \"identical\" means nothing")
	check(!loops(o.reference.Best), "the continuation is a loop, so that \"identical\" means little")
	return bad
}

// sameTokens counts the steps at which a and b agree.
func sameTokens(a, b []int32) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			n++
		}
	}
	return n
}

// loops reports whether the text repeats itself: the last half has a period of at most 8, or fewer than a third of the
// tokens are different ones.
func loops(text []int32) bool {
	distinct := map[int32]bool{}
	for _, t := range text {
		distinct[t] = true
	}
	if 3*len(distinct) < len(text) {
		return true
	}
	tail := text[len(text)/2:]
	for period := 1; period <= 8 && 2*period <= len(tail); period++ {
		if sameTokens(tail, tail[period:]) == len(tail)-period {
			return true
		}
	}
	return false
}

// table prints what a person wants to know.
func (o *outcome) table(w io.Writer) {
	row := func(label, raw, q8, note string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-24s %14s %14s   %s", label, raw, q8, note), " "))
	}
	line := func(label string, cell func(m measured) string, note string) {
		row(label, cell(o.raw), cell(o.q8), note)
	}
	steps := len(o.reference.Best)
	identical, control := "DIFFERENT", "NOTHING CHANGED"
	if o.rawIdentical() {
		identical = "identical"
	}
	if o.controlDiffers() {
		control = fmt.Sprintf("other from %d on", o.controlAt()+1)
	}

	row("", o.raw.codec.String(), o.q8.codec.String(), "")
	line("prompt tokens", func(m measured) string { return fmt.Sprint(m.warm.PromptTokens) }, "")
	line("reused after the kill", func(m measured) string { return fmt.Sprint(m.warm.Reused) }, "all but the last, which gives the first new word")
	line("cold time to first token", func(m measured) string { return duration(m.cold.firstToken()) }, "open an empty store, compute the whole prompt")
	line("warm time to first token", func(m measured) string { return duration(m.warm.firstToken()) }, "the sum of these three:")
	line("  open the store", func(m measured) string { return duration(m.warm.Open) }, "that a killed process left behind")
	line("  match and restore", func(m measured) string { return duration(m.warm.Restore) }, "rows into the model's memory, all checksums compared")
	line("  compute one token", func(m measured) string { return duration(m.warm.Compute) }, "")
	line("speed-up", func(m measured) string { return fmt.Sprintf("%.0f x", m.speedUp()) }, "making the weights is in neither time")
	line("rows in memory, f16", func(m measured) string { return megabytes(m.warm.F16Bytes) }, "")
	line("records on disk", func(m measured) string { return share(m.cold.SavedBytes, m.warm.F16Bytes) }, "with tokens and checksums")
	line("whole store on disk", func(m measured) string { return share(m.diskBytes, m.warm.F16Bytes) }, "with index, log and the room kept for it")
	row("continuation", identical, fmt.Sprintf("%d of %d", sameTokens(o.q8.warm.Best, o.reference.Best), steps),
		fmt.Sprintf("%d tokens with all logits, bit by bit; q8_0: same best word", steps))
	row("control", control, "", "one spoiled row must change the text")
}

func duration(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s ", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", 1e3*d.Seconds())
}

func megabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/1e6) }

func share(n, of int64) string {
	return fmt.Sprintf("%.2f MB %3.0f%%", float64(n)/1e6, 100*float64(n)/float64(of))
}
