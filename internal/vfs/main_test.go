package vfs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// roleEnv makes this test binary play another process: see roles.
const roleEnv = "DORMOUSE_VFS_TEST_ROLE"

// roles are what the test binary does as another process, with one argument; each returns its exit code.
var roles = map[string]func(arg string) int{
	"hold lock":           holdLock,
	"fault unguarded":     faultUnguarded,
	"fault in child of f": faultInChild,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		role, ok := roles[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no role %q\n", name)
			os.Exit(99)
		}
		os.Exit(role(os.Args[1]))
	}
	os.Exit(m.Run())
}

// another returns a process that will play a role.
func another(t *testing.T, role, arg string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skipf("SKIPPED: no second process: %v", err)
	}
	cmd := exec.Command(self, arg)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	return cmd
}

// pattern is n bytes, none of them zero, that differ from place to place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i%251) + 1
	}
	return b
}

func create(t testing.TB, name string, b []byte) File {
	t.Helper()
	f, err := OS.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func statOf(t testing.TB, f File) Info {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func content(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustEqual(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("%s: %d bytes, want %d; the first difference is at %d", what, len(got), len(want), at)
	}
}
