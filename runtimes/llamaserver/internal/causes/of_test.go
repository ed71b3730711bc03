package causes

import (
	"regexp"
	"testing"
)

func TestKnownCauses(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Split
		want string
	}{
		{"a billing header", Split{Client: ClaudeCode, Part: "system prompt", Before: "<|im_start|>system\nx-anthropic-billing-header: cc_version=2.1.0.",
			Mine: "a3f; cc_entrypoint=sdk-cli; cch=12ab3;\nYou are", Theirs: "b51; cc_entrypoint=sdk-cli; cch=98ef1;\nYou are"}, Billing},
		{"a working directory", Split{Client: OpenCode, Part: "system prompt", Before: "<env>\n  Working directory: /tmp/",
			Mine: "one\n  Is directory", Theirs: "two\n  Is directory"}, Directory},
		{"a date", Split{Part: "system prompt", Before: "Today's date: 2026-11-2", Mine: "8\n", Theirs: "7\n"}, Clock},
		{"a day", Split{Part: "system prompt", Before: "Today's date: ", Mine: "Sat Nov 28 2026\n", Theirs: "Fri Nov 27 2026\n"}, Clock},
		{"a uuid", Split{Part: "system prompt", Before: "session 5f0c2b6e-", Mine: "1111-4222-8333-123456789abc ", Theirs: "2222-4222-8333-123456789abc "}, RandomID},
		{"tools in another order", Split{Part: "tools", Before: `{"type": "function", "function": {"name": "`,
			Mine: `read", "description": "r"}}` + "\n" + `{"name": "write"`, Theirs: `write", "description": "w"}}` + "\n" + `{"name": "read"`}, Reordered},
		{"thoughts", Split{Part: "message 3", Before: "<|im_start|>assistant\n", Mine: "Yes.", Theirs: "<think>\nHm.</think>\nYes."}, Thoughts},
		{"another question", Split{Part: "message 2", Before: "<|im_start|>user\n", Mine: "What is 2026-11-28?", Theirs: "Where is /tmp?"}, ""},
		{"a path that the user names", Split{Part: "message 2", Before: "Working directory /tmp/", Mine: "a", Theirs: "b"}, ""},
		{"nothing", Split{}, ""},
	} {
		got, ok := Of(c.s)
		if ok != (c.want != "") || got.Code != c.want || ok && got.Advice == "" {
			t.Errorf("%s: %v %v, expected %q", c.name, got, ok, c.want)
		}
	}
}

// A code may be a label, and each kind says something to a client that nobody knows, or is for some alone.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		if !regexp.MustCompile(`^[a-z_]+$`).MatchString(k.code) || len(k.advice) == 0 {
			t.Errorf("%q: %q", k.code, k.advice)
		}
	}
}
