package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// keeping is what pin and warm have in common.
type keeping struct {
	store        string
	list, asJSON bool
	keep         llamaserver.Keep
}

// whatIsKept says what pin and warm take of a file.
const whatIsKept = `FILE.json is a request's body as a client sends it; - reads it from the standard input. Kept is all that comes before the last message of the user: the
system prompt with its tools, and what was said before. The name is the file's, unless --name gives one. dormouse serve must be running.`

func newPin() *cobra.Command {
	k := &keeping{}
	cmd := &cobra.Command{
		Use: "pin FILE.json", Short: "Keep the beginning of a request through evictions",
		Long:    "Keep the beginning of a request, whatever else is evicted, also after restarts. It must be stored: a request like it has been answered, or dormouse warm has computed it.\n\n" + whatIsKept,
		Example: "  dormouse pin agent.json\n  dormouse pin --list\n  dormouse unpin agent",
		RunE:    func(cmd *cobra.Command, args []string) error { return k.run(cmd, args, "/pin") },
	}
	k.flags(cmd)
	return cmd
}

func newWarm() *cobra.Command {
	k := &keeping{}
	cmd := &cobra.Command{
		Use: "warm FILE.json", Short: "Compute and store the beginning of a request when nobody asks for anything",
		Long: `Have the beginning of a request computed when no request has been under way for some seconds, and store it. A request that comes meanwhile goes first. With --pin
it is kept through evictions then. What is not computed when dormouse serve ends is forgotten.` + "\n\n" + whatIsKept,
		Example: "  dormouse warm --pin agent.json\n  dormouse warm --list\n  dormouse unpin agent",
		RunE:    func(cmd *cobra.Command, args []string) error { return k.run(cmd, args, "/warm") },
	}
	k.flags(cmd)
	cmd.Flags().BoolVar(&k.keep.Pin, "pin", false, "keep it through evictions, once it is computed")
	return cmd
}

func newUnpin() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use: "unpin NAME", Short: "Undo a pin or a warm: what is stored stays until it is evicted", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return overControl(cmd, "POST", "/unpin", args[0], &struct{}{})
		},
	}
	storeFlag(cmd.Flags(), &store)
	return cmd
}

func (k *keeping) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	storeFlag(f, &k.store)
	f.BoolVar(&k.list, "list", false, "list what has a name: what is pinned, stored, and to be computed")
	f.BoolVar(&k.asJSON, "json", false, "as JSON")
	f.StringVar(&k.keep.Name, "name", "", "the name (default: the file's, without .json)")
	f.StringVar(&k.keep.Endpoint, "endpoint", "", "where a client sends it: /v1/chat/completions, /v1/messages, /v1/responses or /completion (default: guessed by its fields)")
	f.StringVar(&k.keep.Key, "key", "", "the API key with which clients send it (serve --scope-by-key)")
}

func (k *keeping) run(cmd *cobra.Command, args []string, path string) (err error) {
	if k.list != (len(args) == 0) || len(args) > 1 {
		return errors.New("name one FILE.json, or --list")
	}
	if k.list {
		var list []llamaserver.Kept
		if err := overControl(cmd, "GET", "/pins", nil, &list); err != nil {
			return err
		}
		return k.print(cmd.OutOrStdout(), list)
	}
	file := args[0]
	if file == "-" {
		k.keep.Body, err = io.ReadAll(cmd.InOrStdin())
	} else {
		k.keep.Body, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	if k.keep.Name == "" {
		if file == "-" {
			return errors.New("what comes from the standard input needs a --name")
		}
		k.keep.Name = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	var out llamaserver.Kept
	if err := overControl(cmd, "POST", path, k.keep, &out); err != nil {
		return err
	}
	return k.print(cmd.OutOrStdout(), []llamaserver.Kept{out})
}

func (k *keeping) print(out io.Writer, list []llamaserver.Kept) error {
	if k.asJSON {
		return json.NewEncoder(out).Encode(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(out, "nothing is pinned, and nothing is to be computed")
		return nil
	}
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"name", "tokens", "state", "model"})
	for _, x := range list {
		tokens := ""
		if x.Tokens > 0 {
			tokens = humanize.Comma(int64(x.Tokens))
		}
		state := x.State
		if x.Pinned && !strings.HasPrefix(state, "pinned") {
			state += " (to be pinned)"
		}
		t.AppendRow(table.Row{x.Name, tokens, state, x.Model})
	}
	t.Render()
	return nil
}

// overControl asks the front of a store; what goes wrong there is an error of the work.
func overControl(cmd *cobra.Command, method, path string, in, out any) error {
	if err := fromEnvironment(cmd, "store"); err != nil {
		return err
	}
	dir, err := frontOf(cmd.Context(), cmd.Flag("store").Value.String())
	if err != nil {
		return err
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	if err := ask(cmd.Context(), dir, method, path, body, out); err != nil {
		return errWork{err}
	}
	return nil
}
