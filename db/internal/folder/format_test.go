package folder_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/kv"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata/golden, and returns what that file says.
func golden(t *testing.T, name, got string) string {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		storetest.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	b := storetest.Must(os.ReadFile(path))(t)
	want := strings.ReplaceAll(string(b), "\r\n", "\n")
	if got != want {
		t.Errorf("%s differs from what is written now; the format's version must change with it\ngot\n%swant\n%s", path, got, want)
	}
	return want
}

// undump returns the bytes that hex.Dump printed.
func undump(t *testing.T, dump string) []byte {
	t.Helper()
	var out []byte
	for line := range strings.Lines(dump) {
		digits, _, _ := strings.Cut(line, "|")
		_, digits, _ = strings.Cut(digits, " ") // without the offset
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, b...)
	}
	return out
}

func goldenFormat() folder.Format {
	return folder.Format{
		Version: folder.Version, HashID: kv.HashID, Compatible: 0x0102030405060708, ReadOnly: 0x1112131415161718, Incompatible: 0,
		UUID: kv.UUID{0x20, 0x21, 0x22, 15: 0x2f}, Seed: kv.Seed{0x30, 0x31, 0x32, 15: 0x3f},
	}
}

// The bytes of FORMAT do not change without a new version.
func TestGoldenFormat(t *testing.T) {
	f := goldenFormat()
	old := undump(t, golden(t, "FORMAT.golden", hex.Dump(f.Encode())))
	got, err := folder.Decode(storetest.FormatFile, old)
	if err != nil || got != f {
		t.Errorf("decoded as %+v, %v; expected %+v", got, err, f)
	}
}

// No byte of FORMAT can change unnoticed.
func TestFormatEveryByteCounts(t *testing.T) {
	sound := goldenFormat().Encode()
	for i := range sound {
		for bit := range 8 {
			b := bytes.Clone(sound)
			b[i] ^= 1 << bit
			if _, err := folder.Decode(storetest.FormatFile, b); !errors.Is(err, db.ErrCorrupt) || errors.Is(err, db.ErrVersion) {
				t.Fatalf("bit %d of byte %d changed: %v", bit, i, err)
			}
		}
	}
	for n := range len(sound) {
		if _, err := folder.Decode(storetest.FormatFile, sound[:n]); !errors.Is(err, db.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := folder.Decode(storetest.FormatFile, append(sound, 0)); !errors.Is(err, db.ErrCorrupt) {
		t.Fatalf("one byte too many: %v", err)
	}
}

// A file of something else, a damaged one, and one of a later release are different errors, and the latter say what is
// unknown.
func TestFormatErrorsDiffer(t *testing.T) {
	change := func(at int, v byte, seal bool) error {
		b := goldenFormat().Encode()
		b[at] = v
		if seal {
			binary.LittleEndian.PutUint64(b[80:], xxhash.Sum64(b[:80]))
		}
		_, err := folder.Decode(storetest.FormatFile, b)
		return err
	}
	for name, x := range map[string]struct {
		err  error
		what string // of the damage; empty: ErrVersion
		says string
	}{
		"magic":            {change(0, 'd', true), "FORMAT magic", `found "dORMOUSE"`},
		"version, damaged": {change(8, 4, false), "FORMAT checksum", "at offset 80"},
		"version":          {change(8, 4, true), "", "version 4, this release knows 3: use the release"},
		"hash":             {change(12, 9, true), "", "hash 9, this release knows 2"},
		"reserved":         {change(72, 1, true), "", "reserved bytes are 01"},
		"incompatible":     {change(33, 1, true), "", "features 0x100 are unknown"},
		"hash, damaged":    {change(12, 9, false), "FORMAT checksum", "expected 0x"},
		"another kind of file": {func() error {
			_, err := folder.Decode(storetest.FormatFile, bytes.Repeat([]byte("x"), storetest.FormatBytes))
			return err
		}(), "FORMAT magic", "xxxxxxxx"},
	} {
		var bad *damage.Error
		switch {
		case x.err == nil:
			t.Errorf("%s: accepted", name)
		case errors.Is(x.err, db.ErrVersion) != (x.what == "") || errors.As(x.err, &bad) != (x.what != ""):
			t.Errorf("%s: wrong kind of error: %v", name, x.err)
		case bad != nil && bad.What != x.what:
			t.Errorf("%s: damage of %q, expected %q", name, bad.What, x.what)
		}
		if x.err != nil && (!strings.Contains(x.err.Error(), x.says) || !strings.Contains(x.err.Error(), storetest.FormatFile)) {
			t.Errorf("%s: %q does not say %q", name, x.err, x.says)
		}
	}
	// Bits that an older reader may ignore are no error.
	if f, err := folder.Decode(storetest.FormatFile, goldenFormat().Encode()); err != nil || f.Compatible == 0 || f.ReadOnly == 0 {
		t.Error(f, err)
	}
}

// FuzzFormat reads a FORMAT file, as it is or with a checksum that fits: the errors are those that Open can act upon, and
// what is accepted is written as the same bytes.
func FuzzFormat(f *testing.F) {
	good := goldenFormat().Encode()
	later := goldenFormat()
	later.Version, later.Incompatible = 3, 1<<63
	fuzzkit.Seeds(f,
		[]any{good, true}, []any{good, false}, []any{good[:80], false}, []any{[]byte{}, true},
		[]any{later.Encode(), true}, []any{append(bytes.Clone(good), 0), false}, []any{make([]byte, storetest.FormatBytes), true},
	)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= storetest.FormatBytes {
			b = bytes.Clone(b)
			copy(b, "DORMOUSE")
			binary.LittleEndian.PutUint64(b[80:], xxhash.Sum64(b[:80]))
		}
		fuzzkit.Bounded(t, 1<<16, func() {
			got, err := folder.Decode("FORMAT", b)
			switch {
			case err != nil:
				if errors.Is(err, db.ErrCorrupt) == errors.Is(err, db.ErrVersion) {
					t.Fatalf("neither damage nor another version, or both: %v", err)
				}
			default:
				want := bytes.Clone(b)
				binary.LittleEndian.PutUint64(want[80:], xxhash.Sum64(want[:80]))
				if !bytes.Equal(got.Encode(), want) {
					t.Fatalf("%x read as %+v", b, got)
				}
			}
		})
	})
}
