package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// childEnv has a process of this program restore a prompt from a store, print how long it took, and end.
const childEnv = "DORMOUSE_BENCH_RESTORE"

// child says what is restored, and how long it took.
type child struct {
	Dir            string
	Layers, Blocks int
	Took           time.Duration
}

// restoreFresh is a lap in a process of its own.
func (s *coldStore) restoreFresh() (took time.Duration, err error) {
	if err := cool(s.paths); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	c := child{Dir: s.dir, Layers: len(s.desc.Tensors) / 2, Blocks: len(s.prompt.Tokens) / blockTokens}
	asked, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(asked)), os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &c)
	}
	if err != nil {
		return 0, fmt.Errorf("a restore in a process of its own: %w", err)
	}
	return c.Took, nil
}

// isChild does what the environment asks for, if it does.
func isChild() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	err := func() error {
		var c child
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return err
		}
		desc := descriptor(c.Layers, kv.F16)
		n := c.Blocks * blockTokens
		prompt, dst := kv.Prompt{Tokens: tokens(1, n)}, newKVCache(desc, n)
		s, err := openStore(c.Dir, desc, options())
		if err != nil {
			return err
		}
		defer quiet()()
		if c.Took, err = since(func() error { _, err := s.restore(prompt, dst.rows(n)); return err }); err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
			return err
		}
		return s.Close()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	return true
}
