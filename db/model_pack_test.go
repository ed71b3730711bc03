package db

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
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

// Open unpacks no descriptor. The one of the model that is asked for is unpacked then.
func TestOpenUnpacksNoModel(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	const n = 20
	for i := range n {
		model(t, s, layered(fmt.Sprint("model ", i), 128))
	}
	unpacked := func() (n int) {
		for _, m := range s.eng.Catalog.Models() {
			if m.Loaded != nil {
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
		if got := unpacked(); got != 0 || len(s.eng.Catalog.Models()) != n {
			t.Errorf("%d of %d models are unpacked", got, len(s.eng.Catalog.Models()))
		}
		m := model(t, s, layered("model 7", 128))
		if got := unpacked(); got != 1 || len(m.Descriptor().Tensors) != 128 {
			t.Errorf("%d models are unpacked, one has %d tensors", got, len(m.Descriptor().Tensors))
		}
		all, err := Collect(s.Models())
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
	for name, spoil := range map[string]func(op *oplog.Model){
		"rubbish":             func(op *oplog.Model) { op.Packed = []byte("rubbish") },
		"nothing":             func(op *oplog.Model) { op.Packed = []byte{} },
		"cut":                 func(op *oplog.Model) { op.Packed = op.Packed[:len(op.Packed)-1] },
		"another fingerprint": func(op *oplog.Model) { op.Packed = oplog.NewModel(normal(t, layered("x", 6)), 0).Packed },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, options())
			put(t, model(t, s, plain()), p)
			op := oplog.NewModel(normal(t, d), s.eng.Inside().Clock().Add(1))
			fp := op.Fingerprint
			spoil(&op)
			e := s.eng
			e.Inside().LogMu().Lock()
			_, err := e.Inside().LogStateLocked(op)
			e.Inside().LogMu().Unlock()
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
					"Models": func() (bad error) { // all are listed, and that one says it
						all, err := Collect(s.Models())
						for _, x := range all {
							switch {
							case x.Err == nil && x.Descriptor.Name != plain().Name, x.Err != nil && (x.Fingerprint != fp || x.Descriptor.Name != "bad"):
								t.Errorf("%+v", x)
							case x.Err != nil:
								bad = x.Err
							}
						}
						if len(all) != 2 || err != nil {
							t.Errorf("%d models are listed, %v", len(all), err)
						}
						return bad
					},
					"Explain": func() error {
						x, err := model(t, s, plain()).Explain(ctx, p, MatchOptions{})
						if err != nil || x.Tokens != 48 || len(x.Elsewhere) != 1 || x.Elsewhere[0].Fingerprint != fp || x.Elsewhere[0].Name != "bad" {
							t.Errorf("%+v, %v", x, err)
							return nil
						}
						return x.Elsewhere[0].Err
					},
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
