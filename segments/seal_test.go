package segments

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

func TestSealRecovered(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	all := stored{}
	la, lb := all.add(t, s, 1, 1, 5000), all.add(t, s, 1, 2, 5000)
	s.Abandon()

	s = openSet(t, o)
	if info := s.Segments()[0]; info.Sealed || info.Active || info.Size != o.SegmentBytes {
		t.Fatalf("%+v", info)
	}
	if err := s.SealRecovered(la.Segment, la.End()); err == nil {
		t.Fatal("a record was cut away")
	}
	end, err := s.Scan(t.Context(), la.Segment, la.End(), func(Loc, *Record) error { return nil }, nil)
	if err != nil || end != lb.End() {
		t.Fatal(end, err)
	}
	for range 2 {
		ok(t, s.SealRecovered(la.Segment, end))
	}
	info := s.Segments()[0]
	if !info.Sealed || info.End != end || info.Size >= o.SegmentBytes {
		t.Fatalf("%+v", info)
	}
	all.check(t, s)
	ok(t, s.Close())
}

// A file whose header was never written holds nothing, and damage is not sealed over.
func TestSealRecoveredOfDamagedFiles(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	unborn := makeBlock(0, 1, 5000).append(t, s, 0).Segment
	cut := makeBlock(1, 1, 5000).append(t, s, 1).Segment
	s.Abandon()
	path := s.segs[unborn].path
	ok(t, errors.Join(os.Truncate(path, 0), os.Truncate(s.segs[cut].path, o.SegmentBytes/2)))
	s = openSet(t, o)
	for _, info := range s.Segments() {
		_, end, _ := recordsOf(t, s, info.ID)
		ok(t, s.SealRecovered(info.ID, end))
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file without a header is still there")
	}
	if bad, _ := verify(t, s, cut, nil); len(bad) == 0 {
		t.Error("a file that was cut became sound by sealing")
	}
	s.Close()
}

// Where a mapped file cannot be cut, it is cut when it is closed.
func TestUncutSegmentIsCutOnClose(t *testing.T) {
	s, d, o := onDisk(t)
	all := stored{}
	loc := all.add(t, s, 1, 1, 5000)
	g := s.segs[loc.Segment]
	d.fails(func(op crashfs.Op) error {
		if g.mu.TryLock() {
			defer g.mu.Unlock()
		}
		if op.Kind == "truncate" && g.m != nil {
			return errors.New("a user-mapped section is open")
		}
		return nil
	})
	ok(t, s.Read(loc, func(*Record) error { return s.Seal(loc.Segment) }))
	if info := s.Segments()[0]; !info.Sealed || info.Size != alignUp(o.SegmentBytes, 4096) {
		t.Errorf("%+v", info)
	}
	all.check(t, s)
	ok(t, s.Close())
	d.fails(nil)
	s = openSet(t, o)
	if info := s.Segments()[0]; !info.Sealed || info.Size == o.SegmentBytes {
		t.Errorf("%+v", info)
	}
	all.check(t, s)
	s.Abandon()
}

// closed makes a segment of so many records, which is sealed and closed.
func closed(t *testing.T, o Options, records uint64) (path string, locs []Loc) {
	t.Helper()
	s := openSet(t, o)
	for seed := range records {
		locs = append(locs, makeBlock(1, seed, 3000).append(t, s, 1))
	}
	path = s.Segments()[0].Path
	ok(t, errors.Join(s.Seal(locs[0].Segment), s.Close()))
	return path, locs
}

// resealed opens a set anew, seals its only segment at end, and counts the records that Verify finds; it must report nothing else.
func resealed(t *testing.T, o Options, end int64) (live int, s *Set) {
	t.Helper()
	s = openSet(t, o)
	t.Cleanup(func() { s.Close() })
	ok(t, s.SealRecovered(1, end))
	bad, remains := verify(t, s, 1, func(Loc) bool { live++; return true })
	if len(bad)+len(remains) > 0 {
		t.Error(bad, remains)
	}
	return live, s
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
				path, locs := closed(t, o, 15)
				if last := locs[len(locs)-1]; last.Segment != 1 || last.End() != o.SegmentBytes {
					t.Fatalf("the records end at %v, the segment at %d: its footer does not make the file longer", last, o.SegmentBytes)
				}
				locs = locs[:len(locs)-lost]
				end := locs[len(locs)-1].End()
				edit(t, path, func(b []byte) []byte {
					tear(b[o.SegmentBytes:])
					clear(b[end:o.SegmentBytes])
					return b
				})
				// Nothing of an older footer may show behind the new one, should the next power cut undo the cutting.
				o.fs = cutsFS{vfs.OS, func() {
					b := must(os.ReadFile(path))(t)
					if n := bytes.LastIndex(b, []byte(trailerMagic)) + trailerBytes; int64(n) <= end || vfs.FirstNonZero(b[n:]) >= 0 {
						t.Errorf("the file is cut at %d of %d", n, len(b))
					}
				}}
				if lost == 0 {
					s := openSet(t, o)
					if _, got, _ := recordsOf(t, s, 1); got != end {
						t.Fatalf("the records end at %d", got)
					}
					s.Abandon()
				}
				if live, _ := resealed(t, o, end); live != len(locs) {
					t.Errorf("%d of %d records", live, len(locs))
				}
			})
		}
	}
}

// cutsFS calls before whenever a file is to be cut.
type cutsFS struct {
	vfs.FS
	before func()
}

type cutsFile struct {
	vfs.File
	before func()
}

func (f cutsFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	return cutsFile{file, f.before}, err
}

func (f cutsFile) Truncate(size int64) error {
	f.before()
	return f.File.Truncate(size)
}

// A footer that ends just where the file was planned to end shows from its first write on, as one that makes the file longer
// does: a power cut may have torn it.
func TestTornFooterAtThePlannedEnd(t *testing.T) {
	const records = 168 // whose footer takes whole pages
	footer := int64(footerHeaderBytes + records*footerEntryBytes + trailerBytes)
	o := options(t.TempDir())
	o.SegmentBytes = minAlignment + records*minAlignment + footer
	path, locs := closed(t, o, records)
	end := locs[records-1].End()
	if end+footer != o.SegmentBytes || footer%minAlignment != 0 {
		t.Fatalf("the records end at %d, the footer takes %d bytes", end, footer)
	}
	b := edit(t, path, func(b []byte) []byte { clear(b[end : end+minAlignment]); return b }) // its last page alone came to the disk
	if int64(len(b)) != o.SegmentBytes {
		t.Fatalf("%d bytes", len(b))
	}
	if live, _ := resealed(t, o, end); live != records {
		t.Errorf("%d of %d records", live, records)
	}
}

// A footer that was cut to its end was synced before that: a bad one is damage, and stays for Verify to name. So does one of another
// release, even where it may have been torn: a recovery would write it anew.
func TestBadFooterStays(t *testing.T) {
	for name, x := range map[string]struct {
		change func(b []byte, end int64)
		is     error
	}{
		"damaged": {func(b []byte, end int64) { b[end] ^= 1 }, errCorrupt},
		"another release's": {func(b []byte, end int64) {
			b[len(b)-8] = 1
			le.PutUint32(b[len(b)-4:], crc32c(b[end:len(b)-4]))
			le.PutUint64(b[72:], uint64(len(b))) // as long as planned
			n := segmentHeaderBytes + int(le.Uint32(b[84:]))
			le.PutUint32(b[segmentCRCOffset:], crcAround(b[:n], segmentCRCOffset))
		}, ErrVersion},
	} {
		o := options(t.TempDir())
		path, locs := closed(t, o, 1)
		b := edit(t, path, func(b []byte) []byte { x.change(b, locs[0].End()); return b })
		s := openSet(t, o)
		ok(t, s.SealRecovered(1, locs[0].End()))
		if bad, remains := verify(t, s, 1, nil); len(bad) != 1 || len(remains) > 0 || !errors.Is(bad[0], x.is) {
			t.Errorf("%s: %v, %v", name, bad, remains)
		}
		if now := must(os.ReadFile(path))(t); !bytes.Equal(now, b) {
			t.Errorf("%s: the file was changed: %d bytes, %d before", name, len(now), len(b))
		}
		s.Close()
	}
}

// The end of a file claims a footer that may be larger than memory: nothing is allocated for it.
func TestFooterOfHoles(t *testing.T) {
	shm := tmpfs(t) // where holes are not read
	const size = 1 << 29
	const far, near = 1 << 20, size - size/4096*footerEntryBytes/2 - footerHeaderBytes - trailerBytes
	for _, c := range []struct {
		name string
		off  int64
		seal bool
	}{{"for more records than there is room", far, false}, {"of holes", near, false}, {"of holes, to be sealed", near, true}} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Dir: must(os.MkdirTemp(shm, ""))(t), UUID: testUUID, Seed: testSeed}
			s := openSet(t, o)
			b := makeBlock(1, 1, 2000)
			loc := b.append(t, s, 1)
			ok(t, s.Close())
			footer := encodeFooter(place{o.UUID, loc.Segment, c.off}, nil)
			end := footer[footerHeaderBytes:]
			le.PutUint64(end[48:], uint64(size-c.off))
			f := must(vfs.OS.Open(s.segs[loc.Segment].path, false))(t)
			defer f.Close()
			if err := f.Truncate(size); err != nil {
				t.Skip("SKIPPED: no file of that size here:", err)
			}
			must(f.WriteAt(footer[:footerHeaderBytes], c.off))(t)
			must(f.WriteAt(end, size-trailerBytes))(t)
			s = openSet(t, o)
			defer s.Close()
			n := 0
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if c.seal {
				ok(t, s.SealRecovered(loc.Segment, loc.End()))
			} else {
				ok(t, s.Verify(t.Context(), loc.Segment, func(l Loc) bool { return l == loc }, func(*damage.Error) { n++ }, nil))
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
				t.Errorf("%d bytes were allocated", got)
			}
			if n == 0 && !c.seal {
				t.Error("nothing is reported")
			}
			ok(t, b.read(s, loc))
		})
	}
}

// tmpfs is a folder in memory.
func tmpfs(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "dormouse")
	if err != nil {
		t.Skip("SKIPPED: needs a tmpfs at /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// What destroying records gave back is not taken again by looking a segment over, on a tmpfs either.
func TestWalksFillNoHoles(t *testing.T) {
	o := options(tmpfs(t))
	s := openSet(t, o)
	var locs []Loc
	for i := range uint64(7) {
		locs = append(locs, makeBlock(0, i, 6000, 100).append(t, s, 0))
	}
	alive := locs[3]
	s.Destroy(append(locs[:3:3], locs[4:]...))
	must(s.Reclaim(t.Context()))(t)
	for _, sealed := range []bool{false, true} {
		if sealed {
			ok(t, errors.Join(s.Seal(alive.Segment), s.Close()))
			s = openSet(t, o)
		}
		path := filepath.Join(o.Dir, segmentName(alive.Segment))
		before, _ := vfs.OS.Stat(path)
		n := 0
		bad, remains := verify(t, s, alive.Segment, func(l Loc) bool { n++; return l == alive })
		found, _, rubbish := recordsOf(t, s, alive.Segment)
		if n == 0 || len(bad)+len(remains)+len(rubbish) > 0 || !slices.Equal(found, []Loc{alive}) {
			t.Errorf("sealed %t: %d asked for, %v, %v, %v, found %v", sealed, n, bad, remains, rubbish, found)
		}
		if after, _ := vfs.OS.Stat(path); after.Allocated != before.Allocated {
			t.Errorf("sealed %t: %d bytes are occupied, %d before the walks", sealed, after.Allocated, before.Allocated)
		}
	}
	ok(t, s.Close())
}
