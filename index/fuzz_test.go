package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/kv"
)

// FuzzEntry: whatever is read as a row of any table is written as the same bytes.
func FuzzEntry(f *testing.F) {
	e := Entry{
		Key: key(1), Parent: key(2), Model: kv.Fingerprint{3}, Scope: kv.ScopeID{4}, Loc: Loc{Segment: 5, Offset: 6, Length: 7, Tier: 8},
		First: 9, Tokens: 10, RowFirst: 11, RowCount: 12, Flags: 13, Seq: 14, Rank: 15, Hits: 16, Used: 17, Created: 18,
	}
	entry := appendEntry(nil, &e, bytes.Repeat([]byte{1, 2}, MaxHashTokens))
	var back Entry
	if decodeEntry(&back, appendBlockKey(nil, e.Key, 0), entry); !reflect.DeepEqual(back, e) {
		f.Fatalf("%+v became %+v", e, back)
	}
	edit := func(off int, v uint64) []byte {
		b := bytes.Clone(entry)
		binary.LittleEndian.PutUint64(b[off:], v)
		return b
	}
	store := appendStore(nil, &storeRow{UUID: testUUID, Applied: Applied{LSN: 3}, ExtraBytes: 5})
	fuzzkit.Seeds(f,
		[]any{appendBlockKey(nil, e.Key, 1), entry},
		[]any{appendBlockKey(nil, e.Key, 1), edit(56, 1<<63)},  // offset
		[]any{appendBlockKey(nil, e.Key, 1), edit(64, 1<<63)},  // length
		[]any{appendBlockKey(nil, e.Key, 1), edit(108, 1<<63)}, // created
		[]any{[]byte{tableBlock}, []byte{}},
		[]any{appendBlockKey(nil, e.Key, 0), make([]byte, entryBytes+maxHashBytes+2)},
		[]any{appendChildKey(nil, key(1), kv.ScopeID{2}, []byte{0, 0, 3, 4}, key(5)), []byte{}},
		[]any{appendLeafKey(nil, kv.Fingerprint{1}, 1<<63, key(2)), appendCounts(nil, Counts{1, 2, 3})},
		[]any{appendScopeKey(nil, kv.ScopeID{1}, key(2)), appendSegmentCounts(nil, SegmentCounts{1, 2})},
		[]any{storeKey, store}, []any{storeKey, store[:95]}, []any{appendModelKey(nil, kv.Fingerprint{1}), appendCounts(nil, Counts{-1, 2, 3})},
		[]any{appendBlockKey(nil, e.Key, 1), appendEntry(nil, &e, []byte{1})}, // half a token's hash
	)
	f.Fuzz(func(t *testing.T, key, payload []byte) {
		fuzzkit.Bounded(t, 1<<18+uint64(16*(len(key)+len(payload))), func() { fuzzRow(t, key, payload) })
	})
}

func fuzzRow(t *testing.T, key, payload []byte) {
	var e Entry
	if hashes, ok := decodeEntry(&e, key, payload); ok {
		if !bytes.Equal(appendEntry(nil, &e, hashes), payload) || !bytes.Equal(appendBlockKey(nil, e.Key, e.Group), key) {
			t.Error("read and written again, an entry differs")
		}
		if e.Hashes = hashes; e.validate() != nil {
			t.Errorf("an entry is read that could not be put: %v", e.validate())
		}
	}
	if s, err := decodeStore("f", payload); err == nil {
		if s.ExtraBytes > MaxExtraBytes {
			t.Errorf("%d bytes of the caller's state", s.ExtraBytes)
		}
		if same, err := decodeStore("f", appendStore(nil, &s)); err != nil || !reflect.DeepEqual(s, same) {
			t.Errorf("%+v became %+v: %v", s, same, err)
		}
	} else if !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	if c, ok := decodeCounts(payload); ok && !bytes.Equal(appendCounts(nil, c), payload) {
		t.Error("counts differ")
	}
	if c, ok := decodeSegmentCounts(payload); ok && !bytes.Equal(appendSegmentCounts(nil, c), payload) {
		t.Error("counts of a segment differ")
	}
	if parent, scope, hashes, k, ok := splitChildKey(key); ok && len(hashes) <= maxHashBytes && !hasZero(hashes) &&
		!bytes.Equal(appendChildKey(nil, parent, scope, hashes, k), key) {
		t.Error("child row differs")
	}
	if model, rank, k, ok := splitLeafKey(key); ok && !bytes.Equal(appendLeafKey(nil, model, rank, k), key) {
		t.Error("leaf row differs")
	}
	if scope, k, ok := splitScopeKey(key); ok && !bytes.Equal(appendScopeKey(nil, scope, k), key) {
		t.Error("scope row differs")
	}
}

func hasZero(hashes []byte) bool {
	for i := 0; i+1 < len(hashes); i += 2 {
		if hashes[i]|hashes[i+1] == 0 {
			return true
		}
	}
	return false
}

// FuzzPage: no page, meta page or freelist makes the reader look outside of it, and all that look at a page agree on it.
func FuzzPage(f *testing.F) {
	le := binary.LittleEndian
	leaf := make([]byte, 256)
	le.PutUint64(leaf, 7)
	le.PutUint16(leaf[8:], flagLeaf)
	le.PutUint16(leaf[10:], 1)
	le.PutUint32(leaf[20:], 16)
	le.PutUint32(leaf[24:], 3)
	le.PutUint32(leaf[28:], 9)
	branch := make([]byte, 128)
	le.PutUint16(branch[8:], flagBranch)
	le.PutUint16(branch[10:], 2)
	le.PutUint32(branch[16:], 32)
	le.PutUint32(branch[20:], 1<<32-1)
	free := make([]byte, 64)
	le.PutUint64(free, 3)
	le.PutUint16(free[8:], flagFreelist)
	le.PutUint16(free[10:], 0xFFFF)
	le.PutUint64(free[16:], 1<<40)
	meta := make([]byte, metaEnd)
	le.PutUint16(meta[8:], flagMeta)
	for i, v := range []uint64{boltMagic | boltVersion<<32, pageBytes, 3, 0, 2, 1 << 60, 4} {
		le.PutUint64(meta[pageHeaderBytes+8*i:], v)
	}
	fuzzkit.Seeds(f, []any{leaf, uint64(7)}, []any{branch, uint64(0)}, []any{free, uint64(3)}, []any{meta, uint64(0)}, []any{leaf[:20], uint64(7)})
	f.Fuzz(func(t *testing.T, b []byte, id uint64) {
		fuzzkit.Bounded(t, 1<<18+uint64(32*len(b)), func() { fuzzPage(t, b, id) })
	})
}

func fuzzPage(t *testing.T, b []byte, id uint64) {
	if p, what := parsePage(b, id); what == "" {
		var last []byte
		for i := range p.count {
			key, _ := p.row(i)
			if key != nil && !bytes.Equal(key, p.key(i)) { // of a leaf's row the value may lie outside
				t.Fatalf("element %d: %x and %x", i, key, p.key(i))
			}
			if p.leaf {
				p.flags(i)
			} else {
				p.child(i)
			}
			last = key
		}
		p.search(last)
		if _, what := p.check(); what == "" {
			for i := range p.count {
				key, _ := p.row(i)
				if at, exact, ok := p.search(key); at != i || !exact || !ok {
					t.Fatalf("key %d of a sound page is found at %d", i, at)
				}
			}
		}
	}
	full := make([]byte, 2*pageBytes)
	copy(full, b)
	h := fnv.New64a()
	h.Write(full[pageHeaderBytes : metaEnd-8])
	binary.LittleEndian.PutUint64(full[metaEnd-8:], h.Sum64())
	if m, bad := parseMeta("f", full, id%2); bad == nil && (m.root >= m.pages || m.freelist >= m.pages || m.root < 2 || m.freelist < 2) {
		t.Fatalf("%+v", m)
	}
	m := meta{freelist: id % 100, pages: id%100 + 3}
	list, bad := findFreelist("f", full, m)
	if bad != nil {
		return
	}
	if list.own > 2 {
		t.Fatal("freelist is longer than its pages")
	}
	free, bad := list.set()
	if bad != nil {
		return
	}
	for id := range m.pages + 64 {
		own := m.freelist <= id && id < m.freelist+list.own
		if found := free.has(id); found && (id < 2 || id >= m.pages) && !own || own && !found {
			t.Fatalf("page %d of %d: free %t, of the freelist %t", id, m.pages, found, own)
		}
	}
}

// FuzzBloomFile: what is read as a filter is written as the same bytes. Behind a checksum that fits, one that is accepted never
// denies what was added to it.
func FuzzBloomFile(f *testing.F) {
	b := NewBloom(10, 0.1)
	b.Add(kv.Key{1})
	good := encodeBloom(b, testUUID, 5)
	edit := func(off int, v uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[off:], v)
		return b
	}
	fuzzkit.Seeds(f, []any{good}, []any{[]byte(bloomMagic)}, []any{make([]byte, bloomHeaderBytes+16)},
		[]any{edit(8, 1<<63|1)}, []any{edit(48, 1<<63)}, []any{edit(56, 1<<32-1)}, []any{edit(40, 1<<64-1)}, []any{good[:len(good)-8]})
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzkit.Bounded(t, 1<<18+uint64(8*len(data)), func() { fuzzBloom(t, bytes.Clone(data)) })
	})
}

func fuzzBloom(t *testing.T, data []byte) {
	b, lsn, err := decodeBloom("f", data, testUUID)
	if err == nil && !bytes.Equal(encodeBloom(b, testUUID, lsn), data) {
		t.Error("read and written again, it differs")
	}
	if err != nil && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrVersion) {
		t.Fatal(err)
	}
	if len(data) < bloomHeaderBytes+sumBytes {
		return
	}
	// Behind a right checksum.
	copy(data, bloomMagic)
	copy(data[16:32], testUUID[:])
	binary.LittleEndian.PutUint32(data[8:], bloomVersion)
	binary.LittleEndian.PutUint32(data[56:], uint32(len(data)-bloomHeaderBytes-sumBytes)/8)
	binary.LittleEndian.PutUint32(data[60:], bloomHash)
	end := len(data) - sumBytes
	binary.LittleEndian.PutUint64(data[end:], sumRow(data[:end]))
	if b, _, err := decodeBloom("f", data, testUUID); err == nil {
		b.MayContain(kv.Key{8})
		b.Add(kv.Key{9})
		if !b.MayContain(kv.Key{9}) {
			t.Error("false negative")
		}
		if rate := b.EstimatedFPR(); !(rate >= 0 && rate <= 1) || b.n < 0 {
			t.Errorf("%d keys, wrong with %g", b.n, rate)
		}
	}
}

// sealPages makes all checksums of an index.db fit: those of bbolt's meta pages, and of the rows.
func sealPages(b []byte) {
	le := binary.LittleEndian
	for ; len(b) >= pageBytes; b = b[pageBytes:] {
		p := page{b: b[:pageBytes], leaf: true, count: int(le.Uint16(b[10:]))}
		switch le.Uint16(b[8:]) {
		case flagMeta:
			h := fnv.New64a()
			h.Write(b[pageHeaderBytes : metaEnd-8])
			le.PutUint64(b[metaEnd-8:], h.Sum64())
		case flagLeaf:
			for i := 0; i < p.count && p.end() <= pageBytes; i++ {
				if key, val := p.row(i); len(val) >= sumBytes && p.flags(i) == 0 {
					copy(val, encodeValue(key, val[sumBytes:])[:sumBytes])
				}
			}
		}
	}
}

// FuzzIndex changes an index.db, five bytes an edit, makes its checksums fit if asked to, and then reads and writes all that can
// be: no panic, of ours or of bbolt's, no hang; and as long as no checksum was forged, no wrong answer.
func FuzzIndex(f *testing.F) {
	testMapBytes = 1 << 20
	const blocks = 40
	dir := f.TempDir()
	sample := func(blocks int) ([]byte, *model) {
		o := testOptions(filepath.Join(dir, fmt.Sprint(blocks)))
		ok(f, os.Mkdir(filepath.Dir(o.Path), 0o700))
		m := build(f, o, blocks)
		ix := must(Open(o))(f)
		defer ix.Close()
		return must(os.ReadFile(o.Path))(f)[:ix.rows.base.meta.pages*pageBytes], m
	}
	tall, truth := sample(blocks)
	flat, few := sample(2) // bbolt keeps so few rows in its list of buckets
	at := func(page, off int, v byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(page*pageBytes+off)), v)
	}
	root := int(binary.LittleEndian.Uint64(tall[pageHeaderBytes+16:]))
	seeds := [][]any{
		{[]byte{}, true, false}, {[]byte{}, false, true}, {at(0, pageHeaderBytes+16, 9), true, true}, {at(0, pageHeaderBytes+40, 255), true, true},
		{at(1, pageHeaderBytes+48, 9), true, true}, {at(root, pageHeaderBytes+60, 2), true, true}, {at(root, 10, 255), false, true},
	}
	for page := 2; page < len(tall)/pageBytes; page += 3 {
		seeds = append(seeds, []any{at(page, 10, 3), true, true}, []any{at(page, pageHeaderBytes+8, byte(page)), true, true}, []any{at(page, 4000, 1), true, false})
	}
	fuzzkit.Seeds(f, seeds...)
	f.Fuzz(func(t *testing.T, edits []byte, deep, forge bool) {
		b, m := bytes.Clone(flat), few
		if deep {
			b, m = bytes.Clone(tall), truth
		}
		if forge {
			m = nil
		}
		for edits = edits[:min(len(edits), 5*32)]; len(edits) >= 5; edits = edits[5:] {
			b[int(binary.LittleEndian.Uint32(edits)&0xffffff)%len(b)] = edits[4]
		}
		if forge {
			sealPages(b)
		}
		o := testOptions(dir)
		ok(t, os.WriteFile(o.Path, b, 0o600))
		fuzzkit.Bounded(t, 64<<20, func() {
			for range 2 { // the second time as the first one left it
				fuzzIndex(t, o, m)
				m = nil
			}
		})
	})
}

// fuzzIndex uses an index that may be damaged. What it says is compared with m, unless that is nil.
func fuzzIndex(t *testing.T, o Options, m *model) {
	ix, err := Open(o)
	if err != nil {
		if !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrVersion) {
			t.Fatalf("an error of no known kind: %v", err)
		}
		return
	}
	v := ix.View()
	rows := 0
	more := func() bool {
		if rows++; rows > 100_000 {
			t.Fatal("there is no end to the rows")
		}
		return true
	}
	right := func(e Entry) {
		if m == nil {
			return
		}
		want, ok := m.blocks[blockID{e.Key, e.Group}]
		if want.Hashes = nil; !ok || fmt.Sprint(e) != fmt.Sprint(want) {
			t.Fatalf("%+v, put was %+v", e, want)
		}
	}
	v.Blocks(kv.Key{}, 0, func(e Entry) bool {
		right(e)
		return more()
	})
	var parents []kv.Key
	v.ChildRows(func(parent kv.Key, _ kv.ScopeID, _ []byte, _ kv.Key) bool {
		parents = append(parents, parent)
		return more()
	})
	for n := range 45 {
		if e, ok, err := v.Get(key(n), 0); err == nil && ok {
			right(e)
		} else if _, there := m.has(key(n)); err == nil && there {
			t.Fatalf("block %d is missing", n)
		}
		v.Neighbors(key(n), kv.ScopeID{1}, []byte{1, 0, 1, 1})
		v.StoredPrefixes(key(n), kv.ScopeID{}, []byte{1, 1, 1, 0}, func(kv.Key, int) bool { return more() })
		v.Children(key(n), nil, func(kv.Key, kv.ScopeID) bool { return more() })
		v.HasChildren(key(n))
	}
	for b := range byte(2) {
		v.Leaves(kv.Fingerprint{b}, nil, func(kv.Key, uint64) bool { return more() })
		v.ScopeRoots(kv.ScopeID{b}, kv.Key{b}, func(kv.Key) bool { return more() })
	}
	v.Models(func(kv.Fingerprint, Counts) bool { return more() })
	v.Segments(func(uint64, SegmentCounts) bool { return more() })
	v.Release()
	ok(t, ix.Verify(context.Background(), func(*damage.Error) { more() }, func(int64) {}))
	ix.Update(func(tx *Txn) error {
		for n := range 45 {
			if n%3 == 0 {
				tx.Remove(key(n), 0)
			} else if err := tx.Put(Entry{Key: key(n), Parent: key(n / 3), Loc: Loc{Segment: 1, Length: 4096}, Tokens: 16}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 9, Extra: bytes.Repeat([]byte{1}, 2000)}); err != nil && errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	ix.Close()
}

// has says whether a block was put; of no model nothing is known.
func (m *model) has(k kv.Key) (Entry, bool) {
	if m == nil {
		return Entry{}, false
	}
	return m.entry(k)
}
