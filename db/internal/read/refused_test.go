package read_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A restore that is refused leaves no row as it was: nobody takes what an earlier prompt left for this one's.
func TestRefusedRestoreZeroesRows(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque()} {
		for _, closed := range []string{"match", "store"} {
			t.Run(d.Name+" closed "+closed, func(t *testing.T) {
				s, m := storetest.Fresh(t, storetest.Options(), d)
				p := kv.Tokens(crashtest.Tokens(1, 32)...)
				storetest.Put(t, m, p)
				x := storetest.Match(t, m, p)
				storetest.OK(t, x.Close())
				if closed == "store" {
					storetest.OK(t, s.Close())
				}
				rows := storetest.Empty(d, 32)
				if got, err := x.Restore(t.Context(), rows); err == nil || got.Tokens != 0 {
					t.Errorf("%+v, %v", got, err)
				}
				for i := range rows {
					for _, b := range rows[i].Pieces[0].Mem {
						if b != 0 {
							t.Fatalf("rows of tensor %d are not zero", i)
						}
					}
				}
			})
		}
	}
}
