package docs

import (
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program of conversations.md says what the page says. Its second process knows what the first one, which was killed, had committed.
func TestChatSaysWhatIsSaid(t *testing.T) {
	const page = "docs/conversations.md"
	var dir, said string
	for _, b := range blocks(t, page, "go") {
		if b.program() {
			dir = module(t, b.code)
		}
	}
	for _, b := range blocks(t, page, "") {
		if strings.HasPrefix(b.code, "$ go build -o talks . && ./talks\n") {
			said = b.code
		}
	}
	if dir == "" || said == "" {
		t.Fatalf("%s shows no program, or not what it prints", page)
	}
	if out, err := goCommand(t, dir, false, "build", "-o", "talks.exe", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, session := range strings.Split(said, "./talks\n")[1:] {
		session, _, _ = strings.Cut(session, "$ ")
		p := start(t, dir)
		// Behind a prompt stands what was typed, and in the lines below it the answer.
		turns := strings.Split(session, "\n>")
		turns[0] = strings.TrimPrefix(turns[0], ">")
		for _, turn := range turns {
			p.expect("> ")
			typed, answer, _ := strings.Cut(strings.TrimSpace(turn), "\n")
			switch typed {
			case "Killed":
				p.kill()
			case "":
				p.end()
			default:
				p.say(typed)
				p.expect(answer + "\n")
			}
		}
	}
}

// The program goes on, for all users, after lines that say nothing, or too much.
func TestChatGoesOnAfterAnyLine(t *testing.T) {
	var dir string
	for _, b := range blocks(t, "docs/conversations.md", "go") {
		if b.program() {
			dir = module(t, b.code)
		}
	}
	if out, err := goCommand(t, dir, false, "build", "-o", "talks.exe", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := exec.CommandContext(t.Context(), "./talks.exe")
	p.Dir = dir
	lines := []string{"ada: How are you?", "", "ada", "ada:", "ada: ", ": hi", "ada: /edit ", "ada: /edit", "ada: \xff", "ada: /log x", strings.Repeat("name", 1000) + ": hi",
		"ada: " + strings.Repeat("word ", 5000), "carl: /log", "carl: /edit hi", "ada: /log"}
	p.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := p.CombinedOutput()
	prompts := strings.Count("\n"+string(out), "\n> ") + strings.Count(string(out), "> > ")
	if _, last, _ := strings.Cut(string(out), "  1 How are you?:"); err != nil || prompts < len(lines) || !strings.HasSuffix(last, "\n> ") {
		t.Errorf("%v: %d prompts for %d lines:\n%.3000s", err, prompts, len(lines), out)
	}
}

type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
	log bytes.Buffer
}

func start(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), filepath.Join(dir, "talks.exe"))}
	p.cmd.Dir, p.cmd.Stderr = dir, &p.log
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) expect(want string) {
	p.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(p.out, got); err != nil || string(got) != want {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.t.Fatalf("it prints %q, want %q: %v\n%s", got[:n], want, err, &p.log)
	}
}

func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

func (p *process) end() {
	p.t.Helper()
	if err := p.in.Close(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("%v\n%s", err, &p.log)
	}
}
