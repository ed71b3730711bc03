package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// notStoring says why nothing is stored while the store is open: the file system has not the room. Empty: it is.
func (f *Front) notStoring(st db.Stats) string {
	if st.Full {
		return fmt.Sprintf("not storing: %s free, %s are kept free", humanize.IBytes(uint64(max(0, st.DiskFree))), humanize.IBytes(uint64(st.KeptFree)))
	}
	if why := f.noRoom.Load(); why != nil {
		return "not storing: " + *why
	}
	return ""
}

// sayRoom logs at the beginning that nothing will be stored, if that is so.
func (f *Front) sayRoom(store *db.Store) {
	if st, err := store.Stats(); err == nil && st.Full {
		f.log.Warn(f.notStoring(st), "dir", f.o.Dir)
	}
}

// put remembers what came of the last put, and logs when there is no room any more, and when there is again.
func (f *Front) put(err error) {
	switch {
	case errors.Is(err, db.ErrNoSpace):
		why := err.Error()
		if f.noRoom.Swap(&why) == nil {
			f.log.Warn("not storing", "err", err)
		}
	case err == nil:
		if f.noRoom.Swap(nil) != nil {
			f.log.Info("storing again")
		}
	}
}

// Opened waits until it is known for the first time whether there is a store, and gives why there is none. After a while it is being opened still.
func (f *Front) Opened(within time.Duration) error {
	select {
	case <-f.tried:
	case <-time.After(within):
	}
	_, err := f.store()
	return err
}

// Reach asks the server whether it answers, within a time.
func (f *Front) Reach(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := f.api("").Health(ctx)
	var status *api.StatusError
	if errors.As(err, &status) && status.Status == 503 { // it is loading its model
		return nil
	}
	return err
}
