package llamaserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Of what is stored it is known which programs have asked for it: for the beginning that two share both, behind it each for its own.
func TestAskers(t *testing.T) {
	r := start(t, Options{}, "-c", "8192", "-np", "1")
	shared := story("Once upon a time", 6)["prompt"].(string)
	for agent, more := range map[string]string{"claude-cli/2.1 (external, cli)": "A", "codex_cli_rs/0.171": "B", "nobody/1": "C"} {
		b, err := json.Marshal(object{"prompt": shared + story(" Then "+more, 4)["prompt"].(string), "n_predict": 2, "temperature": 0})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/completion", strings.NewReader(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", agent)
		if got := do(req); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
		r.saved()
	}
	of := func() map[string]int {
		n := map[string]int{}
		seen := map[kv.Key]bool{}
		for b, err := range r.front.Store().Blocks(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !seen[b.Key] {
				seen[b.Key] = true
				n[r.front.Askers(fmt.Sprintf("%x", b.Key[:6]))]++
			}
		}
		return n
	}
	r.eventually(func() bool { return len(of()) == 4 })
	if n := of(); n["claude-code"] == 0 || n["codex"] == 0 || n["claude-code, codex"] == 0 || n[""] == 0 {
		t.Errorf("blocks by who asked for them: %v", n)
	}
	for _, block := range []string{"", "abc", "0123456789abcdef", "zzzzzzzzzzzz", "000000000000+"} {
		if who := r.front.Askers(block); who != "" {
			t.Errorf("%q has been asked for by %q", block, who)
		}
	}
}

// However many blocks and programs there are, memory is bounded.
func TestAskersAreBounded(t *testing.T) {
	var a askers
	for i := range 100 {
		keys := make([]kv.Key, 2000)
		for j := range keys {
			keys[j] = kv.Key{byte(i), byte(j), byte(j >> 8)}
		}
		a.add(fmt.Sprint("program ", i), keys)
	}
	if len(a.of) > maxAskedKeys || len(a.names) > maxAskers || len(a.of) == 0 {
		t.Errorf("%d blocks, %d programs", len(a.of), len(a.names))
	}
}
