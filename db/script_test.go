package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/testkit/script"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
)

// Scripts: laws of docs/reliability.md as text, in testdata/LAW/NAME.txt. The grammar, a command a line or several with ";" between:
//
//	# green: why | # red: why | # cannot run: why     the first line. A red script must fail; one that cannot run has a command without meaning
//
// The store and its prompts:
//
//	open [power|process] [no-holes] [coarse] [budget N]
//	                               before the first command, else in process mode, with 16 MiB, on a disk that punches holes and has blocks
//	                               of 4 KiB (coarse: 16 KiB)
//	reopen ... [read-only]         what is on the disk is verified, then opened, and verified again. What open said holds, unless it is said anew
//	use MODEL                      from now on prompts are of that model: plain (at first), window (40 rows of a sliding window), state
//	                               (nothing but an opaque state at the end of a put), hybrid (rows and such a state), long (a descriptor of
//	                               more than a page), other (is like plain).
//	put P [N] [bare]               P[0, N). P is a letter, of 64 tokens unless N is said; A/B are B's tokens behind A's 64, and A/B@s keeps those
//	                               of B in scope s. Blocks have 32. bare: without states and rows of windows
//	extend P [N]                   the same from the end of a match on, as a conversation does it
//	delete P [from N], delete scope S, retire     retire: the model that is used
//	ref NAME P [N] [pinned], unref NAME, note NAME TEXT
//	sync, checkpoint, compact, evict, evict all, suspend, resume, hold P, release P
//	                               hold is a match that stays open. evict: one block at least
//	expect P all|none|N [or more]  tokens that are restored; every row is compared. all: the longest put
//	expect bytes P none, expect bytes ref NAME none    its tokens and rows, its metadata, are in no file. some: in one
//	say S TEXT, retell S TEXT, leave S    appends a frame to the session of scope S, which is opened or made; puts it in the place of all frames;
//	                               closes it
//	expect session S               has what was acknowledged, or also what was under way; after a cut, at least what was durable
//	expect session S or P none     it is there still, or neither it nor P is
//	expect bytes session S none    what was said is in no file. some: in one
//	expect ref|note NAME none, expect ref NAME N, expect note NAME TEXT
//	verify clean|damaged [FILE]|any     what the last reopen found. Unless it is said, it must be clean
//
// Ends of a process, and what is left:
//
//	kill, close
//	cut [lose THING [and THING]]   the power. THING: unsynced (all that is not durable, unless said), nothing, new (of it, what segments have),
//	                               header (their first pages), P [at N] (its records, or those that begin at N), first-sector P [at N], sectors P
//	                               [at N] (the first one of each page), log-page P (with the beginning of its frame), copy (what the last
//	                               compact wrote), any (the script runs eight times, or with DORMOUSE_CRASH=all 200 times, each with another
//	                               part of it)
//	cut revive NAME                nothing is lost, but the removal of that file
//	cut power …                    a script with a cut runs once more, with the volume lost instead, in the same boot; not this one
//	unplug                         the volume goes: every call fails. The process lives on
//	plug [lose THING [and THING]|revive NAME]      it comes back in the same boot, without what is lost. What a store has open stays useless
//	flip frame P, flip record|head P [at N], zero record P [at N], zero header     a bit; the first page, of the newest such record. The store may
//	                               be open
//	flip|empty|drop FILE           drop: all whose names begin so
//
// What fails. CALL is KIND [FILES] [behind CALL]: the first call of that kind of the file system, for files with names that begin so (a folder, or
// with a dot or a slash in it), behind another one. KIND is create, open, rename, remove, mkdir, list, stat, syncdir, read, write, allocate, truncate, punch, sync, map, or change
//
//	fail CALL [always|each] [with space|handles]     with an I/O error, unless said, and once. each: the script runs with the first such call, the
//	                               second one, until there is no other. What is to fail ends with the process, or waits for the next
//	die CALL [each]                the process does; commands up to the next kill, cut or reopen are not done
//	allow                          nothing is to fail any more
//	COMMAND fails [poisoned], COMMAND may fail     it must, or may, return an error (ErrPoisoned)
//	begin COMMAND until CALL       it waits there, and others go on
//	go [until CALL]                to its end, or to there
//	fill, room                     leaves the disk no room, makes some
//	perhaps COMMAND, a|b           the script runs with it and without; with the one word and the other
//
// A "#" begins a comment.

// scriptLaws are the folders of testdata that have scripts, with the row of docs/reliability.md that each guards.
var scriptLaws = map[string]string{
	"hit":       "A hit is never wrong",
	"killed":    "Nothing acknowledged is lost when the process is killed",
	"power":     "`Power`: nothing acknowledged is lost when the power is cut, or the volume goes",
	"process":   "`Process`: nothing older than the last checkpoint or `Sync` is lost when the power is cut, or the volume goes",
	"deletions": "Deletions hold, in both modes, whatever is rebuilt",
	"closure":   "Every stored block's prefix is stored",
	"damage":    "Damage costs the damaged blocks; `Verify` names file and offset",
	"fsync":     "After a failed fsync nothing is written",
	"full":      "A full disk is an eviction",
}

// TestScripts runs testdata/LAW/NAME.txt: `go test ./db -run TestScripts/damage/torn -v` runs one.
func TestScripts(t *testing.T) {
	doc := storetest.Must(os.ReadFile(filepath.Join("..", "docs", "reliability.md")))(t)
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
			text := storetest.Must(os.ReadFile(file))(t)
			if scriptLaws[law] == "" {
				t.Fatalf("%s: no law has the name %s", file, law)
			}
			x, err := script.Parse(file, string(text))
			storetest.OK(t, err)
			counts[x.State]++
			if x.State == "cannot run" {
				t.Skip("SKIPPED: " + x.State + ": " + x.Why)
			}
			err = script.Run(t, x)
			switch {
			case script.IsMalformed(err):
				t.Error(err)
			case x.State == "red" && err == nil:
				t.Errorf("%s:1: is red (%s), and passes: take the word out", file, x.Why)
			case x.State == "red":
				t.Logf("red (%s): %v", x.Why, err)
			case err != nil:
				t.Error(err)
			}
		})
	}
	t.Log(counts)
}

// A script that says nothing, or something else than it seems to, is an error with its file and line.
func TestMalformedScripts(t *testing.T) {
	for text, want := range map[string]string{
		"put A":                                     "x.txt:1: expected",
		"# red:\nput A":                             "x.txt:1: expected",
		"# green: why":                              "x.txt:1: no command",
		"# green: why\nput A; putt B":               `x.txt:2: no command is like "putt B"`,
		"# green: why\n\nexpect A some":             `x.txt:3: no command is like "expect A some"`,
		"# green: why\nput A\ncut lose a":           `x.txt:3: no command is like "cut lose a"`,
		"# green: why\nput A\nopen":                 "x.txt:3: open comes first",
		"# green: why\ngo":                          "x.txt:2: go: nothing was begun",
		"# cannot run: why\nput A":                  "x.txt:1: is cannot run, and has a command without meaning: false",
		"# green: why\nput A; kill; put A":          "x.txt:2: put A: no store is open",
		"# green: why\nput A; sync; cut lose A":     "x.txt:2: cut lose A: there is nothing to lose",
		"# green: why\nput A\nkill\nflip frame B":   "x.txt:4: flip frame B: it was never put",
		"# green: why\nput A\nkill\ndrop bloom":     "x.txt:4: drop bloom:",
		"# red: why\nfail sync segments/\nkill":     "x.txt:3: kill: what was to fail never came",
		"# green: why\nfail lock a\nput A":          `x.txt:2: no command is like "fail lock a"`,
		"# green: why\nbegin put A until sync wal/": "x.txt:2: begin put A until sync wal/: it did not come there",
	} {
		x, err := script.Parse("x.txt", text)
		if err == nil {
			err = script.Run(t, x)
		}
		if !script.IsMalformed(err) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
}
