package llamaserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Of what is stored it is known which programs have asked for it: for the beginning that two share both, behind it each for its own.
func TestAskers(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "8192", "-np", "1")
	shared := rig.Story("Once upon a time", 6)["prompt"].(string)
	for agent, more := range map[string]string{"claude-cli/2.1 (external, cli)": "A", "codex_cli_rs/0.171": "B", "nobody/1": "C"} {
		b, err := json.Marshal(rig.Object{"prompt": shared + rig.Story(" Then "+more, 4)["prompt"].(string), "n_predict": 2, "temperature": 0})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL+"/completion", strings.NewReader(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", agent)
		if got := rig.Do(req); got.Status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
		r.Saved()
	}
	of := func() map[string]int {
		n := map[string]int{}
		seen := map[kv.Key]bool{}
		for b, err := range r.Front.Store().Blocks(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !seen[b.Key] {
				seen[b.Key] = true
				n[r.Front.Askers(fmt.Sprintf("%x", b.Key[:6]))]++
			}
		}
		return n
	}
	r.Eventually(func() bool { return len(of()) == 4 })
	if n := of(); n["claude-code"] == 0 || n["codex"] == 0 || n["claude-code, codex"] == 0 || n[""] == 0 {
		t.Errorf("blocks by who asked for them: %v", n)
	}
	for _, block := range []string{"", "abc", "0123456789abcdef", "zzzzzzzzzzzz", "000000000000+"} {
		if who := r.Front.Askers(block); who != "" {
			t.Errorf("%q has been asked for by %q", block, who)
		}
	}
}
