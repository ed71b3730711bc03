package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// TestLargeTree goes through trees of several levels, with many removals between checkpoints: what our reader and Verify take
// for granted about bbolt's pages (a branch repeats its children's first keys, unused bytes are zero, no overflow pages)
// must hold in all of them.
func TestLargeTree(t *testing.T) {
	ix := must(Create(testOptions(t.TempDir()), Applied{}))(t)
	defer ix.Close()
	r := rand.New(rand.NewPCG(7, 8))
	keys, rounds := 6000, 8
	if testing.Short() {
		keys, rounds = 1500, 4
	}
	if long {
		keys, rounds = 60000, 30
	}
	for round := range rounds {
		err := ix.Update(func(tx *Txn) error {
			for range keys / 3 {
				n := 1 + r.IntN(keys)
				if round%3 == 2 { // take most of it away
					if err := tx.Remove(key(n), 0); err != nil {
						return err
					}
				}
				if round%3 != 2 || n%10 == 0 {
					if err := tx.Put(randomEntry(r, n)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		ok(t, err)
		extra := make([]byte, r.IntN(100_000))
		ok(t, ix.Checkpoint(context.Background(), Applied{LSN: uint64(round), Extra: extra}))
		verifyClean(t, ix)
		boltCheck(t, ix)
	}
	before := ix.Bytes()
	ok(t, ix.Compact())
	verifyClean(t, ix)
	boltCheck(t, ix)
	if after := ix.Bytes(); after > before {
		t.Errorf("compacted from %d to %d bytes", before, after)
	}
}

// TestGrowth fills an index beyond its map while a view is held, which would keep bbolt waiting for ever.
func TestGrowth(t *testing.T) {
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprintf("replaceOpen=%v", open), func(t *testing.T) {
			testMapBytes = 64 << 10
			replaceOpen, busyWait = open, 20*time.Millisecond
			defer func() { testMapBytes, replaceOpen, busyWait = 0, vfsReplaceOpen, 10*time.Second }()

			o := testOptions(t.TempDir())
			ix, m := must(Create(o, Applied{}))(t), newModel()
			fill(t, ix, m, 1, 20)
			save(t, ix, 1)
			v, was := ix.View(), m.clone()
			fill(t, ix, m, 20, 300)
			err := ix.Checkpoint(context.Background(), Applied{LSN: 2})
			if open && err != nil || !open && !errors.Is(err, errBusy) {
				t.Fatal("checkpoint under a view:", err)
			}
			if err := was.compare(v); err != nil {
				t.Fatal("held view:", err)
			}
			v.Release()
			if !open {
				if got := ix.Applied().LSN; got != 1 {
					t.Fatal("applied", got)
				}
				if err := ix.Checkpoint(context.Background(), Applied{LSN: 2}); err != nil {
					t.Fatal("checkpoint after the view:", err)
				}
			}
			for range 2 {
				m.check(t, ix)
				ok(t, ix.Close())
				ix = must(Open(o))(t)
			}
			if got := ix.Applied().LSN; got != 2 {
				t.Error("applied", got)
			}
			if _, err := os.Stat(o.Path + ".tmp"); err == nil {
				t.Error("temporary file left behind")
			}
			ix.Close()
		})
	}
}

// bbolt opens the file for the first commit and not before. While another process has the file, a checkpoint fails and is
// worth another try.
func TestBoltOpensForTheFirstCommit(t *testing.T) {
	o, ix, m := opened(t, 20)
	other, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: lockWait})
	if err != nil {
		t.Fatal("an index that was only read is locked:", err)
	}
	fill(t, ix, m, 20, 40)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); !errors.Is(err, berrors.ErrTimeout) || ix.Err() != nil {
		t.Fatalf("a checkpoint of a file that is locked: %v, %v", err, ix.Err())
	}
	ok(t, other.Close())
	fill(t, ix, m, 40, 60)
	ix.Freeze()
	save(t, ix, 8)
	ok(t, ix.Close())
	ix = open(t, o)
	if m.check(t, ix); ix.Applied().LSN != 8 {
		t.Fatalf("frame %d", ix.Applied().LSN)
	}
}

// A file that another program has written to since it was opened is not written to, and rebuilt.
func TestWrittenByAnotherProgramSince(t *testing.T) {
	o, ix, m := opened(t, 300)
	other, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: lockWait})
	if err == nil {
		err = errors.Join(other.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketName).Put([]byte{tableBlock, 1}, []byte("x")) }), other.Close())
	}
	ok(t, err)
	fill(t, ix, m, 300, 310)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	must(Create(o, Applied{}))(t).Close()
}
