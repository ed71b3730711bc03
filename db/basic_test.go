package db_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) { memdir.Main(m) }

func TestToTheToken(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	d.BlockTokens = 64
	m := storetest.Model(t, s, d)
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 520)})
	asked := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 520)[:400], crashtest.Tokens(2, 120))}
	reason := storetest.Expect(t, m, asked, 400)
	if reason.Code != db.Diverged || reason.At != 400 {
		t.Errorf("reason %v, expected a divergence at 400", reason)
	}
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 520)}, 520)
	reason = storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 600)}, 520)
	if reason.Code != db.Ends || reason.At != 520 {
		t.Errorf("reason %v, expected the end at 520", reason)
	}
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 100)}, 100)
	reason = storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 100)}, 0)
	if reason.Code != db.NothingStored && reason.Code != db.Diverged {
		t.Errorf("reason %v", reason)
	}
}

func TestSpans(t *testing.T) {
	_, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 200), Spans: []kv.Span{{Start: 70, Len: 60, Hash: kv.Hash{1}}}}
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 200)
	other := p
	other.Spans = []kv.Span{{Start: 70, Len: 60, Hash: kv.Hash{2}}}
	if r := storetest.Expect(t, m, other, 70); r.Code != db.Diverged && r.Code != db.InSpan {
		t.Errorf("reason %v", r)
	}
	bare := kv.Prompt{Tokens: p.Tokens}
	storetest.Expect(t, m, bare, 70)
	// Diverges in a token inside the span: up to the span.
	inside := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:100], crashtest.Tokens(9, 100)), Spans: p.Spans}
	storetest.Expect(t, m, inside, 70)
	// A limit inside the span.
	x := storetest.Must(m.Match(t.Context(), p, db.MatchOptions{Limit: 100}))(t)
	defer x.Close()
	if x.Tokens() != 70 || x.Reason().Code != db.InSpan {
		t.Errorf("limit inside a span: %d tokens, %v", x.Tokens(), x.Reason())
	}
}

func TestIdentity(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, storetest.Model(t, s, d), p)
	for name, change := range map[string]func(*kv.Descriptor){
		"weights":      func(d *kv.Descriptor) { d.Weights[0]++ },
		"rope base":    func(d *kv.Descriptor) { d.RoPE.Base = 500000 },
		"rotation":     func(d *kv.Descriptor) { d.Rotated = true },
		"tokenizer":    func(d *kv.Descriptor) { d.Tokenizer[3]++ },
		"architecture": func(d *kv.Descriptor) { d.Architecture = "other" },
		"shard":        func(d *kv.Descriptor) { d.Shards = 2 },
		"dtype": func(d *kv.Descriptor) {
			d.Tensors = append([]kv.Tensor(nil), d.Tensors...)
			for i := range d.Tensors {
				d.Tensors[i].DType = kv.BF16
			}
		},
	} {
		other := crashtest.Plain()
		change(&other)
		m := storetest.Must(s.Register(t.Context(), other))(t)
		if len(m.Differs) == 0 {
			t.Errorf("%s: no difference was explained", name)
		}
		if n, _ := storetest.Restore(t, m.Model, p); n != 0 {
			t.Errorf("%s: %d tokens of another model were handed out", name, n)
		}
	}
	m := storetest.Model(t, s, d)
	storetest.Expect(t, m, p, 100)
	adapted := p
	adapted.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}}
	storetest.Expect(t, m, adapted, 0)
	storetest.Put(t, m, adapted)
	storetest.Expect(t, m, adapted, 100)
	scaled := p
	scaled.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 0.5}}
	storetest.Expect(t, m, scaled, 0)
	renamed := d
	renamed.Name = "another name"
	storetest.Expect(t, storetest.Model(t, s, renamed), p, 100)
}

func TestScopes(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	system, chat := crashtest.Tokens(1, 100), crashtest.Tokens(2, 200)
	alice := kv.Prompt{Tokens: crashtest.Concat(system, chat), Scope: "alice", ScopeStart: 100}
	bob := kv.Prompt{Tokens: crashtest.Concat(system, chat), Scope: "bob", ScopeStart: 100}
	storetest.Put(t, m, alice)
	storetest.Expect(t, m, alice, 300)
	storetest.Expect(t, m, bob, 100) // the system prompt, to the token, and nothing after it
	before := storetest.Stats(t, s).Blocks
	storetest.Put(t, m, bob)
	if added := storetest.Stats(t, s).Blocks - before; added != 13 {
		t.Errorf("bob's 200 tokens made %d blocks, expected 13: the system prompt is stored once", added)
	}
	wholly := kv.Prompt{Tokens: crashtest.Concat(system, chat), Scope: "carol"}
	storetest.Expect(t, m, wholly, 0)
	storetest.Put(t, m, wholly)
	storetest.Expect(t, m, wholly, 300)
	del, err := s.DeleteScope(t.Context(), "alice")
	if err != nil || del.Blocks != 13 {
		t.Fatalf("deleted %+v, %v", del, err)
	}
	storetest.Expect(t, m, alice, 100)
	storetest.Expect(t, m, bob, 300)
	storetest.Expect(t, m, wholly, 300)
}

// A scope without a name has no session, and nothing that could be deleted as its own: what scopes share stays. By its id, as it is listed, a
// scope goes like by its name.
func TestScopeWithoutName(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	own := kv.Prompt{Tokens: p.Tokens, Scope: "alice", ScopeStart: 50}
	storetest.Put(t, m, p)
	storetest.Put(t, m, own)
	appendTo(t, openSession(t, s, "alice"), "one")
	if _, err := s.OpenSession(t.Context(), ""); err == nil {
		t.Error("a session without a scope")
	}
	if took, err := s.DeleteScope(t.Context(), ""); err == nil {
		t.Errorf("the scope without a name is deleted: %+v", took)
	}
	if took, err := s.DeleteScopeID(t.Context(), kv.ScopeID{}); err == nil {
		t.Errorf("what scopes share is deleted: %+v", took)
	}
	storetest.Expect(t, m, own, 100)
	all, err := db.Collect(s.Sessions(t.Context()))
	if err != nil || len(all) != 1 {
		t.Fatalf("sessions %+v, %v", all, err)
	}
	if took, err := s.DeleteScopeID(t.Context(), all[0].Scope); err != nil || took.Sessions != 1 || took.Blocks == 0 {
		t.Errorf("%+v, %v", took, err)
	}
	storetest.Expect(t, m, own, 50)
	storetest.Expect(t, m, p, 100)
}

func TestConversationsShareTheirSystemPrompt(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	d.BlockTokens = 64
	m := storetest.Model(t, s, d)
	system := crashtest.Tokens(1, 500)
	for i := range 20 {
		tokens := crashtest.Concat(system, crashtest.Tokens(100+i, 40))
		storetest.Put(t, m, kv.Prompt{Tokens: tokens[:520]})
		storetest.Put(t, m, kv.Prompt{Tokens: tokens[:540]}) // the next turn takes the place of the last one's tail
	}
	blocks := storetest.Stats(t, s).Blocks
	if want := int64(7 + 20*2); blocks != want {
		t.Errorf("%d blocks, expected %d: 7 shared, and of each conversation the block where it parts and a tail", blocks, want)
	}
}

func TestWindow(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Windowed(40)
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 200)}
	rows := storetest.Filled(d, &p, 0, 200)
	for i, tensor := range d.Tensors { // the runtime still has the last 60 rows of the window
		if tensor.Group == 1 {
			rows[i] = rows[i].Slice(tensor, 140, 200)
		}
	}
	storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{}))(t)
	storetest.Expect(t, m, p, 200)
	storetest.Expect(t, m, p.Prefix(190), 190)
	storetest.Expect(t, m, p.Prefix(180), 180)
	if r := storetest.Expect(t, m, p.Prefix(179), 0); r.Code != db.WindowMissing {
		t.Errorf("reason %v", r)
	}
	// The rows that were missing are added to blocks that are stored already.
	all := storetest.Filled(d, &p, 0, 200)
	for i, tensor := range d.Tensors {
		if tensor.Group == 0 {
			all[i] = kv.TensorRows{}
		}
	}
	storetest.Must(m.Put(t.Context(), p, all, db.PutOptions{}))(t)
	for n := 16; n <= 200; n++ {
		storetest.Expect(t, m, p.Prefix(n), n)
	}
	res := storetest.Put(t, m, p)
	if res.Records != 0 {
		t.Errorf("a put of what is stored wrote %d records", res.Records)
	}
}

func TestOpaqueState(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Opaque()
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 200)}
	for _, n := range []int{50, 64, 133} {
		storetest.Put(t, m, p.Prefix(n))
	}
	for _, c := range []struct{ ask, want int }{{200, 133}, {133, 133}, {132, 64}, {64, 64}, {63, 50}, {50, 50}, {49, 0}} {
		storetest.Expect(t, m, p.Prefix(c.ask), c.want)
	}
	x := storetest.Match(t, m, p)
	defer x.Close()
	if n, err := x.StateBytes(0); err != nil || n != int64(len(storetest.Truth(d, &p, 0, 132))) {
		t.Errorf("state has %d bytes, %v", n, err)
	}
}

func TestExtendFromWhatTheCallerHas(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 200)}
	storetest.Put(t, m, p.Prefix(70))
	x := storetest.Match(t, m, p)
	defer x.Close()
	res, err := x.Extend(t.Context(), p, storetest.Filled(d, &p, 70, 200), db.PutOptions{})
	if err != nil || res.Tokens != 200 {
		t.Fatalf("%+v, %v", res, err)
	}
	storetest.Expect(t, m, p, 200)
	// Rows that start behind what is stored.
	q := kv.Prompt{Tokens: crashtest.Tokens(2, 100)}
	_, err = m.Put(t.Context(), q, storetest.Filled(d, &q, 40, 100), db.PutOptions{})
	var missing *db.NotStoredError
	if !errors.As(err, &missing) || !errors.Is(err, db.ErrNotStored) {
		t.Fatalf("got %v", err)
	}
	storetest.Expect(t, m, q, 0)
}

func TestReopen(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 300)}
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "system", p.Prefix(100), db.RefOptions{Pinned: true, Meta: []byte("mine")}))
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 300)
	r, err := s.Ref("system")
	if err != nil || !r.Pinned || r.Tokens != 100 || string(r.Meta) != "mine" {
		t.Fatalf("ref %+v, %v", r, err)
	}
}
