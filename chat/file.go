package chat

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// foldBytes is how long a file may become, beyond twice what is in it, before it is written anew: meta, facts and turns that were taken back
// do not make the log longer, and would make the file.
const foldBytes = 1 << 20

// frameBytes is about what a frame takes in the file.
func frameBytes(body []byte) int { return len(body) + 40 }

// note appends a frame to the file. One that has become long for what it says is written anew before that.
func (c *Conversation) note(ctx context.Context, kind uint8, body []byte) error {
	if c.bytes > c.fold {
		if err := c.refile(ctx); err != nil { // it is only long
			c.fold = 2 * c.bytes
			c.stats.StoreErrors++
			c.stats.StoreError = err
		}
	}
	if err := c.file.Append(ctx, kind, body); err != nil {
		return err
	}
	c.bytes += frameBytes(body)
	return nil
}

// refile writes the log to the file as it is. What is stored of turns that were taken back is deleted: the new file does not know them.
func (c *Conversation) refile(ctx context.Context) error {
	if c.old != nil {
		return nil // the file has what the open turn takes the place of: it is written anew after the turn
	}
	if err := c.deleteRows(ctx, c.log.othersRoots()); err != nil {
		return err
	}
	if err := c.replace(ctx, c.log.frames(c.head, c.evicted)); err != nil {
		return err
	}
	c.log.keepRoot()
	return nil
}

// replace puts frames in the place of those of the file.
func (c *Conversation) replace(ctx context.Context, frames []db.SessionFrame) error {
	if err := c.file.Replace(ctx, frames); err != nil {
		return err
	}
	c.bytes = 0
	for _, f := range frames {
		c.bytes += frameBytes(f.Body)
	}
	c.fold = foldBytes + 2*c.bytes
	return nil
}

// deleteRows deletes what is stored under roots, of the model that the log was computed with, too.
func (c *Conversation) deleteRows(ctx context.Context, roots []kv.Prompt) error {
	models := []*db.Model{c.h.model}
	if fp := c.head.fingerprint; fp != c.h.model.Fingerprint() {
		switch m, err := c.h.store.Model(fp); {
		case err == nil:
			models = append(models, m)
		case !errors.Is(err, db.ErrNotFound) && !errors.Is(err, db.ErrCorrupt): // of such a one nothing can be read
			return err
		}
	}
	for _, p := range roots {
		for _, m := range models {
			if _, err := m.Delete(ctx, p); err != nil && !errors.Is(err, db.ErrRetired) {
				return err
			}
		}
	}
	return nil
}

// now is the time as a file has it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
