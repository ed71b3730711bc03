package request

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestRequestsThatPass(t *testing.T) {
	for _, c := range []struct {
		e    Endpoint
		body string
		want error
	}{
		{Completion, `{"prompt":"a"}`, nil},
		{Completion, `{"prompt":"a","cache_prompt":true,"n":1,"id_slot":null}`, nil},
		{Completion, `{"prompt":"a","cache_prompt":null}`, nil},
		{Completion, `{"prompt":"a","cache_prompt":false}`, PassOff},
		{Completion, `{"prompt":"a","id_slot":2}`, PassSlot},
		{Chat, `{"messages":[],"n":2}`, PassMany},
		{Completion, `{"prompt":"a","n_cache_reuse":64}`, PassReuse},
		{Completion, `[1]`, PassBody},
		{Completion, `{"prompt":`, PassBody},
		{Completion, `null`, PassBody},
		{Completion, ``, PassBody},
	} {
		if _, err := Parse(c.e, []byte(c.body)); !errors.Is(err, c.want) {
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
		r, err := Parse(Completion, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		got := r.With(`"id_slot":3`, `"cache_prompt":true`)
		if string(got) != want || !json.Valid(got) {
			t.Errorf("%s became %s, expected %s", body, got, want)
		}
	}
}

func TestMediaIsSeen(t *testing.T) {
	for messages, want := range map[string]error{
		`[{"role":"user","content":"hello"}]`:                                          nil,
		`[{"role":"user","content":[{"type":"text","text":"a"}]}]`:                     nil,
		`[{"role":"user","content":[{"type":"text"},{"type":"image_url"}]}]`:           PassMedia,
		`[{"role":"a","content":"x"},{"role":"u","content":[{"type":"input_audio"}]}]`: PassMedia,
		`[{"role":"user","content":[{"type":"image_url","Type":"text"}]}]`:             PassMedia,
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`:              nil,
		`[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]`:         PassBody,
		`"text"`: PassBody,
	} {
		if err := mediaIn(json.RawMessage(messages)); !errors.Is(err, want) {
			t.Errorf("%s: %v, expected %v", messages, err, want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"prompt":[1,"a",2],"cache_prompt":true}`)
	for _, c := range wordings {
		f.Add(c.body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := Parse(Completion, []byte(body))
		if err != nil {
			return
		}
		if got := r.With(`"id_slot":3`); !json.Valid(got) {
			t.Errorf("%s became %s", body, got)
		}
		mediaIn(r.Fields["messages"])
		responsesAsChat(r.Fields)
		messagesAsChat(r.Fields)
	})
}
