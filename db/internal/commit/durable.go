package commit

import "errors"

// Durable returns when frame lsn is on the disk, where an acknowledgement waits for that. 0: there is nothing to wait for.
func (l *Ledger) Durable(lsn uint64) error {
	if !l.Power || lsn == 0 {
		return nil
	}
	return l.rounds.wait(func() error {
		last := l.WAL.LastLSN()
		// What was written first: a journal that has both files' blocks commits once for both.
		if err := both(l.Segments.WriteBack, l.WAL.WriteBack); err != nil {
			return err
		}
		return both(l.Segments.Sync, func() error { return l.WAL.Sync(last) })
	})
}

// PutBegins counts a put that will wait for the disk, until end. Where no put does, it counts nothing.
func (l *Ledger) PutBegins() (end func()) {
	if !l.Power {
		return func() {}
	}
	return l.rounds.putBegins()
}

// PutDurable returns when a put whose last frame is lsn is on the disk, where puts wait for that: with what other puts have stored of the same prompt.
func (l *Ledger) PutDurable() error {
	if !l.Power {
		return nil
	}
	l.rounds.coming.Add(-1) // it is in one
	defer l.rounds.coming.Add(1)
	return l.Durable(l.WAL.LastLSN())
}

// both does two things at the same time.
func both(one, other func() error) error {
	done := make(chan error, 1)
	go func() { done <- other() }()
	err := one()
	return errors.Join(err, <-done)
}
