package folder_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// What is planted.
const (
	plantText = iota
	plantShort
	plantBolt
	plantEmptyBolt
	plantOther   // the file of that kind of another store
	plantMagic   // the magic of the store's own file of that kind, and rubbish
	plantFolder  // an empty one
	plantFull    // a folder with a file
	plantLink    // to a file elsewhere
	plantZeros   // ours, if the name is
	plantNothing // an empty file: the same
	plantKinds
)

// planted is a folder of files of all sorts.
type planted struct {
	dir, elsewhere string
	tiny, other    storetest.Image
	kinds          map[string]int // what was planted, by name
	store          bool           // it is one
	format         bool           // with a FORMAT that is ours, though it be damaged
	other1         bool           // the FORMAT is the other store's
}

// given are the names that the store gives.
var given = regexp.MustCompile(`^(LOCK|(FORMAT|index\.db|bloom)(\.tmp)?|unsynced|wal/([0-9a-f]{16}\.wal|next[0-9]*\.wal\.tmp)|segments/[0-9a-f]{16}\.seg)$`)

// ours reports whether what was planted under a name may be taken for the store's.
func (p *planted) ours(name string, kind int) bool {
	if kind == plantFolder || kind == plantFull {
		return false
	}
	if b, err := os.ReadFile(filepath.Join(p.dir, storetest.LockFile)); name == storetest.LockFile && kind != plantLink && err == nil {
		return vfs.IsLock(b)
	}
	if !given.MatchString(name) {
		return false
	}
	if kind == plantZeros || kind == plantNothing || kind == plantLink {
		return p.store || kind != plantLink && (name == storetest.LockFile || name == storetest.FormatFile+".tmp")
	}
	if name == storetest.FormatFile+".tmp" { // of the making of a store: its UUID is any
		return kind == plantMagic || kind == plantOther
	}
	if !p.store {
		return false
	}
	switch {
	case kind == plantMagic: // without a FORMAT, index and log need more than that
		return p.format || name != storetest.IndexFile && path.Ext(name) != ".wal"
	case kind == plantOther && name == storetest.FormatFile:
		return false
	case kind == plantOther && p.other1: // then it is the store's
		return true
	case path.Dir(name) == storetest.SegmentsDir && kind != plantOther && p.tiny[name] != nil: // index and log name what was there
		return true
	case kind == plantOther, name == storetest.LockFile, name == storetest.FormatFile, name == storetest.UnsyncedFile, strings.HasSuffix(name, ".tmp"), path.Dir(name) == storetest.SegmentsDir:
		return kind == plantEmptyBolt && name == storetest.IndexFile+".tmp"
	case name == storetest.IndexFile && (kind == plantBolt || kind == plantEmptyBolt):
		return false
	}
	return p.format // a damaged index, Bloom filter or log
}

func (p *planted) bytes(t testing.TB, name string, kind int) []byte {
	switch kind {
	case plantText:
		return bytes.Repeat([]byte("It was a dark and stormy night. "), 200)
	case plantShort:
		return []byte("hello")
	case plantBolt, plantEmptyBolt:
		file := p.elsewhere + ".bolt"
		defer os.Remove(file)
		other, err := bolt.Open(file, 0o600, &bolt.Options{PageSize: 4096, Timeout: time.Second, NoSync: true})
		if err == nil && kind == plantBolt {
			err = other.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("accounts")); return err })
		}
		storetest.OK(t, errors.Join(err, other.Close()))
		return storetest.Must(os.ReadFile(file))(t)
	case plantOther, plantMagic:
		from := p.other
		if kind == plantMagic {
			from = p.tiny
		}
		like := strings.TrimSuffix(name, ".tmp")
		b := from[like]
		for other, x := range from {
			if b == nil && path.Ext(like) != "" && path.Ext(other) == path.Ext(like) {
				b = x
			}
		}
		if b == nil {
			b = from[storetest.BloomFile]
		}
		if kind == plantOther {
			return b
		}
		b = bytes.Clone(b[:min(len(b), 64)])
		copy(b[min(len(b), 32):], "and then rubbish, and more of that")
		return b
	case plantZeros:
		return make([]byte, 5000)
	}
	return nil
}

// plant lays a base out, with more in it. It returns nil if that cannot be done.
func plant(t testing.TB, dir string, tiny, other storetest.Image, base byte, plants []byte) *planted {
	p := &planted{dir: dir, elsewhere: dir + ".elsewhere", tiny: tiny, other: other, kinds: map[string]int{}}
	b := folderBases[int(base)%len(folderBases)]
	m := storetest.Image{}
	for name, x := range tiny {
		if b.has(name) {
			m[name] = x
		}
	}
	if b.name == "a store that an fsync failed in" {
		m[storetest.UnsyncedFile] = nil
	}
	storetest.OK(t, m.Write(dir))
	storetest.OK(t, os.WriteFile(p.elsewhere, []byte("what a link leads to"), 0o600))
	for ; len(plants) >= 2 && len(p.kinds) < 6; plants = plants[2:] {
		name, kind := folderNames[int(plants[0])%len(folderNames)], int(plants[1])%plantKinds
		file := filepath.Join(dir, filepath.FromSlash(name))
		if name == storetest.LogDir || name == storetest.SegmentsDir || name == "sessions" {
			if kind == plantFolder || kind == plantFull {
				continue
			}
		}
		if os.MkdirAll(filepath.Dir(file), 0o700) != nil {
			continue
		}
		os.RemoveAll(file)
		for old := range p.kinds {
			if strings.HasPrefix(old, name+"/") {
				delete(p.kinds, old)
			}
		}
		p.kinds[name] = kind
		switch kind {
		case plantFolder:
			storetest.OK(t, os.Mkdir(file, 0o700))
		case plantFull:
			storetest.OK(t, os.Mkdir(file, 0o700))
			storetest.OK(t, os.WriteFile(filepath.Join(file, "inside"), []byte("inside"), 0o600))
		case plantLink:
			if err := os.Symlink(p.elsewhere, file); err != nil {
				t.Skipf("SKIPPED: no links here: %v", err)
			}
		default:
			storetest.OK(t, os.WriteFile(file, p.bytes(t, name, kind), 0o600))
		}
	}
	p.judge(t)
	return p
}

// judge says by the law whether the folder is a store: FORMAT is sound, or segments of one store have sound headers.
func (p *planted) judge(t testing.TB) {
	b, err := os.ReadFile(filepath.Join(p.dir, storetest.FormatFile))
	if p.kinds[storetest.FormatFile] == plantLink && err == nil {
		err = fs.ErrNotExist
	}
	if err == nil && len(b) == storetest.FormatBytes && binary.LittleEndian.Uint64(b[80:]) == xxhash.Sum64(b[:80]) {
		const uuidAt, uuidEnd = 40, 56
		p.store, p.format, p.other1 = true, true, !bytes.Equal(b[uuidAt:uuidEnd], p.tiny[storetest.FormatFile][uuidAt:uuidEnd])
		return
	}
	p.format = err == nil && len(b) <= storetest.FormatBytes && bytes.HasPrefix(b, []byte("DORMOUSE"))
	stores := map[string]bool{}
	files, _ := os.ReadDir(filepath.Join(p.dir, storetest.SegmentsDir))
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(p.dir, storetest.SegmentsDir, f.Name()))
		if err != nil || !f.Type().IsRegular() || len(f.Name()) != 20 {
			continue
		}
		for _, whose := range []storetest.Image{p.tiny, p.other} { // whole, and under its own name
			if own, ok := whose[storetest.SegmentsDir+"/"+f.Name()]; ok && bytes.Equal(own, b) && !vfs.Blank(b[:min(len(b), 512)]) {
				stores[string(whose[storetest.FormatFile])] = true
			}
		}
	}
	p.store = len(stores) == 1
	p.other1 = stores[string(p.other[storetest.FormatFile])]
	if info, err := os.Lstat(filepath.Join(p.dir, storetest.SegmentsDir)); err != nil || !info.IsDir() {
		p.store = false
	}
}

// foreign are the paths, among all, that must stay as they are: all of them if this is no store.
func (p *planted) foreign(all map[string]string) map[string]string {
	if !p.store {
		strangers := false
		for name := range all {
			kind, was := p.kinds[name]
			mine := name == storetest.LogDir && !was || name == storetest.SegmentsDir && !was || was && p.ours(name, kind)
			strangers = strangers || !mine
		}
		if strangers {
			return all
		}
	}
	out := map[string]string{}
	for name, kind := range p.kinds {
		for at, is := range all {
			if (at == name || strings.HasPrefix(at, name+"/")) && !p.ours(name, kind) {
				out[at] = is
			}
		}
	}
	return out
}

// outlineOf describes all that lies in a folder.
func outlineOf(t testing.TB, dir string) map[string]string {
	out := map[string]string{}
	storetest.OK(t, filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		is := d.Type().String()
		switch {
		case d.Type().IsRegular():
			content, err := sumOf(file)
			if err != nil {
				return err
			}
			is += content
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(file)
			if err != nil {
				return err
			}
			is += to
		}
		out[filepath.ToSlash(name)] = is
		return nil
	}))
	return out
}

// sumOf tells files of different content apart, and says how long one is and how it begins.
func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, b, begin := xxhash.New(), make([]byte, 64<<10), ""
	for n := int64(0); ; {
		got, err := f.Read(b)
		if n == 0 {
			begin = string(b[:min(got, 40)])
		}
		sum.Write(b[:got])
		if n += int64(got); err == io.EOF {
			return fmt.Sprintf("%d bytes that begin with %q, sum %x", n, begin, sum.Sum64()), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// same compares what must not have changed.
func (p *planted) same(t testing.TB, want map[string]string, nothingElse bool, after string) {
	t.Helper()
	now := outlineOf(t, p.dir)
	for name, is := range want {
		if got, ok := now[name]; !ok || got != is {
			t.Errorf("%s changed %s (is there: %t): %s, before %s", after, name, ok, got, is)
		}
	}
	for name := range now {
		if _, ok := want[name]; nothingElse && !ok {
			t.Errorf("%s made %s", after, name)
		}
	}
	if b, err := os.ReadFile(p.elsewhere); err != nil || string(b) != "what a link leads to" {
		t.Errorf("%s: where a link leads there is %q, %v", after, b, err)
	}
}

// try opens, uses and repairs, and looks after each what became of what is not ours.
func (p *planted) try(t testing.TB) {
	t.Helper()
	all := outlineOf(t, p.dir)
	foreign := p.foreign(all)
	refused := !p.store && len(foreign) > 0
	o := storetest.TinyOptions()
	o.ReadOnly = true
	if s, err := db.Open(t.Context(), p.dir, o); err == nil {
		useAll(s)
		s.Close()
	}
	p.same(t, all, true, "a read-only Open")
	admin.Verify(t.Context(), p.dir, admin.VerifyOptions{})
	p.same(t, all, true, "Verify")
	to := p.dir + ".to"
	admin.Repair(t.Context(), p.dir, to, admin.RepairOptions{})
	os.RemoveAll(to)
	p.same(t, all, true, "Repair of it")
	if src := p.dir + ".from"; len(all) > 0 {
		storetest.OK(t, p.tiny.Write(src))
		if _, err := admin.Repair(t.Context(), src, p.dir, admin.RepairOptions{}); !errors.Is(err, db.ErrNotEmpty) && !errors.Is(err, db.ErrUnsafeDir) {
			t.Errorf("Repair into it: %v", err)
		}
		os.RemoveAll(src)
		p.same(t, all, true, "Repair into it")
	}
	for range 2 {
		s, err := db.Open(t.Context(), p.dir, storetest.TinyOptions())
		if refused && !errors.Is(err, db.ErrNotEmpty) && !strings.Contains(fmt.Sprint(err), "not a directory") {
			t.Errorf("no store: Open: %v", err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), p.dir) {
				t.Errorf("Open does not say which file: %v", err)
			}
			p.same(t, foreign, refused, "an Open that failed")
			if s != nil {
				t.Error("an Open that failed gave a store")
			}
			continue
		}
		p.same(t, foreign, false, "Open")
		useAll(s)
		p.same(t, foreign, false, "use")
		s.Close()
		p.same(t, foreign, false, "Close")
	}
}

// useAll does everything that writes, or gives up, files.
func useAll(s *db.Store) {
	for i, d := range storetest.TinyModels() {
		m, err := s.Register(context.Background(), d)
		if err != nil {
			continue
		}
		p := kv.Prompt{Tokens: crashtest.Tokens(50+i, 40)}
		m.Put(context.Background(), p, storetest.Filled(d, &p, 0, 40), db.PutOptions{})
		m.Delete(context.Background(), storetest.TinyPrompts()[0])
		s.Checkpoint(context.Background())
		m.Put(context.Background(), storetest.TinyPrompts()[1], storetest.Filled(d, &storetest.TinyPrompts()[1], 0, len(storetest.TinyPrompts()[1].Tokens)), db.PutOptions{})
	}
	s.DeleteScope(context.Background(), "alice")
	s.Compact(context.Background(), db.CompactOptions{LiveShare: 1})
	s.Checkpoint(context.Background())
	s.Suspend(context.Background())
	s.Resume(context.Background())
	s.Retire(context.Background(), storetest.TinyModels()[1].Fingerprint())
	s.Sync(context.Background())
	s.Checkpoint(context.Background())
}
