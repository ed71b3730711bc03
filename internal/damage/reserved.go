package damage

import "fmt"

// Reserved returns version, with the place, if not all of b, which lies at off of a file, is zero. The checksum of b is right: another
// release has given those bytes a meaning.
func Reserved(file string, off int64, b []byte, version error) error {
	for i, c := range b {
		if c != 0 {
			return fmt.Errorf("%s: offset %d: %w: reserved byte: expected 0, found %d", file, off+int64(i), version, c)
		}
	}
	return nil
}
