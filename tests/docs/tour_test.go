package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The story of design.md is true: its commands, one after the other on one store, print the lines that the page shows of what was found,
// stored and deleted. Listings of files are not compared: room that is reserved ahead differs between file systems.
func TestStoryOfDesign(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the story is told in a shell")
	}
	dir := t.TempDir()
	for _, command := range []string{"tools/kvdump", "examples/tour"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, filepath.Base(command)), filepath.Join(root, command)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	compared := 0
	for _, b := range blocks(t, "docs/design.md", "") {
		for _, step := range strings.Split("\n"+b.code, "\n$ ")[1:] {
			line, said, _ := strings.Cut(step, "\n")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, _ := cmd.CombinedOutput() // one of them is killed
			for _, want := range strings.Split(said, "\n") {
				want, _, _ = strings.Cut(want, " (") // a scope's id is another one in each store
				first, _, _ := strings.Cut(want, " ")
				if first != "found" && first != "stored" && first != "deleted" && first != "synced:" {
					continue
				}
				if compared++; !strings.Contains(string(out), want) {
					t.Errorf("docs/design.md: %s prints %q, and is said to print %q", line, out, want)
				}
			}
		}
	}
	if compared < 9 {
		t.Errorf("only %d lines are compared", compared)
	}
}
