package damage

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

var ctx = context.Background()

// segmentBytes is the size that a segment is planned with.
const segmentBytes = 64 << 10

func options() db.Options {
	return db.Options{
		Budget: 4 << 20, MinFree: -1, HighWater: 1, LowWater: 1, CheckpointInterval: -1, SegmentBytes: segmentBytes,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// chats are all prompts. What is stored of them is decided in build.
func chats() map[string]*chat {
	ks := kinds()
	out := map[string]*chat{}
	add := func(name, model string, p kv.Prompt) { out[name] = &chat{name: name, kind: ks[model], p: p} }
	system := tokens(1, 40)
	add("plain", "int8", kv.Prompt{Tokens: concat(system, tokens(11, 37))})
	add("alice", "int8", kv.Prompt{Tokens: concat(system, tokens(12, 21)), Scope: "alice", ScopeStart: 40})
	add("bob", "int8", kv.Prompt{Tokens: concat(system, tokens(13, 33)), Scope: "bob", ScopeStart: 40})
	add("turn 1", "int8", kv.Prompt{Tokens: tokens(20, 25)})
	add("turn 2", "int8", kv.Prompt{Tokens: concat(tokens(20, 25), tokens(21, 12))})
	add("turn 3", "int8", kv.Prompt{Tokens: concat(tokens(20, 25), tokens(21, 12), tokens(22, 20))})
	add("leased", "int8", kv.Prompt{Tokens: concat(tokens(1, 16), tokens(23, 30))})
	images := []kv.Span{{Start: 10, Len: 12, Hash: kv.Hash{1}}, {Start: 40, Len: 20, Hash: kv.Hash{2}}}
	add("images", "huff", kv.Prompt{Tokens: tokens(3, 70), Spans: images})
	add("adapted", "zstd", kv.Prompt{Tokens: tokens(4, 50), Adapters: []kv.Adapter{{Hash: kv.Hash{3}, Scale: 0.5}}})
	add("late", "zstd", kv.Prompt{Tokens: tokens(41, 36)})
	add("window", "window", kv.Prompt{Tokens: tokens(5, 74)})
	add("window 2", "window", kv.Prompt{Tokens: concat(tokens(5, 48), tokens(6, 30))})
	add("state", "s2", kv.Prompt{Tokens: tokens(7, 29)})
	add("state 2", "s2", kv.Prompt{Tokens: concat(tokens(7, 29), tokens(71, 15))})
	add("opaque", "opaque", kv.Prompt{Tokens: tokens(8, 40)})
	add("opaque 2", "opaque", kv.Prompt{Tokens: concat(tokens(8, 40), tokens(81, 12))})
	add("retired", "retired", kv.Prompt{Tokens: tokens(9, 30)})
	return out
}

// step is what one operation appended to the log.
type step struct {
	file     string
	from, to int // bytes
	puts     string
	head     bool // of the file
}

// base is a store as it lies on disk, and what is known of it.
type base struct {
	name    string
	files   image
	older   []image // the same store, earlier
	foreign image   // another store
	chats   []*chat // by name
	steps   []step  // of the log
	sure    int     // steps before it are known to be durable
	regions map[string][]region
}

// build makes a store through two lives, the first of them killed, and returns the second as a kill and as Close leave it.
func build(t *testing.T, seed uint64) []*base {
	cryptotest.SetGlobalRandom(t, seed)
	b := &builder{t: t, dir: filepath.Join(memdir.Dir(t), "first"), chats: chats()}
	b.open()
	b.step("")
	for _, name := range []string{"plain", "bob", "turn 1", "retired", "window", "opaque", "state"} {
		b.put(name)
	}
	b.ref("system", "plain", 40)
	b.checkpoint()
	b.older = append(b.older, read(t, b.dir))
	for _, name := range []string{"turn 2", "images", "adapted", "alice"} {
		b.put(name)
	}
	b.ref("gone", "bob", 60) // goes with what it names
	b.checkpoint()
	b.must(b.s.Suspend(ctx)) // seals
	b.must(b.s.Resume(ctx))
	b.step("")
	b.older = append(b.older, read(t, b.dir))
	b.put("leased")
	b.checkpoint()
	_, err := b.s.DeleteScope(ctx, "bob")
	b.must(err)
	b.put("turn 3")
	b.checkpoint()
	b.older = append(b.older, read(t, b.dir))
	b.put("late") // the rest of this life is in the log alone
	b.ref("late", "late", 20)
	killed := filepath.Join(memdir.Dir(t), "second")
	b.must(read(t, b.dir).lay(killed))
	b.must(b.s.Close())

	b.dir = killed
	b.open()
	b.rest()
	b.ref("second life", "plain", 20) // the first frame begins the log file
	b.put("window 2")
	x, err := b.model("int8").Match(ctx, b.chats["leased"].p, db.MatchOptions{})
	b.must(err)
	_, err = b.model("int8").Delete(ctx, b.chats["leased"].p.Prefix(20)) // its bytes stay for now
	b.must(err)
	b.step("")
	b.must(b.s.Retire(ctx, b.chats["retired"].d.Fingerprint()))
	b.step("")
	b.ref("brief", "plain", 30)
	b.must(b.s.DeleteRef(ctx, "brief"))
	b.step("")
	var pending *db.PendingError
	if err := b.s.Sync(ctx); !errors.As(err, &pending) {
		t.Fatalf("synced, while a match can see what was deleted: %v", err)
	}
	b.step("") // a ref went: the log goes on in a new file
	sure := len(b.steps)
	b.put("opaque 2")
	b.put("state 2")
	left := &base{name: "killed", files: read(t, b.dir), steps: b.steps, sure: sure, older: b.older}
	left.files["LOCK"] = []byte("4194304\n") // of nobody
	b.must(x.Close())
	b.checkpoint()
	b.checkpoint()
	b.must(b.s.Close())
	closed := &base{name: "closed", files: read(t, b.dir), older: append(b.older[:len(b.older):len(b.older)], left.files)}
	bases := []*base{left, closed}
	for _, x := range bases {
		b.know(x)
	}
	return bases
}

// builder makes a store and remembers what it did.
type builder struct {
	t     *testing.T
	dir   string
	s     *db.Store
	chats map[string]*chat
	older []image
	steps []step
	wal   string // the log file that was written to last
}

func (b *builder) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) open() {
	s, err := db.Open(ctx, b.dir, options())
	b.must(err)
	b.s = s
}

func (b *builder) model(name string) *db.Model {
	m, err := b.s.Register(ctx, kinds()[name].d)
	b.must(err)
	return m.Model
}

func (b *builder) put(name string) {
	b.t.Helper()
	c := b.chats[name]
	n := len(c.p.Tokens)
	if c.rows == nil {
		c.rows, c.memo = c.compute(n), c.memory()
	}
	m := b.model(c.d.Name)
	got, err := m.Put(ctx, c.p, c.rows, c.put)
	b.must(err)
	if got.Tokens != n {
		b.t.Fatalf("%s: put stored %d of %d tokens", name, got.Tokens, n)
	}
	b.step(name)
	c.learn(b.t, m)
}

// learn restores what was just put, and keeps it as what this prompt's rows look like.
func (c *chat) learn(t *testing.T, m *db.Model) {
	t.Helper()
	n := len(c.p.Tokens)
	got, _, err := c.restore(m)
	if err != nil || got != n {
		t.Fatalf("%s: %d of %d tokens restored, %v", c.name, got, n, err)
	}
	c.exact = make([][]byte, len(c.d.Tensors))
	for i := range c.d.Tensors {
		c.exact[i] = c.rows[i].Pieces[0].Mem
		if c.put.Codec == quant.Q8_0 {
			c.exact[i] = slices.Clone(c.memo[i].Pieces[0].Mem)
			if off := farthest(c.exact[i], c.rows[i].Pieces[0].Mem); off > 0.01 {
				t.Fatalf("%s: int8 is off by %g", c.name, off)
			}
		}
	}
	if bad := c.compare(n); bad != "" {
		t.Fatal(bad)
	}
}

func (b *builder) ref(name, chat string, n int) {
	c := b.chats[chat]
	b.must(b.model(c.d.Name).SetRef(ctx, name, c.p.Prefix(n), db.RefOptions{Pinned: true, Meta: []byte("about " + name)}))
	b.step("")
}

func (b *builder) checkpoint() {
	b.must(b.s.Checkpoint(ctx))
	b.step("")
}

// rest waits until nothing is left to do in the background.
func (b *builder) rest() {
	b.t.Helper()
	for range 1000 {
		st, err := b.s.Stats()
		b.must(err)
		if st.BloomBytes > 0 && st.PendingRecords == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.t.Fatal("the store does not come to rest")
}

// step notes which bytes of the log the last operation wrote.
func (b *builder) step(puts string) {
	names, err := filepath.Glob(filepath.Join(b.dir, "wal", "*.wal"))
	b.must(err)
	slices.Sort(names)
	last := names[len(names)-1]
	mem, err := os.ReadFile(last)
	b.must(err)
	s := step{file: "wal/" + filepath.Base(last), to: (lastByte(mem) + 8) &^ 7, puts: puts, head: last != b.wal}
	if !s.head {
		s.from = b.steps[len(b.steps)-1].to
	}
	b.wal = last
	b.steps = append(b.steps, s)
}

// know opens a copy of a base and finds out what it gives back.
func (b *builder) know(x *base) {
	t := b.t
	dir := filepath.Join(memdir.Dir(t), x.name)
	b.must(x.files.lay(dir))
	o := options()
	o.ReadOnly = true
	s, err := db.Open(ctx, dir, o)
	b.must(err)
	defer s.Close()
	for _, name := range []string{
		"plain", "alice", "bob", "turn 1", "turn 2", "turn 3", "leased", "images", "adapted", "late", "window", "window 2", "state",
		"state 2", "opaque", "opaque 2", "retired",
	} {
		c := *b.chats[name]
		c.memo = c.memory()
		x.chats = append(x.chats, &c)
		m, err := s.Model(c.d.Fingerprint())
		if name == "retired" {
			c.lost = true
			if err == nil {
				t.Fatal("a retired model is there")
			}
			continue
		}
		b.must(err)
		if c.want, _, err = c.restore(m); err != nil {
			t.Fatal(err)
		}
		if bad := c.compare(c.want); bad != "" {
			t.Fatal(bad)
		}
		c.lost = name == "bob" || name == "leased"
		if n := len(c.p.Tokens); c.lost != (c.want < n) {
			t.Fatalf("%s: %s has %d of %d tokens", x.name, name, c.want, n)
		}
		c.rests = map[int][]use{}
		b.must(c.lookUp(m, c.want))
	}
	x.lookInto(t, s, dir)
}
