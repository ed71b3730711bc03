package db

import (
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Identity is what FORMAT says about a store.
type Identity struct {
	Version uint32
	UUID    string
}

// Identity returns the store's format version and id.
func (s *Store) Identity() (Identity, error) {
	e, err := s.enter()
	if err != nil {
		return Identity{}, err
	}
	defer s.leave()
	return Identity{Version: e.Format.Version, UUID: e.Format.UUID.String()}, nil
}

// ScopeID returns the id that a scope of that name has in this store. Names are not stored, and ids differ from store to store.
func (s *Store) ScopeID(name string) (kv.ScopeID, error) {
	e, err := s.enter()
	if err != nil {
		return kv.ScopeID{}, err
	}
	defer s.leave()
	return e.Hasher.Scope(name), nil
}

// Expired reports whether the ref's time is over.
func (r Ref) Expired(now time.Time) bool { return !r.Expires.IsZero() && r.Expires.Before(now) }
