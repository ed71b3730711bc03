package catalog_test

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

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
