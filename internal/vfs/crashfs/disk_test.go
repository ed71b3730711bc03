package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/vfs"
)

func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + (i*7+seed*13+i/251)%255)
	}
	return b
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// class is what callers ask of an error.
func class(err error) string {
	if errors.Is(err, syscall.EBADF) { // open for reading only
		err = fs.ErrPermission
	}
	for _, e := range []error{io.EOF, fs.ErrExist, fs.ErrNotExist, fs.ErrClosed, fs.ErrPermission} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "other"
	}
	return ""
}

// Whatever is done, a disk and the operating system show the same names, sizes, bytes and kinds of errors.
func TestLikeTheOperatingSystem(t *testing.T) {
	runs := 0
	top := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		runs++
		real := filepath.Join(top, fmt.Sprint(runs))
		if err := vfs.OS.Mkdir(real); err != nil {
			t.Fatal(err)
		}
		disk := New(Options{Dir: "/disk"})
		systems := []vfs.FS{vfs.OS, disk}
		tops := []string{real, "/disk"}
		open := [2][]vfs.File{}
		maps := [2][]vfs.Mapping{}
		both := func(what string, do func(i int) (any, error)) {
			a, aerr := do(0)
			b, berr := do(1)
			if class(aerr) != class(berr) || aerr == nil && fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("%s: %v, %v, on the disk %v, %v", what, a, aerr, b, berr)
			}
		}
		name := rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b", "none/a"})
		place := rapid.OneOf(rapid.IntRange(0, 20<<10), rapid.SampledFrom([]int{0, 1, 511, 512, 4095, 4096, 4097, 8192}))
		file := func(t *rapid.T) int {
			if len(open[0]) == 0 {
				t.Skip("no file is open: another step is drawn")
			}
			return rapid.IntRange(0, len(open[0])-1).Draw(t, "file")
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				n := name.Draw(t, "name")
				var got [2]vfs.File
				both("create "+n, func(i int) (x any, err error) {
					got[i], err = systems[i].Create(filepath.Join(tops[i], n))
					return nil, err
				})
				if got[0] != nil {
					open[0], open[1] = append(open[0], got[0]), append(open[1], got[1])
				}
			},
			"open": func(t *rapid.T) {
				n, readOnly := name.Draw(t, "name"), rapid.Bool().Draw(t, "read-only")
				var got [2]vfs.File
				both("open "+n, func(i int) (x any, err error) {
					got[i], err = systems[i].Open(filepath.Join(tops[i], n), readOnly)
					return nil, err
				})
				if got[0] != nil {
					open[0], open[1] = append(open[0], got[0]), append(open[1], got[1])
				}
			},
			"rename": func(t *rapid.T) {
				from := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "from")
				to := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "to")
				both("rename", func(i int) (any, error) {
					return nil, systems[i].Rename(filepath.Join(tops[i], from), filepath.Join(tops[i], to))
				})
			},
			"remove": func(t *rapid.T) {
				n := rapid.SampledFrom([]string{"a", "d/a", "none/a"}).Draw(t, "name")
				both("remove", func(i int) (any, error) { return nil, systems[i].Remove(filepath.Join(tops[i], n)) })
			},
			"mkdir": func(t *rapid.T) {
				n := rapid.SampledFrom([]string{"d", "none/d", "d/b"}).Draw(t, "name")
				both("mkdir "+n, func(i int) (any, error) { return nil, systems[i].Mkdir(filepath.Join(tops[i], n)) })
			},
			"sync": func(t *rapid.T) {
				both("syncdir", func(i int) (any, error) { return nil, systems[i].SyncDir(tops[i]) })
				k := file(t)
				both("sync", func(i int) (any, error) { return nil, open[i][k].Sync() })
			},
			"write": func(t *rapid.T) {
				k, off, b := file(t), place.Draw(t, "at"), pattern(rapid.IntRange(0, 99).Draw(t, "bytes"), 1+place.Draw(t, "length"))
				both("write", func(i int) (any, error) { return open[i][k].WriteAt(b, int64(off)) })
			},
			"truncate": func(t *rapid.T) {
				k, size := file(t), place.Draw(t, "to")
				both("truncate", func(i int) (any, error) {
					err := open[i][k].Truncate(int64(size))
					if errors.Is(err, syscall.EINVAL) { // open for reading only
						err = fs.ErrPermission
					}
					return nil, err
				})
			},
			"allocate": func(t *rapid.T) {
				k, off, n := file(t), place.Draw(t, "at"), 1+place.Draw(t, "length")
				both("allocate", func(i int) (any, error) {
					return nil, open[i][k].Allocate(int64(off), int64(n))
				})
			},
			"punch": func(t *rapid.T) {
				k, off, n := file(t), place.Draw(t, "at"), 1+place.Draw(t, "length")
				both("punch", func(i int) (any, error) {
					_, err := open[i][k].Punch(int64(off), int64(n))
					return nil, err
				})
			},
			"close": func(t *rapid.T) {
				k := file(t)
				both("close", func(i int) (any, error) { return nil, open[i][k].Close() })
			},
			"map": func(t *rapid.T) {
				k := file(t)
				size := int64(1)
				if info, err := open[0][k].Stat(); err == nil {
					size = max(1, info.Size)
				}
				var got [2]vfs.Mapping
				both("map", func(i int) (x any, err error) {
					got[i], err = open[i][k].Map(size)
					if err != nil { // mmap has its own words
						err = errors.New("other")
					}
					return nil, err
				})
				if got[0] != nil {
					maps[0], maps[1] = append(maps[0], got[0]), append(maps[1], got[1])
				}
			},
			"": func(t *rapid.T) {
				for _, dir := range []string{".", "d", "none"} {
					both("list "+dir, func(i int) (any, error) { return systems[i].List(filepath.Join(tops[i], dir)) })
				}
				for k := range open[0] {
					both("content", func(i int) (any, error) {
						b := make([]byte, 50<<10)
						n, err := open[i][k].ReadAt(b, 0)
						return [2]uint32{uint32(n), crc32.ChecksumIEEE(b[:n])}, err
					})
					both("stat", func(i int) (any, error) {
						info, err := open[i][k].Stat()
						return info.Size, err
					})
				}
				for k := range maps[0] {
					for off := 0; off < len(maps[1][k].Bytes()); off += 512 {
						both("map", func(i int) (b any, err error) {
							if vfs.Guard(func() error { b = maps[i][k].Bytes()[off]; return nil }) != nil {
								b = byte(0) // behind the file's end: a disk does not fault there
							}
							return b, nil
						})
					}
				}
			},
		})
		for i := range open {
			for _, m := range maps[i] {
				m.Close()
			}
			for _, f := range open[i] {
				f.Close()
			}
		}
	})
}

// A full disk says so, writes what fits, and goes on when there is room.
func TestFull(t *testing.T) {
	d := New(Options{Dir: "/disk", Bytes: 8 * pageBytes})
	f := must[vfs.File](t)(d.Create("/disk/f"))
	ok(t, f.Truncate(1<<20)) // reserves nothing
	if err := f.Allocate(0, 9*pageBytes); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(pattern(1, 9*pageBytes), 100); n != 8*pageBytes-100 || !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if free, _, err := d.Space("/disk"); free != 0 || err != nil {
		t.Fatalf("%d bytes free, %v", free, err)
	}
	must[bool](t)(f.Punch(pageBytes, 2*pageBytes))
	must[int](t)(f.WriteAt(pattern(2, 2*pageBytes), 100*pageBytes))
	if _, err := f.WriteAt([]byte{1}, 60*pageBytes); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	must[int](t)(f.WriteAt(pattern(3, pageBytes), 0)) // in place
	ok(t, d.Remove("/disk/f"))
	if n := d.Used(); n != 0 {
		t.Fatalf("%d bytes used by nothing", n)
	}
}

// The hook sees every call, and decides how it fails.
func TestBefore(t *testing.T) {
	eio := errors.New("I/O error")
	for _, failure := range []error{eio, &Short{Bytes: 5, Err: eio}, &Late{Err: eio}} {
		d := New(Options{Dir: "/disk"})
		f := must[vfs.File](t)(d.Create("/disk/f"))
		must[int](t)(f.WriteAt(pattern(1, 100), 0))
		var kinds []string
		d.Before(func(op Op) error { kinds = append(kinds, op.Kind); return failure })
		b := make([]byte, 10)
		rn, rerr := f.ReadAt(b, 0)
		wn, werr := f.WriteAt(pattern(2, 10), 0)
		_, cerr := d.Create("/disk/g")
		for _, err := range []error{rerr, werr, cerr, d.Rename("/disk/f", "/disk/h"), f.Truncate(10), f.Sync(), d.SyncDir("/disk")} {
			if !errors.Is(err, eio) {
				t.Errorf("%T: %v", failure, err)
			}
		}
		_, merr := f.Map(100)
		if !errors.Is(merr, eio) {
			t.Errorf("%T: map: %v", failure, merr)
		}
		d.Before(nil)
		names := must[[]string](t)(d.List("/disk"))
		size := must[vfs.Info](t)(f.Stat()).Size
		want := map[bool]string{true: "[g h] 10 10 10", false: "[f] 0 0 100"}[errors.As(failure, new(*Late))]
		if errors.As(failure, new(*Short)) {
			want = "[f] 5 5 100"
		}
		if got := fmt.Sprint(names, rn, wn, size); got != want {
			t.Errorf("%T: %s, want %s", failure, got, want)
		}
		if want := []string{"read", "write", "create", "rename", "truncate", "sync", "syncdir", "map"}; !slices.Equal(kinds, want) {
			t.Errorf("%v", kinds)
		}
	}
}

// A map sees what is written later, and goes on seeing it when the file has grown beyond what was foreseen.
func TestMapSeesWrites(t *testing.T) {
	d := New(Options{Dir: "/disk"})
	f := must[vfs.File](t)(d.Create("/disk/f"))
	must[int](t)(f.WriteAt(pattern(1, 100), 0))
	m := must[vfs.Mapping](t)(f.Map(64 << 10))
	for i := range 6 {
		must[int](t)(f.WriteAt(pattern(i, 20<<10), int64(i*15<<10)))
		got, want := m.Bytes(), make([]byte, 64<<10)
		f.ReadAt(want, 0)
		if !bytes.Equal(got, want) {
			t.Fatalf("after write %d the map shows other bytes", i)
		}
	}
	ok(t, f.Truncate(10))
	if b := m.Bytes(); b[9] == 0 || b[10] != 0 {
		t.Fatal("the map shows what was cut")
	}
	ok(t, m.Close())
}
