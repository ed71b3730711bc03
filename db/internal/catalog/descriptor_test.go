package catalog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A handle on a retired model is none until the model is registered again; then it is its own again.
func TestHandleOfARetiredModel(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, m, p)
	storetest.OK(t, s.Retire(t.Context(), m.Fingerprint()))
	if _, err := m.Put(t.Context(), p, storetest.Filled(d, &p, 0, 48), db.PutOptions{}); !errors.Is(err, db.ErrRetired) {
		t.Errorf("put for a retired model: %v", err)
	}
	x := storetest.Model(t, s, d)
	storetest.Expect(t, x, p, 0)
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 48)
	storetest.OK(t, errors.Join(s.Suspend(t.Context()), s.Resume(t.Context())))
	storetest.Expect(t, m, p, 48)
}

// registerAsBefore registers a model that is refused today, as an older release did, and opens the store again.
func registerAsBefore(t *testing.T, s *db.Store, d kv.Descriptor) *db.Store {
	t.Helper()
	normal := storetest.Must(d.Normal())(t)
	old := oplog.NewModel(&normal, storetest.Log(t, s).LastLSN)
	storetest.Crash(s)
	storetest.AppendToLog(t, s.Dir(), old.Kind(), oplog.Encode(old))
	return storetest.Open(t, s.Dir(), storetest.Options())
}

// A handle outlives Suspend and Resume, also on a model without tensors.
func TestModelWithoutTensorsAfterResume(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	for i, tensors := range [][]kv.Tensor{nil, {}} {
		d := crashtest.Toy(kv.Descriptor{Name: "none", BlockTokens: 16, Tensors: tensors, Shards: i + 1})
		s = registerAsBefore(t, s, d)
		d = storetest.Must(d.Normal())(t)
		m := storetest.Must(s.Model(d.Fingerprint()))(t)
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 48)...))
		for range 2 {
			storetest.OK(t, s.Suspend(t.Context()))
			storetest.OK(t, s.Resume(t.Context()))
			storetest.Expect(t, m, kv.Tokens(crashtest.Tokens(1, 48)...), 48)
		}
	}
}

// What a caller does with its descriptor later is nothing to the store.
func TestDescriptorIsCopied(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	d := crashtest.Windowed(20)
	want := d
	want.Groups, want.Tensors = slices.Clone(d.Groups), slices.Clone(d.Tensors)
	m := storetest.Model(t, s, d)
	fp := m.Fingerprint()
	d.Groups[1].Window = 1
	d.Tensors[0].Width = 64
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Must(m.Put(t.Context(), p, storetest.Filled(want, &p, 0, 48), db.PutOptions{}))(t)
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, storetest.Options())
	m = storetest.Model(t, s, want)
	if n, why, err := m.Probe(t.Context(), p, db.MatchOptions{}); m.Fingerprint() != fp || err != nil || n != 48 {
		t.Errorf("model %s, was %s: %d tokens (%v, %v)", m.Fingerprint(), fp, n, why, err)
	}
}

// A model is registered only by a descriptor that says which one it is; the field that does not is named.
func TestModelIsSaid(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	for field, forget := range map[string]func(*kv.Descriptor){
		"Weights":      func(d *kv.Descriptor) { d.Weights = kv.Hash{} },
		"Architecture": func(d *kv.Descriptor) { d.Architecture = "" },
		"Tokenizer":    func(d *kv.Descriptor) { d.Tokenizer = kv.Hash{} },
		"RoPE.Type":    func(d *kv.Descriptor) { d.RoPE.Type = "" },
		"Name":         func(d *kv.Descriptor) { d.Name = "" },
	} {
		d := crashtest.Plain()
		forget(&d)
		if _, err := s.Register(t.Context(), d); !errors.Is(err, kv.ErrDescriptor) || !strings.Contains(err.Error(), field+" is not said") {
			t.Errorf("without %s: %v", field, err)
		}
	}
	if _, err := s.Register(t.Context(), crashtest.Toy(kv.Descriptor{Name: "nothing to store"})); !errors.Is(err, kv.ErrDescriptor) {
		t.Errorf("no tensors: %v", err)
	}
	if models, err := db.Collect(s.Models()); len(models) > 0 || err != nil {
		t.Errorf("%d models are registered, %v", len(models), err)
	}
}

// A model whose descriptor would be refused today, and was not once, is there as ever, for who asks by its fingerprint.
func TestModelThatWouldBeRefused(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	for _, change := range []func(*kv.Descriptor){
		func(d *kv.Descriptor) { d.Name, d.Weights = "", kv.HashOf("no name") },
		func(d *kv.Descriptor) { d.Weights, d.Tensors[1] = kv.HashOf("two of one"), d.Tensors[0] },
		func(d *kv.Descriptor) { d.RoPE.Type = "neox" },
		func(d *kv.Descriptor) {
			d.Weights, d.Architecture, d.Tokenizer, d.RoPE = kv.Hash{}, "", kv.Hash{}, kv.RoPE{}
		},
	} {
		d := crashtest.Plain()
		change(&d)
		s = registerAsBefore(t, s, d)
		if _, err := s.Register(t.Context(), d); !errors.Is(err, kv.ErrDescriptor) {
			t.Errorf("it is registered again: %v", err)
		}
		normal := storetest.Must(d.Normal())(t)
		stored := func() *db.Model {
			m := storetest.Must(s.Model(normal.Fingerprint()))(t)
			return m
		}
		storetest.Put(t, stored(), p)
		for range 2 { // from the log, then from its head
			storetest.OK(t, s.Close())
			if r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); err != nil || len(r.Damage) > 0 {
				t.Fatalf("%v, %v", r.Damage, err)
			}
			s = storetest.Open(t, dir, storetest.Options())
			storetest.Expect(t, stored(), p, 48)
		}
	}
}

// Register writes a model once, and says what it supersedes in the call that makes it the latest; Model looks up, and writes nothing.
func TestRegisterAndModel(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	if _, err := s.Model(kv.Fingerprint{1}); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("a model that was never registered: %v", err)
	}
	old, newer := crashtest.Plain(), crashtest.Plain()
	newer.RoPE.Scale = 2
	first, err := s.Register(t.Context(), old)
	if err != nil || first.Superseded != (kv.Fingerprint{}) || first.Differs != nil {
		t.Fatalf("the first version supersedes %s (%v), %v", first.Superseded, first.Differs, err)
	}
	register := func(d kv.Descriptor, over kv.Fingerprint) {
		t.Helper()
		r, err := s.Register(t.Context(), d)
		if err != nil || r.Superseded != over || len(r.Differs) != 1 || r.Differs[0].Field != "rope scale" {
			t.Errorf("it supersedes %s (%v), expected %s; %v", r.Superseded, r.Differs, over, err)
		}
	}
	register(newer, first.Fingerprint())
	normal := storetest.Must(newer.Normal())(t)
	second := normal.Fingerprint()
	lsn := storetest.Log(t, s).LastLSN
	for range 2 {
		again, err := s.Register(t.Context(), newer)
		if err != nil || again.Superseded != (kv.Fingerprint{}) || again.Differs != nil || again.Fingerprint() != second {
			t.Errorf("registered again it supersedes %s (%v), %v", again.Superseded, again.Differs, err)
		}
		for _, fp := range []kv.Fingerprint{first.Fingerprint(), second} {
			if m, err := s.Model(fp); err != nil || m.Fingerprint() != fp {
				t.Errorf("model %s: %v", fp, err)
			}
		}
	}
	if now := storetest.Log(t, s).LastLSN; now != lsn {
		t.Errorf("%d frames were written for what is there", now-lsn)
	}
	register(old, second) // the latest again
	storetest.OK(t, s.Close())
	o := storetest.Options()
	o.ReadOnly = true
	s = storetest.Open(t, dir, o)
	if _, err := s.Model(second); err != nil {
		t.Error(err)
	}
	if _, err := s.Register(t.Context(), old); err != nil {
		t.Error(err)
	}
	if _, err := s.Register(t.Context(), crashtest.Windowed(20)); !errors.Is(err, db.ErrReadOnly) {
		t.Errorf("a new model in a read-only store: %v", err)
	}
}

// layered is a model of so many tensors, K and V in turns.
func layered(name string, tensors int) kv.Descriptor {
	d := crashtest.Plain()
	d.Name, d.Weights, d.Tensors = name, kv.HashOf(name), nil
	for i := range tensors {
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: i / 2, Role: kv.RoleK + kv.Role(i%2), DType: kv.F16, Width: 256})
	}
	return d
}

// normal is d in its normal form.
func normal(t *testing.T, d kv.Descriptor) *kv.Descriptor {
	t.Helper()
	d = storetest.Must(d.Normal())(t)
	return &d
}

// A descriptor that cannot be unpacked, or is another model's, costs that model alone, when it is asked for. Who retires it can
// register it again.
func TestDescriptorThatCannotBeRead(t *testing.T) {
	d, p := layered("bad", 4), kv.Tokens(crashtest.Tokens(1, 48)...)
	for name, spoil := range map[string]func(op *oplog.Model){
		"rubbish":             func(op *oplog.Model) { op.Packed = []byte("rubbish") },
		"nothing":             func(op *oplog.Model) { op.Packed = []byte{} },
		"cut":                 func(op *oplog.Model) { op.Packed = op.Packed[:len(op.Packed)-1] },
		"another fingerprint": func(op *oplog.Model) { op.Packed = oplog.NewModel(normal(t, layered("x", 6)), 0).Packed },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := storetest.Open(t, dir, storetest.Options())
			storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
			op := oplog.NewModel(normal(t, d), storetest.Log(t, s).LastLSN)
			fp := op.Fingerprint
			spoil(&op)
			storetest.Crash(s)
			storetest.AppendToLog(t, dir, op.Kind(), oplog.Encode(op))
			s = storetest.Open(t, dir, storetest.Options())
			for range 2 { // from a frame, and from the head of the log
				storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 48)
				for what, do := range map[string]func() error{
					"Register": func() error { _, err := s.Register(t.Context(), d); return err },
					"Model":    func() error { _, err := s.Model(fp); return err },
					"Models": func() (bad error) { // all are listed, and that one says it
						all, err := db.Collect(s.Models())
						for _, x := range all {
							switch {
							case x.Err == nil && x.Descriptor.Name != crashtest.Plain().Name, x.Err != nil && (x.Fingerprint != fp || x.Descriptor.Name != "bad"):
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
						x, err := storetest.Model(t, s, crashtest.Plain()).Explain(t.Context(), p, db.MatchOptions{})
						if err != nil || x.Tokens != 48 || len(x.Elsewhere) != 1 || x.Elsewhere[0].Fingerprint != fp || x.Elsewhere[0].Name != "bad" {
							t.Errorf("%+v, %v", x, err)
							return nil
						}
						return x.Elsewhere[0].Err
					},
				} {
					var bad *db.CorruptError
					if err := do(); !errors.As(err, &bad) || filepath.Base(filepath.Dir(bad.File)) != storetest.LogDir || bad.Offset == 0 || !strings.Contains(err.Error(), fp.String()) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if r, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{}); err != nil || len(r.Damage) != 1 {
					t.Errorf("verify: %v, %v", r.Damage, err)
				}
				s = storetest.Reopened(t, s, storetest.Options())
			}
			storetest.OK(t, s.Close())
			to := filepath.Join(t.TempDir(), "repaired")
			if r, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{}); err != nil || r.Models != 1 {
				t.Errorf("repair: %d models, %v", r.Models, err)
			}
			s = storetest.Open(t, to, storetest.Options())
			storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 48)
			storetest.Model(t, s, d)
			s = storetest.Open(t, dir, storetest.Options())
			storetest.OK(t, s.Retire(t.Context(), fp))
			m := storetest.Model(t, s, d)
			storetest.Put(t, m, p)
			storetest.Expect(t, m, p, 48)
		})
	}
}

// Open unpacks no descriptor. The one of the model that is asked for is unpacked then.
func TestOpenUnpacksNoModel(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	const n = 20
	for i := range n {
		storetest.Model(t, s, layered(fmt.Sprint("model ", i), 128))
	}
	unpacked := func() (n int) {
		for _, m := range storetest.Engine(s).Catalog.Models() {
			if m.Loaded != nil {
				n++
			}
		}
		return n
	}
	for _, clean := range []bool{true, false} { // from the head of the log, and from its frames
		if clean {
			s = storetest.Reopened(t, s, storetest.Options())
		} else {
			storetest.Crash(s)
			s = storetest.Open(t, dir, storetest.Options())
		}
		if got := unpacked(); got != 0 || len(storetest.Engine(s).Catalog.Models()) != n {
			t.Errorf("%d of %d models are unpacked", got, len(storetest.Engine(s).Catalog.Models()))
		}
		m := storetest.Model(t, s, layered("model 7", 128))
		if got := unpacked(); got != 1 || len(m.Descriptor().Tensors) != 128 {
			t.Errorf("%d models are unpacked, one has %d tensors", got, len(m.Descriptor().Tensors))
		}
		all, err := db.Collect(s.Models())
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
