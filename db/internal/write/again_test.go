package write_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A put over records that are damaged stores them anew at once, and does not say that they were reused: whether a file was cut, or what
// lies in it is zeros or other bytes, and whatever the group.
func TestPutAgainOverDamage(t *testing.T) {
	long := crashtest.Plain()
	long.Name, long.BlockTokens = "long blocks", 128
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque(), long} {
		tokensOf := 3*d.BlockTokens + 5
		for name, damage := range map[string]func(f *os.File, at int64) error{
			"cut":    func(f *os.File, at int64) error { return f.Truncate(at + 8) },
			"zeros":  func(f *os.File, at int64) error { _, err := f.WriteAt(make([]byte, 64), at); return err },
			"header": func(f *os.File, at int64) error { _, err := f.WriteAt([]byte{0xa5, 0x5a, 0xa5}, at+40); return err },
		} {
			for first := range 4 {
				for group := range max(1, len(d.Groups)) {
					t.Run(fmt.Sprintf("%s %s block %d group %d", d.Name, name, first, group), func(t *testing.T) {
						dir := t.TempDir()
						s := storetest.Open(t, dir, storetest.Options())
						m := storetest.Model(t, s, d)
						p := kv.Tokens(crashtest.Tokens(1, tokensOf)...)
						storetest.Put(t, m, p)
						x, ok := storetest.FindRecord(t, s, m, p, first, group)
						if !ok {
							t.Skip("SKIPPED: no record of this group")
						}
						storetest.OK(t, s.Close())
						f := storetest.Must(os.OpenFile(storetest.SegmentPath(dir, x.Segment), os.O_RDWR, 0))(t)
						storetest.OK(t, damage(f, x.Offset))
						f.Close()
						s = storetest.Open(t, dir, storetest.Options())
						m = storetest.Model(t, s, d)
						got, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, tokensOf), db.PutOptions{})
						if err != nil || got.Records == 0 || got.Tokens != tokensOf {
							t.Errorf("%+v, %v", got, err)
						}
						storetest.Expect(t, m, p, tokensOf)
						if name != "cut" { // the file is as it was found
							storetest.Sound(t, s)
						}
						if again, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, tokensOf), db.PutOptions{}); err != nil || again.Records > 0 {
							t.Errorf("once more: %+v, %v", again, err)
						}
					})
				}
			}
		}
	}
}
