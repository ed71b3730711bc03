//go:build (linux && !android) || (darwin && !ios)

package llamacpp_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// inChild attaches in another process.
func inChild(t *testing.T, store string, x canaryCase, env ...string) (float64, error) {
	t.Helper()
	cache := -1
	if x.opt.CacheK != nil {
		cache = int(*x.opt.CacheK)
	}
	args := []string{os.Args[0], "-test.run=^TestCanaryChild$", "-test.v"}
	if self, err := os.Executable(); err == nil && strings.HasPrefix(filepath.Base(self), "ld-linux") { // tests/llama/releases.sh
		args = append([]string{self, "--library-path", filepath.Dir(self)}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(append(os.Environ(), "DORMOUSE_CANARY_STORE="+store, "DORMOUSE_CANARY_MODEL="+x.path, fmt.Sprint("DORMOUSE_CANARY_CACHE=", cache)), env...)
	out, err := c.CombinedOutput()
	_, said, ok := strings.Cut(string(out), "CANARY ")
	if !ok {
		t.Fatalf("child: %v\n%s", err, out)
	}
	var d float64
	var refused bool
	if _, err := fmt.Sscan(said, &d, &refused); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	if refused {
		return d, llamacpp.ErrIdentity
	}
	return d, nil
}

// TestCanaryChild is that process. The variable that it was started with is not there any more when it attaches.
func TestCanaryChild(t *testing.T) {
	path := os.Getenv("DORMOUSE_CANARY_MODEL")
	if path == "" {
		t.Skip("runs in a child process only")
	}
	lib, api := library(t)
	m := loadModel(t, lib, path, false)
	o := llama.ContextOptions{Tokens: 512, Batch: batchTokens, MicroBatch: batchTokens, Threads: 1}
	if v := os.Getenv("DORMOUSE_CANARY_CACHE"); v != "-1" {
		var typ int32
		fmt.Sscan(v, &typ)
		o.CacheK, o.CacheV = ref(llama.CacheType(typ)), ref(llama.CacheType(typ))
	}
	c := newContext(t, m, o)
	os.Unsetenv("LLAMA_ATTN_ROT_DISABLE")
	store := openStoreAt(t, os.Getenv("DORMOUSE_CANARY_STORE"), db.Options{})
	d, err := attachTo(store, api, c)
	fmt.Println("CANARY", d, errors.Is(err, llamacpp.ErrIdentity), err)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
