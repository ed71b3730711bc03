package answer

import "testing"

func TestAnswersAreRead(t *testing.T) {
	for _, c := range []struct {
		end  string
		want Answer
	}{
		{`{"content":"x","timings":{"cache_n":7,"prompt_n":2,"prompt_ms":4.0,"predicted_n":3,"predicted_ms":1}}`, Answer{true, 7, 2, 3, 4e6, 1e6}},
		{"data: {\"choices\":[]}\n\ndata: {\"timings\": {\"cache_n\":1,\"prompt_n\":5}}\n\ndata: [DONE]\n\n", Answer{Known: true, Cached: 1, Prompt: 5}},
		{`{"usage":{"input_tokens":26,"output_tokens":4,"input_tokens_details":{"cached_tokens":6}}}`, Answer{Known: true, Cached: 6, Prompt: 20, Decoded: 4}},
		{`event: message_start data: {"message":{"usage":{"cache_read_input_tokens":9,"input_tokens":1}}} event: message_delta data: {"usage":{"output_tokens":5}}`,
			Answer{Known: true, Cached: 9, Prompt: 1}},
		{`{"content":"say \"timings\":{\"cache_n\":99}"}`, Answer{}},
		{`{"timings":`, Answer{}},
		{``, Answer{}},
	} {
		if got := Read([]byte(c.end)); got != c.want {
			t.Errorf("%s: %+v, expected %+v", c.end, got, c.want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(`data: {"timings":{"cache_n":1},"usage":{"cache_read_input_tokens":2}}`)
	f.Fuzz(func(t *testing.T, end string) { Read([]byte(end)) })
}
