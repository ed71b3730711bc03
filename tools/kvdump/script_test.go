package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kvdump": main,
		"hold":   hold,
	})
}

// hold opens a store until its input ends.
func hold() {
	s, err := db.Open(context.Background(), os.Args[1], db.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.WriteFile("held", []byte(fmt.Sprint(os.Getpid())), 0o600)
	buf := make([]byte, 1)
	for _, err := os.Stdin.Read(buf); err == nil; _, err = os.Stdin.Read(buf) {
		if _, gone := os.Stat("stop"); gone == nil {
			break
		}
	}
	for {
		if _, err := os.Stat("stop"); err == nil {
			break
		}
	}
	s.Close()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mkstore": mkstore,
			"flip":    flip,
			"hash":    hashTree,
			"waitfor": waitFor,
		},
	})
}

// mkstore DIR makes a store with two versions of a model, two scopes, a pin, and a deletion.
func mkstore(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	s, err := db.Open(ctx, ts.MkAbs(args[0]), db.Options{CheckpointInterval: -1, Logger: slog.New(slog.DiscardHandler)})
	ts.Check(err)
	d := kv.Descriptor{Name: "tiny", Architecture: "test", BlockTokens: 16}
	for layer := range 2 {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: role, DType: kv.F16, Width: 32})
		}
	}
	old, err := s.Model(ctx, d)
	ts.Check(err)
	put := func(m *db.Model, n, from int, scope string, scopeStart int) kv.Prompt {
		p := kv.Prompt{Scope: scope, ScopeStart: scopeStart}
		for i := range n {
			p.Tokens = append(p.Tokens, kv.Token(i))
			if i >= from {
				p.Tokens[i] += 1000
			}
		}
		rows := make(kv.Rows, len(d.Tensors))
		for i := range rows {
			mem := bytes.Repeat([]byte{byte(i + 1), 0x3c}, n*32)
			rows[i] = kv.Packed(0, n, mem)
		}
		_, err := m.Put(ctx, p, rows, db.PutOptions{})
		ts.Check(err)
		return p
	}
	put(old, 100, 100, "", 0)
	d.RoPE.Base = 500000
	m, err := s.Model(ctx, d)
	ts.Check(err)
	p := put(m, 64, 64, "", 0)
	put(m, 90, 64, "alice", 64)
	put(m, 80, 64, "bob", 64)
	ts.Check(m.SetRef(ctx, "system", p, db.RefOptions{Pinned: true, Meta: []byte("x")}))
	_, err = s.DeleteScope(ctx, "bob")
	ts.Check(err)
	ts.Check(s.Close())
}

// flip FILE-PATTERN OFFSET changes one bit.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(names) == 0 {
		ts.Fatalf("no file %s", args[0])
	}
	b, err := os.ReadFile(names[0])
	ts.Check(err)
	var at int
	fmt.Sscan(args[1], &at)
	b[at] ^= 4
	ts.Check(os.WriteFile(names[0], b, 0o600))
}

// hash DIR FILE writes the hash of every file of DIR into FILE.
func hashTree(ts *testscript.TestScript, _ bool, args []string) {
	var out bytes.Buffer
	dir := ts.MkAbs(args[0])
	ts.Check(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&out, "%x %s\n", sha256.Sum256(b), rel)
		return err
	}))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), out.Bytes(), 0o600))
}

func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
}
