package catalog

import (
	"bytes"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// noteSet has all notes, by model and name.
type noteSet struct {
	of    map[kv.Fingerprint]map[string][]byte
	bytes int64 // of all, as oplog.Note.Bytes counts
}

func (s *noteSet) set(n oplog.Note) {
	of := s.of[n.Model]
	if old, ok := of[n.Name]; ok {
		s.bytes -= oplog.Note{Name: n.Name, Value: old}.Bytes()
		delete(of, n.Name)
	}
	if len(n.Value) == 0 {
		return
	}
	if of == nil {
		of = map[string][]byte{}
		s.of[n.Model] = of
	}
	of[n.Name] = n.Value
	s.bytes += n.Bytes()
}

func (s *noteSet) dropModel(fp kv.Fingerprint) {
	for name := range s.of[fp] {
		s.set(oplog.Note{Model: fp, Name: name})
	}
	delete(s.of, fp)
}

func (s *noteSet) all() (out []oplog.Note) {
	models := slices.SortedFunc(maps.Keys(s.of), func(a, b kv.Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	for _, fp := range models {
		for _, name := range slices.Sorted(maps.Keys(s.of[fp])) {
			out = append(out, oplog.Note{Model: fp, Name: name, Value: s.of[fp][name]})
		}
	}
	return out
}
