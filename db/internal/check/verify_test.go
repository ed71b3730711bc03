package check_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

func TestVerifyHealthy(t *testing.T) {
	dir := storetest.Small(t)
	r := storetest.Must(admin.Verify(t.Context(), dir, admin.VerifyOptions{}))(t)
	for _, d := range r.Damage {
		t.Errorf("healthy store: %v", d)
	}
	for _, n := range r.Notes {
		t.Errorf("healthy store: %s", n)
	}
	if r.Records != 26 {
		t.Errorf("%+v", r)
	}
}

// A segment that is gone is one damage, which says how much lay in it, whoever knows that: the index, or the log without it.
func TestVerifyNamesAMissingSegmentOnce(t *testing.T) {
	for _, lost := range []string{"", storetest.IndexFile} {
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 32)})
		w := storetest.Model(t, s, crashtest.Windowed(40))
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Tokens(1, 100)})
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Tokens(2, 16)})
		storetest.OK(t, s.Sync(t.Context()))
		if lost != "" { // what a store looks like whose process was killed
			copied := t.TempDir()
			storetest.OK(t, os.CopyFS(copied, os.DirFS(dir)))
			dir = copied
			storetest.OK(t, errors.Join(os.Chmod(dir, 0o700), os.Remove(filepath.Join(dir, lost))))
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		rep, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{AllowSharedDir: true})
		if err != nil || len(rep.Damage) > 0 || rep.Records != 2+8*2 {
			t.Fatalf("sound: %+v, %v", rep, err)
		}
		file := filepath.Join(dir, storetest.SegmentsDir, "0000000000000002.seg")
		storetest.OK(t, os.Remove(file))
		rep, err = admin.Verify(t.Context(), dir, admin.VerifyOptions{AllowSharedDir: true})
		if err != nil || len(rep.Damage) != 1 || rep.Records != 2 {
			t.Errorf("without %q: %d damaged places, %d records, %v: %v", lost, len(rep.Damage), rep.Records, rep.Damage, err)
			continue
		}
		d := rep.Damage[0]
		if d.File != file || !errors.Is(d, segments.ErrMissing) || !strings.HasSuffix(d.Error(), ": corrupt segment at offset 0: segment file is missing") {
			t.Errorf("without %q: %v", lost, d)
		}
	}
}

// A segment that cannot be opened keeps Verify from nothing but that segment: what is damaged in the others is named, the error
// says which one it was, and none of its records is called damaged, since nobody has seen them.
func TestVerifyGoesOnWhereASegmentCannotBeOpened(t *testing.T) {
	const first, other = "0000000000000001.seg", "0000000000000002.seg"
	var shut atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, first, &shut, syscall.EACCES)
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.Put(t, storetest.Model(t, s, crashtest.Windowed(40)), kv.Prompt{Tokens: crashtest.Tokens(2, 64)})
	storetest.OK(t, s.Close())
	f, err := os.OpenFile(filepath.Join(dir, storetest.SegmentsDir, other), os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("damage"), 4096+600)
		err = errors.Join(err, f.Close())
	}
	storetest.OK(t, err)
	s = storetest.OpenOn(t, disk, dir, o)
	shut.Store(true)
	rep, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{})
	shut.Store(false)
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), first) || strings.Count(err.Error(), first) != 1 {
		t.Errorf("the error does not name what could not be opened, once: %v", err)
	}
	named := false
	for _, d := range rep.Damage {
		if filepath.Base(d.File) == first {
			t.Errorf("what nobody could read is called damaged: %v", d)
		}
		named = named || filepath.Base(d.File) == other
	}
	if !named {
		t.Errorf("the damage of %s is not named: %v", other, rep.Damage)
	}
}
