//go:build unix

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// asOther lets the rest of the test run as a user for whom modes count, if root runs it; dir and what is in it becomes theirs.
func asOther(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	for p := dir; strings.HasPrefix(p, os.TempDir()) && p != os.TempDir(); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(p, nobody, nobody))
	})
	if err == nil {
		err = syscall.Seteuid(nobody)
	}
	if err != nil {
		t.Skipf("SKIPPED: root reads what it must not, and there is no other user to be: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Seteuid(0); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.ReadDir(dir); err != nil {
		t.Skipf("SKIPPED: another user cannot come to the test's directory: %v", err)
	}
}

// A segment that may not be read: verify names the damage elsewhere all the same, and says that this was not all; repair says of
// its records why they are not saved.
func TestUnreadableSegment(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "st")
	s, err := db.Open(t.Context(), dir, db.Options{CheckpointInterval: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "two"} {
		d := tiny()
		d.Name, d.RoPE.Base = name, float32(1000+i)
		m, err := s.Register(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		p := kv.Prompt{Tokens: make([]kv.Token, 64)}
		rows := make(kv.Rows, len(d.Tensors))
		for i := range rows {
			rows[i] = kv.Packed(0, 64, bytes.Repeat([]byte{byte(i + 1), 0x3c}, 64*32))
		}
		if _, err := m.Put(t.Context(), p, rows, db.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	one, two := filepath.Join(dir, "segments", "0000000000000001.seg"), filepath.Join(dir, "segments", "0000000000000002.seg")
	f, err := os.OpenFile(two, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("damage"), 4808)
		err = errors.Join(err, f.Close(), os.Chmod(one, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	asOther(t, home)
	command := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, errs := command("verify", dir)
	if code != exitDamage || !strings.Contains(out, two+": corrupt") || strings.Contains(out, one) ||
		!strings.Contains(errs, "not all could be read") || !strings.Contains(errs, one) {
		t.Errorf("verify: exit code %d\n%s%s", code, out, errs)
	}
	if code, out, _ := command("verify", "--json", dir); code != exitDamage || !strings.Contains(out, `"ok": false`) {
		t.Errorf("verify --json: exit code %d\n%s", code, out)
	}
	code, out, errs = command("repair", dir, filepath.Join(home, "new"))
	if code != exitDamage || !strings.Contains(out, "permission denied") || strings.Contains(out, "missing") {
		t.Errorf("repair: exit code %d\n%s%s", code, out, errs)
	}
}
