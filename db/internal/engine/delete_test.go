package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// canary is a prompt whose last tokens and rows are like no other bytes in a store.
type canary struct {
	d       kv.Descriptor
	p       kv.Prompt
	start   int // the secret begins here
	needles map[[16]byte]string
	first   [1 << 16]bool // by the first two bytes of a needle
}

const canaryStart = 96 // six whole blocks of what others may know

func newCanary(d kv.Descriptor, scope string) *canary {
	c := &canary{d: d, start: canaryStart, needles: map[[16]byte]string{}}
	c.p = kv.Prompt{Tokens: crashtest.Tokens(1, c.start), Scope: scope, ScopeStart: c.start}
	for i := range 150 {
		c.p.Tokens = append(c.p.Tokens, kv.Token(0x5AC3_1D00+i*7919))
	}
	for i := c.start; i+4 <= len(c.p.Tokens); i++ {
		var b []byte
		for _, tok := range c.p.Tokens[i : i+4] {
			b = binary.LittleEndian.AppendUint32(b, uint32(tok))
		}
		c.add(b, fmt.Sprintf("tokens from %d on", i))
	}
	for ti, tensor := range d.Tensors {
		for pos := c.start; pos < len(c.p.Tokens); pos++ {
			row := storetest.Truth(d, &c.p, ti, pos)
			for at := 0; at+16 <= tensor.RowBytes(); at += 16 {
				c.add(row[at:at+16], fmt.Sprintf("tensor %d row %d", ti, pos))
			}
		}
	}
	return c
}

func (c *canary) add(b []byte, what string) {
	c.needles[[16]byte(b)] = what
	c.first[binary.LittleEndian.Uint16(b)] = true
}

// grep names the places in the files of dir where the secret shows.
func (c *canary) grep(t testing.TB, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := 0; i+16 <= len(b); i++ {
			if !c.first[binary.LittleEndian.Uint16(b[i:])] {
				continue
			}
			if what, ok := c.needles[[16]byte(b[i:i+16])]; ok {
				found = append(found, fmt.Sprintf("%s at %d: %s", filepath.Base(path), i, what))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Needles are what the files hold: a store without deletion shows tokens and rows both.
func TestCanaryIsFound(t *testing.T) {
	c := newCanary(crashtest.Plain(), "")
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	storetest.Put(t, storetest.Model(t, s, c.d), c.p)
	var toks, rows bool
	for _, f := range c.grep(t, s.Dir()) {
		toks = toks || bytes.Contains([]byte(f), []byte("tokens"))
		rows = rows || bytes.Contains([]byte(f), []byte("tensor"))
	}
	if !toks || !rows {
		t.Errorf("tokens found: %t, rows found: %t", toks, rows)
	}
}
