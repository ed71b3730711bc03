package dialogs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What agents send when a conversation is to become shorter, in the shapes in which they were seen to send it. Claude Code asks at the end of the
// conversation as it was: all of it is reused. Codex leaves its tools away, so that with a template that has them behind the system prompt only that
// is. opencode, qwen-code and pi ask somebody else, with another system prompt: these are new prompts, of which nothing can have been computed.
func TestCompaction(t *testing.T) {
	schema := rig.Object{"type": "object"}
	const system = "MARK You are a good helper of all. You are a good helper of all. You are a good helper of all."
	turn := func(i int) (q, a string) {
		return fmt.Sprint("What is in ", i, "?"), fmt.Sprintf("In %d there is a story of a dog and a cat.", i)
	}
	chat := func(kind string, system string) (out []rig.Object) {
		if system != "" {
			out = append(out, rig.Object{"role": "system", "content": system})
		}
		for i := range 3 {
			q, a := turn(i)
			if kind == "" {
				out = append(out, rig.Object{"role": "user", "content": q}, rig.Object{"role": "assistant", "content": a})
				continue
			}
			out = append(out, rig.Object{"type": "message", "role": "user", "content": []rig.Object{{"type": "input_text", "text": q}}},
				rig.Object{"type": "message", "role": "assistant", "content": []rig.Object{{"type": "output_text", "text": a}}})
		}
		return out
	}
	said := func() string {
		var b strings.Builder
		for i := range 3 {
			q, a := turn(i)
			b.WriteString("[User]: " + q + "\n\n[Assistant]: " + a + "\n\n")
		}
		return b.String()
	}()
	functions := []rig.Object{{"type": "function", "function": rig.Object{"name": "read", "description": "reads a file", "parameters": schema}}}
	ask := func(text string) rig.Object { return rig.Object{"role": "user", "content": text} }
	input := func(text string) rig.Object {
		return rig.Object{"type": "message", "role": "user", "content": []rig.Object{{"type": "input_text", "text": text}}}
	}
	r := rig.Start(t, llamaserver.Options{}, append(rig.SystemFirst(t), "-c", "8192", "-np", "1")...)
	for _, c := range []struct {
		client, path string
		before, call rig.Object // MARK is something else each time
		least, most  string     // of the prompt before: what is reused of it at least, and at most
	}{
		{
			"claude-code", "/v1/messages",
			rig.Object{"system": []rig.Object{{"type": "text", "text": system}}, "tools": []rig.Object{{"name": "read", "description": "reads a file", "input_schema": schema}}, "messages": append(chat("", ""), ask("And?")), "max_tokens": 4, "temperature": 0},
			rig.Object{"system": []rig.Object{{"type": "text", "text": system}}, "tools": []rig.Object{{"name": "read", "description": "reads a file", "input_schema": schema}}, "messages": append(chat("", ""),
				rig.Object{"role": "user", "content": []rig.Object{{"type": "text", "text": "And?\n"}, {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Write a summary."}}}), "max_tokens": 4, "temperature": 0},
			"all", "all",
		},
		{
			"codex", "/v1/responses",
			rig.Object{"instructions": system, "tools": []rig.Object{{"type": "function", "name": "read", "description": "reads a file", "parameters": schema}}, "input": append(chat("input", ""), input("And?")), "max_output_tokens": 4, "temperature": 0},
			rig.Object{"instructions": system, "tools": []rig.Object{}, "input": append(chat("input", ""), input("And?"), input("You are performing a CONTEXT CHECKPOINT COMPACTION.")), "max_output_tokens": 4, "temperature": 0},
			"system", "system",
		},
		{
			"opencode", "/v1/chat/completions",
			rig.Object{"tools": functions, "messages": append(chat("", system), ask("And?")), "max_tokens": 4, "temperature": 0},
			rig.Object{"messages": []rig.Object{{"role": "system", "content": "MARK You are a context summarization agent."}, ask("Here is the conversation so far:\n\n<conversation>\n" + said + "</conversation>\n\nCreate a new anchored summary.")}, "max_tokens": 4, "temperature": 0},
			"", "",
		},
		{
			"qwen-code", "/v1/chat/completions",
			rig.Object{"tools": functions, "messages": append(chat("", system), ask("And?")), "max_tokens": 4, "temperature": 0},
			rig.Object{"messages": append(chat("", "MARK You are the component that summarizes internal chat history."), ask("First, reason in your scratchpad. Then, generate the <state_snapshot>.")), "max_tokens": 4, "temperature": 0},
			"", "",
		},
		{
			"pi", "/v1/chat/completions",
			rig.Object{"tools": functions, "messages": append(chat("", system), ask("And?")), "max_tokens": 4, "temperature": 0},
			rig.Object{"messages": []rig.Object{{"role": "system", "content": "MARK You are a context summarization assistant."}, ask("<conversation>\n" + said + "</conversation>\n\nCreate a structured context checkpoint summary.")}, "max_tokens": 4, "temperature": 0},
			"", "",
		},
	} {
		t.Run(c.client, func(t *testing.T) {
			for _, store := range []bool{false, true} {
				marked := func(body rig.Object) string {
					b, err := json.Marshal(body)
					if err != nil {
						t.Fatal(err)
					}
					return strings.ReplaceAll(string(b), "MARK", fmt.Sprintf("%s %v.", c.client, store))
				}
				before := r.Ask(c.path, marked(c.before))
				if before.Status != 200 {
					t.Fatalf("the conversation: %d %s %s", before.Status, before.Header, before.Body)
				}
				all := before.A.Cached + before.A.Prompt
				r.Saved()
				if store {
					r.Ask("/completion", rig.Story("Of something else", 4)) // the slot is needed
					r.Saved()
				}
				got := r.Ask(c.path, marked(c.call))
				if got.Status != 200 || strings.HasPrefix(got.Header, "pass") {
					t.Fatalf("the compaction: %d %s %s", got.Status, got.Header, got.Body)
				}
				// What a template writes behind the last message, and a few letters at a border, are the prompt's own.
				const few = 40
				least := map[string]int{"all": all - few, "system": len(system) / 6, "": 0}[c.least]
				most := map[string]int{"all": all, "system": all / 2, "": few}[c.most]
				if got.A.Cached < least || got.A.Cached > most {
					t.Errorf("of %d tokens the compaction reuses %d, expected %d to %d (%s)", all, got.A.Cached, least, most, got.Header)
				}
				if way := map[bool]string{false: "slot", true: "hit"}[store]; least > 0 && !strings.HasPrefix(got.Header, way) {
					t.Errorf("the compaction is %s, expected a %s", got.Header, way)
				}
				if c.least != "all" && !strings.Contains(got.Header, "; parted=") { // then the answer says where
					t.Errorf("the compaction is %s", got.Header)
				}
				r.Saved()
			}
		})
	}
}
