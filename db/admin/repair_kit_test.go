package admin_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/boot"
	"github.com/dormousekv/dormouse/kv"
)

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
	m, w, q, gone := storetest.Model(t, s, crashtest.Plain()), storetest.Model(t, s, crashtest.Windowed(40)), storetest.Model(t, s, crashtest.Opaque()), storetest.Model(t, s, named("gone"))
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
		if err := m.SetRef(t.Context(), name, kv.Prompt{Tokens: crashtest.Tokens(1, n)}, o); err != nil {
			t.Fatal(err)
		}
	}
	ref(m, "system", 64, db.RefOptions{Pinned: true, Meta: []byte("meta")})
	ref(m, "session", 100, db.RefOptions{Priority: 3, TTL: time.Hour})
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		store(m, kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 64), crashtest.Tokens(50+i, 40+i))})
	}
	store(m, kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 100), crashtest.Tokens(60, 80))}) // replaces a tail
	store(w, kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 48), crashtest.Tokens(61, 60))})
	store(m, kv.Prompt{Tokens: crashtest.Tokens(5, 90)})
	ref(w, "window", 70, db.RefOptions{})
	ref(m, "short", 32, db.RefOptions{})
	if err := s.DeleteRef(t.Context(), "short"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteScope(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if err := s.Retire(t.Context(), gone.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	// A deletion whose bytes a match keeps.
	x, err := m.Match(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(5, 90)}, db.MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(5, 90)}); err != nil {
		t.Fatal(err)
	}
	storetest.Stats(t, s) // waits for the Bloom filter
	out := estate{dir: dir, prompts: all, models: map[kv.Fingerprint]kv.Descriptor{}}
	if killed {
		out.dir = filepath.Join(t.TempDir(), "image")
		storetest.CopyTo(t, dir, out.dir)
	}
	x.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	out.live, out.refs = holdings(t, out.dir)
	check := filepath.Join(t.TempDir(), "check")
	storetest.CopyTo(t, out.dir, check)
	s = reader(t, check)
	for i := range out.prompts {
		p := &out.prompts[i]
		out.models[p.desc.Fingerprint()] = p.desc
		p.tokens, _ = give(t, s, *p)
	}
	return out
}

// rebooted has the log say that another boot of the system wrote it.
func rebooted(t *testing.T, e estate) estate {
	if boot.ID() == "" {
		return e // nothing tells a boot here
	}
	format, err := os.ReadFile(filepath.Join(e.dir, storetest.FormatFile))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(e.dir, storetest.LogDir, "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, log := range logs {
		b, err := os.ReadFile(log)
		if err == nil {
			crashtest.RebootFrames(b, binary.LittleEndian.Uint64(b[72:]), xxhash.Sum64(format[40:56]), boot.ID())
			err = os.WriteFile(log, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
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
	o := storetest.Options()
	o.ReadOnly = true
	s, err := db.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	blocks, refs := map[recovery.ID]db.Block{}, map[string]db.Ref{}
	for b, err := range s.Blocks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		blocks[recovery.ID{Key: b.Key, Group: uint8(b.Group)}] = b
	}
	all, err := db.Collect(s.Refs())
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Restore(t, m.Model, p.prompt)
}

// repaired repairs dir, checks what must hold whatever was damaged, and returns the report and the new store's directory.
func repaired(t *testing.T, e estate, dir string) (admin.Repaired, string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "new")
	out, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{})
	if err != nil {
		t.Fatalf("repair: %v", err)
	}
	checkRepaired(t, e, &out, to)
	return out, to
}

func checkRepaired(t *testing.T, e estate, out *admin.Repaired, to string) {
	t.Helper()
	v, err := admin.Verify(t.Context(), to, admin.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
	for _, l := range out.Lost {
		if _, ok := saved[recovery.ID{Key: l.Block, Group: uint8(l.Group)}]; ok {
			t.Errorf("said to be lost, but saved: %+v", l)
		}
	}
	for id := range e.live {
		if _, ok := saved[id]; !ok && out.Whole() {
			t.Errorf("block %s group %d is missing, and nothing is said to be lost", id.Key, id.Group)
		}
	}
	for name, r := range refs {
		if want, ok := e.refs[name]; !reflect.DeepEqual(r, want) && (ok || len(out.Unknown) == 0) {
			t.Errorf("ref %+v, was %+v", r, want)
		}
	}
	if len(out.Unknown) == 0 && len(refs)+len(out.LostRefs) != len(e.refs) {
		t.Errorf("%d refs saved, %d lost, of %d", len(refs), len(out.LostRefs), len(e.refs))
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
