package damage

import (
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
)

func TestMain(m *testing.M) { memdir.MainOnDisk(m) }
