package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

type deleteFlags struct {
	scope, scopeID, ref, model string
	withPrefix, yes, dryRun    bool
	id                         kv.ScopeID // of --scope-id
}

func newDelete(c *common) *cobra.Command {
	f := &deleteFlags{}
	cmd := &cobra.Command{
		Use:   "delete DIR {--scope NAME | --scope-id ID | --ref NAME | --model MODEL} --yes",
		Short: "Delete a scope, a ref or a model for good",
		Long: "Delete takes a scope with its session, a ref, or a model out of the store. With --yes it deletes, and syncs: then the deleted\n" +
			"bytes are in no file of the store. Without it, it says what it would take. Nobody else may have the store open.\n\n" +
			"A ref is a name: its prefix stays stored, unless --with-prefix is given. The prefix goes with all that continues it.\n" +
			"MODEL is a name, or a fingerprint or its first 8 digits or more. Of a name with several versions, say NAME@all,\n" +
			"NAME@latest or NAME@superseded.\n\n" +
			"Exit code 1 means that nothing is stored of what was named, or that the deletion failed.",
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.validate(cmd); err != nil {
				return err
			}
			warned := &warnings{}
			d, err := f.run(cmd, c, args[0], slog.New(warned))
			warned.print(cmd.ErrOrStderr())
			if misuse := (errMisuse{}); errors.As(err, &misuse) {
				return err
			}
			if err != nil {
				return errWork{err}
			}
			return f.report(cmd, c, d)
		},
	}
	cmd.Flags().StringVar(&f.scope, "scope", "", "`name` of the scope, as programs give it")
	cmd.Flags().StringVar(&f.scopeID, "scope-id", "", "`id` of a scope whose name nobody knows, as inspect --json shows it: 32 hex digits")
	cmd.Flags().StringVar(&f.ref, "ref", "", "`name` of the ref")
	cmd.Flags().StringVar(&f.model, "model", "", "`model`: all versions of it, or the one that is named")
	cmd.Flags().BoolVar(&f.withPrefix, "with-prefix", false, "with --ref: also the prefix that the ref names, with all that continues it")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "delete it")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be deleted, and exit with 0")
	return cmd
}

func (f *deleteFlags) validate(cmd *cobra.Command) (err error) {
	var given []string
	for name, value := range map[string]string{"scope": f.scope, "scope-id": f.scopeID, "ref": f.ref, "model": f.model} {
		if !cmd.Flags().Changed(name) {
			continue
		}
		if given = append(given, name); value == "" {
			return fmt.Errorf("--%s: an empty value; expected what is to be deleted", name)
		}
	}
	switch {
	case len(given) == 0:
		return errors.New("what is to be deleted? give --scope, --scope-id, --ref or --model")
	case len(given) > 1:
		return errors.New("--scope, --scope-id, --ref, --model: expected one of them")
	case f.withPrefix && f.ref == "":
		return errors.New("--with-prefix: no ref; expected --ref with it")
	case f.yes && f.dryRun:
		return errors.New("--yes and --dry-run: expected one of them")
	case f.scopeID == "":
		return nil
	}
	if f.id, err = kv.ParseScope(f.scopeID); err != nil {
		return fmt.Errorf("--scope-id: %w", err)
	}
	if f.id.IsShared() {
		return errors.New("--scope-id: that is what scopes share; expected the id of a scope")
	}
	return nil
}

// run finds out what is to go, and with --yes deletes it.
func (f *deleteFlags) run(cmd *cobra.Command, c *common, dir string, logger *slog.Logger) (d *deletion, err error) {
	if _, err := admin.LostFormat(dir); err != nil { // Open would make a store where there is none
		return nil, err
	}
	show, done := bar(c, cmd.ErrOrStderr())
	defer done()
	s, err := db.Open(cmd.Context(), dir, db.Options{
		ReadOnly: !f.yes, AllowSharedDir: c.sharedDir, Progress: show, Logger: logger,
		Budget: 1 << 50, MinFree: -1, CheckpointInterval: -1, // nothing is to be evicted
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if d, err = f.find(cmd.Context(), s); err != nil {
		return nil, err
	}
	if !f.yes {
		st, err := s.Stats()
		d.beside = st.BesideWriter
		return d, err
	}
	if err := d.do(cmd.Context()); err != nil && !errors.Is(err, db.ErrNotDestroyed) { // that Sync tries again
		return nil, err
	}
	if err := s.Sync(cmd.Context()); err != nil {
		return nil, fmt.Errorf("%s: deleted, but the bytes may still be in a file: %w", d.What, err)
	}
	d.Deleted = true
	return d, nil
}

// find says what goes.
func (f *deleteFlags) find(ctx context.Context, s *db.Store) (*deletion, error) {
	switch {
	case f.model != "":
		return deleteModels(ctx, s, f.model)
	case f.withPrefix:
		return deletePrefix(ctx, s, f.ref)
	case f.ref != "":
		return deleteRef(s, f.ref)
	}
	id, err := f.id, error(nil)
	if f.scope != "" {
		id, err = s.ScopeID(f.scope)
	}
	if err != nil {
		return nil, err
	}
	return deleteScope(ctx, s, id, f.scope)
}

// report says what went, or would go. Who said neither --yes nor --dry-run is asked.
func (f *deleteFlags) report(cmd *cobra.Command, c *common, d *deletion) error {
	out := cmd.OutOrStdout()
	d.DryRun = !f.yes
	switch {
	case c.json:
		if err := printJSON(out, d); err != nil {
			return err
		}
	case d.Deleted:
		fmt.Fprintf(out, "deleted %s\n%s\nsynced: the deleted bytes are in no file of the store\n", d, d.note)
	default:
		if d.beside {
			fmt.Fprintln(out, "a process has the store open: this is its last checkpoint, and --yes is refused until that process closes it")
		}
		fmt.Fprintf(out, "would delete %s\n%s\n", d, d.note)
	}
	if !f.yes && !f.dryRun {
		return errors.New("nothing is deleted yet; --yes deletes it")
	}
	return nil
}
