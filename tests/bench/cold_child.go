package main

import (
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// restoreFresh is a lap in a process of its own.
func (s *coldStore) restoreFresh() (took time.Duration, err error) {
	if err := cool(s.paths); err != nil {
		return 0, err
	}
	c := child{Do: childRestore, Dir: s.dir, Layers: len(s.desc.Tensors) / 2, Blocks: len(s.prompt.Tokens) / blockTokens}
	if err := c.run(); err != nil {
		return 0, fmt.Errorf("a restore in a process of its own: %w", err)
	}
	return c.Took, nil
}

// restore is what the process does.
func (c *child) restore() error {
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
	return s.Close()
}
