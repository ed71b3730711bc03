package segments

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// fullSegment makes a segment that records fill to its very end, so that its footer makes the file longer.
func fullSegment(t *testing.T, o Options) (path string, locs []Loc) {
	t.Helper()
	s := openSet(t, o)
	for seed := range uint64(15) {
		locs = append(locs, makeBlock(1, seed, 3000).append(t, s, 1))
	}
	last := locs[len(locs)-1]
	if last.Segment != locs[0].Segment || last.End() != o.SegmentBytes {
		t.Fatalf("the records end at %v, the segment at %d", last, o.SegmentBytes)
	}
	path = s.Segments()[0].Path
	if err := s.Seal(last.Segment); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, locs
}

// A power cut that keeps the length of a file, and not all of the footer that made it so long, leaves no damage: the footer is
// written once more.
func TestTornFooterBehindThePlannedEnd(t *testing.T) {
	for name, tear := range map[string]func(footer []byte){
		"beginning": func(b []byte) { clear(b[:footerHeaderBytes]) },
		"middle":    func(b []byte) { clear(b[footerHeaderBytes : footerHeaderBytes+100]) },
		"end":       func(b []byte) { clear(b[len(b)-trailerBytes:]) },
		"all":       func(b []byte) { clear(b) },
	} {
		for _, lost := range []int{0, 1, 3} { // records at the end, that were not durable either
			t.Run(name, func(t *testing.T) {
				o := options(t.TempDir())
				path, locs := fullSegment(t, o)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				tear(b[o.SegmentBytes:])
				locs = locs[:len(locs)-lost]
				end := locs[len(locs)-1].End()
				clear(b[end:o.SegmentBytes])
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				f := &faults{FS: vfs.OS}
				o.FS = f
				s := openSet(t, o)
				defer s.Close()
				// Nothing of an older footer may show behind the new one, should the next power cut undo the cutting.
				f.set(func(op, _ string) error {
					if op != "truncate" {
						return nil
					}
					b, err := os.ReadFile(path)
					n := bytes.LastIndex(b, []byte(trailerMagic)) + trailerBytes
					if err != nil || int64(n) <= end || firstNonZero(b[n:]) >= 0 {
						t.Errorf("the file is cut at %d of %d: %v", n, len(b), err)
					}
					return nil
				})
				got, err := s.Scan(t.Context(), locs[0].Segment, 0, func(Loc, *Record) error { return nil }, func(*damage.Error) {})
				if lost == 0 && (err != nil || got != end) {
					t.Fatalf("the records end at %d: %v", got, err)
				}
				if err := s.SealRecovered(locs[0].Segment, end); err != nil {
					t.Fatal(err)
				}
				cut := false
				for _, c := range f.calls {
					cut = cut || strings.HasPrefix(c, "truncate")
				}
				live := 0
				if err := s.Verify(t.Context(), locs[0].Segment, func(Loc) bool { live++; return true }, func(d *damage.Error) { t.Error(d) }, nil); err != nil {
					t.Fatal(err)
				}
				if live != len(locs) {
					t.Errorf("%d of %d records, cut: %v", live, len(locs), cut)
				}
			})
		}
	}
}

// One that was cut to its footer was synced before that: a bad one is damage, and stays for Verify to name.
func TestDamagedFooterStays(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	loc := makeBlock(1, 1, 3000).append(t, s, 1)
	path := s.Segments()[0].Path
	if err := errors.Join(s.Seal(loc.Segment), s.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[loc.End()] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSet(t, o)
	defer s.Close()
	if err := s.SealRecovered(loc.Segment, loc.End()); err != nil {
		t.Fatal(err)
	}
	named := 0
	if err := s.Verify(t.Context(), loc.Segment, func(Loc) bool { return true }, func(*damage.Error) { named++ }, nil); err != nil || named != 1 {
		t.Errorf("%d errors, %v", named, err)
	}
}
