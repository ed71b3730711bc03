package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Salvaged is what [Salvage] could read of an index.db. A row is only in it if its checksum is right, and only if it is
// of the last checkpoint: rows that bbolt has given up, which lie about in free pages, are not.
type Salvaged struct {
	Known   bool    // the store row is there: UUID and Applied mean something
	UUID    kv.UUID // of the store that the file belongs to
	Applied Applied // Extra is nil if a piece of it is lost

	Entries  []Entry // in no order, with their Hashes
	Complete bool    // they are as many as the checkpoint wrote
	// Older says that one of the two meta pages is damaged, so that all this may be of the checkpoint before the last.
	Older  bool
	Damage []*damage.Error
}

// Salvage reads what is sound of an index.db that may be damaged, page by page: a damaged page costs its own rows. It
// changes nothing, and takes no lock: no other process may write to the file. A file that is not there is [ErrMissing];
// other errors are the system's.
func Salvage(o Options) (Salvaged, error) {
	o = o.withDefaults()
	f, err := o.fs.Open(o.Path, true)
	if errors.Is(err, fs.ErrNotExist) {
		return Salvaged{}, fmt.Errorf("%w: %s", ErrMissing, o.Path)
	}
	if err != nil {
		return Salvaged{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Salvaged{}, err
	}
	s := &salvage{path: o.Path, f: f, pages: uint64(info.Size / pageBytes), seen: map[uint64]bool{}, extra: map[uint32][]byte{}}
	if info.Size%pageBytes != 0 {
		s.bad(s.pages, "file size", fmt.Sprintf("a multiple of %d", pageBytes), info.Size)
	}
	s.run()
	s.finish()
	return s.out, nil
}

type salvage struct {
	path  string
	f     vfs.File
	pages uint64 // whole ones
	meta  meta
	free  bitset // nil if the freelist is damaged
	seen  map[uint64]bool
	lost  bool // a page that others hang below
	store *storeRow
	// strange says that the rows are of a version that is not known: nothing of them is believed.
	strange bool
	extra   map[uint32][]byte
	out     Salvaged
}

func (s *salvage) bad(id uint64, what string, expected, found any) {
	s.out.Damage = append(s.out.Damage, damage.New(s.path, int64(id)*pageBytes, what, expected, found))
}

// read returns n pages.
func (s *salvage) read(id, n uint64) []byte {
	if id >= s.pages || n > s.pages-id {
		s.bad(id, "page", fmt.Sprintf("within the %d pages of the file", s.pages), id)
		return nil
	}
	b := make([]byte, n*pageBytes)
	if k, err := s.f.ReadAt(b, int64(id)*pageBytes); k < len(b) {
		s.out.Damage = append(s.out.Damage, damage.Wrap(s.path, int64(id)*pageBytes, "page", err))
		return nil
	}
	return b
}

func (s *salvage) run() {
	if !s.chooseMeta() {
		return
	}
	s.readFreelist()
	s.seen[s.meta.root] = true
	b := s.read(s.meta.root, 1)
	if b == nil {
		s.lost = true
	} else if root, inline, ok := s.bucket(b); !ok {
		s.lost = true
	} else if inline != nil {
		s.leaf(0, inline)
	} else {
		s.tree(root, nil, nil, 0)
	}
	if s.lost && s.free != nil {
		s.cutOff()
	}
}

// chooseMeta takes the later of the two meta pages that are sound.
func (s *salvage) chooseMeta() bool {
	sound := 0
	for id := range uint64(2) {
		b := s.read(id, 1)
		if b == nil {
			continue
		}
		m, bad := parseMeta(s.path, b, id)
		if bad != nil {
			s.out.Damage = append(s.out.Damage, bad)
			continue
		}
		if sound++; sound == 1 || m.txid > s.meta.txid {
			s.meta = m
		}
	}
	s.out.Older = sound == 1
	return sound > 0
}

func (s *salvage) readFreelist() {
	b := s.read(s.meta.freelist, 1)
	if b == nil {
		return
	}
	if n := uint64(binary.LittleEndian.Uint32(b[12:])) + 1; n > 1 && n <= s.pages-s.meta.freelist {
		if b = s.read(s.meta.freelist, n); b == nil {
			return
		}
	}
	list, bad := findFreelist(s.path, b, s.meta)
	if bad == nil {
		s.free, bad = list.set()
	}
	if bad != nil {
		s.out.Damage = append(s.out.Damage, bad)
		return
	}
	for i := range list.own {
		s.seen[s.meta.freelist+i] = true
	}
}

// bucket finds ours in bbolt's list of buckets.
func (s *salvage) bucket(b []byte) (root uint64, inline []byte, ok bool) {
	p, what := parsePage(b, s.meta.root)
	if what != "" {
		s.bad(s.meta.root, "bbolt's list of buckets", "a page", what)
		return 0, nil, false
	}
	key, val := p.row(0)
	if !p.leaf || p.count != 1 || !bytes.Equal(key, bucketName) || len(val) < 16 {
		s.bad(s.meta.root, "bbolt's list of buckets", fmt.Sprintf("bucket %q alone", bucketName), "something else")
		return 0, nil, false
	}
	if root = binary.LittleEndian.Uint64(val); root == 0 {
		return 0, val[16:], true
	}
	return root, nil, true
}

// tree reads a page and what hangs below it. first is the key that it must begin with, and hi one that is above its last;
// nil if there is none.
func (s *salvage) tree(id uint64, first, hi []byte, depth int) {
	switch {
	case depth == maxDepth:
		s.bad(id, "tree", fmt.Sprintf("at most %d levels", maxDepth), "more")
	case id < 2 || id >= s.meta.pages || s.seen[id] || s.free.has(id):
		s.bad(min(id, s.pages), "page number", "a page of the tree", id)
	default:
		if b := s.read(id, 1); b != nil && s.page(id, b, first, hi, depth) {
			return
		}
	}
	s.lost = true
}

func (s *salvage) page(id uint64, b, first, hi []byte, depth int) bool {
	p, what := parsePage(b, id)
	if what != "" {
		s.bad(id, "page", "a page of the tree", what)
		return false
	}
	k, last := p.key(0), p.key(p.count-1)
	if first != nil && !bytes.Equal(k, first) || hi != nil && bytes.Compare(last, hi) >= 0 {
		s.bad(id, "page", "keys that belong below its parent's", "others")
		return false
	}
	s.seen[id] = true
	if p.leaf {
		s.leaf(id, b)
		return true
	}
	for i := range p.count {
		child, lo, below := fence(&p, i, hi)
		if lo == nil {
			s.bad(id, fmt.Sprintf("element %d of the page", i), "within the page", "beyond it")
			s.lost = true
			continue
		}
		s.tree(child, lo, below, depth+1)
	}
	return true
}

// cutOff reads the leaves that hung below pages that are lost: pages that are not free, and that the walk did not reach.
func (s *salvage) cutOff() {
	for id := uint64(2); id < min(s.meta.pages, s.pages); id++ {
		if s.seen[id] || s.free.has(id) {
			continue
		}
		b := s.read(id, 1)
		if b == nil {
			continue
		}
		if p, what := parsePage(b, id); what == "" && p.leaf {
			s.leaf(id, b)
		}
	}
}

// leaf takes the sound rows of a page.
func (s *salvage) leaf(id uint64, b []byte) {
	p, what := parsePage(b, id)
	if what != "" || !p.leaf {
		s.bad(id, "page", "a leaf", what)
		return
	}
	for i := range p.count {
		key, val := p.row(i)
		if key == nil || len(key) > maxKeyBytes || len(val) < sumBytes || len(val) > maxValueBytes || p.flags(i) != 0 {
			s.bad(id, fmt.Sprintf("row %d of the page", i), "a row", "wrong lengths")
			continue
		}
		payload := val[sumBytes:]
		if want, got := sumRow(append(bytes.Clone(key), payload...)), binary.LittleEndian.Uint64(val); want != got {
			s.bad(id, fmt.Sprintf("row %d of the page", i), fmt.Sprintf("checksum %016x", want), fmt.Sprintf("%016x", got))
			continue
		}
		s.row(key, payload)
	}
}

func (s *salvage) row(key, payload []byte) {
	switch key[0] {
	case tableStore:
		if row, err := decodeStore(s.path, payload); err == nil {
			s.store = &row
		} else if s.strange = errors.Is(err, ErrVersion); !s.strange {
			s.out.Damage = append(s.out.Damage, damage.Wrap(s.path, 0, "store row", err))
		}
	case tableExtra:
		if len(key) == extraKeyBytes {
			s.extra[binary.BigEndian.Uint32(key[1:])] = bytes.Clone(payload)
		}
	case tableBlock:
		var e Entry
		hashes, ok := decodeEntry(&e, key, payload)
		if e.Hashes = bytes.Clone(hashes); ok && e.validate() == nil {
			s.out.Entries = append(s.out.Entries, e)
		}
	}
}

// finish puts the caller's state together, and counts.
func (s *salvage) finish() {
	if s.strange {
		s.out.Entries = nil
	}
	if s.store == nil {
		return
	}
	s.out.Known, s.out.UUID, s.out.Applied = true, s.store.UUID, s.store.Applied
	s.out.Complete = int64(len(s.out.Entries)) == s.store.Totals.Records
	var extra []byte
	for i := range uint32(len(s.extra)) {
		piece, ok := s.extra[i]
		if !ok {
			return
		}
		extra = append(extra, piece...)
	}
	if uint64(len(extra)) == uint64(s.store.ExtraBytes) {
		s.out.Applied.Extra = extra
	}
}
