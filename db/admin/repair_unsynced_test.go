package admin_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// After an fsync that failed, what is wrong in the log is an end that was lost, for Repair as for Verify.
func TestRepairAfterAFailedFsync(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 5 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1+i, 32)...))
	}
	dir := storetest.Copy(t, s.Dir()) // as a kill leaves it
	logs, err := filepath.Glob(filepath.Join(dir, storetest.LogDir, "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	log := logs[len(logs)-1]
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	at := 64
	for range 3 { // head, model, first put
		at += (int(binary.LittleEndian.Uint32(b[at:]))+7)/8*8 + 8
	}
	b[at+60] ^= 4
	for name, content := range map[string][]byte{log: b, filepath.Join(dir, storetest.UnsyncedFile): nil} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil || len(seen.Damage) > 0 {
		t.Fatal(seen.Damage, err)
	}
	if got, err := admin.Repair(t.Context(), dir, filepath.Join(t.TempDir(), "new"), admin.RepairOptions{}); err != nil || len(got.Damage) > 0 {
		t.Errorf("Repair reports %v, which Verify calls no damage: %v", got.Damage, err)
	}
}
