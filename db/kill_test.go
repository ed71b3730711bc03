package db

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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

func (k killMode) options() Options {
	o := options()
	o.SegmentBytes = 256 << 10
	if k.power {
		o.Durability = Power
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
	p := kv.Prompt{Tokens: concat(tokens(1, killSystem), []kv.Token{kv.Token(5000 + c)}, tokens(100+c, 150+c*7))}
	if c%3 > 0 {
		p.Scope, p.ScopeStart = killScope(c), killSystem
	}
	return p
}

func killScope(c int) string { return []string{"", "alice", "bob"}[c%3] }

func killModel(c int) kv.Descriptor {
	if c%2 == 0 {
		return plain()
	}
	return windowed(40)
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

// TestKillChild is the child. It works until it is killed.
func TestKillChild(t *testing.T) {
	if os.Getenv("DORMOUSE_CHILD") != "work" {
		t.Skip("runs in a child process only")
	}
	var k killMode
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv("DORMOUSE_CHILD_MODE"), &k.power, &k.frequent, &k.small, &seed); err != nil {
		t.Fatal(err)
	}
	w := &killWorker{out: os.NewFile(3, "journal"), k: k}
	s, err := Open(ctx, os.Getenv("DORMOUSE_CHILD_DIR"), k.options())
	if err != nil {
		w.write("x open: %v", err)
		os.Exit(3)
	}
	w.s = s
	for c := range 2 {
		m, err := s.Model(ctx, killModel(c))
		if err != nil {
			w.write("x model: %v", err)
			os.Exit(3)
		}
		w.models[c] = m
	}
	w.write("r")
	for g := range 3 {
		go w.work(g, rand.New(rand.NewPCG(seed, uint64(g))))
	}
	time.Sleep(30 * time.Second) // an orphan ends by itself
	os.Exit(3)
}

type killWorker struct {
	s      *Store
	k      killMode
	models [2]*Model

	mu   sync.Mutex
	out  *os.File
	next int
}

func (w *killWorker) write(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintf(w.out, format+"\n", args...); err != nil {
		os.Exit(4) // the parent is gone
	}
}

// do journals an operation, does it, and journals how it ended.
func (w *killWorker) do(what string, op func() error) {
	w.mu.Lock()
	w.next++
	id := w.next
	w.mu.Unlock()
	w.write("b %d %s", id, what)
	err := op()
	switch {
	case err == nil:
		w.write("e %d", id)
	case errors.Is(err, ErrSuspended), errors.Is(err, ErrNotStored), errors.Is(err, ErrNotFound), w.k.small && errors.Is(err, ErrNoSpace):
		w.write("f %d", id)
	default:
		w.write("x %s: %v", what, err)
		os.Exit(3)
	}
}

func (w *killWorker) work(g int, r *rand.Rand) {
	for {
		c := r.IntN(killChats)
		p := killPrompt(c)
		m := w.models[c%2]
		d := m.Descriptor()
		n := killSystem + 20 + r.IntN(len(p.Tokens)-killSystem-20)
		p = p.Prefix(n)
		switch x := r.IntN(100); {
		case x < 40:
			w.do(fmt.Sprint("put ", c, " ", n), func() error {
				_, err := m.Put(ctx, p, killRows(d, &p, 0, n), PutOptions{})
				return err
			})
		case x < 62:
			w.do(fmt.Sprint("put ", c, " ", n), func() error {
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					return err
				}
				defer x.Close()
				from := x.Tokens()
				if len(d.Groups) > 1 { // of a window the runtime gives what it has: all that the restore gave it
					from = max(0, from-d.Groups[1].Window)
				}
				_, err = x.Extend(ctx, p, killRows(d, &p, from, n), PutOptions{})
				return err
			})
		case x < 74:
			w.restore(m, p)
		case x < 82:
			name := fmt.Sprint(g, "-", r.IntN(3))
			w.do(fmt.Sprint("ref ", c, " ", n, " ", name), func() error {
				return m.SetRef(ctx, name, p, RefOptions{Pinned: true})
			})
		case x < 84:
			name := fmt.Sprint(g, "-", r.IntN(3))
			w.do("unref 0 0 "+name, func() error { return w.s.DeleteRef(ctx, name) })
		case x < 91:
			w.do(fmt.Sprint("del ", c, " ", n), func() error { _, err := m.Delete(ctx, p); return err })
		case x < 93:
			if c%3 > 0 {
				w.do(fmt.Sprint("scope ", c, " ", killSystem+1), func() error { _, err := w.s.DeleteScope(ctx, killScope(c)); return err })
			}
		case x < 95:
			if w.k.frequent {
				w.do("checkpoint", func() error { return w.s.Checkpoint(ctx) })
			}
		case x < 97:
			if w.k.frequent {
				w.do("compact", func() error { _, err := w.s.Compact(ctx, CompactOptions{LiveShare: 0.9}); return err })
			}
		case x < 98:
			w.do("sync", func() error {
				err := w.s.Sync(ctx)
				var pending *PendingError
				if errors.As(err, &pending) {
					return nil
				}
				return err
			})
		default:
			if g == 0 && w.k.frequent {
				w.do("suspend", func() error { return w.s.Suspend(ctx) })
				w.do("resume", func() error { return w.s.Resume(ctx) })
			}
		}
	}
}

// restore checks that what is handed out is right, whatever it is.
func (w *killWorker) restore(m *Model, p kv.Prompt) {
	x, err := m.Match(ctx, p, MatchOptions{})
	if errors.Is(err, ErrSuspended) {
		return
	}
	if err == nil {
		defer x.Close()
		_, err = killRestore(m, x, p)
	}
	if err != nil && !errors.Is(err, ErrSuspended) {
		w.write("x restore: %v", err)
		os.Exit(3)
	}
}

// killRestore restores a match and compares every row.
func killRestore(m *Model, x *Match, p kv.Prompt) (int, error) {
	d := m.Descriptor()
	n := len(p.Tokens)
	rows := empty(d, n)
	got, err := x.Restore(ctx, rows)
	if err != nil {
		return 0, err
	}
	want := killRows(d, &p, 0, n)
	for i, t := range d.Tensors {
		size := t.RowBytes()
		a, b := rows[i].Pieces[0].Mem, want[i].Pieces[0].Mem
		for pos := range n {
			if g := d.Groups[t.Group]; g.Kind == kv.Window && pos < got.Tokens-g.Window {
				continue
			}
			row, right := a[pos*size:(pos+1)*size], b[pos*size:(pos+1)*size]
			if pos >= got.Tokens {
				right = make([]byte, size)
			}
			if string(row) != string(right) {
				return 0, fmt.Errorf("tensor %d row %d of %d restored is wrong", i, pos, got.Tokens)
			}
		}
	}
	return got.Tokens, nil
}

// killOp is an operation of the journal. It took effect, if at all, between begin and end.
type killOp struct {
	what       string
	chat, n    int
	name       string
	begin, end int
	acked      bool
}

// touches reports whether a deletion takes tokens of conversation c.
func (o *killOp) touches(c int) bool {
	return o.what == "del" && o.chat == c || o.what == "scope" && killScope(o.chat) == killScope(c)
}

type killJournal struct {
	ops   []*killOp
	clock int
}

// read adds what a child wrote before it was killed.
func (j *killJournal) read(t *testing.T, lines []string) {
	open := map[int]*killOp{}
	for _, l := range lines {
		j.clock++
		f := strings.Fields(l)
		if len(f) == 0 || f[0] == "r" {
			continue
		}
		if f[0] == "x" {
			t.Fatalf("child: %s", l)
		}
		id, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatalf("journal line %q", l)
		}
		switch f[0] {
		case "b":
			o := &killOp{what: f[2], begin: j.clock, end: math.MaxInt}
			if len(f) > 4 {
				o.chat, _ = strconv.Atoi(f[3])
				o.n, _ = strconv.Atoi(f[4])
			}
			if len(f) > 5 {
				o.name = f[5]
			}
			open[id] = o
			j.ops = append(j.ops, o)
		case "e", "f":
			open[id].end, open[id].acked = j.clock, f[0] == "e"
		}
	}
	j.clock++
	for _, o := range j.ops {
		o.end = min(o.end, j.clock)
	}
}

// atLeast is how much of conversation c must be stored: of each acknowledged put, what no deletion can have taken.
func (j *killJournal) atLeast(c int) int {
	best := 0
	for _, p := range j.ops {
		if p.what != "put" || p.chat != c || !p.acked {
			continue
		}
		n := p.n
		for _, d := range j.ops {
			if d.touches(c) && d.end > p.begin {
				n = min(n, d.n-16) // the block with the last deleted token goes
			}
		}
		best = max(best, n)
	}
	return best
}

// atMost is how much of it may be found: less than an acknowledged deletion that no put followed.
func (j *killJournal) atMost(c, whole int) int {
	most := whole
	for _, d := range j.ops {
		if !d.touches(c) || !d.acked {
			continue
		}
		after := false
		for _, p := range j.ops {
			after = after || p.what == "put" && p.chat == c && p.n >= d.n && p.end > d.begin
		}
		if !after {
			most = min(most, d.n-1)
		}
	}
	return most
}

// refState says what must hold of a ref: the op that set it last, or that there is none; known is false if an operation
// was under way.
func (j *killJournal) refState(name string) (set *killOp, known bool) {
	known = true
	for _, o := range j.ops { // the ops on one name come one after the other
		if o.name != name {
			continue
		}
		switch {
		case o.what == "ref" && o.acked:
			set, known = o, true
		case o.what == "unref" && o.acked:
			set, known = nil, true
		case o.end == j.clock || o.what == "ref":
			known = false
		}
	}
	if set != nil {
		for _, d := range j.ops {
			if d.touches(set.chat) && d.end > set.begin {
				known = false // it may have gone with its prefix
			}
		}
	}
	return set, known
}

// TestKill kills a working process again and again. DORMOUSE_KILL_LOOPS sets how often, DORMOUSE_KILL_SEED the seed.
func TestKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a child inherits no pipe there")
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
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	c := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
	c.Env = append(os.Environ(), "DORMOUSE_CHILD=work", "DORMOUSE_CHILD_DIR="+dir,
		"DORMOUSE_CHILD_MODE="+fmt.Sprint(k.power, " ", k.frequent, " ", k.small, " ", r.Uint64()))
	c.ExtraFiles = []*os.File{to}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
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
	rep, err := Verify(ctx, dir, VerifyOptions{})
	if err != nil {
		t.Fatalf("verify after the kill: %v", err)
	}
	for _, d := range rep.Damage {
		t.Errorf("verify after the kill: %v", d)
	}
	o := k.options()
	o.CheckpointInterval = -1
	for _, lost := range []string{"", indexName, bloomName} {
		if lost != "" {
			os.Remove(filepath.Join(dir, lost))
		}
		s, err := Open(ctx, dir, o)
		if err != nil {
			t.Fatalf("open without %q: %v", lost, err)
		}
		checked += killCompare(t, k, s, j, "without "+lost)
		if r.IntN(2) == 0 || lost == bloomName {
			if err := s.Close(); err != nil {
				t.Fatalf("close without %q: %v", lost, err)
			}
		} else {
			crash(s)
		}
		if lost == "" && r.IntN(2) == 0 {
			break // the next child gets the files as they are
		}
	}
	if rep, err = Verify(ctx, dir, VerifyOptions{}); err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, d := range rep.Damage {
		t.Errorf("verify: %v", d)
	}
	return checked
}

func killCompare(t *testing.T, k killMode, s *Store, j *killJournal, when string) (checked int) {
	t.Helper()
	var models [2]*Model
	for c := range models {
		models[c] = model(t, s, killModel(c))
	}
	stored := func(c int, p kv.Prompt) (int, Reason) {
		x, err := models[c%2].Match(ctx, p, MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
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
			case set == nil && !errors.Is(err, ErrNotFound):
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
	all := map[kv.Key]bool{}
	var blocks []Block
	for b, err := range s.Blocks() {
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
