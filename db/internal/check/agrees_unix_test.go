//go:build unix

package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// change is something that happens to one name in a store's folder. at is the path of it, own what is there, others' what another store has there.
type change struct {
	what  string
	do    func(at string, own, others []byte) error
	small bool // it changes one byte
}

// place puts something else in the place of what is there.
func place(what string, put func(at string, own, others []byte) error) change {
	return change{what: what, do: func(at string, own, others []byte) error {
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		return put(at, own, others)
	}}
}

func written(what string, content func(own, others []byte) []byte) change {
	return place(what, func(at string, own, others []byte) error { return os.WriteFile(at, content(own, others), 0o600) })
}

func changes(outside string) []change {
	all := []change{
		place("nothing", func(string, []byte, []byte) error { return nil }),
		place("a folder", func(at string, _, _ []byte) error { return os.Mkdir(at, 0o700) }),
		place("a folder with a file", func(at string, _, _ []byte) error {
			return errors.Join(os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "mine"), []byte("text"), 0o600))
		}),
		place("a pipe", func(at string, _, _ []byte) error { return syscall.Mkfifo(at, 0o600) }),
		place("a socket", func(at string, _, _ []byte) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		}),
		place("a link to nothing", func(at string, _, _ []byte) error { return os.Symlink(filepath.Join(outside, "nothing"), at) }),
		place("a link to a file", func(at string, _, _ []byte) error { return os.Symlink(filepath.Join(outside, "file"), at) }),
		place("a link to a folder", func(at string, _, _ []byte) error { return os.Symlink(outside, at) }),
		written("an empty file", func(_, _ []byte) []byte { return nil }),
		written("zeros", func(own, _ []byte) []byte { return make([]byte, max(len(own), 4096)) }),
		written("a text", func(_, _ []byte) []byte { return []byte("It was a dark and stormy night.") }),
		written("a long text", func(_, _ []byte) []byte { return bytes.Repeat([]byte("It was a dark and stormy night. "), 4096) }),
		written("its first half", func(own, _ []byte) []byte { return own[:len(own)/2] }),
		written("its second half", func(own, _ []byte) []byte { return own[len(own)/2:] }),
		written("more behind its end", func(own, _ []byte) []byte { return append(bytes.Clone(own), "more behind its end"...) }),
		written("another store's", func(_, others []byte) []byte { return others }),
		{what: "who may write: all", do: func(at string, _, _ []byte) error { return os.Chmod(at, 0o666) }},
	}
	large := len(all)
	for _, at := range []int{0, 5, 8, 9, 12, 16, 24, 32, 40, 56, 63, 72, 80, 100, 200, 4096, 4100, 8192 + 80} { // of headers and first frames
		for _, bit := range []byte{1, 128} {
			all = append(all, written(fmt.Sprintf("bit %d of byte %d flipped", bit, at), func(own, _ []byte) []byte {
				b := bytes.Clone(own)
				if at < len(b) {
					b[at] ^= bit
				}
				return b
			}))
		}
	}
	for i := range all {
		all[i].small = i >= large
	}
	return all
}

// sealed are changes of one byte whose checksum fits again: as another release, or another program, would write it.
func sealed(name string) (all []change) {
	for _, at := range []int{8, 12, 16, 24, 32, 40, 44, 48, 56, 60, 72, 76} {
		all = append(all, written(fmt.Sprintf("byte %d changed, with a checksum that fits", at), func(own, _ []byte) []byte {
			m := storetest.Image{name: bytes.Clone(own)}
			if at < len(own) {
				m[name][at] ^= 4
			}
			m.Seal()
			return m[name]
		}))
		all[len(all)-1].small = true
	}
	return all
}

// What Open refuses, Verify says, with the file: by damage or by an error, not by a note, which is about what costs nothing. A session that cannot be
// opened in a store that can has a note at least. The names of a store's files are changed one by one.
func TestVerifyAgreesWithOpen(t *testing.T) {
	make_ := func() storetest.Image {
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 60), Scope: "alice", ScopeStart: 20})
		session := storetest.Must(s.OpenSession(t.Context(), "alice"))(t)
		storetest.OK(t, session.Append(t.Context(), 1, []byte("hello")))
		storetest.OK(t, errors.Join(session.Close(), s.Checkpoint(t.Context())))
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 60)})
		storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(2, 60)}))(t)
		storetest.Crash(s)
		return storetest.Must(storetest.ReadDir(dir))(t)
	}
	own, other := make_(), make_()
	outside := t.TempDir()
	storetest.OK(t, os.WriteFile(filepath.Join(outside, "file"), []byte("somebody's"), 0o600))
	like := func(m storetest.Image, name string) []byte { // another store's file of the kind
		for other, b := range m {
			if path.Dir(other) == path.Dir(name) && path.Ext(other) == path.Ext(name) && (path.Dir(name) != "." || other == name) {
				return b
			}
		}
		return nil
	}
	names := []string{"wal", "segments", "sessions", "unsynced", "FORMAT.tmp", "index.db.tmp", "bloom.tmp", "wal/next.wal.tmp", "wal/next1.wal.tmp"}
	for name := range own {
		names = append(names, name)
	}
	for name := range own {
		if path.Dir(name) == "sessions" {
			names = append(names, name+".tmp")
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	tried, refused := 0, map[string]int{}
	for _, name := range names {
		for _, c := range append(changes(outside), sealed(name)...) {
			for _, noFormat := range []bool{false, true} {
				if noFormat && (name == storetest.FormatFile || c.small) || c.small && testing.Short() {
					continue
				}
				dir := filepath.Join(t.TempDir(), "s")
				lay := func() error {
					storetest.OK(t, os.RemoveAll(dir))
					storetest.OK(t, own.Write(dir))
					if noFormat {
						storetest.OK(t, os.Remove(filepath.Join(dir, storetest.FormatFile)))
					}
					return c.do(filepath.Join(dir, name), own[name], like(other, name))
				}
				if lay() != nil { // there is no such name whose mode could be changed
					continue
				}
				tried++
				rep, verr := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
				said := verr != nil || len(rep.Damage) > 0
				what := fmt.Sprintf("%s: %s, FORMAT missing: %t", name, c.what, noFormat)
				if err := useAll(t, dir); err != nil {
					refused[name]++
					file, says := name, fmt.Sprint(verr, rep.Damage)
					if errors.Is(err, errSession) { // the store is open: a note is enough
						said, says = true, says+fmt.Sprint(rep.Notes)
					}
					for _, n := range names { // that the error names
						if strings.Contains(err.Error(), filepath.Join(dir, n)) && len(n) > len(file) {
							file = n
						}
					}
					if !said || verr == nil && !strings.Contains(says, filepath.Join(dir, file)) {
						t.Errorf("%s: Open says %v; Verify: %v, and notes %q", what, err, says, rep.Notes)
					}
				}
				for _, d := range rep.Damage {
					if !strings.HasPrefix(d.File, dir) || d.What == "" {
						t.Errorf("%s: damage of no file: %+v", what, d)
					}
				}
				storetest.OK(t, os.RemoveAll(filepath.Dir(dir)))
			}
		}
	}
	t.Logf("%d changes tried; refused: %v", tried, refused)
}

var errSession = errors.New("session")

// useAll opens a store for writing, and what is in it, and writes.
func useAll(t *testing.T, dir string) error {
	s, err := storetest.TryOpen(vfs.OS, dir, storetest.Options())
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := s.Register(t.Context(), crashtest.Plain())
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	p := kv.Prompt{Tokens: crashtest.Tokens(3, 60), Scope: "alice", ScopeStart: 20}
	if _, err := r.Put(t.Context(), p, storetest.Filled(r.Descriptor(), &p, 0, 60), db.PutOptions{}); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	for _, err := range s.Sessions(t.Context()) {
		if err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
	}
	session, err := s.OpenSession(t.Context(), "alice")
	if err != nil {
		return fmt.Errorf("%w: %w", errSession, err)
	}
	if err := session.Replace(t.Context(), nil); err != nil {
		return fmt.Errorf("%w: replaced: %w", errSession, err)
	}
	if err := errors.Join(session.Append(t.Context(), 1, []byte("more")), session.Close()); err != nil {
		return fmt.Errorf("%w: %w", errSession, err)
	}
	if err := s.Checkpoint(t.Context()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if _, err := s.DeleteScope(t.Context(), "alice"); err != nil {
		return fmt.Errorf("delete scope: %w", err)
	}
	return s.Close()
}
