package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/obs/page"
)

type reportJSON struct {
	File    string `json:"file"`
	Bytes   int    `json:"bytes"`
	Blocks  int64  `json:"block_count"`
	Records int64  `json:"record_count"`
	Models  int    `json:"model_count"`
	Drawn   bool   `json:"prefix_tree_drawn"`
}

func newReport(c *common) *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "report DIR -o FILE",
		Short: "Draw what is stored: one HTML file for a browser",
		Long: "Report draws the prefix tree, as wide as its bytes are and in colours that say when it was last used, with the models and their\n" +
			"sizes, in one file. It opens in a browser, without a network and without a server. No token, no text and no name of\n" +
			"a ref or scope is in it. Where a process has the store open, it shows what that one's last checkpoint wrote.\n\n" +
			"A file that is there already is overwritten if it is a report.",
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case file == "":
				return errors.New("where is the report to be? give -o FILE, or -o - for standard output")
			case file == "-" && c.json:
				return errors.New("-o - and --json: standard output can have one of them")
			}
			if file != "-" {
				if err := mayWrite(file, args[0], force); err != nil {
					return err
				}
			}
			show, done := bar(c, cmd.ErrOrStderr())
			defer done()
			s, err := openReadOnly(cmd, c, args[0], show)
			if err != nil {
				return errWork{err}
			}
			defer s.Close()
			dir, err := filepath.Abs(args[0])
			if err != nil {
				dir = args[0]
			}
			var out bytes.Buffer
			tree, err := page.WriteReport(cmd.Context(), &out, s, dir)
			done()
			if err != nil {
				return errWork{err}
			}
			if file == "-" {
				_, err := io.Copy(cmd.OutOrStdout(), &out)
				return err
			}
			n := out.Len()
			if err := writeWhole(file, out.Bytes()); err != nil {
				return errWork{err}
			}
			if c.json {
				return printJSON(cmd.OutOrStdout(), reportJSON{file, n, tree.Blocks, tree.Records, len(tree.Models), !tree.TooMany})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %s of %s\n", file, size(int64(n)), count(tree.Blocks, "block"), count(len(tree.Models), "model"))
			if tree.TooMany {
				fmt.Fprintf(cmd.OutOrStdout(), "the prefix tree is left out: it has more than %d blocks\n", page.MaxBlocks)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "`file` to write; - is standard output")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "overwrite FILE even if it is no report")
	return cmd
}

// mayWrite says why a report must not be written there: in a store's folder, or over something that is none of ours.
func mayWrite(file, store string, force bool) error {
	abs := func(path string) string {
		if p, err := filepath.Abs(path); err == nil {
			path = p
		}
		if p, err := filepath.EvalSymlinks(path); err == nil {
			path = p
		}
		return path
	}
	folder := filepath.Dir(file)
	if to, err := filepath.EvalSymlinks(file); err == nil { // it is written where a link leads
		folder = filepath.Dir(to)
	}
	if rel, err := filepath.Rel(abs(store), abs(folder)); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return fmt.Errorf("-o %s: that is in the store's folder, which is the store's alone; name a file elsewhere", file)
	}
	if _, err := os.Stat(filepath.Dir(file)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-o %s: there is no folder %s", file, filepath.Dir(file))
	}
	was, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return errWork{err}
	case was.IsDir():
		return fmt.Errorf("-o %s: that is a directory; name a file in it", file)
	case !was.Mode().IsRegular():
		return fmt.Errorf("-o %s: that is no regular file; -o - writes to standard output", file)
	case force || was.Size() == 0:
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return errWork{err}
	}
	defer f.Close()
	head := make([]byte, len(page.ReportMark))
	if _, err := io.ReadFull(f, head); err != nil || string(head) != page.ReportMark {
		return fmt.Errorf("-o %s: there is a file that is no report; -f overwrites it", file)
	}
	return nil
}

// writeWhole puts a file in place once all of it is written: a full disk leaves what was there.
func writeWhole(file string, b []byte) error {
	if to, err := filepath.EvalSymlinks(file); err == nil {
		file = to
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
