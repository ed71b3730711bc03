//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// step is one thing that a host does.
func (h *host) step() {
	i := h.rng.IntN(len(h.seqs))
	x := &h.seqs[i]
	mem, n := h.memory(), len(x.tokens)
	if n > 200 || h.have(i) != n { // it has no use for it any more, or llama.cpp calls a sequence empty that has rows
		h.api.SequenceRemove(mem, int32(i), -1, -1)
		h.emptied(i)
		return
	}
	switch op := h.rng.IntN(100); {
	case op < 16: // a prompt, from the store as far as it goes
		p := h.prompt(h.fresh())
		h.fails = n == 0 && h.chance(5)
		got, err := h.s.Restore(h.ctx, p, i)
		h.fails = false
		if errors.Is(err, errDecodeFails) {
			h.note("restore: %v", err)
			h.count["decode failed"]++
			if h.have(i) > 0 {
				h.fatal("a restore that failed left %d tokens", h.have(i))
			}
			return
		}
		if n > 0 {
			if !errors.Is(err, llamacpp.ErrNotEmpty) {
				h.fatal("restored into sequence %d, which has %d tokens: %v", i, n, err)
			}
			return
		}
		if err != nil {
			h.fatal("restore: %v", err)
		}
		h.note("restored %d of %d into %d", got.Tokens, len(p.Tokens), i)
		h.decoded()
		*x = holding{tokens: p.Tokens[:got.Tokens:got.Tokens], known: got.Tokens}
		if got.Tokens > 0 {
			h.count["restored"]++
			h.must(h.s.Prefill(h.ctx, p, got.Tokens, i))
			h.decoded()
			*x = holding{tokens: p.Tokens, known: len(p.Tokens)}
			h.judge("in place", p, h.on, got.Tokens, h.c)
		}
	case op < 30: // Prefill of more
		p := h.prompt(append(slices.Clone(x.tokens), randomTokens(h.rng.IntN(1e6), 1+h.rng.IntN(60))...))
		h.fails = h.chance(5)
		err := h.s.Prefill(h.ctx, p, n, i)
		h.fails = false
		h.note("prefilled %d from %d to %d: %v", i, n, len(p.Tokens), err)
		if errors.Is(err, errDecodeFails) {
			h.count["decode failed"]++
			h.decoded()
			x.tokens = p.Tokens[:h.have(i):h.have(i)]
			if n == 0 {
				x.told, x.untold = false, false
			}
			if x.taint != sound {
				x.taint = unseen
			} else if h.s.Mode() != llamacpp.Rows {
				x.taint = promised
			}
			return
		}
		if errors.Is(err, llamacpp.ErrLineage) && (x.taint != sound || x.untold) {
			return
		}
		if len(p.Tokens) > h.opt.Tokens/h.opt.Sequences && errors.Is(err, llamacpp.ErrTooLong) { // and nothing of it was evaluated
			return
		}
		h.must(err)
		shifted := x.taint == pending
		h.decoded()
		x.tokens = p.Tokens
		if n == 0 {
			x.told, x.untold = false, false
		}
		switch {
		case shifted && h.own() && !x.told:
			x.taint = ordered
		case x.taint == sound:
			x.known = len(p.Tokens)
		}
	case op < 44: // a loop of its own
		if x.taint == pending && h.chance(50) {
			h.save(i)
			return
		}
		h.evaluate(i, randomTokens(h.rng.IntN(1e6), 1+h.rng.IntN(50)))
		h.note("evaluated %d from %d to %d", i, n, len(x.tokens))
		if h.chance(30) {
			err := h.s.Capture(h.ctx, h.prompt(x.tokens), i)
			h.note("captured %d: %v", i, err)
			h.decoded()
		}
	case op < 62:
		h.save(i)
	case op < 68: // takes its end back, and says so
		to := h.rng.IntN(n + 1)
		if !h.api.SequenceRemove(mem, int32(i), int32(to), -1) {
			return
		}
		h.note("removed %d from %d on", i, to)
		x.tokens, x.known = x.tokens[:to:to], min(x.known, to)
		if to == 0 {
			h.emptied(i)
		}
		if err := h.s.Truncate(i, to); errors.Is(err, llamacpp.ErrLineage) {
			h.note("truncate: %v", err)
			x.taint = max(x.taint, promised)
		} else {
			h.must(err)
		}
	case op < 74 && len(h.seqs) > 1 && n > 0: // a copy
		to := (i + 1 + h.rng.IntN(len(h.seqs)-1)) % len(h.seqs)
		h.api.SequenceRemove(mem, int32(to), -1, -1)
		h.api.SequenceCopy(mem, int32(i), int32(to), -1, -1)
		h.note("copied %d to %d", i, to)
		h.seqs[to] = holding{tokens: x.tokens, taint: x.taint.lost(), told: true, shares: true}
		x.shares = true
		switch h.rng.IntN(4) {
		case 0: // and removes it again
			h.api.SequenceRemove(mem, int32(to), -1, -1)
			h.emptied(to)
		case 1: // or the source
			h.api.SequenceRemove(mem, int32(i), -1, -1)
			h.emptied(i)
			fallthrough
		default:
			h.must(h.s.Reset(to))
		}
	case op < 79 && n > 40: // a shift
		h.shift(i)
	case op < 81 && len(h.seqs) > 1: // keeps one
		h.keep(mem, int32(i))
		h.note("kept %d", i)
		for j := range h.seqs {
			if j != i { // of streams, llama.cpp keeps the attention rows of all
				h.api.SequenceRemove(mem, int32(j), -1, -1)
				h.emptied(j)
			}
		}
	case op < 83:
		h.clear(mem, h.chance(50))
		h.note("cleared")
		for j := range h.seqs {
			h.emptied(j)
		}
	case op < 86 && len(h.sets) > 1:
		set := h.rng.IntN(len(h.sets))
		h.must(h.s.SetAdapters(h.ctx, h.sets[set]...))
		h.note("adapters %d", set)
		h.decoded()
		for j := range h.seqs {
			if y := &h.seqs[j]; len(y.tokens) > 0 && set != h.on {
				y.taint = max(y.taint, promised)
			}
		}
		h.on = set
	case op < 89: // settings that change what is evaluated meanwhile, in a sequence that is thrown away
		if n > 0 {
			return
		}
		c := h.c.Pointer()
		h.causal(c, false)
		h.must(h.c.Decode(randomTokens(h.rng.IntN(1e6), 10), 0, i))
		h.causal(c, true)
		h.embed(c, h.chance(50))
		h.embed(c, false)
		h.threads(c, 1+int32(h.rng.IntN(2)), 1)
		h.api.SequenceRemove(mem, int32(i), -1, -1)
		h.decoded()
		h.note("not causal for a while")
	case op < 92 && n > 0: // a state, out and in
		b := h.state(i)
		if !h.api.SequenceRemove(mem, int32(i), -1, -1) {
			return
		}
		if got := h.api.StateSet(h.c.Pointer(), &b[0], uintptr(len(b)), int32(i), 0); int(got) != len(b) {
			h.fatal("llama.cpp does not take back sequence %d", i)
		}
		h.must(h.s.Reset(i))
		h.note("state of %d, out and in", i)
		x.taint, x.told, x.known, x.untold = x.taint.lost(), true, 0, false
		if !h.settledFor(i) {
			x.taint = unseen // a copy was due, and what was taken out was not it
		}
	case op < 93: // all of it, out and in
		c := h.c.Pointer()
		b := make([]byte, h.size(c))
		b = b[:h.get(c, unsafe.SliceData(b), uintptr(len(b)))]
		h.clear(mem, true)
		if got := h.set(c, unsafe.SliceData(b), uintptr(len(b))); int(got) != len(b) {
			h.note("llama.cpp does not take back its state")
			h.renew()
			return
		}
		h.note("whole state, out and in")
		for j := range h.seqs {
			if y := &h.seqs[j]; len(y.tokens) > 0 {
				h.must(h.s.Reset(j))
				y.taint, y.told, y.known, y.untold = y.taint.lost(), true, 0, false
				if !h.settledFor(j) {
					y.taint = unseen
				}
			}
		}
	case op < 94:
		h.must(h.s.Recheck(h.ctx, h.prompt(nil).Adapters...))
		h.note("rechecked")
		h.decoded()
	case op < 97:
		h.attach()
		h.note("attached again")
		if _, err := h.old[len(h.old)-1].Save(h.ctx, h.prompt(x.tokens), i); !errors.Is(err, llamacpp.ErrReplaced) {
			h.fatal("the session before: %v", err)
		}
	case op < 98:
		h.renew()
	case op < 99:
		h.s.Trim()
		h.s.Observe(i, 3, time.Millisecond)
	case len(h.tried) > 0:
		h.auditTried(h.rng.IntN(len(h.tried)))
	}
}

// shift does what programs do whose context is full: it removes tokens in the middle, and closes the gap. Or it divides positions.
func (h *host) shift(i int) {
	x := &h.seqs[i]
	var m = h.rig.memory(h.c)
	if !m.canShift(m.memory) {
		return
	}
	n := len(x.tokens)
	from := h.rng.IntN(n - 10)
	to := from + 1 + h.rng.IntN(n-from-2)
	if !h.api.SequenceRemove(m.memory, int32(i), int32(from), int32(to)) {
		return
	}
	h.add(m.memory, int32(i), int32(to), -1, int32(from-to))
	h.note("shifted %d: [%d, %d) went", i, from, to)
	seen := x.known >= n
	x.tokens, x.known = kit.Without(x.tokens, from, to), min(x.known, from)
	recurrent := h.api.IsRecurrent(h.api.GetModel(h.c.Pointer()))
	if x.taint == sound && (seen || !recurrent) { // a recurrent state has a position and no keys to be rotated: nothing tells of a shift but that position
		x.taint = pending
	} else {
		x.taint = unseen
	}
	for j := range h.seqs { // shared cells are shifted for all
		if y := &h.seqs[j]; !h.own() && x.shares && y.shares {
			y.taint = unseen
		}
	}
	if h.api.Window(h.api.GetModel(h.c.Pointer())) > 0 && h.have(i) != len(x.tokens) {
		x.taint = unseen
	}
}

// save asks for a sequence to be stored, if it is sound or the session promises to see that it is not, and audits what was tried.
func (h *host) save(i int) {
	x := &h.seqs[i]
	if x.taint == unseen || len(x.tokens) == 0 {
		return
	}
	p := h.prompt(x.tokens)
	if h.chance(20) {
		p.Tokens = p.Tokens[:1+h.rng.IntN(len(p.Tokens))]
	}
	lie := x.known > 20 && h.chance(10)
	if lie { // it says other tokens than the session knows
		p.Tokens = slices.Clone(p.Tokens)
		p.Tokens[h.rng.IntN(min(x.known, len(p.Tokens)))] ^= 1
	}
	h.fails = h.chance(3)
	put, err := h.s.Save(h.ctx, p, i)
	h.fails = false
	if errors.Is(err, errDecodeFails) {
		h.count["decode failed"]++
		err = h.s.Recheck(h.ctx, h.prompt(nil).Adapters...)
		h.must(err)
		h.decoded()
		return
	}
	h.note("saved %d tokens of %d (taint %d): %d, %v", len(p.Tokens), i, x.taint, put.Tokens, err)
	h.decoded()
	set := h.on
	switch {
	case err == nil:
		h.count["stored"]++
		if x.taint == sound {
			x.known = max(x.known, min(len(p.Tokens), len(x.tokens)))
		}
	case x.untold:
		h.count["saves of what was filled anew without a word refused"]++
	case x.taint == sound && !lie && len(p.Tokens) == len(x.tokens):
		h.count["sound rows refused"]++
		h.count[fmt.Sprint("sound: ", reasonOf(err))]++
		if os.Getenv("DORMOUSE_HOST_WHY") != "" {
			h.t.Logf("sound rows refused: %v\n%s", err, strings.Join(h.log[max(0, len(h.log)-12):], "\n"))
		}
	default:
		h.count["other saves refused"]++
	}
	p.Tokens = slices.Clone(p.Tokens)
	h.tried = append(h.tried, p)
	h.setOf(p, set)
	h.auditTried(len(h.tried) - 1)
	if len(h.tried) > 40 {
		h.tried = h.tried[20:]
	}
}

// reasonOf is the kind of an error.
func reasonOf(err error) string {
	for name, is := range map[string]error{"lineage": llamacpp.ErrLineage, "positions": llamacpp.ErrPositions, "identity": llamacpp.ErrIdentity, "refused": llamacpp.ErrRefused} {
		if errors.Is(err, is) {
			return name
		}
	}
	return err.Error()
}

// setOf checks that a prompt's adapters are those of a set.
func (h *host) setOf(p kv.Prompt, set int) {
	if len(p.Adapters) != len(h.sets[set]) {
		h.fatal("a prompt of set %d has %d adapters", set, len(p.Adapters))
	}
}

// auditTried audits a prompt that was said to be saved, with the adapters that it names.
func (h *host) auditTried(k int) {
	p := h.tried[k]
	set := 0
	for j := range h.sets {
		if len(h.sets[j]) > 0 && len(p.Adapters) > 0 && h.sets[j][0].Adapter == p.Adapters[0] {
			set = j
		}
	}
	h.audit(p, set)
}

// settledFor says whether no copy may be due in a sequence.
func (h *host) settledFor(i int) bool { return len(h.seqs) == 1 || h.opt.Unified }
