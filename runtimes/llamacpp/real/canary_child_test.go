//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// elsewhere is a store and what another process attaches to it.
type elsewhere struct {
	Name, Store, Model string
	Cache              *llama.CacheType
}

// answer is how far the rows are from those of the store.
type answer struct {
	Difference float64
	Err        string
}

// inChild attaches in another process, one case after the other. All must be accepted.
func inChild(t *testing.T, cases []elsewhere, env ...string) (differences []float64) {
	t.Helper()
	asked, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{os.Args[0], "-test.run=^TestCanaryChild$", "-test.v"}
	if self, err := os.Executable(); err == nil && strings.HasPrefix(filepath.Base(self), "ld-linux") { // tests/llama/releases.sh
		args = append([]string{self, "--library-path", filepath.Dir(self)}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(append(os.Environ(), "DORMOUSE_CANARY="+string(asked)), env...)
	out, err := c.CombinedOutput()
	_, said, ok := strings.Cut(string(out), "CANARY ")
	var answers []answer
	if !ok || json.NewDecoder(strings.NewReader(said)).Decode(&answers) != nil || len(answers) != len(cases) {
		t.Fatalf("child: %v\n%s", err, out)
	}
	for i, a := range answers {
		if a.Err != "" {
			t.Errorf("%s, %v: differs by %.3g: %s", cases[i].Name, env, a.Difference, a.Err)
		}
		differences = append(differences, a.Difference)
	}
	return differences
}

// TestCanaryChild is that process.
func TestCanaryChild(t *testing.T) {
	asked := os.Getenv("DORMOUSE_CANARY")
	if asked == "" {
		t.Skip("runs in a child process only")
	}
	var cases []elsewhere
	if err := json.Unmarshal([]byte(asked), &cases); err != nil {
		t.Fatal(err)
	}
	lib, api := library(t)
	var answers []answer
	for _, x := range cases {
		c := newContext(t, loadModel(t, lib, x.Model, false), contextOptions(llama.ContextOptions{CacheK: x.Cache, CacheV: x.Cache}))
		store := kit.OpenStoreAt(t, x.Store, db.Options{})
		d, err := attachTo(store, api, c)
		a := answer{Difference: d}
		if err != nil {
			a.Err = err.Error()
		}
		answers = append(answers, a)
		c.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	said, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("CANARY %s\n", said)
}
