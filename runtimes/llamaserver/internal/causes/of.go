package causes

import "strings"

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
	Code   string // letters and underscores
	Advice string // what the user can do, or that nothing is to be done: one sentence, whose "its" is the client's
}

// Of names the cause of a split, if it is a known one. Causes that say most are looked for first.
func Of(s Split) (Cause, bool) {
	s.meet()
	if s.Mine == s.Theirs { // nothing of the difference is to be seen
		return Cause{}, false
	}
	for _, k := range kinds {
		if advice := k.advice(&s); advice != "" && k.holds(&s) {
			return Cause{k.code, advice}, true
		}
	}
	return Cause{}, false
}

// meet moves the place to the first byte that differs: prompts part between tokens, and the first ones that differ may begin alike.
func (s *Split) meet() {
	n := 0
	for n < min(len(s.Mine), len(s.Theirs)) && s.Mine[n] == s.Theirs[n] {
		n++
	}
	s.Before, s.Mine, s.Theirs = s.Before+s.Mine[:n], s.Mine[n:], s.Theirs[n:]
}

// fixed is whether the place is in what an agent sends before anything that its user wrote.
func (s *Split) fixed() bool { return s.Part == "system prompt" || s.Part == "tools" }

// message is whether the place is in a message.
func (s *Split) message() bool { return strings.HasPrefix(s.Part, "message ") }

// lines are the two lines in which the prompts parted, and where in both the place is.
func (s *Split) lines() (mine, theirs string, at int) {
	begin := s.Before[strings.LastIndexByte(s.Before, '\n')+1:]
	first := func(behind string) string {
		line, _, _ := strings.Cut(behind, "\n")
		return begin + line
	}
	return first(s.Mine), first(s.Theirs), len(begin)
}
