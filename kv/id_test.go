package kv_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// What String prints, Parse reads, in either case of letters; nothing else parses.
func TestIDsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := hashes.Draw(t, "id")
		s := kv.Key(id).String()
		if rapid.Bool().Draw(t, "upper case") {
			s = strings.ToUpper(s)
		}
		k, err1 := kv.ParseKey(s)
		f, err2 := kv.ParseFingerprint(s)
		c, err3 := kv.ParseScope(s)
		if k != kv.Key(id) || f != kv.Fingerprint(id) || c != kv.ScopeID(id) || err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("%s parses as %s, %s, %s: %v, %v, %v", s, k, f, c, err1, err2, err3)
		}
		if k.IsZero() != (id == kv.Hash{}) || c.IsShared() != (id == kv.Hash{}) {
			t.Fatalf("%s is zero: %v, shared: %v", s, k.IsZero(), c.IsShared())
		}
	})
	for _, s := range []string{"", "0", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("0", 34), strings.Repeat("g", 32), " " + strings.Repeat("0", 31)} {
		if k, err := kv.ParseKey(s); err == nil || !strings.Contains(err.Error(), "32 hex") || !k.IsZero() {
			t.Errorf("%q parses as %s: %v", s, k, err)
		}
	}
	if s := (kv.UUID{0x12, 0x34, 15: 0xff}).String(); s != "12340000-0000-0000-0000-0000000000ff" {
		t.Error(s)
	}
	if !(kv.Key{}).IsZero() || !(kv.ScopeID{}).IsShared() {
		t.Error("zero is not zero")
	}
}

// The hash of content is SHA-256, cut: anybody can compute it.
func TestHashOf(t *testing.T) {
	const want = "ba7816bf8f01cfea414140de5dae2223" // FIPS 180-2, appendix B.1
	if text, raw := kv.HashOf("abc"), kv.HashOf([]byte("abc")); text.String() != want || raw != text {
		t.Errorf("%s of the text, %s of the bytes, want %s", text, raw, want)
	}
}
