package check_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A folder in the place of a segment is a segment that is missing: it is named, and does not keep the rest from work.
func TestFolderForSegment(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p, q := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}, kv.Prompt{Tokens: crashtest.Tokens(2, 60)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.Put(t, storetest.Model(t, s, crashtest.Windowed(40)), q)
	storetest.OK(t, s.Close())
	files, err := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	storetest.OK(t, os.Remove(files[0]))
	storetest.OK(t, os.MkdirAll(filepath.Join(files[0], "with something in it"), 0o700))
	r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil || !slices.ContainsFunc(r.Damage, func(d *db.CorruptError) bool { return d.File == files[0] }) {
		t.Errorf("verify: %+v, %v", r, err)
	}
	s = storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Expect(t, m, p, 0)
	storetest.Expect(t, storetest.Model(t, s, crashtest.Windowed(40)), q, 60)
	if _, err := m.Delete(t.Context(), p); err != nil {
		t.Errorf("delete: %v", err)
	}
	for range 3 {
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Fatalf("checkpoint: %v", err)
		}
	}
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 100)
}

// A folder in the place of the Bloom filter's file keeps no checkpoint from being made: it can be rebuilt.
func TestFolderForBloom(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, m, p)
	storetest.OK(t, os.MkdirAll(filepath.Join(s.Dir(), storetest.BloomFile, "with something in it"), 0o700))
	before := storetest.Log(t, s).ID
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Errorf("checkpoint: %v", err)
	}
	if files, err := db.Collect(admin.Log(t.Context(), s)); err != nil || len(files) != 1 || files[0].ID != before+1 {
		t.Errorf("the log has %+v after a checkpoint in file %d, %v", files, before, err)
	}
	storetest.OK(t, s.Close())
	s = storetest.Open(t, s.Dir(), storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 100)
}

// Whatever lies in the place of index.db, it is built anew; links are not followed.
func TestLinkForIndex(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	s := storetest.Open(t, dir, storetest.Options())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	name := filepath.Join(dir, storetest.IndexFile)
	storetest.OK(t, os.Rename(name, elsewhere))
	before := storetest.Must(os.ReadFile(elsewhere))(t)
	if err := os.Symlink(elsewhere, name); err != nil {
		t.Skipf("SKIPPED: no links here: %v", err)
	}
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 100)
	if len(admin.IndexProblems(s)) == 0 {
		t.Error("a link was followed")
	}
	if after, err := os.ReadFile(elsewhere); err != nil || !bytes.Equal(before, after) {
		t.Errorf("what the link leads to was changed (%v)", err)
	}
}

// Links in the place of the folders are not followed either.
func TestFoldersOfOthers(t *testing.T) {
	for _, sub := range []string{storetest.LogDir, storetest.SegmentsDir} {
		dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
		s := storetest.Open(t, dir, storetest.Options())
		p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
		storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
		storetest.OK(t, s.Close())
		path := filepath.Join(dir, sub)
		storetest.OK(t, os.Rename(path, elsewhere))
		if err := os.Symlink(elsewhere, path); err != nil {
			t.Skipf("SKIPPED: no links here: %v", err)
		}
		before := storetest.Tree(t, elsewhere)
		for _, readOnly := range []bool{true, false} {
			o := storetest.Options()
			o.ReadOnly, o.AllowSharedDir = readOnly, true
			if s, err := db.Open(t.Context(), dir, o); err == nil {
				s.Close()
				t.Errorf("%s is a link and was followed, read-only %t", sub, readOnly)
			}
		}
		storetest.SameTree(t, before, storetest.Tree(t, elsewhere), "an Open through a link")
		storetest.OK(t, os.Remove(path))
		storetest.OK(t, os.Rename(elsewhere, path))
		s = storetest.Open(t, dir, storetest.Options())
		storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 100)
	}
}

// A record that somebody else zeroed is damage, not one that was deleted or evicted after the match.
func TestZeroedRecordIsDamage(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, m, p)
	storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 3, 0), 256)
	x := storetest.Match(t, m, p)
	defer x.Close()
	var bad *db.CorruptError
	got, err := x.Restore(t.Context(), storetest.Empty(crashtest.Plain(), 100))
	if err != nil || got.Tokens != 48 || got.Reason.Code != db.Damaged || !errors.As(got.Reason.Err, &bad) || bad.Found != "zeros" {
		t.Errorf("restored %d tokens (%v, %v), %v", got.Tokens, got.Reason, got.Reason.Err, err)
	}
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 100)
}

// A match that meets damage in a block with which its prompt begins only is told so, and the block is flagged: nobody reads it again, and a put
// stores it anew.
func TestMatchFlagsDamage(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 3, 0), 256)
	other := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:56], crashtest.Tokens(2, 8))}
	for i := range 3 {
		x := storetest.Match(t, m, other)
		if i == 0 && x.Reason().Code != db.Damaged || x.Tokens() != 48 {
			t.Errorf("match %d: %d tokens, %v", i, x.Tokens(), x.Reason())
		}
		storetest.OK(t, x.Close())
	}
	if n := storetest.Stats(t, s).Damaged; n != 1 {
		t.Errorf("damage was met %d times", n)
	}
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 64)
}

// A segment that somebody cut is damage where a live record lay behind the cut, and only there: each is named with its offset, by whom the
// index knows of it or the log, whether the segment was sealed or its process was killed.
func TestVerifyOfCutSegment(t *testing.T) {
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	for i := range 8 {
		closed, inside, unindexed := i&1 > 0, i&2 > 0, i&4 > 0
		if closed && unindexed {
			continue // then the records are all that says what there is
		}
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		var offs []int64
		for n := 16; n <= 48; n += 16 { // one after the other, so that the last block is the last record
			storetest.Put(t, m, p.Prefix(n))
			offs = append(offs, storetest.Place(t, s, m, p.Prefix(n), n/16-1, 0).Offset)
		}
		end := storetest.Place(t, s, m, p, 2, 0).End()
		if closed {
			storetest.OK(t, s.Close())
		} else {
			storetest.Crash(s)
		}
		if unindexed {
			storetest.Remove(t, dir, storetest.IndexFile)
		}
		file := filepath.Join(dir, storetest.FirstSegment)
		storetest.OK(t, os.Truncate(file, end))
		r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
		if err != nil || len(r.Damage) > 0 {
			t.Errorf("case %d: nothing lay behind the cut: %v, %v", i, r.Damage, err)
		}
		at := offs[1]
		if inside {
			at += 4096
		}
		storetest.OK(t, os.Truncate(file, at))
		r, err = admin.Verify(t.Context(), dir, admin.VerifyOptions{})
		storetest.OK(t, err)
		for _, off := range offs[1:] {
			if !slices.ContainsFunc(r.Damage, func(d *db.CorruptError) bool { return d.File == file && off <= d.Offset && d.Offset < off+256 }) {
				t.Errorf("case %d: the record at %d is not named: %v", i, off, r.Damage)
			}
		}
	}
}

// A state or window rows that are damaged are said to be so, by the restore that finds it and by every match after it, and are
// put again.
func TestDamagedGroupIsSaidToBe(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Opaque(), crashtest.Windowed(40)} {
		t.Run(d.Name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			short, long := kv.Prompt{Tokens: crashtest.Tokens(1, 48)}, kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
			storetest.Put(t, m, short)
			storetest.Put(t, m, long)
			at := storetest.Place(t, s, m, long, 6, 1) // of the last block
			storetest.Write(t, storetest.SegmentPath(s.Dir(), at.Segment), at.Offset, []byte("no record"))
			for i := range 2 {
				n, reason := storetest.Restore(t, m, long)
				if n >= 100 || n < 48 || reason.Code != db.Damaged {
					t.Errorf("restore %d: %d tokens (%v)", i, n, reason)
				}
			}
			storetest.Put(t, m, long)
			storetest.Expect(t, m, long, 100)
		})
	}
}
