package ggufgen

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// Writer collects metadata and tensors, then lays out the file.
type Writer struct {
	keys    []byte
	n       uint64
	infos   []byte
	tensors uint64
	data    []byte
	rng     *rand.Rand
}

// NewWriter begins a file of that architecture; weights are drawn with seed.
func NewWriter(architecture string, seed uint64) *Writer {
	w := &Writer{rng: rand.New(rand.NewPCG(seed, 0))}
	w.String("general.architecture", architecture)
	return w
}

func str(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

func (w *Writer) key(name string, typ uint32) {
	w.keys = binary.LittleEndian.AppendUint32(str(w.keys, name), typ)
	w.n++
}

// String adds a string.
func (w *Writer) String(name, v string) {
	w.key(name, 8)
	w.keys = str(w.keys, v)
}

// Uint adds a 32-bit unsigned integer.
func (w *Writer) Uint(name string, v int) {
	w.key(name, 4)
	w.keys = binary.LittleEndian.AppendUint32(w.keys, uint32(v))
}

// Float adds a 32-bit float.
func (w *Writer) Float(name string, v float32) {
	w.key(name, 6)
	w.keys = binary.LittleEndian.AppendUint32(w.keys, math.Float32bits(v))
}

// Bool adds a truth value.
func (w *Writer) Bool(name string, v bool) {
	w.key(name, 7)
	if v {
		w.keys = append(w.keys, 1)
	} else {
		w.keys = append(w.keys, 0)
	}
}

// Ints adds an array of 32-bit signed integers.
func (w *Writer) Ints(name string, v ...int) {
	w.key(name, 9)
	w.keys = binary.LittleEndian.AppendUint32(w.keys, 5)
	w.keys = binary.LittleEndian.AppendUint64(w.keys, uint64(len(v)))
	for _, x := range v {
		w.keys = binary.LittleEndian.AppendUint32(w.keys, uint32(int32(x)))
	}
}

// Strings adds an array of strings.
func (w *Writer) Strings(name string, v ...string) {
	w.key(name, 9)
	w.keys = binary.LittleEndian.AppendUint32(w.keys, 8)
	w.keys = binary.LittleEndian.AppendUint64(w.keys, uint64(len(v)))
	for _, x := range v {
		w.keys = str(w.keys, x)
	}
}

// Raw adds a value as another file has it: its type, and its bytes.
func (w *Writer) Raw(name string, typ uint32, value []byte) {
	w.key(name, typ)
	w.keys = append(w.keys, value...)
}

// Tensor adds an f32 tensor whose elements fill gives, in order; dims[0] is the fastest dimension.
func (w *Writer) Tensor(name string, fill func(i int) float32, dims ...int) {
	w.infos = binary.LittleEndian.AppendUint32(str(w.infos, name), uint32(len(dims)))
	n := 1
	for _, d := range dims {
		w.infos = binary.LittleEndian.AppendUint64(w.infos, uint64(d))
		n *= d
	}
	w.infos = binary.LittleEndian.AppendUint32(w.infos, 0)
	w.infos = binary.LittleEndian.AppendUint64(w.infos, uint64(len(w.data)))
	w.tensors++
	for i := range n {
		w.data = binary.LittleEndian.AppendUint32(w.data, math.Float32bits(fill(i)))
	}
	w.data = pad(w.data)
}

// Matrix adds a tensor of normally distributed weights that keep the size of what they multiply.
func (w *Writer) Matrix(name string, dims ...int) {
	scale := 1 / math.Sqrt(float64(dims[0]))
	w.Tensor(name, func(int) float32 { return float32(w.rng.NormFloat64() * scale) }, dims...)
}

// Ones adds a tensor of weights close to one, as norms have.
func (w *Writer) Ones(name string, dims ...int) {
	w.Tensor(name, func(int) float32 { return float32(1 + 0.1*w.rng.NormFloat64()) }, dims...)
}

const alignment = 32

func pad(b []byte) []byte {
	for len(b)%alignment != 0 {
		b = append(b, 0)
	}
	return b
}

// Bytes is the file.
func (w *Writer) Bytes() []byte {
	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, w.tensors)
	b = binary.LittleEndian.AppendUint64(b, w.n)
	b = append(b, w.keys...)
	b = append(b, w.infos...)
	return append(pad(b), w.data...)
}

func block(i int, name string) string { return fmt.Sprintf("blk.%d.%s.weight", i, name) }
