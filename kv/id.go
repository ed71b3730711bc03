package kv

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Token is a token id of the model's vocabulary.
type Token = int32

// Key names a prompt prefix: a 128-bit chained hash ([Hasher]). The zero Key names nothing.
type Key [16]byte

// Fingerprint is the 128-bit hash of a [Descriptor]: the model-version hash.
type Fingerprint [16]byte

// ScopeID is whose data a block is: a 128-bit hash of the scope's name, seeded per store, so that names never reach
// the disk. The zero ScopeID is the shared scope.
type ScopeID [16]byte

// Hash is a 128-bit content hash that the caller computed (of a weights file, a tokenizer, an image, a LoRA adapter).
type Hash [16]byte

// HashOf is the content hash of text or bytes: the first 16 bytes of their SHA-256. It is never zero in practice, and the same in
// every store, release and language.
func HashOf[T ~string | ~[]byte](content T) Hash {
	sum := sha256.Sum256([]byte(content))
	return Hash(sum[:16])
}

// Seed is a store's random hash seed. Keys of two stores never match.
type Seed [16]byte

// UUID identifies a store.
type UUID [16]byte

func (k Key) String() string         { return hex.EncodeToString(k[:]) }
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }
func (s ScopeID) String() string     { return hex.EncodeToString(s[:]) }
func (h Hash) String() string        { return hex.EncodeToString(h[:]) }
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// IsZero reports whether k names nothing.
func (k Key) IsZero() bool { return k == Key{} }

// IsShared reports whether s is the shared scope.
func (s ScopeID) IsShared() bool { return s == ScopeID{} }

// ParseKey reads the 32 hex digits that [Key.String] prints.
func ParseKey(s string) (Key, error) { return parse16[Key](s) }

// ParseFingerprint reads the 32 hex digits that [Fingerprint.String] prints.
func ParseFingerprint(s string) (Fingerprint, error) { return parse16[Fingerprint](s) }

// ParseScope reads the 32 hex digits that [ScopeID.String] prints.
func ParseScope(s string) (ScopeID, error) { return parse16[ScopeID](s) }

func parse16[T ~[16]byte](s string) (T, error) {
	var id [16]byte
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return T(id), fmt.Errorf("%q is not 32 hexadecimal digits", s)
	}
	copy(id[:], b)
	return T(id), nil
}
