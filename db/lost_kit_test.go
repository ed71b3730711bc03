package db

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// placeOf is where the record of a group of p's i-th block lies.
func placeOf(t *testing.T, m *Model, p kv.Prompt, i int, group uint8) index.Loc {
	t.Helper()
	e := m.s.eng
	v := e.View()
	defer v.Release()
	x, ok, err := v.Get(e.Hasher.Chain(m.Fingerprint(), m.ms.Desc.BlockTokens, &p).Key(i), group)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return x.Loc
}

// zeroRecord zeroes the first n bytes of a record.
func zeroRecord(t *testing.T, dir string, l index.Loc, n int64) {
	t.Helper()
	f, err := os.OpenFile(folder.SegmentPath(dir, l.Segment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, n), l.Offset)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// cutPower makes the next open of a copy look at everything, as after a reboot, and takes the index if it is lost.
func cutPower(t *testing.T, dir string, lost bool) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, unsyncedName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lost {
		if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
			t.Fatal(err)
		}
	}
}

// keyAt is the key of block i of a prompt.
func keyAt(m *Model, p kv.Prompt, i int) kv.Key {
	return m.s.eng.Hasher.Chain(m.Fingerprint(), m.ms.Desc.BlockTokens, &p).Key(i)
}

// moveAll moves what pick wants, and makes no checkpoint.
func moveAll(t *testing.T, s *Store, pick func(x index.Entry) bool) {
	t.Helper()
	if err := s.eng.Segments.SealAll(); err != nil {
		t.Fatal(err)
	}
	var all []index.Entry
	v := s.eng.View()
	err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if pick(x) {
			all = append(all, x)
		}
		return true
	})
	v.Release()
	if err != nil || len(all) == 0 {
		t.Fatal(err, len(all))
	}
	for _, x := range all {
		if ok, err := s.eng.Inside().Move(ctx, x); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
}

// soundly fails the test where Verify finds damage.
func soundly(t *testing.T, s *Store) {
	t.Helper()
	if got, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(got.Damage) > 0 {
		t.Error(got.Damage, err)
	}
}
