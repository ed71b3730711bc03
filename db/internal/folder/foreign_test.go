package folder_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// files makes files in a new folder, by name and content. A name that ends in a slash is a folder.
func layOut(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mine")
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		storetest.OK(t, os.MkdirAll(filepath.Dir(file), 0o700))
		if strings.HasSuffix(name, "/") {
			storetest.OK(t, os.MkdirAll(file, 0o700))
		} else if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// contentOf is a file as a string.
func contentOf(t *testing.T, path string) string {
	t.Helper()
	return string(storetest.Must(os.ReadFile(path))(t))
}

// otherBolt is a bbolt file of another program.
func otherBolt(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "accounts.db")
	other, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err == nil {
		err = other.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("accounts")); return err })
	}
	storetest.OK(t, errors.Join(err, other.Close()))
	return contentOf(t, path)
}

// A directory in which nothing says that it is a store is refused, with the name of a file, and nothing in it changes.
func TestNoStore(t *testing.T) {
	a, b := storetest.Small(t), storetest.Small(t)
	log, segment := firstFile(t, a, storetest.LogDir), firstFile(t, a, storetest.SegmentsDir)
	format := contentOf(t, filepath.Join(a, storetest.FormatFile))
	const text = "It was a dark and stormy night."
	for what, test := range map[string]struct {
		files map[string]string
		found string
	}{
		"a thesis":              {map[string]string{"thesis.txt": text}, "thesis.txt"},
		"a film among segments": {map[string]string{"segments/part1.mp4": "film", "index.db": text}, "index.db"},
		"only a film":           {map[string]string{"segments/part1.mp4": "film"}, "part1.mp4"},
		"all our names": {map[string]string{
			"segments/0000000000000001.seg": text, "wal/0000000000000001.wal": text, "index.db": otherBolt(t), "bloom": text, "LOCK": "held by cron",
		}, "LOCK"},
		"wal alone":                   {map[string]string{"wal/0000000000000001.wal": contentOf(t, log)}, "0000000000000001.wal"},
		"a log of notes":              {map[string]string{"wal/notes": text}, "notes"},
		"an index alone":              {map[string]string{"index.db": contentOf(t, filepath.Join(a, storetest.IndexFile))}, "index.db"},
		"a bloom alone":               {map[string]string{"bloom": text}, "bloom"},
		"unsynced":                    {map[string]string{"unsynced": text}, "unsynced"},
		"somebody's LOCK":             {map[string]string{"LOCK": "held by cron"}, "LOCK"},
		"somebody's FORMAT":           {map[string]string{"FORMAT": text}, "FORMAT"},
		"an empty FORMAT":             {map[string]string{"FORMAT": "", "wal/": ""}, "FORMAT"},
		"FORMAT with another sum":     {map[string]string{"FORMAT": format[:80] + "checksum"}, "FORMAT"},
		"a large FORMAT":              {map[string]string{"FORMAT": strings.Repeat(text, 10000)}, "FORMAT"},
		"a folder FORMAT":             {map[string]string{"FORMAT/": ""}, "FORMAT"},
		"somebody's FORMAT.tmp":       {map[string]string{"FORMAT.tmp": text}, "FORMAT.tmp"},
		"a long FORMAT.tmp":           {map[string]string{"FORMAT.tmp": format + text}, "FORMAT.tmp"},
		"folders of our names":        {map[string]string{"index.db/": "", "bloom/": ""}, "bloom"},
		"a folder in segments":        {map[string]string{"segments/x/": ""}, "x"},
		"a folder for a segment":      {map[string]string{"segments/0000000000000001.seg/": ""}, "0000000000000001.seg"},
		"an empty segment":            {map[string]string{"segments/0000000000000001.seg": ""}, "0000000000000001.seg"},
		"a segment of another name":   {map[string]string{"segments/0000000000000077.seg": contentOf(t, segment)}, "0000000000000077.seg"},
		"segments of two stores":      {map[string]string{"segments/" + filepath.Base(segment): contentOf(t, segment), "segments/0000000000000002.seg": contentOf(t, filepath.Join(b, storetest.SegmentsDir, "0000000000000002.seg"))}, "0000000000000001.seg"},
		"half a store and a stranger": {map[string]string{"LOCK": "77\n", "FORMAT.tmp": format[:40], "wal/": "", "segments/": "", "thesis.txt": text}, "thesis.txt"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := layOut(t, test.files)
			before := storetest.Tree(t, dir)
			for range 2 {
				if s, err := db.Open(t.Context(), dir, storetest.Options()); !errors.Is(err, db.ErrNotEmpty) || !strings.Contains(err.Error(), test.found) || !strings.Contains(err.Error(), dir) {
					t.Errorf("Open: %v, expected it to name %s", err, test.found)
					if err == nil {
						s.Close()
					}
				}
			}
			o := storetest.Options()
			o.ReadOnly = true
			if s, err := db.Open(t.Context(), dir, o); err == nil {
				s.Close()
				t.Error("a read-only Open found a store")
			}
			if r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); err == nil && len(r.Damage) == 0 {
				t.Errorf("Verify found a store: %+v", r)
			}
			if _, err := admin.Repair(t.Context(), dir, filepath.Join(t.TempDir(), "new"), admin.RepairOptions{}); err == nil && what != "segments of two stores" {
				t.Error("Repair found a store")
			}
			if _, err := admin.Repair(t.Context(), a, dir, admin.RepairOptions{}); !errors.Is(err, db.ErrNotEmpty) {
				t.Errorf("Repair into it: %v", err)
			}
			storetest.SameTree(t, before, storetest.Tree(t, dir), "no store, and something")
		})
	}
}

// firstFile is the path of the first file in a folder of a store.
func firstFile(t *testing.T, dir, sub string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, sub, "0*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files[0]
}

// What the making of a store leaves that came to no end is no stranger.
func TestHalfMadeStore(t *testing.T) {
	format := contentOf(t, filepath.Join(storetest.Small(t), storetest.FormatFile))
	zeros := strings.Repeat("\x00", storetest.FormatBytes)
	tried := 0
	for _, lock := range []string{"none", "", "4711\n", "47", "\x00\x00\x00\x00\x00"} {
		for _, tmp := range []string{"none", "", format, format[:1], format[:7], format[:40], zeros, format[:3] + zeros[3:], zeros[:50] + format[50:]} {
			files := map[string]string{"wal/": "", "segments/": ""}
			if tried++; tried%3 == 0 {
				delete(files, "segments/")
			}
			if lock != "none" {
				files["LOCK"] = lock
			}
			if tmp != "none" {
				files["FORMAT.tmp"] = tmp
			}
			dir := layOut(t, files)
			s, err := db.Open(t.Context(), dir, storetest.Options())
			if err != nil {
				t.Errorf("LOCK %q, FORMAT.tmp %q: %v", lock, tmp, err)
				continue
			}
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 40)}
			storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s = storetest.Open(t, dir, storetest.Options())
			storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 40)
			s.Close()
		}
	}
}

// A file in a store that proves to be another store's or program's is named, and nothing is changed. Without it, all is as it was.
func TestForeignFileRefused(t *testing.T) {
	dir, other := storetest.Small(t), storetest.Small(t)
	read := func(name string) string { return contentOf(t, filepath.Join(other, filepath.FromSlash(name))) }
	const text = "It was a dark and stormy night."
	for _, test := range []struct{ name, content, without string }{
		{"index.db", otherBolt(t), ""},
		{"index.db", read("index.db"), ""},
		{"bloom", read("bloom"), ""},
		{"index.db.tmp", text, ""},
		{"index.db.tmp", otherBolt(t), ""},
		{"index.db.tmp", read("index.db"), ""},
		{"unsynced", text, ""},
		{"unsynced", read("bloom"), ""},
		{"FORMAT", text, ""},
		{"FORMAT", strings.Repeat(text, 10000), ""},
		{"FORMAT.tmp", text, "FORMAT"},
		{"index.db", text, "FORMAT"},
		{"bloom", text, "FORMAT"},
		{"wal/0000000000000001.wal", text, "FORMAT"},
	} {
		what := fmt.Sprintf("%s is %.20q, without %q", test.name, test.content, test.without)
		at := storetest.Copy(t, dir)
		path := filepath.Join(at, filepath.FromSlash(test.name))
		mine, err := os.ReadFile(path)
		had := err == nil
		if test.without != "" {
			storetest.OK(t, os.Remove(filepath.Join(at, test.without)))
		}
		storetest.OK(t, os.WriteFile(path, []byte(test.content), 0o600))
		before := storetest.Tree(t, at)
		delete(before, filepath.Join(at, storetest.LockFile))
		if s, err := db.Open(t.Context(), at, storetest.Options()); !errors.Is(err, db.ErrForeign) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				s.Close()
			}
			continue
		}
		after := storetest.Tree(t, at)
		delete(after, filepath.Join(at, storetest.LockFile))
		storetest.SameTree(t, before, after, what+": an Open that was refused")
		o := storetest.Options()
		o.ReadOnly = true
		storetest.CheckSmall(t, at, what+", read-only", o)
		if r, err := admin.Verify(t.Context(), at, admin.VerifyOptions{}); err != nil || !slices.ContainsFunc(r.Damage, func(d *db.CorruptError) bool { return d.File == path }) &&
			!slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, path) }) {
			t.Errorf("%s: Verify does not name it: %+v, %v", what, r, err)
		}
		storetest.OK(t, os.Remove(path))
		if had && test.name != storetest.IndexFile && test.name != storetest.BloomFile && test.name != storetest.FormatFile {
			storetest.OK(t, os.WriteFile(path, mine, 0o600))
		}
		storetest.CheckSmall(t, at, what, storetest.Options())
	}
}

// A file in a store that is somebody else's, and that the store can do without, is left alone whatever the store does; Verify names it.
func TestForeignFileLeftAlone(t *testing.T) {
	other := storetest.Small(t)
	const text = "It was a dark and stormy night."
	segment := contentOf(t, firstFile(t, other, storetest.SegmentsDir))
	for name, content := range map[string]string{
		"segments/00000000000000ff.seg": segment,
		"segments/00000000000000fe.seg": text,
		"segments/00000000000000fd.seg": otherBolt(t),
		"segments/0000000000000001.seg": segment, // in the place of one of ours: what was in it is lost
		"segments/part1.mp4":            text,
		"wal/next.wal.tmp":              text,
		"wal/film":                      text,
		"LOCK":                          text,
		"bloom.tmp":                     text,
		"FORMAT.tmp":                    text,
		"notes.txt":                     text,
		"bloom/inside":                  text,
	} {
		t.Run(name, func(t *testing.T) {
			dir := storetest.Small(t)
			path := filepath.Join(dir, filepath.FromSlash(name))
			if strings.HasPrefix(name, "bloom/") {
				os.Remove(filepath.Join(dir, storetest.BloomFile))
			}
			storetest.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
			storetest.OK(t, os.WriteFile(path, []byte(content), 0o600))
			same := func(after string) {
				t.Helper()
				if b, err := os.ReadFile(path); err != nil || string(b) != content {
					t.Fatalf("after %s it is %.40q, %v", after, b, err)
				}
			}
			r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
			named := func(s string) bool {
				return strings.Contains(s, filepath.Join(dir, strings.TrimSuffix(filepath.FromSlash(name), "/inside")))
			}
			if err != nil || name != "LOCK" && !slices.ContainsFunc(r.Notes, named) && !slices.ContainsFunc(r.Damage, func(d *db.CorruptError) bool { return named(d.File) }) {
				t.Errorf("Verify does not name it: %+v, %v", r, err)
			}
			for _, lost := range []string{"", storetest.IndexFile, ""} {
				if lost != "" {
					storetest.OK(t, os.Remove(filepath.Join(dir, lost)))
				}
				s := storetest.Open(t, dir, storetest.Options())
				same("Open")
				m := storetest.Model(t, s, crashtest.Plain())
				p := kv.Prompt{Tokens: crashtest.Tokens(9, 100)}
				storetest.Put(t, m, p)
				storetest.Expect(t, m, p, 100)
				storetest.Must(s.DeleteScope(t.Context(), "alice"))(t)
				storetest.Must(m.Delete(t.Context(), p))(t)
				if _, err := s.Compact(t.Context(), db.CompactOptions{LiveShare: 1}); err != nil && name != "segments/0000000000000001.seg" {
					t.Fatal(err)
				}
				storetest.OK(t, s.Retire(t.Context(), m.Fingerprint()))
				for range 3 {
					storetest.OK(t, s.Checkpoint(t.Context()))
				}
				if err := s.Sync(t.Context()); err != nil {
					t.Errorf("Sync: %v", err)
				}
				same("use")
				storetest.OK(t, errors.Join(s.Suspend(t.Context()), s.Resume(t.Context()), s.Close()))
				same("Close")
			}
		})
	}
}
