package recovery_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

func TestFormatIsRestored(t *testing.T) {
	dir := storetest.Small(t)
	want := storetest.Must(os.ReadFile(filepath.Join(dir, storetest.FormatFile)))(t)
	damaged := bytes.Clone(want)
	damaged[50] ^= 4
	for what, b := range map[string][]byte{"missing": nil, "empty": {}, "short": want[:40], "flipped": damaged} {
		at := storetest.Copy(t, dir)
		name := filepath.Join(at, storetest.FormatFile)
		storetest.OK(t, os.Remove(name))
		if b != nil {
			storetest.OK(t, os.WriteFile(name, b, 0o600))
		}
		storetest.CheckSmall(t, at, "FORMAT "+what, storetest.Options())
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("FORMAT %s: restored as %x, %v, expected %x", what, got, err, want)
		}
	}
}

// A read-only open works, whatever is missing, and changes no byte.
func TestReadOnlyChangesNothing(t *testing.T) {
	dir := storetest.Small(t)
	s := storetest.Open(t, dir, storetest.Options()) // and a log to replay, after a kill
	p := kv.Prompt{Tokens: crashtest.Tokens(50, 90)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.Crash(s)
	o := storetest.Options()
	o.ReadOnly = true
	for _, lost := range []string{"nothing", storetest.IndexFile, storetest.BloomFile, storetest.FormatFile, storetest.LockFile} {
		at := storetest.Copy(t, dir)
		os.Remove(filepath.Join(at, lost))
		before := storetest.Tree(t, at)
		storetest.CheckSmall(t, at, "without "+lost, o)
		s := storetest.Must(db.Open(t.Context(), at, o))(t)
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, p, 90)
		_, putErr := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 90), db.PutOptions{})
		_, delErr := m.Delete(t.Context(), p)
		for what, err := range map[string]error{
			"put": putErr, "delete": delErr, "ref": m.SetRef(t.Context(), "x", p.Prefix(50), db.RefOptions{}),
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
