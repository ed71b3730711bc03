package causes

import (
	"regexp"
	"slices"
	"strings"
)

// kind is a known cause: how it is seen, and what helps, by client; "" is what helps with any other.
type kind struct {
	code   string
	holds  func(*Split) bool
	advice map[string]string
}

var kinds = []kind{
	{Billing, (*Split).billing, map[string]string{
		ClaudeCode: "its system prompt begins with a billing header that changes: set CLAUDE_CODE_ATTRIBUTION_HEADER=0 in its environment",
		"":         "the system prompt begins with Claude Code's billing header, which changes: set CLAUDE_CODE_ATTRIBUTION_HEADER=0 where Claude Code runs",
	}},
	{Compacted, (*Split).compacted, map[string]string{
		"": "the client has replaced the conversation by a summary of it: nothing is to be set, the next turns are found again",
	}},
	{Git, (*Split).git, map[string]string{
		ClaudeCode: "its system prompt has the state of the git repository: run it with --exclude-dynamic-system-prompt-sections",
		"":         "the system prompt has the state of the git repository: have the client leave it out, or put it behind the tools, into the first message",
	}},
	{Directory, (*Split).directory, map[string]string{
		ClaudeCode: "its system prompt has the working directory: run it with --exclude-dynamic-system-prompt-sections",
		"":         "the prompt has the working directory in front of what is always the same: have the client leave it out, or move it behind",
	}},
	{Clock, (*Split).clock, map[string]string{
		ClaudeCode: "its system prompt has a date: run it with --exclude-dynamic-system-prompt-sections",
		"":         "the prompt has a date or a time in front of what is always the same: have the client leave it out, or move it to the last message",
	}},
	{RandomID, (*Split).randomID, map[string]string{
		"": "the prompt has an id that is another one each time: have the client leave it out",
	}},
	{Reordered, (*Split).reordered, map[string]string{
		"": "the same tools, or keys of their JSON, come in another order: have the client sort them",
	}},
	{Thoughts, (*Split).thoughts, map[string]string{
		"": "the client leaves the model's thoughts out of earlier turns: what came behind them is computed again",
	}},
	{Rewritten, (*Split).rewritten, map[string]string{
		Aider: "it moves its reminder behind the newest message at every turn: what came behind the place is computed again, and nothing is to be set",
	}},
}

// fixed is whether the place is in what an agent sends before anything that its user wrote.
func (s *Split) fixed() bool { return s.Part == "system prompt" || s.Part == "tools" }

// lines are the lines in which the prompts parted.
func (s *Split) lines() (mine, theirs string) {
	begin := s.Before[strings.LastIndexByte(s.Before, '\n')+1:]
	first := func(behind string) string {
		line, _, _ := strings.Cut(behind, "\n")
		return begin + line
	}
	return first(s.Mine), first(s.Theirs)
}

// both is whether the pattern matches, on both sides, a text that reaches over the place or begins there.
func (s *Split) both(re *regexp.Regexp) bool {
	return over(re, s.Before, s.Mine) && over(re, s.Before, s.Theirs)
}

func over(re *regexp.Regexp, before, behind string) bool {
	at := len(before)
	return slices.ContainsFunc(re.FindAllStringIndex(before+behind, -1), func(m []int) bool { return m[0] <= at && m[1] > at })
}

func (s *Split) billing() bool {
	mine, theirs := s.lines()
	const header = "x-anthropic-billing-header"
	return s.Part != "tools" && strings.Contains(mine, header) && strings.Contains(theirs, header)
}

var summaries = regexp.MustCompile(`(?i)^.{0,200}(this session is being continued from a previous conversation|another language model started to solve this problem)`)

// compacted is whether one of both sides is a summary that an agent put in place of the conversation.
func (s *Split) compacted() bool {
	return strings.HasPrefix(s.Part, "message") && summaries.MatchString(s.Mine) != summaries.MatchString(s.Theirs)
}

var gitHead = regexp.MustCompile(`(?i)(gitStatus:|git status|Current branch:|Recent commits:|Main branch)`)

// git is whether the place lies in what an agent says of a repository: behind its heading, with nothing but lines of status or commits between.
func (s *Split) git() bool {
	at := gitHead.FindAllStringIndex(s.Before, -1)
	return s.fixed() && at != nil && !strings.Contains(s.Before[at[len(at)-1][1]:], "\n\n\n")
}

var path = regexp.MustCompile(`(?:[A-Za-z]:\\|~/|/)[\w.@+~-]+(?:[/\\][\w.@+~-]*)*`)
var ofDirectory = regexp.MustCompile(`(?i)(working directory|current directory|workspace|cwd|project root|memory|directory)`)

// directory is whether both have a path there, and the line is about one.
func (s *Split) directory() bool {
	mine, theirs := s.lines()
	return (s.fixed() || strings.Contains(s.Before, "<cwd>")) && s.both(path) && ofDirectory.MatchString(mine) && ofDirectory.MatchString(theirs)
}

var clock = regexp.MustCompile(`(?i)(?:` +
	`\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?` +
	`|\d{1,2}:\d{2}(?::\d{2})` +
	`|\d{1,2}[/.]\d{1,2}[/.]\d{4}` +
	`|(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? (?:\d{1,2} )?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?,? \d{1,4}(?:,? \d{4})?(?:,? \d{1,2}:\d{2}(?::\d{2})?)?` +
	`)`)

func (s *Split) clock() bool { return s.fixed() && s.both(clock) }

var randomID = regexp.MustCompile(`\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16,64}|(?:call|toolu|chatcmpl|msg|req|ses)_[0-9A-Za-z]{8,})\b`)

func (s *Split) randomID() bool { return s.both(randomID) }

var jsonName = regexp.MustCompile(`"name": ?"([^"]+)"`)
var jsonKey = regexp.MustCompile(`"([\w$-]+)": ?`)

// reordered is whether, in the tools, what one has at the place the other has later, and the other way round.
func (s *Split) reordered() bool {
	if s.Part != "tools" {
		return false
	}
	swapped := func(re *regexp.Regexp) bool {
		mine, theirs := first(re, s.Before, s.Mine), first(re, s.Before, s.Theirs)
		return mine != "" && theirs != "" && mine != theirs && strings.Contains(s.Theirs, mine) && strings.Contains(s.Mine, theirs)
	}
	return swapped(jsonName) || swapped(jsonKey)
}

// first is the first match that ends behind the place, if it begins not far from there.
func first(re *regexp.Regexp, before, behind string) string {
	for _, m := range re.FindAllStringIndex(before+behind, -1) {
		if m[1] > len(before) {
			if m[0] > len(before)+2 {
				return ""
			}
			return (before + behind)[m[0]:m[1]]
		}
	}
	return ""
}

// thoughts is whether one side has thoughts where the other has none.
func (s *Split) thoughts() bool {
	mine, theirs := strings.TrimSpace(s.Mine), strings.TrimSpace(s.Theirs)
	return strings.HasPrefix(s.Part, "message") && strings.HasPrefix(mine, "<think>") != strings.HasPrefix(theirs, "<think>")
}

// rewritten is whether the client is one that is known to move messages.
func (s *Split) rewritten() bool {
	return s.Client == Aider && strings.HasPrefix(s.Part, "message")
}
