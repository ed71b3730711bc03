package main

import (
	"os"
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
