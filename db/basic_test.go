package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

func TestToTheToken(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := plain()
	d.BlockTokens = 64
	m := model(t, s, d)
	put(t, m, kv.Prompt{Tokens: tokens(1, 520)})
	asked := kv.Prompt{Tokens: concat(tokens(1, 520)[:400], tokens(2, 120))}
	reason := expect(t, m, asked, 400)
	if reason.Code != Diverged || reason.At != 400 {
		t.Errorf("reason %v, expected a divergence at 400", reason)
	}
	expect(t, m, kv.Prompt{Tokens: tokens(1, 520)}, 520)
	reason = expect(t, m, kv.Prompt{Tokens: tokens(1, 600)}, 520)
	if reason.Code != Ends || reason.At != 520 {
		t.Errorf("reason %v, expected the end at 520", reason)
	}
	expect(t, m, kv.Prompt{Tokens: tokens(1, 100)}, 100)
	reason = expect(t, m, kv.Prompt{Tokens: tokens(3, 100)}, 0)
	if reason.Code != NothingStored && reason.Code != Diverged {
		t.Errorf("reason %v", reason)
	}
}

func TestSpans(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 200), Spans: []kv.Span{{Start: 70, Len: 60, Hash: kv.Hash{1}}}}
	put(t, m, p)
	expect(t, m, p, 200)
	other := p
	other.Spans = []kv.Span{{Start: 70, Len: 60, Hash: kv.Hash{2}}}
	if r := expect(t, m, other, 70); r.Code != Diverged && r.Code != InSpan {
		t.Errorf("reason %v", r)
	}
	bare := kv.Prompt{Tokens: p.Tokens}
	expect(t, m, bare, 70)
	// Diverges in a token inside the span: up to the span.
	inside := kv.Prompt{Tokens: concat(p.Tokens[:100], tokens(9, 100)), Spans: p.Spans}
	expect(t, m, inside, 70)
	// A limit inside the span.
	x, err := m.Match(ctx, p, MatchOptions{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if x.Tokens() != 70 || x.Reason().Code != InSpan {
		t.Errorf("limit inside a span: %d tokens, %v", x.Tokens(), x.Reason())
	}
}

func TestIdentity(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := plain()
	p := kv.Prompt{Tokens: tokens(1, 100)}
	put(t, model(t, s, d), p)
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
		other := plain()
		change(&other)
		m, err := s.Register(ctx, other)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Differs) == 0 {
			t.Errorf("%s: no difference was explained", name)
		}
		if n, _ := restore(t, m.Model, p); n != 0 {
			t.Errorf("%s: %d tokens of another model were handed out", name, n)
		}
	}
	m := model(t, s, d)
	expect(t, m, p, 100)
	adapted := p
	adapted.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}}
	expect(t, m, adapted, 0)
	put(t, m, adapted)
	expect(t, m, adapted, 100)
	scaled := p
	scaled.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 0.5}}
	expect(t, m, scaled, 0)
	renamed := d
	renamed.Name = "another name"
	expect(t, model(t, s, renamed), p, 100)
}

func TestScopes(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	system, chat := tokens(1, 100), tokens(2, 200)
	alice := kv.Prompt{Tokens: concat(system, chat), Scope: "alice", ScopeStart: 100}
	bob := kv.Prompt{Tokens: concat(system, chat), Scope: "bob", ScopeStart: 100}
	put(t, m, alice)
	expect(t, m, alice, 300)
	expect(t, m, bob, 100) // the system prompt, to the token, and nothing after it
	before := s.mustStats(t).Blocks
	put(t, m, bob)
	if added := s.mustStats(t).Blocks - before; added != 13 {
		t.Errorf("bob's 200 tokens made %d blocks, expected 13: the system prompt is stored once", added)
	}
	wholly := kv.Prompt{Tokens: concat(system, chat), Scope: "carol"}
	expect(t, m, wholly, 0)
	put(t, m, wholly)
	expect(t, m, wholly, 300)
	del, err := s.DeleteScope(ctx, "alice")
	if err != nil || del.Blocks != 13 {
		t.Fatalf("deleted %+v, %v", del, err)
	}
	expect(t, m, alice, 100)
	expect(t, m, bob, 300)
	expect(t, m, wholly, 300)
}

func (s *Store) mustStats(t testing.TB) Stats {
	t.Helper()
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestConversationsShareTheirSystemPrompt(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := plain()
	d.BlockTokens = 64
	m := model(t, s, d)
	system := tokens(1, 500)
	for i := range 20 {
		tokens := concat(system, tokens(100+i, 40))
		put(t, m, kv.Prompt{Tokens: tokens[:520]})
		put(t, m, kv.Prompt{Tokens: tokens[:540]}) // the next turn takes the place of the last one's tail
	}
	blocks := s.mustStats(t).Blocks
	if want := int64(7 + 20*2); blocks != want {
		t.Errorf("%d blocks, expected %d: 7 shared, and of each conversation the block where it parts and a tail", blocks, want)
	}
}

func TestWindow(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := windowed(40)
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 200)}
	rows := filled(d, &p, 0, 200)
	for i, tensor := range d.Tensors { // the runtime still has the last 60 rows of the window
		if tensor.Group == 1 {
			rows[i] = rows[i].Slice(tensor, 140, 200)
		}
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 200)
	expect(t, m, p.Prefix(190), 190)
	expect(t, m, p.Prefix(180), 180)
	if r := expect(t, m, p.Prefix(179), 0); r.Code != WindowMissing {
		t.Errorf("reason %v", r)
	}
	// The rows that were missing are added to blocks that are stored already.
	all := filled(d, &p, 0, 200)
	for i, tensor := range d.Tensors {
		if tensor.Group == 0 {
			all[i] = kv.TensorRows{}
		}
	}
	if _, err := m.Put(ctx, p, all, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := 16; n <= 200; n++ {
		expect(t, m, p.Prefix(n), n)
	}
	res := put(t, m, p)
	if res.Records != 0 {
		t.Errorf("a put of what is stored wrote %d records", res.Records)
	}
}

func TestOpaqueState(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := opaque()
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 200)}
	for _, n := range []int{50, 64, 133} {
		put(t, m, p.Prefix(n))
	}
	for _, c := range []struct{ ask, want int }{{200, 133}, {133, 133}, {132, 64}, {64, 64}, {63, 50}, {50, 50}, {49, 0}} {
		expect(t, m, p.Prefix(c.ask), c.want)
	}
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if n, err := x.StateBytes(0); err != nil || n != int64(len(truth(d, &p, 0, 132))) {
		t.Errorf("state has %d bytes, %v", n, err)
	}
}

func TestExtendFromWhatTheCallerHas(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := plain()
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 200)}
	put(t, m, p.Prefix(70))
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	res, err := x.Extend(ctx, p, filled(d, &p, 70, 200), PutOptions{})
	if err != nil || res.Tokens != 200 {
		t.Fatalf("%+v, %v", res, err)
	}
	expect(t, m, p, 200)
	// Rows that start behind what is stored.
	q := kv.Prompt{Tokens: tokens(2, 100)}
	_, err = m.Put(ctx, q, filled(d, &q, 40, 100), PutOptions{})
	var missing *NotStoredError
	if !errors.As(err, &missing) || !errors.Is(err, ErrNotStored) {
		t.Fatalf("got %v", err)
	}
	expect(t, m, q, 0)
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 300)}
	put(t, m, p)
	if err := m.SetRef(ctx, "system", p.Prefix(100), RefOptions{Pinned: true, Meta: []byte("mine")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 300)
	r, err := s.Ref("system")
	if err != nil || !r.Pinned || r.Tokens != 100 || string(r.Meta) != "mine" {
		t.Fatalf("ref %+v, %v", r, err)
	}
}
