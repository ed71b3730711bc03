package llamacpp

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
)

// maxMemoBytes bounds the memo file; one that has grown beyond it is begun anew.
const maxMemoBytes = 1 << 20

// WeightsHash is the hash of all bytes of a model's files, all parts if it is split. The first time it reads them, about
// a second a gigabyte. memo names a small text file that remembers the answer by device, inode, size and modification
// time; empty remembers nothing. A memo that cannot be read or written costs time only.
func WeightsHash(path, memo string) (kv.Hash, error) {
	paths, err := gguf.Splits(path)
	if err != nil {
		return kv.Hash{}, fmt.Errorf("llamacpp: weights: %w", err)
	}
	var ids []string
	for _, p := range paths {
		id, err := fileID(p)
		if err != nil {
			return kv.Hash{}, fmt.Errorf("llamacpp: weights: %w", err)
		}
		ids = append(ids, id)
	}
	id := strings.Join(ids, "+")
	if h, ok := recall(memo, id); ok {
		return h, nil
	}
	h, err := gguf.WeightsHash(path)
	if err != nil {
		return kv.Hash{}, fmt.Errorf("llamacpp: weights: %w", err)
	}
	remember(memo, id, h)
	return h, nil
}

// The memo has a line for each model: "weights1 ID HASH".
const memoTag = "weights1"

func recall(memo, id string) (kv.Hash, bool) {
	b, err := os.ReadFile(memo)
	if memo == "" || err != nil || len(b) > maxMemoBytes {
		return kv.Hash{}, false
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 3 || f[0] != memoTag || f[1] != id {
			continue
		}
		var h kv.Hash
		if sum, err := hex.DecodeString(f[2]); err == nil && copy(h[:], sum) == len(h) && len(sum) == len(h) {
			return h, true
		}
	}
	return kv.Hash{}, false
}

func remember(memo, id string, h kv.Hash) {
	if memo == "" {
		return
	}
	b, err := os.ReadFile(memo)
	if err != nil || len(b) > maxMemoBytes {
		b = nil
	}
	b = fmt.Appendf(b, "%s %s %s\n", memoTag, id, h)
	// Renamed into place: two programs that write at once lose a line, never half of one.
	f, err := os.CreateTemp(filepath.Dir(memo), filepath.Base(memo)+".*")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err != nil || cerr != nil || os.Rename(f.Name(), memo) != nil {
		os.Remove(f.Name())
	}
}
