package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// Model is a registered model. What its descriptor says is there only after Load.
type Model struct {
	*oplog.Model
	at   *Place // the file may be gone since
	once sync.Once
	err  error
	*Loaded
}

// Loaded is what a descriptor says.
type Loaded struct {
	Desc kv.Descriptor
	// GroupTensors are the indexes of each group's tensors, in the order of a record's planes.
	GroupTensors [][]int
}

// Load unpacks the descriptor, once. The error answers to ErrCorrupt: the checksums are those of what was written, and somebody else
// than us wrote it.
func (m *Model) Load() error {
	m.once.Do(func() {
		d, err := m.Descriptor()
		if err != nil {
			m.err = damage.Wrap(m.at.File, m.at.Offset, fmt.Sprintf("descriptor of model %s %.40q", m.Fingerprint, m.Name), err)
			return
		}
		loaded := &Loaded{Desc: d}
		for g := range d.Groups {
			loaded.GroupTensors = append(loaded.GroupTensors, d.GroupTensors(g))
		}
		m.Loaded = loaded
	})
	return m.err
}

// LSN is that of the frame by which this process registered the model; 0: an earlier one did.
func (m *Model) LSN() uint64 { return m.at.LSN }

// sameAs reports whether both are one model.
func (m *Model) sameAs(other *Model) bool {
	return bytes.Equal(m.Packed, other.Packed) ||
		m.Load() == nil && other.Load() == nil && len(m.Desc.Diff(&other.Desc)) == 0
}

// Model returns the model of that fingerprint, nil if there is none.
func (c *Catalog) Model(fp kv.Fingerprint) *Model {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.models[fp]
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
	all := make([]*Model, 0, len(c.models))
	for _, m := range c.models {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Model) int { return bytes.Compare(a.Fingerprint[:], b.Fingerprint[:]) })
	return all
}

// Newest returns the newest version of a name, nil if there is none.
func (c *Catalog) Newest(name string) (out *Model) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, m := range c.models {
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
	newest := make(map[string]*Model, len(c.models))
	for _, m := range c.models {
		if old := newest[m.Name]; old == nil || cmp.Less(old.Stamp, m.Stamp) {
			newest[m.Name] = m
		}
	}
	out := make(map[kv.Fingerprint]bool, len(c.models))
	for fp, m := range c.models {
		out[fp] = newest[m.Name] == m
	}
	return out
}

func (c *Catalog) setModel(m *Model) {
	if old := c.models[m.Fingerprint]; old != nil {
		c.modelBytes -= old.Bytes()
	}
	c.models[m.Fingerprint] = m
	c.modelBytes += m.Bytes()
}

func (c *Catalog) dropModel(fp kv.Fingerprint) {
	if m := c.models[fp]; m != nil {
		c.modelBytes -= m.Bytes()
		delete(c.models, fp)
	}
	c.dropNotes(fp)
	for name, r := range c.refs {
		if r.Model == fp {
			c.dropRef(name)
		}
	}
}
