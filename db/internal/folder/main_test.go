package folder_test

import (
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
)

func TestMain(m *testing.M) { memdir.Main(m) }
