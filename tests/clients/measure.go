//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// row is what became of a client. Tokens are those that the server says it reused; each has the length of its prompt beside it.
type row struct {
	Client                string `json:"client"`
	Version               string `json:"version"`
	PromptTokens          int    `json:"prompt_tokens"`
	ResumedTokens         int    `json:"resumed_tokens"`
	ElsewhereTokens       int    `json:"elsewhere_tokens"`
	ElsewhereAdvised      *int   `json:"elsewhere_advised_tokens"` // null: nothing is advised, or this dormouse cannot do it
	ResumedTTFT           int64  `json:"resumed_ttft_ms"`
	ColdTTFT              int64  `json:"cold_ttft_ms"`
	ResumedPrompt         int    `json:"resumed_prompt_tokens"`
	ElsewherePrompt       int    `json:"elsewhere_prompt_tokens"`
	ElsewhereTTFT         int64  `json:"elsewhere_ttft_ms"`
	ElsewhereAdvisedAsked *int   `json:"elsewhere_advised_prompt_tokens"`
	Said                  said   `json:"x_dormouse"`
	Advice                string `json:"advice,omitempty"`

	resumed exchange
}

// said is X-Dormouse of each turn.
type said struct {
	Cold      string `json:"cold"`
	Resumed   string `json:"resumed"`
	Elsewhere string `json:"elsewhere"`
	Advised   string `json:"elsewhere_advised,omitempty"`
}

const (
	question = "What is this folder about? Answer in one sentence, and change nothing."
	another  = "Thank you. What would you do next?"
	other    = "List the files of this folder, and say in a few words what is in each of them."
)

// patience is for one turn of a client.
const patience = 30 * time.Minute

// user is a client with a home and two folders, before a front.
type user struct {
	*rig
	client
	stack   *stack
	home    string
	advised bool
}

// measure has a client begin a conversation, go on with it after both processes were killed, and begin another one in another folder; and then,
// on another store, begin one in each folder with what is advised.
func (r *rig) measure(ctx context.Context, c client) (*row, error) {
	u, err := r.user(ctx, c, false)
	if err != nil {
		return nil, err
	}
	defer func() { u.stack.kill(ctx) }()
	out := &row{Client: c.name, Version: u.versionOf(ctx)}
	r.note("%s %s", c.name, out.Version)

	cold, err := u.turn(ctx, "first turn", "workshop", c.first(question))
	if err != nil {
		return nil, err
	}
	if err := u.stack.restart(ctx); err != nil {
		return nil, err
	}
	if out.resumed, err = u.turn(ctx, "resumed", "workshop", c.next(another)); err != nil {
		return nil, err
	}
	if err := u.stack.stored(ctx); err != nil {
		return nil, err
	}
	elsewhere, err := u.turn(ctx, "another folder", "garden", c.first(other))
	if err != nil {
		return nil, err
	}
	out.PromptTokens, out.ColdTTFT = cold.prompt, cold.firstToken.Milliseconds()
	out.ResumedTokens, out.ResumedPrompt, out.ResumedTTFT = out.resumed.cached, out.resumed.prompt, out.resumed.firstToken.Milliseconds()
	out.ElsewhereTokens, out.ElsewherePrompt, out.ElsewhereTTFT = elsewhere.cached, elsewhere.prompt, elsewhere.firstToken.Milliseconds()
	out.Said = said{Cold: cold.front, Resumed: out.resumed.front, Elsewhere: elsewhere.front}
	if err := u.stack.kill(ctx); err != nil || !c.advised() {
		return out, err
	}

	for _, flag := range c.advice.front {
		if strings.HasPrefix(flag, "--") && !strings.Contains(r.takes, flag+" ") {
			r.note("%s: this dormouse serve knows no %s: what is advised is not tried", c.name, flag)
			return out, nil
		}
	}
	if u, err = r.user(ctx, c, true); err != nil {
		return nil, err
	}
	if _, err = u.turn(ctx, "advised, first turn", "workshop", c.first(question)); err != nil {
		return nil, err
	}
	if err := u.stack.stored(ctx); err != nil {
		return nil, err
	}
	advised, err := u.turn(ctx, "advised, another folder", "garden", c.first(other))
	if err != nil {
		return nil, err
	}
	out.ElsewhereAdvised, out.ElsewhereAdvisedAsked, out.Said.Advised = &advised.cached, &advised.prompt, advised.front
	out.Advice = strings.Join(slices.Concat(c.advice.env, c.advice.args, c.advice.front), " ")
	return out, nil
}

// user makes a home and two folders for a client, and starts a front for it.
func (r *rig) user(ctx context.Context, c client, advised bool) (*user, error) {
	dir := filepath.Join(r.dir, c.name)
	var front []string
	if advised {
		dir += "-advised"
		front = c.advice.front
	}
	u := &user{rig: r, client: c, home: filepath.Join(dir, "home"), advised: advised}
	for folder, text := range map[string]string{
		"home/tmp": "", "workshop": "Tools for wood: a list of saws, and when each was sharpened.\n", "garden": "What grows where, and when it was sown.\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return nil, err
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, folder, "README.md"), []byte(text), 0o600); err != nil {
				return nil, err
			}
			git := exec.Command("git", "init", "--quiet", filepath.Join(dir, folder))
			git.Env = []string{"HOME=" + u.home, "PATH=" + os.Getenv("PATH")}
			if said, err := git.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("git init: %w: %s", err, said)
			}
		}
	}
	if err := c.settle(u.home, r.watch.url); err != nil {
		return nil, err
	}
	s, err := newStack(r.programs, filepath.Join(dir, "front"), front...)
	if err != nil {
		return nil, err
	}
	u.stack = s
	r.stacks = append(r.stacks, s)
	if err := s.start(); err != nil {
		return nil, err
	}
	return u, s.keeps(ctx)
}

func (u *user) versionOf(ctx context.Context) string {
	said, _ := u.call(ctx, filepath.Join(filepath.Dir(u.home), "workshop"), u.client.version)
	lines := strings.Fields(said)
	i := slices.IndexFunc(lines, func(s string) bool { return strings.Count(s, ".") >= 1 && s[0] >= '0' && s[0] <= '9' })
	if i < 0 {
		return strings.TrimSpace(said)
	}
	return lines[i]
}

// turn runs the client once, and gives the request that was its turn.
func (u *user) turn(ctx context.Context, what, folder string, args []string) (exchange, error) {
	if err := u.stack.ready(ctx); err != nil {
		return exchange{}, err
	}
	if err := u.watch.before(u.stack); err != nil {
		return exchange{}, err
	}
	began := time.Now()
	printed, err := u.call(ctx, filepath.Join(filepath.Dir(u.home), folder), u.line(args, u.advised))
	main, all := u.watch.main()
	for _, x := range all {
		u.note("%s, %s: %s: %d of %d tokens reused, first token after %v: %s", u.name, what, x.path, x.cached, x.prompt, x.firstToken.Round(time.Millisecond), x.front)
	}
	u.note("%s, %s: took %v", u.name, what, time.Since(began).Round(time.Second/10))
	if u.keep {
		for i, x := range all {
			name := fmt.Sprintf("%s, %d.json", what, i)
			if err := os.WriteFile(filepath.Join(filepath.Dir(u.home), name), x.body, 0o600); err != nil {
				return main, err
			}
		}
	}
	if err != nil {
		return main, fmt.Errorf("%s: %w: %s", what, err, end(printed))
	}
	if !main.known {
		return main, fmt.Errorf("%s: it asked for nothing whose answer has the server's figures: %d requests: %s", what, len(all), end(printed))
	}
	return main, nil
}

func end(printed string) string {
	printed = strings.TrimSpace(printed)
	return printed[max(0, len(printed)-1000):]
}

// call runs the client in a folder, and gives all that it printed.
func (u *user) call(ctx context.Context, folder string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	program, err := filepath.Abs(filepath.Join(cache, "bin", u.program))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = folder, append(u.environ(u.home, u.watch.url, u.advised), "PWD="+folder)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	// What a client leaves running ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return printed.String(), err
}
