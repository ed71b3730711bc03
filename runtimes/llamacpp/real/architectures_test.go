//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// For every architecture: what is restored continues as if it had been evaluated. With the same batches the logits are
// the same to the last bit, with others close; a row that is spoilt shows.
func TestArchitectures(t *testing.T) {
	library(t)
	for _, arch := range architectures() {
		t.Run(arch.name, func(t *testing.T) {
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			ctx := context.Background()
			first := r.context()
			s := r.attach(first, nil)
			t.Logf("%v: %s", s.Mode(), s.Why())
			if s.Mode() != arch.mode {
				t.Fatalf("mode %v, want %v: %s", s.Mode(), arch.mode, s.Why())
			}
			tokens := randomTokens(1, 200)
			saved := kv.Tokens(tokens...)
			from := 0
			for _, n := range []int{128, 200} { // Opaque and Hybrid can be restored there, and shortly before
				if err := s.Prefill(ctx, saved.Prefix(n), from, 0); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Save(ctx, saved, 0); err != nil {
					t.Fatal(err)
				}
				from = n
			}
			batch := s.BatchTokens()
			cold := r.evaluated
			if arch.mode != llamacpp.Rows { // other batches
				cold = func(prompt kv.Prompt, _, sequence int) []float32 { return r.prefilled(prompt, sequence) }
			}
			if d := difference(cold(saved, batch, 0), first.Logits(-1)); d != 0 {
				t.Errorf("saving changes the logits by %g", d)
			}
			inexact := 0.0
			for _, shared := range []int{200, 199, 192, 140, 128, 97, 64, 16} {
				tail := randomTokens(shared, 40)
				tail[0] = (tokens[min(shared, 199)] + 1) % ggufgen.Vocabulary
				prompt := kv.Tokens(append(append([]kv.Token(nil), tokens[:shared]...), tail...)...)
				want := shared
				if arch.mode != llamacpp.Rows {
					want = 0
					for _, n := range []int{124, 128, 196, 200} {
						if n <= shared {
							want = n
						}
					}
				}
				sequence := max(0, min(1, arch.context.Sequences-1))
				c := r.context()
				s := r.attach(c, nil)
				got, err := s.Restore(ctx, prompt, sequence)
				if err != nil {
					t.Fatalf("restore of %d: %v", shared, err)
				}
				if got.Tokens != want {
					t.Fatalf("restored %d tokens, want %d of %d shared: %v", got.Tokens, want, shared, got.Reason)
				}
				if err := s.Prefill(ctx, prompt, got.Tokens, sequence); err != nil {
					t.Fatal(err)
				}
				d := difference(cold(prompt, batch, sequence), c.Logits(-1))
				// A window's cells are a ring. Restored rows lie in other cells of it than evaluated ones, and llama.cpp
				// adds up in the order of cells.
				ring := s.Model().Descriptor().Groups[len(s.Model().Descriptor().Groups)-1].Kind == kv.Window && !arch.context.FullWindow
				if got.Tokens%batch == 0 && d != 0 && !ring {
					t.Errorf("restored %d tokens: logits differ by %g of their spread", got.Tokens, d)
				}
				if inexact = max(inexact, d); d > 0.005 {
					t.Errorf("restored %d tokens: logits differ by %g of their spread", got.Tokens, d)
				}
				c.Close()
			}
			t.Logf("largest difference: %.2g of the logits' spread", inexact)
			if arch.mode == llamacpp.Rows {
				r.spoilt(ctx, saved, batch)
			}
		})
	}
}

// spoilt is the negative control: one row of zeros in what is restored must show in the logits.
func (r *rig) spoilt(ctx context.Context, prompt kv.Prompt, batch int) {
	r.t.Helper()
	lib := *r.api
	set := lib.StateSet
	spoil := false
	lib.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		if spoil {
			zeroLastRow(r.t, src, n)
		}
		return set(c, src, n, sequence, flags)
	}
	good := r.api
	r.api = &lib
	defer func() { r.api = good }()
	c := r.context()
	defer c.Close()
	s := r.attach(c, nil)
	spoil = true
	got, err := s.Restore(ctx, prompt.Prefix(161), 0)
	if err != nil || got.Tokens != 160 {
		r.t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
	}
	if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
		r.t.Fatal(err)
	}
	if d := difference(r.evaluated(prompt, batch, 0), c.Logits(-1)); d == 0 {
		r.t.Error("negative control: a row of zeros does not change the logits")
	}
}

// Flash attention on and off, one buffer or streams: one fingerprint. Cache types: never the same.
func TestOneModelOneFingerprint(t *testing.T) {
	same := [][]llama.ContextOptions{
		{{FlashAttention: ref(true)}, {FlashAttention: ref(false)}, {Sequences: 2}, {Sequences: 2, Unified: true}, {Tokens: 1024}, {Threads: 2}, {FullWindow: true}},
		{{FlashAttention: ref(true), CacheK: ref(llama.Q8_0)}, {FlashAttention: ref(false), CacheK: ref(llama.Q8_0)}},
		{{CacheK: ref(llama.BF16), CacheV: ref(llama.BF16)}},
		{{CacheK: ref(llama.F32), CacheV: ref(llama.F32)}},
	}
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 2, 64), "window": ggufgen.Gemma3(1, 6, 64, 40)} {
		seen := map[kv.Fingerprint]int{}
		for i, group := range same {
			var fp kv.Fingerprint
			for j, o := range group {
				r := newRig(t, file, o, db.Options{})
				m := r.attach(r.context(), nil).Model()
				d := m.Descriptor()
				if rotated := i == 1; d.Rotated != rotated {
					t.Errorf("%s %v: rotated is %v", name, o, d.Rotated)
				}
				if j == 0 {
					fp = m.Fingerprint()
				} else if m.Fingerprint() != fp {
					t.Errorf("%s: context %d of kind %d has another fingerprint", name, j, i)
				}
			}
			if k, ok := seen[fp]; ok {
				t.Errorf("%s: kinds %d and %d have one fingerprint", name, k, i)
			}
			seen[fp] = i
		}
	}
}

// A release that may or may not rotate a quantized cache is not guessed at, and one that says what it does is believed.
func TestUnknownRotation(t *testing.T) {
	q8 := llama.Q8_0
	r := newRig(t, ggufgen.LLaMA(1, 2, 64), llama.ContextOptions{FlashAttention: ref(true), CacheK: &q8}, db.Options{})
	old := *r.api
	old.Version = nil
	c := r.context()
	attach := func(rotated *bool) (*llamacpp.Session, error) {
		return r.withLibrary(&old).tryAttach(c, func(o *llamacpp.Options) { o.Rotated = rotated })
	}
	known := r.attach(c, nil).Model().Fingerprint()
	s, err := attach(nil)
	if says := r.api.Version() >= "0.6"; says {
		if err != nil || s.Model().Fingerprint() != known {
			t.Errorf("a release that says how it rotates: %v", err)
		}
		if _, err := attach(ref(false)); !errors.Is(err, llamacpp.ErrRefused) {
			t.Errorf("an option that contradicts it: %v", err)
		}
		return
	}
	if !errors.Is(err, llamacpp.ErrRefused) {
		t.Errorf("not refused: %v", err)
	}
	if s, err = attach(ref(false)); err != nil {
		t.Fatal(err)
	}
	if s.Model().Fingerprint() == known {
		t.Error("rotated and not rotated are one model")
	}
}

// Rows that were saved with flash attention continue without it, and the other way round, as closely as the two agree.
func TestFlashAttentionShares(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(1, 7, 64, 40)} {
		for _, from := range []bool{true, false} {
			r := newRig(t, file, llama.ContextOptions{FlashAttention: &from}, db.Options{Codec: quant.Raw})
			prompt := kv.Tokens(randomTokens(1, 200)...)
			s := r.attach(r.context(), nil)
			kit.EvaluateAndSave(t, s, prompt, 0, 0)
			here := r.evaluated(prompt, s.BatchTokens(), 0)
			r.opt.FlashAttention = ref(!from)
			there := r.evaluated(prompt, s.BatchTokens(), 0)
			c := r.context()
			s = r.attach(c, nil)
			got, err := s.Restore(ctx, prompt, 0)
			if err != nil || got.Tokens != 199 {
				t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
			}
			if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
				t.Fatal(err)
			}
			d, noise := difference(there, c.Logits(-1)), difference(there, here)
			t.Logf("%s, saved with flash attention %v: %.2g of the spread; the two differ by %.2g on their own", name, from, d, noise)
			if d > 0.02 {
				t.Errorf("%s: logits differ by %g", name, d)
			}
		}
	}
}

// INT8 on the disk: close, and stated how close.
func TestQuantizedStore(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 3, 64), "window": ggufgen.Gemma3(1, 7, 64, 40), "latent": ggufgen.DeepSeek2(3, 3)} {
		r := newRig(t, file, llama.ContextOptions{}, db.Options{})
		prompt := kv.Tokens(randomTokens(1, 289)...)
		s := r.attach(r.context(), nil)
		if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
			t.Fatal(err)
		}
		put, err := s.Save(ctx, prompt, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := r.context()
		s = r.attach(c, nil)
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil || got.Tokens != 288 {
			t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
		}
		if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		d := difference(r.evaluated(prompt, s.BatchTokens(), 0), c.Logits(-1))
		desc := s.Model().Descriptor()
		t.Logf("%s: logits differ by %.2g of their spread; %d bytes on disk for %d of rows", name, d, put.Bytes, desc.TokenBytes()*289)
		if name == "latent" && d != 0 {
			t.Error("latents are stored as they are")
		}
		if d > 0.05 {
			t.Errorf("%s: logits differ by %g", name, d)
		}
	}
}

// A store outlives the process that filled it, and a context attaches with tokens in it.
func TestReopen(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, ggufgen.Gemma3(1, 6, 64, 40), llama.ContextOptions{}, db.Options{Codec: quant.Raw})
	prompt := kv.Tokens(randomTokens(1, 129)...)
	c := r.context()
	r.decode(c, prompt.Tokens, 0, batchTokens)
	want := c.Logits(-1)
	s := r.attach(c, nil) // takes them out, and puts them back
	if _, err := s.Save(ctx, prompt, 0); err != nil {
		t.Fatal(err)
	}
	r.reopen(db.Options{Codec: quant.Raw})
	d := r.context()
	s = r.attach(d, nil)
	got, err := s.Restore(ctx, prompt, 0)
	if err != nil || got.Tokens != 128 {
		t.Fatalf("restored %d: %v %v", got.Tokens, got.Reason, err)
	}
	if err := s.Prefill(ctx, prompt, 128, 0); err != nil {
		t.Fatal(err)
	}
	if x := difference(want, d.Logits(-1)); x != 0 {
		t.Errorf("logits differ by %g", x)
	}
}

// A context that is too small for what is stored gets what fits.
func TestSmallerContext(t *testing.T) {
	ctx := context.Background()
	for name, file := range map[string][]byte{"plain": ggufgen.LLaMA(1, 2, 64), "window": ggufgen.Gemma3(1, 6, 64, 40)} {
		r := newRig(t, file, llama.ContextOptions{Tokens: 1024}, db.Options{Codec: quant.Raw})
		prompt := kv.Tokens(randomTokens(1, 900)...)
		s := r.attach(r.context(), nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		for _, sequences := range []int{1, 2} {
			r.opt.Tokens, r.opt.Sequences = 256*sequences, sequences
			c := r.context()
			s := r.attach(c, nil)
			got, err := s.Restore(ctx, prompt, sequences-1)
			if err != nil || got.Tokens != 255 {
				t.Fatalf("%s: restored %d into a context of %d for %d sequences: %v %v", name, got.Tokens, r.opt.Tokens, sequences, got.Reason, err)
			}
			if err := s.Prefill(ctx, prompt.Prefix(256), 255, sequences-1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Other weights of the same shape are another model.
func TestOtherWeightsAreAnotherModel(t *testing.T) {
	r := newRig(t, ggufgen.LLaMA(1, 2, 64), llama.ContextOptions{}, db.Options{})
	q := newRig(t, ggufgen.LLaMA(2, 2, 64), llama.ContextOptions{}, db.Options{})
	a, b := r.attach(r.context(), nil).Model(), q.attach(q.context(), nil).Model()
	if a.Fingerprint() == b.Fingerprint() {
		t.Error("one fingerprint for two models")
	}
	d, e := a.Descriptor(), b.Descriptor()
	if diff := d.Diff(&e); len(diff) != 1 || diff[0].Field != "weights" {
		t.Errorf("they differ in %v", diff)
	}
}

// zeroLastRow spoils the last row of V (or of the latent) in every section of a blob.
func zeroLastRow(t testing.TB, src *byte, n uintptr) {
	blob := kit.BytesAt(src, n)
	f, err := state.Learn(blob, 1)
	if err != nil {
		f, err = state.Learn(blob, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Parse(blob)
	if err != nil {
		t.Fatal(err)
	}
	for i := range st.Sections {
		sec := &st.Sections[i]
		for l := range sec.Layers() {
			tf := f.Sections[i].Layers[l].V
			rows := sec.Rows(l, kv.RoleV)
			if tf.RowBytes == 0 {
				tf, rows = f.Sections[i].Layers[l].K, sec.Rows(l, kv.RoleK)
			}
			d, err := tf.DType()
			if err != nil {
				t.Fatal(err)
			}
			x := kv.Tensor{DType: d, Width: tf.Width()}
			last := rows.Slice(x, rows.End()-1, rows.End()).Pieces[0]
			_, elem := last.Strides(x)
			for j := range tf.Width() / d.Group() {
				clear(last.Mem[j*elem:][:d.GroupBytes()])
			}
		}
	}
}
