package engine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Every put ends with success while a compaction after the other moves the blocks that it rests on.
func TestPutsBesideCompactions(t *testing.T) {
	rounds := 15
	if n, err := strconv.Atoi(os.Getenv("DORMOUSE_BESIDE")); err == nil {
		rounds = n
	}
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			o := storetest.Options()
			o.SegmentBytes = 1 << 20
			s, m := storetest.Fresh(t, o, d)
			const talks = 3
			var done atomic.Bool
			var puts, moving sync.WaitGroup
			moving.Go(func() {
				for !done.Load() {
					if _, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			last := make([]kv.Prompt, talks)
			for n := range talks {
				puts.Go(func() {
					p := kv.Tokens(crashtest.Tokens(7, 32)...)
					for i := range rounds {
						p = kv.Tokens(crashtest.Concat(p.Tokens, crashtest.Tokens(100*n+i, 24))...)
						if _, err := m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{}); err != nil {
							t.Error(fmt.Errorf("put %d of talk %d: %w", i, n, err))
							return
						}
					}
					last[n] = p
				})
			}
			puts.Wait()
			done.Store(true)
			moving.Wait()
			for _, p := range last {
				if len(p.Tokens) > 0 {
					storetest.Expect(t, m, p, len(p.Tokens))
				}
			}
			t.Logf("%.2f bytes written for each that was put", storetest.Stats(t, s).WriteAmplification)
		})
	}
}

// subfolder lists the files of dir with the hash of each, and says what they occupy.
func subfolder(t rapid.TB, dir string) (files map[string]string, bytes int64) {
	t.Helper()
	files = map[string]string{}
	err := filepath.WalkDir(dir, func(path string, x fs.DirEntry, err error) error {
		if err != nil || x.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := vfs.OS.Stat(path)
		files[path] = fmt.Sprintf("%x", sha256.Sum256(b))
		bytes += info.Allocated
		return err
	})
	storetest.OK(t, err)
	return files, bytes
}

// Compacting a store in which nothing can be gained changes no byte of it, however often.
func TestCompactOfNothing(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20)} { // two small segments, but not of one model
		m := storetest.Model(t, s, d)
		for i := range 5 {
			storetest.Put(t, m, kv.Tokens(crashtest.Tokens(i, 100)...))
		}
	}
	storetest.OK(t, s.Close())
	want, bytes := subfolder(t, dir)
	same := func(how string) {
		t.Helper()
		got, now := subfolder(t, dir)
		for name := range got {
			if got[name] != want[name] {
				t.Errorf("%s: %s changed", how, name)
			}
		}
		if len(got) != len(want) || now > bytes {
			t.Errorf("%s: %d files of %d bytes are %d files of %d bytes now", how, len(want), bytes, len(got), now)
		}
	}
	for _, share := range []float64{0, 0.5, 1} {
		s := storetest.Open(t, dir, storetest.Options())
		out, err := s.Compact(t.Context(), db.CompactOptions{LiveShare: share})
		if err != nil || out.Segments != 0 || out.After != out.Before {
			t.Errorf("live share %g: %+v, %v", share, out, err)
		}
		storetest.OK(t, s.Close())
		same(fmt.Sprintf("Store.Compact, live share %g", share))
	}
}

// A store whose budget was raised, and its segments with it, is not written anew for that.
func TestCompactOfSegmentsOfASmallerBudget(t *testing.T) {
	defer space.SetUsualSegment(128 << 10)()
	dir := t.TempDir()
	o := storetest.Options()
	o.SegmentBytes = 64 << 10
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 200 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(i, 100)...))
	}
	storetest.OK(t, s.Close())
	o.SegmentBytes = 4 << 20
	s = storetest.Open(t, dir, o)
	if out, err := s.Compact(t.Context(), db.CompactOptions{}); err != nil || out.Records > 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// A closed store is never larger after Compact, of whatever shape and of whatever options it was, and holds the same. Once nothing is
// left to gain, another Compact changes no byte.
func TestCompactNeverMakesAStoreLarger(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 256<<20, 256<<10
	if shrunk, moved := compacted(t, halfDead(t, o), 1); shrunk == 0 || moved == 0 {
		t.Fatalf("of a store that is half dead, %d compactions made it smaller, and %d records moved", shrunk, moved)
	}

	shrunk, moved, runs, most := 0, 0, 0, 100
	if testing.Short() {
		most = 20
	}
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > most {
			return
		}
		home := storetest.Must(os.MkdirTemp(t.TempDir(), ""))(rt)
		defer os.RemoveAll(home)
		dir := filepath.Join(home, "st")
		anyStore(rt, t, dir)
		s, m := compacted(rt, dir, rapid.SampledFrom([]float64{0, 0.3, 0.9, 1}).Draw(rt, "share"))
		shrunk, moved = shrunk+s, moved+m
	})
	t.Logf("%d compactions made a store smaller, %d records moved", shrunk, moved)
}

// halfDead is the folder of a closed store in whose segments every second record was deleted.
func halfDead(t *testing.T, o db.Options) string {
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 200 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(i, 100)...))
	}
	for i := range 100 {
		p := kv.Tokens(crashtest.Tokens(2*i, 100)...)
		storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
	}
	storetest.OK(t, s.Close())
	return dir
}

// anyStore makes a store in dir, in some lives.
func anyStore(rt *rapid.T, t *testing.T, dir string) {
	o := storetest.Options()
	o.Budget = rapid.SampledFrom([]int64{8 << 20, 32 << 20, 256 << 20}).Draw(rt, "budget")
	o.SegmentBytes = rapid.SampledFrom([]int64{64 << 10, 256 << 10, 1 << 20}).Draw(rt, "segment")
	disk := vfs.OS
	if rapid.Bool().Draw(rt, "no holes") {
		disk = crashtest.NoHoles{FS: vfs.OS}
	}
	descs := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque()}
	for range rapid.IntRange(1, 4).Draw(rt, "lives") {
		s := storetest.OpenOn(t, disk, dir, o)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			d := descs[rapid.IntRange(0, len(descs)-1).Draw(rt, "model")]
			m, i := storetest.Model(t, s, d), rapid.IntRange(0, 30).Draw(rt, "prompt")
			p := kv.Tokens(crashtest.Tokens(i, 20+6*i)...)
			var err error
			if rapid.IntRange(0, 2).Draw(rt, "delete") == 0 {
				_, err = m.Delete(t.Context(), p.Prefix(16))
			} else {
				_, err = m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{})
			}
			storetest.OK(rt, err)
		}
		if rapid.IntRange(0, 5).Draw(rt, "shrink") == 0 {
			storetest.Must(s.Shrink(t.Context(), rapid.Int64Range(1<<20, 4<<20).Draw(rt, "to")))(rt)
		}
		storetest.OK(rt, s.Close())
	}
}

// compacted compacts a closed store three times and checks what must hold afterwards. It returns how many of them made it smaller, and
// how many records moved.
func compacted(t rapid.TB, dir string, share float64) (shrunk, moved int) {
	ctx, o := context.Background(), storetest.Options()
	holds := func() map[string]int {
		s := storetest.Must(db.Open(ctx, dir, db.Options{ReadOnly: true, Logger: o.Logger}))(t)
		defer s.Close()
		got := map[string]int{}
		for b, err := range s.Blocks(ctx) {
			storetest.OK(t, err)
			got[fmt.Sprint(b.Model, b.Key, b.Group)] = b.Rows
		}
		return got
	}
	size := func() int64 {
		n, _, _ := storetest.Occupied(t, dir)
		return n
	}
	want, before := holds(), size()
	for round := range 3 {
		out := storetest.Must(admin.Compact(ctx, dir, admin.CompactOptions{CompactOptions: db.CompactOptions{LiveShare: share}, Logger: o.Logger}))(t)
		after := size()
		if out.Before != before || out.After != after || after > before {
			t.Fatalf("compact %d: %d bytes are %d now; it says %+v", round, before, after, out)
		}
		if after < before {
			shrunk++
		}
		moved += out.Records
		if before = after; round == 2 && out.Records > 0 {
			t.Fatalf("compact %d still moves %d records", round, out.Records)
		}
	}
	if got := holds(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%d records are %d", len(want), len(got))
	}
	if r, err := admin.Verify(ctx, dir, admin.VerifyOptions{}); err != nil || len(r.Damage) > 0 {
		t.Fatalf("%v, %v", r.Damage, err)
	}
	return shrunk, moved
}
