package space_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) { memdir.Main(m) }

// Nobody gets the error of the room that is made for files of the log. If it is damage of the index, the index is rebuilt.
func TestRoomForTheLogMeetsADamagedIndex(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	storetest.Put(t, m, p)
	k := storetest.Key(t, s, m, p, 0)
	storetest.OK(t, s.Checkpoint(t.Context()))

	name := filepath.Join(s.Dir(), storetest.IndexFile)
	b := storetest.Must(os.ReadFile(name))(t)
	row := append(append([]byte{2}, k[:]...), 0) // of the table of blocks; its checksum comes behind the key
	for at := 0; bytes.Contains(b[at:], row); {
		at += bytes.Index(b[at:], row) + len(row)
		storetest.Write(t, name, int64(at), []byte{^b[at]})
	}

	e := storetest.Engine(s)
	e.Budget.GiveUp(-e.Budget.Bytes(), 0) // all of the budget is reserved
	e.Space.Crowd(2)
	e.Space.MakeUp(t.Context())
	storetest.Eventually(t, "the index is rebuilt", func() bool { return len(admin.IndexProblems(s)) > 0 })
	storetest.Expect(t, m, p, 16)
}
