package db

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/collide"
	"github.com/dormousekv/dormouse/kv"
)

// twinTokens are other tokens than those of a block, with which its key is the same on every store.
func twinTokens(ids []kv.Token) []kv.Token {
	const head = 1 + 16 + 4 // what is hashed before them
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	collide.Twin(b, 32-head)
	out := make([]kv.Token, len(ids))
	for i := range out {
		out[i] = kv.Token(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// Nobody reads another one's rows by choosing a name for himself.
func TestScopeNamesThatCollide(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	name := strings.Repeat("tenant of some name ", 4)
	twin := []byte(name)
	collide.Twin(twin, 32-(1+16))
	p := kv.Prompt{Tokens: tokens(1, 64), Scope: name, ScopeStart: 16}
	if _, err := m.Put(ctx, p, filled(plain(), &p, 0, 64), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	q := p
	q.Scope = string(twin)
	if n, why, err := m.Probe(ctx, q, MatchOptions{}); err != nil || n != 16 {
		t.Fatalf("another scope finds %d tokens (%v, %v), 16 are shared", n, why, err)
	}
}

// A prompt whose first block has the key of another one's, and goes on with the same tokens, is not stored below that one:
// whoever has the other one would get its rows.
func TestPromptsThatCollide(t *testing.T) {
	for name, d := range map[string]kv.Descriptor{"plain": plain(), "windowed": windowed(20), "opaque": opaque()} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 48)...)
			first := p.Prefix(16)
			if _, err := m.Put(ctx, first, filled(d, &first, 0, 16), PutOptions{}); err != nil {
				t.Fatal(err)
			}
			q := kv.Tokens(concat(twinTokens(p.Tokens[:16]), p.Tokens[16:])...)
			if a, b := s.eng.hasher.Chain(m.Fingerprint(), 16, &p), s.eng.hasher.Chain(m.Fingerprint(), 16, &q); a.Key(0) != b.Key(0) {
				t.Fatal("the twins have two keys")
			}
			var missing *NotStoredError
			if _, err := m.Put(ctx, q, filled(d, &q, 0, 48), PutOptions{}); err != nil && !errors.As(err, &missing) {
				t.Fatal(err)
			}
			for _, x := range []*kv.Prompt{&p, &q} {
				match, err := m.Match(ctx, *x, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				rows := empty(d, 48)
				got, err := match.Restore(ctx, rows)
				if err != nil {
					t.Fatal(err)
				}
				checkRows(t, d, x, rows, got.Tokens)
				match.Close()
			}
			// The other one is none the worse for it.
			if _, err := m.Put(ctx, p, filled(d, &p, 0, 48), PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if n, why, err := m.Probe(ctx, p, MatchOptions{}); err != nil || n != 48 {
				t.Fatalf("%d tokens are found (%v, %v), 48 were stored", n, why, err)
			}
		})
	}
}

// A damaged block is replaced by a put of its own prompt only: what hangs below it is of that one.
func TestDamagedBlockAndItsTwin(t *testing.T) {
	d := plain()
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	if _, err := m.Put(ctx, p, filled(d, &p, 0, 48), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	first := s.eng.hasher.Chain(m.Fingerprint(), 16, &p).Key(0)
	v := s.eng.view()
	entry, ok, err := v.Get(first, 0)
	v.Release()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	s.eng.reportDamage(first, 0, entry.Loc, errors.New("as a test says"))
	q := kv.Tokens(concat(twinTokens(p.Tokens[:16]), p.Tokens[16:])...)
	var missing *NotStoredError
	if _, err := m.Put(ctx, q, filled(d, &q, 0, 48), PutOptions{}); !errors.As(err, &missing) || missing.Reason.Code != Collision {
		t.Fatalf("put below a damaged block of another prompt: %v", err)
	}
	if _, err := m.Put(ctx, p, filled(d, &p, 0, 48), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*kv.Prompt{&p, &q} {
		match, err := m.Match(ctx, *x, MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rows := empty(d, 48)
		got, err := match.Restore(ctx, rows)
		if err != nil || x == &p && got.Tokens != 48 {
			t.Errorf("%d tokens (%v, %v)", got.Tokens, got.Reason, err)
		}
		checkRows(t, d, x, rows, got.Tokens)
		match.Close()
	}
}
