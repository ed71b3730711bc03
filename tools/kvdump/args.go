package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// oneStore takes the argument DIR.
func oneStore(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || args[0] == "" {
		return errors.New("which store? give its DIR")
	}
	return noMore(args[1:])
}

// twoStores takes the arguments DIR and NEWDIR.
func twoStores(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 || args[0] == "":
		return errors.New("which store? give its DIR, and NEWDIR, where the new one is to be")
	case len(args) == 1 || args[1] == "":
		return errors.New("where is the new store to be? give NEWDIR behind DIR")
	}
	return noMore(args[2:])
}

func noMore(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q is one argument too many", args[0])
}

// badFlag says of a flag that cannot be read which one it is, and what it takes.
func badFlag(_ *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		empty   *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		return fmt.Errorf("unknown flag --%s", unknown.GetSpecifiedName())
	case errors.As(err, &empty):
		name, _ := pflag.UnquoteUsage(empty.GetFlag())
		return fmt.Errorf("--%s: nothing behind it; expected --%s %s", empty.GetFlag().Name, empty.GetFlag().Name, name)
	case errors.As(err, &invalid):
		what := map[string]string{"int": "a whole number", "float64": "a number", "bool": "true or false"}[invalid.GetFlag().Value.Type()]
		return fmt.Errorf("--%s %q: expected %s", invalid.GetFlag().Name, invalid.GetValue(), what)
	}
	return err
}

// usageOf is what is shown below a wrong call.
func usageOf(cmd *cobra.Command) string {
	line := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if cmd.HasSubCommands() {
		line += " COMMAND"
	}
	return fmt.Sprintf("usage: %s [flags]\n%s --help says more.", line, cmd.CommandPath())
}
