//go:build (linux && !android) || (darwin && !ios)

package llama

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
)

// elsewhere copies the libraries to another folder: to the loader of the system they are others.
func elsewhere(t *testing.T, lib *Lib) string {
	t.Helper()
	dir := t.TempDir()
	for _, stem := range stems {
		from, err := find(lib.dir, stem)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Two releases in one process call into each other: the second is refused, and the first goes on.
func TestSecondLlamaIsRefused(t *testing.T) {
	lib := load(t)
	other := elsewhere(t, lib)
	if _, err := Load(other); !errors.Is(err, ErrSecond) || !strings.Contains(err.Error(), lib.dir) || !strings.Contains(err.Error(), other) {
		t.Fatalf("a second llama.cpp: %v", err)
	}
	again, err := Load(lib.dir)
	if err != nil || again.handle != lib.handle {
		t.Fatalf("the same llama.cpp once more: %v", err)
	}
	m, err := again.LoadModel("../testdata/stories260K-f32.gguf", ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// A llama.cpp that something else in the process has loaded, for itself alone, is in the way, too.
func TestLlamaOfSomebodyElseIsSeen(t *testing.T) {
	lib := load(t)
	path, err := find(elsewhere(t, lib), "ggml-base")
	if err != nil {
		t.Fatal(err)
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(lib.dir); !errors.Is(err, ErrSecond) || !strings.Contains(err.Error(), path) {
		t.Errorf("beside a ggml of somebody else: %v", err)
	}
	if err := purego.Dlclose(h); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(lib.dir); err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}
