//go:build linux && !android

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// rowsFlag, as the first argument, makes this program the door of Go to a store's rows. rows_times.c, rows_times.py and RowsDoor.java know the same shape.
const rowsFlag = "-rows-door"

// The cache of a model of some 600 million parameters: 2,048 tokens, 28 MiB.
const (
	rowsTokens = 2048
	rowsLayers = 28
	rowsWidth  = 128
)

func rowsModel() kv.Descriptor {
	d := kv.Descriptor{Name: "rows", Architecture: "rows", Weights: kv.Hash{15: 1}, Tokenizer: kv.Hash{15: 2}, RoPE: kv.RoPE{Type: "none"}}
	for layer := range rowsLayers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: role, DType: kv.F16, Width: rowsWidth})
		}
	}
	return d
}

// rowsMemory is one stretch, as runtimes have it, and the rows of each tensor in it.
func rowsMemory() (kv.Rows, []byte) {
	const each = rowsTokens * 2 * rowsWidth
	mem := make([]byte, 2*rowsLayers*each)
	var rows kv.Rows
	for at := 0; at < len(mem); at += each {
		rows = append(rows, kv.TensorRows{Pieces: []kv.Piece{{Mem: mem[at : at+each], Count: rowsTokens}}})
	}
	return rows, mem
}

func rowsPrompt() kv.Prompt {
	tokens := make([]kv.Token, rowsTokens)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	return kv.Tokens(tokens...)
}

func openRows(ctx context.Context, dir string, o db.Options) (*db.Store, *db.Model, error) {
	o.Logger = slog.New(slog.DiscardHandler)
	store, err := db.Open(ctx, dir, o)
	if err != nil {
		return nil, nil, err
	}
	m, err := store.Register(ctx, rowsModel())
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, m.Model, nil
}

// runRows compares restores of rows into memory of the runtime's own, in Go and through other doors.
func runRows(others []command, rounds int, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "dormouse-rows-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, codec := range []quant.Codec{quant.Raw, quant.Q8_0} {
		at := filepath.Join(dir, codec.String())
		store, m, err := openRows(context.Background(), at, db.Options{Codec: codec})
		if err != nil {
			return err
		}
		rows, mem := rowsMemory()
		random := rand.New(rand.NewPCG(1, 2))
		for i := range mem {
			mem[i] = byte(random.Uint32())
			if i%2 == 1 {
				mem[i] = 0x3c // values between 1 and 2
			}
		}
		_, err = m.Put(context.Background(), rowsPrompt(), rows, db.PutOptions{})
		if err = errors.Join(err, store.Close()); err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s: ", codec)
		if err := byTurns(out, rounds, []string{at}, append([]command{{"Go", []string{self, rowsFlag}}}, others...)); err != nil {
			return err
		}
	}
	return nil
}

// rowsDoor is package db, asked by lines.
func rowsDoor(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	rows, mem := rowsMemory()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		start := time.Now()
		store, m, err := openRows(ctx, dir, db.Options{})
		if err != nil {
			return err
		}
		t := turn{Open: since(start)}
		for range 5 {
			begin := time.Now()
			x, err := m.Match(ctx, rowsPrompt(), db.MatchOptions{})
			if err != nil {
				return errors.Join(err, store.Close())
			}
			got, err := x.Restore(ctx, rows)
			t.Reused = got.Tokens
			t.Restore = append(t.Restore, since(begin))
			if len(t.Restore) == 1 {
				t.First = since(start)
			}
			if err := errors.Join(err, x.Close()); err != nil {
				return errors.Join(err, store.Close())
			}
		}
		for i := 0; i < len(mem); i += 4096 { // both doors restored the same
			t.Best = 31*t.Best + int32(mem[i])
		}
		if err := errors.Join(store.Close(), json.NewEncoder(out).Encode(t)); err != nil {
			return err
		}
	}
	return nil
}

// command is a door by its name.
type command struct {
	name string
	args []string
}

// byTurns asks doors, after one another, with arguments that are common to them, and prints the table. A door without a command is left out.
func byTurns(out io.Writer, rounds int, common []string, commands []command) error {
	var doors []*process
	for _, c := range commands {
		if len(c.args) == 0 {
			fmt.Fprintf(out, "SKIPPED: no command for the door of %s\n", c.name)
			continue
		}
		p, err := start(c.name, append(c.args, common...))
		if err != nil {
			return err
		}
		defer p.end()
		doors = append(doors, p)
	}
	for i := range rounds + 1 { // the first one warms up
		for k := range doors {
			if err := doors[(i+k)%len(doors)].turn(i > 0); err != nil {
				return err
			}
		}
	}
	return report(out, doors)
}
