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

// kind is a known cause: how it is seen, and what is to be said.
type kind struct {
	code  string
	holds func(*Split) bool
	front map[string]string // where the place is in the system prompt or the tools: by client; "" is for all others
	rest  string            // where it is elsewhere; empty: there it is no such cause
}

func (k *kind) advice(s *Split) string {
	if !s.fixed() {
		return k.rest
	}
	if advice := k.front[s.Client]; advice != "" {
		return advice
	}
	return k.front[""]
}

const (
	behind = ", behind the system prompt and the tools, where it does least harm: nothing is to be set"
	// What was seen to help with a client: docs/llama-server.md has the versions.
	asClaude   = ": run it with --exclude-dynamic-system-prompt-sections, or start dormouse serve with --normalize claude-code"
	asOpenCode = ", in front of its tools, and it has no setting for that: start dormouse serve with --normalize opencode"
	asQwen     = `: set "memory": {"enableManagedAutoMemory": false} in ~/.qwen/settings.json, or start dormouse serve with --normalize qwen-code`
	asPi       = ", in front of its tools, and it has no setting for that: start dormouse serve with --normalize pi"
	asOther    = ", in front of what is always the same: have the client say it in the first message instead, or write a rule for dormouse serve --normalize"
)

var kinds = []kind{
	{Billing, (*Split).billing, map[string]string{
		"": "its system prompt begins with a billing header, which is another one in each conversation: set CLAUDE_CODE_ATTRIBUTION_HEADER=0 in its environment",
	}, "its prompt begins with a billing header, which is another one in each conversation: set CLAUDE_CODE_ATTRIBUTION_HEADER=0 in its environment"},
	{Compacted, (*Split).compacted, nil,
		"the client has put a summary in the place of the conversation: nothing is to be set, and the next turns are found again"},
	{Cleared, (*Split).cleared, nil,
		"the client has taken old results of tools out of the conversation: what came behind them is computed once more, and the next turns are found again (opencode does not with OPENCODE_DISABLE_PRUNE=1)"},
	{Moved, (*Split).moved, nil,
		"it sends its files and its reminder anew behind the whole conversation at each turn, so the last message of the turn before is computed again: nothing is to be set"},
	{Thoughts, (*Split).thoughts, nil,
		"the model's thoughts are left out of earlier turns, by the client or by the model's chat template: what came behind them is computed again, and nothing is to be set"},
	{Instructions, (*Split).instructions, map[string]string{
		OpenCode: "its system prompt has the project's AGENTS.md, in front of its tools, and it has no setting for that: start dormouse serve with --normalize opencode",
		QwenCode: "its system prompt has the project's QWEN.md or AGENTS.md, in front of its tools, and it has no setting for that: start dormouse serve with --normalize qwen-code",
		Pi:       "its system prompt has the project's AGENTS.md, in front of its tools, and it has no setting for that: start dormouse serve with --normalize pi",
		"":       "its system prompt has the project's instructions" + asOther,
	}, "its first message has the project's instructions" + behind},
	{Git, (*Split).git, map[string]string{
		ClaudeCode: "its system prompt has the state of the git repository" + asClaude,
		"":         "its system prompt has the state of the git repository" + asOther,
	}, "its first message has the state of the git repository" + behind},
	{Directory, (*Split).directory, map[string]string{
		ClaudeCode: "its system prompt has the working directory and a folder for memories" + asClaude,
		OpenCode:   "its system prompt has the working directory" + asOpenCode,
		QwenCode:   "its system prompt has a folder for memories of each project" + asQwen,
		Pi:         "its system prompt ends with the working directory" + asPi,
		"":         "its system prompt has the working directory" + asOther,
	}, "a message has the working directory" + behind},
	{RandomID, (*Split).randomID, map[string]string{
		"": "its prompt has an id that is another one each time" + asOther,
	}, "calls of tools have ids that are others each time: nothing is to be set in one conversation, which repeats them"},
	{Clock, (*Split).clock, map[string]string{
		ClaudeCode: "its system prompt or a tool has a date" + asClaude,
		OpenCode:   "its system prompt has the date" + asOpenCode,
		Pi:         "its system prompt ends with the date" + asPi,
		"":         "its prompt has a date or a time" + asOther,
	}, "the date or the time is in the prompt, and what is behind it is computed anew when it changes: nothing is to be set if that is once a day"},
	{Reordered, (*Split).reordered, map[string]string{
		"": "the same tools, or the same keys of their JSON, come in another order each time: have the client sort them",
	}, ""},
	{OtherTools, (*Split).otherTools, map[string]string{
		"": "it offers other tools than before, or in another order, as subagents and other modes do: keep servers of tools (MCP) and modes the same where you can",
	}, ""},
	{OtherPrompt, (*Split).otherPrompt, map[string]string{
		"": "it is another system prompt, as of a subagent, of a title, or of another program: nothing is to be set",
	}, ""},
}
