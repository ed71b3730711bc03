package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// Small makes a closed store with every kind of file and record in it.
func Small(t testing.TB) (dir string) {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	s := Open(t, dir, Options())
	m, w, q := Model(t, s, crashtest.Plain()), Model(t, s, crashtest.Windowed(40)), Model(t, s, crashtest.Opaque())
	system := kv.Tokens(crashtest.Tokens(1, 100)...)
	Put(t, m, system)
	Put(t, w, system.Prefix(70))
	Put(t, q, system.Prefix(40))
	Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 60), Scope: "alice", ScopeStart: 20})
	err := m.SetRef(ctx, "system", system.Prefix(64), db.RefOptions{Pinned: true, Meta: []byte("meta")})
	if err := errors.Join(err, s.Checkpoint(ctx)); err != nil {
		t.Fatal(err)
	}
	Put(t, m, kv.Tokens(crashtest.Concat(crashtest.Tokens(1, 64), crashtest.Tokens(5, 40))...))
	_, err = s.DeleteScope(ctx, "alice")
	Eventually(t, "the Bloom filter is built", func() bool { return Stats(t, s).BloomBytes > 0 })
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// CheckSmall opens a store that Small made, expects all of it to be there, closes it, and expects Verify to find no damage.
func CheckSmall(t testing.TB, dir, what string, o db.Options) {
	t.Helper()
	s, err := db.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	m, w, q := Model(t, s, crashtest.Plain()), Model(t, s, crashtest.Windowed(40)), Model(t, s, crashtest.Opaque())
	system := kv.Tokens(crashtest.Tokens(1, 100)...)
	Expect(t, m, system, 100)
	Expect(t, w, system, 70)
	Expect(t, q, system, 40)
	Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 60), Scope: "alice", ScopeStart: 20}, 20)
	Expect(t, m, kv.Tokens(crashtest.Concat(crashtest.Tokens(1, 64), crashtest.Tokens(5, 40))...), 104)
	if r, err := s.Ref("system"); err != nil || !r.Pinned || r.Tokens != 64 || string(r.Meta) != "meta" {
		t.Errorf("%s: ref %+v, %v", what, r, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: close: %v", what, err)
	}
	if r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); !o.ReadOnly && (err != nil || len(r.Damage) > 0) {
		t.Errorf("%s: verify: %v, %v", what, r.Damage, err)
	}
}
