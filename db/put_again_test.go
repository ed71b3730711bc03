package db

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A put over records that are damaged stores them anew at once, and does not say that they were reused: whether a file was cut, or what
// lies in it is zeros or other bytes, and whatever the group.
func TestPutAgainOverDamage(t *testing.T) {
	long := plain()
	long.Name, long.BlockTokens = "long blocks", 128
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque(), long} {
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
						s := open(t, dir, options())
						m := model(t, s, d)
						p := kv.Tokens(tokens(1, tokensOf)...)
						put(t, m, p)
						x := placesOf(s, m, &p, first, group)
						if len(x) == 0 {
							t.Skip("SKIPPED: no record of this group")
						}
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
						f, err := os.OpenFile(filepath.Join(dir, segmentsDir, fmt.Sprintf("%016x.seg", x[0].Segment)), os.O_RDWR, 0)
						if err != nil {
							t.Fatal(err)
						}
						if err := damage(f, x[0].Offset); err != nil {
							t.Fatal(err)
						}
						f.Close()
						s = open(t, dir, options())
						m = model(t, s, d)
						got, err := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, tokensOf), PutOptions{})
						if err != nil || got.Records == 0 || got.Tokens != tokensOf {
							t.Errorf("%+v, %v", got, err)
						}
						expect(t, m, p, tokensOf)
						if name != "cut" { // the file is as it was found
							soundly(t, s)
						}
						if again, err := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, tokensOf), PutOptions{}); err != nil || again.Records > 0 {
							t.Errorf("once more: %+v, %v", again, err)
						}
					})
				}
			}
		}
	}
}

// placesOf is where the record of a group of a block lies, if there is one.
func placesOf(s *Store, m *Model, p *kv.Prompt, block, group int) (out []index.Loc) {
	v := s.eng.View()
	defer v.Release()
	k := s.eng.Hasher.Chain(m.ms.Fingerprint, m.ms.Desc.BlockTokens, p).Key(block)
	if x, ok, err := v.Get(k, uint8(group)); err == nil && ok {
		out = append(out, x.Loc)
	}
	return out
}
