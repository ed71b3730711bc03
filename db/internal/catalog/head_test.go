package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// namedModel is a model whose descriptor takes about so many bytes.
func namedModel(i, bytes int) kv.Descriptor {
	d := crashtest.Plain()
	d.Name = fmt.Sprintf("model %d", i)
	d.Weights = kv.HashOf(d.Name)
	d.StateFormat = strings.Repeat("x", bytes)
	return d
}

// A descriptor that no log head could repeat is refused when it is registered, not when a checkpoint comes to it.
func TestLargeDescriptorIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	for i := range 4 {
		_, err := s.Register(t.Context(), namedModel(i, 30<<20))
		if !errors.Is(err, kv.ErrDescriptor) || !errors.Is(err, db.ErrLimit) || !strings.Contains(err.Error(), fmt.Sprintf("at most %d", db.MaxDescriptorBytes)) {
			t.Fatalf("a descriptor of 30 MiB: %v", err)
		}
	}
	full := crashtest.Plain() // the most tensors that one has
	full.Tensors = nil
	for i := range kv.MaxTensors {
		full.Tensors = append(full.Tensors, kv.Tensor{Layer: i, Role: kv.RoleK, DType: kv.F16, Width: 64})
	}
	m := storetest.Model(t, s, full)
	s = storetest.Reopened(t, s, storetest.Options())
	if again := storetest.Model(t, s, full); again.Fingerprint() != m.Fingerprint() {
		t.Error("the model of most tensors is another one after a reopen")
	}
}

// Models, refs and notes together are bounded, so that the log's head fits with each of them: whatever comes first, the store
// checkpoints, closes and opens, and what was refused has room once something goes.
func TestHeadIsBounded(t *testing.T) {
	const size = 900 << 10
	o := storetest.Options()
	o.Budget = 1 << 30
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	dir := s.Dir()
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, m, p)
	meta := make([]byte, db.MaxRefMeta)
	for i := range 2000 {
		storetest.OK(t, m.SetRef(t.Context(), fmt.Sprintf("ref %d", i), p, db.RefOptions{Meta: meta}))
	}
	var last *db.Model
	var err error
	n := 0
	for err == nil {
		var x db.Registered
		if x, err = s.Register(t.Context(), namedModel(n, size)); err == nil {
			last = x.Model
			n++
		}
	}
	says := fmt.Sprintf("at most %d", db.MaxHeadBytes)
	if !errors.Is(err, db.ErrLimit) || !strings.Contains(err.Error(), says) || n < 20 {
		t.Fatalf("after %d models: %v", n, err)
	}
	var refErr, noteErr error
	for i := 2000; refErr == nil; i++ {
		refErr = m.SetRef(t.Context(), fmt.Sprintf("ref %d", i), p, db.RefOptions{Meta: meta})
	}
	for i := 0; noteErr == nil; i++ {
		noteErr = m.SetNote(t.Context(), fmt.Sprint("note ", i), make([]byte, 100+i))
	}
	if !errors.Is(refErr, db.ErrLimit) || !errors.Is(noteErr, db.ErrLimit) || !strings.Contains(refErr.Error(), says) || !strings.Contains(noteErr.Error(), says) {
		t.Fatalf("a ref: %v\na note: %v", refErr, noteErr)
	}
	if err := m.SetRef(t.Context(), "ref 7", p, db.RefOptions{Meta: meta}); err != nil {
		t.Errorf("a ref in the place of one as large: %v", err)
	}
	s = storetest.Reopened(t, s, o)
	if got := len(storetest.LogHead(t, dir)); got > wal.MaxPayload/2+1<<20 || got < 20*size {
		t.Errorf("the head takes %d bytes", got)
	}
	storetest.OK(t, s.Retire(t.Context(), last.Fingerprint()))
	storetest.Model(t, s, namedModel(n, size-8<<10))
	s = storetest.Reopened(t, s, o)
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 48)
}

// The count of models is bounded, too; a version of an old name that comes back is none more.
func TestModelsAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	d := kv.Descriptor{
		Name: "tiny", Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 32}},
	}
	for i := range db.MaxModels {
		d.Weights = kv.Hash{1, byte(i), byte(i >> 8)}
		storetest.Model(t, s, d)
	}
	d.Weights = kv.Hash{2}
	if _, err := s.Register(t.Context(), d); !errors.Is(err, db.ErrLimit) || !strings.Contains(err.Error(), fmt.Sprint("no more than ", db.MaxModels)) {
		t.Fatalf("one more than %d models: %v", db.MaxModels, err)
	}
	d.Weights = kv.Hash{1}
	m := storetest.Model(t, s, d)
	s = storetest.Reopened(t, s, storetest.Options())
	all, err := db.Collect(s.Models())
	if err != nil || len(all) != db.MaxModels {
		t.Fatalf("%d models after a reopen (%v)", len(all), err)
	}
	for _, x := range all {
		if x.Latest != (x.Fingerprint == m.Fingerprint()) {
			t.Errorf("model %s is the latest: %v", x.Fingerprint, x.Latest)
		}
	}
}

// Models hold the budget as records do: others make way, and what has no room is refused, until models go.
func TestModelsHoldBudget(t *testing.T) {
	dir, o := t.TempDir(), storetest.Options()
	o.Budget = 1 << 20
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 200)...)
	storetest.Must(m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, len(p.Tokens)), db.PutOptions{}))(t)
	var all []*db.Model
	for {
		x, err := s.Register(t.Context(), namedModel(len(all), 20<<10))
		if used := storetest.Stats(t, s).DiskBytes; used > o.Budget {
			t.Fatalf("%d models: %d bytes are used, of a budget of %d", len(all), used, o.Budget)
		}
		if errors.Is(err, db.ErrNoSpace) {
			break
		}
		storetest.OK(t, err)
		all = append(all, x.Model)
	}
	if len(all) < 2 {
		t.Fatalf("room for %d models in %d bytes", len(all), o.Budget)
	}
	s = storetest.Reopened(t, s, o)
	for _, x := range all[1:] {
		storetest.OK(t, s.Retire(t.Context(), x.Fingerprint()))
	}
	storetest.Must(s.Compact(t.Context(), db.CompactOptions{}))(t) // index.db has had all of them
	if _, err := s.Register(t.Context(), all[1].Descriptor()); err != nil {
		t.Errorf("where models were retired: %v", err)
	}
}

// Two versions of a model that take turns in being the current one fill no log.
func TestModelsTakingTurns(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	a, b := crashtest.Plain(), crashtest.Plain()
	for layer := range 60 {
		a.Tensors = append(a.Tensors, kv.Tensor{Layer: 2 + layer, Role: kv.RoleK, DType: kv.F16, Width: 32})
	}
	b.Tensors = append(b.Tensors, a.Tensors[len(b.Tensors):]...)
	b.Weights[0] = 1
	for range 4000 {
		storetest.Model(t, s, a)
		storetest.Model(t, s, b)
	}
	if n, _, parts := storetest.Occupied(t, dir); n > o.Budget {
		t.Fatalf("%d bytes are occupied of a budget of %d: %v", n, o.Budget, parts)
	}
	if n := storetest.LogBytes(t, s); n > o.Budget/2 {
		t.Fatalf("the log takes %d bytes of a budget of %d", n, o.Budget)
	}
}

// The version of a model that was registered last is the current one after a kill, too, however much was used, and not put,
// before another one was registered: uses are in no frame of the log.
func TestCurrentVersionAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	one, two := crashtest.Plain(), crashtest.Plain()
	two.Weights[0] = 2
	m := storetest.Model(t, s, one)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	for range 1000 {
		storetest.Expect(t, m, p, 16)
	}
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 16)}) // with the uses
	storetest.Model(t, s, two)
	again := storetest.Open(t, storetest.Copy(t, dir), storetest.Options())
	fp := storetest.Model(t, again, one).Fingerprint() // the app went back to it
	models := storetest.Must(db.Collect(again.Models()))(t)
	for _, m := range models {
		if want := m.Fingerprint == fp; m.Latest != want {
			t.Errorf("the version with weights %d: current = %t, expected %t", m.Descriptor.Weights[0], m.Latest, want)
		}
	}
	before := storetest.Log(t, again).LastLSN
	if storetest.Model(t, again, one); storetest.Log(t, again).LastLSN != before {
		t.Error("the current version is registered once more")
	}
}
