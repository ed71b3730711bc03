package recovery_test

import (
	"context"
	"maps"
	"strconv"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// crashRef is a ref as it was set.
type crashRef struct {
	chat, n int
}

// crashJournal says what must be found, and what must not be.
type crashJournal struct {
	k        crashMode
	have     []int               // by chat: what is stored of it
	safe     []int               // by chat: what of it a power cut in Process mode leaves
	refs     map[string]crashRef // that are set
	refSafe  map[string]crashRef // that a power cut in Process mode leaves
	notes    map[string]string   // by model and name
	noteSafe map[string]string   // that a power cut in Process mode leaves
	retired  map[string]int      // by model: how many operations there were before it was retired; older notes are gone for good
	dead     map[kv.Key]string   // deleted blocks, and by what
	gone     map[int]int         // by chat: from which position on no byte of it is in any file
	wiped    map[int]int         // the same, once a Sync says so
	flight   *crashOp            // under way when the crash came, or failed
	cut      bool                // the power was lost
	hollow   bool                // refs were found whose prefix a power cut took
	log      []string
}

func newCrashJournal(k crashMode) *crashJournal {
	n := len(crashChats())
	return &crashJournal{
		k: k, have: make([]int, n), safe: make([]int, n), refs: map[string]crashRef{},
		refSafe: map[string]crashRef{}, notes: map[string]string{}, noteSafe: map[string]string{}, retired: map[string]int{}, dead: map[kv.Key]string{}, gone: map[int]int{}, wiped: map[int]int{},
	}
}

// crashNotes are all notes, by model and name.
func crashNotes(w *crashRun) map[string]string {
	out := map[string]string{}
	for _, m := range w.models {
		names, err := db.Collect(m.Notes())
		if err != nil {
			panic(err)
		}
		for _, name := range names {
			value, err := m.Note(name)
			if err != nil {
				panic(err)
			}
			out[m.Descriptor().Name+" "+name] = string(value)
		}
	}
	return out
}

func crashBlocks(s *db.Store) map[kv.Key]db.Block {
	out := map[kv.Key]db.Block{}
	for b, err := range s.Blocks(context.Background()) {
		if err == nil && b.Group == 0 {
			out[b.Key] = b
		}
	}
	return out
}

// deleted reports whether it was o that took a block, and not an eviction at the same time.
func (w *crashRun) deleted(o crashOp, b db.Block, before map[kv.Key]db.Block) bool {
	x := crashChats()[o.chat]
	switch o.kind {
	case "retire":
		return b.Model == x.d.Fingerprint()
	case "scope":
		return b.Scope == storetest.Engine(w.s).Hasher.Scope(o.name)
	}
	p := x.p.Prefix(o.n)
	c := storetest.Engine(w.s).Hasher.Chain(x.d.Fingerprint(), x.d.BlockTokens, &p)
	for {
		if b.Parent == c.Parent(c.Len()-1) {
			return b.First+b.Tokens >= o.n && b.Key == c.Key(c.Len()-1) || b.First+b.Tokens > o.n && b.Model == x.d.Fingerprint() && b.Scope == c.Scope(c.Len()-1)
		}
		up, ok := before[b.Parent]
		if !ok {
			return false
		}
		b = up
	}
}

// put notes that what was deleted of a chat may be there again.
func (j *crashJournal) put(w *crashRun, o crashOp) {
	p := crashChats()[o.chat].p.Prefix(o.n)
	m := w.model(o.chat)
	c := storetest.Engine(w.s).Hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p)
	for i := range c.Len() {
		delete(j.dead, c.Key(i))
	}
	j.mayReturn(o)
}

// mayReturn notes that bytes of a chat that were deleted may be in files again.
func (j *crashJournal) mayReturn(o crashOp) {
	for _, from := range []map[int]int{j.gone, j.wiped} {
		if at, ok := from[o.chat]; ok && at < o.n {
			if from[o.chat] = o.n; o.n >= len(crashChats()[o.chat].p.Tokens) {
				delete(from, o.chat)
			}
		}
	}
}

// takes reports whether an operation may take something of a chat away: all from what position on.
func (o *crashOp) takes(chat int, small bool) (from int, takes bool) {
	x, mine := crashChats()[chat], crashChats()[o.chat]
	const shared = crashSystem / crashBlock * crashBlock // what other chats give of a half shared block goes with them
	switch o.kind {
	case "delete":
		if chat == o.chat { // the block with the last token goes
			if from = 0; x.p.ScopeStart > 0 && o.n > x.p.ScopeStart {
				from = x.p.ScopeStart
			}
			return from + (o.n-1-from)/crashBlock*crashBlock, true
		}
		return shared, x.d.Name == mine.d.Name
	case "scope":
		if x.p.Scope == o.name {
			return shared, true
		}
	case "retire":
		return 0, x.d.Name == mine.d.Name
	case "shrink":
		return 0, true
	case "put", "extend", "compact":
		return 0, small
	}
	return 0, false
}

// done notes what an acknowledged operation has left.
func (j *crashJournal) done(w *crashRun, o crashOp, err error) {
	switch o.kind {
	case "ref", "unref":
		delete(j.refSafe, o.name)
	case "note":
		delete(j.noteSafe, o.note())
	case "retire":
		if err == nil {
			j.retired[crashChats()[o.chat].d.Name] = len(j.log)
		}
	case "delete":
		if err == nil {
			j.gone[o.chat] = o.n - 1 // tails that end before it stay
		}
	case "scope":
		for c, x := range crashChats() {
			if err == nil && x.p.Scope == o.name {
				j.gone[c] = crashSystem
			}
		}
	case "sync":
		if err == nil {
			for c, at := range j.gone {
				j.wiped[c] = at
			}
		}
	}
	if w.s == nil || w.sparse { // closed
		if o.kind == "close" && err == nil {
			copy(j.safe, j.have)
		}
		return
	}
	if o.keep > 0 { // what it gave up for a state that a power cut takes
		j.safe[o.chat] = 0
	}
	for c, x := range crashChats() {
		n, _, perr := w.model(c).Probe(context.Background(), x.p, db.MatchOptions{})
		if perr != nil {
			panic(perr)
		}
		j.have[c] = n
		if n < j.safe[c] && x.d.Name == "opaque" { // the longest state that is left may have come later
			j.safe[c] = 0
		}
		j.safe[c] = min(j.safe[c], n)
		if from, takes := o.takes(c, false); takes && o.kind == "delete" { // behind that may be a tail that came later
			j.safe[c] = min(j.safe[c], from)
		}
	}
	clear(j.refs)
	refs, rerr := db.Collect(w.s.Refs())
	if rerr != nil {
		panic(rerr)
	}
	for _, r := range refs {
		chat, _ := strconv.Atoi(string(r.Meta))
		j.refs[r.Name] = crashRef{chat, r.Tokens}
	}
	for name := range j.refSafe {
		if _, ok := j.refs[name]; !ok {
			delete(j.refSafe, name)
		}
	}
	j.notes = crashNotes(w)
	for name, value := range j.noteSafe {
		if j.notes[name] != value {
			delete(j.noteSafe, name)
		}
	}
	switch o.kind {
	case "checkpoint", "compact", "trim", "suspend", "reopen", "close":
		if err == nil {
			copy(j.safe, j.have)
			for name, r := range j.refs {
				j.refSafe[name] = r
			}
			maps.Copy(j.noteSafe, j.notes)
		}
	case "sync":
		if err == nil {
			copy(j.safe, j.have)
		}
	}
}

// least is what must be found of a chat.
func (j *crashJournal) least(chat int, weak bool) int {
	n := j.have[chat]
	if weak {
		n = j.safe[chat]
	}
	if j.flight != nil {
		if from, takes := j.flight.takes(chat, j.k.small); takes {
			n = min(n, from)
		}
		if weak && j.flight.keep > 0 && chat == j.flight.chat { // it gives up states for one that a power cut takes
			n = 0
		}
	}
	if n <= crashSystem { // of what it shares with others a part of its own may take the place
		n = min(n, crashSystem/crashBlock*crashBlock)
	}
	if crashChats()[chat].d.Name == "opaque" && n < j.have[chat] { // a state is there at its position or not at all
		n = 0
	}
	return n
}
