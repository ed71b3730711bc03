package chat

import (
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Summary says what is in a conversation's file. It needs no runtime.
type Summary struct {
	ID          string
	User        string
	Created     time.Time
	Fingerprint kv.Fingerprint // of the model that computed it
	Tokens      int            // of the log, hidden and evicted ones included
	System      int            // of these, the system prompt
	Turns       int            // that are not evicted
	Evicted     int            // turns
	Facts       []string       // names of the facts that the next turn attends to
	Meta        []byte
}

// Inspect reads the frames of a conversation's file (db.Store.ReadSession).
func Inspect(frames []db.SessionFrame) (Summary, error) {
	h, l, err := replay(Scope, frames)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{ID: h.id, User: h.user, Created: h.created, Fingerprint: h.fingerprint, Tokens: len(l.tokens), System: l.system(), Meta: l.meta}
	for _, p := range l.parts {
		switch {
		case p.kind != turnPart:
		case p.gone:
			s.Evicted++
		default:
			s.Turns++
		}
	}
	for _, f := range l.coming() {
		s.Facts = append(s.Facts, f.name)
	}
	return s, nil
}
