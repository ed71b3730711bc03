package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Options are those of a small store that does nothing unasked: no checkpoint by time, lossless rows, segments of 1 MiB, no log lines.
func Options() db.Options {
	return db.Options{
		Budget: 256 << 20, MinFree: -1, CheckpointInterval: -1, Codec: quant.Raw, SegmentBytes: 1 << 20,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// Meanwhile does what somebody else does, on a goroutine of its own, and waits for it: a hook is called by who may hold locks.
func Meanwhile(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// Open opens a store on the machine's disk, and closes it when the test ends.
func Open(t testing.TB, dir string, o db.Options) *db.Store {
	t.Helper()
	return OpenOn(t, vfs.OS, dir, o)
}

// OpenOn is Open on another disk.
func OpenOn(t testing.TB, disk vfs.FS, dir string, o db.Options) *db.Store {
	t.Helper()
	s, err := TryOpen(disk, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, db.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TryOpen opens a store that [Crash] can end. The caller closes it.
func TryOpen(disk vfs.FS, dir string, o db.Options) (*db.Store, error) {
	d := Over(disk)
	o.Inside.FS = d
	s, err := db.Open(context.Background(), dir, o)
	if err == nil {
		key := weak.Make(s)
		disks.Store(key, d)
		runtime.AddCleanup(s, func(key weak.Pointer[db.Store]) { disks.Delete(key) }, key)
	}
	return s, err
}

var disks sync.Map // *Disk by weak.Pointer[db.Store]

func diskOf(s *db.Store) *Disk {
	d, ok := disks.Load(weak.Make(s))
	if !ok {
		panic("storetest: the store was not opened by storetest")
	}
	return d.(*Disk)
}

var errKilled = errors.New("the process was killed")

// Crash leaves the files of a store as a SIGKILL would, and its folder to whoever opens it next: nothing more is written, synced, sealed
// or checkpointed. The store was opened by this package. Matches that are still open are named.
func Crash(s *db.Store, matches ...*db.Match) {
	diskOf(s).Before(func(c Call) error {
		if c.Changes() {
			return errKilled
		}
		return nil
	})
	for _, x := range matches {
		x.Close()
	}
	if err := s.Close(); errors.Is(err, db.ErrLeased) {
		panic(fmt.Sprint("storetest: ", err))
	}
}

// TB is a test, or a rapid one.
type TB interface {
	Helper()
	Fatal(...any)
}

// OK ends the test with err, unless that is nil.
func OK(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must is what a call returned, unless that was an error, with which the test ends: Must(f())(t).
func Must[T any](v T, err error) func(TB) T {
	return func(t TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Asked is a context that runs fn when it is first asked whether it is over.
func Asked(ctx context.Context, fn func()) context.Context { return &asked{ctx, fn} }

type asked struct {
	context.Context
	fn func()
}

func (c *asked) Err() error {
	if fn := c.fn; fn != nil {
		c.fn = nil
		fn()
	}
	return nil
}

// Fresh opens a new store with a model in it.
func Fresh(t testing.TB, o db.Options, d kv.Descriptor) (*db.Store, *db.Model) {
	t.Helper()
	s := Open(t, t.TempDir(), o)
	return s, Model(t, s, d)
}

// Model registers a model.
func Model(t testing.TB, s *db.Store, d kv.Descriptor) *db.Model {
	t.Helper()
	return Must(s.Register(context.Background(), d))(t).Model
}

// Put stores p and returns what that did.
func Put(t testing.TB, m *db.Model, p kv.Prompt) db.PutResult {
	t.Helper()
	res, err := m.Put(context.Background(), p, Filled(m.Descriptor(), &p, 0, len(p.Tokens)), db.PutOptions{})
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	if res.Tokens != len(p.Tokens) {
		t.Fatalf("put stored %d of %d tokens", res.Tokens, len(p.Tokens))
	}
	return res
}

// PutState stores a prompt with the state at its end.
func PutState(t testing.TB, m *db.Model, p kv.Prompt, keep int) {
	t.Helper()
	d := m.Descriptor()
	rows := Filled(d, &p, 0, len(p.Tokens))
	for i, tensor := range d.Tensors {
		if d.Groups[tensor.Group].Kind == kv.StateAt {
			rows[i].First = len(p.Tokens)
		}
	}
	if _, err := m.Put(context.Background(), p, rows, db.PutOptions{KeepStates: keep}); err != nil {
		t.Fatal(err)
	}
}

// Match matches a prompt. The caller closes the match.
func Match(t testing.TB, m *db.Model, p kv.Prompt) *db.Match {
	t.Helper()
	x, err := m.Match(t.Context(), p, db.MatchOptions{})
	OK(t, err)
	return x
}

// Restore matches p, restores it, checks every row, and returns the number of tokens.
func Restore(t testing.TB, m *db.Model, p kv.Prompt) (int, db.Reason) {
	t.Helper()
	x, err := m.Match(context.Background(), p, db.MatchOptions{})
	if err != nil {
		t.Fatalf("match: %v", err)
	}
	defer x.Close()
	d := m.Descriptor()
	rows := Empty(d, len(p.Tokens))
	got, err := x.Restore(context.Background(), rows)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	if got.Reason.Code == db.NoReason || x.Reason().Code == db.NoReason {
		t.Fatalf("%d tokens matched (%v), %d restored (%v): expected reasons", x.Tokens(), x.Reason(), got.Tokens, got.Reason)
	}
	CheckRows(t, d, &p, rows, got.Tokens)
	return got.Tokens, got.Reason
}

// Expect is Restore with the number of tokens that must come back.
func Expect(t testing.TB, m *db.Model, p kv.Prompt, want int) db.Reason {
	t.Helper()
	got, reason := Restore(t, m, p)
	if got != want {
		t.Fatalf("restored %d tokens (%v), expected %d", got, reason, want)
	}
	return reason
}

// Sound fails the test where Verify finds damage.
func Sound(t testing.TB, s *db.Store) {
	t.Helper()
	if got, err := admin.VerifyStore(context.Background(), s, admin.VerifyOptions{}); err != nil || len(got.Damage) > 0 {
		t.Error(got.Damage, err)
	}
}

// NothingDeadIsFound fails the test where something is found that waits to be destroyed.
func NothingDeadIsFound(t testing.TB, s *db.Store) {
	t.Helper()
	if err := DeadIsFound(s); err != nil {
		t.Error(err)
	}
}

// DeadIsFound says what is found and waits to be destroyed. What is evicted meanwhile is out of the index before it waits.
func DeadIsFound(s *db.Store) error {
	type place struct {
		segment uint64
		offset  int64
	}
	dead := map[place]bool{}
	tombs, err := db.Collect(admin.Tombstones(s)) // before the index is looked at
	if err != nil {
		return err
	}
	for _, d := range tombs {
		dead[place{d.Segment, d.Offset}] = true
	}
	for b, err := range s.Blocks(context.Background()) {
		if err != nil {
			return err
		}
		if dead[place{b.Segment, b.Offset}] {
			return fmt.Errorf("block %s, group %d, at %d of segment %d is found, and waits to be destroyed", b.Key, b.Group, b.Offset, b.Segment)
		}
	}
	return nil
}

// Eventually waits for what goes on in the background.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never happened: %s", what)
}

// Stats are a store's counts.
func Stats(t testing.TB, s *db.Store) db.Stats {
	t.Helper()
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Reopened is a store that was checkpointed, closed and opened again.
func Reopened(t testing.TB, s *db.Store, o db.Options) *db.Store {
	t.Helper()
	if err := errors.Join(s.Checkpoint(context.Background()), s.Close()); err != nil {
		t.Fatal(err)
	}
	return Open(t, s.Dir(), o)
}
