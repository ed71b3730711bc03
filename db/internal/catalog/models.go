package catalog

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// Model returns the model of that fingerprint, nil if there is none.
func (c *Catalog) Model(fp kv.Fingerprint) *Model {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.models.of[fp]
}

// Has reports whether that very model is in the store: it may have been retired, and another one of its fingerprint come.
func (c *Catalog) Has(m *Model) bool {
	now := c.Model(m.Fingerprint)
	return now == m || now != nil && now.sameAs(m)
}

// Models lists all models by fingerprint.
func (c *Catalog) Models() []*Model {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Model, 0, len(c.models.of))
	for _, m := range c.models.of {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Model) int { return bytes.Compare(a.Fingerprint[:], b.Fingerprint[:]) })
	return all
}

// Newest returns the newest version of a name, nil if there is none.
func (c *Catalog) Newest(name string) (out *Model) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, m := range c.models.of {
		if m.Name == name && (out == nil || out.Stamp < m.Stamp) {
			out = m
		}
	}
	return out
}

// Latest tells for every model whether it is the newest version of its name.
func (c *Catalog) Latest() map[kv.Fingerprint]bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	newest := make(map[string]*Model, len(c.models.of))
	for _, m := range c.models.of {
		if old := newest[m.Name]; old == nil || cmp.Less(old.Stamp, m.Stamp) {
			newest[m.Name] = m
		}
	}
	out := make(map[kv.Fingerprint]bool, len(c.models.of))
	for fp, m := range c.models.of {
		out[fp] = newest[m.Name] == m
	}
	return out
}
