package db

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// A session is a file of frames that belongs to a scope: the log of a conversation, say. The store knows frames and not what is in them. It
// keeps them apart from rows: nothing evicts them, and they go with DeleteScope.

// MaxSessionBody bounds the body of a frame, in bytes.
const MaxSessionBody = sessions.MaxBody

// SessionFrame is one record of a session:
//
//	type SessionFrame struct {
//		Kind uint8 // 1 to 255; what they mean is the caller's
//		Body []byte
//	}
type SessionFrame = sessions.Frame

// Session is a scope's session, open for reading and writing. All methods are safe for concurrent use. It stays valid over Suspend and
// Resume: [ErrStale] if another process has changed its file meanwhile.
type Session struct {
	s *Store
	x *journals.Journal
}

// OpenSession opens the session of a scope, which must have a name, and makes it if there is none. It reads the whole file: the end that a
// crash tore is cut. Close it.
//
// Errors: ErrSessionOpen, ErrReadOnly, ErrNoSpace. A *CorruptError where something is damaged that had been durable, ErrVersion, ErrForeign:
// the file stays as it is, and [Store.ReadSession] reads what is before the damage.
func (s *Store) OpenSession(ctx context.Context, scope string) (*Session, error) {
	if scope == "" {
		return nil, errors.New("db: OpenSession without the name of a scope")
	}
	e, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	x, err := e.OpenSession(ctx, e.Hasher.Scope(scope))
	if err != nil {
		return nil, s.checkIndex(err)
	}
	return &Session{s: s, x: x}, nil
}

// Scope is the id of the session's scope.
func (x *Session) Scope() kv.ScopeID { return x.x.ID }

// Frames lists the frames in the order in which they were appended, as of the beginning of the loop. Their bodies are the caller's.
func (x *Session) Frames(ctx context.Context) iter.Seq2[SessionFrame, error] {
	return listed(func() ([]SessionFrame, error) { return x.frames(ctx) })
}

func (x *Session) frames(ctx context.Context) ([]SessionFrame, error) {
	e, err := x.s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer x.s.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e.Journals.Frames(x.x)
}

// Append adds a frame, as a whole or not at all. In the mode Power it is on the disk when this returns; in the mode Process a power cut may
// take what came since the last checkpoint or Sync.
//
// It makes room in the budget by evicting rows: ErrNoSpace, and nothing is changed, where nothing can go. After any other error of the disk
// the session refuses what writes, with that error, until it is closed and opened again; after a failed fsync the store does.
func (x *Session) Append(ctx context.Context, kind uint8, body []byte) error {
	e, err := x.s.enter(ctx)
	if err != nil {
		return err
	}
	defer x.s.leave()
	return x.s.checkIndex(e.AppendSession(ctx, x.x, SessionFrame{Kind: kind, Body: body}))
}

// Replace puts these frames in the place of all that there are. It is durable when it returns; after a crash there are the old ones or the
// new ones. Errors as of Append.
func (x *Session) Replace(ctx context.Context, frames []SessionFrame) error {
	e, err := x.s.enter(ctx)
	if err != nil {
		return err
	}
	defer x.s.leave()
	return x.s.checkIndex(e.ReplaceSession(ctx, x.x, frames))
}

// Err returns what every use of the session returns: [ErrNotFound] once its scope was deleted, [ErrStale]; nil if there is nothing. Who keeps
// rows of the scope in memory asks before storing them: they would outlive the deletion.
func (x *Session) Err() error {
	e, err := x.s.enter(context.Background())
	if err != nil {
		return err
	}
	defer x.s.leave()
	return e.Journals.Err(x.x)
}

// Bytes is the length of the session's file; 0 once that is deleted.
func (x *Session) Bytes() int64 {
	e := x.s.enterAlways()
	defer x.s.leave()
	if e == nil {
		return 0
	}
	return e.Journals.Length(x.x)
}

// Close makes what was appended durable, and lets go of the file. The store's Close does so, too. A second call does nothing.
func (x *Session) Close() error {
	e := x.s.enterAlways()
	defer x.s.leave()
	if e == nil {
		return nil
	}
	return e.Journals.Close(x.x)
}

// SessionInfo is one session of a store.
type SessionInfo struct {
	Scope    kv.ScopeID
	Bytes    int64 // length of the file
	Modified time.Time
	First    SessionFrame // the first frame; its kind is 0 if there is none
	Err      error        // head or first frame cannot be read
}

// Sessions lists the sessions by scope, open or not. It reads the beginning of each file.
func (s *Store) Sessions(ctx context.Context) iter.Seq2[SessionInfo, error] {
	return listed(func() ([]SessionInfo, error) { return s.sessions(ctx) })
}

func (s *Store) sessions(ctx context.Context) (out []SessionInfo, err error) {
	e, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	all, err := e.Journals.List(ctx)
	for _, x := range all {
		out = append(out, SessionInfo(x))
	}
	return out, err
}

// ReadSession lists the frames of a session without opening it: for tools, for readers beside a process that writes, and for what is before
// the damage of one that is damaged; the last pair has the error then. ErrNotFound if there is none.
func (s *Store) ReadSession(ctx context.Context, id kv.ScopeID) iter.Seq2[SessionFrame, error] {
	return listed(func() ([]SessionFrame, error) { return s.readSession(ctx, id) })
}

func (s *Store) readSession(ctx context.Context, id kv.ScopeID) ([]SessionFrame, error) {
	e, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e.Journals.ReadFrames(id)
}
