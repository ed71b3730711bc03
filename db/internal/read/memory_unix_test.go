//go:build unix

package read_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// Memory of the caller's that cannot be written or read, the map of a file on a full disk, or that somebody cut, is the caller's error, and no damage
// of what is stored.
func TestMemoryThatFaults(t *testing.T) {
	for _, cold := range []bool{false, true} {
		disk := storetest.Cold(func(string, int64) bool { return cold })
		s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
		d := wide()
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
		storetest.Put(t, m, p)
		rows := storetest.Empty(d, 700)
		mem := &rows[len(rows)/2].Pieces[0].Mem
		page := unix.Getpagesize()
		all, err := unix.Mmap(-1, 0, len(*mem)+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		storetest.OK(t, err)
		defer unix.Munmap(all)
		*mem = all[:len(*mem)]
		storetest.OK(t, unix.Mprotect(all[len(*mem)/2/page*page:][:page], unix.PROT_READ))

		x, err := m.Match(t.Context(), p, db.MatchOptions{})
		storetest.OK(t, err)
		if got, err := x.Restore(t.Context(), rows); !errors.Is(err, kv.ErrRows) {
			t.Errorf("cold %t: %+v, %v", cold, got, err)
		}
		if got, err := x.RestoreLayers(t.Context(), rows, func(int, int) {}); !errors.Is(err, kv.ErrRows) {
			t.Errorf("cold %t, by layers: %+v, %v", cold, got, err)
		}
		if err := x.View(t.Context(), func(db.StoredPlane) error { all[len(*mem)/2/page*page] = 1; return nil }); !errors.Is(err, kv.ErrRows) {
			t.Errorf("view: %v", err)
		}
		storetest.OK(t, x.Close())

		short := kv.Prompt{Tokens: p.Tokens[:64]} // whose rows lie before the page: what lies behind them is to be zeroed
		if x, err = m.Match(t.Context(), short, db.MatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Restore(t.Context(), rows); !errors.Is(err, kv.ErrRows) || got.Tokens != 0 {
			t.Errorf("cold %t, behind the prefix: %+v, %v", cold, got, err)
		}
		storetest.OK(t, x.Close())

		other := kv.Prompt{Tokens: crashtest.Tokens(2, 700)}
		full := storetest.Filled(d, &other, 0, 700)
		copy(all, full[len(rows)/2].Pieces[0].Mem[:len(*mem)/2/page*page])
		full[len(rows)/2].Pieces[0].Mem = *mem
		storetest.OK(t, unix.Mprotect(all[len(*mem)/2/page*page:][:page], unix.PROT_NONE))
		if got, err := m.Put(t.Context(), other, full, db.PutOptions{}); !errors.Is(err, kv.ErrRows) {
			t.Errorf("cold %t, a put: %+v, %v", cold, got, err)
		}
		if n, _ := storetest.Restore(t, m, other); n > 350 {
			t.Errorf("%d tokens of rows that nobody could read", n)
		}
		storetest.Put(t, m, other)
		storetest.Expect(t, m, other, 700)
		if st, err := s.Stats(); err != nil || st.Damaged != 0 {
			t.Errorf("cold %t: %d damaged records, %v", cold, st.Damaged, err)
		}
		storetest.Expect(t, m, p, 700)
	}
}
