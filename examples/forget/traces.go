package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/examples/talk"
	"github.com/dormousekv/dormouse/kv"
)

// traces are byte sequences that only one person's part of a prompt leaves in files.
type traces struct{ tokens, rows [][]byte }

// newTraces takes them from behind the prompt's ScopeStart. What the other one has, too, is no trace: some words, and the first
// layer's rows of them, which depend on nothing else.
func newTraces(p kv.Prompt, said talk.Turn, other kv.Prompt, saidOther talk.Turn) traces {
	const together = 4
	words := func(tokens []kv.Token) (b []byte) {
		for _, id := range tokens {
			b = binary.LittleEndian.AppendUint32(b, uint32(id)) // as records have them
		}
		return b
	}
	var t traces
	theirs := words(other.Tokens)
	for i := p.ScopeStart; i+together <= len(p.Tokens); i++ {
		if piece := words(p.Tokens[i : i+together]); !bytes.Contains(theirs, piece) {
			t.tokens = append(t.tokens, piece)
		}
	}
	for layer, tensor := range said.Rows {
		mem, theirs := tensor.Pieces[0].Mem, saidOther.Rows[layer].Pieces[0].Mem
		for i := p.ScopeStart; i < len(p.Tokens); i++ {
			if piece := mem[i*said.RowBytes:][:32]; !bytes.Contains(theirs, piece) {
				t.rows = append(t.rows, piece)
			}
		}
	}
	return t
}

// found is how many of the traces are in the files.
type found struct {
	files        int
	bytes        int64
	tokens, rows int
}

func (f found) String() string {
	return fmt.Sprintf("%d pieces of her text and %d of her rows are in the files (%d files, %d KiB)", f.tokens, f.rows, f.files, f.bytes>>10)
}

// find reads every byte of every file in dir. Pieces of the text that lie in two blocks of 16 tokens are in no file in one piece.
func (t traces) find(dir string) (f found, err error) {
	var all [][]byte
	err = filepath.WalkDir(dir, func(path string, x fs.DirEntry, err error) error {
		if err != nil || x.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all = append(all, b)
		f.files++
		f.bytes += int64(len(b))
		return err
	})
	count := func(pieces [][]byte) (n int) {
		for _, piece := range pieces {
			for _, b := range all {
				if bytes.Contains(b, piece) {
					n++
					break
				}
			}
		}
		return n
	}
	f.tokens, f.rows = count(t.tokens), count(t.rows)
	return f, err
}
