package gguf

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/dormousekv/dormouse/kv"
)

// Hashes are SHA-256, cut to 128 bits: a model file is the one thing here that strangers choose.

func sum(h interface{ Sum([]byte) []byte }) kv.Hash { return kv.Hash(h.Sum(nil)[:16]) }

// MetaHash is the hash of the values whose keys begin with prefix, keys included, arrays included. It is zero if there
// are none.
func (f *File) MetaHash(prefix string) (kv.Hash, error) {
	keys := f.WithPrefix(prefix)
	if len(keys) == 0 {
		return kv.Hash{}, nil
	}
	src, err := os.Open(f.Path)
	if err != nil {
		return kv.Hash{}, err
	}
	defer src.Close()
	h := sha256.New()
	for _, k := range keys {
		v := f.Meta[k]
		var b []byte
		b = binary.LittleEndian.AppendUint32(b, uint32(len(k)))
		b = append(b, k...)
		b = binary.LittleEndian.AppendUint32(b, uint32(v.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.Size))
		h.Write(b)
		if _, err := io.Copy(h, io.NewSectionReader(src, v.Offset, v.Size)); err != nil {
			return kv.Hash{}, fmt.Errorf("%s: %s at %d: %w", f.Path, k, v.Offset, err)
		}
	}
	return sum(h), nil
}

// TensorHash is the hash of a tensor's data of that many bytes.
func (f *File) TensorHash(t Tensor, bytes int64) (kv.Hash, error) {
	if bytes < 0 || bytes > f.Size-f.Data-t.Offset {
		return kv.Hash{}, fmt.Errorf("%s: %w: tensor %s of %d bytes at %d goes beyond the file", f.Path, ErrFormat, t.Name, bytes, t.Offset)
	}
	src, err := os.Open(f.Path)
	if err != nil {
		return kv.Hash{}, err
	}
	defer src.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(src, f.Data+t.Offset, bytes)); err != nil {
		return kv.Hash{}, fmt.Errorf("%s: tensor %s: %w", f.Path, t.Name, err)
	}
	return sum(h), nil
}

var splitName = regexp.MustCompile(`^(.*-)(\d{5})(-of-)(\d{5})(\.gguf)$`)

// Splits returns the files of a model: path alone, or all parts if its name says that it is one of several.
func Splits(path string) ([]string, error) {
	m := splitName.FindStringSubmatch(path)
	if m == nil {
		return []string{path}, nil
	}
	n, _ := strconv.Atoi(m[4])
	var out []string
	for i := 1; i <= n; i++ {
		p := fmt.Sprintf("%s%05d%s%s%s", m[1], i, m[3], m[4], m[5])
		if _, err := os.Stat(p); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errors.New("the name says that it is split into no parts"))
	}
	return out, nil
}

// untilDone reads as long as a context lasts.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}

// WeightsHash is the hash of all bytes of a model's files. It reads them all: about a second a gigabyte. A part of a split
// model whose name does not lead to the other parts is refused: what is in those would not count.
func WeightsHash(ctx context.Context, path string) (kv.Hash, error) {
	paths, err := Splits(path)
	if err != nil {
		return kv.Hash{}, err
	}
	if f, err := Open(path); err == nil {
		if n, err := f.Int("split.count"); err == nil && n > 1 && n != int64(len(paths)) {
			return kv.Hash{}, fmt.Errorf("%s: %w: it is one of %d parts, its name leads to %d", path, ErrFormat, n, len(paths))
		}
	}
	h := sha256.New()
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return kv.Hash{}, err
		}
		_, err = io.CopyBuffer(h, untilDone{ctx, f}, make([]byte, 1<<20))
		f.Close()
		if err != nil {
			return kv.Hash{}, fmt.Errorf("%s: %w", p, err)
		}
	}
	return sum(h), nil
}
