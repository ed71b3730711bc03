package db

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// badLogFS fails to sync the log while bad is set.
type badLogFS struct {
	vfs.FS
	bad *atomic.Bool
}

type badLogFile struct {
	vfs.File
	bad *atomic.Bool
}

func (f badLogFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil || !strings.HasSuffix(filepath.Dir(name), walDir) {
		return file, err
	}
	return badLogFile{file, f.bad}, nil
}

func (f badLogFile) Sync() error {
	if f.bad.Load() {
		return errors.New("the disk is gone")
	}
	return f.File.Sync()
}

// In Power mode a model is in the store when that is durable, also for who asks for it while another call registers it.
func TestModelOfAnotherCallIsDurable(t *testing.T) {
	var bad atomic.Bool
	o := options()
	o.Durability, o.fs = Power, badLogFS{vfs.OS, &bad}
	s, err := Open(ctx, t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Register(ctx, plain()); err != nil {
		t.Fatal(err)
	}
	bad.Store(true)
	if _, err := s.Register(ctx, windowed(16)); err == nil { // it is known now, and its frame not durable
		t.Fatal("the log cannot be synced")
	}
	if _, err := s.Register(ctx, windowed(16)); err == nil {
		t.Error("a model was acknowledged whose frame is not durable")
	}
	if _, err := s.Register(ctx, plain()); err != nil { // reads go on
		t.Error(err)
	}
}

// Rows of a record that was replaced since a put looked into the index are not added to: nothing kept its bytes before the put's
// lease was taken.
func TestOlderRecordIsLookedUpUnderTheLease(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m, err := s.Register(ctx, windowed(16))
	if err != nil {
		t.Fatal(err)
	}
	e := s.eng
	p := kv.Prompt{Tokens: make([]kv.Token, 16)}
	w := &putter{e: e, m: m.Model, p: p, chain: e.hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p)}
	x := index.Entry{Key: w.chain.Key(0), Group: 1, Model: m.ms.Fingerprint, Loc: index.Loc{Segment: 1, Offset: 8192, Length: 4096}, RowCount: 16}
	if err := e.ix.Update(func(t *index.Txn) error {
		base := x
		base.Group, base.Tokens, base.Loc.Offset = 0, 16, 4096
		return errors.Join(t.Put(base), t.Put(x))
	}); err != nil {
		t.Fatal(err)
	}
	now := w.older(0, 1, x)
	now.release(e)
	if now.err != nil {
		t.Error(now.err)
	}
	if err := e.ix.Update(func(t *index.Txn) error {
		return t.SetLoc(x.Key, 1, index.Loc{Segment: 1, Offset: 12288, Length: 4096}, 9)
	}); err != nil {
		t.Fatal(err)
	}
	then := w.older(0, 1, x)
	then.release(e)
	if !isGone(then.err) {
		t.Errorf("its place may hold anything by now: %v", then.err)
	}
	if err := e.ix.Update(func(t *index.Txn) error { return errors.Join(t.Remove(x.Key, 1), t.Remove(x.Key, 0)) }); err != nil {
		t.Fatal(err)
	}
}
