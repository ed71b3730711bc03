package together

import (
	"os"
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
)

func TestMain(m *testing.M) {
	memdir.Unlogged()
	os.Exit(m.Run())
}
