package db

import (
	"fmt"
	"testing"

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
