package recovery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// What the tests of crashes and of failing disks share: conversations, a script of operations done on a store (run_test.go) by one process
// after the other, a journal of what was acknowledged (journal_test.go), with which a store that comes back is compared (compare_test.go).

// crashRuns does one run after the other, each with a seed of its own, for seconds, or for an hour, until one fails.
func crashRuns(t *testing.T, run func(seed uint64)) {
	seed, all := crashtest.Seed(t)
	d := 4 * time.Second
	if all {
		d = time.Hour
	}
	runs := uint64(0)
	for until := time.Now().Add(d); time.Now().Before(until) && !t.Failed(); runs++ {
		run(seed + runs)
	}
	t.Logf("%d runs", runs)
}

// within fails the test if fn hangs.
func within(t testing.TB, d time.Duration, what string, fn func()) {
	t.Helper()
	timer := time.AfterFunc(d, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s hangs\n%s\n", what, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	defer timer.Stop()
	fn()
}

func crashTail(log []string) string { return strings.Join(log[max(0, len(log)-60):], "\n\t") }

// afterCut is a copy of an open store as the next boot may find it: a power cut took the first pages of what lies at lost, and the index if
// that is said.
func afterCut(t *testing.T, s *db.Store, noIndex bool, lost ...loc.Loc) (image string) {
	t.Helper()
	image = storetest.Copy(t, s.Dir())
	for _, l := range lost {
		storetest.ZeroPlace(t, image, l, 4096)
	}
	storetest.CutPower(t, image, noIndex)
	return image
}

// Processes that work on one disk, one after the other.

// crashCase is a store at work on a disk of its own.
func crashCase(t *testing.T, k crashMode) *crashRun {
	w := nextRun(t, crashtest.NewDisk(crashtest.NewDirs(t).Next()), k, newCrashJournal(k))
	w.steps(t, crashOp{kind: "open"})
	return w
}

// dies ends the process as a SIGKILL does, and returns the disk that the next one finds.
func (w *crashRun) dies(t *testing.T) *crashfs.Disk {
	t.Helper()
	w.d.Crash()
	w.kill()
	return storetest.Must(w.d.Kill(crashtest.NewDirs(t).Next()))(t)
}

// nextRun is the process that comes next on a disk. It opens no store yet.
func nextRun(t *testing.T, d *crashfs.Disk, k crashMode, j *crashJournal) *crashRun {
	w := &crashRun{d: d, k: k, j: j}
	t.Cleanup(w.kill)
	return w
}

func (w *crashRun) steps(t *testing.T, ops ...crashOp) {
	t.Helper()
	for _, o := range ops {
		storetest.OK(t, w.step(o))
	}
}

// cuts compares several of the states in which a power cut can leave w's disk with its journal.
func (w *crashRun) cuts(t *testing.T, n int) {
	t.Helper()
	dirs := crashtest.NewDirs(t)
	w.j.cut = true
	for seed := range uint64(n) {
		image := storetest.Must(crashtest.Cut(w.d, rand.New(rand.NewPCG(seed, 5)), dirs))(t)
		x := &crashRun{d: image, k: w.k}
		err := w.j.compare(x, !w.k.power)
		x.kill()
		os.RemoveAll(image.Dir())
		if err != nil {
			t.Fatalf("power cut %d: %v", seed, err)
		}
	}
}

func putAll() (ops []crashOp) {
	for c, x := range crashChats() {
		ops = append(ops, crashOp{kind: "put", chat: c, n: len(x.p.Tokens)})
	}
	return ops
}

// crashChat is one conversation.
type crashChat struct {
	*crashtest.Chat
	p kv.Prompt
	d kv.Descriptor
}

// crashSystem is how many tokens all conversations begin with: two whole blocks and a half.
const (
	crashSystem = 40
	crashBlock  = 16
)

// crashChats are the conversations: of three models, in three scopes.
var crashChats = sync.OnceValue(func() []*crashChat {
	models := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40), crashtest.Opaque()}
	var chats []*crashChat
	for c := range 6 {
		d, _ := models[[]int{0, 1, 0, 1, 0, 2}[c]].Normal()
		p := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, crashSystem), []kv.Token{kv.Token(5000 + c)}, crashtest.Tokens(100+c, 50+c*11))}
		if scope := []string{"", "alice", "bob"}[c%3]; scope != "" {
			p.Scope, p.ScopeStart = scope, crashSystem
		}
		x := crashtest.NewChat(d, p, crashSystem)
		chats = append(chats, &crashChat{x, x.Prompt, x.Model})
	}
	return chats
})

// restore restores the longest stored prefix and compares every row.
func (x *crashChat) restore(m *db.Model) (int, error) { return restoreChat(x.Chat, m) }

func restoreChat(x *crashtest.Chat, m *db.Model) (int, error) {
	match, err := m.Match(context.Background(), x.Prompt, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer match.Close()
	return checkChat(x, match)
}

var errWrongRow = crashtest.ErrWrongRow

func (x *crashChat) check(match *db.Match) (int, error) { return checkChat(x.Chat, match) }

func checkChat(x *crashtest.Chat, match *db.Match) (int, error) {
	rows := x.Room()
	got, err := match.Restore(context.Background(), rows)
	if err != nil {
		return 0, err
	}
	if err := x.Check(rows, got.Tokens); err != nil {
		return 0, err
	}
	return got.Tokens, nil
}

// crashOp is one operation of a script.
type crashOp struct {
	kind string
	chat int
	n    int
	name string
	keep int // states, of a put
}

func (o crashOp) String() string {
	if o.keep > 0 {
		return fmt.Sprintf("%s chat %d n %d, keeps %d states", o.kind, o.chat, o.n, o.keep)
	}
	return fmt.Sprintf("%s chat %d n %d %s", o.kind, o.chat, o.n, o.name)
}

// note is a note's model and name.
func (o crashOp) note() string { return crashChats()[o.chat].d.Name + " " + o.name }

// crashMode is how a store is opened.
type crashMode struct {
	power bool // durability
	small bool // room for a part of what is put
}

func (k crashMode) String() string {
	return fmt.Sprintf("power=%t small=%t", k.power, k.small)
}

var crashModes = []crashMode{{}, {power: true}, {small: true}, {power: true, small: true}}

func (k crashMode) options() db.Options {
	o := storetest.Options()
	o.SegmentBytes = 64 << 10
	o.Budget = 16 << 20
	if k.power {
		o.Durability = db.Power
	}
	if k.small {
		o.Budget, o.MaxBlocks = 3<<20, 20
	}
	return o
}

// script is every kind of operation, in an order that the seed decides.
func (k crashMode) script(seed uint64) []crashOp {
	r := rand.New(rand.NewPCG(seed, 3))
	counts := []struct {
		kind string
		n    int
	}{
		{"put", 9}, {"extend", 4}, {"restore", 2}, {"ref", 3}, {"unref", 1}, {"delete", 3}, {"scope", 1}, {"sync", 2}, {"checkpoint", 2},
		{"compact", 1}, {"suspend", 1}, {"reopen", 1}, {"trim", 1}, {"retire", 1}, {"hold", 2}, {"release", 1},
	}
	var ops []crashOp
	for _, c := range counts {
		for range c.n {
			ops = append(ops, crashOp{kind: c.kind})
		}
	}
	if k.small {
		ops = append(ops, crashOp{kind: "shrink"}, crashOp{kind: "put"}, crashOp{kind: "put"})
	}
	r.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	ops = append([]crashOp{{kind: "put"}, {kind: "put"}, {kind: "put"}, {kind: "ref"}}, ops...)
	for i := range ops {
		o := &ops[i]
		o.chat = r.IntN(len(crashChats()))
		x := crashChats()[o.chat]
		o.n = crashSystem + 5 + r.IntN(len(x.p.Tokens)-crashSystem-4)
		if strings.HasSuffix(o.kind, "ref") {
			o.name = fmt.Sprint("ref ", r.IntN(3))
		}
		if o.kind == "scope" {
			o.name = []string{"alice", "bob"}[r.IntN(2)]
		}
	}
	for range 4 { // behind what the seed has decided
		at := 1 + r.IntN(len(ops))
		ops = slices.Insert(ops, at, crashOp{kind: "note", chat: r.IntN(len(crashChats())), n: r.IntN(4), name: fmt.Sprint("note ", r.IntN(2))})
	}
	for range 5 {
		chat := len(crashChats()) - 1 // it has states
		n := crashSystem + 5 + r.IntN(len(crashChats()[chat].p.Tokens)-crashSystem-4)
		ops = slices.Insert(ops, 1+r.IntN(len(ops)), crashOp{kind: "put", chat: chat, n: n, keep: 2})
	}
	return append(ops, crashOp{kind: "close"})
}
