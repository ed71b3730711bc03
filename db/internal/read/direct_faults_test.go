package read_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// addresses are those in the messages of faults.
var addresses = regexp.MustCompile(`address 0x[0-9a-f]+`)

// Whatever a read around the page cache does, fail, end early or give other bytes: the restore is right, since the map is.
func TestDirectReadsThatFail(t *testing.T) {
	for name, fault := range map[string]error{
		"EIO": syscall.EIO, "a short read": &storetest.Short{Bytes: 5000, Err: io.EOF}, "no file handles": syscall.EMFILE,
	} {
		t.Run(name, func(t *testing.T) {
			var seen directs
			var calls atomic.Int64
			disk := storetest.Cold(nil)
			s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
			m := storetest.Model(t, s, wide())
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
			storetest.Put(t, m, p)
			for at := int64(0); ; at++ {
				calls.Store(0)
				met := false
				disk.Before(func(c storetest.Call) error {
					if (c.Kind == "readdirect" || c.Kind == "opendirect" && name == "no file handles") && calls.Add(1)-1 == at {
						met = true
						return fault
					}
					seen.count(c)
					return nil
				})
				storetest.Expect(t, m, p, 700)
				disk.Before(nil)
				if !met {
					break
				}
			}
			if seen.reads.Load() == 0 || seen.open.Load() != 0 {
				t.Errorf("%d direct reads, %d files are still open", seen.reads.Load(), seen.open.Load())
			}
		})
	}
}

// Bytes that a read around the page cache got wrong, anywhere in a record, are not handed out.
func TestDirectReadsThatLie(t *testing.T) {
	disk := storetest.Cold(nil)
	s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
	m := storetest.Model(t, s, wide())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
	storetest.Put(t, m, p)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		spoiled := 0
		disk.Spoil(func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch at := r.IntN(len(b)); r.IntN(3) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
				spoiled++
			case 1:
				clear(b[at:])
				spoiled++
			}
		})
		storetest.Expect(t, m, p, 700)
		if spoiled == 0 {
			t.Error("nothing was spoiled")
		}
	}
	if st, err := s.Stats(); err != nil || st.Damaged != 0 {
		t.Errorf("%d damaged blocks are counted, %v: the files are sound", st.Damaged, err)
	}
}

// Damage of what is not in memory is found, and told, as that of what is.
func TestDirectDamage(t *testing.T) {
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
	sound := memdir.Disk(t)
	s := storetest.Open(t, sound, storetest.Options())
	m := storetest.Model(t, s, wide())
	storetest.Put(t, m, p)
	b := storetest.Record(t, s, m, p, 5, 0)
	storetest.OK(t, s.Close())
	tell := func(t *testing.T, at float64, cut bool, cold bool) string {
		dir := storetest.Copy(t, sound)
		disk := storetest.Cold(func(string, int64) bool { return cold })
		path := storetest.SegmentPath(dir, b.Segment)
		off := b.Offset + int64(at*float64(b.Bytes-1))
		s := storetest.OpenOn(t, disk, dir, storetest.Options())
		m := storetest.Model(t, s, wide())
		x, err := m.Match(t.Context(), p, db.MatchOptions{})
		storetest.OK(t, err)
		defer x.Close()
		rows := storetest.Empty(wide(), 700)
		var seen directs
		disk.Before(func(c storetest.Call) error { seen.count(c); return nil })
		var got db.Restored
		if cut {
			storetest.Expect(t, m, p, 700) // the file is mapped
			storetest.OK(t, os.Truncate(path, off))
			got, err = x.Restore(t.Context(), rows)
		} else {
			storetest.Flip(t, path, off, 3, func() { got, err = x.Restore(t.Context(), rows) })
		}
		storetest.OK(t, err)
		if cold != (seen.reads.Load() > 0) || seen.open.Load() != 0 {
			t.Fatalf("cold %t: %d direct reads, %d files are still open", cold, seen.reads.Load(), seen.open.Load())
		}
		storetest.CheckRows(t, wide(), &p, rows, got.Tokens)
		return strings.ReplaceAll(fmt.Sprintf("%d %d %s %v", got.Tokens, got.Reason.Code, got.Reason, got.Reason.Err), dir, "")
	}
	for _, at := range []float64{0, 0.001, 0.3, 0.6, 1} {
		for _, cut := range []bool{false, true} {
			warm, cold := tell(t, at, cut, false), tell(t, at, cut, true)
			if addresses.ReplaceAllString(warm, "") != addresses.ReplaceAllString(cold, "") {
				t.Errorf("at %v, cut %t: in memory\n%s\nand cold\n%s", at, cut, warm, cold)
			}
		}
	}
}
