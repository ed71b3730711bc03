package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/internal/damage"
)

// snapshot is the tree of one commit. An open read transaction keeps bbolt from writing over its pages. Shared by all views
// of that version.
type snapshot struct {
	file   *boltFile
	tx     *bolt.Tx // nil until bbolt opens the file
	refs   atomic.Int64
	meta   meta
	root   uint64 // of our bucket
	inline []byte // our bucket, while it is so small that bbolt keeps it in its parent's page

	list freelist
	free bitset // list, checked
}

func (s *snapshot) acquire() { s.refs.Add(1) }

// release gives up one use. The last one ends the transaction, and of the file's last transaction closes the file.
func (s *snapshot) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	if s.tx != nil {
		s.file.end(s.tx)
	}
	return s.file.drop()
}

// load finds the bucket in the commit of transaction txid. Its caller guards it.
func (s *snapshot) load(txid uint64) error {
	data := s.file.data
	id := txid % 2
	m, bad := parseMeta(s.file.path, data[id*pageBytes:(id+1)*pageBytes], id)
	if bad != nil {
		return s.file.damaged(bad)
	}
	if m.txid != txid || m.pages > uint64(len(data))/pageBytes {
		return s.file.damaged(damage.New(s.file.path, int64(id)*pageBytes, "bbolt meta page",
			fmt.Sprintf("transaction %d, at most %d pages", txid, len(data)/pageBytes),
			fmt.Sprintf("transaction %d, %d pages", m.txid, m.pages)))
	}
	s.meta = m
	if s.list, bad = findFreelist(s.file.path, data[m.freelist*pageBytes:m.pages*pageBytes], m); bad != nil {
		return s.file.damaged(bad)
	}
	var err error
	if s.free, err = s.checkFree(); err != nil {
		return err
	}
	return s.findBucket()
}

// checkFree reads the list of free pages and checks it. Whoever lets bbolt write has it checked once more, since bbolt trusts what the disk
// holds then. Its caller guards it.
func (s *snapshot) checkFree() (bitset, error) {
	free, bad := s.list.set()
	if bad != nil {
		return nil, s.file.damaged(bad)
	}
	return free, nil
}

// findBucket reads the tree of buckets, which holds ours alone and so is a single leaf.
//
//	 0      8
//	┌──────┬──────────┬──────┐
//	│ root │ sequence │ page │   the element's value; the page only if root is 0
//	└──────┴──────────┴──────┘
func (s *snapshot) findBucket() error {
	p, err := s.page(s.meta.root)
	if err != nil {
		return err
	}
	key, val := p.row(0)
	switch {
	case !p.leaf || p.count != 1 || !bytes.Equal(key, bucketName) || p.flags(0) != elementBucket || len(val) < 16:
		return s.bad(p.id, "bbolt's list of buckets", fmt.Sprintf("no bucket %q alone", bucketName))
	case binary.LittleEndian.Uint64(val[8:]) != 0:
		return s.bad(p.id, "bbolt's list of buckets", "bucket has a sequence")
	}
	s.root = binary.LittleEndian.Uint64(val)
	if s.root == 0 {
		s.inline = val[16:]
	} else if len(val) != 16 {
		return s.bad(p.id, "bbolt's list of buckets", fmt.Sprintf("bucket of %d bytes", len(val)))
	}

	// The first and the last row are known.
	var c treeCursor
	c.reset(s)
	if ok, err := c.find(storeKey); err != nil {
		return err
	} else if !ok || !bytes.Equal(c.key, storeKey) {
		return s.bad(s.root, "tree", "first row is missing")
	}
	if ok, err := c.find(endKey); err != nil {
		return err
	} else if !ok || !bytes.Equal(c.key, endKey) {
		return s.bad(s.root, "tree", "last row is missing")
	}
	return nil
}

// bad reports damage of a page.
func (s *snapshot) bad(id uint64, what, found string) error {
	return s.file.damaged(&damage.Error{File: s.file.path, Offset: int64(id * pageBytes), What: what, Found: found, Expected: "a valid one"})
}

// page returns a page of a tree.
func (s *snapshot) page(id uint64) (page, error) {
	if id == 0 && s.inline != nil {
		p, what := parsePage(s.inline, 0)
		if what != "" {
			return p, s.bad(s.meta.root, "inline bucket", what)
		}
		return p, nil
	}
	if id < 2 || id >= s.meta.pages {
		return page{}, s.bad(min(id, s.meta.pages), "page number", fmt.Sprintf("page %d of %d", id, s.meta.pages))
	}
	if s.free.has(id) {
		return page{}, s.bad(id, "page number", fmt.Sprintf("page %d is in the tree and free", id))
	}
	p, what := parsePage(s.file.data[id*pageBytes:(id+1)*pageBytes:(id+1)*pageBytes], id)
	if what != "" {
		return p, s.bad(id, "page", what)
	}
	return p, nil
}
