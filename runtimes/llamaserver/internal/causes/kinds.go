package causes

// The codes of causes.
const (
	Billing      = "billing_header"
	Compacted    = "compaction"
	Cleared      = "results_cleared"
	Moved        = "message_moved"
	Thoughts     = "thoughts_dropped"
	Instructions = "project_instructions"
	Git          = "git_status"
	Directory    = "working_directory"
	Clock        = "clock"
	RandomID     = "random_id"
	Reordered    = "reordered"
	OtherTools   = "other_tools"
	OtherPrompt  = "other_system_prompt"
)

// kind is a known cause: how it is seen, and what is to be said of it, by the part of the request in which the place is. Where nothing is to be said, it is no such cause.
type kind struct {
	code    string
	holds   func(*Split) bool
	front   map[string]string // in the system prompt, or the tools: by client; "" is for all others
	tools   string            // in the tools, if that is something else
	message string            // in a message
	other   string            // in a template's own text, in a prompt that is no chat, or where nobody knows the part
}

func (k *kind) advice(s *Split) string {
	switch {
	case s.message():
		return k.message
	case !s.fixed():
		return k.other
	case s.Part == "tools" && k.tools != "":
		return k.tools
	}
	if advice := k.front[s.Client]; advice != "" {
		return advice
	}
	return k.front[""]
}

const (
	behind    = ", behind the system prompt and the tools, where it does least harm: nothing is to be set"
	asTime    = "the date or the time is in the prompt, and what is behind it is computed anew when it changes: nothing is to be set if that is once a day"
	asBilling = " begins with a billing header, which is another one in each conversation: set CLAUDE_CODE_ATTRIBUTION_HEADER=0 in its environment"
	// What was seen to help with a client: docs/llama-server.md has the versions.
	asClaude   = ": run it with --exclude-dynamic-system-prompt-sections, or start dormouse serve with --normalize claude-code"
	asOpenCode = ", in front of its tools, and it has no setting for that: start dormouse serve with --normalize opencode"
	asQwen     = `: set "memory": {"enableManagedAutoMemory": false} in ~/.qwen/settings.json, or start dormouse serve with --normalize qwen-code`
	asPi       = ", in front of its tools, and it has no setting for that: start dormouse serve with --normalize pi"
	asOther    = ", in front of what is always the same: have the client say it in the first message instead, or write a rule for dormouse serve --normalize"
)

var kinds = []kind{
	{code: Billing, holds: (*Split).billing,
		front: map[string]string{"": "its system prompt" + asBilling}, message: "its prompt" + asBilling, other: "its prompt" + asBilling},
	{code: Compacted, holds: (*Split).compacted,
		message: "the client has put a summary in the place of the conversation: nothing is to be set, and the next turns are found again"},
	{code: Cleared, holds: (*Split).cleared,
		message: "the client has taken old results of tools out of the conversation: what came behind them is computed once more, and the next turns are found again (opencode does not with OPENCODE_DISABLE_PRUNE=1)"},
	{code: Moved, holds: (*Split).moved,
		message: "it sends its files and its reminder anew behind the whole conversation at each turn, so the last message of the turn before is computed again: nothing is to be set"},
	{code: Thoughts, holds: (*Split).thoughts,
		message: "the model's thoughts are left out of earlier turns, by the client or by the model's chat template: what came behind them is computed again, and nothing is to be set"},
	{code: Instructions, holds: (*Split).instructions,
		front: map[string]string{
			OpenCode: "its system prompt has the project's AGENTS.md" + asOpenCode,
			QwenCode: "its system prompt has the project's QWEN.md or AGENTS.md, in front of its tools, and it has no setting for that: start dormouse serve with --normalize qwen-code",
			Pi:       "its system prompt has the project's AGENTS.md" + asPi,
			"":       "its system prompt has the project's instructions" + asOther,
		},
		message: "its first message has the project's instructions" + behind},
	{code: Git, holds: (*Split).git,
		front: map[string]string{
			ClaudeCode: "its system prompt has the state of the git repository" + asClaude,
			"":         "its system prompt has the state of the git repository" + asOther,
		},
		message: "its first message has the state of the git repository" + behind},
	{code: Directory, holds: (*Split).directory,
		front: map[string]string{
			ClaudeCode: "its system prompt has the working directory and a folder for memories" + asClaude,
			OpenCode:   "its system prompt has the working directory" + asOpenCode,
			QwenCode:   "its system prompt has a folder for the memories of each project" + asQwen,
			Pi:         "its system prompt ends with the working directory" + asPi,
			"":         "its system prompt has the working directory" + asOther,
		},
		message: "a message has the working directory" + behind},
	{code: RandomID, holds: (*Split).randomID,
		front:   map[string]string{"": "its prompt has an id that is another one each time" + asOther},
		message: "calls of tools have ids, which are others in each conversation: nothing is to be set, since the turns of one conversation repeat them"},
	{code: Clock, holds: (*Split).clock,
		front: map[string]string{
			ClaudeCode: "its system prompt has the date" + asClaude,
			OpenCode:   "its system prompt has the date" + asOpenCode,
			Pi:         "its system prompt ends with the date" + asPi,
			"":         "its system prompt has a date or a time" + asOther,
		},
		tools:   "the description of a tool has the date, and what is behind it is computed anew when that changes: nothing is to be set, but the tool can be switched off",
		message: asTime, other: asTime},
	{code: Reordered, holds: (*Split).reordered,
		front: map[string]string{"": "the same tools, or the same keys of their JSON, come in another order each time: have the client sort them"}},
	{code: OtherTools, holds: (*Split).otherTools,
		front: map[string]string{"": "it offers other tools than before, or in another order, as subagents and other modes do: keep servers of tools (MCP) and modes the same where you can"}},
	{code: OtherPrompt, holds: (*Split).otherPrompt,
		front: map[string]string{"": "it is another system prompt, as of a subagent, of a title, or of another program: nothing is to be set"}},
}
