//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

const (
	batch        = 512
	otherA       = 250 // sizes that divide batch would give the same bits
	otherB       = 100
	teacherBatch = 32
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// caches are llama.cpp's own that take less than f16. There each row is rounded before the next one is computed.
var (
	flash  = true // without it, values are not quantized
	caches = []struct {
		name  string
		bytes float64 // a value
		k, v  llama.CacheType
	}{
		{"q8_0", 34. / 32, llama.Q8_0, llama.Q8_0},
		{"q8_0 keys, q4_0 values", (34. + 18) / 64, llama.Q8_0, llama.Q4_0},
		{"q4_0", 18. / 32, llama.Q4_0, llama.Q4_0},
	}
)

// setting is what is measured with every model.
type setting struct {
	dir            string
	text           string
	prompt, follow int // tokens
	threads        int
	rows           *regexp.Regexp // which lines are measured
}

func run(args []string) error {
	var models []string
	var s setting
	flags := flag.NewFlagSet("quality", flag.ExitOnError)
	lib := flags.String("lib", os.Getenv("DORMOUSE_LLAMA_LIB"), "`folder` with llama.cpp's shared libraries")
	flags.Func("model", "GGUF `file`; may be given several times (default: $DORMOUSE_LLAMA_MODEL and $DORMOUSE_LLAMA_SMOL)", func(path string) error {
		models = append(models, path)
		return nil
	})
	text := flags.String("text", "runtimes/llamacpp/testdata/opticks.txt", "text `file`")
	flags.IntVar(&s.prompt, "prompt", 1536, "store the first `N` tokens of the text")
	flags.IntVar(&s.follow, "follow", 256, "compare the predictions after the `N` tokens that follow")
	flags.IntVar(&s.threads, "threads", runtime.GOMAXPROCS(0), "`N` threads")
	rows := flags.String("rows", "", "measure only the lines of the table whose first column matches this `regexp`")
	flags.StringVar(&s.dir, "keep", "", "keep the stores in this `folder`; a later run with the same text restores the prompt from there instead of computing it; bytes a value are then of all that is kept there")
	flags.Parse(args) // ends the program if they are wrong
	for _, name := range []string{"DORMOUSE_LLAMA_MODEL", "DORMOUSE_LLAMA_SMOL"} {
		if path := os.Getenv(name); path != "" && !given(flags, "model") {
			models = append(models, path)
		}
	}
	switch {
	case *lib == "" || len(models) == 0:
		return errors.New("no libraries or no model; run: bash tests/llama/fetch.sh && . .cache/llama/env.sh")
	case s.prompt < 2*otherA || s.follow < teacherBatch || s.threads < 1 || s.threads > 512:
		return fmt.Errorf("-prompt %d -follow %d -threads %d: at least %d, %d and 1", s.prompt, s.follow, s.threads, 2*otherA, teacherBatch)
	}
	b, err := os.ReadFile(*text)
	if err != nil {
		return err
	}
	s.text = string(b)
	if s.rows, err = regexp.Compile(*rows); err != nil {
		return err
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "quality"); err != nil {
			return err
		}
		defer os.RemoveAll(s.dir)
	}
	l, err := llama.Load(*lib)
	if err != nil {
		return err
	}
	var lines []line
	for _, path := range models {
		measured, err := s.measure(l, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		lines = append(lines, measured...)
	}
	print(lines)
	fmt.Printf("\nllama.cpp %s, f16 cache, %d tokens stored and restored, %d predictions compared, batches of %d, %d threads, %s\n",
		l.Version(), s.prompt, s.follow, batch, s.threads, runtime.GOARCH)
	return nil
}

func given(flags *flag.FlagSet, name string) (found bool) {
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// line is what was measured of one model with rows of one kind.
type line struct {
	model, rows string
	bytes       float64 // a value; 0: nothing was stored
	like        logits.Likeness
}

// print writes a table with a line for each kind of rows and two columns for each model.
func print(lines []line) {
	var models, rows []string
	for _, l := range lines {
		if !slices.Contains(models, l.model) {
			models = append(models, l.model)
		}
		if !slices.Contains(rows, l.rows) {
			rows = append(rows, l.rows)
		}
	}
	head, rule := "| rows | bytes a value |", "| --- | --- |"
	for _, m := range models {
		head += fmt.Sprintf(" %s: mean KL (worst), nats | same likeliest token |", m)
		rule += " --- | --- |"
	}
	fmt.Printf("%s\n%s\n", head, rule)
	for _, kind := range rows {
		text := ""
		for _, l := range lines {
			if l.rows != kind {
				continue
			}
			if text == "" {
				text = fmt.Sprintf("| %s | ", kind)
				if l.bytes > 0 {
					text += fmt.Sprintf("%.2f", l.bytes)
				}
				text += " |"
			}
			text += fmt.Sprintf(" %.4f (%.3f) | %.1f %% |", l.like.MeanKL, l.like.WorstKL, 100*l.like.Agreement())
		}
		fmt.Println(text)
	}
}

// measure compares what one model predicts, with rows of every kind.
func (s setting) measure(lib *llama.Lib, path string) (lines []line, err error) {
	ctx := context.Background()
	api, err := llamacpp.Bind(lib.Lookup)
	if err != nil {
		return nil, err
	}
	m, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	tokens, err := m.Tokenize(s.text, true)
	if err != nil {
		return nil, err
	}
	if len(tokens) < s.prompt+s.follow {
		return nil, fmt.Errorf("the text has %d tokens, at least %d are needed", len(tokens), s.prompt+s.follow)
	}
	tokens = tokens[:s.prompt+s.follow]
	prompt := kv.Tokens(tokens[:s.prompt]...)
	options := llama.ContextOptions{Tokens: len(tokens) + teacherBatch, Batch: batch, MicroBatch: batch, Threads: s.threads, FullWindow: true}
	open := func() (*llama.Context, error) { return m.NewContext(options) }
	attach := func(store *db.Store, c *llama.Context) (*llamacpp.Session, error) {
		return llamacpp.Attach(ctx, store, api, c.Pointer(), llamacpp.Options{Decode: c.Decode, Logger: slog.New(slog.DiscardHandler),
			Identity: llamacpp.Identity{Path: path, Memo: filepath.Join(s.dir, "memo")}})
	}
	alive, err := open()
	if err != nil {
		return nil, err
	}
	defer alive.Close()
	codecs := []quant.Codec{quant.Raw, quant.ByteSplit, quant.Q8_0, quant.Q4R} // Raw first: it has the very rows of an earlier run
	var stores []*db.Store
	defer func() {
		for _, store := range stores {
			err = errors.Join(err, store.Close())
		}
	}()
	var bytes []float64
	for _, codec := range codecs {
		store, err := db.Open(ctx, filepath.Join(s.dir, filepath.Base(path), codec.String()), db.Options{Codec: codec, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		stores = append(stores, store)
		session, err := attach(store, alive)
		if err != nil {
			return nil, err
		}
		if codec == quant.Raw {
			if err := s.compute(ctx, session, alive, tokens); err != nil {
				return nil, err
			}
		}
		if _, err := session.Save(ctx, prompt, 0); err != nil {
			return nil, err
		}
		stats, err := store.Stats()
		if err != nil {
			return nil, err
		}
		values := 0
		for _, t := range session.Model().Descriptor().Tensors {
			rows := s.prompt
			if g := session.Model().Descriptor().Groups[t.Group]; g.Kind == kv.Window {
				rows = min(rows, g.Window+1) // what llama.cpp hands out of a window
			}
			values += t.Width * rows
		}
		bytes = append(bytes, float64(stats.LiveBytes)/float64(values))
	}
	want, err := s.predict(alive, tokens)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(path), ".gguf")
	add := func(rows string, bytes float64, l logits.Likeness) {
		lines = append(lines, line{name, rows, bytes, l})
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, rows, l)
	}
	for i, codec := range codecs {
		rows := "`" + codec.String() + "`, stored and restored"
		if !s.rows.MatchString(rows) {
			continue
		}
		c, err := open()
		if err != nil {
			return nil, err
		}
		session, err := attach(stores[i], c)
		if err != nil {
			return nil, err
		}
		got, err := session.Restore(ctx, kv.Tokens(tokens...), 0)
		if err != nil || got.Tokens != s.prompt {
			return nil, fmt.Errorf("restored %d tokens of %d: %v %w", got.Tokens, s.prompt, got.Reason, err)
		}
		after, err := s.predict(c, tokens)
		if err != nil {
			return nil, err
		}
		c.Close()
		add(rows, bytes[i], logits.Compare(want, after))
	}
	predictOf := func(c *llama.Context, n int) (logits.Likeness, error) {
		defer c.Close()
		for i := 0; i < s.prompt; i += n {
			if err := c.Decode(tokens[i:min(i+n, s.prompt)], i, 0); err != nil {
				return logits.Likeness{}, err
			}
		}
		after, err := s.predict(c, tokens)
		return logits.Compare(want, after), err
	}
	for _, cache := range caches {
		rows := "nothing stored, llama.cpp's own cache of " + cache.name
		if !s.rows.MatchString(rows) {
			continue
		}
		o := options
		o.CacheK, o.CacheV, o.FlashAttention = &cache.k, &cache.v, &flash
		c, err := m.NewContext(o)
		if err != nil {
			return nil, err
		}
		like, err := predictOf(c, batch)
		if err != nil {
			return nil, err
		}
		add(rows, cache.bytes, like)
	}
	for _, n := range []int{otherA, otherB} {
		rows := fmt.Sprintf("nothing stored, batches of %d instead of %d", n, batch)
		if !s.rows.MatchString(rows) {
			continue
		}
		c, err := open()
		if err != nil {
			return nil, err
		}
		like, err := predictOf(c, n)
		if err != nil {
			return nil, err
		}
		add(rows, 0, like)
	}
	return lines, nil
}

// compute evaluates the prompt, unless an earlier run has stored the very rows: then these are restored.
func (s setting) compute(ctx context.Context, session *llamacpp.Session, c *llama.Context, tokens []kv.Token) error {
	got, err := session.Restore(ctx, kv.Tokens(tokens...), 0)
	if err != nil || got.Tokens == s.prompt {
		return err
	}
	c.Clear()
	for i := 0; i < s.prompt; i += batch {
		if err := c.Decode(tokens[i:min(i+batch, s.prompt)], i, 0); err != nil {
			return err
		}
	}
	return nil
}

// predict evaluates the text behind the prompt and returns the logits after each token.
func (s setting) predict(c *llama.Context, tokens []kv.Token) (all [][]float32, err error) {
	for from := s.prompt; from < len(tokens); from += teacherBatch {
		n := min(teacherBatch, len(tokens)-from)
		if err := c.DecodeAll(tokens[from:from+n], from, 0); err != nil {
			return nil, err
		}
		for i := range n {
			all = append(all, c.Logits(i))
		}
	}
	return all, nil
}
