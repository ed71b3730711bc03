package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/tokenizer"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kvdump": main,
		"hold":   hold,
	})
}

// hold opens a store until the file stop is there.
func hold() {
	s, err := db.Open(context.Background(), os.Args[1], db.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.WriteFile("held", []byte(fmt.Sprint(os.Getpid())), 0o600)
	for !exists("stop") {
		time.Sleep(5 * time.Millisecond)
	}
	s.Close()
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			path, err := filepath.Abs("../../runtimes/llamacpp/testdata/stories260K-f32.gguf")
			e.Setenv("STORIES", path)
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mkstore":   mkstore,
			"mkplain":   mkplain,
			"mkworn":    mkworn,
			"mkused":    mkused,
			"mktext":    mktext,
			"mkempty":   mkempty,
			"mksession": mksession,
			"mknamed":   mknamed,
			"exits":     exits,
			"flip":      flip,
			"shorten":   shorten,
			"hash":      hashTree,
			"waitfor":   waitFor,
		},
	})
}

// tiny is a model of two layers.
func tiny() kv.Descriptor {
	d := kv.Descriptor{
		Name: "tiny", Weights: kv.HashOf("tiny"), Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: 16,
	}
	for layer := range 2 {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: role, DType: kv.F16, Width: 32})
		}
	}
	return d
}

func openStore(ts *testscript.TestScript, dir string) *db.Store { return openSized(ts, dir, 0) }

// openSized is openStore with segments of so many bytes.
func openSized(ts *testscript.TestScript, dir string, segment int64) *db.Store {
	s, err := db.Open(context.Background(), ts.MkAbs(dir), db.Options{CheckpointInterval: -1, SegmentBytes: segment, Logger: slog.New(slog.DiscardHandler)})
	ts.Check(err)
	return s
}

func getModel(ts *testscript.TestScript, s *db.Store, d kv.Descriptor) *db.Model {
	m, err := s.Register(context.Background(), d)
	ts.Check(err)
	return m.Model
}

// put stores p with n tokens: first, first + 1 and so on, and 1000 more from position from on.
func put(ts *testscript.TestScript, m *db.Model, p kv.Prompt, first, n, from int) kv.Prompt {
	for i := range n {
		p.Tokens = append(p.Tokens, kv.Token(first+i))
		if i >= from {
			p.Tokens[i] += 1000
		}
	}
	rows := make(kv.Rows, len(tiny().Tensors))
	for i := range rows {
		rows[i] = kv.Packed(0, n, bytes.Repeat([]byte{byte(i + 1), 0x3c}, n*32))
	}
	_, err := m.Put(context.Background(), p, rows, db.PutOptions{})
	ts.Check(err)
	return p
}

// mkstore DIR makes a store with two versions of a model, two scopes, a pin, and a deletion.
func mkstore(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	s := openStore(ts, args[0])
	d := tiny()
	old := getModel(ts, s, d)
	put(ts, old, kv.Prompt{}, 0, 100, 100)
	d.RoPE.Base = 500000
	m := getModel(ts, s, d)
	p := put(ts, m, kv.Prompt{}, 0, 64, 64)
	put(ts, m, kv.Prompt{Scope: "alice", ScopeStart: 64}, 0, 90, 64)
	put(ts, m, kv.Prompt{Scope: "bob", ScopeStart: 64}, 0, 80, 64)
	ts.Check(m.SetRef(ctx, "system", p, db.RefOptions{Pinned: true, Meta: []byte("x")}))
	_, err := s.DeleteScope(ctx, "bob")
	ts.Check(err)
	ts.Check(s.Close())
}

// mkplain DIR makes a store of one model with three prompts of 64 tokens: from 0 on with an image at [20, 30), from 100 on
// under an adapter, from 200 on in the scope alice, which begins at 32.
func mkplain(ts *testscript.TestScript, _ bool, args []string) {
	s := openStore(ts, args[0])
	m := getModel(ts, s, tiny())
	put(ts, m, kv.Prompt{Spans: []kv.Span{{Start: 20, Len: 10, Hash: kv.Hash{0xaa}}}}, 0, 64, 64)
	put(ts, m, kv.Prompt{Adapters: []kv.Adapter{{Hash: kv.Hash{0xbb}, Scale: 0.5}}}, 100, 64, 64)
	// The last block is put alone: the order of the records of one put is not promised, and so it is the last of its segment.
	put(ts, m, kv.Prompt{Scope: "alice", ScopeStart: 32}, 200, 48, 48)
	put(ts, m, kv.Prompt{Scope: "alice", ScopeStart: 32}, 200, 64, 64)
	ts.Check(s.Close())
}

// mkworn DIR makes a store of one model that was opened 25 times, and got four prompts of 64 tokens the first time, and one each other time.
func mkworn(ts *testscript.TestScript, _ bool, args []string) {
	for life := range 25 {
		s := openSized(ts, args[0], int64(64-life)<<20) // none goes on with the segment of one before, which is larger than it makes them
		m := getModel(ts, s, tiny())
		for i := range 1 + 3*max(0, 1-life) {
			put(ts, m, kv.Prompt{}, 10_000*life+100*i, 64, 64)
		}
		ts.Check(s.Close())
	}
}

// mkused DIR makes a store of a prompt of 64 tokens from 0 on, which goes on in the scope alice to 96 and, to 80, in bob. Two
// matches ended at 32, three at 96, and one at 80 in bob.
func mkused(ts *testscript.TestScript, _ bool, args []string) {
	s := openStore(ts, args[0])
	m := getModel(ts, s, tiny())
	alice := put(ts, m, kv.Prompt{Scope: "alice", ScopeStart: 64}, 0, 96, 96)
	bob := put(ts, m, kv.Prompt{Scope: "bob", ScopeStart: 64}, 0, 80, 80)
	for _, p := range []kv.Prompt{{Tokens: alice.Tokens[:32]}, {Tokens: alice.Tokens[:32]}, alice, alice, alice, bob} {
		x, err := m.Match(context.Background(), p, db.MatchOptions{})
		ts.Check(err)
		if x.Tokens() != len(p.Tokens) {
			ts.Fatalf("%d tokens of %d", x.Tokens(), len(p.Tokens))
		}
		ts.Check(x.Close())
	}
	ts.Check(s.Close())
}

// mktext DIR makes a store of a model with the tokenizer of $STORIES, and the tokens of a sentence.
func mktext(ts *testscript.TestScript, _ bool, args []string) {
	file, err := gguf.Open(ts.Getenv("STORIES"))
	ts.Check(err)
	t, err := tokenizer.Open(file)
	ts.Check(err)
	d := tiny()
	d.Tokenizer, err = file.MetaHash("tokenizer.")
	ts.Check(err)
	s := openStore(ts, args[0])
	p := kv.Prompt{}
	p.Tokens, err = t.Encode("Once upon a time, there was a little cat who liked to play in the garden with her friend, the big dog.")
	ts.Check(err)
	rows := make(kv.Rows, len(d.Tensors))
	for i := range rows {
		rows[i] = kv.Packed(0, len(p.Tokens), bytes.Repeat([]byte{byte(i + 1), 0x3c}, len(p.Tokens)*32))
	}
	_, err = getModel(ts, s, d).Put(context.Background(), p, rows, db.PutOptions{})
	ts.Check(err)
	ts.Check(s.Close())
}

// mkempty DIR makes a store with nothing in it.
func mkempty(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(openStore(ts, args[0]).Close())
}

// mknamed DIR makes a store of the models model-10 and model-2. The second has 11 prompts of 40 tokens in the scopes "user 1" to "user 11", each with a
// ref "turn 1" to "turn 11" on it. All go on from 32 shared tokens, the pinned ref "system".
func mknamed(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	s := openStore(ts, args[0])
	for _, name := range []string{"model-10", "model-2"} {
		d := tiny()
		d.Name, d.Weights = name, kv.HashOf(name)
		m := getModel(ts, s, d)
		if name == "model-10" {
			put(ts, m, kv.Prompt{}, 500, 20, 20)
			continue
		}
		for i := range 11 {
			p := put(ts, m, kv.Prompt{Scope: fmt.Sprint("user ", i+1), ScopeStart: 32}, 0, 40, 32)
			ts.Check(m.SetRef(ctx, fmt.Sprint("turn ", i+1), p, db.RefOptions{}))
			ts.Check(m.SetRef(ctx, "system", kv.Prompt{Tokens: p.Tokens[:24]}, db.RefOptions{Pinned: true}))
		}
	}
	ts.Check(s.Close())
}

// mksession DIR SCOPE adds a session of three frames.
func mksession(ts *testscript.TestScript, _ bool, args []string) {
	s := openStore(ts, args[0])
	x, err := s.OpenSession(context.Background(), args[1])
	ts.Check(err)
	for _, text := range []string{"one", "two", "three"} {
		ts.Check(x.Append(context.Background(), 7, []byte(text)))
	}
	ts.Check(s.Close())
}

// exits CODE COMMAND... runs the command, which must exit with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		code = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, expected %s", code, args[0])
	}
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

// shorten FILE BYTES cuts a file.
func shorten(ts *testscript.TestScript, _ bool, args []string) {
	var size int64
	fmt.Sscan(args[1], &size)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
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
	for !exists(ts.MkAbs(args[0])) {
		time.Sleep(5 * time.Millisecond)
	}
}
