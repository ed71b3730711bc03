package llamaserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// The front cannot name the slot of a request to /v1/messages, and llama-server goes on in a slot only if it has more than a tenth of the prompt: less than
// that is not restored into a slot that it will not choose, and does not count as rows that it computed again.
func TestLittleOfMessagesIsNotRestored(t *testing.T) {
	r := start(t, Options{}, "-c", "16384", "-np", "4", "--override-kv", "llama.context_length=int:4096")
	messages := func(n int) object {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, " Story %d has a dog with the number %d, who ran to the park and saw a tree.", n, i)
		}
		return object{"system": strings.Repeat("You tell stories to little children. ", 6), "max_tokens": 4, "temperature": 0,
			"messages": []object{{"role": "user", "content": b.String()}}}
	}
	r.ask("/v1/messages", messages(0))
	r.saved()
	r.killServer()
	for n := 1; n <= trial.MaxFailed+1; n++ {
		got := r.ask("/v1/messages", messages(n))
		if got.status != 200 || !got.a.Known {
			t.Fatalf("%+v", got)
		}
		if !strings.HasPrefix(got.header, "miss; reason=not_chosen") && !strings.HasPrefix(got.header, "hit; tokens=") && !strings.HasPrefix(got.header, "slot; tokens=") {
			t.Errorf("request %d, of which %d tokens were reused and %d computed: %q", n, got.a.Cached, got.a.Prompt, got.header)
		}
	}
	if s, err := r.front.Status(t.Context()); err != nil || len(s.Models) != 1 || len(s.Models[0].Resting) > 0 {
		t.Errorf("left alone: %+v: %v", s.Models, err)
	}
}
