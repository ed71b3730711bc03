package recovery_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// index.db and bloom are derived: whatever happens to them, nothing is lost and nothing comes back.
func TestDerivedFilesAreRebuilt(t *testing.T) {
	dir, holds, older := storetest.Warm(t)
	read := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		storetest.OK(t, err)
		return b
	}
	r := rand.New(rand.NewPCG(3, 4))
	mangles := []struct {
		name string
		do   func(path, name string) error
	}{
		{"missing", func(path, _ string) error { return os.Remove(path) }},
		{"empty", func(path, _ string) error { return os.WriteFile(path, nil, 0o600) }},
		{"cut in half", func(path, name string) error { return os.Truncate(path, int64(len(read(dir, name))/2)) }},
		{"cut by a byte", func(path, name string) error { return os.Truncate(path, int64(len(read(dir, name))-1)) }},
		{"an older generation", func(path, name string) error { return os.WriteFile(path, older[name], 0o600) }},
		{"rubbish", func(path, name string) error {
			b := read(dir, name)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return os.WriteFile(path, b, 0o600)
		}},
		{"zeros", func(path, name string) error { return os.WriteFile(path, make([]byte, len(read(dir, name))), 0o600) }},
	}
	flips := 12
	if testing.Short() {
		flips = 2
	}
	for i := range flips {
		mangles = append(mangles, struct {
			name string
			do   func(path, name string) error
		}{fmt.Sprintf("flipped %d", i), func(path, name string) error {
			b := read(dir, name)
			at := r.IntN(len(b))
			for b[at] == 0 && name == storetest.IndexFile { // most zeros are of free pages
				at = r.IntN(len(b))
			}
			b[at] ^= 1 << r.IntN(8)
			return os.WriteFile(path, b, 0o600)
		}})
	}
	for _, m := range mangles {
		for _, names := range [][]string{{storetest.IndexFile}, {storetest.BloomFile}, {storetest.IndexFile, storetest.BloomFile}} {
			at := storetest.Copy(t, dir)
			for _, name := range names {
				storetest.OK(t, m.do(filepath.Join(at, name), name))
			}
			storetest.CheckWarm(t, at, holds, fmt.Sprint(names, " ", m.name))
		}
	}
}

func TestFormatIsRestored(t *testing.T) {
	dir, holds, _ := storetest.Warm(t)
	name := filepath.Join(dir, storetest.FormatFile)
	want, err := os.ReadFile(name)
	storetest.OK(t, err)
	damaged := bytes.Clone(want)
	damaged[50] ^= 4
	for what, b := range map[string][]byte{"missing": nil, "empty": {}, "short": want[:40], "flipped": damaged} {
		at := storetest.Copy(t, dir)
		name := filepath.Join(at, storetest.FormatFile)
		storetest.OK(t, os.Remove(name))
		if b != nil {
			storetest.OK(t, os.WriteFile(name, b, 0o600))
		}
		storetest.CheckWarm(t, at, holds, "FORMAT "+what)
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("FORMAT %s: restored as %x, %v, expected %x", what, got, err, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	storetest.OK(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("mine"), 0o600))
	if _, err := db.Open(t.Context(), dir, storetest.Options()); !errors.Is(err, db.ErrNotEmpty) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("foreign file: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "thesis.txt")); err != nil || string(b) != "mine" {
		t.Errorf("foreign file is now %q, %v", b, err)
	}
}

// A read-only open works, whatever is missing, and changes no byte.
func TestReadOnlyChangesNothing(t *testing.T) {
	dir, holds, _ := storetest.Warm(t)
	s := storetest.Open(t, dir, storetest.Options()) // and a log to replay, after a kill
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(50, 90)})
	storetest.Crash(s)
	for _, lost := range []string{"nothing", storetest.IndexFile, storetest.BloomFile, storetest.FormatFile, storetest.LockFile} {
		at := storetest.Copy(t, dir)
		os.Remove(filepath.Join(at, lost))
		before := storetest.Tree(t, at)
		o := storetest.Options()
		o.ReadOnly = true
		s, err := db.Open(t.Context(), at, o)
		if err != nil {
			t.Fatalf("without %s: %v", lost, err)
		}
		for _, h := range holds {
			storetest.Expect(t, storetest.Model(t, s, h.Model), h.Prompt, h.Tokens)
		}
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(50, 90)}, 90)
		p := kv.Prompt{Tokens: crashtest.Tokens(60, 50)}
		_, putErr := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 50), db.PutOptions{})
		_, delErr := m.Delete(t.Context(), holds[0].Prompt)
		for what, err := range map[string]error{
			"put": putErr, "delete": delErr, "ref": m.SetRef(t.Context(), "x", holds[0].Prompt.Prefix(50), db.RefOptions{}),
			"retire": s.Retire(t.Context(), m.Fingerprint()), "sync": s.Sync(t.Context()), "checkpoint": s.Checkpoint(t.Context()),
		} {
			if !errors.Is(err, db.ErrReadOnly) {
				t.Errorf("read-only %s: %v", what, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("without %s: close: %v", lost, err)
		}
		storetest.SameTree(t, before, storetest.Tree(t, at), "a read-only open without "+lost)
	}
}
