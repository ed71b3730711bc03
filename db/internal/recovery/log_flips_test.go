package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/boot"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// flips is a killed store in `Process` mode whose last call was a Sync, and in whose log bits are flipped.
type flips struct {
	files  storetest.Image
	frames []flipFrame
	log    string         // name of the log file
	want   map[string]int // tokens of what is stored
	gone   []string       // deleted
}

type flipFrame struct {
	kind     uint8
	from, to int64
	only     string // deleted by this frame while a match could see it: its bytes are there, and nothing else says that they are deleted
}

// newFlips makes a store with each kind of frame in its log: puts, one of which replaces a tail, a ref, deletions, of which one is of what
// a match can see, what is put again behind them, an eviction, moves. With kept, a match sees everything, so that nothing is destroyed.
func newFlips(t *testing.T, kept bool) *flips {
	dir := filepath.Join(crashtest.NewDirs(t).Next(), "s")
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 16<<20, 256<<10
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Model("plain"))
	x := &flips{want: map[string]int{}}
	matches, only := []*db.Match{}, map[uint64]string{}
	put := func(name string, n int) {
		c := crashtest.Named("plain", name, max(n, x.want[name]))
		storetest.Must(m.Put(t.Context(), c.Prompt.Prefix(n), c.Rows(0, n), db.PutOptions{}))(t)
		x.want[name] = max(n, x.want[name])
		x.gone = slices.DeleteFunc(x.gone, func(g string) bool { return g == name })
	}
	del := func(name string, from int) {
		lsn := storetest.Engine(s).Ledger.WAL.LastLSN() + 1
		storetest.Must(m.Delete(t.Context(), crashtest.Named("plain", name, x.want[name]).Prompt.Prefix(from+1)))(t)
		if len(matches) > 0 {
			only[lsn] = name
		}
		x.gone = append(x.gone, name)
		delete(x.want, name)
	}
	put("V", 64)
	put("A", 64)
	put("X", 64)
	put("Y", 64)
	put("T", 80)
	storetest.OK(t, storetest.Engine(s).Segments.SealAll()) // what is to be moved must be in finished segments
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, o)
	storetest.OK(t, s.Checkpoint(t.Context()))
	m = storetest.Model(t, s, crashtest.Model("plain"))
	match := func() { matches = append(matches, storetest.Match(t, m, crashtest.Named("plain", "X", 64).Prompt)) }
	if kept {
		match()
	}
	put("B", 64)
	put("T", 128) // its tail goes
	put("A/D", 128)
	storetest.OK(t, m.SetRef(t.Context(), "ref", crashtest.Named("plain", "B", 64).Prompt, db.RefOptions{Meta: []byte("meta")}))
	put("A/E", 128)
	del("A/E", 64)
	del("Y", 0)
	put("Y", 64)
	storetest.Must(storetest.Engine(s).Inside().EvictBlocks(1))(t) // V, which is the coldest
	delete(x.want, "V")
	storetest.OK(t, storetest.Engine(s).Space.Inside().Rewrite(t.Context(), func(segments.Info, int64) bool { return true }, &space.Compacted{}))
	storetest.OK(t, storetest.Engine(s).Checkpoints.Reclaim(t.Context())) // the old places
	put("Z", 64)
	del("Z", 0)
	match()
	del("X", 0)
	put("C", 64)
	if err := s.Sync(t.Context()); !errors.As(err, new(*db.PendingError)) {
		t.Fatal(err)
	}
	x.files = storetest.Must(storetest.ReadDir(dir))(t)
	for _, m := range matches {
		storetest.OK(t, m.Close())
	}
	storetest.OK(t, s.Close())
	for name := range x.files {
		if strings.HasSuffix(name, ".wal") {
			x.log = name
		}
	}
	if n := len(crashtest.LogFiles(x.files)); n != 1 {
		t.Fatalf("%d log files", n)
	}
	kinds := map[uint8]int{}
	x.each(t, func(f wal.Frame) {
		kinds[f.Kind]++
		x.frames = append(x.frames, flipFrame{f.Kind, f.Offset, f.Offset + int64(48+len(f.Payload)+7)/8*8 + 8, only[f.LSN]})
	})
	for _, kind := range []uint8{oplog.KindSnapshot, oplog.KindPut, oplog.KindRemove, oplog.KindMove, oplog.KindRef, oplog.KindBarrier} {
		if kinds[kind] == 0 {
			t.Fatalf("no frame of kind %d: %v", kind, kinds)
		}
	}
	for _, f := range x.frames {
		if f.only != "" && f.kind != oplog.KindRemove {
			t.Fatalf("a deletion of kind %d", f.kind)
		}
	}
	return x
}

// each reads the frames of the log.
func (x *flips) each(t *testing.T, fn func(f wal.Frame)) {
	dir := t.TempDir()
	storetest.OK(t, x.files.Write(dir))
	f, _, err := folder.Read(vfs.OS, dir)
	if err == nil {
		_, err = wal.Replay(wal.Options{Dir: filepath.Join(dir, storetest.LogDir), UUID: f.UUID, Boot: boot.Number()}, func(f wal.Frame) error {
			fn(f)
			return nil
		})
	}
	storetest.OK(t, err)
}

// frame is that in which the byte at off lies; the file's header counts to the first.
func (x *flips) frame(off int64) (f flipFrame, last bool) {
	i := slices.IndexFunc(x.frames, func(f flipFrame) bool { return off < f.to })
	return x.frames[i], i == len(x.frames)-1
}

// flip turns bit i of the log and says what that costs which it should not.
func (x *flips) flip(dir string, i int64, repair bool) error {
	files := x.files.Clone()
	files[x.log][i/8] ^= 1 << (i % 8)
	defer os.RemoveAll(dir)
	if err := files.Write(dir); err != nil {
		return err
	}
	f, last := x.frame(i / 8)

	// What is lost is named, unless it is the last frame: a barrier, of which nothing is lost.
	rep, err := admin.Verify(context.Background(), dir, admin.VerifyOptions{})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	at := func(file string, off int64) bool {
		return strings.HasSuffix(file, path.Base(x.log)) && (f.from <= off && off < f.to || i/8 < 64 && off < 64)
	}
	if !last && !slices.ContainsFunc(rep.Damage, func(d *db.CorruptError) bool { return at(d.File, d.Offset) }) {
		return fmt.Errorf("verify does not name it: %v, %q", rep.Damage, rep.Notes)
	}
	if repair {
		out, err := admin.Repair(context.Background(), dir, dir+".new", admin.RepairOptions{})
		os.RemoveAll(dir + ".new")
		named := last || slices.ContainsFunc(out.Files, func(f admin.DamagedFile) bool { return at(f.Path, f.Offset) })
		if err != nil || !named || out.Lost > 0 {
			return fmt.Errorf("repair: %+v, %w", out, err)
		}
	}
	var s *db.Store
	for again := range 2 {
		o := storetest.Options()
		o.Budget, o.SegmentBytes = 16<<20, 256<<10
		if s, err = db.Open(context.Background(), dir, o); err != nil {
			return err
		}
		why := fmt.Sprint(admin.IndexProblems(s))
		if again == 0 && !last && !(strings.Contains(why, path.Base(x.log)) && strings.Contains(why, "offset")) {
			err = fmt.Errorf("Open does not name it: %s", why)
		}
		if err = errors.Join(err, x.whole(s, f)); err == nil {
			err = s.Sync(context.Background())
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return fmt.Errorf("open %d: %w", again, err)
		}
	}
	if rep, err = admin.Verify(context.Background(), dir, admin.VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
		return fmt.Errorf("verify afterwards: %v, %w", rep.Damage, err)
	}
	after, err := storetest.ReadDir(dir)
	if err != nil {
		return err
	}
	gone := &crashtest.Chat{Find: map[[16]byte]int{}}
	for _, name := range x.gone {
		if f.only != name {
			maps.Copy(gone.Find, crashtest.Named("plain", name, 64*(1+strings.Count(name, "/"))).Find)
		}
	}
	if at := crashtest.BytesOf(gone, after); len(at) > 0 {
		return fmt.Errorf("something of %v was deleted, and is in %v", x.gone, at[0])
	}
	return nil
}

// whole compares what is stored after damage to a frame.
func (x *flips) whole(s *db.Store, f flipFrame) error {
	m, err := s.Register(context.Background(), crashtest.Model("plain"))
	if err != nil {
		return err
	}
	for name, n := range x.want {
		got, err := restoreChat(crashtest.Named("plain", name, n), m.Model)
		if err != nil || got < n {
			return fmt.Errorf("%s: %d tokens of %d, %w", name, got, n, err)
		}
	}
	for _, name := range x.gone {
		parent := 64 * strings.Count(name, "/")
		got, err := restoreChat(crashtest.Named("plain", name, parent+64), m.Model)
		if err != nil || got > parent && f.only != name {
			return fmt.Errorf("%s was deleted: %d tokens, %w", name, got, err)
		}
	}
	if r, err := s.Ref("ref"); (err != nil || string(r.Meta) != "meta") && f.kind != oplog.KindRef {
		return fmt.Errorf("ref: %+v, %w", r, err)
	}
	return nil
}

// One flipped bit in the log of a killed store that was synced: verify, Open and repair name the frame, no prompt is lost, and nothing that
// was deleted comes back, but for what only that frame says: the ref that it set, and that the bytes are deleted that a match could still
// see. DORMOUSE_FLIPS=n flips each nth bit, in the same boot and after another.
func TestLogFlips(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	seed, _ := crashtest.Seed(t)
	each, _ := strconv.ParseInt(os.Getenv("DORMOUSE_FLIPS"), 10, 64)
	for i, kept := range []bool{false, true, false, true} {
		rebooted := i > 1
		t.Run(fmt.Sprintf("kept=%t,rebooted=%t", kept, rebooted), func(t *testing.T) {
			x := newFlips(t, kept)
			if rebooted {
				if boot.Number() == 0 {
					t.Skip("SKIPPED: nothing tells a boot here")
				}
				var id uint64
				fmt.Sscanf(path.Base(x.log), "%x.wal", &id)
				crashtest.RebootFrames(x.files[x.log], id, xxhash.Sum64(x.files[storetest.FormatFile][40:56]))
			}
			var bits []int64
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for _, f := range x.frames { // each has its turn
				bits = append(bits, f.from*8+rnd.Int64N((f.to-f.from)*8))
			}
			end := x.frames[len(x.frames)-1].to * 8
			if bits = append(bits, rnd.Int64N(64*8)); each > 0 {
				bits = bits[:0]
				for i := rnd.Int64N(each); i < end; i += each {
					bits = append(bits, i)
				}
			}
			t.Logf("%d of %d bits, %d frames", len(bits), end, len(x.frames))
			for n, i := range bits {
				if err := x.flip(filepath.Join(dirs.Next(), "s"), i, each == 0 || n%16 == 0); err != nil {
					f, _ := x.frame(i / 8)
					t.Fatalf("bit %d at %d, in a frame of kind %d at %d to %d: %v", i%8, i/8, f.kind, f.from, f.to, err)
				}
			}
		})
	}
}
