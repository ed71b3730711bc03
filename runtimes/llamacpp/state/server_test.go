package state

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

const (
	newServer   = "DORMOUSE_LLAMA_SERVER"
	otherServer = "DORMOUSE_LLAMA_SERVER_OTHER"
	gemma       = "DORMOUSE_LLAMA_MODEL"
	smol        = "DORMOUSE_LLAMA_SMOL"

	tinyWindow = 40
)

// What real servers save is understood, and the same to the last byte when it is built again, for each kind of cache.
func TestFilesOfServers(t *testing.T) {
	window := ggufgen.Gemma3(1, 6, 64, tinyWindow)
	plain := ggufgen.LLaMA(1, 2, 64)
	for _, kind := range []struct {
		name     string
		sections int
		model    string // an environment variable
		random   []byte // or a model
		server   string
		flags    []string
	}{
		{name: "trained", sections: 1, model: smol, server: newServer},
		{name: "trained, window", sections: 2, model: gemma, server: newServer},
		{name: "trained, window, other server", sections: 2, model: gemma, server: otherServer},
		{name: "window", sections: 2, random: window, server: newServer},
		{name: "window, q8_0", sections: 2, random: window, server: newServer, flags: []string{"-ctk", "q8_0", "-ctv", "q8_0"}},
		{name: "window, transposed", sections: 2, random: window, server: newServer, flags: []string{"--flash-attn", "off"}},
		{name: "window, streams", sections: 2, random: window, server: newServer, flags: []string{"--no-kv-unified"}},
		{name: "window, kept whole", sections: 2, random: window, server: newServer, flags: []string{"--swa-full"}},
		{name: "q8_0", sections: 1, random: plain, server: newServer, flags: []string{"-ctk", "q8_0", "-ctv", "q8_0"}},
		{name: "transposed", sections: 1, random: plain, server: newServer, flags: []string{"--flash-attn", "off"}},
		{name: "streams", sections: 1, random: plain, server: newServer, flags: []string{"--no-kv-unified"}},
		{name: "other server", sections: 1, random: plain, server: otherServer},
		{name: "latents", sections: 1, random: ggufgen.DeepSeek2(1, 2), server: newServer},
		{name: "M-RoPE", sections: 1, random: ggufgen.Qwen2VL(1, 2), server: newServer},
		{name: "recurrent", sections: 0, random: ggufgen.Mamba(1, 2), server: newServer},
		{name: "hybrid", sections: 1, random: ggufgen.Jamba(1, 4), server: newServer},
		{name: "hybrid, streams", sections: 1, random: ggufgen.Jamba(1, 4), server: newServer, flags: []string{"--no-kv-unified"}},
		{name: "hybrid, other server", sections: 1, random: ggufgen.LFM2(1, 4), server: otherServer},
	} {
		t.Run(kind.name, func(t *testing.T) {
			if testing.Short() && kind.model != "" {
				t.Skip("SKIPPED: a short run has models of random weights only")
			}
			program := fetched(t, kind.server, "server.sh")
			model := randomModel(t, kind.random)
			if kind.model != "" {
				model = fetched(t, kind.model, "fetch.sh")
			}
			s := startServer(t, program, model, kind.flags...)
			const n = 560 // more than a batch and Gemma's window: the server keeps two checkpoints
			p := s.text(n)
			s.complete(1, p)
			b := s.save(1)
			f, err := LearnFile(b, kind.sections)
			if err != nil {
				t.Fatal(err)
			}
			for sections := range maxSections + 1 {
				if _, err := LearnFile(b, sections); err == nil && sections != kind.sections {
					t.Errorf("it can be read as one with %d sections, too", sections)
				}
			}
			file, err := f.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			built, again := f.Build(nil, file)
			built.copyRows(file)
			if !bytes.Equal(b, again) {
				t.Error("built again it differs")
			}
			if !slices.Equal(file.Tokens[:n], p) {
				t.Error("its tokens are not those of the prompt")
			}
			if kind.sections > 0 && (file.State.Sections[0].Count() != len(file.Tokens) || file.State.Sequence != 1) {
				t.Errorf("%d tokens, %d cells, slot %d", len(file.Tokens), file.State.Sections[0].Count(), file.State.Sequence)
			}
			t.Logf("version %d, %d bytes, %d tokens, %d checkpoints", f.Version, len(b), len(file.Tokens), len(file.Checkpoints))
			s.slot(1, "erase")
			empty, err := f.Parse(s.save(1))
			if err != nil || len(empty.Tokens) != 0 {
				t.Errorf("of an empty slot: %+v, %v", empty, err)
			}
		})
	}
}

func randomModel(t *testing.T, file []byte) string {
	t.Helper()
	if file == nil {
		return ""
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, ggufgen.WithText(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The rule that stands with the format: what a file must have for its tokens to be used. What a server then goes on with is what it
// says without us.
func TestServersReuse(t *testing.T) {
	program := fetched(t, newServer, "server.sh")
	t.Run("no window", func(t *testing.T) {
		s := startServer(t, program, randomModel(t, ggufgen.LLaMA(1, 2, 64)))
		s.reuses(1, reuse{n: 50, want: 50})
	})
	t.Run("window", func(t *testing.T) {
		s := startServer(t, program, randomModel(t, ggufgen.Gemma3(1, 6, 64, tinyWindow)))
		for _, c := range windowRule(tinyWindow) {
			s.reuses(2, c)
		}
	})
	t.Run("trained, window", func(t *testing.T) {
		if testing.Short() {
			t.Skip("SKIPPED: a short run has models of random weights only")
		}
		s := startServer(t, program, fetched(t, gemma, "fetch.sh"))
		for _, c := range windowRule(512) {
			s.reuses(2, c)
		}
	})
	t.Run("recurrent", func(t *testing.T) {
		s := startServer(t, program, randomModel(t, ggufgen.Mamba(1, 2)))
		s.reuses(0, reuse{n: 556, want: 556})
	})
	t.Run("hybrid", func(t *testing.T) {
		s := startServer(t, program, randomModel(t, ggufgen.Jamba(1, 4)))
		s.reuses(1, reuse{n: 556, want: 556})
	})
}

// reuse is a file of n tokens, the first of a prompt, with so many rows of the window, and one checkpoint of as many tokens and rows as there are,
// or none; and how many of its tokens a server then has.
type reuse struct{ n, rows, checkpoint, want int }

func windowRule(w int) []reuse {
	long, short := w+43, 20
	return []reuse{
		{n: long, rows: w - 1, want: long},
		{n: long, rows: w - 2, want: 0},
		{n: w - 1, rows: w - 1, want: w - 1},
		{n: short, rows: short, want: 0},
		{n: short, rows: short, checkpoint: short, want: short - 1},
		{n: short, rows: 1, checkpoint: short, want: short - 1},
	}
}

func (s *server) reuses(sections int, c reuse) {
	s.t.Helper()
	prompt := s.text(c.n + 4)
	s.slot(0, "erase")
	s.complete(0, prompt)
	b := s.save(0)
	f, err := LearnFile(b, sections)
	if err != nil {
		s.t.Fatal(err)
	}
	from, err := f.Parse(b)
	if err != nil {
		s.t.Fatal(err)
	}
	prefix := &File{Tokens: prompt[:c.n], State: &State{Sequence: 1}}
	if sections > 0 {
		prefix.State.Sections = append(prefix.State.Sections, Section{Cells: Span(0, 0, c.n)})
	}
	if sections > 1 {
		prefix.State.Sections = append(prefix.State.Sections, Section{Cells: Span(0, c.n-c.rows, c.rows)})
	}
	if c.checkpoint > 0 {
		prefix.Trailer = true
		prefix.Checkpoints = []Checkpoint{{Tokens: int64(c.checkpoint), PosMax: int32(c.checkpoint - 1),
			State: &State{Sequence: 1, Sections: []Section{{Cells: Span(0, 0, c.checkpoint)}}}}}
	}
	var windows []*Section
	for _, k := range from.Checkpoints {
		if sections > 1 {
			windows = append(windows, &k.State.Sections[0])
		} else if k.Tokens == int64(c.n) {
			prefix.Recurrent = k.Recurrent
		}
	}
	file, b := f.Build(nil, prefix)
	if sections > 0 {
		fillRows(s.t, &file.State.Sections[0], &from.State.Sections[0])
	}
	if sections > 1 {
		windows = append(windows, &from.State.Sections[1])
		fillRows(s.t, &file.State.Sections[1], windows...)
		for i := range file.Checkpoints {
			fillRows(s.t, &file.Checkpoints[i].State.Sections[0], windows...)
		}
	}
	if f.Recurrent != nil && prefix.Recurrent == nil {
		s.t.Fatalf("the server has no checkpoint at %d", c.n)
	}
	_, next := s.complete(0, prompt) // the slot has it all but the last token, or evaluates it again
	s.restore(1, b)
	reused, got := s.complete(1, prompt)
	if reused != c.want {
		s.t.Errorf("%+v: %d tokens are reused", c, reused)
	}
	if got != next {
		s.t.Errorf("%+v: it goes on with %d, a server without us with %d", c, got, next)
	}
}
