package write

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Run stores block after block, a chunk at a time, and waits until that is as durable as the store's mode says. Afterwards the put rests on
// the deepest block that is stored, until Release.
func (w *Put) Run(ctx context.Context, prompt *kv.Prompt) error {
	if err := w.Plan(prompt); err != nil {
		return err
	}
	defer w.giveBack()
	defer w.openGate()
	stored, err := w.Known() // blocks of the chain that are known to be stored, or in the batch
	if err != nil {
		return err
	}
	if stored > 0 {
		_, w.Result.Tokens = w.Chain.Block(stored - 1)
	}
	if err := w.hopeless(); err != nil {
		return err
	}
	for i := stored; i < w.Chain.Len(); i++ {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, w.Publish(ctx))
		}
		if err := w.Block(ctx, i); err != nil {
			return errors.Join(err, w.Publish(ctx))
		}
		stored++
		if w.batchBytes >= chunkBytes {
			if err := w.Publish(ctx); err != nil {
				return err
			}
		}
	}
	if err := w.Publish(ctx); err != nil {
		return err
	}
	if stored > 0 {
		_, w.Result.Tokens = w.Chain.Block(stored - 1)
	}
	return w.store.Ledger.PutDurable()
}

// hopeless returns an error if the prompt would not fit if nothing else were stored: then nothing is evicted for it. It asks for the least that the
// new blocks can take. How much smaller compression makes them nobody knows.
func (w *Put) hopeless() error {
	if w.had == w.Chain.Len() {
		return nil
	}
	least := uint64(0)
	for i := w.had; i < w.Chain.Len() && w.options.Compression == quant.None; i++ {
		start, end := w.Chain.Block(i)
		for _, ti := range w.model.GroupTensors[0] {
			t := w.model.Desc.Tensors[ti]
			if lo, _, err := quant.PlaneBytes(quant.Plane{Codec: w.options.Codec.For(t), Rows: end - start}, t); err == nil {
				least += lo
			}
		}
	}
	return w.store.Budget.Hopeless(int64(least), int64(w.Chain.Len()))
}
