package folder_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// systems are what systems put into folders: those that end in / are folders.
var systems = []string{
	"lost+found/", "FOUND.000/", "LOST.DIR/", ".nfs000000000a1b2c3d00000001", ".fuse_hidden0000000100000002", ".zfs/", ".snapshot/", "@eaDir/", "#recycle/",
	"@Recycle/", ".Trash-1000/", ".directory", ".DS_Store", "._.DS_Store", ".Trashes/", ".fseventsd/", ".Spotlight-V100/", "System Volume Information/",
	"$RECYCLE.BIN/", "desktop.ini", "Thumbs.db", "..data", "..2026_11_27_10_11_12.1234567/", "aquota.user", "dormouse-slots-1-2/", "dormouse-control.sock", "dormouse-models",
}

// litter puts them into a folder.
func litter(t *testing.T, dir string) {
	t.Helper()
	for _, name := range systems {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			storetest.OK(t, os.MkdirAll(path, 0o700))
			path = filepath.Join(path, "inside")
		}
		storetest.OK(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	}
}

// littered is the part of a tree that systems put there.
func littered(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	for at, is := range outlineOf(t, dir) {
		for part := range strings.SplitSeq(at, "/") {
			if vfs.SystemName(part) {
				out[at] = is
			}
		}
	}
	return out
}

func unchanged(t *testing.T, dir string, want map[string]string, after string) {
	t.Helper()
	got := littered(t, dir)
	for at, is := range want {
		if got[at] != is {
			t.Errorf("%s: %s is %q, before %q", after, at, got[at], is)
		}
	}
}

// What file systems, network drives and desktops put beside a store is not the store's, and keeps nothing from being made, used, verified or
// copied. None of it is read, changed, counted or removed.
func TestWhatSystemsPutThere(t *testing.T) {
	dir := t.TempDir()
	storetest.OK(t, os.Mkdir(filepath.Join(dir, folder.SegmentsDir), 0o700)) // a store whose making came to no end, looked into since
	litter(t, dir)
	litter(t, filepath.Join(dir, folder.SegmentsDir))
	before := littered(t, dir)
	if len(before) < 2*len(systems) {
		t.Fatalf("%d of %d are known as what systems put there", len(before), 2*len(systems))
	}
	storetest.OK(t, admin.CheckDir(dir, false))
	s, err := db.Open(t.Context(), dir, storetest.TinyOptions())
	if err != nil {
		t.Fatal(err)
	}
	litter(t, filepath.Join(dir, folder.LogDir))
	useAll(s)
	litter(t, dir)
	storetest.OK(t, os.MkdirAll(filepath.Join(dir, folder.SessionsDir), 0o700))
	litter(t, filepath.Join(dir, folder.SessionsDir))
	before = littered(t, dir)
	useAll(s)
	storetest.OK(t, s.Close())
	unchanged(t, dir, before, "use")
	r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil || len(r.Damage) > 0 {
		t.Error(r.Damage, err)
	}
	for _, note := range r.Notes {
		if strings.Contains(note, "not a file of the") {
			t.Error(note)
		}
	}
	with, err := folder.Bytes(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	own := int64(0)
	for at := range outlineOf(t, dir) {
		if info, err := vfs.OS.Stat(filepath.Join(dir, at)); err == nil && info.Regular && folder.HasName(filepath.Dir("/" + at)[1:], filepath.Base(at)) {
			own += info.Allocated
		}
	}
	if with != own {
		t.Errorf("the store takes %d bytes, its files have %d", with, own)
	}
	if _, err := admin.Compact(t.Context(), dir, admin.CompactOptions{}); err != nil {
		t.Error(err)
	}
	to := filepath.Join(t.TempDir(), "to")
	litter(t, to[:len(to)-2])
	storetest.OK(t, os.Mkdir(to, 0o700))
	litter(t, to)
	kept := littered(t, to)
	if _, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{}); err != nil {
		t.Error(err)
	}
	unchanged(t, to, kept, "a repair into it")
	storetest.OK(t, os.Remove(filepath.Join(dir, folder.IndexName)))
	s, err = db.Open(t.Context(), dir, storetest.TinyOptions()) // the index is rebuilt
	if err != nil {
		t.Fatal(err)
	}
	storetest.OK(t, s.Close())
	unchanged(t, dir, before, "all")
}

// A person's file is none of a system's, however much it is like one.
func TestWhatAPersonPutThere(t *testing.T) {
	for _, name := range []string{
		"thesis.txt", "lost+found.txt", "found.doc", ".nfs", ".nfs-notes", "my.nfs0001", ".trash-can", ".DS_Store.bak", "._thesis.txt", "..notes", "...", "desktop.ini.txt", "@home", "#notes#",
		"recycle", "snapshot", "dormouse-slots", "dormouse-models.txt", "Trash-1000", "System Volume", ".zfsrc", ".gitkeep", ".hidden",
	} {
		dir := t.TempDir()
		litter(t, dir)
		storetest.OK(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
		before := outlineOf(t, dir)
		err := admin.CheckDir(dir, false)
		if s, oerr := db.Open(t.Context(), dir, storetest.TinyOptions()); !errors.Is(oerr, db.ErrNotEmpty) || !strings.Contains(oerr.Error(), name) || !errors.Is(err, db.ErrNotEmpty) {
			t.Errorf("%s: Open %v, CheckDir %v", name, oerr, err)
			if s != nil {
				s.Close()
			}
		}
		if after := outlineOf(t, dir); len(after) != len(before) {
			t.Errorf("%s: %d files, before %d", name, len(after), len(before))
		}
	}
}
