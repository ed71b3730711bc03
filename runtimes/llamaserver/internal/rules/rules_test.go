package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

func parsed(t testing.TB, file string) Rules {
	t.Helper()
	rs, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

const twoRules = `{"rules": [
	{"name": "id", "parts": ["system", "tools", "messages"], "pattern": "id=[0-9a-f]+;", "action": "drop"},
	{"name": "cwd", "parts": ["system", "tools", "first message"], "pattern": "(?m)^Working directory: (.*)$", "action": "move", "leave": "(see below)", "line": "You are in $1"}
]}`

// What no rule finds stays as it was sent: all of the body, or what is around a text that changes.
func TestTheRestStaysByteForByte(t *testing.T) {
	rs := parsed(t, twoRules)
	for _, c := range []struct {
		e          request.Endpoint
		body, want string
	}{
		{request.Chat, " {\"messages\" :\t[ ],\"x\":1.50}\n", ""},
		{request.Chat, `{"messages":[{"role":"system","content":"nothing"},{"role":"user","content":"Working directory of mine"}]}`, ""},
		{request.Chat, `{"x":"id=5;","messages":[{"role":"user","name":"id=6;","content":"a"}]}`, ""}, // no text of a part
		{request.Chat, `{"messages":`, ""},
		{request.Chat, `{"messages":[{"role":"system","content":"id=5;"}],"messages":[]}`, ""},                                                  // which one counts is not for us to say
		{request.Chat, `{"messages":[{"role":"system","content":"Working directory: /a"}]}`, ""},                                                // nobody would read it
		{request.Chat, `{"messages":[{"role":"system","content":"\ud800 id=5;"},{"role":"system","content":"id=` + "\xff" + `5; id=5;"}]}`, ""}, // readers differ in what that is
		{request.Completion, `{"prompt":"id=5;"}`, ""},
		{
			request.Chat, "\xef\xbb\xbf" + ` { "temperature" : 1.0e0 , "messages" :[{"content":"A\u00e9 \ud83d\ude00id=5f;\/id=6;<b>\n","role":"system"}, {"role":"user","content":"q"}],"b":null}`,
			"\xef\xbb\xbf" + ` { "temperature" : 1.0e0 , "messages" :[{"content":"A\u00e9 \ud83d\ude00\/<b>\n","role":"system"}, {"role":"user","content":"q"}],"b":null}`,
		},
		{
			request.Chat, `{"messages":[{"role":"developer","content":[{"type":"text","text":"x\nWorking directory: \/é\u00e9\ny"}]},{"role":"user","content":[{"type":"text","text":"q"},{"type":"image_url"}]},{"role":"user","content":"r"}]}`,
			`{"messages":[{"role":"developer","content":[{"type":"text","text":"x\n(see below)\ny"}]},{"role":"user","content":[{"type":"text","text":"q\nYou are in /éé"},{"type":"image_url"}]},{"role":"user","content":"r"}]}`,
		},
		{
			request.Messages, `{"system":[{"type":"text","text":"id=5;"},{"type":"text","text":"Working directory: /a"}],"tools":[{"name":"id=5;","description":"Working directory: /a","input_schema":{"properties":{"description":{"description":"id=7;x"}}}}],"messages":[{"role":"user","content":[{"type":"tool_result","content":"id=8;"},{"type":"text","text":"q"}]}]}`,
			`{"system":[{"type":"text","text":""},{"type":"text","text":"(see below)"}],"tools":[{"name":"id=5;","description":"(see below)","input_schema":{"properties":{"description":{"description":"x"}}}}],"messages":[{"role":"user","content":[{"type":"tool_result","content":"id=8;"},{"type":"text","text":"q\nYou are in /a"}]}]}`,
		},
		{
			request.Responses, `{"input":"q id=9;","instructions":"Working directory: /a"}`,
			`{"input":"q \nYou are in /a","instructions":"(see below)"}`,
		},
		{
			request.Responses, `{"instructions":"i","input":[{"role":"developer","content":"Working directory: /a"},{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]}]}`,
			`{"instructions":"i","input":[{"role":"developer","content":"(see below)"},{"type":"message","role":"user","content":[{"type":"input_text","text":"q\nYou are in /a"}]}]}`,
		},
	} {
		got, applied := rs.Apply(c.e, []byte(c.body))
		if c.want == "" {
			if string(got) != c.body || applied != nil {
				t.Errorf("%s became %s by %v, expected no change", c.body, got, applied)
			}
			continue
		}
		if string(got) != c.want || applied == nil {
			t.Errorf("%s became\n%s by %v, expected\n%s", c.body, got, applied, c.want)
		}
	}
}

// conversation is one of a client's in a folder, after some answers.
type conversation struct {
	client string
	e      request.Endpoint
	system func(folder string) string
	second func(folder string) string // behind the first message of the user; nil: nothing
}

// What clients say of the folder, in their words; the rest of their system prompts is the same everywhere.
var conversations = []conversation{
	{client: "claude-code", e: request.Messages, system: func(f string) string {
		return `[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.197.` + f[len(f)-3:] + `; cc_entrypoint=sdk-cli;"},{"type":"text","text":"You are an agent."},{"type":"text","text":` +
			quoted("\nYou are an interactive agent.\n\n# Memory\n\nYou have a persistent file-based memory at `/home/ann/.claude/projects/"+strings.ReplaceAll(f, "/", "-")+"/memory/`. This directory already exists.\n\n"+
				"# Environment\nYou have been invoked in the following environment: \n - Primary working directory: "+f+"\n - Is a git repository: "+fmt.Sprint(len(f)%2 == 0)+"\n - Platform: linux\n\n# Context\nBe brief.\n\n"+
				"gitStatus: This is the git status at the start of the conversation. Note that this status is a snapshot in time.\n\nStatus:\n?? "+f+".txt\n\nRecent commits:\nb6b7e7c first") + `}]`
	}},
	{client: "claude-code", e: request.Messages, system: func(f string) string { // since 2.1.332
		return `[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.332.` + f[len(f)-3:] + `; cc_entrypoint=sdk-cli;"},{"type":"text","text":"You are an agent."}]`
	}, second: func(f string) string {
		return quoted("# Environment\nYou have been invoked in the following environment: \n - Primary working directory: " + f + "\n - Is a git repository: " + fmt.Sprint(len(f)%2 == 0) +
			"\n - Platform: linux\n\nThe following skills are available.\n\nToday's date is 2026-11-" + fmt.Sprint(10+len(f)) + ".")
	}},
	{client: "opencode", e: request.Chat, system: func(f string) string {
		more := ""
		if strings.Contains(f, "other") {
			more = "Instructions from: " + f + "/AGENTS.md\n# Rules\n\nUse tabs.\n\n"
		}
		return quoted("You are opencode.\n<env>\n  Working directory: " + f + "\n  Workspace root folder: " + f + "\n  Is directory a git repo: yes\n  Platform: linux\n  Today's date: Sat Nov 28 2026\n</env>\n" + more +
			"Skills provide specialized instructions and workflows for specific tasks.\n<available_skills>\n</available_skills>")
	}},
	{client: "qwen-code", e: request.Chat, system: func(f string) string {
		memory := "/home/ann/.qwen/projects/" + strings.ReplaceAll(f, "/", "-") + "/memory"
		more := ""
		if strings.Contains(f, "other") {
			more = "--- Context from: QWEN.md ---\n# Rules\nUse tabs.\n--- End of Context from: QWEN.md ---\n\n"
		}
		return quoted("You are Qwen Code.\n\n---\n\n" + more + "--- Context from: " + strings.Repeat("../", strings.Count(f, "/")) + "home/.qwen/output-language.md ---\n# Output language\n--- End of Context from: " +
			strings.Repeat("../", strings.Count(f, "/")) + "home/.qwen/output-language.md ---\n\n---\n\n# auto memory\n\nYou have a persistent, file-based memory system at `" + memory + "`. This directory already exists.\n" +
			"add a pointer to that file in `" + memory + "/MEMORY.md` (the full absolute path).\n\n## " + memory + "/MEMORY.md\n\nYour MEMORY.md is currently empty.")
	}},
	{client: "codex", e: request.Responses, system: func(f string) string {
		return quoted("<permissions instructions>\n`sandbox_mode` is `workspace-write`.\n The writable roots are `/tmp`, `" + f + "`.\n</permissions instructions>")
	}},
	{client: "pi", e: request.Chat, system: func(f string) string {
		more := ""
		if strings.Contains(f, "other") {
			more = "\n\n# Project Context\n\nProject-specific instructions and guidelines:\n\n## " + f + "/AGENTS.md\n\n# Rules\n\nUse tabs.\n\n\n"
		}
		return quoted("You are an expert coding assistant.\n- read pi docs" + more + "\nCurrent date: 2026-11-28\nCurrent working directory: " + f)
	}},
	{client: "pi", e: request.Chat, system: func(f string) string { // since 1.6
		more := ""
		if strings.Contains(f, "other") {
			more = "\n\n<project_context>\nProject-specific instructions and guidelines:\n\n<project_instructions path=\"" + f + "/AGENTS.md\">\nUse tabs.\n\n</project_instructions>\n</project_context>"
		}
		return quoted("<docs>\nread pi docs\n</docs>" + more + "\n\n<cwd>\n" + f + "\n</cwd>")
	}},
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// body is the request after some answers.
func (c conversation) body(folder string, answers int) []byte {
	messages := []string{`{"role":"user","content":[{"type":"text","text":"What is in it?"}]}`}
	if c.second != nil {
		messages = append(messages, `{"role":"system","content":`+c.second(folder)+`}`)
	}
	for i := range answers {
		messages = append(messages, fmt.Sprintf(`{"role":"assistant","content":"Number %d."}`, i), fmt.Sprintf(`{"role":"user","content":"And %d?"}`, i))
	}
	tools := `"tools":[{"type":"function","function":{"name":"read","description":"Reads a file."}}]`
	switch c.e {
	case request.Messages:
		return []byte(`{"system":` + c.system(folder) + `,"messages":[` + strings.Join(messages, ",") + `],` + tools + `}`)
	case request.Responses:
		return []byte(strings.ReplaceAll(`{"input":[{"role":"developer","content":`+c.system(folder)+`},`+strings.Join(messages, ",")+`],`+tools+`}`, `"type":"text"`, `"type":"input_text"`))
	}
	return []byte(`{"messages":[{"role":"system","content":` + c.system(folder) + `},` + strings.Join(messages, ",") + `],` + tools + `}`)
}

// parts are the system prompt and the messages of a body.
func (c conversation) parts(t testing.TB, body []byte) (system any, messages []any) {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	switch c.e {
	case request.Messages:
		return v["system"], v["messages"].([]any)
	case request.Responses:
		messages = v["input"].([]any)
	default:
		messages = v["messages"].([]any)
	}
	return messages[0], messages[1:]
}

// With its set, a client's system prompt is the same in each folder, and what was moved is read in the first message of the user, in each turn at the same place:
// a later turn begins with all of the one before.
func TestSetsOfClients(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range conversations {
		tried[c.client] = true
	}
	for _, name := range Sets() {
		if !tried[name] {
			t.Errorf("no conversation of %s is tried", name)
		}
	}
	for _, c := range conversations {
		t.Run(c.client, func(t *testing.T) {
			rs, err := Load(c.client)
			if err != nil {
				t.Fatal(err)
			}
			const here, there = "/home/ann/shop", "/srv/other/place/of work"
			a, _ := c.parts(t, c.body(here, 0))
			if b, _ := c.parts(t, c.body(there, 0)); reflect.DeepEqual(a, b) {
				t.Fatal("the system prompt is the same without the rules: the test shows nothing")
			}
			first, applied := rs.Apply(c.e, c.body(here, 0))
			if applied == nil {
				t.Fatal("no rule found anything")
			}
			system, messages := c.parts(t, first)
			other, _ := rs.Apply(c.e, c.body(there, 0))
			if b, _ := c.parts(t, other); !reflect.DeepEqual(system, b) {
				t.Errorf("in one folder the system prompt is\n%v\nin another\n%v", system, b)
			}
			if !bytes.Contains(other, []byte(there)) && !bytes.Contains(other, []byte("MEMORY_FOLDER stands for /home/ann/.qwen/projects/-srv-other-place-of work/memory")) {
				t.Errorf("nobody reads where it is: %s", other)
			}
			for n := 1; n < 4; n++ {
				next, _ := rs.Apply(c.e, c.body(here, n))
				s, m := c.parts(t, next)
				if !reflect.DeepEqual(s, system) || !reflect.DeepEqual(m[:len(messages)], messages) {
					t.Errorf("after %d answers the request does not begin like the one before:\n%s", n, next)
				}
				messages = m
			}
			if again, applied := rs.Apply(c.e, first); applied != nil && !bytes.Equal(again, first) {
				t.Errorf("applied twice, %v change it again: %s", applied, again)
			}
		})
	}
}

// A file that is wrong is refused, with the line.
func TestFilesThatAreWrong(t *testing.T) {
	rule := func(fields string) string {
		return "{\"rules\": [\n{\"name\": \"a\", \"parts\": [\"system\"], \"pattern\": \"x\", \"action\": \"drop\"},\n{" + fields + "}]}"
	}
	for file, want := range map[string]string{
		``:                               "line 1: it ends too soon",
		`[]`:                             "line 1: the file: expected an object",
		"{\n\"rules\": [],\n\"more\":1}": `line 3: unknown field "more"`,
		`{"rules": []}`:                  "it has no rules",
		rule(`"name": "b", "parts": ["system"], "pattern": "x", "action": "drop"`) + " 1":           "line 3: something follows",
		rule(`"name": "b", "parts": ["system"], "pattern": "x", "action": "drop", "when": "never"`): `line 3: unknown field "when"`,
		rule(`"name": "b", "name": "b", "parts": ["system"], "pattern": "x", "action": "drop"`):     "line 3: name is there twice",
		rule(`"name": "a", "parts": ["system"], "pattern": "x", "action": "drop"`):                  `line 3: two rules are called "a"`,
		rule(`"name": "B c", "parts": ["system"], "pattern": "x", "action": "drop"`):                "line 3: name:",
		rule("\"name\": \"b\",\n\"parts\": [\"sytem\"], \"pattern\": \"x\", \"action\": \"drop\""):  `line 4: parts: "sytem"`,
		rule(`"name": "b", "parts": ["system"], "pattern": "(x", "action": "drop"`):                 "line 3: pattern:",
		rule(`"name": "b", "parts": ["system"], "pattern": "x*", "action": "drop"`):                 "found in an empty text",
		rule(`"name": "b", "parts": ["system"], "pattern": "x", "action": "delete"`):                "line 3: action:",
		rule(`"name": "b", "parts": ["system"], "pattern": "x", "action": "drop", "line": "y"`):     "line is for what is moved",
		rule(`"name": "b", "parts": ["last message"], "pattern": "x", "action": "move"`):            `nothing can be moved from "last message"`,
		rule(`"name": "b", "parts": ["system"], "pattern": "x", "action": "lead"`):                  `nothing can lead from "system"`,
		rule(`"name": "b"`): "lacks parts, pattern, action",
		rule(`"name": 5`):   "line 3: name: expected a text",
		`{"rules": [{"name": "b", "parts": [], "pattern": `: "ends too soon",
	} {
		rs, err := Parse([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; expected %q", file, rs, err, want)
		}
	}
	if _, err := Load("claude"); err == nil || !strings.Contains(err.Error(), "claude-code, codex, opencode, pi, qwen-code") {
		t.Errorf("a set that is none: %v", err)
	}
	path := t.TempDir() + "/my rules.json"
	if err := os.WriteFile(path, []byte(twoRules), 0o600); err != nil {
		t.Fatal(err)
	}
	if rs, err := Load(path); err != nil || len(rs) != 2 || rs[1].Set != path {
		t.Errorf("%v, %v", rs, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(twoRules))
	for _, s := range Sets() {
		b, err := sets.ReadFile("sets/" + s + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		rs, err := Parse(file)
		if err == nil && !json.Valid(file) {
			t.Errorf("%q is no JSON, and makes %v", file, rs)
		}
		for _, r := range rs {
			if r.Name == "" || r.Pattern == nil || len(r.Parts) == 0 {
				t.Errorf("%q makes %+v", file, r)
			}
		}
	})
}

// Whatever the body: it stays as it is, or what was JSON is JSON, of the same shape.
func FuzzApply(f *testing.F) {
	for _, c := range conversations {
		f.Add(int(c.e), c.body("/home/ann/shop", 1))
	}
	f.Add(int(request.Chat), []byte(`{"messages":[{"role":"system","content":"id=5;\ud83d\ude00\nWorking directory: \u002f"},{"role":"user","content":"q"}],"n":1.0}`))
	f.Add(int(request.Responses), []byte(`{"input":"id=5;","instructions":"id=5;Working directory: /"}`))
	rs := parsed(f, twoRules)
	for _, s := range Sets() {
		more, err := Load(s)
		if err != nil {
			f.Fatal(err)
		}
		rs = append(rs, more...)
	}
	f.Fuzz(func(t *testing.T, e int, body []byte) {
		before := slices.Clone(body)
		out, applied := rs.Apply(request.Endpoint(e), body)
		if !bytes.Equal(before, body) {
			t.Errorf("%q was changed in its place", before)
		}
		if applied == nil {
			if !bytes.Equal(out, body) {
				t.Errorf("%q became %q by no rule", body, out)
			}
			return
		}
		var a, b any
		mark := []byte("\xef\xbb\xbf")
		if err := json.Unmarshal(bytes.TrimPrefix(body, mark), &a); err != nil {
			t.Fatalf("%q is no JSON, and was changed by %v", body, applied)
		}
		if err := json.Unmarshal(bytes.TrimPrefix(out, mark), &b); err != nil {
			t.Fatalf("%q became %q by %v: %v", body, out, applied, err)
		}
		if !alike(a, b) {
			t.Errorf("%q became %q by %v", body, out, applied)
		}
	})
}

// alike reports whether two values differ in texts alone.
func alike(a, b any) bool {
	switch a := a.(type) {
	case string:
		_, ok := b.(string)
		return ok
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && slices.EqualFunc(a, b, alike)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k := range a {
			if _, ok := b[k]; !ok || !alike(a[k], b[k]) {
				return false
			}
		}
		return true
	}
	return a == b
}

// The example of the manual is one.
func TestExampleOfTheManual(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/llama-server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, file, found := strings.Cut(string(b), "```json\n{\n  \"rules\"")
	file, _, ends := strings.Cut(file, "```")
	if !found || !ends {
		t.Fatal("the manual has no example of a file of rules")
	}
	rs := parsed(t, "{\n  \"rules\""+file)
	const body = `{"messages":[{"role":"system","content":"request_id=00112233445566778899aabbccddeeff\nYou work in /a b\nBe brief."},{"role":"user","content":"q"}]}`
	const want = `{"messages":[{"role":"system","content":"You work in the folder named below.\nBe brief."},{"role":"user","content":"q\nThe folder is /a b"}]}`
	if got, _ := rs.Apply(request.Chat, []byte(body)); string(got) != want {
		t.Errorf("it makes %s of %s, expected %s", got, body, want)
	}
}
