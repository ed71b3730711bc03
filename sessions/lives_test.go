package sessions

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// script is a life of a session. It notes what was acknowledged, and what was under way.
type script struct {
	o       Options
	durable bool
	f       *File
	is      []string   // acknowledged
	may     [][]string // what else may be there after a crash
	synced  int        // so many frames are durable
	adding  bool       // what is under way is an append
}

func (s *script) try(next []string, do func() error) error {
	s.may = append(s.may, next)
	err := do()
	if err == nil {
		s.is, s.may = next, nil
	}
	return err
}

func (s *script) run() (err error) {
	if err := s.o.fs.Mkdir(s.o.Dir); err != nil {
		return err
	}
	if err := s.o.fs.SyncDir(strings.TrimSuffix(s.o.Dir, "/sessions")); err != nil {
		return err
	}
	if err := s.try([]string{}, func() (err error) { s.f, err = Create(s.o, testScope, 5); return err }); err != nil {
		return err
	}
	for round := range 3 {
		for i := range 4 {
			body := strings.Repeat(fmt.Sprint(round, "-", i, " "), 1+300*i*(round+1))
			s.adding = true
			if err := s.try(append(slices.Clone(s.is), body), func() error { return s.f.Append(Frame{7, []byte(body)}, s.durable) }); err != nil {
				return err
			}
			s.adding = false
			if s.durable {
				s.synced = len(s.is)
			}
		}
		switch round {
		case 0:
			if err := s.f.Sync(); err != nil {
				return err
			}
			s.synced = len(s.is)
		case 1:
			short := []string{"all that was", s.is[0]}
			if err := s.try(short, func() error { return s.f.Replace([]Frame{{7, []byte(short[0])}, {7, []byte(short[1])}}) }); err != nil {
				return err
			}
			s.synced = len(s.is)
		}
	}
	if err := s.f.Close(); err != nil {
		return err
	}
	s.synced = len(s.is)
	if s.f, err = Open(s.o, testScope); err != nil {
		return err
	}
	if err := s.try(append(slices.Clone(s.is), "reopened"), func() error { return s.f.Append(Frame{7, []byte("reopened")}, s.durable) }); err != nil {
		return err
	}
	if s.durable {
		s.synced = len(s.is)
	}
	s.may = append(s.may, nil) // the deletion
	err = Remove(s.o, testScope)
	if err == nil {
		s.is, s.may = nil, nil
	}
	return err
}

// holds reports whether got may be there: after a kill all that was acknowledged, after a power cut all that was synced.
func (s *script) holds(got []string, power bool) bool {
	if got == nil {
		return s.is == nil || slices.ContainsFunc(s.may, func(m []string) bool { return m == nil })
	}
	for _, want := range append(s.may, s.is) {
		if want == nil {
			continue
		}
		if slices.Equal(got, want) {
			return true
		}
		if power && len(got) >= s.synced && len(got) <= len(want) && slices.Equal(got, want[:len(got)]) && slices.Equal(got[:s.synced], s.is[:min(s.synced, len(s.is))]) {
			return true
		}
	}
	return false
}

// check opens what is left, writes to it, and reads it.
func (s *script) check(t *testing.T, disk *crashfs.Disk, power bool, what string) {
	t.Helper()
	o := vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID})
	// Of a file that is being emptied a power cut may leave anything.
	gone := power && s.f != nil && s.holds(nil, power)
	f, err := Open(o, testScope)
	if errors.Is(err, fs.ErrNotExist) {
		created := s.f != nil
		if created && !s.holds(nil, power) {
			t.Errorf("%s: nothing is there, %d frames were acknowledged", what, len(s.is))
		}
		return
	}
	if err != nil {
		if !gone {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	frames, err := f.Frames()
	got := texts(frames)
	if got == nil {
		got = []string{}
	}
	if err != nil || !gone && !s.holds(got, power) {
		t.Errorf("%s: %d frames are there, %d were acknowledged, %d of them are durable: %v", what, len(got), len(s.is), s.synced, err)
	}
	if err := errors.Join(f.Append(Frame{7, []byte("after")}, true), f.Close()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if c, err := Read(o, testScope); err != nil || len(c.Frames) != len(got)+1 || c.Torn != "" {
		t.Errorf("%s: %d frames, expected %d: %q, %v", what, len(c.Frames), len(got)+1, c.Torn, err)
	}
}

// Killed, or its power cut, before every change of the disk: what was acknowledged is there as far as the mode says, as whole frames, and
// nothing else.
func TestEveryCrash(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for n := 0; ; n++ {
			disk := crashfs.New(crashfs.Options{Dir: t.TempDir()})
			disk.CrashAt(n)
			s := &script{o: vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID}), durable: durable}
			err := s.run()
			killed, kerr := disk.Kill(t.TempDir())
			if kerr != nil {
				t.Fatal(kerr)
			}
			what := fmt.Sprintf("durable %t, change %d", durable, n)
			s.check(t, killed, false, what+", killed")
			for seed := range uint64(8) {
				cut, kerr := disk.PowerCut(rand.New(rand.NewPCG(seed, uint64(n))), t.TempDir())
				if kerr != nil {
					t.Fatal(kerr)
				}
				s.check(t, cut, true, fmt.Sprint(what, ", power cut ", seed))
			}
			if err == nil {
				break
			}
		}
	}
}

// Every call fails once: not done at all, or done in part. What was acknowledged is there, whoever reads it next, and the file goes on only
// where nothing is in doubt.
func TestEveryFailure(t *testing.T) {
	fault := errors.New("a fault")
	for _, fail := range []error{
		fault, vfs.ErrNoSpace, &crashfs.Short{Bytes: 30, Err: fault}, &crashfs.Short{Bytes: 600, Err: vfs.ErrNoSpace}, &crashfs.Late{Err: fault},
	} {
		cause := fault
		if errors.Is(fail, vfs.ErrNoSpace) {
			cause = vfs.ErrNoSpace
		}
		for n := 0; ; n++ {
			disk := crashfs.New(crashfs.Options{Dir: t.TempDir()})
			at, failed := 0, false
			disk.Before(func(op crashfs.Op) error {
				at++
				if at-1 == n {
					failed = true
					return fail
				}
				return nil
			})
			s := &script{o: vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID}), durable: true}
			err := s.run()
			if failed && err != nil && s.f != nil && s.f.Err() != nil {
				if aerr := s.f.Append(Frame{7, []byte("x")}, true); !errors.Is(aerr, cause) && !errors.Is(aerr, ErrClosed) {
					t.Errorf("call %d: after %v an append returns %v", n, err, aerr)
				}
			}
			disk.Before(nil)
			killed, kerr := disk.Kill(t.TempDir())
			if kerr != nil {
				t.Fatal(kerr)
			}
			if s.adding { // it was refused, and nothing failed when it was taken back
				s.may = nil
			}
			s.check(t, killed, false, fmt.Sprintf("call %d, %v, killed", n, fail))
			if !failed {
				break
			}
		}
	}
}

// Several processes in one boot, each killed, some in the middle of an append, and then the power is cut: what no sync had is lost or
// there, and never damage.
func TestLives(t *testing.T) {
	body := func(who string, n int) Frame { return Frame{7, bytes.Repeat([]byte(who), n)} }
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		disk := crashfs.New(crashfs.Options{Dir: t.TempDir()})
		o := vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID})
		if err := errors.Join(disk.Mkdir(o.Dir), disk.SyncDir(disk.Dir())); err != nil {
			t.Fatal(err)
		}
		f, err := Create(o, testScope, 1)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		add := func(frame Frame) {
			if err := f.Append(frame, false); err != nil {
				t.Fatal(err)
			}
			want = append(want, string(frame.Body))
		}
		for life := range 3 {
			for range 1 + rnd.IntN(3) {
				add(body(fmt.Sprint(life, " "), 1+rnd.IntN(3000)))
			}
			short := &crashfs.Short{Bytes: 1 + rnd.IntN(6000), Err: crashfs.ErrCrashed}
			disk.Before(func(op crashfs.Op) error {
				switch op.Kind {
				case "write":
					return short
				case "truncate", "sync":
					return crashfs.ErrCrashed
				}
				return nil
			})
			if rnd.IntN(2) == 0 {
				f.Append(body("torn", 2000), false) // the process ends in it
			}
			disk.Before(nil)
			if disk, err = disk.Kill(t.TempDir()); err != nil {
				t.Fatal(err)
			}
			o = vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID})
			if f, err = Open(o, testScope); err != nil {
				t.Fatalf("seed %d, life %d: %v", seed, life, err)
			}
			frames, err := f.Frames()
			if got := texts(frames); err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, life %d: %d frames, expected %d: %v", seed, life, len(got), len(want), err)
			}
		}
		add(body("last", 100))
		if disk, err = disk.PowerCut(rnd, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		o = vfs.On[Options](disk, Options{Dir: disk.Dir() + "/sessions", UUID: testUUID})
		if f, err = Open(o, testScope); err != nil {
			t.Fatalf("seed %d, power cut: %v", seed, err)
		}
		frames, err := f.Frames()
		if got := texts(frames); err != nil || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("seed %d, power cut: %d frames, expected up to %d: %v", seed, len(got), len(want), err)
		}
	}
}
