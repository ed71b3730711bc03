package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// Started says that the server was started, or started again: nothing is known of it.
func (f *Front) Started() {
	if !f.args.Router && f.args.Model != "" {
		f.opener.Ahead(f.args.Model)
	}
	files := f.willLoad()
	f.started.Add(1)
	f.mu.Lock()
	f.files = files
	f.mu.Unlock()
	f.reset()
	f.Prepare()
}

// Prepare begins to look at the server's model before a request comes.
func (f *Front) Prepare() {
	if !f.args.Router {
		f.servedFor("")
	}
}

// tendStore opens the store, and sees to it until the front ends: it writes the figures that outlive the front, and has the store go on when it has
// suspended itself.
func (f *Front) tendStore() {
	store := f.shelf.open(f.ctx, f.o.DB)
	if store == nil {
		return
	}
	f.ledger.recall(store)
	f.shelf.publish(store)
	f.again()
	tick := time.NewTicker(totalsEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
			f.ledger.keep(f.ctx)
		case <-f.shelf.suspended:
			if f.shelf.resume(f.ctx, store) {
				f.again()
			}
		}
	}
}

// Close saves what only slots have, as long as the server answers and ctx lasts, and closes the store.
func (f *Front) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	list := f.models()
	f.warming.drop(func(*warmJob) bool { return true }) // nobody waits for it
	for _, s := range list {
		if k, err := s.ready(); err == nil && !s.gone() {
			s.table.Unbusy(ctx)
			if err := k.saver.flush(ctx); err != nil {
				f.log.Warn("saving slots", "err", err)
			}
		}
		s.end() // nothing is saved any more
		s.wait.Wait()
	}
	f.stop()
	f.work.Wait()
	var err error
	if store := f.shelf.db.Load(); store != nil {
		f.ledger.keep(ctx)
		err = store.Close()
	}
	return errors.Join(err, f.folder.Close())
}

// Answered reports whether the server has ever answered.
func (f *Front) Answered() bool { return f.answers.Load() }

// Opened waits until it is known for the first time whether there is a store, and gives why there is none. After a while it is being opened still.
func (f *Front) Opened(within time.Duration) error {
	select {
	case <-f.shelf.tried:
	case <-time.After(within):
	}
	_, err := f.shelf.store()
	return err
}

// Reach asks the server whether it answers, within a time.
func (f *Front) Reach(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := f.apiOf("").Health(ctx)
	if api.Loading(err) {
		return nil
	}
	return err
}

// Unseen is for [Process.Unseen]: a server that has ended before it ever answered is started once more without a folder for slot files, and then nothing is kept.
func (f *Front) Unseen() bool {
	if f.answers.Load() {
		return false
	}
	f.folder.Without(fmt.Errorf("with --slot-save-path %s the server ended before it answered, so it was started without: in a sandbox with mounts of its own it may not see that folder: "+
		"name one that it sees with --slot-dir", f.folder.Path))
	f.log.Warn("the server has ended before it answered: it is started once more without a folder for slot files, which it may not see", "folder", f.folder.Path)
	return true
}

// SlotFolder is the folder that the server needs as its --slot-save-path.
func (f *Front) SlotFolder() string { return f.folder.Path }

// Store is the store, or nil while there is none. It is the front's to close.
func (f *Front) Store() *db.Store { return f.shelf.db.Load() }
