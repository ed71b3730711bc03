package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// usageError is a mistake of whoever called the program.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Wrong makes an error that ends the program with exit code 2. It names the flag, what it was and what is expected.
func Wrong(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Parse reads the flags of a program that takes nothing else. -h prints them on help, and is flag.ErrHelp; what is wrong is said in the error only.
func Parse(flags *flag.FlagSet, args []string, help io.Writer) error {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(help)
		fmt.Fprintf(help, "%s takes these flags:\n", flags.Name())
		flags.PrintDefaults()
		fmt.Fprintln(help, "  -h\tprint this")
		return err
	case err != nil:
		return Wrong("%w; -h lists the flags", err)
	case flags.NArg() > 0:
		return Wrong("%q is no flag; -h lists them", flags.Arg(0))
	}
	return nil
}

// NewFolder says whether the folder that a flag names is missing or empty, as it must be because of why.
func NewFolder(flag, dir, why string) error {
	switch old, err := os.ReadDir(dir); {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(old) == 0:
		return nil
	case err != nil:
		return Wrong("%s: %w; expected a new or empty folder", flag, err)
	}
	return Wrong("%s: %s is not empty; expected a new or empty folder: %s", flag, dir, why)
}

// Code is the exit code for what a program came to.
func Code(err error) int {
	var wrong usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		return 2
	}
	return 1
}

// End says what went wrong and ends the process.
func End(name string, err error) {
	code := Code(err)
	if code != 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(code)
}
