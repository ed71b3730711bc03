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
	"runtime"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

const batch = 512

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "density:", err)
		os.Exit(1)
	}
}

// setting is what is measured with every model.
type setting struct {
	text, dump             string
	tokens, block, threads int
	rounds                 int
}

func run(args []string) error {
	var models []string
	var s setting
	flags := flag.NewFlagSet("density", flag.ExitOnError)
	lib := flags.String("lib", os.Getenv("DORMOUSE_LLAMA_LIB"), "`folder` with llama.cpp's shared libraries")
	flags.Func("model", "GGUF `file`; may be given several times (default: $DORMOUSE_LLAMA_MODEL and $DORMOUSE_LLAMA_SMOL)", func(path string) error {
		models = append(models, path)
		return nil
	})
	text := flags.String("text", "runtimes/llamacpp/testdata/opticks.txt", "text `file`")
	flags.IntVar(&s.tokens, "tokens", 2000, "evaluate the first `N` tokens of the text, as many as fill whole blocks")
	flags.IntVar(&s.block, "block", 64, "`tokens` a block, a power of two from 16 to 512")
	flags.IntVar(&s.rounds, "rounds", 7, "restore everything `N` times in turns, and take the median")
	flags.IntVar(&s.threads, "threads", runtime.GOMAXPROCS(0), "`N` threads for the model")
	flags.StringVar(&s.dump, "dump", "", "write the rows to this `folder`, too, a file a tensor")
	flags.Parse(args) // ends the program if they are wrong
	if len(models) == 0 {
		for _, name := range []string{"DORMOUSE_LLAMA_MODEL", "DORMOUSE_LLAMA_SMOL"} {
			if path := os.Getenv(name); path != "" {
				models = append(models, path)
			}
		}
	}
	switch {
	case *lib == "" || len(models) == 0:
		return errors.New("no libraries or no model; run: bash tests/llama/fetch.sh && . .cache/llama/env.sh")
	case s.block < kv.MinBlockTokens || s.block > kv.MaxBlockTokens || s.block&(s.block-1) != 0 || s.tokens < s.block || s.rounds < 1 || s.threads < 1:
		return fmt.Errorf("-tokens %d -block %d -rounds %d -threads %d: a block is a power of two from %d to %d, and of the others at least one",
			s.tokens, s.block, s.rounds, s.threads, kv.MinBlockTokens, kv.MaxBlockTokens)
	}
	b, err := os.ReadFile(*text)
	if err != nil {
		return err
	}
	s.text = string(b)
	l, err := llama.Load(*lib)
	if err != nil {
		return err
	}
	all, err := compressors()
	if err != nil {
		return err
	}
	printHead(all)
	for _, path := range models {
		planes, tokens, err := s.rows(l, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".gguf")
		if err := s.write(name, planes); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d tokens, %d planes\n", name, tokens, len(planes))
		for _, kind := range []struct {
			role  kv.Role
			codec quant.Codec
		}{{kv.RoleK, quant.Q8_0}, {kv.RoleV, quant.Q8_0}, {kv.RoleV, quant.Q4R}} {
			set, err := encode(planes, kind.role, kind.codec)
			if err != nil {
				return err
			}
			lines, err := set.measure(all, s.rounds)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			printLines(fmt.Sprintf("%s, %s, `%s`", name, kind.role, kind.codec), lines)
		}
	}
	fmt.Printf("\nllama.cpp %s, blocks of %d tokens, median of %d rounds, one processor, kernel %s, %s\n", l.Version(), s.block, s.rounds, quant.Kernel(), runtime.GOARCH)
	return nil
}

// rows evaluates the text, stores what the model computed, and returns it as it is stored.
func (s setting) rows(lib *llama.Lib, path string) (planes []plane, n int, err error) {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	dir, err := os.MkdirTemp("", "density")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	api, err := llamacpp.Bind(lib.Lookup)
	if err != nil {
		return nil, 0, err
	}
	m, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return nil, 0, err
	}
	defer m.Close()
	tokens, err := m.Tokenize(s.text, true)
	if err != nil {
		return nil, 0, err
	}
	n = min(len(tokens), s.tokens) / s.block * s.block
	if n == 0 {
		return nil, 0, fmt.Errorf("the text has %d tokens, fewer than a block", len(tokens))
	}
	c, err := m.NewContext(llama.ContextOptions{Tokens: n + batch, Batch: batch, MicroBatch: batch, Threads: s.threads, FullWindow: true})
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	for i := 0; i < n; i += batch {
		if err := c.Decode(tokens[i:min(i+batch, n)], i, 0); err != nil {
			return nil, 0, err
		}
	}
	store, err := db.Open(ctx, filepath.Join(dir, "store"), db.Options{Codec: quant.Raw, Logger: quiet})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	session, err := llamacpp.Attach(ctx, store, api, c.Pointer(), llamacpp.Options{Decode: c.Decode, Logger: quiet, RowsOnly: true, BlockTokens: s.block,
		Identity: llamacpp.Identity{Path: path, Memo: filepath.Join(dir, "memo")}})
	if err != nil {
		return nil, 0, err
	}
	prompt := kv.Tokens(tokens[:n]...)
	if _, err := session.Save(ctx, prompt, 0); err != nil {
		return nil, 0, err
	}
	match, err := session.Model().Match(ctx, prompt, db.MatchOptions{})
	if err != nil {
		return nil, 0, err
	}
	defer match.Close()
	tensors := session.Model().Descriptor().Tensors
	err = match.View(ctx, func(p db.StoredPlane) error {
		t := tensors[p.Tensor]
		planes = append(planes, plane{t, p.Tensor, p.Rows, append([]byte(nil), p.Bytes[:p.Rows*t.RowBytes()]...)})
		return nil
	})
	if err == nil && match.Tokens() != n {
		err = fmt.Errorf("found %d tokens of %d", match.Tokens(), n)
	}
	return planes, n, err
}

// write is the dump.
func (s setting) write(model string, planes []plane) error {
	if s.dump == "" {
		return nil
	}
	if err := os.MkdirAll(s.dump, 0o755); err != nil {
		return err
	}
	files := map[int][]byte{}
	for _, p := range planes {
		files[p.index] = append(files[p.index], p.mem...)
	}
	for _, p := range planes {
		b, ok := files[p.index]
		if !ok {
			continue
		}
		delete(files, p.index)
		name := fmt.Sprintf("%s-%03d-%s-%sx%d", model, p.index, p.tensor.Role, p.tensor.DType, p.tensor.Width)
		if err := os.WriteFile(filepath.Join(s.dump, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
