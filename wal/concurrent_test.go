package wal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// 16 goroutines append and sync, others rotate, remove and look: every frame is there once, whole, under its number.
func TestConcurrentUse(t *testing.T) {
	d, log := newLog(t)
	const writers, each = 16, 60
	var mu sync.Mutex
	written := map[uint64]wrote{} // guarded by mu
	var writing, looking sync.WaitGroup
	stop := make(chan struct{})
	for g := range writers {
		writing.Go(func() {
			for i := range each {
				w := wrote{uint8(2 + g), strings.Repeat(fmt.Sprintf("%d/%d ", g, i), i%7)}
				lsn, err := log.Append(w.kind, []byte(w.payload))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				written[lsn] = w
				mu.Unlock()
				if i%3 > 0 {
					continue
				}
				if err := log.Sync(lsn); err != nil || log.DurableLSN() < lsn {
					t.Errorf("Sync(%d): %v, durable %d", lsn, err, log.DurableLSN())
				}
			}
		})
	}
	looking.Go(func() {
		for range 20 {
			_, lsn, err := log.Rotate(func(lsn uint64) []byte { return fmt.Append(nil, lsn) })
			if err != nil || log.DurableLSN() < lsn {
				t.Error(err)
			}
		}
	})
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
				if log.Bytes() <= 0 || log.DurableLSN() > log.LastLSN() || log.Err() != nil {
					t.Error("state")
				}
			}
		}
	})
	writing.Wait()
	close(stop)
	looking.Wait()
	ok(t, log.Close())
	k := d.replay()
	if err := k.whole(written); err != nil || len(k.frames) != writers*each {
		t.Fatalf("%v, %d frames, %+v", err, len(k.frames), k.rec)
	}
	for lsn, s := range k.snapshots {
		if lsn > 0 && s != fmt.Sprint(lsn) {
			t.Fatalf("snapshot %q at LSN %d", s, lsn)
		}
	}
	if _, err := log.Append(2, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append to a closed log: %v", err)
	}
	if err := log.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	ok(t, log.Sync(log.LastLSN())) // Close made it durable
}

// While one fsync runs, all who come wait for one more.
func TestOneSyncServesAll(t *testing.T) {
	d, log := newLog(t)
	const others = 16
	var syncs atomic.Int32
	begun, finish := make(chan struct{}), make(chan struct{})
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "sync" && syncs.Add(1) == 1 {
			close(begun)
			<-finish
		}
		return nil
	})
	var wg sync.WaitGroup
	appendSync := func() {
		lsn, err := log.Append(2, nil)
		if err == nil {
			err = log.Sync(lsn)
		}
		if err != nil || log.DurableLSN() < lsn {
			t.Error(err)
		}
	}
	wg.Go(appendSync)
	<-begun
	for range others {
		wg.Go(appendSync)
	}
	for log.LastLSN() < others+1 { // appends do not wait for the fsync
		runtime.Gosched()
	}
	if log.DurableLSN() != 0 {
		t.Error("durable before the fsync is over")
	}
	close(finish)
	wg.Wait()
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d fsyncs for %d goroutines", n, others+1)
	}
}

const childDir = "WAL_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func childOptions(dir string) Options {
	return Options{Dir: dir, UUID: testUUID, PreallocBytes: 64 << 10}
}

func childPayload(lsn uint64) string { return strings.Repeat(fmt.Sprint("frame ", lsn), int(lsn%50)) }

// child appends until it is killed, and prints each number after it was acknowledged.
func child(dir string) {
	log, err := Create(childOptions(dir), 1, 1, nil)
	for lsn := uint64(1); err == nil; lsn++ {
		if _, err = log.Append(2, []byte(childPayload(lsn))); err != nil {
			break
		}
		fmt.Println(lsn)
		switch {
		case lsn%500 == 0:
			_, _, err = log.Rotate(text("state"))
		case lsn%97 == 0:
			err = log.Sync(lsn)
		}
	}
	fmt.Fprintln(os.Stderr, err)
}

// What was acknowledged survives SIGKILL at any time, without any fsync.
func TestKilledProcess(t *testing.T) {
	for run := range 6 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		out := must(cmd.StdoutPipe())(t)
		ok(t, cmd.Start())
		var acked uint64
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var lsn uint64
			if _, err := fmt.Sscan(lines.Text(), &lsn); err == nil {
				acked = lsn
			}
			if acked == uint64(300+700*run) {
				cmd.Process.Kill() // what it printed until it died is read on
			}
		}
		cmd.Wait()
		k := must(replayAll(childOptions(dir)))(t)
		if err := k.consecutive(); err != nil || k.rec.LastLSN < acked || len(k.rec.Damage) > 0 {
			t.Fatalf("acknowledged %d; %v, %+v", acked, err, k.rec)
		}
		for _, f := range k.frames {
			if string(f.Payload) != childPayload(f.LSN) {
				t.Fatalf("frame %d came back as %q", f.LSN, f.Payload)
			}
		}
		if len(k.frames) < int(acked) {
			t.Fatalf("%d frames, acknowledged %d", len(k.frames), acked)
		}
	}
}
