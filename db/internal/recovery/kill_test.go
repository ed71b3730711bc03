package recovery_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A child process works the store and journals every operation through a pipe, when it begins and when it was
// acknowledged; its parent kills it at a random moment and compares what the store holds with the journal.

// killMode is what the child works with.
type killMode struct {
	power    bool // durability
	frequent bool // checkpoints: every few milliseconds, or never
	small    bool // a budget that forces evictions
}

func (k killMode) options() db.Options {
	o := storetest.Options()
	o.SegmentBytes = 256 << 10
	if k.power {
		o.Durability = db.Power
	}
	if k.frequent {
		o.CheckpointInterval = 8 * time.Millisecond
	}
	if k.small {
		o.Budget = 8 << 20
	}
	return o
}

var killModes = []killMode{
	{}, {frequent: true}, {power: true}, {power: true, frequent: true}, {small: true}, {small: true, frequent: true},
}

const (
	killSystem = 100 // tokens that all conversations begin with
	killChats  = 18
)

// killPrompt is conversation c. Two of three have a scope, which begins after the system prompt.
func killPrompt(c int) kv.Prompt {
	p := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, killSystem), []kv.Token{kv.Token(5000 + c)}, crashtest.Tokens(100+c, 150+c*7))}
	if c%3 > 0 {
		p.Scope, p.ScopeStart = killScope(c), killSystem
	}
	return p
}

func killScope(c int) string { return []string{"", "alice", "bob"}[c%3] }

func killModel(c int) kv.Descriptor {
	if c%2 == 0 {
		return crashtest.Plain()
	}
	return crashtest.Windowed(40)
}

// killRows fills rows for the positions [first, end). A row depends on all tokens up to its own, in one pass.
func killRows(d kv.Descriptor, p *kv.Prompt, first, end int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	mem := make([][]byte, len(d.Tensors))
	mix := func(h, x uint64) uint64 {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		return h ^ h>>29
	}
	h := uint64(1)
	for pos := range end {
		h = mix(h, uint64(p.Tokens[pos])+1)
		if pos < first {
			continue
		}
		for i, t := range d.Tensors {
			x := mix(h, uint64(i)+77)
			for range t.RowBytes() / 8 {
				x = mix(x, 3)
				mem[i] = binary.LittleEndian.AppendUint64(mem[i], x&0x83ff83ff83ff83ff|0x3800380038003800)
			}
		}
	}
	for i := range rows {
		rows[i] = kv.Packed(first, end-first, mem[i])
	}
	return rows
}

// TestKill kills a working process again and again. DORMOUSE_KILL_LOOPS sets how often, DORMOUSE_KILL_SEED the seed.
func TestKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: a child inherits no pipe on Windows")
	}
	loops, seed := 18, uint64(time.Now().UnixNano())
	if testing.Short() {
		loops = 6
	}
	if v, err := strconv.Atoi(os.Getenv("DORMOUSE_KILL_LOOPS")); err == nil {
		loops = v
	}
	if v, err := strconv.Atoi(os.Getenv("DORMOUSE_KILL_SEED")); err == nil {
		seed = uint64(v)
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const roundsPerStore = 3
	var acked, checked int
	for done := 0; done < loops && !t.Failed(); done += roundsPerStore {
		k := killModes[(done/roundsPerStore)%len(killModes)]
		dir, j := t.TempDir(), &killJournal{}
		for round := range roundsPerStore {
			j.read(t, killRun(t, k, dir, r))
			checked += killCheck(t, k, dir, j, r)
			if t.Failed() {
				t.Errorf("%+v, round %d, in %s", k, round, dir)
				return
			}
		}
		for _, o := range j.ops {
			if o.acked {
				acked++
			}
		}
	}
	t.Logf("%d kills, %d operations acknowledged, %d prompts restored and compared", loops, acked, checked)
}

// killRun lets a child work for a while, kills it, and returns its journal.
func killRun(t *testing.T, k killMode, dir string, r *rand.Rand) []string {
	t.Helper()
	from, to, err := os.Pipe()
	storetest.OK(t, err)
	defer from.Close()
	c := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
	c.Env = append(os.Environ(), "DORMOUSE_CHILD=work", "DORMOUSE_CHILD_DIR="+dir,
		"DORMOUSE_CHILD_MODE="+fmt.Sprint(k.power, " ", k.frequent, " ", k.small, " ", r.Uint64()))
	c.ExtraFiles = []*os.File{to}
	storetest.OK(t, c.Start())
	to.Close()
	in := bufio.NewReader(from)
	var lines []string
	timer := time.AfterFunc(20*time.Second, func() { c.Process.Kill() })
	for {
		l, err := in.ReadString('\n')
		if err != nil {
			if err != io.EOF || l != "" {
				t.Errorf("journal ends in %q: %v", l, err)
			}
			break
		}
		lines = append(lines, strings.TrimSpace(l))
		if l == "r\n" {
			time.AfterFunc(time.Duration(r.IntN(250))*time.Millisecond, func() { c.Process.Kill() })
		}
	}
	timer.Stop()
	c.Wait()
	if len(lines) == 0 {
		t.Fatal("the child never began")
	}
	return lines
}

// killCheck compares the store with the journal: as it was left, and again without the derived files.
func killCheck(t *testing.T, k killMode, dir string, j *killJournal, r *rand.Rand) (checked int) {
	t.Helper()
	rep, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil {
		t.Fatalf("verify after the kill: %v", err)
	}
	for _, d := range rep.Damage {
		t.Errorf("verify after the kill: %v", d)
	}
	o := k.options()
	o.CheckpointInterval = -1
	for _, lost := range []string{"", storetest.IndexFile, storetest.BloomFile} {
		if lost != "" {
			os.Remove(filepath.Join(dir, lost))
		}
		s, err := storetest.TryOpen(vfs.OS, dir, o)
		if err != nil {
			t.Fatalf("open without %q: %v", lost, err)
		}
		checked += killCompare(t, k, s, j, "without "+lost)
		if r.IntN(2) == 0 || lost == storetest.BloomFile {
			if err := s.Close(); err != nil {
				t.Fatalf("close without %q: %v", lost, err)
			}
		} else {
			storetest.Crash(s)
		}
		if lost == "" && r.IntN(2) == 0 {
			break // the next child gets the files as they are
		}
	}
	if rep, err = admin.Verify(t.Context(), dir, admin.VerifyOptions{}); err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, d := range rep.Damage {
		t.Errorf("verify: %v", d)
	}
	return checked
}

func killCompare(t *testing.T, k killMode, s *db.Store, j *killJournal, when string) (checked int) {
	t.Helper()
	var models [2]*db.Model
	for c := range models {
		models[c] = storetest.Model(t, s, killModel(c))
	}
	stored := func(c int, p kv.Prompt) (int, db.Reason) {
		x, err := models[c%2].Match(t.Context(), p, db.MatchOptions{})
		storetest.OK(t, err)
		defer x.Close()
		n, err := killRestore(models[c%2], x, p)
		if err != nil {
			t.Fatalf("%s: chat %d: %v", when, c, err)
		}
		checked++
		return n, x.Reason()
	}
	for c := range killChats {
		p := killPrompt(c)
		n, reason := stored(c, p)
		if most := j.atMost(c, len(p.Tokens)); n > most {
			t.Errorf("%s: chat %d: %d tokens are found, no more than %d were left undeleted", when, c, n, most)
		}
		if least := j.atLeast(c); n < least && !k.small {
			t.Errorf("%s: chat %d: %d tokens are found (%v), %d were acknowledged", when, c, n, reason, least)
		}
	}
	for g := range 3 {
		for i := range 3 {
			name := fmt.Sprint(g, "-", i)
			set, known := j.refState(name)
			if !known {
				continue
			}
			ref, err := s.Ref(name)
			switch {
			case set == nil && !errors.Is(err, db.ErrNotFound):
				t.Errorf("%s: ref %s is %+v, %v, expected none", when, name, ref, err)
			case set != nil && (err != nil || ref.Tokens != set.n || !ref.Pinned):
				t.Errorf("%s: ref %s is %+v, %v, expected %d tokens of chat %d", when, name, ref, err, set.n, set.chat)
			case set != nil:
				p := killPrompt(set.chat)
				if n, reason := stored(set.chat, p.Prefix(set.n)); n != set.n {
					t.Errorf("%s: pinned ref %s holds %d tokens (%v) of %d of chat %d", when, name, n, reason, set.n, set.chat)
				}
			}
		}
	}
	for g := range 3 {
		for i := range 6 {
			name := fmt.Sprint(g, "-", i%3)
			size, known := j.noteState(i%2, name)
			if value, err := models[i%2].Note(name); known && (len(value) != size || errors.Is(err, db.ErrNotFound) != (size == 0)) {
				t.Errorf("%s: note %s of model %d has %d bytes, %v, expected %d", when, name, i%2, len(value), err, size)
			}
		}
	}
	all := map[kv.Key]bool{}
	var blocks []db.Block
	for b, err := range s.Blocks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Group == 0 {
			all[b.Key] = true
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		if b.First > 0 && !all[b.Parent] || b.Group > 0 && !all[b.Key] {
			t.Errorf("%s: block %s at %d is stored without its prefix", when, b.Key, b.First)
		}
	}
	return checked
}
