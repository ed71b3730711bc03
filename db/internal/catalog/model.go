package catalog

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// Place says where a replay has read an operation, or which frame this process logged for it.
type Place struct {
	File   string
	Offset int64
	LSN    uint64 // 0: it was read
}

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

// modelSet has all models.
type modelSet struct {
	of    map[kv.Fingerprint]*Model
	bytes int64 // of all, as oplog.Model.Bytes counts
}

func (s *modelSet) set(m *Model) {
	if old := s.of[m.Fingerprint]; old != nil {
		s.bytes -= old.Bytes()
	}
	s.of[m.Fingerprint] = m
	s.bytes += m.Bytes()
}

func (s *modelSet) drop(fp kv.Fingerprint) {
	if m := s.of[fp]; m != nil {
		s.bytes -= m.Bytes()
		delete(s.of, fp)
	}
}
