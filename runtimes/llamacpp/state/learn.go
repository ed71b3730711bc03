package state

import (
	"bytes"
	"errors"
	"fmt"
)

// Parse takes a blob of a context with that format apart. Memory is shared with blob. Sections without cells are allowed.
func (f Format) Parse(blob []byte) (*State, error) {
	s, err := parse(blob, len(f.Sections), f.unsaid())
	if err != nil {
		return nil, err
	}
	if err := f.fits(s); err != nil {
		return nil, err
	}
	return s, nil
}

func (f Format) unsaid() unsaid {
	return unsaid{extBytes: f.ExtBytes, hasRotation: f.HasRotation, hasV: f.HasV()}
}

// fits refuses sections of another format.
func (f Format) fits(s *State) error {
	for i := range s.Sections {
		found, want := &s.Sections[i].format, f.Sections[i]
		if s.Sections[i].Count() == 0 { // says nothing about layers
			streams := found.Streams
			*found = want
			found.Streams = streams
		}
		if !found.equal(want) {
			return fmt.Errorf("%w: section %d is %v, expected %v", ErrBlob, i, *found, want)
		}
	}
	return nil
}

// Learn finds out the format of a context from a blob of it in which every section has cells: one token is enough. It
// tries all that a blob leaves open, takes what fits to the last byte and gives the same bytes when built again, and
// wants exactly one answer. sections is how many caches the context may have: 1, or 2 for sliding-window models.
func Learn(blob []byte, sections int) (Format, error) {
	if sections < 1 || sections > maxSections {
		return Format{}, fmt.Errorf("%w: %d sections, at most %d", ErrBlob, sections, maxSections)
	}
	return learnBy(layouts, func(u unsaid) (Format, error) { return learn(blob, sections, u) })
}

// learnBy wants exactly one layout by which learn succeeds.
func learnBy[F any](layouts []unsaid, learn func(unsaid) (F, error)) (F, error) {
	var none F
	var found []F
	var first error
	for _, u := range layouts {
		f, err := learn(u)
		if err == nil {
			found = append(found, f)
		} else if first == nil {
			first = err // of the plain layout: the one worth telling
		}
	}
	switch len(found) {
	case 0:
		return none, first
	case 1:
		return found[0], nil
	}
	return none, fmt.Errorf("%w: it can be read in %d ways", ErrBlob, len(found))
}

// layouts are all that releases of llama.cpp are known to write. No number in a blob tells them apart.
var layouts = func() (all []unsaid) {
	for _, rotation := range []bool{false, true} {
		for _, ext := range []int{0, 8, 12} {
			for _, hasV := range []bool{true, false} {
				all = append(all, unsaid{extBytes: ext, hasRotation: rotation, hasV: hasV})
			}
		}
	}
	return all
}()

func learn(blob []byte, sections int, u unsaid) (Format, error) {
	s, err := parse(blob, sections, u)
	if err != nil {
		return Format{}, err
	}
	f, err := formatOf(s, u)
	if err != nil {
		return Format{}, err
	}
	built, again := f.Build(nil, s.Sequence, s.cells())
	built.copyRows(s)
	if !bytes.Equal(blob, again) {
		return Format{}, fmt.Errorf("%w: built again it differs", ErrBlob)
	}
	return f, nil
}

// formatOf is the format of a state that was read by u, all of whose sections have cells.
func formatOf(s *State, u unsaid) (Format, error) {
	f := Format{ExtBytes: u.extBytes, HasRotation: u.hasRotation}
	for i, sec := range s.Sections {
		if sec.Count() == 0 {
			return Format{}, fmt.Errorf("%w: section %d has no cells", ErrBlob, i)
		}
		for j, l := range sec.format.Layers {
			if err := errors.Join(l.K.check(sec.format.Rotation.K), l.V.check(sec.format.Rotation.V)); err != nil {
				return Format{}, fmt.Errorf("%w: section %d layer %d: %w", ErrBlob, i, j, err)
			}
		}
		f.Sections = append(f.Sections, sec.format)
	}
	if u.hasV && !f.HasV() {
		return Format{}, fmt.Errorf("%w: no layers", ErrBlob)
	}
	return f, nil
}

// Shape describes, as far as it can be read, what ties a whole blob to the context that it is from: streams, layout of V,
// element types. Blobs of one context have one shape.
func Shape(blob []byte) string {
	for _, u := range layouts {
		if !u.hasV {
			continue
		}
		r := reader{b: blob, at: min(prefixBytes, len(blob))}
		s := r.section(u)
		if r.err != nil || s.Count() == 0 || len(s.format.Layers) == 0 {
			continue
		}
		l := s.format.Layers[0]
		shape := fmt.Sprintf("streams=%d ext=%d v_trans=%v layers=%d k=%d:%d v=%d:%d", s.format.Streams, u.extBytes, s.format.Transposed,
			len(s.format.Layers), l.K.Type, l.K.RowBytes, l.V.Type, l.V.RowBytes)
		if u.hasRotation {
			shape += fmt.Sprintf(" rot=%d:%d", s.format.Rotation.K, s.format.Rotation.V)
		}
		return shape
	}
	return "unknown shape"
}
