package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// bbolt trusts its pages: a damaged length is read beyond the map, a page that names itself as its child is followed
// until the stack overflows, which no recover stops. So index.db is written by bbolt and read by this file and tree.go,
// which check every number before they use it. The layout is that of bbolt's file format 2 (go.etcd.io/bbolt,
// internal/common); the files have pages of 4 KiB on every system.
//
//	 0    8       10      12         16
//	┌────┬───────┬───────┬──────────┬──────────────────────────┐
//	│ id │ flags │ count │ overflow │ elements, then their bytes   page
//	└────┴───────┴───────┴──────────┴──────────────────────────┘
//	 0       4     8       12                 0     4       8
//	┌───────┬─────┬───────┬───────┐          ┌─────┬───────┬───────┐
//	│ flags │ pos │ ksize │ vsize │  leaf    │ pos │ ksize │ child │  branch
//	└───────┴─────┴───────┴───────┘          └─────┴───────┴───────┘
//
// pos counts from the element itself. Keys, and values behind them, follow without gaps in the elements' order, so the
// first one starts where the elements end: that pins the count.
const (
	pageBytes       = 4096
	pageHeaderBytes = 16
	elementBytes    = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10

	elementBucket = 1 // flag of a leaf element that holds a bucket

	// MetaBytes is where the two pages end that say which commit is the last: while they stay what they are, so do the pages of that.
	MetaBytes = 2 * pageBytes

	maxDepth = 20      // of a tree; every level at least doubles its rows
	maxPages = 1 << 32 // of a file: 16 TiB
)

var bucketName = []byte("dormouse")

type page struct {
	b     []byte // of one page; of an inline bucket less
	id    uint64
	leaf  bool
	count int
}

// parsePage checks the header and that the elements fit.
func parsePage(b []byte, id uint64) (p page, what string) {
	le := binary.LittleEndian
	if len(b) < pageHeaderBytes {
		return p, "page is too short"
	}
	flags := le.Uint16(b[8:])
	p = page{b: b, id: id, leaf: flags == flagLeaf, count: int(le.Uint16(b[10:]))}
	switch {
	case le.Uint64(b) != id:
		return p, fmt.Sprintf("page calls itself %d", le.Uint64(b))
	case flags != flagLeaf && flags != flagBranch:
		return p, fmt.Sprintf("page has flags %#x", flags)
	case le.Uint32(b[12:]) != 0:
		return p, fmt.Sprintf("page has %d overflow pages", le.Uint32(b[12:]))
	case p.count == 0 || p.end() > len(b):
		return p, fmt.Sprintf("page has %d elements", p.count)
	}
	if start, _, _ := p.place(0); start != uint64(p.end()) {
		return p, fmt.Sprintf("first key at %d, behind %d elements", start, p.count)
	}
	return p, ""
}

// end is where the elements end.
func (p *page) end() int { return pageHeaderBytes + p.count*elementBytes }

// place is where the bytes of element i lie, unchecked.
func (p *page) place(i int) (start, ksize, vsize uint64) {
	le := binary.LittleEndian
	at := pageHeaderBytes + i*elementBytes
	e := p.b[at : at+elementBytes]
	if p.leaf {
		return uint64(at) + uint64(le.Uint32(e[4:])), uint64(le.Uint32(e[8:])), uint64(le.Uint32(e[12:]))
	}
	return uint64(at) + uint64(le.Uint32(e)), uint64(le.Uint32(e[4:])), 0
}

// row returns key and value of element i; no key if they do not lie in the page.
func (p *page) row(i int) (key, val []byte) {
	start, ksize, vsize := p.place(i)
	if ksize == 0 || start < uint64(p.end()) || start+ksize+vsize > uint64(len(p.b)) {
		return nil, nil
	}
	return p.b[start : start+ksize], p.b[start+ksize : start+ksize+vsize]
}

// key returns the key of element i; none if it does not lie in the page.
func (p *page) key(i int) []byte {
	at := pageHeaderBytes + i*elementBytes
	field := at
	if p.leaf {
		field += 4
	}
	size := binary.LittleEndian.Uint64(p.b[field : field+8])
	start := uint64(at) + size&0xFFFFFFFF
	end := start + size>>32
	if start == end || start < uint64(p.end()) || end > uint64(len(p.b)) {
		return nil
	}
	return p.b[start:end]
}

// search returns the first element whose key is at least key, or the number of elements. ok is false if it met an element
// that does not lie in the page.
func (p *page) search(key []byte) (i int, exact, ok bool) {
	lo, hi := 0, p.count
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		k := p.key(mid)
		if k == nil {
			return 0, false, false
		}
		switch c := bytes.Compare(k, key); {
		case c == 0:
			return mid, true, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false, true
}

// child is the page that element i of a branch points to.
func (p *page) child(i int) uint64 {
	return binary.LittleEndian.Uint64(p.b[pageHeaderBytes+i*elementBytes+8:])
}

// flags are those of element i of a leaf.
func (p *page) flags(i int) uint32 {
	return binary.LittleEndian.Uint32(p.b[pageHeaderBytes+i*elementBytes:])
}

// check looks at every element: no gaps, keys ascending. It says what is wrong, and which bytes are unused.
func (p *page) check() (rest []byte, what string) {
	at := uint64(p.end())
	var last []byte
	for i := range p.count {
		key, val := p.row(i)
		start, _, _ := p.place(i)
		switch {
		case key == nil:
			return nil, fmt.Sprintf("element %d lies outside of the page", i)
		case start != at:
			return nil, fmt.Sprintf("element %d at %d, the one before it ends at %d", i, start, at)
		case bytes.Compare(last, key) >= 0:
			return nil, fmt.Sprintf("key of element %d is not above the one before it", i)
		}
		last, at = key, start+uint64(len(key)+len(val))
	}
	return p.b[at:], ""
}

// meta is one of the two pages that say where the tree's root is; commits write them in turn.
//
//	 0       4         8          12      16     24         32         40      48     56
//	┌───────┬─────────┬──────────┬───────┬──────┬──────────┬──────────┬───────┬──────┬─────┐
//	│ magic │ version │ pageSize │ flags │ root │ sequence │ freelist │ pages │ txid │ sum │  behind a page header
//	└───────┴─────────┴──────────┴───────┴──────┴──────────┴──────────┴───────┴──────┴─────┘
type meta struct {
	root, freelist uint64
	pages          uint64 // the file's pages, used or free: ids are below it
	txid           uint64
}

const (
	metaEnd     = pageHeaderBytes + 64
	boltMagic   = 0xED0CDAED
	boltVersion = 2
)

func parseMeta(file string, b []byte, id uint64) (m meta, err *damage.Error) {
	le := binary.LittleEndian
	off := int64(id) * pageBytes
	what := fmt.Sprintf("bbolt meta page %d", id)
	d := b[pageHeaderBytes:metaEnd]
	h := fnv.New64a()
	h.Write(d[:56])
	m = meta{root: le.Uint64(d[16:]), freelist: le.Uint64(d[32:]), pages: le.Uint64(d[40:]), txid: le.Uint64(d[48:])}
	switch {
	case le.Uint32(d) != boltMagic:
		return m, damage.New(file, off+16, what, fmt.Sprintf("magic %#x", uint32(boltMagic)), fmt.Sprintf("%#x", le.Uint32(d)))
	case le.Uint32(d[4:]) != boltVersion:
		return m, damage.Wrap(file, off+20, what, fmt.Errorf("%w: bbolt version %d, known is %d", ErrVersion, le.Uint32(d[4:]), boltVersion))
	case le.Uint64(d[56:]) != h.Sum64():
		return m, damage.New(file, off+72, what, fmt.Sprintf("checksum %016x", h.Sum64()), fmt.Sprintf("%016x", le.Uint64(d[56:])))
	case le.Uint32(d[8:]) != pageBytes:
		return m, damage.New(file, off+24, what, fmt.Sprintf("pages of %d bytes", pageBytes), le.Uint32(d[8:]))
	case le.Uint64(b) != id || le.Uint16(b[8:]) != flagMeta || m.txid%2 != id:
		return m, damage.New(file, off, what, fmt.Sprintf("id %d, flags %#x", id, flagMeta),
			fmt.Sprintf("id %d, flags %#x, transaction %d", le.Uint64(b), le.Uint16(b[8:]), m.txid))
	case m.root < 2 || m.root >= m.pages || m.freelist < 2 || m.freelist >= m.pages:
		return m, damage.New(file, off+32, what, fmt.Sprintf("root and freelist within %d pages", m.pages),
			fmt.Sprintf("%d and %d", m.root, m.freelist))
	}
	return m, nil
}

// freelist is bbolt's list of the pages that the tree does not reach, where it lies in the file.
type freelist struct {
	file      string
	at, own   uint64 // its own pages, the first one and how many
	pages     uint64 // of the file
	ids, rest []byte // eight bytes a page, ascending; and what is behind them
}

// findFreelist looks at the list's header. b starts at the list's first page and goes on to its last, or beyond.
func findFreelist(file string, b []byte, m meta) (f freelist, err *damage.Error) {
	le := binary.LittleEndian
	f = freelist{file: file, at: m.freelist, pages: m.pages}
	if id, flags := le.Uint64(b), le.Uint16(b[8:]); id != m.freelist || flags != flagFreelist {
		return f, f.bad(fmt.Sprintf("page %d with flags %#x", m.freelist, flagFreelist), fmt.Sprintf("page %d with flags %#x", id, flags))
	}
	if m.pages > maxPages { // a file that was cut may say anything
		return f, f.bad(fmt.Sprintf("at most %d pages", uint64(maxPages)), m.pages)
	}
	f.own = uint64(le.Uint32(b[12:])) + 1
	if f.own > m.pages-m.freelist || f.own*pageBytes > uint64(len(b)) {
		return f, f.bad(fmt.Sprintf("at most %d pages", m.pages-m.freelist), f.own)
	}
	count := uint64(le.Uint16(b[10:]))
	b = b[pageHeaderBytes : f.own*pageBytes]
	if count == 0xFFFF { // then the first word is the count
		count, b = le.Uint64(b), b[8:]
	}
	if count > uint64(len(b))/8 {
		return f, f.bad(fmt.Sprintf("at most %d ids", len(b)/8), count)
	}
	f.ids, f.rest = b[:8*count], b[8*count:]
	return f, nil
}

func (f *freelist) bad(expected, found any) *damage.Error {
	return damage.New(f.file, int64(f.at)*pageBytes, "bbolt freelist", expected, found)
}

// set checks the whole list, and returns its pages with its own among them.
func (f *freelist) set() (bitset, *damage.Error) {
	free := make(bitset, f.pages/64+1)
	last, word := uint64(1), uint64(0) // word: the bits of last and of those beside it
	for i := 0; i+8 <= len(f.ids); i += 8 {
		id := binary.LittleEndian.Uint64(f.ids[i : i+8])
		if id <= last || id >= f.pages {
			return nil, f.bad(fmt.Sprintf("ids ascending, below %d", f.pages), fmt.Sprintf("%d after %d", id, last))
		}
		if id/64 != last/64 {
			free[last/64], word = word, 0
		}
		word |= 1 << (id % 64)
		last = id
	}
	free[last/64] |= word
	for id := f.at; id < f.at+f.own; id++ {
		if free.has(id) {
			return nil, f.bad("other pages than its own", fmt.Sprintf("page %d", id))
		}
		free.set(id)
	}
	if !vfs.Blank(f.rest) {
		return nil, f.bad(fmt.Sprintf("nothing behind %d ids", len(f.ids)/8), "more")
	}
	return free, nil
}

// bitset is a set of page numbers.
type bitset []uint64

func (s bitset) set(id uint64)      { s[id/64] |= 1 << (id % 64) }
func (s bitset) has(id uint64) bool { return id/64 < uint64(len(s)) && s[id/64]>>(id%64)&1 == 1 }
