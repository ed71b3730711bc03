package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/edsrzf/mmap-go"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// warmBar is what a verified restore of f16 from Q8_0 should reach, by kernel.
func warmBar() bar {
	if quant.Kernel() == "avx512" {
		return atLeast(1.6)
	}
	return atLeast(1.4)
}

// restoreWarm is the verified restore of a Q8_0 store into f16, from the page cache, on all processors.
func restoreWarm(r *run) error {
	return r.restorePrompt("restore_warm", kv.F16, warmBar(), "Q8_0 store in the page cache -> f16, every checksum, token and parent compared; Match, Restore and Close")
}

// restorePassthrough restores a runtime's own Q8_0 cache, which is kept byte for byte.
func restorePassthrough(r *run) error {
	return r.restorePrompt("restore_warm_q8_passthrough", kv.Q8_0, bar{}, "a runtime's own Q8_0 cache, in the page cache, byte for byte, every checksum, token and parent compared; Match, Restore and Close")
}

func (r *run) restorePrompt(name string, dt kv.DType, b bar, what string) (err error) {
	s, err := r.storePrompt(name, descriptor(r.size.layers, dt), r.size.blocks, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.discard()) }()
	dst := newKVCache(s.desc, s.source.tokens)
	rows := dst.rows(dst.tokens)
	restore := func() (time.Duration, error) {
		return since(func() error { _, err := s.restore(s.prompt, rows); return err })
	}
	if _, err := restore(); err != nil {
		return err
	}
	if err := dst.compare(s.source); err != nil {
		return err
	}
	piece := blockTokens * dst.rowBytes() // what a block has of one tensor
	laps, err := interleave(r.size.rounds, restore, copyLap(dst, s.source, processors(), copyBytes), copyLap(dst, s.source, processors(), piece))
	if err != nil {
		return err
	}
	ours, copied, inPieces := rates(dst.bytes(), laps[0]), rates(dst.bytes(), laps[1]), rates(dst.bytes(), laps[2])
	r.emit(figure{
		name: name, unit: "MB/s", values: ours, ratios: quotients(ours, copied), bar: b,
		reference: fmt.Sprintf("%s; %d MiB, beside Go's copy of these bytes, memory to memory, %d goroutines, %d MiB a call: %s (%d KiB a call, as a block has of one tensor: %s, "+
			"of which the restore has %.2fx)", what, dst.bytes()>>20, processors(), copyBytes>>20, mbs(dst.bytes(), laps[1]), piece>>10, mbs(dst.bytes(), laps[2]), median(quotients(ours, inPieces))),
	})
	return nil
}

// restoreDense is restoreWarm where values are stored in 4.5 bits, beside the same restore from Q8_0.
func restoreDense(r *run) (err error) {
	desc := descriptor(r.size.layers, kv.F16)
	dense, plain := options(), options()
	dense.Codec = quant.Q4R
	a, err := r.storePrompt("restore_warm_dense", desc, r.size.blocks, dense)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.discard()) }()
	b, err := r.storePrompt("restore_warm_dense_q8_0", desc, r.size.blocks, plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.discard()) }()
	dst := newKVCache(desc, a.source.tokens)
	rows := dst.rows(dst.tokens)
	restore := func(s *stored) lap {
		return func() (time.Duration, error) {
			return since(func() error { _, err := s.restore(s.prompt, rows); return err })
		}
	}
	if _, err := restore(a)(); err != nil {
		return err
	}
	if err := dst.compareDense(a.source); err != nil {
		return err
	}
	laps, err := interleave(r.size.rounds, restore(a), restore(b), copyLap(dst, a.source, processors(), copyBytes))
	if err != nil {
		return err
	}
	ours, q8, copied := rates(dst.bytes(), laps[0]), rates(dst.bytes(), laps[1]), rates(dst.bytes(), laps[2])
	r.emit(figure{
		name: "restore_warm_dense", unit: "MB/s", values: ours, ratios: quotients(ours, q8), bar: atLeast(1),
		reference: fmt.Sprintf("keys in Q8_0, values in Q4R, in the page cache -> f16, as restore_warm; %d MiB, beside the same restore from Q8_0: %s; Go's copy of these bytes, "+
			"memory to memory: %s, of which the restore has %.2fx", dst.bytes()>>20, mbs(dst.bytes(), laps[1]), mbs(dst.bytes(), laps[2]), median(quotients(ours, copied))),
	})
	return nil
}

// planeFile is encoded planes in a mapped file, as a segment has them.
type planeFile struct {
	f      *os.File
	mem    mmap.MMap
	planes []quant.Plane
	stored [][]byte
	sums   []uint32
}

// encodePlanes writes every block of src to a file and maps it.
func encodePlanes(path string, src *kvCache) (_ *planeFile, err error) {
	blocks := src.tokens / blockTokens
	p := &planeFile{}
	var all []byte
	var ends []int
	for b := range blocks {
		for _, rows := range src.rowsAt(b*blockTokens, 0, blockTokens) {
			var plane quant.Plane
			var sum uint32
			if all, plane, sum, err = quant.EncodeSummed(all, quant.Q8_0, quant.None, src.tensor, rows, 0); err != nil {
				return nil, err
			}
			p.planes, p.sums, ends = append(p.planes, plane), append(p.sums, sum), append(ends, len(all))
			all = append(all, make([]byte, -len(all)&63)...) // a segment's planes begin at such places
		}
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		return nil, err
	}
	if p.f, err = os.Open(path); err != nil {
		return nil, err
	}
	if p.mem, err = mmap.Map(p.f, mmap.RDONLY, 0); err != nil {
		return nil, errors.Join(err, p.f.Close())
	}
	from := 0
	for _, end := range ends {
		p.stored = append(p.stored, p.mem[from:end])
		from = (end + 63) &^ 63
	}
	return p, nil
}

func (p *planeFile) close() error {
	return errors.Join(p.mem.Unmap(), p.f.Close(), os.Remove(p.f.Name()))
}

// restoreUnverified tells what the checksums of a restore cost. The database does not restore unverified, so that it is the
// codec that is measured, with and without them, over the same mapped planes.
func restoreUnverified(r *run) (err error) {
	src := newKVCache(descriptor(r.size.layers, kv.F16), r.size.blocks*blockTokens).fill()
	dst := newKVCache(descriptor(r.size.layers, kv.F16), src.tokens)
	p, err := encodePlanes(filepath.Join(r.dir, "planes"), src)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	all := func(decode func(i int, rows kv.TensorRows) error) lap {
		blocks := make([]kv.Rows, src.tokens/blockTokens)
		for b := range blocks {
			blocks[b] = dst.rowsAt(b*blockTokens, 0, blockTokens)
		}
		n := len(dst.tensors)
		return func() (time.Duration, error) {
			return since(func() error {
				return parallel(processors(), len(blocks), func(b int) error {
					for t, rows := range blocks[b] {
						if err := decode(b*n+t, rows); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
	verified := func(bytes int64) func(i int, rows kv.TensorRows) error {
		return func(i int, rows kv.TensorRows) error {
			return quant.DecodeVerified(rows, src.tensor, p.planes[i], p.stored[i], 0, p.sums[i], quant.DecodeOptions{Bytes: bytes})
		}
	}
	plain := all(func(i int, rows kv.TensorRows) error {
		return quant.Decode(rows, src.tensor, p.planes[i], p.stored[i], 0)
	})
	laps, err := interleave(r.size.rounds, plain, all(verified(0)), all(verified(dst.bytes())))
	if err != nil {
		return err
	}
	if _, err := plain(); err != nil {
		return err
	}
	if err := dst.compare(src); err != nil {
		return err
	}
	without, with := rates(dst.bytes(), laps[0]), rates(dst.bytes(), laps[1])
	r.emit(figure{
		name: "restore_warm_unverified", unit: "MB/s", values: without, ratios: quotients(without, with), bar: atMost(1.1),
		reference: fmt.Sprintf("quant.Decode beside quant.DecodeVerified, both with ordinary stores, over the same mapped planes (the database has no "+
			"unverified restore), %d MiB of f16, %d goroutines: verified %s; verified and with the stores of a large restore: %s",
			dst.bytes()>>20, processors(), mbs(dst.bytes(), laps[1]), mbs(dst.bytes(), laps[2])),
	})
	return nil
}
