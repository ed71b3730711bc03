package dialogs_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// Servers of other releases make functions of tools that are none, or refuse them: such requests pass and say which tools it is about, until the server
// counts as the front does. One that counts nothing beforehand is believed, and compared afterwards.
func TestServersThatTreatToolsOtherwise(t *testing.T) {
	template, err := filepath.Abs(rig.Testdata("tools.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	search := []rig.Object{{"type": "web_search"}}
	for _, c := range []struct {
		name         string
		tools        string // what the server sees in place of the tool
		path         string // where it is asked for its count
		status       int
		header, then string
	}{
		{"functions", `[{"type":"function","name":"web_search","parameters":{}}]`, "/v1/responses/input_tokens", 200, "pass; reason=tools; type=web_search", "pass; reason=tools; type=web_search"},
		{"refused", `"none"`, "/v1/responses/input_tokens", 400, "pass; reason=tools; type=web_search", "miss; reason=nothing_stored"},
		{"counts nothing", `[]`, "/v1/count", 200, "miss; reason=nothing_stored", "slot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "--jinja", "--chat-template-file", template)
			otherwise := true
			r.Between(func(req *http.Request) {
				if !otherwise || !strings.HasPrefix(req.URL.Path, "/v1/responses") {
					return
				}
				if strings.HasSuffix(req.URL.Path, "input_tokens") {
					req.URL.Path = c.path
				}
				rig.ResetBody(req, []byte(strings.Replace(string(rig.ReadBody(t, req)), `[{"type":"web_search"}]`, c.tools, 1)))
			})
			ask := func(tools []rig.Object) rig.Reply {
				before := r.Requests()
				got := r.Ask("/v1/responses", rig.Object{"input": rig.Longer, "tools": tools, "max_output_tokens": 4, "temperature": 0})
				r.Eventually(func() bool { return r.Requests() > before })
				r.Saved()
				return got
			}
			if got := ask(search); got.Status != c.status || !strings.HasPrefix(got.Header, c.header) {
				t.Errorf("%d %s, expected %s\n%s", got.Status, got.Header, c.header, got.Body)
			}
			if q := r.Front.Figures().Recent[0]; strings.Contains(c.header, "tools") && (q.Reason != string(request.PassTools) || q.Types != "web_search") {
				t.Errorf("the figures say %q of %q", q.Reason, q.Types)
			}
			otherwise = false
			if got := ask(search); !strings.HasPrefix(got.Header, c.then) {
				t.Errorf("then: %s, expected %s", got.Header, c.then)
			}
			if got := ask([]rig.Object{}); strings.HasPrefix(got.Header, "pass") {
				t.Errorf("without tools: %s", got.Header)
			}
			for i := 0; strings.HasPrefix(ask(search).Header, "pass"); i++ {
				if i > trial.RestRequests {
					t.Fatal("it passes for good")
				}
			}
			if got := ask(search); !strings.HasPrefix(got.Header, "slot") {
				t.Errorf("afterwards: %s", got.Header)
			}
		})
	}
}
