package admin_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) { memdir.Main(m) }

// said is a prompt of a model, and how much of it is stored.
type said struct {
	desc   kv.Descriptor
	prompt kv.Prompt
	tokens int // that a whole store gives back
}

// estate is what a store held when it was whole.
type estate struct {
	dir     string
	prompts []said
	live    map[recovery.ID]db.Block
	refs    map[string]db.Ref
	models  map[kv.Fingerprint]kv.Descriptor
}

// estateOf makes a store with every kind of record, ref and deletion in it, and returns an image of its directory: of the closed
// store, or as a kill leaves it, with a log that the index does not cover yet.
func estateOf(t *testing.T, killed bool) estate {
	dir := filepath.Join(t.TempDir(), "store")
	o := storetest.Options()
	o.SegmentBytes = 256 << 10
	s := storetest.Open(t, dir, o)
	m, w := storetest.Model(t, s, crashtest.Plain()), storetest.Model(t, s, crashtest.Windowed(40))
	q, gone := storetest.Model(t, s, crashtest.Opaque()), storetest.Model(t, s, named("gone"))
	var all []said
	store := func(m *db.Model, p kv.Prompt) {
		storetest.Put(t, m, p)
		all = append(all, said{desc: m.Descriptor(), prompt: p})
	}
	store(m, kv.Prompt{Tokens: crashtest.Tokens(1, 100)})
	store(w, kv.Prompt{Tokens: crashtest.Tokens(1, 70)})
	store(q, kv.Prompt{Tokens: crashtest.Tokens(1, 40)})
	store(gone, kv.Prompt{Tokens: crashtest.Tokens(8, 40)})
	store(m, kv.Prompt{Tokens: crashtest.Tokens(2, 60), Scope: "alice", ScopeStart: 20})
	store(m, kv.Prompt{Tokens: crashtest.Tokens(3, 48), Spans: []kv.Span{{Start: 10, Len: 12, Hash: kv.Hash{7}}}})
	store(m, kv.Prompt{Tokens: crashtest.Tokens(4, 64), Adapters: []kv.Adapter{{Hash: kv.Hash{9}, Scale: 0.5}}})
	ref := func(m *db.Model, name string, n int, o db.RefOptions) {
		storetest.OK(t, m.SetRef(t.Context(), name, kv.Prompt{Tokens: crashtest.Tokens(1, n)}, o))
	}
	ref(m, "system", 64, db.RefOptions{Pinned: true, Meta: []byte("meta")})
	ref(m, "session", 100, db.RefOptions{Priority: 3, TTL: time.Hour})
	storetest.OK(t, s.Checkpoint(t.Context()))
	for i := range 6 {
		store(m, kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 64), crashtest.Tokens(50+i, 40+i))})
	}
	store(m, kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 100), crashtest.Tokens(60, 80))}) // replaces a tail
	store(w, kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 48), crashtest.Tokens(61, 60))})
	store(m, kv.Prompt{Tokens: crashtest.Tokens(5, 90)})
	ref(w, "window", 70, db.RefOptions{})
	ref(m, "short", 32, db.RefOptions{})
	storetest.OK(t, s.DeleteRef(t.Context(), "short"))
	storetest.Must(s.DeleteScope(t.Context(), "alice"))(t)
	storetest.OK(t, s.Retire(t.Context(), gone.Fingerprint()))
	// A deletion whose bytes a match keeps.
	x := storetest.Match(t, m, kv.Prompt{Tokens: crashtest.Tokens(5, 90)})
	storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(5, 90)}))(t)
	storetest.Stats(t, s) // waits for the Bloom filter
	out := estate{dir: dir, prompts: all, models: map[kv.Fingerprint]kv.Descriptor{}}
	if killed {
		out.dir = storetest.Copy(t, dir)
	}
	x.Close()
	storetest.OK(t, s.Close())
	out.live, out.refs = holdings(t, out.dir)
	s = reader(t, storetest.Copy(t, out.dir))
	for i := range out.prompts {
		p := &out.prompts[i]
		out.models[p.desc.Fingerprint()] = p.desc
		p.tokens, _ = give(t, s, *p)
	}
	return out
}

// rebooted has the log say that another boot of the system wrote it.
func rebooted(t *testing.T, e estate) estate {
	t.Helper()
	storetest.OK(t, crashtest.Reboot(vfs.OS, e.dir))
	return e
}

func named(name string) kv.Descriptor {
	d := crashtest.Plain()
	d.Name, d.RoPE.Base = name, 77
	return d
}

// holdings lists the records and refs of a closed store.
func holdings(t *testing.T, dir string) (map[recovery.ID]db.Block, map[string]db.Ref) {
	t.Helper()
	s := reader(t, dir)
	defer s.Close()
	blocks, refs := map[recovery.ID]db.Block{}, map[string]db.Ref{}
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		blocks[recovery.ID{Key: b.Key, Group: uint8(b.Group)}] = b
	}
	all := storetest.Must(db.Collect(s.Refs()))(t)
	for _, r := range all {
		r.Set, r.Expires, r.Used = r.Set.UTC(), r.Expires.UTC(), time.Time{} // the blocks have that
		refs[r.Name] = r
	}
	return blocks, refs
}

// reader opens a store without leaving a trace.
func reader(t *testing.T, dir string) *db.Store {
	o := storetest.Options()
	o.ReadOnly = true
	return storetest.Open(t, dir, o)
}

// give restores a prompt, of a model that may be gone.
func give(t *testing.T, s *db.Store, p said) (int, db.Reason) {
	t.Helper()
	m, err := s.Register(t.Context(), p.desc)
	if errors.Is(err, db.ErrReadOnly) {
		return 0, db.Reason{}
	}
	storetest.OK(t, err)
	return storetest.Restore(t, m.Model, p.prompt)
}

// repairTo repairs dir, and returns the report and the new store's directory.
func repairTo(t *testing.T, dir string) (admin.Repaired, string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "new")
	return storetest.Must(admin.Repair(t.Context(), dir, to, admin.RepairOptions{}))(t), to
}

// repaired is repairTo, and checks what must hold whatever was damaged, if something tells of each record that there was one.
func repaired(t *testing.T, e estate, dir string) (admin.Repaired, string) {
	t.Helper()
	out, to := repairTo(t, dir)
	checkRepaired(t, e, &out, to, noneUntold)
	return out, to
}

// checkRepaired checks a repaired store beside the estate and the report. untold are the records of which nothing can tell any more.
func checkRepaired(t *testing.T, e estate, out *admin.Repaired, to string, untold func(db.Block) bool) {
	t.Helper()
	v := storetest.Must(admin.Verify(t.Context(), to, admin.VerifyOptions{}))(t)
	for _, d := range v.Damage {
		t.Errorf("the new store is damaged: %v", d)
	}
	for _, n := range v.Notes {
		t.Errorf("the new store: %s", n)
	}
	saved, refs := holdings(t, to)
	if v.Records != len(saved) || out.Records != len(saved) {
		t.Errorf("%d records in the new store, %d verified, %d reported", len(saved), v.Records, out.Records)
	}
	for id, b := range saved {
		if _, ok := e.live[id]; !ok && len(out.Unknown) == 0 {
			t.Errorf("block %s group %d at token %d of model %s was not stored", id.Key, id.Group, b.First, b.Model)
		}
	}
	for id, b := range e.live {
		if _, ok := saved[id]; !ok && out.Whole() && !untold(b) {
			t.Errorf("block %s group %d is missing, and nothing is said to be lost", id.Key, id.Group)
		}
	}
	for name, r := range refs {
		want, ok := e.refs[name]
		if !out.Whole() {
			want.Stored = r.Stored // a ref survives the loss of its prefix
		}
		if !reflect.DeepEqual(r, want) && (ok || len(out.Unknown) == 0) {
			t.Errorf("ref %+v, was %+v", r, want)
		}
	}
	if out.Whole() && len(refs) != len(e.refs) {
		t.Errorf("%d of %d refs saved", len(refs), len(e.refs))
	}
	s := reader(t, to)
	defer s.Close()
	for _, p := range e.prompts {
		got, why := give(t, s, p) // compares every row
		if got > p.tokens && len(out.Unknown) == 0 {
			t.Errorf("%d tokens of a prompt of %s, were %d (%v)", got, p.desc.Name, p.tokens, why)
		}
	}
}

// noneUntold says that something tells of each record.
func noneUntold(db.Block) bool { return false }

// names reports whether the report has a file, of which records are lost or may be.
func names(out *admin.Repaired, file string) bool {
	return !out.Whole() && slices.ContainsFunc(out.Files, func(f admin.DamagedFile) bool { return f.Path == file })
}

// spoil changes a bit of a file.
func spoil(t *testing.T, path string, at int64) {
	t.Helper()
	b := storetest.Must(os.ReadFile(path))(t)
	storetest.Write(t, path, at, []byte{b[at] ^ 1})
}

// nothingLeft checks that nothing is left of a new store that was not finished.
func nothingLeft(t *testing.T, to string) {
	t.Helper()
	for _, path := range []string{to, to + ".repair"} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something is left of the new store: %s: %v", path, err)
		}
	}
}
