package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what somebody may have meant with a flag that there is not: a flag of llama-server, or another one of ours.
func flagError(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return err
	}
	flag := missing.GetSpecifiedName()
	if missing.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("dormouse %s has no flag -%s%s", cmd.Name(), flag, serverFlag(cmd))
	}
	out := fmt.Errorf("dormouse %s has no flag --%s", cmd.Name(), flag)
	if near := meant(cmd.Flags(), flag); near != "" {
		return fmt.Errorf("%w: did you mean --%s?", out, near)
	}
	return fmt.Errorf("%w%s", out, serverFlag(cmd))
}

// serverFlag is the advice for commands behind which a llama-server is named.
func serverFlag(cmd *cobra.Command) string {
	if name := cmd.Name(); name == "serve" || name == "doctor" {
		return fmt.Sprintf(": write llama-server and its flags behind --, as in `dormouse %s -- llama-server -m model.gguf`", name)
	}
	return ""
}

// meant is the flag whose name differs from said by the fewest letters, if these are a third at most, or that begins like it.
func meant(flags *pflag.FlagSet, said string) (name string) {
	best := 3
	flags.VisitAll(func(f *pflag.Flag) {
		d := letters(said, f.Name)
		if len(said) > 2 && strings.HasPrefix(f.Name, said) {
			d = min(d, 1)
		}
		if d < best && 3*d <= len(said) {
			best, name = d, f.Name
		}
	})
	return name
}

// letters is how many letters are to be changed, added or left out to make b of a.
func letters(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
