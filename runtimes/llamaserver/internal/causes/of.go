package causes

// Split is the place at which two prompts parted.
type Split struct {
	Endpoint string // the path of the request, "/v1/chat/completions"
	Client   string // as [Client] names it
	Part     string // of the request: "system prompt", "tools", "message 3", "template"
	// Texts of up to 400 characters: what both prompts have in front of the place, and what each has behind it.
	Before, Mine, Theirs string
}

// Cause is why two prompts parted.
type Cause struct {
	Code   string // letters, digits and underscores
	Advice string // what the user can do, a sentence
}

// The codes of causes.
const (
	Billing   = "billing_header"
	Clock     = "clock"
	Directory = "working_directory"
	Git       = "git_status"
	RandomID  = "random_id"
	Reordered = "reordered"
	Thoughts  = "thoughts_dropped"
	Rewritten = "history_rewritten"
	Compacted = "compaction"
)

// Of names the cause of a split, if it is a known one. Causes that say most are looked for first.
func Of(s Split) (Cause, bool) {
	for _, k := range kinds {
		if k.holds(&s) {
			advice := k.advice[s.Client]
			if advice == "" {
				advice = k.advice[""]
			}
			return Cause{k.code, advice}, true
		}
	}
	return Cause{}, false
}
