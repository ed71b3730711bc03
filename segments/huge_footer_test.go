package segments

import (
	"os"
	"runtime"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// The end of a file claims a footer that may be larger than memory: nothing is allocated for it.
func TestFooterOfHoles(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "dormouse") // where holes are not read
	if err != nil {
		t.Skip("SKIPPED: needs a tmpfs, where a walk over a file of holes costs nothing:", err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	const size = 1 << 29
	const far, near = 1 << 20, size - size/4096*footerEntryBytes/2 - footerHeaderBytes - trailerBytes
	for _, c := range []struct {
		name string
		off  int64
		seal bool
	}{{"for more records than there is room", far, false}, {"of holes", near, false}, {"of holes, to be sealed", near, true}} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(shm, "")
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Dir: dir, UUID: kv.UUID{1}, Seed: kv.Seed{2}}
			s, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			b := makeBlock(1, 1, 2000)
			loc := b.append(t, s, 1)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			at := place{o.UUID, loc.Segment, c.off}
			footer := encodeFooter(at, nil)
			end := footer[footerHeaderBytes:]
			le.PutUint64(end[48:], uint64(size-c.off))
			f, err := vfs.OS.Open(s.segs[loc.Segment].path, false)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(size); err != nil {
				t.Skip("SKIPPED: no file of that size here:", err)
			}
			for _, w := range []struct {
				b  []byte
				at int64
			}{{footer[:footerHeaderBytes], c.off}, {end, size - trailerBytes}} {
				if _, err := f.WriteAt(w.b, w.at); err != nil {
					t.Fatal(err)
				}
			}
			if s, err = Open(o); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			n := 0
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if c.seal {
				err = s.SealRecovered(loc.Segment, loc.End())
			} else {
				err = s.Verify(t.Context(), loc.Segment, func(l Loc) bool { return l == loc }, func(*damage.Error) { n++ }, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
				t.Errorf("%d bytes were allocated", got)
			}
			if n == 0 && !c.seal {
				t.Error("nothing is reported")
			}
			if err := b.read(s, loc); err != nil {
				t.Error(err)
			}
		})
	}
}
