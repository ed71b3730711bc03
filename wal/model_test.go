package wal

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// world is a log beside a model of it.
type world struct {
	t *rapid.T
	o Options

	log       *Log
	written   map[uint64]wrote
	snapshots map[uint64]string // at the head of a file, by id
	firsts    map[uint64]uint64 // first LSN of a file, by id
	oldest    uint64            // file id
	last      uint64
	durable   uint64
}

func newWorld(t *rapid.T, o Options) *world {
	w := &world{
		t: t, o: o, oldest: 1,
		written: map[uint64]wrote{}, snapshots: map[uint64]string{}, firsts: map[uint64]uint64{},
	}
	w.create(1, 1)
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(id, next uint64) {
	snapshot := fmt.Sprintf("state of file %d", id)
	log, err := Create(w.o, id, next, []byte(snapshot))
	w.check(err)
	w.log, w.last, w.durable = log, next-1, next-1
	w.snapshots[id], w.firsts[id] = snapshot, next
}

func (w *world) append(kind uint8, payload string) {
	lsn, err := w.log.Append(kind, []byte(payload))
	w.check(err)
	w.last++
	if lsn != w.last || w.log.LastLSN() != lsn {
		w.t.Fatalf("LSN %d, want %d", lsn, w.last)
	}
	w.written[lsn] = wrote{kind, payload}
}

func (w *world) sync(lsn uint64) {
	w.check(w.log.Sync(lsn))
	if got := w.log.DurableLSN(); got < lsn || got < w.durable || got > w.last {
		w.t.Fatalf("DurableLSN %d after Sync(%d) with %d appended", got, lsn, w.last)
	}
	w.durable = w.log.DurableLSN()
}

func (w *world) rotate(snapshot string) {
	id, lsn, err := w.log.Rotate(func(lsn uint64) []byte {
		if lsn != w.last {
			w.t.Fatalf("snapshot at %d, want %d", lsn, w.last)
		}
		return []byte(snapshot)
	})
	w.check(err)
	if lsn != w.last || id != w.log.FileID() || w.firsts[id] != 0 || w.log.DurableLSN() != lsn {
		w.t.Fatalf("Rotate: file %d at LSN %d, last is %d", id, lsn, w.last)
	}
	w.snapshots[id], w.firsts[id] = snapshot, lsn+1
	w.durable = w.last
}

func (w *world) remove(below uint64) {
	w.check(w.log.Remove(below))
	w.oldest = max(w.oldest, min(below, w.log.FileID()))
}

// recover replays what a crash left, of which frames up to least must be there, compares it with the model, and goes on.
func (w *world) recover(least uint64) {
	w.t.Helper()
	k, err := replayAll(w.o)
	w.check(err)
	w.check(k.same(w.written))
	w.check(k.consecutive())
	if len(k.rec.Damage) > 0 {
		w.t.Fatalf("a crash is no damage, but: %v", k.rec.Damage)
	}
	if k.rec.LastLSN < least || k.rec.LastLSN > w.last {
		w.t.Fatalf("replayed to %d; at least %d must be there and at most %d", k.rec.LastLSN, least, w.last)
	}
	first := w.firsts[w.oldest]
	if want := k.rec.LastLSN + 1 - first; uint64(len(k.frames)) != want || want > 0 && k.frames[0].LSN != first {
		w.t.Fatalf("%d frames, want %d to %d", len(k.frames), first, k.rec.LastLSN)
	}
	torn := 0
	for i, f := range k.rec.Files {
		if f.ID != w.oldest+uint64(i) || f.FirstLSN != w.firsts[f.ID] {
			w.t.Fatalf("file %d is %+v, first LSN should be %d", i, f, w.firsts[f.ID])
		}
		if f.Torn {
			torn++
		}
	}
	newest := k.rec.LastFile
	if got := k.snapshots[w.firsts[newest]-1]; got != w.snapshots[newest] {
		w.t.Fatalf("snapshot %q, want %q", got, w.snapshots[newest])
	}
	damaged, ends, err := verify(w.o)
	w.check(err)
	if len(damaged) > 0 || len(ends) != torn {
		w.t.Fatalf("Verify: %v, %v; replay says %d torn ends", damaged, ends, torn)
	}
	w.create(newest+1, k.rec.LastLSN+1)
}

// durableEnd is the offset in the current file before which all is durable.
func (w *world) durableEnd() (name string, off int64) {
	id := w.log.FileID()
	off = headerBytes + frameBytes(uint32(frameHead+len(w.snapshots[id])))
	for lsn := w.firsts[id]; lsn <= w.durable; lsn++ {
		off += frameBytes(uint32(frameHead + len(w.written[lsn].payload)))
	}
	return w.o.path(id), off
}

// tear spoils b from off on, as a crash may.
func tear(rnd *rand.Rand, b []byte, off int64) []byte {
	off += rnd.Int64N(int64(len(b)) - off + 1)
	if rnd.IntN(2) == 0 {
		return b[:off]
	}
	to := off + rnd.Int64N(min(int64(len(b))-off, 600)+1)
	for i := off; i < to; i++ {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func (w *world) actions(crashes map[string]func(*rapid.T)) map[string]func(*rapid.T) {
	payload := rapid.OneOf(rapid.StringN(0, 20, 60), rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(rapid.StringN(1, 3, 8).Draw(t, "part"), rapid.IntRange(0, 2000).Draw(t, "times"))
	}))
	a := map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			w.append(rapid.Uint8Range(2, 255).Draw(t, "kind"), payload.Draw(t, "payload"))
		},
		"sync":     func(t *rapid.T) { w.sync(rapid.Uint64Range(0, w.last).Draw(t, "lsn")) },
		"sync all": func(t *rapid.T) { w.sync(w.last) },
		"rotate":   func(t *rapid.T) { w.rotate(payload.Draw(t, "snapshot")) },
		"remove":   func(t *rapid.T) { w.remove(rapid.Uint64Range(w.oldest, w.log.FileID()+1).Draw(t, "below")) },
		"close": func(t *rapid.T) {
			w.check(w.log.Close())
			w.recover(w.last)
		},
	}
	// Twice as many appends as anything else.
	a["append more"] = a["append"]
	for name, f := range crashes {
		a[name] = f
	}
	return a
}

// Whatever is appended, synced, rotated and removed, after any crash: what was synced is there; what is there is a
// beginning of what was appended; nothing is called damage; and the log goes on.
func TestModelInMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, memOptions(newMemFS()))
		disk := func() *memFS { return w.o.FS.(*memFS) }
		seed := rapid.Uint64()
		t.Repeat(w.actions(map[string]func(*rapid.T){
			"kill": func(t *rapid.T) {
				w.o.FS = disk().kill()
				w.recover(w.last)
			},
			"kill and tear": func(t *rapid.T) {
				name, off := w.durableEnd()
				m := disk().kill()
				n := m.names[name]
				n.now = tear(rand.New(rand.NewPCG(seed.Draw(t, "seed"), 0)), n.now, off)
				n.sure = slices.Clone(n.now)
				w.o.FS = m
				w.recover(w.durable)
			},
			"power cut": func(t *rapid.T) {
				w.o.FS = disk().powerCut(rand.New(rand.NewPCG(seed.Draw(t, "seed"), 0)))
				w.recover(w.durable)
			},
		}))
	})
}

// The same on the real file system, where a crash is a copy of the files.
func TestModelOnDisk(t *testing.T) {
	root := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		if runs++; runs > 8 {
			return
		}
		fresh := func() string {
			dir, err := os.MkdirTemp(root, "")
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}
		w := newWorld(t, Options{FS: vfs.OS, Dir: fresh(), UUID: testUUID, PreallocBytes: 4096})
		defer func() { w.log.Close() }()
		crash := func(change func(name string, b []byte) []byte) {
			dir := fresh()
			entries, err := os.ReadDir(w.o.Dir)
			w.check(err)
			for _, e := range entries {
				b, err := os.ReadFile(filepath.Join(w.o.Dir, e.Name()))
				w.check(err)
				w.check(os.WriteFile(filepath.Join(dir, e.Name()), change(filepath.Join(w.o.Dir, e.Name()), b), 0o600))
			}
			w.log.Close()
			os.RemoveAll(w.o.Dir)
			w.o.Dir = dir
		}
		t.Repeat(w.actions(map[string]func(*rapid.T){
			"kill": func(t *rapid.T) {
				crash(func(_ string, b []byte) []byte { return b })
				w.recover(w.last)
			},
			"kill and tear": func(t *rapid.T) {
				last, off := w.durableEnd()
				rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				crash(func(name string, b []byte) []byte {
					if name == last {
						return tear(rnd, b, off)
					}
					return b
				})
				w.recover(w.durable)
			},
		}))
	})
}
