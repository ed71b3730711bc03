package damage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// stranger is what lies in a file's place.
type stranger struct {
	name string
	put  func(path string) error // where nothing is any more
	// refuse: Open may refuse such a thing, which it then names; else it must do without the file.
	refuse bool
}

// strangers are all that can lie in the place of a file of a base.
func strangers(x *base, file string, elsewhere string) []stranger {
	out := []stranger{
		{"missing", func(string) error { return nil }, false},
		{"empty", func(p string) error { return os.WriteFile(p, nil, 0o600) }, false},
		// In the place of FORMAT there is somebody else's file then, which is not replaced.
		{"rubbish", func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("rubbish "), 2000), 0o600) }, file == "FORMAT"},
		{"one byte", func(p string) error { return os.WriteFile(p, []byte{7}, 0o600) }, file == "FORMAT"},
		{"a folder", func(p string) error { return os.Mkdir(p, 0o700) }, true},
		{"a folder with something in it", func(p string) error {
			return errors.Join(os.Mkdir(p, 0o700), os.WriteFile(filepath.Join(p, "x"), []byte("x"), 0o600))
		}, true},
		{"a link to the right bytes", func(p string) error {
			return errors.Join(os.WriteFile(elsewhere, x.files[file], 0o600), os.Symlink(elsewhere, p))
		}, true},
		{"a link to nothing", func(p string) error { return os.Symlink(elsewhere+".none", p) }, true},
		{"a link to itself", func(p string) error { return os.Symlink(p, p) }, true},
	}
	if pipe != nil {
		out = append(out, stranger{"a pipe", pipe, true})
	}
	for i, old := range x.older {
		if b, ok := old[file]; ok && !bytes.Equal(b, x.files[file]) {
			out = append(out, stranger{fmt.Sprintf("of generation %d", i), func(p string) error { return os.WriteFile(p, b, 0o600) }, false})
		}
	}
	b, ok := x.foreign[file]
	for _, name := range x.foreign.names() { // log files have other numbers there
		if filepath.Ext(name) == ".wal" && filepath.Ext(file) == ".wal" {
			b, ok = x.foreign[name], true
		}
	}
	if ok {
		// FORMAT and the log say which store this is: where they do not agree, nobody knows. The others would be replaced, and are not ours.
		whose := file == "FORMAT" || filepath.Ext(file) == ".wal" || file == "index.db" || file == "bloom"
		out = append(out, stranger{"of another store", func(p string) error { return os.WriteFile(p, b, 0o600) }, whose})
	}
	return out
}

// bases are built once: the second store is another one.
func twoStores(t *testing.T) []*base {
	bases := build(t, 1)
	for i, x := range build(t, 2) {
		bases[i].foreign = x.files
	}
	return bases
}

// replaced tries to use a store in which something lies in a file's place. It says what became of it.
func replaced(t *testing.T, x *base, file string, s stranger, dir string) string {
	lay := func() {
		t.Helper()
		if err := x.files.lay(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := s.put(path); err != nil {
			t.Fatal(err)
		}
	}
	label := fmt.Sprintf("%s: %s is %s", x.name, file, s.name)
	c := &cost{step: -1, index: file == "index.db"}
	x.costOf(c, file, 0, len(x.files[file]), !x.lastLog(file))
	u := &user{x: x, cost: c, dir: dir}
	says := func(b string) bool { return strings.Contains(b, filepath.Join(dir, filepath.FromSlash(file))+": ") }
	if s.refuse {
		u.final = func(err error) bool { return says(err.Error()) }
	}
	defer func() {
		// What cannot be written where something strange lies says so, and was not done.
		said := s.refuse && slices.ContainsFunc(u.bad, says)
		for _, b := range u.bad {
			if !said || !says(b) && !strings.HasPrefix(b, notDone) {
				t.Errorf("%s: %s", label, b)
			}
		}
	}()

	lay()
	refused := ""
	for _, reading := range []bool{true, false} {
		o := options()
		o.ReadOnly = reading
		before := outline(t, dir)
		st, err := db.Open(ctx, dir, o)
		if err == nil {
			if err := st.Close(); err != nil && !(s.refuse && says(err.Error())) {
				t.Errorf("%s: close: %v", label, err)
			}
			continue
		}
		refused += fmt.Sprintf("; refused, read-only %t: %v", reading, err)
		if !s.refuse {
			t.Errorf("%s: read-only %t: %v", label, reading, err)
		}
		if !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the error does not name it: %v", label, err)
		}
		if after := outline(t, dir); after != before {
			t.Errorf("%s: an Open that was refused changed something:\n%s\n%s", label, before, after)
		}
	}
	if refused == "" {
		lay()
		rep, err := admin.Verify(ctx, dir, admin.VerifyOptions{})
		if err != nil && !(s.refuse && says(err.Error())) {
			t.Errorf("%s: verify: %v", label, err)
		}
		if err == nil && !speaks(rep, file) && x.loses(file, s) {
			t.Errorf("%s: Verify does not name it: %v %v", label, rep.Damage, rep.Notes)
		}
		u.readAndWrite()
		return label + ": works"
	}
	// Put right, the store is as it was.
	path := filepath.Join(dir, filepath.FromSlash(file))
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := write(path, x.files[file]); err != nil {
		t.Fatal(err)
	}
	u.cost = &cost{step: -1}
	u.readAndWrite()
	return label + refused
}

// lastLog reports whether file is the newest file of the log.
func (x *base) lastLog(file string) bool {
	if filepath.Ext(file) != ".wal" {
		return false
	}
	for name := range x.files {
		if filepath.Ext(name) == ".wal" && name > file {
			return false
		}
	}
	return true
}

// readOnly is the name of a file that may be read and not written.
const readOnly = "of mode -r--------"

// loses reports whether anything that is read of a file is not there any more.
func (x *base) loses(file string, s stranger) bool {
	if filepath.Ext(file) == ".wal" && s.name == "missing" {
		return false // the first files of a log go with every checkpoint, and of the last nothing else tells
	}
	var old []byte
	for i := range x.older {
		if s.name == fmt.Sprintf("of generation %d", i) {
			old = x.older[i][file]
		}
	}
	if s.name == readOnly {
		old = x.files[file]
	}
	return slices.ContainsFunc(x.regions[file], func(r region) bool {
		if strings.HasPrefix(file, "segments/") && r.block == (kv.Key{}) && old != nil {
			return false // with all its live records, an older file is as good
		}
		return !r.idle && (r.hi > len(old) || !bytes.Equal(old[r.lo:r.hi], x.files[file][r.lo:r.hi]))
	})
}

// speaks reports whether Verify says anything of a file.
func speaks(rep admin.Report, file string) bool {
	for _, d := range rep.Damage {
		if filepath.Base(d.File) == filepath.Base(file) {
			return true
		}
	}
	return slices.ContainsFunc(rep.Notes, func(n string) bool { return strings.Contains(n, filepath.Base(file)) })
}

// outline describes all of a directory, links and pipes as what they are. LOCK changes whenever the store is opened, and bloom
// goes before the index is built anew.
func outline(t *testing.T, dir string) string {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == "LOCK" || e.Name() == "bloom" {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s", path, info.Mode())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			fmt.Fprintf(&b, " %d %x", info.Size(), xxhash.Sum64(content))
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever lies in the place of one file, the store does without it or says so, and nothing else is lost.
func TestReplacedFiles(t *testing.T) {
	bases := twoStores(t)
	dir := filepath.Join(memdir.Dir(t), "store")
	tried, refused := 0, 0
	for _, x := range bases {
		for _, file := range x.files.names() {
			for i, s := range strangers(x, file, filepath.Join(memdir.Dir(t), "elsewhere")) {
				if testing.Short() && (tried+i)%5 != 0 {
					continue
				}
				tried++
				watch(t, fmt.Sprint(x.name, " ", file, " ", s.name), func() {
					if said := replaced(t, x, file, s, dir); strings.Contains(said, "refused") {
						t.Log(said)
						refused++
					}
				})
			}
		}
	}
	t.Logf("%d replaced files, %d of them refused", tried, refused)
}
