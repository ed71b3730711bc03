package modelfile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
)

// Contents is what a model file and the model that was loaded from it have in common. It does not tell two files of one shape and
// one metadata apart: the canary does.
type Contents struct {
	Meta   kv.Hash // of all metadata that is one value; arrays are not in what llama.cpp tells
	Values uint64  // of all tensors of all parts
	Bytes  uint64  // 0: a tensor is of a type that is not known here
}

func contentsOf(f *gguf.File) (c Contents, err error) {
	c.Meta = MetaHash(Meta(f))
	parts, err := gguf.Splits(f.Path)
	if err != nil {
		return c, err
	}
	known := true
	for _, part := range parts {
		g := f
		if part != f.Path {
			if g, err = gguf.Open(part); err != nil {
				return c, err
			}
		}
		for _, t := range g.Tensors {
			n := uint64(1)
			for _, d := range t.Dims {
				over, product := bits.Mul64(n, uint64(d))
				if n = product; over > 0 {
					return c, fmt.Errorf("%s: %w: tensor %s has %v values", part, gguf.ErrFormat, t.Name, t.Dims)
				}
			}
			c.Values += n
			size, ok := t.Bytes()
			c.Bytes += uint64(size)
			known = known && ok
		}
	}
	if !known {
		c.Bytes = 0
	}
	return c, nil
}

// Meta is the metadata of a file as llama.cpp spells it.
func Meta(f *gguf.File) map[string]string {
	out := map[string]string{}
	for key, v := range f.Meta {
		switch x := v.Scalar.(type) {
		case nil:
		case string:
			out[key] = Spelled(x)
		case float64:
			out[key] = Spelled(strconv.FormatFloat(x, 'f', 6, 64))
		default:
			out[key] = Spelled(fmt.Sprint(x))
		}
	}
	return out
}

// Spelled is a value without what llama.cpp's releases, and C libraries, spell in different ways: escapes, and numbers that are not whole.
func Spelled(value string) string {
	value = strings.NewReplacer("\\", "", "\n", "", "\r", "", "\t", "", "\"", "").Replace(strings.ToValidUTF8(value, ""))
	if len(value) > 400 || !strings.ContainsAny(value, ".,eEnN") { // the longest float of six decimals has 316 digits
		return value
	}
	number := value
	if strings.Count(value, ",") == 1 && !strings.Contains(value, ".") { // C writes floats in the language of the process
		number = strings.Replace(value, ",", ".", 1)
	}
	x, err := strconv.ParseFloat(strings.Replace(number, "-nan", "nan", 1), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return value
	}
	six := strconv.FormatFloat(x, 'f', 6, 64)       // as C's %f
	if x, _ = strconv.ParseFloat(six, 64); x == 0 { // -0, too
		x = 0
	}
	return strconv.FormatFloat(x, 'g', 9, 64)
}

// MetaHash is one hash of all of it.
func MetaHash(meta map[string]string) kv.Hash {
	var lines []string
	for key, value := range meta {
		lines = append(lines, fmt.Sprintf("%q=%q\n", key, value))
	}
	sort.Strings(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return kv.Hash(sum[:16])
}

// Replaced reports whether this process has mapped a file of that name which is gone, and not the one that is there now. Where the
// system does not tell (all but Linux), or the model was not mapped, it says no.
func Replaced(path string) bool {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return false
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return false
	}
	gone := false
	for line := range bytes.Lines(maps) {
		line = bytes.TrimSpace(line)
		if bytes.HasSuffix(line, []byte(" "+path)) {
			return false
		}
		gone = gone || bytes.HasSuffix(line, []byte(" "+path+" (deleted)"))
	}
	return gone
}

// Differs names the first key that differs, by name.
func Differs(file, loaded map[string]string) string {
	var keys []string
	for key := range file {
		keys = append(keys, key)
	}
	for key := range loaded {
		if _, ok := file[key]; !ok {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	for _, key := range keys {
		in, ok := file[key]
		has, is := loaded[key]
		if ok != is || in != has {
			return fmt.Sprintf("%s is %.60q in the file (there: %t), %.60q in memory (there: %t)", key, in, ok, has, is)
		}
	}
	return ""
}
