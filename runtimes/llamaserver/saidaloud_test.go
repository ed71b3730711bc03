package llamaserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What variables and flags come to is what the server makes of them.
func TestArgumentsAreTheServers(t *testing.T) {
	for _, c := range []struct{ env, args string }{
		{"LLAMA_ARG_CACHE_PROMPT=0", ""}, {"LLAMA_ARG_NO_CACHE_PROMPT=0", ""}, {"LLAMA_ARG_CACHE_PROMPT=1", ""}, {"LLAMA_ARG_CACHE_PROMPT=0", "--cache-prompt"},
		{"", "--no-cache-prompt --cache-prompt"}, {"LLAMA_ARG_ENDPOINT_SLOTS=off", ""}, {"LLAMA_ARG_NO_ENDPOINT_SLOTS=0", ""}, {"", "--no-slots --slots"},
		{"LLAMA_ARG_CACHE_REUSE=9", "--cache-reuse 0"}, {"", "--cache_reuse 0"}, {"LLAMA_ARG_SWA_FULL=", ""}, {"LLAMA_ARG_SPEC_DRAFT_MODEL=", "--rope-freq-base 0 --yarn-ext-factor -1"},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			a, err := llamaserver.ParseArguments(strings.Fields("s -m m "+c.args), strings.Fields(c.env))
			if err != nil {
				t.Fatal(err)
			}
			base := rig.Plain(t, append([]string{"-c", "512", "-np", "1"}, strings.Fields(c.args)...)...)
			resp, err := http.Get(base + "/slots")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			body := rig.Story("Of the server's own", 4)
			rig.Ask(t, t.Context(), base, "/completion", body)
			got := rig.Ask(t, t.Context(), base, "/completion", body)
			if keeps := got.A.Cached > 0 && resp.StatusCode == http.StatusOK; keeps != (a.Refused == "") {
				t.Errorf("the server reuses %d tokens, and its slots are answered with %s; the front says %q", got.A.Cached, resp.Status, a.Refused)
			}
		})
	}
}
