package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// scriptCommand is a command by its pattern, in which P is a prompt, N a number, CALL a call of the file system and so on. Without a
// meaning yet, do is nil.
type scriptCommand struct {
	pattern string
	do      func(r *scriptRun, a []string) error
}

var scriptCommands = []scriptCommand{
	{`(open|reopen)((?: power| process| no-holes| coarse| budget N| read-only)*)`, (*scriptRun).open},
	{`use (plain|window|state|hybrid|long|other)`, (*scriptRun).use},
	{`put P(?: N)?( bare)?`, (*scriptRun).put},
	{`extend P( N)?`, (*scriptRun).extend},
	{`delete P(?: from N)?`, (*scriptRun).delete},
	{`delete scope (NAME)`, (*scriptRun).deleteScope},
	{`(sync|checkpoint|compact|retire|suspend|resume|evict|evict all)`, (*scriptRun).upkeep},
	{`ref (NAME) P(?: N)?( pinned)?`, (*scriptRun).ref},
	{`unref (NAME)`, (*scriptRun).unref},
	{`note (NAME) (NAME)`, (*scriptRun).note},
	{`say (NAME) (NAME)`, (*scriptRun).say},
	{`retell (NAME) (NAME)`, (*scriptRun).retell},
	{`leave (NAME)`, (*scriptRun).leave},
	{`expect session (NAME)`, (*scriptRun).expectSession},
	{`expect session (NAME) or P none`, (*scriptRun).expectSessionAfter},
	{`expect bytes session (NAME) (some|none)`, (*scriptRun).expectSessionBytes},
	{`(hold|release) P`, (*scriptRun).hold},
	{`expect P (all|none|N)( or more)?`, (*scriptRun).expect},
	{`expect bytes ref (NAME) (some|none)`, (*scriptRun).expectRefBytes},
	{`expect bytes P (some|none)`, (*scriptRun).expectBytes},
	{`expect (ref|note) (NAME) (none|NAME|N)`, (*scriptRun).expectNamed},
	{`verify (clean|damaged|any)(?: (FILE))?`, (*scriptRun).verify},

	{`(kill|close)`, (*scriptRun).end},
	{`cut( power)?(?: lose (LOSS(?: and LOSS)*)| revive (FILE))?`, (*scriptRun).cut},
	{`unplug`, (*scriptRun).unplug},
	{`plug()(?: lose (LOSS(?: and LOSS)*)| revive (FILE))?`, (*scriptRun).plug},
	{`(flip) (frame) P`, (*scriptRun).harm},
	{`zero header`, (*scriptRun).zeroHeaders},
	{`(flip|zero) (record|head) P(?: at N)?`, (*scriptRun).harm},
	{`(flip|empty|drop) (FILE)`, (*scriptRun).harmFile},

	{`fail (CALL)( always| each)?(?: with (space|handles))?`, (*scriptRun).fail},
	{`die (CALL)( each)?`, (*scriptRun).dieAt},
	{`allow`, (*scriptRun).allow},
	{`begin (.*) until (CALL)`, nil}, // of the parser
	{`go(?: until (CALL))?`, (*scriptRun).goOn},
	{`(fill|room)`, (*scriptRun).room},
}

var scriptPatterns = sync.OnceValue(func() (out []*regexp.Regexp) {
	words := []string{
		"LOSS", `(?:unsynced|nothing|new|header|copy|any|(?:(?:first-sector|sectors|log-page) )?PROMPT(?: at \d+)?)`,
		"CALL", "ONE(?: behind ONE)*",
		"ONE", `(?:create|open|rename|remove|mkdir|list|stat|syncdir|read|write|allocate|truncate|punch|sync|map|change)(?: (?:wal|segments|sessions|bloom|[a-zA-Z0-9]*[./A-Z][a-zA-Z0-9./]*))?`,
		"NAME", `[a-z][a-z0-9-]*`, "FILE", `[a-zA-Z0-9./]+`, "PROMPT", `[A-Z](?:/[A-Z])*(?:@[a-z]+)?`, "P", "(PROMPT)", "N", `(\d+)`,
	}
	for _, c := range scriptCommands {
		p := c.pattern
		for i := 0; i < len(words); i += 2 {
			p = regexp.MustCompile(`\b`+words[i]+`\b`).ReplaceAllLiteralString(p, words[i+1])
		}
		p = regexp.MustCompile(`\bPROMPT\b`).ReplaceAllLiteralString(p, words[11])
		out = append(out, regexp.MustCompile("^"+p+"$"))
	}
	return out
})

// parseCommand finds what a command means. Known is false for one that has no meaning yet.
func parseCommand(text string) (out scriptChoice, known bool, err error) {
	out.text = text
	for i, pattern := range scriptPatterns() {
		if out.args = pattern.FindStringSubmatch(text); out.args == nil {
			continue
		}
		out.do = scriptCommands[i].do
		if command, begins := strings.CutPrefix(text, "begin "); begins {
			command, _, _ = strings.Cut(command, " until ")
			inner, known, err := parseCommand(command)
			out.do = func(r *scriptRun, a []string) error {
				return r.begin(a[2], func() error { return inner.do(r, inner.args) })
			}
			return out, known, err
		}
		return out, out.do != nil, nil
	}
	return out, false, malformed("no command is like %q", text)
}

var scriptStates = regexp.MustCompile(`^# (green|red|cannot run): (\S.*)$`)

// Parse reads a script. The error of one that is malformed has its file and line.
func Parse(file, text string) (*Script, error) {
	x := &Script{file: file}
	bad := func(n int, format string, args ...any) error {
		return malformed("%s:%d: %s", file, n, fmt.Sprintf(format, args...))
	}
	lines, unknown := strings.Split(text, "\n"), false
	if m := scriptStates.FindStringSubmatch(lines[0]); m != nil {
		x.State, x.Why = m[1], m[2]
	} else {
		return nil, bad(1, `expected "# green: why", "# red: why" or "# cannot run: why"`)
	}
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		for text := range strings.SplitSeq(line, ";") {
			text = strings.Join(strings.Fields(text), " ")
			if text == "" {
				continue
			}
			l := scriptLine{n: i + 1, text: text}
			for _, ends := range []string{"may fail", "fails", "fails poisoned"} {
				if before, ok := strings.CutSuffix(text, " "+ends); ok {
					text, l.ends = before, ends
				}
			}
			text, perhaps := strings.CutPrefix(text, "perhaps ")
			for _, text := range alternatives(text) {
				c, known, err := parseCommand(text)
				if err != nil {
					return nil, bad(l.n, "%v", err)
				}
				unknown = unknown || !known
				l.choices = append(l.choices, c)
				x.cuts = x.cuts || strings.HasPrefix(text, "cut") && !strings.HasPrefix(text, "cut power")
			}
			if perhaps {
				l.choices = append(l.choices, scriptChoice{})
			}
			x.drawn = x.drawn || (strings.HasPrefix(text, "cut") || strings.HasPrefix(text, "plug")) && strings.Contains(text, " any")
			x.each = x.each || strings.HasSuffix(text, " each") || strings.Contains(text, " each with ")
			if n := len(x.lines); strings.HasPrefix(text, "open") != (n == 0) {
				if n > 0 {
					return nil, bad(l.n, "open comes first, and once: here it is reopen")
				}
				x.lines = append(x.lines, scriptLine{n: l.n, text: "open", choices: []scriptChoice{{"open", (*scriptRun).open, []string{"open", "open", ""}}}})
			}
			x.lines = append(x.lines, l)
		}
	}
	switch {
	case len(x.lines) == 0:
		return nil, bad(len(lines), "no command")
	case unknown != (x.State == "cannot run"):
		return nil, bad(1, "is %s, and has a command without meaning: %t", x.State, unknown)
	}
	return x, nil
}

// alternatives are the commands that "a|b" stands for. All words of a command that have alternatives have as many.
func alternatives(text string) (out []string) {
	words := strings.Fields(text)
	n := 1
	for _, w := range words {
		n = max(n, strings.Count(w, "|")+1)
	}
	for i := range n {
		each := slices.Clone(words)
		for j, w := range words {
			if all := strings.Split(w, "|"); len(all) > 1 {
				each[j] = all[min(i, len(all)-1)]
			}
		}
		out = append(out, strings.Join(each, " "))
	}
	return out
}
