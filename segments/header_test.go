package segments

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A process that is killed while it begins a segment leaves one without a header. That is no reason to warn anybody, unless something lived there.
func TestHeaderOfWhatWasBegun(t *testing.T) {
	for name, x := range map[string]struct {
		left  func(size int64, header []byte) []byte // of the file
		lives bool
		warns bool
	}{
		"made":                   {func(int64, []byte) []byte { return nil }, false, false},
		"as long as it is to be": {func(size int64, _ []byte) []byte { return make([]byte, size) }, false, false},
		"a part of the header":   {func(size int64, h []byte) []byte { return append(h[:100:100], make([]byte, size-100)...) }, false, false},
		"a record was there":     {func(size int64, _ []byte) []byte { return make([]byte, size) }, true, true},
	} {
		o := options(t.TempDir())
		s := openSet(t, o)
		loc := makeBlock(1, 1, 500).append(t, s, 1)
		path := s.segs[loc.Segment].path
		s.Abandon()
		b := must(os.ReadFile(path))(t)
		ok(t, os.WriteFile(path, x.left(int64(len(b)), b), 0o600))
		var log strings.Builder
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s = openSet(t, o)
		log.Reset()
		restored, err := s.RestoreHeader(loc.Segment, func() []Loc {
			if x.lives {
				return []Loc{loc}
			}
			return nil
		}, func(kv.Fingerprint) (d kv.Descriptor, known bool) { return d, false })
		ok(t, err)
		if restored || x.warns != (log.Len() > 0) {
			t.Errorf("%s: restored %v, log %q", name, restored, log.String())
		}
		ok(t, s.Close())
	}
}
