package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"strings"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A file with the name of ours need not be ours. One that proves to be somebody else's is never replaced: a bbolt file that is sound (both
// meta pages, and the list of buckets) and has other buckets, or other pages than ours, and an index of another store. What proves nothing is a
// damaged index: most damage leaves no proof either way.

// Whose looks whose the file is. It returns ErrForeign where it is somebody else's, fs.ErrNotExist where there is none, and else
// whether it is known to be this store's index, or an empty file in its place. A link is vfs.ErrNotRegular, and a folder ErrForeign.
func Whose(o Options) (ours bool, err error) {
	o = o.withDefaults()
	w, err := lookAt(o.FS, o.Path)
	if err != nil {
		return false, err
	}
	return w.blank || w.known && w.uuid == o.UUID, w.foreign(o)
}

// removeTemporary removes what an earlier process left under a temporary name. A file that is somebody else's stays, and is ErrForeign.
func removeTemporary(o Options, path string) error {
	if err := checkTemporary(o, path); err != nil {
		return err
	}
	if err := o.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CheckTemporary returns ErrForeign if what lies under the name that an index has while it is written anew is somebody else's: then [Open] for writing
// refuses the index.
func CheckTemporary(o Options) error {
	o = o.withDefaults()
	return checkTemporary(o, o.Path+".tmp")
}

// checkTemporary returns ErrForeign if what has a temporary name of ours cannot be the beginning of an index.
func checkTemporary(o Options, path string) error {
	bolt := binary.LittleEndian.AppendUint32(nil, boltMagic)
	err := vfs.CheckOwn(o.FS, path, func(head []byte) bool {
		const at = pageHeaderBytes
		whole := len(head) >= at+4 && bytes.Equal(head[at:at+4], bolt)
		torn := vfs.Blank(head[:min(len(head), 8)]) && len(bytes.TrimRight(head, "\x00")) <= at+4
		return whole || torn || vfs.Blank(head[:min(len(head), at)])
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	w, err := lookAt(o.FS, path)
	if errors.Is(err, vfs.ErrNotRegular) { // a link
		return nil
	}
	if err != nil {
		return err
	}
	w.empty = false // so ours begin
	return w.foreign(o)
}

// whose is what a file says of itself.
type whose struct {
	path  string
	blank bool    // it is empty, or begins with zeros
	other string  // what of it no index of ours has; empty if there is nothing
	empty bool    // a bbolt file without buckets
	known bool    // there is a sound store row
	uuid  kv.UUID // in it
}

func (w *whose) foreign(o Options) error {
	switch {
	case w.known && w.uuid != o.UUID:
		return fmt.Errorf("%s: %w: it belongs to store %s, this one is %s", w.path, ErrForeign, w.uuid, o.UUID)
	case w.known:
		return nil
	case w.empty:
		return fmt.Errorf("%s: %w: a bbolt file without buckets", w.path, ErrForeign)
	case w.other != "":
		return fmt.Errorf("%s: %w: a bbolt file with %s", w.path, ErrForeign, w.other)
	}
	return nil
}

func lookAt(fsys vfs.FS, path string) (whose, error) {
	w := whose{path: path}
	if info, err := fsys.Stat(path); err == nil && !info.Regular && !info.Link {
		return w, fmt.Errorf("%s: %w: %w", path, ErrForeign, vfs.ErrNotRegular)
	}
	f, err := fsys.Open(path, true)
	if err != nil {
		return w, err
	}
	defer f.Close()
	head := make([]byte, 2*pageBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return w, err
	}
	w.blank = vfs.Blank(head[:min(n, 512)])
	var m meta
	metas := 0
	for id := range uint64(2) {
		b := head[id*pageBytes : (id+1)*pageBytes]
		version, page, ok := soundMeta(b)
		if ok && (version != boltVersion || page != pageBytes) {
			w.other = fmt.Sprintf("version %d and pages of %d bytes, ours have %d and %d", version, page, boltVersion, pageBytes)
			return w, nil
		}
		x, bad := parseMeta(path, b, id)
		if bad != nil {
			continue
		}
		if metas++; metas == 1 || x.txid > m.txid {
			m = x
		}
	}
	if m.root > 0 {
		w.buckets(f, m)
	}
	if metas < 2 { // the one that is left may be of before our first commit, or say of a list where it was: that proves nothing
		w.empty, w.other = false, ""
	}
	return w, nil
}

// soundMeta reads what tells one kind of bbolt file from another, if the checksum is right.
func soundMeta(b []byte) (version, page uint32, ok bool) {
	le, d := binary.LittleEndian, b[pageHeaderBytes:metaEnd]
	h := fnv.New64a()
	h.Write(d[:56])
	return le.Uint32(d[4:]), le.Uint32(d[8:]), le.Uint32(d) == boltMagic && le.Uint64(d[56:]) == h.Sum64()
}

// rootBytes is how much of a list of buckets is read. Ours has one.
const rootBytes = 1 << 20

// buckets reads the list of buckets, which other files may have on several pages.
func (w *whose) buckets(f vfs.File, m meta) {
	le := binary.LittleEndian
	b := make([]byte, pageBytes)
	if _, err := f.ReadAt(b, int64(m.root)*pageBytes); err != nil {
		return
	}
	flags, count, over := le.Uint16(b[8:]), int(le.Uint16(b[10:])), int64(le.Uint32(b[12:]))
	if le.Uint64(b) != m.root || flags != flagLeaf && flags != flagBranch || over >= int64(m.pages) {
		return // damage
	}
	if over > 0 {
		b = make([]byte, min((over+1)*pageBytes, rootBytes))
		n, err := f.ReadAt(b, int64(m.root)*pageBytes)
		if err != nil && err != io.EOF || n < pageBytes {
			return
		}
		b = b[:n]
	}
	p := page{b: b, id: m.root, leaf: flags == flagLeaf, count: count}
	if count == 0 {
		w.empty = p.leaf && !near(b[pageHeaderBytes+elementBytes:][:len(bucketName)])
		return
	}
	if p.end() > len(b) {
		return
	}
	var names []string
	var ours []byte // what a bucket of our name holds
	at := uint64(p.end())
	for i := range count {
		key, val := p.row(i)
		start, ksize, vsize := p.place(i)
		if i > 0 && start+ksize+vsize > rootBytes {
			break // it lies beyond what is read
		}
		if key == nil || start != at || p.leaf && p.flags(i) != elementBucket {
			return
		}
		at = start + ksize + vsize
		if near(key) {
			ours = val
		}
		names = append(names, fmt.Sprintf("%q", key))
	}
	if ours != nil {
		w.store(f, m, ours)
	}
	if ours == nil || count > 1 || !p.leaf {
		w.other = "buckets " + strings.Join(names[:min(len(names), 3)], ", ")
	}
}

// near reports whether a bucket's name is ours, or was before a bit of it, or of its length, changed.
func near(name []byte) bool {
	if bytes.HasPrefix(name, bucketName) {
		return true
	}
	differ := 0
	for i := range min(len(name), len(bucketName)) {
		if name[i] != bucketName[i] {
			differ++
		}
	}
	return len(name) == len(bucketName) && differ <= 1
}

// store reads the store row, which is the first of all, of the bucket that val holds.
func (w *whose) store(f vfs.File, m meta, val []byte) {
	if len(val) < 16 {
		return
	}
	id, b := binary.LittleEndian.Uint64(val), val[16:]
	for depth := 0; depth < maxDepth; depth++ {
		if id > 0 {
			b = make([]byte, pageBytes)
			if id < 2 || id >= m.pages {
				return
			}
			if _, err := f.ReadAt(b, int64(id)*pageBytes); err != nil {
				return
			}
		}
		p, what := parsePage(b, id)
		if what != "" {
			return
		}
		if !p.leaf {
			id = p.child(0)
			continue
		}
		key, val := p.row(0)
		if !bytes.Equal(key, storeKey) || len(val) < sumBytes {
			return
		}
		payload := val[sumBytes:]
		if binary.LittleEndian.Uint64(val) != sumRow(append(bytes.Clone(key), payload...)) {
			return
		}
		// Of rows of another version, too, the UUID is read.
		if s, err := decodeStore(w.path, payload); (err == nil || errors.Is(err, ErrVersion)) && s.UUID != (kv.UUID{}) {
			w.known, w.uuid = true, s.UUID
		}
		return
	}
}
