package dialogs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// The front cannot name the slot of a request to /v1/messages, and llama-server goes on in a slot only if it has more than a tenth of the prompt: less than
// that is not restored into a slot that it will not choose, and does not count as rows that it computed again.
func TestLittleOfMessagesIsNotRestored(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "16384", "-np", "4", "--override-kv", "llama.context_length=int:4096")
	messages := func(n int) rig.Object {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, " Story %d has a dog with the number %d, who ran to the park and saw a tree.", n, i)
		}
		return rig.Object{"system": strings.Repeat("You tell stories to little children. ", 6), "max_tokens": 4, "temperature": 0,
			"messages": []rig.Object{{"role": "user", "content": b.String()}}}
	}
	r.Ask("/v1/messages", messages(0))
	r.Saved()
	r.KillServer()
	for n := 1; n <= trial.MaxFailed+1; n++ {
		got := r.Ask("/v1/messages", messages(n))
		if got.Status != 200 || !got.A.Known {
			t.Fatalf("%+v", got)
		}
		if !strings.HasPrefix(got.Header, "miss; reason=not_chosen") && !strings.HasPrefix(got.Header, "hit; tokens=") && !strings.HasPrefix(got.Header, "slot; tokens=") {
			t.Errorf("request %d, of which %d tokens were reused and %d computed: %q", n, got.A.Cached, got.A.Prompt, got.Header)
		}
	}
	if s, err := r.Front.Status(t.Context()); err != nil || len(s.Models) != 1 || len(s.Models[0].Resting) > 0 {
		t.Errorf("left alone: %+v: %v", s.Models, err)
	}
}
