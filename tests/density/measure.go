package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// plane is the rows of one tensor in one block, packed, as the model computed them.
type plane struct {
	tensor kv.Tensor
	index  int // of the tensor
	rows   int
	mem    []byte
}

// coded is a plane as a codec stores it.
type coded struct {
	plane
	how     quant.Plane
	stored  []byte
	sum     uint32
	columns int // bytes of a row's codes
}

// set is what is restored at once: all rows of a role, in one codec.
type set struct {
	planes []coded
	rows   []byte // where they are restored to
	at     []int  // where each plane's rows begin in there
	stored int64  // bytes of all planes
	buffer []byte // as long as the longest plane
	turned []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode takes the planes of that role.
func encode(planes []plane, role kv.Role, codec quant.Codec) (*set, error) {
	s := &set{}
	total, longest := 0, 0
	for _, p := range planes {
		if p.tensor.Role != role {
			continue
		}
		if !codec.Supports(p.tensor) {
			return nil, fmt.Errorf("%s cannot hold %s", codec, p.tensor)
		}
		c := coded{plane: p}
		var err error
		if c.stored, c.how, c.sum, err = quant.EncodeSummed(nil, codec, quant.None, p.tensor, kv.Packed(0, p.rows, p.mem), 0); err != nil {
			return nil, err
		}
		if c.columns = p.tensor.Width / 32 * 34; codec == quant.Q4R {
			c.columns = p.tensor.Width / 64 * 36
		}
		s.planes, s.at = append(s.planes, c), append(s.at, total)
		total += len(p.mem)
		s.stored += int64(len(c.stored))
		longest = max(longest, len(c.stored))
	}
	if len(s.planes) == 0 {
		return nil, fmt.Errorf("no rows of %s", role)
	}
	s.rows, s.buffer, s.turned = make([]byte, total), make([]byte, longest), make([]byte, longest)
	return s, nil
}

func (s *set) dst(i int) kv.TensorRows {
	p := s.planes[i]
	return kv.Packed(0, p.rows, s.rows[s.at[i]:][:len(p.mem)])
}

// plain restores everything as the store does.
func (s *set) plain() error {
	for i := range s.planes {
		if err := s.plainPlane(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *set) plainPlane(i int) error {
	p := s.planes[i]
	return quant.DecodeVerified(s.dst(i), p.tensor, p.how, p.stored, 0, p.sum, quant.DecodeOptions{})
}

// packed is everything behind a compressor. A plane that gets no smaller is kept as it is.
type packed struct {
	compressor
	turned bool // channel-major
	stored [][]byte
	sums   []uint32
	bytes  int64
}

func (s *set) pack(c compressor, turned bool) *packed {
	k := &packed{compressor: c, turned: turned}
	for _, p := range s.planes {
		src := p.stored
		if turned {
			src = make([]byte, len(p.stored))
			transpose(src, p.stored, p.rows, p.columns)
		}
		b := c.compress(src)
		if len(b) >= len(src) {
			b = nil
		}
		k.stored = append(k.stored, b)
		k.sums = append(k.sums, crc32.Checksum(b, castagnoli))
		if b == nil {
			b = src
		}
		k.bytes += int64(len(b))
	}
	return k
}

var errSum = errors.New("checksum differs")

// decompress gives the codes of a plane that was compressed, in the order in which they were.
func (s *set) decompress(k *packed, i int) ([]byte, error) {
	codes := s.buffer[:len(s.planes[i].stored)]
	if err := k.fill(codes, k.stored[i]); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return codes, nil
}

// decompressAll is the decompressor's part of restore.
func (s *set) decompressAll(k *packed) error {
	for i, b := range k.stored {
		if b == nil {
			continue
		}
		if _, err := s.decompress(k, i); err != nil {
			return err
		}
	}
	return nil
}

// restore is plain through the compressor.
func (s *set) restore(k *packed) error {
	for i, p := range s.planes {
		b := k.stored[i]
		if b == nil {
			if err := s.plainPlane(i); err != nil {
				return err
			}
			continue
		}
		if crc32.Checksum(b, castagnoli) != k.sums[i] {
			return errSum
		}
		codes, err := s.decompress(k, i)
		if err != nil {
			return err
		}
		if k.turned {
			transpose(s.turned, codes, p.columns, p.rows)
			codes = s.turned[:len(codes)]
		}
		if err := quant.Decode(s.dst(i), p.tensor, p.how, codes, 0); err != nil {
			return err
		}
	}
	return nil
}

// line is what was measured in one order.
type line struct {
	turned bool
	plain  float64 // GB/s of the caller's rows
	cells  []cell
}

type cell struct {
	saved float64 // share of the stored bytes
	speed float64 // of the plain restore's
	alone float64 // GB/s of stored bytes that the decompressor gives back; 0: nothing was compressed
}

func (c cell) String() string {
	if c.alone == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.1f %%, %.2fx, %.1f GB/s", 100*c.saved, c.speed, c.alone)
}

// measure restores everything in turns, and compares what each way gives.
func (s *set) measure(all []compressor, rounds int) ([]line, error) {
	if err := s.plain(); err != nil {
		return nil, err
	}
	want := slices.Clone(s.rows)
	var packs []*packed
	for _, turned := range []bool{false, true} {
		for _, c := range all {
			k := s.pack(c, turned)
			clear(s.rows)
			if err := s.restore(k); err != nil {
				return nil, err
			}
			if !bytes.Equal(s.rows, want) {
				return nil, fmt.Errorf("%s, channel-major %t: restored rows differ", c.name, turned)
			}
			packs = append(packs, k)
		}
	}
	var plain []float64
	whole, alone := make([][]float64, len(packs)), make([][]float64, len(packs))
	for range rounds {
		t, err := seconds(s.plain)
		if err != nil {
			return nil, err
		}
		plain = append(plain, t)
		for i, k := range packs {
			if t, err = seconds(func() error { return s.restore(k) }); err != nil {
				return nil, err
			}
			whole[i] = append(whole[i], t)
			if t, err = seconds(func() error { return s.decompressAll(k) }); err != nil {
				return nil, err
			}
			alone[i] = append(alone[i], t)
		}
	}
	var lines []line
	for i, k := range packs {
		if i%len(all) == 0 {
			lines = append(lines, line{turned: k.turned, plain: float64(len(s.rows)) / median(plain) / 1e9})
		}
		compressed := int64(0)
		for j, b := range k.stored {
			if b != nil {
				compressed += int64(len(s.planes[j].stored))
			}
		}
		c := cell{saved: 1 - float64(k.bytes)/float64(s.stored), speed: median(plain) / median(whole[i])}
		if compressed > 0 {
			c.alone = float64(compressed) / median(alone[i]) / 1e9
		}
		l := &lines[len(lines)-1]
		l.cells = append(l.cells, c)
	}
	return lines, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

func printHead(all []compressor) {
	head, rule := "| rows | restored plain, GB/s of f16 | order |", "| --- | ---: | --- |"
	for _, c := range all {
		head, rule = head+" "+c.name+" |", rule+" --- |"
	}
	fmt.Printf("%s\n%s\n", head, rule)
}

func printLines(rows string, lines []line) {
	for _, l := range lines {
		order := "as stored"
		if l.turned {
			order = "channel-major"
		}
		var cells strings.Builder
		for _, c := range l.cells {
			fmt.Fprintf(&cells, " %v |", c)
		}
		fmt.Printf("| %s | %.1f | %s |%s\n", rows, l.plain, order, cells.String())
	}
}
