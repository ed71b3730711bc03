package crashfs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// A cut takes what it was told to take, of what was not durable alone, and counts it.
func TestCut(t *testing.T) {
	d := New(Options{Dir: "/disk"})
	f := must[vfs.File](t)(d.Create("/disk/f"))
	was, now := bytes.Repeat([]byte{1}, 2*pageBytes), bytes.Repeat([]byte{2}, pageBytes)
	must[int](t)(f.WriteAt(was, 0))
	ok(t, f.Sync())
	must[vfs.File](t)(d.Create("/disk/gone"))
	ok(t, d.SyncDir("/disk"))
	must[int](t)(f.WriteAt(now, pageBytes))
	must[int](t)(f.WriteAt(now, 2*pageBytes))
	ok(t, d.Remove("/disk/gone"))
	must[vfs.File](t)(d.Create("/disk/new"))

	page := strings.Repeat
	for name, x := range map[string]struct {
		loss        Loss
		lost        int
		names, want string
	}{
		"nothing": {Loss{}, 0, "f new", page("\x01", pageBytes) + page("\x02", 2*pageBytes)},
		"all":     {Loss{All: true}, 3, "f gone", page("\x01", 2*pageBytes)},
		"back":    {Loss{Back: func(name string) bool { return name == "gone" }}, 1, "f gone new", page("\x01", pageBytes) + page("\x02", 2*pageBytes)},
		"sectors": {Loss{Sector: func(name string, off int64) bool { return name == "f" && off%pageBytes == 512 }}, 2, "f new",
			page("\x01", pageBytes) + page("\x02", 512) + page("\x01", 512) + page("\x02", pageBytes-1024) +
				page("\x02", 512) + page("\x00", 512) + page("\x02", pageBytes-1024)},
	} {
		cut, lost, err := d.Cut(x.loss, "/cut")
		ok(t, err)
		names := strings.Join(must[[]string](t)(cut.List("/cut")), " ")
		got := must[[]byte](t)(vfs.ReadAll(cut, "/cut/f", 1<<20))
		if lost != x.lost || names != x.names || string(got) != x.want {
			t.Errorf("%s: %d lost of %d, files %q, %d bytes of %d, same %t", name, lost, x.lost, names, len(got), len(x.want), string(got) == x.want)
		}
	}
}
