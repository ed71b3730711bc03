package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
)

// childFlag, as the only argument, makes this program the second process.
const childFlag = "-child"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		err = child(ctx, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	command.End("conversation", err)
}

// verdict is what -json prints.
type verdict struct {
	Turns                 int     `json:"turns"`
	Kills                 int     `json:"kills"`
	FactsKept             bool    `json:"facts_kept"`
	EvictedTurns          int     `json:"evicted_turns"`
	MaskedTurns           int     `json:"masked_turns"` // times that a turn was in the cache and hidden from another
	HalfTurns             int     `json:"half_turns"`
	ViewsAsModel          bool    `json:"views_as_model"`
	BranchEqualsPlain     bool    `json:"branch_equals_plain"`
	ApproximateRowsStored int     `json:"approximate_rows_stored"` // under the key of the bare tokens
	ExactRowsStored       int     `json:"exact_rows_stored"`       // under that key
	ContinuationIdentical bool    `json:"continuation_identical"`
	ControlDiffers        bool    `json:"control_differs"`
	Rewrites              int     `json:"rewrites"`
	SwitchMillis          float64 `json:"switch_ms"`
	ReloadMillis          float64 `json:"reload_ms"`
	SwapMillis            float64 `json:"swap_ms"`
}

// story is this process's side: it walks through the script beside the other one.
type story struct {
	dir   string
	tok   *tiny.Tokenizer
	ref   *reference
	rows  []row
	v     verdict
	wrong []string
	after int // turns since a kill that are still to be compared as a continuation
	final *final
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("conversation", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object on the last line, and nothing else on standard output")
	dir := flags.String("dir", "", "keep the store in this new or empty `folder` (default: a temporary one, removed at the end)")
	if err := command.Parse(flags, args, out); err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "dormouse-conversation-"); err != nil {
			return err
		}
		defer os.RemoveAll(*dir)
	} else if err := command.NewFolder("-dir", *dir, "the conversation begins there"); err != nil {
		return err
	}
	s := &story{dir: *dir, tok: tiny.NewTokenizer()}
	model, err := smallModel(s.tok)
	if err != nil {
		return err
	}
	s.ref = newReference(model, s.tok.Encode(system))
	s.v.FactsKept, s.v.ViewsAsModel, s.v.ContinuationIdentical, s.v.BranchEqualsPlain = true, true, true, true
	if !*asJSON {
		fmt.Fprintln(out, "A conversation of more turns than its cache has room for, in a process that is killed twice.")
		fmt.Fprintln(out)
	}
	for at, again := 0, false; at < len(script); {
		if at, again, err = s.process(ctx, at, again); err != nil {
			return err
		}
	}
	if err := s.stored(ctx, model); err != nil {
		return err
	}
	s.v.Turns, s.v.EvictedTurns, s.v.MaskedTurns, s.v.Rewrites = s.ref.turns, s.ref.evicted, s.ref.masked, s.final.Stats.Rewrites
	s.v.SwitchMillis, s.v.ReloadMillis, s.v.SwapMillis = s.final.SwitchMillis, s.final.ReloadMillis, s.final.SwapMillis
	if *asJSON {
		if err := json.NewEncoder(out).Encode(s.v); err != nil {
			return err
		}
	} else {
		s.print(out)
	}
	if len(s.wrong) > 0 {
		return fmt.Errorf("%d things are not as they should be, the first: %s", len(s.wrong), s.wrong[0])
	}
	return nil
}

func (s *story) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// process starts the other process at a step and goes along until it is killed, or has ended. It returns the step to go on with.
func (s *story) process(ctx context.Context, at int, again bool) (next int, killed bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	cmd := exec.CommandContext(ctx, self, childFlag)
	cmd.Stderr, cmd.WaitDelay = os.Stderr, 10*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, false, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, false, err
	}
	if err := cmd.Start(); err != nil {
		return 0, false, err
	}
	defer cmd.Process.Kill()
	if err := json.NewEncoder(in).Encode(job{s.dir, at, again}); err != nil {
		return 0, false, err
	}
	events := json.NewDecoder(out)
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			return 0, false, errors.Join(fmt.Errorf("the second process ended too soon: %w", err), cmd.Wait())
		}
		switch {
		case e.Step < 0:
			s.opened(e.Turns)
		case e.Die != "":
			if err := cmd.Process.Kill(); err != nil {
				return 0, false, err
			}
			cmd.Wait()
			s.v.Kills++
			s.after = 3
			s.rows = append(s.rows, row{what: fmt.Sprintf("-- process %d: %s, %s", cmd.Process.Pid, cmd.ProcessState, e.Die)})
			return e.Step, true, nil
		case e.Final != nil:
			s.end(e.Final)
			in.Close()
			return len(script), false, cmd.Wait()
		default:
			s.compare(script[e.Step], e)
		}
	}
}

// opened compares the turns that a process found with those that were committed.
func (s *story) opened(turns [][]int32) {
	var want [][]int32
	for _, p := range s.ref.parts {
		if p.kind == "turn" {
			want = append(want, s.ref.tokens[p.start:p.end])
		}
	}
	for i, t := range turns {
		if i >= len(want) || !slices.Equal(t, want[i]) {
			s.v.HalfTurns++
			s.fail("turn %d is %v when the process opens the conversation", i, t)
		}
	}
	if len(turns) < len(want) {
		s.fail("%d turns are there, and %d were committed", len(turns), len(want))
	}
}

// compare does a step by itself, and compares.
func (s *story) compare(st step, e event) {
	switch st.do {
	case "kill":
		return
	case "fact":
		what := "fact " + st.name + ": " + st.text
		if st.text == "" {
			what = "fact " + st.name + " is removed"
		}
		s.rows = append(s.rows, row{what: "-- " + what})
		s.ref.setFact(st.name, s.tok.Encode(st.text))
		if e.Merged != nil {
			s.merge()
		}
		return
	case "edit":
		s.ref.rewind(st.back)
		s.rows = append(s.rows, row{what: "-- the last turn is taken back, and asked in other words"})
	}
	r := s.ref
	r.begin(s.tok.Encode(st.text), words, st.recent)
	view := sum(r.scores) == e.Scores
	own := len(r.tokens) - r.parts[len(r.parts)-1].start
	said := r.answer(words)
	equal := view && slices.Equal(said, e.Answer)
	if !equal {
		s.fail("turn %d (%q) attends to something else than the list says", e.Turn, st.text)
		s.v.ViewsAsModel = false
		if s.after > 0 {
			s.v.ContinuationIdentical = false
		}
	}
	s.after--
	if st.do == "branches" && !(e.Same && equal) {
		s.v.BranchEqualsPlain = false
		s.fail("the branch that was promoted is not the plain answer")
	}
	s.rows = append(s.rows, row{turn: r.turns, text: st.text, e: e, equal: equal, picture: picture(e.Pieces, own+len(said))})
}

// merge does what the other process's facts were merged to.
func (s *story) merge() {
	var facts []chat.Fact
	for _, f := range s.ref.facts() {
		facts = append(facts, chat.Fact{Name: f.name, Tokens: f.tokens})
	}
	for _, f := range shorter(facts, factTokens-len(s.tok.Encode(system))) {
		if !slices.ContainsFunc(facts, func(g chat.Fact) bool { return g.Name == f.Name && slices.Equal(g.Tokens, f.Tokens) }) {
			s.ref.setFact(f.Name, f.Tokens)
		}
	}
	s.ref.rewrite()
	s.rows = append(s.rows, row{what: "-- the facts have no room any more: they are merged, and the log is rewritten"})
}

// end compares the facts, and hides one as a control.
func (s *story) end(f *final) {
	s.final = f
	for i, g := range s.ref.facts() {
		if i >= len(f.Facts) || f.Facts[i].Name != g.name || !slices.Equal(f.Facts[i].Tokens, g.tokens) {
			s.v.FactsKept = false
			s.fail("fact %q is not what was set", g.name)
		}
	}
	if len(f.Facts) != len(s.ref.facts()) {
		s.v.FactsKept = false
		s.fail("%d facts are there, and %d were set", len(f.Facts), len(s.ref.facts()))
	}
	if s.v.ControlDiffers = sum(s.ref.without("name")) != sum(s.ref.scores); !s.v.ControlDiffers {
		s.fail("with a fact hidden the scores are the same: the comparison sees nothing")
	}
}

// stored reads what the store has under the bare tokens of the log: rows that were computed with a part hidden must not be among it.
func (s *story) stored(ctx context.Context, m *tiny.Model) (err error) {
	store, err := db.Open(ctx, filepath.Join(s.dir, "store"), db.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for info, err := range store.Models() {
		if err != nil {
			return err
		}
		model, err := store.Model(info.Fingerprint)
		if err != nil {
			return err
		}
		system := len(s.tok.Encode(system))
		p := kv.Prompt{Tokens: s.ref.tokens, Scope: chat.Scope("walk"), ScopeStart: system}
		match, err := model.Match(ctx, p, db.MatchOptions{})
		if err != nil {
			return err
		}
		defer match.Close()
		n := match.Tokens()
		full, got := m.NewCache(len(p.Tokens)), m.NewCache(len(p.Tokens))
		m.Forward(full, 0, p.Tokens)
		var rows kv.Rows
		for l := range m.Layers {
			rows = append(rows, kv.Packed(0, n, got.K[l][:n*got.RowBytes]), kv.Packed(0, n, got.V[l][:n*got.RowBytes]))
		}
		restored, err := match.Restore(ctx, rows)
		if err != nil {
			return err
		}
		for pos := range restored.Tokens {
			equal := true
			for l := range m.Layers {
				at, end := pos*got.RowBytes, (pos+1)*got.RowBytes
				equal = equal && slices.Equal(full.K[l][at:end], got.K[l][at:end]) && slices.Equal(full.V[l][at:end], got.V[l][at:end])
			}
			if equal {
				s.v.ExactRowsStored++
			} else {
				s.v.ApproximateRowsStored++
			}
		}
	}
	if s.v.ApproximateRowsStored > 0 {
		s.fail("%d rows are stored under a key that says less than they depend on", s.v.ApproximateRowsStored)
	}
	return nil
}

func (s *story) print(out io.Writer) {
	table(out, s.rows)
	v := s.v
	fmt.Fprintf(out, `
%d turns, %d evicted, %d times one was hidden; %d kills, %d half turns; the log was rewritten %d times since the last kill
%d rows are stored under the bare tokens, all exact; other rows have the view that they were computed in as part of their key
switching to a conversation in the cache %.2f ms, loading a parked one %.1f ms, swapping in a rewritten log %.1f ms
`, v.Turns, v.EvictedTurns, v.MaskedTurns, v.Kills, v.HalfTurns, v.Rewrites, v.ExactRowsStored, v.SwitchMillis, v.ReloadMillis, v.SwapMillis)
	if len(s.wrong) == 0 {
		fmt.Fprintln(out, "Every turn said what the list of who sees whom says, to the last bit of the scores, before and after the kills.")
	}
}
