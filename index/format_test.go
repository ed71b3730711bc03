package index

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		ok(t, os.WriteFile(path, got, 0o644))
	}
	if want := must(os.ReadFile(path))(t); !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is written now; the format's version must change with it\n%s", path, got)
	}
}

// goldenIndex is an index with a row of every kind.
func goldenIndex(t *testing.T, ix *Index) *model {
	m := newModel()
	a, b, root := kv.Key{0xa, 1}, kv.Key{0xb, 2}, kv.Key{0xff}
	entries := []Entry{
		{Key: a, Parent: root, Model: kv.Fingerprint{0x77}, Scope: kv.ScopeID{}, Loc: Loc{Segment: 1, Offset: 4096, Length: 32768, Tier: 1},
			First: 0, Tokens: 64, RowCount: 64, Seq: 0x1122334455667788, Rank: 3, Hits: 4, Used: 0x01020304, Created: 0x0a0b0c0d0e, Hashes: []byte{1, 2, 0, 0, 5, 6}},
		{Key: b, Parent: a, Model: kv.Fingerprint{0x77}, Scope: kv.ScopeID{0x55}, Loc: Loc{Segment: 2, Offset: 8192, Length: 100},
			First: 64, Tokens: 3, RowFirst: 1, RowCount: 2, Flags: FlagPartial | FlagScopeRoot, Seq: 7, Rank: 0x0102030405060708, Hashes: []byte{9, 8}},
		{Key: b, Group: 1, Parent: a, Model: kv.Fingerprint{0x77}, Scope: kv.ScopeID{0x55}, Loc: Loc{Segment: 2, Offset: 12288, Length: 200}, Tokens: 3},
	}
	enter(t, ix, m, entries)
	ok(t, ix.Checkpoint(context.Background(), Applied{LSN: 42, WALFile: 2, NextSeq: 3, NextSegment: 4, Clock: 5, Extra: []byte("state")}))
	return m
}

// TestGolden pins the bytes of every kind of row, and that a file of this version can be read for ever.
func TestGolden(t *testing.T) {
	o := testOptions(t.TempDir())
	ix := must(Create(o, Applied{}))(t)
	m := goldenIndex(t, ix)
	var rows strings.Builder
	ok(t, ix.rows.scan(nil, storeKey, func(key, val []byte) (bool, error) {
		fmt.Fprintf(&rows, "%x\n    %x\n", key, encodeValue(key, val))
		return true, nil
	}))
	golden(t, "rows.golden", []byte(rows.String()))
	size := int64(ix.rows.base.meta.pages) * pageBytes
	ok(t, ix.Close())

	const old = "testdata/index-v3.db"
	if *update {
		ok(t, os.WriteFile(old, must(os.ReadFile(o.Path))(t)[:size], 0o644))
	}
	put(t, o.Path, must(os.ReadFile(old))(t))
	ix = must(Open(o))(t)
	defer ix.Close()
	v := ix.View()
	defer v.Release()
	if err := m.compare(v); err != nil {
		t.Error(err)
	}
	if a := ix.Applied(); a.LSN != 42 || a.WALFile != 2 || a.NextSeq != 3 || a.NextSegment != 4 || a.Clock != 5 || string(a.Extra) != "state" {
		t.Error(a)
	}

	// A file of a version before is told from a damaged one, and the store makes a new one.
	for version := 1; version < formatVersion; version++ {
		before := o
		before.Path = filepath.Join(t.TempDir(), "index.db")
		put(t, before.Path, must(os.ReadFile(fmt.Sprintf("testdata/index-v%d.db", version)))(t))
		if ix, err := Open(before); !errors.Is(err, ErrVersion) || errors.Is(err, ErrDamaged) {
			t.Errorf("version %d: %v, %v", version, ix, err)
		}
		if ours, err := Whose(before); !ours || err != nil {
			t.Errorf("version %d of this store is its own: %t, %v", version, ours, err)
		}
		other := before
		other.UUID = kv.UUID{99}
		for what, make := range map[string]func(Options) (*Index, error){"Open": Open, "Create": func(o Options) (*Index, error) { return Create(o, Applied{}) }} {
			if ix, err := make(other); !errors.Is(err, ErrForeign) {
				t.Errorf("%s of version %d of another store: %v, %v", what, version, ix, err)
			}
		}
	}

	b := NewBloom(4, 0.5)
	b.Add(kv.Key{1})
	b.Add(kv.Key{2})
	golden(t, "bloom.golden", []byte(hex.Dump(encodeBloom(b, testUUID, 42))))
}

// A clock that was never set may be before 1970: what is put then is stored, and nobody knows when it was.
func TestBefore1970(t *testing.T) {
	for when, want := range map[time.Time]struct {
		seconds int64
		minutes uint32
	}{
		time.Unix(-1, 0): {}, time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC): {}, {}: {},
		time.Unix(0, 0): {}, time.Unix(119, 0): {119, 1}, time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC): {13569465600, 226157760},
	} {
		if s, m := SecondsOf(when), MinutesOf(when); s != want.seconds || m != want.minutes {
			t.Errorf("%v: %d s, %d min, expected %+v", when, s, m, want)
		}
		e := Entry{Key: kv.Key{1}, Tokens: 16, Loc: Loc{Segment: 1, Offset: 4096, Length: 4096}, Created: SecondsOf(when), Used: MinutesOf(when)}
		if err := Memory().Update(func(txn *Txn) error { return txn.Put(e) }); err != nil {
			t.Errorf("%v: %v", when, err)
		}
	}
}
