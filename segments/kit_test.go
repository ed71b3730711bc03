package segments

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	testUUID = kv.UUID{0xd0, 0x12, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	testSeed = kv.Seed{1, 1, 2, 3, 5, 8, 13, 21}
)

// testModel is a normal descriptor; n tells models apart.
func testModel(n int) (*kv.Descriptor, kv.Fingerprint) {
	d, err := kv.Descriptor{
		Name: fmt.Sprintf("model %d", n), Weights: kv.Hash{byte(n)}, Architecture: "llama",
		RoPE:   kv.RoPE{Type: "norm", Dims: 64, Base: 10000, Scale: 1, Scaling: "none"},
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 128}},
		Tensors: []kv.Tensor{
			{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 64}, {Layer: 0, Role: kv.RoleV, DType: kv.F16, Width: 64},
			{Layer: 1, Role: kv.RoleK, DType: kv.F16, Width: 64, Group: 1},
		},
	}.Normal()
	if err != nil {
		panic(err)
	}
	return &d, d.Fingerprint()
}

// options are those of a small store in dir: 64 KiB a segment.
func options(dir string) Options {
	return Options{Dir: dir, UUID: testUUID, Seed: testSeed, SegmentBytes: 64 << 10, AllocateStep: 10_000}
}

func openSet(t testing.TB, o Options) *Set {
	t.Helper()
	return must(Open(o))(t)
}

func newSet(t testing.TB) *Set { return openSet(t, options(t.TempDir())) }

// block is a record as a test knows it.
type block struct {
	meta   Meta
	planes [][]byte
}

// makeBlock is a record of model n with as many planes of so many bytes, all of them filled from seed.
func makeBlock(n int, seed uint64, planes ...int) block {
	_, fp := testModel(n)
	rng := rand.New(rand.NewPCG(seed, 77))
	b := block{meta: Meta{Model: fp, First: 64, Seq: seed + 1}}
	le.PutUint64(b.meta.Key[:], seed)
	le.PutUint64(b.meta.Parent[:], seed^0xffff)
	for range 64 {
		b.meta.Tokens = append(b.meta.Tokens, rng.Int32N(50000))
	}
	for _, size := range planes {
		p := make([]byte, size)
		for i := range p {
			p[i] = byte(rng.Uint32()) | 1 // never zero: a lost byte shows
		}
		b.planes = append(b.planes, p)
	}
	return b
}

// build lays b out; the caller releases it.
func (b block) build(t rapid.TB) *Builder {
	t.Helper()
	r := NewBuilder(b.meta, len(b.planes))
	for i, p := range b.planes {
		ok(t, r.AddPlane(TensorEntry{Tensor: uint16(i)}, func(dst []byte, e *TensorEntry) ([]byte, error) {
			e.Rows, e.MaxError, e.CRC = uint16(len(b.meta.Tokens)), float32(i)/8, crc32c(p)
			return append(dst, p...), nil
		}))
	}
	return r
}

// try appends b and says what came of it.
func (b block) try(t rapid.TB, s *Set, n int) (Loc, error) {
	t.Helper()
	r := b.build(t)
	defer r.Release()
	d, fp := testModel(n)
	return s.Append(d, fp, r)
}

func (b block) append(t rapid.TB, s *Set, n int) Loc {
	t.Helper()
	return must(b.try(t, s, n))(t)
}

// differs says in what r differs from b; empty if in nothing.
func (b block) differs(r *Record) string {
	m := b.meta
	switch {
	case r.Key() != m.Key, r.Parent() != m.Parent, r.Model() != m.Model, r.Scope() != m.Scope, r.Group() != m.Group,
		r.First() != m.First, r.Seq() != m.Seq:
		return "header"
	case r.TokenCount() != len(m.Tokens):
		return "token count"
	case r.h.spans != len(m.Spans):
		return "span count"
	case r.Tensors() != len(b.planes):
		return "plane count"
	}
	p := r.Prompt()
	for i, tok := range m.Tokens {
		if r.Token(i) != tok || p.Tokens[i] != tok {
			return fmt.Sprintf("token %d", i)
		}
	}
	for i, s := range m.Spans {
		if r.Span(i) != s || p.Spans[i] != s {
			return fmt.Sprintf("span %d", i)
		}
	}
	for i, want := range b.planes {
		if err := r.VerifyPlane(i); err != nil {
			return err.Error()
		}
		if got := r.Plane(i); string(got) != string(want) {
			return fmt.Sprintf("plane %d", i)
		}
		if e := r.Tensor(i); int(e.Tensor) != i || e.Offset%planeAlignment != 0 {
			return fmt.Sprintf("entry %d", i)
		}
	}
	return ""
}

var errDiffers = errors.New("the record differs")

// read returns what is wrong with the record at loc: damage that was noticed, or errDiffers if wrong bytes were not.
func (b block) read(s *Set, loc Loc) error {
	return s.Read(loc, func(r *Record) error {
		if err := r.Verify(); err != nil {
			return err
		}
		if what := b.differs(r); what != "" {
			return fmt.Errorf("%w in %s", errDiffers, what)
		}
		return nil
	})
}

// verify returns what Verify reports, damage and remains apart.
func verify(t testing.TB, s *Set, id uint64, live func(Loc) bool) (bad, remains []*damage.Error) {
	t.Helper()
	if live == nil {
		live = func(Loc) bool { return true }
	}
	ok(t, s.Verify(t.Context(), id, live, func(e *damage.Error) {
		if errors.Is(e, ErrRemains) {
			remains = append(remains, e)
		} else {
			bad = append(bad, e)
		}
	}, nil))
	return bad, remains
}

// disk is a disk in memory, whose calls can fail.
type disk struct {
	*crashfs.Disk
	mu    sync.Mutex
	calls []string // that changed or synced something, or were to, since fails was called last: "write 0000000000000001.seg"; guarded by mu
}

const diskDir = "/segments"

// onDisk is a small set on a disk of its own.
func onDisk(t testing.TB) (*Set, *disk, Options) {
	d := &disk{Disk: crashfs.New(crashfs.Options{Dir: diskDir})}
	o := options(diskDir)
	o.FS = d
	d.fails(nil)
	return openSet(t, o), d, o
}

// fails lets calls from now on fail as which says, which may use the set. Of a write that fails, half gets to the disk.
func (d *disk) fails(which func(op crashfs.Op) error) {
	d.mu.Lock()
	d.calls = nil
	d.mu.Unlock()
	d.Before(func(op crashfs.Op) (err error) {
		if op.Changes() {
			d.mu.Lock()
			d.calls = append(d.calls, op.Kind+" "+op.Name)
			d.mu.Unlock()
		}
		if which != nil {
			err = which(op)
		}
		if err != nil && op.Kind == "write" {
			err = &crashfs.Short{Bytes: op.Len / 2, Err: err}
		}
		return err
	})
}

// failing is for disk.fails: calls of these kinds do.
func failing(err error, kinds ...string) func(crashfs.Op) error {
	return func(op crashfs.Op) error {
		if slices.Contains(kinds, op.Kind) {
			return err
		}
		return nil
	}
}

// kinds are those of the calls, in their order.
func (d *disk) kinds() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		kind, _, _ := strings.Cut(c, " ")
		out = append(out, kind)
	}
	return out
}

var (
	errCorrupt = damage.ErrCorrupt
	errSick    = errors.New("the disk is sick")
)

// flip inverts one bit of a file.
func flip(t testing.TB, path string, off int64) {
	t.Helper()
	edit(t, path, func(b []byte) []byte { b[off] ^= 4; return b })
}

// edit changes a file's bytes, and returns them.
func edit(t testing.TB, path string, change func(b []byte) []byte) []byte {
	t.Helper()
	b := change(must(os.ReadFile(path))(t))
	ok(t, os.WriteFile(path, b, 0o600))
	return b
}

func ok(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(rapid.TB) T {
	return func(t rapid.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

// stored is what a set should hold.
type stored map[Loc]block

// add appends a record of model n.
func (all stored) add(t testing.TB, s *Set, n int, seed uint64, planes ...int) Loc {
	t.Helper()
	b := makeBlock(n, seed, planes...)
	loc := b.append(t, s, n)
	all[loc] = b
	return loc
}

// check reads all, scans and verifies every segment, and finds nothing else there.
func (all stored) check(t *testing.T, s *Set) {
	t.Helper()
	for loc, b := range all {
		if err := b.read(s, loc); err != nil {
			t.Error(loc, err)
		}
	}
	found := 0
	for _, info := range s.Segments() {
		_, err := s.Scan(t.Context(), info.ID, 0, func(loc Loc, _ *Record) error {
			if _, ok := all[loc]; !ok {
				t.Errorf("a record that should not be is at %v", loc)
			}
			found++
			return nil
		}, func(e *damage.Error) { t.Error(e) })
		ok(t, err)
		sound(t, s, info.ID)
	}
	if found != len(all) {
		t.Errorf("%d records, expected %d", found, len(all))
	}
}

// sound expects that Verify has nothing to report.
func sound(t testing.TB, s *Set, id uint64) {
	t.Helper()
	if bad, remains := verify(t, s, id, nil); len(bad)+len(remains) > 0 {
		t.Error(bad, remains)
	}
}

// recordsOf scans a segment: where its records lie, where they end, and what is reported.
func recordsOf(t testing.TB, s *Set, id uint64) (locs []Loc, end int64, bad []*damage.Error) {
	t.Helper()
	end, err := s.Scan(t.Context(), id, 0, func(l Loc, _ *Record) error { locs = append(locs, l); return nil },
		func(e *damage.Error) { bad = append(bad, e) })
	ok(t, err)
	return locs, end, bad
}

// golden compares got with testdata/name, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		ok(t, os.WriteFile(path, got, 0o644))
	}
	if want := must(os.ReadFile(path))(t); string(got) != string(want) {
		t.Errorf("%s: the bytes of the format changed: %d bytes, expected %d", name, len(got), len(want))
	}
}

// reclaim destroys all that no lease can see.
func reclaim(t rapid.TB, s *Set) []Loc {
	t.Helper()
	done, more, err := s.Reclaim(context.Background(), nil)
	if err != nil || more {
		t.Fatal(more, err)
	}
	return done
}
