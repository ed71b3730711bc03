package recovery_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	return storetest.Must(filepath.Glob(dir + "/segments/*.seg"))(t)
}

// However a process ends that puts little, it leaves no segment of its own: one of each model is gone on with.
func TestProcessesShareSegments(t *testing.T) {
	end := map[string]func(t *testing.T, s *db.Store){
		"close": func(t *testing.T, s *db.Store) { storetest.OK(t, s.Close()) },
		"kill":  func(_ *testing.T, s *db.Store) { storetest.Crash(s) },
		"kill behind a checkpoint": func(t *testing.T, s *db.Store) {
			storetest.OK(t, s.Checkpoint(t.Context()))
			storetest.Crash(s)
		},
		"suspend": func(t *testing.T, s *db.Store) {
			storetest.OK(t, s.Suspend(t.Context()))
			storetest.OK(t, s.Resume(t.Context()))
		},
	}
	models := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)}
	prompt := func(i int) kv.Prompt { return kv.Tokens(crashtest.Tokens(i+1, 20)...) }
	for name, end := range end {
		t.Run(name, func(t *testing.T) {
			o, dir := storetest.Options(), t.TempDir()
			o.SegmentBytes = 4 << 20
			const lives = 60
			s := storetest.Open(t, dir, o)
			for i := range lives {
				storetest.Put(t, storetest.Model(t, s, models[i%2]), prompt(i))
				if i%7 == 0 {
					storetest.Sound(t, s)
				}
				end(t, s)
				if name != "suspend" {
					s = storetest.Open(t, dir, o)
				}
			}
			if n := len(segmentFiles(t, dir)); n != len(models) {
				t.Errorf("%d processes left %d segments, expected one for each model", lives, n)
			}
			storetest.Sound(t, s)
			storetest.OK(t, s.Close())
			storetest.OK(t, os.Remove(filepath.Join(dir, storetest.IndexFile)))
			s = storetest.Open(t, dir, o)
			for i := range lives {
				storetest.Expect(t, storetest.Model(t, s, models[i%2]), prompt(i), 20)
			}
			storetest.Sound(t, s)
		})
	}
}

// A store that was closed, opened, read and closed again has the files that it had, though it is ready to go on.
func TestOpeningChangesNoSegment(t *testing.T) {
	dir := storetest.Small(t)
	before := storetest.Must(storetest.ReadDir(dir))(t)
	for range 3 {
		s := storetest.Open(t, dir, storetest.Options())
		if n, _, err := storetest.Model(t, s, crashtest.Plain()).Probe(t.Context(), kv.Tokens(crashtest.Tokens(1, 100)...), db.MatchOptions{}); err != nil || n != 100 {
			t.Error(n, err)
		}
		storetest.OK(t, s.Close())
	}
	after := storetest.Must(storetest.ReadDir(dir))(t)
	for _, name := range segmentFiles(t, dir) {
		rel := storetest.Must(filepath.Rel(dir, name))(t)
		if string(after[rel]) != string(before[rel]) {
			t.Errorf("%s was changed", rel)
		}
	}
}

// Where somebody, or a power cut, takes the end of a segment, nothing comes to a place that the log names.
func TestNoPlaceIsUsedTwice(t *testing.T) {
	o, dir := storetest.Options(), t.TempDir()
	a, b, c := kv.Tokens(crashtest.Tokens(1, 64)...), kv.Tokens(crashtest.Tokens(2, 64)...), kv.Tokens(crashtest.Tokens(3, 64)...)
	s := storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), a)
	storetest.OK(t, s.Close())
	file := segmentFiles(t, dir)[0]
	end := storetest.Must(os.Stat(file))(t).Size()

	s = storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), b)
	storetest.Crash(s)
	storetest.OK(t, os.Truncate(file, end))

	s = storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), c)
	storetest.Crash(s)
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.IndexFile)))
	s = storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Expect(t, m, a, 64)
	storetest.Expect(t, m, c, 64)
	storetest.Expect(t, m, b, 0)
	places := map[[2]uint64]bool{}
	for x, err := range s.Blocks(t.Context()) {
		at := [2]uint64{x.Segment, uint64(x.Offset)}
		if err != nil || places[at] {
			t.Errorf("block at %v, %v", at, err)
		}
		places[at] = true
	}
}

// A reader that came while a segment rested reads on when a writer goes on with it, and sees what came when it is opened anew.
func TestReaderOfASegmentThatGoesOn(t *testing.T) {
	o, dir := storetest.Options(), t.TempDir()
	a, b := kv.Tokens(crashtest.Tokens(1, 64)...), kv.Tokens(crashtest.Tokens(2, 64)...)
	s := storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), a)
	storetest.OK(t, s.Close())

	s = storetest.Open(t, dir, o)
	beside := o
	beside.ReadOnly = true
	early, late := storetest.Open(t, dir, beside), storetest.Open(t, dir, beside)
	read := func(r *db.Store, p kv.Prompt, want int) {
		t.Helper()
		storetest.Expect(t, storetest.Model(t, r, crashtest.Plain()), p, want)
	}
	read(early, a, 64) // it maps the segment as short as it is
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), b)
	storetest.OK(t, s.Checkpoint(t.Context()))
	for _, r := range []*db.Store{early, late} {
		read(r, a, 64)
		read(r, b, 0)
		storetest.OK(t, r.Suspend(t.Context()))
		storetest.OK(t, r.Resume(t.Context()))
		read(r, a, 64)
		read(r, b, 64)
	}
	storetest.OK(t, s.Close())
	read(early, a, 64)
	read(early, b, 64)
	if n := len(segmentFiles(t, dir)); n != 1 {
		t.Errorf("%d segments", n)
	}
}

// A record that was lost before its segment was that long again is no fault to report when it is to be destroyed.
func TestLostBehindTheEndIsNoError(t *testing.T) {
	o, dir := storetest.Options(), t.TempDir()
	var said bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelError}))
	s := storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Tokens(crashtest.Tokens(1, 64)...))
	storetest.OK(t, s.Close())
	file := segmentFiles(t, dir)[0]
	end := storetest.Must(os.Stat(file))(t).Size()

	s = storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Tokens(crashtest.Tokens(2, 64)...))
	storetest.Crash(s)
	storetest.OK(t, os.Truncate(file, end)) // what a power cut takes, and leaves the log

	said.Reset()
	s = storetest.Open(t, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Tokens(crashtest.Tokens(3, 64)...))
	storetest.OK(t, s.Sync(t.Context()))
	storetest.OK(t, s.Close())
	if said.Len() > 0 {
		t.Error(said.String())
	}
}
