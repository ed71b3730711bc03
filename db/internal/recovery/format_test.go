package recovery_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A store of an earlier release, whose keys are of another hash, or whose log or descriptors are msgpack, is refused, by whoever opens it, and stays as it is:
// nothing would be found in it, and nothing deleted. Without FORMAT its segments say so.
func TestStoreOfAnotherHash(t *testing.T) {
	for _, name := range []string{"hash-1-store.zip", "format-1-store.zip", "format-2-store.zip"} {
		for _, lost := range []string{"nothing", storetest.FormatFile} {
			dir := filepath.Join(t.TempDir(), "store")
			files := storetest.ReadZip(t, filepath.Join("testdata", name))
			if lost == storetest.FormatFile {
				delete(files, storetest.FormatFile)
			}
			storetest.OK(t, files.Write(dir))
			refusesAsItIs(t, name+" without "+lost, dir)
		}
	}
}

// So is a store, and one with a log, of an older version and of a newer one.
func TestStoreOfAnotherVersion(t *testing.T) {
	sound := t.TempDir()
	s := storetest.Open(t, sound, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Close())
	logs, err := filepath.Glob(filepath.Join(sound, storetest.LogDir, "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for name, at := range map[string]struct{ version, sum int }{ // of the checksum of all bytes before it
		storetest.FormatFile: {8, 80}, filepath.Join(storetest.LogDir, filepath.Base(logs[0])): {8, 56},
	} {
		for _, by := range []uint32{^uint32(0), 1} {
			dir := storetest.Copy(t, sound)
			file := filepath.Join(dir, name)
			b := storetest.Must(os.ReadFile(file))(t)
			le := binary.LittleEndian
			version := le.Uint32(b[at.version:]) + by
			le.PutUint32(b[at.version:], version)
			le.PutUint64(b[at.sum:], xxhash.Sum64(b[:at.sum]))
			storetest.OK(t, os.WriteFile(file, b, 0o600))
			refusesAsItIs(t, fmt.Sprintf("%s of version %d", name, version), dir)
		}
	}
}

// refusesAsItIs sees a store of another release refused with a sentence, by whoever opens it, and not changed.
func refusesAsItIs(t *testing.T, what, dir string) {
	t.Helper()
	before, err := storetest.ReadDir(dir)
	storetest.OK(t, err)
	readOnly := storetest.Options()
	readOnly.ReadOnly = true
	for who, do := range map[string]func() error{
		"open":      func() error { _, err := db.Open(t.Context(), dir, storetest.Options()); return err },
		"read-only": func() error { _, err := db.Open(t.Context(), dir, readOnly); return err },
		"verify":    func() error { _, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); return err },
		"repair": func() error {
			_, err := admin.Repair(t.Context(), dir, filepath.Join(t.TempDir(), "new"), admin.RepairOptions{})
			return err
		},
	} {
		if err := do(); !errors.Is(err, db.ErrVersion) || !strings.Contains(err.Error(), "use the release that wrote it") {
			t.Errorf("%s: %s: %v", what, who, err)
		}
	}
	after := storetest.Must(storetest.ReadDir(dir))(t)
	delete(before, storetest.LockFile)
	delete(after, storetest.LockFile)
	if !maps.EqualFunc(before, after, bytes.Equal) {
		t.Errorf("%s: the store was changed", what)
	}
}

// So is a store whose log has an operation that only a newer release knows: what came after it, deletions too, would be lost.
func TestOperationOfAnotherRelease(t *testing.T) {
	for name, payload := range map[string][]byte{
		"kind": nil, "flags": oplog.Encode(oplog.Flag{Flags: 0x80}), "tier": oplog.Encode(oplog.Flag{Loc: loc.Loc{Tier: 1}}),
	} {
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
		kind := oplog.KindFlag
		if payload == nil {
			kind = 200
		}
		storetest.Crash(s)
		storetest.AppendToLog(t, dir, kind, payload)
		refusesAsItIs(t, name, dir)
	}
}

// The log is lost, and the copy of its head in index.db is another release's: ErrVersion, "Nothing is changed" (db/errors.go).
func TestHeadOfAnotherReleaseChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.Eventually(t, "filter", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
	storetest.OK(t, s.Close())
	format := storetest.Must(os.ReadFile(filepath.Join(dir, "FORMAT")))(t)
	o := index.Options{Path: filepath.Join(dir, "index.db"), UUID: kv.UUID(format[40:56])}
	ix, err := index.Open(o)
	storetest.OK(t, err)
	a := ix.Applied()
	ix.Close()
	if a.LSN == 0 || len(a.Extra) == 0 {
		t.Fatal(a)
	}
	a.Extra = oplog.Encode(oplog.Snapshot{FormerRefs: 77})
	os.Remove(o.Path)
	if ix, err = index.Create(o, a); err != nil {
		t.Fatal(err)
	}
	ix.Close()
	logs, _ := filepath.Glob(filepath.Join(dir, "wal", "*"))
	for _, l := range logs {
		os.Remove(l)
	}
	before := storetest.Tree(t, dir)
	_, err = storetest.TryOpen(vfs.OS, dir, storetest.Options())

	if !errors.Is(err, db.ErrVersion) {
		t.Fatalf("not ErrVersion: %v", err)
	}
	storetest.SameTree(t, before, storetest.Tree(t, dir), "Open with ErrVersion")
}

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
