package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// TestKillChild is the child. It works until it is killed.
func TestKillChild(t *testing.T) {
	if os.Getenv("DORMOUSE_CHILD") != "work" {
		t.Skip("SKIPPED: runs in a child process only, which TestKill starts")
	}
	var k killMode
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv("DORMOUSE_CHILD_MODE"), &k.power, &k.frequent, &k.small, &seed); err != nil {
		t.Fatal(err)
	}
	w := &killWorker{out: os.NewFile(3, "journal"), k: k}
	s, err := db.Open(t.Context(), os.Getenv("DORMOUSE_CHILD_DIR"), k.options())
	if err != nil {
		w.write("x open: %v", err)
		os.Exit(3)
	}
	w.s = s
	for c := range 2 {
		m, err := s.Register(t.Context(), killModel(c))
		if err != nil {
			w.write("x model: %v", err)
			os.Exit(3)
		}
		w.models[c] = m.Model
	}
	w.write("r")
	for g := range 3 {
		go w.work(g, rand.New(rand.NewPCG(seed, uint64(g))))
	}
	time.Sleep(30 * time.Second) // an orphan ends by itself
	os.Exit(3)
}

type killWorker struct {
	s      *db.Store
	k      killMode
	models [2]*db.Model

	mu   sync.Mutex
	out  *os.File
	next int
}

func (w *killWorker) write(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintf(w.out, format+"\n", args...); err != nil {
		os.Exit(4) // the parent is gone
	}
}

// do journals an operation, does it, and journals how it ended.
func (w *killWorker) do(what string, op func() error) {
	w.mu.Lock()
	w.next++
	id := w.next
	w.mu.Unlock()
	w.write("b %d %s", id, what)
	err := op()
	switch {
	case err == nil:
		w.write("e %d", id)
	case errors.Is(err, db.ErrSuspended), errors.Is(err, db.ErrNotStored), errors.Is(err, db.ErrNotFound), w.k.small && errors.Is(err, db.ErrNoSpace):
		w.write("f %d", id)
	default:
		w.write("x %s: %v", what, err)
		os.Exit(3)
	}
}

func (w *killWorker) work(g int, r *rand.Rand) {
	for {
		c := r.IntN(killChats)
		p := killPrompt(c)
		m := w.models[c%2]
		d := m.Descriptor()
		n := killSystem + 20 + r.IntN(len(p.Tokens)-killSystem-20)
		p = p.Prefix(n)
		switch x := r.IntN(100); {
		case x < 40:
			w.do(fmt.Sprint("put ", c, " ", n), func() error {
				_, err := m.Put(context.Background(), p, killRows(d, &p, 0, n), db.PutOptions{})
				return err
			})
		case x < 62:
			w.do(fmt.Sprint("put ", c, " ", n), func() error {
				x, err := m.Match(context.Background(), p, db.MatchOptions{})
				if err != nil {
					return err
				}
				defer x.Close()
				from := x.Tokens()
				if len(d.Groups) > 1 { // of a window the runtime gives what it has: all that the restore gave it
					from = max(0, from-d.Groups[1].Window)
				}
				_, err = x.Extend(context.Background(), p, killRows(d, &p, from, n), db.PutOptions{})
				return err
			})
		case x < 74:
			w.restore(m, p)
		case x < 82:
			name := fmt.Sprint(g, "-", r.IntN(3))
			w.do(fmt.Sprint("ref ", c, " ", n, " ", name), func() error {
				return m.SetRef(context.Background(), name, p, db.RefOptions{Pinned: true})
			})
		case x < 84:
			name := fmt.Sprint(g, "-", r.IntN(3))
			w.do("unref 0 0 "+name, func() error { return w.s.DeleteRef(context.Background(), name) })
		case x < 85:
			name, value := fmt.Sprint(g, "-", r.IntN(3)), r.IntN(3)*1000
			w.do(fmt.Sprint("note ", c%2, " ", value, " ", name), func() error { return m.SetNote(context.Background(), name, make([]byte, value)) })
		case x < 91:
			w.do(fmt.Sprint("del ", c, " ", n), func() error { _, err := m.Delete(context.Background(), p); return err })
		case x < 93:
			if c%3 > 0 {
				w.do(fmt.Sprint("scope ", c, " ", killSystem+1), func() error { _, err := w.s.DeleteScope(context.Background(), killScope(c)); return err })
			}
		case x < 95:
			if w.k.frequent {
				w.do("checkpoint", func() error { return w.s.Checkpoint(context.Background()) })
			}
		case x < 97:
			if w.k.frequent {
				w.do("compact", func() error { _, err := w.s.Compact(context.Background(), db.CompactOptions{All: true}); return err })
			}
		case x < 98:
			w.do("sync", func() error {
				err := w.s.Sync(context.Background())
				var pending *db.PendingError
				if errors.As(err, &pending) {
					return nil
				}
				return err
			})
		default:
			if g == 0 && w.k.frequent {
				w.do("suspend", func() error { return w.s.Suspend(context.Background()) })
				w.do("resume", func() error { return w.s.Resume(context.Background()) })
			}
		}
	}
}

// restore checks that what is handed out is right, whatever it is.
func (w *killWorker) restore(m *db.Model, p kv.Prompt) {
	x, err := m.Match(context.Background(), p, db.MatchOptions{})
	if errors.Is(err, db.ErrSuspended) {
		return
	}
	if err == nil {
		defer x.Close()
		_, err = killRestore(m, x, p)
	}
	if err != nil && !errors.Is(err, db.ErrSuspended) {
		w.write("x restore: %v", err)
		os.Exit(3)
	}
}

// killRestore restores a match and compares every row.
func killRestore(m *db.Model, x *db.Match, p kv.Prompt) (int, error) {
	d := m.Descriptor()
	n := len(p.Tokens)
	rows := storetest.Empty(d, n)
	got, err := x.Restore(context.Background(), rows)
	if err != nil {
		return 0, err
	}
	want := killRows(d, &p, 0, n)
	for i, t := range d.Tensors {
		size := t.RowBytes()
		a, b := rows[i].Pieces[0].Mem, want[i].Pieces[0].Mem
		for pos := range n {
			if g := d.Groups[t.Group]; g.Kind == kv.Window && pos < got.Tokens-g.Window {
				continue
			}
			row, right := a[pos*size:(pos+1)*size], b[pos*size:(pos+1)*size]
			if pos >= got.Tokens {
				right = make([]byte, size)
			}
			if string(row) != string(right) {
				return 0, fmt.Errorf("tensor %d row %d of %d restored is wrong", i, pos, got.Tokens)
			}
		}
	}
	return got.Tokens, nil
}
