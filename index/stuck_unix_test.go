//go:build unix

package index

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
)

// A read transaction that cannot begin because the file was cut must not keep others from ending: bbolt holds a lock then.
func TestReleaseWhileBeginFails(t *testing.T) {
	for range 300 {
		o := testOptions(memdir.Dir(t))
		ix := must(Create(o, Applied{}))(t)
		var views []*View
		for n := range 12 {
			ok(t, ix.Update(func(tx *Txn) error { return tx.Put(randomEntry(rand.New(rand.NewPCG(uint64(n), 0)), n+1)) }))
			ok(t, ix.Checkpoint(context.Background(), Applied{LSN: uint64(n)}))
			views = append(views, ix.View())
		}
		file := ix.base().file
		ok(t, os.Truncate(o.Path, 0))
		var start, done sync.WaitGroup
		start.Add(1)
		for _, v := range views {
			done.Go(func() {
				start.Wait()
				v.Release()
			})
		}
		done.Go(func() {
			start.Wait()
			if tx, err := file.begin(); err == nil {
				t.Error("a transaction began on an empty file", tx)
			}
		})
		start.Done()
		done.Wait()
		ok(t, ix.Close())
	}
}

// A file that is emptied, or removed, before bbolt has opened it is damaged. bbolt would begin a new one there, which counted as somebody else's.
func TestEmptiedBeforeTheFirstCommit(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(memdir.Dir(t))
			ix := must(Create(o, Applied{}))(t)
			base := ix.base()
			ok(t, lose(o.Path))
			if err := base.file.ready(base); !errors.Is(err, ErrDamaged) {
				t.Errorf("bbolt opens it: %v", err)
			}
			if err := ix.Update(func(*Txn) error { return nil }); !errors.Is(err, ErrDamaged) {
				t.Errorf("it is changed on: %v", err)
			}
			ok(t, ix.Close())
			ok(t, must(Create(o, Applied{}))(t).Close())
		})
	}
}
