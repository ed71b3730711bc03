package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// copyBytes is how much is copied by one call: from 1 MiB on, Go's copy stores around the caches, which is faster for
// as much as is copied here.
const copyBytes = 4 << 20

// copyAll copies every tensor with Go's copy, on so many goroutines, so many bytes a call.
func copyAll(dst, src *kvCache, workers, share int) time.Duration {
	size := len(src.tensors[0])
	pieces := (size + share - 1) / share
	took, _ := since(func() error {
		return parallel(workers, len(src.tensors)*pieces, func(i int) error {
			from := i % pieces * share
			to := min(from+share, size)
			copy(dst.tensors[i/pieces][from:to], src.tensors[i/pieces][from:to])
			return nil
		})
	})
	return took
}

// copyLap is copyAll as a lap.
func copyLap(dst, src *kvCache, workers, share int) lap {
	return func() (time.Duration, error) { return copyAll(dst, src, workers, share), nil }
}

// directDepths are how many reads are in flight at a time: devices differ in what they like best.
var directDepths = []int{1, 2, 4, 8, 16}

// directBytes is the size of a read around the page cache.
const directBytes = 1 << 20

// readDirect reads the first bytes of every file around the page cache, with so many reads in flight.
func readDirect(paths []string, sizes []int64, depth int) (took time.Duration, total int64, err error) {
	type piece struct {
		f  *os.File
		at int64
	}
	var pieces []piece
	for i, path := range paths {
		f, err := openDirect(path)
		if err != nil {
			return 0, 0, err
		}
		defer f.Close()
		for at := int64(0); at < sizes[i]; at += directBytes {
			pieces = append(pieces, piece{f, at})
		}
	}
	buffers := make(chan []byte, depth)
	for i := range depth {
		b, err := directBuffer(i)
		if err != nil {
			return 0, 0, err
		}
		buffers <- b
	}
	var read atomic.Int64
	took, err = since(func() error {
		return parallel(depth, len(pieces), func(i int) error {
			b := <-buffers
			n, err := pieces[i].f.ReadAt(b, pieces[i].at)
			buffers <- b
			if n == 0 {
				return fmt.Errorf("%s, offset %d: %w", pieces[i].f.Name(), pieces[i].at, err)
			}
			read.Add(int64(n)) // a file may end within a piece
			return nil
		})
	})
	return took, read.Load(), err
}

// directBuffers are kept for the next reads.
var directBuffers [][]byte

// directBuffer returns the i-th of them, touched. They lie in huge pages where the system has them: into memory that is
// contiguous, some devices read twice as fast.
func directBuffer(i int) ([]byte, error) {
	for i >= len(directBuffers) {
		b, err := hugePages(directBytes)
		if err != nil {
			return nil, err
		}
		for k := 0; k < len(b); k += 4096 {
			b[k] = 1
		}
		directBuffers = append(directBuffers, b)
	}
	return directBuffers[i], nil
}

// putFiles stores blocks as a cautious program without a database does: each one in a file of its own, written under a
// temporary name, synced if it is to outlive a power cut, and renamed; and one sync of the folder.
func putFiles(dir string, src *kvCache, blocks int, sync bool) error {
	size := blockTokens * src.rowBytes()
	err := parallel(processors(), blocks, func(i int) (err error) {
		path := filepath.Join(dir, fmt.Sprintf("%08x", i))
		f, err := os.Create(path + ".tmp")
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				f.Close()
			}
		}()
		for _, mem := range src.tensors {
			if _, err := f.Write(mem[i*size : (i+1)*size]); err != nil {
				return err
			}
		}
		if sync {
			if err := f.Sync(); err != nil {
				return err
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(path+".tmp", path)
	})
	if sync {
		err = errors.Join(err, syncDir(dir))
	}
	return err
}

// syncDir makes a folder's names durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !os.IsPermission(err) {
		return err
	}
	return nil
}

// boltRows is a bbolt file with keys to look up.
type boltRows struct {
	db   *bolt.DB
	keys [][]byte
	path string
}

// Where index.db keeps its blocks (docs/format/index.md).
var (
	indexBucket = []byte("dormouse")
	indexBlock  = byte(2)
)

// copyRows makes a bbolt file of exactly the rows that index.db has of its blocks, in pages as full as random inserts leave
// them. The store must be closed.
func copyRows(index, path string) (_ *boltRows, err error) {
	from, err := bolt.Open(index, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer from.Close()
	os.Remove(path)
	to, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, Timeout: time.Second, InitialMmapSize: 1 << 30})
	if err != nil {
		return nil, err
	}
	rows := &boltRows{db: to, path: path}
	err = from.View(func(tx *bolt.Tx) error {
		return to.Update(func(out *bolt.Tx) error {
			b, err := out.CreateBucketIfNotExists(indexBucket)
			if err != nil {
				return err
			}
			b.FillPercent = 0.7
			source := tx.Bucket(indexBucket)
			if source == nil {
				return fmt.Errorf("%s has no bucket %q", index, indexBucket)
			}
			c := source.Cursor()
			for k, v := c.Seek([]byte{indexBlock}); len(k) > 0 && k[0] == indexBlock; k, v = c.Next() {
				key := append([]byte(nil), k...)
				if err := b.Put(key, append([]byte(nil), v...)); err != nil {
					return err
				}
				rows.keys = append(rows.keys, key)
			}
			return nil
		})
	})
	if err == nil && len(rows.keys) == 0 {
		err = fmt.Errorf("%s has no blocks", index)
	}
	if err != nil {
		return nil, errors.Join(err, rows.close())
	}
	return rows, nil
}

// get looks so many keys up in one read transaction, picked at random by the caller's number.
func (b *boltRows) get(random uint64, n int) error {
	return b.db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(indexBucket)
		for range n {
			random = random*6364136223846793005 + 1442695040888963407
			if bucket.Get(b.keys[(random>>33)%uint64(len(b.keys))]) == nil {
				return errors.New("a key of the reference file is missing")
			}
		}
		return nil
	})
}

func (b *boltRows) close() error { return errors.Join(b.db.Close(), os.Remove(b.path)) }
