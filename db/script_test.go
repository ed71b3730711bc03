package db

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Scripts: laws of docs/reliability.md as text, in testdata/LAW/NAME.txt. The grammar, a command a line or several with ";" between:
//
//	# green: why | # red: why | # cannot run: why     the first line. A red script must fail; one that cannot run has a command without meaning
//	open [power|process]           before the first command, else in process mode. So is reopen, which keeps the mode
//	put P [N] [die-unnamed]        P[0, N). P is a letter, of 64 tokens unless N is said; A/B are B's tokens behind A's 64. Blocks have 32
//	sync, checkpoint [die-rotated], compact [die-moved], evict, fill, room, delete P [from N] [die-destroying], hold P, release P
//	                               die: the process dies before the frame of the put is written; behind the log's new file; behind the frames
//	                               of the moves; before the first byte of a record is destroyed. fill leaves the disk no room, room makes some. hold is a match that stays open
//	fail fsync|log-fsync|index-fsync       the next one of a segment, of the log, of index.db's folder
//	fail index-rename              from now on index.db cannot be replaced. What is to fail ends with the process, or waits for the next
//	COMMAND fails                  it must return an error
//	kill, close
//	cut [lose THING]               THING: unsynced (all that is not durable, unless said), nothing, new (of it, what segments have), P (its records),
//	                               first-sector P, log-page P (with the beginning of its frame), copy (what the last compact wrote), any (the
//	                               script runs eight times, or with DORMOUSE_CRASH=all 200 times, each with another part of it)
//	cut revive NAME                nothing is lost, but the removal of that file
//	flip frame|record P            a bit, on the disk of a store that is not open
//	drop NAME                      that file goes
//	reopen [power|process]         what is on the disk is verified, then opened, and verified again
//	verify clean|damaged           what that found. Unless it is said, it must be clean
//	expect P all|none|N            tokens that are restored; every row is compared. all: the longest put
//	expect bytes P none            its tokens and rows are in no file
//	barrier pause|go               a sync begins, and waits where the segments are synced and its barrier is not written; it goes on until
//	                               that is durable
//
// A "#" begins a comment.

// scriptLaws are the folders of testdata that have scripts, with the row of docs/reliability.md that each guards.
var scriptLaws = map[string]string{
	"hit":       "A hit is never wrong",
	"killed":    "Nothing acknowledged is lost when the process is killed",
	"power":     "`Power`: nothing acknowledged is lost when the power is cut",
	"process":   "`Process`: nothing older than the last checkpoint or `Sync` is lost when the power is cut",
	"deletions": "Deletions hold, in both modes, whatever is rebuilt",
	"closure":   "Every stored block's prefix is stored",
	"damage":    "Damage costs the damaged blocks; `Verify` names file and offset",
	"fsync":     "After a failed fsync nothing is written",
	"full":      "A full disk is an eviction",
}

// TestScripts runs testdata/LAW/NAME.txt: `go test ./db -run TestScripts/damage/torn -v` runs one.
func TestScripts(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	for law, row := range scriptLaws {
		if !strings.Contains(string(doc), "\n| "+row) {
			t.Errorf("docs/reliability.md has no row %q, of law %s", row, law)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	counts := map[string]int{}
	for _, file := range files {
		law := filepath.Base(filepath.Dir(file))
		t.Run(law+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if scriptLaws[law] == "" {
				t.Fatalf("%s: no law has the name %s", file, law)
			}
			x, err := parseScript(file, string(text))
			if err != nil {
				t.Fatal(err)
			}
			counts[x.state]++
			if x.state == "cannot run" {
				t.Skip(x.state + ": " + x.why)
			}
			err = runScript(t, x)
			switch {
			case isMalformed(err):
				t.Error(err)
			case x.state == "red" && err == nil:
				t.Errorf("%s:1: is red (%s), and passes: take the word out", file, x.why)
			case x.state == "red":
				t.Logf("red (%s): %v", x.why, err)
			case err != nil:
				t.Error(err)
			}
		})
	}
	t.Log(counts)
}

// errScript is the error of a script that says nothing about the store: it is malformed, or asks for what is not there.
type errScript string

func (e errScript) Error() string { return string(e) }

func malformed(format string, args ...any) error { return errScript(fmt.Sprintf(format, args...)) }

func isMalformed(err error) bool { return errors.As(err, new(errScript)) }

type script struct {
	file, state, why string
	lines            []scriptLine
	any              bool // has a cut whose loss is drawn
}

type scriptLine struct {
	n     int // in the file, from 1
	text  string
	do    func(r *scriptRun, a []string) error
	args  []string // of the pattern's groups
	fails bool
}

// scriptCommand is a command by its pattern, in which P is a prompt and N a number. Without a meaning yet, do is nil.
type scriptCommand struct {
	pattern string
	do      func(r *scriptRun, a []string) error
}

var scriptCommands = []scriptCommand{
	{`open( power| process)?`, (*scriptRun).open},
	{`reopen( power| process)?`, (*scriptRun).open},
	{`put P( N| 0\.\.N)?( die-unnamed)?`, (*scriptRun).put},
	{`delete P( from N)?( die-destroying)?`, (*scriptRun).delete},
	{`(sync|evict|compact|compact die-moved|checkpoint|checkpoint die-rotated)`, (*scriptRun).upkeep},
	{`(fill|room)`, (*scriptRun).room},
	{`(hold|release) P`, (*scriptRun).hold},
	{`fail (fsync|log-fsync|index-fsync|index-rename)`, (*scriptRun).fail},
	{`(kill|close)`, (*scriptRun).end},
	{`cut(?: lose (unsynced|nothing|new|copy|any|P|first-sector P|log-page P)| revive ([a-z.]+))?`, (*scriptRun).cut},
	{`flip (frame|record) P`, (*scriptRun).flip},
	{`drop ([a-z./]+)`, (*scriptRun).drop},
	{`verify (clean|damaged)`, (*scriptRun).verify},
	{`expect P (all|none|N)`, (*scriptRun).expect},
	{`expect bytes P none`, (*scriptRun).expectNoBytes},
	{`barrier (pause|go)`, (*scriptRun).barrier},
}

var scriptPatterns = sync.OnceValue(func() (out []*regexp.Regexp) {
	for _, c := range scriptCommands {
		p := strings.NewReplacer("P", `([A-Z](?:/[A-Z])*)`, "N", `(\d+)`).Replace(c.pattern)
		out = append(out, regexp.MustCompile("^"+p+"$"))
	}
	return out
})

var scriptStates = regexp.MustCompile(`^# (green|red|cannot run): (\S.*)$`)

func parseScript(file, text string) (*script, error) {
	x := &script{file: file}
	bad := func(n int, format string, args ...any) error {
		return malformed("%s:%d: %s", file, n, fmt.Sprintf(format, args...))
	}
	lines, unknown := strings.Split(text, "\n"), false
	if m := scriptStates.FindStringSubmatch(lines[0]); m != nil {
		x.state, x.why = m[1], m[2]
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
			text, l.fails = strings.CutSuffix(text, " fails")
			for i, pattern := range scriptPatterns() {
				if l.args = pattern.FindStringSubmatch(text); l.args != nil {
					l.do = scriptCommands[i].do
					break
				}
			}
			if l.args == nil {
				return nil, bad(l.n, "no command is like %q", text)
			}
			unknown = unknown || l.do == nil
			x.any = x.any || text == "cut lose any"
			if n := len(x.lines); strings.HasPrefix(text, "open") != (n == 0) {
				if n > 0 {
					return nil, bad(l.n, "open comes first, and once: here it is reopen")
				}
				x.lines = append(x.lines, scriptLine{n: l.n, text: "open", do: (*scriptRun).open, args: []string{"open", ""}})
			}
			x.lines = append(x.lines, l)
		}
	}
	switch {
	case len(x.lines) == 0:
		return nil, bad(len(lines), "no command")
	case unknown != (x.state == "cannot run"):
		return nil, bad(1, "is %s, and has a command without meaning: %t", x.state, unknown)
	}
	return x, nil
}

// number is the first number among what a pattern's groups matched.
func number(args ...string) (int, bool) {
	for _, a := range args {
		if n, err := strconv.Atoi(a); err == nil {
			return n, true
		}
	}
	return 0, false
}

// A script that says nothing, or something else than it seems to, is an error with its file and line.
func TestMalformedScripts(t *testing.T) {
	for text, want := range map[string]string{
		"put A":                                   "x.txt:1: expected",
		"# red:\nput A":                           "x.txt:1: expected",
		"# green: why":                            "x.txt:1: no command",
		"# green: why\nput A; putt B":             `x.txt:2: no command is like "putt B"`,
		"# green: why\n\nexpect A some":           `x.txt:3: no command is like "expect A some"`,
		"# green: why\nput A\ncut lose a":         `x.txt:3: no command is like "cut lose a"`,
		"# green: why\nput A\nopen":               "x.txt:3: open comes first",
		"# green: why\nbarrier go":                "x.txt:2: barrier go: there is none",
		"# cannot run: why\nput A":                "x.txt:1: is cannot run, and has a command without meaning: false",
		"# green: why\nput A; flip frame A":       "x.txt:2: flip frame A: the store is open",
		"# green: why\nput A; kill; put A":        "x.txt:2: put A: no store is open",
		"# green: why\nput A; sync; cut lose A":   "x.txt:2: cut lose A: there is nothing to lose",
		"# green: why\nput A\nkill\nflip frame B": "x.txt:4: flip frame B: it was never put",
		"# green: why\nput A\nkill\ndrop bloom":   "x.txt:4: drop bloom:",
		"# red: why\nfail fsync\nkill":            "x.txt:3: kill: what was to fail never came",
	} {
		x, err := parseScript("x.txt", text)
		if err == nil {
			err = runScript(t, x)
		}
		if !isMalformed(err) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
}
