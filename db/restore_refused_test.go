package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A restore that is refused leaves no row as it was: nobody takes what an earlier prompt left for this one's.
func TestRefusedRestoreZeroesRows(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		for _, closed := range []string{"match", "store"} {
			t.Run(d.Name+" closed "+closed, func(t *testing.T) {
				s := open(t, t.TempDir(), options())
				m := model(t, s, d)
				p := kv.Tokens(tokens(1, 32)...)
				put(t, m, p)
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := x.Close(); err != nil {
					t.Fatal(err)
				}
				if closed == "store" {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				rows := empty(d, 32)
				if got, err := x.Restore(ctx, rows); err == nil || got.Tokens != 0 {
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
