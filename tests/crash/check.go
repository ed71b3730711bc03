package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

// findingKind is what is wrong.
type findingKind string

const (
	findLost        findingKind = "lost"        // what was acknowledged is not there
	findWrong       findingKind = "wrong"       // what is there is not what was put
	findResurrected findingKind = "resurrected" // what was deleted is there
	findVerify      findingKind = "verify"      // Verify reports damage
	findClosure     findingKind = "closure"     // a block without its prefix
	findBudget      findingKind = "budget"      // more is in use than allowed
	findError       findingKind = "error"       // an operation failed that must not
)

// finding is one thing that must not be.
type finding struct {
	Kind findingKind
	Text string
	Op   int // of the journal, which demands otherwise; 0: none
}

// checkOrder is what a process is to check. The demand comes on its standard input.
type checkOrder struct {
	Mode      mode
	WorldSeed uint64
	Went      bool // left.Went
	Steps     []checkStep
}

// checkStep is one opening of a store.
type checkStep struct {
	What     string
	Dir      string
	Remove   []string // files that are removed first: the store must do without
	ReadOnly bool
	// Verify names a folder that is verified before Dir is opened: Dir itself, or a copy of it. Reading a hole through a map
	// fills it on some file systems, and what a store occupies is looked at.
	Verify string
	After  string // where a copy is verified after Dir was closed; empty: none
	Budget bool   // what Dir occupies says something: it is no copy
	Exit   bool   // leave it as a killed process does
}

// checked is what a check found.
type checked struct {
	Findings []finding
	Restores int
}

// checker compares stores with a demand.
type checker struct {
	o    checkOrder
	w    *world
	want demand
	out  checked
	bufs buffers
	step string
}

// check is the process that does it.
func check(o checkOrder, in io.Reader, out io.Writer) {
	c := &checker{o: o, w: newWorld(o.WorldSeed, o.Mode.BlockTokens)}
	if err := json.NewDecoder(in).Decode(&c.want); err != nil {
		fmt.Fprintln(os.Stderr, "crash: demand:", err)
		os.Exit(2)
	}
	for _, s := range o.Steps {
		c.step = s.What
		if err := c.run(s); err != nil {
			c.find(findError, 0, "%v", err)
		}
		if len(c.out.Findings) > 0 {
			break
		}
	}
	if err := json.NewEncoder(out).Encode(c.out); err != nil {
		os.Exit(2)
	}
	os.Exit(0) // whatever is still open ends as a killed process does
}

func (c *checker) find(kind findingKind, op int, format string, args ...any) {
	c.out.Findings = append(c.out.Findings, finding{kind, c.step + ": " + fmt.Sprintf(format, args...), op})
}

func (c *checker) run(s checkStep) error {
	for _, name := range s.Remove {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if s.Verify != "" {
		c.verify(s.Verify, "before it is opened")
	}
	o := c.o.Mode.options()
	o.ReadOnly = s.ReadOnly
	store, err := db.Open(ctx, s.Dir, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := c.compare(store, s.Budget); err != nil {
		return err
	}
	if s.Exit {
		return nil
	}
	if err := store.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if s.After != "" {
		if s.After != s.Dir {
			if err := copyStore(s.Dir, s.After); err != nil {
				return err
			}
		}
		c.verify(s.After, "after it was closed")
	}
	return nil
}

func (c *checker) verify(dir, when string) {
	rep, err := admin.Verify(ctx, dir, admin.VerifyOptions{})
	if err != nil {
		c.find(findVerify, 0, "verify %s: %v", when, err)
	}
	for i, d := range rep.Damage {
		if i < 5 && !(c.o.Went && strings.HasSuffix(d.File, ".wal")) {
			c.find(findVerify, 0, "verify %s: %v", when, d)
		}
	}
}

// compare holds an open store against the demand.
func (c *checker) compare(store *db.Store, budget bool) error {
	handles := make([]*db.Model, len(c.w.models))
	for i, d := range c.w.models {
		m, err := store.Register(ctx, d)
		if err != nil && !errors.Is(err, db.ErrReadOnly) { // read-only, one that is not registered has nothing stored
			return fmt.Errorf("model %s: %w", d.Name, err)
		}
		handles[i] = m.Model
	}
	for i, x := range c.w.chats {
		n, reason := 0, db.Reason{}
		if m := handles[x.model]; m != nil {
			var err error
			if n, reason, err = c.restore(m, x, x.p); err != nil {
				return err
			}
		}
		if n < c.want.Least[i] {
			c.find(findLost, c.want.Why[i], "chat %d: %d tokens are found (%v), operation %d put %d that nothing took", i, n, reason, c.want.Why[i], c.want.Least[i])
		}
		if n > c.want.Most[i] {
			c.find(findResurrected, c.want.Whose[i], "chat %d: %d tokens are found, operation %d left no more than %d", i, n, c.want.Whose[i], c.want.Most[i])
		}
	}
	if err := c.refs(store, handles); err != nil {
		return err
	}
	if err := c.notes(handles); err != nil {
		return err
	}
	if err := c.closure(store); err != nil {
		return err
	}
	s, err := store.Stats()
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	if budget && s.DiskBytes > s.Budget {
		c.find(findBudget, 0, "%d bytes are in use, of a budget of %d", s.DiskBytes, s.Budget)
	}
	return nil
}

// restore restores what is stored of a prompt and compares every row.
func (c *checker) restore(m *db.Model, x *chat, p kv.Prompt) (int, db.Reason, error) {
	match, err := m.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		return 0, db.Reason{}, fmt.Errorf("match of chat %d: %w", x.id, err)
	}
	defer match.Close()
	promised, why := match.Tokens(), match.Reason()
	n, reason, err := x.compare(match, &c.bufs)
	c.out.Restores++
	if wrong := (*wrongError)(nil); errors.As(err, &wrong) {
		c.find(findWrong, 0, "chat %d: %v", x.id, err)
	} else if err != nil {
		return 0, reason, fmt.Errorf("restore of chat %d: %w", x.id, err)
	} else if reason.Code == db.NoReason {
		c.find(findWrong, 0, "chat %d: %d tokens are restored, and nothing says why not more", x.id, n)
	}
	if n < promised && !c.o.Mode.Small { // nothing is evicted meanwhile
		c.find(findLost, 0, "chat %d: %d tokens match (%v), %d can be restored (%v)", x.id, promised, why, n, reason)
	}
	return n, reason, nil
}

func (c *checker) refs(store *db.Store, handles []*db.Model) error {
	for _, want := range c.want.Refs {
		got, err := store.Ref(want.Name)
		switch {
		case err != nil && !errors.Is(err, db.ErrNotFound):
			return fmt.Errorf("ref %s: %w", want.Name, err)
		case want.Gone && want.Back && err == nil:
			c.find(findResurrected, want.ID, "ref %s is back, which operation %d took: %d tokens, set at %s", want.Name, want.ID, got.Tokens, got.Set)
		case want.Gone && err == nil:
			c.find(findWrong, want.ID, "ref %s is there, whose time is over: until %s", want.Name, got.Expires)
		case want.Gone:
		case err != nil:
			c.find(findLost, want.ID, "ref %s of operation %d is lost: %d tokens of chat %d", want.Name, want.ID, want.N, want.Chat)
		default:
			c.ref(handles, want, got)
		}
	}
	return nil
}

// ref compares a ref that is there.
func (c *checker) ref(handles []*db.Model, want refDemand, got db.Ref) {
	x := c.w.chats[want.Chat]
	if got.Tokens != want.N || got.Pinned != want.Pinned || got.Priority != want.Priority || got.Expires.IsZero() == want.Expires ||
		got.Model != x.d.Fingerprint() || string(got.Meta) != string(want.Meta) {
		got.Meta = got.Meta[:min(len(got.Meta), 8)]
		c.find(findWrong, want.ID, "ref %s is %+v, set by operation %d to %d tokens of chat %d, pinned %t, priority %d, %d bytes of metadata",
			want.Name, got, want.ID, want.N, want.Chat, want.Pinned, want.Priority, len(want.Meta))
	}
	if !want.Pinned && c.o.Mode.Small || c.want.Weak || handles[x.model] == nil {
		return
	}
	n, reason, err := c.restore(handles[x.model], x, x.p.Prefix(want.N))
	if err != nil || n < want.N {
		c.find(findLost, want.ID, "ref %s, pinned %t, of operation %d is on %d tokens of chat %d: %d are found (%v), %v",
			want.Name, want.Pinned, want.ID, want.N, want.Chat, n, reason, err)
	}
}

// closure checks that every block's prefix is stored, and that every record lies beside one with its tokens.
func (c *checker) closure(store *db.Store) error {
	bases := map[kv.Key]db.Block{}
	var all []db.Block
	for b, err := range store.Blocks(ctx) {
		if err != nil {
			return fmt.Errorf("blocks: %w", err)
		}
		if b.Group == 0 {
			bases[b.Key] = b
		}
		all = append(all, b)
	}
	if c.o.Mode.Small { // leaves may be evicted between two pages of that list
		still := map[kv.Key]bool{}
		for b, err := range store.Blocks(ctx) {
			if err != nil {
				return fmt.Errorf("blocks: %w", err)
			}
			still[b.Key] = true
		}
		kept := all[:0]
		for _, b := range all {
			if still[b.Key] {
				kept = append(kept, b)
			}
		}
		all = kept
	}
	for _, b := range all {
		base, ok := bases[b.Key]
		parent, below := bases[b.Parent]
		switch {
		case !ok:
			c.find(findClosure, 0, "group %d of block %s at %d is stored without its tokens", b.Group, b.Key, b.First)
		case base.First != b.First || base.Tokens != b.Tokens || base.Parent != b.Parent || base.Model != b.Model || base.Scope != b.Scope:
			c.find(findClosure, 0, "group %d of block %s at %d does not fit its tokens: %+v, %+v", b.Group, b.Key, b.First, b, base)
		case b.First > 0 && !below:
			c.find(findClosure, 0, "block %s at %d is stored without its prefix", b.Key, b.First)
		case b.First > 0 && (parent.First+parent.Tokens != b.First || parent.Model != b.Model):
			c.find(findClosure, 0, "block %s at %d hangs from one that ends at %d", b.Key, b.First, parent.First+parent.Tokens)
		case b.Damaged:
			c.find(findWrong, 0, "block %s at %d is flagged as damaged", b.Key, b.First)
		}
	}
	return nil
}
