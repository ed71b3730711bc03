package segments

import (
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
)

// A footer that ends just where the file was planned to end shows from its first write on, as one that makes the file longer
// does: a power cut may have torn it.
func TestTornFooterAtThePlannedEnd(t *testing.T) {
	const records = 168 // whose footer takes whole pages
	footer := int64(footerHeaderBytes + records*footerEntryBytes + trailerBytes)
	o := options(t.TempDir())
	o.SegmentBytes = minAlignment + records*minAlignment + footer
	s := openSet(t, o)
	var last Loc
	for seed := range uint64(records) {
		last = makeBlock(1, seed, 3000).append(t, s, 1)
	}
	path := s.Segments()[0].Path
	if last.End()+footer != o.SegmentBytes || footer%minAlignment != 0 {
		t.Fatalf("the last record is %v, the footer takes %d bytes", last, footer)
	}
	if err := errors.Join(s.Seal(last.Segment), s.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || int64(len(b)) != o.SegmentBytes {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	clear(b[last.End() : last.End()+minAlignment]) // its last page alone came to the disk
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSet(t, o)
	defer s.Close()
	if err := s.SealRecovered(last.Segment, last.End()); err != nil {
		t.Fatal(err)
	}
	live := 0
	if err := s.Verify(t.Context(), last.Segment, func(Loc) bool { live++; return true }, func(d *damage.Error) { t.Error(d) }, nil); err != nil || live != records {
		t.Errorf("%d of %d records, %v", live, records, err)
	}
}
