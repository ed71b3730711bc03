package folder_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
)

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
