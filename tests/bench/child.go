package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// childEnv has a process of this program do one thing with a store, print what it found, and end.
const childEnv = "DORMOUSE_BENCH_CHILD"

// What a process of its own does.
const (
	childRestore = "restore" // a prompt, once
	childMemory  = "memory"  // a prompt, and every level of pressure
	childStore   = "store"   // matches and restores all over a store of many blocks
	childKilled  = "killed"  // puts, until it is killed
	childOpen    = "open"    // Open, and nothing else
	childCost    = "cost"    // a prompt of a model, from a disk of some rate
)

// child says what is to be done, and what came of it.
type child struct {
	Do             string
	Dir            string
	Layers, Blocks int
	Model          string // whose Tokens are restored, or read from File
	Tokens         int
	File           string
	Warm           bool   // the second time counts
	Group          string // of processes whose disk is slow
	Behind         int64  // bytes that are to lie behind the checkpoint of who is killed
	Took           time.Duration
	Footprints     []footprint
}

// run does it in a process of its own.
func (c *child) run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	asked, err := json.Marshal(c)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(asked)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, c)
}

// isChild does what the environment asks for, if it does.
func isChild() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	var c child
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		switch c.Do {
		case childRestore:
			err = c.restore()
		case childMemory:
			err = c.memory()
		case childCost:
			err = c.cost()
		case childKilled:
			err = c.killed()
		case childOpen:
			err = c.open()
		case childStore:
			err = c.store()
		default:
			err = errors.New("nothing of the name " + c.Do)
		}
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	return true
}
