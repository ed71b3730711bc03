package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
)

// scopeNames are names of scopes that the user knows, by id: a store has the ids alone.
type scopeNames struct {
	given []string
	byID  map[string]string
}

func (n *scopeNames) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&n.given, "scope-name", nil,
		"`name` of a scope, to be shown in the place of its id; names are not stored, only their hashes. Repeatable")
}

func (n *scopeNames) validate() error {
	for _, name := range n.given {
		if name == "" {
			return errors.New("--scope-name: an empty name; expected the name that programs give as kv.Prompt.Scope")
		}
	}
	return nil
}

// resolve hashes the names as the store does.
func (n *scopeNames) resolve(s *db.Store, more ...string) error {
	n.byID = map[string]string{}
	for _, name := range append(n.given, more...) {
		if name == "" {
			continue
		}
		id, err := s.ScopeID(name)
		if err != nil {
			return err
		}
		n.byID[id.String()] = name
	}
	return nil
}

// show is a scope in a table: its name if that is known, or the beginning of its id.
func (n *scopeNames) show(id string) string {
	if name, ok := n.byID[id]; ok {
		return name
	}
	if id == "" {
		return "shared"
	}
	return short(id)
}

// named is the order of two names of scopes: those that are known come first.
func named(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(b, a)
	}
	return natural(a, b)
}

// nameScopes gives the scopes of an inventory their names, and notes names under which nothing is stored.
func (inv *inventory) nameScopes(n *scopeNames) {
	stored := map[string]bool{}
	for i := range inv.Scopes {
		s := &inv.Scopes[i]
		s.Name, stored[s.ID] = n.byID[s.ID], true
	}
	for i := range inv.Sessions {
		s := &inv.Sessions[i]
		s.Name, stored[s.Scope] = n.byID[s.Scope], true
	}
	slices.SortFunc(inv.Scopes, func(a, b scopeLine) int { return cmp.Or(named(a.Name, b.Name), cmp.Compare(a.Scope, b.Scope)) })
	slices.SortFunc(inv.Sessions, func(a, b sessionLine) int { return cmp.Or(named(a.Name, b.Name), cmp.Compare(a.Scope, b.Scope)) })
	for _, id := range slices.Sorted(maps.Keys(n.byID)) {
		if !stored[id] {
			inv.Notes = append(inv.Notes, fmt.Sprintf("nothing is stored in the scope %q (%s)", n.byID[id], id))
		}
	}
}
