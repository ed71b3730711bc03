package segments

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// image1 is a folder that holds segment 1 and nothing else, in memory: parsers are tested through it without a file.
type image1 struct {
	vfs.FS
	b []byte
}

const image1Dir = "images"

func (f *image1) List(string) ([]string, error) { return []string{segmentName(1)}, nil }
func (f *image1) Stat(name string) (vfs.Info, error) {
	if filepath.Base(name) != segmentName(1) {
		return vfs.Info{}, fs.ErrNotExist
	}
	return vfs.Info{Size: int64(len(f.b)), Allocated: int64(len(f.b)), Regular: true}, nil
}
func (f *image1) Open(string, bool) (vfs.File, error) { return &imageFile{f: f}, nil }

type imageFile struct {
	vfs.File
	f *image1
}

func (x *imageFile) Name() string                        { return segmentName(1) }
func (x *imageFile) Close() error                        { return nil }
func (x *imageFile) Stat() (vfs.Info, error)             { return x.f.Stat(segmentName(1)) }
func (x *imageFile) Map(size int64) (vfs.Mapping, error) { return imageMap{b: x.f.b[:size]}, nil }
func (x *imageFile) ReadAt(b []byte, off int64) (int, error) {
	return bytes.NewReader(x.f.b).ReadAt(b, off)
}
func (x *imageFile) WriteAt(b []byte, off int64) (int, error) { return 0, io.ErrShortWrite }

type imageMap struct {
	vfs.Mapping
	b []byte
}

func (m imageMap) Bytes() []byte         { return m.b }
func (m imageMap) WillNeed(int64, int64) {}
func (m imageMap) Close() error          { return nil }

func imageSet(t testing.TB, b []byte) *Set {
	return openSet(t, Options{FS: &image1{b: b}, Dir: image1Dir, UUID: testUUID, Seed: testSeed, ReadOnly: true})
}

// sample is a segment file with three live records, one that is destroyed (2), and one that is dead but still there (3).
type sample struct {
	b      []byte
	blocks []block
	locs   []Loc
	sealed bool
}

const sampleGone, sampleDead = 2, 3

func (x *sample) live(loc Loc) bool {
	i := slices.Index(x.locs, loc)
	return i >= 0 && i != sampleGone && i != sampleDead
}

func makeSample(t testing.TB, seal bool) *sample {
	t.Helper()
	s := newSet(t)
	x := &sample{sealed: seal}
	for i := range uint64(5) {
		b := makeBlock(1, i, 100, 1000+int(i), 33)
		if i == 4 {
			b = makeBlock(1, i, 5000, 0, 63)
		}
		b.meta.Spans = append(b.meta.Spans, spanOf(-3, 10, 1), spanOf(20, 4, 2), spanOf(60, 40, 3))
		x.blocks = append(x.blocks, b)
		x.locs = append(x.locs, b.append(t, s, 1))
	}
	s.Destroy([]Loc{x.locs[sampleGone]})
	reclaim(t, s)
	if seal {
		ok(t, s.Close())
	} else {
		s.Abandon()
	}
	x.b = must(os.ReadFile(s.files.byID[1].path))(t)
	return x
}

// covers says what byte off of the sample belongs to.
func (x *sample) covers(off int64) string {
	for i, loc := range x.locs {
		if loc.Offset <= off && off < loc.End() {
			switch i {
			case sampleGone:
				return "destroyed"
			case sampleDead:
				return "dead"
			}
			return "live"
		}
	}
	if off < x.locs[0].Offset || x.sealed {
		return "live" // header
	}
	return "unwritten"
}

func TestSamplesAreSound(t *testing.T) {
	for _, seal := range []bool{true, false} {
		x := makeSample(t, seal)
		s := imageSet(t, x.b)
		var asked []Loc
		bad, remains := verify(t, s, 1, func(l Loc) bool { asked = append(asked, l); return x.live(l) })
		if len(bad)+len(remains) > 0 {
			t.Errorf("sealed %t: %v %v", seal, bad, remains)
		}
		for i, loc := range x.locs {
			if found := slices.Contains(asked, loc); found != (i != sampleGone) {
				t.Errorf("sealed %t: live was asked about record %d: %t", seal, i, found)
			}
			err := x.blocks[i].read(s, loc)
			if i == sampleGone && !errors.Is(err, ErrDestroyed) || i != sampleGone && err != nil {
				t.Errorf("sealed %t: record %d: %v", seal, i, err)
			}
			if i == sampleGone && errors.Is(err, errCorrupt) {
				t.Error("a destroyed record is reported as damage")
			}
		}
	}
}

// One flipped bit anywhere: Verify reports it if the byte is live, no read returns wrong bytes, and a scan goes on.
func TestEveryFlippedBit(t *testing.T) {
	// Short of DORMOUSE_LONG, the planes, of which one byte is like another, are sampled.
	bits, step := 1, int64(5)
	switch {
	case os.Getenv("DORMOUSE_LONG") != "":
		bits, step = 8, 1
	case testing.Short():
		step = 61
	}
	for _, seal := range []bool{true, false} {
		x := makeSample(t, seal)
		for off := int64(0); off < int64(len(x.b)); off++ {
			if off%4096 >= 512 && off%step != 0 {
				continue
			}
			for k := range int64(bits) {
				mask := byte(1) << ((off + k) % 8)
				x.b[off] ^= mask
				x.checkFlip(t, off, mask)
				x.b[off] ^= mask
			}
			if t.Failed() {
				return
			}
		}
	}
}

func (x *sample) checkFlip(t *testing.T, off int64, mask byte) {
	s := imageSet(t, x.b)
	name := fmt.Sprintf("sealed %t, offset %d (%s), bit %#x", x.sealed, off, x.covers(off), mask)
	bad, remains := verify(t, s, 1, x.live)
	switch x.covers(off) {
	case "live":
		if len(bad) == 0 {
			t.Errorf("%s: not reported (remains: %v)", name, remains)
		}
	case "dead": // whoever knows that it is dead takes no notice of what is reported
	default:
		if len(bad)+len(remains) == 0 {
			t.Errorf("%s: not reported", name)
		}
	}
	for i, loc := range x.locs {
		err := x.blocks[i].read(s, loc)
		if err != nil && !errors.Is(err, errCorrupt) && !errors.Is(err, ErrDestroyed) {
			t.Errorf("%s: record %d: %v", name, i, err)
		}
		if err != nil && i != sampleGone && (off < loc.Offset || off >= loc.End()) {
			t.Errorf("%s: record %d, which was not touched: %v", name, i, err)
		}
	}
	found := 0
	_, err := s.Scan(t.Context(), 1, 0, func(loc Loc, r *Record) error {
		if !slices.Contains(x.locs, loc) {
			t.Errorf("%s: scan found a record at %v", name, loc)
		}
		found++
		return nil
	}, nil)
	if err != nil || found < 3 {
		t.Errorf("%s: scan found %d of 4 records, %v", name, found, err)
	}
}

// A file that was cut at any length: Verify says so, or does not ask about what lay behind; no read returns wrong bytes, and what lies before the cut is there.
func TestEveryTruncation(t *testing.T) {
	for _, seal := range []bool{true, false} {
		x := makeSample(t, seal)
		for n := 0; n < len(x.b); n += 64 {
			s := imageSet(t, x.b[:n])
			name := fmt.Sprintf("sealed %t, cut at %d of %d", seal, n, len(x.b))
			asked := map[Loc]bool{}
			bad, _ := verify(t, s, 1, func(l Loc) bool { asked[l] = true; return x.live(l) })
			for _, loc := range x.locs {
				if x.live(loc) && loc.End() > int64(n) && len(bad) == 0 && asked[loc] {
					t.Errorf("%s: what lay at %d is not missed", name, loc.Offset)
				}
			}
			for i, loc := range x.locs {
				err := x.blocks[i].read(s, loc)
				if whole := loc.End() <= int64(n); i != sampleGone && whole != (err == nil) {
					t.Errorf("%s: record %d: %v", name, i, err)
				}
				if err != nil && !errors.Is(err, errCorrupt) && !errors.Is(err, ErrDestroyed) {
					t.Errorf("%s: record %d: %v", name, i, err)
				}
			}
			recordsOf(t, s, 1)
		}
	}
}

// A file that somebody cuts while it is mapped must not kill the process.
func TestTruncatedUnderTheMap(t *testing.T) {
	s := newSet(t)
	var blocks []block
	var locs []Loc
	for i := range uint64(3) {
		blocks = append(blocks, makeBlock(1, i, 9000))
		locs = append(locs, blocks[i].append(t, s, 1))
	}
	ok(t, blocks[2].read(s, locs[2]))
	path := s.files.byID[1].path
	ok(t, os.Truncate(path, locs[1].Offset+100))
	ok(t, blocks[0].read(s, locs[0]))
	for i := 1; i < 3; i++ {
		if err := blocks[i].read(s, locs[i]); !errors.Is(err, errCorrupt) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	if err := blocks[2].read(s, locs[2]); !errors.Is(err, vfs.ErrFault) {
		t.Error(err)
	}
	first, _ := s.files.segment(1)
	whole := must(first.pin())(t)
	defer first.unpin()
	err := s.Read(locs[0], func(*Record) error { // hands the map to a put into another store, say
		return Callers(func() error { return errors.New(string(whole[locs[2].Offset:][:1])) })
	})
	if !errors.Is(err, errCorrupt) || errors.Is(err, ErrMemory) {
		t.Errorf("a fault in the map, met by another: %v", err)
	}
	if bad, _ := verify(t, s, 1, nil); len(bad) == 0 {
		t.Error("not reported")
	}
	s.Destroy(locs)
	if done, _, err := s.Reclaim(t.Context(), nil); len(done) != 3 || err != nil {
		t.Error(done, err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != locs[1].Offset+100 {
		t.Errorf("destroying made the file %d bytes long", st.Size())
	}
	s.Abandon()
}

// A payload that holds a copy of a record, header and all, is a payload: a record names its own place.
func TestPayloadIsNeverARecord(t *testing.T) {
	s := newSet(t)
	la := makeBlock(1, 1, 100).append(t, s, 1)
	var raw []byte
	if err := s.Read(la, func(r *Record) error { raw = bytes.Clone(r.b); return nil }); err != nil {
		t.Fatal(err)
	}
	// The copy begins at a multiple of the alignment of the file, in the plane of b.
	b := makeBlock(1, 2, 3*4096)
	clear(b.planes[0])
	probe := b.build(t)
	at := int(alignUp(int64(probe.h.head), 4096)) - probe.h.head
	probe.Release()
	copy(b.planes[0][at:], raw)
	lb := b.append(t, s, 1)
	lc := makeBlock(1, 3, 10).append(t, s, 1)

	if found, _, bad := recordsOf(t, s, 1); !slices.Equal(found, []Loc{la, lb, lc}) || len(bad) > 0 {
		t.Error(found, bad)
	}
	flip(t, s.files.byID[1].path, lb.Offset+20) // now the walk goes through b's planes
	if found, _, bad := recordsOf(t, s, 1); !slices.Equal(found, []Loc{la, lc}) || len(bad) != 1 {
		t.Error(found, bad)
	}
	if err := b.read(s, Loc{Segment: 1, Offset: lb.Offset + 4096, Length: la.Length}); !errors.Is(err, errCorrupt) {
		t.Error(err)
	}
	s.Abandon()
}

// Records torn by a power loss in the ways in which pages can be lost, behind the last acknowledged one.
func TestTornWritesAreRemains(t *testing.T) {
	x := makeSample(t, false)
	last := x.locs[4]
	clear(x.b[last.Offset : last.Offset+4096]) // its first page did not reach the disk, its second did
	s := imageSet(t, x.b)
	bad, remains := verify(t, s, 1, x.live)
	if len(bad) != 0 || len(remains) != 1 {
		t.Error(bad, remains)
	}
	if _, end, soft := recordsOf(t, s, 1); end != x.locs[3].End() || len(soft) != 1 || !errors.Is(soft[0], ErrRemains) {
		t.Error(end, soft)
	}
}

// A file that is cut while it is looked over ends where a hole begins that has no data behind it.
func TestLookOverACutFile(t *testing.T) {
	const size = 12 << 10
	f := must(vfs.OS.Create(filepath.Join(must(os.MkdirTemp(tmpfs(t), ""))(t), "file")))(t) // where holes are not read
	defer f.Close()
	for cut := int64(size); cut >= 0; cut -= 1 << 10 {
		for from := int64(0); from < size; from += 1 << 10 {
			ok(t, f.Truncate(size))
			must(f.WriteAt(make([]byte, size), 0))(t)
			im := &image{b: make([]byte, size), holes: holesOf(f)}
			ok(t, f.Truncate(cut))
			if i := im.nonZero(from, size); i >= 0 {
				t.Fatalf("cut to %d: byte %d is not zero", cut, i)
			}
		}
	}
}
