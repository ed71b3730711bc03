package llamaserver

import (
	"encoding/json"
	"maps"
	"testing"
)

func TestScalesOfRequests(t *testing.T) {
	for body, want := range map[string]map[int]float32{
		`[{"id":0,"scale":0.5},{"id":1,"scale":2}]`: {0: 0.5, 1: 2},
		`[{"id":2,"scale":1}]`:                      nil, // the server has no such adapter
		`[{"id":0,"scale":1},{"id":0,"scale":0}]`:   {0: 0},
		`[]`:                             {},
		`[{"id":0,"scale":1,"Scale":0}]`: nil, // the server knows no Scale
		`[{"scale":1}]`:                  nil,
		`[{"id":0}]`:                     nil,
		`[{"id":0,"scale":null}]`:        nil,
		`[{"id":1.5,"scale":1}]`:         nil,
		`{"id":0,"scale":1}`:             nil,
		`[{"id":0,"scale":1e999}]`:       nil,
		`[{"ID":0,"id":1,"scale":1}]`:    nil,
	} {
		got, err := chosenScales(json.RawMessage(body), map[int]float32{0: 1, 1: 1})
		if !maps.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v %v, expected %v", body, got, err, want)
		}
	}
}

func TestAnswersAreRead(t *testing.T) {
	for _, c := range []struct {
		end  string
		want answered
	}{
		{`{"content":"x","timings":{"cache_n":7,"prompt_n":2,"prompt_ms":4.0,"predicted_n":3,"predicted_ms":1}}`, answered{true, 7, 2, 3, 4e6, 1e6}},
		{"data: {\"choices\":[]}\n\ndata: {\"timings\": {\"cache_n\":1,\"prompt_n\":5}}\n\ndata: [DONE]\n\n", answered{known: true, cached: 1, prompt: 5}},
		{`{"usage":{"input_tokens":26,"output_tokens":4,"input_tokens_details":{"cached_tokens":6}}}`, answered{known: true, cached: 6, prompt: 20, decoded: 4}},
		{`event: message_start data: {"message":{"usage":{"cache_read_input_tokens":9,"input_tokens":1}}} event: message_delta data: {"usage":{"output_tokens":5}}`,
			answered{known: true, cached: 9, prompt: 1}},
		{`{"content":"say \"timings\":{\"cache_n\":99}"}`, answered{}},
		{`{"timings":`, answered{}},
		{``, answered{}},
	} {
		if got := readAnswer([]byte(c.end)); got != c.want {
			t.Errorf("%s: %+v, expected %+v", c.end, got, c.want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(`data: {"timings":{"cache_n":1},"usage":{"cache_read_input_tokens":2}}`)
	f.Fuzz(func(t *testing.T, end string) { readAnswer([]byte(end)) })
}
