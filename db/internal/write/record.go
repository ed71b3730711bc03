package write

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// record is one that a put is going to write: the rows [from, to) of group g of block i.
type record struct {
	i, g, from, to int
	rows           kv.Rows
	room           int64 // reserved for it

	entry index.Entry
	err   error
}

// flushBytes bounds the records that are encoded and written side by side.
const flushBytes = 16 << 20

// write plans a record. It is written by the next flush, and published after that.
func (w *Put) write(i, g, from, to int, rows kv.Rows) {
	start, end := w.Chain.Block(i)
	n := w.estimate(g, to-from, end-start)
	w.planned = append(w.planned, record{i: i, g: g, from: from, to: to, rows: rows, room: n})
	w.plannedBytes += n
}

// flush encodes and writes the planned records, each on one goroutine so that what was encoded is still in its cache when it
// is written, and adds them to the batch.
func (w *Put) flush(ctx context.Context) error {
	planned := w.planned
	if len(planned) == 0 {
		return nil
	}
	w.planned, w.plannedBytes = nil, 0
	blocks, bytes := int64(0), int64(0)
	for i := range planned {
		r := &planned[i]
		w.Chain.Key(r.i)                        // so that the goroutines only read the chain
		r.entry.Seq = w.store.Ledger.Seq.Add(1) // in the order of the chain
		bytes += r.room
		blocks += r.blocks()
	}
	if !w.store.Budget.Reserve(bytes, blocks) {
		return w.oneByOne(ctx, planned)
	}
	w.enter()
	w.store.Rows.Workers.Encode(len(planned), func(k int, pace *read.Pace) bool {
		w.make(&planned[k], pace)
		return true
	})
	for k := range planned {
		if r := &planned[k]; r.err != nil {
			w.withdraw(planned[k:])
			if r.err == errNoRoom {
				return w.oneByOne(ctx, planned[k:])
			}
			return r.err
		}
		w.add(&planned[k])
	}
	return nil
}

// blocks is how many blocks a record makes.
func (r *record) blocks() int64 {
	if r.g == 0 {
		return 1
	}
	return 0
}

// errNoRoom says that a record is larger than was thought, and that the difference is not to be had without evicting.
var errNoRoom = errors.New("no room")

// make encodes and writes a record whose room is reserved. Several may be made at a time.
func (w *Put) make(r *record, pace *read.Pace) {
	defer pace.Rest()
	b, err := w.encode(r, pace)
	if err == nil {
		defer b.Release()
		size := w.store.Search.Segments.RecordBytes(b)
		if more := size - r.room; more > 0 {
			if err = errNoRoom; w.store.Budget.Reserve(more, 0) {
				r.room, err = size, nil
			}
		}
	}
	if err == nil {
		err = w.append(r, b)
	}
	if err != nil {
		r.err = err
		w.store.Budget.GiveUp(r.room, r.blocks())
	}
}

// append writes a record whose room is reserved, which it uses up if it succeeds.
func (w *Put) append(r *record, b *segments.Builder) error {
	loc, err := w.store.Search.Segments.Append(w.model.Desc, w.model.Fingerprint, b)
	if err != nil {
		return err
	}
	r.entry.Loc = loc
	w.store.Ledger.Growth.Add(loc.Length)
	w.store.Budget.GiveUp(r.room, 0)
	return nil
}

// add puts a written record into the batch.
func (w *Put) add(r *record) {
	w.batch = append(w.batch, r.entry)
	w.batchBytes += r.entry.Loc.Length
	w.Result.Records++
	w.Result.Blocks += int(r.blocks())
	w.Result.Bytes += r.entry.Loc.Length
}

// withdraw gives up the records that were written behind one that was not: they must not outlast the publish gate unnamed.
func (w *Put) withdraw(records []record) {
	for i := range records {
		if r := &records[i]; r.err == nil {
			w.store.Ledger.Catalog.Bury(deadOf([]index.Entry{r.entry}), false)
			w.store.Budget.GiveUp(0, r.blocks())
		}
	}
}

// oneByOne encodes and writes records where room has to be made. Evicting waits for locks that come before the publish gate, so
// what is written so far is published first.
func (w *Put) oneByOne(ctx context.Context, records []record) error {
	pace := w.store.Rows.Workers.PutPace()
	var ahead room // made for records that follow
	giveBack := func() {
		w.store.Budget.GiveUp(ahead.bytes, ahead.blocks)
		ahead = room{}
	}
	defer giveBack()
	for i := range records {
		r := &records[i]
		b, err := w.encode(r, &pace)
		if err != nil {
			return err
		}
		size := w.store.Search.Segments.RecordBytes(b)
		if !ahead.take(size, r.blocks()) {
			giveBack() // it is enough for this one perhaps, which is smaller than was thought
			if !w.store.Budget.Reserve(size, r.blocks()) {
				if err = w.publishBatch(ctx); err == nil {
					ahead, err = w.makeRoom(ctx, size, records[i:])
					pace = w.store.Rows.Workers.PutPace() // that was no work
				}
				if err != nil {
					b.Release()
					return err
				}
			}
		}
		w.enter()
		r.room = size
		err = w.append(r, b)
		b.Release()
		if err != nil {
			w.store.Budget.GiveUp(size, r.blocks())
			return err
		}
		w.add(r)
	}
	return nil
}

// room is what is reserved.
type room struct{ bytes, blocks int64 }

// take uses so much of it, if it has that.
func (x *room) take(bytes, blocks int64) bool {
	if bytes > x.bytes || blocks > x.blocks {
		return false
	}
	x.bytes, x.blocks = x.bytes-bytes, x.blocks-blocks
	return true
}

// makeRoom makes room for the first of some records, whose size is known, and ahead for some of those that follow: each time takes a sync or two.
// What they take nobody knows before they are encoded, so it is little that more than that may be evicted.
func (w *Put) makeRoom(ctx context.Context, size int64, records []record) (ahead room, err error) {
	first := records[0].blocks()
	for i := 1; i < len(records) && ahead.bytes+records[i].room <= w.store.Budget.Step()-size; i++ {
		ahead.bytes, ahead.blocks = ahead.bytes+records[i].room, ahead.blocks+records[i].blocks()
	}
	if ahead.bytes > 0 {
		if err = w.store.Space.TryRoom(ctx, size+ahead.bytes, first+ahead.blocks); err == nil {
			return ahead, nil
		}
		if !errors.Is(err, vfs.ErrNoSpace) {
			return room{}, err
		}
	}
	return room{}, w.store.Space.MakeRoom(ctx, size, first)
}

// encode makes a record's bytes. Safe to call for several records at a time.
func (w *Put) encode(r *record, pace *read.Pace) (b *segments.Builder, err error) {
	err = segments.Callers(func() error {
		b, err = w.build(r, pace)
		return err
	})
	return b, err
}

// build is encode of rows that can be read.
func (w *Put) build(r *record, pace *read.Pace) (*segments.Builder, error) {
	d := w.model.Desc
	start, end := w.Chain.Block(r.i)
	meta := segments.Meta{
		Key: w.Chain.Key(r.i), Group: uint8(r.g), Parent: w.Chain.Parent(r.i), Model: w.model.Fingerprint, Scope: w.Chain.Scope(r.i),
		First: uint32(start), Seq: r.entry.Seq, Tokens: w.prompt.Tokens[start:end], Created: w.created, Spans: spansIn(&w.prompt, start, end),
	}
	tensors := w.model.GroupTensors[r.g]
	b := segments.NewBuilder(meta, len(tensors))
	b.Grow(w.estimate(r.g, r.to-r.from, end-start))
	state := d.Groups[r.g].Kind == kv.StateAt
	for _, ti := range tensors {
		t := d.Tensors[ti]
		codec, comp := w.options.Codec.For(t), w.options.Compression
		src := r.rows[ti]
		entry := segments.TensorEntry{Tensor: uint16(ti), FirstRow: uint16(r.from - start)}
		exact := max(0, min(exactTokens-r.from, r.to-r.from))
		if state {
			codec, entry.FirstRow, exact = quant.Raw, uint16(end-start-1), 0
			if t.Width == 0 {
				comp = quant.None
			}
		} else {
			src = src.Slice(t, r.from, r.to)
		}
		err := b.AddPlane(entry, func(dst []byte, te *segments.TensorEntry) ([]byte, error) {
			out, plane, sum, err := quant.EncodeSummed(dst, codec, comp, t, src, exact)
			te.Codec, te.Compression, te.CRC = uint8(plane.Codec), uint8(plane.Compression), sum
			te.Rows, te.Exceptions, te.MaxError = uint16(plane.Rows), plane.Exceptions, plane.MaxError
			return out, err
		})
		if err != nil {
			b.Release()
			return nil, fmt.Errorf("db: store %s: %w", t, err)
		}
		pace.Rest()
	}
	r.entry = index.Entry{
		Key: meta.Key, Group: uint8(r.g), Parent: meta.Parent, Model: meta.Model, Scope: meta.Scope,
		First: meta.First, Tokens: uint16(end - start), RowFirst: uint16(r.from - start), RowCount: uint16(r.to - r.from),
		Seq: meta.Seq, Created: meta.Created,
	}
	if r.g == 0 {
		if end < w.prompt.BlockCapacityEnd(r.i, d.BlockTokens) {
			r.entry.Flags |= index.FlagPartial
		}
		if !meta.Scope.IsShared() && (r.i == 0 || w.Chain.Scope(r.i-1).IsShared()) {
			r.entry.Flags |= index.FlagScopeRoot
		}
		r.entry.Hashes = w.store.Search.Hasher.AppendTokenHashes(nil, &w.prompt, start, end)
	}
	return b, nil
}

// idle reports whether everything is published.
func (w *Put) idle() bool { return len(w.planned) == 0 && len(w.batch) == 0 }

// estimate is about what a record takes, exceptions left out but for those of a prompt's first tokens.
func (w *Put) estimate(g, rows, tokens int) int64 {
	d := w.model.Desc
	n := int64(8192 + 4*tokens)
	for _, ti := range w.model.GroupTensors[g] {
		t := d.Tensors[ti]
		switch {
		case t.Width == 0:
			for _, p := range w.rows[ti].Pieces {
				n += int64(len(p.Mem))
			}
		default:
			n += int64(quant.MaxEncodedBytes(w.options.Codec.For(t), t, rows, exactTokens)) + 256
		}
	}
	return n
}

// spansIn returns the spans that touch [start, end), relative to start.
func spansIn(p *kv.Prompt, start, end int) []kv.Span {
	var out []kv.Span
	for _, s := range p.Spans {
		if s.End() > start && s.Start < end {
			s.Start -= start
			out = append(out, s)
		}
	}
	return out
}

// Publish makes what is planned and written visible: one log frame, one index version. Records that another put stored meanwhile lose, and
// are destroyed; partial blocks that a new block begins with, and poorer records, are replaced.
func (w *Put) Publish(ctx context.Context) error {
	defer w.giveBack()
	return errors.Join(w.flush(ctx), w.publishBatch(ctx))
}
