package read_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

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
