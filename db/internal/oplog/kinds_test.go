package oplog

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// Decode knows every operation that this package declares: each type with a Kind, and each number.
func TestKindsAreWhole(t *testing.T) {
	types, numbers := declared(t)
	var listed []string
	for i, op := range Kinds() {
		if op == nil || int(op.Kind()) != i+1 {
			t.Fatalf("%#v is in the place of kind %d", op, i+1)
		}
		listed = append(listed, reflect.TypeOf(op).Name())
	}
	slices.Sort(listed)
	if !slices.Equal(types, listed) || len(numbers) != len(listed) {
		t.Errorf("declared are %v with the numbers %v, listed %v", types, numbers, listed)
	}
}

// declared are the types of this package with a method Kind, and the constants that begin with Kind.
func declared(t *testing.T) (types, numbers []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if m, ok := d.(*ast.FuncDecl); ok && m.Recv != nil && m.Name.Name == "Kind" {
				types = append(types, m.Recv.List[0].Type.(*ast.Ident).Name)
			}
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Kind") {
						numbers = append(numbers, name.Name)
					}
				}
			}
		}
	}
	slices.Sort(types)
	return types, numbers
}

// Each operation says what it does to index and catalog, which numbers it gives, which places it names, what it may use on a full disk, and
// what it is called.
func TestWhatOperationsDo(t *testing.T) {
	for _, want := range []struct {
		kind             uint8
		room             Room
		index, catalog   string
		stored, dead     int
		listed           int
		seq, segment, at bool // it gives such a number
	}{
		{KindSnapshot, Last, "RemoveListed", "Become", 0, 0, 1, true, true, true},
		{KindPut, Ordinary, "Put", "Bury barrier", 2, 2, 0, true, true, false},
		{KindRemove, Reserved, "Remove RankRef RankRef", "Bury barrier DropRef DropRef Deleted", 0, 2, 0, true, false, false},
		{KindMove, Ordinary, "Move", "Bury barrier", 1, 1, 0, true, true, false},
		{KindModel, Ordinary, "", "SetModel", 0, 0, 0, false, false, true},
		{KindRetire, Reserved, "DropModel", "DropModel", 0, 0, 0, false, true, false},
		{KindRef, Ordinary, "RankRef RankBlock", "SetRef", 0, 0, 0, false, false, false},
		{KindUnref, Reserved, "RankRef", "DropRef", 0, 0, 0, false, false, false},
		{KindFlag, Ordinary, "SetFlags", "Flag", 0, 0, 0, false, false, false},
		{KindNote, Ordinary, "", "SetNote", 0, 0, 0, false, false, false},
		{KindBarrier, Last, "", "", 0, 0, 0, false, false, false},
	} {
		op, err := Decode(want.kind, Encode(samples()[want.kind-1]))
		if err != nil {
			t.Fatal(err)
		}
		var ix indexCalls
		var c catalogCalls
		if err := op.Replay(&ix); err != nil {
			t.Error(err)
		}
		op.Change(&c)
		if got := strings.Join(ix, " "); got != want.index {
			t.Errorf("%s: to the index it does %q, expected %q", op, got, want.index)
		}
		if got := strings.Join(c, " "); got != want.catalog {
			t.Errorf("%s: to the catalog it does %q, expected %q", op, got, want.catalog)
		}
		uses := map[Use]int{}
		op.Places(func(_ loc.Loc, is Use) { uses[is]++ })
		expect := map[Use]int{UseStored: want.stored, UseDead: want.dead, UseListed: want.listed}
		maps.DeleteFunc(expect, func(_ Use, n int) bool { return n == 0 })
		if !maps.Equal(uses, expect) {
			t.Errorf("%s: it names %v, expected %v", op, uses, expect)
		}
		if n := op.Numbers(); n.Seq > 0 != want.seq || n.Segment > 0 != want.segment || n.Clock > 0 != want.at {
			t.Errorf("%s: it gives %+v", op, n)
		}
		if op.Room() != want.room {
			t.Errorf("%s: room %d, expected %d", op, op.Room(), want.room)
		}
		name := strings.ToLower(reflect.TypeOf(op).Name())
		if s := op.String(); !strings.HasPrefix(s, name+" ") || len(s) > 250 || strings.Contains(s, "\n") || strings.Contains(s, "meta") {
			t.Errorf("kind %d prints %q", want.kind, s)
		}
	}
}

// indexCalls lists what an operation does to an index.
type indexCalls []string

func (x *indexCalls) did(what string) error {
	*x = append(*x, what)
	return nil
}

func (x *indexCalls) Put([]index.Entry, []Dead) error              { return x.did("Put") }
func (x *indexCalls) Remove([]Dead, uint64) error                  { return x.did("Remove") }
func (x *indexCalls) RemoveListed([]loc.Loc) error                 { return x.did("RemoveListed") }
func (x *indexCalls) Move(Move) error                              { return x.did("Move") }
func (x *indexCalls) SetFlags(kv.Key, uint8, loc.Loc, uint8) error { return x.did("SetFlags") }
func (x *indexCalls) DropModel(kv.Fingerprint, []uint64) error     { return x.did("DropModel") }
func (x *indexCalls) RankBlock(kv.Key)                             { x.did("RankBlock") }
func (x *indexCalls) RankRef(string)                               { x.did("RankRef") }

// catalogCalls lists what an operation does to a catalog.
type catalogCalls []string

func (x *catalogCalls) did(what string) { *x = append(*x, what) }

func (x *catalogCalls) Become(Snapshot)                    { x.did("Become") }
func (x *catalogCalls) SetModel(Model)                     { x.did("SetModel") }
func (x *catalogCalls) DropModel(kv.Fingerprint, []uint64) { x.did("DropModel") }
func (x *catalogCalls) SetRef(Ref)                         { x.did("SetRef") }
func (x *catalogCalls) DropRef(string)                     { x.did("DropRef") }
func (x *catalogCalls) SetNote(Note)                       { x.did("SetNote") }
func (x *catalogCalls) Deleted()                           { x.did("Deleted") }
func (x *catalogCalls) Flag(kv.Key)                        { x.did("Flag") }

func (x *catalogCalls) Bury(_ []Dead, barrier bool) {
	if barrier {
		x.did("Bury barrier")
	} else {
		x.did("Bury")
	}
}

// What was evicted waits for its frame alone. What was deleted waits for a barrier, as the test above says.
func TestEvictedWaitsForNoBarrier(t *testing.T) {
	var c catalogCalls
	Remove{Dead: []Dead{{}}}.Change(&c)
	if got := strings.Join(c, " "); got != "Bury" {
		t.Errorf("an eviction does %q", got)
	}
}
