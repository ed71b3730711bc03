package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A segment that somebody cut, and of which the header is lost, is damage: the store goes on beside it.
func TestHeaderLostOfCutSegment(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 48)...)
	for n := 16; n <= 48; n += 16 { // one after the other, so that the last block is the last record
		put(t, m, p.Prefix(n))
	}
	end := int64(0)
	for _, l := range s.eng.placesIn(1) {
		end = max(end, l.End())
	}
	image := copyStore(t, dir)
	name := filepath.Join(image, segmentsDir, "0000000000000001.seg")
	loseHeader(t, image)
	if err := os.Truncate(name, end-8192); err != nil {
		t.Fatal(err)
	}
	s = open(t, image, options())
	m = model(t, s, plain())
	if err := s.Sync(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Error(err)
	}
	expect(t, m, p, 32)
}
