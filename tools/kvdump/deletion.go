package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

// deletion is what a delete takes out of a store. Its fields are the JSON document.
type deletion struct {
	What     string   `json:"what"`
	Blocks   int      `json:"blocks"`
	Records  int      `json:"records"`
	Bytes    int64    `json:"bytes"` // of records and sessions
	Refs     []string `json:"refs"`
	Sessions int      `json:"sessions"`
	Models   int      `json:"models"`
	DryRun   bool     `json:"dry_run"`
	Deleted  bool     `json:"deleted"` // and synced

	note   string // what stays
	beside bool   // a process has the store open
	name   bool   // it is a ref, without its prefix
	do     func(ctx context.Context) error
}

func (d *deletion) String() string {
	if d.name {
		return d.What
	}
	parts := []string{count(d.Blocks, "block"), fmt.Sprintf("%s (%s)", count(d.Records, "record"), size(d.Bytes))}
	if d.Sessions > 0 {
		parts = append(parts, count(d.Sessions, "session"))
	}
	if n := len(d.Refs); n > 0 {
		parts = append(parts, fmt.Sprintf("%s (%s)", count(n, "ref"), few(d.Refs)))
	}
	return d.What + ": " + strings.Join(parts, ", ")
}

// few names the first of many.
func few(names []string) string {
	const most = 5
	if n := len(names) - most; n > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// count adds the records that in says yes to, and the refs on them. gone is for refs whose block is not stored.
func (d *deletion) count(ctx context.Context, s *db.Store, in func(db.Block) bool, gone func(db.Ref) bool) error {
	taken := map[kv.Key]bool{}
	for b, err := range s.Blocks(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if !in(b) {
			continue
		}
		taken[b.Key] = true
		d.Records++
		d.Bytes += b.Bytes
		if b.Group == 0 {
			d.Blocks++
		}
	}
	refs, err := db.Collect(s.Refs())
	if err != nil {
		return err
	}
	for _, r := range refs {
		if taken[r.Block] || !r.Stored && gone(r) {
			d.Refs = append(d.Refs, r.Name)
		}
	}
	slices.SortFunc(d.Refs, natural)
	return nil
}

// deleteScope takes what belongs to a scope, of every model. name is empty where only the id is known.
func deleteScope(ctx context.Context, s *db.Store, id kv.ScopeID, name string) (*deletion, error) {
	d := &deletion{What: fmt.Sprintf("scope %s", id), Refs: []string{}, note: "what scopes share stays"}
	if name != "" {
		d.What = fmt.Sprintf("scope %q (%s)", name, id)
	}
	d.do = func(ctx context.Context) error { _, err := s.DeleteScopeID(ctx, id); return err }
	others := map[kv.ScopeID]bool{}
	err := d.count(ctx, s, func(b db.Block) bool {
		if !b.Scope.IsShared() {
			others[b.Scope] = true
		}
		return b.Scope == id
	}, func(r db.Ref) bool { return !r.Trail.Whole(r.Tokens) || r.Trail.Scope() == id })
	if err != nil {
		return nil, err
	}
	for x, err := range s.Sessions(ctx) {
		if err != nil {
			return nil, err
		}
		if others[x.Scope] = true; x.Scope == id {
			d.Sessions++
			d.Bytes += x.Bytes
		}
	}
	if d.Records+len(d.Refs)+d.Sessions > 0 {
		return d, nil
	}
	return nil, fmt.Errorf("nothing is stored in the %s: %s", d.What, otherScopes(others))
}

func otherScopes(others map[kv.ScopeID]bool) string {
	var ids []string
	for id := range others {
		ids = append(ids, id.String())
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return "the store has no scope"
	}
	return fmt.Sprintf("the store has %s, by their ids %s", count(len(ids), "scope"), few(ids))
}

// deleteModels takes versions of a model.
func deleteModels(ctx context.Context, s *db.Store, text string) (*deletion, error) {
	all, err := storedModels(s)
	if err != nil {
		return nil, err
	}
	picked := modelsNamed(all, text)
	switch {
	case len(picked) == 0:
		return nil, noModel(all, text)
	case len(picked) > 1 && picked[0].Descriptor.Name == text:
		return nil, errMisuse{fmt.Errorf("--model %s: the store has %d versions of it; say %s@all, %s@latest, %s@superseded, or one by its fingerprint: %s",
			text, len(picked), text, text, text, modelList(picked))}
	}
	d := &deletion{What: "model " + modelList(picked), Models: len(picked), Refs: []string{}, note: "it is registered again by the next program that uses it"}
	fps := map[kv.Fingerprint]bool{}
	for _, m := range picked {
		fps[m.Fingerprint] = true
	}
	d.do = func(ctx context.Context) error {
		for _, m := range picked {
			if err := s.Retire(ctx, m.Fingerprint); err != nil {
				return err
			}
		}
		return nil
	}
	return d, d.count(ctx, s, func(b db.Block) bool { return fps[b.Model] }, func(r db.Ref) bool { return fps[r.Model] })
}

// findRef is the ref of that name, or says which there are.
func findRef(s *db.Store, name string) (db.Ref, error) {
	r, err := s.Ref(name)
	if !errors.Is(err, db.ErrNotFound) {
		return r, err
	}
	refs, err := db.Collect(s.Refs())
	if err != nil {
		return r, err
	}
	var names []string
	for _, r := range refs {
		names = append(names, r.Name)
	}
	slices.SortFunc(names, natural)
	if len(names) == 0 {
		return r, fmt.Errorf("no ref %q in the store, which has none", name)
	}
	return r, fmt.Errorf("no ref %q in the store, only %s", name, few(names))
}

// deleteRef takes a name off its prefix.
func deleteRef(s *db.Store, name string) (*deletion, error) {
	r, err := findRef(s, name)
	if err != nil {
		return nil, err
	}
	d := &deletion{What: fmt.Sprintf("ref %q", name), Refs: []string{name}, name: true}
	d.do = func(ctx context.Context) error { return s.DeleteRef(ctx, name) }
	d.note = fmt.Sprintf("the %s that it names are not stored any more", count(r.Tokens, "token"))
	if r.Stored {
		d.note = fmt.Sprintf("only the name goes: the %s of its prefix stay stored, and --with-prefix deletes them, too", count(r.Tokens, "token"))
	}
	return d, nil
}

// deletePrefix takes the prefix that a ref names, and all that continues it, with the refs on that.
func deletePrefix(ctx context.Context, s *db.Store, name string) (*deletion, error) {
	r, err := findRef(s, name)
	if err != nil {
		return nil, err
	}
	if !r.Stored {
		return nil, fmt.Errorf("the prefix of ref %q is not stored any more: --ref without --with-prefix deletes the name", name)
	}
	fp, prompt, err := admin.PromptTo(ctx, s, r.Block)
	if errors.Is(err, admin.ErrUnknownPrompt) {
		return nil, fmt.Errorf("--with-prefix: ref %q: %w. Delete its scope with --scope-id, or its model", name, err)
	} else if err != nil {
		return nil, err
	}
	prefix := prompt.Prefix(r.Tokens)
	m, err := s.Model(fp)
	if err != nil {
		return nil, err
	}
	below, err := continuing(ctx, s, r, prefix)
	if err != nil {
		return nil, err
	}
	d := &deletion{
		What: fmt.Sprintf("ref %q with its prefix of %s", name, count(r.Tokens, "token")), Refs: []string{},
		note: "the blocks before the one with its last token stay: other prompts may go on from them",
	}
	d.do = func(ctx context.Context) error { _, err := m.Delete(ctx, prefix); return err }
	return d, d.count(ctx, s, func(b db.Block) bool { return below[b.Key] }, func(db.Ref) bool { return false })
}

// continuing are the blocks that hold the last token of a ref's prefix, and all behind them.
func continuing(ctx context.Context, s *db.Store, r db.Ref, prefix kv.Prompt) (map[kv.Key]bool, error) {
	children := map[kv.Key][]kv.Key{}
	var parent kv.Key
	for b, err := range s.Blocks(ctx) {
		if err != nil {
			return nil, err
		}
		if b.Group == 0 {
			children[b.Parent] = append(children[b.Parent], b.Key)
		}
		if b.Key == r.Block {
			parent = b.Parent
		}
	}
	in := map[kv.Key]bool{}
	var take func(k kv.Key)
	take = func(k kv.Key) {
		in[k] = true
		for _, c := range children[k] {
			take(c)
		}
	}
	for _, k := range children[parent] { // others may hold the same tokens, and go on differently
		_, other, err := admin.PromptTo(ctx, s, k)
		if errors.Is(err, admin.ErrUnknownPrompt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k == r.Block || begins(other, prefix) {
			take(k)
		}
	}
	return in, nil
}

// begins reports whether a prompt begins with a prefix.
func begins(p, prefix kv.Prompt) bool {
	n := len(prefix.Tokens)
	if len(p.Tokens) < n {
		return false
	}
	p = p.Prefix(n)
	return slices.Equal(p.Tokens, prefix.Tokens) && slices.Equal(p.Spans, prefix.Spans)
}
