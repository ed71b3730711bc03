package db_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// The limit of open files is a process's, so these tests are processes of their own.

const handlesEnv = "DORMOUSE_TEST_HANDLES"

// withHandles runs the test anew as a process that may have so many files open, with each of the limits. In that process it is true.
func withHandles(t *testing.T, limits ...int) bool {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv(handlesEnv)); err == nil {
		limit := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
		storetest.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		return true
	}
	for _, n := range limits {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", handlesEnv, n))
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
	return false
}

// manySegments is how many there are in these tests; DORMOUSE_SEGMENTS says otherwise.
func manySegments() int {
	n := 300
	fmt.Sscan(os.Getenv("DORMOUSE_SEGMENTS"), &n)
	return n
}

// heavy is a model whose records have a segment of 64 KiB each to themselves.
func heavy(name string) kv.Descriptor {
	d := crashtest.Toy(kv.Descriptor{Name: name, Architecture: name, BlockTokens: 16})
	d.Architecture = name
	d.Tensors = []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 1100}}
	return d
}

func filesOpen(t *testing.T) int {
	t.Helper()
	names := storetest.Must(os.ReadDir("/proc/self/fd"))(t)
	return len(names) - 1 // of the folder itself
}

// With far fewer handles than segments and sessions, everything that a store and its tools do is done.
func TestFewHandles(t *testing.T) {
	if !withHandles(t, 24, 64, 256) {
		return
	}
	ctx, n := t.Context(), manySegments()
	o := storetest.Options()
	o.SegmentBytes, o.Budget = 64<<10, 4<<30
	dir := filepath.Join(t.TempDir(), "store")
	names := []string{"a", "b", "c"}
	prompt := func(i int) kv.Prompt {
		p := kv.Prompt{Tokens: crashtest.Tokens(i+1, 16)}
		if i%5 == 4 {
			p.Scope = fmt.Sprint("scope", i%10)
		}
		return p
	}
	var s *db.Store
	var models []*db.Model
	open := func() {
		t.Helper()
		s = storetest.Open(t, dir, o)
		models = nil
		for _, name := range names {
			models = append(models, storetest.Model(t, s, heavy(name)))
		}
	}
	gone := func(i int) bool { return false }
	all := func(when string) {
		t.Helper()
		for i := range n {
			want := 16
			if gone(i) || i%3 >= len(models) {
				want = 0
			}
			if i%3 < len(models) {
				if got, why := storetest.Restore(t, models[i%3], prompt(i)); got != want {
					t.Fatalf("%s: %d tokens of prompt %d (%v), expected %d", when, got, i, why, want)
				}
			}
		}
	}

	open()
	for i := range n {
		storetest.Put(t, models[i%3], prompt(i))
	}
	var talks []*db.Session
	for i := range n / 2 {
		talks = append(talks, openSession(t, s, fmt.Sprint("talk", i)))
	}
	for round := range 2 {
		for i, x := range talks {
			appendTo(t, x, fmt.Sprint(i, round))
		}
	}
	if segs := storetest.Must(filepath.Glob(dir + "/segments/*.seg"))(t); len(segs) < n {
		t.Fatalf("%d segments, expected %d", len(segs), n)
	}
	all("before the checkpoint")
	storetest.OK(t, s.Checkpoint(ctx))
	all("after it")
	storetest.Sound(t, s)
	storetest.OK(t, s.Suspend(ctx))
	storetest.OK(t, s.Resume(ctx))
	for i, x := range talks {
		wantFrames(t, "after Resume", x, fmt.Sprint(i, 0), fmt.Sprint(i, 1))
	}
	if got := storetest.Must(db.Collect(s.Sessions(ctx)))(t); len(got) != len(talks) {
		t.Fatalf("%d sessions, expected %d", len(got), len(talks))
	}
	all("after Resume")
	storetest.OK(t, s.Close())

	storetest.OK(t, os.Remove(dir+"/index.db"))
	open()
	all("after the index was rebuilt")
	storetest.Sound(t, s)
	storetest.OK(t, s.Close())
	if got, err := admin.Verify(ctx, dir, admin.VerifyOptions{}); err != nil || len(got.Damage) > 0 {
		t.Fatal(got.Damage, err)
	}
	storetest.Must(admin.Repair(ctx, dir, filepath.Join(t.TempDir(), "repaired"), admin.RepairOptions{}))(t)
	storetest.Must(admin.Compact(ctx, dir, admin.CompactOptions{}))(t)
	open()
	all("after Compact")
	storetest.Must(s.DeleteScope(ctx, "scope4"))(t)
	gone = func(i int) bool { return i%10 == 4 }
	all("after DeleteScope")
	storetest.OK(t, s.Retire(ctx, models[2].Fingerprint()))
	models, names = models[:2], names[:2]
	all("after Retire")

	// A process that was killed with all of it unsealed and unsynced.
	for i := range n {
		if gone(i) {
			continue
		}
		p := prompt(i)
		p.Tokens = crashtest.Concat(p.Tokens, crashtest.Tokens(i, 16))
		storetest.Put(t, models[i%2], p)
	}
	storetest.Crash(s)
	storetest.OK(t, os.Remove(dir+"/index.db"))
	open()
	all("after a kill")
	storetest.OK(t, s.Checkpoint(ctx))
	storetest.OK(t, s.Close())
	if got := filesOpen(t); got > 12 {
		t.Errorf("%d files are open when nothing is", got)
	}
}

// A process that has used up its handles for other things gets an error that names the file and the limit; nothing is lost, and when handles
// come back all goes on.
func TestNoHandles(t *testing.T) {
	if !withHandles(t, 64) {
		return
	}
	ctx := t.Context()
	o := storetest.Options()
	o.SegmentBytes = 64 << 10
	s, dir := storetest.Open(t, t.TempDir(), o), ""
	dir = s.Dir()
	m := storetest.Model(t, s, heavy("a"))
	prompt := func(i int) kv.Prompt { return kv.Prompt{Tokens: crashtest.Tokens(i+1, 16)} }
	const n = 40
	for i := range n {
		storetest.Put(t, m, prompt(i))
	}
	x := openSession(t, s, "talk")
	appendTo(t, x, "one")
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, o) // nothing is mapped
	m, x = storetest.Model(t, s, heavy("a")), openSession(t, s, "talk")

	var others []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		others = append(others, f)
	}
	limited := func(what string, err error) {
		t.Helper()
		if err != nil && (!errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "limit of this process is 64") || !strings.Contains(err.Error(), dir)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	put := func(i int) error {
		p := prompt(i)
		_, err := m.Put(ctx, p, storetest.Filled(m.Descriptor(), &p, 0, 16), db.PutOptions{})
		return err
	}
	met := false
	for i := range 5 { // each needs another segment
		err := put(n + i)
		limited("put", err)
		met = met || err != nil
	}
	for i := range n {
		match, err := m.Match(ctx, prompt(i), db.MatchOptions{})
		if err != nil {
			limited("match", err)
			continue
		}
		p, rows := prompt(i), storetest.Empty(m.Descriptor(), 16)
		got, err := match.Restore(ctx, rows)
		limited("restore", err)
		storetest.CheckRows(t, m.Descriptor(), &p, rows, got.Tokens)
		match.Close()
	}
	limited("checkpoint", s.Checkpoint(ctx))
	limited("append", x.Append(ctx, 7, []byte("two")))
	if !met {
		t.Error("there were handles after all")
	}
	for _, f := range others {
		f.Close()
	}

	for i := range n + 5 {
		storetest.OK(t, put(i))
	}
	storetest.OK(t, s.Checkpoint(ctx))
	appendTo(t, x, "three")
	for i := range n + 5 {
		storetest.Expect(t, m, prompt(i), 16)
	}
	storetest.Sound(t, s)
	if got := framesOf(t, x); got[0] != "one" || got[len(got)-1] != "three" {
		t.Error(got)
	}
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, o)
	m = storetest.Model(t, s, heavy("a"))
	for i := range n + 5 {
		storetest.Expect(t, m, prompt(i), 16)
	}
}
