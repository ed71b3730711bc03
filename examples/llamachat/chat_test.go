//go:build (linux && !android) || (darwin && !ios)

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// asProgram, in the environment, makes the test binary the program itself.
const asProgram = "LLAMACHAT_AS_PROGRAM"

// program is a chat as a process of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a program that waits is not waited for
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"-chat", "-lib", libraries(t), "-threads", "1", "-codec", "raw"}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// small is a chat with the small model, which was trained for 512 positions.
func small(store string) []string {
	return []string{"-model", stories, "-template", "chatml", "-store", store, "-ring", "300", "-facts", "150", "-answer", "16"}
}

// say runs a chat with a script, and returns what it printed and its exit code.
func say(t *testing.T, args []string, script ...string) (string, int) {
	t.Helper()
	cmd := program(t, args...)
	cmd.Stdin = strings.NewReader(strings.Join(script, "\n"))
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() != 0 {
		return string(out) + errors.String(), cmd.ProcessState.ExitCode()
	}
	return string(out), 0
}

// contains wants texts in this order.
func contains(t *testing.T, out string, texts ...string) {
	t.Helper()
	rest := out
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Fatalf("%q is not there, or not in its place:\n%s", text, out)
		}
		rest = after
	}
}

func exported(t *testing.T, path string) (x transcript) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// A script uses every command, prints the same in every new folder, and what it said is there when it is opened again.
func TestChat(t *testing.T) {
	libraries(t)
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for range 2 {
		dir := t.TempDir()
		t.Chdir(dir) // what is printed names no folder
		store := filepath.Join(dir, "store")
		args := append(small(store), "-system", "Tell stories.")
		args[1] = model
		out, code := say(t, args, "/why", "/fact name Anna", "/fact pet a dog", "/fact name Bob", "/facts", "Once upon a time", "", "//title is a word",
			"/title The dog", "/why", "/edit There was a dog", "/regenerate", "/branch 3", "5", "2", "/branch 2", "0", "/fact pet", "The end", "/why", "/threads b", "Hello",
			"/threads", "/threads main", "/forget 1", "/export a.json", "/export a.txt", "/export a.txt", "/quit", "this is not said")
		contains(t, out, `Conversation "main" is new.`, "There is no turn yet.", "> /facts\npet: a dog\nname: Bob\n> Once upon a time\n", "> //title is a word\n",
			"What turn 2 attended to", "fact pet", "fact name", "turn 1 ", "Once upon a time", "turn 2 ", "the last one: /title is a word", "in the cache when it began",
			"> /edit There was a dog\n", "(At temperature 0.8", "1) ", "2) ", "3) ", "0 keeps the answer that was there: 5\n", "0 keeps the answer that was there: 2\n", "1) ", "2) ", "there: 0\n",
			"> The end\n", "What turn 7 attended to", "Conversation \"b\" is new", "* b: 1 turn, 0 facts\n  main, The dog: 3 turns, 1 fact\n", `Conversation "main", The dog: 3 turns, 1 fact.`,
			"> The end\n", "Turn 1 is erased", "a.json: 2 turns, 1 fact.", "a.txt is there already", "> /quit\n")
		if code != 1 || strings.Contains(out, "not said") { // one line failed
			t.Fatalf("code %d:\n%s", code, out)
		}
		if before != "" && out != before {
			t.Fatalf("another run prints\n%s\nthe first one printed\n%s", out, before)
		}
		before = out
		x := exported(t, "a.json")
		if x.Conversation != "main" || x.Title != "The dog" || x.System != "Tell stories." || x.Model != "stories260K" ||
			!slices.Equal(x.Facts, []factText{{"name", "Bob"}}) || len(x.Turns) != 2 || x.Turns[0].User != "There was a dog" || x.Turns[1].User != "The end" || x.Turns[0].Answer == "" {
			t.Fatalf("exported: %+v", x)
		}
		picked, _, _ := strings.Cut(out[strings.Index(out, "\n2) ")+4:], "\n3) ")
		if x.Turns[0].Answer != strings.TrimSpace(picked) {
			t.Errorf("the second answer was picked and kept: %q is, of %q", x.Turns[0].Answer, picked)
		}
		text, err := os.ReadFile("a.txt")
		if err != nil {
			t.Fatal(err)
		}
		contains(t, string(text), "main  The dog\nsystem: Tell stories.\nfact name: Bob\n", "> There was a dog\n"+x.Turns[0].Answer, "> The end\n"+x.Turns[1].Answer)

		// And back again, without the flags that the conversation knows.
		back, code := say(t, args[:len(args)-2], "/export b.json", "What then?", "/why")
		if code != 0 {
			t.Fatalf("code %d:\n%s", code, back)
		}
		contains(t, back, `Conversation "main", The dog: 2 turns, 1 fact.`, "It ended so:\n> The end\n"+x.Turns[1].Answer, "came from the store")
		a, _ := os.ReadFile("a.json")
		b, _ := os.ReadFile("b.json")
		if !bytes.Equal(a, b) {
			t.Errorf("after coming back, the export is\n%s\nit was\n%s", b, a)
		}
	}
}

// What an answer does not attend to any more is drawn as such: with -recent it is hidden, out of the ring it is gone.
func TestChatPicture(t *testing.T) {
	dir := t.TempDir()
	out, code := say(t, append(small(filepath.Join(dir, "store")), "-recent", "1", "-ring", "220"), "one", "two", "three", "/why", "four", "/why", "/export "+filepath.Join(dir, "a.json"))
	contains(t, out, "What turn 3 attended to", "turn 1", "·", "hidden  one", "turn 2", "█", "two\n", "the last one: three", "What turn 4 attended to", "×", "gone", "·", "hidden  two", "the last one: four")
	if x := exported(t, filepath.Join(dir, "a.json")); code != 0 || len(x.Turns) < 3 || x.Turns[len(x.Turns)-1].User != "four" {
		t.Errorf("code %d: %+v", code, x)
	}
}

// What goes wrong is a sentence that says what to do, and leaves nothing behind.
func TestChatSaysWhyNot(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	other := filepath.Join(dir, "other")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	recurrent := filepath.Join(dir, "recurrent.gguf")
	if err := os.WriteFile(recurrent, ggufgen.WithText(ggufgen.Mamba(4, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"-model", stories, "-store", store}, 1, []string{"has no chat template", "-template"}},
		{[]string{"-model", stories, "-store", store, "-template", "jinja"}, 1, []string{"-template jinja", "llama.cpp does not know"}},
		{[]string{"-model", filepath.Join(other, "letter.txt"), "-store", store}, 1, []string{"letter.txt"}},
		{[]string{"-model", recurrent, "-store", store, "-template", "chatml"}, 1, []string{"not supported", "recurrent"}},
		{append(small(store), "-system", strings.Repeat("word ", 600)), 1, []string{"-system", "150"}},
		{[]string{"-model", stories, "-template", "chatml", "-store", store}, 1, []string{"trained for 512", "-ring"}},
		{small(other), 2, []string{"-store", "earlier run"}},
		{append(small(store), "-script", filepath.Join(dir, "none")), 2, []string{"-script"}},
	} {
		out, code := say(t, x.args, "Hello")
		if code != x.code {
			t.Errorf("%q: code %d", x.args, code)
		}
		contains(t, out, x.want...)
		if found, _ := filepath.Glob(store + "*"); len(found) > 0 {
			t.Errorf("%q leaves %q behind", x.args, found)
		}
	}
	out, code := say(t, small(store), strings.Repeat("long ", 300), "/facts", "/nonsense", "/fact", "/fact x", "/edit x", "/edit", "/regenerate", "/branch 0", "/branch 2", "/forget x", "/forget 3",
		"/export", "/export "+filepath.Join(dir, "none", "a"), "/fact long "+strings.Repeat("word ", 300), "Hello")
	contains(t, out, "! the message is too long", "-ring", "! there is no /nonsense", "! /fact NAME TEXT", "! there is no fact x", "! there is no turn yet", "! /edit TEXT",
		"! there is no turn yet", "! /branch 0: a number from 1 to 8", "! there is no turn yet", "! /forget x: the number", "! there is no turn 3", "! /export FILE", "none/a", "! chat: no room for the fact", "> Hello\n")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

// The flags of a conversation are refused without one, and those of the story in one.
func TestChatFlagsAreChecked(t *testing.T) {
	dir := t.TempDir()
	good := []string{"-lib", dir, "-model", stories, "-store", filepath.Join(dir, "store")}
	for _, x := range [][]string{
		{"-id", "x"}, {"-temperature", "1"}, {"-script", "x"},
		{"-chat", "-json"}, {"-chat", "-tokens"}, {"-chat", "-continue", "4"}, {"-chat", "-prompt-file", "x"},
		{"-chat", "-id", ""}, {"-chat", "-temperature", "-1"}, {"-chat", "-temperature", "NaN"}, {"-chat", "-temperature", "11"}, {"-chat", "-answer", "0"}, {"-chat", "-answer", "-4"},
		{"-chat", "-answer", "1000"}, {"-chat", "-ring", "0"}, {"-chat", "-ring", "2000000000"}, {"-chat", "-recent", "-1"}, {"-chat", "-facts", "0"},
	} {
		name := strings.TrimPrefix(strings.Join(x, " "), "-chat ")
		name, _, _ = strings.Cut(name, " ")
		if _, err := parse(append(good, x...), io.Discard); command.Code(err) != 2 || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, expected a word about %s", x, err, name)
		}
	}
	if o, err := parse(append(good, "-chat"), io.Discard); err != nil || o.id != "main" || o.temperature != 0 {
		t.Errorf("%+v: %v", o.chatOptions, err)
	}
}

// running is a chat that is spoken to.
type running struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
	all strings.Builder
}

func begin(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: program(t, args...)}
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	return r
}

func (r *running) say(line string) { io.WriteString(r.in, line+"\n") }

// until reads until something was printed, and returns it with what came before.
func (r *running) until(text string) string {
	r.t.Helper()
	var got []byte
	for !bytes.HasSuffix(got, []byte(text)) {
		b, err := r.out.ReadByte()
		if err != nil {
			r.t.Fatalf("%q does not come: %v\n%s%s", text, err, r.all.String(), got)
		}
		got = append(got, b)
	}
	r.all.Write(got)
	return string(got)
}

// Ctrl-C in the middle of an answer keeps what there is of it; SIGKILL in the middle of one keeps what was committed. Both are there again, and
// go on from the store.
func TestChatBrokenOff(t *testing.T) {
	smol := os.Getenv("DORMOUSE_LLAMA_SMOL")
	if smol == "" {
		t.Skip("SKIPPED, no chat with a trained model: DORMOUSE_LLAMA_SMOL is not set; tests/llama/fetch.sh fetches one")
	}
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	args := []string{"-model", smol, "-store", filepath.Join(dir, "store"), "-answer", "400", "-system", "You are a helpful assistant."}
	r := begin(t, args...)
	r.say("Write a long story about a dormouse who lives in a forest.")
	r.until("in a forest.\n")
	shown := r.until(" ") + r.until(" ") + r.until(" ") + r.until(" ")
	r.cmd.Process.Signal(os.Interrupt)
	shown += strings.TrimSuffix(r.until("(Interrupted: this much is kept.)\n"), "(Interrupted: this much is kept.)\n")
	r.say("/fact name Anna")
	r.say("/export " + a)
	r.until("1 turn, 1 fact.\n")
	if x := exported(t, a); x.Turns[0].Answer != strings.TrimSpace(shown) {
		t.Errorf("%q was shown, %q is kept", shown, x.Turns[0].Answer)
	}
	r.say("Continue the story, please.")
	r.until("please.\n")
	for range 3 {
		r.until(" ")
	}
	r.cmd.Process.Signal(syscall.SIGKILL)
	r.cmd.Wait()

	args[5] = "8"
	r = begin(t, args...)
	r.until(`Conversation "main": 1 turn, 1 fact.`)
	r.until(strings.TrimSpace(shown))
	r.say("/export " + b)
	r.until("1 turn, 1 fact.\n")
	before, _ := os.ReadFile(a)
	after, _ := os.ReadFile(b)
	if !bytes.Equal(before, after) {
		t.Errorf("after the kill, the export is\n%s\nit was\n%s", after, before)
	}
	r.say("Go on.")
	r.say("/why")
	r.until("came from the store")
	r.cmd.Process.Signal(os.Interrupt) // while it waits: that is leaving
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C at the prompt: %v", err)
	}
}

// A chat that is killed while /branch makes answers, or waits for the choice, has the answer that was there, and none of the others.
func TestChatKilledInBranch(t *testing.T) {
	dir := t.TempDir()
	args := small(filepath.Join(dir, "store"))
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	say(t, args, "Once upon a time there was a cat", "/fact name Anna", "And a dog", "/export "+a)
	for _, moment := range []string{"> /branch 8\n", "\n1) ", "\n8) "} {
		r := begin(t, append(args, "-answer", "90")...)
		r.say("/branch 8")
		r.until(moment)
		r.cmd.Process.Kill()
		r.cmd.Wait()
		out, code := say(t, args, "/export "+b)
		before, _ := os.ReadFile(a)
		after, _ := os.ReadFile(b)
		if code != 0 || len(before) == 0 || !bytes.Equal(before, after) {
			t.Errorf("killed behind %q: code %d, %s\nthe export is\n%s\nit was\n%s", moment, code, out, after, before)
		}
		os.Remove(b)
	}
}
