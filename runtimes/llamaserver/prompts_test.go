package llamaserver

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

func TestKeysOfRequests(t *testing.T) {
	for _, c := range []struct{ authorization, api, want string }{
		{"Bearer a", "", "a"}, {"a", "", "a"}, {"", "a", "a"}, {"", "Bearer a", "a"}, {"Bearer a", "b", "a"}, {"Basic a", "b", "Basic a"}, {"", "", ""},
	} {
		r := &http.Request{Header: http.Header{"Authorization": {c.authorization}, "X-Api-Key": {c.api}}}
		if got := keyOf(r); got != c.want {
			t.Errorf("%q, %q: %q, expected %q", c.authorization, c.api, got, c.want)
		}
	}
}

// The server makes a chat request of /v1/messages and drops what it does not know, the adapters among it: they are not those that were asked for.
func TestAdaptersOfMessages(t *testing.T) {
	s := &prompts{adapters: []api.Adapter{{ID: 0, Scale: 1}}, hashes: map[int]kv.Hash{0: {1}}}
	fields := map[string]json.RawMessage{"lora": json.RawMessage(`[{"id":0,"scale":0}]`)}
	for e := request.Completion; e <= request.Messages; e++ {
		got, err := s.adaptersOf(&request.Request{Endpoint: e, Fields: fields})
		if drops := e == request.Messages || e == request.Responses; drops != (err != nil) || len(got) > 0 {
			t.Errorf("%v: %v %v", e, got, err)
		}
	}
}
