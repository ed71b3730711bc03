package main

import (
	"bytes"
	"os"
	"sync"
	"testing"
)

// asCommand has this test program be the command, for tests that need a process of their own.
const asCommand = "DORMOUSE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Unsetenv(asCommand) // no flag of the command is set by it
		main()
		return
	}
	os.Exit(m.Run())
}

// output is what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
