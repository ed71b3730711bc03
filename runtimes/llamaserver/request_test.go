package llamaserver

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"
)

func TestRequestsThatPass(t *testing.T) {
	for _, c := range []struct {
		e    endpoint
		body string
		want error
	}{
		{completion, `{"prompt":"a"}`, nil},
		{completion, `{"prompt":"a","cache_prompt":true,"n":1,"id_slot":null}`, nil},
		{completion, `{"prompt":"a","cache_prompt":null}`, nil},
		{completion, `{"prompt":"a","cache_prompt":false}`, passOff},
		{completion, `{"prompt":"a","id_slot":2}`, passSlot},
		{chatCompletion, `{"messages":[],"n":2}`, passMany},
		{completion, `{"prompt":"a","n_cache_reuse":64}`, passReuse},
		{completion, `[1]`, passBody},
		{completion, `{"prompt":`, passBody},
		{completion, `null`, passBody},
		{completion, ``, passBody},
	} {
		if _, err := parseRequest(c.e, []byte(c.body)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, expected %v", c.body, err, c.want)
		}
	}
}

func TestFieldsAreAdded(t *testing.T) {
	for body, want := range map[string]string{
		`{"a": 1}`:         `{"a": 1,"id_slot":3,"cache_prompt":true}`,
		" {\n} ":           " {\n\"id_slot\":3,\"cache_prompt\":true} ",
		`{"a":"{}x"}`:      `{"a":"{}x","id_slot":3,"cache_prompt":true}`,
		`{"id_slot":null}`: `{"id_slot":null,"id_slot":3,"cache_prompt":true}`, // the last counts
	} {
		r, err := parseRequest(completion, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		got := r.with(`"id_slot":3`, `"cache_prompt":true`)
		if string(got) != want || !json.Valid(got) {
			t.Errorf("%s became %s, expected %s", body, got, want)
		}
	}
}

func TestMediaIsSeen(t *testing.T) {
	for messages, want := range map[string]error{
		`[{"role":"user","content":"hello"}]`:                                          nil,
		`[{"role":"user","content":[{"type":"text","text":"a"}]}]`:                     nil,
		`[{"role":"user","content":[{"type":"text"},{"type":"image_url"}]}]`:           passMedia,
		`[{"role":"a","content":"x"},{"role":"u","content":[{"type":"input_audio"}]}]`: passMedia,
		`[{"role":"user","content":[{"type":"image_url","Type":"text"}]}]`:             passMedia,
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`:              nil,
		`"text"`: passBody,
	} {
		if err := mediaIn(json.RawMessage(messages)); !errors.Is(err, want) {
			t.Errorf("%s: %v, expected %v", messages, err, want)
		}
	}
}

func TestScalesOfRequests(t *testing.T) {
	for body, want := range map[string]map[int]float32{
		`[{"id":0,"scale":0.5},{"id":1,"scale":2}]`: {0: 0.5, 1: 2},
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
		got, err := chosenScales(json.RawMessage(body))
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

func FuzzRequest(f *testing.F) {
	f.Add(`{"prompt":[1,"a",2],"cache_prompt":true}`)
	for _, c := range wordings {
		f.Add(c.body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := parseRequest(completion, []byte(body))
		if err != nil {
			return
		}
		if got := r.with(`"id_slot":3`); !json.Valid(got) {
			t.Errorf("%s became %s", body, got)
		}
		mediaIn(r.fields["messages"])
		responsesAsChat(r.fields)
		messagesAsChat(r.fields)
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(`data: {"timings":{"cache_n":1},"usage":{"cache_read_input_tokens":2}}`)
	f.Fuzz(func(t *testing.T, end string) { readAnswer([]byte(end)) })
}
