package wal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func benchLog(b *testing.B) *Log {
	b.Helper()
	log := must(Create(Options{Dir: b.TempDir(), UUID: testUUID}, 1, 1, nil))(b)
	b.Cleanup(func() { log.Close() })
	return log
}

// BenchmarkAppend appends frames that reach the page cache. x-pwrite is its time over that of bare pwrites of the same
// bytes into a growing file, taken in the same run.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			payload := make([]byte, size)
			f := must(os.Create(filepath.Join(b.TempDir(), "reference")))(b)
			defer f.Close()
			var off int64
			const wrap = 256 << 20 // bytes, so that a long run does not fill the disk
			log := benchLog(b)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := log.Append(2, payload); err != nil {
					b.Fatal(err)
				}
				if log.end > wrap {
					b.StopTimer()
					id, _, err := log.Rotate(text(""))
					if err == nil {
						err = log.Remove(id)
					}
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
			appended := b.Elapsed()
			b.StopTimer()
			reference := timed(func() {
				for range b.N {
					if _, err := f.WriteAt(payload, off%wrap); err != nil {
						b.Fatal(err)
					}
					off += int64(size)
				}
			})
			b.ReportMetric(float64(appended)/float64(reference), "x-pwrite")
		})
	}
}

// BenchmarkGroupCommit has goroutines that append a frame and wait for the disk. x-alone is the time a frame takes over
// that of one goroutine doing the same, taken in the same run.
func BenchmarkGroupCommit(b *testing.B) {
	payload := make([]byte, 200)
	for _, goroutines := range []int{4, 16, 64} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			commit := func(log *Log) {
				lsn, err := log.Append(2, payload)
				if err == nil {
					err = log.Sync(lsn)
				}
				if err != nil {
					b.Error(err)
				}
			}
			log := benchLog(b)
			const alone = 50
			reference := timed(func() {
				for range alone {
					commit(log)
				}
			}) / alone
			b.SetBytes(int64(len(payload)))
			b.SetParallelism(goroutines) // times GOMAXPROCS
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					commit(log)
				}
			})
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(reference), "x-alone")
		})
	}
}

// BenchmarkReplay reads a log of 64 MiB of frames of 1 KiB from the page cache.
func BenchmarkReplay(b *testing.B) {
	log := benchLog(b)
	payload := make([]byte, 1<<10)
	const frames = 64 << 10
	for range frames {
		must(log.Append(2, payload))(b)
	}
	b.SetBytes(frames << 10)
	for b.Loop() {
		n := 0
		if _, err := Replay(log.o, func(Frame) error { n++; return nil }); err != nil || n != frames+1 {
			b.Fatal(n, err)
		}
	}
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
