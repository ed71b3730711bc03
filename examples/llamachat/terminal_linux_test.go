//go:build !android

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On a terminal there is a prompt, nothing is shown twice, and Ctrl-C, which the terminal makes a signal of, leaves at the prompt.
func TestChatOnTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("SKIPPED, no terminal is tried: %v", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	unix.SetNonblock(fd, true) // Fd has made it block
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED, no terminal is tried: %v", err)
	}
	cmd := program(t, small(filepath.Join(t.TempDir(), "store"))...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var out strings.Builder
	until := func(text string) {
		t.Helper()
		from := out.Len()
		buf := make([]byte, 1)
		for !strings.HasSuffix(out.String()[from:], text) {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatalf("%q does not come: %v\n%s", text, err, out.String())
			}
			out.Write(buf[:n])
		}
	}
	until("new. /help lists the commands.\r\n> ")
	io.WriteString(master, "Once upon a time\n")
	until("\n> ")
	io.WriteString(master, "/why\n")
	until(" in ") // times are told
	until("\n> ")
	io.WriteString(master, "/nonsense\n") // on a terminal it was seen: it is no failure of the program
	until("\n> ")
	master.Write([]byte{3})
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Ctrl-C at the prompt: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Ctrl-C does not end the program")
	}
	if n := strings.Count(out.String(), "> Once upon a time\r\n"); n != 1 {
		t.Errorf("the message is shown %d times:\n%s", n, out.String())
	}
}
