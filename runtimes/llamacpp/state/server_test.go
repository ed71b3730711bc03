package state

import (
	"bytes"
	"slices"
	"testing"
)

// What real servers save is understood, and the same to the last byte when it is built again, for each kind of cache.
func TestFilesOfServers(t *testing.T) {
	gemma, smol := "DORMOUSE_LLAMA_MODEL", "DORMOUSE_LLAMA_SMOL"
	for _, kind := range []struct {
		name, model string
		sections    int
		server      string
		flags       []string
		long        bool // not in short runs
	}{
		{name: "one section", model: smol, sections: 1},
		{name: "window", model: gemma, sections: 2},
		{name: "window, q8_0", model: gemma, sections: 2, flags: []string{"-ctk", "q8_0", "-ctv", "q8_0"}, long: true},
		{name: "window, transposed", model: gemma, sections: 2, flags: []string{"--flash-attn", "off"}, long: true},
		{name: "window, streams", model: gemma, sections: 2, flags: []string{"--no-kv-unified"}, long: true},
		{name: "window, kept whole", model: gemma, sections: 2, flags: []string{"--swa-full"}, long: true},
		{name: "q8_0", model: smol, sections: 1, flags: []string{"-ctk", "q8_0", "-ctv", "q8_0"}, long: true},
		{name: "transposed", model: smol, sections: 1, flags: []string{"--flash-attn", "off"}, long: true},
		{name: "streams", model: smol, sections: 1, flags: []string{"--no-kv-unified"}, long: true},
		{name: "one section, other server", model: smol, sections: 1, server: "DORMOUSE_LLAMA_SERVER_OTHER", long: true},
		{name: "window, other server", model: gemma, sections: 2, server: "DORMOUSE_LLAMA_SERVER_OTHER", long: true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			if kind.long && testing.Short() {
				t.Skip("SKIPPED: a short run asks one server for one file of each kind of model")
			}
			if kind.server == "" {
				kind.server = "DORMOUSE_LLAMA_SERVER"
			}
			s := startServer(t, fetched(t, kind.server, "server.sh"), fetched(t, kind.model, "fetch.sh"), kind.flags...)
			n := 40
			if kind.sections == 2 {
				n = 560 // longer than the window: the server keeps checkpoints
			}
			p := s.text(n)
			s.complete(1, p)
			b := s.save(1)
			f, err := LearnFile(b, kind.sections)
			if err != nil {
				t.Fatal(err)
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
			if !slices.Equal(file.Tokens[:n], p) || file.State.Sections[0].Count() != len(file.Tokens) || file.State.Sequence != 1 {
				t.Errorf("%d tokens, %d cells, slot %d", len(file.Tokens), file.State.Sections[0].Count(), file.State.Sequence)
			}
			t.Logf("version %d, %d bytes, %d tokens, %d checkpoints", f.Version, len(b), len(file.Tokens), len(file.Checkpoints))
			// An empty slot has a file, too.
			s.slot(1, "erase")
			empty, err := f.Parse(s.save(1))
			if err != nil || len(empty.Tokens) != 0 {
				t.Errorf("of an empty slot: %+v, %v", empty, err)
			}
		})
	}
}

// The rule that stands with the format: which rows a file must have for its tokens to be used. A model without windows needs all
// its rows, Gemma 3 (a window of 512) the last 511, and below 511 tokens a checkpoint. What a server goes on with is what it
// says without us.
func TestServersReuse(t *testing.T) {
	program := fetched(t, "DORMOUSE_LLAMA_SERVER", "server.sh")
	t.Run("no window", func(t *testing.T) {
		s := startServer(t, program, fetched(t, "DORMOUSE_LLAMA_SMOL", "fetch.sh"))
		cold, long, f, file := saved(t, s, 60, 1)
		prefix := &File{Tokens: long[:50], State: &State{Sequence: 1, Sections: []Section{{Cells: Span(0, 0, 50)}}}}
		built, b := f.Build(nil, prefix)
		fillRows(t, &built.State.Sections[0], &file.State.Sections[0])
		reuses(t, s, b, long, 50, cold)
	})
	t.Run("window", func(t *testing.T) {
		s := startServer(t, program, fetched(t, "DORMOUSE_LLAMA_MODEL", "fetch.sh"))
		cold, long, f, file := saved(t, s, 560, 2)
		for _, c := range []struct{ n, rows, checkpoint, want int }{
			{n: 555, rows: 511, want: 555},
			{n: 555, rows: 510, want: 0},
			{n: 511, rows: 511, want: 511},
			{n: 40, rows: 40, want: 0},
			{n: 40, rows: 40, checkpoint: 40, want: 39},
			{n: 40, rows: 1, checkpoint: 40, want: 39},
		} {
			if c.want == 0 && testing.Short() {
				continue // all is evaluated
			}
			prefix := &File{Tokens: long[:c.n], State: &State{Sequence: 1, Sections: []Section{
				{Cells: Span(0, 0, c.n)}, {Cells: Span(0, c.n-c.rows, c.rows)}}}}
			if c.checkpoint > 0 {
				prefix.Trailer = true
				prefix.Checkpoints = []Checkpoint{{Tokens: int64(c.n), PosMin: int32(c.n - c.checkpoint), PosMax: int32(c.n - 1),
					State: &State{Sequence: 1, Sections: []Section{{Cells: Span(0, c.n-c.checkpoint, c.checkpoint)}}}}}
			}
			built, b := f.Build(nil, prefix)
			windows := []*Section{&file.State.Sections[1]}
			for i := range file.Checkpoints {
				windows = append(windows, &file.Checkpoints[i].State.Sections[0])
			}
			fillRows(t, &built.State.Sections[0], &file.State.Sections[0])
			fillRows(t, &built.State.Sections[1], windows...)
			for i := range built.Checkpoints {
				fillRows(t, &built.Checkpoints[i].State.Sections[0], windows...)
			}
			t.Logf("%d tokens, %d rows of the window, a checkpoint of %d", c.n, c.rows, c.checkpoint)
			prompt, next := long[:c.n+5], cold
			if len(prompt) < len(long) {
				s.slot(1, "erase")
				_, next = s.complete(1, prompt)
			}
			reuses(t, s, b, prompt, c.want, next)
		}
	})
}

// saved is a prompt of n tokens, the token after it, and what the server saves of it.
func saved(t *testing.T, s *server, n, sections int) (next int32, prompt []int32, f FileFormat, file *File) {
	t.Helper()
	prompt = s.text(n)
	_, next = s.complete(0, prompt)
	b := s.save(0)
	f, err := LearnFile(b, sections)
	if err != nil {
		t.Fatal(err)
	}
	if file, err = f.Parse(b); err != nil {
		t.Fatal(err)
	}
	return next, prompt, f, file
}

// reuses restores a file of a prefix of the prompt and goes on with the rest of it.
func reuses(t *testing.T, s *server, b []byte, prompt []int32, want int, next int32) {
	t.Helper()
	s.restore(1, b)
	reused, got := s.complete(1, prompt)
	if reused != want {
		t.Errorf("%d tokens of %d are reused, want %d", reused, len(prompt), want)
	}
	if got != next {
		t.Errorf("it goes on with %d, a server without us with %d", got, next)
	}
}
