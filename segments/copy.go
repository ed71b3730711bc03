package segments

// Copy appends the record at loc once more, with another sequence number, to its model's active segment, and returns where
// the copy lies. Every plane is verified on the way: damage is not carried on, it is the error that Read would return.
// The original stays.
func (s *Set) Copy(loc Loc, seq uint64) (Loc, error) {
	if err := s.files.writable(); err != nil {
		return Loc{}, err
	}
	var b *Builder
	err := s.Read(loc, func(r *Record) error {
		if err := r.Verify(); err != nil {
			return err
		}
		b = rebuild(r, seq)
		return nil
	})
	defer b.Release()
	if err != nil {
		return Loc{}, err
	}
	fp := b.h.model
	w := s.appender.known(fp)
	if w == nil {
		d, err := s.Descriptor(loc.Segment)
		if err != nil {
			return Loc{}, err
		}
		if w, err = s.appender.writer(&d, fp); err != nil {
			return Loc{}, err
		}
	}
	return s.appender.append(w, fp, b)
}
