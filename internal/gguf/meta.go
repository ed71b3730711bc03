package gguf

import (
	"fmt"
	"sort"
	"strings"
)

func missing(key string, v Value, ok bool, want string) error {
	if !ok {
		return fmt.Errorf("%w: %s", ErrMissing, key)
	}
	return fmt.Errorf("%w: %s has type %d, expected %s", ErrMissing, key, v.Type, want)
}

// String returns a string value.
func (f *File) String(key string) (string, error) {
	v, ok := f.Meta[key]
	if s, is := v.Scalar.(string); is {
		return s, nil
	}
	return "", missing(key, v, ok, "a string")
}

// Int returns an integer value.
func (f *File) Int(key string) (int64, error) {
	v, ok := f.Meta[key]
	switch x := v.Scalar.(type) {
	case int64:
		return x, nil
	case uint64:
		if x <= 1<<63-1 {
			return int64(x), nil
		}
	}
	return 0, missing(key, v, ok, "an integer")
}

// Architecture is general.architecture, and the prefix of the architecture's own keys.
func (f *File) Architecture() (string, error) { return f.String("general.architecture") }

// WithPrefix returns the keys that begin with prefix, sorted.
func (f *File) WithPrefix(prefix string) []string {
	var keys []string
	for _, k := range f.Keys {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	return keys
}

// Tensor returns the description of a tensor.
func (f *File) Tensor(name string) (Tensor, bool) {
	for _, t := range f.Tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}
