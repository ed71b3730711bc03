package chat

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// foldBytes is how much longer than twice its contents a file may become before it is written anew. Meta, facts and turns that were taken back make
// the file longer, but not the log.
const foldBytes = 1 << 20

// frameBytes estimates the size of a frame in the file.
func frameBytes(body []byte) int { return len(body) + 40 }

// note appends a frame to the file. If the file has become too long for its contents, note writes it anew before.
func (c *Conversation) note(ctx context.Context, kind uint8, body []byte) error {
	if c.bytes > c.fold {
		if err := c.refile(ctx); err != nil { // the file stays long, and that is all
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

// refile writes the file anew from the log. It deletes the stored rows of turns that were taken back, because the new file does not know them.
func (c *Conversation) refile(ctx context.Context) error {
	if c.old != nil {
		return nil // the file still has the turns that the open one replaces: wait for its end
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

// replace replaces all frames of the file.
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

// deleteRows deletes the stored rows below roots: of this model, and of the one that the log was computed with.
func (c *Conversation) deleteRows(ctx context.Context, roots []kv.Prompt) error {
	models := []*db.Model{c.h.model}
	if fp := c.head.fingerprint; fp != c.h.model.Fingerprint() {
		switch m, err := c.h.store.Model(fp); {
		case err == nil:
			models = append(models, m)
		case !errors.Is(err, db.ErrNotFound) && !errors.Is(err, db.ErrCorrupt): // otherwise no row of that model can be read
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

// now returns the time in the precision of the file.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
