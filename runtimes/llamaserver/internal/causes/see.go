package causes

import (
	"regexp"
	"slices"
	"strings"
)

// over is whether the pattern finds, on both sides, a text at the place: it reaches over the place on at least one of them, and ends there at the earliest on the other.
func (s *Split) over(re *regexp.Regexp) bool {
	found := func(behind string) (at, over bool) {
		place := len(s.Before)
		for _, m := range re.FindAllStringIndex(s.Before+behind, -1) {
			if m[0] <= place && m[1] >= place {
				return true, m[1] > place
			}
		}
		return false, false
	}
	mine, overMine := found(s.Mine)
	theirs, overTheirs := found(s.Theirs)
	return mine && theirs && (overMine || overTheirs)
}

// either is whether the pattern finds something on exactly one side, in a line that begins at most a few characters in front of the place.
func (s *Split) either(re *regexp.Regexp) bool {
	mine, theirs, _ := s.lines()
	return re.MatchString(mine) != re.MatchString(theirs)
}

const billingHeader = "x-anthropic-billing-header:"

func (s *Split) billing() bool {
	mine, theirs, _ := s.lines()
	return strings.Contains(mine, billingHeader) && strings.Contains(theirs, billingHeader)
}

// summaries are how agents begin what they put in place of a conversation: Claude Code, Codex, opencode, pi, aider, qwen-code.
var summaries = regexp.MustCompile(`This session is being continued from a previous conversation|Another language model started to solve this problem|` +
	`^"?What did we do so far\?|The conversation history before this point was compacted|I spoke to you previously about a number of things|<state_snapshot>`)

func (s *Split) compacted() bool { return s.message() && s.either(summaries) }

var clearedResult = regexp.MustCompile(`\[Old tool result content cleared\]`)

func (s *Split) cleared() bool { return s.message() && s.either(clearedResult) }

// movable begin messages that aider sends behind the conversation: its files, or that it has none, and its reminder.
var movable = regexp.MustCompile(`^(?:I have \*added these files to the chat\*|I am not sharing any files that you can edit yet|Don't try and edit any existing code without asking me|` +
	`Here are summaries of some files present in my git repository)`)

func (s *Split) moved() bool { return s.message() && s.either(movable) }

var thought = regexp.MustCompile(`^(?:<\|im_start\|>assistant)?\s*<think>`)

func (s *Split) thoughts() bool {
	begin, _, at := s.lines()
	return s.message() && strings.TrimSpace(begin[:at]) == "" && thought.MatchString(s.Mine) != thought.MatchString(s.Theirs)
}

// projectRules are how agents begin a project's instructions: opencode, qwen-code, pi, Codex, Claude Code.
var projectRules = regexp.MustCompile(`^(?:Instructions from: |--- Context from: |# Project Context$|# AGENTS\.md instructions for |# claudeMd$|Contents of .*\bCLAUDE\.md\b)`)

// instructions is whether one side has a project's instructions, or both have, each its own.
func (s *Split) instructions() bool {
	mine, theirs, at := s.lines()
	if strings.TrimSpace(mine[:at]) == "" { // an empty line may come first
		mine, theirs = firstLine(s.Mine), firstLine(s.Theirs)
	}
	return projectRules.MatchString(mine) || projectRules.MatchString(theirs)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
	return line
}

var gitHead = regexp.MustCompile(`(?m)^(?:# )?gitStatus\b|^Current branch: |^Recent commits:$`)
var heading = regexp.MustCompile(`(?m)^# (?:[^g]|g[^i])|<tools>|<\|im_`)
var gitLine = regexp.MustCompile(`^(?: ?[MADRCU?!]{1,2} \S|\(clean\)$|[0-9a-f]{7,10} \S|Git user: |(?:Current|Main) branch\b|(?:Status|Recent commits):$)`)

// git is whether the place lies in what an agent says of a repository: behind its heading with no other between, and in a line of status.
func (s *Split) git() bool {
	heads := gitHead.FindAllStringIndex(s.Before, -1)
	if s.Part == "tools" || heads == nil || heading.MatchString(s.Before[heads[len(heads)-1][1]:]) {
		return false
	}
	mine, theirs, _ := s.lines()
	return gitLine.MatchString(mine) && (gitLine.MatchString(theirs) || strings.TrimSpace(theirs) == "") ||
		gitLine.MatchString(theirs) && (gitLine.MatchString(mine) || strings.TrimSpace(mine) == "")
}

var path = regexp.MustCompile(`(?:[A-Za-z]:\\|~/|/)[^\s"'<>|` + "`" + `]*`)
var folder = regexp.MustCompile(`(?i)\b(?:(?:working|current|primary working|workspace|project)[ _]?(?:directory|root|folder)|cwd|workspaces?|memory|workspace_roots)\b`)
var whereNow = regexp.MustCompile(`^\s*(?:- )?(?:(?:Primary|Current) )?[Ww]orking directory: |<cwd>|<workspace_roots>|^I'm currently working in the directory: |^Workspace root folder: `)

// label is a line that says what the next one is: a tag, or words with a colon.
var label = regexp.MustCompile(`^\s*(?:<[\w-]+>|[^.]*:)\s*$`)

// directory is whether both have a path at the place, in a line that says that it is where the agent works or keeps its notes, or under one.
func (s *Split) directory() bool {
	mine, _, at := s.lines()
	if !s.over(path) {
		return false
	}
	above := strings.TrimSuffix(s.Before[:max(0, len(s.Before)-at)], "\n")
	if above = above[strings.LastIndexByte(above, '\n')+1:]; !label.MatchString(above) {
		above = ""
	}
	if s.message() {
		return whereNow.MatchString(mine[:at]) || whereNow.MatchString(above)
	}
	return s.Part != "template" && (folder.MatchString(mine) || folder.MatchString(above))
}

// id is one that nobody chose: a UUID, a long hexadecimal number, an id of a call.
const callID = `\b(?:call|toolu|chatcmpl|functions\.\w+:)_?[0-9A-Za-z]{8,}\b`

var anyID = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{16,64}\b|\b(?:ses|msg|req|run|sess|session|thread)_[0-9A-Za-z]{8,}\b|` + callID)
var callIDs = regexp.MustCompile(callID)

func (s *Split) randomID() bool {
	if s.message() {
		return s.over(callIDs)
	}
	return s.over(anyID)
}

const (
	day   = `(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*`
	month = `(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*`
	tod   = `\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[ap]m\b)?`
)

// clock is a date, with or without a time, or a time with its seconds.
var clock = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`\b\d{4}-\d{2}-\d{2}(?:[T ,]+` + tod + `)?`,
	`\b\d{1,2}:\d{2}:\d{2}(?:\.\d+)?(?: ?[ap]m\b)?`,
	`\b\d{1,2}[/.]\d{1,2}[/.]\d{4}`,
	`\b\d{4}[/.]\d{1,2}[/.]\d{1,2}`,
	`\d{4}年\d{1,2}月\d{1,2}日`,
	`\b(?:` + day + `\.?,? )?` + month + `\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}(?:[ ,]+(?:at )?` + tod + `)?`,
	`\b(?:` + day + `\.?,? )?\d{1,2}\.? ` + month + `\.?,? \d{4}(?:[ ,]+(?:at )?` + tod + `)?`,
	`\b` + day + `\.? ` + month + `\.? \d{1,2}(?: ` + tod + `(?: [A-Z]{3,5})?)? \d{4}`,
	`\b` + month + ` \d{4}\b`,
	`\b1[789]\d{8}(?:\d{3})?\b`,
}, "|"))

var ofTime = regexp.MustCompile(`(?i)\b(?:today(?:'s date)?|current[ _](?:date|time)|date and time|time now|timestamp|now)\b`)

// clock is whether both have a date or a time at the place. In a message the line has to say that it is the present one.
func (s *Split) clock() bool {
	mine, _, at := s.lines()
	return s.over(clock) && (!s.message() || ofTime.MatchString(mine[:at]))
}

var toolName = regexp.MustCompile(`"name": ?"[^"]+"`)
var jsonKey = regexp.MustCompile(`"[\w$-]+": ?`)

// reordered is whether, in the tools, what one has at the place the other has later, and the other way round.
func (s *Split) reordered() bool {
	if s.Part != "tools" {
		return false
	}
	return slices.ContainsFunc([]*regexp.Regexp{toolName, jsonKey}, func(re *regexp.Regexp) bool {
		mine, theirs := s.first(re)
		return mine != theirs && mine != "" && theirs != "" && strings.Contains(s.Theirs, mine) && strings.Contains(s.Mine, theirs)
	})
}

// otherTools is whether, in the tools, the place is in a name of a tool, or one side has no more of them.
func (s *Split) otherTools() bool {
	if s.Part != "tools" {
		return false
	}
	mine, theirs := s.first(toolName)
	ends := func(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "</tools>") }
	return mine != theirs && mine != "" && theirs != "" || ends(s.Mine) != ends(s.Theirs)
}

// first is what the pattern finds at the place on both sides, beginning at most one character behind it.
func (s *Split) first(re *regexp.Regexp) (mine, theirs string) {
	find := func(behind string) string {
		text, place := s.Before+behind, len(s.Before)
		for _, m := range re.FindAllStringIndex(text, -1) {
			if m[1] > place {
				if m[0] <= place+1 {
					return text[m[0]:m[1]]
				}
				break
			}
		}
		return ""
	}
	return find(s.Mine), find(s.Theirs)
}

// otherPrompt is whether the prompts part soon, and have nothing in common behind the place.
func (s *Split) otherPrompt() bool {
	const soon, enough, line = 200, 200, 20 // characters
	if s.Part != "system prompt" || len(s.Before) > soon || min(len(s.Mine), len(s.Theirs)) < enough {
		return false
	}
	_, rest, _ := strings.Cut(s.Theirs, "\n")
	theirs := strings.Split(rest, "\n")
	return !slices.ContainsFunc(strings.Split(s.Mine, "\n"), func(l string) bool { return len(l) >= line && slices.Contains(theirs, l) })
}
