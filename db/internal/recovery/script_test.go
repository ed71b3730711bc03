package recovery_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

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
