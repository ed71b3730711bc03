package db

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// modelState is a registered model. What its descriptor says is there only after load.
type modelState struct {
	*oplog.Model
	lsn  uint64        // of the frame by which this process registered it; 0: an earlier one did
	from *placeOfFrame // where it was read; the file may be gone since
	once sync.Once
	err  error
	*loadedModel
}

type loadedModel struct {
	desc kv.Descriptor
	// groupTensors are the indexes of each group's tensors, in the order of a record's planes.
	groupTensors [][]int
}

// load unpacks the descriptor, once. The error answers to ErrCorrupt: the checksums are those of what was written, and somebody else
// than us wrote it.
func (m *modelState) load() error {
	m.once.Do(func() {
		d, err := m.Descriptor()
		if err != nil {
			m.err = damage.Wrap(m.from.file, m.from.offset, fmt.Sprintf("descriptor of model %s %.40q", m.Fingerprint, m.Name), err)
			return
		}
		loaded := &loadedModel{desc: d}
		for g := range d.Groups {
			loaded.groupTensors = append(loaded.groupTensors, d.GroupTensors(g))
		}
		m.loadedModel = loaded
	})
	return m.err
}

// searched is the model as searches and reads know it; after load.
func (m *modelState) searched() prefix.Model {
	return prefix.Model{Fingerprint: m.Fingerprint, Desc: &m.desc, GroupTensors: m.groupTensors}
}

// sameAs reports whether both are one model: a fingerprint can be made to be another model's.
func (m *modelState) sameAs(other *modelState) bool {
	return bytes.Equal(m.Packed, other.Packed) ||
		m.load() == nil && other.load() == nil && len(m.desc.Diff(&other.desc)) == 0
}

// addModels adds the models of a log head.
func (s *smallState) addModels(all []oplog.Model) {
	states := make([]modelState, len(all))
	s.models, s.origin = make(map[kv.Fingerprint]*modelState, len(all)), &placeOfFrame{}
	for i := range all {
		states[i].Model, states[i].from = &all[i], s.origin
		s.setModel(&states[i])
	}
}

func (s *smallState) addModel(m oplog.Model) *modelState {
	ms := &modelState{Model: &m, from: &placeOfFrame{}}
	s.setModel(ms)
	return ms
}

func (s *smallState) setModel(m *modelState) {
	if old := s.models[m.Fingerprint]; old != nil {
		s.modelBytes -= old.Bytes()
	}
	s.models[m.Fingerprint] = m
	s.modelBytes += m.Bytes()
}

func (s *smallState) dropModel(fp kv.Fingerprint) {
	if m := s.models[fp]; m != nil {
		s.modelBytes -= m.Bytes()
		delete(s.models, fp)
	}
	s.dropNotes(fp)
	for name, r := range s.refs {
		if r.Model == fp {
			s.dropRef(name)
		}
	}
}

// latest returns the newest version of each name.
func (s *smallState) latest() map[string]*modelState {
	out := make(map[string]*modelState, len(s.models))
	for _, m := range s.models {
		if old := out[m.Name]; old == nil || old.Stamp < m.Stamp {
			out[m.Name] = m
		}
	}
	return out
}

// newest returns the newest version of a name, nil if there is none.
func (s *smallState) newest(name string) (out *modelState) {
	for _, m := range s.models {
		if m.Name == name && (out == nil || out.Stamp < m.Stamp) {
			out = m
		}
	}
	return out
}
