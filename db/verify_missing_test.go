package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// A segment that is gone is one damage, which says how much lay in it, whoever knows that: the index, or the log without it.
func TestVerifyNamesAMissingSegmentOnce(t *testing.T) {
	for _, lost := range []string{"", indexName} {
		dir := t.TempDir()
		s := open(t, dir, options())
		put(t, model(t, s, plain()), kv.Prompt{Tokens: tokens(1, 32)})
		w := model(t, s, windowed(40))
		put(t, w, kv.Prompt{Tokens: tokens(1, 100)})
		put(t, w, kv.Prompt{Tokens: tokens(2, 16)})
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if lost != "" { // what a store looks like whose process was killed
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			dir = copied
			if err := errors.Join(os.Chmod(dir, 0o700), os.Remove(filepath.Join(dir, lost))); err != nil {
				t.Fatal(err)
			}
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify(ctx, dir, VerifyOptions{AllowSharedDir: true})
		if err != nil || len(rep.Damage) > 0 || rep.Records != 2+8*2 {
			t.Fatalf("sound: %+v, %v", rep, err)
		}
		file := filepath.Join(dir, segmentsDir, "0000000000000002.seg")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		rep, err = Verify(ctx, dir, VerifyOptions{AllowSharedDir: true})
		if err != nil || len(rep.Damage) != 1 || rep.Records != 2 {
			t.Errorf("without %q: %d damaged places, %d records, %v: %v", lost, len(rep.Damage), rep.Records, rep.Damage, err)
			continue
		}
		d := rep.Damage[0]
		if d.File != file || !errors.Is(d, segments.ErrMissing) || !strings.HasSuffix(d.Error(), ": corrupt segment at offset 0: expected 16 records, of 116 tokens: segment file is missing") {
			t.Errorf("without %q: %v", lost, d)
		}
	}
}
