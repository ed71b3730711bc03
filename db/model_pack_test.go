package db

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// layered is a model of so many tensors, K and V in turns.
func layered(name string, tensors int) kv.Descriptor {
	d := plain()
	d.Name, d.Weights, d.Tensors = name, kv.HashOf(name), nil
	for i := range tensors {
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: i / 2, Role: kv.RoleK + kv.Role(i%2), DType: kv.F16, Width: 256})
	}
	return d
}

// normal is d in its normal form.
func normal(t *testing.T, d kv.Descriptor) *kv.Descriptor {
	t.Helper()
	d, err := d.Normal()
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

// What is packed comes back, whatever its tensors are; layers that repeat take no room.
func TestPackedDescriptor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := []kv.Descriptor{plain(), opaque(), layered("most", kv.MaxTensors), layered("none", 0)}
	all = append(all, tinyModels()...)
	for i := range 200 {
		d := toy(kv.Descriptor{Name: fmt.Sprint("random ", i), Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 512}, {Kind: kv.StateAt}}})
		period := 1 + r.IntN(24)
		for j := range r.IntN(200) {
			x := kv.Tensor{Layer: j / 2, Role: kv.RoleK + kv.Role(j%2), DType: kv.F16, Width: 64 * (1 + j%period)}
			if r.IntN(30) == 0 {
				x.Group, x.Layer = r.IntN(3), r.IntN(1<<31)
			}
			d.Tensors = append(d.Tensors, x)
		}
		all = append(all, d)
	}
	for _, d := range all {
		want := normal(t, d)
		op := newOpModel(want, 7)
		got, err := op.descriptor()
		if err != nil || got.Fingerprint() != want.Fingerprint() || got.Name != want.Name || len(got.Diff(want)) > 0 {
			t.Errorf("%s: %v, differs in %v", d.Name, err, got.Diff(want))
		}
		read, err := decodeOp[opModel](wal.Frame{Payload: encodeOp(op)})
		if err != nil || !reflect.DeepEqual(read, op) {
			t.Errorf("%s: %v: %+v became %+v", d.Name, err, op, read)
		}
	}
	op := newOpModel(normal(t, layered("gemma", 128)), 7)
	if n := len(op.Descriptor); n > 200 {
		t.Errorf("128 tensors that repeat take %d bytes", n)
	}
}

// Open unpacks no descriptor. The one of the model that is asked for is unpacked then.
func TestOpenUnpacksNoModel(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	const n = 20
	for i := range n {
		model(t, s, layered(fmt.Sprint("model ", i), 128))
	}
	unpacked := func() (n int) {
		for _, m := range s.eng.state.models {
			if m.loadedModel != nil {
				n++
			}
		}
		return n
	}
	for _, clean := range []bool{true, false} { // from the head of the log, and from its frames
		if clean {
			s = reopened(t, s, dir, options())
		} else {
			crash(s)
			s = open(t, dir, options())
		}
		if got := unpacked(); got != 0 || len(s.eng.state.models) != n {
			t.Errorf("%d of %d models are unpacked", got, len(s.eng.state.models))
		}
		m := model(t, s, layered("model 7", 128))
		if got := unpacked(); got != 1 || len(m.Descriptor().Tensors) != 128 {
			t.Errorf("%d models are unpacked, one has %d tensors", got, len(m.Descriptor().Tensors))
		}
		all, err := s.Models()
		if err != nil || len(all) != n || unpacked() != n {
			t.Fatalf("%d models, %d unpacked: %v", len(all), unpacked(), err)
		}
		for _, x := range all {
			if want := layered(x.Descriptor.Name, 128); len(x.Descriptor.Diff(normal(t, want))) > 0 {
				t.Errorf("%s differs in %v", x.Descriptor.Name, x.Descriptor.Diff(normal(t, want)))
			}
		}
	}
}

// A descriptor that cannot be unpacked, or is another model's, costs that model alone, when it is asked for. Who retires it can
// register it again.
func TestDescriptorThatCannotBeRead(t *testing.T) {
	d, p := layered("bad", 4), kv.Tokens(tokens(1, 48)...)
	for name, spoil := range map[string]func(op *opModel){
		"rubbish": func(op *opModel) { op.Descriptor = []byte("rubbish") },
		"nothing": func(op *opModel) { op.Descriptor = []byte{} },
		"cut":     func(op *opModel) { op.Descriptor = op.Descriptor[:len(op.Descriptor)-1] },
		"another fingerprint": func(op *opModel) {
			*op = opModel{op._msgpack, op.Fingerprint, op.Name, op.Stamp, newOpModel(normal(t, layered("x", 6)), 0).Descriptor}
		},
		"more tensors than there can be": func(op *opModel) {
			var d packedDescriptor
			if err := unmarshal(op.Descriptor, &d); err != nil {
				t.Fatal(err)
			}
			d.Tensors = []tensorRun{{Times: kv.MaxTensors + 1, Tensors: d.Tensors[0].Tensors}}
			op.Descriptor = encodeOp(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, options())
			put(t, model(t, s, plain()), p)
			op := newOpModel(normal(t, d), s.eng.clock.Add(1))
			fp := op.Fingerprint
			spoil(&op)
			e := s.eng
			e.logMu.Lock()
			_, err := e.logStateLocked(frameModel, op, func(st *smallState) { st.addModel(op) })
			e.logMu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			crash(s)
			s = open(t, dir, options())
			for range 2 { // from a frame, and from the head of the log
				expect(t, model(t, s, plain()), p, 48)
				for what, do := range map[string]func() error{
					"Register": func() error { _, err := s.Register(ctx, d); return err },
					"Model":    func() error { _, err := s.Model(fp); return err },
					"Models":   func() error { _, err := s.Models(); return err },
				} {
					var bad *CorruptError
					if err := do(); !errors.As(err, &bad) || filepath.Base(filepath.Dir(bad.File)) != walDir || bad.Offset == 0 || !strings.Contains(err.Error(), fp.String()) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if r, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(r.Damage) != 1 {
					t.Errorf("verify: %v, %v", r.Damage, err)
				}
				s = reopened(t, s, dir, options())
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(t.TempDir(), "repaired")
			if r, err := Repair(ctx, dir, to, RepairOptions{}); err != nil || r.Models != 1 {
				t.Errorf("repair: %d models, %v", r.Models, err)
			}
			s = open(t, to, options())
			expect(t, model(t, s, plain()), p, 48)
			model(t, s, d)
			s = open(t, dir, options())
			if err := s.Retire(ctx, fp); err != nil {
				t.Fatal(err)
			}
			m := model(t, s, d)
			put(t, m, p)
			expect(t, m, p, 48)
		})
	}
}

// FuzzModel unpacks a model's descriptor: it takes no more memory than one of most tensors, and what is accepted is the same when it
// was packed again.
func FuzzModel(f *testing.F) {
	var seeds [][]any
	for _, d := range append(tinyModels(), layered("gemma", 128)) {
		d, err := d.Normal()
		if err != nil {
			f.Fatal(err)
		}
		op := newOpModel(&d, 7)
		seeds = append(seeds, []any{op.Descriptor, op.Fingerprint[:]})
	}
	fuzzkit.Seeds(f, append(seeds, []any{[]byte("\xdc\x00\x10"), make([]byte, 16)})...)
	f.Fuzz(func(t *testing.T, packed, fp []byte) {
		if len(packed) > 1<<16 || len(fp) < 16 {
			return
		}
		fuzzkit.Bounded(t, 8<<20+256*uint64(len(packed)), func() {
			op := opModel{Fingerprint: kv.Fingerprint(fp[:16]), Name: "x", Descriptor: packed}
			d, err := op.descriptor()
			if err != nil {
				return
			}
			again := newOpModel(&d, 0)
			if got, err := again.descriptor(); err != nil || again.Fingerprint != op.Fingerprint || len(got.Diff(&d)) > 0 {
				t.Fatalf("%+v became %+v: %v", d, got, err)
			}
		})
	})
}
