//go:build (linux && !android) || (darwin && !ios)

package llama

import (
	"os"
	"path/filepath"
	"testing"
)

func load(t *testing.T) *Lib {
	t.Helper()
	dir := os.Getenv("DORMOUSE_LLAMA_LIB")
	if dir == "" {
		t.Skip("SKIPPED, llama.cpp is not tried: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	lib, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// writeModel makes a file of a model for the length of the test.
func writeModel(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadModel loads a model for the length of the test.
func loadModel(t *testing.T, lib *Lib, path string) *Model {
	t.Helper()
	m, err := lib.LoadModel(path, ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}
