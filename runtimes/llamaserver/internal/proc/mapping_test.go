package proc

import "testing"

// What is mapped is read as Linux writes it.
func TestMappingsAreRead(t *testing.T) {
	for line, want := range map[string]Mapping{
		"7f7ed2edf000-7f7ed2ffe000 r--s 00003000 fe:00 5326368                    /a/b c.gguf":           {"fe:00 5326368", "/a/b c.gguf", false},
		"7f7ed2edf000-7f7ed2ffe000 r--s 00003000 fe:00 5326368                    /a/b c.gguf (deleted)": {"fe:00 5326368", "/a/b c.gguf", true},
		"7ffd1c5f2000-7ffd1c614000 rw-p 00000000 00:00 0                          [stack]":               {},
		"7ffd1c5f2000-7ffd1c614000 rw-p 00000000 00:00 0":                                                {},
		"": {},
	} {
		if got, ok := ParseMapping(line); got != want || ok != (want.Path != "") {
			t.Errorf("%q is read as %+v", line, got)
		}
	}
	mapped := []Mapping{{"1 7", "/m", true}, {"1 8", "/m", false}, {"1 9", "/moved", false}}
	for _, c := range []struct {
		path, inode string
		want        Held
	}{
		{"/m", "1 7", Unknown}, {"/m", "1 8", OldFile}, {"/m", "", NewFile}, {"/m", "1 9", Unknown}, {"/n", "1 9", OldFile}, {"/n", "", Unknown}, {"/m", "1 5", NewFile},
	} {
		if got := HeldOf(mapped, c.path, c.inode); got != c.want {
			t.Errorf("%s, which had %q: %d, expected %d", c.path, c.inode, got, c.want)
		}
	}
}
