package sessions

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

func texts(frames []Frame) (out []string) {
	for _, f := range frames {
		out = append(out, string(f.Body))
	}
	return out
}

// A flipped bit is damage at the frame that has it, or in the head; nothing is changed. In a file that was closed nothing is taken for a
// torn end.
func TestFlips(t *testing.T) {
	o := Options{Dir: memdir.Dir(t), UUID: testUUID}
	f, err := Create(o, testScope, 1, Frame{1, []byte("first")})
	if err != nil {
		t.Fatal(err)
	}
	starts := []int64{headBytes, f.Bytes()}
	for _, s := range []string{"second", "third, and longer", ""} {
		if err := f.Append(Frame{2, []byte(s)}, false); err != nil {
			t.Fatal(err)
		}
		starts = append(starts, f.Bytes())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(o.Path(testScope))
	if err != nil {
		t.Fatal(err)
	}
	last := starts[len(starts)-1] // where the frame begins that says that all before it is durable
	for at := range whole {
		for _, bit := range []byte{1, 128} {
			b := bytes.Clone(whole)
			b[at] ^= bit
			if err := os.WriteFile(o.Path(testScope), b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(o, testScope)
			if int64(at) >= last {
				if err != nil {
					t.Fatalf("byte %d of the closing frame: %v", at, err)
				}
				if err := os.WriteFile(o.Path(testScope), whole, 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			var bad *damage.Error
			if !errors.As(err, &bad) || bad.File != o.Path(testScope) {
				t.Fatalf("byte %d: %v", at, err)
			}
			frame := int64(0)
			for _, s := range starts {
				if s <= int64(at) {
					frame = s
				}
			}
			if frame != bad.Offset && frame != 0 {
				t.Fatalf("byte %d of the frame at %d: %v", at, frame, err)
			}
			if left, _ := os.ReadFile(o.Path(testScope)); !bytes.Equal(left, b) {
				t.Fatalf("byte %d: the file was changed", at)
			}
			c, rerr := Read(o, testScope)
			if n := slices.Index(starts, frame); frame > 0 && (len(c.Frames) != n || !errors.Is(rerr, damage.ErrCorrupt)) {
				t.Fatalf("byte %d: %d frames before the damage, expected %d: %v", at, len(c.Frames), n, rerr)
			}
		}
	}
}

// What is cut from the end is cut, and what is appended then is whole. Below what the head knows to be durable a short file is damage.
func TestTorn(t *testing.T) {
	made := Frame{1, []byte("made")}
	for cut := int64(1); ; cut++ {
		o := Options{Dir: memdir.Dir(t), UUID: testUUID}
		f, err := Create(o, testScope, 1, made)
		if err != nil {
			t.Fatal(err)
		}
		least := f.Bytes()
		if err := f.Append(Frame{2, []byte("appended later")}, false); err != nil {
			t.Fatal(err)
		}
		end := f.Bytes() // not closed: a kill
		if end-cut < least-1 {
			break
		}
		if err := os.Truncate(o.Path(testScope), end-cut); err != nil {
			t.Fatal(err)
		}
		g, err := Open(o, testScope)
		if end-cut < least {
			if !errors.Is(err, damage.ErrCorrupt) {
				t.Errorf("cut by %d: %v", cut, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut by %d: %v", cut, err)
		}
		if err := g.Append(Frame{3, []byte("again")}, false); err != nil {
			t.Fatal(err)
		}
		frames, err := g.Frames()
		if got := texts(frames); err != nil || !slices.Equal(got, []string{"made", "again"}) {
			t.Errorf("cut by %d: %q, %v", cut, got, err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that is full takes no frame, and the next ones when it has room.
func TestFull(t *testing.T) {
	disk := crashfs.New(crashfs.Options{Dir: t.TempDir()})
	o := vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID})
	if err := disk.Mkdir(o.Dir); err != nil {
		t.Fatal(err)
	}
	f, err := Create(o, testScope, 1)
	if err != nil {
		t.Fatal(err)
	}
	disk.SetBytes(disk.Used() + 8<<10)
	big := Frame{1, make([]byte, 64<<10)}
	for _, durable := range []bool{true, false} {
		if err := f.Append(big, durable); !errors.Is(err, vfs.ErrNoSpace) || f.Err() != nil {
			t.Fatal(err, f.Err())
		}
	}
	if err := f.Replace([]Frame{big}); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := f.Append(Frame{2, []byte("small")}, true); err != nil {
		t.Fatal(err)
	}
	disk.SetBytes(0)
	if err := errors.Join(f.Append(big, true), f.Close()); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(o, testScope); err != nil || len(c.Frames) != 2 {
		t.Error(len(c.Frames), err)
	}
}

// Whose files they are: others stay.
func TestForeign(t *testing.T) {
	o := planted(t, sample())
	other := o
	other.UUID[0]++
	if err := Remove(other, testScope); err != nil {
		t.Error(err)
	}
	if _, err := Create(other, testScope, 1); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if err := os.WriteFile(o.Path(testScope)+tmpSuffix, []byte("a letter to a friend"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(o, testScope)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Replace(nil); !errors.Is(err, vfs.ErrForeign) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := Remove(o, testScope); err != nil {
		t.Error(err)
	}
	names, err := os.ReadDir(o.Dir)
	if err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	for _, name := range []string{"", "x", Name(testScope) + "x", strings.ToUpper(Name([16]byte{0xab})), Name(testScope)[1:] + "g"} {
		if _, _, ok := Named(name); ok {
			t.Errorf("%q is taken for a session", name)
		}
	}
}
