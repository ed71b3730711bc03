package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
)

// workOrder is what a child is to do until it is ended.
type workOrder struct {
	Dir       string
	Mode      mode
	WorldSeed uint64
	Seed      uint64 // of what its goroutines do
	LastID    int    // of the journal so far
}

const (
	workers    = 4
	workerRefs = 3                // and as many notes
	orphan     = 60 * time.Second // after which a child that nobody ends does so by itself
)

var ctx = context.Background()

// crew is a child's goroutines and the store that they work.
type crew struct {
	order workOrder
	w     *world
	log   *log
	store *db.Store // guarded by life
	// life is owned while the store is closed and opened again, and shared by all other operations.
	life    sync.RWMutex
	models  []atomic.Pointer[db.Model]
	members []*worker
}

// work is the child.
func work(o workOrder, journal io.Writer) {
	time.AfterFunc(orphan, func() { os.Exit(3) })
	c := &crew{order: o, w: newWorld(o.WorldSeed, o.Mode.BlockTokens), log: newLog(journal, o.LastID)}
	c.models = make([]atomic.Pointer[db.Model], len(c.w.models))
	c.log.line(func(b []byte) []byte { return append(b, lineOpening...) })
	if err := c.open(); err != nil {
		c.log.complain(findError, "open: %v", err)
		return
	}
	c.log.line(func(b []byte) []byte { return append(b, lineReady...) })
	for i := range workers {
		c.members = append(c.members, &worker{crew: c, id: i, r: rand.New(rand.NewPCG(o.Seed, uint64(i)))})
	}
	var all sync.WaitGroup
	for _, m := range c.members {
		all.Go(m.run)
	}
	all.Wait()
}

func (c *crew) open() (err error) {
	if c.store, err = db.Open(ctx, c.order.Dir, c.order.Mode.options()); err != nil {
		return err
	}
	for i := range c.models {
		if err := c.register(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *crew) register(i int) error {
	m, err := c.store.Register(ctx, c.w.models[i])
	for range 100 { // while open matches keep the room
		if !errors.Is(err, db.ErrNoSpace) || !c.order.Mode.Small {
			break
		}
		time.Sleep(time.Millisecond)
		m, err = c.store.Register(ctx, c.w.models[i])
	}
	switch {
	case err == nil:
		c.models[i].Store(m.Model)
	case errors.Is(err, db.ErrNoSpace) && c.order.Mode.Small && c.models[i].Load() != nil:
		return nil // it stays retired until the store is opened again
	}
	return err
}
