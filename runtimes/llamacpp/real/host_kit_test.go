//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// hostCalls are what a host calls beside the session.
type hostCalls struct {
	add, div      func(memory uintptr, sequence, from, to, by int32)
	keep          func(memory uintptr, sequence int32)
	clear         func(memory uintptr, data bool)
	causal, embed func(c uintptr, on bool)
	threads       func(c uintptr, n, batch int32)
	size          func(c uintptr) uintptr
	get, set      func(c uintptr, b *byte, n uintptr) uintptr
	setLora       func(c uintptr, adapters *uintptr, n uintptr, scales *float32) int32
}

func (r *rig) hostCalls() (h hostCalls) {
	r.t.Helper()
	for name, f := range map[string]any{
		"llama_memory_seq_add": &h.add, "llama_memory_seq_div": &h.div, "llama_memory_seq_keep": &h.keep, "llama_memory_clear": &h.clear, "llama_set_causal_attn": &h.causal,
		"llama_set_embeddings": &h.embed, "llama_set_n_threads": &h.threads, "llama_state_get_size": &h.size, "llama_state_get_data": &h.get,
		"llama_state_set_data": &h.set, "llama_set_adapters_lora": &h.setLora,
	} {
		at, err := r.lib.Lookup(name)
		if err != nil {
			r.t.Fatal(err)
		}
		purego.RegisterFunc(f, at)
	}
	return h
}

// taint says why rows of a sequence are not those of its tokens, and whether the session promises to see that.
type taint int

const (
	sound    taint = iota
	pending        // shifted or divided, and nothing was decoded since
	ordered        // shifted, and tokens of the same sequence lie in the cells that were freed
	promised       // the session knows the tokens, or adapters, or that rows of a window are gone
	unseen         // nothing tells: a host does not save it
)

// holding is what a host knows of a sequence.
type holding struct {
	tokens []kv.Token
	taint  taint
	told   bool // since Reset its word is taken
	untold bool // filled anew without a word: what the session knew may be refused
	shares bool // cells with another one, in one buffer
	known  int  // the session knows so many of the tokens
}

// host is a program that does what it likes between the session's calls, but for what docs/llamacpp-checks.md says that nothing tells.
type host struct {
	*rig
	hostCalls
	ctx       context.Context
	rng       *rand.Rand
	c         *llama.Context
	s         *llamacpp.Session
	old       []*llamacpp.Session
	opaque    bool
	seqs      []holding
	sets      [][]llamacpp.Adapter
	on        int // which set the context has
	tried     []kv.Prompt
	cold      map[string][]float32
	log       []string
	fails     bool // the next decode does, halfway
	tolerance float64
	worst     float64
	seen      float64 // how far the control's logits were off
	count     map[string]int
}

func (h *host) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// fatal ends the test with what the host did.
func (h *host) fatal(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%s\nwhat the host did last:\n%s", fmt.Sprintf(format, args...), strings.Join(h.log[max(0, len(h.log)-40):], "\n"))
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.fatal("%v", err)
	}
}

func (h *host) memory() uintptr { return h.api.GetMemory(h.c.Pointer()) }

func (h *host) chance(percent int) bool { return h.rng.IntN(100) < percent }

// have is how many tokens llama.cpp says that a sequence has.
func (h *host) have(i int) int { return int(h.api.SequenceMax(h.memory(), int32(i))) + 1 }

// own says whether sequences have their cells for themselves.
func (h *host) own() bool { return len(h.seqs) == 1 || !h.opt.Unified }

// decoded notes that something was evaluated: what was put off has been done.
func (h *host) decoded() {
	for i := range h.seqs {
		if s := &h.seqs[i]; s.taint == pending {
			s.taint = unseen
			if s.known >= len(s.tokens) {
				s.taint = promised
			}
		}
	}
}

// evaluate is a loop of the host's own.
func (h *host) evaluate(i int, tokens []kv.Token) {
	s := &h.seqs[i]
	shifted := s.taint == pending
	if len(s.tokens) == 0 && h.s != nil {
		if s.untold = h.chance(30); !s.untold {
			h.must(h.s.Reset(i))
			s.told = true
		}
	}
	for len(tokens) > 0 {
		n := min(len(tokens), 1+h.rng.IntN(batchTokens))
		h.must(h.c.Decode(tokens[:n], len(s.tokens), i))
		h.decoded()
		s.tokens, tokens = append(s.tokens[:len(s.tokens):len(s.tokens)], tokens[:n]...), tokens[n:]
	}
	if shifted && h.own() && !s.told && h.s.Mode() != llamacpp.Opaque { // whole states are not looked into
		s.taint = ordered
	}
}

// emptied forgets a sequence.
func (h *host) emptied(i int) { h.seqs[i] = holding{told: h.seqs[i].told} }

// lost is a taint of which nobody tells any more: after a copy, a new session, or Reset.
func (t taint) lost() taint {
	if t == sound {
		return sound
	}
	return unseen
}

// attach begins a new session on the context.
func (h *host) attach() {
	if h.s != nil {
		h.old = append(h.old, h.s)
	}
	s, err := h.tryAttach(h.c, func(o *llamacpp.Options) {
		o.OpaqueOnly, o.Sequence, o.BlockTokens = h.opaque, h.rng.IntN(len(h.seqs)), 16
		decode := o.Decode
		o.Decode = func(tokens []kv.Token, first, sequence int) error {
			if h.fails {
				h.fails = false
				if half := len(tokens) / 2; half > 0 {
					return errors.Join(errDecodeFails, decode(tokens[:half], first, sequence))
				}
				return errDecodeFails
			}
			return decode(tokens, first, sequence)
		}
		for _, a := range h.sets[h.on] {
			o.Adapters = append(o.Adapters, a.Adapter)
		}
	})
	if errors.Is(err, llamacpp.ErrRefused) { // no room to put anything back
		h.note("attach: %v", err)
		h.count["attach refused"]++
		h.renew()
		return
	}
	h.must(err)
	h.s = s
	h.decoded()
	for i := range h.seqs {
		x := &h.seqs[i]
		x.taint, x.told, x.known, x.untold = x.taint.lost(), false, 0, len(x.tokens) > 0 && s.Mode() != llamacpp.Rows
	}
}

// renew makes another context, with other settings that change no row.
func (h *host) renew() {
	if h.c != nil {
		h.c.Close()
	}
	o := h.opt
	o.Sequences, o.Unified = 1+h.rng.IntN(3), h.chance(50)
	o.Tokens = 256 * o.Sequences
	o.MicroBatch, o.Threads = []int{batchTokens, 16}[h.rng.IntN(2)], 1
	h.opt = o
	h.c = h.rig.context()
	h.seqs = make([]holding, o.Sequences)
	h.on, h.s = 0, nil
	h.note("context: %d sequences, unified %v", o.Sequences, o.Unified)
	if h.chance(30) { // it has tokens already
		h.evaluate(h.rng.IntN(len(h.seqs)), randomTokens(h.rng.IntN(1e6), 20+h.rng.IntN(60)))
		h.note("evaluated before attach")
	}
	h.attach()
}

// prompt is tokens with the adapters that are set.
func (h *host) prompt(tokens []kv.Token) kv.Prompt {
	p := kv.Tokens(tokens...)
	for _, a := range h.sets[h.on] {
		p.Adapters = append(p.Adapters, a.Adapter)
	}
	return p
}

// fresh are tokens that were tried before, up to some place, and others behind it.
func (h *host) fresh() []kv.Token {
	var out []kv.Token
	if len(h.tried) > 0 && h.chance(70) {
		p := h.tried[h.rng.IntN(len(h.tried))].Tokens
		out = slices.Clone(p[:h.rng.IntN(len(p)+1)])
	}
	return append(out, randomTokens(h.rng.IntN(1e6), 1+h.rng.IntN(max(1, 150-len(out))))...)[:]
}

// adapters loads two.
func (h *host) adapters(t *testing.T, path, arch string, names []string) {
	h.sets = [][]llamacpp.Adapter{nil}
	if len(names) == 0 {
		return
	}
	x := canaryCase{arch: arch, path: path}
	x.adapters(t, names)
	l := h.rig.lora()
	for i, scale := range []float32{1, 0.5} {
		p := l.load(h.model.Pointer(), kit.WriteFile(t, "lora.gguf", ggufgen.LoRA(arch, uint64(7+i), 0.5, x.targets...)))
		h.sets = append(h.sets, []llamacpp.Adapter{{Adapter: kv.Adapter{Hash: kv.Hash{byte(1 + i)}, Scale: scale}, Pointer: p}})
	}
}

// run is the logits of a cold run, in a context of its own.
func (h *host) run(p kv.Prompt, set int) []float32 {
	key := fmt.Sprint(set, p.Tokens)
	if h.cold[key] == nil {
		c := h.rig.context()
		defer c.Close()
		h.setRaw(c, set)
		h.decodeIn(c, p.Tokens, 0, batchTokens, 0)
		h.cold[key] = c.Logits(-1)
	}
	return h.cold[key]
}

// setRaw sets adapters without a session.
func (h *host) setRaw(c *llama.Context, set int) {
	if set == 0 {
		return
	}
	a := h.sets[set][0]
	if h.setLora(c.Pointer(), &a.Pointer, 1, &a.Scale) != 0 {
		h.fatal("no adapter")
	}
}

// audit restores a prompt in a new context and compares the logits behind it with those of a cold run.
func (h *host) audit(p kv.Prompt, set int) {
	h.t.Helper()
	c := h.rig.context()
	defer c.Close()
	h.setRaw(c, set)
	s, err := h.tryAttach(c, func(o *llamacpp.Options) { o.OpaqueOnly, o.Adapters, o.BlockTokens = h.opaque, p.Adapters, 16 })
	h.must(err)
	longer := p
	if h.chance(map[bool]int{true: 50, false: 15}[s.Mode() == llamacpp.Rows]) { // a part of it, and other tokens
		longer = kv.Prompt{Tokens: slices.Concat(p.Tokens[:h.rng.IntN(len(p.Tokens)+1)], randomTokens(h.rng.IntN(1e6), 3)), Adapters: p.Adapters}
	}
	into := h.rng.IntN(max(1, h.opt.Sequences))
	got, err := s.Restore(h.ctx, longer, into)
	h.must(err)
	if got.Tokens == 0 {
		h.count["audits without a restore"]++
		return
	}
	h.must(s.Prefill(h.ctx, longer, got.Tokens, into))
	h.judge("audit", longer, set, got.Tokens, c)
}

func (h *host) judge(what string, p kv.Prompt, set, tokens int, c *llama.Context) {
	h.t.Helper()
	h.count["audits"]++
	d := difference(h.run(p, set), c.Logits(-1))
	h.worst = max(h.worst, d)
	if d > h.tolerance || math.IsNaN(d) {
		h.fatal("%s: %d of %d tokens were restored, and the logits are %.3g off (allowed %.2g)", what, tokens, len(p.Tokens), d, h.tolerance)
	}
}

// control shows that one wrong row would be seen: one row of zeros in what is restored.
func (h *host) control() {
	if h.s.Mode() != llamacpp.Rows {
		return
	}
	good, spoil := h.api, false
	lib := *h.api
	lib.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		if spoil {
			zeroLastRow(h.t, src, n)
		}
		return good.StateSet(c, src, n, sequence, flags)
	}
	h.api = &lib
	defer func() { h.api = good }()
	p := kv.Tokens(randomTokens(77, 150)...)
	c := h.rig.context()
	defer c.Close()
	s, err := h.tryAttach(c, func(o *llamacpp.Options) { o.BlockTokens = 16 })
	h.must(err)
	h.must(s.Prefill(h.ctx, p, 0, 0))
	_, err = s.Save(h.ctx, p, 0)
	h.must(err)
	c.Clear()
	spoil = true
	got, err := s.Restore(h.ctx, p, 0)
	if h.must(err); got.Tokens != 149 {
		h.fatal("control: %+v", got)
	}
	h.must(s.Prefill(h.ctx, p, 149, 0))
	if h.seen = difference(h.run(p, 0), c.Logits(-1)); h.seen <= h.tolerance {
		h.fatal("control: a row of zeros among 149 moves the logits by %.2g only", h.seen)
	}
}

// report is the counts in one order.
func (h *host) report() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(h.count)) {
		out = append(out, fmt.Sprintf("%s %d", k, h.count[k]))
	}
	return fmt.Sprintf("%s; furthest from a cold run: %.1e of %.1e; one row of zeros %.1e", strings.Join(out, ", "), h.worst, h.tolerance, h.seen)
}

// bytes of a state of the context's.
func (h *host) state(i int) []byte {
	n := h.api.StateSize(h.c.Pointer(), int32(i), 0)
	b := make([]byte, n)
	h.api.StateGet(h.c.Pointer(), unsafe.SliceData(b), n, int32(i), 0)
	return b
}
