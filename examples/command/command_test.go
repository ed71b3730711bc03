package command

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, path := range []string{dir, file} {
		if err := NewFolder("-dir", path, "why"); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		if err := NewFolder("-dir", path, "why"); Code(err) != 2 || !strings.Contains(err.Error(), "-dir") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, x := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, ""},
		{[]string{"-n", "3"}, 0, ""},
		{[]string{"-h"}, 0, ""},
		{[]string{"-nope"}, 2, "-nope"},
		{[]string{"-n", "many"}, 2, `"many"`},
		{[]string{"rest"}, 2, `"rest"`},
	} {
		var help strings.Builder
		flags := flag.NewFlagSet("program", flag.ContinueOnError)
		flags.Int("n", 1, "how many")
		err := Parse(flags, x.args, &help)
		if got := Code(err); got != x.code || x.says != "" && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%q: code %d, expected %d: %v", x.args, got, x.code, err)
		}
		if asked := len(x.args) == 1 && x.args[0] == "-h"; asked != strings.Contains(help.String(), "how many") || !asked && help.Len() > 0 {
			t.Errorf("%q prints %q", x.args, &help)
		}
	}
	if got := Code(errors.New("disk")); got != 1 {
		t.Errorf("a failure: %d", got)
	}
	if got := Code(fmt.Errorf("more: %w", Wrong("-n"))); got != 2 {
		t.Errorf("a wrapped mistake: %d", got)
	}
}
