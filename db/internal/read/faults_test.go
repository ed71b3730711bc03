package read_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// addresses are those in the messages of faults.
var addresses = regexp.MustCompile(`address 0x[0-9a-f]+`)

// Whatever a read around the page cache does, fail, end early or give other bytes: the restore is right, since the map is.
func TestDirectReadsThatFail(t *testing.T) {
	for name, fault := range map[string]error{
		"EIO": syscall.EIO, "a short read": &storetest.Short{Bytes: 5000, Err: io.EOF}, "no file handles": syscall.EMFILE,
	} {
		t.Run(name, func(t *testing.T) {
			var seen directs
			var calls atomic.Int64
			disk := storetest.Cold(nil)
			s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
			m := storetest.Model(t, s, wide())
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
			storetest.Put(t, m, p)
			for at := int64(0); ; at++ {
				calls.Store(0)
				met := false
				disk.Before(func(c storetest.Call) error {
					if (c.Kind == "readdirect" || c.Kind == "opendirect" && name == "no file handles") && calls.Add(1)-1 == at {
						met = true
						return fault
					}
					seen.count(c)
					return nil
				})
				storetest.Expect(t, m, p, 700)
				disk.Before(nil)
				if !met {
					break
				}
			}
			if seen.reads.Load() == 0 || seen.open.Load() != 0 {
				t.Errorf("%d direct reads, %d files are still open", seen.reads.Load(), seen.open.Load())
			}
		})
	}
}

// Bytes that a read around the page cache got wrong, anywhere in a record, are not handed out.
func TestDirectReadsThatLie(t *testing.T) {
	disk := storetest.Cold(nil)
	s := storetest.OpenOn(t, disk, memdir.Disk(t), storetest.Options())
	m := storetest.Model(t, s, wide())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
	storetest.Put(t, m, p)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		spoiled := 0
		disk.Spoil(func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch at := r.IntN(len(b)); r.IntN(3) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
				spoiled++
			case 1:
				clear(b[at:])
				spoiled++
			}
		})
		storetest.Expect(t, m, p, 700)
		if spoiled == 0 {
			t.Error("nothing was spoiled")
		}
	}
	if st, err := s.Stats(); err != nil || st.Damaged != 0 {
		t.Errorf("%d damaged blocks are counted, %v: the files are sound", st.Damaged, err)
	}
}

// Damage of what is not in memory is found, and told, as that of what is.
func TestDirectDamage(t *testing.T) {
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
	sound := memdir.Disk(t)
	s := storetest.Open(t, sound, storetest.Options())
	m := storetest.Model(t, s, wide())
	storetest.Put(t, m, p)
	b := storetest.Record(t, s, m, p, 5, 0)
	storetest.OK(t, s.Close())
	tell := func(t *testing.T, at float64, cut bool, cold bool) string {
		dir := storetest.Copy(t, sound)
		disk := storetest.Cold(func(string, int64) bool { return cold })
		path := storetest.SegmentPath(dir, b.Segment)
		off := b.Offset + int64(at*float64(b.Bytes-1))
		s := storetest.OpenOn(t, disk, dir, storetest.Options())
		m := storetest.Model(t, s, wide())
		x, err := m.Match(t.Context(), p, db.MatchOptions{})
		storetest.OK(t, err)
		defer x.Close()
		rows := storetest.Empty(wide(), 700)
		var seen directs
		disk.Before(func(c storetest.Call) error { seen.count(c); return nil })
		var got db.Restored
		if cut {
			storetest.Expect(t, m, p, 700) // the file is mapped
			storetest.OK(t, os.Truncate(path, off))
			got, err = x.Restore(t.Context(), rows)
		} else {
			storetest.Flip(t, path, off, 3, func() { got, err = x.Restore(t.Context(), rows) })
		}
		storetest.OK(t, err)
		if cold != (seen.reads.Load() > 0) || seen.open.Load() != 0 {
			t.Fatalf("cold %t: %d direct reads, %d files are still open", cold, seen.reads.Load(), seen.open.Load())
		}
		storetest.CheckRows(t, wide(), &p, rows, got.Tokens)
		return strings.ReplaceAll(fmt.Sprintf("%d %d %s %v", got.Tokens, got.Reason.Code, got.Reason, got.Reason.Err), dir, "")
	}
	for _, at := range []float64{0, 0.001, 0.3, 0.6, 1} {
		for _, cut := range []bool{false, true} {
			warm, cold := tell(t, at, cut, false), tell(t, at, cut, true)
			if addresses.ReplaceAllString(warm, "") != addresses.ReplaceAllString(cold, "") {
				t.Errorf("at %v, cut %t: in memory\n%s\nand cold\n%s", at, cut, warm, cold)
			}
		}
	}
}

// forge has the table of a record say that a plane is of another tensor, with a right checksum.
func forge(t *testing.T, dir string, b db.Block, tokens, planes int, plane, tensor uint16) {
	t.Helper()
	const tableLength, headSum, entry = 152, 252, 64 // docs/format/segment.md
	path := storetest.SegmentPath(dir, b.Segment)
	file := storetest.Must(os.ReadFile(path))(t)
	head := file[b.Offset : b.Offset+segments.HeadBytes(tokens, planes)]
	table := head[len(head)-int(binary.LittleEndian.Uint32(head[tableLength:])):]
	binary.LittleEndian.PutUint16(table[entry*plane:], tensor)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(head[headSum:], crc32.Update(crc32.Checksum(head[:headSum], castagnoli), castagnoli, head[headSum+4:]))
	storetest.Write(t, path, b.Offset, head)
}

// A record whose head has a right checksum and names tensors that its model does not have, or has elsewhere, is none of the model's,
// wherever in the table that is and however much of the record is read at once.
func TestDirectTableOfAnother(t *testing.T) {
	d := wide()
	d.BlockTokens = 512 // records of more than maxWhole
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 1030)}
	sound := memdir.Disk(t)
	s := storetest.Open(t, sound, storetest.Options())
	m := storetest.Model(t, s, d)
	storetest.Put(t, m, p)
	b := storetest.Record(t, s, m, p, 1, 0)
	storetest.OK(t, s.Close())
	for plane := range uint16(4) {
		for _, tensor := range []uint16{kv.MaxTensors - 1, 4, 3 - plane} {
			for _, cold := range []bool{false, true} {
				dir := storetest.Copy(t, sound)
				forge(t, dir, b, 512, 4, plane, tensor)
				s := storetest.OpenOn(t, storetest.Cold(func(string, int64) bool { return cold }), dir, storetest.Options())
				x := storetest.Must(storetest.Model(t, s, d).Match(t.Context(), p, db.MatchOptions{}))(t)
				if err := x.View(t.Context(), func(db.StoredPlane) error { return nil }); !errors.Is(err, db.ErrCorrupt) {
					t.Errorf("plane %d of tensor %d, cold %t: a view ends with %v", plane, tensor, cold, err)
				}
				rows := storetest.Empty(d, 1030)
				got, err := x.Restore(t.Context(), rows)
				if err != nil || got.Tokens != 512 {
					t.Fatalf("plane %d of tensor %d, cold %t: %+v, %v", plane, tensor, cold, got, err)
				}
				storetest.CheckRows(t, d, &p, rows, got.Tokens)
				x.Close()
				storetest.OK(t, s.Close())
			}
		}
	}
}

// So is the record of a state.
func TestStateTableOfAnother(t *testing.T) {
	d := crashtest.Hybrid()
	for layer := 3; layer < 5; layer++ {
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: kv.RoleState, DType: kv.F32, Width: 32, Group: 1})
	}
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 48)}
	sound := memdir.Dir(t)
	s := storetest.Open(t, sound, storetest.Options())
	m := storetest.Model(t, s, d)
	storetest.PutState(t, m, p, 4)
	b := storetest.Record(t, s, m, p, 2, 1)
	storetest.OK(t, s.Close())
	for plane := range uint16(3) {
		for _, tensor := range []uint16{kv.MaxTensors - 1, 0, 4 + (plane+1)%3} {
			dir := storetest.Copy(t, sound)
			forge(t, dir, b, 16, 3, plane, tensor)
			s := storetest.Open(t, dir, storetest.Options())
			if n, reason := storetest.Restore(t, storetest.Model(t, s, d), p); n != 0 {
				t.Errorf("plane %d of tensor %d: %d tokens, %v", plane, tensor, n, reason)
			}
			storetest.OK(t, s.Close())
		}
	}
}

// windowOnly leaves only the window rows of the positions [from, to).
func windowOnly(d kv.Descriptor, p *kv.Prompt, from, to int) kv.Rows {
	rows := storetest.Filled(d, p, from, to)
	for i, tensor := range d.Tensors {
		if tensor.Group == 0 {
			rows[i] = kv.TensorRows{}
		}
	}
	return rows
}

// A put that cannot read the window rows to which it adds others, for want of file handles, does not put its own in their place.
func TestWindowRowsOutliveWantOfFiles(t *testing.T) {
	d := crashtest.Windowed(16)
	var short atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, "", &short, vfs.PassingErrors[0])
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	p := kv.Tokens(crashtest.Tokens(1, 16)...)
	m := storetest.Model(t, s, d)
	rows := storetest.Filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			rows[i] = rows[i].Slice(tensor, 0, 8)
		}
	}
	storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{}))(t)
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, d)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 64)...)) // so that there is a segment to write to
	short.Store(true)
	_, err := m.Put(t.Context(), p, windowOnly(d, &p, 8, 16), db.PutOptions{})
	short.Store(false)
	storetest.MayFail(t, err)
	if err != nil {
		storetest.Must(m.Put(t.Context(), p, windowOnly(d, &p, 8, 16), db.PutOptions{}))(t)
	}
	storetest.Expect(t, m, p, 16)
}

// likeToken is another token than the one at a prompt's position i that has the same hash in the index.
func likeToken(t *testing.T, s *db.Store, p kv.Prompt, i int) kv.Token {
	q := kv.Tokens(append([]kv.Token(nil), p.Tokens...)...)
	want := storetest.Hasher(t, s.Dir()).AppendTokenHashes(nil, &p, i, i+1)
	for {
		q.Tokens[i]++
		if bytes.Equal(storetest.Hasher(t, s.Dir()).AppendTokenHashes(nil, &q, i, i+1), want) {
			return q.Tokens[i]
		}
	}
}

// A deletion that cannot read a block, for want of file handles, does not take it for its own prompt's: the index knows two bytes
// of a token, which many have.
func TestDeleteForWantOfFilesTakesNoOthers(t *testing.T) {
	var short atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, "", &short, vfs.PassingErrors[0])
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 17)...)
	q := kv.Tokens(crashtest.Concat(p.Tokens[:16], []kv.Token{likeToken(t, s, p, 16)})...)
	storetest.Put(t, m, p)
	storetest.Put(t, m, q)
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 64)...)) // so that there is a segment and a log to write to
	short.Store(true)
	_, err := m.Delete(t.Context(), p)
	short.Store(false)
	storetest.Expect(t, m, q, 17)
	storetest.MayFail(t, err)
	if err != nil {
		if got, err := m.Delete(t.Context(), p); err != nil || got.Blocks != 1 {
			t.Fatalf("%+v deleted (%v)", got, err)
		}
	}
	storetest.Expect(t, m, p, 16)
	storetest.Expect(t, m, q, 17)
}

// A restore that is refused leaves no row as it was: nobody takes what an earlier prompt left for this one's.
func TestRefusedRestoreZeroesRows(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque()} {
		for _, closed := range []string{"match", "store"} {
			t.Run(d.Name+" closed "+closed, func(t *testing.T) {
				s, m := storetest.Fresh(t, storetest.Options(), d)
				p := kv.Tokens(crashtest.Tokens(1, 32)...)
				storetest.Put(t, m, p)
				x := storetest.Match(t, m, p)
				storetest.OK(t, x.Close())
				if closed == "store" {
					storetest.OK(t, s.Close())
				}
				rows := storetest.Empty(d, 32)
				if got, err := x.Restore(t.Context(), rows); err == nil || got.Tokens != 0 {
					t.Errorf("%+v, %v", got, err)
				}
				for i := range rows {
					for _, b := range rows[i].Pieces[0].Mem {
						if b != 0 {
							t.Fatalf("rows of tensor %d are not zero", i)
						}
					}
				}
			})
		}
	}
}
