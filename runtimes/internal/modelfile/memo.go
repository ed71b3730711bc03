package modelfile

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
)

// maxMemoBytes bounds the memo file; one that has grown beyond it is begun anew.
const maxMemoBytes = 1 << 20

// WeightsHash is the hash of all bytes of a model's files, all parts if it is split: their names must say so. The first
// time it reads them, about a second a gigabyte. memo names a small text file that remembers the answer by device, inode,
// size and times of modification and change; empty remembers nothing. A memo that cannot be read or written costs time only.
func WeightsHash(ctx context.Context, path, memo string) (kv.Hash, error) {
	id, err := modelID(path)
	if err != nil {
		return kv.Hash{}, err
	}
	if h, ok := remembered(id, memo); ok {
		return h, nil
	}
	h, err := gguf.WeightsHash(ctx, path)
	if err != nil {
		return kv.Hash{}, err
	}
	if now, err := modelID(path); err != nil || now != id { // what was read may be of two files
		return kv.Hash{}, fmt.Errorf("%s: %w", path, ErrChanged)
	}
	remember(memo, weightsTag, id, h.String())
	return h, nil
}

// Remembered is the hash of a model's files, if the memo has it. It reads none of them.
func Remembered(path, memo string) (kv.Hash, bool) {
	id, err := modelID(path)
	if err != nil {
		return kv.Hash{}, false
	}
	return remembered(id, memo)
}

func remembered(id, memo string) (kv.Hash, bool) {
	if f := recall(memo, weightsTag, id, 1); f != nil {
		return parseHash(f[0])
	}
	return kv.Hash{}, false
}

// ErrChanged is returned when a model's file changed while it was read: reading it again tells more.
var ErrChanged = errors.New("the file changed while it was read")

// modelID changes when one of a model's files does.
func modelID(path string) (string, error) {
	paths, err := gguf.Splits(path)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, p := range paths {
		s, err := stampOf(p)
		if err != nil {
			return "", err
		}
		ids = append(ids, s.id())
	}
	return strings.Join(ids, "+"), nil
}

// The memo has lines "TAG ID ANSWER…" of words, for each model one of each tag.
const (
	weightsTag = "weights1" // then the hash
	headTag    = "head4"    // then architecture, hash of the tokenizer, hash of the RoPE frequency factors, how many sets of them, contents
)

// readMemo returns what is in the memo; nothing of one that cannot be read or is too large.
func readMemo(memo string) []byte {
	if memo == "" {
		return nil
	}
	f, err := os.Open(memo)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMemoBytes+1))
	if err != nil || len(b) > maxMemoBytes {
		return nil
	}
	return b
}

// recall returns the n words of the answer.
func recall(memo, tag, id string, n int) []string {
	for line := range strings.Lines(string(readMemo(memo))) {
		if f := strings.Fields(line); len(f) == 2+n && f[0] == tag && f[1] == id {
			return f[2:]
		}
	}
	return nil
}

func parseHash(s string) (h kv.Hash, ok bool) {
	sum, err := hex.DecodeString(s)
	return h, err == nil && len(sum) == len(h) && copy(h[:], sum) == len(h)
}

// remember returns why the memo does not.
func remember(memo, tag, id string, answer ...string) error {
	switch {
	case memo == "":
		return nil
	case isModel(memo):
		return fmt.Errorf("%s is a model, not a memo", memo)
	}
	b := readMemo(memo)
	if n := len(b); n > 0 && b[n-1] != '\n' {
		b = append(b, '\n') // rubbish must not take our line with it
	}
	b = fmt.Appendf(b, "%s %s %s\n", tag, id, strings.Join(answer, " "))
	// Renamed into place: two programs that write at once lose a line, never half of one.
	f, err := os.CreateTemp(filepath.Dir(memo), filepath.Base(memo)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), memo)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// isModel reports whether somebody named a model where a memo belongs: it must not be replaced.
func isModel(memo string) bool {
	f, err := os.Open(memo)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "GGUF"
}
