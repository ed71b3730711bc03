//go:build unix

package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// truncated maps a file of four times 64 KiB and then cuts it after the first: what lies behind faults.
func truncated(dir string) (whole, gone []byte, done func(), err error) {
	const part = 64 << 10
	f, err := OS.Create(filepath.Join(dir, "truncated"))
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	if _, err := f.WriteAt(pattern(4*part), 0); err != nil {
		return nil, nil, nil, err
	}
	m, err := f.Map(4 * part)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := f.Truncate(part); err != nil {
		return nil, nil, nil, err
	}
	return m.Bytes()[:part], m.Bytes()[part:], func() { m.Close() }, nil
}

func mustTruncated(t *testing.T) (whole, gone []byte) {
	t.Helper()
	whole, gone, done, err := truncated(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return whole, gone
}

var sink byte

// However the bytes are read (an index, a loop, the runtime's assembly), a missing page is ErrFault, and the next read of
// what is there succeeds.
func TestFaultIsAnError(t *testing.T) {
	whole, gone := mustTruncated(t)
	buf := make([]byte, len(gone))
	table := crc32.MakeTable(crc32.Castagnoli)
	for name, read := range map[string]func(b []byte){
		"index": func(b []byte) { sink = b[len(b)/2] },
		"loop": func(b []byte) {
			for _, x := range b {
				sink += x
			}
		},
		"copy":     func(b []byte) { copy(buf, b) },
		"compare":  func(b []byte) { sink = byte(bytes.Compare(b, buf)) },
		"equal":    func(b []byte) { bytes.Equal(b, pattern(len(b))) },
		"find":     func(b []byte) { bytes.IndexByte(b, 0) },
		"checksum": func(b []byte) { crc32.Checksum(b, table) },
		"string":   func(b []byte) { sink = string(b)[0] },
	} {
		err := Guard(func() error { read(gone); return nil })
		if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), "0x") {
			t.Errorf("%s: %v", name, err)
		}
		if err := Guard(func() error { read(whole); return nil }); err != nil {
			t.Errorf("%s of what is there: %v", name, err)
		}
	}
	mustEqual(t, "what is there", whole, pattern(len(whole)))
	if _, err := os.Stdout.Stat(); err != nil {
		t.Error(err)
	}
}

// A fault does not end an outer Guard, and runs what was deferred.
func TestFaultUnwinds(t *testing.T) {
	_, gone := mustTruncated(t)
	var mu sync.Mutex
	err := Guard(func() error {
		inner := Guard(func() error {
			mu.Lock()
			defer mu.Unlock()
			sink = gone[0]
			return nil
		})
		if !errors.Is(inner, ErrFault) {
			t.Errorf("inner: %v", inner)
		}
		sink = gone[0] // the outer one still guards
		return nil
	})
	if !errors.Is(err, ErrFault) || !mu.TryLock() {
		t.Errorf("outer: %v, or the lock is still held", err)
	}
}

// Truncating the file under readers costs those their read that touch what is gone, and nobody else anything.
func TestFaultUnderReaders(t *testing.T) {
	const size = 1 << 20
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(size))
	m, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var ready, wg sync.WaitGroup
	cut := make(chan struct{})
	for i := range 4 {
		ready.Add(1)
		wg.Go(func() {
			half := m.Bytes()[:size/2]
			if i%2 == 1 {
				half = m.Bytes()[size/2:]
			}
			sum := crc32.ChecksumIEEE(half)
			ready.Done()
			<-cut
			err := Guard(func() error {
				for range 20 {
					if crc32.ChecksumIEEE(half) != sum {
						return errors.New("other bytes")
					}
				}
				return nil
			})
			if faulted := errors.Is(err, ErrFault); faulted != (i%2 == 1) || (err != nil && !faulted) {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	ready.Wait()
	if err := f.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	close(cut)
	wg.Wait()
}

// A map that reaches beyond the end of its file may be made, and faults there.
func TestMapBeyondTheEnd(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(100))
	m, err := f.Map(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mustEqual(t, "the file's bytes", m.Bytes()[:100], pattern(100))
	if err := Guard(func() error { sink = m.Bytes()[1<<20-1]; return nil }); !errors.Is(err, ErrFault) {
		t.Error(err)
	}
	if err := f.Truncate(1 << 20); err != nil { // grown again, it may be read
		t.Fatal(err)
	}
	if err := Guard(func() error { sink = m.Bytes()[1<<20-1]; return nil }); err != nil || sink != 0 {
		t.Error(err)
	}
}

// A read-only map cannot be written to: that is a fault too, and no byte changes.
func TestMapIsReadOnly(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(100))
	m, err := f.Map(100)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := Guard(func() error { m.Bytes()[3] = 0; return nil }); !errors.Is(err, ErrFault) {
		t.Errorf("writing to a map: %v", err)
	}
	mustEqual(t, "content", content(t, f.Name()), pattern(100))
}

// Only the guarded goroutine is guarded: a fault in another ends the process, as it should, while a Guard is at work and
// even if its f started that goroutine.
func TestGuardIsOfOneGoroutine(t *testing.T) {
	for _, role := range []string{"fault unguarded", "fault in child of f"} {
		out, err := another(t, role, t.TempDir()).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("begin\n")) || bytes.Contains(out, []byte("survived")) ||
			!bytes.Contains(out, []byte("unexpected fault address")) {
			t.Errorf("%s: %v\n%.500s", role, err, out)
		}
	}
}

func faultUnguarded(dir string) int {
	_, gone, _, err := truncated(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	inside, over := make(chan bool), make(chan bool)
	go Guard(func() error { close(inside); <-over; return nil })
	<-inside
	fmt.Println("begin")
	sink = gone[0]
	fmt.Println("survived")
	close(over)
	return 0
}

func faultInChild(dir string) int {
	_, gone, _, err := truncated(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("begin")
	Guard(func() error {
		done := make(chan bool)
		go func() { sink = gone[0]; close(done) }()
		<-done
		return nil
	})
	fmt.Println("survived")
	return 0
}
