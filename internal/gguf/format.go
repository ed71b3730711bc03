package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// Sentinels that the errors of this package wrap.
var (
	ErrMagic   = errors.New("gguf: not a GGUF file")     // returned when the file does not begin with "GGUF"
	ErrVersion = errors.New("gguf: unknown version")     // returned when the version is neither 2 nor 3
	ErrFormat  = errors.New("gguf: file is malformed")   // returned when a length or type is impossible
	ErrMissing = errors.New("gguf: metadata is missing") // returned when a key is not there, or has another type
)

// Type is the type of a metadata value.
type Type uint32

// Types of metadata values.
const (
	Uint8 Type = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
	typeEnd
)

var typeBytes = [typeEnd]int64{Uint8: 1, Int8: 1, Uint16: 2, Int16: 2, Uint32: 4, Int32: 4, Float32: 4, Bool: 1, Uint64: 8, Int64: 8, Float64: 8}

// Bounds on what is kept in memory. Arrays are skipped, whatever their length.
const (
	maxKeys       = 1 << 16
	maxTensors    = 1 << 20
	maxNameBytes  = 1 << 12
	maxValueBytes = 16 << 20
	maxDims       = 8
	maxDepth      = 4
)

// Value is a metadata value. Arrays are not read: only their place is known.
type Value struct {
	Type   Type
	Scalar any   // uint64, int64, float64, bool or string; nil for arrays
	Elem   Type  // of arrays
	Count  int64 // of arrays
	Offset int64 // of the value in the file, its type tag left out
	Size   int64
}

// Tensor describes a tensor.
type Tensor struct {
	Name   string
	Dims   []int64
	Type   uint32 // ggml_type
	Offset int64  // from File.Data
}

// File is the header of a GGUF file.
type File struct {
	Path    string
	Size    int64
	Version uint32
	Keys    []string // in file order
	Meta    map[string]Value
	Tensors []Tensor
	Data    int64 // where the tensors' data begins
}

/*
All integers are little-endian. A string is u64 length and its bytes.

	+---------------+-------------+-----------------+-------------------+
	| "GGUF"        | version u32 | tensors     u64 | keys          u64 |
	+---------------+-------------+-----------------+-------------------+
	| keys x { key string | type u32 | value }                          |
	|     array value: { element type u32 | count u64 | elements }      |
	| tensors x { name string | dims u32 | dims x u64 | type u32 | offset u64 }
	| zeros up to a multiple of general.alignment, 32 if not set        |
	| data                                                              |
	+-------------------------------------------------------------------+
*/

// Open reads the header of a file.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	g, err := Read(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	g.Path = path
	return g, nil
}

// Read reads the header of a file of that size.
func Read(src io.ReaderAt, size int64) (*File, error) {
	r := &reader{b: bufio.NewReaderSize(io.NewSectionReader(src, 0, size), 1<<16), size: size}
	f := &File{Size: size, Meta: map[string]Value{}}
	var magic [4]byte
	if r.read(magic[:], "magic"); r.err != nil || string(magic[:]) != "GGUF" {
		return nil, fmt.Errorf("%w: it begins with %q", ErrMagic, magic[:])
	}
	if f.Version = r.u32("version"); r.err == nil && (f.Version < 2 || f.Version > 3) {
		return nil, fmt.Errorf("%w: %d, expected 2 or 3", ErrVersion, f.Version)
	}
	tensors := r.count("tensors", maxTensors)
	keys := r.count("keys", maxKeys)
	for range keys {
		key := r.str("key", maxNameBytes)
		v := r.value(Type(r.u32("type of "+key)), key)
		if r.err != nil {
			return nil, r.err
		}
		if _, twice := f.Meta[key]; twice {
			return nil, fmt.Errorf("%w: key %q is there twice", ErrFormat, key)
		}
		f.Keys = append(f.Keys, key)
		f.Meta[key] = v
	}
	for range tensors {
		t := Tensor{Name: r.str("tensor name", maxNameBytes)}
		for range r.count("dimensions of "+t.Name, maxDims) {
			t.Dims = append(t.Dims, int64(min(r.u64("dimension of "+t.Name), math.MaxInt64)))
		}
		t.Type = r.u32("type of " + t.Name)
		at := r.u64("offset of " + t.Name)
		if r.err == nil && at > uint64(size) {
			r.fail("offset of "+t.Name, at, size)
		}
		if r.err != nil {
			return nil, r.err
		}
		t.Offset = int64(at)
		f.Tensors = append(f.Tensors, t)
	}
	if r.err != nil {
		return nil, r.err
	}
	align := int64(32)
	if v, ok := f.Meta["general.alignment"]; ok {
		n, ok := v.Scalar.(uint64)
		if !ok || n == 0 || n > 1<<20 || n&(n-1) != 0 {
			return nil, fmt.Errorf("%w: general.alignment is %v, expected a power of two", ErrFormat, v.Scalar)
		}
		align = int64(n)
	}
	f.Data = (r.at + align - 1) / align * align
	if f.Data > size && tensors > 0 {
		return nil, fmt.Errorf("%w: data begins at %d, the file has %d bytes", ErrFormat, f.Data, size)
	}
	return f, nil
}

type reader struct {
	b    *bufio.Reader
	at   int64
	size int64
	err  error
}

func (r *reader) fail(what string, found, limit any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: offset %d: %s is %v, at most %v", ErrFormat, r.at, what, found, limit)
	}
}

func (r *reader) read(dst []byte, what string) {
	if r.err != nil {
		clear(dst)
		return
	}
	n, err := io.ReadFull(r.b, dst)
	r.at += int64(n)
	if err != nil {
		clear(dst)
		r.err = fmt.Errorf("%w: offset %d: the file ends in %s", ErrFormat, r.at, what)
	}
}

func (r *reader) skip(n uint64, what string) {
	if r.err != nil {
		return
	}
	if n > uint64(r.size-r.at) {
		r.fail(what, fmt.Sprintf("%d bytes", n), r.size-r.at)
		return
	}
	for n > 0 {
		k, err := r.b.Discard(int(min(n, 1<<30)))
		r.at += int64(k)
		n -= uint64(k)
		if err != nil {
			r.err = fmt.Errorf("%w: offset %d: the file ends in %s", ErrFormat, r.at, what)
			return
		}
	}
}

func (r *reader) u32(what string) uint32 {
	var b [4]byte
	r.read(b[:], what)
	return binary.LittleEndian.Uint32(b[:])
}

func (r *reader) u64(what string) uint64 {
	var b [8]byte
	r.read(b[:], what)
	return binary.LittleEndian.Uint64(b[:])
}

// count reads a number of things, u64 or, for dimensions, u32.
func (r *reader) count(what string, limit uint64) int {
	var n uint64
	if limit == maxDims {
		n = uint64(r.u32(what))
	} else {
		n = r.u64(what)
	}
	if r.err == nil && n > limit {
		r.fail(what, n, limit)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) str(what string, limit uint64) string {
	n := r.u64("length of " + what)
	if r.err == nil && (n > limit || n > uint64(r.size-r.at)) {
		r.fail("length of "+what, n, min(limit, uint64(r.size-r.at)))
	}
	if r.err != nil {
		return ""
	}
	b := make([]byte, n)
	r.read(b, what)
	return string(b)
}

func (r *reader) value(t Type, key string) Value {
	v := Value{Type: t, Offset: r.at}
	switch t {
	case String:
		v.Scalar = r.str(key, maxValueBytes)
	case Array:
		v.Elem, v.Count = r.array(key, 1)
	case Uint8, Int8, Uint16, Int16, Uint32, Int32, Float32, Bool, Uint64, Int64, Float64:
		v.Scalar = r.scalar(t, key)
	default:
		if r.err == nil {
			r.fail("type of "+key, uint32(t), uint32(typeEnd-1))
		}
	}
	v.Size = r.at - v.Offset
	return v
}

func (r *reader) scalar(t Type, key string) any {
	var b [8]byte
	r.read(b[:typeBytes[t]], key)
	u := binary.LittleEndian.Uint64(b[:])
	switch t {
	case Int8:
		return int64(int8(u))
	case Int16:
		return int64(int16(u))
	case Int32:
		return int64(int32(u))
	case Int64:
		return int64(u)
	case Float32:
		return float64(math.Float32frombits(uint32(u)))
	case Float64:
		return math.Float64frombits(u)
	case Bool:
		return u != 0
	}
	return u
}

// array skips the elements of an array.
func (r *reader) array(key string, depth int) (elem Type, count int64) {
	elem = Type(r.u32("element type of " + key))
	n := r.u64("count of " + key)
	switch {
	case r.err != nil:
	case elem == String:
		for range n {
			if r.skip(r.u64("length of an element of "+key), "element of "+key); r.err != nil {
				return elem, 0
			}
		}
	case elem == Array && depth < maxDepth:
		for range n {
			if r.array(key, depth+1); r.err != nil {
				return elem, 0
			}
		}
	case elem < typeEnd && typeBytes[elem] > 0:
		if n > uint64(r.size) {
			r.fail("count of "+key, n, r.size)
			return elem, 0
		}
		r.skip(n*uint64(typeBytes[elem]), key)
	default:
		r.fail("element type of "+key, uint32(elem), uint32(typeEnd-1))
	}
	if r.err != nil {
		return elem, 0
	}
	return elem, int64(n)
}
