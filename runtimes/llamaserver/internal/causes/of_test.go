package causes

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rules"
)

// recorded is where two requests of a real client parted, rendered as Qwen2.5's template does; homes and folders have other names.
type recorded struct{ Name, Client, Version, Endpoint, Part, Before, Mine, Theirs, Want string }

func readRecorded(t *testing.T) (all []recorded) {
	b, err := os.ReadFile("testdata/splits.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &all); err != nil || len(all) < 20 {
		t.Fatal(len(all), err)
	}
	return all
}

// Whichever side asks, and wherever before the difference the token begins in which it lies, the cause is the same.
func TestCausesOfRealClients(t *testing.T) {
	for _, r := range readRecorded(t) {
		for back := range min(9, len(r.Before)) {
			at := len(r.Before) - back
			for _, s := range []Split{
				{Before: r.Before[:at], Mine: r.Before[at:] + r.Mine, Theirs: r.Before[at:] + r.Theirs},
				{Before: r.Before[:at], Mine: r.Before[at:] + r.Theirs, Theirs: r.Before[at:] + r.Mine},
			} {
				s.Endpoint, s.Client, s.Part = r.Endpoint, r.Client, r.Part
				if got, ok := Of(s); got.Code != r.Want || ok != (r.Want != "") {
					t.Fatalf("%s %s, %s: %+v, expected %q\n%s\n⟨%s⟩\n⟨%s⟩", r.Client, r.Version, r.Name, got, r.Want, s.Before, s.Mine, s.Theirs)
				}
			}
		}
	}
}

// What was seen to help with a client is what it is told.
func TestAdviceIsOfTheClient(t *testing.T) {
	says := map[string]string{
		ClaudeCode + Billing: "CLAUDE_CODE_ATTRIBUTION_HEADER=0", ClaudeCode + Directory: "--exclude-dynamic-system-prompt-sections", ClaudeCode + Git: "--exclude-dynamic-system-prompt-sections",
		OpenCode + Directory: "--normalize opencode", OpenCode + Clock: "--normalize opencode", QwenCode + Directory: "enableManagedAutoMemory", Pi + Directory: "--normalize pi",
	}
	seen := map[string]bool{}
	for _, r := range readRecorded(t) {
		c, _ := Of(Split{r.Endpoint, r.Client, r.Part, r.Before, r.Mine, r.Theirs})
		if want := says[r.Client+c.Code]; r.Part == "system prompt" && want != "" {
			seen[r.Client+c.Code] = true
			if !strings.Contains(c.Advice, want) {
				t.Errorf("%s, %s: %q does not say %q", r.Client, r.Name, c.Advice, want)
			}
		}
		if strings.HasPrefix(r.Part, "message") && c.Code != "" && !strings.Contains(c.Advice, "nothing is to be set") {
			t.Errorf("%s, %s: %q", r.Client, r.Name, c.Advice)
		}
	}
	if len(seen) != len(says) {
		t.Errorf("%v of %v", seen, says)
	}
}

// What real clients were not caught at: each of these texts is one that they write.
func TestKnownCauses(t *testing.T) {
	tools := func(names ...string) (out string) {
		for _, n := range names {
			out += `{"type": "function", "function": {"name": "` + n + `", "description": "It does."}}` + "\n"
		}
		return out
	}
	for _, c := range []struct {
		name string
		s    Split
		want string
	}{
		{"a stamp", Split{Part: "system prompt", Before: "<|im_start|>system\nx-anthropic-billing-header: cc_version=2.1.0.a3f; cc_entrypoint=cli; cch=", Mine: "12ab3;\nYou", Theirs: "98ef1;\nYou"}, Billing},
		{"the stamp in a first message", Split{Part: "message 1", Before: "<|im_start|>user\nx-anthropic-billing-header: cc_version=2.1.0.", Mine: "a3f;\nYou", Theirs: "b51;\nYou"}, Billing},
		{"a time", Split{Part: "system prompt", Before: "The time is 10:05:", Mine: "07.\n", Theirs: "33.\n"}, Clock},
		{"a long date", Split{Part: "system prompt", Before: "It is ", Mine: "Saturday, November 28, 2026 at 10:05 AM.", Theirs: "Friday, November 27, 2026 at 9:00 PM."}, Clock},
		{"a month in a tool", Split{Part: "tools", Before: "- The current month is ", Mine: "November 2026 –", Theirs: "December 2026 –"}, Clock},
		{"a template's date", Split{Part: "template", Before: "Knowledge cutoff: 2024-06\nCurrent date: 2026-11-2", Mine: "8\n", Theirs: "7\n"}, Clock},
		{"a UUID", Split{Part: "system prompt", Before: "Session: 5f0c2b6e-", Mine: "1111-4222-8333-123456789abc ", Theirs: "2222-4222-8333-123456789abc "}, RandomID},
		{"a folder whose name is a UUID", Split{Part: "system prompt", Before: "Working directory: /tmp/5f0c2b6e-", Mine: "1111-4222-8333-123456789abc\n", Theirs: "2222-4222-8333-123456789abc\n"}, Directory},
		{"a folder in a folder", Split{Part: "system prompt", Before: "Working directory: /tmp", Mine: "\n", Theirs: "/two\n"}, Directory},
		{"a folder of Windows", Split{Part: "system prompt", Before: "Working directory: ", Mine: "C:\\src\\one\n", Theirs: "D:\\src\\one\n"}, Directory},
		{"a folder in a tag", Split{Part: "system prompt", Before: "</docs>\n\n<cwd>\n/home/ann/", Mine: "shop\n</cwd>", Theirs: "garden\n</cwd>"}, Directory},
		{"a folder under a heading", Split{Part: "system prompt", Before: "Working directory:\n", Mine: "/src/a\n", Theirs: "/src/b\n"}, Directory},
		{"an id of a call", Split{Part: "message 4", Before: `[TOOL_CALLS][{"name": "ls", "id": "call_`, Mine: `a8f2b3c4d5"}]`, Theirs: `ffe0b3c4d5"}]`}, RandomID},
		{"tools in another order", Split{Part: "tools", Before: `<tools>` + "\n", Mine: tools("read", "write"), Theirs: tools("write", "read")}, Reordered},
		{"keys in another order", Split{Part: "tools", Before: `<tools>` + "\n{", Mine: `"type": "object", "required": ["a"]}`, Theirs: `"required": ["a"], "type": "object"}`}, Reordered},
		{"another tool", Split{Part: "tools", Before: `<tools>` + "\n", Mine: tools("read", "write"), Theirs: tools("run", "write")}, OtherTools},
		{"one more tool", Split{Part: "tools", Before: `<tools>` + "\n" + tools("read"), Mine: tools("write"), Theirs: "</tools>\n"}, OtherTools},
		{"thoughts", Split{Part: "message 3", Before: "<|im_start|>assistant\n", Mine: "Yes.", Theirs: "<think>\nHm.</think>\nYes."}, Thoughts},
		{"a summary by Claude Code", Split{Part: "message 1", Before: "<|im_start|>user\n", Mine: "This session is being continued from a previous conversation that ran out", Theirs: "Mend the test"}, Compacted},
		{"a summary by Codex", Split{Part: "message 4", Before: "<|im_start|>user\n", Mine: "Another language model started to solve this problem and produced a summary", Theirs: "Mend the test"}, Compacted},
		{"a summary by pi", Split{Part: "message 1", Before: "<|im_start|>user\n", Mine: "Thank you", Theirs: "The conversation history before this point was compacted into the following summary:"}, Compacted},
		{"results cleared", Split{Part: "message 5", Before: "<tool_response>\n", Mine: "[Old tool result content cleared]\n", Theirs: "package main\n"}, Cleared},
	} {
		got, ok := Of(c.s)
		if ok != (c.want != "") || got.Code != c.want || ok && got.Advice == "" {
			t.Errorf("%s: %v %v, expected %q", c.name, got, ok, c.want)
		}
	}
}

// What people and tools write into a conversation is no cause, however much it looks like one.
func TestNoCauseIsNamedInDoubt(t *testing.T) {
	long := strings.Repeat("Always answer in verse, and never in prose.\n", 9)
	for _, c := range []struct {
		name string
		s    Split
	}{
		{"nothing", Split{}},
		{"the same", Split{Part: "system prompt", Before: "Working directory: /a", Mine: "b", Theirs: "b"}},
		{"a question with a date", Split{Part: "message 2", Before: "<|im_start|>user\nWhat was on 2026-11-2", Mine: "8?", Theirs: "7?"}},
		{"a question with a path", Split{Part: "message 2", Before: "<|im_start|>user\nRead /src/", Mine: "a.go", Theirs: "b.go"}},
		{"a hash in a tool's result", Split{Part: "message 6", Before: "commit 0123456789abcdef", Mine: "0123456789abcdef01234567", Theirs: "fedcba9876543210fedcba98"}},
		{"a commit in a tool's result", Split{Part: "message 6", Before: "$ git log --oneline\n", Mine: "2d2eabe begin", Theirs: "1f5475e begin"}},
		{"a path in a system prompt that is no folder to work in", Split{Part: "system prompt", Before: "Read the manual at /usr/share/", Mine: "a.md first.", Theirs: "b.md first."}},
		{"a path under a tag that is no folder to work in", Split{Part: "system prompt", Before: "<manual>\n/usr/share/", Mine: "a.md\n", Theirs: "b.md\n"}},
		{"a path behind a sentence on the folder", Split{Part: "system prompt", Before: "Know your working directory.\n/usr/share/", Mine: "a.md\n", Theirs: "b.md\n"}},
		{"another sentence behind a date", Split{Part: "system prompt", Before: "Today is 2026-11-28.\nYou are ", Mine: "kind.", Theirs: "strict."}},
		{"another sentence behind a folder", Split{Part: "system prompt", Before: "Working directory: /src\n", Mine: "Be kind.", Theirs: "Be strict."}},
		{"text about git status", Split{Part: "system prompt", Before: "Run git status before you commit.\n", Mine: "Never push.", Theirs: "Always push."}},
		{"tools behind git status", Split{Part: "system prompt", Before: "gitStatus: it is\nRecent commits:\n2d2eabe begin\n# Tools\n", Mine: "0123456 x", Theirs: "1123456 y"}},
		{"a heading that changes, and the same behind it", Split{Part: "system prompt", Before: "You are ", Mine: "number seven.\n" + long, Theirs: "number eight.\n" + long}},
		{"a description of a tool", Split{Part: "tools", Before: `{"name": "read", "description": "Reads`, Mine: ` a file", "x": 1`, Theirs: ` files", "x": 1`}},
		{"a key that only one has", Split{Part: "tools", Before: `{"name": "read", `, Mine: `"strict": true, "type": "object"}`, Theirs: `"type": "object"}`}},
		{"a thought in both", Split{Part: "message 3", Before: "<|im_start|>assistant\n<think>\n", Mine: "Hm.", Theirs: "Ah."}},
		{"a folder in nobody knows which part", Split{Before: "Working directory: /src/", Mine: "one\n", Theirs: "two\n"}},
		{"git in a prompt that is no chat", Split{Part: "prompt", Before: "gitStatus: it is\nRecent commits:\n", Mine: "2d2eabe begin", Theirs: "1f5475e begin"}},
		{"an id in nobody knows which part", Split{Before: "call_", Mine: "a8f2b3c4d5", Theirs: "ffe0b3c4d5"}},
		{"a number", Split{Part: "system prompt", Before: "You have ", Mine: "1234567 tokens.", Theirs: "7654321 tokens."}},
		{"a version", Split{Part: "system prompt", Before: "OS Version: Linux 6.1", Mine: "8.44\n", Theirs: "7.1\n"}},
	} {
		if got, ok := Of(c.s); ok {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// Nothing of a text gets into a cause: a code may be a label, and all that can be said is written here.
func TestCausesAreWordsOfThisPackage(t *testing.T) {
	known := map[Cause]bool{}
	codes := map[string]bool{}
	for _, k := range kinds {
		if codes[k.code] || !regexp.MustCompile(`^[a-z_]{3,40}$`).MatchString(k.code) || k.front == nil && k.message == "" || k.front != nil && k.front[""] == "" {
			t.Errorf("%+v", k)
		}
		codes[k.code] = true
		for _, advice := range []string{k.tools, k.message, k.other} {
			known[Cause{k.code, advice}] = true
		}
		for _, advice := range k.front {
			known[Cause{k.code, advice}] = true
			if len(advice) > 400 || strings.HasSuffix(advice, ".") {
				t.Errorf("%s: %q", k.code, advice)
			}
		}
	}
	for _, r := range readRecorded(t) {
		for _, client := range []string{r.Client, "", "nobody"} {
			if c, ok := Of(Split{r.Endpoint, client, r.Part, r.Before, r.Mine, r.Theirs}); ok && !known[c] {
				t.Errorf("%+v", c)
			}
		}
	}
}

// The rules that are advised come along with dormouse serve.
func TestAdvisedRulesAreThere(t *testing.T) {
	n := 0
	for _, k := range kinds {
		for _, advice := range k.front {
			for _, m := range regexp.MustCompile(`--normalize ([a-z-]+)`).FindAllStringSubmatch(advice, -1) {
				if n++; !slices.Contains(rules.Sets(), m[1]) {
					t.Errorf("%s: there is no set of rules %q", k.code, m[1])
				}
			}
		}
	}
	if n == 0 {
		t.Error("none is advised")
	}
}

// Whatever lies at a place, it is looked at.
func FuzzOf(f *testing.F) {
	for _, part := range []string{"system prompt", "tools", "message 3", "template", ""} {
		f.Add(part, "Working directory: /a\n# gitStatus\n", `{"name": "a"`, "<think>\xff")
	}
	f.Fuzz(func(t *testing.T, part, before, mine, theirs string) {
		s := Split{Part: part, Before: before, Mine: mine, Theirs: theirs}
		a, okA := Of(s)
		s.Mine, s.Theirs = s.Theirs, s.Mine
		if b, okB := Of(s); a != b || okA != okB {
			t.Fatalf("%+v, and with both sides changed %+v", a, b)
		}
	})
}
