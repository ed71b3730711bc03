package db

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// namedModel is a model whose descriptor takes about so many bytes.
func namedModel(i, bytes int) kv.Descriptor {
	d := plain()
	d.Name = fmt.Sprintf("model %d", i)
	d.Weights = kv.HashOf(d.Name)
	d.StateFormat = strings.Repeat("x", bytes)
	return d
}

// reopened is a store that was checkpointed, closed and opened again.
func reopened(t *testing.T, s *Store, dir string, o Options) *Store {
	t.Helper()
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, dir, o)
}

// A descriptor that no log head could repeat is refused when it is registered, not when a checkpoint comes to it.
func TestLargeDescriptorIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	for i := range 4 {
		_, err := s.Register(ctx, namedModel(i, 30<<20))
		if !errors.Is(err, kv.ErrDescriptor) || !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), fmt.Sprintf("at most %d", MaxDescriptorBytes)) {
			t.Fatalf("a descriptor of 30 MiB: %v", err)
		}
	}
	full := plain() // the most tensors that one has
	full.Tensors = nil
	for i := range kv.MaxTensors {
		full.Tensors = append(full.Tensors, kv.Tensor{Layer: i, Role: kv.RoleK, DType: kv.F16, Width: 64})
	}
	m := model(t, s, full)
	s = reopened(t, s, dir, options())
	if again := model(t, s, full); again.Fingerprint() != m.Fingerprint() {
		t.Error("the model of most tensors is another one after a reopen")
	}
}

// Models, refs and notes together are bounded, so that the log's head fits with each of them: whatever comes first, the store
// checkpoints, closes and opens, and what was refused has room once something goes.
func TestHeadIsBounded(t *testing.T) {
	const size = 900 << 10
	o := options()
	o.Budget = 1 << 30
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	meta := make([]byte, MaxRefMeta)
	for i := range 2000 {
		if err := m.SetRef(ctx, fmt.Sprintf("ref %d", i), p, RefOptions{Meta: meta}); err != nil {
			t.Fatal(err)
		}
	}
	var last *Model
	var err error
	n := 0
	for err == nil {
		var x Registered
		if x, err = s.Register(ctx, namedModel(n, size)); err == nil {
			last = x.Model
			n++
		}
	}
	says := fmt.Sprintf("at most %d", MaxHeadBytes)
	if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), says) || n < 20 {
		t.Fatalf("after %d models: %v", n, err)
	}
	var refErr, noteErr error
	for i := 2000; refErr == nil; i++ {
		refErr = m.SetRef(ctx, fmt.Sprintf("ref %d", i), p, RefOptions{Meta: meta})
	}
	for i := 0; noteErr == nil; i++ {
		noteErr = m.SetNote(ctx, fmt.Sprint("note ", i), make([]byte, 100+i))
	}
	if !errors.Is(refErr, ErrLimit) || !errors.Is(noteErr, ErrLimit) || !strings.Contains(refErr.Error(), says) || !strings.Contains(noteErr.Error(), says) {
		t.Fatalf("a ref: %v\na note: %v", refErr, noteErr)
	}
	if err := m.SetRef(ctx, "ref 7", p, RefOptions{Meta: meta}); err != nil {
		t.Errorf("a ref in the place of one as large: %v", err)
	}
	if got := len(s.eng.head(nil)); got > wal.MaxPayload/2+1<<20 {
		t.Errorf("the head takes %d bytes", got)
	}
	s = reopened(t, s, dir, o)
	if err := s.Retire(ctx, last.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	model(t, s, namedModel(n, size-8<<10))
	s = reopened(t, s, dir, o)
	expect(t, model(t, s, plain()), p, 48)
}

// The count of models is bounded, too; a version of an old name that comes back is none more.
func TestModelsAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := kv.Descriptor{
		Name: "tiny", Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 32}},
	}
	for i := range MaxModels {
		d.Weights = kv.Hash{1, byte(i), byte(i >> 8)}
		model(t, s, d)
	}
	d.Weights = kv.Hash{2}
	if _, err := s.Register(ctx, d); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), fmt.Sprint("no more than ", MaxModels)) {
		t.Fatalf("one more than %d models: %v", MaxModels, err)
	}
	d.Weights = kv.Hash{1}
	m := model(t, s, d)
	s = reopened(t, s, dir, options())
	all, err := Collect(s.Models())
	if err != nil || len(all) != MaxModels {
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
	dir, o := t.TempDir(), options()
	o.Budget = 1 << 20
	s := open(t, dir, o)
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 200)...)
	if _, err := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, len(p.Tokens)), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var all []*Model
	for {
		x, err := s.Register(ctx, namedModel(len(all), 20<<10))
		if used := s.eng.measure(); used > o.Budget {
			t.Fatalf("%d models: %d bytes are used, of a budget of %d", len(all), used, o.Budget)
		}
		if errors.Is(err, ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x.Model)
	}
	if len(all) < 2 {
		t.Fatalf("room for %d models in %d bytes", len(all), o.Budget)
	}
	s = reopened(t, s, dir, o)
	for _, x := range all[1:] {
		if err := s.Retire(ctx, x.Fingerprint()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Compact(ctx, CompactOptions{}); err != nil { // index.db has had all of them
		t.Fatal(err)
	}
	if _, err := s.Register(ctx, all[1].Descriptor()); err != nil {
		t.Errorf("where models were retired: %v", err)
	}
}
