package index

import (
	"context"
	"errors"
	"testing"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// bbolt opens the file for the first commit and not before. While another process has the file, a checkpoint fails and is
// worth another try.
func TestBoltOpensForTheFirstCommit(t *testing.T) {
	o := testOptions(t.TempDir())
	m := build(t, o, 20)
	ix := must(Open(o))(t)
	defer ix.Close()
	other, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: lockWait})
	if err != nil {
		t.Fatal("an index that was only read is locked:", err)
	}
	fill(t, ix, m, 20, 40)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); !errors.Is(err, berrors.ErrTimeout) || ix.Err() != nil {
		t.Fatalf("a checkpoint of a file that is locked: %v, %v", err, ix.Err())
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, ix, m, 40, 60)
	ix.Freeze()
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 8}); err != nil {
		t.Fatal(err)
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	ix = must(Open(o))(t)
	v := ix.View()
	defer v.Release()
	if err := m.compare(v); err != nil || ix.Applied().LSN != 8 {
		t.Fatalf("frame %d: %v", ix.Applied().LSN, err)
	}
	verifyClean(t, ix)
}

// A file that another program has written to since it was opened is not written to, and rebuilt.
func TestWrittenByAnotherProgramSince(t *testing.T) {
	o := testOptions(t.TempDir())
	m := build(t, o, 300)
	ix := must(Open(o))(t)
	defer ix.Close()
	other, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: lockWait})
	if err == nil {
		err = errors.Join(other.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketName).Put([]byte{tableBlock, 1}, []byte("x")) }), other.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	fill(t, ix, m, 300, 310)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	must(Create(o))(t).Close()
}
