package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
)

// A store in a folder that others can write to is purged as it is served: where that was asked for.
func TestPurgeOfSharedFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(t.Context(), dir, db.Options{AllowSharedDir: true})
	if err != nil {
		t.Skip("SKIPPED: no store with such permissions here: ", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	purge := func(want int, says string, args ...string) {
		t.Helper()
		var out, err bytes.Buffer
		code := run(context.Background(), append([]string{"purge", "--all", "--store", dir}, args...), &out, &err)
		if said := out.String() + err.String(); code != want || !strings.Contains(said, says) {
			t.Errorf("%q: %d %q, expected %d and %q", args, code, said, want, says)
		}
	}
	purge(1, "--allow-shared-dir")
	purge(0, "purged", "--allow-shared-dir")
	t.Setenv("DORMOUSE_ALLOW_SHARED_DIR", "true")
	purge(0, "purged")
}
